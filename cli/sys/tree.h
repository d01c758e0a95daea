/* tree.h - what is in a directory
 * SPDX-License-Identifier: MIT
 *
 * Links to directories are never followed.
 */
#pragma once

#include "platform.h"

#include <dirent.h>

/* The next entry, without "." and "..". NULL: no more, or an error; sets *error if that is 0. */
struct dirent *next_entry(DIR *directory, int *error);

struct entry {
    char *path; /* below the root; "" is the root itself */
    int is_directory;
    char *link;      /* the text of a symbolic link; NULL: no link */
    int is_file;     /* a link that leads to a regular file */
    int is_followed; /* a link to a file outside of the tree, taken as that file */
    uint64_t size;   /* of a file, or of what a link leads to */
};

struct listing {
    struct entry *entries;
    size_t n, cap;
    size_t n_followed;   /* entries that are followed */
    size_t n_outside;    /* links to directories outside of the tree, not followed */
    size_t n_special;    /* links to devices, pipes and sockets, unless kept by LINKS_KEEP */
    int is_cut;          /* there are more entries than were allowed; not all are listed */
    size_t n_unreadable; /* directories; the first MOST_NAMED were reported */
    char **others;       /* sockets, pipes, devices */
    size_t n_others;
};

/* At most so many faults of one kind in a tree are reported by name; the others are counted. */
#define MOST_NAMED ((size_t)20)

/* What to take for symbolic links. */
enum link_mode {
    LINKS_AUTO,   /* links; the file, if the link leads out of the tree */
    LINKS_KEEP,   /* links */
    LINKS_FOLLOW, /* what they lead to */
};

/* Adds an entry of size 0. The pointer is valid until the next one is added. */
struct entry *add_entry(struct listing *l, const char *path, int is_directory);

void free_listing(struct listing *l);

/* Lists the names in a directory, and nothing else. 0, or errno: not all could be read. */
int list_names(struct listing *l, const char *directory);

/* Lists everything below root, and root itself as "", in the byte order of the paths. most: a limit
 * for files and directories, as a few links can lead to any number of them; 0: none. */
int list_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most);

/* What a listing leaves out: paths, with all that is below them, that `leaves` says so of. */
struct filter {
    int (*leaves)(void *user, const char *path);
    void *user;
};

/* The same but for what the filter leaves out, which is not looked at. A directory that several
 * followed links lead to is read for each, as the filter may know it by its path. */
int list_filtered_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most,
                       const struct filter *but);

/* Gives the owner all rights to a directory that was seen at a name, below a descriptor or
 * AT_FDCWD, if they lack. What has come in its place keeps its mode. If this fails, later steps
 * fail, and report it. */
void open_up(int at, const char *name, const struct stat *seen);

/* -- moving, exchanging and removing (replace.c) --
 *
 * All functions return 0 or errno. They report only what they could not undo.
 */

/* Moves a file or tree from a name in a directory to one in another, where it must not exist, by
 * one call if the system can. Else a file gets the name by a hard link; or, if that is impossible
 * or may_link is 0, an empty file does, which rename() replaces. If `from` is not ours, the system
 * may allow a link to it, and then to remove neither the file nor the link: so it is in directories
 * with the sticky bit. */
int move_name(int from_dir, const char *from, int to_dir, const char *to, int may_link);

/* The same in one directory. */
int move_below(int dir, const char *from, const char *to, int may_link);

/* Exchanges two names in a directory, by one call if the system can. Else `to` was moved aside, to
 * the temporary name that is drawn; "": it was not. */
int exchange_names(int dir, const char *from, const char *to, char aside[12]);

/* Removes the file or tree of that name in a directory, however deep it is, if it is the one that
 * was seen; else ENOENT. Follows no link, and enters no mounted file systems. After an error, goes
 * on with the rest, and returns the error. This includes lack of memory, which may be the reason
 * for the call: so it does not end the process. */
int remove_tree(int dir, const char *name, const struct stat *seen);
