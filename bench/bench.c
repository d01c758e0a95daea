/* In-process benchmark of LMC alone: kernels, whole codec, block sizes, threads. (peers.py measures
 * others beside it.)
 *
 *   bench [--mb N] [--reps N] [--tier NAME] [--only TEXT] [--parts LIST] [--json FILE] [FILE...]
 *
 * Parts, in this order; the default is all: kernels, codec, blocks, huge, sparse, threads. Data
 * sets: synthetic ones of N MB (default 256; MB are 10^6 bytes), then the FILEs: tensor data of
 * safetensors files whose name says the dtype, as in model.bf16.safetensors. Files of one name (the
 * steps of a series) are joined, and repeated until they fill N MB, more than a cache. Blocks are
 * coded alone, so repetition changes no size.
 *
 * Buffers are mapped page-aligned and pre-faulted. In each repetition memcpy of the same buffer and
 * each tier's encoder and decoder take turns; medians are shown, in GB (10^9 bytes) of original
 * data per second. Cycles are ticks of the time stamp counter, which has a constant rate,
 * independent of the core's clock; "-" without a counter. All results are compared with the
 * original, or with the scalar kernel's. Markdown to stdout, JSON to FILE. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define BENCH "bench"
#include "measure.h"

#include "data.h"

/* -- time -- */

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

/* Ticks per second, measured over a twentieth of a second; 0 without a counter. */
static double tick_rate(void)
{
    static double rate = -1;
    if (rate < 0) {
        const double start = now();
        const uint64_t first = ticks();
        while (now() - start < 0.05) {}
        rate = (double)(ticks() - first) / (now() - start);
    }
    return rate;
}

/* -- output -- */

/* Cycles per byte at that many GB/s, as text; four may be in use at once. */
static const char *cycles(double gb_s)
{
    static char text[4][32];
    static int i;
    i = (i + 1) % 4;
    if (tick_rate() > 0) snprintf(text[i], sizeof text[i], "%.3f", tick_rate() / (gb_s * 1e9));
    else strcpy(text[i], "-");
    return text[i];
}

static double json_cycles(double gb_s) { return tick_rate() / (gb_s * 1e9); } /* 0: unknown */

/* == kernels ====================================
 * Each works on one block of bf16 (or fp32) weights, so all its data is in L2. A new kernel needs a
 * function and a line in the table. A function returns how many bytes it handled; its output is
 * added to sum, if that is not NULL. */

#define KERNEL_N 65536u

static struct fixture {
    uint8_t out[4 * KERNEL_N + LMC__PAD], out2[KERNEL_N + LMC__PAD],
        out_mask[KERNEL_N / 8 + LMC__PAD];
    uint8_t bf16[2 * KERNEL_N], fp32[4 * KERNEL_N];
    uint8_t rows[4][KERNEL_N]; /* the planes of fp32 */
    /* as values; by rank, most frequent first */
    uint8_t exponents[KERNEL_N + LMC__PAD], ranks[KERNEL_N + LMC__PAD];
    /* ranks, partitioned */
    uint8_t left[KERNEL_N + LMC__PAD], right[KERNEL_N + LMC__PAD], mask[KERNEL_N / 8 + LMC__PAD];
    /* by depth: ranks modulo 2^depth */
    uint8_t small[5][KERNEL_N + LMC__PAD];
    uint8_t bits[5][KERNEL_N]; /* these, flattened */
    uint8_t table[256], split;
    uint8_t out_rows[4][KERNEL_N + LMC__PAD];
} fix;

typedef uint32_t checksum;
static void wrote(checksum *sum, const void *p, size_t size)
{
    if (sum != NULL) *sum = lmc__crc32c_scalar(*sum, (const uint8_t *)p, size);
}

static size_t run_memcpy(const lmc__kernels *k, checksum *sum)
{
    (void)k;
    memcpy(fix.out, fix.bf16, sizeof fix.bf16);
    __asm__ volatile("" : : "r"(fix.out) : "memory"); /* else the compiler could remove the call */
    wrote(sum, fix.out, sizeof fix.bf16);
    return sizeof fix.bf16;
}

static size_t run_crc32c(const lmc__kernels *k, checksum *sum)
{
    const uint32_t crc = k->crc32c(0, fix.bf16, sizeof fix.bf16);
    wrote(sum, &crc, sizeof crc);
    return sizeof fix.bf16;
}

static size_t split(const lmc__kernels *k, checksum *sum, const uint8_t *src, unsigned width)
{
    lmc__planes planes;
    unsigned p;
    memset(&planes, 0, sizeof planes);
    for (p = 0; p < width; p++) planes.row[p] = fix.out_rows[p];
    k->split(&planes, src, KERNEL_N, width, 1);
    for (p = 0; p < width; p++) wrote(sum, fix.out_rows[p], KERNEL_N);
    return (size_t)width * KERNEL_N;
}
static size_t run_split_2(const lmc__kernels *k, checksum *sum)
{
    return split(k, sum, fix.bf16, 2);
}
static size_t run_split_4(const lmc__kernels *k, checksum *sum)
{
    return split(k, sum, fix.fp32, 4);
}

