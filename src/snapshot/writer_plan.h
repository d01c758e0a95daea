#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/dtypes.h"
#include "codec/quant_params.h"
#include "codec/put_quantised.h"
#include "quantise/quantizer.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/files.h"
#include "snapshot/texts.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/work.h"
#ifndef LMC_NO_ENCODER

/* What the writer makes of a file: which bytes become a run, how they are coded, and what they are
 * predicted by. A run is all of one dtype and one kind of prediction:
 *
 *     file   | header |  embed (large)  | norm | q | k (small, alike) | head (large) | rest |
 *     runs   |  text  |      BF16       |         BF16                |     BF16     | AUTO |
 *     segments   3            1           1      1   1, if predicted         1
 *
 * A tensor of a block or more is a run of its own: so a slice of it, and the same tensor of the
 * next snapshot, are cut alike. Small neighbours share one, which saves headers and trees. Bytes
 * between tensors are AUTO.
 *
 * What predicts them:
 *
 *   bytes before the first tensor   the file's header text (texts.h), if they contain it
 *   bytes between tensors           earlier ones of the same size, where the writer can read back:
 *                                   the headers in an archive hardly differ
 *   a tensor                        its twin, if that was written before and can be read back; else
 *                                   the base's tensor of that name, or of one that differs in what
 *                                   stands before it
 *   a quantised tensor              its second moment, or nothing
 *   a file without tensors          its twin, or the base's file of its path
 *
 * The plan depends on descriptions alone: so the bytes written are the same however the file
 * comes. */

/* A longer range is cut; a multiple of any block size, and fewer than 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* The blocks of a sparse delta are 2^1 times as large as those of others. */
#define LMC__SPARSE_MORE_LOG2 1u
/* Elements of a block in a run that several tensors share, which is not predicted: half of what
 * others have, as each tensor has its own statistics. */
#define LMC__SHARED_LOG2_BLOCK 15u

/* Such a run ends behind one of them by its name and size alone, every so many bytes on average: so
 * blocks are the same again behind a tensor that has changed, for stores that keep equal ranges of
 * bytes once. */
#define LMC__SHARED_RUN_SIZE ((uint32_t)128 << 10)

/* So many bytes between tensors, or of a tensor of another dtype, belong to the run of the small
 * tensors around them, if they are whole elements: two more runs would cost some 200 bytes. */
#define LMC__SPANNED_SIZE 256u

/* Bytes between tensors that may be headers. A tensor of at most TINY_SIZE bytes between two of
 * them is coded with them. So many sizes are remembered. */
#define LMC__MIN_GAP_SIZE 128u
#define LMC__MAX_GAP_SIZE 65536u
#define LMC__TINY_SIZE 512u
#define LMC__MAX_GAPS 64u

typedef struct lmc__gap {
    uint32_t file_number;
    uint64_t offset, size; /* 0: none */
} lmc__gap;

/* What a plan is made from. Nothing of it changes while a run is written, but for position. */
typedef struct lmc__planner {
    lmc__buffer quantized; /* lmc__quantized_range, of all files */
    /* with read_back: lmc__written_run, of all runs; u32, the CRC of each block's content, as far
     * as they are encoded; and a block that was read back: block_number */
    lmc__buffer written, block_crcs, block;
    /* lmc__segment: of the run that is begun */
    lmc__buffer segments;
    const lmc_writer_options *options;
    lmc__origin origin;    /* where predictions come from; reads back by lmc__read_written */
    uint64_t block_number; /* plus 1; 0: none */
    /* all files so far. Each is a stream of its own, so both have one number */
    lmc__listing listing;
    /* the file at hand, and its number */
    lmc_file file;
    uint32_t file_number;
    enum lmc_dtype default_dtype; /* of bytes that are in no tensor */
    int has_quantizer;            /* one of the file's tensors does */
    uint64_t position;            /* bytes of the file that are in runs begun so far */
    size_t next_tensor;           /* the first that does not end before position, or a lower one */
    /* of the bytes before the first tensor, which are wanted at once; 0: they are not */
    size_t header_size;
    lmc__reach reach; /* what it costs to read all predictions so far */
    /* the last ones, each of another size; the next goes where the oldest is */
    lmc__gap gaps[LMC__MAX_GAPS];
    unsigned next_gap;
} lmc__planner;
#define LMC__PLANNER_BUFFERS LMC__ROW(lmc__planner, quantized, options)

