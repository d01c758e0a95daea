#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/half.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/ends.h"
#include "snapshot/order.h"
#include "snapshot/names.h"
#include "snapshot/files.h"
#include "snapshot/put_files.h"
#include "snapshot/texts.h"
#include "snapshot/runs.h"

/* Where the predictions of runs come from: the base, or this very snapshot, as far as it is written
 * or restored. Writer, restorer and reader each have one.
 *
 * A RUN maps its bytes to those that predict them, segment by segment; the base by *items*: its
 * tensors, and its files without tensors, sorted by name and fingerprint (spec 7.2). So a mapping
 * holds for every base of the same content, however it is cut into files.
 *
 * Where a base is refused, in this order; each check rests on those before it:
 *
 *   opening     lmc__open_origin         it does not describe itself: ARGUMENT
 *   the header  lmc__check_base          there is none, or another one than it names: BASE_MISSING,
 *                                        BASE_WRONG
 *   a run       lmc__check_run_features  the header names none: CORRUPT
 *               lmc__check_predictions   it lacks what segments map to: CORRUPT, as the delta
 *                                        contradicts itself; in salvage, where the header with the
 *                                        fingerprint may be lost, BASE_WRONG
 *   a block     lmc__read_prediction     there is none: BASE_MISSING, for a delta may be listed
 *                                        without, and checked if nothing is written
 *               codec/get_block.h        its bytes are others, by the Content_CRC: BASE_WRONG; of a
 *                                        prediction by the snapshot's own CHECKSUM
 *
 * The fingerprint protects the whole; the CRC each block, also from a base that changes while it is
 * read, or whose fingerprint nobody could check (in place, salvage). */

typedef struct lmc__range {
    size_t stream;
    uint64_t start, end;
} lmc__range;

typedef struct lmc__origin {
    lmc__buffer items; /* of the base, sorted: lmc__item */
    /* encoding: its tensors by their names backwards, sorted: lmc__item, of which file_number is
     * the number in items */
    lmc__buffer backwards;
    lmc__buffer ranges; /* lmc__range, in order and not touching: what can be read back */
    lmc__buffer wide;   /* what a conversion is made from */
    /* of this snapshot: all files up to where it is written or restored */
    const lmc__listing *listing;
    const lmc_base *base;                      /* or NULL */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of the base */
    /* of this snapshot, or NULL */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *user;
    int in_place; /* read_back reads the base, which is being overwritten; base is NULL */
} lmc__origin;

#define LMC__ORIGIN_BUFFERS LMC__ROW(lmc__origin, items, listing)

/* listing: of this snapshot, as it grows. base: NULL, or one that is described completely: every
 * file has a path and a known size, every tensor a name and a dtype. Its fingerprint is of those
 * that its files and tensors are said to have; whether its bytes are theirs shows when they are
 * read. On errors the origin is to be freed all the same. */
