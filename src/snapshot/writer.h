#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/put_quantised.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/identity.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/index_entries.h"
#include "snapshot/origin.h"

/* Files of unknown size are cut into runs of this many bytes, which are collected before they are
 * written. */
#define LMC__PENDING_SIZE ((size_t)16 << 20)
/* A longer range of tensors or other bytes is cut; a multiple of any block size, and fewer than
 * 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* A tensor of at least this many blocks starts a run of its own; smaller neighbours of one dtype
 * share one. */
#define LMC__OWN_RUN_BLOCKS 4u

struct lmc_writer {
    lmc_writer_options options;
    enum lmc_status status; /* the first error stays */
    uint64_t offset;        /* bytes written, or about to be */
    lmc__coder coder;
    lmc__index_builder index;
    lmc__buffer body;     /* of the section at hand */
    lmc__buffer metadata; /* encoded entries, in the order they came */
    lmc__buffer paths;    /* see lmc__add_path */
    uint32_t n_files, n_runs, n_metadata;
    int has_empty_path, is_finished;
    uint8_t identity[LMC_IDENTITY_SIZE];

    int in_file;
    lmc_file file;
    lmc__buffer file_memory;
    enum lmc_dtype default_dtype;
    uint64_t position; /* bytes of the file that are in runs begun so far */
    size_t next_tensor;
    lmc__digester digester;

    lmc__origin origin;
    lmc__run run;
    uint64_t run_left; /* bytes of the run that are in no job yet */
    enum lmc_dtype dtype;
    size_t block_size;
    uint32_t block;                 /* number of the next block */
    const lmc_quantizer *quantizer; /* of the run, or NULL */
    uint64_t quantised_from;        /* where its tensor begins */
    lmc__buffer quantised;          /* lmc__quantised_range, of all files */
    int has_quantizer;              /* the file at hand does */
    lmc__buffer
        run_head; /* to be written before the run's first block: header and body of its section */
    lmc__buffer carry; /* the beginning of a block; of a run if the file's size is unknown */
};

/* A tensor that is not in the file as it is read back. */
typedef struct lmc__quantised_range {
    lmc__range range;
    const lmc_quantizer *quantizer;
} lmc__quantised_range;

/* Of those the number of the first that ends behind offset, or belongs to a later file. */
static size_t lmc__find_quantised(const lmc_writer *w, size_t file_number, uint64_t offset)
{
    return lmc__find_file_range(&w->quantised, sizeof(lmc__quantised_range), file_number, offset);
}

/* Whether pieces of that can be read as the snapshot has them: no updates, which want a second
 * moment, nor parts of elements. */
static int lmc__is_readable(const lmc_writer *w, size_t file_number, uint64_t offset, uint64_t size)
{
    const lmc__quantised_range *const ranges =
        (const lmc__quantised_range *)(const void *)w->quantised.data;
    const size_t n = w->quantised.size / sizeof *ranges;
    size_t i;
    for (i = lmc__find_quantised(w, file_number, offset);
         i < n && ranges[i].range.file_number == file_number &&
         ranges[i].range.start < offset + size;
         i++) {
        const lmc__range *const r = &ranges[i].range;
        const unsigned width = ranges[i].quantizer->width;
        if (ranges[i].quantizer->is_predicted || (r->start - offset) % width ||
            (offset + size < r->end && (offset + size - r->start) % width))
            return 0;
    }
    return 1;
}

/* The caller's read_back, and what the snapshot has of that. */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    const lmc_writer *const w = (const lmc_writer *)user;
    const lmc__quantised_range *const ranges =
        (const lmc__quantised_range *)(const void *)w->quantised.data;
    const size_t n = w->quantised.size / sizeof *ranges;
    size_t i;
    LMC__TRY(w->options.read_back(w->options.read_back_user, file_number, offset, dst, size));
    for (i = lmc__find_quantised(w, file_number, offset);
         i < n && ranges[i].range.file_number == file_number &&
         ranges[i].range.start < offset + size;
         i++) {
        const lmc__range *const r = &ranges[i].range;
        const uint64_t from = r->start > offset ? r->start : offset,
                       to = lmc__min64(r->end, offset + size);
        LMC__TRY(lmc_quantize(ranges[i].quantizer, (uint8_t *)dst + (size_t)(from - offset),
                              from - r->start, (size_t)(to - from), NULL));
    }
    return LMC_OK;
}