static size_t split_root(const lmc__kernels *k, checksum *sum, const uint8_t *src, unsigned width)
{
    lmc__planes planes;
    lmc__parted root;
    uint32_t crc;
    unsigned p;
    memset(&planes, 0, sizeof planes);
    for (p = 0; p < width; p++) planes.row[p] = fix.out_rows[p];
    root.plane = width - 1; /* of the exponents */
    root.table = fix.table;
    root.split = fix.split;
    root.mask = fix.out_mask;
    root.left = fix.out;
    root.right = fix.out2;
    crc = k->split_root(k, &planes, &root, src, KERNEL_N, width, 1, NULL);
    for (p = 0; p < root.plane; p++) wrote(sum, fix.out_rows[p], KERNEL_N);
    wrote(sum, fix.out_mask, KERNEL_N / 8);
    wrote(sum, fix.out, KERNEL_N - root.n_right);
    wrote(sum, fix.out2, root.n_right);
    wrote(sum, &crc, sizeof crc);
    return (size_t)width * KERNEL_N;
}
static size_t run_split_root_2(const lmc__kernels *k, checksum *sum)
{
    return split_root(k, sum, fix.bf16, 2);
}
static size_t run_split_root_4(const lmc__kernels *k, checksum *sum)
{
    return split_root(k, sum, fix.fp32, 4);
}

/* with_root: the top plane is merged from two lists of ranks; else it is used directly. Its bytes
 * are not those of split_root, but the work is the same. */
static size_t join_root(const lmc__kernels *k, checksum *sum, unsigned width, int with_root)
{
    const lmc__streaming off = {0, NULL, 0, NULL};
    lmc__const_planes planes;
    lmc__merged root;
    const lmc__join_source source = {&planes, with_root ? &root : NULL, width, LMC__ORDER_FLOAT};
    uint32_t crc;
    unsigned p;
    memset(&planes, 0, sizeof planes);
    for (p = 0; p < width; p++) planes.row[p] = fix.rows[p];
    root.plane = width - 1;
    root.row = fix.out2;
    root.mask = fix.mask;
    root.left.list = fix.left;
    root.right.list = fix.right;
    root.left.value = root.right.value = 0;
    crc = k->join_root(k, fix.out, source, KERNEL_N, off);
    wrote(sum, fix.out, (size_t)width * KERNEL_N);
    wrote(sum, &crc, sizeof crc);
    return (size_t)width * KERNEL_N;
}
static size_t run_join_2(const lmc__kernels *k, checksum *sum) { return join_root(k, sum, 2, 0); }
static size_t run_join_4(const lmc__kernels *k, checksum *sum) { return join_root(k, sum, 4, 0); }
static size_t run_join_root_2(const lmc__kernels *k, checksum *sum)
{
    return join_root(k, sum, 2, 1);
}
static size_t run_join_root_4(const lmc__kernels *k, checksum *sum)
{
    return join_root(k, sum, 4, 1);
}

static size_t run_map(const lmc__kernels *k, checksum *sum)
{
    k->map(fix.out, fix.exponents, KERNEL_N, fix.table);
    wrote(sum, fix.out, KERNEL_N);
    return KERNEL_N;
}

static size_t partition(const lmc__kernels *k, checksum *sum, uint8_t *left, uint8_t *right)
{
    const size_t n_right = k->partition(fix.out_mask, left, right, fix.ranks, KERNEL_N, fix.split);
    wrote(sum, fix.out_mask, KERNEL_N / 8);
    if (left != NULL) wrote(sum, left, KERNEL_N - n_right);
    if (right != NULL) wrote(sum, right, n_right);
    return KERNEL_N;
}
static size_t run_partition_both(const lmc__kernels *k, checksum *sum)
{
    return partition(k, sum, fix.out, fix.out2);
}
static size_t run_partition_right(const lmc__kernels *k, checksum *sum)
{
    return partition(k, sum, NULL, fix.out2);
}
static size_t run_partition_none(const lmc__kernels *k, checksum *sum)
{
    return partition(k, sum, NULL, NULL);
}

static size_t merge(const lmc__kernels *k, checksum *sum, const uint8_t *left, const uint8_t *right)
{
    lmc__side a, b;
    a.list = left;
    a.value = 0;
    b.list = right;
    b.value = 1;
    k->merge(fix.out, fix.mask, KERNEL_N, a, b);
    wrote(sum, fix.out, KERNEL_N);
    return KERNEL_N;
}
static size_t run_merge_lists(const lmc__kernels *k, checksum *sum)
{
    return merge(k, sum, fix.left, fix.right);
}
static size_t run_merge_leaf(const lmc__kernels *k, checksum *sum)
{
    return merge(k, sum, NULL, fix.right);
}
static size_t run_merge_leaves(const lmc__kernels *k, checksum *sum)
{
    return merge(k, sum, NULL, NULL);
}

static size_t flatten(const lmc__kernels *k, checksum *sum, unsigned depth)
{
    k->flatten(fix.out, fix.small[depth], KERNEL_N, 0, depth);
    wrote(sum, fix.out, depth * (KERNEL_N / 8));
    return KERNEL_N;
}
static size_t run_flatten_2(const lmc__kernels *k, checksum *sum) { return flatten(k, sum, 2); }
static size_t run_flatten_4(const lmc__kernels *k, checksum *sum) { return flatten(k, sum, 4); }

