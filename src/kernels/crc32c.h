#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* CRC-32C (Castagnoli; spec 2): crc32c(crc, p, size) continues from crc, the CRC of the bytes
 * before p, or 0. The kernels of all tiers give the same result.
 *
 * Why a message can be cut into parts: apart from the inversions at both ends, its CRC is the
 * remainder of a division by the CRC's polynomial. The message is a polynomial over GF(2), and its
 * first bit is the highest coefficient. So the CRC is linear: the register after parts A, B is
 *
 *     register(A B) = register(A) * x^(8 size(B))  xor  register(B), B from 0
 *
 * All constants in tables.h are such powers of x modulo the polynomial. Numbers are *reflected*:
 * bit 31 of a register is the coefficient of x^0, so multiplying by x is a shift to the right. */

#ifndef LMC_NO_SNAPSHOT
/* Product of two polynomials modulo the CRC's polynomial. */
LMC__INLINE uint32_t lmc__crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    int i;
    for (i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (LMC__CRC_POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

/* CRC of two messages, one after the other, from their CRCs. The inversions cancel out. */
static uint32_t lmc__crc32c_combine(uint32_t a, uint32_t b, uint64_t b_size)
{
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; b_size >>= 1) {
        if (b_size & 1) a = lmc__crc_multiply(a, lmc__crc_powers[i]);
        i = i < 30 ? i + 1 : 0;
    }
    return a ^ b;
}
#endif

/* Portable code. x^209 + x^144 + x^54 + x^39 + x^14 + 1 is a multiple of the CRC's polynomial. So a
 * bit of a message may be cleared if it is added to the bits 65, 155, 170, 195 and 209 places
 * behind it. In the end only the last 209 bits are left. Over GF(2) a square has the same terms
 * with twice the exponents. So three squarings give the rule for places of 8 bits, six for places
 * of 64. No table is needed, and a place depends only on places at least 65 before it (compare
 * Russell, "Chorba: A novel CRC32 implementation", 2024).
 *
 *     8192 bytes --words-> 1672 and up to 119 --bytes-> 209 and up to 110 --bits-> 32 and up to 7
 */
#define LMC__CRC_PIECE 4096u
#define LMC__CRC_PLACES(unit) ((209u * (unit) + 63) / 64 * 64)

/* 8 bytes in the machine's byte order, which does not matter for an exclusive or. */
LMC__INLINE uint64_t lmc__load_word(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* out[i] = p[i] + sums[i - 65 unit] + ..., where a place has `unit` bytes, 1 or 8; size is a
 * multiple of 64. sums may be out: 64 bytes are read before the first of them is written. */
LMC__INLINE void lmc__crc_add_places(uint8_t *out, const uint8_t *p, const uint8_t *sums,
                                     size_t size, size_t unit)
{
    size_t i, j;
    for (i = 0; i < size; i += 64) {
        uint64_t v[8];
        LMC__UNROLL for (j = 0; j < 8; j++)
        {
            const uint8_t *const s = sums + i + 8 * j;
            v[j] = lmc__load_word(p + i + 8 * j) ^ lmc__load_word(s - 65 * unit) ^
                   lmc__load_word(s - 155 * unit) ^ lmc__load_word(s - 170 * unit) ^
                   lmc__load_word(s - 195 * unit) ^ lmc__load_word(s - 209 * unit);
        }
        memcpy(out + i, v, sizeof v);
    }
}

/* Makes a shorter message with the same CRC. The message begins with register crc; the shorter one
 * begins with register 0, and has LMC__CRC_PLACES(unit) bytes and up to 63 more. Returns its size.
 * The message must have LMC__CRC_PLACES(unit) + 64 bytes or more. */
static size_t lmc__crc_shorten(uint8_t *out, uint32_t crc, const uint8_t *p, size_t size,
                               size_t unit)
{
    const size_t places = LMC__CRC_PLACES(unit);
    uint8_t before[LMC__CRC_PLACES(8) + LMC__CRC_PIECE], *const sums = before + places;
    size_t m;
    memset(before, 0, places - 64);
    memcpy(sums - 64, p, 64); /* nothing is added to the first places */
    lmc__store32(sums - 64, lmc__load32(p) ^ crc);
    for (p += 64, size -= 64; size >= places + 64; p += m, size -= m) {
        m = lmc__min((size - places) / 64 * 64, LMC__CRC_PIECE);
        lmc__crc_add_places(sums, p, sums, m, unit);
        memmove(before, before + m, places);
    }
    memset(sums, 0, places);
    lmc__crc_add_places(out, p, sums, places, unit);
    memcpy(out + places, p + places, size - places);
    return size;
}

/* Places of one bit, a word of them at a time: a, b, c, d are the four words before, with all that
 * was added to them. The last four words are not cleared, but processed with a table. */
static uint32_t lmc__crc_by_bits(uint32_t crc, const uint8_t *p, size_t size)
{
    const size_t n = size / 8;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    size_t i, j;
    for (i = 0; i < n; i++) {
        uint64_t v = lmc__load64(p + 8 * i) ^ crc ^ (a << 1 | b >> 63) ^ (b << 27 | c >> 37) ^
                     (b << 42 | c >> 22) ^ (c << 3 | d >> 61) ^ (c << 17 | d >> 47);
        d = c;
        c = b;
        b = a;
        a = i + 4 < n ? v : 0;
        for (j = 0; i + 4 >= n && j < 8; j++) v = v >> 8 ^ lmc__crc_table[v & 255];
        crc = i + 4 < n ? 0 : (uint32_t)v;
    }
    for (i = 8 * n; i < size; i++) crc = crc >> 8 ^ lmc__crc_table[(crc ^ p[i]) & 255];
    return crc;
}

static uint32_t lmc__crc32c_scalar(uint32_t crc, const uint8_t *p, size_t size)
{
    uint8_t words[LMC__CRC_PLACES(8) + 64], bytes[LMC__CRC_PLACES(1) + 64];
    crc = ~crc;
    if (size >= 4096) {
        size = lmc__crc_shorten(words, crc, p, size, 8);
        p = words;
        crc = 0;
    }
    if (size >= 512) {
        size = lmc__crc_shorten(bytes, crc, p, size, 1);
        p = bytes;
        crc = 0;
    }
    return ~lmc__crc_by_bits(crc, p, size);
}

#if LMC__NEON || LMC__X86
/* Lanes. A CRC instruction can start in each cycle, but waits two or three cycles for the register
 * of the one before. So a strip is cut into four lanes, whose registers advance in turn. All
 * registers except the first start from 0. All are joined at the end:
 *     | lane 0 ------> | lane 1 ------> | lane 2 ------> | lane 3 ------> |
 *       crc      ->  c0         ->   c1         ->    c2         ->    c3 */

#if LMC__NEON
typedef uint32_t lmc__crc_lane; /* else gcc clears upper halves, which are 0 */
#else
typedef uint64_t lmc__crc_lane;
#endif

/* Adds word i of each lane. */
LMC__INLINE LMC__CRC void lmc__crc_lanes(lmc__crc_lane c[4], const uint8_t *p, size_t i)
{
    c[0] = LMC__CRC_STEP8(c[0], lmc__load64(p + 8 * i));
    c[1] = LMC__CRC_STEP8(c[1], lmc__load64(p + LMC__CRC_LANE4 + 8 * i));
    c[2] = LMC__CRC_STEP8(c[2], lmc__load64(p + 2 * LMC__CRC_LANE4 + 8 * i));
    c[3] = LMC__CRC_STEP8(c[3], lmc__load64(p + 3 * LMC__CRC_LANE4 + 8 * i));
}

#if LMC__NEON
#define LMC__JOIN_LANES static __attribute__((noinline)) /* long, and called once for a strip */
#else
#define LMC__JOIN_LANES LMC__INLINE
#endif
/* The register after all four lanes: the sum of lane 3 - j times x^(8 j LANE4). No product is
 * reduced; one CRC instruction reduces the sum, and multiplies it by x^32. A product's x^0 is one
 * bit below the top of 64 bits: one more x. The factors make up for both. */
LMC__CRC LMC__JOIN_LANES lmc__crc_lane lmc__crc_after_lanes(lmc__crc_lane c0, lmc__crc_lane c1,
                                                            lmc__crc_lane c2, lmc__crc_lane c3)
{
#if LMC__NEON
    uint64_t sum = 0;
    unsigned i;
    LMC__UNROLL for (i = 0; i < 32; i++) sum ^=
        (((0 - (uint64_t)(c0 >> i & 1)) & LMC__CRC_LANE4_SHIFT3) ^
         ((0 - (uint64_t)(c1 >> i & 1)) & LMC__CRC_LANE4_SHIFT2) ^
         ((0 - (uint64_t)(c2 >> i & 1)) & LMC__CRC_LANE4_SHIFT1))
        << i;
    return LMC__CRC_STEP8(0, sum) ^ c3;
#else
    const __m128i shift3 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT3),
                  shift2 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT2),
                  shift1 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT1);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c0), shift3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c1), shift2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c2), shift1, 0));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)) ^ c3;
