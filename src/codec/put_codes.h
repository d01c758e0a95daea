#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/codes.h"
#include "codec/workspace.h"
#include "codec/sample.h"
#include "codec/put_list.h"

/* Finds codes and scales that give exactly a block's elements, and writes them (spec/codes.md).
 *
 * An element and its code bound the scale to an interval. The intersection for a group's elements
 * is a proof: any scale in it will do, and the one with the fewest bits is stored. A group is first
 * tried with the interval of the group before it, then of the one above it in the matrix, which may
 * be of the same row or tile. Else a start for the interval is guessed: one element is taken for
 * the number 1, 2, 3 ... (integers: the least element; FP8: the greatest one, for the numbers of
 * the highest exponent).
 *
 *     16 elements                  -> else no: ordinary elements fail soon
 *     groups of the first elements -> else smaller groups, other codes, or no; no, too, if their
 *                                     codes and scales say that all would not be smaller
 *     of 16 times as many, of all  -> else as before
 *     scales, codes                -> restored elements, compared with the source; their CRC
 *
 * Rounded to BF16, 127 is half a unit from where it was, and its neighbour may fit, too. So the
 * interval is first narrowed by integers that are so small that their codes are sure.
 *
 * Only IEEE operations of doubles decide, and no product is added to anything: compilers may make
 * an FMA of that. (Products with a power of two are exact.) */

#ifndef LMC_NO_ENCODER
#define LMC__MIN_CODED 8192u  /* elements of a block: for fewer the search would take too long */
#define LMC__CODED_TRIALS 64u /* integers that the least element of a group may be */
#define LMC__CODED_PROBE 16u  /* elements of a group that is only tried */
#define LMC__CODED_REPEAT 64u /* elements among which that of a probe may be again */
#define LMC__CODED_PART 256u  /* elements whose codes first say how many bits all will take */

#define LMC__LOG2_SEEN 9u

/* The search ends, without codes, when it has looked at this many elements, again and again: until
 * a part of them has scales, then until all have. Real weights take less than half of it. */
#define LMC__CODED_PART_LOOKS 16384u
#define LMC__CODED_LOOKS 10u /* for each element */
#define LMC__CODED_START 8u  /* elements that take as long as to begin with an interval */

typedef struct lmc__code_search {
    const uint8_t *src;
    size_t n;
    lmc__code_form form; /* mantissa 6: integers */
    size_t left, later;  /* how many elements it may yet look at; and when a part has scales */
    uint32_t trial;      /* the number of the interval that is narrowed */
    unsigned log2_seen;  /* places of seen in use */
    /* elements that have narrowed an interval, as its trial << 32 | their bits, at places that a
     * hash gives: most groups have few different ones */
    uint64_t seen[1 << LMC__LOG2_SEEN];
} lmc__code_search;

typedef struct lmc__interval {
    double low, high;
} lmc__interval;

LMC__INLINE double lmc__float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return (double)v;
}

LMC__INLINE uint32_t lmc__element_at(const lmc__code_search *s, size_t i)
{
    return s->form.width == 4 ? lmc__load32(s->src + 4 * i) : lmc__load16(s->src + 2 * i);
}

/* The bits of an element without its sign. */
LMC__INLINE uint32_t lmc__magnitude_at(const lmc__code_search *s, size_t i)
{
    return lmc__element_at(s, i) & (s->form.width == 4 ? 0x7FFFFFFFu : 0x7FFFu);
}

/* Such bits as those of an F32, which ascend with them. */
LMC__INLINE uint32_t lmc__wide_magnitude(const lmc__code_search *s, uint32_t bits)
{
    float value;
    if (s->form.width == 4) return bits;
    if (!s->form.is_half) return bits << 16;
    if (bits >= 0x7C00) return 0x7F800000;
    if (bits >= 0x0400) return (bits << 13) + 0x38000000;
    value = (float)bits / 16777216.0f;
    memcpy(&bits, &value, 4);
    return bits;
}

/* The products that are rounded to a positive element: F32s from `first` to `last` are rounded to
 * it, and products between the middles beyond these, to F32s. A middle itself is rounded to the
 * even neighbour: if that is outside, a little less is allowed. */
