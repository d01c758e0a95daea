/* prove: eva -eva-precision 2 -eva-auto-loop-unroll 300 -eva-slevel 3000
 * with:  -DKERNEL=0 -DN=24 -DW=2 | -DKERNEL=0 -DN=6 -DW=4 | -DKERNEL=1 -DN=24 -DW=2 |
 *        -DKERNEL=1 -DN=6 -DW=4 | -DKERNEL=2 -DN=24 -DW=2 | -DKERNEL=2 -DN=6 -DW=4 |
 *        -DKERNEL=2 -DN=6 -DW=8
 * takes: minutes
 * shows: lmc__patch_scalar, lmc__ungroup_scalar, lmc__count_classes_scalar
 * for:   these n and widths, buffers of exactly that size; two classes, any threshold, order and
 *        residuals; any numbers of changes, also such that do not ascend; dst may be the base */
#include "harness.h"
#include "kernels/ungroup.h"
#include "kernels/patch.h"
#include "kernels/classes.h"
#include "kernels/tiers.h"
uint8_t base[N * W], dst[N * W], residual[2][W * (N + 1) + LMC__PAD], before[W * N + LMC__PAD];
uint8_t lists[2][8][N + LMC__PAD];
uint32_t at[2][N + 1], place[N];
static uint32_t any_crc(uint32_t crc, const uint8_t *p, size_t size)
{
    return (uint32_t)ANY(0, UINT32_MAX);
}
int main(void)
{
    lmc__grouping grouping = {2, 0, {0}};
    const lmc__delta_block block = {base, N, W, (enum lmc__order)ANY(0, 2), &grouping};
    lmc__class_sides sides;
    lmc__patches changes;
    lmc__undo undo = {place, before, 0};
    lmc__kernels k = lmc__kernels_scalar;
    size_t counts[LMC__MAX_CLASSES];
    unsigned c, p, i;
    k.crc32c = any_crc; /* sums.c has it */
    memset(&sides, 0, sizeof sides);
    memset(&changes, 0, sizeof changes);
    ANY_BYTES(base, sizeof base);
    ANY_BYTES(residual, sizeof residual);
    ANY_BYTES(lists, sizeof lists);
    ANY_BYTES(at, sizeof at); /* also numbers that do not ascend */
    grouping.threshold[0] = (uint8_t)ANY(1, 255);
    //@ loop unroll 2;
    for (c = 0; c < 2; c++) {
        at[c][N] = LMC__NO_CHANGE;
        changes.at[c] = at[c];
        changes.residual[c] = residual[c];
        //@ loop unroll 8;
        for (p = 0; p < W; p++) {
            sides.side[c][p].list = ANY(0, 1) ? lists[c][p] : NULL;
            sides.side[c][p].value = (uint8_t)ANY(0, 255);
        }
    }
#if KERNEL == 0
    lmc__patch_scalar(&k, ANY(0, 1) ? dst : base, &changes, &block, NULL, ANY(0, 1) ? &undo : NULL,
                      lmc__no_streaming);
#elif KERNEL == 1
    lmc__ungroup_scalar(&k, ANY(0, 1) ? dst : base, &sides, &block, lmc__no_streaming);
#else
    lmc__count_classes_scalar(counts, base, N, W, &grouping, NULL);
#endif
    return 0;
}
