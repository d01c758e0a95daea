#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"
#include "kernels/sum64.h"
#include "kernels/split_join.h"
#include "kernels/count.h"
#include "kernels/merge.h"
#include "kernels/strip.h"

/* join_root: the last step of decoding a block, in one pass over it; the inverse of split_root:
 *   source->planes->row[0 .. width)
 *     |
 *     |   row[root->plane], if root is not NULL, is yet to be made:
 *     |     root->mask, left, right --merge--> bytes of the plane
 *     |
 *     +--join, out of residuals in source->order--> dst --crc32c--> the result
 *
 * dst gets exactly n * width bytes. root->row is a work list for a strip, or for n elements if a
 * strip has more. The row planes->row[root->plane] is not used.
 *
 * Rows and the mask are read exactly: raw planes are part of the input. root's sides are lists or
 * constants, with an element for each zero or one of the mask. dst overlaps none of them.
 *
 * If streaming.sum is not NULL, the sum64 of dst is stored there (spec 7.1). The decoder calls
 * join_root once for each block, after it has checked the whole payload.
 *
 * If the output is far larger than the caches, streaming stores save half of the memory traffic:
 * they do not read the lines that they write. But CRC and sum must be computed before. */

/* The side without the first `used` bytes of its list. */
LMC__INLINE lmc__side lmc__rest_of_side(lmc__side side, size_t used)
{
    if (side.list) side.list += used;
    return side;
}

/* Joins elements [i, i + m), at most a strip; n_right ones of the root's mask are before them.
 * Returns n_right for the next strip. */
static size_t lmc__join_strip(const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source,
                              size_t i, size_t m, size_t n_right)
{
    const lmc__merged *const root = source->root;
    const unsigned width = source->width;
    lmc__const_planes strip;
    unsigned p;
    for (p = 0; p < width; p++) strip.row[p] = source->planes->row[p] + i;
    if (root) {
        const uint8_t *const mask = root->mask + i / 8;
        k->merge(root->row, mask, m, lmc__rest_of_side(root->left, i - n_right),
                 lmc__rest_of_side(root->right, n_right));
        strip.row[root->plane] = root->row;
        n_right += k->count_ones(mask, (m + 7) / 8);
    }
    k->join(dst, &strip, m, width, source->order);
    return n_right;
}

/* Elements [done.n, n), strip by strip. This defines join_root; the other tiers end with it. */
static uint32_t lmc__join_strips(const lmc__kernels *k, uint8_t *dst,
                                 const lmc__join_source *source, size_t n, lmc__progress done,
                                 uint64_t *sum)
{
    const unsigned width = source->width;
    size_t i, m, n_right = 0;
    if (source->root && done.n < n) n_right = k->count_ones(source->root->mask, done.n / 8);
    for (i = done.n; i < n; i += m) {
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        n_right = lmc__join_strip(k, dst + i * width, source, i, m, n_right);
        if (sum) done.sum += LMC__SUM64(k, dst + i * width, m * width);
    }
    if (sum) *sum = done.sum;
    return k->crc32c(done.crc, dst + done.n * width, (n - done.n) * width);
}

/* The tiers without a loop of their own: scalar, SIMDe. They do not stream. */
static uint32_t lmc__join_root_strips(const lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                                      size_t n, lmc__streaming streaming)
{
    return lmc__join_strips(k, dst, &source, n, lmc__no_progress, streaming.sum);
}

#if LMC__NEON || LMC__X86
/* While at / 4 runs through a lane, `at` must run through a strip. Else this does not compile. */
typedef char lmc__lanes_fill_a_strip[4 * LMC__CRC_LANE4 == LMC__STRIP_SIZE ? 1 : -1];

/* A side of a merge in steps. A constant is a list of 64 equal bytes, where the cursor stays:
 * `mask`, which is 0 for constants and all ones for lists, masks the length of each step. */
typedef struct lmc__side_cursor {
    const uint8_t *at;
    size_t mask;
} lmc__side_cursor;

