/* Runs one kernel, for bench/instructions, which counts its instructions under an emulator,
 * and for bench/mca, which predicts and measures its time.
 *
 *   instructions --tiers | --kernels | --hertz
 *   instructions TIER KERNEL N MOST [REPEATS]    on the first N of MOST elements or bytes; setup
 *                                                does not depend on N. With REPEATS: again so
 *                                                often, and print the nanoseconds that it took,
 *                                                from the fastest of 50 rounds
 *
 * The work of a call is between the functions mark_begin and mark_end. --hertz: the clock of the
 * CPU, from a chain of additions, each of which takes a cycle.
 * SPDX-License-Identifier: MIT
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LMC_IMPLEMENTATION
#include "../lmc.h"

enum kind {
    CRC32C,
    SUM64,
    COUNT_ONES,
    SPLIT,
    SPLIT_ROOT,
    JOIN_ROOT,
    MAP,
    PARTITION,
    MERGE,
    FLATTEN,
    UNFLATTEN,
    COUNT_CLASSES,
    GROUP,
    UNGROUP,
    LIST_CHANGES,
    RANK_CHANGES,
    PATCH,
    RESTORE_CODES,
    RESTORE,
    QUANTIZE,
    SUM_MAGNITUDES,
    JOIN_SYMBOLS,
    CUT_SYMBOLS
};
enum { NO_ROOT, NONE, LEFT, RIGHT, BOTH }; /* which lists a root or node has */

/* size: of an element, or a depth. lists: also whether no row of a table counts up; with undo; bits
 * of a mantissa */
