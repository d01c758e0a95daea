/* The implementation of lmc.h for all harnesses, which takes a minute to compile with sanitizers,
 * its allocator, and functions that reach its private names. */
#include "fuzz.h"

uint64_t fuzz_decoded;

#ifdef FUZZ_WITH_TESTS /* tests/codec/t_lmc.c includes this file behind its own implementation */
static void *fuzz_memory_of_tests(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    return fuzz_realloc(ptr, old_size, new_size);
}
#else
#define LMC_REALLOC(ptr, old_size, new_size) fuzz_realloc(ptr, old_size, new_size)
#define LMC__COUNT_DECODED(size) (fuzz_decoded += (size))
#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_salvage.h"
#include "../include/lmc_extra.h"
#endif

/* -- allocation -- */

#if defined(__SANITIZE_ADDRESS__)
#define FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FUZZ_ASAN 1
#endif
#endif

#define DEFAULT_LIMIT ((size_t)256 << 20)

fuzz_heap fuzz_memory;

/* Blocks are preceded by 16 bytes that hold their size. */
static size_t block_size(const uint8_t *block)
{
    size_t size;
    memcpy(&size, block - 16, sizeof size);
    return size;
}

#ifndef FUZZ_ASAN
#define ARENA_SIZE ((size_t)1 << 30)
static fuzz_guard arena;
static size_t arena_used;
static size_t round_up(size_t size) { return (size + 31) / 16 * 16; } /* with the 16 bytes before */
#endif

/* As lmc.h requires; old_size is checked. In the arena, only the last block grows in place and can
 * be freed. */
void *fuzz_realloc(void *ptr, size_t old_size, size_t new_size)
{
    fuzz_heap *const h = &fuzz_memory;
    uint8_t *block = (uint8_t *)ptr;
    FUZZ_CHECK(old_size == (block ? block_size(block) : 0));
    if (new_size != 0) {
        if (h->calls++ == h->fail_at || new_size > h->limit ||
            h->size - old_size > h->limit - new_size)
            return NULL;
    } else if (!block) return NULL;
#ifdef FUZZ_ASAN
    if (new_size == 0) {
        free(block - 16);
    } else {
        uint8_t *const moved = (uint8_t *)malloc(new_size + 16); /* always another place */
        if (!moved) return NULL;
        if (block) {
            memcpy(moved + 16, block, old_size < new_size ? old_size : new_size);
            free(block - 16);
        }
        block = moved + 16;
    }
#else
    if (block && block - 16 + round_up(old_size) == arena.data + arena_used)
        arena_used -= round_up(old_size);
    if (new_size != 0) {
        uint8_t *const place = arena.data + arena_used + 16;
        if (round_up(new_size) > arena.cap - arena_used) {
            if (block && place == block) arena_used += round_up(old_size);
            return NULL;
        }
        if (block && place != block)
            memcpy(place, block, old_size < new_size ? old_size : new_size);
        block = place;
        arena_used += round_up(new_size);
    }
#endif
    h->live += (new_size != 0) - (ptr != NULL);
    h->size += new_size - old_size;
    if (h->size > h->peak) h->peak = h->size;
    if (new_size == 0) return NULL;
    memcpy(block - 16, &new_size, sizeof new_size);
    return block;
}

/* -- tiers -- */

static const lmc__kernels *tiers[LMC__N_TIERS];
typedef char fuzz_has_room[LMC__N_TIERS <= FUZZ_MAX_TIERS ? 1 : -1];

unsigned fuzz_count_tiers(void)
{
    static unsigned n;
    unsigned i;
    if (n == 0)
        for (i = LMC__N_TIERS; i-- > 0;) /* the best one last */
            if (lmc__find_kernels(lmc__tiers[i].tier))
                tiers[n++] = lmc__find_kernels(lmc__tiers[i].tier);
    return n;
}

void fuzz_set_tier(unsigned number)
{
    const unsigned n = fuzz_count_tiers();
    lmc__active_kernels = tiers[number % n];
}

void fuzz_begin(void)
{
#ifdef FUZZ_WITH_TESTS
    t_library_realloc = fuzz_memory_of_tests;
#endif
#ifndef FUZZ_ASAN
    fuzz_reserve(&arena, ARENA_SIZE);
    arena_used = 0;
#endif
    memset(&fuzz_memory, 0, sizeof fuzz_memory);
    fuzz_memory.fail_at = -1;
    fuzz_memory.limit = DEFAULT_LIMIT;
    fuzz_set_tier(fuzz_count_tiers() - 1);
}

