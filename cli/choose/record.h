/* record.h - what the rules did: JSON in the metadata of the snapshot, for lmc -l -v
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RECORD_H
#define LMC_CLI_RECORD_H

#include "../sys/platform.h"

#include "../../lmc.h"

struct common;
struct members;

/* Key of the metadata: the rules and what they did, as JSON. */
#define POLICY_KEY "lmc.policy"

/* What the rules did, to the metadata; nothing, if no rule matched. */
enum lmc_status record_choices(lmc_writer *writer, const struct members *m);

/* A rule that does nothing is hardly what the user wants: said also with -q. With -v, what a file
 * of PyTorch is when it has been restored. */
void say_of_quantised(struct members *m, const char *name, const struct common *o);

#endif
