/* SPDX-License-Identifier: MIT */
#include "recoding.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../choose/members.h"
#include "../choose/quantise.h"
#include "../choose/record.h"
#include "../choose/twins.h"
#include "../format/tensors.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/damage.h"
#include "../input/links.h"
#include "../sys/memory.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/search.h"
#include "writer.h"

/* Bytes that are decoded at once, each block once for large tensors: these are runs of their own,
 * and whole windows of them whole blocks. */
#define RECODE_WINDOW ((size_t)16 << 20)

/* What a writer holds in memory of a section that is taken along. */
#define MOST_OF_A_SECTION ((uint64_t)64 << 20)

/* What is read next: up to the last tensor that begins within a window. */
static size_t choose_window(const lmc_file *f, uint64_t at)
{
    uint64_t end;
    if (f->size - at <= RECODE_WINDOW) return (size_t)(f->size - at);
    end = at + RECODE_WINDOW;
    for (size_t i = f->n_tensors; i-- > 0;)
        if (f->tensors[i].offset <= at + RECODE_WINDOW) {
            if (f->tensors[i].offset > at) end = f->tensors[i].offset;
            break;
        }
    return (size_t)(end - at);
}

static int recode_member(struct members *m, size_t number, unsigned char *window,
                         lmc_writer *writer, const struct output *out, const struct common *o)
{
    struct archive *a = m->archive;
    const struct member *member = &m->list[number];
    lmc_file file = *lmc_reader_get_file(a->reader, member->number);
    enum lmc_status status;
    uint32_t crc = 0;
    file.tensors = member->tensors;
    file.twin = member->whole.twin;
    status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    for (uint64_t at = 0; at < file.size && status == LMC_OK;) {
        size_t size = choose_window(&file, at);
        status = read_counted(a, member->number, at, window, size);
        if (status != LMC_OK) return fail_damage(a, status, member->number, at);
        crc = lmc_crc32c(crc, window, size);
        status = lmc_writer_write(writer, window, size);
        at += size;
        progress_add(size);
    }
    if (status == LMC_OK && crc != file.crc) return fail_status(a->name, LMC_ERR_CORRUPT);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_ERR_READ) /* of a base or a twin, which has said so */
        return worse(o->bases->code, m->code);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, a->name);
}

/* The tensor of a member that begins there; NULL: none does. */
static struct choice *find_choice_at(const struct members *m, size_t number, uint64_t offset)
{
    const struct member *member = number < m->n ? &m->list[number] : NULL;
    size_t low;
    FIND_FIRST(low, member ? member->n_tensors : 0,
               member->tensors[low].offset + member->tensors[low].size <= offset);
    return member && low < member->n_tensors && member->tensors[low].offset == offset
               ? &member->choices[low]
               : NULL;
}

/* What was quantised is coded again with what it was quantised by: it is as small, and nothing more
 * is lost. */
static int read_quantizer(struct members *m, struct choice *c)
{
    struct archive *a = m->archive;
    lmc_twin second;
    enum lmc_status status;
    memset(&second, 0, sizeof second);
    second.file_number = SIZE_MAX;
    status = lmc_reader_recover_quantizer(a->reader, m->list[c->member].number, c->tensor,
                                          &c->quantizer, &second);
    if (status != LMC_OK) return fail_archive(a, status);
    if (second.file_number == SIZE_MAX) return CODE_OK;
    c->partner = find_choice_at(m, second.file_number, second.offset);
    if (!c->partner) { /* no tensor stands there; what can do without is stored as it is */
        lmc_quantizer_free(c->quantizer);
        c->quantizer = NULL;
        return CODE_OK;
    }
    c->has_second = c->is_wanted = m->has_pairs = 1;
    c->meaning.role = ROLE_M;
    return CODE_OK;
}

/* Before the members are ordered. */
static int read_quantizers(struct members *m)
{
    int code = CODE_OK, any = 0;
    for (size_t i = 0; i < m->n; i++)
        any |= count_lossy(lmc_reader_get_file(m->archive->reader, i)) != 0;
    if (any) make_choices(m);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && code == CODE_OK; k++)
            if (m->list[i].tensors[k].loss.generation)
                code = read_quantizer(m, &m->list[i].choices[k]);
    return code;
}

/* When it is known where all will stand. */
static void attach_quantizers(struct members *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++) {
            struct choice *c = &m->list[i].choices[k];
            if (is_quantised(c) &&
                (!c->has_second || (c->partner->member < i && !c->partner->tensor->twin)))
                attach_quantizer(&m->list[i].tensors[k], c);
        }
}

/* Keys of the format (spec 8.3) tell of the old file, or what a newer lmc meant by them, but for
 * these: what the tensors have lost by which rules, the links, and where they came from. */
