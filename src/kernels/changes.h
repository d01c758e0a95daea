#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"
#include "kernels/strip.h"
#include "kernels/classes.h"
#include "kernels/patch.h"

/* Sparse deltas (spec 5.2), encoding: which elements have changed, and where each is in its class.
 *
 * list_changes: lists in `changed` the elements of src that differ from those of base. Returns
 * their number, or SIZE_MAX if it exceeds `most`. changed has room for `most` elements; LMC__PAD
 * bytes behind its array `place` may be overwritten. *crc: the CRC-32C of src, unless SIZE_MAX is
 * returned. The block is coded from this list alone. So the list has the elements, too: to fetch
 * them later, one by one from the whole block, would be slow. src and base may change meanwhile.
 * They are read only once, so the list and the CRC are of the same bytes.
 *
 * rank_changes: ones[c] = the ranks of the changed elements of class c. A rank is the number of
 * elements of the class before the element in base: the place of its one bit in the class's mask.
 * counts[c] = elements of class c in base. The class of a changed element follows from
 * changed->before, even if base was changed later: so the lists have the lengths that count_classes
 * gave for changed->before. Most of the time is for counting the many unchanged elements, with
 * vectors as in count_classes. src and base are read exactly. */

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* Compares n elements, from number `from` on. Writes the numbers of elements that differ to
 * place[n_changed] and on. Returns how many numbers `place` has then; SIZE_MAX if these would be
 * more than `most`. Few elements differ, so words are compared, 32 bytes in a step. */
LMC__INLINE size_t lmc__list_words(uint32_t *place, size_t n_changed, size_t most,
                                   const uint8_t *now, const uint8_t *before, size_t n,
                                   unsigned width, size_t from)
{
    const unsigned lane = 8 * width;
    const uint64_t element = ~(uint64_t)0 >> (64 - lane);
    size_t at, i;
    for (at = 0; at + 32 <= n * width; at += 32) {
        uint64_t differ[4];
        unsigned w;
        for (w = 0; w < 4; w++)
            differ[w] = lmc__load64(now + at + 8 * w) ^ lmc__load64(before + at + 8 * w);
        if ((differ[0] | differ[1] | differ[2] | differ[3]) == 0) continue;
        for (w = 0; w < 4; w++)
            while (differ[w]) {
                const unsigned j = lmc__lowest_bit(differ[w]) / lane;
                if (n_changed == most) return SIZE_MAX;
                place[n_changed++] = (uint32_t)(from + (at + 8 * w) / width + j);
                differ[w] &= ~(element << j * lane);
            }
    }
    for (i = at / width; i < n; i++) {
        if (lmc__load_element(now, i, width) == lmc__load_element(before, i, width)) continue;
        if (n_changed == most) return SIZE_MAX;
        place[n_changed++] = (uint32_t)(from + i);
    }
    return n_changed;
}
#endif

#ifndef LMC_NO_ENCODER
/* Sets entry j of changed to element i of the strips at src and base (from element `from` on). */
LMC__INLINE void lmc__add_changed(const lmc__changed *changed, size_t j, size_t from, size_t i,
                                  const uint8_t *src, const uint8_t *base, unsigned width)
{
    changed->place[j] = (uint32_t)(from + i);
    lmc__store_element(changed->now, j, lmc__load_element(src, i, width), width);
    lmc__store_element(changed->before, j, lmc__load_element(base, i, width), width);
}

/* Fills entries [n_kept, n_changed) of changed from the copies of the strip that has all these
 * elements; the strip begins at element `from`. */
static void lmc__keep_changed(const lmc__changed *changed, size_t n_kept, size_t n_changed,
                              size_t from, const uint8_t *now, const uint8_t *before,
                              unsigned width)
{
    LMC__FOR_WIDTH(for (; n_kept < n_changed; n_kept++) lmc__add_changed(
        changed, n_kept, from, changed->place[n_kept] - from, now, before, w));
}

