/* list.h - lmc -l: what is in a snapshot, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_LIST_H
#define LMC_CLI_LIST_H

#include "../sys/platform.h"

struct options;

int list_file(const char *path, const struct options *o);

#endif
