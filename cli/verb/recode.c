/* recode.c - lmc fold, lmc rebase: a snapshot against another base
 * SPDX-License-Identifier: MIT
 *
 * The snapshot is read through its chain, window by window, and written again; it is never in
 * memory or on the disk as a whole. Files keep their order (but see find_twins), paths, attributes
 * and tensors. So the output has the same fingerprint and restores the same bytes.
 */
#include "verbs.h"

#include "../input/base.h"
#include "../input/reread.h"
#include "../job/writer.h"
#include "../sys/attributes.h"
#include "../sys/output.h"

/* The base of that name; NULL: none. */
static struct base *find_base_named(const char *name, const struct options *o)
{
    for (size_t i = 0; i < o->bases->n; i++)
        if (strcmp(o->bases->list[i].name, name) == 0) return &o->bases->list[i];
    return NULL;
}

/* Prepares the base for the open snapshot. The base must not need the snapshot's own file: if the
 * output replaced that file, neither could be restored. */
static int prepare_onto(struct base *onto, const struct archive *a, const struct options *o)
{
    int code = prepare_base(onto, o);
    for (const struct base *b = onto; b && code == CODE_OK; b = b->below)
        if (is_snapshot(b) && same_file(&b->archive.st, &a->st))
            code = fail(CODE_BASE, onto->name,
                        "%s %s, which cannot be coded against it; choose another base",
                        b == onto ? "is" : "is a delta that needs", a->name);
    return code;
}

int recode_snapshot(const char *tip, const char *onto, const struct options *o)
{
    const char *const output = file_of_output(o);
    struct output out;
    struct archive a;
    struct base *base = onto ? find_base_named(onto, o) : NULL;
    const lmc_base *own;
    if (onto && !base) return fail(CODE_BASE, onto, "is none of the bases that are given");
    int code = open_archive_file(&a, tip, o);
    if (code == CODE_OK && output) code = check_output(output, &a.st, o->force);
    if (code == CODE_OK) code = find_base_of_archive(&a, &own, o);
    if (code == CODE_OK) code = read_archive_index(&a, own);
    if (code == CODE_OK && base) code = prepare_onto(base, &a, o);
    if (code == CODE_OK && has_hashes(&a)) /* new ones would hide that these are wrong */
        code = check_hashes(tip, own, o);
    if (code == CODE_OK) code = protect_bases(NULL, output, 0, o);
    const struct attributes attributes = attributes_of_stat(&a.st);
    if (code == CODE_OK) code = open_output(&out, output, &a.st, o->force);
    if (code == CODE_OK) code = recode_archive(&a, base, &out, &attributes, NULL, o);
    close_archive(&a);
    return code;
}

/* -- fold -- */

static int holds_base(const struct base *list, size_t n, const struct base *b)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, b->name) == 0 || is_same_file(list[i].name, b->name)) return 1;
    return 0;
}

/* The delta of that fingerprint; NULL: none. */
static struct base *find_delta(const uint8_t *fingerprint, struct base *deltas, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (same_fingerprint(deltas[i].fingerprint, fingerprint)) return &deltas[i];
    return NULL;
}

/* Whether another delta needs this one. (One without changes has its base's fingerprint.) */
static int is_needed(const struct base *delta, const struct base *deltas, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (&deltas[i] != delta && same_fingerprint(deltas[i].archive.wanted, delta->fingerprint))
            return 1;
    return 0;
}

static int open_deltas(struct base *deltas, size_t n, const struct options *o)
{
    for (size_t i = 0; i < n; i++) {
        const char *const name = deltas[i].name;
        struct stat st;
        const int is_file = stat(name, &st) == 0 && S_ISREG(st.st_mode);
        int code = is_file ? open_base(&deltas[i], o) : fail_foreign(name, o);
        if (code == CODE_OK && !is_snapshot(&deltas[i])) code = fail_foreign(name, o);
        if (code == CODE_OK) code = identify_base(&deltas[i], o);
        if (code == CODE_OK && !deltas[i].archive.is_delta)
            code = fail(CODE_USAGE, deltas[i].name,
                        "is not a delta but a whole snapshot; if the others are made against it, "
                        "name it with --base");
        if (code == CODE_OK && find_delta(deltas[i].fingerprint, deltas, i))
            code = fail(CODE_USAGE, deltas[i].name, "is the same snapshot as %s; give one of them",
                        find_delta(deltas[i].fingerprint, deltas, i)->name);
        if (code != CODE_OK) return code;
    }
    return CODE_OK;
}

/* Checks that the base of every delta is among the deltas or the other bases. */
static int check_links(struct base *deltas, size_t n, const struct options *o)
{
    const int is_closed = o->bases->is_closed;
    int code = CODE_OK;
    o->bases->is_closed = 1; /* only named files: files beside them are not folded */
    for (size_t i = 0; i < n && code == CODE_OK; i++)
        if (!find_base(&deltas[i].archive, o, &code) && code == CODE_OK) {
            char *made_with = copy_metadata(&deltas[i].archive, BASE_KEY);
            code = fail_base(deltas[i].name, deltas[i].archive.wanted, made_with, o);
            free(made_with);
        }
    o->bases->is_closed = is_closed;
    return code;
}

/* Finds the only delta that no other delta is made against. Its chain of bases has all the others,
 * unless some form a loop. */
static int find_tip(struct base *deltas, size_t n, struct base **tip)
{
    size_t n_links = 0;
    *tip = NULL;
    for (size_t i = 0; i < n; i++)
        if (!is_needed(&deltas[i], deltas, n)) {
            if (*tip)
                return fail(CODE_USAGE, deltas[i].name,
                            "is not a link of the chain that ends in %s; leave one of them out",
                            (*tip)->name);
            *tip = &deltas[i];
        }
    for (const struct base *b = *tip; b && n_links < n;
         b = find_delta(b->archive.wanted, deltas, n))
        n_links++;
    return n_links == n ? CODE_OK
                        : fail(CODE_BASE, deltas->name,
                               "is in a loop of deltas, each of which needs the next one as "
                               "its base");
}

int fold_deltas(const struct options *o)
{
    const size_t n = o->n_names, n_bases = o->bases->n;
    size_t first = 0;
    struct base *deltas, *tip;
    for (size_t i = 0; i < n; i++) add_base(o->bases, o->names[i]);
    deltas = o->bases->list + n_bases;
    while (first < n_bases && holds_base(deltas, n, &o->bases->list[first])) first++;
    int code = open_deltas(deltas, n, o);
    if (code == CODE_OK && first == n_bases)
        code = fail(CODE_USAGE, NULL, "'lmc fold' needs --base with the base of the first delta");
    if (code == CODE_OK) code = check_links(deltas, n, o);
    if (code == CODE_OK) code = find_tip(deltas, n, &tip);
    return code == CODE_OK ? recode_snapshot(tip->name, o->bases->list[first].name, o) : code;
}

/* -- rebase -- */

int rebase_snapshot(const struct options *o)
{
    const char *const onto = strcmp(o->onto, "none") == 0 ? NULL : o->onto;
    if (onto && !find_base_named(onto, o)) add_base(o->bases, onto);
    return recode_snapshot(o->names[0], onto, o);
}
