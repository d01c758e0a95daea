#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/pipeline.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_open.h"
#include "gpu/cuda_plan.h"
#include "gpu/cuda_base.h"

/* What the host, the link and the GPU do with a wave of blocks. Two waves are in work at a time,
 * each in its half of the memory:
 *     host       | read 0 |          | read 1 |       | look at 0 | read 2 |     | look at 1 | ...
 *     own                  | copy 0 |          | copy 1 |    pieces of 0 | copy 2 |
 *     stream                         | decode 0         | decode 1      |         | decode 2 ...
 *
 * The host waits for a half's event `decoded`, then looks at its statuses, and only then fills the
 * half again. The stream `own` copies a wave's pieces before it copies the next wave into that
 * half; `stream` waits for the event `copied` before it decodes. So nothing is overwritten while it
 * is still read.
 *
 *     status of a block     OK         its pieces may be copied
 *                           NOT_HERE   kernel.next tries it; after the last kernel, the CPU
 *                           others     the CPU decodes it, and gives the status */

/* -- memory, once it is needed -- */

static enum lmc_status lmc__reserve_half(lmc_cuda *c, lmc__cuda_half *h)
{
    const size_t packed_size = c->packed_cap + LMC__GPU_PAD;
    void *memory = NULL;
    if (h->packed_cap < c->packed_cap) {
        memory = h->packed;
        h->packed = NULL;
        h->packed_cap = 0;
        if (memory) LMC__CUDA(c, cuMemFreeHost, (memory));
        LMC__CUDA(c, cuMemHostAlloc, (&memory, packed_size, 0));
        h->packed = (uint8_t *)memory;
        h->packed_cap = c->packed_cap;
        memset(h->packed, 0, packed_size); /* the GPU may read behind a block */
    }
    if (!c->given) LMC__TRY(lmc__cuda_reserve(c, &h->gpu_packed, packed_size));
    return lmc__reserve_table(c, h);
}

/* -- reading -- */

typedef struct lmc__cuda_reading {
    lmc_reader *r;
    lmc__cuda_half *h;
} lmc__cuda_reading;

static void lmc__read_range_task(void *arg, size_t index, unsigned worker)
{
    const lmc__cuda_reading *const x = (const lmc__cuda_reading *)arg;
    lmc__cuda_range *const range = lmc__cuda_range_at(x->h, index);
    (void)worker;
    range->status = lmc__read_at(x->r, range->at, x->h->packed + range->packed_at, range->size);
}

/* If the caller allows it, several workers read at once: then ranges longer than this are cut. */
#define LMC__CUDA_READ_SIZE ((size_t)1 << 20)

static enum lmc_status lmc__read_ranges(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    const int in_parallel = r->options.parallel_reads != 0 && r->coder->parallel;
    lmc__cuda_reading reading;
    size_t i, n = h->ranges.size / sizeof(lmc__cuda_range);
    for (i = 0; in_parallel && i < n; i++) { /* what is appended is cut, too */
        lmc__cuda_range rest = *lmc__cuda_range_at(h, i);
        if (rest.size <= LMC__CUDA_READ_SIZE) continue;
        lmc__cuda_range_at(h, i)->size = LMC__CUDA_READ_SIZE;
        rest.at += LMC__CUDA_READ_SIZE;
        rest.packed_at += LMC__CUDA_READ_SIZE;
        rest.size -= LMC__CUDA_READ_SIZE;
        LMC__TRY(lmc__append(&h->ranges, &rest, sizeof rest));
        n++;
    }
    reading.r = r;
    reading.h = h;
    lmc__run_tasks(in_parallel ? r->coder->parallel : NULL, lmc__read_range_task, &reading, n);
    for (i = 0; i < n; i++)
        if (lmc__cuda_range_at(h, i)->status != LMC_OK)
            return lmc__cuda_fail(c, lmc__cuda_range_at(h, i)->status,
                                  "bytes %llu to %llu of the LMC file: %s",
                                  (unsigned long long)lmc__cuda_range_at(h, i)->at,
                                  (unsigned long long)(lmc__cuda_range_at(h, i)->at +
                                                       lmc__cuda_range_at(h, i)->size - 1),
                                  lmc_status_text(lmc__cuda_range_at(h, i)->status));
    return LMC_OK;
}

