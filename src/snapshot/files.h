#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/dtypes.h"
#include "quantise/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"

/* FILE bodies (spec 4.1), read (put_files.h writes them), and the list of all files of a snapshot
 * that they make.
 *
 * A FILE section describes files whose bytes, one after another, are a *stream*: the runs that
 * follow cut that, and may cross from one file to the next. Most streams are one file.
 *
 *     section    | FILE 0 | RUN 0 | RUN 1 |    FILE 1     | RUN 2 | RUN 3 | ...
 *     streams    |----- file 0 ---|-------| file 1 | file 2 | file 3 |
 *     runs       |------- 0 ------|-- 1 --|------ 2 ----|---- 3 -----|
 *
 * Names are told by what they share with those before them: an entry refers to an earlier one of
 * its section, and gives the bytes in between. */

/* A file of a snapshot. */
typedef struct lmc__listed_file {
    /* Its arrays and strings are in the stream's memory. */
    lmc_file file;
    /* The stream that it is a part of, and where in that it begins. */
    size_t stream;
    uint64_t start;
    /* 1. In lists of damaged files 0: its FILE section is lost. */
    int is_described;
    /* Restoring: 1: some of its blocks were not decoded; where its facts are then (restore.h). */
    int is_unread;
    size_t unread_at;
    /* Once its header text was asked for (texts.h): where the text of each tensor begins, and
     * where all ends. */
    lmc__buffer text_at;
} lmc__listed_file;

/* What a FILE section describes. */
typedef struct lmc__stream {
    size_t first_file, n_files;
    /* Those that cut it, as far as they are known: of whoever keeps runs. */
    size_t first_run, n_runs;
    uint64_t size;      /* or LMC_UNKNOWN_SIZE, until it has ended */
    int is_unknown;     /* the section does not tell the size */
    lmc__buffer memory; /* of its files */
} lmc__stream;

/* All files of a snapshot, in order. */
typedef struct lmc__listing {
    lmc__buffer files, streams; /* lmc__listed_file, lmc__stream */
    lmc__path_set paths;
    size_t n_files, n_streams;
    int has_records; /* extension records, which this version passes over */
} lmc__listing;

/* Valid until more are added. */
static lmc__listed_file *lmc__listed_at(const lmc__listing *l, size_t i)
{
    return (lmc__listed_file *)(void *)l->files.data + i;
}
static lmc__stream *lmc__stream_at(const lmc__listing *l, size_t i)
{
    return (lmc__stream *)(void *)l->streams.data + i;
}

static void lmc__init_listing(lmc__listing *l, void *alloc_user)
{
    memset(l, 0, sizeof *l);
    lmc__init_buffer(&l->files, alloc_user);
    lmc__init_buffer(&l->streams, alloc_user);
    lmc__init_buffer(&l->paths.table, alloc_user);
}

LMC__COLD static void lmc__free_listing(lmc__listing *l)
{
    size_t i;
    for (i = 0; i < l->n_files; i++) lmc__free_buffer(&lmc__listed_at(l, i)->text_at);
    for (i = 0; i < l->n_streams; i++) lmc__free_buffer(&lmc__stream_at(l, i)->memory);
    l->n_files = l->n_streams = 0;
    lmc__free_buffer(&l->files);
    lmc__free_buffer(&l->streams);
    lmc__free_buffer(&l->paths.table);
}

/* One more stream, without files. */
static enum lmc_status lmc__add_stream(lmc__listing *l, lmc__stream **stream)
{
    LMC__TRY(lmc__append(&l->streams, NULL, sizeof **stream));
    *stream = lmc__stream_at(l, l->n_streams++);
    lmc__init_buffer(&(*stream)->memory, l->streams.alloc_user);
    (*stream)->first_file = l->n_files;
    return LMC_OK;
}

/* One more file, of the last stream, of which nothing is known. */
static enum lmc_status lmc__add_file(lmc__listing *l, lmc__listed_file **file)
{
    LMC__TRY(lmc__append(&l->files, NULL, sizeof **file));
    *file = lmc__listed_at(l, l->n_files++);
    lmc__init_buffer(&(*file)->text_at, l->files.alloc_user);
    (*file)->stream = l->n_streams - 1;
    lmc__stream_at(l, l->n_streams - 1)->n_files++;
    return LMC_OK;
}

