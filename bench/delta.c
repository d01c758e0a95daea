/* In-process benchmark of deltas: LMC, xor with byte planes and zstd -1, and bounds, on pairs of
 * snapshots.
 *
 *   delta [--mb N] [--synthetic-mb N] [--reps N] [--tier NAME] [--only TEXT] [--json FILE] [SERIES]
 *
 * Pairs: bf16 weights, fp32 master weights and (sizes only) fp32 optimizer states of
 * SERIES/step-NNNNNN, and synthetic bf16 pairs of N MB (default 500; MB are 10^6 bytes; 0: none).
 *
 * Sizes are those of an unchanged pair, as one array, with all headers. For speeds a smaller pair
 * is repeated, old and new in the same way, until it has N MB (default 64), and coded as one array.
 * Its blocks have the pair's data at other places; no coder here looks back as far as a pair is
 * long. Buffers are mapped page-aligned and pre-faulted. In each repetition memcpy of the new array
 * and every coder take turns; medians of the thread's CPU time, in GB (10^9 bytes) of the new array
 * per second. Everything decoded is compared. Markdown to stdout, JSON to FILE.
 *
 * The bounds are order-0 entropies over the whole pair. "given the exponent": of the residual of
 * spec 5.1, given the key of the prediction (spec 5.2); for fp32 the sum over its byte planes,
 * because a million elements are too few to estimate the frequencies of 2^32 residuals. "bitmask":
 * one bit for each element, and the changed elements in full, like BitSnap. */
#define _GNU_SOURCE
#include <zstd.h>

#define BENCH "delta"
#include "measure.h"

#include "data.h"
#include "front.h"

/* -- xor, byte planes and zstd -1: the usual way, well implemented --
 * Chunks of 2^20 elements: a word with the coded size (0: stored) for each plane, then the planes,
 * lowest first. xor and split of a part take place in the caches. */

enum { CHUNK = 1 << 20, PART = 1 << 14, MAX_WIDTH = 8 };

static uint8_t rows[MAX_WIDTH][CHUNK], part_xor[PART * MAX_WIDTH];
static ZSTD_CCtx *cctx;
static ZSTD_DCtx *dctx;

typedef uint64_t vector __attribute__((vector_size(16))); /* SSE2, NEON */

static void xor_bytes(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t size)
{
    size_t i = 0;
    for (; i + 64 <= size; i += 64) {
        vector x[4], y[4];
        memcpy(x, a + i, 64);
        memcpy(y, b + i, 64);
        x[0] ^= y[0], x[1] ^= y[1], x[2] ^= y[2], x[3] ^= y[3];
        memcpy(dst + i, x, 64);
    }
    for (; i < size; i++) dst[i] = a[i] ^ b[i];
}

static size_t xor_zstd_encode(uint8_t *dst, size_t cap, const uint8_t *src, const uint8_t *base,
                              size_t size, unsigned width)
{
    uint8_t *out = dst;
    size_t at, i;
    for (at = 0; at < size; at += (size_t)CHUNK * width) {
        const size_t n = lmc__min(CHUNK, (size - at) / width);
        uint8_t *const sizes = out;
        lmc__planes planes;
        unsigned p;
        out += 4 * width;
        memset(&planes, 0, sizeof planes);
        for (i = 0; i < n; i += PART) {
            const size_t m = lmc__min(PART, n - i);
            xor_bytes(part_xor, src + at + i * width, base + at + i * width, m * width);
            for (p = 0; p < width; p++) planes.row[p] = rows[p] + i;
            front_split(&planes, part_xor, m, width, 0);
        }
        for (p = 0; p < width; p++) {
            size_t coded = ZSTD_compressCCtx(cctx, out, cap - (size_t)(out - dst), rows[p], n, 1);
            if (ZSTD_isError(coded)) fail("zstd: ", ZSTD_getErrorName(coded));
            if (coded >= n) {
                memcpy(out, rows[p], n);
                coded = 0;
            }
            lmc__store32(sizes + 4 * p, (uint32_t)coded);
            out += coded ? coded : n;
        }
    }
    return (size_t)(out - dst);
}

