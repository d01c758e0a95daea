#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/crc32c.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/files.h"
#include "snapshot/reader.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_open.h"
#include "gpu/cuda_plan.h"
#include "gpu/cuda_wave.h"

/* lmc_cuda_read: waves in turns, then the fingerprints of what is whole. */

/* -- fingerprints -- */

/* What sums.cu knows as SumPiece and Sums. */
typedef struct lmc__gpu_piece {
    uint64_t at;
    uint32_t size, reserved;
} lmc__gpu_piece;
typedef struct lmc__gpu_sums {
    uint64_t words;
    uint32_t crc, reserved;
} lmc__gpu_sums;
#define LMC__GPU_SUMS_SHARED (256 * 8 + 5 * 256 * 4)

/* Goes through the leaves of all tensors that lie whole in a part, and of whole files, span by
 * span. Two of these make the same pieces: one plans a batch of sums, the other one takes them. */
typedef struct lmc__cuda_walk {
    size_t next_span;
    uint64_t at, end; /* of the file of the span at hand */
    const lmc__cuda_span *span;
    int is_file;   /* all of the file: it has a CRC, too */
    lmc_file file; /* only those tensors */
    lmc__digester digester;
} lmc__cuda_walk;

/* Where nothing is to be checked, at is end. */
static void lmc__begin_walk(const lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w)
{
    const lmc__cuda_span *const span = lmc__span_at(c, w->next_span++);
    const lmc_cuda_part *const part = &span->part;
    const lmc_file *const f = &lmc__file_at(r, (size_t)part->file_number)->file;
    const uint64_t end = part->offset + part->size;
    size_t first;
    w->span = span;
    w->file = *f;
    w->at = w->end = part->offset;
    w->is_file = part->size == f->size;
    LMC__FIND_FIRST(first, 0, f->n_tensors, f->tensors[first].offset < part->offset);
    if (first) w->file.tensors += first;
    for (w->file.n_tensors = 0; first + w->file.n_tensors < f->n_tensors; w->file.n_tensors++) {
        const lmc_tensor *const t = &w->file.tensors[w->file.n_tensors];
        if (t->offset > end || t->size > end - t->offset) break;
        w->end = t->offset + t->size;
    }
    if (w->is_file) w->end = end;
    if (!part->dst) w->end = w->at;
    lmc__begin_digester(&w->digester, &w->file);
    w->digester.planned = w->at;
}

/* The next piece, at most a leaf; 0: there is none. */
static int lmc__walk_on(const lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w,
                        lmc__piece *piece)
{
    while (w->at == w->end) {
        if (w->next_span == lmc__count_spans(c)) return 0;
        lmc__begin_walk(c, r, w);
    }
    *piece = lmc__plan_piece(&w->digester, (size_t)lmc__min64(w->end - w->at, LMC__LEAF_SIZE));
    w->at += piece->size;
    return 1;
}

/* All pieces of a span were absorbed. */
static enum lmc_status lmc__confirm_span(lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w)
{
    const lmc_cuda_part *const part = &w->span->part;
    const size_t n = lmc__count_fingerprints(&w->file);
    size_t i;
    lmc__finish_digester(&w->digester);
    for (i = 0; i < n; i++) {
        const lmc_tensor *const t = w->file.n_tensors ? &w->file.tensors[i] : NULL;
        if (memcmp(w->digester.fingerprints + LMC_FINGERPRINT_SIZE * i,
                   t ? t->fingerprint : w->file.fingerprint, LMC_FINGERPRINT_SIZE) != 0)
            return lmc__cuda_fail_at(c, r, part->file_number, t ? t->offset : 0, NULL,
                                     LMC_ERR_CORRUPT); /* R8-11 */
    }
    if (w->is_file && w->digester.file_crc != w->file.crc)
        return lmc__cuda_fail_at(c, r, part->file_number, 0, NULL, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Sums of n pieces, whose places are in the table of the first half, to its place behind them. */
static enum lmc_status lmc__sum_on_gpu(lmc_cuda *c, const lmc__gpu_piece *rows, lmc__gpu_sums *sums,
                                       uint32_t n)
{
    const lmc__cu_address gpu_rows = c->halves[0].gpu_table,
                          gpu_sums = gpu_rows + LMC__CUDA_MAX_JOBS * sizeof *rows;
    void *arguments[4];
    arguments[0] = (void *)(uintptr_t)&gpu_rows;
    arguments[1] = &n;
    arguments[2] = (void *)(uintptr_t)&gpu_sums;
    arguments[3] = &c->tables;
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (gpu_rows, rows, n * sizeof *rows, c->stream));
    LMC__CUDA(c, cuLaunchKernel,
              (c->sums, (unsigned)lmc__min64(n, (uint64_t)c->n_multiprocessors * 8), 1, 1,
               LMC__GPU_THREADS, 1, 1, LMC__GPU_SUMS_SHARED, c->stream, arguments, NULL));
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (sums, gpu_sums, n * sizeof *sums, c->stream));
    LMC__CUDA(c, cuStreamSynchronize, (c->stream));
    return LMC_OK;
}

