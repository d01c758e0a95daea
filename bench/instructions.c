/* Runs one kernel once, for bench/instructions, which counts the instructions it takes under an
 * emulator.
 *
 *   instructions --tiers | --kernels
 *   instructions TIER KERNEL N MOST [REPEATS]    on the first N of MOST elements or bytes; setup
 *   does not depend on N.
 *                                                With REPEATS: again so often, and print the
 *                                                nanoseconds it took in all */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LMC_IMPLEMENTATION
#include "../lmc.h"

static const char *const names[] = {"crc32c",
                                    "split 1",
                                    "split 2",
                                    "split 4",
                                    "split 8",
                                    "join_root 1",
                                    "join_root 2",
                                    "join_root 4",
                                    "join_root 8",
                                    "count_classes 2",
                                    "map",
                                    "partition, two lists",
                                    "partition, left list",
                                    "partition, right list",
                                    "partition, no list",
                                    "merge, two lists",
                                    "merge, left list",
                                    "merge, right list",
                                    "merge, no list",
                                    "flatten 2",
                                    "flatten 5",
                                    "unflatten 2",
                                    "unflatten 5",
                                    "group 2",
                                    "ungroup 2",
                                    "sum64",
                                    "count_ones"};
/* as for bf16: six classes of equal size */
static const lmc__grouping grouping = {6, 0, {43, 86, 128, 171, 213}};
static lmc__delta_block block = {NULL, 0, 2, LMC__ORDER_FLOAT, &grouping};

int main(int argc, char **argv)
{
    const int n_names = (int)(sizeof names / sizeof *names);
    uint32_t random = 1;
    size_t n, most, i, repeats, result = 0;
    struct timespec start, end;
    int tier, kernel = 0;
    uint8_t *a, *b, *mask, *left, *right, table[256];
    lmc__planes planes;
    lmc__const_planes const_planes;
    lmc__classes classes;
    lmc__class_sides sides;
    const lmc__streaming off = {0, NULL, 0, NULL};
    size_t counts[LMC__MAX_CLASSES];
    unsigned c, p;
    const lmc__kernels *k = NULL;
    if (argc == 2 && strcmp(argv[1], "--tiers") == 0) {
        for (tier = 0; tier < LMC_TIER_COUNT; tier++)
            if (lmc_tier_is_available((enum lmc_tier)tier))
                printf("%s\n", lmc_tier_name((enum lmc_tier)tier));
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--kernels") == 0) {
        for (kernel = 0; kernel < n_names; kernel++) printf("%s\n", names[kernel]);
        return 0;
    }
    for (tier = 0; argc >= 5 && tier < LMC_TIER_COUNT; tier++)
        if (strcmp(argv[1], lmc_tier_name((enum lmc_tier)tier)) == 0)
            k = lmc__find_kernels((enum lmc_tier)tier);
    while (argc >= 5 && kernel < n_names && strcmp(argv[2], names[kernel]) != 0) kernel++;
    if (k == NULL || kernel == n_names) return 2;
    n = (size_t)strtoul(argv[3], NULL, 10);
    most = (size_t)strtoul(argv[4], NULL, 10);
    repeats = argc > 5 ? (size_t)strtoul(argv[5], NULL, 10) : 1;
    a = (uint8_t *)calloc(8 * most + LMC__PAD, 1);
    b = (uint8_t *)calloc(8 * most + LMC__PAD, 1);
    mask = (uint8_t *)calloc(most / 8 + LMC__PAD, 1);
    left = (uint8_t *)calloc(most + LMC__PAD, 1);
    right = (uint8_t *)calloc(most + LMC__PAD, 1);
    if (n > most || !a || !b || !mask || !left || !right) return 2;
    for (i = 0; i < 256; i++) table[i] = (uint8_t)(255 - i);
    for (i = 0; i < most; i++) {
        random = random * 1664525u + 1013904223u;
        a[i] = (uint8_t)(random >> 24);
        mask[i / 8] |= (uint8_t)(random >> 31 << (i & 7));
    }
    for (i = 0; i < 8; i++) const_planes.row[i] = planes.row[i] = b + i * most;
    block.base = a;
    block.n = n;
    memset(&classes, 0, sizeof classes);
    memset(&sides, 0, sizeof sides);
    for (c = 0; c < grouping.n_classes; c++)
        for (p = 0; p < 2; p++) {
            sides.side[c][p].list = classes.row[c][p] = (uint8_t *)calloc(most + LMC__PAD, 1);
            if (!classes.row[c][p]) return 2;
        }
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (repeats-- != 0) switch (kernel) {
        case 0: result += k->crc32c(0, a, n); break;
        case 1:
        case 2:
        case 3:
        case 4: k->split(&planes, a, n, 1u << (kernel - 1), LMC__ORDER_FLOAT); break;
        case 5:
        case 6:
        case 7:
        case 8:
            result += k->join_root(
                k, a, lmc__join_from(&const_planes, NULL, 1u << (kernel - 5), LMC__ORDER_FLOAT), n,
                off);
            break;
        case 9: k->count_classes(counts, a, n, 2, &grouping, NULL); break;
        case 10: k->map(b, a, n, table); break;
        case 11:
        case 12:
        case 13:
        case 14:
            result += k->partition(mask, kernel == 11 || kernel == 12 ? left : NULL,
                                   kernel == 11 || kernel == 13 ? right : NULL, a, n, 128);
            break;
        case 15:
        case 16:
        case 17:
        case 18: {
            lmc__side l = {NULL, 1}, r = {NULL, 2};
            if (kernel == 15 || kernel == 16) l.list = left;
            if (kernel == 15 || kernel == 17) r.list = right;
            k->merge(b, mask, n, l, r);
            break;
        }
        case 19:
        case 20: k->flatten(b, a, n, 0, kernel == 19 ? 2 : 5); break;
        case 21:
        case 22: k->unflatten(b, a, n, table, kernel == 21 ? 2 : 5); break;
        case 23: result += k->group(k, &classes, a, &block); break;
        case 24: result += k->ungroup(k, b, &sides, &block, off); break;
        case 25: result += (size_t)k->sum64(a, n); break;
        default: result += k->count_ones(a, n);
        }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (argc > 5)
        printf("%.0f\n",
               1e9 * (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec));
    return result == 12345; /* so that the result is used */
}
