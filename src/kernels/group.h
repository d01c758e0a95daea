#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"
#include "kernels/crc32c.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"
#include "kernels/classes.h"

/* group: turns a block with a prediction into lists of residual bytes (spec 5.1, 5.2), in one pass:
 *   src, base --residual--> r --split--> bytes p = 0 .. width - 1 of each element
 *   base      --class-----> c
 *
 * Byte p of element i, of class c, is written to the next place of the list classes->row[c][p]. But
 * the lowest planes, p < n_natural, are not grouped: their byte is written to place i of
 * classes->row[0][p], which has exactly n bytes. classes->n[c] becomes the number of elements in
 * class c. Returns the CRC-32C of src.
 *
 * In each step the vector tiers bring the elements of a class together. Then each plane is stored
 * at the end of its list. Here is one plane of a step of eight elements in two classes:
 *     class of the element       0  1  1  0  1  0  0  1
 *     byte p of its residual     a  b  c  d  e  f  g  h
 *     stored at the end of class 0's list       a d f g . . . .    next[0] += 4
 *     stored at the end of class 1's list       b c e h . . . .    next[1] += 4
 *
 * Whole vectors are stored: the bytes behind the elements (the dots) are overwritten by the next
 * store, or lie in the list's slack. A step stores to the lists of all classes, even to those that
 * get no element. So every class has lists with slack, even empty ones, and no two lists share
 * slack. Stores to many lists in turn limit the speed, so a step makes few stores.
 *
 * src and base are read exactly. They may change meanwhile, so they are read only once: lists and
 * CRC are of the same bytes. No arrays may overlap. The sizes of the lists come from count_classes
 * with the same grouping. */

#ifndef LMC_NO_ENCODER
/* Groups the m elements at src, which have numbers from done->n on; updates done. */
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
        /* All lists of a class grow by one byte together, so they have one `at`. */
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const to = p < first ? classes->row[0][p] + i : classes->row[c][p] + at;
            *to = (uint8_t)(r >> 8 * p);
        }
    }
    done->n = from + m;
    memcpy(done->next, next, sizeof next);
}

/* Groups elements [done->n, n), a strip at a time. This defines group; other tiers end with it. */
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

#if LMC__NEON || LMC__X86
/* The elements of a step, at most LMC__SORTED, are sorted by class into one row for each class;
 * then each row is split into its lists. So each element needs one store.
 *
 *     class of the element     0  1  1  0  1  0  0  1
 *     residual                 q  r  s  t  u  v  w  x
 *     row 0                    q  t  v  w                 bytes p of these to the list row[0][p]
 *     row 1                    r  s  u  x                                              row[1][p]
 *
 * The number of elements in row c so far is byte c of two words, which stay in registers. So a step
 * has fewer than 256 elements, in whole vectors. A row has room for 256 + 8 elements, so row c
 * begins at 264 c, and the lowest six bits of this number are the shift to byte c. */
#define LMC__SORTED 224u
#define LMC__SORT_ROW (256u + 8)

/* The counts of 16 rows: byte c of low, byte c - 8 of high. */
typedef struct lmc__row_counts {
    uint64_t low, high;
} lmc__row_counts;

/* Sorts m residuals into the rows of `sorted`; row[i] is where the row of residual i begins.
 * has_high: there are more than eight rows. */
LMC__INLINE lmc__row_counts lmc__sort_by_class(uint8_t *sorted, const uint8_t *residuals,
                                               const uint16_t *row, size_t m, unsigned width,
                                               int has_high)
{
    lmc__row_counts n = {0, 0};
    size_t i;
    unsigned j;
    for (i = 0; i < m; i += 8) LMC__UNROLL for (j = 0; j < 8; j++)
        {
            const size_t begin = row[i + j];
            const unsigned shift = begin & 63;
            const uint64_t one = (uint64_t)1 << shift,
                           is_high = has_high && begin >= 8 * LMC__SORT_ROW ? ~(uint64_t)0 : 0,
                           before = (is_high ? n.high : n.low) >> shift & 255;
            n.low += one & ~is_high;
            n.high += one & is_high;
            lmc__store_element(sorted, begin + (size_t)before,
                               lmc__load_element(residuals, i + j, width), width);
        }
    return n;
}

