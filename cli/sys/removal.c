/* SPDX-License-Identifier: MIT */
#include "removal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tree.h"

/* Where we are, and on the way down to there the directories that are still to be entered:
 *
 *   levels   root       a          b         we are in root/a/b
 *   names  | c d a |  x y b  |  ...  |       of each level those that are left, the last one is the
 *                                            level below
 */
struct level {
    dev_t dev;
    ino_t ino;
    size_t first_name; /* of its own */
};

struct removal {
    int fd;
    dev_t dev; /* other file systems are not entered */
    struct level *levels;
    size_t n_levels, room_for_levels;
    char **names;
    size_t n_names, room_for_names;
    int error; /* the first one */
};

static void keep_error(struct removal *r, int error)
{
    if (!r->error) r->error = error;
}

/* Room for one more; 0 if there is no memory. */
static int has_room(void **list, size_t n, size_t *room, size_t size)
{
    void *more;
    if (n < *room) return 1;
    more = realloc(*list, (*room * 2 + 16) * size);
    if (!more) return 0;
    *list = more;
    *room = *room * 2 + 16;
    return 1;
}

/* Lets the owner look into a directory and remove what is in it. What this does not help with fails
 * later, and is reported then. */
static void unlock_entry(int fd, const char *name, const struct stat *st)
{
    if ((st->st_mode & 0700) != 0700) (void)!fchmodat(fd, name, 0700, 0);
}

/* An entry where we are: removed, or a name for later. */
static void remove_entry(struct removal *r, const char *name)
{
    struct stat st;
    char *copy;
    if (fstatat(r->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) keep_error(r, errno);
    else if (st.st_dev != r->dev) keep_error(r, EBUSY);
    else if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(r->fd, name, 0) != 0) keep_error(r, errno);
    } else if (!has_room((void **)(void *)&r->names, r->n_names, &r->room_for_names,
                         sizeof *r->names) ||
               !(copy = strdup(name))) {
        keep_error(r, ENOMEM);
    } else {
        unlock_entry(r->fd, name, &st);
        r->names[r->n_names++] = copy;
    }
}

/* Goes into the directory of that descriptor, and removes what is no directory. */
static int enter(struct removal *r, int fd)
{
    struct stat st;
    struct dirent *entry;
    DIR *directory = NULL;
    struct level *level;
    int other, error = 0;
    if (fstat(fd, &st) != 0 || !has_room((void **)(void *)&r->levels, r->n_levels,
                                         &r->room_for_levels, sizeof *r->levels)) {
        keep_error(r, ENOMEM);
        close(fd);
        return 0;
    }
    if (r->fd >= 0) close(r->fd);
    r->fd = fd;
    level = &r->levels[r->n_levels++];
    level->dev = st.st_dev;
    level->ino = st.st_ino;
    level->first_name = r->n_names;
    other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (other >= 0) directory = fdopendir(other);
    if (!directory) keep_error(r, errno);
    if (!directory && other >= 0) close(other);
    while (directory && (entry = next_entry(directory, &error)) != NULL)
        remove_entry(r, entry->d_name);
    if (error) keep_error(r, error);
    if (directory) closedir(directory);
    return 1;
}

/* Back to the level above, which must be the one we came from, and removes the directory that we
 * were in. Returns whether that is where we are then. */
static int leave(struct removal *r)
{
    const struct level *above = &r->levels[--r->n_levels - 1];
    struct stat st;
    const int fd = openat(r->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_dev != above->dev || st.st_ino != above->ino) {
        keep_error(r, fd < 0 ? errno : EBUSY);
        if (fd >= 0) close(fd);
        return 0;
    }
    close(r->fd);
    r->fd = fd;
    if (unlinkat(fd, r->names[--r->n_names], AT_REMOVEDIR) != 0) keep_error(r, errno);
    free(r->names[r->n_names]);
    return 1;
}

static void remove_below(struct removal *r)
{
    while (r->n_levels) {
        int fd;
        if (r->n_names == r->levels[r->n_levels - 1].first_name) { /* nothing is left here */
            if (r->n_levels == 1 || !leave(r)) break;
            continue;
        }
        fd = openat(r->fd, r->names[r->n_names - 1],
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) keep_error(r, errno);
        if (fd < 0 || !enter(r, fd)) free(r->names[--r->n_names]); /* it stays */
    }
}

int remove_tree(const char *path)
{
    struct removal r;
    struct stat st;
    int fd;
    if (lstat(path, &st) != 0) return errno;
    if (!S_ISDIR(st.st_mode)) return unlink(path) == 0 ? 0 : errno;
    memset(&r, 0, sizeof r);
    r.fd = -1;
    r.dev = st.st_dev;
    unlock_entry(AT_FDCWD, path, &st);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) r.error = errno;
    else if (enter(&r, fd)) remove_below(&r);
    if (rmdir(path) != 0) keep_error(&r, errno);
    if (r.fd >= 0) close(r.fd);
    while (r.n_names) free(r.names[--r.n_names]);
    free(r.names);
    free(r.levels);
    return r.error;
}
