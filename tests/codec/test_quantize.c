/* Quantisers: their kernels (private_quantize.h), fitted quantisers compared with their promises,
 * in double; tensors and snapshots that are coded with them; damaged blocks. */
#include "t_io.h"
#include "t_parts.h"
#include "t_float.h"

enum { PLANE_RAW = 0, PLANE_CONSTANT = 1 }; /* spec 6 */

static t_guard g_src, g_second, g_dst, g_enc, g_ws;

/* -- tensors to quantise -- */

enum kind {
    K_GAUSS,  /* rows of scales that differ a little */
    K_MOMENT, /* first moments of those second moments */
    K_SECOND, /* rows of scales that differ much, a few zeros */
    K_WIDE,   /* all exponents, equally often */
    K_BITS,   /* random bits */
    K_BORDER, /* near the borders of octaves */
    K_LARGE,  /* the largest numbers, and some of 1 */
    K_SMALL,  /* the smallest normal ones */
    K_ODD,    /* gauss, and 1 in 200 is NaN, infinite, subnormal, -0 or 0 */
    KINDS
};
static const char *const kind_names[KINDS] = {"gauss",  "moment", "second", "wide", "bits",
                                              "border", "large",  "small",  "odd"};

/* Elements of F32 or BF16 (by truncation); first moments to p, second ones to second if that is not
 * NULL. */
static void fill(uint8_t *p, uint8_t *second, size_t n, unsigned width, enum kind kind,
                 uint64_t seed)
{
    double scale = 1;
    size_t i;
    seed = seed * 100 + (uint64_t)kind;
    for (i = 0; i < n; i++) {
        const uint64_t r = t_random(&seed);
        const double g = gauss(&seed);
        uint32_t bits = 0;
        if (i % 1000 == 0)
            scale = exp2(gauss(&seed) * (kind == K_GAUSS || kind == K_ODD ? 0.5 : 2));
        switch (kind) {
        case K_GAUSS:
        case K_ODD: bits = bits_of(0.02 * scale * g); break;
        case K_MOMENT:
        case K_SECOND: {
            const double v = 1e-9 * scale * exp2(2.5 * gauss(&seed));
            bits = r % 97 == 0 ? 0 : bits_of(kind == K_SECOND ? v : 0.3 * sqrt(v) * g);
            if (second) put(second, i, width, r % 97 == 0 ? 0 : bits_of(v));
            break;
        }
        case K_WIDE:
            bits = (uint32_t)r & 0x80000000u;
            bits |= 0x00800000 + (uint32_t)(r >> 32) % 0x7F000000u;
            break;
        case K_BITS: bits = (uint32_t)r; break;
        case K_BORDER:
            bits = 0x3B800000 + ((uint32_t)(r % 16) << 23) +
                   (width == 4 ? (uint32_t)(r >> 8 & 7) - 4 : ((uint32_t)(r >> 8 & 7) - 4) << 16);
            break;
        case K_LARGE: bits = r % 50 ? 0x7F7FFFFF - (uint32_t)(r >> 8 & 0xFFFFF) : 0x3F800000; break;
        case K_SMALL: bits = 0x00800000 + (uint32_t)(r >> 8 & 0x3FFFFF); break;
        default: break;
        }
        if (kind == K_ODD && r % 200 == 0) {
            static const uint32_t odd[] = {0x7FC00001, 0xFFA50000, 0x7F800000,
                                           0xFF800000, 0x80000000, 0x00010000,
                                           0x807F0000, 0,          0x7F810003};
            bits = odd[(r >> 20) % COUNT(odd)];
        }
        put(p, i, width, bits);
    }
}

