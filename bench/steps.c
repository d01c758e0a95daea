/* The time of each kernel for a block: ticks of the time stamp counter for each element.
 *
 *   steps [--mb N] [--reps N] [--tier NAME] [--only TEXT] [--series DIR] > TABLE
 *
 * Kernels that measure their time code and decode each block, from memory and hot. From memory: N
 * MB, block after block, so that no block is in a cache when its turn comes again. Hot: only the
 * first block. For each kernel and block the fastest of all repetitions counts, which mostly
 * excludes disturbances by other programs. "hot" is the time without waiting for memory; "rest" is
 * outside of all kernels: samples, counts, plans, trees, copies. On AArch64 a tick is one of the
 * generic timer: 1 ns from Armv8.6 on, up to 42 ns before.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#define BENCH "steps"
#include "measure.h"

#include "data.h"

#if !LMC__X86 && !defined(__aarch64__)
#error this reads the time stamp counter of x86-64, or the timer of AArch64
#endif

#define KERNELS(X)                                                                                 \
    X(split_root)                                                                                  \
    X(join_root)                                                                                   \
    X(count_classes)                                                                               \
    X(group)                                                                                       \
    X(ungroup)                                                                                     \
    X(list_changes)                                                                                \
    X(rank_changes)                                                                                \
    X(patch)                                                                                       \
    X(partition)                                                                                   \
    X(merge)                                                                                       \
    X(map)                                                                                         \
    X(flatten)                                                                                     \
    X(unflatten)                                                                                   \
    X(count_ones)                                                                                  \
    X(crc32c)                                                                                      \
    X(join)

enum step {
    COPY,
    TOTAL,
#define STEP(name) STEP_##name,
    KERNELS(STEP)
#undef STEP
        N_STEPS
};
static const char *const step_names[N_STEPS] = {"memcpy", "all",
#define STEP(name) #name,
                                                KERNELS(STEP)
#undef STEP
};

/* Ticks of the current call; each measurement includes `overhead`, the counter's own ticks. */
static uint64_t ticks[N_STEPS], overhead;
static const lmc__kernels *real;

static inline uint64_t read_counter(void)
{
    uint64_t t;
#if LMC__X86
    _mm_lfence();
    t = __builtin_ia32_rdtsc();
    _mm_lfence();
#else
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(t) : : "memory");
#endif
    return t;
}

/* Kernels get the real table, so that calls within them are not measured twice. */
#define TIMED(step, call)                                                                          \
    const uint64_t start = read_counter();                                                         \
    call;                                                                                          \
    {                                                                                              \
        const uint64_t taken = read_counter() - start;                                             \
        ticks[step] += taken > overhead ? taken - overhead : 0;                                    \
    }
