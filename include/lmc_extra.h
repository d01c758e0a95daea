/* lmc_extra.h - v1.0.0 - less common functions for LMC files and tensors
 * SPDX-License-Identifier: MIT
 *
 * ABOUT
 *   Threads and file descriptors of POSIX; finding quantisers; changes as indices and values;
 *   copying files from one snapshot to another; files as bases; hashes to sign; where encoded bytes
 *   are.
 *
 * SYNOPSIS
 *       #include "lmc.h"
 *       #include "lmc_extra.h"
 *
 *   wherever it is used; and in the file that defines LMC_IMPLEMENTATION, after lmc.h. It must have
 *   the same version as lmc.h. lmc_read.h or lmc_decode.h may replace lmc.h.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file from the files of src/. Change those, not this one.
 *   interface  extra_api
 *   quantize   fit_sample fit_scales fit_error fit_grid fit_table fit_values fit
 *   tensor     cpus pool changes
 *   snapshot   descriptors requantize copy identify probe in_place match shared reader_sections
 *              reader_places
 */
#ifndef LMC_EXTRA_H
#define LMC_EXTRA_H
#if defined(LMC_READ_H) || defined(LMC_DECODE_H)
#ifndef LMC_NO_ENCODER
#define LMC_NO_ENCODER
#endif
#if defined(LMC_DECODE_H) && !defined(LMC_NO_SNAPSHOT)
#define LMC_NO_SNAPSHOT
#endif
#elif !defined(LMC_H)
#include "lmc.h"
#endif

/* == extra_api.h =============================================================================== */

/* -- configuration --
 * Define these before including lmc_extra.h, the same in every file, on systems that have more than
 * the C library:
 *   LMC_PTHREADS         lmc_pool: threads for lmc_parallel. Link with -pthread
 *   LMC_POSIX            file descriptors as sinks, streams and sources
 *
 * The macros of lmc.h that leave out parts apply to this header, too. */
#ifdef __cplusplus
extern "C" {
#endif

/* -- threads and file descriptors -- */

#ifdef LMC_PTHREADS
/* Workers for a program whose user names no number: the CPUs that the calling thread may use, at
 * least 1, at most 16 (each further worker takes memory, and hardly helps). On Linux these are the
 * CPUs of its affinity, or fewer if its control group or one above has a quota of CPU time (version
 * 1 or 2, rounded up to whole CPUs): a container counts, not the machine. It reads /proc and
 * /sys. */
LMC_API unsigned lmc_default_workers(void);
/* A pool of n_workers - 1 threads (fewer, if the system cannot start so many), and the thread that
 * calls; n_workers 0: lmc_default_workers(). Any number of writers, readers and calls may share it:
 * their waves of blocks then alternate. Callbacks (a sink's write, a stream's read) must not use
 * the same pool: it would wait for itself. Errors: ARGUMENT, MEMORY. */
typedef struct lmc_pool lmc_pool;
LMC_STATUS lmc_pool_open(lmc_pool **pool, unsigned n_workers, const lmc_allocator *allocator);
/* Valid as long as the pool; NULL for NULL. */
LMC_API const lmc_parallel *lmc_pool_parallel(const lmc_pool *pool);
/* Call it when nothing uses the pool any more. NULL allowed. */
LMC_API void lmc_pool_free(lmc_pool *pool);
#endif

#if defined(LMC_POSIX) && !defined(LMC_NO_SNAPSHOT)
/* Like lmc_stdio_sink, lmc_stdio_stream and lmc_stdio_source, for file descriptors. The caller
 * closes them. A source uses pread, so several threads may read it at once. Sinks and streams wait
 * for a non-blocking descriptor. With -std=c99 define _POSIX_C_SOURCE as 200809L, too. */
LMC_API lmc_sink lmc_fd_sink(int fd);
LMC_API lmc_stream lmc_fd_stream(int fd);
LMC_STATUS lmc_fd_source(lmc_source *source, int fd);
#endif

/* -- what has changed -- */

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* Elements that differ: ascending indices, and new values, for receivers that patch tensors. */
typedef struct lmc_changes {
    uint32_t *indices;
    void *values; /* of any alignment */
    size_t cap;   /* elements that fit in both arrays, at least one */
    size_t n;     /* elements in the arrays; more are appended */
} lmc_changes;
/* Compares n elements of `width` bytes (1, 2, 4, 8) at src with those at base, bit by bit: -0
 * differs from 0, and a NaN equals the same NaN. The first element at src has the index `first`, as
 * an array may come in parts; first + n is at most 2^32. If there is no room for an element that
 * differs, the call ends before that element, and *n_compared is less than n: take the changes, set
 * changes->n to 0, and call again for the rest. If few differ, it takes the time of reading both
 * arrays. Errors: ARGUMENT. */
LMC_STATUS lmc_changes_add(lmc_changes *changes, const void *src, const void *base, size_t n,
                           unsigned width, uint32_t first, size_t *n_compared);
#endif

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* -- how a tensor is quantised -- */

enum lmc_role LMC__INT {
    LMC_ROLE_OTHER = 0,
    LMC_ROLE_FIRST_MOMENT = 1,
    LMC_ROLE_SECOND_MOMENT = 2
};

typedef struct lmc_quantizer_options {
    size_t struct_size;   /* as in lmc_block_options */
    enum lmc_dtype dtype; /* F32 or BF16; others stay as they are */
    enum lmc_role role;
    /* One of three: bits; n_codes; or, if both are 0, measure and bound. */
    unsigned bits;            /* 4 .. 8: the finest grid that takes less, on average, for an
                                    element that is not zero */
    unsigned n_codes;         /* 2 .. 256: a codebook of at most so many values, by k-means */
    enum lmc_measure measure; /* with bound: the coarsest grid that keeps to the bound */
    double bound;             /* largest error by that measure: above 0, below 1 */
    uint64_t group;           /* neighbours with one scale: the elements of a row; 0: 256 */
    double eps;               /* of the optimizer, not negative; 0: 1e-8 */
    unsigned generation;      /* of the elements, 0 .. 254: 0, unless they were quantised before */
    const lmc_source *second_elements; /* for a first moment: the second moment of the same
                                          parameters; or NULL */
    const lmc_quantizer *second;       /* of that second moment; NULL: it is not quantised */
    const lmc_allocator *allocator;    /* or NULL */
} lmc_quantizer_options;
LMC__INITIALIZER(lmc_quantizer_options, LMC_QUANTIZER_OPTIONS, (void), )

/* Finds how to quantise a tensor. On LMC_OK there always is a quantiser. It keeps the tensor as it
 * is (see info.reason) if quantising would not make it a tenth smaller, if no grid keeps to the
 * bound, or if more than 1 % of the elements cannot be quantised. Reads the elements once, and
 * samples of up to 4 Mi elements a few times. Memory: 1 MiB (2 MiB for a codebook); 2 bytes for
 * each group, and 64 KiB for a codebook, remain. Errors: ARGUMENT, MEMORY, those of read_at.
 *
 * A codebook is for the whole tensor; each value is multiplied by the group's scale, so a group as
 * large as the tensor gives a codebook without scales. Zeros stay zero, and if they are more than
 * one in 4 * n_codes elements, zero is one of the values (rarer zeros come beside these). If the
 * elements have no more values than n_codes, nothing is lost: the codebook has exactly these
 * (loss.generation is that of options), or the tensor is kept as it is, if its values differ in
 * more than 16 bits of the float. */
LMC_STATUS lmc_quantizer_fit(lmc_quantizer **quantizer, const lmc_source *elements,
                             const lmc_quantizer_options *options);
#endif

#ifndef LMC_NO_SNAPSHOT
#ifndef LMC_NO_ENCODER
/* -- what is written -- */

/* Hints for a tensor of the file that begins next. 0 also for a file without tensors, whose name is
 * its path, and which then shares nothing (group_files). *hints is copied (NULL: no hints); twin
 * and base_parts must be valid until the file ends. Any order; the last hints for a tensor count. A
 * number that the file lacks is an error when it begins (ARGUMENT). lmc_writer_add_arrays, which
 * sorts, refuses hints. Errors: ARGUMENT, MEMORY. */
LMC_STATUS lmc_writer_add_hints(lmc_writer *writer, size_t tensor_number,
                                const lmc_tensor_hints *hints);

/* Copies a whole file of the reader to the writer, with its tensors: to extract files of a
 * snapshot, or to change its base or level. Quantised tensors stay quantised if the writer's
 * may_quantize is set; but first moments that were quantised as updates become floats. Hints that
 * were added hold here, too; a quantizer in them is used in place of the old one. Memory: 4 MiB.
 * Errors: ARGUMENT, CORRUPT, those of reading and writing; the writer cannot be used then. */
LMC_STATUS lmc_writer_copy_file(lmc_writer *writer, lmc_reader *reader, size_t file_number);
/* Copies extension records, which later versions may write (spec 4.5), when all content of the
 * reader is coded again: of the file, before it is begun; of the index, if file_number is n_files,
 * before finishing. Leaves out what is only about the old LMC file, or about several files that
 * share a section. *n_copied: the others. If all calls together copy fewer than info.n_records, say
 * so to the user. Errors: ARGUMENT, MEMORY. */
LMC_STATUS lmc_writer_copy_records(lmc_writer *writer, const lmc_reader *reader, size_t file_number,
                                   uint64_t *n_copied);
#ifndef LMC_NO_QUANTIZE
/* Finds the quantiser of a tensor with a loss.generation above 0, to code the tensor again without
 * further loss. On LMC_OK there always is one, which may keep the tensor as it is. Reads all blocks
 * of the tensor. *twin: where the second moment is, if the quantiser needs it; with NULL, such a
 * quantiser keeps the tensor as it is. Errors: ARGUMENT, those of reading. */
LMC_STATUS lmc_quantizer_recover(lmc_quantizer **quantizer, lmc_reader *reader, size_t file_number,
                                 const lmc_tensor *tensor, lmc_twin *twin,
                                 const lmc_allocator *allocator);
#endif
#endif /* LMC_NO_ENCODER */

/* -- bases -- */

/* Reads a file of file->size bytes from stream, and sets the file's crc and fingerprint and the
 * fingerprints of its tensors (tensors: the same array as file->tensors). Errors: ARGUMENT, READ,
 * TRUNCATED, MEMORY. */
LMC_STATUS lmc_file_identify(lmc_file *file, lmc_tensor *tensors, const lmc_stream *stream,
                             const lmc_parallel *parallel, const lmc_allocator *allocator);
/* Fingerprint of a base. Errors: MEMORY. */
LMC_STATUS lmc_base_identify(const lmc_base *base, uint8_t fingerprint[LMC_FINGERPRINT_SIZE],
                             const lmc_allocator *allocator);
/* *can: 1 if the snapshot can be restored over its base: both have files of the same paths, kinds
 * and sizes, and each element has the same place as the base's element that predicts it. Without a
 * base the reader checks only its own snapshot. Errors: ARGUMENT, MEMORY. */
LMC_STATUS lmc_reader_can_restore_in_place(const lmc_reader *reader, int *can);

/* What predicts a tensor, or a file without tensors. */
typedef struct lmc_match {
    size_t file_number;       /* SIZE_MAX: nothing does, and all else is 0 */
    const lmc_tensor *tensor; /* of the base; NULL: a file without tensors; or is_own */
    uint64_t offset;          /* first byte within that tensor, or within the file */
    int is_own;               /* 1: a file of the same snapshot (a twin); 0: of the base */
    uint64_t reserved[2];     /* zero; see "reserved words" above */
} lmc_match;
#ifndef LMC_NO_ENCODER
/* What a writer with this base would code each file against, without reading any: one match for
 * each tensor of each file, in order; one for a file without tensors. Hints are not considered. Of
 * files only n_files, get_file and user are used; a size may be LMC_UNKNOWN_SIZE. Errors: ARGUMENT,
 * MEMORY. */
LMC_STATUS lmc_base_match(const lmc_base *base, const lmc_base *files, lmc_match *matches,
                          const lmc_allocator *allocator);
#endif
/* What predicts the byte at offset of a file; a block may still be coded without its prediction.
 * Errors: ARGUMENT (also at the end of the file), BASE_MISSING (of a delta without its base), LOST
 * (of a damaged file). */
LMC_STATUS lmc_reader_find_match(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                 lmc_match *match);

/* -- what a file is, without opening it -- */

/* Reads both ends of an LMC file, for lists and chains of snapshots: what lmc_header_parse finds,
 * the fingerprint, and sizes. Calls read_at once or twice (three times if the index is damaged),
 * for some 4 KiB; no allocation; time O(1). To probe bytes in memory: lmc_memory_source.
 *
 * The fingerprint is *unchecked*: header and trailer have CRCs, but the index, which has the
 * fingerprint, is not read. So use it to choose a file, and let a reader check that file. As for a
 * reader, the header is the copy in the index, unless that is damaged.
 *
 * Errors, after which info has what was found before, and 0 for the rest: ARGUMENT, LIMIT, those of
 * read_at; and of the file:
 *   NOT_LMC              does not begin as an LMC file. (index_size not 0: but ends as one)
 *   TRUNCATED            begins as an LMC file, but has no trailer: the writer was interrupted or
 *                        is still writing, the file was cut, or something follows its end
 *   VERSION, UNSUPPORTED is of a newer version; info as for lmc_header_parse
 *   CHECKSUM, CORRUPT    header or trailer are damaged */
LMC_STATUS lmc_snapshot_probe(const lmc_source *source, lmc_snapshot_info *info);

/* Where the parts of an LMC file are; 0: not known. */
typedef struct lmc_snapshot_extent {
    uint64_t runs_offset; /* the first RUN: the header, and sections of files, are before it */
    uint64_t end;         /* behind the trailer: the size of the LMC file */
    uint64_t wanted;      /* the size of source with which more would be known */
    uint64_t reserved[4]; /* zero; see "reserved words" above */
} lmc_snapshot_extent;
/* Goes through an LMC file from its beginning, by the sizes in the headers of its sections and
 * blocks, to find where it ends if something follows it; or how much of a pipe must be read until
 * its files are known. *Unchecked*, except for the CRCs of these headers. One call of read_at for
 * each section and block. Errors: ARGUMENT, LIMIT, those of read_at and lmc_header_parse, TRUNCATED
 * (the source ends early: extent->wanted), CHECKSUM, CORRUPT, UNSUPPORTED. After an error extent
 * has what was found before. */
LMC_STATUS lmc_snapshot_measure(const lmc_source *source, lmc_snapshot_extent *extent);

/* -- one snapshot, many threads -- */

/* Opens another reader of the snapshot of `from`, for another thread. It shares the index and the
 * names of `from` (their lmc_file and lmc_tensor are the same), and its source and options. Buffers
 * are its own. If the base is a reader (lmc_reader_base), its base is such a reader, too, along
 * the whole chain. Nothing is read.
 *
 * During the call no other thread may use `from`; afterwards each reader serves its own thread.
 * `from` and its bases must outlive the reader; readers may be freed in any order before that. The
 * source's read_at, a base that is not a reader, a parallel and an allocator are called by all
 * these threads at once: sources of memory and descriptors, and lmc_pool, allow that. Errors:
 * ARGUMENT (also for a reader of an lmc_salvage, or with such a base), MEMORY. */
LMC_STATUS lmc_reader_open_shared(lmc_reader **reader, lmc_reader *from);

/* -- what else a reader can tell -- */

/* The SHA-256 of all of a snapshot: files, tensors, bytes, modes, times, metadata; not of how they
 * are coded (spec/hash.md). Sign this hash. If it is the signed one, all that this reader says of
 * files, tensors and metadata was signed; compare bytes that you read with
 * lmc_reader_read_content_hash. LMC_ERR_NOT_FOUND: there are no hashes (content_hashes).
 * LMC_ERR_CORRUPT: the hash is not this snapshot's. */
LMC_STATUS lmc_reader_read_snapshot_hash(lmc_reader *reader, uint8_t hash[32]);
/* The SHA-256 of a tensor's bytes (NULL: of all bytes of the file that belong to no tensor), as the
 * snapshot stores it. No content is read or compared. Errors as above. */
LMC_STATUS lmc_reader_read_content_hash(lmc_reader *reader, size_t file_number,
                                        const lmc_tensor *tensor, uint8_t hash[32]);
/* Ancillary section i, in the order of the LMC file: its kind, and the size of its body.
 * LMC_ERR_NOT_FOUND if there is none. */
LMC_STATUS lmc_reader_get_section(const lmc_reader *reader, size_t i, char kind[5], uint64_t *size);
/* Copies the body to dst. Errors: DST_TOO_SMALL, CHECKSUM, CORRUPT, those of reading. */
LMC_STATUS lmc_reader_read_section(lmc_reader *reader, size_t i, void *dst, size_t dst_cap);
/* *encoded_size: encoded bytes of [offset, offset + size) of a file, for listings. Of each run
 * (spec 4.2) it counts a part in proportion to the bytes. Errors: ARGUMENT, LOST (a damaged
 * file). */
LMC_STATUS lmc_reader_encoded_size(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                   uint64_t size, uint64_t *encoded_size);
/* Where those blocks are in the LMC file: *encoded_size bytes from *encoded_offset on, from the
 * first block to the end of the last. So one request can fetch all that lmc_reader_read_file will
 * read, except predictions. 0 and 0 for no bytes. Errors: as above. */
LMC_STATUS lmc_reader_encoded_range(lmc_reader *reader, size_t file_number, uint64_t offset,
                                    uint64_t size, uint64_t *encoded_offset,
                                    uint64_t *encoded_size);
#endif /* LMC_NO_SNAPSHOT */

#ifdef __cplusplus
}
#endif