/* Lists changes of elements [i, n); n_changed are listed already. Compares copies of a strip. */
static size_t lmc__list_strips(const lmc__kernels *k, uint32_t *crc, const lmc__changed *changed,
                               size_t most, const uint8_t *src, const uint8_t *base, size_t i,
                               size_t n, unsigned width, size_t n_changed)
{
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    while (i < n) {
        const size_t n_strip = lmc__min(LMC__STRIP_ELEMENTS(width), n - i), n_kept = n_changed;
        memcpy(now, src + i * width, n_strip * width);
        memcpy(before, base + i * width, n_strip * width);
        *crc = k->crc32c(*crc, now, n_strip * width);
        LMC__FOR_WIDTH(n_changed = lmc__list_words(changed->place, n_changed, most, now, before,
                                                   n_strip, w, i));
        if (n_changed == SIZE_MAX) return SIZE_MAX;
        lmc__keep_changed(changed, n_kept, n_changed, i, now, before, width);
        i += n_strip;
    }
    return n_changed;
}

static size_t lmc__list_changes_scalar(const lmc__kernels *k, uint32_t *crc,
                                       const lmc__changed *changed, size_t most, const uint8_t *src,
                                       const uint8_t *base, size_t n, unsigned width)
{
    *crc = 0;
    return lmc__list_strips(k, crc, changed, most, src, base, 0, n, width, 0);
}

#if LMC__NEON || LMC__X86
/* Returns which of 64 elements differ, and copies all of them. */
LMC__INLINE_VEC uint64_t LMC__VEC(find_changes)(uint8_t *now, uint8_t *before, const uint8_t *src,
                                                const uint8_t *base, unsigned width)
{
    lmc__vector same[LMC__VECTORS_OF_64];
    unsigned v, p;
    LMC__UNROLL for (v = 0; v < LMC__VECTORS_OF_64; v++)
    {
        lmc__vector s[8];
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const size_t at = LMC__VECTOR_SIZE * (v * width + p);
            const lmc__vector a = LMC__VEC(load_once)(src + at), b = LMC__VEC(load)(base + at);
            s[p] = width == 1   ? (lmc__vector)((LMC__VEC(u8s))a == (LMC__VEC(u8s))b)
                   : width == 2 ? (lmc__vector)((LMC__VEC(u16s))a == (LMC__VEC(u16s))b)
                   : width == 4 ? (lmc__vector)((LMC__VEC(u32s))a == (LMC__VEC(u32s))b)
                                : (lmc__vector)((LMC__VEC(u64s))a == (LMC__VEC(u64s))b);
            LMC__VEC(store)(now + at, a);
            LMC__VEC(store)(before + at, b);
        }
        same[v] = LMC__VEC(low_bytes)(s, width);
    }
    return ~LMC__VEC(to_bits)(same);
}

/* Whole strips, with one branch for 64 elements, of which few differ. Then the CRC of the strip's
 * copy is computed, while the next strip is fetched. */
LMC__INLINE_VEC size_t LMC__VEC(list_loop)(const lmc__kernels *k, uint32_t *crc,
                                           const lmc__changed *changed, size_t most,
                                           const uint8_t *src, const uint8_t *base, size_t n,
                                           unsigned width)
{
    const lmc__changed to = *changed; /* a copy, which no store of bytes can change */
    const size_t strip = LMC__STRIP_ELEMENTS(width);
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    size_t i, at, n_changed = 0;
    *crc = 0;
    for (i = 0; i + strip <= n; i += strip, src += LMC__STRIP_SIZE, base += LMC__STRIP_SIZE) {
        for (at = 0; at < strip; at += 64) {
            const size_t to_copy = at * width;
            uint64_t differ = LMC__VEC(find_changes)(now + to_copy, before + to_copy, src + to_copy,
                                                     base + to_copy, width);
            LMC__VEC(fetch_bytes)(base + to_copy, 64 * width);
            if ((size_t)__builtin_popcountll(differ) > most - n_changed) return SIZE_MAX;
            for (; differ; differ &= differ - 1)
                lmc__add_changed(&to, n_changed++, i, at + (size_t)__builtin_ctzll(differ), now,
                                 before, width);
        }
        *crc = LMC__VEC(crc_ahead)(k, *crc, now, LMC__STRIP_SIZE, src + LMC__STRIP_SIZE);
    }
    return lmc__list_strips(k, crc, changed, most, src - i * width, base - i * width, i, n, width,
                            n_changed);
}

