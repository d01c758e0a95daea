/* removal.h - removing a source: in one step, and nothing else
 * SPDX-License-Identifier: MIT
 *
 * A source is renamed to a temporary name beside it, and is removed only then. So whenever the
 * command is interrupted, and however often it is repeated, what has the source's own name is
 * whole: what is left of a directory is never taken for the directory.
 *
 *     D  ->  .lmc-XXXXXX  ->  what is in it, from the leaves  ->  nothing
 *
 * Some directories cannot be renamed (those of a lower layer of overlayfs). These get a side file
 * .D.lmc-rm beside them first, which goes last; while it is there, no command takes D for a source.
 *
 * Everything is done below descriptors, so a directory that is exchanged for a link leads nowhere,
 * and each entry must still be in the state in which it was compared.
 */
#pragma once

#include "platform.h"

#include "look.h"
#include "tree.h"

/* Checks that a source has not changed since `before`, which was taken before reading it, and that
 * no program has it open for writing. states: as for look_at_states(). snapshot: what has all of
 * the source, for messages; NULL: the source is a snapshot itself. */
int check_unchanged(const char *path, const struct look *before, const char *snapshot,
                    struct states *states);

/* Removes a source that is in these states. l: of a directory, of which nothing else is removed;
 * NULL: a file. What has changed, or cannot be removed, stays: under its name if nothing else was
 * removed, or else where a message says. */
int remove_source(const char *path, const struct listing *l, const struct states *states,
                  const char *snapshot);

/* An entry was not in its state. */
#define REMOVAL_CHANGED (-1)

/* Removes what was listed below an open root, and nothing else: newer files stay, with their
 * directories; the root itself stays, too. states NULL: files may have changed, and modes that
 * forbid it are changed. 0, or errno, or REMOVAL_CHANGED, and *stopped_at: the entry; NULL: none
 * yet. May run with the lock of temporary.h: lack of memory is an error that is returned. */
int remove_listed(const struct listing *l, int root, const struct states *states,
                  const struct entry **stopped_at);

#define REMOVAL_SUFFIX ".lmc-rm"

/* The side file of a directory that is removed in its place. To be freed. */
char *name_removal_mark(const char *path);
