/* chain.c - from a delta down to a whole snapshot, and up again to a base that can be read
 * SPDX-License-Identifier: MIT
 *
 *   walk_down     tip -> ... -> a link that is ready, or needs no base; find_base() finds the next
 *   prepare_link  each link opens its index with the link below as its base, from the lowest up
 *
 * Of the links of a walk, those that are found on the way are BASE_VISITED: to find one of them
 * again means a loop.
 */
#include "base.h"

#include "options.h"
#include "../sys/attributes.h"

/* The base of an open delta. */
static int find_next(struct archive *a, struct base **base, const struct options *o)
{
    char *made_with = NULL;
    int code;
    o->bases->code = CODE_OK;
    *base = find_base(a, o, &code);
    if (code != CODE_OK || *base) return code;
    if (a->fd >= 0 && !a->reader) code = read_archive_index(a, NULL);
    if (a->reader) made_with = copy_metadata(a, BASE_KEY);
    if (code == CODE_OK) code = fail_base(a->name, a->wanted, made_with, o);
    free(made_with);
    return code;
}

/* The links on the way down, the tip first. */
struct walked {
    struct base **list;
    size_t n, cap;
};

/* Links below b that are read through it: down to one that has a scratch file. */
static size_t count_links(const struct base *b)
{
    size_t n = 0;
    for (; !b->replica.starts && b->below; b = b->below) n++;
    return n;
}

/* Restores link i of the walk to a scratch file, so that reading it does not read the links below
 * it any more. Closes only links of this walk: other links may be in use by other deltas. */
static int replace_links(const struct walked *l, size_t i)
{
    struct base *b = l->list[i];
    int code = make_replica(&b->replica, &b->archive), is_last = 0;
    if (code != CODE_OK) return code;
    b->archive.lender = NULL;
    code = read_archive_index(&b->archive, NULL);
    while (!is_last && ++i < l->n && is_snapshot(l->list[i])) {
        is_last = l->list[i]->replica.starts != NULL;
        put_away(l->list[i]);
    }
    return code;
}

/* Prepares link i of the walk. below: its base, which is ready; NULL: it needs none. */
static int prepare_link(const struct walked *l, size_t i, struct base *below)
{
    struct base *b = l->list[i];
    int code = make_ready(b, below);
    if (code == CODE_OK && count_links(b) > MAX_LINKS) code = replace_links(l, i);
    if (code != CODE_OK) b->state = BASE_VISITED;
    return code;
}

static void add_walked(struct walked *l, struct base *b)
{
    *(struct base **)append(&l->list, &l->n, &l->cap, sizeof *l->list) = b;
    if (l->n > MAX_LINKS && is_snapshot(b)) put_away(b);
}

/* Walks down to a link that is ready (*ready), or that needs no base (*ready is NULL). */
static int walk_down(struct walked *l, struct base *b, struct base **ready, const struct options *o)
{
    for (;;) {
        struct base *next = NULL;
        int code = identify_base(b, o);
        *ready = b->state == BASE_READY ? b : NULL;
        if (code != CODE_OK || *ready) return code;
        if (b->state == BASE_VISITED)
            return fail(CODE_BASE, b->name, "is a delta that needs itself: the bases form a loop");
        b->state = BASE_VISITED; /* find_base() prefers others */
        if (is_snapshot(b) && b->archive.is_delta) code = find_next(&b->archive, &next, o);
        add_walked(l, b);
        if (code != CODE_OK || !next) return code;
        b = next;
    }
}

int prepare_base(struct base *b, const struct options *o)
{
    struct base *ready;
    struct walked l = {0};
    int code = walk_down(&l, b, &ready, o);
    for (size_t i = l.n; i && i-- && code == CODE_OK; ready = l.list[i])
        code = prepare_link(&l, i, ready);
    for (size_t i = 0; i < l.n; i++)
        if (l.list[i]->state == BASE_VISITED) l.list[i]->state = BASE_IDENTIFIED;
    free((void *)l.list);
    return code;
}

int find_base_of_archive(struct archive *a, const lmc_base **base, const struct options *o)
{
    struct base *b;
    int code;
    *base = NULL;
    o->bases->code = CODE_OK;
    if (!a->is_delta || o->bases->is_off) return CODE_OK;
    code = find_next(a, &b, o);
    if (code == CODE_OK) code = prepare_base(b, o);
    if (code != CODE_OK) return code;
    *base = &b->source;
    a->lender = is_snapshot(b) ? b->archive.reader : NULL;
    return CODE_OK;
}

int choose_base(const struct base **base, const struct options *o)
{
    struct base *first = o->bases->n ? &o->bases->list[0] : NULL;
    int code = CODE_OK;
    if (first && contains_snapshots(first->name, 1))
        return fail(CODE_USAGE, first->name,
                    "is a directory of snapshots; name the one that this is to be coded against");
    if (first) {
        first->is_used = 1;
        code = prepare_base(first, o);
    }
    o->bases->code = CODE_OK;
    *base = o->bases->n && code == CODE_OK ? &o->bases->list[0] : NULL;
    return code;
}

/* The read_at of a source in memory: what was read of a pipe. */
static enum lmc_status read_from_head(void *user, uint64_t offset, void *dst, size_t size)
{
    const struct source *s = (const struct source *)user;
    memcpy(dst, s->head + offset, size);
    return LMC_OK;
}

/* Reads the sections of a pipe that come before its first run, for the tables of its files (F-5).
 * They are read as a snapshot that was cut there. */
static int read_beginning(struct archive *a, struct source *s)
{
    lmc_source source = {read_from_head, s, 0, {0, 0}};
    lmc_snapshot_extent extent;
    int code = CODE_OK;
    do {
        source.size = s->head_size;
        if (lmc_snapshot_measure(&source, &extent) != LMC_ERR_TRUNCATED || extent.runs_offset)
            break;
        /* in steps, as the size may be false */
        code = read_head(
            s, (size_t)(extent.wanted < 2 * source.size ? extent.wanted : 2 * source.size));
    } while (code == CODE_OK && extent.wanted <= CONTAINER_MAX_HEADER && !s->head_ended);
    source.size = extent.runs_offset ? extent.runs_offset : s->head_size;
    if (code == CODE_OK && lmc_salvage_open(&a->beginning, &source, NULL) == LMC_ERR_MEMORY)
        check_memory(NULL);
    return code;
}

int choose_base_of_source(const lmc_base **base, struct source *s, const struct options *o)
{
    struct archive a = {0};
    int code = read_head(s, LMC_HEADER_SIZE);
    *base = NULL;
    if (code != CODE_OK) return code;
    memcpy(s->header, s->head, s->head_size < sizeof s->header ? s->head_size : sizeof s->header);
    a.fd = -1;
    if (S_ISREG(s->st.st_mode)) /* then its index, too, can help to find the base */
        code = open_archive_of_source(&a, s, o);
    a.name = s->name;
    if (s->head_size < LMC_HEADER_SIZE ||
        parse_header(s->head, s->head_size, a.wanted, &a.is_delta) != 0)
        a.is_delta = 0; /* restoring reports the error */
    if (code == CODE_OK && a.is_delta && a.fd < 0 && o->bases->n) code = read_beginning(&a, s);
    if (code == CODE_OK) code = find_base_of_archive(&a, base, o);
    close_archive(&a);
    return code;
}
