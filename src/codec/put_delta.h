#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "kernels/classes.h"
#include "kernels/group.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/put_list.h"
#include "codec/sample.h"
#include "codec/put_planes.h"

/* How to code a block against its prediction. */
typedef struct lmc__delta {
    lmc__grouping grouping;
    int subtract, sparse;
    uint64_t bits; /* that it takes, about */
    size_t worth;  /* bytes: if it turns out to take more, coding without the prediction may be
                      smaller */
} lmc__delta;

/* Classes: more of them make deltas smaller by 0 to 2 % and slower to decode by 10 to 20 %. */
#define LMC__DEFAULT_CLASSES 6u

/* Of each of the sample's runs, so many elements by default: classes by 2048 elements cost deltas
 * 0.2 to 0.5 % more than by all. */
#define LMC__DELTA_SAMPLE_RUN 16u

LMC__INLINE unsigned lmc__magnitude(uint64_t r)
{
    unsigned octave = 0;
    if (r < 16) return (unsigned)r;
#if defined(__GNUC__)
    octave = 63u - (unsigned)__builtin_clzll(r);
#else
    while (r >> octave > 1) octave++;
#endif
    return 16 + 2 * (octave - 4) + (unsigned)(r >> (octave - 1) & 1);
}

/* count * log2(count), by a table for the small ones. */
LMC__INLINE uint64_t lmc__count_log(const uint32_t logs[256], uint32_t count)
{
    return count < 256 ? logs[count] : (uint64_t)count * lmc__log2(count);
}

/* Bits that n elements of a class take, of which the sample's total had those counted: their
 * information without what lies within an octave, and a class's headers: two dozen bytes, and 6
 * bits for each of the 40 symbols or more that trees have. */
static uint64_t lmc__class_bits(const lmc__key_counts *counts, const uint32_t logs[256],
                                unsigned last, size_t n, size_t total)
{
    uint64_t bits = (uint64_t)counts->n * lmc__log2(counts->n ? counts->n : 1), magnitudes = 0;
    unsigned i, n_used = 0;
    for (i = 0; i <= last; i++) {
        magnitudes += lmc__count_log(logs, counts->magnitudes[i]);
        n_used += counts->magnitudes[i] != 0;
    }
    bits = bits > magnitudes ? bits - magnitudes : 0; /* at most 2^13 * 13 * 2^16 */
    return (bits * n / total >> 16) + 8 * 28 + 6 * (n_used < 40 ? 40 : n_used);
}

static void lmc__add_counts(lmc__key_counts *sum, const lmc__key_counts *counts, unsigned last)
{
    unsigned i;
    sum->n += counts->n;
    for (i = 0; i <= last; i++)
        sum->magnitudes[i] = (uint16_t)(sum->magnitudes[i] + counts->magnitudes[i]);
}

/* The classes for a sample of `total` elements of n: one for each key first, then neighbours are
 * merged that lose least by it, as long as that saves anything or there are too many classes. Sets
 * delta->grouping and delta->bits. */
