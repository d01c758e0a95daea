/* restored_links.c - links below a directory that lmc has made (restored_tree.h)
 * SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include "../../formats/refused.h"
#include "../input/links.h"
#include "../sys/io.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

static int fail_link(const struct link *l, const char *name, int error)
{
    /* These errors can occur though the list was checked: the file system may treat two names as
     * one (upper and lower case, forms of Unicode), or refuse a name. */
    if (error == ELOOP || error == ENOTDIR || error == EEXIST || error == ENOENT || error == EISDIR)
        return fail(CODE_CORRUPT, name,
                    "has a link '%.300s' where there is a file, or below another link, so it is "
                    "damaged or forged",
                    l->path);
    if (is_refused(CALL_SYMLINK, error))
        return fail(CODE_ERROR, l->path,
                    "cannot make the link: %s; a file system without symbolic links can hold what "
                    "they lead to: lmc -d --dereference -o DIR/ %.300s '*'",
                    strerror(error), is_dash(name) ? "FILE" : name);
    return fail_errno(l->path, error, "cannot make the link");
}

/* Compares the bytes of two open files. Returns 0 or errno. */
static int compare_files(int a, int b, int *is_same)
{
    unsigned char *first = (unsigned char *)resize(NULL, BUFFER_SIZE, 2),
                  *second = first + BUFFER_SIZE;
    size_t n = BUFFER_SIZE, m = BUFFER_SIZE;
    int error = 0;
    *is_same = 1;
    while (!error && *is_same && n == BUFFER_SIZE) {
        error = read_full(a, first, BUFFER_SIZE, &n);
        if (!error) error = read_full(b, second, BUFFER_SIZE, &m);
        *is_same = !error && n == m && memcmp(first, second, n) == 0;
    }
    free(first);
    return error;
}

/* Makes `to` a name of the file `from`, or leaves it unchanged. Returns 0 or errno. */
static int replace_by_link(int from_at, const char *from, int to_at, const char *to)
{
    char name[] = ".lmc-000000"; /* of the form that is_temporary_name() accepts */
    int error = EEXIST;
    lock_temporary();
    for (unsigned i = 0; i < 1000000 && error == EEXIST; i++) {
        snprintf(name, sizeof name, ".lmc-%06u", i);
        error = linkat(from_at, from, to_at, name, 0) == 0 ? 0 : errno;
    }
    if (!error && renameat(to_at, name, to_at, to) != 0) {
        error = errno;
        (void)unlinkat(to_at, name, 0);
    }
    unlock_temporary();
    return error;
}

/* Turns two equal files below an open directory into one file with two names. If its file system
 * has no hard links, they stay two files. name: of the snapshot. */
static int make_hard_link(int root, const struct link *l, const char *name)
{
    const char *const from_name = base_name(l->target), *const to_name = base_name(l->path);
    int from_at = open_parent(root, l->target, 0), to_at = open_parent(root, l->path, 0);
    const int flags = O_RDONLY | O_NOFOLLOW;
    int a = from_at < 0 ? -1 : open_file(from_at, from_name, flags);
    int b = to_at < 0 ? -1 : open_file(to_at, to_name, flags);
    int error = a < 0 || b < 0 ? errno : 0, is_same = 0, code = CODE_OK;
    if (!error) error = compare_files(a, b, &is_same);
    if (!error && is_same) error = replace_by_link(from_at, from_name, to_at, to_name);
    if (error && !is_refused(CALL_LINK, error)) code = fail_link(l, name, error);
    else if (!error && !is_same)
        code = fail(CODE_CORRUPT, name,
                    "says that '%.300s' and '%.300s' are one file, but they "
                    "differ, so it is damaged or forged",
                    l->path, l->target);
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    if (from_at >= 0) close(from_at);
    if (to_at >= 0) close(to_at);
    return code;
}

static int make_symbolic_link(int root, const struct link *l, const char *name)
{
    int fd = open_parent(root, l->path, 1), error = fd < 0 ? errno : 0;
    lock_temporary();
    if (fd >= 0 && symlinkat(l->target, fd, base_name(l->path)) != 0) error = errno;
    unlock_temporary();
    if (fd >= 0) close(fd);
    return error ? fail_link(l, name, error) : CODE_OK;
}

int make_links(int root, const struct links *l, const char *name)
{
    int code = CODE_OK;
    for (int is_hard = 1; is_hard >= 0; is_hard--)
        for (size_t i = 0; i < l->n && code == CODE_OK; i++)
            if ((l->list[i].type == LINK_HARD) == is_hard)
                code = is_hard ? make_hard_link(root, &l->list[i], name)
                               : make_symbolic_link(root, &l->list[i], name);
    return code;
}

/* Removes a symbolic link that the snapshot does not have, or has with another target. */
static int remove_old_link(int root, const struct entry *e, const struct links *l,
                           size_t *n_changed)
{
    const struct link *wanted = find_link_record(l, e->path);
    if (wanted && wanted->type == LINK_SYMBOLIC && strcmp(wanted->target, e->link) == 0)
        return CODE_OK;
    *n_changed += !wanted; /* else the link will be made again */
    int fd = open_parent(root, e->path, 0);
    int error = fd >= 0 && unlinkat(fd, base_name(e->path), 0) == 0 ? 0 : errno;
    if (fd >= 0) close(fd);
    return error ? fail_errno(e->path, error, "cannot remove the link") : CODE_OK;
}

int check_old_links(const char *root, const struct links *l, const struct links *before,
                    lmc_reader *reader, const char *name)
{
    struct listing old;
    size_t number;
    int code = list_tree(&old, root, LINKS_KEEP, 0);
    for (size_t i = 0; i < old.n && code == CODE_OK; i++) {
        const struct entry *e = &old.entries[i];
        if (e->link && lmc_reader_find_file(reader, e->path, &number) != LMC_OK &&
            !find_link_record(l, e->path) && !find_link_record(before, e->path)) {
            char *full = join_path(root, e->path);
            code =
                fail(CODE_ERROR, full,
                     "is a link that %.300s does not have, so it would be removed; move it away, "
                     "or use -f to have it removed; nothing was changed",
                     name);
            free(full);
        }
    }
    free_listing(&old);
    return code;
}

int update_links(int fd, const char *root, const struct links *l, lmc_reader *reader,
                 const char *name, size_t *n_changed)
{
    struct listing old;
    size_t number;
    int code = list_tree(&old, root, LINKS_KEEP, 0);
    for (size_t i = 0; i < old.n && code == CODE_OK; i++)
        if (old.entries[i].link &&
            lmc_reader_find_file(reader, old.entries[i].path, &number) != LMC_OK)
            code = remove_old_link(fd, &old.entries[i], l, n_changed);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++) {
        struct stat st;
        if (l->list[i].type != LINK_SYMBOLIC || look_below(fd, l->list[i].path, &st) == 0) continue;
        code = make_symbolic_link(fd, &l->list[i], name);
        ++*n_changed;
    }
    free_listing(&old);
    return code;
}
