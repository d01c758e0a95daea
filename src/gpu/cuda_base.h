#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/crc32c.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/order.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_open.h"
#include "gpu/cuda_plan.h"

/* Fingerprints of tensors on the device; and a base on the device. The reader sees such a base as
 * one file whose tensors are side by side. The GPU uses the addresses of the tensors. */

/* -- memory, once it is needed -- */

static enum lmc_status lmc__cuda_reserve(lmc_cuda *c, lmc__cu_address *address, size_t size)
{
    if (!*address) LMC__CUDA(c, cuMemAlloc_v2, (address, size));
    return LMC_OK;
}

/* The table is used for sums, too. */
static enum lmc_status lmc__reserve_table(lmc_cuda *c, lmc__cuda_half *h)
{
    const size_t size = LMC__CUDA_MAX_JOBS * (sizeof *h->table + sizeof *h->status);
    void *memory = NULL;
    if (!h->table) {
        LMC__CUDA(c, cuMemHostAlloc, (&memory, size, 0));
        h->table = (lmc__gpu_block *)memory;
        h->status = (uint32_t *)(void *)(h->table + LMC__CUDA_MAX_JOBS);
        memset(memory, 0, size);
    }
    return lmc__cuda_reserve(c, &h->gpu_table, size);
}

static lmc__cu_address lmc__address_of(const void *p, uint64_t offset)
{
    return (lmc__cu_address)(uintptr_t)p + offset;
}

/* -- sums -- */

/* These are SumPiece and Sums in sums.cu. */
typedef struct lmc__gpu_piece {
    uint64_t at;
    uint32_t size, reserved;
} lmc__gpu_piece;
typedef struct lmc__gpu_sums {
    uint64_t words;
    uint32_t crc, reserved;
} lmc__gpu_sums;
#define LMC__GPU_SUMS_SHARED (256 * 8 + 5 * 256 * 4)

/* The pieces, and behind them their sums, are in the memory of the first half's table. */
static lmc__gpu_piece *lmc__gpu_pieces(const lmc_cuda *c)
{
    return (lmc__gpu_piece *)(void *)c->halves[0].table;
}
static lmc__gpu_sums *lmc__gpu_sums_of(lmc__gpu_piece *rows)
{
    return (lmc__gpu_sums *)(void *)(rows + LMC__CUDA_MAX_JOBS);
}

/* Computes the sums of the n pieces at `rows` on the GPU, and stores them at `sums`. */
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

static void lmc__absorb_gpu_sums(lmc__digester *d, lmc__piece *piece, const lmc__gpu_sums *sums)
{
    piece->sum = sums->words;
    piece->crc = piece->part_crc = ~lmc__crc32c_combine(UINT32_MAX, sums->crc, piece->size);
    piece->part_size = piece->size;
    lmc__absorb_piece(d, piece, NULL);
}

/* -- a base -- */

typedef struct lmc__cuda_place {
    uint64_t start, end; /* addresses */
} lmc__cuda_place;

struct lmc_cuda_base {
    lmc_cuda *cuda;
    /* tensors: lmc_tensor, side by side; data: the lmc__cuda_place of each; sorted: these places by
     * start, each with the greatest end of all places up to it */
    lmc__buffer tensors, data, sorted, fingerprints;
    lmc_file file;
    lmc_base base;
};
#define LMC__CUDA_BASE_BUFFERS LMC__ROW(lmc_cuda_base, tensors, file)

static lmc__cuda_place *lmc__cuda_places(const lmc__buffer *places)
{
    return (lmc__cuda_place *)(void *)places->data;
}

static const lmc_file *lmc__get_cuda_file(void *user, size_t file_number)
{
    (void)file_number;
    return &((const lmc_cuda_base *)user)->file;
}

/* The number of the tensor that has byte `offset` of the file; there must be one. */
static size_t lmc__find_cuda_tensor(const lmc_cuda_base *b, uint64_t offset)
{
    const lmc_tensor *const tensors = b->file.tensors;
    size_t i;
    LMC__FIND_FIRST(i, 0, b->file.n_tensors, tensors[i].offset + tensors[i].size <= offset);
    return i;
}
static lmc__cu_address lmc__base_address(const lmc_cuda_base *b, uint64_t offset)
{
    const size_t i = lmc__find_cuda_tensor(b, offset);
    return lmc__cuda_places(&b->data)[i].start + (offset - b->file.tensors[i].offset);
}

