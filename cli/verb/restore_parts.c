/* SPDX-License-Identifier: MIT */
#include "restore_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/archive.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../input/common.h"
#include "../input/walk.h"
#include "../input/damage.h"
#include "../job/restored_links.h"
#include "../job/restored_tree.h"
#include "../job/restorer.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/made.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"
#include "restore_wanted.h"
#include "../../formats/pattern.h"

/* A file or link that was made where nothing was. */
struct fresh {
    size_t directory; /* its number */
    char *name;
};

struct extraction {
    struct archive archive;
    struct links links;
    struct wanted wanted;
    unsigned char *is_done; /* of each file */
    const char *target;     /* NULL: standard output */
    const struct common *o;
    struct output out; /* if that is standard output */
    unsigned char *window;
    struct made made; /* directories below the target */
    int is_target_fresh;
    struct fresh *fresh; /* in the order of their making */
    size_t n_fresh, room_for_fresh;
    uint64_t n_links;
    uint64_t size;
    size_t n_files;
};

int is_named_snapshot(const char *path)
{
    struct stat st;
    int fd, result, error;
    if (has_suffix(path) || is_dash(path)) return 1;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    result = fd >= 0 && begins_as_snapshot(fd, &error);
    if (fd >= 0) close(fd);
    return result;
}

static void add_fresh(struct extraction *x, const char *name)
{
    x->fresh = (struct fresh *)grow(x->fresh, x->n_fresh, &x->room_for_fresh, sizeof *x->fresh);
    x->fresh[x->n_fresh].directory = x->made.at;
    x->fresh[x->n_fresh++].name = copy_string(name, strlen(name));
}

static int remove_name(struct made *m, const char *name)
{
    int error;
    lock_temporary();
    error = unlinkat(m->fd, name, 0) == 0 || errno == ENOENT ? 0 : errno;
    unlock_temporary();
    return error;
}

/* After an error, so that the same command can be run again: nothing of it exists already. The last
 * is removed first; a directory into which somebody else has put something stays. */
static void remove_fresh(struct extraction *x)
{
    int error = 0, failed;
    for (size_t i = x->n_fresh; i-- > 0;) {
        failed = go_to_made(&x->made, x->fresh[i].directory);
        if (!failed) failed = remove_name(&x->made, x->fresh[i].name);
        if (failed) error = failed;
    }
    failed = remove_made(&x->made);
    if (failed) error = failed;
    if (error < 0) error = ENOENT; /* somebody has moved a directory */
    if (error) (void)fail_errno(x->target, error, "cannot remove all that was restored");
}

static void free_fresh(struct extraction *x)
{
    for (size_t i = 0; i < x->n_fresh; i++) free(x->fresh[i].name);
    free(x->fresh);
}

/* -- directories -- */

static int fail_no_directory(const char *path)
{
    return fail(CODE_ERROR, path,
                "is no directory, so nothing is restored below it; move it away, or name "
                "another directory with -o");
}

/* The target itself may be a link to a directory. */
static int open_target(struct extraction *x)
{
    char *inside;
    int error;
    if (!x->target) return CODE_OK;
    inside = join_path(x->target, ".");
    error = mkdir(x->target, 0777) == 0 ? 0 : errno;
    x->is_target_fresh = !error;
    if (!error || error == EEXIST)
        error = open_made(&x->made, inside, x->made.max_entries, x->made.max_depth);
    free(inside);
    if (error == ENOTDIR) return fail_no_directory(x->target);
    return error ? fail_errno(x->target, error, "cannot make the directory") : CODE_OK;
}

/* On the way to the directory with that number, which the path begins with. None may be a link:
 * what is restored stays below the target, whatever an earlier snapshot has left there. */
static int fail_enter(const struct extraction *x, const char *path, size_t number, int error)
{
    const struct made_directory *const list = x->made.list;
    const char *end = path;
    char *part, *full;
    int code;
    if (error < 0) return fail_made(&x->made, x->target, path, error);
    while (number && list[number].parent != x->made.at) number = list[number].parent;
    for (size_t i = 0; i < list[number].depth; i++) end += (i > 0) + strcspn(end + (i > 0), "/");
    part = copy_string(path, (size_t)(end - path));
    full = join_path(x->target, part);
    code = error == ENOTDIR || error == ELOOP
               ? fail_no_directory(full)
               : fail_errno(full, error, "cannot make the directory");
    free(part);
    free(full);
    return code;
}

/* Directories that are not there get the mode and time of the snapshot, where it tells of them: in
 * the end, and until then nobody else looks into them. */