static int is_kept(const char *key)
{
    return strncmp(key, "lmc.", 4) != 0 || strcmp(key, POLICY_KEY) == 0 ||
           strcmp(key, LINKS_KEY) == 0 || strcmp(key, "lmc.source") == 0;
}

static int copy_all_metadata(const struct archive *a, lmc_writer *writer, const struct output *out)
{
    const char *key;
    const void *value;
    size_t size;
    enum lmc_status status = LMC_OK;
    for (size_t i = 0;
         status == LMC_OK && lmc_reader_get_metadata(a->reader, i, &key, &value, &size) == LMC_OK;
         i++)
        if (is_kept(key)) status = lmc_writer_add_metadata(writer, key, value, size);
        else if (strcmp(key, BASE_KEY) != 0)
            say(a->name, "its metadata '%s' tells of the old file, and is left out", key);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* Sections and records of who knows more than this program: those of content only are taken along,
 * and what is not is told (R4-56). The writer makes hashes anew. */
static int copy_sections(const struct archive *a, lmc_writer *writer, const struct output *out)
{
    char kind[5];
    uint64_t size;
    enum lmc_status status = LMC_OK;
    for (size_t i = 0; lmc_reader_get_section(a->reader, i, kind, &size) == LMC_OK; i++) {
        void *body;
        if (strcmp(kind, "hash") == 0) continue;
        if ((kind[3] >= 'A' && kind[3] <= 'Z') || size > MOST_OF_A_SECTION) {
            say(a->name, "its section '%s' is %s, and is left out", kind,
                size > MOST_OF_A_SECTION ? "too large" : "of the old file");
            continue;
        }
        body = resize(NULL, (size_t)size + 1, 1);
        status = lmc_reader_read_section(a->reader, i, body, (size_t)size);
        if (status != LMC_OK) {
            free(body);
            return fail_archive(a, status);
        }
        status = lmc_writer_add_section(writer, kind, body, (size_t)size);
        free(body);
        if (status != LMC_OK) return fail_writer(status, out, output_name(out));
    }
    if (snapshot_info(a->reader).has_records)
        say(a->name, "has extension records, which this lmc does not know; they are left out");
    return CODE_OK;
}

int recode_archive(struct archive *a, const struct base *base, struct output *out,
                   const struct attributes *attributes, const char *name,
                   const struct coding *coding, const struct common *o, int *is_useless)
{
    struct members m;
    struct base_use use;
    lmc_writer *writer = NULL;
    unsigned char *window;
    uint64_t total = 0;
    double start = now();
    char *shown =
        copy_string(name ? name : output_name(out), strlen(name ? name : output_name(out)));
    int code = CODE_OK;
    memset(&m, 0, sizeof m);
    m.coding = coding;
    m.archive = a;
    m.n = snapshot_info(a->reader).n_files;
    m.list = (struct member *)resize(NULL, m.n, sizeof *m.list);
    memset(m.list, 0, m.n * sizeof *m.list);
    for (size_t i = 0; i < m.n; i++) {
        const lmc_file *f = lmc_reader_get_file(a->reader, i);
        m.list[i].path = f->path;
        m.list[i].number = i;
        m.list[i].n_tensors = f->n_tensors;
        m.list[i].tensors = copy_tensors(f->tensors, f->n_tensors);
        total += f->size;
    }
    progress_start(a->name, total);
    code = read_quantizers(&m);
    if (code == CODE_OK && out->is_file && !coding->no_twins) code = find_twins(&m);
    attach_quantizers(&m);
    if (code == CODE_OK) code = open_snapshot(&writer, out, &m, base, o);
    if (code == CODE_OK) code = copy_all_metadata(a, writer, out);
    if (code == CODE_OK) code = copy_sections(a, writer, out);
    window = (unsigned char *)resize(NULL, RECODE_WINDOW, 1);
    for (size_t i = 0; i < m.n && code == CODE_OK; i++)
        code = recode_member(&m, i, window, writer, out, o);
    free(window);
    code = finish_snapshot(code, writer, out, &m, &use, o);
    if (is_useless)
        *is_useless = code == CODE_OK && base && use.is_measured && use.predicted_size == 0;
    if (is_useless && *is_useless && out->held >= 0) close(take_held(out));
    else if (is_useless && *is_useless) discard_output(out);
    else if (code == CODE_OK) code = commit_output(out, attributes);
    progress_clear();
    if (code == CODE_OK && !(is_useless && *is_useless))
        say_sizes(o, shown, total, out->outlet.size, total, start);
    free(shown);
    free_members(&m);
    return code;
}
