/* series_add.c - lmc series DIR add and watch
 * SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "../input/base.h"
#include "../input/reread.h"
#include "../input/source_tree.h"
#include "../sys/attributes.h"
#include "../sys/look.h"
#include "../sys/output.h"
#include "../sys/temporary.h"
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
    struct stat st;
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
    if (!is_there) {
        const int error = errno;
        if (o->remove_source && o->verbosity > 0) say_left_behind(path);
        return fail_errno(path, error, "cannot open it");
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, path, "is neither a file nor a directory");
    if (S_ISREG(st.st_mode) && has_suffix(path))
        return fail(CODE_ERROR, path,
                    "is named " SUFFIX " already; restore it, and add the restored files");
    if (is_inside)
        return fail(CODE_ERROR, path,
                    "is or holds the series itself; choose another directory for that");
    return o->remove_source ? check_no_link(path) : CODE_OK;
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
    const struct snapshot *last = find_last_added(s, STATE_KEPT), *same;
    if (!last || s->o->anchor) return NULL;
    if (last->depth >= DEPTH_LOOSE) {
        say(last->path, "cannot be restored, so the new snapshot is not coded against it; see "
                        "'lmc series DIR verify'");
        return NULL;
    }
    same = find_shallowest(s, last->fingerprint, (uint64_t)last->depth + 1, 1);
    return same && (uint64_t)same->depth + 1 < s->every ? same : NULL;
}

/* Tells if the new snapshot is not the latest one: a run may have been resumed. */
static void say_not_latest(const struct series *s, const struct snapshot *e)
{
    const struct snapshot *const latest = find_latest(s, STATE_KEPT);
    if (latest && latest != e && s->o->verbosity > 0)
        say(e->path,
            "has a lower number than %.250s, which stays 'latest'; if a run was resumed, see 'lmc "
            "help series'",
            latest->name);
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
        code = verify_snapshot(e->path, c->path, c->is_tree ? &c->l : NULL, !s->o->remove_source,
                               NULL, &chain.o);
    if (code == CODE_OK) code = read_fingerprint(e->path, e->fingerprint, &e->size, &chain.o);
    free_bases(&chain.bases);
    if (code == CODE_OK && s->o->verbosity >= 2)
        say(e->path, base ? "a delta of %s" : "an anchor", base ? base->name : "");
    return code;
}

/* Reserves the name, makes the snapshot, and confirms it. Each step begins when the step before it
 * is on the disk. *is_stuck: the series cannot be written. */
static int add_newcomer(struct series *s, const struct newcomer *c, const char *name, int verifies,
                        int *is_stuck)
{
    const char *source = base_name(c->path);
    struct snapshot *e = add_entry_to_series(s, name, find_fault_of_name(source) ? NULL : source);
    struct timespec t;
    struct stat st;
    int is_made = 0, code;
    e->state = STATE_ADDING;
    clock_gettime(CLOCK_REALTIME, &t);
    e->time = (int64_t)t.tv_sec;
    e->seen = c->look.state;
    e->has_seen = 1;
    if (fstatat(s->dir, base_name(e->path), &st, AT_SYMLINK_NOFOLLOW) == 0)
        return fail(CODE_ERROR, e->path,
                    "is there already, but not in the list; move it away, or take it in with 'lmc "
                    "series DIR rebuild'");
    code = save_manifest(s);
    *is_stuck = code != CODE_OK;
    if (code != CODE_OK) return code;
    code = make_snapshot(s, c, e, verifies, &is_made);
    if (code != CODE_OK) { /* if undoing fails, the next command does it */
        const int error = take_output_error();
        *is_stuck = error == ENOSPC || error == EDQUOT;
        if (is_made && unlinkat(s->dir, base_name(e->path), 0) != 0)
            return worse(code, fail_errno(e->path, errno, "cannot remove it"));
        drop_entries(s, STATE_ADDING, NULL);
        return worse(code, save_manifest(s));
    }
    e->state = STATE_KEPT;
    code = save_manifest(s); /* on error series.json may lack it: the source stays */
    forget_order(s);
    if (code == CODE_OK) say_not_latest(s, e);
    return code;
}

/* For a name that the series has already. If an add with --rm was killed before it removed its
 * source, that is there: checks that it equals the snapshot, so that it can be removed. */
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
    int code = open_chain(&chain, s, e);
    if (code == CODE_OK)
        code = verify_snapshot(e->path, c->path, c->is_tree ? &c->l : NULL, 0, NULL, &chain.o);
    if (code == CODE_ERROR) say(c->path, "'lmc series DIR add --name' adds it under another name");
    free_bases(&chain.bases);
    return code;
}

/* The fingerprint that a snapshot of the source would have. */
static int identify_newcomer(const struct series *s, const struct newcomer *c, uint8_t *fingerprint)
{
    struct chain chain;
    begin_chain(&chain, s, NULL);
    struct base *b = add_base(&chain.bases, c->path);
    const int code = identify_base(b, &chain.o);
    if (code == CODE_OK) memcpy(fingerprint, b->fingerprint, LMC_FINGERPRINT_SIZE);
    free_bases(&chain.bases);
    return code;
}

