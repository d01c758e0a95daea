#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_open.h"

/* From parts to waves of blocks:
 *     parts      |--- A -------------|         |- B -||--- C ----|
 *     spans      |--- 0 -------------|         |- 1 -||--- 2 ----|      sorted, by streams
 *     blocks     |.....|.....|.....|.....|   |.....|.....|.....|..      that have bytes of them
 *     pieces     |  0  |  1  |  2  |3|         | 4 | 5||6|  7  |8 |     of a block, for one part
 *     ranges     |----------- 0 ---------|   |--------- 1 ----------|   that are read at once
 *
 * A wave has as many blocks as fit in one half of the memory. Each block is in one wave. */

typedef struct lmc__cuda_span {
    size_t stream;
    uint64_t start, end; /* within the stream */
    int is_in_place;     /* the base may be at dst: no block is decoded to dst */
    lmc_cuda_part part;
} lmc__cuda_span;

typedef struct lmc__cuda_job {
    size_t run;
    uint32_t number;  /* of the block in its run */
    uint64_t at;      /* where it begins in its stream */
    size_t packed_at; /* in the half's packed bytes; the block has info.encoded_size */
    size_t out_at;    /* its place in gpu_out and gpu_base, if it needs one */
    lmc__cu_address out, base;
    size_t first_piece, n_pieces;
    lmc_block_info info;
    size_t slot;      /* in the table */
    int kernel;       /* its number, or LMC__GPU_CPU */
    int is_staged;    /* out is in gpu_out: pieces are copied from there */
    int is_by_reader; /* its prediction is not on the device: the reader decodes it */
    uint32_t status;  /* as kernels set it */
} lmc__cuda_job;

typedef struct lmc__cuda_piece {
    size_t span, skip, size; /* bytes of the block before it, and its own */
    uint64_t offset;         /* within the part */
} lmc__cuda_piece;

typedef struct lmc__cuda_range {
    uint64_t at; /* of the LMC file */
    size_t packed_at, size;
    enum lmc_status status;
} lmc__cuda_range;

/* The most blocks of a wave, and so the size of its table. */
#define LMC__CUDA_MAX_JOBS ((size_t)16384)
/* Packed bytes of a wave may be more than its decoded ones, because of headers and gaps. In deltas
 * they are far fewer. */
#define LMC__CUDA_MAX_PACKED ((size_t)64 << 20)
#define LMC__CUDA_PACKED_MORE ((size_t)1 << 20)
/* A smaller wave takes as long to start as to decode. */
#define LMC__CUDA_MIN_WAVE ((uint64_t)64 << 20)
/* At most a quarter of the free device memory is used. Each byte of a wave needs a packed, a
 * decoded and a predicted byte in two halves, and 3 bytes of scratch (lmc__gpu_scratch_size). */
#define LMC__CUDA_FREE_SHARE ((uint64_t)(4 * (2 + 2 + 2 + 3)))
/* A gap between two blocks is read with them if it is at most this long. */
#define LMC__CUDA_MAX_GAP 4096u
/* Outputs of a wave begin at multiples of this. */
#define LMC__CUDA_ALIGN ((size_t)256)

static lmc__cuda_span *lmc__span_at(const lmc_cuda *c, size_t i)
{
    return (lmc__cuda_span *)(void *)c->spans.data + i;
}
static size_t lmc__count_spans(const lmc_cuda *c) { return c->spans.size / sizeof(lmc__cuda_span); }
static lmc__cuda_job *lmc__cuda_job_at(const lmc__cuda_half *h, size_t i)
{
    return (lmc__cuda_job *)(void *)h->jobs.data + i;
}
static size_t lmc__count_cuda_jobs(const lmc__cuda_half *h)
{
    return h->jobs.size / sizeof(lmc__cuda_job);
}
static lmc__cuda_piece *lmc__cuda_piece_at(const lmc__cuda_half *h, const lmc__cuda_job *job,
                                           size_t i)
{
    return (lmc__cuda_piece *)(void *)h->pieces.data + job->first_piece + i;
}
static lmc__cuda_range *lmc__cuda_range_at(const lmc__cuda_half *h, size_t i)
{
    return (lmc__cuda_range *)(void *)h->ranges.data + i;
}

/* -- messages -- */

/* Makes the message for bytes of a file, from `offset` on; job: their block, or NULL. */
LMC__COLD static enum lmc_status lmc__cuda_fail_at(lmc_cuda *c, const lmc_reader *r,
                                                   uint64_t file_number, uint64_t offset,
                                                   const lmc__cuda_job *job, enum lmc_status status)
{
    const lmc_file *const f = lmc_reader_get_file(r, (size_t)file_number);
    const char *const path = f && f->path ? f->path : "", *tensor = NULL;
    char place[96] = "";
    size_t i;
    for (i = 0; f && i < f->n_tensors && !tensor; i++)
        if (offset >= f->tensors[i].offset && offset - f->tensors[i].offset < f->tensors[i].size)
            tensor = f->tensors[i].name;
    if (job)
        (void)snprintf(place, sizeof place, ", block %lu of run %lu (byte %llu of the LMC file)",
                       (unsigned long)job->number, (unsigned long)job->run,
                       (unsigned long long)lmc__block_at(r, job->run, job->number)->at);
    return lmc__cuda_fail(c, status, "%s%s%s%s%s: %s", path, path[0] ? ": " : "",
                          tensor ? "tensor " : "bytes of no tensor", tensor ? tensor : "", place,
                          lmc_status_text(status));
}

