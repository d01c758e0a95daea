#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"
#include "kernels/crc32c.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"
#include "kernels/classes.h"

/*
 * group: what an encoder does to a block that has a prediction (spec 5.1, 5.2), in one pass:
 *
 *   src, base --residual--> r --split--> bytes p = 0 .. width - 1 of each element
 *   base      --class-----> c
 *
 * Byte p of an element of class c goes to the next place of the list classes->row[c][p]; but the
 * lowest planes, p < n_natural, are not grouped: theirs go to place i of classes->row[0][p], which
 * has n bytes exactly. classes->n[c] becomes the elements of class c. Returns the CRC-32C of src.
 *
 * For each class in turn, the vector tiers pack its elements of a step, by the same shuffle in all
 * planes, and store them at the end of its lists. One plane of a step of eight elements, of two
 * classes:
 *
 *     class of the element       0  1  1  0  1  0  0  1
 *     byte p of its residual     a  b  c  d  e  f  g  h
 *     stored at the end of class 0's list       a d f g . . . .    next[0] += 4
 *     stored at the end of class 1's list       b c e h . . . .    next[1] += 4
 *
 * Stores are of whole vectors: what stands behind the elements that count (the dots) is written
 * over by the next one, or lies in the list's slack. A class without an element in a step is stored
 * to as well: no branch depends on the data. So every class has lists with slack, even if they are
 * empty, and no two lists share slack.
 *
 * src and base are read exactly, and once, for they may change meanwhile: lists and CRC are of the
 * same bytes. Nothing may overlap. The sizes of the lists come from count_classes with the same
 * grouping.
 */

#ifndef LMC_NO_ENCODER
/* m elements from done->n on, which are at src; done is moved on. */
LMC__INLINE void lmc__group_body(const lmc__classes *classes, const uint8_t *src,
                                 const lmc__delta_block *block, unsigned width,
                                 lmc__delta_progress *done, size_t m)
{
    const size_t from = done->n;
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const unsigned first = own.grouping->n_natural;
    uint8_t class_of[256];
    size_t next[LMC__MAX_CLASSES], i;
    unsigned p;
    memcpy(next, done->next, sizeof next);
    lmc__set_class_table(class_of, own.grouping);
    for (i = from; i < from + m; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const uint64_t v = lmc__load_element(src, i - from, width);
        const uint64_t r = own.order == LMC__ORDER_FLOAT
                               ? lmc__residual(v, b, width, LMC__ORDER_FLOAT)
                               : lmc__residual(v, b, width, LMC__ORDER_INTEGER);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        /* A list grows by one byte in all grouped planes of the class alike, so one `at` serves
         * all. */
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const to = p < first ? classes->row[0][p] + i : classes->row[c][p] + at;
            *to = (uint8_t)(r >> 8 * p);
        }
    }
    done->n = from + m;
    memcpy(done->next, next, sizeof next);
}

/* Elements [done->n, n), one by one, a strip at a time. This is the definition of group, and what
 * the other tiers end with. */
static uint32_t lmc__group_rest(const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                                const lmc__delta_block *block, lmc__delta_progress *done)
{
    const unsigned width = block->width;
    uint8_t copy[LMC__STRIP_SIZE];
    while (done->n < block->n) {
        const size_t m = lmc__min(LMC__STRIP_ELEMENTS(width), block->n - done->n);
        memcpy(copy, src + done->n * width, m * width);
        done->crc = k->crc32c(done->crc, copy, m * width);
        LMC__FOR_WIDTH(lmc__group_body(classes, copy, block, w, done, m));
    }
    memcpy(classes->n, done->next, sizeof classes->n);
    return done->crc;
}

static uint32_t lmc__group_scalar(const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                                  const lmc__delta_block *block)
{
    lmc__delta_progress done = {0, {0}, 0};
    return lmc__group_rest(k, classes, src, block, &done);
}

