/* restored_links.h - links below a directory that lmc has made
 * SPDX-License-Identifier: MIT
 *
 * Links are made last, when no file is written any more: a file that a snapshot puts "below" a link
 * of its own can never be written through it. Each directory on the way to a link is opened by the
 * one above it, and must be a directory, not a link, so that no link leads to where another one is
 * made. Where a link points to does not matter then: nobody follows it. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

struct links;

/* Makes all links below the directory, which is private and registered as temporary. name: of the
 * snapshot. */
int make_links(const char *root, const struct links *l, const char *name);

/* Refuses a link below root that update_links() would remove, unless it is one of before, the links
 * that lmc itself has made there: no fingerprint covers links, so any other may be the user's. */
int check_old_links(const char *root, const struct links *l, const struct links *before,
                    lmc_reader *reader, const char *name);

/* Makes symbolic links of a directory what the snapshot says: those that it lacks are removed,
 * others made or replaced. What is no link is left alone, and so are links that stand for files of
 * the snapshot. *n_changed: counts up. */
int update_links(const char *root, const struct links *l, lmc_reader *reader, const char *name,
                 size_t *n_changed);
