/* series.h - lmc series: a directory of snapshots kept as anchors and deltas between
 * SPDX-License-Identifier: MIT
 *
 * Nothing goes before what replaces it is on the disk: a source is removed after its snapshot has been compared with it and
 * is confirmed in the list; a snapshot that was forgotten, after all kept ones do without it.
 */
#ifndef LMC_SERIES_H
#define LMC_SERIES_H

#include <fnmatch.h>

#include "manifest.h"
#include "verify.h"

#if defined(__APPLE__)
#define st_ctim st_ctimespec
#endif

/* -- the command line -- */

enum series_option {
    SERIES_NAME, SERIES_EVERY, SERIES_ANCHOR, SERIES_VERIFY, SERIES_DRY_RUN, SERIES_KEEP_LAST, SERIES_KEEP_EVERY, SERIES_KEEP,
    SERIES_SETTLE, SERIES_INTERVAL, SERIES_ONCE, SERIES_MATCH, N_SERIES_OPTIONS,
    /* those of lmc itself */
    SERIES_RM = N_SERIES_OPTIONS, SERIES_OUTPUT, SERIES_FORCE, SERIES_JSON, SERIES_CAT, SERIES_CODING, SERIES_KIND, SERIES_QUANT
};

static const struct { const char *name; int has_value; } series_options[N_SERIES_OPTIONS] = {
    {"name", 1}, {"every", 1}, {"anchor", 0}, {"verify", 0}, {"dry-run", 0}, {"keep-last", 1}, {"keep-every", 1}, {"keep", 1},
    {"settle", 1}, {"interval", 1}, {"once", 0}, {"match", 1}};

static int is_given(const struct options *o, enum series_option option)
{
    return o->series.given >> option & 1;
}

static int fail_series_usage(const char *name, const char *what)
{
    say(name, "%s", what);
    fputs("See 'lmc help series'.\n", stderr);
    return CODE_USAGE;
}

/* The number of an option of 'lmc series', of which word is the beginning up to '='; -1: there is none. */
static int find_series_option(const char *word)
{
    size_t size = strcspn(word, "=");
    for (int i = 0; i < N_SERIES_OPTIONS; i++)
        if (strlen(series_options[i].name) == size && strncmp(series_options[i].name, word, size) == 0 &&
            (series_options[i].has_value || !word[size]))
            return i;
    return -1;
}

static int parse_count(uint64_t *count, const char *text, uint64_t least)
{
    char *end;
    errno = 0;
    *count = is_digit(*text) ? strtoull(text, &end, 10) : 0;
    return is_digit(*text) && !*end && !errno && *count >= least && *count <= INT64_MAX;
}

/* value: NULL if it has none, or if it is missing */
static int set_series_option(struct series_options *s, int option, const char *value)
{
    uint64_t *count = option == SERIES_EVERY ? &s->every : option == SERIES_KEEP_LAST ? &s->keep_last
                      : option == SERIES_KEEP_EVERY ? &s->keep_every : option == SERIES_SETTLE ? &s->settle
                      : option == SERIES_INTERVAL ? &s->interval : NULL;
    s->given |= 1u << option;
    if (series_options[option].has_value && (!value || !*value))
        return fail_series_usage(series_options[option].name, "this option wants a value");
    if (count && !parse_count(count, value, option != SERIES_SETTLE))
        return fail_series_usage(value, option == SERIES_SETTLE ? "is no number of seconds" : "is no number from 1 up");
    if (option == SERIES_NAME) {
        s->name = value;
        if (find_fault_of_name(value))
            return fail_series_usage(value, find_fault_of_name(value));
    } else if (option == SERIES_MATCH) {
        s->match = value;
    } else if (option == SERIES_KEEP) {
        s->keep = (const char **)resize(s->keep, s->n_keep + 1, sizeof *s->keep);
        s->keep[s->n_keep++] = value;
    }
    return CODE_OK;
}

/* -- chains -- */

/* Of the snapshots that have that content, the one with the shortest chain, shorter than below; NULL: there is none. Since
 * every base has a shorter chain than what needs it, there are no loops, whatever repeats. */
static const struct snapshot *find_shallowest(const struct series *s, const uint8_t *identity, uint64_t below, int only_kept)
{
    const struct snapshot *best = NULL;
    for (size_t i = 0; i < s->n; i++) {
        const struct snapshot *e = &s->list[i];
        if (e->state != STATE_ADDING && e->state != STATE_GONE && (!only_kept || e->state == STATE_KEPT) && e->file == FILE_THERE && e->depth < below &&
            (!best || e->depth < best->depth) && memcmp(e->identity, identity, LMC_IDENTITY_SIZE) == 0)
            best = e;
    }
    return best;
}

/* NULL: it has none, or none is there. */
static const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    return e->file == FILE_THERE && e->depth ? find_shallowest(s, e->wanted, e->depth, only_kept) : NULL;
}

/* The deltas of its chain, as it is now; -1: the chain is broken. */
static long count_deltas(const struct series *s, const struct snapshot *e)
{
    long n = 0;
    for (; e && e->file == FILE_THERE; e = find_base_of(s, e, 0), n++)
        if (e->depth == 0)
            return n;
    return -1;
}

/* That the file and all that it needs are there; only_kept: even when what is forgotten goes. */
static int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept)
{
    char text[17];
    for (;;) {
        const struct snapshot *base = find_base_of(s, e, only_kept);
        if (e->file == FILE_MISSING)
            return fail(CODE_ERROR, e->path, "is missing; bring it back from a copy, or give it up with 'lmc series DIR rebuild'");
        if (e->file == FILE_DAMAGED)
            return fail(CODE_CORRUPT, e->path, "is damaged or no snapshot; bring it back from a copy, or move it away and 'lmc series DIR rebuild'");
        if (e->depth == 0)
            return CODE_OK;
        format_hex(text, e->wanted, 8);
        if (!base)
            return fail(CODE_BASE, e->path, "needs the base %s, which is not in the series; bring its file back from a copy", text);
        e = base;
    }
}

/* Options of their own, with the bases that a snapshot needs. */
struct chain {
    struct options o;
    struct bases bases;
};

static void begin_chain(struct chain *c, const struct options *o)
{
    memset(&c->bases, 0, sizeof c->bases);
    c->o = *o;
    c->o.bases = &c->bases;
    c->o.remove_source = c->o.to_stdout = c->o.force = 0;
    c->o.output = NULL;
}

static void add_link(struct chain *c, const char *path)
{
    for (size_t i = 0; i < c->bases.n; i++)
        if (strcmp(c->bases.list[i].name, path) == 0)
            return;
    add_base(&c->bases, path);
}

/* What e needs, the nearest first; is_base: and before that e itself. */
static void add_links(struct chain *c, const struct series *s, const struct snapshot *e, int is_base)
{
    for (e = is_base ? e : find_base_of(s, e, 0); e; e = find_base_of(s, e, 0))
        add_link(c, e->path);
}

/* -- what the file says about itself -- */