/* The side behind its first `used` elements. `constant` must live as long as the cursor. A constant
 * as a list costs a needless shuffle, but then one loop can do all four kinds of roots. */
LMC__INLINE lmc__side_cursor lmc__open_side(lmc__side side, size_t used, uint8_t constant[64])
{
    lmc__side_cursor cursor;
    memset(constant, side.value, 64);
    cursor.at = side.list ? side.list + used : constant;
    cursor.mask = side.list ? ~(size_t)0 : 0;
    return cursor;
}
#endif

#if LMC__NEON
/* All whole strips, at least one; the root, if any, is the top plane. While a strip is made, the
 * CRC of the strip before is computed: vector and CRC instructions do not compete for units. */
LMC__INLINE LMC__CRC void lmc__join_root_of(const lmc__kernels *k, uint8_t *dst,
                                            const lmc__join_source *source, size_t n,
                                            lmc__progress *done, uint64_t *sum, unsigned width,
                                            enum lmc__order order, int has_root)
{
    const size_t n_strip = LMC__STRIP_ELEMENTS(width);
    const lmc__merged *const root = has_root ? source->root : NULL;
    const lmc__const_planes rows = *source->planes; /* copies, which no store of bytes can change */
    const uint8_t *mask = NULL;
    lmc__crc_lane c[4] = {0xFFFFFFFF, 0, 0, 0};
    uint8_t constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    size_t i, j, n_right = lmc__join_strip(k, dst, source, 0, n_strip, 0);
    uint8x16_t v[8], top[4];
    unsigned p, h;
    if (root) {
        mask = root->mask;
        left = lmc__open_side(root->left, n_strip - n_right, constant[0]);
        right = lmc__open_side(root->right, n_right, constant[1]);
    }
    for (i = n_strip;; i += n_strip) {
        const uint8_t *const from = dst + (i - n_strip) * width;
        if (sum) done->sum += LMC__SUM64(k, from, LMC__STRIP_SIZE);
        if (i + n_strip > n) break;
        for (j = i; j < i + n_strip; j += 64) {
            LMC__UNROLL for (p = 0; p < 2 * width; p++)
                lmc__crc_lanes(c, from + (j - i) * width / 4, p);
            if (has_root) {
                const size_t ones = lmc__merge64_neon(top, lmc__load64(mask + j / 8), left.at,
                                                      right.at, top[0], top[0], 1, 1);
                left.at += (64 - ones) & left.mask;
                right.at += ones & right.mask;
            }
            LMC__UNROLL for (h = 0; h < 4; h++)
            {
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    has_root && p == width - 1 ? top[h] : vld1q_u8(rows.row[p] + j + 16 * h);
                lmc__join_vectors_neon(v, width);
                if (order)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        lmc__from_residuals_neon(v[p], width, order);
                LMC__UNROLL for (p = 0; p < width; p++)
                    vst1q_u8(dst + (j + 16 * h) * width + 16 * p, v[p]);
            }
        }
        lmc__crc_join_lanes(c);
    }
    done->n = i;
    done->crc = lmc__crc32c_neon(~(uint32_t)c[0], dst + (i - n_strip) * width, LMC__STRIP_SIZE);
}
/* order and has_root are constants where blocks need most time: that of floats, with a root. */
LMC__INLINE LMC__CRC void lmc__join_root_loop(const lmc__kernels *k, uint8_t *dst,
                                              const lmc__join_source *source, size_t n,
                                              lmc__progress *done, uint64_t *sum, unsigned width)
{
    if (source->root && source->order == LMC__ORDER_FLOAT)
        lmc__join_root_of(k, dst, source, n, done, sum, width, LMC__ORDER_FLOAT, 1);
    else
        lmc__join_root_of(k, dst, source, n, done, sum, width, source->order, source->root != NULL);
}
LMC__DEFINE_WIDTHS(lmc__join_root, LMC__LOOP_VEC,
                   (const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source, size_t n,
                    lmc__progress *done, uint64_t *sum),
                   (k, dst, source, n, done, sum, width))