static void lmc__choose_classes(lmc__scratch *scratch, lmc__delta *delta, const uint8_t *src,
                                const uint8_t *base, size_t total, size_t n, unsigned width,
                                int subtract, unsigned max_classes)
{
    lmc__key_counts *const keys = scratch->keys;
    uint64_t bits[256], saved[256],
        within = 0; /* of each class; by its merging with the next one (signed); within octaves */
    uint8_t first[256]; /* key of each class */
    uint32_t logs[256];
    unsigned n_classes = 0, last = 0, k, i;
    size_t at;
    for (k = 0; k < 256; k++) keys[k].n = 0;
    for (at = 0; at < total; at++) {
        const uint64_t b = lmc__load_element(base, at, width),
                       r = lmc__residual(lmc__load_element(src, at, width), b, width, subtract);
        const unsigned m = lmc__magnitude(r);
        lmc__key_counts *const counts = &keys[lmc__key(b, width)];
        if (counts->n++ == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        counts->magnitudes[m]++;
        if (m >= 16) within += (m - 16) / 2 + 3;
        if (m > last) last = m;
    }
    logs[0] = 0;
    for (i = 1; i < 256; i++) logs[i] = i * lmc__log2(i);
    for (k = 0; k < 256; k++) {
        if (keys[k].n == 0) continue;
        if (n_classes != k) keys[n_classes] = keys[k];
        first[n_classes] = (uint8_t)k;
        bits[n_classes] = lmc__class_bits(&keys[n_classes], logs, last, n, total);
        n_classes++;
    }
#define LMC__SAVING(c)                                                                             \
    (scratch->merged = keys[c], lmc__add_counts(&scratch->merged, &keys[(c) + 1], last),           \
     bits[c] + bits[(c) + 1] - lmc__class_bits(&scratch->merged, logs, last, n, total))
    for (i = 0; i + 1 < n_classes; i++) saved[i] = LMC__SAVING(i);
    while (n_classes > 1) {
        unsigned best = 0;
        for (i = 1; i + 1 < n_classes; i++)
            if ((int64_t)saved[i] > (int64_t)saved[best]) best = i;
        if ((int64_t)saved[best] < 0 && n_classes <= max_classes) break;
        bits[best] = bits[best] + bits[best + 1] - saved[best];
        lmc__add_counts(&keys[best], &keys[best + 1], last);
        n_classes--;
        for (i = best + 1; i < n_classes; i++) {
            keys[i] = keys[i + 1];
            first[i] = first[i + 1];
            bits[i] = bits[i + 1];
            saved[i - 1] = saved[i];
        }
        if (best + 1 < n_classes) saved[best] = LMC__SAVING(best);
        if (best > 0) saved[best - 1] = LMC__SAVING(best - 1);
    }
#undef LMC__SAVING
    delta->grouping.n_classes = n_classes;
    delta->grouping.n_natural = 0;
    for (i = 1; i < n_classes; i++) delta->grouping.threshold[i - 1] = first[i];
    delta->subtract = subtract;
    delta->bits = within * n / total;
    for (i = 0; i < n_classes; i++) delta->bits += bits[i];
}

/* Bits that n elements take without a prediction, by a sample of `total` of them: those of their
 * planes. */
static uint64_t lmc__estimate_direct(lmc__encoder *e, const lmc__planes *rows, const uint8_t *src,
                                     size_t total, size_t n, unsigned width, int rotate)
{
    uint64_t bits = 0;
    unsigned p;
    e->k->split(rows, src, total, width, rotate);
    for (p = 0; p < width; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows->row[p], total);
        bits += lmc__min64(8 * (uint64_t)total, lmc__entropy(counts, (uint32_t)total) +
                                                    (lmc__count_symbols(counts) - 1) * 6 / 8);
    }
    return bits * n / total;
}

enum lmc__verdict { LMC__DIRECT, LMC__DELTA, LMC__EITHER };