static void keep_known(struct extraction *x, const char *path, size_t size, size_t number)
{
    struct made_directory *const list = x->made.list;
    char *part = copy_string(path, size);
    for (; number && !list[number].is_there; number = list[number].parent) {
        char *slash = strrchr(part, '/');
        size_t known;
        if (lmc_reader_find_file(x->archive.reader, part, &known) == LMC_OK) {
            list[number].has_attributes = 1;
            list[number].attributes =
                attributes_of_directory(lmc_reader_get_file(x->archive.reader, known));
        }
        if (slash) *slash = 0;
    }
    free(part);
}

/* Goes to the directory that the first `size` bytes of the path name, and makes it. */
static int enter(struct extraction *x, const char *path, size_t size)
{
    size_t number = 0;
    int error = find_made(&x->made, path, size, &number);
    if (!error) {
        keep_known(x, path, size, number);
        error = go_to_made(&x->made, number);
    }
    return error ? fail_enter(x, path, number, error) : CODE_OK;
}

static int enter_parent(struct extraction *x, const char *path)
{
    const char *slash = strrchr(path, '/');
    return enter(x, path, slash ? (size_t)(slash - path) : 0);
}

/* Those that were made, and are still there; and all that was left to be brought to the disk. */
static int finish_target(struct extraction *x)
{
    int error;
    if (x->made.fd < 0) return CODE_OK;
    for (size_t i = 0; i < x->made.n; i++)
        if (!x->made.list[i].is_made) x->made.list[i].has_attributes = 0;
    error = finish_made(&x->made, 0);
    if (!error && is_synced_as_whole(&x->made)) {
        error = go_to_made(&x->made, 0);
        if (!error) error = sync_all(x->made.fd);
    }
    if (error < 0) return fail_made(&x->made, x->target, x->target, error);
    return error ? fail_errno(x->target, error,
                              "cannot set the modes and times of directories, or bring them to "
                              "the disk")
                 : CODE_OK;
}

/* One more file; links are counted for themselves, as where a whole snapshot is restored. */
static int count_file(struct extraction *x, const char *path)
{
    const int error = count_made_file(&x->made);
    return error ? fail_made(&x->made, x->target ? x->target : STANDARD_OUTPUT, path, error)
                 : CODE_OK;
}

/* -- files and links -- */

/* What is at the place of a file or link, in the directory where we are: nothing, or with -f
 * something that may go. full: its path. */
static int clear_place(struct extraction *x, const char *full, int *is_fresh)
{
    const char *name = base_name(full);
    struct stat st;
    int error;
    *is_fresh = fstatat(x->made.fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
    if (*is_fresh) return errno == ENOENT ? CODE_OK : fail_errno(full, errno, "cannot access it");
    if (S_ISDIR(st.st_mode)) return fail(CODE_ERROR, full, "exists already, as a directory");
    if (!x->o->force) return fail(CODE_ERROR, full, "exists already; use -f to overwrite it");
    /* a link is replaced, never written through */
    error = S_ISLNK(st.st_mode) ? remove_name(&x->made, name) : 0;
    return error ? fail_errno(full, error, "cannot remove the link") : CODE_OK;
}

static int copy_file(struct extraction *x, size_t number, struct output *out)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        const size_t size = (size_t)(f->size - at < BUFFER_SIZE ? f->size - at : BUFFER_SIZE);
        const enum lmc_status status = read_counted(&x->archive, number, at, x->window, size);
        int error;
        if (status != LMC_OK) return fail_damage(&x->archive, status, number, at);
        crc = lmc_crc32c(crc, x->window, size);
        error = write_output(out, x->window, size);
        if (error) return fail_output(out, error);
        at += size;
        progress_add(size);
    }
    x->size += f->size;
    x->n_files++;
    return crc == f->crc ? CODE_OK : fail_damage(&x->archive, LMC_ERR_CHECKSUM, number, 0);
}

