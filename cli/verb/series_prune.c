/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "series_chain.h"
#include "series_manifest.h"
#include "series_open.h"

/* What the rules keep. A name without a number is not judged by --keep-every. */
static int is_kept_by_rules(const struct series *s, const struct snapshot *e, size_t n_later,
                            const unsigned char *named)
{
    const struct series_options *r = s->o;
    uint64_t number;
    if (r->keep_last && n_later < r->keep_last) return 1;
    if (r->keep_every && (!find_number(e->name, &number) || number % r->keep_every == 0)) return 1;
    return named[e - s->list];
}

/* Marks what is to be forgotten. */
static int apply_rules(struct series *s, unsigned char *marks)
{
    size_t n_later = 0, n_kept = 0;
    unsigned char *named = (unsigned char *)resize(NULL, s->n + 1, 1); /* by --keep */
    int code = CODE_OK;
    memset(named, 0, s->n + 1);
    for (size_t i = 0; i < s->o->n_keep && code == CODE_OK; i++) {
        struct snapshot *e;
        code = choose_entry(s, s->o->keep[i], STATE_KEPT, &e);
        if (code == CODE_OK) named[e - s->list] = 1;
    }
    for (size_t i = s->n; i-- > 0 && code == CODE_OK;)
        if (s->list[i].state == STATE_KEPT) {
            marks[i] = (unsigned char)!is_kept_by_rules(s, &s->list[i], n_later++, named);
            n_kept += !marks[i];
        }
    free(named);
    if (code != CODE_OK) return code;
    return n_kept || !n_later ? CODE_OK
                              : fail(CODE_ERROR, s->directory,
                                     "these rules keep no snapshot at all; nothing was changed. To "
                                     "forget all, name them");
}

static int mark_names(const struct series *s, char **args, int n, enum snapshot_state from,
                      unsigned char *marks)
{
    int code = CODE_OK;
    for (int i = 0; i < n && code == CODE_OK; i++) {
        struct snapshot *e;
        code = choose_entry(s, args[i], from, &e);
        if (code == CODE_OK) marks[e - s->list] = e->state == from;
        if (code == CODE_OK && e->state != from && s->o->common.verbosity > 0)
            say(s->directory, "%.300s is %s already", e->name, state_names[e->state]);
    }
    return code;
}

/* The next gc would leave nothing: whoever names all wants that, or has erred. */
static int check_rest(const struct series *s, const unsigned char *marks)
{
    size_t n_marked = 0, n_kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        n_marked += marks[i] != 0;
        n_kept += s->list[i].state == STATE_KEPT && !marks[i];
    }
    return n_kept || !n_marked || s->o->common.force
               ? CODE_OK
               : fail(CODE_ERROR, s->directory,
                      "these are all of its snapshots, and the next gc would remove them; use -f "
                      "to forget them all the same");
}

static int change_states(struct series *s, const unsigned char *marks, enum snapshot_state to)
{
    size_t n = 0;
    uint64_t size = 0;
    for (size_t i = 0; i < s->n; i++)
        if (marks[i]) {
            tell(s->o, to == STATE_KEPT ? "keep" : "forget", s->list[i].name, "", "");
            s->list[i].state = to;
            size += s->list[i].packed_size;
            n++;
        }
    if (n && to == STATE_FORGOTTEN && s->o->common.verbosity > 0)
        say(s->directory,
            "%llu snapshot%s, %llu bytes,%s forgotten%s; 'lmc series DIR gc' frees "
            "what nothing else needs",
            (unsigned long long)n, n == 1 ? "" : "s", (unsigned long long)size,
            s->o->dry_run ? " would be" : "", s->o->dry_run ? "" : " now");
    return n && !s->o->dry_run ? save_manifest(s) : CODE_OK;
}

int series_prune(const char *directory, char **args, int n, const struct series_options *o)
{
    int has_rules = o->keep_last || o->keep_every || o->n_keep, code;
    struct series s;
    unsigned char *marks;
    if (has_rules == (n > 0))
        return fail(CODE_USAGE, NULL,
                    "'lmc series DIR prune' wants either the names to forget, or rules: "
                    "--keep-last K, --keep-every M, --keep NAME; see 'lmc help series'");
    code = open_series(&s, directory, o->dry_run ? TO_READ : TO_CHANGE, o);
    marks = (unsigned char *)resize(NULL, s.n, 1);
    memset(marks, 0, s.n);
    if (code == CODE_OK) index_series(&s);
    if (code == CODE_OK)
        code = has_rules ? apply_rules(&s, marks) : mark_names(&s, args, n, STATE_KEPT, marks);
    if (code == CODE_OK && !has_rules) code = check_rest(&s, marks);
    if (code == CODE_OK) code = change_states(&s, marks, STATE_FORGOTTEN);
    free(marks);
    close_series(&s);
    return code;
}

int series_keep(const char *directory, char **args, int n, const struct series_options *o)
{
    struct series s;
    unsigned char *marks;
    int code = open_series(&s, directory, TO_CHANGE, o);
    marks = (unsigned char *)resize(NULL, s.n, 1);
    memset(marks, 0, s.n);
    if (code == CODE_OK) index_series(&s);
    if (code == CODE_OK) code = mark_names(&s, args, n, STATE_FORGOTTEN, marks);
    for (size_t i = 0; i < s.n && code == CODE_OK; i++)
        if (marks[i]) code = check_chain_of(&s, &s.list[i], 0, NULL);
    if (code == CODE_OK) code = change_states(&s, marks, STATE_KEPT);
    free(marks);
    close_series(&s);
    return code;
}
