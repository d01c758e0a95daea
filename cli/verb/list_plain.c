/* SPDX-License-Identifier: MIT */
#include "list_plain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "../format/json.h"
#include "../format/print.h"
#include "../format/tensors.h"
#include "../sys/memory.h"
#include "../sys/report.h"

static uint64_t count_tensors(const struct base *p, uint64_t *size)
{
    uint64_t n = 0;
    *size = 0;
    for (size_t i = 0; i < p->n_files; i++) {
        n += p->files[i].file.n_tensors;
        *size += p->files[i].file.size;
    }
    return n;
}

/* -- the table -- */

static void print_line(const char *dtype, const lmc_tensor *t, const char *size)
{
    char shape[LMC_MAX_RANK * 21 + 3] = "";
    if (t) format_shape(shape, sizeof shape, t);
    printf("    ");
    print_dtype(dtype);
    printf("%-18s %14s  ", shape, size);
    print_name(t->name);
}

static void print_tensors(const struct container *c, const struct common *o)
{
    char size[24];
    if (!c) return;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        snprintf(size, sizeof size, "%llu", (unsigned long long)t->size);
        print_line(t->dtype, t, size);
        if (o->verbosity >= 2) printf("  offset %llu", (unsigned long long)t->offset);
        putchar('\n');
    }
    for (size_t i = 0; i < c->n_views; i++) {
        lmc_tensor t;
        memset(&t, 0, sizeof t);
        t.name = c->views[i].name;
        t.rank = c->views[i].rank;
        t.shape = c->views[i].shape;
        print_line(c->views[i].dtype, &t, "view");
        putchar('\n');
    }
}

static void print_plain(const struct base *p, const char *name, const struct common *o)
{
    uint64_t size;
    const uint64_t n = count_tensors(p, &size);
    print_name(name);
    printf(": not compressed: %llu tensor%s, %llu bytes\n", (unsigned long long)n,
           n == 1 ? "" : "s", (unsigned long long)size);
    printf("    dtype    shape                        size  name\n");
    for (size_t i = 0; i < p->n_files; i++) {
        const struct base_file *f = &p->files[i];
        const int is_directory = f->file.kind == LMC_FILE_DIRECTORY;
        printf("  %-29s", is_directory   ? "directory"
                          : f->container ? container_name(f->container->kind)
                                         : "file");
        if (is_directory) printf("%14s  ", "");
        else printf("%14llu  ", (unsigned long long)f->file.size);
        print_name(*f->path       ? f->path
                   : is_directory ? "(the directory itself)"
                                  : "(the file itself)");
        putchar('\n');
        print_tensors(f->container, o);
    }
}

/* -- JSON -- */

static void put_json_plain_file(struct json_writer *w, const struct base_file *f)
{
    const struct container none = {0}, *c = f->container ? f->container : &none;
    json_t *object = (json_t *)check_memory(json_object());
    set_json_text(object, "path", f->path);
    set_json(object, "kind",
             json_string(f->file.kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    set_json(object, "container", json_string(container_name(c->kind)));
    set_json_number(object, "size", f->file.size);
    begin_json(w, NULL, '{');
    put_json_members(w, object);
    begin_json(w, "tensors", '[');
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        object = make_json_layout(t->name, t->dtype, t->rank, t->shape, NULL, t->offset);
        set_json_number(object, "size", t->size);
        put_json(w, NULL, object);
    }
    end_json(w, ']');
    begin_json(w, "views", '[');
    for (size_t i = 0; i < c->n_views; i++) {
        const struct container_view *v = &c->views[i];
        put_json(w, NULL,
                 make_json_layout(v->name, v->dtype, v->rank, v->shape, v->strides, v->offset));
    }
    end_json(w, ']');
    end_json(w, '}');
}

static void print_json_plain(const struct base *p, const char *name)
{
    struct json_writer w;
    json_t *object = (json_t *)check_memory(json_object());
    uint64_t size;
    (void)count_tensors(p, &size);
    set_json(object, "snapshot", json_null());
    set_json_text(object, "name", name);
    set_json_number(object, "size", size);
    init_json_writer(&w, NULL, NULL, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    put_json_members(&w, object);
    begin_json(&w, "files", '[');
    for (size_t i = 0; i < p->n_files; i++) put_json_plain_file(&w, &p->files[i]);
    end_json(&w, ']');
    end_json_line(&w);
}

void list_plain(const struct base *p, const char *name, const struct list_options *options)
{
    if (options->json) print_json_plain(p, name);
    else print_plain(p, name, &options->common);
}
