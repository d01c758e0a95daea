/* python.c - lmc.h for fuzz_python.py, which loads it as a shared library: turns an LMC file into
 * one text with all of its content
 * SPDX-License-Identifier: MIT
 *
 * flat_decode() restores the file from front to back, reads it again by its index, and compares the
 * results. The text has, with integers of 8 bytes:
 *   fingerprint of the snapshot, number of files
 *   each file: kind, path, has_mode, mode, has_mtime, seconds, nanoseconds, crc, fingerprint of one
 *     without tensors, bytes, number of tensors
 *     each tensor: name, dtype, rank, shape, offset, size, fingerprint, generation, measure,
 *       error * 2^32
 *   to the end: key and value of each entry of the metadata
 *
 * where strings and bytes have their size before them.
 */
#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_extra.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOTAL_SIZE ((uint64_t)1 << 28)
#define MAX_FILES 4096

/* Status of a file that can be restored, but reading by its index fails or differs. */
#define FLAT_DIFFERS 100

/* -- a base: files that Python has decoded -- */

struct flat_base {
    lmc_base base;
    lmc_file files[MAX_FILES];
    uint8_t *data[MAX_FILES];
};

static const lmc_file *get_file(void *user, size_t number)
{
    return &((struct flat_base *)user)->files[number];
}

static enum lmc_status read_base(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    const struct flat_base *b = (const struct flat_base *)user;
    if (offset > b->files[number].size || size > b->files[number].size - offset)
        return LMC_ERR_READ;
    memcpy(dst, b->data[number] + offset, size);
    return LMC_OK;
}

static void *copy(const void *data, size_t size)
{
    void *p = malloc(size + 1);
    if (!p) abort();
    memcpy(p, data, size);
    ((uint8_t *)p)[size] = 0;
    return p;
}

struct flat_base *flat_new_base(void);
int flat_add_file(struct flat_base *b, const char *path, int kind, const void *data, size_t size,
                  const lmc_tensor *tensors, size_t n_tensors);
int flat_identify_base(struct flat_base *b, uint8_t fingerprint[LMC_FINGERPRINT_SIZE]);
int flat_decode(const void *data, size_t size, const struct flat_base *b, int tier, uint8_t **text,
                size_t *text_size);
int flat_decode_block(void *dst, size_t size, const void *block, size_t block_size,
                      const void *prediction);
void flat_free(uint8_t *text);

/* It is never freed. */
struct flat_base *flat_new_base(void)
{
    struct flat_base *b = (struct flat_base *)calloc(1, sizeof *b);
    if (!b) abort();
    b->base.get_file = get_file;
    b->base.read = read_base;
    b->base.user = b;
    return b;
}

/* tensors stay the caller's, and must stay valid. */
int flat_add_file(struct flat_base *b, const char *path, int kind, const void *data, size_t size,
                  const lmc_tensor *tensors, size_t n_tensors)
{
    lmc_file *file = &b->files[b->base.n_files];
    lmc_tensor *list = (lmc_tensor *)copy(tensors, n_tensors * sizeof *tensors);
    lmc_memory memory;
    lmc_stream stream;
    memset(&memory, 0, sizeof memory);
    memory.data = b->data[b->base.n_files] = (uint8_t *)copy(data, size);
    memory.size = size;
    stream = lmc_memory_stream(&memory);
    file->path = (const char *)copy(path, strlen(path));
    file->kind = (enum lmc_file_kind)kind;
    file->size = size;
    file->n_tensors = n_tensors;
    file->tensors = list;
    b->base.n_files++;
    return (int)lmc_file_identify(file, list, &stream, NULL, NULL);
}

int flat_identify_base(struct flat_base *b, uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    return (int)lmc_base_identify(&b->base, fingerprint, NULL);
}

/* -- restore -- */

struct restored {
    lmc_memory files[MAX_FILES];
    size_t n;
};

static enum lmc_status begin_file(void *user, const lmc_file *file, size_t number)
{
    (void)file;
    return number == ((struct restored *)user)->n && number < MAX_FILES ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status write_bytes(void *user, const void *data, size_t size)
{
    struct restored *r = (struct restored *)user;
    lmc_sink sink = lmc_memory_sink(&r->files[r->n]);
    return sink.write(sink.user, data, size);
}

static enum lmc_status end_file(void *user, const lmc_file *file, size_t number)
{
    (void)number;
    return file->size == ((struct restored *)user)->files[((struct restored *)user)->n++].size
               ? LMC_OK
               : LMC_ERR_WRITE;
}

static enum lmc_status read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    const lmc_memory *file = &((const struct restored *)user)->files[number];
    if (offset > file->size || size > file->size - offset) return LMC_ERR_READ;
    memcpy(dst, file->data + offset, size);
    return LMC_OK;
}

/* -- the text -- */

static void put(lmc_memory *text, const void *data, size_t size)
{
    lmc_sink sink = lmc_memory_sink(text);
    if (sink.write(sink.user, data, size) != 0) abort();
}

static void put_number(lmc_memory *text, uint64_t value)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> 8 * i);
    put(text, bytes, 8);
}

static void put_bytes(lmc_memory *text, const void *data, size_t size)
{
    put_number(text, size);
    put(text, data, size);
}

