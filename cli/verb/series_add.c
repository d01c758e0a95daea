/* SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "../input/base.h"
#include "../input/second_look.h"
#include "../input/source_tree.h"
#include "../sys/attributes.h"
#include "../sys/look.h"
#include "series_manifest.h"
#include "../../formats/pattern.h"

/* -- the source -- */

/* The source's name in the series. To be freed. */
static char *name_of_source(const char *path)
{
    static const char suffix[] = ".safetensors";
    char *whole = copy_without_slashes(path);
    const char *name = base_name(whole);
    char *result =
        copy_string(name, strlen(name) - (is_suffix_of(suffix, name) ? sizeof suffix - 1 : 0));
    free(whole);
    return result;
}

struct newcomer {
    char *path;
    int is_tree;
    struct listing l; /* of a tree */
    struct look look; /* taken before anything was read */
};

static int is_or_holds(const char *outer, const char *inner)
{
    return is_same_file(outer, inner) || lies_within(inner, outer);
}

/* Checks that a series can hold the source, and that the source does not contain the series. Call
 * it before the series is created. */
static int check_newcomer(const char *path, const struct options *o)
{
    struct stat st, link;
    char *own = copy_without_slashes(o->directory), *parent = directory_of(own),
         *lock = join_path(own, LOCK_NAME);
    int is_there = stat(path, &st) == 0;
    int is_inside =
        is_there && (S_ISDIR(st.st_mode) ? is_or_holds(path, own) || is_or_holds(path, parent)
                                         : is_or_holds(path, lock));
    free(own);
    free(parent);
    free(lock);
    if (is_dash(path))
        return fail(CODE_USAGE, NULL, "a series takes files and directories, not standard input");
    if (!is_there) return fail_errno(path, errno, "cannot open it");
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, path, "is neither a file nor a directory");
    if (S_ISREG(st.st_mode) && has_suffix(path))
        return fail(CODE_ERROR, path,
                    "is named " SUFFIX " already; restore it, and add the restored files");
    if (is_inside)
        return fail(CODE_ERROR, path,
                    "is or holds the series itself; choose another directory for that");
    if (o->remove_source && lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
        return fail(CODE_ERROR, path,
                    "is a link, and --rm does not follow links; name what it leads to");
    return CODE_OK;
}

/* c: zeros, to be freed even after an error. */
static int open_newcomer(struct newcomer *c, const char *path, int is_removed,
                         const struct options *o)
{
    struct stat st;
    int code = CODE_OK;
    c->path = copy_without_slashes(path);
    c->look = look_at(c->path);
    if (stat(c->path, &st) != 0) return fail_errno(path, errno, "cannot access it");
    c->is_tree = S_ISDIR(st.st_mode);
    if (c->is_tree) code = list_sources(&c->l, c->path, is_removed, o);
    return code;
}

/* The base of the next snapshot; NULL: it needs none. */
static const struct snapshot *choose_base_of_next(const struct series *s)
{
    const struct snapshot *latest = find_latest(s, STATE_KEPT), *same;
    if (!latest || s->o->anchor) return NULL;
    if (latest->depth >= DEPTH_LOOSE) {
        say(latest->path, "cannot be restored, so the new snapshot is not coded against it; see "
                          "'lmc series DIR verify'");
        return NULL;
    }
    same = find_shallowest(s, latest->fingerprint, (uint64_t)latest->depth + 1, 1);
    return same && (uint64_t)same->depth + 1 < s->every ? same : NULL;
}

/* Whether two names are equal up to the first digits that differ. */
static int are_alike(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    while (i > 0 && is_digit(a[i - 1])) i--;
    return is_digit(a[i]) && is_digit(b[i]);
}

/* Warns if a snapshot has a lower number than its base: such deltas are larger. */
static void say_backwards(const struct series *s, const struct snapshot *e,
                          const struct snapshot *base)
{
    if (base && s->o->verbosity > 0 && are_alike(e->name, base->name) && e->has_number &&
        base->has_number && e->number < base->number)
        say(e->path,
            "is coded against %.250s, which has a higher number; deltas are smaller if "
            "snapshots are added in the order of their numbers",
            base->name);
}