static int read_identity(const char *path, uint8_t *identity, uint64_t *size, const struct options *o)
{
    struct archive a;
    int code = open_archive_file(&a, path, o);
    if (code == CODE_OK)
        code = read_archive_index(&a, NULL);
    if (code == CODE_OK) {
        lmc_get_identity(a.reader, identity);
        *size = total_of_files(a.reader);
    }
    close_archive(&a);
    return code;
}

/* That the file is what was added. */
static int check_entry(const struct series *s, const struct snapshot *e)
{
    uint8_t identity[LMC_IDENTITY_SIZE];
    uint64_t size;
    int code = read_identity(e->path, identity, &size, s->o);
    if (code == CODE_OK && (memcmp(identity, e->identity, sizeof identity) != 0 || size != e->size))
        code = fail(CODE_CORRUPT, e->path, "is another snapshot than was added under this name; move it away, and bring the right one back, "
                                           "or 'lmc series DIR rebuild'");
    return code;
}

/* -- finding the one that is meant -- */

/* By its name; or, among those of that state, the last one, or the one with that number in its name. */
static int choose_entry(const struct series *s, const char *text, enum snapshot_state state, struct snapshot **found)
{
    uint64_t wanted = 0, number;
    int is_number = parse_count(&wanted, text, 0), is_latest = strcmp(text, "latest") == 0;
    *found = find_name(s, text);
    if (*found && (*found)->state != STATE_ADDING && (*found)->state != STATE_GONE)
        return CODE_OK;
    *found = NULL;
    for (size_t i = 0; i < s->n; i++) {
        struct snapshot *e = &s->list[i];
        if (e->state != state || !(is_latest || (is_number && find_number(e->name, &number) && number == wanted)))
            continue;
        if (*found && !is_latest)
            return fail(CODE_ERROR, s->directory, "has several snapshots with that number, %.250s and %.250s; give the name", (*found)->name, e->name);
        *found = e;
    }
    return *found ? CODE_OK : fail(CODE_ERROR, s->directory, "has no snapshot '%.300s'; 'lmc series DIR list' lists them", text);
}

/* -- looking whether a source changes -- */

struct look {
    uint64_t digest; /* of names, kinds, sizes, times */
    int64_t newest;  /* change, in nanoseconds */
    size_t n_files;
    int is_whole;    /* all could be looked at */
};

static void look_into(struct look *k, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st;
    struct dirent *entry;
    DIR *directory;
    int is_there = lstat(full, &st) == 0, is_link = is_there && S_ISLNK(st.st_mode), error = 0;
    if (is_link)
        is_there = stat(full, &st) == 0;
    if (is_there) {
        int64_t m = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, c = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        uint64_t values[5];
        values[0] = (uint64_t)st.st_mode;
        values[1] = (uint64_t)st.st_ino;
        values[2] = (uint64_t)st.st_size;
        values[3] = (uint64_t)m;
        values[4] = (uint64_t)c;
        k->digest += hash_bytes(hash_bytes(UINT64_C(0xCBF29CE484222325), path, strlen(path) + 1), values, sizeof values); /* whatever the order */
        k->newest = m > k->newest ? m : k->newest;
        k->newest = c > k->newest ? c : k->newest;
        k->n_files += S_ISREG(st.st_mode);
    }
    directory = is_there && S_ISDIR(st.st_mode) && !is_link ? opendir(full) : NULL;
    if (!is_there || (S_ISDIR(st.st_mode) && !is_link && !directory))
        k->is_whole = 0;
    while (directory && (entry = next_entry(directory, &error)) != NULL) {
        char *inner = join_path(path, entry->d_name);
        look_into(k, root, inner);
        free(inner);
    }
    if (error)
        k->is_whole = 0;
    if (directory)
        closedir(directory);
    free(full);
}

static struct look look_at(const char *path)
{
    struct look k;
    memset(&k, 0, sizeof k);
    k.is_whole = 1;
    k.newest = INT64_MIN;
    look_into(&k, path, "");
    return k;
}

/* -- add -- */

struct newcomer {
    char *path;
    int is_tree;
    struct listing l; /* of a tree */
    struct look look; /* before anything was read */
};

static void close_newcomer(struct newcomer *c)
{
    free_listing(&c->l);
    free(c->path);
}

static char *copy_without_slashes(const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    return copy_string(path, size);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* What it is called in the series. To be freed. */
static char *name_of_source(const char *path)
{
    static const char suffix[] = ".safetensors";
    char *whole = copy_without_slashes(path);
    const char *name = base_name(whole);
    size_t size = strlen(name), length = sizeof suffix - 1;
    char *result = copy_string(name, size > length && strcmp(name + size - length, suffix) == 0 ? size - length : size);
    free(whole);
    return result;
}

static int is_or_holds(const char *outer, const char *inner)
{
    struct stat st, other;
    return stat(outer, &st) == 0 && stat(inner, &other) == 0 && (same_file(&st, &other) || lies_within(inner, outer));
}

/* That it is something a series takes, and that it does not hold the series. To be done before the series is begun. */
static int check_newcomer(const char *directory, const char *path, const struct options *o)
{
    struct stat st, link;
    char *own = copy_without_slashes(directory), *parent = directory_of(own), *lock = join_path(own, LOCK_NAME);
    int is_there = stat(path, &st) == 0;
    int is_inside = is_there && (S_ISDIR(st.st_mode) ? is_or_holds(path, own) || is_or_holds(path, parent) : is_or_holds(path, lock));
    free(own);
    free(parent);
    free(lock);
    if (is_dash(path))
        return fail(CODE_USAGE, NULL, "a series takes files and directories, no standard input");
    if (!is_there)
        return fail_errno(path, errno, "cannot open it");
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, path, "is neither a file nor a directory");
    if (S_ISREG(st.st_mode) && has_suffix(path))
        return fail(CODE_ERROR, path, "is named " SUFFIX " already; restore it, and add what comes out");
    if (is_inside)
        return fail(CODE_ERROR, path, "is or holds the series itself; choose another directory for that");
    if (o->remove_source && lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
        return fail(CODE_ERROR, path, "is a link, and --rm removes only what it is told by its own name; name that");
    return CODE_OK;
}

/* To be closed in any case. */
static int open_newcomer(struct newcomer *c, const char *path)
{
    struct stat st;
    int code = CODE_OK;
    memset(c, 0, sizeof *c);
    c->path = copy_without_slashes(path);
    c->look = look_at(c->path);
    if (stat(c->path, &st) != 0)
        return fail_errno(path, errno, "cannot look at it");
    c->is_tree = S_ISDIR(st.st_mode);
    if (c->is_tree)
        code = list_sources(&c->l, c->path);
    return code;
}

/* When what is on the disk was compared with it. */
static int remove_newcomer(const struct newcomer *c, const char *name)
{
    struct look again = look_at(c->path);
    if (!again.is_whole || again.digest != c->look.digest)
        return fail(CODE_ERROR, c->path, "was changed meanwhile, and is not removed; its snapshot, as it was before, is kept as %s", name);
    if (c->is_tree)
        return remove_listing(&c->l, c->path);
    return unlink(c->path) == 0 ? CODE_OK : fail_errno(c->path, errno, "cannot remove it");
}

/* Restores the snapshot and compares. may_lack: a part of the source may be gone; may_lose: see verify_snapshot */
static int verify_newcomer(const struct newcomer *c, const char *snapshot, int may_lack, int may_lose, const struct options *o)
{
    size_t n_files = 0;
    int code = verify_snapshot(snapshot, c->path, may_lack, may_lose, o, &n_files);
    if (code == CODE_OK && c->is_tree && n_files != c->l.n - 1)
        code = fail(CODE_ERROR, c->path, "holds something that %s does not; nothing was removed", snapshot);
    return code;
}

static const struct snapshot *find_latest(const struct series *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->list[i].state == STATE_KEPT)
            return &s->list[i];
    return NULL;
}

