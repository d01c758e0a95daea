/* restore_parts.c - lmc -d DIR.lmc PATH...: some files of a directory
 * SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "../input/base.h"
#include "../input/links.h"
#include "../input/archive.h"
#include "../input/reread.h"
#include "../job/restored_tree.h"
#include "../sys/output.h"
#include "../../formats/pattern.h"

/* -- which files are wanted: by name, by pattern, or by a link -- */

/* What a link leads to: `real`, a path in the snapshot, and `shown`, where it is restored to. */
struct led {
    char *real, *shown;
};

struct wanted {
    char *const *patterns; /* the user's */
    size_t n;
    const struct links *links;
    int is_dereferenced;     /* what links lead to is restored in their place */
    unsigned char *is_used;  /* of each pattern: it has matched something */
    unsigned char *is_taken; /* of each link: it is wanted */
    struct led *list;        /* sorted by `real` */
    size_t n_led, cap;
    const char **files; /* the paths of all files of the snapshot, sorted */
    size_t n_files;
    size_t n_followed, n_lost;          /* links to what the snapshot holds; other links */
    uint64_t most;                      /* limit for both together */
    int is_too_many;                    /* over the limit: the list is not complete */
    const struct link *followed, *lost; /* the first of each */
    const struct link *named_lost;      /* of the lost ones, the first that a pattern names */
};

/* -- patterns -- */

/* pattern: the path, a directory above it, or a pattern, in which '*' matches '/', too. */
static int matches(const char *pattern, const char *path)
{
    while (strncmp(pattern, "./", 2) == 0) pattern += 2;
    size_t size = strlen(pattern);
    while (size > 1 && pattern[size - 1] == '/') size--;
    if (strncmp(pattern, path, size) == 0 && (path[size] == 0 || path[size] == '/')) return 1;
    return match_pattern(pattern, strlen(pattern), NULL, path);
}

/* Whether a pattern matches the path; marks the pattern as used. */
static int matches_any(struct wanted *w, const char *path)
{
    int result = 0;
    for (size_t i = 0; i < w->n; i++)
        if (matches(w->patterns[i], path)) result = w->is_used[i] = 1;
    return result;
}

/* -- what is there -- */

static int compare_listed(const void *a, const void *b)
{
    return compare_paths(*(const char *const *)a, *(const char *const *)b);
}

/* The next file at that path or below it; NULL: no more. *at must be 0 for the first call. */
static const char *next_file(const struct wanted *w, const char *path, size_t *at)
{
    const size_t size = strlen(path);
    if (*at == 0) {
        FIND_FIRST(*at, w->n_files, compare_paths(w->files[*at], path) < 0);
        ++*at;
    }
    const char *file = *at <= w->n_files ? w->files[*at - 1] : NULL;
    if (!file || strncmp(file, path, size) != 0 || (size && file[size] && file[size] != '/'))
        return NULL;
    ++*at;
    return file;
}

/* Whether there is a file or directory of that path, or something below it. */
static int is_there(const struct wanted *w, const char *path)
{
    size_t at = 0;
    return *path == 0 || next_file(w, path, &at);
}

static int is_file(const struct wanted *w, const char *path)
{
    size_t at = 0;
    const char *first = next_file(w, path, &at);
    return first && strcmp(first, path) == 0 && !next_file(w, path, &at);
}

/* -- links -- */

static void add_led(struct wanted *w, const char *real, const char *shown)
{
    struct led *const l = (struct led *)append(&w->list, &w->n_led, &w->cap, sizeof *l);
    l->real = copy_text(real);
    l->shown = copy_text(shown);
}

/* Until the list is sorted, it may hold a file twice: found by its name and by a link. So its limit
 * is higher by this number than that of restored files, which are counted once each. */
#define FOUND_TWICE 65536u

/* Follows the links on the path, and marks them as wanted. Returns 1 if they lead to what the
 * snapshot holds; 0 if they do not, or there is no link. shown: the links must lead to a file,
 * which is restored to this path; NULL: to a file or directory, restored where the options say. */