static size_t unflatten(const lmc__kernels *k, checksum *sum, unsigned depth)
{
    k->unflatten(fix.out, fix.bits[depth], KERNEL_N, fix.table, depth);
    wrote(sum, fix.out, KERNEL_N);
    return KERNEL_N;
}
static size_t run_unflatten_2(const lmc__kernels *k, checksum *sum) { return unflatten(k, sum, 2); }
static size_t run_unflatten_4(const lmc__kernels *k, checksum *sum) { return unflatten(k, sum, 4); }

static size_t run_count_ones(const lmc__kernels *k, checksum *sum)
{
    const size_t ones = k->count_ones(fix.mask, KERNEL_N / 8);
    wrote(sum, &ones, sizeof ones);
    return KERNEL_N / 8;
}

static const struct kernel_row {
    const char *name, *bytes; /* which bytes the speed counts */
    size_t (*run)(const lmc__kernels *k, checksum *sum);
} kernel_rows[] = {
    {"memcpy", "copied", run_memcpy},
    {"crc32c", "read", run_crc32c},
    {"split, bf16", "elements", run_split_2},
    {"split, fp32", "elements", run_split_4},
    {"split_root (split, partition, CRC), bf16", "elements", run_split_root_2},
    {"split_root (split, partition, CRC), fp32", "elements", run_split_root_4},
    {"join_root without root (join, CRC), bf16", "elements", run_join_2},
    {"join_root without root (join, CRC), fp32", "elements", run_join_4},
    {"join_root (merge, join, CRC), bf16", "elements", run_join_root_2},
    {"join_root (merge, join, CRC), fp32", "elements", run_join_root_4},
    {"map", "symbols", run_map},
    {"partition to two lists", "symbols", run_partition_both},
    {"partition to one list", "symbols", run_partition_right},
    {"partition, mask only", "symbols", run_partition_none},
    {"merge of two lists", "symbols", run_merge_lists},
    {"merge of a list and a leaf", "symbols", run_merge_leaf},
    {"merge of two leaves", "symbols", run_merge_leaves},
    {"flatten, depth 2", "symbols", run_flatten_2},
    {"flatten, depth 4", "symbols", run_flatten_4},
    {"unflatten, depth 2", "symbols", run_unflatten_2},
    {"unflatten, depth 4", "symbols", run_unflatten_4},
    {"count_ones", "mask", run_count_ones},
};

static void prepare_kernels(void)
{
    const lmc__kernels *k = lmc__find_kernels(LMC_TIER_SCALAR);
    lmc__planes planes;
    uint8_t symbols[256];
    uint32_t counts[256] = {0};
    size_t i, below = 0;
    unsigned j;
    memset(&planes, 0, sizeof planes);
    t_fill(fix.bf16, sizeof fix.bf16, T_GAUSS, LMC_BF16, 1);
    t_fill(fix.fp32, sizeof fix.fp32, T_GAUSS, LMC_F32, 1);
    planes.row[0] = fix.out;
    planes.row[1] = fix.exponents;
    k->split(&planes, fix.bf16, KERNEL_N, 2, 1);
    for (j = 0; j < 4; j++) planes.row[j] = fix.rows[j];
    k->split(&planes, fix.fp32, KERNEL_N, 4, 1);
    for (i = 0; i < KERNEL_N; i++) counts[fix.exponents[i]]++;
    for (j = 0; j < 256; j++) symbols[j] = (uint8_t)j;
    for (i = 1; i < 256; i++) /* insertion sort by count */
        for (j = (unsigned)i; j > 0 && counts[symbols[j]] > counts[symbols[j - 1]]; j--) {
            const uint8_t swap = symbols[j];
            symbols[j] = symbols[j - 1];
            symbols[j - 1] = swap;
        }
    for (j = 0; j < 256; j++) fix.table[symbols[j]] = (uint8_t)j;
    for (i = 0; i < KERNEL_N; i++) {
        fix.ranks[i] = fix.table[fix.exponents[i]];
        for (j = 1; j < 5; j++) fix.small[j][i] = (uint8_t)(fix.ranks[i] & ((1u << j) - 1));
    }
    /* the root splits where the halves are nearest to equal */
    for (j = 0; j < 255 && below + counts[symbols[j]] / 2 < KERNEL_N / 2; j++)
        below += counts[symbols[j]];
    fix.split = (uint8_t)(j < 1 ? 1 : j);
    k->partition(fix.mask, fix.left, fix.right, fix.ranks, KERNEL_N, fix.split);
    for (j = 1; j < 5; j++) k->flatten(fix.bits[j], fix.small[j], KERNEL_N, 0, j);
}

