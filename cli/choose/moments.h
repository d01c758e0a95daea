/* moments.h - pairs of moments, and the weights that they belong to, by their names
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_MOMENTS_H
#define LMC_CLI_MOMENTS_H

#include "../sys/platform.h"

struct members;
struct policy;

void find_meanings(struct members *m, const struct policy *p);

#endif
