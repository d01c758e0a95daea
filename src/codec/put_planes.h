#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/put_list.h"
#include "codec/sample.h"

/* What a block is checked against. */
typedef struct lmc__block_crcs {
    uint32_t content, base;
} lmc__block_crcs;

static void lmc__put_block_header(uint8_t *dst, unsigned coding, unsigned prediction,
                                  unsigned grouping, size_t n, size_t payload_size,
                                  lmc__block_crcs crcs, const lmc__kernels *k,
                                  lmc_position position)
{
    uint8_t place[8];
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)coding;
    dst[2] = (uint8_t)prediction;
    dst[3] = (uint8_t)grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)payload_size);
    lmc__store32(dst + 12, crcs.content);
    lmc__store32(dst + 16, crcs.base);
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    lmc__store32(dst + 20, k->crc32c(k->crc32c(0, place, 8), dst, 20));
}

static unsigned lmc__log2_width(unsigned width)
{
    return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

/* counts[0][v] = number of elements whose 10 top bits, after the rotation, are v. Four tables, as
 * for bytes. */
static void lmc__count_wide(uint32_t counts[4][1024], const uint8_t *src, size_t n, unsigned width,
                            int rotate)
{
    const unsigned shift = rotate ? 5 : 6;
    size_t i;
    memset(counts, 0, 4 * sizeof counts[0]);
    src += width - 2; /* the two top bytes: the bit that a rotation brings to their lower end is not
                         looked at */
    for (i = 0; i + 4 <= n; i += 4, src += 4 * width) {
        counts[0][lmc__load16(src) >> shift & 1023]++;
        counts[1][lmc__load16(src + width) >> shift & 1023]++;
        counts[2][lmc__load16(src + 2 * width) >> shift & 1023]++;
        counts[3][lmc__load16(src + 3 * width) >> shift & 1023]++;
    }
    for (; i < n; i++, src += width) counts[0][lmc__load16(src) >> shift & 1023]++;
    for (i = 0; i < 1024; i++) counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
}

/* Counts of the symbols with `extra` extra bits, less *offset, the lowest that occurs (0 if extra
 * is 0), from those with two. Returns 0 if they are not within 256. */
static int lmc__narrow_counts(uint32_t counts[256], unsigned *offset, const uint32_t wide[1024],
                              unsigned extra)
{
    const unsigned shift = 2 - extra;
    unsigned v, first = 0;
    memset(counts, 0, 256 * sizeof counts[0]);
    if (extra)
        while (wide[first] == 0) first++;
    first >>= shift;
    *offset = first;
    for (v = first << shift; v < 1024; v++) {
        if (wide[v] == 0) continue;
        if ((v >> shift) - first >= 256) return 0;
        counts[(v >> shift) - first] += wide[v];
    }
    return 1;
}

/* Joint coding of the two top planes (spec 7.4), where it takes fewer bits than the plans for them
 * say: then it changes those of the top plane. It pays where the mantissa's top bits depend on the
 * exponent: in the highest octaves of a bell curve, low values are more frequent than high ones.
 * scratch->wide: of lmc__count_wide. */
static void lmc__choose_joint(lmc__joint *joint, enum lmc__choice choice[8], lmc__scratch *scratch,
                              size_t n, unsigned width)
{
    const unsigned top = width - 1;
    uint64_t best = scratch->plans[top].bits + scratch->plans[top - 1].bits;
    unsigned extra, offset;
    for (extra = 1; extra <= 2; extra++) {
        lmc__plan *const plan = &scratch->joint_plan;
        uint64_t bits;
        if (!lmc__narrow_counts(scratch->counts[top], &offset, scratch->wide[0], extra)) return;
        if (lmc__choose_plane(plan, scratch->counts[top], (uint32_t)n, n) != LMC__CHOOSE_TREE)
            continue;
        bits = plan->bits + (8 - extra) * (uint64_t)n;
        if (bits >= best) continue;
        /* It must fit: with a header, and two bytes for each leaf, for a mask's mode and the last
         * of its bits. Else blocks of some hundred elements could end up stored. */
        if (plan->bits + 8 * (3 + 2 * (uint64_t)(plan->last - plan->first + 2)) > 8 * (uint64_t)n)
            continue;
        best = bits;
        lmc__set_joint(joint, extra, offset, n);
        scratch->plans[top] = *plan;
        choice[top] = LMC__CHOOSE_TREE;
        choice[top - 1] = LMC__CHOOSE_PACKED;
    }
}

/* Half of the sample is enough for so many different bytes: the codes of more depend on luck. */
#define LMC__SAMPLE_HALF_BELOW 32u

/* How to code each plane, by a sample; at LMC_LEVEL_MAX the top plane, which has most to gain, is
 * counted exactly. Returns 0 if there is no room for that, which cannot happen. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], const uint8_t *src,
                              size_t n, unsigned width, int rotate, enum lmc_level level,
                              lmc__joint *joint)
{
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, half, all;
    unsigned p, wants_all = 0;
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    half = lmc__take_sample(e->k, &sample, 0, 2, src, width, rotate);
    quarter = sample.n < n ? half / 2 : half;
    for (p = 0; p < width; p++) { /* most raw planes are found out by a quarter */
        e->scratch->plans[p].bits = 8 * (uint64_t)n;
        lmc__count_bytes(counts[p], sample.planes.row[p], quarter);
        choice[p] =
            lmc__is_raw(counts[p], (uint32_t)quarter, 7) ? LMC__CHOOSE_RAW : LMC__CHOOSE_TREE;
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        lmc__count_bytes(counts[p], sample.planes.row[p] + quarter, half - quarter);
        if (lmc__count_symbols(counts[p]) > LMC__SAMPLE_HALF_BELOW) wants_all |= 1u << p;
    }
    all = half + (wants_all ? lmc__take_sample(e->k, &sample, 2, 4, src, width, rotate) : 0);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + half, all - half);
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p],
                                      (uint32_t)(has_all ? all : half), n);
    }
    e->stack.top = top;
    if (level == LMC_LEVEL_MAX) {
        if (width == 1) { /* not rotated */
            memset(counts[0], 0, sizeof counts[0]);
            lmc__count_bytes(counts[0], src, n);
        } else {
            lmc__count_wide(e->scratch->wide, src, n, width, rotate);
            lmc__narrow_counts(counts[width - 1], &joint->offset, e->scratch->wide[0], 0);
        }
        choice[width - 1] =
            lmc__choose_plane(&e->scratch->plans[width - 1], counts[width - 1], (uint32_t)n, n);
        if (width > 1) lmc__choose_joint(joint, choice, e->scratch, n, width);
    }
    return 1;
}