/* The device address of a block's packed bytes. */
static lmc__cu_address lmc__packed_address(const lmc_cuda *c, const lmc_reader *r,
                                           const lmc__cuda_half *h, const lmc__cuda_job *job)
{
    return c->given ? c->given + (lmc__block_at(r, job->run, job->number)->at - c->given_at)
                    : h->gpu_packed + job->packed_at;
}

/* Gets the headers of blocks whose packed bytes are on the device already: a kernel gathers them in
 * the memory of the half's table, which is not used yet. There the addresses come first, and the
 * headers follow them. */
static enum lmc_status lmc__fetch_headers(lmc_cuda *c, const lmc_reader *r, lmc__cuda_half *h)
{
    const size_t n = lmc__count_cuda_jobs(h), size = n * LMC_BLOCK_HEADER_SIZE;
    lmc__cu_address *const rows = (lmc__cu_address *)(void *)h->table;
    const lmc__cu_address gpu_headers = h->gpu_table + n * sizeof *rows;
    const uint8_t *const headers = (const uint8_t *)(rows + n);
    uint32_t n_rows = (uint32_t)n;
    void *arguments[3];
    size_t i;
    for (i = 0; i < n; i++) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        const lmc__block_place *const place = lmc__block_at(r, job->run, job->number);
        if (place->at < c->given_at || place->at - c->given_at > c->given_size ||
            c->given_size - (place->at - c->given_at) < (uint64_t)place->size + LMC__GPU_PAD)
            return lmc__cuda_fail_job(c, r, h, job, LMC_ERR_ARGUMENT);
        rows[i] = lmc__packed_address(c, r, h, job);
    }
    arguments[0] = &h->gpu_table;
    arguments[1] = &n_rows;
    arguments[2] = (void *)(uintptr_t)&gpu_headers;
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (h->gpu_table, rows, n * sizeof *rows, c->own));
    LMC__CUDA(c, cuLaunchKernel,
              (c->headers, (unsigned)(size / LMC__GPU_THREADS + 1), 1, 1, LMC__GPU_THREADS, 1, 1, 0,
               c->own, arguments, NULL));
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (rows + n, gpu_headers, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    for (i = 0; i < n; i++)
        memcpy(h->packed + lmc__cuda_job_at(h, i)->packed_at, headers + i * LMC_BLOCK_HEADER_SIZE,
               LMC_BLOCK_HEADER_SIZE);
    return LMC_OK;
}

/* -- blocks, when their headers are there -- */

/* Copies the prediction of bytes [from, to) of the file stream from the parts' bases to gpu_base;
 * *left: how many bytes no base has. */
static enum lmc_status lmc__gather_pieces(lmc_cuda *c, lmc__cuda_half *h, const lmc__cuda_job *job,
                                          uint64_t from, uint64_t to, uint64_t *left)
{
    size_t i;
    *left = to - from;
    for (i = 0; i < job->n_pieces; i++) {
        const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, i);
        const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
        const uint64_t start = job->at + piece->skip, a = from > start ? from : start,
                       b = lmc__min64(to, start + piece->size);
        if (a >= b || !part->base) continue;
        LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                  (h->gpu_base + job->out_at + (a - job->at),
                   lmc__address_of(part->base, piece->offset + (a - start)), (size_t)(b - a),
                   c->own));
        *left -= b - a;
    }
    return LMC_OK;
}

/* The device address of the base's byte that predicts byte `at` of the stream, in segment s. */
static lmc__cu_address lmc__segment_address(const lmc_cuda *c, const lmc_reader *r,
                                            const lmc__run *run, const lmc__segment *s, uint64_t at)
{
    return lmc__base_address(lmc__cuda_base_of(c, r),
                             lmc__locate(&r->origin, run, s, at - s->start).start);
}

/* Finds the prediction of a block on the device: in the base of its part or of the reader; or
 * gathered from several places, with zeros for segments without a base. If some of it is not on the
 * device, is_by_reader is set. */
