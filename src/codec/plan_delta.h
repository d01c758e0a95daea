#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "kernels/split_join.h"
#include "kernels/classes.h"
#include "kernels/group.h"
#include "kernels/changes.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"

/* Chooses, by a sample, whether and how to code a block against its prediction (spec 5.2).
 *
 * An element is coded as its *residual*: its distance from the prediction, counted in floats or
 * integers. A residual's size depends on the prediction's exponent, the *key*: weights change by
 * similar absolute amounts, and small floats are closer to each other. So elements are sorted into
 * *classes*, ranges of the key, and each class has its own trees. The decoder has the prediction,
 * so it can compute each element's class.
 *
 * At first each key is a class; then neighbours are merged. A merge saves the headers of a class,
 * and costs bits because the two distributions differ. The size of a class is estimated from its
 * residuals' *magnitudes*: small residuals are counted one by one, others by half octaves. The
 * other bits are noise, which takes the same space with any classes. */

#ifndef LMC_NO_ENCODER
/* A list of the changed elements, if they are few. Then the block is coded from this list alone. */
typedef struct lmc__changes {
    lmc__changed list; /* place is NULL: there is no list */
    size_t n;
    uint32_t crc; /* of all elements, if there is a list */
} lmc__changes;

/* A block that has only the changed elements of a block. */
static lmc__block lmc__changed_block(const lmc__block *block, const lmc__changes *changes)
{
    lmc__block changed = *block;
    changed.src = changes->list.now;
    changed.base = changes->list.before;
    changed.n = changes->n;
    return changed;
}

/* How to code a block against its prediction. */
typedef struct lmc__delta {
    lmc__changes changes;
    lmc__grouping grouping;
    enum lmc__order order;
    int sparse;      /* a mask says which elements have changed; only these are coded */
    uint64_t bits;   /* of the delta, estimated */
    uint64_t direct; /* the same without the prediction */
    size_t border;   /* bytes: if it is larger, coding without the prediction may be better */
} lmc__delta;

/* More classes than in lmc__effort make deltas that are not sparse a little smaller, but each class
 * takes time to decode. Levels FAST and DEFAULT add a class if at most a fifth of the elements has
 * changed. If the limit is then LMC__DEFAULT_CLASSES, one more class is used if it saves
 * 1/LMC__MORE_SAVING of the bits. In a sparse delta each class must save 1/2048 of the bits, or
 * 1/256 if the delta takes more than n / 16 bits. */
#define LMC__MORE_CLASSES 7u
#define LMC__MORE_SAVING 108u
#define LMC__DEFAULT_CLASSES 6u

/* Changes are listed if at most n / LMC__SPARSE_ONE_IN elements have changed. */
#define LMC__SPARSE_ONE_IN 20u

/* Elements in each run of the sample, by default: half as many as in other samples, because this is
 * faster and hardly makes deltas larger. Blocks below 32768 elements have runs of half this size:
 * they have no more room. */
#define LMC__DELTA_SAMPLE_RUN 32u

/* The bucket of a residual, a signed number that is folded to 0, 1, 2 ... Most residuals are below
 * 16, and each of these has its own bucket. Above, each octave has two buckets. Below 256 the
 * bucket comes from a table, which is faster than finding the octave. */
LMC__INLINE unsigned lmc__magnitude(uint64_t residual)
{
    static const uint8_t buckets[32] = {0,  0,  16, 17, 18, 18, 19, 19, 20, 20, 20,
                                        20, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22,
                                        22, 22, 23, 23, 23, 23, 23, 23, 23, 23};
    unsigned octave = 8;
    if (residual < 256) return residual < 16 ? (unsigned)residual : buckets[residual / 8];
#if defined(__GNUC__)
    octave = 63u - (unsigned)__builtin_clzll(residual);
#else
    while (residual >> octave > 1) octave++;
#endif
    return 16 + 2 * octave - 8 + (unsigned)(residual >> (octave - 1) & 1);
}

/* Classes while they are merged, from one for each key to a few.
 *
 *     keys       112 113 114 115 116 117 118      those that occur in the sample
 *     classes     0   1   2   3   4   5   6       at first
 *     classes     0   .   .   1   .   2   .       in the end; first keys 112, 115, 117 */
typedef struct lmc__merging {
    lmc__key_counts *classes; /* scratch->keys: of each class */
    lmc__key_counts *merged;  /* scratch->merged */
    unsigned n_classes;
    unsigned last;   /* the highest magnitude */
    int sparse;      /* all changed elements are counted, and only these are coded */
    unsigned width;  /* bytes of an element */
    size_t n, total; /* elements of the block; counted elements */
    uint64_t within; /* bits of counted residuals within half octaves */
} lmc__merging;

