#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/* lmc__crc_table[k][b]: the CRC register after byte b and k zero bytes, from register 0. A CRC is
 * linear, so an entry is the xor of those of its bits; each row is given by the entries of 1, 2, 4,
 * ... 128, and the preprocessor does the rest. Derivation: c = b; (k + 1) times eight times: c = c
 * >> 1 ^ (c & 1 ? 0x82F63B78 : 0). */
#define LMC__CRC_1(b, v0, v1, v2, v3, v4, v5, v6, v7)                                              \
    (((b) & 1 ? v0 : 0) ^ ((b) & 2 ? v1 : 0) ^ ((b) & 4 ? v2 : 0) ^ ((b) & 8 ? v3 : 0) ^           \
     ((b) & 16 ? v4 : 0) ^ ((b) & 32 ? v5 : 0) ^ ((b) & 64 ? v6 : 0) ^ ((b) & 128 ? v7 : 0))
#define LMC__CRC_4(b, v0, v1, v2, v3, v4, v5, v6, v7)                                              \
    LMC__CRC_1(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                 \
        LMC__CRC_1((b) + 1, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_1((b) + 2, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_1((b) + 3, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_16(b, v0, v1, v2, v3, v4, v5, v6, v7)                                             \
    LMC__CRC_4(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                 \
        LMC__CRC_4((b) + 4, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_4((b) + 8, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_4((b) + 12, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_64(b, v0, v1, v2, v3, v4, v5, v6, v7)                                             \
    LMC__CRC_16(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                \
        LMC__CRC_16((b) + 16, v0, v1, v2, v3, v4, v5, v6, v7),                                     \
        LMC__CRC_16((b) + 32, v0, v1, v2, v3, v4, v5, v6, v7),                                     \
        LMC__CRC_16((b) + 48, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_ROW(v0, v1, v2, v3, v4, v5, v6, v7)                                               \
    {LMC__CRC_64(0, v0, v1, v2, v3, v4, v5, v6, v7),                                               \
     LMC__CRC_64(64, v0, v1, v2, v3, v4, v5, v6, v7),                                              \
     LMC__CRC_64(128, v0, v1, v2, v3, v4, v5, v6, v7),                                             \
     LMC__CRC_64(192, v0, v1, v2, v3, v4, v5, v6, v7)}

static const uint32_t lmc__crc_table[8][256] = {
    LMC__CRC_ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc,
                 0x82f63b78),
    LMC__CRC_ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604,
                 0xfbc3faf9),
    LMC__CRC_ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9,
                 0x8b277743),
    LMC__CRC_ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7,
                 0x52a0c93f),
    LMC__CRC_ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae,
                 0x6ea2d55c),
    LMC__CRC_ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb,
                 0x1c08b7d6),
    LMC__CRC_ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a,
                 0xf56e0ef4),
    LMC__CRC_ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32,
                 0x34019664)};

/* Product of two polynomials modulo the CRC's, bit 31 first: crc of a message followed by k zero
 * bytes is multiplied by x^8k. */
static uint32_t lmc__crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    int i;
    for (i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (0x82F63B78u & (0u - (b & 1)));
    }
    return product;
}

/* Bytes of each of the lanes that a CRC is computed in at once. Three fill a strip of
 * LMC__STRIP_SIZE bytes up to its last 8, four fill it. */
#define LMC__CRC_LANE3 2728u
#define LMC__CRC_LANE3_SHIFT 0x9075A4EFu /* x^(8 * LMC__CRC_LANE3) */
#define LMC__CRC_LANE4 2048u

/* Eight bytes more (slicing by 8: Kounavis and Berry, "Novel table lookup-based algorithms for
 * high-performance CRC generation", 2008). */
LMC__INLINE uint32_t lmc__crc_step8(uint32_t crc, const uint8_t *p)
{
    const uint32_t(*t)[256] = lmc__crc_table;
    uint64_t v = lmc__load64(p) ^ crc;
    return t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^
           t[3][v >> 32 & 255] ^ t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
}

/* Three lanes at once hide the latency of the look-ups: twice the speed of one. */
static uint32_t lmc__crc32c_scalar(uint32_t crc, const uint8_t *p, size_t size)
{
    crc = ~crc;
    for (; size >= 3 * LMC__CRC_LANE3; p += 3 * LMC__CRC_LANE3, size -= 3 * LMC__CRC_LANE3) {
        uint32_t crc1 = 0, crc2 = 0;
        size_t i;
        for (i = 0; i < LMC__CRC_LANE3; i += 8) {
            crc = lmc__crc_step8(crc, p + i);
            crc1 = lmc__crc_step8(crc1, p + LMC__CRC_LANE3 + i);
            crc2 = lmc__crc_step8(crc2, p + 2 * LMC__CRC_LANE3 + i);
        }
        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc1;
        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc2;
    }
    for (; size >= 8; p += 8, size -= 8) crc = lmc__crc_step8(crc, p);
    for (; size != 0; p++, size--) crc = crc >> 8 ^ lmc__crc_table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if LMC__NEON
/* The crc32cx instruction takes one cycle, its result two or three more: three lanes, as above. */
LMC__CRC static uint32_t lmc__crc32c_neon(uint32_t crc, const uint8_t *p, size_t size)
{
    uint32_t c0 = ~crc;
    for (; size >= 3 * LMC__CRC_LANE3; p += 3 * LMC__CRC_LANE3, size -= 3 * LMC__CRC_LANE3) {
        uint32_t c1 = 0, c2 = 0;
        size_t i;
        for (i = 0; i < LMC__CRC_LANE3; i += 8) {
            c0 = LMC__CRC_STEP8(c0, lmc__load64(p + i));
            c1 = LMC__CRC_STEP8(c1, lmc__load64(p + LMC__CRC_LANE3 + i));
            c2 = LMC__CRC_STEP8(c2, lmc__load64(p + 2 * LMC__CRC_LANE3 + i));
        }
        c0 = lmc__crc_multiply(c0, LMC__CRC_LANE3_SHIFT) ^ c1;
        c0 = lmc__crc_multiply(c0, LMC__CRC_LANE3_SHIFT) ^ c2;
    }
    for (; size >= 8; p += 8, size -= 8) c0 = LMC__CRC_STEP8(c0, lmc__load64(p));
    for (; size != 0; p++, size--) c0 = c0 >> 8 ^ lmc__crc_table[0][(c0 ^ *p) & 255];
    return ~c0;
}
#endif

#if LMC__X86
/* The crc32 instruction has three cycles of latency and one of throughput: lanes again. This is
 * word i of each. */
LMC__INLINE2 void lmc__crc_lanes(uint64_t c[4], const uint8_t *p, size_t i)
{
    c[0] = _mm_crc32_u64(c[0], lmc__load64(p + 8 * i));
    c[1] = _mm_crc32_u64(c[1], lmc__load64(p + LMC__CRC_LANE4 + 8 * i));
    c[2] = _mm_crc32_u64(c[2], lmc__load64(p + 2 * LMC__CRC_LANE4 + 8 * i));
    c[3] = _mm_crc32_u64(c[3], lmc__load64(p + 3 * LMC__CRC_LANE4 + 8 * i));
}

/* The register after all lanes: lane 3 - j is multiplied by x^(8 j LMC__CRC_LANE4). The product
 * with x^(8 j LMC__CRC_LANE4 - 33) as a number of 64 bits lacks 33 powers of x: 32 that the crc32
 * instruction adds, one because the product of two 32-bit numbers has 63. */
LMC__INLINE2 uint64_t lmc__crc_join_lanes(const uint64_t c[4])
{
    const __m128i k3 = _mm_cvtsi64_si128(0xB9D68D49), k2 = _mm_cvtsi64_si128(0x82F89C77),
                  k1 = _mm_cvtsi64_si128(0xA51B6135);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[0]), k3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[1]), k2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[2]), k1, 0));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)) ^ c[3];
}

