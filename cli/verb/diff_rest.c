/* SPDX-License-Identifier: MIT */
#include "diff_rest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/links.h"
#include "../input/source.h"
#include "../input/source_links.h"
#include "../sys/memory.h"
#include "../sys/report.h"

/* Bytes that are compared at once. */
#define PART_SIZE ((size_t)64 << 10)

/* -- files -- */

struct numbered {
    const lmc_file *file;
    size_t number;
};

/* The files of one side that have tensors. */
struct side {
    struct numbered *list;
    size_t n;
};

static int compare_numbered(const void *a, const void *b)
{
    return strcmp(((const struct numbered *)a)->file->path,
                  ((const struct numbered *)b)->file->path);
}

static void collect_files(struct side *s, const struct base *b)
{
    s->n = 0;
    s->list = (struct numbered *)resize(NULL, b->source.n_files + 1, sizeof *s->list);
    for (size_t i = 0; i < b->source.n_files; i++) {
        const lmc_file *f = b->source.get_file(b->source.user, i);
        if (f->n_tensors == 0) continue;
        s->list[s->n].file = f;
        s->list[s->n++].number = i;
    }
    if (s->n) qsort(s->list, s->n, sizeof *s->list, compare_numbered);
}

static uint64_t size_of_rest(const lmc_file *f)
{
    uint64_t size = f->size;
    for (size_t i = 0; i < f->n_tensors; i++) size -= f->tensors[i].size;
    return size;
}

/* The bytes of a file that belong to no tensor, one piece after another. */
struct rest_reader {
    const struct base *b;
    const struct numbered *file;
    size_t tensor;    /* the first that does not end before */
    uint64_t at, end; /* what is left of a piece */
};

/* Sees to it that something is left of a piece; 0: it was the last. */
static int find_piece(struct rest_reader *r)
{
    const lmc_file *f = r->file->file;
    while (r->at == r->end && r->tensor <= f->n_tensors) {
        const lmc_tensor *before = r->tensor ? &f->tensors[r->tensor - 1] : NULL;
        r->at = before ? before->offset + before->size : 0;
        r->end = r->tensor < f->n_tensors ? f->tensors[r->tensor].offset : f->size;
        r->tensor++;
    }
    return r->at < r->end;
}

static int read_rest(struct rest_reader *r, unsigned char *dst, size_t size)
{
    const int failed = r->b->source.read(r->b->source.user, r->file->number, r->at, dst, size) != 0;
    r->at += size;
    return failed;
}

static int count_changed_rest(uint64_t *n_changed, const struct diff *d, const struct numbered *old,
                              const struct numbered *file)
{
    unsigned char *a = (unsigned char *)resize(NULL, PART_SIZE, 2), *b = a + PART_SIZE;
    struct rest_reader from = {d->a, old, 0, 0, 0}, to = {d->b, file, 0, 0, 0};
    int code = CODE_OK;
    *n_changed = 0;
    while (code == CODE_OK && find_piece(&from) && find_piece(&to)) {
        uint64_t left = from.end - from.at < to.end - to.at ? from.end - from.at : to.end - to.at;
        const size_t size = left < PART_SIZE ? (size_t)left : PART_SIZE;
        if (read_rest(&from, a, size) || read_rest(&to, b, size)) code = d->o->bases->code;
        for (size_t i = 0; i < size && code == CODE_OK; i++) *n_changed += a[i] != b[i];
    }
    free(a);
    return code;
}

static struct file_change *add_file(struct diff_rest *rest, enum diff_kind kind, const char *path)
{
    struct file_change *c;
    rest->files = (struct file_change *)grow(rest->files, rest->n_files, &rest->files_room,
                                             sizeof *rest->files);
    c = &rest->files[rest->n_files++];
    memset(c, 0, sizeof *c);
    c->kind = kind;
    c->path = path;
    return c;
}

static int compare_rest(struct diff_rest *rest, const struct diff *d, const struct numbered *old,
                        const struct numbered *file)
{
    const lmc_file *f = old->file, *g = file->file;
    const uint64_t old_size = size_of_rest(f), size = size_of_rest(g);
    uint64_t n_changed = 0;
    struct file_change *c;
    int code = CODE_OK;
    if (f->size == g->size && f->crc == g->crc) return CODE_OK;
    if (size == old_size) code = count_changed_rest(&n_changed, d, old, file);
    if (code != CODE_OK || (size == old_size && n_changed == 0)) return code;
    c = add_file(rest, DIFF_CHANGED, g->path);
    c->size = size;
    c->old_size = old_size;
    c->n_changed = n_changed;
    return CODE_OK;
}

static int compare_files(struct diff_rest *rest, const struct diff *d)
{
    struct side a, b;
    size_t i = 0, k = 0;
    int code = CODE_OK;
    collect_files(&a, d->a);
    collect_files(&b, d->b);
    while (code == CODE_OK && (i < a.n || k < b.n)) {
        const int order = i == a.n ? 1 : k == b.n ? -1 : compare_numbered(&a.list[i], &b.list[k]);
        if (order == 0) code = compare_rest(rest, d, &a.list[i], &b.list[k]);
        else if (order < 0) add_file(rest, DIFF_REMOVED, a.list[i].file->path);
        else add_file(rest, DIFF_ADDED, b.list[k].file->path);
        i += order <= 0;
        k += order >= 0;
    }
    free(a.list);
    free(b.list);
    return code;
}

/* -- links -- */

