/* list_plain.h - lmc -l of files that are no snapshot: their tensors, as they are
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_LIST_PLAIN_H
#define LMC_CLI_LIST_PLAIN_H

#include "../sys/platform.h"

#include "../input/base.h"
#include "list.h"

void list_plain(const struct base *p, const char *name, const struct list_options *options);

#endif