static void xor_zstd_decode(uint8_t *dst, const uint8_t *src, const uint8_t *base, size_t size,
                            unsigned width)
{
    size_t at, i;
    for (at = 0; at < size; at += (size_t)CHUNK * width) {
        const size_t n = lmc__min(CHUNK, (size - at) / width);
        const uint8_t *const sizes = src, *plane[MAX_WIDTH];
        lmc__const_planes planes;
        unsigned p;
        src += 4 * width;
        memset(&planes, 0, sizeof planes);
        for (p = 0; p < width; p++) {
            const size_t coded = lmc__load32(sizes + 4 * p);
            plane[p] = coded ? rows[p] : src;
            if (coded && ZSTD_decompressDCtx(dctx, rows[p], n, src, coded) != n)
                fail("zstd: cannot decode", "");
            src += coded ? coded : n;
        }
        for (i = 0; i < n; i += PART) {
            const size_t m = lmc__min(PART, n - i);
            for (p = 0; p < width; p++) planes.row[p] = plane[p] + i;
            front_join(part_xor, &planes, m, width, 0);
            xor_bytes(dst + at + i * width, part_xor, base + at + i * width, m * width);
        }
    }
}

/* -- bounds, in bytes -- */

/* changed: the share of the elements */
struct bounds {
    double changed, given_exponent, order_0_xor, bitmask;
};

/* n * H, from counts. */
static double entropy(const uint32_t *counts, size_t n_counts)
{
    double total = 0, bits = 0;
    size_t i;
    for (i = 0; i < n_counts; i++) {
        if (counts[i] == 0) continue;
        total += counts[i];
        bits -= counts[i] * log2(counts[i]);
    }
    return total > 0 ? bits + total * log2(total) : 0;
}

/* For bf16 by whole elements; for fp32 order_0_xor, too, is that of its planes. */
static struct bounds find_bounds(const uint8_t *src, const uint8_t *base, size_t size,
                                 unsigned width)
{
    const size_t n = size / width, n_symbols = width == 2 ? 65536 : 256,
                 n_lists = width == 2 ? 1 : width;
    uint32_t *const given = (uint32_t *)calloc(n_lists * 256 * n_symbols, sizeof *given);
    uint32_t *const plain = (uint32_t *)calloc(n_lists * n_symbols, sizeof *plain);
    struct bounds bounds = {0, 0, 0, 0};
    size_t i, n_changed = 0, list;
    if (given == NULL || plain == NULL) fail("out of memory", "");
    for (i = 0; i < n; i++) {
        const uint64_t b = lmc__load_element(base, i, width), v = lmc__load_element(src, i, width),
                       r = lmc__residual(v, b, width, 1);
        const size_t key = lmc__key(b, width);
        n_changed += v != b;
        for (list = 0; list < n_lists; list++) {
            const unsigned shift = 8 * (unsigned)list;
            given[(list * 256 + key) * n_symbols + (r >> shift) % n_symbols]++;
            plain[list * n_symbols + ((v ^ b) >> shift) % n_symbols]++;
        }
    }
    for (i = 0; i < n_lists * 256; i++)
        bounds.given_exponent += entropy(given + i * n_symbols, n_symbols) / 8;
    for (i = 0; i < n_lists; i++)
        bounds.order_0_xor += entropy(plain + i * n_symbols, n_symbols) / 8;
    bounds.changed = (double)n_changed / (double)n;
    bounds.bitmask = (double)n / 8 + (double)(n_changed * width);
    free(given);
    free(plain);
    return bounds;
}

/* -- coding -- */

enum { DIRECT, DEFAULT, MAX, N_WAYS };
static const char *const way_names[N_WAYS] = {"direct", "default", "max"};

static lmc_tensor_options make_options(const struct pair *pair, int way)
{
    lmc_tensor_options options;
    options = LMC_TENSOR_OPTIONS(pair->dtype);
    options.level = way == MAX ? LMC_LEVEL_MAX : LMC_LEVEL_DEFAULT;
    options.prediction = way == DIRECT ? NULL : pair->old;
    options.prediction_size = way == DIRECT ? 0 : pair->size;
    return options;
}

static struct buffers {
    uint8_t *enc, *dst, *ws;
    size_t cap, dst_size, ws_size;
} buffers;