static int read_links_of(struct links *l, const struct base *b, const struct common *o)
{
    struct listing listing;
    struct common quiet = *o; /* what is not stored was told when the side was read */
    struct stat st;
    int code;
    quiet.verbosity = 0;
    memset(l, 0, sizeof *l);
    if (b->is_archive)
        return read_links(l, b->archive.reader) == 0 ? CODE_OK : fail_bad_links(b->name);
    if (stat(b->name, &st) != 0) return fail_errno(b->name, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode)) return CODE_OK;
    code = list_sources(&listing, b->name, 0, &quiet);
    if (code == CODE_OK) collect_links(l, &listing, b->name);
    free_listing(&listing);
    return code;
}

static char *copy_or_null(const char *text)
{
    return text ? copy_string(text, strlen(text)) : NULL;
}

static void add_link(struct diff_rest *rest, const struct link *old, const struct link *link)
{
    struct link_change *c;
    rest->links = (struct link_change *)grow(rest->links, rest->n_links, &rest->links_room,
                                             sizeof *rest->links);
    c = &rest->links[rest->n_links++];
    c->path = copy_or_null(link ? link->path : old->path);
    c->target = copy_or_null(link ? link->target : NULL);
    c->old_target = copy_or_null(old ? old->target : NULL);
}

static int is_symbolic(const struct link *l) { return l && l->type == LINK_SYMBOLIC; }

static int compare_links(struct diff_rest *rest, const struct diff *d)
{
    struct links a, b;
    int code = read_links_of(&a, d->a, d->o);
    if (code != CODE_OK) return code;
    code = read_links_of(&b, d->b, d->o);
    for (size_t i = 0; i < b.n && code == CODE_OK; i++) {
        const struct link *link = &b.list[i], *old = find_link_record(&a, link->path);
        if (!is_symbolic(link)) continue;
        if (!is_symbolic(old)) old = NULL;
        if (!old || strcmp(old->target, link->target) != 0) add_link(rest, old, link);
    }
    for (size_t i = 0; i < a.n && code == CODE_OK; i++)
        if (is_symbolic(&a.list[i]) && !is_symbolic(find_link_record(&b, a.list[i].path)))
            add_link(rest, &a.list[i], NULL);
    free_links(&a);
    free_links(&b);
    return code;
}

int measure_rest(struct diff_rest *rest, const struct diff *d)
{
    int code;
    memset(rest, 0, sizeof *rest);
    code = compare_files(rest, d);
    return code == CODE_OK ? compare_links(rest, d) : code;
}

/* -- reports -- */

static const char *name_link_change(const struct link_change *c)
{
    return diff_names[!c->old_target ? DIFF_ADDED : !c->target ? DIFF_REMOVED : DIFF_CHANGED];
}

static void print_place(const char *path)
{
    fputs("  in ", stdout);
    print_name(*path ? path : "(the file itself)");
    putchar('\n');
}

void print_rest(const struct diff_rest *rest)
{
    for (size_t i = 0; i < rest->n_files; i++) {
        const struct file_change *c = &rest->files[i];
        printf("  %-8s ", diff_names[c->kind]);
        if (c->kind != DIFF_CHANGED) fputs("file of tensors", stdout);
        else if (c->size == c->old_size)
            printf("%llu of %llu bytes of headers, pickles and metadata",
                   (unsigned long long)c->n_changed, (unsigned long long)c->size);
        else
            printf("headers, pickles and metadata: %llu bytes, before %llu",
                   (unsigned long long)c->size, (unsigned long long)c->old_size);
        print_place(c->path);
    }
    for (size_t i = 0; i < rest->n_links; i++) {
        const struct link_change *c = &rest->links[i];
        printf("  %-8s link ", name_link_change(c));
        print_name(c->path);
        fputs(" to ", stdout);
        print_name(c->target ? c->target : c->old_target);
        if (c->target && c->old_target) {
            fputs(", before to ", stdout);
            print_name(c->old_target);
        }
        putchar('\n');
    }
}

void put_json_rest(struct json_writer *w, const struct diff_rest *rest)
{
    begin_json(w, "outside_tensors", '[');
    for (size_t i = 0; i < rest->n_files; i++) {
        const struct file_change *c = &rest->files[i];
        json_t *row = (json_t *)check_memory(json_object());
        set_json_text(row, "path", c->path);
        set_json(row, "status", json_string(diff_names[c->kind]));
        if (c->kind == DIFF_CHANGED) {
            set_json_number(row, "size", c->size);
            set_json_number(row, "old_size", c->old_size);
            if (c->size == c->old_size) set_json_number(row, "changed_bytes", c->n_changed);
        }
        put_json(w, NULL, row);
    }
    end_json(w, ']');
    begin_json(w, "links", '[');
    for (size_t i = 0; i < rest->n_links; i++) {
        const struct link_change *c = &rest->links[i];
        json_t *row = (json_t *)check_memory(json_object());
        set_json_text(row, "path", c->path);
        set_json(row, "status", json_string(name_link_change(c)));
        if (c->target) set_json_text(row, "target", c->target);
        if (c->old_target) set_json_text(row, "old_target", c->old_target);
        put_json(w, NULL, row);
    }
    end_json(w, ']');
}

void free_rest(struct diff_rest *rest)
{
    for (size_t i = 0; i < rest->n_links; i++) {
        free(rest->links[i].path);
        free(rest->links[i].target);
        free(rest->links[i].old_target);
    }
    free(rest->files);
    free(rest->links);
}
