#pragma once
#include "base/platform.h"
#include "kernels/tables.h"
#include "kernels/vec_avx2.h"

/* The basic operations of the AVX-512 tier, on vectors of 64 bytes; else as in vec_avx2.h. */
#if LMC__X86
LMC__INLINE_AVX512 __m512i lmc__load_avx512(const uint8_t *p) { return _mm512_loadu_si512(p); }
LMC__INLINE_AVX512 void lmc__store_avx512(uint8_t *p, __m512i v) { _mm512_storeu_si512(p, v); }

#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX512 __m512i lmc__load_once_avx512(const uint8_t *p)
{
    __m512i v = _mm512_loadu_si512(p);
#ifdef __GNUC__
    __asm__("" : "+v"(v));
#endif
    return v;
}
#endif

LMC__INLINE_AVX512 __m512i lmc__splat_avx512(unsigned v) { return _mm512_set1_epi8((char)v); }

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b: look-ups among all 128 bytes
 * (vpermi2b). Unlike AVX2's packing, they give the right order at once. */
LMC__INLINE_AVX512 __m512i lmc__even_avx512(__m512i a, __m512i b)
{
    const __m512i i = _mm512_loadu_si512(lmc__count_up);
    return _mm512_permutex2var_epi8(a, _mm512_add_epi8(i, i), b);
}
#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX512 __m512i lmc__odd_avx512(__m512i a, __m512i b)
{
    const __m512i i = _mm512_loadu_si512(lmc__count_up);
    return _mm512_permutex2var_epi8(a, _mm512_add_epi8(_mm512_add_epi8(i, i), _mm512_set1_epi8(1)),
                                    b);
}
#endif

/* The inverse: first, then second, are the bytes of a and b in turn. */
LMC__INLINE_AVX512 void lmc__zip_avx512(__m512i *first, __m512i *second, __m512i a, __m512i b)
{
    *first = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__in_turn[0]), b);
    *second = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__in_turn[1]), b);
}

/* Each element rotated by one bit. Lanes of 32 and 64 bits have a rotation; lanes of 16 bits a
 * shift of two joined lanes (VBMI2): here both are v. Bytes are shifted as on AVX2. */
LMC__INLINE_AVX512 __m512i lmc__rotate_avx512(__m512i v, unsigned width, int left)
{
    switch (width) {
    case 1: {
        const __m512i low7 = _mm512_set1_epi8(0x7F);
        return left ? _mm512_or_si512(_mm512_add_epi8(v, v),
                                      _mm512_andnot_si512(_mm512_set1_epi8((char)0xFE),
                                                          _mm512_srli_epi16(v, 7)))
                    : _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 1), low7),
                                      _mm512_andnot_si512(low7, _mm512_slli_epi16(v, 7)));
    }
    case 2: return left ? _mm512_shldi_epi16(v, v, 1) : _mm512_shldi_epi16(v, v, 15);
    case 4: return left ? _mm512_rol_epi32(v, 1) : _mm512_ror_epi32(v, 1);
    default: return left ? _mm512_rol_epi64(v, 1) : _mm512_ror_epi64(v, 1);
    }
}
#endif