/* The last stream goes, with its files. */
static void lmc__remove_stream(lmc__listing *l)
{
    lmc__stream *const stream = lmc__stream_at(l, l->n_streams - 1);
    while (l->n_files > stream->first_file)
        lmc__free_buffer(&lmc__listed_at(l, --l->n_files)->text_at);
    l->files.size = l->n_files * sizeof(lmc__listed_file);
    lmc__free_buffer(&stream->memory);
    l->n_streams--;
    l->streams.size = l->n_streams * sizeof *stream;
}

#ifndef LMC_NO_ENCODER
/* Of the stream's files the number, in the list, of the one that has byte `position` of the
 * stream, or the stream's end: the first that does not end before. */
static size_t lmc__find_file(const lmc__listing *l, const lmc__stream *stream, uint64_t position)
{
    const lmc__listed_file *const files = lmc__listed_at(l, 0);
    size_t i;
    LMC__FIND_FIRST(i, stream->first_file, stream->first_file + stream->n_files,
                    files[i].file.size != LMC_UNKNOWN_SIZE &&
                        files[i].start + files[i].file.size <= position);
    return i;
}
#endif

/* -- rules -- */

/* The path rules of spec 4.1: relative, no component "", "." or "..", no NUL; or
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
        } else if (p[i] == 0) {
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

/* In files, dtypes have the numbers of enum lmc_dtype, up to this one (spec 4.1); those without a
 * number are strings. What is added to the enum later has none: w->dtype of writing must be
 * LMC_AUTO for it. */
#define LMC__LAST_DTYPE_CODE 27u
#if LMC_DTYPE_COUNT - 1 != LMC__LAST_DTYPE_CODE
#error "files have no number for the new dtype: CONTRIBUTING.md, how to add a dtype, step 3"
#endif

/* -- entries: their fields, which are complete and within their limits -- */

typedef struct lmc__file_entry {
    lmc_file file; /* but path and tensors */
    unsigned prefix;
    const uint8_t *rest;
    uint32_t rest_size;
    uint64_t n_tensors;
} lmc__file_entry;

/* Form | Path_Prefix | Path_Rest | File_Size | Mode | Mtime | N_Tensors; most of it is there only
 * if Form says so. */
static enum lmc_status lmc__get_file_entry(lmc__cursor *c, lmc__file_entry *e)
{
    unsigned form;
    uint64_t v;
    memset(e, 0, sizeof *e);
    LMC__TRY(lmc__get8(c, &form));
    LMC__CHECK(form <= LMC__FILE_FORMS, LMC_ERR_UNSUPPORTED); /* R4-15 */
    /* R4-16 */
    LMC__CHECK(!(form & LMC__FILE_IS_DIRECTORY) || !(form & LMC__FILE_IS_UNKNOWN), LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get8(c, &e->prefix));
    LMC__TRY(lmc__get_string(c, &e->rest, &e->rest_size, LMC__MAX_STRING - e->prefix));
    if (form & LMC__FILE_IS_DIRECTORY) e->file.kind = LMC_FILE_DIRECTORY;
    else if (form & LMC__FILE_IS_UNKNOWN) e->file.size = LMC_UNKNOWN_SIZE;
    else LMC__TRY(lmc__get_limited(c, &e->file.size, LMC__MAX_FILE_SIZE));
    if (form & LMC__FILE_HAS_MODE) {
        LMC__TRY(lmc__get_limited(c, &v, 07777));
        e->file.has_mode = 1;
        e->file.mode = (uint32_t)v;
    }
    if (form & LMC__FILE_HAS_MTIME) {
        LMC__CHECK(lmc__left(c) >= 12, LMC_ERR_CORRUPT);
        e->file.has_mtime = 1;
        e->file.mtime_s = (int64_t)lmc__take64(c);
        e->file.mtime_ns = lmc__take32(c);
        LMC__CHECK(e->file.mtime_ns <= 999999999u, LMC_ERR_CORRUPT); /* R4-21 */
    }
    if (!(form & (LMC__FILE_IS_DIRECTORY | LMC__FILE_IS_UNKNOWN)))
        LMC__TRY(lmc__get_limited(c, &e->n_tensors, LMC__MAX_TENSORS));
    return LMC_OK;
}

