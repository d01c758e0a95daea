#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/wire_file.h"
#include "snapshot/origin.h"
#include "snapshot/reader.h"

/* Says which parts of a base predict which tensors: before a delta is written, and of a delta. */

static void lmc__set_match(lmc_match *match, const lmc__origin *o, uint32_t number)
{
    const lmc__item *const item = number ? lmc__get_item(o, number - 1) : NULL;
    memset(match, 0, sizeof *match);
    match->file_number = item ? item->file_number : SIZE_MAX;
    if (item) match->tensor = item->tensor;
}

#ifndef LMC_NO_ENCODER
static void lmc__match_files(const lmc__origin *o, const lmc_base *files, lmc_match *matches)
{
    size_t i, j;
    for (i = 0; i < files->n_files; i++) {
        const lmc_file *const f = files->get_file(files->user, i);
        for (j = 0; j < (f->n_tensors ? f->n_tensors : 1); j++, matches++)
            lmc__set_match(matches, o, lmc__match(o, f, f->n_tensors ? &f->tensors[j] : NULL));
    }
}

LMC__COLD LMC_API enum lmc_status lmc_base_match(const lmc_base *base, const lmc_base *files,
                                                 lmc_match *matches, const lmc_allocator *allocator)
{
    lmc__origin o;
    enum lmc_status status;
    if (!base || !files || !files->get_file || !matches) return LMC_ERR_ARGUMENT;
    status = lmc__open_origin(&o, NULL, base, allocator);
    if (status == LMC_OK) status = lmc__list_backwards(&o);
    if (status == LMC_OK) lmc__match_files(&o, files, matches);
    lmc__free_origin(&o);
    return status;
}
#endif

LMC__COLD LMC_API enum lmc_status lmc_reader_find_match(const lmc_reader *r, size_t file_number,
                                                        uint64_t offset, lmc_match *match)
{
    const lmc__stream *stream;
    const lmc__run *run;
    const lmc__segment *s;
    if (!match) return LMC_ERR_ARGUMENT;
    memset(match, 0, sizeof *match);
    match->file_number = SIZE_MAX;
    stream = lmc__stream_range(r, file_number, &offset, 1);
    if (!stream) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    run = &lmc__run_at(r, lmc__find_run(r, stream, offset))->run;
    if (run->n_segments == 0 || run->prediction == LMC__PREDICT_TEXT) return LMC_OK;
    s = &run->segments[lmc__find_segment(run, offset)];
    if (s->base == 0) return LMC_OK;
    if (run->prediction == LMC__PREDICT_BASE) {
        if (!r->origin.base) return LMC_ERR_BASE_MISSING;
        lmc__set_match(match, &r->origin, s->base);
    } else match->file_number = s->base - 1;
    match->is_own = run->prediction == LMC__PREDICT_OWN;
    match->offset = s->base_offset + lmc__prediction_scale(run) * (offset - s->start);
    return LMC_OK;
}