/* Bits of a class in a sparse delta: positions of its k changed elements among its n elements,
 * their residuals, and its threshold.
 *
 * Positions take n h(k / n) bits, where h is the binary entropy. This is computed as
 * k log2(n / k) + (k - k^2 / 2n) / ln 2: less than a thousandth too large for k < n / 8. With
 * n log n - (n - k) log (n - k) the rounding of logarithms would matter. A class without changes
 * counts 8 bytes, and n / 512 bits for its nested mask.
 *
 * The residuals' lowest plane is raw or a tree; in the planes above, only n_high elements are not
 * zero. */
static uint64_t lmc__sparse_class_bits(const lmc__merging *m, const lmc__key_counts *counts)
{
    const uint32_t n = counts->n, k = n - counts->magnitudes[0];
    const uint64_t raw = 8 + 8 * (uint64_t)k;
    uint64_t places, coded = (uint64_t)k * lmc__log2(k ? k : 1), within = 0;
    uint32_t n_high = 0;
    unsigned i, last = 1;
    if (k == 0) return 8 * 8 + n / 512;
    places = (uint64_t)k * (lmc__log2(n) - lmc__log2(k)) + (uint64_t)k * 94548 -
             (uint64_t)k * k / n * 47274;
    for (i = 1; i <= m->last; i++) {
        const uint32_t count = counts->magnitudes[i];
        if (count == 0) continue;
        last = i;
        coded -= lmc__min64(coded, (uint64_t)count * lmc__log2(count));
        if (i >= 24) n_high += count;
        if (i >= 16) within += (uint64_t)count * (i < 24 ? (i - 16) / 2 + 3 : 8);
    }
    coded = (coded >> 16) + within + 32 + 4 * (last < 16 ? last : 24);
    return ((places + places / 128) >> 16) + 8 * 6 + lmc__min64(raw, coded) +
           (m->width - 1) * (16 + lmc__min64(raw, 12 * (uint64_t)n_high));
}

/* Bits of a class with k counted elements, in the whole block: the entropy k log k - sum of c log c
 * of its magnitudes' counts c, times n / total; 28 bytes for headers; 6 bits for each symbol, of
 * which at least 40 are assumed. */
static uint64_t lmc__class_bits(const lmc__merging *m, const lmc__key_counts *counts)
{
    uint64_t bits = (uint64_t)counts->n * lmc__log2(counts->n ? counts->n : 1), magnitudes = 0;
    unsigned i, n_used = 0;
    if (m->sparse) return lmc__sparse_class_bits(m, counts);
    for (i = 0; i <= m->last; i++) {
        const uint32_t count = counts->magnitudes[i];
        if (count == 0) continue;
        magnitudes += (uint64_t)count * lmc__log2(count);
        n_used++;
    }
    bits = bits > magnitudes ? bits - magnitudes : 0; /* at most 2^13 * 13 * 2^16 */
    return (bits * m->n / m->total >> 16) + 8 * 28 + 6 * (n_used < 40 ? 40 : n_used);
}

/* Adds a class's counts to those of another class. */
static void lmc__add_counts(lmc__key_counts *sum, const lmc__key_counts *counts, unsigned last)
{
    unsigned i;
    sum->n += counts->n;
    for (i = 0; i <= last; i++) sum->magnitudes[i] += counts->magnitudes[i];
}

/* Bits saved by merging class c with the next class; negative if that costs bits. */
static int64_t lmc__saved_by_merging(const lmc__merging *m, unsigned c)
{
    memcpy(m->merged, &m->classes[c],
           offsetof(lmc__key_counts, magnitudes) + (m->last + 1) * sizeof m->merged->magnitudes[0]);
    lmc__add_counts(m->merged, &m->classes[c + 1], m->last);
    return (int64_t)(m->classes[c].bits + m->classes[c + 1].bits - lmc__class_bits(m, m->merged));
}

/* Does lmc__count_keys for one constant width. Returns the bitwise or of all residuals. */
LMC__INLINE uint64_t lmc__count_keys_of(lmc__merging *m, const lmc__block *sample, unsigned width)
{
    lmc__key_counts *const classes = m->classes;
    const uint8_t *const src = sample->src, *const base = sample->base;
    const enum lmc__order order = sample->order;
    const size_t n = sample->n;
    uint64_t all = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t b = lmc__load_element(base, i, width);
        const uint64_t residual = lmc__residual(lmc__load_element(src, i, width), b, width, order);
        lmc__key_counts *const counts = &classes[lmc__key(b, width)];
        if (counts->n++ == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        counts->magnitudes[lmc__magnitude(residual)]++;
        all |= residual;
    }
    return all;
}

