#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/fold.h"
#include "kernels/strip.h"
#include "kernels/dispatch.h"
#include "codec/workspace.h"
#include "codec/get_list.h"
#include "codec/get_quantised.h"

/* The payload of a block in layout planes. The last tree's root is merged with the join. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       int rotate, unsigned extra, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__joint joint;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL;
    lmc__set_joint(&joint, extra, 0, n);
    if (extra) {
        LMC__CHECK(d->end - d->in >= 2, LMC_ERR_CORRUPT);
        joint.offset = lmc__load16(d->in);
        LMC__CHECK(joint.offset < 256u << extra, LMC_ERR_CORRUPT);
        d->in += 2;
    }
    for (p = 0; p < width; p++) {
        unsigned mode;
        uint8_t *list;
        if (extra && p == width - 2) {
            size_t i;
            LMC__CHECK((size_t)(d->end - d->in) >= joint.packed_size, LMC_ERR_CORRUPT);
            joint.packed = d->in;
            d->in += joint.packed_size;
            for (i = n; i < joint.packed_size + joint.row; i++)
                LMC__CHECK(lmc__unpack(joint.packed, i, &joint) == 0, LMC_ERR_CORRUPT);
            continue;
        }
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
        if (mode == LMC__PLANE_RAW) { /* used where it lies */
            LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
            planes.row[p] = d->in;
            d->in += n;
            continue;
        }
        LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
        if (mode != LMC__PLANE_CONSTANT &&
            root.mask) { /* the spare is needed again; the mask may be above the row */
            d->k->merge(root.row, root.mask, n, root.left, root.right);
            root.mask = NULL;
        }
        planes.row[p] = list = lmc__push_list(&d->stack, n);
        LMC__CHECK(list, LMC_ERR_WORKSPACE);
        if (mode == LMC__PLANE_CONSTANT) {
            LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
            memset(list, *d->in++, n);
        } else {
            root.plane = p;
            root.row = list;
            LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
        }
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (extra) {
        planes.row[width - 2] = spare; /* for what is not there: it is not looked at */
        joint.high = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        joint.low = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        LMC__CHECK(joint.high && joint.low, LMC_ERR_WORKSPACE);
    }
    *crc = d->k->join_root(
        d->k, dst,
        lmc__join_from(&planes, root.mask ? &root : NULL, extra ? &joint : NULL, width, rotate), n,
        d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* The payload of a block with a prediction or with classes (spec 7.3). base: as many bytes as dst,
 * which may be the same; or NULL. */
static enum lmc_status lmc__get_classes(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                        const lmc_block_info *info, int subtract, unsigned coding,
                                        uint32_t *crc)
{
    const unsigned width = info->width;
    const int sparse = coding >> 3 & 1;
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    const uint8_t *masks[LMC__MAX_CLASSES];
    size_t n_of[LMC__MAX_CLASSES];
    lmc__grouping grouping;
    lmc__class_sides sides;
    unsigned c, p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    grouping.n_classes = (coding & 7) + 1;
    grouping.n_natural = coding >> 4 & 7;
    LMC__CHECK((size_t)(d->end - d->in) >= grouping.n_classes - 1, LMC_ERR_CORRUPT);
    for (c = 0; c + 1 < grouping.n_classes; c++) {
        grouping.threshold[c] = *d->in++;
        LMC__CHECK(grouping.threshold[c] > (c ? grouping.threshold[c - 1] : 0), LMC_ERR_CORRUPT);
    }
    n_of[0] = n;
    if (base) {
        const uint32_t base_crc = grouping.n_classes == 1
                                      ? d->k->crc32c(0, base, info->size)
                                      : d->k->count_classes(d->k, n_of, base, n, width, &grouping);
        LMC__CHECK(base_crc == info->base_crc, LMC_ERR_BASE_WRONG);
    }
    for (c = 0; c < grouping.n_classes && sparse; c++)
        if (n_of[c]) LMC__TRY(lmc__get_mask(d, 0, n_of[c], &masks[c]));
    for (p = 0; p < grouping.n_natural; p++) {
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        sides.side[0][p].list = d->in;
        d->in += n;
    }
    for (c = 0; c < grouping.n_classes; c++) {
        const size_t m =
            sparse && n_of[c] ? d->k->count_ones(masks[c], (n_of[c] + 7) / 8) : n_of[c];
        for (p = grouping.n_natural; p < width; p++) {
            lmc__side *const side = &sides.side[c][p];
            side->list = NULL;
            side->value = 0;
            if (m == 0) continue;
            if (sparse && m < n_of[c]) { /* between the coded ones: zeros */
                lmc__side zero, coded;
                uint8_t *const list = lmc__push_list(&d->stack, n_of[c]), *const top = d->stack.top;
                LMC__CHECK(list, LMC_ERR_WORKSPACE);
                LMC__TRY(lmc__get_list(d, &coded, spare, m));
                zero.list = NULL;
                zero.value = 0;
                d->k->merge(list, masks[c], n_of[c], zero, coded);
                d->stack.top = top;
                side->list = list;
            } else {
                LMC__TRY(lmc__get_list(d, side, spare, m));
            }
        }
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (base)
        *crc = d->k->ungroup(d->k, dst, base, &sides, n, width, subtract, &grouping, d->streaming);
    else {
        lmc__const_planes planes;
        for (p = 0; p < width; p++) {
            const lmc__side *const side = &sides.side[0][p];
            planes.row[p] = side->list;
            if (!side->list) {
                uint8_t *const list = lmc__push_list(&d->stack, n);
                LMC__CHECK(list, LMC_ERR_WORKSPACE);
                memset(list, side->value, n);
                planes.row[p] = list;
            }
        }
        *crc = d->k->join_root(d->k, dst, lmc__join_from(&planes, NULL, NULL, width, subtract), n,
                               d->streaming);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* The header of a block, after its CRC. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned width = 1u << (src[1] & 3), layout = src[1] >> 5, grouping = src[3];
    uint64_t size;
    LMC__CHECK((src[1] >> 3 & 3) != 3 && layout <= LMC__LAYOUT_QUANTISED && src[2] <= 1 &&
                   grouping < 0x80,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + 12);
    info->stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = src[2];
    info->base_crc = lmc__load32(src + 16);
    LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);
    size = (uint64_t)info->n * width;
    if (info->stored)
        LMC__CHECK(lmc__load32(src + 8) == size && (src[1] & 0x1C) == 0 && src[2] == 0 &&
                       grouping == 0,
                   LMC_ERR_CORRUPT);
    else LMC__CHECK(lmc__load32(src + 8) < size, LMC_ERR_CORRUPT);
    if (layout == LMC__LAYOUT_QUANTISED)
        LMC__CHECK((width == 2 || width == 4) && (src[1] & 0x1C) == 0 && grouping == 0,
                   LMC_ERR_CORRUPT);
    if (src[1] & 0x18)
        LMC__CHECK(width > 1 && src[2] == 0 && grouping == 0, LMC_ERR_CORRUPT); /* joint */
    LMC__CHECK(src[2] || ((grouping & 7) == 0 && info->base_crc == 0), LMC_ERR_CORRUPT);
    LMC__CHECK(grouping >> 4 == 0 ||
                   (grouping >> 4 < width && (grouping & 7) != 0 && (grouping & 8) == 0),
               LMC_ERR_CORRUPT);
    info->size = (size_t)size; /* at most 8 MiB */
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)lmc__load32(src + 8);
    return LMC_OK;
}

static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    uint8_t place[8];
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__CHECK(src[0] == LMC__BLOCK_SYNC, LMC_ERR_CORRUPT);
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    LMC__CHECK(k->crc32c(k->crc32c(0, place, 8), src, 20) == lmc__load32(src + 20),
               LMC_ERR_CHECKSUM);
    return lmc__parse_block_info(src, info);
}