#if LMC__NEON
/* Whole steps of 64 elements, of copies of strips. A class's ones are packed by 8, as
 * in lmc__partition64_neon: the mask byte of 8 elements looks up the shuffle, and the sums of ones
 * in the bytes before it, all eight by one multiplication, say where they go.
 *
 *     m, a byte for 8 elements       m0   m1   m2  ...         of class c
 *     counts                         c0   c1   c2  ...         vcnt of each byte, at most 8
 *     ones = counts * 0x0101..01     c0   c0+c1   c0+c1+c2 ... at most 64: no byte overflows
 *     eight bytes j are stored at    next + ones[j - 1], and ones[7] is how far the list has come
 *
 * planes[p][j] has its 8 bytes in the lower half, where vqtbl1_u8 with places below 8 finds them;
 * those of odd j are brought there by vext, once for all classes. */
LMC__INLINE void lmc__group_loop_neon(const lmc__kernels *k, const lmc__classes *classes,
                                      const uint8_t *src, const lmc__delta_block *block,
                                      unsigned width, lmc__delta_progress *done)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width);
    uint8_t copy[LMC__STRIP_SIZE];
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t highest[LMC__MAX_CLASSES];
    unsigned p, c, j;
    lmc__set_highest_neon(highest, grouping);
    done->crc = 0;
    for (i = 0; i + 64 <= block->n; i += 64) {
        const uint8_t *const from = copy + i % strip * width;
        uint8x16_t keys[4], before[4];
        uint8x16_t planes[8]
                         [8]; /* [p][j]: bytes p of the 8 elements from 8 j on, in the lower half */
        if (i % strip == 0) {
            const size_t size = lmc__min(strip, (block->n - i) & ~(size_t)63) * width;
            memcpy(copy, src + i * width, size);
            done->crc = k->crc32c(done->crc, copy, size);
        }
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            uint8x16_t v[8], b[8];
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_neon(base + (i + 16 * j) * width + 16 * p);
                v[p] = lmc__load_neon(from + 16 * j * width + 16 * p);
            }
            if (block->order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_neon(v[p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_neon(v[p], b[p], width, LMC__ORDER_INTEGER);
            keys[j] = lmc__keys_neon(b, width);
            before[j] = vdupq_n_u8(0);
            /* elements to planes: v[p] becomes bytes p of 16 elements (split_join.h) */
            lmc__split_vectors_neon(v, width);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                if (p < first) lmc__store_neon(rows.row[0][p] + i + 16 * j, v[p]);
                planes[p][2 * j] = v[p];
                planes[p][2 * j + 1] = vextq_u8(v[p], v[p], 8);
            }
        }
        for (c = 0; c < n_classes; c++) {
            uint8x16_t one[4];
            uint8x8_t m8, counts;
            uint64_t m, ones;
            /* one = up_to & ~before: in this class or before, but not before */
            LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const uint8x16_t up_to = vcleq_u8(keys[j], highest[c]);
                one[j] = vbicq_u8(up_to, before[j]);
                before[j] = up_to;
            }
            m8 = lmc__collect_neon(one[0], one[1], one[2], one[3]);
            counts = vcnt_u8(m8);
            m = vget_lane_u64(vreinterpret_u64_u8(m8), 0);
            ones = vget_lane_u64(vreinterpret_u64_u8(counts), 0) *
                   LMC__ONES8; /* byte j: of bytes 0 .. j of m */
            LMC__UNROLL for (j = 0; j < 8; j++)
            {
                const size_t at = next[c] + (j ? (size_t)(ones >> (8 * j - 8) & 255) : 0);
                const uint8x8_t places = vget_high_u8(lmc__load_sort_places_neon(m >> 8 * j & 255));
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                    vst1_u8(rows.row[c][p] + at, vqtbl1_u8(planes[p][j], places));
            }
            next[c] += (size_t)(ones >> 56);
        }
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