/* How to code n elements against their prediction, and whether. */
static enum lmc__verdict lmc__plan_delta(lmc__encoder *e, lmc__delta *delta, const uint8_t *src,
                                         const uint8_t *base, size_t n, unsigned width, int rotate,
                                         enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    /* two samples and their planes take three lists of width * total, and the workspace has ten of
     * n */
    const size_t run = level == LMC_LEVEL_MAX && n >= 4 * LMC__SAMPLE_SIZE ? LMC__SAMPLE_RUN
                                                                           : LMC__DELTA_SAMPLE_RUN,
                 size = run * width;
    const int is_sampled = n > LMC__SAMPLE_SIZE;
    const size_t total = is_sampled ? run * LMC__SAMPLE_RUNS : n;
    const unsigned max_classes = level == LMC_LEVEL_MAX ? LMC__MAX_CLASSES : LMC__DEFAULT_CLASSES;
    uint8_t *const sample = lmc__push_list(&e->stack, is_sampled ? total * width : 0);
    uint8_t *const base_sample = lmc__push_list(&e->stack, is_sampled ? total * width : 0);
    const uint8_t *s = src, *b = base;
    uint64_t direct;
    lmc__planes rows;
    size_t i, n_zero = 0;
    unsigned p;
    for (p = 0; p < width; p++) rows.row[p] = lmc__push_list(&e->stack, total);
    if (!sample || !base_sample || !rows.row[width - 1]) return LMC__DIRECT; /* cannot happen */
    if (is_sampled) {
        s = sample;
        b = base_sample;
        for (i = 0; i < LMC__SAMPLE_RUNS; i++) {
            const size_t at = lmc__sample_place((uint32_t)i, n) * width;
            if (i + LMC__SAMPLE_AHEAD < LMC__SAMPLE_RUNS) {
                const size_t next = lmc__sample_place((uint32_t)(i + LMC__SAMPLE_AHEAD), n) * width;
                LMC__PREFETCH(src + next);
                LMC__PREFETCH(base + next);
            }
            memcpy(sample + i * size, src + at, size);
            memcpy(base_sample + i * size, base + at, size);
        }
    }
    direct = lmc__estimate_direct(e, &rows, s, total, n, width, rotate);
    lmc__choose_classes(e->scratch, delta, s, b, total, n, width, rotate, max_classes);
    if (!rotate || level == LMC_LEVEL_MAX) {
        lmc__delta other;
        lmc__choose_classes(e->scratch, &other, s, b, total, n, width, !rotate, max_classes);
        if (other.bits < delta->bits) *delta = other;
    }
    /* planes of residuals that are hopeless, and how many are zero */
    for (i = 0; i < total; i++) {
        const uint64_t r = lmc__residual(lmc__load_element(s, i, width),
                                         lmc__load_element(b, i, width), width, delta->subtract);
        n_zero += r == 0;
        for (p = 0; p < width; p++) rows.row[p][i] = (uint8_t)(r >> 8 * p);
    }
    for (p = 0; p + 1 < width && delta->grouping.n_classes > 1; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows.row[p], total);
        if (!lmc__is_raw(counts, (uint32_t)total, 7)) break;
        delta->grouping.n_natural = p + 1;
    }
    /* Else every plane says again which elements are zero; of two bytes, only few have a second
     * one. */
    delta->sparse = width > 2 && n_zero > total / 2 && delta->grouping.n_natural == 0;
    e->stack.top = top;
    delta->worth = (size_t)((direct - direct / 8) / 8);
    if (level == LMC_LEVEL_MAX)
        return LMC__EITHER; /* whatever the sample says: never larger than without the prediction */
    if (delta->bits > direct + direct / 8) return LMC__DIRECT;
    return delta->bits < direct - direct / 8 ? LMC__DELTA : LMC__EITHER;
}

/* The residuals' lists; *counts: elements of each. If sparse, only those that are not zero, and
 * masks say which (to masks[c], lists). Returns the CRC of src. */
static uint32_t lmc__make_classes(lmc__encoder *e, const lmc__delta *delta,
                                  const lmc__classes *classes,
                                  uint8_t *const masks[LMC__MAX_CLASSES],
                                  size_t counts[LMC__MAX_CLASSES],
                                  const size_t n_of[LMC__MAX_CLASSES], const uint8_t *src,
                                  const uint8_t *base, size_t n, unsigned width)
{
    const uint32_t crc =
        e->k->group(e->k, classes, src, base, n, width, delta->subtract, &delta->grouping);
    unsigned c, p;
    for (c = 0; c < delta->grouping.n_classes; c++) {
        uint8_t *const mask = masks[c], *const *const row = classes->row[c];
        size_t at, i, m = 0;
        counts[c] = n_of[c];
        if (!delta->sparse) continue;
        memset(mask, 0, (n_of[c] + 7) / 8);
        for (i = 0; i < n_of[c]; i += 8) {
            const unsigned in_byte = (unsigned)lmc__min(8, n_of[c] - i);
            unsigned bits = 0;
            for (at = 0; at < in_byte; at++) {
                unsigned any = 0;
                for (p = 0; p < width; p++) any |= row[p][i + at];
                if (!any) continue;
                bits |= 1u << at;
                for (p = 0; p < width; p++) row[p][m] = row[p][i + at];
                m++;
            }
            mask[i / 8] = (uint8_t)bits;
        }
        counts[c] = m;
    }
    return crc;
}