/* Joins strip by strip if, rarely, the root is not the top plane. */
static uint32_t lmc__join_root_neon(const lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                                    size_t n, lmc__streaming streaming)
{
    const unsigned width = source.width;
    lmc__progress done = lmc__no_progress;
    if (n >= LMC__STRIP_ELEMENTS(width) && (!source.root || source.root->plane == width - 1))
        LMC__CALL_WIDTH(lmc__join_root, (k, dst, &source, n, &done, streaming.sum))
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}
#endif

#if LMC__X86
/* AVX2, if dst is streamed. Streamed bytes are not in the caches afterwards, but crc32 instructions
 * need bytes in memory, in four lanes a quarter of a strip apart. So a strip is made in a buffer.
 * While the next strip is made in another buffer, the first is drained: its CRC is computed, and it
 * is copied to dst. Vector and crc32 instructions do not compete for units. In time:
 *   strip                 0        1        2             last
 *   made in buffer        0        1        0             last % 2
 *
 *   make             |----0---|----1---|----2---|- ... --|--last--|
 *   drain                     |----0---|----1---|- ... --|--------|--last--|
 *                    \___a____/\_____________ b ________________/\____c___/
 *
 *   a: lmc__join_strip    b: the loop of lmc__join_root_loop_avx2    c: behind it
 *
 * Streaming stores need aligned addresses, but dst may start anywhere: `head` bytes before the
 * first aligned address. So the bytes that are copied while a strip is drained are shifted by head:
 *   strip s in its buffer      |(head)|            ...                    |slack|
 *   copied to dst + head              |  vector | vector | ... | vector      |
 *
 * The last vector needs the first head bytes of strip s + 1, so when the first step of strip s + 1
 * is made, its first vector is copied to the slack behind strip s, long before the last step of
 * draining reads it. Normal stores, which may overlap others, write both ends of dst: a vector for
 * the head of strip 0, and the last 32 bytes.
 *
 * A list of the root is read in vectors of 16 bytes from its current place, so up to 16 bytes of
 * its slack. Other threads may see streaming stores in any order, so the caller ends with
 * LMC__FENCE_STREAMS (get_block.h). */

/* Bytes behind a strip in its buffer. The first 32 are the slack. The rest makes the low 12 bits of
 * addresses differ: else a load may wait for an earlier store with the same low bits. */
#define LMC__STRIP_GAP 1024u

/* Copies `width` vectors from from + at, which is not aligned, to out + at, which is. */
LMC__INLINE_AVX2 void lmc__copy_stream_avx2(uint8_t *out, const uint8_t *from, size_t at,
                                            unsigned width)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) _mm256_stream_si256(
        (__m256i *)(void *)(out + at + 32 * p), lmc__load_avx2(from + at + 32 * p));
}

