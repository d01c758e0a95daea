/* In-process benchmark of quantisers: fitting, coding and restoring a pair of optimizer moments, on
 * one core.
 *
 *   quantise [--elements N] [--reps N] [--tier NAME] [--json FILE]
 *
 * The moments (of N elements, default 2^25: 128 MiB each) are synthetic, like AdamW's: averages of
 * gradients of N(0, 1), with a scale for each row of 4096. Buffers are mapped page-aligned and
 * pre-faulted; in each repetition memcpy of one tensor and everything measured take turns; medians
 * of the thread's CPU time, in GB (10^9 bytes) of F32 per second. "quantise" is lmc_quantizer_fit
 * and lmc_tensor_encode together. The output is decoded and compared with lmc_quantizer_apply of
 * the source. Markdown to stdout, JSON to FILE. */
#define _GNU_SOURCE
#define BENCH "quantise"
#include "measure.h"

#include "data.h"

static size_t n = (size_t)1 << 25, size;
static float *moments[2]; /* second, first */
static uint8_t *coded[2], *restored[2], *copy, *ws;
static size_t coded_size[2], cap, ws_size;
static lmc_quantizer *fitted[2];

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* bits: of a grid, or of a codebook; 0: by the bound */
static void fit(int which, unsigned bits, int is_codebook, double bound)
{
    lmc_quantizer_options options;
    lmc_source elements, seconds;
    options = LMC_QUANTIZER_OPTIONS();
    options.dtype = LMC_F32;
    options.role = which ? LMC_ROLE_FIRST_MOMENT : LMC_ROLE_SECOND_MOMENT;
    options.bits = is_codebook ? 0 : bits;
    options.n_codes = is_codebook ? 1u << bits : 0;
    options.measure = LMC_MEASURE_UPDATE;
    options.bound = bound;
    options.group = MOMENTS_ROW;
    if (which) {
        options.second = fitted[0];
        seconds = t_elements(moments[0], size);
        options.second_elements = &seconds;
    }
    elements = t_elements(moments[which], size);
    if (lmc_quantizer_fit(&fitted[which], &elements, &options) != LMC_OK) fail("cannot fit", "");
}

static lmc_tensor_options tensor_options(int which)
{
    lmc_tensor_options options;
    options = LMC_TENSOR_OPTIONS(LMC_F32);
    options.quantizer = fitted[which];
    if (which) {
        options.prediction = restored[0];
        options.prediction_size = size;
    }
    return options;
}

static void check(enum lmc_status status)
{
    if (status != LMC_OK) fail("LMC: ", lmc_status_text(status));
}

static void measure(unsigned bits, int is_codebook, double bound)
{
    static double copies[MAX_REPS], fits[2][MAX_REPS], codes[2][MAX_REPS], restores[2][MAX_REPS],
        wholes[MAX_REPS];
    const double gb = (double)size / 1e9;
    double copied;
    char name[32];
    int rep, w;
    for (rep = 0; rep < n_reps; rep++) {
        double start = cpu_seconds();
        memcpy(copy, moments[0], size);
        copies[rep] = cpu_seconds() - start;
        for (w = 0; w < 2; w++) {
            lmc_tensor_options options;
            lmc_quantizer_free(fitted[w]);
            start = cpu_seconds();
            fit(w, bits, is_codebook, bound);
            fits[w][rep] = cpu_seconds() - start;
            options = tensor_options(w);
            start = cpu_seconds();
            check(lmc_tensor_encode(coded[w], cap, &coded_size[w], moments[w], size, &options, ws,
                                    ws_size));
            codes[w][rep] = cpu_seconds() - start;
            options.quantizer = NULL;
            options.log2_block = 18;
            start = cpu_seconds();
            check(lmc_tensor_decode(restored[w], size, coded[w], coded_size[w], &options, ws,
                                    ws_size));
            restores[w][rep] = cpu_seconds() - start;
            if (rep) continue;
            memcpy(copy, moments[w], size);
            check(lmc_quantizer_apply(fitted[w], 0, copy, size, w ? restored[0] : NULL));
            if (memcmp(copy, restored[w], size) != 0) fail("decoded wrong", "");
        }
    }
    copied = median(copies);
    if (bits) snprintf(name, sizeof name, is_codebook ? "kmeans:%u" : "%u bits", bits);
    else snprintf(name, sizeof name, "update %g", bound);
    for (w = 0; w < 2; w++) {
        const char *what = w ? "first" : "second";
        double fitting, whole, restoring;
        for (rep = 0; rep < n_reps; rep++) wholes[rep] = fits[w][rep] + codes[w][rep];
        fitting = median(fits[w]);
        whole = median(wholes);
        restoring = median(restores[w]);
        printf("| %s | %s | %s | %.3f | %.0f | %.2f | %.2f | %.2f | %.2f |\n",
               lmc_tier_name(lmc_tier_current()), what, name,
               8.0 * (double)coded_size[w] / (double)n, 1e3 * fitting, gb / whole, copied / whole,
               gb / restoring, copied / restoring);
        if (json)
            fprintf(json,
                    "%s{\"tier\": \"%s\", \"moment\": \"%s\", \"mode\": \"%s\", \"bits\": %.4f, "
                    "\"fit_ms\": %.1f, \"quantise\": %.3f, "
                    "\"quantise_x\": %.4f, \"restore\": %.3f, \"restore_x\": %.4f}",
                    json_row(), lmc_tier_name(lmc_tier_current()), what, name,
                    8.0 * (double)coded_size[w] / (double)n, 1e3 * fitting, gb / whole,
                    copied / whole, gb / restoring, copied / restoring);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    lmc_tensor_options options;
    int i, tier;
    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--elements") == 0) n = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--reps") == 0) n_reps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--tier") == 0) only_tier = argv[i + 1];
        else if (strcmp(argv[i], "--json") == 0) {
            if ((json = fopen(argv[i + 1], "w")) == NULL) fail("cannot write ", argv[i + 1]);
        } else fail("unknown option ", argv[i]);
    }
    if (i < argc || n_reps < 1 || n_reps > MAX_REPS || n < 65536)
        fail("usage: quantise [--elements N] [--reps N] [--tier NAME] [--json FILE]", "");
    size = 4 * n;
    for (i = 0; i < 2; i++) {
        moments[i] = (float *)(void *)allocate(size);
        restored[i] = allocate(size);
        coded[i] = allocate(cap = size + size / 1024 + 4096);
    }
    copy = allocate(size);
    make_moments(moments[0], moments[1], n);
    options = LMC_TENSOR_OPTIONS(LMC_F32);
    options.log2_block = 18;
    ws = allocate(ws_size = lmc_tensor_workspace_size(&options));
    if (json) fputc('[', json);
    printf("| tier | moment | mode | bits | fit, ms | quantise GB/s | x memcpy | restore GB/s | x "
           "memcpy |\n|---|---|---|---|---|---|---|---|---|\n");
    for (tier = LMC__N_TIERS - 1; tier >= 0; tier--) {
        if (!wanted_tier(tier)) continue;
        lmc_tier_limit((enum lmc_tier)tier);
        measure(8, 0, 0);
        measure(4, 0, 0);
        measure(8, 1, 0);
        measure(4, 1, 0);
        measure(0, 0, 0.007);
    }
    if (json) fputs("\n]\n", json);
    return json && fclose(json) != 0;
}
