#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/classes.h"

/*
 * Sparse deltas (spec 7.3), encoding: which elements have changed, and where each is in its class.
 *
 * list_changes: the numbers of the elements of src that differ from those of base, ascending, to
 * changed; how many, or SIZE_MAX if they are more than `most`. changed has room for `most` and
 * LMC__PAD bytes more, which may be overwritten.
 *
 * rank_changes: ranks[j] = number of elements of base before element changed[j] that are of its
 * class; counts[c] = elements of class c. So a class's mask has a one at the rank of each of its
 * changed elements. Few elements have changed: what takes time is to count all others, in vectors
 * as count_classes does. src and base are read exactly. */

#ifndef LMC_NO_ENCODER
/* Words of eight bytes, four at a time: in a sparse delta most are equal. A lane of a word is an
 * element. */
static size_t lmc__list_changes_scalar(uint32_t *changed, size_t most, const uint8_t *src,
                                       const uint8_t *base, size_t n, unsigned width)
{
    const unsigned lane = 8 * width;
    const uint64_t element = ~(uint64_t)0 >> (64 - lane);
    const size_t size = n * width;
    size_t at, n_changed = 0;
    for (at = 0; at < size; at += 32) {
        uint64_t differ[4];
        unsigned w;
        if (size - at >= 32) {
            for (w = 0; w < 4; w++)
                differ[w] = lmc__load64(src + at + 8 * w) ^ lmc__load64(base + at + 8 * w);
        } else {
            uint8_t tail[2][32] = {{0}, {0}};
            memcpy(tail[0], src + at, size - at);
            memcpy(tail[1], base + at, size - at);
            for (w = 0; w < 4; w++)
                differ[w] = lmc__load64(tail[0] + 8 * w) ^ lmc__load64(tail[1] + 8 * w);
        }
        if ((differ[0] | differ[1] | differ[2] | differ[3]) == 0) continue;
        for (w = 0; w < 4; w++)
            while (differ[w]) {
                const unsigned i = lmc__lowest_bit(differ[w]) / lane;
                if (n_changed == most) return SIZE_MAX;
                changed[n_changed++] = (uint32_t)((at + 8 * w) / width + i);
                differ[w] &= ~(element << i * lane);
            }
    }
    return n_changed;
}

#if LMC__X86
/* The elements behind the last whole step, from i on, of which n_changed before have changed. */
static size_t lmc__list_rest(uint32_t *changed, size_t n_changed, size_t most, const uint8_t *src,
                             const uint8_t *base, size_t i, size_t n, unsigned width)
{
    for (; i < n; i++) {
        if (memcmp(src + i * width, base + i * width, width) == 0) continue;
        if (n_changed == most) return SIZE_MAX;
        changed[n_changed++] = (uint32_t)i;
    }
    return n_changed;
}

/* 32 bytes a step, of which the mask has a bit each: an element has `width` of them, of which the
 * lowest stays. */
LMC__AVX2 static size_t lmc__list_changes_avx2(uint32_t *changed, size_t most, const uint8_t *src,
                                               const uint8_t *base, size_t n, unsigned width)
{
    const size_t step = 32 / width;
    size_t i, n_changed = 0;
    for (i = 0; i + step <= n; i += step) {
        const __m256i a = lmc__load_avx2(src + i * width), b = lmc__load_avx2(base + i * width);
        const __m256i same = width == 1   ? _mm256_cmpeq_epi8(a, b)
                             : width == 2 ? _mm256_cmpeq_epi16(a, b)
                             : width == 4 ? _mm256_cmpeq_epi32(a, b)
                                          : _mm256_cmpeq_epi64(a, b);
        uint32_t differ = ~(uint32_t)_mm256_movemask_epi8(same);
        if (differ == 0) continue;
        differ &= width == 1   ? 0xFFFFFFFF
                  : width == 2 ? 0x55555555
                  : width == 4 ? 0x11111111
                               : 0x01010101;
        if ((size_t)_mm_popcnt_u32(differ) > most - n_changed) return SIZE_MAX;
        for (; differ; differ &= differ - 1)
            changed[n_changed++] = (uint32_t)i + (uint32_t)_tzcnt_u32(differ) / width;
    }
    return lmc__list_rest(changed, n_changed, most, src, base, i, n, width);
}

