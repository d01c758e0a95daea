/* prove: eva -eva-precision 4
 * with:  -DN=40 -DW=1 | -DN=40 -DW=2 | -DN=23 -DW=4 | -DN=23 -DW=8
 * shows: lmc__join_root_strips, lmc__merge_scalar
 * for:   these n and widths, planes of exactly that size; any mask, lists or constants */
#include "harness.h"
#include "kernels/tiers.h"
uint8_t dst[N * W], rows[8][N], mask[(N + 7) / 8], list[N + LMC__PAD], left[N + 8 + LMC__PAD],
    right[N + 8 + LMC__PAD];
static uint32_t any_crc(uint32_t crc, const uint8_t *p, size_t size)
{
    return (uint32_t)ANY(0, UINT32_MAX);
}
int main(void)
{
    lmc__kernels k = lmc__kernels_scalar;
    lmc__const_planes planes;
    lmc__merged root;
    const lmc__join_source source = {&planes, &root, W, (enum lmc__order)ANY(0, 2)};
    unsigned p;
    k.crc32c = any_crc;
    ANY_BYTES(mask, sizeof mask);
    ANY_BYTES(left, sizeof left);
    ANY_BYTES(right, sizeof right);
    //@ loop unroll 8;
    for (p = 0; p < 8; p++) {
        ANY_BYTES(rows[p], N);
        planes.row[p] = rows[p];
    }
    root.plane = W - 1;
    root.row = list;
    planes.row[W - 1] = list;
    root.mask = mask;
    root.left.list = ANY(0, 1) ? left : NULL;
    root.right.list = ANY(0, 1) ? right : NULL;
    root.left.value = (uint8_t)ANY(0, 255);
    root.right.value = (uint8_t)ANY(0, 255);
    k.join_root(&k, dst, source, N, lmc__no_streaming);
    return 0;
}