static int follow(struct wanted *w, const char *path, const char *shown)
{
    const struct link *first;
    int result = 0;
    if ((uint64_t)w->n_followed + w->n_lost >= w->most) w->is_too_many = 1;
    if (w->is_too_many) return 0;
    char *at = resolve_links(w->links, path, &first, w->is_taken);
    if (first && at && (shown ? is_file(w, at) : is_there(w, at))) {
        char *plain = copy_text(path); /* it may be "./latest/" */
        (void)make_plain(plain);
        add_led(w, at, shown ? shown : w->is_dereferenced ? plain : at);
        free(plain);
        if (w->n_followed++ == 0) w->followed = first;
        result = 1;
    } else if (first && w->n_lost++ == 0) w->lost = first;
    free(at);
    return result;
}

static int compare_led(const void *a, const void *b)
{
    const struct led *x = (const struct led *)a, *y = (const struct led *)b;
    const int order = strcmp(x->real, y->real);
    return order ? order : strcmp(x->shown, y->shown);
}

/* Sorts the list, and removes what is in it twice. */
static void sort_led(struct wanted *w)
{
    size_t n = 0;
    if (w->n_led) qsort(w->list, w->n_led, sizeof *w->list, compare_led);
    for (size_t i = 0; i < w->n_led; i++)
        if (n && compare_led(&w->list[n - 1], &w->list[i]) == 0) {
            free(w->list[i].real);
            free(w->list[i].shown);
        } else w->list[n++] = w->list[i];
    w->n_led = n;
}

/* Follows the links below a directory that a link leads to: they are wanted, too. Such a link is
 * replaced only by a file, never by a directory, which may hold a link that leads back to it. */
static void follow_below(struct wanted *w, const char *directory, const char *shown)
{
    const size_t size = strlen(directory);
    size_t i;
    FIND_FIRST(i, w->links->n, strcmp(w->links->list[i].path, directory) < 0);
    for (; i < w->links->n && !w->is_too_many &&
           strncmp(w->links->list[i].path, directory, size) == 0;
         i++) {
        const struct link *l = &w->links->list[i];
        char *path;
        if (l->type != LINK_SYMBOLIC || (size && l->path[size] != '/')) continue;
        if (!w->is_dereferenced && !w->is_taken[i]) (void)follow(w, l->path, NULL);
        if (!w->is_dereferenced) continue;
        path = join_path(shown, l->path + size + (size != 0));
        (void)follow(w, l->path, path);
        free(path);
    }
}

/* Finds the links that the patterns match, what they lead to, and the links there. most: limit of
 * restored files, as a thousand links to a directory of a thousand files lead to a million. */
static void find_wanted(struct wanted *w, char *const *patterns, size_t n,
                        const struct links *links, const lmc_reader *reader, int is_dereferenced,
                        uint64_t most)
{
    lmc_snapshot_info info;
    memset(w, 0, sizeof *w);
    w->patterns = patterns;
    w->n = n;
    w->links = links;
    w->is_dereferenced = is_dereferenced;
    w->most = most < UINT64_MAX / 2 ? most + FOUND_TWICE : UINT64_MAX;
    w->is_used = (unsigned char *)zeroed(n + 1, 1);
    w->is_taken = (unsigned char *)zeroed(links->n + 1, 1);
    if (links->n == 0 || lmc_reader_get_info(reader, &info) != LMC_OK) return;
    w->n_files = info.n_files;
    w->files = (const char **)resize(NULL, w->n_files + 1, sizeof *w->files);
    for (size_t i = 0; i < w->n_files; i++) w->files[i] = lmc_reader_get_file(reader, i)->path;
    qsort((void *)w->files, w->n_files, sizeof *w->files, compare_listed);
    for (size_t i = 0; i < n; i++) /* "latest/config.json", where latest is a link */
        if (follow(w, patterns[i], NULL)) w->is_used[i] = 1;
    w->named_lost = w->lost;
    for (size_t i = 0; i < links->n; i++)
        if (links->list[i].type == LINK_SYMBOLIC && matches_any(w, links->list[i].path)) {
            if (!w->is_taken[i]) (void)follow(w, links->list[i].path, NULL);
            w->is_taken[i] = 1;
        }
    n = w->n_led; /* dereferenced: one level only; else the list grows meanwhile */
    for (size_t i = 0; i < (is_dereferenced ? n : w->n_led); i++) {
        const struct led l = w->list[i]; /* a copy: the list may be reallocated */
        follow_below(w, l.real, l.shown);
    }
    sort_led(w);
}

