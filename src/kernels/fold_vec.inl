/* fold and unfold for the vectors of a tier: a template, included once for each of them, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *     LMC__STATIC_ISA   what its other functions begin with
 *
 * which it undefines at its end. Shifts of bytes let bits of the neighbouring byte in; a select
 * removes them. `extra` is a constant where these are inlined. */

/* The packed bits of elements behind packed_size; packed: where the field of the first is in row
 * 0. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(unpack_tail)(const uint8_t *packed, size_t row, unsigned extra)
{
    LMC__VECTOR r = LMC__ISA(splat)(0);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra)
        r = LMC__ISA(select)(LMC__ISA(splat)(((1u << extra) - 1) << b),
                             LMC__ISA(shr)(LMC__ISA(load)(packed + b / extra * row), 8 - extra - b),
                             r);
    return r;
}

/* *high: symbols, *low: what was packed; to the bytes. s is the wide symbol modulo 256. The sum has
 * wrapped where it is below the offset's low byte: then the wide symbol's upper bits are one more
 * than the offset's. */
LMC__INLINE_ISA void LMC__ISA(unfold_step)(LMC__VECTOR *high, LMC__VECTOR *low, unsigned extra,
                                           unsigned offset)
{
    const LMC__VECTOR from = LMC__ISA(splat)(offset & 255), s = LMC__ISA(add)(*high, from);
    const LMC__VECTOR lower = LMC__ISA(splat)((offset >> 8 << (8 - extra)) & 255),
                      upper = LMC__ISA(splat)((((offset >> 8) + 1) << (8 - extra)) & 255);
    *high = LMC__ISA(select)(LMC__ISA(splat)(255u >> extra), LMC__ISA(shr)(s, extra),
                             LMC__ISA(select)(LMC__ISA(not_below)(s, from), lower, upper));
    *low = LMC__ISA(select)(LMC__ISA(splat)((255u << (8 - extra)) & 255),
                            LMC__ISA(shl)(s, 8 - extra), *low);
}

LMC__INLINE_ISA void LMC__ISA(unfold_body)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                           const uint8_t *packed, size_t first, size_t n,
                                           const lmc__joint *joint, unsigned extra)
{
    const size_t size = joint->packed_size, n_main = first < size ? lmc__min(n, size - first) : 0;
    const size_t row = joint->row;
    const unsigned offset = joint->offset;
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i), l = LMC__ISA(load)(packed + first + i);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i),
                    l = LMC__ISA(unpack_tail)(packed + (first + i - size), row, extra);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                      const uint8_t *packed, size_t first, size_t n,
                                      const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 1);
    else LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 2);
}

#ifndef LMC_NO_ENCODER
/* high and low to symbols. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(fold_step)(LMC__VECTOR high, LMC__VECTOR low, unsigned extra,
                                                unsigned offset)
{
    const LMC__VECTOR wide =
        LMC__ISA(select)(LMC__ISA(splat)((1u << extra) - 1), LMC__ISA(shr)(low, 8 - extra),
                         LMC__ISA(shl)(high, extra));
    return LMC__ISA(add)(wide, LMC__ISA(splat)((256 - offset) & 255));
}

/* And back: the packed bits of low go to where unpack_tail finds them. */
LMC__INLINE_ISA void LMC__ISA(pack_tail)(uint8_t *packed, LMC__VECTOR low, size_t row,
                                         unsigned extra)
{
    const LMC__VECTOR top = LMC__ISA(splat)((255u << (8 - extra)) & 255);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra) {
        uint8_t *const p = packed + b / extra * row;
        const LMC__VECTOR field = LMC__ISA(shl)(low, 8 - extra - b);
        LMC__ISA(store)(p, LMC__ISA(select)(top, field, LMC__ISA(load)(p)));
    }
}

LMC__INLINE_ISA void LMC__ISA(fold_body)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                         const uint8_t *low, size_t n, const lmc__joint *joint,
                                         unsigned extra)
{
    const size_t n_main = lmc__min(n, joint->packed_size), row = joint->row;
    const unsigned offset = joint->offset;
    const LMC__VECTOR rest = LMC__ISA(splat)(255u >> extra), zero = LMC__ISA(splat)(0);
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(store)(packed + i, LMC__ISA(select)(rest, l, zero));
    }
    lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(pack_tail)(packed + (i - n_main), l, row, extra);
    }
    lmc__fold_rest(symbols, packed, high, low, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                    const uint8_t *low, size_t n, const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 1);
    else LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 2);
}
#endif /* LMC_NO_ENCODER */
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
