#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "codec/dtypes.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/reader.h"
#include "snapshot/stdio.h"

/* Compresses and decompresses whole buffers and files in one call. They make ordinary LMC files
 * that hold one file, and read all such files that have no base. */

/* A sink that writes to the caller's memory, which has a fixed size. */
typedef struct lmc__fixed_sink {
    uint8_t *data;
    size_t size, cap;
} lmc__fixed_sink;

#ifndef LMC_NO_ENCODER
static enum lmc_status lmc__write_fixed(void *user, const void *data, size_t size)
{
    lmc__fixed_sink *const f = (lmc__fixed_sink *)user;
    if (size > f->cap - f->size) return LMC_ERR_DST_TOO_SMALL;
    if (size) memcpy(f->data + f->size, data, size);
    f->size += size;
    return LMC_OK;
}

/* Upper bound of all bytes outside of blocks: header, sections, index without its 8 bytes for each
 * block, trailer. With one nameless tensor they are about 450 bytes. */
#define LMC__ONE_CALL_OVERHEAD 1024u

/* Each block costs 24 bytes for its header and 8 in the index. All blocks but the last have at
 * least 2^17 bytes. */
LMC_API size_t lmc_compress_bound(size_t size)
{
    const size_t extra = (size >> 17) * 32 + 32 + LMC__ONE_CALL_OVERHEAD;
    return size <= SIZE_MAX - extra ? size + extra : SIZE_MAX;
}

/* Writes an LMC file of one nameless file of size bytes, from stream or, if stream is NULL, from
 * src. If the dtype is known, with elements of whole bytes, and the size is a whole number of
 * elements, the file is one nameless tensor: so a reader can tell the dtype. */