/* What the next one is coded against; NULL: nothing. */
static const struct snapshot *choose_base_of_next(const struct series *s)
{
    const struct snapshot *latest = find_latest(s), *same;
    long n;
    if (!latest || is_given(s->o, SERIES_ANCHOR))
        return NULL;
    if (count_deltas(s, latest) < 0) {
        say(latest->path, "cannot be restored, so the new snapshot is not coded against it; see 'lmc series DIR verify'");
        return NULL;
    }
    same = find_shallowest(s, latest->identity, (uint64_t)latest->depth + 1, 1);
    n = count_deltas(s, same);
    return n >= 0 && (uint64_t)n + 1 < s->every ? same : NULL;
}

/* Makes the file; *is_made: it is there, and is ours. */
static int make_snapshot(const struct series *s, const struct newcomer *c, struct snapshot *e, int verifies, int *is_made)
{
    const struct snapshot *base = choose_base_of_next(s);
    struct chain chain;
    int code;
    begin_chain(&chain, s->o);
    chain.o.output = e->path;
    if (base)
        add_links(&chain, s, base, 1);
    code = c->is_tree ? compress_listing(&c->l, c->path, e->path, &chain.o) : compress_file(c->path, 1, &chain.o);
    *is_made = code == CODE_OK;
    if (code == CODE_OK && verifies)
        code = verify_newcomer(c, e->path, 0, !s->o->remove_source, &chain.o);
    if (code == CODE_OK)
        code = read_identity(e->path, e->identity, &e->size, &chain.o);
    free_bases(&chain.bases);
    if (code == CODE_OK && s->o->verbosity >= 2)
        say(e->path, base ? "a delta of %s" : "an anchor", base ? base->name : "");
    return code;
}

/* Reserves the name, makes the snapshot, confirms it, removes the source if asked: each when the disk has what was before. */
static int add_newcomer(struct series *s, const struct newcomer *c, const char *name, int verifies)
{
    const char *source = base_name(c->path);
    struct snapshot *e = add_entry_to_series(s, name, find_fault_of_name(source) ? NULL : source);
    struct stat st;
    int is_made = 0, code;
    e->state = STATE_ADDING;
    e->time = (int64_t)time(NULL);
    if (lstat(e->path, &st) == 0)
        return fail(CODE_ERROR, e->path, "is there already, but not in the list; move it away, or take it in with 'lmc series DIR rebuild'");
    code = save_manifest(s);
    if (code != CODE_OK)
        return code;
    code = make_snapshot(s, c, e, verifies, &is_made);
    if (code != CODE_OK) { /* as if it had not been begun; if this fails, who comes next does it */
        if (is_made && unlink(e->path) != 0)
            return worse(code, fail_errno(e->path, errno, "cannot remove it"));
        drop_entries(s, STATE_ADDING);
        return worse(code, save_manifest(s));
    }
    e->state = STATE_KEPT;
    code = save_manifest(s); /* after an error nobody knows whether it is confirmed: both file and source stay */
    return code == CODE_OK && s->o->remove_source ? remove_newcomer(c, e->name) : code;
}

/* A source of which the series has a snapshot already. What is left of it after a kill goes if it is the same. */
static int add_again(struct series *s, const struct newcomer *c, const struct snapshot *e)
{
    struct chain chain;
    int code;
    if (!s->o->remove_source)
        return fail(CODE_ERROR, s->directory, "has a snapshot %.250s already%s; give this one another name with --name", e->name,
                    e->state == STATE_FORGOTTEN ? ", which is forgotten, but not removed yet" : "");
    if (e->state == STATE_FORGOTTEN)
        return fail(CODE_ERROR, c->path, "is not removed: its snapshot is forgotten; 'lmc series DIR keep %.250s' first, or add this one "
                                         "under another name", e->name);
    code = check_chain_of(s, e, 0);
    if (code != CODE_OK)
        return code;
    begin_chain(&chain, s->o);
    add_links(&chain, s, e, 0);
    code = verify_newcomer(c, e->path, 1, 0, &chain.o);
    free_bases(&chain.bases);
    return code == CODE_OK ? remove_newcomer(c, e->name) : code;
}

/* Another lmc that watches has done it while this one waited. */
static int is_done_meanwhile(const struct snapshot *e, const char *path, const struct options *o)
{
    struct stat st;
    return e && (!o->remove_source || (lstat(path, &st) != 0 && errno == ENOENT));
}

/* What is added by name may come back. */
static void drop_gone(struct series *s, const char *name)
{
    struct snapshot *e = find_name(s, name);
    if (!e || e->state != STATE_GONE)
        return;
    free_entry(e);
    memmove(e, e + 1, (size_t)(s->list + s->n - (e + 1)) * sizeof *e);
    s->n--;
}

static int add_source_to_series(const char *directory, const char *path, const char *name, int is_watched, const struct options *o)
{
    struct series s;
    struct newcomer c;
    const struct snapshot *e;
    int code = check_newcomer(directory, path, o), is_done;
    if (code != CODE_OK)
        return code;
    memset(&c, 0, sizeof c);
    code = open_series(&s, directory, TO_CREATE, o);
    if (code == CODE_OK)
        drop_gone(&s, name);
    e = code == CODE_OK ? find_name(&s, name) : NULL;
    is_done = is_watched && is_done_meanwhile(e, path, o);
    if (code == CODE_OK && !is_done)
        code = open_newcomer(&c, path);
    if (code == CODE_OK && o->series.every)
        s.every = o->series.every;
    if (code == CODE_OK && !is_done)
        code = e ? add_again(&s, &c, e) : add_newcomer(&s, &c, name, is_watched || is_given(o, SERIES_VERIFY) || o->remove_source);
    close_newcomer(&c);
    close_series(&s);
    return code;
}

static int series_add(const char *directory, char **args, int n, const struct options *o)
{
    char *name = o->series.name ? copy_string(o->series.name, strlen(o->series.name)) : name_of_source(args[0]);
    const char *fault = find_fault_of_name(name);
    int code;
    (void)n;
    if (fault)
        code = fail(CODE_USAGE, args[0], "cannot give its name to a snapshot: it %s; choose one with --name", fault);
    else
        code = add_source_to_series(directory, args[0], name, 0, o);
    free(name);
    return code;
}

