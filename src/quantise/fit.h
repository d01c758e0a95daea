#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/grids.h"
#include "kernels/dispatch.h"
#include "codec/plan.h"
#include "codec/put_quantised.h"
#include "codec/put_block.h"
#include "quantise/clusters.h"

#define LMC__MIN_QUANTISED 16384u /* elements: below, codebooks and scales are not worth it */
#define LMC__FIT_CHUNK 16384u     /* elements that are read at once */
#define LMC__FIT_SAMPLE                                                                            \
    ((uint64_t)1                                                                                   \
     << 21) /* of twice as many elements and more, so many are looked at, evenly spread */
#define LMC__SYMBOLS 65536u
#define LMC__DEFAULT_GROUP 256u

typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_elements elements;
    lmc_quantizer *q;
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK], wide[4 * LMC__FIT_CHUNK],
        wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s; /* the first two as F32 */
    uint16_t symbols[LMC__FIT_CHUNK];
    uint32_t counts[LMC__SYMBOLS]; /* of the sample's symbols; of EXCEPTION, too */
    uint32_t bins[LMC__MAX_BINS];
    uint16_t ends[256];
    uint64_t total; /* of the sample, without symbol 0 and exceptions */
    uint32_t zeros; /* of symbol 0 at first */
    lmc__clusters clusters;
} lmc__fit;

static enum lmc_status lmc__keep_lossless(lmc_quantizer *q, const char *reason)
{
    q->info.is_lossless = 1;
    q->info.reason = reason;
    return LMC_OK;
}

/* Reads elements [first, first + n), and of the second moment what the decoder will have. */
static enum lmc_status lmc__read_chunk(lmc__fit *f, uint64_t first, size_t n)
{
    lmc_quantizer *const q = f->q;
    const size_t size = n * q->width;
    LMC__TRY(f->elements.read(f->elements.user, first * q->width, f->chunk, size));
    f->x = lmc__widen(f->wide, f->chunk, n, q->width);
    if (!q->is_predicted) return LMC_OK;
    LMC__TRY(f->options->second_elements.read(f->options->second_elements.user, first * q->width,
                                              f->second, size));
    if (f->options->second)
        LMC__TRY(lmc_quantize(f->options->second, f->second, first * q->width, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* The scale of each group: the mean of its elements' bits, which is near the logarithm's; with a
 * linear grid, 2^-9 times that, so that its points reach from a 512th of the mean to 64 times of
 * it. */
static enum lmc_status lmc__fit_scales(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint64_t at = 0, sum = 0, count = 0;
    const uint32_t down = q->grid.is_log ? 0 : 9u << 7,
                   largest = (q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16;
    if (q->n / q->group_size > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    q->n_groups = (size_t)((q->n + q->group_size - 1) / q->group_size);
    q->scales = (uint16_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_groups * sizeof q->scales[0]);
    if (!q->scales) return LMC_ERR_MEMORY;
    while (at < q->n) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        size_t i, part;
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const uint64_t group = (at + i) / q->group_size,
                           end = lmc__min64((group + 1) * q->group_size, q->n);
            uint32_t normal;
            part = (size_t)lmc__min64(n - i, end - at - i);
            sum += f->k->sum_magnitudes(f->x + 4 * i, part, &normal);
            count += normal;
            if (at + i + part == end) {
                const uint32_t mean = count ? (uint32_t)(sum / count) >> 2 : 0x3F80,
                               scale = mean > down + 0x80 ? mean - down : 0x80;
                q->scales[group] = (uint16_t)(scale < largest ? scale : largest);
                sum = count = 0;
            }
        }
        at += n;
    }
    return LMC_OK;
}

/* Elements from one part of the sample to the next. */
static uint64_t lmc__fit_stride(const lmc_quantizer *q)
{
    return q->n < 2 * LMC__FIT_SAMPLE ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / LMC__FIT_SAMPLE);
}

/* The bias with which the largest update of the sample is 2^14, half of what the grid reaches; 0 if
 * there is none within the format's limits. Few that are far above all others, as where the second
 * moment is lost, do not make it coarse: they become exceptions. */
static enum lmc_status lmc__fit_bias(lmc__fit *f, int *found)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    int64_t largest = INT64_MIN / 2, usual;
    uint64_t at;
    uint32_t octave = 512, above = 0, total = 0;
    size_t i;
    memset(f->bins, 0, sizeof f->bins); /* here: of octaves, from 2^-256 on */
    for (at = 0; at < q->n; at += stride) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i++) {
            const uint32_t v = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF,
                           p = lmc__load32(f->s + 4 * i) & 0x7FFFFFFF;
            const int64_t ratio =
                (int64_t)v - (int64_t)((p > q->grid.floor ? p : q->grid.floor) >> 1);
            if (!lmc__is_normal(v) || p > 0x7F800000) continue;
            if (ratio > largest) largest = ratio;
            f->bins[(ratio >> 23) + 256]++;
            total++;
        }
    }
    while (octave > 0 && above <= total / 8192) above += f->bins[--octave];
    usual = ((int64_t)octave - 256 + 5) * ((int64_t)1 << 23); /* 16 times what is usual, and more */
    if (largest > usual) largest = usual;
    largest -= (int64_t)14 << 23;
    *found = largest >= -((int64_t)1 << 30) && largest <= (int64_t)1 << 30;
    if (*found) q->grid.bias = (int32_t)largest;
    return LMC_OK;
}

