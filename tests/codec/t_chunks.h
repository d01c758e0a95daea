/* t_chunks.h - content-defined chunking, by which stores of large files keep equal ranges of bytes
 * once: how much of a file is in another one, too. */
#ifndef T_CHUNKS_H
#define T_CHUNKS_H

#include "t_hash.h"

#include <stdlib.h>

/* A chunk ends where the top 16 bits of a gear hash of the last 64 bytes are zero. */
enum { T_MIN_CHUNK = 8 << 10, T_MAX_CHUNK = 128 << 10 };

static inline size_t t_chunk_size(const uint8_t *p, size_t size)
{
    static uint64_t gear[256];
    uint64_t hash = 0;
    size_t i;
    if (gear[0] == 0)
        for (i = 0; i < 256; i++) { /* splitmix64 */
            uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
            z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
            z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
            gear[i] = z ^ (z >> 31);
        }
    if (size > T_MAX_CHUNK) size = T_MAX_CHUNK;
    for (i = size < T_MIN_CHUNK ? size : T_MIN_CHUNK - 64; i < size; i++) {
        hash = (hash << 1) + gear[p[i]];
        if (i + 1 >= T_MIN_CHUNK && hash >> 48 == 0) return i + 1;
    }
    return size;
}

/* A hash that identifies a chunk. */
static inline uint64_t t_chunk_name(const uint8_t *p, size_t size)
{
    uint64_t sum = size;
    size_t i;
    for (i = 0; i < size; i++) sum = (sum ^ p[i]) * UINT64_C(0x100000001B3);
    return sum;
}

static int t_compare_names(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The share of b's bytes that are in chunks of a. */
static inline double t_shared(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    uint64_t *const names = (uint64_t *)malloc((a_size / T_MIN_CHUNK + 1) * sizeof *names);
    size_t n = 0, at, size, shared = 0;
    if (!names) abort();
    for (at = 0; at < a_size; at += size) {
        size = t_chunk_size(a + at, a_size - at);
        names[n++] = t_chunk_name(a + at, size);
    }
    qsort(names, n, sizeof *names, t_compare_names);
    for (at = 0; at < b_size; at += size) {
        uint64_t name;
        size = t_chunk_size(b + at, b_size - at);
        name = t_chunk_name(b + at, size);
        if (bsearch(&name, names, n, sizeof *names, t_compare_names)) shared += size;
    }
    free(names);
    return (double)shared / (double)(b_size ? b_size : 1);
}

#endif
