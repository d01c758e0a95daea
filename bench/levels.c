/* The curve of size against time on which levels are points; bench/levels.py runs this and draws
 * it.
 *
 *   levels [--mb N] [--reps N] [--tier NAME] [--only TEXT] [--series DIR] > JSON
 *
 * Points: the worth of a bit from 1 to 90 cycles, all else as by default; and the four levels. In
 * each repetition all points take turns with memcpy of the same buffer; medians of their ratios to
 * it. CPU time of the thread, pre-faulted buffers; all output is decoded and compared once. */
#define _GNU_SOURCE
#define LMC__EFFORTS static lmc__effort
#define BENCH "levels"
#include "measure.h"

#include "data.h"

static const unsigned worths[] = {1, 2, 3, 5, 8, 12, 16, 22, 30, 40, 60, 90};
enum { N_WORTHS = sizeof worths / sizeof *worths, N_POINTS = N_WORTHS + 4 };

static lmc__effort by_default;

/* Returns the level of the point; sets the worth of a bit. */
static enum lmc_level use_point(size_t point)
{
    lmc__effort *const effort = &lmc__efforts[1];
    *effort = by_default;
    if (point >= N_WORTHS) return (enum lmc_level)((int)(point - N_WORTHS) + (int)LMC_LEVEL_FAST);
    effort->direct_worth = effort->byte_worth = effort->delta_worth = worths[point] * LMC__CYCLE;
    return LMC_LEVEL_DEFAULT;
}

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *name, const uint8_t *src, const uint8_t *base, size_t size,
                    enum lmc_dtype dtype, int tier)
{
    static const char *const names[] = {"fast", "default", "max", "archive"};
    static double encode[N_POINTS][MAX_REPS], decode[N_POINTS][MAX_REPS];
    size_t enc_size[N_POINTS], cap, ws_size, point;
    uint8_t *enc, *dst, *ws;
    lmc_tensor_options options;
    int rep;
    options = LMC_TENSOR_OPTIONS(dtype);
    options.prediction = base;
    options.prediction_size = base ? size : 0;
    cap = lmc_tensor_bound(size, &options);
    ws_size = lmc_tensor_workspace_size(&options);
    enc = allocate(cap);
    dst = allocate(size);
    ws = allocate(ws_size);
    lmc_tier_limit((enum lmc_tier)tier);
    for (rep = -1; rep < n_reps; rep++) {
        const int r = rep < 0 ? 0 : rep;
        double start = cpu_time(), copy;
        memcpy(dst, src, size);
        __asm__ volatile("" : : "r"(dst) : "memory");
        copy = cpu_time() - start;
        for (point = 0; point < N_POINTS; point++) {
            options.level = use_point(point);
            start = cpu_time();
            if (lmc_tensor_encode(enc, cap, &enc_size[point], src, size, &options, ws, ws_size) !=
                LMC_OK)
                fail("cannot encode ", name);
            encode[point][r] = copy / (cpu_time() - start);
            if (rep < 0) memset(dst, 0xEE, size);
            start = cpu_time();
            if (lmc_tensor_decode(dst, size, enc, enc_size[point], &options, ws, ws_size) != LMC_OK)
                fail("cannot decode ", name);
            decode[point][r] = copy / (cpu_time() - start);
            if (rep < 0 && memcmp(dst, src, size) != 0) fail("did not come back: ", name);
        }
    }
    for (point = 0; point < N_POINTS; point++)
        printf("%s{\"data\": \"%s\", \"is_delta\": %s, \"tier\": \"%s\", \"level\": \"%s\", "
               "\"worth\": %u, \"bytes\": %lu, \"encoded\": %lu, \"encode\": %.4f, "
               "\"decode\": %.4f}",
               json_row(), name, base ? "true" : "false", lmc_tier_name((enum lmc_tier)tier),
               point < N_WORTHS ? "" : names[point - N_WORTHS],
               point < N_WORTHS ? worths[point] : 0, (unsigned long)size,
               (unsigned long)enc_size[point], median(encode[point]), median(decode[point]));
    fflush(stdout);
    release(enc, cap);
    release(dst, size);
    release(ws, ws_size);
}

static void measure_tiers(const char *name, const uint8_t *src, const uint8_t *base, size_t size,
                          enum lmc_dtype dtype)
{
    int tier;
    for (tier = 1; tier < LMC__N_TIERS; tier++)
        if (wanted_tier(tier)) measure(name, src, base, size, dtype, tier);
}

int main(int argc, char **argv)
{
    const char *series = NULL;
    size_t size = 16000000, i;
    uint8_t *src, *base;
    int k;
    n_reps = 7;
    for (k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--mb") == 0) size = (size_t)atol(argv[k + 1]) * 1000000;
        else if (strcmp(argv[k], "--reps") == 0) n_reps = atoi(argv[k + 1]);
        else if (strcmp(argv[k], "--tier") == 0) only_tier = argv[k + 1];
        else if (strcmp(argv[k], "--only") == 0) only = argv[k + 1];
        else if (strcmp(argv[k], "--series") == 0) series = argv[k + 1];
        else break;
    }
    if (k != argc || n_reps < 1 || n_reps > MAX_REPS || size == 0) {
        fprintf(stderr, "usage: levels [--mb N] [--reps N] [--tier NAME] [--only TEXT]"
                        " [--series DIR]\n");
        return 2;
    }
    by_default = lmc__efforts[1];
    src = allocate(size < 64000000 ? 64000000 : size);
    base = allocate(size < 64000000 ? 64000000 : size);
    printf("[");
    for (i = 0; i < 5; i++) { /* bf16, fp16, fp32, fp8, int8 */
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        fill_set(src, size, &sets[i]);
        measure_tiers(sets[i].name, src, NULL, size, sets[i].dtype);
    }
    for (i = 0; i < N_FILE_PAIRS; i++) {
        struct pair pair;
        if (!get_neighbours(&pair, (unsigned)i, series, base, src, 64000000, size)) continue;
        measure_tiers(pair.name, src, base, size, pair.dtype);
    }
    printf("\n]\n");
    return 0;
}
