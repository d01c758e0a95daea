#pragma once

/* -- configuration --
 * Define these before including lmc.h, the same in every file:
 *   LMC_STATIC           all functions are static: each file that implements them has a copy
 *   LMC_API              the text before each public function. Default: nothing; with LMC_STATIC:
 *                        static
 *
 * These leave out parts of the library and their declarations. They can be combined:
 *   LMC_NO_SNAPSHOT      layer 3: snapshots, files and names
 *   LMC_NO_QUANTIZE      quantisers. Decoding quantised blocks returns LMC_ERR_UNSUPPORTED
 *   LMC_NO_ENCODER       everything that encodes. The rest decodes what a full library writes
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

#ifndef LMC_NO_ENCODER
/* Most bytes that lmc_compress writes for size bytes, but at most SIZE_MAX. */
LMC_API size_t lmc_compress_bound(size_t size);
/* Compresses size bytes at src, elements of dtype, to dst. *dst_size: bytes written. If size is a
 * multiple of the element's size, the bytes become one nameless tensor, which has the dtype.
 * Errors: ARGUMENT, DST_TOO_SMALL, MEMORY, those of progress. */
LMC_STATUS lmc_compress(void *dst, size_t dst_cap, size_t *dst_size, const void *src, size_t size,
                        enum lmc_dtype dtype, const lmc_compress_options *options);
#endif
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
#ifndef LMC_NO_ENCODER
LMC_STATUS lmc_compress_file(const char *dst_path, const char *src_path, enum lmc_dtype dtype,
                             const lmc_compress_options *options);
#endif
LMC_STATUS lmc_decompress_file(const char *dst_path, const char *src_path,
                               const lmc_compress_options *options);
#endif
#endif /* LMC_NO_SNAPSHOT */

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
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
#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
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
#ifndef LMC_NO_ENCODER
/* -- writer --
 * For each file call lmc_writer_begin_file; pass all of its bytes in order, in pieces of any size
 * (lmc_writer_write) or from a stream (lmc_writer_write_stream); call lmc_writer_end_file. At the
 * end call lmc_writer_finish.
 *
 * Errors of all its functions: ARGUMENT (also for calls out of order), LIMIT, MEMORY, CHANGED, and
 * those of callbacks. After an error all calls with this writer return the same error, unless said
 * otherwise: free it. */

typedef struct lmc_writer lmc_writer;

/* Small files without tensors may share sections, blocks and trees, which saves some 160 bytes for
 * each. Up to 4 MiB of them wait in memory. Add similar files one after another. */
enum lmc_grouping LMC__INT {
    LMC_GROUP_NONE = 0,
    LMC_GROUP_NEW = 1, /* those that the base lacks: so the snapshot can be restored over its base
                          (lmc_reader_can_restore_in_place) */
    LMC_GROUP_ALL = 2  /* all, which rules that out */
};

typedef struct lmc_writer_options {
    size_t struct_size;  /* as in lmc_block_options */
    unsigned log2_block; /* 14 .. 22: a block has 2^log2_block elements, but at most 4 MiB; 0: the
                            default of layer 2 */
    enum lmc_level level;
    /* 1: tensors may have a quantizer. The header, which is written first, must say so. */
    int may_quantize;
    /* 1: the snapshot has the SHA-256 of each tensor's bytes and of each file's other bytes, and a
     * hash of the whole snapshot, to be signed (lmc_reader_read_snapshot_hash). Slow. */
    int content_hashes;
    enum lmc_grouping group_files;
    uint64_t without; /* bits LMC_FEATURE_... that the file must not have */
    /* Limit of the index, in bytes; 0: 1 GiB, as of readers. A larger index is LMC_ERR_LIMIT. */
    uint64_t max_index_size;
    const lmc_parallel *parallel; /* or NULL; must outlive the writer */
    const lmc_base *base;         /* or NULL; must outlive the writer */
    /* For twins; or NULL. Reads, from the caller's copy, bytes that were written earlier (before or
     * after quantising). If it is set, restoring needs a read_back, too. */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    /* Or NULL. Called by the caller's thread about once for each wave (blocks coded at once), with
     * the number of bytes coded so far, at the end all bytes. Any error ends the writer. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user;                     /* of read_back and progress */
    const lmc_allocator *allocator; /* or NULL */
} lmc_writer_options;
LMC__INITIALIZER(lmc_writer_options, LMC_WRITER_OPTIONS, (void), )

/* Memory:
 *   for each worker  1 MiB (with blocks of more than 512 KiB: two blocks), twice that for
 *                    lmc_writer_write_stream; a workspace of about 13 bytes for each element of a
 *                    block
 *   in any case      one block; for files of unknown size 16 MiB, or 48 MiB with
 *                    lmc_writer_write_stream
 *   for the index    8 bytes for each block; about 250 bytes and its name for each tensor
 *   for a header     the bytes before a file's first tensor, up to 128 MiB, if they may be the
 *                    header of a safetensors file
 *   for each block   that is being coded: 12 bytes for each tensor that begins in it
 *   with group_files the small files that wait, up to 4 MiB and a block
 *
 * The sink may get bytes one wave of blocks later. With a parallel, any worker may call the sink,
 * also while another reads the stream of lmc_writer_write_stream, but two never call it at once. */
