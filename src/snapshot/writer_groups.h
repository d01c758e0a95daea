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

/* Small files, several of which share a FILE section and runs (spec 4.1).
 *
 *     each its own   | FILE | RUN | block | FILE | RUN | block | FILE | RUN | block | ...
 *     a group        | FILE: 3 files | RUN | block |
 *
 * Two sections and a block take some 250 bytes and a tree. In a group a file takes its entry, twice
 * (the index has a copy), and its fingerprint. The section stands before the bytes and tells all
 * sizes, so small files wait in memory:
 *
 *     begin_file -> listed and checked at once, as a stream of its own; keeps its number
 *     write      -> w->group
 *     end_file   -> written if it is full
 *     anything else, finish -> streams are joined to one -> section, facts, runs, blocks
 *
 * A group prevents restoring over the base, where a block goes to one file (in_place.h). So with a
 * base a file that is the base's waits only behind one that is not. */

/* A group is written when it has so many bytes, or files. */
#define LMC__GROUP_SIZE ((size_t)4 << 20)
#define LMC__GROUP_FILES 65536u

/* The file, which was not checked yet, is one to wait: it fits into a block, has no tensors
 * (whose runs begin where they do), and its bytes are to be coded as any others. */
static int lmc__is_small_file(lmc_writer *w, const lmc_file *file, enum lmc_dtype default_dtype)
{
    if (!w->options.group_files || !file->path || file->n_tensors || file->twin ||
        default_dtype != LMC_AUTO ||
        file->size >= lmc__get_block_size(LMC_AUTO, w->options.log2_block, 0))
        return 0;
    if (w->plan.origin.base &&
        !lmc__match_item(&w->plan.origin, file->path, file->path, "", file->size))
        w->is_moved = 1;
    return !w->plan.origin.base || w->is_moved || w->options.group_files > 1;
}

static void lmc__begin_waiting(lmc_writer *w)
{
    w->plan.file = lmc__listed_at(&w->plan.listing, w->plan.listing.n_files - 1)->file;
    w->plan.header_size = 0;
    w->waiting_at = w->group.size;
    w->n_waiting++;
    w->is_waiting = w->in_file = 1;
}

static uint64_t lmc__get_waiting_size(const lmc_writer *w)
{
    return w->plan.file.size - (w->group.size - w->waiting_at);
}

static enum lmc_status lmc__write_waiting(lmc_writer *w, const uint8_t *data, size_t size)
{
    if ((!data && size) || size > lmc__get_waiting_size(w)) return LMC_ERR_ARGUMENT;
    return lmc__append(&w->group, data, size);
}

static enum lmc_status lmc__stream_waiting(lmc_writer *w, const lmc_stream *stream)
{
    if (!stream || !stream->read) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__reserve(&w->group, lmc__get_waiting_size(w)));
    while (lmc__get_waiting_size(w) != 0) {
        const size_t most = (size_t)lmc__get_waiting_size(w); /* less than a block */
        size_t n = 0;
        LMC__TRY(stream->read(stream->user, w->group.data + w->group.size, most, &n));
        if (n > most) return LMC_ERR_READ;
        if (n == 0) break;
        w->group.size += n;
    }
    return LMC_OK;
}

static enum lmc_status lmc__index_waiting(lmc_writer *w, lmc_file *file, const uint8_t *data)
{
    lmc__digester *const d = &w->digester;
    lmc__index_file(&w->index, file);
    lmc__begin_digester(d, file);
    d->fingerprints = lmc__index_fingerprints(&w->index);
    lmc__absorb_bytes(d, w->coder.wave.k, data, (size_t)file->size);
    if (w->options.content_hashes) {
        lmc__begin_hashes(&w->hasher, file);
        LMC__TRY(lmc__hash_content(&w->hasher, data, (size_t)file->size));
        LMC__TRY(lmc__end_hashes(&w->hasher));
    }
    lmc__index_file_end(&w->index, d, file, file->size);
    return LMC_OK;
}

static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind); /* writer.h */

LMC__COLD static enum lmc_status lmc__append_group(lmc__buffer *out, const lmc__listing *l,
                                                   size_t n)
{
    const char *before = "";
    size_t i;
    LMC__TRY(lmc__append_varint(out, n));
    for (i = l->n_files - n; i < l->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        const size_t most = lmc__min(strlen(before), strlen(file->path));
        LMC__TRY(lmc__append_file_entry(out, file, lmc__count_shared(before, file->path, most, 1)));
        before = file->path;
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__write_group(lmc_writer *w)
{
    lmc__listing *const l = &w->plan.listing;
    const lmc__stream *stream;
    size_t i, rest = 0;
    if (w->n_waiting == 0) return LMC_OK;
    w->body.size = 0;
    LMC__TRY(lmc__append_group(&w->body, l, w->n_waiting));
    /* Their streams become one; they keep their numbers, and were checked when they came. */
    for (i = 0; i < w->n_waiting; i++) lmc__remove_stream(l);
    LMC__TRY(lmc__parse_stream(l, w->body.data, w->body.size));
    LMC__TRY(lmc__write_section(w, "FILE"));
    stream = lmc__stream_at(l, l->n_streams - 1);
    LMC__TRY(lmc__index_files(&w->index, l, stream));
    for (i = stream->first_file; i < l->n_files; i++) {
        lmc__listed_file *const f = lmc__listed_at(l, i);
        LMC__TRY(lmc__index_waiting(w, &f->file, w->group.size ? w->group.data + f->start : NULL));
    }
    w->in_group = 1;
    w->plan.position = 0;
    w->run_left = 0;
    if (w->group.size) LMC__TRY(lmc__plan_blocks(w, w->group.data, w->group.size, &rest));
    LMC__TRY(lmc__encode_wave(w));
    w->in_group = 0;
    w->n_waiting = 0;
    w->group.size = 0;
    return LMC_OK;
}

static enum lmc_status lmc__end_waiting(lmc_writer *w)
{
    if (lmc__get_waiting_size(w) != 0) return LMC_ERR_ARGUMENT;
    w->is_waiting = w->in_file = 0;
    return w->group.size >= LMC__GROUP_SIZE || w->n_waiting >= LMC__GROUP_FILES
               ? lmc__write_group(w)
               : LMC_OK;
}
#endif /* LMC_NO_ENCODER */