static enum lmc_status lmc__cuda_find_prediction(lmc_cuda *c, const lmc_reader *r,
                                                 const lmc__run *run, lmc__cuda_half *h,
                                                 lmc__cuda_job *job)
{
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    const int is_on_gpu = lmc__cuda_base_of(c, r) != NULL;
    const uint64_t end = job->at + job->info.size;
    uint32_t i = lmc__find_segment(run, job->at);
    const lmc__segment *const s = &run->segments[i];
    uint64_t at, next;
    if (run->prediction != LMC__PREDICT_BASE) {
        job->is_by_reader = 1;
        return LMC_OK;
    }
    if (s->base != 0 && end <= s->start + s->size) {
        if (is_on_gpu) job->base = lmc__segment_address(c, r, run, s, job->at);
        else if (part->base && piece->size == job->info.size)
            job->base = lmc__address_of(part->base, piece->offset);
        if (job->base && job->base % job->info.width == 0) return LMC_OK;
    }
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_base, c->half_size));
    job->base = h->gpu_base + job->out_at;
    for (at = job->at; at < end && !job->is_by_reader; at = next, i++) {
        uint64_t left = 0;
        next = lmc__min64(end, run->segments[i].start + run->segments[i].size);
        if (run->segments[i].base == 0)
            LMC__CUDA(c, cuMemsetD8Async,
                      (job->base + (at - job->at), 0, (size_t)(next - at), c->own));
        else if (is_on_gpu)
            LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                      (job->base + (at - job->at),
                       lmc__segment_address(c, r, run, &run->segments[i], at), (size_t)(next - at),
                       c->own));
        else LMC__TRY(lmc__gather_pieces(c, h, job, at, next, &left));
        job->is_by_reader = left != 0;
    }
    return LMC_OK;
}

/* The first kernel, from this one on, that the device can run and that is not passed over. */
static int lmc__usable_kernel(const lmc_cuda *c, int kernel)
{
    while (kernel != LMC__GPU_CPU && (!c->kernels[kernel] || c->is_passed[kernel]))
        kernel = lmc__gpu_kernels[kernel].next;
    return kernel;
}

/* Checks the header as the reader does, decides what decodes the block, and to where. A block of
 * one piece is decoded to its part's dst, if that is aligned and cannot be the base, too. */
static enum lmc_status lmc__prepare_job(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                        lmc__cuda_job *job)
{
    const lmc__run *const run = &lmc__run_at(r, job->run)->run;
    const uint8_t *const header = h->packed + job->packed_at;
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    enum lmc_status status = lmc__read_known_block(r, job->run, job->number, header, &job->info);
    if (status == LMC_OK && job->info.has_prediction && run->prediction == LMC__PREDICT_ZERO)
        status = LMC_ERR_CORRUPT;
    if (status != LMC_OK) return lmc__cuda_fail_job(c, r, h, job, status);
    if (job->info.has_prediction) LMC__TRY(lmc__cuda_find_prediction(c, r, run, h, job));
    job->kernel =
        job->is_by_reader ? LMC__GPU_CPU : lmc__usable_kernel(c, lmc__gpu_kernel_of(header, 0));
    job->out = lmc__address_of(part->dst, piece->offset);
    job->is_staged = piece->size != job->info.size || !part->dst ||
                     lmc__span_at(c, piece->span)->is_in_place || job->out % job->info.width != 0;
    if (job->is_by_reader || !job->is_staged) return LMC_OK;
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_out, c->half_size));
    job->out = h->gpu_out + job->out_at;
    return LMC_OK;
}

/* -- decoding -- */

/* Scratch for *n groups. If that exceeds LMC__CUDA_MAX_SCRATCH, *n becomes smaller. */
#define LMC__CUDA_MAX_SCRATCH(c) (8 * (uint64_t)(c)->half_size)

static enum lmc_status lmc__reserve_scratch(lmc_cuda *c, uint64_t size_of_group, unsigned *n)
{
    const uint64_t most = LMC__CUDA_MAX_SCRATCH(c) / (size_of_group ? size_of_group : 1);
    if (size_of_group == 0) return LMC_OK;
    *n = (unsigned)lmc__min64(*n, most ? most : 1);
    if (c->scratch_size >= *n * size_of_group) return LMC_OK;
    if (c->scratch) {
        const lmc__cu_address old = c->scratch;
        LMC__CUDA(c, cuStreamSynchronize, (c->stream));
        c->scratch = 0;
        c->scratch_size = 0;
        LMC__CUDA(c, cuMemFree_v2, (old));
    }
    LMC__TRY(lmc__cuda_reserve(c, &c->scratch, (size_t)(*n * size_of_group)));
    c->scratch_size = *n * size_of_group;
    return LMC_OK;
}