typedef struct lmc__tensor_entry {
    uint64_t back; /* the reference is the entry so many before; 0: none */
    unsigned prefix, suffix;
    const uint8_t *middle;
    uint32_t middle_size, name_size;
    uint64_t gap;
    int is_like; /* what follows, but the loss, is the reference's */
    enum lmc_dtype dtype;
    const uint8_t *dtype_name; /* of LMC_AUTO: a string that no number stands for */
    uint32_t dtype_size;
    unsigned rank;
    const uint8_t *shape; /* varints, which are valid */
    uint64_t size;        /* of LMC_AUTO */
    lmc_loss loss;
} lmc__tensor_entry;

/* Dtype | Rank | Shape | Size, where the entry is not like another one. */
static enum lmc_status lmc__get_type(lmc__cursor *c, lmc__tensor_entry *e)
{
    unsigned code, i;
    uint64_t v;
    LMC__TRY(lmc__get8(c, &code));
    LMC__CHECK(code <= LMC__LAST_DTYPE_CODE, LMC_ERR_UNSUPPORTED); /* R4-34 */
    e->dtype = (enum lmc_dtype)code;
    if (e->dtype == LMC_AUTO) {
        unsigned size;
        LMC__TRY(lmc__get8(c, &size));
        /* R4-35 */
        LMC__CHECK(size >= 1 && size <= LMC__MAX_DTYPE_SIZE && size <= lmc__left(c),
                   LMC_ERR_CORRUPT);
        e->dtype_size = size;
        e->dtype_name = lmc__take_bytes(c, size);
        LMC__CHECK(memchr(e->dtype_name, 0, size) == NULL, LMC_ERR_CORRUPT); /* R2-3 */
        for (i = 1; i <= LMC__LAST_DTYPE_CODE; i++) /* one dtype has one form */
            /* R4-36 */
            LMC__CHECK(strlen(lmc__dtypes[i].name) != size ||
                           memcmp(lmc__dtypes[i].name, e->dtype_name, size) != 0,
                       LMC_ERR_CORRUPT);
    }
    LMC__TRY(lmc__get8(c, &e->rank));
    LMC__CHECK(e->rank <= LMC_MAX_RANK, LMC_ERR_CORRUPT); /* R4-37 */
    e->shape = c->p;
    for (i = 0; i < e->rank; i++) LMC__TRY(lmc__get_varint(c, &v));
    if (e->dtype == LMC_AUTO) LMC__TRY(lmc__get_limited(c, &e->size, LMC__MAX_FILE_SIZE));
    return LMC_OK;
}

/* Form | Back | Prefix | Suffix | Middle | Gap | type | Loss. What refers to another entry is not
 * looked at. */
LMC__COLD static enum lmc_status lmc__get_tensor_entry(lmc__cursor *c, lmc__tensor_entry *e)
{
    unsigned form;
    memset(e, 0, sizeof *e);
    LMC__TRY(lmc__get8(c, &form));
    LMC__CHECK(form <= LMC__TENSOR_FORMS, LMC_ERR_UNSUPPORTED); /* R4-29 */
    LMC__TRY(lmc__get_varint(c, &e->back));
    e->is_like = (form & LMC__TENSOR_IS_LIKE) != 0;
    LMC__CHECK(!e->is_like || e->back != 0, LMC_ERR_CORRUPT); /* R4-30 */
    if (e->back) {
        LMC__TRY(lmc__get8(c, &e->prefix));
        LMC__TRY(lmc__get8(c, &e->suffix));
    }
    LMC__TRY(
        lmc__get_string(c, &e->middle, &e->middle_size, LMC__MAX_STRING - e->prefix - e->suffix));
    /* R2-3 */
    LMC__CHECK(e->middle_size == 0 || memchr(e->middle, 0, e->middle_size) == NULL,
               LMC_ERR_CORRUPT);
    e->name_size = e->prefix + e->middle_size + e->suffix;
    if (form & LMC__TENSOR_HAS_GAP) {
        LMC__TRY(lmc__get_limited(c, &e->gap, LMC__MAX_FILE_SIZE));
        LMC__CHECK(e->gap != 0, LMC_ERR_CORRUPT); /* R4-33 */
    }
    if (!e->is_like) LMC__TRY(lmc__get_type(c, e));
    if (form & LMC__TENSOR_HAS_LOSS) {
        LMC__CHECK(lmc__left(c) >= 6, LMC_ERR_CORRUPT);
        e->loss.generation = lmc__take8(c);
        e->loss.measure = (enum lmc_measure)lmc__take8(c);
        e->loss.error = lmc__take32(c) / 4294967296.0;
        LMC__CHECK(e->loss.measure <= LMC_MEASURE_NMSE, LMC_ERR_UNSUPPORTED); /* R4-38 */
        /* R4-38 */
        LMC__CHECK(e->loss.generation >= 1 && e->loss.measure >= LMC_MEASURE_UPDATE,
                   LMC_ERR_CORRUPT);
    }
    return LMC_OK;
}

