#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "snapshot/buffer.h"

/* What random access may cost, and what it remembers so that it costs less.
 *
 * A prediction may be one byte of a block of 4 MiB, and the next one a byte of another block: with
 * a block decoded for each, a small file would take hours. Two things bound that (spec 9):
 *
 *  - Windows: what was decoded is kept, in a few places at once, so that predictions which take
 *    turns find it there. Those that go from front to back decode everything once.
 *
 *  - A meter: reading n bytes may cost 64 * (n + 2^22) for each snapshot of the chain, in decoded
 *    and encoded bytes; then it is LMC_ERR_LIMIT. All readers of a chain share the meter of the
 *    lowest, so the bound holds for the chain. */

/* Of a block that is not wanted whole, the block is kept; of neighbours that are asked for one
 * after another, up to so many bytes. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)
#define LMC__N_WINDOWS 4

/* Bytes of a stream, from `start` on. */
typedef struct lmc__window {
    size_t stream;
    uint64_t start;
    uint64_t used; /* when it was used last */
} lmc__window;

typedef struct lmc__windows {
    lmc__buffer bytes[LMC__N_WINDOWS];
    lmc__window list[LMC__N_WINDOWS];
    uint64_t now;
} lmc__windows;
#define LMC__WINDOW_BUFFERS LMC__ROW(lmc__windows, bytes, list)

/* The bytes of a window from that byte of the stream on, at most *size; *size: how many. NULL: none
 * has it. */
static const uint8_t *lmc__find_window(lmc__windows *w, size_t stream, uint64_t offset,
                                       size_t *size)
{
    unsigned i;
    for (i = 0; i < LMC__N_WINDOWS; i++) {
        lmc__window *const window = &w->list[i];
        const lmc__buffer *const bytes = &w->bytes[i];
        if (window->stream != stream || offset < window->start ||
            offset - window->start >= bytes->size)
            continue;
        window->used = ++w->now;
        *size = lmc__min(*size, bytes->size - (size_t)(offset - window->start));
        return bytes->data + (size_t)(offset - window->start);
    }
    return NULL;
}

/* The one to fill from that byte on: the one that ends there, so that reading on does not displace
 * the others; else the one that was not used for longest. *follows: how many bytes it has that end
 * there. */
static lmc__buffer *lmc__choose_window(lmc__windows *w, size_t stream, uint64_t start,
                                       size_t *follows)
{
    unsigned i, chosen = 0;
    *follows = 0;
    for (i = 0; i < LMC__N_WINDOWS && !*follows; i++) {
        const lmc__window *const window = &w->list[i];
        const size_t size = w->bytes[i].size;
        if (size && window->stream == stream && window->start + size == start) *follows = size;
        if (*follows || window->used < w->list[chosen].used) chosen = i;
    }
    w->list[chosen].stream = stream;
    w->list[chosen].start = start;
    w->list[chosen].used = ++w->now;
    w->bytes[chosen].size = 0;
    return &w->bytes[chosen];
}

/* Of the format: decoded bytes for one that is asked for, and the largest block. */
#define LMC__WORK_FACTOR 64
#define LMC__WORK_FREE ((uint64_t)1 << LMC__MAX_LOG2_BLOCK)

typedef struct lmc__meter {
    uint64_t left;
    int is_started; /* there was a request that adds to what is left */
    int is_running; /* a request is being answered: what it asks for is not another one */
} lmc__meter;

static uint64_t lmc__work_for(uint64_t size, uint64_t n_links)
{
    const uint64_t factor = LMC__WORK_FACTOR * n_links;
    return size < UINT64_MAX / 4 / factor ? size * factor : UINT64_MAX / 4;
}

/* A request for so many bytes begins. One that is_alone, its own caller's decision, may cost what
 * it may; those that a decoder makes on the way through a file share what they may cost. Returns
 * whether it is to be ended: it is the outermost. */
static int lmc__begin_work(lmc__meter *m, uint64_t size, uint64_t n_links, int is_alone)
{
    if (m->is_running) return 0;
    m->is_running = 1;
    if (is_alone || !m->is_started) m->left = lmc__work_for(LMC__WORK_FREE, n_links);
    m->is_started = !is_alone;
    m->left = lmc__min64(UINT64_MAX / 2, m->left + lmc__work_for(size, n_links));
    return 1;
}

static void lmc__end_work(lmc__meter *m, int is_outermost)
{
    if (is_outermost) m->is_running = 0;
}

static enum lmc_status lmc__spend(lmc__meter *m, uint64_t work)
{
    if (work > m->left) return LMC_ERR_LIMIT;
    m->left -= work;
    return LMC_OK;
}

#ifndef LMC_NO_ENCODER
/* What a writer keeps to, so that no reader refuses what it has written (R9-6). It does not know
 * how its base will be cut into blocks, so it keeps the account of a reader for each size that
 * blocks may have, from 4 KiB to 1 MiB. A prediction that one account cannot pay for is not made.
 * For a miss it pays three times: the block decoded, as many bytes encoded at most, and the window
 * that may be filled behind it. */
#define LMC__REACH_LOG2 12u
#define LMC__REACH_SIZES 9u
#define LMC__REACH_COST 3u

typedef struct lmc__reach {
    /* [i]: the last blocks of 2^(REACH_LOG2 + i) bytes, the latest first: number of the file, of
     * the block, plus 1; 0: none */
    uint64_t last[LMC__REACH_SIZES][LMC__N_WINDOWS][2];
    /* for what is asked for from front to back; for the blocks that one request wants */
    uint64_t spent[LMC__REACH_SIZES], of_request[LMC__REACH_SIZES];
    uint64_t size, request; /* bytes that are predicted so far; number of the request */
} lmc__reach;

/* Looks a block up, and makes it the latest; returns whether it was there. */
static int lmc__reach_block(uint64_t last[LMC__N_WINDOWS][2], uint64_t file, uint64_t block)
{
    unsigned i = 0;
    int found;
    while (i < LMC__N_WINDOWS - 1 && (last[i][0] != file || last[i][1] != block)) i++;
    found = last[i][0] == file && last[i][1] == block;
    for (; i > 0; i--) memcpy(last[i], last[i - 1], sizeof last[i]);
    last[0][0] = file;
    last[0][1] = block;
    return found;
}

/* Bytes of a file of the base are to predict as many; what is at `request` is decoded at once.
 * Returns 0 if that is too far away. Blocks between the first and the last pay for themselves. */
static int lmc__can_reach(lmc__reach *r, uint64_t file, uint64_t offset, uint64_t size,
                          uint64_t request)
{
    lmc__reach next = *r;
    unsigned i;
    next.size += size;
    if (request != next.request) memset(next.of_request, 0, sizeof next.of_request);
    next.request = request;
    for (i = 0; i < LMC__REACH_SIZES; i++) {
        const unsigned log2_size = LMC__REACH_LOG2 + i;
        const uint64_t first = offset >> log2_size, last = (offset + size - 1) >> log2_size,
                       cost = (uint64_t)LMC__REACH_COST << log2_size;
        uint64_t n = !lmc__reach_block(next.last[i], file + 1, first);
        if (last != first) n += !lmc__reach_block(next.last[i], file + 1, last);
        next.spent[i] += n * cost;
        next.of_request[i] += n * cost;
        if (next.spent[i] > lmc__work_for(next.size + LMC__WORK_FREE, 1) ||
            next.of_request[i] > lmc__work_for(LMC__WORK_FREE, 1))
            return 0;
    }
    *r = next;
    return 1;
}
#endif