static void put_tensor(lmc_memory *text, const lmc_tensor *t)
{
    put_bytes(text, t->name, strlen(t->name));
    put_bytes(text, t->dtype, strlen(t->dtype));
    put_number(text, t->rank);
    for (unsigned i = 0; i < t->rank; i++) put_number(text, t->shape[i]);
    put_number(text, t->offset);
    put_number(text, t->size);
    put(text, t->fingerprint, LMC_FINGERPRINT_SIZE);
    put_number(text, t->loss.generation);
    put_number(text, (uint64_t)t->loss.measure);
    put_number(text, (uint64_t)(t->loss.error * 4294967296.0));
}

/* Writes what the index says, and the restored bytes, which the reader must give, too. */
static int describe(lmc_memory *text, lmc_reader *reader, const struct restored *r,
                    const uint8_t *fingerprint)
{
    lmc_snapshot_info info;
    if (lmc_reader_get_info(reader, &info) != LMC_OK ||
        memcmp(info.fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) != 0 || info.n_files != r->n)
        return FLAT_DIFFERS;
    put(text, fingerprint, LMC_FINGERPRINT_SIZE);
    put_number(text, r->n);
    for (size_t i = 0; i < r->n; i++) {
        static const uint8_t none[LMC_FINGERPRINT_SIZE];
        const lmc_file *file = lmc_reader_get_file(reader, i);
        const size_t size = r->files[i].size;
        uint8_t *read = (uint8_t *)malloc(size + 1);
        if (!read) abort();
        if (file->size != size || lmc_reader_read_file(reader, i, 0, read, size) != LMC_OK ||
            (size && memcmp(read, r->files[i].data, size) != 0)) {
            free(read);
            return FLAT_DIFFERS;
        }
        put_number(text, (uint64_t)file->kind);
        put_bytes(text, file->path, strlen(file->path));
        put_number(text, (uint64_t)file->has_mode);
        put_number(text, file->mode);
        put_number(text, (uint64_t)file->has_mtime);
        put_number(text, (uint64_t)file->mtime_s);
        put_number(text, file->mtime_ns);
        put_number(text, file->crc);
        put(text, file->n_tensors ? none : file->fingerprint, LMC_FINGERPRINT_SIZE);
        put_bytes(text, read, size);
        free(read);
        put_number(text, file->n_tensors);
        for (size_t k = 0; k < file->n_tensors; k++) put_tensor(text, &file->tensors[k]);
    }
    for (size_t i = 0; i < info.n_metadata; i++) {
        const char *key;
        const void *value;
        size_t size;
        if (lmc_reader_get_metadata(reader, i, &key, &value, &size) != LMC_OK) return FLAT_DIFFERS;
        put_bytes(text, key, strlen(key));
        put_bytes(text, value, size);
    }
    return LMC_OK;
}

/* Returns enum lmc_status or FLAT_DIFFERS. *text: to be freed by flat_free(). b: or NULL. */
int flat_decode(const void *data, size_t size, const struct flat_base *b, int tier, uint8_t **text,
                size_t *text_size)
{
    struct restored *r = (struct restored *)calloc(1, sizeof *r);
    lmc_restore_options options;
    lmc_reader_options reader_options;
    lmc_reader *reader = NULL;
    lmc_memory in, out;
    lmc_stream stream;
    lmc_source source;
    lmc_snapshot_info info;
    int status;
    if (!r) abort();
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    options = LMC_RESTORE_OPTIONS();
    reader_options = LMC_READER_OPTIONS();
    lmc_tier_limit((enum lmc_tier)tier);
    in.data = (uint8_t *)copy(data, size);
    in.size = size;
    stream = lmc_memory_stream(&in);
    options.base = reader_options.base = b ? &b->base : NULL;
    options.max_total_size = reader_options.max_total_size = MAX_TOTAL_SIZE;
    options.user = r;
    options.begin_file = begin_file;
    options.write = write_bytes;
    options.end_file = end_file;
    options.read_back = read_back;
    status = (int)lmc_snapshot_restore(&stream, &info, &options);
    if (status == LMC_OK) {
        source = lmc_memory_source(&in);
        status = lmc_reader_open(&reader, &source, &reader_options) == LMC_OK
                     ? describe(&out, reader, r, info.fingerprint)
                     : FLAT_DIFFERS;
        lmc_reader_free(reader);
    }
    for (size_t i = 0; i < MAX_FILES && (i <= r->n); i++) lmc_memory_free(&r->files[i]);
    free(r);
    free(in.data);
    *text = out.data;
    *text_size = out.size;
    return status;
}

/* Decodes block number 0, of size decoded bytes. After LMC_ERR_CHECKSUM dst has the decoded
 * payload, with any Content_CRC, also with another prediction. */
int flat_decode_block(void *dst, size_t size, const void *block, size_t block_size,
                      const void *prediction)
{
    const size_t ws_size = lmc_block_workspace_size(LMC_MAX_BLOCK_SIZE, 1);
    static void *ws;
    lmc_block_info info;
    enum lmc_status status = lmc_block_parse(block, block_size, 0, &info);
    if (!ws) ws = malloc(ws_size);
    if (!ws) abort();
    if (status != LMC_OK) return (int)status;
    if (info.size != size || info.encoded_size != block_size) return (int)LMC_ERR_CORRUPT;
    return (int)lmc__decode_block(lmc__get_kernels(), (uint8_t *)dst, lmc__no_streaming,
                                  (const uint8_t *)block, &info, (const uint8_t *)prediction, 1, ws,
                                  ws_size);
}

void flat_free(uint8_t *text)
{
    lmc_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.data = text;
    lmc_memory_free(&memory);
}