/* lmc_base.read. It may run in any thread, so it writes no message. */
static enum lmc_status lmc__read_cuda_base(void *user, size_t file_number, uint64_t offset,
                                           void *dst, size_t size)
{
    const lmc_cuda_base *const b = (const lmc_cuda_base *)user;
    lmc_cuda *const c = b->cuda;
    uint8_t *out = (uint8_t *)dst;
    int error = 0;
    if (file_number != 0 || offset > b->file.size || size > b->file.size - offset)
        return LMC_ERR_READ;
    if (c->f.cuCtxPushCurrent_v2(c->context) != 0) return LMC_ERR_DEVICE;
    while (size != 0 && error == 0) {
        const lmc_tensor *const t = &b->file.tensors[lmc__find_cuda_tensor(b, offset)];
        const size_t n = (size_t)lmc__min64(size, t->size - (offset - t->offset));
        error = c->f.cuMemcpyDtoHAsync_v2(out, lmc__base_address(b, offset), n, c->own);
        out += n;
        offset += n;
        size -= n;
    }
    if (c->f.cuStreamSynchronize(c->own) != 0 || error != 0) error = 1;
    lmc__cuda_leave(c);
    return error ? LMC_ERR_DEVICE : LMC_OK;
}

/* The base of the reader, if it is on the device; or NULL. */
static const lmc_cuda_base *lmc__cuda_base_of(const lmc_cuda *c, const lmc_reader *r)
{
    const lmc_base *const base = r->origin.base;
    const lmc_cuda_base *b;
    if (!base || base->read != lmc__read_cuda_base) return NULL;
    b = (const lmc_cuda_base *)base->user;
    return b->cuda->device == c->device ? b : NULL;
}

/* Whether a tensor of the base overlaps these bytes. */
static int lmc__has_address(const lmc_cuda_base *b, uint64_t start, uint64_t size)
{
    const lmc__cuda_place *const places = lmc__cuda_places(&b->sorted);
    size_t i;
    LMC__FIND_FIRST(i, 0, b->file.n_tensors, places[i].start < start + size);
    return i != 0 && places[i - 1].end > start;
}

