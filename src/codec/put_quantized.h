#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/quant_params.h"
#include "codec/put_list.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"
#include "codec/put_block.h"

/* Encodes quantised blocks (spec/quantised.md; terms: quant_params.h), strip by strip.
 * get_quantized.h shows the payload.
 *
 *   elements --> symbols --> restored elements --> CRC
 *                   |
 *                   +--> High, Low; exceptions have the code of zero, and are stored separately
 *
 * Block CRCs, fingerprints and later predictions use the restored elements, which are computed as
 * in decoders. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* Elements of a tensor that are being quantised. */
typedef struct lmc__quant_source {
    const uint8_t *elements;
    const uint8_t *second; /* the prediction, as the decoder will have it; or NULL */
    uint64_t first;        /* index of the first element in its tensor; groups count from index 0 */
    size_t n;
} lmc__quant_source;

/* n elements of a source, from element i on. */
static lmc__quant_source lmc__part_of(const lmc__quant_source *source, unsigned width, size_t i,
                                      size_t n)
{
    const lmc__quant_source part = {source->elements + i * width,
                                    source->second ? source->second + i * width : NULL,
                                    source->first + i, n};
    return part;
}

/* Finds the symbols of n F32 elements at x; returns how many are LMC__EXCEPTION. s: their
 * predictions, used only with is_predicted. With a table, each symbol becomes the nearest symbol
 * that has a code; +0 always keeps symbol 0, and so code 0. */
static size_t lmc__find_symbols(const lmc__kernels *k, const lmc__quant_params *q,
                                uint16_t *symbols, const uint8_t *x, const uint8_t *s,
                                uint64_t first, size_t n)
{
    const uint8_t *const codes = q->codes;
    size_t exceptions = 0, i, part;
    uint32_t scale;
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        exceptions +=
            k->quantize(symbols + i, x + 4 * i, q->is_predicted ? s : NULL, part, scale, &q->grid);
    }
    for (i = 0; i < n && q->table_size; i++)
        if (symbols[i] != LMC__EXCEPTION && lmc__load32(x + 4 * i) != 0)
            symbols[i] = q->table[codes[symbols[i]]];
    return exceptions;
}

/* Finds a strip's symbols, and writes the restored elements to dst, which may be the source.
 * Returns the number of exceptions, which are unchanged; their symbol is LMC__EXCEPTION. With
 * is_exact each element that is not a point is an exception.
 *
 * A second call changes nothing: restored elements are points, or points rounded to BF16, and have
 * the same symbols. So a writer may get elements that were quantised in place. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *in, uint16_t *symbols, uint8_t *dst)
{
    const unsigned width = q->width;
    uint8_t x[4 * LMC__QUANTIZED_STRIP], s[4 * LMC__QUANTIZED_STRIP];
    size_t i,
        exceptions = lmc__find_symbols(
            k, q, symbols, lmc__widen(x, in->elements, in->n, width),
            q->is_predicted ? lmc__widen(s, in->second, in->n, width) : NULL, in->first, in->n);
    lmc__restore_strip(k, q, s, symbols, in->second, in->first, in->n);
    for (i = 0; i < in->n && (exceptions || q->is_exact); i++) {
        const uint8_t *const element = in->elements + i * width;
        if (q->is_exact && symbols[i] != LMC__EXCEPTION &&
            memcmp(s + i * width, element, width) != 0) {
            symbols[i] = LMC__EXCEPTION;
            exceptions++;
        }
        if (symbols[i] == LMC__EXCEPTION) memcpy(s + i * width, element, width);
    }
    memcpy(dst, s, in->n * width);
    return exceptions;
}

/* Exceptions are collected in the payload:
 *   | head | table | positions -->             | values -->             | end
 *                  |<-- 4 * max bytes -->      |<-- width * max -->     |
 *
 * When their number is known, the values are moved down. */
typedef struct lmc__exceptions {
    uint8_t *positions, *values;
    size_t n, max;
} lmc__exceptions;

/* Adds the exceptions of a strip: n elements from the block's element i on. Their symbols become 0.
 * Returns 0 if there is no room. Strips come in order, so positions ascend. elements: the restored
 * strip. */
