/* SPDX-License-Identifier: MIT */
#include "restore.h"

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

struct extraction {
    struct archive archive;
    struct links links;
    struct wanted wanted;
    unsigned char *is_done;    /* of each file */
    const char *target;        /* NULL: standard output */
    struct restored_tree tree; /* below the target */
    struct links made;         /* the links in it */
    const struct common *o;
    struct output out; /* if it is standard output */
    struct outlet *outlet;
    unsigned char *window;
    uint64_t n_files, size;
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

/* Makes the directory that it is in. Those on the way that are not there yet get the mode and time
 * of the snapshot, where it tells of them. */
static int enter_parent(struct extraction *x, const char *path)
{
    struct made *const m = &x->tree.made;
    size_t number = 0, at;
    char *part = copy_string(path, strlen(path)), *slash = strrchr(part, '/');
    int error = 0;
    if (slash) *slash = 0;
    else *part = 0;
    error = find_made(m, part, strlen(part), &number);
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
    if (!error) error = go_to_made(m, at);
    return error ? fail_made(m, x->target, path, error) : CODE_OK;
}

static int copy_file(struct extraction *x, size_t number)
{
    const lmc_file *f = lmc_reader_get_file(x->archive.reader, number);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        const size_t size = (size_t)(f->size - at < BUFFER_SIZE ? f->size - at : BUFFER_SIZE);
        const enum lmc_status status = read_counted(&x->archive, number, at, x->window, size);
        int error;
        if (status != LMC_OK) return fail_damage(&x->archive, status, number, at);
        crc = lmc_crc32c(crc, x->window, size);
        error = outlet_write(x->outlet, x->window, size);
        if (error)
            return x->target ? fail_errno(f->path, error, "cannot write it")
                             : fail_output(&x->out, error);
        at += size;
        progress_add(size);
    }
    x->size += f->size;
    x->n_files++;
    return crc == f->crc ? CODE_OK : fail_damage(&x->archive, LMC_ERR_CHECKSUM, number, 0);
}

/* path: where it is restored, below the target */
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
    code = check_part(&x->tree, path, f.kind == LMC_FILE_DIRECTORY);
    if (code == CODE_OK) code = enter_parent(x, path);
    if (code == CODE_OK) code = begin_tree_file(&x->tree, &f);
    if (code == CODE_OK && f.kind != LMC_FILE_DIRECTORY) code = copy_file(x, number);
    return code == CODE_OK ? end_tree_file(&x->tree, &f) : code;
}

/* What a link leads to: at its own place, if that was not restored yet, or in that of the link. */
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
                           : copy_string(l->shown, strlen(l->shown));
        code = extract_entry(x, number, shown);
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

/* Names of one file become so again, as far as they were restored: each is linked to the first.
 * Links that are wanted are made with them. */
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
            code = check_part(&x->tree, l->list[i].path, 0);
            if (code == CODE_OK) code = enter_parent(x, l->list[i].path);
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
    return code == CODE_OK ? make_links(x->tree.root, &x->made, x->archive.name) : code;
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
    int code = check_names(x);
    if (code == CODE_OK && w->is_too_many)
        code =
            fail_made(&x->tree.made, x->target ? x->target : STANDARD_OUTPUT, NULL, MADE_TOO_MANY);
    if (code == CODE_OK && x->target) code = begin_parts(&x->tree, &x->archive.st);
    if (code != CODE_OK) return code;
    for (size_t i = 0; i < snapshot_info(reader).n_files && code == CODE_OK; i++)
        if (matches_any(w, lmc_reader_get_file(reader, i)->path))
            code = extract_entry(x, i, lmc_reader_get_file(reader, i)->path);
    for (size_t i = 0; i < w->n_led && code == CODE_OK; i++) code = extract_led(x, &w->list[i]);
    if (!x->target) return code;
    if (code == CODE_OK && !w->is_dereferenced) code = make_wanted_links(x);
    if (code == CODE_OK) return commit_parts(&x->tree);
    remove_temporary();
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
    x->outlet = x->target ? &x->tree.outlet : &x->out.outlet;
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
    init_tree(&x.tree, target, o);
    x.tree.made.max_entries = most_files(o);
    x.window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    code = open_extraction(&x, path);
    if (code == CODE_OK) {
        const size_t n_files = snapshot_info(x.archive.reader).n_files;
        x.is_done = (unsigned char *)resize(NULL, n_files, 1);
        memset(x.is_done, 0, n_files);
        find_wanted(&x.wanted, patterns, n, &x.links, x.archive.reader,
                    !target || o->links == LINKS_FOLLOW, most_files(o));
        progress_start(x.archive.name, LMC_UNKNOWN_SIZE);
        code = check_named_links(&x);
        if (code == CODE_OK) code = extract_matches(&x);
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
    free_tree(&x.tree);
    free_links(&x.made);
    free_wanted(&x.wanted);
    free_links(&x.links);
    close_archive(&x.archive);
    return code;
}
