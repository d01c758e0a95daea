#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "snapshot/buffer.h"

/* What random access may cost, and what it remembers so that it costs less.
 *
 * A prediction may be one byte of a block of 8 MiB, and the next one a byte of another block. Who
 * decodes a block for each of them makes hours of a small file. Two things bound that (spec 12.3):
 *
 *  - Windows: what was decoded is kept, in a few places at once, so that predictions which take
 *    turns find it there. Those that go from front to back decode everything once.
 *
 *  - A meter: reading n bytes may cost 64 * (n + 2^23) for each snapshot of the chain, in decoded
 *    and encoded bytes; then it is LMC_ERR_LIMIT. No order of honest requests comes near: each
 *    would have to hit a new block for every 64th part of one.
 *
 * All readers of a chain share the meter of the lowest: what one reads, it reads for the one that
 * was asked. So the bound holds for the chain, not for each link anew. */

/* Of a block that is not wanted whole, the block is kept; of neighbours that are asked for one
 * after another, up to so many bytes: what a delta wants of its base comes in pieces as small as
 * tensors, mostly side by side. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)
#define LMC__N_WINDOWS 4

/* Bytes of a stream from `start` on. */
typedef struct lmc__window {
    lmc__buffer bytes;
    size_t stream;
    uint64_t start;
    uint64_t used; /* when it was used last */
} lmc__window;

typedef struct lmc__windows {
    lmc__window list[LMC__N_WINDOWS];
    uint64_t now;
} lmc__windows;

static void lmc__visit_windows(lmc__windows *w, lmc__visit_buffer visit, void *alloc_user)
{
    unsigned i;
    for (i = 0; i < LMC__N_WINDOWS; i++) visit(&w->list[i].bytes, alloc_user);
}

/* The window that has that byte of the stream; NULL: none has. */
static lmc__window *lmc__find_window(lmc__windows *w, size_t stream, uint64_t offset)
{
    unsigned i;
    for (i = 0; i < LMC__N_WINDOWS; i++) {
        lmc__window *const window = &w->list[i];
        if (window->stream != stream || offset < window->start ||
            offset - window->start >= window->bytes.size)
            continue;
        window->used = ++w->now;
        return window;
    }
    return NULL;
}

/* One to be filled from that byte on: that which ends there, so that who reads on does not drive
 * out the others; else that which was not used for longest. *follows: how many bytes it has that
 * end there. */
static lmc__window *lmc__choose_window(lmc__windows *w, size_t stream, uint64_t start,
                                       size_t *follows)
{
    lmc__window *window = &w->list[0];
    unsigned i;
    *follows = 0;
    for (i = 0; i < LMC__N_WINDOWS; i++) {
        lmc__window *const other = &w->list[i];
        if (other->bytes.size && other->stream == stream &&
            other->start + other->bytes.size == start) {
            window = other;
            *follows = other->bytes.size;
            break;
        }
        if (other->used < window->used) window = other;
    }
    window->used = ++w->now;
    window->bytes.size = 0;
    window->stream = stream;
    window->start = start;
    return window;
}

/* Of the format: decoded bytes for one that is asked for, and the largest block. */
#define LMC__WORK_FACTOR 64
#define LMC__WORK_FREE ((uint64_t)1 << LMC__MAX_LOG2_BLOCK)

typedef struct lmc__meter {
    uint64_t left;
    int is_started; /* there was a request that adds to what is left */
    int is_running; /* a request is being answered: what it asks for is not another one */
} lmc__meter;

/* What so many bytes may cost, through so many snapshots. */
static uint64_t lmc__work_for(uint64_t size, uint64_t n_links)
{
    const uint64_t factor = LMC__WORK_FACTOR * n_links;
    return size < UINT64_MAX / 4 / factor ? size * factor : UINT64_MAX / 4;
}

/* A request for so many bytes begins. Its own caller's decision is one that is_alone: it may cost
 * what it may. Those that a decoder makes on the way through a file, by what the file says, share
 * what they may cost. Returns whether it is to be ended: it is the outermost. */
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
