/* prove: eva -eva-precision 4
 * with:  -DN=1 | -DN=7 | -DN=8 | -DN=9 | -DN=16 | -DN=31 | -DN=40
 * shows: lmc__unflatten_scalar, lmc__join_scalar
 * for:   these n, each with buffers of exactly that size; all widths, depths and orders */
#include "harness.h"
#include "kernels/flatten.h"
#include "kernels/split_join.h"
uint8_t bits[6 * ((N + 7) / 8)], symbols[256], list[8 * ((N + 7) / 8)], out[8 * N];
uint8_t r0[N], r1[N], r2[N], r3[N], r4[N], r5[N], r6[N], r7[N];
int main(void)
{
    lmc__const_planes planes = {{r0, r1, r2, r3, r4, r5, r6, r7}};
    unsigned depth, p, width;
    ANY_BYTES(bits, sizeof bits);
    ANY_BYTES(symbols, sizeof symbols);
    //@ loop unroll 8;
    for (p = 0; p < 8; p++) ANY_BYTES(planes.row[p], N);
    //@ loop unroll 5;
    for (depth = 2; depth <= 6; depth++)
        lmc__unflatten_scalar(list, bits, N, symbols + 256 - 64, depth);
    //@ loop unroll 4;
    for (width = 1; width <= 8; width *= 2)
        lmc__join_scalar(out, &planes, N, width, (enum lmc__order)ANY(0, 2));
    return 0;
}
