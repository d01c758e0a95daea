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

/* The bits of a mode that a snapshot keeps: for files, only permissions, so no program runs as
 * another user. For directories, setgid and sticky are kept, too. */
mode_t kept_mode(mode_t mode, int is_directory);

/* Mode, time and owner of an existing file. */
struct attributes attributes_of_stat(const struct stat *st);

/* The attributes that the snapshot stores for a file. */
struct attributes attributes_of_file(const lmc_file *file);

/* For a file that is restored. input: of the .lmc file, whose owner it gets; also mode and time, if
 * the snapshot has none of these (its source was a pipe). NULL: nothing changes. */
void complete_attributes(struct attributes *a, const struct stat *input);
/* The same for a directory. If no mode is stored, it is that of a new directory. */
struct attributes attributes_of_directory(const lmc_file *file);

/* Must be called before other threads start: reading the umask also changes it for a moment. From
 * now on the system masks no rights of the owner, as we could not enter new directories then: what
 * is finished gets its mode by mask_mode(). */
void read_umask(void);

/* The mode that a new file or directory gets if it is created with `mode`. */
mode_t mask_mode(mode_t mode);

/* These return 0 or errno. What the file system has no modes, owners or times for, or does not let
 * this user set (formats/refused.h), is no error. */
int set_attributes(int fd, const struct attributes *a);
int set_mode(int fd, mode_t mode);
int set_present_time(int at, const char *name);

/* The same for what stat() or lstat() saw at a name, below a descriptor or AT_FDCWD. If something
 * else has come in its place, that keeps its mode, and the error is ENOENT. */
int set_mode_of_seen(int at, const char *name, const struct stat *seen, mode_t mode);

/* What a file has, but no snapshot keeps: extended attributes (except those that systems give to
 * every file), access control lists. 0 if unknown. */
enum { HAS_ATTRIBUTES = 1, HAS_ACL = 2 };
unsigned find_attached(const char *path);

/* Whether both are the same file, perhaps by different names. */
int same_file(const struct stat *a, const struct stat *b);

/* The same by paths. 0 if one of them does not exist. */
int is_same_file(const char *a, const char *b);

/* Whether a file system, or a part of one, is mounted at path, which is in a tree with that root.
 * Of an overlay, a file may have another device than its directory. */
int is_mounted(const char *path, const struct stat *st, const struct stat *root);

/* Whether path is below directory, after all links are resolved. */
int lies_within(const char *path, const char *directory);

/* Whether size and time are equal. */
int same_version(const struct stat *a, const struct stat *b);

/* Whether the file has stayed unchanged from a to b. */
int same_state(const struct stat *a, const struct stat *b);