static void free_wanted(struct wanted *w)
{
    for (size_t i = 0; i < w->n_led; i++) {
        free(w->list[i].real);
        free(w->list[i].shown);
    }
    free(w->list);
    free((void *)w->files);
    free(w->is_used);
    free(w->is_taken);
}

/* -- restoring them -- */

struct extraction {
    struct archive archive;
    struct links links;
    struct wanted wanted;
    unsigned char *is_done;    /* of each file */
    const char *target;        /* NULL: standard output */
    struct restored_tree tree; /* below the target */
    struct links made;         /* the links in it */
    const struct options *o;
    struct output out; /* if it is standard output */
    struct outlet *outlet;
    unsigned char *window;
    uint64_t n_files, size;
};

/* Makes the directory that a part is in, after checking that nothing is in the way. New directories
 * get mode and time from the snapshot, if it lists them. */
static int enter_parent(struct extraction *x, const char *path, int is_directory)
{
    struct made *const m = &x->tree.made;
    size_t number = 0, at;
    char *part = copy_text(path), *slash = strrchr(part, '/');
    int code = x->tree.root ? CODE_OK : begin_parts(&x->tree, &x->archive.st, path), error = 0;
    if (code == CODE_OK) code = check_part(&x->tree, path, is_directory);
    *(slash ? slash : part) = 0;
    if (code == CODE_OK) error = find_made(m, part, strlen(part), &number);
    at = number;
    for (; !error && number && !m->list[number].is_there; number = m->list[number].parent) {
        size_t known;
        if (lmc_reader_find_file(x->archive.reader, part, &known) == LMC_OK) {
            m->list[number].has_attributes = 1;
            m->list[number].attributes =
                attributes_of_directory(lmc_reader_get_file(x->archive.reader, known));
        }
        slash = strrchr(part, '/');
        if (slash) *slash = 0;
    }
    free(part);
    if (code == CODE_OK && !error) error = go_to_made(m, at);
    return error ? fail_made(m, x->target, path, error) : code;
}

static int copy_file(struct extraction *x, size_t number)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    const int code = copy_counted(&x->archive, number, x->window, x->outlet, 1);
    if (x->outlet->error)
        return x->target ? fail_errno(f->path, x->outlet->error, "cannot write it")
                         : fail_output(&x->out, x->outlet->error);
    x->size += f->size;
    x->n_files++;
    return code;
}

/* path: where the entry is restored to, below the target */
static int extract_entry(struct extraction *x, size_t number, const char *path)
{
    lmc_file f = *lmc_reader_get_file(x->archive.reader, number);
    int code = CODE_OK;
    x->is_done[number] = 1;
    f.path = path;
    if (!x->target) {
        if (f.kind == LMC_FILE_DIRECTORY) return CODE_OK;
        if (x->n_files >= most_files(x->o))
            code = fail_made(&x->tree.made, STANDARD_OUTPUT, path, MADE_TOO_MANY);
        return code == CODE_OK ? copy_file(x, number) : code;
    }
    code = enter_parent(x, path, f.kind == LMC_FILE_DIRECTORY);
    if (code == CODE_OK) code = begin_tree_file(&x->tree, &f);
    if (code == CODE_OK && f.kind != LMC_FILE_DIRECTORY) code = copy_file(x, number);
    return code == CODE_OK ? end_tree_file(&x->tree, &f) : code;
}