/* Starts a kernel for n rows of the table, from `first` on. */
static enum lmc_status lmc__launch(lmc_cuda *c, lmc__cuda_half *h, int kernel, size_t first,
                                   size_t n, size_t largest)
{
    const lmc__gpu_kernel *const k = &lmc__gpu_kernels[kernel];
    lmc__cu_address blocks = h->gpu_table + first * sizeof *h->table,
                    status = h->gpu_table + LMC__CUDA_MAX_JOBS * sizeof *h->table +
                             first * sizeof *h->status;
    uint64_t scratch_size = lmc__gpu_scratch_size(kernel, largest);
    uint32_t n_blocks = (uint32_t)n;
    unsigned n_groups = (unsigned)lmc__min64(n, (uint64_t)c->n_multiprocessors * k->groups);
    void *arguments[6];
    LMC__TRY(lmc__reserve_scratch(c, scratch_size, &n_groups));
    arguments[0] = &blocks;
    arguments[1] = &n_blocks;
    arguments[2] = &status;
    arguments[3] = &c->tables;
    arguments[4] = &c->scratch;
    arguments[5] = &scratch_size;
    LMC__CUDA(c, cuLaunchKernel,
              (c->kernels[kernel], n_groups, 1, 1, LMC__GPU_THREADS, 1, 1, c->shared[kernel],
               c->stream, arguments, NULL));
    return LMC_OK;
}

/* Whether the block waits for this kernel. */
static int lmc__is_for(const lmc__cuda_job *job, int kernel)
{
    return job->kernel == kernel && job->status == LMC__GPU_NOT_HERE;
}

static uint32_t lmc__block_flags(const lmc_reader *r, const lmc__cuda_job *job)
{
    uint32_t flags = 0;
    if (lmc__run_at(r, job->run)->run.prediction != LMC__PREDICT_ZERO)
        flags |= LMC__GPU_RUN_PREDICTED;
    if (r->info.features & (LMC_FEATURE_BASE | LMC_FEATURE_OWN)) flags |= LMC__GPU_MAY_GROUP;
    if (r->info.features & LMC_FEATURE_QUANTIZED) flags |= LMC__GPU_MAY_QUANTIZE;
    if (r->info.features & LMC_FEATURE_ZEROS) flags |= LMC__GPU_MAY_PART;
    if (r->info.features & LMC_FEATURE_MATRIX) flags |= LMC__GPU_MAY_MATRIX;
    if (r->info.features & LMC_FEATURE_CODES) flags |= LMC__GPU_MAY_CODES;
    return flags;
}

/* Starts the kernels for all blocks that are not decoded yet and have a kernel; the table is sorted
 * by kernels. After the event `decoded` h->status is set. *n: how many blocks were started. */
static enum lmc_status lmc__decode_wave_on_gpu(lmc_cuda *c, const lmc_reader *r, lmc__cuda_half *h,
                                               size_t *n)
{
    size_t first[LMC__GPU_KERNELS + 1], largest[LMC__GPU_KERNELS], i;
    const lmc__cu_address status = h->gpu_table + LMC__CUDA_MAX_JOBS * sizeof *h->table;
    int k;
    *n = 0;
    for (k = 0; k < LMC__GPU_KERNELS; k++) {
        first[k] = *n;
        largest[k] = 0;
        for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
            lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
            lmc__gpu_block *const row = &h->table[*n];
            if (!lmc__is_for(job, k)) continue;
            row->in = lmc__packed_address(c, r, h, job);
            row->out = job->out;
            row->base = job->info.has_prediction ? job->base : 0;
            row->in_size = (uint32_t)job->info.encoded_size;
            row->out_size = (uint32_t)job->info.size;
            row->number = job->number;
            row->flags = lmc__block_flags(r, job);
            if (largest[k] < job->info.size) largest[k] = job->info.size;
            job->slot = (*n)++;
            h->status[job->slot] = LMC__GPU_NOT_HERE;
        }
    }
    first[k] = *n;
    if (*n != 0) {
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (h->gpu_table, h->table, *n * sizeof *h->table, c->own));
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (status, h->status, *n * sizeof *h->status, c->own));
    }
    LMC__CUDA(c, cuEventRecord, (h->copied, c->own));
    LMC__CUDA(c, cuStreamWaitEvent, (c->stream, h->copied, 0));
    for (k = 0; k < LMC__GPU_KERNELS; k++)
        if (first[k + 1] != first[k])
            LMC__TRY(lmc__launch(c, h, k, first[k], first[k + 1] - first[k], largest[k]));
    if (*n != 0)
        LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (h->status, status, *n * sizeof *h->status, c->stream));
    LMC__CUDA(c, cuEventRecord, (h->decoded, c->stream));
    return LMC_OK;
}