LMC__INLINE lmc__interval lmc__products_of(const lmc__code_search *s, uint32_t bits)
{
    const unsigned dropped = s->form.width == 4 ? 0 : s->form.is_half ? 13 : 16; /* bits */
    const uint32_t half_unit = ((uint32_t)1 << dropped) >> 1;
    uint32_t odd = dropped ? bits >> dropped & 1 : 0, first = bits - half_unit,
             last = bits + half_unit;
    lmc__interval p;
    if (s->form.is_half && bits <= 0x38800000) { /* at most 2^-14: in units of 2^-24, of F16 */
        const float v = (float)lmc__float_of(bits), half = 1.0f / ((uint32_t)1 << 25),
                    below = v - half, above = v + half;
        odd = (uint32_t)(v * 16777216.0f) & 1;
        memcpy(&first, &below, 4);
        memcpy(&last, &above, 4);
    }
    first += odd;
    last -= odd;
    p.low = (lmc__float_of(first - 1) + lmc__float_of(first)) / 2;
    p.high = (lmc__float_of(last) + lmc__float_of(last + 1)) / 2;
    if (first & 1) p.low += p.low / ((uint64_t)1 << 40);
    if (last & 1) p.high -= p.high / ((uint64_t)1 << 40);
    return p;
}

/* The code whose number is nearest to v: 0 .. 127, or more. Below 2^(mantissa + 1) numbers are
 * all integers; above, the upper bits of a float. */
LMC__INLINE unsigned lmc__nearest_code(double v, unsigned mantissa)
{
    uint64_t bits;
    if (v < (double)(2u << mantissa)) return ((unsigned)(v * 2) + 1) / 2;
    memcpy(&bits, &v, 8);
    bits = (bits + ((uint64_t)1 << (51 - mantissa))) >> (52 - mantissa);
    bits -= (uint64_t)(1022 + mantissa) << mantissa;
    return bits < 255 ? (unsigned)bits : 255;
}

/* From now on seen has 2^log2 places. */
static void lmc__forget_seen(lmc__code_search *s, unsigned log2)
{
    s->log2_seen = log2;
    memset(s->seen, 0, sizeof *s->seen << log2);
}

/* The largest element whose code is sure: half the interval and half a unit of the element are less
 * than half the scale. error: that half unit, relative to the element. */
LMC__INLINE double lmc__most_sure(double low, double high, double error)
{
    return (high + low) * (high + low) / ((high - low) + error * (high + low)) * 0.225;
}

/* Narrows the interval of scales by those of n elements from `at` on. Returns 0 if no scale
 * remains. is_careful: elements whose codes are not sure are left out. */
static int lmc__narrow(lmc__code_search *s, size_t at, size_t n, int is_careful,
                       lmc__interval *scales)
{
    const unsigned mantissa = s->form.mantissa;
    const double error = s->form.width == 4 ? 1.0 / (1 << 24)
                         : s->form.is_half  ? 1.0 / 2048
                                            : 1.0 / 256;
    double low = scales->low, high = scales->high, inverse = 2 / (low + high);
    double most = is_careful ? lmc__most_sure(low, high, error) : 1e300;
    const size_t end = at + lmc__min(n, s->left);
    size_t i;
    for (i = at; i < end; i++) {
        const uint32_t bits = lmc__magnitude_at(s, i);
        const uint64_t key = (uint64_t)s->trial << 32 | bits;
        uint64_t *const seen = &s->seen[bits * 2654435769u >> (32 - s->log2_seen)];
        uint32_t magnitude;
        lmc__interval p;
        double v, number;
        unsigned limit, code;
        if (bits == 0 || *seen == key) continue;
        magnitude = lmc__wide_magnitude(s, bits);
        v = lmc__float_of(magnitude);
        if (v > most) continue;
        if (magnitude - 0x00800000 >= 0x7F000000 - 0x00800000) break;
        limit = mantissa == 6 && lmc__element_at(s, i) != bits ? 128 : 127;
        p = lmc__products_of(s, magnitude);
        code = lmc__nearest_code(v * inverse, mantissa);
        if (code - 1 >= limit) break;
        number = lmc__code_number(code, mantissa);
        if (high * number < p.low || low * number > p.high) { /* a neighbour may fit */
            code = high * number < p.low ? code + 1 : code - 1;
            number = lmc__code_number(code, mantissa);
            if (code - 1 >= limit || high * number < p.low || low * number > p.high) break;
        }
        *seen = key;
        if (low * number >= p.low && high * number <= p.high) continue;
        if (low * number < p.low) low = p.low / number;
        if (high * number > p.high) high = p.high / number;
        if (low > high) break;
        inverse = 2 / (low + high);
        if (is_careful) most = lmc__most_sure(low, high, error);
    }
    s->left -= lmc__min(i - at + LMC__CODED_START, s->left);
    if (i < at + n) return 0;
    scales->low = low;
    scales->high = high;
    return 1;
}