LMC__AVX2 static uint32_t lmc__crc32c_avx2(uint32_t crc, const uint8_t *p, size_t size)
{
    uint64_t c[4] = {(uint32_t)~crc, 0, 0, 0};
    for (; size >= 4 * LMC__CRC_LANE4; p += 4 * LMC__CRC_LANE4, size -= 4 * LMC__CRC_LANE4) {
        size_t i;
        for (i = 0; i < LMC__CRC_LANE4 / 8; i++) lmc__crc_lanes(c, p, i);
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    for (; size >= 8; p += 8, size -= 8) c[0] = _mm_crc32_u64(c[0], lmc__load64(p));
    for (; size != 0; p++, size--) c[0] = _mm_crc32_u8((uint32_t)c[0], *p);
    return ~(uint32_t)c[0];
}

/* Folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009): 16
 * bytes that stand d bytes before others are replaced by their product with x^(8d), which is
 * congruent and as long. For each distance d: the reflected x^(8d + 32) and x^(8d - 32) modulo the
 * polynomial, times x, for the low and the high 8 bytes. */
#define LMC__FOLD_16 0xF20C0DFE, 0x14CD00BD6
#define LMC__FOLD_32 0x1384AA63A, 0xBA4FC28E
#define LMC__FOLD_48 0x1C291D04, 0x1D82C63DA
static const uint64_t lmc__folds[4][2] = {/* 64, 128, 256, 512 */
                                          {0x740EEF02, 0x9E4ADDF8},
                                          {0x6992CEA2, 0xD3B6092},
                                          {0xDCB17AA4, 0xB9E02B86},
                                          {0xBD6F81F8, 0xDD7E3B0C}};
static const uint64_t lmc__fold_last[8] = {LMC__FOLD_48, LMC__FOLD_32, LMC__FOLD_16, 0, 0};

/* To fold by a distance of `vectors` = 1, 2, 4, 8 vectors. */
LMC__INLINE512 __m512i lmc__crc_factor(unsigned vectors)
{
    const uint64_t *fold = lmc__folds[vectors == 1 ? 0 : vectors == 2 ? 1 : vectors == 4 ? 2 : 3];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold));
}

