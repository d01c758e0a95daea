/* base_messages.c - what is said of bases: which is missing, where the chain is, which are not used
 * SPDX-License-Identifier: MIT
 */
#include "base.h"

#include "../format/print.h"
#include "options.h"
#include "../sys/attributes.h"

char *describe_base(const uint8_t *wanted, const char *made_with)
{
    char text[2 * SHORT_FINGERPRINT + 1];
    format_hex(text, wanted, SHORT_FINGERPRINT);
    return made_with ? format_text("%s (named '%.200s' when this delta was made)", text, made_with)
                     : copy_string(text, sizeof text - 1);
}

/* The snapshot with that fingerprint and the shortest chain; NULL: none. It is not checked. */
static const struct catalog_entry *locate(const uint8_t *wanted, struct catalog *p)
{
    size_t n;
    const struct catalog_entry *e = find_entries(p, wanted, &n);
    return e && !is_unchanged_delta(e) ? e : NULL; /* a base with less depth would be first */
}

const char *find_base_path(const struct archive *delta, const struct options *o)
{
    const struct catalog_entry *e;
    look_at_arguments(o->bases);
    look_in_directories(o->bases, path_of_delta(delta));
    e = locate(delta->wanted, &o->bases->catalog);
    return e ? e->path : NULL;
}

/* Prints a chain's missing base, and a file that may be it. last: the delta that needs the base. */
static void print_missing(const char *last, const uint8_t *wanted, const struct options *o)
{
    struct archive a;
    char text[2 * SHORT_FINGERPRINT + 1], *path = NULL;
    if (open_archive_file(&a, last, o) == CODE_OK) path = find_name_beside(&a);
    close_archive(&a);
    for (size_t i = 0; i < o->bases->n_others && !path; i++) {
        const char *const name = o->bases->list[o->bases->others[i]].name;
        if (!contains_snapshots(name, 0)) path = copy_text(name);
    }
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
    look_at_arguments(o->bases);
    look_in_directories(o->bases, path_of_delta(delta));
    printf("  chain    ");
    while (needs_more) {
        const struct catalog_entry *e = locate(wanted, &o->bases->catalog);
        if (n++ < MOST && e) print("%s%s", n > 1 ? " <- " : "", e->path);
        if (!e || n > o->bases->catalog.n) break; /* missing, or a loop */
        needs_more = e->is_delta;
        memcpy(wanted, e->wanted, sizeof wanted);
        free(last);
        last = copy_text(e->path);
        char *directory =
            directory_of(e->path); /* may have the next link; enter_snapshots() invalidates e */
        enter_snapshots(&o->bases->catalog, directory);
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
static void append_others(char **text, const struct catalog *p, const char *name,
                          const char *made_with)
{
    const struct catalog_entry *shown = NULL;
    char *beside = directory_of(name), fingerprint[2 * SHORT_FINGERPRINT + 1];
    const char *where = p->n_directories == 1 && strcmp(p->directories[0], beside) == 0
                            ? "beside it"
                            : "where it was looked for";
    size_t n = 0;
    free(beside);
    if (p->n_directories == 0) return;
    for (size_t i = 0; i < p->n; i++) {
        const struct catalog_entry *e = &p->list[i];
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
static void say_others_missing(const uint8_t *wanted, struct catalog *p)
{
    char missing[2 * SHORT_FINGERPRINT + 1];
    size_t n;
    (void)find_entries(p, wanted, &n); /* sorts the places */
    for (size_t i = 0; i < p->n; i++) {
        const struct catalog_entry *e = &p->list[i];
        if (!e->is_given || !e->is_delta || same_fingerprint(e->wanted, wanted) ||
            find_entries(p, e->wanted, &n))
            continue;
        say(e->path, "needs the base %s, which is missing, too",
            format_hex(missing, e->wanted, SHORT_FINGERPRINT));
    }
}

int fail_base(const char *name, const uint8_t *wanted, const char *made_with,
              const struct options *o)
{
    enum { MOST = 3 };                               /* so that a message has room for them */
    static const uint8_t none[LMC_FINGERPRINT_SIZE]; /* it was not read */
    char *const text = describe_base(wanted, made_with), *list = copy_text("");
    char given[2 * SHORT_FINGERPRINT + 1];
    size_t n_given = 0;
    for (size_t i = 0; i < o->bases->n; i++) {
        const struct base *b = &o->bases->list[i];
        if (same_fingerprint(b->fingerprint, none) || same_fingerprint(b->fingerprint, wanted))
            continue;
        if (n_given++ < MOST)
            append_text(&list, "%s%.100s is %s", *list ? ", " : "; given: ", b->name,
                        format_hex(given, b->fingerprint, SHORT_FINGERPRINT));
    }
    if (n_given > MOST) append_text(&list, " and %llu more", (unsigned long long)(n_given - MOST));
    append_others(&list, &o->bases->catalog, name, made_with);
    int code = fail(CODE_BASE, name, "needs the base %s%s%s; name it with --base PATH%s", text,
                    made_with && !has_suffix(made_with) ? ": that file or directory, or a " SUFFIX
                                                          " file of it"
                                                        : "",
                    list, o->bases->is_closed ? "" : " or --search DIR");
    free(list);
    say_others_missing(wanted, &o->bases->catalog);
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
    for (const struct base *b = o->bases->found; b; b = b->next)
        if (b->is_used) taken = b->name; /* the last of the list was found first */
    if (n_unused && n_used == 0 && taken && !all_must_be)
        say(NULL, "not the base that is needed: %s; %.250s was found and is used", list, taken);
    else if (n_unused && (all_must_be || n_used == 0))
        say(NULL, "bases that are not needed: %s%s", list,
            all_must_be ? "; the first one is taken, with the bases that it needs itself" : "");
    free(list);
}
