/* SPDX-License-Identifier: MIT */
#include "base.h"

#include "../format/print.h"
#include "options.h"
#include "../sys/attributes.h"

/* -- where to look for the base -- */

/* Reads the fingerprint of each argument that is an intact snapshot, and closes it. The other
 * arguments are listed in all->others: only these are tried one by one for each link. */
static void look_at_given(struct bases *all)
{
    for (; all->n_given < all->n; all->n_given++) {
        struct base *b = &all->list[all->n_given];
        b->is_place = contains_snapshots(b->name, 0);
        const struct place_entry *e = add_place(&all->places, b->name, 1, all->n_given);
        b->is_known = e != NULL;
        if (e) memcpy(b->fingerprint, e->fingerprint, sizeof b->fingerprint);
        if (e) continue;
        all->others = (size_t *)resize(all->others, all->n_others + 1, sizeof *all->others);
        all->others[all->n_others++] = all->n_given;
    }
}

/* Whether an argument is a directory of snapshots, or --search was given. */
static int has_places_given(const struct bases *all)
{
    for (size_t i = 0; i < all->n_others; i++)
        if (all->list[all->others[i]].is_place) return 1;
    return all->n_search != 0;
}

/* Adds the snapshots in the directories to search, and in that of `name`, unless name is NULL. */
static void look_at_places(struct bases *all, const char *name)
{
    char *beside = name && !all->is_closed ? directory_of(name) : NULL;
    for (size_t i = 0; i < all->n_search; i++) add_places(&all->places, all->search[i]);
    for (size_t i = 0; i < all->n_others; i++)
        if (all->list[all->others[i]].is_place)
            add_places(&all->places, all->list[all->others[i]].name);
    if (beside) add_places(&all->places, beside);
    free(beside);
}

/* The delta's name if it is the path of the delta's file, else NULL. The base may be beside it. */
static const char *path_of_delta(const struct archive *delta)
{
    struct stat st;
    return delta->fd >= 0 && stat(delta->name, &st) == 0 && same_file(&st, &delta->st) ? delta->name
                                                                                       : NULL;
}

static struct base *add_found(struct bases *all, const char *path)
{
    struct base *b = all->found;
    while (b && strcmp(b->name, path) != 0) b = b->next_found;
    if (b) return b;
    b = (struct base *)zeroed(1, sizeof *b);
    b->name = b->own_name = copy_text(path);
    b->all = all;
    b->next_found = all->found;
    return all->found = b;
}

/* -- candidates -- */

/* Kinds of snapshots, the cheapest first. PLACED: not given, but its whole chain was found; the
 * shortest chain is first, so there are no loops. LOOSE: its chain ends in a missing base, which
 * may be a file that is not compressed. */
enum rank { GIVEN_WHOLE = 1, PLACED = 2, GIVEN_DELTA = 4, LOOSE = 8, ANY_RANK = 15 };

static enum rank rank_of(const struct place_entry *e)
{
    if (e->is_given) return e->is_delta ? GIVEN_DELTA : GIVEN_WHOLE;
    return e->depth < DEPTH_LOOSE ? PLACED : LOOSE;
}

/* Whether e is a delta that changes nothing: its base has the same content and a shorter chain. */
static int needs_its_like(const struct place_entry *e)
{
    return e->is_delta && same_fingerprint(e->wanted, e->fingerprint);
}

/* The snapshots with that fingerprint that have one of the ranks. Deltas that change nothing are
 * left out, unless given and ranks is not ANY_RANK. The caller frees the list. It has copies of the
 * pointers, because opening a snapshot may add places, and so move their list. */
static struct base **list_snapshots_of(struct bases *all, const uint8_t *fingerprint,
                                       unsigned ranks, size_t *n_found)
{
    size_t n;
    struct place_entry *e = find_places(&all->places, fingerprint, &n);
    struct base **found = (struct base **)resize(NULL, n + 1, sizeof *found);
    *n_found = 0;
    for (; n && n--; e++) {
        if (!(ranks & (unsigned)rank_of(e))) continue;
        if (needs_its_like(e) && (!e->is_given || ranks == ANY_RANK)) continue;
        if (!e->is_given && !e->base) e->base = add_found(all, e->path);
        found[(*n_found)++] = e->is_given ? &all->list[e->number] : e->base;
    }
    return found;
}

