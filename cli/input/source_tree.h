/* source_tree.h - directories that are compressed: what is in them, and what is not kept of it
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../sys/tree.h"

struct options;
struct links;
struct look;

/* All that a snapshot of the directory may hold, in the order of the paths. What it cannot hold is
 * named. is_removed: the directory will be, so what a snapshot changes is told, too. */
int list_sources(struct listing *l, const char *root, int is_removed, const struct options *o);

/* Names the files that cannot be opened, from that entry of the listing on; n: those that were
 * named already. A caller that gives up because of one reports all. */
void say_unreadable(const struct listing *l, size_t from, size_t n, const char *root);

/* Whether an entry is a file of the snapshot: all but links; the root only if there is nothing
 * else. */
int is_stored(const struct entry *e, const struct listing *l);

/* Symbolic links of the listing of root, and files in it that are one by several names. */
void collect_links(struct links *links, const struct listing *l, const char *root);

/* Removes a source that was compared with its snapshot, if it is what it was at that look: of a
 * directory what was listed and no more, so a file that came later keeps its directories. l NULL: a
 * file. Says in a line what goes with it: other owners than the user who restores (of a file: than
 * the snapshot's), extended attributes, access control lists, bits of modes. */
int remove_unchanged(const struct listing *l, const char *path, const struct look *look,
                     const char *snapshot, const struct options *o);

/* -- the side file of lmc apply --
 *
 * Nobody reads or writes a target that has one: it is half applied. What is in it is the business
 * of verb/apply.h.
 */

/* ".NAME.lmc-apply" beside path. */
char *name_journal(const char *path);

/* Whether path is named as a side file is. */
int is_side_name(const char *path);

/* Fails with that code if an apply to path, or to a directory that it lies in, has not ended. */
int check_finished(const char *path, enum exit_code code);
