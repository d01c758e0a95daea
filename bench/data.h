/* data.h - what the benchmarks measure: synthetic data sets, pairs of snapshots, moments. Include
 * it behind measure.h.
 * SPDX-License-Identifier: MIT
 */
#ifndef DATA_H
#define DATA_H

#include "measure.h"

#include <math.h>

/* -- data sets -- */

enum { SKEWED_78 = T_KINDS, SKEWED_95, SKEWED_99 };

/* Symbol 120 with that many per mille, then 121, 122, ... each half as likely as the one before:
 * the top byte. The rest is random. */
static inline void fill_skewed(uint8_t *dst, size_t size, enum lmc_dtype dtype, unsigned per_mille)
{
    const unsigned width = lmc_dtype_width(dtype);
    uint64_t state = per_mille;
    size_t i;
    for (i = 0; i + width <= size; i += width) {
        uint64_t r = t_random(&state), element = r >> 32;
        unsigned symbol = 120;
        if (r % 1000 >= per_mille)
            for (symbol++, r >>= 10; r & 1 && symbol < 140; r >>= 1) symbol++;
        if (width == 1) {
            dst[i] = (uint8_t)symbol;
        } else { /* a float with that exponent */
            element = (element & 0x807F) | symbol << 7;
            dst[i] = (uint8_t)element;
            dst[i + 1] = (uint8_t)(element >> 8);
        }
    }
}

static const struct set {
    const char *name;
    enum lmc_dtype dtype;
    int kind;
} sets[] = {{"N(0, 0.02) bf16", LMC_BF16, T_GAUSS},
            {"N(0, 0.02) fp16", LMC_F16, T_GAUSS},
            {"N(0, 0.02) fp32", LMC_F32, T_GAUSS},
            {"N(0, 0.02) fp64", LMC_F64, T_GAUSS},
            {"N(0, 1) fp8", LMC_F8_E4M3, T_GAUSS},
            {"N(0, 25) int8", LMC_I8, T_GAUSS},
            {"plane, 78 % one symbol", LMC_U8, SKEWED_78},
            {"plane, 95 % one symbol", LMC_U8, SKEWED_95},
            {"plane, 99 % one symbol", LMC_U8, SKEWED_99},
            {"bf16, 78 % one exponent", LMC_BF16, SKEWED_78},
            {"bf16, 95 % one exponent", LMC_BF16, SKEWED_95},
            {"bf16, 99 % one exponent", LMC_BF16, SKEWED_99},
            {"zeros", LMC_BF16, T_ZERO},
            {"random", LMC_BF16, T_RANDOM},
            {"text", LMC_AUTO, T_TEXT}};

static inline void fill_set(uint8_t *dst, size_t size, const struct set *set)
{
    if (set->kind < T_KINDS) t_fill(dst, size, (enum t_kind)set->kind, set->dtype, 1);
    else
        fill_skewed(dst, size, set->dtype,
                    set->kind == SKEWED_78   ? 780
                    : set->kind == SKEWED_95 ? 950
                                             : 990);
}

/* -- pairs -- */

struct pair {
    const char *name;
    enum lmc_dtype dtype;
    const uint8_t *old, *now;
    size_t size;
    int has_speed;
};

static const struct file_pair {
    const char *name, *file;
    int old, now, has_speed;
} file_pairs[] = {{"bf16 1000-1001", "model.bf16", 1000, 1001, 1},
                  {"bf16 1000-1010", "model.bf16", 1000, 1010, 1},
                  {"bf16 1700-1701", "model.bf16", 1700, 1701, 1},
                  {"bf16 1700-1750", "model.bf16", 1700, 1750, 1},
                  {"bf16 1950-1951", "model.bf16", 1950, 1951, 1},
                  {"bf16 1950-2000", "model.bf16", 1950, 2000, 1},
                  {"master 1000-1001", "master.f32", 1000, 1001, 1},
                  {"master 1000-1010", "master.f32", 1000, 1010, 1},
                  {"master 1950-1951", "master.f32", 1950, 1951, 1},
                  {"exp_avg 1000-1001", "exp_avg.f32", 1000, 1001, 0},
                  {"exp_avg 1000-1010", "exp_avg.f32", 1000, 1010, 0},
                  {"exp_avg_sq 1000-1001", "exp_avg_sq.f32", 1000, 1001, 0},
                  {"exp_avg_sq 1000-1010", "exp_avg_sq.f32", 1000, 1010, 0}};

enum { UNRELATED = 1000 };

static const struct synthetic_pair {
    const char *name;
    enum lmc_dtype dtype;
    unsigned per_mille;
} synthetic_pairs[] = {{"synthetic, 1 % changed", LMC_BF16, 10},
                       {"synthetic, 10 % changed", LMC_BF16, 100},
                       {"synthetic fp64, 1 % changed", LMC_F64, 10},
                       {"synthetic fp64, 90 % changed", LMC_F64, 900},
                       {"unrelated base", LMC_BF16, UNRELATED}};

enum {
    N_FILE_PAIRS = sizeof file_pairs / sizeof *file_pairs,
    N_PAIRS = N_FILE_PAIRS + sizeof synthetic_pairs / sizeof *synthetic_pairs
};

/* The first part bytes again and again, until there are size. */
static inline void repeat(uint8_t *p, size_t part, size_t size)
{
    size_t at = part;
    for (; at < size; at += lmc__min(part, size - at)) memcpy(p + at, p, lmc__min(part, size - at));
}

/* Each element changes alike, whatever its exponent, by one float in three of four cases, by two in
 * three of four of the others, and so on; UNRELATED: other weights. */
