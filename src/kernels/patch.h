#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/tables.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"
#include "kernels/crc32c.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"
#include "kernels/classes.h"

/*
 * patch: elements of which few have changed (spec 7.3, Sparse). dst is base, but for the elements
 * that changes->at names: number at[c][j] of class c, counted from 0 among the class's elements in
 * base, has the residual changes->residual[c][j], an integer of `width` bytes, and with base's
 * element that gives the element of dst. dst may be base; then only what changes is written.
 * Returns the CRC-32C of dst.
 *
 *     base                    A0 B0 A1 A2 B1 B2 A3 ...        classes A and B, numbered
 *     at[A]  2 3 -            .  .  .  x  .  .  x
 *     at[B]  1 -              .  .  .  .  x  .  .
 *
 * The work is in proportion to the bytes of base, to read and to compare with thresholds, and to
 * the changes; ungroup would spread each class's residuals over all of its elements, zeros and all.
 *
 * Numbers ascend strictly in each class, and behind the last one stands LMC__NO_CHANGE, which no
 * element's number reaches. So how far at and residual are read follows from at alone: whatever the
 * numbers are, nothing is read behind the mark, and a number beyond the class's elements changes
 * nothing.
 */

/* Changes done, and elements seen, of each class, in the first n elements; their CRC-32C. */
typedef struct lmc__patch_progress {
    size_t n;
    uint32_t next[LMC__MAX_CLASSES], seen[LMC__MAX_CLASSES], crc;
} lmc__patch_progress;

LMC__INLINE void lmc__patch_body(uint8_t *dst, const lmc__changes *changes,
                                 const lmc__delta_block *block, unsigned width,
                                 const lmc__patch_progress *done)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__changes from = *changes;
    lmc__patch_progress p = *done;
    uint8_t class_of[256];
    size_t i;
    lmc__set_class_table(class_of, own.grouping);
    for (i = p.n; i < own.n; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        uint64_t v = b;
        if (from.at[c][p.next[c]] == p.seen[c]++)
            v = lmc__restore_element(lmc__load_element(from.residual[c], p.next[c]++, width), b,
                                     width, own.subtract);
        lmc__store_element(dst, i, v, width);
    }
}

/* Elements [done->n, n), one by one. This is the definition of patch, and what the other tiers end
 * with. */
static uint32_t lmc__patch_rest(const lmc__kernels *k, uint8_t *dst, const lmc__changes *changes,
                                const lmc__delta_block *block, const lmc__patch_progress *done)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
#define LMC__CALL(w) lmc__patch_body(dst, changes, block, w, done)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__patch_scalar(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                  const lmc__changes *changes, size_t n, unsigned width,
                                  int subtract, const lmc__grouping *grouping,
                                  lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__patch_progress done;
    (void)streaming;
    memset(&done, 0, sizeof done);
    return lmc__patch_rest(k, dst, changes, &block, &done);
}

#if LMC__X86
/*
 * Strip by strip. First the strip's keys are compared with the thresholds: a mask for each class,
 * of a bit for each element. Then, class by class, the changes whose numbers lie in the strip:
 *
 *     mask of class c      0110 0010 ... | 1000 0001 ... | 0000 1100 ...     words of 64 bits
 *     up_to                            3 |             5 |             7     ones up to each word
 *     at - seen = 4  -->  up_to <= 4 holds once: word 1, its bit number 4 - 3 = 1
 *
 * No branch depends on where changes lie but the end of a class's loop, once a strip. Masks are
 * 64 words at most: the strip is as long as that pays (shorter: more ends of loops, which are not
 * foreseen; longer: more words to look through).
 *
 * A mask's word stands for a group of 64 elements, whole ones only; the rest is for patch_rest. */
#define LMC__PATCH_WORDS 32u

typedef struct lmc__patch_strip {
    uint64_t mask[LMC__MAX_CLASSES][LMC__PATCH_WORDS];
    uint16_t up_to[2 + LMC__PATCH_WORDS]; /* [1 + w]: ones in the words up to w, of one class */
} lmc__patch_strip;