typedef struct memory_elements {
    const uint8_t *data;
    size_t size;
    t_calls *calls;
} memory_elements;

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    const memory_elements *m = (const memory_elements *)user;
    if (t_fails(m->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (!CHECK(offset <= m->size && size <= m->size - offset)) return LMC_ERR_READ;
    memcpy(dst, m->data + offset, size);
    return LMC_OK;
}

static lmc_source elements_of(memory_elements *m, const uint8_t *data, size_t size)
{
    lmc_source elements = LMC_DEFAULTS;
    m->data = data;
    m->size = size;
    m->calls = NULL;
    elements.read_at = read_elements;
    elements.user = m;
    elements.size = size;
    return elements;
}

/* What a quantiser is fitted to. */
typedef struct plan {
    enum lmc_dtype dtype;
    enum lmc_role role;
    enum kind kind;
    size_t n;
    unsigned bits;
    enum lmc_measure measure;
    double bound;
    uint64_t group;
    unsigned n_codes; /* of a codebook, instead of bits and bound; or 0 */
} plan;

static lmc_quantizer_options options_of(const plan *p)
{
    lmc_quantizer_options options;
    memset(&options, 0, sizeof options);
    options.dtype = p->dtype;
    options.role = p->role;
    options.bits = p->bits;
    options.n_codes = p->n_codes;
    options.measure = p->measure;
    options.bound = p->bound;
    options.group = p->group;
    return options;
}

/* Fits a quantizer to size bytes; second: the decoded second moment, or NULL. */
static lmc_quantizer *fit(const plan *p, const uint8_t *x, size_t size, const uint8_t *second,
                          const lmc_quantizer *second_quantizer, lmc_quantizer_info *info)
{
    lmc_quantizer_options options = options_of(p);
    memory_elements memory, second_memory;
    lmc_source elements = elements_of(&memory, x, size), seconds;
    lmc_quantizer *q = NULL;
    if (second) seconds = elements_of(&second_memory, second, size);
    if (second) options.second_elements = &seconds;
    options.second = second_quantizer;
    CHECK_STATUS(lmc_quantizer_fit(&q, &elements, &options), LMC_OK);
    memset(info, 0, sizeof *info);
    if (q) CHECK_STATUS(lmc_quantizer_get_info(q, info), LMC_OK);
    return q;
}

static void note_plan(const plan *p)
{
    t_note("%s %s, role %d, %u bits, %u codes, measure %d, bound %g, group %lu, n %lu",
           p->dtype == LMC_F32 ? "F32" : "BF16", kind_names[p->kind], (int)p->role, p->bits,
           p->n_codes, (int)p->measure, p->bound, (unsigned long)p->group, (unsigned long)p->n);
}

/* Whether all survives that must: 0 becomes 0; all that is no normal number stays as it is, and so
 * do negative second moments; no positive one becomes zero. */
static int keeps_exceptions(const plan *p, const uint8_t *x, const uint8_t *y)
{
    const unsigned width = lmc_dtype_width(p->dtype);
    size_t i;
    int ok = 1;
    for (i = 0; i < p->n; i++) {
        const uint32_t a = get(x, i, width), b = get(y, i, width);
        if (!is_normal(a) || (p->role == LMC_ROLE_SECOND_MOMENT && a >> 31)) ok &= a == b;
        else if (p->role == LMC_ROLE_SECOND_MOMENT || p->measure == LMC_MEASURE_RELATIVE)
            ok &= is_normal(b) && b >> 31 == a >> 31;
        else ok &= b == 0 || is_normal(b);
    }
    return ok;
}

/* The largest change of a normal element, over it. */
static double largest_change(const plan *p, const uint8_t *x, const uint8_t *y)
{
    const unsigned width = lmc_dtype_width(p->dtype);
    double largest = 0;
    size_t i;
    for (i = 0; i < p->n; i++) {
        const uint32_t a = get(x, i, width), b = get(y, i, width);
        double change;
        if (!is_normal(a)) continue;
        change = fabs(float_of(b) - float_of(a)) / fabs(float_of(a));
        if (change > largest) largest = change;
    }
    return largest;
}

/* The error by that measure: for second moments that of 1 / sqrt(v), or relative to each element;
 * v: decoded second moments or NULL. */
static double measured_error(const plan *p, enum lmc_measure measure, const uint8_t *x,
                             const uint8_t *y, const uint8_t *v)
{
    const unsigned width = lmc_dtype_width(p->dtype);
    double error = 0, power = 0;
    size_t i;
    if (measure == LMC_MEASURE_RELATIVE) return largest_change(p, x, y);
    for (i = 0; i < p->n; i++) {
        const uint32_t xb = get(x, i, width), yb = get(y, i, width);
        double a, d, weight = 1;
        if (!is_normal(xb)) continue;
        a = float_of(xb);
        d = float_of(yb) - a;
        if (p->role == LMC_ROLE_SECOND_MOMENT) {
            if (xb >> 31) continue;
            d = measure == LMC_MEASURE_UPDATE ? sqrt(a / float_of(yb)) - 1 : d / a;
            a = 1;
        } else if (v) weight = 1 / (sqrt(fabs(float_of(get(v, i, width)))) + 1e-8);
        error += d * d * weight * weight;
        power += a * a * weight * weight;
    }
    if (power == 0) return 0;
    return measure == LMC_MEASURE_UPDATE ? sqrt(error / power) : error / power;
}

static uint8_t *quantized_copy(const lmc_quantizer *q, const uint8_t *x, size_t size,
                               const uint8_t *second)
{
    uint8_t *const y = (uint8_t *)t_copy(x, size);
    CHECK_STATUS(lmc_quantizer_apply(q, 0, y, size, second), LMC_OK);
    return y;
}

/* lmc_quantizer_apply in pieces, of one element and more, and again: nothing changes. */
static void check_pieces(const plan *p, const lmc_quantizer *q, const uint8_t *x, const uint8_t *y,
                         size_t size, const uint8_t *second)
{
    const unsigned width = lmc_dtype_width(p->dtype);
    uint64_t seed = size;
    uint8_t *const z = (uint8_t *)t_copy(x, size);
    size_t at = 0, n;
    for (; at < size; at += n) {
        n = width * (1 + t_below(&seed, t_below(&seed, 2) ? 3000 : 7));
        if (n > size - at) n = size - at;
        memcpy(t_tail(&g_dst, n), x + at, n);
        if (second) memcpy(t_tail(&g_second, n), second + at, n);
        CHECK_STATUS(
            lmc_quantizer_apply(q, at, t_tail(&g_dst, n), n, second ? t_tail(&g_second, n) : NULL),
            LMC_OK);
        memcpy(z + at, t_tail(&g_dst, n), n);
        if (at > 100000 && t_quick) break;
    }
    CHECK(memcmp(z, y, at < size ? at : size) == 0);
    memcpy(z, y, size);
    CHECK_STATUS(lmc_quantizer_apply(q, 0, z, size, second), LMC_OK);
    CHECK(memcmp(z, y, size) == 0);
    free(z);
}

/* The bound holds for every element, or nothing is quantised at all. */
static void test_hard_bound(void)
{
    static const double bounds[] = {1e-2, 1e-3, 0.3, 1e-4, 0.99, 1e-6};
    static const uint64_t groups[] = {0, 64, 5000, 1u << 20};
    const size_t n = 40000;
    uint8_t *const x = (uint8_t *)malloc(4 * n);
    size_t b, kind, d, g = 0;
    long quantized = 0;
    if (x == NULL) abort();
    for (d = 0; d < 2; d++)
        for (kind = 0; kind < KINDS; kind++)
            for (b = 0; b < (t_quick ? 3 : COUNT(bounds)); b++, g++) {
                plan p;
                lmc_quantizer_info info;
                lmc_quantizer *q;
                uint8_t *y;
                size_t size;
                memset(&p, 0, sizeof p);
                p.dtype = d ? LMC_BF16 : LMC_F32;
                p.role = (g + kind) % 3 == 0 ? LMC_ROLE_FIRST_MOMENT
                         : kind == K_SECOND  ? LMC_ROLE_SECOND_MOMENT
                                             : LMC_ROLE_OTHER;
                p.kind = (enum kind)kind;
                p.n = n;
                p.measure = LMC_MEASURE_RELATIVE;
                p.bound = bounds[b];
                p.group = groups[g % COUNT(groups)];
                note_plan(&p);
                size = n * lmc_dtype_width(p.dtype);
                fill(x, NULL, n, lmc_dtype_width(p.dtype), p.kind, b);
                q = fit(&p, x, size, NULL, NULL, &info);
                if (!q) continue;
                y = quantized_copy(q, x, size, NULL);
                if (info.is_lossless) {
                    CHECK(memcmp(x, y, size) == 0 && info.reason[0] && info.loss.generation == 0);
                    /* elements that the bound allows are quantised */
                    CHECK(kind == K_WIDE || kind == K_BITS || kind == K_LARGE || kind == K_SMALL ||
                          kind == K_BORDER || p.bound < 1e-3 || (d && p.bound < 0.011));
                } else {
                    const double largest = largest_change(&p, x, y);
                    CHECK(largest <= p.bound);
                    CHECK(info.loss.error <= p.bound && largest <= info.loss.error &&
                          info.loss.measure == LMC_MEASURE_RELATIVE && info.loss.generation == 1);
                    CHECK(keeps_exceptions(&p, x, y));
                    check_pieces(&p, q, x, y, size, NULL);
                    quantized++;
                }
                lmc_quantizer_free(q);
                free(y);
            }
    CHECK(quantized > (t_quick ? 15 : 40));
    free(x);
}

/* A pair of moments: the second one quantised or not, then the first one by its update. Errors are
 * as claimed, and within the bounds. */
static void try_fit(const plan *p, const plan *second_plan)
{
    const unsigned width = lmc_dtype_width(p->dtype);
    const size_t size = p->n * width;
    uint8_t *const x = (uint8_t *)malloc(size + 8), *const v = (uint8_t *)malloc(size + 8),
                   *decoded = NULL, *y;
    const uint8_t *pair = NULL;
    lmc_quantizer *second = NULL, *q;
    lmc_quantizer_info info;
    if (x == NULL || v == NULL) abort();
    fill(x, v, p->n, width, p->kind, p->n + p->bits);
    if (second_plan) {
        second = fit(second_plan, v, size, NULL, NULL, &info);
        if (second) decoded = quantized_copy(second, v, size, NULL);
        pair = decoded;
    }
    note_plan(p);
    q = fit(p, x, size, pair ? v : NULL, second, &info);
    if (q) {
        double error;
        y = quantized_copy(q, x, size, pair);
        CHECK(!info.is_lossless || info.reason[0]);
        if (!CHECK(!info.is_lossless)) printf("lossless: %s [%s]\n", info.reason, t_about);
        CHECK(info.loss.generation == 1 && info.is_grid == !p->n_codes && info.n_codes >= 2);
        /* rare zeros come beside the values */
        CHECK(!p->n_codes || info.n_codes <= p->n_codes + (p->n_codes < 256));
        /* most bits are used: the size jumps when one more low bit is cut off */
        if (p->bits) CHECK(info.bits <= p->bits - 0.2 && info.bits > p->bits - 1);
        error = measured_error(p, info.loss.measure, x, y, pair);
        CHECK(keeps_exceptions(p, x, y));
        if (getenv("LMC_TEST_VERBOSE"))
            printf("claimed %-12g measured %-12g ratio %.3f  bits %.2f codes %u [%s]\n",
                   info.loss.error, error, error / info.loss.error, info.bits, info.n_codes,
                   t_about);
        /* these are estimates: small groups have similar elements, and heavy tails are on few
         * points of a group's grid */
        CHECK(error <=
              info.loss.error * (pair == NULL && p->group && p->group < 64 ? 1.25 : 1.065));
        CHECK(info.loss.error <= error * 1.2 || p->measure == LMC_MEASURE_RELATIVE);
        if (p->bits == 0 && p->n_codes == 0) CHECK(info.loss.error <= p->bound);
        check_pieces(p, q, x, y, size, pair);
        free(y);
    }
    lmc_quantizer_free(q);
    lmc_quantizer_free(second);
    free(decoded);
    free(x);
    free(v);
}

static void test_fits(void)
{
    static const uint64_t groups[] = {0, 1, 64, 1000, 65536, 1000000, 4097};
    static const struct {
        enum lmc_measure measure;
        double bound;
    } bounds[] = {{LMC_MEASURE_UPDATE, 0.01},
                  {LMC_MEASURE_UPDATE, 0.1},
                  {LMC_MEASURE_RELATIVE, 1e-2},
                  {LMC_MEASURE_NMSE, 1e-4},
                  {LMC_MEASURE_NMSE, 1e-2}};
    static const unsigned n_codes[] = {2, 5, 16, 256};
    size_t mode, d, role, g = 0;
    for (d = 0; d < 2; d++)
        for (role = 0; role < 4; role++)
            for (mode = 0; mode < 5 + COUNT(bounds) + COUNT(n_codes); mode++, g++) {
                plan p, second;
                if (t_quick && g % 4 != 0) continue;
                memset(&p, 0, sizeof p);
                p.dtype = d ? LMC_BF16 : LMC_F32;
                p.n = g % 3 ? 60000 + g : 150001;
                p.group = groups[g % COUNT(groups)];
                if (mode < 5) p.bits = 4 + (unsigned)mode;
                else if (mode >= 5 + COUNT(bounds)) p.n_codes = n_codes[mode - 5 - COUNT(bounds)];
                else {
                    p.measure = bounds[mode - 5].measure;
                    p.bound = bounds[mode - 5].bound;
                }
                p.role = role == 0   ? LMC_ROLE_OTHER
                         : role == 1 ? LMC_ROLE_SECOND_MOMENT
                                     : LMC_ROLE_FIRST_MOMENT;
                p.kind = role == 0 ? K_GAUSS : role == 1 ? K_SECOND : K_MOMENT;
                if (p.role == LMC_ROLE_OTHER && p.measure == LMC_MEASURE_UPDATE) continue;
                /* no gain with BF16's few bits */
                if (d && p.measure == LMC_MEASURE_RELATIVE) continue;
                /* tried in proportion to groups, below */
                if (p.role == LMC_ROLE_FIRST_MOMENT && p.measure == LMC_MEASURE_NMSE) continue;
                second = p;
                second.role = LMC_ROLE_SECOND_MOMENT;
                second.kind = K_SECOND;
                try_fit(&p, role == 3 ? &second : NULL);
            }
}

/* A bound that a logarithmic grid meets exactly is kept. And zeros do not make other elements
 * finer: `bits` is for elements that are not zero, so with more zeros the tensor is smaller. */
static void test_exact_bounds_and_zeros(void)
{
    enum { N = 131072 };
    uint8_t *const x = (uint8_t *)malloc(4 * N);
    lmc_quantizer_info info;
    double bits[3];
    plan p;
    size_t i;
    unsigned k;
    if (x == NULL) abort();
    t_note("exact bounds");
    memset(&p, 0, sizeof p);
    p.dtype = LMC_F32;
    p.n = N;
    p.kind = K_GAUSS;
    fill(x, NULL, N, 4, K_GAUSS, 7);
    p.measure = LMC_MEASURE_RELATIVE;
    for (k = 6; k <= 12; k++) {
        p.bound = 1.0 / (double)(1u << k);
        lmc_quantizer_free(fit(&p, x, 4 * N, NULL, NULL, &info));
        CHECK(!info.is_lossless && info.loss.error <= p.bound);
    }
    p.measure = LMC_MEASURE_NONE;
    p.bound = 0;
    p.bits = 8;
    p.group = 1024;
    p.role = LMC_ROLE_FIRST_MOMENT;
    for (k = 0; k < 3; k++) { /* none, a third, nine tenths of all groups are zero */
        for (i = 0; i < N; i += 1024)
            if (k && i / 1024 % 30 < (k == 1 ? 10 : 27)) memset(x + 4 * i, 0, 4096);
        lmc_quantizer_free(fit(&p, x, 4 * N, NULL, NULL, &info));
        CHECK(!info.is_lossless && info.bits <= 8);
        bits[k] = info.bits;
    }
    CHECK(bits[1] < 0.85 * bits[0] && bits[2] < 0.3 * bits[0]);
    free(x);
}

/* A group's scale is the mean of the whole group, however many pieces it is read in: the same
 * elements in another order give the same scale. */
static void test_long_groups(void)
{
    enum { N = 65536 };
    uint8_t *const x = (uint8_t *)malloc(4 * N);
    lmc_quantizer_info info;
    lmc_quantizer *q;
    plan p;
    size_t i;
    if (x == NULL) abort();
    t_note("long groups");
    for (i = 0; i < N; i++)
        put(x, i, 4,
            (i / 16384 % 4 == 0 || i / 16384 == 3 ? 0x3A000000u : 0x39000000u) +
                (uint32_t)(i % 16384) * 100);
    memset(&p, 0, sizeof p);
    p.dtype = LMC_F32;
    p.role = LMC_ROLE_SECOND_MOMENT;
    p.n = N;
    p.measure = LMC_MEASURE_RELATIVE;
    p.bound = 0.01;
    p.group = N / 2;
    q = fit(&p, x, 4 * N, NULL, NULL, &info);
    if (q && CHECK(!info.is_lossless))
        CHECK(t_log_point(q, 0, 0) != 0 && t_log_point(q, 0, 0) == t_log_point(q, 1, 0));
    lmc_quantizer_free(q);
    free(x);
}

/* Why a tensor stays as it is; and what was wrong with the arguments. */
static void test_reasons(void)
{
    static const struct {
        const char *reason;
        size_t n;
        enum lmc_dtype dtype;
        enum lmc_role role;
        unsigned bits;
        enum lmc_measure measure;
        double bound;
        int data, pair;
    } cases[] = {
        {"it has fewer than 16,384 elements", 16383, LMC_F32, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE,
         0, K_GAUSS, 0},
        {"", 16384, LMC_F32, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0, K_GAUSS, 0},
        {"it has fewer than 16,384 elements", 0, LMC_BF16, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0,
         K_GAUSS, 0},
        {"its elements are not F32 or BF16", 20000, LMC_F16, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0,
         K_GAUSS, 0},
        {"its elements are not F32 or BF16", 20000, LMC_I32, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0,
         K_GAUSS, 0},
        {"its elements are not F32 or BF16", 20000, LMC_F64, LMC_ROLE_OTHER, 0, LMC_MEASURE_NMSE,
         0.01, K_GAUSS, 0},
        {"only moments have an update", 20000, LMC_F32, LMC_ROLE_OTHER, 0, LMC_MEASURE_UPDATE, 0.01,
         K_GAUSS, 0},
        {"all of it is zero", 20000, LMC_F32, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0, -1, 0},
        {"all of it is zero", 20000, LMC_BF16, LMC_ROLE_SECOND_MOMENT, 8, LMC_MEASURE_NONE, 0, -1,
         0},
        {"no update is a normal number", 20000, LMC_F32, LMC_ROLE_FIRST_MOMENT, 8, LMC_MEASURE_NONE,
         0, -1, 1},
        {"more than 1 % of its elements are exceptions", 20000, LMC_F32, LMC_ROLE_OTHER, 8,
         LMC_MEASURE_NONE, 0, -2, 0},
        {"more than 1 % of its elements are exceptions", 20000, LMC_F32, LMC_ROLE_SECOND_MOMENT, 8,
         LMC_MEASURE_NONE, 0, K_GAUSS, 0}, /* half are negative */
        {"more than 1 % of its elements are exceptions", 20000, LMC_F32, LMC_ROLE_FIRST_MOMENT, 4,
         LMC_MEASURE_NONE, 0, -2, 1},
        {"no grid holds the bound", 20000, LMC_F32, LMC_ROLE_OTHER, 0, LMC_MEASURE_NMSE, 1e-9,
         K_GAUSS, 0}, /* too fine for 16 bits */
        {"no grid holds the bound", 20000, LMC_F32, LMC_ROLE_OTHER, 0, LMC_MEASURE_RELATIVE, 1e-9,
         K_GAUSS, 0},
        {"no grid holds the bound", 20000, LMC_BF16, LMC_ROLE_OTHER, 0, LMC_MEASURE_RELATIVE, 1e-3,
         K_GAUSS, 0},
        {"more than 1 % of its elements are exceptions", 20000, LMC_F32, LMC_ROLE_OTHER, 0,
         LMC_MEASURE_RELATIVE, 1e-5, K_WIDE, 0},
        {"it would not be a tenth smaller", 20000, LMC_F32, LMC_ROLE_OTHER, 8, LMC_MEASURE_NONE, 0,
         -3, 0},
        {"more than 1 % of its elements are exceptions", 20000, LMC_F32, LMC_ROLE_OTHER, 8,
         LMC_MEASURE_NONE, 0, -4, 0},
    };
    const size_t most = 20000;
    uint8_t *const x = (uint8_t *)malloc(8 * most), *const v = (uint8_t *)malloc(8 * most);
    memory_elements memory, other_memory;
    lmc_quantizer_options options;
    lmc_source elements;
    lmc_quantizer_info info;
    lmc_quantizer *q = NULL, *second = NULL;
    plan p;
    size_t i, k;
    if (x == NULL || v == NULL) abort();
    for (i = 0; i < COUNT(cases); i++) {
        const unsigned width = lmc_dtype_width(cases[i].dtype), as = width == 2 ? 2 : 4;
        const size_t size = cases[i].n * width;
        memset(&p, 0, sizeof p);
        p.dtype = cases[i].dtype;
        p.role = cases[i].role;
        p.n = cases[i].n;
        p.bits = cases[i].bits;
        p.measure = cases[i].measure;
        p.bound = cases[i].bound;
        t_note("reasons: %s, case %lu", cases[i].reason, (unsigned long)i);
        fill(x, v, p.n * width / as, as, cases[i].data < 0 ? K_MOMENT : (enum kind)cases[i].data,
             i);
        if (cases[i].data == -1) memset(x, 0, size);
        /* uses no element twice */
        if (cases[i].data == -3)
            for (k = 0; k < p.n; k++) put(x, k, as, 0x3F123456);
        if (cases[i].data == -4) memset(x, 0xFF, size);
        if (cases[i].data == -2)
            for (k = 0; k < p.n; k += 90) put(x, k, as, k % 4 ? 0x80000000 : 0x7FC12300);
        q = fit(&p, x, size, cases[i].pair ? v : NULL, NULL, &info);
        if (!q) continue;
        CHECK(info.is_lossless == (cases[i].reason[0] != 0));
        if (!CHECK(strcmp(info.reason, cases[i].reason) == 0)) printf("%s\n", info.reason);
        if (info.is_lossless) {
            CHECK(info.loss.generation == 0 && info.loss.measure == LMC_MEASURE_NONE &&
                  info.loss.error == 0);
            memcpy(v, x, size);
            CHECK_STATUS(lmc_quantizer_apply(q, 0, v, size, NULL), LMC_OK);
            CHECK(memcmp(v, x, size) == 0);
        }
        lmc_quantizer_free(q);
    }
    t_note("arguments");
    memset(&p, 0, sizeof p);
    p.dtype = LMC_F32;
    p.bits = 8;
    p.role = LMC_ROLE_FIRST_MOMENT;
    fill(x, v, most, 4, K_MOMENT, 1);
    elements = elements_of(&memory, x, 4 * most);
    for (i = 0; i < 25; i++) {
        lmc_source bad = elements, seconds = elements;
        options = options_of(&p);
        switch (i) {
        case 0: options.bits = 3; break;
        case 1: options.bits = 9; break;
        case 2: options.dtype = (enum lmc_dtype)LMC__DTYPE_COUNT; break;
        case 3: options.role = (enum lmc_role)3; break;
        case 4: options.generation = 255; break;
        case 5: bad.size = 4 * most - 1; break;
        case 6: bad.read_at = NULL; break;
        case 7: options.bits = 0; break;
        case 8:
        case 9:
        case 10:
        case 11:
        case 12:
        case 13:
            options.bits = 0;
            options.measure = i == 8   ? LMC_MEASURE_NONE
                              : i == 9 ? (enum lmc_measure)4
                                       : LMC_MEASURE_NMSE;
            options.bound = i == 10   ? 0
                            : i == 11 ? -0.1
                            : i == 12 ? 1
                            : i == 13 ? (double)float_of(0x7FC00000)
                                      : 0.1;
            break;
        case 14:
            seconds = elements_of(&other_memory, v, 4 * most - 4);
            options.second_elements = &seconds;
            break;
        case 15:
        case 16:
        case 17: { /* second moments' quantisers: of another size, another dtype, by updates
                      themselves */
            plan other = p;
            memory_elements others;
            lmc_source other_elements = elements_of(&others, v,
                                                    i == 15   ? 4 * most - 4
                                                    : i == 16 ? 2 * most
                                                              : 4 * most);
            lmc_quantizer_options other_options;
            other.role = i == 17 ? LMC_ROLE_FIRST_MOMENT : LMC_ROLE_SECOND_MOMENT;
            other.dtype = i == 16 ? LMC_BF16 : LMC_F32;
            other_options = options_of(&other);
            if (i == 17) other_options.second_elements = &elements;
            CHECK_STATUS(lmc_quantizer_fit(&second, &other_elements, &other_options), LMC_OK);
            options.second = second;
            seconds = elements_of(&other_memory, v, 4 * most);
            options.second_elements = &seconds;
            break;
        }
        case 18:
            CHECK_STATUS(lmc_quantizer_fit(NULL, &elements, &options), LMC_ERR_ARGUMENT);
            continue;
        case 19: CHECK_STATUS(lmc_quantizer_fit(&q, NULL, &options), LMC_ERR_ARGUMENT); continue;
        case 20: CHECK_STATUS(lmc_quantizer_fit(&q, &elements, NULL), LMC_ERR_ARGUMENT); continue;
        case 21: CHECK_STATUS(lmc_quantizer_get_info(NULL, &info), LMC_ERR_ARGUMENT); continue;
        case 22: /* bits and codes */
        case 23:
        case 24: /* or too few, or too many */
            options.n_codes = i == 22 ? 16 : i == 23 ? 1 : 257;
            if (i > 22) options.bits = 0;
            break;
        default: abort();
        }
        t_note("arguments: case %lu", (unsigned long)i);
        q = (lmc_quantizer *)&p;
        CHECK_STATUS(lmc_quantizer_fit(&q, &bad, &options), LMC_ERR_ARGUMENT);
        CHECK(q == NULL);
        if (second) lmc_quantizer_free(second);
        second = NULL;
    }
    lmc_quantizer_free(NULL);
    t_note("arguments of lmc_quantizer_apply");
    q = fit(&p, x, 4 * most, v, NULL, &info);
    if (q) {
        CHECK(!info.is_lossless);
        CHECK_STATUS(lmc_quantizer_apply(NULL, 0, x, 4, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 0, NULL, 4, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 0, x, 4, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 2, x, 4, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 0, x, 3, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 4 * most, x, 4, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, UINT64_MAX - 3, x, 4, v), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_apply(q, 4 * most, NULL, 0, NULL), LMC_OK);
    }
    lmc_quantizer_free(q);
    free(x);
    free(v);
}

/* A reader and an allocator that fail at each call in turn. */
static void test_fit_faults(void)
{
    const size_t n = 20000;
    uint8_t *const x = (uint8_t *)malloc(4 * n), *const v = (uint8_t *)malloc(4 * n);
    size_t i;
    int mode;
    if (x == NULL || v == NULL) abort();
    fill(x, v, n, 4, K_MOMENT, 3);
    for (mode = 0; mode < 14; mode++) {
        const int memory = mode % 2;
        long k;
        if (mode == 12) /* few values */
            for (i = 0; i < n; i++)
                put(x, i, 4, i % 6 ? 0x3F800000u + (uint32_t)(i * i % 6) * 0x00330000u : 0);
        for (k = 0; k < 1000; k++) {
            static lmc_quantizer *const untouched = NULL;
            memory_elements first, other;
            lmc_source elements = elements_of(&first, x, 4 * n), seconds;
            lmc_quantizer_options options;
            lmc_quantizer *q = untouched;
            enum lmc_status status;
            t_calls calls;
            t_heap heap;
            int failed;
            memset(&options, 0, sizeof options);
            memset(&calls, 0, sizeof calls);
            memset(&heap, 0, sizeof heap);
            calls.fail_at = memory ? -1 : k;
            heap.fail_at = memory ? k : -1;
            first.calls = &calls;
            options.dtype = LMC_F32;
            options.allocator = t_allocator(&heap);
            options.role = mode / 2 == 0   ? LMC_ROLE_OTHER
                           : mode / 2 == 1 ? LMC_ROLE_SECOND_MOMENT
                                           : LMC_ROLE_FIRST_MOMENT;
            if (mode / 2 == 4) options.measure = LMC_MEASURE_NMSE, options.bound = 0.01;
            else if (mode / 2 == 1) options.measure = LMC_MEASURE_RELATIVE, options.bound = 0.01;
            else if (mode / 2 >= 5) options.n_codes = 16;
            else options.bits = 6;
            if (mode / 2 >= 3) {
                seconds = elements_of(&other, v, 4 * n);
                options.second_elements = &seconds;
                other.calls = &calls;
            }
            if (mode / 2 == 1) elements.user = (first.data = v, &first);
            t_note("fit %d, %s %ld fails", mode / 2, memory ? "allocation" : "reading", k);
            status = lmc_quantizer_fit(&q, &elements, &options);
            failed = memory ? heap.calls > k : calls.calls > k;
            CHECK_STATUS(status, !failed ? LMC_OK : memory ? LMC_ERR_MEMORY : LMC_ERR_READ);
            CHECK((q != NULL) == !failed);
            if (!failed) {
                lmc_quantizer_info info;
                CHECK(lmc_quantizer_get_info(q, &info) == LMC_OK && !info.is_lossless);
            }
            lmc_quantizer_free(q);
            CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            if (!failed) break;
        }
        CHECK(k > 0 && k < 1000);
    }
    free(x);
    free(v);
}

/* -- tensors in memory -- */

static lmc_tensor_options tensor_options(enum lmc_dtype dtype, unsigned log2_block,
                                         const lmc_quantizer *q, const uint8_t *second, size_t size)
{
    lmc_tensor_options options;
    memset(&options, 0, sizeof options);
    options.dtype = dtype;
    options.log2_block = log2_block;
    options.quantizer = q;
    options.prediction = second;
    options.prediction_size = second ? size : 0;
    return options;
}

/* Encodes with exact room and workspace; returns a copy, or NULL. */
static uint8_t *encode(const uint8_t *src, size_t size, const lmc_tensor_options *options,
                       size_t *enc_size)
{
    const size_t ws_size = lmc_tensor_workspace_size(options),
                 bound = lmc_tensor_bound(size, options);
    *enc_size = 0;
    if (!CHECK_STATUS(lmc_tensor_encode(t_tail(&g_enc, bound), bound, enc_size, src, size, options,
                                        t_tail(&g_ws, ws_size), ws_size),
                      LMC_OK))
        return NULL;
    return (uint8_t *)t_copy(t_tail(&g_enc, bound), *enc_size);
}

static enum lmc_status decode(uint8_t *dst, uint64_t offset, size_t size, const uint8_t *enc,
                              size_t enc_size, uint64_t total, const lmc_tensor_options *options)
{
    const size_t ws_size = lmc_tensor_workspace_size(options);
    return lmc_tensor_decode_range(dst, size, enc, enc_size, offset, total, options,
                                   t_tail(&g_ws, ws_size), ws_size);
}

/* Blocks by layout. */
static void count_layouts(const uint8_t *enc, size_t enc_size, size_t layouts[8])
{
    size_t at = 0;
    memset(layouts, 0, 8 * sizeof layouts[0]);
    while (at + LMC_BLOCK_HEADER_SIZE <= enc_size) {
        layouts[enc[at + 2] >> 5]++;
        at += LMC_BLOCK_HEADER_SIZE + t_load32(enc + at + 8);
    }
    CHECK(at == enc_size);
}

/* x, coded by q, decodes to what lmc_quantizer_apply makes of it, with any threads, ranges and
 * capacities. Returns the size. */
static size_t try_tensor(const plan *p, const lmc_quantizer *q, const uint8_t *x,
                         const uint8_t *second, unsigned log2_block, size_t layouts[8])
{
    const size_t size = p->n * lmc_dtype_width(p->dtype), layout_room = 8;
    lmc_tensor_options options = tensor_options(p->dtype, log2_block, q, second, size);
    uint8_t *const src = t_tail(&g_src, size),
                   *const pair = second ? t_tail(&g_second, size) : NULL,
                   *const dst = t_tail(&g_dst, size);
    uint8_t *const y = quantized_copy(q, x, size, second), *enc;
    size_t enc_size, got, i;
    uint64_t seed = p->n;
    unsigned workers[] = {1, 3};
    memcpy(src, x, size);
    if (pair) memcpy(pair, second, size);
    options.prediction = pair;
    (void)layout_room;
    enc = encode(src, size, &options, &enc_size);
    if (enc) {
        CHECK(memcmp(src, x, size) == 0);
        count_layouts(enc, enc_size, layouts);
        CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_OK);
        CHECK(memcmp(dst, y, size) == 0);
        options.quantizer = NULL; /* decoding does not need it, with the block size set */
        if (log2_block) {
            memset(dst, 0x55, size);
            CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_OK);
            CHECK(memcmp(dst, y, size) == 0);
        }
        options.quantizer = q;
        if (pair) { /* in place */
            CHECK_STATUS(decode(pair, 0, size, enc, enc_size, size, &options), LMC_OK);
            CHECK(memcmp(pair, y, size) == 0);
            memcpy(pair, second, size);
        }
        for (i = 0; i < (t_quick ? 3u : 8u); i++) {
            const size_t from = t_below(&seed, size), part = t_below(&seed, size - from + 1);
            uint8_t *const piece = t_tail(&g_dst, part);
            CHECK_STATUS(decode(piece, from, part, enc, enc_size, size, &options), LMC_OK);
            CHECK(memcmp(piece, y + from, part) == 0);
        }
        for (i = 0; i < 2; i++) {
            lmc_parallel parallel = t_parallel(&workers[i]);
            uint8_t *other;
            options.parallel = &parallel;
            other = encode(src, size, &options, &got);
            CHECK(other && got == enc_size && memcmp(other, enc, got) == 0);
            free(other);
            CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_OK);
            CHECK(memcmp(dst, y, size) == 0);
            options.parallel = NULL;
        }
        CHECK_STATUS(lmc_tensor_encode(t_tail(&g_dst, enc_size), enc_size, &got, src, size,
                                       &options, g_ws.data, g_ws.cap),
                     LMC_OK);
        CHECK(got == enc_size && memcmp(t_tail(&g_dst, got), enc, got) == 0);
        for (i = 1; i < 100; i += 49)
            CHECK_STATUS(lmc_tensor_encode(t_tail(&g_dst, enc_size - i), enc_size - i, &got, src,
                                           size, &options, g_ws.data, g_ws.cap),
                         LMC_ERR_DST_TOO_SMALL);
        if (pair && layouts[2]) { /* another prediction, or none */
            size_t at = t_below(&seed, size);
            pair[at] ^= 0x40;
            i = 0;
            if (layouts[2] == layouts[0] + layouts[1] + layouts[2]) {
                /* this matters unless the scale is clamped, or the symbols are zero */
                enum lmc_status status = decode(dst, 0, size, enc, enc_size, size, &options);
                CHECK(status == LMC_ERR_BASE_WRONG || status == LMC_OK);
                for (i = 0; i < size; i++) pair[i] ^= 0x3F;
                status = decode(dst, 0, size, enc, enc_size, size, &options);
                CHECK(status == LMC_ERR_BASE_WRONG ||
                      (status == LMC_OK && memcmp(dst, y, size) == 0));
                /* damage of the payload is found first, with any prediction */
                enc[LMC_BLOCK_HEADER_SIZE] ^= 0xFF;
                CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_ERR_CHECKSUM);
                enc[LMC_BLOCK_HEADER_SIZE] ^= 0xFF;
                for (i = 0; i < size; i++) pair[i] ^= 0x3F;
            }
            options.prediction = NULL;
            CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_ERR_BASE_MISSING);
            options.prediction = pair;
            options.prediction_size = size - 1;
            CHECK_STATUS(decode(dst, 0, size, enc, enc_size, size, &options), LMC_ERR_BASE_WRONG);
        }
    }
    free(enc);
    free(y);
    return enc_size;
}