/* The magnitudes of elements: the least one but 0, and the greatest one. */
typedef struct lmc__code_range {
    uint32_t least, most;
} lmc__code_range;

static lmc__code_range lmc__measure_range(lmc__code_search *s, size_t at, size_t n)
{
    lmc__code_range range = {UINT32_MAX, 0};
    s->left -= lmc__min(n, s->left);
    for (; n; n--, at++) {
        const uint32_t bits = lmc__magnitude_at(s, at);
        if (bits && bits < range.least) range.least = bits;
        if (bits > range.most) range.most = bits;
    }
    range.most = lmc__wide_magnitude(s, range.most);
    if (range.most) range.least = lmc__wide_magnitude(s, range.least);
    return range;
}

/* 1 if a magnitude but 0 is there again: ternary weights may have no other, but one element among
 * many zeros says nothing, and neither do constants. */
static int lmc__is_repeated(const lmc__code_search *s, size_t at, uint32_t magnitude)
{
    const uint32_t first = lmc__element_at(s, at);
    unsigned i, n = 0, differs = 0;
    for (i = 0; i < LMC__CODED_REPEAT; i++, at++) {
        n += lmc__wide_magnitude(s, lmc__magnitude_at(s, at)) == magnitude;
        differs |= lmc__element_at(s, at) != first;
    }
    return differs && magnitude && n > 1;
}

/* How many mantissas the probed elements have, by their upper 7 bits; 9 if they have more. */
static unsigned lmc__count_mantissas(const lmc__code_search *s, size_t at)
{
    uint64_t seen[2] = {0, 0};
    unsigned i, n = 0;
    for (i = 0; i < LMC__CODED_PROBE && n < 9; i++, at++) {
        const uint32_t upper = lmc__wide_magnitude(s, lmc__magnitude_at(s, at)) >> 16;
        const uint64_t bit = (uint64_t)1 << (upper & 63);
        if (upper == 0 || seen[upper >> 6 & 1] & bit) continue;
        seen[upper >> 6 & 1] |= bit;
        n++;
    }
    return n;
}

/* Finds the interval of scales of a group. hint: a scale of a neighbour, or 0: the highest exponent
 * of FP8 is then one that gives a scale near it, if that fits. */
static int lmc__find_scales(lmc__code_search *s, size_t at, size_t n, double hint,
                            lmc__interval *scales)
{
    const lmc__code_range range = lmc__measure_range(s, at, n);
    const unsigned mantissa = s->form.mantissa, one = 1u << mantissa,
                   highest = mantissa == 2 ? 30 : 15;
    const int is_integer = mantissa == 6;
    const unsigned n_trials = is_integer ? LMC__CODED_TRIALS : hint > 0 ? 2 * one : one;
    lmc__interval p;
    unsigned i;
    scales->low = lmc__float_of(LMC__MIN_SCALE);
    scales->high = lmc__float_of(LMC__MAX_CODED_SCALE);
    if (range.most == 0) return 1;
    if (range.least < 0x01000000 || range.most > 0x7F000000) return 0;
    p = lmc__products_of(s, is_integer ? range.least : range.most);
    for (i = 0; i < n_trials; i++) {
        unsigned exponent = highest;
        double number = 1 + i;
        if (!is_integer) {
            number = lmc__code_number(highest << mantissa | (i & (one - 1)), mantissa);
            for (; hint > 0 && i < one && exponent > 1 && 3 * p.low < 2 * hint * number; exponent--)
                number /= 2;
        }
        if (is_integer && lmc__float_of(range.most) * number > 130 * p.high) return 0;
        scales->low = p.low / number;
        scales->high = p.high / number;
        s->trial++;
        if ((!is_integer || lmc__narrow(s, at, n, 1, scales)) && lmc__narrow(s, at, n, 0, scales))
            return 1;
    }
    return 0;
}

