/* In-process benchmark of the tensor codec: one thread, whole pipeline with block headers and checksums.
 *
 *   bench [--mb N] [--reps N] [--tier NAME] [--only NAME] [--level N] [--json FILE] [FILE...]
 *
 * Data sets: synthetic ones of N MB (default 256; MB are 10^6 bytes), then each FILE (a safetensors file whose name says
 * the dtype, as in model.bf16.safetensors; its header is left out). Buffers are pre-faulted. In each repetition memcpy,
 * encode and decode take turns; the medians are shown, in GB (10^9 bytes) of original data per second. Every decoded
 * buffer is compared. Markdown to stdout. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include "../tests/t_data.h"

#define MAX_REPS 101
static int n_reps = 5;
static const char *only;
static enum lmc_level level;
static FILE *json;
static int json_rows;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static void *allocate(size_t size)
{
    void *p = malloc(size);
    if (p == NULL) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    memset(p, 1, size);
    return p;
}

/* One row. Small data is coded several times per sample, so that a sample takes a hundredth of a second or more. */
static void measure(const char *name, const uint8_t *src, size_t size, enum lmc_dtype dtype)
{
    static double copy_times[MAX_REPS], encode_times[MAX_REPS], decode_times[MAX_REPS];
    lmc_tensor_options options;
    size_t cap, enc_size = 0, ws_size, block, loops = 1 + 20000000 / size, k;
    uint8_t *enc, *dst, *ws;
    double gb = (double)size * (double)loops / 1e9, copy, encode, decode, percent, entropy;
    int rep;

    memset(&options, 0, sizeof options);
    options.dtype = dtype;
    options.level = level;
    cap = (size_t)lmc_bound_tensor(size, &options);
    ws_size = lmc_tensor_workspace_size(&options);
    block = (size_t)65536 * lmc_dtype_width(dtype);
    enc = (uint8_t *)allocate(cap);
    dst = (uint8_t *)allocate(size);
    ws = (uint8_t *)allocate(ws_size);
    for (rep = -1; rep < n_reps; rep++) { /* -1: warm-up */
        double start = now();
        int i = rep < 0 ? 0 : rep;
        for (k = 0; k < loops; k++) {
            memcpy(dst, src, size);
            __asm__ volatile("" : : "r"(dst) : "memory"); /* do not merge the copies */
        }
        copy_times[i] = now() - start;
        start = now();
        for (k = 0; k < loops; k++)
            if (lmc_encode_tensor(enc, cap, &enc_size, src, size, &options, ws, ws_size) != LMC_OK) goto failed;
        encode_times[i] = now() - start;
        memset(dst, 0xEE, size);
        start = now();
        for (k = 0; k < loops; k++)
            if (lmc_decode_tensor(dst, 0, size, enc, enc_size, size, &options, ws, ws_size) != LMC_OK) goto failed;
        decode_times[i] = now() - start;
        if (memcmp(dst, src, size) != 0) goto failed;
    }
    copy = gb / median(copy_times, n_reps);
    encode = gb / median(encode_times, n_reps);
    decode = gb / median(decode_times, n_reps);
    percent = 100.0 * (double)enc_size / (double)size;
    entropy = 100.0 * t_entropy(src, size, dtype, block) / (double)size;
    printf("| %s | %s | %.1f | %.2f | %.2f | %.3f | %.2f | %.3f | %.3f | %.3f | %+.3f |\n", name, lmc_dtype_name(dtype), (double)size / 1e6,
           copy, encode, encode / copy, decode, decode / copy, percent, entropy, percent - entropy);
    fflush(stdout);
    if (json != NULL)
        fprintf(json,
                "%s\n  {\"data\": \"%s\", \"dtype\": \"%s\", \"tier\": \"%s\", \"bytes\": %lu, \"encoded\": %lu, \"memcpy_gb_s\": %.4f,"
                " \"encode_gb_s\": %.4f, \"decode_gb_s\": %.4f, \"entropy_percent\": %.4f}",
                json_rows++ ? "," : "", name, lmc_dtype_name(dtype), lmc_tier_name(lmc_get_tier()), (unsigned long)size,
                (unsigned long)enc_size, copy, encode, decode, entropy);
    free(enc);
    free(dst);
    free(ws);
    return;
failed:
    fprintf(stderr, "bench: %s did not come back\n", name);
    exit(1);
}