static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    if (w->coder.sink.write(w->coder.sink.user, data, size) != 0) return LMC_ERR_WRITE;
    w->offset += size;
    return LMC_OK;
}

/* Write w->body as a section, and its entry so far to the index. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind, uint32_t number)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    const uint64_t size = w->body.size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(head, kind, number, w->body.data, size, w->coder.wave.k);
    LMC__TRY(lmc__index_section(&w->index, w->offset, head, w->body.data, w->body.size));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, w->body.data, w->body.size);
}

static void lmc__visit_writer(lmc_writer *w, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&w->index.entries, alloc_user);
    visit(&w->body, alloc_user);
    visit(&w->metadata, alloc_user);
    visit(&w->paths, alloc_user);
    visit(&w->file_memory, alloc_user);
    visit(&w->carry, alloc_user);
    visit(&w->run_head, alloc_user);
    visit(&w->quantised, alloc_user);
}

LMC_API enum lmc_status lmc_open_writer(lmc_writer **writer, const lmc_sink *sink,
                                        const lmc_writer_options *options)
{
    lmc_writer_options defaults;
    uint8_t header[LMC__HEADER_SIZE];
    enum lmc_status status;
    lmc_writer *w;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!writer || !sink || !sink->write || !lmc__is_parallel(options->parallel) ||
        (unsigned)options->level > LMC_LEVEL_MAX ||
        lmc__get_block_size(LMC_U8, options->log2_block, 0) == 0)
        return LMC_ERR_ARGUMENT;
    w = (lmc_writer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *w);
    if (!w) return LMC_ERR_MEMORY;
    memset(w, 0, sizeof *w);
    w->options = *options;
    lmc__open_coder(&w->coder, options->parallel, options->alloc_user);
    w->coder.sink = *sink;
    w->coder.task = lmc__encode_snapshot_task;
    lmc__visit_writer(w, lmc__init_buffer, options->alloc_user);
    w->index.limit = UINT64_MAX;
    status = lmc__open_origin(&w->origin, options->base, options->alloc_user);
    w->origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->origin.user = w;
    memset(header, 0, sizeof header);
    memcpy(header, lmc__magic, 8);
    header[8] = LMC_FORMAT_MAJOR;
    header[9] = LMC_FORMAT_MINOR;
    lmc__store16(header + 10, LMC__HEADER_SIZE);
    lmc__store32(header + 12, options->read_back ? 0 : LMC__FLAG_SEQUENTIAL);
    if (options->base) {
        memcpy(header + 32, w->origin.identity, LMC_IDENTITY_SIZE);
        lmc__store32(header + 64, options->base->chain_depth + 1);
        if (options->base->chain_depth == UINT32_MAX) status = LMC_ERR_LIMIT;
    }
    lmc__store32(header + 76, w->coder.wave.k->crc32c(0, header, 76));
    if (status == LMC_OK) status = lmc__sink_write(w, header, sizeof header);
    if (status != LMC_OK) {
        lmc_free_writer(w);
        return status;
    }
    *writer = w;
    return LMC_OK;
}

LMC_API void lmc_free_writer(lmc_writer *w)
{
    if (!w) return;
    lmc__free_coder(&w->coder);
    lmc__visit_writer(w, lmc__free_visited, NULL);
    lmc__free_origin(&w->origin);
    (void)LMC_REALLOC(w->options.alloc_user, w, sizeof *w, 0);
}

/* The tensor's quantiser, if it has one, was fitted to such a tensor, of its generation. */
static enum lmc_status lmc__check_quantizer(const lmc_tensor *t)
{
    const lmc_quantizer *const q = lmc__get_quantizer(t);
    enum lmc_dtype dtype;
    if (!q) return LMC_OK;
    dtype = lmc_find_dtype(t->dtype);
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || lmc_dtype_width(dtype) != q->width ||
        t->size != q->n * q->width)
        return LMC_ERR_ARGUMENT;
    if (q->info.loss.generation != t->loss.generation + (q->is_recovered ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (t->twin && t->twin->conversion == LMC_CONVERT_NONE)
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                       enum lmc_dtype default_dtype)
{
    enum lmc_status status;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC_DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (w->n_files == UINT32_MAX) return LMC_ERR_LIMIT;
    for (i = 0; i < file->n_tensors && file->tensors; i++)
        LMC__TRY(lmc__check_quantizer(&file->tensors[i]));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file));
    status = lmc__parse_file(&w->file, &w->file_memory, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    if (w->n_files > 0 && (w->has_empty_path || w->file.path[0] == 0)) return LMC_ERR_ARGUMENT;
    w->has_empty_path = w->file.path[0] == 0;
    status = lmc__add_path(&w->paths, w->n_files, w->file.path);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    LMC__TRY(lmc__write_section(w, "FILE", w->n_files));
    w->has_quantizer = 0;
    for (i = 0; i < file->n_tensors; i++) {
        lmc_tensor *const t = &((lmc_tensor *)(void *)w->file_memory.data)[i];
        lmc__quantised_range quantised;
        t->twin = file->tensors[i].twin;
        quantised.quantizer = t->quantizer = lmc__get_quantizer(&file->tensors[i]);
        if (!t->quantizer) continue;
        w->has_quantizer = 1;
        if (t->quantizer->is_recovered) continue; /* is at hand as it is */
        quantised.range.file_number = w->n_files;
        quantised.range.start = t->offset;
        quantised.range.end = t->offset + t->size;
        LMC__TRY(lmc__append(&w->quantised, &quantised, sizeof quantised));
    }
    w->n_files++;
    LMC__TRY(lmc__index_file(&w->index, &w->file));
    w->in_file = 1;
    w->default_dtype = default_dtype;
    w->position = 0;
    w->next_tensor = 0;
    w->run_left = 0;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, &w->file);
    return LMC_OK;
}

