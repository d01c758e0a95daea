/* policy.h - the rules of --quant and --policy
 * SPDX-License-Identifier: MIT
 *
 * What they say: formats/policy.h. What becomes of a tensor is measured, see quantise.h.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/policy.h"

/* Adds a rule. CODE_OK, or CODE_USAGE, reported. */
int add_rule(struct policy *p, const char *text);

/* Adds what the file at path says. CODE_OK, or what was reported. */
int read_policy(struct policy *p, const char *path);