/* Counts the sample's symbols on the grid; *exceptions: a 100th of it or more cannot be on it. */
static enum lmc_status lmc__count_symbols_of(lmc__fit *f, int *is_off)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    uint64_t at, seen = 0;
    size_t i, part;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        LMC__TRY(lmc__read_chunk(f, at, n));
        if (q->is_predicted) (void)f->k->quantize_updates(f->symbols, f->x, f->s, n, &q->grid);
        else
            for (i = 0; i < n; i += part) {
                uint32_t scale;
                part = lmc__get_group(q, at + i, n - i, &scale);
                (void)f->k->quantize_rows(f->symbols + i, f->x + 4 * i, part, scale, &q->grid);
            }
        for (i = 0; i < n; i++) f->counts[f->symbols[i]]++;
        seen += n;
    }
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->total = seen - f->counts[0] - f->counts[LMC__EXCEPTION];
    *is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > seen;
    return LMC_OK;
}

/* Square root, rounded down. */
static uint32_t lmc__square_root(uint64_t v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= v) root |= bit;
    return root;
}

/* a / b in units of 2^-32, at most 2^32 - 1. */
static uint32_t lmc__fraction(uint64_t a, uint64_t b)
{
    while (a >> 32) {
        a >>= 1;
        b >>= 1;
    }
    return b == 0 || (a << 32) / b > UINT32_MAX ? UINT32_MAX : (uint32_t)((a << 32) / b);
}

/* What a mean squared error of a log grid's magnitudes (in units of its step, times 12) is in the
 * relative error's: bits of a float are 2^23 to the octave, so an error of them is up to twice as
 * large relative to a float at an octave's begin as at its end; the mean of the square of 1 /
 * mantissa, in octaves that are evenly filled, is 3 / (8 ln 2) = 0.541. Units of 2^-32. */
static uint32_t lmc__log_error(uint64_t squares12, uint64_t n, uint32_t step)
{
    /* (step / 2^23)^2 * 0.541 * squares12 / 12 / n; step is at most 2^24 */
    const uint64_t step2 = (uint64_t)step * step; /* in 2^-46 */
    uint64_t mean = n ? squares12 * 256 / n : 0;  /* in 1/256 */
    unsigned shift = 46 + 8 - 32;
    uint64_t a = step2 / 12 * 541 / 1000;
    while (a >> 32) {
        a >>= 1;
        shift--;
    }
    while (mean >> 31) {
        mean >>= 1;
        shift--;
    }
    a *= mean;
    if ((int)shift < 0 || a >> shift > UINT32_MAX) return UINT32_MAX;
    return (uint32_t)(a >> shift);
}

/* What rounding to BF16 adds: steps of 2^-7 of the octave's begin, 2^-14 / 12 * 0.541 (see
 * lmc__log_error), in units of 2^-32. */
#define LMC__BF16_ERROR 11818u

/* The squared relative error (of second moments: of the elements; else of all together), by the
 * options' measure, in units of 2^-32, of squares12 / 12, the sum of squared errors in grid points.
 */