/* -- what was written, as it can be read back -- */

/* A tensor that the caller has otherwise than the snapshot: it was quantised on its way. */
typedef struct lmc__quantized_range {
    lmc__range range;
    const lmc__quant_params *quant;
} lmc__quantized_range;

static const lmc__quantized_range *lmc__quantized_at(const lmc__planner *p, size_t i)
{
    return (const lmc__quantized_range *)(const void *)p->quantized.data + i;
}

/* Number i is there, and has bytes of [offset, end) of that file. */
static int lmc__is_quantized_in(const lmc__planner *p, size_t i, size_t file_number, uint64_t end)
{
    return i < p->quantized.size / sizeof(lmc__quantized_range) &&
           lmc__quantized_at(p, i)->range.stream == file_number &&
           lmc__quantized_at(p, i)->range.start < end;
}

/* The first that does not end before offset of that file; those behind it follow in order. */
static size_t lmc__find_quantized(const lmc__planner *p, size_t file_number, uint64_t offset)
{
    return lmc__find_stream_range(&p->quantized, sizeof(lmc__quantized_range), file_number, offset);
}

/* Pieces of those bytes can be read as the snapshot has them: no updates, which want a second
 * moment, nor parts of elements. */
static int lmc__is_readable(const lmc__planner *p, size_t file_number, uint64_t offset,
                            uint64_t size)
{
    size_t i = lmc__find_quantized(p, file_number, offset);
    for (; lmc__is_quantized_in(p, i, file_number, offset + size); i++) {
        const lmc__range *const r = &lmc__quantized_at(p, i)->range;
        const lmc__quant_params *const quant = lmc__quantized_at(p, i)->quant;
        if (quant->is_predicted || (r->start - offset) % quant->width ||
            (offset + size < r->end && (offset + size - r->start) % quant->width))
            return 0;
    }
    return 1;
}

/* A run, and the number of its first block in the snapshot. */
typedef struct lmc__written_run {
    lmc__range range;
    uint64_t first_block;
    size_t block_size;
} lmc__written_run;

/* A block of one. */
typedef struct lmc__written_block {
    uint64_t number, start;
    size_t size;
} lmc__written_block;

static lmc__written_block lmc__find_block(const lmc__planner *p, size_t stream, uint64_t position)
{
    const lmc__written_run *const run =
        (const lmc__written_run *)(const void *)p->written.data +
        lmc__find_stream_range(&p->written, sizeof *run, stream, position);
    const uint64_t i = (position - run->range.start) / run->block_size;
    lmc__written_block block;
    block.number = run->first_block + i;
    block.start = run->range.start + i * run->block_size;
    block.size = (size_t)lmc__min64(run->block_size, run->range.end - block.start);
    return block;
}

/* What predicts bytes [offset, offset + size) of a run, of its own snapshot, is encoded. */
static int lmc__is_encoded(const lmc__planner *p, const lmc__run *run, uint64_t offset, size_t size)
{
    const unsigned scale = lmc__prediction_scale(run);
    const uint64_t start = run->start + offset, end = start + size;
    uint32_t i;
    for (i = lmc__find_segment(run, start); i < run->n_segments; i++) {
        const lmc__segment *const s = &run->segments[i];
        const lmc__listed_file *f;
        uint64_t last;
        if (s->start >= end) break;
        if (s->base == 0) continue;
        f = lmc__listed_at(&p->listing, s->base - 1);
        last = f->start + s->base_offset + scale * (lmc__min64(end, s->start + s->size) - s->start);
        if (lmc__find_block(p, f->stream, last - 1).number >= p->block_crcs.size / 4) return 0;
    }
    return 1;
}

