#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"

#ifndef LMC_NO_SNAPSHOT
/*
 * CRC-64/NVME (spec 2.1): crc64(crc, p, size) continues from the CRC of what stands before, 0 at
 * the start. The kernels of all tiers give the same.
 *
 * All is as with CRC-32C (crc32c.h): a remainder of polynomials over GF(2), reflected, so that bit
 * 63 of a register is the coefficient of x^0. But there is no instruction for this polynomial: what
 * folding leaves goes through the tables.
 */

/* Product of two polynomials modulo the CRC's. */
static uint64_t lmc__crc64_multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    int i;
    for (i = 0; i < 64; i++) {
        product ^= b & (0u - (a >> 63));
        a <<= 1;
        b = b >> 1 ^ (LMC__CRC64_POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

/* CRC of two messages, one after the other, from their CRCs; b_size is below 2^19. The inversions
 * cancel out. */
static uint64_t lmc__crc64_combine(uint64_t a, uint64_t b, uint32_t b_size)
{
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; b_size >>= 1, i++)
        if (b_size & 1) a = lmc__crc64_multiply(a, lmc__crc64_powers[i]);
    return a ^ b;
}

/* Eight bytes more: v is what they are, xor the register. */
LMC__INLINE uint64_t lmc__crc64_step8(uint64_t v)
{
    const uint64_t(*t)[256] = lmc__crc64_table;
    return t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^
           t[3][v >> 32 & 255] ^ t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
}

/* The CRC, where `crc` is the register before the last bytes. */
LMC__INLINE uint64_t lmc__crc64_finish(uint64_t crc, const uint8_t *p, size_t size)
{
    for (; size >= 8; p += 8, size -= 8) crc = lmc__crc64_step8(crc ^ lmc__load64(p));
    for (; size != 0; p++, size--) crc = crc >> 8 ^ lmc__crc64_table[0][(crc ^ *p) & 255];
    return ~crc;
}

/* Three lanes, as in lmc__crc32c_scalar. */
static uint64_t lmc__crc64_scalar(uint64_t crc, const uint8_t *p, size_t size)
{
    crc = ~crc;
    for (; size >= 3 * LMC__CRC_LANE3; p += 3 * LMC__CRC_LANE3, size -= 3 * LMC__CRC_LANE3) {
        uint64_t crc1 = 0, crc2 = 0;
        size_t i;
        for (i = 0; i < LMC__CRC_LANE3; i += 8) {
            crc = lmc__crc64_step8(crc ^ lmc__load64(p + i));
            crc1 = lmc__crc64_step8(crc1 ^ lmc__load64(p + LMC__CRC_LANE3 + i));
            crc2 = lmc__crc64_step8(crc2 ^ lmc__load64(p + 2 * LMC__CRC_LANE3 + i));
        }
        crc = lmc__crc64_multiply(crc, LMC__CRC64_LANE3_SHIFT) ^ crc1;
        crc = lmc__crc64_multiply(crc, LMC__CRC64_LANE3_SHIFT) ^ crc2;
    }
    return lmc__crc64_finish(crc, p, size);
}

/*
 * Folding, as lmc__crc32c_avx512 does it: 16 bytes that stand d bytes before 16 others are replaced
 * by their product with x^(8 d), added to these. Here a factor fills a word of 64 bits. The product
 * of two words has 127 bits, and what stands for x^0 is one below the top of 128: one x more. So
 * the first eight bytes, which move by d + 8 bytes, get x^(8 d + 63), the others x^(8 d - 1).
 *
 *     bytes    0      16     32     48     64     80 ...
 *              [ v0 ] [ v1 ] [ v2 ] [ v3 ] [ w0 ] [ w1 ] ...
 *                 |      '--------------------------> * x^512 ^ w1
 *                 '-----------------------> * x^512 ^ w0
 *
 * In the end v0 is folded onto v1, and so on. The 16 bytes that are left are a message with the
 * same remainder, from register 0: two steps by the tables.
 */

#if LMC__NEON
LMC__PMULL LMC__INLINE uint64x2_t lmc__crc64_fold_neon(uint64x2_t a, const uint64_t *k,
                                                       uint64x2_t b)
{
    return veorq_u64(veorq_u64(LMC__PMULL64(vgetq_lane_u64(a, 0), k[0]),
                               LMC__PMULL64(vgetq_lane_u64(a, 1), k[1])),
                     b);
}

LMC__PMULL LMC__INLINE uint64x2_t lmc__crc64_load_neon(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

LMC__PMULL static uint64_t lmc__crc64_neon(uint64_t crc, const uint8_t *p, size_t size)
{
    const uint64_t *const k16 = lmc__crc64_folds[0], *const k64 = lmc__crc64_folds[2];
    crc = ~crc;
    if (size >= 64) {
        uint64x2_t v[4];
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = lmc__crc64_load_neon(p + 16 * i);
        v[0] = veorq_u64(v[0], vsetq_lane_u64(crc, vdupq_n_u64(0), 0));
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] =
                lmc__crc64_fold_neon(v[i], k64, lmc__crc64_load_neon(p + 16 * i));
        LMC__UNROLL for (i = 1; i < 4; i++) v[i] = lmc__crc64_fold_neon(v[i - 1], k16, v[i]);
        crc = lmc__crc64_step8(lmc__crc64_step8(vgetq_lane_u64(v[3], 0)) ^ vgetq_lane_u64(v[3], 1));
    }
    return lmc__crc64_finish(crc, p, size);
}
#endif

#if LMC__X86
LMC__INLINE_AVX2 __m128i lmc__crc64_factor(unsigned i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)lmc__crc64_folds[i]);
}

