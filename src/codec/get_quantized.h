#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/quant_params.h"
#include "codec/get_list.h"

/* Decodes quantised blocks (spec/quantised.md; terms: quant_params.h). Their payload is
 *
 *   head | table | positions, values of exceptions | scales | Low | High
 *
 * It is checked in this order: each number of the head, their combinations, the table, the
 * positions and the scales. Then the lists are decoded (get_list.h), and the largest code is
 * compared with the table's size. Only then elements are restored. Restoring cannot fail: every
 * symbol is a point of every grid, and the kernel restore clamps (kernels/grids.h). Strips of
 * elements stay in the first cache:
 *   High, Low --> symbols --> F32 --(BF16: rounded)--> exceptions replaced --> CRC --> dst
 *
 * dst may be the prediction: a strip's prediction is read before its elements are written. */

#ifndef LMC_NO_QUANTIZE

/* The payload up to its codes. Its pointers are into the payload and the workspace. */
typedef struct lmc__quantized_head {
    lmc__quant_params params; /* without codes and the grid's n_points */
    uint64_t first;           /* elements of the first group that are in earlier blocks */
    size_t n_groups;          /* 0 if scales follow from the prediction */
    uint32_t n_exceptions;
    const uint8_t *positions, *values; /* of exceptions: u32 indices, ascending; elements */
} lmc__quantized_head;

/* Every payload begins with these 32 bytes:
 *    0  Method   1  Low_Bits   2  Table_Size   4  Min    8  Step   12  Bias   16  Floor
 *   20  Group_Size   24  First_Group   28  N_Exceptions
 *
 * The limits keep Min + a symbol, and Bias + half the bits of any float, within 32 bits. */
static enum lmc_status lmc__parse_quantized_head(lmc__quantized_head *head, const uint8_t *p,
                                                 const lmc_block_info *info)
{
    lmc__quant_params *const q = &head->params;
    const size_t n = info->n;
    const uint32_t min = lmc__load32(p + 4), bias = lmc__load32(p + 12),
                   group_size = lmc__load32(p + 20), first_group = lmc__load32(p + 24);
    memset(head, 0, sizeof *head);
    LMC__VALID(p[0] <= (LMC__METHOD_LOG | LMC__METHOD_SIGNED | LMC__METHOD_TABLE));
    q->width = info->width;
    q->is_predicted = info->has_prediction;
    q->grid.is_log = (p[0] & LMC__METHOD_LOG) != 0;
    q->grid.is_signed = (p[0] & LMC__METHOD_SIGNED) != 0;
    q->low_bits = p[1];
    q->table_size = lmc__load16(p + 2);
    LMC__VALID(min == 0 || min >= 0u - 65535u);
    q->grid.min = -(int32_t)(0u - min); /* so that no number above INT32_MAX is converted */
    q->grid.step = lmc__load32(p + 8);
    LMC__VALID(bias + (1u << 30) <= 1u << 31);
    q->grid.bias = bias <= 1u << 30 ? (int32_t)bias : -(int32_t)(0u - bias);
    q->grid.floor = lmc__load32(p + 16);
    q->group_size = group_size;
    head->n_exceptions = lmc__load32(p + 28);
    /* Linear points are signed without Method's bit. With a table there are no low bits. */
    LMC__VALID(q->grid.is_log || !q->grid.is_signed);
    LMC__VALID(p[0] & LMC__METHOD_TABLE
                   ? q->table_size >= 1 && q->table_size <= 255 && q->low_bits == 0
                   : q->table_size == 0 && q->low_bits <= LMC__MAX_LOW_BITS);
    LMC__VALID(q->grid.is_log ? q->grid.step >= 1 && q->grid.step <= 1u << 24 : q->grid.step == 0);
    /* Scales follow from the prediction or are in the block; unused fields are 0. */
    if (info->has_prediction) {
        LMC__VALID(!q->grid.is_log && q->grid.floor <= 0x7F800000u && group_size == 0 &&
                   first_group == 0);
    } else {
        LMC__VALID(q->grid.bias == 0 && q->grid.floor == 0);
        LMC__VALID(group_size >= 1 && group_size <= 0x7FFFFFFFu && first_group >= 1 &&
                   first_group <= group_size);
        head->first = group_size - first_group;
        head->n_groups = lmc__count_groups(head->first, n, group_size);
    }
    LMC__VALID(head->n_exceptions <= n); /* so that the sizes in lmc__get_quantized_head fit in
                                            size_t */
    return LMC_OK;
}

/* Reads the payload up to Low; spare: a list of info->n, which is enough for the scales' bytes, as
 * there are not more groups than elements. Tables and positions ascend strictly: each has one form.
 * One check covers the sizes of table, positions and values: n_exceptions is at most n, so their
 * sum is at most 2 * 255 + 6 * 2^21. The limits of scales keep every point normal and finite. */
