#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/half.h"

/* Quantised elements, as encoder and decoder both know them (spec/quantised.md).
 *
 *   element -> symbol -> High, Low -> two lists of bytes, coded like any other (spec 6)
 *
 * A symbol has 16 bits: 0 is the element +0, and others are numbers, from 1, of the points of a
 * grid. A grid is a row of points, q = min, min + 1, ..., for every scale G:
 *
 *   linear        the point q is the float q * G
 *   logarithmic   the point q is the float whose bits are those of G, plus q * step. The bits of a
 *                 float, read as an integer, grow by 2^23 from one power of two to the next, and
 *                 in straight lines between them: all but a logarithm.
 *
 * A scale is the upper half of a float, so it has 8 bits of mantissa; q has at most 16. Their
 * product has 24, as many as a float holds, so it is exact on every machine. The limits of scales
 * keep it normal and finite.
 *
 * Each group of group_size neighbours has a scale that is stored; or, with is_predicted, each
 * element has one that follows from its prediction. For the first moment of an optimizer that is
 * the second moment, and the points are updates.
 *
 * Symbols become bytes by a table, whose index is High; or they are cut into Low, the lowest
 * low_bits bits, and High, the others. For example, a linear grid with min = -3 whose group has the
 * scale 0.25, and low_bits = 0:
 *
 *   symbol      0    1     2     3     4    5     6     7     and so on
 *   q                -3    -2    -1    0    1     2     3
 *   element     0  -0.75  -0.5 -0.25   0   0.25  0.5  0.75
 *
 * Symbol 4 says the same as symbol 0, which encoders use. A table 1, 3, 6 would keep -0.75, -0.25
 * and 0.5 of it, as codes 1, 2 and 3, and zero as code 0.
 *
 * How a symbol becomes an element is the format's (kernels/grids.h). How an element finds its
 * symbol is the encoder's: any choice can be decoded. An exception is an element that is on no grid
 * (NaN, infinities, -0, subnormals and what is out of reach): it is stored as it is. */

/* The head of a quantised block's payload. */
#define LMC__QUANTIZED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u

/* Elements that are worked on at once, in the first cache. */
#define LMC__QUANTIZED_STRIP 1024u

/* How the elements of one tensor are quantised. Block codecs only read it: the code that found it
 * owns it, with codes and scales. */
typedef struct lmc__quant_params {
    unsigned width;   /* of an element: 2 (BF16) or 4 (F32) */
    int is_predicted; /* scales by the prediction, otherwise of groups */
    int is_recovered; /* elements were quantised before, and must come out as they go in */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; table[0] and all beyond table_size: 0 */
    uint8_t *codes;      /* encoding with a table: the code of each symbol */
    uint64_t group_size;
    uint16_t
        *scales; /* the upper half of each group's scale: of the tensor; decoding, of a block */
} lmc__quant_params;

#ifndef LMC_NO_QUANTIZE

/* n elements as F32: src itself if they are, or else `wide`. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

/* The scale of element number `first`, counted from where groups begin; returns how many of n
 * elements share it. Predictions give scales to all of them. */
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

/* The elements of a strip, from number `first` on, that n symbols stand for: any symbols, for the
 * grid's limits keep all within floats. base: their predictions, or NULL; dst may be the same. */
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