/* Whether all that the source has is in its snapshot e already. Its times do not say that: they may
 * be ahead of the clock, or old ones that a copy has kept. */
static int compare_newcomer(const struct series *s, const struct newcomer *c,
                            const struct snapshot *e, int *is_same)
{
    const struct listing *const l = c->is_tree ? &c->l : NULL;
    struct chain chain;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    int code, differs = 0;
    if (e->state == STATE_GONE) { /* then the fingerprint is all that is left of it */
        code = identify_newcomer(s, c, fingerprint);
        *is_same = code == CODE_OK && same_fingerprint(fingerprint, e->fingerprint);
        return code;
    }
    code = open_chain(&chain, s, e);
    /* quantised tensors cannot be compared: so what was added, and has changed, counts as other */
    if (code == CODE_OK)
        code = verify_snapshot(e->path, c->path, l, !e->has_seen, &differs, &chain.o);
    free_bases(&chain.bases);
    *is_same = !differs;
    return differs ? CODE_OK : code;
}

/* For a watch, whose source has a snapshot e already. If the source has other content now, as a
 * resumed run writes a step again, adds it as name@2, name@3, ... *added: the snapshot of the
 * source. */
static int add_changed(struct series *s, const struct newcomer *c, const char *name,
                       const struct snapshot *e, unsigned next, const char **added, int *is_stuck)
{
    char *other = format_text("%s@%u", name, next);
    const size_t at = (size_t)(e - s->list);
    const char *const fault = find_fault_of_name(other);
    const int is_known = e->has_seen && e->seen == c->look.state;
    int is_same = is_known && !(s->o->remove_source && e->state == STATE_KEPT), code = CODE_OK;
    if (!is_same) code = compare_newcomer(s, c, e, &is_same);
    *added = e->name;
    if (code == CODE_OK && is_same) {
        s->list[at].seen = c->look.state;
        s->list[at].has_seen = 1;
        if (!is_known) code = save_manifest(s);
    } else if (code == CODE_OK && fault) {
        code = fail(CODE_ERROR, c->path, "cannot be added as %.300s: this name %s", other, fault);
    } else if (code == CODE_OK) {
        if (s->o->verbosity > 0)
            say(c->path, "is not what was added as %.250s, so it is added as %.250s", e->name,
                other);
        code = add_newcomer(s, c, other, 1, is_stuck);
        if (code == CODE_OK) *added = find_name(s, other)->name;
    }
    free(other);
    return code;
}

/* Whether another watch has added and removed the source while this one waited for the lock. */
static int is_done_meanwhile(const struct snapshot *e, const char *path)
{
    struct stat st;
    return e && lstat(path, &st) != 0 && errno == ENOENT;
}

/* is_stuck: not NULL if called by a watch; then it is no error if another watch has added the
 * source. *is_stuck: the series cannot be written, so other sources need not be tried. */
static int add_source_to_series(const char *path, const char *name, int *is_stuck,
                                const struct options *o)
{
    struct series s;
    struct newcomer c = {0};
    const char *added = name;
    unsigned next;
    int code = check_newcomer(path, o), is_done, unused, is_watched = is_stuck != NULL;
    if (code != CODE_OK) return code;
    if (!is_watched) is_stuck = &unused;
    forget_refused_sync();
    code = open_series(&s, TO_CREATE, o);
    *is_stuck = code != CODE_OK;
    if (code == CODE_OK && !is_watched)
        drop_entries(&s, STATE_GONE, name); /* a removed name may be used again */
    const struct snapshot *e = code != CODE_OK ? NULL
                               : is_watched    ? find_newest_of(&s, name, base_name(path), &next)
                                               : find_name(&s, name);
    is_done = is_watched && is_done_meanwhile(e, path);
    if (code == CODE_OK && !is_done) code = open_newcomer(&c, path, o->remove_source, o);
    if (code == CODE_OK && o->every) s.every = o->every;
    if (code == CODE_OK && !is_done) {
        if (!e)
            code =
                add_newcomer(&s, &c, name, is_watched || o->verify || o->remove_source, is_stuck);
        else if (is_watched) code = add_changed(&s, &c, name, e, next, &added, is_stuck);
        else code = add_again(&s, &c, e);
    }
    if (code == CODE_OK && !is_done && o->remove_source) {
        e = find_name(&s, added);
        if (e->state == STATE_KEPT) code = sync_snapshot(&s, e);
        if (code == CODE_OK && e->state == STATE_KEPT) code = check_on_disk(path);
        if (code == CODE_OK && e->state == STATE_KEPT)
            code = remove_unchanged(c.is_tree ? &c.l : NULL, c.path, &c.look, e->path, o);
    }
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
    else code = add_source_to_series(path, name, NULL, o);
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
    int is_told;    /* reported: it is never added */
    int is_awaited; /* another program has it open for writing, which was reported */
};

