/* SPDX-License-Identifier: MIT */
#include "series_chain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../format/hex.h"
#include "../format/print.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/places.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "../sys/search.h"
#include "series_manifest.h"
#include "series.h"

/* -- entries in order -- */

/* Of one fingerprint, the shallowest first; of those, the first of the list. */
static int compare_by_fingerprint(const void *a, const void *b)
{
    const struct snapshot *x = *(const struct snapshot *const *)a,
                          *y = *(const struct snapshot *const *)b;
    int order = memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    if (order) return order;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_depths(const void *a, const void *b)
{
    const struct snapshot *x = *(const struct snapshot *const *)a,
                          *y = *(const struct snapshot *const *)b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_deepest(const void *a, const void *b)
{
    const struct snapshot *x = *(const struct snapshot *const *)a,
                          *y = *(const struct snapshot *const *)b;
    if (x->depth != y->depth) return x->depth > y->depth ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_snapshot_names(const void *a, const void *b)
{
    return strcmp((*(const struct snapshot *const *)a)->name,
                  (*(const struct snapshot *const *)b)->name);
}

static const struct snapshot **sort_entries(const struct series *s,
                                            int (*compare)(const void *, const void *))
{
    const struct snapshot **list = (const struct snapshot **)resize(NULL, s->n + 1, sizeof *list);
    for (size_t i = 0; i < s->n; i++) list[i] = &s->list[i];
    qsort((void *)list, s->n, sizeof *list, compare);
    return list;
}

static size_t *number_entries(const struct series *s, int (*compare)(const void *, const void *))
{
    const struct snapshot **list = sort_entries(s, compare);
    size_t *numbers = (size_t *)resize(NULL, s->n + 1, sizeof *numbers);
    for (size_t i = 0; i < s->n; i++) numbers[i] = (size_t)(list[i] - s->list);
    free((void *)list);
    return numbers;
}

struct numbered {
    uint64_t number;
    size_t entry;
};

static int compare_numbered(const void *a, const void *b)
{
    const struct numbered *x = (const struct numbered *)a, *y = (const struct numbered *)b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void sort_numbers(struct series *s)
{
    struct numbered *list = (struct numbered *)resize(NULL, s->n + 1, sizeof *list);
    s->n_numbers = 0;
    for (size_t i = 0; i < s->n; i++)
        if (find_number(s->list[i].name, &list[s->n_numbers].number))
            list[s->n_numbers++].entry = i;
    qsort(list, s->n_numbers, sizeof *list, compare_numbered);
    s->by_number = (size_t *)resize(s->by_number, s->n_numbers + 1, sizeof *s->by_number);
    for (size_t i = 0; i < s->n_numbers; i++) s->by_number[i] = list[i].entry;
    free(list);
}

/* Whether others may stand on it. */
static int is_there(const struct snapshot *e)
{
    return e->state != STATE_ADDING && e->state != STATE_GONE && e->file == FILE_THERE;
}

void measure_series(struct series *s)
{
    struct link_of_chain *links = (struct link_of_chain *)resize(NULL, s->n + 1, sizeof *links);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (is_there(&s->list[i])) {
            links[n].fingerprint = s->list[i].fingerprint;
            links[n++].wanted = s->list[i].is_delta ? s->list[i].wanted : NULL;
        }
    measure_depths(links, n);
    n = 0;
    for (size_t i = 0; i < s->n; i++)
        s->list[i].depth = is_there(&s->list[i]) ? links[n++].depth : UINT32_MAX;
    free(links);
}

void index_series(struct series *s)
{
    free(s->by_fingerprint);
    free(s->by_name);
    s->by_fingerprint = number_entries(s, compare_by_fingerprint);
    s->by_name = number_entries(s, compare_snapshot_names);
    sort_numbers(s);
}

void reindex_entry(struct series *s, const struct snapshot *e)
{
    const size_t number = (size_t)(e - s->list);
    size_t *const list = s->by_fingerprint, i = 0;
    while (list[i] != number) i++;
    for (; i > 0; i--) {
        const struct snapshot *before = &s->list[list[i - 1]];
        if (compare_by_fingerprint(&before, &e) < 0) break;
        list[i] = list[i - 1];
        list[i - 1] = number;
    }
    for (; i + 1 < s->n; i++) {
        const struct snapshot *behind = &s->list[list[i + 1]];
        if (compare_by_fingerprint(&e, &behind) < 0) break;
        list[i] = list[i + 1];
        list[i + 1] = number;
    }
}

struct snapshot **list_deepest_first(struct series *s)
{
    const size_t *numbers = number_entries(s, compare_deepest);
    struct snapshot **list = (struct snapshot **)resize(NULL, s->n + 1, sizeof *list);
    for (size_t i = 0; i < s->n; i++) list[i] = &s->list[numbers[i]];
    free((void *)numbers);
    return list;
}

static int can_be_base(const struct snapshot *e, const uint8_t *fingerprint, uint64_t below,
                       int only_kept)
{
    return is_there(e) && (!only_kept || e->state == STATE_KEPT) && e->depth < below &&
           memcmp(e->fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) == 0;
}

/* In the sorted list: the first that can be. */
static const struct snapshot *find_sorted(const struct series *s, const uint8_t *fingerprint,
                                          uint64_t below, int only_kept)
{
    size_t low;
    FIND_FIRST(
        low, s->n,
        memcmp(s->list[s->by_fingerprint[low]].fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) < 0);
    for (; low < s->n; low++) {
        const struct snapshot *e = &s->list[s->by_fingerprint[low]];
        if (can_be_base(e, fingerprint, below, only_kept)) return e;
        if (e->depth >= below || memcmp(e->fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) != 0)
            break;
    }
    return NULL;
}

const struct snapshot *find_shallowest(const struct series *s, const uint8_t *fingerprint,
                                       uint64_t below, int only_kept)
{
    const struct snapshot *best = NULL;
    if (s->by_fingerprint) return find_sorted(s, fingerprint, below, only_kept);
    for (size_t i = 0; i < s->n; i++) {
        const struct snapshot *e = &s->list[i];
        if (can_be_base(e, fingerprint, best ? best->depth : below, only_kept)) best = e;
    }
    return best;
}

/* -- chains -- */

const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    return e->file == FILE_THERE && e->is_delta ? find_shallowest(s, e->wanted, e->depth, only_kept)
                                                : NULL;
}

long count_deltas(const struct series *s, const struct snapshot *e)
{
    long n = 0;
    for (; e && e->file == FILE_THERE; e = find_base_of(s, e, 0), n++)
        if (!e->is_delta) return n;
    return -1;
}

long *count_all_deltas(const struct series *s)
{
    const struct snapshot **list = sort_entries(s, compare_depths);
    long *counts = (long *)resize(NULL, s->n + 1, sizeof *counts);
    for (size_t i = 0; i < s->n; i++) { /* a base is less deep than what needs it */
        const struct snapshot *e = list[i], *base = find_base_of(s, e, 0);
        const long below = base ? counts[base - s->list] : -1;
        counts[e - s->list] = e->file != FILE_THERE ? -1
                              : !e->is_delta        ? 0
                              : below < 0           ? -1
                                                    : below + 1;
    }
    free((void *)list);
    return counts;
}

int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept,
                   unsigned char *known)
{
    const struct snapshot *const first = e;
    char text[17];
    while (!known || !known[e - s->list]) {
        const struct snapshot *base = find_base_of(s, e, only_kept);
        if (e->file == FILE_MISSING)
            return fail(CODE_ERROR, e->path,
                        "is missing; bring it back from a copy, or give it up with 'lmc series DIR "
                        "rebuild'");
        if (e->file == FILE_DAMAGED)
            return fail(CODE_CORRUPT, e->path,
                        "is damaged or no snapshot; bring it back from a copy, or move it away and "
                        "'lmc series DIR rebuild'");
        if (!e->is_delta) break;
        format_hex(text, e->wanted, 8);
        if (!base)
            return fail(
                CODE_BASE, e->path,
                "needs the base %s, which is not in the series; bring its file back from a copy",
                text);
        e = base;
    }
    for (e = first; known && e && !known[e - s->list]; e = find_base_of(s, e, only_kept))
        known[e - s->list] = 1;
    return CODE_OK;
}

void begin_chain(struct chain *c, const struct common *o)
{
    memset(&c->bases, 0, sizeof c->bases);
    c->common = *o;
    c->common.bases = &c->bases;
    c->bases.is_quiet = 1;
    c->common.to_stdout = c->common.force = 0;
    c->common.output = NULL;
}

/* A chain has no link twice; but one may be there from another chain. */
void add_links(struct chain *c, const struct series *s, const struct snapshot *e, int is_base)
{
    const size_t n = c->bases.n;
    for (e = is_base ? e : find_base_of(s, e, 0); e; e = find_base_of(s, e, 0)) {
        size_t i = 0;
        while (i < n && strcmp(c->bases.list[i].name, e->path) != 0) i++;
        if (i == n) add_base(&c->bases, e->path);
    }
}

/* -- what the file says about itself -- */

int read_fingerprint(const char *path, uint8_t *fingerprint, uint64_t *size, const struct common *o)
{
    struct archive a;
    int code = open_archive_file(&a, path, o);
    if (code == CODE_OK) code = read_archive_index(&a, NULL);
    if (code == CODE_OK) {
        snapshot_fingerprint(a.reader, fingerprint);
        *size = total_of_files(a.reader);
    }
    close_archive(&a);
    return code;
}

int check_entry(const struct series *s, const struct snapshot *e)
{
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    uint64_t size;
    int code = read_fingerprint(e->path, fingerprint, &size, &s->o->common);
    if (code == CODE_OK &&
        (memcmp(fingerprint, e->fingerprint, sizeof fingerprint) != 0 || size != e->size))
        code = fail(CODE_CORRUPT, e->path,
                    "is another snapshot than was added under this name; move it away, and bring "
                    "the right one back, or 'lmc series DIR rebuild'");
    return code;
}

/* -- finding the one that is meant -- */

/* From the first entry with that number, or a higher one, on: see index_series(). */
static const size_t *find_numbers(const struct series *s, uint64_t wanted, size_t *n)
{
    uint64_t number = 0;
    size_t i;
    FIND_FIRST(i, s->n_numbers,
               find_number(s->list[s->by_number[i]].name, &number) && number < wanted);
    *n = s->n_numbers - i;
    return s->by_number + i;
}

int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found)
{
    uint64_t wanted = 0, number;
    const int is_number = parse_count(&wanted, text, 0), is_latest = strcmp(text, "latest") == 0;
    size_t n = is_latest || is_number ? s->n : 0;
    const size_t *numbers = is_number && s->by_number ? find_numbers(s, wanted, &n) : NULL;
    *found = find_name(s, text);
    if (*found && (*found)->state != STATE_ADDING && (*found)->state != STATE_GONE) return CODE_OK;
    *found = NULL;
    const struct snapshot *passed = NULL; /* has the number, but another state */
    for (size_t i = 0; i < n; i++) {
        struct snapshot *e = &s->list[numbers ? numbers[i] : i];
        const int is_other = is_number && (!find_number(e->name, &number) || number != wanted);
        if (is_other && numbers) break;
        if (!is_other && is_number && e->state == STATE_FORGOTTEN) passed = e;
        if (is_other || e->state != state) continue;
        if (*found && !is_latest)
            return fail(CODE_ERROR, s->directory,
                        "has several snapshots with that number, %.250s and %.250s; give the name",
                        (*found)->name, e->name);
        *found = e;
    }
    if (!*found && passed && state == STATE_KEPT)
        return fail(CODE_ERROR, s->directory,
                    "has forgotten the snapshot with that number, %.250s, but not removed it yet: "
                    "its full name finds it, and 'lmc series DIR keep' takes it back",
                    passed->name);
    return *found ? CODE_OK
                  : fail(CODE_ERROR, s->directory,
                         "has no snapshot '%.300s'; 'lmc series DIR list' lists them", text);
}

void tell(const struct series_options *o, const char *what, const char *name, const char *link,
          const char *other)
{
    if (o->dry_run) {
        printf("%s ", what);
        print_name(name);
        fputs(link, stdout);
        print_name(other);
        putchar('\n');
    } else if (o->common.verbosity >= 2) say(NULL, "%s %s%s%s", what, name, link, other);
}
