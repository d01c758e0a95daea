/* SPDX-License-Identifier: MIT */
#include "source_links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "links.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/tree.h"

/* A file that has several names, some of which may lie elsewhere. */
struct shared {
    dev_t device;
    ino_t inode;
    size_t number; /* in the listing */
};

static int compare_shared(const void *a, const void *b)
{
    const struct shared *x = (const struct shared *)a, *y = (const struct shared *)b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* first[i]: of entry i, the first in the listing that is the same file, or i itself. */
static void find_shared(size_t *first, const struct listing *l, const char *root)
{
    struct shared *list = (struct shared *)resize(NULL, l->n, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        char *full;
        struct stat st;
        first[i] = i;
        if (l->entries[i].is_directory || l->entries[i].link) continue;
        full = join_path(root, l->entries[i].path);
        if (lstat(full, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1) {
            list[n].device = st.st_dev;
            list[n].inode = st.st_ino;
            list[n++].number = i;
        }
        free(full);
    }
    if (n) qsort(list, n, sizeof *list, compare_shared);
    for (size_t i = 1; i < n; i++)
        if (list[i].device == list[i - 1].device && list[i].inode == list[i - 1].inode)
            first[list[i].number] = first[list[i - 1].number];
    free(list);
}

void collect_links(struct links *links, const struct listing *l, const char *root)
{
    size_t *first = (size_t *)resize(NULL, l->n, sizeof *first);
    find_shared(first, l, root);
    for (size_t i = 0; i < l->n; i++)
        if (l->entries[i].link)
            add_link_record(links, LINK_SYMBOLIC, l->entries[i].path, l->entries[i].link);
        else if (first[i] != i)
            add_link_record(links, LINK_HARD, l->entries[i].path, l->entries[first[i]].path);
    free(first);
}