/* Makes the snapshot's file. *is_made: this command has created the file. */
static int make_snapshot(const struct series *s, const struct newcomer *c, struct snapshot *e,
                         int verifies, int *is_made)
{
    const struct snapshot *base = choose_base_of_next(s);
    struct chain chain;
    begin_chain(&chain, s, NULL);
    add_to_chain(&chain, s, base);
    chain.o.output = e->path;
    int code = c->is_tree ? compress_listing(&c->l, c->path, e->path, &chain.o)
                          : compress_file(c->path, 1, &chain.o);
    *is_made = code == CODE_OK;
    if (base && (code == CODE_CORRUPT || code == CODE_BASE))
        say(c->path,
            "is not added: it was to be coded against %.250s, which cannot be read; 'lmc series "
            "DIR add --anchor' adds it as a whole snapshot, and those after it are coded against "
            "that",
            base->name);
    if (code == CODE_OK && verifies)
        code = verify_snapshot(e->path, c->path, c->is_tree ? &c->l : NULL, 0, !s->o->remove_source,
                               &chain.o);
    if (code == CODE_OK) code = read_fingerprint(e->path, e->fingerprint, &e->size, &chain.o);
    free_bases(&chain.bases);
    if (code == CODE_OK) say_backwards(s, e, base);
    if (code == CODE_OK && s->o->verbosity >= 2)
        say(e->path, base ? "a delta of %s" : "an anchor", base ? base->name : "");
    return code;
}

/* Reserves the name, makes the snapshot, confirms it, and with --rm removes the source. Each step
 * begins when the step before it is on the disk. */
static int add_newcomer(struct series *s, const struct newcomer *c, const char *name, int verifies)
{
    const char *source = base_name(c->path);
    struct snapshot *e = add_entry_to_series(s, name, find_fault_of_name(source) ? NULL : source);
    struct timespec t;
    struct stat st;
    int is_made = 0, code;
    e->state = STATE_ADDING;
    /* time() may lag behind the times of files, which is_finished() compares with this */
    clock_gettime(CLOCK_REALTIME, &t);
    e->time = (int64_t)t.tv_sec;
    if (lstat(e->path, &st) == 0)
        return fail(CODE_ERROR, e->path,
                    "is there already, but not in the list; move it away, or take it in with 'lmc "
                    "series DIR rebuild'");
    code = save_manifest(s);
    if (code != CODE_OK) return code;
    code = make_snapshot(s, c, e, verifies, &is_made);
    if (code != CODE_OK) { /* if undoing fails, the next command does it */
        if (is_made && unlink(e->path) != 0)
            return worse(code, fail_errno(e->path, errno, "cannot remove it"));
        drop_entries(s, STATE_ADDING, NULL);
        return worse(code, save_manifest(s));
    }
    e->state = STATE_KEPT;
    return save_manifest(s); /* on error series.json may lack it: the source stays */
}

/* For a name that the series has already. If an add with --rm was killed, files of its source may
 * be left: checks that these files equal the snapshot, so that they can be removed. */
static int add_again(struct series *s, const struct newcomer *c, const struct snapshot *e)
{
    struct chain chain;
    if (!s->o->remove_source)
        return fail(
            CODE_ERROR, s->directory,
            "already has a snapshot %.250s%s; give the new one another name with --name", e->name,
            e->state == STATE_FORGOTTEN ? " (which is forgotten, but not removed yet)" : "");
    if (e->state == STATE_FORGOTTEN)
        return fail(CODE_ERROR, c->path,
                    "is not removed: its snapshot is forgotten; 'lmc series DIR keep %.250s' "
                    "first, or add this one under another name",
                    e->name);
    int code = check_chain_of(s, e, 0, NULL);
    if (code != CODE_OK) return code;
    begin_chain(&chain, s, e);
    code = verify_snapshot(e->path, c->path, c->is_tree ? &c->l : NULL, 1, 0, &chain.o);
    free_bases(&chain.bases);
    return code;
}

/* Whether another watch has added the source while this one waited for the lock. */
static int is_done_meanwhile(const struct snapshot *e, const char *path, const struct options *o)
{
    struct stat st;
    return e && (!o->remove_source || (lstat(path, &st) != 0 && errno == ENOENT));
}

