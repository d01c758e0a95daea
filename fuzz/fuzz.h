/* fuzz.h - what the harnesses share: parameters drawn from the input's end, buffers that end at a
 * page that cannot be accessed, an allocator that is emptied after each input, and checks that
 * abort. A harness is a file fuzz_NAME.c with LLVMFuzzerTestOneInput, whose work is between
 * FUZZ_BEGIN() and FUZZ_END(). It is linked with lmc.c, the one implementation of lmc.h. A harness
 * must not depend on earlier inputs: the same input always does the same. */
#ifndef FUZZ_H
#define FUZZ_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lmc.h"
#include "../include/lmc_salvage.h"
#include "../include/lmc_extra.h"
#include "t_block.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- checks -- */

#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))

static inline void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: FUZZ_CHECK failed: %s\n", file, line, what);
    abort();
}

/* -- parameters: they are drawn from the end of the input, so that the data before them keeps its
 * place -- */

typedef struct fuzz_input {
    const uint8_t *data; /* what is left of it */
    size_t size;
} fuzz_input;

/* A number of so many bytes, at most 8; missing bytes are zeros. */
static inline uint64_t fuzz_draw(fuzz_input *in, unsigned n_bytes)
{
    uint64_t value = 0;
    for (; n_bytes != 0; n_bytes--) value = value << 8 | (in->size ? in->data[--in->size] : 0);
    return value;
}

/* Takes the next bits of a number that was drawn. */
static inline unsigned fuzz_bits(uint64_t *drawn, unsigned n_bits)
{
    const unsigned value = (unsigned)(*drawn & (((uint64_t)1 << n_bits) - 1));
    *drawn >>= n_bits;
    return value;
}

static inline uint32_t fuzz_get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void fuzz_put32(uint8_t *p, uint32_t value)
{
    unsigned i;
    for (i = 0; i < 4; i++) p[i] = (uint8_t)(value >> 8 * i);
}

/* Bytes made from a seed, of a few kinds that codecs treat differently, eight at a time. */
static inline void fuzz_fill(uint8_t *dst, size_t size, uint32_t seed)
{
    const unsigned kind = seed & 7;
    uint64_t x = (uint64_t)(seed >> 3) * 0x9E3779B97F4A7C15u + 1;
    size_t i;
    for (i = 0; i < size; i += 8) {
        uint64_t v;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        switch (kind) {
        case 0: v = 0; break; /* zeros */
        case 1: v = x; break; /* noise */
        case 2:
            v = (x & 0x807F807F807F807Fu) | 0x3C003C003C003C00u;
            break; /* BF16 of one exponent */
        case 3: v = (x & 0x83FF83FF83FF83FFu) + 0x3A003A003A003A00u; break; /* of a few */
        case 4: v = (x & 0x83FFFFFF83FFFFFFu) + 0x3A0000003A000000u; break; /* F32 of a few */
        case 5: v = x & x >> 9 & x >> 17 & x >> 29; break;                  /* mostly zero bits */
        case 6: v = x | x >> 11 | x >> 23; break;                           /* mostly one bits */
        default: v = x & 0x0F0F0F0F0F0F0F0Fu & (x >> 31); break;            /* few symbols */
        }
        memcpy(dst + i, &v, size - i < 8 ? size - i : 8);
    }
}

/* -- buffers: the pages on both sides fault -- */

typedef struct fuzz_guard {
    uint8_t *data;
    size_t cap;
} fuzz_guard;

