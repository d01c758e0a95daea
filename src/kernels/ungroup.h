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
 * ungroup: the inverse of group (spec 5.1, 5.2). Byte p of element i is the next one of the side
 * sides->side[c][p], c the class of base's element i; for natural planes, p < n_natural, it is byte
 * i of the list side[0][p], which has n bytes exactly and no slack, and is no constant. The bytes
 * make a residual, which with base's element gives the element of dst. dst may be base: a step
 * reads its elements of base before it writes any. Returns the CRC-32C of dst.
 *
 * A step starts with zeros. For each class in turn, the next bytes of its lists are spread to the
 * places of its elements, by the same shuffle in all planes, and all other places of the shuffle
 * give zero: so the classes are combined by or.
 *
 *     class of the element             0  1  1  0  1  0  0  1
 *     class 0's list   a d f g ...     a  0  0  d  0  f  g  0
 *     class 1's list   b c e h ...     0  b  c  0  e  0  0  h     or: a b c d e f g h
 *
 * Bounds. base is read and dst is written exactly. A step reads a whole vector of each list from
 * next[c] on: at most 64 bytes of slack. How far a list is read follows from base alone, and the
 * decoder has made the lists as long as count_classes says.
 *
 * A side that is a constant needs no shuffle: its value is masked by the class, and 0, the most
 * frequent one (what has not changed), needs nothing at all.
 */

/* The bytes of a residual, from the lists of its class and the natural planes. next counts all
 * classes' elements here, also of those without a list. */
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
        /* a natural plane has a byte for each element, in place i; a class's list is at its own
         * place */
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

/* Elements [done->n, n), one by one. This is the definition of ungroup, and what the other tiers
 * end with. */
static uint32_t lmc__ungroup_rest(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  const lmc__delta_progress *done)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
#define LMC__CALL(w) lmc__ungroup_body(dst, sides, block, w, done)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(done->crc, dst + from, end - from);
}

/* The scalar tier: all of it is the rest. It does not stream. */
static uint32_t lmc__ungroup_scalar(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                    const lmc__class_sides *sides, size_t n, unsigned width,
                                    enum lmc__order order, const lmc__grouping *grouping,
                                    lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    lmc__delta_progress done = {0, {0}, 0};
    (void)streaming;
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}

#if LMC__NEON || LMC__X86
/* Sides as the steps want them: in a natural plane all classes have the constant zero; the plane's
 * vector replaces the zeros behind the loop over classes.
 *
 * any_list: if all of a class's sides are constant, places and next[c] are not needed. */
typedef struct lmc__spread {
    lmc__class_sides from;
    const uint8_t *natural[8];      /* of the natural planes; else NULL */
    int any_list[LMC__MAX_CLASSES]; /* the class has a list in one of its planes at least */
} lmc__spread;

/* Once a block. memset gives all other sides a NULL list and the value 0. */
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
            if (sides->side[c][p].list) spread->any_list[c] = 1;
        }
}
#endif

#if LMC__NEON
/* Whole steps of 16 elements; done->crc is left to the caller.
 *
 * An element's place in its class's lists, counted from next[c], is the number of those of its
 * class before it in the step. Bytes that are -1 where an element is of the class are summed up
 * within 2, 4, 8 and 16: then each byte is minus the number of those up to itself, and its
 * complement is that number less one, the place. Elements of other classes get 255 by the same
 * complement of zero, and a shuffle gives zero for a place beyond its vector.
 *
 *     of the class      0   1   1   0   1   0   0   1
 *     one               0  -1  -1   0  -1   0   0  -1
 *     sum               0  -1  -2  -2  -3  -3  -3  -4     of all up to here, itself included
 *     sum & one         0  -1  -2   0  -3   0   0  -4
 *     ~ that, places  255   0   1 255   2 255 255   3     ~(-k) = k - 1
 *
 * vext(zero, sum, 16 - k) moves the bytes of sum up by k and fills in zeros: four of these, by 1,
 * 2, 4 and 8, with an addition each, are the sums. The last byte is minus the number of all, by
 * which the lists go on. */