/* is_watched: called by a watch; then it is no error if another watch has added the source. */
static int add_source_to_series(const char *path, const char *name, int is_watched,
                                const struct options *o)
{
    struct series s;
    struct newcomer c = {0};
    int code = check_newcomer(path, o), is_done;
    if (code != CODE_OK) return code;
    code = open_series(&s, TO_CREATE, o);
    if (code == CODE_OK) drop_entries(&s, STATE_GONE, name); /* a removed name may be used again */
    const struct snapshot *e = code == CODE_OK ? find_name(&s, name) : NULL;
    is_done = is_watched && is_done_meanwhile(e, path, o);
    if (code == CODE_OK && !is_done) code = open_newcomer(&c, path, o->remove_source, o);
    if (code == CODE_OK && o->every) s.every = o->every;
    if (code == CODE_OK && !is_done)
        code = e ? add_again(&s, &c, e)
                 : add_newcomer(&s, &c, name, is_watched || o->verify || o->remove_source);
    if (code == CODE_OK && !is_done && o->remove_source)
        code = remove_unchanged(c.is_tree ? &c.l : NULL, c.path, &c.look, find_name(&s, name)->path,
                                o);
    free_listing(&c.l);
    free(c.path);
    close_series(&s);
    return code;
}

int series_add(const struct options *o)
{
    const char *const path = o->names[0];
    char *name = o->name ? copy_text(o->name) : name_of_source(path);
    const char *fault = find_fault_of_name(name);
    int code;
    if (fault)
        code = fail(CODE_USAGE, path,
                    "cannot give its name to a snapshot: it %s; choose one with --name", fault);
    else code = add_source_to_series(path, name, 0, o);
    free(name);
    return code;
}

/* -- watch -- */

#define RETRY_AFTER 60.0 /* seconds, for what could not be added and has not changed since */

/* An entry of the directory that is watched. */
struct watched {
    char *name;
    uint64_t digest;
    double since;   /* when it was first seen in this state, by now() */
    double tried;   /* when adding it last failed; 0: never */
    int is_told;    /* reported: it is left there */
    int is_awaited; /* another program has it open for writing, which was reported */
};

struct watch {
    const struct options *o;
    const char *source; /* the directory's name */
    struct watched *list;
    size_t n;
};

static void free_watched(struct watched *list, size_t n)
{
    for (size_t i = 0; i < n; i++) free(list[i].name);
    free(list);
}

/* Whether entries of this name are added. Links are skipped, as "latest" is usually one. */
static int is_watched(const struct watch *w, const char *name)
{
    struct stat st;
    if (name[0] == '.' || has_suffix(name)) return 0;
    if (w->o->match && !match_pattern(w->o->match, strlen(w->o->match), NULL, name)) return 0;
    char *path = join_path(w->source, name);
    int result = lstat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
                 !is_or_holds(path, w->o->directory);
    free(path);
    return result;
}

/* Lists the present entries. What was known about them is kept. */
static int list_watched(struct watch *w)
{
    struct watched *list = NULL;
    struct listing names;
    const int error = list_names(&names, w->source);
    size_t n = 0, room = 0;
    for (size_t i = 0; i < names.n; i++) {
        const char *const name = names.entries[i].path;
        if (!is_watched(w, name)) continue;
        struct watched *e = (struct watched *)append(&list, &n, &room, sizeof *e);
        for (size_t k = 0; k < w->n; k++)
            if (strcmp(w->list[k].name, name) == 0) *e = w->list[k];
        e->name = copy_text(name);
    }
    free_listing(&names);
    free_watched(w->list, w->n);
    w->list = list;
    w->n = n;
    if (n) qsort(list, n, sizeof *list, compare_numbered);
    return error ? fail_errno(w->source, error, "cannot read the directory") : CODE_OK;
}

/* Whether the entry has not changed for the settle time, as far as this process has seen. --once
 * looks only once, so it must trust the file's times and the clock, which may be wrong. is_added:
 * the series has it; then it may be an empty directory that a killed --rm has left. */
