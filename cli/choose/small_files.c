/* SPDX-License-Identifier: MIT */
#include "small_files.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "members.h"
#include "../input/archive.h"

/* Bytes: what the library takes for small is less than a block. */
#define SMALL_FILE_SIZE ((uint64_t)1 << 17)

static int is_small(const struct members *m, const struct member *member)
{
    if (member->n_tensors) return 0;
    if (m->archive)
        return lmc_reader_get_file(m->archive->reader, member->number)->size < SMALL_FILE_SIZE;
    return S_ISDIR(member->st.st_mode) ||
           (S_ISREG(member->st.st_mode) && (uint64_t)member->st.st_size < SMALL_FILE_SIZE);
}

/* A file in a group saves some 150 bytes, and a snapshot with groups needs a decoder of the highest
 * level. A model's few configuration files are not worth that. */
enum { LEAST_FILES = 24 };

int has_small_files(const struct members *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n && n < LEAST_FILES; i++) n += is_small(m, &m->list[i]) != 0;
    return n == LEAST_FILES;
}

/* What is behind the last dot of a file's name, which stands for its kind; or "". */
static const char *kind_of(const char *path)
{
    const char *name = strrchr(path, '/'), *dot;
    name = name ? name + 1 : path;
    dot = strrchr(name, '.');
    return dot && dot != name ? dot : "";
}

/* Directories come before files: they have no kind, and no bytes. */
static int compare_small(const void *a, const void *b)
{
    const struct member *x = (const struct member *)a, *y = (const struct member *)b;
    const int x_is_file = S_ISREG(x->st.st_mode), y_is_file = S_ISREG(y->st.st_mode);
    int order = x_is_file - y_is_file;
    if (order == 0 && x_is_file) order = strcmp(kind_of(x->path), kind_of(y->path));
    return order ? order : strcmp(x->path, y->path);
}

void order_members(struct members *m)
{
    struct member *sorted;
    size_t n_small = 0, n = 0;
    if (!has_small_files(m)) return;
    sorted = (struct member *)malloc(m->n * sizeof *sorted);
    if (!sorted) return; /* it is only a matter of size */
    for (size_t i = 0; i < m->n; i++)
        if (is_small(m, &m->list[i])) sorted[n_small++] = m->list[i];
    n = n_small;
    for (size_t i = 0; i < m->n; i++)
        if (!is_small(m, &m->list[i])) sorted[n++] = m->list[i];
    qsort(sorted, n_small, sizeof *sorted, compare_small);
    memcpy(m->list, sorted, m->n * sizeof *sorted);
    free(sorted);
}