static uint32_t lmc__measure_error(const lmc__fit *f, uint64_t squares12)
{
    const lmc_quantizer *const q = f->q;
    uint64_t power = 0;
    uint32_t error, s;
    if (q->grid.is_log) error = lmc__log_error(squares12, f->total, q->grid.step);
    else {
        for (s = 1; s < LMC__EXCEPTION; s++) {
            const int64_t v = (int64_t)q->grid.min + s - 1;
            power += f->counts[s] * (uint64_t)(v * v);
        }
        error = power >> 60 ? UINT32_MAX : lmc__fraction(squares12 / 12, power);
        if (q->width == 2)
            error = error > UINT32_MAX - LMC__BF16_ERROR ? UINT32_MAX : error + LMC__BF16_ERROR;
    }
    if (q->info.loss.measure != LMC_MEASURE_UPDATE) return error;
    error = lmc__square_root((uint64_t)error << 32);
    return q->grid.is_log ? error / 2 : error; /* of sqrt(v) */
}

/* The asked bound, in the same units; of measures that are estimated, a hundredth less: on real
 * moments estimates were up to 0.7 % below the truth. */
static uint32_t lmc__get_bound(const lmc_quantizer_options *options)
{
    const uint32_t bound = (uint32_t)(options->bound * 4294967296.0);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* Order-0 bits of counts, times 65536. */
static uint64_t lmc__count_bits(const uint32_t *counts, size_t n)
{
    uint64_t total = 0, logs = 0;
    size_t i;
    for (i = 0; i < n; i++)
        if (counts[i]) {
            total += counts[i];
            logs += (uint64_t)counts[i] * lmc__log2(counts[i]);
        }
    return total ? total * lmc__log2((uint32_t)total) - logs : 0;
}

/* Symbols that occur: first, last; 0, 0 if none does. */
static void lmc__find_range(const lmc__fit *f, uint32_t *first, uint32_t *last)
{
    uint32_t s;
    *first = *last = 0;
    for (s = 1; s < LMC__EXCEPTION; s++)
        if (f->counts[s]) {
            if (!*first) *first = s;
            *last = s;
        }
}

/* The code whose symbol is nearest to s; zero: another symbol of code 0, or 0. *code: 1, or what an
 * earlier call for a lower symbol has left. */
static unsigned lmc__find_code(const lmc_quantizer *q, unsigned *code, uint32_t s, uint32_t zero,
                               uint32_t *distance)
{
    unsigned best;
    while (*code < q->table_size && q->table[*code + 1] <= s) ++*code;
    best = *code;
    *distance = s > q->table[best] ? s - q->table[best] : q->table[best] - s;
    if (*code < q->table_size && q->table[*code + 1] > s &&
        (uint32_t)(q->table[*code + 1] - s) < *distance) {
        best = *code + 1;
        *distance = q->table[best] - s;
    }
    if (zero && (s > zero ? s - zero : zero - s) < *distance) {
        best = 0;
        *distance = s > zero ? s - zero : zero - s;
    }
    return best;
}

/* The table of at most k codes, the first for zero. Returns its error. */
static uint32_t lmc__fit_table(lmc__fit *f, unsigned k, uint64_t *bits)
{
    lmc_quantizer *const q = f->q;
    const uint32_t zero =
        q->grid.is_log
            ? 0
            : (uint32_t)(1 - q->grid.min); /* the symbol that a code of its own has already */
    const size_t max_bins = lmc__min(
        16 * (size_t)k, q->n < ((uint64_t)1 << 16)
                            ? 1024
                            : LMC__MAX_BINS); /* 16 to a code; of small tensors, time counts more */
    uint32_t first, last, s, codes[256] = {0}, centres[256], nearest = UINT32_MAX;
    uint64_t squares12 = 0;
    unsigned shift = 0, n_cells, i, n = 0, skip = 256, code;
    lmc__find_range(f, &first, &last);
    while ((last - first) >> shift >= max_bins) shift++;
    memset(f->bins, 0, sizeof f->bins);
    for (s = first; s <= last; s++) f->bins[(s - first) >> shift] += f->counts[s];
    lmc__set_clusters(&f->clusters, f->bins, ((last - first) >> shift) + 1);
    n_cells = lmc__find_cells(&f->clusters, q->grid.is_log ? k - 1 : k, f->ends);
    for (i = 0; i < n_cells; i++) {
        const size_t from = i ? f->ends[i - 1] : 0, to = f->ends[i];
        const uint64_t count = f->clusters.count[to] - f->clusters.count[from],
                       sum = f->clusters.sum[to] - f->clusters.sum[from];
        uint32_t symbol, distance;
        if (count == 0) continue;
        symbol = first + (uint32_t)(((2 * sum + count) << shift) / (2 * count)); /* bins' middles */
        if (symbol > last) symbol = last;
        if (n && symbol <= centres[n - 1]) continue;
        distance = symbol > zero ? symbol - zero : zero - symbol;
        if (zero && distance < nearest) {
            nearest = distance;
            skip = n;
        }
        centres[n++] = symbol;
    }
    q->table[0] = 0;
    q->table_size = 0;
    for (i = 0; i < n; i++) /* of a linear grid, what is nearest to zero becomes zero */
        if (i != skip || (n < k && nearest != 0)) q->table[++q->table_size] = (uint16_t)centres[i];
    for (i = q->table_size + 1; i < 256; i++) q->table[i] = 0;
    /* the nearest code of each symbol */
    memset(q->codes, 0, LMC__SYMBOLS);
    for (s = 1, code = 1; s < LMC__EXCEPTION && q->table_size; s++) {
        uint32_t distance;
        const unsigned best = lmc__find_code(q, &code, s, zero, &distance);
        q->codes[s] = (uint8_t)best;
        codes[best] += f->counts[s];
        squares12 += f->counts[s] * (12 * (uint64_t)distance * distance + 1);
    }
    codes[0] += f->counts[0];
    *bits = lmc__count_bits(codes, 256) + ((uint64_t)(16 * q->table_size) << 16);
    return lmc__measure_error(f, squares12);
}

/* The grid itself as symbols: it is moved to begin where the sample does. Returns 0 if it has too
 * many points. */
static void lmc__fit_grid(lmc__fit *f, uint64_t *bits, unsigned *n_codes)
{
    lmc_quantizer *const q = f->q;
    const unsigned sign = q->grid.is_signed ? 1 : 0;
    uint32_t first, last, s, codes[256] = {0};
    lmc__find_range(f, &first, &last);
    q->table_size = 0;
    first -= (first - 1) & sign;
    if (!q->grid.is_log) { /* zero is a point */
        const uint32_t zero = (uint32_t)(1 - q->grid.min);
        first = first < zero ? first : zero;
        last = last > zero ? last : zero;
    }
    if (q->grid.is_log && q->grid.min + (int32_t)((first - 1) >> sign) > 0)
        first = ((uint32_t)-q->grid.min << sign) + 1;
    q->grid.min += (int32_t)((first - 1) >> sign);
    q->grid.n_points = ((last - first) >> sign) + 1;
    q->low_bits = 0;
    while ((last - first + 1 + sign) >> q->low_bits > 255) q->low_bits++;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->low_bits] += f->counts[s];
        if (f->counts[s]) ++*n_codes;
    }
    codes[0] += f->counts[0];
    *bits = lmc__count_bits(codes, 256) + ((q->low_bits * (f->total + f->counts[0])) << 16);
}