/* -- list -- */

static void format_time(char text[24], int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        strcpy(text, "?");
}

static const char *kind_of_entry(const struct snapshot *e)
{
    return e->file == FILE_MISSING ? "missing" : e->file == FILE_DAMAGED ? "damaged" : e->depth ? "delta" : "anchor";
}

static void print_entry(const struct series *s, const struct snapshot *e, int width)
{
    const struct snapshot *base = find_base_of(s, e, 0);
    char when[24], depth[24] = "-";
    long n = count_deltas(s, e);
    format_time(when, e->time);
    if (n >= 0)
        snprintf(depth, sizeof depth, "%ld", n);
    printf("%-*s  %-9s  %-7s  %5s  %14llu  %14llu  %6.2f %%  %s  %s\n", width, e->name, state_names[e->state], kind_of_entry(e), depth,
           (unsigned long long)e->size, (unsigned long long)e->packed_size, percent(e->packed_size, e->size), when,
           base ? base->name : e->file == FILE_THERE && e->depth ? "(missing)" : "");
}

static json_t *make_json_entry(const struct series *s, const struct snapshot *e)
{
    json_t *object = (json_t *)check_memory(json_object());
    const struct snapshot *base = find_base_of(s, e, 0);
    long n = count_deltas(s, e);
    set_json(object, "name", json_string(e->name));
    set_json(object, "state", json_string(state_names[e->state]));
    set_json(object, "kind", json_string(kind_of_entry(e)));
    if (e->state != STATE_ADDING)
        set_json_identity(object, "identity", e->identity);
    if (n >= 0)
        set_json(object, "depth", json_integer(n));
    set_json_number(object, "size", e->size);
    set_json_number(object, "packed_size", e->packed_size);
    if (base)
        set_json(object, "base", json_string(base->name));
    set_json(object, "time", json_integer(e->time));
    if (e->source)
        set_json(object, "source", json_string(e->source));
    return object;
}

static void print_series_as_json(const struct series *s)
{
    json_t *object = (json_t *)check_memory(json_object()), *list = (json_t *)check_memory(json_array());
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state != STATE_GONE)
            json_array_append_new(list, make_json_entry(s, &s->list[i]));
    set_json_text(object, "series", s->directory);
    set_json_number(object, "every", s->every);
    set_json(object, "snapshots", list);
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

static void print_series(const struct series *s)
{
    uint64_t size = 0, packed = 0, n = 0;
    int width = 4;
    for (size_t i = 0; i < s->n; i++) {
        int length = (int)strlen(s->list[i].name);
        if (s->list[i].state == STATE_GONE)
            continue;
        n++;
        width = length > width ? length : width;
        size += s->list[i].size;
        packed += s->list[i].packed_size;
    }
    printf("%-*s  state      kind     depth            size          packed     ratio  added                 base\n", width, "name");
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state != STATE_GONE)
            print_entry(s, &s->list[i], width);
    printf("%llu snapshots, %llu -> %llu bytes (%.2f %%), an anchor every %llu\n", (unsigned long long)n, (unsigned long long)size,
           (unsigned long long)packed, percent(packed, size), (unsigned long long)s->every);
}

static int series_list(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    int code = open_series(&s, directory, TO_READ, o);
    (void)args;
    (void)n;
    if (code == CODE_OK && o->json)
        print_series_as_json(&s);
    else if (code == CODE_OK)
        print_series(&s);
    close_series(&s);
    return code;
}

/* -- restore, cat, verify -- */

/* An output in the directory would be taken for one that a kill has left. */
static int check_place(const struct series *s, const char *output)
{
    char *parent = output ? directory_of(output) : NULL;
    struct stat st, of_series;
    int is_inside = parent && stat(parent, &st) == 0 && stat(s->directory, &of_series) == 0 && same_file(&st, &of_series);
    free(parent);
    return is_inside ? fail(CODE_ERROR, output, "lies in the series, where only lmc puts files; name another place with -o") : CODE_OK;
}

/* Opens the series to read that snapshot, and makes its chain; to be closed in any case. */
static int open_for_reading(struct series *s, struct chain *c, struct snapshot **e, const char *directory, const char *name, const struct options *o)
{
    int code;
    begin_chain(c, o);
    code = open_series(s, directory, TO_READ, o);
    if (code == CODE_OK)
        code = choose_entry(s, name, STATE_KEPT, e);
    if (code == CODE_OK)
        code = check_chain_of(s, *e, 0);
    if (code == CODE_OK)
        add_links(c, s, *e, 0);
    c->o.to_stdout = o->to_stdout;
    c->o.force = o->force;
    c->o.output = o->output;
    return code;
}

