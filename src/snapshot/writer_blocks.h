#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/quant_params.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"
#include "snapshot/hashes.h"
#include "snapshot/origin.h"
#include "snapshot/writer_plan.h"
#ifndef LMC_NO_ENCODER

/* How the writer makes blocks from bytes and hands them to the sink.
 *
 *     lmc__write_bytes   caller's memory -+           +-> in place, whole blocks -----+
 *                                         |           |                               |
 *     lmc__write_stream  in[0] <-> in[1] -+-> spans --+                               +-> jobs
 *                                                     |                               |
 *                                                     +-> carry: blocks that are cut -+
 *
 *     jobs -> wave -> out[0] <-> out[1] -> sink
 *
 * The caller's memory may change while it is coded; each block is then still consistent
 * (lmc__encode_snapshot_task). A file of unknown size is cut into runs of LMC__PENDING_SIZE,
 * because a RUN section says how many bytes follow.
 *
 * Each block has a slot in `out`, as large as the block may become. So sections and blocks of a
 * wave are in order, with gaps between them, and are written as parts. A run's section is in front
 * of its first block (head_size). */

#define LMC__PENDING_SIZE ((size_t)16 << 20) /* runs of files of unknown size */
#define LMC__MIN_SPAN_SIZE (3 * LMC__WAVE_SIZE)

/* Writes directly to the sink, after the parts that wait. */
static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    LMC__TRY(w->coder.sink.write(w->coder.sink.user, data, size));
    w->offset += size;
    return LMC_OK;
}

/* Writes body as a section, without an entry in the index. Call this only when no wave is planned:
 * blocks of a planned wave belong before the section, but would be written after it. */
static enum lmc_status lmc__write_body(lmc_writer *w, const char *kind, const lmc__buffer *body)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    lmc__put_section_header(head, kind, body->data, body->size, w->coder.wave.k);
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, body->data, body->size);
}

/* Writes body as a section, and adds its entry to the index. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind, const lmc__buffer *body)
{
    const uint64_t size = body->size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__index_section(&w->index, kind, body->data, size));
    return lmc__write_body(w, kind, body);
}

LMC__COLD static enum lmc_status lmc__write_run_head(lmc_writer *w)
{
    lmc__buffer *const head = &w->run_head;
    head->size = 0;
    LMC__TRY(lmc__append(head, NULL, LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__append_run(head, &w->run));
    lmc__put_section_header(head->data, "RUN ", head->data + LMC__SECTION_HEADER_SIZE,
                            head->size - LMC__SECTION_HEADER_SIZE, w->coder.wave.k);
    return LMC_OK;
}

/* How much of a block is compared with the prediction: number of pieces, and bytes of each. */
#define LMC__COMPARED_PIECES 16u
#define LMC__COMPARED_SIZE 4096u

/* Enlarges the run's blocks if the run is a sparse delta: in samples of its first block, at data,
 * fewer than one element in 32 has changed. The headers, tables and classes of small blocks would
 * be large compared with so few changes. The run's section is not written yet. */
LMC__COLD static enum lmc_status lmc__choose_run_blocks(lmc_writer *w, const uint8_t *data)
{
    const unsigned width = lmc_dtype_width(w->dtype);
    const size_t step = w->run.block_size / LMC__COMPARED_PIECES,
                 per_piece = LMC__COMPARED_SIZE / width;
    uint8_t base[LMC__COMPARED_SIZE];
    size_t piece, i, n_changed = 0;
    w->may_enlarge = 0;
    if (step < LMC__COMPARED_SIZE) return LMC_OK;
    for (piece = 0; piece < LMC__COMPARED_PIECES; piece++) {
        const uint8_t *const src = data + piece * step;
        LMC__TRY(lmc__read_prediction(&w->origin, &w->run, piece * step, base, sizeof base));
        for (i = 0; i < per_piece; i++)
            n_changed += memcmp(src + i * width, base + i * width, width) != 0;
    }
    if (n_changed * 32 >= LMC__COMPARED_PIECES * per_piece) return LMC_OK;
    w->run.block_size <<= LMC__SPARSE_MORE_LOG2;
    LMC__TRY(lmc__write_run_head(w));
    return lmc__set_coder(&w->coder, w->run.block_size, width, 0);
}

/* Encodes the planned wave, and writes the parts of the previous wave at the same time. Then the
 * digester and the index get the sums and sizes of the new blocks, in order. These blocks become
 * parts, which are written while the next wave is encoded. */
