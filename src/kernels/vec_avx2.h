#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"

/* The basic operations of the AVX2 tier, on vectors of 32 bytes. What has no comment, or says r, is
 * as in vec_neon.h. Most instructions work within each half of 16 bytes; comments name the others.
 *
 * SIMDe translates the first part, under LMC__AVX2_TEXT, for other machines, too. */
#if LMC__X86
/* gcc 12's own headers initialise undefined vectors with themselves:
 * https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593 */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif
#if LMC__SIMDE
#pragma GCC diagnostic push
/* SIMDe's parameters are int8_t where the compilers' own headers say char. */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#define _mm_popcnt_u64(v) __builtin_popcountll(v) /* not in SIMDe */
#if defined(__wasm_simd128__)                     /* SIMDe 0.7 does these byte by byte */
#include <wasm_simd128.h>
/* r[i] = b[i] < 128 ? a[b[i] % 16] : 0. Swizzle gives 0 for all places from 16 on. The x86
 * instruction ignores bits 4 to 6, so these are cleared. */
LMC__INLINE __m128i lmc__shuffle_wasm(__m128i a, __m128i b)
{
    return wasm_i8x16_swizzle(a, wasm_v128_and(b, wasm_i8x16_splat((char)0x8F)));
}
LMC__INLINE __m256i lmc__shuffle2_wasm(__m256i a, __m256i b)
{
    return _mm256_set_m128i(
        lmc__shuffle_wasm(_mm256_extracti128_si256(a, 1), _mm256_extracti128_si256(b, 1)),
        lmc__shuffle_wasm(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b)));
}
LMC__INLINE int lmc__movemask_wasm(__m256i v)
{
    return (int)(wasm_i8x16_bitmask(_mm256_castsi256_si128(v)) |
                 (uint32_t)wasm_i8x16_bitmask(_mm256_extracti128_si256(v, 1)) << 16);
}
#undef _mm_shuffle_epi8
#undef _mm256_shuffle_epi8
#undef _mm256_movemask_epi8
#define _mm_shuffle_epi8(a, b) lmc__shuffle_wasm(a, b)
#define _mm256_shuffle_epi8(a, b) lmc__shuffle2_wasm(a, b)
#define _mm256_movemask_epi8(v) lmc__movemask_wasm(v)
#endif
#endif

#if LMC__AVX2_TEXT
LMC__INLINE_AVX2 __m256i lmc__load_avx2(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
LMC__INLINE_AVX2 void lmc__store_avx2(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

#ifndef LMC_NO_ENCODER
/* As lmc__load_avx2, for bytes that may change meanwhile, like an encoder's input: they are read
 * once, to a register. Else a compiler may read memory again where that is cheaper: clang for the
 * operand of a vpternlog, gcc where registers are few. */
LMC__INLINE_AVX2 __m256i lmc__load_once_avx2(const uint8_t *p)
{
    __m256i v = lmc__load_avx2(p);
#if LMC__X86 && defined(__GNUC__)
    __asm__("" : "+x"(v));
#endif
    return v;
}
#endif

/* r[i] = row[i mod 16]. */
LMC__INLINE_AVX2 __m256i lmc__load_row_avx2(const uint8_t *row)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)row));
}

/* The 16 bytes at first, then those at second. */
LMC__INLINE_AVX2 __m256i lmc__load_pair_avx2(const uint8_t *first, const uint8_t *second)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)first)),
        _mm_loadu_si128((const __m128i *)(const void *)second), 1);
}

LMC__INLINE_AVX2 __m256i lmc__splat_avx2(unsigned v) { return _mm256_set1_epi8((char)v); }

#if LMC__X86
/* r[i] = v[places[i]] in each half; 0 where a place has bit 7. */
LMC__INLINE_AVX2 __m256i lmc__shuffle_avx2(__m256i v, __m256i places)
{
    return _mm256_shuffle_epi8(v, places);
}

