/* SPDX-License-Identifier: MIT */
#include "writer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../choose/members.h"
#include "../choose/parts.h"
#include "../choose/record.h"
#include "../choose/shifts.h"
#include "../choose/small_files.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../sys/output.h"
#include "../sys/report.h"

int fail_writer(enum lmc_status status, const struct output *out, const char *name)
{
    return status == LMC_ERR_WRITE ? fail_output(out, out->outlet.error)
                                   : fail_status(name, status);
}

/* A tensor is to be quantised, or was and is coded again: a snapshot's header tells. */
static int may_quantise(const struct members *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; m->list[i].choices && k < m->list[i].n_tensors; k++)
            if (m->list[i].choices[k].is_wanted || m->list[i].choices[k].quantizer) return 1;
    return 0;
}

/* A snapshot that is coded again keeps its hashes, which are of the same bytes. */
static int has_hashes(const struct archive *a)
{
    uint8_t hash[32];
    const lmc_file *const f = a ? lmc_reader_get_file(a->reader, 0) : NULL;
    return f && lmc_reader_read_content_hash(a->reader, 0, f->n_tensors ? f->tensors : NULL,
                                             hash) != LMC_ERR_NOT_FOUND;
}

/* Of an output that is held it is looked whether the base is of use when it has so many bytes, and
 * twice as many, and so on. */
#define FIRST_LOOK_SIZE ((uint64_t)1 << 20)

static int uses_base(const struct output *out)
{
    struct base_use use;
    (void)measure_base_use(&use, out->held);
    return use.predicted_size != 0;
}

/* As lmc_sink asks; user: an output. Its outlet says why it has failed. */
static enum lmc_status write_snapshot(void *user, const void *data, size_t size)
{
    struct output *out = (struct output *)user;
    const uint64_t before = out->outlet.size;
    if (write_output(out, data, size)) return LMC_ERR_WRITE;
    if (out->held < 0 || out->outlet.size < FIRST_LOOK_SIZE ||
        (before ^ out->outlet.size) <= before || /* no higher bit is set than was */
        !uses_base(out))
        return LMC_OK;
    return release_output(out) == 0 ? LMC_OK : LMC_ERR_WRITE;
}

int open_snapshot(lmc_writer **writer, struct output *out, struct members *m,
                  const struct base *base, const struct common *o)
{
    lmc_writer_options options;
    lmc_sink sink;
    enum lmc_status status;
    char *name = base ? name_base(base) : NULL;
    int code = CODE_OK;
    memset(&options, 0, sizeof options);
    options.parallel = &o->parallel;
    options.level =
        m->coding->policy->level != LMC_LEVEL_DEFAULT ? m->coding->policy->level : m->coding->level;
    options.log2_block = m->coding->policy->log2_block;
    options.base = m->base = base ? &base->source : NULL;
    if (base) {
        const size_t n = find_parts(m, &base->source) + find_shifts(m, &base->source, &code);
        if (n && o->verbosity >= 2)
            say(output_name(out),
                "%llu tensors or files are coded against other parts of those of the base",
                (unsigned long long)n);
    }
    if (code != CODE_OK) {
        free(name);
        return code;
    }
    options.read_back = m->twins || m->has_pairs || m->has_gaps ? read_member : NULL;
    options.user = m;
    options.may_quantize = may_quantise(m);
    options.group_files = choose_grouping(m, options.base);
    options.content_hashes = o->hashes || has_hashes(m->archive);
    sink.write = write_snapshot;
    sink.user = out;
    status = lmc_writer_open(writer, &sink, &options);
    if (status == LMC_OK && name)
        status = lmc_writer_add_metadata(*writer, BASE_KEY, name, strlen(name));
    free(name);
    if (status == LMC_OK && m->links.n) {
        size_t size;
        void *links = encode_links(&m->links, &size);
        status = lmc_writer_add_metadata(*writer, LINKS_KEY, links, size);
        free(links);
    }
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* What was written of a snapshot is what its index says that it is: the blocks, each by itself, do
 * not tell. */
static int check_fingerprint(const struct archive *a, const lmc_writer *writer)
{
    lmc_snapshot_info read = snapshot_info(a->reader);
    lmc_writer_info written;
    if (lmc_writer_get_info(writer, &written) == LMC_OK && written.is_finished &&
        memcmp(read.fingerprint, written.fingerprint, LMC_FINGERPRINT_SIZE) == 0)
        return CODE_OK;
    return fail_status(a->name, LMC_ERR_CORRUPT);
}

int finish_snapshot(int code, lmc_writer *writer, struct output *out, const struct members *m,
                    struct base_use *use, const struct common *o)
{
    memset(use, 0, sizeof *use);
    if (code == CODE_OK) code = check_bases(o);
    if (code == CODE_OK) code = protect_bases(NULL, out->path, 0, o);
    if (code == CODE_OK) code = check_members(m);
    if (code == CODE_OK) {
        enum lmc_status status = record_choices(writer, m);
        if (status == LMC_OK) status = lmc_writer_finish(writer);
        if (status != LMC_OK) code = fail_writer(status, out, output_name(out));
        else if (m->archive) code = check_fingerprint(m->archive, writer);
    }
    lmc_writer_free(writer);
    if (code != CODE_OK) discard_output(out);
    else if (out->held >= 0 || out->is_file)
        use->is_measured = measure_base_use(use, out->held >= 0 ? out->held : out->fd) == 0;
    return code;
}