static uint32_t lmc__group_neon(const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                                const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__FOR_WIDTH(lmc__group_loop_neon(k, classes, src, block, w, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}
#endif

#if LMC__X86
/* A shuffle that packs those of 16 bytes which have a bit in m. The table holds such shuffles of 8
 * bytes only (one for 16 bytes would have a megabyte). So there are two, one for each byte of m:
 *
 *   low     places of the ones of m's first byte, then zeros
 *   upper   those of the second byte, plus 8, moved up behind the ones of the first; where it is
 *           moved from, it is zero
 *
 * Their union is the shuffle. What stands behind the ones in it does not matter. With ones at 1, 4
 * and 6 of the first eight, and at 0, 3 of the second:
 *
 *   low              1  4  6  0  0  0  0  0    0  0 ...
 *   upper            8 11  8  8  8  8  8  8    8  8 ...     places | 8: they are below 8
 *   moved up by 3    0  0  0  8 11  8  8  8    8  8 ...
 *   union            1  4  6  8 11  8  8  8    8  8 ...
 *
 * Moving up by k is a shuffle itself: the 16 bytes of lmc__behind from 8 - k on; k is at most 8. */
LMC__INLINE_AVX2 __m128i lmc__pack_places_avx2(unsigned m)
{
    const unsigned low = m & 255, high = m >> 8 & 255;
    const __m128i behind =
        _mm_loadu_si128((const __m128i *)(const void *)(lmc__behind + 8 - _mm_popcnt_u64(low)));
    const __m128i upper = _mm_or_si128(lmc__load_places_avx2(high), _mm_set1_epi8(8));
    return _mm_or_si128(lmc__load_places_avx2(low), _mm_shuffle_epi8(upper, behind));
}

/* Whole steps of 32 elements, packed by 16, since byte shuffles do not cross halves: the second
 * half's are stored behind those of the first. The vectors of a strip are stored as they came, too:
 * the CRC is of this copy.
 *
 *     keys <= highest[c]     0 1 1 1 0 1 ...     up_to, as 32 bits
 *     the same of c - 1      0 0 1 0 0 1 ...     before: a subset, for the highest keys ascend
 *     m                      0 1 0 1 0 0 ...     what the class adds
 *
 * The order of stores matters: the first half's writes up to 16 bytes too much, and the second
 * half's, which begins where the first one's elements end, puts that right. */
LMC__INLINE_AVX2 void lmc__group_avx2_loop(const lmc__classes *classes, const uint8_t *src,
                                           const lmc__delta_block *block, unsigned width,
                                           lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const enum lmc__order order = block->order;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint8_t copies[LMC__STRIP_SIZE];
    uint32_t crc = 0;
    unsigned p, c, j;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)31);
        const size_t size = (end - i) * width;
        uint8_t *copy = copies;
        for (; i < end; i += 32, copy += 32 * width) {
            __m128i half[2][8];
            uint32_t before = 0;
            __m256i keys;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + 32 * p);
                v[p] = lmc__load_once_avx2(src + i * width + 32 * p);
                lmc__store_avx2(copy + 32 * p, v[p]);
            }
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_avx2(v[p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_avx2(v[p], b[p], width, LMC__ORDER_INTEGER);
            keys = lmc__keys_avx2(b, width);
            lmc__split_vectors_avx2(v, width);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                if (p < first) lmc__store_avx2(rows.row[0][p] + i, v[p]);
                half[0][p] = _mm256_castsi256_si128(v[p]);
                half[1][p] = _mm256_extracti128_si256(v[p], 1);
            }
            /* before: elements of the classes before c. Of a natural plane nothing is grouped; but
             * the top plane always is, and saying so spares the test. */
            for (c = 0; c < n_classes; c++) {
                const uint32_t up_to =
                    (uint32_t)_mm256_movemask_epi8(lmc__up_to_avx2(keys, highest[c]));
                const uint32_t m = up_to & ~before;
                LMC__UNROLL for (j = 0; j < 2; j++)
                {
                    const __m128i places = lmc__pack_places_avx2(m >> 16 * j);
                    const size_t at = next[c] + (j ? (size_t)_mm_popcnt_u64(m & 0xFFFF) : 0);
                    LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                        _mm_storeu_si128((__m128i *)(void *)(rows.row[c][p] + at),
                                         _mm_shuffle_epi8(half[j][p], places));
                }
                next[c] += (size_t)_mm_popcnt_u64(m);
                before = up_to;
            }
        }
        if (size < LMC__STRIP_SIZE) crc = lmc__crc32c_avx2(crc, copies, size);
        else crc = lmc__crc_ahead_avx2(crc, copies, LMC__STRIP_SIZE, src + end * width);
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__group_avx2, LMC__LOOP_AVX2,
                   (const lmc__classes *classes, const uint8_t *src, const lmc__delta_block *block,
                    lmc__delta_progress *done),
                   (classes, src, block, width, done))