#endif /* LMC_EXTRA_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__EXTRA_IMPLEMENTED)
#define LMC__EXTRA_IMPLEMENTED

/* == quantize/fit_sample.h ===================================================================== */

/* The state of a fit, its samples, and functions for fit.h and snapshot/requantize.h.
 *
 * Each pass reads elements by a callback, because a tensor may be larger than memory. Most passes
 * read samples: chunks of 16 Ki elements at equal distances, the same on every machine. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Keeps the tensor as it is. Returns LMC_OK, as this is not an error. reason: a static string. */
static enum lmc_status lmc__keep_lossless(lmc_quantizer *q, const char *reason)
{
    q->info.is_lossless = 1;
    q->info.reason = reason;
    return LMC_OK;
}

/* The most points of a grid. Their symbols (with signs, two for each) are below LMC__EXCEPTION. A
 * logarithmic grid only needs to cover all magnitudes, whose bits as an integer are below 2^31.
 *
 *     symbols   0: zero | 1 .. n_points, or 2 n_points with signs | ... | 65535: LMC__EXCEPTION */
static uint32_t lmc__max_points(const lmc__grid *grid)
{
    const uint32_t n = grid->is_signed ? (LMC__EXCEPTION - 1) / 2 : LMC__EXCEPTION - 1;
    return grid->is_log ? (uint32_t)lmc__min(n, 0x7FFFFFFFu / grid->step) : n;
}

/* Each symbol gets the code of the nearest symbol in the table (of two, of the lower symbol), or
 * code 0, if `zero` is at least as near: a symbol that means the same as symbol 0; or 0. Symbols
 * that are not in the table need codes even if all elements are its values: BF16 may have been
 * rounded to a neighbour. */
LMC__COLD static enum lmc_status lmc__set_codes(lmc_quantizer *q, uint32_t zero)
{
    lmc__quant_params *const p = &q->params;
    uint32_t s, distance, to_zero;
    unsigned code = 1;
    p->codes = (uint8_t *)lmc__realloc(q->allocator, NULL, 0, LMC__SYMBOLS);
    if (!p->codes) return LMC_ERR_MEMORY;
    p->codes[0] = 0;
    for (s = 1; s < LMC__SYMBOLS; s++) {
        while (code < p->table_size && 2 * s > (uint32_t)p->table[code] + p->table[code + 1])
            code++;
        distance = s > p->table[code] ? s - p->table[code] : p->table[code] - s;
        to_zero = s > zero ? s - zero : zero - s;
        p->codes[s] = (uint8_t)(zero && to_zero <= distance ? 0 : code);
    }
    return LMC_OK;
}

#define LMC__FIT_CHUNK 16384u /* elements that are read at once */
/* The least elements in a sample to find a grid (SMALL), and in one to measure its loss (LARGE). A
 * sample has less than twice as many. A tensor with less than twice as many is its own sample. */
#define LMC__SMALL_SAMPLE ((uint64_t)1 << 17)
#define LMC__LARGE_SAMPLE ((uint64_t)1 << 21)

typedef uint32_t lmc__q32; /* see fit_error.h */

/* 0.5 MiB, allocated only during a fit. */
typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_source elements;
    lmc_quantizer *q; /* the result, which is not complete yet */
    /* The current chunk: elements and, with is_predicted, their second moments, as read (chunk,
     * second) and as F32 (x, s). BF16 are converted to F32 in wide and wide_second. */
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK];
    uint8_t wide[4 * LMC__FIT_CHUNK], wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s;
    /* The last measured grid (fit_grid.h): elements of the sample, how many are +0, and the count
     * of each symbol; first and last symbol that the grid will have; why it cannot be used, or
     * NULL; bits per element, and per element that is not zero, times 2^16; loss. */
    uint32_t n, n_zero, counts[LMC__SYMBOLS], first, last;
    const char *obstacle;
    uint64_t bits, bits_of_others;
    lmc__q32 error;
} lmc__fit;

/* Reads elements [first, first + n), and their second moments as the decoder will have them: these
 * may be quantised, too. */
