#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec.h"
#include "kernels/half.h"

/* Codes with scales (spec/codes.md): elements that were quantised before they came, as copies in
 * BF16, F16 or F32 of weights in FP8, INT8 or INT4:
 *
 *     element = the scale of its group * the number of its code, rounded to F32, then to its dtype
 *
 * A code is a byte: a sign and a float of 7 bits, of which `mantissa` bits are a mantissa; or an
 * integer. Numbers are integers, without the bias of exponents: the scale makes up for that.
 *
 *     mantissa   3  E4M3   2  E5M2   6  integers of -127 .. 127, with -0   7  of -128 .. 127
 *
 * A number has at most 8 bits, and a scale 24: their product is rounded once, also where floats are
 * computed with more bits. It is neither subnormal nor infinite: scales are the bits of an F32 from
 * LMC__MIN_SCALE to LMC__MAX_CODED_SCALE, and numbers are whole and below 2^33. So every tier,
 * compiler and option gives the same bits. */

/* The magnitude of a code without its sign: 0 .. 127, or 128 for an integer. */
LMC__INLINE double lmc__code_number(unsigned code, unsigned mantissa)
{
    const unsigned exponent = code >> mantissa, one = 1u << mantissa, m = code & (one - 1);
    return (double)(exponent ? (int64_t)(one + m) << (exponent - 1) : (int64_t)m);
}

/* The numbers of all codes, as the bits of F32, which -0 needs. */
static void lmc__set_numbers(lmc__code_form *form)
{
    unsigned i;
    for (i = 0; i < 256; i++) {
        const unsigned sign = i >> 7, code = form->mantissa == 7 && sign ? 256 - i : i & 127;
        const float number = (float)lmc__code_number(code, form->mantissa < 7 ? form->mantissa : 6);
        memcpy(&form->numbers[i], &number, 4);
        form->numbers[i] |= (uint32_t)sign << 31;
    }
}

/* The elements of n codes. scales: of their groups; `first` of the first group's elements are left.
 * dst and codes do not overlap. */
static void lmc__restore_codes_scalar(uint8_t *dst, const uint8_t *codes, size_t n,
                                      const lmc__code_form *form, const uint32_t *scales,
                                      size_t first)
{
    for (; n; scales++, first = form->group_size) {
        size_t left = lmc__min(n, first);
        float scale, number, product;
        uint32_t bits;
        memcpy(&scale, scales, 4);
        for (n -= left; left; left--, codes++, dst += form->width) {
            memcpy(&number, &form->numbers[*codes], 4);
            product = number * scale;
            memcpy(&bits, &product, 4);
            if (form->width == 4) lmc__store32(dst, bits);
            else
                lmc__store16(dst,
                             (uint16_t)(form->is_half ? lmc__to_f16(bits) : lmc__to_bf16(bits)));
        }
    }
}

#if LMC__VECTORS
/* Products of codes and a scale, as F32. Integers are converted. The bits of other codes are those
 * of an F32, but for exponent 0, whose mantissas are integers. */
LMC__INLINE_VEC lmc__u32v lmc__code_products_vec(lmc__u32v codes, lmc__f32v scale,
                                                 unsigned mantissa)
{
    const lmc__i32v magnitude =
        mantissa == 7 ? (lmc__i32v)(codes << 24) >> 24 : (lmc__i32v)(codes & 0x7Fu);
    lmc__u32v bits = (lmc__u32v) __builtin_convertvector(magnitude, lmc__f32v);
    if (mantissa < 7) {
        const lmc__u32v large =
            ((lmc__u32v)magnitude << (23 - mantissa)) + ((126 + mantissa) << 23);
        bits = LMC__PICK((lmc__u32v)(magnitude < (int32_t)(1u << mantissa)), bits, large);
        bits |= codes >> 7 << 31;
    }
    return (lmc__u32v)((lmc__f32v)bits * scale);
}

/* F32 rounded to BF16, in the upper half; or to F16 in the lower half: as in half.h. No bits are
 * those of infinity or NaN. A sum with 0.5 is rounded to units of 2^-24, those of subnormal F16. */
