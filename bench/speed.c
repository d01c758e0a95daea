/* For bench/speed.py: each data set with each tier and level, in one process and in turn, with
 * memcpy of the same buffer and, where a target names it, with huff0.
 *
 *   speed [--mb N] [--pair-mb N] [--reps N] [--tier NAME] [--only TEXT] [--level NAME] [--huff0 0]
 *         [--series DIR] > JSON
 *
 * Medians of the ratios to the memcpy of the same repetition. CPU time of the thread, pre-faulted
 * buffers; all output is decoded and compared once. huff0 codes only the plane of the exponent and
 * writes no checksums (peers.c). */
#define _GNU_SOURCE
#define BENCH "speed"
#include "measure.h"

#include "data.h"

#include "peers.c"

enum { N_LEVELS = 3, MAX_CODERS = 1 + LMC__N_TIERS * N_LEVELS };
static const char *const level_names[N_LEVELS] = {"fast", "default", "max"};
static const char *only_level;
static int with_huff0 = 1;

static struct coder {
    int tier, level; /* tier -1: huff0 */
    size_t size;
    double encode[MAX_REPS], decode[MAX_REPS];
} coders[MAX_CODERS];
static double copies[MAX_REPS];

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned find_huff0(void)
{
    unsigned i = 0;
    while (strncmp(peer_name(i), "huff0", 5) != 0) i++;
    return i;
}

static size_t choose_coders(int has_huff0)
{
    size_t n = 0;
    int tier, level;
    if (has_huff0 && with_huff0) coders[n++].tier = -1;
    for (tier = 1; tier < LMC__N_TIERS; tier++)
        for (level = 0; level < N_LEVELS; level++) {
            if (!wanted_tier(tier)) continue;
            if (only_level != NULL && strcmp(only_level, level_names[level]) != 0) continue;
            coders[n].tier = tier;
            coders[n++].level = level;
        }
    return n;
}

static struct job {
    const uint8_t *src;
    size_t size, cap, ws_size;
    lmc_tensor_options options;
    uint8_t *enc, *dst, *ws;
} job;

/* Returns the seconds for one direction. */
static double run(struct coder *coder, int decodes)
{
    const char *const dtype = lmc_dtype_name(job.options.dtype);
    const unsigned huff0 = find_huff0();
    const double start = cpu_time();
    int ok;
    if (coder->tier < 0 && decodes)
        ok = peer_decode(huff0, job.dst, job.size, job.enc, coder->size, dtype, NULL, 0);
    else if (coder->tier < 0)
        ok = (coder->size =
                  peer_encode(huff0, job.enc, job.cap, job.src, job.size, dtype, NULL, 0)) != 0;
    else if (decodes)
        ok = lmc_tensor_decode(job.dst, job.size, job.enc, coder->size, &job.options, job.ws,
                               job.ws_size) == LMC_OK;
    else
        ok = lmc_tensor_encode(job.enc, job.cap, &coder->size, job.src, job.size, &job.options,
                               job.ws, job.ws_size) == LMC_OK;
    if (!ok) fail("a coder failed: ", dtype);
    return cpu_time() - start;
}

static void print_rows(const char *name, size_t n_coders, int is_delta)
{
    double copy[MAX_REPS];
    size_t c;
    memcpy(copy, copies, sizeof copy);
    for (c = 0; c < n_coders; c++)
        printf("%s{\"data\": \"%s\", \"is_delta\": %s, \"tier\": \"%s\", \"level\": \"%s\", "
               "\"bytes\": %lu, \"encoded\": %lu, \"memcpy_gb_s\": %.3f, \"encode\": %.4f, "
               "\"decode\": %.4f}",
               json_row(), name, is_delta ? "true" : "false",
               coders[c].tier < 0 ? "huff0" : lmc_tier_name((enum lmc_tier)coders[c].tier),
               coders[c].tier < 0 ? "" : level_names[coders[c].level], (unsigned long)job.size,
               (unsigned long)coders[c].size, (double)job.size / median(copy) / 1e9,
               median(coders[c].encode), median(coders[c].decode));
    fflush(stdout);
}