/* How many bytes of `one` are 255; the others are 0. *half: how many of the first 16 are 255. */
LMC__INLINE_AVX2 size_t lmc__count_avx2(__m256i one, size_t *half)
{
    const uint32_t m = (uint32_t)_mm256_movemask_epi8(one);
    *half = (size_t)_mm_popcnt_u64(m & 0xFFFF);
    return (size_t)_mm_popcnt_u64(m);
}
#endif

/* r[i] = mask[i] ? a[i] : b[i], for bytes of mask that are 0 or 255. With -funsigned-char gcc 12
 * tests in blendv whether unsigned bytes are below zero, and always gives b. */
LMC__INLINE_AVX2 __m256i lmc__blend_avx2(__m256i mask, __m256i a, __m256i b)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(__CHAR_UNSIGNED__)
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
#else
    return _mm256_blendv_epi8(b, a, mask);
#endif
}

#ifndef LMC_NO_ENCODER
/* r[i] = v[i] >= from[i] ? 255 : 0, unsigned. AVX2 compares bytes only as signed ones, or for
 * equality. So it tests whether v is the maximum of v and from. */
LMC__INLINE_AVX2 __m256i lmc__not_below_avx2(__m256i v, __m256i from)
{
    return _mm256_cmpeq_epi8(_mm256_max_epu8(v, from), v);
}

/* As lmc__not_below_avx2, but byte i of the result is one bit: bit i. */
LMC__INLINE_AVX2 uint32_t lmc__compare_avx2(const __m256i v[1], __m256i s)
{
    return (uint32_t)_mm256_movemask_epi8(lmc__not_below_avx2(v[0], s));
}
#endif

/* load_bits: m, the bits of 64 elements, in each quarter. spread: r[i] = bit 32 j + i of m ? 255 :
 * 0. The shuffle takes byte i / 8 of these 32 bits; bit i % 8 is masked, and compared. */
LMC__INLINE_AVX2 __m256i lmc__load_bits_avx2(uint64_t m)
{
    return _mm256_set1_epi64x((long long)m);
}
LMC__INLINE_AVX2 __m256i lmc__spread_avx2(__m256i bits, unsigned j)
{
    const __m256i byte =
        _mm256_add_epi8(_mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                         2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
                        lmc__splat_avx2(4 * j));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, byte), bit), bit);
}

/* r[i] = 2 v[i] + 1 where one[i] is 255, 2 v[i] where it is 0. */
LMC__INLINE_AVX2 __m256i lmc__push_bit_avx2(__m256i v, __m256i one)
{
    return _mm256_sub_epi8(_mm256_add_epi8(v, v), one);
}

/* r[i] = table[v[i]], of 2^depth <= 64 entries. A shuffle looks up one of 16 by the low 4 bits. For
 * depths 5 and 6 there are two or four rows of 16, and all are looked up; bits 4 and 5 choose:
 *     v            00 r r pppp                row r, place p
 *     row_of       r                          v >> 4, without what a 16-bit shift brings in
 *     out          row 0's entry; where row_of is 1, row 1's; and so on */
typedef struct lmc__table64 {
    __m256i val[4];
} lmc__table64;
LMC__INLINE_AVX2 lmc__table64 lmc__load64_avx2(const uint8_t *p)
{
    lmc__table64 table;
    unsigned t;
    for (t = 0; t < 4; t++) table.val[t] = lmc__load_row_avx2(p + 16 * t);
    return table;
}
LMC__INLINE_AVX2 __m256i lmc__look_up_avx2(const lmc__table64 *table, __m256i v, unsigned depth)
{
    __m256i out = _mm256_shuffle_epi8(table->val[0], v); /* bit 7 of v is clear */
    unsigned t;
    if (depth > 4) {
        const __m256i row_of = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(3));
        LMC__UNROLL for (t = 1; t < 4; t++)
        {
            if (depth == 5 && t == 2) break;
            out = lmc__blend_avx2(_mm256_cmpeq_epi8(row_of, lmc__splat_avx2(t)),
                                  _mm256_shuffle_epi8(table->val[t], v), out);
        }
    }
    return out;
}

