#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/dtypes.h"
#include "quantize/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"

/* Reads FILE bodies (spec 4.1), and makes the list of all files of a snapshot from them.
 * put_files.h writes FILE bodies.
 *
 * The files of one FILE section, one after another, are a *stream*. The runs that follow the
 * section divide the stream; a run may have parts of several files. Most streams are one file.
 *
 *     section    | FILE 0 | RUN 0 | RUN 1 |    FILE 1     | RUN 2 | RUN 3 | ...
 *     streams    |----- file 0 ---|-------| file 1 | file 2 | file 3 |
 *     runs       |------- 0 ------|-- 1 --|------ 2 ----|---- 3 -----|
 *
 * An *entry* (a file or tensor) stores only the part of its name that an earlier entry lacks. */

typedef struct lmc__listed_file {
    lmc_file file;    /* its arrays and strings are in the stream's memory */
    size_t stream;    /* the number of its stream */
    uint64_t start;   /* where in the stream it begins */
    int is_described; /* 0: its FILE section is lost (salvage) */
    /* For restore.h: 1 if some of its blocks were not decoded */
    int is_unread;
    size_t unread_at; /* then: where its CRC and fingerprints are in the index's entries */
    /* After the first use of its header text (texts.h): where the text of each tensor begins, and
     * where the last text ends. */
    lmc__buffer text_at;
    lmc__buffer hints; /* of a writer: lmc__hint */
} lmc__listed_file;

typedef struct lmc__stream {
    size_t first_file, n_files;
    size_t first_run, n_runs; /* the runs known so far, in the owner's table of runs */
    uint64_t size;            /* LMC_UNKNOWN_SIZE: not known until the stream has ended */
    int is_unknown;           /* 1: the section does not tell the size */
    lmc__buffer memory;       /* of its files */
    lmc__cursor records;      /* in the body, which only a reader keeps, in its index */
} lmc__stream;

typedef struct lmc__listing {
    lmc__buffer files, streams; /* lmc__listed_file, lmc__stream */
    lmc__path_set paths;
    size_t n_files, n_streams;
    uint64_t n_records; /* extension records, which this version skips */
} lmc__listing;

/* The pointer is valid until more files or streams are added. */
static lmc__listed_file *lmc__listed_at(const lmc__listing *l, size_t i)
{
    return (lmc__listed_file *)(void *)l->files.data + i;
}
static lmc__stream *lmc__stream_at(const lmc__listing *l, size_t i)
{
    return (lmc__stream *)(void *)l->streams.data + i;
}

static void lmc__init_listing(lmc__listing *l, const lmc_allocator *allocator)
{
    memset(l, 0, sizeof *l);
    lmc__init_buffer(&l->files, allocator);
    lmc__init_buffer(&l->streams, allocator);
    lmc__init_buffer(&l->paths.table, allocator);
}

static enum lmc_status lmc__add_stream(lmc__listing *l, lmc__stream **stream)
{
    LMC__TRY(lmc__append(&l->streams, NULL, sizeof **stream));
    *stream = lmc__stream_at(l, l->n_streams++);
    lmc__init_buffer(&(*stream)->memory, l->streams.allocator);
    (*stream)->first_file = l->n_files;
    return LMC_OK;
}

/* Adds a file to the last stream; all of its facts are zero. */
static enum lmc_status lmc__add_file(lmc__listing *l, lmc__listed_file **file)
{
    LMC__TRY(lmc__append(&l->files, NULL, sizeof **file));
    *file = lmc__listed_at(l, l->n_files++);
    lmc__init_buffer(&(*file)->text_at, l->files.allocator);
    lmc__init_buffer(&(*file)->hints, l->files.allocator);
    (*file)->stream = l->n_streams - 1;
    lmc__stream_at(l, l->n_streams - 1)->n_files++;
    return LMC_OK;
}

static void lmc__remove_stream(lmc__listing *l)
{
    lmc__stream *const stream = lmc__stream_at(l, l->n_streams - 1);
    while (l->n_files > stream->first_file) {
        lmc__free_buffer(&lmc__listed_at(l, --l->n_files)->text_at);
        lmc__free_buffer(&lmc__listed_at(l, l->n_files)->hints);
    }
    l->files.size = l->n_files * sizeof(lmc__listed_file);
    lmc__free_buffer(&stream->memory);
    l->n_streams--;
    l->streams.size = l->n_streams * sizeof *stream;
}

LMC__COLD static void lmc__free_listing(lmc__listing *l)
{
    while (l->n_streams != 0) lmc__remove_stream(l);
    lmc__free_buffer(&l->files);
    lmc__free_buffer(&l->streams);
    lmc__free_buffer(&l->paths.table);
}