LMC_STATUS lmc_writer_open(lmc_writer **writer, const lmc_sink *sink,
                           const lmc_writer_options *options);

/* The twin of a tensor, or of a file without tensors: other bytes of the same snapshot, which it
 * equals or is rounded from. Its blocks then take almost no space. A wrong twin only makes the
 * output larger. The twin must have been written before, and must not have a twin itself. */
typedef struct lmc_twin {
    size_t file_number;
    uint64_t offset;                /* first byte within that file */
    enum lmc_conversion conversion; /* if not NONE: rounds twice as many bytes, ties to even */
    uint64_t reserved[2];           /* zero; see "reserved words" above */
} lmc_twin;
/* The next `size` bytes of a tensor are coded against `size` bytes of a tensor or file of the base,
 * from `offset` on. Parts follow one another; bytes after the last part have no prediction. Wrong
 * parts only make the output larger. Parts should begin and end with whole elements. */
typedef struct lmc_base_part {
    const char *path;     /* of the base's file that has the tensor; may be "". NULL: the first file
                         with a tensor of that name that is long enough */
    const char *name;     /* of the tensor; may be "". NULL: these bytes have no prediction */
    uint64_t offset;      /* first byte within the tensor of the base */
    uint64_t size;        /* bytes */
    uint64_t reserved[2]; /* zero; see "reserved words" above */
} lmc_base_part;

/* What may help the writer to code a tensor (lmc_writer_add_hints, include/lmc_extra.h).
 * LMC_TENSOR_HINTS(): nothing. */
typedef struct lmc_tensor_hints {
    size_t struct_size;              /* as in lmc_block_options */
    const lmc_twin *twin;            /* what the tensor can be made from; or NULL */
    const lmc_base_part *base_parts; /* what predicts it; NULL: the base's tensor of its name */
    size_t n_base_parts;
    /* For lossy coding; or NULL. It must outlive the writer. If it was fitted with a second moment,
     * twin says where that moment is, with LMC_CONVERT_NONE. */
    const lmc_quantizer *quantizer;
} lmc_tensor_hints;
LMC__INITIALIZER(lmc_tensor_hints, LMC_TENSOR_HINTS, (void), )
/* Begins a file. *file is copied, with all that it points to. Its path must differ from earlier
 * paths. default_dtype says how to code the bytes that belong to no tensor (raw arrays); LMC_AUTO
 * if in doubt. */
LMC_STATUS lmc_writer_begin_file(lmc_writer *writer, const lmc_file *file,
                                 enum lmc_dtype default_dtype);
/* The file's next bytes. LMC_ERR_ARGUMENT if the file gets more than file->size bytes. */
LMC_STATUS lmc_writer_write(lmc_writer *writer, const void *data, size_t size);
/* The file's next bytes, from stream: until the stream ends, or until a file of known size is
 * complete (then no further byte is read). Reading, coding and writing overlap. */
LMC_STATUS lmc_writer_write_stream(lmc_writer *writer, const lmc_stream *stream);
/* LMC_ERR_ARGUMENT if the file got fewer than file->size bytes. */
LMC_STATUS lmc_writer_end_file(lmc_writer *writer);

/* An array in memory, which becomes a tensor of a file. LMC_ARRAY(): one with these members. */
typedef struct lmc_array {
    const char *name;     /* UTF-8 */
    enum lmc_dtype dtype; /* not LMC_AUTO */
    unsigned rank;
    const uint64_t *shape; /* rank entries, outermost first */
    const void *data;      /* product of shape times lmc_dtype_bits, over 8, bytes; little-endian */
    uint64_t reserved[2];  /* zero; see "reserved words" above */
} lmc_array;
#define LMC_ARRAY(name, dtype, rank, shape, data) {name, dtype, rank, shape, data, {0, 0}}

/* An entry of the __metadata__ of a safetensors file. */
typedef struct lmc_text {
    const char *key;   /* UTF-8 */
    const char *value; /* UTF-8 */
} lmc_text;

/* Adds a whole safetensors file with these arrays, as safetensors' own writer makes it: sorted by
 * width, the widest dtypes first, then by name. path: "" if it is the only file. texts: entries of
 * __metadata__, in their order ({"format", "pt"}); NULL and 0 for none. Errors before anything is
 * written: ARGUMENT (a name or key twice, or not valid UTF-8 (RFC 3629); a shape that is not whole
 * bytes), LIMIT (a header over 100,000,000 bytes, which no loader accepts): the writer can still be
 * used. Then those of the writer. */
LMC_STATUS lmc_writer_add_arrays(lmc_writer *writer, const char *path, const lmc_array *arrays,
                                 size_t n_arrays, const lmc_text *texts, size_t n_texts);