LMC__INLINE_AVX2 __m128i lmc__crc64_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* a folded onto b */
LMC__INLINE_AVX2 __m128i lmc__crc64_fold(__m128i a, __m128i k, __m128i b)
{
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)), b);
}

/* The register after four vectors. */
LMC__INLINE_AVX2 uint64_t lmc__crc64_join(const __m128i v[4])
{
    const __m128i k16 = lmc__crc64_factor(0);
    __m128i sum = v[0];
    unsigned i;
    LMC__UNROLL for (i = 1; i < 4; i++) sum = lmc__crc64_fold(sum, k16, v[i]);
    return lmc__crc64_step8(lmc__crc64_step8((uint64_t)_mm_cvtsi128_si64(sum)) ^
                            (uint64_t)_mm_extract_epi64(sum, 1));
}

LMC__AVX2 static uint64_t lmc__crc64_avx2(uint64_t crc, const uint8_t *p, size_t size)
{
    crc = ~crc;
    if (size >= 64) {
        const __m128i k64 = lmc__crc64_factor(2);
        __m128i v[4];
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = lmc__crc64_load(p + 16 * i);
        v[0] = _mm_xor_si128(v[0], _mm_cvtsi64_si128((long long)crc));
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] =
                lmc__crc64_fold(v[i], k64, lmc__crc64_load(p + 16 * i));
        crc = lmc__crc64_join(v);
    }
    return lmc__crc64_finish(crc, p, size);
}

/* Where products are made two at a time (Zen 3, Alder Lake): four vectors of 32 bytes, each of two
 * lanes, over 128 bytes at a time. Products are what this loop waits for, so it takes half as long.
 */