static void measure_kernels(void)
{
    const size_t n_rows = sizeof kernel_rows / sizeof *kernel_rows;
    static double times[LMC__N_TIERS][MAX_REPS];
    size_t i, j;
    int tier, rep;
    prepare_kernels();
    printf("\n| kernel | bytes |");
    for (tier = 0; tier < LMC__N_TIERS; tier++)
        if (wanted_tier(tier)) printf(" %s | c/B |", lmc_tier_name((enum lmc_tier)tier));
    printf("\n|---|---|");
    for (tier = 0; tier < LMC__N_TIERS; tier++)
        if (wanted_tier(tier)) printf("---|---|");
    printf("\n");
    for (i = 0; i < n_rows; i++) {
        const struct kernel_row *row = &kernel_rows[i];
        const size_t size = row->run(lmc__find_kernels(LMC_TIER_SCALAR), NULL);
        checksum expected = 0;
        if (only != NULL && strstr(row->name, only) == NULL) continue;
        row->run(lmc__find_kernels(LMC_TIER_SCALAR), &expected);
        for (rep = -1; rep < n_reps; rep++)
            for (tier = 0; tier < LMC__N_TIERS; tier++) {
                const lmc__kernels *k = lmc__find_kernels((enum lmc_tier)tier);
                /* for a millisecond or more */
                const size_t loops = 1 + 8000000 * (size_t)(tier == LMC_TIER_SCALAR ? 1 : 4) / size;
                checksum sum = 0;
                double start;
                if (!wanted_tier(tier)) continue;
                start = now();
                for (j = 0; j < loops; j++) row->run(k, NULL);
                times[tier][rep < 0 ? 0 : rep] = (now() - start) / (double)loops;
                memset(fix.out, 0xEE, sizeof fix.out);
                memset(fix.out2, 0xEE, sizeof fix.out2);
                memset(fix.out_mask, 0xEE, sizeof fix.out_mask);
                memset(fix.out_rows, 0xEE, sizeof fix.out_rows);
                row->run(k, &sum);
                if (sum != expected) fail("not what the scalar kernel gives: ", row->name);
            }
        printf("| %s | %s |", row->name, row->bytes);
        for (tier = 0; tier < LMC__N_TIERS; tier++)
            if (wanted_tier(tier)) {
                const double gb_s = (double)size / 1e9 / median(times[tier]);
                printf(" %.2f | %s |", gb_s, cycles(gb_s));
                if (json != NULL)
                    fprintf(json,
                            "%s{\"part\": \"kernels\", \"kernel\": \"%s\", \"tier\": \"%s\", "
                            "\"bytes\": %lu, \"gb_s\": %.4f, \"cycles_per_byte\": %.5f}",
                            json_row(), row->name, lmc_tier_name((enum lmc_tier)tier),
                            (unsigned long)size, gb_s, json_cycles(gb_s));
            }
        printf("\n");
        fflush(stdout);
    }
}

/* == whole codec ==================================== */

/* The Makefile defines BENCH_LEVELS if the library has levels. Levels other than the default are
 * measured on the best tier; "fast" also on other vector tiers. */
#ifdef BENCH_LEVELS
static const char *const level_names[] = {"default", "fast", "max", "archive"};
static void set_level(lmc_tensor_options *options, size_t level)
{
    static const enum lmc_level levels[] = {LMC_LEVEL_DEFAULT, LMC_LEVEL_FAST, LMC_LEVEL_MAX,
                                            LMC_LEVEL_ARCHIVE};
    options->level = levels[level];
}
#else
static const char *const level_names[] = {"default"};
static void set_level(lmc_tensor_options *options, size_t level) { (void)options, (void)level; }
#endif
#define N_LEVELS (sizeof level_names / sizeof *level_names)
static int wanted_level(size_t level, int tier)
{
    return wanted_tier(tier) &&
           (level == 0 || tier == best_tier() || (level == 1 && tier != LMC_TIER_SCALAR));
}

/* One row for each tier and level. Small data is coded several times for each sample, so that a
 * sample takes at least 10 ms. */
static void measure_codec(const char *part, const char *name, const uint8_t *src, size_t size,
                          enum lmc_dtype dtype, unsigned log2_block)
{
    static double copy_times[MAX_REPS], encode_times[LMC__N_TIERS][N_LEVELS][MAX_REPS],
        decode_times[LMC__N_TIERS][N_LEVELS][MAX_REPS];
    lmc_tensor_options options;
    const int first_tier = strcmp(part, "codec") == 0 ? 0 : best_tier();
    const size_t n_levels = strcmp(part, "codec") == 0 ? N_LEVELS : 1;
    size_t cap, enc_size[N_LEVELS] = {0}, ws_size, loops = 1 + 20000000 / size, i, level;
    uint8_t *enc, *dst, *ws;
    double gb = (double)size * (double)loops / 1e9, copy, entropy;
    int rep, tier;