/* a folded onto b, in each of the four lanes */
LMC__INLINE512 __m512i lmc__crc_fold(__m512i a, __m512i k, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
                                     _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96); /* a ^ b ^ c */
}

/* What a message's first vector is xored with, to continue from crc. */
LMC__INLINE512 __m512i lmc__crc_start(uint32_t crc)
{
    return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
}

/* The CRC of n vectors, one after the other. */
LMC__INLINE512 uint32_t lmc__crc_finish(const __m512i *v, unsigned n)
{
    const __m512i k64 = lmc__crc_factor(1), last = _mm512_loadu_si512(lmc__fold_last);
    __m512i sum = v[0], low;
    __m128i x;
    unsigned i;
    LMC__UNROLL for (i = 1; i < n; i++) sum = lmc__crc_fold(sum, k64, v[i]);
    /* lanes 0, 1, 2 onto lane 3, which has no factor */
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
    uint64_t c;
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
    c = (uint32_t)~crc;
    for (; size >= 8; p += 8, size -= 8) c = _mm_crc32_u64(c, lmc__load64(p));
    for (; size != 0; p++, size--) c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

/* CRC of two messages, one after the other, from their CRCs: a times x^(8 * b_size), plus b. */
static uint32_t lmc__crc_combine(uint32_t a, uint32_t b, uint64_t b_size)
{
    /* x^(8 * 2^i), modulo the polynomial: each the square of the one before */
    static const uint32_t power[64] = {
        0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955,
        0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564,
        0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915,
        0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42,
        0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c,
        0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16,
        0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b,
        0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
        0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
        0x00008000};
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; i++, b_size >>= 1)
        if (b_size & 1) a = lmc__crc_multiply(a, power[i]);
    return a ^ b;
}

/* -- the numbers of a block from its header: CRC-32C is linear, so that its register can be run
 * backwards -- */

static uint32_t lmc__rewind_crc(uint32_t state, const uint8_t *p, size_t size)
{
    unsigned bit;
    while (size != 0) {
        for (bit = 0; bit < 8; bit++)
            state = state >> 31 ? (state ^ 0x82F63B78u) << 1 | 1 : state << 1;
        state ^= p[--size];
    }
    return state;
}
