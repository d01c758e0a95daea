/* mutate.h - libFuzzer's mutator for inputs that are LMC files: it lets libFuzzer change one part
 * of a file, moves the rest if the part has a new size, and repairs the checksums (repair.h), so
 * that these do not refuse all of its files. Before including it, define FUZZ_SHAPE, the kind of
 * input, and FUZZ_PARAMETERS, the size of the harness's parameters at its end. Other fuzzers do not
 * use it. */
#ifndef FUZZ_MUTATE_H
#define FUZZ_MUTATE_H

#include "fuzz.h"

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define FUZZ_MEMORY_SANITIZER
#endif
#endif

#define FUZZ_SNAPSHOT 0 /* a file */
#define FUZZ_INDEX 1    /* header, INDX section and trailer of one */
#define FUZZ_DELTA                                                                                 \
    2 /* a file and a delta against it; the file's size is in the last 4 bytes of the input */

/* libFuzzer has it */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Lets libFuzzer change bytes. libFuzzer is not compiled for MemorySanitizer, which takes its
 * result, and the bytes that it wrote, as uninitialised. */
static inline size_t mutate_bytes(uint8_t *p, size_t size, size_t max_size)
{
    size_t made = LLVMFuzzerMutate(p, size, max_size);
#ifdef FUZZ_MEMORY_SANITIZER
    __msan_unpoison(&made, sizeof made);
    __msan_unpoison(p, made);
#endif
    return made;
}

/* A part of a file; size_at: the place of the field with its size, from the file's beginning;
 * field: bytes of that field, 0 if there is none. */
typedef struct mutate_part {
    size_t at, size, size_at;
    unsigned field;
} mutate_part;

typedef struct mutate_parts {
    mutate_part part[128];
    unsigned n;
} mutate_parts;

static inline uint64_t mutate_get64(const uint8_t *p)
{
    return fuzz_get32(p) | (uint64_t)fuzz_get32(p + 4) << 32;
}

static inline void mutate_add(mutate_parts *parts, size_t at, size_t size, size_t size_at,
                              unsigned field)
{
    const mutate_part part = {at, size, size_at, field};
    if (parts->n < 128) parts->part[parts->n++] = part;
}

/* Reads a varint at p[*at], before end; *at moves behind it. */
static inline uint64_t mutate_get_varint(const uint8_t *p, size_t *at, size_t end)
{
    uint64_t v = 0;
    unsigned shift = 0;
    while (*at < end && shift < 64) {
        const uint8_t byte = p[(*at)++];
        v |= (uint64_t)(byte & 127) << shift;
        shift += 7;
        if (!(byte & 128)) break;
    }
    return v;
}

/* The blocks of a run whose body is p[body .. at). Returns where they end. */
static inline size_t mutate_split_blocks(mutate_parts *parts, const uint8_t *p, size_t body,
                                         size_t at, size_t size)
{
    uint64_t rest = mutate_get_varint(p, &body, at), block = mutate_get_varint(p, &body, at);
    if (body >= at || block == 0) return at;
    for (; rest != 0 && size - at >= 24 && p[at] == 0xB2; rest -= rest < block ? rest : block) {
        const size_t payload = fuzz_get32(p + at + 8);
        if (payload > size - at - 24) break;
        mutate_add(parts, at, 20, 0, 0);
        mutate_add(parts, at + 24, payload, at + 8, 4);
        at += 24 + payload;
    }
    return at;
}

/* The entries of an index, p[at .. size), each with all bytes up to the next one: a kind, one or
 * two varints, and a body. Where facts behind a body end is only known after parsing it, so the
 * next entry is searched. */
static inline void mutate_split_entries(mutate_parts *parts, const uint8_t *p, size_t at,
                                        size_t size)
{
    while (size - at >= 6 && (p[at] == 'F' || p[at] == 'R' || (p[at] >= 'a' && p[at] <= 'z'))) {
        const int is_ancillary = p[at] >= 'a' && p[at] <= 'z';
        size_t body = at + 4, end;
        uint64_t body_size = 0;
        (void)mutate_get_varint(p, &body, size);
        if (!is_ancillary) body_size = mutate_get_varint(p, &body, size);
        if (body_size > size - body) break;
        mutate_add(parts, at, body - at, 0, 0);
        mutate_add(parts, body, (size_t)body_size, 0, 0);
        end = at = body + (size_t)body_size;
        if (p[body - 1] == 0 || is_ancillary) continue;
        while (end + 4 <= size && memcmp(p + end, "FILE", 4) != 0 &&
               memcmp(p + end, "RUN ", 4) != 0)
            end++;
        if (end + 4 > size) break;
        mutate_add(parts, at, end - at, 0, 0); /* the facts of files */
        at = end;
    }
    if (at < size) mutate_add(parts, at, size - at, 0, 0); /* metadata */
}

