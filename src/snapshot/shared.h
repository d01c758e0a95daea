#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/options.h"
#include "snapshot/buffer.h"
#include "snapshot/pipeline.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/find.h"
#include "snapshot/open.h"

/* Readers of one snapshot for several threads. What opening has made does not change afterwards,
 * so the structs that describe it are copied, and point to the memory of `from`:
 *     shared    source, options, tables, names, paths, info; origin: items, ranges
 *     own       held, blocks, hashes, fingerprints, coder, windows, meter; origin: wide
 *
 * A chain of readers becomes a chain of shared readers, each of which owns the one below. */

typedef struct lmc__shared {
    lmc_reader reader; /* the first member */
    lmc_base base;     /* of the chain's next reader; user is NULL if it shares none */
} lmc__shared;

LMC__COLD static void lmc__free_shared(lmc_reader *r)
{
    lmc_reader_free((lmc_reader *)((lmc__shared *)(void *)r)->base.user);
    lmc__init_tables(&r->tables, NULL); /* the memory belongs to another reader */
    r->names.data = r->paths.data = r->origin.items.data = r->origin.ranges.data = NULL;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_open_shared(lmc_reader **reader, lmc_reader *from)
{
    lmc_reader *below = NULL, *r;
    lmc__shared *s;
    enum lmc_status status;
    LMC__NEW_OBJECT(reader);
    if (!from || from->is_salvage) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__sort_names(from));
    if (from->origin.base && from->origin.base->read == lmc__read_as_base)
        LMC__TRY(lmc_reader_open_shared(&below, (lmc_reader *)from->origin.base->user));
    s = (lmc__shared *)lmc__realloc(from->options.allocator, NULL, 0, sizeof *s);
    if (!s) {
        lmc_reader_free(below);
        return LMC_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    r = &s->reader;
    *r = *from;
    r->struct_size = sizeof *s;
    r->free_extra = lmc__free_shared;
    lmc__open_coder(&r->own_coder, from->coder->parallel, r->options.allocator);
    lmc__init_buffers(r, LMC__ROW(lmc_reader, held, names), r->options.allocator);
    lmc__init_buffers(r, LMC__ROW(lmc_reader, base, held_at), r->options.allocator);
    memset(&r->as_base, 0, sizeof r->as_base);
    memset(&r->back, 0, sizeof r->back);
    lmc__init_buffers(&r->as_base, LMC__WINDOW_BUFFERS, r->options.allocator);
    lmc__init_buffers(&r->back, LMC__WINDOW_BUFFERS, r->options.allocator);
    lmc__init_buffer(&r->origin.wide, r->options.allocator);
    memset(&r->own_meter, 0, sizeof r->own_meter);
    r->meter = &r->own_meter;
    r->below = below;
    r->account = 0;
    r->coder = &r->own_coder;
    r->origin.listing = &r->tables.listing;
    r->origin.user = r;
    if (below) {
        s->base = lmc_reader_base(below);
        r->origin.base = r->options.base = &s->base;
        r->meter = below->meter;
        /* a chain that has one coder has one here, too */
        if (from->options.lender) r->coder = below->coder;
    }
    status = lmc__append(&r->blocks, from->blocks.data, from->blocks.size);
    if (status == LMC_OK)
        status = lmc__append(&r->first_blocks, from->first_blocks.data, from->first_blocks.size);
    if (status != LMC_OK) lmc_reader_free(r);
    else *reader = r;
    return status;
}
