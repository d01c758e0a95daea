/* lmc_read.h - v1.0.0 - reader of LMC files: lmc.h without all that encodes
 * SPDX-License-Identifier: MIT
 *
 * ABOUT
 *   Opens, lists, reads and restores LMC files, full snapshots and deltas, from memory, files or
 *   callbacks. It has all of lmc.h except what encodes.
 *
 * SYNOPSIS
 *   In one C or C++ file of your program:
 *
 *       #define LMC_IMPLEMENTATION
 *       #include "lmc_read.h"
 *
 *   and everywhere else just #include "lmc_read.h".
 *
 * WITH lmc.h
 *   This header has the same names and structs as lmc.h. A file cannot include both (#error). A
 *   program that implements both in different files does not link, unless LMC_STATIC is defined. A
 *   file may include this header and link with a library made of lmc.h.
 *
 * The head of lmc.h says what holds for all functions: errors, bounds, hostile input, threads.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file from the files of src/. Change those, not this one.
 *   interface  api
 *   base       platform status bytes options wire_block wire_file
 *   kernels    types tables vec_swar vec_neon vec_avx2 vec_avx512 vec residual crc32c sum64
 *              sha256 split_join count merge flatten strip join_root classes ungroup patch
 *              changes half codes grids tiers dispatch
 *   codec      dtypes tree quant_params job workspace block_header get_gaps matrix get_list
 *              get_planes get_zeros get_sparse get_delta get_matrix get_codes get_quantised
 *              get_block
 *   tensor     wave tensor decode_tensor
 *   snapshot   buffer sha256 order fingerprint ends pipeline names sections files put_files texts
 *              runs index_entries hashes origin work restore index reader reader_info find open
 *              memory stdio one_call
 */
#ifndef LMC_READ_H
#define LMC_READ_H
#ifdef LMC_VERSION
#error "lmc.h, lmc_decode.h and lmc_read.h have the same names: include one of them"
#endif

/* == api.h ===================================================================================== */

/* -- configuration --
 * Define these before including lmc.h, the same in every file:
 *   LMC_STATIC           all functions are static: each file that implements them has a copy
 *   LMC_API              the text before each public function. Default: nothing; with LMC_STATIC:
 *                        static
 *
 * These leave out parts of the library and their declarations. They can be combined:
 *   LMC_NO_SNAPSHOT      layer 3: snapshots, files and names
 *   LMC_NO_QUANTIZE      quantisers. Decoding quantised blocks returns LMC_ERR_UNSUPPORTED
 *   LMC_NO_STDIO         everything that uses FILE and <stdio.h>
 *
 * These matter only where LMC_IMPLEMENTATION is defined:
 *   LMC_REALLOC(ptr, old_size, new_size)
 *                        where no lmc_allocator is given: as that. Default: the C library
 *   LMC_NO_SIMD          the portable code only
 *   LMC_NO_AVX512        on x86-64 the tiers scalar and AVX2 only
 *   LMC_SIMDE            on machines other than x86 and Arm64: compile the AVX2 code through SIMDe
 *                        (SIMD Everywhere; Debian: libsimde-dev), as the tier "simde". It is used
 *                        if the compiler's flags enable vectors (wasm32: -msimd128)
 *
 * A tier is an instruction set. No build flag is needed: the best tier is found at run time. */
#include <stddef.h>
#include <stdint.h>
#ifndef LMC_NO_STDIO
#include <stdio.h>
#endif

#ifndef LMC_API
#if defined(LMC_STATIC) && defined(__GNUC__)
#define LMC_API static __attribute__((unused))
#elif defined(LMC_STATIC)
#define LMC_API static
#else
#define LMC_API
#endif
#endif

/* Makes the compiler warn if a status is ignored. Define it as nothing to prevent that. */
#ifndef LMC_NODISCARD
#if defined(__cplusplus) && __cplusplus >= 201703L
#define LMC_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define LMC_NODISCARD __attribute__((warn_unused_result))
#else
#define LMC_NODISCARD
#endif
#endif

/* Private, like the names that begin with LMC__: before functions that return a status. */
#define LMC_STATUS LMC_NODISCARD LMC_API enum lmc_status
/* An enum can have each int, as in C: also the numbers of a later library. */
#ifdef __cplusplus
#define LMC__INT : int
#else
#define LMC__INT
#endif

/* All zero. Structs of options have initializers of their own, such as LMC_WRITER_OPTIONS(). */
#ifdef __cplusplus
#define LMC_DEFAULTS                                                                               \
    {                                                                                              \
    }
#else
#define LMC_DEFAULTS {0}
#endif
/* Defines an initializer: the defaults, with struct_size, and with what `set` sets. */
#define LMC__INITIALIZER(type, NAME, parameters, set)                                              \
    static inline type NAME parameters                                                             \
    {                                                                                              \
        type o = LMC_DEFAULTS;                                                                     \
        o.struct_size = sizeof o;                                                                  \
        set return o;                                                                              \
    }

/* -- public API --
 * Names. Functions are called lmc_NOUN_verb. n and n_... are counts. Sizes, capacities (cap) and
 * offsets are in bytes. Members is_..., has_..., can_... and may_... are 0 or 1.
 *
 * Order of arguments: the object; the part of it (file, tensor, key); offset; the buffer and its
 * size, or output parameters; options; the workspace or allocator. A function that makes an object
 * first takes the address of the pointer to it. If there are two buffers and no object, the
 * destination comes first, as with memcpy. Callbacks take user, then their arguments in the same
 * order. Comments write ARGUMENT for LMC_ERR_ARGUMENT, and so on.
 *
 * Pointers. NULL is LMC_ERR_ARGUMENT, unless said otherwise or if the size is 0. Buffers of a call
 * must not overlap, unless said otherwise. Options, and structs of callbacks that are arguments,
 * are copied; what they point to must outlive the object, or the call. A function that makes an
 * object sets its pointer to NULL on errors, so it can always be freed.
 *
 * Threads. Only one thread at a time may use an object (reader, writer, salvage) or a reader that
 * this object uses as base or lender. Threads may share a pool or a quantizer, use different
 * objects at once, and call functions without an object at any time.
 *
 * What changes within 1.x. Source code for one 1.x compiles with every later 1.x, and a compiled
 * program works with the shared library of any other 1.x:
 *   functions, enums      New ones are added, with unused numbers. Treat a status that your program
 *                         does not know as an error.
 *   structs ..._options,  grow at their ends. Their first member, struct_size, says which members a
 *   lmc_tensor_hints      program has: LMC_..._OPTIONS() sets it; the rest is as NULL. 0, as in a
 *                         struct of zeros, stands for the members of 1.0.0. Members that a program
 *                         lacks have their defaults. An impossible size is LMC_ERR_ARGUMENT.
 *   structs with          keep their size. A new member replaces a reserved word. Zero is the
 *   reserved words        member's default, or means that the library does not know the member. The
 *                         library sets them to zero. Begin with lmc_source source = LMC_DEFAULTS.
 *   other structs         do not change: lmc_loss, lmc_memory, lmc_text, lmc_changes.
 * A member that the library does not know, at the end of options or in a reserved word, must be
 * zero: else LMC_ERR_UNSUPPORTED, as the program asks for what only a later version can do. A
 * number of an enum that it does not know is LMC_ERR_ARGUMENT. */
#ifdef __cplusplus
extern "C" {
#endif

#define LMC_VERSION_MAJOR 1
#define LMC_VERSION_MINOR 0
#define LMC_VERSION_PATCH 0
#define LMC_VERSION "1.0.0"

/* Version of the file format that is written. Files of all its minor versions are read, unless they
 * use a feature that this library does not know (LMC_ERR_UNSUPPORTED). */
#define LMC_FORMAT_MAJOR 1
#define LMC_FORMAT_MINOR 0

/* Parts of the format that a decoder may lack: bits of Incompatible in the header of a file (spec
 * 3.1), of which lmc_snapshot_info.features has those that the file may use. `without`, in options,
 * has those that must not be used, for decoders that lack them. A bit that other options need is
 * LMC_ERR_ARGUMENT there; a bit that this library does not know is never used. Later versions have
 * more bits, and write a minor version above 0. */
#define LMC_FEATURE_BASE ((uint64_t)1 << 0)      /* a delta */
#define LMC_FEATURE_OWN ((uint64_t)1 << 1)       /* twins: parts that predict each other */
#define LMC_FEATURE_QUANTIZED ((uint64_t)1 << 2) /* quantised blocks */
/* Zeros apart: without it, weights with many zeros become a sixth larger. */
#define LMC_FEATURE_ZEROS ((uint64_t)1 << 3)
/* Rows and columns: without it, second moments of optimizers become 6 to 19 % larger. */
#define LMC_FEATURE_MATRIX ((uint64_t)1 << 4)
/* Codes with scales: without it, copies of FP8, INT8 and INT4 become up to four times as large. */
#define LMC_FEATURE_CODES ((uint64_t)1 << 5)

/* The version of the compiled library: LMC_VERSION, unless it was compiled from another lmc.h. */
LMC_API const char *lmc_version(void);

/* -- status -- */

/* Numbers are stable. */
enum lmc_status LMC__INT {
    LMC_OK = 0,
    LMC_ERR_ARGUMENT = 1, /* NULL, contradictory or out-of-range arguments; calls out of order */
    LMC_ERR_DST_TOO_SMALL = 2, /* dst_cap is less than the output needs */
    LMC_ERR_WORKSPACE = 3,     /* ws_size is less than lmc_block_workspace_size() */
    LMC_ERR_MEMORY = 4,        /* allocation failed */
    LMC_ERR_READ = 5,          /* reading failed; for callbacks */
    LMC_ERR_WRITE = 6,         /* writing failed; for callbacks */
    LMC_ERR_NOT_FOUND = 7,     /* no such file, tensor, metadata entry or hash */
    LMC_ERR_LIMIT = 8,         /* over a limit of the format, or one that the caller set */
    LMC_ERR_SIZE = 9,          /* needs more bytes than size_t can count */
    LMC_ERR_READ_BACK = 10,    /* the snapshot refers to itself; a read_back callback is needed */
    LMC_ERR_AMBIGUOUS = 11,    /* several files have a tensor of that name: give a path */
    LMC_ERR_CANCELLED = 12,    /* for callbacks: the caller wants to stop */
    LMC_ERR_LOST = 13,         /* salvage: the damaged file has lost these bytes */
    LMC_ERR_NOT_ONE_FILE = 14, /* lmc_decompress: the snapshot has several files or a directory */
    LMC_ERR_CHANGED = 15,      /* the data changed while it was encoded */
    LMC_ERR_DEVICE = 16,       /* lmc_cuda.h (experimental): no working GPU, driver or NVRTC */
    LMC_ERR_NOT_LMC = 20,      /* not an LMC file: wrong magic */
    LMC_ERR_VERSION = 21,      /* a version of the format that this library does not know */
    LMC_ERR_UNSUPPORTED = 22,  /* a feature that this library does not know or was built without */
    LMC_ERR_TRUNCATED = 23,    /* the input ends early */
    LMC_ERR_CORRUPT = 24,      /* the input breaks a rule of the format */
    LMC_ERR_CHECKSUM = 25,     /* a checksum does not match */
    LMC_ERR_BASE_MISSING = 30, /* a delta without its base */
    LMC_ERR_BASE_WRONG = 31    /* a base other than the one that the delta was made against */
};

/* In every program an enum has the size of int: compile C with -fno-short-enums. */
typedef char lmc__compile_with_no_short_enums[sizeof(enum lmc_status) == sizeof(int) ? 1 : -1];
/* The name of the status, such as "LMC_ERR_CORRUPT"; "LMC_ERR_?" for an unknown number. */
LMC_API const char *lmc_status_name(enum lmc_status status);
/* One line for a user: what happened and what to do. "unknown error" for an unknown number. */
LMC_API const char *lmc_status_text(enum lmc_status status);

/* Memory from the caller; NULL: from LMC_REALLOC. reallocate is like realloc, with the size of the
 * block at ptr (NULL and 0: none). new_size 0 frees. If it returns NULL for another size, the block
 * stays (LMC_ERR_MEMORY). Blocks are aligned as by malloc. It is not copied: it must outlive
 * the object that uses it, and be thread-safe if objects of several threads do. */
typedef struct lmc_allocator {
    void *(*reallocate)(void *user, void *ptr, size_t old_size, size_t new_size);
    void *user;
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_allocator;

/* -- dtypes -- */

/* The dtypes of safetensors 0.8, and five more. Numbers are stable, and files store the same
 * numbers (spec 4.1). Files store any other dtype as a string. */
enum lmc_dtype LMC__INT {
    LMC_AUTO = 0, /* bytes of unknown kind: the element width is guessed for each block */
    LMC_BOOL = 1,
    LMC_F4 = 2,
    LMC_F6_E2M3 = 3,
    LMC_F6_E3M2 = 4,
    LMC_U8 = 5,
    LMC_I8 = 6,
    LMC_F8_E5M2 = 7,
    LMC_F8_E4M3 = 8,
    LMC_F8_E8M0 = 9,
    LMC_F8_E4M3FNUZ = 10,
    LMC_F8_E5M2FNUZ = 11,
    LMC_I16 = 12,
    LMC_U16 = 13,
    LMC_F16 = 14,
    LMC_BF16 = 15,
    LMC_I32 = 16,
    LMC_U32 = 17,
    LMC_F32 = 18,
    LMC_C64 = 19,
    LMC_F64 = 20,
    LMC_I64 = 21,
    LMC_U64 = 22,
    LMC_I4 = 23, /* two in a byte; I2 and U2: four in a byte */
    LMC_U4 = 24,
    LMC_I2 = 25,
    LMC_U2 = 26,
    LMC_C128 = 27
};
#define LMC__DTYPE_COUNT 28 /* private: a later library has more */

/* "BF16" and so on, as in safetensors; "AUTO" for LMC_AUTO; NULL for an unknown number. */
LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype);
/* The dtype of that name; LMC_AUTO for any other name, and for NULL. */
LMC_API enum lmc_dtype lmc_dtype_find(const char *name);
/* Bits of one logical element (F4: 4, C64: 64); 8 for LMC_AUTO; 0 for an unknown number. */
LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype);
/* Bytes of one *coded* element: 1, 2, 4 or 8. F4 and F6 are coded as bytes, C64 as two elements of
 * 4 bytes. 1 for LMC_AUTO; 0 for an unknown number. */
LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype);

/* How much time the encoder takes for smaller output. Decoders need not know the level. Each level
 * gives the same bytes on every machine. MAX never makes a block larger than DEFAULT does, nor
 * ARCHIVE larger than MAX. Percentages are of the input, or of a delta's size. Speeds:
 * bench/README.md. Numbers are stable. */
enum lmc_level LMC__INT {
    /* Encodes and decodes faster. Larger by 0.1 to 0.5 %; deltas by up to 2 %. */
    LMC_LEVEL_FAST = -1,
    LMC_LEVEL_DEFAULT = 0,
    /* Encodes more slowly, decodes almost as fast. Smaller by 0.02 to 0.3 %; deltas up to 1 %. */
    LMC_LEVEL_MAX = 1,
    /* The smallest and slowest; deltas also decode more slowly. Smaller than MAX by less than
     * 0.1 %; deltas by up to 1.2 %. */
    LMC_LEVEL_ARCHIVE = 2
};

/* -- parallel_for of the caller -- */

/* A function that does one task. Call it once for every index below n_tasks, with a worker below
 * n_workers. No two calls with the same worker may run at the same time. */
typedef void (*lmc_task)(void *arg, size_t index, unsigned worker);

/* How the caller's threads run tasks. run() gets this n_workers, and returns when all tasks have
 * returned. Without an lmc_parallel (NULL) the calling thread runs them, one after another. */
typedef struct lmc_parallel {
    void (*run)(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers);
    void *user;
    unsigned n_workers;   /* 1 .. 1024 */
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_parallel;

#ifndef LMC_NO_SNAPSHOT
/* -- one call --
 * For whole buffers and files; for arrays with names see lmc_writer_add_arrays. They write an LMC
 * file with one source file, and read any that has one source file and no base. */

/* For compressing and decompressing. LMC_COMPRESS_OPTIONS(): the defaults, as NULL. */
typedef struct lmc_compress_options {
    size_t struct_size;   /* see "structs ..._options" above */
    enum lmc_level level; /* of compressing */
    uint64_t without;     /* of compressing: bits LMC_FEATURE_... */
    /* For decompressing; as in lmc_restore_options. Set max_total_size for files of strangers. */
    uint64_t max_index_size, max_total_size;
    const lmc_parallel *parallel; /* or NULL */
    /* Or NULL. As in lmc_writer_options. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user;                     /* of progress */
    const lmc_allocator *allocator; /* or NULL */
} lmc_compress_options;
LMC__INITIALIZER(lmc_compress_options, LMC_COMPRESS_OPTIONS, (void), )

/* The number of bytes that lmc_decompress will write, and their dtype (dtype may be NULL; LMC_AUTO
 * if the file is not one tensor). The file may lie: set a limit for files of strangers (options).
 * Errors: those of lmc_reader_open, NOT_ONE_FILE. */
LMC_STATUS lmc_decompressed_size(const void *src, size_t src_size, uint64_t *size,
                                 enum lmc_dtype *dtype, const lmc_compress_options *options);
/* Decompresses to dst. *dst_size: bytes written, all of which were checked. Errors: those of
 * lmc_decompressed_size and lmc_reader_read_file, DST_TOO_SMALL. */
LMC_STATUS lmc_decompress(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                          size_t src_size, const lmc_compress_options *options);

#ifndef LMC_NO_STDIO
/* From file to file. The result is written to dst_path.part. When it is whole and checked, it is
 * renamed to dst_path. After any error dst_path is as it was, and dst_path.part is removed (but
 * Windows cannot replace a file in one step: docs/api.md). dtype: of all bytes of the file;
 * LMC_AUTO if in doubt. (Only the command reads containers.) Errors: READ, WRITE, and above. */
LMC_STATUS lmc_decompress_file(const char *dst_path, const char *src_path,
                               const lmc_compress_options *options);
#endif
#endif /* LMC_NO_SNAPSHOT */

#if !defined(LMC_NO_SNAPSHOT)
/* Bytes with random access: an LMC file, or the elements of a tensor. read_at reads exactly size
 * bytes or fails; readers of several threads that share the source call it at once. Like each
 * callback with a status, it returns LMC_OK or an error, which the library function then returns:
 * preferably LMC_ERR_READ, LMC_ERR_WRITE or LMC_ERR_CANCELLED. To fetch several ranges at once, ask
 * lmc_reader_encoded_range first; a later version may have a callback for it in a reserved word. */
typedef struct lmc_source {
    enum lmc_status (*read_at)(void *user, uint64_t offset, void *dst, size_t size);
    void *user;
    uint64_t size;        /* bytes */
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_source;
#endif

typedef struct lmc_quantizer lmc_quantizer; /* see "quantisers" below */
#if !defined(LMC_NO_SNAPSHOT)
/* How an error is measured. A file of a later version may have any other number up to 255. */
enum lmc_measure LMC__INT {
    LMC_MEASURE_NONE = 0,
    /* For moments: the L2 norm of the change in the optimizer's update, over the update's L2
     * norm. */
    LMC_MEASURE_UPDATE = 1,
    /* The largest change of an element, over the element: no element exceeds the bound. */
    LMC_MEASURE_RELATIVE = 2,
    LMC_MEASURE_NMSE = 3 /* mean squared error over mean square */
};

/* What a tensor has lost. UPDATE and NMSE are measured on a sample, without exceptions (elements
 * that are stored as they are). For second moments they are estimates: within 2 % if the errors do
 * not depend on the size of the updates; up to 20 % too low if a few updates are far larger than
 * all others. */
typedef struct lmc_loss {
    unsigned generation;      /* how often it was quantised; 0: the tensor is exact */
    enum lmc_measure measure; /* of the last quantising */
    double error;             /* by that measure; 0 .. 1 */
} lmc_loss;
#endif

#ifndef LMC_NO_SNAPSHOT
/* -- layer 3: snapshots --
 * A snapshot holds source files, which are restored byte for byte. Some ranges of a file are
 * tensors: they have a name, a dtype and a shape, and can be read alone. A delta is a snapshot that
 * is coded against another snapshot, its base.
 *
 * Strings are NUL-terminated, and UTF-8 by convention. Only lmc_writer_add_arrays checks UTF-8:
 * escape strings before you print them. LMC_ERR_READ: a stream claims to have read too much. */

#define LMC_UNKNOWN_SIZE UINT64_MAX
#define LMC_FINGERPRINT_SIZE 16
#define LMC_MAX_RANK 32

enum lmc_file_kind LMC__INT { LMC_FILE_REGULAR = 0, LMC_FILE_DIRECTORY = 1 };

/* A tensor: a named range of a source file. */
typedef struct lmc_tensor {
    const char *name;      /* unique within the file; may be "" */
    const char *dtype;     /* the source's name, such as "BF16"; may be unknown; 1 .. 32 bytes */
    unsigned rank;         /* 0 .. LMC_MAX_RANK; 0: a scalar */
    const uint64_t *shape; /* rank entries, outermost first */
    uint64_t offset;       /* first byte within the file */
    uint64_t size;         /* bytes. For known dtypes: product of shape * lmc_dtype_bits / 8 */
    /* Set by readers and lmc_file_identify (spec 7.1); zero if not known. */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    lmc_loss loss;        /* all zero: it is exact. A quantizer of the writer sets a new one */
    uint64_t reserved[4]; /* zero; see "reserved words" above */
} lmc_tensor;

enum lmc_conversion LMC__INT {
    LMC_CONVERT_NONE = 0,
    LMC_CONVERT_F32_TO_BF16 = 1,
    LMC_CONVERT_F32_TO_F16 = 2
};
/* Rounds n F32 elements; src and dst are little-endian. ARGUMENT: not one of the conversions. */
LMC_STATUS lmc_conversion_apply(void *dst, const void *src, size_t n,
                                enum lmc_conversion conversion);

typedef struct lmc_file {
    const char *path; /* relative, '/'-separated, without "." and ".."; "": the only file */
    enum lmc_file_kind kind;
    uint64_t size;     /* bytes, or LMC_UNKNOWN_SIZE; 0 for a directory */
    int has_mode;      /* 1: mode is set */
    uint32_t mode;     /* POSIX permission bits, at most 07777 */
    int has_mtime;     /* 1: the time below is set */
    int64_t mtime_s;   /* seconds since 1970 */
    uint32_t mtime_ns; /* 0 .. 999,999,999 */
    size_t n_tensors;  /* sorted by offset, not overlapping; 0 if size is unknown */
    const lmc_tensor *tensors;
    uint32_t crc; /* CRC-32C of the whole file; set like a tensor's fingerprint */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* if n_tensors is 0: as for a tensor */
    uint64_t reserved[4];                      /* zero; see "reserved words" above */
} lmc_file;

typedef struct lmc_sink {
    enum lmc_status (*write)(void *user, const void *data, size_t size); /* appends all size
                                                                            bytes */
    void *user;
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_sink;

/* read() copies up to size bytes to dst and sets *got to their number: 0 only at the end. */
typedef struct lmc_stream {
    enum lmc_status (*read)(void *user, void *dst, size_t size, size_t *got);
    void *user;
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_stream;

/* Memory as a sink, source or stream. The sink appends to data and reallocates it (start with all
 * zero, end with lmc_memory_free). The stream reads data from position on. */
typedef struct lmc_memory {
    uint8_t *data;
    size_t size, cap;
    size_t position;
    const lmc_allocator *allocator; /* or NULL */
} lmc_memory;

/* The snapshot that a delta is coded against: files whose fingerprints are known from a reader
 * (lmc_reader_base) or from lmc_file_identify. To restore the delta, a base with the same
 * fingerprint is needed: an LMC file or plain files. Tensors are matched by name, dtype and size
 * (of several tensors, the one in the file of the same path); files without tensors by path. */
typedef struct lmc_base {
    size_t n_files;
    /* The result must be valid as long as the base is in use. */
    const lmc_file *(*get_file)(void *user, size_t file_number);
    /* Reads exactly size bytes, or fails: with READ, or the error that the base has. */
    enum lmc_status (*read)(void *user, size_t file_number, uint64_t offset, void *dst,
                            size_t size);
    void *user;
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_base;

/* They point to *memory. With NULL they have no callback: whatever gets them returns ARGUMENT. The
 * source has the bytes that are there now. */
LMC_API lmc_sink lmc_memory_sink(lmc_memory *memory);
LMC_API lmc_source lmc_memory_source(const lmc_memory *memory);
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory);
LMC_API void lmc_memory_free(lmc_memory *memory);

#ifndef LMC_NO_STDIO
/* Open files, in binary mode. The caller closes them (fclose may fail). A source moves the file's
 * position; lmc_stdio_source finds its size. NULL: as above. Errors: ARGUMENT, READ (the file
 * cannot seek, or is too large for the C library). */
LMC_API lmc_sink lmc_stdio_sink(FILE *file);
LMC_API lmc_stream lmc_stdio_stream(FILE *file);
LMC_STATUS lmc_stdio_source(lmc_source *source, FILE *file);
#endif

/* What is known of a snapshot; what is not known is 0. lmc_header_parse finds base_fingerprint to
 * features; lmc_snapshot_probe (lmc_extra.h) adds fingerprint to index_size; readers and restoring
 * have all. */
typedef struct lmc_snapshot_info {
    uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE]; /* all zero if it has no base */
    int has_base;                                   /* 1: it is a delta */
    unsigned format_major, format_minor;            /* of the version that wrote it */
    int hashes_checked; /* 1: restored with check_hashes, and it has hashes, all of them right */
    uint64_t features;  /* bits LMC_FEATURE_..., and others: what the file may use */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    uint64_t size, index_offset, index_size; /* bytes of the LMC file; where its index is */
    size_t n_files, n_metadata;
    uint64_t n_sections;  /* ancillary ones */
    uint64_t n_records;   /* extension records, which this library skips */
    uint64_t reserved[4]; /* zero; see "reserved words" above */
} lmc_snapshot_info;

/* -- restore: reads a pipe from front to back, and checks everything -- */

typedef struct lmc_restore_options {
    size_t struct_size;           /* as in lmc_block_options */
    const lmc_parallel *parallel; /* or NULL */
    uint64_t max_index_size;      /* bytes of index kept in memory; 0: 1 GiB */
    uint64_t max_total_size;      /* bytes of all files together; 0: no limit */
    /* In place: bytes that an earlier attempt wrote. They are checked, but not written again. */
    uint64_t done_size;
    const lmc_base *base; /* of a delta; or NULL; must outlive the call */
    int in_place;         /* 1: write() overwrites the base, which read_back reads; see below */
    int check_hashes;     /* 1: compares content_hashes, if any; LMC_ERR_CORRUPT if they differ */
    /* Callbacks. Each may be NULL: then its data is only checked. Paths are relative, without
     * "..": that was checked. */
    enum lmc_status (*begin_file)(void *user, const lmc_file *file, size_t file_number);
    /* The file's next bytes, already checked block by block. */
    enum lmc_status (*write)(void *user, const void *data, size_t size);
    /* Used instead of write(), for files with random access; or NULL. Several workers call it at
     * once, in any order, each with a decoded and checked block of the file that was begun last.
     * All calls return before end_file or read_back is called. Files that share blocks
     * (group_files) still use write(). ARGUMENT: write is NULL, or in_place is set. */
    enum lmc_status (*write_at)(void *user, size_t file_number, uint64_t offset, const void *data,
                                size_t size);
    /* The file's size and crc are known now. */
    enum lmc_status (*end_file)(void *user, const lmc_file *file, size_t file_number);
    /* Reads what write() got; in place, also the base's bytes that are not replaced yet. Called by
     * the caller's thread, never while write() runs. */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    /* Each entry of the metadata, in the order of the keys, after all else was checked. key ends
     * with a zero byte; value is valid during the call. */
    enum lmc_status (*metadata)(void *user, const char *key, const void *value, size_t size);
    /* As in lmc_writer_options; done: bytes of files that were decoded so far. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user;                     /* of all callbacks */
    const lmc_allocator *allocator; /* or NULL */
} lmc_restore_options;
LMC__INITIALIZER(lmc_restore_options, LMC_RESTORE_OPTIONS, (void), )

/* Restores every file of the snapshot, in order. Only when it has returned LMC_OK, everything has
 * been checked: keep the output separate until then. info, which may be NULL, has all facts then,
 * and also after the BASE_MISSING or READ_BACK below; after any other error it is all zero. Memory:
 * as for lmc_writer_write_stream. The stream is read ahead, to its end.
 *
 * With a parallel, any worker may call the stream's read() or write(). A read() and a write() may
 * run at once, but never two of the same kind. The caller's thread calls begin_file and end_file
 * while no other callback runs. Errors: READ, WRITE, MEMORY, LIMIT, SIZE, BASE_MISSING, BASE_WRONG,
 * READ_BACK, and all errors of bad input. With a wrong base nothing is written.
 *
 * A delta can be checked without its base: set none of base, write, in_place and check_hashes.
 * BASE_MISSING then means that everything that can be checked without the base is intact. The
 * content, fingerprints (info has that of the index) and CRCs of files are not checked (end_file
 * gets 0). READ_BACK means the same for a snapshot that refers to itself, if read_back is NULL.
 *
 * In place (spec/salvage.md, 2), the files of the base become those of the delta, block by block.
 * ARGUMENT: several files share blocks.
 *
 * - Before: open the delta with a reader. This finds a truncated delta, and
 *   lmc_reader_can_restore_in_place tells whether the delta can be restored in place.
 * - The base: options->base is not used. Check the base's fingerprint, or rely on the CRC of each
 *   block's content, which is compared before the block is written. begin_file() must refuse a file
 *   whose path, kind or size differs from the base's, and read_back() must refuse bytes outside of
 *   a file.
 * - Crashes: write() gets whole blocks. If the program dies while it writes a block, that block
 *   cannot be decoded any more. So first store what write() gets in another file and sync that
 *   file. Keep it until the block is in the target.
 * - Resuming: done_size of the next attempt may be the sum of the sizes that write() got.
 *   BASE_WRONG: the target's first done_size bytes are not those of the delta. ARGUMENT: done_size
 *   is within a block or beyond the end.
 * - After any error what was written stays, so the target is partly old and partly new: resume
 *   later, with an intact copy of the same delta. */
LMC_STATUS lmc_snapshot_restore(const lmc_stream *stream, lmc_snapshot_info *info,
                                const lmc_restore_options *options);

/* -- reader: random access by the index -- */

typedef struct lmc_reader lmc_reader;

typedef struct lmc_reader_options {
    size_t struct_size;      /* as in lmc_block_options */
    uint64_t max_index_size; /* as in lmc_restore_options */
    uint64_t max_total_size;
    const lmc_parallel *parallel; /* or NULL; must outlive the reader */
    const lmc_base *base;         /* or NULL; must outlive the reader */
    /* 0: a call also compares the fingerprints of all tensors that it reads whole with the index
     * (LMC_ERR_CORRUPT), and that of a whole file. This finds blocks of another snapshot, which
     * CRCs do not, but no forgery. 1: without this check, which takes some 5 % of the instructions.
     */
    int skip_fingerprints;
    /* 1: several workers may call the source's read_at at once: each reads the blocks that it
     * decodes. Not for lmc_stdio_source, which seeks. */
    int parallel_reads;
    /* Another reader, whose buffers and parallel this reader uses; or NULL. It must outlive this
     * reader, and no other thread may use it meanwhile. In a chain of deltas, give each reader to
     * the next one as lender: then the chain needs buffers only once, and has one limit of work. */
    lmc_reader *lender;
    const lmc_allocator *allocator; /* or NULL */
} lmc_reader_options;
LMC__INITIALIZER(lmc_reader_options, LMC_READER_OPTIONS, (void), )

/* Reads and checks the trailer and the index. They are in the last 64 KiB if there are up to about
 * a thousand tensors; else there is a second read. LMC_ERR_LIMIT if the files are larger than
 * max_total_size. Reading a tensor later takes one call of read_at for each 16 MiB of its encoded
 * bytes, in each snapshot of a chain; with parallel_reads one call for each block. In LMC files of
 * more than 8,000 blocks, a part of a tensor, or a tensor of a delta, takes one more call. Memory:
 * the index; about 200 bytes and its name for each tensor; 16 bytes for each block that was looked
 * up; while reading, blocks as of a writer, and up to 16 MiB of encoded bytes. A delta can be
 * listed without its base, but not read (LMC_ERR_BASE_MISSING). Errors: ARGUMENT, LIMIT, SIZE,
 * MEMORY, BASE_WRONG, those of read_at; NOT_LMC, VERSION, UNSUPPORTED, TRUNCATED, CORRUPT,
 * CHECKSUM. */
LMC_STATUS lmc_reader_open(lmc_reader **reader, const lmc_source *source,
                           const lmc_reader_options *options);
LMC_API void lmc_reader_free(lmc_reader *reader); /* NULL allowed */

/* Of a damaged file (salvage), info has what is known. */
LMC_STATUS lmc_reader_get_info(const lmc_reader *reader, lmc_snapshot_info *info);
/* File number i and its tensors, valid as long as the reader; NULL if there is none. */
LMC_API const lmc_file *lmc_reader_get_file(const lmc_reader *reader, size_t i);
/* The file of that path, and the tensor of that name. path NULL: in any file; AMBIGUOUS if several
 * files have that name. The first call sorts the names: the reader keeps 40 to 60 bytes for each. A
 * call takes O(log n) for n names. Errors: ARGUMENT, NOT_FOUND, MEMORY. */
LMC_STATUS lmc_reader_find_file(lmc_reader *reader, const char *path, size_t *file_number);
LMC_STATUS lmc_reader_find_tensor(lmc_reader *reader, const char *path, const char *name,
                                  size_t *file_number, const lmc_tensor **tensor);
/* Reads bytes [offset, offset + size) of a file to dst. Only the blocks that hold them are read,
 * and each is checked. LMC_ERR_LIMIT: the predictions would need more than 64 * (size + 2^22)
 * decoded bytes of each snapshot of the chain. Only hostile files need so many. Other errors:
 * ARGUMENT, MEMORY, those of read_at and of the base, CORRUPT, CHECKSUM, UNSUPPORTED, BASE_MISSING,
 * BASE_WRONG, LOST (salvage). */
LMC_STATUS lmc_reader_read_file(lmc_reader *reader, size_t file_number, uint64_t offset, void *dst,
                                size_t size);
/* The same for a tensor that lmc_reader_get_file or lmc_reader_find_tensor has returned. */
LMC_STATUS lmc_reader_read_tensor(lmc_reader *reader, size_t file_number, const lmc_tensor *tensor,
                                  uint64_t offset, void *dst, size_t size);
/* Parses the header of an LMC file, its first LMC_HEADER_SIZE bytes (src may have more), for
 * example to find the base before the file is opened. Errors: ARGUMENT, NOT_LMC (the first 8 bytes
 * are not LMC_MAGIC), TRUNCATED, VERSION (info has the version), CHECKSUM, CORRUPT,
 * UNSUPPORTED (info has all that it has on LMC_OK). */
#define LMC_MAGIC "\x95LMC\r\n\x1A\n"
#define LMC_HEADER_SIZE 64u
LMC_STATUS lmc_header_parse(const void *src, size_t src_size, lmc_snapshot_info *info);
/* The reader's snapshot as a base. The reader must outlive it, and must not be used for anything
 * else meanwhile. Reading through a chain of deltas takes time in proportion to its length. But if
 * many small tensors have another order than in the base, a block of the base may be decoded for
 * each of them. In a chain these factors multiply: restore such a base to files first. */
LMC_API lmc_base lmc_reader_base(lmc_reader *reader);
/* Entry i of the metadata, in ascending order of key; LMC_ERR_NOT_FOUND if there is none. *key and
 * *value stay valid as long as the reader. */
LMC_STATUS lmc_reader_get_metadata(const lmc_reader *reader, size_t i, const char **key,
                                   const void **value, size_t *size);
/* The entry of that key; or LMC_ERR_NOT_FOUND. */
LMC_STATUS lmc_reader_find_metadata(const lmc_reader *reader, const char *key, const void **value,
                                    size_t *size);
#endif /* LMC_NO_SNAPSHOT */

/* -- layer 2: tensors in memory --
 * A coded tensor is its blocks, one after another, numbered from 0. All but the last have the same
 * decoded size. There is no other header: the caller must know dtype and size. */

typedef struct lmc_tensor_options {
    size_t struct_size; /* as in lmc_block_options */
    enum lmc_dtype dtype;
    unsigned log2_block;  /* 14 .. 22: a block has 2^log2_block elements, at most 4 MiB; 0: the
                            default, which is 16 (18 for bytes, 17 for AUTO; with a prediction
                            20, or 18 for elements of 4 or 8 bytes) */
    enum lmc_level level; /* of encoding */
    uint64_t without;     /* of encoding: bits LMC_FEATURE_..., of which the first two do not matter
                             here. QUANTIZED, with a quantizer: LMC_ERR_ARGUMENT */
    const lmc_parallel *parallel; /* or NULL */
    const void *prediction;       /* of the whole tensor (see layer 1); or NULL */
    size_t prediction_size;       /* must be the tensor's size */
    /* For lossy encoding; or NULL. If it was fitted with a second moment, prediction must be the
     * decoded second moment, also for decoding. Blocks are as large as with a prediction: to
     * decode, pass the same quantizer, or the log2_block of encoding. */
    const lmc_quantizer *quantizer;
    /* For encoding without a prediction: elements in a row of the matrix that the tensor is, such
     * as its last dimension; 0: unknown. Second moments, which are nearly a product of rows and
     * columns, become 6 % smaller (LMC_FEATURE_MATRIX), and one scale for each row is found only
     * with it (LMC_FEATURE_CODES). */
    uint64_t row_size;
} lmc_tensor_options;

/* The defaults, with that dtype: the only option without a default. */
LMC__INITIALIZER(lmc_tensor_options, LMC_TENSOR_OPTIONS, (enum lmc_dtype dtype), o.dtype = dtype;)

/* Bytes of workspace to encode and decode with these options, for all workers; 0 if the options are
 * illegal. For bf16 each worker takes about 1 MiB; with a prediction about 13 MiB. A call without a
 * workspace (NULL and 0) allocates one by LMC_REALLOC (additional error: MEMORY). */
LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options);

/* Decodes the whole tensor of size bytes, coded in exactly src_size bytes at src, to dst. Of
 * options, parallel and prediction are used; dtype (the same) and log2_block (at least that of
 * encoding) only tell the size of the workspace. dst may be the prediction; after an error it is
 * then a mixture of old and new elements. Errors: ARGUMENT, WORKSPACE, TRUNCATED, CORRUPT,
 * CHECKSUM, UNSUPPORTED, BASE_MISSING, BASE_WRONG (also if prediction_size is not size). */
LMC_STATUS lmc_tensor_decode(void *dst, size_t size, const void *src, size_t src_size,
                             const lmc_tensor_options *options, void *ws, size_t ws_size);
/* The same for bytes [offset, offset + size) of a tensor of total_size bytes. Only blocks in the
 * range are decoded; of blocks before it only the headers are read. Later bytes at src are not
 * read, and total_size is not checked, unless the range is the whole tensor. The prediction is that
 * of the whole tensor, and must not overlap dst. */
LMC_STATUS lmc_tensor_decode_range(void *dst, size_t size, const void *src, size_t src_size,
                                   uint64_t offset, uint64_t total_size,
                                   const lmc_tensor_options *options, void *ws, size_t ws_size);

/* -- layer 1: blocks --
 * A block holds n >= 1 coded elements, at most LMC_MAX_BLOCK_SIZE bytes. Its header of 24 bytes has
 * the size, the width and the CRC-32C of the decoded bytes. With a prediction, it also has the
 * CRC-32C of the payload: damage is found without the prediction, and told from a wrong prediction.
 *
 * The prediction is any array of the same size that the decoder will also have. The best
 * prediction is the same elements of an earlier snapshot, or an array computed from these. The
 * encoder estimates by a sample whether the block is smaller with the prediction; at levels MAX and
 * ARCHIVE it compares encoded sizes. */

#define LMC_BLOCK_HEADER_SIZE 24u
#define LMC_MAX_BLOCK_SIZE (1u << 22)

typedef struct lmc_block_info {
    uint32_t n;           /* elements */
    unsigned width;       /* bytes per element: 1, 2, 4, 8 */
    size_t size;          /* decoded bytes: n * width */
    size_t encoded_size;  /* header and payload */
    uint32_t crc;         /* CRC-32C of the decoded bytes, as the header has it */
    int is_stored;        /* 1: the payload is the bytes themselves */
    int has_prediction;   /* 1: coded against a prediction */
    uint32_t payload_crc; /* CRC-32C of the payload if has_prediction; else 0 */
    uint64_t reserved[4]; /* zero; see "reserved words" above */
} lmc_block_info;

/* Largest encoded size of a block of size bytes: size + LMC_BLOCK_HEADER_SIZE, at most SIZE_MAX. */
LMC_API size_t lmc_block_bound(size_t size);

/* Bytes of workspace to encode or decode blocks of up to n elements of `width` bytes (1, 2, 4 or 8;
 * LMC_AUTO: 1). Any alignment will do. Each thread needs its own, and may use it again. 0 if n is
 * 0, the block is too large, or width is another number. */
LMC_API size_t lmc_block_workspace_size(size_t n, unsigned width);

typedef struct lmc_block_options {
    size_t struct_size;     /* set by LMC_BLOCK_OPTIONS: see "structs ..._options" above */
    enum lmc_dtype dtype;   /* of encoding */
    enum lmc_level level;   /* of encoding */
    uint32_t number;        /* of the block in its sequence, from 0. It is not stored, but decoding
                               checks it */
    uint64_t without;       /* of encoding: bits LMC_FEATURE_... (only ZEROS matters here) */
    const void *prediction; /* see above; or NULL */
    size_t prediction_size; /* must be the block's decoded size */
} lmc_block_options;

/* The defaults, with that dtype. */
LMC__INITIALIZER(lmc_block_options, LMC_BLOCK_OPTIONS, (enum lmc_dtype dtype), o.dtype = dtype;)

/* Reads and checks the header of a block. The payload need not be at src. Errors: ARGUMENT,
 * TRUNCATED, CORRUPT, CHECKSUM (also if number is wrong), UNSUPPORTED. */
LMC_STATUS lmc_block_parse(const void *src, size_t src_size, uint32_t number, lmc_block_info *info);

/* Decodes the block at src, which must be exactly src_size bytes long, to dst. *dst_size: decoded
 * bytes. options: only number and prediction are used; NULL: 0 and no prediction. The prediction
 * is not read if has_prediction is 0. dst may be the prediction, which is then replaced. After an
 * error the prediction is unchanged; any other dst is undefined. Time O(size) for any input.
 * Errors: those of lmc_block_parse, DST_TOO_SMALL, WORKSPACE; BASE_MISSING (the block itself is
 * intact), BASE_WRONG (the prediction has another size or other bytes). */
LMC_STATUS lmc_block_decode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                            size_t src_size, const lmc_block_options *options, void *ws,
                            size_t ws_size);

/* -- tools -- */

/* CRC-32C of size bytes; crc: 0, or the CRC of the bytes before. */
LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size);

/* Instruction sets. The numbers have no order. */
enum lmc_tier LMC__INT {
    LMC_TIER_SCALAR = 0,
    LMC_TIER_NEON = 1,
    LMC_TIER_AVX2 = 2,
    LMC_TIER_AVX512 = 3,
    LMC_TIER_SIMDE = 4,
    LMC_TIER_BEST = 255 /* for lmc_tier_limit */
};
/* "scalar", "neon", "avx2", "avx512", "simde"; NULL for an unknown number. */
LMC_API const char *lmc_tier_name(enum lmc_tier tier);
/* 1 if this build has that tier, and this machine can run it. */
LMC_API int lmc_tier_is_available(enum lmc_tier tier);
/* The tier in use: the best available one, unless limited. */
LMC_API enum lmc_tier lmc_tier_current(void);
/* For tests and measurements: uses this tier; if it is not available, the next best that is. The
 * best first: AVX512, AVX2, NEON, SIMDE, SCALAR. LMC_TIER_BEST or an unknown number: no limit.
 * Thread-safe; affects calls that start later. */
LMC_API void lmc_tier_limit(enum lmc_tier tier);

#ifdef __cplusplus
}
#endif

#endif /* LMC_READ_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__IMPLEMENTED)
#define LMC__IMPLEMENTED

/* == base/platform.h =========================================================================== */

#include <string.h>
#include <limits.h>

/* Compiler and machine; macros for all files: memory, inlining, checks. */

#ifndef LMC_REALLOC
#include <stdlib.h>
/* realloc(ptr, 0) is implementation-defined, hence the explicit free. */
#define LMC_REALLOC(ptr, old_size, new_size)                                                       \
    ((new_size) ? realloc(ptr, new_size) : (free(ptr), (void *)NULL))
#endif

/* A developer's build (make dev) compiles kernels separately: objects/object.h defines these. */
#ifndef LMC__HAS_PART
#define LMC__HAS_PART(part) 1
#define LMC__TABLE static const
#endif

/* LMC__INLINE always inlines, so that constants reach the bodies. LMC__COLD prefers small to fast
 * code. LMC__PREFETCH fetches to the second cache. LMC__UNROLL is for loops of constant length:
 * without it gcc unrolls too late and keeps arrays of vectors in memory. */
#if defined(__GNUC__)
#define LMC__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LMC__PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define LMC__INLINE static inline __attribute__((always_inline))
#define LMC__COLD __attribute__((cold))
#else
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#ifdef _MSC_VER
#define LMC__INLINE static __forceinline
#else
#define LMC__INLINE static inline
#endif
#define LMC__COLD
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define LMC__UNROLL _Pragma("GCC unroll 8")
#else
#define LMC__UNROLL
#endif

LMC__INLINE void *lmc__realloc(const lmc_allocator *a, void *ptr, size_t old_size, size_t new_size)
{
    return a ? a->reallocate(a->user, ptr, old_size, new_size)
             : LMC_REALLOC(ptr, old_size, new_size);
}

/* 0 if the byte order is not known: code that works byte by byte is right everywhere. */
#if defined(_M_X64) || defined(_M_IX86) || defined(_M_ARM64) ||                                    \
    (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define LMC__LITTLE_ENDIAN 1
#else
#define LMC__LITTLE_ENDIAN 0
#endif

/* The tiers of this build: intrinsics in functions with target attributes; kernels/dispatch.h
 * chooses the tier at run time. A helper that takes vectors needs its callers' attribute. A
 * function with fewer features may be inlined into one with more. */

/* LMC__X86: AVX2 and AVX-512. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__x86_64__)
#define LMC__X86 1
/* SSE4.2 has the CRC instruction. But zig cc sets each feature of a CPU, and may turn off crc32. */
#if defined(__clang__) && __clang_major__ >= 15
#define LMC__AVX2_FEATURES "avx2,bmi,bmi2,popcnt,sse4.2,crc32,pclmul"
#else
#define LMC__AVX2_FEATURES "avx2,bmi,bmi2,popcnt,sse4.2,pclmul"
#endif
#define LMC__AVX2 __attribute__((aligned(64), target(LMC__AVX2_FEATURES)))
#define LMC__AVX2_VPCLMUL __attribute__((aligned(64), target(LMC__AVX2_FEATURES ",vpclmulqdq")))
/* With LMC_NO_AVX512 no table has this tier's functions (tiers.h): compilers drop them. */
#ifdef LMC_NO_AVX512
#define LMC__MAY_BE_UNUSED unused
#else
#define LMC__MAY_BE_UNUSED
#endif
#define LMC__AVX512                                                                                \
    __attribute__((LMC__MAY_BE_UNUSED, aligned(64),                                                \
                   target(LMC__AVX2_FEATURES                                                       \
                          ",avx512f,avx512bw,avx512dq,avx512vl,"                                   \
                          "avx512vbmi,avx512vbmi2,avx512vpopcntdq,vpclmulqdq,gfni")))
#define LMC__SHA __attribute__((target("sse4.1,sha")))
#define LMC__INLINE_AVX2 static inline __attribute__((always_inline)) LMC__AVX2
#define LMC__INLINE_AVX2_VPCLMUL static inline __attribute__((always_inline)) LMC__AVX2_VPCLMUL
#define LMC__INLINE_AVX512 static inline __attribute__((always_inline)) LMC__AVX512
#else
#define LMC__X86 0
#endif

/* LMC__SIMDE, if the user defines LMC_SIMDE: the AVX2 code for other machines. Never on x86 or
 * Arm64: with target attributes SIMDe silently emulates the instructions. Tests may set it. */
#if defined(LMC_NO_SIMD) || !defined(LMC_SIMDE) || !defined(__GNUC__) || defined(__x86_64__) ||    \
    defined(__i386__) || defined(__aarch64__)
#undef LMC__SIMDE
#define LMC__SIMDE 0
#elif !defined(LMC__SIMDE)
/* It is used only where it is faster than the portable code: not on s390x and riscv64. */
#if LMC__LITTLE_ENDIAN && (defined(__VSX__) || defined(__wasm_simd128__) || defined(__ARM_NEON))
#define LMC__SIMDE 1
#else
#define LMC__SIMDE 0
#endif
#endif
#if LMC__SIMDE
#define LMC__AVX2
#define LMC__INLINE_AVX2 LMC__INLINE
#endif
#define LMC__AVX2_TEXT (LMC__X86 || LMC__SIMDE)

/* LMC__NEON: all AArch64 but the big-endian one, which numbers lanes in the opposite order. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__aarch64__) && LMC__LITTLE_ENDIAN
#define LMC__NEON 1
/* The CRC-32 instructions, optional in Armv8.0, as built-in functions: some compilers' arm_acle.h
 * lacks them if only a function's attribute enables them. */
#if defined(__clang__)
#define LMC__CRC __attribute__((target("crc")))
#define LMC__SHA __attribute__((target("sha2")))
#define LMC__CRC_STEP8(crc, v) __builtin_arm_crc32cd((uint32_t)(crc), v)
#define LMC__CRC_STEP1(crc, v) __builtin_arm_crc32cb((uint32_t)(crc), v)
#else
#define LMC__CRC __attribute__((target("+crc")))
#define LMC__SHA __attribute__((target("+crypto")))
#define LMC__CRC_STEP8(crc, v) __builtin_aarch64_crc32cx((uint32_t)(crc), v)
#define LMC__CRC_STEP1(crc, v) __builtin_aarch64_crc32cb((uint32_t)(crc), v)
#endif
#else
#define LMC__NEON 0
#endif

/* Orders streaming stores before the plain stores that tell other threads about them. */
#if LMC__X86
#define LMC__FENCE_STREAMS() __builtin_ia32_sfence()
#else
#define LMC__FENCE_STREAMS() ((void)0)
#endif

/* Returns the status if the condition is false. LMC__VALID: for rules of the format. */
#define LMC__CHECK(condition, status)                                                              \
    do {                                                                                           \
        if (LMC__UNLIKELY(!(condition))) return (status);                                          \
    } while (0)
#define LMC__VALID(condition) LMC__CHECK(condition, LMC_ERR_CORRUPT)

/* Returns the status of the expression unless it is LMC_OK. */
#define LMC__TRY(expression)                                                                       \
    do {                                                                                           \
        enum lmc_status lmc__s = (expression);                                                     \
        if (lmc__s != LMC_OK) return lmc__s;                                                       \
    } while (0)

LMC__INLINE size_t lmc__min(size_t a, size_t b) { return a < b ? a : b; }
LMC__INLINE uint64_t lmc__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How many groups of `size` elements have one of [at, at + n), n > 0: at % size is how many of the
 * first group come before. */
LMC__INLINE size_t lmc__count_groups(uint64_t at, size_t n, uint64_t size)
{
    return (size_t)((at % size + n - 1) / size) + 1;
}

/* == base/status.h ============================================================================= */

/* The library's version; names and texts of statuses. enum lmc_status (api.h) says what each status
 * means for a caller; spec 2.2 says which broken rule of the format gives which status.
 *
 * A text tells the user of a program what happened, then what to do. It can follow a file's name
 * ("x.lmc: not an LMC file"), so it begins with a small letter and has no full stop. */

LMC_API const char *lmc_version(void) { return LMC_VERSION; }

/* In any order: lookups compare the value. */
#define LMC__STATUS(status, text) {status, #status, text}
static const struct {
    enum lmc_status status;
    const char *name, *text;
} lmc__statuses[] = {
    LMC__STATUS(LMC_OK, "success"),
    LMC__STATUS(LMC_ERR_ARGUMENT, "invalid argument (NULL, contradictory or out of range): see the "
                                  "comment of the function in lmc.h"),
    LMC__STATUS(LMC_ERR_DST_TOO_SMALL, "the output buffer is too small: the function's bound tells "
                                       "what is enough (lmc_compress_bound, lmc_decompressed_size, "
                                       "lmc_tensor_bound, lmc_block_bound, lmc_block_parse)"),
    LMC__STATUS(LMC_ERR_WORKSPACE, "the workspace is too small: lmc_block_workspace_size and "
                                   "lmc_tensor_workspace_size tell what is enough"),
    LMC__STATUS(LMC_ERR_MEMORY, "out of memory: use fewer workers or smaller blocks"),
    LMC__STATUS(LMC_ERR_READ, "reading failed"),
    LMC__STATUS(LMC_ERR_WRITE, "writing failed"),
    LMC__STATUS(LMC_ERR_NOT_FOUND, "not found in the snapshot: list it to see what it holds"),
    LMC__STATUS(
        LMC_ERR_LIMIT,
        "exceeds a limit of the format or of the caller: raise the limit if you trust the data"),
    LMC__STATUS(LMC_ERR_SIZE, "too large for a 32-bit program: use a 64-bit build"),
    LMC__STATUS(LMC_ERR_READ_BACK, "some tensors are copies of others in the snapshot: restore it "
                                   "from a file or to files, not from a pipe to a pipe"),
    LMC__STATUS(LMC_ERR_AMBIGUOUS, "several files have a tensor of that name: name the file, too"),
    LMC__STATUS(LMC_ERR_CANCELLED, "cancelled"),
    LMC__STATUS(LMC_ERR_LOST, "lost: the damaged file does not have these bytes any more"),
    LMC__STATUS(LMC_ERR_NOT_ONE_FILE,
                "this snapshot holds several files, or a directory, not one file: restore it with "
                "lmc -d, or by lmc_snapshot_restore or lmc_reader_open"),
    LMC__STATUS(LMC_ERR_CHANGED,
                "the data changed while it was saved: save it again while nothing writes to it"),
    LMC__STATUS(LMC_ERR_DEVICE,
                "the GPU, its driver or NVRTC is missing or failed: decode on the CPU"),
    LMC__STATUS(LMC_ERR_NOT_LMC, "not an LMC file"),
    LMC__STATUS(LMC_ERR_VERSION,
                "another version of the LMC format: use the lmc that wrote it, or a newer one"),
    LMC__STATUS(LMC_ERR_UNSUPPORTED,
                "unknown feature of the LMC format: use a newer lmc, or this build leaves it out"),
    LMC__STATUS(LMC_ERR_TRUNCATED, "truncated: the data ends early; fetch or write the file again"),
    LMC__STATUS(LMC_ERR_CORRUPT, "corrupt: the data breaks a rule of the format; use another copy"),
    LMC__STATUS(LMC_ERR_CHECKSUM, "corrupt: a checksum does not match; use another copy"),
    LMC__STATUS(LMC_ERR_BASE_MISSING,
                "this is a delta: its base, the snapshot that it was made against, is needed"),
    LMC__STATUS(LMC_ERR_BASE_WRONG,
                "wrong base: not the snapshot that the delta was made against")};

LMC_API const char *lmc_status_name(enum lmc_status status)
{
    size_t i;
    for (i = 0; i < sizeof lmc__statuses / sizeof *lmc__statuses; i++)
        if (lmc__statuses[i].status == status) return lmc__statuses[i].name;
    return "LMC_ERR_?";
}

LMC_API const char *lmc_status_text(enum lmc_status status)
{
    size_t i;
    for (i = 0; i < sizeof lmc__statuses / sizeof *lmc__statuses; i++)
        if (lmc__statuses[i].status == status) return lmc__statuses[i].text;
    return "unknown error";
}

/* == base/bytes.h ============================================================================== */

/* Integers in memory, little-endian and of any alignment, as in the format (spec 2). Compilers make
 * one instruction of a memcpy of constant size. Loading two bytes is also one instruction. */
LMC__INLINE uint16_t lmc__load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}
LMC__INLINE uint32_t lmc__load32(const uint8_t *p)
{
#if LMC__LITTLE_ENDIAN
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
#else
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
#endif
}
LMC__INLINE uint64_t lmc__load64(const uint8_t *p)
{
#if LMC__LITTLE_ENDIAN
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
#else
    return (uint64_t)lmc__load32(p) | (uint64_t)lmc__load32(p + 4) << 32;
#endif
}
LMC__INLINE void lmc__store16(uint8_t *p, uint16_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 2);
#else
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
#endif
}
LMC__INLINE void lmc__store32(uint8_t *p, uint32_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 4);
#else
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
#endif
}
LMC__INLINE void lmc__store64(uint8_t *p, uint64_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 8);
#else
    lmc__store32(p, (uint32_t)v);
    lmc__store32(p + 4, (uint32_t)(v >> 32));
#endif
}

/* Element i of an array whose elements have `width` bytes, 1, 2, 4 or 8, as an integer. */
LMC__INLINE uint64_t lmc__load_element(const uint8_t *p, size_t i, unsigned width)
{
    switch (width) {
    case 1: return p[i];
    case 2: return lmc__load16(p + 2 * i);
    case 4: return lmc__load32(p + 4 * i);
    default: return lmc__load64(p + 8 * i);
    }
}
LMC__INLINE void lmc__store_element(uint8_t *p, size_t i, uint64_t v, unsigned width)
{
    switch (width) {
    case 1: p[i] = (uint8_t)v; break;
    case 2: lmc__store16(p + 2 * i, (uint16_t)v); break;
    case 4: lmc__store32(p + 4 * i, (uint32_t)v); break;
    default: lmc__store64(p + 8 * i, v);
    }
}

/* The number of the lowest one bit of v > 0. */
LMC__INLINE unsigned lmc__lowest_bit(uint64_t v)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(v);
#else
    unsigned n = 0;
    while (!(v >> n & 1)) n++;
    return n;
#endif
}

/* == base/options.h ============================================================================ */

/* Copies the caller's options to this version's struct, whichever 1.x the caller was compiled with:
 *     given, older     | struct_size | members of 1.0 |
 *     options          | size        | members of 1.0 | 0 0 0 |
 *     given, newer     | struct_size | members of 1.0 | of 1.1 | of 1.2 |
 *                                                                must be zero: unknown here
 *
 * 0 stands for the members of 1.0.0, which end at `first`: behind them an old program has something
 * else. given NULL: the defaults. A size is a multiple of sizeof(size_t): none cuts a pointer. */
#define LMC__MAX_OPTIONS_SIZE 4096u

#ifdef __GNUC__
__attribute__((noinline)) /* where gcc knows the size of `given`, it would warn of the loop */
#endif
static enum lmc_status
lmc__take_options(void *o, size_t size, size_t first, const void *given)
{
    size_t given_size = 0, i;
    memset(o, 0, size);
    if (given) memcpy(&given_size, given, sizeof given_size);
    if (given_size == 0) given_size = first;
    else if (given_size < sizeof given_size || given_size > LMC__MAX_OPTIONS_SIZE ||
             given_size % sizeof given_size)
        return LMC_ERR_ARGUMENT;
    for (i = size; i < given_size; i++)
        if (((const uint8_t *)given)[i]) return LMC_ERR_UNSUPPORTED;
    if (given) memcpy(o, given, given_size < size ? given_size : size);
    memcpy(o, &size, sizeof size); /* for functions that get the copy */
    return LMC_OK;
}

/* As above, to o, a pointer. last: the last member of 1.0.0, for ever. */
#define LMC__TAKE_OPTIONS(o, last, given)                                                          \
    lmc__take_options(o, sizeof *(o),                                                              \
                      (size_t)((const char *)(&(o)->last + 1) - (const char *)(o)), given)

/* The result of a function that makes an object: NULL on errors. */
#define LMC__NEW_OBJECT(object)                                                                    \
    LMC__CHECK(object, LMC_ERR_ARGUMENT);                                                          \
    *(object) = NULL

/* For structs of the caller: no reserved word has a meaning yet. Callbacks: `call` is needed. */
static const uint64_t lmc__no_words[4] = {0, 0, 0, 0};
#define LMC__CHECK_RESERVED(s)                                                                     \
    LMC__CHECK(!memcmp((s)->reserved, lmc__no_words, sizeof(s)->reserved), LMC_ERR_UNSUPPORTED)
#define LMC__CHECK_CALLBACKS(s, call)                                                              \
    LMC__CHECK((s) && (s)->call, LMC_ERR_ARGUMENT);                                                \
    LMC__CHECK_RESERVED(s)

LMC__INLINE enum lmc_status lmc__check_allocator(const lmc_allocator *a)
{
    if (!a) return LMC_OK;
    LMC__CHECK_CALLBACKS(a, reallocate);
    return LMC_OK;
}

LMC__INLINE int lmc__is_level(enum lmc_level level)
{
    return (int)level >= (int)LMC_LEVEL_FAST && (int)level <= (int)LMC_LEVEL_ARCHIVE;
}

/* == base/wire_block.h ========================================================================= */

/* Constants of blocks and their lists (spec 5, 6): sizes in bytes, depths and lengths in bits. */

/* Block sizes (spec 4.2): 16 KiB to 4 MiB. */
#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 22u

/* Block_Header (spec 5). */
#define LMC__BLOCK_SYNC 0xB2u   /* first byte */
#define LMC__CONTENT_CRC_AT 12u /* offset of Content_CRC */
#define LMC__PAYLOAD_CRC_AT 16u /* offset of Payload_CRC */
#define LMC__BLOCK_CRC_AT 20u   /* offset of Header_CRC */
#define LMC__PREDICTED 4u       /* in Coding; bits 0-1 are the order */
#define LMC__LAYOUT_SHIFT 5u    /* in Coding */
#define LMC__SPARSE 16u         /* in Grouping; bits 0-3: number of classes - 1 */
#define LMC__NATURAL_SHIFT 5    /* in Grouping: planes that are not grouped */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTIZED 2u
#define LMC__LAYOUT_ZEROS 3u
#define LMC__LAYOUT_MATRIX 4u
#define LMC__LAYOUT_CODES 5u

/* Codes with scales (spec/codes.md) begin with Mantissa, Half, Group_Size, First_Group. */
#define LMC__CODES_HEADER 10u
#define LMC__LEAST_CODED_GROUP 16u

/* A list's Mode byte (spec 6). */
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
};

/* Trees and masks. Depth times nesting bounds a decoder's recursion and memory. */
#define LMC__MAX_LENGTH 15u     /* of a code; depth of a tree (spec 6.2) */
#define LMC__MAX_FLAT 6u        /* depth of a flat node: one vpermb looks up 64 symbols */
#define LMC__MASK_MODE_MIN 256u /* masks of fewer bits have no mode byte (spec 6.3) */
#define LMC__MAX_NESTING 2u     /* masks within masks (spec 6.3) */
#define LMC__FROZEN_LEVELS 10u  /* trees for masks, by density (spec 6.4) */
#define LMC__MASK_GAPS 21u      /* first mode of gaps, for masks of classes only (spec 6.3) */
#define LMC__MASK_MODES 65u     /* number of modes of masks */

/* == base/wire_file.h ========================================================================== */

/* Constants of files (spec 3, 4, 7, 8, 9). Sizes are in bytes. */
#ifndef LMC_NO_SNAPSHOT

/* Header (spec 3.1). */
#define LMC__HEADER_SIZE 64u
#define LMC__ALGORITHM_AT 10u /* algorithm of fingerprints; only 1 is known */
#define LMC__FEATURES_AT 16u  /* Incompatible */
#define LMC__BASE_FINGERPRINT_AT 32u
#define LMC__HEADER_CRC_AT 60u

/* Bits of Incompatible, which tell what the file may use: all LMC_FEATURE_... of api.h. */
#define LMC__KNOWN_FEATURES ((uint64_t)63)

/* Section_Header (spec 4). */
#define LMC__SECTION_HEADER_SIZE 20u
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)

/* FILE body (spec 4.1). */
enum { /* bits of a file's Form */
       LMC__FILE_IS_DIRECTORY = 1,
       LMC__FILE_HAS_MODE = 2,
       LMC__FILE_HAS_MTIME = 4,
       LMC__FILE_IS_UNKNOWN = 8
};
#define LMC__FILE_FORMS 15u
enum { /* bits of a tensor's Form */
       LMC__TENSOR_IS_LIKE = 1,
       LMC__TENSOR_HAS_GAP = 2,
       LMC__TENSOR_HAS_LOSS = 4
};
#define LMC__TENSOR_FORMS 7u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILES ((uint32_t)1 << 28) /* of a section */
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)

/* RUN body (spec 4.2). */
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)
enum {
    LMC__PREDICT_ZERO = 0,
    LMC__PREDICT_BASE = 1,
    LMC__PREDICT_TEXT = 2, /* by the header text of a file in this snapshot */
    LMC__PREDICT_OWN = 3   /* by this snapshot; 3 + enum lmc_conversion: converted */
};
#define LMC__PREDICTIONS 6u

/* Bytes of a leaf: a fingerprint hashes sums of leaves of content (spec 7.1). */
#define LMC__LEAF_SIZE 262144u

/* INDX body, rows of BLKS, trailer (spec 8, 3.2). */
#define LMC__INDEX_FINGERPRINT_AT 64u /* after a copy of the header */
#define LMC__INDEX_SECTIONS_AT 80u
#define LMC__INDEX_METADATA_AT 84u
#define LMC__INDEX_BODY_SIZE 88u /* without its entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

/* Ends a file. As in PNG, its line ends and non-ASCII byte show a transfer as text. */
#define LMC__END_MAGIC "\x94LMC\r\n\x1A\n"
#endif

/* == kernels/types.h =========================================================================== */

/* The types that kernels work with. A kernel takes pointers and counts, parses nothing, allocates
 * nothing and cannot fail. The scalar functions define the results of all tiers.
 *
 * *Lists* are arrays of bytes in the workspace with LMC__PAD bytes of slack behind their end:
 * kernels may read that slack, and write it where they write the list, so the last vector is no
 * special case. All other memory is read and written exactly: not a byte more.
 * LMC__PAD is 64: a load or store of the largest vector may begin where a list ends.
 *
 * Names: n counts elements, i is an element's number, `width` its size in bytes; p is a plane, c a
 * class. A row has n bytes, a mask a bit for each element: bit i % 8 of byte i / 8. */
#define LMC__PAD 64u

/* The code of one case of a switch: `statement`, where `name` is a constant, then the break. */
#define LMC__WITH(name, constant, statement)                                                       \
    {                                                                                              \
        const unsigned name = constant;                                                            \
        statement;                                                                                 \
        break;                                                                                     \
    }
/* `statement` with the constants has_left and has_right: whether that side of a node is a list that
 * is read or wanted. So the loop in `statement` tests neither, and is shorter without a list. */
#define LMC__WITH_SIDES(l, r, statement)                                                           \
    {                                                                                              \
        const int has_left = l, has_right = r;                                                     \
        statement;                                                                                 \
    }
#define LMC__FOR_SIDES(left, right, statement)                                                     \
    if ((left) && (right)) LMC__WITH_SIDES(1, 1, statement)                                        \
    else if (left) LMC__WITH_SIDES(1, 0, statement)                                                \
    else if (right) LMC__WITH_SIDES(0, 1, statement)                                               \
    else LMC__WITH_SIDES(0, 0, statement)
#define LMC__LINE 64u /* bytes of a cache line on most machines */

/* How elements are ordered (spec 5.1): not; as two's complement; as sign and magnitude (floats). */
enum lmc__order { LMC__ORDER_NONE = 0, LMC__ORDER_INTEGER = 1, LMC__ORDER_FLOAT = 2 };

/* A row (a plane, spec 5.1) for each byte of an element. Rows from `width` on are not used. */
typedef struct lmc__planes {
    uint8_t *row[8];
} lmc__planes;
typedef struct lmc__const_planes {
    const uint8_t *row[8];
} lmc__const_planes;

/* One side of a merge: a list, or a constant where list is NULL. */
typedef struct lmc__side {
    const uint8_t *list;
    uint8_t value;
} lmc__side;

/* How a decoding kernel writes its block, what it fetches meanwhile, and a sum that it computes. */
typedef struct lmc__streaming {
    int is_on; /* the whole output is too large to stay in the caches: dst is written by streaming
                  stores, which bypass them. The caller ends with LMC__FENCE_STREAMS */
    const uint8_t *next; /* what will be read after this block: it is fetched meanwhile */
    size_t next_size;    /* 0: not known, or in the caches anyway */
    uint64_t *sum;       /* or NULL: join_root puts the sum64 of dst here */
} lmc__streaming;
static const lmc__streaming lmc__no_streaming = {0, NULL, 0, NULL};

/* A plane that join_root has still to merge; `row` is a list for the work. */
typedef struct lmc__merged {
    unsigned plane;
    uint8_t *row;
    const uint8_t *mask;
    lmc__side left, right;
} lmc__merged;

/* What the elements of a block are joined from. */
typedef struct lmc__join_source {
    const lmc__const_planes *planes;
    const lmc__merged *root; /* one of the planes, still to be merged; or NULL */
    unsigned width;          /* bytes of an element */
    enum lmc__order order;   /* of elements, for their residuals against 0 */
} lmc__join_source;

LMC__INLINE lmc__join_source lmc__join_from(const lmc__const_planes *planes,
                                            const lmc__merged *root, unsigned width,
                                            enum lmc__order order)
{
    lmc__join_source source;
    source.planes = planes;
    source.root = root;
    source.width = width;
    source.order = order;
    return source;
}

/* How elements are put into classes by their prediction (spec 5.2). */
#define LMC__MAX_CLASSES 16u
typedef struct lmc__grouping {
    unsigned n_classes; /* 1 .. LMC__MAX_CLASSES */
    unsigned n_natural; /* planes that are not grouped, the lowest ones */
    uint8_t threshold[LMC__MAX_CLASSES - 1];
} lmc__grouping;

/* A block of a delta: the prediction of n elements, `width` bytes each. */
typedef struct lmc__delta_block {
    const uint8_t *base;
    size_t n;
    unsigned width;
    enum lmc__order order;
    const lmc__grouping *grouping;
} lmc__delta_block;

/* A list for each class and plane. n: the elements of each class, which group counts. */
typedef struct lmc__classes {
    uint8_t *row[LMC__MAX_CLASSES][8];
    size_t n[LMC__MAX_CLASSES];
} lmc__classes;
typedef struct lmc__class_sides {
    lmc__side side[LMC__MAX_CLASSES][8];
} lmc__class_sides;

/* What has changed in a sparse block, for each class: the numbers of the elements, counted within
 * the class, ascending, then LMC__NO_CHANGE; and the residuals, `width` bytes each. */
#define LMC__NO_CHANGE UINT32_MAX
typedef struct lmc__patches {
    const uint32_t *at[LMC__MAX_CLASSES];
    const uint8_t *residual[LMC__MAX_CLASSES];
} lmc__patches;

/* What patch has overwritten: the numbers of the elements in the block, and their earlier values,
 * `width` bytes each, without gaps. Both have room for all changes. */
typedef struct lmc__undo {
    uint32_t *place;
    uint8_t *before;
    size_t n;
} lmc__undo;

/* Grids (grids.h, spec/quantised.md). Scales are the bits of an F32. */
#define LMC__EXCEPTION 65535u /* in place of a symbol: the element is on no grid */
#define LMC__MIN_SCALE 0x00800000u
#define LMC__MAX_SCALE 0x77000000u /* 2^111: its product with a number below 2^16 is finite */
#define LMC__MAX_LOG_SCALE 0x7F7F0000u

typedef struct lmc__grid {
    int is_log, is_signed;
    int32_t min;       /* of q; at most 0 */
    uint32_t n_points; /* encoding: q in [min, min + n_points); symbols stay below LMC__EXCEPTION */
    uint32_t step;     /* if is_log */
    int32_t bias;      /* of scales that follow from predictions */
    uint32_t floor;
} lmc__grid;

/* Codes with scales (codes.h, spec/codes.md). */
#define LMC__MAX_CODED_SCALE 0x6E000000u /* 2^93: times less than 2^33, a finite BF16 */
typedef struct lmc__code_form {
    unsigned mantissa, width; /* of a code, in bits; of an element, in bytes */
    int is_half;              /* elements of two bytes are F16, not BF16 */
    size_t group_size;
    uint32_t numbers[256]; /* lmc__set_numbers */
} lmc__code_form;

/* The kernels of a tier. Kernels whose first parameter is a table (their own) do the work of
 * several kernels at once. For elements behind their loop they call kernels of this table. A
 * kernel's contract is at its scalar function, or, from `restore` on, in grids.h. */
typedef struct lmc__kernels {
    enum lmc_tier tier;
    int has_fast_pdep; /* the CPUs of this table: for patch */
    uint32_t (*crc32c)(uint32_t crc, const uint8_t *p, size_t size);
#ifndef LMC_NO_SNAPSHOT
    uint64_t (*sum64)(const uint8_t *p, size_t size);
    void (*sha256)(uint32_t state[8], const uint8_t *p, size_t n);
#endif
    void (*join)(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                 enum lmc__order order);
    uint32_t (*join_root)(const struct lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                          size_t n, lmc__streaming streaming);
    void (*merge)(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left, lmc__side right);
    void (*unflatten)(uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols,
                      unsigned depth);
    size_t (*count_ones)(const uint8_t *mask, size_t size);
    void (*count_classes)(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                          unsigned width, const lmc__grouping *grouping, uint8_t *tally);
    uint32_t (*ungroup)(const struct lmc__kernels *k, uint8_t *dst, const lmc__class_sides *sides,
                        const lmc__delta_block *block, lmc__streaming streaming);
    uint32_t (*patch)(const struct lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                      const lmc__patches *changes, size_t n, unsigned width, enum lmc__order order,
                      const lmc__grouping *grouping, const uint8_t *tally, lmc__undo *undo,
                      lmc__streaming streaming);
    void (*restore_codes)(uint8_t *dst, const uint8_t *codes, size_t n, const lmc__code_form *form,
                          const uint32_t *scales, size_t first);
#ifndef LMC_NO_QUANTIZE
    void (*restore)(uint8_t *dst, const uint16_t *symbols, const uint8_t *second, size_t n,
                    uint32_t scale, const lmc__grid *grid);
    void (*join_symbols)(uint16_t *symbols, const uint8_t *high, const uint8_t *low, size_t n,
                         unsigned low_bits);
    void (*stream)(uint8_t *dst, const uint8_t *src, size_t size);
#endif
} lmc__kernels;

/* == kernels/tables.h ========================================================================== */

/* Tables and constants of the kernels. tools/tables.py writes this file and derives each number;
 * change them there. A mask m is a byte: bit i is for byte i of eight bytes. Words hold their
 * byte 0 in the lowest bits. */

/* clang-format off */
/* Facts about each value x of half a mask, four bits: N, the number of ones; P, their places,
 * without gaps; B, a byte 1 for each one; R, for each bit the number of equal bits before it,
 * plus 16 for ones. LMC__OF_MASKS: f of each m; h and l are the upper and lower half of m, H and
 * L are the halves of ~m. */
enum {
    LMC__N0 = 0, LMC__P0 = 0, LMC__B0 = 0, LMC__R0 = 0x3020100, LMC__N1 = 1, LMC__P1 = 0,
    LMC__B1 = 1, LMC__R1 = 0x2010010, LMC__N2 = 1, LMC__P2 = 1, LMC__B2 = 0x100,
    LMC__R2 = 0x2011000, LMC__N3 = 2, LMC__P3 = 0x100, LMC__B3 = 0x101, LMC__R3 = 0x1001110,
    LMC__N4 = 1, LMC__P4 = 2, LMC__B4 = 0x10000, LMC__R4 = 0x2100100, LMC__N5 = 2,
    LMC__P5 = 0x200, LMC__B5 = 0x10001, LMC__R5 = 0x1110010, LMC__N6 = 2, LMC__P6 = 0x201,
    LMC__B6 = 0x10100, LMC__R6 = 0x1111000, LMC__N7 = 3, LMC__P7 = 0x20100, LMC__B7 = 0x10101,
    LMC__R7 = 0x121110, LMC__N8 = 1, LMC__P8 = 3, LMC__B8 = 0x1000000, LMC__R8 = 0x10020100,
    LMC__N9 = 2, LMC__P9 = 0x300, LMC__B9 = 0x1000001, LMC__R9 = 0x11010010, LMC__N10 = 2,
    LMC__P10 = 0x301, LMC__B10 = 0x1000100, LMC__R10 = 0x11011000, LMC__N11 = 3,
    LMC__P11 = 0x30100, LMC__B11 = 0x1000101, LMC__R11 = 0x12001110, LMC__N12 = 2,
    LMC__P12 = 0x302, LMC__B12 = 0x1010000, LMC__R12 = 0x11100100, LMC__N13 = 3,
    LMC__P13 = 0x30200, LMC__B13 = 0x1010001, LMC__R13 = 0x12110010, LMC__N14 = 3,
    LMC__P14 = 0x30201, LMC__B14 = 0x1010100, LMC__R14 = 0x12111000, LMC__N15 = 4,
    LMC__P15 = 0x3020100, LMC__B15 = 0x1010101, LMC__R15 = 0x13121110
};
#define LMC__OF_LOW(f, h, H) \
    f(h, H, 0, 15), f(h, H, 1, 14), f(h, H, 2, 13), f(h, H, 3, 12), f(h, H, 4, 11), \
    f(h, H, 5, 10), f(h, H, 6, 9), f(h, H, 7, 8), f(h, H, 8, 7), f(h, H, 9, 6), \
    f(h, H, 10, 5), f(h, H, 11, 4), f(h, H, 12, 3), f(h, H, 13, 2), f(h, H, 14, 1), \
    f(h, H, 15, 0)
#define LMC__OF_MASKS(f) \
    {LMC__OF_LOW(f, 0, 15), LMC__OF_LOW(f, 1, 14), LMC__OF_LOW(f, 2, 13), LMC__OF_LOW(f, 3, 12), \
     LMC__OF_LOW(f, 4, 11), LMC__OF_LOW(f, 5, 10), LMC__OF_LOW(f, 6, 9), LMC__OF_LOW(f, 7, 8), \
     LMC__OF_LOW(f, 8, 7), LMC__OF_LOW(f, 9, 6), LMC__OF_LOW(f, 10, 5), LMC__OF_LOW(f, 11, 4), \
     LMC__OF_LOW(f, 12, 3), LMC__OF_LOW(f, 13, 2), LMC__OF_LOW(f, 14, 1), LMC__OF_LOW(f, 15, 0)}

/* Number of one bits of m. */
#define LMC__ONES_OF(h, H, l, L) LMC__N##h + LMC__N##l
static const uint8_t lmc__ones[256] = LMC__OF_MASKS(LMC__ONES_OF);

/* 256 numbers: number m is the exclusive or of those arguments, a to h, whose bits are set in m.
 * */
#define LMC__OF_2(v, a) v, v ^ a
#define LMC__OF_4(v, a, b) LMC__OF_2(v, a), LMC__OF_2(v ^ b, a)
#define LMC__OF_8(v, a, b, c) LMC__OF_4(v, a, b), LMC__OF_4(v ^ c, a, b)
#define LMC__OF_32(v, a, b, c, d, e) \
    LMC__OF_8(v, a, b, c), LMC__OF_8(v ^ d, a, b, c), \
    LMC__OF_8(v ^ e, a, b, c), LMC__OF_8(v ^ e ^ d, a, b, c)
#define LMC__OF_128(v, a, b, c, d, e, f, g) \
    LMC__OF_32(v, a, b, c, d, e), LMC__OF_32(v ^ f, a, b, c, d, e), \
    LMC__OF_32(v ^ g, a, b, c, d, e), LMC__OF_32(v ^ g ^ f, a, b, c, d, e)
#define LMC__OF_BITS(a, b, c, d, e, f, g, h) \
    {LMC__OF_128(0, a, b, c, d, e, f, g), LMC__OF_128(h, a, b, c, d, e, f, g)}

/* Byte i is 255 if bit i of m is set, else 0. */
static const uint64_t lmc__byte_mask[256] =
    LMC__OF_BITS(255,0xFF00,0xFF0000,0xFF000000,0xFF00000000,0xFF0000000000,0xFF000000000000,
                 0xFF00000000000000);

/* [m][0], [1], [2]: the bytes of a word that change places with bytes 1, 2, 4 places above them
 * when lmc__sort8 sorts it by m; [2] has both bytes of a pair. Let m have u ones, modulo 2 n,
 * before the middle of a block of 2 n bytes. Then these are the last u bytes of the block's lower
 * half or, if u > n, the first 2 n - u bytes. [3]: the upper k bytes, if m has k ones. */
#define LMC__SWAPS(n, u) \
    (UINT64_MAX >> (64 - 8 * n) << 8 * n >> 8 * ((u) % (2 * n)) & UINT64_MAX >> (64 - 8 * n))
#define LMC__OF_PAIR(x) ((LMC__B##x + (LMC__B##x >> 8)) & 3)
#define LMC__SORT_SWAPS(h, H, l, L) \
    {((LMC__B##l | (uint64_t)LMC__B##h << 32) * UINT64_C(0x0101010101010101) & \
      UINT64_C(0x0001000100010001)) * 255, \
     LMC__SWAPS(2, LMC__OF_PAIR(l)) | LMC__SWAPS(2, LMC__N##l + LMC__OF_PAIR(h)) << 32, \
     LMC__SWAPS(4, LMC__N##l) * UINT64_C(0x100000001), \
     UINT64_MAX << 8 * (4 - LMC__N##l) << 8 * (4 - LMC__N##h)}
static const uint64_t lmc__sort_swaps[256][4] = LMC__OF_MASKS(LMC__SORT_SWAPS);

#if LMC__AVX2_TEXT || LMC__NEON
/* [m]: the places of the zero bits of m, then those of its one bits: eight bytes each, without
 * gaps, the rest 0. A shuffle by them sorts eight bytes. */
#define LMC__PLACES(h, l) \
    (LMC__P##l | (LMC__P##h + 4 * (UINT64_C(0x01010101) >> (32 - 8 * LMC__N##h))) << 8 * LMC__N##l)
#define LMC__SORT_PLACES(h, H, l, L) {LMC__PLACES(H, L), LMC__PLACES(h, l)}
static const uint64_t lmc__sort_places[256][2] = LMC__OF_MASKS(LMC__SORT_PLACES);
#endif

#if LMC__NEON
/* Where the bytes of a merge come from: places 0 .. 15 are of the left list, 16 .. 31 of the
 * right one. low[m]: 0, 1, ... where m has zeros, 16, 17, ... where it has ones. high[m] is for
 * the second of two bytes of a mask, where the first has c ones: |high - c|, of signed bytes, is
 * 8 - c, 9 - c, ... for zeros, 16 + c, 17 + c, ... for ones. So high is 8 more than low for
 * zeros, -low for ones. */
#define LMC__MERGE_LOW(h, H, l, L) \
    (LMC__R##l | \
     (uint64_t)(LMC__R##h + LMC__N##l * LMC__B##h + (4 - LMC__N##l) * LMC__B##H) << 32)
#define LMC__MERGE_HIGH(h, H, l, L) \
    ((LMC__MERGE_LOW(h, H, l, L) ^ (LMC__B##l | (uint64_t)LMC__B##h << 32) * 255) + \
     (LMC__B##l | (uint64_t)LMC__B##h << 32) + 8 * (LMC__B##L | (uint64_t)LMC__B##H << 32))
static const uint64_t lmc__merge_low[256] = LMC__OF_MASKS(LMC__MERGE_LOW);
static const uint64_t lmc__merge_high[256] = LMC__OF_MASKS(LMC__MERGE_HIGH);
#endif

#if LMC__X86
static const uint8_t lmc__count_up[64] =
    {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,
    35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63};

/* The places of eight rows of eight bytes, column by column. */
static const uint8_t lmc__columns[64] =
    {0,8,16,24,32,40,48,56,1,9,17,25,33,41,49,57,2,10,18,26,34,42,50,58,3,11,19,27,35,43,51,59,4,12,
    20,28,36,44,52,60,5,13,21,29,37,45,53,61,6,14,22,30,38,46,54,62,7,15,23,31,39,47,55,63};

/* Places in two vectors, one behind the other: their even bytes; their odd bytes; in turn, the
 * bytes of their lower halves; in turn, those of their upper halves. */
static const uint8_t lmc__shuffles[4][64] =
    {{0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64,
    66,68,70,72,74,76,78,80,82,84,86,88,90,92,94,96,98,100,102,104,106,108,110,112,114,116,118,120,
    122,124,126},{1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55,57,
    59,61,63,65,67,69,71,73,75,77,79,81,83,85,87,89,91,93,95,97,99,101,103,105,107,109,111,113,115,
    117,119,121,123,125,127},{0,64,1,65,2,66,3,67,4,68,5,69,6,70,7,71,8,72,9,73,10,74,11,75,12,76,
    13,77,14,78,15,79,16,80,17,81,18,82,19,83,20,84,21,85,22,86,23,87,24,88,25,89,26,90,27,91,28,92,
    29,93,30,94,31,95},{32,96,33,97,34,98,35,99,36,100,37,101,38,102,39,103,40,104,41,105,42,106,43,
    107,44,108,45,109,46,110,47,111,48,112,49,113,50,114,51,115,52,116,53,117,54,118,55,119,56,120,
    57,121,58,122,59,123,60,124,61,125,62,126,63,127}};
#endif

/* Constants of CRC-32C, used as crc32c.h says: polynomials over GF(2) modulo the CRC's, whose
 * x^32 is left out. Bit 31 is the coefficient of x^0. */
#define LMC__CRC_POLYNOMIAL 0x82F63B78u

/* [b]: the register after byte b, from register 0; that is b times x^8. */
static const uint32_t lmc__crc_table[256] =
    LMC__OF_BITS(0xF26B8303,0xE13B70F7,0xC79A971F,0x8AD958CF,0x105EC76F,0x20BD8EDE,0x417B1DBC,
                 0x82F63B78);

#ifndef LMC_NO_SNAPSHOT
/* [i]: x^(8 * 2^i). Each is the square of the one before; the first is the square of the last. */
static const uint32_t lmc__crc_powers[31] =
    {0x800000,0x8000,0x82F63B78,0x6EA2D55C,0x18B8EA18,0x510AC59A,0xB82BE955,0xB8FDB1E7,0x88E56F72,
    0x74C360A4,0xE4172B16,0xD65762A,0x35D73A62,0x28461564,0xBF455269,0xE2EA32DC,0xFE7740E6,
    0xF946610B,0x3C204F8F,0x538586E3,0x59726915,0x734D5309,0xBC1AC763,0x7D0722CC,0xD289CABE,
    0xE94CA9BC,0x5B74F3F,0xA51E1F42,0x40000000,0x20000000,0x8000000};
#endif

/* Bytes of a lane, where a CRC is computed in four lanes at once, which fill a strip
 * (LMC__STRIP_SIZE, strip.h). LANE4_SHIFTj is x^(8 j LANE4 - 33). */
#define LMC__CRC_LANE4 2048u
#define LMC__CRC_LANE4_SHIFT1 0xA51B6135
#define LMC__CRC_LANE4_SHIFT2 0x82F89C77
#define LMC__CRC_LANE4_SHIFT3 0xB9D68D49

#if LMC__X86
/* Factors that fold 16 bytes over a distance of d bytes: x^(8 d + 31) for the first eight, x^(8 d
 * - 33) for the others; x^-1 is in bit 32. [i]: d = 64 * 2^i. */
static const uint64_t lmc__crc_folds[4][2] =
    {{0x740EEF02,0x9E4ADDF8},{0x6992CEA2,0xD3B6092},{0xDCB17AA4,0xB9E02B86},{0xBD6F81F8,
    0xDD7E3B0C}};

/* The same for d = 48, 32, 16, one after the other, then zeros. */
static const uint64_t lmc__crc_fold_last[8] =
    {0x1C291D04,0x1D82C63DA,0x1384AA63A,0xBA4FC28E,0xF20C0DFE,0x14CD00BD6,0,0};
#endif

/* clang-format on */

/* == kernels/vec_swar.h ======================================================================== */

/* The basic operations of the scalar tier, on eight bytes in a 64-bit word ("SIMD within a
 * register"). Byte 0 is in the lowest bits on every machine: lmc__load64 puts it there. No carry,
 * borrow or shifted bit may get from one byte into the next: where one could, it is masked out.
 *
 * Eight elements are `width` 64-bit words: either each word has 8/width elements in order, or each
 * has the bytes of one plane. Split and join use the same swaps: a transpose is its own inverse. */
LMC__INLINE void lmc__swap_bits(uint64_t *a, uint64_t *b, uint64_t mask, unsigned shift)
{
    uint64_t t = (*a >> shift ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* Bytes where `lower` is 255 change places with the bytes `shift` bits above them. */
LMC__INLINE uint64_t lmc__swap_bytes(uint64_t v, uint64_t lower, unsigned shift)
{
    const uint64_t t = (v ^ v >> shift) & lower;
    return v ^ t ^ t << shift;
}

/* width 4: words {e0 e4}, {e1 e5}, {e2 e6}, {e3 e7} <-> planes 0..3. In each half of the words this
 * transposes 4 by 4 bytes, by swaps in squares of 2 by 2. 21 is byte 1 of element 2:
 *     v[0]   00 01 02 03              00 10 02 12               00 10 20 30
 *     v[1]   10 11 12 13   bytes      01 11 03 13    pairs      01 11 21 31
 *     v[2]   20 21 22 23   ---->      20 30 22 32    ---->      02 12 22 32
 *     v[3]   30 31 32 33              21 31 23 33               03 13 23 33
 *
 * As elements 4 to 7 are in the upper halves, each plane's eight bytes are in order. */
LMC__INLINE void lmc__transpose4(uint64_t *v)
{
    lmc__swap_bits(&v[0], &v[1], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[2], &v[3], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[0], &v[2], 0x0000FFFF0000FFFFu, 16);
    lmc__swap_bits(&v[1], &v[3], 0x0000FFFF0000FFFFu, 16);
}

/* width 8: words e0 .. e7 <-> planes 0..7. Transposes four squares of 4 by 4; then the two squares
 * that are not on the diagonal change places. */
LMC__INLINE void lmc__transpose8(uint64_t *v)
{
    int i;
    lmc__transpose4(v);
    lmc__transpose4(v + 4);
    for (i = 0; i < 4; i++) lmc__swap_bits(&v[i], &v[i + 4], 0x00000000FFFFFFFFu, 32);
}

/* width 2: words {e0 e1 e4 e5}, {e2 e3 e6 e7} <-> planes 0, 1. In each half the two bytes in the
 * middle change places, then pairs of bytes; the inverse begins with the pairs:
 *     v[0]   00 01 10 11   bytes      00 10 01 11    pairs      00 10 20 30
 *     v[1]   20 21 30 31   ---->      20 30 21 31    ---->      01 11 21 31 */
#define LMC__MIDDLE_BYTES 0x0000FF000000FF00u

/* Turns the elements of a word into their residuals against 0, and back (spec 5.1): a rotation by
 * one bit. With order INTEGER, the bits below the sign of negative elements are flipped before the
 * rotation. The whole word is shifted, and bits that come from a neighbour are masked out. A
 * product without carries copies a sign to all bits below it. */
LMC__INLINE uint64_t lmc__flip_negative(uint64_t v, unsigned width)
{
    const uint64_t all = ~(uint64_t)0 >> (64 - 8 * width), lowest = ~(uint64_t)0 / all;
    return v ^ ((v >> (8 * width - 1) & lowest) * (all >> 1));
}
LMC__INLINE uint64_t lmc__from_residuals(uint64_t r, unsigned width, enum lmc__order order)
{
    const uint64_t highest = ~(uint64_t)0 / (~(uint64_t)0 >> (64 - 8 * width)) << (8 * width - 1);
    if (order == LMC__ORDER_NONE) return r;
    r = (r >> 1 & ~highest) | (r << (8 * width - 1) & highest);
    return order == LMC__ORDER_INTEGER ? lmc__flip_negative(r, width) : r;
}

/* From v[p], the bytes of plane p, to the eight elements at dst. v is overwritten. */
LMC__INLINE void lmc__join8(uint8_t *dst, uint64_t v[8], unsigned width, enum lmc__order order)
{
    unsigned i;
    if (width == 2) {
        lmc__swap_bits(&v[0], &v[1], 0x0000FFFF0000FFFFu, 16);
        for (i = 0; i < 2; i++) v[i] = lmc__swap_bytes(v[i], LMC__MIDDLE_BYTES, 8);
    }
    if (width == 4) lmc__transpose4(v);
    if (width == 8) lmc__transpose8(v);
    for (i = 0; i < width; i++) {
        const uint64_t e = lmc__from_residuals(v[i], width, order);
        if (width == 2 || width == 4) {
            lmc__store32(dst + 4 * i, (uint32_t)e);
            lmc__store32(dst + 4 * (width + i), (uint32_t)(e >> 32));
        } else lmc__store64(dst + 8 * i, e);
    }
}

LMC__INLINE void lmc__store16x16(uint8_t *dst, const uint16_t v[16])
{
#if LMC__LITTLE_ENDIAN
    memcpy(dst, v, 32);
#else
    int i;
    for (i = 0; i < 16; i++) lmc__store16(dst + 2 * i, v[i]);
#endif
}

LMC__INLINE uint64_t lmc__reverse8(uint64_t v) /* the bytes, in the opposite order */
{
    v = (v >> 8 & 0x00FF00FF00FF00FFu) | (v & 0x00FF00FF00FF00FFu) << 8;
    v = (v >> 16 & 0x0000FFFF0000FFFFu) | (v & 0x0000FFFF0000FFFFu) << 16;
    return v >> 32 | v << 32;
}

LMC__INLINE uint64_t lmc__swap_halves(uint64_t v, uint64_t both)
{
    return v ^ ((v ^ (v >> 32 | v << 32)) & both);
}

/* The inverse of lmc__sort8, for the following word. If m has k ones, its upper k bytes come from
 * `ones`, and its other bytes from `zeros`. */
LMC__INLINE uint64_t lmc__unsort8(uint64_t zeros, uint64_t ones, unsigned m)
{
    const uint64_t *swaps = lmc__sort_swaps[m];
    const uint64_t v = lmc__swap_halves(zeros ^ ((zeros ^ ones) & swaps[3]), swaps[2]);
    return lmc__swap_bytes(lmc__swap_bytes(v, swaps[1], 16), swaps[0], 8);
}

#define LMC__ONES8 0x0101010101010101u

#if LMC__AVX2_TEXT || LMC__NEON
/* Bits [i, i + 64) of a mask of n bits, i < n and a multiple of 8; bits behind its end are 0. Reads
 * no byte behind the mask: the input may end there. */
LMC__INLINE uint64_t lmc__load_mask(const uint8_t *mask, size_t i, size_t n)
{
    uint8_t bits[8];
    if (n - i >= 64) return lmc__load64(mask + i / 8);
    memset(bits, 0, sizeof bits);
    memcpy(bits, mask + i / 8, (n - i + 7) / 8);
    return lmc__load64(bits);
}

#endif

/* == kernels/vec_neon.h ======================================================================== */

/* The basic operations of the NEON tier, on vectors of 16 bytes. The comment in front of each gives
 * its scalar meaning, for byte i of the result r. Elements have `width` bytes (1, 2, 4 or 8), the
 * lowest first. All are inlined, so width, left and the like are constants.
 *
 * NEON has no instruction that makes a mask of a vector's bytes. So lmc__collect_neon collects the
 * bits of 64 bytes at a time, and masks stay in a vector register of 8 bytes if they can. */
#if LMC__NEON
#include <arm_neon.h>

/* load: r[i] = p[i]. store: the inverse. */
LMC__INLINE uint8x16_t lmc__load_neon(const uint8_t *p) { return vld1q_u8(p); }
LMC__INLINE void lmc__store_neon(uint8_t *p, uint8x16_t v) { vst1q_u8(p, v); }

/* r[i] = v. */
LMC__INLINE uint8x16_t lmc__splat_neon(unsigned v) { return vdupq_n_u8((uint8_t)v); }

/* r[i] = v[i] <= w[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__up_to_neon(uint8x16_t v, uint8x16_t w) { return vcleq_u8(v, w); }

/* Four vectors for look-ups, in consecutive registers: else gcc copies them there each time. */
LMC__INLINE uint8x16x4_t lmc__load64_neon(const uint8_t *p)
{
#if defined(__clang__) || __GNUC__ >= 11
    return vld1q_u8_x4(p);
#else
    uint8x16x4_t v;
    v.val[0] = vld1q_u8(p);
    v.val[1] = vld1q_u8(p + 16);
    v.val[2] = vld1q_u8(p + 32);
    v.val[3] = vld1q_u8(p + 48);
    return v;
#endif
}

/* r[i] = ab[2 i], where ab is a, then b. */
LMC__INLINE uint8x16_t lmc__even_neon(uint8x16_t a, uint8x16_t b) { return vuzp1q_u8(a, b); }

/* The inverse: first, then second, are the bytes of a and b in turn. */
LMC__INLINE void lmc__zip_neon(uint8x16_t *first, uint8x16_t *second, uint8x16_t a, uint8x16_t b)
{
    *first = vzip1q_u8(a, b);
    *second = vzip2q_u8(a, b);
}

/* Each element rotated by one bit: a shift, then an insertion of the other shift. */
#define LMC__ROTATE(bits, x)                                                                       \
    (left ? vsriq_n_u##bits(vshlq_n_u##bits(x, 1), x, bits - 1)                                    \
          : vsliq_n_u##bits(vshrq_n_u##bits(x, 1), x, bits - 1))
LMC__INLINE uint8x16_t lmc__rotate_neon(uint8x16_t v, unsigned width, int left)
{
    switch (width) {
    case 1: return LMC__ROTATE(8, v);
    case 2: return vreinterpretq_u8_u16(LMC__ROTATE(16, vreinterpretq_u16_u8(v)));
    case 4: return vreinterpretq_u8_u32(LMC__ROTATE(32, vreinterpretq_u32_u8(v)));
    default: return vreinterpretq_u8_u64(LMC__ROTATE(64, vreinterpretq_u64_u8(v)));
    }
}

/* load_bits: m, the bits of 64 elements. spread: r[i] = bit 16 j + i of m ? 255 : 0. Eight copies
 * of byte 2 j and eight of byte 2 j + 1 are tested, each for the bit of its place. */
LMC__INLINE uint8x16_t lmc__load_bits_neon(uint64_t m)
{
    return vreinterpretq_u8_u64(vdupq_n_u64(m));
}
LMC__INLINE uint8x16_t lmc__spread_neon(uint8x16_t bits, unsigned j)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t byte = vreinterpretq_u8_u64(
        vcombine_u64(vdup_n_u64(2 * j * LMC__ONES8), vdup_n_u64((2 * j + 1) * LMC__ONES8)));
    return vtstq_u8(vqtbl1q_u8(bits, byte), weight);
}

/* r[i] = 2 v[i] + (one[i] ? 1 : 0): inserts v above the lowest bit of one[i], which is 0 or 255. */
LMC__INLINE uint8x16_t lmc__push_bit_neon(uint8x16_t v, uint8x16_t one)
{
    return vsliq_n_u8(one, v, 1);
}

/* r[i] = table[v[i]], of 64 entries. `depth` matters only on AVX2. */
typedef uint8x16x4_t lmc__table64;
LMC__INLINE uint8x16_t lmc__look_up_neon(const lmc__table64 *table, uint8x16_t v, unsigned depth)
{
    (void)depth;
    return vqtbl4q_u8(*table, v);
}

/* Bit i of the result: whether byte i of the four vectors (0 or 255 each) is set. Each byte keeps
 * the bit of its place, i mod 8; three pairwise sums join eight bytes to one:
 *     a & weight          a0   a1   a2   ...  a15               bit i mod 8 of ai, or 0
 *     vpadd of a, b       a0+a1  a2+a3  ...  a14+a15  b0+b1 ... b14+b15
 *     of ab, cd           a0+..+a3  ...  a12+..+a15  b0+..+b3 ...  d12+..+d15
 *     of all, all         a0+..+a7   a8+..+a15  b0+..+b7 ... d8+..+d15, and again
 *
 * The bits are distinct, so these sums have no carries. */
LMC__INLINE uint8x8_t lmc__collect_neon(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t ab = vpaddq_u8(vandq_u8(a, weight), vandq_u8(b, weight)),
                     cd = vpaddq_u8(vandq_u8(c, weight), vandq_u8(d, weight));
    const uint8x16_t all = vpaddq_u8(ab, cd);
    return vget_low_u8(vpaddq_u8(all, all));
}

/* The same, as a number. */
LMC__INLINE uint64_t lmc__to_bits_neon(const uint8x16_t one[4])
{
    return vget_lane_u64(vreinterpret_u64_u8(lmc__collect_neon(one[0], one[1], one[2], one[3])), 0);
}

/* Byte j: how many ones are in bytes 0 .. j of m. vcnt counts in each byte, and one multiplication
 * adds up for all j. No sum is above 64, so no byte overflows. */
LMC__INLINE uint64_t lmc__begin_ones_neon(uint64_t m)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(m))), 0) * LMC__ONES8;
}

#endif

/* == kernels/vec_avx2.h ======================================================================== */

/* The basic operations of the AVX2 tier, on vectors of 32 bytes. What has no comment, or says r, is
 * as in vec_neon.h. Most instructions work within each half of 16 bytes; comments name the others.
 *
 * SIMDe translates the first part, under LMC__AVX2_TEXT, for other machines, too. */
#if LMC__X86
/* gcc 12's own headers initialise undefined vectors with themselves:
 * https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593 */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif
#if LMC__SIMDE
#pragma GCC diagnostic push
/* SIMDe's parameters are int8_t where the compilers' own headers say char. */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#define _mm_popcnt_u64(v) __builtin_popcountll(v) /* not in SIMDe */
#if defined(__wasm_simd128__)                     /* SIMDe 0.7 does these byte by byte */
#include <wasm_simd128.h>
/* r[i] = b[i] < 128 ? a[b[i] % 16] : 0. Swizzle gives 0 for all places from 16 on. The x86
 * instruction ignores bits 4 to 6, so these are cleared. */
LMC__INLINE __m128i lmc__shuffle_wasm(__m128i a, __m128i b)
{
    return wasm_i8x16_swizzle(a, wasm_v128_and(b, wasm_i8x16_splat((char)0x8F)));
}
LMC__INLINE __m256i lmc__shuffle2_wasm(__m256i a, __m256i b)
{
    return _mm256_set_m128i(
        lmc__shuffle_wasm(_mm256_extracti128_si256(a, 1), _mm256_extracti128_si256(b, 1)),
        lmc__shuffle_wasm(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b)));
}
LMC__INLINE int lmc__movemask_wasm(__m256i v)
{
    return (int)(wasm_i8x16_bitmask(_mm256_castsi256_si128(v)) |
                 (uint32_t)wasm_i8x16_bitmask(_mm256_extracti128_si256(v, 1)) << 16);
}
#undef _mm_shuffle_epi8
#undef _mm256_shuffle_epi8
#undef _mm256_movemask_epi8
#define _mm_shuffle_epi8(a, b) lmc__shuffle_wasm(a, b)
#define _mm256_shuffle_epi8(a, b) lmc__shuffle2_wasm(a, b)
#define _mm256_movemask_epi8(v) lmc__movemask_wasm(v)
#endif
#endif

#if LMC__AVX2_TEXT
LMC__INLINE_AVX2 __m256i lmc__load_avx2(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
LMC__INLINE_AVX2 void lmc__store_avx2(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

/* r[i] = row[i mod 16]. */
LMC__INLINE_AVX2 __m256i lmc__load_row_avx2(const uint8_t *row)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)row));
}

/* The 16 bytes at first, then those at second. */
LMC__INLINE_AVX2 __m256i lmc__load_pair_avx2(const uint8_t *first, const uint8_t *second)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)first)),
        _mm_loadu_si128((const __m128i *)(const void *)second), 1);
}

LMC__INLINE_AVX2 __m256i lmc__splat_avx2(unsigned v) { return _mm256_set1_epi8((char)v); }

#if LMC__X86
/* r[i] = v[places[i]] in each half; 0 where a place has bit 7. */
LMC__INLINE_AVX2 __m256i lmc__shuffle_avx2(__m256i v, __m256i places)
{
    return _mm256_shuffle_epi8(v, places);
}

/* How many bytes of `one` are 255; the others are 0. *half: how many of the first 16 are 255. */
LMC__INLINE_AVX2 size_t lmc__count_avx2(__m256i one, size_t *half)
{
    const uint32_t m = (uint32_t)_mm256_movemask_epi8(one);
    *half = (size_t)_mm_popcnt_u64(m & 0xFFFF);
    return (size_t)_mm_popcnt_u64(m);
}
#endif

/* r[i] = mask[i] ? a[i] : b[i], for bytes of mask that are 0 or 255. With -funsigned-char gcc 12
 * tests in blendv whether unsigned bytes are below zero, and always gives b. */
LMC__INLINE_AVX2 __m256i lmc__blend_avx2(__m256i mask, __m256i a, __m256i b)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(__CHAR_UNSIGNED__)
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
#else
    return _mm256_blendv_epi8(b, a, mask);
#endif
}

/* load_bits: m, the bits of 64 elements, in each quarter. spread: r[i] = bit 32 j + i of m ? 255 :
 * 0. The shuffle takes byte i / 8 of these 32 bits; bit i % 8 is masked, and compared. */
LMC__INLINE_AVX2 __m256i lmc__load_bits_avx2(uint64_t m)
{
    return _mm256_set1_epi64x((long long)m);
}
LMC__INLINE_AVX2 __m256i lmc__spread_avx2(__m256i bits, unsigned j)
{
    const __m256i byte =
        _mm256_add_epi8(_mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                         2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
                        lmc__splat_avx2(4 * j));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, byte), bit), bit);
}

/* r[i] = 2 v[i] + 1 where one[i] is 255, 2 v[i] where it is 0. */
LMC__INLINE_AVX2 __m256i lmc__push_bit_avx2(__m256i v, __m256i one)
{
    return _mm256_sub_epi8(_mm256_add_epi8(v, v), one);
}

/* r[i] = table[v[i]], of 2^depth <= 64 entries. A shuffle looks up one of 16 by the low 4 bits. For
 * depths 5 and 6 there are two or four rows of 16, and all are looked up; bits 4 and 5 choose:
 *     v            00 r r pppp                row r, place p
 *     row_of       r                          v >> 4, without what a 16-bit shift brings in
 *     out          row 0's entry; where row_of is 1, row 1's; and so on */
typedef struct lmc__table64 {
    __m256i val[4];
} lmc__table64;
LMC__INLINE_AVX2 lmc__table64 lmc__load64_avx2(const uint8_t *p)
{
    lmc__table64 table;
    unsigned t;
    for (t = 0; t < 4; t++) table.val[t] = lmc__load_row_avx2(p + 16 * t);
    return table;
}
LMC__INLINE_AVX2 __m256i lmc__look_up_avx2(const lmc__table64 *table, __m256i v, unsigned depth)
{
    __m256i out = _mm256_shuffle_epi8(table->val[0], v); /* bit 7 of v is clear */
    unsigned t;
    if (depth > 4) {
        const __m256i row_of = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(3));
        LMC__UNROLL for (t = 1; t < 4; t++)
        {
            if (depth == 5 && t == 2) break;
            out = lmc__blend_avx2(_mm256_cmpeq_epi8(row_of, lmc__splat_avx2(t)),
                                  _mm256_shuffle_epi8(table->val[t], v), out);
        }
    }
    return out;
}

/* r[i] = v[j] + ... + v[i], modulo 256; j is 0 or, in the upper half, 16. First a multiplication
 * adds pairs: 0x0101 times the 16-bit lane of bytes a, b is a, a + b. Then three steps double the
 * groups. Each adds the last sum of a group to all sums of the next group:
 *     v        a  b  c  d  e  f  g  h  ...
 *     * 0101   a  ab c  cd e  ef g  gh ...
 *     in4      .  .  1  1  .  .  5  5  ...      a  ab abc abcd  e  ef efg efgh
 *     in8      .  .  .  .  3  3  3  3  ...      ... abcde abcdef abcdefg a-h
 *     in16     8 times none, 8 times 7          the same for the upper 8 of 16
 *
 * A shuffle gives 0 where its place has bit 7. */
LMC__INLINE_AVX2 __m256i lmc__sum_up_avx2(__m256i v)
{
    const char no = (char)0x80; /* a place that gives 0 */
    const __m256i in4 = _mm256_setr_epi8(no, no, 1, 1, no, no, 5, 5, no, no, 9, 9, no, no, 13, 13,
                                         no, no, 1, 1, no, no, 5, 5, no, no, 9, 9, no, no, 13, 13);
    const __m256i in8 =
        _mm256_setr_epi8(no, no, no, no, 3, 3, 3, 3, no, no, no, no, 11, 11, 11, 11, no, no, no, no,
                         3, 3, 3, 3, no, no, no, no, 11, 11, 11, 11);
    const __m256i in16 = _mm256_setr_epi8(no, no, no, no, no, no, no, no, 7, 7, 7, 7, 7, 7, 7, 7,
                                          no, no, no, no, no, no, no, no, 7, 7, 7, 7, 7, 7, 7, 7);
    v = _mm256_mullo_epi16(v, _mm256_set1_epi16(0x0101));
    v = _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in4));
    v = _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in8));
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(v, in16));
}

/* Bit i of the result: bit 7 of byte i of two vectors. */
LMC__INLINE_AVX2 uint64_t lmc__to_bits_avx2(const __m256i one[2])
{
    return (uint32_t)_mm256_movemask_epi8(one[0]) | (uint64_t)(uint32_t)_mm256_movemask_epi8(one[1])
                                                        << 32;
}

#endif

#if LMC__X86

/* even: r[i] = ab[2 i]; odd: r[i] = ab[2 i + 1]; ab is a, then b. Packing works within 16 bytes:
 *     a        a0 . a1 . ... a7 .  | a8 .  ... a15 .        . masked out: no 16-bit lane is above
 *     b        b0 . b1 . ... b7 .  | b8 .  ... b15 .          255, so packing does not saturate
 *     packus   a0 .. a7   b0 .. b7 | a8 .. a15   b8 .. b15
 *     0xD8     a0 .. a7  a8 .. a15 | b0 .. b7    b8 .. b15  quarters 3 1 2 0, two bits each */
LMC__INLINE_AVX2 __m256i lmc__even_avx2(__m256i a, __m256i b)
{
    const __m256i low = _mm256_set1_epi16(0xFF);
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low)), 0xD8);
}

/* The inverse: first and second together are the bytes of a and b in turn. Unpacking, too, works
 * within 16 bytes: `low` has the start of each half's result, `high` its end. So first has the
 * lower halves of both (0x20), and second the upper halves (0x31). */
LMC__INLINE_AVX2 void lmc__zip_avx2(__m256i *first, __m256i *second, __m256i a, __m256i b)
{
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    *first = _mm256_permute2x128_si256(low, high, 0x20);
    *second = _mm256_permute2x128_si256(low, high, 0x31);
}

/* Each element rotated by one bit, to the left or to the right. AVX2 has no rotation, and no shifts
 * of bytes: v + v shifts to the left; for other shifts 16-bit lanes are shifted and masked. */
#define LMC__ROTATE(bits)                                                                          \
    _mm256_or_si256(left ? _mm256_slli_epi##bits(v, 1) : _mm256_srli_epi##bits(v, 1),              \
                    left ? _mm256_srli_epi##bits(v, bits - 1)                                      \
                         : _mm256_slli_epi##bits(v, bits - 1))
LMC__INLINE_AVX2 __m256i lmc__rotate_avx2(__m256i v, unsigned width, int left)
{
    switch (width) {
    case 1: {
        const __m256i low7 = _mm256_set1_epi8(0x7F), low1 = _mm256_set1_epi8(1);
        return left ? _mm256_or_si256(_mm256_add_epi8(v, v),
                                      _mm256_and_si256(_mm256_srli_epi16(v, 7), low1))
                    : _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 1), low7),
                                      _mm256_andnot_si256(low7, _mm256_slli_epi16(v, 7)));
    }
    case 2: return LMC__ROTATE(16);
    case 4: return LMC__ROTATE(32);
    default: return LMC__ROTATE(64);
    }
}

/* r[i] = keys[i] <= highest[i] ? 255 : 0, unsigned. */
LMC__INLINE_AVX2 __m256i lmc__up_to_avx2(__m256i keys, __m256i highest)
{
    return _mm256_cmpeq_epi8(_mm256_min_epu8(keys, highest), keys);
}

/* == kernels/vec_avx512.h ====================================================================== */

/* The basic operations of the AVX-512 tier, on vectors of 64 bytes; else as in vec_avx2.h. */
LMC__INLINE_AVX512 __m512i lmc__load_avx512(const uint8_t *p) { return _mm512_loadu_si512(p); }
LMC__INLINE_AVX512 void lmc__store_avx512(uint8_t *p, __m512i v) { _mm512_storeu_si512(p, v); }

LMC__INLINE_AVX512 __m512i lmc__splat_avx512(unsigned v) { return _mm512_set1_epi8((char)v); }

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b: look-ups among all 128 bytes, by
 * places from a table (vpermi2b). Unlike AVX2's packing, they give the right order at once. */
LMC__INLINE_AVX512 __m512i lmc__even_avx512(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[0]), b);
}

/* The inverse: first, then second, are the bytes of a and b in turn. */
LMC__INLINE_AVX512 void lmc__zip_avx512(__m512i *first, __m512i *second, __m512i a, __m512i b)
{
    *first = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[2]), b);
    *second = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[3]), b);
}

/* Each element rotated by one bit. Lanes of 32 and 64 bits have a rotation; lanes of 16 bits a
 * shift of two joined lanes (VBMI2): here both are v. Bytes are shifted as on AVX2. */
LMC__INLINE_AVX512 __m512i lmc__rotate_avx512(__m512i v, unsigned width, int left)
{
    switch (width) {
    case 1: {
        const __m512i low7 = _mm512_set1_epi8(0x7F);
        return left ? _mm512_or_si512(_mm512_add_epi8(v, v),
                                      _mm512_andnot_si512(_mm512_set1_epi8((char)0xFE),
                                                          _mm512_srli_epi16(v, 7)))
                    : _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 1), low7),
                                      _mm512_andnot_si512(low7, _mm512_slli_epi16(v, 7)));
    }
    case 2: return left ? _mm512_shldi_epi16(v, v, 1) : _mm512_shldi_epi16(v, v, 15);
    case 4: return left ? _mm512_rol_epi32(v, 1) : _mm512_ror_epi32(v, 1);
    default: return left ? _mm512_rol_epi64(v, 1) : _mm512_ror_epi64(v, 1);
    }
}
#endif

/* == kernels/vec.h ============================================================================= */

/* A machine has NEON or AVX2, never both. Code that is the same for both is written once:
 * LMC__VEC(name) is the function `name` of the machine's tier. With SIMDe it has AVX2's name. */
#if LMC__NEON
#define LMC__VEC(name) lmc__##name##_neon
#define LMC__VECTOR_SIZE 16u
#define LMC__INLINE_VEC LMC__INLINE
#define LMC__STATIC_VEC static
#define LMC__LOOP_VEC static __attribute__((noinline)) LMC__CRC
#define LMC__VECTORS_SORTED 4u /* at a time: see partition.h */
typedef uint8x16_t lmc__vector, lmc__sorted;
typedef uint64_t lmc__vector_bits; /* a bit for each byte of the vectors that are sorted */
#elif LMC__AVX2_TEXT
#define LMC__VEC(name) lmc__##name##_avx2
#define LMC__VECTOR_SIZE 32u
#define LMC__INLINE_VEC LMC__INLINE_AVX2
#define LMC__STATIC_VEC LMC__AVX2 static
#define LMC__LOOP_VEC static __attribute__((noinline, aligned(64))) LMC__AVX2
#define LMC__VECTORS_SORTED 1u
typedef __m256i lmc__vector;
typedef uint32_t lmc__vector_bits;
typedef __m128i lmc__sorted;
#endif
#define LMC__VECTORS_OF_64 (64 / LMC__VECTOR_SIZE)
#if LMC__X86
#define LMC__CRC LMC__AVX2
#define LMC__CRC_STEP8(crc, v) _mm_crc32_u64(crc, v)
#define LMC__CRC_STEP1(crc, v) _mm_crc32_u8((uint32_t)(crc), v)
#endif

/* Several elements at a time, in the vector types of gcc and clang. Division must be IEEE's. Under
 * -ffast-math vector division is an approximation, so the scalar code divides. (clang has no macro
 * for -freciprocal-math alone.) */
#if (LMC__X86 || LMC__NEON) && (defined(__clang__) || __GNUC__ >= 9)
#define LMC__VECTORS 1
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__)
#define LMC__DIVIDING(name) lmc__##name##_scalar
#else
#define LMC__DIVIDING(name) lmc__##name##_vec
#endif
#else
#define LMC__VECTORS 0
#endif

#if LMC__VECTORS
/* a where the mask is -1, b where it is 0. */
#define LMC__PICK(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

/* The vector tiers: NEON, or AVX2, whose kernels AVX-512 uses, too. Each line computes what the
 * scalar code does for one element. A comparison gives -1 or 0 for each; LMC__PICK chooses by it.
 *
 * A cast between vector types of one size keeps the bits; __builtin_convertvector converts the
 * numbers. Operators wrap around, also on signed numbers.
 *
 *     u32v, i32v, f32v   LMC__LANES elements                   | e0      | e1      | e2      | ...
 *     u16v               as many symbols, half the bytes       | s0 | s1 | s2 | ...
 *     w16v               twice as many symbols, all the bytes  | s0 | s1 | s2 | s3 | s4 | s5 | ...
 *
 * memcpy of a constant size is an unaligned load or store. The scalar kernels do the rest. */
#define LMC__LANES (LMC__VECTOR_SIZE / 4) /* elements of 32 bits in a vector */
typedef uint32_t lmc__u32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef int32_t lmc__i32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef uint64_t lmc__u64v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef float lmc__f32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef uint16_t lmc__u16v __attribute__((vector_size(LMC__VECTOR_SIZE / 2))); /* as many */
typedef uint16_t lmc__w16v __attribute__((vector_size(LMC__VECTOR_SIZE)));     /* as long */
typedef uint8_t lmc__w8v __attribute__((vector_size(LMC__VECTOR_SIZE / 2)));   /* as many as w16 */
#endif

/* == kernels/residual.h ======================================================================== */

/* The residual of an element against its prediction, and back (spec 5.1). Elements are integers of
 * W = 8 * width bits; zigzag makes small differences small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
 *
 * Integers: the difference modulo 2^W. Floats: three steps, each a bijection of all bit patterns:
 *     sign      x = v ^ (base's sign bit): both signs are now relative to the prediction's. So the
 *               prediction is positive: as an integer, base without its sign bit
 *     order     where x is negative, the float falls as its other bits rise: flip these bits, and
 *               the integers have the order of the floats
 *     distance  d = x - base modulo 2^W
 *
 * With prediction 0 all this is a rotation to the left by one bit: x = v; where v is negative, the
 * second step flips all bits but the sign, and zigzag flips them back. */

LMC__INLINE uint64_t lmc__restore_element(uint64_t r, uint64_t base, unsigned width,
                                          enum lmc__order order)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t sign = order == LMC__ORDER_FLOAT ? base & sign_bit : 0,
                   d = (r >> 1) ^ (0 - (r & 1)), x = ((base ^ sign) + d) & all,
                   flip = order == LMC__ORDER_FLOAT && x & sign_bit ? below : 0;
    return x ^ flip ^ sign;
}

#if LMC__NEON || LMC__X86
/* For each element of a vector: sign_bits, its sign bit alone; negative, all bits if it is
 * negative, else none; plus and minus, modulo 2^W; residual and restore, as lmc__residual and
 * lmc__restore_element. Operators of gcc's and clang's vector types act on each element. */
#define LMC__DEFINE_ELEMENTS(isa, INLINE, VECTOR)                                                  \
    typedef uint8_t lmc__u8s_##isa __attribute__((vector_size(sizeof(VECTOR))));                   \
    typedef uint16_t lmc__u16s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef uint32_t lmc__u32s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef uint64_t lmc__u64s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef int8_t lmc__i8s_##isa __attribute__((vector_size(sizeof(VECTOR))));                    \
    typedef int16_t lmc__i16s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    typedef int32_t lmc__i32s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    typedef int64_t lmc__i64s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    INLINE VECTOR lmc__sign_bits_##isa(unsigned width)                                             \
    {                                                                                              \
        const lmc__u64s_##isa zero = {0};                                                          \
        return (VECTOR)(zero + (width == 1   ? 0x8080808080808080u                                 \
                                : width == 2 ? 0x8000800080008000u                                 \
                                : width == 4 ? 0x8000000080000000u                                 \
                                             : 0x8000000000000000u));                              \
    }                                                                                              \
    INLINE VECTOR lmc__negative_##isa(VECTOR v, unsigned width)                                    \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__i8s_##isa)v < 0)                                      \
               : width == 2 ? (VECTOR)((lmc__i16s_##isa)v >> 15)                                   \
               : width == 4 ? (VECTOR)((lmc__i32s_##isa)v >> 31)                                   \
                            : (VECTOR)((lmc__i64s_##isa)v < 0);                                    \
    }                                                                                              \
    INLINE VECTOR lmc__plus_##isa(VECTOR a, VECTOR b, unsigned width)                              \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__u8s_##isa)a + (lmc__u8s_##isa)b)                      \
               : width == 2 ? (VECTOR)((lmc__u16s_##isa)a + (lmc__u16s_##isa)b)                    \
               : width == 4 ? (VECTOR)((lmc__u32s_##isa)a + (lmc__u32s_##isa)b)                    \
                            : (VECTOR)((lmc__u64s_##isa)a + (lmc__u64s_##isa)b);                   \
    }
#define LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)
/* r rotated to the right by one bit is r >> 1, with the sign of the difference in the top bit. */
#define LMC__DEFINE_RESTORE(isa, INLINE, VECTOR)                                                   \
    INLINE VECTOR lmc__restore_##isa(VECTOR r, VECTOR base, unsigned width, enum lmc__order order) \
    {                                                                                              \
        const VECTOR sign = lmc__sign_bits_##isa(width), z = lmc__rotate_##isa(r, width, 0),       \
                     d = (z & ~sign) ^ lmc__negative_##isa(z, width);                              \
        VECTOR ordered;                                                                            \
        if (order != LMC__ORDER_FLOAT) return lmc__plus_##isa(base, d, width);                     \
        ordered = lmc__plus_##isa(base & ~sign, d, width);                                         \
        return ordered ^ (lmc__negative_##isa(ordered, width) & ~sign) ^ (base & sign);            \
    }
#define LMC__DEFINE_RESIDUALS(isa, INLINE, VECTOR)                                                 \
    LMC__DEFINE_ELEMENTS(isa, INLINE, VECTOR)                                                      \
    LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)                                                      \
    LMC__DEFINE_RESTORE(isa, INLINE, VECTOR)
#endif

#if LMC__NEON
LMC__DEFINE_RESIDUALS(neon, LMC__INLINE, uint8x16_t)
#elif LMC__X86
LMC__DEFINE_RESIDUALS(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_RESIDUALS(avx512, LMC__INLINE_AVX512, __m512i)
#endif

/* == kernels/crc32c.h ========================================================================== */

/* CRC-32C (Castagnoli; spec 2): crc32c(crc, p, size) continues from crc, the CRC of the bytes
 * before p, or 0. The kernels of all tiers give the same result.
 *
 * Why a message can be cut into parts: apart from the inversions at both ends, its CRC is the
 * remainder of a division by the CRC's polynomial. The message is a polynomial over GF(2), and its
 * first bit is the highest coefficient. So the CRC is linear: the register after parts A, B is
 *
 *     register(A B) = register(A) * x^(8 size(B))  xor  register(B), B from 0
 *
 * All constants in tables.h are such powers of x modulo the polynomial. Numbers are *reflected*:
 * bit 31 of a register is the coefficient of x^0, so multiplying by x is a shift to the right. */

#ifndef LMC_NO_SNAPSHOT
/* Product of two polynomials modulo the CRC's polynomial. */
LMC__INLINE uint32_t lmc__crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    int i;
    for (i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (LMC__CRC_POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

/* CRC of two messages, one after the other, from their CRCs. The inversions cancel out. */
static uint32_t lmc__crc32c_combine(uint32_t a, uint32_t b, uint64_t b_size)
{
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; b_size >>= 1) {
        if (b_size & 1) a = lmc__crc_multiply(a, lmc__crc_powers[i]);
        i = i < 30 ? i + 1 : 0;
    }
    return a ^ b;
}
#endif

/* Portable code. x^209 + x^144 + x^54 + x^39 + x^14 + 1 is a multiple of the CRC's polynomial. So a
 * bit of a message may be cleared if it is added to the bits 65, 155, 170, 195 and 209 places
 * behind it. In the end only the last 209 bits are left. Over GF(2) a square has the same terms
 * with twice the exponents. So three squarings give the rule for places of 8 bits, six for places
 * of 64. No table is needed, and a place depends only on places at least 65 before it (compare
 * Russell, "Chorba: A novel CRC32 implementation", 2024).
 *
 *     8192 bytes --words-> 1672 and up to 119 --bytes-> 209 and up to 110 --bits-> 32 and up to 7
 */
#define LMC__CRC_PIECE 4096u
#define LMC__CRC_PLACES(unit) ((209u * (unit) + 63) / 64 * 64)

/* 8 bytes in the machine's byte order, which does not matter for an exclusive or. */
LMC__INLINE uint64_t lmc__load_word(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* out[i] = p[i] + sums[i - 65 unit] + ..., where a place has `unit` bytes, 1 or 8; size is a
 * multiple of 64. sums may be out: 64 bytes are read before the first of them is written. */
LMC__INLINE void lmc__crc_add_places(uint8_t *out, const uint8_t *p, const uint8_t *sums,
                                     size_t size, size_t unit)
{
    size_t i, j;
    for (i = 0; i < size; i += 64) {
        uint64_t v[8];
        LMC__UNROLL for (j = 0; j < 8; j++)
        {
            const uint8_t *const s = sums + i + 8 * j;
            v[j] = lmc__load_word(p + i + 8 * j) ^ lmc__load_word(s - 65 * unit) ^
                   lmc__load_word(s - 155 * unit) ^ lmc__load_word(s - 170 * unit) ^
                   lmc__load_word(s - 195 * unit) ^ lmc__load_word(s - 209 * unit);
        }
        memcpy(out + i, v, sizeof v);
    }
}

/* Makes a shorter message with the same CRC. The message begins with register crc; the shorter one
 * begins with register 0, and has LMC__CRC_PLACES(unit) bytes and up to 63 more. Returns its size.
 * The message must have LMC__CRC_PLACES(unit) + 64 bytes or more. */
static size_t lmc__crc_shorten(uint8_t *out, uint32_t crc, const uint8_t *p, size_t size,
                               size_t unit)
{
    const size_t places = LMC__CRC_PLACES(unit);
    uint8_t before[LMC__CRC_PLACES(8) + LMC__CRC_PIECE], *const sums = before + places;
    size_t m;
    memset(before, 0, places - 64);
    memcpy(sums - 64, p, 64); /* nothing is added to the first places */
    lmc__store32(sums - 64, lmc__load32(p) ^ crc);
    for (p += 64, size -= 64; size >= places + 64; p += m, size -= m) {
        m = lmc__min((size - places) / 64 * 64, LMC__CRC_PIECE);
        lmc__crc_add_places(sums, p, sums, m, unit);
        memmove(before, before + m, places);
    }
    memset(sums, 0, places);
    lmc__crc_add_places(out, p, sums, places, unit);
    memcpy(out + places, p + places, size - places);
    return size;
}

/* Places of one bit, a word of them at a time: a, b, c, d are the four words before, with all that
 * was added to them. The last four words are not cleared, but processed with a table. */
static uint32_t lmc__crc_by_bits(uint32_t crc, const uint8_t *p, size_t size)
{
    const size_t n = size / 8;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    size_t i, j;
    for (i = 0; i < n; i++) {
        uint64_t v = lmc__load64(p + 8 * i) ^ crc ^ (a << 1 | b >> 63) ^ (b << 27 | c >> 37) ^
                     (b << 42 | c >> 22) ^ (c << 3 | d >> 61) ^ (c << 17 | d >> 47);
        d = c;
        c = b;
        b = a;
        a = i + 4 < n ? v : 0;
        for (j = 0; i + 4 >= n && j < 8; j++) v = v >> 8 ^ lmc__crc_table[v & 255];
        crc = i + 4 < n ? 0 : (uint32_t)v;
    }
    for (i = 8 * n; i < size; i++) crc = crc >> 8 ^ lmc__crc_table[(crc ^ p[i]) & 255];
    return crc;
}

static uint32_t lmc__crc32c_scalar(uint32_t crc, const uint8_t *p, size_t size)
{
    uint8_t words[LMC__CRC_PLACES(8) + 64], bytes[LMC__CRC_PLACES(1) + 64];
    crc = ~crc;
    if (size >= 4096) {
        size = lmc__crc_shorten(words, crc, p, size, 8);
        p = words;
        crc = 0;
    }
    if (size >= 512) {
        size = lmc__crc_shorten(bytes, crc, p, size, 1);
        p = bytes;
        crc = 0;
    }
    return ~lmc__crc_by_bits(crc, p, size);
}

#if LMC__NEON || LMC__X86
/* Lanes. A CRC instruction can start in each cycle, but waits two or three cycles for the register
 * of the one before. So a strip is cut into four lanes, whose registers advance in turn. All
 * registers except the first start from 0. All are joined at the end:
 *     | lane 0 ------> | lane 1 ------> | lane 2 ------> | lane 3 ------> |
 *       crc      ->  c0         ->   c1         ->    c2         ->    c3 */

#if LMC__NEON
typedef uint32_t lmc__crc_lane; /* else gcc clears upper halves, which are 0 */
#else
typedef uint64_t lmc__crc_lane;
#endif

/* Adds word i of each lane. */
LMC__INLINE LMC__CRC void lmc__crc_lanes(lmc__crc_lane c[4], const uint8_t *p, size_t i)
{
    c[0] = LMC__CRC_STEP8(c[0], lmc__load64(p + 8 * i));
    c[1] = LMC__CRC_STEP8(c[1], lmc__load64(p + LMC__CRC_LANE4 + 8 * i));
    c[2] = LMC__CRC_STEP8(c[2], lmc__load64(p + 2 * LMC__CRC_LANE4 + 8 * i));
    c[3] = LMC__CRC_STEP8(c[3], lmc__load64(p + 3 * LMC__CRC_LANE4 + 8 * i));
}

#if LMC__NEON
#define LMC__JOIN_LANES static __attribute__((noinline)) /* long, and called once for a strip */
#else
#define LMC__JOIN_LANES LMC__INLINE
#endif
/* The register after all four lanes: the sum of lane 3 - j times x^(8 j LANE4). No product is
 * reduced; one CRC instruction reduces the sum, and multiplies it by x^32. A product's x^0 is one
 * bit below the top of 64 bits: one more x. The factors make up for both. */
LMC__CRC LMC__JOIN_LANES lmc__crc_lane lmc__crc_after_lanes(lmc__crc_lane c0, lmc__crc_lane c1,
                                                            lmc__crc_lane c2, lmc__crc_lane c3)
{
#if LMC__NEON
    uint64_t sum = 0;
    unsigned i;
    LMC__UNROLL for (i = 0; i < 32; i++) sum ^=
        (((0 - (uint64_t)(c0 >> i & 1)) & LMC__CRC_LANE4_SHIFT3) ^
         ((0 - (uint64_t)(c1 >> i & 1)) & LMC__CRC_LANE4_SHIFT2) ^
         ((0 - (uint64_t)(c2 >> i & 1)) & LMC__CRC_LANE4_SHIFT1))
        << i;
    return LMC__CRC_STEP8(0, sum) ^ c3;
#else
    const __m128i shift3 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT3),
                  shift2 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT2),
                  shift1 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT1);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c0), shift3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c1), shift2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c2), shift1, 0));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)) ^ c3;
#endif
}

/* Goes on behind the lanes. */
LMC__INLINE LMC__CRC void lmc__crc_join_lanes(lmc__crc_lane c[4])
{
    c[0] = lmc__crc_after_lanes(c[0], c[1], c[2], c[3]);
    c[1] = c[2] = c[3] = 0;
}

LMC__CRC static uint32_t LMC__VEC(crc32c)(uint32_t crc, const uint8_t *p, size_t size)
{
    lmc__crc_lane c[4] = {(uint32_t)~crc, 0, 0, 0};
    for (; size >= 4 * LMC__CRC_LANE4; p += 4 * LMC__CRC_LANE4, size -= 4 * LMC__CRC_LANE4) {
        size_t i;
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            lmc__crc_lanes(c, p, i);
            lmc__crc_lanes(c, p, i + 1);
        }
        lmc__crc_join_lanes(c);
    }
    for (; size >= 8; p += 8, size -= 8) c[0] = LMC__CRC_STEP8(c[0], lmc__load64(p));
    for (; size != 0; p++, size--) c[0] = LMC__CRC_STEP1(c[0], *p);
    return ~(uint32_t)c[0];
}
#endif

#if LMC__X86
/* Folding, on AVX-512 (Gopal et al., "Fast CRC computation for generic polynomials using
 * PCLMULQDQ", 2009). 16 bytes can be removed if their product with x^(8d) is added to the 16 bytes
 * d places later: the CRC stays the same. The product fits in 16 bytes: the factor is reduced to 32
 * bits. A vector has four lanes of 16 bytes; here four vectors are folded over 256 bytes at a time:
 *     bytes    0         64        128       192       256       320 ...
 *              [ v0    ] [ v1    ] [ v2    ] [ v3    ] [ w0    ] [ w1    ] ...
 *                  |         '-----------------------------------> * x^2048 ^ w1
 *                  '-------------------------------------> * x^2048 ^ w0
 *
 * In the end v0 is folded onto v1, v2, v3, and three lanes onto the last: 16 bytes for crc32.
 *
 * The factors. The first eight bytes of a lane move by d + 8 bytes, so their factor is x^(8 d +
 * 64); the others move by d bytes: x^(8 d). A factor of 32 bits in the low half of a 64-bit word is
 * x^32 times its value. A product of two words has 127 bits, with x^0 one bit below the top of 128:
 * that is one more factor x. Divided by this x^33, the factors are x^(8 d + 31) and x^(8 d - 33).
 */

/* The factors to fold over a distance of 1, 2, 4 or 8 vectors. */
LMC__INLINE_AVX512 __m512i lmc__crc_factor(unsigned vectors)
{
    const uint64_t *fold = lmc__crc_folds[(vectors > 1) + (vectors > 2) + (vectors > 4)];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold));
}

/* a folded onto b, in each of the four lanes */
LMC__INLINE_AVX512 __m512i lmc__crc_fold(__m512i a, __m512i k, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
                                     _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96); /* a ^ b ^ c */
}

/* Folds each of n sums over the distance of `fold`, and adds a vector to it; sums are zero before
 * the first call. *start is xored with the very first vector, and is zero from then on. */
LMC__INLINE_AVX512 void lmc__crc_add_avx512(__m512i *sum, __m512i fold, const __m512i *v,
                                            unsigned n, __m512i *start)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < n; p++) sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
    sum[0] = _mm512_xor_si512(sum[0], *start);
    *start = _mm512_setzero_si512();
}

/* Xored with a message's first vector, to continue from crc: its first 32 bits are the register. */
LMC__INLINE_AVX512 __m512i lmc__crc_start(uint32_t crc)
{
    return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
}

/* The CRC of n vectors, one after the other. */
LMC__INLINE_AVX512 uint32_t lmc__crc_finish(const __m512i *v, unsigned n)
{
    const __m512i k64 = lmc__crc_factor(1), last = _mm512_loadu_si512(lmc__crc_fold_last);
    __m512i sum = v[0], low;
    __m128i x;
    unsigned i;
    LMC__UNROLL for (i = 1; i < n; i++) sum = lmc__crc_fold(sum, k64, v[i]);
    /* folds lanes 0, 1, 2 onto lane 3, whose own factors in `last` are 0 */
    low = _mm512_xor_si512(_mm512_clmulepi64_epi128(sum, last, 0x00),
                           _mm512_clmulepi64_epi128(sum, last, 0x11));
    x = _mm_xor_si128(_mm512_extracti32x4_epi32(sum, 3), _mm512_castsi512_si128(low));
    x = _mm_ternarylogic_epi64(x, _mm512_extracti32x4_epi32(low, 1),
                               _mm512_extracti32x4_epi32(low, 2), 0x96);
    return ~(uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)),
                                    (uint64_t)_mm_extract_epi64(x, 1));
}

LMC__AVX512 static uint32_t lmc__crc32c_avx512(uint32_t crc, const uint8_t *p, size_t size)
{
    uint64_t c;
    if (size >= 256) {
        const __m512i k256 = lmc__crc_factor(4);
        __m512i v[4];
        unsigned i;
        LMC__UNROLL for (i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(p + 64 * i);
        v[0] = _mm512_xor_si512(v[0], lmc__crc_start(crc));
        for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
            LMC__UNROLL for (i = 0; i < 4; i++) v[i] =
                lmc__crc_fold(v[i], k256, _mm512_loadu_si512(p + 64 * i));
        crc = lmc__crc_finish(v, 4);
    }
    c = (uint32_t)~crc;
    for (; size >= 8; p += 8, size -= 8) c = _mm_crc32_u64(c, lmc__load64(p));
    for (; size != 0; p++, size--) c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

/* == kernels/sum64.h =========================================================================== */

/* sum64: the sum modulo 2^64 of the little-endian u64 words of size bytes; zero bytes complete the
 * last word (spec 7.1). It finds changes that a CRC-32C, which is linear over GF(2), misses. */
#if LMC__NEON
LMC__INLINE uint64_t lmc__sum_words_neon(uint8x16_t v)
{
    return vaddvq_u64(vreinterpretq_u64_u8(v));
}
#elif LMC__X86
/* The words of a vector, added up. (_mm512_reduce_add_epi64 adds signed numbers, without wrap.) */
LMC__INLINE_AVX2 uint64_t lmc__sum_words_avx2(__m256i v)
{
    uint64_t words[4];
    lmc__store_avx2((uint8_t *)words, v);
    return words[0] + words[1] + words[2] + words[3];
}

LMC__INLINE_AVX512 uint64_t lmc__sum_words_avx512(__m512i v)
{
    return lmc__sum_words_avx2(
        _mm256_add_epi64(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}
#endif

#ifndef LMC_NO_SNAPSHOT
static uint64_t lmc__sum64_scalar(const uint8_t *p, size_t size)
{
    uint64_t sum[4] = {0, 0, 0, 0}, rest;
    uint8_t tail[8] = {0};
    size_t i = 0;
    for (; i + 32 <= size; i += 32) {
        sum[0] += lmc__load64(p + i);
        sum[1] += lmc__load64(p + i + 8);
        sum[2] += lmc__load64(p + i + 16);
        sum[3] += lmc__load64(p + i + 24);
    }
    for (; i + 8 <= size; i += 8) sum[0] += lmc__load64(p + i);
    memcpy(tail, p + i, size - i);
    rest = lmc__load64(tail);
    return sum[0] + sum[1] + sum[2] + sum[3] + rest;
}

#if LMC__X86
/* Loads limit it, so AVX-512 is no faster. */
LMC__AVX2 static uint64_t lmc__sum64_avx2(const uint8_t *p, size_t size)
{
    __m256i sum[4];
    size_t i;
    unsigned v;
    LMC__UNROLL for (v = 0; v < 4; v++) sum[v] = _mm256_setzero_si256();
    for (i = 0; i + 128 <= size; i += 128)
        LMC__UNROLL for (v = 0; v < 4; v++) sum[v] =
            _mm256_add_epi64(sum[v], lmc__load_avx2(p + i + 32 * v));
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return lmc__sum_words_avx2(sum[0]) + lmc__sum64_scalar(p + i, size - i);
}
#endif

/* == kernels/sha256.h ========================================================================== */

/* The rounds of SHA-256 (FIPS 180-4): sha256(state, p, n) takes n blocks of 64 bytes into the
 * state. snapshot/sha256.h pads messages. */
/* From the cube roots of the first 64 primes (4.2.2). */
static const uint32_t lmc__sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* By the standard's 6.2.2. v has its variables a to h. Each of 64 rounds moves v down by one
 * element, which renames the variables, and makes two new values: a from all, e from d. w has the
 * 16 big-endian words of the block, and 48 words mixed from them. */
static void lmc__sha256_scalar(uint32_t state[8], const uint8_t *p, size_t n)
{
    uint32_t w[64], all[64 + 8];
    for (; n > 0; n--, p += 64) {
        uint32_t *v = all + 64;
        int t;
#define LMC__ROTR(x, n) ((x) >> (n) | (x) << (32 - (n)))
        for (t = 0; t < 16; t++)
            w[t] = (uint32_t)p[4 * t] << 24 | (uint32_t)p[4 * t + 1] << 16 |
                   (uint32_t)p[4 * t + 2] << 8 | p[4 * t + 3];
        for (; t < 64; t++)
            w[t] = w[t - 16] + w[t - 7] +
                   (LMC__ROTR(w[t - 15], 7) ^ LMC__ROTR(w[t - 15], 18) ^ w[t - 15] >> 3) +
                   (LMC__ROTR(w[t - 2], 17) ^ LMC__ROTR(w[t - 2], 19) ^ w[t - 2] >> 10);
        memcpy(v, state, 8 * sizeof *v);
        for (t = 0; t < 64; t++, v--) {
            const uint32_t a = v[0], e = v[4];
            const uint32_t t1 = v[7] + (LMC__ROTR(e, 6) ^ LMC__ROTR(e, 11) ^ LMC__ROTR(e, 25)) +
                                ((e & v[5]) ^ (~e & v[6])) + lmc__sha256_constants[t] + w[t];
            const uint32_t t2 = (LMC__ROTR(a, 2) ^ LMC__ROTR(a, 13) ^ LMC__ROTR(a, 22)) +
                                ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
            v[3] += t1;
            v[-1] = t1 + t2;
        }
        for (t = 0; t < 8; t++) state[t] += v[t];
#undef LMC__ROTR
    }
}

/* By the CPU's instructions for it, four rounds a step. w has the last 16 words; word t of the
 * message, from 16 on, is
 *     w[t - 16] + s0(w[t - 15]) + w[t - 7] + s1(w[t - 2])
 */
#if LMC__X86
/* sha256rnds2 makes two rounds of (a b e f), (c d g h): the second is then what the first was. It
 * adds the lower half of its third argument. sha256msg1 makes w[t - 16] + s0(w[t - 15]) of four
 * words; sha256msg2 adds s1(w[t - 2]), also of the words that it makes. */
LMC__SHA static void lmc__sha256_x86(uint32_t state[8], const uint8_t *p, size_t n)
{
    const __m128i big_endian = _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203);
    __m128i abcd = _mm_loadu_si128((const __m128i *)(const void *)state),
            efgh = _mm_loadu_si128((const __m128i *)(const void *)(state + 4)), abef, cdgh, w[4];
    unsigned t, j;
    abcd = _mm_shuffle_epi32(abcd, 0xB1); /* high to low: c d a b */
    efgh = _mm_shuffle_epi32(efgh, 0x1B); /* e f g h */
    abef = _mm_alignr_epi8(abcd, efgh, 8);
    cdgh = _mm_blend_epi16(efgh, abcd, 0xF0);
    for (; n > 0; n--, p += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        LMC__UNROLL for (j = 0; j < 4; j++) w[j] = _mm_shuffle_epi8(
            _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * j)), big_endian);
        for (t = 0; t < 64; t += 16) LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const __m128i k = _mm_loadu_si128(
                    (const __m128i *)(const void *)(lmc__sha256_constants + t + 4 * j));
                const __m128i wk = _mm_add_epi32(w[j], k);
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
                if (t < 48) {
                    const __m128i last = w[(j + 3) % 4];
                    w[j] = _mm_sha256msg1_epu32(w[j], w[(j + 1) % 4]);
                    w[j] = _mm_add_epi32(w[j], _mm_alignr_epi8(last, w[(j + 2) % 4], 4));
                    w[j] = _mm_sha256msg2_epu32(w[j], last);
                }
            }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    abcd = _mm_shuffle_epi32(abef, 0x1B); /* f e b a */
    efgh = _mm_shuffle_epi32(cdgh, 0xB1); /* d c h g */
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abcd, efgh, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(efgh, abcd, 8));
}
#endif

#if LMC__NEON
/* sha256h makes four rounds of (a b c d), sha256h2 the same of (e f g h), from both as they were.
 * sha256su0 makes w[t - 16] + s0(w[t - 15]) of four words, sha256su1 adds the rest. As assembly,
 * because some compilers' arm_neon.h lacks them if only a function's attribute enables them. */
LMC__SHA static void lmc__sha256_arm(uint32_t state[8], const uint8_t *p, size_t n)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), w[4];
    unsigned t, j;
    for (; n > 0; n--, p += 64) {
        const uint32x4_t abcd_before = abcd, efgh_before = efgh;
        LMC__UNROLL for (j = 0; j < 4; j++) w[j] =
            vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * j)));
        for (t = 0; t < 64; t += 16) LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const uint32x4_t wk = vaddq_u32(w[j], vld1q_u32(lmc__sha256_constants + t + 4 * j));
                const uint32x4_t before = abcd;
                __asm__("sha256h %q0, %q1, %2.4s" : "+w"(abcd) : "w"(efgh), "w"(wk));
                __asm__("sha256h2 %q0, %q1, %2.4s" : "+w"(efgh) : "w"(before), "w"(wk));
                if (t < 48) {
                    __asm__("sha256su0 %0.4s, %1.4s" : "+w"(w[j]) : "w"(w[(j + 1) % 4]));
                    __asm__("sha256su1 %0.4s, %1.4s, %2.4s"
                            : "+w"(w[j])
                            : "w"(w[(j + 2) % 4]), "w"(w[(j + 3) % 4]));
                }
            }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
#endif
#endif /* LMC_NO_SNAPSHOT */

/* == kernels/split_join.h ====================================================================== */

/* split: writes byte p of element i's residual against 0 (spec 5.1) to planes->row[p][i]. join: the
 * inverse. Elements have `width` bytes, 1, 2, 4 or 8. All rows and the elements are read and
 * written exactly, at any alignment, and must not overlap. The residual of a float is the float
 * rotated left by one bit, so the top byte of bf16 and fp32 is the exponent:
 *     bf16        s eeeeeeee mmmmmmm                    fp32   s eeeeeeee mmm ... mmm (23)
 *     rotated     eeeeeeee mmmmmmms                            eeeeeeee mmm ... mmm s
 *                 row[1]   row[0]                              row[3]   row[2] row[1] row[0]
 *
 * Exponents of weights are few and unequal: the top row compresses; signs, mantissas hardly do.
 * Both are called for samples, and for what the loops of split_root and join_root leave. */

/* Constant widths let the compiler unroll the called functions: `statement` uses w, the width. */
#define LMC__FOR_WIDTH(statement)                                                                  \
    switch (width) {                                                                               \
    case 1: LMC__WITH(w, 1, statement)                                                             \
    case 2: LMC__WITH(w, 2, statement)                                                             \
    case 4: LMC__WITH(w, 4, statement)                                                             \
    default: LMC__WITH(w, 8, statement)                                                            \
    }

/* Defines functions NAME_1 to NAME_8 of a loop NAME_loop, one for each width, and calls the right
 * one. In one function for all widths gcc would run out of registers for the counters and pointers
 * of the innermost loop. The loop has `width` as a parameter, these functions do not. */
#define LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, w)                              \
    attributes void name##_##w parameters                                                          \
    {                                                                                              \
        const unsigned width = w;                                                                  \
        name##_loop arguments;                                                                     \
    }
#define LMC__DEFINE_WIDTHS(name, attributes, parameters, arguments)                                \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 1)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 2)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 4)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 8)
#define LMC__CALL_WIDTH(name, arguments)                                                           \
    switch (width) {                                                                               \
    case 1: name##_1 arguments; break;                                                             \
    case 2: name##_2 arguments; break;                                                             \
    case 4: name##_4 arguments; break;                                                             \
    default: name##_8 arguments;                                                                   \
    }

/* 1 where compilers turn loops of constant length into vector code by themselves: elements of 2
 * bytes are then processed by sixteen in such loops; elsewhere by eight, in words. */
#ifndef LMC__VECTOR_LOOPS
#if (defined(__clang__) || __GNUC__ >= 12 || defined(_MSC_VER)) &&                                 \
    (defined(__SSE2__) || defined(_M_X64) || defined(__ARM_NEON) || defined(__ALTIVEC__) ||        \
     defined(__VX__) || defined(__wasm_simd128__) || defined(__riscv_vector))
#define LMC__VECTOR_LOOPS 1
#else
#define LMC__VECTOR_LOOPS 0
#endif
#endif

/* The inverse of lmc__split_body. Rows are read exactly: some end where a decoder's input ends. */
LMC__INLINE void lmc__join_body(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                unsigned width, enum lmc__order order)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (LMC__VECTOR_LOOPS && width == 2)
        for (; i + 16 <= n; i += 16) {
            const uint8_t *low = planes->row[0] + i, *high = planes->row[1] + i;
            uint16_t e[16];
            int j;
            /* all loads before the first store: for the compiler, dst may overlap rows */
            for (j = 0; j < 16; j++) {
                const uint16_t r = (uint16_t)(low[j] | high[j] << 8);
                const uint16_t z = (uint16_t)(r >> 1 | r << 15);
                e[j] = order == LMC__ORDER_NONE    ? r
                       : order == LMC__ORDER_FLOAT ? z
                                                   : (uint16_t)(z ^ ((0u - (r & 1u)) & 0x7FFF));
            }
            lmc__store16x16(dst + 2 * i, e);
        }
    /* a word of each plane to 8 elements */
    for (; i + 8 <= n; i += 8) {
        for (p = 0; p < width; p++) v[p] = lmc__load64(planes->row[p] + i);
        lmc__join8(dst + i * width, v, width, order);
    }
    /* 1 to 7 elements: as many bytes of each row, in words that are filled up with zeros */
    if (i < n) {
        uint8_t tail[64], in[8];
        for (p = 0; p < width; p++) {
            memset(in, 0, sizeof in);
            memcpy(in, planes->row[p] + i, n - i);
            v[p] = lmc__load64(in);
        }
        lmc__join8(tail, v, width, order);
        memcpy(dst + i * width, tail, (n - i) * width);
    }
}

/* Calls the body with a constant width; only for width 2 is the order a constant, too. */
LMC__INLINE void lmc__join_by_order(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                    unsigned width, enum lmc__order order)
{
    if (width != 2) lmc__join_body(dst, planes, n, width, order);
    else if (order == LMC__ORDER_FLOAT) lmc__join_body(dst, planes, n, width, LMC__ORDER_FLOAT);
    else if (order) lmc__join_body(dst, planes, n, width, LMC__ORDER_INTEGER);
    else lmc__join_body(dst, planes, n, width, LMC__ORDER_NONE);
}

/* The vector tiers also end with this kernel, so n may be 0. */
static void lmc__join_scalar(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                             unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__join_by_order(dst, planes, n, w, order));
}

#if LMC__NEON || LMC__X86
/* The vector tiers: a loop for each width, in which the order is tested; the scalar kernel ends it.
 *
 * `width` vectors of elements, in order, become one vector for each plane in log2(width) steps.
 * Each step sorts bytes by one more bit of p, their place within the element. Here the width is 4,
 * a vector has 8 bytes, and 21 is byte 1 of element 2:
 *     v[0]  00 01 02 03 10 11 12 13         00 02 10 12 20 22 30 32         00 10 20 30 40 50 60 70
 *     v[1]  20 21 22 23 30 31 32 33  s = 1  40 42 50 52 60 62 70 72  s = 2  01 11 21 31 41 51 61 71
 *     v[2]  40 41 42 43 50 51 52 53  ---->  01 03 11 13 21 23 31 33  ---->  02 12 22 32 42 52 62 72
 *     v[3]  60 61 62 63 70 71 72 73         41 43 51 53 61 63 71 73         03 13 23 33 43 53 63 73
 *
 * Before step s = 1, 2, 4 the bytes with p = r (mod s) are in `parts` = width / s vectors, v[r *
 * parts + j]. There, even bytes have p = r, odd bytes p = r + s (mod 2 s). A join takes the same
 * steps backwards. All bounds are constant where this is inlined, but gcc must be told to unroll.
 *
 * A step of a split makes each vector from two: on AVX2 by two masks or shifts, a pack and a
 * permutation, on AVX-512 by one permutation, on NEON by one instruction.
 *
 * to_residuals and from_residuals (spec 5.1) are not for LMC__ORDER_NONE. */
#define LMC__DEFINE_JOIN(isa, INLINE, VECTOR)                                                      \
    INLINE void lmc__join_step_##isa(VECTOR v[8], unsigned width, unsigned s)                      \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        VECTOR t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            lmc__zip_##isa(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],      \
                           v[(r + s) * half + j]);                                                 \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }                                                                                              \
    INLINE VECTOR lmc__from_residuals_##isa(VECTOR r, unsigned width, enum lmc__order order)       \
    {                                                                                              \
        r = lmc__rotate_##isa(r, width, 0);                                                        \
        if (order == LMC__ORDER_INTEGER)                                                           \
            r = r ^ (lmc__negative_##isa(r, width) & ~lmc__sign_bits_##isa(width));                \
        return r;                                                                                  \
    }                                                                                              \
    INLINE void lmc__join_vectors_##isa(VECTOR v[8], unsigned width)                               \
    {                                                                                              \
        if (width >= 8) lmc__join_step_##isa(v, width, 4);                                         \
        if (width >= 4) lmc__join_step_##isa(v, width, 2);                                         \
        if (width >= 2) lmc__join_step_##isa(v, width, 1);                                         \
    }
#define LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)
#define LMC__DEFINE_SPLIT_JOIN(isa, INLINE, VECTOR)                                                \
    LMC__DEFINE_JOIN(isa, INLINE, VECTOR)                                                          \
    LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)
#endif

#if LMC__NEON
LMC__DEFINE_SPLIT_JOIN(neon, LMC__INLINE, uint8x16_t)
#elif LMC__X86
LMC__DEFINE_SPLIT_JOIN(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_SPLIT_JOIN(avx512, LMC__INLINE_AVX512, __m512i)
#endif

#if LMC__NEON || LMC__X86
/* One vector of each plane at a time. */
LMC__INLINE_VEC void LMC__VEC(join_body)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                         unsigned width, enum lmc__order order)
{
    lmc__const_planes rest;
    lmc__vector v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = LMC__VEC(load)(planes->row[p] + i);
        LMC__VEC(join_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            if (order) v[p] = LMC__VEC(from_residuals)(v[p], width, order);
            LMC__VEC(store)(dst + i * width + sizeof v[0] * p, v[p]);
        }
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__join_scalar(dst + i * width, &rest, n - i, width, order);
}

/* The AVX-512 tier uses AVX2's join for strips and for elements behind its loop of join_root. */
LMC__STATIC_VEC void LMC__VEC(join)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                    unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(LMC__VEC(join_body)(dst, planes, n, w, order));
}
#endif

#if LMC__X86
#endif

/* == kernels/count.h =========================================================================== */

/* count_ones: the number of one bits in mask[0, size). In a word this adds neighbours of 1, 2, 4
 * bits; a multiplication adds all bytes into the top byte (Warren, Hacker's Delight, 5-1). */
static size_t lmc__count_ones_scalar(const uint8_t *mask, size_t size)
{
    size_t i, ones = 0;
    for (i = 0; i + 8 <= size; i += 8) {
        uint64_t v = lmc__load64(mask + i);
        v = v - (v >> 1 & 0x5555555555555555u);
        v = (v & 0x3333333333333333u) + (v >> 2 & 0x3333333333333333u);
        v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
        ones += (size_t)(v * LMC__ONES8 >> 56);
    }
    for (; i < size; i++) ones += lmc__ones[mask[i]];
    return ones;
}

#if LMC__NEON
/* vcnt counts the ones of each byte. Four results are added as bytes (at most 32), then pairs. */
static size_t lmc__count_ones_neon(const uint8_t *mask, size_t size)
{
    uint32x4_t sum = vdupq_n_u32(0);
    size_t i, ones;
    for (i = 0; i + 64 <= size; i += 64) {
        const uint8x16_t low =
            vaddq_u8(vcntq_u8(vld1q_u8(mask + i)), vcntq_u8(vld1q_u8(mask + i + 16)));
        const uint8x16_t high =
            vaddq_u8(vcntq_u8(vld1q_u8(mask + i + 32)), vcntq_u8(vld1q_u8(mask + i + 48)));
        sum = vpadalq_u16(sum, vpaddlq_u8(vaddq_u8(low, high)));
    }
    /* a lane grows by at most 128 in a step; the mask of a block has at most 2^22 bits */
    ones = (size_t)vaddlvq_u32(sum);
    for (; i < size; i++) ones += lmc__ones[mask[i]];
    return ones;
}
#endif

#if LMC__X86
/* AVX2 has no popcount of vectors. The last bytes, at most 7, make a word of their own. */
LMC__AVX2 static size_t lmc__count_ones_avx2(const uint8_t *mask, size_t size)
{
    uint64_t rest = 0;
    size_t i, ones = 0;
    for (i = 0; i + 32 <= size; i += 32) {
        ones += (size_t)(_mm_popcnt_u64(lmc__load64(mask + i)) +
                         _mm_popcnt_u64(lmc__load64(mask + i + 8)));
        ones += (size_t)(_mm_popcnt_u64(lmc__load64(mask + i + 16)) +
                         _mm_popcnt_u64(lmc__load64(mask + i + 24)));
    }
    for (; i + 8 <= size; i += 8) ones += (size_t)_mm_popcnt_u64(lmc__load64(mask + i));
    for (; i < size; i++) rest = rest << 8 | mask[i];
    return ones + (size_t)_mm_popcnt_u64(rest);
}
/* The last load is masked: it does not access bytes beyond size, and gives zeros for them. */
LMC__AVX512 static size_t lmc__count_ones_avx512(const uint8_t *mask, size_t size)
{
    __m512i ones = _mm512_setzero_si512();
    size_t i;
    for (i = 0; i < size; i += 64) {
        const __mmask64 valid = size - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (size - i)) - 1;
        ones =
            _mm512_add_epi64(ones, _mm512_popcnt_epi64(_mm512_maskz_loadu_epi8(valid, mask + i)));
    }
    return (size_t)_mm512_reduce_add_epi64(ones);
}
#endif

/* == kernels/merge.h =========================================================================== */

/* merge: dst[i] = the next element of left (bit i of mask is 0) or right (1). The inverse of
 * partition, for one node. A side may be a constant. dst is a list, mask is read exactly.
 *
 *     mask   0 1 0 0 1 1 0 1         place in its list   0 0 1 2 1 2 3 3
 *     left   3 4 4 1
 *     right  9 8 9 7
 *     dst    3 9 4 4 8 9 1 7
 *
 * An element's place is the number of mask bits of its kind before it. All tiers find the places of
 * a group of elements from its mask bits, shuffle both sides to them, and choose by the mask.
 *
 * Bounds. The mask decides how far the lists are read; the decoder has counted the mask's ones
 * before, and made lists of that length. A step may read up to 64 bytes behind the end of a list:
 * the list's slack. dst is written in whole groups, too, so it must not overlap the sides. */

/* Eight elements at a time; this defines merge. Arranges the next bytes of both sides as lmc__sort8
 * leaves them (the right side from the upper end down), and undoes the sort. If the left side is
 * the constant, the sides change places and the mask is inverted. Between two constants, l ^ ((l ^
 * r) & ones) is r at the ones. Each step loads 8 bytes of a list, so at most 8 behind its end. */
static void lmc__merge_scalar(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                              lmc__side right)
{
    const uint64_t l = left.value * LMC__ONES8, r = right.value * LMC__ONES8;
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    if (a && b) {
        for (i = 0; i < n; i += 8) {
            const unsigned m = mask[i >> 3], ones = lmc__ones[m];
            lmc__store64(dst + i, lmc__unsort8(lmc__load64(a), lmc__reverse8(lmc__load64(b)), m));
            a += 8 - ones;
            b += ones;
        }
    } else if (a || b) {
        const uint8_t *list = a ? a : b;
        const uint64_t constant = a ? r : l;
        const unsigned invert = a ? 0 : 255;
        for (i = 0; i < n; i += 8) {
            const unsigned m = mask[i >> 3] ^ invert;
            lmc__store64(dst + i, lmc__unsort8(lmc__load64(list), constant, m));
            list += 8 - lmc__ones[m];
        }
    } else {
        for (i = 0; i < n; i += 8)
            lmc__store64(dst + i, l ^ ((l ^ r) & lmc__byte_mask[mask[i >> 3]]));
    }
}

#if LMC__NEON
/* Where the elements of a step of 64 are in two lists. For elements [16 j, 16 j + 16), x has the
 * next 16 bytes of each side, and one look-up picks 16 of these 32; before[j] ones are before them.
 * The tables have the places of eight elements. The places of the second eight depend on c, the
 * number of ones in the first eight. lmc__merge_high stores them so that |high - c| is right for
 * zeros and for ones. counts: ones in each byte of m; ones: the sum of counts up to and including
 * that byte. LMC__PLACES16 is a macro, as clang requires a literal lane number.
 *
 *     place in x      0 ... 15: left, from 16 j - before; 16 ... 31: right, from before
 *     low[m]          0, 1, ... for zeros       16, 17, ... for ones
 *     wanted above    8 - c, 9 - c, ...         16 + c, 17 + c, ...
 *     high[m]         8, 9, ...                 -16, -17, ...         as signed bytes
 *     |high - c|      8 - c, 9 - c, ...         |-16 - c| = 16 + c, ...
 *
 * Returns the ones of m. */
#define LMC__PLACES16(j)                                                                           \
    do {                                                                                           \
        const uint8x8_t low = vcreate_u8(lmc__merge_low[m >> 16 * (j) & 255]);                     \
        const int8x8_t high = vabd_s8(vcreate_s8(lmc__merge_high[m >> (16 * (j) + 8) & 255]),      \
                                      vreinterpret_s8_u8(vdup_lane_u8(counts, 2 * (j))));          \
        places[j] = vcombine_u8(low, vreinterpret_u8_s8(high));                                    \
        before[j] = (j) ? (size_t)(ones >> ((16 * (j) - 8) & 63) & 255) : 0;                       \
    } while (0)
LMC__INLINE size_t lmc__merge_places_neon(uint8x16_t places[4], size_t before[4], uint64_t m)
{
    const uint8x8_t counts = vcnt_u8(vcreate_u8(m));
    const uint64_t ones = vget_lane_u64(vreinterpret_u64_u8(counts), 0) * LMC__ONES8;
    LMC__PLACES16(0);
    LMC__PLACES16(1);
    LMC__PLACES16(2);
    LMC__PLACES16(3);
    return (size_t)(ones >> 56);
}

/* 64 elements, whose bits are m. A constant fills its half of x once, so every place in this half
 * is right. Between two constants each bit, spread to a byte, chooses. Returns the ones of m. */
LMC__INLINE size_t lmc__merge64_neon(uint8x16_t out[4], uint64_t m, const uint8_t *a,
                                     const uint8_t *b, uint8x16_t l, uint8x16_t r, int has_left,
                                     int has_right)
{
    uint8x16_t places[4];
    uint8x16x2_t x;
    size_t before[4];
    const size_t ones = lmc__merge_places_neon(places, before, m);
    unsigned j;
    x.val[0] = l;
    x.val[1] = r;
    LMC__UNROLL for (j = 0; j < 4; j++)
    {
        if (has_left) x.val[0] = vld1q_u8(a - before[j] + 16 * j);
        if (has_right) x.val[1] = vld1q_u8(b + before[j]);
        out[j] = has_left || has_right
                     ? vqtbl2q_u8(x, places[j])
                     : vbslq_u8(lmc__spread_neon(lmc__load_bits_neon(m), j), r, l);
    }
    return ones;
}
#endif

#if LMC__AVX2_TEXT

/* 32 elements, in halves of 16, because a byte shuffle works within 16 bytes. The mask's bits are
 * bytes 0 or -1, so the sum s up to and including an element is minus the number of ones so far:
 *     an element of the left   is number i + s      of those that its half takes from the left
 *     one of the right         is number -s - 1 = ~s
 *
 *     i                0   1   2   3   4   5   6   7 ...     within the half
 *     mask             0   1   0   0   1   1   0   1
 *     sum              0  -1  -1  -1  -2  -3  -3  -4
 *     i + sum          0   .   1   2   .   .   3   .         places in left
 *     ~sum             .   0   .   .   1   2   .   3         places in right
 *
 * The values at the dots do not matter: the blend takes the other side there. The first half takes
 * 16 - half elements of the left list and half of the right one, and the second half continues
 * behind them. So each half is loaded from its own place, within 32 bytes from a and b. */
LMC__INLINE_AVX2 __m256i lmc__merge_spread_avx2(__m256i one, size_t half, const uint8_t *a,
                                                const uint8_t *b, __m256i l, __m256i r,
                                                int has_left, int has_right)
{
    const __m256i up = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
                                        2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m256i sum = one;
    if (has_left || has_right) sum = lmc__sum_up_avx2(sum);
    if (has_left)
        l = _mm256_shuffle_epi8(lmc__load_pair_avx2(a, a + 16 - half), _mm256_add_epi8(up, sum));
    if (has_right)
        r = _mm256_shuffle_epi8(lmc__load_pair_avx2(b, b + half),
                                _mm256_xor_si256(sum, _mm256_set1_epi16(-1)));
    return lmc__blend_avx2(one, r, l);
}

/* 64 elements, whose bits are m: twice 32. */
LMC__INLINE_AVX2 size_t lmc__merge64_avx2(__m256i out[2], uint64_t m, const uint8_t *a,
                                          const uint8_t *b, __m256i l, __m256i r, int has_left,
                                          int has_right)
{
    const size_t c1 = (size_t)_mm_popcnt_u64(m & 0xFFFF), c2 = (size_t)_mm_popcnt_u64((uint32_t)m),
                 c3 = (size_t)_mm_popcnt_u64(m << 16);
    const __m256i bits = lmc__load_bits_avx2(m);
    out[0] = lmc__merge_spread_avx2(lmc__spread_avx2(bits, 0), c1, a, b, l, r, has_left, has_right);
    if (has_left) a += 32 - c2;
    if (has_right) b += c2;
    out[1] =
        lmc__merge_spread_avx2(lmc__spread_avx2(bits, 1), c3 - c2, a, b, l, r, has_left, has_right);
    return (size_t)_mm_popcnt_u64(m);
}
#endif

#if LMC__NEON || LMC__AVX2_TEXT
/* A step depends on the step before only by a and b, which the ones of the mask move. The last step
 * may be short: its mask is zero behind n, but it stores 64 bytes. */
LMC__INLINE_VEC void LMC__VEC(merge_body)(uint8_t *dst, const uint8_t *mask, size_t n,
                                          lmc__side left, lmc__side right, int has_left,
                                          int has_right)
{
    const lmc__vector l = LMC__VEC(splat)(left.value), r = LMC__VEC(splat)(right.value);
    const uint8_t *a = left.list, *b = right.list;
    lmc__vector out[LMC__VECTORS_OF_64];
    size_t i;
    unsigned j;
    for (i = 0; i + 64 <= n; i += 64) {
        const size_t ones =
            LMC__VEC(merge64)(out, lmc__load64(mask + i / 8), a, b, l, r, has_left, has_right);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
            LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, out[j]);
        if (has_left) a += 64 - ones;
        if (has_right) b += ones;
    }
    if (i == n) return;
    (void)LMC__VEC(merge64)(out, lmc__load_mask(mask, i, n), a, b, l, r, has_left, has_right);
    for (j = 0; j < LMC__VECTORS_OF_64; j++)
        LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, out[j]);
}

LMC__STATIC_VEC void LMC__VEC(merge)(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                                     lmc__side right)
{
    LMC__FOR_SIDES(left.list, right.list,
                   LMC__VEC(merge_body)(dst, mask, n, left, right, has_left, has_right));
}
#endif

#if LMC__X86
/* vpexpandb is the merge of one side: it puts consecutive bytes at the places of the mask's ones
 * and leaves the other places as they are. So the right side is expanded onto the left one:
 *     m                            0 1 0 0 1 1 0 1
 *     v = expand(x, ~m, a)         A . B C . . D .
 *     expand(v, m, b)              A R B C S T D U */
LMC__INLINE_AVX512 __m512i lmc__merge_step_avx512(uint64_t m, const uint8_t *a, const uint8_t *b,
                                                  __m512i l, __m512i r, int has_left, int has_right)
{
    __m512i v = l;
    if (has_left) { /* the merge-masked form, which has no false dependency */
        const __m512i x = _mm512_loadu_si512(a);
        v = _mm512_mask_expand_epi8(x, ~m, x);
    }
    return has_right ? _mm512_mask_expand_epi8(v, m, _mm512_loadu_si512(b))
                     : _mm512_mask_mov_epi8(v, m, r);
}

/* l, r: the values of sides that are constants. Each step loads the next 64 bytes of each list.
 * Such a load may begin at the list's end, and then reads all of the slack. */
LMC__INLINE_AVX512 void lmc__merge_body_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                               lmc__side left, lmc__side right, int has_left,
                                               int has_right)
{
    const __m512i l = _mm512_set1_epi8((char)left.value), r = _mm512_set1_epi8((char)right.value);
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    for (i = 0; i + 64 <= n; i += 64) {
        const uint64_t m = lmc__load64(mask + i / 8);
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(m, a, b, l, r, has_left, has_right));
        if (has_left) a += 64 - ones;
        if (has_right) b += ones;
    }
    if (i < n)
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(lmc__load_mask(mask, i, n), a, b, l, r,
                                                            has_left, has_right));
}

LMC__AVX512 static void lmc__merge_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                          lmc__side left, lmc__side right)
{
    LMC__FOR_SIDES(left.list, right.list,
                   lmc__merge_body_avx512(dst, mask, n, left, right, has_left, has_right));
}
#endif

#if LMC__SIMDE
/* Between two constants the scalar kernel is faster: it has no bytes to shuffle. */
static void lmc__merge_simde(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                             lmc__side right)
{
    if (left.list || right.list) lmc__merge_avx2(dst, mask, n, left, right);
    else lmc__merge_scalar(dst, mask, n, left, right);
}
#endif

/* == kernels/flatten.h ========================================================================= */

/* Flat nodes (spec 6.2): all 2^depth leaves below a node have the same depth, 2 to 6. So an element
 * is a number of `depth` bits, and the node is `depth` planes of ceil(n / 8) bytes, top bits first:
 *     src - first     5 2 7 0 ...           = 101 010 111 000 ...
 *     plane 0         1 0 1 0 ...
 *     plane 1         0 1 1 0 ...
 *     plane 2         1 0 1 0 ...
 *
 * flatten: src is a list, first <= src[i] < first + 2^depth; bits is written exactly, its unused
 * bits as zeros. unflatten: the inverse, dst[i] = symbols[number i]; dst is a list, symbols has
 * 2^depth entries and is not read beyond them. Both go through all planes once for each vector of
 * elements: a plane's bits are shifted out of, or into, the vector's bytes.
 *
 * There are no gaps between planes, so a store of one byte too many would overwrite the next one:
 * the last step stores exactly what is left of each. bits and the list must not overlap. */

static void lmc__unflatten_scalar(uint8_t *dst, const uint8_t *bits, size_t n,
                                  const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    size_t i;
    unsigned d, j;
    for (i = 0; i < n; i += 8) {
        uint64_t v = 0;
        for (d = 0; d < depth; d++)
            v = v << 1 | (lmc__byte_mask[bits[d * row + (i >> 3)]] & LMC__ONES8);
        for (j = 0; j < 8; j++) dst[i + j] = symbols[v >> 8 * j & 63];
    }
}

#if LMC__NEON || LMC__AVX2_TEXT
/* A step of 64 elements, of which n count. */
LMC__INLINE_VEC void LMC__VEC(unflatten64)(uint8_t *dst, const uint8_t *bits, size_t row, size_t n,
                                           const lmc__table64 *table, unsigned depth)
{
    lmc__vector v[LMC__VECTORS_OF_64];
    unsigned d, j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] = LMC__VEC(splat)(0);
    LMC__UNROLL for (d = 0; d < 6; d++, bits += row)
    {
        lmc__vector m;
        if (d >= depth) break;
        m = LMC__VEC(load_bits)(lmc__load_mask(bits, 0, n));
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] =
            LMC__VEC(push_bit)(v[j], LMC__VEC(spread)(m, j));
    }
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
        LMC__VEC(store)(dst + LMC__VECTOR_SIZE * j, LMC__VEC(look_up)(table, v[j], depth));
}

/* symbols has only 2^depth entries: a copy is padded to the 64 entries of a table. */
LMC__INLINE_VEC void LMC__VEC(unflatten_body)(uint8_t *dst, const uint8_t *bits, size_t n,
                                              const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    lmc__table64 table;
    uint8_t padded[64];
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    table = LMC__VEC(load64)(padded);
    for (; n >= 64; n -= 64, dst += 64, bits += 8)
        LMC__VEC(unflatten64)(dst, bits, row, 64, &table, depth);
    if (n != 0) LMC__VEC(unflatten64)(dst, bits, row, n, &table, depth);
}

/* The usual depth is a constant in a copy of the loop, which is faster. */
LMC__STATIC_VEC void LMC__VEC(unflatten)(uint8_t *dst, const uint8_t *bits, size_t n,
                                         const uint8_t *symbols, unsigned depth)
{
    if (depth == 2) LMC__VEC(unflatten_body)(dst, bits, n, symbols, 2);
    else LMC__VEC(unflatten_body)(dst, bits, n, symbols, depth);
}
#endif

#if LMC__X86
/* Each plane's 64 bits are the mask for adding the plane's weight. One vpermb looks up among 64
 * symbols: so LMC__MAX_FLAT is 6. The masked load reads no entries behind 2^depth. */
LMC__INLINE_AVX512 void lmc__unflatten_body_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
                                                   const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i table = _mm512_maskz_loadu_epi8(
        depth == 6 ? ~(__mmask64)0 : ((__mmask64)1 << (1 << depth)) - 1, symbols);
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 64) {
        const uint8_t *plane = bits;
        __m512i v = _mm512_setzero_si512();
        LMC__UNROLL for (d = 0; d < 6; d++, plane += row)
        {
            __mmask64 m;
            if (d >= depth) break;
            m = n - i >= 64 ? lmc__load64(plane + i / 8) : lmc__load_mask(plane, i, n);
            v = _mm512_mask_add_epi8(v, m, v, _mm512_set1_epi8((char)(1u << (depth - 1 - d))));
        }
        _mm512_storeu_si512(dst + i, _mm512_permutexvar_epi8(v, table));
    }
}

LMC__AVX512 static void lmc__unflatten_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
                                              const uint8_t *symbols, unsigned depth)
{
    if (depth == 2) lmc__unflatten_body_avx512(dst, bits, n, symbols, 2);
    else lmc__unflatten_body_avx512(dst, bits, n, symbols, depth);
}
#endif

/* == kernels/strip.h =========================================================================== */

/* Strips and streams: how the fused kernels (split_root, group and so on) go through a block.
 *
 * Each does the work of several kernels. But a block does not fit into the first cache. So a fused
 * kernel takes one strip through all stages, then the next strip:
 *   scalar, SIMDe   kernel after kernel, on one strip at a time
 *   AVX2, NEON      all stages in one loop over the strip's vectors
 *   AVX-512         the same; a strip is one step of 64 elements, and the CRC, which AVX-512
 *                   computes in vector registers, needs no bytes in memory
 *
 * An encoder's input may change at any time (put_block.h). So it is read only once: a strip is
 * copied to the stack first, and all stages use the copy. On AVX-512 the copy is in registers.
 *
 * The vector loops process only whole steps or strips, and return how far they came, an
 * lmc__progress; the kernels of the tier do the rest of the block, strip by strip. */

/* Bytes of elements in a strip. With planes and their lists it stays in a first cache of 32 KiB. */
#define LMC__STRIP_SIZE 8192u

/* The elements in a strip: 1024 of the widest elements, and always a multiple of 64. So a strip
 * begins with a byte of the mask and ends with a step of any tier. */
#define LMC__STRIP_ELEMENTS(width) (LMC__STRIP_SIZE / (width))

/* What a vector loop has done: the first n elements, whose bytes in src or dst have the CRC-32C
 * crc. n_right, only of split_root: ones in their part of the root's mask. */
typedef struct lmc__progress {
    size_t n, n_right;
    uint32_t crc;
    uint64_t sum; /* sum64 of these bytes, where it is wanted */
} lmc__progress;
static const lmc__progress lmc__no_progress = {0, 0, 0, 0};

#if LMC__X86
/* A loop is a function for each width (LMC__DEFINE_WIDTHS). It begins at a cache line, so that
 * changes of other code do not change its speed. */
#define LMC__LOOP_AVX2 static __attribute__((noinline, aligned(64))) LMC__AVX2
#define LMC__LOOP_AVX512 static __attribute__((noinline, aligned(64))) LMC__AVX512

#define LMC__PAGE 4096u

/* Call it with i = 0, k, 2 k, ..., where k divides the page's size. Once in each page it prefetches
 * from the next page. Else the first access to a page waits until its address is translated, and
 * other stores and prefetches wait, too. A prefetch behind the data does no harm. */
LMC__INLINE_AVX2 void lmc__touch_ahead(const uint8_t *data, size_t i)
{
    if (i % LMC__PAGE == 0)
        __builtin_prefetch((const uint8_t *)((uintptr_t)data + i + LMC__PAGE), 0, 3);
}

/* How many bytes ahead encoders fetch. They have just read samples from all parts of the block, so
 * the hardware cannot predict the next reads. */
#define LMC__FETCH_AHEAD 4096u

/* The CRC of a strip that is in the first cache. If its size is a multiple of four lanes, as many
 * bytes at `next` are fetched meanwhile: the hardware does not, as reads jump between lanes. */
LMC__INLINE_AVX2 uint32_t lmc__crc_ahead_avx2(const lmc__kernels *k, uint32_t crc, const uint8_t *p,
                                              size_t size, const uint8_t *next)
{
    lmc__crc_lane c[4] = {(uint32_t)~crc, 0, 0, 0};
    size_t at, i;
    if (size % (4 * LMC__CRC_LANE4)) return k->crc32c(crc, p, size);
    for (at = 0; at < size; at += 4 * LMC__CRC_LANE4) {
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            LMC__PREFETCH((const uint8_t *)((uintptr_t)next + at + LMC__LINE / 2 * i));
            lmc__crc_lanes(c, p + at, i);
            lmc__crc_lanes(c, p + at, i + 1);
        }
        lmc__crc_join_lanes(c);
    }
    return ~(uint32_t)c[0];
}

/* Bytes of streaming.next to fetch with each of n elements: all of it is fetched at the end. */
LMC__INLINE size_t lmc__next_per_element(lmc__streaming streaming, size_t n)
{
    return (streaming.next_size + n - 1) / n;
}

/* Fetches the bytes of streaming.next for 64 elements, from number i on, line by line. */
LMC__INLINE_AVX512 void lmc__fetch_next_avx512(lmc__streaming streaming, size_t i,
                                               size_t per_element)
{
    const size_t end = lmc__min((i + 64) * per_element, streaming.next_size);
    size_t at;
    for (at = i * per_element; at < end; at += LMC__LINE) {
        lmc__touch_ahead(streaming.next, at);
        LMC__PREFETCH(streaming.next + at);
    }
}

/* Streaming stores need whole cache lines, and dst may start anywhere in a line. So each line is
 * made of the end of one vector and the start of the next; `head` bytes are before the first:
 *   vectors        |      v0       |      v1       |      v2       |
 *   lines     |  (head)  |    line 0     |    line 1     | (tail)  |
 *
 * line i = bytes [head, 64) of vector i, then [0, head) of vector i + 1. The head is stored from
 * v0, the tail from the last vector, both masked: nothing outside of dst is written. */
typedef struct lmc__streamer_avx512 {
    unsigned head;
    __m512i shift, last; /* places of a line's bytes in the two vectors; the vector before */
} lmc__streamer_avx512;

LMC__INLINE_AVX512 lmc__streamer_avx512 lmc__start_stream_avx512(const uint8_t *dst)
{
    lmc__streamer_avx512 s;
    s.head = (unsigned)((0 - (uintptr_t)dst) & 63);
    s.shift = _mm512_add_epi8(lmc__load_avx512(lmc__count_up), lmc__splat_avx512(s.head));
    s.last = _mm512_setzero_si512();
    return s;
}

/* Stores v, the next vector of dst, at `at`. */
LMC__INLINE_AVX512 void lmc__stream_avx512(lmc__streamer_avx512 *s, uint8_t *at, __m512i v,
                                           int is_first)
{
    if (is_first) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << s->head) - 1, v);
    else
        _mm512_stream_si512((__m512i *)(void *)(at + s->head - 64),
                            _mm512_permutex2var_epi8(s->last, s->shift, v));
    s->last = v;
}

/* Stores the last 64 - head bytes before `end`, the end of dst. */
LMC__INLINE_AVX512 void lmc__end_stream_avx512(const lmc__streamer_avx512 *s, uint8_t *end)
{
    _mm512_mask_storeu_epi8(end + s->head - 64, ~(__mmask64)0 >> s->head,
                            _mm512_permutex2var_epi8(s->last, s->shift, s->last));
}

/* A line is written by two stores of 32 bytes in a row, so the CPU can write it to memory at once.
 * Bytes before the first whole line and behind the last one are copied by memcpy. */
LMC__AVX2 static void lmc__stream_avx2(uint8_t *dst, const uint8_t *src, size_t size)
{
    size_t i = lmc__min(size, (0 - (uintptr_t)dst) & (LMC__LINE - 1));
    memcpy(dst, src, i);
    for (; i + LMC__LINE <= size; i += LMC__LINE) {
        _mm256_stream_si256((__m256i *)(void *)(dst + i), lmc__load_avx2(src + i));
        _mm256_stream_si256((__m256i *)(void *)(dst + i + 32), lmc__load_avx2(src + i + 32));
    }
    memcpy(dst + i, src + i, size - i);
}
#endif

/* == kernels/join_root.h ======================================================================= */

/* join_root: the last step of decoding a block, in one pass over it; the inverse of split_root:
 *   source->planes->row[0 .. width)
 *     |
 *     |   row[root->plane], if root is not NULL, is yet to be made:
 *     |     root->mask, left, right --merge--> bytes of the plane
 *     |
 *     +--join, out of residuals in source->order--> dst --crc32c--> the result
 *
 * dst gets exactly n * width bytes. root->row is a work list for a strip, or for n elements if a
 * strip has more. The row planes->row[root->plane] is not used.
 *
 * Rows and the mask are read exactly: raw planes are part of the input. root's sides are lists or
 * constants, with an element for each zero or one of the mask. dst overlaps none of them.
 *
 * If streaming.sum is not NULL, the sum64 of dst is stored there (spec 7.1). The decoder calls
 * join_root once for each block, after it has checked the whole payload.
 *
 * If the output is far larger than the caches, streaming stores save half of the memory traffic:
 * they do not read the lines that they write. But CRC and sum must be computed before. */

/* The side without the first `used` bytes of its list. */
LMC__INLINE lmc__side lmc__rest_of_side(lmc__side side, size_t used)
{
    if (side.list) side.list += used;
    return side;
}

/* Joins elements [i, i + m), at most a strip; n_right ones of the root's mask are before them.
 * Returns n_right for the next strip. */
static size_t lmc__join_strip(const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source,
                              size_t i, size_t m, size_t n_right)
{
    const lmc__merged *const root = source->root;
    const unsigned width = source->width;
    lmc__const_planes strip;
    unsigned p;
    for (p = 0; p < width; p++) strip.row[p] = source->planes->row[p] + i;
    if (root) {
        const uint8_t *const mask = root->mask + i / 8;
        k->merge(root->row, mask, m, lmc__rest_of_side(root->left, i - n_right),
                 lmc__rest_of_side(root->right, n_right));
        strip.row[root->plane] = root->row;
        n_right += k->count_ones(mask, (m + 7) / 8);
    }
    k->join(dst, &strip, m, width, source->order);
    return n_right;
}

/* Without snapshots no sum is needed. */
#ifndef LMC_NO_SNAPSHOT
#define LMC__SUM64(k, p, size) (k)->sum64(p, size)
#else
#define LMC__SUM64(k, p, size) 0
#endif

/* Elements [done.n, n), strip by strip. This defines join_root; the other tiers end with it. */
static uint32_t lmc__join_strips(const lmc__kernels *k, uint8_t *dst,
                                 const lmc__join_source *source, size_t n, lmc__progress done,
                                 uint64_t *sum)
{
    const unsigned width = source->width;
    size_t i, m, n_right = 0;
    if (source->root && done.n < n) n_right = k->count_ones(source->root->mask, done.n / 8);
    for (i = done.n; i < n; i += m) {
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        n_right = lmc__join_strip(k, dst + i * width, source, i, m, n_right);
        if (sum) done.sum += LMC__SUM64(k, dst + i * width, m * width);
    }
    if (sum) *sum = done.sum;
    return k->crc32c(done.crc, dst + done.n * width, (n - done.n) * width);
}

/* The tiers without a loop of their own: scalar, SIMDe. They do not stream. */
static uint32_t lmc__join_root_strips(const lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                                      size_t n, lmc__streaming streaming)
{
    return lmc__join_strips(k, dst, &source, n, lmc__no_progress, streaming.sum);
}

#if LMC__NEON || LMC__X86
/* While at / 4 runs through a lane, `at` must run through a strip. Else this does not compile. */
typedef char lmc__lanes_fill_a_strip[4 * LMC__CRC_LANE4 == LMC__STRIP_SIZE ? 1 : -1];

/* A side of a merge in steps. A constant is a list of 64 equal bytes, where the cursor stays:
 * `mask`, which is 0 for constants and all ones for lists, masks the length of each step. */
typedef struct lmc__side_cursor {
    const uint8_t *at;
    size_t mask;
} lmc__side_cursor;

/* The side behind its first `used` elements. `constant` must live as long as the cursor. A constant
 * as a list costs a needless shuffle, but then one loop can do all four kinds of roots. */
LMC__INLINE lmc__side_cursor lmc__open_side(lmc__side side, size_t used, uint8_t constant[64])
{
    lmc__side_cursor cursor;
    memset(constant, side.value, 64);
    cursor.at = side.list ? side.list + used : constant;
    cursor.mask = side.list ? ~(size_t)0 : 0;
    return cursor;
}
#endif

#if LMC__NEON
/* All whole strips, at least one; the root, if any, is the top plane. While a strip is made, the
 * CRC of the strip before is computed: vector and CRC instructions do not compete for units. */
LMC__INLINE LMC__CRC void lmc__join_root_of(const lmc__kernels *k, uint8_t *dst,
                                            const lmc__join_source *source, size_t n,
                                            lmc__progress *done, uint64_t *sum, unsigned width,
                                            enum lmc__order order, int has_root)
{
    const size_t n_strip = LMC__STRIP_ELEMENTS(width);
    const lmc__merged *const root = has_root ? source->root : NULL;
    const lmc__const_planes rows = *source->planes; /* copies, which no store of bytes can change */
    const uint8_t *mask = NULL;
    lmc__crc_lane c[4] = {0xFFFFFFFF, 0, 0, 0};
    uint8_t constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    size_t i, j, n_right = lmc__join_strip(k, dst, source, 0, n_strip, 0);
    uint8x16_t v[8], top[4];
    unsigned p, h;
    if (root) {
        mask = root->mask;
        left = lmc__open_side(root->left, n_strip - n_right, constant[0]);
        right = lmc__open_side(root->right, n_right, constant[1]);
    }
    for (i = n_strip;; i += n_strip) {
        const uint8_t *const from = dst + (i - n_strip) * width;
        if (sum) done->sum += LMC__SUM64(k, from, LMC__STRIP_SIZE);
        if (i + n_strip > n) break;
        for (j = i; j < i + n_strip; j += 64) {
            LMC__UNROLL for (p = 0; p < 2 * width; p++)
                lmc__crc_lanes(c, from + (j - i) * width / 4, p);
            if (has_root) {
                const size_t ones = lmc__merge64_neon(top, lmc__load64(mask + j / 8), left.at,
                                                      right.at, top[0], top[0], 1, 1);
                left.at += (64 - ones) & left.mask;
                right.at += ones & right.mask;
            }
            LMC__UNROLL for (h = 0; h < 4; h++)
            {
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    has_root && p == width - 1 ? top[h] : vld1q_u8(rows.row[p] + j + 16 * h);
                lmc__join_vectors_neon(v, width);
                if (order)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        lmc__from_residuals_neon(v[p], width, order);
                LMC__UNROLL for (p = 0; p < width; p++)
                    vst1q_u8(dst + (j + 16 * h) * width + 16 * p, v[p]);
            }
        }
        lmc__crc_join_lanes(c);
    }
    done->n = i;
    done->crc = lmc__crc32c_neon(~(uint32_t)c[0], dst + (i - n_strip) * width, LMC__STRIP_SIZE);
}
/* order and has_root are constants where blocks need most time: that of floats, with a root. */
LMC__INLINE LMC__CRC void lmc__join_root_loop(const lmc__kernels *k, uint8_t *dst,
                                              const lmc__join_source *source, size_t n,
                                              lmc__progress *done, uint64_t *sum, unsigned width)
{
    if (source->root && source->order == LMC__ORDER_FLOAT)
        lmc__join_root_of(k, dst, source, n, done, sum, width, LMC__ORDER_FLOAT, 1);
    else
        lmc__join_root_of(k, dst, source, n, done, sum, width, source->order, source->root != NULL);
}
LMC__DEFINE_WIDTHS(lmc__join_root, LMC__LOOP_VEC,
                   (const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source, size_t n,
                    lmc__progress *done, uint64_t *sum),
                   (k, dst, source, n, done, sum, width))

/* Joins strip by strip if, rarely, the root is not the top plane. */
static uint32_t lmc__join_root_neon(const lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                                    size_t n, lmc__streaming streaming)
{
    const unsigned width = source.width;
    lmc__progress done = lmc__no_progress;
    if (n >= LMC__STRIP_ELEMENTS(width) && (!source.root || source.root->plane == width - 1))
        LMC__CALL_WIDTH(lmc__join_root, (k, dst, &source, n, &done, streaming.sum))
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}
#endif

#if LMC__X86
/* AVX2, if dst is streamed. Streamed bytes are not in the caches afterwards, but crc32 instructions
 * need bytes in memory, in four lanes a quarter of a strip apart. So a strip is made in a buffer.
 * While the next strip is made in another buffer, the first is drained: its CRC is computed, and it
 * is copied to dst. Vector and crc32 instructions do not compete for units. In time:
 *   strip                 0        1        2             last
 *   made in buffer        0        1        0             last % 2
 *
 *   make             |----0---|----1---|----2---|- ... --|--last--|
 *   drain                     |----0---|----1---|- ... --|--------|--last--|
 *                    \___a____/\_____________ b ________________/\____c___/
 *
 *   a: lmc__join_strip    b: the loop of lmc__join_root_loop_avx2    c: behind it
 *
 * Streaming stores need aligned addresses, but dst may start anywhere: `head` bytes before the
 * first aligned address. So the bytes that are copied while a strip is drained are shifted by head:
 *   strip s in its buffer      |(head)|            ...                    |slack|
 *   copied to dst + head              |  vector | vector | ... | vector      |
 *
 * The last vector needs the first head bytes of strip s + 1, so when the first step of strip s + 1
 * is made, its first vector is copied to the slack behind strip s, long before the last step of
 * draining reads it. Normal stores, which may overlap others, write both ends of dst: a vector for
 * the head of strip 0, and the last 32 bytes.
 *
 * Masks and planes are read exactly, since steps are whole. A list of the root is read in vectors
 * of 16 bytes from its current place, so up to 16 bytes of its slack. Other threads may see
 * streaming stores in any order, so the caller ends with LMC__FENCE_STREAMS (get_planes.h). */

/* Bytes behind a strip in its buffer. The first 32 are the slack. The rest makes the low 12 bits of
 * addresses differ: else a load may wait for an earlier store with the same low bits. */
#define LMC__STRIP_GAP 1024u
typedef struct lmc__strip_buffers {
    uint8_t strip[2][LMC__STRIP_SIZE + LMC__STRIP_GAP];
} lmc__strip_buffers;

/* Copies `width` vectors from from + at, which is not aligned, to out + at, which is. */
LMC__INLINE_AVX2 void lmc__copy_stream_avx2(uint8_t *out, const uint8_t *from, size_t at,
                                            unsigned width)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) _mm256_stream_si256(
        (__m256i *)(void *)(out + at + 32 * p), lmc__load_avx2(from + at + 32 * p));
}

/* All whole strips; there is at least one; the root, if any, is the top plane. */
LMC__INLINE_AVX2 lmc__progress lmc__join_root_loop_avx2(const lmc__kernels *k, uint8_t *dst,
                                                        const lmc__join_source *source, size_t n,
                                                        unsigned width, enum lmc__order order,
                                                        int can_merge, lmc__streaming streaming,
                                                        lmc__strip_buffers *buffers)
{
    const size_t n_strip = LMC__STRIP_ELEMENTS(width), head = (0 - (uintptr_t)dst) & 31;
    const lmc__merged *const root = can_merge ? source->root : NULL;
    const lmc__const_planes rows = *source->planes;
    const __m256i zero = _mm256_setzero_si256();
    lmc__crc_lane c[4] = {0xFFFFFFFF, 0, 0, 0};
    const uint8_t *mask = NULL;
    uint8_t *from, *to = buffers->strip[0], constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    lmc__progress done = lmc__no_progress;
    size_t i, j, n_right = lmc__join_strip(k, to, source, 0, n_strip, 0);
    __m256i v[8], top[2];
    unsigned p, h;
    lmc__store_avx2(dst, lmc__load_avx2(to));
    if (root) {
        mask = root->mask;
        left = lmc__open_side(root->left, n_strip - n_right, constant[0]);
        right = lmc__open_side(root->right, n_right, constant[1]);
    }
    for (i = n_strip; i + n_strip <= n; i += n_strip) {
        uint8_t *const out = dst + (i - n_strip) * width + head;
        from = to;
        to = buffers->strip[i / n_strip & 1];
        if (streaming.sum) done.sum += LMC__SUM64(k, from, LMC__STRIP_SIZE);
        for (j = 0; j < n_strip; j += 64) {
            const size_t at = j * width, out_at = (i - n_strip) * width + at;
            /* Fetch as much of the next input as is written now: compressed data is shorter. */
            lmc__touch_ahead(dst, out_at);
            if (out_at < streaming.next_size) {
                lmc__touch_ahead(streaming.next, out_at);
                LMC__UNROLL for (p = 0; p < width; p++)
                    LMC__PREFETCH(streaming.next + lmc__min(out_at + 64 * p, streaming.next_size));
            }
            LMC__UNROLL for (p = 0; p < 2 * width; p++) lmc__crc_lanes(c, from + at / 4, p);
            if (root) {
                const size_t ones = lmc__merge64_avx2(top, lmc__load64(mask + (i + j) / 8), left.at,
                                                      right.at, zero, zero, 1, 1);
                left.at += (64 - ones) & left.mask;
                right.at += ones & right.mask;
            }
            LMC__UNROLL for (h = 0; h < 2; h++)
            {
                const size_t half = at + 32 * width * h;
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    root && p == width - 1 ? top[h] : lmc__load_avx2(rows.row[p] + i + j + 32 * h);
                lmc__join_vectors_avx2(v, width);
                if (order)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        lmc__from_residuals_avx2(v[p], width, order);
                LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(to + half + 32 * p, v[p]);
                if (j == 0 && h == 0) lmc__store_avx2(from + LMC__STRIP_SIZE, v[0]);
                lmc__copy_stream_avx2(out, from + head, half, width);
            }
        }
        lmc__crc_join_lanes(c);
    }
    for (j = 0; j < LMC__STRIP_SIZE - 32; j += 32)
        lmc__copy_stream_avx2(dst + (i - n_strip) * width + head, to + head, j, 1);
    lmc__store_avx2(dst + i * width - 32, lmc__load_avx2(to + LMC__STRIP_SIZE - 32));
    done.n = i;
    if (streaming.sum) done.sum += LMC__SUM64(k, to, LMC__STRIP_SIZE);
    done.crc = lmc__crc32c_avx2(~(uint32_t)c[0], to, LMC__STRIP_SIZE);
    return done;
}

/* Joins strip by strip if dst is not streamed or, rarely, if the root is not the top plane. */
LMC__AVX2 static uint32_t lmc__join_root_avx2(const lmc__kernels *k, uint8_t *dst,
                                              lmc__join_source source, size_t n,
                                              lmc__streaming streaming)
{
    const unsigned width = source.width;
    const enum lmc__order order = source.order;
    lmc__progress done = lmc__no_progress;
    lmc__strip_buffers buffers;
    if (streaming.is_on && n >= LMC__STRIP_ELEMENTS(width) &&
        (!source.root || source.root->plane == width - 1))
        switch (width) { /* 8, which is rare, by strips */
#define LMC__CALL(w, can_merge)                                                                    \
    done = lmc__join_root_loop_avx2(k, dst, &source, n, w, order, can_merge, streaming, &buffers)
        case 1: LMC__CALL(1, 1); break;
        case 2: /* testing for the root in the loop would slow down blocks of zeros */
            if (source.root) LMC__CALL(2, 1);
            else LMC__CALL(2, 0);
            break;
        case 4: LMC__CALL(4, 1); break;
#undef LMC__CALL
        }
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}

/* Steps of 64 elements, in registers; the root, if any, is the top plane. The CRC: see split_root.
 *
 *     mask, left, right --merge--> top plane ------------+
 *     rows 0 .. width - 2, loaded -----------------------+--join--> order ---+--> CRC
 *                                                                            +--> store or stream
 */
LMC__INLINE_AVX512 lmc__progress lmc__join_root_steps_avx512(
    uint8_t *dst, const lmc__join_source *source, size_t n, unsigned width, enum lmc__order order,
    lmc__streaming streaming, int streams, int has_root)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__merged *const root = has_root ? source->root : NULL;
    const lmc__const_planes rows = *source->planes; /* a copy, which no store of bytes can change */
    const size_t per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    __m512i sum[8], v[8], words = _mm512_setzero_si512(), start = lmc__crc_start(0), l = start,
                          r = start;
    const uint8_t *mask = NULL, *left = NULL, *right = NULL;
    lmc__progress done = lmc__no_progress;
    size_t i;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    if (has_root) {
        mask = root->mask;
        left = root->left.list;
        right = root->right.list;
        l = _mm512_set1_epi8((char)root->left.value);
        r = _mm512_set1_epi8((char)root->right.value);
    }
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(dst, i * width);
        if (streams) lmc__fetch_next_avx512(streaming, i, per_element);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) v[p] = lmc__load_avx512(rows.row[p] + i);
        if (has_root) {
            const uint64_t m = lmc__load64(mask + i / 8);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            v[width - 1] =
                lmc__merge_step_avx512(m, left, right, l, r, left != NULL, right != NULL);
            /* Either way counts zeros. Without streams gcc has no register for the constant 64. */
            if (left) left += streams || width == 1 ? 64 - ones : (size_t)_mm_popcnt_u64(~m);
            if (right) right += ones;
        } else {
            v[width - 1] = lmc__load_avx512(rows.row[width - 1] + i);
        }
        lmc__join_vectors_avx512(v, width);
        if (order)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__from_residuals_avx512(v[p], width, order);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        if (streaming.sum)
            LMC__UNROLL for (p = 0; p < width; p++) words = _mm512_add_epi64(words, v[p]);
        lmc__crc_add_avx512(sum, fold, v, width, &start);
    }
    if (i) {
        done.crc = lmc__crc_finish(sum, width);
        done.sum = lmc__sum_words_avx512(words);
        if (streams) lmc__end_stream_avx512(&stream, dst + i * width);
    }
    done.n = i;
    return done;
}

/* Two tests that would slow down each step are made here, once for each block: whether there is a
 * root, and whether dst is streamed. Other tests, and all tests for 8 bytes, are in the steps. */
LMC__INLINE_AVX512 void lmc__join_root_avx512_loop(uint8_t *dst, const lmc__join_source *source,
                                                   size_t n, lmc__streaming streaming,
                                                   lmc__progress *done, unsigned width)
{
    const enum lmc__order order = source->order;
    const int streams = streaming.is_on;
#define LMC__CALL(streams, has_root)                                                               \
    *done = lmc__join_root_steps_avx512(dst, source, n, width, order, streaming, streams, has_root)
    if (width == 8) LMC__CALL(streams, source->root != NULL);
    else if (source->root && streams) LMC__CALL(1, 1);
    else if (source->root) LMC__CALL(0, 1);
    else if (streams) LMC__CALL(1, 0);
    else LMC__CALL(0, 0);
#undef LMC__CALL
}
LMC__DEFINE_WIDTHS(lmc__join_root_avx512, LMC__LOOP_AVX512,
                   (uint8_t *dst, const lmc__join_source *source, size_t n,
                    lmc__streaming streaming, lmc__progress *done),
                   (dst, source, n, streaming, done, width))

LMC__AVX512 static uint32_t lmc__join_root_avx512(const lmc__kernels *k, uint8_t *dst,
                                                  lmc__join_source source, size_t n,
                                                  lmc__streaming streaming)
{
    const unsigned width = source.width;
    lmc__progress done = lmc__no_progress;
    if (!source.root || source.root->plane == width - 1)
        LMC__CALL_WIDTH(lmc__join_root_avx512, (dst, &source, n, streaming, &done))
    return lmc__join_strips(k, dst, &source, n, done, streaming.sum);
}
#endif

/* == kernels/classes.h ========================================================================= */

/* Classes of elements (spec 5.2), and count_classes: counts[c] becomes the size of class c in base.
 *
 * An element's class depends on the *key* of its prediction alone, so the block need not store it.
 * The classes are intervals of keys, one behind the other:
 *   key       0 ........ t[0] ........ t[1] ........ 255       t: grouping->threshold, ascending
 *   class     |    0    |      1      |       2       |
 *
 * Vector code compares keys with the highest key of class c, t[c] - 1, for each c in turn. So it
 * counts, or marks, the elements of class c *and of all before it* (on AVX-512, of all behind it).
 * Every element is in the last class or in one before it, so the last class needs no comparison.
 *
 *     keys               126  120   97  125  126  118 ...       t = 100, 121
 *     up to class 0        0    0    1    0    0    0           keys <= 99:  1
 *     up to class 1        0    1    1    0    0    1           keys <= 120: 3, so class 1 has 2
 *     up to class 2        1    1    1    1    1    1           all 6, so class 2 has 3
 *
 * A *tally*, if it is not NULL, is filled by count_classes and read by patch. It has a row for each
 * class but the last; a row has a byte for each group of 64 elements: how many of them are in that
 * class or in one before it. Rows are lmc__tally_row(n) bytes apart. Only tiers whose patch reads
 * it fill it, and only for whole steps of LMC__TALLY_STEP elements.
 *
 * base is read exactly. */

#define LMC__TALLY_STEP 512u
#define LMC__TALLY_GROUPS (LMC__TALLY_STEP / 64) /* of a step: eight bytes of each row */

/* Bytes from one row of a tally to the next: LMC__PAD more than are used, for loads of vectors. */
LMC__INLINE size_t lmc__tally_row(size_t n)
{
    return n / LMC__TALLY_STEP * LMC__TALLY_GROUPS + LMC__PAD;
}

/* What a loop of group or ungroup has done: n elements, their CRC-32C; next[c] are in class c. */
typedef struct lmc__delta_progress {
    size_t n, next[LMC__MAX_CLASSES];
    uint32_t crc;
} lmc__delta_progress;

/* The key: the eight bits below the sign bit; in bf16 and fp32 they are the exponent. A byte has
 * only seven bits there; its sign bit follows them. */
LMC__INLINE unsigned lmc__key(uint64_t base, unsigned width)
{
    return (unsigned)(width == 1 ? (base << 1 | base >> 7) & 255 : base >> (8 * width - 9) & 255);
}

/* The key of element i, which is within its last two bytes. */
LMC__INLINE unsigned lmc__key_at(const uint8_t *base, size_t i, unsigned width)
{
    return width == 1 ? lmc__key(base[i], 1) : lmc__key(lmc__load16(base + (i + 1) * width - 2), 2);
}

/* classes[key]: the number of thresholds that are not above the key. Thresholds ascend, so c only
 * grows, and one pass over keys and thresholds is enough. */
static void lmc__set_class_table(uint8_t classes[256], const lmc__grouping *grouping)
{
    unsigned key, c = 0;
    for (key = 0; key < 256; key++) {
        while (c < grouping->n_classes - 1 && key >= grouping->threshold[c]) c++;
        classes[key] = (uint8_t)c;
    }
}

/* Counts elements one by one. This defines the counts; the vector loops end with it. */
static void lmc__count_elements(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                                unsigned width, const lmc__grouping *grouping)
{
    uint8_t classes[256];
    size_t i;
    lmc__set_class_table(classes, grouping);
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    for (i = 0; i < n; i++) counts[classes[lmc__key_at(base, i, width)]]++;
}

static void lmc__count_classes_scalar(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                      size_t n, unsigned width, const lmc__grouping *grouping,
                                      uint8_t *tally)
{
    (void)tally;
    lmc__count_elements(counts, base, n, width, grouping);
}

#if LMC__NEON || LMC__X86
/* low_bytes: the lowest byte of each element of `width` vectors. Each of log2(width) steps drops
 * every other byte. keys: a shift moves the key to the lowest byte. Here the width is 4. An
 * element, whose 32 bits are s eeeeeeee m..., is shown as its bytes, the lowest first:
 *     b[p]              mmmmmmmm mmmmmmmm emmmmmmm seeeeeee
 *     >> 23             eeeeeeee 0000000s 00000000 00000000
 *     even of two       e0 .. e1 .. e2 .. e3 ..             the bytes at .. : upper ones, dropped
 *     even of two       e0 e1 e2 e3 e4 e5 e6 e7             in the next step
 *
 * Only even bytes are kept, so the sign, which is in byte 1 after the shift, is dropped. */
#define LMC__DEFINE_KEYS(isa, INLINE, VECTOR)                                                      \
    INLINE VECTOR lmc__low_bytes_##isa(VECTOR v[8], unsigned width)                                \
    {                                                                                              \
        unsigned p, n;                                                                             \
        LMC__UNROLL for (n = width / 2; n > 0; n /= 2) LMC__UNROLL for (p = 0; p < n; p++) v[p] =  \
            lmc__even_##isa(v[2 * p], v[2 * p + 1]);                                               \
        return v[0];                                                                               \
    }                                                                                              \
    INLINE VECTOR lmc__keys_##isa(const VECTOR b[8], unsigned width)                               \
    {                                                                                              \
        VECTOR v[8];                                                                               \
        unsigned p;                                                                                \
        LMC__UNROLL for (p = 0; p < width; p++) v[p] =                                             \
            width == 1   ? lmc__rotate_##isa(b[p], 1, 1)                                           \
            : width == 2 ? (VECTOR)((lmc__u16s_##isa)b[p] >> 7)                                    \
            : width == 4 ? (VECTOR)((lmc__u32s_##isa)b[p] >> 23)                                   \
                         : (VECTOR)((lmc__u64s_##isa)b[p] >> 55);                                  \
        return lmc__low_bytes_##isa(v, width);                                                     \
    }                                                                                              \
    INLINE VECTOR lmc__load_keys_##isa(const uint8_t *base, unsigned width)                        \
    {                                                                                              \
        VECTOR b[8];                                                                               \
        unsigned p;                                                                                \
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_##isa(base + sizeof(VECTOR) * p); \
        return lmc__keys_##isa(b, width);                                                          \
    }                                                                                              \
    /* The highest key of each class, in all bytes. The last one's is 255: no key is above it. */  \
    INLINE void lmc__set_highest_##isa(VECTOR highest[LMC__MAX_CLASSES],                           \
                                       const lmc__grouping *grouping)                              \
    {                                                                                              \
        unsigned c;                                                                                \
        for (c = 0; c + 1 < grouping->n_classes; c++)                                              \
            highest[c] = lmc__splat_##isa(grouping->threshold[c] - 1u);                            \
        highest[c] = lmc__splat_##isa(255);                                                        \
    }
#if LMC__NEON
LMC__DEFINE_KEYS(neon, LMC__INLINE, uint8x16_t)
#else
LMC__DEFINE_KEYS(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_KEYS(avx512, LMC__INLINE_AVX512, __m512i)
#endif
#undef LMC__DEFINE_KEYS

/* The keys of class c: first[c] .. first[c] + more[c]. */
typedef struct lmc__key_ranges {
    uint8_t first[LMC__MAX_CLASSES], more[LMC__MAX_CLASSES];
} lmc__key_ranges;

LMC__INLINE void lmc__set_key_ranges(lmc__key_ranges *ranges, const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c < grouping->n_classes; c++) {
        ranges->first[c] = c ? grouping->threshold[c - 1] : 0;
        ranges->more[c] =
            (uint8_t)((c + 1 < grouping->n_classes ? grouping->threshold[c] - 1u : 255u) -
                      ranges->first[c]);
    }
}

/* Which of 64 keys are in a range. */
LMC__INLINE_VEC uint64_t LMC__VEC(in_range)(const lmc__vector keys[LMC__VECTORS_OF_64],
                                            uint8_t first, uint8_t more)
{
    const lmc__vector from = LMC__VEC(splat)(first), up_to = LMC__VEC(splat)(more);
    lmc__vector one[LMC__VECTORS_OF_64];
    unsigned j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) one[j] =
        LMC__VEC(up_to)((lmc__vector)((LMC__VEC(u8s))keys[j] - (LMC__VEC(u8s))from), up_to);
    return LMC__VEC(to_bits)(one);
}
#endif

#if LMC__NEON
/* Adds to up_to[c], for `sums` classes, how many keys are at most highest[c]; 16 divides n. A
 * comparison gives -1 for true, which is subtracted from a sum of 8 bits; this cannot overflow in
 * 255 steps. `sums` is a constant, so the sums stay in registers. */
LMC__INLINE void lmc__count_keys_neon(size_t *up_to, const uint8_t *base, size_t n, unsigned width,
                                      const uint8x16_t *highest, unsigned sums)
{
    size_t i, end;
    unsigned c;
    for (i = 0; i < n;) {
        uint8x16_t sum[8];
        LMC__UNROLL for (c = 0; c < sums; c++) sum[c] = vdupq_n_u8(0);
        for (end = i + lmc__min(255 * 16, n - i); i < end; i += 16) {
            const uint8x16_t keys = lmc__load_keys_neon(base + i * width, width);
            LMC__UNROLL for (c = 0; c < sums; c++) sum[c] =
                vsubq_u8(sum[c], vcleq_u8(keys, highest[c]));
        }
        LMC__UNROLL for (c = 0; c < sums; c++) up_to[c] += vaddlvq_u8(sum[c]);
    }
}

/* Passes of five or eight sums: most blocks have up to six classes, and the last needs none. */
static void lmc__count_classes_neon(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                                    unsigned width, const lmc__grouping *grouping, uint8_t *tally)
{
    const unsigned n_classes = grouping->n_classes;
    const size_t whole = n & ~(size_t)15;
    size_t up_to[LMC__MAX_CLASSES] = {0}; /* up_to[c]: elements of classes 0 .. c */
    uint8x16_t highest[LMC__MAX_CLASSES];
    unsigned c;
    (void)tally;
    memset(highest, 0, sizeof highest);
    lmc__set_highest_neon(highest, grouping);
    for (c = 0; c + 1 < n_classes; c += 8)
        LMC__FOR_WIDTH(if (n_classes - c > 6)
                           lmc__count_keys_neon(up_to + c, base, whole, w, highest + c, 8);
                       else lmc__count_keys_neon(up_to + c, base, whole, w, highest + c, 5));
    /* This sets counts for the rest. Then the elements that the vectors counted are added. */
    up_to[n_classes - 1] = whole;
    lmc__count_elements(counts, base + whole * width, n - whole, width, grouping);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
}

/* load_step: the keys of 64 elements. count_up_to: how many of them are at most `highest`. */
LMC__INLINE void lmc__load_step_neon(uint8x16_t keys[4], const uint8_t *base, unsigned width)
{
    unsigned j;
    LMC__UNROLL for (j = 0; j < 4; j++) keys[j] = lmc__load_keys_neon(base + 16 * j * width, width);
}
LMC__INLINE uint32_t lmc__count_up_to_neon(const uint8x16_t keys[4], uint8x16_t highest)
{
    const uint8x16_t low = vaddq_u8(vcleq_u8(keys[0], highest), vcleq_u8(keys[1], highest)),
                     high = vaddq_u8(vcleq_u8(keys[2], highest), vcleq_u8(keys[3], highest));
    return (0u - vaddvq_u8(vaddq_u8(low, high))) & 255; /* a comparison gives -1 for true */
}

/* m[c]: which of 64 elements are in class c. */
LMC__INLINE void lmc__find_classes_neon(uint64_t m[LMC__MAX_CLASSES], const uint8x16_t keys[4],
                                        const uint8x16_t *highest, unsigned n_classes)
{
    uint8x16_t one[4];
    uint64_t before = 0, up_to;
    unsigned j, c;
    for (c = 0; c + 1 < n_classes; c++, before = up_to) {
        LMC__UNROLL for (j = 0; j < 4; j++) one[j] = vcleq_u8(keys[j], highest[c]);
        up_to = lmc__to_bits_neon(one);
        m[c] = up_to & ~before;
    }
    m[c] = ~before;
}
#endif

#if LMC__X86
/* Loads the keys of LMC__TALLY_STEP elements. Code that uses keys does not depend on the width. */
LMC__AVX2 static void lmc__load_step_avx2(__m256i keys[LMC__TALLY_STEP / 32], const uint8_t *base,
                                          unsigned width)
{
    unsigned v;
    LMC__FOR_WIDTH(for (v = 0; v < LMC__TALLY_STEP / 32; v++) keys[v] =
                       lmc__load_keys_avx2(base + 32 * v * w, w));
}

/* Which of 64 elements have keys in a range. */
LMC__INLINE_AVX2 uint64_t lmc__find_keys_avx2(const uint8_t *base, unsigned width, uint8_t first,
                                              uint8_t more)
{
    __m256i keys[2];
    LMC__FOR_WIDTH(keys[0] = lmc__load_keys_avx2(base, w);
                   keys[1] = lmc__load_keys_avx2(base + 32 * w, w));
    return lmc__in_range_avx2(keys, first, more);
}

/* Counts the keys of a step up to each class. The saturated difference `threshold - key`, cut to at
 * most 1, is 1 if the key is below the threshold, else 0. An instruction adds eight such bytes. The
 * sums of eight groups become bytes side by side.
 *
 *     group 0      7  9  4 12        each in 64 bits
 *     group 1      3  8  8  8        shifted by a byte, and so on
 *     all           ... 08 0C        32 in group 0, 27 in group 1: bytes of the tally
 *
 * tally: the place for the step's bytes of class 0, or NULL. */
LMC__INLINE_AVX2 void lmc__count_step_avx2(size_t up_to[LMC__MAX_CLASSES], uint8_t *tally,
                                           size_t row, const __m256i keys[LMC__TALLY_STEP / 32],
                                           const __m256i *threshold, unsigned n_classes)
{
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    unsigned v, c;
    for (c = 0; c + 1 < n_classes; c++) {
        const __m256i t = threshold[c];
        __m256i all = zero;
        __m128i groups;
        LMC__UNROLL for (v = 0; v < LMC__TALLY_GROUPS; v++)
        {
            const __m256i sum =
                _mm256_add_epi8(_mm256_min_epu8(_mm256_subs_epu8(t, keys[2 * v]), one),
                                _mm256_min_epu8(_mm256_subs_epu8(t, keys[2 * v + 1]), one));
            all = _mm256_or_si256(all, _mm256_slli_epi64(_mm256_sad_epu8(sum, zero), 8 * (int)v));
        }
        groups = _mm_add_epi8(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        groups = _mm_add_epi8(groups, _mm_unpackhi_epi64(groups, _mm_setzero_si128()));
        if (tally) _mm_storel_epi64((__m128i *)(void *)(tally + c * row), groups);
        up_to[c] +=
            (uint32_t)_mm_cvtsi128_si32(_mm_sad_epu8(_mm_move_epi64(groups), _mm_setzero_si128()));
    }
}

LMC__INLINE_AVX2 void lmc__set_thresholds_avx2(__m256i threshold[LMC__MAX_CLASSES],
                                               const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c + 1 < grouping->n_classes; c++)
        threshold[c] = _mm256_set1_epi8((char)grouping->threshold[c]);
}

/* Fetches the `size` bytes (of a step) that are LMC__FETCH_AHEAD behind p: a step of wide elements
 * is longer than what the hardware fetches. A prefetch behind the block does no harm. */
LMC__INLINE_AVX2 void lmc__fetch_bytes_avx2(const uint8_t *p, size_t size)
{
    const uintptr_t ahead = (uintptr_t)p + LMC__FETCH_AHEAD;
    size_t i;
    for (i = 0; i < size; i += LMC__LINE) LMC__PREFETCH((const uint8_t *)(ahead + i));
}

/* The elements behind the last whole step are counted one by one. */
LMC__AVX2 static void lmc__count_classes_avx2(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                              size_t n, unsigned width,
                                              const lmc__grouping *grouping, uint8_t *tally)
{
    const size_t row = lmc__tally_row(n);
    const unsigned n_classes = grouping->n_classes;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i;
    __m256i keys[LMC__TALLY_STEP / 32], threshold[LMC__MAX_CLASSES];
    unsigned c;
    lmc__set_thresholds_avx2(threshold, grouping);
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__fetch_bytes_avx2(base + i * width, LMC__TALLY_STEP * width);
        lmc__load_step_avx2(keys, base + i * width, width);
        lmc__count_step_avx2(up_to, tally ? tally + i / 64 : NULL, row, keys, threshold, n_classes);
    }
    up_to[n_classes - 1] = i;
    lmc__count_elements(counts, base + i * width, n - i, width, grouping);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
}

/* As lmc__load_step_avx2 and lmc__find_keys_avx2. */
LMC__INLINE_AVX512 void lmc__load_step_avx512(__m512i keys[LMC__TALLY_GROUPS], const uint8_t *base,
                                              unsigned width)
{
    unsigned v;
    LMC__FOR_WIDTH(for (v = 0; v < LMC__TALLY_GROUPS; v++) {
        lmc__fetch_bytes_avx2(base + 64 * v * w, 64 * w);
        keys[v] = lmc__load_keys_avx512(base + 64 * v * w, w);
    });
}
LMC__INLINE_AVX512 uint64_t lmc__find_keys_avx512(const uint8_t *base, unsigned width,
                                                  uint8_t first, uint8_t more)
{
    __m512i keys;
    LMC__FOR_WIDTH(keys = lmc__load_keys_avx512(base, w));
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(keys, lmc__splat_avx512(first)),
                                  lmc__splat_avx512(more));
}

/* Finds which of 64 elements are in which class, for eight classes at once. A look-up gives each
 * element a byte with a bit for each class. The bytes of eight elements are a matrix of 8 x 8 bits,
 * which gf2p8affineqb transposes. Then the bytes of each class are brought together.
 *
 *     element     0  1  2 ... 7    8 ...           class     0     1     2   ...
 *     bit 0       0  1  1     0    1 ...           bits      0110  1000  ...
 *     bit 1       1  0  0     0    0 ...    -->    of        1...
 *     ...                                          elements
 *
 * Each of the result's eight words is the mask of a class. group and ungroup do not use this: their
 * steps do more work, and are no faster with it. */
typedef struct lmc__finder {
    __m512i table[LMC__MAX_CLASSES / 8][4]; /* for each key, a byte */
    unsigned n_sets;                        /* of eight classes: 1 or 2 */
} lmc__finder;

/* up_to: the masks have the elements of each class *and of all before it*. */
LMC__INLINE_AVX512 void lmc__set_finder(lmc__finder *finder, const lmc__grouping *grouping,
                                        int up_to)
{
    unsigned set, v, c;
    finder->n_sets = grouping->n_classes > 8 ? 2 : 1;
    for (set = 0; set < LMC__MAX_CLASSES / 8; set++)
        for (v = 0; v < 4; v++) {
            const __m512i keys =
                _mm512_add_epi8(lmc__load_avx512(lmc__count_up), lmc__splat_avx512(64 * v));
            __m512i table = lmc__splat_avx512((up_to ? 0xFFFF : 1u) >> 8 * set);
            for (c = 1; c < grouping->n_classes; c++)
                table = _mm512_mask_mov_epi8(
                    table,
                    _mm512_cmpge_epu8_mask(keys, lmc__splat_avx512(grouping->threshold[c - 1])),
                    lmc__splat_avx512((up_to ? 0xFFFFu << c : 1u << c) >> 8 * set));
            finder->table[set][v] = table;
        }
}

LMC__INLINE_AVX512 __m512i lmc__class_masks_avx512(__m512i keys, const __m512i table[4])
{
    /* reverses each group of eight elements: gf2p8affineqb counts a matrix's rows backwards */
    const __m512i reversed = _mm512_broadcast_i32x4(
                      _mm_set_epi64x(0x08090A0B0C0D0E0F, 0x0001020304050607)),
                  diagonal = _mm512_set1_epi64((long long)0x8040201008040201u),
                  columns = lmc__load_avx512(lmc__columns);
    const __m512i low = _mm512_permutex2var_epi8(table[0], keys, table[1]),
                  high = _mm512_permutex2var_epi8(table[2], keys, table[3]),
                  bits = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(keys), high);
    return _mm512_permutexvar_epi8(
        columns, _mm512_gf2p8affine_epi64_epi8(diagonal, _mm512_shuffle_epi8(bits, reversed), 0));
}

/* The ones of a word are the elements of one group in one class: their number goes to the tally. */
LMC__AVX512 static void lmc__count_classes_avx512(size_t counts[LMC__MAX_CLASSES],
                                                  const uint8_t *base, size_t n, unsigned width,
                                                  const lmc__grouping *grouping, uint8_t *tally)
{
    const unsigned n_classes = grouping->n_classes;
    const size_t row = lmc__tally_row(n);
    size_t i;
    __m512i keys[LMC__TALLY_GROUPS], up_to[LMC__MAX_CLASSES / 8];
    uint64_t in_classes[LMC__MAX_CLASSES];
    lmc__finder finder;
    unsigned v, c, set;
    lmc__set_finder(&finder, grouping, 1);
    up_to[0] = up_to[1] = _mm512_setzero_si512();
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        lmc__load_step_avx512(keys, base + i * width, width);
        for (set = 0; set < finder.n_sets; set++) {
            __m512i groups = _mm512_setzero_si512();
            LMC__UNROLL for (v = 0; v < LMC__TALLY_GROUPS; v++) groups = _mm512_or_si512(
                groups, _mm512_slli_epi64(_mm512_popcnt_epi64(
                                              lmc__class_masks_avx512(keys[v], finder.table[set])),
                                          8 * v));
            lmc__store_avx512((uint8_t *)(in_classes + 8 * set), groups);
            up_to[set] =
                _mm512_add_epi64(up_to[set], _mm512_sad_epu8(groups, _mm512_setzero_si512()));
        }
        if (tally)
            for (c = 0; c + 1 < n_classes; c++)
                lmc__store64(tally + c * row + i / 64, in_classes[c]);
    }
    lmc__store_avx512((uint8_t *)in_classes, up_to[0]);
    lmc__store_avx512((uint8_t *)(in_classes + 8), up_to[1]);
    lmc__count_elements(counts, base + i * width, n - i, width, grouping);
    for (c = 0; c < n_classes; c++)
        counts[c] += (size_t)(in_classes[c] - (c ? in_classes[c - 1] : 0));
}
#endif

/* == kernels/ungroup.h ========================================================================= */

/* ungroup: the inverse of group (spec 5.1, 5.2). Byte p of element i is the next byte of
 * sides->side[c][p], where c is the class of base's element i. For natural planes, p < n_natural,
 * it is byte i of side[0][p], which is always a list, of exactly n bytes without slack. The bytes
 * are a residual, which with base's element gives the element of dst. dst may be base: a step reads
 * its elements of base before it writes any. Returns the CRC-32C of dst.
 *
 * A step starts with zeros. For each class in turn, the next bytes of its lists are spread to the
 * places of its elements, by the same shuffle in all planes. The shuffle gives zero at all other
 * places, so the results of the classes are combined by or.
 *
 *     class of the element             0  1  1  0  1  0  0  1
 *     class 0's list   a d f g ...     a  0  0  d  0  f  g  0
 *     class 1's list   b c e h ...     0  b  c  0  e  0  0  h     or: a b c d e f g h
 *
 * Bounds. base is read and dst is written exactly. A step reads a whole vector of each list from
 * next[c] on: at most 64 bytes of slack. How far a list is read follows from base alone, and the
 * decoder has made the lists as long as count_classes says.
 *
 * A side that is a constant needs no shuffle: its value is masked by the class. The value 0, the
 * most frequent one (no change), needs nothing at all. */

/* Takes the bytes of a residual from its class's lists and the natural planes. Here, next[] counts
 * the elements of all classes, even of classes without a list. */
LMC__INLINE void lmc__ungroup_body(uint8_t *dst, const lmc__class_sides *sides,
                                   const lmc__delta_block *block, unsigned width,
                                   const lmc__delta_progress *done)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const unsigned first = own.grouping->n_natural;
    uint8_t class_of[256];
    size_t next[LMC__MAX_CLASSES], i;
    unsigned p;
    memcpy(next, done->next, sizeof next);
    lmc__set_class_table(class_of, own.grouping);
    for (i = done->n; i < own.n; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        uint64_t r = 0;
        /* a natural plane has a byte for each element, in place i; a list is at its own place */
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const lmc__side *const side = &sides->side[p < first ? 0 : c][p];
            r |= (uint64_t)(side->list ? side->list[p < first ? i : at] : side->value) << 8 * p;
        }
        r = own.order == LMC__ORDER_FLOAT ? lmc__restore_element(r, b, width, LMC__ORDER_FLOAT)
                                          : lmc__restore_element(r, b, width, LMC__ORDER_INTEGER);
        lmc__store_element(dst, i, r, width);
    }
}

/* Elements [done->n, n), one by one. This defines ungroup; the other tiers end with it. */
static uint32_t lmc__ungroup_rest(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  const lmc__delta_progress *done)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
    LMC__FOR_WIDTH(lmc__ungroup_body(dst, sides, block, w, done));
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__ungroup_scalar(const lmc__kernels *k, uint8_t *dst,
                                    const lmc__class_sides *sides, const lmc__delta_block *block,
                                    lmc__streaming streaming)
{
    lmc__delta_progress done = {0, {0}, 0};
    (void)streaming;
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}

#if LMC__NEON || LMC__X86
/* Sides as the steps need them: in a natural plane all classes have the constant zero; after the
 * loop over classes the plane's vector replaces these zeros. */
typedef struct lmc__spread {
    lmc__class_sides from;
    const uint8_t *natural[8];     /* of the natural planes; else NULL */
    int is_used[LMC__MAX_CLASSES]; /* a side is not 0; else places and next[c] are not needed */
} lmc__spread;

/* Called once for each block. memset gives all other sides a NULL list and the value 0. */
static void lmc__begin_ungroup(lmc__spread *spread, const lmc__class_sides *sides,
                               const lmc__delta_block *block)
{
    const unsigned first = block->grouping->n_natural, n_classes = block->grouping->n_classes;
    unsigned p, c;
    memset(spread, 0, sizeof *spread);
    for (p = 0; p < first; p++) spread->natural[p] = sides->side[0][p].list;
    for (c = 0; c < n_classes; c++)
        for (p = first; p < block->width; p++) {
            spread->from.side[c][p] = sides->side[c][p];
            if (sides->side[c][p].list || sides->side[c][p].value) spread->is_used[c] = 1;
        }
}
#endif

#if LMC__NEON
/* Steps of 64 elements, from done->n on. The places of a class's elements in its lists are those of
 * the zeros of a merge by the class's complement. They are the same in all planes. Others have
 * places from 16 on, where vqtbx1q leaves v as it is. */
LMC__INLINE void lmc__ungroup_steps_neon(uint8_t *dst, const lmc__spread *spread,
                                         const lmc__delta_block *block, size_t n, unsigned width,
                                         const uint8x16_t *highest, lmc__delta_progress *done)
{
    const unsigned n_classes = block->grouping->n_classes, first = block->grouping->n_natural;
    const enum lmc__order order = block->order;
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES], before[4], i;
    uint64_t m[LMC__MAX_CLASSES];
    uint8x16_t v[4][8], keys[4], places[4];
    unsigned p, c, j;
    memcpy(next, done->next, sizeof next);
    for (i = done->n; i < n; i += 64) {
        lmc__load_step_neon(keys, base + i * width, width);
        lmc__find_classes_neon(m, keys, highest, n_classes);
        LMC__UNROLL for (j = 0; j < 4; j++) LMC__UNROLL for (p = 0; p < width; p++) v[j][p] =
            vdupq_n_u8(0);
        for (c = 0; c < n_classes; c++) {
            const size_t at = next[c];
            if (!spread->is_used[c]) continue;
            next[c] = at + 64 - lmc__merge_places_neon(places, before, ~m[c]);
            LMC__UNROLL for (j = 0; j < 4; j++) before[j] = 16 * j - before[j];
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side side = spread->from.side[c][p];
                if (side.list)
                    LMC__UNROLL for (j = 0; j < 4; j++) v[j][p] =
                        vqtbx1q_u8(v[j][p], vld1q_u8(side.list + at + before[j]), places[j]);
                if (side.list || side.value == 0) continue;
                LMC__UNROLL for (j = 0; j < 4; j++) v[j][p] =
                    vqtbx1q_u8(v[j][p], vdupq_n_u8(side.value), places[j]);
            }
        }
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            const size_t at = i + 16 * j;
            /* natural planes are read exactly; the top plane is always grouped */
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[j][p] =
                vld1q_u8(spread->natural[p] + at);
            /* planes; then, in place, residuals in order; then elements. dst may be base */
            lmc__join_vectors_neon(v[j], width);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const uint8x16_t b = vld1q_u8(base + at * width + 16 * p);
                vst1q_u8(dst + at * width + 16 * p,
                         order == LMC__ORDER_FLOAT
                             ? lmc__restore_neon(v[j][p], b, width, LMC__ORDER_FLOAT)
                             : lmc__restore_neon(v[j][p], b, width, LMC__ORDER_INTEGER));
            }
        }
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

/* Strip by strip, so that the CRC reads from the first cache what was stored. */
static uint32_t lmc__ungroup_neon(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  lmc__streaming streaming)
{
    const unsigned width = block->width;
    const size_t whole = block->n & ~(size_t)63;
    lmc__delta_progress done = {0, {0}, 0};
    uint8x16_t highest[LMC__MAX_CLASSES];
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, block);
    lmc__set_highest_neon(highest, block->grouping);
    while (done.n < whole) {
        const size_t i = done.n, end = i + lmc__min(LMC__STRIP_ELEMENTS(width), whole - i);
        LMC__FOR_WIDTH(lmc__ungroup_steps_neon(dst, &spread, block, end, w, highest, &done));
        done.crc = k->crc32c(done.crc, dst + i * width, (end - i) * width);
    }
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}
#endif

#if LMC__X86
/* Steps of whole vectors. An element's place in its class's lists, counted from next[c], is the
 * number of elements of its class before it in the step. Bytes that are -1 where an element is of
 * the class are summed up within 16 bytes. Each sum is minus the number of such elements up to its
 * own; its complement is that number minus one, the place. For other elements the place is the
 * complement of zero, 255: there a shuffle gives zero.
 *
 *     of the class      0   1   1   0   1   0   0   1
 *     one               0  -1  -1   0  -1   0   0  -1
 *     sum               0  -1  -2  -2  -3  -3  -3  -4     of all up to here, itself included
 *     sum & one         0  -1  -2   0  -3   0   0  -4
 *     ~ that, places  255   0   1 255   2 255 255   3     ~(-k) = k - 1
 *
 * An AVX2 shuffle works on 16 bytes only. So the second half's bytes are loaded from their own
 * place, behind those of the first; both loads are within 32 bytes from next[c] on:
 *     list + next[c]      |0 1 2 3 4 5 6 7 8 9 . . . . . .|          for elements 0 .. 15
 *     list + next[c] + half         |0 1 2 3 4 . . . . . . . . . . .|        and for 16 .. 31
 *
 * The loop works strip by strip, so that the CRC reads from the first cache what was stored. */
LMC__INLINE_AVX2 void lmc__ungroup_avx2_loop(const lmc__kernels *k, uint8_t *dst,
                                             const lmc__spread *spread,
                                             const lmc__delta_block *block, unsigned width,
                                             lmc__delta_progress *done)
{
    const size_t size = LMC__VECTOR_SIZE, n = block->n;
    const unsigned n_classes = block->grouping->n_classes, first = block->grouping->n_natural;
    const uint8_t *const base = block->base;
    const enum lmc__order order = block->order;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const __m256i zero = _mm256_setzero_si256();
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, block->grouping);
    while (i + size <= n) {
        const size_t start = i,
                     end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size - 1));
        for (; i < end; i += size) {
            __m256i keys, before = zero;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + size * p);
                v[p] = zero;
            }
            keys = lmc__keys_avx2(b, width);
            for (c = 0; c < n_classes; c++) {
                const __m256i up_to = lmc__up_to_avx2(keys, highest[c]), one = up_to & ~before;
                __m256i places = one;
                size_t half = 0, all = 0;
                before = up_to;
                if (s.is_used[c]) {
                    places = ~(lmc__sum_up_avx2(one) & one);
                    all = lmc__count_avx2(one, &half);
                }
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    const lmc__side *const side = &s.from.side[c][p];
                    if (side->list) {
                        const uint8_t *const list = side->list + next[c];
                        v[p] |= lmc__shuffle_avx2(lmc__load_pair_avx2(list, list + half), places);
                    } else if (side->value) v[p] |= one & lmc__splat_avx2(side->value);
                }
                next[c] += all;
            }
            /* Natural planes are in the input and are read exactly: a step is whole. The top plane
             * is always grouped, because n_natural < width (spec 5). */
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
                lmc__load_avx2(s.natural[p] + i);
            /* v: planes; then, in place, residuals in order; then elements */
            lmc__join_vectors_avx2(v, width);
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, LMC__ORDER_INTEGER);
            /* dst may be base, whose elements of this step are in b */
            LMC__UNROLL for (p = 0; p < width; p++)
                lmc__store_avx2(dst + i * width + size * p, v[p]);
        }
        crc = k->crc32c(crc, dst + start * width, (end - start) * width);
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__ungroup_avx2, LMC__LOOP_AVX2,
                   (const lmc__kernels *k, uint8_t *dst, const lmc__spread *spread,
                    const lmc__delta_block *block, lmc__delta_progress *done),
                   (k, dst, spread, block, width, done))

/* These tiers do not stream: they read each strip again after it is made. */
LMC__AVX2 static uint32_t lmc__ungroup_avx2(const lmc__kernels *k, uint8_t *dst,
                                            const lmc__class_sides *sides,
                                            const lmc__delta_block *block, lmc__streaming streaming)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, block);
    LMC__CALL_WIDTH(lmc__ungroup_avx2, (k, dst, &spread, block, &done));
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}

/* Whole steps of 64 elements, all in registers: vpexpandb spreads a list's next bytes to the places
 * of a class, and leaves the bytes of other classes as they are. CRC and streams are as in
 * join_root. But if dst is base, nothing is streamed: the lines just read are in the caches.
 *
 *     m            0 1 0 0 1 0 1 0 ...
 *     list         A B C D ...
 *     v before     x . x x . x . x ...     x: of the classes before
 *     v after      x A x x B x C x ... */
LMC__INLINE_AVX512 void lmc__ungroup_avx512_loop(uint8_t *dst, const lmc__spread *spread,
                                                 const lmc__delta_block *block, unsigned width,
                                                 lmc__streaming streaming,
                                                 lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const int streams = streaming.is_on && dst != base;
    const enum lmc__order order = block->order;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const size_t n = block->n, per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    /* touch_ahead is for dst's next page, fetch_next for what is decoded after this block */
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(dst, i * width);
        lmc__fetch_next_avx512(streaming, i, per_element);
        /* All of the step's base is in registers before it is written: dst may be base. */
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_avx512(base + i * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = _mm512_setzero_si512();
        /* `here` without what is above class c is class c; nothing is above the last (key 255) */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &s.from.side[c][p];
                /* a list is spread to the class's places, a constant is copied; zeros stay */
                if (side->list)
                    v[p] = _mm512_mask_expand_epi8(v[p], m, lmc__load_avx512(side->list + next[c]));
                else if (side->value)
                    v[p] = _mm512_mask_mov_epi8(v[p], m, _mm512_set1_epi8((char)side->value));
            }
            next[c] += (size_t)_mm_popcnt_u64(m);
            here = above;
        }
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_avx512(s.natural[p] + i);
        /* v: planes; then, in place, 64 residuals in order; then elements */
        lmc__join_vectors_avx512(v, width);
        if (order == LMC__ORDER_FLOAT)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, LMC__ORDER_FLOAT);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, LMC__ORDER_INTEGER);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            /* streams is the same in all steps, so the branch is always predicted */
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        /* after the fold, which in the first step gives sum[0] = v[0]: sums start as 0 */
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
    }
    if (i && streams) lmc__end_stream_avx512(&stream, dst + i * width);
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__ungroup_avx512, LMC__LOOP_AVX512,
                   (uint8_t *dst, const lmc__spread *spread, const lmc__delta_block *block,
                    lmc__streaming streaming, lmc__delta_progress *done),
                   (dst, spread, block, width, streaming, done))

LMC__AVX512 static uint32_t lmc__ungroup_avx512(const lmc__kernels *k, uint8_t *dst,
                                                const lmc__class_sides *sides,
                                                const lmc__delta_block *block,
                                                lmc__streaming streaming)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    lmc__spread spread;
    lmc__begin_ungroup(&spread, sides, block);
    LMC__CALL_WIDTH(lmc__ungroup_avx512, (dst, &spread, block, streaming, &done));
    return lmc__ungroup_rest(k, dst, sides, block, &done);
}
#endif

/* == kernels/patch.h =========================================================================== */

/* patch: restores elements of which few have changed (spec 5.2, Sparse). dst becomes a copy of
 * base, except for the elements that changes->at names. Element number at[c][j] of class c, counted
 * from 0 among the class's elements in base, has the residual changes->residual[c][j], of `width`
 * bytes; the element of base and this residual give the element of dst. dst may be base; then only
 * changes are written. Returns the CRC-32C of dst.
 *
 *     base                    A0 B0 A1 A2 B1 B2 A3 ...        classes A and B, numbered
 *     at[A]  2 3 -            .  .  .  x  .  .  x
 *     at[B]  1 -              .  .  .  .  x  .  .
 *
 * tally was filled by count_classes of the same table, for the same base and grouping. With it,
 * elements that have not changed are only copied and added to the CRC.
 *
 * Numbers ascend strictly in each class; LMC__NO_CHANGE, at the end, decides how far both arrays
 * are read; LMC__PAD more bytes may be. A number beyond the class's elements changes nothing. */

/* Notes element i before it changes. */
LMC__INLINE void lmc__note_undo(lmc__undo *undo, size_t i, uint64_t before, unsigned width)
{
    if (!undo) return;
    undo->place[undo->n] = (uint32_t)i;
    lmc__store_element(undo->before, undo->n++, before, width);
}

/* Undoes all changes that patch has made to the block at dst. */
LMC__INLINE void lmc__put_back(uint8_t *dst, const lmc__undo *undo, unsigned width)
{
    size_t j;
    for (j = 0; j < undo->n; j++)
        memcpy(dst + (size_t)undo->place[j] * width, undo->before + j * width, width);
}

/* For the first n elements: in each class, the changes done and the elements seen; the CRC-32C. */
typedef struct lmc__patch_progress {
    size_t n;
    uint32_t next[LMC__MAX_CLASSES], seen[LMC__MAX_CLASSES], crc;
} lmc__patch_progress;

LMC__INLINE void lmc__patch_body(uint8_t *dst, const lmc__patches *changes,
                                 const lmc__delta_block *block, unsigned width,
                                 const lmc__patch_progress *done, lmc__undo *undo)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__patches from = *changes;
    lmc__patch_progress p = *done;
    uint8_t class_of[256];
    size_t i;
    lmc__set_class_table(class_of, own.grouping);
    for (i = p.n; i < own.n; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        uint64_t v = b;
        if (from.at[c][p.next[c]] == p.seen[c]++) {
            lmc__note_undo(undo, i, b, width);
            v = lmc__restore_element(lmc__load_element(from.residual[c], p.next[c]++, width), b,
                                     width, own.order);
        }
        lmc__store_element(dst, i, v, width);
    }
}

/* Elements [done->n, n), one by one. This defines patch; the other tiers end with it. */
static uint32_t lmc__patch_rest(const lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,
                                const lmc__delta_block *block, const lmc__patch_progress *done,
                                lmc__undo *undo)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
    LMC__FOR_WIDTH(lmc__patch_body(dst, changes, block, w, done, undo));
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__patch_scalar(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                  const lmc__patches *changes, size_t n, unsigned width,
                                  enum lmc__order order, const lmc__grouping *grouping,
                                  const uint8_t *tally, lmc__undo *undo, lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    lmc__patch_progress done;
    (void)tally;
    (void)streaming;
    memset(&done, 0, sizeof done);
    return lmc__patch_rest(k, dst, changes, &block, &done, undo);
}

#if LMC__NEON || LMC__X86
/* The place in m of one bit number `rank`, from 0. Sums of one bits say which byte has it. */
LMC__INLINE_VEC unsigned LMC__VEC(find_one)(uint64_t m, unsigned rank)
{
    const uint64_t ones = LMC__ONES8, high = ones << 7;
#if LMC__NEON
    const uint64_t up_to = lmc__begin_ones_neon(m);
#else
    const uint64_t pairs = m - (m >> 1 & ones * 0x55),
                   quads = (pairs & ones * 0x33) + (pairs >> 2 & ones * 0x33),
                   up_to = ((quads + (quads >> 4)) & ones * 0x0F) * ones;
#endif
    /* bits before this byte: of each byte whose sum is at most rank, the difference keeps bit 7 */
    const unsigned shift =
                       8 * (unsigned)__builtin_popcountll(((rank * ones | high) - up_to) & high),
                   before = (unsigned)(up_to << 8 >> shift & 255);
    return shift + (unsigned)(lmc__sort_places[m >> shift & 255][1] >> 8 * (rank - before) & 255);
}
#endif

#if LMC__NEON
/* Steps of 64 elements. A change is found by its rank in the mask of its class, which is made only
 * if a class has a change in the step. All keys are loaded before an element changes, so dst may be
 * base. */
LMC__INLINE void lmc__patch_steps_neon(uint8_t *dst, const lmc__patches *changes,
                                       const lmc__delta_block *block, size_t n, unsigned width,
                                       const uint8x16_t *highest, const lmc__key_ranges *ranges,
                                       lmc__patch_progress *done, lmc__undo *undo)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__patches from = *changes;
    const unsigned n_classes = own.grouping->n_classes;
    uint8x16_t keys[4];
    size_t i;
    unsigned c;
    for (i = done->n; i < n; i += 64) {
        uint32_t before = 0, up_to;
        lmc__load_step_neon(keys, own.base + i * width, width);
        if (dst != own.base) memcpy(dst + i * width, own.base + i * width, 64 * width);
        for (c = 0; c < n_classes; c++, before = up_to) {
            const uint32_t first = done->seen[c];
            uint32_t end;
            up_to = c + 1 < n_classes ? lmc__count_up_to_neon(keys, highest[c]) : 64;
            done->seen[c] = end = first + up_to - before;
            if (from.at[c][done->next[c]] < end) {
                const uint64_t m = lmc__in_range_neon(keys, ranges->first[c], ranges->more[c]);
                do {
                    const uint32_t next = done->next[c]++;
                    const size_t at = i + lmc__find_one_neon(m, from.at[c][next] - first);
                    const uint64_t b = lmc__load_element(own.base, at, width);
                    lmc__note_undo(undo, at, b, width);
                    lmc__store_element(
                        dst, at,
                        lmc__restore_element(lmc__load_element(from.residual[c], next, width), b,
                                             width, own.order),
                        width);
                } while (from.at[c][done->next[c]] < end);
            }
        }
    }
    done->n = n;
}

static uint32_t lmc__patch_neon(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                const lmc__patches *changes, size_t n, unsigned width,
                                enum lmc__order order, const lmc__grouping *grouping,
                                const uint8_t *tally, lmc__undo *undo, lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, order, grouping};
    uint8x16_t highest[LMC__MAX_CLASSES];
    lmc__key_ranges ranges;
    lmc__patch_progress done;
    size_t i, end;
    (void)tally;
    (void)streaming;
    memset(&done, 0, sizeof done);
    lmc__set_highest_neon(highest, grouping);
    lmc__set_key_ranges(&ranges, grouping);
    for (i = 0; i + 64 <= n; i = end) {
        end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)63);
        LMC__FOR_WIDTH(
            lmc__patch_steps_neon(dst, changes, &block, end, w, highest, &ranges, &done, undo));
        done.crc = k->crc32c(done.crc, dst + i * width, (end - i) * width);
    }
    return lmc__patch_rest(k, dst, changes, &block, &done, undo);
}
#endif

#if LMC__X86
/* In each chunk, class by class, the changes whose numbers are in the chunk are found. The tally's
 * bytes say how many elements of the class each group of 64 has:
 *     of class c           2        2        2                 difference of two rows of the tally
 *     up_to                       2        4        6
 *     at - seen = 3  -->  up_to <= 3 holds once: group 1, in which it is number 3 - 2 = 1
 *     group 1              . . x . . . x .                     keys compared with the class's range
 *                                      ^
 *
 * dst may be base, and a changed element may get another key, while the keys of its group may be
 * needed again. So elements are written only when all changes of a chunk are computed. */
#define LMC__PATCH_GROUPS 32u
#define LMC__PATCH_CHUNK (64 * LMC__PATCH_GROUPS)

/* Changes that are taken from a list at a time: the slack of a list has room for as many. */
#define LMC__PATCH_STEP (LMC__PAD / 4)

/* A chunk's elements that change: places (at first: class * LMC__PATCH_CHUNK + number in the class
 * and chunk), values before the change, residuals. A strip of elements of 8 bytes has only half as
 * many elements as a chunk. up_to[c]: sums of class c from entry LMC__PATCH_GROUPS on, after 0. */
typedef struct lmc__pending {
    uint16_t up_to[LMC__MAX_CLASSES][2 * LMC__PATCH_GROUPS];
    uint16_t place[LMC__PATCH_CHUNK + LMC__PATCH_STEP];
    uint8_t element[LMC__STRIP_SIZE + LMC__PAD], residual[LMC__STRIP_SIZE + LMC__PAD];
} lmc__pending;

/* How many elements of each group are in classes 0 .. c, for the 32 groups from `tally` on: all 64
 * for the last class, which has no row. here: -1 for groups that the block has, else 0. */
LMC__INLINE_AVX2 __m256i lmc__load_tally_avx2(const uint8_t *tally, size_t row, unsigned c,
                                              unsigned n_classes, __m256i here)
{
    const __m256i all = _mm256_set1_epi8(64);
    return _mm256_and_si256(c + 1 < n_classes ? lmc__load_avx2(tally + c * row) : all, here);
}

/* The sum of 32 bytes. */
LMC__INLINE_AVX2 uint32_t lmc__sum_bytes_avx2(__m256i v)
{
    const __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
}

/* For each of 16 numbers of 16 bits, the sum of the numbers up to it. */
LMC__INLINE_AVX2 __m256i lmc__sums_up_to_avx2(__m256i v)
{
    const __m256i last = _mm256_set1_epi16(0x0F0E);
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 2));
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 4));
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 8));
    /* adds the last of the lower eight to the upper eight; 0x08: zeros, then the lower half */
    return _mm256_add_epi16(v, _mm256_shuffle_epi8(_mm256_permute2x128_si256(v, v, 0x08), last));
}

/* sum_groups: the sums of the first 1, 2 ... 32 of 32 bytes, of 16 bits each, to up_to. find_group:
 * how many of these sums are at most `number`: the group of that element. */
LMC__INLINE_AVX2 void lmc__sum_groups_avx2(uint16_t *up_to, __m256i own)
{
    const __m256i low = lmc__sums_up_to_avx2(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(own))),
                  high =
                      lmc__sums_up_to_avx2(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(own, 1)));
    lmc__store_avx2((uint8_t *)up_to, low);
    lmc__store_avx2((uint8_t *)(up_to + 16),
                    _mm256_add_epi16(high, _mm256_shuffle_epi8(_mm256_permute4x64_epi64(low, 0xFF),
                                                               _mm256_set1_epi16(0x0F0E))));
}
LMC__INLINE_AVX2 unsigned lmc__find_group_avx2(const uint16_t *up_to, uint32_t number)
{
    const __m256i wanted = _mm256_set1_epi16((short)number),
                  low = lmc__load_avx2((const uint8_t *)up_to),
                  high = lmc__load_avx2((const uint8_t *)(up_to + 16));
    /* packs takes halves of the two vectors in turn, which does not change how many there are */
    return LMC__PATCH_GROUPS -
           (unsigned)_mm_popcnt_u32((uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(
               _mm256_cmpgt_epi16(low, wanted), _mm256_cmpgt_epi16(high, wanted))));
}

/* Of the next LMC__PATCH_STEP changes of class c, takes those with numbers below `end` to pending,
 * from entry n on; `seen` is subtracted from the numbers. Returns how many it took. There is no
 * branch for each change, because a CPU cannot predict it. */
LMC__INLINE_AVX2 uint32_t lmc__take_changes_avx2(lmc__pending *pending, size_t n,
                                                 const uint32_t *at, const uint8_t *residual,
                                                 unsigned c, uint32_t seen, uint32_t end,
                                                 unsigned width)
{
    const __m256i low = lmc__load_avx2((const uint8_t *)at),
                  high = lmc__load_avx2((const uint8_t *)(at + 8)),
                  from = _mm256_set1_epi32((int)seen), limit = _mm256_set1_epi32((int)end);
    /* numbers below `end` fit in 16 bits; packing takes halves of the two vectors in turn */
    const __m256i numbers =
                      _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_sub_epi32(low, from),
                                                                   _mm256_sub_epi32(high, from)),
                                               0xD8),
                  is_behind = _mm256_permute4x64_epi64(
                      _mm256_packs_epi32(_mm256_cmpeq_epi32(_mm256_max_epu32(low, limit), low),
                                         _mm256_cmpeq_epi32(_mm256_max_epu32(high, limit), high)),
                      0xD8);
    const uint32_t n_taken = (uint32_t)_tzcnt_u64((uint32_t)_mm256_movemask_epi8(is_behind) |
                                                  (uint64_t)1 << 2 * LMC__PATCH_STEP) /
                             2;
    size_t i;
    lmc__store_avx2((uint8_t *)(pending->place + n),
                    _mm256_add_epi16(numbers, _mm256_set1_epi16((short)(c * LMC__PATCH_CHUNK))));
    for (i = 0; i < (width <= 2 ? 1 : n_taken * width); i += 32)
        lmc__store_avx2(pending->residual + n * width + i, lmc__load_avx2(residual + i));
    return n_taken;
}

/* The same, by pdep if that is fast: it is microcoded on Zen 1 and 2. */
LMC__INLINE_AVX2 unsigned lmc__find_one(uint64_t m, unsigned rank, int has_fast_pdep)
{
    if (has_fast_pdep) return (unsigned)_tzcnt_u64(_pdep_u64((uint64_t)1 << rank, m));
    return lmc__find_one_avx2(m, rank);
}

/* Copies a multiple of 64 bytes; for memcpy, compilers would use a slow instruction here. */
LMC__INLINE_AVX2 void lmc__copy_lines_avx2(uint8_t *dst, const uint8_t *src, size_t size)
{
    size_t i;
    for (i = 0; i < size; i += 64) {
        const __m256i low = lmc__load_avx2(src + i), high = lmc__load_avx2(src + i + 32);
        lmc__touch_ahead(dst, i);
        lmc__store_avx2(dst + i, low);
        lmc__store_avx2(dst + i + 32, high);
    }
}

/* Ends a strip: computes its CRC and, if streams is 1, streams it to dst. The next strip is fetched
 * meanwhile. AVX-512 does all in one loop, because streaming stores wait for memory; it also
 * fetches `size` bytes at `later`, if that is not NULL. size is a multiple of 512. */
LMC__INLINE_AVX2 uint32_t lmc__end_strip_avx2(const lmc__kernels *k, uint32_t crc, uint8_t *dst,
                                              const uint8_t *strip, size_t size,
                                              const uint8_t *next, const uint8_t *later,
                                              int streams)
{
    (void)later;
    crc = lmc__crc_ahead_avx2(k, crc, strip, size, next);
    if (streams) lmc__stream_avx2(dst, strip, size);
    return crc;
}
LMC__INLINE_AVX512 uint32_t lmc__end_strip_avx512(const lmc__kernels *k, uint32_t crc, uint8_t *dst,
                                                  const uint8_t *strip, size_t size,
                                                  const uint8_t *next, const uint8_t *later,
                                                  int streams)
{
    const __m512i fold = lmc__crc_factor(4), zero = _mm512_setzero_si512();
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    __m512i sum[4] = {zero, zero, zero, zero}, v[4], start = lmc__crc_start(crc);
    size_t i;
    unsigned p;
    (void)k;
    for (i = 0; i < size; i += 256) {
        lmc__touch_ahead(next, i);
        if (later) {
            lmc__touch_ahead(later, i);
            LMC__UNROLL for (p = 0; p < 4; p++)
                LMC__PREFETCH((const uint8_t *)((uintptr_t)later + i + 64 * p));
        }
        LMC__UNROLL for (p = 0; p < 4; p++)
        {
            const size_t at = i + 64 * p;
            LMC__PREFETCH((const uint8_t *)((uintptr_t)next + at));
            v[p] = lmc__load_avx512(strip + at);
            if (streams) lmc__stream_avx512(&stream, dst + at, v[p], at == 0);
        }
        lmc__crc_add_avx512(sum, fold, v, 4, &start);
    }
    if (streams) lmc__end_stream_avx512(&stream, dst + size);
    return lmc__crc_finish(sum, 4);
}

/* Copies the changes of a chunk to pending, and sums up the chunk's tally, by which they are placed
 * later. Returns how many there are. n_groups: of the chunk, at most 32. */
LMC__INLINE_AVX2 size_t lmc__take_chunk_avx2(lmc__pending *pending, lmc__patch_progress *done,
                                             size_t n_groups, const uint8_t *tally, size_t row,
                                             const lmc__patches *changes, unsigned n_classes,
                                             unsigned width)
{
    const __m256i here =
        _mm256_cmpgt_epi8(_mm256_set1_epi8((char)n_groups), lmc__load_avx2(lmc__count_up));
    __m256i before = _mm256_setzero_si256();
    size_t n = 0;
    unsigned c;
    for (c = 0; c < n_classes; c++) {
        const __m256i all = lmc__load_tally_avx2(tally, row, c, n_classes, here),
                      own = _mm256_sub_epi8(all, before);
        const uint32_t *const at = changes->at[c], seen = done->seen[c],
                              end = seen + lmc__sum_bytes_avx2(own);
        uint32_t next = done->next[c], n_taken;
        before = all;
        done->seen[c] = end;
        if (at[next] >= end) continue;
        lmc__sum_groups_avx2(pending->up_to[c] + LMC__PATCH_GROUPS, own);
        do {
            n_taken = lmc__take_changes_avx2(pending, n, at + next,
                                             changes->residual[c] + (size_t)next * width, c, seen,
                                             end, width);
            n += n_taken;
            next += n_taken;
        } while (n_taken == LMC__PATCH_STEP);
        done->next[c] = next;
    }
    return n;
}

/* Restores the chunk's n pending elements, and writes them to out, which already has the elements
 * of base. from: the number of the chunk's first element. */
#define LMC__DEFINE_PATCH_CHUNK(isa, INLINE, vector)                                               \
    INLINE void lmc__patch_chunk_##isa(lmc__pending *pending, size_t n, uint8_t *out,              \
                                       const uint8_t *base, const lmc__key_ranges *ranges,         \
                                       lmc__undo *undo, size_t from, unsigned width,               \
                                       enum lmc__order order, int has_fast_pdep)                   \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i < n; i++) {                                                                  \
            const uint32_t number = pending->place[i] % LMC__PATCH_CHUNK;                          \
            const unsigned c = pending->place[i] / LMC__PATCH_CHUNK;                               \
            const uint16_t *up_to = pending->up_to[c] + LMC__PATCH_GROUPS;                         \
            size_t place = lmc__find_group_avx2(up_to, number);                                    \
            uint64_t m;                                                                            \
            up_to += place;                                                                        \
            place *= 64;                                                                           \
            m = lmc__find_keys_##isa(base + place * width, width, ranges->first[c],                \
                                     ranges->more[c]);                                             \
            place += lmc__find_one(m, number - up_to[-1], has_fast_pdep);                          \
            pending->place[i] = (uint16_t)place;                                                   \
            lmc__store_element(pending->element, i, lmc__load_element(base, place, width), width); \
        }                                                                                          \
        for (i = 0; undo && i < n; i++)                                                            \
            lmc__note_undo(undo, from + pending->place[i],                                         \
                           lmc__load_element(pending->element, i, width), width);                  \
        for (i = 0; i < n * width; i += vector)                                                    \
            lmc__store_##isa(pending->element + i,                                                 \
                             lmc__restore_##isa(lmc__load_##isa(pending->residual + i),            \
                                                lmc__load_##isa(pending->element + i), width,      \
                                                order));                                           \
        for (i = 0; i < n; i++)                                                                    \
            lmc__store_element(out, pending->place[i],                                             \
                               lmc__load_element(pending->element, i, width), width);              \
    }
LMC__DEFINE_PATCH_CHUNK(avx2, LMC__INLINE_AVX2, 32)
LMC__DEFINE_PATCH_CHUNK(avx512, LMC__INLINE_AVX512, 64)
#undef LMC__DEFINE_PATCH_CHUNK

/* Restores the whole steps of the tally, then the rest. A strip is copied first, unless dst is
 * base: to dst or, if it is streamed, to a buffer, aligned so that loads cross no lines. */
#define LMC__END_STRIP(isa, streams)                                                               \
    lmc__end_strip_##isa(k, done.crc, to, out, size, from + size,                                  \
                         i * width < streaming.next_size ? streaming.next + i * width : NULL,      \
                         streams)
#define LMC__DEFINE_PATCH(isa, attribute, has_fast_pdep)                                           \
    attribute static uint32_t lmc__patch_##isa(                                                    \
        const lmc__kernels *k, uint8_t *dst, const uint8_t *base, const lmc__patches *changes,     \
        size_t n, unsigned width, enum lmc__order order, const lmc__grouping *grouping,            \
        const uint8_t *tally, lmc__undo *undo, lmc__streaming streaming)                           \
    {                                                                                              \
        const lmc__delta_block block = {base, n, width, order, grouping};                          \
        const size_t whole = n - n % LMC__TALLY_STEP, row = lmc__tally_row(n);                     \
        const int streams = streaming.is_on && dst != base;                                        \
        uint8_t buffer[LMC__STRIP_SIZE] __attribute__((aligned(64)));                              \
        lmc__patch_progress done;                                                                  \
        lmc__key_ranges ranges;                                                                    \
        lmc__pending pending;                                                                      \
        size_t i, j;                                                                               \
        memset(&done, 0, sizeof done);                                                             \
        memset(pending.up_to, 0, sizeof pending.up_to);                                            \
        lmc__set_key_ranges(&ranges, grouping);                                                    \
        for (i = 0; i < whole; i += LMC__STRIP_ELEMENTS(width)) {                                  \
            const size_t m = lmc__min(whole - i, LMC__STRIP_ELEMENTS(width)), size = m * width;    \
            const uint8_t *const from = base + i * width;                                          \
            uint8_t *const to = dst + i * width, *const out = streams ? buffer : to;               \
            if (out != from) lmc__copy_lines_avx2(out, from, size);                                \
            for (j = 0; j < m; j += LMC__PATCH_CHUNK) {                                            \
                const size_t n_pending = lmc__take_chunk_avx2(                                     \
                    &pending, &done, lmc__min(m - j, LMC__PATCH_CHUNK) / 64, tally + (i + j) / 64, \
                    row, changes, grouping->n_classes, width);                                     \
                LMC__FOR_WIDTH(lmc__patch_chunk_##isa(&pending, n_pending, out + j * width,        \
                                                      from + j * width, &ranges, undo, i + j, w,   \
                                                      order, has_fast_pdep));                      \
            }                                                                                      \
            done.crc = streams ? LMC__END_STRIP(isa, 1) : LMC__END_STRIP(isa, 0);                  \
        }                                                                                          \
        done.n = whole;                                                                            \
        return lmc__patch_rest(k, dst, changes, &block, &done, undo);                              \
    }
LMC__DEFINE_PATCH(avx2, LMC__AVX2, k->has_fast_pdep)
LMC__DEFINE_PATCH(avx512, LMC__AVX512, 1)
#undef LMC__DEFINE_PATCH
#endif

/* == kernels/changes.h ========================================================================= */

/* Sparse deltas (spec 5.2), encoding: which elements have changed, and where each is in its class.
 *
 * list_changes: lists in `changed` the elements of src that differ from those of base. Returns
 * their number, or SIZE_MAX if it exceeds `most`. changed has room for `most` elements; LMC__PAD
 * bytes behind its array `place` may be overwritten. *crc: the CRC-32C of src, unless SIZE_MAX is
 * returned. The block is coded from this list alone. So the list has the elements, too: to fetch
 * them later, one by one from the whole block, would be slow. src and base may change meanwhile.
 * They are read only once, so the list and the CRC are of the same bytes.
 *
 * rank_changes: ones[c] = the ranks of the changed elements of class c. A rank is the number of
 * elements of the class before the element in base: the place of its one bit in the class's mask.
 * counts[c] = elements of class c in base. The class of a changed element follows from
 * changed->before, even if base was changed later: so the lists have the lengths that count_classes
 * gave for changed->before. Most of the time is for counting the many unchanged elements, with
 * vectors as in count_classes. src and base are read exactly. */

#if !defined(LMC_NO_SNAPSHOT)
/* Compares n elements, from number `from` on. Writes the numbers of elements that differ to
 * place[n_changed] and on. Returns how many numbers `place` has then; SIZE_MAX if these would be
 * more than `most`. Few elements differ, so words are compared, 32 bytes in a step. */
LMC__INLINE size_t lmc__list_words(uint32_t *place, size_t n_changed, size_t most,
                                   const uint8_t *now, const uint8_t *before, size_t n,
                                   unsigned width, size_t from)
{
    const unsigned lane = 8 * width;
    const uint64_t element = ~(uint64_t)0 >> (64 - lane);
    size_t at, i;
    for (at = 0; at + 32 <= n * width; at += 32) {
        uint64_t differ[4];
        unsigned w;
        for (w = 0; w < 4; w++)
            differ[w] = lmc__load64(now + at + 8 * w) ^ lmc__load64(before + at + 8 * w);
        if ((differ[0] | differ[1] | differ[2] | differ[3]) == 0) continue;
        for (w = 0; w < 4; w++)
            while (differ[w]) {
                const unsigned j = lmc__lowest_bit(differ[w]) / lane;
                if (n_changed == most) return SIZE_MAX;
                place[n_changed++] = (uint32_t)(from + (at + 8 * w) / width + j);
                differ[w] &= ~(element << j * lane);
            }
    }
    for (i = at / width; i < n; i++) {
        if (lmc__load_element(now, i, width) == lmc__load_element(before, i, width)) continue;
        if (n_changed == most) return SIZE_MAX;
        place[n_changed++] = (uint32_t)(from + i);
    }
    return n_changed;
}
#endif

/* == kernels/half.h ============================================================================ */

/* Rounds F32 to formats of 16 bits: to nearest, ties to even; NaN stays NaN (spec 4.2). Integer
 * arithmetic makes all machines round alike. Half a unit less one and the lowest kept bit are
 * added: so a tie is rounded up only if that bit is 1. A carry out of the mantissa raises the
 * exponent, up to infinity, as it should. A NaN keeps its upper half, with the quiet bit set:
 * rounding could make it infinity, or change its sign. */
LMC__INLINE unsigned lmc__to_bf16(uint32_t v)
{
    if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40;
    return (v + 0x7FFF + (v >> 16 & 1)) >> 16;
}

/* F16 has 5 bits of exponent and 10 of mantissa. */
LMC__INLINE unsigned lmc__to_f16(uint32_t v)
{
    const unsigned sign = v >> 16 & 0x8000;
    const uint32_t magnitude = v & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00 | (magnitude >> 13 & 0x3FF);
    if (magnitude >= 0x47800000) return sign | 0x7C00; /* 2^16 or more: infinity */
    if (magnitude >= 0x38800000) /* 2^-14 or more: normal; exponents differ by 127 - 15 = 112 */
        return sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13);
    if (magnitude < 0x33000000) return sign; /* below 2^-25, half of the least subnormal */
    {
        /* Subnormal: the mantissa, with its leading bit, in units of 2^-24. */
        const unsigned shift = 126 - (magnitude >> 23); /* 14 .. 24 */
        const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000,
                       half = (uint32_t)1 << (shift - 1);
        return sign | ((mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
    }
}

#ifndef LMC_NO_SNAPSHOT
LMC_API enum lmc_status lmc_conversion_apply(void *dst, const void *src, size_t n,
                                             enum lmc_conversion conversion)
{
    uint8_t *const out = (uint8_t *)dst;
    const uint8_t *const in = (const uint8_t *)src;
    size_t i;
    if (n && (!dst || !src)) return LMC_ERR_ARGUMENT;
    if (conversion == LMC_CONVERT_F32_TO_BF16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(in + 4 * i)));
    else if (conversion == LMC_CONVERT_F32_TO_F16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_f16(lmc__load32(in + 4 * i)));
    else return LMC_ERR_ARGUMENT;
    return LMC_OK;
}
#endif

/* == kernels/codes.h =========================================================================== */

/* Codes with scales (spec/codes.md): elements that were quantised before they came, as copies in
 * BF16, F16 or F32 of weights in FP8, INT8 or INT4:
 *
 *     element = the scale of its group * the number of its code, rounded to F32, then to its dtype
 *
 * A code is a byte: a sign and a float of 7 bits, of which `mantissa` bits are a mantissa; or an
 * integer. Numbers are integers, without the bias of exponents: the scale makes up for that.
 *
 *     mantissa   3  E4M3   2  E5M2   6  integers of -127 .. 127, with -0   7  of -128 .. 127
 *
 * A number has at most 8 bits, and a scale 24: their product is rounded once, also where floats are
 * computed with more bits. It is neither subnormal nor infinite: scales are the bits of an F32 from
 * LMC__MIN_SCALE to LMC__MAX_CODED_SCALE, and numbers are whole and below 2^33. So every tier,
 * compiler and option gives the same bits. */

/* The magnitude of a code without its sign: 0 .. 127, or 128 for an integer. */
LMC__INLINE double lmc__code_number(unsigned code, unsigned mantissa)
{
    const unsigned exponent = code >> mantissa, one = 1u << mantissa, m = code & (one - 1);
    return (double)(exponent ? (int64_t)(one + m) << (exponent - 1) : (int64_t)m);
}

/* The numbers of all codes, as the bits of F32, which -0 needs. */
static void lmc__set_numbers(lmc__code_form *form)
{
    unsigned i;
    for (i = 0; i < 256; i++) {
        const unsigned sign = i >> 7, code = form->mantissa == 7 && sign ? 256 - i : i & 127;
        const float number = (float)lmc__code_number(code, form->mantissa < 7 ? form->mantissa : 6);
        memcpy(&form->numbers[i], &number, 4);
        form->numbers[i] |= (uint32_t)sign << 31;
    }
}

/* The elements of n codes. scales: of their groups; `first` of the first group's elements are left.
 * dst and codes do not overlap. */
static void lmc__restore_codes_scalar(uint8_t *dst, const uint8_t *codes, size_t n,
                                      const lmc__code_form *form, const uint32_t *scales,
                                      size_t first)
{
    for (; n; scales++, first = form->group_size) {
        size_t left = lmc__min(n, first);
        float scale, number, product;
        uint32_t bits;
        memcpy(&scale, scales, 4);
        for (n -= left; left; left--, codes++, dst += form->width) {
            memcpy(&number, &form->numbers[*codes], 4);
            product = number * scale;
            memcpy(&bits, &product, 4);
            if (form->width == 4) lmc__store32(dst, bits);
            else
                lmc__store16(dst,
                             (uint16_t)(form->is_half ? lmc__to_f16(bits) : lmc__to_bf16(bits)));
        }
    }
}

#if LMC__VECTORS
/* Products of codes and a scale, as F32. Integers are converted. The bits of other codes are those
 * of an F32, but for exponent 0, whose mantissas are integers. */
LMC__INLINE_VEC lmc__u32v lmc__code_products_vec(lmc__u32v codes, lmc__f32v scale,
                                                 unsigned mantissa)
{
    const lmc__i32v magnitude =
        mantissa == 7 ? (lmc__i32v)(codes << 24) >> 24 : (lmc__i32v)(codes & 0x7Fu);
    lmc__u32v bits = (lmc__u32v) __builtin_convertvector(magnitude, lmc__f32v);
    if (mantissa < 7) {
        const lmc__u32v large =
            ((lmc__u32v)magnitude << (23 - mantissa)) + ((126 + mantissa) << 23);
        bits = LMC__PICK((lmc__u32v)(magnitude < (int32_t)(1u << mantissa)), bits, large);
        bits |= codes >> 7 << 31;
    }
    return (lmc__u32v)((lmc__f32v)bits * scale);
}

/* F32 rounded to BF16, in the upper half; or to F16 in the lower half: as in half.h. No bits are
 * those of infinity or NaN. A sum with 0.5 is rounded to units of 2^-24, those of subnormal F16. */
LMC__INLINE_VEC lmc__u32v lmc__upper_bf16_vec(lmc__u32v bits)
{
    return bits + 0x7FFFu + (bits >> 16 & 1u);
}
LMC__INLINE_VEC lmc__u32v lmc__lower_f16_vec(lmc__u32v bits)
{
    const lmc__u32v magnitude = bits & 0x7FFFFFFFu,
                    units = (lmc__u32v)((lmc__f32v)magnitude + 0.5f) - 0x3F000000u;
    lmc__u32v half = (magnitude - (0x38000000u - 0xFFFu) + (magnitude >> 13 & 1u)) >> 13;
    half = LMC__PICK((lmc__u32v)(magnitude >= 0x47800000u), 0x7C00u, half);
    half = LMC__PICK((lmc__u32v)(magnitude < 0x38800000u), units, half);
    return half | (bits >> 16 & 0x8000u);
}

/* 2 * LMC__LANES elements. For elements of 16 bits the even and the odd ones are computed apart. */
LMC__INLINE_VEC void lmc__restore_codes_step_vec(uint8_t *dst, const uint8_t *codes,
                                                 lmc__f32v scale, unsigned mantissa, unsigned width,
                                                 int is_half)
{
    lmc__w8v bytes;
    lmc__w16v words;
    memcpy(&bytes, codes, sizeof bytes);
    words = __builtin_convertvector(bytes, lmc__w16v);
    if (width == 2) {
        lmc__u32v even = lmc__code_products_vec((lmc__u32v)words & 0xFFFFu, scale, mantissa),
                  odd = lmc__code_products_vec((lmc__u32v)words >> 16, scale, mantissa);
        if (is_half) even = lmc__lower_f16_vec(even) | lmc__lower_f16_vec(odd) << 16;
        else even = lmc__upper_bf16_vec(even) >> 16 | (lmc__upper_bf16_vec(odd) & 0xFFFF0000u);
        memcpy(dst, &even, sizeof even);
    } else {
        lmc__u16v part;
        lmc__u32v products;
        unsigned i;
        for (i = 0; i < 2; i++) {
            memcpy(&part, (const uint8_t *)&words + i * sizeof part, sizeof part);
            products =
                lmc__code_products_vec(__builtin_convertvector(part, lmc__u32v), scale, mantissa);
            memcpy(dst + i * sizeof products, &products, sizeof products);
        }
    }
}

/* The form is constant in a copy of the loop. */
#define LMC__RESTORE_ALL(mantissa, width, is_half)                                                 \
    for (; i + 2 * LMC__LANES <= left; i += 2 * LMC__LANES)                                        \
    lmc__restore_codes_step_vec(dst + i * width, codes + i, scale, mantissa, width, is_half)

LMC__STATIC_VEC void lmc__restore_codes_vec(uint8_t *dst, const uint8_t *codes, size_t n,
                                            const lmc__code_form *form, const uint32_t *scales,
                                            size_t first)
{
    const unsigned mantissa = form->mantissa;
    for (; n; scales++, first = form->group_size) {
        const size_t left = lmc__min(n, first);
        const lmc__f32v none = {0};
        lmc__f32v scale;
        float by;
        size_t i = 0;
        memcpy(&by, scales, 4);
        scale = none + by;
        if (mantissa == 7) {
            if (form->width == 4) LMC__RESTORE_ALL(7, 4, 0);
            else if (form->is_half) LMC__RESTORE_ALL(7, 2, 1);
            else LMC__RESTORE_ALL(7, 2, 0);
        } else {
            if (form->width == 4) LMC__RESTORE_ALL(mantissa, 4, 0);
            else if (form->is_half) LMC__RESTORE_ALL(mantissa, 2, 1);
            else LMC__RESTORE_ALL(mantissa, 2, 0);
        }
        if (i < left)
            lmc__restore_codes_scalar(dst + i * form->width, codes + i, left - i, form, scales,
                                      left - i);
        dst += left * form->width;
        codes += left;
        n -= left;
    }
}
#endif

/* == kernels/grids.h =========================================================================== */

/* Quantised elements (spec/quantised.md): each is a point of a grid, named by a symbol of 16 bits;
 * symbol 0 is the element +0. Elements are the bits of F32, little-endian.
 *
 *     restore   symbols to elements
 *     quantize  elements to symbols; returns the number of exceptions
 *
 * All n elements have one scale. But if `second` is not NULL and the grid is linear, each element's
 * scale follows from its prediction, an F32 in `second`. In restore, dst may be second.
 *
 *     linear    element = q * scale                      q = grid->min + symbol - 1
 *     log       bits of element = scale + q * step, so points have nearly equal ratios; the sign,
 *               if there is one, is the lowest bit of symbol - 1
 *
 *     linear, min = -2          log, signed, min = 0
 *     symbol  1  2  3  4  5     symbol - 1    0   1   2   3   4   5
 *     q      -2 -1  0  1  2     q             0   0   1   1   2   2
 *                               sign          +   -   +   -   +   -
 *
 * All tiers, compilers and options must give the same bits. So where rounding matters, the code
 * uses integers, or operations that IEEE 754 defines exactly. FMA is not used.
 *
 * q with its sign fits in 17 bits. A scale is the bits of an F32 with 8 significant bits, at least
 * LMC__MIN_SCALE. Scales from a block have been checked (codec/get_quantised.h). All arrays are
 * read and written exactly. dst and src need no alignment. Only dst and second may overlap. */

#ifndef LMC_NO_QUANTIZE
/* The scale that follows from an element's prediction: about the prediction's square root times a
 * constant. Half of a float's bits, as a number, is about the bits of the float's root, except for
 * the exponent's bias. floor and bias are within the bounds of spec/quantised.md: half the bits are
 * less than 2^30, and bias is 2^30 at most, so the sum is less than 2^31. */
LMC__INLINE uint32_t lmc__predicted_scale(uint32_t p, const lmc__grid *grid)
{
    int32_t half;
    p &= 0x7FFFFFFF;
    half = (int32_t)((p > grid->floor ? p : grid->floor) >> 1) + grid->bias;
    if (half < (int32_t)LMC__MIN_SCALE) half = (int32_t)LMC__MIN_SCALE;
    if (half > (int32_t)LMC__MAX_SCALE) half = (int32_t)LMC__MAX_SCALE;
    return (uint32_t)half & 0xFFFF0000u;
}

/* Symbol 0 is q = 0, whatever min is. Others may give 0, too, and so +0: scales are positive. */
LMC__INLINE uint32_t lmc__restore_linear(uint32_t symbol, uint32_t scale, int32_t min)
{
    const float q = symbol ? (float)(min + (int32_t)symbol - 1) : 0.0f;
    float g, product;
    uint32_t bits;
    memcpy(&g, &scale, 4);
    product =
        q * g; /* 16 bits times 8: exact in any rounding mode and precision, never subnormal */
    memcpy(&bits, &product, 4);
    return bits;
}

/* Computes in 64 bits, since q * step needs 41. The magnitude is always a normal number. */
LMC__INLINE uint32_t lmc__restore_log(uint32_t symbol, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t t = symbol - 1, sign = grid->is_signed ? t << 31 : 0;
    const int64_t q = (int64_t)grid->min + (int64_t)(grid->is_signed ? t >> 1 : t);
    int64_t v = (int64_t)scale + q * grid->step;
    if (symbol == 0) return 0;
    if (v < (int64_t)LMC__MIN_SCALE) v = (int64_t)LMC__MIN_SCALE;
    if (v > (int64_t)LMC__MAX_LOG_SCALE) v = (int64_t)LMC__MAX_LOG_SCALE;
    return (uint32_t)v | sign;
}

/* The scalar kernels, which define the results. */
static void lmc__restore_scalar(uint8_t *dst, const uint16_t *symbols, const uint8_t *second,
                                size_t n, uint32_t scale, const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (second) scale = lmc__predicted_scale(lmc__load32(second + 4 * i), grid);
        lmc__store32(dst + 4 * i, grid->is_log ? lmc__restore_log(symbols[i], scale, grid)
                                               : lmc__restore_linear(symbols[i], scale, grid->min));
    }
}

/* symbols[i] = high[i] << low_bits | low[i]; low is NULL if low_bits is 0 */
static void lmc__join_symbols_scalar(uint16_t *symbols, const uint8_t *high, const uint8_t *low,
                                     size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++)
        symbols[i] = (uint16_t)((unsigned)high[i] << low_bits | (low ? low[i] : 0u));
}

/* memcpy that bypasses the caches if the tier can. The caller ends with LMC__FENCE_STREAMS. */
static void lmc__stream_scalar(uint8_t *dst, const uint8_t *src, size_t size)
{
    memcpy(dst, src, size);
}

/* u / divisor for u < 2^31 is (u * magic) >> shift, shift = 31 + log2, where 2^log2 is the least
 * power of two that is at least the divisor (Warren, Hacker's Delight, 10-9). If the divisor is a
 * power of two, a shift by log2 is enough.
 *
 * magic exceeds 2^shift / divisor by at most 1, so the product, divided by 2^shift, exceeds u /
 * divisor by less than 2^31 / 2^shift = 2^-log2. That is at most 1 / divisor: too little to reach
 * the next integer, which is at least 1 / divisor above u / divisor. */
typedef struct lmc__divisor {
    uint64_t magic;
    unsigned shift;
    int is_power;
} lmc__divisor;

#if LMC__VECTORS

/* The scales that the predictions at `second` give. They are positive as signed integers. */
LMC__INLINE_VEC lmc__i32v lmc__predicted_scales_vec(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    lmc__i32v p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

/* q + (min - 1) is masked to 0 for symbol 0. Its product with the scale is then +0: scales are
 * positive. Conversion (17 bits to 24) and product (16 bits times 8) are exact. */
LMC__INLINE_VEC void lmc__restore_linear_step_vec(uint8_t *dst, const uint16_t *symbols,
                                                  lmc__i32v scale, int32_t min)
{
    lmc__u16v s;
    lmc__i32v q;
    lmc__f32v v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, lmc__i32v);
    q = (q + (min - 1)) & (lmc__i32v)(q != 0);
    v = __builtin_convertvector(q, lmc__f32v) * (lmc__f32v)scale;
    memcpy(dst, &v, sizeof v);
}

/* The scalar code adds in 64 bits. Here |q| is cut to `limit`, the largest number for which limit *
 * step fits in 31 bits. A larger |q| and `limit` both give a sum beyond the bounds. The bounds
 * minus the scale are compared, so that the sum itself cannot overflow:
 *     bits         0   MIN_SCALE            scale                            MAX_LOG_SCALE
 *     less scale       low  ................. 0 ............................. high
 *     limit * step  at least 2^31 - 2^24 = 0x7F000000, for step is at most 2^24;
 *     high, -low    at most 0x7F7F0000 - 0x00800000 = 0x7EFF0000, so the cut changes nothing */
LMC__INLINE_VEC void lmc__restore_log_step_vec(uint8_t *dst, const uint16_t *symbols,
                                               uint32_t scale, const lmc__grid *grid, int32_t limit,
                                               int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    lmc__u16v s;
    lmc__i32v q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, lmc__i32v);
    is = t != 0;
    t -= 1;
    sign = t << 31;
    q = (is_signed ? t >> 1 : t) + grid->min;
    q = LMC__PICK(q > limit, limit, q);
    q = LMC__PICK(q < -limit, -limit, q);
    q *= (int32_t)grid->step;
    q = LMC__PICK(q > high, high, q);
    q = LMC__PICK(q < low, low, q) + (int32_t)scale;
    if (is_signed) q |= sign;
    q &= is;
    memcpy(dst, &q, sizeof q);
}

LMC__STATIC_VEC void lmc__restore_vec(uint8_t *dst, const uint16_t *symbols, const uint8_t *second,
                                      size_t n, uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const lmc__i32v zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_log_step_vec(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_log_step_vec(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else if (second)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_linear_step_vec(dst + 4 * i, symbols + i,
                                         lmc__predicted_scales_vec(second + 4 * i, grid),
                                         grid->min);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_linear_step_vec(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                         grid->min);
    lmc__restore_scalar(dst + 4 * i, symbols + i, second ? second + 4 * i : NULL, n - i, scale,
                        grid);
}

/* Each step takes twice as many symbols as there are elements in a vector: bytes widened to 16 bits
 * fill a vector. low is tested in the loop, but is the same in all steps. */
LMC__STATIC_VEC void lmc__join_symbols_vec(uint16_t *symbols, const uint8_t *high,
                                           const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        lmc__w8v h, l;
        lmc__w16v s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, lmc__w16v) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, lmc__w16v);
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

#endif
#endif /* LMC_NO_QUANTIZE */

/* == kernels/tiers.h =========================================================================== */

/* The kernels of each tier, in the order of struct lmc__kernels. Higher layers call the kernels
 * through one of these tables. In a developer's build each tier is an object file.
 *
 *     scalar       any C99 or C++11 compiler; the definition of all kernels
 *     neon         AArch64, with the instructions for CRC-32; neon_only: without
 *     simde        the AVX2 text through SIMDe, on request (LMC_SIMDE)
 *     avx2         x86-64 with AVX2, BMI1 and 2, POPCNT, SSE4.2, PCLMULQDQ
 *     avx512       these, and AVX-512 with VBMI, VBMI2, VPOPCNTDQ, VPCLMULQDQ and GFNI
 *
 * Where a tier has no faster way, its table has the kernel of a lower tier. Of a table with [2] the
 * second is for CPUs that have instructions for SHA-256. */
#ifdef LMC__PART
extern const lmc__kernels lmc__kernels_scalar, lmc__kernels_neon[2], lmc__kernels_neon_only,
    lmc__kernels_simde, lmc__kernels_avx2[2], lmc__kernels_avx2_vpclmul[2], lmc__kernels_avx512[2];
#endif

/* The tables in parts, in the struct's order, with commas. Kernels of some tiers are arguments. */
#ifdef LMC_NO_SNAPSHOT
#define LMC__SUMS(crc32c, sum64, sha256) crc32c
#else
#define LMC__SUMS(crc32c, sum64, sha256) crc32c, sum64, sha256
#endif
#define LMC__DECODERS(isa, crcs, join, join_root, patch, restore_codes)                            \
    crcs, join, join_root, lmc__merge_##isa, lmc__unflatten_##isa, lmc__count_ones_##isa,          \
        lmc__count_classes_##isa, lmc__ungroup_##isa, patch, restore_codes,
#define LMC__ENCODERS(isa, split_root, list_changes)

/* Kernels of grids.h. LMC__DIVIDING: those whose divisions -ffast-math would change. */
#ifdef LMC_NO_QUANTIZE
#define LMC__GRID_DECODERS(isa, stream)
#else
#define LMC__GRID_DECODERS(isa, stream) lmc__restore_##isa, lmc__join_symbols_##isa, stream,
#endif
#define LMC__GRID_ENCODERS(isa, quantize)
#define LMC__SCALAR_GRIDS                                                                          \
    LMC__GRID_DECODERS(scalar, lmc__stream_scalar)                                                 \
    LMC__GRID_ENCODERS(scalar, lmc__quantize_scalar)
#if LMC__VECTORS
#define LMC__GRIDS(stream)                                                                         \
    LMC__GRID_DECODERS(vec, stream) LMC__GRID_ENCODERS(vec, LMC__DIVIDING(quantize))
#define LMC__RESTORE_CODES lmc__restore_codes_vec
#else
#define LMC__GRIDS(stream) LMC__SCALAR_GRIDS
#define LMC__RESTORE_CODES lmc__restore_codes_scalar
#endif

/* One part on each line. The formatter would indent each line more than the line before. */
/* clang-format off */
/* The scalar tier, which every build has. Fused kernels call the others for each strip. */
#if LMC__HAS_PART(KERNELS)
LMC__TABLE lmc__kernels lmc__kernels_scalar = {
    LMC_TIER_SCALAR, 0,
    LMC__DECODERS(scalar, LMC__SUMS(lmc__crc32c_scalar, lmc__sum64_scalar, lmc__sha256_scalar),
                   lmc__join_scalar, lmc__join_root_strips, lmc__patch_scalar,
                  lmc__restore_codes_scalar)
    LMC__ENCODERS(scalar, lmc__split_root_strips, lmc__list_changes_scalar)
    LMC__SCALAR_GRIDS
};

#if LMC__NEON
/* With the instructions for CRC-32, or without. */
#define LMC__NEON_KERNELS(crc32c, join_root, split_root, sha256)                                   \
    LMC_TIER_NEON, 0,                                                                              \
    LMC__DECODERS(neon, LMC__SUMS(crc32c, lmc__sum64_scalar, sha256), lmc__join_neon,              \
                  join_root, lmc__patch_neon, LMC__RESTORE_CODES)                                  \
    LMC__ENCODERS(neon, split_root, lmc__list_changes_neon)                                        \
    LMC__GRIDS(lmc__stream_scalar)
LMC__TABLE lmc__kernels lmc__kernels_neon[2] = {
    {LMC__NEON_KERNELS(lmc__crc32c_neon, lmc__join_root_neon, lmc__split_root_neon,
                       lmc__sha256_scalar)},
    {LMC__NEON_KERNELS(lmc__crc32c_neon, lmc__join_root_neon, lmc__split_root_neon,
                       lmc__sha256_arm)}
};
LMC__TABLE lmc__kernels lmc__kernels_neon_only = {
    LMC__NEON_KERNELS(lmc__crc32c_scalar, lmc__join_root_strips, lmc__split_root_strips,
                      lmc__sha256_scalar)
};
#endif

#if LMC__SIMDE
/* AVX2's kernels where they take fewer instructions (bench/instructions) than the scalar ones.
 * Split and join do not: compilers turn the scalar loops into vector code by themselves. */
LMC__TABLE lmc__kernels lmc__kernels_simde = {
    LMC_TIER_SIMDE, 0,
    LMC__SUMS(lmc__crc32c_scalar, lmc__sum64_scalar, lmc__sha256_scalar), lmc__join_scalar,
    lmc__join_root_strips, lmc__merge_simde,
    lmc__unflatten_avx2, lmc__count_ones_scalar, lmc__count_classes_scalar,
    lmc__ungroup_scalar, lmc__patch_scalar, lmc__restore_codes_scalar,
    LMC__SCALAR_GRIDS
};
#endif
#endif

#if LMC__X86 && LMC__HAS_PART(AVX2)
#define LMC__AVX2_KERNELS(split_root, has_fast_pdep, sha256)                                       \
    LMC_TIER_AVX2, has_fast_pdep,                                                                  \
    LMC__DECODERS(avx2, LMC__SUMS(lmc__crc32c_avx2, lmc__sum64_avx2, sha256),                      \
                   lmc__join_avx2, lmc__join_root_avx2, lmc__patch_avx2, LMC__RESTORE_CODES)       \
    LMC__ENCODERS(avx2, split_root, lmc__list_changes_avx2)                              \
    LMC__GRIDS(lmc__stream_avx2)
LMC__TABLE lmc__kernels lmc__kernels_avx2[2] = {
    {LMC__AVX2_KERNELS(lmc__split_root_avx2, 0, lmc__sha256_scalar)},
    {LMC__AVX2_KERNELS(lmc__split_root_avx2, 0, lmc__sha256_x86)}
};
/* For CPUs that compute two products at a time (split_root.h) and have a fast pdep (patch.h). */
LMC__TABLE lmc__kernels lmc__kernels_avx2_vpclmul[2] = {
    {LMC__AVX2_KERNELS(lmc__split_root_vpclmul, 1, lmc__sha256_scalar)},
    {LMC__AVX2_KERNELS(lmc__split_root_vpclmul, 1, lmc__sha256_x86)}
};
#endif

#if LMC__X86 && !defined(LMC_NO_AVX512) && LMC__HAS_PART(AVX512)
/* AVX2's join is enough: it only joins elements that join_root leaves over. */
#define LMC__AVX512_KERNELS(sha256)                                                                \
    LMC_TIER_AVX512, 1,                                                                            \
    LMC__DECODERS(avx512, LMC__SUMS(lmc__crc32c_avx512, lmc__sum64_avx2, sha256),                \
                   lmc__join_avx2, lmc__join_root_avx512, lmc__patch_avx512, LMC__RESTORE_CODES)   \
    LMC__ENCODERS(avx512, lmc__split_root_avx512, lmc__list_changes_avx512)                        \
    LMC__GRIDS(lmc__stream_avx2)
LMC__TABLE lmc__kernels lmc__kernels_avx512[2] = {
    {LMC__AVX512_KERNELS(lmc__sha256_scalar)}, {LMC__AVX512_KERNELS(lmc__sha256_x86)}
};
#endif
/* clang-format on */

/* == kernels/dispatch.h ======================================================================== */

#if LMC__X86
#include <cpuid.h>
#endif
#if LMC__NEON && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Chooses the tier: the best that the build has and the machine can run, unless the user limits it.
 * The only state of this library is a pointer to a constant table, chosen at first use. Threads
 * that choose at the same time choose the same table, and all tables are constant, so relaxed
 * atomics suffice. A coder loads the pointer once and uses that table until it is done. */

static const lmc__kernels *lmc__active_kernels; /* NULL: not chosen yet */

#if defined(__GNUC__)
#define LMC__ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define LMC__ATOMIC_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
/* sets *p = v if *p is still *expected, else *expected = *p: another thread's choice stays */
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#else
/* MSVC: volatile loads and stores of pointers are atomic */
#define LMC__ATOMIC_LOAD(p) (*(const lmc__kernels *volatile *)(p))
#define LMC__ATOMIC_STORE(p, v) (*(const lmc__kernels *volatile *)(p) = (v))
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    (LMC__ATOMIC_STORE(p, v), (void)(expected), 1) /* there is one table only */
#endif

#if LMC__X86
/* 1 if the CPU has the tier's instructions and the system saves its registers (XCR0). Both are
 * needed: a CPU also reports AVX-512 that the system has not enabled, whose instructions fault.
 * Bits, by Intel's Software Developer's Manual, volume 2, CPUID, and volume 1, section 13.3:
 *     leaf 1 ecx     1 PCLMULQDQ, 20 SSE4.2, 23 POPCNT, 27 OSXSAVE      0x8900002
 *     leaf 7 ebx     3 BMI1, 5 AVX2, 8 BMI2                             0x128
 *                    16 AVX512F, 17 DQ, 30 BW, 31 VL                    0xC0030000
 *                    29 SHA
 *     leaf 7 ecx     1 VBMI, 6 VBMI2, 8 GFNI, 10 VPCLMULQDQ, 14 VPOPCNTDQ 0x4542
 *     XCR0           1 XMM, 2 YMM, 5 opmask, 6 and 7 ZMM                0x06, 0xE6
 *
 * xgetbv may be executed only if OSXSAVE is set. cpuid is slow in virtual machines. */
static int lmc__cpu_has(enum lmc_tier tier)
{
    unsigned a, b, c, d, b7, c7, xcr0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if ((c & 0x8900002) != 0x8900002) return 0; /* OSXSAVE, POPCNT, SSE4.2, PCLMULQDQ */
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 & 0x06) != 0x06 || (b7 & 0x128) != 0x128) return 0; /* XMM, YMM; BMI1, AVX2, BMI2 */
    if (tier == LMC_TIER_AVX2) return 1;
    /* opmask, ZMM; AVX512 F, DQ, BW, VL; VBMI and the rest: Ice Lake, Zen 4 and later have all */
    return (xcr0 & 0xE6) == 0xE6 && (b7 & 0xC0030000u) == 0xC0030000u && (c7 & 0x4542) == 0x4542;
}

/* The tier's table for this CPU, or NULL. Bits of leaf 7 as above; AVX-512 has VPCLMULQDQ. */
static const lmc__kernels *lmc__x86_kernels(enum lmc_tier tier)
{
    const lmc__kernels *tables = lmc__kernels_avx2;
    unsigned a, b, c, d;
    if (!lmc__cpu_has(tier) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return NULL;
    if (c >> 10 & 1) tables = lmc__kernels_avx2_vpclmul;
#ifndef LMC_NO_AVX512
    if (tier == LMC_TIER_AVX512) tables = lmc__kernels_avx512;
#endif
    return tables + (b >> 29 & 1);
}
#endif

#if LMC__NEON
/* The table of NEON for this CPU. Only the operating system may query the CPU. Where this code does
 * not know how to ask it, it takes what the compiler was told, or the table with the scalar CRC. */
static const lmc__kernels *lmc__neon_kernels(void)
{
#if defined(__APPLE__)
    return lmc__kernels_neon + 1;
#elif defined(__linux__)
    const unsigned long has = getauxval(AT_HWCAP); /* bit 7: HWCAP_CRC32; bit 6: HWCAP_SHA2 */
    return has >> 7 & 1 ? lmc__kernels_neon + (has >> 6 & 1) : &lmc__kernels_neon_only;
#elif defined(__ARM_FEATURE_CRC32)
    return lmc__kernels_neon;
#else
    return &lmc__kernels_neon_only;
#endif
}
#endif

/* The table of a tier, or NULL where this build or this machine lacks it. */
static const lmc__kernels *lmc__find_kernels(enum lmc_tier tier)
{
    switch (tier) {
    case LMC_TIER_SCALAR: return &lmc__kernels_scalar;
#if LMC__NEON
    case LMC_TIER_NEON: return lmc__neon_kernels();
#endif
#if LMC__X86
    case LMC_TIER_AVX2: return lmc__x86_kernels(tier);
#ifndef LMC_NO_AVX512
    case LMC_TIER_AVX512: return lmc__x86_kernels(tier);
#endif
#endif
#if LMC__SIMDE
    case LMC_TIER_SIMDE: return &lmc__kernels_simde;
#endif
    default: return NULL;
    }
}

/* All tiers, the best first; their numbers have no order. All builds have the last, scalar. */
static const struct lmc__tier {
    enum lmc_tier tier;
    const char *name;
} lmc__tiers[] = {{LMC_TIER_AVX512, "avx512"},
                  {LMC_TIER_AVX2, "avx2"},
                  {LMC_TIER_NEON, "neon"},
                  {LMC_TIER_SIMDE, "simde"},
                  {LMC_TIER_SCALAR, "scalar"}};
enum { LMC__N_TIERS = sizeof lmc__tiers / sizeof *lmc__tiers };

/* The row of a tier; LMC__N_TIERS for an unknown one. */
static unsigned lmc__find_tier(enum lmc_tier tier)
{
    unsigned row = 0;
    while (row < LMC__N_TIERS && lmc__tiers[row].tier != tier) row++;
    return row;
}

/* The table of a tier, or else of the next best one; of the best if the tier is unknown. */
static const lmc__kernels *lmc__best_kernels(enum lmc_tier tier)
{
    unsigned row = lmc__find_tier(tier) % LMC__N_TIERS;
    while (!lmc_tier_is_available(lmc__tiers[row].tier)) row++;
    return lmc__find_kernels(lmc__tiers[row].tier);
}

/* The table in use; the first call chooses it. If another thread limits the tier between the load
 * and the store, that thread's choice stays: the store replaces only NULL. */
static const lmc__kernels *lmc__get_kernels(void)
{
    const lmc__kernels *k = LMC__ATOMIC_LOAD(&lmc__active_kernels);
    if (k == NULL) {
        const lmc__kernels *chosen = NULL;
        k = lmc__best_kernels(LMC_TIER_BEST);
        if (!LMC__ATOMIC_STORE_ONCE(&lmc__active_kernels, &chosen, k)) k = chosen;
    }
    return k;
}

LMC_API const char *lmc_tier_name(enum lmc_tier tier)
{
    const unsigned row = lmc__find_tier(tier);
    return row < LMC__N_TIERS ? lmc__tiers[row].name : NULL;
}

LMC_API int lmc_tier_is_available(enum lmc_tier tier) { return lmc__find_kernels(tier) != NULL; }

LMC_API enum lmc_tier lmc_tier_current(void) { return lmc__get_kernels()->tier; }

LMC_API void lmc_tier_limit(enum lmc_tier tier)
{
    LMC__ATOMIC_STORE(&lmc__active_kernels, lmc__best_kernels(tier));
}

LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size)
{
    return lmc__get_kernels()->crc32c(crc, (const uint8_t *)data, size);
}

/* == codec/dtypes.h ============================================================================ */

/* The table of dtypes. Files store a tensor's dtype, but blocks only the width of their elements.
 * So the table is for encoders, and for computing sizes from shapes. CONTRIBUTING.md says how to
 * add a dtype; numbers never change.
 *
 * An *order* (spec 5.1) is how elements become residuals before they are split into planes: by
 * `order` against a prediction, by `own` without a prediction. Floats without a prediction are
 * rotated by one bit, so that the top plane has the exponent without the sign. `own` is 0 if
 * elements have one byte or no sign: an order would not help. */
static const struct {
    const char *name;   /* as in safetensors */
    uint8_t bits;       /* of a logical element */
    uint8_t width;      /* bytes of a coded element: 1, 2, 4 or 8 */
    uint8_t order, own; /* enum lmc__order: against a prediction; without one */
} lmc__dtypes[] = {
    {"AUTO", 8, 1, 1, 0},    {"BOOL", 8, 1, 1, 0},        {"F4", 4, 1, 1, 0},
    {"F6_E2M3", 6, 1, 1, 0}, {"F6_E3M2", 6, 1, 1, 0},     {"U8", 8, 1, 1, 0},
    {"I8", 8, 1, 1, 0},      {"F8_E5M2", 8, 1, 2, 0},     {"F8_E4M3", 8, 1, 2, 0},
    {"F8_E8M0", 8, 1, 1, 0}, {"F8_E4M3FNUZ", 8, 1, 2, 0}, {"F8_E5M2FNUZ", 8, 1, 2, 0},
    {"I16", 16, 2, 1, 1},    {"U16", 16, 2, 1, 0},        {"F16", 16, 2, 2, 2},
    {"BF16", 16, 2, 2, 2},   {"I32", 32, 4, 1, 1},        {"U32", 32, 4, 1, 0},
    {"F32", 32, 4, 2, 2},    {"C64", 64, 4, 2, 2},        {"F64", 64, 8, 2, 2},
    {"I64", 64, 8, 1, 1},    {"U64", 64, 8, 1, 0},        {"I4", 4, 1, 1, 0},
    {"U4", 4, 1, 1, 0},      {"I2", 2, 1, 1, 0},          {"U2", 2, 1, 1, 0},
    {"C128", 128, 8, 2, 2}};

/* Fails to compile unless there is one row for each number. */
typedef char
    lmc__has_all_dtypes[sizeof lmc__dtypes / sizeof *lmc__dtypes == LMC__DTYPE_COUNT ? 1 : -1];

LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].name : NULL;
}

LMC_API enum lmc_dtype lmc_dtype_find(const char *name)
{
    int i;
    for (i = 1; i < LMC__DTYPE_COUNT; i++) /* not "AUTO": no source has it */
        if (name && strcmp(name, lmc__dtypes[i].name) == 0) return (enum lmc_dtype)i;
    return LMC_AUTO;
}

LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].bits : 0;
}

LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].width : 0;
}

/* == codec/tree.h ============================================================================== */

/* The tree of a list (spec 6.1, 6.2): canonical Huffman codes, and the leaves of each node.
 *
 * Leaves are numbered in the order of their codes: by length, then by symbol. The last leaf may be
 * the escape, which stands for all symbols without a code. The *code space* has 2^15 places; the
 * share of leaf i is the next 2^(15 - length[i]) of them. The shares fill the space exactly. So the
 * start of a leaf's share, in binary, is the path from the root to the leaf: 0 is left, 1 is right.
 * The share of a node at depth d is an aligned range of 2^(15 - d) places, and so a range of
 * leaves. Leaves are sorted by length: the first leaf and place of each length are the tree.
 *
 * A *rank* is the number of a symbol's leaf. The encoder first maps a list to ranks. An element
 * then goes left at a node if its rank is below the right child's first leaf. Symbols without a
 * code have different ranks, from the escape's on, so that they can be mapped back.
 *
 * Symbols A to E with code lengths 1, 3, 3, 3, 3, and a list of eight, as stored:
 *                 depth 0: leaves [0, 5)                 list    A C A A E A B A
 *                0 /           \ 1                       ranks   0 2 0 0 4 0 1 0
 *                 A    depth 1: leaves [1, 5)            mask    0 1 0 0 1 0 1 0   = 52 hex
 *                      flat, 4 = 2^2 of equal depth
 *                      /     |     |     \               ranks in the right child: 2 4 1
 *                     B      C     D      E              less 1, in two bits: 01 11 00
 *                                                        high bits 0 1 0 = 02, low bits 1 1 0 = 03
 *
 * Nodes are stored in pre-order: 52 for the root; nothing for A, which is one symbol; 02 03 for the
 * flat node. The first bit is the lowest bit of a byte. List sizes are not stored: the flat node
 * has 3 elements, as the root's mask has three 1 bits. */

/* Number of leaves of each length 1 .. 15 in the *frozen trees* (spec 6.4). These code the bytes of
 * masks in which one bit is rarer than the other; a mask's mode byte has the level. Levels from 2
 * on are the best codes if bits are one with probability 2^-(1 + level / 2). Levels 0 and 1 are
 * fast: nearly all leaves are in flat nodes. spec/frozen_trees.py derives the numbers. */
static const uint8_t lmc__frozen_counts[LMC__FROZEN_LEVELS][LMC__MAX_LENGTH] = {
    {0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0},   /*  0 */
    {0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0}, /*  1 */
    {0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2}, /*  2 */
    {0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34},  /*  3 */
    {0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90},   /*  4 */
    {1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92},   /*  5 */
    {1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162},   /*  6 */
    {1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162},   /*  7 */
    {1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182},   /*  8 */
    {1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214},    /*  9 */
};

/* Symbols of the leaves of all frozen trees, sorted by their number of 1 bits, then by value. */
static const uint8_t lmc__frozen_order[256] = {
    0,   1,   2,   4,   8,   16,  32,  64,  128, 3,   5,   6,   9,   10,  12,  17,  18,  20,  24,
    33,  34,  36,  40,  48,  65,  66,  68,  72,  80,  96,  129, 130, 132, 136, 144, 160, 192, 7,
    11,  13,  14,  19,  21,  22,  25,  26,  28,  35,  37,  38,  41,  42,  44,  49,  50,  52,  56,
    67,  69,  70,  73,  74,  76,  81,  82,  84,  88,  97,  98,  100, 104, 112, 131, 133, 134, 137,
    138, 140, 145, 146, 148, 152, 161, 162, 164, 168, 176, 193, 194, 196, 200, 208, 224, 15,  23,
    27,  29,  30,  39,  43,  45,  46,  51,  53,  54,  57,  58,  60,  71,  75,  77,  78,  83,  85,
    86,  89,  90,  92,  99,  101, 102, 105, 106, 108, 113, 114, 116, 120, 135, 139, 141, 142, 147,
    149, 150, 153, 154, 156, 163, 165, 166, 169, 170, 172, 177, 178, 180, 184, 195, 197, 198, 201,
    202, 204, 209, 210, 212, 216, 225, 226, 228, 232, 240, 31,  47,  55,  59,  61,  62,  79,  87,
    91,  93,  94,  103, 107, 109, 110, 115, 117, 118, 121, 122, 124, 143, 151, 155, 157, 158, 167,
    171, 173, 174, 179, 181, 182, 185, 186, 188, 199, 203, 205, 206, 211, 213, 214, 217, 218, 220,
    227, 229, 230, 233, 234, 236, 241, 242, 244, 248, 63,  95,  111, 119, 123, 125, 126, 159, 175,
    183, 187, 189, 190, 207, 215, 219, 221, 222, 231, 235, 237, 238, 243, 245, 246, 249, 250, 252,
    127, 191, 223, 239, 247, 251, 253, 254, 255};

/* first[16] is n_leaves, and start[16] is 2^15. */
typedef struct lmc__tree {
    unsigned n_leaves;
    unsigned escape;                     /* the escape's leaf; n_leaves if there is none */
    uint16_t first[LMC__MAX_LENGTH + 2]; /* first[L]: number of leaves shorter than L */
    uint16_t start[LMC__MAX_LENGTH + 2]; /* start[L]: first place of the leaves of length L */
    uint8_t length[256];                 /* of leaf i */
    uint8_t symbol[256];                 /* of leaf i; from the escape on: all symbols without a
                                            code */
    uint8_t rank[256];                   /* the inverse of symbol */
} lmc__tree;

/* A node. nesting: 0 in the tree of a list, 1 in a tree of its masks, 2 in one of their masks. */
typedef struct lmc__node {
    unsigned nesting, depth;
    unsigned start;                /* of its share of the code space */
    unsigned first_leaf, end_leaf; /* its leaves: [first_leaf, end_leaf) */
} lmc__node;

typedef struct lmc__children {
    lmc__node left, right;
} lmc__children;

/* Sets first, start, length and n_leaves. counts[L]: number of leaves of length L. */
static void lmc__tree_set_counts(lmc__tree *tree, const unsigned counts[LMC__MAX_LENGTH + 1])
{
    unsigned length, leaf = 0, start = 0;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) {
        tree->first[length] = (uint16_t)leaf;
        tree->start[length] = (uint16_t)start;
        memset(tree->length + leaf, (int)length, counts[length]);
        leaf += counts[length];
        start += counts[length] << (LMC__MAX_LENGTH - length);
    }
    tree->first[length] = (uint16_t)leaf;
    tree->start[length] = (uint16_t)start;
    tree->n_leaves = leaf;
}

/* Number of leaves whose share is below place x, where x is the start of a node's share: all leaves
 * of shorter lengths, and the leaves of the length at x that fit below x. */
LMC__INLINE unsigned lmc__tree_leaves_below(const lmc__tree *tree, unsigned x)
{
    unsigned length = 1;
    while (tree->start[length + 1] <= x && length < LMC__MAX_LENGTH) length++;
    return tree->first[length] + ((x - tree->start[length]) >> (LMC__MAX_LENGTH - length));
}

LMC__INLINE lmc__node lmc__root_of(const lmc__tree *tree, unsigned nesting)
{
    lmc__node root = {0, 0, 0, 0, 0};
    root.nesting = nesting;
    root.end_leaf = tree->n_leaves;
    return root;
}

static lmc__children lmc__get_children(const lmc__tree *tree, lmc__node node)
{
    lmc__children children;
    children.left = children.right = node;
    children.left.depth = children.right.depth = node.depth + 1;
    children.right.start += 1u << (LMC__MAX_LENGTH - 1 - node.depth);
    children.left.end_leaf = children.right.first_leaf =
        lmc__tree_leaves_below(tree, children.right.start);
    return children;
}

/* 1 if all elements of the node are one symbol: it has no bytes in the payload, and no list. */
LMC__INLINE int lmc__is_one_symbol(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf - node.first_leaf == 1 && node.first_leaf != tree->escape;
}

/* The number of bit planes D of a *flat* node (spec 6.2, case 4), or 0 if the node is not flat. Its
 * 2^D leaves are all D levels below it, and none is the escape. D = 1 is an ordinary mask, which
 * may be nested. With D above 6, the symbols would not fit in the one vector of unflatten. */
LMC__INLINE unsigned lmc__get_flat_depth(const lmc__tree *tree, lmc__node node)
{
    const unsigned length = tree->length[node.first_leaf], flat_depth = length - node.depth;
    return node.end_leaf <= tree->escape && tree->length[node.end_leaf - 1] == length &&
                   flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT
               ? flat_depth
               : 0;
}

/* 1 if a mask of n bits has a mode byte, and may be nested (spec 6.3). A mask that is short, or at
 * nesting 2, has none. */
LMC__INLINE int lmc__has_mode(unsigned nesting, size_t n)
{
    return n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
}

/* Makes a level's frozen tree, without ranks. flip: 0xFF for masks of mostly ones, else 0. */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip)
{
    unsigned counts[LMC__MAX_LENGTH + 1], i;
    counts[0] = 0;
    for (i = 0; i < LMC__MAX_LENGTH; i++) counts[i + 1] = lmc__frozen_counts[level][i];
    lmc__tree_set_counts(tree, counts);
    tree->escape = 256;
    for (i = 0; i < 256; i++) tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);
}

/* Makes a tree, without ranks. lengths[s - first] < 16: code length of symbol s of [first, last]
 * (0: no code); escape_length: 0 if there is no escape. Returns 0, and changes nothing, unless
 * these are 2 to 256 leaves that fill the code space, and none is longer than the escape (spec
 * 6.1). Sums cannot overflow: they are at most 257 * 2^14. As the codes fill the space (Kraft's
 * equality), every sequence of bits leads to a leaf. */
static int lmc__tree_set_lengths(lmc__tree *tree, const uint8_t *lengths, unsigned first,
                                 unsigned last, unsigned escape_length)
{
    unsigned counts[LMC__MAX_LENGTH + 1], next[LMC__MAX_LENGTH + 1];
    unsigned length, s, used = 0, n = 0; /* used: of the code space */
    memset(counts, 0, sizeof counts);
    for (s = first; s <= last; s++) counts[lengths[s - first]]++;
    counts[0] = 0;
    if (escape_length) counts[escape_length]++;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) {
        used += counts[length] << (LMC__MAX_LENGTH - length);
        n += counts[length];
        if (escape_length && length > escape_length && counts[length]) return 0;
    }
    if (n < 2 || n > 256 || used != 1u << LMC__MAX_LENGTH) return 0;
    lmc__tree_set_counts(tree, counts);
    tree->escape = escape_length ? n - 1 : n;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) next[length] = tree->first[length];
    for (s = first; s <= last; s++)
        if (lengths[s - first]) tree->symbol[next[lengths[s - first]]++] = (uint8_t)s;
    return 1;
}

/* == codec/quant_params.h ====================================================================== */

/* Quantised elements: what encoder and decoder share (spec/quantised.md).
 *
 *   element -> symbol -> High, Low -> two lists of bytes, coded like any other (spec 6)
 *
 * A symbol has 16 bits. Symbol 0 is the element +0. The others are the numbers, from 1, of a grid's
 * points q = min, min + 1, ... With a scale G, a point q is a float:
 *   linear        q * G
 *   logarithmic   the float whose bits are those of G, plus q * step. The bits of a float, read as
 *                 an integer, grow by 2^23 from one power of two to the next, and linearly between
 *                 these: almost like a logarithm
 *
 * A scale is the upper half of a float, so its mantissa has 8 bits, and q has at most 16 bits.
 * Their product has at most 24 bits, as many as a float's mantissa, so it is exact on every
 * machine. The limits of scales keep the product normal and finite.
 *
 * Each group of group_size neighbours has a stored scale; or, with is_predicted, each element has a
 * scale that follows from its prediction. First moments of an optimizer are predicted by second
 * moments, and the points are updates.
 *
 * Symbols become bytes by a table, whose index is High; or they are cut into Low, the lowest
 * low_bits bits, and High, the other bits. Example: a linear grid with min = -3, a group with the
 * scale 0.25, low_bits = 0:
 *   symbol      0    1     2     3     4    5     6     7     and so on
 *   q                -3    -2    -1    0    1     2     3
 *   element     0  -0.75  -0.5 -0.25   0   0.25  0.5  0.75
 *
 * Symbol 4 means the same as symbol 0; encoders use 0. A table 1, 3, 6 would keep only -0.75, -0.25
 * and 0.5, as codes 1, 2 and 3, and zero as code 0.
 *
 * The format defines how a symbol becomes an element (kernels/grids.h). The encoder decides which
 * symbol an element gets: any choice can be decoded. An *exception* is an element that has no
 * symbol (NaN, infinities, -0, subnormals and elements beyond the grid). It is stored as it is. */

/* The head of a quantised block's payload. */
#define LMC__QUANTIZED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u

/* Elements that are processed at once, so that they stay in the first cache. */
#define LMC__QUANTIZED_STRIP 1024u

/* How the elements of a tensor are quantised. Who fills it owns its arrays codes and scales. */
typedef struct lmc__quant_params {
    unsigned width;   /* of an element: 2 (BF16) or 4 (F32) */
    int is_predicted; /* scales follow from the prediction; else groups have scales */
    int is_exact;     /* elements stay exact: those that are not on points are exceptions */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; 0 for code 0 and codes above table_size */
    uint8_t *codes;      /* encoding with a table: of symbols; codes[0]: of elements near zero */
    uint64_t group_size;
    uint16_t *scales; /* of groups (their upper halves): the tensor's; decoding, the block's */
} lmc__quant_params;

#ifndef LMC_NO_QUANTIZE

/* n elements as F32: src if they are F32; else converted to `wide`. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

/* Sets *scale for element `first`, counted from where groups begin. Returns how many of n elements
 * have this scale. With is_predicted *scale is 0, and the result is n. */
LMC__INLINE size_t lmc__get_group(const lmc__quant_params *q, uint64_t first, size_t n,
                                  uint32_t *scale)
{
    uint64_t group;
    *scale = 0;
    if (q->is_predicted) return n;
    group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* Restores a strip: the elements of n symbols, from element `first` on. Any symbol is valid: the
 * grid's limits keep all points within floats. base: their predictions, or NULL; may be dst. */
static void lmc__restore_strip(const lmc__kernels *k, const lmc__quant_params *q, uint8_t *dst,
                               const uint16_t *symbols, const uint8_t *base, uint64_t first,
                               size_t n)
{
    uint8_t wide[4 * LMC__QUANTIZED_STRIP];
    uint8_t *const to = q->width == 4 ? dst : wide;
    const uint8_t *const second = q->is_predicted ? lmc__widen(wide, base, n, q->width) : NULL;
    uint32_t scale;
    size_t i, part;
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        k->restore(to + 4 * i, symbols + i, second, part, scale, &q->grid);
    }
    for (i = 0; i < n && q->width == 2; i++)
        lmc__store16(dst + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(wide + 4 * i)));
}
#endif

/* == codec/job.h =============================================================================== */

/* The work on one block, which a worker does on its workspace (tensor/wave.h). A job has no data
 * about files, runs or snapshots: src/snapshot/pipeline.h adds these in its own struct. */
typedef struct lmc__job {
    const uint8_t *src;
    const uint8_t *base; /* the prediction, as many bytes as the decoded block; or NULL */
    uint8_t *dst;
    uint32_t number; /* of the block in its run */

    /* Encoding. Sizes: bytes of src; room at dst, later the bytes written there. */
    size_t src_size, dst_size;
    enum lmc_dtype dtype;
    enum lmc_level level;
    const lmc__quant_params *quant; /* how to quantise src; or NULL */
    uint64_t first_element;         /* index of the first element in its tensor */
    uint64_t row_size;              /* elements in a row of the tensor; 0: not known */
    uint64_t *sum;    /* gets the sum64 of the encoded elements if has_sum becomes 1; or NULL */
    int has_sum;      /* *sum was computed while encoding */
    int is_ungrouped; /* the file allows only Grouping 0 */
    uint64_t without; /* LMC_FEATURE_ZEROS, _MATRIX, _CODES: Layouts 3, 4, 5 are not allowed */

    /* Decoding. Only bytes [skip, skip + keep) of the block go to dst. If these are all its bytes,
     * it is decoded in dst; else in the worker's workspace, and these bytes are copied. */
    lmc_block_info info; /* from its header */
    lmc__streaming streaming;
    size_t skip, keep;
    int is_own; /* base comes from the same file as the block */

    enum lmc_status status; /* set when the job has run */
} lmc__job;

/* == codec/workspace.h ========================================================================= */

/* The caller's workspace: lmc__scratch, and a stack of *lists* (kernels/types.h: bytes with
 * LMC__PAD bytes of slack behind them). A function that pushes lists sets stack.top back to free
 * them. Nothing is kept from one block to the next.
 *
 * The table has the most that is on the stack at once, for a block of n elements of w <= 8 bytes. A
 * *row* is a list of n bytes; m = n / 8 is the bytes of a mask.
 *
 *   encoding planes       w rows of planes; one row that trees partition into; one more row and m
 *                         for the top plane, which is mapped and partitioned while it is split
 *   encoding classes      w rows, each cut to a list for every class (16 pads for each row); m for
 *                         the masks of a sparse delta, cut likewise; one row for trees; 4/3 of a
 *                         row for the positions of gaps, instead of the masks below
 *   encoding quantised    w <= 4 rows of restored elements; a row each for High, for Low, to work
 *                         in and for trees; the scales of groups (at most a row)
 *   decoding planes       w rows of planes; one row for trees; the masks on the way to a node
 *                         (below); w rows for the bytes at dst, if they must be kept
 *   decoding classes      the same, cut by classes; m for the masks of a sparse delta; one more row
 *                         for the coded elements before zeros are merged in between; w rows for the
 *                         prediction, if it is overwritten
 *   decoding sparse       instead, for at most n / 16 coded elements: 4 bytes for the index of each
 *                         and 2 w for residuals and planes, at most 1.25 rows; if the prediction is
 *                         overwritten, 4 + w to undo that, at most 0.75 rows; a row for trees; the
 *                         tally of classes, at most a quarter of a row; m
 *   decoding quantised    High, Low, one row for trees; two lists with the bytes of scales, and two
 *                         rows with the scales; or w <= 4 rows for the prediction, if it is
 *                         overwritten
 *   rows and columns      decoding: w rows of the prediction, w of that of columns, 2 of numbers,
 *                         one for trees; then as classes. Encoding: w + 1/2 rows, and as classes
 *   codes with scales     decoding: a row of codes, one for trees, a quarter of a row of scales; w
 *                         rows for the bytes at dst, if they must be kept. Encoding: w + 3 rows,
 *                         and 12 bytes for each group of at least 16 elements
 *   planning              while the stack has at most a row (or these w + 1/2). If all elements are
 *                         counted: w rows. Else samples of elements and prediction, and the planes
 *                         of one sample: 3 w * 2048 bytes, from 32768 elements on 3 w * 8192; for
 *                         bytes also n / 8, or 16384; for a delta also the changes, 4 + 2 w for
 *                         each of n / 20 elements
 *   masks                 see lmc__mask_stack_size
 *
 * Each of these uses takes at most 2 w + 3 rows (w + 6 for w < 4) and two masks, with the pads of
 * all classes, and the masks' stack. The pads are counted for the widest elements, so that a
 * workspace for bytes is also enough for the wider elements that LMC_AUTO may find. So no push can
 * fail; yet each push is checked. */
#define LMC__MAX_ROWS (2 * 8u + 3)

typedef struct lmc__stack {
    uint8_t *top, *end;
} lmc__stack;

/* Pushes a list of n bytes; NULL if there is no room. */
LMC__INLINE uint8_t *lmc__push_list(lmc__stack *stack, size_t n)
{
    uint8_t *list = stack->top;
    if ((size_t)(stack->end - stack->top) < n + LMC__PAD) return NULL;
    stack->top += n + LMC__PAD;
    return list;
}

/* Pushes n aligned numbers; NULL if there is no room. */
LMC__INLINE uint32_t *lmc__push_numbers(lmc__stack *stack, size_t n)
{
    uint8_t *const list = lmc__push_list(stack, 4 * n + 3);
    return list ? (uint32_t *)(void *)(list + ((0 - (uintptr_t)list) & 3)) : NULL;
}

/* Data that is too large for the C stack. */
typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1]; /* of each nesting */
} lmc__scratch;

/* The masks' part of the stack, for a tree of a list of n bytes at a nesting. A node keeps its mask
 * until its children are done. When decoding, a nested mask is a list of m = n / 8 bytes, and at
 * most 15 nodes on a path have one. Decoding the last mask takes a spare of m bytes, and, for its
 * own masks, the result for m bytes at the next nesting. Encoding takes three lists of m for each
 * nesting, and one more for each node on the path whose mask fits in the output only nested. */
static size_t lmc__mask_stack_size(size_t n, unsigned nesting)
{
    size_t m = (n + 7) / 8;
    if (nesting == LMC__MAX_NESTING) return 0;
    return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);
}

LMC_API size_t lmc_block_workspace_size(size_t n, unsigned width)
{
    const size_t rows = width < 4 ? width + 6 : 2 * width + 3;
    if (n == 0 || width - 1 > 7 || (width & (width - 1)) || n > LMC_MAX_BLOCK_SIZE / width)
        return 0;
    return sizeof(lmc__scratch) + 16 /* alignment */ + rows * n +
           LMC__MAX_ROWS * LMC__MAX_CLASSES * LMC__PAD +
           2 * ((n + 7) / 8 + LMC__MAX_CLASSES * (LMC__PAD + 1)) + lmc__mask_stack_size(n, 0);
}

/* 1 if ws_size is enough for n elements. */
static int lmc__is_workspace(size_t ws_size, size_t n, unsigned width)
{
    size_t needed = lmc_block_workspace_size(n, width);
    return needed != 0 && ws_size >= needed;
}

/* Returns the scratch, at the workspace's first multiple of 16. *stack: the rest. */
static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

/* == codec/block_header.h ====================================================================== */

/* The header of a block: 24 bytes (spec 5).
 *
 *     0  sync B2         a mark, which salvage looks for in damaged files
 *     1  width           bytes of an element
 *     2  coding          order | predicted | layout, see wire_block.h
 *     3  grouping        classes - 1 | sparse | natural planes (spec 5.2)
 *     4  n               elements
 *     8  payload size    bytes that follow the header
 *    12  content CRC     of the decoded bytes
 *    16  payload CRC     if there is a prediction; else 0
 *    20  header CRC      of the block's number and bytes 0 .. 19
 *
 * The header does not store the block's number in its run, but its CRC covers the number. So a
 * block in the wrong place is refused like a damaged block. The payload CRC tells damage from a
 * wrong prediction. get_block.h has the order of all checks. */

LMC__INLINE unsigned lmc__count_classes_of(unsigned grouping) { return (grouping & 15) + 1; }

/* The CRC of the block's number, as 4 bytes, and of the header's bytes before Header_CRC. */
LMC__INLINE uint32_t lmc__header_crc(const lmc__kernels *k, const uint8_t *header, uint32_t number)
{
    uint8_t place[4];
    lmc__store32(place, number);
    return k->crc32c(k->crc32c(0, place, 4), header, LMC__BLOCK_CRC_AT);
}

LMC_API size_t lmc_block_bound(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

/* Parses a header whose CRC was right. The order of the checks is that of spec 5, because it
 * decides which error is reported. The conformance vectors test it.
 *
 *   1  values that a later version may use (UNSUPPORTED)
 *   2  n, then the payload's size: together they bound the memory that a block needs
 *   3  which fields go together: a stored block has no order, prediction or grouping; a quantised
 *      block, or one of codes, has elements of 2 or 4 bytes, and no order or grouping; one with
 *      zeros apart, rows and columns, or codes has no prediction; rows and columns have an order
 *   4  without a prediction there is no grouping, and no CRC of the payload; natural planes (which
 *      are not grouped) need two classes or more, and are never in a sparse block */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned width = src[1], coding = src[2], grouping = src[3], order = coding & 3,
                   layout = coding >> LMC__LAYOUT_SHIFT, natural = grouping >> LMC__NATURAL_SHIFT;
    const int is_predicted = (coding & LMC__PREDICTED) != 0;
    const uint32_t payload_size = lmc__load32(src + 8);
    uint64_t size;
    LMC__CHECK((width == 1 || width == 2 || width == 4 || width == 8) &&
                   order <= LMC__ORDER_FLOAT && (coding & 0x18) == 0 && layout <= LMC__LAYOUT_CODES,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + LMC__CONTENT_CRC_AT);
    info->is_stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = is_predicted;
    info->payload_crc = lmc__load32(src + LMC__PAYLOAD_CRC_AT);
    size = (uint64_t)info->n * width;
    LMC__VALID(info->n >= 1 && size <= LMC_MAX_BLOCK_SIZE);
    if (info->is_stored) LMC__VALID(payload_size == size && !order && !is_predicted && !grouping);
    else LMC__VALID(payload_size < size);
    if (layout == LMC__LAYOUT_QUANTIZED || layout == LMC__LAYOUT_CODES)
        LMC__VALID((width == 2 || width == 4) && !order && !grouping);
    if ((layout == LMC__LAYOUT_PLANES && is_predicted) || layout == LMC__LAYOUT_MATRIX)
        LMC__VALID(order);
    if (layout >= LMC__LAYOUT_ZEROS) LMC__VALID(!is_predicted);
    LMC__VALID(is_predicted || (!grouping && info->payload_crc == 0));
    LMC__VALID(!natural || (natural < width && lmc__count_classes_of(grouping) > 1 &&
                            !(grouping & LMC__SPARSE)));
    info->size = (size_t)size;
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)payload_size;
    return LMC_OK;
}

/* Checks and parses the header of the block at src. src_size: how many bytes are there. */
static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, uint32_t number, lmc_block_info *info)
{
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__VALID(src[0] == LMC__BLOCK_SYNC);
    LMC__CHECK(lmc__header_crc(k, src, number) == lmc__load32(src + LMC__BLOCK_CRC_AT),
               LMC_ERR_CHECKSUM);
    return lmc__parse_block_info(src, info);
}

LMC_API enum lmc_status lmc_block_parse(const void *src, size_t src_size, uint32_t number,
                                        lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    memset(&found, 0, sizeof found);
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, number, &found));
    *info = found;
    return LMC_OK;
}

/* == codec/get_gaps.h ========================================================================== */

/* Reads a mask of few ones as the gaps between them (spec 6.3), which put_gaps.h writes.
 *
 *     mode: s, polarity | u24 K | low parts: K * s bits | quotients: zeros, then a one, K times
 *
 * Let bit b of the quotients be their 1 bit number j (b and j count from 0). Before it are b - j
 * zeros, which is the sum of quotients 0 to j. So
 *
 *     position_j = ((b - j) << s) + low_0 + ... + low_j + j
 *
 * and a position depends on the previous position only by two additions.
 *
 * Safety: K is at most n, so the low parts have at most n * 21 bits, and one check covers all of
 * them. The quotients are read word by word, forwards only and never beyond the payload. Positions
 * ascend strictly and cannot overflow 64 bits (26 bits shifted by 21, and 2^22 low parts of 21
 * bits). So if a position is less than n, all before it are, too. */

/* Loads bits [at, at + 64) of size bytes at p. The top at & 7, and those behind the end, are 0. */
LMC__INLINE uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at)
{
    const size_t first = at / 8;
    uint8_t rest[8] = {0};
    if (size - first >= 8) return lmc__load64(p + first) >> (at & 7);
    memcpy(rest, p + first, size - first);
    return lmc__load64(rest) >> (at & 7);
}

/* Lists the positions of the ones of a mask of n bits; with flip UINT64_MAX, of its zeros. Returns
 * their number, or SIZE_MAX if it is more than cap. */
static size_t lmc__list_ones(uint32_t *ones, size_t cap, const uint8_t *mask, size_t n,
                             uint64_t flip)
{
    size_t k = 0, at;
    for (at = 0; at < n; at += 64) {
        uint64_t word = lmc__load_bits(mask, (n + 7) / 8, at) ^ flip;
        if (n - at < 64) word &= ((uint64_t)1 << (n - at)) - 1;
        for (; word != 0; word &= word - 1) {
            if (k == cap) return SIZE_MAX;
            ones[k++] = (uint32_t)(at + lmc__lowest_bit(word));
        }
    }
    return k;
}

typedef struct lmc__gaps {
    unsigned s, polarity;
    size_t k, n;              /* number of positions; each is less than n */
    const uint8_t *low;       /* the low parts; room: bytes of the payload from there on */
    const uint8_t *quotients; /* size: bytes of the payload from there on */
    size_t low_size, room, size;
    size_t j, at, bit;  /* positions read; bytes of quotients read; bit number of the last
                           position's one */
    uint64_t sum, word; /* of low parts; bits that were read but not used */
} lmc__gaps;

/* Reads everything before the quotients. in: behind the mode byte of a mask of n bits; end: of the
 * payload; mode: LMC__MASK_GAPS or more. */
static enum lmc_status lmc__open_gaps(lmc__gaps *g, const uint8_t *in, const uint8_t *end,
                                      unsigned mode, size_t n)
{
    memset(g, 0, sizeof *g);
    g->s = (mode - LMC__MASK_GAPS) >> 1;
    g->polarity = (mode - LMC__MASK_GAPS) & 1;
    g->n = n;
    LMC__VALID(end - in >= 3);
    g->k = (size_t)in[0] | (size_t)in[1] << 8 | (size_t)in[2] << 16;
    LMC__VALID(g->k >= 1 && g->k <= n);
    g->low = in + 3;
    g->low_size = (g->k * g->s + 7) / 8;
    g->room = (size_t)(end - g->low);
    LMC__VALID(g->room >= g->low_size);
    LMC__VALID((g->k * g->s & 7) == 0 || g->low[g->low_size - 1] >> (g->k * g->s & 7) == 0);
    g->quotients = g->low + g->low_size;
    g->size = g->room - g->low_size;
    return LMC_OK;
}

/* Reads the next `count` positions, at least 1, at most all. Valid only if it returns LMC_OK. */
static enum lmc_status lmc__get_positions(lmc__gaps *g, uint32_t *positions, size_t count)
{
    const lmc__gaps own = *g; /* a local copy: stores to positions cannot change it */
    const unsigned s = own.s;
    const uint64_t low_bits = ((uint64_t)1 << s) - 1;
    uint64_t word = own.word, sum = own.sum, position = 0;
    size_t at = own.at, j = own.j, low_at = own.j * s, i = 0;
    unsigned bit = 0;
    for (;;) {
        const size_t first = 8 * (at - 8); /* bit number of the word's first bit */
        while (word != 0) {
            /* a low part starts in one byte and ends in one of the next three: 7 + 21 bits */
            const uint64_t low = low_at / 8 + 4 <= own.room
                                     ? lmc__load32(own.low + low_at / 8) >> (low_at & 7)
                                     : lmc__load_bits(own.low, own.room, low_at);
            bit = lmc__lowest_bit(word);
            word &= word - 1;
            low_at += s;
            sum += low & low_bits;
            position = ((uint64_t)(first + bit - j) << s) + sum + j;
            j++;
            positions[i++] = (uint32_t)position;
            if (i == count) {
                LMC__VALID(position < own.n);
                g->word = word;
                g->sum = sum;
                g->at = at;
                g->j = j;
                g->bit = first + bit;
                return LMC_OK;
            }
        }
        LMC__VALID(at < own.size);
        word = lmc__load_bits(own.quotients, own.size, 8 * at);
        at += 8;
    }
}

/* After the last position: sets *in to the end of the gaps. */
static enum lmc_status lmc__close_gaps(const lmc__gaps *g, const uint8_t **in)
{
    const size_t size = g->bit / 8 + 1;
    LMC__VALID(g->quotients[size - 1] >> (g->bit & 7) == 1);
    *in = g->quotients + size;
    return LMC_OK;
}

/* Decodes a mask of n bits to list. *in is behind the mode byte, and is moved to the end of the
 * gaps; end: of the payload. */
static enum lmc_status lmc__get_gaps(const uint8_t **in, const uint8_t *end, unsigned mode,
                                     size_t n, uint8_t *list)
{
    uint32_t positions[128];
    lmc__gaps g;
    LMC__TRY(lmc__open_gaps(&g, *in, end, mode, n));
    memset(list, g.polarity ? 0xFF : 0, (n + 7) / 8);
    if (g.polarity && (n & 7)) list[n / 8] = (uint8_t)((1u << (n & 7)) - 1);
    while (g.j < g.k) {
        const size_t count = lmc__min(g.k - g.j, sizeof positions / sizeof *positions);
        size_t i;
        LMC__TRY(lmc__get_positions(&g, positions, count));
        for (i = 0; i < count; i++) list[positions[i] / 8] ^= (uint8_t)(1u << (positions[i] & 7));
    }
    return lmc__close_gaps(&g, in);
}

/* == codec/matrix.h ============================================================================ */

/* Rows and columns (spec/matrix.md): blocks that are a part of a matrix, and whose prediction is
 * made from a number for each row and a number for each column:
 *
 *     prediction of element i = (row[j / n_columns] + column[j % n_columns]) << shift
 *                           j = first + i
 *
 * The bits of a positive float, read as an integer, are nearly its logarithm, and the logarithm of
 * a product is a sum. So this predicts what is nearly a product of a row's and a column's scale, as
 * the second moments of optimizers are. The block is then coded against the prediction, like a
 * delta of one class. put_matrix.h writes such blocks, get_matrix.h decodes them. */
typedef struct lmc__matrix {
    size_t n_columns, first; /* first: the column of the block's first element */
    size_t n_rows;           /* of which the block has a part */
    unsigned shift;
    const uint8_t *low, *high, *column; /* numbers of rows: low and high bytes; of columns */
} lmc__matrix;

#define LMC__MATRIX_HEAD_SIZE 9u /* Row_Size, First, Shift */

/* 1 if each prediction fits in an element. Then those of neighbours can be added as one word. */
static int lmc__are_sums_in_reach(const lmc__matrix *r, unsigned width)
{
    size_t i, row = 0, column = 0;
    for (i = 0; i < r->n_rows; i++) {
        const size_t number = r->low[i] | (size_t)r->high[i] << 8;
        if (number > row) row = number;
    }
    for (i = 0; i < r->n_columns; i++)
        if (r->column[i] > column) column = r->column[i];
    return (uint64_t)(row + column) <= UINT64_MAX >> (64 - 8 * width) >> r->shift;
}

/* Writes the prediction of n elements to dst, 8 bytes at a time: a row is that of the columns, plus
 * the row's number in each element. Returns 0 if the stack has no room, which cannot happen. */
static int lmc__predict_matrix(lmc__stack *stack, uint8_t *dst, size_t n, unsigned width,
                               const lmc__matrix *r)
{
    const uint64_t one_each = UINT64_MAX / (UINT64_MAX >> (64 - 8 * width));
    uint8_t *const top = stack->top, *const columns = lmc__push_list(stack, r->n_columns * width);
    size_t i, row, at = r->first * width, left = n * width;
    stack->top = top;
    if (!columns) return 0;
    for (i = 0; i < r->n_columns; i++)
        lmc__store_element(columns, i, (uint64_t)r->column[i] << r->shift, width);
    for (row = 0; row < r->n_rows; row++, at = 0) {
        const uint64_t number =
            ((uint64_t)(r->low[row] | (unsigned)r->high[row] << 8) << r->shift) * one_each;
        const size_t size = lmc__min(r->n_columns * width - at, left), whole = size & ~(size_t)7;
        uint8_t rest[8];
        for (i = 0; i < whole; i += 8)
            lmc__store64(dst + i, lmc__load64(columns + at + i) + number);
        lmc__store64(rest, lmc__load64(columns + at + i) + number);
        memcpy(dst + whole, rest, size - whole);
        dst += size;
        left -= size;
    }
    return 1;
}

/* == codec/get_list.h ========================================================================== */

/* Decodes a list of bytes (spec 6), which put_list.h writes: raw, a constant, or a tree of masks.
 * To decode a node, its left and right child are decoded, and merged by the node's mask.
 *
 * Safety: the input is not trusted. Each read first checks how many bytes are left. Only two values
 * from the input become lengths or addresses. The number of ones of a mask is at most the mask's
 * known n, because the bits behind n must be zero. Code lengths become a tree only if they fill the
 * code space exactly (tree.h). Recursion is at most 15 deep in a tree, and 3 trees deep. */

/* The state of decoding a payload. It cannot be used after an error. */
typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end; /* the rest of the payload */
    lmc__streaming streaming;
    /* If dst is the prediction: a copy of it, or the overwritten elements. */
    uint8_t *kept;
    lmc__undo undo;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* If dst is the prediction, copies it to d->kept, unless that has its bytes already:
 * lmc__get_predicted may have to restore them. */
static enum lmc_status lmc__keep(lmc__decoder *d, const uint8_t *dst, const uint8_t *base,
                                 size_t size)
{
    if (dst != base || d->kept) return LMC_OK;
    d->kept = lmc__push_list(&d->stack, size);
    LMC__CHECK(d->kept, LMC_ERR_WORKSPACE);
    memcpy(d->kept, base, size);
    return LMC_OK;
}

/* Takes the next size bytes of the payload; NULL if fewer are left. */
LMC__INLINE const uint8_t *lmc__take(lmc__decoder *d, size_t size)
{
    const uint8_t *const taken = d->in;
    if (LMC__UNLIKELY((size_t)(d->end - d->in) < size)) return NULL;
    d->in += size;
    return taken;
}

/* 1 if the unused bits of the last byte are zero: n bits are in size bytes. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* Decodes a mask of n > 0 bits: *mask points into the input, or to a list on the stack.
 *
 * Mode 0, or no mode byte (lmc__has_mode): the bits themselves. Modes from 21 on, for masks of
 * classes only: gaps. Other modes: a frozen tree codes the mask's bytes, at the next nesting. Bits
 * behind the mask must be zero, so that each mask has only one raw form. */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, int is_of_class, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (lmc__has_mode(nesting, n)) {
        LMC__VALID(d->in < d->end);
        mode = *d->in++;
    }
    if (mode == 0) {
        *mask = lmc__take(d, size);
        LMC__VALID(*mask);
    } else if (is_of_class && mode >= LMC__MASK_GAPS) {
        uint8_t *list;
        LMC__VALID(mode < LMC__MASK_MODES);
        list = lmc__push_list(&d->stack, size);
        LMC__CHECK(list, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        LMC__TRY(lmc__get_gaps(&d->in, d->end, mode, n, list));
        *mask = list;
    } else {
        lmc__tree *const tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__VALID(mode <= 2 * LMC__FROZEN_LEVELS);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, lmc__root_of(tree, nesting + 1), list, spare, size));
        d->stack.top = spare; /* frees spare, not the list */
        *mask = list;
    }
    LMC__VALID(lmc__is_tail_clear(*mask, size, n));
    return LMC_OK;
}

/* Decodes the mask and the two sides of an inner node that is not flat. list and spare: lists of n.
 * On return the sides are in spare, one behind the other. A nested mask is on the stack. list is
 * free: the caller merges the sides to it.
 *
 *     spare   | left: n - n_right elements | right: n_right elements |
 *
 * A side that is one symbol has no list, and no bytes in the payload. */
static enum lmc_status lmc__get_sides(lmc__decoder *d, lmc__node node, uint8_t *list,
                                      uint8_t *spare, size_t n, lmc__merged *sides)
{
    const lmc__tree *const tree = &d->scratch->trees[node.nesting];
    const lmc__children children = lmc__get_children(tree, node);
    size_t n_right;
    LMC__TRY(lmc__get_mask(d, node.nesting, 0, n, &sides->mask));
    n_right = d->k->count_ones(sides->mask, (n + 7) / 8);
    sides->left.list = sides->right.list = NULL;
    sides->left.value = sides->right.value = 0;
    if (lmc__is_one_symbol(tree, children.left))
        sides->left.value = tree->symbol[children.left.first_leaf];
    else {
        sides->left.list = spare;
        LMC__TRY(lmc__get_node(d, children.left, spare, list, n - n_right));
    }
    if (lmc__is_one_symbol(tree, children.right))
        sides->right.value = tree->symbol[children.right.first_leaf];
    else {
        sides->right.list = spare + (n - n_right);
        LMC__TRY(lmc__get_node(d, children.right, spare + (n - n_right), list, n_right));
    }
    return LMC_OK;
}

/* Decodes a node's n elements to list; spare: a list of n. The cases are those of spec 6.2.
 *
 * Two buffers alternate: a node's elements are written to list, its children's to spare, one child
 * behind the other, its grandchildren's to list, and so on. Each merge reads one buffer and writes
 * the other. Kernels write up to LMC__PAD bytes behind a list. The right child's list is behind the
 * left child's list, so the left child is decoded first. */
static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n)
{
    const lmc__tree *const tree = &d->scratch->trees[node.nesting];
    const size_t row = (n + 7) / 8;
    uint8_t *const top = d->stack.top;
    lmc__merged sides;
    unsigned flat_depth;

    if (n == 0) return LMC_OK;
    if (node.end_leaf - node.first_leaf == 1) {
        if (node.first_leaf == tree->escape) {
            const uint8_t *const symbols = lmc__take(d, n);
            LMC__VALID(symbols);
            memcpy(list, symbols, n);
        } else memset(list, tree->symbol[node.first_leaf], n);
        return LMC_OK;
    }
    flat_depth = lmc__get_flat_depth(tree, node);
    if (flat_depth) {
        const uint8_t *const bits = lmc__take(d, flat_depth * row);
        unsigned i;
        LMC__VALID(bits);
        for (i = 0; i < flat_depth; i++) LMC__VALID(lmc__is_tail_clear(bits + i * row, row, n));
        d->k->unflatten(list, bits, n, tree->symbol + node.first_leaf, flat_depth);
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, node, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* Reads the header of a tree (spec 6.1), behind its mode byte, to d->scratch->trees[0]: the range
 * of symbols that have a code, and four bits for the length of each code. The first and the last
 * symbol must have a code, so that each tree has only one header. */
static enum lmc_status lmc__get_tree_header(lmc__decoder *d, int has_escape)
{
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    const uint8_t *const range = lmc__take(d, 2), *fields;
    LMC__VALID(range);
    first = range[0];
    count = range[1] + 1u;
    n_fields = count + (has_escape ? 1 : 0);
    LMC__VALID(first + count <= 256);
    fields = lmc__take(d, (n_fields + 1) / 2);
    LMC__VALID(fields);
    LMC__VALID(n_fields % 2 == 0 || fields[n_fields / 2] >> 4 == 0);
    for (i = 0; i < count; i++) lengths[i] = fields[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = fields[count / 2] >> 4 * (count & 1) & 15;
        LMC__VALID(escape_length);
    }
    LMC__VALID(lengths[0] && lengths[count - 1]);
    LMC__VALID(lmc__tree_set_lengths(&d->scratch->trees[0], lengths, first, first + count - 1,
                                     escape_length));
    return LMC_OK;
}

/* Decodes a list of n > 0 bytes; spare: a list of n. A raw list stays in the payload if at least
 * `slack` bytes follow it there; else it is copied.
 *
 *     mode       side                   bytes in the payload (spec 6)
 *     raw        in payload, or copied  n bytes
 *     constant   a value, no list       1 byte
 *     tree       on the stack           header, masks
 *
 * If the root of a tree needs a merge, the caller must merge: get_planes.h does so while it joins
 * planes to elements. The root's sides and mask are then in *root; root->row is the list. Else
 * root->mask is NULL. If *root already has the root of another tree, that root is merged first. */
static enum lmc_status lmc__begin_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n,
                                       size_t slack, lmc__merged *root)
{
    const lmc__tree *const tree = &d->scratch->trees[0];
    unsigned mode;
    uint8_t *list;
    lmc__node node;
    LMC__VALID(d->in < d->end);
    mode = *d->in++;
    LMC__VALID(mode <= LMC__PLANE_TREE_ESCAPE);
    side->list = NULL;
    side->value = 0;
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__VALID(d->in < d->end);
        side->value = *d->in++;
        return LMC_OK;
    }
    if (mode == LMC__PLANE_RAW) {
        const size_t left = (size_t)(d->end - d->in);
        const uint8_t *const raw = lmc__take(d, n);
        LMC__VALID(raw);
        side->list = raw;
        if (left >= n + slack) return LMC_OK;
        side->list = list = lmc__push_list(&d->stack, n);
        LMC__CHECK(list, LMC_ERR_WORKSPACE);
        memcpy(list, raw, n);
        return LMC_OK;
    }
    if (root->mask) d->k->merge(root->row, root->mask, n, root->left, root->right);
    root->mask = NULL;
    side->list = root->row = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_tree_header(d, mode == LMC__PLANE_TREE_ESCAPE));
    node = lmc__root_of(tree, 0);
    return lmc__get_flat_depth(tree, node) ? lmc__get_node(d, node, list, spare, n)
                                           : lmc__get_sides(d, node, list, spare, n, root);
}

/* As lmc__begin_list, but the root is merged, too. */
static enum lmc_status lmc__get_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n)
{
    lmc__merged root;
    root.mask = NULL;
    LMC__TRY(lmc__begin_list(d, side, spare, n, LMC__PAD, &root));
    if (root.mask) {
        d->k->merge(root.row, root.mask, n, root.left, root.right);
        d->stack.top = root.row + n + LMC__PAD;
    }
    return LMC_OK;
}

/* A side as a list of n bytes, for kernels that take no constants; NULL if there is no room. */
static const uint8_t *lmc__row_of(lmc__decoder *d, const lmc__side *side, size_t n)
{
    uint8_t *row;
    if (side->list) return side->list;
    row = lmc__push_list(&d->stack, n);
    if (row) memset(row, side->value, n);
    return row;
}

/* Reads a list of n bytes, as lmc__row_of gives it. spare: a list of n. */
static enum lmc_status lmc__get_row(lmc__decoder *d, const uint8_t **row, uint8_t *spare, size_t n)
{
    lmc__side side;
    LMC__TRY(lmc__get_list(d, &side, spare, n));
    *row = lmc__row_of(d, &side, n);
    LMC__CHECK(*row, LMC_ERR_WORKSPACE);
    return LMC_OK;
}

/* == codec/get_planes.h ======================================================================== */

/* Decodes the payload of a block without a prediction (spec 5.1), which put_planes.h writes. First
 * all planes are decoded to rows. Then one pass (the kernel join_root) joins the planes to
 * elements, does the last merge of one tree, and computes the CRC:
 *     plane 0 .. w-2 ---------------------> row, in the payload if the plane is raw \
 *     plane w-1 -> sides of the root ----------------------------> merge in strips -> join -> dst
 *                                                                                        +-> CRC
 *
 * So no plane of bf16 is written as a whole to memory if the lower is raw and the upper a tree.
 *
 * dst is written when all of the payload is decoded: only a wrong CRC is found after that.
 *
 * join_root merges the block's last tree; encoders use it for the top plane. Other roots' masks
 * stay on the stack: at most w - 1 masks of n / 8 bytes, for which workspace.h counts a row. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       enum lmc__order order, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL; /* no root yet */
    for (p = 0; p < width; p++) {
        lmc__side side;
        LMC__TRY(lmc__begin_list(d, &side, spare, n, 0, &root));
        if (root.mask && side.list == root.row) root.plane = p;
        planes.row[p] = lmc__row_of(d, &side, n);
        LMC__CHECK(planes.row[p], LMC_ERR_WORKSPACE);
    }
    LMC__VALID(d->in == d->end);
    *crc =
        d->k->join_root(d->k, dst, lmc__join_from(&planes, root.mask ? &root : NULL, width, order),
                        n, d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/get_zeros.h ========================================================================= */

/* Decodes the payload of a block with zeros apart (spec/zeros.md), which put_zeros.h writes. Each
 * plane is two lists, one for each kind of element. The mask of elements merges them, as a node of
 * a tree merges its sides; so the last merge is left to the kernel join_root, as in get_planes.h:
 *     mask
 *     plane 0 .. w-2: list of zeros, of others -> merge -> row -------> join -> dst
 *     plane w-1: list of zeros, of others -> merge in strips ------/        +-> CRC
 *
 * The stack has w rows, the two lists of a plane (a row together) and a spare one: as many as in
 * get_planes.h and one more. dst is written when all of the payload is decoded. */
static enum lmc_status lmc__get_zeros(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                      enum lmc__order order, uint32_t *crc)
{
    const size_t mask_size = (n + 7) / 8;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    size_t n_coded;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_row(d, &root.mask, spare, mask_size));
    LMC__VALID(lmc__is_tail_clear(root.mask, mask_size, n));
    n_coded = d->k->count_ones(root.mask, mask_size);
    for (p = 0; p < width; p++) {
        planes.row[p] = root.row = lmc__push_list(&d->stack, n);
        LMC__CHECK(root.row, LMC_ERR_WORKSPACE);
        root.plane = p;
        root.left.list = root.right.list = NULL;
        root.left.value = root.right.value = 0;
        if (n_coded < n) LMC__TRY(lmc__get_list(d, &root.left, spare, n - n_coded));
        if (n_coded) LMC__TRY(lmc__get_list(d, &root.right, spare, n_coded));
        if (p + 1 == width) break;
        d->k->merge(root.row, root.mask, n, root.left, root.right);
        d->stack.top = root.row + n + LMC__PAD;
    }
    LMC__VALID(d->in == d->end);
    *crc =
        d->k->join_root(d->k, dst, lmc__join_from(&planes, &root, width, order), n, d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/get_sparse.h ======================================================================== */

/* Decodes a sparse block (spec 5.2) in which few elements are coded. Each class's mask becomes a
 * list of indices, and its planes a list of residuals. The kernel patch applies them.
 *
 *     mask of class c, as gaps   -> indices of its coded elements  \
 *     planes of class c          -> residuals                       } patch: prediction -> elements
 *
 * For other sparse blocks, get_delta.h makes whole planes, with zeros between coded elements. */

/* At most n / LMC__SPARSE_SHARE of n elements may be coded here: else get_delta.h is as fast. The
 * limit also bounds the memory (workspace.h). Blocks below LMC__MIN_SPARSE elements gain little. */
#define LMC__SPARSE_SHARE 16u
#define LMC__MIN_SPARSE 4096u

/* The coded elements of a sparse block. n_changed: their number in each class. */
typedef struct lmc__sparse {
    uint32_t *end, *cap; /* where the next index goes; the end of the room for indices */
    lmc__patches changes;
    size_t n_changed[LMC__MAX_CLASSES];
} lmc__sparse;

/* Reads the mask of a class of n elements as indices. *fits: 0 if there is no room for them; then
 * the state of s and d is undefined. */
static enum lmc_status lmc__get_numbers(lmc__decoder *d, lmc__sparse *s, size_t n, int *fits)
{
    const size_t room = (size_t)(s->cap - s->end);
    uint8_t *const top = d->stack.top;
    const uint8_t *mask;
    size_t k;
    if (lmc__has_mode(0, n) && d->in < d->end && *d->in >= LMC__MASK_GAPS) {
        const unsigned mode = *d->in;
        lmc__gaps gaps;
        LMC__VALID(mode < LMC__MASK_MODES);
        LMC__TRY(lmc__open_gaps(&gaps, d->in + 1, d->end, mode, n));
        if (!gaps.polarity) {
            *fits = gaps.k <= room;
            if (!*fits) return LMC_OK;
            LMC__TRY(lmc__get_positions(&gaps, s->end, gaps.k));
            s->end += gaps.k;
            return lmc__close_gaps(&gaps, &d->in);
        }
    }
    LMC__TRY(lmc__get_mask(d, 0, 1, n, &mask));
    k = lmc__list_ones(s->end, room, mask, n, 0);
    d->stack.top = top;
    *fits = k != SIZE_MAX;
    if (*fits) s->end += k;
    return LMC_OK;
}

/* Reads the masks of all classes that are not empty. *fits: as in lmc__get_numbers. The indices of
 * each class end with LMC__NO_CHANGE. */
static enum lmc_status lmc__get_changes(lmc__decoder *d, lmc__sparse *s, const size_t *n_of,
                                        unsigned n_classes, size_t n, int *fits)
{
    const size_t room = n / LMC__SPARSE_SHARE;
    unsigned c;
    *fits = n >= LMC__MIN_SPARSE;
    if (!*fits) return LMC_OK;
    s->end = lmc__push_numbers(&d->stack, room + n_classes);
    LMC__CHECK(s->end, LMC_ERR_WORKSPACE);
    s->cap = s->end + room; /* plus one end mark for each class so far */
    for (c = 0; c < n_classes; c++) {
        s->changes.at[c] = s->end;
        s->n_changed[c] = 0;
        if (n_of[c]) {
            LMC__TRY(lmc__get_numbers(d, s, n_of[c], fits));
            if (!*fits) return LMC_OK;
            s->n_changed[c] = (size_t)(s->end - s->changes.at[c]);
        }
        *s->end++ = LMC__NO_CHANGE;
        s->cap++;
    }
    return LMC_OK;
}

/* Decodes the planes of a class and joins them to residuals; spare: a list of n. */
static enum lmc_status lmc__get_residuals(lmc__decoder *d, uint8_t *residuals, size_t n,
                                          unsigned width, uint8_t *spare)
{
    uint8_t *const top = d->stack.top;
    lmc__const_planes planes;
    unsigned p;
    for (p = 0; p < width; p++) LMC__TRY(lmc__get_row(d, &planes.row[p], spare, n));
    d->k->join(residuals, &planes, n, width, LMC__ORDER_NONE);
    d->stack.top = top;
    return LMC_OK;
}

/* Decodes the payload after the thresholds. *fits: 0 if too many elements are coded; then d and dst
 * are unchanged, and lmc__get_delta decodes the block. dst is written only when all was decoded. */
static enum lmc_status lmc__get_sparse(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                       const lmc_block_info *info, enum lmc__order order,
                                       const lmc__grouping *grouping, const size_t *n_of,
                                       const uint8_t *tally, uint8_t *spare, uint32_t *crc,
                                       int *fits)
{
    const unsigned width = info->width, n_classes = grouping->n_classes;
    const uint8_t *const in = d->in;
    uint8_t *const top = d->stack.top;
    lmc__sparse s;
    size_t n_changed = 0;
    unsigned c;
    LMC__TRY(lmc__get_changes(d, &s, n_of, n_classes, info->n, fits));
    if (!*fits) {
        d->in = in;
        d->stack.top = top;
        return LMC_OK;
    }
    for (c = 0; c < n_classes; c++) {
        uint8_t *const residuals = lmc__push_list(&d->stack, s.n_changed[c] * width);
        LMC__CHECK(residuals, LMC_ERR_WORKSPACE);
        s.changes.residual[c] = residuals;
        if (s.n_changed[c])
            LMC__TRY(lmc__get_residuals(d, residuals, s.n_changed[c], width, spare));
        n_changed += s.n_changed[c];
    }
    LMC__VALID(d->in == d->end);
    if (dst == base) {
        d->undo.place = lmc__push_numbers(&d->stack, n_changed);
        d->undo.before = lmc__push_list(&d->stack, n_changed * width);
        LMC__CHECK(d->undo.place && d->undo.before, LMC_ERR_WORKSPACE);
    }
    *crc = d->k->patch(d->k, dst, base, &s.changes, info->n, width, order, grouping, tally,
                       dst == base ? &d->undo : NULL, d->streaming);
    return LMC_OK;
}

/* == codec/get_delta.h ========================================================================= */

/* Decodes the payload of a block with a prediction (spec 5.2), which put_delta.h writes.
 *
 *     payload   | thresholds | masks, if sparse | natural planes | class 0: lists | class 1 | ...
 *               |   C - 1    | one per class    |   n bytes each | plane Natural .. w-1     |
 *
 * The prediction is read twice. First the kernel count_classes counts the elements of each class,
 * which says how long the lists of the class are. Then the kernel ungroup takes each element's
 * residual from the lists of its class and adds it to the prediction. It reads an element of the
 * prediction before it writes to the same place, so the output may be the prediction itself. */

/* What has been decoded of a payload. Masks and sides are in the payload or on the stack, so they
 * are valid until the block is done. Natural planes are sides of class 0, with n elements. */
typedef struct lmc__grouped_payload {
    lmc__grouping grouping;
    size_t n_of[LMC__MAX_CLASSES];          /* elements of each class */
    const uint8_t *masks[LMC__MAX_CLASSES]; /* sparse: which elements are coded; unset if n_of is
                                               0 */
    int sparse;
    uint8_t *tally; /* sparse: a table from count_classes for the kernel patch */
    lmc__class_sides sides;
} lmc__grouped_payload;

/* Reads the thresholds and counts the elements of each class. header: the header's Grouping.
 * Thresholds ascend strictly from 1 on: so each class has a key, and each grouping one form. */
static enum lmc_status lmc__get_grouping(lmc__decoder *d, lmc__grouped_payload *g,
                                         const uint8_t *base, const lmc_block_info *info,
                                         unsigned header)
{
    lmc__grouping *const grouping = &g->grouping;
    const size_t n = info->n;
    const uint8_t *thresholds;
    unsigned c;
    g->sparse = (header & LMC__SPARSE) != 0;
    grouping->n_natural = header >> LMC__NATURAL_SHIFT;
    grouping->n_classes = lmc__count_classes_of(header);
    thresholds = lmc__take(d, grouping->n_classes - 1);
    LMC__VALID(thresholds);
    for (c = 0; c + 1 < grouping->n_classes; c++) {
        LMC__VALID(thresholds[c] > (c ? thresholds[c - 1] : 0));
        grouping->threshold[c] = thresholds[c];
    }
    g->n_of[0] = n;
    g->tally = NULL;
    if (g->sparse) {
        g->tally = lmc__push_list(&d->stack, (grouping->n_classes - 1) * lmc__tally_row(n));
        LMC__CHECK(g->tally, LMC_ERR_WORKSPACE);
    }
    if (grouping->n_classes > 1)
        d->k->count_classes(g->n_of, base, n, info->width, grouping, g->tally);
    return LMC_OK;
}

/* Reads a list of class c, of which n_coded elements are coded, as a side of n_of[c] elements.
 * Elements that a sparse block leaves out are zeros: the class's mask says where. */
static enum lmc_status lmc__get_class_side(lmc__decoder *d, const lmc__grouped_payload *g,
                                           unsigned c, size_t n_coded, uint8_t *spare,
                                           lmc__side *side)
{
    const size_t n = g->n_of[c];
    lmc__side zero, coded;
    uint8_t *list, *top;
    side->list = zero.list = NULL;
    side->value = zero.value = 0;
    if (n_coded == 0) return LMC_OK;
    if (n_coded == n) return lmc__get_list(d, side, spare, n);
    list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    top = d->stack.top;
    LMC__TRY(lmc__get_list(d, &coded, spare, n_coded));
    d->k->merge(list, g->masks[c], n, zero, coded);
    d->stack.top = top;
    side->list = list;
    return LMC_OK;
}

/* Decodes the payload after the thresholds, then the elements. All lists are decoded before dst is
 * written, so dst is unchanged if the payload has errors. */
static enum lmc_status lmc__get_grouped(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                        const lmc_block_info *info, enum lmc__order order,
                                        lmc__grouped_payload *g, uint8_t *spare, uint32_t *crc)
{
    const lmc__delta_block block = {base, info->n, info->width, order, &g->grouping};
    unsigned c, p;
    for (c = 0; c < g->grouping.n_classes && g->sparse; c++)
        if (g->n_of[c]) LMC__TRY(lmc__get_mask(d, 0, 1, g->n_of[c], &g->masks[c]));
    for (p = 0; p < g->grouping.n_natural; p++) {
        g->sides.side[0][p].list = lmc__take(d, info->n);
        LMC__VALID(g->sides.side[0][p].list);
    }
    for (c = 0; c < g->grouping.n_classes; c++) {
        const size_t n_of = g->n_of[c],
                     n_coded =
                         g->sparse && n_of ? d->k->count_ones(g->masks[c], (n_of + 7) / 8) : n_of;
        for (p = g->grouping.n_natural; p < info->width; p++)
            LMC__TRY(lmc__get_class_side(d, g, c, n_coded, spare, &g->sides.side[c][p]));
    }
    LMC__VALID(d->in == d->end);
    LMC__TRY(lmc__keep(d, dst, base, info->size));
    *crc = d->k->ungroup(d->k, dst, &g->sides, &block, d->streaming);
    return LMC_OK;
}

/* base: info->size bytes; may be dst. order and header: Order and Grouping of the block's header. A
 * sparse block in which few elements are coded is decoded by get_sparse.h. */
static enum lmc_status lmc__get_delta(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, enum lmc__order order,
                                      unsigned header, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, info->n);
    lmc__grouped_payload g;
    int done = 0;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_grouping(d, &g, base, info, header));
    if (g.sparse)
        LMC__TRY(lmc__get_sparse(d, dst, base, info, order, &g.grouping, g.n_of, g.tally, spare,
                                 crc, &done));
    if (!done) d->stack.top = spare + info->n + LMC__PAD; /* frees the tally */
    if (!done) LMC__TRY(lmc__get_grouped(d, dst, base, info, order, &g, spare, crc));
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/get_matrix.h ======================================================================== */

/* Decodes the payload. The prediction is made on the stack; or in dst, if dst has been kept: the
 * stack has no room for both. */
static enum lmc_status lmc__get_matrix(lmc__decoder *d, uint8_t *dst, const lmc_block_info *info,
                                       enum lmc__order order, uint32_t *crc)
{
    const size_t n = info->n;
    const uint8_t *const head = lmc__take(d, LMC__MATRIX_HEAD_SIZE);
    uint8_t *const prediction = d->kept ? dst : lmc__push_list(&d->stack, info->size),
                   *const spare = lmc__push_list(&d->stack, n);
    lmc__matrix r;
    LMC__CHECK(prediction && spare, LMC_ERR_WORKSPACE);
    LMC__VALID(head);
    r.n_columns = lmc__load32(head);
    r.first = lmc__load32(head + 4);
    r.shift = head[8];
    LMC__VALID(r.n_columns >= 1 && r.n_columns <= n && r.first < r.n_columns &&
               r.shift < 8 * info->width);                 /* M-1 to M-3 */
    r.n_rows = lmc__count_groups(r.first, n, r.n_columns); /* at most n */
    LMC__TRY(lmc__get_row(d, &r.low, spare, r.n_rows));
    LMC__TRY(lmc__get_row(d, &r.high, spare, r.n_rows));
    LMC__TRY(lmc__get_row(d, &r.column, spare, r.n_columns));
    LMC__VALID(lmc__are_sums_in_reach(&r, info->width)); /* M-4 */
    LMC__CHECK(lmc__predict_matrix(&d->stack, prediction, n, info->width, &r), LMC_ERR_WORKSPACE);
    d->stack.top = spare;
    return lmc__get_delta(d, dst, prediction, info, order, 0, crc); /* as one class */
}

/* == codec/get_codes.h ========================================================================= */

/* Decodes the payload of a block of codes with scales (spec/codes.md):
 *
 *     head | four lists: the bytes of scales, low ones first | codes
 *
 * dst is written when all of the payload is decoded. */
static enum lmc_status lmc__get_codes(lmc__decoder *d, uint8_t *dst, const lmc_block_info *info,
                                      uint32_t *crc)
{
    const size_t n = info->n;
    const uint8_t *const head = lmc__take(d, LMC__CODES_HEADER), *codes;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    uint32_t group_size, first, *scales;
    lmc__code_form form;
    size_t n_groups, i;
    lmc__side side;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__VALID(head);
    form.mantissa = head[0];
    form.is_half = head[1];
    form.width = info->width;
    group_size = lmc__load32(head + 2);
    first = lmc__load32(head + 6);
    LMC__VALID(head[0] >= 2 && head[0] <= 7 && head[1] <= (info->width == 2)); /* K-1, K-2 */
    LMC__VALID(group_size >= LMC__LEAST_CODED_GROUP && group_size <= 0x7FFFFFFF);
    LMC__VALID(first >= 1 && first <= group_size);
    n_groups = lmc__count_groups(group_size - first, n, group_size);
    scales = lmc__push_numbers(&d->stack, n_groups);
    LMC__CHECK(scales, LMC_ERR_WORKSPACE);
    memset(scales, 0, 4 * n_groups);
    for (p = 0; p < 4; p++) {
        uint8_t *const top = d->stack.top;
        LMC__TRY(lmc__get_list(d, &side, spare, n_groups));
        for (i = 0; i < n_groups; i++)
            scales[i] |= (uint32_t)(side.list ? side.list[i] : side.value) << 8 * p;
        d->stack.top = top;
    }
    for (i = 0; i < n_groups; i++)
        LMC__VALID(scales[i] >= LMC__MIN_SCALE && scales[i] <= LMC__MAX_CODED_SCALE); /* K-5 */
    LMC__TRY(lmc__get_row(d, &codes, spare, n));
    LMC__VALID(d->in == d->end);
    form.group_size = group_size;
    lmc__set_numbers(&form);
    d->k->restore_codes(dst, codes, n, &form, scales, first);
    *crc = d->k->crc32c(0, dst, info->size);
    return LMC_OK;
}

/* == codec/get_quantised.h ===================================================================== */

/* Decodes quantised blocks (spec/quantised.md; terms: quant_params.h). Their payload is
 *
 *   head | table | positions, values of exceptions | scales | Low | High
 *
 * It is checked in this order: each number of the head, their combinations, the table, the
 * positions and the scales. Then the lists are decoded (get_list.h), and the largest code is
 * compared with the table's size. Only then elements are restored. Restoring cannot fail: every
 * symbol is a point of every grid, and the kernel restore clamps (kernels/grids.h). Strips of
 * elements stay in the first cache:
 *   High, Low --> symbols --> F32 --(BF16: rounded)--> exceptions replaced --> CRC --> dst
 *
 * dst may be the prediction: a strip's prediction is read before its elements are written. */

#ifndef LMC_NO_QUANTIZE

/* The payload up to its codes. Its pointers are into the payload and the workspace. */
typedef struct lmc__quantized_head {
    lmc__quant_params params; /* without codes and the grid's n_points */
    uint64_t first;           /* elements of the first group that are in earlier blocks */
    size_t n_groups;          /* 0 if scales follow from the prediction */
    uint32_t n_exceptions;
    const uint8_t *positions, *values; /* of exceptions: u32 indices, ascending; elements */
} lmc__quantized_head;

/* Every payload begins with these 32 bytes:
 *    0  Method   1  Low_Bits   2  Table_Size   4  Min    8  Step   12  Bias   16  Floor
 *   20  Group_Size   24  First_Group   28  N_Exceptions
 *
 * The limits keep Min + a symbol, and Bias + half the bits of any float, within 32 bits. */
static enum lmc_status lmc__parse_quantized_head(lmc__quantized_head *head, const uint8_t *p,
                                                 const lmc_block_info *info)
{
    lmc__quant_params *const q = &head->params;
    const size_t n = info->n;
    const uint32_t min = lmc__load32(p + 4), bias = lmc__load32(p + 12),
                   group_size = lmc__load32(p + 20), first_group = lmc__load32(p + 24);
    memset(head, 0, sizeof *head);
    LMC__VALID(p[0] <= (LMC__METHOD_LOG | LMC__METHOD_SIGNED | LMC__METHOD_TABLE));
    q->width = info->width;
    q->is_predicted = info->has_prediction;
    q->grid.is_log = (p[0] & LMC__METHOD_LOG) != 0;
    q->grid.is_signed = (p[0] & LMC__METHOD_SIGNED) != 0;
    q->low_bits = p[1];
    q->table_size = lmc__load16(p + 2);
    LMC__VALID(min == 0 || min >= 0u - 65535u);
    q->grid.min = -(int32_t)(0u - min); /* so that no number above INT32_MAX is converted */
    q->grid.step = lmc__load32(p + 8);
    LMC__VALID(bias + (1u << 30) <= 1u << 31);
    q->grid.bias = bias <= 1u << 30 ? (int32_t)bias : -(int32_t)(0u - bias);
    q->grid.floor = lmc__load32(p + 16);
    q->group_size = group_size;
    head->n_exceptions = lmc__load32(p + 28);
    /* Linear points are signed without Method's bit. With a table there are no low bits. */
    LMC__VALID(q->grid.is_log || !q->grid.is_signed);
    LMC__VALID(p[0] & LMC__METHOD_TABLE
                   ? q->table_size >= 1 && q->table_size <= 255 && q->low_bits == 0
                   : q->table_size == 0 && q->low_bits <= LMC__MAX_LOW_BITS);
    LMC__VALID(q->grid.is_log ? q->grid.step >= 1 && q->grid.step <= 1u << 24 : q->grid.step == 0);
    /* Scales follow from the prediction or are in the block; unused fields are 0. */
    if (info->has_prediction) {
        LMC__VALID(!q->grid.is_log && q->grid.floor <= 0x7F800000u && group_size == 0 &&
                   first_group == 0);
    } else {
        LMC__VALID(q->grid.bias == 0 && q->grid.floor == 0);
        LMC__VALID(group_size >= 1 && group_size <= 0x7FFFFFFFu && first_group >= 1 &&
                   first_group <= group_size);
        head->first = group_size - first_group;
        head->n_groups = lmc__count_groups(head->first, n, group_size);
    }
    LMC__VALID(head->n_exceptions <= n); /* so that the sizes in lmc__get_quantized_head fit in
                                            size_t */
    return LMC_OK;
}

/* Reads the payload up to Low; spare: a list of info->n, which is enough for the scales' bytes, as
 * there are not more groups than elements. Tables and positions ascend strictly: each has one form.
 * One check covers the sizes of table, positions and values: n_exceptions is at most n, so their
 * sum is at most 2 * 255 + 6 * 2^21. The limits of scales keep every point normal and finite. */
static enum lmc_status lmc__get_quantized_head(lmc__decoder *d, lmc__quantized_head *head,
                                               const lmc_block_info *info, uint8_t *spare)
{
    lmc__quant_params *const q = &head->params;
    lmc__side bytes[2];
    uint32_t previous, i;
    size_t group;
    LMC__VALID((size_t)(d->end - d->in) >= LMC__QUANTIZED_HEADER);
    LMC__TRY(lmc__parse_quantized_head(head, d->in, info));
    d->in += LMC__QUANTIZED_HEADER;
    LMC__VALID((size_t)(d->end - d->in) >=
               2 * (size_t)q->table_size + (4 + info->width) * (size_t)head->n_exceptions);
    for (i = 1, previous = 0; i <= q->table_size; i++, d->in += 2) {
        q->table[i] = lmc__load16(d->in);
        LMC__VALID(q->table[i] > previous);
        previous = q->table[i];
    }
    head->positions = d->in;
    for (i = 0; i < head->n_exceptions; i++, d->in += 4) {
        const uint32_t position = lmc__load32(d->in);
        LMC__VALID(position < info->n && (i == 0 || position > previous));
        previous = position;
    }
    head->values = d->in;
    d->in += info->width * (size_t)head->n_exceptions;
    if (info->has_prediction) return LMC_OK;
    for (i = 0; i < 2; i++) LMC__TRY(lmc__get_list(d, &bytes[i], spare, head->n_groups));
    q->scales = (uint16_t *)(void *)lmc__push_numbers(&d->stack, (head->n_groups + 1) / 2);
    LMC__CHECK(q->scales, LMC_ERR_WORKSPACE);
    for (group = 0; group < head->n_groups; group++) {
        const unsigned low = bytes[0].list ? bytes[0].list[group] : bytes[0].value,
                       high = bytes[1].list ? bytes[1].list[group] : bytes[1].value,
                       scale = high << 8 | low;
        /* A linear point is at most 2^16 scales, and must be finite. */
        LMC__VALID(scale >= LMC__MIN_SCALE >> 16 &&
                   scale <= (q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16);
        q->scales[group] = (uint16_t)scale;
    }
    return LMC_OK;
}

/* 1 if one of n bytes is more than limit. Compares eight bytes at a time. Let low(v) be the lower 7
 * bits of v. low(byte) + 127 - low(limit) has bit 7 if low(byte) > low(limit), which decides if
 * byte and limit have the same top bit. If limit is below 128, a byte with the top bit is always
 * more (or). Else a byte without the top bit is never more (and). */
static int lmc__has_more(const uint8_t *p, size_t n, unsigned limit)
{
    const uint64_t ones = UINT64_MAX / 255, low7 = 0x7F * ones, add = (127 - (limit & 0x7F)) * ones;
    uint64_t more = 0;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const uint64_t v = lmc__load64(p + i), carry = (v & low7) + add;
        more |= limit < 128 ? carry | v : carry & v;
    }
    more &= 0x80 * ones;
    for (; i < n; i++) more |= p[i] > limit;
    return more != 0;
}

/* Codes [at, at + n) of a side. A constant is first written to `room`, n times. */
static const uint8_t *lmc__codes_at(const lmc__side *side, size_t at, size_t n, uint8_t *room)
{
    if (side->list) return side->list + at;
    memset(room, side->value, n);
    return room;
}

/* Restores all elements from checked codes; returns their CRC. base: the prediction, which may be
 * dst; NULL if groups have scales. */
static uint32_t lmc__restore_elements(const lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, const lmc__quantized_head *head,
                                      const lmc__side *high, const lmc__side *low)
{
    const lmc__quant_params *const q = &head->params;
    const unsigned width = info->width;
    uint8_t room[4 * LMC__QUANTIZED_STRIP], high_room[LMC__QUANTIZED_STRIP],
        low_room[LMC__QUANTIZED_STRIP];
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    size_t i, j, n, exception = 0, place;
    uint32_t crc = 0;
    for (i = 0; i < info->n; i += n) {
        /* A strip that is streamed (d->streaming) is restored in `room`, where its CRC is read. */
        uint8_t *const to = dst + i * width, *const out = d->streaming.is_on ? room : to;
        const uint8_t *codes;
        n = lmc__min(info->n - i, LMC__QUANTIZED_STRIP);
        codes = lmc__codes_at(high, i, n, high_room);
        if (q->table_size)
            for (j = 0; j < n; j++) symbols[j] = q->table[codes[j]];
        else
            d->k->join_symbols(symbols, codes,
                               q->low_bits ? lmc__codes_at(low, i, n, low_room) : NULL, n,
                               q->low_bits);
        lmc__restore_strip(d->k, q, out, symbols, base ? base + i * width : NULL, head->first + i,
                           n);
        LMC__PREFETCH((const void *)((uintptr_t)to + 2 * sizeof room)); /* the TLB's next page */
        /* Exceptions come last, so that no kernel changes them: a NaN keeps its bits. */
        for (; exception < head->n_exceptions &&
               (place = lmc__load32(head->positions + 4 * exception)) < i + n;
             exception++)
            memcpy(out + width * (place - i), head->values + width * exception, width);
        crc = d->k->crc32c(crc, out, n * width);
        if (out != to) d->k->stream(to, out, n * width);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return crc;
}

/* Decodes the payload of a quantised block. base: the prediction, which may be dst; or NULL. */
static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__quantized_head head;
    lmc__side high, low = {NULL, 0};
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantized_head(d, &head, info, spare));
    if (head.params.low_bits) LMC__TRY(lmc__get_list(d, &low, spare, n));
    LMC__TRY(lmc__get_list(d, &high, spare, n));
    LMC__VALID(d->in == d->end);
    /* This holds for exceptions, too: their codes are looked up with the others. */
    if (head.params.table_size)
        LMC__VALID(high.list ? !lmc__has_more(high.list, n, head.params.table_size)
                             : high.value <= head.params.table_size);
    LMC__TRY(lmc__keep(d, dst, base, info->size));
    *crc = lmc__restore_elements(d, dst, base, info, &head, &high, &low);
    return LMC_OK;
}
#else

static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    (void)d, (void)dst, (void)base, (void)info, (void)crc;
    return LMC_ERR_UNSUPPORTED;
}
#endif

/* == codec/get_block.h ========================================================================= */

/* Decodes a block. Header, payload and content are each checked before they are used. The checks in
 * order, each with its status on failure:
 *   sync, header CRC, fields      CORRUPT, CHECKSUM, UNSUPPORTED
 *   all of the payload is there   TRUNCATED
 *   a prediction has its size     BASE_WRONG
 *   Payload_CRC                   CHECKSUM
 *   there is a prediction         BASE_MISSING
 *   lists, masks, tails           CORRUPT; only then dst is written (or before, if it is kept)
 *   Content_CRC                   CHECKSUM
 *   the last two, if predicted    BASE_WRONG instead
 *
 * With a prediction the payload has its own CRC. If that CRC is right, a later error means a wrong
 * prediction; or a damaged file, if the prediction comes from the same file. No payload can cause
 * an access outside of the buffers, and time is in proportion to the number of elements. A
 * workspace of lmc_block_workspace_size() is enough for any payload. */

/* Decodes the payload of a block that is not stored: quantised elements; else classes, if there is
 * a prediction; else planes, perhaps with zeros apart or predicted by rows and columns. base: the
 * prediction, or NULL. */
static enum lmc_status lmc__get_payload(lmc__decoder *d, uint8_t *dst, const uint8_t *src,
                                        const lmc_block_info *info, const uint8_t *base,
                                        uint32_t *crc)
{
    const unsigned coding = src[2], grouping = src[3];
    const enum lmc__order order = (enum lmc__order)(coding & 3);
    if (coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_QUANTIZED)
        return lmc__get_quantized(d, dst, base, info, crc);
    if (base) return lmc__get_delta(d, dst, base, info, order, grouping, crc);
    if (coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_ZEROS)
        return lmc__get_zeros(d, dst, info->n, info->width, order, crc);
    if (coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_MATRIX)
        return lmc__get_matrix(d, dst, info, order, crc);
    if (coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_CODES) return lmc__get_codes(d, dst, info, crc);
    return lmc__get_planes(d, dst, info->n, info->width, order, crc);
}

/* Decodes the payload of a block with a prediction. The payload's CRC is right, so an error means a
 * wrong prediction: the status is BASE_WRONG, unless is_own. After an error, overwritten bytes of
 * the prediction are restored. */
static enum lmc_status lmc__get_predicted(lmc__decoder *d, uint8_t *dst, const uint8_t *src,
                                          const lmc_block_info *info, const uint8_t *base,
                                          int is_own)
{
    uint32_t crc;
    enum lmc_status status = lmc__get_payload(d, dst, src, info, base, &crc);
    if (status == LMC_OK && crc != info->crc) {
        if (d->kept) memcpy(dst, d->kept, info->size);
        lmc__put_back(dst, &d->undo, info->width);
        status = LMC_ERR_CHECKSUM;
    }
    if (!is_own && (status == LMC_ERR_CORRUPT || status == LMC_ERR_CHECKSUM))
        status = LMC_ERR_BASE_WRONG;
    return status;
}

/* Checks the payload of a block with a prediction by its CRC: all that is possible without it. */
static enum lmc_status lmc__check_payload(const lmc__kernels *k, const uint8_t *src,
                                          const lmc_block_info *info)
{
    LMC__CHECK(k->crc32c(0, src + LMC_BLOCK_HEADER_SIZE,
                         info->encoded_size - LMC_BLOCK_HEADER_SIZE) == info->payload_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* info was read from src, which has info->encoded_size bytes; dst has room for info->size; ws is
 * large enough. streaming.sum gets the sum64 of dst, or is NULL. base: info->size bytes, or NULL.
 * If the block has no prediction, base is used only if it equals dst: then a damaged block leaves
 * dst unchanged. is_own: base comes from the same file as the block. */
static enum lmc_status lmc__decode_block(const lmc__kernels *k, uint8_t *dst,
                                         lmc__streaming streaming, const uint8_t *src,
                                         const lmc_block_info *info, const uint8_t *base,
                                         int is_own, void *ws, size_t ws_size)
{
    uint32_t crc = info->crc;
    const unsigned layout = src[2] >> LMC__LAYOUT_SHIFT;
    const int is_joined =
        !info->has_prediction && (layout == LMC__LAYOUT_PLANES || layout == LMC__LAYOUT_ZEROS);
    uint64_t *const sum = is_joined ? NULL : streaming.sum; /* else join_root computes it */
    if (sum) streaming.is_on = 0;                           /* computed below, from dst */
#ifdef LMC__COUNT_DECODED /* fuzz/fuzz_work.c looks for files that cost too much */
    LMC__COUNT_DECODED(info->size);
#endif
    if (info->is_stored) {
        if (dst == base)
            LMC__CHECK(k->crc32c(0, src + LMC_BLOCK_HEADER_SIZE, info->size) == info->crc,
                       LMC_ERR_CHECKSUM);
        memcpy(dst, src + LMC_BLOCK_HEADER_SIZE, info->size);
        crc = k->crc32c(0, dst, info->size);
    } else {
        lmc__decoder d;
        memset(&d, 0, sizeof d);
        d.k = k;
        d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
        d.in = src + LMC_BLOCK_HEADER_SIZE;
        d.end = src + info->encoded_size;
        d.streaming = streaming;
        if (info->has_prediction) {
            LMC__TRY(lmc__check_payload(k, src, info));
            LMC__CHECK(base, LMC_ERR_BASE_MISSING);
            LMC__TRY(lmc__get_predicted(&d, dst, src, info, base, is_own));
        } else {
            enum lmc_status status;
            LMC__TRY(lmc__keep(&d, dst, base, info->size));
            status = lmc__get_payload(&d, dst, src, info, NULL, &crc);
            if ((status != LMC_OK || crc != info->crc) && d.kept) memcpy(dst, d.kept, info->size);
            LMC__TRY(status);
        }
    }
    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);
#ifndef LMC_NO_SNAPSHOT
    if (sum) *sum = k->sum64(dst, info->size);
#endif
    return LMC_OK;
}

/* Errors of the header come before those of sizes: a caller needs the header to know these. */
LMC_API enum lmc_status lmc_block_decode(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size,
                                         const lmc_block_options *options, void *ws, size_t ws_size)
{
    const lmc__kernels *k = lmc__get_kernels();
    lmc_block_options o;
    lmc_block_info info;
    if (!dst || !dst_size || !src || !ws) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, prediction_size, options));
    LMC__TRY(lmc__read_block_info(k, (const uint8_t *)src, src_size, o.number, &info));
    LMC__CHECK(info.encoded_size <= src_size, LMC_ERR_TRUNCATED);
    LMC__VALID(info.encoded_size == src_size);
    if (info.size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    if (!lmc__is_workspace(ws_size, info.n, info.width)) return LMC_ERR_WORKSPACE;
    if (info.has_prediction && o.prediction)
        LMC__CHECK(o.prediction_size == info.size, LMC_ERR_BASE_WRONG);
    LMC__TRY(lmc__decode_block(k, (uint8_t *)dst, lmc__no_streaming, (const uint8_t *)src, &info,
                               (const uint8_t *)o.prediction, 0, ws, ws_size));
    *dst_size = info.size;
    return LMC_OK;
}

/* == tensor/wave.h ============================================================================= */

/* Codes blocks in parallel. A *job* is the work on one block. A *wave* is the jobs that the
 * caller's parallel_for runs at once, each on the workspace of the worker that takes it. Jobs share
 * no memory that is written, so any order gives the same bytes.
 *
 *     plan       one thread fills jobs[0 .. n): src, dst, options
 *     run        parallel->run: task(arg, i, worker) for each i, on any thread, in any order
 *     gather     one thread reads jobs[i].status and dst_size, in order
 *
 * Only parallel->run synchronises: tasks see what was planned before the call, and their results
 * are seen after it. The library takes no locks. */

typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;      /* NULL if jobs are part of larger structs */
    uint8_t *workspaces; /* one for each worker, workspace_size bytes each */
    size_t workspace_size;
    size_t temp_size; /* at each workspace's end: room for a block of which a part is kept */
} lmc__wave;

/* For each worker in a wave: jobs (several, so that fewer workers wait at the wave's end), and the
 * limit of their decoded bytes. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

/* Without a parallel_for the calling thread is worker 0. */
static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}

static enum lmc_status lmc__check_parallel(const lmc_parallel *parallel)
{
    if (!parallel) return LMC_OK;
    LMC__CHECK_CALLBACKS(parallel, run);
    return parallel->n_workers - 1 < 1024 ? LMC_OK : LMC_ERR_ARGUMENT;
}
/* Jobs of one wave of blocks of block_size decoded bytes: at least one for each worker. */
static size_t lmc__count_jobs(const lmc_parallel *parallel, size_t block_size)
{
    const size_t n = LMC__WAVE_BYTES_PER_WORKER / block_size;
    return (n ? lmc__min(n, LMC__JOBS_PER_WORKER) : 1) * lmc__count_workers(parallel);
}

/* Runs task(arg, i, worker) for i below n; returns when all have returned. */
static void lmc__run_tasks(const lmc_parallel *parallel, lmc_task task, void *arg, size_t n)
{
    size_t i;
    if (parallel && n > 1) parallel->run(parallel->user, task, arg, n, parallel->n_workers);
    else
        for (i = 0; i < n; i++) task(arg, i, 0);
}

/* Decodes a job's block, whose header was read to job->info. Returns a pointer to its whole
 * content, which is valid until the worker's next job if job->status is LMC_OK. */
static const uint8_t *lmc__decode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const int is_whole = job->keep == job->info.size;
    uint8_t *content = is_whole ? job->dst : ws + wave->workspace_size - wave->temp_size;
    job->status =
        lmc__decode_block(wave->k, content, job->streaming, job->src, &job->info, job->base,
                          job->is_own, ws, wave->workspace_size - wave->temp_size);
    if (job->status == LMC_OK && !is_whole) memcpy(job->dst, content + job->skip, job->keep);
    return content;
}

static void lmc__decode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    (void)lmc__decode_job(wave, &wave->jobs[index], worker);
}

/* The first error in the order of the jobs: that which a single worker would have found first. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}

/* == tensor/tensor.h =========================================================================== */

/* Tensors in memory: an array of any length becomes a sequence of blocks, without another header
 * (spec 10). All blocks have the decoded size of the first block; only the last block may be
 * smaller. Blocks are coded in *waves* (wave.h): as many blocks at once as keep all workers busy.
 *
 * The caller's workspace: the jobs of two waves, then for each worker a block's workspace with room
 * for one decoded block behind it. */

/* Decoded tensors of this size or more do not stay in caches: they are written past them. */
#define LMC__STREAM_FROM ((size_t)8 << 20)

/* Elements per block without a prediction. Smaller blocks need more headers and trees; in larger
 * blocks one tree fits less well. Bytes, whose trees are the largest, have 2^18 (of AUTO 2^17). */
#define LMC__DEFAULT_LOG2_BLOCK 16u

/* With a prediction blocks are larger: deltas hardly vary within a tensor, and headers and trees
 * are most of a sparse delta. Deltas of elements of 4 and 8 bytes are seldom sparse. */
#define LMC__DELTA_LOG2_BLOCK 20u
#define LMC__WIDE_DELTA_LOG2_BLOCK 18u

/* Decoded bytes per block, or 0 if the options are illegal: a power of two, from 2^14 to 2^22
 * elements, at most 4 MiB (spec 4.2). */
static size_t lmc__get_block_size(enum lmc_dtype dtype, unsigned log2_block, int has_prediction)
{
    unsigned log2_width;
    if ((unsigned)dtype >= LMC__DTYPE_COUNT) return 0;
    log2_width = lmc__lowest_bit(lmc_dtype_width(dtype));
    if (log2_block != 0 &&
        (log2_block < 14 || log2_block > 22 || log2_block + log2_width > LMC__MAX_LOG2_BLOCK))
        return 0;
    if (log2_block == 0) {
        if (has_prediction)
            log2_block = log2_width <= 1 ? LMC__DELTA_LOG2_BLOCK : LMC__WIDE_DELTA_LOG2_BLOCK;
        else log2_block = LMC__DEFAULT_LOG2_BLOCK + (log2_width ? 0u : dtype ? 2u : 1u);
    }
    return (size_t)1 << (log2_block + log2_width);
}

/* lmc__get_block_size for a tensor's options. Any quantiser counts as a prediction, so that block
 * sizes do not depend on how the quantiser was fitted. */
static size_t lmc__get_tensor_block_size(const lmc_tensor_options *options)
{
    if (lmc__check_parallel(options->parallel) || !lmc__is_level(options->level)) return 0;
    return lmc__get_block_size(options->dtype, options->log2_block,
                               options->prediction != NULL || options->quantizer != NULL);
}

static size_t lmc__take_tensor_options(lmc_tensor_options *o, const lmc_tensor_options *given)
{
    return given && LMC__TAKE_OPTIONS(o, row_size, given) == LMC_OK ? lmc__get_tensor_block_size(o)
                                                                    : 0;
}

/* Lays out the workspace ws, which may be NULL, and returns the size that it needs. It has the jobs
 * of two waves, because one wave is packed while the next one is encoded.
 *
 *     ws  | up to 15 | jobs of two waves | worker 0               | worker 1               | ...
 *         | to align |                   | workspace | temp block | workspace | temp block |
 *
 * A decoder uses the temp block for a block of which only a part is needed. */
static size_t lmc__set_tensor_wave(lmc__wave *wave, const lmc_tensor_options *options,
                                   size_t block_size, void *ws)
{
    const size_t jobs_size = 2 * lmc__count_jobs(options->parallel, block_size) * sizeof(lmc__job);
    const size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    uint64_t needed;
    memset(wave, 0, sizeof *wave);
    wave->k = lmc__get_kernels();
    wave->temp_size = block_size;
    wave->workspace_size = lmc_block_workspace_size(block_size / lmc_dtype_width(options->dtype),
                                                    lmc_dtype_width(options->dtype)) +
                           block_size;
    if (ws) {
        wave->jobs = (lmc__job *)(void *)((uint8_t *)ws + skip);
        wave->workspaces = (uint8_t *)ws + skip + jobs_size;
    }
    needed =
        16 + jobs_size + (uint64_t)lmc__count_workers(options->parallel) * wave->workspace_size;
    return (size_t)lmc__min64(needed, SIZE_MAX); /* 1024 workers can need more than 32 bits */
}

LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options)
{
    lmc_tensor_options o;
    const size_t block_size = lmc__take_tensor_options(&o, options);
    lmc__wave wave;
    return block_size ? lmc__set_tensor_wave(&wave, &o, block_size, NULL) : 0;
}

static enum lmc_status lmc__allocate_workspace(void **ws, size_t *ws_size,
                                               const lmc_tensor_options *options)
{
    *ws_size = lmc_tensor_workspace_size(options);
    if (*ws_size == 0) return LMC_ERR_ARGUMENT;
    *ws = lmc__realloc(NULL, NULL, 0, *ws_size);
    return *ws ? LMC_OK : LMC_ERR_MEMORY;
}

/* == tensor/decode_tensor.h ==================================================================== */

/* Decodes a range of a tensor. Only a block's header says how long the block is, so all headers
 * from the first block on are read and checked. Blocks before the range are then skipped.
 *
 *     src      | h ### | h ## | h #### | h ### | h # |      h: header; ###: payload
 *     tensor   |   0   |  1   |   2    |   3   |  4  |      equal decoded sizes, except the last
 *     range                [first ......... last)
 *                       part    whole    part
 *
 * A block that is completely in the range is decoded to dst. Another block is decoded to the end of
 * the worker's workspace, and its part is copied. Each block reads the prediction only at its own
 * place. So dst may be the prediction if the whole tensor is decoded. */
typedef struct lmc__tensor_decoding {
    const uint8_t *src;
    size_t src_size;
    uint8_t *dst;         /* of the range */
    uint64_t first, last; /* the range: bytes [first, last) of the tensor */
    uint64_t total_size;
    const lmc_tensor_options *options;
    lmc__wave wave;
    size_t used;         /* bytes of src that have been read or skipped */
    uint64_t at, block;  /* offset of the next block in the tensor, and its number */
    uint64_t block_size; /* decoded bytes of all blocks but the last; 0: unknown */
} lmc__tensor_decoding;

/* Reads the next block's header into job, and moves behind the block. The decoded size must be that
 * of the first block, or the rest of the tensor: so blocks cannot overlap or leave gaps. */
static enum lmc_status lmc__next_block(lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const src = t->src + t->used;
    const size_t left = t->src_size - t->used;
    LMC__VALID(t->block <= UINT32_MAX);
    job->number = (uint32_t)t->block++;
    LMC__TRY(lmc__read_block_info(t->wave.k, src, left, job->number, &job->info));
    LMC__CHECK(job->info.encoded_size <= left, LMC_ERR_TRUNCATED);
    if (t->block_size == 0) t->block_size = job->info.size;
    LMC__VALID(job->info.size == lmc__min64(t->block_size, t->total_size - t->at));
    job->src = src;
    t->used += job->info.encoded_size;
    t->at += job->info.size;
    return LMC_OK;
}

/* Sets the other members of a job whose block ends behind the start of the range: where its bytes
 * are written, and whether past the caches. If so, the next block's bytes or prediction are
 * prefetched, because slow stores delay loads.
 *
 * A block of another log2_block may be too large for the workspace: this is checked here. */
static enum lmc_status lmc__plan_decoding(const lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const base = (const uint8_t *)t->options->prediction;
    const uint64_t start = t->at - job->info.size; /* offset of the block in the tensor */
    const size_t temp_size = t->wave.temp_size;
    job->base = base && job->info.has_prediction ? base + (size_t)start : NULL;
    job->is_own = 0;
    job->skip = start < t->first ? (size_t)(t->first - start) : 0;
    job->keep = (size_t)lmc__min64(job->info.size - job->skip, t->last - (start + job->skip));
    job->dst = t->dst + (size_t)(start + job->skip - t->first);
    job->streaming = lmc__no_streaming;
    if (t->last - t->first >= LMC__STREAM_FROM && job->keep == job->info.size) {
        job->streaming.is_on = 1;
        job->streaming.next = t->src + t->used;
        job->streaming.next_size = lmc__min(t->src_size - t->used, job->info.encoded_size);
        if (job->base) { /* a prediction has more bytes than the payload */
            job->streaming.next = base + (size_t)t->at;
            job->streaming.next_size = (size_t)lmc__min64(t->total_size - t->at, job->info.size);
        }
    }
    /* before the workspace, which is larger with a prediction */
    LMC__CHECK(base || !job->info.has_prediction, LMC_ERR_BASE_MISSING);
    if (!lmc__is_workspace(t->wave.workspace_size - temp_size, job->info.n, job->info.width) ||
        (job->keep != job->info.size && job->info.size > temp_size))
        return LMC_ERR_WORKSPACE;
    return LMC_OK;
}

/* In a loop, reads up to max_jobs headers, then decodes their blocks as a wave. Bytes behind the
 * last block are an error only if the range is the whole tensor. */
LMC_API enum lmc_status lmc_tensor_decode_range(void *dst, size_t size, const void *src,
                                                size_t src_size, uint64_t offset,
                                                uint64_t total_size,
                                                const lmc_tensor_options *options, void *ws,
                                                size_t ws_size)
{
    size_t temp_size, max_jobs;
    lmc_tensor_options o;
    lmc__tensor_decoding t;
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, row_size, options));
    LMC__TRY(lmc__check_parallel(o.parallel));
    options = &o;
    if (!ws) {
        enum lmc_status status;
        LMC__TRY(lmc__allocate_workspace(&ws, &ws_size, options));
        status = lmc_tensor_decode_range(dst, size, src, src_size, offset, total_size, options, ws,
                                         ws_size);
        (void)lmc__realloc(NULL, ws, ws_size, 0);
        return status;
    }
    temp_size = lmc__get_tensor_block_size(options);
    if (temp_size == 0 || (!src && src_size) || (!dst && size) || offset > total_size ||
        size > total_size - offset)
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != total_size) return LMC_ERR_BASE_WRONG;
    LMC__CHECK(src_size != 0 || size == 0, LMC_ERR_TRUNCATED); /* src may be NULL */
    memset(&t, 0, sizeof t);
    t.src = (const uint8_t *)src;
    t.src_size = src_size;
    t.dst = (uint8_t *)dst;
    t.first = offset;
    t.last = offset + size;
    t.total_size = total_size;
    t.options = options;
    lmc__set_tensor_wave(&t.wave, options, temp_size, ws);
    max_jobs = lmc__count_jobs(options->parallel, temp_size);
    while (size != 0 && t.at < t.last) {
        size_t n = 0;
        while (n < max_jobs && t.at < t.last) {
            lmc__job *const job = &t.wave.jobs[n];
            LMC__TRY(lmc__next_block(&t, job));
            if (t.at <= t.first) continue; /* ends before the range */
            LMC__TRY(lmc__plan_decoding(&t, job));
            n++;
        }
        lmc__run_tasks(options->parallel, lmc__decode_task, &t.wave, n);
        LMC__TRY(lmc__wave_status(&t.wave, n));
    }
    if (offset == 0 && size == total_size) LMC__VALID(t.used == src_size);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_tensor_decode(void *dst, size_t size, const void *src, size_t src_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    return lmc_tensor_decode_range(dst, size, src, src_size, 0, size, options, ws, ws_size);
}

#ifndef LMC_NO_SNAPSHOT
/* == snapshot/buffer.h ========================================================================= */

/* Memory that grows. All code above the codec allocates with it, so overflows are checked in one
 * place: a buffer has at most SIZE_MAX / 2 bytes. When the buffer grows, `data` may move. `data` is
 * aligned as malloc aligns. */
typedef struct lmc__buffer {
    uint8_t *data; /* NULL: no memory yet */
    size_t size, cap;
    const lmc_allocator *allocator; /* or NULL */
} lmc__buffer;

static void lmc__init_buffer(lmc__buffer *b, const lmc_allocator *allocator)
{
    memset(b, 0, sizeof *b);
    b->allocator = allocator;
}

/* Frees the memory. The buffer can be used again. */
static void lmc__free_buffer(lmc__buffer *b)
{
    if (b->data) (void)lmc__realloc(b->allocator, b->data, b->cap, 0);
    b->data = NULL;
    b->size = b->cap = 0;
}

/* The buffers of a struct are neighbouring members. One call sets up or frees all buffers from the
 * member `first` up to the member before `next`. */
#define LMC__ROW(type, first, next) offsetof(type, first), offsetof(type, next)

static void lmc__init_buffers(void *object, size_t from, size_t to, const lmc_allocator *allocator)
{
    for (; from < to; from += sizeof(lmc__buffer))
        lmc__init_buffer((lmc__buffer *)(void *)((uint8_t *)object + from), allocator);
}

static void lmc__free_buffers(void *object, size_t from, size_t to)
{
    for (; from < to; from += sizeof(lmc__buffer))
        lmc__free_buffer((lmc__buffer *)(void *)((uint8_t *)object + from));
}

/* Makes room for `more` bytes after the bytes in use. Capacity grows by half at least, so appending
 * n bytes one by one takes time O(n). On errors nothing changes. */
static enum lmc_status lmc__reserve(lmc__buffer *b, uint64_t more)
{
    uint64_t needed, cap;
    void *data;
    if (more <= b->cap - b->size) return LMC_OK;
    if (more > SIZE_MAX / 2 - b->size) return LMC_ERR_SIZE;
    needed = b->size + more;
    cap = (uint64_t)b->cap + b->cap / 2;
    cap = cap < needed || cap > SIZE_MAX / 2 ? needed : cap;
    data = lmc__realloc(b->allocator, b->data, b->cap, (size_t)cap);
    if (!data) return LMC_ERR_MEMORY;
    b->data = (uint8_t *)data;
    b->cap = (size_t)cap;
    return LMC_OK;
}

/* Appends `more` bytes: data, or zeros if data is NULL. */
static enum lmc_status lmc__append(lmc__buffer *b, const void *data, size_t more)
{
    LMC__TRY(lmc__reserve(b, more));
    if (data && more) memcpy(b->data + b->size, data, more);
    else if (more) memset(b->data + b->size, 0, more);
    b->size += more;
    return LMC_OK;
}

static enum lmc_status lmc__append32(lmc__buffer *b, uint32_t v)
{
    uint8_t field[4];
    lmc__store32(field, v);
    return lmc__append(b, field, 4);
}

/* == snapshot/sha256.h ========================================================================= */

/* SHA-256 (FIPS 180-4). For fingerprints its speed does not matter: it hashes only names, dtypes,
 * and 12 bytes for each leaf of 256 KiB. Hashes of content are of all bytes.
 *
 *     state   the digest of all whole blocks of 64 bytes so far
 *     block   the bytes after these blocks: size % 64 bytes
 *     size    number of bytes so far
 *
 * A copy of the struct can take more bytes, independently of the original. */
typedef struct lmc__sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
} lmc__sha256;

/* The initial state: the first 32 bits after the binary point of the square roots of the first 8
 * primes (FIPS 180-4, 5.3.3). */
static void lmc__sha256_init(lmc__sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->size = 0;
}

/* Takes the next size bytes: whole blocks from where they are, others by way of sha->block. */
static void lmc__sha256_update(lmc__sha256 *sha, const void *data, size_t size)
{
    const lmc__kernels *const k = lmc__get_kernels();
    const uint8_t *p = (const uint8_t *)data;
    while (size != 0) {
        const size_t used = (size_t)(sha->size & 63);
        size_t n = lmc__min(64 - used, size);
        if (n == 64) {
            n = size & ~(size_t)63;
            k->sha256(sha->state, p, n / 64);
        } else {
            memcpy(sha->block + used, p, n);
            if (used + n == 64) k->sha256(sha->state, sha->block, 1);
        }
        sha->size += n;
        p += n;
        size -= n;
    }
}

static void lmc__sha256_number(lmc__sha256 *sha, uint64_t number, size_t size)
{
    uint8_t bytes[8];
    lmc__store64(bytes, number);
    lmc__sha256_update(sha, bytes, size);
}

/* Takes the length of the text, as a number of `size` bytes, and then the text. */
static void lmc__sha256_text(lmc__sha256 *sha, const char *text, size_t size)
{
    lmc__sha256_number(sha, strlen(text), size);
    lmc__sha256_update(sha, text, strlen(text));
}

/* Pads the message to whole blocks, as the standard says (5.1.1), and writes the digest:
 *     | message | 80 | zeros | bits of the message, 8 bytes |
 *                             ^ 56 bytes into the last block
 *
 * With `used` bytes in the block, the padding has 1 + (119 - used) % 64 bytes. So the length begins
 * at byte used + 120 - used, which is 56 modulo 64, even if it needs one more block. The number of
 * bits is taken first, because padding changes size. */
static void lmc__sha256_finish(lmc__sha256 *sha, uint8_t digest[32])
{
    static const uint8_t pad[64] = {0x80};
    const uint64_t bits = sha->size * 8;
    uint8_t end[8];
    int i;
    lmc__sha256_update(
        sha, pad,
        1 + (size_t)((119 - (sha->size & 63)) & 63)); /* up to 8 bytes before a block's end */
    for (i = 0; i < 8; i++) end[i] = (uint8_t)(bits >> (56 - 8 * i));
    lmc__sha256_update(sha, end, 8);
    for (i = 0; i < 32; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* Ends a digest and keeps only its first bytes: a fingerprint (spec 7). */
static void lmc__finish_fingerprint(lmc__sha256 *sha, uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    uint8_t digest[32];
    lmc__sha256_finish(sha, digest);
    memcpy(fingerprint, digest, LMC_FINGERPRINT_SIZE);
}

/* == snapshot/order.h ========================================================================== */

/* The sort and the search for all files of src/snapshot. The sort is inlined, so its comparison and
 * the size of an element are constants. */

typedef int (*lmc__compare)(const void *a, const void *b); /* like memcmp: < 0, 0 or > 0 */

/* Heap sort of n elements of `size` bytes. It needs no memory and no recursion, and time n log n
 * even for input that an attacker chose. It is not stable. spare: room for one element.
 *
 * While start > 0, each step adds an element to the heap [start, n). After that, each step moves
 * the largest element, [0], to the end of [0, end), lowers end, and makes the rest a heap again.
 * Each step copies one element to spare and sifts it down from `root`: larger children move up
 * until spare fits into the free place. */
LMC__INLINE void lmc__heap_sort(void *array, size_t n, size_t size, lmc__compare compare,
                                void *spare)
{
    uint8_t *const a = (uint8_t *)array;
    size_t start = n / 2, end = n;
    while (end > 1) {
        size_t root, child;
        if (start > 0) {
            start--;
            memcpy(spare, a + start * size, size);
        } else {
            end--;
            memcpy(spare, a + end * size, size);
            memcpy(a + end * size, a, size);
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && compare(a + child * size, a + (child + 1) * size) < 0) child++;
            if (compare(spare, a + child * size) >= 0) break;
            memcpy(a + root * size, a + child * size, size);
        }
        memcpy(a + root * size, spare, size);
    }
}

/* Sets i to the first number of [low, high) for which the expression is_before (of i) is 0, or to
 * high if there is none. Binary search: all numbers with is_before 1 must come first. */
#define LMC__FIND_FIRST(i, low, high, is_before)                                                   \
    do {                                                                                           \
        size_t lmc__low = (low), lmc__high = (high);                                               \
        while (lmc__low < lmc__high) {                                                             \
            (i) = lmc__low + (lmc__high - lmc__low) / 2;                                           \
            if (is_before) lmc__low = (i) + 1;                                                     \
            else lmc__high = (i);                                                                  \
        }                                                                                          \
        (i) = lmc__low;                                                                            \
    } while (0)

/* == snapshot/fingerprint.h ==================================================================== */

/* Computes the fingerprints of a file's tensors and the CRC of the file (spec 7.1); on request, the
 * hashes of its content, too (hashes.h).
 *
 * A tensor is cut into *leaves* of 256 KiB (the chunks of spec 7.1). Its fingerprint is a SHA-256
 * of its dtype, its shape, and two sums of each leaf. They are the CRC-32C, which blocks need
 * anyway, and the sum of its words. A file is cut into *pieces*: each piece is in one block, and
 * in one leaf or in no tensor:
 *     tensors   |------- A ---------------|  gap  |--- B --|
 *     leaves    |-- 0 ---|-- 1 ---|- 2 ---|       |-- 0 ---|
 *     blocks    |------ 0 ------|------ 1 ------|-- 2 -----|
 *     pieces    |   a    |  b   |c| d     | e   |f|   g    |      (e and f are the gap)
 *
 * Pieces are planned in order (lmc__plan_piece). Workers compute their sums in any order, while the
 * block is in the cache. Then lmc__absorb_piece joins the sums in order, without the bytes
 * (lmc__crc32c_combine). The file's CRC is joined from part_crc: the CRC of the file's bytes in
 * each block. A file without tensors counts as one tensor of bytes. */
#define LMC__HASH_SIZE 32u

typedef struct lmc__piece {
    uint64_t sum; /* sum and crc are set only if in_tensor */
    uint32_t crc;
    uint32_t size;
    int in_tensor;
    unsigned phase; /* the piece begins at this byte of a word of the tensor */
    /* a *part* is one file's bytes in one block; its first piece has its size and CRC, others 0 */
    uint32_t part_size, part_crc;
} lmc__piece;

typedef struct lmc__digester {
    const lmc_file *file;
    /* the next piece begins at byte `planned` of the file, in or before planned_tensor */
    uint64_t planned;
    size_t planned_tensor;
    uint64_t absorbed;    /* bytes of the file */
    size_t tensor;        /* the tensor that is being absorbed, or the next */
    uint64_t tensor_done; /* absorbed bytes of that tensor */
    uint64_t leaf_sum;
    uint32_t leaf_crc, leaf_size, file_crc;
    lmc__sha256 sha;
    /* NULL: no hashes. Else it gets the SHA-256 of each tensor's bytes (computed in `content`) and,
     * when the file ends, of all other bytes (in `outside`); it has room for them */
    lmc__buffer *hashes;
    lmc__sha256 content, outside;
    uint8_t *fingerprints; /* the output: 16 bytes for each tensor, or for the file */
} lmc__digester;

/* Begins the next tensor. `type` makes its digest differ from that of a file or a directory. */
static void lmc__begin_fingerprint(lmc__digester *d)
{
    const uint8_t type = d->file->n_tensors ? 0 : d->file->kind != LMC_FILE_DIRECTORY ? 1 : 2;
    lmc__sha256_init(&d->sha);
    lmc__sha256_update(&d->sha, "LMC tensor 3", 13);
    lmc__sha256_update(&d->sha, &type, 1);
    d->tensor_done = d->leaf_sum = 0;
    d->leaf_crc = d->leaf_size = 0;
}

/* Begins a file. `file` must live as long as d is in use, and its tensors must be in order. */
static void lmc__begin_digester(lmc__digester *d, const lmc_file *file)
{
    memset(d, 0, sizeof *d);
    d->file = file;
    lmc__begin_fingerprint(d);
}

/* Turns on the hashes of content. Call this right after lmc__begin_digester. */
static enum lmc_status lmc__begin_hashes(lmc__digester *d, lmc__buffer *hashes)
{
    d->hashes = hashes;
    lmc__sha256_init(&d->content);
    lmc__sha256_init(&d->outside);
    return lmc__reserve(hashes, LMC__HASH_SIZE * ((uint64_t)d->file->n_tensors + 1));
}

/* Appends the hash of the bytes that sha has taken, and begins the next hash. */
static void lmc__finish_hash(lmc__digester *d, lmc__sha256 *sha)
{
    if (!d->hashes) return;
    lmc__sha256_finish(sha, d->hashes->data + d->hashes->size);
    d->hashes->size += LMC__HASH_SIZE;
    lmc__sha256_init(sha);
}

/* The sum of the words (sum64.h) in size bytes. The first byte is byte `phase` of a word. */
static uint64_t lmc__sum_words(const lmc__kernels *k, const uint8_t *p, size_t size, unsigned phase)
{
    const size_t n = phase ? lmc__min(8 - phase, size) : 0;
    uint8_t head[8] = {0};
    if (n) memcpy(head + phase, p, n);
    return lmc__load64(head) + k->sum64(p + n, size - n);
}

static size_t lmc__count_fingerprints(const lmc_file *file)
{
    return file->n_tensors ? file->n_tensors : 1;
}

/* The next piece, of at most max > 0 bytes. It ends at the latest where a leaf, a tensor, or the
 * gap between two tensors ends. Empty tensors have no pieces. */
static lmc__piece lmc__plan_piece(lmc__digester *d, size_t max)
{
    const lmc_tensor *const tensors = d->file->tensors, *t;
    uint64_t start = 0, end = UINT64_MAX;
    lmc__piece piece;
    memset(&piece, 0, sizeof piece);
    while (d->planned_tensor < d->file->n_tensors &&
           tensors[d->planned_tensor].offset + tensors[d->planned_tensor].size <= d->planned)
        d->planned_tensor++;
    t = d->planned_tensor < d->file->n_tensors ? &tensors[d->planned_tensor] : NULL;
    piece.in_tensor = t ? t->offset <= d->planned : d->file->n_tensors == 0;
    if (t) start = t->offset;
    if (t) end = piece.in_tensor ? start + t->size : start; /* or the end of a gap */
    if (piece.in_tensor) {
        piece.phase = (unsigned)(d->planned - start) % 8;
        end = lmc__min64(end, d->planned + LMC__LEAF_SIZE - (d->planned - start) % LMC__LEAF_SIZE);
    }
    piece.size = (uint32_t)lmc__min64(max, end - d->planned); /* max is at most a block */
    d->planned += piece.size;
    return piece;
}

static void lmc__finish_leaf(lmc__digester *d)
{
    lmc__sha256_number(&d->sha, d->leaf_crc, 4);
    lmc__sha256_number(&d->sha, d->leaf_sum, 8);
    d->leaf_sum = 0;
    d->leaf_crc = d->leaf_size = 0;
}

/* Ends the current tensor, of which tensor_done bytes were absorbed, and begins the next tensor. A
 * file without tensors counts as a U8 tensor, whose size may be known only now. */
static void lmc__end_fingerprint(lmc__digester *d)
{
    const lmc_tensor *t = d->file->n_tensors ? &d->file->tensors[d->tensor] : NULL;
    const unsigned rank = t ? t->rank : 1;
    unsigned i;
    if (d->leaf_size) lmc__finish_leaf(d);
    lmc__sha256_text(&d->sha, t ? t->dtype : "U8", 1);
    lmc__sha256_number(&d->sha, rank, 1);
    for (i = 0; i < rank; i++) lmc__sha256_number(&d->sha, t ? t->shape[i] : d->tensor_done, 8);
    lmc__sha256_number(&d->sha, d->tensor_done, 8);
    lmc__finish_fingerprint(&d->sha, d->fingerprints + d->tensor * LMC_FINGERPRINT_SIZE);
    if (t) lmc__finish_hash(d, &d->content);
    d->tensor++;
    lmc__begin_fingerprint(d);
}

static void lmc__finish_fingerprints(lmc__digester *d)
{
    while (d->tensor < d->file->n_tensors && d->tensor_done == d->file->tensors[d->tensor].size)
        lmc__end_fingerprint(d);
}

/* Absorbs the next piece in the planned order. Its sums must be set. data: its bytes, used only for
 * hashes. First finishes the tensors that end before this piece, including empty tensors. */
static void lmc__absorb_piece(lmc__digester *d, const lmc__piece *piece, const uint8_t *data)
{
    const int in_tensor = piece->in_tensor && d->file->n_tensors;
    d->file_crc = lmc__crc32c_combine(d->file_crc, piece->part_crc, piece->part_size);
    d->absorbed += piece->size;
    if (piece->in_tensor) lmc__finish_fingerprints(d);
    if (d->hashes) lmc__sha256_update(in_tensor ? &d->content : &d->outside, data, piece->size);
    if (!piece->in_tensor) return;
    d->leaf_crc = lmc__crc32c_combine(d->leaf_crc, piece->crc, piece->size);
    d->leaf_sum += piece->sum;
    d->leaf_size += piece->size;
    d->tensor_done += piece->size;
    if (d->leaf_size == LMC__LEAF_SIZE) lmc__finish_leaf(d);
}

/* Plans and absorbs the next bytes of the file. All planned pieces must have been absorbed. */
LMC__INLINE void lmc__absorb_bytes(lmc__digester *d, const lmc__kernels *k, const uint8_t *p,
                                   size_t size)
{
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        piece.crc = piece.part_crc = k->crc32c(0, p, piece.size);
        piece.sum = lmc__sum_words(k, p, piece.size, piece.phase);
        piece.part_size = piece.size;
        lmc__absorb_piece(d, &piece, p);
        p += piece.size;
        size -= piece.size;
    }
}

static void lmc__finish_digester(lmc__digester *d)
{
    if (d->file->n_tensors) lmc__finish_fingerprints(d);
    else lmc__end_fingerprint(d);
    lmc__finish_hash(d, &d->outside);
}

/* == snapshot/ends.h =========================================================================== */

/* Both ends of an LMC file: the header (spec 3.1), and the trailer (spec 3.2), which says where the
 * index is. */

/* Whether the snapshot is a delta: the base's fingerprint in its header is not all zero. */
static int lmc__has_base(const uint8_t *header)
{
    static const uint8_t none[LMC_FINGERPRINT_SIZE] = {0};
    return memcmp(header + LMC__BASE_FINGERPRINT_AT, none, sizeof none) != 0;
}

/* Checks the LMC__HEADER_SIZE bytes of a header. The version is checked before the CRC: a newer
 * version may change the rest of the header, and its files must not be called damaged.
 *
 *     0  magic                       16  features        48  reserved
 *     8  version                     24  ignored         60  Header_CRC of the bytes before
 *    10  algorithm of fingerprints   32  fingerprint of the base, or 0
 *    11  reserved
 *
 * An unknown feature could change what the file means, so the file is refused. */
LMC__COLD static enum lmc_status lmc__check_header(const uint8_t *header, const lmc__kernels *k)
{
    uint64_t features;
    size_t i;
    LMC__CHECK(memcmp(header, LMC_MAGIC, 8) == 0, LMC_ERR_NOT_LMC); /* R3-1 */
    LMC__CHECK(header[8] == LMC_FORMAT_MAJOR, LMC_ERR_VERSION);     /* R3-2 */
    LMC__CHECK(k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT),
               LMC_ERR_CHECKSUM);                                              /* R3-4 */
    LMC__CHECK(header[LMC__ALGORITHM_AT] == 1, LMC_ERR_UNSUPPORTED);           /* R3-6 */
    for (i = 11; i < 16; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* R3-7 */
    features = lmc__load64(header + LMC__FEATURES_AT);
    LMC__CHECK((features & ~LMC__KNOWN_FEATURES) == 0, LMC_ERR_UNSUPPORTED);   /* R3-8 */
    LMC__VALID(((features & LMC_FEATURE_BASE) != 0) == lmc__has_base(header)); /* R3-10 */
    for (i = 48; i < 60; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* R3-11 */
    return LMC_OK;
}

/* Adds size to *total and returns 1, if the sum is at most max_total_size (0: no limit). Otherwise
 * returns 0. Never overflows. */
static int lmc__add_total(uint64_t *total, uint64_t size, uint64_t max_total_size)
{
    const uint64_t most = max_total_size ? max_total_size : UINT64_MAX;
    if (size > most || *total > most - size) return 0;
    *total += size;
    return 1;
}

/* Sets what the header says. Its CRC and version must have been checked. */
static void lmc__get_header_info(lmc_snapshot_info *info, const uint8_t *header)
{
    memcpy(info->base_fingerprint, header + LMC__BASE_FINGERPRINT_AT, LMC_FINGERPRINT_SIZE);
    info->has_base = lmc__has_base(header);
    info->features = lmc__load64(header + LMC__FEATURES_AT); /* bits LMC__FEATURE_... */
    info->format_major = header[8];
    info->format_minor = header[9];
}

LMC__COLD LMC_API enum lmc_status lmc_header_parse(const void *src, size_t src_size,
                                                   lmc_snapshot_info *info)
{
    const uint8_t *const header = (const uint8_t *)src;
    enum lmc_status status;
    if ((!src && src_size) || !info) return LMC_ERR_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (src_size < 8 || memcmp(header, LMC_MAGIC, 8) != 0) return LMC_ERR_NOT_LMC;
    if (src_size < LMC__HEADER_SIZE)
        return src_size > 8 && header[8] != LMC_FORMAT_MAJOR ? LMC_ERR_VERSION : LMC_ERR_TRUNCATED;
    status = lmc__check_header(header, lmc__get_kernels());
    if (status == LMC_OK || status == LMC_ERR_UNSUPPORTED) lmc__get_header_info(info, header);
    info->format_major = header[8];
    info->format_minor = header[9];
    return status;
}

/* Checks the trailer of a file of `total` bytes, and sets where the index is:
 *     0  where the index begins     16  size of the file     28  CRC of the bytes before
 *     8  size of the index          24  version, reserved    32  end magic
 *
 * The file's size shows whether a file was cut and continued with the end of another file. */
LMC__COLD static enum lmc_status lmc__check_trailer(lmc_snapshot_info *info, const uint8_t *trailer,
                                                    uint64_t total, const lmc__kernels *k)
{
    const uint64_t end = total - LMC__TRAILER_SIZE, at = lmc__load64(trailer);
    LMC__VALID(memcmp(trailer + 32, LMC__END_MAGIC, 8) == 0); /* R3-15 */
    LMC__CHECK(k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28),
               LMC_ERR_CHECKSUM);                                    /* R3-16 */
    LMC__CHECK(trailer[24] == LMC_FORMAT_MAJOR, LMC_ERR_VERSION);    /* R3-17 */
    LMC__CHECK(lmc__load16(trailer + 26) == 0, LMC_ERR_UNSUPPORTED); /* R3-19 */
    LMC__VALID(at >= LMC__HEADER_SIZE && at <= end && lmc__load64(trailer + 8) == end - at &&
               lmc__load64(trailer + 16) == total); /* R3-20 to R3-22 */
    info->size = total;
    info->index_offset = at;
    info->index_size = end - at;
    return LMC_OK;
}

/* == snapshot/pipeline.h ======================================================================= */

/* How the writer, the restorer (restore.h) and the reader code blocks in waves (tensor/wave.h). An
 * lmc__coder has the buffers, and runs the waves.
 *
 * Writer and restorer use two buffers of each kind in turns. While wave w is coded, the output of
 * wave w - 1 is written, and the input of wave w + 1 is read:
 *     step          1          2          3          4
 *     read      in[0]: w0  in[1]: w1  in[0]: w2  in[1]: w3
 *     code                 out[0]: w0 out[1]: w1 out[0]: w2
 *     write                           out[0]: w0 out[1]: w1
 *
 * Writing and reading are two more tasks in the same call of the caller's lmc_parallel
 * (lmc__step_task), so all threads are the caller's. For each worker, a wave has LMC__WAVE_SIZE
 * decoded bytes, or one larger block. */

typedef struct lmc__snapshot_job {
    lmc__job job;
    size_t first_piece, n_pieces; /* the pieces of the block's content, in coder.pieces */
    /* writer: size of a RUN section (header and body) that is in front of job.dst; 0: none */
    size_t head_size;
    /* encoding: room for a copy of the bytes that were encoded, if hashes need it; or NULL */
    uint8_t *content;
    int may_change;       /* encoding: job.src is the caller's memory, and may change at any time */
    int has_base;         /* writer: 1: job.base, if it is used, is of the base */
    size_t run;           /* reader: number of the block's run */
    int is_unread;        /* restoring: the prediction is missing, so only the payload is checked */
    uint64_t file_offset; /* restoring with write_at: where the block begins in the file */
} lmc__snapshot_job;

/* Bytes to write; they must stay in place until they are written. */
typedef struct lmc__part {
    const uint8_t *data;
    size_t size;
} lmc__part;

/* Buffers, workspaces and callbacks of one writer, restorer or reader. Buffers never shrink, so a
 * wave allocates only if it is larger than all earlier waves. */
typedef struct lmc__coder {
    /* lmc__snapshot_job, lmc__piece: of the wave that is being planned */
    lmc__buffer jobs, pieces;
    lmc__buffer workspaces, in[2], out[2];
    lmc__buffer base;  /* encoding: predictions of the wave's blocks */
    lmc__buffer parts; /* lmc__part; their bytes are in the previous wave's `out` */
    lmc__wave wave;    /* its member jobs is NULL: jobs are in the buffer `jobs` */
    const lmc_parallel *parallel;
    size_t n_jobs;       /* of the wave that is being planned */
    unsigned out_number; /* the current wave writes to out[out_number] */
    lmc_task task;       /* called for each job, with the coder as arg */
    lmc_sink sink;       /* gets the parts; write is NULL if there is no output */
    /* restoring in place: an earlier attempt has written the wave's blocks. Their bytes were read
     * back to dst, and only their CRCs are checked */
    int is_written;
    /* restoring: each task writes its own block with this, instead of the sink; or NULL */
    enum lmc_status (*write_at)(void *user, size_t file_number, uint64_t offset, const void *data,
                                size_t size);
    size_t file_number; /* for write_at */
    enum lmc_status write_status;
    lmc_stream stream;
    /* read_size bytes of the stream are to be read to read_to; read_got: bytes read so far.
     * read_portion: the maximum that is read while one wave is coded; when encoding, read_per_coded
     * times the bytes that the wave codes */
    uint8_t *read_to;
    size_t read_size, read_got, read_portion, read_per_coded;
    /* bytes that are left of the previous read; they are copied in front of read_to, where there is
     * room */
    const uint8_t *rest;
    size_t rest_size;
    enum lmc_status read_status;
    int ended;
    /* or NULL; done: bytes of files so far */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *progress_user;
    uint64_t done;
} lmc__coder;
#define LMC__CODER_BUFFERS LMC__ROW(lmc__coder, jobs, wave)

static void lmc__open_coder(lmc__coder *c, const lmc_parallel *parallel,
                            const lmc_allocator *allocator)
{
    memset(c, 0, sizeof *c);
    c->wave.k = lmc__get_kernels();
    c->parallel = parallel;
    lmc__init_buffers(c, LMC__CODER_BUFFERS, allocator);
}

static void lmc__free_coder(lmc__coder *c) { lmc__free_buffers(c, LMC__CODER_BUFFERS); }

/* Prepares for blocks of up to block_size bytes, with elements of at least `width` bytes. Jobs may
 * be planned already: their workspaces stay large enough. in_parts: 1 to decode blocks of which
 * only a part is kept. */
static enum lmc_status lmc__set_coder(lmc__coder *c, size_t block_size, unsigned width,
                                      int in_parts)
{
    const size_t temp_size = in_parts ? (block_size + 15) & ~(size_t)15 : 0;
    const size_t size =
        ((lmc_block_workspace_size(block_size / width, width) + 15) & ~(size_t)15) + temp_size;
    LMC__TRY(lmc__reserve(&c->jobs,
                          lmc__count_jobs(c->parallel, block_size) * sizeof(lmc__snapshot_job)));
    if (size > c->wave.workspace_size) c->wave.workspace_size = size;
    LMC__TRY(lmc__reserve(&c->workspaces,
                          (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));
    c->wave.workspaces = c->workspaces.data;
    c->wave.temp_size = temp_size;
    return LMC_OK;
}

/* Decoded bytes of a wave for each worker: four blocks of weights. Larger waves start the workers
 * and wait for them less often. Smaller waves keep the buffers in the caches (bench/tried.md). */
#define LMC__WAVE_SIZE ((size_t)512 << 10)

static uint64_t lmc__get_wave_size(const lmc__coder *c, size_t block_size)
{
    return (uint64_t)lmc__count_workers(c->parallel) *
           (block_size > LMC__WAVE_SIZE ? block_size : LMC__WAVE_SIZE);
}

/* Valid until the next job is added. */
static lmc__snapshot_job *lmc__job_at(const lmc__coder *c, size_t i)
{
    return (lmc__snapshot_job *)(void *)c->jobs.data + i;
}

/* Adds a job to the wave, all zero. *job is valid until the next job is added. */
static enum lmc_status lmc__add_job(lmc__coder *c, lmc__snapshot_job **job)
{
    c->jobs.size = c->n_jobs * sizeof **job;
    LMC__TRY(lmc__append(&c->jobs, NULL, sizeof **job));
    *job = lmc__job_at(c, c->n_jobs++);
    return LMC_OK;
}

static lmc__piece *lmc__piece_at(const lmc__coder *c, const lmc__snapshot_job *job, size_t i)
{
    return (lmc__piece *)(void *)c->pieces.data + job->first_piece + i;
}

/* If all bytes of a job are one piece: where the decoder stores their sum, which it computes while
 * it decodes. NULL: the sums of the pieces are computed afterwards. */
static uint64_t *lmc__whole_sum(const lmc__coder *c, const lmc__snapshot_job *job)
{
    lmc__piece *const piece = job->n_pieces == 1 ? lmc__piece_at(c, job, 0) : NULL;
    return piece && piece->in_tensor && piece->phase == 0 && piece->size == job->job.info.size
               ? &piece->sum
               : NULL;
}

/* Sets the sums of a job's pieces, which are the size bytes at content. crc: their CRC-32C. If the
 * block has parts of several files, each part gets its own CRC. */
static void lmc__set_piece_sums(const lmc__coder *c, const lmc__snapshot_job *job,
                                const uint8_t *content, size_t size, uint32_t crc)
{
    const lmc__kernels *const k = c->wave.k;
    size_t i;
    for (i = 0; i < job->n_pieces; i++) { /* a reader has pieces only when it reads whole tensors */
        lmc__piece *const piece = lmc__piece_at(c, job, i);
        if (piece->in_tensor) {
            piece->crc = piece->size == size ? crc : k->crc32c(0, content, piece->size);
            if (job->job.streaming.sum != &piece->sum)
                piece->sum = lmc__sum_words(k, content, piece->size, piece->phase);
        }
        if (piece->part_size)
            piece->part_crc = piece->part_size == size ? crc
                              : piece->in_tensor && piece->part_size == piece->size
                                  ? piece->crc
                                  : k->crc32c(0, content, piece->part_size);
        content += piece->size;
    }
}

/* Decodes a job's block, or only checks its CRC if c->is_written. */
static void lmc__decode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const lmc_block_info *const info = &job->job.info;
    const uint8_t *content = job->job.dst;
    if (job->is_unread) {
        job->job.status = lmc__check_payload(c->wave.k, job->job.src, info);
        return;
    }
    if (!c->is_written) content = lmc__decode_job(&c->wave, &job->job, worker);
    else if (c->wave.k->crc32c(0, content, info->size) != info->crc)
        job->job.status = LMC_ERR_BASE_WRONG;
    if (job->job.status != LMC_OK) return;
    lmc__set_piece_sums(c, job, content + job->job.skip, info->size, info->crc);
    if (c->write_at)
        job->job.status =
            c->write_at(c->sink.user, c->file_number, job->file_offset, content, info->size);
}

static enum lmc_status lmc__jobs_status(const lmc__coder *c, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(lmc__job_at(c, i)->job.status);
    return LMC_OK;
}

/* Adds bytes to write while the next wave is coded, unless size is 0 or there is no sink. */
static enum lmc_status lmc__add_part(lmc__coder *c, const uint8_t *data, size_t size)
{
    const lmc__part part = {data, size};
    return c->sink.write && size ? lmc__append(&c->parts, &part, sizeof part) : LMC_OK;
}

/* A task: writes all parts. As one task writes them, the sink gets them in order. */
static void lmc__write_parts(lmc__coder *c)
{
    const lmc__part *part = (const lmc__part *)(const void *)c->parts.data;
    size_t i;
    for (i = 0; i < c->parts.size / sizeof *part && c->write_status == LMC_OK; i++)
        c->write_status = c->sink.write(c->sink.user, part[i].data, part[i].size);
}

/* A task: reads up to read_portion more bytes. If a read returns 0 bytes, the stream has ended. */
static void lmc__read_portion(lmc__coder *c)
{
    const size_t end = lmc__min(c->read_size, c->read_got + c->read_portion);
    if (c->rest_size) memcpy(c->read_to - c->rest_size, c->rest, c->rest_size);
    c->rest_size = 0;
    while (c->read_got < end && !c->ended && c->read_status == LMC_OK) {
        size_t n = 0;
        c->read_status =
            c->stream.read(c->stream.user, c->read_to + c->read_got, end - c->read_got, &n);
        if (c->read_status == LMC_OK && n > end - c->read_got) c->read_status = LMC_ERR_READ;
        if (c->read_status != LMC_OK) break;
        c->ended = n == 0;
        c->read_got += n;
    }
}

/* The task of the caller's parallel_for. Writing and reading come first, as they take longest. */
static void lmc__step_task(void *arg, size_t index, unsigned worker)
{
    lmc__coder *c = (lmc__coder *)arg;
    if (index == 0) lmc__write_parts(c);
    else if (index == 1) lmc__read_portion(c);
    else c->task(c, index - 2, worker);
}

/* Codes the planned wave, writes the parts, and reads the next bytes. If there are several errors,
 * it returns the one of the earliest bytes: of writing, else of blocks, else of reading. */
static enum lmc_status lmc__run_step(lmc__coder *c)
{
    const size_t n = c->n_jobs;
    size_t i;
    if (c->parallel && n > 0)
        c->parallel->run(c->parallel->user, lmc__step_task, c, n + 2, c->parallel->n_workers);
    else
        for (i = 0; i < n + 2; i++) lmc__step_task(c, i, 0);
    c->parts.size = 0;
    c->n_jobs = 0;
    c->base.size = 0;
    LMC__TRY(c->write_status);
    LMC__TRY(lmc__jobs_status(c, n));
    return c->read_status;
}

static enum lmc_status lmc__drain(lmc__coder *c)
{
    lmc__write_parts(c);
    c->parts.size = 0;
    return c->write_status;
}

static enum lmc_status lmc__report_progress(lmc__coder *c, uint64_t size)
{
    c->done += size;
    return c->progress && size ? c->progress(c->progress_user, c->done) : LMC_OK;
}

/* Size of the first read of a stream. It is small, since nothing is coded meanwhile. Each later
 * read is at most four times as large as the read before, up to a limit. */
#define LMC__FIRST_READ_SIZE 65536u

/* Sets the next read: size bytes, in the next step unless the caller lowers read_portion. */
static void lmc__want(lmc__coder *c, uint8_t *dst, size_t size)
{
    c->read_to = dst;
    c->read_size = size;
    c->read_got = 0;
    c->read_portion = size;
}

/* Checks that the block uses only features that the file's header names. */
static enum lmc_status lmc__check_block_features(const uint8_t *header, uint64_t features)
{
    const unsigned layout = header[2] >> LMC__LAYOUT_SHIFT, grouping = header[3];
    LMC__VALID(layout != LMC__LAYOUT_QUANTIZED || (features & LMC_FEATURE_QUANTIZED)); /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_ZEROS || (features & LMC_FEATURE_ZEROS));         /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_MATRIX || (features & LMC_FEATURE_MATRIX));       /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_CODES || (features & LMC_FEATURE_CODES));         /* R3-12 */
    LMC__VALID(!grouping || (features & (LMC_FEATURE_BASE | LMC_FEATURE_OWN)));        /* R3-13 */
    return LMC_OK;
}

/* Plans more pieces of a job: the pieces of the next size bytes of the digester's file. */
static enum lmc_status lmc__plan_pieces(lmc__coder *c, lmc__digester *d, lmc__snapshot_job *job,
                                        size_t size)
{
    size_t part_size = size;
    if (job->n_pieces == 0) job->first_piece = c->pieces.size / sizeof(lmc__piece);
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        piece.part_size = (uint32_t)part_size; /* at most a block */
        part_size = 0;
        LMC__TRY(lmc__append(&c->pieces, &piece, sizeof piece));
        size -= piece.size;
        job->n_pieces++;
    }
    return LMC_OK;
}

/* Absorbs the pieces of a wave; d must have no hashes. */
static void lmc__absorb_pieces(lmc__coder *c, lmc__digester *d)
{
    size_t i;
    for (i = 0; i < c->pieces.size / sizeof(lmc__piece); i++)
        lmc__absorb_piece(d, (const lmc__piece *)(const void *)c->pieces.data + i, NULL);
    c->pieces.size = 0;
}

/* == snapshot/names.h ========================================================================== */

/* Names, and the checks that they are unique. Sets of names are sorted arrays, or tables with 64
 * bits for each name. They must be small, since a snapshot may have 2^32 files with 2^28 tensors
 * each. No input makes them slower than n log n. */

/* A file or tensor with its name. The name is not NUL-terminated, and the item does not own it. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *fingerprint; /* or NULL: only the name counts */
    size_t file_number;         /* of the file, or of the tensor's file */
    const lmc_tensor *tensor;   /* in that file; NULL: the whole file */
} lmc__item;

/* Compares in byte order. A prefix comes before longer names (spec 7.2 and 8.3). */
static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

/* Compares by name, then by fingerprint, or by file number if one item has no fingerprint. */
static int lmc__compare_items(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    const int order = lmc__compare_names(x, y);
    if (order) return order;
    if (x->fingerprint && y->fingerprint)
        return memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    return x->file_number < y->file_number ? -1 : x->file_number > y->file_number;
}

static void lmc__sort_items(lmc__item *items, size_t n)
{
    lmc__item spare;
    lmc__heap_sort(items, n, sizeof *items, lmc__compare_items, &spare);
}

/* Whether two of n sorted items have the same name: equal names are neighbours. */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

/* Fingerprint of the snapshot (spec 7.2). Sorts the items. The fingerprint does not depend on the
 * file in which a tensor is. */
LMC__COLD static void lmc__snapshot_fingerprint(lmc__buffer *items,
                                                uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    lmc__item *item = (lmc__item *)(void *)items->data;
    const size_t n = items->size / sizeof *item;
    lmc__sha256 sha;
    size_t i;
    lmc__sort_items(item, n);
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC snapshot 3", 15);
    for (i = 0; i < n; i++) {
        lmc__sha256_number(&sha, item[i].size, 4);
        lmc__sha256_update(&sha, item[i].name, item[i].size);
        lmc__sha256_update(&sha, item[i].fingerprint, LMC_FINGERPRINT_SIZE);
    }
    lmc__finish_fingerprint(&sha, fingerprint);
}

/* The number of the first of n sorted items that does not come before this name and file number.
 * file_number must be 0 if the items have fingerprints. */
static size_t lmc__find_name(const lmc__item *items, size_t n, const char *name, size_t file_number)
{
    const lmc__item wanted = {(const uint8_t *)name, strlen(name), NULL, file_number, NULL};
    size_t i;
    LMC__FIND_FIRST(i, 0, n, lmc__compare_items(&items[i], &wanted) < 0);
    return i;
}

/* name and fingerprint are not copied. */
static enum lmc_status lmc__append_item(lmc__buffer *items, const void *name, size_t size,
                                        const uint8_t *fingerprint, size_t file_number,
                                        const lmc_tensor *tensor)
{
    const lmc__item item = {(const uint8_t *)name, size, fingerprint, file_number, tensor};
    return lmc__append(items, &item, sizeof item);
}

/* The items of a file (spec 7.2): its tensors, or the file itself if it has no tensors. */
static enum lmc_status lmc__append_items(lmc__buffer *items, const lmc_file *f, size_t file_number)
{
    size_t i;
    if (f->n_tensors == 0)
        return lmc__append_item(items, f->path, strlen(f->path), f->fingerprint, file_number, NULL);
    for (i = 0; i < f->n_tensors; i++) {
        const lmc_tensor *const t = &f->tensors[i];
        LMC__TRY(lmc__append_item(items, t->name, strlen(t->name), t->fingerprint, file_number, t));
    }
    return LMC_OK;
}

/* -- the paths of a snapshot -- */

/* The set of paths: a hash table with open addressing, at most half full, of 62 bits of each path's
 * SHA-256. It takes 16 to 32 bytes for each path and each directory above it. Nobody can choose
 * paths that collide often. An entry's two lowest bits describe the path: */
enum {
    LMC__PATH_IS_ENTRY = 1,    /* it has an entry */
    LMC__PATH_IS_DIRECTORY = 2 /* it is a directory: its entry says so, or a path is below it */
};

typedef struct lmc__path_set {
    lmc__buffer table; /* uint64_t; 0: free */
    size_t n;
} lmc__path_set;

/* The entry of the path with these bits, or the free entry where this path belongs. */
static uint64_t *lmc__place_path(const lmc__buffer *table, uint64_t key)
{
    uint64_t *const place = (uint64_t *)(void *)table->data;
    const size_t mask = table->size / 8 - 1;
    size_t i = (size_t)(key >> 2) & mask;
    while (place[i] && (place[i] ^ key) >> 2) i = (i + 1) & mask;
    return &place[i];
}

/* Makes the table twice as large, or makes the first table. On errors the old table stays. */
LMC__COLD static enum lmc_status lmc__grow_paths(lmc__path_set *set)
{
    const uint64_t *const old = (const uint64_t *)(const void *)set->table.data;
    const size_t old_size = set->table.size / 8;
    lmc__buffer grown;
    size_t i;
    lmc__init_buffer(&grown, set->table.allocator);
    LMC__TRY(lmc__append(&grown, NULL, 8 * (old_size ? 2 * old_size : 64)));
    for (i = 0; i < old_size; i++)
        if (old[i]) *lmc__place_path(&grown, old[i]) = old[i];
    lmc__free_buffer(&set->table);
    set->table = grown;
    return LMC_OK;
}

/* Adds a path, with flags that say what it is. sha has taken the bytes of the path. */
LMC__COLD static enum lmc_status lmc__note_path(lmc__path_set *set, lmc__sha256 sha, unsigned flags)
{
    uint8_t digest[32];
    uint64_t key, *place;
    if (set->n >= set->table.size / 16) LMC__TRY(lmc__grow_paths(set));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) & ~(uint64_t)3;
    if (key == 0) key = 4;
    place = lmc__place_path(&set->table, key);
    /* R4-25: no entry twice; R4-26: only directories have paths below them */
    LMC__VALID(!(*place & flags & LMC__PATH_IS_ENTRY));
    LMC__VALID(flags & LMC__PATH_IS_DIRECTORY || !(*place & LMC__PATH_IS_DIRECTORY));
    LMC__VALID(!(flags & LMC__PATH_IS_DIRECTORY) || (*place & 3) != LMC__PATH_IS_ENTRY);
    set->n += *place == 0;
    *place |= key | flags;
    return LMC_OK;
}

/* Adds the path of one more file, or refuses the path (CORRUPT). Its first `shared` bytes equal
 * those of the previous path, so only directories whose names end after these bytes are new. */
static enum lmc_status lmc__add_path(lmc__path_set *set, const char *path, size_t shared,
                                     int is_directory)
{
    const size_t size = strlen(path);
    size_t i, done = 0;
    lmc__sha256 sha;
    lmc__sha256_init(&sha);
    for (i = shared; i < size; i++) {
        if (path[i] != '/') continue;
        lmc__sha256_update(&sha, path + done, i - done);
        done = i;
        LMC__TRY(lmc__note_path(set, sha, LMC__PATH_IS_DIRECTORY));
    }
    lmc__sha256_update(&sha, path + done, size - done);
    return lmc__note_path(
        set, sha, is_directory ? LMC__PATH_IS_ENTRY | LMC__PATH_IS_DIRECTORY : LMC__PATH_IS_ENTRY);
}

/* == snapshot/sections.h ======================================================================= */

/* Sections (spec 4): a header of 20 bytes, then the body of a FILE (files.h), a RUN (runs.h), BLKS,
 * INDX (index_entries.h) or an ancillary section. This file handles the header, and the fields of
 * bodies. Each field is checked before it is used. */

/* The header of a section; the function that reads the body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

/* Whether c is an ASCII letter of that case. */
static int lmc__is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static int lmc__is_lower(char c) { return c >= 'a' && c <= 'z'; }

/* A kind is four letters, digits or spaces, and begins with a letter. */
static int lmc__is_kind_valid(const char *kind)
{
    unsigned i;
    for (i = 0; i < 4; i++)
        if (!lmc__is_upper(kind[i]) && !lmc__is_lower(kind[i]) &&
            (i == 0 || ((kind[i] < '0' || kind[i] > '9') && kind[i] != ' ')))
            return 0;
    return 1;
}

/* A reader may ignore an ancillary section that it does not know. */
static int lmc__is_ancillary(const lmc__section *section)
{
    return lmc__is_lower(section->kind[0]);
}

static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

static int lmc__is_known_kind(const lmc__section *section)
{
    return lmc__is_kind(section, "FILE") || lmc__is_kind(section, "RUN ") ||
           lmc__is_kind(section, "BLKS") || lmc__is_kind(section, "INDX");
}

/* Reads and checks a section's header at p. */
LMC__COLD static enum lmc_status lmc__get_section(lmc__section *section, const uint8_t *p,
                                                  const lmc__kernels *k)
{
    LMC__CHECK(k->crc32c(0, p, 12) == lmc__load32(p + 12), LMC_ERR_CHECKSUM); /* R4-1 */
    memcpy(section->kind, p, 4);
    section->size = lmc__load64(p + 4);
    section->body_crc = lmc__load32(p + 16);
    LMC__VALID(lmc__is_kind_valid(section->kind));
    LMC__CHECK(lmc__is_ancillary(section) || lmc__is_known_kind(section),
               LMC_ERR_UNSUPPORTED);                 /* R4-3 */
    LMC__VALID(section->size <= LMC__MAX_BODY_SIZE); /* R4-5 */
    return LMC_OK;
}

/* -- bodies -- */

/* Bytes that are read from front to back. lmc__take functions check nothing, so compare lmc__left
 * first. lmc__get functions check that the bytes are there. */
typedef struct lmc__cursor {
    const uint8_t *p, *end;
} lmc__cursor;

static size_t lmc__left(const lmc__cursor *c) { return (size_t)(c->end - c->p); }

/* Advances over size bytes, and returns where they begin. */
static const uint8_t *lmc__take_bytes(lmc__cursor *c, size_t size)
{
    c->p += size;
    return c->p - size;
}
static uint8_t lmc__take8(lmc__cursor *c) { return *lmc__take_bytes(c, 1); }
static uint32_t lmc__take32(lmc__cursor *c) { return lmc__load32(lmc__take_bytes(c, 4)); }
static uint64_t lmc__take64(lmc__cursor *c) { return lmc__load64(lmc__take_bytes(c, 8)); }

/* Reads a byte, which may be missing. */
static enum lmc_status lmc__get8(lmc__cursor *c, unsigned *v)
{
    LMC__VALID(lmc__left(c) != 0);
    *v = lmc__take8(c);
    return LMC_OK;
}

/* Reads a varint (spec 2): 7 bits in each byte, low bits first; bit 7 is set in all bytes but the
 * last. Each number has one form: the last of several bytes is not 0. Byte 10 has only bit 63. */
static enum lmc_status lmc__get_varint(lmc__cursor *c, uint64_t *v)
{
    unsigned shift = 0;
    uint8_t byte;
    *v = 0;
    do {
        LMC__VALID(lmc__left(c) != 0);
        byte = lmc__take8(c);
        LMC__VALID(shift < 63 || byte <= 1); /* R2-1 */
        *v |= (uint64_t)(byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    LMC__VALID(byte != 0 || shift == 7); /* R2-1 */
    return LMC_OK;
}

static enum lmc_status lmc__get_limited(lmc__cursor *c, uint64_t *v, uint64_t max)
{
    LMC__TRY(lmc__get_varint(c, v));
    LMC__VALID(*v <= max);
    return LMC_OK;
}

/* Reads a size of at most max, and a string of that size. */
static enum lmc_status lmc__get_string(lmc__cursor *c, const uint8_t **p, uint32_t *size,
                                       uint32_t max)
{
    uint64_t v;
    LMC__TRY(lmc__get_limited(c, &v, max));
    LMC__VALID(v <= lmc__left(c));
    *size = (uint32_t)v;
    *p = lmc__take_bytes(c, (size_t)v);
    return LMC_OK;
}

/* Skips the rest of a body: extension records { varint tag, varint size, bytes }, sorted by tag.
 * This version knows no tag, and must refuse records with an odd tag. Counts them in *n. */
LMC__COLD static enum lmc_status lmc__skip_records(lmc__cursor *c, uint64_t *n)
{
    uint64_t last = 0, tag, size;
    int is_first = 1;
    while (lmc__left(c) != 0) {
        LMC__TRY(lmc__get_varint(c, &tag));
        LMC__TRY(lmc__get_varint(c, &size));
        LMC__VALID(size <= lmc__left(c) && (is_first || tag > last)); /* R4-54 */
        LMC__CHECK((tag & 1) == 0, LMC_ERR_UNSUPPORTED);              /* R4-55 */
        (void)lmc__take_bytes(c, (size_t)size);
        last = tag;
        is_first = 0;
        ++*n;
    }
    return LMC_OK;
}

static unsigned lmc__varint_size(uint64_t v)
{
    unsigned n = 1;
    for (; v >= 128; v >>= 7) n++;
    return n;
}

static enum lmc_status lmc__append8(lmc__buffer *b, unsigned v)
{
    const uint8_t byte = (uint8_t)v;
    return lmc__append(b, &byte, 1);
}

static enum lmc_status lmc__append_varint(lmc__buffer *b, uint64_t v)
{
    uint8_t bytes[10];
    unsigned n = 0;
    for (; v >= 128; v >>= 7) bytes[n++] = (uint8_t)(v | 128);
    bytes[n++] = (uint8_t)v;
    return lmc__append(b, bytes, n);
}

/* Signed numbers as varints: 0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ... */
static int64_t lmc__unzigzag(uint64_t v)
{
    return v & 1 ? -(int64_t)(v >> 1) - 1 : (int64_t)(v >> 1);
}

/* == snapshot/files.h ========================================================================== */

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

/* == snapshot/put_files.h ====================================================================== */

/* Writes FILE bodies (spec 4.1). The writer parses them again (files.h) to check them. */

/* The Loss that is written for tensor number i, t; generation 0: nothing was lost. hints: as in
 * lmc__listed_file, or NULL. */
static lmc_loss lmc__get_loss(const lmc_tensor *t, size_t i, const lmc__buffer *hints)
{
    (void)i, (void)hints;
    return t->loss;
}

/* How an entry refers to an earlier entry. size: bytes of the entry that depend on this choice. */
typedef struct lmc__reference {
    unsigned back, prefix, suffix;
    int is_like;
    uint64_t size;
} lmc__reference;

static int lmc__is_like(const lmc_tensor *a, const lmc_tensor *b)
{
    return a->rank == b->rank && a->size == b->size && strcmp(a->dtype, b->dtype) == 0 &&
           (a->rank == 0 || memcmp(a->shape, b->shape, 8 * a->rank) == 0);
}

/* Counts equal bytes of a and b, in steps of 1 or -1: at most 255, and at most n. */
static unsigned lmc__count_shared(const char *a, const char *b, size_t n, int step)
{
    unsigned i = 0;
    while (i < 255 && i < n && a[step * (int)i] == b[step * (int)i]) i++;
    return i;
}

static uint64_t lmc__count_type_bytes(const lmc_tensor *t, enum lmc_dtype dtype)
{
    uint64_t n = 2;
    unsigned i;
    for (i = 0; i < t->rank; i++) n += lmc__varint_size(t->shape[i]);
    return dtype == LMC_AUTO ? n + 1 + strlen(t->dtype) + lmc__varint_size(t->size) : n;
}

/* The number of previous entries that are tried as a reference: layers have similar names. */
#define LMC__MAX_BACK 8u

/* The reference that makes the entry of t smallest. n: number of entries before t. */
static lmc__reference lmc__choose_reference(const lmc_tensor *t, size_t n, enum lmc_dtype dtype)
{
    const uint64_t type_size = lmc__count_type_bytes(t, dtype);
    const size_t name_size = strlen(t->name);
    lmc__reference best = {0, 0, 0, 0, lmc__varint_size(name_size) + name_size + type_size};
    unsigned back;
    for (back = 1; back <= LMC__MAX_BACK && back <= n; back++) {
        const lmc_tensor *const other = t - back;
        const size_t other_size = strlen(other->name), most = lmc__min(name_size, other_size);
        lmc__reference found;
        size_t middle;
        found.back = back;
        found.prefix = lmc__count_shared(t->name, other->name, most, 1);
        found.suffix = most == found.prefix ? 0
                                            : lmc__count_shared(t->name + name_size - 1,
                                                                other->name + other_size - 1,
                                                                most - found.prefix, -1);
        found.is_like = lmc__is_like(t, other);
        middle = name_size - found.prefix - found.suffix;
        found.size = 2 + lmc__varint_size(middle) + middle + (found.is_like ? 0 : type_size);
        if (found.size < best.size) best = found;
    }
    return best;
}

/* Appends an entry, as lmc__parse_tensor reads it, after n other entries. position: where the
 * previous tensor ends. The error of a loss is rounded down to a multiple of 2^-32 below 1. */
LMC__COLD static enum lmc_status lmc__append_tensor(lmc__buffer *out, const lmc_tensor *t, size_t n,
                                                    enum lmc_dtype dtype, uint64_t position,
                                                    const lmc__buffer *hints)
{
    const lmc__reference r = lmc__choose_reference(t, n, dtype);
    const lmc_loss loss = lmc__get_loss(t, n, hints);
    const uint64_t gap = t->offset - position;
    const size_t middle = strlen(t->name) - r.prefix - r.suffix;
    unsigned i;
    if (loss.generation > 255) return LMC_ERR_ARGUMENT;
    if (loss.generation &&
        (!(loss.error >= 0) || loss.error > 1 || (unsigned)loss.measure - 1 > 254))
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__append8(out, (r.is_like ? (unsigned)LMC__TENSOR_IS_LIKE : 0u) |
                                   (gap ? (unsigned)LMC__TENSOR_HAS_GAP : 0u) |
                                   (loss.generation ? (unsigned)LMC__TENSOR_HAS_LOSS : 0u)));
    LMC__TRY(lmc__append_varint(out, r.back));
    if (r.back) {
        LMC__TRY(lmc__append8(out, r.prefix));
        LMC__TRY(lmc__append8(out, r.suffix));
    }
    LMC__TRY(lmc__append_varint(out, middle));
    LMC__TRY(lmc__append(out, t->name + r.prefix, middle));
    if (gap) LMC__TRY(lmc__append_varint(out, gap));
    if (!r.is_like) {
        LMC__TRY(lmc__append8(out, (unsigned)dtype));
        if (dtype == LMC_AUTO) {
            LMC__TRY(lmc__append8(out, (unsigned)strlen(t->dtype)));
            LMC__TRY(lmc__append(out, t->dtype, strlen(t->dtype)));
        }
        LMC__TRY(lmc__append8(out, t->rank));
        for (i = 0; i < t->rank; i++) LMC__TRY(lmc__append_varint(out, t->shape[i]));
        if (dtype == LMC_AUTO) LMC__TRY(lmc__append_varint(out, t->size));
    }
    if (!loss.generation) return LMC_OK;
    LMC__TRY(lmc__append8(out, loss.generation));
    LMC__TRY(lmc__append8(out, (unsigned)loss.measure));
    return lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0) : UINT32_MAX);
}

/* Appends all tensors. Refuses only what an entry cannot express; the parser checks the rest. */
LMC__COLD static enum lmc_status lmc__append_tensors(lmc__buffer *out, const lmc_file *file,
                                                     const lmc__buffer *hints)
{
    uint64_t position = 0;
    size_t i;
    for (i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        enum lmc_dtype dtype;
        if (!t->name || !t->dtype || strlen(t->dtype) > LMC__MAX_DTYPE_SIZE ||
            (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
            return LMC_ERR_ARGUMENT;
        dtype = lmc_dtype_find(t->dtype);
        if (dtype != LMC_AUTO &&
            lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) != t->size)
            return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_tensor(out, t, i, dtype, position, hints));
        position = t->offset + t->size;
    }
    return LMC_OK;
}

/* Appends the entries of a file and of its tensors. prefix: bytes of the path that are shared with
 * the previous entry. Refuses only what cannot be written; lmc__list_files checks the rest. */
LMC__COLD static enum lmc_status lmc__append_file_entry(lmc__buffer *out, const lmc_file *file,
                                                        unsigned prefix, const lmc__buffer *hints)
{
    const int is_directory = file->kind == LMC_FILE_DIRECTORY,
              is_unknown = file->size == LMC_UNKNOWN_SIZE;
    uint8_t field[8];
    size_t n;
    if (!file->path || file->n_tensors > LMC__MAX_TENSORS || (file->n_tensors && !file->tensors))
        return LMC_ERR_ARGUMENT;
    n = strlen(file->path);
    if (n > LMC__MAX_STRING || (unsigned)file->kind > LMC_FILE_DIRECTORY) return LMC_ERR_ARGUMENT;
    if ((is_directory && file->size != 0) || ((is_directory || is_unknown) && file->n_tensors))
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__append8(out, (is_directory ? (unsigned)LMC__FILE_IS_DIRECTORY : 0u) |
                                   (file->has_mode ? (unsigned)LMC__FILE_HAS_MODE : 0u) |
                                   (file->has_mtime ? (unsigned)LMC__FILE_HAS_MTIME : 0u) |
                                   (is_unknown ? (unsigned)LMC__FILE_IS_UNKNOWN : 0u)));
    LMC__TRY(lmc__append8(out, prefix));
    LMC__TRY(lmc__append_varint(out, n - prefix));
    LMC__TRY(lmc__append(out, file->path + prefix, n - prefix));
    if (!is_directory && !is_unknown) LMC__TRY(lmc__append_varint(out, file->size));
    if (file->has_mode) LMC__TRY(lmc__append_varint(out, file->mode));
    if (file->has_mtime) {
        lmc__store64(field, (uint64_t)file->mtime_s);
        LMC__TRY(lmc__append(out, field, 8));
        LMC__TRY(lmc__append32(out, file->mtime_ns));
    }
    if (is_directory || is_unknown) return LMC_OK;
    LMC__TRY(lmc__append_varint(out, file->n_tensors));
    return lmc__append_tensors(out, file, hints);
}

LMC__INLINE enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file,
                                             const lmc__buffer *hints)
{
    LMC__TRY(lmc__append_varint(out, 1)); /* number of files */
    return lmc__append_file_entry(out, file, 0, hints);
}

/* == snapshot/texts.h ========================================================================== */

/* The header text of a file (spec 4.3): its tensor entries, in the form in which safetensors writes
 * them into a file's header. It predicts runs of Prediction 2.
 *
 *     "NAME":{"dtype":"DTYPE","shape":[2,3],"data_offsets":[0,12]},"NAME":...
 *
 * The text is made when it is needed, tensor by tensor, and of a name only the needed bytes are
 * copied. So making n bytes takes time O(n), plus the time for at most 34 numbers. This matters: a
 * segment may be one byte of a tensor's text of 66,322 bytes (R9-7). */

/* A tensor's text without its name: at most 787 bytes, with 34 numbers and a dtype of 32 bytes. */
#define LMC__MAX_ENTRY_TEXT 1024u

/* Output of a text: its bytes [from, to) are copied to dst. at: bytes that were made so far. */
typedef struct lmc__text {
    uint64_t at, from, to;
    uint8_t *dst;
} lmc__text;

LMC__COLD static void lmc__make_text(lmc__text *x, const void *p, size_t size)
{
    const uint64_t from = x->from > x->at ? x->from : x->at, to = lmc__min64(x->to, x->at + size);
    if (from < to)
        memcpy(x->dst + (size_t)(from - x->from), (const uint8_t *)p + (size_t)(from - x->at),
               (size_t)(to - from));
    x->at += size;
}

LMC__COLD static void lmc__make_string(lmc__text *x, const char *string)
{
    lmc__make_text(x, string, strlen(string));
}

static void lmc__make_number(lmc__text *x, uint64_t v)
{
    char digits[20];
    size_t n = 0;
    do digits[sizeof digits - ++n] = (char)('0' + (char)(v % 10));
    while ((v /= 10) != 0);
    lmc__make_text(x, digits + sizeof digits - n, n);
}

/* Makes the text of one tensor. It begins with a comma, except for the first tensor. name: the
 * bytes for NAME. */
LMC__COLD static void lmc__make_entry(lmc__text *x, const lmc_file *file, size_t i,
                                      const void *name, size_t name_size)
{
    const lmc_tensor *const t = &file->tensors[i];
    const uint64_t data = file->tensors[0].offset;
    unsigned j;
    lmc__make_string(x, i ? ",\"" : "\"");
    lmc__make_text(x, name, name_size);
    lmc__make_string(x, "\":{\"dtype\":\"");
    lmc__make_string(x, t->dtype);
    lmc__make_string(x, "\",\"shape\":[");
    for (j = 0; j < t->rank; j++) {
        if (j) lmc__make_text(x, ",", 1);
        lmc__make_number(x, t->shape[j]);
    }
    lmc__make_string(x, "],\"data_offsets\":[");
    lmc__make_number(x, t->offset - data);
    lmc__make_text(x, ",", 1);
    lmc__make_number(x, t->offset - data + t->size);
    lmc__make_string(x, "]}");
}

/* For one tensor. name_size is stored because names may be long and are read in small pieces. */
typedef struct lmc__text_entry {
    uint64_t start; /* of the tensor's text */
    size_t name_size;
} lmc__text_entry;

static const lmc__text_entry *lmc__text_entries(const lmc__listed_file *f)
{
    return (const lmc__text_entry *)(const void *)f->text_at.data;
}

/* Finds where the text of each tensor begins. The last entry says where the whole text ends. */
LMC__COLD static enum lmc_status lmc__measure_text(lmc__listed_file *f)
{
    lmc__text_entry entry;
    lmc__text x;
    size_t i;
    memset(&x, 0, sizeof x);
    LMC__TRY(lmc__reserve(&f->text_at, ((uint64_t)f->file.n_tensors + 1) * sizeof entry));
    for (i = 0; i <= f->file.n_tensors; i++) {
        memset(&entry, 0, sizeof entry);
        entry.start = x.at;
        if (i < f->file.n_tensors) {
            const char *const name = f->file.tensors[i].name;
            entry.name_size = strlen(name);
            lmc__make_entry(&x, &f->file, i, name, entry.name_size);
        }
        LMC__TRY(lmc__append(&f->text_at, &entry, sizeof entry));
    }
    return LMC_OK;
}

/* *size: bytes of the file's header text. */
static enum lmc_status lmc__get_text_size(lmc__listed_file *f, uint64_t *size)
{
    if (f->text_at.size == 0) LMC__TRY(lmc__measure_text(f));
    *size = lmc__text_entries(f)[f->file.n_tensors].start;
    return LMC_OK;
}

/* Copies bytes [offset, offset + size) of the file's header text, which must have them. Call
 * lmc__get_text_size first. */
LMC__COLD static void lmc__read_text(const lmc__listed_file *f, uint64_t offset, uint8_t *dst,
                                     size_t size)
{
    const lmc__text_entry *const entries = lmc__text_entries(f);
    lmc__text x;
    size_t i;
    if (size == 0) return;
    LMC__FIND_FIRST(i, 0, f->file.n_tensors, entries[i + 1].start <= offset);
    x.at = entries[i].start;
    x.from = offset;
    x.to = offset + size;
    x.dst = dst;
    for (; x.at < x.to; i++)
        lmc__make_entry(&x, &f->file, i, f->file.tensors[i].name, entries[i].name_size);
}

/* == snapshot/runs.h =========================================================================== */

/* Reads and writes RUN bodies (spec 4.2). */

/* A segment: a part of a run, predicted by one range of bytes. The segments of a run cover the run
 * in order, without a gap. */
typedef struct lmc__segment {
    uint64_t start, size; /* within the stream */
    uint64_t base_offset; /* where the prediction begins in the item of the base, or in the file */
    /* 0: the prediction is zeros. Else 1 plus the number of the item of the base, or of the file if
     * the prediction is of this snapshot */
    uint32_t base;
} lmc__segment;

/* A run, as its RUN body describes it. It begins where the previous run of its stream ends. */
typedef struct lmc__run {
    uint64_t start; /* within the stream */
    uint64_t size;
    size_t block_size;   /* decoded bytes of each block but the last */
    uint64_t n_blocks;   /* at most 2^32 - 1 */
    size_t stream;       /* number of its stream */
    unsigned prediction; /* LMC__PREDICT_... */
    unsigned conversion; /* enum lmc_conversion, of LMC__PREDICT_OWN */
    /* its first segment in a buffer for the segments of many runs; LMC__PREDICT_ZERO has none */
    size_t first_segment;
    uint32_t n_segments;
    const lmc__segment *segments;
    uint64_t n_records;
} lmc__run;

/* How many bytes predict a byte of the run: a conversion makes 16 bits from 32. */
static unsigned lmc__prediction_scale(const lmc__run *run) { return run->conversion ? 2 : 1; }

/* Whether its own snapshot predicts the run. If such a prediction is wrong, the file is damaged. */
static int lmc__is_own_prediction(const lmc__run *run)
{
    return run->prediction == LMC__PREDICT_OWN || run->prediction == LMC__PREDICT_TEXT;
}

static enum lmc_status lmc__check_run_features(const lmc__run *run, uint64_t features)
{
    LMC__VALID(run->prediction != LMC__PREDICT_BASE || (features & LMC_FEATURE_BASE)); /* R3-12 */
    LMC__VALID(run->prediction != LMC__PREDICT_OWN || (features & LMC_FEATURE_OWN));   /* R3-12 */
    return LMC_OK;
}

/* Sets run->segments again: the buffer that has them may have been moved. */
static void lmc__set_segments(lmc__run *run, const lmc__buffer *segments)
{
    run->segments = run->n_segments
                        ? (const lmc__segment *)(const void *)segments->data + run->first_segment
                        : NULL;
}

/* The fields of a RUN body that do not depend on the files:
 *     varint Run_Size | varint Block_Size | u8 Prediction
 *
 * Checks that the prediction is known, and that sizes are within the limits of the format. */
static enum lmc_status lmc__get_run(lmc__cursor *c, lmc__run *run)
{
    uint64_t block_size;
    memset(run, 0, sizeof *run);
    LMC__TRY(lmc__get_limited(c, &run->size, LMC__MAX_FILE_SIZE));
    LMC__VALID(run->size >= 1); /* R4-42 */
    LMC__TRY(lmc__get_varint(c, &block_size));
    LMC__CHECK(block_size >= (uint64_t)1 << LMC__MIN_LOG2_BLOCK &&
                   block_size <= (uint64_t)1 << LMC__MAX_LOG2_BLOCK &&
                   (block_size & (block_size - 1)) == 0,
               LMC_ERR_UNSUPPORTED); /* R4-43 */
    LMC__TRY(lmc__get8(c, &run->prediction));
    LMC__CHECK(run->prediction < LMC__PREDICTIONS, LMC_ERR_UNSUPPORTED); /* R4-44 */
    if (run->prediction > LMC__PREDICT_OWN) {
        run->conversion = run->prediction - LMC__PREDICT_OWN;
        run->prediction = LMC__PREDICT_OWN;
    }
    run->block_size = (size_t)block_size;
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__VALID(run->n_blocks <= UINT32_MAX); /* R4-46 */
    return LMC_OK;
}

/* Reads the next segment, which begins at s->start. *last: number of the item or file that the last
 * segment with a prediction names; -1 at first. These numbers are below 2^32 - 1. */
static enum lmc_status lmc__get_segment(lmc__cursor *c, lmc__segment *s, int64_t *last)
{
    uint64_t reference;
    s->base = 0;
    s->base_offset = 0;
    LMC__TRY(lmc__get_limited(c, &s->size, LMC__MAX_FILE_SIZE));
    LMC__VALID(s->size != 0); /* R4-47 */
    LMC__TRY(lmc__get_varint(c, &reference));
    if (reference-- == 0) return LMC_OK;
    *last += 1 + lmc__unzigzag(reference >> 1); /* within 2^62, so this cannot overflow */
    LMC__VALID(*last >= 0 && *last < UINT32_MAX);
    s->base = (uint32_t)*last + 1;
    if (reference & 1) {
        LMC__TRY(lmc__get_varint(c, &s->base_offset));
        LMC__VALID(s->base_offset != 0); /* R4-48 */
    }
    return LMC_OK;
}

/* Parses the body of the next run of a stream. *position: bytes of the stream that earlier runs
 * cover; on return, including this run. Appends the run's segments to a buffer; in the body a
 * segment has at least 2 bytes, so memory is in proportion to the body. Checks that the segments
 * end where the run ends, within the stream. Does not check that the predictions exist. */
LMC__COLD static enum lmc_status lmc__parse_run(lmc__run *run, lmc__buffer *segments,
                                                const uint8_t *body, size_t size,
                                                const lmc__listing *l, size_t stream_number,
                                                uint64_t *position)
{
    const lmc__stream *const stream = lmc__stream_at(l, stream_number);
    const uint64_t limit = stream->size == LMC_UNKNOWN_SIZE ? LMC__MAX_FILE_SIZE : stream->size;
    uint64_t n_segments, i;
    int64_t last = -1;
    lmc__segment s;
    lmc__cursor c = {body, body};
    LMC__VALID(size != 0); /* body may be NULL */
    c.end += size;
    LMC__TRY(lmc__get_run(&c, run));
    LMC__VALID(run->size <= limit - *position); /* R4-11 */
    run->start = *position;
    run->stream = stream_number;
    run->first_segment = segments->size / sizeof s;
    if (run->prediction != LMC__PREDICT_ZERO) {
        LMC__TRY(lmc__get_limited(&c, &n_segments, LMC__MAX_SEGMENTS));
        LMC__VALID(n_segments >= 1); /* R4-45 */
        run->n_segments = (uint32_t)n_segments;
        memset(&s, 0, sizeof s);
        s.start = *position;
        for (i = 0; i < n_segments; i++) {
            const uint64_t left = run->start + run->size - s.start;
            LMC__TRY(lmc__get_segment(&c, &s, &last));
            LMC__VALID(s.size <= left);                          /* R4-47 */
            LMC__VALID(run->conversion == 0 || s.size % 2 == 0); /* R4-47 */
            LMC__TRY(lmc__append(segments, &s, sizeof s));
            s.start += s.size;
        }
        LMC__VALID(s.start == run->start + run->size); /* R4-47 */
    }
    run->n_records = 0;
    LMC__TRY(lmc__skip_records(&c, &run->n_records));
    lmc__set_segments(run, segments);
    *position += run->size;
    return LMC_OK;
}

/* Decoded bytes of a block. The last block has the rest. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

/* == snapshot/index_entries.h ================================================================== */

/* The bodies of the sections INDX (spec 8.2) and BLKS (8.1): their layout, and how they are built.
 *
 *     INDX  head               copy of the file's header, fingerprint, counts LMC__INDEX_BODY_SIZE
 *           entry of a FILE:   kind | stored size | size | body of the section | facts of its files
 *           entry of a RUN:    kind | stored size | size | body of the section
 *           ancillary section: kind | stored size
 *           ...                one entry for each section before BLKS, in their order
 *           metadata           sorted by key
 *           extension records
 *     BLKS  a row for each block of all runs: size, Header_CRC
 *
 * The *facts* of a file are known only at its end: its size if the section does not tell it, its
 * CRC, its fingerprints.
 *
 * The writer builds both bodies while it writes blocks. Restoring builds them, too, and compares
 * them with the bodies in the file. A reader begins with the index, and must parse it (index.h). */

#define LMC__DEFAULT_INDEX_LIMIT ((uint64_t)1 << 30)

/* The bodies while they are built, without metadata. The head stays zero until the end, and the
 * facts of a file until the file ends. The entry of a run is made after its blocks, because it has
 * their total size. */
typedef struct lmc__index_builder {
    lmc__buffer entries, rows; /* the body of INDX; the body of BLKS */
    lmc__buffer run_body;      /* of the current run */
    uint64_t limit;            /* on the sum of the sizes of entries and rows */
    uint64_t run_stored;       /* bytes of the run's section and blocks; 0: there is no run */
    size_t facts_at;           /* in entries: the facts of the current file */
} lmc__index_builder;
#define LMC__INDEX_BUFFERS LMC__ROW(lmc__index_builder, entries, limit)

/* limit: bytes; 0: the default. */
static enum lmc_status lmc__open_index(lmc__index_builder *b, uint64_t limit,
                                       const lmc_allocator *allocator)
{
    lmc__init_buffers(b, LMC__INDEX_BUFFERS, allocator);
    b->limit = limit ? limit : LMC__DEFAULT_INDEX_LIMIT;
    return lmc__append(&b->entries, NULL, LMC__INDEX_BODY_SIZE);
}

/* Appends to entries or rows. The limit is needed because a pipe may be endless. */
static enum lmc_status lmc__grow_index(lmc__index_builder *b, lmc__buffer *part, const void *data,
                                       size_t size)
{
    if (b->entries.size - LMC__INDEX_BODY_SIZE + (uint64_t)b->rows.size + size > b->limit)
        return LMC_ERR_LIMIT;
    return lmc__append(part, data, size);
}

LMC__COLD static enum lmc_status lmc__index_entry(lmc__index_builder *b, const char *kind,
                                                  uint64_t stored, const uint8_t *body,
                                                  size_t body_size)
{
    LMC__TRY(lmc__grow_index(b, &b->entries, kind, 4));
    LMC__TRY(lmc__append_varint(&b->entries, stored));
    if (lmc__is_lower(*kind)) return LMC_OK;
    LMC__TRY(lmc__append_varint(&b->entries, body_size));
    return lmc__grow_index(b, &b->entries, body, body_size);
}

/* Ends the current run, if there is one. All of its blocks must have been indexed. */
static enum lmc_status lmc__index_run_end(lmc__index_builder *b)
{
    const uint64_t stored = b->run_stored;
    b->run_stored = 0;
    return stored ? lmc__index_entry(b, "RUN ", stored, b->run_body.data, b->run_body.size)
                  : LMC_OK;
}

/* Adds the next section. The body of an ancillary section is not used. */
LMC__COLD static enum lmc_status lmc__index_section(lmc__index_builder *b, const char *kind,
                                                    const uint8_t *body, uint64_t body_size)
{
    const uint64_t stored = LMC__SECTION_HEADER_SIZE + body_size;
    LMC__TRY(lmc__index_run_end(b));
    if (memcmp(kind, "RUN ", 4) != 0)
        return lmc__index_entry(b, kind, stored, body, (size_t)body_size);
    b->run_stored = stored;
    b->run_body.size = 0;
    return lmc__append(&b->run_body, body, (size_t)body_size);
}

static size_t lmc__facts_head_size(const lmc_file *file)
{
    return file->size == LMC_UNKNOWN_SIZE ? 12 : 4;
}

/* Makes room for the facts of the files of the last FILE entry. */
static enum lmc_status lmc__index_files(lmc__index_builder *b, const lmc__listing *l,
                                        const lmc__stream *stream)
{
    size_t i;
    b->facts_at = b->entries.size;
    for (i = stream->first_file; i < stream->first_file + stream->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        LMC__TRY(lmc__grow_index(b, &b->entries, NULL,
                                 lmc__facts_head_size(file) +
                                     LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file)));
    }
    return LMC_OK;
}

/* Tells the digester where to write the fingerprints of the current file. Call this before each
 * wave is absorbed, because the place moves when the index grows. */
static void lmc__index_fingerprints(const lmc__index_builder *b, lmc__digester *d)
{
    d->fingerprints = b->entries.data + b->facts_at + lmc__facts_head_size(d->file);
}

/* Copies the fingerprints of a file from its facts. The array file->tensors must be writable. */
static void lmc__keep_fingerprints(lmc_file *file, const uint8_t *fingerprints)
{
    lmc_tensor *const tensors = (lmc_tensor *)(uintptr_t)file->tensors;
    size_t i;
    if (file->n_tensors == 0) memcpy(file->fingerprint, fingerprints, LMC_FINGERPRINT_SIZE);
    for (i = 0; i < file->n_tensors; i++)
        memcpy(tensors[i].fingerprint, fingerprints + LMC_FINGERPRINT_SIZE * i,
               LMC_FINGERPRINT_SIZE);
}

/* Writes the facts of a file, after all of its bytes were absorbed. */
LMC__COLD static void lmc__index_file_end(lmc__index_builder *b, lmc__digester *d, lmc_file *file)
{
    lmc__index_fingerprints(b, d);
    lmc__finish_digester(d);
    if (file->size == LMC_UNKNOWN_SIZE) lmc__store64(d->fingerprints - 12, d->absorbed);
    lmc__store32(d->fingerprints - 4, d->file_crc);
    b->facts_at +=
        lmc__facts_head_size(file) + LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file);
    file->size = d->absorbed;
    file->crc = d->file_crc;
    lmc__keep_fingerprints(file, d->fingerprints);
}

static enum lmc_status lmc__index_block(lmc__index_builder *b, size_t encoded_size,
                                        const uint8_t *header)
{
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    lmc__store32(entry, (uint32_t)encoded_size);
    lmc__store32(entry + 4, lmc__load32(header + LMC__BLOCK_CRC_AT));
    b->run_stored += encoded_size;
    return lmc__grow_index(b, &b->rows, entry, sizeof entry);
}

/* Fills items with all items of the snapshot (lmc__append_items), which point into the list, and
 * computes the snapshot's fingerprint from them. */
static enum lmc_status lmc__identify_listing(lmc__buffer *items, const lmc__listing *l,
                                             uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    size_t i;
    items->size = 0;
    for (i = 0; i < l->n_files; i++)
        LMC__TRY(lmc__append_items(items, &lmc__listed_at(l, i)->file, i));
    lmc__snapshot_fingerprint(items, fingerprint);
    return LMC_OK;
}

typedef struct lmc__metadata_entry {
    size_t key_at; /* where in the buffer `keys` the key begins, NUL-terminated */
    const uint8_t *value;
    size_t size;
} lmc__metadata_entry;

/* Parses n metadata entries: each has two sizes, a key and a value. Keys ascend strictly, so they
 * are unique. They have no NUL, so they are copied to `keys` as C strings. Values stay where they
 * are. keys NULL: the entries are only checked. */
LMC__COLD static enum lmc_status lmc__parse_metadata(lmc__cursor *c, uint32_t n, lmc__buffer *keys,
                                                     lmc__buffer *entries)
{
    lmc__item last, next;
    last.name = NULL;
    last.size = 0;
    for (; n > 0; n--) {
        lmc__metadata_entry entry;
        LMC__VALID(lmc__left(c) >= 8);
        next.size = lmc__take32(c);
        entry.size = lmc__take32(c);
        LMC__VALID(next.size >= 1 && next.size <= LMC__MAX_STRING &&
                   entry.size <= LMC__MAX_VALUE_SIZE); /* R8-13 */
        LMC__VALID(lmc__left(c) >= (uint64_t)next.size + entry.size);
        next.name = lmc__take_bytes(c, next.size);
        entry.value = lmc__take_bytes(c, entry.size);
        LMC__VALID(memchr(next.name, 0, next.size) == NULL);
        LMC__VALID(last.name == NULL || lmc__compare_names(&last, &next) < 0); /* R8-14 */
        last = next;
        if (!keys) continue;
        entry.key_at = keys->size;
        LMC__TRY(lmc__append(keys, next.name, next.size));
        LMC__TRY(lmc__append(keys, NULL, 1));
        LMC__TRY(lmc__append(entries, &entry, sizeof entry));
    }
    return LMC_OK;
}

/* == snapshot/hashes.h ========================================================================= */

/* SHA-256 hashes of content, and the section that stores them (spec/hash.md). They protect against
 * forgery; fingerprints do not. They are slow to compute, so the caller must ask for them.
 *
 *     u8 Algorithm, 7 zero bytes | Snapshot_Hash | for each file: hash of each tensor, hash of all
 *                                                  bytes outside of tensors
 *
 * Snapshot_Hash covers everything in the snapshot, including the other hashes. */
#define LMC__HASH_HEAD_SIZE 8u                                     /* names the algorithm */
#define LMC__HASH_BODY_SIZE (LMC__HASH_HEAD_SIZE + LMC__HASH_SIZE) /* without hashes of content */
#define LMC__HASH_SHA256 1u

static uint64_t lmc__count_hashes(const lmc__listing *l)
{
    uint64_t n = l->n_files;
    size_t i;
    for (i = 0; i < l->n_files; i++) n += lmc__listed_at(l, i)->file.n_tensors;
    return n;
}

/* Whether the body has hashes of the algorithm that this library knows. */
static int lmc__is_hash_body(const uint8_t *body, uint64_t size)
{
    static const uint8_t head[LMC__HASH_HEAD_SIZE] = {LMC__HASH_SHA256};
    return size >= LMC__HASH_HEAD_SIZE && memcmp(body, head, LMC__HASH_HEAD_SIZE) == 0;
}

/* -- Snapshot_Hash: the SHA-256 of a canonical text that describes the whole snapshot -- */

static void lmc__state_tensor(lmc__sha256 *sha, const lmc_tensor *t, const uint8_t *hash)
{
    const unsigned measure = t->loss.generation ? (unsigned)t->loss.measure : 0u;
    unsigned i;
    lmc__sha256_text(sha, t->name, 4);
    lmc__sha256_text(sha, t->dtype, 1);
    lmc__sha256_number(sha, t->rank, 1);
    for (i = 0; i < t->rank; i++) lmc__sha256_number(sha, t->shape[i], 8);
    lmc__sha256_number(sha, t->offset, 8);
    lmc__sha256_number(sha, t->size, 8);
    lmc__sha256_number(sha, t->loss.generation, 1);
    lmc__sha256_number(sha, measure, 1);
    lmc__sha256_number(sha, (uint64_t)(t->loss.error * 4294967296.0), 4);
    lmc__sha256_update(sha, hash, LMC__HASH_SIZE);
}

/* hash: the first hash of the file; the others follow it. */
static void lmc__state_file(lmc__sha256 *sha, const lmc_file *f, const uint8_t *hash)
{
    unsigned form = 0;
    size_t i;
    lmc__sha256_text(sha, f->path, 4);
    if (f->kind == LMC_FILE_DIRECTORY) form |= LMC__FILE_IS_DIRECTORY;
    if (f->has_mode) form |= LMC__FILE_HAS_MODE;
    if (f->has_mtime) form |= LMC__FILE_HAS_MTIME;
    lmc__sha256_number(sha, form, 1);
    lmc__sha256_number(sha, f->size, 8);
    lmc__sha256_number(sha, f->has_mode ? f->mode : 0, 4);
    lmc__sha256_number(sha, f->has_mtime ? (uint64_t)f->mtime_s : 0, 8);
    lmc__sha256_number(sha, f->has_mtime ? f->mtime_ns : 0, 4);
    lmc__sha256_number(sha, f->n_tensors, 8);
    for (i = 0; i < f->n_tensors; i++, hash += LMC__HASH_SIZE)
        lmc__state_tensor(sha, &f->tensors[i], hash);
    lmc__sha256_update(sha, hash, LMC__HASH_SIZE);
}

/* Hashes n metadata entries, as in the index, except those that tell how the file was made. */
static void lmc__state_metadata(lmc__sha256 *sha, const uint8_t *entry, uint32_t n)
{
    for (; n != 0; n--) {
        const size_t key_size = lmc__load32(entry), size = 8 + key_size + lmc__load32(entry + 4);
        const int is_own = key_size >= 4 && memcmp(entry + 8, "lmc.", 4) == 0;
        if (!is_own || (key_size == 9 && memcmp(entry + 8, "lmc.links", 9) == 0))
            lmc__sha256_update(sha, entry, size);
        entry += size;
    }
}

/* Hashes all files, sorted by path, and n metadata entries. hashes: lmc__count_hashes(l) hashes.
 * items: a scratch buffer. */
LMC__COLD static enum lmc_status lmc__hash_snapshot(uint8_t hash[LMC__HASH_SIZE],
                                                    const lmc__listing *l, const uint8_t *hashes,
                                                    const uint8_t *metadata, uint32_t n,
                                                    lmc__buffer *items)
{
    lmc__sha256 sha;
    lmc__item *item;
    size_t i, at = 0;
    items->size = 0;
    for (i = 0; i < l->n_files; i++) {
        const lmc_file *const f = &lmc__listed_at(l, i)->file;
        LMC__TRY(lmc__append_item(items, f->path, strlen(f->path), hashes + at, i, NULL));
        at += LMC__HASH_SIZE * (f->n_tensors + 1);
    }
    item = (lmc__item *)(void *)items->data;
    lmc__sort_items(item, l->n_files); /* paths are unique, so fingerprints are not compared */
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC content 1", 14);
    lmc__sha256_number(&sha, l->n_files, 8);
    for (i = 0; i < l->n_files; i++)
        lmc__state_file(&sha, &lmc__listed_at(l, item[i].file_number)->file, item[i].fingerprint);
    lmc__state_metadata(&sha, metadata, n);
    lmc__sha256_finish(&sha, hash);
    return LMC_OK;
}

/* Checks that the body (lmc__is_hash_body) has a hash for each of these files and tensors, and that
 * its Snapshot_Hash is right. */
LMC__COLD static enum lmc_status lmc__check_snapshot_hash(const lmc__buffer *body,
                                                          const lmc__listing *l,
                                                          const uint8_t *metadata, uint32_t n,
                                                          lmc__buffer *items)
{
    uint8_t hash[LMC__HASH_SIZE];
    LMC__VALID(body->size == LMC__HASH_BODY_SIZE + LMC__HASH_SIZE * lmc__count_hashes(l)); /* H-2 */
    LMC__TRY(lmc__hash_snapshot(hash, l, body->data + LMC__HASH_BODY_SIZE, metadata, n, items));
    LMC__VALID(memcmp(body->data + LMC__HASH_HEAD_SIZE, hash, LMC__HASH_SIZE) == 0); /* H-5 */
    return LMC_OK;
}

/* == snapshot/origin.h ========================================================================= */

/* Reads the predictions of runs: from the base, from header texts (texts.h), or from bytes of this
 * snapshot that were written or restored. Writer, restorer and reader each have an lmc__origin.
 *
 * Each segment of a RUN maps bytes to the bytes that predict them. A segment names bytes of the
 * base by the number of an *item*. Items are all tensors and all files without tensors, sorted by
 * name and fingerprint (spec 7.2). So the number stays right if the same content is in other files.
 *
 * Checks of the base, and their errors. Each check needs the checks before it:
 *   opening     lmc__open_origin         the base's description is incomplete: ARGUMENT
 *   the header  lmc__check_base          no base is given: BASE_MISSING; the header names
 *                                        another base: BASE_WRONG
 *   a run       lmc__check_run_features  the header names no base: CORRUPT
 *               lmc__check_predictions   the base lacks bytes that segments name: CORRUPT, as the
 *                                        delta contradicts itself. In salvage BASE_WRONG: the
 *                                        header with the fingerprint may be lost
 *   a block     lmc__read_prediction     no base is given: BASE_MISSING. Without a base a delta may
 *                                        still be listed, and be checked if nothing is written
 *               codec/get_block.h        the content has another CRC: BASE_WRONG; CHECKSUM if the
 *                                        prediction is from this snapshot
 *
 * The fingerprint protects the whole base. The CRC protects each block, even if the base changes
 * while it is read, or if its fingerprint could not be checked (in place, salvage). */

typedef struct lmc__range {
    size_t stream;
    uint64_t start, end;
} lmc__range;

typedef struct lmc__origin {
    lmc__buffer items; /* of the base, sorted: lmc__item */
    /* encoding: the base's tensors, sorted by their names read backwards: lmc__item, in which
     * file_number is the number in items */
    lmc__buffer backwards;
    lmc__buffer ranges; /* lmc__range, sorted, with gaps between them: bytes to read back */
    lmc__buffer wide;   /* the input of a conversion */
    /* files of this snapshot that were written or restored so far */
    const lmc__listing *listing;
    const lmc_base *base;                      /* or NULL */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of the base */
    /* reads bytes of this snapshot; or NULL */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *user;
    int in_place; /* read_back reads the base, which is being overwritten; base is NULL */
} lmc__origin;

#define LMC__ORIGIN_BUFFERS LMC__ROW(lmc__origin, items, listing)

/* listing: of this snapshot; it may grow. base: NULL, or complete: every file has a path and a
 * known size, every tensor a name and a dtype. o->fingerprint is computed from the fingerprints
 * that base states; the base's bytes are checked when they are read. Always free the origin. */
LMC__COLD static enum lmc_status lmc__open_origin(lmc__origin *o, const lmc__listing *listing,
                                                  const lmc_base *base,
                                                  const lmc_allocator *allocator)
{
    size_t i, j;
    memset(o, 0, sizeof *o);
    o->listing = listing;
    lmc__init_buffers(o, LMC__ORIGIN_BUFFERS, allocator);
    o->base = base;
    if (!base) return LMC_OK;
    if (!base->get_file) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(base, read);
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

/* Item i of the base, in the sorted order. */
static const lmc__item *lmc__get_item(const lmc__origin *o, size_t i)
{
    return (const lmc__item *)(const void *)o->items.data + i;
}
static size_t lmc__count_items(const lmc__origin *o) { return o->items.size / sizeof(lmc__item); }
static const lmc_file *lmc__file_of_item(const lmc__origin *o, const lmc__item *item)
{
    return o->base->get_file(o->base->user, item->file_number);
}
static uint64_t lmc__item_size(const lmc__origin *o, const lmc__item *item)
{
    return item->tensor ? item->tensor->size : lmc__file_of_item(o, item)->size;
}

/* Checks that the header names this base. In place, the caller checks it. */
static enum lmc_status lmc__check_base(const lmc__origin *o, const uint8_t *header)
{
    if (!lmc__has_base(header) || o->in_place) return LMC_OK;
    LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    LMC__CHECK(memcmp(header + LMC__BASE_FINGERPRINT_AT, o->fingerprint, LMC_FINGERPRINT_SIZE) == 0,
               LMC_ERR_BASE_WRONG);
    return LMC_OK;
}

/* Searches a sorted buffer of elements of `step` bytes, each of which begins with an lmc__range.
 * Returns the number of the first range that ends after `position`, or is in a later stream. */
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

/* Whether bytes [offset, offset + size) of a file are in runs that were added (lmc__add_run). */
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

/* Checks that every segment of the run maps to bytes that exist. Call this before
 * lmc__read_prediction. not_in_base: the error if the base lacks the bytes. Segments of a base that
 * is not given, or is restored in place, are not checked. */
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
        } else { /* the header text of a file that was described before the run */
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

/* Marks the bytes of the run as readable, unless the run itself is LMC__PREDICT_OWN. So reading a
 * prediction of this kind never needs another prediction of this kind. */
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

/* The number of the segment that has byte `offset` of the run's stream. */
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

/* Where the prediction of byte `at` of a segment begins, in a file or its header text. file_number
 * is SIZE_MAX if the prediction is zeros. In place, each stream is one file. */
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

/* Reads the prediction of size bytes of the run, from `place` on. A conversion reads twice as many
 * bytes: whole elements, as blocks and segments have whole elements. */
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

/* Reads the prediction of bytes [offset, offset + size) of a run to dst (lmc__check_predictions
 * must have passed). A segment without a base is predicted by zeros. Predictions that are
 * neighbours, mostly of small tensors, are read with one call. */
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
        const uint64_t at = offset - s->start; /* 0 except in the first segment */
        const lmc__place from = lmc__locate(o, run, s, at);
        size_t part = (size_t)lmc__min64(size, s->size - at);
        for (; part < size; i++) { /* add the segments that continue this one */
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

/* == snapshot/work.h =========================================================================== */

/* Bounds the work of random access, and caches decoded bytes, so that less is decoded.
 *
 * A prediction may be one byte of a block of 4 MiB, and the next prediction one byte of another
 * block. If each prediction decoded a block, a small file would take hours. Therefore (spec 9):
 *
 *  - Windows cache the decoded bytes around the last few places that were read. Predictions that go
 *    from front to back, at up to four places in turns, decode each block once.
 *
 *  - A meter counts decoded and encoded bytes. Reading n bytes may cost 64 * (n + 2^22) of them for
 *    each snapshot of the chain; more is LMC_ERR_LIMIT. All readers of a chain share the meter of
 *    the first base, so the bound holds for the whole chain. If each had its own, the bounds would
 *    multiply.
 *
 *  - An account of a meter has the requests that count together. A reader that it meets for the
 *    first time adds its snapshot and those of the readers below it. So readers that only callbacks
 *    of the program connect, as several bases that are one together, count when they are read. */

/* A window holds one block of which a request needed only a part. It grows up to this size while
 * neighbours are read one after another. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)
#define LMC__N_WINDOWS 4

/* Bytes of a stream, from `start` on. */
typedef struct lmc__window {
    size_t stream;
    uint64_t start;
    uint64_t used; /* time of the last use, by lmc__windows.now */
} lmc__window;

typedef struct lmc__windows {
    lmc__buffer bytes[LMC__N_WINDOWS];
    lmc__window list[LMC__N_WINDOWS];
    uint64_t now;
} lmc__windows;
#define LMC__WINDOW_BUFFERS LMC__ROW(lmc__windows, bytes, list)

/* Finds the byte `offset` of the stream in a window. *size: in: bytes wanted; out: bytes that the
 * window has from there. NULL: no window has that byte. */
static const uint8_t *lmc__find_window(lmc__windows *w, size_t stream, uint64_t offset,
                                       size_t *size)
{
    unsigned i;
    for (i = 0; i < LMC__N_WINDOWS; i++) {
        lmc__window *const window = &w->list[i];
        const lmc__buffer *const bytes = &w->bytes[i];
        if (window->stream != stream || offset < window->start ||
            offset - window->start >= bytes->size)
            continue;
        window->used = ++w->now;
        *size = lmc__min(*size, bytes->size - (size_t)(offset - window->start));
        return bytes->data + (size_t)(offset - window->start);
    }
    return NULL;
}

/* Chooses the window to fill from `start` on. It is the window that ends there, so that reading on
 * does not replace other windows; else the least recently used window. *follows: bytes that the
 * window had up to start. */
static lmc__buffer *lmc__choose_window(lmc__windows *w, size_t stream, uint64_t start,
                                       size_t *follows)
{
    unsigned i, chosen = 0;
    *follows = 0;
    for (i = 0; i < LMC__N_WINDOWS && !*follows; i++) {
        const lmc__window *const window = &w->list[i];
        const size_t size = w->bytes[i].size;
        if (size && window->stream == stream && window->start + size == start) *follows = size;
        if (*follows || window->used < w->list[chosen].used) chosen = i;
    }
    w->list[chosen].stream = stream;
    w->list[chosen].start = start;
    w->list[chosen].used = ++w->now;
    w->bytes[chosen].size = 0;
    return &w->bytes[chosen];
}

/* Limits of the format (R9-5): decoded bytes for each requested byte, and the largest block. */
#define LMC__WORK_FACTOR 64
#define LMC__WORK_FREE ((uint64_t)1 << LMC__MAX_LOG2_BLOCK)

typedef struct lmc__meter {
    uint64_t left;
    uint64_t size;    /* bytes of all requests of the account */
    uint64_t n_links; /* snapshots that the account has met */
    uint64_t account; /* its number; 0: none was begun yet */
    int is_started;   /* the last request was not alone: the account goes on */
    int is_running;   /* a request is being answered: reads that it makes are part of it */
} lmc__meter;

static uint64_t lmc__work_for(uint64_t size, uint64_t n_links)
{
    const uint64_t factor = LMC__WORK_FACTOR * n_links;
    return size < UINT64_MAX / 4 / factor ? size * factor : UINT64_MAX / 4;
}

static void lmc__allow_work(lmc__meter *m, uint64_t size, uint64_t n_links)
{
    m->left = lmc__min64(UINT64_MAX / 2, m->left + lmc__work_for(size, n_links));
}

/* Begins a request for size bytes, unless it is part of another (then 0). A request that is_alone
 * (the user's own call) or is_first of a reader gets a new account. Requests that a decoder makes
 * while it goes through a file share one account. */
static int lmc__begin_work(lmc__meter *m, uint64_t size, int is_alone, int is_first)
{
    if (m->is_running) return 0;
    m->is_running = 1;
    if (is_alone || is_first || !m->is_started) {
        m->account++;
        m->left = m->size = m->n_links = 0;
    }
    m->is_started = !is_alone;
    m->size = lmc__min64(UINT64_MAX / 4, m->size + lmc__min64(size, UINT64_MAX / 4));
    if (m->n_links) lmc__allow_work(m, size, m->n_links);
    return 1;
}

static void lmc__add_link(lmc__meter *m)
{
    m->n_links++;
    lmc__allow_work(m, m->size + LMC__WORK_FREE, 1);
}

static void lmc__end_work(lmc__meter *m, int is_outermost)
{
    if (is_outermost) m->is_running = 0;
}

static enum lmc_status lmc__spend(lmc__meter *m, uint64_t work)
{
    if (work > m->left) return LMC_ERR_LIMIT;
    m->left -= work;
    return LMC_OK;
}

/* == snapshot/restore.h ======================================================================== */

/* Restores from front to back, even from a pipe to a pipe: it never seeks. Checks everything. If
 * nothing is written, a delta can be checked without its base. Blocks that cannot be decoded are
 * then checked only by the CRC of the payload, and the CRCs and fingerprints of their files are
 * taken from the index.
 *
 * The stream is read into two buffers in turns. Blocks are decoded from the buffer. If the end of a
 * buffer cuts a block, the block's first part is copied in front of the data in the other buffer:
 *     in[0]  |room|--- section --|=== block 0 ===|=== block 1 ===|=== bl|
 *                                                               at ^   ^ end
 *     in[1]  |      room     |=== bl|ock 2 ======|=== block 3 ===|== ...
 *                             at ^  ^ next_room: new bytes of the stream
 *
 * A wave ends if `out` is full, or if the next buffer to fill has one of the wave's blocks. It also
 * ends before a run that refers to this snapshot, and at the end of a stream or of the bytes that
 * done_size covers. write() gets blocks in order, after their CRCs were checked, one wave later.
 * With write_at, a stream of one file is written in the wave that decodes it. begin_file and
 * end_file are called between waves.
 *
 * lmc__fetch is called for at most a block with its header, or the fixed fields of a section.
 * Bodies are taken in parts, as they arrive, so a false size cannot make a buffer grow before the
 * bytes are there. Only the index, at the end, confirms names, sizes and fingerprints. */
typedef struct lmc__restorer {
    lmc__buffer body, segments; /* of the current section; of the current RUN */
    lmc__buffer keys, metadata; /* at the end: keys, NUL-terminated; lmc__metadata_entry */
    lmc__buffer items;          /* at the end: all items (lmc__identify_listing) */
    /* with options.check_hashes: the body of the section of hashes; the hashes of the restored
     * files */
    lmc__buffer hashes, found_hashes;
    const lmc_restore_options *options;
    lmc__coder coder;

    /* -- the stream -- */
    /* bytes that were read and not used yet: a part of coder.in[in_number] */
    const uint8_t *at, *end;
    unsigned in_number;
    /* the other coder.in has the bytes that follow, from next_room on; the rest of this buffer will
     * be copied in front of them */
    int is_next_read;
    size_t next_room;
    /* the other coder.in has blocks of the wave that is being planned: these must be decoded before
     * it gets new bytes */
    int is_other_used;
    uint64_t read_limit; /* upper limit of the next read */
    uint64_t offset;     /* bytes of the stream from its beginning to `at` */

    uint8_t header[LMC__HEADER_SIZE]; /* from this member on: what was read so far */
    lmc__index_builder index;         /* builds what the INDX section must be */
    lmc__listing listing;             /* all files so far */
    uint32_t n_runs, n_ancillary;
    int has_rows;   /* BLKS was read, so the next section must be the index */
    uint64_t total; /* bytes of all runs */
    lmc__origin origin;
    /* is_check: nothing is written, so blocks may stay undecoded. unread: LMC_OK, or the reason */
    int is_check;
    enum lmc_status unread;

    /* -- the current stream of files: the last in the listing -- */
    uint64_t position; /* bytes of the stream in runs so far */
    /* Numbers of files: blocks of planned_file are being planned, bytes of `file` are being
     * written. Each has a digester: `planner` plans pieces, `digester` absorbs them. */
    size_t planned_file, file;
    lmc__digester planner, digester;

    /* -- the current wave -- */
    size_t largest; /* decoded bytes of the largest block of the run */
} lmc__restorer;
#define LMC__RESTORER_BUFFERS LMC__ROW(lmc__restorer, body, options)

/* The most bytes that one read takes from the stream for each worker, unless a block is larger.
 * This is more than the input of a wave, since decoding makes the data larger. */
#define LMC__READ_SIZE LMC__WAVE_SIZE

static lmc__listed_file *lmc__restored_file(const lmc__restorer *r)
{
    return lmc__listed_at(&r->listing, r->file);
}

/* Begins file number r->file, the next file of the stream. */
static enum lmc_status lmc__begin_restored(lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    const lmc_file *const file = &lmc__restored_file(r)->file;
    lmc__begin_digester(&r->digester, file);
    if (o->check_hashes) LMC__TRY(lmc__begin_hashes(&r->digester, &r->found_hashes));
    return o->begin_file ? o->begin_file(o->user, file, r->file) : LMC_OK;
}

/* For a file with blocks that were not decoded: sets its CRC and fingerprints in the built index to
 * those in `entries`, or to zero if entries is NULL. */
static void lmc__set_facts(lmc__restorer *r, lmc__listed_file *f, const uint8_t *entries)
{
    uint8_t *const facts = r->index.entries.data + f->unread_at;
    const size_t size = 4 + LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(&f->file);
    if (entries) memcpy(facts, entries + f->unread_at, size);
    else memset(facts, 0, size);
    f->file.crc = lmc__load32(facts);
    lmc__keep_fingerprints(&f->file, facts + 4);
}

/* Ends the file, all of which was decoded. Writes all parts before it calls end_file. */
static enum lmc_status lmc__end_restored(lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    lmc__listed_file *const f = lmc__restored_file(r);
    LMC__TRY(lmc__drain(&r->coder));
    lmc__index_file_end(&r->index, &r->digester, &f->file);
    if (f->is_unread) {
        f->unread_at = (size_t)(r->digester.fingerprints - r->index.entries.data) - 4;
        lmc__set_facts(r, f, NULL);
    }
    return o->end_file ? o->end_file(o->user, &f->file, r->file) : LMC_OK;
}

static enum lmc_status lmc__next_restored(lmc__restorer *r)
{
    LMC__TRY(lmc__end_restored(r));
    r->file++;
    return lmc__begin_restored(r);
}

/* Takes the decoded bytes of a wave, at data. They are written with the next wave; but if files end
 * in this wave, the bytes up to the last such end are written now. */
static enum lmc_status lmc__deliver_wave(lmc__restorer *r, const uint8_t *data)
{
    const lmc__piece *piece = (const lmc__piece *)(const void *)r->coder.pieces.data;
    const lmc__piece *const end = piece + r->coder.pieces.size / sizeof *piece;
    for (;;) {
        const uint64_t file_size = lmc__restored_file(r)->file.size;
        size_t size = 0; /* of the pieces of this file */
        lmc__index_fingerprints(&r->index, &r->digester);
        for (; piece < end && r->digester.absorbed < file_size; size += piece++->size)
            lmc__absorb_piece(&r->digester, piece, data + size);
        if (!r->coder.is_written && !r->coder.write_at)
            LMC__TRY(lmc__add_part(&r->coder, data, size));
        if (piece == end) break;
        data += size;
        LMC__TRY(lmc__next_restored(r));
    }
    r->coder.pieces.size = 0;
    return LMC_OK;
}

/* Decodes the planned wave, which may be empty. At the same time it writes the bytes of the
 * previous wave, and reads on if the other buffer is free. Without threads, decoded bytes are
 * written at once. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->in_number ^ 1];
    const size_t size_of_wave = c->n_jobs ? out->size : 0;
    lmc__want(c, NULL, 0);
    if (is_reading) {
        uint64_t size;
        if (r->next_room < lmc_block_bound(r->largest)) r->next_room = lmc_block_bound(r->largest);
        size =
            lmc__min64(r->read_limit,
                       lmc__count_workers(c->parallel) *
                           (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE));
        r->read_limit = 4 * size;
        if (r->next_room + size > next->cap) lmc__free_buffer(next); /* it has nothing to keep */
        next->size = 0;
        LMC__TRY(lmc__reserve(next, r->next_room + size)); /* then size fits into a size_t */
        lmc__want(c, next->data + r->next_room, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (c->pieces.size) LMC__TRY(lmc__deliver_wave(r, out->data));
    if (c->parallel && !c->write_at) c->out_number ^= 1;
    else LMC__TRY(lmc__drain(c)); /* while the bytes are in the caches */
    c->out[c->out_number].size = 0;
    return lmc__report_progress(c, size_of_wave);
}

/* Continues with the other buffer. The rest of this buffer is copied in front of the data there. At
 * the end of the stream nothing changes. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->in_number ^ 1];
    /* lmc__decode_wave also reads, unless the other buffer has blocks of the wave. Then a second,
     * empty wave reads. */
    if (!r->is_next_read) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read && !c->ended) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read) return LMC_OK;
    if (left > r->next_room) { /* the room was made for smaller blocks */
        const size_t more = left - r->next_room;
        LMC__TRY(lmc__reserve(next, more));
        memmove(next->data + left, next->data + r->next_room, next->size - r->next_room);
        r->next_room = left;
        next->size += more;
    }
    if (left) memcpy(next->data + r->next_room - left, r->at, left);
    r->at = next->data + r->next_room - left;
    r->end = next->data + next->size;
    r->in_number ^= 1;
    r->is_next_read = 0;
    r->is_other_used = c->n_jobs != 0;
    return LMC_OK;
}

/* Makes sure that size bytes are at r->at; fewer only at the end of the stream. It may decode a
 * wave, so pointers into `out`, and out_number, may change. */
static enum lmc_status lmc__fetch(lmc__restorer *r, size_t size)
{
    while ((size_t)(r->end - r->at) < size && (r->is_next_read || !r->coder.ended))
        LMC__TRY(lmc__turn_buffer(r));
    return LMC_OK;
}

static enum lmc_status lmc__fetch_all(lmc__restorer *r, size_t size)
{
    LMC__TRY(lmc__fetch(r, size));
    LMC__CHECK((size_t)(r->end - r->at) >= size, LMC_ERR_TRUNCATED);
    return LMC_OK;
}

/* Takes the next size bytes, which must be there. They stay until the next fetch. */
static const uint8_t *lmc__consume(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
    return r->at - size;
}

/* Reads the section's body to a buffer, in the parts that arrive, and checks its CRC. body NULL: it
 * is not kept, and may have any size. */
LMC__COLD static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section,
                                                lmc__buffer *body)
{
    uint64_t left = section->size;
    uint32_t crc = 0;
    size_t n;
    if (body && left > r->index.limit) return LMC_ERR_LIMIT;
    if (body) body->size = 0;
    for (; left != 0; left -= n) {
        LMC__TRY(lmc__fetch_all(r, 1));
        n = (size_t)lmc__min64(left, (uint64_t)(r->end - r->at));
        crc = r->coder.wave.k->crc32c(crc, r->at, n);
        if (body) LMC__TRY(lmc__append(body, r->at, n));
        (void)lmc__consume(r, n);
    }
    LMC__CHECK(crc == section->body_crc, LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* Takes an ancillary section. Keeps only the section of hashes, and only with check_hashes. */
LMC__COLD static enum lmc_status lmc__skip_section(lmc__restorer *r, const lmc__section *section)
{
    int is_kept = 0;
    if (r->options->check_hashes && lmc__is_kind(section, "hash") &&
        section->size >= LMC__HASH_HEAD_SIZE) {
        LMC__TRY(lmc__fetch_all(r, LMC__HASH_HEAD_SIZE));
        is_kept = lmc__is_hash_body(r->at, LMC__HASH_HEAD_SIZE);
    }
    LMC__VALID(!is_kept || r->hashes.size == 0);
    LMC__VALID(r->listing.n_streams && !r->has_rows);
    r->n_ancillary++;
    LMC__TRY(lmc__index_section(&r->index, section->kind, NULL, section->size));
    return lmc__read_body(r, section, is_kept ? &r->hashes : NULL);
}

/* Takes a FILE section. Everything is checked before begin_file is called. The built index has room
 * for facts that are not known yet. In place, each stream must be one file: a block of two files
 * could not be written. */
static enum lmc_status lmc__restore_files(lmc__restorer *r, const lmc__section *section)
{
    const lmc_restore_options *o = r->options;
    lmc__listing *const l = &r->listing;
    uint64_t total = r->total;
    const lmc__stream *stream;
    size_t i;
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__TRY(lmc__list_files(l, r->body.data, r->body.size));
    stream = lmc__stream_at(l, l->n_streams - 1);
    if (o->in_place && stream->n_files > 1) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__index_section(&r->index, section->kind, r->body.data, r->body.size));
    LMC__TRY(lmc__index_files(&r->index, l, stream));
    for (i = stream->first_file; i < l->n_files && !stream->is_unknown; i++)
        if (!lmc__add_total(&total, lmc__listed_at(l, i)->file.size, o->max_total_size))
            return LMC_ERR_LIMIT; /* before the caller allocates */
    r->coder.write_at = stream->n_files == 1 ? o->write_at : NULL;
    r->coder.file_number = stream->first_file;
    r->position = 0;
    r->file = r->planned_file = stream->first_file;
    lmc__begin_digester(&r->planner, &lmc__restored_file(r)->file);
    return lmc__begin_restored(r);
}

/* Ends the stream: it has no more runs. Its last files may be empty. */
static enum lmc_status lmc__restore_stream_end(lmc__restorer *r)
{
    lmc__listing *const l = &r->listing;
    lmc__stream *stream;
    if (l->n_streams == 0) return LMC_OK;
    stream = lmc__stream_at(l, l->n_streams - 1);
    if (stream->is_unknown) stream->size = r->position;
    LMC__VALID(r->position == stream->size);
    LMC__TRY(lmc__decode_wave(r));
    while (r->file + 1 < l->n_files) LMC__TRY(lmc__next_restored(r));
    return lmc__end_restored(r);
}

static enum lmc_status lmc__plan_stream(lmc__restorer *r, lmc__snapshot_job *job, size_t size)
{
    while (size != 0) {
        lmc__listed_file *const f = lmc__listed_at(&r->listing, r->planned_file);
        const size_t n = (size_t)lmc__min64(size, f->file.size - r->planner.planned);
        LMC__TRY(lmc__plan_pieces(&r->coder, &r->planner, job, n));
        if (n && job->is_unread) f->is_unread = 1;
        size -= n;
        if (size != 0) /* a run ends within its stream, so there is another file */
            lmc__begin_digester(&r->planner, &lmc__listed_at(&r->listing, ++r->planned_file)->file);
    }
    return LMC_OK;
}

/* Makes a job of the wave from the next block. Reads its prediction first, to the place where the
 * block will be decoded. unread: LMC_OK, or why there is no prediction.
 *
 * In place, done_size says which blocks were written already; no block may be half written. Blocks
 * that were written are read back and checked, and write() does not get them again. */
static enum lmc_status lmc__restore_block(lmc__restorer *r, const lmc__run *run, uint64_t block,
                                          enum lmc_status unread)
{
    const size_t size = lmc__block_size_at(run, block);
    const uint64_t offset = block * run->block_size,
                   n_before =
                       r->total - run->size + offset; /* bytes of the snapshot before this block */
    const int is_done = n_before < r->options->done_size;
    lmc__coder *c = &r->coder;
    lmc__buffer *out;
    lmc_block_info info;
    lmc__snapshot_job *block_job;
    lmc__job *job;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, (uint32_t)block, &info));
    LMC__VALID(info.size == size); /* R5-5 */
    LMC__TRY(lmc__check_block_features(r->at, lmc__load32(r->header + LMC__FEATURES_AT)));
    if (is_done && size > r->options->done_size - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number];
    if (c->n_jobs && (size > out->cap - out->size || c->is_written != is_done))
        LMC__TRY(lmc__decode_wave(r));
    c->is_written = is_done;
    out = &c->out[c->out_number]; /* may be the other buffer now */
    if (c->n_jobs == 0) LMC__TRY(lmc__reserve(out, lmc__get_wave_size(c, r->largest)));
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job; /* all zero */
    job->number = (uint32_t)block;
    job->info = info;
    job->src = lmc__consume(r, info.encoded_size);
    LMC__PREFETCH(r->at); /* the header of the next block */
    job->dst = out->data + out->size;
    job->keep = size;
    job->streaming = lmc__no_streaming;
    job->is_own = lmc__is_own_prediction(run);
    block_job->file_offset = run->start + offset; /* used if the stream is one file */
    if (info.has_prediction) LMC__VALID(run->prediction != LMC__PREDICT_ZERO);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, r->file, run->start + offset, job->dst, size));
    } else if (info.has_prediction && unread != LMC_OK) {
        r->unread = unread;
        block_job->is_unread = 1;
    } else if (info.has_prediction) {
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst, size));
        job->base = job->dst;
    }
    out->size += size;
    LMC__TRY(lmc__index_block(&r->index, info.encoded_size, job->src));
    return lmc__plan_stream(r, block_job, size);
}

/* LMC_OK, or why the predictions of a run cannot be read, which is allowed if nothing is written.
 * Without its base a delta cannot read back its own bytes either. */
static enum lmc_status lmc__why_unread(const lmc__restorer *r, const lmc__run *run)
{
    if (!r->is_check || run->prediction == LMC__PREDICT_ZERO ||
        run->prediction == LMC__PREDICT_TEXT)
        return LMC_OK;
    if (!r->origin.base && lmc__has_base(r->header)) return LMC_ERR_BASE_MISSING;
    return run->prediction == LMC__PREDICT_OWN && !r->origin.read_back ? LMC_ERR_READ_BACK : LMC_OK;
}

/* Takes a RUN section and its blocks. A run that refers to its own snapshot reads back bytes that
 * write() got. So all earlier blocks are decoded and written first. */
static enum lmc_status lmc__restore_run(lmc__restorer *r, const lmc__section *section)
{
    enum lmc_status unread;
    uint64_t block;
    lmc__run run;
    LMC__VALID(r->listing.n_streams && r->n_runs < UINT32_MAX);
    LMC__TRY(lmc__read_body(r, section, &r->body));
    r->segments.size = 0;
    LMC__TRY(lmc__parse_run(&run, &r->segments, r->body.data, r->body.size, &r->listing,
                            r->listing.n_streams - 1, &r->position));
    LMC__TRY(lmc__check_run_features(&run, lmc__load32(r->header + LMC__FEATURES_AT)));
    if (!lmc__add_total(&r->total, run.size, r->options->max_total_size)) return LMC_ERR_LIMIT;
    unread = lmc__why_unread(r, &run);
    LMC__TRY(lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__index_section(&r->index, section->kind, r->body.data, r->body.size));
    if (run.prediction == LMC__PREDICT_OWN && unread == LMC_OK) {
        LMC__TRY(lmc__decode_wave(r));
        LMC__TRY(lmc__drain(&r->coder));
    }
    r->n_runs++;
    r->largest = lmc__block_size_at(&run, 0);
    LMC__TRY(lmc__set_coder(&r->coder, r->largest, 1, 0));
    for (block = 0; block < run.n_blocks; block++)
        LMC__TRY(lmc__restore_block(r, &run, block, unread));
    return LMC_OK;
}

static enum lmc_status lmc__restore_rows(lmc__restorer *r, const lmc__section *section)
{
    const lmc__buffer *const rows = &r->index.rows;
    LMC__VALID(r->listing.n_streams);
    LMC__TRY(lmc__index_run_end(&r->index));
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__VALID(
        r->body.size == rows->size &&
        (rows->size == 0 || memcmp(r->body.data, rows->data, rows->size) == 0)); /* R8-1, R8-2 */
    r->has_rows = 1;
    return LMC_OK;
}

/* Takes the INDX section. Its entries must equal the built entries, byte for byte. Counts,
 * metadata, the snapshot's fingerprint and hashes are checked, too. CRCs and fingerprints of files
 * that could not be decoded are taken from it. */
static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          lmc_snapshot_info *info)
{
    const uint64_t n_sections = (uint64_t)r->listing.n_streams + r->n_runs + r->n_ancillary;
    const lmc__buffer *const entries = &r->index.entries, *const found = &r->found_hashes;
    const uint8_t *head, *metadata;
    uint32_t n_metadata;
    lmc__cursor c;
    size_t i;
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__VALID(r->body.size >= entries->size);
    head = r->body.data;
    LMC__VALID(memcmp(head, r->header, LMC__HEADER_SIZE) == 0);           /* R8-3 */
    LMC__VALID(lmc__load32(head + LMC__INDEX_SECTIONS_AT) == n_sections); /* R8-5 */
    for (i = 0; i < r->listing.n_files; i++)
        if (lmc__listed_at(&r->listing, i)->is_unread)
            lmc__set_facts(r, lmc__listed_at(&r->listing, i), head);
    LMC__VALID(memcmp(head + LMC__INDEX_BODY_SIZE, entries->data + LMC__INDEX_BODY_SIZE,
                      entries->size - LMC__INDEX_BODY_SIZE) == 0);
    metadata = c.p = head + entries->size;
    c.end = head + r->body.size;
    n_metadata = lmc__load32(head + LMC__INDEX_METADATA_AT);
    LMC__TRY(
        lmc__parse_metadata(&c, n_metadata, r->options->metadata ? &r->keys : NULL, &r->metadata));
    LMC__TRY(lmc__skip_records(&c, &r->listing.n_records));
    LMC__TRY(lmc__identify_listing(&r->items, &r->listing, info->fingerprint));
    LMC__VALID(memcmp(head + LMC__INDEX_FINGERPRINT_AT, info->fingerprint, LMC_FINGERPRINT_SIZE) ==
               0); /* R8-4 */
    info->n_files = r->listing.n_files;
    info->n_metadata = n_metadata;
    info->n_sections = r->n_ancillary;
    info->n_records = r->listing.n_records;
    info->hashes_checked = r->hashes.size != 0;
    if (r->hashes.size == 0) return LMC_OK;
    LMC__TRY(lmc__check_snapshot_hash(&r->hashes, &r->listing, metadata, n_metadata, &r->items));
    LMC__VALID(memcmp(r->hashes.data + LMC__HASH_BODY_SIZE, found->data, found->size) == 0);
    return LMC_OK;
}

static enum lmc_status lmc__restore_metadata(const lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    const lmc__metadata_entry *const entries =
        (const lmc__metadata_entry *)(const void *)r->metadata.data;
    size_t i;
    for (i = 0; o->metadata && i < r->metadata.size / sizeof *entries; i++)
        LMC__TRY(o->metadata(o->user, (const char *)r->keys.data + entries[i].key_at,
                             entries[i].value, entries[i].size));
    return LMC_OK;
}

/* Restores the whole stream. No byte may follow the trailer. */
static enum lmc_status lmc__restore(lmc__restorer *r, lmc_snapshot_info *info)
{
    const lmc__kernels *k = r->coder.wave.k;
    lmc__section section;
    uint64_t index_at;
    LMC__TRY(lmc__fetch(r, LMC__HEADER_SIZE));
    LMC__TRY(lmc_header_parse(r->at, (size_t)(r->end - r->at), info));
    if (r->origin.base || !r->is_check) LMC__TRY(lmc__check_base(&r->origin, r->at));
    else if (lmc__has_base(r->at)) r->unread = LMC_ERR_BASE_MISSING;
    memcpy(r->header, lmc__consume(r, LMC__HEADER_SIZE), LMC__HEADER_SIZE);
    for (;;) {
        index_at = r->offset;
        LMC__TRY(lmc__fetch_all(r, LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__get_section(&section, lmc__consume(r, LMC__SECTION_HEADER_SIZE), k));
        LMC__VALID(r->has_rows == lmc__is_kind(&section, "INDX")); /* R4-9 */
        if (r->has_rows) break;
        if (lmc__is_ancillary(&section)) {
            LMC__TRY(lmc__skip_section(r, &section));
        } else if (lmc__is_kind(&section, "RUN ")) {
            LMC__TRY(lmc__restore_run(r, &section));
        } else {
            LMC__TRY(lmc__restore_stream_end(r));
            LMC__TRY(lmc__is_kind(&section, "BLKS") ? lmc__restore_rows(r, &section)
                                                    : lmc__restore_files(r, &section));
        }
    }
    if (r->options->done_size > r->total) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__restore_index(r, &section, info));
    LMC__TRY(lmc__fetch_all(r, LMC__TRAILER_SIZE));
    LMC__TRY(lmc__check_trailer(info, r->at, r->offset + LMC__TRAILER_SIZE, k));
    LMC__VALID(info->index_offset == index_at); /* R3-20 */
    (void)lmc__consume(r, LMC__TRAILER_SIZE);
    LMC__TRY(lmc__fetch(r, 1));
    LMC__VALID(r->at == r->end); /* R3-22: nothing follows the trailer */
    return lmc__restore_metadata(r);
}

LMC__COLD LMC_API enum lmc_status lmc_snapshot_restore(const lmc_stream *stream,
                                                       lmc_snapshot_info *info,
                                                       const lmc_restore_options *options)
{
    lmc_restore_options o;
    lmc_snapshot_info found;
    enum lmc_status status;
    lmc__restorer *r; /* 2 KiB, which would be too much for the stack */
    if (info) memset(info, 0, sizeof *info);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    if ((o.in_place ? !o.read_back : o.done_size != 0) || (o.write_at && (o.in_place || !o.write)))
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    LMC__TRY(lmc__check_parallel(o.parallel));
    LMC__TRY(lmc__check_allocator(o.allocator));
    r = (lmc__restorer *)lmc__realloc(o.allocator, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->options = &o;
    r->is_check = !o.write && !o.in_place && !o.check_hashes;
    r->read_limit = LMC__FIRST_READ_SIZE;
    lmc__open_coder(&r->coder, o.parallel, o.allocator);
    r->coder.stream = *stream;
    r->coder.sink.write = o.write;
    r->coder.sink.user = o.user;
    r->coder.task = lmc__decode_snapshot_task;
    r->coder.progress = o.progress;
    r->coder.progress_user = o.user;
    lmc__init_listing(&r->listing, o.allocator);
    lmc__init_buffers(r, LMC__RESTORER_BUFFERS, o.allocator);
    status = lmc__open_origin(&r->origin, &r->listing, o.in_place ? NULL : o.base, o.allocator);
    r->origin.in_place = o.in_place;
    r->origin.read_back = o.read_back;
    r->origin.user = o.user;
    if (status == LMC_OK) status = lmc__open_index(&r->index, o.max_index_size, o.allocator);
    if (status == LMC_OK) status = lmc__restore(r, &found);
    if (status == LMC_OK && info) *info = found;
    if (status == LMC_OK) status = r->unread; /* all that can be checked is right */
    lmc__free_coder(&r->coder);
    lmc__free_buffers(r, LMC__RESTORER_BUFFERS);
    lmc__free_buffers(&r->index, LMC__INDEX_BUFFERS);
    lmc__free_listing(&r->listing);
    lmc__free_origin(&r->origin);
    (void)lmc__realloc(o.allocator, r, sizeof *r, 0);
    return status;
}

/* == snapshot/index.h ========================================================================== */

/* A reader's tables of the files, runs and blocks of a snapshot, and the parser that makes them
 * from the index. Body_CRC is checked first. It finds damage, but not attacks: so the other checks
 * must work for any bytes. Entries are parsed one by one, and no count in the file decides how much
 * is allocated. So memory is in proportion to the size of the index, which the caller limits, and
 * time is n log n. Header, stored sizes and BLKS must add up to the offset of the index. */

typedef struct lmc__reader_run {
    lmc__run run;
    /* where in the file its blocks begin and end; the row of its first block in BLKS */
    uint64_t at, end, first_row;
    /* LMC_OK; in a damaged file, why the prediction cannot be read (LMC_ERR_LOST: the run's section
     * is lost) */
    enum lmc_status prediction;
} lmc__reader_run;

/* A block, from its row in BLKS. at: where the block begins in the file; size: its encoded size. */
typedef struct lmc__block_place {
    uint64_t at;
    uint32_t size, header_crc;
} lmc__block_place;

typedef struct lmc__ancillary {
    uint64_t at, size; /* of the section, its header included */
    char kind[4];
} lmc__ancillary;

typedef struct lmc__tables {
    lmc__buffer index;          /* the INDX section; metadata and fingerprints point into it */
    lmc__buffer runs, segments; /* lmc__reader_run; lmc__segment, of all runs */
    lmc__buffer keys, metadata; /* keys of the metadata, NUL-terminated; lmc__metadata_entry */
    /* lmc__ancillary: in the order of the file */
    lmc__buffer ancillary;
    lmc__listing listing;
    /* number of rows of all runs; where BLKS begins */
    uint64_t n_rows, rows_offset;
    const uint8_t *metadata_at; /* in the index: n_metadata entries */
    lmc__cursor records;        /* likewise: extension records */
    uint32_t n_metadata;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
} lmc__tables;
#define LMC__TABLE_BUFFERS LMC__ROW(lmc__tables, index, listing)

/* The pointer is valid until more runs are added. */
static lmc__reader_run *lmc__table_run(const lmc__tables *t, size_t i)
{
    return t->runs.data ? (lmc__reader_run *)(void *)t->runs.data + i : NULL;
}
static size_t lmc__count_runs(const lmc__tables *t)
{
    return t->runs.size / sizeof(lmc__reader_run);
}

static void lmc__init_tables(lmc__tables *t, const lmc_allocator *allocator)
{
    memset(t, 0, sizeof *t);
    lmc__init_listing(&t->listing, allocator);
    lmc__init_buffers(t, LMC__TABLE_BUFFERS, allocator);
}

LMC__COLD static void lmc__free_tables(lmc__tables *t)
{
    lmc__free_listing(&t->listing);
    lmc__free_buffers(t, LMC__TABLE_BUFFERS);
}

/* Sets the segments of all runs, after all segments were appended. */
static void lmc__settle_runs(lmc__tables *t)
{
    const size_t n = lmc__count_runs(t);
    size_t i;
    for (i = 0; i < n; i++) lmc__set_segments(&lmc__table_run(t, i)->run, &t->segments);
}

/* The state while the entries of an index are parsed. */
typedef struct lmc__index_parser {
    lmc__tables *t;
    lmc__cursor c;     /* what is left of the body */
    unsigned features; /* of the file */
    uint64_t offset;   /* where in the file the next section must begin */
    uint64_t position; /* bytes of the last stream that are in runs so far */
} lmc__index_parser;

static enum lmc_status lmc__check_stream_end(const lmc__index_parser *x)
{
    const lmc__listing *const l = &x->t->listing;
    LMC__VALID(l->n_streams == 0 || x->position == lmc__stream_at(l, l->n_streams - 1)->size);
    return LMC_OK;
}

/* Parses the entry of a FILE section: its body, then the CRCs and fingerprints of its files. The
 * runs before the section must cover the whole previous stream. */
static enum lmc_status lmc__parse_file_entry(lmc__index_parser *x, const uint8_t *body,
                                             size_t body_size)
{
    lmc__listing *const l = &x->t->listing;
    lmc__stream *stream;
    size_t i;
    LMC__TRY(lmc__check_stream_end(x));
    LMC__TRY(lmc__list_files(l, body, body_size));
    stream = lmc__stream_at(l, l->n_streams - 1);
    stream->first_run = lmc__count_runs(x->t);
    for (i = stream->first_file; i < l->n_files; i++) {
        lmc_file *const file = &lmc__listed_at(l, i)->file;
        const uint64_t size = LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(file);
        LMC__VALID(lmc__left(&x->c) >= lmc__facts_head_size(file) + size);
        if (file->size == LMC_UNKNOWN_SIZE) {
            file->size = lmc__take64(&x->c);
            LMC__VALID(file->size <= LMC__MAX_FILE_SIZE);
            stream->size = file->size; /* the stream has no other file */
        }
        file->crc = lmc__take32(&x->c);
        lmc__keep_fingerprints(file, lmc__take_bytes(&x->c, (size_t)size));
    }
    x->position = 0;
    return LMC_OK;
}

/* Parses the entry of a run. body: of its RUN section; stored: bytes of section and blocks. */
static enum lmc_status lmc__parse_run_entry(lmc__index_parser *x, const uint8_t *body,
                                            size_t body_size, uint64_t stored)
{
    const uint64_t head_size = LMC__SECTION_HEADER_SIZE + (uint64_t)body_size;
    lmc__tables *const t = x->t;
    lmc__listing *const l = &t->listing;
    lmc__reader_run r;
    LMC__VALID(l->n_streams);
    memset(&r, 0, sizeof r);
    LMC__TRY(
        lmc__parse_run(&r.run, &t->segments, body, body_size, l, l->n_streams - 1, &x->position));
    LMC__TRY(lmc__check_run_features(&r.run, x->features));
    l->n_records += r.run.n_records;
    LMC__VALID(stored - head_size >= r.run.n_blocks * (LMC_BLOCK_HEADER_SIZE + 1) &&
               stored - head_size <= r.run.size + r.run.n_blocks * LMC_BLOCK_HEADER_SIZE);
    r.at = x->offset + head_size;
    r.end = x->offset + stored;
    r.first_row = t->n_rows;
    t->n_rows += r.run.n_blocks; /* at most a 25th of the file's size */
    lmc__stream_at(l, l->n_streams - 1)->n_runs++;
    return lmc__append(&t->runs, &r, sizeof r);
}

/* Parses the next entry. Offsets stay at or below max_offset < 2^63, so they do not overflow. */
static enum lmc_status lmc__parse_entry(lmc__index_parser *x, uint64_t max_offset)
{
    lmc__cursor *const c = &x->c;
    lmc__section section;
    uint64_t stored, size;
    const uint8_t *body;
    LMC__VALID(lmc__left(c) >= 5);
    memcpy(section.kind, lmc__take_bytes(c, 4), 4);
    LMC__VALID(lmc__is_kind_valid(section.kind));
    LMC__TRY(lmc__get_limited(c, &stored, max_offset - x->offset));
    LMC__VALID(stored >= LMC__SECTION_HEADER_SIZE);
    if (lmc__is_ancillary(&section)) { /* its body is not in the index */
        lmc__ancillary a;
        LMC__VALID(x->t->listing.n_streams);
        a.at = x->offset;
        a.size = stored;
        memcpy(a.kind, section.kind, 4);
        LMC__TRY(lmc__append(&x->t->ancillary, &a, sizeof a));
    } else {
        LMC__CHECK(lmc__is_known_kind(&section), LMC_ERR_UNSUPPORTED); /* R4-3 */
        LMC__VALID(!lmc__is_kind(&section, "BLKS") && !lmc__is_kind(&section, "INDX"));
        LMC__TRY(lmc__get_limited(c, &size, stored - LMC__SECTION_HEADER_SIZE));
        LMC__VALID(size <= lmc__left(c));
        body = lmc__take_bytes(c, (size_t)size);
        if (lmc__is_kind(&section, "FILE")) {
            LMC__VALID(stored == LMC__SECTION_HEADER_SIZE + size);
            LMC__TRY(lmc__parse_file_entry(x, body, (size_t)size));
        } else LMC__TRY(lmc__parse_run_entry(x, body, (size_t)size, stored));
    }
    x->offset += stored;
    return LMC_OK;
}

/* Fills empty tables from the INDX section in t->index. Of the section's header only Body_CRC is
 * used. header: of the file; NULL: it is lost. *offset: where the INDX section must begin if its
 * entries are right. items: a scratch buffer. Checks neither base nor predictions. */
LMC__COLD static enum lmc_status lmc__parse_index(lmc__tables *t, const lmc__kernels *k,
                                                  const uint8_t *header, uint64_t max_offset,
                                                  lmc__buffer *items, uint64_t *offset)
{
    const uint8_t *const body = t->index.data + LMC__SECTION_HEADER_SIZE;
    const size_t body_size = t->index.size - LMC__SECTION_HEADER_SIZE;
    lmc__index_parser x;
    uint32_t i, n_sections;
    memset(&x, 0, sizeof x);
    x.t = t;
    x.c.p = body + LMC__INDEX_BODY_SIZE;
    x.c.end = body + body_size;
    x.offset = LMC__HEADER_SIZE;
    LMC__CHECK(k->crc32c(0, body, body_size) == lmc__load32(t->index.data + 16), LMC_ERR_CHECKSUM);
    if (header) LMC__VALID(memcmp(body, header, LMC__HEADER_SIZE) == 0);
    else LMC__TRY(lmc__check_header(body, k));
    x.features = lmc__load32(body + LMC__FEATURES_AT);
    n_sections = lmc__load32(body + LMC__INDEX_SECTIONS_AT);
    for (i = 0; i < n_sections; i++) LMC__TRY(lmc__parse_entry(&x, max_offset));
    LMC__VALID(t->listing.n_streams > 0);
    LMC__TRY(lmc__check_stream_end(&x));
    lmc__settle_runs(t);
    t->metadata_at = x.c.p;
    t->n_metadata = lmc__load32(body + LMC__INDEX_METADATA_AT);
    LMC__TRY(lmc__parse_metadata(&x.c, t->n_metadata, &t->keys, &t->metadata));
    t->records = x.c;
    LMC__TRY(lmc__skip_records(&x.c, &t->listing.n_records));
    LMC__TRY(lmc__identify_listing(items, &t->listing, t->fingerprint));
    LMC__VALID(memcmp(body + LMC__INDEX_FINGERPRINT_AT, t->fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    LMC__VALID(t->n_rows <= (max_offset - x.offset) / LMC__BLOCK_ENTRY_SIZE);
    t->rows_offset = x.offset;
    *offset = x.offset + LMC__SECTION_HEADER_SIZE + LMC__BLOCK_ENTRY_SIZE * t->n_rows;
    return LMC_OK;
}

/* == snapshot/reader.h ========================================================================= */

/* Random access by the index: reads any bytes of any file, and decodes only their blocks.
 *
 *     bytes of a file -> of its stream -> runs that hold them -> blocks of each -> waves -> dst
 *
 * If a whole block is needed, it is decoded to its place in dst. Its prediction is read to the same
 * place first. If the deltas of a chain have blocks of the same sizes, every reader does this. Else
 * a reader is asked for one part of a block after another. So it decodes the block to a *window*,
 * from which it answers the next requests. Work is bounded (work.h). Readers of a chain may share
 * one coder, so its buffers must not be in use while a prediction is read.
 *
 * Salvage uses this reader, too, with gaps in the tables and its own read_run. */
struct lmc_reader {
    /* bytes of the source from held_at on, or none. While the reader is opened: the end of the
     * source; later: the encoded bytes of several runs */
    lmc__buffer held;
    /* of the file or tensor that is being read whole; the section of hashes, after its first use */
    lmc__buffer fingerprints, hashes;
    /* lmc__item of all tensors; of all files; made by the first search (find.h) */
    lmc__buffer names, paths;
    /* predictions of blocks that are read in part: [0] from the base, [1] from this snapshot */
    lmc__buffer base[2];
    /* lmc__block_place, of runs whose rows were read; lmc__first_block of each run */
    lmc__buffer blocks, first_blocks;
    uint64_t held_at;
    lmc_source source;
    lmc_reader_options options;
    /* coder: the lender's, or own_coder */
    lmc__coder own_coder, *coder;
    lmc__tables tables;
    lmc_snapshot_info info; /* from the header; if that is lost, all features are allowed */
    int is_salvage;         /* it belongs to an lmc_salvage: the tables may have gaps */
    lmc__origin origin;
    lmc__windows as_base, back;   /* for readers whose base is this reader; for its own runs */
    lmc__meter own_meter, *meter; /* own_meter, or that of the reader below */
    lmc_reader *below;            /* the base, if that is a reader, or the lender; or NULL */
    uint64_t account;             /* the last one of the meter that has met this reader; 0: none */
    /* checks the fingerprints of the file or tensor that is being read whole; or NULL */
    lmc__digester *digester;
    /* set by open.h: reads bytes [offset, offset + size) of a run to dst */
    enum lmc_status (*read_run)(lmc_reader *reader, size_t number, uint64_t offset, uint8_t *dst,
                                size_t size);
    void (*free_extra)(lmc_reader *reader); /* frees what a larger struct adds; or NULL */
    size_t struct_size;                     /* of the struct that begins with this reader */
};
#define LMC__READER_BUFFERS LMC__ROW(lmc_reader, held, held_at)

static lmc__listed_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return lmc__listed_at(&r->tables.listing, i);
}
static const lmc__stream *lmc__stream_of(const lmc_reader *r, const lmc__listed_file *f)
{
    return lmc__stream_at(&r->tables.listing, f->stream);
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return lmc__table_run(&r->tables, i);
}

/* 1 + the number of the run's first block in r->blocks; 0: its rows were not read yet. */
static size_t lmc__first_block(const lmc_reader *r, size_t number)
{
    return r->first_blocks.size ? ((size_t *)(void *)r->first_blocks.data)[number] : 0;
}

/* Block i of a run whose rows were read. Valid until the rows of another run are read. */
static const lmc__block_place *lmc__block_at(const lmc_reader *r, size_t number, uint64_t i)
{
    return (const lmc__block_place *)(const void *)r->blocks.data +
           (lmc__first_block(r, number) - 1 + (size_t)i);
}

/* The first request reads this many bytes at the end of the file, because each request to a remote
 * source is slow. The index of about a thousand tensors fits into this size. */
#define LMC__TAIL_SIZE ((size_t)64 << 10)

/* Reads size bytes of the source. If the last of them are in r->held, these are copied from there.
 * If nothing is left to read, the callback is not called. */
static enum lmc_status lmc__read_at(lmc_reader *r, uint64_t offset, void *dst, size_t size)
{
    const uint64_t held_end = r->held_at + r->held.size;
    if (offset <= held_end && size <= held_end - offset && offset + size > r->held_at) {
        const size_t n = (size_t)lmc__min64(size, offset + size - r->held_at);
        memcpy((uint8_t *)dst + size - n, r->held.data + (size_t)(offset + size - n - r->held_at),
               n);
        size -= n;
    }
    return size == 0 ? LMC_OK : r->source.read_at(r->source.user, offset, dst, size);
}

/* Fills a buffer with these bytes of the source, and nothing else. */
static enum lmc_status lmc__read_to(lmc_reader *r, lmc__buffer *buffer, uint64_t offset,
                                    uint64_t size)
{
    buffer->size = 0;
    LMC__TRY(lmc__reserve(buffer, size));
    LMC__TRY(lmc__read_at(r, offset, buffer->data, (size_t)size));
    buffer->size = (size_t)size;
    return LMC_OK;
}

/* Fills r->held in the same way. After an error r->held is empty. */
static enum lmc_status lmc__hold(lmc_reader *r, uint64_t offset, uint64_t size)
{
    LMC__TRY(lmc__read_to(r, &r->held, offset, size));
    r->held_at = offset;
    return LMC_OK;
}

static uint64_t lmc__index_limit(const lmc_reader *r)
{
    return r->options.max_index_size ? r->options.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
}

/* Reads the INDX section, which must be within the file, to empty tables. If the section begins
 * before the held tail, bytes before the section are read, too, as many as the tail has. They are
 * held instead of the tail: in most files, they are the rows of BLKS. */
LMC__COLD static enum lmc_status lmc__read_index(lmc_reader *r, lmc__tables *t, uint64_t at,
                                                 uint64_t size)
{
    const size_t before = at < r->held_at ? (size_t)lmc__min64(r->held.size, at) : 0;
    LMC__VALID(size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE);
    if (size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__read_to(r, &t->index, at - before, before + size));
    t->index.size = (size_t)size;
    if (before == 0) return LMC_OK;
    memcpy(r->held.data, t->index.data, before);
    r->held.size = before;
    r->held_at = at - before;
    memmove(t->index.data, t->index.data + before, (size_t)size);
    return LMC_OK;
}

static enum lmc_status lmc__take_header(lmc_reader *r, const uint8_t *header)
{
    lmc__get_header_info(&r->info, header);
    return r->origin.base ? lmc__check_base(&r->origin, header) : LMC_OK;
}

LMC__COLD static enum lmc_status lmc__open_header(lmc_reader *r, uint8_t *header)
{
    const size_t size = (size_t)lmc__min64(r->source.size, LMC__HEADER_SIZE);
    LMC__TRY(lmc__read_at(r, 0, header, size));
    LMC__TRY(lmc_header_parse(header, size, &r->info));
    return lmc__take_header(r, header);
}

/* Finds the places of all blocks of a run, unless they are known. code: all encoded bytes of the
 * run, in which the headers of blocks tell the places. NULL: the rows of BLKS are read. The new
 * room in r->blocks has the places in its first half, the rows in its second. */
static enum lmc_status lmc__load_rows(lmc_reader *r, size_t number, const uint8_t *code)
{
    const lmc__tables *const t = &r->tables;
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const uint64_t n = run->run.n_blocks, size = LMC__BLOCK_ENTRY_SIZE * n,
                   rows_at = t->rows_offset + LMC__SECTION_HEADER_SIZE;
    uint64_t at = run->at;
    lmc__block_place *place;
    uint8_t *row;
    size_t i;
    if (lmc__first_block(r, number)) return LMC_OK;
    if (r->blocks.size / 2 + size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    if (r->first_blocks.size == 0)
        LMC__TRY(lmc__append(&r->first_blocks, NULL, lmc__count_runs(t) * sizeof i));
    LMC__TRY(lmc__reserve(&r->blocks, 2 * size));
    row = r->blocks.data + r->blocks.size + (size_t)size;
    if (!code)
        LMC__TRY(
            lmc__read_at(r, rows_at + LMC__BLOCK_ENTRY_SIZE * run->first_row, row, (size_t)size));
    place = (lmc__block_place *)(void *)(r->blocks.data + r->blocks.size);
    for (i = 0; i < n; i++, place++, row += LMC__BLOCK_ENTRY_SIZE) {
        uint32_t encoded, header_crc;
        if (code) {
            const size_t left = (size_t)(run->end - at);
            lmc_block_info info;
            LMC__TRY(lmc__read_block_info(r->coder->wave.k, code, left, (uint32_t)i, &info));
            LMC__VALID(info.encoded_size <= left);
            encoded = (uint32_t)info.encoded_size;
            header_crc = lmc__load32(code + LMC__BLOCK_CRC_AT);
            code += encoded;
        } else {
            encoded = lmc__load32(row);
            header_crc = lmc__load32(row + 4);
        }
        LMC__VALID(encoded > LMC_BLOCK_HEADER_SIZE &&
                   encoded <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&run->run, i));
        place->at = at;
        place->size = encoded;
        place->header_crc = header_crc;
        at += encoded;
    }
    LMC__VALID(at == run->end); /* R8-8 */
    ((size_t *)(void *)r->first_blocks.data)[number] = 1 + r->blocks.size / sizeof *place;
    r->blocks.size += 2 * (size_t)size;
    return LMC_OK;
}

/* Checks all runs in order: the size of the snapshot is within the caller's limit, and the bytes
 * that predict the runs exist. Rows in the held bytes are used at once. If they are wrong, the file
 * can still be opened; reading such a run returns the error. */
static enum lmc_status lmc__check_runs(lmc_reader *r)
{
    const uint64_t rows_at = r->tables.rows_offset + LMC__SECTION_HEADER_SIZE;
    uint64_t total = 0;
    size_t i;
    for (i = 0; i < lmc__count_runs(&r->tables); i++) {
        const lmc__reader_run *const run = lmc__run_at(r, i);
        enum lmc_status status = LMC_OK;
        if (!lmc__add_total(&total, run->run.size, r->options.max_total_size)) return LMC_ERR_LIMIT;
        LMC__TRY(lmc__check_predictions(&r->origin, &run->run, LMC_ERR_CORRUPT));
        LMC__TRY(lmc__add_run(&r->origin, &run->run));
        if (rows_at + LMC__BLOCK_ENTRY_SIZE * run->first_row >= r->held_at)
            status = lmc__load_rows(r, i, NULL);
        if (status != LMC_ERR_CORRUPT) LMC__TRY(status);
    }
    return LMC_OK;
}

/* Opens an intact file. The first read takes the tail: the trailer and, in most files, the rows and
 * the index, with a copy of the header. If the index is larger, a second read takes the rest. The
 * header itself is read only if it is in the tail, or if the end is not that of an LMC file, to
 * tell what the file is. Header, sections, index and trailer must cover the file without gaps. */
LMC__COLD static enum lmc_status lmc__open_intact(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const size_t tail_size = (size_t)lmc__min64(total, LMC__TAIL_SIZE);
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE];
    const uint8_t *trailer;
    uint64_t offset = 0;
    lmc__section section;
    int has_header;
    LMC__TRY(lmc__hold(r, total - tail_size, tail_size));
    has_header = tail_size == total || memcmp(r->held.data + tail_size - 8, LMC__END_MAGIC, 8) != 0;
    if (has_header) LMC__TRY(lmc__open_header(r, header));
    LMC__CHECK(total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE, LMC_ERR_TRUNCATED);
    trailer = r->held.data + tail_size - LMC__TRAILER_SIZE;
    LMC__CHECK(memcmp(trailer + 32, LMC__END_MAGIC, 8) == 0, LMC_ERR_TRUNCATED);
    LMC__TRY(lmc__check_trailer(&r->info, trailer, total, k));
    LMC__TRY(lmc__read_index(r, &r->tables, r->info.index_offset, r->info.index_size));
    LMC__TRY(lmc__get_section(&section, r->tables.index.data, k));
    LMC__VALID(lmc__is_kind(&section, "INDX") &&
               section.size == r->info.index_size - LMC__SECTION_HEADER_SIZE);
    LMC__TRY(lmc__parse_index(&r->tables, k, has_header ? header : NULL, total, &r->coder->in[0],
                              &offset));
    LMC__VALID(offset == r->info.index_offset);
    if (!has_header) LMC__TRY(lmc__take_header(r, r->tables.index.data + LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__check_runs(r));
    lmc__free_buffer(&r->held);
    return LMC_OK;
}

/* Returns the stream of a file. *offset becomes the place in the stream. NULL: there is no such
 * file, or it lacks bytes [*offset, *offset + size). */
static const lmc__stream *lmc__stream_range(const lmc_reader *r, size_t file_number,
                                            uint64_t *offset, uint64_t size)
{
    const lmc__listed_file *f;
    if (!r || file_number >= r->tables.listing.n_files) return NULL;
    f = lmc__file_at(r, file_number);
    if (*offset > f->file.size || size > f->file.size - *offset) return NULL;
    *offset += f->start;
    return lmc__stream_of(r, f);
}

/* The run that has byte `position` of the stream (below its size): the last run that begins there
 * or before. In salvage, with gaps, that run may end before position. For a stream without runs:
 * first_run. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__stream *stream, uint64_t position)
{
    size_t i;
    if (stream->n_runs == 0) return stream->first_run;
    LMC__FIND_FIRST(i, stream->first_run + 1, stream->first_run + stream->n_runs,
                    lmc__run_at(r, i)->run.start <= position);
    return i - 1;
}

/* The maximum of encoded bytes in one request. With parallel_reads a request is one block. */
#define LMC__FETCH_SIZE ((uint64_t)16 << 20)

/* Finds the block of the run that has byte `position` of the stream. *found: where in the file it
 * begins or, with is_end, ends. Both ends of the run are known without the rows. */
static enum lmc_status lmc__locate_block(lmc_reader *r, size_t number, uint64_t position,
                                         int is_end, uint64_t *found)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const uint64_t block = (position - run->run.start) / run->run.block_size;
    const lmc__block_place *place;
    *found = is_end ? run->end : run->at;
    if (block == (is_end ? run->run.n_blocks - 1 : 0)) return LMC_OK;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    place = lmc__block_at(r, number, block);
    *found = place->at + (is_end ? place->size : 0);
    return LMC_OK;
}

/* Prepares for reading bytes [offset, offset + size) of a stream. If they are in several runs, one
 * request reads the encoded bytes of the first runs, up to LMC__FETCH_SIZE. */
static enum lmc_status lmc__hold_runs(lmc_reader *r, const lmc__stream *stream, uint64_t offset,
                                      uint64_t size)
{
    const uint64_t end = offset + size;
    const lmc__reader_run *first, *run;
    uint64_t from, to;
    size_t number;
    if (r->options.parallel_reads || r->is_salvage) return LMC_OK;
    number = lmc__find_run(r, stream, offset);
    first = run = lmc__run_at(r, number);
    if (end <= first->run.start + first->run.size) return LMC_OK;
    LMC__TRY(lmc__locate_block(r, number, offset, 0, &from));
    to = first->end;
    if (from >= r->held_at && to <= r->held_at + r->held.size) return LMC_OK;
    while (run->run.start + run->run.size < end) {
        uint64_t next;
        run++;
        LMC__TRY(lmc__locate_block(r, ++number, lmc__min64(run->run.start + run->run.size, end) - 1,
                                   1, &next));
        if (next - from > LMC__FETCH_SIZE) break;
        to = next;
    }
    return to == first->end ? LMC_OK : lmc__hold(r, from, to - from); /* one run: not held */
}

/* Bytes [offset, end) of run `number` are wanted at dst. n blocks, from number `first` on, are read
 * at once. head: size of block `first` if only a part of it is wanted; else 0. */
typedef struct lmc__wanted {
    size_t number;
    uint64_t offset, end;
    uint8_t *dst;
    uint64_t first;
    size_t n, head;
} lmc__wanted;

static lmc__buffer *lmc__part_base(lmc_reader *r, const lmc__run *run)
{
    return &r->base[run->prediction == LMC__PREDICT_OWN];
}

/* Reads the predictions of the n blocks:
 *     run     |     first     |       ...       |      last     |
 *     wanted           |---------- dst ---------------|
 *     reads   |--buffer------|---- to dst -----|--buffer-------|
 *
 * The prediction of a whole block is read to its place in dst, where the block is then decoded. The
 * prediction of the first or last block is read to a buffer if only a part of the block is wanted.
 * So the predictions of all whole blocks are read in one request. */
static enum lmc_status lmc__read_predictions(lmc_reader *r, lmc__wanted *x)
{
    const lmc__run *const run = &lmc__run_at(r, x->number)->run;
    lmc__buffer *const buffer = lmc__part_base(r, run);
    const uint64_t start = x->first * run->block_size,
                   stop = lmc__min64(start + x->n * (uint64_t)run->block_size, run->size);
    const size_t head = start < x->offset ? lmc__block_size_at(run, x->first) : 0,
                 tail = stop > x->end && !(head && x->n == 1)
                            ? lmc__block_size_at(run, x->first + x->n - 1)
                            : 0;
    x->head = head;
    LMC__TRY(lmc__reserve(buffer, (uint64_t)head + tail));
    if (head) LMC__TRY(lmc__read_prediction(&r->origin, run, start, buffer->data, head));
    if (stop - start > head + (uint64_t)tail)
        LMC__TRY(lmc__read_prediction(&r->origin, run, start + head,
                                      x->dst + (size_t)(start + head - x->offset),
                                      (size_t)(stop - start - head - tail)));
    return tail ? lmc__read_prediction(&r->origin, run, stop - tail, buffer->data + head, tail)
                : LMC_OK;
}

/* Reads the header of a block. Its CRC must equal that in BLKS, because a block of another file may
 * have the same number and size. */
static enum lmc_status lmc__read_known_block(const lmc_reader *r, size_t number, uint64_t block,
                                             const uint8_t *src, lmc_block_info *info)
{
    const lmc__block_place *const place = lmc__block_at(r, number, block);
    LMC__TRY(lmc__read_block_info(r->coder->wave.k, src, place->size, (uint32_t)block, info));
    LMC__VALID(info->encoded_size == place->size &&
               lmc__load32(src + LMC__BLOCK_CRC_AT) == place->header_crc);
    LMC__VALID(info->size == lmc__block_size_at(&lmc__run_at(r, number)->run, block));
    return lmc__check_block_features(src, r->info.features);
}

/* A task; arg is the reader. With parallel_reads each task reads its own block. */
static void lmc__read_block_task(void *arg, size_t index, unsigned worker)
{
    lmc_reader *const r = (lmc_reader *)arg;
    lmc__snapshot_job *const block_job = lmc__job_at(r->coder, index);
    lmc__job *const job = &block_job->job;
    const lmc__block_place *const place = lmc__block_at(r, block_job->run, job->number);
    job->status = LMC_OK;
    if (r->options.parallel_reads) /* src points into the coder's buffer */
        job->status = lmc__read_at(r, place->at, (uint8_t *)(uintptr_t)job->src, place->size);
    if (job->status == LMC_OK)
        job->status = lmc__read_known_block(r, block_job->run, job->number, job->src, &job->info);
    if (job->status == LMC_OK && job->info.has_prediction && !job->base)
        job->status = LMC_ERR_CORRUPT;
    if (job->status != LMC_OK) return;
    if (!job->info.has_prediction) job->base = NULL;
    job->streaming.sum = lmc__whole_sum(r->coder, block_job);
    lmc__decode_snapshot_task(r->coder, index, worker);
}

/* Decodes n blocks, from number `first` on. Their predictions were read. Their encoded bytes are in
 * c->in[0], or, with parallel_reads, the tasks read them into it. */
static enum lmc_status lmc__read_wave(lmc_reader *r, const lmc__wanted *x, uint64_t first, size_t n)
{
    const lmc__run *const run = &lmc__run_at(r, x->number)->run;
    const lmc__block_place *const place = lmc__block_at(r, x->number, 0);
    const uint8_t *const base = lmc__part_base(r, run)->data;
    lmc__coder *const c = r->coder;
    uint64_t wanted = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        lmc__snapshot_job *const block_job = lmc__job_at(c, i);
        lmc__job *const job = &block_job->job;
        const uint64_t block = first + i, at = block * run->block_size;
        const size_t size = lmc__block_size_at(run, block);
        memset(block_job, 0, sizeof *block_job);
        block_job->run = x->number;
        job->number = (uint32_t)block;
        job->src = c->in[0].data + (size_t)(place[block].at - place[x->first].at);
        job->skip = at < x->offset ? (size_t)(x->offset - at) : 0;
        job->keep = (size_t)lmc__min64(size - job->skip, x->end - (at + job->skip));
        job->dst = x->dst + (size_t)(at + job->skip - x->offset);
        if (run->prediction != LMC__PREDICT_ZERO)
            job->base = job->keep == size ? job->dst : base + (at < x->offset ? 0 : x->head);
        job->is_own = lmc__is_own_prediction(run);
        LMC__TRY(lmc__spend(r->meter, (uint64_t)size + place[block].size));
        wanted += job->keep;
        if (r->digester) LMC__TRY(lmc__plan_pieces(c, r->digester, block_job, job->keep));
        /* a block of several pieces is read again, for their sums */
        job->streaming = lmc__no_streaming;
        job->streaming.is_on =
            x->end - x->offset >= LMC__STREAM_FROM && job->keep == size && block_job->n_pieces <= 1;
    }
    lmc__run_tasks(c->parallel, lmc__read_block_task, r, n);
    LMC__TRY(lmc__jobs_status(c, n));
    if (r->digester) lmc__absorb_pieces(c, r->digester);
    return lmc__report_progress(c, wanted);
}

/* Reads bytes [offset, offset + size) of a run, at least a wave of blocks at once. Predictions are
 * read first, since they may need the coder's buffers; then the encoded bytes, which are decoded
 * wave by wave. has_code: the encoded bytes are in c->in[0] already. */
static enum lmc_status lmc__read_blocks(lmc_reader *r, size_t number, uint64_t offset, uint8_t *dst,
                                        size_t size, int has_code)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const size_t largest = (size_t)lmc__min64(run->block_size, run->size),
                 wave = lmc__count_jobs(r->coder->parallel, largest);
    lmc__wanted x = {number, offset, offset + size, dst, offset / run->block_size, 0, 0};
    const uint64_t last = (x.end - 1) / run->block_size;
    for (; x.first <= last; x.first += x.n) {
        const lmc__block_place *place = lmc__block_at(r, number, x.first);
        const uint64_t left = last - x.first + 1, from = place->at;
        uint64_t code_size;
        size_t done, n;
        x.n = (size_t)lmc__min64(wave, left);
        while (!r->options.parallel_reads && x.n < left &&
               place[x.n].at + place[x.n].size - from <= LMC__FETCH_SIZE)
            x.n++;
        code_size = place[x.n - 1].at + place[x.n - 1].size - from;
        if (run->prediction != LMC__PREDICT_ZERO) {
            lmc__digester *const digester = r->digester;
            enum lmc_status status;
            r->digester = NULL; /* predictions are not the wanted bytes */
            status = lmc__read_predictions(r, &x);
            r->digester = digester;
            LMC__TRY(status);
        }
        LMC__TRY(lmc__set_coder(r->coder, largest, 1, 1));
        if (r->options.parallel_reads) {
            r->coder->in[0].size = 0;
            LMC__TRY(lmc__reserve(&r->coder->in[0], code_size));
        } else if (!has_code) LMC__TRY(lmc__read_to(r, &r->coder->in[0], from, code_size));
        for (done = 0; done < x.n; done += n) {
            n = lmc__min(wave, x.n - done);
            LMC__TRY(lmc__read_wave(r, &x, x.first + done, n));
        }
    }
    return LMC_OK;
}

/* The read_run for intact files. If the whole run is wanted, and is not too large, one request
 * reads its encoded bytes. The headers in them tell where its blocks are. */
static enum lmc_status lmc__read_indexed_run(lmc_reader *r, size_t number, uint64_t offset,
                                             uint8_t *dst, size_t size)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const size_t blocks_size = r->blocks.size;
    enum lmc_status status;
    if (lmc__first_block(r, number) || size != run->run.size || r->options.parallel_reads ||
        run->run.prediction != LMC__PREDICT_ZERO || run->end - run->at > LMC__FETCH_SIZE) {
        LMC__TRY(lmc__load_rows(r, number, NULL));
        return lmc__read_blocks(r, number, offset, dst, size, 0);
    }
    LMC__TRY(lmc__read_to(r, &r->coder->in[0], run->at, run->end - run->at));
    LMC__TRY(lmc__load_rows(r, number, r->coder->in[0].data));
    status = lmc__read_blocks(r, number, offset, dst, size, 1);
    if (status != LMC_OK) { /* the places from these bytes may be wrong */
        r->blocks.size = blocks_size;
        ((size_t *)(void *)r->first_blocks.data)[number] = 0;
    }
    return status;
}

/* Fills a window, beginning with the block that has byte `at` of the run. If requests go from front
 * to back, each window is twice as large as the window before, up to LMC__WINDOW_SIZE. So such
 * requests decode each block once, and a single request costs only one block. If a neighbour is
 * damaged, the block is read alone. */
static enum lmc_status lmc__fill_window(lmc_reader *r, lmc__windows *windows, size_t number,
                                        uint64_t at)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t start = at - at % run->block_size;
    size_t follows, span = run->block_size, n; /* powers of two */
    enum lmc_status status;
    lmc__buffer *const bytes =
        lmc__choose_window(windows, run->stream, run->start + start, &follows);
    while (!r->is_salvage && span < 2 * (uint64_t)follows && span < LMC__WINDOW_SIZE) span *= 2;
    n = (size_t)lmc__min64(span - start % span, run->size - start);
    LMC__TRY(lmc__reserve(bytes, n));
    status = r->read_run(r, number, start, bytes->data, n);
    if (status != LMC_OK && n > run->block_size) {
        n = run->block_size;
        status = r->read_run(r, number, start, bytes->data, n);
    }
    if (status == LMC_OK) bytes->size = n;
    return status;
}

/* Reads bytes of a file, run by run. windows: NULL unless the bytes are a prediction. With windows
 * there are three ways to read the next bytes:
 *  - a window has them: they are copied;
 *  - they begin with a whole block, which may be the last, shorter block of the run: whole blocks
 *    are decoded directly to out;
 *  - else a window is filled, beginning with the block of the first byte.
 * A byte that no run has is lost (salvage). */
static enum lmc_status lmc__read_stream(lmc_reader *r, lmc__windows *windows, size_t file_number,
                                        uint64_t offset, uint8_t *out, size_t size)
{
    const lmc__stream *const stream = lmc__stream_range(r, file_number, &offset, size);
    size_t part;
    if (!stream) return LMC_ERR_ARGUMENT;
    for (; size != 0; out += part, offset += part, size -= part) {
        const size_t number = lmc__find_run(r, stream, offset);
        const lmc__run *run;
        const uint8_t *found;
        uint64_t at;
        LMC__CHECK(number < stream->first_run + stream->n_runs, LMC_ERR_LOST);
        run = &lmc__run_at(r, number)->run;
        LMC__CHECK(run->start <= offset && offset - run->start < run->size, LMC_ERR_LOST);
        LMC__CHECK(windows != &r->back || run->prediction != LMC__PREDICT_OWN, LMC_ERR_LOST);
        at = offset - run->start;
        part = (size_t)lmc__min64(size, run->size - at);
        found = windows ? lmc__find_window(windows, run->stream, offset, &part) : NULL;
        if (found) {
            memcpy(out, found, part);
            continue;
        }
        LMC__TRY(lmc__hold_runs(r, stream, offset, size));
        if (windows &&
            (at % run->block_size || (part < run->block_size && part < run->size - at))) {
            LMC__TRY(lmc__fill_window(r, windows, number, at));
            part = 0; /* the next turn finds the bytes in the window */
            continue;
        }
        if (windows && part < run->size - at) part -= part % run->block_size;
        LMC__TRY(r->read_run(r, number, at, out, part));
    }
    return LMC_OK;
}

/* Begins a request (work.h). Returns 1 if it is the outermost: the caller then ends it with
 * lmc__end_work. A snapshot without runs, which may only lend to other readers, does not count. */
static int lmc__begin_request(lmc_reader *r, uint64_t size, int is_alone)
{
    lmc__meter *const m = r->meter;
    const int is_outermost = lmc__begin_work(m, size, is_alone, !r->account);
    for (; r && r->account != m->account; r = r->below) {
        r->account = m->account;
        if (r->tables.runs.size || r->is_salvage) lmc__add_link(m);
    }
    return is_outermost;
}

/* A request of the user if windows is NULL; else of a reader whose base is this reader. */
static enum lmc_status lmc__read_range(lmc_reader *r, lmc__windows *windows, size_t file_number,
                                       uint64_t offset, void *dst, size_t size)
{
    const int is_outermost = lmc__begin_request(r, size, !windows);
    const enum lmc_status status =
        lmc__read_stream(r, windows, file_number, offset, (uint8_t *)dst, size);
    lmc__free_buffer(&r->held);
    lmc__end_work(r->meter, is_outermost);
    return status;
}

static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    return lmc__read_range(r, &r->as_base, file_number, offset, dst, size);
}

/* Reads bytes that predict other bytes of the same snapshot. This needs its own windows, because
 * as_base may be in use. The bytes are not predicted from this snapshot themselves (lmc__add_run);
 * lmc__read_stream checks this again for damaged files. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    return lmc__read_stream(r, &r->back, file_number, offset, (uint8_t *)dst, size);
}

static const lmc_file *lmc__get_reader_file(void *user, size_t file_number)
{
    return lmc_reader_get_file((const lmc_reader *)user, file_number);
}

LMC_API lmc_base lmc_reader_base(lmc_reader *reader)
{
    const lmc_base base = {reader ? reader->tables.listing.n_files : 0,
                           lmc__get_reader_file,
                           lmc__read_as_base,
                           reader,
                           {0, 0}};
    return base;
}

/* Reads bytes of a file, and checks that the fingerprints of `whole` are those of the index: of
 * some of the file's tensors in order, all of whose bytes are read, or of the file. *crc: the CRC
 * of all bytes. */
LMC__COLD static enum lmc_status lmc__read_checked(lmc_reader *r, size_t file_number,
                                                   const lmc_file *whole, uint64_t offset,
                                                   void *dst, size_t size, uint32_t *crc)
{
    const size_t n = lmc__count_fingerprints(whole);
    lmc__digester digester;
    enum lmc_status status;
    size_t i;
    LMC__TRY(lmc__reserve(&r->fingerprints, (uint64_t)LMC_FINGERPRINT_SIZE * n));
    lmc__begin_digester(&digester, whole);
    digester.planned = offset;
    digester.fingerprints = r->fingerprints.data;
    r->digester = &digester;
    status = lmc__read_range(r, NULL, file_number, offset, dst, size);
    r->digester = NULL;
    r->coder->pieces.size = 0; /* after an error, some may be left */
    if (status != LMC_OK) return status;
    lmc__finish_digester(&digester);
    *crc = digester.file_crc;
    for (i = 0; i < n; i++) {
        const uint8_t *const fingerprint =
            whole->n_tensors ? whole->tensors[i].fingerprint : whole->fingerprint;
        LMC__VALID(memcmp(digester.fingerprints + LMC_FINGERPRINT_SIZE * i, fingerprint,
                          LMC_FINGERPRINT_SIZE) == 0); /* R8-11 */
    }
    return LMC_OK;
}

static int lmc__checks_fingerprints(const lmc_reader *r)
{
    return !r->options.skip_fingerprints && !r->is_salvage;
}

/* Checks what is read whole: the file, or else all tensors in the range. */
LMC__COLD LMC_API enum lmc_status lmc_reader_read_file(lmc_reader *r, size_t file_number,
                                                       uint64_t offset, void *dst, size_t size)
{
    uint64_t position = offset;
    size_t first, end;
    lmc_file whole;
    uint32_t crc;
    if ((!dst && size) || !lmc__stream_range(r, file_number, &position, size))
        return LMC_ERR_ARGUMENT;
    whole = lmc__file_at(r, file_number)->file;
    if (size == whole.size && lmc__checks_fingerprints(r)) {
        LMC__TRY(lmc__read_checked(r, file_number, &whole, 0, dst, size, &crc));
        return crc == whole.crc ? LMC_OK : LMC_ERR_CORRUPT;
    }
    LMC__FIND_FIRST(first, 0, whole.n_tensors, whole.tensors[first].offset < offset);
    LMC__FIND_FIRST(end, first, whole.n_tensors,
                    whole.tensors[end].offset + whole.tensors[end].size <= offset + size);
    if (size == 0 || first == end || !lmc__checks_fingerprints(r))
        return lmc__read_range(r, NULL, file_number, offset, dst, size);
    whole.tensors += first;
    whole.n_tensors = end - first;
    return lmc__read_checked(r, file_number, &whole, offset, dst, size, &crc);
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_tensor(lmc_reader *r, size_t file_number,
                                                         const lmc_tensor *tensor, uint64_t offset,
                                                         void *dst, size_t size)
{
    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;
    return lmc_reader_read_file(r, file_number, tensor->offset + offset, dst, size);
}

/* == snapshot/reader_info.h ==================================================================== */

/* Tells what a reader has in its tables, without reading: files and metadata. */

LMC__COLD LMC_API enum lmc_status lmc_reader_get_info(const lmc_reader *r, lmc_snapshot_info *info)
{
    if (!r || !info) return LMC_ERR_ARGUMENT;
    *info = r->info;
    info->n_files = r->tables.listing.n_files;
    info->n_metadata = r->tables.n_metadata;
    memcpy(info->fingerprint, r->tables.fingerprint, LMC_FINGERPRINT_SIZE);
    info->n_sections = r->tables.ancillary.size / sizeof(lmc__ancillary);
    info->n_records = r->tables.listing.n_records;
    return LMC_OK;
}

LMC_API const lmc_file *lmc_reader_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->tables.listing.n_files ? &lmc__file_at(r, i)->file : NULL;
}

static const char *lmc__metadata_key(const lmc__tables *t, size_t i)
{
    return (const char *)t->keys.data +
           ((const lmc__metadata_entry *)(const void *)t->metadata.data)[i].key_at;
}

LMC_API enum lmc_status lmc_reader_get_metadata(const lmc_reader *r, size_t i, const char **key,
                                                const void **value, size_t *size)
{
    const lmc__metadata_entry *entry;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->tables.n_metadata) return LMC_ERR_NOT_FOUND;
    entry = (const lmc__metadata_entry *)(const void *)r->tables.metadata.data + i;
    *key = lmc__metadata_key(&r->tables, i);
    *value = entry->value;
    *size = entry->size;
    return LMC_OK;
}

/* Keys ascend, and have no NUL (lmc__parse_metadata). */
LMC__COLD LMC_API enum lmc_status lmc_reader_find_metadata(const lmc_reader *r, const char *key,
                                                           const void **value, size_t *size)
{
    const lmc__tables *const t = r ? &r->tables : NULL;
    const char *found;
    size_t i;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    LMC__FIND_FIRST(i, 0, t->n_metadata, strcmp(lmc__metadata_key(t, i), key) < 0);
    if (i == t->n_metadata || strcmp(lmc__metadata_key(t, i), key) != 0) return LMC_ERR_NOT_FOUND;
    return lmc_reader_get_metadata(r, i, &found, value, size);
}

/* == snapshot/find.h =========================================================================== */

/* Finds files and tensors by name. The first search sorts the names. Names are unique within a
 * file, and paths within a snapshot. Only in a damaged snapshot several files may have the path "":
 * their paths are lost. */

/* Fills items with every file of a base (or of a reader that is used as a base), sorted by path. */
static enum lmc_status lmc__sort_paths(const lmc_base *base, lmc__buffer *items)
{
    size_t i;
    for (i = 0; i < base->n_files; i++) {
        const char *const path = base->get_file(base->user, i)->path;
        LMC__TRY(lmc__append_item(items, path, strlen(path), NULL, i, NULL));
    }
    lmc__sort_items((lmc__item *)(void *)items->data, base->n_files);
    return LMC_OK;
}

/* Fills r->names (every tensor, sorted by name and file) and r->paths (every file). */
LMC__COLD static enum lmc_status lmc__sort_names(lmc_reader *r)
{
    const lmc_base self = lmc_reader_base(r);
    size_t i, j;
    if (r->paths.size != 0) return LMC_OK;
    r->names.size = 0;
    LMC__TRY(lmc__reserve(&r->paths, self.n_files * (uint64_t)sizeof(lmc__item)));
    for (i = 0; i < self.n_files; i++) {
        const lmc_file *const f = &lmc__file_at(r, i)->file;
        for (j = 0; j < f->n_tensors; j++) {
            const char *const name = f->tensors[j].name;
            LMC__TRY(lmc__append_item(&r->names, name, strlen(name), NULL, i, &f->tensors[j]));
        }
    }
    lmc__sort_items((lmc__item *)(void *)r->names.data, r->names.size / sizeof(lmc__item));
    return lmc__sort_paths(&self, &r->paths); /* there is room: r->paths is complete or empty */
}

/* The first row with this name whose file is number file_number or a later file; or NULL. *next:
 * whether the row after it has this name, too. */
static const lmc__item *lmc__search_rows(const lmc__buffer *rows, const char *name,
                                         size_t file_number, int *next)
{
    const lmc__item *const row = (const lmc__item *)(const void *)rows->data;
    const size_t n = rows->size / sizeof *row, i = lmc__find_name(row, n, name, file_number);
    *next = i + 1 < n && strcmp((const char *)row[i + 1].name, name) == 0;
    return i < n && strcmp((const char *)row[i].name, name) == 0 ? &row[i] : NULL;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_find_file(lmc_reader *r, const char *path,
                                                       size_t *file_number)
{
    const lmc__item *found;
    int next;
    if (!r || !path || !file_number) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__sort_names(r));
    found = lmc__search_rows(&r->paths, path, 0, &next);
    if (!found) return LMC_ERR_NOT_FOUND;
    *file_number = found->file_number;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_find_tensor(lmc_reader *r, const char *path,
                                                         const char *name, size_t *file_number,
                                                         const lmc_tensor **tensor)
{
    const lmc__item *found;
    size_t wanted = 0;
    int next;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    LMC__TRY(path ? lmc_reader_find_file(r, path, &wanted) : lmc__sort_names(r));
    found = lmc__search_rows(&r->names, name, wanted, &next);
    if (!found || (path && found->file_number != wanted)) return LMC_ERR_NOT_FOUND;
    if (!path && next) return LMC_ERR_AMBIGUOUS;
    *file_number = found->file_number;
    *tensor = found->tensor;
    return LMC_OK;
}

/* == snapshot/open.h =========================================================================== */

/* Opens readers of intact files, and frees all readers. A reader of a damaged file (lmc_salvage)
 * begins with an lmc_reader, so a pointer to it is a pointer to a reader:
 *     reader.h     lmc_reader             tables, coder, origin; reads by the index
 *     salvage.h    lmc_salvage            | lmc_reader | what was found | verdicts |
 *
 * The function pointers read_run and free_extra call the code that differs. */

/* Allocates struct_size bytes, for a struct that begins with a reader. open: fills the tables.
 * After an error lmc_reader_free frees the reader: all members are zero or valid. Readers of a
 * chain work one at a time, so they may share one coder, of several MiB (options->lender). */
LMC__COLD static enum lmc_status lmc__open_reader(lmc_reader **reader, size_t struct_size,
                                                  enum lmc_status (*open)(lmc_reader *r),
                                                  const lmc_source *source,
                                                  const lmc_reader_options *options)
{
    lmc_reader_options o;
    enum lmc_status status;
    lmc_reader *r;
    LMC__NEW_OBJECT(reader);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    LMC__CHECK_CALLBACKS(source, read_at);
    LMC__TRY(lmc__check_parallel(o.parallel));
    LMC__TRY(lmc__check_allocator(o.allocator));
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    r = (lmc_reader *)lmc__realloc(o.allocator, NULL, 0, struct_size);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, struct_size);
    r->struct_size = struct_size;
    r->source = *source;
    r->options = o;
    r->read_run = lmc__read_indexed_run;
    lmc__open_coder(&r->own_coder, o.parallel, o.allocator);
    r->coder = o.lender ? o.lender->coder : &r->own_coder;
    lmc__init_tables(&r->tables, o.allocator);
    lmc__init_buffers(r, LMC__READER_BUFFERS, o.allocator);
    lmc__init_buffers(&r->as_base, LMC__WINDOW_BUFFERS, o.allocator);
    lmc__init_buffers(&r->back, LMC__WINDOW_BUFFERS, o.allocator);
    r->info.features = LMC__KNOWN_FEATURES;
    /* a whole chain has one meter: the base's, if the base is a reader, or the lender's */
    r->below = o.base && o.base->read == lmc__read_as_base ? (lmc_reader *)o.base->user : o.lender;
    r->meter = r->below ? r->below->meter : &r->own_meter;
    status = lmc__open_origin(&r->origin, &r->tables.listing, o.base, o.allocator);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = open(r);
    if (status != LMC_OK) {
        lmc_reader_free(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_reader_open(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options)
{
    return lmc__open_reader(reader, sizeof(lmc_reader), lmc__open_intact, source, options);
}

/* free_extra frees what a larger struct adds; both are one allocation, of struct_size bytes. */
LMC__COLD LMC_API void lmc_reader_free(lmc_reader *r)
{
    if (!r) return;
    if (r->free_extra) r->free_extra(r);
    lmc__free_coder(&r->own_coder);
    lmc__free_tables(&r->tables);
    lmc__free_buffers(r, LMC__READER_BUFFERS);
    lmc__free_buffers(&r->as_base, LMC__WINDOW_BUFFERS);
    lmc__free_buffers(&r->back, LMC__WINDOW_BUFFERS);
    lmc__free_origin(&r->origin);
    (void)lmc__realloc(r->options.allocator, r, r->struct_size, 0);
}

/* == snapshot/memory.h ========================================================================= */

/* Memory in place of files, as sinks, sources and streams. They only point to the lmc_memory, which
 * the caller owns. A write to the sink may move the data, so no other thread may read the data
 * meanwhile. */

/* An lmc_memory is the public form of an lmc__buffer, and grows in the same way. After
 * LMC_ERR_MEMORY the bytes that were written before are still there. */
static enum lmc_status lmc__write_memory(void *user, const void *data, size_t size)
{
    lmc_memory *m = (lmc_memory *)user;
    lmc__buffer b = {m->data, m->size, m->cap, m->allocator};
    const enum lmc_status status =
        m->size <= m->cap ? lmc__append(&b, data, size) : LMC_ERR_ARGUMENT;
    m->data = b.data;
    m->size = b.size;
    m->cap = b.cap;
    return status;
}

static enum lmc_status lmc__read_memory_at(void *user, uint64_t offset, void *dst, size_t size)
{
    const lmc_memory *m = (const lmc_memory *)user;
    if (offset > m->size || size > m->size - offset) return LMC_ERR_READ;
    memcpy(dst, m->data + offset, size);
    return LMC_OK;
}

/* Reads from position on. A position beyond the end is an error of the caller: LMC_ERR_READ. */
static enum lmc_status lmc__read_memory(void *user, void *dst, size_t size, size_t *got)
{
    lmc_memory *m = (lmc_memory *)user;
    if (m->position > m->size) return LMC_ERR_READ;
    *got = lmc__min(size, m->size - m->position);
    if (*got) memcpy(dst, m->data + m->position, *got);
    m->position += *got;
    return LMC_OK;
}

LMC_API lmc_sink lmc_memory_sink(lmc_memory *memory)
{
    const lmc_sink sink = {memory ? lmc__write_memory : NULL, memory, {0, 0}};
    return sink;
}

/* A source of the bytes that are there now. Bytes that are appended later are not in it. */
LMC_API lmc_source lmc_memory_source(const lmc_memory *memory)
{
    const lmc_source source = {memory ? lmc__read_memory_at : NULL,
                               (void *)(uintptr_t)memory, /* it only reads */
                               memory ? memory->size : 0,
                               {0, 0}};
    return source;
}

/* A stream of the bytes from position, which the caller may set, to size. */
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory)
{
    const lmc_stream stream = {memory ? lmc__read_memory : NULL, memory, {0, 0}};
    return stream;
}

/* Frees the data, unless cap is 0: then it is the caller's. The lmc_memory can be used again, with
 * the same allocator. */
LMC_API void lmc_memory_free(lmc_memory *memory)
{
    if (!memory) return;
    if (memory->cap) (void)lmc__realloc(memory->allocator, memory->data, memory->cap, 0);
    memory->data = NULL;
    memory->size = memory->cap = memory->position = 0;
}

/* == snapshot/stdio.h ========================================================================== */

/* Files of the C library as sinks, streams and sources. */
#ifndef LMC_NO_STDIO
static enum lmc_status lmc__write_stdio(void *user, const void *data, size_t size)
{
    return size == 0 || fwrite(data, 1, size, (FILE *)user) == size ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status lmc__read_stdio(void *user, void *dst, size_t size, size_t *got)
{
    *got = fread(dst, 1, size, (FILE *)user);
    return *got == 0 && ferror((FILE *)user) ? LMC_ERR_READ : LMC_OK;
}

/* Returns 0 on success. fseek takes a long, which has 32 bits on Windows and on 32-bit systems. */
static int lmc__seek_stdio(FILE *file, uint64_t offset, int origin)
{
#ifdef _WIN32
    return offset > INT64_MAX || _fseeki64(file, (__int64)offset, origin) != 0;
#else
    return offset > (uint64_t)LONG_MAX || fseek(file, (long)offset, origin) != 0;
#endif
}

static enum lmc_status lmc__read_stdio_at(void *user, uint64_t offset, void *dst, size_t size)
{
    FILE *const file = (FILE *)user;
    return lmc__seek_stdio(file, offset, SEEK_SET) == 0 && fread(dst, 1, size, file) == size
               ? LMC_OK
               : LMC_ERR_READ;
}

LMC_API lmc_sink lmc_stdio_sink(FILE *file)
{
    const lmc_sink sink = {file ? lmc__write_stdio : NULL, file, {0, 0}};
    return sink;
}

LMC_API lmc_stream lmc_stdio_stream(FILE *file)
{
    const lmc_stream stream = {file ? lmc__read_stdio : NULL, file, {0, 0}};
    return stream;
}

LMC_API enum lmc_status lmc_stdio_source(lmc_source *source, FILE *file)
{
#ifdef _WIN32
    __int64 size;
#else
    long size;
#endif
    if (!source || !file) return LMC_ERR_ARGUMENT;
    if (lmc__seek_stdio(file, 0, SEEK_END) != 0) return LMC_ERR_READ;
#ifdef _WIN32
    size = _ftelli64(file);
#else
    size = ftell(file);
#endif
    if (size < 0) return LMC_ERR_READ;
    memset(source, 0, sizeof *source);
    source->read_at = lmc__read_stdio_at;
    source->user = file;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif

/* == snapshot/one_call.h ======================================================================= */

/* Compresses and decompresses whole buffers and files in one call. They make ordinary LMC files
 * that hold one file, and read all such files that have no base. */

/* A sink that writes to the caller's memory, which has a fixed size. */
typedef struct lmc__fixed_sink {
    uint8_t *data;
    size_t size, cap;
} lmc__fixed_sink;

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

#endif

#if (LMC__X86 && !defined(__clang__)) || LMC__SIMDE
#pragma GCC diagnostic pop
#endif
#endif /* LMC_IMPLEMENTATION */