/* Bytes of a stream, of one file or several, as the caller has them, quantised where the
 * snapshot is. */
static enum lmc_status lmc__read_caller(const lmc__planner *p, size_t stream, uint64_t position,
                                        uint8_t *dst, size_t size)
{
    size_t number = lmc__find_file(&p->listing, lmc__stream_at(&p->listing, stream), position);
    for (; size != 0; number++) {
        const lmc__listed_file *const f = lmc__listed_at(&p->listing, number);
        const uint64_t offset = position - f->start;
        const size_t part = (size_t)lmc__min64(size, f->file.size - offset);
        size_t i = lmc__find_quantized(p, number, offset);
        if (part) LMC__TRY(p->options->read_back(p->options->user, number, offset, dst, part));
        for (; lmc__is_quantized_in(p, i, number, offset + part); i++) {
            const lmc__range *const r = &lmc__quantized_at(p, i)->range;
            const uint64_t from = r->start > offset ? r->start : offset,
                           to = lmc__min64(r->end, offset + part);
            LMC__TRY(lmc__quantize_range(lmc__quantized_at(p, i)->quant,
                                         dst + (size_t)(from - offset), from - r->start,
                                         (size_t)(to - from), NULL));
        }
        position += part;
        dst += part;
        size -= part;
    }
    return LMC_OK;
}

/* The origin's read_back; user: the planner. What is read must be what was encoded: so whole
 * blocks are read, whose CRCs are known. */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc__planner *const p = (lmc__planner *)user;
    const lmc__listed_file *const f = lmc__listed_at(&p->listing, file_number);
    uint64_t position = f->start + offset;
    uint8_t *to = (uint8_t *)dst;
    while (size != 0) {
        const lmc__written_block block = lmc__find_block(p, f->stream, position);
        const size_t skip = (size_t)(position - block.start),
                     part = lmc__min(size, block.size - skip);
        const int is_whole = part == block.size;
        if (is_whole || p->block_number != block.number + 1) {
            uint8_t *whole = to;
            if (!is_whole) {
                p->block_number = 0;
                LMC__TRY(lmc__reserve(&p->block, block.size));
                whole = p->block.data;
            }
            LMC__TRY(lmc__read_caller(p, f->stream, block.start, whole, block.size));
            if (lmc__get_kernels()->crc32c(0, whole, block.size) !=
                lmc__load32(p->block_crcs.data + 4 * (size_t)block.number))
                return LMC_ERR_CHANGED;
            if (!is_whole) p->block_number = block.number + 1;
        }
        if (!is_whole) memcpy(to, p->block.data + skip, part);
        position += part;
        to += part;
        size -= part;
    }
    return LMC_OK;
}

/* -- files -- */

/* The tensor's quantiser, if it has one, was fitted to such a tensor, of its generation, and has
 * its second moment as a twin if it wants one. */
