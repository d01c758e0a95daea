/* SPDX-License-Identifier: MIT */
#include "series_open.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/common.h"
#include "../sys/io.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"
#include "series_manifest.h"
#include "series.h"

/* -- locks: who changes the series has one byte of .lock for itself; another one is shared by all
 * who read, and taken by gc while it changes or removes files that count. They belong to what was
 * opened, where the system can (OFD): those of POSIX go when the process closes any descriptor of
 * the file, and a source may have a hard link to .lock -- */

int set_lock(const struct series *s, enum lock which, int command, short type)
{
    struct flock lock;
    int result;
#ifdef F_OFD_SETLK
    command = command == F_SETLKW ? F_OFD_SETLKW : F_OFD_SETLK;
#endif
    memset(&lock, 0, sizeof lock);
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = which;
    lock.l_len = 1;
    do result = fcntl(s->lock_fd, command, &lock);
    while (result != 0 && errno == EINTR);
#ifdef F_OFD_SETLK
    if (result != 0 && errno == EINVAL) { /* a system without them */
        command = command == F_OFD_SETLKW ? F_SETLKW : F_SETLK;
        do result = fcntl(s->lock_fd, command, &lock);
        while (result != 0 && errno == EINTR);
    }
#endif
    return result == 0 ? 0 : errno;
}

int take_lock(const struct series *s, enum lock which, short type)
{
    int error = set_lock(s, which, F_SETLK, type);
    if (error != EAGAIN && error != EACCES) return error;
    if (s->o->common.verbosity > 0)
        say(s->directory, type == F_RDLCK         ? "gc is at work here; waiting"
                          : which == LOCK_CHANGES ? "another lmc changes the series; waiting"
                                                  : "the series is being read; waiting");
    return set_lock(s, which, F_SETLKW, type);
}

static int lock_for_changes(struct series *s)
{
    char *path = join_path(s->directory, LOCK_NAME);
    int error, code = CODE_OK;
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    error = s->lock_fd < 0 ? errno : take_lock(s, LOCK_CHANGES, F_WRLCK);
    if (error) code = fail_errno(path, error, "cannot lock it");
    free(path);
    return code;
}

/* Where there is no locking, nothing can be changed either. */
static void lock_for_reading(struct series *s)
{
    char *path = join_path(s->directory, LOCK_NAME);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (s->lock_fd < 0) s->lock_fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    free(path);
    if (s->lock_fd >= 0) take_lock(s, LOCK_READERS, F_RDLCK);
}

/* -- what a kill left behind -- */

int remove_temporaries(const struct series *s)
{
    DIR *d = opendir(s->directory);
    struct dirent *entry;
    int code = CODE_OK, error = 0;
    if (!d) return fail_errno(s->directory, errno, "cannot read the directory");
    while ((entry = next_entry(d, &error)) != NULL) {
        char *path =
            is_temporary_name(entry->d_name) ? join_path(s->directory, entry->d_name) : NULL;
        struct stat st;
        if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && unlink(path) != 0)
            code = fail_errno(path, errno, "cannot remove it");
        free(path);
    }
    closedir(d);
    return error ? fail_errno(s->directory, error, "cannot read the directory") : code;
}

/* Snapshots that were not confirmed go, as if they had not been begun: whoever adds removes no
 * source before. Nobody is adding: we have the lock. */
static int undo_unfinished(struct series *s)
{
    int code = remove_temporaries(s), n = 0, error;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (s->list[i].state == STATE_ADDING) {
            n++;
            if (unlink(s->list[i].path) != 0 && errno != ENOENT)
                code = fail_errno(s->list[i].path, errno, "cannot remove it");
        }
    if (n == 0 || code != CODE_OK) return code;
    error = sync_directory_of(s->manifest_path);
    if (error) return fail_errno(s->directory, error, "cannot bring it to the disk");
    drop_entries(s, STATE_ADDING);
    return save_manifest(s);
}

/* -- opening -- */

void close_series(struct series *s)
{
    free_list(s);
    free(s->manifest_path);
    if (s->lock_fd >= 0) close(s->lock_fd); /* which unlocks */
    s->lock_fd = -1;
}

/* A new directory is on the disk when the one above it is, and must be before a source goes. */
static int sync_parent(const char *directory)
{
    char *sibling = join_path(directory, "../" MANIFEST_NAME);
    int error = sync_directory_of(sibling);
    free(sibling);
    return error ? fail_errno(directory, error, "cannot bring it to the disk") : CODE_OK;
}

int open_series(struct series *s, const char *directory, enum purpose purpose,
                const struct series_options *o)
{
    struct stat st;
    int is_there, code;
    memset(s, 0, sizeof *s);
    s->directory = directory;
    s->o = o;
    s->lock_fd = -1;
    s->every = DEFAULT_EVERY;
    s->manifest_path = path_in_series(directory, MANIFEST_NAME, "");
    if (purpose == TO_CREATE && mkdir(directory, 0777) != 0 && errno != EEXIST)
        return fail_errno(directory, errno, "cannot create the directory");
    if (stat(directory, &st) != 0) return fail_errno(directory, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, directory, "is no directory, and a series is one");
    is_there = lstat(s->manifest_path, &st) == 0 || errno != ENOENT;
    if (!is_there && (purpose < TO_CREATE || (purpose == TO_CREATE && holds_snapshots(directory))))
        return fail_no_manifest(s);
    if (purpose == TO_READ) lock_for_reading(s);
    else if ((code = lock_for_changes(s)) != CODE_OK) return code;
    is_there = lstat(s->manifest_path, &st) == 0 ||
               errno != ENOENT; /* another one may have begun the series meanwhile */
    if (purpose == TO_CREATE && !is_there) return sync_parent(directory);
    if (purpose == TO_REBUILD) return CODE_OK;
    code = load_manifest(s);
    return code == CODE_OK && purpose != TO_READ ? undo_unfinished(s) : code;
}
