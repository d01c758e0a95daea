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
#include "kernels/merge.h"
#include "kernels/classes.h"

/* ungroup: the inverse of group (spec 5.1, 5.2). Byte p of element i is the next byte of
 * sides->side[c][p], where c is the class of base's element i. For natural planes, p < n_natural,
 * it is byte i of side[0][p], which is always a list, of exactly n bytes without slack. The bytes
 * are a residual, which with base's element gives the element of dst. dst may be base: a step reads
 * its elements of base before it writes any. Returns the CRC-32C of dst.
 *
 * A step starts with zeros. For each class in turn, the next bytes of its lists are spread to the
 * places of its elements, by the same shuffle in all planes. The shuffle gives zero at all other
 * places, so the results of the classes are combined by or.
 *
 *     class of the element             0  1  1  0  1  0  0  1
 *     class 0's list   a d f g ...     a  0  0  d  0  f  g  0
 *     class 1's list   b c e h ...     0  b  c  0  e  0  0  h     or: a b c d e f g h
 *
 * Bounds. base is read and dst is written exactly. A step reads a whole vector of each list from
 * next[c] on: at most 64 bytes of slack. How far a list is read follows from base alone, and the
 * decoder has made the lists as long as count_classes says.
 *
 * A side that is a constant needs no shuffle: its value is masked by the class. The value 0, the
 * most frequent one (no change), needs nothing at all. */

/* Takes the bytes of a residual from its class's lists and the natural planes. Here, next[] counts
 * the elements of all classes, even of classes without a list. */
LMC__INLINE void lmc__ungroup_body(uint8_t *dst, const lmc__class_sides *sides,
                                   const lmc__delta_block *block, unsigned width,
                                   const lmc__delta_progress *done)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const unsigned first = own.grouping->n_natural;
    uint8_t class_of[256];
    size_t next[LMC__MAX_CLASSES], i;
    unsigned p;
    memcpy(next, done->next, sizeof next);
    lmc__set_class_table(class_of, own.grouping);
    for (i = done->n; i < own.n; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        uint64_t r = 0;
        /* a natural plane has a byte for each element, in place i; a list is at its own place */
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const lmc__side *const side = &sides->side[p < first ? 0 : c][p];
            r |= (uint64_t)(side->list ? side->list[p < first ? i : at] : side->value) << 8 * p;
        }
        r = own.order == LMC__ORDER_FLOAT ? lmc__restore_element(r, b, width, LMC__ORDER_FLOAT)
                                          : lmc__restore_element(r, b, width, LMC__ORDER_INTEGER);
        lmc__store_element(dst, i, r, width);
    }
}

/* Elements [done->n, n), one by one. This defines ungroup; the other tiers end with it. */
static uint32_t lmc__ungroup_rest(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  const lmc__delta_progress *done)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
    LMC__FOR_WIDTH(lmc__ungroup_body(dst, sides, block, w, done));
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__ungroup_scalar(const lmc__kernels *k, uint8_t *dst,
                                    const lmc__class_sides *sides, const lmc__delta_block *block,
                                    lmc__streaming streaming)
{
    lmc__delta_progress done = {0, {0}, 0};
    (void)streaming;
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}

#if LMC__NEON || LMC__X86
/* Sides as the steps need them: in a natural plane all classes have the constant zero; after the
 * loop over classes the plane's vector replaces these zeros. */
typedef struct lmc__spread {
    lmc__class_sides from;
    const uint8_t *natural[8];     /* of the natural planes; else NULL */
    int is_used[LMC__MAX_CLASSES]; /* a side is not 0; else places and next[c] are not needed */
} lmc__spread;

/* Called once for each block. memset gives all other sides a NULL list and the value 0. */
static void lmc__begin_ungroup(lmc__spread *spread, const lmc__class_sides *sides,
                               const lmc__delta_block *block)
{
    const unsigned first = block->grouping->n_natural, n_classes = block->grouping->n_classes;
    unsigned p, c;
    memset(spread, 0, sizeof *spread);
    for (p = 0; p < first; p++) spread->natural[p] = sides->side[0][p].list;
    for (c = 0; c < n_classes; c++)
        for (p = first; p < block->width; p++) {
            spread->from.side[c][p] = sides->side[c][p];
            if (sides->side[c][p].list || sides->side[c][p].value) spread->is_used[c] = 1;
        }
}
#endif

#if LMC__NEON
/* Steps of 64 elements, from done->n on. The places of a class's elements in its lists are those of
 * the zeros of a merge by the class's complement. They are the same in all planes. Others have
 * places from 16 on, where vqtbx1q leaves v as it is. */
