/* spot.h - a name in a directory that is held open
 * SPDX-License-Identifier: MIT
 *
 * Each call that gets a path resolves it anew. If another program exchanges a directory on the way
 * for a link meanwhile, a later call renames or removes something elsewhere. So whatever is made,
 * renamed or removed goes by a descriptor of its directory and a name without slashes: a path is
 * resolved once, and names only appear in messages from then on.
 *
 *   open_spot("a/b/c")  ->  dir: a/b, name: "c"  ->  openat, renameat, unlinkat ...  ->  close_spot
 */
#pragma once

#include "platform.h"

struct spot {
    int dir;          /* PARENT_FLAGS; -1: closed */
    const char *name; /* within the path, which must outlive the spot */
};

/* 0 or errno; then there is nothing to close. */
int open_spot(struct spot *s, const char *path);
void close_spot(struct spot *s);

/* Syncs the directory. 0 or errno. */
int sync_spot(const struct spot *s);

/* What is at the spot: 0 or errno. A link is not followed. */
int look_at_spot(const struct spot *s, struct stat *st);

/* -- one directory is held, in which a command does many things: a series, what -r goes through --
 *
 * From now on, all functions here take the directory of `path` from this descriptor, which must
 * stay open; with is_tree, also what is below it, and no link on the way is followed. The last one
 * counts. release_directory(), before the descriptor is closed, ends it. */
void hold_directory_of(const char *path, int dir, int is_tree);
void release_directory(int dir);

/* open() for reading, and stat(): by that descriptor if the path is in the directory. is_pipe: what
 * is there may be a FIFO, whose other end is waited for; else this is open_file(). */
int open_held(const char *path, int is_pipe);
int stat_held(const char *path, struct stat *st);

/* -- opening files --
 *
 * A path that led to a file may lead to a FIFO by now, and opening that would wait for its other
 * end. So whoever wants a file opens it by open_file(), with O_NONBLOCK, and then looks at what it
 * has got. With that flag, however, the system does not wait for leases, either, which servers of
 * files (Samba, NFS) hold for their clients: they are asked to give them up, and do so in less than
 * /proc/sys/fs/lease-break-time (45 s). open_file() waits for that, a minute at most. */

/* openat(). Returns -1 and errno on errors; ERROR_LEASED: the lease was not given up. */
int open_file(int dir, const char *name, int flags);

/* For a process that a signal does not end (watch_signals() has a thread for that): open_file()
 * waits no longer if is_over(user). */
void wait_until(int (*is_over)(const void *user), const void *user);

/* -- below a directory that is open; no link on the way is followed -- */

/* Opens the directory that path is in, one name at a time. may_make: makes what is missing, under
 * the lock of temporary.h. Returns -1 and errno on errors. */
int open_parent(int root, const char *path, int may_make);

/* Opens what is there, which must be no link itself either. Returns -1 and errno on errors. */
int open_below(int root, const char *path, int flags);

/* What is there: 0 or errno. */
int look_below(int root, const char *path, struct stat *st);

/* A path that leads to an open directory, for functions that list by path: by its descriptor if the
 * system has such paths, else `path`. To be freed. */
char *path_of_open(int fd, const char *path);
