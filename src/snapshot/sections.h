#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/dtypes.h"
#include "quantise/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/names.h"

/* Sections (spec 5): a header of 24 bytes, then a body of a FILE, a RUN or the INDX. What the bytes
 * of FILE and RUN bodies mean stands here, both ways, and what must hold for them; nobody above
 * looks at bytes of a body by number, and nobody above checks them again.
 *
 * Checks come before use, field by field. A body is at hand as a whole, and no larger than what the
 * caller allows, so what is allocated for it is in proportion to bytes that are really there. */

#ifndef LMC_NO_ENCODER
/* Header of a section at dst, LMC__SECTION_HEADER_SIZE bytes:
 *
 *     0  kind        "FILE", "RUN ", "INDX"
 *     4  number      files and runs are counted apart; 0 for the index
 *     8  size        of the body
 *    16  Head_CRC    of the bytes before
 *    20  Body_CRC    of the body
 *
 * Head_CRC comes first, so that the size can be trusted before anything is read by it. */
static void lmc__put_section_header(uint8_t *dst, const char *kind, uint32_t number,
                                    const uint8_t *body, uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store32(dst + 4, number);
    lmc__store64(dst + 8, size);
    lmc__store32(dst + 16, k->crc32c(0, dst, 16));
    lmc__store32(dst + 20, k->crc32c(0, body, (size_t)size));
}
#endif

/* The header of a section; whoever reads the body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint32_t number;
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

/* Reads a section's header at p. What is not known is refused by whoever wants a kind; a size over
 * the limit of the format here. */
