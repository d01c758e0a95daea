/* SPDX-License-Identifier: MIT */
#include "recode.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../choose/members.h"
#include "../choose/policy.h"
#include "../choose/quantise.h"
#include "../choose/record.h"
#include "../choose/twins.h"
#include "../format/tensors.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/links.h"
#include "../job/writer.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/report.h"

/* Bytes that are decoded at once, each block once for large tensors: these are runs of their own,
 * and whole windows of them whole blocks. */
#define RECODE_WINDOW ((size_t)16 << 20)

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
    status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    for (uint64_t at = 0; at < file.size && status == LMC_OK;) {
        size_t size = choose_window(&file, at);
        status = lmc_reader_read_file(a->reader, member->number, at, window, size);
        if (status != LMC_OK) return fail_archive(a, status);
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
    size_t low = 0, high = member ? member->n_tensors : 0;
    while (low < high) { /* the first that does not end before */
        size_t middle = low + (high - low) / 2;
        if (member->tensors[middle].offset + member->tensors[middle].size <= offset)
            low = middle + 1;
        else high = middle;
    }
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

/* Keys of the format (spec 10.2) tell of the old file, or what a newer lmc meant by them, but for
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

/* The open snapshot to the open output; this is closed on return. */
static int recode_archive(struct archive *a, const struct base *base, struct output *out,
                          const struct recode_options *o)
{
    struct attributes attributes = attributes_of_stat(&a->st);
    struct members m;
    lmc_writer *writer = NULL;
    unsigned char *window;
    uint64_t total = 0;
    double start = now();
    char *name = copy_string(output_name(out), strlen(output_name(out)));
    int code = CODE_OK;
    memset(&m, 0, sizeof m);
    m.coding = &o->coding;
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
    if (code == CODE_OK && out->temporary && !o->coding.no_twins) code = find_twins(&m);
    attach_quantizers(&m);
    if (code == CODE_OK) code = open_snapshot(&writer, out, &m, base, &o->common);
    if (code == CODE_OK) code = copy_all_metadata(a, writer, out);
    window = (unsigned char *)resize(NULL, RECODE_WINDOW, 1);
    for (size_t i = 0; i < m.n && code == CODE_OK; i++)
        code = recode_member(&m, i, window, writer, out, &o->common);
    free(window);
    code = complete_snapshot(code, writer, out, &attributes, &m, &o->common);
    progress_clear();
    if (code == CODE_OK) say_sizes(&o->common, name, total, out->outlet.size, total, start);
    free(name);
    free_members(&m);
    return code;
}

/* NULL: no base is called so. */
static struct base *find_base_named(const char *name, const struct common *o)
{
    for (size_t i = 0; i < o->bases->n; i++)
        if (strcmp(o->bases->list[i].name, name) == 0) return &o->bases->list[i];
    return NULL;
}

/* What the open snapshot is to be coded against. It must not need the snapshot's own file: once
 * that has given way to the new one, neither could be restored. */
static int prepare_onto(struct base *onto, const struct archive *a, const struct common *o)
{
    int code = prepare_base(onto, o);
    for (const struct base *b = onto; b && code == CODE_OK; b = b->below)
        if (b->is_archive && same_file(&b->archive.st, &a->st))
            code = fail(CODE_BASE, onto->name,
                        "%s %s, which cannot be coded against it; choose another base",
                        b == onto ? "is" : "is a delta that needs", a->name);
    return code;
}

int recode_snapshot(const char *tip, const char *onto, const char *output,
                    const struct recode_options *o)
{
    struct archive a;
    struct output out;
    struct base *base = onto ? find_base_named(onto, &o->common) : NULL;
    const lmc_base *own;
    int code;
    if (onto && !base) return fail(CODE_BASE, onto, "is none of the bases that are given");
    code = open_archive_file(&a, tip, &o->common);
    if (code == CODE_OK && output) code = check_output(output, &a.st, o->common.force);
    if (code == CODE_OK) code = protect_bases(NULL, output, 0, &o->common);
    if (code == CODE_OK) code = find_base_of_archive(&a, &own, &o->common);
    if (code == CODE_OK) code = read_archive_index(&a, own);
    if (code == CODE_OK && base) code = prepare_onto(base, &a, &o->common);
    if (code == CODE_OK) code = open_output(&out, output, &a.st, o->common.force);
    if (code == CODE_OK) code = recode_archive(&a, base, &out, o);
    close_archive(&a);
    return code;
}

/* -- fold -- */

static int holds_base(const struct base *list, size_t n, const struct base *b)
{
    struct stat st, other;
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, b->name) == 0 ||
            (stat(list[i].name, &st) == 0 && stat(b->name, &other) == 0 && same_file(&st, &other)))
            return 1;
    return 0;
}