static int series_restore(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    int code = open_for_reading(&s, &c, &e, directory, args[0], o);
    (void)n;
    if (code == CODE_OK && !o->output && !o->to_stdout)
        c.o.output = e->source ? e->source : e->name;
    if (code == CODE_OK)
        code = check_place(&s, c.o.output && !is_dash(c.o.output) ? c.o.output : NULL);
    if (code == CODE_OK)
        code = restore_file(e->path, &c.o);
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

static int series_cat(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    int code = open_for_reading(&s, &c, &e, directory, args[0], o);
    if (code == CODE_OK)
        code = check_place(&s, o->output && !is_dash(o->output) ? o->output : NULL);
    if (code == CODE_OK)
        code = cat_tensor(e->path, n == 2 ? args[1] : NULL, &c.o);
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

static int verify_entry(const struct series *s, const struct snapshot *e)
{
    struct chain c;
    int code = check_chain_of(s, e, 0);
    if (code == CODE_OK)
        code = check_entry(s, e);
    if (code != CODE_OK)
        return code;
    begin_chain(&c, s->o);
    add_links(&c, s, e, 0);
    code = test_file(e->path, &c.o);
    free_bases(&c.bases);
    return code;
}

/* All that are kept, and what they need: each link once, with room for one or two restored snapshots; where there can be none,
 * each through its chain. */
static int verify_all(const struct series *s)
{
    const char *scratch = getenv("TMPDIR");
    int by_chains = access(scratch && *scratch ? scratch : s->directory, W_OK) != 0, code = CODE_OK;
    unsigned char *needed = (unsigned char *)resize(NULL, s->n, 1);
    char **paths = (char **)resize(NULL, s->n, sizeof *paths);
    size_t n = 0;
    struct chain c;
    memset(needed, 0, s->n);
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_KEPT) {
            const struct snapshot *e = &s->list[i];
            int result = by_chains ? verify_entry(s, e) : check_chain_of(s, e, 0);
            if (result == CODE_OK && !by_chains)
                result = check_entry(s, e);
            for (; e && result == CODE_OK; e = find_base_of(s, e, 0))
                needed[e - s->list] = 1;
            code = worse(code, result);
        }
    for (size_t i = 0; i < s->n; i++)
        if (needed[i])
            paths[n++] = s->list[i].path;
    begin_chain(&c, s->o);
    if (!by_chains && n)
        code = worse(code, verify_files(paths, n, &c.o));
    free_bases(&c.bases);
    free(paths);
    free(needed);
    return code;
}

static int series_verify(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    struct snapshot *e;
    int code = open_series(&s, directory, TO_READ, o);
    if (code == CODE_OK && n == 0)
        code = verify_all(&s);
    else if (code == CODE_OK)
        for (int i = 0; i < n; i++) {
            int result = choose_entry(&s, args[i], STATE_KEPT, &e);
            code = worse(code, result == CODE_OK ? verify_entry(&s, e) : result);
        }
    close_series(&s);
    return code;
}

/* -- prune, keep -- */

/* What the rules keep. A name without a number is not judged by --keep-every. */
static int is_kept_by_rules(const struct series *s, const struct snapshot *e, size_t n_later)
{
    const struct series_options *r = &s->o->series;
    uint64_t number;
    if (r->keep_last && n_later < r->keep_last)
        return 1;
    if (r->keep_every && (!find_number(e->name, &number) || number % r->keep_every == 0))
        return 1;
    for (size_t i = 0; i < r->n_keep; i++) {
        struct snapshot *kept = NULL;
        if (choose_entry(s, r->keep[i], STATE_KEPT, &kept) == CODE_OK && kept == e)
            return 1;
    }
    return 0;
}

/* Marks what is to be forgotten. */
static int apply_rules(struct series *s, unsigned char *marks)
{
    size_t n_later = 0, n_kept = 0;
    for (size_t i = 0; i < s->o->series.n_keep; i++) {
        struct snapshot *e;
        int code = choose_entry(s, s->o->series.keep[i], STATE_KEPT, &e);
        if (code != CODE_OK)
            return code;
    }
    for (size_t i = s->n; i-- > 0;)
        if (s->list[i].state == STATE_KEPT) {
            marks[i] = (unsigned char)!is_kept_by_rules(s, &s->list[i], n_later++);
            n_kept += !marks[i];
        }
    return n_kept || !n_later ? CODE_OK
                              : fail(CODE_ERROR, s->directory, "these rules keep no snapshot at all; nothing was changed. To forget all, name them");
}

static int mark_names(const struct series *s, char **args, int n, enum snapshot_state from, unsigned char *marks)
{
    int code = CODE_OK;
    for (int i = 0; i < n && code == CODE_OK; i++) {
        struct snapshot *e;
        code = choose_entry(s, args[i], from, &e);
        if (code == CODE_OK)
            marks[e - s->list] = e->state == from;
    }
    return code;
}

/* Tells what is done, or would be. */
static void tell(const struct options *o, const char *what, const char *name, const char *link, const char *other)
{
    if (is_given(o, SERIES_DRY_RUN))
        printf("%s %s%s%s\n", what, name, link, other);
    else if (o->verbosity >= 2)
        say(NULL, "%s %s%s%s", what, name, link, other);
}

static int change_states(struct series *s, const unsigned char *marks, enum snapshot_state to)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (marks[i]) {
            tell(s->o, to == STATE_KEPT ? "keep" : "forget", s->list[i].name, "", "");
            s->list[i].state = to;
            n++;
        }
    return n && !is_given(s->o, SERIES_DRY_RUN) ? save_manifest(s) : CODE_OK;
}

static int series_prune(const char *directory, char **args, int n, const struct options *o)
{
    int has_rules = is_given(o, SERIES_KEEP_LAST) || is_given(o, SERIES_KEEP_EVERY) || is_given(o, SERIES_KEEP), code;
    struct series s;
    unsigned char *marks;
    if (has_rules == (n > 0))
        return fail_series_usage(NULL, "'lmc series DIR prune' wants either the names to forget, or rules: --keep-last K, --keep-every M, --keep NAME");
    code = open_series(&s, directory, is_given(o, SERIES_DRY_RUN) ? TO_READ : TO_CHANGE, o);
    marks = (unsigned char *)resize(NULL, s.n, 1);
    memset(marks, 0, s.n);
    if (code == CODE_OK)
        code = has_rules ? apply_rules(&s, marks) : mark_names(&s, args, n, STATE_KEPT, marks);
    if (code == CODE_OK)
        code = change_states(&s, marks, STATE_FORGOTTEN);
    free(marks);
    close_series(&s);
    return code;
}

static int series_keep(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    unsigned char *marks;
    int code = open_series(&s, directory, TO_CHANGE, o);
    marks = (unsigned char *)resize(NULL, s.n, 1);
    memset(marks, 0, s.n);
    if (code == CODE_OK)
        code = mark_names(&s, args, n, STATE_FORGOTTEN, marks);
    for (size_t i = 0; i < s.n && code == CODE_OK; i++)
        if (marks[i])
            code = check_chain_of(&s, &s.list[i], 0);
    if (code == CODE_OK)
        code = change_states(&s, marks, STATE_KEPT);
    free(marks);
    close_series(&s);
    return code;
}

/* -- gc -- */

/* A name that counts as temporary: who finds it later removes it. */
#define RECODED_NAME ".lmc-recode"

/* That both restore the same bytes, which identities alone do not say: headers of files have no part in them. */
static int compare_archives(const struct archive *a, const struct archive *b)
{
    size_t n = lmc_count_files(a->reader);
    int same = n == lmc_count_files(b->reader);
    uint8_t first[LMC_IDENTITY_SIZE] = {0}, second[LMC_IDENTITY_SIZE] = {0};
    lmc_get_identity(a->reader, first);
    lmc_get_identity(b->reader, second);
    same = same && memcmp(first, second, sizeof first) == 0;
    for (size_t i = 0; i < n && same; i++) {
        const lmc_file *f = lmc_get_file(a->reader, i), *g = NULL;
        for (size_t k = 0; k < n && !g; k++) { /* in the same place, as a rule */
            const lmc_file *at = lmc_get_file(b->reader, (i + k) % n);
            g = strcmp(f->path, at->path) == 0 ? at : NULL;
        }
        same = g && f->kind == g->kind && f->size == g->size && f->crc == g->crc && f->has_mode == g->has_mode && f->mode == g->mode &&
               f->has_mtime == g->has_mtime && f->mtime_s == g->mtime_s && f->mtime_ns == g->mtime_ns;
    }
    return same ? CODE_OK : fail(CODE_ERROR, a->name, "does not come out the same when it is coded again; nothing was removed. Please report this");
}

/* Reads the new file as a whole, and compares what the indexes say. */
static int check_recoded(const char *old, const char *recoded, const struct options *o)
{
    struct archive a, b;
    int code = test_file(recoded, o), result = open_archive_file(&a, old, o);
    if (result == CODE_OK)
        result = read_archive_index(&a, NULL);
    code = worse(code, result);
    result = open_archive_file(&b, recoded, o);
    if (result == CODE_OK)
        result = read_archive_index(&b, NULL);
    code = worse(code, result);
    if (code == CODE_OK)
        code = compare_archives(&a, &b);
    close_archive(&a);
    close_archive(&b);
    return code;
}