/* 64 bytes a step, and then up to 16 numbers at a time, without a branch for each. */
LMC__AVX512 static size_t lmc__list_changes_avx512(uint32_t *changed, size_t most,
                                                   const uint8_t *src, const uint8_t *base,
                                                   size_t n, unsigned width)
{
    const __m512i up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const size_t step = 64 / width;
    size_t i, n_changed = 0;
    for (i = 0; i + step <= n; i += step) {
        const __m512i a = lmc__load_avx512(src + i * width), b = lmc__load_avx512(base + i * width);
        uint64_t differ = width == 1   ? _mm512_cmpneq_epi8_mask(a, b)
                          : width == 2 ? _mm512_cmpneq_epi16_mask(a, b)
                          : width == 4 ? _mm512_cmpneq_epi32_mask(a, b)
                                       : _mm512_cmpneq_epi64_mask(a, b);
        size_t j;
        if (differ == 0) continue;
        if ((size_t)_mm_popcnt_u64(differ) > most - n_changed) return SIZE_MAX;
        for (j = 0; j < step; j += 16, differ >>= 16) {
            const __mmask16 m = (__mmask16)differ;
            const __m512i numbers = _mm512_add_epi32(up, _mm512_set1_epi32((int)(i + j)));
            _mm512_storeu_si512(changed + n_changed, _mm512_maskz_compress_epi32(m, numbers));
            n_changed += (size_t)_mm_popcnt_u32(m);
        }
    }
    return lmc__list_rest(changed, n_changed, most, src, base, i, n, width);
}
#endif

/* Where rank_changes is: the first n elements are done, `next` of the changed ones were among them,
 * and counts[c] of them are of class c. */
typedef struct lmc__ranking {
    uint32_t *ranks;
    const uint32_t *changed;
    size_t n_changed, next, n;
    const uint8_t *base;
    size_t *counts;
    uint8_t class_of[256];
} lmc__ranking;

static void lmc__begin_ranking(lmc__ranking *r, size_t counts[LMC__MAX_CLASSES], uint32_t *ranks,
                               const uint8_t *base, const lmc__grouping *grouping,
                               const uint32_t *changed, size_t n_changed)
{
    r->ranks = ranks;
    r->changed = changed;
    r->n_changed = n_changed;
    r->next = r->n = 0;
    r->base = base;
    r->counts = counts;
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    lmc__set_class_table(r->class_of, grouping);
}

/* Elements [r->n, n), one by one. This is the definition. */
static void lmc__rank_rest(lmc__ranking *r, size_t n, unsigned width)
{
    size_t i;
    for (i = r->n; i < n; i++) {
        const unsigned c = r->class_of[lmc__key(lmc__load_element(r->base, i, width), width)];
        if (r->next < r->n_changed && r->changed[r->next] == i)
            r->ranks[r->next++] = (uint32_t)r->counts[c];
        r->counts[c]++;
    }
    r->n = n;
}

static void lmc__rank_changes_scalar(size_t counts[LMC__MAX_CLASSES], uint32_t *ranks,
                                     const uint8_t *base, size_t n, unsigned width,
                                     const lmc__grouping *grouping, const uint32_t *changed,
                                     size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ranks, base, grouping, changed, n_changed);
    lmc__rank_rest(&r, n, width);
}

#if LMC__NEON || LMC__X86
/* The next step of up to 64 elements, of which m[c] says which are of class c. An element's rank in
 * its class is that of the step's begin and the ones before it in its class's mask. */
LMC__INLINE void lmc__rank_step(lmc__ranking *r, const uint64_t m[LMC__MAX_CLASSES], size_t step,
                                unsigned width, unsigned n_classes)
{
    size_t j = r->next;
    unsigned c;
    for (; j < r->n_changed && r->changed[j] < r->n + step; j++) {
        const size_t i = r->changed[j];
        const uint64_t before = ((uint64_t)1 << (i - r->n)) - 1;
        c = r->class_of[lmc__key(lmc__load_element(r->base, i, width), width)];
        r->ranks[j] = (uint32_t)(r->counts[c] + (size_t)__builtin_popcountll(m[c] & before));
    }
    r->next = j;
    for (c = 0; c < n_classes; c++) r->counts[c] += (size_t)__builtin_popcountll(m[c]);
    r->n += step;
}
#endif