#define WRAP_RESULT(type, name, parameters, arguments)                                             \
    static type name parameters                                                                    \
    {                                                                                              \
        type result;                                                                               \
        TIMED(STEP_##name, result = real->name arguments)                                          \
        return result;                                                                             \
    }
#define WRAP(name, parameters, arguments)                                                          \
    static void name parameters { TIMED(STEP_##name, real->name arguments) }
#define K const lmc__kernels *k
#define IGNORE_K ((void)k, real)

WRAP_RESULT(uint32_t, split_root,
            (K, const lmc__planes *planes, lmc__parted *root, const uint8_t *src, size_t n,
             unsigned width, enum lmc__order order, uint64_t *sum),
            (IGNORE_K, planes, root, src, n, width, order, sum))
WRAP_RESULT(uint32_t, join_root,
            (K, uint8_t *dst, lmc__join_source source, size_t n, lmc__streaming streaming),
            (IGNORE_K, dst, source, n, streaming))
WRAP(count_classes,
     (size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n, unsigned width,
      const lmc__grouping *grouping, uint8_t *tally),
     (counts, base, n, width, grouping, tally))
WRAP_RESULT(uint32_t, group,
            (K, lmc__classes *classes, const uint8_t *src, const lmc__delta_block *block),
            (IGNORE_K, classes, src, block))
WRAP_RESULT(uint32_t, ungroup,
            (K, uint8_t *dst, const lmc__class_sides *sides, const lmc__delta_block *block,
             lmc__streaming streaming),
            (IGNORE_K, dst, sides, block, streaming))
WRAP_RESULT(size_t, list_changes,
            (K, uint32_t *crc, const lmc__changed *changed, size_t most, const uint8_t *src,
             const uint8_t *base, size_t n, unsigned width),
            (IGNORE_K, crc, changed, most, src, base, n, width))
WRAP(rank_changes,
     (size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones, const uint8_t *base, size_t n,
      unsigned width, const lmc__grouping *grouping, const lmc__changed *changed, size_t n_changed),
     (counts, ones, base, n, width, grouping, changed, n_changed))
WRAP_RESULT(uint32_t, patch,
            (K, uint8_t *dst, const uint8_t *base, const lmc__patches *changes, size_t n,
             unsigned width, enum lmc__order order, const lmc__grouping *grouping,
             const uint8_t *tally, lmc__undo *undo, lmc__streaming streaming),
            (IGNORE_K, dst, base, changes, n, width, order, grouping, tally, undo, streaming))
WRAP_RESULT(size_t, partition,
            (uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src, size_t n,
             unsigned split_at),
            (mask, left, right, src, n, split_at))
WRAP(merge, (uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left, lmc__side right),
     (dst, mask, n, left, right))
WRAP(map, (uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table), (dst, src, n, table))
WRAP(flatten, (uint8_t *bits, const uint8_t *src, size_t n, unsigned first, unsigned depth),
     (bits, src, n, first, depth))
WRAP(unflatten,
     (uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols, unsigned depth),
     (dst, bits, n, symbols, depth))
WRAP_RESULT(size_t, count_ones, (const uint8_t *mask, size_t size), (mask, size))
WRAP_RESULT(uint32_t, crc32c, (uint32_t crc, const uint8_t *p, size_t size), (crc, p, size))
WRAP(join,
     (uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
      enum lmc__order order),
     (dst, planes, n, width, order))

/* -- blocks -- */

enum { ENCODE, DECODE, N_WAYS, MAX_BLOCKS = 4096 };

static struct job {
    const uint8_t *src, *base;
    size_t size, block_size, width, ws_size, cap;
    enum lmc_dtype dtype;
    uint8_t *enc, *dst, *ws;
} job;

/* The fastest so far. */
static uint64_t least[MAX_BLOCKS][N_WAYS][N_STEPS];

static void run_block(const lmc__kernels *k, size_t block)
{
    const size_t at = block * job.block_size, size = lmc__min(job.block_size, job.size - at);
    const uint8_t *const base = job.base ? job.base + at : NULL;
    lmc_block_info info;
    size_t encoded = 0;
    int way, step;
    for (way = 0; way < N_WAYS; way++) {
        lmc__streaming streaming;
        enum lmc_status status = LMC_OK;
        memset(&streaming, 0, sizeof streaming);
        memset(ticks, 0, sizeof ticks);
        if (way == ENCODE) {
            lmc__job encoding;
            memset(&encoding, 0, sizeof encoding);
            encoding.src = job.src + at;
            encoding.src_size = size;
            encoding.base = base;
            encoding.dst = job.enc;
            encoding.dst_size = job.cap;
            encoding.dtype = job.dtype;
            TIMED(TOTAL, status = lmc__encode_block(k, &encoding, job.ws, job.ws_size))
            encoded = encoding.dst_size;
        } else {
            if (lmc__read_block_info(real, job.enc, encoded, 0, &info) != LMC_OK)
                fail("a block's header cannot be read", "");
            TIMED(TOTAL, status = lmc__decode_block(k, job.dst + at, streaming, job.enc, &info,
                                                    base, 0, job.ws, job.ws_size))
        }
        if (status != LMC_OK) fail("a block failed: ", lmc_status_text(status));
        for (step = TOTAL; step < N_STEPS; step++)
            if (ticks[step] < least[block][way][step]) least[block][way][step] = ticks[step];
    }
    if (memcmp(job.dst + at, job.src + at, size) != 0) fail("did not come back", "");
}

static void copy_block(size_t block)
{
    const size_t at = block * job.block_size, size = lmc__min(job.block_size, job.size - at);
    int way;
    ticks[COPY] = 0;
    {
        TIMED(COPY, memcpy(job.dst + at, job.src + at, size))
    }
    for (way = 0; way < N_WAYS; way++)
        if (ticks[COPY] < least[block][way][COPY]) least[block][way][COPY] = ticks[COPY];
}

/* Ticks for each element, of each step in both directions. */
static void measure_blocks(double out[N_WAYS][N_STEPS], const lmc__kernels *k, size_t n_blocks,
                           int reps)
{
    const double n = (double)lmc__min(job.size, n_blocks * job.block_size) / (double)job.width;
    size_t block;
    int rep, way, step;
    memset(least, 0xFF, sizeof least);
    for (rep = 0; rep < reps; rep++) {
        for (block = 0; block < n_blocks; block++) copy_block(block);
        for (block = 0; block < n_blocks; block++) run_block(k, block);
    }
    memset(out, 0, N_WAYS * sizeof *out);
    for (block = 0; block < n_blocks; block++)
        for (way = 0; way < N_WAYS; way++)
            for (step = 0; step < N_STEPS; step++)
                out[way][step] += (double)least[block][way][step] / n;
}

static void print_steps(const char *name, const char *tier, const double cold[N_WAYS][N_STEPS],
                        const double hot[N_WAYS][N_STEPS])
{
    int way, step;
    for (way = 0; way < N_WAYS; way++) {
        double rest[2] = {cold[way][TOTAL], hot[way][TOTAL]};
        printf("| %s | %s | %s | %.2f | %.2f | %.2f |", name, tier,
               way == ENCODE ? "compress" : "decompress", cold[way][COPY], cold[way][TOTAL],
               hot[way][TOTAL]);
        for (step = TOTAL + 1; step < N_STEPS; step++) {
            rest[0] -= cold[way][step];
            rest[1] -= hot[way][step];
            if (cold[way][step] >= 0.01)
                printf(" %s %.2f (%.2f),", step_names[step], cold[way][step], hot[way][step]);
        }
        printf(" rest %.2f (%.2f) |\n", rest[0], rest[1]);
    }
    fflush(stdout);
}

static void measure_set(const char *name, const uint8_t *src, const uint8_t *base, size_t size,
                        enum lmc_dtype dtype)
{
    static double cold[N_WAYS][N_STEPS], hot[N_WAYS][N_STEPS];
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(LMC_BF16);
    int tier;
    options.dtype = dtype;
    options.prediction = base;
    options.prediction_size = base ? size : 0;
    memset(&job, 0, sizeof job);
    job.src = src;
    job.base = base;
    job.size = size;
    job.dtype = dtype;
    job.width = lmc_dtype_width(dtype);
    job.block_size = lmc__get_tensor_block_size(&options);
    job.cap = lmc_block_bound(job.block_size);
    job.ws_size = lmc_tensor_workspace_size(&options);
    job.enc = allocate(job.cap);
    job.dst = allocate(size);
    job.ws = allocate(job.ws_size);
    for (tier = 0; tier < LMC__N_TIERS; tier++) {
        lmc__kernels wrapped;
        if (!wanted_tier(tier)) continue;
        real = lmc__find_kernels((enum lmc_tier)tier);
        wrapped = *real;
#define STEP(kernel) wrapped.kernel = kernel;
        KERNELS(STEP)
#undef STEP
        measure_blocks(cold, &wrapped,
                       lmc__min((size + job.block_size - 1) / job.block_size, (size_t)MAX_BLOCKS),
                       n_reps);
        measure_blocks(hot, &wrapped, 1, 20 * n_reps);
        print_steps(name, lmc_tier_name((enum lmc_tier)tier), (const double(*)[N_STEPS])cold,
                    (const double(*)[N_STEPS])hot);
    }
    release(job.enc, job.cap);
    release(job.dst, size);
    release(job.ws, job.ws_size);
}

static void calibrate(void)
{
    int i;
    overhead = UINT64_MAX;
    for (i = 0; i < 1000; i++) {
        const uint64_t start = read_counter(), taken = read_counter() - start;
        if (taken < overhead) overhead = taken;
    }
}

int main(int argc, char **argv)
{
    const char *series = NULL;
    size_t size, room;
    uint8_t *src, *base;
    unsigned i;
    int k, mb = 64;
    for (k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--mb") == 0) mb = atoi(argv[k + 1]);
        else if (strcmp(argv[k], "--reps") == 0) n_reps = atoi(argv[k + 1]);
        else if (strcmp(argv[k], "--tier") == 0) only_tier = argv[k + 1];
        else if (strcmp(argv[k], "--only") == 0) only = argv[k + 1];
        else if (strcmp(argv[k], "--series") == 0) series = argv[k + 1];
        else break;
    }
    if (k != argc || n_reps < 1 || mb < 1) {
        fprintf(stderr, "usage: steps [--mb N] [--reps N] [--tier NAME] [--only TEXT]"
                        " [--series DIR]\n");
        return 2;
    }
    calibrate();
    size = (size_t)mb * 1000000;
    room = size < 64000000 ? 64000000 : size;
    src = allocate(room);
    base = allocate(room);
    puts("| data | tier | | memcpy | all | hot | kernels (hot) |\n|---|---|---|---|---|---|---|");
    for (i = 0; sets[i].kind != T_ZERO; i++) {
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        fill_set(src, size, &sets[i]);
        measure_set(sets[i].name, src, NULL, size, sets[i].dtype);
    }
    for (i = 0; i < N_FILE_PAIRS; i++) {
        struct pair pair;
        if (!get_neighbours(&pair, i, series, base, src, room, size)) continue;
        measure_set(pair.name, src, base, size, pair.dtype);
    }
    return 0;
}