void fuzz_end(void) { FUZZ_CHECK(fuzz_memory.live == 0 && fuzz_memory.size == 0); }

/* -- lists, masks and trees (spec 6) -- */

static lmc__scratch *open_decoder(lmc__decoder *d, const void *src, size_t size, void *ws,
                                  size_t ws_size)
{
    memset(d, 0, sizeof *d);
    d->k = lmc__get_kernels();
    d->scratch = lmc__open_workspace(&d->stack, ws, ws_size);
    d->in = (const uint8_t *)src;
    d->end = d->in + size;
    return d->scratch;
}

enum lmc_status fuzz_decode_list(uint8_t *dst, size_t n, const void *src, size_t size, size_t *used,
                                 void *ws, size_t ws_size)
{
    lmc__decoder d;
    lmc__side side;
    uint8_t *spare;
    open_decoder(&d, src, size, ws, ws_size);
    spare = lmc__push_list(&d.stack, n);
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_list(&d, &side, spare, n));
    if (side.list) memcpy(dst, side.list, n);
    else memset(dst, side.value, n);
    *used = (size_t)(d.in - (const uint8_t *)src);
    return LMC_OK;
}

enum lmc_status fuzz_decode_mask(uint8_t *dst, unsigned nesting, int is_of_class, size_t n,
                                 const void *src, size_t size, size_t *used, void *ws,
                                 size_t ws_size)
{
    lmc__decoder d;
    const uint8_t *mask;
    open_decoder(&d, src, size, ws, ws_size);
    LMC__TRY(lmc__get_mask(&d, nesting, is_of_class, n, &mask));
    memcpy(dst, mask, (n + 7) / 8);
    *used = (size_t)(d.in - (const uint8_t *)src);
    return LMC_OK;
}

static lmc__scratch *open_encoder(lmc__encoder *e, void *dst, size_t cap, void *ws, size_t ws_size)
{
    memset(e, 0, sizeof *e);
    e->k = lmc__get_kernels();
    e->scratch = lmc__open_workspace(&e->stack, ws, ws_size);
    e->worth = lmc__get_effort(LMC_LEVEL_DEFAULT)->direct_worth;
    e->out = (uint8_t *)dst;
    e->end = e->out + cap;
    return e->scratch;
}

size_t fuzz_encode_list(void *dst, size_t cap, const uint8_t *src, size_t n, enum lmc_level level,
                        void *ws, size_t ws_size)
{
    lmc__encoder e;
    uint8_t *row, *work, *spare;
    open_encoder(&e, dst, cap, ws, ws_size);
    row = lmc__push_list(&e.stack, n);
    work = lmc__push_list(&e.stack, n);
    spare = lmc__push_list(&e.stack, n);
    if (!row || !work || !spare) return 0;
    memcpy(row, src, n);
    e.worth = lmc__get_effort(level)->direct_worth;
    return lmc__put_list(&e, row, work, spare, n, lmc__get_effort(level)->sample)
               ? (size_t)(e.out - (uint8_t *)dst)
               : 0;
}

size_t fuzz_encode_mask(void *dst, size_t cap, unsigned nesting, int is_of_class,
                        const uint8_t *src, size_t n, void *ws, size_t ws_size)
{
    lmc__encoder e;
    uint8_t *mask;
    size_t ones;
    open_encoder(&e, dst, cap, ws, ws_size);
    mask = lmc__push_list(&e.stack, (n + 7) / 8);
    if (!mask) return 0;
    memcpy(mask, src, (n + 7) / 8);
    ones = e.k->count_ones(mask, (n + 7) / 8);
    return (is_of_class && nesting == 0 ? lmc__put_class_mask(&e, mask, NULL, n, ones)
                                        : lmc__put_mask(&e, nesting, mask, n, ones))
               ? (size_t)(e.out - (uint8_t *)dst)
               : 0;
}

unsigned fuzz_frozen_counts(unsigned level, unsigned length)
{
    return lmc__frozen_counts[level][length - 1];
}

enum lmc_status fuzz_decode_block(uint8_t *dst, const uint8_t *src, const lmc_block_info *info,
                                  const uint8_t *base, const void *ahead, size_t ahead_size,
                                  void *ws, size_t ws_size)
{
    lmc__streaming streaming = lmc__no_streaming;
    streaming.is_on = ahead != NULL;
    streaming.next = (const uint8_t *)ahead;
    streaming.next_size = ahead_size;
    return lmc__decode_block(lmc__get_kernels(), dst, streaming, src, info, base, 1, ws, ws_size);
}

#include "repair.h"
