#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/half.h"

/* Quantised elements: what encoder and decoder share (spec/quantised.md).
 *
 *   element -> symbol -> High, Low -> two lists of bytes, coded like any other (spec 6)
 *
 * A symbol has 16 bits. Symbol 0 is the element +0. The others are the numbers, from 1, of a grid's
 * points (kernels/grids.h). A scale is the upper half of a float, so its mantissa has 8 bits, and q
 * has at most 16 bits. Their product has at most 24 bits, as many as a float's mantissa, so it is
 * exact on every machine. The limits of scales keep the product normal and finite.
 *
 * Each group of group_size neighbours has a stored scale; or, with is_predicted, each element has a
 * scale that follows from its prediction. First moments of an optimizer are predicted by second
 * moments, and the points are updates.
 *
 * Symbols become bytes by a table, whose index is High; or they are cut into Low, the lowest
 * low_bits bits, and High, the other bits. Example: a linear grid with min = -3, a group with the
 * scale 0.25, low_bits = 0:
 *   symbol      0    1     2     3     4    5     6     7     and so on
 *   q                -3    -2    -1    0    1     2     3
 *   element     0  -0.75  -0.5 -0.25   0   0.25  0.5  0.75
 *
 * Symbol 4 means the same as symbol 0; encoders use 0. A table 1, 3, 6 would keep only -0.75, -0.25
 * and 0.5, as codes 1, 2 and 3, and zero as code 0.
 *
 * The format defines how a symbol becomes an element (kernels/grids.h). The encoder decides which
 * symbol an element gets: any choice can be decoded. An *exception* is an element that has no
 * symbol (NaN, infinities, -0, subnormals and elements beyond the grid). It is stored as it is. */

/* The head of a quantised block's payload. */
#define LMC__QUANTIZED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u

/* Elements that are processed at once, so that they stay in the first cache. */
#define LMC__QUANTIZED_STRIP 1024u

/* How the elements of a tensor are quantised. Who fills it owns its arrays codes and scales. */
typedef struct lmc__quant_params {
    unsigned width;   /* of an element: 2 (BF16) or 4 (F32) */
    int is_predicted; /* scales follow from the prediction; else groups have scales */
    int is_exact;     /* elements stay exact: those that are not on points are exceptions */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; 0 for code 0 and codes above table_size */
    uint8_t *codes;      /* encoding with a table: of symbols; codes[0]: of elements near zero */
    uint64_t group_size;
    uint16_t *scales; /* of groups (their upper halves): the tensor's; decoding, the block's */
} lmc__quant_params;

#ifndef LMC_NO_QUANTIZE

/* n elements as F32: src if they are F32; else converted to `wide`. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

/* Sets *scale for element `first`, counted from where groups begin. Returns how many of n elements
 * have this scale. With is_predicted *scale is 0, and the result is n. */
LMC__INLINE size_t lmc__get_group(const lmc__quant_params *q, uint64_t first, size_t n,
                                  uint32_t *scale)
{
    uint64_t group;
    *scale = 0;
    if (q->is_predicted) return n;
    group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* Restores a strip: the elements of n symbols, from element `first` on. Any symbol is valid: the
 * grid's limits keep all points within floats. base: their predictions, or NULL; may be dst. */
static void lmc__restore_strip(const lmc__kernels *k, const lmc__quant_params *q, uint8_t *dst,
                               const uint16_t *symbols, const uint8_t *base, uint64_t first,
                               size_t n)
{
    uint8_t wide[4 * LMC__QUANTIZED_STRIP];
    uint8_t *const to = q->width == 4 ? dst : wide;
    const uint8_t *const second = q->is_predicted ? lmc__widen(wide, base, n, q->width) : NULL;
    uint32_t scale;
    size_t i, part;
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        k->restore(to + 4 * i, symbols + i, second, part, scale, &q->grid);
    }
    for (i = 0; i < n && q->width == 2; i++)
        lmc__store16(dst + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(wide + 4 * i)));
}
#endif