/* How a tensor is predicted (NULL: the file, which has none), and by what: the Base and Base_Offset
 * of a segment. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t number;
    uint64_t offset;
} lmc__prediction;

static lmc__prediction lmc__find_prediction(const lmc_writer *w, const lmc_tensor *t)
{
    const lmc_quantizer *const quantizer = lmc__get_quantizer(t);
    const lmc_twin *const twin =
        t && w->options.read_back && (!quantizer || quantizer->is_predicted) ? t->twin : NULL;
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (twin && (unsigned)twin->conversion <= LMC_CONVERT_F32_TO_F16 &&
        twin->file_number < UINT32_MAX && (!twin->conversion || t->size % 2 == 0)) {
        const uint64_t size = twin->conversion ? 2 * t->size : t->size;
        if (twin->offset <= LMC__MAX_FILE_SIZE && size <= LMC__MAX_FILE_SIZE - twin->offset &&
            lmc__can_read_back(&w->origin, twin->file_number, twin->offset, size) &&
            lmc__is_readable(w, (size_t)twin->file_number, twin->offset, size)) {
            found.kind = LMC__PREDICT_OWN;
            found.conversion = twin->conversion;
            found.number = (uint32_t)twin->file_number + 1;
            found.offset = twin->offset;
            return found;
        }
    }
    if (w->origin.base && !quantizer)
        found.number = lmc__match_item(&w->origin, w->file.path, t ? t->name : w->file.path,
                                       t ? t->dtype : NULL, t ? t->size : w->file.size);
    if (found.number) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* The tensor's twin is in the run that would begin at start of this file: only in a later run can
 * it refer to that. */
static int lmc__repeats_run(const lmc_writer *w, const lmc_tensor *t, uint64_t start)
{
    const lmc_twin *const twin = w->options.read_back ? t->twin : NULL;
    return twin && twin->file_number == w->n_files - 1 &&
           (twin->offset >= start || t->size > start - twin->offset);
}

/* Quantised runs have a table in each block, as deltas have much else: theirs are as large. */
static size_t lmc__get_run_block_size(const lmc_writer *w, enum lmc_dtype dtype,
                                      const lmc__prediction *prediction, int is_quantised)
{
    return lmc__get_block_size(dtype, w->options.log2_block,
                               prediction->kind != LMC__PREDICT_ZERO || is_quantised);
}