/* Whole vectors. The elements of a strip are also copied: the CRC is of this copy. */
LMC__INLINE_VEC void lmc__group_vec_loop(const lmc__kernels *k, const lmc__classes *classes,
                                         const uint8_t *src, const lmc__delta_block *block,
                                         unsigned width, lmc__delta_progress *done)
{
    const size_t vector = LMC__VECTOR_SIZE;
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__classes rows = *classes;
    const unsigned n_classes = own.grouping->n_classes, first = own.grouping->n_natural;
    const lmc__vector sign = LMC__VEC(splat)(0x80); /* vectors compare signed bytes */
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0, j;
    lmc__vector v[8], b[8], highest[LMC__MAX_CLASSES];
    uint8_t copy[LMC__STRIP_SIZE], residuals[LMC__SORTED * 8],
        sorted[LMC__MAX_CLASSES * LMC__SORT_ROW * 8];
    const uint8_t *const first_row = n_classes == 1 ? residuals : sorted;
    uint16_t row[LMC__SORTED];
    unsigned p, c;
    LMC__VEC(set_highest)(highest, own.grouping);
    for (c = 0; c < n_classes; c++) highest[c] = highest[c] ^ sign;
    done->crc = 0;
    while (i + vector <= own.n) {
        const size_t start = i,
                     end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (own.n - i) & ~(vector - 1));
        while (i < end) {
            const size_t m = lmc__min(LMC__SORTED, end - i);
            lmc__row_counts counts = {0, 0};
            for (j = 0; j < m; j += vector) {
                const size_t at = (i + j) * width;
                lmc__vector keys, class_of = {0};
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    b[p] = LMC__VEC(load)(own.base + at + vector * p);
                    v[p] = LMC__VEC(load_once)(src + at + vector * p);
                    LMC__VEC(store)(copy + (at - start * width) + vector * p, v[p]);
                }
                if (own.order == LMC__ORDER_FLOAT)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(residual)(v[p], b[p], width, LMC__ORDER_FLOAT);
                else
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(residual)(v[p], b[p], width, LMC__ORDER_INTEGER);
                keys = LMC__VEC(keys)(b, width) ^ sign;
                LMC__UNROLL for (c = 0; c < LMC__MAX_CLASSES - 1; c++)
                {
                    if (c + 1 == n_classes) break;
                    class_of = LMC__VEC(subtract)(
                        class_of, (lmc__vector)((LMC__VEC(i8s))keys > (LMC__VEC(i8s))highest[c]));
                }
                /* 264 c in 16 bits: the low byte is 8 c, at most 120, and the high one c */
                LMC__VEC(zip)(&b[0], &b[1], class_of << 3, class_of);
                LMC__VEC(store)((uint8_t *)(row + j), b[0]);
                LMC__VEC(store)((uint8_t *)(row + j) + vector, b[1]);
                LMC__UNROLL for (p = 0; p < width; p++)
                    LMC__VEC(store)(residuals + j * width + vector * p, v[p]);
                if (first) LMC__VEC(split_vectors)(v, width);
                LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
                    LMC__VEC(store)(rows.row[0][p] + i + j, v[p]);
            }
            if (n_classes == 1) counts.low = m; /* sorted already */
            else if (n_classes <= 8)
                counts = lmc__sort_by_class(sorted, residuals, row, m, width, 0);
            else counts = lmc__sort_by_class(sorted, residuals, row, m, width, 1);
            for (c = 0; c < n_classes; c++) {
                const size_t n = (c < 8 ? counts.low : counts.high) >> 8 * (c & 7) & 255;
                j = 0;
                do { /* natural planes are not grouped; the top plane always is */
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(load)(first_row + (c * LMC__SORT_ROW + j) * width + vector * p);
                    LMC__VEC(split_vectors)(v, width);
                    LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                        LMC__VEC(store)(rows.row[c][p] + next[c] + j, v[p]);
                    j += vector;
                } while (j < n);
                next[c] += n;
            }
            i += m;
        }
        done->crc =
            LMC__VEC(crc_ahead)(k, done->crc, copy, (end - start) * width, src + end * width);
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__group_vec, LMC__LOOP_VEC,
                   (const lmc__kernels *k, const lmc__classes *classes, const uint8_t *src,
                    const lmc__delta_block *block, lmc__delta_progress *done),
                   (k, classes, src, block, width, done))

