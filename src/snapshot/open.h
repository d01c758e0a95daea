#pragma once
#include "base/platform.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/pipeline.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage_place.h"
#include "snapshot/salvage_read.h"

/* Opens and frees readers of both kinds: of intact files, and of damaged ones (options.salvage),
 * which are a reader with more behind it. Only this file knows that there are two.
 *
 *     reader.h     lmc_reader             tables, coder, origin; reads by the index
 *     salvage.h    lmc__salvage           | lmc_reader | what was found | verdicts |
 *
 * A salvage's reader is its first member, so one pointer is both. What differs is reached by two
 * pointers to functions, read_run and free_extra: reader.h does not include salvage, and a library
 * without salvage (LMC_NO_SALVAGE) has nothing of it but an error for who asks.
 *
 * source and options are copied. What they point to (users of callbacks, the base, a lender) is the
 * caller's, and must stay until the reader is freed. */

/* Sets how runs are read, and opens. What is to be freed is known before anything can fail. From an
 * intact file this reads header, trailer and index, and refuses what is wrong with them; salvage
 * goes through all of the file, and refuses next to nothing. Blocks are checked when they are
 * read. */
static enum lmc_status lmc__open_as_asked(lmc_reader *r)
{
#ifndef LMC_NO_SALVAGE
    if (r->options.salvage) {
        r->read_run = lmc__read_salvaged;
        r->free_extra = lmc__free_salvage;
        return lmc__open_salvage(r);
    }
#endif
    r->read_run = lmc__read_indexed_run;
    return lmc__open_intact(r);
}

/* One allocation for the reader, and what it has beside. On errors it is freed like one that was
 * opened: everything in it is zero, or valid.
 *
 * The coder, with workspaces and buffers of several MiB, is lent where the caller says so: readers
 * of a chain are used one at a time (reader.h). own_coder is opened in any case, which allocates
 * nothing, and freed in any case. */
LMC__COLD LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                                  const lmc_reader_options *options)
{
    lmc_reader_options defaults;
    size_t struct_size = sizeof(lmc_reader);
    enum lmc_status status;
    lmc_reader *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!reader || !source || !source->read_at || !lmc__is_parallel(options->parallel))
        return LMC_ERR_ARGUMENT;
#ifdef LMC_NO_SALVAGE
    if (options->salvage) return LMC_ERR_UNSUPPORTED;
#else
    if (options->salvage) struct_size = sizeof(lmc__salvage);
#endif
    r = (lmc_reader *)LMC_REALLOC(options->alloc_user, NULL, 0, struct_size);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, struct_size);
    r->struct_size = struct_size;
    r->source = *source;
    r->options = *options;
    lmc__open_coder(&r->own_coder, options->parallel, options->alloc_user);
    r->coder = options->lender ? options->lender->coder : &r->own_coder;
    lmc__init_tables(&r->tables, options->alloc_user);
    lmc__visit_reader(r, lmc__init_buffer, options->alloc_user);
    r->features = LMC__KNOWN_FEATURES;
    status = lmc__open_origin(&r->origin, &r->tables.listing, options->base, options->alloc_user);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = lmc__open_as_asked(r);
    if (status != LMC_OK) {
        lmc_free_reader(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

/* What a salvage has beside before the reader itself, as it lies in the same allocation.
 * struct_size is kept because LMC_REALLOC wants to know what it frees. */
LMC__COLD LMC_API void lmc_free_reader(lmc_reader *r)
{
    if (!r) return;
    lmc__free_coder(&r->own_coder);
    lmc__free_tables(&r->tables);
    lmc__visit_reader(r, lmc__free_visited, NULL);
    if (r->free_extra) r->free_extra(r);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(r->options.alloc_user, r, r->struct_size, 0);
}