LMC__AVX2_VPCLMUL static uint64_t lmc__crc64_avx2_vpclmul(uint64_t crc, const uint8_t *p,
                                                          size_t size)
{
#define LMC__LOAD(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define LMC__FOLD(a, k, b)                                                                         \
    _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00),                        \
                                      _mm256_clmulepi64_epi128(a, k, 0x11)),                       \
                     b)
    if (size >= 128) {
        const __m256i k32 = _mm256_broadcastsi128_si256(lmc__crc64_factor(1)),
                      k128 = _mm256_broadcastsi128_si256(lmc__crc64_factor(3));
        __m256i v[4];
        __m128i sum;
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = LMC__LOAD(p + 32 * i);
        v[0] = _mm256_xor_si256(v[0], _mm256_set_epi64x(0, 0, 0, (long long)~crc));
        for (p += 128, size -= 128; size >= 128; p += 128, size -= 128)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] = LMC__FOLD(v[i], k128, LMC__LOAD(p + 32 * i));
        LMC__UNROLL for (i = 1; i < 4; i++) v[i] = LMC__FOLD(v[i - 1], k32, v[i]);
        sum = lmc__crc64_fold(_mm256_castsi256_si128(v[3]), lmc__crc64_factor(0),
                              _mm256_extracti128_si256(v[3], 1));
        crc = ~lmc__crc64_step8(lmc__crc64_step8((uint64_t)_mm_cvtsi128_si64(sum)) ^
                                (uint64_t)_mm_extract_epi64(sum, 1));
    }
#undef LMC__LOAD
#undef LMC__FOLD
    return lmc__crc64_avx2(crc, p, size);
}

/* The register after n vectors, one after the other. */
LMC__INLINE_AVX512 uint64_t lmc__crc64_join_avx512(const __m512i *v, unsigned n)
{
    const __m512i k64 = _mm512_broadcast_i32x4(lmc__crc64_factor(2));
    __m512i sum = v[0];
    __m128i lanes[4];
    unsigned i;
    LMC__UNROLL for (i = 1; i < n; i++) sum = lmc__crc_fold(sum, k64, v[i]);
    lanes[0] = _mm512_castsi512_si128(sum);
    lanes[1] = _mm512_extracti32x4_epi32(sum, 1);
    lanes[2] = _mm512_extracti32x4_epi32(sum, 2);
    lanes[3] = _mm512_extracti32x4_epi32(sum, 3);
    return lmc__crc64_join(lanes);
}

/* Four vectors of 64 bytes, each of four lanes, over 256 bytes at a time. */
LMC__AVX512 static uint64_t lmc__crc64_avx512(uint64_t crc, const uint8_t *p, size_t size)
{
    if (size >= 256) {
        const __m512i k256 = _mm512_broadcast_i32x4(lmc__crc64_factor(4));
        __m512i v[4];
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(p + 64 * i);
        v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi64_si128((long long)~crc)));
        for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] =
                lmc__crc_fold(v[i], k256, _mm512_loadu_si512(p + 64 * i));
        crc = ~lmc__crc64_join_avx512(v, 4);
    }
    return lmc__crc64_avx2(crc, p, size);
}
#endif

#if LMC__X86
/* The CRC-64 of what a decoder's loop makes, step by step, while it is in registers: with it, who
 * wants the identity of a tensor need not read that again, from where it was streamed to. A sum
 * starts as zero, so the first step's fold leaves that step's bytes, to which the register of an
 * empty message is added then; `start` is zero from then on. */
/* One for each of the `width` vectors of a step: 1, 2, 4 or 8. */
typedef struct lmc__crc64_sum_avx512 {
    __m512i vector[8], factor, start;
} lmc__crc64_sum_avx512;

LMC__INLINE_AVX512 void lmc__crc64_begin_avx512(lmc__crc64_sum_avx512 *s, unsigned width)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) s->vector[p] = _mm512_setzero_si512();
    s->factor = _mm512_broadcast_i32x4(lmc__crc64_factor(width == 1   ? 2
                                                         : width == 2 ? 3
                                                         : width == 4 ? 4
                                                                      : 5));
    s->start = _mm512_zextsi128_si512(_mm_cvtsi64_si128(-1));
}

LMC__INLINE_AVX512 void lmc__crc64_add_avx512(lmc__crc64_sum_avx512 *s, const __m512i *v,
                                              unsigned width)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) s->vector[p] =
        lmc__crc_fold(s->vector[p], s->factor, v[p]);
    s->vector[0] = _mm512_xor_si512(s->vector[0], s->start);
    s->start = _mm512_setzero_si512();
}
#endif
#endif /* LMC_NO_SNAPSHOT */
