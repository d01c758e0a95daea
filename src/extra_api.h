#pragma once
#include "api.h"

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
