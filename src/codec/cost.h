#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "codec/workspace.h"

/* What the encoder's choices cost: bits and time. Of all ways to code a list the encoder takes the
 * one with the least
 *
 *     bits * (time that a bit is worth) + time
 *
 * where time is that of encoding and decoding together. So a level is mainly one number: the worth
 * of a bit. Times come from tables, and are not measured, because bytes must not depend on the
 * machine. Unit: 1/1024 of a cycle, on a Zen 4 core with AVX2. */

#ifndef LMC_NO_ENCODER
#define LMC__CYCLE 1024u

/* Time to partition a byte and merge it again; index: number of children that are one symbol. */
static const uint16_t lmc__merge_time[3] = {512, 400, 118};

/* Time to flatten a byte to bit planes and back; index: the number of planes. */
static const uint16_t lmc__flat_time[LMC__MAX_FLAT + 1] = {0, 0, 280, 330, 390, 460, 540};

/* Time to nest a byte of a mask; index: level of its frozen tree. It is twice the time of the
 * tree's merges at its density of ones, because the lists are short. */
static const uint16_t lmc__frozen_time[LMC__FROZEN_LEVELS] = {3500, 3600, 4700, 3900, 3500,
                                                              2900, 2100, 1900, 1600, 1400};

/* Inner nodes of each frozen tree; a flat node counts as one. NODE_TIME: fixed time of a node;
 * NEST_TIME: fixed time of a nested mask (tables of its tree, copies). */
static const uint8_t lmc__frozen_nodes[LMC__FROZEN_LEVELS] = {9,  13, 55, 55, 47,
                                                              51, 37, 37, 29, 31};
#define LMC__NODE_TIME (100u * LMC__CYCLE)
#define LMC__NEST_TIME (1500u * LMC__CYCLE)

/* What a level means here; see also enum lmc_level. Deltas are small, so their bits are worth more.
 * So are those of fp8 and int8: with fewer cycles for a bit, flat nodes would lose 0.4 % of the
 * size. Classes have their own costs (plan_delta.h). */
typedef struct lmc__effort {
    uint32_t direct_worth; /* of a bit, as time, in blocks without a prediction */
    uint32_t byte_worth;   /* the same for elements of one byte */
    uint32_t delta_worth;
    unsigned sample;      /* the most quarters of a sample to use; 0: all elements, for the top
                             plane and for lists */
    unsigned max_classes; /* of a delta that is not sparse */
} lmc__effort;

/* By level. bench/levels.c defines LMC__EFFORTS to try other values. */
#ifndef LMC__EFFORTS
#define LMC__EFFORTS static const lmc__effort
#endif
LMC__EFFORTS lmc__efforts[] = {
    {3 * LMC__CYCLE, 3 * LMC__CYCLE, 10 * LMC__CYCLE, 2, 5},
    {16 * LMC__CYCLE, 34 * LMC__CYCLE, 40 * LMC__CYCLE, 4, 6},
    {24 * LMC__CYCLE, 42 * LMC__CYCLE, 60 * LMC__CYCLE, 0, 7},
    {60 * LMC__CYCLE, 60 * LMC__CYCLE, 90 * LMC__CYCLE, 0, LMC__MAX_CLASSES},
};

LMC__INLINE const lmc__effort *lmc__get_effort(enum lmc_level level)
{
    return &lmc__efforts[(int)level - (int)LMC_LEVEL_FAST];
}
#endif /* LMC_NO_ENCODER */