/* Element number `at` of the strip, of base, gets the residual: to dst, which may be base. */
LMC__INLINE void lmc__patch_element(uint8_t *dst, const uint8_t *base, size_t at,
                                    const uint8_t *residual, size_t j, unsigned width, int subtract)
{
    const uint64_t b = lmc__load_element(base, at, width),
                   r = lmc__load_element(residual, j, width);
    lmc__store_element(dst, at, lmc__restore_element(r, b, width, subtract), width);
}

/* The classes of n_words groups, to s->mask; dst: the groups are copied there, or NULL. Words
 * behind them are cleared. */
LMC__INLINE_AVX512 void lmc__mark_classes_avx512(lmc__patch_strip *s, uint8_t *dst,
                                                 const uint8_t *base, size_t n_words,
                                                 unsigned width, const __m512i *highest,
                                                 unsigned n_classes)
{
    size_t g;
    __m512i b[8];
    unsigned p, c;
    if (n_words < LMC__PATCH_WORDS) memset(s->mask, 0, n_classes * sizeof s->mask[0]);
    for (g = 0; g < n_words; g++) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            b[p] = lmc__load_avx512(base + (g * width + p) * 64);
            if (dst) lmc__store_avx512(dst + (g * width + p) * 64, b[p]);
        }
        keys = lmc__keys_avx512(b, width);
        for (c = 0; c + 1 < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]);
            s->mask[c][g] = here & ~above;
            here = above;
        }
        s->mask[c][g] = here;
    }
}

/* Ones of each word of a class, summed up: 32 numbers of 16 bits. Within lanes of eight numbers
 * first, then each lane gets the ends of those before. */
LMC__INLINE_AVX512 __m512i lmc__sum_words_avx512(const uint64_t mask[LMC__PATCH_WORDS])
{
    __m512i sum = _mm512_setzero_si512(), last;
    unsigned i;
    __m128i part[4];
    LMC__UNROLL for (i = 0; i < 4; i++) part[i] =
        _mm512_cvtepi64_epi16(_mm512_popcnt_epi64(_mm512_loadu_si512(mask + 8 * i)));
    sum = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1)),
        _mm256_inserti128_si256(_mm256_castsi128_si256(part[2]), part[3], 1), 1);
    sum = _mm512_add_epi16(sum, _mm512_bslli_epi128(sum, 2));
    sum = _mm512_add_epi16(sum, _mm512_bslli_epi128(sum, 4));
    sum = _mm512_add_epi16(sum, _mm512_bslli_epi128(sum, 8));
    /* the last number of each lane, in all of the lane; then of the lane before, and so on */
    last = _mm512_shuffle_epi8(sum, _mm512_set1_epi16(0x0F0E));
    last = _mm512_add_epi16(last, _mm512_maskz_shuffle_i64x2(0xFC, last, last, 0x90));
    last = _mm512_add_epi16(last, _mm512_maskz_shuffle_i64x2(0xF0, last, last, 0x40));
    return _mm512_add_epi16(sum, _mm512_maskz_shuffle_i64x2(0xFC, last, last, 0x90));
}

LMC__INLINE_AVX512 void lmc__patch_loop_avx512(uint8_t *dst, const lmc__changes *changes,
                                               const lmc__delta_block *block, unsigned width,
                                               int streams, lmc__patch_progress *done)
{
    const lmc__delta_block own = *block;
    const unsigned n_classes = own.grouping->n_classes;
    const size_t n_words = own.n / 64;
    uint8_t buffer[64 * LMC__PATCH_WORDS * 8];
    lmc__patch_strip s;
    __m512i highest[LMC__MAX_CLASSES];
    size_t w;
    unsigned c;
    s.up_to[0] = 0;
    lmc__set_highest_avx512(highest, own.grouping);
    for (w = 0; w < n_words; w += LMC__PATCH_WORDS) {
        const size_t words = lmc__min(LMC__PATCH_WORDS, n_words - w), size = 64 * words * width;
        const uint8_t *const base = own.base + 64 * w * width;
        uint8_t *const to = dst + 64 * w * width, *const out = streams ? buffer : to;
        lmc__mark_classes_avx512(&s, base == out ? NULL : out, base, words, width, highest,
                                 n_classes);
        for (c = 0; c < n_classes; c++) {
            const __m512i up_to = lmc__sum_words_avx512(s.mask[c]);
            const uint32_t *const at = changes->at[c], seen = done->seen[c];
            uint32_t end, next = done->next[c];
            _mm512_storeu_si512(s.up_to + 1, up_to);
            end = seen + s.up_to[LMC__PATCH_WORDS];
            for (; at[next] < end; next++) {
                const uint32_t number = at[next] - seen;
                const unsigned word = (unsigned)_mm_popcnt_u32(_mm512_cmple_epu16_mask(
                    up_to, _mm512_set1_epi16((short)number)));
                const uint64_t bit =
                    _pdep_u64((uint64_t)1 << (number - s.up_to[word]), s.mask[c][word]);
                lmc__patch_element(out, base, 64 * word + (size_t)_tzcnt_u64(bit),
                                   changes->residual[c], next, width, own.subtract);
            }
            done->next[c] = next;
            done->seen[c] = end;
        }
        done->crc = lmc__crc32c_avx512(done->crc, out, size);
        if (streams) lmc__stream_avx2(to, out, size);
    }
    done->n = 64 * n_words;
}

