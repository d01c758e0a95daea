/* source_links.h - the links among the sources of a snapshot
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SOURCE_LINKS_H
#define LMC_CLI_SOURCE_LINKS_H

#include "../sys/platform.h"

struct links;
struct listing;

/* Symbolic links of the listing of root, and files in it that are one by several names. */
void collect_links(struct links *links, const struct listing *l, const char *root);

#endif
