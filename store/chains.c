/* SPDX-License-Identifier: MIT */
#include "chains.h"

#include "../formats/sorted.h"

#include <stdlib.h>

static int compare_bytes(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, LMC_FINGERPRINT_SIZE);
}

static int compare_fingerprints(const void *a, const void *b)
{
    return compare_bytes((*(struct link_of_chain *const *)a)->fingerprint,
                         (*(struct link_of_chain *const *)b)->fingerprint);
}

/* Equal ones stay in the order of the list. */
static int compare_wanted(const void *a, const void *b)
{
    const struct link_of_chain *x = *(struct link_of_chain *const *)a,
                               *y = *(struct link_of_chain *const *)b;
    const int order = compare_bytes(x->wanted, y->wanted);
    return order ? order : x < y ? -1 : x > y;
}

struct walk_up {
    struct link_of_chain **by_wanted, **order; /* the deltas; the snapshots with a depth */
    size_t n_deltas, n_done;
};

static void set_depth(struct walk_up *w, struct link_of_chain *l, uint32_t depth,
                      const struct link_of_chain *below)
{
    l->depth = depth;
    l->below = below;
    w->order[w->n_done++] = l;
}

/* Sets the depths of the deltas of all snapshots that have one, breadth first. */
static void set_depths_above(struct walk_up *w, size_t next)
{
    for (; next < w->n_done; next++) {
        const struct link_of_chain *const below = w->order[next];
        struct link_of_chain **const list = w->by_wanted;
        size_t i;
        FIND_FIRST(i, w->n_deltas, compare_bytes(list[i]->wanted, below->fingerprint) < 0);
        for (; i < w->n_deltas && list[i]->depth == UINT32_MAX &&
               compare_bytes(list[i]->wanted, below->fingerprint) == 0;
             i++)
            set_depth(w, list[i], below->depth + 1, below);
    }
}

static int is_unchanged(const struct link_of_chain *l)
{
    return l->wanted && compare_bytes(l->wanted, l->fingerprint) == 0;
}

int measure_depths(struct link_of_chain *list, size_t n)
{
    struct link_of_chain **by_fingerprint =
        (struct link_of_chain **)calloc(n + 1, 3 * sizeof *by_fingerprint);
    struct walk_up w = {0};
    size_t n_bases = 0, n_whole;
    if (!by_fingerprint) return 0;
    w.by_wanted = by_fingerprint + n;
    w.order = by_fingerprint + 2 * n;
    for (size_t i = 0; i < n; i++) {
        list[i].depth = UINT32_MAX;
        list[i].below = NULL;
        if (!is_unchanged(&list[i])) by_fingerprint[n_bases++] = &list[i];
        if (list[i].wanted) w.by_wanted[w.n_deltas++] = &list[i];
        else set_depth(&w, &list[i], 0, NULL);
    }
    if (n_bases)
        qsort((void *)by_fingerprint, n_bases, sizeof *by_fingerprint, compare_fingerprints);
    if (w.n_deltas) qsort((void *)w.by_wanted, w.n_deltas, sizeof *w.by_wanted, compare_wanted);
    set_depths_above(&w, 0);
    n_whole = w.n_done;
    for (size_t i = 0; i < w.n_deltas; i++) {
        const struct link_of_chain base = {w.by_wanted[i]->wanted, NULL, 0, NULL}, *key = &base;
        if (w.by_wanted[i]->depth == UINT32_MAX &&
            !bsearch(&key, (void *)by_fingerprint, n_bases, sizeof *by_fingerprint,
                     compare_fingerprints))
            set_depth(&w, w.by_wanted[i], DEPTH_LOOSE, NULL);
    }
    set_depths_above(&w, n_whole);
    free((void *)by_fingerprint);
    return 1;
}