/* How many values the elements have; fewer than 1000. */
static unsigned count_values(const uint8_t *x, size_t n, unsigned width)
{
    uint32_t values[1000];
    unsigned n_values = 0, k;
    size_t i;
    for (i = 0; i < n && n_values < COUNT(values); i++) {
        const uint32_t v = get(x, i, width);
        for (k = 0; k < n_values && values[k] != v;) k++;
        if (k == n_values) values[n_values++] = v;
    }
    return n_values;
}

/* One scale for the whole tensor: the error is near the least that is possible, and there are no
 * more values than were asked for. The best n values for a uniform distribution are the middles of
 * n equal intervals, with the error 1 / n^2. */
static void test_codebooks(void)
{
    static const unsigned n_codes[] = {2, 3, 4, 16, 100, 256};
    const size_t n = 131072;
    uint8_t *const x = (uint8_t *)malloc(4 * n);
    size_t i, k, d;
    if (x == NULL) abort();
    for (d = 0; d < 2; d++) {
        const unsigned width = d ? 2 : 4;
        plan p;
        memset(&p, 0, sizeof p);
        p.dtype = d ? LMC_BF16 : LMC_F32;
        p.n = n;
        p.group = n;
        for (i = 0; i < n; i++) /* a permutation of equal distances; 0.5: none is zero */
            put(x, i, width, bits_of(((double)(i * 40503 % n) + 0.5) / (double)n - 0.5));
        for (k = 0; k < COUNT(n_codes); k++) {
            const double best = 1.0 / n_codes[k] / n_codes[k];
            lmc_quantizer_info info;
            lmc_quantizer *q;
            uint8_t *y;
            p.n_codes = n_codes[k];
            note_plan(&p);
            q = fit(&p, x, n * width, NULL, NULL, &info);
            if (!CHECK(q && !info.is_lossless)) continue;
            y = quantized_copy(q, x, n * width, NULL);
            CHECK(count_values(y, n, width) == info.n_codes && info.n_codes <= p.n_codes);
            CHECK(fabs(measured_error(&p, LMC_MEASURE_NMSE, x, y, NULL) / info.loss.error - 1) <
                  1e-3);
            if (getenv("LMC_TEST_VERBOSE"))
                printf("%u codes, error %.3f of the best\n", info.n_codes, info.loss.error / best);
            /* BF16 has hardly more than 256 values here */
            if (!d || p.n_codes <= 16) {
                CHECK(info.n_codes + 1 >= p.n_codes);
                CHECK(info.loss.error < best * (p.n_codes > 200 ? 1.3 : 1.03) &&
                      info.loss.error > best * 0.99);
            }
            free(y);
            lmc_quantizer_free(q);
        }
    }
    free(x);
}