/* How to code a list of n bytes: by a sample of it, or at level max by all of it. */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, enum lmc_level level)
{
    uint32_t *const counts = e->scratch->counts[0];
    uint8_t *const top = e->stack.top, *sample = NULL;
    enum lmc__choice choice;
    size_t total = n;
    if (level != LMC_LEVEL_MAX && n > 2 * LMC__SAMPLE_SIZE)
        sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) { /* gathered, for counting begins and ends with eight tables */
        uint32_t i;
        for (i = 0; i < LMC__SAMPLE_RUNS; i++)
            memcpy(sample + i * LMC__SAMPLE_RUN, list + lmc__sample_place(i, n), LMC__SAMPLE_RUN);
        total = LMC__SAMPLE_SIZE;
    }
    memset(counts, 0, sizeof e->scratch->counts[0]);
    lmc__count_bytes(counts, sample ? sample : list, total);
    e->stack.top = top;
    choice = lmc__choose_plane(plan, counts, (uint32_t)total, n);
    if (choice == LMC__CHOOSE_TREE && plan->bits >= 8 * (uint64_t)n)
        choice = LMC__CHOOSE_RAW; /* short lists: by its header */
    return choice;
}

/* The payload of a block against its prediction, if it is smaller than size bytes and than cap;
 * else 0. */
static size_t lmc__put_delta(lmc__encoder *e, uint8_t *dst, size_t cap, const uint8_t *src,
                             const uint8_t *base, size_t n, unsigned width, const lmc__delta *delta,
                             enum lmc_level level, lmc__block_crcs *crcs)
{
    const unsigned n_classes = delta->grouping.n_classes, n_natural = delta->grouping.n_natural;
    uint8_t *const spare = lmc__push_list(&e->stack, n), *masks[LMC__MAX_CLASSES] = {NULL};
    size_t n_of[LMC__MAX_CLASSES], counts[LMC__MAX_CLASSES];
    lmc__plan *const plan = &e->scratch->plans[0];
    lmc__classes classes;
    unsigned c, p;
    if (!spare) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    if (n_classes - 1 + n_natural * n > (size_t)(e->end - e->out)) return 0;
    memcpy(e->out, delta->grouping.threshold, n_classes - 1);
    e->out += n_classes - 1;
    crcs->base = e->k->count_classes(e->k, n_of, base, n, width, &delta->grouping);
    for (c = 0; c < n_classes; c++) {
        for (p = n_natural; p < width; p++)
            if ((classes.row[c][p] = lmc__push_list(&e->stack, n_of[c])) == NULL) return 0;
        if (delta->sparse && (masks[c] = lmc__push_list(&e->stack, (n_of[c] + 7) / 8)) == NULL)
            return 0;
    }
    for (p = 0; p < n_natural; p++, e->out += n)
        classes.row[0][p] = e->out; /* natural planes are made in their place */
    crcs->content = lmc__make_classes(e, delta, &classes, masks, counts, n_of, src, base, n, width);
    for (c = 0; c < n_classes && delta->sparse; c++)
        if (n_of[c] != 0 && !lmc__put_list_mask(e, 0, masks[c], n_of[c], counts[c])) return 0;
    for (c = 0; c < n_classes; c++) {
        const size_t m = counts[c];
        if (m == 0) continue;
        for (p = n_natural; p < width; p++) {
            uint8_t *const start = e->out, *const end = e->end, *const row = classes.row[c][p];
            const enum lmc__choice choice = lmc__choose_list(e, plan, row, m, level);
            if ((choice == LMC__CHOOSE_CONSTANT || plan->is_one_symbol) &&
                e->k->is_constant(row, m)) {
                if (end - start < 2) return 0;
                start[0] = LMC__PLANE_CONSTANT;
                start[1] = row[0];
                e->out += 2;
                continue;
            }
            if (choice == LMC__CHOOSE_TREE) {
                int fits;
                if ((size_t)(end - start) > m) e->end = start + m; /* longer than raw is no use */
                fits = lmc__put_tree(e, plan, row, spare, m);
                e->end = end;
                if (fits) continue;
                e->out = start;
                (void)lmc__make_classes(e, delta, &classes, masks, counts, n_of, src, base, n,
                                        width); /* rare: the row was overwritten */
            }
            if ((size_t)(end - start) < m + 1) return 0;
            start[0] = LMC__PLANE_RAW;
            memcpy(start + 1, row, m);
            e->out += m + 1;
        }
    }
    return (size_t)(e->out - dst);
}
