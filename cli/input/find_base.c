/* SPDX-License-Identifier: MIT */
#include "base.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../format/hex.h"
#include "../format/print.h"
#include "archive.h"
#include "common.h"
#include "depths.h"
#include "places.h"
#include "stand_in.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"

/* -- where the arguments are -- */

/* Knows the fingerprint of each argument that is an intact snapshot, without opening it for good.
 * The others are listed: a long chain, all of which is given, looks for each link among few. */
static void look_at_given(const struct common *o)
{
    struct bases *all = o->bases;
    if (!all->given) {
        all->given = (struct places *)resize(NULL, 1, sizeof *all->given);
        memset(all->given, 0, sizeof *all->given);
    }
    for (; all->n_given < all->n; all->n_given++) {
        struct base *b = &all->list[all->n_given];
        struct stat st;
        b->is_directory = stat(b->name, &st) == 0 && S_ISDIR(st.st_mode);
        b->is_place = b->is_directory && contains_snapshots(b->name);
        b->is_known = !b->is_directory && add_place(all->given, b->name, all->n_given) == 0;
        if (b->is_known) continue;
        all->others = (size_t *)resize(all->others, all->n_others + 1, sizeof *all->others);
        all->others[all->n_others++] = all->n_given;
    }
}

/* Whether b is the base that is wanted; *code. A delta whose own base is being looked for is kept
 * for later. */
static int is_wanted(struct base *b, const struct archive *delta, struct base **visited,
                     const struct common *o, int *code)
{
    *code = identify_base_as(b, 0, o);
    if (*code != CODE_OK || memcmp(b->fingerprint, delta->wanted, LMC_FINGERPRINT_SIZE) != 0)
        return 0;
    if (!b->is_visited) return 1;
    *visited = b;
    return 0;
}

static void make_places(struct bases *all)
{
    if (all->places) return;
    all->places = (struct places *)resize(NULL, 1, sizeof *all->places);
    memset(all->places, 0, sizeof *all->places);
}

/* The directory of a damaged snapshot becomes a place to look: another copy may need what lies
 * beside this one. */
static void look_beside(struct bases *all, const struct base *b)
{
    char *beside = directory_of(b->name);
    make_places(all);
    if (!all->is_closed) add_places(all->places, beside);
    free(beside);
}

/* Snapshots among the arguments: whole ones, or deltas. */
static struct base *find_given(struct archive *delta, int is_whole, struct base **visited,
                               const struct common *o, int *damaged)
{
    size_t n;
    const struct place_entry *e = find_places(o->bases->given, delta->wanted, &n);
    for (size_t i = 0; i < n; i++) {
        struct base *b = &o->bases->list[e[i].number];
        int result = CODE_OK;
        if (e[i].is_delta == is_whole || b->is_damaged) continue;
        if (is_wanted(b, delta, visited, o, &result)) return b;
        b->is_damaged = result != CODE_OK; /* that was said; another copy may do */
        if (b->is_damaged) look_beside(o->bases, b);
        *damaged = worse(*damaged, result);
    }
    return NULL;
}

/* Arguments that are files or directories; then snapshots that could not be told from outside,
 * which are damaged. */
static struct base *find_given_files(struct archive *delta, int is_archive, struct base **visited,
                                     const struct common *o, int *code)
{
    for (size_t i = 0; i < o->bases->n_others && *code == CODE_OK; i++) {
        struct base *b = &o->bases->list[o->bases->others[i]], *view;
        *code = open_base(b, o);
        if (*code != CODE_OK || b->is_archive != is_archive) continue;
        view = is_archive ? NULL : find_view(b, delta, o, code);
        if (view || *code != CODE_OK) return view;
        if (is_wanted(b, delta, visited, o, code)) return b;
    }
    return NULL;
}

/* -- what was not given -- */

static struct base *add_found(struct bases *all, const char *path)
{
    struct base *b = (struct base *)resize(NULL, 1, sizeof *b);
    memset(b, 0, sizeof *b);
    b->name = b->own_name = copy_string(path, strlen(path));
    b->all = all;
    b->next_found = all->found;
    all->found = b;
    return b;
}

/* Places are listed once, so each of their snapshots has one entry. */
static struct base *base_at(struct bases *all, struct place_entry *e)
{
    if (!e->base) e->base = add_found(all, e->path);
    return e->base;
}

static struct base *find_or_add_found(struct bases *all, const char *path)
{
    struct base *b = all->found;
    while (b && strcmp(b->name, path) != 0) b = b->next_found;
    return b ? b : add_found(all, path);
}