static enum lmc_status lmc__read_chunk(lmc__fit *f, uint64_t first, size_t n)
{
    const lmc_quantizer_options *const o = f->options;
    const lmc__quant_params *const q = &f->q->params;
    const size_t size = n * q->width;
    LMC__TRY(f->elements.read_at(f->elements.user, first * q->width, f->chunk, size));
    f->x = lmc__widen(f->wide, f->chunk, n, q->width);
    f->s = NULL;
    if (!q->is_predicted) return LMC_OK;
    LMC__TRY(
        o->second_elements->read_at(o->second_elements->user, first * q->width, f->second, size));
    if (o->second)
        LMC__TRY(lmc_quantizer_apply(o->second, first * q->width, f->second, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* A sample is the chunks that begin at elements 0, stride, 2 * stride, ... A stride is a whole
 * number of chunks. The last chunk may be shorter.
 *
 *     elements    |####|    |    |####|    |    |####|    |    |####
 *                  chunk         stride = 3 chunks */
static uint64_t lmc__get_stride(const lmc_quantizer *q, uint64_t sample)
{
    return q->n < sample ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / sample);
}

static size_t lmc__get_chunk_size(const lmc_quantizer *q, uint64_t at)
{
    return (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
}

/* == quantize/fit_scales.h ===================================================================== */

/* Finds the scale of each element's grid (spec/quantised.md; quant_params.h), and makes grids
 * coarser or finer.
 *
 * Elements have similar magnitudes within a group, such as a row of a matrix, but groups may differ
 * by orders of magnitude. Each group has its own scale, found in one pass over the whole tensor.
 *
 * Elements with a prediction have a scale that follows from it: about the root of the second
 * moment, times 2^bias. One bias and one floor (which replaces eps) are found for all elements.
 *
 * The bits of floats, read as integers, are used as logarithms: they grow by 2^23, an LMC__OCTAVE,
 * from one power of two to the next. A difference of bits is a ratio of floats, within 6 %. */

/* Difference of a float's bits from one power of two to the next: the unit of bias and scales. */
#define LMC__OCTAVE ((int32_t)1 << 23)
#define LMC__MAX_BIAS ((int32_t)1 << 30) /* limit of the format, positive and negative */
/* Scales of groups are upper halves of floats: their unit is a 128th of an octave. */
#define LMC__SCALE_STEP ((int32_t)1 << 16)
#define LMC__SCALE_OF_ONE 0x3F80u /* of 1.0: for groups without numbers */

static int32_t lmc__clamp(int64_t v, int32_t low, int32_t high)
{
    return (int32_t)(v < low ? low : v > high ? high : v);
}

static uint16_t lmc__clamp_scale(const lmc__grid *grid, int32_t scale)
{
    return (uint16_t)lmc__clamp(
        scale, (int32_t)(LMC__MIN_SCALE >> 16),
        (int32_t)((grid->is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16));
}

static int32_t lmc__to_logarithm(float v)
{
    int32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}

static enum lmc_status lmc__alloc_scales(lmc_quantizer *q)
{
    const uint64_t group_size = q->params.group_size;
    if (q->n / group_size > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    q->n_groups = (size_t)((q->n + group_size - 1) / group_size);
    q->params.scales =
        (uint16_t *)lmc__realloc(q->allocator, NULL, 0, q->n_groups * sizeof q->params.scales[0]);
    return q->params.scales ? LMC_OK : LMC_ERR_MEMORY;
}

/* Finds the scale of each group from the mean of the bits of its elements' magnitudes: about their
 * geometric mean M, which one very large element hardly changes. Zeros and subnormals are left out;
 * a group that has only such elements gets the least scale.
 *
 * A linear grid gets the scale M * 2^-9: its 65,534 points then reach from M / 512 to 64 M, on both
 * sides of zero. A logarithmic grid has M in its middle.
 *
 * The sums are of bits >> 14 (the kernel sum_magnitudes), so that sums of 32,768 elements fit in 32
 * bits; mean >> 2 is the upper half of a float. A group may continue in the next chunk. */
static enum lmc_status lmc__fit_scales(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const uint64_t group_size = q->params.group_size;
    const int32_t down = q->params.grid.is_log ? 0 : 9 * (LMC__OCTAVE / LMC__SCALE_STEP);
    uint64_t at, sum = 0, count = 0;
    size_t n;
    LMC__TRY(lmc__alloc_scales(q));
    for (at = 0; at < q->n; at += n) {
        size_t i, part;
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const uint64_t group = (at + i) / group_size,
                           end = lmc__min64((group + 1) * group_size, q->n);
            uint32_t normal;
            part = (size_t)lmc__min64(n - i, end - at - i);
            sum += f->k->sum_magnitudes(f->x + 4 * i, part, &normal);
            count += normal;
            /* The group ends here, not only the chunk. */
            if (at + i + part == end) {
                const int32_t mean = count ? (int32_t)(sum / count) >> 2 : 0;
                q->params.scales[group] = lmc__clamp_scale(&q->params.grid, mean - down);
                sum = count = 0;
            }
        }
    }
    return LMC_OK;
}

/* If the second moment v is less than eps^2, the update m / (sqrt(v) + eps) is taken as m / eps:
 * the floor of v is eps^2. As a logarithm, eps^2 is twice eps: twice the difference between the
 * bits of eps and those of 1. */
static uint32_t lmc__get_floor(const lmc_quantizer_options *options)
{
    const float eps = (float)(options->eps > 0 ? options->eps : 1e-8);
    return (uint32_t)lmc__clamp(2 * (int64_t)lmc__to_logarithm(eps) - 0x3F800000, 0, 0x7F800000);
}

/* Sets the floor, and the bias: with it the sample's largest update is 2^14 scales, half of the
 * grid's range. If a few updates are far larger than all others, they become exceptions: their
 * second moments may have been lost.
 *
 * With bits as logarithms: let v be the bits of an element and p those of its second moment, at
 * least the floor. The update is v - p / 2, and the scale p / 2 + bias. So the update in scales is
 * 2^((v - p / 2 - bias) / 2^23), and bias is the largest v - p / 2, less 14 octaves. */
static enum lmc_status lmc__fit_bias(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__grid *const grid = &q->params.grid;
    const uint64_t stride = lmc__get_stride(q, LMC__LARGE_SAMPLE);
    /* largest: update, as a difference of bits, from -2^31 to 2^31; octaves: number of updates in
     * each octave from 2^-256 on. */
    int64_t largest = INT64_MIN / 2;
    uint32_t octaves[512] = {0}, octave = 512, above = 0, total = 0;
    uint64_t at;
    size_t i;
    grid->floor = lmc__get_floor(f->options);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i++) {
            const uint32_t v = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF,
                           p = lmc__load32(f->s + 4 * i) & 0x7FFFFFFF;
            const int64_t ratio = (int64_t)v - (int64_t)((p > grid->floor ? p : grid->floor) >> 1);
            if (!lmc__is_normal(v) || p > 0x7F800000) continue;
            if (ratio > largest) largest = ratio;
            octaves[(ratio >> 23) + 256]++;
            total++;
        }
    }
    /* `octave`: the highest octave such that more than one element in 8192 is in it or above it.
     * Updates up to 16 times its end count as normal. */
    while (octave > 0 && above <= total / 8192) above += octaves[--octave];
    if (largest > ((int64_t)octave - 256 + 5) * LMC__OCTAVE)
        largest = ((int64_t)octave - 256 + 5) * LMC__OCTAVE;
    largest -= 14 * (int64_t)LMC__OCTAVE;
    grid->bias = lmc__clamp(largest, -LMC__MAX_BIAS, LMC__MAX_BIAS);
    return grid->bias == largest ? LMC_OK : lmc__keep_lossless(q, "no update is a normal number");
}

/* Gives the grid all possible points, the same number on both sides of q = 0. */
static void lmc__reset_grid(lmc__grid *grid)
{
    grid->n_points = lmc__max_points(grid);
    grid->min = -(int32_t)(grid->n_points / 2);
}

/* Makes the grid coarser by a factor of about 2^(by / LMC__OCTAVE); finer if `by` is negative. A
 * logarithmic grid gets another step, and all points again. Else the bias changes; or the scales
 * change, by multiples of LMC__SCALE_STEP. All stay within the format's limits. */
static void lmc__coarsen(lmc_quantizer *q, int32_t by)
{
    lmc__grid *const grid = &q->params.grid;
    size_t i;
    if (grid->is_log) {
        const int32_t bits = lmc__to_logarithm((float)grid->step) + by;
        float step;
        memcpy(&step, &bits, 4);
        grid->step = step < 16777216.0f ? (uint32_t)step : 1u << 24;
        lmc__reset_grid(grid);
    } else if (q->params.is_predicted)
        grid->bias = lmc__clamp((int64_t)grid->bias + by, -LMC__MAX_BIAS, LMC__MAX_BIAS);
    else
        for (i = 0; i < q->n_groups; i++)
            q->params.scales[i] =
                lmc__clamp_scale(grid, q->params.scales[i] + by / LMC__SCALE_STEP);
}

/* == quantize/fit_error.h ====================================================================== */

/* Measures the error of quantising, in integers, because every machine must find the same grid.
 *
 * An error is a fraction of 1 in units of 2^-32 (lmc__q32). For each measure it is
 *
 *   RELATIVE  the largest change of an element, divided by the element
 *   NMSE      the sum of squared changes, divided by the sum of squares
 *   UPDATE    the root of the NMSE of updates m / (sqrt(v) + eps)
 *
 * With a linear grid, the sample is quantised, restored and compared (lmc__add_losses). With a
 * logarithmic grid, changes are in proportion to the elements, so the error follows from the step
 * (lmc__log_error). */

#define LMC__Q32_ONE 4294967296.0
#define LMC__Q32_MAX UINT32_MAX /* stands for all larger errors, too */

/* The root of v, in the same units: sqrt(v * 2^32), rounded down. The root is found bit by bit from
 * the top: a bit is set if the square then is at most v * 2^32. */
static lmc__q32 lmc__root_q32(lmc__q32 v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= (uint64_t)v << 32) root |= bit;
    return root;
}

/* The caller's bound; 1 % less for measures that are estimated from samples. */
static lmc__q32 lmc__get_bound(const lmc_quantizer_options *options)
{
    const lmc__q32 bound = (lmc__q32)(options->bound * LMC__Q32_ONE);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* The step of a logarithmic grid is in proportion to the error (of NMSE, to its root).
 *
 * RELATIVE holds for each element. The bits of an element and of its point, as integers, differ by
 * at most d, half a step, and a step is at most 2^24. If both are in one octave, [2^e, 2^(e + 1)),
 * one unit is 2^(e - 23), so change / element is at most d / 2^23. If the point is above 2^(e + 1),
 * and the element a units below 2^(e + 1), the d - a units above it count double: the change is
 * 2^(e - 23) (2 d - a), and the element 2^(e - 23) (2^24 - a). Their ratio is at most d / 2^23,
 * too, as d <= 2^23. The limits of spec/quantised.md only move points towards elements, and steps
 * for BF16 are whole BF16. So a step of `s` octaves makes a change of at most s / 2.
 *
 * The other measures come from a mean square. An error that is uniform within one step has the mean
 * square 1/12. A float x = 2^e * m, 1 <= m < 2, changes by 2^e times the error in octaves: relative
 * to x, by the error divided by m. If the logarithms of elements are uniform, the mean of 1 / m^2
 * is the integral of 1 / (m^3 ln 2) from 1 to 2: 3 / (8 ln 2) = 0.541. So the change is s *
 * sqrt(0.541 / 12) = s / 4.7097. An update changes by half of that: it is divided by a root. */
static uint32_t lmc__log_step(lmc__q32 bound, enum lmc_measure measure)
{
    uint64_t octaves = measure == LMC_MEASURE_NMSE ? lmc__root_q32(bound) : 2 * (uint64_t)bound;
    if (measure != LMC_MEASURE_RELATIVE) octaves = octaves * 4709 / 1000;
    return (uint32_t)lmc__min64(octaves >> 9, 1u << 24); /* from 2^32 to 2^23 units for an octave */
}

static lmc__q32 lmc__log_error(uint32_t step, enum lmc_measure measure)
{
    uint64_t error = (uint64_t)step << 9;
    if (measure != LMC_MEASURE_RELATIVE) error = error * 1000 / 4709;
    error = measure == LMC_MEASURE_NMSE ? error * error >> 32 : error / 2;
    return (lmc__q32)lmc__min64(error, LMC__Q32_MAX);
}

/* A sum of squares of up to 2^22 elements, as an integer, so that the order does not matter. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;

LMC__INLINE void lmc__add_wide(lmc__wide_sum *sum, uint64_t v)
{
    sum->low += v;
    sum->high += sum->low < v;
}

/* a / b, at most LMC__Q32_MAX. Both are halved until a << 32 fits in 64 bits. */
static lmc__q32 lmc__fraction(lmc__wide_sum a, lmc__wide_sum b)
{
    while (a.high | b.high | a.low >> 32) {
        a.low = a.low >> 1 | a.high << 63;
        b.low = b.low >> 1 | b.high << 63;
        a.high >>= 1;
        b.high >>= 1;
    }
    return b.low == 0 ? LMC__Q32_MAX : (lmc__q32)lmc__min64((a.low << 32) / b.low, LMC__Q32_MAX);
}

/* 2^exponent, for -1022 .. 1023, without ldexp, which needs the mathematical library. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* The square of v * weight / 2^24, rounded towards zero. */
LMC__INLINE uint64_t lmc__square(double v, uint32_t weight)
{
    const int64_t whole = (int64_t)v;
    const uint64_t weighted = (uint64_t)(whole < 0 ? -whole : whole) * weight >> 24;
    return weighted * weighted;
}

/* Sums of squares of losses and of elements, in the same unit, because only their ratio counts. */
typedef struct lmc__losses {
    lmc__wide_sum lost, all;
    double unit; /* elements of groups times this are integers */
} lmc__losses;

/* The unit for elements of groups: at most 2^-12 of the largest scale. Elements are below 2^15
 * scales, so below 2^27 units. */
static lmc__losses lmc__begin_losses(const lmc_quantizer *q)
{
    lmc__losses losses = {{0, 0}, {0, 0}, 0};
    uint16_t largest = (uint16_t)(LMC__MIN_SCALE >> 16);
    size_t i;
    for (i = 0; i < q->n_groups; i++)
        if (q->params.scales[i] > largest) largest = q->params.scales[i];
    losses.unit = lmc__power(11 + 127 - (largest >> 7));
    return losses;
}

/* Adds the losses of a strip of the current chunk: n elements from element `begin` on, which were
 * restored to y. Exceptions and zeros lose nothing, and are left out of both sums: one infinity
 * would hide all other elements.
 *
 * An update is measured in its scale, which is within 6 % of the update's divisor: first in units
 * of 2^-20 of the scale's power of two, then divided by twice its mantissa of 8 bits, by a
 * reciprocal of 24 bits. In the resulting units of 2^-12 scales, at most 2^15 scales have 27 bits:
 * the squares of a strip fit in 64 bits.
 *
 * Units are powers of two, so only the conversions to integers round, towards zero. The difference
 * of the floats is exact in a double: if w is not zero, v is at least half a scale, and with 2^e <=
 * scale < 2^(e + 1) both are multiples of 2^(e - 24) and less than 2^(e + 16): 40 bits of 53. */
static void lmc__add_losses(const lmc__fit *f, size_t begin, size_t n, const uint16_t *symbols,
                            const uint8_t *y, lmc__losses *losses)
{
    const lmc__quant_params *const q = &f->q->params;
    double unit = losses->unit;
    uint32_t weight = 1u << 24;
    uint64_t lost = 0, all = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t v_bits = lmc__load32(f->x + 4 * (begin + i)),
                       w_bits = lmc__load32(y + 4 * i);
        float v, w;
        if (symbols[i] == LMC__EXCEPTION || v_bits == 0) continue;
        if (q->is_predicted) {
            const uint32_t scale =
                lmc__predicted_scale(lmc__load32(f->s + 4 * (begin + i)), &q->grid);
            unit = lmc__power(20 + 127 - (int)(scale >> 23));
            weight = (1u << 24) / (2 * (0x80 | (scale >> 16 & 0x7F)));
        }
        memcpy(&v, &v_bits, 4);
        memcpy(&w, &w_bits, 4);
        lost += lmc__square(((double)v - (double)w) * unit, weight);
        all += lmc__square((double)v * unit, weight);
    }
    lmc__add_wide(&losses->lost, lost);
    lmc__add_wide(&losses->all, all);
}

static lmc__q32 lmc__get_error(const lmc__losses *losses, enum lmc_measure measure)
{
    const lmc__q32 error = lmc__fraction(losses->lost, losses->all);
    return measure == LMC_MEASURE_UPDATE ? lmc__root_q32(error) : error;
}

/* == quantize/fit_grid.h ======================================================================= */

/* Searches for the coarsest grid whose error is within a bound, or the finest grid within a size.
 *
 * Each grid is measured on a sample, which gives its error and its size. A grid that is coarser by
 * one octave doubles errors (NMSE: four times), and saves one bit for each element. So each
 * measurement tells which grid should meet the limit exactly; that grid is tried next. */

/* The most grids that are measured; for a bound, only the first LMC__MAX_COARSER trials may make
 * the grid coarser. If no grid is within the bound, the tensor is kept without loss. */
#define LMC__MAX_MEASURES 16u
#define LMC__MAX_COARSER 4u

/* An encoded scale takes about 12 bits: less than 1 bit per element in a group of 16, less than
 * 1/20 bit in a group of 256. */
#define LMC__SCALE_BITS 12u

/* If bits are given, the grid gets 11/32 bit less: headers and codes of whole bits need that. */
#define LMC__SPARE_BITS ((11u << 16) / 32)

static uint64_t lmc__bits_of_scales(const lmc__quant_params *p)
{
    return p->is_predicted ? 0 : (LMC__SCALE_BITS << 16) / p->group_size;
}

/* Estimates the size of the sample's symbols. The grid will begin and end with the sample's first
 * and last point. If the largest number then has more than 8 bits, the low_bits lowest are cut off,
 * so that 8 remain.
 *
 *     symbols          1 ......... first ....... last ......... n_points
 *     numbers                        1 .......... last - first + 1
 *     High, Low                    number >> low_bits, the low_bits lowest
 *
 * The point q = 0 stays in the grid, as min must be at most 0. The size is the sum of: Low, raw,
 * because it hardly compresses; High, by its entropy; 4 bytes and an element for each exception;
 * the scales.
 *
 * bits_of_others is the size of an element that is not zero, without the bits that say which
 * elements are zero. It is compared with the caller's bits: else rows of an embedding that are all
 * zero would make the grid needlessly fine. */
LMC__COLD static void lmc__measure_size(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const uint64_t n = f->n;
    const uint32_t n_zero = f->n_zero;
    const unsigned sign = q->params.grid.is_signed ? 1 : 0, width = q->params.width;
    const uint32_t scale = ((uint32_t)-q->params.grid.min << sign) + 1;
    uint32_t first, last, s, codes[256] = {0};
    const uint32_t coded = (uint32_t)n - f->counts[LMC__EXCEPTION];
    const uint64_t scales = lmc__bits_of_scales(&q->params);
    uint64_t bits;
    for (first = 1; first < scale && !f->counts[first];) first++;
    for (last = LMC__EXCEPTION - 1; last > scale && !f->counts[last];) last--;
    /* With signs, both symbols of the first and of the last point. */
    f->first = first -= (first - 1) & sign;
    f->last = last += last & sign;
    q->params.low_bits = 0;
    while ((last - first + 1) >> q->params.low_bits > 255) q->params.low_bits++;
    q->info.n_codes = 0;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->params.low_bits] += f->counts[s];
        if (f->counts[s]) q->info.n_codes++;
    }
    codes[0] += f->counts[0];
    bits = (coded ? lmc__entropy_q16(codes, coded) : 0) +
           ((uint64_t)q->params.low_bits * coded << 16) +
           ((uint64_t)f->counts[LMC__EXCEPTION] * (32 + 8 * width) << 16);
    f->bits = bits / n + scales;
    memset(codes, 0, sizeof codes);
    codes[0] = n_zero;
    codes[1] = coded - n_zero;
    bits -= (uint64_t)q->params.low_bits * n_zero << 16;
    if (coded) bits -= lmc__min64(bits, lmc__entropy_q16(codes, coded));
    f->bits_of_others = n > n_zero ? bits / (n - n_zero) + scales : 0;
}

/* Counts the symbols of a sample; measures its loss, too, if the grid is linear and that is asked
 * for. n_exceptions is an estimate for the whole tensor: one chunk counts for all chunks of its
 * stride. The limit is 1 % of exceptions, because these take 8 bytes each with F32: more than 0.6
 * bits for each element. */
static enum lmc_status lmc__measure_sample(lmc__fit *f, uint64_t stride, int with_loss)
{
    lmc_quantizer *const q = f->q;
    const lmc__quant_params *const p = &q->params;
    lmc__losses losses = lmc__begin_losses(q);
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t restored[4 * LMC__QUANTIZED_STRIP], wide[4 * LMC__QUANTIZED_STRIP];
    uint64_t at;
    size_t i, j, n, part;
    f->n = f->n_zero = 0;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const lmc__quant_source chunk = {f->chunk, f->second, at, n},
                                    strip = lmc__part_of(&chunk, p->width, i,
                                                         lmc__min(n - i, LMC__QUANTIZED_STRIP));
            part = strip.n;
            if (p->grid.is_log || !with_loss)
                (void)lmc__find_symbols(f->k, p, symbols, f->x + 4 * i, f->s ? f->s + 4 * i : NULL,
                                        at + i, part);
            else {
                (void)lmc__quantize_strip(f->k, p, &strip, symbols, restored);
                lmc__add_losses(f, i, part, symbols, lmc__widen(wide, restored, part, p->width),
                                &losses);
            }
            for (j = 0; j < part; j++) {
                f->counts[symbols[j]]++;
                f->n_zero += lmc__load32(f->x + 4 * (i + j)) == 0;
            }
        }
        f->n += (uint32_t)n;
    }
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->error = p->grid.is_log ? lmc__log_error(p->grid.step, q->info.loss.measure)
                              : lmc__get_error(&losses, q->info.loss.measure);
    f->obstacle = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > f->n
                      ? "more than 1 % of its elements are exceptions"
                      : NULL;
    return LMC_OK;
}

/* How far the grid is above its limit, in units of LMC__OCTAVE; negative if it is below. The limit
 * is `bits`, for its size; or, if bits is 0, `bound`, for its loss. */
static int32_t lmc__find_excess(const lmc__fit *f, unsigned bits, lmc__q32 bound)
{
    int32_t excess;
    if (bits) return ((int32_t)f->bits_of_others - (int32_t)((bits << 16) - LMC__SPARE_BITS)) * 128;
    excess = lmc__to_logarithm((float)(f->error ? f->error : 1)) - lmc__to_logarithm((float)bound);
    if (f->error > bound && excess < 2) excess = 2;             /* floats may be equal */
    if (excess < -13 * LMC__OCTAVE) excess = -13 * LMC__OCTAVE; /* as with almost no loss */
    return f->q->info.loss.measure == LMC_MEASURE_NMSE ? excess / 2 : excess;
}

/* Begins with the finest grid. For a size the grid only becomes coarser. For a bound it becomes
 * coarser until it is too coarse, then only finer; an error within two steps of the bound is good
 * enough. A logarithmic grid has the step that follows from its bound.
 *
 * A small sample is enough for logarithmic grids, of which only the size is unknown. For a linear
 * grid it finds the grid, which the large sample then checks. Only the large sample can reject a
 * tensor. */
LMC__COLD static enum lmc_status lmc__fit_grid(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    const lmc__q32 bound = o->bits ? 0 : lmc__get_bound(o);
    const uint64_t large = lmc__get_stride(f->q, LMC__LARGE_SAMPLE);
    lmc__grid *const grid = &f->q->params.grid;
    uint64_t stride = lmc__get_stride(f->q, LMC__SMALL_SAMPLE);
    int is_first = 1, was_above = o->bits || grid->is_log;
    unsigned i;
    for (i = 0; i < LMC__MAX_MEASURES; i++) {
        int32_t excess;
        LMC__TRY(lmc__measure_sample(f, stride, 1));
        lmc__measure_size(f);
        excess = lmc__find_excess(f, o->bits, bound);
        if (is_first && !f->obstacle) {
            if (f->q->info.n_codes == 0) f->obstacle = "all of it is zero";
            else if (excess > 0 && !o->bits) f->obstacle = "no grid holds the bound";
        }
        if (f->obstacle || (excess <= 0 && (was_above || i >= LMC__MAX_COARSER ||
                                            excess >= -2 * LMC__SCALE_STEP))) {
            if (stride != large && (f->obstacle || !grid->is_log)) {
                stride = large;
                if (i) i--; /* it is not another grid */
                continue;
            }
            if (f->obstacle) return lmc__keep_lossless(f->q, f->obstacle);
            grid->min += (int32_t)((f->first - 1) >> grid->is_signed);
            grid->n_points = (f->last - f->first + 1) >> grid->is_signed;
            return LMC_OK;
        }
        if (excess > 0) {
            was_above = 1;
            excess += LMC__SCALE_STEP;
        }
        is_first = 0;
        lmc__coarsen(f->q, o->bits ? excess : -excess);
    }
    return lmc__keep_lossless(f->q, o->bits ? "no grid is so small" : "no grid holds the bound");
}

/* == quantize/fit_table.h ====================================================================== */