static int lmc__add_exceptions(lmc__exceptions *to, uint16_t *symbols, const uint8_t *elements,
                               unsigned width, size_t i, size_t n)
{
    size_t j;
    for (j = 0; j < n; j++) {
        if (symbols[j] != LMC__EXCEPTION) continue;
        if (to->n == to->max) return 0;
        symbols[j] = 0;
        lmc__store32(to->positions + 4 * to->n, (uint32_t)(i + j));
        memcpy(to->values + width * to->n++, elements + j * width, width);
    }
    return 1;
}

/* Makes codes, exceptions and CRC of all elements; content gets the restored elements. Returns 0 if
 * the exceptions do not fit; even then content and CRC are complete, because the block will be
 * stored. Elements and prediction may change meanwhile (put_block.h), so each strip of the
 * prediction is copied first. */
static int lmc__quantize_elements(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *source, uint8_t *content, uint8_t *high,
                                  uint8_t *low, lmc__exceptions *exceptions, uint32_t *crc)
{
    const unsigned width = q->width;
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t second[4 * LMC__QUANTIZED_STRIP];
    lmc__quant_source strip;
    size_t i, j, n;
    int fits = 1;
    *crc = 0;
    for (i = 0; i < source->n; i += n) {
        n = lmc__min(source->n - i, LMC__QUANTIZED_STRIP);
        strip = lmc__part_of(source, width, i, n);
        if (q->is_predicted) strip.second = (uint8_t *)memcpy(second, strip.second, n * width);
        if (lmc__quantize_strip(k, q, &strip, symbols, content + i * width) && fits)
            fits = lmc__add_exceptions(exceptions, symbols, content + i * width, width, i, n);
        *crc = k->crc32c(*crc, content + i * width, n * width);
        if (!fits) continue;
        if (q->table_size)
            for (j = 0; j < n; j++) high[i + j] = symbols[j] ? q->codes[symbols[j]] : 0;
        else k->cut_symbols(high + i, low ? low + i : NULL, symbols, n, q->low_bits);
    }
    return fits;
}

/* Writes the payload's head, and behind it the table without entry 0. Unused fields are 0.
 * First_Group is the number of elements from the block's start to the end of a group.
 * get_quantized.h lists the offsets. */
static void lmc__put_quantized_head(uint8_t *dst, const lmc__quant_params *q, uint64_t first,
                                    size_t n_exceptions)
{
    size_t i;
    memset(dst, 0, LMC__QUANTIZED_HEADER);
    dst[0] = (uint8_t)((q->grid.is_log ? LMC__METHOD_LOG : 0) |
                       (q->grid.is_signed ? LMC__METHOD_SIGNED : 0) |
                       (q->table_size ? LMC__METHOD_TABLE : 0));
    dst[1] = (uint8_t)q->low_bits;
    lmc__store16(dst + 2, (uint16_t)q->table_size);
    lmc__store32(dst + 4, (uint32_t)q->grid.min);
    lmc__store32(dst + 8, q->grid.step);
    if (q->is_predicted) {
        lmc__store32(dst + 12, (uint32_t)q->grid.bias);
        lmc__store32(dst + 16, q->grid.floor);
    } else {
        const uint64_t group = first / q->group_size;
        lmc__store32(dst + 20, (uint32_t)q->group_size);
        lmc__store32(dst + 24, (uint32_t)((group + 1) * q->group_size - first));
    }
    lmc__store32(dst + 28, (uint32_t)n_exceptions);
    for (i = 0; i < q->table_size; i++)
        lmc__store16(dst + LMC__QUANTIZED_HEADER + 2 * i, q->table[i + 1]);
}

/* Writes the scales of the groups of n elements from `first` on: a list of their low bytes, and a
 * list of their high bytes. Returns 0 if there is no room. */
static int lmc__put_scales(lmc__encoder *e, const lmc__quant_params *q, uint64_t first, size_t n,
                           uint8_t *work, uint8_t *spare, unsigned sample)
{
    const uint64_t group = first / q->group_size;
    const size_t n_groups = lmc__count_groups(first, n, q->group_size);
    uint8_t *const top = e->stack.top, *const row = lmc__push_list(&e->stack, n_groups);
    size_t i;
    unsigned j;
    if (!row) return 0;
    for (j = 0; j < 2; j++) {
        for (i = 0; i < n_groups; i++) row[i] = (uint8_t)(q->scales[group + i] >> 8 * j);
        if (!lmc__put_list(e, row, work, spare, n_groups, sample)) return 0;
    }
    e->stack.top = top;
    return 1;
}