LMC__STATIC_VEC size_t LMC__VEC(list_changes)(const lmc__kernels *k, uint32_t *crc,
                                              const lmc__changed *changed, size_t most,
                                              const uint8_t *src, const uint8_t *base, size_t n,
                                              unsigned width)
{
    size_t n_changed;
    LMC__FOR_WIDTH(n_changed = LMC__VEC(list_loop)(k, crc, changed, most, src, base, n, w));
    return n_changed;
}
#endif

#if LMC__X86
/* 256 bytes in a step. Numbers are stored 16 at a time, up to LMC__PAD bytes behind the valid ones.
 * So no branch depends on the data: a CPU cannot predict such branches. The elements are added once
 * for each strip, from its copies. */
LMC__INLINE_AVX512 size_t lmc__list_loop_avx512(const lmc__kernels *k, uint32_t *crc,
                                                const lmc__changed *changed, size_t most,
                                                const uint8_t *src, const uint8_t *base, size_t n,
                                                unsigned width)
{
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    const __m512i up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                  fold = lmc__crc_factor(4);
    const lmc__changed to = *changed; /* a copy, which no store of bytes can change */
    const size_t step = 64 / width, strip = LMC__STRIP_ELEMENTS(width);
    __m512i sum[4], start = lmc__crc_start(0);
    size_t i, n_changed = 0, n_kept = 0;
    unsigned v, j;
    LMC__UNROLL for (v = 0; v < 4; v++) sum[v] = _mm512_setzero_si512();
    for (i = 0; i + 4 * step <= n; i += 4 * step) {
        uint64_t differ[4];
        size_t n_differ = 0;
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (v = 0; v < 4; v++)
        {
            const size_t at = i * width + 64 * v;
            const __m512i a = lmc__load_once_avx512(src + at), b = lmc__load_avx512(base + at);
            lmc__store_avx512(now + at % LMC__STRIP_SIZE, a);
            lmc__store_avx512(before + at % LMC__STRIP_SIZE, b);
            LMC__PREFETCH(src + lmc__min(at + LMC__FETCH_AHEAD, n * width));
            LMC__PREFETCH(base + lmc__min(at + LMC__FETCH_AHEAD, n * width));
            differ[v] = width == 1   ? _mm512_cmpneq_epi8_mask(a, b)
                        : width == 2 ? _mm512_cmpneq_epi16_mask(a, b)
                        : width == 4 ? _mm512_cmpneq_epi32_mask(a, b)
                                     : _mm512_cmpneq_epi64_mask(a, b);
            n_differ += (size_t)_mm_popcnt_u64(differ[v]);
            sum[v] = lmc__crc_fold(sum[v], fold, a);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        if (n_differ > most - n_changed) return SIZE_MAX;
        if (n_differ) LMC__UNROLL for (v = 0; v < 4; v++) for (j = 0; j < step; j += 16)
            {
                const __mmask16 m = (__mmask16)(differ[v] >> j);
                const __m512i numbers =
                    _mm512_add_epi32(up, _mm512_set1_epi32((int)(i + v * step + j)));
                _mm512_storeu_si512(to.place + n_changed, _mm512_maskz_compress_epi32(m, numbers));
                n_changed += (size_t)_mm_popcnt_u32(m);
            }
        if ((i + 4 * step) % strip == 0) {
            lmc__keep_changed(&to, n_kept, n_changed, i - i % strip, now, before, width);
            n_kept = n_changed;
        }
    }
    lmc__keep_changed(&to, n_kept, n_changed, i - i % strip, now, before, width);
    *crc = i ? lmc__crc_finish(sum, 4) : 0;
    return lmc__list_strips(k, crc, changed, most, src, base, i, n, width, n_changed);
}

LMC__AVX512 static size_t lmc__list_changes_avx512(const lmc__kernels *k, uint32_t *crc,
                                                   const lmc__changed *changed, size_t most,
                                                   const uint8_t *src, const uint8_t *base,
                                                   size_t n, unsigned width)
{
    size_t n_changed;
    LMC__FOR_WIDTH(n_changed = lmc__list_loop_avx512(k, crc, changed, most, src, base, n, w));
    return n_changed;
}
#endif

/* The state of rank_changes after n elements: `next` have changed, and counts[c] are of class c. */
typedef struct lmc__ranking {
    uint32_t *ones[LMC__MAX_CLASSES]; /* the place of the next rank of each class */
    lmc__changed changed;
    size_t n_changed, next, n;
    const uint8_t *base;
    unsigned width;
    size_t *counts;
    uint8_t class_of[256];
} lmc__ranking;

static void lmc__begin_ranking(lmc__ranking *r, size_t counts[LMC__MAX_CLASSES],
                               uint32_t *const *ones, const uint8_t *base, unsigned width,
                               const lmc__grouping *grouping, const lmc__changed *changed,
                               size_t n_changed)
{
    memcpy(r->ones, ones, grouping->n_classes * sizeof *ones);
    r->changed = *changed;
    r->n_changed = n_changed;
    r->next = r->n = 0;
    r->base = base;
    r->width = width;
    r->counts = counts;
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    lmc__set_class_table(r->class_of, grouping);
}

/* The class of changed element j. */
LMC__INLINE unsigned lmc__changed_class(const lmc__ranking *r, size_t j)
{
    return r->class_of[lmc__key_at(r->changed.before, j, r->width)];
}

/* Elements [r->n, n), one by one. This defines rank_changes. */
static void lmc__rank_rest(lmc__ranking *r, size_t n)
{
    size_t i;
    for (i = r->n; i < n; i++) {
        if (r->next < r->n_changed && r->changed.place[r->next] == i) {
            const unsigned c = lmc__changed_class(r, r->next++);
            *r->ones[c]++ = (uint32_t)r->counts[c];
        }
        r->counts[r->class_of[lmc__key_at(r->base, i, r->width)]]++;
    }
    r->n = n;
}

static void lmc__rank_changes_scalar(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                     const uint8_t *base, size_t n, unsigned width,
                                     const lmc__grouping *grouping, const lmc__changed *changed,
                                     size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__rank_rest(&r, n);
}

#if LMC__NEON
/* Steps of 64 elements. up_to[c] counts classes 0 .. c before the step. An element's rank is the
 * count of its class, plus the elements of its class before it in the step: only for a changed
 * element, keys are compared with the range of its class. */
LMC__INLINE void lmc__rank_loop_neon(lmc__ranking *r, size_t n, unsigned width,
                                     const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    const uint32_t *const places = r->changed.place;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i, j = 0;
    uint8x16_t highest[LMC__MAX_CLASSES], keys[4];
    lmc__key_ranges ranges;
    unsigned c;
    lmc__set_highest_neon(highest, grouping);
    lmc__set_key_ranges(&ranges, grouping);
    for (i = 0; i + 64 <= n; i += 64) {
        up_to[n_classes - 1] = i;
        lmc__load_step_neon(keys, r->base + i * width, width);
        for (; j < r->n_changed && places[j] < i + 64; j++) {
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            uint64_t m;
            c = lmc__changed_class(r, j);
            m = lmc__in_range_neon(keys, ranges.first[c], ranges.more[c]);
            *r->ones[c]++ = (uint32_t)(up_to[c] - (c ? up_to[c - 1] : 0) +
                                       (size_t)__builtin_popcountll(m & low));
        }
        for (c = 0; c + 1 < n_classes; c++) up_to[c] += lmc__count_up_to_neon(keys, highest[c]);
    }
    up_to[n_classes - 1] = i;
    for (c = 0; c < n_classes; c++) r->counts[c] = up_to[c] - (c ? up_to[c - 1] : 0);
    r->next = j;
    r->n = i;
}

static void lmc__rank_changes_neon(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                   const uint8_t *base, size_t n, unsigned width,
                                   const lmc__grouping *grouping, const lmc__changed *changed,
                                   size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    LMC__FOR_WIDTH(lmc__rank_loop_neon(&r, n, w, grouping));
    lmc__rank_rest(&r, n);
}
#endif

#if LMC__X86
/* The sum of the lowest `groups` bytes of a word, at most seven; each byte is at most 64. */
LMC__INLINE uint32_t lmc__sum_groups(uint64_t bytes, size_t groups)
{
    const uint64_t wanted = bytes & (((uint64_t)1 << 8 * groups) - 1),
                   pairs = (wanted & 0x00FF00FF00FF00FF) + (wanted >> 8 & 0x00FF00FF00FF00FF);
    return (uint32_t)(pairs * 0x0001000100010001 >> 48);
}

/* Steps of eight groups. The tally has the counts of each group, so keys are compared only in
 * groups that have a changed element. */
LMC__AVX2 static void lmc__rank_changes_avx2(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                             const uint8_t *base, size_t n, unsigned width,
                                             const lmc__grouping *grouping,
                                             const lmc__changed *changed, size_t n_changed)
{
    const unsigned n_classes = grouping->n_classes;
    const uint32_t *const places = changed->place;
    size_t up_to[LMC__MAX_CLASSES] = {0}, before[LMC__MAX_CLASSES], i, j = 0, c;
    uint64_t tally[LMC__MAX_CLASSES];
    __m256i keys[LMC__TALLY_STEP / 32], threshold[LMC__MAX_CLASSES];
    lmc__key_ranges ranges;
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__set_key_ranges(&ranges, grouping);
    lmc__set_thresholds_avx2(threshold, grouping);
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        up_to[n_classes - 1] = i;
        memcpy(before, up_to, sizeof before);
        lmc__load_step_avx2(keys, base + i * width, width);
        lmc__count_step_avx2(up_to, (uint8_t *)tally, sizeof *tally, keys, threshold, n_classes);
        tally[n_classes - 1] = 64 * LMC__ONES8;
        for (; j < n_changed && places[j] < i + LMC__TALLY_STEP; j++) {
            const size_t group = (places[j] - i) / 64;
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            uint64_t m, groups;
            c = lmc__changed_class(&r, j);
            m = lmc__in_range_avx2(keys + 2 * group, ranges.first[c], ranges.more[c]);
            groups = tally[c] - (c ? tally[c - 1] : 0);
            *r.ones[c]++ =
                (uint32_t)(before[c] - (c ? before[c - 1] : 0) + lmc__sum_groups(groups, group) +
                           (size_t)_mm_popcnt_u64(m & low));
        }
    }
    up_to[n_classes - 1] = i;
    for (c = 0; c < n_classes; c++) counts[c] = up_to[c] - (c ? up_to[c - 1] : 0);
    r.next = j;
    r.n = i;
    lmc__rank_rest(&r, n);
}