LMC__COLD static enum lmc_status lmc__open_origin(lmc__origin *o, const lmc__listing *listing,
                                                  const lmc_base *base, void *alloc_user)
{
    size_t i, j;
    memset(o, 0, sizeof *o);
    o->listing = listing;
    lmc__init_buffers(o, LMC__ORIGIN_BUFFERS, alloc_user);
    o->base = base;
    if (!base) return LMC_OK;
    if (!base->get_file || !base->read) return LMC_ERR_ARGUMENT;
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

/* Of the base, by its number in the sorted order. */
static const lmc__item *lmc__get_item(const lmc__origin *o, size_t i)
{
    return (const lmc__item *)(const void *)o->items.data + i;
}
static size_t lmc__count_items(const lmc__origin *o) { return o->items.size / sizeof(lmc__item); }
static const lmc_file *lmc__file_of_item(const lmc__origin *o, const lmc__item *item)
{
    return o->base->get_file(o->base->user, item->file_number);
}
/* Bytes of the tensor or file that an item is. */
static uint64_t lmc__item_size(const lmc__origin *o, const lmc__item *item)
{
    return item->tensor ? item->tensor->size : lmc__file_of_item(o, item)->size;
}

/* The base that the header names is the one at hand. In place that is for the caller to know. */
static enum lmc_status lmc__check_base(const lmc__origin *o, const uint8_t *header)
{
    if (!lmc__has_base(header) || o->in_place) return LMC_OK;
    LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    LMC__CHECK(memcmp(header + LMC__BASE_FINGERPRINT_AT, o->fingerprint, LMC_FINGERPRINT_SIZE) == 0,
               LMC_ERR_BASE_WRONG);
    return LMC_OK;
}

#ifndef LMC_NO_ENCODER
/* The number, plus 1, of the first item of the part's name, in a file of its path, that has its
 * bytes; 0: there is none. With a dtype ("": of a file) it must have that, and no other bytes. */
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

/* The number, plus 1, of the item that may predict `size` bytes of that name and dtype ("": of a
 * file); or 0. Of several, the one in the file of that path: optimizer states have the names of
 * their weights. */
LMC__COLD static uint32_t lmc__match_item(const lmc__origin *o, const char *path, const char *name,
                                          const char *dtype, uint64_t size)
{
    lmc_base_part part = {path, name, 0, size};
    const uint32_t found = lmc__find_part(o, &part, dtype);
    part.path = NULL;
    return found ? found : lmc__find_part(o, &part, dtype);
}

/* -- tensors whose names got another prefix -- */

/* Wrappers put something before the names of all tensors, or take it away:
 *
 *     base   model.layers.0.mlp.up.weight
 *     new    base_model.model.layers.0.mlp.up.weight      module.layers.0.mlp.up.weight
 *
 * So a tensor whose name the base has not is looked for by ever shorter ends of it, each from
 * behind a dot: sorted by their names backwards, all tensors of the base with that end are
 * neighbours. The first end that any of them has decides. What comes before an end is short. */
#define LMC__MAX_PREFIX_PARTS 8u

/* By the last letters of the names; of one that ends with another, the longer comes behind. */
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

/* A part of the name between dots is a number: the name of a layer, not of a wrapper. */
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

/* So many names with one end are looked at. */
#define LMC__MAX_ENDS 64u

/* Of the base's tensors with that end the one that is like t, if there is only one: its number,
 * plus 1; 0: there is none, or several. *n: how many have the end, however they are. */
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
        const size_t before = item->size - wanted.size; /* this many letters, if it has the end */
        if (item->size < wanted.size || memcmp(item->name + before, end, wanted.size) != 0) break;
        if (before && item->name[before - 1] != '.') continue;
        ++*n;
        if (!lmc__is_like(item->tensor, t) || lmc__has_number(item->name, before)) continue;
        if (found) return 0;
        found = (uint32_t)item->file_number + 1;
    }
    return n_looked < LMC__MAX_ENDS ? found : 0;
}

/* The base's tensor that is t but for what stands before the name: its number, plus 1; or 0. The
 * end has two parts at least: too many tensors are called "weight". */
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
#endif

/* In a sorted buffer of elements of `step` bytes, which begin with a lmc__range: the number of the
 * first that ends behind that byte of the stream, or is of a later stream. */
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

/* Bytes [offset, offset + size) of a file belong to runs that were added. */
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

/* Every segment of the run maps to bytes that are there: only then lmc__read_prediction may be
 * called. not_in_base: what to say of a segment that the base has not. Without a base nothing is
 * known of it; in place predictions have their own place. */
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
        } else { /* of a file that is known by the run's section */
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

/* From now on the run can be read back, unless it is itself predicted by its own snapshot:
 * references are one step deep, so that reading one never leads to another. */
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

/* The segment of a byte of the run's stream: the last that does not begin behind it. */
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

/* Where the prediction of byte `at` of a segment is: in a file's header text, if it is by that.
 * file_number is SIZE_MAX if it has none. In place, streams are files. */
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

/* The prediction of size bytes of the run, from that place on. Blocks and segments have whole
 * elements, so a conversion has them, too; it reads twice the bytes. */
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

/* The prediction of bytes [offset, offset + size) of a run that was checked, to dst: zeros where a
 * segment has no base. Segments whose predictions lie side by side, as those of small tensors
 * mostly do, are read at once. */
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
        const uint64_t at = offset - s->start; /* not 0 only in the first */
        const lmc__place from = lmc__locate(o, run, s, at);
        size_t part = (size_t)lmc__min64(size, s->size - at);
        for (; part < size; i++) { /* segments that are read with this one */
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
