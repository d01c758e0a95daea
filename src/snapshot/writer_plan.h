#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/dtypes.h"
#include "codec/quant_params.h"
#include "codec/put_quantized.h"
#include "quantize/quantizer.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/files.h"
#include "snapshot/texts.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"
#include "snapshot/origin.h"
#include "snapshot/work.h"
#ifndef LMC_NO_ENCODER

/* How the writer plans a file: which bytes become a run, how they are coded, and what predicts
 * them. A run has one dtype and one kind of prediction:
 *     file   | header |  embed (large)  | norm | q | k (small, alike) | head (large) | rest |
 *     runs   |  text  |      BF16       |         BF16                |     BF16     | AUTO |
 *     segments   3            1           1      1   1, if predicted         1
 *
 * A large tensor is a run of its own. So the same tensor of the next snapshot is cut into the same
 * blocks, and it has its own trees. Small neighbours share a run, which saves headers and trees.
 * Bytes between tensors have dtype AUTO.
 *
 * What predicts the bytes:
 *   bytes before the first tensor   the file's header text (texts.h), if they contain it
 *   bytes between tensors           earlier such bytes of the same size, if they can be read back:
 *                                   the headers in an archive hardly differ
 *   a tensor                        its twin, if that was written before and can be read back; else
 *                                   the base's tensor of that name, or of a name that differs only
 *                                   in its prefix
 *   a quantised tensor              its second moment, or nothing
 *   a file without tensors          its twin, or the base's file of its path
 *
 * The plan depends only on the descriptions of files. So the output does not depend on the pieces
 * in which the caller writes a file. */

/* The longest run: a multiple of every block size, with fewer than 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* Log2 of the factor by which the blocks of a sparse delta are larger than others. */
#define LMC__SPARSE_MORE_LOG2 1u
/* Log2 of the elements of a block in a run of several tensors without a prediction: half the usual
 * number, because each tensor has its own statistics. */
#define LMC__SHARED_LOG2_BLOCK 15u

/* Without a prediction, and in blocks of the default size, a tensor of so many bytes is large: a
 * run and trees of its own take 0.3 % of it at most, and save up to 2 % if its neighbours have
 * other statistics. Half that size costs tensors of bytes up to 1 %. */
#define LMC__LARGE_TENSOR_SIZE ((uint64_t)32 << 10)

/* The mean size of such a run. Only the name and the size of a tensor decide whether the run ends
 * after it. So the blocks behind a changed tensor stay the same, for programs that store equal
 * ranges once. */
#define LMC__SHARED_RUN_SIZE ((uint32_t)128 << 10)

/* Bytes between small tensors, or a tensor of another dtype, join the run around them if they are
 * whole elements and at most this size. Two more runs would take 200 bytes. */
#define LMC__SPANNED_SIZE 256u

/* Gaps between tensors that may be headers have these sizes. A tensor of at most TINY_SIZE bytes
 * between two gaps is coded with them. The last MAX_GAPS sizes are remembered. */
#define LMC__MIN_GAP_SIZE 128u
#define LMC__MAX_GAP_SIZE 65536u
#define LMC__TINY_SIZE 512u
#define LMC__MAX_GAPS 64u

typedef struct lmc__gap {
    uint32_t file_number;
    uint64_t offset, size; /* size 0: no gap */
} lmc__gap;