static int is_settled(const struct watch *w, struct watched *e, const struct look *k, int is_added)
{
    double settle = (double)w->o->settle, age;
    struct timespec t;
    if (e->since <= 0 || k->digest != e->digest) {
        e->since = now();
        e->digest = k->digest;
        e->tried = 0;
        e->is_told = 0;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    age = w->o->once ? (double)t.tv_sec - (double)k->newest / 1e9 + (double)t.tv_nsec / 1e9 : 0;
    return k->is_whole && (k->n_files || is_added) && (age >= settle || now() - e->since >= settle);
}

/* Whether nothing is left to do: the entry is in the series, and is not to be removed. */
static int is_finished(const struct watch *w, struct watched *e, const char *path,
                       const struct snapshot *added)
{
    struct stat st;
    if (!added || (w->o->remove_source && added->state == STATE_KEPT)) return 0;
    if (e->is_told) return 1;
    e->is_told = 1;
    if (added->source && strcmp(added->source, e->name) != 0)
        say(e->name,
            "is not added: the series has %.250s already, made of %.250s; add it under another "
            "name",
            added->name, added->source);
    else if (lstat(path, &st) == 0 && (int64_t)st.st_mtim.tv_sec > added->time)
        say(path,
            "was changed after it was added as %.250s, and is neither added again nor removed; "
            "'lmc series DIR add --name' adds it under another name",
            added->name);
    else e->is_told = 0;
    return 1;
}

/* Whether another program has the entry open for writing: it may pause, and write more later. */
static int is_left_to_writer(struct watched *e, const char *path, const struct look *k)
{
    if (k->is_written && !e->is_awaited)
        say(path, "is open for writing by another program, and is left until that is done");
    e->is_awaited = k->is_written;
    return k->is_written;
}

static int visit_watched(const struct watch *w, struct watched *e, const struct series *s)
{
    char *path = join_path(w->source, e->name), *name = name_of_source(e->name);
    const char *fault = find_fault_of_name(name);
    const struct snapshot *added = fault ? NULL : find_name(s, name);
    int code = CODE_OK;
    if (added && added->state == STATE_ADDING) added = NULL;
    if (fault && !e->is_told) {
        code = fail(CODE_ERROR, path, "cannot be added: its name %s", fault);
        e->is_told = 1;
    } else if (!fault && !is_finished(w, e, path, added)) {
        struct look k = look_at(path);
        if (is_settled(w, e, &k, added != NULL) &&
            !(e->tried > 0 && now() - e->tried < RETRY_AFTER) && !(added && e->is_told) &&
            !is_left_to_writer(e, path, &k)) {
            code = add_source_to_series(path, name, 1, w->o);
            if (code != CODE_OK) e->tried = now();
            e->is_told = added && code != CODE_OK; /* it differs from the snapshot */
        }
    }
    free(path);
    free(name);
    return code;
}

/* Adds all settled entries. *is_fatal: the watch cannot go on. */
static int watch_once(struct watch *w, int *is_fatal)
{
    struct series s;
    struct stat st;
    char *manifest = path_in_series(w->o->directory, MANIFEST_NAME, "");
    int code = list_watched(w),
        exists = lstat(manifest, &st) == 0 || contains_snapshots(w->o->directory, 0);
    if (code == CODE_OK && exists) code = open_series(&s, TO_READ, w->o);
    else init_series(&s, w->o);
    if (s.lock_fd >= 0) close(s.lock_fd); /* add takes its own lock */
    s.lock_fd = -1;
    *is_fatal = code != CODE_OK;
    for (size_t i = 0; i < w->n && !*is_fatal; i++)
        code = worse(code, visit_watched(w, &w->list[i], &s));
    close_series(&s);
    free(manifest);
    return code;
}

int series_watch(const struct options *options)
{
    const char *const source = options->names[0];
    struct options watching = *options;
    const struct options *const o = &watching;
    struct watch w = {0};
    struct stat st;
    int code = CODE_OK, is_fatal = 0;
    watching.only_whole = 1;
    w.source = source;
    w.o = o;
    if (stat(source, &st) != 0) return fail_errno(source, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, source, "is no directory; 'lmc series DIR add' adds a file");
    if (is_same_file(source, o->directory))
        return fail(CODE_ERROR, source, "is the series itself; keep them apart");
    for (;;) {
        struct timespec pause = {(time_t)o->interval, 0};
        code = worse(code, watch_once(&w, &is_fatal));
        if (is_fatal || o->once) break;
        nanosleep(&pause, NULL);
    }
    free_watched(w.list, w.n);
    return code;
}