LMC__AVX2 static uint32_t lmc__group_avx2(const lmc__kernels *k, lmc__classes *classes,
                                          const uint8_t *src, const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__CALL_WIDTH(lmc__group_avx2, (classes, src, block, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}

/* Whole steps of 64 elements, all in registers, the CRC as in split_root. Of a class's elements,
 * the places are compressed, and each plane is permuted by them: one instruction, where compressing
 * is two. Most lists get 32 elements at most, which take fewer store cycles than 64.
 *
 *     up        0 1 2 3 4 5 6 7 ...
 *     m         0 1 0 0 1 0 1 0 ...      elements 1, 4, 6 are in class c
 *     places    1 4 6 3 4 5 6 7 ...      compressed; behind the ones, up's own bytes remain
 *     x[j] = v[p][places[j]]             vpermb looks up 64 bytes across the whole vector */
LMC__INLINE_AVX512 void lmc__group_avx512_loop(const lmc__classes *classes, const uint8_t *src,
                                               const lmc__delta_block *block, unsigned width,
                                               lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width), up = lmc__load_avx512(lmc__count_up);
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const enum lmc__order order = block->order;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(src, i, n, width, p);
            b[p] = lmc__load_avx512(base + i * width + 64 * p);
            v[p] = lmc__load_once_avx512(src + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        /* The CRC is of the elements: from here on v holds residuals. */
        if (order == LMC__ORDER_FLOAT)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__residual_avx512(v[p], b[p], width, LMC__ORDER_FLOAT);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__residual_avx512(v[p], b[p], width, LMC__ORDER_INTEGER);
        keys = lmc__keys_avx512(b, width);
        lmc__split_vectors_avx512(v, width);
        LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
            lmc__store_avx512(rows.row[0][p] + i, v[p]);
        /* here minus what is above class c is class c. The last class's highest key is 255: nothing
         * is above it. */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            const __m512i places = _mm512_mask_compress_epi8(up, m, up);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
            {
                const __m512i x = _mm512_permutexvar_epi8(places, v[p]);
                uint8_t *const to = rows.row[c][p] + next[c];
                if (ones > 32) lmc__store_avx512(to, x);
                else lmc__store_avx2(to, _mm512_castsi512_si256(x));
            }
            next[c] += ones;
            here = above;
        }
    }
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__group_avx512, LMC__LOOP_AVX512,
                   (const lmc__classes *classes, const uint8_t *src, const lmc__delta_block *block,
                    lmc__delta_progress *done),
                   (classes, src, block, width, done))

LMC__AVX512 static uint32_t lmc__group_avx512(const lmc__kernels *k, lmc__classes *classes,
                                              const uint8_t *src, const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__CALL_WIDTH(lmc__group_avx512, (classes, src, block, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}
#endif
#endif /* LMC_NO_ENCODER */