/* Once a strip: element number `rank` of the ones of m. Bytes' numbers of ones, summed up, say in
 * which byte it is. (pdep would be shorter, but is microcoded on Zen 1 and 2.) */
LMC__INLINE_AVX2 unsigned lmc__find_one_avx2(uint64_t m, unsigned rank)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    const uint64_t pairs = m - (m >> 1 & ones * 0x55),
                   quads = (pairs & ones * 0x33) + (pairs >> 2 & ones * 0x33),
                   up_to = ((quads + (quads >> 4)) & ones * 0x0F) * ones;
    /* bytes before that of the element, in bits: those whose sum is at most rank */
    const unsigned shift =
        8 * (unsigned)_mm_popcnt_u64(((rank * ones | high) - up_to) & high);
    const unsigned before = (unsigned)(up_to << 8 >> shift & 255);
    return shift +
           (unsigned)(lmc__sort_places[m >> shift & 255][1] >> 8 * (rank - before) & 255);
}

LMC__INLINE_AVX2 void lmc__mark_classes_avx2(lmc__patch_strip *s, uint8_t *dst,
                                             const uint8_t *base, size_t n_words, unsigned width,
                                             const __m256i *highest, unsigned n_classes)
{
    size_t g;
    __m256i b[8];
    unsigned p, c, half;
    if (n_words < LMC__PATCH_WORDS) memset(s->mask, 0, n_classes * sizeof s->mask[0]);
    for (g = 0; g < n_words; g++) {
        __m256i keys[2];
        uint64_t before = 0;
        LMC__UNROLL for (half = 0; half < 2; half++)
        {
            const size_t at = (2 * g + half) * 32 * width;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + at + 32 * p);
                if (dst) lmc__store_avx2(dst + at + 32 * p, b[p]);
            }
            keys[half] = lmc__keys_avx2(b, width);
        }
        for (c = 0; c + 1 < n_classes; c++) {
            const uint32_t low = (uint32_t)_mm256_movemask_epi8(
                               lmc__up_to_avx2(keys[0], highest[c])),
                           top = (uint32_t)_mm256_movemask_epi8(
                               lmc__up_to_avx2(keys[1], highest[c]));
            const uint64_t up_to = low | (uint64_t)top << 32;
            s->mask[c][g] = up_to ^ before;
            before = up_to;
        }
        s->mask[c][g] = ~before;
    }
}

