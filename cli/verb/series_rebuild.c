/* series_rebuild.c - lmc series DIR rebuild
 * SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "series_manifest.h"
#include "../sys/spot.h"

static int take_in_file(struct series *s, const char *file_name)
{
    char *name = copy_string(file_name, strlen(file_name) - strlen(SUFFIX));
    const char *fault = find_fault_of_name(name);
    struct stat st;
    int code = CODE_OK;
    if (fault) {
        code = fail(CODE_ERROR, s->directory, "holds '%.300s', whose name %s; rename it", file_name,
                    fault);
    } else {
        struct snapshot *e = add_entry_to_series(s, name, NULL);
        if (stat_held(e->path, &st) == 0 && !S_ISREG(st.st_mode)) /* opening a pipe would wait */
            code = fail(CODE_ERROR, e->path, "is not a file; move it away");
        else code = read_fingerprint(e->path, e->fingerprint, &e->size, s->o);
        e->time = stat_held(e->path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec : 0;
        look_at_file(e);
    }
    free(name);
    return code;
}

static int take_in_files(struct series *s)
{
    struct listing names;
    const int error = list_names(&names, s->directory);
    int code = error ? fail_errno(s->directory, error, "cannot read the directory") : CODE_OK;
    for (size_t i = 0; i < names.n; i++) {
        const char *const name = names.entries[i].path;
        if (name[0] != '.' && has_suffix(name)) code = worse(code, take_in_file(s, name));
    }
    free_listing(&names);
    if (s->n) qsort(s->list, s->n, sizeof *s->list, compare_numbered);
    forget_order(s);
    return code;
}

/* Gives the old list a second name. It keeps its own name until the new list replaces it. */
static int keep_list(const struct series *s)
{
    static const char list[] = MANIFEST_NAME, old[] = MANIFEST_NAME ".old";
    struct stat st;
    int error = 0;
    if (fstatat(s->dir, list, &st, AT_SYMLINK_NOFOLLOW) != 0) /* a copy that was kept stays */
        return errno == ENOENT ? CODE_OK : fail_errno(s->manifest_path, errno, "cannot access it");
    if (unlinkat(s->dir, old, 0) != 0 && errno != ENOENT) error = errno;
    if (!error && linkat(s->dir, list, s->dir, old, 0) != 0 && errno != ENOENT &&
        renameat(s->dir, list, s->dir, old) != 0) /* no hard links here */
        error = errno;
    return error ? fail_errno(s->manifest_path, error,
                              "cannot keep the old list as " MANIFEST_NAME ".old")
                 : CODE_OK;
}

/* -- what the old list had -- */

/* Copies what only the old list has, for files that are unchanged since they were added. */
static void take_over(struct series *s, struct series *old)
{
    for (size_t i = 0; i < s->n; i++) {
        struct snapshot *e = &s->list[i], *before = find_name(old, e->name);
        if (!before || !same_fingerprint(before->fingerprint, e->fingerprint)) continue;
        e->time = before->time;
        e->seen = before->seen;
        e->has_seen = before->has_seen;
        if (before->source) e->source = copy_text(before->source);
    }
}

/* Adds "; WHAT: a, b, c and 5 more" of the entries that are marked, if there are any. */
static void add_names(char **text, const char *what, const struct series *old,
                      const unsigned char *marks, unsigned mark)
{
    enum { MOST = 3 };
    size_t n = 0;
    for (size_t i = 0; i < old->n; i++)
        if (marks[i] == mark && n++ < MOST)
            append_text(text, "%s%s%.60s", n == 1 ? what : ", ", n == 1 ? ": " : "",
                        old->list[i].name);
    if (n > MOST) append_text(text, " and %llu more", (unsigned long long)(n - MOST));
}

enum { GIVEN_UP = 1, KEPT_AGAIN, NOT_KNOWN, OTHER };

/* old: empty if there was no list, or it could not be read. */
static void say_rebuilt(const struct series *s, const struct series *old, int was_there,
                        int is_read)
{
    char *text = copy_text("");
    unsigned char *marks = (unsigned char *)zeroed(old->n + 1, 1);
    for (size_t i = 0; i < old->n; i++) {
        const struct snapshot *e = &old->list[i], *now = find_name(s, e->name);
        if (now && (e->state == STATE_KEPT || e->state == STATE_FORGOTTEN) &&
            !same_fingerprint(now->fingerprint, e->fingerprint))
            marks[i] = OTHER;
        else if (now) marks[i] = e->state == STATE_FORGOTTEN ? KEPT_AGAIN : 0;
        else if (e->state != STATE_ADDING) /* else it never was a snapshot */
            marks[i] = e->state == STATE_GONE ? NOT_KNOWN : GIVEN_UP;
    }
    add_names(&text, "; given up, for their files are missing", old, marks, GIVEN_UP);
    add_names(&text, "; forgotten before, and kept again", old, marks, KEPT_AGAIN);
    add_names(&text, "; gone, and no longer known to watch", old, marks, NOT_KNOWN);
    add_names(&text, "; other snapshots than before", old, marks, OTHER);
    free(marks);
    if (s->o->verbosity > 0)
        say(s->directory, "the new list has %llu snapshot%s%s%s%s", (unsigned long long)s->n,
            s->n == 1 ? "" : "s", text, was_there ? "; the old one is " MANIFEST_NAME ".old" : "",
            was_there && !is_read ? ", and cannot be read" : "");
    free(text);
}

int series_rebuild(const struct options *o)
{
    struct series s, before;
    int code = open_series(&s, TO_REBUILD, o), is_read = 0, was_there = 0;
    struct stat st;
    if (code == CODE_OK) code = remove_temporaries(&s);
    if (code == CODE_OK) {
        code = take_in_files(&s);
        if (code != CODE_OK)
            say(o->directory, "the list was not made: move away what is not a snapshot, or is "
                              "damaged, then try again");
    }
    was_there = code == CODE_OK &&
                (fstatat(s.dir, MANIFEST_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT);
    init_series(&before, o);
    before.is_replaced = 1;
    is_read = was_there && load_manifest(&before) == CODE_OK;
    if (is_read) take_over(&s, &before);
    if (is_read) s.every = before.every;
    if (o->every) s.every = o->every;
    if (code == CODE_OK) code = keep_list(&s);
    if (code == CODE_OK) code = save_manifest(&s);
    measure_series(&s);
    if (code == CODE_OK) say_rebuilt(&s, &before, was_there, is_read);
    if (code == CODE_OK) code = check_kept(&s, 1, NULL);
    close_series(&before);
    close_series(&s);
    return code;
}