/* Counts the residuals of a sample by key and magnitude. Returns how many residuals are zero. */
static size_t lmc__count_keys(lmc__merging *m, const lmc__block *sample)
{
    const unsigned width = sample->width;
    uint64_t all;
    size_t n_equal = 0;
    unsigned key, i;
    m->total = sample->n;
    m->width = width;
    m->within = 0;
    for (key = 0; key < 256; key++) m->classes[key].n = 0;
    LMC__FOR_WIDTH(all = lmc__count_keys_of(m, sample, w));
    m->last = lmc__magnitude(all);
    for (key = 0; key < 256; key++) {
        const lmc__key_counts *const counts = &m->classes[key];
        if (counts->n == 0) continue;
        n_equal += counts->magnitudes[0];
        for (i = 16; i <= m->last; i++)
            m->within += (uint64_t)counts->magnitudes[i] * ((i - 16) / 2 + 3);
    }
    return n_equal;
}

/* Counts all changed elements of a sparse block, instead of those in its sample. The number of
 * elements with each key is still estimated by the sample. */
static void lmc__count_changes(lmc__merging *m, const lmc__block *changed)
{
    uint32_t n_of[256];
    unsigned key;
    for (key = 0; key < 256; key++)
        n_of[key] = (uint32_t)((uint64_t)m->classes[key].n * m->n / m->total);
    (void)lmc__count_keys(m, changed);
    for (key = 0; key < 256; key++) {
        lmc__key_counts *const counts = &m->classes[key];
        const uint32_t n_changed = counts->n;
        if (n_changed == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        if (n_of[key] > n_changed) counts->n = n_of[key];
        counts->magnitudes[0] = counts->n - n_changed;
    }
    m->total = m->n;
    m->within = 0; /* lmc__sparse_class_bits counts these bits */
}

/* Merges class c with the next class, and closes the gap in the array. Then computes what merging c
 * with its new neighbours would save. */
static void lmc__merge_classes(lmc__merging *m, unsigned c)
{
    lmc__key_counts *const merged = &m->classes[c], *const next = merged + 1;
    merged->bits = merged->bits + next->bits - (uint64_t)merged->saved;
    lmc__add_counts(merged, next, m->last);
    m->n_classes--;
    memmove(next, next + 1, (m->n_classes - c - 1) * sizeof *next);
    if (c + 1 < m->n_classes) merged->saved = lmc__saved_by_merging(m, c);
    if (c > 0) merged[-1].saved = lmc__saved_by_merging(m, c - 1);
}

/* Finds the best way to merge a few classes to at most `most`, by dynamic programming. Sets their
 * new number and first keys; returns the bits of all classes. Each class above max_classes must
 * save 1/LMC__MORE_SAVING of the bits; in a sparse delta each class must save something.
 *
 *     cost[i][j]     of classes i .. j as one class
 *     best[k][j]     of classes 0 .. j as k + 1 classes, the last of which begins at from[k][j] */
#define LMC__FEW_CLASSES 12u
static uint64_t lmc__cut_classes(lmc__merging *m, unsigned max_classes, unsigned most)
{
    uint64_t cost[LMC__FEW_CLASSES][LMC__FEW_CLASSES], best[LMC__FEW_CLASSES][LMC__FEW_CLASSES];
    uint8_t from[LMC__FEW_CLASSES][LMC__FEW_CLASSES], begin[LMC__FEW_CLASSES];
    const unsigned n = m->n_classes;
    unsigned i, j, k, chosen = 0;
    for (i = 0; i < n; i++) {
        memcpy(m->merged, &m->classes[i], sizeof *m->merged);
        cost[i][i] = m->classes[i].bits;
        for (j = i + 1; j < n; j++) {
            lmc__add_counts(m->merged, &m->classes[j], m->last);
            cost[i][j] = lmc__class_bits(m, m->merged);
        }
    }
    for (j = 0; j < n; j++) {
        best[0][j] = cost[0][j];
        from[0][j] = 0;
    }
    for (k = 1; k < n && k < most; k++) {
        uint64_t bits, least = 0;
        for (j = k; j < n; j++) {
            best[k][j] = UINT64_MAX;
            for (i = k; i <= j; i++) {
                bits = best[k - 1][i - 1] + cost[i][j];
                if (bits >= best[k][j]) continue;
                best[k][j] = bits;
                from[k][j] = (uint8_t)i;
            }
        }
        bits = best[k][n - 1];
        if (m->sparse) least = bits >> (bits > m->n / 16 ? 8 : 11);
        else if (k >= max_classes) least = bits / LMC__MORE_SAVING;
        if (bits + (k - chosen) * least < best[chosen][n - 1]) chosen = k;
    }
    m->n_classes = chosen + 1;
    for (k = chosen + 1, j = n - 1; k-- > 0; j = begin[k] - 1u) begin[k] = from[k][j];
    for (k = 0; k <= chosen; k++) m->classes[k].first_key = m->classes[begin[k]].first_key;
    return best[chosen][n - 1];
}

/* Finds the best classes. m->classes: counts by key of a sample in which n_equal residuals are
 * zero. Sets all members of delta except changes, direct and border.
 *
 * While more than LMC__FEW_CLASSES are left, it merges the two neighbours whose merge saves most or
 * costs least: at most 255 merges, of O(LMC__MAGNITUDES) each. Then it calls lmc__cut_classes. The
 * first class begins at key 0, so only the others have thresholds (spec 5.2). */
static void lmc__choose_classes(lmc__merging *m, lmc__delta *delta, const lmc__block *block,
                                size_t n_equal)
{
    const lmc__changes *const changes = &delta->changes;
    unsigned max_classes = block->may_group ? lmc__get_effort(block->level)->max_classes : 1u, most,
             key, i;
    m->sparse = changes->list.place != NULL;
    if (m->sparse) {
        const lmc__block changed = lmc__changed_block(block, changes);
        lmc__count_changes(m, &changed);
        max_classes = changes->n ? LMC__MAX_CLASSES : 1;
    } else if (block->may_group && n_equal * 5 >= m->total * 4 &&
               max_classes <= LMC__DEFAULT_CLASSES)
        max_classes++;
    most =
        block->may_group && max_classes == LMC__DEFAULT_CLASSES ? LMC__MORE_CLASSES : max_classes;
    for (key = 0, m->n_classes = 0; key < 256; key++) {
        if (m->classes[key].n == 0) continue;
        m->classes[key].first_key = (uint8_t)key;
        m->classes[key].bits = lmc__class_bits(m, &m->classes[key]);
        if (m->n_classes != key) m->classes[m->n_classes] = m->classes[key];
        m->n_classes++;
    }
    for (i = 0; i + 1 < m->n_classes; i++) m->classes[i].saved = lmc__saved_by_merging(m, i);
    while (m->n_classes > LMC__FEW_CLASSES) {
        unsigned best = 0;
        for (i = 1; i + 1 < m->n_classes; i++)
            if (m->classes[i].saved > m->classes[best].saved) best = i;
        lmc__merge_classes(m, best);
    }
    delta->bits = m->within * m->n / m->total + lmc__cut_classes(m, max_classes, most);
    delta->grouping.n_classes = m->n_classes;
    delta->grouping.n_natural = 0;
    for (i = 1; i < m->n_classes; i++) delta->grouping.threshold[i - 1] = m->classes[i].first_key;
    delta->order = block->order;
    delta->sparse = m->sparse && changes->n > 0;
}

/* Estimates the bits of a block of n elements without a prediction. rows: lists for the planes. The
 * delta's estimate uses the same sample, so both have similar errors. */
static uint64_t lmc__estimate_direct(lmc__encoder *e, const lmc__planes *rows,
                                     const lmc__block *sample, size_t n)
{
    const size_t total = sample->n;
    uint64_t bits = 0;
    unsigned p;
    e->k->split(rows, sample->src, total, sample->width, sample->own);
    for (p = 0; p < sample->width; p++) {
        const uint32_t *const counts = lmc__count_list(e, rows->row[p], total);
        bits += lmc__estimate_plane(counts, total);
    }
    return bits * n / total;
}

/* Takes a sample of a block and of its prediction. A block of up to 8192 elements is its own
 * sample. Returns 0 if there is no room, which cannot happen (workspace.h). */
static int lmc__take_pairs(lmc__encoder *e, lmc__block *sample, const lmc__block *block)
{
    const size_t n = block->n;
    const size_t run = n < 4 * LMC__SAMPLE_SIZE        ? LMC__DELTA_SAMPLE_RUN / 2
                       : block->level >= LMC_LEVEL_MAX ? LMC__SAMPLE_RUN
                                                       : LMC__DELTA_SAMPLE_RUN;
    uint8_t *src, *base;
    *sample = *block;
    if (n <= LMC__SAMPLE_SIZE) return 1;
    sample->n = run * LMC__SAMPLE_RUNS;
    src = lmc__push_list(&e->stack, sample->n * block->width);
    base = lmc__push_list(&e->stack, sample->n * block->width);
    if (!src || !base) return 0;
    lmc__gather_runs(src, block->src, n, block->width, run, 0, 4);
    lmc__gather_runs(base, block->base, n, block->width, run, 0, 4);
    sample->src = src;
    sample->base = base;
    return 1;
}

/* Used for elements of 4 or 8 bytes if the changes are not listed. If most residuals are zero, the
 * delta is sparse: a mask says which elements have changed. Else the lowest planes become natural
 * planes, which are not grouped, if they are noise even with the prediction: grouping would save
 * nothing. */
static void lmc__choose_layout(lmc__encoder *e, lmc__delta *delta, const lmc__planes *rows,
                               const lmc__block *sample, size_t n_equal)
{
    const unsigned width = sample->width;
    const lmc__grouping one = {1, 0, {0}};
    const lmc__delta_block block = {sample->base, sample->n, width, delta->order, &one};
    lmc__classes planes; /* of the residuals, as a single class */
    unsigned p;
    if (!sample->may_group || width <= 2) return;
    delta->sparse = n_equal > sample->n / 2;
    if (delta->sparse || delta->grouping.n_classes == 1) return;
    for (p = 0; p < width; p++) planes.row[0][p] = rows->row[p];
    (void)e->k->group(e->k, &planes, sample->src, &block);
    for (p = 0; p + 1 < width; p++) {
        const uint32_t *const counts = lmc__count_list(e, rows->row[p], sample->n);
        if (!lmc__is_raw(counts, (uint32_t)sample->n, 7)) break;
        delta->grouping.n_natural = p + 1;
    }
}

/* What the sample says: the prediction saves nothing (DIRECT), it saves at least an eighth (DELTA),
 * or put_block.h must try both ways (EITHER).
 *
 *     delta / direct, estimated    0 ........ 7/8 ........ 9/8 ........
 *                                    DELTA   |   EITHER   |   DIRECT
 *     level max                    0 .. 1/2 ..................
 *                                  DELTA  |  EITHER */
enum lmc__verdict { LMC__DIRECT, LMC__DELTA, LMC__EITHER };

/* Decides whether and how to code a block against its prediction. Both estimates come from one
 * sample and are wrong by some percent, so they decide only if they differ by an eighth. From level
 * MAX on, both ways are tried unless the delta takes less than half: so a prediction never makes a
 * block larger. */
static enum lmc__verdict lmc__plan_delta(lmc__encoder *e, lmc__delta *delta,
                                         const lmc__block *block)
{
    const int is_max = block->level >= LMC_LEVEL_MAX;
    const size_t n = block->n, room = n / LMC__SPARSE_ONE_IN;
    uint8_t *const top = e->stack.top, *behind_list;
    lmc__changes *const changes = &delta->changes;
    uint64_t direct, border;
    size_t n_equal;
    lmc__merging m;
    lmc__changed list;
    lmc__block sample;
    lmc__planes rows;
    list.place = lmc__push_numbers(&e->stack, room);
    list.now = lmc__push_list(&e->stack, room * block->width);
    list.before = lmc__push_list(&e->stack, room * block->width);
    behind_list = e->stack.top;
    if (!list.place || !list.now || !list.before || !lmc__take_pairs(e, &sample, block) ||
        !lmc__push_planes(e, &rows, sample.n, block->width))
        return LMC__DIRECT;
    m.classes = e->scratch->keys;
    m.merged = &e->scratch->merged;
    m.n = n;
    n_equal = lmc__count_keys(&m, &sample);
    memset(changes, 0, sizeof *changes);
    /* may_group: a sparse delta has Grouping, too */
    if (block->may_group && sample.n - n_equal <= sample.n / (LMC__SPARSE_ONE_IN - 4)) {
        changes->n = e->k->list_changes(e->k, &changes->crc, &list, room, block->src, block->base,
                                        n, block->width);
        if (changes->n != SIZE_MAX) changes->list = list;
    }
    direct = lmc__estimate_direct(e, &rows, &sample, n);
    lmc__choose_classes(&m, delta, block, n_equal);
    if (!changes->list.place) lmc__choose_layout(e, delta, &rows, &sample, n_equal);
    e->stack.top = changes->list.place ? behind_list : top;
    border = is_max ? direct / 2 : direct - direct / 8;
    delta->direct = direct;
    delta->border = (size_t)(border / 8);
    if (delta->bits > direct + direct / 8 && !is_max) return LMC__DIRECT;
    return delta->bits < border ? LMC__DELTA : LMC__EITHER;
}
#endif /* LMC_NO_ENCODER */
