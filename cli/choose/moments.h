/* moments.h - pairs of moments, and the weights that they belong to, by their names
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_MOMENTS_H
#define LMC_CLI_MOMENTS_H

#include "../sys/platform.h"

struct members;
struct policy;

/* Finds what each tensor is by its name, pairs the moments, and finds their weights. The choices
 * have been made. */
void find_meanings(struct members *m, const struct policy *p);

#endif
