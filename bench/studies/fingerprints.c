/* How often do fingerprints of small tensors collide? For N tensors (default 10,000,000) of one
 * shape, 4096 weights in bf16 like those of an RMSNorm, this counts the pairs with the same
 * CRC-32C, with the same sum of u64 words, and with both. A fingerprint is made from these (spec
 * 7.1; one of each for a tensor of up to 256 KiB).
 *
 *   cc -O2 -I. bench/studies/fingerprints.c -o build/fingerprints -lm
 *   build/fingerprints [N [SEED]]
 *
 * Tensor i is drawn with seed SEED + i: normal, mean 1, standard deviation 0.1, by 65,536
 * quantiles.
 * SPDX-License-Identifier: MIT
 */
#define LMC_IMPLEMENTATION
#include "lmc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_WEIGHTS = 4096, N_QUANTILES = 65536 };

static uint16_t quantiles[N_QUANTILES];

static void make_quantiles(void)
{
    for (int i = 0; i < N_QUANTILES; i++) {
        double p = (i + 0.5) / N_QUANTILES, low = -6, high = 6;
        for (int j = 0; j < 60; j++) {
            double middle = (low + high) / 2;
            if (0.5 * erfc(-middle / sqrt(2.0)) < p) low = middle;
            else high = middle;
        }
        float weight = (float)(1 + 0.1 * low);
        uint32_t bits;
        memcpy(&bits, &weight, sizeof bits);
        quantiles[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

static uint64_t mix(uint64_t x) /* of splitmix64 */
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static void draw(uint16_t *weights, uint64_t seed)
{
    uint64_t state = mix(seed + 1);
    for (int i = 0; i < N_WEIGHTS; i += 4) {
        uint64_t r = mix(state += 0x9E3779B97F4A7C15u);
        for (int j = 0; j < 4; j++) weights[i + j] = quantiles[r >> 16 * j & 0xFFFF];
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, unsigned bits, uint64_t *keys, size_t n)
{
    uint64_t n_pairs = 0, n_same = 0;
    qsort(keys, n, sizeof *keys, compare);
    for (size_t i = 1; i < n; i++) {
        n_same = keys[i] == keys[i - 1] ? n_same + 1 : 0;
        n_pairs += n_same;
    }
    printf("| %s | %u | %llu | %.3g |\n", name, bits, (unsigned long long)n_pairs,
           (double)n * (double)(n - 1) / 2 / pow(2, bits));
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 10000000;
    uint64_t seed = argc > 2 ? (uint64_t)strtoull(argv[2], NULL, 10) : 0;
    uint64_t *sums = (uint64_t *)malloc(n * sizeof *sums);
    uint64_t *keys = (uint64_t *)malloc(n * sizeof *keys);
    uint32_t *crc32c = (uint32_t *)malloc(n * sizeof *crc32c);
    uint16_t weights[N_WEIGHTS];
    if (!sums || !keys || !crc32c) return fprintf(stderr, "no memory\n"), 1;
    make_quantiles();
    for (size_t i = 0; i < n; i++) {
        draw(weights, seed + i);
        sums[i] = lmc__get_kernels()->sum64((const uint8_t *)weights, sizeof weights);
        crc32c[i] = lmc_crc32c(0, weights, sizeof weights);
    }
    printf("%llu tensors of %d bf16, from seed %llu on, %s\n\n", (unsigned long long)n, N_WEIGHTS,
           (unsigned long long)seed, lmc_tier_name(lmc_tier_current()));
    printf("| key | bits | pairs that collide | expected of random keys |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) keys[i] = crc32c[i];
    report("CRC-32C", 32, keys, n);
    for (size_t i = 0; i < n; i++) keys[i] = mix(sums[i]) ^ (uint64_t)crc32c[i] << 32 ^ crc32c[i];
    report("both, mixed to 64 bits", 64, keys, n);
    report("sum", 64, sums, n);
    free(sums);
    free(keys);
    free(crc32c);
    return 0;
}
