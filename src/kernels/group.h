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

/* -- 6.17 group: byte p of the residual of element i of src against base (spec 7.2) to the next
 * place of the list of plane p and the element's class. Returns the CRC-32C of src. -- */

LMC__INLINE void lmc__group_body(const lmc__classes *classes, const uint8_t *src,
                                 const uint8_t *base, size_t n, unsigned width, int subtract,
                                 const lmc__grouping *grouping)
{
    const unsigned first = grouping->n_natural;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8_t class_of[256];
    unsigned p;
    lmc__set_class_table(class_of, grouping);
    for (i = 0; i < n; i++) {
        const uint64_t b = lmc__load_element(base, i, width),
                       r = lmc__residual(lmc__load_element(src, i, width), b, width, subtract);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        LMC__UNROLL for (p = 0; p < width; p++) if (p < first) classes->row[0][p][i] =
            (uint8_t)(r >> 8 * p);
        else classes->row[c][p][at] = (uint8_t)(r >> 8 * p); }
}

#define LMC__FOR_RESIDUAL(call)                                                                    \
    switch (width) {                                                                               \
    case 1:                                                                                        \
        if (subtract) {                                                                            \
            call(1, 1);                                                                            \
        } else {                                                                                   \
            call(1, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 2:                                                                                        \
        if (subtract) {                                                                            \
            call(2, 1);                                                                            \
        } else {                                                                                   \
            call(2, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 4:                                                                                        \
        if (subtract) {                                                                            \
            call(4, 1);                                                                            \
        } else {                                                                                   \
            call(4, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    default:                                                                                       \
        if (subtract) {                                                                            \
            call(8, 1);                                                                            \
        } else {                                                                                   \
            call(8, 0);                                                                            \
        }                                                                                          \
    }

static uint32_t lmc__group_scalar(const lmc__kernels *k, const lmc__classes *classes,
                                  const uint8_t *src, const uint8_t *base, size_t n, unsigned width,
                                  int subtract, const lmc__grouping *grouping)
{
#define LMC__CALL(w, s) lmc__group_body(classes, src, base, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(0, src, n * width);
}

#if LMC__NEON

/* 64 elements in each step; a class's ones are packed by 8, as in lmc__partition64_neon. */
LMC__INLINE void lmc__group_body_neon(const lmc__classes *classes, const uint8_t *src,
                                      const uint8_t *base, size_t n, unsigned width, int subtract,
                                      const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const lmc__classes rows = *classes; /* what a pointer to bytes cannot change */
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t highest[LMC__MAX_CLASSES];
    lmc__classes rest;
    unsigned p, c, j;
    lmc__set_highest_neon(highest, grouping);
    for (i = 0; i + 64 <= n; i += 64) {
        uint8x16_t keys[4], before[4],
            planes[8][8]; /* planes: their elements from number 8 j on, in the lower half */
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            uint8x16_t v[8], b[8];
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const size_t at = (i + 16 * j) * width + 16 * p;
                b[p] = lmc__load_neon(base + at);
                v[p] = lmc__residual_neon(lmc__load_neon(src + at), b[p], width, subtract);
            }
            keys[j] = lmc__keys_neon(b, width);
            before[j] = vdupq_n_u8(0);
            if (width >= 2) lmc__split_step_neon(v, width, 1);
            if (width >= 4) lmc__split_step_neon(v, width, 2);
            if (width >= 8) lmc__split_step_neon(v, width, 4);
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
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            rest.row[c][p] = p >= first ? rows.row[c][p] + next[c]
                             : c == 0   ? rows.row[c][p] + i
                                        : NULL;
    lmc__group_body(&rest, src + i * width, base + i * width, n - i, width, subtract, grouping);
}

static uint32_t lmc__group_neon(const lmc__kernels *k, const lmc__classes *classes,
                                const uint8_t *src, const uint8_t *base, size_t n, unsigned width,
                                int subtract, const lmc__grouping *grouping)
{
#define LMC__CALL(w, s) lmc__group_body_neon(classes, src, base, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(0, src, n * width);
}
#endif

#if LMC__X86

/* Strips, so that the CRC finds its bytes in the first cache. A class's elements are packed by 16,
 * the same in all planes. */
LMC__INLINE2 uint32_t lmc__group_body_avx2(const lmc__classes *classes, const uint8_t *src,
                                           const uint8_t *base, size_t n, unsigned width,
                                           int subtract, const lmc__grouping *grouping)
{
    const size_t strip = LMC__STRIP_SIZE / width;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const __m128i eight = _mm_set1_epi8(8);
    const lmc__classes rows = *classes; /* what a pointer to bytes cannot change */
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    lmc__classes rest;
    uint32_t crc = 0;
    unsigned p, c, j;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t end = i + lmc__min(strip, (n - i) & ~(size_t)31);
        crc = lmc__crc32c_avx2(crc, src + i * width, (end - i) * width);
        for (; i < end; i += 32) {
            __m128i half[2][8];
            uint32_t before = 0;
            __m256i keys;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + 32 * p);
                v[p] = lmc__residual_avx2(lmc__load_avx2(src + i * width + 32 * p), b[p], width,
                                          subtract);
            }
            keys = lmc__keys_avx2(b, width);
            if (width >= 2) lmc__split_step_avx2(v, width, 1);
            if (width >= 4) lmc__split_step_avx2(v, width, 2);
            if (width >= 8) lmc__split_step_avx2(v, width, 4);
            LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
                lmc__store_avx2(rows.row[0][p] + i, v[p]);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                half[0][p] = _mm256_castsi256_si128(v[p]);
                half[1][p] = _mm256_extracti128_si256(v[p], 1);
            }
            for (c = 0; c < n_classes; c++) {
                const uint32_t up_to = (uint32_t)_mm256_movemask_epi8(
                                   lmc__up_to_avx2(keys, highest[c])),
                               m = up_to & ~before;
                LMC__UNROLL for (j = 0; j < 2; j++)
                {
                    const unsigned low = m >> 16 * j & 255, high = m >> (16 * j + 8) & 255;
                    const size_t at = next[c] + (j ? (size_t)_mm_popcnt_u64(m & 0xFFFF) : 0);
                    const __m128i behind = _mm_loadu_si128(
                        (const __m128i *)(const void *)(lmc__behind + 8 - _mm_popcnt_u64(low)));
                    const __m128i places = _mm_or_si128(
                        lmc__load_places_avx2(low),
                        _mm_shuffle_epi8(_mm_or_si128(lmc__load_places_avx2(high), eight), behind));
                    LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                        _mm_storeu_si128((__m128i *)(void *)(rows.row[c][p] + at),
                                         _mm_shuffle_epi8(half[j][p], places));
                }
                next[c] += (size_t)_mm_popcnt_u64(m);
                before = up_to;
            }
        }
    }
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            rest.row[c][p] = p >= first ? rows.row[c][p] + next[c]
                             : c == 0   ? rows.row[c][p] + i
                                        : NULL;
    lmc__group_body(&rest, src + i * width, base + i * width, n - i, width, subtract, grouping);
    return lmc__crc32c_avx2(crc, src + i * width, (n - i) * width);
}

LMC__AVX2 static uint32_t lmc__group_avx2(const lmc__kernels *k, const lmc__classes *classes,
                                          const uint8_t *src, const uint8_t *base, size_t n,
                                          unsigned width, int subtract,
                                          const lmc__grouping *grouping)
{
    uint32_t crc;
    (void)k;
#define LMC__CALL(w, s) crc = lmc__group_body_avx2(classes, src, base, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return crc;
}

/* All at once, in registers, as in split_root. Of a class's elements, the places are compressed,
 * and each plane permuted by them: one instruction, where compressing is two. Most lists get 32
 * elements at most, which take fewer store cycles than 64. */
LMC__INLINE512 uint32_t lmc__group_body_avx512(const lmc__classes *classes, const uint8_t *src,
                                               const uint8_t *base, size_t n, unsigned width,
                                               int subtract, const lmc__grouping *grouping)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const lmc__classes rows = *classes; /* what a pointer to bytes cannot change */
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    lmc__classes rest;
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            LMC__PREFETCH(src + lmc__min(i * width + 64 * p + LMC__FETCH_AHEAD, n * width));
            b[p] = lmc__load_avx512(base + i * width + 64 * p);
            v[p] = lmc__load_avx512(src + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            v[p] = lmc__residual_avx512(v[p], b[p], width, subtract);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512();
        keys = lmc__keys_avx512(b, width);
        if (width >= 2) lmc__split_step_avx512(v, width, 1);
        if (width >= 4) lmc__split_step_avx512(v, width, 2);
        if (width >= 8) lmc__split_step_avx512(v, width, 4);
        LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
            lmc__store_avx512(rows.row[0][p] + i, v[p]);
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            const __m512i up = lmc__load_avx512(lmc__count_up),
                          places = _mm512_mask_compress_epi8(up, m, up);
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
    if (i) crc = lmc__crc_finish(sum, width);
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            rest.row[c][p] = p >= first ? rows.row[c][p] + next[c]
                             : c == 0   ? rows.row[c][p] + i
                                        : NULL;
    lmc__group_body(&rest, src + i * width, base + i * width, n - i, width, subtract, grouping);
    return lmc__crc32c_avx512(crc, src + i * width, (n - i) * width);
}

LMC__AVX512 static uint32_t lmc__group_avx512(const lmc__kernels *k, const lmc__classes *classes,
                                              const uint8_t *src, const uint8_t *base, size_t n,
                                              unsigned width, int subtract,
                                              const lmc__grouping *grouping)
{
    uint32_t crc;
    (void)k;
#define LMC__CALL(w, s) crc = lmc__group_body_avx512(classes, src, base, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return crc;
}
#endif

/* -- 6.18 ungroup: the inverse; sides of natural planes are those of class 0: n bytes exactly, no
 * lists, not constant. dst may be base. Returns the CRC-32C of dst. -- */
LMC__INLINE void lmc__ungroup_body(uint8_t *dst, const uint8_t *base, const lmc__class_sides *sides,
                                   size_t n, unsigned width, int subtract,
                                   const lmc__grouping *grouping)
{
    const unsigned first = grouping->n_natural;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8_t class_of[256];
    unsigned p;
    lmc__set_class_table(class_of, grouping);
    for (i = 0; i < n; i++) {
        const uint64_t b = lmc__load_element(base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        uint64_t r = 0;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const lmc__side *const side = &sides->side[p < first ? 0 : c][p];
            r |= (uint64_t)(side->list ? side->list[p < first ? i : at] : side->value) << 8 * p;
        }
        lmc__store_element(dst, i, lmc__restore_element(r, b, width, subtract), width);
    }
}

static uint32_t lmc__ungroup_scalar(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                    const lmc__class_sides *sides, size_t n, unsigned width,
                                    int subtract, const lmc__grouping *grouping,
                                    lmc__streaming streaming)
{
    (void)streaming;
#define LMC__CALL(w, s) lmc__ungroup_body(dst, base, sides, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(0, dst, n * width);
}

#if LMC__NEON
/* 16 elements: each class's bytes are shuffled to their places, the same in all planes. An
 * element's place is the number of those of its class before it, which sums within 2, 4, 8 and 16
 * bytes give. */
LMC__INLINE void lmc__ungroup_body_neon(uint8_t *dst, const uint8_t *base,
                                        const lmc__class_sides *sides, size_t n, unsigned width,
                                        int subtract, const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8x16_t zero = vdupq_n_u8(0);
    lmc__class_sides from = *sides, rest; /* from: of the grouped planes; the others' are constant
                                             and zero, which does nothing */
    int any_list[LMC__MAX_CLASSES] = {0};
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t v[8], b[8], highest[LMC__MAX_CLASSES];
    const uint8_t *natural[8];
    unsigned p, c;
    lmc__set_highest_neon(highest, grouping);
    for (p = 0; p < first; p++) {
        natural[p] = from.side[0][p].list;
        for (c = 0; c < n_classes; c++) {
            from.side[c][p].list = NULL;
            from.side[c][p].value = 0;
        }
    }
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++) any_list[c] |= from.side[c][p].list != NULL;
    for (i = 0; i + 16 <= n; i += 16) {
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
            if (any_list[c]) {
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 15));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 14));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 12));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 8));
                places = vmvnq_u8(
                    vandq_u8(sum, one)); /* 255, a place that gives 0, where there is none */
            }
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &from.side[c][p];
                if (side->list)
                    v[p] = vorrq_u8(v[p], vqtbl1q_u8(vld1q_u8(side->list + next[c]), places));
                else if (side->value) v[p] = vorrq_u8(v[p], vandq_u8(one, vdupq_n_u8(side->value)));
            }
            if (any_list[c]) next[c] += (size_t)((0u - vgetq_lane_u8(sum, 15)) & 255);
        }
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_neon(natural[p] + i);
        if (width >= 8) lmc__join_step_neon(v, width, 4);
        if (width >= 4) lmc__join_step_neon(v, width, 2);
        if (width >= 2) lmc__join_step_neon(v, width, 1);
        LMC__UNROLL for (p = 0; p < width; p++) lmc__store_neon(
            dst + i * width + 16 * p, lmc__restore_neon(v[p], b[p], width, subtract));
    }
    rest = *sides;
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            if (p < first ? c == 0 : rest.side[c][p].list != NULL)
                rest.side[c][p].list += p < first ? i : next[c];
    lmc__ungroup_body(dst + i * width, base + i * width, &rest, n - i, width, subtract, grouping);
}

