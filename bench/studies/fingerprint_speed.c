/* The cost of comparing a tensor's fingerprint when it is read by the index (spec 7.1), or
 * restored.
 *
 *   cc -O2 -I. bench/studies/fingerprint_speed.c -o build/fingerprint_speed -lm
 *   build/fingerprint_speed [MB [TIER]]
 *
 * One process, one thread, reads without and with the fingerprint in turn; medians, as shares of
 * memcpy's speed.
 * SPDX-License-Identifier: MIT
 */
#define BENCH "fingerprint_speed"
#include "../measure.h"

enum { ROUNDS = 101 };

static double percent(const double *a, const double *b) /* the median of b over a */
{
    double ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) ratio[i] = b[i] / a[i];
    n_reps = ROUNDS;
    return 100 * (median(ratio) - 1);
}

static void measure(enum lmc_dtype dtype, enum t_kind kind, size_t size, uint8_t *data,
                    uint8_t *got)
{
    const uint64_t shape[1] = {size / lmc_dtype_width(dtype)};
    lmc_array array = LMC_ARRAY("t", dtype, 1, NULL, NULL);
    double copy[ROUNDS], plain[ROUNDS], checked[ROUNDS], start;
    lmc_memory packed;
    lmc_sink sink;
    lmc_source source;
    lmc_writer *writer;
    lmc_reader *reader[2];
    lmc_reader_options options;
    uint64_t sum = 0;
    size_t i;
    memset(&packed, 0, sizeof packed);
    options = LMC_READER_OPTIONS();
    t_fill(data, size < ((size_t)16 << 20) ? size : (size_t)16 << 20, kind, dtype, 1);
    for (i = (size_t)16 << 20; i < size; i += (size_t)16 << 20)
        memcpy(data + i, data, (size_t)16 << 20);
    array.shape = shape;
    array.data = data;
    sink = lmc_memory_sink(&packed);
    if (lmc_writer_open(&writer, &sink, NULL) ||
        lmc_writer_add_arrays(writer, "", &array, 1, NULL, 0) || lmc_writer_finish(writer))
        fail("cannot write", "");
    lmc_writer_free(writer);
    source = lmc_memory_source(&packed);
    for (i = 0; i < 2; i++) {
        options.skip_fingerprints = i == 0;
        if (lmc_reader_open(&reader[i], &source, &options)) fail("cannot open", "");
    }
    for (i = 0; i < ROUNDS; i++) {
        for (int turn = 0; turn < 2; turn++) {
            const int which = turn ^ (int)(i & 1); /* the first one finds memcpy's bytes in the
                                                      caches */
            const lmc_tensor *const t = &lmc_reader_get_file(reader[which], 0)->tensors[0];
            start = now();
            if (lmc_reader_read_tensor(reader[which], 0, t, 0, got, size)) fail("cannot read", "");
            *(which ? &checked[i] : &plain[i]) = now() - start;
        }
        start = now();
        memcpy(got, data, size);
        copy[i] = now() - start;
    }
    start = now();
    for (i = 0; i < 4000; i++) sum += lmc__get_kernels()->sum64(data, 65536);
    start = now() - start;
    {
        const double more = percent(plain, checked);
        n_reps = ROUNDS;
        printf(
            "%s %s, %zu MiB: memcpy %.2f GB/s, read %.3f, with the fingerprint %+.1f %%; sums of "
            "64 KiB %.1f GB/s (%u)\n",
            lmc_tier_name(lmc_tier_current()), lmc_dtype_name(dtype), size >> 20,
            (double)size / median(copy) * 1e-9, median(copy) / median(plain), more,
            4000 * 65536 / start * 1e-9, (unsigned)(sum & 1));
    }
    for (i = 0; i < 2; i++) lmc_reader_free(reader[i]);
    lmc_memory_free(&packed);
}

int main(int argc, char **argv)
{
    const size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20;
    uint8_t *const data = allocate(size), *const got = allocate(size);
    for (int tier = 0; tier < LMC__N_TIERS; tier++) {
        if (!lmc_tier_is_available((enum lmc_tier)tier) ||
            strcmp(lmc_tier_name((enum lmc_tier)tier), argc > 2 ? argv[2] : "avx512") != 0)
            continue;
        lmc_tier_limit((enum lmc_tier)tier);
        measure(LMC_BF16, T_GAUSS, size, data, got);
        measure(LMC_F32, T_GAUSS, size, data, got);
    }
    release(data, size);
    release(got, size);
    return 0;
}