static const struct row {
    const char *name;
    enum kind kind;
    unsigned size, lists;
} rows[] = {
    {"crc32c", CRC32C, 1, 0},
    {"sum64", SUM64, 1, 0},
    {"count_ones", COUNT_ONES, 1, 0},
    {"split 1", SPLIT, 1, 0},
    {"split 2", SPLIT, 2, 0},
    {"split 4", SPLIT, 4, 0},
    {"split 8", SPLIT, 8, 0},
    {"split_root 1", SPLIT_ROOT, 1, NO_ROOT},
    {"split_root 2", SPLIT_ROOT, 2, NO_ROOT},
    {"split_root 4", SPLIT_ROOT, 4, NO_ROOT},
    {"split_root 8", SPLIT_ROOT, 8, NO_ROOT},
    {"split_root 1, two lists", SPLIT_ROOT, 1, BOTH},
    {"split_root 2, two lists", SPLIT_ROOT, 2, BOTH},
    {"split_root 2, left list", SPLIT_ROOT, 2, LEFT},
    {"split_root 2, right list", SPLIT_ROOT, 2, RIGHT},
    {"split_root 2, no list", SPLIT_ROOT, 2, NONE},
    {"split_root 4, two lists", SPLIT_ROOT, 4, BOTH},
    {"split_root 8, two lists", SPLIT_ROOT, 8, BOTH},
    {"join_root 1", JOIN_ROOT, 1, NO_ROOT},
    {"join_root 2", JOIN_ROOT, 2, NO_ROOT},
    {"join_root 4", JOIN_ROOT, 4, NO_ROOT},
    {"join_root 8", JOIN_ROOT, 8, NO_ROOT},
    {"join_root 1, two lists", JOIN_ROOT, 1, BOTH},
    {"join_root 2, two lists", JOIN_ROOT, 2, BOTH},
    {"join_root 2, left list", JOIN_ROOT, 2, LEFT},
    {"join_root 2, right list", JOIN_ROOT, 2, RIGHT},
    {"join_root 2, no list", JOIN_ROOT, 2, NONE},
    {"join_root 4, two lists", JOIN_ROOT, 4, BOTH},
    {"join_root 8, two lists", JOIN_ROOT, 8, BOTH},
    {"map", MAP, 1, 0},
    {"map, no row counts up", MAP, 1, 1},
    {"partition, two lists", PARTITION, 1, BOTH},
    {"partition, left list", PARTITION, 1, LEFT},
    {"partition, right list", PARTITION, 1, RIGHT},
    {"partition, no list", PARTITION, 1, NONE},
    {"merge, two lists", MERGE, 1, BOTH},
    {"merge, left list", MERGE, 1, LEFT},
    {"merge, right list", MERGE, 1, RIGHT},
    {"merge, no list", MERGE, 1, NONE},
    {"flatten 2", FLATTEN, 2, 0},
    {"flatten 5", FLATTEN, 5, 0},
    {"unflatten 2", UNFLATTEN, 2, 0},
    {"unflatten 5", UNFLATTEN, 5, 0},
    {"count_classes 2", COUNT_CLASSES, 2, 0},
    {"count_classes 4", COUNT_CLASSES, 4, 0},
    {"group 2", GROUP, 2, 0},
    {"group 4", GROUP, 4, 0},
    {"ungroup 2", UNGROUP, 2, 0},
    {"ungroup 4", UNGROUP, 4, 0},
    {"list_changes 2", LIST_CHANGES, 2, 0},
    {"list_changes 4", LIST_CHANGES, 4, 0},
    {"rank_changes 2", RANK_CHANGES, 2, 0},
    {"rank_changes 4", RANK_CHANGES, 4, 0},
    {"patch 2", PATCH, 2, 0},
    {"patch 2, undo", PATCH, 2, 1},
    {"patch 4", PATCH, 4, 0},
    {"restore_codes 2, E4M3", RESTORE_CODES, 2, 3},
    {"restore_codes 2, integers", RESTORE_CODES, 2, 7},
    {"restore_codes 4, E4M3", RESTORE_CODES, 4, 3},
    {"restore", RESTORE, 4, 0},
    {"quantize", QUANTIZE, 4, 0},
    {"sum_magnitudes", SUM_MAGNITUDES, 4, 0},
    {"join_symbols", JOIN_SYMBOLS, 1, 0},
    {"cut_symbols", CUT_SYMBOLS, 1, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* as for bf16: six classes of equal size */
static const lmc__grouping grouping = {6, 0, {43, 86, 128, 171, 213}};

__attribute__((noinline)) void mark_begin(void);
__attribute__((noinline)) void mark_end(void);
void mark_begin(void) { __asm__ volatile("" ::: "memory"); }
void mark_end(void) { __asm__ volatile("" ::: "memory"); }

static uint8_t *allocate(size_t size)
{
    uint8_t *p = (uint8_t *)calloc(size + LMC__PAD, 1);
    if (p == NULL) exit(2);
    return p;
}

static double nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double hertz(void)
{
    double least = 1e18, start;
    volatile uint64_t in = 3;
    uint64_t x = in;
    int i, j, k;
    for (i = 0; i < 20; i++) {
        start = nanoseconds();
        for (j = 0; j < 100000; j++) {
            LMC__UNROLL for (k = 0; k < 16; k++)
            {
                x += x;
                __asm__ volatile("" : "+r"(x));
            }
        }
        start = nanoseconds() - start;
        if (start < least) least = start;
    }
    in = x;
    return 16.0 * 100000 / least * 1e9;
}

int main(int argc, char **argv)
{
    uint64_t random = 1;
    uint32_t crc, *ones[LMC__MAX_CLASSES];
    size_t n, most, i, repeats, round, result = 0, n_changed = 0, n_of[LMC__MAX_CLASSES] = {0};
    double start = 0, least = 1e18;
    int tier, row = 0;
    unsigned c, p, width;
    uint8_t *a, *b, *out, *mask, *left, *right, *residuals, *work, table[256];
    uint16_t *symbols;
    uint32_t *scales;
    lmc__planes planes;
    lmc__const_planes const_planes;
    lmc__classes classes;
    lmc__class_sides sides;
    lmc__delta_block block = {NULL, 0, 2, LMC__ORDER_FLOAT, &grouping};
    lmc__side l = {NULL, 1}, r = {NULL, 2};
    lmc__parted parted;
    lmc__merged merged;
    lmc__changed changed;
    lmc__patches patches;
    lmc__join_source source = {&const_planes, NULL, 2, LMC__ORDER_FLOAT};
    lmc__undo undo;
    lmc__code_form form;
    lmc__grid grid = {0, 1, -127, 255, 0, 0, 0};
    size_t counts[LMC__MAX_CLASSES];
    const lmc__kernels *k = NULL, *scalar = lmc__find_kernels(LMC_TIER_SCALAR);
    const struct row *of;
    if (argc == 2 && strcmp(argv[1], "--tiers") == 0) {
        for (tier = 0; tier < LMC__N_TIERS; tier++)
            if (lmc_tier_is_available((enum lmc_tier)tier))
                printf("%s\n", lmc_tier_name((enum lmc_tier)tier));
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--kernels") == 0) {
        for (row = 0; row < N_ROWS; row++) printf("%s\n", rows[row].name);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--hertz") == 0) {
        printf("%.0f\n", hertz());
        return 0;
    }
    for (tier = 0; argc >= 5 && tier < LMC__N_TIERS; tier++)
        if (strcmp(argv[1], lmc_tier_name((enum lmc_tier)tier)) == 0)
            k = lmc__find_kernels((enum lmc_tier)tier);
    while (argc >= 5 && row < N_ROWS && strcmp(argv[2], rows[row].name) != 0) row++;
    if (k == NULL || row == N_ROWS) return 2;
    of = &rows[row];
    width = of->size;
    n = (size_t)strtoul(argv[3], NULL, 10);
    most = (size_t)strtoul(argv[4], NULL, 10);
    repeats = argc > 5 ? (size_t)strtoul(argv[5], NULL, 10) : 1;
    round = repeats < 50 ? 1 : repeats / 50;
    if (n > most) return 2;
    a = allocate(8 * most);
    b = allocate(8 * most);
    out = allocate(8 * most);
    mask = allocate(most / 8);
    left = allocate(most);
    right = allocate(most);
    work = allocate(8 * most);
    residuals = allocate(8 * most);
    symbols = (uint16_t *)(void *)allocate(2 * most);
    for (i = 0; i < 256; i++) table[i] = (uint8_t)i; /* three rows of 16 do not count up */
    for (i = 0; i < 3; i++) {
        table[83 + 16 * i] = (uint8_t)(89 + 16 * i);
        table[89 + 16 * i] = (uint8_t)(83 + 16 * i);
    }
    for (i = 0; of->kind == MAP && of->lists && i < 256; i++) table[i] = (uint8_t)(255 - i);
    for (i = 0; i < most; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        lmc__store64(a + 8 * i, (random ^ random >> 31) * 0x9E3779B97F4A7C15u);
        mask[i / 8] |= (uint8_t)(random >> 63 << (i & 7));
        symbols[i] = (uint16_t)(random >> 56);
    }
    memcpy(b, a, 8 * most);
    for (i = 0; i < 8; i++) const_planes.row[i] = planes.row[i] = out + i * most;
    if (of->lists == LEFT || of->lists == BOTH) l.list = left;
    if (of->lists == RIGHT || of->lists == BOTH) r.list = right;
    memset(&parted, 0, sizeof parted);
    parted.plane = merged.plane = width - 1;
    parted.table = table;
    parted.split = 128;
    parted.mask = mask;
    parted.left = l.list ? left : NULL;
    parted.right = r.list ? right : NULL;
    merged.row = work;
    merged.mask = mask;
    merged.left = l;
    merged.right = r;
    form.mantissa = of->lists;
    form.width = width;
    form.is_half = 0;
    form.group_size = 128;
    lmc__set_numbers(&form);
    source.root = of->lists ? &merged : NULL;
    source.width = width;
    block.base = a;
    block.n = n;
    block.width = width;
    memset(&classes, 0, sizeof classes);
    memset(&sides, 0, sizeof sides);
    for (c = 0; c < grouping.n_classes; c++) {
        for (p = 0; p < 8; p++) sides.side[c][p].list = classes.row[c][p] = allocate(most);
        ones[c] = (uint32_t *)(void *)allocate(4 * most);
    }
    scales = (uint32_t *)(void *)allocate(most / 32);
    for (i = 0; i < most / 128; i++) scales[i] = 0x3A000001;
    changed.place = (uint32_t *)(void *)allocate(4 * most);
    changed.now = allocate(8 * most);
    changed.before = allocate(8 * most);
    undo.place = (uint32_t *)(void *)allocate(4 * most);
    undo.before = allocate(8 * most);
    /* one element in 64 changes */
    if (of->kind == LIST_CHANGES || of->kind == RANK_CHANGES || of->kind == PATCH) {
        for (i = 0; i < most / 64; i++) b[(64 * i + 7 * i % 64) * width] ^= 1;
        n_changed = scalar->list_changes(scalar, &crc, &changed, most, b, a, most, width);
        scalar->rank_changes(counts, ones, a, most, width, &grouping, &changed, n_changed);
        for (i = 0; i < n_changed; i++) {
            for (c = 0; c + 1 < grouping.n_classes; c++)
                if (lmc__key_at(changed.before, i, width) < grouping.threshold[c]) break;
            n_of[c]++;
        }
        for (c = 0; c < grouping.n_classes; c++) {
            ones[c][n_of[c]] = LMC__NO_CHANGE;
            patches.at[c] = ones[c];
            patches.residual[c] = residuals;
        }
    }
    if (of->kind == PATCH) k->count_classes(counts, a, n, width, &grouping, work); /* the tally */
    for (i = 0; i < repeats; i++) {
        if (i % round == 0) start = nanoseconds();
        mark_begin();
        switch (of->kind) {
        case CRC32C: result += k->crc32c(0, a, n); break;
        case SUM64: result += (size_t)k->sum64(a, n); break;
        case COUNT_ONES: result += k->count_ones(a, n); break;
        case SPLIT: k->split(&planes, a, n, width, LMC__ORDER_FLOAT); break;
        case SPLIT_ROOT:
            result += k->split_root(k, &planes, of->lists ? &parted : NULL, a, n, width,
                                    LMC__ORDER_FLOAT, NULL);
            break;
        case JOIN_ROOT: result += k->join_root(k, b, source, n, lmc__no_streaming); break;
        case MAP: k->map(b, a, n, table); break;
        case PARTITION: result += k->partition(mask, parted.left, parted.right, a, n, 128); break;
        case MERGE: k->merge(b, mask, n, l, r); break;
        case FLATTEN: k->flatten(b, a, n, 0, of->size); break;
        case UNFLATTEN: k->unflatten(b, a, n, table, of->size); break;
        case COUNT_CLASSES: k->count_classes(counts, a, n, width, &grouping, NULL); break;
        case GROUP: result += k->group(k, &classes, a, &block); break;
        case UNGROUP: result += k->ungroup(k, b, &sides, &block, lmc__no_streaming); break;
        case LIST_CHANGES:
            result += k->list_changes(k, &crc, &changed, most, b, a, n, width);
            break;
        case RANK_CHANGES:
            k->rank_changes(counts, ones, a, n, width, &grouping, &changed, n_changed);
            break;
        case PATCH:
            undo.n = 0;
            result += k->patch(k, out, &patches, &block, work, of->lists ? &undo : NULL,
                               lmc__no_streaming);
            break;
        case RESTORE_CODES: k->restore_codes(out, a, n, &form, scales, 128); break;
        case RESTORE: k->restore(out, symbols, NULL, n, 0x3C000000, &grid); break;
        case QUANTIZE: result += k->quantize(symbols, a, NULL, n, 0x3C000000, &grid); break;
        case SUM_MAGNITUDES: result += k->sum_magnitudes(a, n, &crc); break;
        case JOIN_SYMBOLS: k->join_symbols(symbols, a, b, n, 8); break;
        default: k->cut_symbols(left, right, symbols, n, 8);
        }
        mark_end();
        if (i % round + 1 == round) {
            const double time = nanoseconds() - start;
            if (time < least) least = time;
        }
    }
    if (argc > 5) printf("%.0f\n", least * (double)(repeats / round));
    return result == 12345; /* so that the result is used */
}
