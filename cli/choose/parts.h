/* parts.h - tensors that are cut otherwise than those of the base
 * SPDX-License-Identifier: MIT
 *
 * A checkpoint of many processes has each tensor in parts, along its first dimension, one for each
 * process: "w[0:256]", "w[256:512]" (formats/torch_save.h). If there are more or fewer processes at
 * the next step, the parts are others:
 *
 *     base        |   w[0:512]    |   w[512:1024]  |
 *     snapshot    | w[0:342] | w[342:684] | w[684:] |
 *
 * So is a tensor that got more rows.
 */
#ifndef LMC_CLI_PARTS_H
#define LMC_CLI_PARTS_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../../lmc.h"

struct members;

/* Finds for tensors that the base has not, by name, dtype and size, what of it they consist of;
 * returns for how many. The base must outlive the members. */
size_t find_parts(struct members *m, const lmc_base *base);

#endif