static enum lmc_status lmc__cuda_fail_job(lmc_cuda *c, const lmc_reader *r, const lmc__cuda_half *h,
                                          const lmc__cuda_job *job, enum lmc_status status)
{
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    return lmc__cuda_fail_at(c, r, part->file_number, part->offset + piece->offset, job, status);
}

/* -- spans -- */

static int lmc__compare_spans(const void *a, const void *b)
{
    const lmc__cuda_span *const x = (const lmc__cuda_span *)a, *const y = (const lmc__cuda_span *)b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int lmc__overlap(uint64_t a, uint64_t b, uint64_t size)
{
    return a < b ? b - a < size : a - b < size;
}

/* Begins a call: makes spans of the parts. */
static enum lmc_status lmc__take_parts(lmc_cuda *c, const lmc_reader *r, const lmc_cuda_part *parts,
                                       size_t n)
{
    lmc__cuda_span span;
    size_t i;
    c->spans.size = 0;
    for (i = 0; i < n; i++) {
        const lmc_cuda_part *const p = &parts[i];
        uint64_t start = p->offset;
        const lmc__stream *stream;
        if (p->file_number >= r->tables.listing.n_files ||
            !(stream = lmc__stream_range(r, (size_t)p->file_number, &start, p->size)))
            return lmc__cuda_fail(c, LMC_ERR_ARGUMENT,
                                  "part %lu: the snapshot has no such file, or fewer bytes of it",
                                  (unsigned long)i);
        if (p->size == 0) continue;
        if (p->dst && p->base && p->dst != p->base &&
            lmc__overlap((uintptr_t)p->dst, (uintptr_t)p->base, p->size))
            return lmc__cuda_fail(c, LMC_ERR_ARGUMENT,
                                  "part %lu: base overlaps dst, but is not the same",
                                  (unsigned long)i);
        memset(&span, 0, sizeof span);
        span.stream = lmc__file_at(r, (size_t)p->file_number)->stream;
        span.start = start;
        span.end = start + p->size;
        span.part = *p;
        LMC__TRY(lmc__append(&c->spans, &span, sizeof span));
        (void)stream;
    }
    n = lmc__count_spans(c);
    lmc__heap_sort(c->spans.data, n, sizeof span, lmc__compare_spans, &span);
    for (i = 1; i < n; i++)
        if (lmc__span_at(c, i)->stream == lmc__span_at(c, i - 1)->stream &&
            lmc__span_at(c, i)->start < lmc__span_at(c, i - 1)->end)
            return lmc__cuda_fail(
                c, LMC_ERR_ARGUMENT, "two parts have the same bytes of %s: ask for them once",
                lmc__file_at(r, (size_t)lmc__span_at(c, i)->part.file_number)->file.path);
    c->next_span = 0;
    c->next_at = n ? lmc__span_at(c, 0)->start : 0;
    return LMC_OK;
}

/* -- waves -- */

/* *largest: the largest block with wanted bytes; *total: wanted bytes and the rest of their
 * blocks. */
static void lmc__measure_spans(const lmc_cuda *c, const lmc_reader *r, size_t *largest,
                               uint64_t *total)
{
    size_t i;
    *largest = 1;
    *total = 0;
    for (i = 0; i < lmc__count_spans(c); i++) {
        const lmc__cuda_span *const span = lmc__span_at(c, i);
        const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, span->stream);
        uint64_t at = span->start;
        while (at < span->end) {
            const lmc__run *const run = &lmc__run_at(r, lmc__find_run(r, stream, at))->run;
            const size_t size = (size_t)lmc__min64(run->block_size, run->size);
            if (*largest < size) *largest = size;
            at = run->start + run->size;
        }
        *total += span->end - span->start + 2 * (uint64_t)*largest;
    }
}

/* Chooses the size of waves. One group of threads decodes a block, so a wave should have a block
 * for each group that runs at the same time, or a multiple of that. No work may be pending. */
