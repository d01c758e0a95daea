/* SPDX-License-Identifier: MIT */
#include "restore_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/archive.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../job/restorer.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/report.h"

struct extraction {
    struct archive archive;
    struct links links;
    const char *target; /* NULL: standard output */
    const struct common *o;
    struct output out; /* if that is standard output */
    unsigned char *window;
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

/* A path, a pattern ('*' matches '/', too), or a directory above it. */
static int matches(const char *pattern, const char *path)
{
    size_t size;
    while (strncmp(pattern, "./", 2) == 0) pattern += 2;
    size = strlen(pattern);
    while (size > 1 && pattern[size - 1] == '/') size--;
    if (strncmp(pattern, path, size) == 0 && (path[size] == 0 || path[size] == '/')) return 1;
    return fnmatch(pattern, path, 0) == 0;
}

/* Which of the patterns match, to is_used; whether any does. */
static int matches_any(char *const *patterns, size_t n, const char *path, unsigned char *is_used)
{
    int result = 0;
    for (size_t i = 0; i < n; i++)
        if (matches(patterns[i], path)) result = is_used[i] = 1;
    return result;
}

/* Makes the directories above path below the target. None may be a link: what is restored stays
 * below the target, whatever an earlier snapshot has left there. */
static int make_safe_parents(const struct extraction *x, const char *path)
{
    char *full = join_path(x->target, path);
    const size_t root = strlen(x->target);
    int code = CODE_OK;
    for (char *slash = strchr(full + root, '/'); slash && code == CODE_OK;
         slash = strchr(slash + 1, '/')) {
        struct stat st;
        *slash = 0;
        if (mkdir(full, 0777) != 0 && errno != EEXIST)
            code = fail_errno(full, errno, "cannot make the directory");
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
static int clear_place(const char *full, const struct common *o)
{
    struct stat st;
    if (lstat(full, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(full, errno, "cannot access it");
    if (S_ISDIR(st.st_mode)) return fail(CODE_ERROR, full, "exists already, as a directory");
    if (!o->force) return fail(CODE_ERROR, full, "exists already; use -f to overwrite it");
    /* a link is replaced, never written through */
    if (S_ISLNK(st.st_mode) && unlink(full) != 0)
        return fail_errno(full, errno, "cannot remove the link");
    return CODE_OK;
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
        if (status != LMC_OK) return fail_archive(&x->archive, status);
        crc = lmc_crc32c(crc, x->window, size);
        error = write_output(out, x->window, size);
        if (error) return fail_output(out, error);
        at += size;
        progress_add(size);
    }
    x->size += f->size;
    x->n_files++;
    return crc == f->crc ? CODE_OK : fail_archive(&x->archive, LMC_ERR_CHECKSUM);
}

static int extract_file(struct extraction *x, size_t number)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    struct attributes attributes = attributes_of_file(f);
    struct output out;
    char *full;
    int code;
    if (!x->target) return copy_file(x, number, &x->out);
    full = join_path(x->target, f->path);
    code = make_safe_parents(x, f->path);
    if (code == CODE_OK) code = clear_place(full, x->o);
    if (code == CODE_OK) code = protect_bases(NULL, full, 0, x->o);
    if (code == CODE_OK) code = open_output(&out, full, &x->archive.st, x->o->force);
    if (code == CODE_OK) {
        code = copy_file(x, number, &out);
        complete_attributes(&attributes, &x->archive.st);
        if (code == CODE_OK) code = commit_output(&out, &attributes);
        else discard_output(&out);
    }
    free(full);
    return code;
}

static int extract_directory(struct extraction *x, const lmc_file *f)
{
    char *below;
    int code;
    if (!x->target) return CODE_OK;
    below = join_path(f->path, "x");
    code = make_safe_parents(x, below);
    free(below);
    return code;
}

static int extract_link(struct extraction *x, const struct link *l)
{
    char *full;
    int code;
    if (!x->target || l->type != LINK_SYMBOLIC) return CODE_OK;
    full = join_path(x->target, l->path);
    code = make_safe_parents(x, l->path);
    if (code == CODE_OK) code = clear_place(full, x->o);
    if (code == CODE_OK && unlink(full) != 0 && errno != ENOENT)
        code = fail_errno(full, errno, "cannot replace it");
    if (code == CODE_OK && symlink(l->target, full) != 0)
        code = fail_errno(full, errno, "cannot make the link");
    x->n_files++;
    free(full);
    return code;
}

/* Where a path of the snapshot leads if it is a link within it: to standard output goes what that
 * names, as "cat" shows it. NULL: out of the snapshot. To be freed. */
static char *resolve_in_snapshot(const struct extraction *x, const char *path)
{
    char *at = copy_string(path, strlen(path));
    for (int n = 0; n < 40; n++) {
        const struct link *l = find_link_record(&x->links, at);
        char *directory, *joined, *to;
        if (!l || l->type != LINK_SYMBOLIC) return at;
        if (*l->target == '/') break;
        directory = strchr(at, '/') ? directory_of(at) : copy_string("", 0);
        joined = *directory ? join_path(directory, l->target)
                            : copy_string(l->target, strlen(l->target));
        free(directory);
        free(at);
        at = to = joined;
        for (const char *part = joined; part;) { /* "a/../b" and "./b" are b */
            const size_t size = strcspn(part, "/");
            const char *next = part[size] ? part + size + 1 : NULL;
            if (size == 2 && part[0] == '.' && part[1] == '.') {
                if (to == joined) {
                    free(joined);
                    return NULL;
                }
                for (to--; to > joined && to[-1] != '/';) to--;
            } else if (size && !(size == 1 && part[0] == '.')) {
                memmove(to, part, size);
                to[size] = '/';
                to += size + 1;
            }
            part = next;
        }
        if (to > joined) to--;
        *to = 0;
    }
    free(at);
    return NULL;
}

static int has_path(const struct extraction *x, const char *path)
{
    for (size_t i = 0; i < snapshot_info(x->archive.reader).n_files; i++)
        if (strcmp(lmc_reader_get_file(x->archive.reader, i)->path, path) == 0) return 1;
    return 0;
}

static int extract_matches(struct extraction *x, char *const *patterns, size_t n,
                           unsigned char *is_used)
{
    const lmc_reader *reader = x->archive.reader;
    int code = CODE_OK;
    for (size_t i = 0; i < snapshot_info(reader).n_files && code == CODE_OK; i++) {
        const lmc_file *f = lmc_reader_get_file(reader, i);
        if (!matches_any(patterns, n, f->path, is_used)) continue;
        code = f->kind == LMC_FILE_DIRECTORY ? extract_directory(x, f) : extract_file(x, i);
    }
    for (size_t i = 0; i < x->links.n && code == CODE_OK; i++) /* last: nothing goes through them */
        if (matches_any(patterns, n, x->links.list[i].path, is_used))
            code = extract_link(x, &x->links.list[i]);
    for (size_t i = 0; i < n && code == CODE_OK; i++)
        if (!is_used[i])
            code = fail(CODE_ERROR, x->archive.name, "has no file '%.300s'; 'lmc -l' lists them",
                        patterns[i]);
    return code;
}

/* The patterns, with links resolved where bytes are wanted. To be freed, one by one. */
static char **resolve_patterns(const struct extraction *x, char *const *patterns, size_t n)
{
    char **list = (char **)resize(NULL, n, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char *resolved = x->target ? NULL : resolve_in_snapshot(x, patterns[i]);
        if (resolved && !has_path(x, resolved)) {
            free(resolved);
            resolved = NULL;
        }
        list[i] = resolved ? resolved : copy_string(patterns[i], strlen(patterns[i]));
    }
    return list;
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
    unsigned char *is_used = (unsigned char *)resize(NULL, n, 1);
    char **resolved = NULL;
    double start = now();
    int code;
    memset(&x, 0, sizeof x);
    memset(is_used, 0, n);
    x.o = o;
    x.target = target;
    x.window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    code = open_extraction(&x, path);
    if (code == CODE_OK) {
        resolved = resolve_patterns(&x, patterns, n);
        progress_start(x.archive.name, LMC_UNKNOWN_SIZE);
        code = extract_matches(&x, resolved, n, is_used);
        progress_clear();
        if (!target && code == CODE_OK) {
            struct attributes none;
            memset(&none, 0, sizeof none);
            code = commit_output(&x.out, &none);
        } else if (!target) discard_output(&x.out);
    }
    if (code == CODE_OK && wants_summary(o))
        say(x.archive.name, "%llu file%s, %llu bytes, %.1f ms", (unsigned long long)x.n_files,
            x.n_files == 1 ? "" : "s", (unsigned long long)x.size, (now() - start) * 1e3);
    for (size_t i = 0; resolved && i < n; i++) free(resolved[i]);
    free((void *)resolved);
    free(x.window);
    free(is_used);
    free_links(&x.links);
    close_archive(&x.archive);
    return code;
}
