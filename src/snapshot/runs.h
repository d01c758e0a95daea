#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"

/* Reads and writes RUN bodies (spec 4.2). */

/* A segment: a part of a run, predicted by one range of bytes. The segments of a run cover the run
 * in order, without a gap. */
typedef struct lmc__segment {
    uint64_t start, size; /* within the stream */
    uint64_t base_offset; /* where the prediction begins in the item of the base, or in the file */
    /* 0: the prediction is zeros. Else 1 plus the number of the item of the base, or of the file if
     * the prediction is of this snapshot */
    uint32_t base;
} lmc__segment;

/* A run, as its RUN body describes it. It begins where the previous run of its stream ends. */
typedef struct lmc__run {
    uint64_t start; /* within the stream */
    uint64_t size;
    size_t block_size;   /* decoded bytes of each block but the last */
    uint64_t n_blocks;   /* at most 2^32 - 1 */
    size_t stream;       /* number of its stream */
    unsigned prediction; /* LMC__PREDICT_... */
    unsigned conversion; /* enum lmc_conversion, of LMC__PREDICT_OWN */
    /* its first segment in a buffer for the segments of many runs; LMC__PREDICT_ZERO has none */
    size_t first_segment;
    uint32_t n_segments;
    const lmc__segment *segments;
    uint64_t n_records;
} lmc__run;

/* How many bytes predict a byte of the run: a conversion makes 16 bits from 32. */
static unsigned lmc__prediction_scale(const lmc__run *run) { return run->conversion ? 2 : 1; }

/* Whether its own snapshot predicts the run. If such a prediction is wrong, the file is damaged. */
static int lmc__is_own_prediction(const lmc__run *run)
{
    return run->prediction == LMC__PREDICT_OWN || run->prediction == LMC__PREDICT_TEXT;
}

static enum lmc_status lmc__check_run_features(const lmc__run *run, uint64_t features)
{
    LMC__VALID(run->prediction != LMC__PREDICT_BASE || (features & LMC_FEATURE_BASE)); /* R3-12 */
    LMC__VALID(run->prediction != LMC__PREDICT_OWN || (features & LMC_FEATURE_OWN));   /* R3-12 */
    return LMC_OK;
}

/* Sets run->segments again: the buffer that has them may have been moved. */
static void lmc__set_segments(lmc__run *run, const lmc__buffer *segments)
{
    run->segments = run->n_segments
                        ? (const lmc__segment *)(const void *)segments->data + run->first_segment
                        : NULL;
}

/* The fields of a RUN body that do not depend on the files:
 *     varint Run_Size | varint Block_Size | u8 Prediction
 *
 * Checks that the prediction is known, and that sizes are within the limits of the format. */
static enum lmc_status lmc__get_run(lmc__cursor *c, lmc__run *run)
{
    uint64_t block_size;
    memset(run, 0, sizeof *run);
    LMC__TRY(lmc__get_limited(c, &run->size, LMC__MAX_FILE_SIZE));
    LMC__VALID(run->size >= 1); /* R4-42 */
    LMC__TRY(lmc__get_varint(c, &block_size));
    LMC__CHECK(block_size >= (uint64_t)1 << LMC__MIN_LOG2_BLOCK &&
                   block_size <= (uint64_t)1 << LMC__MAX_LOG2_BLOCK &&
                   (block_size & (block_size - 1)) == 0,
               LMC_ERR_UNSUPPORTED); /* R4-43 */
    LMC__TRY(lmc__get8(c, &run->prediction));
    LMC__CHECK(run->prediction < LMC__PREDICTIONS, LMC_ERR_UNSUPPORTED); /* R4-44 */
    if (run->prediction > LMC__PREDICT_OWN) {
        run->conversion = run->prediction - LMC__PREDICT_OWN;
        run->prediction = LMC__PREDICT_OWN;
    }
    run->block_size = (size_t)block_size;
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__VALID(run->n_blocks <= UINT32_MAX); /* R4-46 */
    return LMC_OK;
}

/* Reads the next segment, which begins at s->start. *last: number of the item or file that the last
 * segment with a prediction names; -1 at first. These numbers are below 2^32 - 1. */
