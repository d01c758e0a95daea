/* measure.h - what the benchmark programs share: time, memory, rows of JSON, tiers, files. BENCH is
 * the program's name.
 * SPDX-License-Identifier: MIT */
#ifndef MEASURE_H
#define MEASURE_H

#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_extra.h"

#include "../tests/codec/t_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_REPS 101
static int n_reps = 5, huge_pages;
static const char *only, *only_tier;
static FILE *json;
static int json_rows;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s%s\n", BENCH, what, detail);
    exit(1);
}

/* -- time -- */

static inline double now(void)
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

static double median(double *values)
{
    qsort(values, (size_t)n_reps, sizeof *values, compare_doubles);
    return values[n_reps / 2];
}

/* -- memory -- */

static uint8_t *allocate(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("out of memory", "");
#if defined(MADV_HUGEPAGE) && defined(MADV_NOHUGEPAGE)
    if (madvise(p, size, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0 && huge_pages)
        fail("no huge pages here", "");
#endif
    memset(p, 1, size); /* faults every page in */
    return (uint8_t *)p;
}

static void release(uint8_t *p, size_t size) { munmap(p, size); }

/* -- output -- */

static const char *json_row(void) { return json_rows++ ? ",\n  " : "\n  "; }

static int wanted_tier(int tier)
{
    const char *name = lmc_tier_name((enum lmc_tier)tier);
    return lmc_tier_is_available((enum lmc_tier)tier) &&
           (only_tier == NULL || strcmp(only_tier, name) == 0);
}

static int best_tier(void)
{
    size_t row = 0; /* the best first */
    while (!wanted_tier((int)lmc__tiers[row].tier))
        if (++row == LMC__N_TIERS) fail("no such tier here: ", only_tier);
    return (int)lmc__tiers[row].tier;
}

/* -- files -- */

/* Appends the tensor data of a safetensors file (any other: all of it), as much as fits; whole
 * elements. Returns the bytes. */
static size_t append_file(uint8_t *dst, size_t room, const char *path, enum lmc_dtype dtype)
{
    FILE *file = fopen(path, "rb");
    uint8_t head[8];
    uint64_t skip = 0;
    long end;
    size_t i, size;
    if (file == NULL || fread(head, 1, 8, file) != 8 || fseek(file, 0, SEEK_END) != 0 ||
        (end = ftell(file)) < 16)
        fail("cannot read ", path);
    for (i = 0; i < 8; i++) skip |= (uint64_t)head[i] << 8 * i;
    skip = dtype == LMC_AUTO || skip > (uint64_t)end - 8 ? 0 : skip + 8;
    size = (size_t)((uint64_t)end - skip);
    if (size > room) size = room;
    size -= size % lmc_dtype_width(dtype);
    if (fseek(file, (long)skip, SEEK_SET) != 0 || fread(dst, 1, size, file) != size)
        fail("cannot read ", path);
    fclose(file);
    return size;
}

#endif