static void open_buffers(const struct pair *pair)
{
    int way;
    /* zstd's bound for a plane, too */
    buffers.cap = pair->size + pair->size / 8 + ((size_t)1 << 22);
    buffers.ws_size = 0;
    for (way = 0; way < N_WAYS; way++) {
        const lmc_tensor_options options = make_options(pair, way);
        const size_t need = lmc_tensor_workspace_size(&options);
        if (need > buffers.ws_size) buffers.ws_size = need;
    }
    buffers.dst_size = pair->size;
    buffers.enc = allocate(buffers.cap);
    buffers.dst = allocate(buffers.dst_size);
    buffers.ws = allocate(buffers.ws_size);
}

static void close_buffers(void)
{
    release(buffers.enc, buffers.cap);
    release(buffers.dst, buffers.dst_size);
    release(buffers.ws, buffers.ws_size);
}

/* There is one thread, which never waits. So its CPU time excludes the time of other programs on a
 * shared machine. */
static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The timed work. APPLY: decoding over the prediction, as a delta is applied in place; not for xor
 * and zstd, nor without a prediction. */
enum verb { ENCODE, DECODE, APPLY, N_VERBS };

/* Way N_WAYS: xor and zstd. seconds: of each verb. Returns the encoded size. */
static size_t code(const struct pair *pair, int way, double seconds[N_VERBS])
{
    const unsigned width = lmc_dtype_width(pair->dtype);
    lmc_tensor_options options = make_options(pair, way);
    size_t size = 0;
    double start = cpu_time();
    if (way == N_WAYS)
        size = xor_zstd_encode(buffers.enc, buffers.cap, pair->now, pair->old, pair->size, width);
    else if (lmc_tensor_encode(buffers.enc, buffers.cap, &size, pair->now, pair->size, &options,
                               buffers.ws, buffers.ws_size) != LMC_OK)
        fail("cannot encode ", pair->name);
    seconds[ENCODE] = cpu_time() - start;
    memset(buffers.dst, 0xEE, pair->size);
    start = cpu_time();
    if (way == N_WAYS) xor_zstd_decode(buffers.dst, buffers.enc, pair->old, pair->size, width);
    else if (lmc_tensor_decode(buffers.dst, pair->size, buffers.enc, size, &options, buffers.ws,
                               buffers.ws_size) != LMC_OK)
        fail("cannot decode ", pair->name);
    seconds[DECODE] = cpu_time() - start;
    if (memcmp(buffers.dst, pair->now, pair->size) != 0) fail("did not come back: ", pair->name);
    seconds[APPLY] = seconds[DECODE]; /* if nothing else is measured below */
    if (way == N_WAYS || way == DIRECT) return size;
    memcpy(buffers.dst, pair->old, pair->size);
    options.prediction = buffers.dst;
    start = cpu_time();
    if (lmc_tensor_decode(buffers.dst, pair->size, buffers.enc, size, &options, buffers.ws,
                          buffers.ws_size) != LMC_OK)
        fail("cannot apply ", pair->name);
    seconds[APPLY] = cpu_time() - start;
    if (memcmp(buffers.dst, pair->now, pair->size) != 0)
        fail("did not come back in place: ", pair->name);
    return size;
}

/* -- sizes: one row for each pair; returns the share of changed elements -- */

