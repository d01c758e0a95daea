#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/half.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/quant_params.h"
#include "codec/put_list.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"
#include "codec/put_block.h"

/* Encodes quantised blocks (spec/quantised.md). Their payload is
 *
 *   head | table | positions, values of exceptions | scales | Low | High
 *
 * where the last three are lists of bytes, coded as any plane is (spec 6). One strip at a time:
 *
 *   elements --> symbols --> High, Low --> symbols that these stand for --> restored elements
 *                   |                                                             |
 *                   +--> exceptions: zero's code in the lists, and set aside      +--> CRC
 *
 * Block CRCs, fingerprints and later predictions are all of the restored elements, which are made
 * by the kernels of decoders.
 *
 * Workspace: content takes 4 n bytes at most, High, Low, work, spare and a row for scales n each, 9
 * n together; there are 10 n, and room for masks. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* The elements of a block, or of a part of it. */
typedef struct lmc__quant_source {
    const uint8_t *elements;
    const uint8_t *second; /* the prediction, as the decoder will have it; or NULL */
    uint64_t first; /* the number of the first in its tensor, from which groups are counted */
    size_t n;
} lmc__quant_source;

/* The scale of element number first of the tensor; returns how many of n elements share it: of a
 * block's first group what is left of it. */
LMC__INLINE size_t lmc__get_group(const lmc__quant_params *q, uint64_t first, size_t n,
                                  uint32_t *scale)
{
    const uint64_t group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* The nearest symbols of n F32 elements at x; s: their predictions, used with is_predicted only.
 * Returns how many symbols are LMC__EXCEPTION. */
static size_t lmc__find_symbols(const lmc__kernels *k, const lmc__quant_params *q,
                                uint16_t *symbols, const uint8_t *x, const uint8_t *s,
                                uint64_t first, size_t n)
{
    size_t exceptions = 0, i, part;
    uint32_t scale;
    if (q->is_predicted) return k->quantize_updates(symbols, x, s, n, &q->grid);
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        exceptions += k->quantize_rows(symbols + i, x + 4 * i, part, scale, &q->grid);
    }
    return exceptions;
}

/* The inverse: the points of n symbols, none of them LMC__EXCEPTION, as F32. dst may be s. */
static void lmc__restore_symbols(const lmc__kernels *k, const lmc__quant_params *q, uint8_t *dst,
                                 const uint16_t *symbols, const uint8_t *s, uint64_t first,
                                 size_t n)
{
    size_t i, part;
    uint32_t scale;
    if (q->is_predicted) {
        k->restore_updates(dst, symbols, s, n, &q->grid);
        return;
    }
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        k->restore_rows(dst + 4 * i, symbols + i, part, scale, &q->grid);
    }
}

/* A strip on its way through a quantiser, with rooms of the caller for all that is found. Three
 * callers go the same way: a block's encoder, lmc_quantizer_apply, which throws the codes away, and
 * a fit that measures what is lost (quantise/fit_error.h). */
typedef struct lmc__quant_strip {
    lmc__quant_source source; /* at most LMC__QUANTIZED_STRIP elements */
    uint8_t *dst;             /* what decoding will give; may be source.elements */
    uint16_t *symbols;        /* the nearest ones; LMC__EXCEPTION tells where exceptions are */
    uint8_t *high, *low;      /* the codes, of exceptions those of zero; low may be NULL */
} lmc__quant_strip;

/* The strip's codes, from its symbols. Returns the symbols that the codes stand for, which are what
 * will be restored: in `room`, a strip's, or the strip's own where nothing differs. An exception
 * takes the code of zero, which every table and every grid has. */