/* Tensors of few values lose nothing, whatever the values are. */
static void test_few_values(void)
{
    enum { NEAR, ANY, ONE_SIGN, WITH_ZERO, KINDS_OF_VALUES };
    static const unsigned counts[] = {1, 2, 3, 15, 16, 17, 255, 256, 257};
    const size_t n = 32768;
    uint8_t *const x = (uint8_t *)malloc(4 * n);
    uint32_t values[257];
    size_t i, c, d;
    unsigned kind, n_tables = 0, n_lossy = 0;
    if (x == NULL) abort();
    for (d = 0; d < 2; d++)
        for (kind = 0; kind < KINDS_OF_VALUES; kind++)
            for (c = 0; c < COUNT(counts); c++) {
                const unsigned width = d ? 2 : 4, n_values = counts[c];
                const size_t size = n * width;
                uint64_t seed = 100 * kind + c;
                lmc_quantizer_info info;
                lmc_quantizer *q;
                size_t layouts[8];
                uint8_t *y;
                plan p;
                memset(&p, 0, sizeof p);
                p.dtype = d ? LMC_BF16 : LMC_F32;
                p.n = n;
                p.n_codes = n_values < 2 ? 2 : n_values > 256 ? 256 : n_values;
                for (i = 0; i < n_values; i++) {
                    uint32_t v = 0x3C000000u + ((uint32_t)i << 16) + ((uint32_t)(i % 2) << 31);
                    if (kind == ANY) /* all bits of a normal number */
                        v = 0x00800000u + (uint32_t)i * 0x700000u + (width == 4 ? 0x1357u : 0);
                    if (kind == ONE_SIGN) v &= 0x7FFFFFFF;
                    if (kind == WITH_ZERO && i == 0) v = 0;
                    values[i] = v;
                }
                for (i = 0; i < n; i++)
                    put(x, i, width, values[i < n_values ? i : t_below(&seed, n_values)]);
                for (i = 1000; i < n && c % 2; i += 7777) /* and some exceptions */
                    put(x, i, width, i % 2 ? 0x7FC10000 : 0x80000000);
                note_plan(&p);
                t_note("%u values of kind %u, width %u", n_values, kind, width);
                q = fit(&p, x, size, NULL, NULL, &info);
                if (!q) continue;
                if (n_values > 256) {
                    CHECK(info.is_lossless || (info.loss.generation == 1 && info.n_codes <= 256));
                    n_lossy += !info.is_lossless;
                } else {
                    y = quantized_copy(q, x, size, NULL);
                    CHECK(memcmp(x, y, size) == 0 && info.loss.generation == 0 &&
                          info.loss.error == 0 && info.loss.measure == LMC_MEASURE_NONE);
                    free(y);
                    if (!info.is_lossless) {
                        n_tables++;
                        CHECK(!info.is_grid && info.n_codes == n_values);
                        (void)try_tensor(&p, q, x, NULL, 14, layouts);
                        CHECK(layouts[2] == 2);
                        put(x, 5, width, 0x40490000); /* a value that came later */
                        (void)try_tensor(&p, q, x, NULL, 14, layouts);
                    } else
                        CHECK(n_values == 1 || (kind == ANY && !d) ||
                              (n_values == 256 && kind != WITH_ZERO) ||
                              strcmp(info.reason, "it would not be a tenth smaller") == 0);
                }
                lmc_quantizer_free(q);
            }
    if (getenv("LMC_TEST_VERBOSE")) printf("%u tables, %u with loss\n", n_tables, n_lossy);
    CHECK(n_tables > 12 && n_lossy > 1);
    free(x);
}

/* Zeros stay zero, rare ones beside the codebook; frequent ones are one of its values, and so are
 * other elements near them. Nothing else becomes zero. */
static void test_zeros_of_codebooks(void)
{
    static const struct {
        unsigned n_codes, of; /* one element in `of` is zero */
        int is_value;
    } cases[] = {{2, 7, 1}, {2, 9, 0}, {16, 60, 1}, {16, 70, 0}, {256, 1000, 1}, {256, 1200, 0}};
    const size_t n = 120000;
    uint8_t *const x = (uint8_t *)malloc(4 * n);
    size_t i, k, role;
    if (x == NULL) abort();
    for (role = 0; role < 2; role++)
        for (k = 0; k < COUNT(cases); k++) {
            lmc_quantizer_info info;
            lmc_quantizer *q;
            size_t zeros = 0, made = 0, lost = 0;
            uint64_t seed = k;
            uint8_t *y;
            plan p;
            memset(&p, 0, sizeof p);
            p.dtype = LMC_F32;
            p.role = role ? LMC_ROLE_SECOND_MOMENT : LMC_ROLE_OTHER;
            p.n = n;
            p.n_codes = cases[k].n_codes;
            p.group = n;
            for (i = 0; i < n; i++) {
                const double g = gauss(&seed);
                put(x, i, 4, i % cases[k].of ? bits_of(role ? 1e-9 * exp(g) : g) : 0);
            }
            note_plan(&p);
            t_note("one zero in %u", cases[k].of);
            q = fit(&p, x, 4 * n, NULL, NULL, &info);
            if (!CHECK(q && !info.is_lossless)) continue;
            y = quantized_copy(q, x, 4 * n, NULL);
            for (i = 0; i < n; i++) {
                const uint32_t a = get(x, i, 4), b = get(y, i, 4);
                zeros += a == 0;
                lost += a == 0 && b != 0;
                made += a != 0 && b == 0;
            }
            CHECK(lost == 0 && zeros >= n / cases[k].of);
            CHECK((made > 0) == (cases[k].is_value && role == 0));
            CHECK(count_values(y, n, 4) == info.n_codes);
            CHECK(cases[k].n_codes == 256 ? info.n_codes <= 256
                                          : info.n_codes == cases[k].n_codes + !cases[k].is_value);
            free(y);
            lmc_quantizer_free(q);
        }
    free(x);
}

/* Plans for tensors and damaged blocks: grids and tables, groups and updates, both dtypes. */
static const plan tensor_plans[] = {
    {LMC_F32, LMC_ROLE_SECOND_MOMENT, K_SECOND, 70000, 8, LMC_MEASURE_NONE, 0, 0, 0},
    {LMC_F32, LMC_ROLE_FIRST_MOMENT, K_MOMENT, 70000, 0, LMC_MEASURE_NONE, 0, 0, 256},
    {LMC_BF16, LMC_ROLE_SECOND_MOMENT, K_SECOND, 50001, 0, LMC_MEASURE_NONE, 0, 100, 16},
    {LMC_BF16, LMC_ROLE_FIRST_MOMENT, K_MOMENT, 50001, 0, LMC_MEASURE_NONE, 0, 0, 64},
    {LMC_F32, LMC_ROLE_SECOND_MOMENT, K_SECOND, 33333, 0, LMC_MEASURE_UPDATE, 0.005, 3000, 0},
    {LMC_F32, LMC_ROLE_FIRST_MOMENT, K_MOMENT, 33333, 0, LMC_MEASURE_UPDATE, 0.005, 0, 0},
    {LMC_BF16, LMC_ROLE_SECOND_MOMENT, K_SECOND, 40000, 0, LMC_MEASURE_UPDATE, 0.05, 70000, 0},
    {LMC_BF16, LMC_ROLE_FIRST_MOMENT, K_MOMENT, 40000, 0, LMC_MEASURE_UPDATE, 0.05, 0, 0},
    {LMC_F32, LMC_ROLE_OTHER, K_ODD, 49152, 0, LMC_MEASURE_RELATIVE, 1e-3, 17, 0},
    {LMC_BF16, LMC_ROLE_OTHER, K_GAUSS, 49953, 0, LMC_MEASURE_NONE, 0, 1000000, 32},
    {LMC_F32, LMC_ROLE_OTHER, K_ODD, 49152, 0, LMC_MEASURE_NMSE, 1e-4, 5000, 0},
    {LMC_F32, LMC_ROLE_OTHER, K_ODD, 49150, 0, LMC_MEASURE_NONE, 0, 256, 128},
};

