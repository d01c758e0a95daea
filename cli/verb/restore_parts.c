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
#include "../job/restored_links.h"
#include "../job/restorer.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/tree.h"
#include "restore_wanted.h"

struct extraction {
    struct archive archive;
    struct links links;
    struct wanted wanted;
    unsigned char *is_done; /* of each file */
    const char *target;     /* NULL: standard output */
    const struct common *o;
    struct output out; /* if that is standard output */
    unsigned char *window;
    size_t *made; /* entries of directories that were not there, below the target */
    size_t n_made, room;
    char **fresh; /* paths of what was made where nothing was, in the order of that */
    size_t n_fresh, room_for_fresh;
    uint64_t size;
    size_t n_files;
};

int is_named_snapshot(const char *path)
{
    static const unsigned char magic[8] = {0x83, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
    unsigned char bytes[8];
    struct stat st;
    int fd, result;
    if (has_suffix(path) || is_dash(path)) return 1;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    result = fd >= 0 && read_at(fd, 0, bytes, sizeof bytes) == 0 &&
             memcmp(bytes, magic, sizeof magic) == 0;
    if (fd >= 0) close(fd);
    return result;
}

static void add_fresh(struct extraction *x, const char *full)
{
    if (x->n_fresh == x->room_for_fresh) {
        x->room_for_fresh = x->room_for_fresh * 2 + 16;
        x->fresh = (char **)resize((void *)x->fresh, x->room_for_fresh, sizeof *x->fresh);
    }
    x->fresh[x->n_fresh++] = copy_string(full, strlen(full));
}

/* After an error, so that the same command can be run again: nothing of it exists already. The last
 * is removed first; a directory into which somebody else has put something stays. */
static void remove_fresh(struct extraction *x)
{
    for (size_t i = x->n_fresh; i-- > 0;)
        if (remove(x->fresh[i]) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
            (void)fail_errno(x->fresh[i], errno, "cannot remove it");
}

static void free_fresh(struct extraction *x)
{
    for (size_t i = 0; i < x->n_fresh; i++) free(x->fresh[i]);
    free((void *)x->fresh);
}

/* Its modes and times come in the end: until then nobody else looks into it. 0 or errno. */
static int make_wanted_directory(struct extraction *x, const char *full, const char *path)
{
    size_t number;
    const int is_known = *path && lmc_reader_find_file(x->archive.reader, path, &number) == LMC_OK;
    if (mkdir(full, is_known ? 0700 : 0777) != 0) return errno == EEXIST ? 0 : errno;
    add_fresh(x, full);
    if (!is_known) return 0;
    if (x->n_made == x->room) {
        x->room = x->room * 2 + 16;
        x->made = (size_t *)resize(x->made, x->room, sizeof *x->made);
    }
    x->made[x->n_made++] = number;
    return 0;
}

/* Those below first: a directory may become one that cannot be entered. is_undone: those that are
 * still there. */
static int finish_directories(struct extraction *x, int is_undone)
{
    int code = CODE_OK;
    while (x->n_made) {
        const lmc_file *f = lmc_reader_get_file(x->archive.reader, x->made[--x->n_made]);
        const struct attributes attributes = attributes_of_directory(f);
        char *full = join_path(x->target, f->path);
        const int fd = open(full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        const int error = fd < 0 ? errno : set_attributes(fd, &attributes);
        if (fd >= 0) close(fd);
        if (error && !(is_undone && error == ENOENT))
            code = worse(code, fail_errno(full, error, "cannot set its mode and time"));
        free(full);
    }
    free(x->made);
    return code;
}

/* Makes the directories above path below the target. None may be a link: what is restored stays
 * below the target, whatever an earlier snapshot has left there. */
static int make_safe_parents(struct extraction *x, const char *path)
{
    char *full = join_path(x->target, path);
    const size_t root = strlen(x->target);
    int code = CODE_OK;
    for (char *slash = strchr(full + root, '/'); slash && code == CODE_OK;
         slash = strchr(slash + 1, '/')) {
        struct stat st;
        int error;
        *slash = 0;
        error = make_wanted_directory(x, full, full + root + strspn(full + root, "/"));
        if (error) code = fail_errno(full, error, "cannot make the directory");
        else if (slash > full + root ? lstat(full, &st) != 0 : stat(full, &st) != 0)
            code = fail_errno(full, errno, "cannot access it");
        else if (!S_ISDIR(st.st_mode))
            code = fail(CODE_ERROR, full,
                        "is no directory, so nothing is restored below it; move it away, or name "
                        "another directory with -o");
        *slash = '/';
    }
    free(full);
    return code;
}

/* What is at the place of a file or link: nothing, or with -f something that may go. */
static int clear_place(const char *full, int *is_fresh, const struct common *o)
{
    struct stat st;
    *is_fresh = lstat(full, &st) != 0;
    if (*is_fresh) return errno == ENOENT ? CODE_OK : fail_errno(full, errno, "cannot access it");
    if (S_ISDIR(st.st_mode)) return fail(CODE_ERROR, full, "exists already, as a directory");
    if (!o->force) return fail(CODE_ERROR, full, "exists already; use -f to overwrite it");
    /* a link is replaced, never written through */
    if (S_ISLNK(st.st_mode) && unlink(full) != 0)
        return fail_errno(full, errno, "cannot remove the link");
    return CODE_OK;
}

static int fail_file(const struct extraction *x, const lmc_file *f, enum lmc_status status)
{
    char where[320];
    snprintf(where, sizeof where, " (in '%.300s')", f->path);
    return fail_archive_at(&x->archive, status, where);
}

static int copy_file(struct extraction *x, size_t number, struct output *out)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        const size_t size = (size_t)(f->size - at < BUFFER_SIZE ? f->size - at : BUFFER_SIZE);
        const enum lmc_status status =
            lmc_reader_read_file(x->archive.reader, number, at, x->window, size);
        int error;
        if (status != LMC_OK) return fail_file(x, f, status);
        crc = lmc_crc32c(crc, x->window, size);
        error = write_output(out, x->window, size);
        if (error) return fail_output(out, error);
        at += size;
        progress_add(size);
    }
    x->size += f->size;
    x->n_files++;
    return crc == f->crc ? CODE_OK : fail_file(x, f, LMC_ERR_CHECKSUM);
}

/* path: where it is restored, below the target */
static int extract_file(struct extraction *x, size_t number, const char *path)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    struct attributes attributes = attributes_of_file(f);
    struct output out;
    char *full;
    int code, is_fresh = 0;
    if (!x->target) return copy_file(x, number, &x->out);
    full = join_path(x->target, path);
    code = make_safe_parents(x, path);
    if (code == CODE_OK) code = clear_place(full, &is_fresh, x->o);
    if (code == CODE_OK) code = protect_bases(NULL, full, 0, x->o);
    if (code == CODE_OK) code = open_output(&out, full, &x->archive.st, x->o->force);
    if (code == CODE_OK) {
        code = copy_file(x, number, &out);
        complete_attributes(&attributes, &x->archive.st);
        if (code == CODE_OK) code = commit_output(&out, &attributes);
        else discard_output(&out);
    }
    if (code == CODE_OK && is_fresh) add_fresh(x, full);
    free(full);
    return code;
}