/* path: where it is restored, below the target */
static int extract_file(struct extraction *x, size_t number, const char *path)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    struct attributes attributes = attributes_of_file(f);
    struct output out;
    char *full;
    int code, is_fresh = 0;
    code = count_file(x, path);
    if (!x->target) return code == CODE_OK ? copy_file(x, number, &x->out) : code;
    full = join_path(x->target, path);
    if (code == CODE_OK) code = enter_parent(x, path);
    if (code == CODE_OK) code = clear_place(x, full, &is_fresh);
    if (code == CODE_OK) code = protect_bases(NULL, full, 0, x->o);
    if (code == CODE_OK) code = open_output(&out, full, &x->archive.st, x->o->force);
    if (code == CODE_OK) {
        /* of what was there before, something is on the disk at any time */
        out.is_synced_later = is_fresh && is_synced_at_end(&x->made, f->size);
        code = copy_file(x, number, &out);
        complete_attributes(&attributes, &x->archive.st);
        if (code == CODE_OK) code = commit_output(&out, &attributes);
        else discard_output(&out);
    }
    if (code == CODE_OK && is_fresh) add_fresh(x, base_name(full));
    free(full);
    return code;
}

static int extract_entry(struct extraction *x, size_t number, const char *path)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    x->is_done[number] = 1;
    if (f->kind != LMC_FILE_DIRECTORY) return extract_file(x, number, path);
    return x->target ? enter(x, path, strlen(path)) : CODE_OK;
}

/* What a link leads to: at its own place, if that was not restored yet, or in that of the link. */
static int extract_led(struct extraction *x, const struct led *l)
{
    const size_t size = strlen(l->real);
    const char *path;
    size_t at = 0, number;
    int code = CODE_OK;
    while (code == CODE_OK && (path = next_file(&x->wanted, l, &at)) != NULL) {
        char *shown;
        if (lmc_reader_find_file(x->archive.reader, path, &number) != LMC_OK ||
            (x->is_done[number] && !x->wanted.is_dereferenced))
            continue;
        shown = path[size] ? join_path(l->shown, path + size + (size && path[size] == '/'))
                           : copy_string(l->shown, strlen(l->shown));
        code = extract_entry(x, number, shown);
        free(shown);
    }
    return code;
}

static int extract_link(struct extraction *x, const struct link *l)
{
    char *full;
    int code, error = 0, is_fresh = 0;
    if (!x->target || l->type != LINK_SYMBOLIC) return CODE_OK;
    if (x->n_links++ >= x->made.max_entries)
        return fail_made(&x->made, x->target, l->path, MADE_TOO_MANY);
    full = join_path(x->target, l->path);
    code = enter_parent(x, l->path);
    if (code == CODE_OK) code = clear_place(x, full, &is_fresh);
    if (code == CODE_OK) code = protect_bases(NULL, full, 0, x->o);
    if (code == CODE_OK) error = remove_name(&x->made, base_name(full));
    if (error) code = fail_errno(full, error, "cannot replace it");
    if (code == CODE_OK && symlinkat(l->target, x->made.fd, base_name(full)) != 0)
        code = fail_errno(full, errno, "cannot make the link");
    if (code == CODE_OK && is_fresh) add_fresh(x, base_name(full));
    x->n_files++;
    free(full);
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

/* Names of one file become so again, as far as they were restored: each is linked to the first. */
static int link_files(struct extraction *x)
{
    const struct links *const l = &x->links;
    const struct link **list =
        (const struct link **)resize(NULL, l->n + 1, sizeof(const struct link *));
    const char *first = NULL;
    size_t n = 0;
    const int root = open(x->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = CODE_OK;
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].type == LINK_HARD && is_restored(x, l->list[i].path))
            list[n++] = &l->list[i];
    if (n) qsort((void *)list, n, sizeof *list, compare_targets);
    for (size_t i = 0; i < n && root >= 0 && code == CODE_OK; i++) {
        struct link to_first = *list[i];
        if (i == 0 || strcmp(list[i - 1]->target, list[i]->target) != 0)
            first = is_restored(x, list[i]->target) ? list[i]->target : list[i]->path;
        to_first.target = (char *)first; /* which is only read */
        if (first != list[i]->path) code = make_hard_link(root, &to_first, x->archive.name);
    }
    if (root >= 0) close(root);
    free((void *)list);
    return code;
}

/* Links are restored, and what they lead to with them: without that they would lead nowhere. */
static void say_links(const struct extraction *x)
{
    const struct wanted *w = &x->wanted;
    char more[64] = "";
    if (x->o->verbosity == 0) return;
    if (w->n_followed > 1)
        snprintf(more, sizeof more, ", one of %llu such links", (unsigned long long)w->n_followed);
    if (w->n_followed && !w->is_dereferenced && x->target)
        say(w->followed->path,
            "is a link to '%.300s', which is restored with it%s; --dereference restores what it "
            "leads to in its place",
            w->followed->target, more);
    *more = 0;
    if (w->n_lost > 1)
        snprintf(more, sizeof more, ", one of %llu such links", (unsigned long long)w->n_lost);
    if (w->n_lost)
        say(w->lost->path, "is a link to '%.300s', which the snapshot does not hold%s",
            w->lost->target, more);
}