/* Whether the path was restored already: "latest" and "latest/config.json" may both be named. */
static int is_made(const struct extraction *x, const char *path)
{
    struct stat st;
    return x->tree.root && look_below(x->tree.root_fd, path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Restores what a link leads to, unless it is there already: at its own path, or at the link's. */
static int extract_led(struct extraction *x, const struct led *l)
{
    const size_t size = strlen(l->real);
    const char *path;
    size_t at = 0, number;
    int code = CODE_OK;
    while (code == CODE_OK && (path = next_file(&x->wanted, l->real, &at)) != NULL) {
        char *shown;
        if (lmc_reader_find_file(x->archive.reader, path, &number) != LMC_OK ||
            (x->is_done[number] && !x->wanted.is_dereferenced))
            continue;
        shown = path[size] ? join_path(l->shown, path + size + (size && path[size] == '/'))
                           : copy_text(l->shown);
        if (!is_made(x, shown)) code = extract_entry(x, number, shown);
        free(shown);
    }
    return code;
}

static int compare_targets(const void *a, const void *b)
{
    const struct link *x = *(const struct link *const *)a, *y = *(const struct link *const *)b;
    const int order = strcmp(x->target, y->target);
    return order ? order : strcmp(x->path, y->path);
}

static int is_restored(const struct extraction *x, const char *path)
{
    size_t number;
    return lmc_reader_find_file(x->archive.reader, path, &number) == LMC_OK && x->is_done[number];
}

/* Makes the wanted symbolic links. Also makes hard links: restored files that were names of one
 * file become one file again. */
static int make_wanted_links(struct extraction *x)
{
    const struct links *const l = &x->links;
    const struct link **list =
        (const struct link **)resize(NULL, l->n + 1, sizeof(const struct link *));
    const char *first = NULL;
    size_t n = 0;
    int code = CODE_OK;
    for (size_t i = 0; i < l->n && code == CODE_OK; i++)
        if (l->list[i].type == LINK_HARD && is_restored(x, l->list[i].path))
            list[n++] = &l->list[i];
        else if (l->list[i].type == LINK_SYMBOLIC && x->wanted.is_taken[i]) {
            add_link_record(&x->made, LINK_SYMBOLIC, l->list[i].path, l->list[i].target);
            code = enter_parent(x, l->list[i].path, 0);
            x->n_files++;
        }
    if (code == CODE_OK) code = check_links_of_tree(&x->made, x->archive.name, x->o);
    if (n) qsort((void *)list, n, sizeof *list, compare_targets);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(list[i - 1]->target, list[i]->target) != 0)
            first = is_restored(x, list[i]->target) ? list[i]->target : list[i]->path;
        if (first != list[i]->path) add_link_record(&x->made, LINK_HARD, list[i]->path, first);
    }
    free((void *)list);
    return code == CODE_OK && x->made.n ? make_links(x->tree.root_fd, &x->made, x->archive.name)
                                        : code;
}

static void say_link(const struct link *l, size_t n, const char *what, const char *more)
{
    char others[64] = "";
    if (n > 1) snprintf(others, sizeof others, ", one of %llu such links", (unsigned long long)n);
    if (n) say(l->path, "is a link to '%.300s', which %s%s%s", l->target, what, others, more);
}

/* Reports links that were restored with what they lead to, and links that lead to nothing. */
static void say_links(const struct extraction *x)
{
    const struct wanted *w = &x->wanted;
    if (x->o->verbosity == 0) return;
    if (!w->is_dereferenced && x->target)
        say_link(w->followed, w->n_followed, "is restored with it",
                 "; --dereference restores what it leads to in its place");
    say_link(w->lost, w->n_lost, "the snapshot does not hold", "");
}