    options = LMC_TENSOR_OPTIONS(dtype);
    options.log2_block = log2_block;
    for (level = 0, cap = ws_size = 0; level < N_LEVELS; level++) {
        size_t bound, need;
        set_level(&options, level);
        bound = lmc_tensor_bound(size, &options);
        need = lmc_tensor_workspace_size(&options);
        cap = bound > cap ? bound : cap;
        ws_size = need > ws_size ? need : ws_size;
    }
    enc = allocate(cap);
    dst = allocate(size);
    ws = allocate(ws_size);
    for (rep = -1; rep < n_reps; rep++) { /* -1: warm-up */
        double start = now();
        const int r = rep < 0 ? 0 : rep;
        for (i = 0; i < loops; i++) {
            memcpy(dst, src, size);
            __asm__ volatile("" : : "r"(dst) : "memory"); /* do not merge the copies */
        }
        copy_times[r] = now() - start;
        for (tier = first_tier; tier < LMC__N_TIERS; tier++)
            for (level = 0; level < n_levels; level++) {
                size_t enc_now = 0;
                if (!wanted_level(level, tier)) continue;
                lmc_tier_limit((enum lmc_tier)tier);
                set_level(&options, level);
                start = now();
                for (i = 0; i < loops; i++)
                    if (lmc_tensor_encode(enc, cap, &enc_now, src, size, &options, ws, ws_size) !=
                        LMC_OK)
                        fail("cannot encode ", name);
                encode_times[tier][level][r] = now() - start;
                if (enc_size[level] != 0 && enc_size[level] != enc_now)
                    fail("tiers differ in size: ", name);
                enc_size[level] = enc_now;
                memset(dst, 0xEE, size);
                start = now();
                for (i = 0; i < loops; i++)
                    if (lmc_tensor_decode(dst, size, enc, enc_now, &options, ws, ws_size) != LMC_OK)
                        fail("cannot decode ", name);
                decode_times[tier][level][r] = now() - start;
                if (memcmp(dst, src, size) != 0) fail("did not come back: ", name);
            }
    }
    copy = gb / median(copy_times);
    /* with blocks of the default size, so that other sizes and levels are compared with the same
     * bound */
    entropy =
        100.0 * t_entropy(src, size, dtype, (size_t)65536 * lmc_dtype_width(dtype)) / (double)size;
    for (tier = first_tier; tier < LMC__N_TIERS; tier++)
        for (level = 0; level < n_levels; level++) {
            const char *tier_name = lmc_tier_name((enum lmc_tier)tier);
            double encode, decode, percent = 100.0 * (double)enc_size[level] / (double)size;
            if (!wanted_level(level, tier)) continue;
            encode = gb / median(encode_times[tier][level]);
            decode = gb / median(decode_times[tier][level]);
            if (log2_block != 0) printf("| %u Ki ", 1u << (log2_block - 10));
            printf("| %s | %s | %s%s%s | %.2f | %.2f | %.3f | %s | %.2f | %.3f | %s | %.3f | %.3f "
                   "| %+.3f |\n",
                   name, lmc_dtype_name(dtype), tier_name, level ? ", " : "",
                   level ? level_names[level] : "", copy, encode, encode / copy, cycles(encode),
                   decode, decode / copy, cycles(decode), percent, entropy, percent - entropy);
            if (json != NULL)
                fprintf(json,
                        "%s{\"part\": \"%s\", \"data\": \"%s\", \"dtype\": \"%s\", \"tier\": "
                        "\"%s\", \"level\": \"%s\", \"log2_block\": %u,"
                        " \"bytes\": %lu, \"encoded\": %lu, \"memcpy_gb_s\": %.4f, "
                        "\"encode_gb_s\": %.4f, \"decode_gb_s\": %.4f,"
                        " \"encode_cycles_per_byte\": %.5f, \"decode_cycles_per_byte\": %.5f, "
                        "\"entropy_percent\": %.4f}",
                        json_row(), part, name, lmc_dtype_name(dtype), tier_name,
                        level_names[level], log2_block, (unsigned long)size,
                        (unsigned long)enc_size[level], copy, encode, decode, json_cycles(encode),
                        json_cycles(decode), entropy);
        }
    fflush(stdout);
    release(enc, cap);
    release(dst, size);
    release(ws, ws_size);
}

static void print_codec_head(const char *first_column)
{
    printf("\n%s| data | dtype | tier | memcpy | compress | x memcpy | c/B | decompress | x memcpy "
           "| c/B | size | entropy | distance |\n"
           "%s|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
           first_column, first_column[0] ? "|---" : "");
}

static void measure_synthetic(size_t size)
{
    uint8_t *src = allocate(size);
    size_t i;
    for (i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        fill_set(src, size, &sets[i]);
        measure_codec("codec", sets[i].name, src, size, sets[i].dtype, 0);
    }
    release(src, size);
}

static void measure_blocks(size_t size)
{
    uint8_t *src = allocate(size);
    size_t i;
    unsigned log2_block;
    for (i = 0; i < 3; i += 2) { /* bf16, fp32 */
        fill_set(src, size, &sets[i]);
        for (log2_block = 14; log2_block <= 20; log2_block++)
            measure_codec("blocks", sets[i].name, src, size, sets[i].dtype, log2_block);
    }
    release(src, size);
}

/* The same on huge pages (2 MiB on x86), for the three usual dtypes. */
static void measure_huge(size_t size)
{
    uint8_t *src;
    size_t i;
    huge_pages = 1;
    src = allocate(size);
    for (i = 0; i < 3; i++) {
        fill_set(src, size, &sets[i]);
        measure_codec("huge", sets[i].name, src, size, sets[i].dtype, 0);
    }
    release(src, size);
    huge_pages = 0;
}

/* Deltas in which few elements have changed: decoded to another place, and applied in place, both
 * with both checksums, and compared with memcpy of the restored bytes. One row for each tier. */