/* -- a FILE body -- */

/* What a body has. */
typedef struct lmc__body_counts {
    uint64_t n_files, n_tensors, n_words, n_chars;
    int has_records;
} lmc__body_counts;

/* All entries are there, and end where the body or its extension records do. An entry has 3 bytes
 * at least, so this is linear in the body's size, whatever it says that it has. */
static enum lmc_status lmc__count_body(lmc__cursor *c, lmc__body_counts *counts)
{
    lmc__file_entry file;
    lmc__tensor_entry tensor;
    uint64_t i, j;
    memset(counts, 0, sizeof *counts);
    LMC__TRY(lmc__get_limited(c, &counts->n_files, LMC__MAX_FILES));
    LMC__CHECK(counts->n_files >= 1, LMC_ERR_CORRUPT); /* R4-14 */
    for (i = 0; i < counts->n_files; i++) {
        LMC__TRY(lmc__get_file_entry(c, &file));
        /* R4-16 */
        LMC__CHECK(file.file.size != LMC_UNKNOWN_SIZE || counts->n_files == 1, LMC_ERR_CORRUPT);
        counts->n_chars += file.prefix + file.rest_size + 1;
        counts->n_tensors += file.n_tensors;
        for (j = 0; j < file.n_tensors; j++) {
            LMC__TRY(lmc__get_tensor_entry(c, &tensor));
            counts->n_words += tensor.rank;
            counts->n_chars +=
                tensor.name_size + 1 + (tensor.dtype_size ? tensor.dtype_size + 1 : 0);
        }
    }
    counts->has_records = lmc__left(c) != 0;
    return lmc__skip_records(c);
}

/* While the entries of a body that was counted are copied. */
typedef struct lmc__body_parser {
    lmc__cursor c;
    /* of all files of the body; so many are there. items: of their names */
    lmc_tensor *tensors;
    lmc__item *items;
    size_t n_tensors;
    /* what is left of the memory: shapes; strings, NUL-terminated */
    uint64_t *words;
    char *chars;
} lmc__body_parser;

/* Bytes go to the strings. */
static void lmc__put_chars(lmc__body_parser *x, const void *p, size_t size)
{
    if (size) memcpy(x->chars, p, size);
    x->chars += size;
}

/* The next path, of which the first bytes are those of `before`; its size to *size, which was that
 * one's. */
static enum lmc_status lmc__copy_path(lmc__body_parser *x, const lmc__file_entry *e,
                                      const char *before, size_t *size, const char **path)
{
    LMC__CHECK(e->prefix <= *size, LMC_ERR_CORRUPT); /* R4-17 */
    *path = x->chars;
    lmc__put_chars(x, before, e->prefix);
    lmc__put_chars(x, e->rest, e->rest_size);
    *x->chars++ = 0;
    *size = e->prefix + e->rest_size;
    LMC__CHECK(lmc__is_path((const uint8_t *)*path, *size), LMC_ERR_CORRUPT); /* R4-23 */
    return LMC_OK;
}

/* Dtype, shape and size of a tensor whose entry says them itself. The size of a known dtype is that
 * of its shape; of others nobody can tell. */
