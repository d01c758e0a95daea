/* series_chain.c - orders of snapshots, and which need which (series_manifest.h)
 * SPDX-License-Identifier: MIT */
#include "series_manifest.h"

#include "../format/print.h"
#include "../../store/chains.h"
#include "../input/base.h"

/* -- orders -- */

void forget_order(const struct series *s)
{
    for (size_t i = 0; i < SERIES_ORDERS; i++) {
        free(s->index->by[i]);
        s->index->by[i] = NULL;
    }
}

/* Equal entries stay in the order of the list. */
static int compare_places(const struct snapshot *x, const struct snapshot *y)
{
    return x < y ? -1 : x > y;
}

/* By fingerprint; of equal ones, the shortest chain first. */
static int compare_contents(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    const int order = memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    if (order) return order;
    return x->depth != y->depth ? x->depth < y->depth ? -1 : 1 : compare_places(x, y);
}

static int compare_chains(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    return x->depth != y->depth ? x->depth > y->depth ? -1 : 1 : compare_places(x, y);
}

static int compare_by_number(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    const int order = compare_numbers(x->name, y->name);
    return order ? order : compare_places(x, y);
}

struct snapshot **sort_series(const struct series *s, enum series_order order)
{
    static int (*const compare[SERIES_ORDERS])(const void *, const void *) = {
        compare_contents, compare_chains, compare_named, compare_by_number, NULL};
    struct snapshot ***const list = &s->index->by[order];
    if (*list) return *list;
    *list = (struct snapshot **)resize(NULL, s->n + 1, sizeof **list);
    for (size_t i = 0; i < s->n; i++) (*list)[i] = &s->list[i];
    if (order == BY_STEP) sort_by_steps(*list, s->n);
    else qsort((void *)*list, s->n, sizeof **list, compare[order]);
    return *list;
}

/* -- depths -- */

/* Whether the snapshot can be the base of others. */
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
    if (!measure_depths(links, n)) check_memory(NULL);
    n = 0;
    for (size_t i = 0; i < s->n; i++)
        s->list[i].depth = is_there(&s->list[i]) ? links[n++].depth : UINT32_MAX;
    free(links);
    forget_order(s);
}

const struct snapshot *find_shallowest(const struct series *s, const uint8_t *fingerprint,
                                       uint64_t below, int only_kept)
{
    struct snapshot **list = sort_series(s, BY_FINGERPRINT);
    size_t i;
    FIND_FIRST(i, s->n, memcmp(list[i]->fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) < 0);
    for (;
         i < s->n && list[i]->depth < below && same_fingerprint(list[i]->fingerprint, fingerprint);
         i++)
        if (is_there(list[i]) && (!only_kept || list[i]->state == STATE_KEPT)) return list[i];
    return NULL;
}

/* -- chains -- */

const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    return e->file == FILE_THERE && e->is_delta ? find_shallowest(s, e->wanted, e->depth, only_kept)
                                                : NULL;
}

const struct snapshot *find_broken_base(const struct series *s, const struct snapshot *e)
{
    for (size_t i = 0; i < s->n && e->file == FILE_THERE && e->is_delta; i++) {
        const struct snapshot *const b = &s->list[i];
        if (b->file != FILE_THERE && b->state != STATE_ADDING && b->state != STATE_GONE &&
            same_fingerprint(b->fingerprint, e->wanted))
            return b;
    }
    return NULL;
}

int fail_entry(const struct series *s, const struct snapshot *e)
{
    char added[2 * SHORT_FINGERPRINT + 1], found[2 * SHORT_FINGERPRINT + 1];
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    uint64_t size;
    const struct snapshot *other = NULL;
    int code = CODE_OK;
    if (e->file == FILE_MISSING)
        return fail(CODE_ERROR, e->path,
                    "is missing; bring it back from a copy, or give it up with 'lmc series DIR "
                    "rebuild'");
    if (e->file == FILE_DAMAGED)
        return fail(CODE_CORRUPT, e->path,
                    "is damaged or no snapshot; bring it back from a copy, or move it away and "
                    "'lmc series DIR rebuild'");
    code = read_fingerprint(e->path, fingerprint, &size, s->o);
    if (code != CODE_OK) return code; /* its index is damaged, and with it the fingerprint */
    for (size_t i = 0; i < s->n && !other; i++)
        if (s->list[i].state != STATE_ADDING &&
            same_fingerprint(s->list[i].fingerprint, fingerprint))
            other = &s->list[i];
    return fail(CODE_CORRUPT, e->path,
                "is not the snapshot that was added under this name (%s), but %.250s (%s); bring "
                "the right file back from a copy, or take in this one with 'lmc series DIR "
                "rebuild'",
                format_hex(added, e->fingerprint, SHORT_FINGERPRINT),
                other ? other->name : "another", format_hex(found, fingerprint, SHORT_FINGERPRINT));
}