static void measure_sparse(size_t size)
{
    static const unsigned per_million[] = {1000, 3000, 10000, 15000};
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F32};
    static double copy_times[MAX_REPS], times[2][LMC__N_TIERS][MAX_REPS];
    uint8_t *const old = allocate(size), *const now_ = allocate(size), *const dst = allocate(size);
    size_t i, j, k;
    for (i = 0; i < 2; i++)
        for (j = 0; j < sizeof per_million / sizeof *per_million; j++) {
            const unsigned width = lmc_dtype_width(dtypes[i]);
            lmc_tensor_options options;
            size_t cap, enc_size, ws_size, n_changed = 0;
            uint8_t *enc, *ws;
            char name[80];
            snprintf(name, sizeof name, "sparse delta %s %.1f %%", i ? "fp32" : "bf16",
                     1e-4 * per_million[j]);
            if (only != NULL && strstr(name, only) == NULL) continue;
            make_sparse(old, now_, size, dtypes[i], per_million[j]);
            for (k = 0; k < size / width; k++)
                n_changed += memcmp(old + k * width, now_ + k * width, width) != 0;
            options = LMC_TENSOR_OPTIONS(dtypes[i]);
            options.prediction = old;
            options.prediction_size = size;
            /* up to the largest block, of 4 MiB */
            for (options.log2_block = 20; options.log2_block <= (i ? 20 : 21);
                 options.log2_block++) {
                int rep, tier, way;
                cap = lmc_tensor_bound(size, &options);
                ws_size = lmc_tensor_workspace_size(&options);
                enc = allocate(cap);
                ws = allocate(ws_size);
                lmc_tier_limit((enum lmc_tier)best_tier());
                if (lmc_tensor_encode(enc, cap, &enc_size, now_, size, &options, ws, ws_size) !=
                    LMC_OK)
                    fail("cannot encode ", name);
                for (rep = -1; rep < n_reps; rep++) {
                    const int r = rep < 0 ? 0 : rep;
                    double start = now();
                    memcpy(dst, now_, size);
                    __asm__ volatile("" : : "r"(dst) : "memory");
                    copy_times[r] = now() - start;
                    for (tier = 0; tier < LMC__N_TIERS; tier++)
                        for (way = 0; way < 2 && wanted_tier(tier); way++) {
                            memcpy(dst, old, size);
                            options.prediction = way ? dst : old;
                            lmc_tier_limit((enum lmc_tier)tier);
                            start = now();
                            if (lmc_tensor_decode(dst, size, enc, enc_size, &options, ws,
                                                  ws_size) != LMC_OK)
                                fail("cannot decode ", name);
                            times[way][tier][r] = now() - start;
                            if (memcmp(dst, now_, size) != 0) fail("did not come back: ", name);
                            options.prediction = old;
                        }
                }
                for (tier = 0; tier < LMC__N_TIERS; tier++) {
                    const double gb = (double)size / 1e9, copy = gb / median(copy_times);
                    double decode, apply;
                    if (!wanted_tier(tier)) continue;
                    decode = gb / median(times[0][tier]);
                    apply = gb / median(times[1][tier]);
                    printf("| %s | %.2f %% | %u Ki | %s | %.2f | %.2f | %.3f | %s | %.2f | %.3f | "
                           "%s | "
                           "%.3f |\n",
                           name, 100.0 * (double)n_changed * width / (double)size,
                           1u << (options.log2_block - 10), lmc_tier_name((enum lmc_tier)tier),
                           copy, decode, decode / copy, cycles(decode), apply, apply / copy,
                           cycles(apply), 100.0 * (double)enc_size / (double)size);
                    if (json != NULL)
                        fprintf(json,
                                "%s{\"part\": \"sparse\", \"data\": \"%s\", \"dtype\": \"%s\", "
                                "\"tier\": \"%s\", \"log2_block\": %u, \"bytes\": %lu, "
                                "\"encoded\": %lu, \"changed\": %lu, \"memcpy_gb_s\": %.4f, "
                                "\"decode_gb_s\": %.4f, \"apply_gb_s\": %.4f}",
                                json_row(), name, lmc_dtype_name(dtypes[i]),
                                lmc_tier_name((enum lmc_tier)tier), options.log2_block,
                                (unsigned long)size, (unsigned long)enc_size,
                                (unsigned long)n_changed, copy, decode, apply);
                }
                fflush(stdout);
                release(enc, cap);
                release(ws, ws_size);
            }
        }
    release(old, size);
    release(now_, size);
    release(dst, size);
}

/* -- files -- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static enum lmc_dtype file_dtype(const char *path)
{
    static const struct {
        const char *part;
        enum lmc_dtype dtype;
    } dtypes[] = {{".bf16.", LMC_BF16}, {".f16.", LMC_F16}, {".f32.", LMC_F32}, {".u8.", LMC_U8}};
    size_t i;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strstr(base_name(path), dtypes[i].part) != NULL) return dtypes[i].dtype;
    return LMC_AUTO;
}

/* Measures the files of one name as one data set, repeated until it has size bytes. */
static void measure_files(char **paths, int n, size_t size)
{
    uint8_t *src = allocate(size);
    int i, k;
    for (i = 0; i < n; i++) {
        const char *name = base_name(paths[i]);
        const enum lmc_dtype dtype = file_dtype(paths[i]);
        size_t done = 0, part;
        char label[300];
        for (k = 0; k < i && strcmp(base_name(paths[k]), name) != 0; k++) {}
        if (k < i || (only != NULL && strstr(name, only) == NULL)) continue;
        for (; k < n; k++)
            if (strcmp(base_name(paths[k]), name) == 0)
                done += append_file(src + done, size - done, paths[k], dtype);
        part = done;
        for (; part > 0 && done < size; done += part < size - done ? part : size - done)
            memcpy(src + done, src, part < size - done ? part : size - done);
        snprintf(label, sizeof label, "%.*s",
                 (int)(strstr(name, ".safetensors") ? strstr(name, ".safetensors") - name : 290),
                 name);
        measure_codec("codec", label, src, done - done % lmc_dtype_width(dtype), dtype, 0);
    }
    release(src, size);
}