/* r[i] = v[j] + ... + v[i], modulo 256; j is 0 or, in the upper half, 16. First a multiplication
 * adds pairs: 0x0101 times the 16-bit lane of bytes a, b is a, a + b. Then three steps double the
 * groups. Each adds the last sum of a group to all sums of the next group:
 *     v        a  b  c  d  e  f  g  h  ...
 *     * 0101   a  ab c  cd e  ef g  gh ...
 *     in4      .  .  1  1  .  .  5  5  ...      a  ab abc abcd  e  ef efg efgh
 *     in8      .  .  .  .  3  3  3  3  ...      ... abcde abcdef abcdefg a-h
 *     in16     8 times none, 8 times 7          the same for the upper 8 of 16
 *
 * A shuffle gives 0 where its place has bit 7. */
LMC__INLINE_AVX2 __m256i lmc__sum_up_avx2(__m256i v)
{
    const char no = (char)0x80; /* a place that gives 0 */
    const __m256i in4 = _mm256_setr_epi8(no, no, 1, 1, no, no, 5, 5, no, no, 9, 9, no, no, 13, 13,
                                         no, no, 1, 1, no, no, 5, 5, no, no, 9, 9, no, no, 13, 13);
    const __m256i in8 =
        _mm256_setr_epi8(no, no, no, no, 3, 3, 3, 3, no, no, no, no, 11, 11, 11, 11, no, no, no, no,
                         3, 3, 3, 3, no, no, no, no, 11, 11, 11, 11);
    const __m256i in16 = _mm256_setr_epi8(no, no, no, no, no, no, no, no, 7, 7, 7, 7, 7, 7, 7, 7,
                                          no, no, no, no, no, no, no, no, 7, 7, 7, 7, 7, 7, 7, 7);
    v = _mm256_mullo_epi16(v, _mm256_set1_epi16(0x0101));
    v = _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in4));
    v = _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in8));
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in16));
}

/* Bit i of the result: bit 7 of byte i of two vectors. */
LMC__INLINE_AVX2 uint64_t lmc__to_bits_avx2(const __m256i one[2])
{
    return (uint32_t)_mm256_movemask_epi8(one[0]) | (uint64_t)(uint32_t)_mm256_movemask_epi8(one[1])
                                                        << 32;
}

#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX2 __m256i lmc__subtract_avx2(__m256i v, __m256i w) { return _mm256_sub_epi8(v, w); }

/* Bit 7 of r[i] = bit `bit` of v[i], by a shift of 16-bit lanes. A neighbour's bits come only below
 * bit 7. The count of SIMDe's slli must be a literal. */
LMC__INLINE_AVX2 __m256i lmc__test_avx2(__m256i v, unsigned bit)
{
#if LMC__X86
    return _mm256_slli_epi16(v, (int)(7 - bit));
#else
    return _mm256_sll_epi16(v, _mm_cvtsi32_si128((int)(7 - bit)));
#endif
}

/* Bytes [8 j, 8 j + 8) of v, sorted by the bits of m: those of zeros go to the low half, those of
 * ones to the high. (pext would need no table, but is microcoded on Zen 1 and 2.) */
LMC__INLINE_AVX2 __m128i lmc__sort8_avx2(__m256i v, unsigned j, unsigned m)
{
    const __m128i half = j < 2 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1),
                  places = _mm_loadu_si128((const __m128i *)(const void *)lmc__sort_places[m]);
    return _mm_shuffle_epi8(j & 1 ? _mm_unpackhi_epi64(half, half) : half, places);
}

/* How many ones are in bytes 0 .. j - 1 of m; sums = begin_ones(m). */
LMC__INLINE_AVX2 uint32_t lmc__begin_ones_avx2(uint32_t m) { return m; }
LMC__INLINE_AVX2 size_t lmc__ones_before_avx2(uint32_t sums, unsigned j)
{
    return (size_t)_mm_popcnt_u64(sums & (((uint64_t)1 << 8 * j) - 1));
}

