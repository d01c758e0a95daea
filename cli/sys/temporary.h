/* temporary.h - the one temporary file or directory, which is gone when the process ends
 * SPDX-License-Identifier: MIT
 *
 * At most one is registered at a time. A thread waits for the signals that end a process: it takes
 * the lock for good and removes what is registered. Whoever creates or renames something below the
 * temporary name holds the lock meanwhile. So whatever the moment, either the name is registered
 * and what exists under it is removed, or nothing exists. With the lock held nothing may be
 * allocated: running out of memory removes what is registered, too, and would wait for itself.
 */
#ifndef LMC_CLI_TEMPORARY_H
#define LMC_CLI_TEMPORARY_H

#include "platform.h"

/* Called with the lock held. Owns path from now on (NULL: there is none any more), and frees the
 * one before. */
void register_temporary(char *path);

/* Keeps the process from ending, and the temporary name from being removed, until
 * unlock_temporary(). What is created or renamed below the temporary name, is so between the two.
 * Nothing may be allocated meanwhile: running out of memory takes the lock. */
void lock_temporary(void);

/* Ends what lock_temporary() began. */
void unlock_temporary(void);

/* The path that is registered; NULL: none. Called with the lock held. */
const char *registered_temporary(void);

/* Removes what is registered, file or tree, and registers nothing. */
void remove_temporary(void);

/* "lmc: NAME: TEXT" is said when a signal or a lack of memory ends the process; NULL: nothing is
 * any more. Both must outlive the call that unsets them. */
void set_last_words(const char *name, const char *text);
void say_last_words(void);

/* To be called before any other thread is started: all threads inherit the mask. */
void watch_signals(void);

/* A pattern for mkstemp() or mkdtemp() in the directory of path. To be freed. */
char *temporary_name_beside(const char *path);

/* Whether path is, or lies below, a name that temporary_name_beside() gives: an output that is
 * being written, or one that was when lmc was killed. */
int is_temporary_name(const char *path);

/* Creates a file without a name in the directory of path, which goes with its descriptor unless
 * link_unnamed() gives it one. 0 or errno: the system, or this file system, has no such files. */
int open_unnamed(const char *path, int *fd);

/* Gives it a name that is not there yet. 0 or errno. */
int link_unnamed(int fd, const char *path);

/* Gives it a temporary name beside path; *name is the caller's. 0 or errno. */
int link_temporary(const char *path, int fd, const char **name);

/* Creates a temporary file beside path, open as *fd, or a directory if fd is NULL; *name is the
 * caller's. */
int create_temporary(const char *path, int *fd, const char **name);

/* Says which temporary files and directories are beside path that belong to no process any more:
 * kill -9 has left them. They are not removed: to be sure that nobody wants them is the user's. */
void say_left_behind(const char *path);

/* A file without a name, in the directory that TMPDIR names, or in that of a file. It goes whatever
 * happens. Errors are reported. */
int open_scratch(const char *beside, int *fd);

#endif