LMC__INLINE_AVX2 void lmc__patch_loop_avx2(uint8_t *dst, const lmc__changes *changes,
                                           const lmc__delta_block *block, unsigned width,
                                           int streams, lmc__patch_progress *done)
{
    const lmc__delta_block own = *block;
    const unsigned n_classes = own.grouping->n_classes;
    const size_t n_words = own.n / 64;
    uint8_t buffer[64 * LMC__PATCH_WORDS * 8];
    lmc__patch_strip s;
    __m256i highest[LMC__MAX_CLASSES];
    size_t w;
    unsigned c, i;
    s.up_to[0] = 0;
    lmc__set_highest_avx2(highest, own.grouping);
    for (w = 0; w < n_words; w += LMC__PATCH_WORDS) {
        const size_t words = lmc__min(LMC__PATCH_WORDS, n_words - w), size = 64 * words * width;
        const uint8_t *const base = own.base + 64 * w * width;
        uint8_t *const to = dst + 64 * w * width, *const out = streams ? buffer : to;
        lmc__mark_classes_avx2(&s, base == out ? NULL : out, base, words, width, highest,
                               n_classes);
        for (c = 0; c < n_classes; c++) {
            const uint32_t *const at = changes->at[c], seen = done->seen[c];
            uint32_t end, next = done->next[c];
            unsigned sum = 0;
            __m256i up_to[2];
            LMC__UNROLL for (i = 0; i < LMC__PATCH_WORDS; i++)
            {
                sum += (unsigned)_mm_popcnt_u64(s.mask[c][i]);
                s.up_to[1 + i] = (uint16_t)sum;
            }
            end = seen + sum;
            up_to[0] = lmc__load_avx2((const uint8_t *)(s.up_to + 1));
            up_to[1] = lmc__load_avx2((const uint8_t *)(s.up_to + 17));
            for (; at[next] < end; next++) {
                const uint32_t number = at[next] - seen;
                const __m256i wanted = _mm256_set1_epi16((short)number);
                /* packs takes the two vectors' halves in turn, but only their number counts */
                const unsigned word =
                    32 - (unsigned)_mm_popcnt_u32((uint32_t)_mm256_movemask_epi8(
                             _mm256_packs_epi16(_mm256_cmpgt_epi16(up_to[0], wanted),
                                                _mm256_cmpgt_epi16(up_to[1], wanted))));
                lmc__patch_element(
                    out, base,
                    64 * word + lmc__find_one_avx2(s.mask[c][word], number - s.up_to[word]),
                    changes->residual[c], next, width, own.subtract);
            }
            done->next[c] = next;
            done->seen[c] = end;
        }
        done->crc = lmc__crc32c_avx2(done->crc, out, size);
        if (streams) lmc__stream_avx2(to, out, size);
    }
    done->n = 64 * n_words;
}

#define LMC__DEFINE_PATCH(width, isa, LOOP)                                                        \
    LOOP void lmc__patch_##width##_##isa(uint8_t *dst, const lmc__changes *changes,                \
                                         const lmc__delta_block *block, int streams,               \
                                         lmc__patch_progress *done)                                \
    {                                                                                              \
        lmc__patch_loop_##isa(dst, changes, block, width, streams, done);                          \
    }
#define LMC__DEFINE_PATCHES(isa, LOOP, TIER)                                                       \
    LMC__DEFINE_PATCH(1, isa, LOOP)                                                                \
    LMC__DEFINE_PATCH(2, isa, LOOP)                                                                \
    LMC__DEFINE_PATCH(4, isa, LOOP)                                                                \
    LMC__DEFINE_PATCH(8, isa, LOOP)                                                                \
    TIER static uint32_t lmc__patch_##isa(                                                         \
        const lmc__kernels *k, uint8_t *dst, const uint8_t *base, const lmc__changes *changes,     \
        size_t n, unsigned width, int subtract, const lmc__grouping *grouping,                     \
        lmc__streaming streaming)                                                                  \
    {                                                                                              \
        const lmc__delta_block block = {base, n, width, subtract, grouping};                       \
        const int streams = streaming.is_on && dst != base;                                        \
        lmc__patch_progress done;                                                                  \
        memset(&done, 0, sizeof done);                                                             \
        switch (width) {                                                                           \
        case 1: lmc__patch_1_##isa(dst, changes, &block, streams, &done); break;                   \
        case 2: lmc__patch_2_##isa(dst, changes, &block, streams, &done); break;                   \
        case 4: lmc__patch_4_##isa(dst, changes, &block, streams, &done); break;                   \
        default: lmc__patch_8_##isa(dst, changes, &block, streams, &done);                         \
        }                                                                                          \
        return lmc__patch_rest(k, dst, changes, &block, &done);                                    \
    }
LMC__DEFINE_PATCHES(avx2, LMC__LOOP_AVX2, LMC__AVX2)
LMC__DEFINE_PATCHES(avx512, LMC__LOOP_AVX512, LMC__AVX512)
#undef LMC__DEFINE_PATCHES
#undef LMC__DEFINE_PATCH
#endif