/* How to code the next bytes of a file of known size: the run's end, dtype and kind of prediction.
 */
static uint64_t lmc__plan_run(lmc_writer *w, enum lmc_dtype *dtype, lmc__prediction *prediction)
{
    const lmc_file *f = &w->file;
    const uint64_t start = w->position;
    uint64_t end = f->size;
    *dtype = w->default_dtype;
    w->quantizer = NULL;
    memset(prediction, 0, sizeof *prediction);
    if (f->n_tensors == 0) *prediction = lmc__find_prediction(w, NULL);
    while (w->next_tensor < f->n_tensors &&
           f->tensors[w->next_tensor].offset + f->tensors[w->next_tensor].size <= start)
        w->next_tensor++;
    if (w->next_tensor < f->n_tensors) {
        size_t i = w->next_tensor;
        end = f->tensors[i].offset;
        if (end <= start) { /* in a tensor */
            uint32_t n = 0;
            uint64_t own;
            *dtype = lmc_find_dtype(f->tensors[i].dtype);
            *prediction = lmc__find_prediction(w, &f->tensors[i]);
            own = (uint64_t)LMC__OWN_RUN_BLOCKS * lmc__get_run_block_size(w, *dtype, prediction, 0);
            end += f->tensors[i].size;
            w->quantizer = f->tensors[i].quantizer;
            w->quantised_from = f->tensors[i].offset;
            if (f->tensors[i].size < own && !w->quantizer)
                for (i++;
                     i < f->n_tensors && ++n < LMC__MAX_SEGMENTS && f->tensors[i].offset == end &&
                     f->tensors[i].size < own && lmc_find_dtype(f->tensors[i].dtype) == *dtype &&
                     !f->tensors[i].quantizer && !lmc__repeats_run(w, &f->tensors[i], start);
                     i++) {
                    const lmc__prediction next = lmc__find_prediction(w, &f->tensors[i]);
                    if (next.kind != prediction->kind || next.conversion != prediction->conversion)
                        break;
                    end += f->tensors[i].size;
                }
        }
    }
    return end;
}

/* The run's segments: one for each tensor that is predicted, else one for all. */
static enum lmc_status lmc__append_segments(lmc_writer *w, uint64_t size,
                                            const lmc__prediction *prediction)
{
    const uint64_t end = w->position + size;
    uint64_t at = w->position;
    size_t i = w->next_tensor;
    uint32_t n = 0;
    while (at < end) {
        const lmc_tensor *t = NULL;
        lmc__prediction found = *prediction;
        uint64_t stop = end, start = 0;
        uint8_t segment[LMC__SEGMENT_SIZE];
        if (prediction->kind != LMC__PREDICT_ZERO && w->file.n_tensors) {
            while (w->file.tensors[i].offset + w->file.tensors[i].size <= at)
                i++; /* empty ones, too */
            t = &w->file.tensors[i];
            start = t->offset;
            stop = lmc__min64(end, start + t->size);
            found = lmc__find_prediction(w, t);
        }
        memset(segment, 0, sizeof segment);
        lmc__store32(segment, w->n_files - 1);
        lmc__store32(segment + 4, found.number);
        lmc__store64(segment + 8, at);
        lmc__store64(segment + 16, stop - at);
        lmc__store64(segment + 24, found.number == 0
                                       ? 0
                                       : found.offset + (found.conversion ? 2 : 1) * (at - start));
        LMC__TRY(lmc__append(&w->run_head, segment, sizeof segment));
        at = stop;
        if (++n == LMC__MAX_SEGMENTS && at < end) return LMC_ERR_LIMIT;
    }
    lmc__store32(w->run_head.data + LMC__SECTION_HEADER_SIZE + 12, n);
    return LMC_OK;
}

/* Begin a run of at most size bytes that continues the file; what does not fill an element is left
 * for a run of bytes. */