static void measure_synthetic(size_t size)
{
    static const struct { const char *name; enum lmc_dtype dtype; enum t_kind kind; } sets[] = {
        {"N(0, 0.02) bf16", LMC_BF16, T_GAUSS}, {"N(0, 0.02) fp16", LMC_F16, T_GAUSS}, {"N(0, 0.02) fp32", LMC_F32, T_GAUSS},
        {"N(0, 1) fp8", LMC_F8_E4M3, T_GAUSS}, {"N(0, 25) int8", LMC_I8, T_GAUSS}, {"zeros", LMC_BF16, T_ZERO},
        {"random", LMC_BF16, T_RANDOM}, {"text", LMC_AUTO, T_TEXT}};
    uint8_t *src = (uint8_t *)allocate(size);
    size_t i;
    for (i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        t_fill(src, size, sets[i].kind, sets[i].dtype, 1);
        measure(sets[i].name, src, size, sets[i].dtype);
    }
    free(src);
}

/* The tensor data of a safetensors file whose name holds the dtype between dots. */
static void measure_file(const char *path)
{
    static const struct { const char *part; enum lmc_dtype dtype; } dtypes[] = {
        {".bf16.", LMC_BF16}, {".f16.", LMC_F16}, {".f32.", LMC_F32}, {".u8.", LMC_U8}};
    enum lmc_dtype dtype = LMC_AUTO;
    const char *slash = strrchr(path, '/'), *name = path;
    FILE *file = fopen(path, "rb");
    uint8_t head[8], *src;
    uint64_t skip = 0;
    long end;
    size_t i, size;
    if (file == NULL || fread(head, 1, 8, file) != 8 || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) < 16) {
        fprintf(stderr, "bench: cannot read %s\n", path);
        exit(1);
    }
    for (i = 0; i < 8; i++) skip |= (uint64_t)head[i] << 8 * i;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strstr(path, dtypes[i].part) != NULL) dtype = dtypes[i].dtype;
    skip = dtype == LMC_AUTO || skip > (uint64_t)end - 8 ? 0 : skip + 8;
    size = (size_t)((uint64_t)end - skip);
    size -= size % lmc_dtype_width(dtype);
    src = (uint8_t *)allocate(size);
    if (fseek(file, (long)skip, SEEK_SET) != 0 || fread(src, 1, size, file) != size) exit(1);
    fclose(file);
    /* the folder, too, tells files of a series apart */
    while (slash != NULL && slash > path && slash[-1] != '/') slash--;
    if (slash != NULL) name = slash;
    if (only == NULL || strstr(name, only) != NULL) measure(name, src, size, dtype);
    free(src);
}

int main(int argc, char **argv)
{
    size_t mb = 256;
    const char *tier_name = NULL;
    int i, k, tier;
    for (i = 1; i < argc && argv[i][0] == '-'; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mb") == 0) mb = (size_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--reps") == 0) n_reps = atoi(value);
        else if (strcmp(argv[i], "--tier") == 0) tier_name = value;
        else if (strcmp(argv[i], "--only") == 0) only = value;
        else if (strcmp(argv[i], "--level") == 0) level = (enum lmc_level)atoi(value);
        else if (strcmp(argv[i], "--json") == 0) json = fopen(value, "w");
        else n_reps = 0;
    }
    if (n_reps < 1 || n_reps > MAX_REPS || mb > 100000) {
        fprintf(stderr, "usage: bench [--mb N] [--reps N] [--tier NAME] [--only NAME] [--level N] [--json FILE] [FILE...]\n");
        return 2;
    }
    if (json != NULL) fprintf(json, "[");
    for (tier = 0; tier < LMC_TIER_COUNT; tier++) {
        if (!lmc_has_tier((enum lmc_tier)tier) || (tier_name != NULL && strcmp(tier_name, lmc_tier_name((enum lmc_tier)tier)) != 0)) continue;
        lmc_limit_tier((enum lmc_tier)tier);
        printf("\nTier %s, one thread, medians of %d; speeds in GB/s, sizes and entropy in %% of the input:\n\n", lmc_tier_name((enum lmc_tier)tier),
               n_reps);
        printf("| data | dtype | MB | memcpy | compress | x memcpy | decompress | x memcpy | size | entropy | distance |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|\n");
        if (mb > 0) measure_synthetic(mb * 1000000);
        for (k = i; k < argc; k++) measure_file(argv[k]);
    }
    if (json != NULL) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