/* The parts of size bytes at p, as far as they can be parsed. */
static inline void mutate_split(mutate_parts *parts, const uint8_t *p, size_t size, int is_index)
{
    size_t at = 64;
    parts->n = 0;
    mutate_add(parts, 0, size < 64 ? size : 64, 0, 0);
    if (is_index && size >= 64 + 20 + 88 + 40) {
        mutate_add(parts, 64, 20 + 88, 0, 0);
        mutate_add(parts, size - 40, 40, 0, 0);
        mutate_split_entries(parts, p, 64 + 20 + 88, size - 40);
        return;
    }
    while (size > at && size - at >= 20) {
        const size_t body = at + 20;
        const uint64_t body_size = mutate_get64(p + at + 4);
        const int is_ancillary = p[at] >= 'a' && p[at] <= 'z', is_run = p[at] == 'R';
        if (body_size > size - body || (p[at] != 'F' && !is_run && !is_ancillary)) break;
        mutate_add(parts, at, 4, 0, 0);
        mutate_add(parts, body, (size_t)body_size, at + 4, 8);
        at = body + (size_t)body_size;
        if (is_run) at = mutate_split_blocks(parts, p, body, at, size);
    }
    if (at < size) mutate_add(parts, at, size - at, 0, 0); /* BLKS, index and trailer */
}

/* Changes one of the parts; the file may grow to max_size. Returns its new size. */
static inline size_t mutate_one(uint8_t *p, size_t size, size_t max_size, int is_index,
                                unsigned choice)
{
    static uint8_t room[1 << 16];
    mutate_parts parts;
    const mutate_part *part;
    size_t made, most;
    mutate_split(&parts, p, size, is_index);
    part = &parts.part[choice / 4 % parts.n];
    if (part->size == 0 || part->size > sizeof room) return mutate_bytes(p, size, max_size);
    memcpy(room, p + part->at, part->size);
    most = part->field && choice % 4 < 2 ? part->size + (max_size - size) : part->size;
    made = mutate_bytes(room, part->size, most < sizeof room ? most : sizeof room);
    if (!part->field || choice % 4 >= 2) { /* it keeps its size */
        memcpy(p + part->at, room, made);
        return size;
    }
    memmove(p + part->at + made, p + part->at + part->size, size - part->at - part->size);
    memcpy(p + part->at, room, made);
    fuzz_put32(p + part->size_at, (uint32_t)made);
    if (part->field == 8) fuzz_put32(p + part->size_at + 4, 0);
    return size - part->size + made;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static uint8_t copy[1 << 17];
    uint8_t parameters[FUZZ_PARAMETERS];
    size_t n, room;
    unsigned times = 1 + (seed >> 4 & 1) + (seed >> 4 & 3) / 3;
    if ((seed & 15) == 0 || size < FUZZ_PARAMETERS + 1 || max_size > sizeof copy)
        return mutate_bytes(data, size, max_size);
    n = size - FUZZ_PARAMETERS;
    if ((seed & 15) == 1) {
        (void)mutate_bytes(data + n, FUZZ_PARAMETERS, FUZZ_PARAMETERS);
        return size;
    }
    memcpy(parameters, data + n, FUZZ_PARAMETERS);
    memcpy(copy, data, n);
    room = max_size - FUZZ_PARAMETERS;
    seed >>= 6;
#if FUZZ_SHAPE == FUZZ_DELTA
    {
        size_t base_size = fuzz_get32(parameters + FUZZ_PARAMETERS - 4);
        lmc_memory in;
        lmc_source source;
        lmc_reader *reader = NULL;
        lmc_base base;
        if (base_size > n) base_size = n;
        fuzz_begin();
        if (seed & 1) {
            const size_t delta_size = n - base_size;
            uint8_t *const delta = copy + room - delta_size; /* to make room */
            memmove(delta, copy + base_size, delta_size);
            while (times-- != 0)
                base_size = mutate_one(copy, base_size, room - delta_size, 0,
                                       (seed >> 1) * (2 * times + 1));
            if (seed >> 25)
                base_size = fuzz_repair_snapshot(copy, base_size, room - delta_size, NULL);
            memmove(copy + base_size, delta, delta_size);
            n = base_size + delta_size;
        }
        memset(&in, 0, sizeof in);
        in.data = copy;
        in.size = base_size;
        source = lmc_memory_source(&in);
        if (base_size && lmc_reader_open(&reader, &source, NULL) == LMC_OK)
            base = lmc_reader_base(reader);
        if (!(seed & 1))
            while (times-- != 0)
                n = base_size + mutate_one(copy + base_size, n - base_size, room - base_size, 0,
                                           (seed >> 1) * (2 * times + 1));
        if (seed >> 23 & 7)
            n = base_size + fuzz_repair_snapshot(copy + base_size, n - base_size, room - base_size,
                                                 reader ? &base : NULL);
        lmc_reader_free(reader);
        fuzz_end();
        fuzz_put32(parameters + FUZZ_PARAMETERS - 4, (uint32_t)base_size);
    }
#else
    while (times-- != 0)
        n = mutate_one(copy, n, room, FUZZ_SHAPE == FUZZ_INDEX, seed * (2 * times + 1));
    fuzz_begin();
    if (seed >> 23 & 7) {
        if (FUZZ_SHAPE == FUZZ_INDEX) fuzz_repair_index(copy, n);
        else n = fuzz_repair_snapshot(copy, n, room, NULL);
    }
    fuzz_end();
#endif
    memcpy(data, copy, n);
    memcpy(data + n, parameters, FUZZ_PARAMETERS);
    return n + FUZZ_PARAMETERS;
}

#endif