static enum lmc_status lmc__choose_wave_size(lmc_cuda *c, const lmc_reader *r)
{
    const unsigned n_groups = c->n_multiprocessors * lmc__gpu_kernels[LMC__GPU_ANY].groups;
    size_t largest, available = 0, all = 0;
    uint64_t total, size = c->options.staging_size / 2;
    lmc__measure_spans(c, r, &largest, &total);
    if (size == 0) {
        LMC__CUDA(c, cuMemGetInfo_v2, (&available, &all));
        size = (uint64_t)n_groups * largest;
        while (size < LMC__CUDA_MIN_WAVE) size *= 2;
        size = lmc__min64(size, available / LMC__CUDA_FREE_SHARE);
        size = lmc__min64(size, LMC__MAX_STAGING / 2);
    }
    size = lmc__min64(size, total);
    if (size < LMC__MIN_STAGING / 2) size = LMC__MIN_STAGING / 2;
    size = (size + 4095) & ~(uint64_t)4095;
    if (size <= c->half_size) return LMC_OK; /* the memory is large enough */
    lmc__free_staging(c);
    c->half_size = (size_t)size;
    c->packed_cap = lmc__min(c->half_size, LMC__CUDA_MAX_PACKED) + LMC__CUDA_PACKED_MORE;
    return LMC_OK;
}

/* Adds a block's packed bytes behind the others of the wave. */
static enum lmc_status lmc__add_range(lmc__cuda_half *h, const lmc__block_place *place, size_t *at)
{
    const size_t n = h->ranges.size / sizeof(lmc__cuda_range);
    lmc__cuda_range *const last = n ? lmc__cuda_range_at(h, n - 1) : NULL;
    lmc__cuda_range range;
    if (last && place->at >= last->at + last->size &&
        place->at - (last->at + last->size) <= LMC__CUDA_MAX_GAP) {
        *at = last->packed_at + (size_t)(place->at - last->at);
        last->size = (size_t)(place->at - last->at) + place->size;
        h->packed_size = *at + place->size;
        return LMC_OK;
    }
    memset(&range, 0, sizeof range);
    range.at = place->at;
    range.packed_at = *at = h->packed_size;
    range.size = place->size;
    h->packed_size += place->size;
    return lmc__append(&h->ranges, &range, sizeof range);
}

/* Adds a piece for each part that needs bytes of the block, which ends at `end` of its stream;
 * next_span and next_at move behind the block. */
static enum lmc_status lmc__add_pieces(lmc_cuda *c, lmc__cuda_half *h, lmc__cuda_job *job,
                                       uint64_t end)
{
    const size_t stream = lmc__span_at(c, c->next_span)->stream;
    job->first_piece = h->pieces.size / sizeof(lmc__cuda_piece);
    while (c->next_at < end) {
        const lmc__cuda_span *const span = lmc__span_at(c, c->next_span);
        lmc__cuda_piece piece;
        piece.span = c->next_span;
        piece.skip = (size_t)(c->next_at - job->at);
        piece.size = (size_t)(lmc__min64(span->end, end) - c->next_at);
        piece.offset = c->next_at - span->start;
        LMC__TRY(lmc__append(&h->pieces, &piece, sizeof piece));
        job->n_pieces++;
        c->next_at += piece.size;
        if (c->next_at < span->end) break; /* the span continues behind the block */
        if (++c->next_span == lmc__count_spans(c)) break;
        c->next_at = span[1].start;
        if (span[1].stream != stream) break;
    }
    return LMC_OK;
}

/* Adds the block that is wanted next, if the wave has room for it; *is_full: 1 if not. */
static enum lmc_status lmc__cuda_plan_block(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                            int *is_full)
{
    const lmc__cuda_span *const span = lmc__span_at(c, c->next_span);
    const size_t number =
        lmc__find_run(r, lmc__stream_at(&r->tables.listing, span->stream), c->next_at);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t block = (c->next_at - run->start) / run->block_size;
    const size_t size = lmc__block_size_at(run, block),
                 room = (size + LMC__CUDA_ALIGN - 1) & ~(LMC__CUDA_ALIGN - 1);
    const lmc__block_place *place;
    lmc__cuda_job job;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    place = lmc__block_at(r, number, block);
    *is_full =
        h->jobs.size != 0 &&
        (lmc__count_cuda_jobs(h) == LMC__CUDA_MAX_JOBS || room > c->half_size - h->out_size ||
         h->packed_size + LMC__CUDA_MAX_GAP + place->size > c->packed_cap);
    if (*is_full) return LMC_OK;
    memset(&job, 0, sizeof job);
    job.run = number;
    job.number = (uint32_t)block;
    job.at = run->start + block * run->block_size;
    job.out_at = h->out_size;
    h->out_size += room;
    LMC__TRY(lmc__add_range(h, place, &job.packed_at));
    LMC__TRY(lmc__add_pieces(c, h, &job, job.at + size));
    return lmc__append(&h->jobs, &job, sizeof job);
}

static enum lmc_status lmc__cuda_plan_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    int is_full = 0;
    h->jobs.size = h->pieces.size = h->ranges.size = 0;
    h->packed_size = h->out_size = 0;
    while (!is_full && c->next_span < lmc__count_spans(c))
        LMC__TRY(lmc__cuda_plan_block(c, r, h, &is_full));
    return LMC_OK;
}