static enum lmc_status lmc__begin_run(lmc_writer *w, uint64_t size, enum lmc_dtype dtype,
                                      const lmc__prediction *prediction)
{
    unsigned log2_block = 0;
    uint64_t position = w->position;
    uint8_t *body;
    size_t body_size;
    size = lmc__min64(size, LMC__MAX_RUN_SIZE);
    if (size < lmc_dtype_width(dtype)) dtype = LMC_AUTO;
    size -= size % lmc_dtype_width(dtype);
    if (dtype == LMC_AUTO && size > 4096)
        size -= size % 8; /* so that every block can be split at any width */
    if (w->n_runs == UINT32_MAX) return LMC_ERR_LIMIT;
    if (w->quantizer && w->quantizer->is_predicted && prediction->kind != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its twin was not written before */
    w->block_size = lmc__get_run_block_size(w, dtype, prediction, w->quantizer != NULL);
    while ((size_t)1 << log2_block < w->block_size) log2_block++;
    w->run_head.size = 0;
    LMC__TRY(lmc__append(&w->run_head, NULL, LMC__SECTION_HEADER_SIZE + LMC__RUN_BODY_SIZE));
    LMC__TRY(lmc__append_segments(w, size, prediction));
    body = w->run_head.data + LMC__SECTION_HEADER_SIZE;
    body_size = w->run_head.size - LMC__SECTION_HEADER_SIZE;
    lmc__store64(body, size);
    body[8] = (uint8_t)log2_block;
    body[9] = (uint8_t)prediction->kind;
    body[10] = (uint8_t)prediction->conversion;
    lmc__put_section_header(w->run_head.data, "RUN ", w->n_runs, body, body_size, w->coder.wave.k);
    LMC__TRY(lmc__parse_run(&w->run, body, body_size, w->n_files - 1, &w->file, &position));
    LMC__TRY(lmc__add_run(&w->origin, &w->run));
    LMC__TRY(lmc__set_coder(&w->coder, w->block_size, w->block_size / lmc_dtype_width(dtype), 0));
    w->dtype = dtype;
    w->n_runs++;
    w->block = 0;
    w->run_left = size;
    w->position += size;
    return LMC_OK;
}

/* Begin the run of the bytes that come next, of which at least one is there; available: all that
 * are known to come if the file's size is unknown. */
static enum lmc_status lmc__next_run(lmc_writer *w, size_t available)
{
    enum lmc_dtype dtype;
    lmc__prediction prediction;
    uint64_t end;
    memset(&prediction, 0, sizeof prediction);
    w->quantizer = NULL;
    if (w->file.size == LMC_UNKNOWN_SIZE)
        return lmc__begin_run(w, available, w->default_dtype, &prediction);
    if (w->position == w->file.size) return LMC_ERR_ARGUMENT; /* more than the file has */
    end = lmc__plan_run(w, &dtype, &prediction);
    return lmc__begin_run(w, end - w->position, dtype, &prediction);
}

/* Encode the wave that is planned; what it made is written beside the next one. */
static enum lmc_status lmc__encode_wave(lmc_writer *w)
{
    lmc__coder *c = &w->coder;
    const size_t n = c->n_jobs;
    size_t i;
    if (n == 0) return LMC_OK;
    LMC__TRY(lmc__run_step(c));
    w->digester.identities = lmc__index_identities(&w->index);
    lmc__absorb_pieces(c, &w->digester);
    for (i = 0; i < n; i++) {
        const lmc__job *job = &lmc__job_at(c, i)->job;
        const size_t head_size = lmc__job_at(c, i)->head_size;
        const uint8_t *start = job->dst - head_size;
        if (head_size)
            LMC__TRY(lmc__index_section(&w->index, w->offset, start,
                                        start + LMC__SECTION_HEADER_SIZE,
                                        head_size - LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__index_block(&w->index, job->dst_size, job->dst));
        LMC__TRY(lmc__add_part(c, start, head_size + job->dst_size));
        w->offset += head_size + job->dst_size;
    }
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Plan a block of the run. */
static enum lmc_status lmc__plan_block(lmc_writer *w, const uint8_t *data, size_t size)
{
    lmc__coder *c = &w->coder;
    const size_t head = w->block == 0 ? w->run_head.size : 0, slot = head + lmc_bound_block(size);
    lmc__buffer *out = &c->out[c->out_number];
    lmc__snapshot_job *block_job;
    lmc__job *job;
    if (c->n_jobs && slot > out->cap - out->size) {
        LMC__TRY(lmc__encode_wave(w));
        out = &c->out[c->out_number];
    }
    if (c->n_jobs ==
        0) { /* pointers into it from now on; a sixteenth more: heads of many small blocks */
        const uint64_t wave_size = lmc__get_wave_size(c, w->block_size);
        LMC__TRY(lmc__reserve(out, wave_size + wave_size / 16 + head));
        if (w->origin.base || w->origin.read_back)
            LMC__TRY(lmc__reserve(&c->base, out->cap)); /* a block's is no larger than its slot */
    }
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    if (w->run.prediction != LMC__PREDICT_ZERO) {
        uint8_t *const base = c->base.data + c->base.size;
        c->base.size += size;
        LMC__TRY(lmc__read_prediction(&w->origin, &w->run, w->run.size - w->run_left, base, size));
        job->base = base;
    }
    if (head) memcpy(out->data + out->size, w->run_head.data, head);
    block_job->head_size = head;
    job->src = data;
    job->src_size = size;
    job->dst = out->data + out->size + head;
    job->dst_size = slot - head;
    job->dtype = w->dtype;
    job->level = w->options.level;
    job->quantizer = w->quantizer;
    job->first_element =
        w->quantizer
            ? (w->run.start + w->run.size - w->run_left - w->quantised_from) / w->quantizer->width
            : 0;
    job->position.run = w->n_runs - 1;
    job->position.block = w->block++;
    out->size += slot;
    w->run_left -= size;
    return lmc__plan_pieces(c, &w->digester, block_job, size);
}

/* Plan blocks of the next bytes; *rest: how many at the end are less than a block. data must stay
 * until the wave is encoded. */
static enum lmc_status lmc__plan_blocks(lmc_writer *w, const uint8_t *data, size_t size,
                                        size_t *rest)
{
    while (size != 0) {
        size_t n;
        if (w->run_left == 0) LMC__TRY(lmc__next_run(w, size));
        n = (size_t)lmc__min64(w->block_size, w->run_left);
        if (n > size) break;
        LMC__TRY(lmc__plan_block(w, data, n));
        data += n;
        size -= n;
    }
    *rest = size;
    return LMC_OK;
}

/* Encode the blocks in carry, which must be whole. */
static enum lmc_status lmc__flush_carry(lmc_writer *w)
{
    size_t rest;
    LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
    w->carry.size = 0;
    return lmc__encode_wave(w);
}

static enum lmc_status lmc__write_bytes(lmc_writer *w, const uint8_t *data, size_t size)
{
    const int is_unknown = w->in_file && w->file.size == LMC_UNKNOWN_SIZE;
    if (!w->in_file || (!data && size)) return LMC_ERR_ARGUMENT;
    while (size != 0) {
        size_t n = size;
        if (is_unknown ||
            w->carry.size) { /* in carry is the beginning of what is coded as a whole */
            const size_t whole =
                is_unknown ? LMC__PENDING_SIZE : (size_t)lmc__min64(w->block_size, w->run_left);
            if (is_unknown && w->position + w->carry.size >= LMC__MAX_FILE_SIZE - size)
                return LMC_ERR_LIMIT;
            LMC__TRY(lmc__reserve(&w->carry, whole - w->carry.size));
            n = lmc__min(size, whole - w->carry.size);
            LMC__TRY(lmc__append(&w->carry, data, n));
            if (w->carry.size == whole) LMC__TRY(lmc__flush_carry(w));
        } else { /* straight from the caller's memory */
            size_t rest;
            LMC__TRY(lmc__plan_blocks(w, data, size, &rest));
            LMC__TRY(lmc__encode_wave(w));
            LMC__TRY(lmc__append(&w->carry, data + size - rest, rest));
        }
        data += n;
        size -= n;
    }
    return LMC_OK;
}

/* Spans of the stream are read into the two buffers in turn. The beginning of a block that ends in
 * the next span is moved to just before that. */
static enum lmc_status lmc__write_stream(lmc_writer *w, const lmc_stream *stream)
{
    lmc__coder *c = &w->coder;
    const int is_unknown = w->in_file && w->file.size == LMC_UNKNOWN_SIZE;
    const size_t room = is_unknown ? 0
                                   : lmc__get_block_size(LMC_U64, w->options.log2_block,
                                                         w->options.base || w->options.read_back ||
                                                             w->has_quantizer); /* none is larger */
    const uint64_t wave_size = lmc__get_wave_size(c, room),
                   span = is_unknown ? LMC__PENDING_SIZE : wave_size;
    uint64_t left;
    size_t size, rest;
    unsigned number = 0;
    uint8_t *data;
    if (!w->in_file || !stream || !stream->read) return LMC_ERR_ARGUMENT;
    if (span > SIZE_MAX / 4) return LMC_ERR_SIZE;
    c->stream = *stream;
    c->ended = 0;
    left = (is_unknown ? LMC__MAX_FILE_SIZE : w->file.size) - (w->position - w->run_left) -
           w->carry.size;
    rest = w->carry.size;
    LMC__TRY(lmc__reserve(&c->in[0], room + span));
    data = c->in[0].data + room; /* carry has less than room for blocks, less than span for runs */
    if (!is_unknown) data -= rest;
    if (rest) memcpy(data, w->carry.data, rest);
    w->carry.size = 0;
    lmc__want(c, data + rest, (size_t)lmc__min64(is_unknown ? span - rest : span, left),
              SIZE_MAX / 2);
    for (;;) {
        lmc__buffer *next = &c->in[number ^= 1];
        lmc__read_portion(c); /* the first, or what no step has read */
        while (c->read_got < c->read_size && !c->ended && !c->read_failed) lmc__read_portion(c);
        if (c->read_failed) return LMC_ERR_READ;
        left -= c->read_got;
        size = rest + c->read_got;
        if (size == 0 || (is_unknown && size < span)) break;
        LMC__TRY(lmc__reserve(next, room + span));
        lmc__want(c, next->data + room, c->ended ? 0 : (size_t)lmc__min64(span, left),
                  (size_t)wave_size);
        LMC__TRY(lmc__plan_blocks(w, data, size, &rest));
        LMC__TRY(lmc__encode_wave(w));
        if (c->read_size == 0) {
            data += size - rest;
            size = rest;
            break;
        }
        if (rest) memcpy(next->data + room - rest, data + size - rest, rest);
        data = next->data + room - rest;
    }
    lmc__want(c, NULL, 0, 0);
    if (is_unknown && left == 0) return LMC_ERR_LIMIT;
    return lmc__append(&w->carry, data, size);
}

static enum lmc_status lmc__end_file(lmc_writer *w)
{
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (w->file.size == LMC_UNKNOWN_SIZE) {
        LMC__TRY(lmc__flush_carry(w));
        w->file.size = w->position;
    }
    if (w->digester.absorbed != w->file.size) return LMC_ERR_ARGUMENT;
    lmc__index_file_end(&w->index, &w->digester, w->file.size);
    w->in_file = 0;
    return LMC_OK;
}

static enum lmc_status lmc__add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    size_t key_size;
    if (!key || (!value && size) || w->is_finished) return LMC_ERR_ARGUMENT;
    key_size = strlen(key);
    if (key_size < 1 || key_size > LMC__MAX_STRING) return LMC_ERR_ARGUMENT;
    if (size > LMC__MAX_VALUE_SIZE || w->n_metadata == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)key_size));
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)size));
    LMC__TRY(lmc__append(&w->metadata, key, key_size));
    LMC__TRY(lmc__append(&w->metadata, value, size));
    w->n_metadata++;
    return LMC_OK;
}

