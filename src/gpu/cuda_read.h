#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/files.h"
#include "snapshot/reader.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_open.h"
#include "gpu/cuda_plan.h"
#include "gpu/cuda_base.h"
#include "gpu/cuda_wave.h"

/* lmc_cuda_read reads waves, in each half in turn, then checks fingerprints and whole files. */

/* -- fingerprints -- */

/* Goes through the leaves of all tensors that lie whole in a part, and of whole files, span by
 * span. Two walks make the same pieces: one plans a batch of sums, the other takes the results. */
typedef struct lmc__cuda_walk {
    size_t next_span;
    uint64_t at, end; /* in the file of the current span */
    const lmc__cuda_span *span;
    int is_file;   /* the span is a whole file, which has a CRC, too */
    lmc_file file; /* with only the tensors that lie whole in the span */
    lmc__digester digester;
} lmc__cuda_walk;

/* If nothing is to be checked, sets w->at = w->end. */
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

/* Takes the next piece, at most a leaf. Returns 0 if there is none. */
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

/* Compares fingerprints, after all pieces of a span have been absorbed. */
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

/* Absorbs the sums of the next piece. */
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
    lmc__absorb_gpu_sums(&w->digester, &piece, sums);
    return w->at == w->end ? lmc__confirm_span(c, r, w) : LMC_OK;
}

static enum lmc_status lmc__check_whole(lmc_cuda *c, lmc_reader *r)
{
    lmc__gpu_piece *const rows = lmc__gpu_pieces(c);
    lmc__gpu_sums *const sums = lmc__gpu_sums_of(rows);
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
    LMC__TRY(lmc__choose_wave_size(c, r));
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

/* The caller has set c->given; 0 if the packed bytes are not on the device. */
LMC__COLD static enum lmc_status lmc__read_parts(lmc_cuda *c, lmc_reader *r,
                                                 const lmc_cuda_part *parts, size_t n, void *stream)
{
    const lmc_cuda_base *base;
    enum lmc_status status;
    size_t i;
    c->message[0] = 0;
    if (!c->tables || !r || (n && !parts) || r->is_salvage)
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->stream = (lmc__cu_stream)stream;
    memset(c->is_passed, 0, sizeof c->is_passed);
    LMC__TRY(lmc__cuda_note(c, lmc__take_parts(c, r, parts, n)));
    base = lmc__cuda_base_of(c, r);
    for (i = 0; i < lmc__count_spans(c); i++) {
        lmc__cuda_span *const span = lmc__span_at(c, i);
        const lmc_cuda_part *const part = &span->part;
        span->is_in_place = part->dst == part->base ||
                            (base && lmc__has_address(base, (uintptr_t)part->dst, part->size));
    }
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__cuda_note(c, lmc__read_waves(c, r));
    /* after an error no copy may still write to memory that the caller frees */
    if (status != LMC_OK) {
        (void)c->f.cuStreamSynchronize(c->own);
        (void)c->f.cuStreamSynchronize(c->stream);
    }
    if (status == LMC_ERR_MEMORY) lmc__free_staging(c); /* the next call may need less */
    lmc__cuda_leave(c);
    return status;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_read(lmc_cuda *c, lmc_reader *r,
                                                const lmc_cuda_part *parts, size_t n, void *stream)
{
    if (!c) return LMC_ERR_ARGUMENT;
    c->given = 0;
    return lmc__read_parts(c, r, parts, n, stream);
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_read_packed(lmc_cuda *c, lmc_reader *r,
                                                       const lmc_cuda_part *parts, size_t n,
                                                       const void *packed, uint64_t at,
                                                       uint64_t size, void *stream)
{
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!packed) return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->given = (uintptr_t)packed;
    c->given_at = at;
    c->given_size = size;
    return lmc__read_parts(c, r, parts, n, stream);
}
