#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/half.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/ends.h"
#include "snapshot/order.h"
#include "snapshot/names.h"
#include "snapshot/files.h"
#include "snapshot/put_files.h"
#include "snapshot/texts.h"
#include "snapshot/runs.h"

/* Reads the predictions of runs: from the base, from header texts (texts.h), or from bytes of this
 * snapshot that were written or restored. Writer, restorer and reader each have an lmc__origin.
 *
 * Each segment of a RUN maps bytes to the bytes that predict them. A segment names bytes of the
 * base by the number of an *item*. Items are all tensors and all files without tensors, sorted by
 * name and fingerprint (spec 7.2). So the number stays right if the same content is in other files.
 *
 * Checks of the base, and their errors. Each check needs the checks before it:
 *   opening     lmc__open_origin         the base's description is incomplete: ARGUMENT
 *   the header  lmc__check_base          no base is given: BASE_MISSING; the header names
 *                                        another base: BASE_WRONG
 *   a run       lmc__check_run_features  the header names no base: CORRUPT
 *               lmc__check_predictions   the base lacks bytes that segments name: CORRUPT, as the
 *                                        delta contradicts itself. In salvage BASE_WRONG: the
 *                                        header with the fingerprint may be lost
 *   a block     lmc__read_prediction     no base is given: BASE_MISSING. Without a base a delta may
 *                                        still be listed, and be checked if nothing is written
 *               codec/get_block.h        the content has another CRC: BASE_WRONG; CHECKSUM if the
 *                                        prediction is from this snapshot
 *
 * The fingerprint protects the whole base. The CRC protects each block, even if the base changes
 * while it is read, or if its fingerprint could not be checked (in place, salvage). */

typedef struct lmc__range {
    size_t stream;
    uint64_t start, end;
} lmc__range;

typedef struct lmc__origin {
    lmc__buffer items; /* of the base, sorted: lmc__item */
    /* encoding: the base's tensors, sorted by their names read backwards: lmc__item, in which
     * file_number is the number in items */
    lmc__buffer backwards;
    lmc__buffer ranges; /* lmc__range, sorted, with gaps between them: bytes to read back */
    lmc__buffer wide;   /* the input of a conversion */
    /* files of this snapshot that were written or restored so far */
    const lmc__listing *listing;
    const lmc_base *base;                      /* or NULL */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of the base */
    /* reads bytes of this snapshot; or NULL */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *user;
    int in_place; /* read_back reads the base, which is being overwritten; base is NULL */
} lmc__origin;

#define LMC__ORIGIN_BUFFERS LMC__ROW(lmc__origin, items, listing)

/* listing: of this snapshot; it may grow. base: NULL, or complete: every file has a path and a
 * known size, every tensor a name and a dtype. o->fingerprint is computed from the fingerprints
 * that base states; the base's bytes are checked when they are read. Always free the origin. */
LMC__COLD static enum lmc_status lmc__open_origin(lmc__origin *o, const lmc__listing *listing,
                                                  const lmc_base *base,
                                                  const lmc_allocator *allocator)
{
    size_t i, j;
    memset(o, 0, sizeof *o);
    o->listing = listing;
    lmc__init_buffers(o, LMC__ORIGIN_BUFFERS, allocator);
    o->base = base;
    if (!base) return LMC_OK;
    if (!base->get_file) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(base, read);
    for (i = 0; i < base->n_files; i++) {
        const lmc_file *f = base->get_file(base->user, i);
        if (!f || !f->path || f->size == LMC_UNKNOWN_SIZE || (f->n_tensors && !f->tensors))
            return LMC_ERR_ARGUMENT;
        for (j = 0; j < f->n_tensors; j++)
            if (!f->tensors[j].name || !f->tensors[j].dtype) return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_items(&o->items, f, i));
    }
    lmc__snapshot_fingerprint(&o->items, o->fingerprint);
    return LMC_OK;
}

static void lmc__free_origin(lmc__origin *o) { lmc__free_buffers(o, LMC__ORIGIN_BUFFERS); }

