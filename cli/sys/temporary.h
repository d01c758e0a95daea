/* temporary.h - the one temporary file or directory, which is gone when the process ends
 * SPDX-License-Identifier: MIT
 *
 * At most one is registered at a time. A thread waits for the signals that end a process: it takes
 * the lock for good and removes what is registered. A thread holds the lock while it creates or
 * renames something below the temporary name, so at any moment what exists under it is registered.
 * With the lock held nothing may be allocated: running out of memory takes it, too, and would wait
 * for itself.
 */
#pragma once

#include "platform.h"

/* Called with the lock held. Frees the path before, and owns this one (NULL: there is none now). */
void register_temporary(char *path);

/* Between the two the process does not end, and the temporary name is not removed. */
void lock_temporary(void);
void unlock_temporary(void);

/* The path that is registered; NULL: none. Called with the lock held. */
const char *registered_temporary(void);

/* Removes what is registered, file or tree, and registers nothing. */
void remove_temporary(void);

/* "lmc: NAME: TEXT" is said when a signal or a lack of memory ends the process; NULL: nothing. */
void set_last_words(const char *name, const char *text);
void say_last_words(void);

/* To be called before any other thread is started: all threads inherit the mask. */
void watch_signals(void);

/* A pattern for mkstemp() or mkdtemp() in the directory of path. To be freed. */
char *temporary_name_beside(const char *path);

/* Whether path is, or lies below, a name that temporary_name_beside() gives. */
int is_temporary_name(const char *path);

/* Creates a file without a name in the directory of path, which goes with its descriptor unless
 * link_unnamed() gives it one. 0 or errno: the system, or this file system, has no such files. */
int open_unnamed(const char *path, int *fd);

/* Gives it a name that is not there yet. 0 or errno. */
int link_unnamed(int fd, const char *path);

/* Creates a temporary file beside path, open as *fd, or a directory (fd NULL). *name: the caller's.
 */
int create_temporary(const char *path, int *fd, const char **name);

/* Says which temporary files and directories beside path kill -9 has left: they belong to no
 * process any more. They are not removed: somebody may want them. */
void say_left_behind(const char *path);

/* A file without a name, in the directory that TMPDIR names, or in that of a file. */
int open_scratch(const char *beside, int *fd);

/* Reports an error of reading or writing it. */
int fail_scratch(int error);