LMC__INLINE void lmc__ungroup_steps_neon(uint8_t *dst, const lmc__spread *spread,
                                         const lmc__delta_block *block, size_t n, unsigned width,
                                         const uint8x16_t *highest, lmc__delta_progress *done)
{
    const unsigned n_classes = block->grouping->n_classes, first = block->grouping->n_natural;
    const enum lmc__order order = block->order;
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES], before[4], i;
    uint64_t m[LMC__MAX_CLASSES];
    uint8x16_t v[4][8], keys[4], places[4];
    unsigned p, c, j;
    memcpy(next, done->next, sizeof next);
    for (i = done->n; i < n; i += 64) {
        lmc__load_step_neon(keys, base + i * width, width);
        lmc__find_classes_neon(m, keys, highest, n_classes);
        LMC__UNROLL for (j = 0; j < 4; j++) LMC__UNROLL for (p = 0; p < width; p++) v[j][p] =
            vdupq_n_u8(0);
        for (c = 0; c < n_classes; c++) {
            const size_t at = next[c];
            if (!spread->is_used[c]) continue;
            next[c] = at + 64 - lmc__merge_places_neon(places, before, ~m[c]);
            LMC__UNROLL for (j = 0; j < 4; j++) before[j] = 16 * j - before[j];
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side side = spread->from.side[c][p];
                if (side.list)
                    LMC__UNROLL for (j = 0; j < 4; j++) v[j][p] =
                        vqtbx1q_u8(v[j][p], vld1q_u8(side.list + at + before[j]), places[j]);
                if (side.list || side.value == 0) continue;
                LMC__UNROLL for (j = 0; j < 4; j++) v[j][p] =
                    vqtbx1q_u8(v[j][p], vdupq_n_u8(side.value), places[j]);
            }
        }
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            const size_t at = i + 16 * j;
            /* natural planes are read exactly; the top plane is always grouped */
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[j][p] =
                vld1q_u8(spread->natural[p] + at);
            /* planes; then, in place, residuals in order; then elements. dst may be base */
            lmc__join_vectors_neon(v[j], width);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const uint8x16_t b = vld1q_u8(base + at * width + 16 * p);
                vst1q_u8(dst + at * width + 16 * p,
                         order == LMC__ORDER_FLOAT
                             ? lmc__restore_neon(v[j][p], b, width, LMC__ORDER_FLOAT)
                             : lmc__restore_neon(v[j][p], b, width, LMC__ORDER_INTEGER));
            }
        }
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

/* Strip by strip, so that the CRC reads from the first cache what was stored. */
static uint32_t lmc__ungroup_neon(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  lmc__streaming streaming)
{
    const unsigned width = block->width;
    const size_t whole = block->n & ~(size_t)63;
    lmc__delta_progress done = {0, {0}, 0};
    uint8x16_t highest[LMC__MAX_CLASSES];
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, block);
    lmc__set_highest_neon(highest, block->grouping);
    while (done.n < whole) {
        const size_t i = done.n, end = i + lmc__min(LMC__STRIP_ELEMENTS(width), whole - i);
        LMC__FOR_WIDTH(lmc__ungroup_steps_neon(dst, &spread, block, end, w, highest, &done));
        done.crc = k->crc32c(done.crc, dst + i * width, (end - i) * width);
    }
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}
#endif

#if LMC__X86
/* Steps of whole vectors. Places come from sums of bytes that are -1 where an element is of the
 * class, as in lmc__merge_spread_avx2, and each half is loaded from its own place: within 32 bytes
 * from next[c] on. For elements of other classes the place is 255: there a shuffle gives zero.
 *
 *     of the class      0   1   1   0   1   0   0   1
 *     one               0  -1  -1   0  -1   0   0  -1
 *     sum & one         0  -1  -2   0  -3   0   0  -4     of all up to here, itself included
 *     ~ that, places  255   0   1 255   2 255 255   3     ~(-k) = k - 1
 *
 * The loop works strip by strip, so that the CRC reads from the first cache what was stored. */