static double measure_sizes(const struct pair *pair)
{
    const double bytes = (double)pair->size;
    const struct bounds bounds =
        find_bounds(pair->now, pair->old, pair->size, lmc_dtype_width(pair->dtype));
    size_t sizes[N_WAYS + 1], direct_max;
    double seconds[N_VERBS];
    lmc_tensor_options options;
    int way;
    open_buffers(pair);
    lmc_tier_limit((enum lmc_tier)best_tier());
    for (way = 0; way <= N_WAYS; way++) sizes[way] = code(pair, way, seconds);
    options = make_options(pair, DIRECT);
    options.level = LMC_LEVEL_MAX;
    if (lmc_tensor_encode(buffers.enc, buffers.cap, &direct_max, pair->now, pair->size, &options,
                          buffers.ws, buffers.ws_size) != LMC_OK)
        fail("cannot encode ", pair->name);
    close_buffers();
    printf(
        "| %s | %.2f %% | %.3f | %.3f | %.1f %% | %.3f | %.1f %% | %.3f | %.3f | %.3f | %.3f |\n",
        pair->name, 100 * bounds.changed, bytes / bounds.given_exponent,
        bytes / (double)sizes[DEFAULT], 100 * bounds.given_exponent / (double)sizes[DEFAULT],
        bytes / (double)sizes[MAX], 100 * bounds.given_exponent / (double)sizes[MAX],
        bytes / (double)sizes[N_WAYS], bytes / bounds.order_0_xor, bytes / bounds.bitmask,
        bytes / (double)sizes[DIRECT]);
    if (json != NULL)
        fprintf(json,
                "%s{\"part\": \"sizes\", \"data\": \"%s\", \"dtype\": \"%s\", \"bytes\": %lu, "
                "\"changed\": %.6f, \"bound\": %.1f, \"default\": %lu,"
                " \"max\": %lu, \"xor_zstd\": %lu, \"order_0_xor\": %.1f, \"bitmask\": %.1f, "
                "\"direct\": %lu, \"direct_max\": %lu}",
                json_row(), pair->name, lmc_dtype_name(pair->dtype), (unsigned long)pair->size,
                bounds.changed, bounds.given_exponent, (unsigned long)sizes[DEFAULT],
                (unsigned long)sizes[MAX], (unsigned long)sizes[N_WAYS], bounds.order_0_xor,
                bounds.bitmask, (unsigned long)sizes[DIRECT], (unsigned long)direct_max);
    fflush(stdout);
    return bounds.changed;
}

/* -- speeds: one row for each pair and coder -- */

static struct coder {
    char name[40];
    int tier, way;
    double times[N_VERBS][MAX_REPS];
    size_t size;
} coders[LMC__N_TIERS + 2];

static void measure_speed(const struct pair *pair, double changed)
{
    static double copy_times[MAX_REPS];
    const double gb = (double)pair->size / 1e9;
    double copy, zstd[N_VERBS];
    unsigned n_coders = 0, c;
    int tier, rep, verb;
    for (tier = 0; tier < LMC__N_TIERS + 2; tier++) {
        const int is_zstd = tier == LMC__N_TIERS + 1;
        struct coder *const coder = &coders[n_coders];
        coder->tier = tier < LMC__N_TIERS ? tier : best_tier();
        if (!wanted_tier(coder->tier)) continue;
        coder->way = is_zstd ? N_WAYS : tier == LMC__N_TIERS ? MAX : DEFAULT;
        coder->size = 0;
        if (is_zstd) snprintf(coder->name, sizeof coder->name, "xor, planes, zstd -1");
        else
            snprintf(coder->name, sizeof coder->name, "LMC %s%s",
                     lmc_tier_name((enum lmc_tier)coder->tier), coder->way == MAX ? ", max" : "");
        n_coders++;
    }
    open_buffers(pair);
    for (rep = -1; rep < n_reps; rep++) { /* -1: warm-up */
        const int r = rep < 0 ? 0 : rep;
        const double start = cpu_time();
        memcpy(buffers.dst, pair->now, pair->size);
        __asm__ volatile("" : : "r"(buffers.dst) : "memory");
        copy_times[r] = cpu_time() - start;
        for (c = 0; c < n_coders; c++) {
            double seconds[N_VERBS];
            size_t size;
            lmc_tier_limit((enum lmc_tier)coders[c].tier);
            size = code(pair, coders[c].way, seconds);
            if (coders[c].way == DEFAULT && size != (c ? coders[0].size : size))
                fail("tiers differ in size: ", pair->name);
            coders[c].size = size;
            for (verb = 0; verb < N_VERBS; verb++) coders[c].times[verb][r] = seconds[verb];
        }
    }
    close_buffers();
    copy = gb / median(copy_times);
    for (verb = 0; verb < N_VERBS; verb++)
        zstd[verb] = gb / median(coders[n_coders - 1].times[verb]);
    for (c = 0; c < n_coders; c++) {
        double speed[N_VERBS];
        char in_place[16] = "";
        for (verb = 0; verb < N_VERBS; verb++) speed[verb] = gb / median(coders[c].times[verb]);
        if (coders[c].way != N_WAYS)
            snprintf(in_place, sizeof in_place, "%.2f", speed[APPLY] / speed[DECODE]);
        printf("| %s | %s | %.2f | %.2f | %.3f | %.1f | %.2f | %.3f | %.1f | %s | %.3f |\n",
               pair->name, coders[c].name, copy, speed[ENCODE], speed[ENCODE] / copy,
               speed[ENCODE] / zstd[ENCODE], speed[DECODE], speed[DECODE] / copy,
               speed[DECODE] / zstd[DECODE], in_place, (double)pair->size / (double)coders[c].size);
        if (json != NULL)
            fprintf(json,
                    "%s{\"part\": \"speed\", \"data\": \"%s\", \"dtype\": \"%s\", \"coder\": "
                    "\"%s\", \"tier\": \"%s\", \"level\": \"%s\", \"changed\": %.6f,"
                    " \"bytes\": %lu, \"encoded\": %lu, \"memcpy_gb_s\": %.4f, \"encode_gb_s\": "
                    "%.4f, \"decode_gb_s\": %.4f, \"apply_gb_s\": %.4f}",
                    json_row(), pair->name, lmc_dtype_name(pair->dtype), coders[c].name,
                    coders[c].way == N_WAYS ? "" : lmc_tier_name((enum lmc_tier)coders[c].tier),
                    coders[c].way == N_WAYS ? "" : way_names[coders[c].way], changed,
                    (unsigned long)pair->size, (unsigned long)coders[c].size, copy, speed[ENCODE],
                    speed[DECODE], speed[APPLY]);
    }
    fflush(stdout);
}

