/* find_base.c - the search for the base of a delta, by its fingerprint
 * SPDX-License-Identifier: MIT
 *
 * The table `order` has the steps of the search, and why they come in this order.
 */
#include "base.h"

#include "../format/print.h"
#include "options.h"
#include "../sys/attributes.h"

/* The delta's name if it is the path of the delta's file, else NULL. The base may be beside it. */
const char *path_of_delta(const struct archive *delta)
{
    struct stat st;
    return delta->fd >= 0 && stat(delta->name, &st) == 0 && same_file(&st, &delta->st) ? delta->name
                                                                                       : NULL;
}

/* Kinds of snapshots. WHOLE and DELTA: given. FOUND: not given, but its whole chain was found; the
 * shortest chain is first, so there are no loops. ORPHAN: its chain ends in a missing base, which
 * may be a file that is not compressed. */
enum kind { WHOLE, DELTA, FOUND, ORPHAN };

static enum kind kind_of(const struct catalog_entry *e)
{
    if (e->is_given) return e->is_delta ? DELTA : WHOLE;
    return e->depth < DEPTH_LOOSE ? FOUND : ORPHAN;
}

/* The base of a candidate. */
static struct base *base_of(struct bases *all, struct catalog_entry *e)
{
    if (e->is_given) return &all->list[e->number];
    if (!e->base) e->base = add_found(all, e->path);
    return e->base;
}

/* The snapshots of that kind with that fingerprint. Deltas that change nothing are left out, unless
 * given. The caller frees the list. It has copies of the pointers, because opening a snapshot may
 * add candidates, and so move their list. */
static struct base **list_snapshots_of(struct bases *all, const uint8_t *fingerprint,
                                       enum kind kind, size_t *n_found)
{
    size_t n;
    struct catalog_entry *e = find_entries(&all->catalog, fingerprint, &n);
    struct base **found = (struct base **)resize(NULL, n + 1, sizeof *found);
    *n_found = 0;
    for (; n && n--; e++)
        if (kind_of(e) == kind && (e->is_given || !is_unchanged_delta(e)))
            found[(*n_found)++] = base_of(all, e);
    return found;
}

/* The search for the base of a delta. */
struct hunt {
    struct archive *delta;
    const struct options *o;
    struct base *visited; /* a snapshot that is wanted, but whose own base is being searched */
    struct base *beside;  /* the file beside the delta that has the name of its base; or NULL */
    struct base *known; /* one that is the base, but damaged, which was reported before; or NULL */
    int damaged;        /* exit code of unreadable snapshots; a copy may be found */
    int code;           /* not CODE_OK: the search ends */
};

static int is_wanted(struct hunt *h, struct base *b, int *code)
{
    *code = identify_base_as(b, 0, h->o);
    if (*code != CODE_OK || !same_fingerprint(b->fingerprint, h->delta->wanted)) return 0;
    if (b->state != BASE_VISITED) return 1;
    h->visited = b;
    return 0;
}

/* Of the snapshots of that kind, the first that can be read. If a snapshot is damaged, also
 * searches its directory: a copy may be there. */
static struct base *find_snapshot(struct hunt *h, int kind)
{
    struct bases *all = h->o->bases;
    struct base **list, *found = NULL;
    size_t n;
    if (kind == ORPHAN && h->visited) return NULL;
    if (kind == FOUND || kind == ORPHAN) look_in_directories(all, path_of_delta(h->delta));
    list = list_snapshots_of(all, h->delta->wanted, (enum kind)kind, &n);
    for (size_t i = 0; i < n && !found; i++) {
        struct base *b = list[i];
        int code = CODE_OK;
        if (b->state == BASE_DAMAGED) {
            h->known = b;
            continue;
        }
        if (is_wanted(h, b, &code)) found = b;
        if (code == CODE_OK) continue;
        b->state = BASE_DAMAGED; /* which was reported */
        look_in_directories(all, b->name);
        h->damaged = worse(h->damaged, code);
    }
    free((void *)list);
    return found;
}

/* Returns b, or for files its view, if it is the wanted base. b may be a damaged snapshot, too. */
static struct base *try_files(struct hunt *h, struct base *b)
{
    struct base *view = NULL;
    if (!is_snapshot(b)) view = find_view(b, h->delta, h->o, &h->code);
    return view || h->code != CODE_OK ? view : is_wanted(h, b, &h->code) ? b : NULL;
}

/* Tries the arguments that are files or directories; or (of_snapshots) snapshots that could not be
 * recognised, as they are damaged. */
static struct base *find_given_files(struct hunt *h, int of_snapshots)
{
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    for (size_t i = 0; i < all->n_others && h->code == CODE_OK && !found; i++) {
        struct base *b = &all->list[all->others[i]];
        h->code = open_base(b, h->o);
        if (h->code == CODE_OK && is_snapshot(b) == of_snapshots) found = try_files(h, b);
    }
    return found;
}