/* The search for the base of a delta. */
struct hunt {
    struct archive *delta;
    const struct options *o;
    struct base *visited; /* a snapshot that is wanted, but whose own base is being searched */
    struct base *beside;  /* the file beside the delta that has the name of its base; or NULL */
    int damaged;          /* exit code of unreadable snapshots; a copy may be found */
    int code;             /* not CODE_OK: the search ends */
};

static int is_wanted(struct hunt *h, struct base *b, int *code)
{
    *code = identify_base_as(b, 0, h->o);
    if (*code != CODE_OK || !same_fingerprint(b->fingerprint, h->delta->wanted)) return 0;
    if (!b->is_visited) return 1;
    h->visited = b;
    return 0;
}

/* If a snapshot is damaged, also searches its directory: a copy may be there. */
static struct base *find_snapshot(struct hunt *h, enum rank rank)
{
    struct bases *all = h->o->bases;
    struct base **list, *found = NULL;
    size_t n;
    if (h->code != CODE_OK) return NULL;
    if (rank == PLACED || rank == LOOSE) look_at_places(all, path_of_delta(h->delta));
    list = list_snapshots_of(all, h->delta->wanted, rank, &n);
    for (size_t i = 0; i < n && !found; i++) {
        struct base *b = list[i];
        int code = CODE_OK;
        if (b->is_damaged) continue;
        if (is_wanted(h, b, &code)) found = b;
        b->is_damaged = code != CODE_OK; /* which was reported */
        if (b->is_damaged && !b->own_name) look_at_places(all, b->name);
        h->damaged = worse(h->damaged, code);
    }
    free((void *)list);
    return found;
}

/* Returns b, or for files its view, if it is the wanted base. b may be a damaged snapshot, too. */
static struct base *try_files(struct hunt *h, struct base *b)
{
    struct base *view = NULL;
    if (!b->is_archive) view = find_view(b, h->delta, h->o, &h->code);
    return view || h->code != CODE_OK ? view : is_wanted(h, b, &h->code) ? b : NULL;
}

/* Tries the arguments that are files or directories, or (is_archive) damaged snapshots. */
static struct base *find_given_files(struct hunt *h, int is_archive)
{
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    for (size_t i = 0; i < all->n_others && h->code == CODE_OK && !found; i++) {
        struct base *b = &all->list[all->others[i]];
        h->code = open_base(b, h->o);
        if (h->code == CODE_OK && b->is_archive == is_archive) found = try_files(h, b);
    }
    return found;
}

/* The path of a file or directory beside the delta that has the name which the delta stores for its
 * base. NULL: there is none, or it is a snapshot, which find_snapshot() finds. To be freed. */
static char *find_name_beside(struct archive *delta)
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

static struct base *find_by_name(struct hunt *h)
{
    char *path = h->code == CODE_OK ? find_name_beside(h->delta) : NULL;
    struct base *b = path ? add_found(h->o->bases, path) : NULL, *found = NULL;
    h->beside = b;
    if (b && b->state < BASE_IDENTIFIED && h->o->verbosity > 1)
        say(path, "is read to see whether it is the base of %.300s", h->delta->name);
    if (b) h->code = open_base(b, h->o);
    if (b && h->code == CODE_OK) found = try_files(h, b);
    free(path);
    return found;
}

/* Reads the files that were tried in other ways. */
static struct base *find_other_views(struct hunt *h)
{
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    for (size_t i = 0; i <= all->n_others && h->code == CODE_OK && !found; i++) {
        struct base *b = i < all->n_others ? &all->list[all->others[i]] : h->beside;
        if (b && b->state >= BASE_IDENTIFIED && !b->is_archive)
            found = find_other_view(b, h->delta, h->o, &h->code);
    }
    return found;
}