/* Finds a codebook: a table of at most n_codes values, by k-means.
 *
 * Its values are points of the finest grid (fit_scales.h), so k-means has one dimension, works on a
 * histogram of at most 65,534 symbols, and takes the same time for every tensor. Distances are
 * those of the grid: relative to the group's scale; for first moments those of updates; for second
 * moments, whose grid is logarithmic, ratios.
 *
 *   sample --> counts of symbols --> 2048 cells --merge--> k cells --Lloyd--> means --> table
 *
 * A cell is an interval of symbols. Prefix sums give the weight and the mean of any cell. */

#define LMC__START_CELLS 2048u
#define LMC__LLOYD_ROUNDS 256u /* at most; usually cells stop moving earlier */
#define LMC__MAX_WIDER 3u      /* how often a grid may become coarser by two octaves */

/* 1 MiB, allocated while a codebook is sought. Cell i is [ends[i - 1], ends[i]), the first one
 * begins at `first`. Means are symbols times 256. */
typedef struct lmc__cells {
    uint64_t weight[LMC__SYMBOLS],
        sum[LMC__SYMBOLS];           /* of all symbols below; sum: weight * symbol */
    uint64_t cost[LMC__START_CELLS]; /* of merging cells i and i + 1 */
    uint32_t ends[LMC__START_CELLS];
    uint32_t means[256];
    uint32_t first, fixed; /* fixed: a symbol whose cell has it as its mean; 0: none */
    size_t n;
} lmc__cells;

LMC__INLINE uint32_t lmc__begin_cell(const lmc__cells *c, size_t i)
{
    return i ? c->ends[i - 1] : c->first;
}

/* sum * 256 is below 2^22 elements * 2^16 symbols * 2^8. */
static uint32_t lmc__mean_of(const lmc__cells *c, uint32_t begin, uint32_t end)
{
    const uint64_t weight = c->weight[end] - c->weight[begin], sum = c->sum[end] - c->sum[begin];
    if (begin <= c->fixed && c->fixed < end) return c->fixed * 256;
    return weight ? (uint32_t)((sum * 256 + weight / 2) / weight) : begin * 256;
}

/* The root of what merging cells i and i + 1 adds to the squared distances: w1 * w2 / (w1 + w2)
 * times the squared distance of their means (Ward: Hierarchical grouping to optimize an objective
 * function, 1963). The first factor is at most 2^21, here times 2^10. */
static uint64_t lmc__merging_cost(const lmc__cells *c, size_t i)
{
    const uint32_t a = lmc__begin_cell(c, i), b = c->ends[i], d = c->ends[i + 1];
    const uint64_t before = c->weight[b] - c->weight[a], after = c->weight[d] - c->weight[b];
    const uint64_t factor = (before * after << 10) / (before + after);
    return (uint64_t)lmc__root_q32((lmc__q32)factor) *
           (lmc__mean_of(c, b, d) - lmc__mean_of(c, a, b));
}

/* Cuts the symbols that occur into at most LMC__START_CELLS cells. A new one begins when half a
 * share of the weight, and half a share of the symbols, have passed together: so neither a dense
 * part of the histogram nor a long tail is cut too coarsely. */
static void lmc__cut_cells(lmc__cells *c, uint32_t last)
{
    const uint64_t half = LMC__START_CELLS / 2, all = c->weight[last + 1] - c->weight[c->first];
    uint64_t share, previous = UINT64_MAX;
    uint32_t s;
    c->n = 0;
    for (s = c->first; s <= last; s++) {
        if (c->weight[s + 1] == c->weight[s]) continue;
        share = (c->weight[s] - c->weight[c->first]) * half / all +
                (s - c->first) * half / (last - c->first + 1);
        if (share == previous) continue;
        if (c->n) c->ends[c->n - 1] = s;
        c->n++;
        previous = share;
    }
    c->ends[c->n - 1] = last + 1;
}

/* k-means of the symbols c->first .. last: c->means of at most k cells, in ascending order. Merging
 * finds cells that suit any shape of the histogram. Lloyd's iteration then moves them: each symbol
 * goes to the nearest mean, each mean to the middle of its symbols. */
LMC__COLD static void lmc__find_cells(lmc__cells *c, uint32_t last, unsigned k)
{
    unsigned round, has_moved = 1;
    size_t i, least;
    lmc__cut_cells(c, last);
    for (i = 0; i + 1 < c->n; i++) c->cost[i] = lmc__merging_cost(c, i);
    while (c->n > k) {
        for (i = least = 0; i + 1 < c->n; i++)
            if (c->cost[i] < c->cost[least]) least = i;
        c->n--;
        memmove(c->ends + least, c->ends + least + 1, (c->n - least) * sizeof c->ends[0]);
        memmove(c->cost + least, c->cost + least + 1, (c->n - least) * sizeof c->cost[0]);
        if (least) c->cost[least - 1] = lmc__merging_cost(c, least - 1);
        if (least + 1 < c->n) c->cost[least] = lmc__merging_cost(c, least);
    }
    for (round = 0; round < LMC__LLOYD_ROUNDS && has_moved; round++) {
        for (i = 0; i < c->n; i++) c->means[i] = lmc__mean_of(c, lmc__begin_cell(c, i), c->ends[i]);
        for (i = has_moved = 0; i + 1 < c->n; i++) {
            const uint32_t end = (c->means[i] + c->means[i + 1]) / 512 + 1;
            has_moved |= end != c->ends[i];
            c->ends[i] = end;
        }
    }
}

/* The least distance of two symbols in a table, so that quantising again changes nothing: BF16 of q
 * points are rounded by up to q / 256 points, and then to points. */
static uint32_t lmc__least_distance(const lmc__quant_params *p, int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    return p->grid.is_log || p->width == 4 ? 1 : 2 * (uint32_t)(((a > b ? a : b) + 128) >> 8) + 1;
}

/* Moves scales so that no value of the table is beyond the normal numbers, for the same reason. */
static void lmc__clamp_scales(lmc_quantizer *q)
{
    const lmc__quant_params *const p = &q->params;
    const int64_t step = p->grid.step,
                  least = (LMC__MIN_SCALE - (p->grid.min + p->table[1] - 1) * step + 65535) / 65536,
                  most = (LMC__MAX_LOG_SCALE - (p->grid.min + p->table[p->table_size] - 1) * step) /
                         65536;
    size_t i;
    for (i = 0; i < q->n_groups; i++)
        p->scales[i] = (uint16_t)lmc__clamp(p->scales[i], (int32_t)least, (int32_t)most);
}

/* Sets the grid and the table, whose symbols are numbered from f->first on. zero: the symbol of
 * point 0, which becomes code 0; or 0: the grid has none. */
static enum lmc_status lmc__set_table(lmc__fit *f, const lmc__cells *c, uint32_t zero)
{
    lmc__quant_params *const p = &f->q->params;
    const uint32_t before = f->first - 1;
    int64_t previous = -1;
    int has_zero = 0;
    size_t i;
    for (i = 0; i < c->n; i++) {
        const uint32_t symbol = (c->means[i] + 128) >> 8;
        has_zero |= symbol == zero;
        if (symbol == zero ||
            (p->table_size &&
             symbol - previous < lmc__least_distance(p, (int64_t)symbol - zero, previous - zero)))
            continue;
        p->table[++p->table_size] = (uint16_t)(symbol - before);
        previous = symbol;
    }
    p->grid.min += (int32_t)before;
    p->grid.n_points = f->last - before;
    LMC__TRY(lmc__set_codes(f->q, has_zero ? zero - before : 0));
    if (zero && !has_zero) p->codes[0] = p->codes[zero - before];
    if (p->grid.is_log) lmc__clamp_scales(f->q);
    return LMC_OK;
}

/* The error of the update from second moments that go to the table's points. An update is divided
 * by a root, so D octaves between element and point change it by 2^(D / 2) - 1. Within some tenths
 * of an octave the bits of a float are linear, so 2^x is taken as (the float whose bits are those
 * of 1.36 plus x octaves) / 1.36. A change is D / m for a mantissa m: with 1.36, its square is the
 * mean over all mantissas (see lmc__log_step). The error of the grid itself is added. */
LMC__COLD static lmc__q32 lmc__table_error(const lmc__fit *f)
{
    const lmc__quant_params *const p = &f->q->params;
    const uint32_t middle = 0x3FAE147B; /* 1.36 */
    const int64_t before = f->first - 1;
    const lmc__q32 own = p->width == 4 ? lmc__log_error(p->grid.step, LMC_MEASURE_UPDATE) : 0;
    lmc__wide_sum lost = {0, 0}, all = {0, 0};
    lmc__q32 error;
    uint32_t s;
    for (s = f->first; s <= f->last; s++) {
        const int64_t octaves =
            (s - before - p->table[p->codes[s - before]]) * (int64_t)p->grid.step / 2;
        const uint32_t bits = (uint32_t)lmc__clamp(middle + octaves, 0x30000000, 0x41FFFFFF);
        const int exponent = (int)(bits >> 23) - 127;
        const uint64_t mantissa = (bits & 0x7FFFFF) | 0x800000;
        /* in units of 2^-16, below 2^21; so the sum fits */
        const int64_t root = (int64_t)((exponent < 0 ? mantissa << 16 >> -exponent
                                                     : mantissa << 16 << (exponent & 31)) /
                                       ((middle & 0x7FFFFF) | 0x800000)),
                      change = root - 65536;
        if (f->counts[s] == 0) continue;
        lmc__add_wide(&lost, (uint64_t)(change * change) * f->counts[s]);
        lmc__add_wide(&all, f->counts[s] * ((uint64_t)1 << 32));
    }
    error = lmc__fraction(lost, all);
    return lmc__root_q32((lmc__q32)lmc__min64(error + ((uint64_t)own * own >> 32), LMC__Q32_MAX));
}

/* Size and codes of the sample, from its counts before it had a table. */
static void lmc__measure_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const lmc__quant_params *const p = &q->params;
    const uint32_t exceptions = f->counts[LMC__EXCEPTION];
    uint32_t codes[256] = {0}, s;
    for (s = f->first; s <= f->last; s++) codes[p->codes[s - (f->first - 1)]] += f->counts[s];
    codes[0] += f->n_zero;
    codes[p->codes[0]] += f->counts[0] - f->n_zero;
    q->info.n_codes = lmc__count_symbols(codes);
    f->bits = f->n > exceptions ? lmc__entropy_q16(codes, (uint32_t)f->n - exceptions) : 0;
    f->bits = (f->bits + ((uint64_t)exceptions * (32 + 8 * p->width) << 16)) / f->n +
              lmc__bits_of_scales(p);
}

LMC__COLD static enum lmc_status lmc__fit_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const uint64_t stride = lmc__get_stride(q, LMC__LARGE_SAMPLE);
    const uint32_t zero = p->grid.is_log ? 0 : (uint32_t)(1 - p->grid.min);
    unsigned k = f->options->n_codes, trial;
    enum lmc_status status;
    lmc__cells *c;
    int is_zero_frequent;
    uint32_t s, beyond = UINT32_MAX;
    /* A codebook can have values for far elements, too. The grid becomes coarser while this leaves
     * fewer exceptions, if these are more than one in 8192. */
    for (trial = 0;; trial++) {
        LMC__TRY(lmc__measure_sample(f, stride, 0));
        if (p->grid.is_log || p->is_predicted || trial == LMC__MAX_WIDER ||
            f->counts[LMC__EXCEPTION] <= f->n / 8192 || f->counts[LMC__EXCEPTION] == beyond)
            break;
        beyond = f->counts[LMC__EXCEPTION];
        lmc__coarsen(q, 2 * LMC__OCTAVE);
    }
    lmc__measure_size(f);
    p->low_bits = 0;
    if (!f->obstacle && q->info.n_codes == 0) f->obstacle = "all of it is zero";
    if (f->obstacle) return lmc__keep_lossless(q, f->obstacle);
    c = (lmc__cells *)lmc__realloc(q->allocator, NULL, 0, sizeof *c);
    if (!c) return LMC_ERR_MEMORY;
    /* Zeros always stay zero. If they are frequent, zero is one of the values, and on the line
     * other elements may become zero. Rare zeros come beside the values: at that share, this takes
     * as many bits as one value less would lose in precision. */
    is_zero_frequent = (uint64_t)f->n_zero * 4 * k > f->n;
    c->fixed = is_zero_frequent ? zero : 0;
    k -= c->fixed == 0 && (is_zero_frequent || k == 256); /* 255 numbers, and zero */
    c->first = f->first;
    c->weight[0] = c->sum[0] = 0;
    for (s = 0; s + 1 < LMC__SYMBOLS; s++) {
        const uint32_t count = s == 0      ? 0
                               : s != zero ? f->counts[s]
                                           : f->counts[0] - (c->fixed ? 0 : f->n_zero);
        c->weight[s + 1] = c->weight[s] + count;
        c->sum[s + 1] = c->sum[s] + (uint64_t)count * s;
    }
    lmc__find_cells(c, f->last, k);
    status = lmc__set_table(f, c, zero);
    (void)lmc__realloc(q->allocator, c, sizeof *c, 0);
    LMC__TRY(status);
    lmc__measure_table(f);
    if (!p->grid.is_log) return lmc__measure_sample(f, stride, 1);
    f->error = lmc__table_error(f);
    return LMC_OK;
}

/* == quantize/fit_values.h ===================================================================== */

/* Codebooks of tensors that have few values: for example copies of elements with 4 or 8 bits. */

/* All values of a tensor but +0 and exceptions, in a hash table with open addressing. */
typedef struct lmc__values {
    uint32_t values[512]; /* 0: free */
    uint64_t counts[512], n_zero, n_exceptions;
    unsigned n;
} lmc__values;

/* Returns 0 if there are more than `most` values, at most 256. */
static int lmc__count_values(lmc__values *v, const uint8_t *x, size_t n, unsigned most)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t value = lmc__load32(x + 4 * i);
        uint32_t slot = value * 0x9E3779B1u >> 23;
        if (!lmc__is_normal(value)) {
            v->n_zero += value == 0;
            v->n_exceptions += value != 0;
            continue;
        }
        while (v->values[slot] && v->values[slot] != value) slot = (slot + 1) % 512;
        if (!v->values[slot] && ++v->n > most) return 0;
        v->values[slot] = value;
        v->counts[slot]++;
    }
    return 1;
}

/* Sets a logarithmic grid with one scale that has exactly these values: its step is the last bit
 * that is set in any of them. Returns 0 if that would be too many points. */
static int lmc__set_exact_table(lmc__quant_params *p, const lmc__values *v, uint32_t *scale)
{
    uint32_t least = UINT32_MAX, largest = 0, all = 0, i, j;
    unsigned shift = 0;
    for (i = 0; i < 512; i++) {
        const uint32_t magnitude = v->values[i] & 0x7FFFFFFF;
        if (!v->values[i]) continue;
        if (magnitude < least) least = magnitude;
        if (magnitude > largest) largest = magnitude;
        all |= v->values[i];
    }
    while (shift < 16 && !(all >> shift & 1)) shift++;
    *scale = least & 0xFFFF0000u;
    p->grid.is_log = 1;
    p->grid.is_signed = (int)(all >> 31);
    p->grid.step = 1u << shift;
    p->grid.n_points = ((largest - *scale) >> shift) + 1;
    if (largest > LMC__MAX_LOG_SCALE || p->grid.n_points > lmc__max_points(&p->grid)) return 0;
    for (i = 0; i < 512; i++) {
        const uint32_t t = ((v->values[i] & 0x7FFFFFFF) - *scale) >> shift,
                       symbol = (p->grid.is_signed ? t << 1 | v->values[i] >> 31 : t) + 1;
        if (!v->values[i]) continue;
        for (j = ++p->table_size; j > 1 && p->table[j - 1] > symbol; j--)
            p->table[j] = p->table[j - 1];
        p->table[j] = (uint16_t)symbol;
    }
    return 1;
}

