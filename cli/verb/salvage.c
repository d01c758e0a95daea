/* SPDX-License-Identifier: MIT */
#include "salvage.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <jansson.h>

#include "../../formats/container.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/links.h"
#include "../job/restored_links.h"
#include "../job/restored_tree.h"
#include "../job/restorer.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/progress.h"
#include "../sys/replace.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"
#include "salvage_report.h"

static int open_part(struct salvage *s, const lmc_file *file, const char *directory,
                     const char *path)
{
    lmc_file below = *file;
    char *full = join_path(directory, path);
    int code;
    below.path = full;
    code = begin_tree_file(&s->tree, &below);
    free(full);
    return code;
}

/* The file in work is complete: it goes where it belongs. *where: its name below the output; NULL:
 * there is nothing of it. */
static int close_part(struct salvage *s, const lmc_file *file, const char *path, int is_whole,
                      char **where)
{
    lmc_file below = *file;
    char *from = join_path("whole", path), *to = join_path(is_whole ? "whole" : "partial", path);
    int code, error = 0;
    *where = NULL;
    below.path = from;
    code = end_tree_file(&s->tree, &below);
    if (code == CODE_OK && !is_whole) {
        char *old = join_path(s->tree.root, from), *new = join_path(s->tree.root, to);
        if (s->got) error = enter_made(&s->tree.made, to);
        lock_temporary();
        if (!error && s->got == 0) error = unlink(old) == 0 ? 0 : errno;
        else if (!error) error = move_without_overwriting(old, new);
        unlock_temporary();
        /* directories that were made for it */
        if (!error) error = enter_made(&s->tree.made, from);
        if (!error) error = leave_empty(&s->tree.made);
        free(old);
        free(new);
        if (error) code = fail_made(&s->tree.made, s->tree.target, path, error);
    }
    if (code == CODE_OK && (is_whole || s->got)) *where = copy_string(to, strlen(to));
    free(from);
    free(to);
    return code;
}

static int skip_bytes(struct outlet *out, uint64_t size)
{
    if (size > INT64_MAX - out->size) return EFBIG;
    if (lseek(out->fd, (off_t)size, SEEK_CUR) < 0) return errno;
    out->size += size;
    return 0;
}

static void add_loss(struct salvage *s, const lmc_salvage_range *range)
{
    struct loss *last = s->n_losses ? &s->losses[s->n_losses - 1] : NULL;
    if (last && last->end == range->offset && last->status == range->status) {
        last->end += range->size;
        return;
    }
    s->losses = (struct loss *)grow(s->losses, s->n_losses, &s->room, sizeof *s->losses);
    last = &s->losses[s->n_losses++];
    last->start = range->offset;
    last->end = range->offset + range->size;
    last->status = range->status;
}

/* What a file is called whose FILE section is lost, or that has no name of its own. */
static char *name_part(const struct salvage *s, size_t number, const lmc_file *file)
{
    const char *name =
        strrchr(s->archive.name, '/') ? strrchr(s->archive.name, '/') + 1 : s->archive.name;
    char text[40];
    if (!lmc_salvage_is_described(s->salvage, number)) {
        snprintf(text, sizeof text, "file-%04llu", (unsigned long long)number);
        return copy_string(text, strlen(text));
    }
    if (*file->path) return copy_string(file->path, strlen(file->path));
    return copy_string(name, has_suffix(name) ? strlen(name) - strlen(SUFFIX) : strlen(name));
}

static int next_range(struct salvage *s, lmc_salvage_range *range, int *is_end)
{
    enum lmc_status status = lmc_salvage_next(s->salvage, range);
    *is_end = status == LMC_OK && range->is_end;
    if (status == LMC_ERR_MEMORY) check_memory(NULL);
    if (status == LMC_OK) progress_add(range->size);
    return status == LMC_OK ? CODE_OK : fail_archive(&s->archive, status);
}

/* File number n; *range: its first range, then that of the next file. */
static int salvage_part(struct salvage *s, size_t n, lmc_salvage_range *range, int *is_end)
{
    const lmc_file *file = lmc_reader_get_file(s->archive.reader, n);
    int is_described = lmc_salvage_is_described(s->salvage, n), is_whole, code;
    char *path = name_part(s, n, file), *where = NULL;
    uint64_t size = 0;
    s->n_losses = 0;
    s->got = 0;
    code = open_part(s, file, is_described ? "whole" : "unnamed", path);
    while (code == CODE_OK && !*is_end && range->file_number == n) {
        int error = range->status == LMC_OK
                        ? outlet_write(&s->tree.outlet, range->data, (size_t)range->size)
                        : skip_bytes(&s->tree.outlet, range->size);
        size += range->size;
        if (error) code = fail_errno(path, error, "cannot write it");
        else if (range->status == LMC_OK) s->got += range->size;
        else add_loss(s, range);
        if (code == CODE_OK) code = next_range(s, range, is_end);
    }
    is_whole = s->n_losses == 0 && file->size != LMC_UNKNOWN_SIZE &&
               lmc_salvage_confirm(s->salvage, n, SIZE_MAX) >= 0;
    if (code == CODE_OK && is_described) {
        code = close_part(s, file, path, is_whole || file->kind == LMC_FILE_DIRECTORY, &where);
    } else if (code == CODE_OK) {
        lmc_file below = *file;
        below.path = where = join_path("unnamed", path);
        code = end_tree_file(&s->tree, &below);
    }
    if (code == CODE_OK) report_file(s, n, file, size, where);
    free(path);
    free(where);
    return code;
}