/* The payload of a block in layout planes, if it is smaller than size bytes and than cap; else 0.
 * *crc, if that becomes known, and *has_crc is set. */
static size_t lmc__put_planes(lmc__encoder *e, uint8_t *dst, size_t cap, const uint8_t *src,
                              size_t n, unsigned width, int rotate, enum lmc_level level,
                              lmc__joint *joint, uint32_t *crc, int *has_crc)
{
    const size_t size = n * width;
    enum lmc__choice choice[8];
    lmc__planes planes;
    lmc__plan *const plans = e->scratch->plans;
    uint8_t *const spare = lmc__push_list(&e->stack, n), *root_spare = NULL;
    lmc__parted root; /* the topmost plane, if it is a tree */
    unsigned p, n_raw = 0, n_leading = 0;
    int has_root = 0;

    root.plane = width - 1;
    if (spare == NULL || !lmc__choose_planes(e, choice, src, n, width, rotate, level, joint))
        return 0;
    for (p = 0; p < width; p++) {
        if (choice[p] == LMC__CHOOSE_RAW) n_raw++;
        if (choice[p] == LMC__CHOOSE_RAW && n_leading == p) n_leading++;
    }
    if (n_raw == width) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, size - 1);
    if (joint->extra) {
        if (e->end - e->out < 2) return 0;
        lmc__store16(e->out, (uint16_t)joint->offset);
        e->out += 2;
    }
    if (n_leading * (n + 1) > (size_t)(e->end - e->out)) return 0;
    for (p = 0; p < width; p++) { /* leading raw planes have a place in dst already */
        planes.row[p] = p < n_leading ? e->out + p * (n + 1) + 1 : lmc__push_list(&e->stack, n);
        if (planes.row[p] == NULL) return 0;
    }
    if (choice[width - 1] == LMC__CHOOSE_TREE && !joint->extra && !plans[width - 1].is_one_symbol) {
        lmc__tree *tree = &e->scratch->root_tree;
        if (lmc__tree_set_plan(tree, &plans[width - 1]) &&
            !lmc__tree_flat_depth(tree, 0, tree->n_leaves, 0)) {
            lmc__split split;
            lmc__set_split(tree, 0, 0, 0, tree->n_leaves, &split);
            root.table = tree->rank;
            root.split = split.middle;
            root.mask = lmc__push_list(&e->stack, (n + 7) / 8);
            root.left = split.is_left_leaf ? NULL : planes.row[width - 1];
            root.right = root_spare = lmc__push_list(&e->stack, n);
            if (split.is_right_leaf) root.right = NULL;
            if (root.mask == NULL || root_spare == NULL) return 0;
            has_root = 1;
        }
    }
    *crc = e->k->split_root(e->k, &planes, has_root ? &root : NULL, src, n, width, rotate);
    *has_crc = 1;
    for (p = 0; p < width; p++) {
        uint8_t *const start = e->out, *const end = e->end;
        if (p < n_leading) {
            start[0] = LMC__PLANE_RAW;
            e->out += n + 1;
            continue;
        }
        if (choice[p] == LMC__CHOOSE_PACKED) { /* and the top plane's row becomes its symbols */
            if ((size_t)(end - start) < joint->packed_size) return 0;
            memset(start, 0, joint->packed_size);
            e->k->fold(planes.row[p + 1], start, planes.row[p + 1], planes.row[p], n, joint);
            e->out += joint->packed_size;
            continue;
        }
        if ((choice[p] == LMC__CHOOSE_CONSTANT ||
             (choice[p] == LMC__CHOOSE_TREE && plans[p].is_one_symbol)) &&
            e->k->is_constant(planes.row[p], n)) {
            if (end - start < 2) return 0;
            start[0] = LMC__PLANE_CONSTANT;
            start[1] = planes.row[p][0];
            e->out += 2;
            continue;
        }
        if (choice[p] == LMC__CHOOSE_TREE) {
            int fits;
            if ((size_t)(end - start) > n) e->end = start + n; /* longer than raw is no use */
            fits = has_root && p == root.plane
                       ? lmc__put_root(e, &plans[p], &root, planes.row[p], root_spare, n)
                       : lmc__put_tree(e, &plans[p], planes.row[p], spare, n);
            e->end = end;
            if (fits) continue;
            if (joint->extra && p == width - 1)
                return 0; /* see lmc__choose_joint: dst is too small */
            e->out = start;
            if (p == root.plane) has_root = 0;
            (void)e->k->split_root(e->k, &planes, has_root ? &root : NULL, src, n, width,
                                   rotate); /* rare: the row was overwritten, make it again */
        }
        if ((size_t)(end - start) < n + 1) return 0;
        start[0] = LMC__PLANE_RAW;
        memcpy(start + 1, planes.row[p], n);
        e->out += n + 1;
    }
    return (size_t)(e->out - dst);
}
