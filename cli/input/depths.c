/* SPDX-License-Identifier: MIT */
#include "depths.h"

#include <stdlib.h>
#include <string.h>

#include "../../lmc.h"
#include "../sys/memory.h"
#include "../sys/search.h"

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
    struct link_of_chain **by_wanted, **order; /* deltas; what has a depth */
    size_t n_deltas, n_placed;
};

static void place(struct walk_up *w, struct link_of_chain *l, uint32_t depth)
{
    l->depth = depth;
    w->order[w->n_placed++] = l;
}

/* Those that stand on what was placed, breadth first. */
static void place_above(struct walk_up *w, size_t next)
{
    for (; next < w->n_placed; next++) {
        const struct link_of_chain *below = w->order[next];
        size_t low;
        FIND_FIRST(low, w->n_deltas,
                   memcmp(w->by_wanted[low]->wanted, below->fingerprint, LMC_FINGERPRINT_SIZE) < 0);
        for (; low < w->n_deltas && w->by_wanted[low]->depth == UINT32_MAX &&
               memcmp(w->by_wanted[low]->wanted, below->fingerprint, LMC_FINGERPRINT_SIZE) == 0;
             low++)
            place(w, w->by_wanted[low], below->depth + 1);
    }
}

static int is_unchanged(const struct link_of_chain *l)
{
    return l->wanted && memcmp(l->wanted, l->fingerprint, LMC_FINGERPRINT_SIZE) == 0;
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
