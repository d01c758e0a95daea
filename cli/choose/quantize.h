/* quantize.h - quantizers for the tensors that rules select
 * SPDX-License-Identifier: MIT
 *
 * A quantizer is found just before the file of its tensor is written. That takes memory for pieces
 * of the tensor only.
 */
#pragma once

#include "../sys/platform.h"
#include "../../formats/policy.h"

struct choice;
struct members;

/* Applies the rules to all tensors. can_refer: the output is a file, which can be read again.
 * Returns how many tensors are to be quantised. */
size_t choose_all(struct members *m, int can_refer);

/* Whether the tensor is coded by a quantizer that loses something. */
int is_quantized(const struct choice *c);

/* The hints for the tensor of the choice. */
lmc_tensor_hints *hints_of_choice(const struct members *m, const struct choice *c);

/* Sets the hints so that the tensor is coded with its quantizer. */
void attach_quantizer(const struct members *m, struct choice *c);

/* Finds the quantizers for the member of that number, which is written next. */
int fit_quantizers(struct members *m, size_t number);

/* Key of the metadata: the rules and what they did, as JSON. */
#define POLICY_KEY "lmc.policy"

/* Writes to the metadata what the rules did; nothing if no rule matched. */
enum lmc_status record_choices(lmc_writer *writer, const struct members *m);

/* Reports rules that did nothing, also with -q; with -v, how many tensors were quantised. */
void say_of_quantized(const struct members *m, const char *name);

/* -- the rules of --quant and --policy (policy.c); formats/policy.h describes them -- */

/* Adds a rule. Returns CODE_OK, or CODE_USAGE, which was reported. */
int add_rule(struct policy *p, const char *text);

/* Adds the rules of the file at path. Returns an exit code; errors are reported. */
int read_policy(struct policy *p, const char *path);