/* Blocks without a place. */
static int salvage_rest(struct salvage *s, lmc_salvage_range *range, int *is_end)
{
    int code = CODE_OK;
    begin_unplaced(s);
    while (code == CODE_OK && !*is_end) {
        lmc_file file;
        char name[64];
        json_t *entry = (json_t *)check_memory(json_object());
        memset(&file, 0, sizeof file);
        snprintf(name, sizeof name, "run-%04lu-block-%06lu.bin", (unsigned long)range->run,
                 (unsigned long)range->block);
        set_json_number(entry, "run", range->run);
        set_json_number(entry, "block", range->block);
        set_json_number(entry, "size", range->size);
        set_json(entry, "state",
                 json_string(range->status == LMC_OK ? "intact" : name_loss(range->status)));
        put_json(&s->list, NULL, entry);
        s->n_unplaced++;
        if (range->status == LMC_OK) {
            char *path = join_path("unplaced", name);
            file.path = path;
            code = begin_tree_file(&s->tree, &file);
            if (code == CODE_OK) {
                int error = outlet_write(&s->tree.outlet, range->data, (size_t)range->size);
                code = error ? fail_errno(name, error, "cannot write it")
                             : end_tree_file(&s->tree, &file);
            }
            free(path);
        }
        if (code == CODE_OK) code = next_range(s, range, is_end);
    }
    return code;
}

/* Directories that were left empty have been removed, perhaps; those of the snapshot come back. */
static int complete_directories(struct salvage *s)
{
    struct made *m = &s->tree.made;
    int error = 0;
    for (size_t i = 0; i < m->n && !error; i++)
        if (m->list[i].has_attributes) error = go_to_made(m, i);
    return error ? fail_made(m, s->tree.target, s->tree.target, error) : CODE_OK;
}

/* The base that the header names, wherever restoring finds it. One that was given must be it; where
 * nobody has named any and none is found, what does without it is recovered. */
static int find_salvage_base(struct salvage *s, const lmc_base **base)
{
    const struct common *o = s->o;
    struct base *b;
    int code;
    if (o->bases->n) return find_base_of_archive(&s->archive, base, o);
    b = find_base(&s->archive, o, &code);
    if (b && code == CODE_OK) code = prepare_base(b, o);
    if (!b || code != CODE_OK) return CODE_OK; /* what is wrong with one was said */
    o->bases->code = CODE_OK;
    *base = &b->source;
    s->archive.lender = b->is_archive ? b->archive.reader : NULL;
    if (o->verbosity == 1) /* with more, find_base() says it */
        say(s->archive.name, "its base is %.300s", b->name);
    return CODE_OK;
}

/* The base: the one that the header names; where that is damaged, the first that is given, for
 * every block knows whether it is the right one. */
static int choose_salvage_base(struct salvage *s, const lmc_base **base)
{
    const struct common *o = s->o;
    int code;
    *base = NULL;
    if (s->archive.is_delta) return find_salvage_base(s, base);
    if (o->bases->n == 0) return CODE_OK;
    code = prepare_base(&o->bases->list[0], o);
    o->bases->code = CODE_OK;
    if (code == CODE_OK) *base = &o->bases->list[0].source;
    return code;
}

static int open_salvage(struct salvage *s, const lmc_base *base)
{
    const lmc_source source = source_of_archive(&s->archive);
    lmc_reader_options options;
    enum lmc_status status;
    memset(&options, 0, sizeof options);
    options.base = base;
    options.lender = s->archive.lender;
    lmc_reader_free(s->archive.reader); /* which the search for the base has needed */
    lmc_salvage_free(s->salvage);
    status = lmc_salvage_open(&s->salvage, &source, &options);
    s->archive.reader = lmc_salvage_reader(s->salvage);
    if (status == LMC_ERR_MEMORY) check_memory(NULL);
    if (status == LMC_ERR_NOT_LMC && archive_size(&s->archive) != 0 &&
        !container_is_lfs_pointer(s->archive.header, sizeof s->archive.header))
        return fail(CODE_CORRUPT, s->archive.name, "nothing of a snapshot was found in it");
    return status == LMC_OK && lmc_salvage_get_damage(s->salvage, &s->damage) == LMC_OK
               ? CODE_OK
               : fail_archive(&s->archive, status);
}