/* Groups of elements. Groups of a run have one scale, which is in the run's interval. */
typedef struct lmc__code_groups {
    size_t size, first, n, above; /* above: how many groups before is the one in the row above */
    size_t n_runs;
    uint32_t *run, *low, *high; /* of each group; of each run, as the bits of F32 */
    size_t failed, failed_size; /* the first element and the size of a group without a scale */
} lmc__code_groups;

/* Sets the interval of a run; 0 if it has no F32 that may be a scale. */
static int lmc__set_run(lmc__code_groups *g, size_t run, lmc__interval scales)
{
    const float low = (float)scales.low, high = (float)scales.high;
    memcpy(&g->low[run], &low, 4);
    memcpy(&g->high[run], &high, 4);
    g->low[run] += (double)low < scales.low;
    g->high[run] -= (double)high > scales.high;
    return g->low[run] <= g->high[run] && g->low[run] >= LMC__MIN_SCALE &&
           g->high[run] <= LMC__MAX_CODED_SCALE;
}

/* Finds the runs; 0 if a group has no scale. */
static int lmc__find_runs(lmc__code_search *s, lmc__code_groups *g)
{
    size_t group, at = 0, size;
    g->n_runs = 0;
    for (group = 0; group < g->n; group++, at += size) {
        const size_t back[2] = {1, g->above > 1 ? g->above : 0};
        double hint = 0;
        unsigned i;
        size = lmc__min(s->n - at, group ? g->size : g->first);
        for (i = 0; i < 2; i++)
            if (back[i] && group >= back[i]) {
                const uint32_t run = g->run[group - back[i]];
                lmc__interval scales;
                scales.low = lmc__float_of(g->low[run]);
                scales.high = lmc__float_of(g->high[run]);
                if (hint == 0) hint = scales.low;
                s->trial++;
                if (!lmc__narrow(s, at, size, 0, &scales) || !lmc__set_run(g, g->n_runs, scales))
                    continue;
                g->low[run] = g->low[g->n_runs];
                g->high[run] = g->high[g->n_runs];
                g->run[group] = run;
                break;
            }
        if (i == 2) {
            lmc__interval scales;
            if (!lmc__find_scales(s, at, size, hint, &scales) ||
                !lmc__set_run(g, g->n_runs, scales)) {
                g->failed = at;
                g->failed_size = size;
                return 0;
            }
            g->run[group] = (uint32_t)g->n_runs++;
        }
    }
    return 1;
}

/* Chooses scales, those with the fewest bits, into g->run, and finds the codes of all elements.
 * Returns their mantissa, which may be 7 now; 0 if no form of codes has all of them. */
static unsigned lmc__find_codes(const lmc__code_search *s, lmc__code_groups *g, uint8_t *codes)
{
    const unsigned mantissa = s->form.mantissa;
    const uint32_t most = s->form.width == 4 ? 0x7FFFFFFF : 0x7FFF; /* without the sign */
    int has_minus_zero = 0, has_128 = 0, has_plus_128 = 0;
    size_t run, group, at, size;
    for (run = 0; run < g->n_runs; run++) {
        unsigned shift = 23;
        while (g->high[run] >> shift << shift < g->low[run]) shift--;
        g->low[run] = g->high[run] >> shift << shift;
    }
    for (group = 0, at = 0; group < g->n; group++) {
        double inverse;
        g->run[group] = g->low[g->run[group]];
        inverse = 1 / lmc__float_of(g->run[group]);
        for (size = lmc__min(s->n - at, group ? g->size : g->first); size; size--, at++) {
            const uint32_t element = lmc__element_at(s, at), bits = element & most,
                           sign = element != bits;
            const unsigned code =
                lmc__nearest_code(lmc__float_of(lmc__wide_magnitude(s, bits)) * inverse, mantissa);
            has_minus_zero |= element == most + 1;
            has_128 |= code > 127;
            has_plus_128 |= code > 127 + sign;
            codes[at] = (uint8_t)(code | sign << 7);
        }
    }
    if (has_plus_128) return 0;
    if (!has_128) return mantissa;
    for (at = 0; at < s->n; at++)
        if (codes[at] > 128) codes[at] = (uint8_t)(128 - codes[at]);
    return has_minus_zero ? 0 : 7;
}