static enum lmc_status lmc__get_quantized_head(lmc__decoder *d, lmc__quantized_head *head,
                                               const lmc_block_info *info, uint8_t *spare)
{
    lmc__quant_params *const q = &head->params;
    lmc__side bytes[2];
    uint32_t previous, i;
    size_t group;
    LMC__VALID((size_t)(d->end - d->in) >= LMC__QUANTIZED_HEADER);
    LMC__TRY(lmc__parse_quantized_head(head, d->in, info));
    d->in += LMC__QUANTIZED_HEADER;
    LMC__VALID((size_t)(d->end - d->in) >=
               2 * (size_t)q->table_size + (4 + info->width) * (size_t)head->n_exceptions);
    for (i = 1, previous = 0; i <= q->table_size; i++, d->in += 2) {
        q->table[i] = lmc__load16(d->in);
        LMC__VALID(q->table[i] > previous);
        previous = q->table[i];
    }
    head->positions = d->in;
    for (i = 0; i < head->n_exceptions; i++, d->in += 4) {
        const uint32_t position = lmc__load32(d->in);
        LMC__VALID(position < info->n && (i == 0 || position > previous));
        previous = position;
    }
    head->values = d->in;
    d->in += info->width * (size_t)head->n_exceptions;
    if (info->has_prediction) return LMC_OK;
    for (i = 0; i < 2; i++) LMC__TRY(lmc__get_list(d, &bytes[i], spare, head->n_groups));
    q->scales = (uint16_t *)(void *)lmc__push_numbers(&d->stack, (head->n_groups + 1) / 2);
    LMC__CHECK(q->scales, LMC_ERR_WORKSPACE);
    for (group = 0; group < head->n_groups; group++) {
        const unsigned low = bytes[0].list ? bytes[0].list[group] : bytes[0].value,
                       high = bytes[1].list ? bytes[1].list[group] : bytes[1].value,
                       scale = high << 8 | low;
        /* A linear point is at most 2^16 scales, and must be finite. */
        LMC__VALID(scale >= LMC__MIN_SCALE >> 16 &&
                   scale <= (q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16);
        q->scales[group] = (uint16_t)scale;
    }
    return LMC_OK;
}

/* 1 if one of n bytes is more than limit. Compares eight bytes at a time. Let low(v) be the lower 7
 * bits of v. low(byte) + 127 - low(limit) has bit 7 if low(byte) > low(limit), which decides if
 * byte and limit have the same top bit. If limit is below 128, a byte with the top bit is always
 * more (or). Else a byte without the top bit is never more (and). */
static int lmc__has_more(const uint8_t *p, size_t n, unsigned limit)
{
    const uint64_t ones = UINT64_MAX / 255, low7 = 0x7F * ones, add = (127 - (limit & 0x7F)) * ones;
    uint64_t more = 0;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const uint64_t v = lmc__load64(p + i), carry = (v & low7) + add;
        more |= limit < 128 ? carry | v : carry & v;
    }
    more &= 0x80 * ones;
    for (; i < n; i++) more |= p[i] > limit;
    return more != 0;
}

/* Codes [at, at + n) of a side. A constant is first written to `room`, n times. */
static const uint8_t *lmc__codes_at(const lmc__side *side, size_t at, size_t n, uint8_t *room)
{
    if (side->list) return side->list + at;
    memset(room, side->value, n);
    return room;
}

/* Restores all elements from checked codes; returns their CRC. base: the prediction, which may be
 * dst; NULL if groups have scales. */
static uint32_t lmc__restore_elements(const lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, const lmc__quantized_head *head,
                                      const lmc__side *high, const lmc__side *low)
{
    const lmc__quant_params *const q = &head->params;
    const unsigned width = info->width;
    uint8_t room[4 * LMC__QUANTIZED_STRIP], high_room[LMC__QUANTIZED_STRIP],
        low_room[LMC__QUANTIZED_STRIP];
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    size_t i, j, n, exception = 0, place;
    uint32_t crc = 0;
    for (i = 0; i < info->n; i += n) {
        /* A strip that is streamed (d->streaming) is restored in `room`, where its CRC is read. */
        uint8_t *const to = dst + i * width, *const out = d->streaming.is_on ? room : to;
        const uint8_t *codes;
        n = lmc__min(info->n - i, LMC__QUANTIZED_STRIP);
        codes = lmc__codes_at(high, i, n, high_room);
        if (q->table_size)
            for (j = 0; j < n; j++) symbols[j] = q->table[codes[j]];
        else
            d->k->join_symbols(symbols, codes,
                               q->low_bits ? lmc__codes_at(low, i, n, low_room) : NULL, n,
                               q->low_bits);
        lmc__restore_strip(d->k, q, out, symbols, base ? base + i * width : NULL, head->first + i,
                           n);
        LMC__PREFETCH((const void *)((uintptr_t)to + 2 * sizeof room)); /* the TLB's next page */
        /* Exceptions come last, so that no kernel changes them: a NaN keeps its bits. */
        for (; exception < head->n_exceptions &&
               (place = lmc__load32(head->positions + 4 * exception)) < i + n;
             exception++)
            memcpy(out + width * (place - i), head->values + width * exception, width);
        crc = d->k->crc32c(crc, out, n * width);
        if (out != to) d->k->stream(to, out, n * width);
    }
    return crc;
}

/* Decodes the payload of a quantised block. base: the prediction, which may be dst; or NULL. */
static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__quantized_head head;
    lmc__side high, low = {NULL, 0};
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantized_head(d, &head, info, spare));
    if (head.params.low_bits) LMC__TRY(lmc__get_list(d, &low, spare, n));
    LMC__TRY(lmc__get_list(d, &high, spare, n));
    LMC__VALID(d->in == d->end);
    /* This holds for exceptions, too: their codes are looked up with the others. */
    if (head.params.table_size)
        LMC__VALID(high.list ? !lmc__has_more(high.list, n, head.params.table_size)
                             : high.value <= head.params.table_size);
    LMC__TRY(lmc__keep(d, dst, base, info->size));
    *crc = lmc__restore_elements(d, dst, base, info, &head, &high, &low);
    return LMC_OK;
}
#else

static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    (void)d, (void)dst, (void)base, (void)info, (void)crc;
    return LMC_ERR_UNSUPPORTED;
}
#endif