static int extract_directory(struct extraction *x, const char *path)
{
    char *below;
    int code;
    if (!x->target || *path == 0) return CODE_OK;
    below = join_path(path, "x");
    code = make_safe_parents(x, below);
    free(below);
    return code;
}

static int extract_entry(struct extraction *x, size_t number, const char *path)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    x->is_done[number] = 1;
    return f->kind == LMC_FILE_DIRECTORY ? extract_directory(x, path)
                                         : extract_file(x, number, path);
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
    int code, is_fresh = 0;
    if (!x->target || l->type != LINK_SYMBOLIC) return CODE_OK;
    full = join_path(x->target, l->path);
    code = make_safe_parents(x, l->path);
    if (code == CODE_OK) code = clear_place(full, &is_fresh, x->o);
    if (code == CODE_OK) code = protect_bases(NULL, full, 0, x->o);
    if (code == CODE_OK && unlink(full) != 0 && errno != ENOENT)
        code = fail_errno(full, errno, "cannot replace it");
    if (code == CODE_OK && symlink(l->target, full) != 0)
        code = fail_errno(full, errno, "cannot make the link");
    if (code == CODE_OK && is_fresh) add_fresh(x, full);
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
        if (!w->is_used[i])
            return fail(CODE_ERROR, x->archive.name, "has no file '%.300s'; 'lmc -l' lists them",
                        w->patterns[i]);
    return CODE_OK;
}

static int extract_matches(struct extraction *x)
{
    const lmc_reader *reader = x->archive.reader;
    struct wanted *w = &x->wanted;
    const int makes_links = x->target && !w->is_dereferenced;
    int code = check_names(x);
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
    x.target = target;
    x.window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    code = open_extraction(&x, path);
    if (code == CODE_OK) {
        const size_t n_files = snapshot_info(x.archive.reader).n_files;
        x.is_done = (unsigned char *)resize(NULL, n_files, 1);
        memset(x.is_done, 0, n_files);
        find_wanted(&x.wanted, patterns, n, &x.links, x.archive.reader,
                    !target || o->links == LINKS_FOLLOW);
        progress_start(x.archive.name, LMC_UNKNOWN_SIZE);
        code = check_named_links(&x);
        if (code == CODE_OK) code = extract_matches(&x);
        if (code != CODE_OK) remove_fresh(&x);
        if (target) code = worse(code, finish_directories(&x, code != CODE_OK));
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
    free_wanted(&x.wanted);
    free_links(&x.links);
    close_archive(&x.archive);
    return code;
}
