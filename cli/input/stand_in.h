/* stand_in.h - what is read in place of a base that is damaged: a copy, or the files of it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STAND_IN_H
#define LMC_CLI_STAND_IN_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

struct base;
struct common;

/* Of the same kind, size and tensors. */
int have_same_tensors(const lmc_file *a, const lmc_file *b);

/* Whether c, which is made ready, can be read for the damaged snapshot b. */
int can_stand_in(struct base *c, const struct base *b, const struct common *o);

/* Where damage was found and there is no copy: reads what is intact all the same, block by block.
 */
enum lmc_status read_intact(struct base *b, enum lmc_status damage, size_t number, uint64_t offset,
                            void *dst, size_t size);
void forget_intact(struct base *b);

/* Reads of b->instead, or of what is intact, what stands in that file of b. */
enum lmc_status read_instead(const struct base *b, size_t number, uint64_t offset, void *dst,
                             size_t size);

#endif