/* == main ==================================== */

int main(int argc, char **argv)
{
    size_t mb = 64, synthetic_mb = 500, room, size;
    const char *series;
    uint8_t *old, *now_;
    struct pair pair;
    double changed[N_PAIRS] = {0};
    unsigned k;
    int i;
    for (i = 1; i < argc && argv[i][0] == '-'; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mb") == 0) mb = (size_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--synthetic-mb") == 0)
            synthetic_mb = (size_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--reps") == 0) n_reps = atoi(value);
        else if (strcmp(argv[i], "--tier") == 0) only_tier = value;
        else if (strcmp(argv[i], "--only") == 0) only = value;
        else if (strcmp(argv[i], "--json") == 0 && (json = fopen(value, "w")) == NULL)
            fail("cannot write ", value);
        else if (strcmp(argv[i], "--json") == 0) continue;
        else n_reps = 0;
    }
    if (n_reps < 1 || n_reps > MAX_REPS || mb < 1 || mb > 100000 || synthetic_mb > 100000 ||
        i + 1 < argc) {
        fprintf(stderr, "usage: delta [--mb N] [--synthetic-mb N] [--reps N] [--tier NAME] [--only "
                        "TEXT] [--json FILE] [SERIES]\n");
        return 2;
    }
    series = i < argc ? argv[i] : NULL;
    cctx = ZSTD_createCCtx();
    dctx = ZSTD_createDCtx();
    (void)best_tier(); /* fails if there is no such tier */
    size = mb * 1000000;
    room = 200000000; /* enough for any file of the series */
    if (room < size) room = size;
    if (room < synthetic_mb * 1000000) room = synthetic_mb * 1000000;
    old = allocate(room);
    now_ = allocate(room);
    if (json != NULL) fprintf(json, "[");
    printf(
        "\n### Sizes\n\nAs multiples by which the new array gets smaller, all headers counted.\n\n"
        "| pair | changed | bound | LMC | of the bound | LMC, max | of the bound | xor, planes, "
        "zstd -1 | order-0 xor | bitmask | LMC without base |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (k = 0; k < N_PAIRS; k++)
        if (get_pair(&pair, k, series, synthetic_mb * 1000000, old, now_, room))
            changed[k] = measure_sizes(&pair);
    printf("\n### Speeds\n\nOne thread, checksums of both arrays included, medians of %d, by CPU "
           "time; GB/s of the new array.\n\n"
           "| pair | coder | memcpy | compress | x memcpy | x zstd | decompress | x memcpy | x "
           "zstd | in place, x decompress | ratio |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n",
           n_reps);
    for (k = 0; k < N_PAIRS; k++) {
        if (!get_pair(&pair, k, series, synthetic_mb * 1000000, old, now_, room) || !pair.has_speed)
            continue;
        if (pair.size < size) {
            const size_t repeated = size - size % lmc_dtype_width(pair.dtype);
            repeat(old, pair.size, repeated);
            repeat(now_, pair.size, repeated);
            pair.size = repeated;
        }
        measure_speed(&pair, changed[k]);
    }
    if (json != NULL) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