/* Steps of eight groups. The classes of all eight are found first, so that one loop can go over the
 * step's changed elements: CPUs predict its end better than the ends of eight loops. */
LMC__AVX512 static void lmc__rank_changes_avx512(size_t counts[LMC__MAX_CLASSES],
                                                 uint32_t *const *ones, const uint8_t *base,
                                                 size_t n, unsigned width,
                                                 const lmc__grouping *grouping,
                                                 const lmc__changed *changed, size_t n_changed)
{
    const uint32_t *const places = changed->place;
    __m512i n_of[LMC__MAX_CLASSES / 8];
    lmc__finder finder;
    lmc__found found;
    lmc__ranking r;
    size_t i, j = 0;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__set_finder(&finder, grouping, 0);
    n_of[0] = n_of[1] = _mm512_setzero_si512();
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        lmc__find_classes(&found, n_of, &finder, base + i * width, width);
        for (; j < n_changed && places[j] < i + LMC__TALLY_STEP; j++) {
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            const unsigned c = lmc__changed_class(&r, j);
            const size_t g = (places[j] - i) / 64;
            *r.ones[c]++ =
                (uint32_t)(found.before[g][c] + (uint64_t)_mm_popcnt_u64(found.mask[g][c] & low));
        }
    }
    lmc__store_found(counts, n_of);
    r.next = j;
    r.n = i;
    lmc__rank_rest(&r, n);
}
#endif
#endif /* LMC_NO_ENCODER */
