/* SPDX-License-Identifier: MIT */
#include "places.h"

#include "archive.h"
#include "../sys/tree.h"

/* -- depths -- */

static int compare_fingerprints(const void *a, const void *b)
{
    return memcmp((*(struct link_of_chain *const *)a)->fingerprint,
                  (*(struct link_of_chain *const *)b)->fingerprint, LMC_FINGERPRINT_SIZE);
}

static int compare_wanted(const void *a, const void *b)
{
    return memcmp((*(struct link_of_chain *const *)a)->wanted,
                  (*(struct link_of_chain *const *)b)->wanted, LMC_FINGERPRINT_SIZE);
}

struct walk_up {
    struct link_of_chain **by_wanted, **order; /* the deltas; the snapshots with a depth */
    size_t n_deltas, n_placed;
};

static void place(struct walk_up *w, struct link_of_chain *l, uint32_t depth)
{
    l->depth = depth;
    w->order[w->n_placed++] = l;
}

/* Places the deltas of all placed snapshots, breadth first. */
static void place_above(struct walk_up *w, size_t next)
{
    for (; next < w->n_placed; next++) {
        const struct link_of_chain *below = w->order[next];
        size_t low;
        FIND_FIRST(low, w->n_deltas,
                   memcmp(w->by_wanted[low]->wanted, below->fingerprint, LMC_FINGERPRINT_SIZE) < 0);
        for (; low < w->n_deltas && w->by_wanted[low]->depth == UINT32_MAX &&
               same_fingerprint(w->by_wanted[low]->wanted, below->fingerprint);
             low++)
            place(w, w->by_wanted[low], below->depth + 1);
    }
}

static int is_unchanged(const struct link_of_chain *l)
{
    return l->wanted && same_fingerprint(l->wanted, l->fingerprint);
}

void measure_depths(struct link_of_chain *list, size_t n)
{
    struct link_of_chain **by_fingerprint =
        (struct link_of_chain **)resize(NULL, 3 * n + 1, sizeof *by_fingerprint);
    struct walk_up w = {by_fingerprint + n, by_fingerprint + 2 * n, 0, 0};
    size_t n_bases = 0, n_whole;
    for (size_t i = 0; i < n; i++) {
        list[i].depth = UINT32_MAX;
        if (!is_unchanged(&list[i])) by_fingerprint[n_bases++] = &list[i];
        if (list[i].wanted) w.by_wanted[w.n_deltas++] = &list[i];
        else place(&w, &list[i], 0);
    }
    if (n_bases)
        qsort((void *)by_fingerprint, n_bases, sizeof *by_fingerprint, compare_fingerprints);
    if (w.n_deltas) qsort((void *)w.by_wanted, w.n_deltas, sizeof *w.by_wanted, compare_wanted);
    place_above(&w, 0);
    n_whole = w.n_placed;
    for (size_t i = 0; i < w.n_deltas; i++) {
        const struct link_of_chain base = {w.by_wanted[i]->wanted, NULL, 0}, *key = &base;
        if (w.by_wanted[i]->depth == UINT32_MAX &&
            !bsearch(&key, (void *)by_fingerprint, n_bases, sizeof *by_fingerprint,
                     compare_fingerprints))
            place(&w, w.by_wanted[i], DEPTH_LOOSE);
    }
    place_above(&w, n_whole);
    free((void *)by_fingerprint);
}

/* -- places -- */

const struct place_entry *add_place(struct places *p, const char *path, int is_given, size_t number)
{
    struct place_entry e = {0}, *added;
    lmc_snapshot_info info;
    if (probe_snapshot(path, &info) != LMC_OK) return NULL;
    memcpy(e.fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(e.wanted, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    e.is_delta = info.has_base;
    e.path = copy_text(path);
    e.is_given = is_given;
    e.number = number;
    added = (struct place_entry *)append(&p->list, &p->n, &p->room, sizeof *p->list);
    *added = e;
    p->is_sorted = 0;
    return added;
}

void add_places(struct places *p, const char *directory)
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
        (void)add_place(p, path, 0, p->n);
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

static int compare_known_places(const void *a, const void *b)
{
    const struct place_entry *x = (const struct place_entry *)a, *y = (const struct place_entry *)b;
    int order = memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    if (order) return order;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    if (x->is_given != y->is_given) return x->is_given ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void sort_places(struct places *p)
{
    struct link_of_chain *links = (struct link_of_chain *)resize(NULL, p->n + 1, sizeof *links);
    for (size_t i = 0; i < p->n; i++) {
        links[i].fingerprint = p->list[i].fingerprint;
        links[i].wanted = p->list[i].is_delta ? p->list[i].wanted : NULL;
    }
    measure_depths(links, p->n);
    for (size_t i = 0; i < p->n; i++) p->list[i].depth = links[i].depth;
    free(links);
    if (p->n) qsort(p->list, p->n, sizeof *p->list, compare_known_places);
    p->is_sorted = 1;
}

struct place_entry *find_places(struct places *p, const uint8_t *fingerprint, size_t *n)
{
    size_t low;
    if (!p->is_sorted) sort_places(p);
    FIND_FIRST(low, p->n, memcmp(p->list[low].fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) < 0);
    for (*n = 0; low + *n < p->n && same_fingerprint(p->list[low + *n].fingerprint, fingerprint);)
        ++*n;
    return *n ? &p->list[low] : NULL;
}

void free_places(struct places *p)
{
    for (size_t i = 0; i < p->n; i++) free(p->list[i].path);
    for (size_t i = 0; i < p->n_directories; i++) free(p->directories[i]);
    free(p->list);
    free((void *)p->directories);
    memset(p, 0, sizeof *p);
}
