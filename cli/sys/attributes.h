/* attributes.h - modes, times and owners of files, and whether two files are the same
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

#include <time.h>

struct attributes {
    int has_mode, has_mtime, has_owner;
    mode_t mode;
    struct timespec mtime;
    uid_t owner;
    gid_t group;
};

/* The bits of a mode that are kept: none by which a program runs as somebody else. setgid and
 * sticky of a directory are no such bits. */
mode_t kept_mode(mode_t mode, int is_directory);

/* Mode, time and owner of a file that is there. */
struct attributes attributes_of_stat(const struct stat *st);

/* What the snapshot says. */
struct attributes attributes_of_file(const lmc_file *file);
/* The same of a directory, which gets a mode in any case: without one, that of a new one. */
struct attributes attributes_of_directory(const lmc_file *file);

/* To be called before other threads are started: it cannot be read without being set. */
void read_umask(void);

/* The mode of a new file or directory for which mode is asked. */
mode_t mask_mode(mode_t mode);

/* 0 or errno. The owner can be kept by root only, which is no error. */
int set_attributes(int fd, const struct attributes *a);

/* What is attached to a file, and no snapshot keeps: extended attributes (but those that systems
 * give to every file), access control lists. 0 if it cannot be told. */
enum { HAS_ATTRIBUTES = 1, HAS_ACL = 2 };
unsigned find_attached(const char *path);

/* Whether both are one file, perhaps with different names. */
int same_file(const struct stat *a, const struct stat *b);

/* The same by their names, which may be of nothing. */
int is_same_file(const char *a, const char *b);

/* Whether path lies below directory; links resolved. */
int lies_within(const char *path, const char *directory);

/* Whether nobody has written to the file between the two. */
int same_state(const struct stat *a, const struct stat *b);
