#pragma once
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/pipeline.h"
#include "snapshot/origin.h"
#include "snapshot/reader.h"

LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options)
{
    lmc_reader_options defaults;
    enum lmc_status status;
    lmc_reader *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!reader || !source || !source->read_at || !lmc__is_parallel(options->parallel))
        return LMC_ERR_ARGUMENT;
    r = (lmc_reader *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->source = *source;
    r->options = *options;
    lmc__open_coder(&r->own_coder, options->parallel, options->alloc_user);
    r->coder = options->lender ? options->lender->coder : &r->own_coder;
    r->index.alloc_user = r->files.alloc_user = r->runs.alloc_user = r->block_at.alloc_user =
        options->alloc_user;
    r->keys.alloc_user = r->metadata.alloc_user = r->paths.alloc_user = options->alloc_user;
    r->base[0].alloc_user = r->base[1].alloc_user = r->window.alloc_user = options->alloc_user;
    status = lmc__open_origin(&r->origin, options->base, options->alloc_user);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = options->salvage ? lmc__open_salvage(r) : lmc__open_reader(r);
    if (status != LMC_OK) {
        lmc_free_reader(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

LMC_API void lmc_free_reader(lmc_reader *r)
{
    size_t i;
    if (!r) return;
    for (i = 0; i < r->n_files; i++) lmc__free_buffer(&lmc__file_at(r, i)->memory);
    lmc__free_coder(&r->own_coder);
    lmc__free_buffer(&r->index);
    lmc__free_buffer(&r->files);
    lmc__free_buffer(&r->runs);
    lmc__free_buffer(&r->block_at);
    lmc__free_buffer(&r->keys);
    lmc__free_buffer(&r->metadata);
    lmc__free_buffer(&r->paths);
    lmc__free_buffer(&r->window);
    lmc__free_buffer(&r->base[0]);
    lmc__free_buffer(&r->base[1]);
    lmc__free_salvage(r);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(r->options.alloc_user, r, sizeof *r, 0);
}
