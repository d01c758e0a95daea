/* lmc__residual and lmc__restore_element for each element of a vector: a template, included once
 * for each tier, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *
 * which it undefines at its end. Bitwise operators are those of gcc and clang for all vectors. */
#ifndef LMC_NO_ENCODER
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(residual)(LMC__VECTOR v, LMC__VECTOR base, unsigned width,
                                               enum lmc__order order)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), x = v ^ (base & sign),
                      ordered = x ^ (LMC__ISA(negative)(x, width) & ~sign),
                      d = order == LMC__ORDER_FLOAT ? LMC__ISA(minus)(ordered, base & ~sign, width)
                                                    : LMC__ISA(minus)(v, base, width);
    return LMC__ISA(plus)(d, d, width) ^ LMC__ISA(negative)(d, width);
}
#endif

/* r rotated to the right by one bit is the magnitude of the zigzag, and its sign in the top bit. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(restore)(LMC__VECTOR r, LMC__VECTOR base, unsigned width,
                                              enum lmc__order order)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), z = LMC__ISA(rotate)(r, width, 0),
                      d = (z & ~sign) ^ LMC__ISA(negative)(z, width);
    LMC__VECTOR ordered;
    if (order != LMC__ORDER_FLOAT) return LMC__ISA(plus)(base, d, width);
    ordered = LMC__ISA(plus)(base & ~sign, d, width);
    return ordered ^ (LMC__ISA(negative)(ordered, width) & ~sign) ^ (base & sign);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