/* All whole strips; there is at least one; the root, if any, is the top plane. */
LMC__INLINE_AVX2 lmc__progress lmc__join_root_loop_avx2(
    const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source, size_t n, unsigned width,
    enum lmc__order order, int can_merge, lmc__streaming streaming,
    uint8_t (*strips)[LMC__STRIP_SIZE + LMC__STRIP_GAP])
{
    const size_t n_strip = LMC__STRIP_ELEMENTS(width), head = (0 - (uintptr_t)dst) & 31;
    const lmc__merged *const root = can_merge ? source->root : NULL;
    const lmc__const_planes rows = *source->planes;
    const __m256i zero = _mm256_setzero_si256();
    lmc__crc_lane c[4] = {0xFFFFFFFF, 0, 0, 0};
    const uint8_t *mask = NULL;
    uint8_t *from, *to = strips[0], constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    lmc__progress done = lmc__no_progress;
    size_t i, j, n_right = lmc__join_strip(k, to, source, 0, n_strip, 0);
    __m256i v[8], top[2];
    unsigned p, h;
    lmc__store_avx2(dst, lmc__load_avx2(to));
    if (root) {
        mask = root->mask;
        left = lmc__open_side(root->left, n_strip - n_right, constant[0]);
        right = lmc__open_side(root->right, n_right, constant[1]);
    }
    for (i = n_strip; i + n_strip <= n; i += n_strip) {
        uint8_t *const out = dst + (i - n_strip) * width + head;
        from = to;
        to = strips[i / n_strip & 1];
        if (streaming.sum) done.sum += LMC__SUM64(k, from, LMC__STRIP_SIZE);
        for (j = 0; j < n_strip; j += 64) {
            const size_t at = j * width, out_at = (i - n_strip) * width + at;
            /* Fetch as much of the next input as is written now: compressed data is shorter. */
            lmc__touch_ahead(dst, out_at);
            if (out_at < streaming.next_size) {
                lmc__touch_ahead(streaming.next, out_at);
                LMC__UNROLL for (p = 0; p < width; p++)
                    LMC__PREFETCH(streaming.next + lmc__min(out_at + 64 * p, streaming.next_size));
            }
            LMC__UNROLL for (p = 0; p < 2 * width; p++) lmc__crc_lanes(c, from + at / 4, p);
            if (root) {
                const size_t ones = lmc__merge64_avx2(top, lmc__load64(mask + (i + j) / 8), left.at,
                                                      right.at, zero, zero, 1, 1);
                left.at += (64 - ones) & left.mask;
                right.at += ones & right.mask;
            }
            LMC__UNROLL for (h = 0; h < 2; h++)
            {
                const size_t half = at + 32 * width * h;
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    root && p == width - 1 ? top[h] : lmc__load_avx2(rows.row[p] + i + j + 32 * h);
                lmc__join_vectors_avx2(v, width);
                if (order)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        lmc__from_residuals_avx2(v[p], width, order);
                LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(to + half + 32 * p, v[p]);
                if (j == 0 && h == 0) lmc__store_avx2(from + LMC__STRIP_SIZE, v[0]);
                lmc__copy_stream_avx2(out, from + head, half, width);
            }
        }
        lmc__crc_join_lanes(c);
    }
    for (j = 0; j < LMC__STRIP_SIZE - 32; j += 32)
        lmc__copy_stream_avx2(dst + (i - n_strip) * width + head, to + head, j, 1);
    lmc__store_avx2(dst + i * width - 32, lmc__load_avx2(to + LMC__STRIP_SIZE - 32));
    done.n = i;
    if (streaming.sum) done.sum += LMC__SUM64(k, to, LMC__STRIP_SIZE);
    done.crc = lmc__crc32c_avx2(~(uint32_t)c[0], to, LMC__STRIP_SIZE);
    return done;
}

/* Joins strip by strip if dst is not streamed or, rarely, if the root is not the top plane. */
LMC__AVX2 static uint32_t lmc__join_root_avx2(const lmc__kernels *k, uint8_t *dst,
                                              lmc__join_source source, size_t n,
                                              lmc__streaming streaming)
{
    const unsigned width = source.width;
    const enum lmc__order order = source.order;
    lmc__progress done = lmc__no_progress;
    uint8_t strips[2][LMC__STRIP_SIZE + LMC__STRIP_GAP];
    if (streaming.is_on && n >= LMC__STRIP_ELEMENTS(width) &&
        (!source.root || source.root->plane == width - 1))
        switch (width) { /* 8, which is rare, by strips */
#define LMC__CALL(w, can_merge)                                                                    \
    done = lmc__join_root_loop_avx2(k, dst, &source, n, w, order, can_merge, streaming, strips)
        case 1: LMC__CALL(1, 1); break;
        case 2: /* testing for the root in the loop would slow down blocks of zeros */
            if (source.root) LMC__CALL(2, 1);
            else LMC__CALL(2, 0);
            break;
        case 4: LMC__CALL(4, 1); break;
#undef LMC__CALL
        }
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}