static int lmc__compare_places(const void *a, const void *b)
{
    const lmc__cuda_place *const x = (const lmc__cuda_place *)a, *const y =
                                                                     (const lmc__cuda_place *)b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static enum lmc_status lmc__take_cuda_tensors(lmc_cuda_base *b, const lmc_tensor *tensors,
                                              const void *const *data, size_t n)
{
    lmc__cuda_place place;
    size_t i;
    for (i = 0; i < n; i++) {
        lmc_tensor t = tensors[i];
        LMC__CHECK(t.name && t.dtype && (t.rank == 0 || t.shape) && (t.size == 0 || data[i]) &&
                       t.size <= (uint64_t)INT64_MAX - b->file.size,
                   LMC_ERR_ARGUMENT);
        t.offset = b->file.size;
        b->file.size += t.size;
        place.start = (uintptr_t)data[i];
        place.end = place.start + t.size;
        LMC__TRY(lmc__append(&b->tensors, &t, sizeof t));
        LMC__TRY(lmc__append(&b->data, &place, sizeof place));
        LMC__TRY(lmc__append(&b->sorted, &place, sizeof place));
    }
    lmc__heap_sort(b->sorted.data, n, sizeof place, lmc__compare_places, &place);
    for (i = 1; i < n; i++) {
        lmc__cuda_place *const places = lmc__cuda_places(&b->sorted);
        if (places[i].end < places[i - 1].end) places[i].end = places[i - 1].end;
    }
    b->file.path = "";
    b->file.n_tensors = n;
    b->file.tensors = (const lmc_tensor *)(const void *)b->tensors.data;
    return LMC_OK;
}

/* Computes the fingerprints of the base, within the context. */
static enum lmc_status lmc__identify_on_gpu(lmc_cuda *c, lmc_cuda_base *b)
{
    lmc__digester planner, taker; /* one plans the pieces, the other takes their sums */
    lmc__piece piece;
    lmc__gpu_piece *rows;
    uint32_t i, n;
    LMC__TRY(lmc__reserve_table(c, &c->halves[0]));
    rows = lmc__gpu_pieces(c);
    lmc__begin_digester(&planner, &b->file);
    lmc__begin_digester(&taker, &b->file);
    LMC__TRY(lmc__append(&b->fingerprints, NULL,
                         LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(&b->file)));
    taker.fingerprints = b->fingerprints.data;
    do {
        for (n = 0; n < LMC__CUDA_MAX_JOBS && planner.planned < b->file.size; n++) {
            const uint64_t at = planner.planned;
            piece = lmc__plan_piece(&planner, LMC__LEAF_SIZE);
            rows[n].at = lmc__base_address(b, at);
            rows[n].size = piece.size;
        }
        if (n) LMC__TRY(lmc__sum_on_gpu(c, rows, lmc__gpu_sums_of(rows), n));
        for (i = 0; i < n; i++) {
            piece = lmc__plan_piece(&taker, LMC__LEAF_SIZE);
            lmc__absorb_gpu_sums(&taker, &piece, &lmc__gpu_sums_of(rows)[i]);
        }
    } while (n != 0);
    lmc__finish_digester(&taker);
    for (i = 0; i < b->file.n_tensors; i++)
        memcpy(((lmc_tensor *)(void *)b->tensors.data)[i].fingerprint,
               taker.fingerprints + LMC_FINGERPRINT_SIZE * (size_t)i, LMC_FINGERPRINT_SIZE);
    if (b->file.n_tensors == 0)
        memcpy(b->file.fingerprint, taker.fingerprints, LMC_FINGERPRINT_SIZE);
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_base_open(lmc_cuda_base **base, lmc_cuda *c,
                                                     const lmc_tensor *tensors,
                                                     const void *const *data, size_t n,
                                                     void *stream)
{
    lmc_cuda_base *b;
    enum lmc_status status;
    if (base) *base = NULL;
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!base || !c->tables || (n && (!tensors || !data)))
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    b = (lmc_cuda_base *)lmc__realloc(c->options.allocator, NULL, 0, sizeof *b);
    if (!b) return lmc__cuda_note(c, LMC_ERR_MEMORY);
    memset(b, 0, sizeof *b);
    b->cuda = c;
    lmc__init_buffers(b, LMC__CUDA_BASE_BUFFERS, c->options.allocator);
    b->base.n_files = 1;
    b->base.get_file = lmc__get_cuda_file;
    b->base.read = lmc__read_cuda_base;
    b->base.user = b;
    c->stream = (lmc__cu_stream)stream;
    status = lmc__take_cuda_tensors(b, tensors, data, n);
    if (status == LMC_OK) status = lmc__cuda_enter(c);
    if (status == LMC_OK) {
        status = lmc__identify_on_gpu(c, b);
        if (status != LMC_OK) (void)c->f.cuStreamSynchronize(c->stream);
        lmc__cuda_leave(c);
    }
    if (status == LMC_OK) *base = b;
    else lmc_cuda_base_free(b);
    return lmc__cuda_note(c, status);
}

LMC__COLD LMC_API void lmc_cuda_base_free(lmc_cuda_base *b)
{
    if (!b) return;
    lmc__free_buffers(b, LMC__CUDA_BASE_BUFFERS);
    (void)lmc__realloc(b->cuda->options.allocator, b, sizeof *b, 0);
}

LMC_API const lmc_base *lmc_cuda_base_get(const lmc_cuda_base *b) { return b ? &b->base : NULL; }

/* -- in place -- */

/* The tensor of the snapshot that has byte `at` of a stream; NULL: no tensor has it. *start: where
 * the tensor begins in the stream. */
static const lmc_tensor *lmc__find_streamed(const lmc_reader *r, const lmc__stream *stream,
                                            uint64_t at, uint64_t *start)
{
    const lmc__listed_file *f;
    const lmc_tensor *t;
    size_t i;
    LMC__FIND_FIRST(i, stream->first_file, stream->first_file + stream->n_files,
                    lmc__file_at(r, i)->start + lmc__file_at(r, i)->file.size <= at);
    if (i == stream->first_file + stream->n_files) return NULL;
    f = lmc__file_at(r, i);
    t = f->file.tensors;
    LMC__FIND_FIRST(i, 0, f->file.n_tensors, f->start + t[i].offset + t[i].size <= at);
    if (i == f->file.n_tensors || f->start + t[i].offset > at) return NULL;
    *start = f->start + t[i].offset;
    return &t[i];
}

/* Suppose each tensor is decoded over the base's tensor of its name. Returns whether the blocks at
 * bytes [from, end) of the run's stream then replace exactly the bytes that predict them. */
static int lmc__are_blocks_in_place(const lmc_reader *r, const lmc__run *run, uint64_t from,
                                    uint64_t end)
{
    const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, run->stream);
    uint32_t i;
    if (run->prediction != LMC__PREDICT_BASE) return run->prediction == LMC__PREDICT_ZERO;
    for (i = lmc__find_segment(run, from); i < run->n_segments; i++) {
        const lmc__segment *const s = &run->segments[i];
        const lmc_tensor *t, *predicted_by;
        uint64_t start = 0;
        if (s->start >= end) break;
        if (s->base == 0) continue;
        t = lmc__find_streamed(r, stream, s->start, &start);
        predicted_by = lmc__get_item(&r->origin, s->base - 1)->tensor;
        if (!t || !predicted_by || strcmp(t->name, predicted_by->name) != 0 ||
            t->size != predicted_by->size || s->base_offset != s->start - start)
            return 0;
    }
    return 1;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_can_read_in_place(const lmc_reader *r,
                                                             uint64_t file_number, uint64_t offset,
                                                             uint64_t size, int *can)
{
    const lmc__stream *stream;
    uint64_t at = offset;
    if (!r || !can || !r->origin.base || r->is_salvage ||
        file_number >= r->tables.listing.n_files ||
        !(stream = lmc__stream_range(r, (size_t)file_number, &at, size)))
        return LMC_ERR_ARGUMENT;
    size += at;
    for (*can = 1; *can && at < size;) {
        const lmc__run *const run = &lmc__run_at(r, lmc__find_run(r, stream, at))->run;
        const uint64_t end = lmc__min64(run->start + run->size, size),
                       first = (at - run->start) / run->block_size,
                       last = (end - run->start - 1) / run->block_size;
        *can = lmc__are_blocks_in_place(r, run, run->start + first * run->block_size,
                                        run->start + (last + 1) * run->block_size);
        at = end;
    }
    return LMC_OK;
}
