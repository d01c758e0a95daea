/* SPDX-License-Identifier: MIT */
#include "catalog.h"

#include "base.h"
#include "options.h"
#include "../sys/attributes.h"
#include "../sys/tree.h"

/* -- the list -- */

const struct catalog_entry *enter_snapshot(struct catalog *p, const char *path, int is_given,
                                           size_t number)
{
    struct catalog_entry e = {0}, *added;
    lmc_snapshot_info info;
    if (probe_snapshot(path, &info) != LMC_OK) return NULL;
    memcpy(e.fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(e.wanted, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    e.is_delta = info.has_base;
    e.path = copy_text(path);
    e.is_given = is_given;
    e.number = number;
    added = (struct catalog_entry *)append(&p->list, &p->n, &p->cap, sizeof *p->list);
    *added = e;
    p->n_sorted = 0;
    return added;
}

void enter_snapshots(struct catalog *p, const char *directory)
{
    struct listing l;
    for (size_t i = 0; i < p->n_directories; i++)
        if (strcmp(p->directories[i], directory) == 0) return;
    p->directories =
        (char **)resize((void *)p->directories, p->n_directories + 1, sizeof *p->directories);
    p->directories[p->n_directories++] = copy_text(directory);
    (void)list_names(&l, directory);
    if (l.n) qsort(l.entries, l.n, sizeof *l.entries, compare_numbered);
    for (size_t i = 0; i < l.n; i++) {
        if (!has_suffix(l.entries[i].path)) continue;
        char *path = strcmp(directory, ".") == 0 ? copy_text(l.entries[i].path)
                                                 : join_path(directory, l.entries[i].path);
        (void)enter_snapshot(p, path, 0, p->n);
        free(path);
    }
    free_listing(&l);
}

int contains_snapshots(const char *directory, int is_all)
{
    struct listing l;
    size_t n = 0, n_others = 0;
    const int error = list_names(&l, directory);
    for (size_t i = 0; i < l.n; i++) {
        const char *const name = l.entries[i].path;
        if (name[0] == '.') continue;
        if (has_suffix(name)) n++;
        else n_others += strcmp(name, "series.json") != 0;
    }
    free_listing(&l);
    errno = error;
    return n != 0 && (!is_all || n_others == 0);
}

static int compare_entries(const void *a, const void *b)
{
    const struct catalog_entry *x = (const struct catalog_entry *)a,
                               *y = (const struct catalog_entry *)b;
    int order = memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    if (order) return order;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    if (x->is_given != y->is_given) return x->is_given ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void sort_catalog(struct catalog *p)
{
    struct link_of_chain *links = (struct link_of_chain *)resize(NULL, p->n + 1, sizeof *links);
    for (size_t i = 0; i < p->n; i++) {
        links[i].fingerprint = p->list[i].fingerprint;
        links[i].wanted = p->list[i].is_delta ? p->list[i].wanted : NULL;
    }
    if (!measure_depths(links, p->n)) check_memory(NULL);
    for (size_t i = 0; i < p->n; i++) p->list[i].depth = links[i].depth;
    free(links);
    if (p->n) qsort(p->list, p->n, sizeof *p->list, compare_entries);
    p->n_sorted = p->n;
}

struct catalog_entry *find_entries(struct catalog *p, const uint8_t *fingerprint, size_t *n)
{
    size_t low;
    if (p->n_sorted < p->n) sort_catalog(p);
    FIND_FIRST(low, p->n, memcmp(p->list[low].fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) < 0);
    for (*n = 0; low + *n < p->n && same_fingerprint(p->list[low + *n].fingerprint, fingerprint);)
        ++*n;
    return *n ? &p->list[low] : NULL;
}

void free_catalog(struct catalog *p)
{
    for (size_t i = 0; i < p->n; i++) free(p->list[i].path);
    for (size_t i = 0; i < p->n_directories; i++) free(p->directories[i]);
    free(p->list);
    free((void *)p->directories);
    memset(p, 0, sizeof *p);
}

/* -- the candidates of a command -- */

void add_search(struct bases *bases, const char *directory)
{
    for (size_t i = 0; i < bases->n_search; i++)
        if (strcmp(bases->search[i], directory) == 0) return;
    bases->search =
        (const char **)resize((void *)bases->search, bases->n_search + 1, sizeof *bases->search);
    bases->search[bases->n_search++] = directory;
}

void look_at_arguments(struct bases *all)
{
    for (; all->n_given < all->n; all->n_given++) {
        struct base *b = &all->list[all->n_given];
        const struct catalog_entry *e = enter_snapshot(&all->catalog, b->name, 1, all->n_given);
        if (e) memcpy(b->fingerprint, e->fingerprint, sizeof b->fingerprint);
        if (e) continue;
        if (contains_snapshots(b->name, 0)) add_search(all, b->name);
        all->others = (size_t *)resize(all->others, all->n_others + 1, sizeof *all->others);
        all->others[all->n_others++] = all->n_given;
    }
}

void look_in_directories(struct bases *all, const char *name)
{
    char *beside = name && !all->is_closed ? directory_of(name) : NULL;
    for (size_t i = 0; i < all->n_search; i++) enter_snapshots(&all->catalog, all->search[i]);
    if (beside) enter_snapshots(&all->catalog, beside);
    free(beside);
}

int is_unchanged_delta(const struct catalog_entry *e)
{
    return e->is_delta && same_fingerprint(e->wanted, e->fingerprint);
}

/* The path of the file or directory that a snapshot was made from, if one of that name is beside
 * it. To be freed; NULL: there is none. */
static char *find_source_of(const struct base *b)
{
    struct stat st;
    char *path = has_suffix(b->name) && !b->all->is_closed
                     ? copy_string(b->name, strlen(b->name) - strlen(SUFFIX))
                     : NULL;
    if (path && (stat(path, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))) {
        free(path);
        path = NULL;
    }
    return path;
}

static int has_whole_index(const char *path, const struct options *o)
{
    struct archive a;
    const int is_whole =
        open_archive_file(&a, path, o) == CODE_OK && try_archive_index(&a, NULL) == LMC_OK;
    close_archive(&a);
    return is_whole;
}

void name_copy(const struct base *b)
{
    const struct catalog_entry *e, *copy = NULL;
    size_t n;
    look_at_arguments(b->all);
    look_in_directories(b->all, b->name);
    e = find_entries(&b->all->catalog, b->fingerprint, &n);
    for (; n && n-- && !copy; e++) {
        const struct base *other = e->is_given ? &b->all->list[e->number] : e->base;
        if (!is_unchanged_delta(e) && !is_same_file(e->path, b->name) &&
            !(other && other->state == BASE_DAMAGED) && has_whole_index(e->path, b->archive.o))
            copy = e;
    }
    char *const source = copy ? NULL : find_source_of(b);
    if (copy)
        say(copy->path,
            "has the same content as %.300s by its index: put it in that place, or name it with "
            "--base",
            b->name);
    else if (source) say(source, "may be what %.300s was made from: name it with --base", b->name);
    free(source);
}