LMC__INLINE void lmc__ungroup_loop_neon(uint8_t *dst, const lmc__spread *spread,
                                        const lmc__delta_block *block, unsigned width,
                                        lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const enum lmc__order order = block->order;
    const uint8x16_t zero = vdupq_n_u8(0);
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t v[8], b[8], highest[LMC__MAX_CLASSES];
    unsigned p, c;
    lmc__set_highest_neon(highest, grouping);
    for (i = 0; i + 16 <= block->n; i += 16) {
        uint8x16_t keys, before = zero;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            b[p] = lmc__load_neon(base + i * width + 16 * p);
            v[p] = zero;
        }
        keys = lmc__keys_neon(b, width);
        for (c = 0; c < n_classes; c++) {
            const uint8x16_t up_to = vcleq_u8(keys, highest[c]), one = vbicq_u8(up_to, before);
            uint8x16_t sum = one, places = one; /* sum: minus the number of ones up to here */
            before = up_to;
            /* 1, 2, 4, 8 back: after these steps a byte is the sum of 2, 4, 8, 16 up to itself */
            if (spread->any_list[c]) {
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 15));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 14));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 12));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 8));
                places = vmvnq_u8(vandq_u8(sum, one));
            }
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &spread->from.side[c][p];
                if (side->list)
                    v[p] = vorrq_u8(v[p], vqtbl1q_u8(vld1q_u8(side->list + next[c]), places));
                else if (side->value) v[p] = vorrq_u8(v[p], vandq_u8(one, vdupq_n_u8(side->value)));
            }
            /* the last byte, negated: the number of the class's elements in this step */
            if (spread->any_list[c]) next[c] += (size_t)((0u - vgetq_lane_u8(sum, 15)) & 255);
        }
        /* up to p + 1 < width: the top plane is always grouped, for n_natural < width (spec 5) */
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_neon(spread->natural[p] + i);
        /* planes to residuals, then residuals and predictions to elements */
        lmc__join_vectors_neon(v, width);
        if (order == LMC__ORDER_FLOAT)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_neon(v[p], b[p], width, LMC__ORDER_FLOAT);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_neon(v[p], b[p], width, LMC__ORDER_INTEGER);
        LMC__UNROLL for (p = 0; p < width; p++) lmc__store_neon(dst + i * width + 16 * p, v[p]);
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

/* The CRC of the whole steps is a pass of its own over dst. The rest starts with next as the loop
 * has left it. */
static uint32_t lmc__ungroup_neon(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                  const lmc__class_sides *sides, size_t n, unsigned width,
                                  enum lmc__order order, const lmc__grouping *grouping,
                                  lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, &block);
#define LMC__CALL(w) lmc__ungroup_loop_neon(dst, &spread, &block, w, &done)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    done.crc = k->crc32c(0, dst, done.n * width);
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}
#endif

#if LMC__X86
/* Whole steps of 32 elements, in halves of 16, since byte shuffles see no more. The second half's
 * bytes begin in a list behind those of the first: each half is loaded from its own place. Within a
 * half, an element's place is the number of those of its class before it, by sums as in
 * lmc__merge_step_avx2: minus the number up to itself, complemented; elements of other classes get
 * 255, whose top bit makes the shuffle give zero.
 *
 *     list + next[c]      |0 1 2 3 4 5 6 7 8 9 . . . . . .|          16 bytes: for elements 0 .. 15
 *     list + next[c] + half         |0 1 2 3 4 . . . . . . . . . . .|        and for 16 .. 31
 *
 * where half, here 5, is the number of the class's elements in the first half of the step. Both
 * loads lie within 32 bytes from next[c] on, since half is at most 16.
 *
 * Strip by strip, so that the CRC finds what was stored in the first cache: the crc32 instruction
 * wants bytes in memory, in four lanes, of which the last is made last. */
LMC__INLINE_AVX2 void lmc__ungroup_loop_avx2(uint8_t *dst, const lmc__spread *spread,
                                             const lmc__delta_block *block, unsigned width,
                                             lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const enum lmc__order order = block->order;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const size_t n = block->n;
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t start = i;
        const size_t end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)31);
        for (; i < end; i += 32) {
            __m256i keys, before = _mm256_setzero_si256();
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + 32 * p);
                v[p] = _mm256_setzero_si256();
            }
            keys = lmc__keys_avx2(b, width);
            for (c = 0; c < n_classes; c++) {
                const __m256i up_to = lmc__up_to_avx2(keys, highest[c]),
                              one = _mm256_andnot_si256(before, up_to);
                const uint32_t m = (uint32_t)_mm256_movemask_epi8(one);
                const size_t half = (size_t)_mm_popcnt_u64(m & 0xFFFF);
                __m256i places = one;
                /* lmc__sum_up_avx2 sums up within each half, from its own start, so places count
                 * from the half's own load. ~(-k) = k - 1 for the k-th element of the class in its
                 * half, 255 for others; xor with -1, for AVX2 has no complement */
                if (s.any_list[c]) {
                    places = _mm256_and_si256(lmc__sum_up_avx2(one), one);
                    places = _mm256_xor_si256(places, _mm256_set1_epi8((char)-1));
                }
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    const lmc__side *const side = &s.from.side[c][p];
                    if (side->list) {
                        const uint8_t *const list = side->list + next[c];
                        v[p] = _mm256_or_si256(
                            v[p],
                            _mm256_shuffle_epi8(lmc__load_pair_avx2(list, list + half), places));
                    } else if (side->value)
                        v[p] = _mm256_or_si256(
                            v[p], _mm256_and_si256(one, _mm256_set1_epi8((char)side->value)));
                }
                next[c] += (size_t)_mm_popcnt_u64(m);
                before = up_to;
            }
            /* Natural planes stand in the input and are read exactly: a step is whole. */
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
                lmc__load_avx2(s.natural[p] + i);
            /* v: planes; then, in place, 32 residuals in order; then elements */
            lmc__join_vectors_avx2(v, width);
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_INTEGER);
            /* of base, this step's elements are in b: dst may be base */
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(dst + i * width + 32 * p, v[p]);
        }
        crc = lmc__crc32c_avx2(crc, dst + start * width, (end - start) * width);
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