/* A tensor that has at most n_codes values loses nothing: they become the table (is_exact), or, if
 * no grid has all of them, the tensor is kept as it is. If it has more, the quantiser does not
 * change: most tensors have too many among their first hundreds of elements. */
LMC__COLD static enum lmc_status lmc__fit_values(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const unsigned n_codes = f->options->n_codes;
    lmc__values v;
    uint32_t counts[256] = {0}, total = 0, scale, i;
    unsigned shift = 0;
    uint64_t at;
    size_t n;
    memset(&v, 0, sizeof v);
    for (at = 0; at < q->n; at += n) {
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        if (!lmc__count_values(&v, f->x, n, n_codes)) return LMC_OK;
    }
    if (v.n == 0 || v.n + (v.n_zero != 0) > n_codes) return LMC_OK;
    if (v.n + (v.n_zero != 0) < 2) return lmc__keep_lossless(q, "all of it is one value");
    if (v.n > 255 || v.n_exceptions > q->n / 100 || !lmc__set_exact_table(p, &v, &scale))
        return lmc__keep_lossless(q, "it has few values, but no table has exactly these");
    p->is_exact = 1;
    p->group_size = lmc__min64(q->n, 0x7FFFFFFF);
    LMC__TRY(lmc__alloc_scales(q));
    for (n = 0; n < q->n_groups; n++) p->scales[n] = (uint16_t)(scale >> 16);
    LMC__TRY(lmc__set_codes(q, 0));
    while (q->n >> shift > UINT32_MAX) shift++; /* counts have 32 bits */
    q->info.n_codes = v.n + (v.n_zero != 0);
    q->info.n_exceptions = v.n_exceptions;
    counts[255] = (uint32_t)(v.n_zero >> shift);
    for (i = 0, n = 0; i < 512; i++)
        if (v.counts[i]) counts[n++] = (uint32_t)(v.counts[i] >> shift);
    for (i = 0; i < 256; i++) total += counts[i];
    f->bits = total ? lmc__entropy_q16(counts, total) / total : 0;
    f->bits += (v.n_exceptions * (32 + 8 * p->width) << 16) / q->n;
    f->error = 0;
    return LMC_OK;
}

/* == quantize/fit.h ============================================================================ */

/* lmc_quantizer_fit: chooses a grid (quant_params.h) for a tensor, or a codebook: a table of a few
 * of its points; and whether the tensor is quantised at all. A tensor that cannot be quantised well
 * is kept as it is: no error, and info has the reason.
 *
 *   second moment          logarithmic grid
 *   first, with a second   updates; RELATIVE: logarithmic grid
 *   anything else          linear grid; RELATIVE: logarithmic grid
 *
 * What is done, in this order:
 *   scales, or bias and floor     a pass over all, or over the sample     fit_scales.h
 *   a grid that suffices          a pass over a sample for each trial     fit_grid.h
 *   or a codebook                 a pass over a sample, or two            fit_table.h
 *
 * Before, if a codebook is asked for, it is tried whether the tensor has no more values than that.
 *
 * A pass reads elements by the caller's callback. Nothing depends on threads or tiers, and
 * decisions use integers, so every machine finds the same quantiser.
 *
 * Any grid makes valid blocks (spec/quantised.md): a mistake here would only cost size or
 * precision. */

/* Elements. Smaller tensors are not quantised: the scales would take too many bits. */
#define LMC__MIN_QUANTIZED 16384u
/* Elements of a group. */
#define LMC__DEFAULT_GROUP 256u
#define LMC__LEAST_GROUP 16u

/* *bits: bits per element without loss, times 2^16, of LMC__FIT_CHUNK elements in the middle. The
 * tensor has at least as many elements (LMC__MIN_QUANTIZED). */