/* Item i of the base, in the sorted order. */
static const lmc__item *lmc__get_item(const lmc__origin *o, size_t i)
{
    return (const lmc__item *)(const void *)o->items.data + i;
}
static size_t lmc__count_items(const lmc__origin *o) { return o->items.size / sizeof(lmc__item); }
static const lmc_file *lmc__file_of_item(const lmc__origin *o, const lmc__item *item)
{
    return o->base->get_file(o->base->user, item->file_number);
}
static uint64_t lmc__item_size(const lmc__origin *o, const lmc__item *item)
{
    return item->tensor ? item->tensor->size : lmc__file_of_item(o, item)->size;
}

/* Checks that the header names this base. In place, the caller checks it. */
static enum lmc_status lmc__check_base(const lmc__origin *o, const uint8_t *header)
{
    if (!lmc__has_base(header) || o->in_place) return LMC_OK;
    LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    LMC__CHECK(memcmp(header + LMC__BASE_FINGERPRINT_AT, o->fingerprint, LMC_FINGERPRINT_SIZE) == 0,
               LMC_ERR_BASE_WRONG);
    return LMC_OK;
}

#ifndef LMC_NO_ENCODER
/* The number, plus 1, of the first item that has the part's name, path (NULL: any) and range of
 * bytes; 0: none. With a dtype ("": of a file) the item must have this dtype and exactly the part's
 * size. */
static uint32_t lmc__find_part(const lmc__origin *o, const lmc_base_part *part, const char *dtype)
{
    const lmc__item *const items = lmc__get_item(o, 0);
    const size_t n = (size_t)lmc__min64(lmc__count_items(o), UINT32_MAX),
                 name_size = strlen(part->name);
    size_t i = lmc__find_name(items, n, part->name, 0);
    for (; i < n && items[i].size == name_size && memcmp(items[i].name, part->name, name_size) == 0;
         i++) {
        const lmc_tensor *const t = items[i].tensor;
        const uint64_t size = lmc__item_size(o, &items[i]);
        if (part->path && strcmp(lmc__file_of_item(o, &items[i])->path, part->path) != 0) continue;
        if (dtype ? size == part->size && strcmp(t ? t->dtype : "", dtype) == 0
                  : part->offset <= size && part->size <= size - part->offset)
            return (uint32_t)i + 1;
    }
    return 0;
}

LMC__COLD static uint32_t lmc__match_part(const lmc__origin *o, const lmc_base_part *part)
{
    return part->name ? lmc__find_part(o, part, NULL) : 0;
}

/* The number, plus 1, of the item of that name, dtype ("": of a file) and size; 0: none. An item in
 * the file of that path is preferred: an optimizer's states may have the names of the weights. */
LMC__COLD static uint32_t lmc__match_item(const lmc__origin *o, const char *path, const char *name,
                                          const char *dtype, uint64_t size)
{
    lmc_base_part part = {path, name, 0, size, {0, 0}};
    const uint32_t found = lmc__find_part(o, &part, dtype);
    part.path = NULL;
    return found ? found : lmc__find_part(o, &part, dtype);
}

/* -- tensors whose names have another prefix in the base -- */

/* Some programs add a prefix to the names of all tensors, or remove one:
 *     base   model.layers.0.mlp.up.weight
 *     new    base_model.model.layers.0.mlp.up.weight      module.layers.0.mlp.up.weight
 *
 * So if the base lacks a name, shorter and shorter ends of the name are tried, each of which begins
 * after a dot. The base's tensors are sorted by their names read backwards, so tensors with the
 * same end are neighbours. The search stops at an end that a tensor has, or at this limit: */
#define LMC__MAX_PREFIX_PARTS 8u