static enum lmc_status lmc__copy_type(lmc__body_parser *x, const lmc__tensor_entry *e,
                                      lmc_tensor *t)
{
    lmc__cursor shape;
    unsigned i;
    shape.p = e->shape;
    shape.end = x->c.end;
    t->rank = e->rank;
    t->shape = x->words;
    for (i = 0; i < e->rank; i++) LMC__TRY(lmc__get_varint(&shape, x->words++));
    t->dtype = lmc__dtypes[e->dtype].name;
    t->size = e->size;
    if (e->dtype != LMC_AUTO) {
        t->size = lmc__tensor_size(lmc_dtype_bits(e->dtype), t->rank, t->shape);
        LMC__CHECK(t->size != UINT64_MAX, LMC_ERR_CORRUPT); /* R4-39 */
        return LMC_OK;
    }
    t->dtype = x->chars;
    lmc__put_chars(x, e->dtype_name, e->dtype_size);
    *x->chars++ = 0;
    return LMC_OK;
}

/* The next tensor, which begins at *position of its file or behind it, and ends within it: so
 * tensors are in order and do not overlap. */
static enum lmc_status lmc__copy_tensor(lmc__body_parser *x, const lmc_file *file,
                                        uint64_t *position)
{
    lmc_tensor *const t = &x->tensors[x->n_tensors];
    lmc__item *const item = &x->items[x->n_tensors];
    lmc__tensor_entry e;
    LMC__TRY(lmc__get_tensor_entry(&x->c, &e));
    LMC__CHECK(e.back <= x->n_tensors, LMC_ERR_CORRUPT); /* R4-30 */
    memset(t, 0, sizeof *t);
    memset(item, 0, sizeof *item);
    t->name = x->chars;
    if (e.back) {
        const lmc__item *const reference = item - (size_t)e.back;
        LMC__CHECK(e.prefix + e.suffix <= reference->size, LMC_ERR_CORRUPT); /* R4-31 */
        lmc__put_chars(x, reference->name, e.prefix);
        lmc__put_chars(x, e.middle, e.middle_size);
        lmc__put_chars(x, reference->name + reference->size - e.suffix, e.suffix);
    } else lmc__put_chars(x, e.middle, e.middle_size);
    *x->chars++ = 0;
    item->name = (const uint8_t *)t->name;
    item->size = e.name_size;
    if (e.is_like) {
        const lmc_tensor *const reference = t - (size_t)e.back;
        t->dtype = reference->dtype;
        t->rank = reference->rank;
        t->shape = reference->shape;
        t->size = reference->size;
    } else LMC__TRY(lmc__copy_type(x, &e, t));
    t->loss = e.loss;
    LMC__CHECK(e.gap <= file->size - *position, LMC_ERR_CORRUPT);
    t->offset = *position + e.gap;
    LMC__CHECK(t->size <= file->size - t->offset, LMC_ERR_CORRUPT); /* R4-40 */
    *position = t->offset + t->size;
    x->n_tensors++;
    return LMC_OK;
}

/* The next file, which begins at *start of the stream. Names must differ within it: sorted, equal
 * ones are neighbours. (That comes later, for later entries may refer to these.) */
static enum lmc_status lmc__copy_file(lmc__body_parser *x, lmc__listing *l, size_t *path_size,
                                      uint64_t *start)
{
    const char *const before =
        *path_size ? lmc__listed_at(l, l->n_files - 1)->file.path : NULL; /* in this section */
    lmc__listed_file *f;
    lmc__file_entry e;
    uint64_t position = 0, i;
    LMC__TRY(lmc__get_file_entry(&x->c, &e));
    LMC__TRY(lmc__add_file(l, &f));
    f->is_described = 1;
    f->file = e.file;
    f->start = *start;
    LMC__TRY(lmc__copy_path(x, &e, before, path_size, &f->file.path));
    f->file.n_tensors = (size_t)e.n_tensors;
    if (e.n_tensors) f->file.tensors = x->tensors + x->n_tensors;
    for (i = 0; i < e.n_tensors; i++) LMC__TRY(lmc__copy_tensor(x, &f->file, &position));
    if (e.file.size == LMC_UNKNOWN_SIZE) return LMC_OK;
    LMC__CHECK(e.file.size <= LMC__MAX_FILE_SIZE - *start, LMC_ERR_CORRUPT); /* R4-13 */
    *start += e.file.size;
    return LMC_OK;
}

