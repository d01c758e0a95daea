/* SPDX-License-Identifier: MIT */
#include "series_chain.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../format/hex.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "series_manifest.h"
#include "series.h"

const struct snapshot *find_shallowest(const struct series *s, const uint8_t *identity,
                                       uint64_t below, int only_kept)
{
    const struct snapshot *best = NULL;
    for (size_t i = 0; i < s->n; i++) {
        const struct snapshot *e = &s->list[i];
        if (e->state != STATE_ADDING && e->state != STATE_GONE &&
            (!only_kept || e->state == STATE_KEPT) && e->file == FILE_THERE && e->depth < below &&
            (!best || e->depth < best->depth) &&
            memcmp(e->identity, identity, LMC_IDENTITY_SIZE) == 0)
            best = e;
    }
    return best;
}

const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    return e->file == FILE_THERE && e->depth ? find_shallowest(s, e->wanted, e->depth, only_kept)
                                             : NULL;
}

long count_deltas(const struct series *s, const struct snapshot *e)
{
    long n = 0;
    for (; e && e->file == FILE_THERE; e = find_base_of(s, e, 0), n++)
        if (e->depth == 0) return n;
    return -1;
}

int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    char text[17];
    for (;;) {
        const struct snapshot *base = find_base_of(s, e, only_kept);
        if (e->file == FILE_MISSING)
            return fail(CODE_ERROR, e->path,
                        "is missing; bring it back from a copy, or give it up with 'lmc series DIR "
                        "rebuild'");
        if (e->file == FILE_DAMAGED)
            return fail(CODE_CORRUPT, e->path,
                        "is damaged or no snapshot; bring it back from a copy, or move it away and "
                        "'lmc series DIR rebuild'");
        if (e->depth == 0) return CODE_OK;
        format_hex(text, e->wanted, 8);
        if (!base)
            return fail(
                CODE_BASE, e->path,
                "needs the base %s, which is not in the series; bring its file back from a copy",
                text);
        e = base;
    }
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

static void add_link(struct chain *c, const char *path)
{
    for (size_t i = 0; i < c->bases.n; i++)
        if (strcmp(c->bases.list[i].name, path) == 0) return;
    add_base(&c->bases, path);
}

void add_links(struct chain *c, const struct series *s, const struct snapshot *e, int is_base)
{
    for (e = is_base ? e : find_base_of(s, e, 0); e; e = find_base_of(s, e, 0))
        add_link(c, e->path);
}

/* -- what the file says about itself -- */

int read_identity(const char *path, uint8_t *identity, uint64_t *size, const struct common *o)
{
    struct archive a;
    int code = open_archive_file(&a, path, o);
    if (code == CODE_OK) code = read_archive_index(&a, NULL);
    if (code == CODE_OK) {
        snapshot_identity(a.reader, identity);
        *size = total_of_files(a.reader);
    }
    close_archive(&a);
    return code;
}

int check_entry(const struct series *s, const struct snapshot *e)
{
    uint8_t identity[LMC_IDENTITY_SIZE];
    uint64_t size;
    int code = read_identity(e->path, identity, &size, &s->o->common);
    if (code == CODE_OK && (memcmp(identity, e->identity, sizeof identity) != 0 || size != e->size))
        code = fail(CODE_CORRUPT, e->path,
                    "is another snapshot than was added under this name; move it away, and bring "
                    "the right one back, or 'lmc series DIR rebuild'");
    return code;
}

/* -- finding the one that is meant -- */

int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found)
{
    uint64_t wanted = 0, number;
    int is_number = parse_count(&wanted, text, 0), is_latest = strcmp(text, "latest") == 0;
    *found = find_name(s, text);
    if (*found && (*found)->state != STATE_ADDING && (*found)->state != STATE_GONE) return CODE_OK;
    *found = NULL;
    for (size_t i = 0; i < s->n; i++) {
        struct snapshot *e = &s->list[i];
        if (e->state != state ||
            !(is_latest || (is_number && find_number(e->name, &number) && number == wanted)))
            continue;
        if (*found && !is_latest)
            return fail(CODE_ERROR, s->directory,
                        "has several snapshots with that number, %.250s and %.250s; give the name",
                        (*found)->name, e->name);
        *found = e;
    }
    return *found ? CODE_OK
                  : fail(CODE_ERROR, s->directory,
                         "has no snapshot '%.300s'; 'lmc series DIR list' lists them", text);
}

void tell(const struct series_options *o, const char *what, const char *name, const char *link,
          const char *other)
{
    if (o->dry_run) printf("%s %s%s%s\n", what, name, link, other);
    else if (o->common.verbosity >= 2) say(NULL, "%s %s%s%s", what, name, link, other);
}