/* The path leads to the delta's own file. */
static int is_delta(const char *path, const struct archive *delta)
{
    struct stat st;
    return delta->fd >= 0 && stat(path, &st) == 0 && same_file(&st, &delta->st);
}

/* The directory of the delta, where its base may lie, too; NULL: it has none. To be freed. */
static char *directory_of_delta(const struct archive *delta)
{
    return is_delta(delta->name, delta) ? directory_of(delta->name) : NULL;
}

/* Those of --search, and directories of snapshots among the arguments. */
static void add_all_places(struct bases *all)
{
    for (size_t i = 0; i < all->n_search; i++) add_places(all->places, all->search[i]);
    for (size_t i = 0; i < all->n_others; i++)
        if (all->list[all->others[i]].is_place)
            add_places(all->places, all->list[all->others[i]].name);
}

static void look_at_places(const struct archive *delta, const struct common *o)
{
    struct bases *all = o->bases;
    char *beside = directory_of_delta(delta);
    make_places(all);
    add_all_places(all);
    if (beside && !all->is_closed) add_places(all->places, beside);
    free(beside);
}

/* A delta in which nothing has changed: whoever gives it its base has the same for others. */
static int needs_its_like(const struct place_entry *e)
{
    return e->is_delta && memcmp(e->wanted, e->fingerprint, LMC_FINGERPRINT_SIZE) == 0;
}

/* A snapshot in one of the places whose chain is there, the shortest first: so no loop comes of
 * snapshots that nobody has named. Or, if is_loose, one that needs something else, which is raw
 * perhaps. Never one in which nothing has changed. A damaged one was reported, and others are
 * tried. */
static struct base *find_in_places(struct archive *delta, int is_loose, const struct common *o,
                                   int *damaged)
{
    size_t n;
    struct place_entry *e;
    struct base *visited = NULL;
    look_at_places(delta, o);
    e = find_places(o->bases->places, delta->wanted, &n);
    for (size_t i = 0; i < n; i++) {
        struct base *b;
        int result;
        if ((e[i].depth >= DEPTH_LOOSE) != is_loose || needs_its_like(&e[i])) continue;
        b = base_at(o->bases, &e[i]);
        if (b->is_damaged) continue; /* which was said */
        if (is_wanted(b, delta, &visited, o, &result)) return b;
        b->is_damaged = result != CODE_OK;
        *damaged = worse(*damaged, result);
    }
    return NULL;
}