/* Moves the grid of a table to begin where the sample does: then few of its symbols need a code. */
static enum lmc_status lmc__narrow_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint32_t first, last, i;
    uint8_t *codes;
    lmc__find_range(f, &first, &last);
    first = first < (uint32_t)(1 - q->grid.min)
                ? first
                : (uint32_t)(1 - q->grid.min); /* min is at most 0 */
    if (!q->grid.is_log && last < (uint32_t)(1 - q->grid.min))
        last = (uint32_t)(1 - q->grid.min); /* zero is a point */
    codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, last - first + 2);
    if (!codes) return LMC_ERR_MEMORY;
    codes[0] = 0;
    memcpy(codes + 1, q->codes + first, last - first + 1);
    (void)LMC_REALLOC(q->alloc_user, q->codes, q->n_codes, 0);
    q->codes = codes;
    q->n_codes = last - first + 2;
    for (i = 1; i <= q->table_size; i++) q->table[i] = (uint16_t)(q->table[i] - (first - 1));
    q->grid.min += (int32_t)first - 1;
    q->grid.n_points = last - first + 1;
    return LMC_OK;
}

/* Makes a linear grid coarser: by 2^(by / 2^23), or near it. */
static void lmc__coarsen(lmc_quantizer *q, int32_t by)
{
    size_t i;
    if (q->is_predicted) {
        const int32_t most = 1 << 30, bias = q->grid.bias + by; /* of the format */
        q->grid.bias = bias < -most ? -most : bias > most ? most : bias;
    } else
        for (i = 0; i < q->n_groups; i++) {
            const int32_t scale = q->scales[i] + by / 65536;
            q->scales[i] = (uint16_t)(scale<0x80 ? 0x80 : scale>(int32_t)(LMC__MAX_SCALE >> 16)
                                          ? (int32_t)(LMC__MAX_SCALE >> 16)
                                          : scale);
        }
}

