#pragma once
#include "api.h"

/* -- configuration --
 * Define these before including lmc_extra.h, the same in every file, on systems that have more than
 * the C library:
 *
 *   LMC_PTHREADS         lmc_pool: threads for lmc_parallel. Link with -pthread
 *   LMC_POSIX            file descriptors as sinks, streams and sources
 *
 * What the macros of lmc.h leave out, and what lmc_read.h and lmc_decode.h lack, is not here. */
#ifdef __cplusplus
extern "C" {
#endif

/* -- threads and file descriptors -- */

#ifdef LMC_PTHREADS
/* A pool of n_workers - 1 threads, and the thread that calls; fewer, if the system has not that
 * many. Any number of writers, readers and calls may share it; their waves then take turns. What a
 * task calls (a sink's write, a stream's read) must not use the same pool: it would wait for
 * itself. Define LMC_PTHREADS also where lmc_extra.h is implemented. Errors: ARGUMENT, MEMORY. */
typedef struct lmc_pool lmc_pool;
LMC_STATUS lmc_pool_open(lmc_pool **pool, unsigned n_workers, void *alloc_user);
/* Valid as long as the pool; NULL for NULL. */
LMC_API const lmc_parallel *lmc_pool_parallel(const lmc_pool *pool);
/* Nothing may use the pool any more. NULL allowed. */
LMC_API void lmc_pool_free(lmc_pool *pool);
#endif

#if defined(LMC_POSIX) && !defined(LMC_NO_SNAPSHOT)
/* File descriptors, as lmc_stdio_sink and its neighbours take files of the C library: they stay the
 * caller's. A source moves the descriptor's offset. */
LMC_API lmc_sink lmc_fd_sink(int fd);
LMC_API lmc_stream lmc_fd_stream(int fd);
LMC_STATUS lmc_fd_source(lmc_source *source, int fd);
#endif

/* -- what has changed -- */

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* Elements that differ: their numbers, ascending, and what they are now, one behind another. For
 * receivers that change single elements of what they have. */
typedef struct lmc_changes {
    uint32_t *indices;
    void *values; /* of any alignment */
    size_t cap;   /* room for so many, at least one */
    size_t n;     /* so many are there; more are put behind them */
} lmc_changes;
/* Compares n elements of `width` bytes (1, 2, 4, 8) at src with those at base, bit by bit: -0 is
 * not 0, and a NaN is itself. The element at src has the number `first`, and first + n is at most
 * 2^32. Where there is no room for the next one that differs, it ends before it: *n_compared is
 * less than n then, and the call goes on for the rest once changes->n is 0. An array may come in
 * parts. It takes the time of reading both, if few elements differ. Errors: ARGUMENT. */
LMC_STATUS lmc_changes_add(lmc_changes *changes, const void *src, const void *base, size_t n,
                           unsigned width, uint32_t first, size_t *n_compared);
#endif

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* -- how a tensor is quantised -- */

enum lmc_role { LMC_ROLE_OTHER = 0, LMC_ROLE_FIRST_MOMENT = 1, LMC_ROLE_SECOND_MOMENT = 2 };

typedef struct lmc_quantizer_options {
    size_t struct_size;   /* as of a block's */
    enum lmc_dtype dtype; /* F32 or BF16; others stay as they are */
    enum lmc_role role;
    unsigned bits;            /* 4 .. 8: the finest grid that takes less, on average, for each
                                 element that is not zero. 0: the coarsest one that keeps to the
                                 bound */
    enum lmc_measure measure; /* of the bound */
    unsigned generation;      /* of the elements: 0, unless they were quantised before */
    double bound;             /* above 0, below 1 */
    uint64_t group;           /* neighbours that are of one scale: the elements of a row; 0: 256 */
    double eps;               /* of the optimizer; 0: 1e-8 */
    lmc_source second_elements;  /* of a first moment: the second moment of the same parameters; or
                                    all zero */
    const lmc_quantizer *second; /* the quantiser of that, or NULL: it stays as it is */
    void *alloc_user;
} lmc_quantizer_options;

/* Finds how to quantise a tensor. On LMC_OK there always is a quantiser: one that keeps the tensor
 * as it is where quantising would not make it a tenth smaller, the bound cannot be held, or more
 * than 1 % of the elements cannot be quantised (see info.reason). Reads the elements once for the
 * scales, and samples of up to 4 Mi of them a few times. Memory: 1 MiB; 2 bytes for each group
 * stay. Errors: ARGUMENT, MEMORY, those of read. */
LMC_STATUS lmc_quantizer_fit(lmc_quantizer **quantizer, const lmc_source *elements,
                             const lmc_quantizer_options *options);
#endif

#ifndef LMC_NO_SNAPSHOT
#ifndef LMC_NO_ENCODER
/* -- what is written -- */

/* Copies a whole file of the reader to the writer, with its tensors: to take files out of a
 * snapshot, or to change its base or level. Tensors that were quantised stay so if the writer's
 * may_quantize is set; but first moments that were as updates are stored as floats. Memory: 4 MiB.
 * Errors: ARGUMENT, CORRUPT, those of reading and writing; the writer cannot be used then. */
LMC_STATUS lmc_writer_copy_file(lmc_writer *writer, lmc_reader *reader, size_t file_number);
#ifndef LMC_NO_QUANTIZE
/* The quantiser that a tensor of loss.generation above 0 was coded with: to code it again, as small
 * and without further loss. On LMC_OK there always is one; it may keep the tensor as it is. Reads
 * all of the tensor's code. *twin, if the quantiser wants one: where the second moment is. */
LMC_STATUS lmc_reader_recover_quantizer(lmc_reader *reader, size_t file_number,
                                        const lmc_tensor *tensor, lmc_quantizer **quantizer,
                                        lmc_twin *twin);
#endif
#endif /* LMC_NO_ENCODER */

/* -- bases -- */

/* Reads a file from stream, of file->size bytes, and sets crc and fingerprint of it and of its
 * tensors (tensors: those of file->tensors). Errors: ARGUMENT, READ, TRUNCATED, MEMORY. */
LMC_STATUS lmc_file_identify(lmc_file *file, lmc_tensor *tensors, const lmc_stream *stream,
                             const lmc_parallel *parallel, void *alloc_user);
/* Fingerprint of a base; LMC_ERR_MEMORY. */
LMC_STATUS lmc_base_identify(const lmc_base *base, uint8_t fingerprint[LMC_FINGERPRINT_SIZE],
                             void *alloc_user);
/* *can: 1 if the snapshot can be restored over its base: both have files of the same paths, kinds
 * and sizes, and what predicts an element lies where the element will lie. If the reader was not
 * given the base: 0 if the snapshot itself shows that this cannot be. Errors: ARGUMENT, MEMORY. */
LMC_STATUS lmc_reader_can_restore_in_place(const lmc_reader *reader, int *can);

/* -- what a reader tells of its file -- */

/* The SHA-256 of all of a snapshot: files, tensors, bytes, modes, times, metadata; not of how they
 * are coded (spec/hash.md). It is the one to sign. Then what this reader tells of files, tensors
 * and metadata is what was signed; of bytes that you read, compare lmc_reader_read_content_hash.
 * LMC_ERR_NOT_FOUND: there is none (content_hashes). LMC_ERR_CORRUPT: it is not this snapshot's. */
LMC_STATUS lmc_reader_read_snapshot_hash(lmc_reader *reader, uint8_t hash[32]);
/* The SHA-256 of the bytes of a tensor (NULL: of all bytes of the file that are of no tensor), as
 * the snapshot says it; no content is compared. Errors as above. */
LMC_STATUS lmc_reader_read_content_hash(lmc_reader *reader, size_t file_number,
                                        const lmc_tensor *tensor, uint8_t hash[32]);
/* Ancillary section i, in the order of the file: its kind, and the size of its body. NOT_FOUND if
 * there is none. */
LMC_STATUS lmc_reader_get_section(const lmc_reader *reader, size_t i, char kind[5], uint64_t *size);
/* Its body, to dst. Errors: DST_TOO_SMALL, CHECKSUM, CORRUPT, those of reading. */
LMC_STATUS lmc_reader_read_section(lmc_reader *reader, size_t i, void *dst, size_t dst_cap);
/* *encoded_size: encoded bytes of [offset, offset + size) of a file, by proportion: of each run
 * (spec 4.2) its share. For listings. Errors: ARGUMENT, LOST (a damaged file). */
LMC_STATUS lmc_reader_encoded_size(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                   uint64_t size, uint64_t *encoded_size);
/* Where in the LMC file those blocks are: *encoded_size bytes from *encoded_offset on, from the
 * first block to the end of the last. To fetch at once, from a source that is far away, what
 * lmc_reader_read_file will read, but for predictions. 0 and 0 for no bytes. Errors: as above. */
LMC_STATUS lmc_reader_encoded_range(lmc_reader *reader, size_t file_number, uint64_t offset,
                                    uint64_t size, uint64_t *encoded_offset,
                                    uint64_t *encoded_size);
#endif /* LMC_NO_SNAPSHOT */

#ifdef __cplusplus
}
#endif