#endif
}

/* Goes on behind the lanes. */
LMC__INLINE LMC__CRC void lmc__crc_join_lanes(lmc__crc_lane c[4])
{
    c[0] = lmc__crc_after_lanes(c[0], c[1], c[2], c[3]);
    c[1] = c[2] = c[3] = 0;
}

LMC__CRC static uint32_t LMC__VEC(crc32c)(uint32_t crc, const uint8_t *p, size_t size)
{
    lmc__crc_lane c[4] = {(uint32_t)~crc, 0, 0, 0};
    for (; size >= 4 * LMC__CRC_LANE4; p += 4 * LMC__CRC_LANE4, size -= 4 * LMC__CRC_LANE4) {
        size_t i;
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            lmc__crc_lanes(c, p, i);
            lmc__crc_lanes(c, p, i + 1);
        }
        lmc__crc_join_lanes(c);
    }
    for (; size >= 8; p += 8, size -= 8) c[0] = LMC__CRC_STEP8(c[0], lmc__load64(p));
    for (; size != 0; p++, size--) c[0] = LMC__CRC_STEP1(c[0], *p);
    return ~(uint32_t)c[0];
}
#endif

#if LMC__X86
/* Folding, on AVX-512 (Gopal et al., "Fast CRC computation for generic polynomials using
 * PCLMULQDQ", 2009). 16 bytes can be removed if their product with x^(8d) is added to the 16 bytes
 * d places later: the CRC stays the same. The product fits in 16 bytes: the factor is reduced to 32
 * bits. A vector has four lanes of 16 bytes; here four vectors are folded over 256 bytes at a time:
 *     bytes    0         64        128       192       256       320 ...
 *              [ v0    ] [ v1    ] [ v2    ] [ v3    ] [ w0    ] [ w1    ] ...
 *                  |         '-----------------------------------> * x^2048 ^ w1
 *                  '-------------------------------------> * x^2048 ^ w0
 *
 * In the end v0 is folded onto v1, v2, v3, and three lanes onto the last: 16 bytes for crc32.
 *
 * The factors. The first eight bytes of a lane move by d + 8 bytes, so their factor is x^(8 d +
 * 64); the others move by d bytes: x^(8 d). A factor of 32 bits in the low half of a 64-bit word is
 * x^32 times its value. A product of two words has 127 bits, with x^0 one bit below the top of 128:
 * that is one more factor x. Divided by this x^33, the factors are x^(8 d + 31) and x^(8 d - 33).
 */