static inline void make_synthetic(uint8_t *old, uint8_t *now_, size_t size, enum lmc_dtype dtype,
                                  unsigned per_mille)
{
    const unsigned width = lmc_dtype_width(dtype);
    /* weights are slow to make: these again and again, but changed anew */
    const size_t first = lmc__min(size, 64000000);
    uint64_t state = per_mille;
    size_t i;
    t_fill(old, first, T_GAUSS, dtype, 1);
    if (per_mille == UNRELATED) t_fill(now_, first, T_GAUSS, dtype, 2);
    if (per_mille == UNRELATED) repeat(now_, first, size);
    repeat(old, first, size);
    for (i = 0; i < size / width && per_mille != UNRELATED; i++) {
        const uint64_t r = t_random(&state);
        uint64_t steps = 0, more = r >> 32;
        if (r % 1000 < per_mille)
            for (steps = 1; (more & 3) == 0 && steps < 16; more >>= 2) steps++;
        lmc__store_element(
            now_, i, lmc__load_element(old, i, width) + (r >> 31 & 1 ? steps : 0 - steps), width);
    }
}

/* Changes as fine-tuning makes them: weights move by about the same, whatever they are, so that one
 * with an exponent less by one rounds to another number twice as often. per_million of all; sign
 * any, mostly by one float. */
static inline void make_sparse(uint8_t *old, uint8_t *now_, size_t size, enum lmc_dtype dtype,
                               unsigned per_million)
{
    const unsigned width = lmc_dtype_width(dtype);
    const size_t first = lmc__min(size, 64000000);
    uint64_t state = per_million;
    size_t i;
    t_fill(old, first, T_GAUSS, dtype, 1);
    repeat(old, first, size);
    for (i = 0; i < size / width; i++) {
        const uint64_t r = t_random(&state), v = lmc__load_element(old, i, width);
        uint64_t steps = 0, more = r >> 33;
        /* of N(0, 0.02): 2^(120 - key), 3.1 on average if it is at most 2^8 */
        const unsigned key = lmc__key(v, width), below = key < 112 ? 8 : key > 127 ? 0 : 120 - key;
        const uint64_t share =
            key > 120 ? per_million >> (key - 120) : (uint64_t)per_million << below;
        if ((r & 0xFFFFFFFF) * 31 / 10 < share * 4295)
            for (steps = 1; (more & 15) == 0 && steps < 16; more >>= 4) steps++;
        lmc__store_element(now_, i, r >> 32 & 1 ? v + steps : v - steps, width);
    }
}

/* Reads or makes a pair into old and now, of room bytes each; 0 if that file is not there. */
static inline int get_pair(struct pair *pair, unsigned i, const char *series, size_t synthetic_size,
                           uint8_t *old, uint8_t *now_, size_t room)
{
    memset(pair, 0, sizeof *pair);
    pair->old = old;
    pair->now = now_;
    if (i < N_FILE_PAIRS) {
        const struct file_pair *const f = &file_pairs[i];
        char path[2][1000];
        int k;
        if (series == NULL) return 0;
        pair->dtype = strstr(f->file, "bf16") ? LMC_BF16 : LMC_F32;
        for (k = 0; k < 2; k++) {
            FILE *file;
            snprintf(path[k], sizeof path[k], "%s/step-%06d/%s.safetensors", series,
                     k ? f->now : f->old, f->file);
            if ((file = fopen(path[k], "rb")) == NULL) return 0;
            fclose(file);
        }
        pair->name = f->name;
        pair->has_speed = f->has_speed;
        pair->size = append_file(old, room, path[0], pair->dtype);
        if (append_file(now_, room, path[1], pair->dtype) != pair->size || pair->size == 0 ||
            pair->size == room)
            fail("unusable: ", path[1]);
    } else {
        const struct synthetic_pair *const s = &synthetic_pairs[i - N_FILE_PAIRS];
        if (synthetic_size == 0) return 0;
        pair->dtype = s->dtype;
        pair->name = s->name;
        pair->has_speed = s->per_mille != UNRELATED;
        pair->size = synthetic_size;
        if (only == NULL || strstr(s->name, only) != NULL)
            make_synthetic(old, now_, synthetic_size, s->dtype, s->per_mille);
    }
    return only == NULL || strstr(pair->name, only) != NULL;
}

/* Pair number i of the series, made up to size bytes by repetition; 0 if that is not there, not for
 * speed, or not of neighbouring steps. */
static inline int get_neighbours(struct pair *pair, unsigned i, const char *series, uint8_t *old,
                                 uint8_t *now_, size_t room, size_t size)
{
    if (!file_pairs[i].has_speed || file_pairs[i].now != file_pairs[i].old + 1) return 0;
    if (!get_pair(pair, i, series, 0, old, now_, room)) return 0;
    repeat(old, pair->size, size);
    repeat(now_, pair->size, size);
    return 1;
}

/* -- moments of an optimizer -- */

enum { MOMENTS_ROW = 4096 };

static uint64_t random_state = 1;
static inline float normal(void) /* the sum of four uniform numbers is near enough */
{
    float sum = 0;
    unsigned i;
    for (i = 0; i < 4; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(random_state >> 40) / 16777216.0f - 0.5f;
    }
    return sum * 1.7320508f;
}

/* Averages of gradients as AdamW has them: N(0, 1) times a scale for each row. second, first: of n
 * elements. */
static inline void make_moments(float *second, float *first, size_t n)
{
    size_t i;
    unsigned t;
    float scale = 1;
    for (i = 0; i < n; i++) {
        float m = 0, v = 0;
        if (i % MOMENTS_ROW == 0) scale = expf(normal() - 12);
        for (t = 0; t < 8; t++) {
            const float g = scale * normal();
            m = 0.9f * m + 0.1f * g;
            v = 0.95f * v + 0.05f * g * g;
        }
        second[i] = v;
        first[i] = m;
    }
}

#endif