static void test_tensors(void)
{
    size_t i, layouts[8], kind;
    for (i = 0; i < COUNT(tensor_plans); i++) {
        const plan *p = &tensor_plans[i];
        const unsigned width = lmc_dtype_width(p->dtype);
        const size_t size = p->n * width;
        uint8_t *const x = (uint8_t *)malloc(size), *const v = (uint8_t *)malloc(size),
                       *decoded = NULL;
        lmc_quantizer *q, *second = NULL;
        lmc_quantizer_info info;
        size_t lossless_size = 0, enc_size;
        if (x == NULL || v == NULL) abort();
        fill(x, v, p->n, width, p->kind, i);
        if (p->role == LMC_ROLE_FIRST_MOMENT) {
            second = fit(&tensor_plans[i - 1], v, size, NULL, NULL, &info);
            if (second) decoded = quantized_copy(second, v, size, NULL);
        }
        note_plan(p);
        q = fit(p, x, size, decoded ? v : NULL, second, &info);
        if (q && CHECK(!info.is_lossless)) {
            lmc_tensor_options options = tensor_options(p->dtype, 0, NULL, NULL, size), bad;
            free(encode(x, size, &options, &lossless_size));
            options = tensor_options(p->dtype, 0, q, decoded, size);
            enc_size = try_tensor(p, q, x, decoded, i % 3 ? 14 : 0, layouts);
            CHECK(layouts[2] >= (i % 3 ? 3 : 1) && layouts[0] + layouts[1] == 0);
            CHECK(enc_size < lossless_size - lossless_size / 10);
            /* as estimated; small blocks also have tables and headers */
            if (i % 3 == 0)
                CHECK((double)enc_size * 8 < (info.bits * 1.1 + 0.2) * (double)p->n + 8 * 600 &&
                      (double)enc_size * 8 > (info.bits * 0.6 - 0.1) * (double)p->n);
            note_plan(p);
            /* elements that it was not fitted to, which may stay unquantised */
            for (kind = 0; kind < KINDS; kind++) {
                if (t_quick && kind != K_BITS) continue;
                fill(x, NULL, p->n, width, (enum kind)kind, 5);
                t_note("quantiser %lu, %s", (unsigned long)i, kind_names[kind]);
                (void)try_tensor(p, q, x, decoded, 14, layouts);
                if (kind == K_BITS && (p->measure != LMC_MEASURE_RELATIVE)) CHECK(layouts[0] >= 2);
            }
            bad = options;
            bad.dtype = p->dtype == LMC_F32 ? LMC_I32 : LMC_F16;
            CHECK_STATUS(lmc_tensor_encode(g_enc.data, g_enc.cap, &enc_size, x, size, &bad,
                                           g_ws.data, g_ws.cap),
                         LMC_ERR_ARGUMENT);
            bad = options;
            bad.prediction_size = bad.prediction ? size - width : 0;
            CHECK_STATUS(lmc_tensor_encode(g_enc.data, g_enc.cap, &enc_size, x, size - width, &bad,
                                           g_ws.data, g_ws.cap),
                         LMC_ERR_ARGUMENT);
            bad = options;
            bad.prediction = bad.prediction ? NULL : x;
            bad.prediction_size = size;
            CHECK_STATUS(lmc_tensor_encode(g_enc.data, g_enc.cap, &enc_size, x, size, &bad,
                                           g_ws.data, g_ws.cap),
                         LMC_ERR_ARGUMENT);
        }
        lmc_quantizer_free(q);
        lmc_quantizer_free(second);
        free(decoded);
        free(x);
        free(v);
    }
}

/* Updates so large, or so small, that the format hardly has a bias for them: they can be encoded
 * and decoded. */
static void test_far_updates(void)
{
    const size_t n = 20000;
    uint8_t *const x = (uint8_t *)malloc(4 * n), *const v = (uint8_t *)malloc(4 * n);
    int exponent, quantized = 0, kept = 0;
    size_t i;
    if (x == NULL || v == NULL) abort();
    for (exponent = 30; exponent <= 80; exponent += t_quick ? 5 : 1) {
        plan p;
        lmc_quantizer *q;
        lmc_quantizer_info info;
        uint64_t seed = 9;
        size_t layouts[8];
        const int down = exponent % 2;
        for (i = 0; i < n; i++) {
            const double g = gauss(&seed);
            put(x, i, 4, bits_of(ldexp(g, down ? -exponent - 40 : exponent)));
            put(v, i, 4, bits_of(ldexp(1 + g * g, down ? 100 : -100)));
        }
        memset(&p, 0, sizeof p);
        p.dtype = LMC_F32;
        p.role = LMC_ROLE_FIRST_MOMENT;
        p.n = n;
        p.measure = LMC_MEASURE_UPDATE;
        p.bound = 0.3;
        p.kind = K_MOMENT;
        note_plan(&p);
        q = fit(&p, x, 4 * n, v, NULL, &info);
        t_note("updates of 2^%d", down ? -exponent - 40 - 50 : exponent + 26);
        if (q && !info.is_lossless) (void)try_tensor(&p, q, x, v, 14, layouts);
        if (q) *(info.is_lossless ? &kept : &quantized) += 1;
        lmc_quantizer_free(q);
    }
    CHECK(kept > 0 && quantized > 0);
    free(x);
    free(v);
}

/* Uneven errors: a group that outweighs all others together, updates that are all alike, one far
 * above the rest. The reported loss is right, and bounds are kept. */
static void test_uneven_losses(void)
{
    const size_t n = 65536;
    uint8_t *const x = (uint8_t *)malloc(4 * n), *const v = (uint8_t *)malloc(4 * n);
    unsigned kind, bits;
    size_t i;
    if (x == NULL || v == NULL) abort();
    for (kind = 0; kind < 3; kind++)
        for (bits = 0; bits <= 8; bits += 4) {
            plan p;
            lmc_quantizer *q;
            lmc_quantizer_info info;
            uint64_t seed = 3;
            memset(&p, 0, sizeof p);
            p.dtype = LMC_F32;
            p.role = kind ? LMC_ROLE_FIRST_MOMENT : LMC_ROLE_OTHER;
            p.n = n;
            p.bits = bits;
            p.measure = kind ? LMC_MEASURE_UPDATE : LMC_MEASURE_NMSE;
            p.bound = kind ? 0.1 : 1e-3;
            p.group = 64;
            p.kind = K_MOMENT;
            for (i = 0; i < n; i++) {
                const double g = gauss(&seed) * exp(gauss(&seed));
                put(x, i, 4,
                    bits_of(kind     ? 0.1 * g
                            : i < 64 ? (i % 2 ? 1000 : -1000) * (1 + 0.01 * gauss(&seed))
                                     : g));
                put(v, i, 4, bits_of(kind == 1 ? 0.05 * g * g : 1 + g * g));
            }
            if (kind == 2) { /* in the sample, which is all elements */
                put(x, 777, 4, bits_of(1e-3));
                put(v, 777, 4, 0);
            }
            t_note("uneven losses %u, %u bits", kind, bits);
            q = fit(&p, x, 4 * n, kind ? v : NULL, NULL, &info);
            if (CHECK(q != NULL && !info.is_lossless)) {
                uint8_t *const y = quantized_copy(q, x, 4 * n, kind ? v : NULL);
                double lost;
                if (kind == 2) { /* it is an exception, so it does not count */
                    CHECK(get(y, 777, 4) == get(x, 777, 4));
                    put(x, 777, 4, 0);
                    put(y, 777, 4, 0);
                }
                lost = measured_error(&p, p.measure, x, y, kind ? v : NULL);
                /* updates are measured by their scales, which are within 6 % of sqrt(v) */
                CHECK(bits || lost <= p.bound * (kind ? 1.03 : 1));
                /* the power includes exceptions here; scales are within 6 % */
                CHECK(lost <= info.loss.error * 1.07 && info.loss.error <= lost * 1.25);
                free(y);
            }
            lmc_quantizer_free(q);
        }
    free(x);
    free(v);
}

/* -- damaged blocks -- */

typedef struct sample {
    uint8_t *block, *content, *prediction; /* of the block; NULL */
    size_t size;                           /* of the block */
    lmc_block_info info;
    uint32_t number;
} sample;

/* Header_CRC; Payload_CRC, if it has one and all of the payload is there. */
static void repair(uint8_t *block, size_t size, uint32_t number)
{
    uint8_t place[4];
    if (block[2] & 4 && size >= LMC_BLOCK_HEADER_SIZE)
        t_store32(block + 16,
                  t_crc32c(0, block + LMC_BLOCK_HEADER_SIZE, size - LMC_BLOCK_HEADER_SIZE));
    t_store32(place, number);
    t_store32(block + 20, t_crc32c(t_crc32c(0, place, 4), block, 20));
}

/* The last block that plan number i makes, which is small. */
static int make_sample(sample *s, size_t i)
{
    const plan *p = &tensor_plans[i];
    const unsigned width = lmc_dtype_width(p->dtype);
    const size_t size = p->n * width;
    uint8_t *const x = allocate(size), *const v = allocate(size), *decoded = NULL, *enc = NULL;
    lmc_quantizer *q, *second = NULL;
    lmc_quantizer_info info;
    size_t at = 0, from = 0, enc_size;
    memset(s, 0, sizeof *s);
    fill(x, v, p->n, width, p->kind, i);
    if (p->role == LMC_ROLE_FIRST_MOMENT) {
        second = fit(&tensor_plans[i - 1], v, size, NULL, NULL, &info);
        if (second) decoded = quantized_copy(second, v, size, NULL);
    }
    /* so that there are exceptions */
    for (at = p->n - 100; at < p->n - 90; at++)
        put(x, at, width, 0x7FC00000 + (((uint32_t)at & 15) << 16));
    q = fit(p, x, size, decoded ? v : NULL, second, &info);
    if (q && CHECK(!info.is_lossless)) {
        const lmc_tensor_options options = tensor_options(p->dtype, 14, q, decoded, size);
        enc = encode(x, size, &options, &enc_size);
    }
    for (at = 0; enc && at < enc_size; at += s->info.encoded_size) {
        s->size = enc_size - at;
        if (!CHECK_STATUS(lmc_block_parse(enc + at, s->size, s->number, &s->info), LMC_OK)) break;
        if (at + s->info.encoded_size == enc_size) break;
        from += s->info.size;
        s->number++;
    }
    if (enc && CHECK(s->size == s->info.encoded_size && enc[at + 2] >> 5 == 2)) {
        s->block = (uint8_t *)t_copy(enc + at, s->size);
        CHECK_STATUS(lmc_quantizer_apply(q, 0, x, size, decoded), LMC_OK);
        s->content = (uint8_t *)t_copy(x + from, s->info.size);
        if (decoded) s->prediction = (uint8_t *)t_copy(decoded + from, s->info.size);
    }
    lmc_quantizer_free(q);
    lmc_quantizer_free(second);
    free(decoded);
    free(enc);
    free(x);
    free(v);
    return s->block != NULL;
}

static void free_sample(sample *s)
{
    free(s->block);
    free(s->content);
    free(s->prediction);
}

/* Decodes a block of that size, with everything between guard pages. */
static enum lmc_status decode_sample(const sample *s, const uint8_t *block, size_t size)
{
    const size_t ws_size = lmc_block_workspace_size(s->info.n, s->info.width);
    uint8_t *const src = t_tail(&g_src, size), *const dst = t_tail(&g_dst, s->info.size),
                   *const pair = s->prediction ? t_tail(&g_second, s->info.size) : NULL;
    enum lmc_status status;
    size_t got = 77;
    memcpy(src, block, size);
    if (pair) memcpy(pair, s->prediction, s->info.size);
    status = t_block_decode(dst, s->info.size, &got, src, size, pair, pair ? s->info.size : 0,
                            s->number, t_tail(&g_ws, ws_size), ws_size);
    if (status == LMC_OK) CHECK(got == s->info.size && memcmp(dst, s->content, got) == 0);
    else CHECK(got == 77);
    if (pair) { /* the same in place, where an error leaves the prediction as it was */
        CHECK_STATUS(t_block_decode(pair, s->info.size, &got, src, size, pair, s->info.size,
                                    s->number, t_tail(&g_ws, ws_size), ws_size),
                     status);
        CHECK(memcmp(pair, status ? s->prediction : s->content, s->info.size) == 0);
    }
    return status;
}