LMC__INLINE_AVX2 void lmc__store_low_avx2(uint8_t *p, __m128i x)
{
    _mm_storel_epi64((__m128i *)(void *)p, x);
}
LMC__INLINE_AVX2 void lmc__store_high_avx2(uint8_t *p, __m128i x)
{ /* gcc's _mm_storeh_pd demands an aligned p */
    _mm_storeh_pi((__m64 *)(void *)p, _mm_castsi128_ps(x));
}
#endif
#endif

#if LMC__X86
#ifndef LMC_NO_ENCODER
/* r[i] = v[i] - first, if that is 0 .. 15; else bit 7 of r[i] is set, where a shuffle gives 0.
 * first is a multiple of 16, so v ^ first is below 16 only in this row; elsewhere adding 0x70,
 * saturated, sets bit 7. */
LMC__INLINE_AVX2 __m256i lmc__place_in_row_avx2(__m256i v, __m256i first)
{
    return _mm256_adds_epu8(_mm256_xor_si256(v, first), lmc__splat_avx2(0x70));
}
#endif

/* even: r[i] = ab[2 i]; odd: r[i] = ab[2 i + 1]; ab is a, then b. Packing works within 16 bytes:
 *     a        a0 . a1 . ... a7 .  | a8 .  ... a15 .        . masked out: no 16-bit lane is above
 *     b        b0 . b1 . ... b7 .  | b8 .  ... b15 .          255, so packing does not saturate
 *     packus   a0 .. a7   b0 .. b7 | a8 .. a15   b8 .. b15
 *     0xD8     a0 .. a7  a8 .. a15 | b0 .. b7    b8 .. b15  quarters 3 1 2 0, two bits each */
LMC__INLINE_AVX2 __m256i lmc__even_avx2(__m256i a, __m256i b)
{
    const __m256i low = _mm256_set1_epi16(0xFF);
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low)), 0xD8);
}
#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX2 __m256i lmc__odd_avx2(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)), 0xD8);
}
#endif

/* The inverse: first and second together are the bytes of a and b in turn. Unpacking, too, works
 * within 16 bytes: `low` has the start of each half's result, `high` its end. So first has the
 * lower halves of both (0x20), and second the upper halves (0x31). */
LMC__INLINE_AVX2 void lmc__zip_avx2(__m256i *first, __m256i *second, __m256i a, __m256i b)
{
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    *first = _mm256_permute2x128_si256(low, high, 0x20);
    *second = _mm256_permute2x128_si256(low, high, 0x31);
}

/* Each element rotated by one bit, to the left or to the right. AVX2 has no rotation, and no shifts
 * of bytes: v + v shifts to the left; for other shifts 16-bit lanes are shifted and masked. */
#define LMC__ROTATE(bits)                                                                          \
    _mm256_or_si256(left ? _mm256_slli_epi##bits(v, 1) : _mm256_srli_epi##bits(v, 1),              \
                    left ? _mm256_srli_epi##bits(v, bits - 1)                                      \
                         : _mm256_slli_epi##bits(v, bits - 1))
LMC__INLINE_AVX2 __m256i lmc__rotate_avx2(__m256i v, unsigned width, int left)
{
    switch (width) {
    case 1: {
        const __m256i low7 = _mm256_set1_epi8(0x7F), low1 = _mm256_set1_epi8(1);
        return left ? _mm256_or_si256(_mm256_add_epi8(v, v),
                                      _mm256_and_si256(_mm256_srli_epi16(v, 7), low1))
                    : _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 1), low7),
                                      _mm256_andnot_si256(low7, _mm256_slli_epi16(v, 7)));
    }
    case 2: return LMC__ROTATE(16);
    case 4: return LMC__ROTATE(32);
    default: return LMC__ROTATE(64);
    }
}

/* r[i] = keys[i] <= highest[i] ? 255 : 0, unsigned. */
LMC__INLINE_AVX2 __m256i lmc__up_to_avx2(__m256i keys, __m256i highest)
{
    return _mm256_cmpeq_epi8(_mm256_min_epu8(keys, highest), keys);
}
#endif
