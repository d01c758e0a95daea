#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/put_quantised.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/names.h"

static void lmc__put_section_header(uint8_t *dst, const char *kind, uint32_t number,
                                    const uint8_t *body, uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store32(dst + 4, number);
    lmc__store64(dst + 8, size);
    lmc__store32(dst + 16, k->crc32c(0, dst, 16));
    lmc__store32(dst + 20, k->crc32c(0, body, (size_t)size));
}

/* The head of a section; whoever reads its body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint32_t number;
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

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

static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

/* Path rules of spec 5.1. */
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
 * times bits, over 8. */
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

/* A FILE body, checked, as a lmc_file whose arrays and strings are in *memory (one allocation, the
 * lmc_tensors first). */
static enum lmc_status lmc__parse_file(lmc_file *file, lmc__buffer *memory, const uint8_t *body,
                                       size_t size)
{
    const uint8_t *p = body, *const end = size ? body + size : body; /* body may be NULL */
    uint64_t n_words = 0, n_chars = 0, position = 0;
    uint32_t path_size, n_tensors, i;
    unsigned j;
    lmc_tensor *tensors;
    uint64_t *words;
    char *chars;
    lmc__item *items;

    memset(file, 0, sizeof *file);
    LMC__CHECK(size >= LMC__FILE_BODY_SIZE, LMC_ERR_CORRUPT);
    file->size = lmc__load64(p);
    LMC__CHECK(p[8] <= LMC_FILE_DIRECTORY && p[9] <= (LMC__HAS_MODE | LMC__HAS_MTIME) &&
                   p[10] == 0 && p[11] == 0,
               LMC_ERR_UNSUPPORTED);
    file->kind = p[8] == LMC_FILE_DIRECTORY ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    file->has_mode = (p[9] & LMC__HAS_MODE) != 0;
    file->has_mtime = (p[9] & LMC__HAS_MTIME) != 0;
    file->mode = lmc__load32(p + 12);
    file->mtime_s = (int64_t)lmc__load64(p + 16);
    file->mtime_ns = lmc__load32(p + 24);
    path_size = lmc__load32(p + 28);
    n_tensors = lmc__load32(p + 32);
    LMC__CHECK(file->size <= LMC__MAX_FILE_SIZE || file->size == LMC_UNKNOWN_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(file->mode <= (file->has_mode ? 07777u : 0u), LMC_ERR_CORRUPT);
    LMC__CHECK(file->mtime_ns <= 999999999u &&
                   (file->has_mtime || (file->mtime_s == 0 && file->mtime_ns == 0)),
               LMC_ERR_CORRUPT);
    LMC__CHECK(file->kind != LMC_FILE_DIRECTORY || file->size == 0, LMC_ERR_CORRUPT);
    LMC__CHECK(n_tensors == 0 ||
                   (file->size != LMC_UNKNOWN_SIZE && file->kind != LMC_FILE_DIRECTORY),
               LMC_ERR_CORRUPT);
    LMC__CHECK(n_tensors <= LMC__MAX_TENSORS && path_size <= LMC__MAX_STRING, LMC_ERR_CORRUPT);
    p += LMC__FILE_BODY_SIZE;
    LMC__CHECK((size_t)(end - p) >= path_size && lmc__is_path(p, path_size), LMC_ERR_CORRUPT);
    p += path_size;

    /* First pass: everything fits, and how much memory it takes. An entry takes 25 bytes at least,
     * so this is linear in size. */
    for (i = 0; i < n_tensors; i++) {
        uint32_t name_size;
        size_t more;
        LMC__CHECK((size_t)(end - p) >= LMC__TENSOR_ENTRY_SIZE, LMC_ERR_CORRUPT);
        name_size = lmc__load32(p + 16);
        LMC__CHECK(name_size <= LMC__MAX_STRING && p[20] >= 1 && p[20] <= LMC__MAX_DTYPE_SIZE &&
                       p[21] <= LMC_MAX_RANK,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(p[22] ? p[23] >= LMC_MEASURE_UPDATE && p[23] <= LMC_MEASURE_NMSE : p[23] == 0,
                   LMC_ERR_CORRUPT);
        more = LMC__TENSOR_ENTRY_SIZE + 8u * p[21] + name_size + p[20] + (p[22] ? 4u : 0u);
        LMC__CHECK((size_t)(end - p) >= more, LMC_ERR_CORRUPT);
        n_words += p[21];
        n_chars += name_size + p[20] + 2u;
        p += more;
    }
    LMC__CHECK(p == end, LMC_ERR_CORRUPT);

    memory->size = 0;
    LMC__TRY(lmc__reserve(memory, n_tensors * (uint64_t)(sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                      8 * n_words + n_chars + path_size + 1));
    tensors = (lmc_tensor *)(void *)memory->data;
    words = (uint64_t *)(void *)(tensors + n_tensors); /* in order of falling alignment */
    items = (lmc__item *)(void *)(words + n_words);
    chars = (char *)(items + n_tensors);
    p = body + LMC__FILE_BODY_SIZE;
    memcpy(chars, p, path_size);
    chars[path_size] = 0;
    file->path = chars;
    chars += path_size + 1;
    p += path_size;
    for (i = 0; i < n_tensors; i++) {
        lmc_tensor *t = &tensors[i];
        const uint32_t name_size = lmc__load32(p + 16), dtype_size = p[20];
        enum lmc_dtype dtype;
        memset(t, 0, sizeof *t);
        t->offset = lmc__load64(p);
        t->size = lmc__load64(p + 8);
        t->rank = p[21];
        t->loss.generation = p[22];
        t->loss.measure = (enum lmc_measure)p[23];
        t->shape = words;
        p += LMC__TENSOR_ENTRY_SIZE;
        for (j = 0; j < t->rank; j++, p += 8) *words++ = lmc__load64(p);
        LMC__CHECK(memchr(p, 0, name_size + dtype_size) == NULL, LMC_ERR_CORRUPT);
        memcpy(chars, p, name_size);
        chars[name_size] = 0;
        t->name = chars;
        items[i].name = (const uint8_t *)chars;
        items[i].size = name_size;
        items[i].identity = NULL;
        chars += name_size + 1;
        p += name_size;
        memcpy(chars, p, dtype_size);
        chars[dtype_size] = 0;
        t->dtype = chars;
        chars += dtype_size + 1;
        p += dtype_size;
        if (t->loss.generation) {
            t->loss.error = lmc__load32(p) / 4294967296.0;
            p += 4;
        }
        LMC__CHECK(t->offset >= position && t->offset <= file->size &&
                       t->size <= file->size - t->offset,
                   LMC_ERR_CORRUPT);
        position = t->offset + t->size;
        dtype = lmc_find_dtype(t->dtype);
        LMC__CHECK(dtype == LMC_AUTO ||
                       lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) == t->size,
                   LMC_ERR_CORRUPT);
    }
    lmc__sort_items(items, n_tensors);
    LMC__CHECK(!lmc__has_duplicates(items, n_tensors), LMC_ERR_CORRUPT);
    file->n_tensors = n_tensors;
    file->tensors = n_tensors ? tensors : NULL;
    return LMC_OK;
}

/* What a tensor is quantised by, or NULL. */
static const lmc_quantizer *lmc__get_quantizer(const lmc_tensor *t)
{
    return t && t->quantizer && !t->quantizer->info.is_lossless ? t->quantizer : NULL;
}

/* What is to be said of a tensor that is written; returns whether anything was lost. */
static int lmc__get_loss(const lmc_tensor *t, lmc_loss *loss)
{
    const lmc_quantizer *const q = lmc__get_quantizer(t);
    *loss = q ? q->info.loss : t->loss;
    return loss->generation != 0;
}

/* The FILE body of a description from the caller; strings of it are measured here, everything else
 * lmc__parse_file checks. */
static enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file)
{
    uint8_t head[LMC__FILE_BODY_SIZE];
    size_t i, n;
    unsigned j;
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
    for (i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *t = &file->tensors[i];
        uint8_t entry[LMC__TENSOR_ENTRY_SIZE];
        size_t dtype_size;
        lmc_loss loss;
        if (!t->name || !t->dtype || (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
            return LMC_ERR_ARGUMENT;
        n = strlen(t->name);
        dtype_size = strlen(t->dtype);
        if (n > LMC__MAX_STRING || dtype_size < 1 || dtype_size > LMC__MAX_DTYPE_SIZE)
            return LMC_ERR_ARGUMENT;
        memset(entry, 0, sizeof entry);
        lmc__store64(entry, t->offset);
        lmc__store64(entry + 8, t->size);
        lmc__store32(entry + 16, (uint32_t)n);
        entry[20] = (uint8_t)dtype_size;
        entry[21] = (uint8_t)t->rank;
        if (lmc__get_loss(t, &loss)) {
            if (loss.generation > 255 || !(loss.error >= 0) || loss.error > 1)
                return LMC_ERR_ARGUMENT; /* the measure: see lmc__parse_file */
            entry[22] = (uint8_t)loss.generation;
            entry[23] = (uint8_t)loss.measure;
        }
        LMC__TRY(lmc__append(out, entry, sizeof entry));
        for (j = 0; j < t->rank; j++) {
            uint8_t field[8];
            lmc__store64(field, t->shape[j]);
            LMC__TRY(lmc__append(out, field, 8));
        }
        LMC__TRY(lmc__append(out, t->name, n));
        LMC__TRY(lmc__append(out, t->dtype, dtype_size));
        if (loss.generation)
            LMC__TRY(lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0)
                                                       : UINT32_MAX));
    }
    return LMC_OK;
}

typedef struct lmc__run {
    uint64_t start; /* within the file */
    uint64_t size;
    size_t block_size;
    uint64_t n_blocks; /* at most 2^32 - 1 */
    size_t file_number;
    unsigned prediction, conversion;
    const uint8_t *segments; /* in the body */
    uint32_t n_segments;
} lmc__run;

/* A RUN body that continues file number file_number, of which *position bytes have been covered;
 * advances *position. */
static enum lmc_status lmc__parse_run(lmc__run *run, const uint8_t *body, size_t size,
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
        const uint8_t *p = body + LMC__RUN_BODY_SIZE + (size_t)LMC__SEGMENT_SIZE * i;
        const uint64_t segment_size = lmc__load64(p + 16);
        LMC__CHECK(lmc__load32(p + 4) == 0 ? lmc__load64(p + 24) == 0
                                           : body[9] != LMC__PREDICT_ZERO,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(body[10] == 0 || segment_size % 2 == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load32(p) == file_number && lmc__load64(p + 8) == *position,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(segment_size >= 1 && segment_size <= limit - *position &&
                       segment_size <= run->size - sum,
                   LMC_ERR_CORRUPT);
        *position += segment_size;
        sum += segment_size;
    }
    LMC__CHECK(sum == run->size, LMC_ERR_CORRUPT);
    run->block_size = (size_t)1 << body[8];
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__CHECK(run->n_blocks <= UINT32_MAX, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Decoded size of a block. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

/* Identity of the snapshot (spec 9.3), of items in any order: sorts them. */
static void lmc__snapshot_identity(lmc__buffer *items, uint8_t identity[LMC_IDENTITY_SIZE])
{
    lmc__item *item = (lmc__item *)(void *)items->data;
    const size_t n = items->size / sizeof *item;
    lmc__sha256 sha;
    size_t i;
    lmc__sort_items(item, n);
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC snapshot 1", 15);
    for (i = 0; i < n; i++) {
        uint8_t field[4];
        lmc__store32(field, (uint32_t)item[i].size);
        lmc__sha256_update(&sha, field, 4);
        lmc__sha256_update(&sha, item[i].name, item[i].size);
        lmc__sha256_update(&sha, item[i].identity, LMC_IDENTITY_SIZE);
    }
    lmc__sha256_finish(&sha, identity);
}

static int lmc__has_base(const uint8_t *header)
{
    unsigned i, any = 0;
    for (i = 32; i < 64; i++) any |= header[i];
    return any != 0;
}

/* File_Header (spec 4); header has LMC__HEADER_SIZE bytes. */
static enum lmc_status lmc__check_header(const uint8_t *header, const lmc__kernels *k)
{
    size_t i;
    LMC__CHECK(memcmp(header, lmc__magic, 8) == 0, LMC_ERR_NOT_LMC);
    LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);
    LMC__CHECK(k->crc32c(0, header, 76) == lmc__load32(header + 76), LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load16(header + 10) == LMC__HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(header + 16) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(lmc__load32(header + 12) <= LMC__FLAG_SEQUENTIAL, LMC_ERR_UNSUPPORTED);
    for (i = 68; i < 76; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* reserved */
    LMC__CHECK((lmc__load32(header + 64) != 0) == lmc__has_base(header), LMC_ERR_CORRUPT);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_header(const void *header,
                                        uint8_t base_identity[LMC_IDENTITY_SIZE],
                                        uint32_t *chain_depth)
{
    if (!header || !base_identity || !chain_depth) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_header((const uint8_t *)header, lmc__get_kernels()));
    memcpy(base_identity, (const uint8_t *)header + 32, LMC_IDENTITY_SIZE);
    *chain_depth = lmc__load32((const uint8_t *)header + 64);
    return LMC_OK;
}

/* *total += size, if the limits allow that. */
static int lmc__add_total(uint64_t *total, uint64_t size, const lmc_limits *limits)
{
    const uint64_t most = limits->max_total_size ? limits->max_total_size : UINT64_MAX;
    if (size > most || *total > most - size) return 0;
    *total += size;
    return 1;
}

/* The beginning of an input that has only size bytes of a header: what to say of it. */
static enum lmc_status lmc__short_header(const uint8_t *header, size_t size)
{
    return size >= 8 && memcmp(header, lmc__magic, 8) == 0 ? LMC_ERR_TRUNCATED : LMC_ERR_NOT_LMC;
}

static enum lmc_status lmc__check_trailer(const uint8_t *trailer, uint64_t index_at,
                                          uint64_t index_size, uint64_t total,
                                          const lmc__kernels *k)
{
    LMC__CHECK(memcmp(trailer + 32, lmc__end_magic, 8) == 0, LMC_ERR_CORRUPT);
    LMC__CHECK(k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28), LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load32(trailer + 24) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(lmc__load64(trailer) == index_at && lmc__load64(trailer + 8) == index_size &&
                   lmc__load64(trailer + 16) == total,
               LMC_ERR_CORRUPT);
    return LMC_OK;
}
