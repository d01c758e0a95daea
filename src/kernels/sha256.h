#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/vec.h"

/* The rounds of SHA-256 (FIPS 180-4): sha256(state, p, n) takes n blocks of 64 bytes into the
 * state. snapshot/sha256.h pads messages. */
#ifndef LMC_NO_SNAPSHOT
/* From the cube roots of the first 64 primes (4.2.2). */
static const uint32_t lmc__sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* By the standard's 6.2.2. v has its variables a to h. Each of 64 rounds moves v down by one
 * element, which renames the variables, and makes two new values: a from all, e from d. w has the
 * 16 big-endian words of the block, and 48 words mixed from them. */
static void lmc__sha256_scalar(uint32_t state[8], const uint8_t *p, size_t n)
{
    uint32_t w[64], all[64 + 8];
    for (; n > 0; n--, p += 64) {
        uint32_t *v = all + 64;
        int t;
#define LMC__ROTR(x, n) ((x) >> (n) | (x) << (32 - (n)))
        for (t = 0; t < 16; t++)
            w[t] = (uint32_t)p[4 * t] << 24 | (uint32_t)p[4 * t + 1] << 16 |
                   (uint32_t)p[4 * t + 2] << 8 | p[4 * t + 3];
        for (; t < 64; t++)
            w[t] = w[t - 16] + w[t - 7] +
                   (LMC__ROTR(w[t - 15], 7) ^ LMC__ROTR(w[t - 15], 18) ^ w[t - 15] >> 3) +
                   (LMC__ROTR(w[t - 2], 17) ^ LMC__ROTR(w[t - 2], 19) ^ w[t - 2] >> 10);
        memcpy(v, state, 8 * sizeof *v);
        for (t = 0; t < 64; t++, v--) {
            const uint32_t a = v[0], e = v[4];
            const uint32_t t1 = v[7] + (LMC__ROTR(e, 6) ^ LMC__ROTR(e, 11) ^ LMC__ROTR(e, 25)) +
                                ((e & v[5]) ^ (~e & v[6])) + lmc__sha256_constants[t] + w[t];
            const uint32_t t2 = (LMC__ROTR(a, 2) ^ LMC__ROTR(a, 13) ^ LMC__ROTR(a, 22)) +
                                ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
            v[3] += t1;
            v[-1] = t1 + t2;
        }
        for (t = 0; t < 8; t++) state[t] += v[t];
#undef LMC__ROTR
    }
}

/* By the CPU's instructions for it, four rounds a step. w has the last 16 words; word t of the
 * message, from 16 on, is
 *     w[t - 16] + s0(w[t - 15]) + w[t - 7] + s1(w[t - 2])
 */
#if LMC__X86
/* sha256rnds2 makes two rounds of (a b e f), (c d g h): the second is then what the first was. It
 * adds the lower half of its third argument. sha256msg1 makes w[t - 16] + s0(w[t - 15]) of four
 * words; sha256msg2 adds s1(w[t - 2]), also of the words that it makes. */
LMC__SHA static void lmc__sha256_x86(uint32_t state[8], const uint8_t *p, size_t n)
{
    const __m128i big_endian = _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203);
    __m128i abcd = _mm_loadu_si128((const __m128i *)(const void *)state),
            efgh = _mm_loadu_si128((const __m128i *)(const void *)(state + 4)), abef, cdgh, w[4];
    unsigned t, j;
    abcd = _mm_shuffle_epi32(abcd, 0xB1); /* high to low: c d a b */
    efgh = _mm_shuffle_epi32(efgh, 0x1B); /* e f g h */
    abef = _mm_alignr_epi8(abcd, efgh, 8);
    cdgh = _mm_blend_epi16(efgh, abcd, 0xF0);
    for (; n > 0; n--, p += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        LMC__UNROLL for (j = 0; j < 4; j++) w[j] = _mm_shuffle_epi8(
            _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * j)), big_endian);
        for (t = 0; t < 64; t += 16) LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const __m128i k = _mm_loadu_si128(
                    (const __m128i *)(const void *)(lmc__sha256_constants + t + 4 * j));
                const __m128i wk = _mm_add_epi32(w[j], k);
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
                if (t < 48) {
                    const __m128i last = w[(j + 3) % 4];
                    w[j] = _mm_sha256msg1_epu32(w[j], w[(j + 1) % 4]);
                    w[j] = _mm_add_epi32(w[j], _mm_alignr_epi8(last, w[(j + 2) % 4], 4));
                    w[j] = _mm_sha256msg2_epu32(w[j], last);
                }
            }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    abcd = _mm_shuffle_epi32(abef, 0x1B); /* f e b a */
    efgh = _mm_shuffle_epi32(cdgh, 0xB1); /* d c h g */
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abcd, efgh, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(efgh, abcd, 8));
}
#endif

#if LMC__NEON
/* sha256h makes four rounds of (a b c d), sha256h2 the same of (e f g h), from both as they were.
 * sha256su0 makes w[t - 16] + s0(w[t - 15]) of four words, sha256su1 adds the rest. As assembly,
 * because some compilers' arm_neon.h lacks them if only a function's attribute enables them. */
LMC__SHA static void lmc__sha256_arm(uint32_t state[8], const uint8_t *p, size_t n)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), w[4];
    unsigned t, j;
    for (; n > 0; n--, p += 64) {
        const uint32x4_t abcd_before = abcd, efgh_before = efgh;
        LMC__UNROLL for (j = 0; j < 4; j++) w[j] =
            vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * j)));
        for (t = 0; t < 64; t += 16) LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const uint32x4_t wk = vaddq_u32(w[j], vld1q_u32(lmc__sha256_constants + t + 4 * j));
                const uint32x4_t before = abcd;
                __asm__("sha256h %q0, %q1, %2.4s" : "+w"(abcd) : "w"(efgh), "w"(wk));
                __asm__("sha256h2 %q0, %q1, %2.4s" : "+w"(efgh) : "w"(before), "w"(wk));
                if (t < 48) {
                    __asm__("sha256su0 %0.4s, %1.4s" : "+w"(w[j]) : "w"(w[(j + 1) % 4]));
                    __asm__("sha256su1 %0.4s, %1.4s, %2.4s"
                            : "+w"(w[j])
                            : "w"(w[(j + 2) % 4]), "w"(w[(j + 3) % 4]));
                }
            }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
#endif
#endif /* LMC_NO_SNAPSHOT */