static uint32_t lmc__ungroup_neon(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                  const lmc__class_sides *sides, size_t n, unsigned width,
                                  int subtract, const lmc__grouping *grouping,
                                  lmc__streaming streaming)
{
    (void)streaming;
#define LMC__CALL(w, s) lmc__ungroup_body_neon(dst, base, sides, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(0, dst, n * width);
}
#endif

#if LMC__X86
/* 32 elements: each class's bytes are shuffled to their places, the same in all planes, as in
 * lmc__merge_step_avx2. */
LMC__INLINE2 uint32_t lmc__ungroup_body_avx2(uint8_t *dst, const uint8_t *base,
                                             const lmc__class_sides *sides, size_t n,
                                             unsigned width, int subtract,
                                             const lmc__grouping *grouping)
{
    const size_t strip = LMC__STRIP_SIZE / width;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    lmc__class_sides from = *sides, rest; /* from: of the grouped planes; the others' are constant
                                             and zero, which does nothing */
    int any_list[LMC__MAX_CLASSES] = {0};
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    const uint8_t *natural[8];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, grouping);
    for (p = 0; p < first; p++) {
        natural[p] = from.side[0][p].list;
        for (c = 0; c < n_classes; c++) {
            from.side[c][p].list = NULL;
            from.side[c][p].value = 0;
        }
    }
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++) any_list[c] |= from.side[c][p].list != NULL;
    while (i + 32 <= n) {
        const size_t start = i, end = i + lmc__min(strip, (n - i) & ~(size_t)31);
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
                if (any_list[c]) { /* number of those before, and elsewhere 255, a place that gives
                                      0 */
                    places = _mm256_and_si256(lmc__sum_up_avx2(one), one);
                    places = _mm256_xor_si256(places, _mm256_set1_epi8((char)-1));
                }
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    const lmc__side *const side = &from.side[c][p];
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
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
                lmc__load_avx2(natural[p] + i);
            if (width >= 8) lmc__join_step_avx2(v, width, 4);
            if (width >= 4) lmc__join_step_avx2(v, width, 2);
            if (width >= 2) lmc__join_step_avx2(v, width, 1);
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(
                dst + i * width + 32 * p, lmc__restore_avx2(v[p], b[p], width, subtract));
        }
        crc = lmc__crc32c_avx2(crc, dst + start * width, (end - start) * width);
    }
    rest = *sides;
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            if (p < first ? c == 0 : rest.side[c][p].list != NULL)
                rest.side[c][p].list += p < first ? i : next[c];
    lmc__ungroup_body(dst + i * width, base + i * width, &rest, n - i, width, subtract, grouping);
    return lmc__crc32c_avx2(crc, dst + i * width, (n - i) * width);
}