/* Reads a planned wave, and starts decoding it on the GPU. */
static enum lmc_status lmc__start_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    size_t i, n;
    LMC__TRY(lmc__reserve_half(c, h));
    LMC__TRY(c->given ? lmc__fetch_headers(c, r, h) : lmc__read_ranges(c, r, h));
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        job->status = LMC__GPU_NOT_HERE;
        LMC__TRY(lmc__prepare_job(c, r, h, job));
    }
    if (!c->given)
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2,
                  (h->gpu_packed, h->packed, h->packed_size + LMC__GPU_PAD, c->own));
    return lmc__decode_wave_on_gpu(c, r, h, &n);
}

/* -- the CPU -- */

/* Copy from or to pageable memory of the host; the copy is complete on return. */
static enum lmc_status lmc__copy_out(lmc_cuda *c, lmc__cu_address dst, const void *src, size_t size)
{
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (dst, src, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return LMC_OK;
}
static enum lmc_status lmc__copy_back(lmc_cuda *c, void *dst, lmc__cu_address src, size_t size)
{
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (dst, src, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return LMC_OK;
}

/* Decodes blocks whose prediction only the reader has; neighbours of one part are read at once. *i:
 * the first of them; on return, the first block behind them. */
static enum lmc_status lmc__decode_by_reader(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                             size_t *i)
{
    lmc__cuda_job *const job = lmc__cuda_job_at(h, *i), *last = job;
    const size_t most = lmc__min(c->half_size, LMC__WINDOW_SIZE * 4);
    size_t k;
    for (k = 0; k < job->n_pieces; k++) {
        const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, k);
        const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
        const uint64_t offset = part->offset + piece->offset;
        size_t size = piece->size;
        enum lmc_status status;
        for (; k + 1 == job->n_pieces && *i + 1 < lmc__count_cuda_jobs(h); last++, ++*i) {
            const lmc__cuda_piece *const next = lmc__cuda_piece_at(h, last + 1, 0);
            if (!last[1].is_by_reader || last[1].n_pieces != 1 || next->span != piece->span ||
                next->offset != piece->offset + size || next->size > most - lmc__min(size, most))
                break;
            size += next->size;
        }
        c->host.size = 0;
        LMC__TRY(lmc__reserve(&c->host, size));
        status = lmc__read_range(r, NULL, (size_t)part->file_number, offset, c->host.data, size);
        if (status != LMC_OK)
            return lmc__cuda_fail_at(c, r, part->file_number, offset, NULL, status);
        if (part->dst)
            LMC__TRY(
                lmc__copy_out(c, lmc__address_of(part->dst, piece->offset), c->host.data, size));
    }
    for (k = 0; job + k <= last; k++) {
        job[k].status = LMC_OK;
        job[k].n_pieces = 0; /* the pieces are copied already */
        c->counts.cpu_blocks++;
        c->counts.cpu_bytes += job[k].info.size;
    }
    ++*i;
    return LMC_OK;
}

/* Decodes blocks of the wave, from number *i on, on the CPU, as many as fit in a wave of the CPU.
 * *i becomes the first block behind them. */
static enum lmc_status lmc__decode_on_cpu(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h, size_t *i)
{
    lmc__coder *const coder = r->coder;
    const uint64_t most = lmc__get_wave_size(coder, LMC_MAX_BLOCK_SIZE);
    const size_t n_jobs = lmc__count_cuda_jobs(h), first = *i;
    lmc__buffer *const out = &coder->out[0], *const base = &coder->base;
    size_t largest = 0, size = 0, at = 0, k, n = 0;
    enum lmc_status status = LMC_OK;
    for (; *i < n_jobs; ++*i) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, *i);
        if (job->status == LMC_OK) continue;
        if (job->is_by_reader || (n && size + job->info.size > most)) break;
        size += job->info.size;
        if (largest < job->info.size) largest = job->info.size;
        n++;
    }
    LMC__TRY(lmc__set_coder(coder, largest, 1, 0));
    out->size = base->size = 0;
    coder->n_jobs = 0;
    LMC__TRY(lmc__reserve(out, size));
    LMC__TRY(lmc__reserve(base, size));
    for (k = first; k < *i; k++) {
        const lmc__cuda_job *const from = lmc__cuda_job_at(h, k);
        lmc__snapshot_job *block_job;
        if (from->status == LMC_OK) continue;
        if (c->given)
            LMC__TRY(lmc__copy_back(c, h->packed + from->packed_at,
                                    lmc__packed_address(c, r, h, from), from->info.encoded_size));
        LMC__TRY(lmc__add_job(coder, &block_job));
        block_job->job.number = from->number;
        block_job->job.src = h->packed + from->packed_at;
        block_job->job.dst = out->data + at;
        block_job->job.keep = from->info.size;
        block_job->job.info = from->info;
        block_job->job.streaming = lmc__no_streaming;
        if (from->info.has_prediction) {
            block_job->job.base = base->data + at;
            LMC__TRY(lmc__copy_back(c, base->data + at, from->base, from->info.size));
        }
        at += from->info.size;
    }
    lmc__run_tasks(coder->parallel, lmc__decode_snapshot_task, coder, n);
    for (k = first, n = at = 0; k < *i; k++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, k);
        if (job->status == LMC_OK) continue;
        status = lmc__job_at(coder, n++)->job.status;
        if (status != LMC_OK) return lmc__cuda_fail_job(c, r, h, job, status);
        LMC__TRY(lmc__copy_out(c, job->out, out->data + at, job->info.size));
        at += job->info.size;
        job->status = LMC_OK;
        c->counts.cpu_blocks++;
        c->counts.cpu_bytes += job->info.size;
    }
    coder->n_jobs = 0;
    return LMC_OK;
}