/* The payload's first 32 bytes: values out of range, or that contradict others. */
static void refuse_fields(const sample *s)
{
    uint8_t *const block = allocate(s->size + 1), *const p = block + LMC_BLOCK_HEADER_SIZE;
    const uint8_t *const good = s->block + LMC_BLOCK_HEADER_SIZE;
    const int is_log = good[0] & 1, is_table = good[0] >> 2 & 1,
              is_predicted = s->prediction != NULL;
    const unsigned table_size = t_load16(good + 2);
    const uint32_t group_size = t_load32(good + 20), n = s->info.n,
                   n_exceptions = t_load32(good + 28);
    const size_t positions = 32 + 2 * table_size,
                 groups = positions + n_exceptions * (4 + s->info.width);
    int i;
    for (i = 0; i < 60 && CHECK(n_exceptions >= 2); i++) {
        /* if the payload's CRC is right, the prediction is reported as wrong */
        const enum lmc_status in_payload = is_predicted ? LMC_ERR_BASE_WRONG : LMC_ERR_CORRUPT;
        enum lmc_status want = in_payload;
        size_t size = s->size;
        memcpy(block, s->block, size);
        switch (i) {
        case 0: p[0] |= 8; break;
        case 1: p[0] |= 128; break;
        case 2: p[0] ^= 1; break; /* it contradicts step */
        case 3:
            if (is_log) continue;
            p[0] |= 2;
            break;                /* a sign, without log */
        case 4: p[0] ^= 4; break; /* table */
        case 5: p[1] = 9; break;
        case 6: p[1] = 255; break;
        case 7:
            if (!is_table) continue;
            p[1] = 1;
            break;
        case 8:
            t_store16(p + 2, 0);
            if (!is_table) continue;
            break;
        case 9: t_store16(p + 2, 256); break;
        case 10: t_store16(p + 2, 0xFFFF); break;
        case 11:
            if (is_table) continue;
            t_store16(p + 2, 1);
            break;
        case 12: t_store32(p + 4, 1); break;
        case 13: t_store32(p + 4, 0u - 65536u); break;
        case 14: t_store32(p + 4, 0x7FFFFFFF); break;
        case 15: t_store32(p + 4, 0x80000000); break;
        case 16: t_store32(p + 8, is_log ? 0 : 1); break;
        case 17: t_store32(p + 8, (1u << 24) + 1); break;
        case 18: t_store32(p + 8, 0xFFFFFFFF); break;
        case 19: t_store32(p + 12, is_predicted ? (1u << 30) + 1 : 1); break;
        case 20: t_store32(p + 12, is_predicted ? 0u - (1u << 30) - 1 : 0xFFFFFFFF); break;
        case 21: t_store32(p + 12, 0x80000000); break;
        case 22: t_store32(p + 16, is_predicted ? 0x7F800001 : 1); break;
        case 23: t_store32(p + 16, 0xFFFFFFFF); break;
        case 24: t_store32(p + 20, is_predicted ? 1 : 0); break;
        case 25: t_store32(p + 20, 0x80000000); break;
        case 26: t_store32(p + 24, is_predicted ? 1 : 0); break;
        case 27: t_store32(p + 24, is_predicted ? 0xFFFFFFFF : group_size + 1); break;
        case 28: t_store32(p + 28, n + 1); break;
        case 29: t_store32(p + 28, 0xFFFFFFFF); break;
        case 30:
            if (!is_table) continue;
            t_store16(p + 32, 0);
            break;
        case 31:
            if (table_size < 2) continue;
            t_store16(p + 34, t_load16(p + 32));
            break;
        case 32:
            if (table_size < 2) continue;
            t_store16(p + 32, 0xFFFF);
            break;
        case 33: t_store32(p + positions + 4, t_load32(p + positions)); break;
        case 34: t_store32(p + positions + 4 * (n_exceptions - 1), n); break;
        case 35: t_store32(p + positions, 0xFFFFFFFF); break;
        case 36:
            if (!is_predicted) continue;
            p[0] |= 1;
            t_store32(p + 8, 1);
            break; /* log of updates */
        /* scales: with one group, its lists are constants */
        case 37:
        case 38:
        case 39:
            if (is_predicted || group_size < n || t_load32(p + 24) < n) continue;
            CHECK(p[groups] == PLANE_CONSTANT && p[groups + 2] == PLANE_CONSTANT);
            if (i == 37) p[groups + 1] = 0x7F, p[groups + 3] = 0;
            if (i == 38) p[groups + 1] = is_log ? 0x80 : 0x01, p[groups + 3] = is_log ? 0x7F : 0x77;
            if (i == 39) p[groups + 3] |= 0x80;
            break;
        case 40:
            p[size - LMC_BLOCK_HEADER_SIZE] = 0;
            t_store32(block + 8, t_load32(block + 8) + 1);
            size++;
            break;
        case 41:
            t_store32(block + 8, t_load32(block + 8) - 1);
            size--;
            break;
        case 42:
        case 43:
        case 44:
        case 45: { /* codes that are all the same */
            size_t at = groups;
            if (!is_table || !(is_predicted || group_size >= n) ||
                (!is_predicted && t_load32(p + 24) < n))
                continue;
            if (!is_predicted) at += 4;
            p[at] = PLANE_CONSTANT;
            p[at + 1] = (uint8_t)(i == 42 ? table_size : i == 43 ? table_size + 1 : 255);
            size = at + 2;
            if (i == 42 && !is_predicted) want = LMC_ERR_CHECKSUM;
            if ((i != 42 && table_size == 255)) continue;
            if (i == 45) { /* or one in a list */
                p[at] = PLANE_RAW;
                size = at + 1 + n;
                if (size + LMC_BLOCK_HEADER_SIZE > s->size || size >= s->info.size) continue;
                memset(p + at + 1, 0, n);
                p[at + n / 2] = (uint8_t)(table_size + 1);
            }
            t_store32(block + 8, (uint32_t)size);
            size += LMC_BLOCK_HEADER_SIZE;
            break;
        }
        /* the header */
        case 46:
            block[2] |= 1;
            want = LMC_ERR_CORRUPT;
            break; /* only other layouts have it */
        case 47:
            block[2] |= 2;
            want = LMC_ERR_CORRUPT;
            break;
        case 48:
            block[3] |= 1;
            want = LMC_ERR_CORRUPT;
            break;
        case 49:
            block[3] |= 16;
            want = LMC_ERR_CORRUPT;
            break;
        case 50:
            block[2] |= 3;
            want = LMC_ERR_UNSUPPORTED;
            break;
        case 51:
            block[2] |= 8;
            want = LMC_ERR_UNSUPPORTED;
            break;
        case 52:
            block[3] |= 32;
            want = LMC_ERR_CORRUPT;
            break;
        case 53: /* another layout, of which the payload is not */
            block[2] |= 32;
            want = LMC_ERR_CORRUPT;
            break;
        case 54:
            block[2] |= 128;
            want = LMC_ERR_UNSUPPORTED;
            break;
        case 55:
            block[1] = 1;
            t_store32(block + 4, (uint32_t)s->info.size);
            want = LMC_ERR_CORRUPT;
            break; /* of other widths */
        case 56:
            block[1] = 8;
            t_store32(block + 4, (uint32_t)(s->info.size / 8));
            want = LMC_ERR_CORRUPT;
            break;
        case 57:
            if (is_predicted) continue;
            t_store32(block + 16, 1);
            want = LMC_ERR_CORRUPT;
            break;
        case 58:
            t_store32(block + 8, (uint32_t)s->info.size);
            want = LMC_ERR_CORRUPT;
            break;
        default: continue;
        }
        repair(block, size, s->number);
        t_note("field %d of a%s%s%s block refused", i, is_log ? " log" : "",
               is_table ? " table" : "", is_predicted ? " predicted" : "");
        CHECK_STATUS(decode_sample(s, block, size), want);
    }
    if (!is_predicted) { /* a header that claims a prediction */
        sample other = *s;
        uint8_t *const zeros = (uint8_t *)calloc(1, s->info.size);
        if (zeros == NULL) abort();
        other.prediction = zeros;
        memcpy(block, s->block, s->size);
        block[2] |= 4;
        repair(block, s->size, s->number);
        CHECK_STATUS(decode_sample(&other, block, s->size), LMC_ERR_BASE_WRONG);
        free(zeros);
    }
    free(block);
}

static void test_damage(void)
{
    size_t i, k, j;
    for (i = 0; i < COUNT(tensor_plans); i++) {
        sample s;
        uint64_t seed = i + 1;
        uint8_t *block;
        if (!make_sample(&s, i)) continue;
        t_note("sample %lu", (unsigned long)i);
        CHECK_STATUS(decode_sample(&s, s.block, s.size), LMC_OK);
        refuse_fields(&s);
        block = allocate(s.size);
        /* cut */
        for (k = 0; k < s.size; k += 1 + k / 20) {
            t_note("sample %lu cut to %lu", (unsigned long)i, (unsigned long)k);
            CHECK_STATUS(decode_sample(&s, s.block, k), LMC_ERR_TRUNCATED);
            if (k < LMC_BLOCK_HEADER_SIZE) continue;
            memcpy(block, s.block, k);
            t_store32(block + 8, (uint32_t)(k - LMC_BLOCK_HEADER_SIZE));
            repair(block, k, s.number);
            CHECK_STATUS(decode_sample(&s, block, k),
                         s.prediction ? LMC_ERR_BASE_WRONG : LMC_ERR_CORRUPT);
        }
        /* bytes of the payload, mostly of its head */
        for (k = 0; k < (t_quick ? 300u : t_long ? 100000u : 3000u); k++) {
            enum lmc_status status;
            const size_t n = 1 + t_below(&seed, 4), room = s.size - LMC_BLOCK_HEADER_SIZE;
            memcpy(block, s.block, s.size);
            for (j = 0; j < n; j++) {
                uint8_t *const at = block + LMC_BLOCK_HEADER_SIZE +
                                    (t_below(&seed, 2) ? t_below(&seed, room < 100 ? room : 100)
                                                       : t_below(&seed, room));
                const uint64_t r = t_random(&seed);
                switch (r % 4) {
                case 0: ++*at; break;
                case 1: *at ^= (uint8_t)(1u << (r >> 8 & 7)); break;
                case 2: *at = (uint8_t)(r >> 8); break;
                default: *at = r >> 8 & 1 ? 255 : 0;
                }
            }
            if (k % 3 == 0) { /* of the header, too, with its CRC made right; or not */
                block[t_below(&seed, 20)] ^= (uint8_t)(1u << t_below(&seed, 8));
                if (k % 6) repair(block, s.size, s.number);
            } else if (s.prediction && k % 2) repair(block, s.size, s.number);
            t_note("sample %lu, damage %lu", (unsigned long)i, (unsigned long)k);
            status = decode_sample(&s, block, s.size);
            if (memcmp(block, s.block, s.size) == 0) CHECK_STATUS(status, LMC_OK);
            else if (k % 3)
                CHECK((s.prediction && k % 2
                           ? status == LMC_ERR_BASE_WRONG
                           : status == LMC_ERR_CORRUPT || status == LMC_ERR_CHECKSUM) ||
                      (status == LMC_OK &&
                       memcmp(t_tail(&g_dst, s.info.size), s.content, s.info.size) == 0));
            else CHECK(status != LMC_OK || memcmp(block + 4, s.block + 4, 12) == 0);
        }
        free(block);
        free_sample(&s);
    }
}

/* -- snapshots -- */

/* Tensors, their quantisers, the snapshot that is written, and the one that is expected back. */
enum { V0, V1, W, M0, M1, N0, G, SMALL, PARTS };
typedef struct states {
    part parts[PARTS], decoded[PARTS];
    lmc_quantizer *quantizers[PARTS];
    lmc_twin twins[PARTS];
    t_model source, expected;
    int one_file;
    own self; /* what is read back */
} states;

static void add_states(states *s, t_model *model, const part *parts, int with_quantizers)
{
    static const size_t second_order[] = {V0, W, V1}, first_order[] = {M0, SMALL, M1, N0, G},
                        one_order[] = {V0, W, V1, M0, SMALL, M1, N0, G};
    size_t i, k;
    memset(model, 0, sizeof *model);
    if (s->one_file) add_shard(model, "", parts, one_order, 8);
    else {
        add_shard(model, "b/second.bin", parts, second_order, 3);
        add_text(model, "text", 1000, 3, SIZE_MAX);
        add_shard(model, "a/first.bin", parts, first_order, 5);
    }
    for (i = 0; i < model->n_files; i++)
        for (k = 0; k < model->files[i].file.n_tensors; k++) {
            const lmc_tensor *const t = &model->files[i].file.tensors[k];
            lmc_tensor_hints *const h = &model->files[i].hints[k];
            size_t number = 0;
            while (strcmp(parts[number].name, t->name) != 0) number++;
            if (number == V0 || number == V1) { /* where the other moments find it */
                s->twins[number == V0 ? M0 : M1].file_number = i;
                s->twins[number == V0 ? M0 : M1].offset = t->offset;
                s->twins[N0] = s->twins[M0];
            }
            h->twin = number == M0 || number == M1 || number == N0 ? &s->twins[number] : NULL;
            if (with_quantizers) h->quantizer = s->quantizers[number];
        }
}