/* The error of the grid as it is now, if errors are spread evenly: a 12th of a point, squared;
 * elements that became zero have one, too. */
static uint32_t lmc__even_error(const lmc__fit *f)
{
    return lmc__measure_error(f,
                              f->total + (f->counts[0] > f->zeros ? f->counts[0] - f->zeros : 0));
}

/* A sum of squares of 64 bits. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;
LMC__INLINE void lmc__add_square(lmc__wide_sum *sum, int64_t v)
{
    const uint64_t square = (uint64_t)(v * v);
    sum->low += square;
    sum->high += sum->low < square;
}

/* 2^exponent, -1022 .. 1023. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* What the quantiser, complete by now, loses of a linear tensor: the sample's parts are restored
 * and compared. Of elements, or of updates in units of their scale, which is the divisor of the
 * update within 6 %. Differences of floats are made whole numbers of 31 bits by a power of two:
 * nothing is rounded before that, so that no machine or option of a compiler gives another sum.
 * Units of 2^-32; with UPDATE the root of it. */
static enum lmc_status lmc__measure_loss(lmc__fit *f, uint32_t *error)
{
    const lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    uint8_t restored[4 * LMC__QUANTISED_STRIP], wide[4 * LMC__QUANTISED_STRIP],
        high[LMC__QUANTISED_STRIP], low[LMC__QUANTISED_STRIP];
    uint16_t symbols[LMC__QUANTISED_STRIP];
    lmc__wide_sum lost = {0, 0}, all = {0, 0};
    uint32_t largest = LMC__MIN_SCALE, pass;
    for (pass = q->is_predicted ? 1 : 0; pass < 2; pass++) {
        uint64_t at;
        for (at = 0; at < q->n; at += stride) {
            const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
            size_t i, j, part;
            LMC__TRY(lmc__read_chunk(f, at, n));
            for (i = 0; i < n; i += part) {
                const uint8_t *y;
                part = lmc__min(n - i, LMC__QUANTISED_STRIP);
                (void)lmc__quantize_strip(f->k, q, high, q->low_bits ? low : NULL, symbols,
                                          restored, f->chunk + i * q->width,
                                          f->second + i * q->width, at + i, part);
                y = lmc__widen(wide, restored, part, q->width);
                for (j = 0; j < part; j++) {
                    const uint32_t v = lmc__load32(f->x + 4 * (i + j)), w = lmc__load32(y + 4 * j);
                    uint32_t scale, factor = 0x80;
                    float a, b;
                    double unit;
                    int64_t difference, value;
                    if (symbols[j] == LMC__EXCEPTION || v == 0) continue;
                    if (pass == 0) {
                        if ((v & 0x7FFFFFFF) > largest) largest = v & 0x7FFFFFFF;
                        continue;
                    }
                    memcpy(&a, &v, 4);
                    memcpy(&b, &w, 4);
                    scale = q->is_predicted
                                ? lmc__predicted_scale(lmc__load32(f->s + 4 * (i + j)), &q->grid)
                                : 0;
                    if (q->is_predicted) factor |= scale >> 16 & 0x7F;
                    /* updates are below 2^16 scales: 2^24 to a scale's power of two makes 41 bits;
                     * over its mantissa, 31 */
                    unit = q->is_predicted ? lmc__power(24 + 127 - (int)(scale >> 23))
                                           : lmc__power(30 + 127 - (int)(largest >> 23) - 1);
                    difference = (int64_t)(((double)a - (double)b) * unit);
                    value = (int64_t)((double)a * unit);
                    if (q->is_predicted) {
                        difference = difference / (int64_t)(2 * factor);
                        value = value / (int64_t)(2 * factor);
                    }
                    lmc__add_square(&lost, difference);
                    lmc__add_square(&all, value);
                }
            }
        }
    }
    while (lost.high | all.high) {
        lost.low = lost.low >> 1 | lost.high << 63;
        all.low = all.low >> 1 | all.high << 63;
        lost.high >>= 1;
        all.high >>= 1;
    }
    *error = lmc__fraction(lost.low, all.low);
    if (q->info.loss.measure == LMC_MEASURE_UPDATE)
        *error = lmc__square_root((uint64_t)*error << 32);
    return LMC_OK;
}

