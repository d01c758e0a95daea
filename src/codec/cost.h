#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "codec/workspace.h"

/* What the encoder's choices cost: bits, and time. Of all ways to code a list it takes the one with
 * the least
 *
 *     bits * (time that a bit is worth) + time
 *
 * where the time is that of coding and of decoding together. So each level is one number, the worth
 * of a bit, and all levels lie on one curve, which bench/levels.py draws. Times are a table, not
 * measured: bytes must not depend on the machine. Other tiers and cores are faster or slower by a
 * factor that is much the same for all steps, and a factor only shifts the levels along the curve.
 *
 * Unit: 1/1024 of a cycle, of a Zen 4 core with AVX2. */

#ifndef LMC_NO_ENCODER
#define LMC__CYCLE 1024u

/* Partitioning a byte and merging it again, by how many of the node's children are one symbol. */
static const uint16_t lmc__merge_time[3] = {512, 400, 118};

/* Flattening a byte to bit planes and back, by their number. */
static const uint16_t lmc__flat_time[LMC__MAX_FLAT + 1] = {0, 0, 280, 330, 390, 460, 540};

/* Nesting a byte of a mask, by level of its frozen tree: what the table of merges says of the tree
 * at the density that it is for, twice, for lists are short here. */
static const uint16_t lmc__frozen_time[LMC__FROZEN_LEVELS] = {3500, 3600, 4700, 3900, 3500,
                                                              2900, 2100, 1900, 1600, 1400};

/* Inner nodes of each frozen tree, flat ones as one; and what a node costs, however short its list
 * is, and a nested mask: its tree's tables, copies. */
static const uint8_t lmc__frozen_nodes[LMC__FROZEN_LEVELS] = {9,  13, 55, 55, 47,
                                                              51, 37, 37, 29, 31};
#define LMC__NODE_TIME (100u * LMC__CYCLE)
#define LMC__NEST_TIME (1500u * LMC__CYCLE)

/* What a level is: see enum lmc_level. A delta is a fraction of its block, so a bit of it is worth
 * more. Classes have their own costs (plan_delta.h). */
typedef struct lmc__effort {
    uint32_t direct_worth, delta_worth; /* of a bit, as time */
    unsigned sample;                    /* quarters of it that are looked at, at most; 0: all
                                           elements of the top plane, and of lists */
    unsigned max_classes;               /* of a dense delta */
} lmc__effort;

/* Points of the curve, by level. Only bench/levels.c moves them. */
#ifndef LMC__EFFORTS
#define LMC__EFFORTS static const lmc__effort
#endif
LMC__EFFORTS lmc__efforts[] = {
    {3 * LMC__CYCLE, 10 * LMC__CYCLE, 2, 5},                 /* fast */
    {16 * LMC__CYCLE, 40 * LMC__CYCLE, 4, 6},                /* default */
    {24 * LMC__CYCLE, 60 * LMC__CYCLE, 0, 7},                /* max */
    {60 * LMC__CYCLE, 90 * LMC__CYCLE, 0, LMC__MAX_CLASSES}, /* archive */
};

LMC__INLINE const lmc__effort *lmc__get_effort(enum lmc_level level)
{
    return &lmc__efforts[(int)level - (int)LMC_LEVEL_FAST];
}
#endif /* LMC_NO_ENCODER */