static void make_states(states *s, size_t n, int one_file)
{
    static const char *const names[] = {"v.0", "v.1", "w", "m.0", "m.1", "n.0", "g", "small"};
    size_t i;
    memset(s, 0, sizeof *s);
    s->one_file = one_file;
    for (i = 0; i < PARTS; i++) {
        const int is_bf16 = i == V1 || i == M1;
        s->parts[i] =
            make_part(names[i], is_bf16 ? "BF16" : "F32", 2,
                      i == W || i == SMALL ? 20 : n / 50 + (is_bf16 ? 3 : 0), 50, T_GAUSS, i + 1);
    }
    fill(s->parts[M0].data, s->parts[V0].data, s->parts[M0].size / 4, 4, K_MOMENT, 1);
    fill(s->parts[N0].data, NULL, s->parts[N0].size / 4, 4, K_MOMENT, 1);
    /* another first moment of the same second moment */
    for (i = 0; i < s->parts[N0].size; i += 12) s->parts[N0].data[i] ^= 0x55;
    fill(s->parts[M1].data, s->parts[V1].data, s->parts[M1].size / 2, 2, K_MOMENT, 2);
    fill(s->parts[G].data, NULL, s->parts[G].size / 4, 4, K_ODD, 3);
    for (i = 0; i < PARTS; i++) {
        const int is_first = i == M0 || i == M1 || i == N0;
        const size_t second = i == M1 ? V1 : V0;
        plan p;
        lmc_quantizer_info info;
        memset(&p, 0, sizeof p);
        s->decoded[i] = s->parts[i];
        s->decoded[i].data = (uint8_t *)t_copy(s->parts[i].data, s->parts[i].size);
        if (i == W) continue;
        p.dtype = i == V1 || i == M1 ? LMC_BF16 : LMC_F32;
        p.role = i == V0 || i == V1 ? LMC_ROLE_SECOND_MOMENT
                 : is_first         ? LMC_ROLE_FIRST_MOMENT
                                    : LMC_ROLE_OTHER;
        p.group = 50;
        if (i == N0) p.measure = LMC_MEASURE_UPDATE, p.bound = 0.02;
        else if (i == G) p.measure = LMC_MEASURE_RELATIVE, p.bound = 1e-3;
        else if (i == V0 || i == M1) p.n_codes = i == V0 ? 256 : 32;
        else p.bits = 8;
        t_note("part %s", names[i]);
        s->quantizers[i] =
            fit(&p, s->parts[i].data, s->parts[i].size, is_first ? s->parts[second].data : NULL,
                is_first ? s->quantizers[second] : NULL, &info);
        if (s->quantizers[i] == NULL) abort();
        CHECK(info.is_lossless == (i == SMALL));
        CHECK_STATUS(lmc_quantizer_apply(s->quantizers[i], 0, s->decoded[i].data,
                                         s->decoded[i].size,
                                         is_first ? s->decoded[second].data : NULL),
                     LMC_OK);
    }
    add_states(s, &s->source, s->parts, 1);
    add_states(s, &s->expected, s->decoded, 0);
    s->self.model = &s->source;
}

static void free_states(states *s)
{
    size_t i;
    for (i = 0; i < PARTS; i++) lmc_quantizer_free(s->quantizers[i]);
    free_parts(s->parts, PARTS);
    free_parts(s->decoded, PARTS);
    t_free_model(&s->source);
    t_free_model(&s->expected);
}

static lmc_writer_options states_options(states *s)
{
    lmc_writer_options options;
    memset(&options, 0, sizeof options);
    options.read_back = read_own;
    options.user = &s->self;
    return options;
}

static const lmc_tensor *find_tensor(const t_model *model, const char *name)
{
    size_t i, k;
    for (i = 0; i < model->n_files; i++)
        for (k = 0; k < model->files[i].file.n_tensors; k++)
            if (strcmp(model->files[i].file.tensors[k].name, name) == 0)
                return &model->files[i].file.tensors[k];
    abort();
}

static lmc_tensor_hints *find_hints(const t_model *model, const lmc_tensor *t)
{
    size_t i;
    for (i = 0; i < model->n_files; i++) {
        const lmc_file *const f = &model->files[i].file;
        if (f->n_tensors && t >= f->tensors && t < f->tensors + f->n_tensors)
            return &model->files[i].hints[t - f->tensors];
    }
    abort();
}

/* Restores and reads; the result must be the expected snapshot. */
static void check_snapshot(const t_model *expected, t_memory *out, const lmc_base *base,
                           const lmc_parallel *parallel)
{
    lmc_restore_options restore;
    lmc_reader_options read;
    uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
    int wrong;
    memset(&restore, 0, sizeof restore);
    memset(&read, 0, sizeof read);
    restore.parallel = read.parallel = parallel;
    restore.base = read.base = base;
    restore.read_back = t_on_read_back;
    restore.check_hashes = 1; /* if there are any: of quantised elements */
    CHECK_STATUS(t_restore_model(expected, out, &restore, id, &wrong), LMC_OK);
    t_model_fingerprint(expected, want);
    CHECK(!wrong && memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
    CHECK_STATUS(t_read_model(expected, out, &read, &wrong), LMC_OK);
    CHECK(!wrong);
}

/* Readers report the losses that the quantisers reported. */
static void check_losses(const states *s, t_memory *out, unsigned generation)
{
    lmc_reader *const reader = open_memory(out, NULL, NULL);
    size_t i, number;
    for (i = 0; reader && i < PARTS; i++) {
        const lmc_tensor *t = NULL;
        lmc_quantizer_info info;
        memset(&info, 0, sizeof info);
        if (s->quantizers[i]) CHECK_STATUS(lmc_quantizer_get_info(s->quantizers[i], &info), LMC_OK);
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, s->parts[i].name, &number, &t), LMC_OK);
        t_note("loss of %s", s->parts[i].name);
        if (t)
            CHECK(t->loss.generation == (info.loss.generation ? generation : 0) &&
                  t->loss.measure == info.loss.measure &&
                  fabs(t->loss.error - info.loss.error) < 1e-9);
    }
    lmc_reader_free(reader);
}

/* Sets the snapshot's own quantisers into the model; the caller frees what was read. */
static void recover(const t_model *model, lmc_reader *reader, lmc_quantizer **quantizers,
                    lmc_twin *twins, int is_whole)
{
    size_t i, k, n = 0;
    for (i = 0; i < model->n_files; i++)
        for (k = 0; k < model->files[i].file.n_tensors; k++, n++) {
            lmc_tensor *const t = (lmc_tensor *)(uintptr_t)&model->files[i].file.tensors[k];
            lmc_tensor_hints *const h = &model->files[i].hints[k];
            const lmc_tensor *const there = &lmc_reader_get_file(reader, i)->tensors[k];
            lmc_quantizer_info info;
            quantizers[n] = NULL;
            memset(&twins[n], 0xFF, sizeof twins[n]);
            t_note("recovering %s", t->name);
            if (!CHECK_STATUS(
                    lmc_quantizer_recover(&quantizers[n], reader, i, there, &twins[n], NULL),
                    LMC_OK))
                continue;
            CHECK_STATUS(lmc_quantizer_get_info(quantizers[n], &info), LMC_OK);
            if (is_whole) CHECK(info.is_lossless == (there->loss.generation == 0));
            if (there->loss.generation)
                CHECK(memcmp(&info.loss, &there->loss, sizeof info.loss) == 0);
            if (is_whole && h->twin)
                CHECK(twins[n].file_number == h->twin->file_number &&
                      twins[n].offset == h->twin->offset &&
                      twins[n].conversion == LMC_CONVERT_NONE);
            h->quantizer = quantizers[n];
            h->twin = twins[n].file_number == (size_t)-1 ? NULL : &twins[n];
            t->loss = there->loss;
        }
}

static void test_snapshots(void)
{
    static states s;
    unsigned n_workers = 3;
    const lmc_parallel parallel = t_parallel(&n_workers);
    int mode;
    for (mode = t_quick ? 2 : 0; mode < (t_quick ? 3 : 4); mode++) {
        static const size_t pieces[] = {0, 999, T_STREAM, 77777};
        lmc_writer_options options;
        lmc_quantizer *recovered[PARTS];
        lmc_twin twins[PARTS];
        t_memory first, again;
        lmc_reader *reader;
        uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
        size_t i, full_size;
        /* blocks of 2^18 elements and 2^14; one of 50 */
        make_states(&s, mode == 0 ? 300000 : 16384 * (size_t)mode + (mode == 2 ? 16434 : 17000),
                    mode % 2);
        options = states_options(&s);
        options.log2_block = mode ? 14 : 0;
        options.level = mode == 3 ? LMC_LEVEL_ARCHIVE : LMC_LEVEL_DEFAULT;
        options.content_hashes = mode == 2;
        memset(&first, 0, sizeof first);
        t_note("snapshot %d", mode);
        CHECK_STATUS(t_write_model(&s.source, &first, &options, 0, id), LMC_OK);
        t_model_fingerprint(&s.expected, want);
        CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
        check_snapshot(&s.expected, &first, NULL, NULL);
        check_snapshot(&s.expected, &first, NULL, &parallel);
        check_losses(&s, &first, 1);
        /* the same bytes with other pieces, with threads, and if bytes that are read back are
         * quantised already */
        for (i = 1; i < 5; i++) {
            options.parallel = i % 2 ? &parallel : NULL;
            s.self.model = i > 2 ? &s.expected : &s.source;
            memset(&again, 0, sizeof again);
            t_note("snapshot %d in pieces %lu", mode, (unsigned long)i);
            CHECK_STATUS(t_write_model(&s.source, &again, &options, pieces[i % 4], NULL), LMC_OK);
            CHECK(again.size == first.size && memcmp(again.data, first.data, first.size) == 0);
            free(again.data);
        }
        /* without loss the file is larger */
        options.parallel = NULL;
        memset(&again, 0, sizeof again);
        CHECK_STATUS(t_write_model(&s.expected, &again, NULL, 0, NULL), LMC_OK);
        full_size = again.size;
        CHECK(full_size > first.size + first.size / 20);
        free(again.data);
        /* coded again with its own quantisers: the same content, generation and size */
        reader = open_memory(&first, NULL, NULL);
        recover(&s.expected, reader, recovered, twins, 1);
        s.self.model = &s.expected;
        memset(&again, 0, sizeof again);
        t_note("snapshot %d, coded again", mode);
        CHECK_STATUS(t_write_model(&s.expected, &again, &options, 999, id), LMC_OK);
        CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
        check_snapshot(&s.expected, &again, NULL, &parallel);
        check_losses(&s, &again, 1);
        if (!CHECK(again.size <= first.size + first.size / 200 &&
                   again.size + first.size / 200 >= first.size))
            printf("%lu of %lu\n", (unsigned long)again.size, (unsigned long)first.size);
        free(again.data);
        /* elements that were not quantised before: exact nevertheless */
        for (i = 0; i < s.expected.n_files; i++) {
            const t_file *f = &s.expected.files[i];
            size_t k;
            for (k = 0; k < f->file.n_tensors; k++) {
                uint8_t *const data = (uint8_t *)(uintptr_t)f->data + f->file.tensors[k].offset;
                const size_t size = (size_t)f->file.tensors[k].size;
                data[size / 3] ^= 0x11;
                data[size - 1] ^= 0x40;
                if (k % 2) t_fill(data + size / 2 / 4 * 4, 400, T_SPECIAL, LMC_F32, k);
            }
        }
        /* on the grid, but beyond the codes of its blocks */
        for (i = 0; i < s.expected.n_files; i++) {
            const t_file *f = &s.expected.files[i];
            size_t k, at;
            for (k = 0; k < f->file.n_tensors; k++) {
                const lmc_tensor *const t = &f->file.tensors[k];
                const lmc_quantizer *const q = f->hints[k].quantizer;
                if (strcmp(t->name, "g") != 0 || !CHECK(q && t_log_point(q, 0, 0))) continue;
                for (at = 0; at < 64; at++)
                    put((uint8_t *)(uintptr_t)f->data + t->offset, 1000 + at, 4,
                        t_log_point(q, (1000 + at) / 50, 1u << at / 4 % 15));
            }
        }
        memset(&again, 0, sizeof again);
        t_note("snapshot %d, of other elements", mode);
        CHECK_STATUS(t_write_model(&s.expected, &again, &options, 0, id), LMC_OK);
        t_model_fingerprint(&s.expected, want);
        CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
        check_snapshot(&s.expected, &again, NULL, NULL);
        check_losses(&s, &again, 1);
        lmc_reader_free(reader);
        for (i = 0; i < PARTS; i++) lmc_quantizer_free(recovered[i]);
        if (mode) { /* again, from blocks of which some are not quantised: most still are */
            t_memory third;
            reader = open_memory(&again, NULL, NULL);
            recover(&s.expected, reader, recovered, twins, 0);
            memset(&third, 0, sizeof third);
            t_note("snapshot %d, of other elements, coded again", mode);
            CHECK_STATUS(t_write_model(&s.expected, &third, &options, 0, id), LMC_OK);
            CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
            check_snapshot(&s.expected, &third, NULL, NULL);
            CHECK(third.size <= again.size + again.size / 200);
            free(third.data);
            lmc_reader_free(reader);
            for (i = 0; i < PARTS; i++) lmc_quantizer_free(recovered[i]);
        }
        free(again.data);
        free(first.data);
        free_states(&s);
    }
}

