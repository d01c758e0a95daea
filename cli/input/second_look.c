/* SPDX-License-Identifier: MIT */
#include "second_look.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "archive.h"
#include "common.h"
#include "source.h"
#include "../sys/report.h"

void init_second_look(struct second_look *l, struct source *s, const lmc_base *base,
                      const struct common *o)
{
    memset(l, 0, sizeof *l);
    l->source = s;
    l->base = base;
    l->o = o;
}

enum lmc_status restore_source(struct second_look *l, lmc_restore_options *options,
                               uint8_t *identity)
{
    lmc_stream stream;
    stream.read = read_stream;
    stream.user = l->source;
    options->parallel = &l->o->parallel;
    options->base = l->base;
    return lmc_snapshot_restore(&stream, options, identity);
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
}

int fail_restore(const struct source *s, enum lmc_status status, const struct common *o)
{
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* of a base, or of what is repeated, and it was said */
        return o->bases->code;
    return fail_snapshot(s->name, s->header, status);
}