static enum lmc_status lmc__encode_wave(lmc_writer *w)
{
    lmc__coder *c = &w->coder;
    const size_t n = c->n_jobs;
    uint64_t size = 0;
    size_t i, k;
    if (n == 0) return LMC_OK;
    /* so that reading takes no longer than coding */
    c->read_portion = c->out[c->out_number].size * c->read_per_coded;
    LMC__TRY(lmc__run_step(c));
    for (i = 0; i < n; i++) {
        const lmc__snapshot_job *const block_job = lmc__job_at(c, i);
        const lmc__job *const job = &block_job->job;
        const size_t head_size = block_job->head_size;
        const uint8_t *start = job->dst - head_size,
                      *content = block_job->content ? block_job->content : job->src;
        if (block_job->n_pieces) /* the index may have moved */
            lmc__index_fingerprints(&w->index, &w->digester);
        for (k = 0; k < block_job->n_pieces; k++) {
            const lmc__piece *const piece = lmc__piece_at(c, block_job, k);
            lmc__absorb_piece(&w->digester, piece, content);
            content += piece->size;
        }
        if (head_size)
            LMC__TRY(lmc__index_section(&w->index, "RUN ", start + LMC__SECTION_HEADER_SIZE,
                                        head_size - LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__index_block(&w->index, job->dst_size, job->dst));
        if (w->options.read_back)
            LMC__TRY(lmc__append(&w->block_crcs, job->dst + LMC__CONTENT_CRC_AT, 4));
        LMC__TRY(lmc__add_part(c, start, head_size + job->dst_size));
        w->offset += head_size + job->dst_size;
        size += job->src_size;
        if (!block_job->has_base || !(job->dst[2] & LMC__PREDICTED)) continue;
        w->info.from_base_size += job->src_size;
        w->info.from_base_encoded_size += job->dst_size;
    }
    w->contents.size = c->pieces.size = 0;
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return lmc__report_progress(c, size);
}

/* Begins the run of the next bytes (lmc__plan_run). */
LMC__COLD static enum lmc_status lmc__begin_run(lmc_writer *w, const uint8_t *data,
                                                size_t available)
{
    lmc__run *const run = &w->run;
    LMC__TRY(lmc__plan_run(w, data, available));
    if (w->n_runs == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__write_run_head(w));
    LMC__TRY(lmc__add_run(&w->origin, run));
    LMC__TRY(lmc__set_coder(&w->coder, run->block_size, lmc_dtype_width(w->dtype), 0));
    w->n_runs++;
    w->block = 0;
    w->may_enlarge = w->options.log2_block == 0 && !w->quant && w->dtype != LMC_AUTO &&
                     run->prediction == LMC__PREDICT_BASE && run->size > run->block_size;
    w->run_left = run->size;
    w->position += run->size;
    return run->prediction == LMC__PREDICT_OWN && !lmc__is_encoded(w) ? lmc__encode_wave(w)
                                                                      : LMC_OK;
}

/* Makes room in `out` for the whole wave, because jobs point into it. A sixteenth is added for the
 * headers of many small blocks, and for RUN sections that are not long. */
static enum lmc_status lmc__begin_wave(lmc_writer *w, lmc__buffer *out, size_t head_size)
{
    lmc__coder *const c = &w->coder;
    const uint64_t size = lmc__get_wave_size(c, w->run.block_size);
    LMC__TRY(lmc__reserve(out, size + size / 16 + (head_size & ~(size_t)4095)));
    /* A prediction is not larger than its slot, so this is enough for all runs of the wave. */
    if (w->origin.base || w->origin.read_back || w->run.prediction != LMC__PREDICT_ZERO)
        LMC__TRY(lmc__reserve(&c->base, out->cap));
    return w->options.content_hashes && (w->options.may_quantize || w->is_callers)
               ? lmc__reserve(&w->contents, out->cap)
               : LMC_OK;
}

/* Makes a job from the next block of the run, of size bytes. data must stay until the wave is
 * encoded. The prediction is read now, because workers never call callbacks of the base. */
static enum lmc_status lmc__plan_block(lmc_writer *w, const uint8_t *data, size_t size)
{
    lmc__coder *const c = &w->coder;
    const uint64_t at = w->run.size - w->run_left; /* where the block begins in the run */
    const size_t head_size = w->block == 0 ? w->run_head.size : 0,
                 slot = head_size + lmc_block_bound(size);
    lmc__buffer *out = &c->out[c->out_number];
    lmc__snapshot_job *block_job;
    lmc__job *job;
    if (c->n_jobs && slot > out->cap - out->size) {
        LMC__TRY(lmc__encode_wave(w));
        out = &c->out[c->out_number];
    }
    if (c->n_jobs == 0) {
        LMC__TRY(lmc__begin_wave(w, out, head_size));
        w->wave_start = w->run.start + at;
    }
    if (w->block == 0 && w->options.read_back) { /* for lmc__read_written */
        const lmc__written_run written = {{w->run.stream, w->run.start, w->run.start + w->run.size},
                                          w->block_crcs.size / 4 + c->n_jobs,
                                          w->run.block_size};
        LMC__TRY(lmc__append(&w->written, &written, sizeof written));
    }
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    if (w->run.prediction != LMC__PREDICT_ZERO) {
        uint8_t *const base = c->base.data + c->base.size;
        c->base.size += size;
        const enum lmc_status status = lmc__read_prediction(&w->origin, &w->run, at, base, size);
        if (status == LMC_OK) job->base = base;
        else if (status != LMC_ERR_CHANGED || w->quant) return status;
        /* else the predicting bytes have changed, and predict nothing */
    }
    if (head_size) memcpy(out->data + out->size, w->run_head.data, head_size);
    block_job->head_size = head_size;
    block_job->may_change = w->is_callers;
    block_job->has_base = w->run.prediction == LMC__PREDICT_BASE;
    if ((w->quant || w->is_callers) && w->options.content_hashes) {
        block_job->content = w->contents.data + w->contents.size;
        w->contents.size += size;
    }
    job->src = data;
    job->src_size = size;
    job->dst = out->data + out->size + head_size;
    job->dst_size = slot - head_size;
    job->dtype = w->dtype;
    job->level = w->options.level;
    job->is_ungrouped = !(w->header[LMC__FEATURES_AT] & (LMC_FEATURE_BASE | LMC_FEATURE_OWN));
    job->without = ~(uint64_t)w->header[LMC__FEATURES_AT];
    job->quant = w->quant;
    job->row_size = w->row_size;
    if (w->quant || w->row_size) /* the run is one tensor, or a part of one */
        job->first_element =
            (w->run.start + at - w->file->tensors[w->next].offset) / lmc_dtype_width(w->dtype);
    job->number = w->block++;
    out->size += slot;
    w->run_left -= size;
    return w->in_group ? LMC_OK : lmc__plan_pieces(c, &w->digester, block_job, size);
}

/* Plans blocks of the next bytes, and begins runs when needed. *rest: bytes at the end that make no
 * whole block. data must stay until the wave is encoded. */
static enum lmc_status lmc__plan_blocks(lmc_writer *w, const uint8_t *data, size_t size,
                                        size_t *rest)
{
    while (size != 0) {
        size_t n;
        if (size < w->header_size) break;
        if (w->run_left == 0) LMC__TRY(lmc__begin_run(w, data, size));
        n = (size_t)lmc__min64(w->run.block_size, w->run_left);
        if (n > size) break;
        if (w->may_enlarge) {
            LMC__TRY(lmc__choose_run_blocks(w, data));
            continue;
        }
        LMC__TRY(lmc__plan_block(w, data, n));
        data += n;
        size -= n;
    }
    *rest = size;
    return LMC_OK;
}

/* Takes the file's next bytes. If the file waits in a group, they are copied and absorbed.
 *
 * Else they become blocks. `carry` has the first block's beginning, and data fills it up to a whole
 * block (a larger one if the run chooses so); later blocks are coded in place. data is valid only
 * until this returns, so even a small wave is encoded. The rest is copied to carry. But a rest of
 * at most `room` bytes is copied in front of the next read, for the next call; *kept: its size. */
static enum lmc_status lmc__write_span(lmc_writer *w, const uint8_t *data, size_t size, size_t room,
                                       size_t *kept)
{
    const int is_unknown = lmc__is_size_unknown(w);
    size_t rest = w->carry.size, n;
    if (size > w->left) return is_unknown ? LMC_ERR_LIMIT : LMC_ERR_ARGUMENT;
    w->left -= size;
    if (w->is_waiting) {
        LMC__TRY(lmc__append(&w->group, data, size));
        lmc__absorb_bytes(&w->digester, w->coder.wave.k, w->group.data + w->group.size - size,
                          size);
        return LMC_OK;
    }
    while (rest) {
        const size_t whole = is_unknown       ? LMC__PENDING_SIZE
                             : w->header_size ? w->header_size
                                              : (size_t)lmc__min64(w->run.block_size, w->run_left),
                     missing = whole - w->carry.size;
        LMC__TRY(lmc__reserve(&w->carry, missing));
        n = lmc__min(size, missing);
        LMC__TRY(lmc__append(&w->carry, data, n));
        if (n < missing) return LMC_OK;
        data += n;
        size -= n;
        LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
        if (rest == 0 || rest == w->carry.size) continue;
        /* the header's last block goes on after the header: carry lacks its end */
        LMC__TRY(lmc__encode_wave(w));
        memmove(w->carry.data, w->carry.data + w->carry.size - rest, rest);
        w->carry.size = rest;
    }
    for (; size != 0 && rest == 0; data += n - rest, size -= n - rest) {
        n = is_unknown ? LMC__PENDING_SIZE : size;
        if (n > size) break;
        LMC__TRY(lmc__plan_blocks(w, data, n, &rest));
    }
    if (size && size <= room) {
        w->coder.rest = data;
        w->coder.rest_size = *kept = size;
        w->left += size;
        size = 0;
    }
    LMC__TRY(lmc__encode_wave(w));
    w->carry.size = 0;
    return lmc__append(&w->carry, data, size);
}

static enum lmc_status lmc__write_bytes(lmc_writer *w, const uint8_t *data, size_t size)
{
    if (!w->in_file || (!data && size)) return LMC_ERR_ARGUMENT;
    if (size == 0) return LMC_OK;
    w->is_callers = 1;
    LMC__TRY(lmc__write_span(w, data, size, 0, NULL));
    w->is_callers = 0;
    return LMC_OK;
}

/* Where in a buffer a stream's bytes are read to. At least LMC__REST_ROOM bytes before it are for
 * the rest of the previous read. The place begins a cache line: memory of malloc often begins 8 to
 * 31 bytes after a page's start, and some OS kernels on x86-64 copy to such places more slowly. */
#define LMC__REST_ROOM LMC__WAVE_SIZE
#define LMC__PORTION_ROOM (LMC__REST_ROOM + LMC__LINE)
static uint8_t *lmc__portion_at(const lmc__buffer *b)
{
    return b->data + LMC__PORTION_ROOM - (uintptr_t)b->data % LMC__LINE;
}

/* Reads a stream in spans of one wave, so that their bytes stay in the caches; at least
 * LMC__MIN_SPAN_SIZE, as smaller spans cut blocks often. The first reads are smaller (`limit`). */
static enum lmc_status lmc__write_stream(lmc_writer *w, const lmc_stream *stream)
{
    lmc__coder *const c = &w->coder;
    const int is_unknown = lmc__is_size_unknown(w),
              may_predict = w->options.base || w->origin.read_back || w->options.may_quantize;
    const size_t block =
        lmc__get_block_size(LMC_U64, lmc__limit_log2_block(LMC_U64, w->options.log2_block),
                            may_predict)
        << (w->options.base && w->options.log2_block == 0 ? LMC__SPARSE_MORE_LOG2 : 0);
    const uint64_t wave = lmc__get_wave_size(c, block),
                   known = wave < LMC__MIN_SPAN_SIZE ? LMC__MIN_SPAN_SIZE : wave,
                   span = is_unknown ? LMC__PENDING_SIZE : known;
    uint64_t left = w->left,
             limit = is_unknown ? span : LMC__FIRST_READ_SIZE; /* of the next read */
    unsigned number = 0;
    size_t kept = 0;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    if (span > SIZE_MAX / 4) return LMC_ERR_SIZE;
    c->stream = *stream;
    c->ended = 0;
    LMC__TRY(lmc__reserve(&c->in[0], span + LMC__PORTION_ROOM));
    lmc__want(c, lmc__portion_at(&c->in[0]), (size_t)lmc__min64(limit, lmc__min64(span, left)));
    while (c->read_size != 0) {
        const uint8_t *const data = c->read_to;
        lmc__buffer *const next = &c->in[number ^= 1];
        size_t size, before = kept;
        c->read_portion = c->read_size; /* the first span, or the bytes that no step has read */
        lmc__read_portion(c);
        LMC__TRY(c->read_status);
        size = c->read_got;
        left -= size;
        limit = lmc__min64(4 * limit, span);
        LMC__TRY(lmc__reserve(next, span + LMC__PORTION_ROOM));
        lmc__want(c, lmc__portion_at(next), c->ended ? 0 : (size_t)lmc__min64(limit, left));
        c->read_per_coded = size ? (c->read_size + size - 1) / size : 1;
        kept = 0;
        if (size + before)
            LMC__TRY(lmc__write_span(w, data - before, size + before,
                                     c->read_size ? LMC__REST_ROOM : 0, &kept));
    }
    lmc__want(c, NULL, 0);
    return is_unknown && left == 0 ? LMC_ERR_LIMIT : LMC_OK;
}
#endif /* LMC_NO_ENCODER */
