/* prove: eva -eva-precision 5
 * shows: lmc__tree_set_frozen, lmc__tree_set_counts
 * for:   all levels, both polarities; 256 leaves that fill the code space */
#include "harness.h"
#include "codec/tree.h"
lmc__tree tree;
int main(void)
{
    unsigned level;
    //@ loop unroll 10;
    for (level = 0; level < LMC__FROZEN_LEVELS; level++) {
        lmc__tree_set_frozen(&tree, level, ANY(0, 1) ? 0xFF : 0);
        //@ check leaves: tree.n_leaves == 256;
        //@ check space: tree.start[16] == 32768;
    }
    return 0;
}