static enum lmc_status lmc__get_segment(lmc__cursor *c, lmc__segment *s, int64_t *last)
{
    uint64_t reference;
    s->base = 0;
    s->base_offset = 0;
    LMC__TRY(lmc__get_limited(c, &s->size, LMC__MAX_FILE_SIZE));
    LMC__VALID(s->size != 0); /* R4-47 */
    LMC__TRY(lmc__get_varint(c, &reference));
    if (reference-- == 0) return LMC_OK;
    *last += 1 + lmc__unzigzag(reference >> 1); /* within 2^62, so this cannot overflow */
    LMC__VALID(*last >= 0 && *last < UINT32_MAX);
    s->base = (uint32_t)*last + 1;
    if (reference & 1) {
        LMC__TRY(lmc__get_varint(c, &s->base_offset));
        LMC__VALID(s->base_offset != 0); /* R4-48 */
    }
    return LMC_OK;
}

/* Parses the body of the next run of a stream. *position: bytes of the stream that earlier runs
 * cover; on return, including this run. Appends the run's segments to a buffer; in the body a
 * segment has at least 2 bytes, so memory is in proportion to the body. Checks that the segments
 * end where the run ends, within the stream. Does not check that the predictions exist. */
LMC__COLD static enum lmc_status lmc__parse_run(lmc__run *run, lmc__buffer *segments,
                                                const uint8_t *body, size_t size,
                                                const lmc__listing *l, size_t stream_number,
                                                uint64_t *position)
{
    const lmc__stream *const stream = lmc__stream_at(l, stream_number);
    const uint64_t limit = stream->size == LMC_UNKNOWN_SIZE ? LMC__MAX_FILE_SIZE : stream->size;
    uint64_t n_segments, i;
    int64_t last = -1;
    lmc__segment s;
    lmc__cursor c = {body, body};
    LMC__VALID(size != 0); /* body may be NULL */
    c.end += size;
    LMC__TRY(lmc__get_run(&c, run));
    LMC__VALID(run->size <= limit - *position); /* R4-11 */
    run->start = *position;
    run->stream = stream_number;
    run->first_segment = segments->size / sizeof s;
    if (run->prediction != LMC__PREDICT_ZERO) {
        LMC__TRY(lmc__get_limited(&c, &n_segments, LMC__MAX_SEGMENTS));
        LMC__VALID(n_segments >= 1); /* R4-45 */
        run->n_segments = (uint32_t)n_segments;
        memset(&s, 0, sizeof s);
        s.start = *position;
        for (i = 0; i < n_segments; i++) {
            const uint64_t left = run->start + run->size - s.start;
            LMC__TRY(lmc__get_segment(&c, &s, &last));
            LMC__VALID(s.size <= left);                          /* R4-47 */
            LMC__VALID(run->conversion == 0 || s.size % 2 == 0); /* R4-47 */
            LMC__TRY(lmc__append(segments, &s, sizeof s));
            s.start += s.size;
        }
        LMC__VALID(s.start == run->start + run->size); /* R4-47 */
    }
    run->n_records = 0;
    LMC__TRY(lmc__skip_records(&c, &run->n_records));
    lmc__set_segments(run, segments);
    *position += run->size;
    return LMC_OK;
}

/* Decoded bytes of a block. The last block has the rest. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

#ifndef LMC_NO_ENCODER
static enum lmc_status lmc__append_run(lmc__buffer *out, const lmc__run *run)
{
    int64_t last = -1;
    uint32_t i;
    LMC__TRY(lmc__append_varint(out, run->size));
    LMC__TRY(lmc__append_varint(out, run->block_size));
    LMC__TRY(lmc__append8(out, run->prediction + run->conversion));
    if (run->prediction != LMC__PREDICT_ZERO) LMC__TRY(lmc__append_varint(out, run->n_segments));
    for (i = 0; i < run->n_segments; i++) {
        const lmc__segment *const s = &run->segments[i];
        LMC__TRY(lmc__append_varint(out, s->size));
        if (s->base == 0) {
            LMC__TRY(lmc__append_varint(out, 0));
            continue;
        }
        LMC__TRY(lmc__append_varint(
            out, 1 + (2 * lmc__zigzag((int64_t)s->base - 1 - (last + 1)) | (s->base_offset != 0))));
        if (s->base_offset) LMC__TRY(lmc__append_varint(out, s->base_offset));
        last = (int64_t)s->base - 1;
    }
    return LMC_OK;
}
#endif