/* A header that is damaged does not name the base, but the index has a copy of it. */
static int open_with_base(struct salvage *s)
{
    const lmc_base *base;
    int code = choose_salvage_base(s, &base);
    lmc_snapshot_info info;
    if (code == CODE_OK) code = open_salvage(s, base);
    if (code != CODE_OK || base || s->archive.is_delta) return code;
    info = snapshot_info(s->archive.reader);
    if (!info.has_base) return code;
    s->archive.is_delta = 1;
    memcpy(s->archive.wanted, info.base_fingerprint, sizeof s->archive.wanted);
    s->archive.reader = NULL; /* the salvage's */
    code = find_salvage_base(s, &base);
    return code == CODE_OK ? open_salvage(s, base) : code;
}

/* Symbolic links, if the index that names them is there, below whole/. */
static void salvage_links(struct salvage *s)
{
    struct links links, symbolic;
    char *root;
    memset(&symbolic, 0, sizeof symbolic);
    if (read_links(&links, s->archive.reader) != 0)
        say(s->archive.name, "has a damaged list of links, which is left out");
    for (size_t i = 0; i < links.n; i++) { /* of hard ones, each is a file */
        struct link *l = &links.list[i];
        if (l->type == LINK_HARD) continue;
        add_link_record(&symbolic, l->type, l->path, l->target);
    }
    root = join_path(s->tree.root, "whole");
    if (symbolic.n && (mkdir(root, 0777) == 0 || errno == EEXIST))
        (void)make_links(root, &symbolic, s->archive.name); /* what cannot be made was named */
    free_links(&symbolic);
    free(root);
    free_links(&links);
}

static int run_salvage(struct salvage *s)
{
    lmc_salvage_range range;
    int is_end = 0, code;
    if (!s->json && s->o->verbosity > 0) {
        print_name(s->archive.name);
        printf(":\n");
    }
    progress_start(s->archive.name, LMC_UNKNOWN_SIZE);
    code = begin_report(s);
    if (code == CODE_OK) code = next_range(s, &range, &is_end);
    if (code == CODE_OK && is_end && snapshot_info(s->archive.reader).n_files == 0)
        code = fail(CODE_CORRUPT, s->archive.name,
                    "nothing of a snapshot was found in it but its header");
    for (size_t i = 0; i < snapshot_info(s->archive.reader).n_files && code == CODE_OK; i++)
        code = salvage_part(s, i, &range, &is_end);
    if (code == CODE_OK) code = salvage_rest(s, &range, &is_end);
    progress_clear();
    if (code == CODE_OK) code = complete_directories(s);
    if (code == CODE_OK) salvage_links(s);
    if (code == CODE_OK) code = write_report(s);
    return code;
}

/* Where the output goes. To be freed. */
static char *name_salvage(const char *path, const struct common *o)
{
    size_t size = strlen(path) - (has_suffix(path) ? strlen(SUFFIX) : 0);
    char *name;
    if (o->output) return copy_string(o->output, strlen(o->output));
    name = (char *)resize(NULL, size + sizeof ".salvaged", 1);
    memcpy(name, path, size);
    strcpy(name + size, ".salvaged");
    return name;
}

int salvage_file(const char *path, const struct salvage_options *options)
{
    const struct common *o = &options->common;
    struct salvage s;
    char *target = name_salvage(path, o);
    int code;
    memset(&s, 0, sizeof s);
    s.o = o;
    o->bases->is_partial = 1;
    s.json = options->json;
    init_tree(&s.tree, target, o);
    s.scratch = -1;
    code = open_archive_file(&s.archive, path, o);
    if (code == CODE_OK) code = open_with_base(&s);
    if (code == CODE_OK) code = protect_bases(NULL, target, 0, o); /* those found, too */
    if (code == CODE_OK && s.archive.is_delta) say_unused_bases(0, o);
    if (code == CODE_OK) code = begin_tree(&s.tree, path, o->force);
    if (code == CODE_OK) {
        code = run_salvage(&s);
        if (code == CODE_OK) code = commit_tree(&s.tree, o->force, &s.archive.st);
        else remove_temporary();
    }
    if (code == CODE_OK) code = worse(conclude(&s), check_bases(o));
    if (s.salvage) s.archive.reader = NULL; /* the salvage's */
    lmc_salvage_free(s.salvage);
    close_archive(&s.archive);
    if (s.scratch >= 0) close(s.scratch);
    free(s.losses);
    free_tree(&s.tree);
    free(target);
    return code;
}