/* Writes the payload of a quantised block and returns its size; 0 if it is not smaller than the
 * elements, or does not fit in cap. content: a list that gets the restored elements, even if 0 is
 * returned.
 *
 * One pass over the elements puts codes to `high` and `low`, and exceptions to the payload. Then
 * lmc__put_list codes each list without changing it, so that codes need not be made again. */
static size_t lmc__put_quantized(lmc__encoder *e, const lmc__quant_params *q, uint8_t *dst,
                                 size_t cap, const lmc__quant_source *source, uint8_t *content,
                                 enum lmc_level level, uint32_t *crc)
{
    const unsigned width = q->width, sample = lmc__get_effort(level)->sample;
    const size_t n = source->n, fixed = LMC__QUANTIZED_HEADER + 2 * (size_t)q->table_size;
    uint8_t *const high = lmc__push_list(&e->stack, n), *const spare = lmc__push_list(&e->stack, n),
                   *const work = lmc__push_list(&e->stack, n);
    uint8_t *const low = q->low_bits ? lmc__push_list(&e->stack, n) : NULL;
    lmc__exceptions exceptions;
    int fits;
    if (!high || !spare || !work || (!low && q->low_bits)) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    fits = (size_t)(e->end - e->out) > fixed;
    exceptions.n = 0;
    exceptions.max = fits ? ((size_t)(e->end - e->out) - fixed) / (4 + width) : 0;
    exceptions.positions = fits ? dst + fixed : dst;
    exceptions.values = exceptions.positions + 4 * exceptions.max;
    if (!lmc__quantize_elements(e->k, q, source, content, high, low, &exceptions, crc)) return 0;
    if (!fits) return 0;
    lmc__put_quantized_head(dst, q, source->first, exceptions.n);
    e->out = exceptions.positions + 4 * exceptions.n;
    memmove(e->out, exceptions.values, width * exceptions.n);
    e->out += width * exceptions.n;
    if (!q->is_predicted && !lmc__put_scales(e, q, source->first, n, work, spare, sample)) return 0;
    if (low && !lmc__put_list(e, low, work, spare, n, sample)) return 0;
    if (!lmc__put_list(e, high, work, spare, n, sample)) return 0;
    return (size_t)(e->out - dst);
}

/* Encodes job's block quantised; or, if that is not smaller, stores its restored elements. It must
 * not store the original elements: the caller may already have quantised this tensor to predict
 * another tensor, and a reader must get the same elements. *content: the restored elements, in the
 * workspace; not set if the block was coded without loss.
 *
 * With is_exact the elements were quantised before, and are coded exactly; if their quantised
 * form does not fit, the block is coded without loss. */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    const lmc__quant_params *const q = job->quant;
    uint8_t *const payload = job->dst + LMC_BLOCK_HEADER_SIZE;
    const size_t size = job->src_size;
    const lmc__quant_source source = {job->src, job->base, job->first_element, size / q->width};
    lmc__block_coding coding;
    uint8_t *restored;
    size_t cap;
    lmc__encoder e;
    if (job->dst_size < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = job->dst_size - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.worth = lmc__get_effort(job->level)->direct_worth;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    restored = lmc__push_list(&e.stack, size);
    if (restored == NULL) return LMC_ERR_WORKSPACE;
    memset(&coding, 0, sizeof coding);
    coding.payload_size =
        lmc__put_quantized(&e, q, payload, cap, &source, restored, job->level, &coding.content_crc);
    if (q->is_exact && coding.payload_size == 0) {
        lmc__job lossless = *job; /* src is not in the workspace, which is used again */
        enum lmc_status status;
        lossless.base = NULL;
        lossless.dtype = q->width == 2 ? LMC_BF16 : LMC_F32;
        lossless.sum = NULL;
        status = lmc__encode_block(k, &lossless, ws, ws_size);
        job->dst_size = lossless.dst_size;
        return status;
    }
    if (coding.payload_size) {
        coding.layout = LMC__LAYOUT_QUANTIZED;
        coding.is_predicted = q->is_predicted;
    } else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        coding.payload_size = size;
        memcpy(payload, restored, size);
    }
    lmc__put_block_header(job->dst, &coding, q->width, source.n, k, job->number);
    *content = restored;
    job->dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}
#elif !defined(LMC_NO_ENCODER)

static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    (void)k, (void)job, (void)ws, (void)ws_size, (void)content;
    return LMC_ERR_UNSUPPORTED;
}
#endif