struct watch {
    const struct options *o;
    const char *source; /* the directory's name */
    struct watched *list;
    size_t n;
    int is_stuck;      /* the series could not be written; */
    double stuck_at;   /* when that was */
    size_t n_ahead;    /* entries whose time is ahead of the clock; */
    const char *ahead; /* the first one */
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
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < names.n; i++) {
        const char *const name = names.entries[i].path;
        if (!is_watched(w, name)) continue;
        struct watched *e = (struct watched *)append(&list, &n, &cap, sizeof *e);
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
 * looks only once, so it trusts the file's times, if they are not ahead of the clock: then it has
 * to look again. */
static int is_settled(struct watch *w, struct watched *e, const struct look *k)
{
    double settle = (double)w->o->settle, age;
    struct timespec t;
    if (e->since <= 0 || k->digest != e->digest) {
        e->since = now();
        e->digest = k->digest;
        e->tried = 0;
    }
    if (!k->is_whole || !k->n_files) return 0;
    clock_gettime(CLOCK_REALTIME, &t);
    age = w->o->once ? (double)t.tv_sec + (double)t.tv_nsec / 1e9 - k->newest : 0;
    if (age >= settle || now() - e->since >= settle) return 1;
    if (age < 0 && w->n_ahead++ == 0) w->ahead = e->name;
    return 0;
}

/* Whether another program has the entry open for writing: it may pause, and write more later. */
static int is_left_to_writer(struct watched *e, const char *path)
{
    const int is_written = look_at(path).is_written;
    if (is_written && !e->is_awaited)
        say(path, "is open for writing by another program, and is left until that is done");
    e->is_awaited = is_written;
    return is_written;
}

/* Reports why the entry can never be added, once. */
static int is_refused(struct watched *e, const char *path, const char *fault,
                      const struct snapshot *added, int *code)
{
    const int is_of_other = added && added->source && strcmp(added->source, e->name) != 0;
    if ((fault || is_of_other) && !e->is_told) {
        e->is_told = 1;
        if (fault) *code = fail(CODE_ERROR, path, "cannot be added: its name %s", fault);
        else
            say(e->name,
                "is not added: the series has %.250s already, made of %.250s; add it under another "
                "name",
                added->name, added->source);
    }
    return fault || is_of_other;
}

static int visit_watched(struct watch *w, struct watched *e, const struct series *s)
{
    char *path = join_path(w->source, e->name), *name = name_of_source(e->name);
    const char *fault = find_fault_of_name(name);
    unsigned unused;
    const struct snapshot *added = fault ? NULL : find_newest_of(s, name, e->name, &unused);
    const int is_removed = w->o->remove_source && added && added->state == STATE_KEPT;
    int code = CODE_OK;
    if (!is_refused(e, path, fault, added, &code)) {
        const struct look k = look_quickly(path);
        const int is_finished = added && added->has_seen && added->seen == k.state && !is_removed;
        if (!is_finished && is_settled(w, e, &k) &&
            !(e->tried > 0 && now() - e->tried < RETRY_AFTER) && !is_left_to_writer(e, path)) {
            code = add_source_to_series(path, name, &w->is_stuck, w->o);
            if (code != CODE_OK) e->tried = now();
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
    release_directory(s.dir); /* and holds the directory */
    *is_fatal = code != CODE_OK;
    w->is_stuck = 0;
    w->n_ahead = 0;
    for (size_t i = 0; i < w->n && !*is_fatal && !w->is_stuck; i++)
        code = worse(code, visit_watched(w, &w->list[i], &s));
    w->stuck_at = w->is_stuck ? now() : 0;
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
    int code = CODE_OK, is_fatal = 0, is_second = 0;
    watching.only_whole = 1;
    w.source = source;
    w.o = o;
    if (stat(source, &st) != 0) return fail_errno(source, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, source, "is not a directory; 'lmc series DIR add' adds a file");
    if (is_same_file(source, o->directory))
        return fail(CODE_ERROR, source, "is the series itself; keep them apart");
    if (o->remove_source && o->verbosity > 0) {
        char *inside = join_path(source, ".");
        say_left_behind(inside);
        free(inside);
    }
    for (;;) {
        struct timespec pause = {(time_t)(o->once ? o->settle : o->interval), 0};
        if (w.stuck_at <= 0 || now() - w.stuck_at >= RETRY_AFTER)
            code = worse(code, watch_once(&w, &is_fatal));
        if (is_fatal || (o->once && (is_second || !w.n_ahead || w.is_stuck))) break;
        if (o->once && o->verbosity > 0)
            say(source,
                "%.250s%s changed at a time that is ahead of the clock; looking again in "
                "%llu seconds",
                w.ahead, w.n_ahead > 1 ? ", and others," : "", (unsigned long long)o->settle);
        is_second = o->once;
        nanosleep(&pause, NULL);
    }
    free_watched(w.list, w.n);
    return code;
}