/* The delta of that identity; NULL: none. */
static struct base *find_delta(const uint8_t *identity, struct base *deltas, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(deltas[i].identity, identity, LMC_IDENTITY_SIZE) == 0) return &deltas[i];
    return NULL;
}

/* By another one: what restores its own base does not need itself. */
static int is_needed(const struct base *delta, const struct base *deltas, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (&deltas[i] != delta &&
            memcmp(deltas[i].archive.wanted, delta->identity, LMC_IDENTITY_SIZE) == 0)
            return 1;
    return 0;
}

static int open_deltas(struct base *deltas, size_t n, const struct common *o)
{
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        int code = stat(deltas[i].name, &st) == 0
                       ? open_base(&deltas[i], o)
                       : fail_errno(deltas[i].name, errno, "cannot open it");
        if (code == CODE_OK && !deltas[i].is_archive)
            code = fail(CODE_USAGE, deltas[i].name,
                        "is no " SUFFIX " file, and 'lmc fold' takes deltas");
        if (code == CODE_OK) code = identify_base(&deltas[i], o);
        if (code == CODE_OK && deltas[i].archive.chain_depth == 0)
            code = fail(CODE_USAGE, deltas[i].name,
                        "is no delta but a whole snapshot; if the others are made against it, name "
                        "it with --base");
        if (code == CODE_OK && find_delta(deltas[i].identity, deltas, i))
            code = fail(CODE_USAGE, deltas[i].name, "is the same snapshot as %s; give one of them",
                        find_delta(deltas[i].identity, deltas, i)->name);
        if (code != CODE_OK) return code;
    }
    return CODE_OK;
}

/* That every delta has its base among the deltas or the other bases. */
static int check_links(struct base *deltas, size_t n, const struct common *o)
{
    const int is_closed = o->bases->is_closed;
    int code = CODE_OK;
    o->bases->is_closed = 1; /* what lies beside them is not folded */
    for (size_t i = 0; i < n && code == CODE_OK; i++)
        if (!find_base(&deltas[i].archive, o, &code) && code == CODE_OK) {
            char *made_with = copy_metadata(&deltas[i].archive, BASE_KEY);
            code = fail_base(deltas[i].name, deltas[i].archive.wanted, made_with, o);
            free(made_with);
        }
    o->bases->is_closed = is_closed;
    return code;
}

/* The only delta that no other one is made against. From there the links lead to all others, unless
 * some form a circle. */
static int find_tip(struct base *deltas, size_t n, struct base **tip)
{
    size_t n_links = 0;
    *tip = NULL;
    for (size_t i = 0; i < n; i++)
        if (!is_needed(&deltas[i], deltas, n)) {
            if (*tip)
                return fail(CODE_USAGE, deltas[i].name,
                            "is no link of the chain that ends in %s; leave one of them out",
                            (*tip)->name);
            *tip = &deltas[i];
        }
    for (const struct base *b = *tip; b && n_links < n;
         b = find_delta(b->archive.wanted, deltas, n))
        n_links++;
    return n_links == n ? CODE_OK
                        : fail(CODE_BASE, deltas->name,
                               "is a delta that needs itself, or another one of them is: the "
                               "deltas form a loop");
}

int fold_deltas(char **paths, size_t n, const char *output, const struct recode_options *o)
{
    size_t n_bases = o->common.bases->n, first = 0;
    struct base *deltas, *tip;
    int code;
    for (size_t i = 0; i < n; i++) add_base(o->common.bases, paths[i]);
    deltas = o->common.bases->list + n_bases;
    while (first < n_bases && holds_base(deltas, n, &o->common.bases->list[first])) first++;
    code = open_deltas(deltas, n, &o->common);
    if (code == CODE_OK && first == n_bases)
        code = fail(CODE_USAGE, NULL,
                    "'lmc fold' wants with --base what the first of the deltas is made against");
    if (code == CODE_OK) code = check_links(deltas, n, &o->common);
    if (code == CODE_OK) code = find_tip(deltas, n, &tip);
    return code == CODE_OK
               ? recode_snapshot(tip->name, o->common.bases->list[first].name, output, o)
               : code;
}

/* -- rebase -- */

int rebase_snapshot(const char *path, const char *onto, const char *output,
                    const struct recode_options *o)
{
    if (strcmp(onto, "none") == 0) onto = NULL;
    if (onto && !find_base_named(onto, &o->common)) add_base(o->common.bases, onto);
    return recode_snapshot(path, onto, output, o);
}