/* What a kept delta whose base goes is coded against: the last one before it that is kept and does not make its chain longer, be
 * it an ancestor or of another chain; NULL: nothing. */
static const struct snapshot *choose_new_base(const struct series *s, const struct snapshot *e)
{
    long n = count_deltas(s, e);
    for (const struct snapshot *k = e; k-- > s->list;)
        if (k->state == STATE_KEPT && k->file == FILE_THERE && k->depth < e->depth && count_deltas(s, k) < n)
            return k;
    return NULL;
}

/* Puts the new file in the place of the old one, when nobody reads. Both restore the same. Its time is now: it may have the
 * size of the old one, and who copies what has changed, as rsync does, looks at size and time. */
static int replace_file(const struct series *s, const char *recoded, struct snapshot *e)
{
    int error = take_lock(s, LOCK_READERS, F_WRLCK);
    if (!error && (utimensat(AT_FDCWD, recoded, NULL, 0) != 0 || rename(recoded, e->path) != 0))
        error = errno;
    if (!error)
        error = sync_directory_of(e->path);
    if (!error)
        error = set_lock(s, LOCK_READERS, F_SETLK, F_UNLCK);
    look_at_file(e);
    return error ? fail_errno(e->path, error, "cannot put the new file there") : CODE_OK;
}

/* Codes it against another one that is kept, or as an anchor. */
static int recode_entry(const struct series *s, struct snapshot *e)
{
    const struct snapshot *onto = choose_new_base(s, e);
    char *recoded;
    struct chain c;
    int code;
    tell(s->o, onto ? "re-code" : "make an anchor of", e->name, onto ? " against " : "", onto ? onto->name : "");
    if (is_given(s->o, SERIES_DRY_RUN)) { /* what comes next builds on it */
        e->depth = onto ? onto->depth + 1 : 0;
        if (onto)
            memcpy(e->wanted, onto->identity, sizeof e->wanted);
        return CODE_OK;
    }
    recoded = join_path(s->directory, RECODED_NAME);
    begin_chain(&c, s->o);
    add_links(&c, s, e, 0);
    if (onto)
        add_links(&c, s, onto, 1);
    code = recode_snapshot(e->path, onto ? onto->path : NULL, recoded, &c.o);
    free_bases(&c.bases);
    if (code == CODE_OK) {
        begin_chain(&c, s->o);
        if (onto)
            add_links(&c, s, onto, 1);
        code = check_recoded(e->path, recoded, &c.o);
        free_bases(&c.bases);
        if (code == CODE_OK)
            code = replace_file(s, recoded, e);
        if (code != CODE_OK)
            unlink(recoded);
    }
    free(recoded);
    return code;
}

/* Kept deltas whose base is not kept, from the oldest up. Whatever is done to one, the others find their bases: all files are
 * there until the last is done, and no chain becomes longer. */
static int recode_stranded(const struct series *s)
{
    int code = CODE_OK;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (s->list[i].state == STATE_KEPT && s->list[i].depth && !find_base_of(s, &s->list[i], 1))
            code = recode_entry(s, &s->list[i]);
    return code;
}

/* Removes the files of all that is forgotten, what nothing else needs first. What is not the snapshot that was added stays. */
static int remove_forgotten(struct series *s)
{
    int code = CODE_OK, error = 0;
    for (;;) {
        struct snapshot *deepest = NULL;
        for (size_t i = 0; i < s->n; i++) {
            struct snapshot *e = &s->list[i];
            if (e->state == STATE_FORGOTTEN && e->file != FILE_MISSING && (!deepest || e->depth > deepest->depth))
                deepest = e;
        }
        if (!deepest)
            break;
        tell(s->o, "remove", deepest->name, SUFFIX, "");
        if (!is_given(s->o, SERIES_DRY_RUN)) {
            code = check_entry(s, deepest);
            if (code != CODE_OK)
                say(deepest->path, "was to go, but is not what was added, so it stays; remove it yourself, then 'lmc series DIR gc'");
        }
        if (code == CODE_OK && !is_given(s->o, SERIES_DRY_RUN) && unlink(deepest->path) != 0)
            code = fail_errno(deepest->path, errno, "cannot remove it");
        if (code != CODE_OK)
            return code;
        deepest->file = FILE_MISSING;
    }
    if (!is_given(s->o, SERIES_DRY_RUN))
        error = sync_directory_of(s->manifest_path);
    return error ? fail_errno(s->directory, error, "cannot bring it to the disk") : CODE_OK;
}

/* Whether everything that is kept can be restored, as far as can be seen without reading it all. */
static int check_kept(const struct series *s, int only_kept)
{
    int code = CODE_OK;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_KEPT) {
            int result = check_chain_of(s, &s->list[i], only_kept);
            if (result == CODE_OK && !only_kept)
                result = check_entry(s, &s->list[i]);
            code = worse(code, result);
        }
    return code;
}

static size_t count_state(const struct series *s, enum snapshot_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += s->list[i].state == state;
    return n;
}

static int collect_garbage(struct series *s)
{
    int code = check_kept(s, 0), error;
    if (code != CODE_OK)
        say(s->directory, "is damaged, so nothing was removed");
    if (code != CODE_OK || count_state(s, STATE_FORGOTTEN) == 0)
        return code;
    code = recode_stranded(s);
    if (is_given(s->o, SERIES_DRY_RUN))
        return code == CODE_OK ? remove_forgotten(s) : code;
    if (code == CODE_OK)
        code = check_kept(s, 1);
    if (code != CODE_OK)
        return code;
    error = take_lock(s, LOCK_READERS, F_WRLCK);
    if (error)
        return fail_errno(s->directory, error, "cannot lock out those who read");
    code = remove_forgotten(s);
    if (code != CODE_OK)
        return code;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_FORGOTTEN)
            s->list[i].state = STATE_GONE;
    return save_manifest(s);
}

static int series_gc(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    int code = open_series(&s, directory, is_given(o, SERIES_DRY_RUN) ? TO_READ : TO_CHANGE, o);
    (void)args;
    (void)n;
    if (code == CODE_OK)
        code = collect_garbage(&s);
    close_series(&s);
    return code;
}

/* -- rebuild -- */

static int compare_entries_by_name(const void *a, const void *b)
{
    return compare_names(((const struct snapshot *)a)->name, ((const struct snapshot *)b)->name);
}

