/* prove: eva -eva-precision 8
 * shows: lmc__ones, lmc__unsort8, lmc__reverse8
 * for:   each mask of eight elements, any bytes; lmc__ones counts the ones of its index */
#include "harness.h"
#include "kernels/merge.h"
int main(void)
{
    unsigned m, bit, ones;
    //@ loop unroll 256;
    for (m = 0; m < 256; m++) {
        ones = 0;
        //@ loop unroll 8;
        for (bit = 0; bit < 8; bit++) ones += m >> bit & 1;
        //@ check ones: lmc__ones[m] == ones;
        lmc__unsort8(ANY(0, UINT64_MAX), lmc__reverse8(ANY(0, UINT64_MAX)), m);
    }
    return 0;
}