/* Compares names read backwards. If one name ends with the other, the longer name comes later. */
static int lmc__compare_ends(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    const size_t n = lmc__min(x->size, y->size);
    size_t k;
    for (k = 1; k <= n; k++)
        if (x->name[x->size - k] != y->name[y->size - k])
            return x->name[x->size - k] < y->name[y->size - k] ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static enum lmc_status lmc__list_backwards(lmc__origin *o)
{
    lmc__item spare;
    size_t i;
    for (i = 0; i < lmc__count_items(o); i++) {
        const lmc__item *const item = lmc__get_item(o, i);
        if (item->tensor)
            LMC__TRY(
                lmc__append_item(&o->backwards, item->name, item->size, NULL, i, item->tensor));
    }
    lmc__heap_sort(o->backwards.data, o->backwards.size / sizeof spare, sizeof spare,
                   lmc__compare_ends, &spare);
    return LMC_OK;
}

/* Whether a part between dots is a number: then the prefix names a layer; it was not added. */
static int lmc__has_number(const uint8_t *prefix, size_t size)
{
    size_t i, n_digits = 0, start = 0;
    for (i = 0; i <= size; i++) {
        if (i < size && prefix[i] != '.') {
            n_digits += prefix[i] >= '0' && prefix[i] <= '9';
            continue;
        }
        if (i != start && n_digits == i - start) return 1;
        start = i + 1;
        n_digits = 0;
    }
    return 0;
}

/* The maximum number of names with the same end that are compared. */
#define LMC__MAX_ENDS 64u

/* The number, plus 1, of the base's tensor that has this end and the type of t; 0: none, or
 * several. *n: how many tensors have this end, of any type. */
static uint32_t lmc__match_end(const lmc__origin *o, const lmc_tensor *t, const char *end,
                               size_t *n)
{
    const lmc__item *const items = (const lmc__item *)(const void *)o->backwards.data;
    const size_t n_items = o->backwards.size / sizeof *items;
    const lmc__item wanted = {(const uint8_t *)end, strlen(end), NULL, 0, NULL};
    uint32_t found = 0;
    size_t i, n_looked = 0;
    LMC__FIND_FIRST(i, 0, n_items, lmc__compare_ends(&items[i], &wanted) < 0);
    for (*n = 0; i < n_items && n_looked < LMC__MAX_ENDS; i++, n_looked++) {
        const lmc__item *const item = &items[i];
        const size_t before = item->size - wanted.size; /* letters before the end */
        if (item->size < wanted.size || memcmp(item->name + before, end, wanted.size) != 0) break;
        if (before && item->name[before - 1] != '.') continue;
        ++*n;
        if (!lmc__is_like(item->tensor, t) || lmc__has_number(item->name, before)) continue;
        if (found) return 0;
        found = (uint32_t)item->file_number + 1;
    }
    return n_looked < LMC__MAX_ENDS ? found : 0;
}

/* The number, plus 1, of the base's tensor that differs from t only in the prefix of the name; or
 * 0. The common end has at least two parts, because too many tensors are called "weight". */
LMC__COLD static uint32_t lmc__match_by_end(const lmc__origin *o, const lmc_tensor *t)
{
    const char *end = t->name;
    unsigned parts;
    for (parts = 0; parts < LMC__MAX_PREFIX_PARTS && strchr(end, '.'); parts++) {
        size_t n;
        const uint32_t found = lmc__match_end(o, t, end, &n);
        if (found || n) return found;
        end = strchr(end, '.') + 1;
        if (lmc__has_number((const uint8_t *)t->name, (size_t)(end - t->name))) break;
    }
    return 0;
}

/* The number, plus 1, of the item that predicts tensor t, or the file if t is NULL; 0: none. */
static uint32_t lmc__match(const lmc__origin *o, const lmc_file *f, const lmc_tensor *t)
{
    uint32_t found;
    if (!t) return lmc__match_item(o, f->path, f->path, "", f->size);
    found = lmc__match_item(o, f->path, t->name, t->dtype, t->size);
    return found ? found : lmc__match_by_end(o, t);
}
#endif

/* Searches a sorted buffer of elements of `step` bytes, each of which begins with an lmc__range.
 * Returns the number of the first range that ends after `position`, or is in a later stream. */
static size_t lmc__find_stream_range(const lmc__buffer *ranges, size_t step, size_t stream,
                                     uint64_t position)
{
    size_t i;
#define LMC__RANGE_AT ((const lmc__range *)(const void *)(ranges->data + i * step))
    LMC__FIND_FIRST(i, 0, ranges->size / step,
                    LMC__RANGE_AT->stream < stream ||
                        (LMC__RANGE_AT->stream == stream && LMC__RANGE_AT->end <= position));
#undef LMC__RANGE_AT
    return i;
}

/* Whether bytes [offset, offset + size) of a file are in runs that were added (lmc__add_run). */
static int lmc__can_read_back(const lmc__origin *o, uint64_t file_number, uint64_t offset,
                              uint64_t size)
{
    const lmc__range *const ranges = (const lmc__range *)(const void *)o->ranges.data;
    const lmc__listed_file *f;
    uint64_t position;
    size_t i;
    if (file_number >= o->listing->n_files) return 0;
    f = lmc__listed_at(o->listing, (size_t)file_number);
    if (offset > f->file.size || size > f->file.size - offset) return 0;
    if (size == 0) return 1;
    position = f->start + offset;
    i = lmc__find_stream_range(&o->ranges, sizeof *ranges, f->stream, position);
    return i < o->ranges.size / sizeof *ranges && ranges[i].stream == f->stream &&
           ranges[i].start <= position && size <= ranges[i].end - position;
}

/* Checks that every segment of the run maps to bytes that exist. Call this before
 * lmc__read_prediction. not_in_base: the error if the base lacks the bytes. Segments of a base that
 * is not given, or is restored in place, are not checked. */
LMC__COLD static enum lmc_status lmc__check_predictions(const lmc__origin *o, const lmc__run *run,
                                                        enum lmc_status not_in_base)
{
    const int is_base = run->prediction == LMC__PREDICT_BASE;
    const enum lmc_status refused = is_base ? not_in_base : LMC_ERR_CORRUPT;
    uint32_t i;
    for (i = 0; i < run->n_segments && (o->base || !is_base); i++) {
        const lmc__segment *const s = &run->segments[i];
        const size_t number = s->base - 1;
        uint64_t size;
        if (s->base == 0) continue;
        if (run->prediction == LMC__PREDICT_OWN) { /* s->size is below 2^63 */
            LMC__CHECK(
                lmc__can_read_back(o, number, s->base_offset, lmc__prediction_scale(run) * s->size),
                refused);
            continue;
        }
        if (is_base) {
            LMC__CHECK(number < lmc__count_items(o), refused);
            size = lmc__item_size(o, lmc__get_item(o, number));
        } else { /* the header text of a file that was described before the run */
            const lmc__stream *const stream = lmc__stream_at(o->listing, run->stream);
            LMC__CHECK(number < stream->first_file + stream->n_files &&
                           lmc__listed_at(o->listing, number)->is_described,
                       refused);
            LMC__TRY(lmc__get_text_size(lmc__listed_at(o->listing, number), &size));
        }
        LMC__CHECK(s->base_offset <= size && s->size <= size - s->base_offset, refused);
    }
    return LMC_OK;
}

/* Marks the bytes of the run as readable, unless the run itself is LMC__PREDICT_OWN. So reading a
 * prediction of this kind never needs another prediction of this kind. */
static enum lmc_status lmc__add_run(lmc__origin *o, const lmc__run *run)
{
    const lmc__range range = {run->stream, run->start, run->start + run->size};
    lmc__range *last = (lmc__range *)(void *)o->ranges.data;
    if (run->prediction == LMC__PREDICT_OWN) return LMC_OK;
    if (o->ranges.size) {
        last += o->ranges.size / sizeof *last - 1;
        if (last->stream == run->stream && last->end == run->start) {
            last->end += run->size;
            return LMC_OK;
        }
    }
    return lmc__append(&o->ranges, &range, sizeof range);
}

/* The number of the segment that has byte `offset` of the run's stream. */
static uint32_t lmc__find_segment(const lmc__run *run, uint64_t offset)
{
    size_t i;
    LMC__FIND_FIRST(i, 1, run->n_segments, run->segments[i].start <= offset);
    return (uint32_t)i - 1;
}

typedef struct lmc__place {
    size_t file_number;
    uint64_t start;
} lmc__place;

/* Where the prediction of byte `at` of a segment begins, in a file or its header text. file_number
 * is SIZE_MAX if the prediction is zeros. In place, each stream is one file. */
static lmc__place lmc__locate(const lmc__origin *o, const lmc__run *run, const lmc__segment *s,
                              uint64_t at)
{
    lmc__place place;
    place.file_number = SIZE_MAX;
    place.start = lmc__prediction_scale(run) * at;
    if (s->base == 0) return place;
    if (lmc__is_own_prediction(run)) {
        place.file_number = s->base - 1;
        place.start += s->base_offset;
    } else if (o->in_place) {
        place.file_number = lmc__stream_at(o->listing, run->stream)->first_file;
        place.start += s->start;
    } else {
        const lmc__item *item = lmc__get_item(o, s->base - 1);
        place.file_number = item->file_number;
        place.start += (item->tensor ? item->tensor->offset : 0) + s->base_offset;
    }
    return place;
}

/* Reads the prediction of size bytes of the run, from `place` on. A conversion reads twice as many
 * bytes: whole elements, as blocks and segments have whole elements. */
static enum lmc_status lmc__read_place(lmc__origin *o, const lmc__run *run, const lmc__place *place,
                                       uint8_t *dst, size_t size)
{
    const size_t file_number = place->file_number;
    const uint64_t start = place->start;
    if (file_number == SIZE_MAX) {
        memset(dst, 0, size);
        return LMC_OK;
    }
    if (run->prediction == LMC__PREDICT_TEXT) {
        lmc__read_text(lmc__listed_at(o->listing, file_number), start, dst, size);
        return LMC_OK;
    }
    if (run->prediction == LMC__PREDICT_BASE && !o->in_place)
        return o->base->read(o->base->user, file_number, start, dst, size);
    if (!run->conversion) return o->read_back(o->user, file_number, start, dst, size);
    LMC__TRY(lmc__reserve(&o->wide, 2 * (uint64_t)size));
    LMC__TRY(o->read_back(o->user, file_number, start, o->wide.data, 2 * size));
    return lmc_conversion_apply(dst, o->wide.data, size / 2, (enum lmc_conversion)run->conversion);
}

/* Reads the prediction of bytes [offset, offset + size) of a run to dst (lmc__check_predictions
 * must have passed). A segment without a base is predicted by zeros. Predictions that are
 * neighbours, mostly of small tensors, are read with one call. */
static enum lmc_status lmc__read_prediction(lmc__origin *o, const lmc__run *run, uint64_t offset,
                                            uint8_t *dst, size_t size)
{
    const unsigned scale = lmc__prediction_scale(run);
    uint32_t i;
    offset += run->start;
    if (run->prediction == LMC__PREDICT_BASE && !o->base && !o->in_place)
        return LMC_ERR_BASE_MISSING;
    if (run->prediction == LMC__PREDICT_OWN && !o->read_back) return LMC_ERR_READ_BACK;
    for (i = lmc__find_segment(run, offset); size != 0; i++) {
        const lmc__segment *s = &run->segments[i];
        const uint64_t at = offset - s->start; /* 0 except in the first segment */
        const lmc__place from = lmc__locate(o, run, s, at);
        size_t part = (size_t)lmc__min64(size, s->size - at);
        for (; part < size; i++) { /* add the segments that continue this one */
            lmc__place next;
            s = &run->segments[i + 1];
            next = lmc__locate(o, run, s, 0);
            if (next.file_number != from.file_number || next.start != from.start + scale * part)
                break;
            part += (size_t)lmc__min64(size - part, s->size);
        }
        LMC__TRY(lmc__read_place(o, run, &from, dst, part));
        dst += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}