/* By how much, in units of 2^23 to the octave, one is coarser than the other; ratio: 20 bits behind
 * the point, from 1 on. */
static int32_t lmc__octaves(uint64_t ratio)
{
    int32_t by = 0;
    for (; ratio >= 2u << 20 && by < 13 << 23; ratio >>= 1) by += 1 << 23;
    return ratio >= 2u << 20 ? by : by + ((int32_t)(ratio - (1u << 20)) << 3);
}

/* The widest grid whose error is within the bound. *found: there is one. */
static enum lmc_status lmc__fit_grid_to(lmc__fit *f, uint32_t bound, uint64_t *bits,
                                        unsigned *n_codes, uint32_t *error, int *found)
{
    lmc_quantizer *const q = f->q;
    int is_off = 0;
    unsigned tries;
    *found = 0;
    if (q->grid.is_log) {
        /* Evenly spread errors: step^2 / 12 * 0.541 / 2^46 = relative error squared (see
         * lmc__log_error); sqrt(12 / 0.541) = 4.7097 */
        uint64_t relative = q->info.loss.measure == LMC_MEASURE_NMSE
                                ? lmc__square_root((uint64_t)bound << 32)
                                : 2 * (uint64_t)bound,
                 step;
        if (q->info.loss.measure == LMC_MEASURE_RELATIVE)
            step = bound >> 8; /* half a step at the begin of an octave */
        else step = relative * 4709 / 1000 >> 9;
        if (step > 1u << 24) step = 1u << 24;
        if (q->width == 2) step &= ~(uint64_t)0xFFFF; /* BF16 have 16 bits less */
        if (step == 0) return LMC_OK;
        q->grid.step = (uint32_t)step;
        q->grid.n_points = q->grid.is_signed ? 32767 : 65534;
        q->grid.min = -(int32_t)(q->grid.n_points / 2);
        /* magnitudes are within 2^31: fewer points reach all */
        if (q->grid.n_points > 0x7FFFFFFFu / q->grid.step) {
            q->grid.n_points = 0x7FFFFFFFu / q->grid.step;
            q->grid.min = -(int32_t)(q->grid.n_points / 2);
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off || f->total == 0) return LMC_OK;
        *error = q->info.loss.measure != LMC_MEASURE_RELATIVE ? lmc__measure_error(f, f->total)
                 : q->grid.step >> 24                         ? UINT32_MAX
                                                              : q->grid.step << 8;
        *found = 1;
        lmc__fit_grid(f, bits, n_codes);
        return LMC_OK;
    }
    for (tries = 0; tries < 32; tries++) {
        const uint32_t fine = lmc__even_error(f);
        if (fine <= bound) {
            uint64_t ratio = lmc__min64(
                ((uint64_t)bound << 20) / (fine ? fine : 1),
                (uint64_t)1 << 40); /* how much coarser it may be, 20 bits behind the point */
            int32_t by;
            if (q->info.loss.measure == LMC_MEASURE_NMSE) ratio = lmc__square_root(ratio << 20);
            if (tries && ratio < (102u << 20) / 100) break; /* near enough */
            by = lmc__octaves(ratio);
            if (by >> 16 == 0) break;
            lmc__coarsen(q, by & ~0xFFFF);
        } else {
            if (tries == 0) return LMC_OK; /* the finest is too coarse */
            lmc__coarsen(q, -(3 << 16));   /* by 1.6 % */
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
    }
    if (is_off) return LMC_OK;
    for (tries = 0; tries < 16; tries++) { /* so much for what is spread evenly; now as it is */
        uint64_t ratio;
        *n_codes = 0;
        lmc__fit_grid(f, bits, n_codes);
        LMC__TRY(lmc__measure_loss(f, error));
        *found = *error <= bound;
        if (*found) break;
        ratio = ((uint64_t)*error << 20) / bound;
        if (q->info.loss.measure == LMC_MEASURE_NMSE) ratio = lmc__square_root(ratio << 20);
        lmc__coarsen(q, -((lmc__octaves(ratio) & ~0xFFFF) + (2 << 16)));
        q->grid.min = -32767;
        q->grid.n_points = LMC__EXCEPTION - 1;
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off) break;
    }
    return LMC_OK;
}