char *find_name_beside(struct archive *delta)
{
    const char *const own = path_of_delta(delta);
    char *beside = own ? directory_of(own) : NULL, *name = NULL, *path = NULL;
    struct stat st;
    if (beside && (delta->reader || try_archive_index(delta, NULL) == LMC_OK))
        name = copy_metadata(delta, BASE_KEY);
    if (name && *name && !strchr(name, '/') && !is_dot(name))
        path = join_path(is_dot(beside) ? name : beside, is_dot(beside) ? "" : name);
    if (path && has_suffix(path) && stat(path, &st) != 0) /* or what it was made from */
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

static struct base *find_by_name(struct hunt *h, int unused)
{
    char *path = find_name_beside(h->delta);
    struct base *b = path ? add_found(h->o->bases, path) : NULL, *found = NULL;
    (void)unused;
    h->beside = b;
    if (b && b->state < BASE_IDENTIFIED && h->o->verbosity > 1)
        say(path, "is read to see whether it is the base of %.300s", h->delta->name);
    if (b) h->code = open_base(b, h->o);
    if (b && h->code == CODE_OK) found = try_files(h, b);
    free(path);
    return found;
}

/* Reads the files that were tried in other ways. */
static struct base *find_other_views(struct hunt *h, int unused)
{
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    (void)unused;
    for (size_t i = 0; i <= all->n_others && h->code == CODE_OK && !found; i++) {
        struct base *b = i < all->n_others ? &all->list[all->others[i]] : h->beside;
        if (b && b->state >= BASE_IDENTIFIED && !is_snapshot(b))
            found = find_other_view(b, h->delta, h->o, &h->code);
    }
    return found;
}

/* Lists the whole snapshots that are arguments (directory NULL), or that are in the directory. */
static struct base **list_shards(struct bases *all, const char *directory, size_t *n)
{
    struct base **list = (struct base **)resize(NULL, all->catalog.n + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < all->catalog.n; i++) {
        struct catalog_entry *const e = &all->catalog.list[i];
        char *in = directory_of(e->path);
        if (!e->is_delta && (directory ? !e->is_given && is_same_file(in, directory) : e->is_given))
            list[(*n)++] = base_of(all, e);
        free(in);
    }
    return list;
}

/* Tries several snapshots as one base: the arguments together, and those in each directory. Each
 * takes a descriptor, so a directory of very many is not tried. */
static struct base *find_shards(struct hunt *h, int unused)
{
    enum { MOST = 256 };
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    (void)unused;
    for (size_t i = 0; i <= all->n_search && h->code == CODE_OK && !found; i++) {
        const char *const directory = i ? all->search[i - 1] : NULL;
        size_t n;
        struct base **shards = list_shards(all, directory, &n);
        char *name = format_text("%.200s (%llu snapshots)", directory ? directory : "what is given",
                                 (unsigned long long)n);
        struct base *b = n > 1 && n <= MOST ? add_found(all, name) : NULL;
        if (b && b->state == BASE_NAMED) {
            h->damaged = worse(h->damaged, join_shards(b, shards, n, h->o));
            shards = NULL;
        }
        if (b && b->state >= BASE_IDENTIFIED &&
            same_fingerprint(b->fingerprint, h->delta->wanted)) {
            found = b;
            for (size_t k = 0; k < n; k++) b->shards[k]->is_used = 1;
        }
        free((void *)shards);
        free(name);
    }
    return found;
}

/* When a step is tried: always; if directories to search are given; if others may be searched. */
enum { ALWAYS = 1, IN_DIRECTORIES = 2, IF_OPEN = 4 };

/* The steps of the search. What is given comes before what lies around; what its header tells,
 * before what must be read whole; and what needs nothing else, before what needs a base itself. */
static const struct {
    struct base *(*find)(struct hunt *h, int of);
    int of, when;
} order[] = {
    {find_snapshot, WHOLE, ALWAYS}, /* one look into its index is enough */
    /* the user has named the directory, so it comes before files, which would be read whole */
    {find_snapshot, FOUND, IN_DIRECTORIES},
    {find_given_files, 0, ALWAYS}, /* before deltas: a delta would need its chain as well */
    {find_snapshot, DELTA, ALWAYS},
    {find_given_files, 1, ALWAYS}, /* so that damage of what is given is said, not "is missing" */
    {find_snapshot, FOUND, IF_OPEN},
    {find_by_name, 0, IF_OPEN}, /* only the name speaks for it, and it must be read whole */
    /* its own base may yet be a file: finding it is the next search; not while a loop is closed */
    {find_snapshot, ORPHAN, IN_DIRECTORIES | IF_OPEN},
    {find_shards, 0, ALWAYS},      /* opens many snapshots, and is rare */
    {find_other_views, 0, ALWAYS}, /* reads files again that were already read in vain */
};

static struct base *look_for_base(struct hunt *h)
{
    struct bases *all = h->o->bases;
    struct base *b = NULL;
    look_at_arguments(all);
    const int now = ALWAYS | (all->n_search ? IN_DIRECTORIES : 0) | (all->is_closed ? 0 : IF_OPEN);
    for (size_t i = 0; i < sizeof order / sizeof *order && !b && h->code == CODE_OK; i++)
        if (order[i].when & now) b = order[i].find(h, order[i].of);
    return b;
}

struct base *find_base(struct archive *delta, const struct options *o, int *code)
{
    struct hunt h = {delta, o, NULL, NULL, NULL, CODE_OK, CODE_OK};
    struct base *b = look_for_base(&h);
    *code = b || h.code != CODE_OK ? h.code : h.damaged;
    if (!b && *code == CODE_OK && h.known)
        *code = fail(CODE_CORRUPT, h.known->name, "is damaged, as was said before");
    if (!b && h.visited && !same_fingerprint(h.visited->archive.wanted, delta->wanted))
        b = h.visited; /* a loop, unless the delta changes nothing */
    if (!b || *code != CODE_OK) return NULL;
    b->is_used = 1;
    if (o->verbosity >= 2 && !o->bases->is_quiet) say(delta->name, "its base is %.300s", b->name);
    return b;
}