/* The next piece, whose sums are known. */
static enum lmc_status lmc__absorb_sums(lmc_cuda *c, lmc_reader *r, lmc__cuda_walk *w,
                                        const lmc__gpu_sums *sums)
{
    const int is_new = w->at == w->end;
    lmc__piece piece;
    (void)lmc__walk_on(c, r, w, &piece);
    if (is_new) {
        r->fingerprints.size = 0;
        LMC__TRY(lmc__reserve(&r->fingerprints,
                              LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(&w->file)));
        w->digester.fingerprints = r->fingerprints.data;
    }
    piece.sum = sums->words;
    piece.crc = piece.part_crc = ~lmc__crc32c_combine(UINT32_MAX, sums->crc, piece.size);
    piece.part_size = piece.size;
    lmc__absorb_piece(&w->digester, &piece, NULL);
    return w->at == w->end ? lmc__confirm_span(c, r, w) : LMC_OK;
}

static enum lmc_status lmc__check_whole(lmc_cuda *c, lmc_reader *r)
{
    lmc__gpu_piece *const rows = (lmc__gpu_piece *)(void *)c->halves[0].table;
    lmc__gpu_sums *const sums = (lmc__gpu_sums *)(void *)(rows + LMC__CUDA_MAX_JOBS);
    lmc__cuda_walk planner, taker;
    uint32_t i, n;
    memset(&planner, 0, sizeof planner);
    memset(&taker, 0, sizeof taker);
    do {
        lmc__piece piece;
        for (n = 0; n < LMC__CUDA_MAX_JOBS && lmc__walk_on(c, r, &planner, &piece); n++) {
            const lmc_cuda_part *const part = &planner.span->part;
            rows[n].at = lmc__address_of(part->dst, planner.at - piece.size - part->offset);
            rows[n].size = piece.size;
        }
        if (n) LMC__TRY(lmc__sum_on_gpu(c, rows, sums, n));
        for (i = 0; i < n; i++) LMC__TRY(lmc__absorb_sums(c, r, &taker, &sums[i]));
    } while (n != 0);
    return LMC_OK;
}

/* -- waves -- */

static enum lmc_status lmc__read_waves(lmc_cuda *c, lmc_reader *r)
{
    lmc__cuda_half *last = NULL;
    unsigned i;
    LMC__CUDA(c, cuEventRecord, (c->started, c->stream));
    LMC__CUDA(c, cuStreamWaitEvent, (c->own, c->started, 0));
    for (i = 0;; i = !i) {
        lmc__cuda_half *const h = &c->halves[i];
        LMC__TRY(lmc__cuda_plan_wave(c, r, h));
        if (h->jobs.size) LMC__TRY(lmc__start_wave(c, r, h));
        if (last) LMC__TRY(lmc__finish_wave(c, r, last));
        if (h->jobs.size == 0) break;
        last = h;
    }
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return r->options.skip_fingerprints || !last ? LMC_OK : lmc__check_whole(c, r);
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_read(lmc_cuda *c, lmc_reader *r,
                                                const lmc_cuda_part *parts, size_t n, void *stream)
{
    enum lmc_status status;
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!c->tables || !r || (n && !parts) || r->is_salvage)
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->stream = (lmc__cu_stream)stream;
    memset(c->is_passed, 0, sizeof c->is_passed);
    LMC__TRY(lmc__cuda_note(c, lmc__take_parts(c, r, parts, n)));
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__cuda_note(c, lmc__read_waves(c, r));
    /* after an error nothing may be on its way to memory that the caller frees */
    if (status != LMC_OK) {
        (void)c->f.cuStreamSynchronize(c->own);
        (void)c->f.cuStreamSynchronize(c->stream);
    }
    lmc__cuda_leave(c);
    return status;
}
