/* SPDX-License-Identifier: MIT */
#include "second_look.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "archive.h"
#include "options.h"
#include "source.h"
#include "../sys/report.h"

static int fail_second_look(const char *name)
{
    return fail(CODE_ERROR, name,
                "holds tensors that repeat others, which a pipe cannot tell again; restore it to a "
                "file or directory "
                "with -o, or save it to a file first");
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
    if (!l->is_open) *code = open_second_look(l);
    if (*code != CODE_OK) return LMC_ERR_READ;
    status = lmc_read_file(l->archive.reader, number, offset, dst, size);
    if (status != LMC_OK) *code = fail_archive(&l->archive, status);
    return *code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

void close_second_look(struct second_look *l)
{
    if (l->is_open) close_archive(&l->archive);
}

int fail_restore(const struct source *s, enum lmc_status status, const struct options *o)
{
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* of a base, or of what is repeated, and it was said */
        return o->bases->code;
    return fail_status(s->name, status);
}
