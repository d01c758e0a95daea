/* private_quantize.h - the kernels of quantisers against the spec's definitions, and tables.
 * Included by t_lmc.c, which sees what is private to lmc.h. */
#include "t_float.h"

#include <float.h>

static t_guard g_src, g_second, g_dst, g_enc, g_ws;

/* -- kernels -- */

static uint32_t slow_scale(uint32_t p, const lmc__grid *grid)
{
    int64_t v = p & 0x7FFFFFFF;
    if (v < (int64_t)grid->floor) v = grid->floor;
    v = v / 2 + grid->bias;
    if (v < 0x00800000) v = 0x00800000;
    if (v > 0x77000000) v = 0x77000000;
    return (uint32_t)v & 0xFFFF0000u;
}

/* An element by the definition of spec/quantised.md. */
static uint32_t slow_restore(uint32_t symbol, uint32_t scale, const lmc__grid *grid)
{
    int64_t t = (int64_t)symbol - 1, v;
    uint32_t sign = 0;
    if (symbol == 0) return 0;
    if (!grid->is_log) return bits_of((double)(grid->min + t) * float_of(scale));
    if (grid->is_signed) {
        sign = (uint32_t)(t & 1) << 31;
        t /= 2;
    }
    v = (int64_t)scale + (grid->min + t) * (int64_t)grid->step;
    return (uint32_t)(v < 0x00800000 ? 0x00800000 : v > 0x7F7F0000 ? 0x7F7F0000 : v) | sign;
}

static lmc__grid random_grid(uint64_t *seed, int is_log)
{
    static const uint32_t steps[] = {
        1,        2,        3,        7,      1u << 10, 1677,           16777,
        1u << 13, 1u << 15, 1u << 16, 167772, 5033164,  (1u << 24) - 1, 1u << 24};
    lmc__grid grid;
    uint32_t most;
    memset(&grid, 0, sizeof grid);
    grid.is_log = is_log;
    if (is_log) {
        grid.is_signed = (int)t_below(seed, 2);
        grid.step = t_below(seed, 3) ? steps[t_below(seed, COUNT(steps))]
                                     : 1 + (uint32_t)t_below(seed, 1u << 24);
    } else {
        grid.bias = (int32_t)t_below(seed, (1u << 31) + 1u) - (1 << 30);
        if (t_below(seed, 8) == 0) grid.bias = t_below(seed, 2) ? 1 << 30 : -(1 << 30);
        grid.floor = t_below(seed, 3)   ? (uint32_t)t_below(seed, 0x7F800001)
                     : t_below(seed, 2) ? 0x7F800000
                                        : 0;
    }
    most = grid.is_signed ? 32767 : 65534;
    if (is_log && most > 0x7FFFFFFFu / grid.step) most = 0x7FFFFFFFu / grid.step;
    grid.n_points = t_below(seed, 2) ? most : 1 + (uint32_t)t_below(seed, most);
    switch (t_below(seed, 4)) {
    case 0: grid.min = 0; break;
    case 1: grid.min = -(int32_t)t_below(seed, is_log ? grid.n_points : 65536); break;
    default: grid.min = -(int32_t)(grid.n_points / 2);
    }
    return grid;
}

/* Bits that test a scale and a grid well: points, borders between them, and a few steps beside; or
 * any bits. */
static uint32_t telling_bits(uint64_t *seed, uint32_t scale, const lmc__grid *grid)
{
    static const uint32_t special[] = {0,          1,          0x007FFFFF, 0x00800000,
                                       0x7F7FFFFF, 0x7F7F0000, 0x7F7F0001, 0x7F800000,
                                       0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x3F800000};
    const uint32_t sign = (uint32_t)t_below(seed, 2) << 31, beside = (uint32_t)t_below(seed, 5) - 2;
    const int64_t q = grid->min + (int64_t)t_below(seed, grid->n_points + 2) - 1;
    switch (t_below(seed, 6)) {
    case 0: return special[t_below(seed, COUNT(special))] | sign;
    case 1: return (uint32_t)t_random(seed);
    case 2:
    case 3: /* a point */
        if (!grid->is_log) return bits_of((double)q * float_of(scale)) + beside;
        return ((uint32_t)((int64_t)scale + q * (int64_t)grid->step) & 0x7FFFFFFF) + beside + sign;
    default: /* a border */
        if (!grid->is_log) return bits_of(((double)q + 0.5) * float_of(scale)) + beside;
        return ((uint32_t)((int64_t)scale + q * (int64_t)grid->step + (int64_t)(grid->step / 2)) &
                0x7FFFFFFF) +
               beside + sign;
    }
}