LMC__STATIC_VEC uint32_t LMC__VEC(group)(const lmc__kernels *k, lmc__classes *classes,
                                         const uint8_t *src, const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__CALL_WIDTH(lmc__group_vec, (k, classes, src, block, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}
#endif

#if LMC__X86
/* Whole steps of 128 elements, all in registers; the CRC is as in split_root. The places of a
 * class's elements are compressed (those of elements 64 to 127 are behind the others), and each
 * plane is permuted by these places.
 *
 *     up        0 1 2 3 4 5 6 7 ...
 *     m         0 1 0 0 1 0 1 0 ...      elements 1, 4, 6 are in class c
 *     places    1 4 6 3 4 5 6 7 ...      compressed; behind the ones, up's own bytes remain
 *     x[j] = v[p][places[j]]             vpermi2b looks up 128 bytes across two vectors
 *
 * In a step most lists get at most 32 elements. Storing 32 takes fewer cycles than storing 64. For
 * a class with more than a fifth of all elements, always 64 are stored, so that the CPU predicts
 * the branch well. */
LMC__INLINE_AVX512 void lmc__group_avx512_loop(const lmc__classes *classes, const uint8_t *src,
                                               const lmc__delta_block *block, unsigned width,
                                               lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width), up = lmc__load_avx512(lmc__count_up),
                  up_from_64 = _mm512_add_epi8(up, lmc__splat_avx512(64));
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const enum lmc__order order = block->order;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[2][8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    const unsigned halves = width < 8 ? 2 : 1; /* for eight planes there are too few registers */
    unsigned p, c, h;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 * halves <= n; i += 64 * halves) {
        __mmask64 here[2] = {~(__mmask64)0, ~(__mmask64)0}; /* class c and those behind it */
        __m512i keys[2];
        keys[1] = _mm512_setzero_si512();
        LMC__UNROLL for (h = 0; h < halves; h++)
        {
            const size_t from = i + 64 * h;
            lmc__touch_ahead(src, from * width + LMC__FETCH_AHEAD);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                lmc__fetch_ahead_avx512(src, from, n, width, p);
                b[p] = lmc__load_avx512(base + from * width + 64 * p);
                v[h][p] = lmc__load_once_avx512(src + from * width + 64 * p);
            }
            lmc__crc_add_avx512(sum, fold, v[h], width, &start);
            /* The CRC is of the elements: from here on v holds residuals. */
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[h][p] =
                    lmc__residual_avx512(v[h][p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[h][p] =
                    lmc__residual_avx512(v[h][p], b[p], width, LMC__ORDER_INTEGER);
            keys[h] = lmc__keys_avx512(b, width);
            lmc__split_vectors_avx512(v[h], width);
            LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
                lmc__store_avx512(rows.row[0][p] + from, v[h][p]);
        }
        /* `here` without what is above class c is class c; nothing is above the last (key 255). */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above0 = _mm512_cmpgt_epu8_mask(keys[0], highest[c]),
                            above1 = _mm512_cmpgt_epu8_mask(keys[1], highest[c]),
                            m0 = _kandn_mask64(above0, here[0]),
                            m1 = _kandn_mask64(above1, here[1]);
            const __m512i places0 = _mm512_mask_compress_epi8(up, m0, up),
                          places1 = _mm512_mask_compress_epi8(up_from_64, m1, up_from_64);
            const size_t ones0 = (size_t)_mm_popcnt_u64(m0),
                         ones = ones0 + (halves == 2 ? (size_t)_mm_popcnt_u64(m1) : 0);
            if (ones > 64 || halves == 1) {
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                {
                    uint8_t *const to = rows.row[c][p] + next[c];
                    lmc__store_avx512(to, _mm512_permutexvar_epi8(places0, v[0][p]));
                    if (halves == 2)
                        lmc__store_avx512(to + ones0, _mm512_permutexvar_epi8(places1, v[1][p]));
                }
            } else {
                const __m512i places = _mm512_mask_expand_epi8(
                    places0, ~_bzhi_u64(~(uint64_t)0, (unsigned)ones0), places1);
                const int is_long = (ones > 32) | (next[c] > i / 5);
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                {
                    const __m512i x = _mm512_permutex2var_epi8(v[0][p], places, v[1][p]);
                    uint8_t *const to = rows.row[c][p] + next[c];
                    if (is_long) lmc__store_avx512(to, x);
                    else lmc__store_avx2(to, _mm512_castsi512_si256(x));
                }
            }
            next[c] += ones;
            here[0] = above0;
            here[1] = above1;
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
