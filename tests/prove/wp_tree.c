/* prove: wp lmc__tree_set_counts
 * shows: lmc__tree_set_counts
 * for:   any numbers of leaves of each length whose sum is at most 256, as lmc__tree_set_lengths
 *        checks */
#include "harness.h"
/* sum(k): counts[1] + ... + counts[k]: any function that agrees with counts. */
/*@ axiomatic Sum { logic integer sum(integer k); } */
/*@ predicate agrees(unsigned *counts) =
      sum(0) == 0 && \forall integer l; 1 <= l <= 15 ==> sum(l) == sum(l - 1) + counts[l]; */
#include "codec/tree.h"
#include "contracts.h"
/*@ requires \valid(tree) && \valid_read(counts + (0 .. 15)) && agrees(counts) && sum(15) <= 256;
    requires \separated(tree, counts + (0 .. 15));
    requires \forall integer l; 0 <= l <= 15 ==> 0 <= sum(l) <= sum(15);
    assigns *tree;
    ensures tree->n_leaves == sum(15);
    ensures \forall integer l; 1 <= l <= 16 ==> tree->first[l] == sum(l - 1); */
static void lmc__tree_set_counts(lmc__tree *tree, const unsigned counts[LMC__MAX_LENGTH + 1]);