static int fail_without_base(const struct series *s, const struct snapshot *e)
{
    static const char *const faults[] = {"is missing", "is damaged or no snapshot",
                                         "is not the snapshot that was added under this name"};
    char text[2 * SHORT_FINGERPRINT + 1];
    const struct snapshot *const b = find_broken_base(s, e);
    format_hex(text, e->wanted, SHORT_FINGERPRINT);
    return b ? fail(CODE_BASE, e->path,
                    "needs the base %.250s (%s), whose file %s; bring it back from a copy", b->name,
                    text, faults[b->file])
             : fail(CODE_BASE, e->path,
                    "needs the base %s, which is not in the series; bring its file back from a "
                    "copy",
                    text);
}

int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept,
                   unsigned char *known)
{
    const struct snapshot *const first = e;
    while (!known || !known[e - s->list]) {
        if (e->file != FILE_THERE) return fail_entry(s, e);
        if (!e->is_delta) break;
        const struct snapshot *base = find_base_of(s, e, only_kept);
        if (!base) return fail_without_base(s, e);
        e = base;
    }
    for (e = first; known && e && !known[e - s->list]; e = find_base_of(s, e, only_kept))
        known[e - s->list] = 1;
    return CODE_OK;
}

int open_chain(struct chain *c, const struct series *s, const struct snapshot *e)
{
    const int code = check_chain_of(s, e, 0, NULL);
    begin_chain(c, s, code == CODE_OK ? e : NULL);
    return code;
}

/* A chain has each snapshot once, but the list may have some already, from another chain. */
void add_to_chain(struct chain *c, const struct series *s, const struct snapshot *e)
{
    const size_t n = c->bases.n;
    for (; e; e = find_base_of(s, e, 0)) {
        size_t i = 0;
        while (i < n && strcmp(c->bases.list[i].name, e->path) != 0) i++;
        if (i == n) add_base(&c->bases, e->path);
    }
}

void begin_chain(struct chain *c, const struct series *s, const struct snapshot *e)
{
    memset(&c->bases, 0, sizeof c->bases);
    c->o = *s->o;
    c->o.bases = &c->bases;
    c->bases.is_quiet = 1;
    c->o.to_stdout = c->o.force = c->o.remove_source = 0;
    c->o.output = NULL;
    add_to_chain(c, s, e ? find_base_of(s, e, 0) : NULL);
}

/* -- what is read from the file -- */

int read_fingerprint(const char *path, uint8_t *fingerprint, uint64_t *size,
                     const struct options *o)
{
    struct archive a;
    int code = open_archive_index(&a, path, o);
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
    if (e->file != FILE_THERE) return fail_entry(s, e);
    int code = read_fingerprint(e->path, fingerprint, &size, s->o);
    if (code == CODE_OK && (!same_fingerprint(fingerprint, e->fingerprint) || size != e->size))
        code = fail(CODE_CORRUPT, e->path,
                    "is not the snapshot that was added under this name; move it away, and bring "
                    "the right one back, or 'lmc series DIR rebuild'");
    return code;
}

int check_kept(const struct series *s, int only_kept, unsigned char *known)
{
    unsigned char *const own = (unsigned char *)zeroed(s->n + 1, 1);
    int code = CODE_OK;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_KEPT) {
            int result = check_chain_of(s, &s->list[i], only_kept, known ? known : own);
            if (result == CODE_OK && !only_kept) result = check_entry(s, &s->list[i]);
            code = worse(code, result);
        }
    free(own);
    return code;
}

void tell(const struct options *o, const char *what, const char *name, const char *link,
          const char *other)
{
    if (o->dry_run) print("%s %s%s%s\n", what, name, link, other);
    else if (o->verbosity >= 2) say(NULL, "%s %s%s%s", what, name, link, other);
}