static void test_rows(const lmc__kernels *k, uint64_t *seed, size_t n, int is_log)
{
    const lmc__grid grid = random_grid(seed, is_log);
    const uint32_t largest = is_log ? 0x7F7F : 0x7700,
                   upper = t_below(seed, 8)   ? 0x80 + (uint32_t)t_below(seed, largest - 0x7F)
                           : t_below(seed, 2) ? largest
                                              : 0x80;
    const uint32_t scale = (is_log || t_below(seed, 4) ? upper : 0x3F80) << 16;
    uint16_t *const symbols = (uint16_t *)(void *)t_tail(&g_src, 2 * n), expected[80];
    uint8_t *const dst = t_tail(&g_dst, 4 * n), *const x = t_tail(&g_second, 4 * n);
    size_t i, exceptions = 0;
    lmc__grid far;
    int ok = 1;
    t_note("%s, %s%s grid of %u from %d, step %u, scale %x, n %lu", lmc_tier_name(k->tier),
           grid.is_signed ? "signed " : "", is_log ? "log" : "linear", (unsigned)grid.n_points,
           (int)grid.min, (unsigned)grid.step, (unsigned)scale, (unsigned long)n);
    /* any symbols, also some that no encoder makes */
    for (i = 0; i < n; i++)
        symbols[i] = (uint16_t)(t_below(seed, 5) ? t_random(seed) : t_below(seed, 2) ? 65535 : 0);
    far = grid; /* also with any min: what is out of range is cut */
    if (is_log && t_below(seed, 3) == 0) far.min = -(int32_t)t_below(seed, 65536);
    k->restore(dst, symbols, NULL, n, scale, &far);
    for (i = 0; i < n; i++) ok &= t_load32(dst + 4 * i) == slow_restore(symbols[i], scale, &far);
    CHECK(ok);
    for (i = 0; i < n; i++) {
        const uint32_t v = telling_bits(seed, scale, &grid);
        t_store32(x + 4 * i, v);
        expected[i] = (uint16_t)(is_log ? lmc__quantize_log(v, scale, &grid)
                                        : lmc__quantize_linear(v, scale, &grid));
        exceptions += expected[i] == LMC__EXCEPTION;
    }
    CHECK(k->quantize(symbols, x, NULL, n, scale, &grid) == exceptions);
    CHECK(n == 0 || memcmp(symbols, expected, 2 * n) == 0);
    for (i = 0; i < n; i++) {
        const uint32_t v = t_load32(x + 4 * i), s = symbols[i], sign = v & 0x80000000u;
        const uint32_t most = grid.n_points << grid.is_signed;
        uint32_t restored, again;
        if (v == 0) ok &= s == 0;
        else if (!is_normal(v) || (is_log && sign && !grid.is_signed)) ok &= s == LMC__EXCEPTION;
        if (s == LMC__EXCEPTION) continue;
        ok &= s <= most;
        restored = slow_restore(s, scale, &grid);
        again = is_log ? lmc__quantize_log(restored, scale, &grid)
                       : lmc__quantize_linear(restored, scale, &grid);
        ok &= again == s;  /* nothing changes any more */
        if (is_log && v) { /* half a step at most, and the next point is not nearer */
            const uint32_t a = v & 0x7FFFFFFF, b = restored & 0x7FFFFFFF;
            ok &= restored >> 31 == v >> 31 && b != 0 && (a > b ? a - b : b - a) <= grid.step / 2;
        } else if (v) {
            const double off =
                fabs(float_of(restored) / float_of(scale) - float_of(v) / float_of(scale));
            ok &= off <= 0.5 * (1 + 1e-6);
        }
    }
    CHECK(ok);
    /* every symbol that the grid has comes back */
    for (i = 0; i < n; i++)
        symbols[i] = (uint16_t)t_below(seed, ((size_t)grid.n_points << grid.is_signed) + 1);
    k->restore(dst, symbols, NULL, n, scale, &grid);
    for (i = 0; i < n; i++) {
        const uint32_t v = t_load32(dst + 4 * i) & 0x7FFFFFFF, s = symbols[i];
        const uint32_t again = is_log ? lmc__quantize_log(t_load32(dst + 4 * i), scale, &grid)
                                      : lmc__quantize_linear(t_load32(dst + 4 * i), scale, &grid);
        if (is_log && (v == 0x00800000 || v == 0x7F7F0000)) continue; /* perhaps clamped */
        if (!is_log && grid.min + (int64_t)s - 1 == 0) ok &= v == 0;
        else ok &= again == s;
    }
    CHECK(ok);
}

