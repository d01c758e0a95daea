/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../input/common.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/tree.h"
#include "series_manifest.h"
#include "../../formats/pattern.h"

#define RETRY_AFTER 60.0 /* seconds, for what could not be added and has not changed since */

/* An entry of the directory that is watched. */
struct watched {
    char *name;
    uint64_t digest;
    double since; /* it was so, by the clock of this machine */
    double tried; /* and could not be added; or, told_of: is left there for good; 0: not tried */
    int is_told;
};

struct watch {
    const char *directory, *source;
    const struct series_options *o;
    struct watched *list;
    size_t n;
};

static int compare_watched(const void *a, const void *b)
{
    return compare_names(((const struct watched *)a)->name, ((const struct watched *)b)->name);
}

static void free_watched(struct watched *list, size_t n)
{
    for (size_t i = 0; i < n; i++) free(list[i].name);
    free(list);
}

/* Links are passed over: "latest" is one, as a rule. */
static int is_watched(const struct watch *w, const char *name)
{
    char *path;
    struct stat st, series;
    int result;
    if (name[0] == '.' || has_suffix(name)) return 0;
    if (w->o->match && !match_pattern(w->o->match, strlen(w->o->match), NULL, name)) return 0;
    path = join_path(w->source, name);
    result = lstat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
             !(stat(w->directory, &series) == 0 && same_file(&st, &series)) &&
             !lies_within(w->directory, path);
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
    if (!d) return fail_errno(w->source, errno, "cannot read the directory");
    while ((entry = next_entry(d, &error)) != NULL)
        if (is_watched(w, entry->d_name)) {
            list = (struct watched *)resize(list, n + 1, sizeof *list);
            memset(&list[n], 0, sizeof *list);
            for (size_t i = 0; i < w->n; i++)
                if (strcmp(w->list[i].name, entry->d_name) == 0) list[n] = w->list[i];
            list[n].name = copy_string(entry->d_name, strlen(entry->d_name));
            n++;
        }
    closedir(d);
    free_watched(w->list, w->n);
    w->list = list;
    w->n = n;
    if (n) qsort(list, n, sizeof *list, compare_watched);
    return error ? fail_errno(w->source, error, "cannot read the directory") : CODE_OK;
}

/* Nobody has changed it for the time, as it was seen from here. Who looks only once must believe
 * the file's own times and the clock, of which either may be wrong. */
static int is_settled(const struct watch *w, struct watched *e, const struct look *k)
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
    return k->is_whole && k->n_files && (age >= settle || now() - e->since >= settle);
}

/* What is in the series and does not go has nothing more to be done to it. */
static int is_finished(const struct watch *w, struct watched *e, const struct snapshot *added)
{
    if (!added || (w->o->remove_source && added->state == STATE_KEPT)) return 0;
    if (added->source && strcmp(added->source, e->name) != 0 && !e->is_told) {
        say(e->name,
            "is not added: the series has %.250s already, made of %.250s; add it under another "
            "name",
            added->name, added->source);
        e->is_told = 1;
    }
    return 1;
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
    } else if (!fault && !is_finished(w, e, added)) {
        struct look k = look_at(path);
        if (is_settled(w, e, &k) && !(e->tried > 0 && now() - e->tried < RETRY_AFTER) &&
            !(added && e->is_told)) {
            code = add_source_to_series(w->directory, path, name, 1, w->o);
            if (code != CODE_OK) e->tried = now();
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
    if (code == CODE_OK && exists) code = open_series(&s, w->directory, TO_READ, w->o);
    else init_series(&s, w->directory, w->o);
    if (s.lock_fd >= 0) close(s.lock_fd); /* one lock at a time */
    s.lock_fd = -1;
    *is_fatal = code != CODE_OK;
    for (size_t i = 0; i < w->n && !*is_fatal; i++)
        code = worse(code, visit_watched(w, &w->list[i], &s));
    close_series(&s);
    free(manifest);
    return code;
}

int series_watch(const char *directory, const char *source, const struct series_options *o)
{
    struct watch w;
    struct stat st, series;
    int code = CODE_OK, is_fatal = 0;
    memset(&w, 0, sizeof w);
    w.directory = directory;
    w.source = source;
    w.o = o;
    if (stat(source, &st) != 0) return fail_errno(source, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, source, "is no directory; 'lmc series DIR add' adds a file");
    if (stat(directory, &series) == 0 && same_file(&st, &series))
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