static inline size_t fuzz_whole_pages(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

/* Maps each buffer once, because mapping takes longer than most inputs. Untouched pages take no
 * memory. */
static inline void fuzz_reserve(fuzz_guard *guard, size_t cap)
{
    const size_t page = fuzz_whole_pages(1);
    if (guard->data) return;
    guard->cap = fuzz_whole_pages(cap + 1);
    guard->data = (uint8_t *)mmap(NULL, guard->cap + 2 * page, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (guard->data == MAP_FAILED ||
        mprotect(guard->data + page, guard->cap, PROT_READ | PROT_WRITE) != 0) {
        perror("fuzz_reserve");
        exit(1);
    }
    guard->data += page;
}

/* size bytes that end where the guard begins or, with at_start, begin where it ends. */
static inline uint8_t *fuzz_place(const fuzz_guard *guard, size_t size, int at_start)
{
    FUZZ_CHECK(size <= guard->cap);
    return at_start ? guard->data : guard->data + guard->cap - size;
}

static inline uint8_t *fuzz_copy(const fuzz_guard *guard, const void *data, size_t size,
                                 int at_start)
{
    uint8_t *const place = fuzz_place(guard, size, at_start);
    if (size) memmove(place, data, size); /* it may be there already */
    return place;
}

/* -- allocation (in lmc.c): behind LMC_REALLOC, in an arena; with AddressSanitizer by malloc -- */

typedef struct fuzz_heap {
    long calls;               /* that allocate or grow */
    long fail_at;             /* the number of the call that fails; -1: none */
    long live;                /* blocks not yet freed */
    size_t size, peak, limit; /* bytes; more than limit: the call fails, too */
} fuzz_heap;

extern fuzz_heap fuzz_memory;

/* Bytes of blocks that were decoded so far. */
extern uint64_t fuzz_decoded;

void *fuzz_realloc(void *ptr, size_t old_size, size_t new_size);
void fuzz_begin(void);
void fuzz_end(void);

/* At the start of each input no memory is in use, no failure is planned, and the tier is the best;
 * at its end no memory is in use. */
#define FUZZ_BEGIN() fuzz_begin()
#define FUZZ_END() fuzz_end()

/* -- tiers -- */

/* In lmc.c. They do not query the CPU each time, which takes longer than most inputs. */
enum { FUZZ_MAX_TIERS = 8 };
unsigned fuzz_count_tiers(void);     /* of this build on this machine */
void fuzz_set_tier(unsigned number); /* modulo their number; 0 is the scalar one */

/* -- what is private in lmc.h (in lmc.c) -- */

/* Lists of n > 0 bytes and masks of n > 0 bits (spec 6), in a workspace of
 * lmc_block_workspace_size(n, 1). *used: their bytes in src. Encoding returns 0 if there is no
 * room. */
enum lmc_status fuzz_decode_list(uint8_t *dst, size_t n, const void *src, size_t size, size_t *used,
                                 void *ws, size_t ws_size);
enum lmc_status fuzz_decode_mask(uint8_t *dst, unsigned nesting, int is_of_class, size_t n,
                                 const void *src, size_t size, size_t *used, void *ws,
                                 size_t ws_size);
unsigned fuzz_frozen_counts(unsigned level, unsigned length); /* leaves of that length (spec 6.4) */
size_t fuzz_encode_list(void *dst, size_t cap, const uint8_t *src, size_t n, enum lmc_level level,
                        void *ws, size_t ws_size);
size_t fuzz_encode_mask(void *dst, size_t cap, unsigned nesting, int is_of_class,
                        const uint8_t *src, size_t n, void *ws, size_t ws_size);

/* lmc_block_decode of a block whose header was read; a fault has the status of its rule, with any
 * prediction. With `ahead` it streams, as for an output too large for the caches: ahead_size bytes
 * there will be read next. */
enum lmc_status fuzz_decode_block(uint8_t *dst, const uint8_t *src, const lmc_block_info *info,
                                  const uint8_t *base, const void *ahead, size_t ahead_size,
                                  void *ws, size_t ws_size);

/* See repair.h. Between fuzz_begin() and fuzz_end(). */
size_t fuzz_repair_snapshot(uint8_t *file, size_t size, size_t cap, const lmc_base *base);
void fuzz_repair_index(uint8_t *file, size_t size);

/* Sets Header_CRC of a block, of which size bytes are there; and before that Payload_CRC, if it has
 * one and the payload is complete. */
static inline void fuzz_seal_block(uint8_t *block, size_t size, uint32_t number)
{
    const size_t payload_size = fuzz_get32(block + 8);
    uint8_t place[4];
    if (block[2] & 4 && payload_size <= size - LMC_BLOCK_HEADER_SIZE)
        fuzz_put32(block + 16, lmc_crc32c(0, block + LMC_BLOCK_HEADER_SIZE, payload_size));
    fuzz_put32(place, number);
    fuzz_put32(block + 20, lmc_crc32c(lmc_crc32c(0, place, 4), block, 20));
}

/* What a reader says about its snapshot: all zero if there is none. */
static inline lmc_snapshot_info fuzz_info(const lmc_reader *reader)
{
    lmc_snapshot_info info;
    memset(&info, 0, sizeof info);
    if (reader && lmc_reader_get_info(reader, &info) != LMC_OK) abort();
    return info;
}
static inline void fuzz_fingerprint(const lmc_reader *reader,
                                    uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    const lmc_snapshot_info info = fuzz_info(reader);
    memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
}
static inline uint64_t fuzz_encoded_size(const lmc_reader *reader, size_t file_number,
                                         uint64_t offset, uint64_t size)
{
    uint64_t encoded = 0;
    const enum lmc_status status =
        lmc_reader_encoded_size(reader, file_number, offset, size, &encoded);
    if (status != LMC_OK && status != LMC_ERR_UNSUPPORTED && status != LMC_ERR_ARGUMENT) abort();
    return encoded;
}

/* 1: it can. */
static inline int fuzz_can_restore_in_place(const lmc_reader *reader)
{
    int can = 0;
    const enum lmc_status status = lmc_reader_can_restore_in_place(reader, &can);
    if (status != LMC_OK && status != LMC_ERR_MEMORY) abort();
    return can;
}

#endif