/* The metadata entries in order of their keys, appended to the index. */
static enum lmc_status lmc__append_metadata(lmc_writer *w)
{
    const uint8_t *p = w->metadata.data;
    uint32_t i;
    lmc__item *items;
    w->body.size = 0; /* holds the items */
    for (i = 0; i < w->n_metadata; i++) {
        const uint32_t key_size = lmc__load32(p), size = lmc__load32(p + 4);
        LMC__TRY(lmc__append_item(&w->body, p + 8, key_size, NULL));
        p += 8 + (size_t)key_size + size;
    }
    items = (lmc__item *)(void *)w->body.data;
    lmc__sort_items(items, w->n_metadata);
    if (lmc__has_duplicates(items, w->n_metadata)) return LMC_ERR_ARGUMENT;
    for (i = 0; i < w->n_metadata; i++) {
        const uint8_t *entry = items[i].name - 8;
        LMC__TRY(lmc__grow_index(&w->index, entry,
                                 8 + (size_t)lmc__load32(entry) + lmc__load32(entry + 4)));
    }
    return LMC_OK;
}

static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t head[LMC__INDEX_BODY_SIZE], section[LMC__SECTION_HEADER_SIZE],
        trailer[LMC__TRAILER_SIZE];
    const lmc__kernels *k = w->coder.wave.k;
    const uint64_t index_at = w->offset, n_entries = (uint64_t)w->n_files + w->n_runs;
    lmc__index_head counts;
    uint64_t body_size;
    if (w->in_file || w->is_finished || w->n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__collect_items(&w->body, w->index.entries.data, n_entries));
    lmc__snapshot_identity(&w->body, w->identity);
    LMC__TRY(lmc__append_metadata(w));
    counts.n_files = w->n_files;
    counts.n_runs = w->n_runs;
    counts.n_metadata = w->n_metadata;
    memcpy(counts.identity, w->identity, LMC_IDENTITY_SIZE);
    lmc__put_index_head(head, &counts);
    body_size = sizeof head + (uint64_t)w->index.entries.size;
    if (body_size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(section, "INDX", 0, head, sizeof head,
                            k); /* the head's CRC, to be continued */
    lmc__store64(section + 8, body_size);
    lmc__store32(section + 16, k->crc32c(0, section, 16));
    lmc__store32(section + 20, k->crc32c(lmc__load32(section + 20), w->index.entries.data,
                                         w->index.entries.size));
    LMC__TRY(lmc__sink_write(w, section, sizeof section));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    LMC__TRY(lmc__sink_write(w, w->index.entries.data, w->index.entries.size));
    memset(trailer, 0, sizeof trailer);
    lmc__store64(trailer, index_at);
    lmc__store64(trailer + 8, w->offset - index_at);
    lmc__store64(trailer + 16, w->offset + LMC__TRAILER_SIZE);
    lmc__store32(trailer + 28, k->crc32c(0, trailer, 28));
    memcpy(trailer + 32, lmc__end_magic, 8);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays: what was written after it would be wrong. */
#define LMC__STICKY(call)                                                                          \
    if (!w) return LMC_ERR_ARGUMENT;                                                               \
    if (w->status == LMC_OK) w->status = (call);                                                   \
    return w->status

LMC_API enum lmc_status lmc_begin_file(lmc_writer *w, const lmc_file *file,
                                       enum lmc_dtype default_dtype)
{
    LMC__STICKY(lmc__begin_file(w, file, default_dtype));
}
LMC_API enum lmc_status lmc_write_bytes(lmc_writer *w, const void *data, size_t size)
{
    LMC__STICKY(lmc__write_bytes(w, (const uint8_t *)data, size));
}
LMC_API enum lmc_status lmc_write_stream(lmc_writer *w, const lmc_stream *stream)
{
    LMC__STICKY(lmc__write_stream(w, stream));
}
LMC_API enum lmc_status lmc_end_file(lmc_writer *w) { LMC__STICKY(lmc__end_file(w)); }
LMC_API enum lmc_status lmc_add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    LMC__STICKY(lmc__add_metadata(w, key, value, size));
}
LMC_API enum lmc_status lmc_finish_writer(lmc_writer *w) { LMC__STICKY(lmc__finish_writer(w)); }

LMC_API enum lmc_status lmc_get_writer_identity(const lmc_writer *w,
                                                uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (!w || !identity || !w->is_finished) return LMC_ERR_ARGUMENT;
    memcpy(identity, w->identity, LMC_IDENTITY_SIZE);
    return LMC_OK;
}

LMC_API uint64_t lmc_count_written(const lmc_writer *w)
{
    uint64_t pending = 0;
    size_t i;
    if (!w) return 0;
    for (i = 0; i < w->coder.parts.size / sizeof(lmc__part); i++)
        pending += ((const lmc__part *)(const void *)w->coder.parts.data)[i].size;
    return w->offset - pending;
}
