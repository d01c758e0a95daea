#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/origin.h"
#include "snapshot/reader.h"
#include "snapshot/find.h"

/* Whether a delta can be restored over the files of its base. Each block is decoded over its
 * prediction. So the prediction of an element must be where the element will be: at the same
 * offset, in a file of the same path and size. Then nothing is overwritten before it is used. Files
 * that share a stream may share blocks, so they are refused. Only the reader's tables are needed,
 * no content. */

/* The base's file with the path, kind and size of `file`, or NULL. items: the base's files, sorted
 * by path. If several files have this path, any may be found: such a base is refused anyway. */
static const lmc_file *lmc__find_base_file(const lmc_base *base, const lmc__buffer *items,
                                           const lmc_file *file)
{
    int next;
    const lmc__item *const item = lmc__search_rows(items, file->path, 0, &next);
    const lmc_file *const found = item ? base->get_file(base->user, item->file_number) : NULL;
    return found && found->kind == file->kind && found->size == file->size ? found : NULL;
}

/* Whether the base predicts the segment from the same place in the same file. file: the base's file
 * if the base is given; else the snapshot's own file, which must then have the same tensors.
 *
 * A segment names an item and an offset in it. The item must be the tensor that is at this place,
 * or the file itself if it has no tensors. Items with the same name and fingerprint have the same
 * bytes, so any of them is right. */
static int lmc__is_in_place(const lmc_reader *r, const lmc_file *file, const lmc__segment *s)
{
    const lmc__item *const item =
        s->base && r->origin.base ? lmc__get_item(&r->origin, s->base - 1) : NULL;
    const lmc_tensor *t = file->tensors;
    size_t i;
    if (s->base == 0) return 1;
    if (file->n_tensors == 0)
        return s->base_offset == s->start &&
               (!item || (!item->tensor && strcmp((const char *)item->name, file->path) == 0));
    LMC__FIND_FIRST(i, 0, file->n_tensors, t[i].offset + t[i].size <= s->start);
    if (i == file->n_tensors) return 0;
    t += i;
    return t->offset <= s->start && s->start - t->offset == s->base_offset &&
           (!item || (item->tensor && strcmp(item->tensor->name, t->name) == 0 &&
                      memcmp(item->fingerprint, t->fingerprint, LMC_FINGERPRINT_SIZE) == 0));
}

static int lmc__is_file_in_place(const lmc_reader *r, const lmc__listed_file *f,
                                 const lmc_file *file)
{
    const lmc__stream *stream = lmc__stream_of(r, f);
    size_t i;
    uint32_t k;
    if (!file || stream->n_files != 1) return 0;
    for (i = stream->first_run; i < stream->first_run + stream->n_runs; i++) {
        const lmc__run *run = &lmc__run_at(r, i)->run;
        for (k = 0; run->prediction == LMC__PREDICT_BASE && k < run->n_segments; k++)
            if (!lmc__is_in_place(r, file, &run->segments[k])) return 0;
    }
    return 1;
}

/* A damaged file (salvage) is refused, because its tables have gaps. */
LMC__COLD LMC_API enum lmc_status lmc_reader_can_restore_in_place(const lmc_reader *r, int *result)
{
    const lmc_base *base = r ? r->origin.base : NULL;
    enum lmc_status status = LMC_OK;
    lmc__buffer items;
    size_t i;
    int can;
    if (!r || !result) return LMC_ERR_ARGUMENT;
    can =
        r->info.has_base && !r->is_salvage && (!base || base->n_files == r->tables.listing.n_files);
    lmc__init_buffer(&items, r->options.allocator);
    if (can && base) status = lmc__sort_paths(base, &items);
    for (i = 0; can && status == LMC_OK && i < r->tables.listing.n_files; i++) {
        const lmc__listed_file *const f = lmc__file_at(r, i);
        can = lmc__is_file_in_place(r, f,
                                    base ? lmc__find_base_file(base, &items, &f->file) : &f->file);
    }
    lmc__free_buffer(&items);
    if (status == LMC_OK) *result = can;
    return status;
}