/* Bits per element without loss, times 2^16, of elements from the middle. */
static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_workspace_size(LMC__FIT_CHUNK),
                 cap = lmc_bound_block(4 * LMC__FIT_CHUNK);
    const lmc_position position = {0, 0};
    enum lmc_status status;
    uint8_t *ws;
    size_t size;
    LMC__TRY(f->elements.read(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->width, f->chunk,
                              LMC__FIT_CHUNK * q->width));
    ws = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    status = lmc__encode_block(f->k, ws + ws_size, cap, &size, f->chunk, LMC__FIT_CHUNK * q->width,
                               NULL, f->options->dtype, LMC_LEVEL_DEFAULT, position, ws, ws_size);
    (void)LMC_REALLOC(q->alloc_user, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc_quantizer *const q = f->q;
    uint32_t error = 0, first, last;
    uint64_t bits = 0, lossless, seen;
    unsigned n_codes = 0;
    int found = 1, is_off;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    q->grid.is_log =
        q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted =
        o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements.read && !q->grid.is_log;
    q->grid.n_points = LMC__EXCEPTION - 1;
    q->grid.min = -32767;
    if (q->is_predicted) {
        const float eps = (float)(o->eps > 0 ? o->eps : 1e-8);
        uint32_t eps_bits;
        memcpy(&eps_bits, &eps, 4);
        q->grid.floor = eps_bits > 0x3F800000u / 2
                            ? 2 * eps_bits - 0x3F800000u
                            : 0; /* half of it, and half of 1, is eps again */
        if (q->grid.floor > 0x7F800000u) q->grid.floor = 0x7F800000u;
        LMC__TRY(lmc__fit_bias(f, &found));
        if (!found) return lmc__keep_lossless(q, "no update is a normal number");
    } else {
        /* a row's share of the tensor, or of a flat shard 256 elements; at least 16, for a scale
         * takes up to 16 bits */
        q->group_size = o->group ? o->group : LMC__DEFAULT_GROUP;
        if (q->group_size < 16) q->group_size *= (16 + q->group_size - 1) / q->group_size;
        if (q->group_size > 0x7FFFFFFF) q->group_size = LMC__DEFAULT_GROUP;
        LMC__TRY(lmc__fit_scales(f));
    }
    if (o->bits == 0 && q->grid.is_log) {
        LMC__TRY(lmc__fit_grid_to(f, lmc__get_bound(o), &bits, &n_codes, &error, &found));
    } else {
        if (q->grid.is_log) { /* points 1/1024 of an octave apart (BF16: all that there are), or
                                 1/256 */
            q->grid.step = q->width == 2 ? 1u << 16 : 1u << 13;
            q->grid.n_points = q->width == 2 ? 32767 : LMC__EXCEPTION - 1;
            q->grid.min = -(int32_t)(q->grid.n_points / 2);
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off && q->grid.is_log && q->width == 4) {
            q->grid.step <<= 2;
            LMC__TRY(lmc__count_symbols_of(f, &is_off));
        }
        if (is_off) return lmc__keep_lossless(q, "more than 1 % of its elements are exceptions");
        f->zeros = f->counts[0];
        if (f->total == 0) return lmc__keep_lossless(q, "all of it is zero");
        if (o->bits) {
            q->codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, LMC__SYMBOLS);
            q->n_codes = LMC__SYMBOLS;
            if (!q->codes) return LMC_ERR_MEMORY;
            error = lmc__fit_table(f, 1u << o->bits, &bits);
            if (q->table_size == 0) return lmc__keep_lossless(q, "all of it is zero");
            LMC__TRY(lmc__narrow_table(f));
            if (!q->grid.is_log) LMC__TRY(lmc__measure_loss(f, &error));
            n_codes = q->table_size + 1;
        } else LMC__TRY(lmc__fit_grid_to(f, lmc__get_bound(o), &bits, &n_codes, &error, &found));
    }
    lmc__find_range(f, &first, &last);
    if (!found) return lmc__keep_lossless(q, "no grid holds the bound");
    q->info.is_grid = q->table_size == 0;
    q->info.n_codes = n_codes;
    q->info.loss.generation = o->generation + 1;
    q->info.loss.error = error / 4294967296.0;
    seen = f->total + f->counts[0] + f->counts[LMC__EXCEPTION];
    bits += (uint64_t)f->counts[LMC__EXCEPTION] * (32 + 8 * q->width) << 16;
    q->info.bits = (double)bits / 65536.0 / (double)seen +
                   (q->is_predicted ? 0.0 : 12.0 / (double)q->group_size);
    bits = bits / seen + (q->is_predicted ? 0 : (12u << 16) / q->group_size);
    if (10 * bits > 9 * lossless) return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

