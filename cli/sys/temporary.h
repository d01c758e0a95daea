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

/* Called with the lock held. Frees the old path, and owns the new one (NULL: none). */
void register_temporary(char *path);

/* Between these two calls no signal ends the process, and the temporary is not removed. */
void lock_temporary(void);
void unlock_temporary(void);

/* The path that is registered; NULL: none. Called with the lock held. */
const char *registered_temporary(void);

/* Removes what is registered, file or tree, and registers nothing. */
void remove_temporary(void);

/* Sets the message "lmc: NAME: TEXT" if a signal or lack of memory ends lmc. NULL: no message. */
void set_last_words(const char *name, const char *text);

/* The same, called with the lock held. */
void change_last_words(const char *name, const char *text);
void say_last_words(void);

/* To be called before any other thread is started: all threads inherit the mask. */
void watch_signals(void);

/* A pattern for mkstemp() or mkdtemp() in the directory of path. To be freed. */
char *temporary_name_beside(const char *path);

/* Draws a name like those. Does not allocate. */
void draw_temporary_name(char name[12]);

/* Whether path, or a directory above it, has a name like those of temporary_name_beside(). */
int is_temporary_name(const char *path);

/* Creates a file without a name in the directory of path. It vanishes when it is closed, unless
 * link_unnamed() has named it. 0 or errno: the system, or this file system, has no such files. */
int open_unnamed(const char *path, int *fd);

/* Gives such a file a name that does not exist yet. 0 or errno. */
int link_unnamed(int fd, const char *path);

/* Creates and registers beside path a temporary file, open as *fd, or a directory (fd NULL). */
int create_temporary(const char *path, int *fd, const char **name);

/* Reports temporary files and directories beside path that no process uses any more, as kill -9
 * leaves them. They are not removed: somebody may want them. */
void say_left_behind(const char *path);

/* Opens a file without a name, in the directory TMPDIR, or else in that of `beside`. */
int open_scratch(const char *beside, int *fd);

/* Reports an error of reading or writing a scratch file. */
int fail_scratch(int error);
