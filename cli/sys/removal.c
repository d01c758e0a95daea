/* SPDX-License-Identifier: MIT */
#include "removal.h"

#include <sys/file.h>

#include "../../formats/refused.h"
#include "attributes.h"
#include "io.h"
#include "temporary.h"

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* -- removing a listed tree --
 *
 * Entries are taken in the reverse order of their paths: so each directory is entered once, and is
 * empty when its turn comes. One descriptor is open, of the directory of the present entry. On the
 * way up, a directory must be the one from which we came down.
 */
struct descent {
    int fd;
    const char *path; /* of that directory: the first `size` bytes */
    size_t size, depth;
    struct stat *way; /* the directories above it, from the root, and itself */
    char *name;       /* room for any name of the listing */
    char aside[12];   /* the temporary name of the present file; "": none was drawn yet */
    const struct states *states;
};

/* Opens a directory. A directory that was moved away, or is a link now, was changed. */
static int open_step(const struct descent *w, const char *name, int *fd, struct stat *st)
{
    *fd = openat(w->fd, name, DIRECTORY_FLAGS);
    if (*fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? REMOVAL_CHANGED : errno;
    return fstat(*fd, st) == 0 ? 0 : errno;
}

/* Goes to the directory that was opened. */
static int enter(struct descent *w, int fd, int error)
{
    if (error && fd >= 0) close(fd);
    if (error) return error;
    close(w->fd);
    w->fd = fd;
    return 0;
}

static int ascend(struct descent *w)
{
    struct stat st;
    int fd, error = open_step(w, "..", &fd, &st);
    if (!error && !same_file(&st, &w->way[w->depth - 1])) error = REMOVAL_CHANGED;
    error = enter(w, fd, error);
    if (error) return error;
    w->depth--;
    do w->size--;
    while (w->size && w->path[w->size] != '/');
    return 0;
}

/* Goes down by one name of the way to the directory whose path is the first `size` bytes. */
static int descend(struct descent *w, const char *path, size_t size)
{
    const size_t begin = w->size + (w->size != 0);
    size_t end = begin;
    struct stat st;
    int fd;
    while (end < size && path[end] != '/') end++;
    memcpy(w->name, path + begin, end - begin);
    w->name[end - begin] = 0;
    if (!w->states && fstatat(w->fd, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        open_up(w->fd, w->name, &st);
    int error = open_step(w, w->name, &fd, &st);
    if (!error && w->states && !is_in_state(w->states, path, end, &st)) error = REMOVAL_CHANGED;
    error = enter(w, fd, error);
    if (error) return error;
    w->way[++w->depth] = st;
    w->path = path;
    w->size = end;
    return 0;
}

/* Whether the directory where we are is the one with that path, or is above it. */
static int is_on_the_way(const struct descent *w, const char *path, size_t size)
{
    return w->size == 0 || (w->size <= size && memcmp(w->path, path, w->size) == 0 &&
                            (w->size == size || path[w->size] == '/'));
}

/* Whether what was moved to this name is what was compared under its old one. Its inode may be
 * another one: some file systems by FUSE number names. */
static int is_compared(int at, const char *name, const struct stat *before)
{
    struct stat now;
    return fstatat(at, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           (now.st_mode & S_IFMT) == (before->st_mode & S_IFMT) && same_version(before, &now);
}

/* Removes a file that was compared. Between comparing and removing, another program may give its
 * name to another file. So it first gets a temporary name, which nobody else knows:
 *
 *     compare NAME  ->  rename it to .lmc-XXXXXX  ->  compare that  ->  remove that
 */
static int remove_compared(struct descent *w, const char *name, const struct stat *before)
{
    int error = *w->aside ? move_below(w->fd, name, w->aside, 0) : EEXIST;
    while (error == EEXIST) {
        draw_temporary_name(w->aside);
        error = move_below(w->fd, name, w->aside, 0);
    }
    if (error) return unlinkat(w->fd, name, 0) == 0 ? 0 : errno; /* it cannot be renamed */
    if (!is_compared(w->fd, w->aside, before)) error = REMOVAL_CHANGED;
    else if (unlinkat(w->fd, w->aside, 0) != 0) error = errno;
    if (error) (void)move_below(w->fd, w->aside, name, 1);
    return error;
}

static int remove_entry(struct descent *w, const struct entry *e)
{
    const char *name = base_name(e->path);
    const size_t size = (size_t)(name - e->path);
    struct stat st;
    int error = 0;
    while (!error && !is_on_the_way(w, e->path, size ? size - 1 : 0)) error = ascend(w);
    while (!error && w->size < (size ? size - 1 : 0)) error = descend(w, e->path, size - 1);
    if (error) return error;
    if (w->states && !e->is_directory) {
        if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !is_in_state(w->states, e->path, strlen(e->path), &st))
            return REMOVAL_CHANGED;
        error = remove_compared(w, name, &st);
        return error == ENOENT ? REMOVAL_CHANGED : error;
    }
    if (unlinkat(w->fd, name, e->is_directory ? AT_REMOVEDIR : 0) == 0) return 0;
    return errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT ? REMOVAL_CHANGED : errno;
}

/* Makes room for the deepest entry and for the longest name. */
static int prepare(struct descent *w, const struct listing *l)
{
    size_t deepest = 0, longest = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t depth = 0, size = 0;
        for (const char *p = l->entries[i].path; *p; p++) {
            depth += *p == '/';
            size = *p == '/' ? 0 : size + 1;
        }
        deepest = depth > deepest ? depth : deepest;
        longest = size > longest ? size : longest;
    }
    w->way = (struct stat *)malloc((deepest + 1) * sizeof *w->way);
    w->name = (char *)malloc(longest + 1);
    return w->way && w->name ? 0 : ENOMEM;
}

int remove_listed(const struct listing *l, int root, const struct states *states,
                  const struct entry **stopped_at)
{
    struct descent w = {0};
    int error = prepare(&w, l);
    *stopped_at = NULL;
    w.states = states;
    w.path = "";
    w.fd = error ? -1 : openat(root, ".", DIRECTORY_FLAGS);
    if (!error && (w.fd < 0 || fstat(w.fd, &w.way[0]) != 0)) error = errno;
    for (size_t i = l->n; i && i-- && !error;)
        if (*l->entries[i].path) {
            error = remove_entry(&w, &l->entries[i]);
            *stopped_at = &l->entries[i];
        }
    if (w.fd >= 0) close(w.fd);
    free(w.way);
    free(w.name);
    return error;
}

/* -- sources -- */

struct removal {
    const char *path, *name; /* the last part of the path */
    const struct listing *l; /* NULL: a file */
    const struct states *states;
    const char *snapshot;
    int parent;     /* the directory that it is in */
    char aside[12]; /* its temporary name there; "": it has its own */
    char *where;    /* the path of what is left of it */
    char *mark;     /* the side file; NULL: none */
    char *words;    /* what a signal says */
};

/* Why what is left of the source may be removed. To be freed. */
static char *describe_kept(const struct removal *r)
{
    return r->snapshot ? format_text("its snapshot %.300s has all of it", r->snapshot)
                       : copy_text("all of it is restored");
}

/* Gives the source a temporary name. From then on, a signal that ends lmc says what is left. */
static int move_aside(struct removal *r)
{
    char *directory = directory_of(r->path), *kept = describe_kept(r), name[12];
    int error;
    do {
        draw_temporary_name(name);
        free(r->where);
        free(r->words);
        r->where = join_path(directory, name);
        r->words =
            format_text("is being removed; what is left of it is %.300s, which can be removed, "
                        "too: %s",
                        r->where, kept);
        lock_temporary();
        error = move_below(r->parent, r->name, name, 0);
        if (!error) change_last_words(r->path, r->words);
        unlock_temporary();
    } while (error == EEXIST);
    if (!error) memcpy(r->aside, name, sizeof name);
    free(kept);
    free(directory);
    return error;
}

/* Gives a source that is whole its own name again. */
static int put_back(struct removal *r)
{
    int error = 0;
    lock_temporary();
    if (r->mark) error = unlinkat(r->parent, base_name(r->mark), 0) == 0 ? 0 : errno;
    else if (*r->aside) error = move_below(r->parent, r->aside, r->name, 1);
    if (!error) change_last_words(NULL, NULL);
    unlock_temporary();
    return error;
}

/* Makes the side file of a directory that cannot be renamed. From then on, a signal names it. */
static int make_mark(struct removal *r)
{
    char *mark = name_removal_mark(r->path), *kept = describe_kept(r);
    free(r->where);
    free(r->words);
    r->where = copy_text(r->path);
    r->words =
        format_text("is being removed; remove what is left of it, and then %.300s: %s", mark, kept);
    free(kept);
    lock_temporary();
    const int fd =
        openat(r->parent, base_name(mark), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int error = fd < 0 ? errno : 0;
    if (!error) change_last_words(r->path, r->words);
    unlock_temporary();
    if (fd >= 0) close(fd);
    if (error) free(mark);
    else r->mark = mark;
    return error;
}

/* Whether a directory cannot be renamed here, though its user may do it. */
static int is_no_rename(int error)
{
    return error == EXDEV || (error != EPERM && is_refused(CALL_RENAME, error));
}

static int open_root(const struct removal *r, struct stat *st, int *error)
{
    const int fd = openat(r->parent, r->name, DIRECTORY_FLAGS);
    if (fd < 0 || fstat(fd, st) != 0) *error = errno;
    else if (!is_in_state(r->states, "", 0, st)) *error = REMOVAL_CHANGED;
    else (void)!flock(fd, LOCK_EX | LOCK_NB); /* it is not left behind by a killed lmc */
    return fd;
}

/* The new name of the source may not be on the disk. */
#define REMOVAL_NOT_SYNCED (-2)

/* *is_whole: nothing was removed. */
static int remove_directory(struct removal *r, const struct entry **stopped_at, int *is_whole)
{
    struct stat st, now;
    int error = 0, root = open_root(r, &st, &error);
    if (!error) error = move_aside(r);
    if (is_no_rename(error)) error = make_mark(r);
    if (!error && *r->aside &&
        (fstatat(r->parent, r->aside, &now, AT_SYMLINK_NOFOLLOW) != 0 || !same_file(&st, &now)))
        error = REMOVAL_CHANGED;
    /* Else a crash may bring back the name, and below it only what is left. The output's syncs do
     * not tell whether this can be done: the source may be on another file system. */
    if (!error) error = sync_directory_at(r->parent);
    if (!error && find_refused_sync()) error = REMOVAL_NOT_SYNCED;
    if (!error) {
        error = remove_listed(r->l, root, r->states, stopped_at);
        *is_whole = !*stopped_at || (error && *stopped_at == &r->l->entries[r->l->n - 1]);
    }
    if (root >= 0) close(root);
    if (error) return error;
    *stopped_at = NULL;
    if (unlinkat(r->parent, *r->aside ? r->aside : r->name, AT_REMOVEDIR) != 0)
        return errno == ENOTEMPTY || errno == EEXIST ? REMOVAL_CHANGED : errno;
    *is_whole = 0;
    return r->mark && unlinkat(r->parent, base_name(r->mark), 0) != 0 ? errno : 0;
}

/* A file that cannot be renamed is removed under its own name, which is one step, too. */
static int remove_file(struct removal *r)
{
    struct stat st;
    if (fstatat(r->parent, r->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno;
    if (!is_in_state(r->states, "", 0, &st)) return REMOVAL_CHANGED;
    const int is_moved = move_aside(r) == 0;
    const char *name = is_moved ? r->aside : r->name;
    if (is_moved && !is_compared(r->parent, name, &st)) return REMOVAL_CHANGED;
    return unlinkat(r->parent, name, 0) == 0 ? 0 : errno;
}

/* A directory that cannot be emptied is found before anything is removed. */
static int check_removable(const struct removal *r)
{
    const char *last = NULL;
    size_t last_size = 0;
    struct stat top, st;
    int code = CODE_OK;
    if (!*r->name || is_dot(r->name))
        return fail(CODE_ERROR, r->path, "is not removed: only a directory that is named can be");
    if (lstat(r->path, &top) != 0) return CODE_OK; /* later steps report it */
    for (size_t i = 0; r->l && i < r->l->n && code == CODE_OK; i++) {
        const struct entry *e = &r->l->entries[i];
        const size_t size = (size_t)(base_name(e->path) - e->path);
        char *full = join_path(r->path, e->path), *directory;
        if (lstat(full, &st) == 0 && is_mounted(full, &st, &top))
            code =
                fail(CODE_ERROR, full, "is a mount point, so nothing is removed; unmount it first");
        free(full);
        if (!*e->path || (last && size == last_size && memcmp(last, e->path, size) == 0)) continue;
        last = e->path;
        last_size = size;
        directory = copy_string(e->path, size ? size - 1 : 0);
        full = join_path(r->path, directory);
        if (code == CODE_OK && access(full, W_OK | X_OK) != 0)
            code = fail_errno(full, errno, "what is in it cannot be removed, so nothing is");
        free(directory);
        free(full);
    }
    return code;
}

static int fail_changed_source(const struct removal *r, const char *more)
{
    return r->snapshot
               ? fail(CODE_ERROR, r->path,
                      "was changed meanwhile, and is not removed; its snapshot, as it was before, "
                      "is kept as %.300s%s",
                      r->snapshot, more)
               : fail(CODE_ERROR, r->path, "was changed meanwhile, and is not removed%s", more);
}

int check_unchanged(const char *path, const struct look *before, const char *snapshot,
                    struct states *states)
{
    const struct look k = look_at_states(path, states);
    const struct removal r = {.path = path, .snapshot = snapshot};
    if (!k.is_whole || k.digest != before->digest) return fail_changed_source(&r, "");
    if (!k.is_written) return CODE_OK;
    return fail(CODE_ERROR, path,
                "is open for writing by another program, and is not removed%s%.300s",
                snapshot ? "; its snapshot is kept as " : "", snapshot ? snapshot : "");
}

/* Reports that the source, or what is left of it, stays. */
static int fail_removal(struct removal *r, int error, const struct entry *stopped_at, int is_whole)
{
    const int is_back = is_whole && put_back(r) == 0;
    const char *now = is_back || !r->where ? r->path : r->where;
    char *kept = describe_kept(r), *full = join_path(now, stopped_at ? stopped_at->path : "");
    char *more = is_back ? copy_text("") : format_text("; it is now %.300s", now);
    int code;
    if (is_whole && error == REMOVAL_CHANGED) code = fail_changed_source(r, more);
    else if (is_whole && error == REMOVAL_NOT_SYNCED)
        code = fail(CODE_ERROR, r->path,
                    "is not removed, as its file system refuses to sync it (%s), so a crash might "
                    "leave a part of it; remove it yourself%s: %s",
                    strerror(find_refused_sync()), more, kept);
    else if (is_whole)
        code = fail(CODE_ERROR, full, "cannot remove it: %s%s", strerror(error), more);
    else if (error == REMOVAL_CHANGED)
        code = fail(CODE_ERROR, r->path,
                    "was changed while it was removed: %.300s stays, with what else is left in "
                    "%.300s; of what was there before, %s",
                    full, now, kept);
    else
        code = fail(CODE_ERROR, r->path,
                    "is not removed as a whole: %.300s: %s; remove what is left yourself, "
                    "%.300s%s%.300s: %s",
                    full, strerror(error), now, r->mark ? ", and then " : "",
                    r->mark ? r->mark : "", kept);
    free(full);
    free(kept);
    free(more);
    return code;
}

int remove_source(const char *path, const struct listing *l, const struct states *states,
                  const char *snapshot)
{
    struct removal r = {.path = path, .l = l, .states = states, .snapshot = snapshot};
    const struct entry *stopped_at = NULL;
    struct spot at;
    int is_whole = 1, error, code;
    r.name = base_name(path);
    code = check_removable(&r);
    if (code != CODE_OK) return code;
    error = open_spot(&at, path);
    if (error) return fail_errno(path, error, "cannot open the directory that it is in");
    r.parent = at.dir;
    error = l ? remove_directory(&r, &stopped_at, &is_whole) : remove_file(&r);
    if (error) code = fail_removal(&r, error, stopped_at, is_whole);
    set_last_words(NULL, NULL);
    close_spot(&at);
    free(r.where);
    free(r.words);
    free(r.mark);
    return code;
}

char *name_removal_mark(const char *path) { return name_side_file(path, REMOVAL_SUFFIX); }
