/* lost.h - what goes with a source that is removed, because no snapshot keeps it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_LOST_H
#define LMC_CLI_LOST_H

#include "../sys/platform.h"

struct common;
struct listing;

/* Says in a line what the source at path has of that, if anything: owners other than who restores
 * gets, extended attributes, access control lists, bits of modes. To be asked before it is removed.
 * l: what is in it, of a directory; NULL: it is a file, which gives its owner to the snapshot. */
void say_lost(const struct listing *l, const char *path, const char *snapshot,
              const struct common *o);

/* The same of links that lead out of the directory to files, which stand for these. */
void say_followed_links(const struct listing *l, const char *root);

#endif
