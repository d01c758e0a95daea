#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/files.h"
#include "snapshot/put_files.h"
#include "snapshot/index_entries.h"
#include "snapshot/hashes.h"
#include "snapshot/origin.h"
#include "snapshot/writer_plan.h"
#include "snapshot/writer_blocks.h"
#ifndef LMC_NO_ENCODER

/* Groups of small files, which share a FILE section and runs (spec 4.1).
 *
 *     each its own   | FILE | RUN | block | FILE | RUN | block | FILE | RUN | block | ...
 *     a group        | FILE: 3 files | RUN | block |
 *
 * Two sections and a block take about 250 bytes and a tree. In a group, a file takes only its
 * entry, the entry's copy in the index, and its fingerprint. The section comes before the bytes and
 * has the sizes of all files, so small files wait in memory:
 *     begin_file   the file is listed and checked, as a stream of its own; it keeps its number
 *     write        the bytes are appended to w->group, and absorbed
 *     end_file     the facts are kept; if the group is full, lmc__write_group is called
 *     other file, finish: lmc__write_group joins the streams; writes section, runs and blocks
 *
 * A group cannot be restored over the base, because its blocks may have bytes of several files
 * (in_place.h). So with a base files are grouped only after the first file that the base lacks. */

/* A group is written when it has this many bytes, or files. */
#define LMC__GROUP_SIZE ((size_t)4 << 20)
#define LMC__GROUP_FILES 65536u

/* Whether the file is to wait. It must fit into a block, have no tensors (each begins a run), no
 * hints, no dtype, and no records, which are of a section. The file was not checked yet. */
static int lmc__is_small_file(lmc_writer *w, const lmc_file *file, enum lmc_dtype default_dtype)
{
    if (!w->options.group_files || !file->path || file->n_tensors || w->hints.size ||
        w->file_records.size || default_dtype != LMC_AUTO ||
        file->size >= lmc__get_block_size(LMC_AUTO, w->options.log2_block, 0))
        return 0;
    if (w->origin.base && !lmc__match_item(&w->origin, file->path, file->path, "", file->size))
        w->is_moved = 1;
    return !w->origin.base || w->is_moved || w->options.group_files == LMC_GROUP_ALL;
}

LMC__COLD static enum lmc_status lmc__append_group(lmc__buffer *out, const lmc__listing *l,
                                                   size_t n)
{
    const char *before = "";
    size_t i;
    LMC__TRY(lmc__append_varint(out, n));
    for (i = l->n_files - n; i < l->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        const size_t most = lmc__min(strlen(before), strlen(file->path));
        LMC__TRY(lmc__append_file_entry(out, file, lmc__count_shared(before, file->path, most, 1),
                                        NULL));
        before = file->path;
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__write_group(lmc_writer *w)
{
    lmc__listing *const l = &w->listing;
    const uint8_t *facts = w->group_facts.data;
    size_t i, rest = 0;
    if (w->n_waiting == 0) return LMC_OK;
    w->body.size = 0;
    LMC__TRY(lmc__append_group(&w->body, l, w->n_waiting));
    /* The files' streams become one. The files keep their numbers, and were checked before. */
    for (i = 0; i < w->n_waiting; i++) lmc__remove_stream(l);
    LMC__TRY(lmc__parse_stream(l, w->body.data, w->body.size));
    LMC__TRY(lmc__write_section(w, "FILE", &w->body));
    LMC__TRY(lmc__grow_index(&w->index, &w->index.entries, facts, w->group_facts.size));
    w->next = l->n_files - w->n_waiting;
    for (i = w->next; i < l->n_files; i++) {
        lmc_file *const file = &lmc__listed_at(l, i)->file;
        file->crc = lmc__load32(facts);
        lmc__keep_fingerprints(file, facts + 4);
        facts += 4 + LMC_FINGERPRINT_SIZE;
    }
    w->in_group = 1;
    w->position = w->run_left = 0;
    if (w->group.size) LMC__TRY(lmc__plan_blocks(w, w->group.data, w->group.size, &rest));
    LMC__TRY(lmc__encode_wave(w));
    w->in_group = 0;
    w->n_waiting = w->group.size = w->group_facts.size = 0;
    return LMC_OK;
}

static enum lmc_status lmc__end_waiting(lmc_writer *w)
{
    lmc__digester *const d = &w->digester;
    LMC__TRY(lmc__append(&w->group_facts, NULL, 4 + LMC_FINGERPRINT_SIZE));
    d->fingerprints = w->group_facts.data + w->group_facts.size - LMC_FINGERPRINT_SIZE;
    lmc__finish_digester(d);
    lmc__store32(d->fingerprints - 4, d->file_crc);
    w->n_waiting++;
    w->is_waiting = 0;
    return w->group.size >= LMC__GROUP_SIZE || w->n_waiting >= LMC__GROUP_FILES
               ? lmc__write_group(w)
               : LMC_OK;
}
#endif /* LMC_NO_ENCODER */