LMC__AVX2 static uint32_t lmc__ungroup_avx2(const lmc__kernels *k, uint8_t *dst,
                                            const uint8_t *base, const lmc__class_sides *sides,
                                            size_t n, unsigned width, int subtract,
                                            const lmc__grouping *grouping, lmc__streaming streaming)
{
    uint32_t crc;
    (void)k;
    (void)streaming;
#define LMC__CALL(w, s) crc = lmc__ungroup_body_avx2(dst, base, sides, n, w, s, grouping)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return crc;
}

/* Streaming stores as in join_root, but not to the base: what was just read is in the caches. */
LMC__INLINE512 uint32_t lmc__ungroup_body_avx512(uint8_t *dst, const uint8_t *base,
                                                 const lmc__class_sides *sides, size_t n,
                                                 unsigned width, int subtract,
                                                 const lmc__grouping *grouping,
                                                 lmc__streaming streaming)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural,
                   head = (unsigned)((0 - (uintptr_t)dst) & 63);
    const __m512i shift =
        _mm512_add_epi8(_mm512_loadu_si512(lmc__count_up), _mm512_set1_epi8((char)head));
    const int streams = streaming.is_on && dst != base;
    const size_t ahead_lines = (streaming.next_size + n - 1) / n;
    lmc__class_sides from = *sides, rest; /* from: of the grouped planes; the others' are constant
                                             and zero, which does nothing */
    size_t next[LMC__MAX_CLASSES] = {0}, i, line;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0), last = start;
    const uint8_t *natural[8];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    for (p = 0; p < first; p++) {
        natural[p] = from.side[0][p].list;
        for (c = 0; c < n_classes; c++) {
            from.side[c][p].list = NULL;
            from.side[c][p].value = 0;
        }
    }
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0;
        __m512i keys;
        lmc__touch_ahead(dst, i * width);
        for (line = i * ahead_lines; line < lmc__min((i + 64) * ahead_lines, streaming.next_size);
             line += 64) {
            lmc__touch_ahead(streaming.next, line);
            LMC__PREFETCH(streaming.next + line);
        }
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_avx512(base + i * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = _mm512_setzero_si512();
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &from.side[c][p];
                if (side->list)
                    v[p] = _mm512_mask_expand_epi8(v[p], m, lmc__load_avx512(side->list + next[c]));
                else if (side->value)
                    v[p] = _mm512_mask_mov_epi8(v[p], m, _mm512_set1_epi8((char)side->value));
            }
            next[c] += (size_t)_mm_popcnt_u64(m);
            here = above;
        }
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_avx512(natural[p] + i);
        if (width >= 8) lmc__join_step_avx512(v, width, 4);
        if (width >= 4) lmc__join_step_avx512(v, width, 2);
        if (width >= 2) lmc__join_step_avx512(v, width, 1);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            v[p] = lmc__restore_avx512(v[p], b[p], width, subtract);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            if (!streams) lmc__store_avx512(at, v[p]);
            else {
                if (p == 0 && i == 0) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << head) - 1, v[p]);
                else
                    _mm512_stream_si512((__m512i *)(void *)(at + head - 64),
                                        _mm512_permutex2var_epi8(last, shift, v[p]));
                last = v[p];
            }
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512();
    }
    if (i) {
        crc = lmc__crc_finish(sum, width);
        if (streams) /* the last 64 - head bytes */
            _mm512_mask_storeu_epi8(dst + i * width + head - 64, ~(__mmask64)0 >> head,
                                    _mm512_permutex2var_epi8(last, shift, last));
    }
    rest = *sides;
    for (c = 0; c < n_classes; c++)
        for (p = 0; p < width; p++)
            if (p < first ? c == 0 : rest.side[c][p].list != NULL)
                rest.side[c][p].list += p < first ? i : next[c];
    lmc__ungroup_body(dst + i * width, base + i * width, &rest, n - i, width, subtract, grouping);
    return lmc__crc32c_avx512(crc, dst + i * width, (n - i) * width);
}

LMC__AVX512 static uint32_t lmc__ungroup_avx512(const lmc__kernels *k, uint8_t *dst,
                                                const uint8_t *base, const lmc__class_sides *sides,
                                                size_t n, unsigned width, int subtract,
                                                const lmc__grouping *grouping,
                                                lmc__streaming streaming)
{
    uint32_t crc;
    (void)k;
#define LMC__CALL(w, s)                                                                            \
    crc = lmc__ungroup_body_avx512(dst, base, sides, n, w, s, grouping, streaming)
    LMC__FOR_RESIDUAL(LMC__CALL)
#undef LMC__CALL
    return crc;
}
#endif