/* The factors to fold over a distance of 1, 2, 4 or 8 vectors. */
LMC__INLINE_AVX512 __m512i lmc__crc_factor(unsigned vectors)
{
    const uint64_t *fold = lmc__crc_folds[(vectors > 1) + (vectors > 2) + (vectors > 4)];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold));
}

/* a folded onto b, in each of the four lanes */
LMC__INLINE_AVX512 __m512i lmc__crc_fold(__m512i a, __m512i k, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
                                     _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96); /* a ^ b ^ c */
}

/* Folds each of n sums over the distance of `fold`, and adds a vector to it; sums are zero before
 * the first call. *start is xored with the very first vector, and is zero from then on. */
LMC__INLINE_AVX512 void lmc__crc_add_avx512(__m512i *sum, __m512i fold, const __m512i *v,
                                            unsigned n, __m512i *start)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < n; p++) sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
    sum[0] = _mm512_xor_si512(sum[0], *start);
    *start = _mm512_setzero_si512();
}

/* Xored with a message's first vector, to continue from crc: its first 32 bits are the register. */
LMC__INLINE_AVX512 __m512i lmc__crc_start(uint32_t crc)
{
    return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
}

/* The CRC of n vectors, one after the other. */
LMC__INLINE_AVX512 uint32_t lmc__crc_finish(const __m512i *v, unsigned n)
{
    const __m512i k64 = lmc__crc_factor(1), last = _mm512_loadu_si512(lmc__crc_fold_last);
    __m512i sum = v[0], low;
    __m128i x;
    unsigned i;
    LMC__UNROLL for (i = 1; i < n; i++) sum = lmc__crc_fold(sum, k64, v[i]);
    /* folds lanes 0, 1, 2 onto lane 3, whose own factors in `last` are 0 */
    low = _mm512_xor_si512(_mm512_clmulepi64_epi128(sum, last, 0x00),
                           _mm512_clmulepi64_epi128(sum, last, 0x11));
    x = _mm_xor_si128(_mm512_extracti32x4_epi32(sum, 3), _mm512_castsi512_si128(low));
    x = _mm_ternarylogic_epi64(x, _mm512_extracti32x4_epi32(low, 1),
                               _mm512_extracti32x4_epi32(low, 2), 0x96);
    return ~(uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)),
                                    (uint64_t)_mm_extract_epi64(x, 1));
}

LMC__AVX512 static uint32_t lmc__crc32c_avx512(uint32_t crc, const uint8_t *p, size_t size)
{
    if (size >= 256) {
        const __m512i k256 = lmc__crc_factor(4);
        __m512i v[4];
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(p + 64 * i);
        v[0] = _mm512_xor_si512(v[0], lmc__crc_start(crc));
        for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] =
                lmc__crc_fold(v[i], k256, _mm512_loadu_si512(p + 64 * i));
        crc = lmc__crc_finish(v, 4);
    }
    return lmc__crc32c_avx2(crc, p, size);
}
#endif
