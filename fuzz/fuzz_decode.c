/* lmc_decode.h alone, without the rest of the library: generated blocks (make_block.h) decode to
 * their elements on every tier; damaged ones, whose checksums are right, to the same status and
 * bytes on every tier, and after an error a prediction that was to be overwritten is unchanged.
 * Input: 4 bytes of parameters, then decisions. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define LMC_IMPLEMENTATION
#include "../include/lmc_decode.h"

#include "make_block.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *what, int line)
{
    fprintf(stderr, "fuzz_decode.c:%d: failed: %s\n", line, what);
    abort();
}

/* -- buffers between pages that cannot be accessed -- */

struct guard {
    uint8_t *data;
    size_t cap;
};

/* `size` bytes that end at such a page, or begin behind one. */
static uint8_t *place(struct guard *g, size_t cap, size_t size, int at_start)
{
    if (!g->data) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *p;
        g->cap = (cap + page - 1) / page * page;
        p = (uint8_t *)mmap(NULL, g->cap + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED && mprotect(p + page, g->cap, PROT_READ | PROT_WRITE) == 0);
        g->data = p + page;
    }
    CHECK(size <= g->cap);
    return at_start ? g->data : g->data + g->cap - size;
}

static struct guard block_guard, output_guard, prediction_guard, workspace_guard;

/* -- headers -- */

static void put32(uint8_t *p, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++) p[i] = (uint8_t)(value >> 8 * i);
}

/* Makes the sums of the payload and the header right. */
static void seal(uint8_t *block, size_t payload_size, uint32_t number)
{
    uint8_t place_in_run[4];
    put32(place_in_run, number);
    put32(block + 8, (uint32_t)payload_size);
    put32(block + 16, block[2] & 4 ? lmc_crc32c(0, block + MAKE_HEADER, payload_size) : 0);
    put32(block + 20, lmc_crc32c(lmc_crc32c(0, place_in_run, 4), block, 20));
}

/* Changes some bytes of the payload, and now and then its size (often by one, where a check may be
 * wrong by one) or the header's first fields. */
static size_t damage(struct maker *m, uint8_t *block, size_t payload_size)
{
    unsigned n = 1 + make_choice(m) % 4;
    while (n-- && payload_size) {
        const size_t at =
            (make_choice(m) << 16 | make_choice(m) << 8 | make_choice(m)) % payload_size;
        const unsigned how = make_choice(m);
        if (how < 180) block[MAKE_HEADER + at] = (uint8_t)make_choice(m);
        else if (how < 220) block[MAKE_HEADER + at] ^= (uint8_t)(1u << how % 8);
        else if (how < 230) payload_size--;
        else if (how < 240) payload_size = at;
        else block[2 + how % 6] ^= (uint8_t)(1u << make_choice(m) % 8);
    }
    return payload_size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t elements[MAKE_MOST_SIZE], prediction[MAKE_MOST_SIZE], first[2 * MAKE_MOST_SIZE];
    static uint8_t block[MAKE_HEADER + 2 * MAKE_MOST_SIZE];
    struct made_block b = {0, 0, 0, 0, 0, 0, NULL, NULL};
    struct maker m = {data, size, 1, block + MAKE_HEADER, 0, 2 * MAKE_MOST_SIZE, 0};
    const unsigned how = make_choice(&m), number = make_choice(&m);
    const int at_start = how & 1, in_place = how >> 1 & 1, is_damaged = (how >> 2 & 7) == 7;
    lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_AUTO);
    lmc_block_info info;
    enum lmc_status wanted = LMC_OK, parsed;
    size_t payload_size, decoded_size, ws_size;
    int is_smaller;

    b.prediction = prediction;
    b.elements = elements;
    make_block(&m, &b);
    if (m.is_full) return 0;
    decoded_size = b.n * b.width;
    memset(block, 0, MAKE_HEADER);
    block[0] = 0xB2;
    block[1] = (uint8_t)b.width;
    block[2] = (uint8_t)(b.order | b.is_predicted << 2 | b.layout << 5);
    block[3] = (uint8_t)b.grouping;
    put32(block + 4, (uint32_t)b.n);
    put32(block + 12, lmc_crc32c(0, elements, decoded_size));
    payload_size = is_damaged ? damage(&m, block, m.size) : m.size;
    is_smaller = payload_size < decoded_size; /* R5-7 */
    seal(block, payload_size, number);
    lmc_tier_limit(LMC_TIER_SCALAR);
    parsed = lmc_block_parse(block, MAKE_HEADER + payload_size, number, &info);
    if (!is_damaged) CHECK(parsed == (is_smaller ? LMC_OK : LMC_ERR_CORRUPT));
    if (parsed != LMC_OK || info.size > sizeof first) return 0;
    if (!is_damaged) CHECK(info.n == b.n && info.width == b.width && info.size == decoded_size);
    ws_size = lmc_block_workspace_size(info.n, info.width);
    options.number = number;
    for (int tier = 0; tier < LMC__N_TIERS; tier++) {
        const uint8_t *const src = (const uint8_t *)memcpy(
            place(&block_guard, sizeof block, MAKE_HEADER + payload_size, at_start), block,
            MAKE_HEADER + payload_size);
        uint8_t *const dst = place(&output_guard, sizeof first, info.size, at_start);
        uint8_t *const ws =
            place(&workspace_guard, lmc_block_workspace_size(2 * MAKE_MOST_SIZE, 1) * 2, ws_size,
                  at_start);
        uint8_t *base = NULL;
        size_t written = ~(size_t)0;
        enum lmc_status status;
        if (!lmc_tier_is_available((enum lmc_tier)tier)) continue;
        lmc_tier_limit((enum lmc_tier)tier);
        if (info.has_prediction || in_place) {
            /* a damaged header may want more of it: repeat what there is */
            base = in_place ? dst : place(&prediction_guard, sizeof first, info.size, at_start);
            for (size_t i = 0; i < info.size; i++) base[i] = prediction[i % decoded_size];
        }
        options.prediction = base;
        options.prediction_size = base ? info.size : 0;
        status = lmc_block_decode(dst, info.size, &written, src, MAKE_HEADER + payload_size,
                                  &options, ws, ws_size);
        if (tier == LMC_TIER_SCALAR) wanted = status;
        CHECK(status == wanted);
        if (!is_damaged)
            CHECK(status == LMC_OK && written == decoded_size &&
                  memcmp(dst, elements, decoded_size) == 0);
        if (status == LMC_OK) {
            if (tier == LMC_TIER_SCALAR) memcpy(first, dst, info.size);
            CHECK(written == info.size && memcmp(first, dst, info.size) == 0);
        } else if (in_place)
            for (size_t i = 0; i < info.size; i++) CHECK(dst[i] == prediction[i % decoded_size]);
    }
    lmc_tier_limit(LMC_TIER_BEST);
    return 0;
}
