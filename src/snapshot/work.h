#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "snapshot/buffer.h"

/* Bounds the work of random access, and caches decoded bytes, so that less is decoded.
 *
 * A prediction may be one byte of a block of 4 MiB, and the next prediction one byte of another
 * block. If each prediction decoded a block, a small file would take hours. Therefore (spec 9):
 *
 *  - Windows cache the decoded bytes around the last few places that were read. Predictions that go
 *    from front to back, at up to four places in turns, decode each block once.
 *
 *  - A meter counts decoded and encoded bytes. Reading n bytes may cost 64 * (n + 2^22) of them for
 *    each snapshot of the chain; more is LMC_ERR_LIMIT. All readers of a chain share the meter of
 *    the first base, so the bound holds for the whole chain. If each had its own, the bounds would
 *    multiply.
 *
 *  - An account of a meter has the requests that count together. A reader that it meets for the
 *    first time adds its snapshot and those of the readers below it. So readers that only callbacks
 *    of the program connect, as several bases that are one together, count when they are read. */

/* A window holds one block of which a request needed only a part. It grows up to this size while
 * neighbours are read one after another. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)
#define LMC__N_WINDOWS 4

/* Bytes of a stream, from `start` on. */
typedef struct lmc__window {
    size_t stream;
    uint64_t start;
    uint64_t used; /* time of the last use, by lmc__windows.now */
} lmc__window;

typedef struct lmc__windows {
    lmc__buffer bytes[LMC__N_WINDOWS];
    lmc__window list[LMC__N_WINDOWS];
    uint64_t now;
} lmc__windows;
#define LMC__WINDOW_BUFFERS LMC__ROW(lmc__windows, bytes, list)

/* Finds the byte `offset` of the stream in a window. *size: in: bytes wanted; out: bytes that the
 * window has from there. NULL: no window has that byte. */
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

/* Chooses the window to fill from `start` on. It is the window that ends there, so that reading on
 * does not replace other windows; else the least recently used window. *follows: bytes that the
 * window had up to start. */
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

/* Limits of the format (R9-5): decoded bytes for each requested byte, and the largest block. */
#define LMC__WORK_FACTOR 64
#define LMC__WORK_FREE ((uint64_t)1 << LMC__MAX_LOG2_BLOCK)

typedef struct lmc__meter {
    uint64_t left;
    uint64_t size;    /* bytes of all requests of the account */
    uint64_t n_links; /* snapshots that the account has met */
    uint64_t account; /* its number; 0: none was begun yet */
    int is_started;   /* the last request was not alone: the account goes on */
    int is_running;   /* a request is being answered: reads that it makes are part of it */
} lmc__meter;

static uint64_t lmc__work_for(uint64_t size, uint64_t n_links)
{
    const uint64_t factor = LMC__WORK_FACTOR * n_links;
    return size < UINT64_MAX / 4 / factor ? size * factor : UINT64_MAX / 4;
}

static void lmc__allow_work(lmc__meter *m, uint64_t size, uint64_t n_links)
{
    m->left = lmc__min64(UINT64_MAX / 2, m->left + lmc__work_for(size, n_links));
}

/* Begins a request for size bytes, unless it is part of another (then 0). A request that is_alone
 * (the user's own call) or is_first of a reader gets a new account. Requests that a decoder makes
 * while it goes through a file share one account. */
static int lmc__begin_work(lmc__meter *m, uint64_t size, int is_alone, int is_first)
{
    if (m->is_running) return 0;
    m->is_running = 1;
    if (is_alone || is_first || !m->is_started) {
        m->account++;
        m->left = m->size = m->n_links = 0;
    }
    m->is_started = !is_alone;
    m->size = lmc__min64(UINT64_MAX / 4, m->size + lmc__min64(size, UINT64_MAX / 4));
    if (m->n_links) lmc__allow_work(m, size, m->n_links);
    return 1;
}

static void lmc__add_link(lmc__meter *m)
{
    m->n_links++;
    lmc__allow_work(m, m->size + LMC__WORK_FREE, 1);
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
/* The writer simulates the meter of readers, so that no reader refuses what it has written (R9-6).
 * It does not know how the base will be cut into blocks, so it simulates each block size from 4 KiB
 * to 1 MiB. A prediction that exceeds the limit at any of these sizes is not used. A block that is
 * in no window costs three times its size: the decoded bytes, at most as many encoded bytes, and
 * the window that may be filled after the block. */
#define LMC__REACH_LOG2 12u
#define LMC__REACH_SIZES 9u
#define LMC__REACH_COST 3u

typedef struct lmc__reach {
    /* [i]: the last blocks of 2^(REACH_LOG2 + i) bytes, the latest first: number of the file plus 1
     * (0: none), number of the block */
    uint64_t last[LMC__REACH_SIZES][LMC__N_WINDOWS][2];
    /* work since the start; work for the current request */
    uint64_t spent[LMC__REACH_SIZES], of_request[LMC__REACH_SIZES];
    uint64_t size, request; /* predicted bytes so far; number of the current request */
} lmc__reach;

/* Looks up a block, and makes it the latest. Returns whether it was in the list. */
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

/* Whether size bytes of a file of the base, from offset on, may be a prediction; if so, they are
 * counted. Predictions with the same `request` are read at once. Only the first and the last block
 * count: for the blocks between them the limit grows by more than they cost. */
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