static enum lmc_status lmc__check_quantization(const lmc_tensor *t)
{
    const lmc__quant_params *const q = lmc__get_quant_params(t->quantizer);
    LMC__TRY(lmc__check_quantizer(t->quantizer, lmc_dtype_find(t->dtype), t->size));
    if (!q) return LMC_OK;
    if (lmc__get_quantizer_loss(t->quantizer).generation !=
        t->loss.generation + (q->is_recovered ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (t->twin && t->twin->conversion == LMC_CONVERT_NONE)
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

#define LMC__MAX_TEXT_HEADER ((uint64_t)128 << 20)

/* In how many bytes before the first tensor the header text may be, which are held in memory; 0: in
 * none. */
static enum lmc_status lmc__plan_header(lmc__planner *p)
{
    const uint64_t before = p->file.n_tensors ? p->file.tensors[0].offset : 0;
    uint64_t size;
    p->header_size = 0;
    if (before == 0 || before > LMC__MAX_TEXT_HEADER) return LMC_OK;
    LMC__TRY(lmc__get_text_size(lmc__listed_at(&p->listing, p->file_number), &size));
    if (size <= before) p->header_size = (size_t)before;
    return LMC_OK;
}

/* Begins the file that was listed last; twins and quantisers are those of `given`. */
LMC__COLD static enum lmc_status lmc__plan_file(lmc__planner *p, const lmc_file *given,
                                                enum lmc_dtype default_dtype)
{
    const uint32_t file_number = (uint32_t)(p->listing.n_files - 1);
    lmc_tensor *tensors;
    size_t i;
    p->file = lmc__listed_at(&p->listing, file_number)->file;
    if (given->n_tensors == 0 && given->size != LMC_UNKNOWN_SIZE) {
        p->file.base_parts = given->base_parts;
        p->file.n_base_parts = given->n_base_parts;
        p->file.twin = given->twin;
    }
    tensors = (lmc_tensor *)(uintptr_t)p->file.tensors; /* in the listing's memory */
    p->file_number = file_number;
    p->default_dtype = default_dtype;
    p->has_quantizer = 0;
    p->position = 0;
    p->next_tensor = 0;
    for (i = 0; i < given->n_tensors; i++) {
        lmc_tensor *const t = &tensors[i];
        lmc__quantized_range quantized;
        t->twin = given->tensors[i].twin;
        t->quantizer = given->tensors[i].quantizer;
        t->base_parts = given->tensors[i].base_parts;
        t->n_base_parts = given->tensors[i].n_base_parts;
        quantized.quant = lmc__get_quant_params(t->quantizer);
        if (!quantized.quant) continue;
        p->has_quantizer = 1;
        if (quantized.quant->is_recovered) continue; /* the caller has it as it is */
        quantized.range.stream = file_number;
        quantized.range.start = t->offset;
        quantized.range.end = t->offset + t->size;
        LMC__TRY(lmc__append(&p->quantized, &quantized, sizeof quantized));
    }
    return lmc__plan_header(p);
}

/* -- predictions -- */

/* How a tensor is predicted, and by what: as RUN body and segment say it. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t base; /* 0: by nothing */
    uint64_t base_offset;
} lmc__prediction;

/* By the twin, if it can be read back; else .base is 0. size: of what it is the twin of. */
static lmc__prediction lmc__predict_by_twin(const lmc__planner *p, const lmc_twin *twin,
                                            uint64_t size)
{
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (!p->options->read_back || !twin || (unsigned)twin->conversion > LMC_CONVERT_F32_TO_F16 ||
        twin->file_number >= UINT32_MAX || (twin->conversion && size % 2 != 0))
        return found;
    if (twin->conversion) size *= 2;
    if (!lmc__can_read_back(&p->origin, twin->file_number, twin->offset, size) ||
        !lmc__is_readable(p, (size_t)twin->file_number, twin->offset, size))
        return found;
    found.kind = LMC__PREDICT_OWN;
    found.conversion = twin->conversion;
    found.base = (uint32_t)twin->file_number + 1;
    found.base_offset = twin->offset;
    return found;
}

/* What predicts a tensor; t: NULL for a file without tensors. Asked again, it is the same. */
LMC__COLD static lmc__prediction lmc__find_prediction(const lmc__planner *p, const lmc_tensor *t)
{
    const lmc_file *const f = &p->file;
    const lmc__quant_params *const quant = lmc__get_quant_params(t ? t->quantizer : NULL);
    const lmc_base_part *const parts = t ? t->base_parts : f->base_parts;
    const size_t n_parts = t ? t->n_base_parts : f->n_base_parts;
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (!t) found = lmc__predict_by_twin(p, f->twin, f->size);
    else if (!quant || quant->is_predicted) found = lmc__predict_by_twin(p, t->twin, t->size);
    if (found.base || quant || !p->origin.base) return found;
    if (parts) {
        size_t i;
        for (i = 0; i < n_parts && !found.base; i++)
            found.base = lmc__match_part(&p->origin, &parts[i]);
    } else if (t) found.base = lmc__match_item(&p->origin, f->path, t->name, t->dtype, t->size);
    else found.base = lmc__match_item(&p->origin, f->path, f->path, "", f->size);
    if (!found.base && t && !parts) found.base = lmc__match_by_end(&p->origin, t);
    if (found.base) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* The tensor's twin is in the run that would begin at start of this file: only a later run can
 * refer to that. */
static int lmc__repeats_run(const lmc__planner *p, const lmc_tensor *t, uint64_t start)
{
    const lmc_twin *const twin = p->options->read_back ? t->twin : NULL;
    return twin && twin->file_number == p->file_number &&
           (twin->offset >= start || t->size > start - twin->offset);
}

/* -- runs -- */

typedef struct lmc__planned_run {
    uint64_t size;
    enum lmc_dtype dtype;
    lmc__prediction prediction;     /* of the first of its tensors; its kind is that of all */
    const lmc__quant_params *quant; /* or NULL */
    uint64_t quantized_from;        /* where its tensor begins */
    int is_shared;                  /* by several tensors, and their blocks are finer */
    size_t block_size;
} lmc__planned_run;

/* Quantised runs have a table in each block: theirs are as large as those of deltas. */
static size_t lmc__choose_block_size(const lmc__planner *p, const lmc__planned_run *run)
{
    const int has_prediction = run->prediction.kind != LMC__PREDICT_ZERO || run->quant != NULL;
    unsigned log2_block = p->options->log2_block;
    if (log2_block == 0 && run->is_shared && !has_prediction) log2_block = LMC__SHARED_LOG2_BLOCK;
    return lmc__get_block_size(run->dtype, lmc__limit_log2_block(run->dtype, log2_block),
                               has_prediction);
}

/* Tensor t[1] may go on the run that ends with t[0]: elements stay whole, also of a conversion
 * (R4-47). */
static int lmc__continues_run(const lmc__planned_run *run, const lmc_tensor *t)
{
    const unsigned width = lmc_dtype_width(run->dtype);
    const uint64_t gap = t[1].offset - (t[0].offset + t[0].size);
    if (gap > LMC__SPANNED_SIZE || gap % width != 0) return 0;
    if (run->prediction.conversion && gap % 2 != 0) return 0;
    return lmc_dtype_find(t[1].dtype) == run->dtype ||
           (t[1].size <= LMC__SPANNED_SIZE && t[1].size % width == 0);
}

/* A run that t shares with others ends behind it. */
static int lmc__ends_run(const lmc_tensor *t)
{
    return lmc__get_kernels()->crc32c(0, (const uint8_t *)t->name, strlen(t->name)) %
               LMC__SHARED_RUN_SIZE <
           t->size;
}

/* Tensor number i begins a run that ends at the result: at its own end, or at that of the last
 * of the small ones behind it that are coded alike. */
static uint64_t lmc__plan_tensors(lmc__planner *p, lmc__planned_run *run, size_t i)
{
    const lmc_file *const f = &p->file;
    const size_t first = i;
    uint64_t end = f->tensors[i].offset + f->tensors[i].size, large;
    run->dtype = lmc_dtype_find(f->tensors[i].dtype);
    run->prediction = lmc__find_prediction(p, &f->tensors[i]);
    /* What a run before left of it, when its twin was not there yet: segments of odd size are
     * refused (R4-47). */
    if (run->prediction.conversion && (p->position - f->tensors[i].offset) % 2 != 0)
        memset(&run->prediction, 0, sizeof run->prediction);
    large = lmc__choose_block_size(p, run);
    run->quant = lmc__get_quant_params(f->tensors[i].quantizer);
    run->quantized_from = f->tensors[i].offset;
    if (f->tensors[i].size >= large || run->quant) return end;
    for (i++; i < f->n_tensors && i - first < LMC__MAX_SEGMENTS / 2; i++) {
        const lmc_tensor *const t = &f->tensors[i];
        lmc__prediction next;
        if (t->size >= large || !lmc__continues_run(run, t - 1) ||
            lmc__get_quant_params(t->quantizer) || lmc__repeats_run(p, t, p->position) ||
            (run->prediction.kind == LMC__PREDICT_ZERO && lmc__ends_run(t - 1)))
            break;
        next = lmc__find_prediction(p, t);
        if (next.kind != run->prediction.kind || next.conversion != run->prediction.conversion)
            break;
        end = t->offset + t->size;
    }
    run->is_shared = i - first > 1;
    return end;
}

/* Looks for the file's header text in the bytes before its first tensor; *at: where it begins, or
 * header_size. */
LMC__COLD static enum lmc_status lmc__find_text(lmc__planner *p, const uint8_t *header, size_t *at)
{
    lmc__listed_file *const f = lmc__listed_at(&p->listing, p->file_number);
    lmc__buffer text;
    uint64_t size;
    size_t end;
    LMC__TRY(lmc__get_text_size(f, &size)); /* at most header_size */
    lmc__init_buffer(&text, p->segments.alloc_user);
    LMC__TRY(lmc__reserve(&text, size));
    lmc__read_text(f, 0, text.data, (size_t)size);
    end = p->header_size - (size_t)size + 1;
    for (*at = 0; *at < end; ++*at) {
        const uint8_t *const found = (const uint8_t *)memchr(header + *at, text.data[0], end - *at);
        *at = found ? (size_t)(found - header) : end;
        if (found && memcmp(found, text.data, (size_t)size) == 0) break;
    }
    if (*at >= end) *at = p->header_size;
    lmc__free_buffer(&text);
    return LMC_OK;
}

static enum lmc_status lmc__append_segment(lmc__planner *p, uint64_t start, uint64_t size,
                                           uint32_t base, uint64_t base_offset)
{
    const lmc__segment segment = {start, size, base_offset, base};
    return size ? lmc__append(&p->segments, &segment, sizeof segment) : LMC_OK;
}

/* The run of the bytes before the first tensor, if the header text is among them: else nothing
 * changes. */
static enum lmc_status lmc__plan_text(lmc__planner *p, const uint8_t *header, lmc__planned_run *run)
{
    const size_t size = p->header_size;
    uint64_t text_size;
    size_t at;
    LMC__TRY(lmc__find_text(p, header, &at));
    p->header_size = 0;
    if (at == size) return LMC_OK;
    LMC__TRY(lmc__get_text_size(lmc__listed_at(&p->listing, p->file_number), &text_size));
    LMC__TRY(lmc__append_segment(p, 0, at, 0, 0));
    LMC__TRY(lmc__append_segment(p, at, text_size, p->file_number + 1, 0));
    LMC__TRY(lmc__append_segment(p, at + text_size, size - at - text_size, 0, 0));
    run->dtype = LMC_U8;
    run->size = size;
    run->prediction.kind = LMC__PREDICT_TEXT;
    run->block_size = lmc__choose_block_size(p, run);
    return LMC_OK;
}

/* What those bytes between tensors, which begin at offset, repeat and can be read back, or NULL:
 * then they are remembered. */
static const lmc__gap *lmc__find_gap(lmc__planner *p, uint64_t offset, uint64_t size)
{
    lmc__gap *gap = p->gaps;
    if (!p->options->read_back || size < LMC__MIN_GAP_SIZE || size > LMC__MAX_GAP_SIZE) return NULL;
    while (gap < p->gaps + LMC__MAX_GAPS && gap->size != size) gap++;
    if (gap < p->gaps + LMC__MAX_GAPS)
        return lmc__can_read_back(&p->origin, gap->file_number, gap->offset, size) ? gap : NULL;
    gap = &p->gaps[p->next_gap++ % LMC__MAX_GAPS];
    gap->file_number = p->file_number;
    gap->offset = offset;
    gap->size = size;
    return NULL;
}

/* The run of the bytes between tensors, up to end, where tensor number i begins, if they repeat
 * others: else nothing changes. Tiny tensors that such bytes follow belong to it. */
static enum lmc_status lmc__plan_gap(lmc__planner *p, uint64_t end, size_t i, lmc__planned_run *run)
{
    const lmc_file *const f = &p->file;
    const lmc__gap *gap = lmc__find_gap(p, p->position, end - p->position);
    uint64_t at = p->position;
    if (!gap) return LMC_OK;
    for (;;) {
        const lmc_tensor *const t = i < f->n_tensors ? &f->tensors[i] : NULL;
        LMC__TRY(lmc__append_segment(p, at, end - at, gap->file_number + 1, gap->offset));
        at = end;
        if (++i >= f->n_tensors || t->offset != at || t->size > LMC__TINY_SIZE ||
            lmc__get_quant_params(t->quantizer) || i > p->next_tensor + LMC__MAX_SEGMENTS / 4)
            break;
        end = t[1].offset;
        gap = lmc__find_gap(p, at + t->size, end - at - t->size);
        if (!gap) break;
        LMC__TRY(lmc__append_segment(p, at, t->size, 0, 0));
        at += t->size;
    }
    run->dtype = LMC_U8;
    run->size = at - p->position;
    run->prediction.kind = LMC__PREDICT_OWN;
    run->block_size = lmc__choose_block_size(p, run);
    return LMC_OK;
}

/* The run of the bytes that come next, at data, of which at least one is there, and header_size if
 * so many are wanted; available: all that are known to come if the file's size is unknown. A run
 * has whole elements; what does not fill one is left for a run of bytes, which comes next. */
LMC__COLD static enum lmc_status lmc__plan_run(lmc__planner *p, const uint8_t *data,
                                               size_t available, lmc__planned_run *run)
{
    const lmc_file *const f = &p->file;
    unsigned width;
    memset(run, 0, sizeof *run);
    p->segments.size = 0;
    if (p->header_size) LMC__TRY(lmc__plan_text(p, data, run));
    if (run->size) return LMC_OK;
    run->dtype = p->default_dtype;
    if (f->size == LMC_UNKNOWN_SIZE) {
        run->size = available;
    } else {
        size_t *const i = &p->next_tensor;
        uint64_t end = f->size;
        if (p->position == f->size) return LMC_ERR_ARGUMENT; /* more than the file has */
        if (f->n_tensors == 0) run->prediction = lmc__find_prediction(p, NULL);
        while (*i < f->n_tensors && f->tensors[*i].offset + f->tensors[*i].size <= p->position)
            ++*i;
        if (*i < f->n_tensors && f->tensors[*i].offset <= p->position)
            end = lmc__plan_tensors(p, run, *i);
        else {
            if (*i < f->n_tensors) end = f->tensors[*i].offset;
            if (f->n_tensors) LMC__TRY(lmc__plan_gap(p, end, *i, run));
            if (run->size) return LMC_OK;
        }
        run->size = end - p->position;
    }
    run->size = lmc__min64(run->size, LMC__MAX_RUN_SIZE);
    width = lmc_dtype_width(run->dtype);
    if (run->size < width) run->dtype = LMC_AUTO;
    else run->size -= run->size % width;
    if (run->dtype == LMC_AUTO && run->size > 4096)
        run->size -= run->size % 8; /* so that every block can be split at any width */
    if (run->quant && run->quant->is_predicted && run->prediction.kind != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its twin was not written before */
    run->block_size = lmc__choose_block_size(p, run);
    return LMC_OK;
}

/* The same, of a run of that kind of prediction; not predicted if that would be too far away
 * (work.h). */
static enum lmc_status lmc__append_in_reach(lmc__planner *p, const lmc__planned_run *run,
                                            uint64_t start, uint64_t size, uint32_t base,
                                            uint64_t base_offset)
{
    if (base && size) {
        uint64_t file = base - 1, at = base_offset;
        if (run->prediction.kind == LMC__PREDICT_BASE) {
            const lmc__item *const item = lmc__get_item(&p->origin, base - 1);
            file = item->file_number;
            at += item->tensor ? item->tensor->offset : 0;
        }
        if (!lmc__can_reach(&p->reach, file, at, run->prediction.conversion ? 2 * size : size,
                            start / run->block_size) &&
            !run->quant) /* which cannot do without */
            base = 0;
    }
    return lmc__append_segment(p, start, size, base, base ? base_offset : 0);
}

/* The segments of bytes [at, stop) of a tensor or file that is coded against n parts of others;
 * start: its own. */
LMC__COLD static enum lmc_status lmc__plan_parts(lmc__planner *p, const lmc__planned_run *run,
                                                 const lmc_base_part *parts, size_t n,
                                                 uint64_t start, uint64_t at, uint64_t stop)
{
    size_t i;
    for (i = 0; i < n && at < stop; i++) { /* start <= at: the part's, then its end */
        const lmc_base_part *const part = &parts[i];
        const uint64_t end = part->size < stop - start ? start + part->size : stop;
        if (at < end) {
            const uint32_t base = lmc__match_part(&p->origin, part);
            LMC__TRY(lmc__append_in_reach(p, run, at, end - at, base,
                                          base ? part->offset + (at - start) : 0));
            at = end;
        }
        start = end;
    }
    return lmc__append_segment(p, at, stop - at, 0, 0);
}

/* The segments of a planned run: one for each tensor, or for all of a file without tensors; none if
 * it is not predicted. */
LMC__COLD static enum lmc_status lmc__plan_segments(lmc__planner *p, const lmc__planned_run *run)
{
    const uint64_t end = p->position + run->size;
    uint64_t at = p->position;
    size_t i = p->next_tensor;
    if (run->prediction.kind == LMC__PREDICT_ZERO || p->segments.size) return LMC_OK;
    while (at < end) {
        lmc__prediction found = run->prediction;
        uint64_t stop = end, start = 0; /* of the tensor */
        const lmc_base_part *parts = p->file.base_parts;
        size_t n_parts = p->file.n_base_parts;
        if (p->file.n_tensors != 0) {
            const lmc_tensor *t = &p->file.tensors[i];
            while (t->offset + t->size <= at) t = &p->file.tensors[++i]; /* empty ones, too */
            if (at < t->offset) { /* the run may end before t: it has whole elements */
                const uint64_t next = lmc__min64(end, t->offset);
                LMC__TRY(lmc__append_segment(p, at, next - at, 0, 0));
                at = next;
                continue;
            }
            start = t->offset;
            stop = lmc__min64(end, start + t->size);
            found = lmc__find_prediction(p, t);
            parts = t->base_parts;
            n_parts = t->n_base_parts;
        }
        if (p->segments.size / sizeof(lmc__segment) == LMC__MAX_SEGMENTS) return LMC_ERR_LIMIT;
        if (found.kind == LMC__PREDICT_BASE && parts) {
            LMC__TRY(lmc__plan_parts(p, run, parts, n_parts, start, at, stop));
            at = stop;
            continue;
        }
        LMC__TRY(lmc__append_in_reach(
            p, run, at, stop - at, found.base,
            found.base ? found.base_offset + (found.conversion ? 2 : 1) * (at - start) : 0));
        at = stop;
    }
    return LMC_OK;
}

/* The next run of a group of files, which are the last stream: those that come next and are
 * predicted alike, with its segments. None has tensors; so a run has whole files. */
LMC__COLD static enum lmc_status lmc__plan_group_run(lmc__planner *p, lmc__planned_run *run)
{
    const lmc__listing *const l = &p->listing;
    const lmc__stream *const stream = lmc__stream_at(l, l->n_streams - 1);
    const size_t end = stream->first_file + stream->n_files;
    size_t i = lmc__find_file(l, stream, p->position);
    memset(run, 0, sizeof *run);
    p->segments.size = 0;
    for (; i < end; i++) {
        lmc__prediction next;
        p->file = lmc__listed_at(l, i)->file;
        if (p->file.size == 0) continue;
        next = lmc__find_prediction(p, NULL);
        if (run->size == 0) {
            run->dtype = LMC_AUTO;
            run->prediction = next;
            run->block_size = lmc__choose_block_size(p, run);
        }
        if (next.kind != run->prediction.kind) break;
        if (next.kind != LMC__PREDICT_ZERO)
            LMC__TRY(lmc__append_in_reach(p, run, p->position + run->size, p->file.size, next.base,
                                          next.base_offset));
        run->size += p->file.size;
    }
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