/* A function for each width, not inlined into one (LMC__LOOP_AVX2, strip.h); what they leave over,
 * fewer than 32 elements, goes through the definition. */
#define LMC__DEFINE_UNGROUP(width)                                                                 \
    LMC__LOOP_AVX2 void lmc__ungroup_##width##_avx2(uint8_t *dst, const lmc__spread *spread,       \
                                                    const lmc__delta_block *block,                 \
                                                    lmc__delta_progress *done)                     \
    {                                                                                              \
        lmc__ungroup_loop_avx2(dst, spread, block, width, done);                                   \
    }
LMC__DEFINE_UNGROUP(1)
LMC__DEFINE_UNGROUP(2)
LMC__DEFINE_UNGROUP(4)
LMC__DEFINE_UNGROUP(8)
#undef LMC__DEFINE_UNGROUP

/* AVX2 does not stream here: without vectors for the CRC, each strip is read again after it is
 * made. */
LMC__AVX2 static uint32_t lmc__ungroup_avx2(const lmc__kernels *k, uint8_t *dst,
                                            const uint8_t *base, const lmc__class_sides *sides,
                                            size_t n, unsigned width, enum lmc__order order,
                                            const lmc__grouping *grouping, lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, &block);
#define LMC__CALL(w) lmc__ungroup_##w##_avx2(dst, &spread, &block, &done)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}

/* Whole steps of 64 elements, all in registers: vpexpandb spreads a list's next bytes to the places
 * of a class, and leaves what other classes have put elsewhere. CRC and streams as in join_root;
 * but base is not streamed to: what was just read is in the caches.
 *
 *     m            0 1 0 0 1 0 1 0 ...
 *     list         A B C D ...
 *     v before     x . x x . x . x ...     x: of the classes before
 *     v after      x A x x B x C x ...
 *
 * A load is of 64 bytes, as many as a list has slack; as many bytes of it count as m has ones. */
LMC__INLINE_AVX512 void lmc__ungroup_loop_avx512(uint8_t *dst, const lmc__spread *spread,
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
        /* All of the step's base is in registers before anything of it is written: dst may be
         * base. */
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_avx512(base + i * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = _mm512_setzero_si512();
        /* here minus what is above class c is class c; the last class has nothing above it, so it
         * gets all that is left */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &s.from.side[c][p];
                /* a list is spread to the class's places, a constant is copied to them; of the
                 * constant 0 they keep the zeros of the start */
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
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            /* streams is the same in all steps, so the branch is always foreseen */
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        /* behind the fold: that of the first step gave sum[0] = v[0], for sums start as zero */
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
    }
    if (i && streams) lmc__end_stream_avx512(&stream, dst + i * width);
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

/* As for AVX2; whether dst is streamed is tested in the loop, not made a constant. */
#define LMC__DEFINE_UNGROUP(width)                                                                 \
    LMC__LOOP_AVX512 void lmc__ungroup_##width##_avx512(                                           \
        uint8_t *dst, const lmc__spread *spread, const lmc__delta_block *block,                    \
        lmc__streaming streaming, lmc__delta_progress *done)                                       \
    {                                                                                              \
        lmc__ungroup_loop_avx512(dst, spread, block, width, streaming, done);                      \
    }
LMC__DEFINE_UNGROUP(1)
LMC__DEFINE_UNGROUP(2)
LMC__DEFINE_UNGROUP(4)
LMC__DEFINE_UNGROUP(8)
#undef LMC__DEFINE_UNGROUP

/* The rest, fewer than 64 elements, is stored plainly behind the streams: the two never share a
 * byte, for the streamer's end is masked. */
LMC__AVX512 static uint32_t lmc__ungroup_avx512(const lmc__kernels *k, uint8_t *dst,
                                                const uint8_t *base, const lmc__class_sides *sides,
                                                size_t n, unsigned width, enum lmc__order order,
                                                const lmc__grouping *grouping,
                                                lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    lmc__begin_ungroup(&spread, sides, &block);
#define LMC__CALL(w) lmc__ungroup_##w##_avx512(dst, &spread, &block, streaming, &done)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}
#endif