LMC__COLD static enum lmc_status lmc__write_one_file(const lmc_sink *sink, uint64_t size,
                                                     enum lmc_dtype dtype, const void *src,
                                                     const lmc_stream *stream,
                                                     const lmc_compress_options *options)
{
    const unsigned bits = lmc_dtype_bits(dtype);
    lmc_writer_options writer_options;
    lmc_writer *writer = NULL;
    lmc_tensor tensor;
    lmc_file file;
    uint64_t shape;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    file.path = "";
    file.size = size;
    if (dtype != LMC_AUTO && bits && bits % 8 == 0 && size % (bits / 8) == 0) {
        memset(&tensor, 0, sizeof tensor);
        shape = size / (bits / 8);
        tensor.name = "";
        tensor.dtype = lmc_dtype_name(dtype);
        tensor.rank = 1;
        tensor.shape = &shape;
        tensor.size = size;
        file.n_tensors = 1;
        file.tensors = &tensor;
    }
    memset(&writer_options, 0, sizeof writer_options);
    writer_options.parallel = options->parallel;
    writer_options.level = options->level;
    writer_options.without = options->without;
    writer_options.progress = options->progress;
    writer_options.user = options->user;
    writer_options.allocator = options->allocator;
    LMC__TRY(lmc_writer_open(&writer, sink, &writer_options));
    status = lmc_writer_begin_file(writer, &file, dtype);
    if (status == LMC_OK)
        status = stream ? lmc_writer_write_stream(writer, stream)
                        : lmc_writer_write(writer, src, (size_t)size);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

LMC__COLD LMC_API enum lmc_status lmc_compress(void *dst, size_t dst_cap, size_t *dst_size,
                                               const void *src, size_t size, enum lmc_dtype dtype,
                                               const lmc_compress_options *options)
{
    lmc_compress_options o;
    lmc__fixed_sink fixed = {(uint8_t *)dst, 0, dst_cap};
    const lmc_sink sink = {lmc__write_fixed, &fixed, {0, 0}};
    if (!dst_size || (!dst && dst_cap) || (!src && size) || (unsigned)dtype >= LMC__DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    LMC__TRY(lmc__write_one_file(&sink, size, dtype, src, NULL, &o));
    *dst_size = fixed.size;
    return LMC_OK;
}
#endif

/* Opens the LMC file at src without a base. *file: its only file, which must be regular. */
LMC__COLD static enum lmc_status lmc__open_one(lmc_reader **reader, const lmc_file **file,
                                               lmc_memory *memory, const void *src, size_t src_size,
                                               const lmc_compress_options *options)
{
    lmc_reader_options reader_options;
    lmc_source source;
    if (!src && src_size) return LMC_ERR_ARGUMENT;
    memset(&reader_options, 0, sizeof reader_options);
    reader_options.parallel = options->parallel;
    reader_options.max_index_size = options->max_index_size;
    reader_options.max_total_size = options->max_total_size;
    reader_options.allocator = options->allocator;
    reader_options.parallel_reads = 1; /* the source is memory */
    memset(memory, 0, sizeof *memory);
    memory->data = (uint8_t *)(uintptr_t)src; /* a source only reads */
    memory->size = src_size;
    source = lmc_memory_source(memory);
    LMC__TRY(lmc_reader_open(reader, &source, &reader_options));
    *file = lmc_reader_get_file(*reader, 0);
    if (!lmc_reader_get_file(*reader, 1) && (*file)->kind == LMC_FILE_REGULAR) return LMC_OK;
    lmc_reader_free(*reader);
    return LMC_ERR_NOT_ONE_FILE;
}

LMC__COLD LMC_API enum lmc_status lmc_decompressed_size(const void *src, size_t src_size,
                                                        uint64_t *size, enum lmc_dtype *dtype,
                                                        const lmc_compress_options *options)
{
    lmc_compress_options o;
    const lmc_file *file;
    lmc_reader *reader;
    lmc_memory memory;
    if (!size) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    LMC__TRY(lmc__open_one(&reader, &file, &memory, src, src_size, &o));
    *size = file->size;
    if (dtype)
        *dtype = file->n_tensors == 1 && file->tensors[0].size == file->size
                     ? lmc_dtype_find(file->tensors[0].dtype)
                     : LMC_AUTO;
    lmc_reader_free(reader);
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_decompress(void *dst, size_t dst_cap, size_t *dst_size,
                                                 const void *src, size_t src_size,
                                                 const lmc_compress_options *options)
{
    lmc_compress_options o;
    const lmc_file *file;
    lmc_reader *reader;
    lmc_memory memory;
    enum lmc_status status = LMC_ERR_DST_TOO_SMALL;
    if (!dst_size || (!dst && dst_cap)) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    LMC__TRY(lmc__open_one(&reader, &file, &memory, src, src_size, &o));
    if (file->size <= dst_cap) {
        reader->coder->progress = o.progress;
        reader->coder->progress_user = o.user;
        status = lmc_reader_read_file(reader, 0, 0, dst, (size_t)file->size);
        if (status == LMC_OK) *dst_size = (size_t)file->size;
    }
    lmc_reader_free(reader);
    return status;
}

#ifndef LMC_NO_STDIO
typedef struct lmc__file_to_file {
    FILE *src, *part;
    enum lmc_dtype dtype; /* for compressing */
    lmc_compress_options options;
} lmc__file_to_file;

/* Makes dst_path from src_path with `convert`. The incomplete file is named dst_path.part. */
LMC__COLD static enum lmc_status lmc__convert_file(const char *dst_path, const char *src_path,
                                                   enum lmc_dtype dtype,
                                                   const lmc_compress_options *options,
                                                   enum lmc_status (*convert)(lmc__file_to_file *f))
{
    lmc__file_to_file f = {NULL, NULL, dtype, LMC_DEFAULTS};
    lmc__buffer name;
    enum lmc_status status;
    if (!dst_path || !src_path || (unsigned)dtype >= LMC__DTYPE_COUNT) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&f.options, allocator, options));
    f.src = fopen(src_path, "rb");
    if (!f.src) return LMC_ERR_READ;
    lmc__init_buffer(&name, f.options.allocator);
    status = lmc__append(&name, dst_path, strlen(dst_path));
    if (status == LMC_OK) status = lmc__append(&name, ".part", sizeof ".part");
    if (status == LMC_OK) {
        const char *const part_path = (const char *)name.data;
        f.part = fopen(part_path, "wb");
        status = f.part ? convert(&f) : LMC_ERR_WRITE;
        if (f.part && fclose(f.part) != 0 && status == LMC_OK) status = LMC_ERR_WRITE;
#ifdef _WIN32 /* rename() does not replace files there; then the part is all there is */
        if (status == LMC_OK && remove(dst_path) == 0) f.part = NULL;
#endif
        if (status == LMC_OK && rename(part_path, dst_path) != 0) status = LMC_ERR_WRITE;
        if (status != LMC_OK && f.part) (void)remove(part_path);
    }
    (void)fclose(f.src);
    lmc__free_buffer(&name);
    return status;
}

#ifndef LMC_NO_ENCODER
static enum lmc_status lmc__compress_stdio(lmc__file_to_file *f)
{
    const lmc_sink sink = lmc_stdio_sink(f->part);
    const lmc_stream stream = lmc_stdio_stream(f->src);
    lmc_source source;
    LMC__TRY(lmc_stdio_source(&source, f->src)); /* tells the size */
    if (lmc__seek_stdio(f->src, 0, SEEK_SET) != 0) return LMC_ERR_READ;
    return lmc__write_one_file(&sink, source.size, f->dtype, NULL, &stream, &f->options);
}

LMC__COLD LMC_API enum lmc_status lmc_compress_file(const char *dst_path, const char *src_path,
                                                    enum lmc_dtype dtype,
                                                    const lmc_compress_options *options)
{
    return lmc__convert_file(dst_path, src_path, dtype, options, lmc__compress_stdio);
}
#endif

static enum lmc_status lmc__write_part(void *user, const void *data, size_t size)
{
    return lmc__write_stdio(((const lmc__file_to_file *)user)->part, data, size);
}

static enum lmc_status lmc__report_part(void *user, uint64_t done)
{
    const lmc_compress_options *const o = &((const lmc__file_to_file *)user)->options;
    return o->progress ? o->progress(o->user, done) : LMC_OK;
}

static enum lmc_status lmc__begin_one_file(void *user, const lmc_file *file, size_t file_number)
{
    (void)user;
    return file_number == 0 && file->kind == LMC_FILE_REGULAR ? LMC_OK : LMC_ERR_NOT_ONE_FILE;
}

static enum lmc_status lmc__decompress_stdio(lmc__file_to_file *f)
{
    const lmc_stream stream = lmc_stdio_stream(f->src);
    lmc_restore_options o;
    memset(&o, 0, sizeof o);
    o.parallel = f->options.parallel;
    o.max_index_size = f->options.max_index_size;
    o.max_total_size = f->options.max_total_size;
    o.begin_file = lmc__begin_one_file;
    o.write = lmc__write_part;
    o.progress = lmc__report_part;
    o.user = f;
    o.allocator = f->options.allocator;
    return lmc_snapshot_restore(&stream, NULL, &o);
}

LMC__COLD LMC_API enum lmc_status lmc_decompress_file(const char *dst_path, const char *src_path,
                                                      const lmc_compress_options *options)
{
    return lmc__convert_file(dst_path, src_path, LMC_AUTO, options, lmc__decompress_stdio);
}
#endif