struct lmc_writer {
    lmc__buffer body; /* of the section that is being written */
    /* encoded metadata entries, in the order of the calls; ancillary sections with headers */
    lmc__buffer metadata, sections;
    lmc__buffer contents; /* copies of what the wave has encoded, for hashes */
    lmc__buffer hashes;   /* of all files, with options.content_hashes */
    /* the segments of the current run; its section, which is written before its first block */
    lmc__buffer segments, run_head;
    /* bytes of the file that are in no job yet: the start of a block, or of a run if the size of
     * the file is unknown */
    lmc__buffer carry;
    /* lmc_quantizer *, of copied files (copy.h); the writer frees them */
    lmc__buffer quantizers;
    /* bytes of the small files that wait (writer_groups.h), one file after another; CRC and
     * fingerprint of each */
    lmc__buffer group, group_facts;
    lmc__buffer file_records, index_records; /* of the next file; of the index */
    lmc__buffer hints;                       /* for the next file; then they are in the listing */
    /* with read_back: an lmc__written_run for each run; for each block a u32, the CRC of its
     * content; the last block that was read back */
    lmc__buffer written, block_crcs, block_read;
    lmc_writer_options options;
    enum lmc_status status; /* the first error stays */
    uint64_t offset;        /* bytes that were written, or wait in parts */
    lmc_writer_info info;   /* the members from_base_... */
    lmc__coder coder;
    lmc__index_builder index;
    lmc__listing listing; /* all files so far; a waiting file is a stream of its own */
    lmc__origin origin;   /* reads predictions; its read_back is lmc__read_written */
    uint64_t read_block;  /* number of the block in block_read, plus 1; 0: none */
    uint32_t n_runs, n_metadata, n_sections;
    int is_finished;
    uint8_t header[LMC__HEADER_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    lmc__reach reach; /* the cost of reading all predictions so far */
    /* the last gaps, all of different sizes; a new gap replaces the oldest */
    lmc__gap gaps[LMC__MAX_GAPS];
    unsigned next_gap;
    size_t n_waiting; /* files that wait: the last files of the listing */
    int in_group;     /* 1: the waiting files are being written */
    int is_callers;   /* 1: the bytes to code are in the caller's memory, and may change */
    /* 1: the base lacks one of the files, so it cannot be overwritten */
    int is_moved;

    /* the current file, in the listing */
    int in_file, is_waiting;
    lmc_file *file;
    uint64_t left;                /* bytes of the file that may still come */
    enum lmc_dtype default_dtype; /* of bytes outside of tensors */
    lmc__digester digester;
    uint64_t position; /* bytes of its stream in runs that have begun */
    size_t next;       /* the first unit that does not end before position, or an earlier unit */
    /* bytes before the first tensor, if they are needed all at once; else 0 */
    size_t header_size;

    /* the current run, and how it is coded */
    lmc__run run;
    enum lmc_dtype dtype;
    uint64_t row_size; /* elements in a row of the tensor that the run is; 0: it is none */
    const lmc__quant_params *quant; /* or NULL */
    int is_shared;                  /* several tensors share the run; its blocks are smaller */
    uint64_t run_left;              /* bytes of the run that are in no job yet */
    uint64_t wave_start;            /* where in the stream the planned wave begins */
    uint32_t block;                 /* number of the next block */
    int may_enlarge;                /* see lmc__choose_run_blocks */
};
#define LMC__WRITER_BUFFERS LMC__ROW(lmc_writer, body, options)

/* The current file, unless files wait: it was listed last. */
static lmc__listed_file *lmc__current_file(const lmc_writer *w)
{
    return lmc__listed_at(&w->listing, w->listing.n_files - 1);
}

/* Whether only lmc_writer_end_file tells where the current file ends. */
static int lmc__is_size_unknown(const lmc_writer *w)
{
    return w->in_file && w->file->size == LMC_UNKNOWN_SIZE;
}

/* -- reading back what was written -- */

/* The number of the file's first tensor that does not end before offset. */
static size_t lmc__find_tensor(const lmc_file *file, uint64_t offset)
{
    size_t i;
    LMC__FIND_FIRST(i, 0, file->n_tensors,
                    file->tensors[i].offset + file->tensors[i].size <= offset);
    return i;
}

/* Whether any piece of these bytes can be read back and quantised as in the snapshot. This is
 * impossible if the quantiser needs a second moment, or if elements are cut. */
static int lmc__is_readable(const lmc__listed_file *f, uint64_t offset, uint64_t size)
{
    const lmc_file *const file = &f->file;
    const uint64_t end = offset + size;
    size_t i = lmc__find_tensor(file, offset);
    for (; i < file->n_tensors && file->tensors[i].offset < end; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        const lmc__quant_params *const quant = lmc__quant_of(f, t);
        if (quant && !quant->is_exact &&
            (quant->is_predicted || (t->offset - offset) % quant->width ||
             (end < t->offset + t->size && (end - t->offset) % quant->width)))
            return 0;
    }
    return 1;
}

/* A run that was written. first_block: number of its first block, counted over the snapshot. */
typedef struct lmc__written_run {
    lmc__range range;
    uint64_t first_block;
    size_t block_size;
} lmc__written_run;

/* The number of the block that has byte `position` of a stream. *block: its range. */
static uint64_t lmc__find_block(const lmc_writer *w, size_t stream, uint64_t position,
                                lmc__range *block)
{
    const lmc__written_run *const run =
        (const lmc__written_run *)(const void *)w->written.data +
        lmc__find_stream_range(&w->written, sizeof *run, stream, position);
    const uint64_t i = (position - run->range.start) / run->block_size;
    block->start = run->range.start + i * run->block_size;
    block->end = lmc__min64(block->start + run->block_size, run->range.end);
    return run->first_block + i;
}

/* Whether the bytes of this snapshot that predict the run were already encoded. */
static int lmc__is_encoded(const lmc_writer *w)
{
    uint32_t i;
    for (i = 0; i < w->run.n_segments; i++) {
        const lmc__segment *const s = &w->run.segments[i];
        const lmc__listed_file *const f = lmc__listed_at(&w->listing, s->base ? s->base - 1 : 0);
        if (s->base && f->stream == w->run.stream &&
            f->start + s->base_offset + lmc__prediction_scale(&w->run) * s->size > w->wave_start)
            return 0;
    }
    return 1;
}

/* Reads bytes of a stream (of one file or several) through the caller's read_back. If the tensor is
 * quantised in the snapshot, they are then quantised, too. */
static enum lmc_status lmc__read_caller(const lmc_writer *w, size_t stream, uint64_t position,
                                        uint8_t *dst, size_t size)
{
    size_t number = lmc__find_file(&w->listing, lmc__stream_at(&w->listing, stream), position);
    for (; size != 0; number++) {
        const lmc__listed_file *const f = lmc__listed_at(&w->listing, number);
        const uint64_t offset = position - f->start;
        const size_t part = (size_t)lmc__min64(size, f->file.size - offset);
        size_t i = lmc__find_tensor(&f->file, offset);
        if (part) LMC__TRY(w->options.read_back(w->options.user, number, offset, dst, part));
        for (; i < f->file.n_tensors && f->file.tensors[i].offset < offset + part; i++) {
            const lmc_tensor *const t = &f->file.tensors[i];
            const lmc__quant_params *const quant = lmc__quant_of(f, t);
            const uint64_t from = t->offset > offset ? t->offset : offset,
                           to = lmc__min64(t->offset + t->size, offset + part);
            if (quant)
                LMC__TRY(lmc__quantize_range(quant, dst + (size_t)(from - offset), from - t->offset,
                                             (size_t)(to - from), NULL));
        }
        position += part;
        dst += part;
        size -= part;
    }
    return LMC_OK;
}

/* The origin's read_back; user: the writer. It reads whole blocks, to check by their CRCs that the
 * bytes are those that were encoded. */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_writer *const w = (lmc_writer *)user;
    const lmc__listed_file *const f = lmc__listed_at(&w->listing, file_number);
    uint64_t position = f->start + offset;
    uint8_t *to = (uint8_t *)dst;
    while (size != 0) {
        lmc__range block;
        const uint64_t number = lmc__find_block(w, f->stream, position, &block);
        const size_t block_size = (size_t)(block.end - block.start),
                     skip = (size_t)(position - block.start),
                     part = lmc__min(size, block_size - skip);
        if (w->read_block != number + 1) {
            w->read_block = 0;
            LMC__TRY(lmc__reserve(&w->block_read, block_size));
            LMC__TRY(lmc__read_caller(w, f->stream, block.start, w->block_read.data, block_size));
            if (w->coder.wave.k->crc32c(0, w->block_read.data, block_size) !=
                lmc__load32(w->block_crcs.data + 4 * (size_t)number))
                return LMC_ERR_CHANGED;
            w->read_block = number + 1;
        }
        memcpy(to, w->block_read.data + skip, part);
        position += part;
        to += part;
        size -= part;
    }
    return LMC_OK;
}

