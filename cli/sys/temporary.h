/* temporary.h - the one temporary file or directory, which is removed when the process ends
 * SPDX-License-Identifier: MIT
 *
 * At most one is registered at a time. A special thread waits for the signals that end a process:
 * it takes the lock, keeps it, and removes what is registered. A second signal ends the process
 * even if that cannot be done, and names what is left. Any other thread must hold the lock while it
 * creates or renames something under the temporary name, so at any moment what exists there is
 * registered. Never allocate while holding the lock: running out of memory also takes the lock, and
 * would wait for itself.
 */
#pragma once

#include "platform.h"

#include "spot.h"

/* Between these two calls no signal ends the process, and the temporary is not removed. */
void lock_temporary(void);
void unlock_temporary(void);

/* The path that is registered; NULL: none. Called with the lock held. */
const char *registered_temporary(void);

/* Registers nothing, as what was registered has got its own name. Called with the lock held. */
void forget_temporary(void);

/* What is registered is now this, in the same directory, with that temporary name ("": with the
 * same one). Called with the lock held. */
void change_temporary(const char name[12], const struct stat *seen);

/* Removes what is registered, file or tree, and registers nothing. */
void remove_temporary(void);

/* Sets the message "lmc: NAME: TEXT" if a signal or lack of memory ends lmc. NULL: no message. */
void set_last_words(const char *name, const char *text);

/* The same, called with the lock held. */
void change_last_words(const char *name, const char *text);
void say_last_words(void);

/* To be called before any other thread is started: all threads inherit the mask. */
void watch_signals(void);

/* Creates a file without a name in a directory. It vanishes when it is closed, unless
 * link_unnamed() has named it. 0 or errno: the system, or this file system, has no such files. */
int open_unnamed(int dir, int *fd);

/* Gives such a file a name that does not exist yet. 0 or errno. */
int link_unnamed(int fd, const struct spot *at);

enum temporary_kind { TEMPORARY_FILE, TEMPORARY_DIRECTORY };

/* Creates and registers a temporary file or directory in the directory of a spot, whose path is
 * `path`. *fd: it, open. *name: its path, valid while it is registered. */
int create_temporary(const struct spot *beside, const char *path, enum temporary_kind kind, int *fd,
                     const char **name);

/* Reports that nothing can be created beside path. */
int fail_beside(const char *path, int error, enum temporary_kind kind);

/* Reports temporary files and directories beside path that no process uses any more, as kill -9
 * leaves them. They are not removed: somebody may want them. */
void say_left_behind(const char *path);

/* Opens a file without a name, in the directory TMPDIR, or else in that of `beside`. */
int open_scratch(const char *beside, int *fd);

/* Reports an error of reading or writing a scratch file. */
int fail_scratch(int error);
