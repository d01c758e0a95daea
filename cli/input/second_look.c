/* SPDX-License-Identifier: MIT */
#include "second_look.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive.h"
#include "common.h"
#include "source.h"
#include "../sys/memory.h"
#include "../sys/report.h"

void init_second_look(struct second_look *l, struct source *s, const lmc_base *base,
                      const struct common *o)
{
    memset(l, 0, sizeof *l);
    l->source = s;
    l->base = base;
    l->o = o;
}

/* The callbacks of the caller, and where they are. */
struct follower {
    const lmc_restore_options *options;
    struct second_look *look;
};

static enum lmc_status follow_begin(void *user, const lmc_file *file, size_t number)
{
    const struct follower *f = (const struct follower *)user;
    free(f->look->path);
    f->look->path = copy_string(file->path, strlen(file->path));
    f->look->at = 0;
    return f->options->begin_file ? f->options->begin_file(f->options->user, file, number) : LMC_OK;
}

static enum lmc_status follow_write(void *user, const void *data, size_t size)
{
    const struct follower *f = (const struct follower *)user;
    f->look->at += size;
    return f->options->write ? f->options->write(f->options->user, data, size) : LMC_OK;
}

static enum lmc_status follow_end(void *user, const lmc_file *file, size_t number)
{
    const struct follower *f = (const struct follower *)user;
    return f->options->end_file ? f->options->end_file(f->options->user, file, number) : LMC_OK;
}

static enum lmc_status follow_read(void *user, size_t number, uint64_t offset, void *dst,
                                   size_t size)
{
    const struct follower *f = (const struct follower *)user;
    return f->options->read_back(f->options->user, number, offset, dst, size);
}

static enum lmc_status follow_metadata(void *user, const char *key, const void *value, size_t size)
{
    const struct follower *f = (const struct follower *)user;
    return f->options->metadata ? f->options->metadata(f->options->user, key, value, size) : LMC_OK;
}

enum lmc_status restore_source(struct second_look *l, lmc_restore_options *options,
                               uint8_t *identity)
{
    lmc_restore_options following = *options;
    struct follower follower;
    lmc_stream stream;
    stream.read = read_stream;
    stream.user = l->source;
    follower.options = options;
    follower.look = l;
    following.user = &follower;
    following.begin_file = follow_begin;
    following.write = follow_write;
    following.end_file = follow_end;
    following.read_back = options->read_back ? follow_read : NULL;
    following.metadata = follow_metadata;
    following.parallel = &l->o->parallel;
    following.base = l->base;
    return lmc_snapshot_restore(&stream, identity, &following);
}

static int fail_second_look(const char *name)
{
    return fail(CODE_ERROR, name,
                "holds tensors that repeat others, which a pipe cannot tell again; restore it to a "
                "file or directory with -o, or save it to a file first");
}

static int open_second_look(struct second_look *l)
{
    int code;
    if (!S_ISREG(l->source->st.st_mode)) return fail_second_look(l->source->name);
    l->is_open = 1;
    code = open_archive_of_source(&l->archive, l->source, l->o);
    return code == CODE_OK ? read_archive_index(&l->archive, l->base) : code;
}

enum lmc_status read_second_look(struct second_look *l, size_t number, uint64_t offset, void *dst,
                                 size_t size)
{
    int *code = &l->o->bases->code;
    enum lmc_status status;
    lmc_base by_reader;
    if (!l->is_open) *code = open_second_look(l);
    if (*code != CODE_OK) return LMC_ERR_READ;
    by_reader = lmc_reader_base(l->archive.reader); /* whose windows know what was asked before */
    status = by_reader.read(by_reader.user, number, offset, dst, size);
    if (status != LMC_OK) *code = fail_archive(&l->archive, status);
    return *code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

void close_second_look(struct second_look *l)
{
    if (l->is_open) close_archive(&l->archive);
    free(l->path);
    l->path = NULL;
}

/* How far the damage is looked for: what is decoded at once is not larger. */
#define MAX_SEARCH ((uint64_t)256 << 20)
#define SEARCH_STEP ((size_t)64 << 10)

/* From *at on, the first byte of the file that cannot be read; 0: all of it can. */
static int find_damage(const struct archive *a, size_t number, uint64_t *at)
{
    const uint64_t size = lmc_reader_get_file(a->reader, number)->size, start = *at;
    unsigned char *buffer = (unsigned char *)resize(NULL, SEARCH_STEP, 1);
    int is_found = 0;
    for (; *at < size && *at - start < MAX_SEARCH && !is_found; *at += is_found ? 0 : SEARCH_STEP) {
        const size_t part = (size_t)(size - *at < SEARCH_STEP ? size - *at : SEARCH_STEP);
        is_found = lmc_reader_read_file(a->reader, number, *at, buffer, part) != LMC_OK;
    }
    free(buffer);
    return is_found;
}

/* Which file and tensor the damage is in, by the index, if that can be read. What was restored
 * ends before the blocks that were decoded together, so these are read again one by one. */
static void describe_place(const struct second_look *l, char *text, size_t size)
{
    struct archive a;
    *text = 0;
    if (!l->path || !S_ISREG(l->source->st.st_mode)) return;
    if (open_archive_of_source(&a, l->source, l->o) != CODE_OK ||
        try_archive_index(&a, l->base) != LMC_OK) {
        close_archive(&a);
        if (*l->path) snprintf(text, size, " (in '%.300s')", l->path);
        return;
    }
    for (size_t i = 0; i < snapshot_info(a.reader).n_files; i++) {
        const lmc_file *f = lmc_reader_get_file(a.reader, i);
        const lmc_tensor *t = NULL;
        uint64_t at = l->at;
        if (strcmp(f->path, l->path) != 0 || !find_damage(&a, i, &at)) continue;
        for (size_t k = 0; k < f->n_tensors && !t; k++)
            if (f->tensors[k].offset + f->tensors[k].size > at) t = &f->tensors[k];
        snprintf(text, size, " (%s%.200s%s%s%.200s%s from byte %llu on)", *f->path ? "in '" : "in ",
                 *f->path ? f->path : "the file", *f->path ? "'" : "", t ? ", in the tensor '" : "",
                 t ? t->name : "", t ? "'," : "", (unsigned long long)at);
    }
    close_archive(&a);
}

int fail_restore(const struct second_look *l, enum lmc_status status)
{
    const struct source *s = l->source;
    char where[700];
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* of a base, or of what is repeated, and it was said */
        return l->o->bases->code;
    describe_place(l, where, sizeof where);
    return fail_snapshot_at(s->name, s->header, status, where);
}