/* -- files -- */

/* Checks the tensor's quantiser, if there is one. The quantiser must fit the dtype, size and
 * generation of the tensor. If it needs a second moment, the tensor's twin must refer to it. */
static enum lmc_status lmc__check_quantization(const lmc_tensor *t, const lmc_tensor_hints *hints)
{
    const lmc_twin *const twin = hints->twin;
    const lmc__quant_params *const q = lmc__get_quant_params(hints->quantizer);
    LMC__TRY(lmc__check_quantizer(hints->quantizer, lmc_dtype_find(t->dtype), t->size));
    if (!q) return LMC_OK;
    if (lmc__get_quantizer_loss(hints->quantizer).generation !=
        t->loss.generation + (q->is_exact ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (twin && twin->conversion == LMC_CONVERT_NONE) ? LMC_OK
                                                                              : LMC_ERR_ARGUMENT;
}

#define LMC__MAX_TEXT_HEADER ((uint64_t)128 << 20)

/* Begins the file that was listed last. If the bytes before the first tensor may contain the header
 * text, they are kept in memory. */
LMC__COLD static enum lmc_status lmc__plan_file(lmc_writer *w)
{
    const uint64_t before = w->file->n_tensors ? w->file->tensors[0].offset : 0;
    uint64_t size;
    w->position = w->next = w->header_size = 0;
    w->run_left = 0;
    if (before == 0 || before > LMC__MAX_TEXT_HEADER) return LMC_OK;
    LMC__TRY(lmc__get_text_size(lmc__current_file(w), &size));
    if (size <= before) w->header_size = (size_t)before;
    return LMC_OK;
}

/* -- predictions -- */

/* A unit of prediction: a tensor, or a file without tensors (tensor is NULL). Both NULL: bytes
 * between tensors. */
typedef struct lmc__unit {
    const lmc__listed_file *file;
    const lmc_tensor *tensor;
    uint64_t start, end; /* within the stream */
} lmc__unit;

/* The unit that has byte `at` of the current stream, whose size is known. *i: the tensor (in a
 * group: file) where the search begins; on return, that of the unit, or the next tensor. */
static lmc__unit lmc__unit_at(const lmc_writer *w, uint64_t at, size_t *i)
{
    const lmc_file *const file = w->file;
    lmc__unit u = {lmc__current_file(w), NULL, 0, 0};
    if (w->in_group) {
        const lmc__listed_file *f = lmc__listed_at(&w->listing, *i);
        while (f->start + f->file.size <= at) f = lmc__listed_at(&w->listing, ++*i);
        u.file = f;
        u.start = f->start;
        u.end = f->start + f->file.size;
        return u;
    }
    u.end = file->size;
    if (file->n_tensors == 0) return u;
    u.tensor = file->tensors + *i;
    for (; *i < file->n_tensors && u.tensor->offset + u.tensor->size <= at; u.tensor++) ++*i;
    if (*i < file->n_tensors) {
        u.start = u.tensor->offset;
        u.end = u.start + u.tensor->size;
        if (u.start <= at) return u;
        u.end = u.start;
    }
    u.file = NULL;
    u.tensor = NULL;
    return u;
}

/* What predicts a unit: fields of a RUN body and of a segment. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t base; /* 0: there is no prediction */
    uint64_t base_offset;
} lmc__prediction;

/* The prediction by a twin. Its base is 0 if the twin cannot be read back. size: of the tensor or
 * file that has the twin. */
static lmc__prediction lmc__predict_by_twin(const lmc_writer *w, const lmc_twin *twin,
                                            uint64_t size)
{
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (!w->options.read_back || !twin || (unsigned)twin->conversion > LMC_CONVERT_F32_TO_F16 ||
        twin->file_number >= UINT32_MAX || (twin->conversion && size % 2 != 0))
        return found;
    if (twin->conversion) size *= 2;
    if (!lmc__can_read_back(&w->origin, twin->file_number, twin->offset, size) ||
        !lmc__is_readable(lmc__listed_at(&w->listing, twin->file_number), twin->offset, size))
        return found;
    found.kind = LMC__PREDICT_OWN;
    found.conversion = (unsigned)twin->conversion;
    found.base = (uint32_t)twin->file_number + 1;
    found.base_offset = twin->offset;
    return found;
}

/* What predicts tensor t, or the file if t is NULL. Repeated calls return the same result. */
LMC__COLD static lmc__prediction lmc__find_prediction(const lmc_writer *w,
                                                      const lmc__listed_file *listed,
                                                      const lmc_tensor *t)
{
    const lmc__origin *const o = &w->origin;
    const lmc_file *const f = &listed->file;
    const lmc_tensor_hints hints = lmc__hints_of(listed, t);
    const lmc__quant_params *const quant = lmc__get_quant_params(hints.quantizer);
    lmc__prediction found;
    size_t i;
    memset(&found, 0, sizeof found);
    if (!quant || quant->is_predicted)
        found = lmc__predict_by_twin(w, hints.twin, t ? t->size : f->size);
    if (found.base || quant || !o->base) return found;
    if (hints.base_parts)
        for (i = 0; i < hints.n_base_parts && !found.base; i++)
            found.base = lmc__match_part(o, &hints.base_parts[i]);
    else found.base = lmc__match(o, f, t);
    if (found.base) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* Whether the twin of t is in no run yet: if so, t must be in a later run than its twin. */
static int lmc__repeats_run(const lmc_writer *w, const lmc_tensor *t)
{
    const lmc_twin *const twin = lmc__hints_of(lmc__current_file(w), t).twin;
    return w->options.read_back && twin && twin->file_number == w->listing.n_files - 1 &&
           (twin->offset >= w->position || t->size > w->position - twin->offset);
}

/* -- runs -- */

/* F32s in wide rows have blocks as large as those of deltas: of few rows, a block's columns would
 * take more bits than they save (put_matrix.h). */
#define LMC__WIDE_ROW_SIZE 4096u

/* Each quantised block has a table, so quantised blocks are as large as those of deltas. */
static size_t lmc__choose_block_size(const lmc_writer *w)
{
    const int has_prediction = w->run.prediction != LMC__PREDICT_ZERO || w->quant != NULL;
    unsigned log2_block = w->options.log2_block;
    if (log2_block == 0 && w->is_shared && !has_prediction) log2_block = LMC__SHARED_LOG2_BLOCK;
    if (log2_block == 0 && w->dtype == LMC_F32 && w->row_size >= LMC__WIDE_ROW_SIZE)
        log2_block = LMC__WIDE_DELTA_LOG2_BLOCK;
    return lmc__get_block_size(w->dtype, lmc__limit_log2_block(w->dtype, log2_block),
                               has_prediction);
}

/* Whether tensor t[1] may continue the run that ends with t[0]. Elements must stay whole, even with
 * a conversion (R4-47). Bytes of no known dtype share trees only with others. */
static int lmc__continues_run(const lmc_writer *w, const lmc_tensor *t)
{
    const unsigned width = lmc_dtype_width(w->dtype);
    const uint64_t gap = t[1].offset - (t[0].offset + t[0].size);
    if (gap > LMC__SPANNED_SIZE || gap % width != 0) return 0;
    if (w->run.conversion && gap % 2 != 0) return 0;
    return lmc_dtype_find(t[1].dtype) == w->dtype ||
           (t[1].size <= LMC__SPANNED_SIZE && t[1].size % width == 0 &&
            (w->dtype != LMC_AUTO || w->run.prediction != LMC__PREDICT_ZERO));
}

static int lmc__ends_run(const lmc_writer *w, const lmc_tensor *t)
{
    return w->coder.wave.k->crc32c(0, (const uint8_t *)t->name, strlen(t->name)) %
               LMC__SHARED_RUN_SIZE <
           t->size;
}

/* Rows of fewer elements are not predicted; those of filters (3 x 3) join with the one before. */
#define LMC__MIN_ROW_SIZE 64u

/* Coded elements in a row of the matrix that tensor t is: the product of its last dimensions, of as
 * few as have enough elements; 0 if there are none. A complex element is coded as two. */
static uint64_t lmc__row_size_of(const lmc_tensor *t)
{
    const enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
    uint64_t size = 1;
    size_t i = t->rank;
    while (i > 1 && size < LMC__MIN_ROW_SIZE) size *= t->shape[--i];
    return size < LMC__MIN_ROW_SIZE ? 0
                                    : size * (lmc_dtype_bits(dtype) / 8 / lmc_dtype_width(dtype));
}

/* Begins a run with tensor t. Returns where the run ends: after t, or after the last of the small
 * tensors that follow and are coded in the same way. */
static uint64_t lmc__plan_tensors(lmc_writer *w, const lmc_tensor *t)
{
    const lmc__listed_file *const f = lmc__current_file(w);
    const lmc_tensor *const first = t, *const behind = w->file->tensors + w->file->n_tensors;
    uint64_t end = t->offset + t->size, large;
    lmc__prediction by = lmc__find_prediction(w, f, t);
    w->dtype = lmc_dtype_find(t->dtype);
    /* If t began in an earlier run, before its twin was written, its rest may have an odd size.
     * With a conversion, such segments are refused (R4-47). */
    if (!by.conversion || (w->position - t->offset) % 2 == 0) w->run.prediction = by.kind;
    if (w->run.prediction != LMC__PREDICT_ZERO) w->run.conversion = by.conversion;
    large = lmc__choose_block_size(w);
    if (w->run.prediction == LMC__PREDICT_ZERO && w->options.log2_block == 0)
        large = lmc__min64(large, LMC__LARGE_TENSOR_SIZE);
    w->quant = lmc__quant_of(f, t);
    w->row_size = lmc__row_size_of(t);
    if (t->size >= large || w->quant) return end;
    for (t++; t < behind && t - first < (ptrdiff_t)(LMC__MAX_SEGMENTS / 2); t++) {
        if (t->size >= large || !lmc__continues_run(w, t - 1) || lmc__quant_of(f, t) ||
            lmc__repeats_run(w, t) ||
            (w->run.prediction == LMC__PREDICT_ZERO && lmc__ends_run(w, t - 1)))
            break;
        by = lmc__find_prediction(w, f, t);
        if (by.kind != w->run.prediction || by.conversion != w->run.conversion) break;
        end = t->offset + t->size;
    }
    w->is_shared = t - first > 1;
    if (w->is_shared) w->row_size = 0;
    return end;
}

static enum lmc_status lmc__append_segment(lmc_writer *w, uint64_t start, uint64_t size,
                                           uint32_t base, uint64_t base_offset)
{
    const lmc__segment segment = {start, size, base_offset, base};
    if (size == 0) return LMC_OK;
    if (w->run.n_segments++ == LMC__MAX_SEGMENTS) return LMC_ERR_LIMIT;
    return lmc__append(&w->segments, &segment, sizeof segment);
}

/* If the bytes before the first tensor contain the header text, plans their run. Else plans
 * nothing. */
LMC__COLD static enum lmc_status lmc__plan_text(lmc_writer *w, const uint8_t *header)
{
    const size_t size = w->header_size;
    const uint8_t *at = header, *const end = header + size;
    lmc__listed_file *const f = lmc__current_file(w);
    uint64_t text_size;
    LMC__TRY(lmc__get_text_size(f, &text_size)); /* at most size */
    w->header_size = 0;
    w->body.size = 0;
    LMC__TRY(lmc__reserve(&w->body, text_size));
    lmc__read_text(f, 0, w->body.data, (size_t)text_size);
    for (;; at++) {
        const size_t left = (size_t)(end - at);
        if (left >= text_size)
            at = (const uint8_t *)memchr(at, w->body.data[0], left - (size_t)text_size + 1);
        if (left < text_size || !at) return LMC_OK;
        if (memcmp(at, w->body.data, (size_t)text_size) == 0) break;
    }
    LMC__TRY(lmc__append_segment(w, 0, (uint64_t)(at - header), 0, 0));
    LMC__TRY(lmc__append_segment(w, (uint64_t)(at - header), text_size,
                                 (uint32_t)w->listing.n_files, 0));
    at += text_size;
    LMC__TRY(lmc__append_segment(w, (uint64_t)(at - header), (uint64_t)(end - at), 0, 0));
    w->dtype = LMC_U8;
    w->run.size = size;
    w->run.prediction = LMC__PREDICT_TEXT;
    return LMC_OK;
}

/* An earlier gap of the same size that can be read back, or NULL. If no gap of this size is known,
 * remembers the gap at offset. */
static const lmc__gap *lmc__find_gap(lmc_writer *w, uint64_t offset, uint64_t size)
{
    lmc__gap *gap = w->gaps;
    if (!w->options.read_back || size < LMC__MIN_GAP_SIZE || size > LMC__MAX_GAP_SIZE) return NULL;
    while (gap < w->gaps + LMC__MAX_GAPS && gap->size != size) gap++;
    if (gap < w->gaps + LMC__MAX_GAPS)
        return lmc__can_read_back(&w->origin, gap->file_number, gap->offset, size) ? gap : NULL;
    gap = &w->gaps[w->next_gap++ % LMC__MAX_GAPS];
    gap->file_number = (uint32_t)(w->listing.n_files - 1);
    gap->offset = offset;
    gap->size = size;
    return NULL;
}

/* Whether a unit is a gap: bytes between tensors, or such bytes that are listed as a tensor and
 * that nothing else predicts. */
static int lmc__is_gap(const lmc_writer *w, const lmc__unit *u)
{
    const lmc_tensor *const t = u->tensor;
    return !u->file || (w->options.read_back && t && strcmp(t->dtype, "BYTES") == 0 &&
                        t->size <= LMC__MAX_GAP_SIZE &&
                        lmc__find_prediction(w, u->file, t).kind == LMC__PREDICT_ZERO);
}

/* Plans the run that begins with the gap u, if an earlier gap had its size; else nothing. A tiny
 * tensor with such a gap after it is part of the run. */
static enum lmc_status lmc__plan_gap(lmc_writer *w, lmc__unit u)
{
    uint64_t at = w->position;
    size_t i = w->next;
    const lmc__gap *gap = lmc__find_gap(w, at, u.end - at);
    if (!gap) return LMC_OK;
    while (gap) {
        uint64_t start = u.end; /* of the next gap */
        LMC__TRY(lmc__append_segment(w, at, start - at, gap->file_number + 1, gap->offset));
        at = start;
        u = lmc__unit_at(w, at, &i);
        if (!lmc__is_gap(w, &u) && u.end - at <= LMC__TINY_SIZE && !lmc__quant_of(u.file, u.tensor))
            u = lmc__unit_at(w, start = u.end, &i);
        gap = lmc__is_gap(w, &u) ? lmc__find_gap(w, start, u.end - start) : NULL;
        if (w->run.n_segments > LMC__MAX_SEGMENTS / 2) gap = NULL;
        if (gap) LMC__TRY(lmc__append_segment(w, at, start - at, 0, 0));
        if (gap) at = start;
    }
    w->dtype = LMC_U8;
    w->run.size = at - w->position;
    w->run.prediction = LMC__PREDICT_OWN;
    return LMC_OK;
}

/* Plans the run that begins with unit u, in a stream of known size. */
static enum lmc_status lmc__plan_units(lmc_writer *w, lmc__unit u)
{
    if (lmc__is_gap(w, &u)) {
        LMC__TRY(lmc__plan_gap(w, u));
        if (w->run.size) return LMC_OK;
    } else if (u.tensor) {
        u.end = lmc__plan_tensors(w, u.tensor);
    } else {
        const uint64_t all = lmc__stream_at(&w->listing, w->run.stream)->size;
        lmc__prediction by = lmc__find_prediction(w, u.file, NULL);
        size_t i = w->next;
        w->run.prediction = by.kind;
        w->run.conversion = by.conversion;
        while (u.end < all) { /* the files of a group */
            const lmc__unit next = lmc__unit_at(w, u.end, &i);
            by = lmc__find_prediction(w, next.file, NULL);
            if (by.kind != w->run.prediction) break;
            u.end = next.end;
        }
    }
    w->run.size = u.end - w->position;
    return LMC_OK;
}

/* Appends a segment of a predicted run. If reading its prediction would cost too much (work.h), the
 * segment gets no prediction. */
static enum lmc_status lmc__append_in_reach(lmc_writer *w, uint64_t start, uint64_t size,
                                            uint32_t base, uint64_t base_offset)
{
    if (base && size) {
        uint64_t file = base - 1, at = base_offset;
        if (w->run.prediction == LMC__PREDICT_BASE) {
            const lmc__item *const item = lmc__get_item(&w->origin, base - 1);
            file = item->file_number;
            at += item->tensor ? item->tensor->offset : 0;
        }
        if (!lmc__can_reach(&w->reach, file, at, lmc__prediction_scale(&w->run) * size,
                            start / w->run.block_size) &&
            !w->quant) /* quantised runs need it */
            base = 0;
    }
    return lmc__append_segment(w, start, size, base, base ? base_offset : 0);
}

/* Appends the segments of bytes [at, stop) of a unit that n parts of the base predict. start: where
 * the unit begins. */
LMC__COLD static enum lmc_status lmc__plan_parts(lmc_writer *w, const lmc_base_part *parts,
                                                 size_t n, uint64_t start, uint64_t at,
                                                 uint64_t stop)
{
    size_t i;
    for (i = 0; i < n && at < stop; i++) { /* the part begins at start <= at */
        const lmc_base_part *const part = &parts[i];
        const uint64_t end = part->size < stop - start ? start + part->size : stop;
        if (at < end) {
            const uint32_t base = lmc__match_part(&w->origin, part);
            LMC__TRY(lmc__append_in_reach(w, at, end - at, base,
                                          base ? part->offset + (at - start) : 0));
            at = end;
        }
        start = end;
    }
    return lmc__append_segment(w, at, stop - at, 0, 0);
}

/* Appends the segments of a predicted run: one or several for each unit. */
LMC__COLD static enum lmc_status lmc__plan_segments(lmc_writer *w)
{
    const uint64_t end = w->position + w->run.size;
    uint64_t at, stop;
    size_t i = w->next;
    w->reach.request = UINT64_MAX; /* no request: blocks of each run are counted from 0 */
    for (at = w->position; at < end; at = stop) {
        const lmc__unit u = lmc__unit_at(w, at, &i);
        const lmc_tensor *const t = u.tensor;
        lmc_tensor_hints hints;
        lmc__prediction by;
        stop = lmc__min64(end, u.end);
        if (!u.file) {
            LMC__TRY(lmc__append_segment(w, at, stop - at, 0, 0));
            continue;
        }
        by = lmc__find_prediction(w, u.file, t);
        hints = lmc__hints_of(u.file, t);
        if (by.kind == LMC__PREDICT_BASE && hints.base_parts)
            LMC__TRY(lmc__plan_parts(w, hints.base_parts, hints.n_base_parts, u.start, at, stop));
        else
            LMC__TRY(lmc__append_in_reach(
                w, at, stop - at, by.base,
                by.base ? by.base_offset + (by.conversion ? 2 : 1) * (at - u.start) : 0));
    }
    return LMC_OK;
}

/* Plans the run of the next bytes. data has at least one byte, and at least header_size bytes.
 * available: bytes of the run, if the file's size is unknown. Except in a group, a run has whole
 * elements; the next run, of bytes, takes the rest. */
LMC__COLD static enum lmc_status lmc__plan_run(lmc_writer *w, const uint8_t *data, size_t available)
{
    lmc__run *const run = &w->run;
    unsigned width;
    memset(run, 0, sizeof *run);
    run->start = w->position;
    run->stream = w->listing.n_streams - 1;
    w->segments.size = 0;
    w->dtype = w->default_dtype;
    w->quant = NULL;
    w->row_size = 0;
    w->is_shared = 0;
    if (w->header_size) LMC__TRY(lmc__plan_text(w, data));
    if (run->size == 0 && lmc__is_size_unknown(w)) run->size = available;
    else if (run->size == 0) LMC__TRY(lmc__plan_units(w, lmc__unit_at(w, w->position, &w->next)));
    if (run->n_segments == 0 && !w->in_group) {
        run->size = lmc__min64(run->size, LMC__MAX_RUN_SIZE);
        width = lmc_dtype_width(w->dtype);
        if (run->size < width) w->dtype = LMC_AUTO;
        else run->size -= run->size % width;
        if (w->dtype == LMC_AUTO && run->size > 4096)
            run->size -= run->size % 8; /* so that blocks have whole elements of any width */
    }
    if (w->quant && w->quant->is_predicted && run->prediction != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its second moment was not written before */
    run->block_size = lmc__choose_block_size(w);
    if (run->prediction != LMC__PREDICT_ZERO && run->n_segments == 0)
        LMC__TRY(lmc__plan_segments(w));
    lmc__set_segments(run, &w->segments);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