LMC__COLD static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_block_workspace_size(LMC__FIT_CHUNK, f->q->params.width),
                 cap = lmc_block_bound(4 * LMC__FIT_CHUNK),
                 chunk = LMC__FIT_CHUNK * q->params.width;
    lmc_block_options options;
    enum lmc_status status;
    uint8_t *ws;
    size_t size = 0;
    LMC__TRY(f->elements.read_at(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->params.width,
                                 f->chunk, chunk));
    ws = (uint8_t *)lmc__realloc(q->allocator, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    options = LMC_BLOCK_OPTIONS(f->options->dtype);
    status = lmc_block_encode(ws + ws_size, cap, &size, f->chunk, chunk, &options, ws, ws_size);
    (void)lmc__realloc(q->allocator, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

/* Elements in a group: usually those of a row; LMC__DEFAULT_GROUP if group is 0, or more than the
 * format allows. Short rows are joined to at least LMC__LEAST_GROUP elements. */
static uint64_t lmc__get_group_size(uint64_t group)
{
    if (group == 0) return LMC__DEFAULT_GROUP;
    if (group < LMC__LEAST_GROUP) group *= (LMC__LEAST_GROUP + group - 1) / group;
    return group <= 0x7FFFFFFF ? group : LMC__DEFAULT_GROUP;
}

/* Sets the kind of grid, and its scales. A logarithmic grid bounds relative errors. Second moments
 * have a logarithmic grid, too, because no second moment may become zero: updates are divided by
 * its root. First moments are quantised as updates, whose size is near 1: their grid is linear.
 *
 * A linear grid starts as the finest one. A logarithmic grid has the step that follows from its
 * bound; without a bound, 256 points to an octave, or 128 for BF16, which has no more values. */
LMC__COLD static enum lmc_status lmc__begin_fit(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc__quant_params *const q = &f->q->params;
    q->grid.is_log =
        f->q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted = o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements && !q->grid.is_log;
    if (q->grid.is_log) {
        q->grid.step = o->bits || o->n_codes ? 1u << (q->width == 2 ? 16 : 15)
                                             : lmc__log_step(lmc__get_bound(o), o->measure);
        if (q->width == 2) q->grid.step &= 0xFFFF0000u; /* BF16 has 16 bits less */
        if (q->grid.step == 0) return lmc__keep_lossless(f->q, "no grid holds the bound");
    }
    lmc__reset_grid(&q->grid);
    if (q->is_predicted) return lmc__fit_bias(f);
    q->group_size = lmc__get_group_size(o->group);
    return lmc__fit_scales(f);
}

/* Does all passes. Each may find that the tensor must be kept as it is (is_lossless). So is a
 * tensor if quantising would not make it a tenth smaller than coding without loss. */
LMC__COLD static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint64_t lossless;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    if (f->options->n_codes) LMC__TRY(lmc__fit_values(f));
    if (!q->params.is_exact && !q->info.is_lossless) LMC__TRY(lmc__begin_fit(f));
    if (!q->params.is_exact && !q->info.is_lossless)
        LMC__TRY(f->options->n_codes ? lmc__fit_table(f) : lmc__fit_grid(f));
    if (q->info.is_lossless) return LMC_OK;
    q->info.is_grid = q->params.table_size == 0;
    q->info.bits = (double)f->bits / 65536.0;
    q->info.loss.generation = f->options->generation + !q->params.is_exact;
    if (q->params.is_exact) q->info.loss.measure = LMC_MEASURE_NONE;
    q->info.loss.error = f->error / LMC__Q32_ONE;
    if (10 * f->bits > 9 * lossless)
        return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

/* Checks the arguments of lmc_quantizer_fit. A second moment's quantiser must not need a
 * prediction. */
LMC__COLD static enum lmc_status lmc__check_fit_options(const lmc_source *elements,
                                                        const lmc_quantizer_options *o)
{
    const unsigned width = lmc_dtype_width(o->dtype);
    const lmc_quantizer *const second = o->second;
    if (width == 0 || elements->size % width || (unsigned)o->role > LMC_ROLE_SECOND_MOMENT ||
        o->generation > 254)
        return LMC_ERR_ARGUMENT;
    if (o->n_codes ? o->bits || o->n_codes < 2 || o->n_codes > 256
        : o->bits
            ? o->bits < 4 || o->bits > 8
            : !(o->bound > 0) || !(o->bound < 1) || (unsigned)o->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (!(o->eps >= 0)) return LMC_ERR_ARGUMENT;
    if (!o->second_elements) return LMC_OK;
    LMC__CHECK_CALLBACKS(o->second_elements, read_at);
    if (o->second_elements->size != elements->size ||
        (second && (second->n != elements->size / width || second->params.width != width ||
                    second->params.is_predicted)))
        return LMC_ERR_ARGUMENT;
    return LMC_OK;
}

static const char *lmc__find_obstacle(const lmc_quantizer *q, const lmc_quantizer_options *o)
{
    if (o->dtype != LMC_F32 && o->dtype != LMC_BF16) return "its elements are not F32 or BF16";
    if (q->n < LMC__MIN_QUANTIZED) return "it has fewer than 16,384 elements";
    if (q->info.loss.measure == LMC_MEASURE_UPDATE && o->role == LMC_ROLE_OTHER)
        return "only moments have an update";
    return NULL;
}

/* After errors nothing remains allocated. */
LMC__COLD LMC_API enum lmc_status lmc_quantizer_fit(lmc_quantizer **quantizer,
                                                    const lmc_source *elements,
                                                    const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    lmc_quantizer_options o;
    const char *obstacle;
    lmc_quantizer *q;
    lmc__fit *f;
    LMC__NEW_OBJECT(quantizer);
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(elements, read_at);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    options = &o;
    LMC__TRY(lmc__check_allocator(o.allocator));
    LMC__TRY(lmc__check_fit_options(elements, options));
    q = (lmc_quantizer *)lmc__realloc(options->allocator, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->allocator = options->allocator;
    q->info.reason = "";
    q->params.width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->params.width;
    /* Without a bound the role decides how the loss is measured. */
    q->info.loss.measure = !options->bits && !options->n_codes ? options->measure
                           : options->role == LMC_ROLE_OTHER   ? LMC_MEASURE_NMSE
                                                               : LMC_MEASURE_UPDATE;
    obstacle = lmc__find_obstacle(q, options);
    if (obstacle) (void)lmc__keep_lossless(q, obstacle);
    else {
        f = (lmc__fit *)lmc__realloc(options->allocator, NULL, 0, sizeof *f);
        if (f) {
            f->k = lmc__get_kernels();
            f->options = options;
            f->elements = *elements;
            f->q = q;
            status = lmc__fit_quantizer(f);
            (void)lmc__realloc(options->allocator, f, sizeof *f, 0);
        } else status = LMC_ERR_MEMORY;
    }
    /* A tensor that is kept as it is has no loss, whatever was measured before. */
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_quantizer_free(q);
    else *quantizer = q;
    return status;
}
#endif

/* == tensor/cpus.h ============================================================================= */

/* LMC_PTHREADS: how many threads a pool has if nobody says it. The machine may have more CPUs than
 * this process: batch systems and containers restrict it by affinity, and containers by a quota of
 * CPU time, in microseconds for each period. Each control group (cgroup) on the way to that of the
 * process may have a quota, and the least counts:
 *     /proc/self/cgroup              quota and period
 *     0::/a/b            version 2   /sys/fs/cgroup/a/b/cpu.max, /sys/fs/cgroup/a/cpu.max, ...
 *     4:cpu,cpuacct:/a/b version 1   /sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us and cpu.cfs_period_us,
 *                                    /sys/fs/cgroup/cpu/a/..., ...
 *
 * A container may not see the upper groups, and without a namespace of its own its group has the
 * host's name, but stands at /sys/fs/cgroup itself. So what is missing is passed over. */
#ifdef LMC_PTHREADS
#include <stdio.h>
#include <stdlib.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

enum { LMC__MAX_DEFAULT_WORKERS = 16 };

#ifdef __linux__
enum { LMC__CPU_LINE_CAP = 4096 };

static FILE *lmc__open_system_file(const char *dir, const char *name)
{
    char path[LMC__CPU_LINE_CAP + 64];
    const int size = snprintf(path, sizeof path, "%s/%s", dir, name);
    return size > 0 && (size_t)size < sizeof path ? fopen(path, "re") : NULL;
}

/* Passes over lines that do not fit. Returns 0 at the end. */
static int lmc__next_line(FILE *f, char line[LMC__CPU_LINE_CAP])
{
    while (fgets(line, LMC__CPU_LINE_CAP, f)) {
        int c;
        if (strchr(line, '\n') || feof(f)) return 1;
        do c = getc(f);
        while (c != '\n' && c != EOF);
    }
    return 0;
}

/* CPUs to which the calling thread is bound, a hexadecimal mask; 0: unknown. */
static long lmc__count_affine_cpus(const char *root)
{
    static const char key[] = "Cpus_allowed:";
    char line[LMC__CPU_LINE_CAP];
    long n = 0;
    FILE *const f = lmc__open_system_file(root, "proc/thread-self/status");
    while (f && lmc__next_line(f, line)) {
        const char *p = line + sizeof key - 1;
        if (strncmp(line, key, sizeof key - 1) != 0) continue;
        for (; *p; p++) {
            const char digit[2] = {*p, 0};
            unsigned long bits = strtoul(digit, NULL, 16);
            for (; bits; bits >>= 1) n += (long)(bits & 1);
        }
        break;
    }
    if (f) (void)fclose(f);
    return n;
}

/* Reads up to n numbers of the first line. Those that are missing, or "max", are 0. */
static void lmc__read_numbers(const char *dir, const char *name, long *numbers, int n)
{
    char line[LMC__CPU_LINE_CAP], *p = line;
    FILE *const f = lmc__open_system_file(dir, name);
    int i;
    if (!f || !lmc__next_line(f, line)) line[0] = 0;
    for (i = 0; i < n; i++) numbers[i] = strtol(p, &p, 10);
    if (f) (void)fclose(f);
}

/* The least of n and what the quotas of a group, and of those above it, are worth. dir: the group's
 * directory, which is shortened to its first `size` bytes, where the groups begin. */
static long lmc__limit_cpus(long n, char *dir, size_t size, int version)
{
    for (;;) {
        long numbers[2], cpus;
        if (version == 2) lmc__read_numbers(dir, "cpu.max", numbers, 2);
        else {
            lmc__read_numbers(dir, "cpu.cfs_quota_us", numbers, 1);
            lmc__read_numbers(dir, "cpu.cfs_period_us", numbers + 1, 1);
        }
        if (numbers[0] > 0 && numbers[1] > 0) { /* -1 or "max": no limit */
            cpus = numbers[0] / numbers[1] + (numbers[0] % numbers[1] != 0);
            if (cpus < n) n = cpus;
        }
        if (strlen(dir) <= size) return n;
        *strrchr(dir, '/') = 0;
    }
}

static int lmc__has_cpu_controller(const char *list)
{
    while (*list != ':') {
        const size_t size = strcspn(list, ",:");
        if (size == 3 && memcmp(list, "cpu", 3) == 0) return 1;
        list += size + (list[size] == ',');
    }
    return 0;
}

static long lmc__limit_by_groups(long n, const char *root)
{
    char line[LMC__CPU_LINE_CAP], dir[LMC__CPU_LINE_CAP + 64];
    FILE *const f = lmc__open_system_file(root, "proc/self/cgroup");
    while (f && lmc__next_line(f, line)) {
        const char *const list = strchr(line, ':') ? strchr(line, ':') + 1 : "";
        const char *const group = strchr(list, ':') ? strchr(list, ':') + 1 : "";
        const int version = *list == ':' ? 2 : 1;
        int size, group_size;
        /* "/..": a group that this namespace cannot see */
        if (*group != '/' || strncmp(group, "/..", 3) == 0) continue;
        if (version == 1 && !lmc__has_cpu_controller(list)) continue;
        size = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s", root, version == 1 ? "/cpu" : "");
        group_size = (int)strcspn(group, "\n");
        if (size < 0 || (size_t)size + (size_t)group_size >= sizeof dir) continue;
        memcpy(dir + size, group, (size_t)group_size);
        dir[size + group_size] = 0;
        n = lmc__limit_cpus(n, dir, (size_t)size, version);
    }
    if (f) (void)fclose(f);
    return n;
}
#endif /* __linux__ */

/* root: where /proc and /sys are; "" but in tests. */
static unsigned lmc__default_workers(const char *root)
{
    long n = 0;
#ifdef __linux__
    n = lmc__count_affine_cpus(root);
#endif
#ifdef _SC_NPROCESSORS_ONLN
    if (n <= 0) n = sysconf(_SC_NPROCESSORS_ONLN);
#elif defined(_WIN32)
    if (getenv("NUMBER_OF_PROCESSORS")) n = strtol(getenv("NUMBER_OF_PROCESSORS"), NULL, 10);
#endif
    if (n > LMC__MAX_DEFAULT_WORKERS) n = LMC__MAX_DEFAULT_WORKERS;
#ifdef __linux__
    n = lmc__limit_by_groups(n, root);
#else
    (void)root;
#endif
    return n < 1 ? 1 : (unsigned)n;
}

LMC_API unsigned lmc_default_workers(void) { return lmc__default_workers(""); }

/* == tensor/pool.h ============================================================================= */

/* LMC_PTHREADS: a pool of threads, for programs that have none.
 *
 *     run(n)     each worker takes the index `next`, under the lock, until it is n; the caller is
 *                worker 0, the pool's threads are workers 1 .. n_workers - 1
 *     end        the caller waits until n_left is 0: all tasks have returned
 *
 * run_lock allows one run at a time. A wave has few tasks, and each takes much longer than locking,
 * so one lock is enough. */
#include <pthread.h>

typedef struct lmc__pool_thread {
    lmc_pool *pool;
    pthread_t thread;
    unsigned worker;
} lmc__pool_thread;

struct lmc_pool {
    lmc_parallel parallel;
    pthread_mutex_t run_lock, lock;
    pthread_cond_t work, done;
    lmc_task task; /* of the wave that runs */
    void *arg;
    size_t next, n_tasks, n_left;
    int is_closing;
    unsigned n_started; /* threads: workers 1 .. n_started */
    const lmc_allocator *allocator;
    lmc__pool_thread threads[1]; /* n_workers - 1 of them */
};

static size_t lmc__pool_size(unsigned n_workers)
{
    return sizeof(lmc_pool) + n_workers * sizeof(lmc__pool_thread);
}

/* Runs tasks until none is left. The caller holds the lock, which is released while a task runs. */
static void lmc__work_off(lmc_pool *pool, unsigned worker)
{
    while (pool->next < pool->n_tasks) {
        const size_t index = pool->next++;
        (void)pthread_mutex_unlock(&pool->lock);
        pool->task(pool->arg, index, worker);
        (void)pthread_mutex_lock(&pool->lock);
        if (--pool->n_left == 0) (void)pthread_cond_broadcast(&pool->done);
    }
}

static void *lmc__pool_main(void *arg)
{
    lmc__pool_thread *const me = (lmc__pool_thread *)arg;
    lmc_pool *const pool = me->pool;
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->is_closing) {
        lmc__work_off(pool, me->worker);
        if (!pool->is_closing) (void)pthread_cond_wait(&pool->work, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void lmc__run_pool(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    lmc_pool *const pool = (lmc_pool *)user;
    (void)n_workers;
    if (n_tasks == 0) return;
    (void)pthread_mutex_lock(&pool->run_lock);
    (void)pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->next = 0;
    pool->n_tasks = pool->n_left = n_tasks;
    (void)pthread_cond_broadcast(&pool->work);
    lmc__work_off(pool, 0);
    while (pool->n_left != 0) (void)pthread_cond_wait(&pool->done, &pool->lock);
    pool->n_tasks = 0;
    (void)pthread_mutex_unlock(&pool->lock);
    (void)pthread_mutex_unlock(&pool->run_lock);
}

/* If the system cannot start all threads, fewer do the same work. */
LMC_API enum lmc_status lmc_pool_open(lmc_pool **pool, unsigned n_workers,
                                      const lmc_allocator *allocator)
{
    lmc_pool *p;
    unsigned i;
    LMC__NEW_OBJECT(pool);
    if (n_workers > 1024) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    if (n_workers == 0) n_workers = lmc_default_workers();
    p = (lmc_pool *)lmc__realloc(allocator, NULL, 0, lmc__pool_size(n_workers));
    if (!p) return LMC_ERR_MEMORY;
    memset(p, 0, lmc__pool_size(n_workers));
    p->allocator = allocator;
    p->parallel.run = lmc__run_pool;
    p->parallel.user = p;
    p->parallel.n_workers = n_workers;
    (void)pthread_mutex_init(&p->run_lock, NULL);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->work, NULL);
    (void)pthread_cond_init(&p->done, NULL);
    for (i = 0; i + 1 < n_workers; i++) {
        p->threads[i].pool = p;
        p->threads[i].worker = i + 1;
        if (pthread_create(&p->threads[i].thread, NULL, lmc__pool_main, &p->threads[i]) != 0) break;
        p->n_started++;
    }
    *pool = p;
    return LMC_OK;
}

LMC_API const lmc_parallel *lmc_pool_parallel(const lmc_pool *pool)
{
    return pool ? &pool->parallel : NULL;
}

LMC_API void lmc_pool_free(lmc_pool *pool)
{
    unsigned i;
    if (!pool) return;
    (void)pthread_mutex_lock(&pool->lock);
    pool->is_closing = 1;
    (void)pthread_cond_broadcast(&pool->work);
    (void)pthread_mutex_unlock(&pool->lock);
    for (i = 0; i < pool->n_started; i++) (void)pthread_join(pool->threads[i].thread, NULL);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->work);
    (void)pthread_mutex_destroy(&pool->lock);
    (void)pthread_mutex_destroy(&pool->run_lock);
    (void)lmc__realloc(pool->allocator, pool, lmc__pool_size(pool->parallel.n_workers), 0);
}
#endif

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* == tensor/changes.h ========================================================================== */

/* Finds what differs between two arrays, for receivers of a delta that take indices and values. It
 * compares decoded elements, and does not use the list of changes in a sparse block. So it works
 * for all codings, and also if the caller's array is not the base. */

/* Copies the values of changes [n_before, changes->n) while they are in the first cache. part: the
 * elements from index `from` on. */
static void lmc__take_values(const lmc_changes *changes, size_t n_before, const uint8_t *part,
                             uint32_t from, unsigned width)
{
    uint8_t *const values = (uint8_t *)changes->values;
    size_t j = n_before;
    LMC__FOR_WIDTH(for (; j < changes->n; j++)
                       memcpy(values + j * w, part + (changes->indices[j] - from) * w, w));
}

LMC_API enum lmc_status lmc_changes_add(lmc_changes *changes, const void *src, const void *base,
                                        size_t n, unsigned width, uint32_t first,
                                        size_t *n_compared)
{
    const uint8_t *const now = (const uint8_t *)src, *const before = (const uint8_t *)base;
    size_t i = 0;
    int is_full = 0;
    LMC__CHECK(changes && n_compared && changes->n <= changes->cap && changes->cap > 0 &&
                   changes->indices && changes->values && (n == 0 || (src && base)) &&
                   (width == 1 || width == 2 || width == 4 || width == 8) && n <= SIZE_MAX / 8 &&
                   (uint64_t)first + n <= (uint64_t)1 << 32,
               LMC_ERR_ARGUMENT);
    while (i < n && !is_full) {
        const size_t n_part = lmc__min(LMC__STRIP_ELEMENTS(width), n - i), n_before = changes->n;
        const uint32_t from = (uint32_t)(first + i);
        size_t listed = 0;
        LMC__FOR_WIDTH(listed = lmc__list_words(changes->indices, n_before, changes->cap,
                                                now + i * w, before + i * w, n_part, w, from));
        is_full = listed == SIZE_MAX;
        changes->n = is_full ? changes->cap : listed;
        lmc__take_values(changes, n_before, now + i * width, from, width);
        if (!is_full) i += n_part;
        else if (changes->n > n_before) /* continues after the last listed element */
            i += changes->indices[changes->n - 1] - from + 1;
    }
    *n_compared = i;
    return LMC_OK;
}

#endif
#ifndef LMC_NO_SNAPSHOT
/* == snapshot/descriptors.h ==================================================================== */

/* File descriptors as sinks, streams and sources. */
#ifdef LMC_POSIX
#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

/* `user` is the descriptor, cast to a pointer, so no memory has to live as long as the sink. */
static int lmc__get_fd(void *user) { return (int)(intptr_t)user; }

/* Whether a failed read or write is to be tried again. A descriptor from a shell or an event loop
 * may be non-blocking: then waits. */
static int lmc__waits_for_fd(int fd, short event)
{
    struct pollfd wait;
    if (errno == EINTR) return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return 0;
    wait.fd = fd;
    wait.events = event;
    wait.revents = 0;
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

static enum lmc_status lmc__write_fd(void *user, const void *data, size_t size)
{
    const uint8_t *from = (const uint8_t *)data;
    while (size != 0) {
        const ssize_t n = write(lmc__get_fd(user), from, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLOUT)) continue;
        if (n <= 0) return LMC_ERR_WRITE;
        from += n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

static enum lmc_status lmc__read_fd(void *user, void *dst, size_t size, size_t *got)
{
    ssize_t n;
    do n = read(lmc__get_fd(user), dst, size < (1u << 30) ? size : 1u << 30);
    while (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLIN));
    *got = n < 0 ? 0 : (size_t)n;
    return n < 0 ? LMC_ERR_READ : LMC_OK;
}

static enum lmc_status lmc__read_fd_at(void *user, uint64_t offset, void *dst, size_t size)
{
    uint8_t *to = (uint8_t *)dst;
    while (size != 0) {
        ssize_t n;
        if (offset > INT64_MAX || (uint64_t)(off_t)offset != offset) return LMC_ERR_READ;
        n = pread(lmc__get_fd(user), to, size < (1u << 30) ? size : 1u << 30, (off_t)offset);
        if (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLIN)) continue;
        if (n <= 0) return LMC_ERR_READ;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

LMC_API lmc_sink lmc_fd_sink(int fd)
{
    const lmc_sink sink = {lmc__write_fd, (void *)(intptr_t)fd, {0, 0}};
    return sink;
}

LMC_API lmc_stream lmc_fd_stream(int fd)
{
    const lmc_stream stream = {lmc__read_fd, (void *)(intptr_t)fd, {0, 0}};
    return stream;
}

LMC_API enum lmc_status lmc_fd_source(lmc_source *source, int fd)
{
    off_t size;
    if (!source) return LMC_ERR_ARGUMENT;
    size = lseek(fd, 0, SEEK_END);
    if (size < 0) return LMC_ERR_READ;
    memset(source, 0, sizeof *source);
    source->read_at = lmc__read_fd_at;
    source->user = (void *)(intptr_t)fd;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif

/* == snapshot/requantize.h ===================================================================== */

/* lmc_quantizer_recover: finds the quantiser of a tensor from the heads of its blocks. The
 * elements of a restored tensor lie on a grid that only the old file has. Coded again with the same
 * quantiser, the tensor decodes to the same elements, in about the same size. A block that would
 * decode to other elements is coded without loss (is_exact, see codec/put_quantized.h).
 *
 * In a hostile file the heads may differ. If a head differs from the first one, the tensor has no
 * quantiser, which is no error. Elements are not decoded.
 *
 *     block 0   | head | table | scales 0 .. 3 |          -> grid, table; scales of groups 0 .. 3
 *     block 1   stored                                    -> nothing; scale 1 for its groups
 *     block 2   | head | table | scales 8 .. 11 |         -> the same? then scales 8 .. 11
 *     end                                                 -> code of each symbol, n_groups scales
 */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Whether a block is quantised. Its header must have been checked. */
static int lmc__is_quantized(const uint8_t *block)
{
    return block[2] >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_QUANTIZED;
}

/* Reads only the head of the quantised block at src, whose header is info. ws must be large enough
 * for blocks of its size. */
static enum lmc_status lmc__read_quantized_head(const lmc__kernels *k, lmc__quantized_head *head,
                                                const uint8_t *src, const lmc_block_info *info,
                                                void *ws, size_t ws_size)
{
    lmc__decoder d;
    uint8_t *spare;
    d.k = k;
    d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
    d.in = src + LMC_BLOCK_HEADER_SIZE;
    d.end = src + info->encoded_size;
    spare = lmc__push_list(&d.stack, info->n);
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    return lmc__get_quantized_head(&d, head, info, spare);
}

/* Makes room for the scales of n groups. A file may claim a tensor of any size, so the room grows
 * only as blocks are read: it doubles. Scales that are not read are 1. */
static enum lmc_status lmc__reserve_scales(lmc_quantizer *q, uint64_t n)
{
    const uint64_t group_size = q->params.group_size,
                   all = q->n / group_size + (q->n % group_size ? 1 : 0),
                   doubled = lmc__min64(all, 2 * (uint64_t)q->n_groups),
                   more = n > doubled ? n : doubled;
    uint16_t *scales;
    if (n <= q->n_groups) return LMC_OK;
    if (more > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    scales =
        (uint16_t *)lmc__realloc(q->allocator, q->params.scales, q->n_groups * sizeof scales[0],
                                 (size_t)more * sizeof scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->params.scales = scales;
    while (q->n_groups < more) scales[q->n_groups++] = LMC__SCALE_OF_ONE;
    return LMC_OK;
}

/* Compares everything in two heads except the scales and the place of the first group. A head does
 * not have n_points. */
static int lmc__is_same_quantization(const lmc__quant_params *a, const lmc__quant_params *b)
{
    return a->is_predicted == b->is_predicted && a->low_bits == b->low_bits &&
           a->table_size == b->table_size && a->group_size == b->group_size &&
           a->grid.is_log == b->grid.is_log && a->grid.is_signed == b->grid.is_signed &&
           a->grid.min == b->grid.min && a->grid.step == b->grid.step &&
           a->grid.bias == b->grid.bias && a->grid.floor == b->grid.floor &&
           memcmp(a->table, b->table, sizeof a->table) == 0;
}

/* Takes the parameters from the head of the tensor's first quantised block. n_points becomes the
 * largest number that the grid and, without a table, the codes allow. */
static void lmc__set_quantization(lmc__quant_params *q, const lmc__quant_params *head)
{
    q->is_predicted = head->is_predicted;
    q->grid = head->grid;
    q->low_bits = head->low_bits;
    q->table_size = head->table_size;
    memcpy(q->table, head->table, sizeof q->table);
    q->group_size = head->group_size;
    q->grid.n_points = lmc__max_points(&q->grid);
    if (!q->table_size)
        q->grid.n_points =
            (uint32_t)lmc__min(q->grid.n_points, ((256u << q->low_bits) - 1) >> q->grid.is_signed);
}

/* Takes the scales of a block, and also its parameters if the quantiser has none yet. If the
 * quantiser has other parameters, *is_other is set to 1. A block that is not quantised is skipped.
 *
 * grid.n_points is 0 until a head was seen. first: number of the block's first element in the
 * tensor. The block's first group must end where a group of the tensor ends. A group in two blocks
 * gets its scale twice; if the two scales of a hostile file differ, the last scale counts. */
LMC__COLD static enum lmc_status lmc__recover_block(lmc_quantizer *q, const lmc__wave *wave,
                                                    const uint8_t *src, const lmc_block_info *info,
                                                    uint64_t first, int *is_other)
{
    lmc__quant_params *const p = &q->params;
    lmc__quantized_head head;
    if (!lmc__is_quantized(src)) return LMC_OK;
    *is_other = 1;
    if (info->width != p->width) return LMC_OK;
    LMC__TRY(lmc__read_quantized_head(wave->k, &head, src, info, wave->workspaces,
                                      wave->workspace_size));
    if (p->grid.n_points == 0) lmc__set_quantization(p, &head.params);
    else if (!lmc__is_same_quantization(p, &head.params)) return LMC_OK;
    if (!p->is_predicted) {
        const uint64_t group = first / p->group_size;
        /* Groups are counted from the tensor's first element. */
        if (first % p->group_size != head.first) return LMC_OK;
        LMC__TRY(lmc__reserve_scales(q, group + head.n_groups));
        memcpy(p->scales + group, head.params.scales, head.n_groups * sizeof p->scales[0]);
    }
    *is_other = 0;
    return LMC_OK;
}

/* Recovers the quantiser from the blocks of the tensor's run. The run must have only this tensor.
 * *twin: where the run's prediction is, which is needed to code the tensor again. */
LMC__COLD static enum lmc_status lmc__recover_quantizer(lmc_quantizer *q, lmc_reader *r,
                                                        const lmc__listed_file *f,
                                                        const lmc_tensor *t, lmc_twin *twin)
{
    const size_t number = lmc__find_run(r, lmc__stream_of(r, f), f->start + t->offset);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__coder *const c = r->coder;
    uint64_t block;
    int is_other = 0;
    /* the result until all blocks agree */
    (void)lmc__keep_lossless(q, "its blocks are not of one quantiser");
    if (run->start != f->start + t->offset || run->size != t->size || run->n_segments > 1 ||
        (run->prediction != LMC__PREDICT_ZERO && run->prediction != LMC__PREDICT_OWN) ||
        run->conversion || (run->n_segments && run->segments->base == 0))
        return LMC_OK;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    LMC__TRY(lmc__set_coder(c, lmc__block_size_at(run, 0), 1, 0));
    for (block = 0; block < run->n_blocks && !is_other; block++) {
        const lmc__block_place *const place = lmc__block_at(r, number, block);
        lmc_block_info info;
        LMC__TRY(lmc__read_to(r, &c->in[0], place->at, place->size));
        LMC__TRY(lmc__read_known_block(r, number, block, c->in[0].data, &info));
        LMC__TRY(lmc__recover_block(q, &c->wave, c->in[0].data, &info,
                                    block * run->block_size / q->params.width, &is_other));
    }
    /* There must be a quantised block. The run must have a prediction exactly if its blocks use it,
     * because encoders write it so. */
    if (is_other || q->params.grid.n_points == 0 ||
        q->params.is_predicted != (run->prediction == LMC__PREDICT_OWN))
        return LMC_OK;
    if (q->params.table_size) LMC__TRY(lmc__set_codes(q, 0));
    if (!q->params.is_predicted) /* for blocks that are not quantised, too */
        LMC__TRY(lmc__reserve_scales(q, (q->n - 1) / q->params.group_size + 1));
    if (q->params.is_predicted && twin) {
        memset(twin, 0, sizeof *twin);
        twin->file_number = (size_t)run->segments->base - 1;
        twin->offset = run->segments->base_offset;
    }
    /* a caller that does not ask for the twin cannot give the prediction */
    q->info.is_lossless = q->params.is_predicted && !twin;
    q->info.reason = "";
    q->info.is_grid = q->params.table_size == 0;
    q->info.n_codes = q->params.table_size ? q->params.table_size + 1 : 0;
    return LMC_OK;
}

/* Checks the arguments, then recovers the quantiser. Even with LMC_OK, the quantiser may be
 * lossless, and has the reason. Errors: READ, MEMORY, or what is wrong with the file. */
LMC__COLD LMC_API enum lmc_status lmc_quantizer_recover(lmc_quantizer **quantizer, lmc_reader *r,
                                                        size_t file_number, const lmc_tensor *t,
                                                        lmc_twin *twin,
                                                        const lmc_allocator *allocator)
{
    enum lmc_status status = LMC_OK;
    enum lmc_dtype dtype;
    lmc_quantizer *q;
    LMC__NEW_OBJECT(quantizer);
    if (!r || r->is_salvage || file_number >= r->tables.listing.n_files || !t ||
        t->offset > lmc__file_at(r, file_number)->file.size ||
        t->size > lmc__file_at(r, file_number)->file.size - t->offset)
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    q = (lmc_quantizer *)lmc__realloc(allocator, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->allocator = allocator;
    q->params.is_exact = 1;
    q->info.loss = t->loss;
    dtype = lmc_dtype_find(t->dtype);
    q->params.width = lmc_dtype_width(dtype);
    q->n = t->size / q->params.width;
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || t->loss.generation == 0 || t->size == 0)
        (void)lmc__keep_lossless(q, "it was not quantised");
    else status = lmc__recover_quantizer(q, r, lmc__file_at(r, file_number), t, twin);
    if (status != LMC_OK) lmc_quantizer_free(q);
    else *quantizer = q;
    return status;
}
#endif

/* == snapshot/copy.h =========================================================================== */

#ifndef LMC_NO_ENCODER

/* A place for the hints of that tensor, valid until the next. Fast if numbers ascend. */
static enum lmc_status lmc__place_hints(lmc__buffer *hints, size_t number, lmc_tensor_hints **place)
{
    int is_there;
    lmc__hint *hint;
    LMC__TRY(lmc__reserve(hints, sizeof *hint));
    hint = lmc__find_hint(hints, number, &is_there);
    if (!is_there) {
        memmove(hint + 1, hint, (size_t)(hints->data + hints->size - (uint8_t *)hint));
        memset(hint, 0, sizeof *hint);
        hint->tensor_number = number;
        hints->size += sizeof *hint;
    }
    *place = &hint->hints;
    return LMC_OK;
}

static enum lmc_status lmc__add_hints(lmc_writer *w, size_t i, const lmc_tensor_hints *given)
{
    lmc_tensor_hints hints, *place;
    if (w->in_file || w->is_finished) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&hints, quantizer, given));
    LMC__TRY(lmc__place_hints(&w->hints, i, &place));
    *place = hints;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_writer_add_hints(lmc_writer *w, size_t tensor_number,
                                                       const lmc_tensor_hints *hints)
{
    LMC__STICKY(lmc__add_hints(w, tensor_number, hints));
}

/* Copies a file from a reader to a writer, in pieces, to change a snapshot's base, level or set of
 * files. The writer owns the recovered quantisers (w->quantizers), since it uses them. */
#define LMC__COPY_SIZE ((size_t)4 << 20)

#ifndef LMC_NO_QUANTIZE
/* Recovers the quantiser of the tensor, unless the caller gave one. A quantiser that needs the
 * second moment is recovered as lossless, because the new snapshot may lack that moment. */
static enum lmc_status lmc__copy_quantizer(lmc_writer *w, lmc_reader *r, size_t file_number,
                                           size_t i)
{
    const lmc_tensor *const tensor = &lmc_reader_get_file(r, file_number)->tensors[i];
    lmc_tensor_hints *hints;
    lmc_quantizer *q = NULL;
    LMC__TRY(lmc__place_hints(&w->hints, i, &hints));
    if (hints->quantizer) return LMC_OK;
    LMC__TRY(lmc__reserve(&w->quantizers, sizeof q));
    LMC__TRY(lmc_quantizer_recover(&q, r, file_number, tensor, NULL, w->options.allocator));
    LMC__TRY(lmc__append(&w->quantizers, &q, sizeof q)); /* cannot fail: there is room */
    if (!q->info.is_lossless) hints->quantizer = q;
    return LMC_OK;
}
#endif

static enum lmc_status lmc__copy_bytes(lmc_writer *w, lmc_reader *r, size_t file_number,
                                       const lmc_file *file, lmc__buffer *piece)
{
    uint32_t crc = 0;
    uint64_t at;
    size_t n;
    LMC__TRY(lmc__reserve(piece, lmc__min64(file->size, LMC__COPY_SIZE)));
    for (at = 0; at < file->size; at += n) {
        n = (size_t)lmc__min64(file->size - at, LMC__COPY_SIZE);
        LMC__TRY(lmc_reader_read_file(r, file_number, at, piece->data, n));
        crc = r->coder->wave.k->crc32c(crc, piece->data, n);
        LMC__TRY(lmc_writer_write(w, piece->data, n));
    }
    LMC__VALID(crc == file->crc);
    return LMC_OK;
}

static enum lmc_status lmc__copy_whole_file(lmc_writer *w, lmc_reader *r, size_t file_number)
{
    const lmc_file *const file = lmc_reader_get_file(r, file_number);
    lmc__buffer piece;
    enum lmc_status status;
#ifndef LMC_NO_QUANTIZE
    size_t i;
    for (i = 0; i < file->n_tensors && w->options.may_quantize; i++)
        if (file->tensors[i].loss.generation) LMC__TRY(lmc__copy_quantizer(w, r, file_number, i));
#endif
    lmc__init_buffer(&piece, w->options.allocator);
    status = lmc_writer_begin_file(w, file, LMC_AUTO);
    if (status == LMC_OK) status = lmc__copy_bytes(w, r, file_number, file, &piece);
    if (status == LMC_OK) status = lmc_writer_end_file(w);
    lmc__free_buffer(&piece);
    return status;
}

/* After an error the writer cannot be used, as after errors of its other functions. */
LMC__COLD LMC_API enum lmc_status lmc_writer_copy_file(lmc_writer *w, lmc_reader *r,
                                                       size_t file_number)
{
    enum lmc_status status;
    if (!w || !r || r->is_salvage || !lmc_reader_get_file(r, file_number)) return LMC_ERR_ARGUMENT;
    if (w->status != LMC_OK) return w->status;
    status = lmc__copy_whole_file(w, r, file_number);
    if (w->status == LMC_OK) w->status = status;
    return status;
}

/* Appends those records that remain true if the same content is coded again: bits 0 and 1 of their
 * tags are clear (spec 4.5). They are copied as they are, since the reader has checked them. */
static enum lmc_status lmc__keep_records(lmc__buffer *out, lmc__cursor c, uint64_t *n)
{
    uint64_t tag, size, n_kept = 0;
    out->size = 0;
    while (lmc__left(&c) != 0) {
        const uint8_t *const record = c.p;
        LMC__TRY(lmc__get_varint(&c, &tag));
        LMC__TRY(lmc__get_varint(&c, &size));
        (void)lmc__take_bytes(&c, (size_t)size);
        if (tag & 3) continue;
        LMC__TRY(lmc__append(out, record, (size_t)(c.p - record)));
        n_kept++;
    }
    *n = n_kept;
    return LMC_OK;
}

/* Records of several files count them and their tensors from the start of their section, which the
 * writer does not keep together. */
LMC__COLD LMC_API enum lmc_status lmc_writer_copy_records(lmc_writer *w, const lmc_reader *r,
                                                          size_t file_number, uint64_t *n_copied)
{
    const lmc__tables *const t = r ? &r->tables : NULL;
    const lmc__stream *stream;
    if (!w || !r || !n_copied || r->is_salvage || w->in_file || w->is_finished)
        return LMC_ERR_ARGUMENT;
    if (w->status != LMC_OK) return w->status;
    if (file_number == t->listing.n_files)
        return w->status = lmc__keep_records(&w->index_records, t->records, n_copied);
    if (file_number > t->listing.n_files) return LMC_ERR_ARGUMENT;
    stream = lmc__stream_at(&t->listing, lmc__file_at(r, file_number)->stream);
    if (stream->n_files == 1)
        return w->status = lmc__keep_records(&w->file_records, stream->records, n_copied);
    *n_copied = 0;
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */

/* == snapshot/identify.h ======================================================================= */

/* Computes fingerprints of files that are in no snapshot, so that any directory can be a base (spec
 * 7.3). It uses the digester and the waves of the writer, but codes no blocks. Memory: 2 MiB for
 * each worker, and a fingerprint for each tensor. */

/* A task that computes sums but codes nothing. The file's CRC is joined from the jobs' CRCs. */
static void lmc__identify_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const uint8_t *const content = job->job.src;
    (void)worker;
    lmc__set_piece_sums(c, job, content, job->job.src_size,
                        c->wave.k->crc32c(0, content, job->job.src_size));
    job->job.status = LMC_OK;
}

/* Bytes of one task: a multiple of the size of a leaf. */
#define LMC__IDENTIFY_SIZE LMC__WAVE_SIZE

/* Reads the file in spans, and absorbs each span before it reads the next. Takes exactly file->size
 * bytes from the stream. If the stream has fewer: LMC_ERR_TRUNCATED. */
static enum lmc_status lmc__identify_file(lmc__coder *c, lmc__digester *d, const lmc_file *file,
                                          const lmc_stream *stream)
{
    const uint64_t span =
        lmc__min64(4 * (uint64_t)lmc__count_workers(c->parallel) * LMC__IDENTIFY_SIZE, file->size);
    c->stream = *stream;
    c->task = lmc__identify_task;
    LMC__TRY(lmc__reserve(&c->in[0], span));
    while (d->absorbed < file->size) {
        size_t at;
        lmc__want(c, c->in[0].data, (size_t)lmc__min64(span, file->size - d->absorbed));
        lmc__read_portion(c);
        LMC__TRY(c->read_status);
        if (c->read_got < c->read_size) return LMC_ERR_TRUNCATED;
        for (at = 0; at < c->read_got; at += LMC__IDENTIFY_SIZE) {
            lmc__snapshot_job *job;
            LMC__TRY(lmc__add_job(c, &job));
            job->job.src = c->in[0].data + at;
            job->job.src_size = lmc__min(LMC__IDENTIFY_SIZE, c->read_got - at);
            LMC__TRY(lmc__plan_pieces(c, d, job, job->job.src_size));
        }
        lmc__want(c, NULL, 0);
        LMC__TRY(lmc__run_step(c));
        lmc__absorb_pieces(c, d);
    }
    lmc__finish_digester(d);
    return LMC_OK;
}

/* To check the description, it is written as a FILE body and parsed. file and tensors change only
 * at the end. tensors is file->tensors without const. */
LMC__COLD LMC_API enum lmc_status lmc_file_identify(lmc_file *file, lmc_tensor *tensors,
                                                    const lmc_stream *stream,
                                                    const lmc_parallel *parallel,
                                                    const lmc_allocator *allocator)
{
    lmc__buffer body;
    lmc__listing checked;
    lmc__digester digester;
    lmc__coder coder;
    enum lmc_status status;
    if (!file || tensors != file->tensors || file->size == LMC_UNKNOWN_SIZE)
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    LMC__TRY(lmc__check_parallel(parallel));
    LMC__TRY(lmc__check_allocator(allocator));
    lmc__init_buffer(&body, allocator);
    lmc__init_listing(&checked, allocator);
    lmc__open_coder(&coder, parallel, allocator);
    status =
        lmc__append_file(&body, file, NULL); /* `body`: the FILE body, later the fingerprints */
    if (status == LMC_OK) status = lmc__list_files(&checked, body.data, body.size);
    if (status == LMC_ERR_CORRUPT || status == LMC_ERR_UNSUPPORTED) status = LMC_ERR_ARGUMENT;
    body.size = 0;
    if (status == LMC_OK)
        status = lmc__append(&body, NULL, LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file));
    if (status == LMC_OK) {
        lmc__begin_digester(&digester, file);
        digester.fingerprints = body.data;
        status = lmc__identify_file(&coder, &digester, file, stream);
    }
    if (status == LMC_OK) {
        file->crc = digester.file_crc;
        lmc__keep_fingerprints(file, body.data);
    }
    lmc__free_coder(&coder);
    lmc__free_buffer(&body);
    lmc__free_listing(&checked);
    return status;
}

/* Opening an origin computes the base's fingerprint. No byte of content is read. */
LMC__COLD LMC_API enum lmc_status lmc_base_identify(const lmc_base *base,
                                                    uint8_t fingerprint[LMC_FINGERPRINT_SIZE],
                                                    const lmc_allocator *allocator)
{
    lmc__origin origin;
    enum lmc_status status;
    if (!base || !fingerprint) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    status = lmc__open_origin(&origin, NULL, base, allocator);
    if (status == LMC_OK) memcpy(fingerprint, origin.fingerprint, LMC_FINGERPRINT_SIZE);
    lmc__free_origin(&origin);
    return status;
}

/* == snapshot/probe.h ========================================================================== */

/* What a file is, and where its parts are, without a reader. Nothing is allocated. */

/* Bytes of the end that are read at once: the trailer and, in small files, the index. */
#define LMC__PROBED_SIZE 4096u
/* The index up to its fingerprint: the head of its section, the copy of the header. */
#define LMC__INDEX_HEAD_SIZE                                                                       \
    (LMC__SECTION_HEADER_SIZE + LMC__INDEX_FINGERPRINT_AT + LMC_FINGERPRINT_SIZE)

static enum lmc_status lmc__read_source(const lmc_source *source, uint64_t offset, void *dst,
                                        size_t size)
{
    return size ? source->read_at(source->user, offset, dst, size) : LMC_OK;
}

/* Checks a header and adds what it says to info. size: at most LMC__HEADER_SIZE */
static enum lmc_status lmc__add_header_info(lmc_snapshot_info *info, const uint8_t *header,
                                            size_t size)
{
    lmc_snapshot_info found;
    const enum lmc_status status = lmc_header_parse(header, size, &found);
    memcpy(found.fingerprint, info->fingerprint, LMC_FINGERPRINT_SIZE);
    found.size = info->size;
    found.index_offset = info->index_offset;
    found.index_size = info->index_size;
    *info = found;
    return status;
}

/* As for a reader, the end tells where the index is, which has a copy of the header. The header
 * itself is read only if there is no trailer, or if the copy is damaged. */
LMC__COLD LMC_API enum lmc_status lmc_snapshot_probe(const lmc_source *source,
                                                     lmc_snapshot_info *info)
{
    uint8_t tail[LMC__PROBED_SIZE], head[LMC__INDEX_HEAD_SIZE];
    enum lmc_status status = LMC_ERR_TRUNCATED;
    uint64_t at;
    size_t size;
    if (!info) return LMC_ERR_ARGUMENT;
    memset(info, 0, sizeof *info);
    LMC__CHECK_CALLBACKS(source, read_at);
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    size = (size_t)lmc__min64(source->size, sizeof tail);
    at = source->size - size; /* where the tail begins */
    LMC__TRY(lmc__read_source(source, at, tail, size));
    if (source->size >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE &&
        memcmp(tail + size - sizeof LMC__END_MAGIC + 1, LMC__END_MAGIC, 8) == 0)
        status = lmc__check_trailer(info, tail + size - LMC__TRAILER_SIZE, source->size,
                                    lmc__get_kernels());
    if (status == LMC_OK && info->index_size < LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE)
        status = LMC_ERR_CORRUPT;
    if (status == LMC_OK) {
        if (info->index_offset >= at)
            memcpy(head, tail + (size_t)(info->index_offset - at), sizeof head);
        else LMC__TRY(lmc__read_source(source, info->index_offset, head, sizeof head));
        memcpy(info->fingerprint, head + LMC__SECTION_HEADER_SIZE + LMC__INDEX_FINGERPRINT_AT,
               LMC_FINGERPRINT_SIZE);
        if (lmc__add_header_info(info, head + LMC__SECTION_HEADER_SIZE, LMC__HEADER_SIZE) == LMC_OK)
            return LMC_OK;
    }
    size = (size_t)lmc__min64(source->size, LMC__HEADER_SIZE);
    if (at == 0) memcpy(head, tail, size);
    else LMC__TRY(lmc__read_source(source, 0, head, size));
    LMC__TRY(lmc__add_header_info(info, head, size));
    return status;
}

/* Reads size bytes at extent->wanted, which grows by size. */
static enum lmc_status lmc__read_wanted(const lmc_source *source, lmc_snapshot_extent *extent,
                                        void *dst, size_t size)
{
    const uint64_t at = extent->wanted;
    extent->wanted += size; /* at most 2^63 + 2^40 before */
    if (extent->wanted > source->size) return LMC_ERR_TRUNCATED;
    return lmc__read_source(source, at, dst, size);
}

/* No block is shorter than the header of a section: its own is longer. */
LMC__COLD LMC_API enum lmc_status lmc_snapshot_measure(const lmc_source *source,
                                                       lmc_snapshot_extent *extent)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t head[LMC__HEADER_SIZE];
    lmc_snapshot_info info;
    lmc__section section;
    lmc_block_info block;
    uint32_t number = 0; /* of the next block in its run */
    uint64_t at;
    if (!extent) return LMC_ERR_ARGUMENT;
    memset(extent, 0, sizeof *extent);
    LMC__CHECK_CALLBACKS(source, read_at);
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__read_wanted(source, extent, head, LMC__HEADER_SIZE));
    LMC__TRY(lmc_header_parse(head, sizeof head, &info));
    for (;;) {
        at = extent->wanted;
        LMC__TRY(lmc__read_wanted(source, extent, head, LMC__SECTION_HEADER_SIZE));
        if (head[0] == LMC__BLOCK_SYNC) {
            LMC__TRY(lmc__read_wanted(source, extent, head + LMC__SECTION_HEADER_SIZE,
                                      LMC_BLOCK_HEADER_SIZE - LMC__SECTION_HEADER_SIZE));
            LMC__TRY(lmc__read_block_info(k, head, LMC_BLOCK_HEADER_SIZE, number++, &block));
            extent->wanted = at + block.encoded_size;
            continue;
        }
        LMC__TRY(lmc__get_section(&section, head, k));
        if (!extent->runs_offset && lmc__is_kind(&section, "RUN ")) extent->runs_offset = at;
        number = 0;
        extent->wanted += section.size;
        if (!lmc__is_kind(&section, "INDX")) continue;
        LMC__TRY(lmc__read_wanted(source, extent, head, LMC__TRAILER_SIZE));
        LMC__TRY(lmc__check_trailer(&info, head, extent->wanted, k));
        LMC__VALID(info.index_offset == at);
        extent->end = extent->wanted;
        return LMC_OK;
    }
}

/* == snapshot/in_place.h ======================================================================= */

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

/* == snapshot/match.h ========================================================================== */

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

/* == snapshot/shared.h ========================================================================= */

/* Readers of one snapshot for several threads. What opening has made does not change afterwards,
 * so the structs that describe it are copied, and point to the memory of `from`:
 *     shared    source, options, tables, names, paths, info; origin: items, ranges
 *     own       held, blocks, hashes, fingerprints, coder, windows, meter; origin: wide
 *
 * A chain of readers becomes a chain of shared readers, each of which owns the one below. */

typedef struct lmc__shared {
    lmc_reader reader; /* the first member */
    lmc_base base;     /* of the chain's next reader; user is NULL if it shares none */
} lmc__shared;

LMC__COLD static void lmc__free_shared(lmc_reader *r)
{
    lmc_reader_free((lmc_reader *)((lmc__shared *)(void *)r)->base.user);
    lmc__init_tables(&r->tables, NULL); /* the memory belongs to another reader */
    r->names.data = r->paths.data = r->origin.items.data = r->origin.ranges.data = NULL;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_open_shared(lmc_reader **reader, lmc_reader *from)
{
    lmc_reader *below = NULL, *r;
    lmc__shared *s;
    enum lmc_status status;
    LMC__NEW_OBJECT(reader);
    if (!from || from->is_salvage) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__sort_names(from));
    if (from->origin.base && from->origin.base->read == lmc__read_as_base)
        LMC__TRY(lmc_reader_open_shared(&below, (lmc_reader *)from->origin.base->user));
    s = (lmc__shared *)lmc__realloc(from->options.allocator, NULL, 0, sizeof *s);
    if (!s) {
        lmc_reader_free(below);
        return LMC_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    r = &s->reader;
    *r = *from;
    r->struct_size = sizeof *s;
    r->free_extra = lmc__free_shared;
    lmc__open_coder(&r->own_coder, from->coder->parallel, r->options.allocator);
    lmc__init_buffers(r, LMC__ROW(lmc_reader, held, names), r->options.allocator);
    lmc__init_buffers(r, LMC__ROW(lmc_reader, base, held_at), r->options.allocator);
    memset(&r->as_base, 0, sizeof r->as_base);
    memset(&r->back, 0, sizeof r->back);
    lmc__init_buffers(&r->as_base, LMC__WINDOW_BUFFERS, r->options.allocator);
    lmc__init_buffers(&r->back, LMC__WINDOW_BUFFERS, r->options.allocator);
    lmc__init_buffer(&r->origin.wide, r->options.allocator);
    memset(&r->own_meter, 0, sizeof r->own_meter);
    r->meter = &r->own_meter;
    r->below = below;
    r->account = 0;
    r->coder = &r->own_coder;
    r->origin.listing = &r->tables.listing;
    r->origin.user = r;
    if (below) {
        s->base = lmc_reader_base(below);
        r->origin.base = r->options.base = &s->base;
        r->meter = below->meter;
        /* a chain that has one coder has one here, too */
        if (from->options.lender) r->coder = below->coder;
    }
    status = lmc__append(&r->blocks, from->blocks.data, from->blocks.size);
    if (status == LMC_OK)
        status = lmc__append(&r->first_blocks, from->first_blocks.data, from->first_blocks.size);
    if (status != LMC_OK) lmc_reader_free(r);
    else *reader = r;
    return status;
}

/* == snapshot/reader_sections.h ================================================================ */

/* Reads ancillary sections, and the hashes of content, which are in one of them. */

static const lmc__ancillary *lmc__ancillary_at(const lmc_reader *r, size_t i)
{
    return (const lmc__ancillary *)(const void *)r->tables.ancillary.data + i;
}

LMC_API enum lmc_status lmc_reader_get_section(const lmc_reader *r, size_t i, char kind[5],
                                               uint64_t *size)
{
    const lmc__ancillary *a;
    if (!r || !kind || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->tables.ancillary.size / sizeof *a) return LMC_ERR_NOT_FOUND;
    a = lmc__ancillary_at(r, i);
    memcpy(kind, a->kind, 4);
    kind[4] = 0;
    *size = a->size - LMC__SECTION_HEADER_SIZE;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_section(lmc_reader *r, size_t i, void *dst,
                                                          size_t dst_cap)
{
    const lmc__kernels *const k = r ? r->coder->wave.k : NULL;
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    char kind[5];
    lmc__section section;
    uint64_t size;
    if (!dst) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc_reader_get_section(r, i, kind, &size));
    if (size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    LMC__TRY(lmc__read_at(r, lmc__ancillary_at(r, i)->at, head, sizeof head));
    LMC__TRY(lmc__get_section(&section, head, k));
    LMC__VALID(lmc__is_kind(&section, kind) && section.size == size);
    LMC__TRY(lmc__read_at(r, lmc__ancillary_at(r, i)->at + sizeof head, dst, (size_t)size));
    LMC__CHECK(k->crc32c(0, (const uint8_t *)dst, (size_t)size) == section.body_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* Reads the section of hashes to r->hashes, once. If several sections have the kind "hash", their
 * first bytes tell which section is known. Checks Snapshot_Hash against the tables and the
 * metadata. A caller that trusts Snapshot_Hash may trust these and the hashes of content. */
LMC__COLD static enum lmc_status lmc__read_hashes(lmc_reader *r)
{
    const lmc__tables *const t = &r->tables;
    lmc__buffer *const body = &r->hashes;
    size_t i;
    for (i = 0; body->size == 0; i++) {
        enum lmc_status status;
        uint64_t size;
        char kind[5];
        int is_hash;
        LMC__TRY(lmc_reader_get_section(r, i, kind, &size));
        if (memcmp(kind, "hash", 4) != 0 || size < LMC__HASH_HEAD_SIZE) continue;
        if (size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
        LMC__TRY(lmc__append(body, NULL, (size_t)size));
        status = lmc_reader_read_section(r, i, body->data, body->size);
        is_hash = status == LMC_OK && lmc__is_hash_body(body->data, body->size);
        if (is_hash)
            status = lmc__check_snapshot_hash(body, &t->listing, t->metadata_at, t->n_metadata,
                                              &r->coder->in[0]);
        if (status != LMC_OK || !is_hash) body->size = 0;
        LMC__TRY(status);
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_reader_read_snapshot_hash(lmc_reader *r, uint8_t hash[32])
{
    if (!r || !hash || r->is_salvage) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_hashes(r));
    memcpy(hash, r->hashes.data + LMC__HASH_HEAD_SIZE, LMC__HASH_SIZE);
    return LMC_OK;
}

/* The number of a tensor in the file. n_tensors: it is a copy, or belongs to another file. */
static size_t lmc__number_of_tensor(const lmc_file *f, const lmc_tensor *tensor)
{
    const size_t i = ((uintptr_t)tensor - (uintptr_t)f->tensors) / sizeof *tensor;
    return i < f->n_tensors && tensor == &f->tensors[i] ? i : f->n_tensors;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_content_hash(lmc_reader *r, size_t file_number,
                                                               const lmc_tensor *tensor,
                                                               uint8_t hash[32])
{
    const lmc_file *const file = lmc_reader_get_file(r, file_number);
    size_t i, number;
    if (!file || !hash || r->is_salvage) return LMC_ERR_ARGUMENT;
    number = tensor ? lmc__number_of_tensor(file, tensor) : file->n_tensors;
    if (tensor && number == file->n_tensors) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_hashes(r));
    for (i = 0; i < file_number; i++) number += lmc_reader_get_file(r, i)->n_tensors + 1;
    memcpy(hash, r->hashes.data + LMC__HASH_BODY_SIZE + LMC__HASH_SIZE * number, LMC__HASH_SIZE);
    return LMC_OK;
}

/* == snapshot/reader_places.h ================================================================== */

/* Tells how many encoded bytes a part of a file has, and where they are. */

/* If `stored` bytes encode `size` bytes: how many of them count for the first x bytes. This share
 * never falls as x grows, so differences of shares add up. */
static uint64_t lmc__share(uint64_t stored, uint64_t size, uint64_t x)
{
    uint64_t rest = stored % size, whole = stored / size * x;
    unsigned shift = 0;
    while (size >> shift > UINT32_MAX) shift++;
    return whole + ((rest >> shift) * (x >> shift) / (size >> shift) << shift);
}

/* Adds up the shares of runs, without reading rows. So the sizes of a file's parts add up. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_size(const lmc_reader *r, size_t file_number,
                                                          uint64_t offset, uint64_t size,
                                                          uint64_t *encoded_size)
{
    const lmc__stream *stream;
    if (!r || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    *encoded_size = 0;
    while (size != 0) {
        const lmc__reader_run *const run = lmc__run_at(r, lmc__find_run(r, stream, offset));
        const uint64_t at = offset - run->run.start, n = lmc__min64(size, run->run.size - at);
        *encoded_size += lmc__share(run->end - run->at, run->run.size, at + n) -
                         lmc__share(run->end - run->at, run->run.size, at);
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* The range from the first to the last block that has some of the bytes. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_range(lmc_reader *r, size_t file_number,
                                                           uint64_t offset, uint64_t size,
                                                           uint64_t *encoded_offset,
                                                           uint64_t *encoded_size)
{
    const lmc__stream *stream;
    uint64_t from = 0, to = 0, last;
    if (!r || !encoded_offset || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    if (size != 0) { /* a file of 0 bytes may have no run */
        last = offset + size - 1;
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, offset), offset, 0, &from));
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, last), last, 1, &to));
    }
    *encoded_offset = from;
    *encoded_size = to - from;
    return LMC_OK;
}

#endif

#endif /* LMC_IMPLEMENTATION */
