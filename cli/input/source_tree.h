/* source_tree.h - directories to compress: what is in them, and what snapshots do not keep
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../sys/tree.h"

struct options;
struct links;
struct look;

/* Lists all that a snapshot of the directory may hold, in the order of the paths, and reports what
 * it cannot hold. is_removed: it will be removed, so changes are reported, too. */
int list_sources(struct listing *l, const char *root, int is_removed, const struct options *o);

/* The same of a base: of all of it, and also of what lmc apply has left half applied, as lmc apply
 * goes on with that. */
int list_unchecked(struct listing *l, const char *root, const struct options *o);

/* list_tree() without what --exclude leaves out: names, or paths below the root, that a pattern
 * matches. A pattern that matches nothing is reported. */
int list_included(struct listing *l, const char *root, enum link_mode mode, uint64_t most,
                  const struct options *o);

/* Reports the files that cannot be opened, from entry number `from` of the listing on, so that a
 * user learns of all of them. n: files that were reported already. */
void say_unreadable(const struct listing *l, size_t from, size_t n, const char *root);

/* Whether an entry is stored as a file: all but links; the root only if there is nothing else. */
int is_stored(const struct entry *e, const struct listing *l);

/* Collects the symbolic links and hard links of the listing of root. */
void collect_links(struct links *links, const struct listing *l, const char *root);

/* Refuses a source of --rm that is a link. */
int check_no_link(const char *path);

/* Removes a source that was compared with its snapshot, if it has not changed since `look`. l: the
 * listing of a directory, of which nothing else is removed: so a newer file stays, with its
 * directories; NULL: a file. Reports in a line what is lost: owners other than the user who
 * restores (for a file: than the snapshot's owner), extended attributes, ACLs, mode bits. snapshot
 * NULL: the source is one itself, and was restored. */
int remove_unchanged(const struct listing *l, const char *path, const struct look *look,
                     const char *snapshot, const struct options *o);

/* -- the side file of lmc apply --
 *
 * A target that has a side file is half applied, so no other command reads or writes it.
 * verb/apply.h describes the side file.
 */

/* ".NAME.lmc-apply" beside path. To be freed. */
char *name_journal(const char *path);

/* Whether path has the name of a side file. */
int is_side_name(const char *path);

/* Fails with that code if an apply to path, or to a directory above it, has not ended, or the
 * removal of one of them (removal.h). */
int check_finished(const char *path, enum exit_code code);