#ifndef LMC_NO_ENCODER
/* Hints of one tensor, in an array that is sorted by the numbers; 0 is also the file. */
typedef struct lmc__hint {
    size_t tensor_number;
    lmc_tensor_hints hints;
} lmc__hint;

/* The hints for that tensor, or where they belong: then *is_there is 0. */
static lmc__hint *lmc__find_hint(const lmc__buffer *hints, size_t number, int *is_there)
{
    lmc__hint *const all = (lmc__hint *)(void *)hints->data;
    const size_t n = hints->size / sizeof *all;
    size_t i;
    LMC__FIND_FIRST(i, 0, n, all[i].tensor_number < number);
    *is_there = i < n && all[i].tensor_number == number;
    return all + i;
}
static lmc_tensor_hints lmc__hints_at(const lmc__buffer *hints, size_t i)
{
    const lmc_tensor_hints none = LMC_DEFAULTS;
    int is_there = 0;
    const lmc__hint *const found =
        hints && hints->size ? lmc__find_hint(hints, i, &is_there) : NULL;
    return is_there ? found->hints : none;
}
/* The hints for tensor t of the file; t NULL: for the file. */
static lmc_tensor_hints lmc__hints_of(const lmc__listed_file *f, const lmc_tensor *t)
{
    return lmc__hints_at(&f->hints, t ? (size_t)(t - f->file.tensors) : 0);
}
static const lmc__quant_params *lmc__quant_of(const lmc__listed_file *f, const lmc_tensor *t)
{
    return lmc__get_quant_params(lmc__hints_of(f, t).quantizer);
}

/* The number of the file that has byte `position` of the stream. If position is the stream's end:
 * the number of the first file after the stream. */
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

/* Whether a path keeps the rules of spec 4.1: it is empty, or relative, without NUL and without a
 * component "", "." or "..". So no file is restored outside of the target directory. */
static int lmc__is_path(const uint8_t *p, size_t size)
{
    size_t i, n, start = 0; /* n, start: size and start of the component */
    if (size == 0) return 1;
    for (i = 0; i <= size; i++) {
        if (i < size && p[i] == 0) return 0;
        if (i < size && p[i] != '/') continue;
        n = i - start;
        if (n == 0 || (n <= 2 && p[start] == '.' && p[i - 1] == '.')) return 0;
        start = i + 1;
    }
    return 1;
}

/* Size of a tensor in bytes: the product of the shape, times bits, divided by 8. UINT64_MAX if the
 * division has a remainder, or the size is too large. No step can overflow. */