/* Writes the payload; 0 if it does not fit, or does not give the elements back. codes: a list. */
static size_t lmc__write_codes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__code_search *s,
                               lmc__code_groups *g, uint8_t *codes, unsigned sample, uint32_t *crc)
{
    const uint32_t *const scales = g->run;
    const size_t size = s->n * s->form.width;
    uint8_t *const work = lmc__push_list(&e->stack, s->n),
                   *const spare = lmc__push_list(&e->stack, s->n),
                   *const restored = lmc__push_list(&e->stack, size);
    lmc__code_form form = s->form;
    size_t group;
    unsigned p;
    form.mantissa = lmc__find_codes(s, g, codes);
    form.group_size = g->size;
    if (!work || !spare || !restored || cap <= LMC__CODES_HEADER || !form.mantissa) return 0;
    lmc__set_numbers(&form);
    e->k->restore_codes(restored, codes, s->n, &form, scales, g->first);
    if (memcmp(restored, s->src, size)) return 0;
    *crc = e->k->crc32c(0, restored, size);
    e->stack.top = restored;
    dst[0] = (uint8_t)form.mantissa;
    dst[1] = (uint8_t)form.is_half;
    lmc__store32(dst + 2, (uint32_t)g->size);
    lmc__store32(dst + 6, (uint32_t)g->first);
    e->out = dst + LMC__CODES_HEADER;
    e->end = dst + cap;
    for (p = 0; p < 4; p++) {
        for (group = 0; group < g->n; group++) work[group] = (uint8_t)(scales[group] >> 8 * p);
        /* the lists of scales are short: a row has room for two */
        if (!lmc__put_list(e, work, work + g->n + LMC__PAD, spare, g->n, sample)) return 0;
    }
    if (!lmc__put_list(e, codes, work, spare, s->n, sample)) return 0;
    return (size_t)(e->out - dst);
}

/* Whether codes and scales of the n elements of a block may fit in cap bytes, by those of s->n:
 * their entropies say how many bits the lists take. */
static int lmc__may_fit(lmc__encoder *e, const lmc__code_search *s, lmc__code_groups *g,
                        uint8_t *codes, size_t n, size_t cap)
{
    const size_t n_groups = lmc__count_groups(g->size - g->first, n, g->size);
    uint32_t *const counts = e->scratch->counts[0];
    uint64_t bits;
    size_t i;
    unsigned p;
    if (!lmc__find_codes(s, g, codes)) return 0;
    memset(counts, 0, 1024);
    for (i = 0; i < s->n; i++) counts[codes[i]]++;
    bits = lmc__estimate_plane(counts, s->n) * n / s->n;
    for (p = 0; p < 4 && g->n_runs > 1; p++) {
        memset(counts, 0, 1024);
        for (i = 0; i < g->n; i++) counts[g->run[i] >> 8 * p & 255]++;
        bits += lmc__estimate_plane(counts, g->n) * n_groups / g->n;
    }
    return bits / 8 < cap;
}

/* 1 if smaller groups, of g->size, have scales where the last search found none. The first of them
 * has the greatest element, which mostly is why: integers may have had more than 8 bits. */
static int lmc__has_parts(lmc__code_search *s, const lmc__code_groups *g)
{
    const uint32_t most = lmc__measure_range(s, g->failed, g->failed_size).most;
    const size_t n = (g->failed_size + g->size - 1) / g->size;
    size_t i, most_at = 0;
    while (most_at + 1 < g->failed_size &&
           lmc__wide_magnitude(s, lmc__magnitude_at(s, g->failed + most_at)) != most)
        most_at++;
    for (i = 0; i < n; i++) {
        const size_t at = (most_at / g->size + i) % n * g->size;
        lmc__interval scales;
        if (!lmc__find_scales(s, g->failed + at, lmc__min(g->failed_size - at, g->size), 0,
                              &scales))
            return 0;
    }
    return 1;
}

/* Finds scales for groups of g->size: for a part of the n elements, for more, for all. If they say
 * that codes are not smaller, the search ends. groups: room. */
