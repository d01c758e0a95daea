/* What functions ask for and promise, for proofs that hold for each n (WP). A proof of a function
 * uses the contracts of those that it calls, not their bodies. These here are assumed; all others
 * are proved of their bodies by a proof of their own. */
/*@ requires \valid_read(p + (0 .. 7)); assigns \nothing; */
static uint64_t lmc__load64(const uint8_t *p);
/*@ requires \valid_read(p + (0 .. 3)); assigns \nothing; */
static uint32_t lmc__load32(const uint8_t *p);
/*@ requires \valid(p + (0 .. 7)); assigns p[0 .. 7]; */
static void lmc__store64(uint8_t *p, uint64_t v);
/*@ requires v != 0; assigns \nothing; ensures 0 <= \result <= 63; */
static unsigned lmc__lowest_bit(uint64_t v);
/*@ axiomatic Bits { axiom and_7: \forall integer x; 0 <= x ==> 0 <= (x & 7) <= 7; } */