LMC__INLINE_VEC lmc__u32v lmc__upper_bf16_vec(lmc__u32v bits)
{
    return bits + 0x7FFFu + (bits >> 16 & 1u);
}
LMC__INLINE_VEC lmc__u32v lmc__lower_f16_vec(lmc__u32v bits)
{
    const lmc__u32v magnitude = bits & 0x7FFFFFFFu,
                    units = (lmc__u32v)((lmc__f32v)magnitude + 0.5f) - 0x3F000000u;
    lmc__u32v half = (magnitude - (0x38000000u - 0xFFFu) + (magnitude >> 13 & 1u)) >> 13;
    half = LMC__PICK((lmc__u32v)(magnitude >= 0x47800000u), 0x7C00u, half);
    half = LMC__PICK((lmc__u32v)(magnitude < 0x38800000u), units, half);
    return half | (bits >> 16 & 0x8000u);
}

/* 2 * LMC__LANES elements. For elements of 16 bits the even and the odd ones are computed apart. */
LMC__INLINE_VEC void lmc__restore_codes_step_vec(uint8_t *dst, const uint8_t *codes,
                                                 lmc__f32v scale, unsigned mantissa, unsigned width,
                                                 int is_half)
{
    lmc__w8v bytes;
    lmc__w16v words;
    memcpy(&bytes, codes, sizeof bytes);
    words = __builtin_convertvector(bytes, lmc__w16v);
    if (width == 2) {
        lmc__u32v even = lmc__code_products_vec((lmc__u32v)words & 0xFFFFu, scale, mantissa),
                  odd = lmc__code_products_vec((lmc__u32v)words >> 16, scale, mantissa);
        if (is_half) even = lmc__lower_f16_vec(even) | lmc__lower_f16_vec(odd) << 16;
        else even = lmc__upper_bf16_vec(even) >> 16 | (lmc__upper_bf16_vec(odd) & 0xFFFF0000u);
        memcpy(dst, &even, sizeof even);
    } else {
        lmc__u16v part;
        lmc__u32v products;
        unsigned i;
        for (i = 0; i < 2; i++) {
            memcpy(&part, (const uint8_t *)&words + i * sizeof part, sizeof part);
            products =
                lmc__code_products_vec(__builtin_convertvector(part, lmc__u32v), scale, mantissa);
            memcpy(dst + i * sizeof products, &products, sizeof products);
        }
    }
}

/* The form is constant in a copy of the loop. */
#define LMC__RESTORE_ALL(mantissa, width, is_half)                                                 \
    for (; i + 2 * LMC__LANES <= left; i += 2 * LMC__LANES)                                        \
    lmc__restore_codes_step_vec(dst + i * width, codes + i, scale, mantissa, width, is_half)

LMC__STATIC_VEC void lmc__restore_codes_vec(uint8_t *dst, const uint8_t *codes, size_t n,
                                            const lmc__code_form *form, const uint32_t *scales,
                                            size_t first)
{
    const unsigned mantissa = form->mantissa;
    for (; n; scales++, first = form->group_size) {
        const size_t left = lmc__min(n, first);
        const lmc__f32v none = {0};
        lmc__f32v scale;
        float by;
        size_t i = 0;
        memcpy(&by, scales, 4);
        scale = none + by;
        if (mantissa == 7) {
            if (form->width == 4) LMC__RESTORE_ALL(7, 4, 0);
            else if (form->is_half) LMC__RESTORE_ALL(7, 2, 1);
            else LMC__RESTORE_ALL(7, 2, 0);
        } else {
            if (form->width == 4) LMC__RESTORE_ALL(mantissa, 4, 0);
            else if (form->is_half) LMC__RESTORE_ALL(mantissa, 2, 1);
            else LMC__RESTORE_ALL(mantissa, 2, 0);
        }
        if (i < left)
            lmc__restore_codes_scalar(dst + i * form->width, codes + i, left - i, form, scales,
                                      left - i);
        dst += left * form->width;
        codes += left;
        n -= left;
    }
}
#endif