static int take_in_file(struct series *s, const char *file_name)
{
    char *name = copy_string(file_name, strlen(file_name) - strlen(SUFFIX));
    const char *fault = find_fault_of_name(name);
    struct snapshot *e;
    struct stat st;
    int code = CODE_OK;
    if (fault) {
        code = fail(CODE_ERROR, s->directory, "holds '%.300s', whose name %s; rename it", file_name, fault);
    } else {
        e = add_entry_to_series(s, name, NULL);
        if (stat(e->path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe would be waited for */
            code = fail(CODE_ERROR, e->path, "is no file; move it away");
        else
            code = read_identity(e->path, e->identity, &e->size, s->o);
        e->time = stat(e->path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec : 0;
        look_at_file(e);
    }
    free(name);
    return code;
}

static int take_in_files(struct series *s)
{
    DIR *d = opendir(s->directory);
    struct dirent *entry;
    int code = CODE_OK, error = 0;
    if (!d)
        return fail_errno(s->directory, errno, "cannot read the directory");
    while ((entry = next_entry(d, &error)) != NULL)
        if (entry->d_name[0] != '.' && has_suffix(entry->d_name))
            code = worse(code, take_in_file(s, entry->d_name));
    closedir(d);
    if (error)
        code = worse(code, fail_errno(s->directory, error, "cannot read the directory"));
    if (s->n)
        qsort(s->list, s->n, sizeof *s->list, compare_entries_by_name);
    return code;
}

/* Gives the list another name, under which it stays when the new one takes its own; it keeps that until then. */
static int keep_list(const char *path, const char *old)
{
    struct stat st;
    int error = 0;
    if (lstat(path, &st) != 0) /* what was kept before is all there is */
        return errno == ENOENT ? CODE_OK : fail_errno(path, errno, "cannot look at it");
    if (unlink(old) != 0 && errno != ENOENT)
        error = errno;
    if (!error && link(path, old) != 0 && errno != ENOENT && rename(path, old) != 0) /* where there are no links */
        error = errno;
    return error ? fail_errno(old, error, "cannot keep the list as that") : CODE_OK;
}

/* All that is there counts, in the order of the names. The list before stays as series.json.old. */
static int series_rebuild(const char *directory, char **args, int n, const struct options *o)
{
    struct series s;
    char *old = NULL;
    int code = open_series(&s, directory, TO_REBUILD, o);
    (void)args;
    (void)n;
    if (code == CODE_OK)
        code = remove_temporaries(&s);
    if (code == CODE_OK) {
        code = take_in_files(&s);
        if (code != CODE_OK)
            say(directory, "the list was not made: move away what is no snapshot, or damaged, then try again");
    }
    if (o->series.every)
        s.every = o->series.every;
    old = path_in_series(directory, MANIFEST_NAME, ".old");
    if (code == CODE_OK)
        code = keep_list(s.manifest_path, old);
    if (code == CODE_OK)
        code = save_manifest(&s);
    for (size_t i = 0; i < s.n && code == CODE_OK; i++)
        code = worse(code, check_chain_of(&s, &s.list[i], 0));
    free(old);
    close_series(&s);
    return code;
}

/* -- watch -- */

#define DEFAULT_SETTLE 10
#define DEFAULT_INTERVAL 2
#define RETRY_AFTER 60.0 /* seconds, for what could not be added and has not changed since */

/* An entry of the directory that is watched. */
struct watched {
    char *name;
    uint64_t digest;
    double since;     /* it was so, by the clock of this machine */
    double tried;     /* and could not be added; or, told_of: is left there for good; 0: not tried */
    int is_told;
};

struct watch {
    const char *directory, *source;
    const struct options *o;
    struct watched *list;
    size_t n;
};

static int compare_watched(const void *a, const void *b)
{
    return compare_names(((const struct watched *)a)->name, ((const struct watched *)b)->name);
}

static void free_watched(struct watched *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].name);
    free(list);
}

/* Links are passed over: "latest" is one, as a rule. */
static int is_watched(const struct watch *w, const char *name)
{
    char *path;
    struct stat st, series;
    int result;
    if (name[0] == '.' || has_suffix(name) || (w->o->series.match && fnmatch(w->o->series.match, name, 0) != 0))
        return 0;
    path = join_path(w->source, name);
    result = lstat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
             !(stat(w->directory, &series) == 0 && same_file(&st, &series)) && !lies_within(w->directory, path);
    free(path);
    return result;
}

/* Those that are there now, with what is known about them from before. */
static int list_watched(struct watch *w)
{
    struct watched *list = NULL;
    size_t n = 0;
    struct dirent *entry;
    DIR *d = opendir(w->source);
    int error = 0;
    if (!d)
        return fail_errno(w->source, errno, "cannot read the directory");
    while ((entry = next_entry(d, &error)) != NULL)
        if (is_watched(w, entry->d_name)) {
            list = (struct watched *)resize(list, n + 1, sizeof *list);
            memset(&list[n], 0, sizeof *list);
            for (size_t i = 0; i < w->n; i++)
                if (strcmp(w->list[i].name, entry->d_name) == 0)
                    list[n] = w->list[i];
            list[n].name = copy_string(entry->d_name, strlen(entry->d_name));
            n++;
        }
    closedir(d);
    free_watched(w->list, w->n);
    w->list = list;
    w->n = n;
    if (n)
        qsort(list, n, sizeof *list, compare_watched);
    return error ? fail_errno(w->source, error, "cannot read the directory") : CODE_OK;
}

/* Nobody has changed it for the time, as it was seen from here. Who looks only once must believe the file's own times and the
 * clock, of which either may be wrong. */
static int is_settled(const struct watch *w, struct watched *e, const struct look *k)
{
    double settle = is_given(w->o, SERIES_SETTLE) ? (double)w->o->series.settle : DEFAULT_SETTLE, age;
    struct timespec t;
    if (e->since <= 0 || k->digest != e->digest) {
        e->since = now();
        e->digest = k->digest;
        e->tried = 0;
        e->is_told = 0;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    age = is_given(w->o, SERIES_ONCE) ? (double)t.tv_sec - (double)k->newest / 1e9 + (double)t.tv_nsec / 1e9 : 0;
    return k->is_whole && k->n_files && (age >= settle || now() - e->since >= settle);
}

/* What the series says about that name; NULL: nothing. */
static const struct snapshot *find_added(const struct series *s, const char *name)
{
    const struct snapshot *e = find_name(s, name);
    return e && e->state != STATE_ADDING ? e : NULL;
}

/* What is in the series and does not go has nothing more to be done to it. */
static int is_finished(const struct watch *w, struct watched *e, const struct snapshot *added)
{
    if (!added || (w->o->remove_source && added->state == STATE_KEPT))
        return 0;
    if (added->source && strcmp(added->source, e->name) != 0 && !e->is_told) {
        say(e->name, "is not added: the series has %.250s already, made of %.250s; add it under another name", added->name, added->source);
        e->is_told = 1;
    }
    return 1;
}

static int visit_watched(const struct watch *w, struct watched *e, const struct series *s)
{
    char *path = join_path(w->source, e->name), *name = name_of_source(e->name);
    const char *fault = find_fault_of_name(name);
    const struct snapshot *added = fault ? NULL : find_added(s, name);
    int code = CODE_OK;
    if (fault && !e->is_told) {
        code = fail(CODE_ERROR, path, "cannot be added: its name %s", fault);
        e->is_told = 1;
    } else if (!fault && !is_finished(w, e, added)) {
        struct look k = look_at(path);
        if (is_settled(w, e, &k) && !(e->tried > 0 && now() - e->tried < RETRY_AFTER) && !(added && e->is_told)) {
            code = add_source_to_series(w->directory, path, name, 1, w->o);
            if (code != CODE_OK)
                e->tried = now();
            e->is_told = added && code != CODE_OK; /* it differs, and will until it changes */
        }
    }
    free(path);
    free(name);
    return code;
}

/* Adds all that are settled. *is_fatal: there is no point in going on. */
static int watch_once(struct watch *w, int *is_fatal)
{
    struct series s;
    struct stat st;
    char *manifest = path_in_series(w->directory, MANIFEST_NAME, "");
    int code = list_watched(w), exists = lstat(manifest, &st) == 0 || holds_snapshots(w->directory);
    memset(&s, 0, sizeof s);
    s.lock_fd = -1;
    if (code == CODE_OK && exists) /* what it has now: one lock at a time */
        code = open_series(&s, w->directory, TO_READ, w->o);
    if (s.lock_fd >= 0)
        close(s.lock_fd);
    s.lock_fd = -1;
    *is_fatal = code != CODE_OK;
    for (size_t i = 0; i < w->n && !*is_fatal; i++)
        code = worse(code, visit_watched(w, &w->list[i], &s));
    close_series(&s);
    free(manifest);
    return code;
}

static int series_watch(const char *directory, char **args, int n, const struct options *o)
{
    struct watch w;
    struct stat st, series;
    int code = CODE_OK, is_fatal = 0;
    (void)n;
    memset(&w, 0, sizeof w);
    w.directory = directory;
    w.source = args[0];
    w.o = o;
    if (stat(args[0], &st) != 0)
        return fail_errno(args[0], errno, "cannot look at it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, args[0], "is no directory; 'lmc series DIR add' adds a file");
    if (stat(directory, &series) == 0 && same_file(&st, &series))
        return fail(CODE_ERROR, args[0], "is the series itself; keep them apart");
    for (;;) {
        struct timespec pause = {DEFAULT_INTERVAL, 0};
        code = worse(code, watch_once(&w, &is_fatal));
        if (is_fatal || is_given(o, SERIES_ONCE))
            break;
        if (is_given(o, SERIES_INTERVAL))
            pause.tv_sec = (time_t)o->series.interval;
        nanosleep(&pause, NULL);
    }
    free_watched(w.list, w.n);
    return code;
}

/* -- the verbs -- */

#define BIT(option) (1u << SERIES_##option)

static const struct series_verb {
    const char *name, *usage;
    int (*run)(const char *directory, char **args, int n, const struct options *o);
    unsigned options;
    int least, most; /* arguments; most -1: any number */
} series_verbs[] = {
    {"add", "[--name NAME] [--every N] [--anchor] [--verify] [--rm] SNAPSHOT", series_add,
     BIT(NAME) | BIT(EVERY) | BIT(ANCHOR) | BIT(VERIFY) | BIT(RM) | BIT(CODING) | BIT(KIND) | BIT(QUANT), 1, 1},
    {"list", "[--json]", series_list, BIT(JSON), 0, 0},
    {"restore", "[-o OUT] [-f] NAME", series_restore, BIT(OUTPUT) | BIT(FORCE), 1, 1},
    {"cat", "[--npy] [--file PATH] [-o OUT] [-f] NAME [TENSOR[SLICE]]", series_cat, BIT(OUTPUT) | BIT(FORCE) | BIT(CAT), 1, 2},
    {"prune", "[--dry-run] NAME... | [--keep-last K] [--keep-every M] [--keep NAME]...", series_prune,
     BIT(KEEP_LAST) | BIT(KEEP_EVERY) | BIT(KEEP) | BIT(DRY_RUN), 0, -1},
    {"keep", "NAME...", series_keep, 0, 1, -1},
    {"gc", "[--dry-run]", series_gc, BIT(DRY_RUN) | BIT(CODING), 0, 0},
    {"verify", "[NAME...]", series_verify, 0, 0, -1},
    {"watch", "[--rm] [--settle SECONDS] [--interval SECONDS] [--once] [--match GLOB] [--every N] SOURCE_DIR", series_watch,
     BIT(EVERY) | BIT(RM) | BIT(SETTLE) | BIT(INTERVAL) | BIT(ONCE) | BIT(MATCH) | BIT(CODING) | BIT(KIND) | BIT(QUANT), 1, 1},
    {"rebuild", "[--every N]", series_rebuild, BIT(EVERY), 0, 0}};

static const struct series_verb *find_series_verb(const char *name)
{
    for (size_t i = 0; i < sizeof series_verbs / sizeof *series_verbs; i++)
        if (strcmp(series_verbs[i].name, name) == 0)
            return &series_verbs[i];
    return NULL;
}

/* Options that the verb does not know would be ignored. */
static int check_series_options(char **files, int n_files, const struct options *o)
{
    const struct series_verb *verb = n_files > 1 ? find_series_verb(files[1]) : NULL;
    unsigned given = o->series.given;
    given |= o->remove_source ? BIT(RM) : 0;
    given |= o->output || o->to_stdout ? BIT(OUTPUT) : 0;
    given |= o->force ? BIT(FORCE) : 0;
    given |= o->json ? BIT(JSON) : 0;
    given |= o->npy || o->file ? BIT(CAT) : 0;
    given |= o->level != LMC_LEVEL_DEFAULT || o->no_twins ? BIT(CODING) : 0;
    given |= o->policy->is_given ? BIT(QUANT) : 0;
    given |= o->opaque || o->dtype != LMC_AUTO ? BIT(KIND) : 0;
    if (n_files > 1 && !verb)
        return fail_series_usage(files[1], "is no verb; after the directory comes add, list, restore, cat, prune, keep, gc, verify, watch or rebuild");
    if (!verb || n_files - 2 < verb->least || (verb->most >= 0 && n_files - 2 > verb->most)) {
        say(NULL, "usage: lmc series DIR %s %s", verb ? verb->name : "VERB", verb ? verb->usage : "...");
        return fail_series_usage(NULL, "wrong number of arguments");
    }
    if ((given & ~verb->options) || o->bases->n || o->recursive) {
        say(NULL, "usage: lmc series DIR %s %s", verb->name, verb->usage);
        return fail_series_usage(verb->name, "does not take one of these options");
    }
    if (o->output && o->to_stdout && !is_dash(o->output))
        return fail_series_usage(NULL, "-o and -c exclude each other");
    if (o->opaque && o->dtype != LMC_AUTO)
        return fail_series_usage(NULL, "--opaque and --dtype exclude each other");
    return CODE_OK;
}

static int run_series(char **files, int n_files, const struct options *o)
{
    return find_series_verb(files[1])->run(files[0], files + 2, n_files - 2, o);
}

#endif