/* Steps of 64 elements, in registers; the root, if any, is the top plane. CRC: see split_root. */
LMC__INLINE_AVX512 lmc__progress lmc__join_root_steps_avx512(
    uint8_t *dst, const lmc__join_source *source, size_t n, unsigned width, enum lmc__order order,
    lmc__streaming streaming, int streams, int has_root)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__merged *const root = has_root ? source->root : NULL;
    const lmc__const_planes rows = *source->planes; /* a copy, which no store of bytes can change */
    const size_t per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    __m512i sum[8], v[8], words = _mm512_setzero_si512(), start = lmc__crc_start(0), l = start,
                          r = start;
    const uint8_t *mask = NULL, *left = NULL, *right = NULL;
    lmc__progress done = lmc__no_progress;
    size_t i;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    if (has_root) {
        mask = root->mask;
        left = root->left.list;
        right = root->right.list;
        l = _mm512_set1_epi8((char)root->left.value);
        r = _mm512_set1_epi8((char)root->right.value);
    }
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(dst, i * width);
        if (streams) lmc__fetch_next_avx512(streaming, i, per_element);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) v[p] = lmc__load_avx512(rows.row[p] + i);
        if (has_root) {
            const uint64_t m = lmc__load64(mask + i / 8);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            v[width - 1] =
                lmc__merge_step_avx512(m, left, right, l, r, left != NULL, right != NULL);
            /* Either way counts zeros. Without streams gcc has no register for the constant 64. */
            if (left) left += streams || width == 1 ? 64 - ones : (size_t)_mm_popcnt_u64(~m);
            if (right) right += ones;
        } else {
            v[width - 1] = lmc__load_avx512(rows.row[width - 1] + i);
        }
        lmc__join_vectors_avx512(v, width);
        if (order)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__from_residuals_avx512(v[p], width, order);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        if (streaming.sum)
            LMC__UNROLL for (p = 0; p < width; p++) words = _mm512_add_epi64(words, v[p]);
        lmc__crc_add_avx512(sum, fold, v, width, &start);
    }
    if (i) {
        done.crc = lmc__crc_finish(sum, width);
        done.sum = LMC__SUM_WORDS(words);
        if (streams) lmc__end_stream_avx512(&stream, dst + i * width);
    }
    done.n = i;
    return done;
}

/* Two tests that would slow down each step are made here, once for each block: whether there is a
 * root, and whether dst is streamed. Other tests, and all tests for 8 bytes, are in the steps. */
LMC__INLINE_AVX512 void lmc__join_root_avx512_loop(uint8_t *dst, const lmc__join_source *source,
                                                   size_t n, lmc__streaming streaming,
                                                   lmc__progress *done, unsigned width)
{
    const enum lmc__order order = source->order;
    const int streams = streaming.is_on;
#define LMC__CALL(streams, has_root)                                                               \
    *done = lmc__join_root_steps_avx512(dst, source, n, width, order, streaming, streams, has_root)
    if (width == 8) LMC__CALL(streams, source->root != NULL);
    else if (source->root && streams) LMC__CALL(1, 1);
    else if (source->root) LMC__CALL(0, 1);
    else if (streams) LMC__CALL(1, 0);
    else LMC__CALL(0, 0);
#undef LMC__CALL
}
LMC__DEFINE_WIDTHS(lmc__join_root_avx512, LMC__LOOP_AVX512,
                   (uint8_t *dst, const lmc__join_source *source, size_t n,
                    lmc__streaming streaming, lmc__progress *done),
                   (dst, source, n, streaming, done, width))

LMC__AVX512 static uint32_t lmc__join_root_avx512(const lmc__kernels *k, uint8_t *dst,
                                                  lmc__join_source source, size_t n,
                                                  lmc__streaming streaming)
{
    const unsigned width = source.width;
    lmc__progress done = lmc__no_progress;
    if (!source.root || source.root->plane == width - 1)
        LMC__CALL_WIDTH(lmc__join_root_avx512, (dst, &source, n, streaming, &done))
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}
#endif