static enum lmc_status lmc__get_section(lmc__section *section, const uint8_t *p,
                                        const lmc__kernels *k)
{
    LMC__CHECK(k->crc32c(0, p, 16) == lmc__load32(p + 16), LMC_ERR_CHECKSUM);
    memcpy(section->kind, p, 4);
    section->number = lmc__load32(p + 4);
    section->size = lmc__load64(p + 8);
    section->body_crc = lmc__load32(p + 20);
    LMC__CHECK(section->size <= LMC__MAX_BODY_SIZE, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* kind: four characters. */
static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

/* The path rules of spec 5.1: relative, no component "", "." or "..", no backslash, no NUL; or
 * empty. So a restored file lies below the directory that it is restored to, on every system whose
 * separators are these. */
static int lmc__is_path(const uint8_t *p, size_t size)
{
    size_t i, start = 0;
    if (size == 0) return 1;
    for (i = 0; i <= size; i++) {
        if (i == size || p[i] == '/') {
            size_t n = i - start;
            if (n == 0 || (n == 1 && p[start] == '.') ||
                (n == 2 && p[start] == '.' && p[start + 1] == '.'))
                return 0;
            start = i + 1;
        } else if (p[i] == 0 || p[i] == '\\') {
            return 0;
        }
    }
    return 1;
}

/* Size of a tensor in bytes, or UINT64_MAX if it is none or too large: the product of the shape,
 * times bits, over 8, without a rest. Every step is checked before it could overflow; a 0 in the
 * shape makes the rest of it irrelevant, however large. */
static uint64_t lmc__tensor_size(unsigned bits, unsigned rank, const uint64_t *shape)
{
    uint64_t n = 1;
    unsigned i;
    for (i = 0; i < rank; i++)
        if (shape[i] == 0) return 0;
    for (i = 0; i < rank; i++) {
        if (shape[i] > LMC__MAX_FILE_SIZE / n) return UINT64_MAX;
        n *= shape[i];
    }
    /* F4 and F6: n may be up to twice the size in bytes, so divide first */
    if (n % 8 * bits % 8) return UINT64_MAX;
    if (n / 8 > LMC__MAX_FILE_SIZE / bits) return UINT64_MAX;
    n = n / 8 * bits + n % 8 * bits / 8;
    return n <= LMC__MAX_FILE_SIZE ? n : UINT64_MAX;
}

/* -- FILE -- */

/* Bytes that are read front to back. Whoever takes some has looked before that they are there
 * (lmc__left): taking checks nothing. */
typedef struct lmc__cursor {
    const uint8_t *p, *end;
} lmc__cursor;

static size_t lmc__left(const lmc__cursor *c) { return (size_t)(c->end - c->p); }

/* Where the next size bytes are. */
static const uint8_t *lmc__take_bytes(lmc__cursor *c, size_t size)
{
    c->p += size;
    return c->p - size;
}
static uint8_t lmc__take8(lmc__cursor *c) { return *lmc__take_bytes(c, 1); }
static uint32_t lmc__take32(lmc__cursor *c) { return lmc__load32(lmc__take_bytes(c, 4)); }
static uint64_t lmc__take64(lmc__cursor *c) { return lmc__load64(lmc__take_bytes(c, 8)); }

/* The fixed fields of a FILE body, checked, and where its path is, which has no NUL at its end:
 *
 *     0  size of the file, or LMC_UNKNOWN_SIZE     16  mtime, seconds
 *     8  kind                                      24  mtime, nanoseconds
 *     9  flags: which of mode and mtime are set    28  size of the path
 *    10  reserved                                  32  number of tensors
 *    12  mode                                      36  path, then an entry for each tensor
 *
 * A file of unknown size, or a directory, has no tensors. The number of tensors is limited, but not
 * to be trusted: entries may end before. */
static enum lmc_status lmc__parse_file_head(lmc__cursor *c, lmc_file *file, const uint8_t **path,
                                            uint32_t *path_size, uint32_t *n_tensors)
{
    uint8_t kind, flags, reserved;
    LMC__CHECK(lmc__left(c) >= LMC__FILE_BODY_SIZE, LMC_ERR_CORRUPT);
    file->size = lmc__take64(c);
    kind = lmc__take8(c);
    flags = lmc__take8(c);
    reserved = lmc__take8(c);
    reserved |= lmc__take8(c);
    LMC__CHECK(kind <= LMC_FILE_DIRECTORY && flags <= (LMC__HAS_MODE | LMC__HAS_MTIME) &&
                   reserved == 0,
               LMC_ERR_UNSUPPORTED);
    file->kind = kind == LMC_FILE_DIRECTORY ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    file->has_mode = (flags & LMC__HAS_MODE) != 0;
    file->has_mtime = (flags & LMC__HAS_MTIME) != 0;
    file->mode = lmc__take32(c);
    file->mtime_s = (int64_t)lmc__take64(c);
    file->mtime_ns = lmc__take32(c);
    *path_size = lmc__take32(c);
    *n_tensors = lmc__take32(c);
    LMC__CHECK(file->size <= LMC__MAX_FILE_SIZE || file->size == LMC_UNKNOWN_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(file->mode <= (file->has_mode ? 07777u : 0u), LMC_ERR_CORRUPT);
    LMC__CHECK(file->mtime_ns <= 999999999u &&
                   (file->has_mtime || (file->mtime_s == 0 && file->mtime_ns == 0)),
               LMC_ERR_CORRUPT);
    LMC__CHECK(file->kind != LMC_FILE_DIRECTORY || file->size == 0, LMC_ERR_CORRUPT);
    LMC__CHECK(*n_tensors == 0 ||
                   (file->size != LMC_UNKNOWN_SIZE && file->kind != LMC_FILE_DIRECTORY),
               LMC_ERR_CORRUPT);
    LMC__CHECK(*n_tensors <= LMC__MAX_TENSORS && *path_size <= LMC__MAX_STRING, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__left(c) >= *path_size && lmc__is_path(c->p, *path_size), LMC_ERR_CORRUPT);
    *path = lmc__take_bytes(c, *path_size);
    return LMC_OK;
}

/* A tensor's entry in a FILE body:
 *
 *     0  offset      8  size           16  size of the name
 *    20  size of the dtype's name      21  rank
 *    22  generation, 0: exact          23  measure of the loss, 0 if exact
 *    24  shape, name, dtype; if not exact the error, in units of 2^-32
 *
 * Once parsed, all of it is there, sizes and counts are within their limits. Whether the tensor
 * makes sense in its file is not looked at. */
typedef struct lmc__tensor_entry {
    uint64_t offset, size;
    uint32_t name_size;
    uint8_t dtype_size, rank, generation, measure;
    const uint8_t *shape, *name, *dtype; /* in the body */
    uint32_t error;                      /* in units of 2^-32 */
} lmc__tensor_entry;

LMC__COLD static enum lmc_status lmc__parse_tensor(lmc__cursor *c, lmc__tensor_entry *e)
{
    LMC__CHECK(lmc__left(c) >= LMC__TENSOR_ENTRY_SIZE, LMC_ERR_CORRUPT);
    e->offset = lmc__take64(c);
    e->size = lmc__take64(c);
    e->name_size = lmc__take32(c);
    e->dtype_size = lmc__take8(c);
    e->rank = lmc__take8(c);
    e->generation = lmc__take8(c);
    e->measure = lmc__take8(c);
    LMC__CHECK(e->name_size <= LMC__MAX_STRING && e->dtype_size >= 1 &&
                   e->dtype_size <= LMC__MAX_DTYPE_SIZE && e->rank <= LMC_MAX_RANK,
               LMC_ERR_CORRUPT);
    LMC__CHECK(e->generation ? e->measure >= LMC_MEASURE_UPDATE && e->measure <= LMC_MEASURE_NMSE
                             : e->measure == 0,
               LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__left(c) >=
                   8u * e->rank + e->name_size + e->dtype_size + (e->generation ? 4u : 0u),
               LMC_ERR_CORRUPT);
    e->shape = lmc__take_bytes(c, 8u * e->rank);
    e->name = lmc__take_bytes(c, e->name_size);
    e->dtype = lmc__take_bytes(c, e->dtype_size);
    e->error = e->generation ? lmc__take32(c) : 0;
    return LMC_OK;
}

/* What is left of the one allocation that a lmc_file's arrays and strings are in. */
typedef struct lmc__file_room {
    uint64_t *words; /* shapes */
    char *chars;     /* strings, NUL-terminated */
} lmc__file_room;

/* The bytes at p as a string. */
static const char *lmc__copy_string(lmc__file_room *room, const uint8_t *p, size_t size)
{
    char *const copy = room->chars;
    memcpy(copy, p, size);
    copy[size] = 0;
    room->chars += size + 1;
    return copy;
}

/* The tensor of an entry, whose arrays and strings go to room. It must lie in the file, and not
 * before *position, where the one before it ends: so tensors are in order and do not overlap. Of a
 * known dtype, its shape must give its size; of others nobody can tell. */
static enum lmc_status lmc__copy_tensor(lmc_tensor *t, const lmc__tensor_entry *e,
                                        const lmc_file *file, lmc__file_room *room,
                                        uint64_t *position)
{
    enum lmc_dtype dtype;
    unsigned i;
    LMC__CHECK(memchr(e->name, 0, (size_t)e->name_size + e->dtype_size) == NULL, LMC_ERR_CORRUPT);
    memset(t, 0, sizeof *t);
    t->offset = e->offset;
    t->size = e->size;
    t->rank = e->rank;
    t->loss.generation = e->generation;
    t->loss.measure = (enum lmc_measure)e->measure;
    t->loss.error = e->error / 4294967296.0;
    t->shape = room->words;
    for (i = 0; i < e->rank; i++) *room->words++ = lmc__load64(e->shape + 8 * i);
    t->name = lmc__copy_string(room, e->name, e->name_size);
    t->dtype = lmc__copy_string(room, e->dtype, e->dtype_size);
    LMC__CHECK(t->offset >= *position && t->offset <= file->size &&
                   t->size <= file->size - t->offset,
               LMC_ERR_CORRUPT);
    *position = t->offset + t->size;
    dtype = lmc_find_dtype(t->dtype);
    LMC__CHECK(dtype == LMC_AUTO ||
                   lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) == t->size,
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* A FILE body, checked, as a lmc_file whose arrays and strings are in *memory, which it replaces.
 *
 * Two passes over the entries. The first finds that all are there, that they end where the body
 * does, and how much memory they take: an entry has 25 bytes at least, so that is linear in size,
 * whatever the number of tensors claims to be. The second copies them to one allocation:
 *
 *     lmc_tensor[n]   uint64_t[] (shapes)   lmc__item[n] (to find equal names)   characters
 *
 * in order of falling alignment, so that each part is aligned where the one before ends. Names must
 * differ within the file: sorted, equal ones are neighbours. Errors leave *memory allocated; it
 * belongs to the caller in any case. */
LMC__COLD static enum lmc_status lmc__parse_file(lmc_file *file, lmc__buffer *memory,
                                                 const uint8_t *body, size_t size)
{
    uint64_t n_words = 0, n_chars = 0, position = 0;
    uint32_t path_size, n_tensors, i;
    const uint8_t *path;
    lmc__tensor_entry e;
    lmc__cursor c, tensors_at;
    lmc__file_room room;
    lmc_tensor *tensors;
    lmc__item *items;

    memset(file, 0, sizeof *file);
    LMC__CHECK(size != 0, LMC_ERR_CORRUPT); /* body may be NULL */
    c.p = body;
    c.end = body + size;
    LMC__TRY(lmc__parse_file_head(&c, file, &path, &path_size, &n_tensors));
    tensors_at = c;
    for (i = 0; i < n_tensors; i++) {
        LMC__TRY(lmc__parse_tensor(&c, &e));
        n_words += e.rank;
        n_chars += e.name_size + e.dtype_size + 2u;
    }
    LMC__CHECK(c.p == c.end, LMC_ERR_CORRUPT);

    memory->size = 0;
    LMC__TRY(lmc__reserve(memory, n_tensors * (uint64_t)(sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                      8 * n_words + n_chars + path_size + 1));
    tensors = (lmc_tensor *)(void *)memory->data;
    room.words = (uint64_t *)(void *)(tensors + n_tensors); /* in order of falling alignment */
    items = (lmc__item *)(void *)(room.words + n_words);
    room.chars = (char *)(items + n_tensors);
    file->path = lmc__copy_string(&room, path, path_size);
    c = tensors_at;
    for (i = 0; i < n_tensors; i++) {
        LMC__TRY(lmc__parse_tensor(&c, &e));
        LMC__TRY(lmc__copy_tensor(&tensors[i], &e, file, &room, &position));
        memset(&items[i], 0, sizeof items[i]); /* only to find names that are there twice */
        items[i].name = (const uint8_t *)tensors[i].name;
        items[i].size = e.name_size;
    }
    lmc__sort_items(items, n_tensors);
    LMC__CHECK(!lmc__has_duplicates(items, n_tensors), LMC_ERR_CORRUPT);
    file->n_tensors = n_tensors;
    file->tensors = n_tensors ? tensors : NULL;
    return LMC_OK;
}

/* What is to be said of a tensor that is written; generation 0: nothing was lost. */
static lmc_loss lmc__get_loss(const lmc_tensor *t)
{
    return lmc__get_quant_params(t->quantizer) ? lmc__get_quantizer_loss(t->quantizer) : t->loss;
}

/* An entry as lmc__parse_tensor reads it. The error of a loss is rounded down to a multiple of
 * 2^-32, and 1 to the largest below it. */
LMC__COLD static enum lmc_status lmc__append_tensor(lmc__buffer *out, const lmc_tensor *t)
{
    uint8_t entry[LMC__TENSOR_ENTRY_SIZE], field[8];
    size_t name_size, dtype_size;
    lmc_loss loss;
    unsigned i;
    if (!t->name || !t->dtype || (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
        return LMC_ERR_ARGUMENT;
    name_size = strlen(t->name);
    dtype_size = strlen(t->dtype);
    if (name_size > LMC__MAX_STRING || dtype_size < 1 || dtype_size > LMC__MAX_DTYPE_SIZE)
        return LMC_ERR_ARGUMENT;
    loss = lmc__get_loss(t);
    memset(entry, 0, sizeof entry);
    lmc__store64(entry, t->offset);
    lmc__store64(entry + 8, t->size);
    lmc__store32(entry + 16, (uint32_t)name_size);
    entry[20] = (uint8_t)dtype_size;
    entry[21] = (uint8_t)t->rank;
    if (loss.generation) {
        if (loss.generation > 255 || !(loss.error >= 0) || loss.error > 1)
            return LMC_ERR_ARGUMENT; /* the measure: see lmc__parse_tensor */
        entry[22] = (uint8_t)loss.generation;
        entry[23] = (uint8_t)loss.measure;
    }
    LMC__TRY(lmc__append(out, entry, sizeof entry));
    for (i = 0; i < t->rank; i++) {
        lmc__store64(field, t->shape[i]);
        LMC__TRY(lmc__append(out, field, 8));
    }
    LMC__TRY(lmc__append(out, t->name, name_size));
    LMC__TRY(lmc__append(out, t->dtype, dtype_size));
    if (loss.generation)
        LMC__TRY(lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0)
                                                   : UINT32_MAX));
    return LMC_OK;
}

/* The FILE body of a description from the caller. Only what could not be written down is refused
 * here; all other rules lmc__parse_file checks, which whoever calls this calls next. */
LMC__COLD static enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file)
{
    uint8_t head[LMC__FILE_BODY_SIZE];
    size_t i, n;
    if (!file->path || file->n_tensors > LMC__MAX_TENSORS || (file->n_tensors && !file->tensors))
        return LMC_ERR_ARGUMENT;
    n = strlen(file->path);
    if (n > LMC__MAX_STRING || (unsigned)file->kind > LMC_FILE_DIRECTORY) return LMC_ERR_ARGUMENT;
    lmc__store64(head, file->size);
    head[8] = (uint8_t)file->kind;
    head[9] =
        (uint8_t)((file->has_mode ? LMC__HAS_MODE : 0) | (file->has_mtime ? LMC__HAS_MTIME : 0));
    head[10] = head[11] = 0;
    lmc__store32(head + 12, file->has_mode ? file->mode : 0);
    lmc__store64(head + 16, file->has_mtime ? (uint64_t)file->mtime_s : 0);
    lmc__store32(head + 24, file->has_mtime ? file->mtime_ns : 0);
    lmc__store32(head + 28, (uint32_t)n);
    lmc__store32(head + 32, (uint32_t)file->n_tensors);
    LMC__TRY(lmc__append(out, head, sizeof head));
    LMC__TRY(lmc__append(out, file->path, n));
    for (i = 0; i < file->n_tensors; i++) LMC__TRY(lmc__append_tensor(out, &file->tensors[i]));
    return LMC_OK;
}

/* -- RUN -- */

/* A run, as its RUN body describes it:
 *
 *     0  size        8  log2 of the block size      9  prediction     10  conversion
 *    11  reserved   12  number of segments         16  segments, LMC__SEGMENT_SIZE bytes each
 *
 * Its place in the file is where the run before it ends. segments points into the body, which must
 * stay. */
typedef struct lmc__run {
    /* within the file */
    uint64_t start;
    uint64_t size;
    /* decoded bytes of each block but the last */
    size_t block_size;
    /* at most 2^32 - 1 */
    uint64_t n_blocks;
    size_t file_number;
    /* LMC__PREDICT_... */
    unsigned prediction;
    /* enum lmc_conversion, of a prediction by the run's own snapshot */
    unsigned conversion;
    /* in the body */
    const uint8_t *segments;
    uint32_t n_segments;
} lmc__run;

/* A segment: bytes of a run whose predictions lie side by side. The segments of a run cover it
 * without a gap, in order. */
typedef struct lmc__segment {
    uint32_t file_number;
    /* 0: zeros. By the base: number of the item, plus 1. By its own snapshot: number of the file,
     * plus 1 */
    uint32_t base;
    /* within the file */
    uint64_t start, size;
    /* within the base's item, or the file: where the prediction begins */
    uint64_t base_offset;
} lmc__segment;

/* p: LMC__SEGMENT_SIZE bytes. */
static lmc__segment lmc__get_segment(const uint8_t *p)
{
    lmc__segment s;
    s.file_number = lmc__load32(p);
    s.base = lmc__load32(p + 4);
    s.start = lmc__load64(p + 8);
    s.size = lmc__load64(p + 16);
    s.base_offset = lmc__load64(p + 24);
    return s;
}

#ifndef LMC_NO_ENCODER
/* dst: LMC__SEGMENT_SIZE bytes. */
static void lmc__put_segment(uint8_t *dst, const lmc__segment *s)
{
    lmc__store32(dst, s->file_number);
    lmc__store32(dst + 4, s->base);
    lmc__store64(dst + 8, s->start);
    lmc__store64(dst + 16, s->size);
    lmc__store64(dst + 24, s->base_offset);
}

/* The fixed fields of a RUN body, of LMC__RUN_BODY_SIZE bytes; the segments stand behind. */
static void lmc__put_run(uint8_t *dst, const lmc__run *run)
{
    uint8_t log2_block = 0;
    while ((size_t)1 << log2_block < run->block_size) log2_block++;
    lmc__store64(dst, run->size);
    dst[8] = log2_block;
    dst[9] = (uint8_t)run->prediction;
    dst[10] = (uint8_t)run->conversion;
    dst[11] = 0;
    lmc__store32(dst + 12, run->n_segments);
}
#endif

/* Number i of a run that was parsed. */
static lmc__segment lmc__segment_at(const lmc__run *run, uint32_t i)
{
    return lmc__get_segment(run->segments + (size_t)LMC__SEGMENT_SIZE * i);
}

/* A RUN body that continues file number file_number, of which *position bytes have been covered;
 * advances *position over the run.
 *
 * Checked here: known kinds of prediction and conversion, a conversion only of the snapshot's own
 * bytes, block sizes within the format's limits, segments that are as many as the body has room
 * for, that follow each other from *position on, that end where the run does and within the file,
 * and a prediction only where there is to be one. Not checked here: whether what predicts them is
 * there (lmc__check_predictions). */
LMC__COLD static enum lmc_status lmc__parse_run(lmc__run *run, const uint8_t *body, size_t size,
                                                uint32_t file_number, const lmc_file *file,
                                                uint64_t *position)
{
    const uint64_t limit = file->size == LMC_UNKNOWN_SIZE ? LMC__MAX_FILE_SIZE : file->size;
    uint64_t sum = 0;
    uint32_t n_segments, i;
    LMC__CHECK(size >= LMC__RUN_BODY_SIZE, LMC_ERR_CORRUPT);
    run->size = lmc__load64(body);
    n_segments = lmc__load32(body + 12);
    LMC__CHECK(body[9] <= LMC__PREDICT_OWN && body[10] <= LMC_CONVERT_F32_TO_F16 && body[11] == 0,
               LMC_ERR_UNSUPPORTED);
    LMC__CHECK(body[10] == 0 || body[9] == LMC__PREDICT_OWN, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(body[8] >= LMC__MIN_LOG2_BLOCK && body[8] <= LMC__MAX_LOG2_BLOCK, LMC_ERR_CORRUPT);
    LMC__CHECK(n_segments >= 1 && n_segments <= LMC__MAX_SEGMENTS &&
                   size == LMC__RUN_BODY_SIZE + (uint64_t)LMC__SEGMENT_SIZE * n_segments,
               LMC_ERR_CORRUPT);
    LMC__CHECK(run->size >= 1 && run->size <= LMC__MAX_FILE_SIZE, LMC_ERR_CORRUPT);
    run->start = *position;
    run->file_number = file_number;
    run->prediction = body[9];
    run->conversion = body[10];
    run->segments = body + LMC__RUN_BODY_SIZE;
    run->n_segments = n_segments;
    for (i = 0; i < n_segments; i++) {
        const lmc__segment segment = lmc__segment_at(run, i);
        LMC__CHECK(segment.base == 0 ? segment.base_offset == 0
                                     : run->prediction != LMC__PREDICT_ZERO,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(run->conversion == 0 || segment.size % 2 == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(segment.file_number == file_number && segment.start == *position,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(segment.size >= 1 && segment.size <= limit - *position &&
                       segment.size <= run->size - sum,
                   LMC_ERR_CORRUPT);
        *position += segment.size;
        sum += segment.size;
    }
    LMC__CHECK(sum == run->size, LMC_ERR_CORRUPT);
    run->block_size = (size_t)1 << body[8];
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__CHECK(run->n_blocks <= UINT32_MAX, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Decoded bytes of a block: the last has what is left. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

/* Identity of the snapshot (spec 9.3), of items in any order: sorts them. Names and identities of
 * tensors count, and paths of files without tensors; in which file a tensor lies does not. So a
 * snapshot is the same one however its tensors are distributed to files. */
static void lmc__snapshot_identity(lmc__buffer *items, uint8_t identity[LMC_IDENTITY_SIZE])
{
    lmc__item *item = (lmc__item *)(void *)items->data;
    const size_t n = items->size / sizeof *item;
    lmc__sha256 sha;
    size_t i;
    lmc__sort_items(item, n);
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC snapshot 2", 15);
    for (i = 0; i < n; i++) {
        uint8_t field[4];
        lmc__store32(field, (uint32_t)item[i].size);
        lmc__sha256_update(&sha, field, 4);
        lmc__sha256_update(&sha, item[i].name, item[i].size);
        lmc__sha256_update(&sha, item[i].identity, LMC_IDENTITY_SIZE);
    }
    lmc__sha256_finish(&sha, identity);
}