LMC_API enum lmc_status lmc_read_block_info(const void *src, size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, position, &found));
    *info = found;
    return LMC_OK;
}

/* info was read from src, which has info->encoded_size bytes; dst has room for info->size; ws is
 * large enough. base: as many bytes; NULL where there is none. */
static enum lmc_status lmc__decode_block(const lmc__kernels *k, uint8_t *dst,
                                         lmc__streaming streaming, const uint8_t *src,
                                         const lmc_block_info *info, const uint8_t *base, void *ws,
                                         size_t ws_size)
{
    uint32_t crc;
    if (info->stored) {
        memcpy(dst, src + LMC_BLOCK_HEADER_SIZE, info->size);
        crc = k->crc32c(0, dst, info->size);
    } else {
        lmc__decoder d;
        d.k = k;
        d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
        d.in = src + LMC_BLOCK_HEADER_SIZE;
        d.end = src + info->encoded_size;
        d.streaming = streaming;
        if (info->has_prediction) LMC__CHECK(base, LMC_ERR_BASE_MISSING);
        if (src[1] >> 5 == LMC__LAYOUT_QUANTISED)
            LMC__TRY(lmc__get_quantised(&d, dst, info->has_prediction ? base : NULL, info, &crc));
        else if (info->has_prediction || src[3])
            LMC__TRY(lmc__get_classes(&d, dst, info->has_prediction ? base : NULL, info,
                                      src[1] >> 2 & 1, src[3], &crc));
        else
            LMC__TRY(lmc__get_planes(&d, dst, info->n, info->width, src[1] >> 2 & 1,
                                     src[1] >> 3 & 3, &crc));
    }
    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_decode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size, const void *prediction,
                                         size_t prediction_size, lmc_position position, void *ws,
                                         size_t ws_size)
{
    const lmc__kernels *k = lmc__get_kernels();
    const lmc__streaming off = {0, NULL, 0};
    lmc_block_info info;
    if (!dst || !dst_size || !src || !ws) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_block_info(k, (const uint8_t *)src, src_size, position, &info));
    LMC__CHECK(info.encoded_size <= src_size, LMC_ERR_TRUNCATED);
    LMC__CHECK(info.encoded_size == src_size, LMC_ERR_CORRUPT);
    if (info.size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    if (!lmc__is_workspace(ws_size, info.n)) return LMC_ERR_WORKSPACE;
    if (info.has_prediction) {
        LMC__CHECK(prediction, LMC_ERR_BASE_MISSING);
        LMC__CHECK(prediction_size == info.size, LMC_ERR_BASE_WRONG);
    }
    LMC__TRY(lmc__decode_block(k, (uint8_t *)dst, off, (const uint8_t *)src, &info,
                               (const uint8_t *)prediction, ws, ws_size));
    *dst_size = info.size;
    return LMC_OK;
}
