/* prove: wp lmc__get_positions, lmc__close_gaps
 * shows: lmc__get_positions, lmc__close_gaps
 * for:   any payload, any state that lmc__open_gaps and lmc__get_positions leave; termination
 *        included. Not: that positions ascend */
#include "harness.h"
#include "codec/get_gaps.h"
#include "contracts.h"
/*@ requires at / 8 <= size <= 0x7fffffffffff;
    requires size > 0 ==> \valid_read(p + (0 .. size - 1));
    assigns \nothing; */
static uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at);

/*@ predicate is_open(lmc__gaps *g) =
      g->s <= 21 && g->j <= g->k <= g->n <= 4194304 && g->room <= 0x7fffffff &&
      g->size <= 0x7fffffff && g->k * g->s <= 8 * g->room && g->at <= g->size + 8 &&
      (g->room > 0 ==> \valid_read(g->low + (0 .. g->room - 1))) &&
      (g->size > 0 ==> \valid_read(g->quotients + (0 .. g->size - 1))); */
/*@ requires \valid(g) && is_open(g);
    requires 1 <= count && g->j + count <= g->k;
    requires \valid(positions + (0 .. count - 1));
    requires \separated(g, positions + (0 .. count - 1));
    assigns positions[0 .. count - 1], g->word, g->sum, g->at, g->j, g->bit;
    ensures \result == LMC_OK ==> g->j == \old(g->j) + count;
    ensures \result == LMC_OK ==> g->at <= g->size + 8; */
static enum lmc_status lmc__get_positions(lmc__gaps *g, uint32_t *positions, size_t count);

/*@ requires \valid_read(g) && \valid(in) && \separated(g, in);
    requires g->bit / 8 < g->size <= 0x7fffffff && \valid_read(g->quotients + (0 .. g->size - 1));
    assigns *in; */
static enum lmc_status lmc__close_gaps(const lmc__gaps *g, const uint8_t **in);