/* Checks, before anything is written, that each name matches something. */
static int check_names(struct extraction *x)
{
    struct wanted *w = &x->wanted;
    if (!x->target && w->named_lost) /* standard output gets a link's file instead of the link */
        return fail(CODE_ERROR, x->archive.name,
                    "'%.300s' is a link to '%.300s', which the snapshot does not hold",
                    w->named_lost->path, w->named_lost->target);
    for (size_t i = 0; i < snapshot_info(x->archive.reader).n_files; i++)
        (void)matches_any(w, lmc_reader_get_file(x->archive.reader, i)->path);
    for (size_t i = 0; i < w->n; i++)
        if (!w->is_used[i]) {
            const char *fault = find_pattern_fault(w->patterns[i], strlen(w->patterns[i]));
            return fail(CODE_ERROR, x->archive.name,
                        "has no file '%.300s'%s%s; 'lmc -l' lists them", w->patterns[i],
                        fault ? ", which is not a pattern: " : "", fault ? fault : "");
        }
    return CODE_OK;
}

static int extract_matches(struct extraction *x)
{
    const lmc_reader *reader = x->archive.reader;
    struct wanted *w = &x->wanted;
    int code = check_names(x);
    if (code == CODE_OK && w->is_too_many)
        code =
            fail_made(&x->tree.made, x->target ? x->target : STANDARD_OUTPUT, NULL, MADE_TOO_MANY);
    for (size_t i = 0; i < snapshot_info(reader).n_files && code == CODE_OK; i++)
        if (matches_any(w, lmc_reader_get_file(reader, i)->path))
            code = extract_entry(x, i, lmc_reader_get_file(reader, i)->path);
    for (size_t i = 0; i < w->n_led && code == CODE_OK; i++) code = extract_led(x, &w->list[i]);
    if (code == CODE_OK && x->target && !w->is_dereferenced) code = make_wanted_links(x);
    if (code == CODE_OK && x->tree.root) return commit_parts(&x->tree);
    if (x->tree.root) remove_temporary();
    return code;
}

static int open_extraction(struct extraction *x, const char *path)
{
    const lmc_base *base;
    int code = open_archive_file(&x->archive, path, x->o);
    if (code == CODE_OK) code = find_base_of_archive(&x->archive, &base, x->o);
    if (code == CODE_OK) code = read_archive_index(&x->archive, base);
    if (code == CODE_OK && !is_tree_of_files(x->archive.reader))
        code = fail(CODE_ERROR, x->archive.name,
                    "holds one file and no directory, so there is nothing to choose from");
    if (code == CODE_OK && read_links(&x->links, x->archive.reader) != 0)
        code = fail_bad_links(x->archive.name);
    if (code == CODE_OK && !x->target) code = open_output(&x->out, NULL, NULL, x->o->force);
    x->outlet = x->target ? &x->tree.outlet : &x->out.outlet;
    return code;
}

int restore_parts(const struct options *o)
{
    struct extraction x = {0};
    double start = now();
    int code;
    char *const target = name_target(o->names[0], 1, o, &code);
    if (code != CODE_OK) return code;
    x.o = o;
    x.target = target;
    init_tree(&x.tree, target, o);
    x.tree.made.max_entries = most_files(o);
    x.window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    code = open_extraction(&x, o->names[0]);
    if (code == CODE_OK) {
        const size_t n_files = snapshot_info(x.archive.reader).n_files;
        x.is_done = (unsigned char *)zeroed(n_files, 1);
        find_wanted(&x.wanted, o->names + 1, o->n_parts, &x.links, x.archive.reader,
                    !target || o->links == LINKS_FOLLOW, most_files(o));
        progress_start(x.archive.name, LMC_UNKNOWN_SIZE);
        code = extract_matches(&x);
        progress_clear();
        if (!target && code == CODE_OK) code = commit_output(&x.out, NULL);
        else if (!target) discard_output(&x.out);
        if (code == CODE_OK) say_links(&x);
    }
    if (code == CODE_OK && wants_summary(o))
        say(x.archive.name, "%llu file%s, %llu bytes, %.1f ms", (unsigned long long)x.n_files,
            x.n_files == 1 ? "" : "s", (unsigned long long)x.size, (now() - start) * 1e3);
    free(x.window);
    free(x.is_done);
    free_tree(&x.tree);
    free_links(&x.made);
    free_wanted(&x.wanted);
    free_links(&x.links);
    close_archive(&x.archive);
    free(target);
    return code;
}