static const uint16_t *lmc__put_codes(const lmc__kernels *k, const lmc__quant_params *q,
                                      const lmc__quant_strip *strip, size_t exceptions,
                                      uint16_t *room)
{
    const size_t n = strip->source.n;
    const uint16_t *symbols = strip->symbols;
    size_t i;
    if (exceptions) {
        for (i = 0; i < n; i++) room[i] = symbols[i] == LMC__EXCEPTION ? 0 : symbols[i];
        symbols = room;
    }
    if (q->table_size) { /* not each symbol has a code: take the nearest that has */
        const uint8_t *const codes = q->codes;
        uint8_t *const high = strip->high; /* bytes that are stored may alias strip */
        for (i = 0; i < n; i++) {
            high[i] = codes[symbols[i]];
            room[i] = q->table[high[i]];
        }
        return room;
    }
    k->cut_symbols(strip->high, strip->low, symbols, n, q->low_bits);
    return symbols;
}

/* Returns the number of exceptions, which dst has as they came. BF16 are widened, restored as F32,
 * and rounded as the decoder rounds them. `restored` first holds the predictions of BF16: each is
 * used before it is overwritten.
 *
 *     elements --> x --> symbols --> codes --> restored --> exceptions back --> rounded --> dst
 *     predictions -----> s -----------------------^
 *
 * Done again, it changes nothing: restored elements lie on points, or BF16 so near to some that
 * these round to the same. Hence a writer may be given elements that were quantised in place. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_strip *strip)
{
    const lmc__quant_source *const in = &strip->source;
    const size_t n = in->n;
    uint8_t *const dst = strip->dst;
    uint8_t wide[4 * LMC__QUANTIZED_STRIP], restored[4 * LMC__QUANTIZED_STRIP];
    uint16_t room[LMC__QUANTIZED_STRIP];
    const uint8_t *const x = lmc__widen(wide, in->elements, n, q->width);
    const uint8_t *const s = q->is_predicted ? lmc__widen(restored, in->second, n, q->width) : NULL;
    const size_t exceptions = lmc__find_symbols(k, q, strip->symbols, x, s, in->first, n);
    const uint16_t *const symbols = lmc__put_codes(k, q, strip, exceptions, room);
    size_t i;
    lmc__restore_symbols(k, q, restored, symbols, s, in->first, n);
    for (i = 0; i < n && exceptions; i++)
        if (strip->symbols[i] == LMC__EXCEPTION) memcpy(restored + 4 * i, x + 4 * i, 4);
    if (q->width == 4) memcpy(dst, restored, 4 * n);
    for (i = 0; i < n && q->width == 2; i++) {
        /* Exceptions are BF16 already. Of them a NaN must not be rounded, which would make it
         * quiet. */
        const uint32_t v = lmc__load32(restored + 4 * i);
        lmc__store16(dst + 2 * i, (uint16_t)(v & 0xFFFF ? lmc__to_bf16(v) : v >> 16));
    }
    return exceptions;
}

/* Part of a block: n elements from number i on. */
static lmc__quant_source lmc__part_of(const lmc__quant_source *source, unsigned width, size_t i,
                                      size_t n)
{
    lmc__quant_source part;
    part.elements = source->elements + i * width;
    part.second = source->second ? source->second + i * width : NULL;
    part.first = source->first + i;
    part.n = n;
    return part;
}

/* Where exceptions are gathered, in the payload itself:
 *
 *   | head | table | positions -->             | values -->             | end
 *                  |<-- 4 * max bytes -->      |<-- width * max -->     |
 *
 * When their number is known, the values are moved down. */
typedef struct lmc__exceptions {
    uint8_t *positions, *values;
    size_t n, max;
} lmc__exceptions;

/* Those of a strip of n elements, of which i is the first in the block. Returns 0 if there is no
 * room. Strips come in order, so positions ascend. elements: where the strip was restored to. */
static int lmc__add_exceptions(lmc__exceptions *to, const uint16_t *symbols,
                               const uint8_t *elements, unsigned width, size_t i, size_t n)
{
    size_t j;
    for (j = 0; j < n; j++) {
        if (symbols[j] != LMC__EXCEPTION) continue;
        if (to->n == to->max) return 0;
        lmc__store32(to->positions + 4 * to->n, (uint32_t)(i + j));
        memcpy(to->values + width * to->n++, elements + j * width, width);
    }
    return 1;
}