/* That each name leads to something, before anything is written. */
static int check_names(struct extraction *x)
{
    struct wanted *w = &x->wanted;
    for (size_t i = 0; i < snapshot_info(x->archive.reader).n_files; i++)
        (void)matches_any(w, lmc_reader_get_file(x->archive.reader, i)->path);
    for (size_t i = 0; i < w->n; i++)
        if (!w->is_used[i]) {
            const char *fault = find_pattern_fault(w->patterns[i], strlen(w->patterns[i]));
            return fail(CODE_ERROR, x->archive.name,
                        "has no file '%.300s'%s%s; 'lmc -l' lists them", w->patterns[i],
                        fault ? ", which is no pattern: " : "", fault ? fault : "");
        }
    return CODE_OK;
}

static int extract_matches(struct extraction *x)
{
    const lmc_reader *reader = x->archive.reader;
    struct wanted *w = &x->wanted;
    const int makes_links = x->target && !w->is_dereferenced;
    int code = check_names(x);
    if (code == CODE_OK && w->is_too_many)
        code = fail_made(&x->made, x->target ? x->target : STANDARD_OUTPUT, NULL, MADE_TOO_MANY);
    if (code == CODE_OK) code = open_target(x);
    for (size_t i = 0; i < snapshot_info(reader).n_files && code == CODE_OK; i++)
        if (matches_any(w, lmc_reader_get_file(reader, i)->path))
            code = extract_entry(x, i, lmc_reader_get_file(reader, i)->path);
    for (size_t i = 0; i < w->n_led && code == CODE_OK; i++) code = extract_led(x, &w->list[i]);
    if (code == CODE_OK && makes_links) code = link_files(x);
    for (size_t i = 0; i < x->links.n && code == CODE_OK; i++) /* last: nothing goes through them */
        if (w->is_taken[i] && makes_links) code = extract_link(x, &x->links.list[i]);
    return code;
}

/* At standard output a link is nothing but what it leads to. */
static int check_named_links(const struct extraction *x)
{
    const struct link *lost = x->target ? NULL : x->wanted.named_lost;
    return lost ? fail(CODE_ERROR, x->archive.name,
                       "'%.300s' is a link to '%.300s', which the snapshot does not hold",
                       lost->path, lost->target)
                : CODE_OK;
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
    return code;
}

int extract_files(const char *path, const char *target, char *const *patterns, size_t n,
                  const struct common *o)
{
    struct extraction x;
    double start = now();
    int code;
    memset(&x, 0, sizeof x);
    x.o = o;
    x.made.fd = -1;
    x.target = target;
    x.window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    code = open_extraction(&x, path);
    if (code == CODE_OK) {
        const size_t n_files = snapshot_info(x.archive.reader).n_files;
        x.is_done = (unsigned char *)resize(NULL, n_files, 1);
        memset(x.is_done, 0, n_files);
        x.made.max_entries = most_files(o);
        x.made.max_depth = (size_t)most_levels(o);
        find_wanted(&x.wanted, patterns, n, &x.links, x.archive.reader,
                    !target || o->links == LINKS_FOLLOW, x.made.max_entries);
        progress_start(x.archive.name, LMC_UNKNOWN_SIZE);
        code = check_named_links(&x);
        if (code == CODE_OK) code = extract_matches(&x);
        if (code != CODE_OK && x.made.fd >= 0) remove_fresh(&x);
        code = worse(code, finish_target(&x));
        if (code != CODE_OK && x.is_target_fresh) (void)rmdir(target); /* as far as it is empty */
        progress_clear();
        if (!target && code == CODE_OK) {
            struct attributes none;
            memset(&none, 0, sizeof none);
            code = commit_output(&x.out, &none);
        } else if (!target) discard_output(&x.out);
        if (code == CODE_OK) say_links(&x);
    }
    if (code == CODE_OK && wants_summary(o))
        say(x.archive.name, "%llu file%s, %llu bytes, %.1f ms", (unsigned long long)x.n_files,
            x.n_files == 1 ? "" : "s", (unsigned long long)x.size, (now() - start) * 1e3);
    free(x.window);
    free(x.is_done);
    free_fresh(&x);
    close_made(&x.made);
    free_wanted(&x.wanted);
    free_links(&x.links);
    close_archive(&x.archive);
    return code;
}
