/* SPDX-License-Identifier: MIT */

#include "../format/print.h"
#include "base.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

/* -- a copy of a damaged base, or the files that the base was made from -- */

int have_same_tensors(const lmc_file *a, const lmc_file *b)
{
    if (a->kind != b->kind || a->size != b->size || a->n_tensors != b->n_tensors) return 0;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (a->tensors[i].offset != b->tensors[i].offset ||
            strcmp(a->tensors[i].name, b->tensors[i].name) != 0 ||
            !is_same_kind(&a->tensors[i], &b->tensors[i]))
            return 0;
    return 1;
}

/* *number: of a file of b; set to that of c's file with the same path. Returns 0 if c has none. */
static int find_same_file(const struct base *c, const struct base *b, size_t *number)
{
    const char *path = lmc_reader_get_file(b->archive.reader, *number)->path;
    size_t i = *number;
    if (c->is_archive) return lmc_reader_find_file(c->archive.reader, path, number) == LMC_OK;
    for (size_t n = 0; n < c->n_files; n++, i++) { /* mostly found at once */
        if (i >= c->n_files) i = 0;
        *number = i;
        if (strcmp(c->files[i].path, path) == 0) return 1;
    }
    return 0;
}

/* Whether c has the same files as b, with the same tensors at the same offsets. */
static int have_same_files(const struct base *b, const struct base *c)
{
    const size_t n = snapshot_info(b->archive.reader).n_files;
    if (c->source.n_files != n) return 0;
    for (size_t i = 0; i < n; i++) {
        size_t number = i;
        if (!find_same_file(c, b, &number) ||
            !have_same_tensors(lmc_reader_get_file(b->archive.reader, i),
                               c->source.get_file(c->source.user, number)))
            return 0;
    }
    return 1;
}

struct base *take_instead(struct base *c, const struct base *b, const struct options *o)
{
    struct stat st;
    int code;
    if (c == b || c->is_damaged || c->is_visited || stat(c->name, &st) != 0 ||
        same_file(&st, &b->archive.st))
        return NULL;
    code = identify_base_as(c, 0, o);
    if (code == CODE_OK && !c->is_archive)
        c = find_view_like(c, b->archive.reader, b->fingerprint, o, &code);
    return code == CODE_OK && c && same_fingerprint(c->fingerprint, b->fingerprint) &&
                   prepare_base(c, o) == CODE_OK && have_same_files(b, c)
               ? c
               : NULL;
}

/* -- intact blocks -- */

/* Reads what salvaging has found of a base. Lost bytes: LMC_ERR_BASE_WRONG, as for a wrong base. */
static enum lmc_status read_found(const struct base *b, size_t number, uint64_t offset, void *dst,
                                  size_t size)
{
    const lmc_base found = lmc_reader_base(lmc_salvage_reader(b->salvage));
    const enum lmc_status status = found.read(found.user, number, offset, dst, size);
    return status == LMC_OK || status == LMC_ERR_MEMORY || status == LMC_ERR_LIMIT
               ? status
               : LMC_ERR_BASE_WRONG;
}

enum lmc_status read_intact(struct base *b, enum lmc_status damage, size_t number, uint64_t offset,
                            void *dst, size_t size)
{
    if (!b->salvage) {
        const lmc_source source = source_of_archive(&b->archive);
        const lmc_reader_options options =
            options_of_reader(&b->archive, b->below ? &b->below->source : NULL);
        const enum lmc_status status = lmc_salvage_open(&b->salvage, &source, &options);
        if (status != LMC_OK) {
            b->is_damaged = 1; /* not tried again */
            return LMC_ERR_BASE_WRONG;
        }
        if (b->is_damaged)
            say(b->name, "is damaged: %s; what is coded against its intact blocks comes back",
                lmc_status_text(damage));
    }
    return read_found(b, number, offset, dst, size);
}

void forget_intact(struct base *b)
{
    lmc_salvage_free(b->salvage);
    b->salvage = NULL;
}

enum lmc_status read_instead(const struct base *b, size_t number, uint64_t offset, void *dst,
                             size_t size)
{
    const struct base *c = b->instead;
    if (!c && b->salvage) return read_found(b, number, offset, dst, size);
    if (!c || !find_same_file(c, b, &number)) return LMC_ERR_READ;
    return c->source.read(c->source.user, number, offset, dst, size);
}

/* -- replicas -- */

enum lmc_status read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst,
                             size_t size, int *code)
{
    const int error = read_at(r->fd, r->starts[number] + offset, dst, size);
    if (error) *code = fail_scratch(error < 0 ? EIO : error);
    return error ? LMC_ERR_READ : LMC_OK;
}

int make_replica(struct replica *r, const struct archive *a)
{
    const size_t n = snapshot_info(a->reader).n_files;
    struct outlet out = {0};
    int code = open_scratch(a->name, &r->fd);
    if (code != CODE_OK) return code;
    r->is_made = 1;
    r->starts = (uint64_t *)resize(NULL, n + 1, sizeof *r->starts);
    unsigned char *window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    out.fd = r->fd;
    out.is_file = 1;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        r->starts[i] = out.size;
        code = copy_counted(a, i, window, &out, 0);
    }
    if (code == CODE_OK) outlet_finish(&out);
    outlet_drop(&out);
    free(window);
    return out.error ? fail_scratch(out.error) : code;
}

void free_replica(struct replica *r)
{
    if (r->is_made) close(r->fd);
    free(r->starts);
    memset(r, 0, sizeof *r);
}
