/* quantise.h - quantizers for the tensors that rules select
 * SPDX-License-Identifier: MIT
 *
 * A quantizer is found just before the file of its tensor is written; of the tensor itself only
 * pieces are in memory.
 */
#pragma once

#include "../sys/platform.h"
#include "../../formats/policy.h"

struct choice;
struct members;

/* Sets what the rules say of each tensor. can_refer: the output is a file, which can be read again.
 * Returns how many are to be quantised. */
size_t choose_all(struct members *m, int can_refer);

/* Whether the tensor is coded by a quantizer that loses something. */
int is_quantised(const struct choice *c);

/* Has the tensor coded with its quantizer. */
void attach_quantizer(lmc_tensor *t, struct choice *c);

/* Of the member of that number, which is written next. */
int fit_quantizers(struct members *m, size_t number);

/* Key of the metadata: the rules and what they did, as JSON. */
#define POLICY_KEY "lmc.policy"

/* What the rules did, to the metadata; nothing, if no rule matched. */
enum lmc_status record_choices(lmc_writer *writer, const struct members *m);

/* Says if rules did nothing, also with -q. */
void say_of_quantised(const struct members *m, const char *name);

/* -- the rules of --quant and --policy (policy.c); what they say: formats/policy.h -- */

/* Adds a rule. CODE_OK, or CODE_USAGE, reported. */
int add_rule(struct policy *p, const char *text);

/* Adds what the file at path says. CODE_OK, or what was reported. */
int read_policy(struct policy *p, const char *path);
