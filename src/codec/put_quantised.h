#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/half.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/put_list.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"

#define LMC__QUANTISED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u
/* Elements that are quantised at once: their symbols and, of BF16, their F32 forms stay in the
 * first cache. */
#define LMC__QUANTISED_STRIP 1024u

struct lmc_quantizer {
    lmc_quantizer_info info;
    void *alloc_user;
    unsigned width;   /* of an element: 2 or 4 */
    int is_recovered; /* of elements that are quantised already: what it does not give back exactly
                         is coded without it */
    uint64_t n;       /* elements of the tensor */
    int is_predicted; /* scales by the second moment; else those of groups */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; behind table_size: 0 */
    uint8_t
        *codes; /* of each symbol, if there is a table: grid's n_points (twice if signed), plus 1 */
    size_t n_codes;
    uint64_t group_size;
    uint16_t *scales; /* of the groups: the upper halves of F32 */
    size_t n_groups;
};

/* n elements as F32; the result may be src. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

/* The scales of elements from number first of a tensor on: how many of n have that of the first. */
LMC__INLINE size_t lmc__get_group(const lmc_quantizer *q, uint64_t first, size_t n, uint32_t *scale)
{
    const uint64_t group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* Quantises n elements from number first of the tensor, at most a strip: dst gets what they are
 * restored to, high and low their codes, or those of zero for exceptions, which stay as they are.
 * src (and second) are elements as they come; dst may be one of them. low may be NULL where there
 * are no low bits. Returns the number of exceptions; where symbols is EXCEPTION, they are. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc_quantizer *q, uint8_t *high,
                                  uint8_t *low, uint16_t *symbols, uint8_t *dst, const uint8_t *src,
                                  const uint8_t *second, uint64_t first, size_t n)
{
    uint8_t wide[4 * LMC__QUANTISED_STRIP], wide_second[4 * LMC__QUANTISED_STRIP];
    uint16_t kept[LMC__QUANTISED_STRIP];
    const uint8_t *const x = lmc__widen(wide, src, n, q->width), *const s =
                                                                     q->is_predicted
                                                                         ? lmc__widen(wide_second,
                                                                                      second, n,
                                                                                      q->width)
                                                                         : NULL;
    uint16_t *valid = symbols;
    size_t exceptions = 0, i, part;
    uint8_t *restored = dst;
    uint32_t scale;
    if (q->is_predicted) exceptions = k->quantize_updates(symbols, x, s, n, &q->grid);
    else
        for (i = 0; i < n; i += part) {
            part = lmc__get_group(q, first + i, n - i, &scale);
            exceptions += k->quantize_rows(symbols + i, x + 4 * i, part, scale, &q->grid);
        }
    if (exceptions) {
        valid = kept;
        for (i = 0; i < n; i++) kept[i] = symbols[i] == LMC__EXCEPTION ? 0 : symbols[i];
        if (q->width == 4) memcpy(wide, src, 4 * n); /* dst may be src */
    }
    if (q->table_size) { /* the nearest that the table has */
        const uint8_t *const codes = q->codes;
        for (i = 0; i < n; i++) high[i] = codes[valid[i]];
        k->look_up(kept, high, n, q->table);
        valid = kept;
    } else k->cut_symbols(high, low, valid, n, q->low_bits);
    if (q->width == 2) restored = q->is_predicted ? wide_second : wide;
    if (q->width == 2 && exceptions && !q->is_predicted) restored = wide_second;
    if (q->is_predicted) k->restore_updates(restored, valid, s, n, &q->grid);
    else
        for (i = 0; i < n; i += part) {
            part = lmc__get_group(q, first + i, n - i, &scale);
            k->restore_rows(restored + 4 * i, valid + i, part, scale, &q->grid);
        }
    for (i = 0; i < n && exceptions; i++)
        if (symbols[i] == LMC__EXCEPTION) memcpy(restored + 4 * i, wide + 4 * i, 4);
    if (q->width == 2)
        for (i = 0; i < n;
             i++) { /* exceptions lie on BF16 already: a NaN, too, must stay as it is */
            const uint32_t v = lmc__load32(restored + 4 * i);
            lmc__store16(dst + 2 * i, (uint16_t)(v & 0xFFFF ? lmc__to_bf16(v) : v >> 16));
        }
    return exceptions;
}

/* Payload of a quantised block: n elements from number first. content: a list of n * width bytes,
 * becomes what they are restored to. Returns 0 if it is not smaller than that, or than cap. */