#if LMC__NEON
LMC__INLINE void lmc__rank_loop_neon(lmc__ranking *r, size_t n, unsigned width,
                                     const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    uint8x16_t highest[LMC__MAX_CLASSES];
    uint64_t m[LMC__MAX_CLASSES];
    unsigned p, c, j;
    lmc__set_highest_neon(highest, grouping);
    while (r->n + 64 <= n) {
        uint8x16_t keys[4];
        uint64_t before = 0;
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            uint8x16_t b[8];
            LMC__UNROLL for (p = 0; p < width; p++) b[p] =
                lmc__load_neon(r->base + (r->n + 16 * j) * width + 16 * p);
            keys[j] = lmc__keys_neon(b, width);
        }
        for (c = 0; c < n_classes; c++) {
            const uint64_t up_to =
                vget_lane_u64(vreinterpret_u64_u8(lmc__collect_neon(
                                  vcleq_u8(keys[0], highest[c]), vcleq_u8(keys[1], highest[c]),
                                  vcleq_u8(keys[2], highest[c]), vcleq_u8(keys[3], highest[c]))),
                              0);
            m[c] = up_to & ~before;
            before = up_to;
        }
        lmc__rank_step(r, m, 64, width, n_classes);
    }
}

static void lmc__rank_changes_neon(size_t counts[LMC__MAX_CLASSES], uint32_t *ranks,
                                   const uint8_t *base, size_t n, unsigned width,
                                   const lmc__grouping *grouping, const uint32_t *changed,
                                   size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ranks, base, grouping, changed, n_changed);
#define LMC__CALL(w) lmc__rank_loop_neon(&r, n, w, grouping)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    lmc__rank_rest(&r, n, width);
}
#endif

#if LMC__X86
LMC__INLINE_AVX2 void lmc__rank_loop_avx2(lmc__ranking *r, size_t n, unsigned width,
                                          const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    __m256i highest[LMC__MAX_CLASSES];
    uint64_t m[LMC__MAX_CLASSES];
    unsigned p, c;
    lmc__set_highest_avx2(highest, grouping);
    while (r->n + 32 <= n) {
        uint32_t before = 0;
        __m256i b[8], keys;
        LMC__UNROLL for (p = 0; p < width; p++) b[p] =
            lmc__load_avx2(r->base + r->n * width + 32 * p);
        keys = lmc__keys_avx2(b, width);
        for (c = 0; c < n_classes; c++) {
            const uint32_t up_to =
                (uint32_t)_mm256_movemask_epi8(lmc__up_to_avx2(keys, highest[c]));
            m[c] = up_to & ~before;
            before = up_to;
        }
        lmc__rank_step(r, m, 32, width, n_classes);
    }
}

LMC__AVX2 static void lmc__rank_changes_avx2(size_t counts[LMC__MAX_CLASSES], uint32_t *ranks,
                                             const uint8_t *base, size_t n, unsigned width,
                                             const lmc__grouping *grouping, const uint32_t *changed,
                                             size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ranks, base, grouping, changed, n_changed);
#define LMC__CALL(w) lmc__rank_loop_avx2(&r, n, w, grouping)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    lmc__rank_rest(&r, n, width);
}

/* A comparison gives the elements above a class: those of the class are above the one before, and
 * not above it. */
LMC__INLINE_AVX512 void lmc__rank_loop_avx512(lmc__ranking *r, size_t n, unsigned width,
                                              const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    __m512i highest[LMC__MAX_CLASSES];
    uint64_t m[LMC__MAX_CLASSES];
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    while (r->n + 64 <= n) {
        uint64_t here = ~(uint64_t)0;
        __m512i b[8], keys;
        lmc__touch_ahead(r->base, r->n * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < width; p++) b[p] =
            lmc__load_avx512(r->base + r->n * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        for (c = 0; c < n_classes; c++) {
            const uint64_t above = _mm512_cmpgt_epu8_mask(keys, highest[c]);
            m[c] = here & ~above;
            here = above;
        }
        lmc__rank_step(r, m, 64, width, n_classes);
    }
}

LMC__AVX512 static void lmc__rank_changes_avx512(size_t counts[LMC__MAX_CLASSES], uint32_t *ranks,
                                                 const uint8_t *base, size_t n, unsigned width,
                                                 const lmc__grouping *grouping,
                                                 const uint32_t *changed, size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ranks, base, grouping, changed, n_changed);
#define LMC__CALL(w) lmc__rank_loop_avx512(&r, n, w, grouping)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    lmc__rank_rest(&r, n, width);
}
#endif
#endif /* LMC_NO_ENCODER */