LMC__INLINE_AVX2 void lmc__ungroup_avx2_loop(const lmc__kernels *k, uint8_t *dst,
                                             const lmc__spread *spread,
                                             const lmc__delta_block *block, unsigned width,
                                             lmc__delta_progress *done)
{
    const size_t size = LMC__VECTOR_SIZE, n = block->n;
    const unsigned n_classes = block->grouping->n_classes, first = block->grouping->n_natural;
    const uint8_t *const base = block->base;
    const enum lmc__order order = block->order;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const __m256i zero = _mm256_setzero_si256();
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, block->grouping);
    while (i + size <= n) {
        const size_t start = i,
                     end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size - 1));
        for (; i < end; i += size) {
            __m256i keys, before = zero;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + size * p);
                v[p] = zero;
            }
            keys = lmc__keys_avx2(b, width);
            for (c = 0; c < n_classes; c++) {
                const __m256i up_to = lmc__up_to_avx2(keys, highest[c]), one = up_to & ~before;
                __m256i places = one;
                size_t half = 0, all = 0;
                before = up_to;
                if (s.is_used[c]) {
                    places = ~(lmc__sum_up_avx2(one) & one);
                    all = lmc__count_avx2(one, &half);
                }
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    const lmc__side *const side = &s.from.side[c][p];
                    if (side->list) {
                        const uint8_t *const list = side->list + next[c];
                        v[p] |= lmc__shuffle_avx2(lmc__load_pair_avx2(list, list + half), places);
                    } else if (side->value) v[p] |= one & lmc__splat_avx2(side->value);
                }
                next[c] += all;
            }
            /* Natural planes are in the input and are read exactly: a step is whole. The top plane
             * is always grouped, because n_natural < width (spec 5). */
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
                lmc__load_avx2(s.natural[p] + i);
            /* v: planes; then, in place, residuals in order; then elements */
            lmc__join_vectors_avx2(v, width);
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_INTEGER);
            /* dst may be base, whose elements of this step are in b */
            LMC__UNROLL for (p = 0; p < width; p++)
                lmc__store_avx2(dst + i * width + size * p, v[p]);
        }
        crc = k->crc32c(crc, dst + start * width, (end - start) * width);
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__ungroup_avx2, LMC__LOOP_AVX2,
                   (const lmc__kernels *k, uint8_t *dst, const lmc__spread *spread,
                    const lmc__delta_block *block, lmc__delta_progress *done),
                   (k, dst, spread, block, width, done))

/* These tiers do not stream: they read each strip again after it is made. */
LMC__AVX2 static uint32_t lmc__ungroup_avx2(const lmc__kernels *k, uint8_t *dst,
                                            const lmc__class_sides *sides,
                                            const lmc__delta_block *block, lmc__streaming streaming)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, block);
    LMC__CALL_WIDTH(lmc__ungroup_avx2, (k, dst, &spread, block, &done));
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}
#endif

#if LMC__X86
/* Whole steps of 64 elements, all in registers: vpexpandb spreads a list's next bytes to the places
 * of a class, and leaves the bytes of other classes as they are. CRC and streams are as in
 * join_root. But if dst is base, nothing is streamed: the lines just read are in the caches. */
LMC__INLINE_AVX512 void lmc__ungroup_avx512_loop(uint8_t *dst, const lmc__spread *spread,
                                                 const lmc__delta_block *block, unsigned width,
                                                 lmc__streaming streaming,
                                                 lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const int streams = streaming.is_on && dst != base;
    const enum lmc__order order = block->order;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const size_t n = block->n, per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    /* touch_ahead is for dst's next page, fetch_next for what is decoded after this block */
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(dst, i * width);
        lmc__fetch_next_avx512(streaming, i, per_element);
        /* All of the step's base is in registers before it is written: dst may be base. */
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_avx512(base + i * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = _mm512_setzero_si512();
        /* `here` without what is above class c is class c; nothing is above the last (key 255) */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &s.from.side[c][p];
                /* a list is spread to the class's places, a constant is copied; zeros stay */
                if (side->list)
                    v[p] = _mm512_mask_expand_epi8(v[p], m, lmc__load_avx512(side->list + next[c]));
                else if (side->value)
                    v[p] = _mm512_mask_mov_epi8(v[p], m, _mm512_set1_epi8((char)side->value));
            }
            next[c] += (size_t)_mm_popcnt_u64(m);
            here = above;
        }
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_avx512(s.natural[p] + i);
        /* v: planes; then, in place, 64 residuals in order; then elements */
        lmc__join_vectors_avx512(v, width);
        if (order == LMC__ORDER_FLOAT)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, LMC__ORDER_FLOAT);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, LMC__ORDER_INTEGER);
        lmc__crc_add_avx512(sum, fold, v, width, &start);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            /* streams is the same in all steps, so the branch is always predicted */
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
    }
    if (i && streams) lmc__end_stream_avx512(&stream, dst + i * width);
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__ungroup_avx512, LMC__LOOP_AVX512,
                   (uint8_t *dst, const lmc__spread *spread, const lmc__delta_block *block,
                    lmc__streaming streaming, lmc__delta_progress *done),
                   (dst, spread, block, width, streaming, done))

LMC__AVX512 static uint32_t lmc__ungroup_avx512(const lmc__kernels *k, uint8_t *dst,
                                                const lmc__class_sides *sides,
                                                const lmc__delta_block *block,
                                                lmc__streaming streaming)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    lmc__spread spread;
    lmc__begin_ungroup(&spread, sides, block);
    LMC__CALL_WIDTH(lmc__ungroup_avx512, (dst, &spread, block, streaming, &done));
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}
#endif
