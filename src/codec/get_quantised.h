#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/half.h"
#include "codec/workspace.h"
#include "codec/get_list.h"
#include "codec/put_quantised.h"

/* What the head of a quantised block's payload says. */
typedef struct lmc__quantised {
    lmc__grid grid;
    unsigned low_bits, table_size;
    uint32_t group_size, first_group, n_exceptions;
    size_t n_groups;
    uint16_t table[256];               /* of codes */
    const uint8_t *positions, *values; /* of exceptions */
    lmc__side scales[2];               /* their low bytes, their high ones */
} lmc__quantised;

LMC__INLINE uint32_t lmc__scale_at(const lmc__quantised *q, size_t i)
{
    const uint32_t low = q->scales[0].list ? q->scales[0].list[i] : q->scales[0].value,
                   high = q->scales[1].list ? q->scales[1].list[i] : q->scales[1].value;
    return low << 16 | high << 24;
}

/* The payload up to Low; spare: a list of info->n. */
static enum lmc_status lmc__get_quantised_head(lmc__decoder *d, lmc__quantised *q,
                                               const lmc_block_info *info, uint8_t *spare)
{
    const uint8_t *const p = d->in;
    const size_t n = info->n;
    uint32_t previous, i, largest;
    LMC__CHECK((size_t)(d->end - d->in) >= LMC__QUANTISED_HEADER, LMC_ERR_CORRUPT);
    memset(q, 0, sizeof *q);
    LMC__CHECK(p[0] <= (LMC__METHOD_LOG | LMC__METHOD_SIGNED | LMC__METHOD_TABLE), LMC_ERR_CORRUPT);
    q->grid.is_log = (p[0] & LMC__METHOD_LOG) != 0;
    q->grid.is_signed = (p[0] & LMC__METHOD_SIGNED) != 0;
    q->low_bits = p[1];
    q->table_size = lmc__load16(p + 2);
    LMC__CHECK(lmc__load32(p + 4) == 0 || lmc__load32(p + 4) >= 0u - 65535u, LMC_ERR_CORRUPT);
    q->grid.min = -(int32_t)(0u - lmc__load32(p + 4));
    q->grid.step = lmc__load32(p + 8);
    LMC__CHECK(lmc__load32(p + 12) + (1u << 30) <= 1u << 31, LMC_ERR_CORRUPT);
    q->grid.bias = lmc__load32(p + 12) <= 1u << 30 ? (int32_t)lmc__load32(p + 12)
                                                   : -(int32_t)(0u - lmc__load32(p + 12));
    q->grid.floor = lmc__load32(p + 16);
    q->group_size = lmc__load32(p + 20);
    q->first_group = lmc__load32(p + 24);
    q->n_exceptions = lmc__load32(p + 28);
    LMC__CHECK(q->grid.is_log || !q->grid.is_signed, LMC_ERR_CORRUPT);
    LMC__CHECK(p[0] & LMC__METHOD_TABLE
                   ? q->table_size >= 1 && q->table_size <= 255 && q->low_bits == 0
                   : q->table_size == 0 && q->low_bits <= LMC__MAX_LOW_BITS,
               LMC_ERR_CORRUPT);
    LMC__CHECK(q->grid.is_log ? q->grid.step >= 1 && q->grid.step <= 1u << 24 : q->grid.step == 0,
               LMC_ERR_CORRUPT);
    if (info->has_prediction) {
        LMC__CHECK(!q->grid.is_log && q->grid.floor <= 0x7F800000u && q->group_size == 0 &&
                       q->first_group == 0,
                   LMC_ERR_CORRUPT);
    } else {
        LMC__CHECK(q->grid.bias == 0 && q->grid.floor == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(q->group_size >= 1 && q->group_size <= 0x7FFFFFFFu && q->first_group >= 1 &&
                       q->first_group <= q->group_size,
                   LMC_ERR_CORRUPT);
        q->n_groups = n <= q->first_group ? 1 : 1 + (n - q->first_group - 1) / q->group_size + 1;
    }
    LMC__CHECK(q->n_exceptions <= n, LMC_ERR_CORRUPT);
    d->in += LMC__QUANTISED_HEADER;
    LMC__CHECK((size_t)(d->end - d->in) >=
                   2 * (size_t)q->table_size + (4 + info->width) * (size_t)q->n_exceptions,
               LMC_ERR_CORRUPT);
    for (i = 1, previous = 0; i <= q->table_size; i++, d->in += 2) {
        q->table[i] = lmc__load16(d->in);
        LMC__CHECK(q->table[i] > previous, LMC_ERR_CORRUPT);
        previous = q->table[i];
    }
    q->positions = d->in;
    for (i = 0; i < q->n_exceptions; i++, d->in += 4) {
        const uint32_t position = lmc__load32(d->in);
        LMC__CHECK(position < n && (i == 0 || position > previous), LMC_ERR_CORRUPT);
        previous = position;
    }
    q->values = d->in;
    d->in += info->width * (size_t)q->n_exceptions;
    if (info->has_prediction) return LMC_OK;
    for (i = 0; i < 2; i++) LMC__TRY(lmc__get_list(d, &q->scales[i], spare, q->n_groups));
    largest = q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE;
    for (i = 0; i < q->n_groups; i++)
        LMC__CHECK(lmc__scale_at(q, i) >= LMC__MIN_SCALE && lmc__scale_at(q, i) <= largest,
                   LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* 1 if one of n bytes is more than most. */
static int lmc__has_more(const uint8_t *p, size_t n, unsigned most)
{
    const uint64_t ones = UINT64_MAX / 255, low7 = 0x7F * ones,
                   add = (127 - (most & 0x7F)) *
                         ones; /* to 7 bits: a carry into the eighth if they are more */
    uint64_t more = 0;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const uint64_t v = lmc__load64(p + i), carry = (v & low7) + add;
        more |= most < 128 ? carry | v : carry & v;
    }
    more &= 0x80 * ones;
    for (; i < n; i++) more |= p[i] > most;
    return more != 0;
}

/* Codes [at, at + n) of a list or constant, in room for a strip where they must be made. */
static const uint8_t *lmc__codes_at(const lmc__side *side, size_t at, size_t n, uint8_t *room)
{
    if (side->list) return side->list + at;
    memset(room, side->value, n);
    return room;
}

/* The payload of a quantised block. base: as many bytes as dst, which may be the same; or NULL. */
static enum lmc_status lmc__get_quantised(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    const size_t n = info->n;
    const unsigned width = info->width;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    uint8_t wide[4 * LMC__QUANTISED_STRIP], room[LMC__QUANTISED_STRIP],
        low_room[LMC__QUANTISED_STRIP];
    uint16_t symbols[LMC__QUANTISED_STRIP];
    lmc__quantised q;
    lmc__side high, low;
    size_t i, j, part, step, group = 0, group_end, exception = 0, place;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantised_head(d, &q, info, spare));
    if (q.low_bits) LMC__TRY(lmc__get_list(d, &low, spare, n));
    LMC__TRY(lmc__get_list(d, &high, spare, n));
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (q.table_size)
        LMC__CHECK(high.list ? !lmc__has_more(high.list, n, q.table_size)
                             : high.value <= q.table_size,
                   LMC_ERR_CORRUPT);
    if (base) LMC__CHECK(d->k->crc32c(0, base, info->size) == info->base_crc, LMC_ERR_BASE_WRONG);
    *crc = 0;
    group_end = q.first_group;
    for (i = 0; i < n; i += part) {
        /* F32 go to their place by way of the first cache, if that is not to hold them; BF16 come
         * from there */
        uint8_t *const out = dst + i * width, *const restored =
                                                  width == 4 && !d->streaming.is_on ? out : wide;
        const uint8_t *const codes =
            lmc__codes_at(&high, i, part = lmc__min(n - i, LMC__QUANTISED_STRIP), room);
        if (q.table_size) d->k->look_up(symbols, codes, part, q.table);
        else
            d->k->join_symbols(symbols, codes,
                               q.low_bits ? lmc__codes_at(&low, i, part, low_room) : NULL, part,
                               q.low_bits);
        if (base)
            d->k->restore_updates(restored, symbols,
                                  lmc__widen(wide, base + i * width, part, width), part, &q.grid);
        else
            for (j = 0; j < part; j += step) {
                if (i + j == group_end) {
                    group++;
                    group_end += q.group_size;
                }
                step = lmc__min(part - j, group_end - i - j);
                d->k->restore_rows(restored + 4 * j, symbols + j, step, lmc__scale_at(&q, group),
                                   &q.grid);
            }
        LMC__PREFETCH(
            (const void *)((uintptr_t)out + 2 * sizeof wide)); /* a page ahead: for its address */
        if (width == 2)
            for (j = 0; j < part; j++)
                lmc__store16(wide + 2 * j, (uint16_t)lmc__to_bf16(lmc__load32(wide + 4 * j)));
        for (; exception < q.n_exceptions &&
               (place = lmc__load32(q.positions + 4 * exception)) < i + part;
             exception++)
            memcpy(restored + width * (place - i), q.values + width * exception, width);
        *crc = d->k->crc32c(*crc, restored, part * width);
        if (restored != out && d->streaming.is_on) d->k->stream(out, restored, part * width);
        else if (restored != out) memcpy(out, restored, part * width);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}