/* No two tensors of a file have one name. items: of all tensors of the stream, which are used
 * up. */
static enum lmc_status lmc__check_names(const lmc__listing *l, const lmc__stream *stream,
                                        lmc__item *items)
{
    size_t i;
    for (i = 0; i < stream->n_files; i++) {
        const size_t n = lmc__listed_at(l, stream->first_file + i)->file.n_tensors;
        lmc__sort_items(items, n);
        LMC__CHECK(!lmc__has_duplicates(items, n), LMC_ERR_CORRUPT); /* R4-41 */
        items += n;
    }
    return LMC_OK;
}

/* A FILE body, checked, becomes the list's next stream and its files. Arrays and strings are in one
 * allocation, which the first pass over the entries has measured:
 *
 *     lmc_tensor[n]   lmc__item[n]   uint64_t[] (shapes)   characters
 *
 * in order of falling alignment, so that each part is aligned where the one before ends. Memory is
 * at most some 200 times the body: an entry of 5 bytes may stand for a tensor whose name has 510 of
 * others. Shapes and dtypes that entries share, tensors share, too. */
static enum lmc_status lmc__parse_stream(lmc__listing *l, const uint8_t *body, size_t size)
{
    lmc__stream *stream;
    lmc__body_counts counts;
    lmc__body_parser x;
    uint64_t i, start = 0;
    size_t path_size = 0;
    LMC__TRY(lmc__add_stream(l, &stream));
    LMC__CHECK(size != 0, LMC_ERR_CORRUPT); /* body may be NULL */
    memset(&x, 0, sizeof x);
    x.c.p = body;
    x.c.end = body + size;
    LMC__TRY(lmc__count_body(&x.c, &counts));
    l->has_records |= counts.has_records;
    LMC__TRY(
        lmc__reserve(&stream->memory, counts.n_tensors * (sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                          8 * counts.n_words + counts.n_chars));
    x.tensors = (lmc_tensor *)(void *)stream->memory.data;
    x.items = (lmc__item *)(void *)(x.tensors + counts.n_tensors);
    x.words = (uint64_t *)(void *)(x.items + counts.n_tensors);
    x.chars = (char *)(x.words + counts.n_words);
    x.c.p = body;
    LMC__TRY(lmc__get_varint(&x.c, &i)); /* the number of files */
    for (i = 0; i < counts.n_files; i++) LMC__TRY(lmc__copy_file(&x, l, &path_size, &start));
    stream->is_unknown = lmc__listed_at(l, stream->first_file)->file.size == LMC_UNKNOWN_SIZE;
    stream->size = stream->is_unknown ? LMC_UNKNOWN_SIZE : start;
    return lmc__check_names(l, stream, x.items);
}

/* The rules for all files together: no path twice, none below a file, and a nameless file is
 * alone. */
static enum lmc_status lmc__check_paths(lmc__listing *l, const lmc__stream *stream)
{
    const char *before = "";
    size_t i;
    for (i = stream->first_file; i < stream->first_file + stream->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        const lmc__listed_file *const first = lmc__listed_at(l, 0);
        size_t shared = 0;
        /* R4-24 */
        LMC__CHECK(i == 0 || (*file->path && (!first->is_described || *first->file.path)),
                   LMC_ERR_CORRUPT);
        while (file->path[shared] && file->path[shared] == before[shared]) shared++;
        LMC__TRY(lmc__add_path(&l->paths, file->path, shared, file->kind == LMC_FILE_DIRECTORY));
        before = file->path;
    }
    return LMC_OK;
}

/* The next FILE body. If it is refused, the list stays as it was, but for paths. */
LMC__COLD static enum lmc_status lmc__list_files(lmc__listing *l, const uint8_t *body, size_t size)
{
    const size_t n = l->n_streams;
    enum lmc_status status = lmc__parse_stream(l, body, size);
    if (status == LMC_OK) status = lmc__check_paths(l, lmc__stream_at(l, n));
    if (status != LMC_OK && l->n_streams > n) lmc__remove_stream(l);
    return status;
}