static uint64_t lmc__tensor_size(unsigned bits, unsigned rank, const uint64_t *shape)
{
    uint64_t n = 1;
    unsigned i;
    for (i = 0; i < rank; i++) /* 0 even if the product of the other numbers overflows */
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

/* LMC files store a dtype as its number in enum lmc_dtype, if that is at most LMC__LAST_DTYPE_CODE
 * (spec 4.1), else as a string. A dtype that is added to the enum later must be stored as a string,
 * too: lmc__append_tensors must use LMC_AUTO for it. */
#define LMC__LAST_DTYPE_CODE 27u
#if LMC__DTYPE_COUNT - 1 != LMC__LAST_DTYPE_CODE
#error "files have no number for the new dtype: CONTRIBUTING.md, how to add a dtype, step 3"
#endif

/* -- a FILE body -- */

/* The entries of a body are parsed twice by the same functions. The first pass, with tensors NULL,
 * counts them, and checks that they are complete and that their fields are within their limits. The
 * second pass copies them, and checks the rules that compare entries. If the first pass ends at
 * something that is not supported, the second one still looks at all before that: an entry that
 * refers to a wrong one is corrupt, whatever follows in it (R2-11). */
typedef struct lmc__body_parser {
    lmc__cursor c;
    uint64_t n_files;
    /* Counts so far, over all files of the body. words: dimensions in all shapes; chars: bytes of
     * strings, each with a NUL. */
    uint64_t n_tensors, n_words, n_chars;
    /* Outputs of the second pass. items: the tensors' names. */
    lmc_tensor *tensors;
    lmc__item *items;
    uint64_t *words;
    char *chars;
    /* the path of the previous file, or "" */
    const char *path;
    size_t path_size;
    uint64_t start; /* of the next file, within the stream */
} lmc__body_parser;

/* Appends bytes to the strings. Returns where these bytes begin; NULL in the first pass. */
static const char *lmc__put_chars(lmc__body_parser *x, const void *p, size_t size)
{
    char *const to = x->tensors ? x->chars + x->n_chars : NULL;
    if (to && size) memcpy(to, p, size);
    x->n_chars += size;
    return to;
}

/* Parses Dtype | Rank | Shape | Size, the type in an entry without the bit Like. With a known dtype
 * the field Size is missing, because the size follows from the shape. */
LMC__COLD static enum lmc_status lmc__parse_type(lmc__body_parser *x, lmc_tensor *t)
{
    lmc__cursor *const c = &x->c;
    unsigned code, i;
    uint64_t v;
    LMC__TRY(lmc__get8(c, &code));
    LMC__CHECK(code <= LMC__LAST_DTYPE_CODE, LMC_ERR_UNSUPPORTED); /* R4-34 */
    t->dtype = lmc__dtypes[code].name;
    if (code == LMC_AUTO) {
        const uint8_t *name;
        unsigned size;
        LMC__TRY(lmc__get8(c, &size));
        LMC__VALID(size >= 1 && size <= LMC__MAX_DTYPE_SIZE && size <= lmc__left(c)); /* R4-35 */
        name = lmc__take_bytes(c, size);
        LMC__VALID(memchr(name, 0, size) == NULL);  /* R2-3 */
        for (i = 1; i <= LMC__LAST_DTYPE_CODE; i++) /* a known dtype is not a string */
            LMC__VALID(strlen(lmc__dtypes[i].name) != size ||
                       memcmp(lmc__dtypes[i].name, name, size) != 0); /* R4-36 */
        t->dtype = lmc__put_chars(x, name, size);
        (void)lmc__put_chars(x, "", 1);
    }
    LMC__TRY(lmc__get8(c, &t->rank));
    LMC__VALID(t->rank <= LMC_MAX_RANK); /* R4-37 */
    t->shape = x->tensors ? x->words + x->n_words : NULL;
    for (i = 0; i < t->rank; i++, x->n_words++) {
        LMC__TRY(lmc__get_varint(c, &v));
        if (x->tensors) x->words[x->n_words] = v;
    }
    if (code == LMC_AUTO) return lmc__get_limited(c, &t->size, LMC__MAX_FILE_SIZE);
    if (!x->tensors) return LMC_OK;
    t->size = lmc__tensor_size(lmc_dtype_bits((enum lmc_dtype)code), t->rank, t->shape);
    LMC__VALID(t->size != UINT64_MAX); /* R4-39 */
    return LMC_OK;
}

/* Parses Form | Back | Prefix | Suffix | Middle | Gap | type | Loss. *position: where the previous
 * tensor ends. A tensor begins there or later and ends within the file, so tensors are in order and
 * do not overlap. Back: the reference is Back entries before this entry; 0: none. */
LMC__COLD static enum lmc_status lmc__parse_tensor(lmc__body_parser *x, const lmc_file *file,
                                                   uint64_t *position)
{
    lmc__cursor *const c = &x->c;
    const lmc_tensor *reference = NULL;
    const uint8_t *middle, *before = NULL, *behind = NULL; /* of the name */
    unsigned form, prefix = 0, suffix = 0;
    uint32_t middle_size;
    uint64_t back, gap = 0;
    lmc_tensor t;
    memset(&t, 0, sizeof t);
    LMC__TRY(lmc__get8(c, &form));
    LMC__CHECK(form <= LMC__TENSOR_FORMS, LMC_ERR_UNSUPPORTED); /* R4-29 */
    LMC__TRY(lmc__get_varint(c, &back));
    LMC__VALID(!(form & LMC__TENSOR_IS_LIKE) || back != 0); /* R4-30 */
    if (back) {
        LMC__TRY(lmc__get8(c, &prefix));
        LMC__TRY(lmc__get8(c, &suffix));
    }
    LMC__TRY(lmc__get_string(c, &middle, &middle_size, LMC__MAX_STRING - prefix - suffix));
    LMC__VALID(middle_size == 0 || memchr(middle, 0, middle_size) == NULL); /* R2-3 */
    if (x->tensors && back) {
        const lmc__item *item;
        LMC__VALID(back <= x->n_tensors); /* R4-30 */
        reference = &x->tensors[x->n_tensors - back];
        item = &x->items[x->n_tensors - back];
        LMC__VALID(prefix + suffix <= item->size); /* R4-31 */
        before = item->name;
        behind = item->name + item->size - suffix;
    }
    t.name = lmc__put_chars(x, before, prefix);
    (void)lmc__put_chars(x, middle, middle_size);
    (void)lmc__put_chars(x, behind, suffix);
    (void)lmc__put_chars(x, "", 1);
    if (form & LMC__TENSOR_HAS_GAP) {
        LMC__TRY(lmc__get_limited(c, &gap, LMC__MAX_FILE_SIZE));
        LMC__VALID(gap != 0); /* R4-33 */
    }
    if (!(form & LMC__TENSOR_IS_LIKE)) {
        LMC__TRY(lmc__parse_type(x, &t));
    } else if (reference) {
        t.dtype = reference->dtype;
        t.rank = reference->rank;
        t.shape = reference->shape;
        t.size = reference->size;
    }
    if (form & LMC__TENSOR_HAS_LOSS) {
        LMC__VALID(lmc__left(c) >= 6);
        t.loss.generation = lmc__take8(c);
        t.loss.measure = (enum lmc_measure)lmc__take8(c);
        t.loss.error = lmc__take32(c) / 4294967296.0;
        LMC__VALID(t.loss.generation >= 1 && t.loss.measure >= LMC_MEASURE_UPDATE); /* R4-38 */
    }
    if (x->tensors) {
        const lmc__item item = {(const uint8_t *)t.name, prefix + middle_size + suffix, NULL, 0,
                                NULL};
        LMC__VALID(gap <= file->size - *position);
        t.offset = *position + gap;
        LMC__VALID(t.size <= file->size - t.offset); /* R4-40 */
        *position = t.offset + t.size;
        x->tensors[x->n_tensors] = t;
        x->items[x->n_tensors] = item;
    }
    x->n_tensors++;
    return LMC_OK;
}

/* Parses Form | Path_Prefix | Path_Rest | File_Size | Mode | Mtime | N_Tensors, then the tensors.
 * Form says which fields exist. The path begins with Path_Prefix bytes of the previous path. */
LMC__COLD static enum lmc_status lmc__parse_file(lmc__body_parser *x, lmc__listing *l)
{
    lmc__cursor *const c = &x->c;
    unsigned form, prefix;
    const uint8_t *rest;
    uint32_t rest_size;
    uint64_t v, n_tensors = 0, position = 0;
    lmc__listed_file *f;
    lmc_file file;
    memset(&file, 0, sizeof file);
    LMC__TRY(lmc__get8(c, &form));
    LMC__CHECK(form <= LMC__FILE_FORMS, LMC_ERR_UNSUPPORTED); /* R4-15 */
    LMC__VALID(!(form & LMC__FILE_IS_UNKNOWN) ||
               (!(form & LMC__FILE_IS_DIRECTORY) && x->n_files == 1)); /* R4-16 */
    LMC__TRY(lmc__get8(c, &prefix));
    LMC__TRY(lmc__get_string(c, &rest, &rest_size, LMC__MAX_STRING - prefix));
    if (form & LMC__FILE_IS_DIRECTORY) file.kind = LMC_FILE_DIRECTORY;
    else if (form & LMC__FILE_IS_UNKNOWN) file.size = LMC_UNKNOWN_SIZE;
    else LMC__TRY(lmc__get_limited(c, &file.size, LMC__MAX_FILE_SIZE));
    if (form & LMC__FILE_HAS_MODE) {
        LMC__TRY(lmc__get_limited(c, &v, 07777));
        file.has_mode = 1;
        file.mode = (uint32_t)v;
    }
    if (form & LMC__FILE_HAS_MTIME) {
        LMC__VALID(lmc__left(c) >= 12);
        file.has_mtime = 1;
        file.mtime_s = (int64_t)lmc__take64(c);
        file.mtime_ns = lmc__take32(c);
        LMC__VALID(file.mtime_ns <= 999999999u); /* R4-21 */
    }
    if (!(form & (LMC__FILE_IS_DIRECTORY | LMC__FILE_IS_UNKNOWN)))
        LMC__TRY(lmc__get_limited(c, &n_tensors, LMC__MAX_TENSORS));
    LMC__VALID(!x->tensors || prefix <= x->path_size); /* R4-17 */
    file.path = lmc__put_chars(x, x->path, prefix);
    (void)lmc__put_chars(x, rest, rest_size);
    (void)lmc__put_chars(x, "", 1);
    x->path = file.path;
    x->path_size = prefix + rest_size;
    LMC__VALID(!x->tensors || lmc__is_path((const uint8_t *)x->path, x->path_size)); /* R4-23 */
    file.n_tensors = (size_t)n_tensors;
    if (x->tensors && n_tensors) file.tensors = x->tensors + x->n_tensors;
    for (; n_tensors > 0; n_tensors--) LMC__TRY(lmc__parse_tensor(x, &file, &position));
    if (!x->tensors) return LMC_OK;
    LMC__TRY(lmc__add_file(l, &f));
    f->is_described = 1;
    f->file = file;
    f->start = x->start;
    if (file.size == LMC_UNKNOWN_SIZE) return LMC_OK;
    LMC__VALID(file.size <= LMC__MAX_FILE_SIZE - x->start); /* R4-13 */
    x->start += file.size;
    return LMC_OK;
}

/* Checks a FILE body and appends its stream and its files to the list. Arrays and strings are in
 * one allocation, sorted by alignment:
 *     lmc_tensor[n]   lmc__item[n]   uint64_t[] (shapes)   characters
 *
 * Memory is at most about 200 times the body, since an entry of 5 bytes may copy 510 bytes of a
 * name. Parsing takes linear time, as an entry has 3 bytes or more; sorting takes n log n. */
LMC__COLD static enum lmc_status lmc__parse_stream(lmc__listing *l, const uint8_t *body,
                                                   size_t size)
{
    lmc__stream *stream;
    lmc__body_parser x;
    lmc__item *items;
    enum lmc_status status = LMC_OK;
    uint64_t i;
    int pass;
    LMC__TRY(lmc__add_stream(l, &stream));
    LMC__VALID(size != 0); /* body may be NULL */
    memset(&x, 0, sizeof x);
    for (pass = 0; pass < 2; pass++) {
        x.c.p = body;
        x.c.end = body + size;
        LMC__TRY(lmc__get_limited(&x.c, &x.n_files, LMC__MAX_FILES));
        LMC__VALID(x.n_files >= 1); /* R4-14 */
        x.path = "";
        x.path_size = 0;
        status = LMC_OK;
        for (i = 0; i < x.n_files && status == LMC_OK; i++) status = lmc__parse_file(&x, l);
        if (pass) break;
        stream->records = x.c;
        if (status == LMC_OK) LMC__TRY(lmc__skip_records(&x.c, &l->n_records));
        else if (status != LMC_ERR_UNSUPPORTED) return status;
        /* one byte more, as sums with a null pointer are undefined */
        LMC__TRY(
            lmc__reserve(&stream->memory, x.n_tensors * (sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                              8 * x.n_words + x.n_chars + 1));
        x.tensors = (lmc_tensor *)(void *)stream->memory.data;
        x.items = (lmc__item *)(void *)(x.tensors + x.n_tensors);
        x.words = (uint64_t *)(void *)(x.items + x.n_tensors);
        x.chars = (char *)(x.words + x.n_words);
        x.n_tensors = x.n_words = x.n_chars = 0;
    }
    LMC__TRY(status);
    stream->is_unknown = lmc__listed_at(l, stream->first_file)->file.size == LMC_UNKNOWN_SIZE;
    stream->size = stream->is_unknown ? LMC_UNKNOWN_SIZE : x.start;
    items = x.items;
    for (i = 0; i < x.n_files; i++) { /* references no longer need the order of items */
        const size_t n = lmc__listed_at(l, stream->first_file + (size_t)i)->file.n_tensors;
        lmc__sort_items(items, n);
        LMC__VALID(!lmc__has_duplicates(items, n)); /* R4-41 */
        items += n;
    }
    return LMC_OK;
}

/* Checks the rules for all files together: no path occurs twice or is below a regular file. Only a
 * snapshot of one file may have an empty path. */
static enum lmc_status lmc__check_paths(lmc__listing *l, const lmc__stream *stream)
{
    const char *before = "";
    size_t i;
    for (i = stream->first_file; i < stream->first_file + stream->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        const lmc__listed_file *const first = lmc__listed_at(l, 0);
        size_t shared = 0;
        LMC__VALID(i == 0 ||
                   (*file->path && (!first->is_described || *first->file.path))); /* R4-24 */
        while (file->path[shared] && file->path[shared] == before[shared]) shared++;
        LMC__TRY(lmc__add_path(&l->paths, file->path, shared, file->kind == LMC_FILE_DIRECTORY));
        before = file->path;
    }
    return LMC_OK;
}

/* Adds the next FILE body. If the body is refused, the list stays as it was, except l->paths. */
LMC__COLD static enum lmc_status lmc__list_files(lmc__listing *l, const uint8_t *body, size_t size)
{
    const size_t n = l->n_streams;
    enum lmc_status status = lmc__parse_stream(l, body, size);
    if (status == LMC_OK) status = lmc__check_paths(l, lmc__stream_at(l, n));
    if (status != LMC_OK && l->n_streams > n) lmc__remove_stream(l);
    return status;
}