/* Lists the whole snapshots that are arguments (directory NULL), or that are in the directory. */
static struct base **list_shards(struct bases *all, const char *directory, size_t *n)
{
    struct base **list = (struct base **)resize(NULL, all->places.n + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < all->places.n; i++) {
        struct place_entry *const e = &all->places.list[i];
        char *in = directory_of(e->path);
        if (!e->is_delta &&
            (directory ? !e->is_given && is_same_file(in, directory) : e->is_given)) {
            if (!e->is_given && !e->base) e->base = add_found(all, e->path);
            list[(*n)++] = e->is_given ? &all->list[e->number] : e->base;
        }
        free(in);
    }
    return list;
}

/* Tries several snapshots as one base: the arguments together, and those in each directory. Each
 * takes a descriptor, so a directory of very many is not tried. */
static struct base *find_shards(struct hunt *h)
{
    enum { MOST = 256 };
    struct bases *all = h->o->bases;
    struct base *found = NULL;
    for (size_t i = 0; i <= all->n_others && h->code == CODE_OK && !found; i++) {
        const struct base *given = i ? &all->list[all->others[i - 1]] : NULL;
        size_t n;
        if (given && !given->is_place) continue;
        struct base **shards = list_shards(all, given ? given->name : NULL, &n);
        char *name = format_text("%.200s (%llu snapshots)", given ? given->name : "what is given",
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

/* Tries all candidates, in this order. */
static struct base *look_for_base(struct hunt *h)
{
    struct bases *all = h->o->bases;
    const int is_open = !all->is_closed;
    look_at_given(all);
    struct base *b = find_snapshot(h, GIVEN_WHOLE);
    if (!b && has_places_given(all)) b = find_snapshot(h, PLACED);
    if (!b) b = find_given_files(h, 0);
    if (!b) b = find_snapshot(h, GIVEN_DELTA);
    if (!b) b = find_given_files(h, 1);
    if (!b && is_open) b = find_snapshot(h, PLACED);
    if (!b && is_open) b = find_by_name(h);
    if (!b && !h->visited && (is_open || has_places_given(all))) b = find_snapshot(h, LOOSE);
    if (!b) b = find_shards(h);
    if (!b) b = find_other_views(h);
    return b;
}

struct base *find_base(struct archive *delta, const struct options *o, int *code)
{
    struct hunt h = {delta, o, NULL, NULL, CODE_OK, CODE_OK};
    struct base *b = look_for_base(&h);
    *code = b || h.code != CODE_OK ? h.code : h.damaged;
    if (!b && h.visited && !same_fingerprint(h.visited->archive.wanted, delta->wanted))
        b = h.visited; /* a loop, unless the delta changes nothing */
    if (!b || *code != CODE_OK) return NULL;
    b->is_used = 1;
    if (o->verbosity >= 2 && !o->bases->is_quiet) say(delta->name, "its base is %.300s", b->name);
    return b;
}

/* -- what replaces a damaged snapshot -- */

/* The file or directory that a snapshot was made from, if there is one of that name beside it. */
static struct base *find_source_of(struct base *b, const struct options *o)
{
    struct base *c = NULL;
    struct stat st;
    if (!has_suffix(b->name)) return NULL;
    char *path = copy_string(b->name, strlen(b->name) - strlen(SUFFIX));
    if (stat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        c = add_found(b->all, path);
    free(path);
    return c ? take_instead(c, b, o) : NULL;
}

struct base *find_instead(struct base *b)
{
    const struct options *o = b->archive.o;
    struct bases *all = b->all;
    const int code = all->code;
    struct base **copies, *found = NULL;
    size_t n;
    look_at_given(all);
    look_at_places(all, b->name);
    copies = list_snapshots_of(all, b->fingerprint, ANY_RANK, &n);
    for (size_t i = 0; i < n && !found; i++) found = take_instead(copies[i], b, o);
    free((void *)copies);
    for (size_t i = 0; i < all->n && !found; i++) /* files */
        if (!all->list[i].is_known && !all->list[i].is_place)
            found = take_instead(&all->list[i], b, o);
    if (!found && !all->is_closed) found = find_source_of(b, o);
    all->code = code; /* errors of useless copies, which were reported, do not count */
    return found;
}

/* -- messages -- */

/* The snapshot with that fingerprint and the shortest chain; NULL: none. It is not checked. */
static const struct place_entry *locate(const uint8_t *wanted, struct places *p)
{
    size_t n;
    const struct place_entry *e = find_places(p, wanted, &n);
    return e && !needs_its_like(e) ? e : NULL; /* a base with less depth would be first */
}

/* Prints a chain's missing base, and a file that may be it. last: the delta that needs the base. */
static void print_missing(const char *last, const uint8_t *wanted, const struct options *o)
{
    struct archive a;
    char text[2 * SHORT_FINGERPRINT + 1], *path = NULL;
    if (open_archive_file(&a, last, o) == CODE_OK) path = find_name_beside(&a);
    close_archive(&a);
    for (size_t i = 0; i < o->bases->n && !path; i++)
        if (!o->bases->list[i].is_known && !o->bases->list[i].is_place)
            path = copy_text(o->bases->list[i].name);
    printf("%s", format_hex(text, wanted, SHORT_FINGERPRINT));
    if (path) print(", perhaps %s ('lmc -t' reads it and tells)", path);
    else printf(" is not beside it");
    free(path);
}

void print_chain(struct archive *delta, const struct options *o)
{
    enum { MOST = 8 };
    uint8_t wanted[LMC_FINGERPRINT_SIZE];
    char *last = copy_text(delta->name);
    int needs_more = 1;
    size_t n = 0;
    memcpy(wanted, delta->wanted, sizeof wanted);
    look_at_given(o->bases);
    look_at_places(o->bases, path_of_delta(delta));
    printf("  chain    ");
    while (needs_more) {
        const struct place_entry *e = locate(wanted, &o->bases->places);
        if (n++ < MOST && e) print("%s%s", n > 1 ? " <- " : "", e->path);
        if (!e || n > o->bases->places.n) break; /* missing, or a loop */
        needs_more = e->is_delta;
        memcpy(wanted, e->wanted, sizeof wanted);
        free(last);
        last = copy_text(e->path);
        char *directory =
            directory_of(e->path); /* may have the next link; add_places() invalidates e */
        add_places(&o->bases->places, directory);
        free(directory);
    }
    if (n > MOST) printf(" <- ... %llu in all", (unsigned long long)(n - (size_t)needs_more));
    if (needs_more && n > 1) printf(" <- ");
    if (needs_more) print_missing(last, wanted, o);
    putchar('\n');
    free(last);
}

/* Whether name is a name of path: "runs/hf-1.lmc" has the names "hf-1" and "hf-1.lmc". */
static int is_called(const char *path, const char *name)
{
    const size_t size = strlen(name);
    path = base_name(path);
    return strncmp(path, name, size) == 0 && (!path[size] || strcmp(path + size, SUFFIX) == 0);
}

/* Adds to *text how many snapshots were tried as the base of the delta `name`; and the fingerprint
 * of one of them, if it is the only one, or has the base's name. If one has the wanted fingerprint,
 * it needs itself or is damaged, which was reported. */
static void list_places(char **text, const struct places *p, const char *name,
                        const char *made_with)
{
    const struct place_entry *shown = NULL;
    char *beside = directory_of(name), fingerprint[2 * SHORT_FINGERPRINT + 1];
    const char *where = p->n_directories == 1 && strcmp(p->directories[0], beside) == 0
                            ? "beside it"
                            : "where it was looked for";
    size_t n = 0;
    free(beside);
    if (p->n_directories == 0) return;
    for (size_t i = 0; i < p->n; i++) {
        const struct place_entry *e = &p->list[i];
        if (e->is_given || strcmp(e->path, name) == 0 || is_same_file(e->path, name)) continue;
        if (n++ == 0 || (made_with && is_called(e->path, made_with))) shown = e;
    }
    if (shown && n > 1 && !(made_with && is_called(shown->path, made_with))) shown = NULL;
    if (n == 0) append_text(text, "; no other .lmc file is %s", where);
    else if (n == 1)
        append_text(text, "; the only other .lmc file %s does not restore that", where);
    else
        append_text(text, "; none of the %llu other .lmc files %s restores that",
                    (unsigned long long)n, where);
    if (shown)
        append_text(text, ": %.150s is %s", shown->path,
                    format_hex(fingerprint, shown->fingerprint, SHORT_FINGERPRINT));
}

/* Reports the other arguments whose base is missing, so that the user learns of all at once. */
static void say_others_missing(const uint8_t *wanted, struct places *p)
{
    char missing[2 * SHORT_FINGERPRINT + 1];
    size_t n;
    (void)find_places(p, wanted, &n); /* sorts the places */
    for (size_t i = 0; i < p->n; i++) {
        const struct place_entry *e = &p->list[i];
        if (!e->is_given || !e->is_delta || same_fingerprint(e->wanted, wanted) ||
            find_places(p, e->wanted, &n))
            continue;
        say(e->path, "needs the base %s, which is missing, too",
            format_hex(missing, e->wanted, SHORT_FINGERPRINT));
    }
}

int fail_base(const char *name, const uint8_t *wanted, const char *made_with,
              const struct options *o)
{
    enum { MOST = 3 }; /* so that a message has room for them */
    char *const text = describe_base(wanted, made_with), *list = copy_text("");
    char given[2 * SHORT_FINGERPRINT + 1];
    size_t n_given = 0;
    for (size_t i = 0; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        if ((b->state < BASE_IDENTIFIED && !b->is_known) ||
            same_fingerprint(b->fingerprint, wanted))
            continue;
        if (n_given++ < MOST)
            append_text(&list, "%s%.100s is %s", *list ? ", " : "; given: ", b->name,
                        format_hex(given, b->fingerprint, SHORT_FINGERPRINT));
    }
    if (n_given > MOST) append_text(&list, " and %llu more", (unsigned long long)(n_given - MOST));
    list_places(&list, &o->bases->places, name, made_with);
    int code = fail(CODE_BASE, name, "needs the base %s%s%s; name it with --base PATH%s", text,
                    made_with && !has_suffix(made_with) ? ": that file or directory, or a " SUFFIX
                                                          " file of it"
                                                        : "",
                    list, o->bases->is_closed ? "" : " or --search DIR");
    free(list);
    say_others_missing(wanted, &o->bases->places);
    free(text);
    return code;
}

void say_unused_bases(int all_must_be, const struct options *o)
{
    const char *taken = NULL;
    char *list;
    size_t n_unused = 0, n_used = 0;
    if (o->verbosity == 0 || o->bases->is_quiet) return;
    list = copy_text("");
    for (size_t i = 0; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        n_used += b->is_used != 0;
        if (b->is_used || contains_snapshots(b->name, 0)) continue; /* a directory to search */
        if (n_unused++ < 4) append_text(&list, "%s%.150s", *list ? ", " : "", b->name);
    }
    if (n_unused > 4) append_text(&list, " and %llu more", (unsigned long long)(n_unused - 4));
    for (const struct base *b = o->bases->found; b; b = b->next_found)
        if (b->is_used) taken = b->name; /* the last of the list was found first */
    if (n_unused && n_used == 0 && taken && !all_must_be)
        say(NULL, "not the base that is needed: %s; %.250s was found and is used", list, taken);
    else if (n_unused && (all_must_be || n_used == 0))
        say(NULL, "bases that are not needed: %s%s", list,
            all_must_be ? "; the first one is taken, with the bases that it needs itself" : "");
    free(list);
}

void add_search(struct bases *bases, const char *directory)
{
    bases->search =
        (const char **)resize((void *)bases->search, bases->n_search + 1, sizeof *bases->search);
    bases->search[bases->n_search++] = directory;
}