/* What a snapshot was made from, by its name, if that still lies beside it. */
static struct base *find_source_of(struct base *b, const struct common *o)
{
    struct base *c = NULL;
    struct stat st;
    char *path;
    if (!has_suffix(b->name)) return NULL;
    path = copy_string(b->name, strlen(b->name) - strlen(SUFFIX));
    if (stat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        c = find_or_add_found(b->all, path);
    free(path);
    return c && can_stand_in(c, b, o) ? c : NULL;
}

/* Of the snapshots with b's fingerprint, those that a delta may be read with in its place; to be
 * freed. They are collected first: who prepares one may add places, and the list moves. */
static struct base **list_copies(const struct base *b, size_t *n_copies)
{
    struct bases *all = b->all;
    struct base **copies = NULL;
    *n_copies = 0;
    for (unsigned k = 0; k < 2; k++) {
        size_t n;
        struct place_entry *e = find_places(k ? all->places : all->given, b->fingerprint, &n);
        copies = (struct base **)resize((void *)copies, *n_copies + n + 1, sizeof *copies);
        for (size_t i = 0; i < n; i++)
            if (!needs_its_like(&e[i]))
                copies[(*n_copies)++] = k ? base_at(all, &e[i]) : &all->list[e[i].number];
    }
    return copies;
}

struct base *find_instead(struct base *b)
{
    const struct common *o = b->archive.o;
    struct bases *all = b->all;
    const int code = all->code;
    struct base **copies, *found = NULL;
    size_t n;
    look_at_given(o);
    look_beside(all, b);
    add_all_places(all);
    copies = list_copies(b, &n);
    for (size_t i = 0; i < n && !found; i++)
        if (can_stand_in(copies[i], b, o)) found = copies[i];
    free((void *)copies);
    for (size_t i = 0; i < all->n && !found; i++) /* files */
        if (!all->list[i].is_known && !all->list[i].is_place && can_stand_in(&all->list[i], b, o))
            found = &all->list[i];
    if (!found && !all->is_closed) found = find_source_of(b, o);
    all->code = code; /* of a copy that is no use, too, all was said */
    return found;
}

/* What the delta says that its base was called, if that is a file or directory beside it, and no
 * snapshot: those are known. NULL: it is not; to be freed. */
static char *find_name_beside(struct archive *delta)
{
    char *beside = directory_of_delta(delta), *name = NULL, *path = NULL;
    struct stat st;
    if (beside && (delta->reader || try_archive_index(delta, NULL) == LMC_OK))
        name = copy_metadata(delta, BASE_KEY);
    if (name && *name && !strchr(name, '/') && !is_dot(name))
        path = join_path(is_dot(beside) ? name : beside, is_dot(beside) ? "" : name);
    if (path && has_suffix(path) && stat(path, &st) != 0) /* or what was compressed to that */
        path[strlen(path) - strlen(SUFFIX)] = 0;
    if (path && (stat(path, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) ||
                 same_file(&st, &delta->st) || has_suffix(path))) {
        free(path);
        path = NULL;
    }
    free(name);
    free(beside);
    return path;
}

static struct base *find_by_name(struct archive *delta, const struct common *o, int *code)
{
    char *path = find_name_beside(delta);
    struct base *b = NULL, *visited = NULL, *view = NULL;
    if (path) {
        b = find_or_add_found(o->bases, path);
        if (b->state < BASE_IDENTIFIED && o->verbosity > 1)
            say(path, "is read to see whether it is the base of %.300s", delta->name);
        *code = open_base(b, o);
        if (*code == CODE_OK && !b->is_archive) view = find_view(b, delta, o, code);
        if (*code == CODE_OK && !view) view = is_wanted(b, delta, &visited, o, code) ? b : NULL;
    }
    free(path);
    return view;
}

/* Directories among the arguments where snapshots lie, or --search. */
static int has_places_given(const struct common *o)
{
    for (size_t i = 0; i < o->bases->n_others; i++)
        if (o->bases->list[o->bases->others[i]].is_place) return 1;
    return o->bases->n_search != 0;
}

static struct base *look_for_base(struct archive *delta, const struct common *o, int *code)
{
    struct base *visited = NULL, *b;
    int damaged = CODE_OK;
    look_at_given(o);
    b = find_given(delta, 1, &visited, o, &damaged);
    if (!b && has_places_given(o)) b = find_in_places(delta, 0, o, &damaged);
    if (!b && *code == CODE_OK) b = find_given_files(delta, 0, &visited, o, code);
    if (!b && *code == CODE_OK) b = find_given(delta, 0, &visited, o, &damaged);
    if (!b && *code == CODE_OK) b = find_given_files(delta, 1, &visited, o, code);
    if (!b && *code == CODE_OK && !o->bases->is_closed) b = find_in_places(delta, 0, o, &damaged);
    if (!b && *code == CODE_OK && !o->bases->is_closed) b = find_by_name(delta, o, code);
    if (!b && *code == CODE_OK && !visited && (!o->bases->is_closed || has_places_given(o)))
        b = find_in_places(delta, 1, o, &damaged);
    if (!b && *code == CODE_OK) *code = damaged;
    if (visited && memcmp(visited->archive.wanted, delta->wanted, LMC_FINGERPRINT_SIZE) == 0)
        visited = NULL; /* nothing has changed in it: its base is missing, and is no loop */
    return b || *code != CODE_OK ? b : visited;
}

struct base *find_base(struct archive *delta, const struct common *o, int *code)
{
    struct base *b;
    *code = CODE_OK;
    b = look_for_base(delta, o, code);
    if (b) b->is_used = 1;
    if (b && *code == CODE_OK && o->verbosity >= 2 && !o->bases->is_quiet)
        say(delta->name, "its base is %.300s", b->name);
    for (size_t i = 0; b && !b->is_archive && i < o->bases->n_others; i++) /* whose view it is */
        if (o->bases->list[o->bases->others[i]].name == b->name)
            o->bases->list[o->bases->others[i]].is_used = 1;
    for (struct base *f = o->bases->found; b && !b->is_archive && f; f = f->next_found)
        if (f->name == b->name) f->is_used = 1;
    return *code == CODE_OK ? b : NULL;
}

/* -- telling -- */

/* The snapshot with that fingerprint and the shortest chain, as far as can be seen from outside. */
static const struct place_entry *locate(const uint8_t *wanted, const struct common *o)
{
    struct places *const all[] = {o->bases->given, o->bases->places};
    const struct place_entry *best = NULL;
    for (size_t k = 0; k < 2; k++) {
        size_t n;
        const struct place_entry *e = find_places(all[k], wanted, &n);
        for (; n > 0; n--, e++)
            if (!needs_its_like(e) && (!best || e->depth < best->depth)) best = e;
    }
    return best;
}

/* The end of a chain that is no snapshot: what it was called may lie there as it is. last: the
 * delta that needs it. */
static void print_missing(const char *last, const uint8_t *wanted, const struct common *o)
{
    struct archive a;
    char text[2 * SHORT_FINGERPRINT + 1], *path = NULL;
    format_hex(text, wanted, SHORT_FINGERPRINT);
    memset(&a, 0, sizeof a);
    a.fd = -1;
    if (open_archive_file(&a, last, o) == CODE_OK) path = find_name_beside(&a);
    close_archive(&a);
    for (size_t i = 0; i < o->bases->n && !path; i++)
        if (!o->bases->list[i].is_known && !o->bases->list[i].is_place)
            path = copy_string(o->bases->list[i].name, strlen(o->bases->list[i].name));
    printf("%s", text);
    if (path) {
        printf(", perhaps ");
        print_name(path);
        printf(" ('lmc -t' reads it and tells)");
    } else printf(" is not beside it");
    free(path);
}

void print_chain(struct archive *delta, const struct common *o)
{
    enum { MOST = 8 };
    uint8_t wanted[LMC_FINGERPRINT_SIZE];
    char *last = copy_string(delta->name, strlen(delta->name));
    int needs_more = 1;
    size_t n = 0;
    memcpy(wanted, delta->wanted, sizeof wanted);
    look_at_given(o);
    look_at_places(delta, o);
    printf("  chain    ");
    while (needs_more) {
        const struct place_entry *e = locate(wanted, o);
        char *directory;
        if (n++ < MOST && e) {
            printf("%s", n > 1 ? " <- " : "");
            print_name(e->path);
        }
        if (!e || n > o->bases->given->n + o->bases->places->n) break; /* or they go round */
        needs_more = e->is_delta;
        memcpy(wanted, e->wanted, sizeof wanted);
        free(last);
        last = copy_string(e->path, strlen(e->path));
        directory = directory_of(e->path); /* where the next one may be: e is not valid then */
        add_places(o->bases->places, directory);
        free(directory);
    }
    if (n > MOST) printf(" <- ... %llu in all", (unsigned long long)(n - (size_t)needs_more));
    if (needs_more && n > 1) printf(" <- ");
    if (needs_more) print_missing(last, wanted, o);
    putchar('\n');
    free(last);
}

static int is_same_file(const char *a, const char *b)
{
    struct stat st, other;
    return strcmp(a, b) == 0 ||
           (stat(a, &st) == 0 && stat(b, &other) == 0 && same_file(&st, &other));
}

/* "hf-1" or "hf-1.lmc" of "runs/hf-1.lmc". */
static int is_called(const char *path, const char *name)
{
    const size_t size = strlen(name);
    path = base_name(path);
    return strncmp(path, name, size) == 0 && (!path[size] || strcmp(path + size, SUFFIX) == 0);
}

/* Adds what was looked through for the base of the delta called name: how many, and of one alone,
 * or that has the base's name, what it is. A snapshot with the wanted fingerprint that was not
 * taken is a delta that needs it itself, or damaged, which was said. */
static size_t list_places(char *text, size_t cap, size_t used, const struct places *p,
                          const char *name, const char *made_with)
{
    const struct place_entry *shown = NULL;
    char *beside = directory_of(name), fingerprint[2 * SHORT_FINGERPRINT + 1];
    const char *where = p->n_directories == 1 && strcmp(p->directories[0], beside) == 0
                            ? "beside it"
                            : "where it was looked for";
    size_t n = 0;
    free(beside);
    if (p->n_directories == 0) return used;
    for (size_t i = 0; i < p->n; i++) {
        const struct place_entry *e = &p->list[i];
        if (is_same_file(e->path, name)) continue;
        if (n++ == 0 || (made_with && is_called(e->path, made_with))) shown = e;
    }
    if (shown && n > 1 && !(made_with && is_called(shown->path, made_with))) shown = NULL;
    if (n == 0)
        used += (size_t)snprintf(text + used, cap - used, "; no other .lmc file is %s", where);
    else if (n == 1)
        used += (size_t)snprintf(text + used, cap - used,
                                 "; the only other .lmc file %s does not restore that", where);
    else
        used += (size_t)snprintf(text + used, cap - used,
                                 "; none of the %llu other .lmc files %s restores that",
                                 (unsigned long long)n, where);
    if (!shown || used >= cap) return used;
    format_hex(fingerprint, shown->fingerprint, SHORT_FINGERPRINT);
    return used +
           (size_t)snprintf(text + used, cap - used, ": %.150s is %s", shown->path, fingerprint);
}

/* Arguments and places that need a base, too, which is nowhere: all is said at once. */
static void say_others_missing(const uint8_t *wanted, const struct common *o)
{
    const struct bases *all = o->bases;
    char missing[2 * SHORT_FINGERPRINT + 1];
    for (size_t i = 0; all->given && i < all->given->n; i++) {
        const struct place_entry *e = &all->given->list[i];
        size_t n = 0, m = 0;
        if (!e->is_delta || memcmp(e->wanted, wanted, LMC_FINGERPRINT_SIZE) == 0) continue;
        (void)find_places(all->given, e->wanted, &n);
        if (all->places) (void)find_places(all->places, e->wanted, &m);
        format_hex(missing, e->wanted, SHORT_FINGERPRINT);
        if (n + m == 0) say(e->path, "needs the base %s, which is missing, too", missing);
    }
}

int fail_base(const char *name, const uint8_t *wanted, const char *made_with,
              const struct common *o)
{
    enum { MOST = 3 }; /* so that all fits into a message */
    char text[2 * SHORT_FINGERPRINT + 1], given[2 * SHORT_FINGERPRINT + 1], list[700] = "";
    size_t size = 0, n_given = 0;
    int code;
    format_hex(text, wanted, SHORT_FINGERPRINT);
    for (size_t i = 0; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        const struct place_entry *e = find_place_numbered(o->bases->given, i);
        const uint8_t *fingerprint = e ? e->fingerprint : b->fingerprint;
        if ((b->state < BASE_IDENTIFIED && !e) ||
            memcmp(fingerprint, wanted, LMC_FINGERPRINT_SIZE) == 0)
            continue;
        if (n_given++ >= MOST) continue;
        format_hex(given, fingerprint, SHORT_FINGERPRINT);
        size += (size_t)snprintf(list + size, sizeof list - size, "%s%.100s is %s",
                                 size ? ", " : "; given: ", b->name, given);
    }
    if (n_given > MOST)
        size += (size_t)snprintf(list + size, sizeof list - size, " and %llu more",
                                 (unsigned long long)(n_given - MOST));
    if (o->bases->places)
        size = list_places(list, sizeof list, size, o->bases->places, name, made_with);
    code = fail(CODE_BASE, name, "needs the base %s%s%.200s%s%s; name it with --base PATH%s", text,
                made_with ? " (named '" : "", made_with ? made_with : "",
                made_with ? "' when this delta was made)" : "", list,
                o->bases->is_closed ? "" : " or --search DIR");
    say_others_missing(wanted, o);
    return code;
}

void say_unused_bases(int all_must_be, const struct common *o)
{
    char list[700] = "";
    size_t size = 0, n_unused = 0, n_used = 0;
    if (o->verbosity == 0 || o->bases->is_quiet) return;
    for (size_t i = 0; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        n_used += b->is_used != 0;
        if (b->is_used || contains_snapshots(b->name)) continue; /* a place to look */
        if (n_unused++ < 4 && size < sizeof list)
            size += (size_t)snprintf(list + size, sizeof list - size, "%s%.150s",
                                     n_unused > 1 ? ", " : "", b->name);
    }
    if (n_unused > 4 && size < sizeof list)
        snprintf(list + size, sizeof list - size, " and %llu more",
                 (unsigned long long)(n_unused - 4));
    if (n_unused && (all_must_be || n_used == 0))
        say(NULL, "not needed of the bases: %s%s", list,
            all_must_be ? "; the first is taken, and what that needs itself" : "");
}

void add_search(struct bases *bases, const char *directory)
{
    bases->search =
        (const char **)resize((void *)bases->search, bases->n_search + 1, sizeof *bases->search);
    bases->search[bases->n_search++] = directory;
}

void free_search(struct bases *bases)
{
    if (bases->given) free_places(bases->given);
    if (bases->places) free_places(bases->places);
    free(bases->given);
    free(bases->places);
    free((void *)bases->search);
    free(bases->others);
}