/* -- statuses -- */

/* Waits for the kernels, and takes the statuses of their blocks. Blocks that a kernel did not
 * decode get its next kernel; *n: how many then have a kernel. A kernel that left most of its
 * blocks is not tried again in this call if another one can follow it. */
static enum lmc_status lmc__take_statuses(lmc_cuda *c, lmc__cuda_half *h, size_t *n)
{
    size_t n_done[LMC__GPU_KERNELS], n_left[LMC__GPU_KERNELS], i;
    int k;
    memset(n_done, 0, sizeof n_done);
    memset(n_left, 0, sizeof n_left);
    *n = 0;
    LMC__CUDA(c, cuEventSynchronize, (h->decoded));
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        const int kernel = job->kernel;
        if (kernel == LMC__GPU_CPU || job->status != LMC__GPU_NOT_HERE) continue;
        job->status = h->status[job->slot];
        if (job->status == LMC_OK) {
            c->counts.gpu_blocks++;
            c->counts.gpu_bytes += job->info.size;
            n_done[kernel]++;
        }
        if (job->status != LMC__GPU_NOT_HERE) continue;
        n_left[kernel]++;
        job->kernel = lmc__usable_kernel(c, lmc__gpu_kernels[kernel].next);
        *n += job->kernel != LMC__GPU_CPU;
    }
    for (k = 0; k < LMC__GPU_KERNELS; k++)
        if (n_left[k] > n_done[k] &&
            lmc__usable_kernel(c, lmc__gpu_kernels[k].next) != LMC__GPU_CPU)
            c->is_passed[k] = 1;
    return LMC_OK;
}

/* Ends a wave that was started: decodes the blocks that are left, then copies the pieces. */
static enum lmc_status lmc__finish_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    size_t i, k, n;
    LMC__TRY(lmc__take_statuses(c, h, &n));
    while (n != 0) {
        LMC__TRY(lmc__decode_wave_on_gpu(c, r, h, &n));
        LMC__TRY(lmc__take_statuses(c, h, &n));
    }
    for (i = 0; i < lmc__count_cuda_jobs(h);) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        if (job->status == LMC_OK) i++;
        else if (job->is_by_reader) LMC__TRY(lmc__decode_by_reader(c, r, h, &i));
        else LMC__TRY(lmc__decode_on_cpu(c, r, h, &i));
    }
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        for (k = 0; k < job->n_pieces && job->is_staged; k++) {
            const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, k);
            const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
            if (!part->dst) continue;
            LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                      (lmc__address_of(part->dst, piece->offset), job->out + piece->skip,
                       piece->size, c->own));
            c->counts.staged_bytes += piece->size;
        }
    }
    return LMC_OK;
}
