/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "names.h"
#include "report.h"

struct dirent *next_entry(DIR *directory, int *error)
{
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry && is_dot(entry->d_name));
    if (!entry && !*error) *error = errno;
    return entry;
}

/* Lets the owner look into a directory and remove what is in it. */
static void open_up(const char *path, const struct stat *st)
{
    if ((st->st_mode & 0700) != 0700)
        (void)!chmod(path,
                     0700); /* what this does not help with fails later, and is reported then */
}

struct entry *add_entry(struct listing *l, const char *path, int is_directory)
{
    struct entry *e;
    if (l->n == l->room) {
        l->room = l->room * 2 + 16;
        l->entries = (struct entry *)resize(l->entries, l->room, sizeof *l->entries);
    }
    e = &l->entries[l->n++];
    e->path = copy_string(path, strlen(path));
    e->is_directory = is_directory;
    e->size = 0;
    return e;
}

void free_listing(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->entries[i].path);
    free(l->entries);
    memset(l, 0, sizeof *l);
}

static int list_directory(struct listing *l, const char *root, const char *path);

/* Links to files count as files. Links to directories do not: they can form a circle. */
static int list_entry(struct listing *l, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st;
    int code = CODE_OK, is_link;
    if (lstat(full, &st) != 0) code = fail_errno(full, errno, "cannot access it");
    is_link = code == CODE_OK && S_ISLNK(st.st_mode);
    if (is_link && stat(full, &st) != 0)
        code = fail_errno(full, errno, "is a link that leads nowhere");
    if (code != CODE_OK)
        ;
    else if (S_ISREG(st.st_mode)) add_entry(l, path, 0)->size = (uint64_t)st.st_size;
    else if (S_ISDIR(st.st_mode) && !is_link) code = list_directory(l, root, path);
    else if (S_ISDIR(st.st_mode))
        code = fail(CODE_ERROR, full,
                    "is a link to a directory, which is not followed; replace it by the directory "
                    "or move it away");
    else code = fail(CODE_ERROR, full, "is neither a file nor a directory; move it away");
    free(full);
    return code;
}

/* The directory names are collected before they are entered: one open descriptor, however deep the
 * tree. */
static int list_directory(struct listing *l, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct listing names;
    DIR *directory = opendir(full);
    struct dirent *entry;
    int code = CODE_OK, error = 0;
    memset(&names, 0, sizeof names);
    if (!directory) {
        code = fail_errno(full, errno, "cannot read the directory");
        free(full);
        return code;
    }
    while ((entry = next_entry(directory, &error)) != NULL) add_entry(&names, entry->d_name, 0);
    if (error) code = fail_errno(full, error, "cannot read the directory");
    closedir(directory);
    add_entry(l, path, 1);
    for (size_t i = 0; i < names.n; i++) {
        char *inner = join_path(path, names.entries[i].path);
        code = worse(code, list_entry(l, root, inner));
        free(inner);
    }
    free_listing(&names);
    free(full);
    return code;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

int list_tree(struct listing *l, const char *root)
{
    int code;
    memset(l, 0, sizeof *l);
    code = list_directory(l, root, "");
    if (l->n) qsort(l->entries, l->n, sizeof *l->entries, compare_entries);
    return code;
}

int open_up_listed(const struct listing *l, const char *root)
{
    for (size_t i = 0; i < l->n; i++) { /* from the top */
        char *path = l->entries[i].is_directory ? try_join_path(root, l->entries[i].path) : NULL;
        struct stat st;
        if (l->entries[i].is_directory && !path) return ENOMEM;
        if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) open_up(path, &st);
        free(path);
    }
    return 0;
}

int remove_listed(const struct listing *l, const char *root, const struct entry **stopped_at)
{
    int error = 0;
    for (size_t i = l->n; i-- > 0 && !error;) {
        const struct entry *e = *stopped_at = &l->entries[i];
        char *path = try_join_path(root, e->path);
        if (!path) return ENOMEM;
        error = (e->is_directory ? rmdir(path) : unlink(path)) == 0 ? 0 : errno;
        free(path);
    }
    return error;
}
