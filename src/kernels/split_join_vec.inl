/* split and join for the vectors of a tier: a template, included once for each of them, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *
 * which it undefines at its end. A block of `width` vectors of elements, in order, becomes
 * one vector for each plane in log2(width) steps; each sorts bytes by one more bit of their place p
 * within the element. Width 4, a vector of 8 bytes, where 21 is byte 1 of element 2:
 *
 *     v[0]  00 01 02 03 10 11 12 13         00 02 10 12 20 22 30 32         00 10 20 30 40 50 60 70
 *     v[1]  20 21 22 23 30 31 32 33  s = 1  40 42 50 52 60 62 70 72  s = 2  01 11 21 31 41 51 61 71
 *     v[2]  40 41 42 43 50 51 52 53  ---->  01 03 11 13 21 23 31 33  ---->  02 12 22 32 42 52 62 72
 *     v[3]  60 61 62 63 70 71 72 73         41 43 51 53 61 63 71 73         03 13 23 33 43 53 63 73
 *
 * Before step s = 1, 2, 4, the bytes of p = r (mod s) are in vectors r * parts + j, the j-th part
 * of them, parts = width / s; its even bytes have p = r, its odd ones p = r + s (mod 2 s). The
 * steps of a join are the same backwards. All bounds are constant where this is inlined, and gcc
 * must be told to unroll. */
#ifndef LMC_NO_ENCODER
LMC__INLINE_ISA void LMC__ISA(split_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        t[r * half + j] = LMC__ISA(even)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
        t[(r + s) * half + j] = LMC__ISA(odd)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}
#endif

/* The step s backwards: zip puts the bytes of p = r and of p = r + s (mod 2 s) in turn again. */
LMC__INLINE_ISA void LMC__ISA(join_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        LMC__ISA(zip)(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],
                      v[(r + s) * half + j]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

#ifndef LMC_NO_ENCODER
/* Elements to their residuals against 0, and back (spec 5.1); order is not LMC__ORDER_NONE. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(to_residuals)(LMC__VECTOR v, unsigned width,
                                                   enum lmc__order order)
{
    if (order == LMC__ORDER_INTEGER)
        v = v ^ (LMC__ISA(negative)(v, width) & ~LMC__ISA(sign_bits)(width));
    return LMC__ISA(rotate)(v, width, 1);
}
#endif
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(from_residuals)(LMC__VECTOR r, unsigned width,
                                                     enum lmc__order order)
{
    r = LMC__ISA(rotate)(r, width, 0);
    if (order == LMC__ORDER_INTEGER)
        r = r ^ (LMC__ISA(negative)(r, width) & ~LMC__ISA(sign_bits)(width));
    return r;
}

#ifndef LMC_NO_ENCODER
/* Elements to planes, in place. */
LMC__INLINE_ISA void LMC__ISA(split_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 2) LMC__ISA(split_step)(v, width, 1);
    if (width >= 4) LMC__ISA(split_step)(v, width, 2);
    if (width >= 8) LMC__ISA(split_step)(v, width, 4);
}
#endif

/* And back. */
LMC__INLINE_ISA void LMC__ISA(join_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 8) LMC__ISA(join_step)(v, width, 4);
    if (width >= 4) LMC__ISA(join_step)(v, width, 2);
    if (width >= 2) LMC__ISA(join_step)(v, width, 1);
}

#ifndef LMC_NO_ENCODER
/* Whole vectors of elements, as many as a vector has bytes, in `width` vectors: they become one
 * vector for each plane, with none left over. The scalar kernel does the rest. */
LMC__INLINE_ISA void LMC__ISA(split_body)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, enum lmc__order order)
{
    lmc__planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[p] = LMC__ISA(load)(src + i * width + sizeof v[0] * p);
            if (order) v[p] = LMC__ISA(to_residuals)(v[p], width, order);
        }
        LMC__ISA(split_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++) LMC__ISA(store)(planes->row[p] + i, v[p]);
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__split_scalar(&rest, src + i * width, n - i, width, order);
}
#endif
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