/* == threads ====================================
 * A pool whose threads yield while they wait, and never sleep, so that the time to wake them is not
 * measured. */

#define MAX_THREADS 16u

static struct pool {
    pthread_t threads[MAX_THREADS];
    unsigned n_workers;
    pthread_mutex_t lock; /* of all below */
    lmc_task task;
    void *arg;
    size_t n_tasks, next, n_running; /* n_running: tasks that have not returned yet */
    int quit;
} pool;

/* Takes a task and runs it; returns 0 if there was none. */
static int pool_step(unsigned worker)
{
    lmc_task task = NULL;
    void *arg = NULL;
    size_t i = 0;
    pthread_mutex_lock(&pool.lock);
    if (pool.next < pool.n_tasks) {
        task = pool.task;
        arg = pool.arg;
        i = pool.next++;
    }
    pthread_mutex_unlock(&pool.lock);
    if (task == NULL) return 0;
    task(arg, i, worker);
    pthread_mutex_lock(&pool.lock);
    pool.n_running--;
    pthread_mutex_unlock(&pool.lock);
    return 1;
}

static void *pool_thread(void *user)
{
    const unsigned worker = (unsigned)(uintptr_t)user;
    int quit = 0;
    while (!quit) {
        if (pool_step(worker)) continue;
        sched_yield();
        pthread_mutex_lock(&pool.lock);
        quit = pool.quit;
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

static void pool_run(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    size_t n_running;
    (void)user;
    (void)n_workers;
    pthread_mutex_lock(&pool.lock);
    pool.task = task;
    pool.arg = arg;
    pool.n_tasks = pool.n_running = n_tasks;
    pool.next = 0;
    pthread_mutex_unlock(&pool.lock);
    do {
        if (!pool_step(0)) sched_yield();
        pthread_mutex_lock(&pool.lock);
        n_running = pool.n_running;
        pthread_mutex_unlock(&pool.lock);
    } while (n_running != 0);
}

static void pool_open(unsigned n_workers)
{
    unsigned i;
    memset(&pool, 0, sizeof pool);
    pthread_mutex_init(&pool.lock, NULL);
    pool.n_workers = n_workers;
    for (i = 1; i < n_workers; i++)
        if (pthread_create(&pool.threads[i], NULL, pool_thread, (void *)(uintptr_t)i) != 0)
            fail("cannot start a thread", "");
}

static void pool_close(void)
{
    unsigned i;
    pthread_mutex_lock(&pool.lock);
    pool.quit = 1;
    pthread_mutex_unlock(&pool.lock);
    for (i = 1; i < pool.n_workers; i++) pthread_join(pool.threads[i], NULL);
    pthread_mutex_destroy(&pool.lock);
}

struct copy {
    uint8_t *dst;
    const uint8_t *src;
    size_t size, n;
};

static void copy_task(void *arg, size_t i, unsigned worker)
{
    const struct copy *copy = (const struct copy *)arg;
    const size_t from = copy->size / copy->n * i,
                 to = i + 1 < copy->n ? copy->size / copy->n * (i + 1) : copy->size;
    (void)worker;
    memcpy(copy->dst + from, copy->src + from, to - from);
}

static void measure_threads(size_t size)
{
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned max_threads =
        n_cpus<1 ? 1 : n_cpus>(long) MAX_THREADS ? MAX_THREADS : (unsigned)n_cpus;
    static double times[MAX_THREADS + 1][3][MAX_REPS]; /* copy, encode, decode */
    uint8_t *src = allocate(size), *dst = allocate(size);
    size_t i;
    lmc_tier_limit((enum lmc_tier)best_tier());
    for (i = 0; i < 3; i += 2) { /* bf16, fp32 */
        double first[3] = {0, 0, 0};
        size_t cap, ws_size, enc_size = 0, what;
        lmc_tensor_options options;
        lmc_parallel parallel = LMC_DEFAULTS;
        uint8_t *enc, *ws;
        unsigned n;
        int rep;
        options = LMC_TENSOR_OPTIONS(sets[i].dtype);
        options.parallel = &parallel;
        parallel.run = pool_run;
        parallel.user = NULL;
        parallel.n_workers = max_threads;
        cap = lmc_tensor_bound(size, &options);
        ws_size = lmc_tensor_workspace_size(&options);
        enc = allocate(cap);
        ws = allocate(ws_size);
        fill_set(src, size, &sets[i]);
        for (rep = -1; rep < n_reps; rep++)
            for (n = 1; n <= max_threads; n++) {
                const int r = rep < 0 ? 0 : rep;
                struct copy copy;
                double start;
                pool_open(n);
                parallel.n_workers = n;
                copy.dst = dst;
                copy.src = src;
                copy.size = size;
                copy.n = n;
                start = now();
                pool_run(NULL, copy_task, &copy, n, (unsigned)n);
                times[n][0][r] = now() - start;
                start = now();
                if (lmc_tensor_encode(enc, cap, &enc_size, src, size, &options, ws, ws_size) !=
                    LMC_OK)
                    fail("cannot encode ", sets[i].name);
                times[n][1][r] = now() - start;
                memset(dst, 0xEE, size);
                start = now();
                if (lmc_tensor_decode(dst, size, enc, enc_size, &options, ws, ws_size) != LMC_OK)
                    fail("cannot decode ", sets[i].name);
                times[n][2][r] = now() - start;
                if (memcmp(dst, src, size) != 0) fail("did not come back: ", sets[i].name);
                pool_close();
            }
        for (n = 1; n <= max_threads; n++) {
            double gb_s[3];
            for (what = 0; what < 3; what++) {
                gb_s[what] = (double)size / 1e9 / median(times[n][what]);
                if (n == 1) first[what] = gb_s[what];
            }
            printf("| %s | %u | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", sets[i].name, n,
                   gb_s[0], gb_s[0] / first[0], gb_s[1], gb_s[1] / first[1], gb_s[2],
                   gb_s[2] / first[2]);
            if (json != NULL)
                fprintf(json,
                        "%s{\"part\": \"threads\", \"data\": \"%s\", \"tier\": \"%s\", "
                        "\"threads\": %u, \"bytes\": %lu,"
                        " \"memcpy_gb_s\": %.4f, \"encode_gb_s\": %.4f, \"decode_gb_s\": %.4f}",
                        json_row(), sets[i].name, lmc_tier_name(lmc_tier_current()), n,
                        (unsigned long)size, gb_s[0], gb_s[1], gb_s[2]);
        }
        fflush(stdout);
        release(enc, cap);
        release(ws, ws_size);
    }
    release(src, size);
    release(dst, size);
}

/* == main ==================================== */

int main(int argc, char **argv)
{
    size_t mb = 256;
    const char *parts = "kernels,codec,blocks,huge,sparse,threads";
    int i;
    for (i = 1; i < argc && argv[i][0] == '-'; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mb") == 0) mb = (size_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--reps") == 0) n_reps = atoi(value);
        else if (strcmp(argv[i], "--tier") == 0) only_tier = value;
        else if (strcmp(argv[i], "--only") == 0) only = value;
        else if (strcmp(argv[i], "--parts") == 0) parts = value;
        else if (strcmp(argv[i], "--json") == 0 && (json = fopen(value, "w")) == NULL)
            fail("cannot write ", value);
        else if (strcmp(argv[i], "--json") == 0) continue;
        else n_reps = 0;
    }
    if (n_reps < 1 || n_reps > MAX_REPS || mb < 1 || mb > 100000) {
        fprintf(stderr, "usage: bench [--mb N] [--reps N] [--tier NAME] [--only TEXT] [--parts "
                        "kernels,codec,blocks,huge,sparse,threads]"
                        " [--json FILE] [FILE...]\n");
        return 2;
    }
    (void)best_tier(); /* fails if there is no such tier */
    if (json != NULL) fprintf(json, "[");
    if (strstr(parts, "kernels") != NULL) {
        printf("\n### Kernels\n\nOne block of %u elements, N(0, 0.02), everything in L2; medians "
               "of %d; GB/s of the bytes that the column names,"
               " and cycles per byte.\n",
               KERNEL_N, n_reps);
        measure_kernels();
    }
    if (strstr(parts, "codec") != NULL) {
        printf("\n### Whole codec\n\nOne thread, headers and checksums included, %lu MB, medians "
               "of %d; speeds in GB/s, sizes and entropy in %% of the"
               " input.\n",
               (unsigned long)mb, n_reps);
        print_codec_head("");
        measure_synthetic(mb * 1000000);
        if (i < argc) measure_files(argv + i, argc - i, mb * 1000000);
    }
    if (strstr(parts, "blocks") != NULL) {
        printf("\n### Block sizes\n\nIn elements; the default is 64 Ki. Entropy is that of blocks "
               "of 64 Ki.\n");
        print_codec_head("| block ");
        measure_blocks(mb * 1000000);
    }
    if (strstr(parts, "huge") != NULL) {
        printf("\n### Huge pages\n\nAs above, with all buffers in huge pages (`madvise`), for "
               "memcpy, too.\n");
        print_codec_head("");
        measure_huge(mb * 1000000);
    }
    if (strstr(parts, "sparse") != NULL) {
        printf("\n### Sparse deltas\n\nOne thread, both checksums included. decode: to another "
               "place; apply: where the prediction is. memcpy is of the restored bytes.\n\n"
               "| data | changed | block | tier | memcpy | decode | x memcpy | c/B | apply | x "
               "memcpy | c/B | size |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        measure_sparse(mb * 1000000 / 4 * 4);
    }
    if (strstr(parts, "threads") != NULL) {
        printf("\n### Threads\n\nSpeeds in GB/s and as multiples of one thread's; memcpy by as "
               "many threads, a slice each.\n\n"
               "| data | threads | memcpy | x | compress | x | decompress | x "
               "|\n|---|---|---|---|---|---|---|---|\n");
        measure_threads(mb * 1000000);
    }
    if (json != NULL) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
