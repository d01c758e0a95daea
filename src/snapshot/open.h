#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/pipeline.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"

/* Opens readers of intact files, and frees all readers. A reader of a damaged file (lmc_salvage)
 * begins with an lmc_reader, so a pointer to it is a pointer to a reader:
 *     reader.h     lmc_reader             tables, coder, origin; reads by the index
 *     salvage.h    lmc_salvage            | lmc_reader | what was found | verdicts |
 *
 * The function pointers read_run and free_extra call the code that differs. */

/* Allocates struct_size bytes, for a struct that begins with a reader. open: fills the tables.
 * After an error lmc_reader_free frees the reader: all members are zero or valid. Readers of a
 * chain work one at a time, so they may share one coder, of several MiB (options->lender). */
LMC__COLD static enum lmc_status lmc__open_reader(lmc_reader **reader, size_t struct_size,
                                                  enum lmc_status (*open)(lmc_reader *r),
                                                  const lmc_source *source,
                                                  const lmc_reader_options *options)
{
    lmc_reader_options o;
    enum lmc_status status;
    lmc_reader *r;
    LMC__NEW_OBJECT(reader);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    LMC__CHECK_CALLBACKS(source, read_at);
    LMC__TRY(lmc__check_parallel(o.parallel));
    LMC__TRY(lmc__check_allocator(o.allocator));
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    r = (lmc_reader *)lmc__realloc(o.allocator, NULL, 0, struct_size);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, struct_size);
    r->struct_size = struct_size;
    r->source = *source;
    r->options = o;
    r->read_run = lmc__read_indexed_run;
    lmc__open_coder(&r->own_coder, o.parallel, o.allocator);
    r->coder = o.lender ? o.lender->coder : &r->own_coder;
    lmc__init_tables(&r->tables, o.allocator);
    lmc__init_buffers(r, LMC__READER_BUFFERS, o.allocator);
    lmc__init_buffers(&r->as_base, LMC__WINDOW_BUFFERS, o.allocator);
    lmc__init_buffers(&r->back, LMC__WINDOW_BUFFERS, o.allocator);
    r->info.features = LMC__KNOWN_FEATURES;
    /* a whole chain has one meter: the base's, if the base is a reader, or the lender's */
    r->below = o.base && o.base->read == lmc__read_as_base ? (lmc_reader *)o.base->user : o.lender;
    r->meter = r->below ? r->below->meter : &r->own_meter;
    status = lmc__open_origin(&r->origin, &r->tables.listing, o.base, o.allocator);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = open(r);
    if (status != LMC_OK) {
        lmc_reader_free(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_reader_open(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options)
{
    return lmc__open_reader(reader, sizeof(lmc_reader), lmc__open_intact, source, options);
}

LMC__COLD LMC_API void lmc_reader_free(lmc_reader *r)
{
    if (!r) return;
    if (r->free_extra) r->free_extra(r);
    lmc__free_coder(&r->own_coder);
    lmc__free_tables(&r->tables);
    lmc__free_buffers(r, LMC__READER_BUFFERS);
    lmc__free_buffers(&r->as_base, LMC__WINDOW_BUFFERS);
    lmc__free_buffers(&r->back, LMC__WINDOW_BUFFERS);
    lmc__free_origin(&r->origin);
    (void)lmc__realloc(r->options.allocator, r, r->struct_size, 0);
}
