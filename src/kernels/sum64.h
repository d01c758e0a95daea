#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* sum64: the sum modulo 2^64 of the little-endian u64 words of size bytes; zero bytes complete the
 * last word (spec 7.1). It finds changes that a CRC-32C, which is linear over GF(2), misses. */
#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
#if LMC__NEON
LMC__INLINE uint64_t lmc__sum_words_neon(uint8x16_t v)
{
    return vaddvq_u64(vreinterpretq_u64_u8(v));
}
#elif LMC__X86
/* The words of a vector, added up. (_mm512_reduce_add_epi64 adds signed numbers, without wrap.) */
LMC__INLINE_AVX2 uint64_t lmc__sum_words_avx2(__m256i v)
{
    uint64_t words[4];
    lmc__store_avx2((uint8_t *)words, v);
    return words[0] + words[1] + words[2] + words[3];
}

LMC__INLINE_AVX512 uint64_t lmc__sum_words_avx512(__m512i v)
{
    return lmc__sum_words_avx2(
        _mm256_add_epi64(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}
#endif
#define LMC__SUM_WORDS(v) lmc__sum_words_avx512(v)
#else
#define LMC__SUM_WORDS(v) ((void)(v), 0)
#endif

#ifdef LMC_NO_SNAPSHOT /* decoders need no sum */
#define LMC__SUM64(k, p, size) 0
#else
#define LMC__SUM64(k, p, size) (k)->sum64(p, size)
static uint64_t lmc__sum64_scalar(const uint8_t *p, size_t size)
{
    uint64_t sum[4] = {0, 0, 0, 0}, rest;
    uint8_t tail[8] = {0};
    size_t i = 0;
    for (; i + 32 <= size; i += 32) {
        sum[0] += lmc__load64(p + i);
        sum[1] += lmc__load64(p + i + 8);
        sum[2] += lmc__load64(p + i + 16);
        sum[3] += lmc__load64(p + i + 24);
    }
    for (; i + 8 <= size; i += 8) sum[0] += lmc__load64(p + i);
    memcpy(tail, p + i, size - i);
    rest = lmc__load64(tail);
    return sum[0] + sum[1] + sum[2] + sum[3] + rest;
}

#if LMC__X86
/* Loads limit it, so AVX-512 is no faster. */
LMC__AVX2 static uint64_t lmc__sum64_avx2(const uint8_t *p, size_t size)
{
    __m256i sum[4];
    size_t i;
    unsigned v;
    LMC__UNROLL for (v = 0; v < 4; v++) sum[v] = _mm256_setzero_si256();
    for (i = 0; i + 128 <= size; i += 128)
        LMC__UNROLL for (v = 0; v < 4; v++) sum[v] =
            _mm256_add_epi64(sum[v], lmc__load_avx2(p + i + 32 * v));
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return lmc__sum_words_avx2(sum[0]) + lmc__sum64_scalar(p + i, size - i);
}
#endif
#endif /* LMC_NO_SNAPSHOT */