static void test_updates(const lmc__kernels *k, uint64_t *seed, size_t n)
{
    const lmc__grid grid = random_grid(seed, 0);
    uint16_t *const symbols = (uint16_t *)(void *)t_tail(&g_src, 2 * n), expected[80], given[80];
    uint8_t *const dst = t_tail(&g_dst, 4 * n), *const x = t_tail(&g_enc, 4 * n),
                   *const second = t_tail(&g_second, 4 * n);
    size_t i, exceptions = 0;
    int ok = 1;
    t_note("%s, updates, %u from %d, bias %d, floor %x, n %lu", lmc_tier_name(k->tier),
           (unsigned)grid.n_points, (int)grid.min, (int)grid.bias, (unsigned)grid.floor,
           (unsigned long)n);
    for (i = 0; i < n; i++) {
        const uint32_t p =
            t_below(seed, 4) ? (uint32_t)t_random(seed) : telling_bits(seed, 0x3F800000, &grid);
        t_store32(second + 4 * i, p);
        symbols[i] = given[i] = (uint16_t)(t_below(seed, 5)   ? t_random(seed)
                                           : t_below(seed, 2) ? 65535
                                                              : 0);
        t_store32(x + 4 * i, telling_bits(seed, slow_scale(p, &grid), &grid));
    }
    k->restore(dst, symbols, second, n, 0, &grid);
    for (i = 0; i < n; i++)
        ok &= t_load32(dst + 4 * i) ==
              slow_restore(symbols[i], slow_scale(t_load32(second + 4 * i), &grid), &grid);
    CHECK(ok);
    for (i = 0; i < n; i++) {
        expected[i] = (uint16_t)lmc__quantize_linear(
            t_load32(x + 4 * i), slow_scale(t_load32(second + 4 * i), &grid), &grid);
        exceptions += expected[i] == LMC__EXCEPTION;
    }
    CHECK(k->quantize(symbols, x, second, n, 0, &grid) == exceptions);
    CHECK(n == 0 || memcmp(symbols, expected, 2 * n) == 0);
    /* in place, as a delta is applied */
    if (n) memcpy(symbols, given, 2 * n);
    k->restore(second, symbols, second, n, 0, &grid);
    CHECK(n == 0 || memcmp(second, dst, 4 * n) == 0);
}

static void test_other_kernels(const lmc__kernels *k, uint64_t *seed, size_t n)
{
    uint8_t *const src = t_tail(&g_src, 4 * n), *const codes = t_tail(&g_second, n);
    uint16_t *const symbols = (uint16_t *)(void *)t_tail(&g_dst, 2 * n);
    uint8_t *high, *low;
    uint32_t sum = 0, count = 0, got = 99;
    unsigned low_bits;
    size_t i;
    int ok = 1;
    t_note("%s, sums and tables, n %lu", lmc_tier_name(k->tier), (unsigned long)n);
    for (i = 0; i < n; i++) {
        uint32_t v = (uint32_t)t_random(seed);
        if (t_below(seed, 4) == 0) v = (v & 0x807FFFFF) | (t_below(seed, 2) ? 0x7F800000 : 0);
        if (t_below(seed, 8) == 0) v = 0x7F7FFFFF | v;
        if (t_below(seed, 16) == 0) v = (v & 0x80000000u) | 0x7F800000u;
        t_store32(src + 4 * i, v);
        if (is_normal(v)) {
            sum += (v & 0x7FFFFFFF) / 16384;
            count++;
        }
    }
    CHECK(k->sum_magnitudes(src, n, &got) == sum);
    CHECK(got == count);
    for (i = 0; i < n; i++) codes[i] = (uint8_t)t_random(seed);
    low_bits = (unsigned)t_below(seed, 9);
    low = low_bits ? t_tail(&g_src, n) : NULL;
    for (i = 0; i < n && low; i++) low[i] = (uint8_t)(t_random(seed) & ((1u << low_bits) - 1));
    k->join_symbols(symbols, codes, low, n, low_bits);
    for (i = 0; i < n; i++)
        ok &= symbols[i] == (uint16_t)((unsigned)codes[i] << low_bits | (low ? low[i] : 0u));
    CHECK(ok);
    high = t_tail(&g_enc, n);
    k->cut_symbols(high, low ? (low = t_tail(&g_ws, n)) : NULL, symbols, n, low_bits);
    CHECK(n == 0 || memcmp(high, codes, n) == 0);
    CHECK(n == 0 || low == NULL || memcmp(low, t_tail(&g_src, n), n) == 0);
}