static size_t lmc__put_quantised(lmc__encoder *e, const lmc_quantizer *q, uint8_t *dst, size_t cap,
                                 uint8_t *content, const uint8_t *src, const uint8_t *second,
                                 uint64_t first, size_t n, enum lmc_level level,
                                 lmc__block_crcs *crcs)
{
    const unsigned width = q->width;
    uint8_t *const high = lmc__push_list(&e->stack, n), *const spare = lmc__push_list(&e->stack, n),
                   *const work = lmc__push_list(&e->stack, n);
    uint8_t *const low = q->low_bits ? lmc__push_list(&e->stack, n) : NULL;
    uint8_t *positions, *values;
    size_t i, j, part, n_exceptions = 0, max_exceptions, n_groups = 0,
                       table_bytes = 2 * (size_t)q->table_size;
    uint16_t symbols[LMC__QUANTISED_STRIP];
    int fits = 1;
    if (!high || !spare || !work || (!low && q->low_bits)) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    crcs->content = 0;
    crcs->base = q->is_predicted ? e->k->crc32c(0, second, n * width) : 0;
    /* Positions are made where they will stand, values behind the most of them that fit. */
    fits = (size_t)(e->end - e->out) > LMC__QUANTISED_HEADER + table_bytes;
    positions = e->out + LMC__QUANTISED_HEADER + table_bytes;
    max_exceptions = fits ? (size_t)(e->end - positions) / (4 + width) : 0;
    values = positions + 4 * max_exceptions;
    for (i = 0; i < n; i += part) {
        size_t exceptions;
        part = lmc__min(n - i, LMC__QUANTISED_STRIP);
        exceptions = lmc__quantize_strip(e->k, q, high + i, low ? low + i : NULL, symbols,
                                         content + i * width, src + i * width,
                                         second ? second + i * width : NULL, first + i, part);
        crcs->content = e->k->crc32c(crcs->content, content + i * width, part * width);
        for (j = 0; j < part && exceptions; j++) {
            if (symbols[j] != LMC__EXCEPTION) continue;
            if (n_exceptions == max_exceptions) fits = 0;
            if (!fits) continue;
            lmc__store32(positions + 4 * n_exceptions, (uint32_t)(i + j));
            memcpy(values + width * n_exceptions++, content + (i + j) * width, width);
        }
    }
    if (!fits) return 0;
    memset(dst, 0, LMC__QUANTISED_HEADER);
    dst[0] = (uint8_t)((q->grid.is_log ? LMC__METHOD_LOG : 0) |
                       (q->grid.is_signed ? LMC__METHOD_SIGNED : 0) |
                       (q->table_size ? LMC__METHOD_TABLE : 0));
    dst[1] = (uint8_t)q->low_bits;
    lmc__store16(dst + 2, (uint16_t)q->table_size);
    lmc__store32(dst + 4, (uint32_t)q->grid.min);
    lmc__store32(dst + 8, q->grid.step);
    lmc__store32(dst + 28, (uint32_t)n_exceptions);
    for (i = 0; i < q->table_size; i++)
        lmc__store16(dst + LMC__QUANTISED_HEADER + 2 * i, q->table[i + 1]);
    memmove(positions + 4 * n_exceptions, values, width * n_exceptions);
    e->out = positions + (4 + width) * n_exceptions;
    if (q->is_predicted) {
        lmc__store32(dst + 12, (uint32_t)q->grid.bias);
        lmc__store32(dst + 16, q->grid.floor);
    } else {
        const uint64_t first_group = first / q->group_size;
        uint8_t *const top = e->stack.top;
        uint8_t *row;
        lmc__store32(dst + 20, (uint32_t)q->group_size);
        lmc__store32(dst + 24, (uint32_t)((first_group + 1) * q->group_size - first));
        n_groups = (size_t)((first + n - 1) / q->group_size - first_group) + 1;
        if ((row = lmc__push_list(&e->stack, n_groups)) == NULL) return 0;
        for (j = 0; j < 2; j++) {
            for (i = 0; i < n_groups; i++) row[i] = (uint8_t)(q->scales[first_group + i] >> 8 * j);
            if (!lmc__put_list(e, row, work, spare, n_groups, level)) return 0;
        }
        e->stack.top = top;
    }
    if (low && !lmc__put_list(e, low, work, spare, n, level)) return 0;
    if (!lmc__put_list(e, high, work, spare, n, level)) return 0;
    return (size_t)(e->out - dst);
}