/* Codes, exceptions and CRC of all elements; content: what they are restored to. Returns 0 if the
 * exceptions do not fit; content and CRC are complete all the same, for the block is then stored.
 * The elements and the prediction may change meanwhile (put_block.h): a strip of the prediction is
 * copied first. */
static int lmc__quantize_elements(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *source, uint8_t *content, uint8_t *high,
                                  uint8_t *low, lmc__exceptions *exceptions, uint32_t *crc)
{
    const unsigned width = q->width;
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t second[4 * LMC__QUANTIZED_STRIP];
    lmc__quant_strip strip;
    size_t i, n;
    int fits = 1;
    strip.symbols = symbols;
    *crc = 0;
    for (i = 0; i < source->n; i += n) {
        n = lmc__min(source->n - i, LMC__QUANTIZED_STRIP);
        strip.source = lmc__part_of(source, width, i, n);
        strip.dst = content + i * width;
        strip.high = high + i;
        strip.low = low ? low + i : NULL;
        if (q->is_predicted) {
            memcpy(second, strip.source.second, n * width);
            strip.source.second = second;
        }
        if (lmc__quantize_strip(k, q, &strip) && fits)
            fits = lmc__add_exceptions(exceptions, symbols, strip.dst, width, i, n);
        *crc = k->crc32c(*crc, strip.dst, n * width);
    }
    return fits;
}

/* The payload's head, and the table behind it without its entry 0. Fields that do not apply are 0.
 * The first group is what is left of the group in which the block begins. get_quantised.h has the
 * offsets as a table. */
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

/* The scales of the groups that n elements from number first are in: a list of their low bytes,
 * and one of their high ones. Returns 0 if there is no room. */
static int lmc__put_scales(lmc__encoder *e, const lmc__quant_params *q, uint64_t first, size_t n,
                           uint8_t *work, uint8_t *spare, unsigned sample)
{
    const uint64_t group = first / q->group_size;
    const size_t n_groups = (size_t)((first + n - 1) / q->group_size - group) + 1;
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

/* The payload of a quantised block. content: a list of as many bytes as the elements, becomes what
 * they are restored to, also if 0 is returned: where the payload is not smaller than they are, or
 * does not fit in cap.
 *
 * One pass over the elements, in which codes go to `high` and `low` and exceptions to the payload;
 * then each list is coded by itself, from a copy (lmc__put_list): codes are never made again. */
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

/* job's block, quantised; or, if that is not smaller, its restored elements stored. They are not
 * coded without loss instead: whoever quantised the same tensor before, to predict another one, has
 * restored elements, and a reader must get those. *content: these, in the workspace; not set where
 * the block was coded without loss.
 *
 * With is_recovered the elements were quantised before, and what is coded must be exactly they.
 *
 *     payload fits   is_recovered   restored = elements   the block is
 *          1              0               any             quantised
 *          0              0               any             its restored elements, stored
 *          1              1               yes             quantised
 *       otherwise         1                               coded without loss, from the elements */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    const lmc__quant_params *const q = job->quant;
    uint8_t *const payload = job->dst + LMC_BLOCK_HEADER_SIZE;
    const size_t size = job->src_size;
    lmc__quant_source source;
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
    source.elements = job->src;
    source.second = job->base;
    source.first = job->first_element;
    source.n = size / q->width;
    memset(&coding, 0, sizeof coding);
    coding.payload_size =
        lmc__put_quantized(&e, q, payload, cap, &source, restored, job->level, &coding.content_crc);
    if (q->is_recovered && (coding.payload_size == 0 || memcmp(restored, job->src, size) != 0)) {
        lmc__job lossless = *job; /* the workspace is used again: src lies elsewhere */
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

/* There are no quantisers, so no block asks for one. */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    (void)k, (void)job, (void)ws, (void)ws_size, (void)content;
    return LMC_ERR_UNSUPPORTED;
}

#endif
