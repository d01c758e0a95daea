/* prove: wp lmc__merge_scalar,between
 * shows: lmc__merge_scalar
 * for:   every n up to 4 MiB, any mask; lists with exactly the elements that the mask asks for, and
 *        8 of the 64 bytes of slack
 * given: that lmc__ones counts ones, and that lmc__unsort8 is defined for each mask: ones.c */
#include "harness.h"
#include "kernels/tables.h"
/* before(k): the ones in the first k bytes of the mask: any function that agrees with the mask. */
/*@ axiomatic Ones {
      logic integer before(integer k);
      logic integer pop(integer m);
      axiom pop_range: \forall integer m; 0 <= m < 256 ==> 0 <= pop(m) <= 8;
      axiom pop_invert: \forall integer m; 0 <= m < 256 ==> pop(255 - m) == 8 - pop(m);
      axiom xor_0: \forall integer m; 0 <= m < 256 ==> (m ^ 0) == m;
      axiom xor_255: \forall integer m; 0 <= m < 256 ==> (m ^ 255) == 255 - m;
      axiom shift_3: \forall integer r; 0 <= r ==> (r >> 3) == r / 8;
    } */
/*@ predicate table = \forall integer m; 0 <= m < 256 ==> lmc__ones[m] == pop(m);
    predicate agrees(uint8_t *mask, integer rows) =
      before(0) == 0 &&
      \forall integer j; 0 <= j < rows ==> before(j + 1) == before(j) + pop(mask[j]); */
/*@ ghost
    /@ requires 0 <= j <= k; requires \valid_read(mask + (0 .. k - 1)); requires agrees(mask, k);
       assigns \nothing;
       ensures 0 <= before(k) - before(j) <= 8 * (k - j); @/
    void between(const uint8_t *mask, size_t j, size_t k)
    {
        size_t i = j;
        /@ loop invariant j <= i <= k; loop invariant 0 <= before(i) - before(j) <= 8 * (i - j);
           loop assigns i; loop variant k - i; @/
        while (i < k) i++;
    } */

#include "kernels/merge.h"
#include "contracts.h"
/*@ requires m < 256; assigns \nothing; */
static uint64_t lmc__unsort8(uint64_t zeros, uint64_t ones, unsigned m);
/*@ assigns \nothing; */
static uint64_t lmc__reverse8(uint64_t v);

/*@ requires table;
    requires 1 <= n <= 4194304;
    requires \valid_read(mask + (0 .. (n + 7) / 8 - 1));
    requires agrees(mask, (n + 7) / 8);
    requires \valid(dst + (0 .. 8 * ((n + 7) / 8) - 1));
    requires left.list != \null ==>
      \valid_read(left.list + (0 .. 8 * ((n + 7) / 8) - before((n + 7) / 8) + 7));
    requires right.list != \null ==> \valid_read(right.list + (0 .. before((n + 7) / 8) + 7));
    requires \separated(dst + (0 .. 8 * ((n + 7) / 8) - 1), mask + (0 .. (n + 7) / 8 - 1));
    requires \separated(dst + (0 .. 8 * ((n + 7) / 8) - 1), &lmc__ones[0 .. 255]);
    assigns dst[0 .. 8 * ((n + 7) / 8) - 1]; */
static void lmc__merge_scalar(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                              lmc__side right);