/* Call it any time before finishing. key: 1 to 65,535 bytes; value: any bytes, at most 2^28. Two
 * entries of the same key make finishing fail. Keys that start with "lmc." must be those of spec
 * 8.3. Errors: ARGUMENT, LIMIT, MEMORY. */
LMC_STATUS lmc_writer_add_metadata(lmc_writer *writer, const char *key, const void *value,
                                   size_t size);
/* Adds an ancillary section (spec 4.4), any time before finishing. kind starts with a lower-case
 * letter and is not "hash". Use it to copy sections (lmc_reader_get_section) into a new snapshot,
 * unless their fourth letter is upper-case. body is copied. Errors: ARGUMENT, LIMIT, MEMORY. */
LMC_STATUS lmc_writer_add_section(lmc_writer *writer, const char *kind, const void *body,
                                  size_t size);
/* Writes index and trailer. The LMC file is complete when it has returned LMC_OK. */
LMC_STATUS lmc_writer_finish(lmc_writer *writer);
typedef struct lmc_writer_info {
    uint64_t size;                             /* bytes passed to the sink so far */
    int is_finished;                           /* 1: lmc_writer_finish has returned LMC_OK */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of the snapshot; all zero until it is finished */
    uint64_t coded_size; /* bytes of files in the blocks that were coded so far */
    uint64_t from_base_size, from_base_encoded_size; /* of those coded against the base */
    uint64_t reserved[4];                            /* zero; see "reserved words" above */
} lmc_writer_info;
/* The sink's write() may call this, too; then size may lack up to a wave of what it got before. */
LMC_STATUS lmc_writer_get_info(const lmc_writer *writer, lmc_writer_info *info);
LMC_API void lmc_writer_free(lmc_writer *writer); /* NULL allowed */
#endif                                            /* LMC_NO_ENCODER */

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

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* -- quantisers: lossy, on request --
 * For the moments of an optimizer, which take most of a training checkpoint but need little
 * precision. A quantiser replaces each element by the nearest of a few values, and the codec stores
 * the numbers of these values. The loss is measured and stored with the tensor. Second moments are
 * quantised by their logarithm, and no positive one becomes zero. First moments are quantised as
 * updates, m / (sqrt(v) + eps), if the second moment is given; else like other tensors, with a
 * scale for each group of elements. NaN, infinities, -0, subnormals and negative second moments
 * stay exact. (After BitSnap, arXiv 2511.12376.) lmc_quantizer_fit (include/lmc_extra.h) finds a
 * quantiser.
 *
 * With LMC_NO_QUANTIZE quantised blocks can still be found, skipped and described. Decoding such a
 * block returns LMC_ERR_UNSUPPORTED, and so does encoding with a quantizer other than NULL. */
LMC_API void lmc_quantizer_free(lmc_quantizer *quantizer); /* NULL allowed */

typedef struct lmc_quantizer_info {
    int is_lossless;       /* 1: it keeps the tensor as it is */
    const char *reason;    /* why it keeps the tensor; "" if it does not */
    int is_grid;           /* 1: a uniform grid; 0: a codebook */
    unsigned n_codes;      /* values of the codebook, with zero; or points of the grid in the
                              sample */
    uint64_t n_exceptions; /* elements that are stored as they are; estimated */
    double bits;           /* for each encoded element; estimated */
    lmc_loss loss;
    uint64_t reserved[4]; /* zero; see "reserved words" above */
} lmc_quantizer_info;
LMC_STATUS lmc_quantizer_get_info(const lmc_quantizer *quantizer, lmc_quantizer_info *info);

/* Replaces bytes [offset, offset + size) of the tensor, which are at data, by what decoding will
 * return. second: the same bytes of the decoded second moment, if the quantizer was fitted with
 * one; else NULL. A second call changes nothing. Errors: ARGUMENT. */
LMC_STATUS lmc_quantizer_apply(const lmc_quantizer *quantizer, uint64_t offset, void *data,
                               size_t size, const void *second);
#endif

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

#ifndef LMC_NO_ENCODER
/* Largest encoded size of a tensor; SIZE_MAX if that is larger, or if options are illegal. */
LMC_API size_t lmc_tensor_bound(size_t size, const lmc_tensor_options *options);
/* Encodes size bytes (0: no blocks). A dst_cap of lmc_tensor_bound() always suffices. Errors:
 * ARGUMENT, DST_TOO_SMALL, WORKSPACE, LIMIT (2^32 blocks), BASE_WRONG (prediction_size). */
LMC_STATUS lmc_tensor_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                             size_t size, const lmc_tensor_options *options, void *ws,
                             size_t ws_size);
#endif

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

#ifndef LMC_NO_ENCODER
/* Encodes size bytes at src, a multiple of the dtype's width, as one block. options must not be
 * NULL, since it gives the dtype. *dst_size: bytes written, at most lmc_block_bound(size). Time
 * O(size). Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE, BASE_WRONG (prediction_size). */
LMC_STATUS lmc_block_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                            size_t size, const lmc_block_options *options, void *ws,
                            size_t ws_size);
#endif

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