/* Division in integers against the machine's, where floats are computed as plain F32. */
static void test_division(uint64_t *seed)
{
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0 && !defined(__FAST_MATH__)
    const long tries = t_quick ? 100000 : t_long ? 200000000 : 2000000;
    long i, wrong = 0;
    t_note("division");
    for (i = 0; i < tries && wrong == 0; i++) {
        const uint64_t r = t_random(seed);
        const uint32_t scale = (0x80 + (uint32_t)(r % (0x7700 - 0x7F))) << 16;
        uint32_t magnitude, want;
        float a, b;
        volatile float quotient;
        if (i % 4 == 0) magnitude = 0x00800000 + (uint32_t)((r >> 20) % 0x7F000000); /* anything */
        else if (i % 4 == 1) { /* near a border */
            magnitude = bits_of(((double)(r >> 20 & 0xFFFF) + 0.5) * float_of(scale)) +
                        (uint32_t)(r >> 40 & 3) - 2;
        } else { /* within the range: exponents that differ by -2 .. 17 */
            const int64_t m = (int64_t)(scale & 0x7F800000) +
                              ((int64_t)(r >> 20 & 31) % 20 - 2) * 0x00800000 +
                              (int64_t)(r >> 32 & 0x7FFFFF);
            magnitude = (uint32_t)m;
        }
        if (!is_normal(magnitude) || magnitude >> 31) continue;
        memcpy(&a, &magnitude, 4);
        memcpy(&b, &scale, 4);
        quotient = a / b;
        want = quotient >= 65536 ? 65536 : (uint32_t)floor((double)quotient + 0.5);
        if (lmc__divide(magnitude, scale) != want) {
            wrong++;
            t_note("division: %x by %x", (unsigned)magnitude, (unsigned)scale);
        }
    }
    CHECK(wrong == 0);
    /* one scale of each mantissa by all mantissas, at exponents where rounding shows */
    for (i = 0; i < 128 && wrong == 0; i += t_quick ? 37 : t_long ? 1 : 9) {
        const uint32_t scale = (0x3F80 + (uint32_t)i) << 16;
        uint32_t magnitude;
        for (magnitude = 0x47000000; magnitude < 0x47800000; magnitude += t_long ? 1 : 5) {
            float a, b;
            volatile float quotient;
            memcpy(&a, &magnitude, 4);
            memcpy(&b, &scale, 4);
            quotient = a / b;
            wrong += lmc__divide(magnitude, scale) != (uint32_t)floor((double)quotient + 0.5);
        }
    }
    CHECK(wrong == 0);
#else
    (void)seed;
#endif
}

void t_test_quantizing_kernels(void)
{
    uint64_t seed = 61;
    const lmc__kernels *const k = lmc__get_kernels();
    size_t n, repeat;
    g_src = t_new_guard(4 * 80);
    g_second = t_new_guard(4 * 80);
    g_dst = t_new_guard(4 * 80);
    g_enc = t_new_guard(4 * 80);
    g_ws = t_new_guard(80);
    for (n = 0; n <= 70; n++)
        for (repeat = 0; repeat < (t_quick ? 10u : t_long ? 3000u : 100u); repeat++) {
            test_rows(k, &seed, n, 0);
            test_rows(k, &seed, n, 1);
            test_updates(k, &seed, n);
            if (repeat % 5 == 0) test_other_kernels(k, &seed, n);
        }
    test_division(&seed);
}

/* -- tables -- */

/* The nearest code of the table, the lower one if two are equally near. */
static void test_codes(void)
{
    static const uint16_t tables[][4] = {{5, 9, 10, 20}, {1, 2, 65533, 65534}, {1, 3, 5, 7}};
    size_t i, k;
    t_note("codes");
    for (i = 0; i < COUNT(tables); i++) {
        lmc_quantizer q;
        uint32_t symbol;
        int ok = 1;
        memset(&q, 0, sizeof q);
        q.params.table_size = 4;
        memcpy(q.params.table + 1, tables[i], sizeof tables[i]);
        CHECK_STATUS(lmc__set_codes(&q, 0), LMC_OK);
        for (symbol = 1; symbol < LMC__EXCEPTION && q.params.codes; symbol++) {
            unsigned best = 0;
            for (k = 1; k < 4; k++)
                if (labs((long)tables[i][k] - (long)symbol) <
                    labs((long)tables[i][best] - (long)symbol))
                    best = (unsigned)k;
            ok &= q.params.codes[symbol] == best + 1;
        }
        CHECK(ok && q.params.codes && q.params.codes[0] == 0);
        (void)LMC_REALLOC(q.params.codes, LMC__SYMBOLS, 0);
    }
}

/* One byte that is above `most`, anywhere; and none. */
static void test_has_more(void)
{
    unsigned most, value, at;
    int ok = 1;
    t_note("has_more");
    for (most = 0; most < 256; most++)
        for (value = 0; value < 256; value++)
            for (at = 0; at < 9; at++) { /* a word, and what is behind it */
                uint8_t bytes[9] = {0};
                bytes[at] = (uint8_t)value;
                ok &= lmc__has_more(bytes, 9, most) == (value > most);
            }
    CHECK(ok);
}

void t_test_tables(void)
{
    test_has_more();
    test_codes();
}