static void measure_rows(const char *name, const uint8_t *src, const uint8_t *base, size_t size,
                         enum lmc_dtype dtype, int has_huff0)
{
    const size_t n_coders = choose_coders(has_huff0);
    int rep;
    size_t c;
    memset(&job, 0, sizeof job);
    job.src = src;
    job.size = size;
    job.options.dtype = dtype;
    job.options.prediction = base;
    job.options.prediction_size = base ? size : 0;
    job.options.level = LMC_LEVEL_MAX;
    job.cap = lmc_tensor_bound(size, &job.options) + peer_bound(size);
    job.ws_size = lmc_tensor_workspace_size(&job.options);
    job.enc = allocate(job.cap);
    job.dst = allocate(size);
    job.ws = allocate(job.ws_size);
    for (rep = -1; rep < n_reps; rep++) { /* -1: warm-up */
        const int r = rep < 0 ? 0 : rep;
        double start = cpu_time();
        memcpy(job.dst, src, size);
        __asm__ volatile("" : : "r"(job.dst) : "memory");
        copies[r] = cpu_time() - start;
        for (c = 0; c < n_coders; c++) {
            struct coder *const coder = &coders[c];
            if (coder->tier >= 0) lmc_tier_limit((enum lmc_tier)coder->tier);
            job.options.level = (enum lmc_level)(coder->level + (int)LMC_LEVEL_FAST);
            coder->encode[r] = copies[r] / run(coder, 0);
            if (rep < 0) memset(job.dst, 0xEE, size);
            coder->decode[r] = copies[r] / run(coder, 1);
            if (rep < 0 && memcmp(job.dst, src, size) != 0) fail("did not come back: ", name);
        }
    }
    print_rows(name, n_coders, base != NULL);
    release(job.enc, job.cap);
    release(job.dst, size);
    release(job.ws, job.ws_size);
}

static void measure_sets(size_t size)
{
    uint8_t *const src = allocate(size);
    size_t i;
    for (i = 0; i < sizeof sets / sizeof *sets && sets[i].kind != T_ZERO; i++) {
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        fill_set(src, size, &sets[i]);
        measure_rows(sets[i].name, src, NULL, size, sets[i].dtype,
                     i < 3 || sets[i].dtype == LMC_F8_E4M3);
    }
    release(src, size);
}

static void measure_pairs(size_t size, const char *series)
{
    const size_t room = size < 64000000 ? 64000000 : size;
    uint8_t *const src = allocate(room), *const base = allocate(room);
    unsigned i;
    for (i = 0; i < N_FILE_PAIRS; i++) {
        struct pair pair;
        if (!get_neighbours(&pair, i, series, base, src, room, size)) continue;
        measure_rows(pair.name, src, base, size, pair.dtype, 0);
    }
    release(src, room);
    release(base, room);
}

int main(int argc, char **argv)
{
    const char *series = NULL;
    size_t mb = 256, pair_mb = 128;
    int k;
    n_reps = 7;
    for (k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--mb") == 0) mb = (size_t)atol(argv[k + 1]);
        else if (strcmp(argv[k], "--pair-mb") == 0) pair_mb = (size_t)atol(argv[k + 1]);
        else if (strcmp(argv[k], "--reps") == 0) n_reps = atoi(argv[k + 1]);
        else if (strcmp(argv[k], "--tier") == 0) only_tier = argv[k + 1];
        else if (strcmp(argv[k], "--only") == 0) only = argv[k + 1];
        else if (strcmp(argv[k], "--level") == 0) only_level = argv[k + 1];
        else if (strcmp(argv[k], "--huff0") == 0) with_huff0 = atoi(argv[k + 1]);
        else if (strcmp(argv[k], "--series") == 0) series = argv[k + 1];
        else break;
    }
    if (k != argc || n_reps < 1 || n_reps > MAX_REPS) {
        fprintf(stderr, "usage: speed [--mb N] [--pair-mb N] [--reps N] [--tier NAME] [--only TEXT]"
                        " [--level NAME] [--huff0 0] [--series DIR]\n");
        return 2;
    }
    printf("[");
    if (mb != 0) measure_sets(mb * 1000000);
    if (pair_mb != 0) measure_pairs(pair_mb * 1000000, series);
    printf("\n]\n");
    return 0;
}
