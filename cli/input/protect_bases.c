/* protect_bases.c - refuses outputs and --rm that would destroy a base (base.h)
 * SPDX-License-Identifier: MIT */
#include "base.h"

#include "options.h"
#include "../sys/attributes.h"

/* Whether path is the base, is within it, or, if is_whole, contains it. may_replace: path may be
 * the base, if that is not a snapshot. A directory of snapshots is only a place to search, unless
 * it was used as a base. */
static int touches(const char *path, const struct stat *st, int is_whole, int may_replace,
                   const struct base *b)
{
    struct stat other;
    if (stat(b->name, &other) != 0) return 0;
    if (S_ISDIR(other.st_mode) && !b->is_used && contains_snapshots(b->name, 0)) return 0;
    return same_file(st, &other)
               ? !may_replace || is_snapshot(b)
               : lies_within(path, b->name) || (is_whole && lies_within(b->name, path));
}

/* The base that path touches: an argument from number first on (only_used: only used ones), or a
 * found link that is used; NULL: none. */
static const struct base *find_touched(const char *path, int is_whole, int may_replace,
                                       size_t first, int only_used, const struct options *o)
{
    struct stat st;
    if (first >= o->bases->n && !o->bases->found) return NULL; /* this is called for each file */
    if (stat(path, &st) != 0) return NULL;
    for (size_t i = first; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        if ((!only_used || b->is_used) && touches(path, &st, is_whole, may_replace, b)) return b;
    }
    for (const struct base *b = o->bases->found; b; b = b->next)
        if (b->is_used && touches(path, &st, is_whole, may_replace, b)) return b;
    return NULL;
}

int protect_bases(const char *source, const char *output, int may_replace, const struct options *o)
{
    int code = CODE_OK;
    if (source && find_touched(source, 1, 0, 0, 0, o))
        return fail(CODE_ERROR, source,
                    "is, holds or belongs to a base; deltas cannot be restored without it, so it "
                    "is not removed: leave --rm out");
    if (!output) return CODE_OK;
    char *directory = directory_of(output);
    if (find_touched(output, 1, may_replace, 0, 0, o) || find_touched(directory, 0, 0, 0, 0, o))
        code = fail(CODE_ERROR, output,
                    "is or belongs to a base, which would be changed; name another output with -o");
    free(directory);
    return code;
}

int check_source(const char *source, const struct options *o)
{
    /* touches a link below the first argument, which is the base */
    const struct base *link = o->bases->n ? find_touched(source, 1, 0, 1, 1, o) : NULL;
    return link ? fail(CODE_ERROR, source,
                       "is needed to restore the base %.300s (%.300s): once it is gone, "
                       "neither the base nor what is made here could be restored; leave out "
                       "--base, or name one that does not need it",
                       o->bases->list[0].name, link->name)
                : CODE_OK;
}