LMC_API enum lmc_status lmc_fit_quantizer(lmc_quantizer **quantizer, const lmc_elements *elements,
                                          const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    lmc_quantizer *q;
    lmc__fit *f;
    if (!quantizer || !elements || !elements->read || !options ||
        (unsigned)options->dtype >= LMC_DTYPE_COUNT || options->generation > 254 ||
        (unsigned)options->role > LMC_ROLE_SECOND_MOMENT ||
        elements->size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (options->bits ? options->bits < 4 || options->bits > 8
                      : !(options->bound > 0) || !(options->bound < 1) ||
                            (unsigned)options->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (options->second_elements.read &&
        (options->second_elements.size != elements->size ||
         (options->second &&
          (options->second->n != elements->size / lmc_dtype_width(options->dtype) ||
           options->second->width != lmc_dtype_width(options->dtype) ||
           options->second->is_predicted))))
        return LMC_ERR_ARGUMENT;
    q = (lmc_quantizer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = options->alloc_user;
    q->info.reason = "";
    q->width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->width;
    q->info.loss.measure = options->bits == 0                ? options->measure
                           : options->role == LMC_ROLE_OTHER ? LMC_MEASURE_NMSE
                                                             : LMC_MEASURE_UPDATE;
    if (options->dtype != LMC_F32 && options->dtype != LMC_BF16)
        (void)lmc__keep_lossless(q, "its elements are not F32 or BF16");
    else if (q->n < LMC__MIN_QUANTISED)
        (void)lmc__keep_lossless(q, "it has fewer than 16,384 elements");
    else if (q->info.loss.measure == LMC_MEASURE_UPDATE && options->role == LMC_ROLE_OTHER)
        (void)lmc__keep_lossless(q, "only moments have an update");
    else {
        f = (lmc__fit *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *f);
        if (f) {
            f->k = lmc__get_kernels();
            f->options = options;
            f->elements = *elements;
            f->q = q;
            f->zeros = 0;
            status = lmc__fit_quantizer(f);
            (void)LMC_REALLOC(options->alloc_user, f, sizeof *f, 0);
        } else status = LMC_ERR_MEMORY;
    }
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}

LMC_API void lmc_free_quantizer(lmc_quantizer *q)
{
    if (!q) return;
    if (q->codes) (void)LMC_REALLOC(q->alloc_user, q->codes, q->n_codes, 0);
    if (q->scales)
        (void)LMC_REALLOC(q->alloc_user, q->scales, q->n_groups * sizeof q->scales[0], 0);
    (void)LMC_REALLOC(q->alloc_user, q, sizeof *q, 0);
}

LMC_API enum lmc_status lmc_get_quantizer_info(const lmc_quantizer *q, lmc_quantizer_info *info)
{
    if (!q || !info) return LMC_ERR_ARGUMENT;
    *info = q->info;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_quantize(const lmc_quantizer *q, void *data, uint64_t offset,
                                     size_t size, const void *second)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t *const p = (uint8_t *)data;
    const uint8_t *const s = (const uint8_t *)second;
    uint16_t symbols[LMC__QUANTISED_STRIP];
    uint8_t high[LMC__QUANTISED_STRIP], low[LMC__QUANTISED_STRIP];
    size_t i, part;
    if (!q || (!data && size) || offset % q->width || size % q->width || offset > q->n * q->width ||
        size > q->n * q->width - offset)
        return LMC_ERR_ARGUMENT;
    if (q->info.is_lossless || q->is_recovered)
        return LMC_OK; /* which is exact, whatever the elements */
    if (q->is_predicted && !second && size) return LMC_ERR_ARGUMENT;
    for (i = 0; i < size; i += part) {
        part = lmc__min(size - i, LMC__QUANTISED_STRIP * (size_t)q->width);
        (void)lmc__quantize_strip(k, q, high, q->low_bits ? low : NULL, symbols, p + i, p + i,
                                  s ? s + i : NULL, (offset + i) / q->width, part / q->width);
    }
    return LMC_OK;
}