/* Quantised tensors in the base of a delta, and in the delta. */
static void test_deltas(void)
{
    static states old, new;
    t_memory first, second;
    lmc_reader *reader;
    lmc_base base;
    lmc_writer_options options;
    size_t i, k;
    make_states(&old, 20000, 0);
    make_states(&new, 20000, 0);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    options = states_options(&old);
    t_note("delta: its base");
    CHECK_STATUS(t_write_model(&old.source, &first, &options, 0, NULL), LMC_OK);
    reader = open_memory(&first, NULL, NULL);
    base = lmc_reader_base(reader);
    t_note("delta: quantised anew");
    /* w has changed a little; the others are quantised independently of the base */
    for (i = 0; i < new.source.n_files; i++)
        for (k = 0; k < new.source.files[i].file.n_tensors; k++)
            if (strcmp(new.source.files[i].file.tensors[k].name, "w") == 0) {
                ((uint8_t *)(uintptr_t)new.source.files[i]
                     .data)[new.source.files[i].file.tensors[k].offset + 5] ^= 1;
                ((uint8_t *)(uintptr_t)new.expected.files[i]
                     .data)[new.source.files[i].file.tensors[k].offset + 5] ^= 1;
            }
    options = states_options(&new);
    options.base = &base;
    CHECK_STATUS(t_write_model(&new.source, &second, &options, 0, NULL), LMC_OK);
    check_snapshot(&new.expected, &second, &base, NULL);
    check_losses(&new, &second, 1);
    free(second.data);
    memset(&second, 0, sizeof second);
    t_note("delta: as it is, against the same quantised");
    for (i = 0; i < new.expected.n_files; i++)
        for (k = 0; k < new.expected.files[i].file.n_tensors; k++) {
            lmc_tensor *const t = (lmc_tensor *)(uintptr_t)&new.expected.files[i].file.tensors[k];
            new.expected.files[i].hints[k].twin = NULL;
            t->loss = lmc_reader_get_file(reader, i)->tensors[k].loss;
        }
    options.read_back = NULL;
    CHECK_STATUS(t_write_model(&new.expected, &second, &options, 999, NULL), LMC_OK);
    CHECK(second.size < 8000); /* all but w are equal */
    check_snapshot(&new.expected, &second, &base, NULL);
    check_losses(&new, &second, 1);
    free(second.data);
    lmc_reader_free(reader);
    free(first.data);
    free_states(&old);
    free_states(&new);
}

/* What a writer refuses. */
static void test_refusals(void)
{
    static states s;
    lmc_writer_options options;
    int i;
    make_states(&s, 17000, 0);
    for (i = 0; i < 18; i++) {
        lmc_tensor *const m = (lmc_tensor *)(uintptr_t)find_tensor(&s.source, "m.0"),
                          *const v = (lmc_tensor *)(uintptr_t)find_tensor(&s.source, "v.0");
        lmc_tensor *const small = (lmc_tensor *)(uintptr_t)find_tensor(&s.source, "small");
        lmc_tensor_hints *const hints_m = find_hints(&s.source, m), *const hints_v =
                                                                        find_hints(&s.source, v);
        const lmc_tensor good_m = *m, good_v = *v, good_small = *small;
        const lmc_tensor_hints good_hints_m = *hints_m, good_hints_v = *hints_v;
        const t_file good_file = s.source.files[0];
        const lmc_twin good_twin = s.twins[M0];
        enum lmc_status want = LMC_ERR_ARGUMENT;
        lmc_quantizer *other = NULL;
        static const uint64_t shape = 16950;
        t_memory out;
        memset(&out, 0, sizeof out);
        options = states_options(&s);
        switch (i) {
        case 0: want = LMC_OK; break;
        case 1: hints_m->twin = NULL; break;
        case 2: options.read_back = NULL; break;
        case 3: s.twins[M0].file_number = 2; break; /* itself */
        case 4: s.twins[M0].file_number = 3; break; /* not there */
        case 5: s.twins[M0].offset = s.source.files[0].size; break;
        case 6: v->dtype = "I32"; break;
        case 7: v->dtype = "XYZ"; break;
        case 8:
            m->rank = 1;
            m->shape = &shape;
            m->size = 4 * shape;
            break;
        case 9:
            v->loss.generation = 1;
            v->loss.measure = LMC_MEASURE_UPDATE;
            break; /* it was quantised before */
        case 10:
            small->loss.generation = 3;
            want = LMC_ERR_ARGUMENT;
            break; /* by no measure */
        case 11:
            small->loss.measure = LMC_MEASURE_NMSE;
            want = LMC_OK;
            break; /* nothing was lost */
        case 12:
            small->loss.generation = 256;
            small->loss.measure = LMC_MEASURE_NMSE;
            break;
        case 13:
            small->loss.generation = 1;
            small->loss.measure = (enum lmc_measure)256;
            break; /* of those that it does not know, each can be written again */
        case 14:   /* quantised again, on request */
            for (want = LMC_OK; want == LMC_OK && other == NULL;) {
                memory_elements memory;
                lmc_source elements = elements_of(&memory, s.decoded[V0].data, s.decoded[V0].size);
                lmc_quantizer_options fit_options;
                lmc_quantizer_info info;
                memset(&info, 0, sizeof info);
                memset(&fit_options, 0, sizeof fit_options);
                fit_options.dtype = LMC_F32;
                fit_options.role = LMC_ROLE_SECOND_MOMENT;
                fit_options.bits = 4;
                fit_options.generation = 1;
                if (!CHECK_STATUS(lmc_quantizer_fit(&other, &elements, &fit_options), LMC_OK))
                    break;
                CHECK_STATUS(lmc_quantizer_get_info(other, &info), LMC_OK);
                CHECK(info.loss.generation == 2);
                hints_v->quantizer = other;
                v->loss.generation = 1;
                v->loss.measure = LMC_MEASURE_UPDATE;
            }
            break;
        case 15:
            hints_v->quantizer = NULL;
            want = LMC_OK;
            break; /* the first moment's tables do not fit: worse, not wrong */
        case 16: s.source.files[0].file.size = LMC_UNKNOWN_SIZE; break;
        case 17:
            small->loss.generation = 1;
            small->loss.measure = LMC_MEASURE_NMSE;
            small->loss.error = 1;
            want = LMC_OK;
            break; /* all of it */
        default: break;
        }
        t_note("writer, case %d", i);
        CHECK_STATUS(t_write_model(&s.source, &out, &options, 0, NULL), want);
        if (i == 14 && want == LMC_OK) {
            lmc_reader *const reader = open_memory(&out, NULL, NULL);
            const lmc_tensor *t = NULL;
            size_t number;
            if (CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "v.0", &number, &t), LMC_OK))
                CHECK(t->loss.generation == 2 && t->loss.error > 0.01);
            lmc_reader_free(reader);
        }
        if (i == 17 && want == LMC_OK) {
            lmc_reader *const reader = open_memory(&out, NULL, NULL);
            const lmc_tensor *t = NULL;
            size_t number;
            if (CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "small", &number, &t), LMC_OK))
                CHECK(t->loss.generation == 1 && t->loss.error > 0.999);
            lmc_reader_free(reader);
        }
        free(out.data);
        lmc_quantizer_free(other);
        *m = good_m;
        *v = good_v;
        *hints_m = good_hints_m;
        *hints_v = good_hints_v;
        *small = good_small;
        s.source.files[0] = good_file;
        s.twins[M0] = good_twin;
    }
    { /* arguments, and what was never quantised */
        t_memory out;
        lmc_reader *reader;
        lmc_quantizer *q = NULL;
        lmc_quantizer_info info;
        lmc_tensor far;
        lmc_twin twin;
        memset(&out, 0, sizeof out);
        options = states_options(&s);
        t_note("lmc_quantizer_recover");
        CHECK_STATUS(t_write_model(&s.source, &out, &options, 0, NULL), LMC_OK);
        reader = open_memory(&out, NULL, NULL);
        far = lmc_reader_get_file(reader, 0)->tensors[0];
        CHECK_STATUS(lmc_quantizer_recover(NULL, reader, 0, &far, &twin, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_recover(&q, NULL, 0, &far, &twin, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_recover(&q, reader, 3, &far, &twin, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_quantizer_recover(&q, reader, 0, NULL, &twin, NULL), LMC_ERR_ARGUMENT);
        far.offset = UINT64_MAX;
        CHECK_STATUS(lmc_quantizer_recover(&q, reader, 0, &far, &twin, NULL), LMC_ERR_ARGUMENT);
        CHECK(q == NULL);
        far = lmc_reader_get_file(reader, 2)->tensors[0]; /* m.0, whose twin is not asked for */
        CHECK_STATUS(lmc_quantizer_recover(&q, reader, 2, &far, NULL, NULL), LMC_OK);
        if (q) CHECK(lmc_quantizer_get_info(q, &info) == LMC_OK && info.is_lossless);
        lmc_quantizer_free(q);
        lmc_reader_free(reader);
        free(out.data);
    }
    free_states(&s);
}

static void test_snapshot_faults(void)
{
    static states s;
    t_memory good;
    lmc_writer_options options;
    int mode;
    make_states(&s, 17000, 1);
    memset(&good, 0, sizeof good);
    options = states_options(&s);
    t_note("faults");
    CHECK_STATUS(t_write_model(&s.source, &good, &options, 0, NULL), LMC_OK);
    for (mode = 0; mode < 8; mode++) {
        static const char *const names[] = {"write", "restore", "read", "read quantisers"};
        const int what = mode % 4, memory = mode / 4;
        long k;
        for (k = 0;; k += t_quick ? 7 : 1) {
            enum lmc_status status = LMC_OK;
            t_calls calls;
            t_heap heap;
            int wrong = 0, failed;
            memset(&calls, 0, sizeof calls);
            memset(&heap, 0, sizeof heap);
            calls.fail_at = memory ? -1 : k;
            heap.fail_at = memory ? k : -1;
            t_note("%s, %s %ld fails", names[what], memory ? "allocation" : "callback", k);
            s.self.calls = &calls;
            good.calls = &calls;
            if (what == 0) {
                t_memory out;
                memset(&out, 0, sizeof out);
                out.calls = &calls;
                options.allocator = t_allocator(&heap);
                status = t_write_model(&s.source, &out, &options, 50000, NULL);
                free(out.data);
            } else if (what == 1) {
                lmc_restore_options restore;
                memset(&restore, 0, sizeof restore);
                restore.allocator = t_allocator(&heap);
                restore.read_back = t_on_read_back;
                status = t_restore_model(&s.expected, &good, &restore, NULL, &wrong);
            } else if (what == 2) {
                lmc_reader_options read;
                memset(&read, 0, sizeof read);
                read.allocator = t_allocator(&heap);
                status = t_read_model(&s.expected, &good, &read, &wrong);
            } else {
                lmc_reader_options read;
                lmc_reader *reader = NULL;
                lmc_source source = LMC_DEFAULTS;
                size_t i;
                memset(&read, 0, sizeof read);
                read.allocator = t_allocator(&heap);
                source.read_at = t_read_at;
                source.user = &good;
                source.size = good.size;
                status = lmc_reader_open(&reader, &source, &read);
                for (i = 0; status == LMC_OK && i < PARTS; i++) {
                    lmc_quantizer *q = NULL;
                    lmc_twin twin;
                    status = lmc_quantizer_recover(
                        &q, reader, 0, &lmc_reader_get_file(reader, 0)->tensors[i], &twin, NULL);
                    CHECK((q != NULL) == (status == LMC_OK));
                    lmc_quantizer_free(q);
                }
                lmc_reader_free(reader);
            }
            good.calls = NULL;
            failed = memory ? heap.calls > k : calls.calls > k;
            CHECK_STATUS(status, !failed ? LMC_OK : memory ? LMC_ERR_MEMORY : calls.expect);
            CHECK(!wrong && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            if (!failed) break;
        }
        CHECK(k > 0);
    }
    s.self.calls = NULL;
    free(good.data);
    free_states(&s);
}

int main(int argc, char **argv)
{
    lmc_tensor_options largest = tensor_options(LMC_BF16, 20, NULL, NULL, 0);
    unsigned workers = 3;
    lmc_parallel parallel = t_parallel(&workers);
    t_begin(argc, argv);
    largest.parallel = &parallel;
    g_src = t_new_guard((size_t)1 << 20);
    g_second = t_new_guard((size_t)1 << 20);
    g_dst = t_new_guard((size_t)1 << 20);
    g_enc = t_new_guard((size_t)1 << 20);
    g_ws = t_new_guard(lmc_tensor_workspace_size(&largest));
    t_test_quantizing_kernels();
    t_test_tables();
    test_hard_bound();
    test_fits();
    test_long_groups();
    test_exact_bounds_and_zeros();
    test_reasons();
    test_fit_faults();
    test_tensors();
    test_codebooks();
    test_few_values();
    test_zeros_of_codebooks();
    test_far_updates();
    test_uneven_losses();
    if (t_kernels_only) return t_end();
    test_damage();
    test_snapshots();
    test_deltas();
    test_refusals();
    test_snapshot_faults();
    return t_end();
}