static int lmc__find_groups(lmc__encoder *e, lmc__code_search *s, lmc__code_groups *g,
                            uint32_t *groups, uint8_t *codes, size_t n, size_t cap)
{
    for (s->n = LMC__CODED_PART;; s->n = lmc__min(16 * s->n, n)) {
        g->n = lmc__count_groups(g->size - g->first, s->n, g->size);
        g->run = groups;
        g->low = g->run + g->n;
        g->high = g->low + g->n + 1;
        if (!lmc__find_runs(s, g)) return 0;
        if (s->n == n) return 1;
        if (!lmc__may_fit(e, s, g, codes, n, cap)) {
            s->left = 0;
            return 0;
        }
        s->left += s->later;
        s->later = 0;
    }
}

/* Writes the payload if it finds codes and scales, and they are smaller than the elements and at
 * most cap bytes; else returns 0. *crc: of the elements in the payload. */
static size_t lmc__put_codes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             enum lmc_dtype dtype, uint32_t *crc)
{
    static const uint8_t forms[2][3] = {{6, 3, 2}, {3, 2, 6}}, sizes[] = {0, 128, 64, 32, 16};
    const size_t row = block->n_columns;
    lmc__code_range range;
    uint32_t *groups;
    uint8_t *codes;
    lmc__code_search s;
    lmc__code_groups g;
    size_t probe;
    unsigned i, j, n_mantissas, is_wide;
    if (block->base || block->n < LMC__MIN_CODED || block->level == LMC_LEVEL_FAST ||
        (dtype != LMC_BF16 && dtype != LMC_F16 && dtype != LMC_F32))
        return 0;
    s.src = block->src;
    s.n = block->n;
    s.left = LMC__CODED_PART_LOOKS;
    s.later = LMC__CODED_LOOKS * block->n;
    s.trial = 0;
    lmc__forget_seen(&s, 4); /* enough for 16 elements; to clear more takes longer than these */
    s.form.width = block->width;
    s.form.is_half = dtype == LMC_F16;
    probe = row && row <= s.n / 2 ? row - block->first_column : 0; /* a row's start, if possible */
    range = lmc__measure_range(&s, probe, LMC__CODED_PROBE);
    if (range.least >= range.most) { /* another place, with elements that differ */
        probe += s.n / 4 / 128 * 128;
        range = lmc__measure_range(&s, probe, LMC__CODED_PROBE);
        if (range.least >= range.most && !lmc__is_repeated(&s, probe, range.most)) return 0;
    }
    cap = lmc__min(cap, s.n * s.form.width - 1);
    e->worth = lmc__get_effort(block->level)->byte_worth;
    codes = lmc__push_list(&e->stack, s.n);
    groups = lmc__push_numbers(&e->stack, 3 * (s.n / LMC__LEAST_CODED_GROUP + 2) + 1);
    if (!codes || !groups) return 0;
    /* FP8, tried as integers, would pass for a while; INT4, tried as FP8, might even be both */
    n_mantissas = lmc__count_mantissas(&s, probe);
    is_wide = range.most - range.least > 4u << 23 && n_mantissas <= 8;
    for (i = 0; i < 3 && s.left; i++) {
        const unsigned mantissa = s.form.mantissa = forms[is_wide][i];
        lmc__interval scales;
        if (n_mantissas > 1u << mantissa ||
            !lmc__find_scales(&s, probe, LMC__CODED_PROBE, 0, &scales))
            continue;
        if (s.log2_seen < LMC__LOG2_SEEN) lmc__forget_seen(&s, LMC__LOG2_SEEN);
        g.failed_size = 0;
        for (j = 0; j < sizeof sizes && s.left; j++) {
            if (row && sizes[j] && row % sizes[j]) continue;
            if ((!row || row < LMC__CODED_PROBE) && !sizes[j]) continue;
            g.size = sizes[j] ? sizes[j] : row;
            if (g.failed_size && g.failed && !lmc__has_parts(&s, &g)) continue;
            g.first = g.size - block->first_column % g.size;
            g.above = row / g.size;
            if (lmc__find_groups(e, &s, &g, groups, codes, block->n, cap))
                return lmc__write_codes(e, dst, cap, &s, &g, codes,
                                        lmc__get_effort(block->level)->sample, crc);
        }
    }
    return 0;
}
#endif /* LMC_NO_ENCODER */
