/* lmc.h - v1.0.0 - lossless codec for the tensors and checkpoints of large language models
 * SPDX-License-Identifier: MIT
 *
 * ABOUT
 *   Compresses bf16, fp16, fp32, ... tensors and whole checkpoints without loss: bf16 weights to
 *   about 2/3 of their size, fp32 weights to about 5/6, and a checkpoint that follows another to
 *   what has changed. Every block has a CRC-32C and decodes alone, so any tensor or slice can be
 *   read without the rest. On request, moments of optimizers are coded with loss: to a fourth or an
 *   eighth of their size, with a known error. It writes and reads LMC files of format 1.0.
 *   spec/lmc-format.md describes the format: "spec 8.2" and "R8-2" in comments are a section and a
 *   rule of it.
 *
 * SYNOPSIS
 *   In one C or C++ file of your program:
 *
 *       #define LMC_IMPLEMENTATION
 *       #include "lmc.h"
 *
 *   and everywhere else just #include "lmc.h". No build flags, no dependency but the C library.
 *   Programs that only read may use include/lmc_read.h or include/lmc_decode.h instead.
 *
 *   Five functions are enough for most programs:
 *
 *       lmc_compress             a buffer; lmc_compress_file: a file
 *       lmc_decompress           the reverse; lmc_decompress_file
 *       lmc_writer_add_arrays    writes arrays, between lmc_writer_open and lmc_writer_finish
 *       lmc_reader_read_tensor   a tensor, or a part of it, after lmc_reader_open and
 *                                lmc_reader_find_tensor
 *       lmc_snapshot_restore     all files of a snapshot
 *
 *   Less common functions have headers of their own. Include those after this one.
 *   include/lmc_extra.h: lmc_pool and descriptors of POSIX, lmc_quantizer_fit, lmc_changes_add,
 *   lmc_writer_add_hints and _copy_file, lmc_file_identify and lmc_base_identify, lmc_reader_...
 *   can_restore_in_place, read_snapshot_hash, read_content_hash, get_section,
 *   read_section, encoded_size, encoded_range, open_shared. include/lmc_salvage.h: damaged files.
 *
 * CONTRACT
 *   Layers   1 block codec:   from buffer to buffer; no allocation, no threads.
 *            2 tensor codec:  arrays of any length as a sequence of blocks; parts of arrays;
 *                             runs tasks by the caller's parallel_for.
 *            3 snapshot:      files with names, tensors and an index; reads and writes by
 *                             callbacks; allocates by lmc_allocator.
 *   Errors   Every function that can fail returns enum lmc_status. Output parameters are set only
 *            on LMC_OK, unless said otherwise. After an error the contents of destination buffers
 *            are undefined.
 *   Bounds   Exactly [ptr, ptr + size) is read or written. Callers need neither pad nor align.
 *   Changes  A program, such as a training loop, may change data while it is encoded. LMC_OK then
 *            means that the output decodes to a mixture of old and new bytes; else the result is
 *            LMC_ERR_CHANGED. Predictions and bases must not change.
 *   Memory   Inputs are never modified.
 *   Input    Encoded input may be hostile. It is never trusted: LMC_OK means that everything was
 *            checked.
 *   Threads  The only global state is one pointer to a constant table, set atomically.
 *   Bytes    The same input and options give the same bytes with every CPU, compiler and number of
 *            threads.
 *   Stack    Compiled with optimisation below 32 KiB, for deltas 64 KiB; else up to 1 MiB. A chain
 *            of readers takes 1 KiB more for each reader.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file from the files of src/. A line names each of them:
 *   interface  api
 *   base       platform status bytes options wire_block wire_file
 *   kernels    types tables vec_swar vec_neon vec_avx2 vec_avx512 vec residual crc32c sum64
 *              sha256 split_join count map partition merge flatten strip split_root join_root
 *              classes group ungroup patch changes grids tiers dispatch
 *   codec      dtypes half tree quant_params job workspace cost block_header huffman lengths plan
 *              sample put_gaps get_gaps put_list plan_zeros plan_planes put_planes put_zeros
 *              plan_delta put_delta put_block get_list get_planes get_zeros get_sparse get_delta
 *              put_quantised get_quantised get_block
 *   quantise   quantizer
 *   tensor     wave tensor encode_tensor decode_tensor
 *   snapshot   buffer sha256 order fingerprint ends pipeline names sections files put_files texts
 *              runs index_entries hashes origin work writer_plan writer_blocks writer_groups
 *              writer arrays restore index reader reader_info find open memory stdio one_call
 */
#ifndef LMC_H
#define LMC_H
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
     * the next one as lender: then the chain needs buffers only once. */
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

#endif /* LMC_H */

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
/* Stores the low `width` bytes of v to element i. */
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
#define LMC__KNOWN_FEATURES ((uint64_t)15)

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

#ifndef LMC_NO_ENCODER
/* A plane that is the root of a tree: split_root maps and partitions its bytes, as the kernels map
 * and partition do. Its row is a list for the work; left may be the same list. */
typedef struct lmc__parted {
    unsigned plane;
    const uint8_t *table;
    unsigned split;
    uint8_t *mask, *left, *right;
    size_t n_right; /* result */
} lmc__parted;
#endif

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

#ifndef LMC_NO_ENCODER
/* Elements of a block that differ from their prediction: their numbers, ascending; their values,
 * and their predictions, `width` bytes each, without gaps. */
typedef struct lmc__changed {
    uint32_t *place;
    uint8_t *now, *before;
} lmc__changed;
#endif

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
#ifndef LMC_NO_ENCODER
    void (*split)(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                  enum lmc__order order);
    uint32_t (*split_root)(const struct lmc__kernels *k, const lmc__planes *planes,
                           lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                           enum lmc__order order, uint64_t *sum);
    void (*map)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table);
    size_t (*partition)(uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src, size_t n,
                        unsigned split);
    void (*flatten)(uint8_t *bits, const uint8_t *src, size_t n, unsigned first, unsigned depth);
    uint32_t (*group)(const struct lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                      const lmc__delta_block *block);
    size_t (*list_changes)(const struct lmc__kernels *k, uint32_t *crc, const lmc__changed *changed,
                           size_t most, const uint8_t *src, const uint8_t *base, size_t n,
                           unsigned width);
    void (*rank_changes)(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                         const uint8_t *base, size_t n, unsigned width,
                         const lmc__grouping *grouping, const lmc__changed *changed,
                         size_t n_changed);
#endif
#ifndef LMC_NO_QUANTIZE
    void (*restore)(uint8_t *dst, const uint16_t *symbols, const uint8_t *second, size_t n,
                    uint32_t scale, const lmc__grid *grid);
    void (*join_symbols)(uint16_t *symbols, const uint8_t *high, const uint8_t *low, size_t n,
                         unsigned low_bits);
    void (*stream)(uint8_t *dst, const uint8_t *src, size_t size);
#ifndef LMC_NO_ENCODER
    size_t (*quantize)(uint16_t *symbols, const uint8_t *src, const uint8_t *second, size_t n,
                       uint32_t scale, const lmc__grid *grid);
    uint32_t (*sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count);
    void (*cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                        unsigned low_bits);
#endif
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
#ifndef LMC_NO_ENCODER
LMC__INLINE uint64_t lmc__to_residuals(uint64_t v, unsigned width, enum lmc__order order)
{
    const uint64_t lowest = ~(uint64_t)0 / (~(uint64_t)0 >> (64 - 8 * width));
    if (order == LMC__ORDER_NONE) return v;
    if (order == LMC__ORDER_INTEGER) v = lmc__flip_negative(v, width);
    return (v << 1 & ~lowest) | (v >> (8 * width - 1) & lowest);
}
#endif
LMC__INLINE uint64_t lmc__from_residuals(uint64_t r, unsigned width, enum lmc__order order)
{
    const uint64_t highest = ~(uint64_t)0 / (~(uint64_t)0 >> (64 - 8 * width)) << (8 * width - 1);
    if (order == LMC__ORDER_NONE) return r;
    r = (r >> 1 & ~highest) | (r << (8 * width - 1) & highest);
    return order == LMC__ORDER_INTEGER ? lmc__flip_negative(r, width) : r;
}

#ifndef LMC_NO_ENCODER
/* v[p] = bytes of plane p of the residuals of the eight elements at src, which is read exactly. */
LMC__INLINE void lmc__split8(uint64_t v[8], const uint8_t *src, unsigned width,
                             enum lmc__order order)
{
    unsigned i;
    for (i = 0; i < width; i++)
        v[i] = width == 2 || width == 4
                   ? lmc__load32(src + 4 * i) | (uint64_t)lmc__load32(src + 4 * (width + i)) << 32
                   : lmc__load64(src + 8 * i);
    for (i = 0; i < width; i++) v[i] = lmc__to_residuals(v[i], width, order);
    if (width == 2) {
        for (i = 0; i < 2; i++) v[i] = lmc__swap_bytes(v[i], LMC__MIDDLE_BYTES, 8);
        lmc__swap_bits(&v[0], &v[1], 0x0000FFFF0000FFFFu, 16);
    }
    if (width == 4) lmc__transpose4(v);
    if (width == 8) lmc__transpose8(v);
}
#endif

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

#ifndef LMC_NO_ENCODER
/* Sixteen 16-bit elements, for loops that compilers turn into vector code by themselves. */
LMC__INLINE void lmc__load16x16(uint16_t v[16], const uint8_t *src)
{
#if LMC__LITTLE_ENDIAN
    memcpy(v, src, 32);
#else
    int i;
    for (i = 0; i < 16; i++) v[i] = lmc__load16(src + 2 * i);
#endif
}
#endif
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

#ifndef LMC_NO_ENCODER
/* The bytes of v sorted by the bits of m: *zeros*, the bytes whose bit is 0, from the lower end up,
 * in order; *ones* from the upper end down. In three steps some bytes change places with bytes 1,
 * 2, 4 apart, as lmc__sort_swaps says. Here ones are capitals:
 *     v          a B C d E f g H
 *     1 apart    a B C d f E H g
 *     2 apart    a d C B H E f g
 *     4 apart    a d f g H E C B
 *
 * Three steps are enough. After the step with distance n, each block of 2n bytes is a ring. If k
 * zeros are before the block, its zeros are side by side from place k modulo 2n on. Its ones fill
 * the rest, in reverse order. Each step joins two rings of n bytes: the zeros of the second
 * continue those of the first. So of two bytes n apart, exactly one belongs in its lower half. */
LMC__INLINE uint64_t lmc__sort8(uint64_t v, unsigned m)
{
    const uint64_t *swaps = lmc__sort_swaps[m];
    v = lmc__swap_bytes(v, swaps[0], 8);
    v = lmc__swap_bytes(v, swaps[1], 16);
    return lmc__swap_halves(v, swaps[2]);
}
#endif

/* The inverse of lmc__sort8, for the following word. If m has k ones, its upper k bytes come from
 * `ones`, and its other bytes from `zeros`. */
LMC__INLINE uint64_t lmc__unsort8(uint64_t zeros, uint64_t ones, unsigned m)
{
    const uint64_t *swaps = lmc__sort_swaps[m];
    const uint64_t v = lmc__swap_halves(zeros ^ ((zeros ^ ones) & swaps[3]), swaps[2]);
    return lmc__swap_bytes(lmc__swap_bytes(v, swaps[1], 16), swaps[0], 8);
}

#define LMC__ONES8 0x0101010101010101u

#ifndef LMC_NO_ENCODER
/* Bit j of the result: the lowest bit of byte j of v; the other bits of v must be zero. The
 * multiplication shifts byte j to bit 56 + j, and no two terms meet in one bit. */
LMC__INLINE unsigned lmc__collect_bits(uint64_t v)
{
    return (unsigned)(v * 0x0102040810204080u >> 56);
}

/* Bit j of the result: byte j of v >= s, unsigned. Bit 7 of each byte is set in the minuend and
 * clear in the subtrahend, so nothing is borrowed from the next byte. */
LMC__INLINE unsigned lmc__compare8(uint64_t v, uint64_t s_times_ones)
{
    const uint64_t high = 0x80 * LMC__ONES8;
    uint64_t low =
        (v | high) - (s_times_ones & ~high); /* bit 7 of a byte: its low 7 bits >= those of s */
    uint64_t ge = (v & ~s_times_ones) | (~(v ^ s_times_ones) & low);
    return (unsigned)((ge & high) * 0x0002040810204081u >> 56); /* as lmc__collect_bits, of bit 7 */
}
#endif

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

#ifndef LMC_NO_ENCODER
/* Stores the lowest n bits of m, at most 64, as the next bits of a mask; the last byte is filled up
 * with zeros. Writes no byte behind that one. Returns the bits that are stored. */
LMC__INLINE uint64_t lmc__store_mask(uint8_t *mask, uint64_t m, size_t n)
{
    uint8_t bits[8];
    if (n >= 64) {
        lmc__store64(mask, m);
        return m;
    }
    m &= ((uint64_t)1 << n) - 1;
    lmc__store64(bits, m);
    memcpy(mask, bits, (n + 7) / 8);
    return m;
}
#endif
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

/* r[i] = v[p[i]], 0 where there is no such place. */
LMC__INLINE uint8x16_t lmc__shuffle_neon(uint8x16_t v, uint8x16_t p) { return vqtbl1q_u8(v, p); }

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

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b. */
LMC__INLINE uint8x16_t lmc__even_neon(uint8x16_t a, uint8x16_t b) { return vuzp1q_u8(a, b); }
LMC__INLINE uint8x16_t lmc__odd_neon(uint8x16_t a, uint8x16_t b) { return vuzp2q_u8(a, b); }

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

/* How many ones are in bytes 0 .. j - 1 of m; sums = begin_ones(m). vcnt counts in each byte, and
 * one multiplication adds up for all j. No sum is above 64, so no byte overflows. */
LMC__INLINE uint64_t lmc__begin_ones_neon(uint64_t m)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(m))), 0) * LMC__ONES8;
}
LMC__INLINE size_t lmc__ones_before_neon(uint64_t sums, unsigned j)
{
    return j ? (size_t)(sums >> (8 * j - 8) & 255) : 0;
}

#ifndef LMC_NO_ENCODER
/* r[i] = p[i], of bytes that may change meanwhile: see lmc__load_once_avx2. */
LMC__INLINE uint8x16_t lmc__load_once_neon(const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);
    __asm__("" : "+w"(v));
    return v;
}

/* r[i] = v[i] >= from[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__not_below_neon(uint8x16_t v, uint8x16_t from)
{
    return vcgeq_u8(v, from);
}

/* load_row: r[i] = row[i]. place_in_row: r[i] = v[i] - first; if not 0 .. 15, a shuffle gives 0. */
LMC__INLINE uint8x16_t lmc__load_row_neon(const uint8_t *row) { return vld1q_u8(row); }
LMC__INLINE uint8x16_t lmc__place_in_row_neon(uint8x16_t v, uint8x16_t first)
{
    return vsubq_u8(v, first);
}

/* r[i] = v[i] - w[i]. */
LMC__INLINE uint8x16_t lmc__subtract_neon(uint8x16_t v, uint8x16_t w) { return vsubq_u8(v, w); }

/* r[i] = bit `bit` of v[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__test_neon(uint8x16_t v, unsigned bit)
{
    return vtstq_u8(v, vdupq_n_u8((uint8_t)(1u << bit)));
}

/* Bit i of the result: whether byte i of four vectors is not below byte i mod 16 of `from`. */
LMC__INLINE uint64_t lmc__compare_neon(const uint8x16_t v[4], uint8x16_t from)
{
    return vget_lane_u64(
        vreinterpret_u64_u8(lmc__collect_neon(vcgeq_u8(v[0], from), vcgeq_u8(v[1], from),
                                              vcgeq_u8(v[2], from), vcgeq_u8(v[3], from))),
        0);
}

/* A shuffle by the bits of m: the bytes of zeros go to the low half, those of ones to the high. */
LMC__INLINE uint8x16_t lmc__load_sort_places_neon(unsigned m)
{
    return vreinterpretq_u8_u64(vld1q_u64(lmc__sort_places[m]));
}

/* Bytes [8 j, 8 j + 8) of v, sorted by that shuffle. They are moved to bytes 0 .. 7 first, because
 * the table has these places. The two halves of the result are stored separately. */
LMC__INLINE uint8x16_t lmc__sort8_neon(uint8x16_t v, unsigned j, unsigned m)
{
    return vqtbl1q_u8(j ? vextq_u8(v, v, 8) : v, lmc__load_sort_places_neon(m));
}

LMC__INLINE void lmc__store_low_neon(uint8_t *p, uint8x16_t x) { vst1_u8(p, vget_low_u8(x)); }
LMC__INLINE void lmc__store_high_neon(uint8_t *p, uint8x16_t x) { vst1_u8(p, vget_high_u8(x)); }
#endif
#endif

/* == kernels/vec_avx2.h ======================================================================== */

/* The basic operations of the AVX2 tier, on vectors of 32 bytes. Comments are as in vec_neon.h: r
 * is the result. Most instructions work within each half of 16 bytes; comments name the others.
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
/* load: r[i] = p[i]. store: the inverse. */
LMC__INLINE_AVX2 __m256i lmc__load_avx2(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
LMC__INLINE_AVX2 void lmc__store_avx2(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

#ifndef LMC_NO_ENCODER
/* As lmc__load_avx2, for bytes that may change meanwhile, like an encoder's input: they are read
 * once, to a register. Else a compiler may read memory again where that is cheaper: clang for the
 * operand of a vpternlog, gcc where registers are few. */
LMC__INLINE_AVX2 __m256i lmc__load_once_avx2(const uint8_t *p)
{
    __m256i v = lmc__load_avx2(p);
#if LMC__X86 && defined(__GNUC__)
    __asm__("" : "+x"(v));
#endif
    return v;
}
#endif

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

/* r[i] = v. */
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

#ifndef LMC_NO_ENCODER
/* r[i] = v[i] >= from[i] ? 255 : 0, unsigned. AVX2 compares bytes only as signed ones, or for
 * equality. So it tests whether v is the maximum of v and from. */
LMC__INLINE_AVX2 __m256i lmc__not_below_avx2(__m256i v, __m256i from)
{
    return _mm256_cmpeq_epi8(_mm256_max_epu8(v, from), v);
}

/* As lmc__not_below_avx2, but byte i of the result is one bit: bit i. */
LMC__INLINE_AVX2 uint32_t lmc__compare_avx2(const __m256i v[1], __m256i s)
{
    return (uint32_t)_mm256_movemask_epi8(lmc__not_below_avx2(v[0], s));
}
#endif

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

#ifndef LMC_NO_ENCODER
/* r[i] = v[i] - w[i]. */
LMC__INLINE_AVX2 __m256i lmc__subtract_avx2(__m256i v, __m256i w) { return _mm256_sub_epi8(v, w); }

/* Bit 7 of r[i] = bit `bit` of v[i], by a shift of 16-bit lanes. A neighbour's bits come only below
 * bit 7. The count of SIMDe's slli must be a literal. */
LMC__INLINE_AVX2 __m256i lmc__test_avx2(__m256i v, unsigned bit)
{
#if LMC__X86
    return _mm256_slli_epi16(v, (int)(7 - bit));
#else
    return _mm256_sll_epi16(v, _mm_cvtsi32_si128((int)(7 - bit)));
#endif
}

/* A shuffle that moves the bytes of the zero bits of m to the low half and those of its one bits to
 * the high half, in order. (pext would need no table, but is microcoded on Zen 1 and 2.) */
LMC__INLINE_AVX2 __m128i lmc__load_sort_places_avx2(unsigned m)
{
    return _mm_loadu_si128((const __m128i *)(const void *)lmc__sort_places[m]);
}

/* Bytes [8 j, 8 j + 8) of v, sorted by that shuffle. They are moved to bytes 0 .. 7 first, because
 * the table has these places. The two halves of the result are stored separately. */
LMC__INLINE_AVX2 __m128i lmc__sort8_avx2(__m256i v, unsigned j, unsigned m)
{
    const __m128i half = j < 2 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
    return _mm_shuffle_epi8(j & 1 ? _mm_unpackhi_epi64(half, half) : half,
                            lmc__load_sort_places_avx2(m));
}

/* How many ones are in bytes 0 .. j - 1 of m; sums = begin_ones(m). */
LMC__INLINE_AVX2 uint32_t lmc__begin_ones_avx2(uint32_t m) { return m; }
LMC__INLINE_AVX2 size_t lmc__ones_before_avx2(uint32_t sums, unsigned j)
{
    return (size_t)_mm_popcnt_u64(sums & (((uint64_t)1 << 8 * j) - 1));
}

LMC__INLINE_AVX2 void lmc__store_low_avx2(uint8_t *p, __m128i x)
{
    _mm_storel_epi64((__m128i *)(void *)p, x);
}
LMC__INLINE_AVX2 void lmc__store_high_avx2(uint8_t *p, __m128i x)
{ /* gcc's _mm_storeh_pd demands an aligned p */
    _mm_storeh_pi((__m64 *)(void *)p, _mm_castsi128_ps(x));
}
#endif
#endif

#if LMC__X86
#ifndef LMC_NO_ENCODER
/* r[i] = v[i] - first, if that is 0 .. 15; else bit 7 of r[i] is set, where a shuffle gives 0.
 * first is a multiple of 16, so v ^ first is below 16 only in this row; elsewhere adding 0x70,
 * saturated, sets bit 7. */
LMC__INLINE_AVX2 __m256i lmc__place_in_row_avx2(__m256i v, __m256i first)
{
    return _mm256_adds_epu8(_mm256_xor_si256(v, first), lmc__splat_avx2(0x70));
}
#endif

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
#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX2 __m256i lmc__odd_avx2(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)), 0xD8);
}
#endif

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

/* The basic operations of the AVX-512 tier, on vectors of 64 bytes; comments as in vec_avx2.h. */
/* load: r[i] = p[i]. store: the inverse. */
LMC__INLINE_AVX512 __m512i lmc__load_avx512(const uint8_t *p) { return _mm512_loadu_si512(p); }
LMC__INLINE_AVX512 void lmc__store_avx512(uint8_t *p, __m512i v) { _mm512_storeu_si512(p, v); }

#ifndef LMC_NO_ENCODER
/* As lmc__load_once_avx2. */
LMC__INLINE_AVX512 __m512i lmc__load_once_avx512(const uint8_t *p)
{
    __m512i v = _mm512_loadu_si512(p);
#ifdef __GNUC__
    __asm__("" : "+v"(v));
#endif
    return v;
}
#endif

/* r[i] = v. */
LMC__INLINE_AVX512 __m512i lmc__splat_avx512(unsigned v) { return _mm512_set1_epi8((char)v); }

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b: look-ups among all 128 bytes, by
 * places from a table (vpermi2b). Unlike AVX2's packing, they give the right order at once. */
LMC__INLINE_AVX512 __m512i lmc__even_avx512(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[0]), b);
}
#ifndef LMC_NO_ENCODER
LMC__INLINE_AVX512 __m512i lmc__odd_avx512(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[1]), b);
}
#endif

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

#ifndef LMC_NO_ENCODER
LMC__INLINE uint64_t lmc__residual(uint64_t v, uint64_t base, unsigned width, enum lmc__order order)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t sign = order == LMC__ORDER_FLOAT ? base & sign_bit : 0, x = v ^ sign,
                   flip = order == LMC__ORDER_FLOAT && x & sign_bit ? below : 0,
                   d = ((x ^ flip) - (base ^ sign)) & all;
    return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;
}
#endif

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
#ifndef LMC_NO_ENCODER
#define LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)                                                  \
    INLINE VECTOR lmc__minus_##isa(VECTOR a, VECTOR b, unsigned width)                             \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__u8s_##isa)a - (lmc__u8s_##isa)b)                      \
               : width == 2 ? (VECTOR)((lmc__u16s_##isa)a - (lmc__u16s_##isa)b)                    \
               : width == 4 ? (VECTOR)((lmc__u32s_##isa)a - (lmc__u32s_##isa)b)                    \
                            : (VECTOR)((lmc__u64s_##isa)a - (lmc__u64s_##isa)b);                   \
    }                                                                                              \
    INLINE VECTOR lmc__residual_##isa(VECTOR v, VECTOR base, unsigned width,                       \
                                      enum lmc__order order)                                       \
    {                                                                                              \
        const VECTOR sign = lmc__sign_bits_##isa(width), x = v ^ (base & sign),                    \
                     ordered = x ^ (lmc__negative_##isa(x, width) & ~sign),                        \
                     d = order == LMC__ORDER_FLOAT                                                 \
                             ? lmc__minus_##isa(ordered, base & ~sign, width)                      \
                             : lmc__minus_##isa(v, base, width);                                   \
        return lmc__plus_##isa(d, d, width) ^ lmc__negative_##isa(d, width);                       \
    }
#else
#define LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)
#endif
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

/* Adds word i of each lane. */
LMC__INLINE LMC__CRC void lmc__crc_lanes(uint64_t c[4], const uint8_t *p, size_t i)
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
LMC__CRC LMC__JOIN_LANES uint64_t lmc__crc_join_lanes(const uint64_t c[4])
{
#if LMC__NEON
    uint64_t sum = 0;
    unsigned i;
    LMC__UNROLL for (i = 0; i < 32; i++) sum ^= (((0 - (c[0] >> i & 1)) & LMC__CRC_LANE4_SHIFT3) ^
                                                 ((0 - (c[1] >> i & 1)) & LMC__CRC_LANE4_SHIFT2) ^
                                                 ((0 - (c[2] >> i & 1)) & LMC__CRC_LANE4_SHIFT1))
                                                << i;
    return LMC__CRC_STEP8(0, sum) ^ c[3];
#else
    const __m128i shift3 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT3),
                  shift2 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT2),
                  shift1 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT1);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[0]), shift3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[1]), shift2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[2]), shift1, 0));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)) ^ c[3];
#endif
}

LMC__CRC static uint32_t LMC__VEC(crc32c)(uint32_t crc, const uint8_t *p, size_t size)
{
    uint64_t c[4] = {(uint32_t)~crc, 0, 0, 0};
    for (; size >= 4 * LMC__CRC_LANE4; p += 4 * LMC__CRC_LANE4, size -= 4 * LMC__CRC_LANE4) {
        size_t i;
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            lmc__crc_lanes(c, p, i);
            lmc__crc_lanes(c, p, i + 1);
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
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

LMC__AVX512 static uint64_t lmc__sum64_avx512(const uint8_t *p, size_t size)
{
    __m512i sum[4];
    size_t i;
    unsigned v;
    LMC__UNROLL for (v = 0; v < 4; v++) sum[v] = _mm512_setzero_si512();
    for (i = 0; i + 256 <= size; i += 256)
        LMC__UNROLL for (v = 0; v < 4; v++) sum[v] =
            _mm512_add_epi64(sum[v], lmc__load_avx512(p + i + 64 * v));
    sum[0] = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    return lmc__sum_words_avx512(sum[0]) + lmc__sum64_scalar(p + i, size - i);
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

#ifndef LMC_NO_ENCODER
/* Eight elements at a time as 64-bit words (vec_swar.h): v[p] is plane p's eight bytes. The last 1
 * to 7 elements go through buffers for eight. */
LMC__INLINE void lmc__split_body(const lmc__planes *planes, const uint8_t *src, size_t n,
                                 unsigned width, enum lmc__order order)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (LMC__VECTOR_LOOPS && width == 2)
        for (; i + 16 <= n; i += 16) {
            uint16_t e[16];
            uint8_t low[16], high[16];
            int j;
            lmc__load16x16(e, src + 2 * i);
            /* the loops of 16 have no branch in them: order is a constant */
            for (j = 0; j < 16; j++) {
                const uint16_t x = order == LMC__ORDER_INTEGER
                                       ? (uint16_t)(e[j] ^ ((0u - (e[j] >> 15)) & 0x7FFF))
                                       : e[j];
                const uint16_t r = (uint16_t)(order ? x << 1 | x >> 15 : x);
                low[j] = (uint8_t)r;
                high[j] = (uint8_t)(r >> 8);
            }
            memcpy(planes->row[0] + i, low, 16);
            memcpy(planes->row[1] + i, high, 16);
        }
    /* 8 elements to a word of each plane */
    for (; i + 8 <= n; i += 8) {
        lmc__split8(v, src + i * width, width, order);
        for (p = 0; p < width; p++) lmc__store64(planes->row[p] + i, v[p]);
    }
    /* 1 to 7 elements, filled up with zeros, which are not copied to the rows */
    if (i < n) {
        uint8_t tail[64], out[8];
        memset(tail, 0, sizeof tail);
        memcpy(tail, src + i * width, (n - i) * width);
        lmc__split8(v, tail, width, order);
        for (p = 0; p < width; p++) {
            lmc__store64(out, v[p]);
            memcpy(planes->row[p] + i, out, n - i);
        }
    }
}

/* As lmc__join_by_order; the order is a constant for widths 2 and 4. */
LMC__INLINE void lmc__split_by_order(const lmc__planes *planes, const uint8_t *src, size_t n,
                                     unsigned width, enum lmc__order order)
{
    if (width == 1 || width == 8) lmc__split_body(planes, src, n, width, order);
    else if (order == LMC__ORDER_FLOAT) lmc__split_body(planes, src, n, width, LMC__ORDER_FLOAT);
    else if (order) lmc__split_body(planes, src, n, width, LMC__ORDER_INTEGER);
    else lmc__split_body(planes, src, n, width, LMC__ORDER_NONE);
}

static void lmc__split_scalar(const lmc__planes *planes, const uint8_t *src, size_t n,
                              unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__split_by_order(planes, src, n, w, order));
}
#endif

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
#ifndef LMC_NO_ENCODER
#define LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)                                                     \
    INLINE void lmc__split_step_##isa(VECTOR v[8], unsigned width, unsigned s)                     \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        VECTOR t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            t[r * half + j] = lmc__even_##isa(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);     \
            t[(r + s) * half + j] =                                                                \
                lmc__odd_##isa(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);                    \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }                                                                                              \
    INLINE VECTOR lmc__to_residuals_##isa(VECTOR v, unsigned width, enum lmc__order order)         \
    {                                                                                              \
        if (order == LMC__ORDER_INTEGER)                                                           \
            v = v ^ (lmc__negative_##isa(v, width) & ~lmc__sign_bits_##isa(width));                \
        return lmc__rotate_##isa(v, width, 1);                                                     \
    }                                                                                              \
    INLINE void lmc__split_vectors_##isa(VECTOR v[8], unsigned width)                              \
    {                                                                                              \
        if (width >= 2) lmc__split_step_##isa(v, width, 1);                                        \
        if (width >= 4) lmc__split_step_##isa(v, width, 2);                                        \
        if (width >= 8) lmc__split_step_##isa(v, width, 4);                                        \
    }                                                                                              \
    INLINE void lmc__split_body_##isa(const lmc__planes *planes, const uint8_t *src, size_t n,     \
                                      unsigned width, enum lmc__order order)                       \
    {                                                                                              \
        lmc__planes rest;                                                                          \
        VECTOR v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                v[p] = lmc__load_##isa(src + i * width + sizeof v[0] * p);                         \
                if (order) v[p] = lmc__to_residuals_##isa(v[p], width, order);                     \
            }                                                                                      \
            lmc__split_vectors_##isa(v, width);                                                    \
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_##isa(planes->row[p] + i, v[p]);    \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__split_scalar(&rest, src + i * width, n - i, width, order);                            \
    }
#else
#define LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)
#endif
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
#ifndef LMC_NO_ENCODER
LMC__STATIC_VEC void LMC__VEC(split)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                     unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(LMC__VEC(split_body)(planes, src, n, w, order));
}
#endif
#endif

#if LMC__X86
#ifndef LMC_NO_ENCODER
/* For samples, and for a root that is not the top plane: split_root's own loop cannot make it. */
LMC__AVX512 static void lmc__split_avx512(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__split_body_avx512(planes, src, n, w, order));
}
#endif /* LMC_NO_ENCODER */
#endif

/* == kernels/count.h =========================================================================== */

#ifndef LMC_NO_ENCODER
/* Counting, for the plans of an encoder and the sizes of a tree's nodes (spec 6.2). All of these
 * functions read exactly the bytes that they are given.
 *
 * is_constant: 1 if src[0, n), n > 0, are all equal: each byte equals the next one. */
static int lmc__is_constant(const uint8_t *src, size_t n)
{
    return memcmp(src, src + 1, n - 1) == 0;
}

/* count_bytes: counts[v] += number of bytes v in src[0, n). All tiers use this function, so the
 * tables of kernels do not have it. It uses eight arrays of counts: a count that was stored a few
 * cycles ago is slow to load, and in many planes most bytes are equal. So equal neighbours are
 * counted in different arrays.
 *
 *     bytes of w     0  1  2  3  4  5  6  7
 *     array          0  1  2  3  4  5  6  7     its count [byte]
 *
 * Counts have 16 bits, so the arrays take 4 KiB of the first cache. A constant plane is counted at
 * once: most upper planes of a delta are constant. */
static void lmc__count_bytes(uint32_t counts[256], const uint8_t *src, size_t n)
{
    const size_t most = (size_t)8 << 15; /* bytes for which counts of 16 bits suffice: each array
                                            counts an eighth of them */
    if (n != 0 && lmc__is_constant(src, n)) {
        counts[src[0]] += (uint32_t)n;
        return;
    }
    while (n != 0) {
        const size_t part = lmc__min(n, most);
        uint16_t table[8][256];
        size_t i;
        int v;
        memset(table, 0, sizeof table);
        for (i = 0; i + 8 <= part; i += 8) {
            const uint64_t w = lmc__load64(src + i);
            table[0][w & 255]++;
            table[1][w >> 8 & 255]++;
            table[2][w >> 16 & 255]++;
            table[3][w >> 24 & 255]++;
            table[4][w >> 32 & 255]++;
            table[5][w >> 40 & 255]++;
            table[6][w >> 48 & 255]++;
            table[7][w >> 56]++;
        }
        for (; i < part; i++) table[0][src[i]]++;
        for (v = 0; v < 256; v++)
            counts[v] += (uint32_t)table[0][v] + table[1][v] + table[2][v] + table[3][v] +
                         table[4][v] + table[5][v] + table[6][v] + table[7][v];
        src += part;
        n -= part;
    }
}
#endif /* LMC_NO_ENCODER */

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

/* == kernels/map.h ============================================================================= */

/* map: dst[i] = table[src[i]], table of 256 bytes; dst == src is legal, any other overlap is not.
 * Both are accessed exactly. Encoders map symbols to ranks, the places of their leaves in the tree
 * (spec 6.2), and partition the ranks. The inverse map turns an escape's ranks into bytes. */

#ifndef LMC_NO_ENCODER
/* Four look-ups before four stores: for a compiler, a store may change src or the table. */
static void lmc__map_scalar(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        uint8_t a = table[src[i]], b = table[src[i + 1]], c = table[src[i + 2]],
                d = table[src[i + 3]];
        dst[i] = a;
        dst[i + 1] = b;
        dst[i + 2] = c;
        dst[i + 3] = d;
    }
    for (; i < n; i++) dst[i] = table[src[i]];
}

#if LMC__NEON || LMC__X86
/* AVX2 and NEON look up among only 16 entries, so the table is 16 rows of 16. But the table is a
 * permutation, and most of its rows just count up: there, the distance between an entry and its
 * place is constant. One shuffle, by a place's upper 4 bits, finds the row's distance. For each row
 * that does not count up, a shuffle by the lower 4 bits adds corrections. All sums are modulo 256.
 *
 *     place     00 01 02 03 ...    10 11 12 13 ...    20 21 22 23 ...
 *     entry     05 06 07 08 ...    02 15 00 16 ...    30 31 32 33 ...
 *     distance  05 in all          F2, corrected by   10 in all
 *               the row            00 12 FC 11 ... */
typedef struct lmc__rows {
    uint8_t distance[16]; /* of each row's first entry from its place */
    unsigned n;           /* rows to correct */
    uint8_t first[16];    /* places where they start */
    uint8_t more[16][16]; /* what is added there: entry - place - distance */
#if LMC__X86
    uint8_t steps[16][16]; /* for look_up_rows, if there are many rows to correct */
#endif
} lmc__rows;

/* With more rows to correct than this, AVX2 is faster with look_up_rows. */
#define LMC__MANY_ROWS 8u

LMC__STATIC_VEC void lmc__set_rows(lmc__rows *rows, const uint8_t *table)
{
    unsigned i, j;
    rows->n = 0;
    for (i = 0; i < 16; i++) {
        uint8_t more[16];
        for (j = 0; j < 16; j++) more[j] = (uint8_t)(table[16 * i + j] - table[16 * i] - j);
        rows->distance[i] = (uint8_t)(table[16 * i] - 16 * i);
        if ((lmc__load64(more) | lmc__load64(more + 8)) == 0) continue;
        rows->first[rows->n] = (uint8_t)(16 * i);
        memcpy(rows->more[rows->n++], more, 16);
    }
#if LMC__X86
    for (i = 0; i < 256 && rows->n > LMC__MANY_ROWS; i++)
        rows->steps[i / 16][i % 16] = (uint8_t)(table[i] ^ (i % 128 < 16 ? 0 : table[i - 16]));
#endif
}

#if LMC__X86
/* Looks up in all rows, like most trees of fp8 and int8 need. A shuffle gives 0 if bit 7 of a place
 * is set, and else uses the lower 4 bits. From a place in row r < 8, each turn subtracts 16: rows 0
 * to r give an entry, those behind them 0, because the difference saturates. A row has
 * what changes against the row before it (xor), so all turns together give the entry of row r. The
 * upper 128 places, of which bit 7 is set, take the same turns with this bit flipped. */
LMC__INLINE_AVX2 __m256i lmc__look_up_rows_avx2(const lmc__rows *rows, __m256i v)
{
    const __m256i row = _mm256_set1_epi8(16);
    __m256i low = v, high = _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)),
            out[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    unsigned i;
    LMC__UNROLL for (i = 0; i < 8; i++)
    {
        out[0] =
            _mm256_xor_si256(out[0], _mm256_shuffle_epi8(lmc__load_row_avx2(rows->steps[i]), low));
        out[1] = _mm256_xor_si256(
            out[1], _mm256_shuffle_epi8(lmc__load_row_avx2(rows->steps[i + 8]), high));
        low = _mm256_subs_epi8(low, row);
        high = _mm256_subs_epi8(high, row);
    }
    return _mm256_xor_si256(out[0], out[1]);
}
#endif

/* As many vectors as partition_step sorts. The loop corrects one row in each iteration. */
LMC__INLINE_VEC void LMC__VEC(map_step)(const lmc__rows *rows, lmc__vector v[LMC__VECTORS_SORTED])
{
    const lmc__vector distance = LMC__VEC(load_row)(rows->distance);
    lmc__vector out[LMC__VECTORS_SORTED];
    unsigned i, j;
#if LMC__X86
    if (rows->n > LMC__MANY_ROWS) {
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) v[j] =
            LMC__VEC(look_up_rows)(rows, v[j]);
        return;
    }
#endif
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) out[j] = LMC__VEC(plus)(
        v[j], LMC__VEC(shuffle)(distance, (lmc__vector)((LMC__VEC(u8s))v[j] >> 4)), 1);
    for (i = 0; i < rows->n; i++) {
        const lmc__vector first = LMC__VEC(splat)(rows->first[i]),
                          more = LMC__VEC(load_row)(rows->more[i]);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) out[j] =
            LMC__VEC(plus)(out[j], LMC__VEC(shuffle)(more, LMC__VEC(place_in_row)(v[j], first)), 1);
    }
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) v[j] = out[j];
}

LMC__STATIC_VEC void LMC__VEC(map)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    lmc__vector v[LMC__VECTORS_SORTED];
    lmc__rows rows;
    size_t i;
    unsigned j;
    lmc__set_rows(&rows, table);
    for (i = 0; i + sizeof v <= n; i += sizeof v) {
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) v[j] =
            LMC__VEC(load)(src + i + LMC__VECTOR_SIZE * j);
        LMC__VEC(map_step)(&rows, v);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
            LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, v[j]);
    }
    lmc__map_scalar(dst + i, src + i, n - i, table);
}
#endif

#if LMC__X86
/* Two look-ups of 128 entries each, which ignore bit 7 of a byte; bit 7 chooses between them.
 * vpmovb2m makes a mask of just that bit of each byte. */
LMC__INLINE_AVX512 __m512i lmc__map_step_avx512(__m512i v, const __m512i table[4])
{
    const __m512i low = _mm512_permutex2var_epi8(table[0], v, table[1]),
                  high = _mm512_permutex2var_epi8(table[2], v, table[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v), high);
}

/* The last step's loads and stores are masked: bytes behind n are not touched. */
LMC__AVX512 static void lmc__map_avx512(uint8_t *dst, const uint8_t *src, size_t n,
                                        const uint8_t *table)
{
    __m512i t[4];
    size_t i;
    for (i = 0; i < 4; i++) t[i] = lmc__load_avx512(table + 64 * i);
    for (i = 0; i < n; i += 64) {
        const __mmask64 valid = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        _mm512_mask_storeu_epi8(dst + i, valid,
                                lmc__map_step_avx512(_mm512_maskz_loadu_epi8(valid, src + i), t));
    }
}
#endif

/* == kernels/partition.h ======================================================================= */

/* partition: bit i of mask = (src[i] >= split); elements with a 0 go to the list left, those with a
 * 1 to the list right, in order. This encodes one node of a mask tree. split 0: the mask is given.
 *
 *     src    3 9 4 4 8 9 1 7        split 7
 *     mask   0 1 0 0 1 1 0 1
 *     left   3 4 4 1
 *     right  9 8 9 7
 *
 * src is a list. left and right may each be NULL (not wanted: a leaf has no bytes); left may be
 * src. mask is read or written exactly; unused bits of its last byte are zero. Returns the number
 * of ones. src has ranks, the places of symbols' leaves in the tree: consecutive below a node.
 *
 * All tiers sort a group of elements in a register by its mask, then store both parts in full
 * vectors. What is stored behind a part is overwritten by the next store, or is in the slack:
 *     sorted by 8     l l l l l r r r    l l r r r r r r
 *     to left         l l l l l . . .    stored at 0
 *                                l l . . . . . .         stored at 5
 *     to right        r r r . . . . .    stored at 0
 *                            r r r r r r . .             stored at 3
 *
 * left may be src: when a vector, elements [i, i + V), is in a register, at most i elements have
 * been stored to the left. So the vector's store to the left ends at i + V or before, and the next
 * load begins at i + V. right must not be src. */

/* Eight elements at a time; this defines partition. Mask bits behind n are 0. */
LMC__INLINE size_t lmc__partition_body(uint8_t *mask, uint8_t *left, uint8_t *right,
                                       const uint8_t *src, size_t n, unsigned split, int has_left,
                                       int has_right)
{
    const uint64_t s = split * LMC__ONES8;
    size_t i, n_right = 0;
    for (i = 0; i < n; i += 8) {
        uint64_t v = lmc__load64(src + i);
        unsigned m = split ? lmc__compare8(v, s) : mask[i >> 3];
        if (n - i < 8) m &= (1u << (n - i)) - 1;
        if (split) mask[i >> 3] = (uint8_t)m;
        if (has_left || has_right) v = lmc__sort8(v, m);
        if (has_left) lmc__store64(left + (i - n_right), v);
        if (has_right) lmc__store64(right + n_right, lmc__reverse8(v));
        n_right += lmc__ones[m];
    }
    return n_right;
}

static size_t lmc__partition_scalar(uint8_t *mask, uint8_t *left, uint8_t *right,
                                    const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    LMC__FOR_SIDES(left, right,
                   n_right =
                       lmc__partition_body(mask, left, right, src, n, split, has_left, has_right));
    return n_right;
}

#if LMC__NEON || LMC__AVX2_TEXT
/* Stores the elements of LMC__VECTORS_SORTED vectors behind n_left and n_right others: those with a
 * 1 in m to the right. A side that is NULL is not wanted. Returns the new n_right. A shuffle sorts
 * eight at a time: zeros to the lower half, ones to the upper. All places are computed first, so no
 * store waits:
 *     m               byte 0    byte 1    byte 2    byte 3
 *     ones before       0         r1        r2        r3
 *     to right at       0         r1        r2        r3         from n_right on
 *     to left at        0       8 - r1   16 - r2   24 - r3       from n_left on
 *
 * All stores to a side are within one step's size from its first. split_root uses this, too. */
#define LMC__EIGHTS_SORTED (LMC__VECTORS_SORTED * LMC__VECTOR_SIZE / 8)
LMC__INLINE_VEC size_t LMC__VEC(partition_step)(uint8_t *left, uint8_t *right, size_t n_left,
                                                size_t n_right, const lmc__vector *v,
                                                lmc__vector_bits m)
{
    const lmc__vector_bits sums = LMC__VEC(begin_ones)(m);
    unsigned j;
    if (left) left += n_left;
    if (right) right += n_right;
    LMC__UNROLL for (j = 0; j < LMC__EIGHTS_SORTED; j++)
    {
        const lmc__sorted x = LMC__VEC(sort8)(
            v[8 * j / LMC__VECTOR_SIZE], j % (LMC__VECTOR_SIZE / 8), (unsigned)(m >> 8 * j & 255));
        const size_t before = LMC__VEC(ones_before)(sums, j);
        if (left) LMC__VEC(store_low)(left - before + 8 * j, x);
        if (right) LMC__VEC(store_high)(right + before, x);
    }
    return n_right + LMC__VEC(ones_before)(sums, LMC__EIGHTS_SORTED);
}

/* A step of n elements, at most 64, behind `done` others, of which n_right are on the right. It
 * always loads 64 bytes: up to 63 of them are slack of the list. */
LMC__INLINE_VEC size_t LMC__VEC(partition64)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                             const uint8_t *src, size_t n, lmc__vector split,
                                             size_t done, size_t n_right, int is_given)
{
    lmc__vector v[LMC__VECTORS_OF_64], one[LMC__VECTORS_OF_64];
    uint64_t m;
    unsigned j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
    {
        v[j] = LMC__VEC(load)(src + LMC__VECTOR_SIZE * j);
        if (!is_given) one[j] = LMC__VEC(not_below)(v[j], split);
    }
    m = is_given ? lmc__load_mask(mask, 0, n) : lmc__store_mask(mask, LMC__VEC(to_bits)(one), n);
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j += LMC__VECTORS_SORTED) n_right =
        LMC__VEC(partition_step)(left, right, done + LMC__VECTOR_SIZE * j - n_right, n_right, v + j,
                                 (lmc__vector_bits)(m >> LMC__VECTOR_SIZE * j));
    return n_right;
}

LMC__INLINE_VEC size_t LMC__VEC(partition_body)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split,
                                                int has_left, int has_right, int is_given)
{
    const lmc__vector s = LMC__VEC(splat)(split);
    size_t i, n_right = 0;
    if (!has_left) left = NULL;
    if (!has_right) right = NULL;
    for (i = 0; i + 64 <= n; i += 64)
        n_right =
            LMC__VEC(partition64)(mask + i / 8, left, right, src + i, 64, s, i, n_right, is_given);
    if (i < n)
        n_right = LMC__VEC(partition64)(mask + i / 8, left, right, src + i, n - i, s, i, n_right,
                                        is_given);
    return n_right;
}

LMC__STATIC_VEC size_t LMC__VEC(partition)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                           const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    if (split == 0) return LMC__VEC(partition_body)(mask, left, right, src, n, 0, 1, 1, 1);
    LMC__FOR_SIDES(left, right,
                   n_right = LMC__VEC(partition_body)(mask, left, right, src, n, split, has_left,
                                                      has_right, 0));
    return n_right;
}
#endif

#if LMC__X86
/* vpcompressb sorts 64 elements at once to a register; all of the register is then stored. The form
 * with a memory operand is microcoded on Zen 4. The zero-masked form waits for the old value of its
 * destination (https://github.com/llvm/llvm-project/issues/206849).
 *
 *     v                       a b c d e f g h ...
 *     m = v >= split          0 1 1 0 0 1 0 1 ...
 *     compress(v, m, v)       b c f h . . . . ...     to right
 *     compress(v, ~m, v)      a d e g . . . . ...     to left
 *
 * The function does what lmc__partition_step_avx2 does. */
LMC__INLINE_AVX512 void lmc__partition_step_avx512(uint8_t *left, uint8_t *right, size_t *n_left,
                                                   size_t *n_right, __m512i v, uint64_t m)
{
    const size_t ones = (size_t)_mm_popcnt_u64(m);
    if (right) lmc__store_avx512(right + *n_right, _mm512_mask_compress_epi8(v, m, v));
    if (left) lmc__store_avx512(left + *n_left, _mm512_mask_compress_epi8(v, ~m, v));
    *n_right += ones;
    *n_left += 64 - ones;
}

LMC__INLINE_AVX512 size_t lmc__partition_body_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                     const uint8_t *src, size_t n, unsigned split,
                                                     int has_left, int has_right, int is_given)
{
    const __m512i s = lmc__splat_avx512(split);
    size_t i, n_left = 0, n_right = 0;
    if (!has_left) left = NULL;
    if (!has_right) right = NULL;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = lmc__load_avx512(src + i);
        const uint64_t m = is_given ? lmc__load64(mask + i / 8)
                                    : _mm512_cmpge_epu8_mask(v, s); /* m[j] = v[j] >= split */
        if (!is_given) lmc__store64(mask + i / 8, m);
        lmc__partition_step_avx512(left, right, &n_left, &n_right, v, m);
    }
    if (i < n) {
        const __m512i v = lmc__load_avx512(src + i);
        const uint64_t m = is_given
                               ? lmc__load_mask(mask, i, n)
                               : lmc__store_mask(mask + i / 8, _mm512_cmpge_epu8_mask(v, s), n - i);
        lmc__partition_step_avx512(left, right, &n_left, &n_right, v, m);
    }
    return n_right;
}

LMC__AVX512 static size_t lmc__partition_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    if (split == 0) return lmc__partition_body_avx512(mask, left, right, src, n, 0, 1, 1, 1);
    LMC__FOR_SIDES(left, right,
                   n_right = lmc__partition_body_avx512(mask, left, right, src, n, split, has_left,
                                                        has_right, 0));
    return n_right;
}
#endif
#endif /* LMC_NO_ENCODER */

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

#ifndef LMC_NO_ENCODER
/* Eight elements as the bytes of a word. Plane d has bit depth - 1 - d of each: the bits are
 * shifted to the lowest place of their bytes and collected to a byte of the plane. Bits that the
 * shift brings in from a neighbour are above that place. */
static void lmc__flatten_scalar(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint64_t low = first * LMC__ONES8;
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 8) {
        /* no element borrows from the next one: src[i] >= first */
        uint64_t v = lmc__load64(src + i) - low;
        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;
        for (d = 0; d < depth; d++)
            bits[d * row + (i >> 3)] =
                (uint8_t)lmc__collect_bits(v >> (depth - 1 - d) & LMC__ONES8);
    }
}

#if LMC__NEON || LMC__AVX2_TEXT
/* A step of 64 elements, of which n count. */
LMC__INLINE_VEC void LMC__VEC(flatten64)(uint8_t *bits, size_t row, const uint8_t *src, size_t n,
                                         lmc__vector first, unsigned depth)
{
    lmc__vector v[LMC__VECTORS_OF_64], one[LMC__VECTORS_OF_64];
    unsigned d, j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] =
        LMC__VEC(subtract)(LMC__VEC(load)(src + LMC__VECTOR_SIZE * j), first);
    LMC__UNROLL for (d = depth; d-- != 0; bits += row)
    {
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) one[j] = LMC__VEC(test)(v[j], d);
        (void)lmc__store_mask(bits, LMC__VEC(to_bits)(one), n);
    }
}

LMC__INLINE_VEC void LMC__VEC(flatten_body)(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const lmc__vector low = LMC__VEC(splat)(first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        LMC__VEC(flatten64)(bits, row, src, 64, low, depth);
    if (n != 0) LMC__VEC(flatten64)(bits, row, src, n, low, depth);
}

LMC__STATIC_VEC void LMC__VEC(flatten)(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                       unsigned depth)
{
    if (depth == 2) LMC__VEC(flatten_body)(bits, src, n, first, 2);
    else LMC__VEC(flatten_body)(bits, src, n, first, depth);
}
#endif

#if LMC__X86
/* vptestmb tests a bit of 64 bytes and gives the plane's 64 bits at once. */
LMC__INLINE_AVX512 void lmc__flatten64_avx512(uint8_t *bits, size_t row, const uint8_t *src,
                                              size_t n, __m512i first, unsigned depth)
{
    const __m512i v = _mm512_sub_epi8(lmc__load_avx512(src), first);
    for (; depth-- != 0; bits += row)
        (void)lmc__store_mask(bits, _mm512_test_epi8_mask(v, lmc__splat_avx512(1u << depth)), n);
}

LMC__AVX512 static void lmc__flatten_avx512(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i low = lmc__splat_avx512(first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        lmc__flatten64_avx512(bits, row, src, 64, low, depth);
    if (n != 0) lmc__flatten64_avx512(bits, row, src, n, low, depth);
}
#endif
#endif /* LMC_NO_ENCODER */

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

LMC__INLINE lmc__progress lmc__no_progress(void)
{
    lmc__progress none;
    none.n = none.n_right = 0;
    none.sum = none.crc = 0;
    return none;
}

#if LMC__NEON && !defined(LMC_NO_ENCODER)
/* As lmc__fetch_bytes_avx2 and lmc__crc_ahead_avx2, but fetches nothing. */
LMC__INLINE void lmc__fetch_bytes_neon(const uint8_t *p, size_t size)
{
    (void)p;
    (void)size;
}
LMC__INLINE uint32_t lmc__crc_ahead_neon(const lmc__kernels *k, uint32_t crc, const uint8_t *p,
                                         size_t size, const uint8_t *next)
{
    (void)next;
    return k->crc32c(crc, p, size);
}
#endif

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
    uint64_t c[4] = {(uint32_t)~crc, 0, 0, 0};
    size_t at, i;
    if (size % (4 * LMC__CRC_LANE4)) return k->crc32c(crc, p, size);
    for (at = 0; at < size; at += 4 * LMC__CRC_LANE4) {
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            LMC__PREFETCH((const uint8_t *)((uintptr_t)next + at + LMC__LINE / 2 * i));
            lmc__crc_lanes(c, p + at, i);
            lmc__crc_lanes(c, p + at, i + 1);
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    return ~(uint32_t)c[0];
}

/* Fetches LMC__FETCH_AHEAD behind vector p of the step at element i, nothing behind n elements. */
LMC__INLINE_AVX512 void lmc__fetch_ahead_avx512(const uint8_t *src, size_t i, size_t n,
                                                unsigned width, unsigned p)
{
    LMC__PREFETCH(src + lmc__min(i * width + 64 * p + LMC__FETCH_AHEAD, n * width));
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

/* == kernels/split_root.h ====================================================================== */

/* split_root: the first step of encoding a block, in one pass over it:
 *   src --crc32c--> the result; --sum64--> *sum, if sum is not NULL
 *    |
 *    +--split--> planes->row[0 .. width), each of n bytes exactly
 *                  |
 *                  +-- row[root->plane], a list, if root is not NULL:
 *                        --map by root->table--> ranks
 *                        --partition at root->split--> root->mask, root->left, root->right
 *
 * The last step makes the root of one plane's tree; root->n_right becomes the number of ones in the
 * mask. left and right may be NULL (not wanted), and left may be the row itself. The row's bytes
 * are then undefined: to get the plane's bytes, call again without a root.
 *
 * The root needs all bytes of a plane, which are in registers here: this saves three passes.
 *
 * src is read exactly, and only once, as it may change meanwhile: planes, root and CRC are of the
 * same bytes. Planes other than the root's, and root->mask, are written exactly; left and right are
 * lists. Only left and the row may overlap. A vector loop ends at a multiple of 8 elements. */

#ifndef LMC_NO_ENCODER
/* Elements [done.n, n), strip by strip. This defines split_root; the other tiers end with it.
 *
 * left may be the row: the ranks of a strip are in row[i, i + m) when they are partitioned, and at
 * most i ranks were written to left before. The bytes that partition stores behind them may reach
 * the next strip's place in the row, but split fills it later:
 *     row    | ranks on the left, so far | free ...  | strip: bytes -> ranks | later strips
 *            0                    i - n_right        i                     i + m */
static uint32_t lmc__split_strips(const lmc__kernels *k, const lmc__planes *planes,
                                  lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                                  enum lmc__order order, uint64_t *sum, lmc__progress done)
{
    uint8_t copy[LMC__STRIP_SIZE];
    size_t i, m;
    unsigned p;
    for (i = done.n; i < n; i += m) {
        lmc__planes strip;
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        for (p = 0; p < width; p++) strip.row[p] = planes->row[p] + i;
        memcpy(copy, src + i * width, m * width);
        done.crc = k->crc32c(done.crc, copy, m * width);
#ifndef LMC_NO_SNAPSHOT
        if (sum) done.sum += k->sum64(copy, m * width);
#endif
        k->split(&strip, copy, m, width, order);
        if (root) {
            uint8_t *const row = strip.row[root->plane],
                           *const left = root->left ? root->left + (i - done.n_right) : NULL,
                           *const right = root->right ? root->right + done.n_right : NULL;
            k->map(row, row, m, root->table);
            done.n_right += k->partition(root->mask + i / 8, left, right, row, m, root->split);
        }
    }
    if (root) root->n_right = done.n_right;
    if (sum) *sum = done.sum;
    return done.crc;
}

static uint32_t lmc__split_root_strips(const lmc__kernels *k, const lmc__planes *planes,
                                       lmc__parted *root, const uint8_t *src, size_t n,
                                       unsigned width, enum lmc__order order, uint64_t *sum)
{
    return lmc__split_strips(k, planes, root, src, n, width, order, sum, lmc__no_progress());
}

#if LMC__NEON || LMC__X86
/* The root of a tree, while it is made. */
typedef struct LMC__VEC(root) {
    lmc__rows rows;
    lmc__vector split;
    uint8_t *mask, *left, *right;
    size_t n_right;
} LMC__VEC(root);

LMC__INLINE_VEC void LMC__VEC(begin_root)(LMC__VEC(root) * r, const lmc__parted *root, int has_root)
{
    r->n_right = 0;
    if (!has_root) return;
    lmc__set_rows(&r->rows, root->table);
    r->split = LMC__VEC(splat)(root->split);
    r->mask = root->mask;
    r->left = root->left;
    r->right = root->right;
}

/* Elements of a step: as many vectors of each plane as partition_step sorts. */
#define LMC__SPLIT_STEP (LMC__VECTORS_SORTED * LMC__VECTOR_SIZE)

/* Writes a step's elements v, from number i on, to planes; the top plane to the root, if any. */
LMC__INLINE_VEC void LMC__VEC(split_root_step)(const lmc__planes *planes, LMC__VEC(root) * r,
                                               lmc__vector v[LMC__VECTORS_SORTED][8], size_t i,
                                               unsigned width, enum lmc__order order, int has_root)
{
    lmc__vector top[LMC__VECTORS_SORTED];
    unsigned p, j;
    if (order)
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
            LMC__UNROLL for (p = 0; p < width; p++) v[j][p] =
                LMC__VEC(to_residuals)(v[j][p], width, order);
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
    {
        LMC__VEC(split_vectors)(v[j], width);
        LMC__UNROLL for (p = 0; p + !!has_root < width; p++)
            LMC__VEC(store)(planes->row[p] + i + LMC__VECTOR_SIZE * j, v[j][p]);
        top[j] = v[j][width - 1];
    }
    if (has_root) {
        lmc__vector_bits m;
        LMC__VEC(map_step)(&r->rows, top);
        m = LMC__VEC(compare)(top, r->split);
        if (has_root == 2 && (!r->left || !r->right)) __builtin_unreachable();
        memcpy(r->mask + i / 8, &m, sizeof m);
        r->n_right =
            LMC__VEC(partition_step)(r->left, r->right, i - r->n_right, r->n_right, top, m);
    }
}

/* Whole strips; the root, if any, is the top plane. While a strip is split, the next is copied.
 *
 * The CRC is computed in four lanes, a quarter of the strip each, since one crc32 instruction waits
 * three cycles for the one before. So while elements [j, j + 32) are split, the CRC reads 8 * width
 * bytes of each lane, from byte j * width / 4 on. These are other bytes than those that are split,
 * but equally many. All are in the first cache. crc32 uses none of the units that vectors need.
 *
 *     strip        | lane 0      | lane 1      | lane 2      | lane 3      |      8192 bytes
 *     step j       |   ====      |   ====      |   ====      |   ====      |      summed up
 *                         |================|                                       split
 *
 * After strip / 32 steps, of 32 * width bytes each, both have read the whole strip. Then the lanes
 * are joined to one register, with which lane 0 of the next strip begins. */
LMC__INLINE LMC__CRC lmc__progress LMC__VEC(split_root_loop)(const lmc__planes *planes,
                                                             const lmc__parted *root,
                                                             const uint8_t *src, size_t n,
                                                             unsigned width, enum lmc__order order,
                                                             int has_root)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width), size = n * width;
    const lmc__planes rows = *planes; /* a copy, which no store of bytes can change */
    uint8_t copies[2][LMC__STRIP_SIZE];
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    LMC__VEC(root) state;
    lmc__progress done = lmc__no_progress();
    lmc__vector sum = LMC__VEC(splat)(0);
    size_t i, j;
    unsigned p, h, turn = 0;
    if (strip <= n) memcpy(copies[0], src, LMC__STRIP_SIZE);
    LMC__VEC(begin_root)(&state, root, has_root);
    for (i = 0; i + strip <= n; i += strip) {
        const uint8_t *const from = copies[turn], *const next = src + (i + strip) * width;
        uint8_t *const copy = copies[turn ^= 1];
        const int is_last = n - i < 2 * strip;
        for (j = 0; j < strip; j += LMC__SPLIT_STEP) {
            const size_t ahead = (i + 2 * strip + j) * width;
            lmc__vector v[LMC__VECTORS_SORTED][8];
            if (!is_last)
                LMC__UNROLL for (p = 0; p < LMC__VECTORS_SORTED * width; p++)
                    LMC__VEC(store)(copy + j * width + LMC__VECTOR_SIZE * p,
                                    LMC__VEC(load)(next + j * width + LMC__VECTOR_SIZE * p));
            if (ahead < size)
                LMC__UNROLL for (p = 0; p < LMC__SPLIT_STEP * width; p += LMC__LINE)
                    LMC__PREFETCH(src + ahead + p);
            LMC__UNROLL for (p = 0; p < LMC__SPLIT_STEP / 32 * width; p++)
                lmc__crc_lanes(c, from + j * width / 4, p);
            LMC__UNROLL for (h = 0; h < LMC__VECTORS_SORTED; h++)
                LMC__UNROLL for (p = 0; p < width; p++)
            {
                v[h][p] = LMC__VEC(load)(from + j * width + LMC__VECTOR_SIZE * (h * width + p));
                sum = LMC__VEC(plus)(sum, v[h][p], 8);
            }
            LMC__VEC(split_root_step)(&rows, &state, v, i + j, width, order, has_root);
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    done.sum = LMC__VEC(sum_words)(sum);
    done.n = i;
    done.n_right = state.n_right;
    done.crc = ~(uint32_t)c[0];
    return done;
}
#endif

#if LMC__X86
/* a folded onto b, in both lanes */
LMC__INLINE_AVX2_VPCLMUL __m256i lmc__fold_vpclmul(__m256i a, __m256i k, __m256i b)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00),
                                             _mm256_clmulepi64_epi128(a, k, 0x11)),
                            b);
}

/* For CPUs with two products at a time (Zen 3, Alder Lake): the CRC is folded from the registers
 * that are split; nothing is copied. The sums, as a message, have the same CRC, from register 0. */
LMC__INLINE_AVX2_VPCLMUL lmc__progress
lmc__split_root_loop_vpclmul(const lmc__planes *planes, const lmc__parted *root, const uint8_t *src,
                             size_t n, unsigned width, enum lmc__order order, int has_root)
{
    const uint64_t *const fold = width == 1   ? &lmc__crc_fold_last[2] /* over 32 bytes */
                                 : width == 2 ? lmc__crc_folds[0]
                                              : lmc__crc_folds[1];
    const __m256i k =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)fold));
    __m256i crc[8], start = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, -1), sum = _mm256_setzero_si256();
    lmc__progress done = lmc__no_progress();
    uint8_t last[8 * 32];
    lmc__root_avx2 state;
    uint64_t c = 0;
    size_t i;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) crc[p] = _mm256_setzero_si256();
    lmc__begin_root_avx2(&state, root, has_root);
    for (i = 0; i + 32 <= n; i += 32) {
        __m256i v[1][8];
        LMC__UNROLL for (p = 0; p < width; p += LMC__LINE / 32)
            LMC__PREFETCH(src + lmc__min(i * width + 32 * p + LMC__STRIP_SIZE, n * width));
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[0][p] = lmc__load_once_avx2(src + i * width + 32 * p);
            sum = _mm256_add_epi64(sum, v[0][p]);
            crc[p] = lmc__fold_vpclmul(crc[p], k, v[0][p]);
        }
        crc[0] = _mm256_xor_si256(crc[0], start);
        start = _mm256_setzero_si256(); /* for the first step only */
        lmc__split_root_step_avx2(planes, &state, v, i, width, order, has_root);
    }
    if (i) {
        LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(last + 32 * p, crc[p]);
        for (p = 0; p < 4 * width; p++) c = _mm_crc32_u64(c, lmc__load64(last + 8 * p));
        done.crc = ~(uint32_t)c;
    }
    done.sum = lmc__sum_words_avx2(sum);
    done.n = i;
    done.n_right = state.n_right;
    return done;
}

/* Steps of 64 elements, all in registers; the root, if any, is the top plane. The CRC has one
 * accumulator for each of a step's vectors: they are folded, step by step, over the distance of
 * width vectors, and onto each other at the end:
 *     step 0    v0 v1 .. v(w-1)    step 1    v0 v1 .. v(w-1)   ...
 *     crc[0]    v0 --------- * x^(512 w) ^ --> v0 ----------->
 *     crc[1]       v1 ---------------------------> v1 ------->
 *
 * So the products of a step do not wait for each other, and the same loads serve both CRC and
 * split. The register at the start, all ones, is added to the first vector: `start` is that
 * register in the first step, then 0, so the first step needs no code of its own. */
LMC__INLINE_AVX512 lmc__progress lmc__split_root_loop_avx512(const lmc__planes *planes,
                                                             const lmc__parted *root,
                                                             const uint8_t *src, size_t n,
                                                             unsigned width, enum lmc__order order,
                                                             int has_root)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__planes rows = *planes; /* a copy, which no store of bytes can change */
    __m512i crc[8], v[8], start = lmc__crc_start(0), table[4], split = _mm512_setzero_si512(),
                          sum = _mm512_setzero_si512();
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    lmc__progress done = lmc__no_progress();
    size_t i, n_left = 0, n_right = 0;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) crc[p] = _mm512_setzero_si512();
    LMC__UNROLL for (p = 0; p < 4; p++) table[p] =
        has_root ? lmc__load_avx512(root->table + 64 * p) : _mm512_setzero_si512();
    if (has_root) {
        split = _mm512_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    /* left may be the top plane's row, which this loop does not write */
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) lmc__touch_ahead(rows.row[p], i);
        if (!has_root) lmc__touch_ahead(rows.row[width - 1], i);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(src, i, n, width, p);
            v[p] = lmc__load_once_avx512(src + i * width + 64 * p);
            sum = _mm512_add_epi64(sum, v[p]);
            crc[p] = lmc__crc_fold(crc[p], fold, v[p]);
        }
        crc[0] = _mm512_xor_si512(crc[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        if (order)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__to_residuals_avx512(v[p], width, order);
        lmc__split_vectors_avx512(v, width);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) lmc__store_avx512(rows.row[p] + i, v[p]);
        if (!has_root) {
            lmc__store_avx512(rows.row[width - 1] + i, v[width - 1]);
        } else {
            const __m512i ranks = lmc__map_step_avx512(v[width - 1], table);
            const __mmask64 m = _mm512_cmpge_epu8_mask(ranks, split);
            lmc__store64(mask + i / 8, m);
            lmc__partition_step_avx512(left, right, &n_left, &n_right, ranks, m);
        }
    }
    if (i) done.crc = lmc__crc_finish(crc, width);
    done.sum = lmc__sum_words_avx512(sum);
    done.n = i;
    done.n_right = n_right;
    return done;
}
#endif

#if LMC__NEON || LMC__X86
/* has_root is a constant, so the loop without a root has more registers free; 2 if both lists are
 * wanted. order is tested in each step, except on NEON, where such tests take more of the time. */
#define LMC__DEFINE_SPLIT_ROOT(width, isa, attribute)                                              \
    static __attribute__((noinline, aligned(64))) attribute lmc__progress                          \
        lmc__split_root_##width##_##isa(const lmc__planes *planes, const lmc__parted *root,        \
                                        const uint8_t *src, size_t n, enum lmc__order order)       \
    {                                                                                              \
        if (LMC__NEON && root && root->left && root->right && order == LMC__ORDER_FLOAT)           \
            return lmc__split_root_loop_##isa(planes, root, src, n, width, LMC__ORDER_FLOAT, 2);   \
        if (root && width == 1 && !order)                                                          \
            return lmc__split_root_loop_##isa(planes, root, src, n, width, LMC__ORDER_NONE, 1);    \
        if (root) return lmc__split_root_loop_##isa(planes, root, src, n, width, order, 1);        \
        return lmc__split_root_loop_##isa(planes, NULL, src, n, width, order, 0);                  \
    }
/* Rare cases are done strip by strip: a root that is not the top plane, elements of 8 bytes. */
#define LMC__DEFINE_SPLIT_ROOTS(isa, attribute)                                                    \
    LMC__DEFINE_SPLIT_ROOT(1, isa, attribute)                                                      \
    LMC__DEFINE_SPLIT_ROOT(2, isa, attribute)                                                      \
    LMC__DEFINE_SPLIT_ROOT(4, isa, attribute)                                                      \
    attribute static uint32_t lmc__split_root_##isa(                                               \
        const lmc__kernels *k, const lmc__planes *planes, lmc__parted *root, const uint8_t *src,   \
        size_t n, unsigned width, enum lmc__order order, uint64_t *sum)                            \
    {                                                                                              \
        lmc__progress done = lmc__no_progress();                                                   \
        if (!root || root->plane == width - 1) switch (width) {                                    \
            case 1: done = lmc__split_root_1_##isa(planes, root, src, n, order); break;            \
            case 2: done = lmc__split_root_2_##isa(planes, root, src, n, order); break;            \
            case 4: done = lmc__split_root_4_##isa(planes, root, src, n, order); break;            \
            }                                                                                      \
        return lmc__split_strips(k, planes, root, src, n, width, order, sum, done);                \
    }
#if LMC__NEON
LMC__DEFINE_SPLIT_ROOTS(neon, LMC__CRC)
#else
LMC__DEFINE_SPLIT_ROOTS(avx2, LMC__AVX2)
LMC__DEFINE_SPLIT_ROOTS(vpclmul, LMC__AVX2_VPCLMUL)
LMC__DEFINE_SPLIT_ROOTS(avx512, LMC__AVX512)
#endif
#undef LMC__DEFINE_SPLIT_ROOTS
#undef LMC__DEFINE_SPLIT_ROOT
#endif
#endif /* LMC_NO_ENCODER */

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
    return lmc__join_strips(k, dst, &source, n, lmc__no_progress(), streaming.sum);
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
LMC__INLINE LMC__CRC void lmc__join_root_loop(const lmc__kernels *k, uint8_t *dst,
                                              const lmc__join_source *source, size_t n,
                                              lmc__progress *done, uint64_t *sum, unsigned width)
{
    const size_t n_strip = LMC__STRIP_ELEMENTS(width);
    const lmc__merged *const root = source->root;
    const lmc__const_planes rows = *source->planes; /* copies, which no store of bytes can change */
    const enum lmc__order order = source->order;
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    uint8_t constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    size_t i, j, n_right = lmc__join_strip(k, dst, source, 0, n_strip, 0);
    uint8x16_t v[8], top[4];
    unsigned p, h;
    if (root) {
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
            if (root) {
                const size_t ones = lmc__merge64_neon(top, lmc__load64(root->mask + j / 8), left.at,
                                                      right.at, top[0], top[0], 1, 1);
                left.at += (64 - ones) & left.mask;
                right.at += ones & right.mask;
            }
            LMC__UNROLL for (h = 0; h < 4; h++)
            {
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    root && p == width - 1 ? top[h] : vld1q_u8(rows.row[p] + j + 16 * h);
                lmc__join_vectors_neon(v, width);
                if (order)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        lmc__from_residuals_neon(v[p], width, order);
                LMC__UNROLL for (p = 0; p < width; p++)
                    vst1q_u8(dst + (j + 16 * h) * width + 16 * p, v[p]);
            }
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    done->n = i;
    done->crc = lmc__crc32c_neon(~(uint32_t)c[0], dst + (i - n_strip) * width, LMC__STRIP_SIZE);
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
    lmc__progress done = lmc__no_progress();
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
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    const uint8_t *mask = NULL;
    uint8_t *from, *to = buffers->strip[0], constant[2][64];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    lmc__progress done = lmc__no_progress();
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
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
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
    lmc__progress done = lmc__no_progress();
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
LMC__INLINE_AVX512 lmc__progress lmc__join_root_loop_avx512(
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
    lmc__progress done = lmc__no_progress();
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
#define LMC__LOOP(streams, has_root)                                                               \
    lmc__join_root_loop_avx512(dst, source, n, width, order, streaming, streams, has_root)
#define LMC__DEFINE_JOIN_ROOT(w)                                                                   \
    LMC__LOOP_AVX512 lmc__progress lmc__join_root_##w##_avx512(                                    \
        uint8_t *dst, const lmc__join_source *source, size_t n, lmc__streaming streaming)          \
    {                                                                                              \
        const unsigned width = w;                                                                  \
        const enum lmc__order order = source->order;                                               \
        const int streams = streaming.is_on;                                                       \
        if (width == 8) return LMC__LOOP(streams, source->root != NULL);                           \
        if (source->root) return streams ? LMC__LOOP(1, 1) : LMC__LOOP(0, 1);                      \
        return streams ? LMC__LOOP(1, 0) : LMC__LOOP(0, 0);                                        \
    }
LMC__DEFINE_JOIN_ROOT(1)
LMC__DEFINE_JOIN_ROOT(2)
LMC__DEFINE_JOIN_ROOT(4)
LMC__DEFINE_JOIN_ROOT(8)
#undef LMC__DEFINE_JOIN_ROOT
#undef LMC__LOOP

LMC__AVX512 static uint32_t lmc__join_root_avx512(const lmc__kernels *k, uint8_t *dst,
                                                  lmc__join_source source, size_t n,
                                                  lmc__streaming streaming)
{
    lmc__progress done = lmc__no_progress();
    if (!source.root || source.root->plane == source.width - 1) switch (source.width) {
        case 1: done = lmc__join_root_1_avx512(dst, &source, n, streaming); break;
        case 2: done = lmc__join_root_2_avx512(dst, &source, n, streaming); break;
        case 4: done = lmc__join_root_4_avx512(dst, &source, n, streaming); break;
        default: done = lmc__join_root_8_avx512(dst, &source, n, streaming);
        }
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

#ifndef LMC_NO_ENCODER
/* The classes of a step's groups of 64 elements: mask[g][c] has a one for each element of group g
 * in class c; before[g][c] is how many elements of class c are before group g. A separate loop
 * finds both before they are used, so that steps overlap. */
typedef struct lmc__found {
    uint64_t mask[LMC__TALLY_GROUPS][LMC__MAX_CLASSES], before[LMC__TALLY_GROUPS][LMC__MAX_CLASSES];
} lmc__found;

/* n_of: elements of each class so far; the elements of these groups are added. */
LMC__INLINE_AVX512 void lmc__find_set(lmc__found *found, __m512i *n_of, const lmc__finder *finder,
                                      unsigned set, const uint8_t *base, unsigned width)
{
    const __m512i *const table = finder->table[set];
    const __m512i own[4] = {table[0], table[1], table[2], table[3]};
    __m512i sum = n_of[set];
    unsigned g;
    for (g = 0; g < LMC__TALLY_GROUPS; g++) {
        const __m512i keys = lmc__load_keys_avx512(base + 64 * g * width, width),
                      m = lmc__class_masks_avx512(keys, own);
        _mm512_storeu_si512(&found->mask[g][8 * set], m);
        _mm512_storeu_si512(&found->before[g][8 * set], sum);
        sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(m));
    }
    n_of[set] = sum;
}
LMC__INLINE_AVX512 void lmc__find_classes(lmc__found *found, __m512i n_of[LMC__MAX_CLASSES / 8],
                                          const lmc__finder *finder, const uint8_t *base,
                                          unsigned width)
{
    unsigned set;
    LMC__FOR_WIDTH(for (set = 0; set < finder->n_sets; set++)
                       lmc__find_set(found, n_of, finder, set, base, w));
}

/* Stores n_of as counts, at the end of a loop. */
LMC__INLINE_AVX512 void lmc__store_found(size_t counts[LMC__MAX_CLASSES],
                                         const __m512i n_of[LMC__MAX_CLASSES / 8])
{
    uint64_t words[LMC__MAX_CLASSES];
    unsigned c;
    _mm512_storeu_si512(words, n_of[0]);
    _mm512_storeu_si512(words + 8, n_of[1]);
    for (c = 0; c < LMC__MAX_CLASSES; c++) counts[c] = (size_t)words[c];
}
#endif

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

/* == kernels/group.h =========================================================================== */

/* group: turns a block with a prediction into lists of residual bytes (spec 5.1, 5.2), in one pass:
 *   src, base --residual--> r --split--> bytes p = 0 .. width - 1 of each element
 *   base      --class-----> c
 *
 * Byte p of element i, of class c, is written to the next place of the list classes->row[c][p]. But
 * the lowest planes, p < n_natural, are not grouped: their byte is written to place i of
 * classes->row[0][p], which has exactly n bytes. classes->n[c] becomes the number of elements in
 * class c. Returns the CRC-32C of src.
 *
 * In each step the vector tiers bring the elements of a class together. Then each plane is stored
 * at the end of its list. Here is one plane of a step of eight elements in two classes:
 *     class of the element       0  1  1  0  1  0  0  1
 *     byte p of its residual     a  b  c  d  e  f  g  h
 *     stored at the end of class 0's list       a d f g . . . .    next[0] += 4
 *     stored at the end of class 1's list       b c e h . . . .    next[1] += 4
 *
 * Whole vectors are stored: the bytes behind the elements (the dots) are overwritten by the next
 * store, or lie in the list's slack. A step stores to the lists of all classes, even to those that
 * get no element. So every class has lists with slack, even empty ones, and no two lists share
 * slack. Stores to many lists in turn limit the speed, so a step makes few stores.
 *
 * src and base are read exactly. They may change meanwhile, so they are read only once: lists and
 * CRC are of the same bytes. No arrays may overlap. The sizes of the lists come from count_classes
 * with the same grouping. */

#ifndef LMC_NO_ENCODER
/* Groups the m elements at src, which have numbers from done->n on; updates done. */
LMC__INLINE void lmc__group_body(const lmc__classes *classes, const uint8_t *src,
                                 const lmc__delta_block *block, unsigned width,
                                 lmc__delta_progress *done, size_t m)
{
    const size_t from = done->n;
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const unsigned first = own.grouping->n_natural;
    uint8_t class_of[256];
    size_t next[LMC__MAX_CLASSES], i;
    unsigned p;
    memcpy(next, done->next, sizeof next);
    lmc__set_class_table(class_of, own.grouping);
    for (i = from; i < from + m; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const uint64_t v = lmc__load_element(src, i - from, width);
        const uint64_t r = own.order == LMC__ORDER_FLOAT
                               ? lmc__residual(v, b, width, LMC__ORDER_FLOAT)
                               : lmc__residual(v, b, width, LMC__ORDER_INTEGER);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        /* All lists of a class grow by one byte together, so they have one `at`. */
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const to = p < first ? classes->row[0][p] + i : classes->row[c][p] + at;
            *to = (uint8_t)(r >> 8 * p);
        }
    }
    done->n = from + m;
    memcpy(done->next, next, sizeof next);
}

/* Groups elements [done->n, n), a strip at a time. This defines group; other tiers end with it. */
static uint32_t lmc__group_rest(const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                                const lmc__delta_block *block, lmc__delta_progress *done)
{
    const unsigned width = block->width;
    uint8_t copy[LMC__STRIP_SIZE];
    while (done->n < block->n) {
        const size_t m = lmc__min(LMC__STRIP_ELEMENTS(width), block->n - done->n);
        memcpy(copy, src + done->n * width, m * width);
        done->crc = k->crc32c(done->crc, copy, m * width);
        LMC__FOR_WIDTH(lmc__group_body(classes, copy, block, w, done, m));
    }
    memcpy(classes->n, done->next, sizeof classes->n);
    return done->crc;
}

static uint32_t lmc__group_scalar(const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                                  const lmc__delta_block *block)
{
    lmc__delta_progress done = {0, {0}, 0};
    return lmc__group_rest(k, classes, src, block, &done);
}

#if LMC__NEON || LMC__X86
/* The elements of a step, at most LMC__SORTED, are sorted by class into one row for each class;
 * then each row is split into its lists. So each element needs one store.
 *
 *     class of the element     0  1  1  0  1  0  0  1
 *     residual                 q  r  s  t  u  v  w  x
 *     row 0                    q  t  v  w                 bytes p of these to the list row[0][p]
 *     row 1                    r  s  u  x                                              row[1][p]
 *
 * The number of elements in row c so far is byte c of two words, which stay in registers. So a step
 * has fewer than 256 elements, in whole vectors. A row has room for 256 + 8 elements, so row c
 * begins at 264 c, and the lowest six bits of this number are the shift to byte c. */
#define LMC__SORTED 224u
#define LMC__SORT_ROW (256u + 8)

/* The counts of 16 rows: byte c of low, byte c - 8 of high. */
typedef struct lmc__row_counts {
    uint64_t low, high;
} lmc__row_counts;

/* Sorts m residuals into the rows of `sorted`; row[i] is where the row of residual i begins.
 * has_high: there are more than eight rows. */
LMC__INLINE lmc__row_counts lmc__sort_by_class(uint8_t *sorted, const uint8_t *residuals,
                                               const uint16_t *row, size_t m, unsigned width,
                                               int has_high)
{
    lmc__row_counts n = {0, 0};
    size_t i;
    unsigned j;
    for (i = 0; i < m; i += 8) LMC__UNROLL for (j = 0; j < 8; j++)
        {
            const size_t begin = row[i + j];
            const unsigned shift = begin & 63;
            const uint64_t one = (uint64_t)1 << shift,
                           is_high = has_high && begin >= 8 * LMC__SORT_ROW ? ~(uint64_t)0 : 0,
                           before = (is_high ? n.high : n.low) >> shift & 255;
            n.low += one & ~is_high;
            n.high += one & is_high;
            lmc__store_element(sorted, begin + (size_t)before,
                               lmc__load_element(residuals, i + j, width), width);
        }
    return n;
}

/* Whole vectors. The elements of a strip are also copied: the CRC is of this copy. */
LMC__INLINE_VEC void lmc__group_vec_loop(const lmc__kernels *k, const lmc__classes *classes,
                                         const uint8_t *src, const lmc__delta_block *block,
                                         unsigned width, lmc__delta_progress *done)
{
    const size_t vector = LMC__VECTOR_SIZE;
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__classes rows = *classes;
    const unsigned n_classes = own.grouping->n_classes, first = own.grouping->n_natural;
    const lmc__vector sign = LMC__VEC(splat)(0x80); /* vectors compare signed bytes */
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0, j;
    lmc__vector v[8], b[8], highest[LMC__MAX_CLASSES];
    uint8_t copy[LMC__STRIP_SIZE], residuals[LMC__SORTED * 8],
        sorted[LMC__MAX_CLASSES * LMC__SORT_ROW * 8];
    const uint8_t *const first_row = n_classes == 1 ? residuals : sorted;
    uint16_t row[LMC__SORTED];
    unsigned p, c;
    LMC__VEC(set_highest)(highest, own.grouping);
    for (c = 0; c < n_classes; c++) highest[c] = highest[c] ^ sign;
    done->crc = 0;
    while (i + vector <= own.n) {
        const size_t start = i,
                     end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (own.n - i) & ~(vector - 1));
        while (i < end) {
            const size_t m = lmc__min(LMC__SORTED, end - i);
            lmc__row_counts counts = {0, 0};
            for (j = 0; j < m; j += vector) {
                const size_t at = (i + j) * width;
                lmc__vector keys, class_of = {0};
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    b[p] = LMC__VEC(load)(own.base + at + vector * p);
                    v[p] = LMC__VEC(load_once)(src + at + vector * p);
                    LMC__VEC(store)(copy + (at - start * width) + vector * p, v[p]);
                }
                if (own.order == LMC__ORDER_FLOAT)
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(residual)(v[p], b[p], width, LMC__ORDER_FLOAT);
                else
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(residual)(v[p], b[p], width, LMC__ORDER_INTEGER);
                keys = LMC__VEC(keys)(b, width) ^ sign;
                LMC__UNROLL for (c = 0; c < LMC__MAX_CLASSES - 1; c++)
                {
                    if (c + 1 == n_classes) break;
                    class_of = LMC__VEC(subtract)(
                        class_of, (lmc__vector)((LMC__VEC(i8s))keys > (LMC__VEC(i8s))highest[c]));
                }
                /* 264 c in 16 bits: the low byte is 8 c, at most 120, and the high one c */
                LMC__VEC(zip)(&b[0], &b[1], class_of << 3, class_of);
                LMC__VEC(store)((uint8_t *)(row + j), b[0]);
                LMC__VEC(store)((uint8_t *)(row + j) + vector, b[1]);
                LMC__UNROLL for (p = 0; p < width; p++)
                    LMC__VEC(store)(residuals + j * width + vector * p, v[p]);
                if (first) LMC__VEC(split_vectors)(v, width);
                LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
                    LMC__VEC(store)(rows.row[0][p] + i + j, v[p]);
            }
            if (n_classes == 1) counts.low = m; /* sorted already */
            else if (n_classes <= 8)
                counts = lmc__sort_by_class(sorted, residuals, row, m, width, 0);
            else counts = lmc__sort_by_class(sorted, residuals, row, m, width, 1);
            for (c = 0; c < n_classes; c++) {
                const size_t n = (c < 8 ? counts.low : counts.high) >> 8 * (c & 7) & 255;
                j = 0;
                do { /* natural planes are not grouped; the top plane always is */
                    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                        LMC__VEC(load)(first_row + (c * LMC__SORT_ROW + j) * width + vector * p);
                    LMC__VEC(split_vectors)(v, width);
                    LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                        LMC__VEC(store)(rows.row[c][p] + next[c] + j, v[p]);
                    j += vector;
                } while (j < n);
                next[c] += n;
            }
            i += m;
        }
        done->crc =
            LMC__VEC(crc_ahead)(k, done->crc, copy, (end - start) * width, src + end * width);
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__group_vec, LMC__LOOP_VEC,
                   (const lmc__kernels *k, const lmc__classes *classes, const uint8_t *src,
                    const lmc__delta_block *block, lmc__delta_progress *done),
                   (k, classes, src, block, width, done))

LMC__STATIC_VEC uint32_t LMC__VEC(group)(const lmc__kernels *k, lmc__classes *classes,
                                         const uint8_t *src, const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__CALL_WIDTH(lmc__group_vec, (k, classes, src, block, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}
#endif

#if LMC__X86
/* Whole steps of 128 elements, all in registers; the CRC is as in split_root. The places of a
 * class's elements are compressed (those of elements 64 to 127 are behind the others), and each
 * plane is permuted by these places.
 *
 *     up        0 1 2 3 4 5 6 7 ...
 *     m         0 1 0 0 1 0 1 0 ...      elements 1, 4, 6 are in class c
 *     places    1 4 6 3 4 5 6 7 ...      compressed; behind the ones, up's own bytes remain
 *     x[j] = v[p][places[j]]             vpermi2b looks up 128 bytes across two vectors
 *
 * In a step most lists get at most 32 elements. Storing 32 takes fewer cycles than storing 64. For
 * a class with more than a fifth of all elements, always 64 are stored, so that the CPU predicts
 * the branch well. */
LMC__INLINE_AVX512 void lmc__group_avx512_loop(const lmc__classes *classes, const uint8_t *src,
                                               const lmc__delta_block *block, unsigned width,
                                               lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width), up = lmc__load_avx512(lmc__count_up),
                  up_from_64 = _mm512_add_epi8(up, lmc__splat_avx512(64));
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const enum lmc__order order = block->order;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[2][8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    const unsigned halves = width < 8 ? 2 : 1; /* for eight planes there are too few registers */
    unsigned p, c, h;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 * halves <= n; i += 64 * halves) {
        __mmask64 here[2] = {~(__mmask64)0, ~(__mmask64)0}; /* class c and those behind it */
        __m512i keys[2];
        keys[1] = _mm512_setzero_si512();
        LMC__UNROLL for (h = 0; h < halves; h++)
        {
            const size_t from = i + 64 * h;
            lmc__touch_ahead(src, from * width + LMC__FETCH_AHEAD);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                lmc__fetch_ahead_avx512(src, from, n, width, p);
                b[p] = lmc__load_avx512(base + from * width + 64 * p);
                v[h][p] = lmc__load_once_avx512(src + from * width + 64 * p);
                sum[p] = lmc__crc_fold(sum[p], fold, v[h][p]);
            }
            sum[0] = _mm512_xor_si512(sum[0], start);
            start = _mm512_setzero_si512(); /* for the first step only */
            /* The CRC is of the elements: from here on v holds residuals. */
            if (order == LMC__ORDER_FLOAT)
                LMC__UNROLL for (p = 0; p < width; p++) v[h][p] =
                    lmc__residual_avx512(v[h][p], b[p], width, LMC__ORDER_FLOAT);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[h][p] =
                    lmc__residual_avx512(v[h][p], b[p], width, LMC__ORDER_INTEGER);
            keys[h] = lmc__keys_avx512(b, width);
            lmc__split_vectors_avx512(v[h], width);
            LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
                lmc__store_avx512(rows.row[0][p] + from, v[h][p]);
        }
        /* `here` without what is above class c is class c; nothing is above the last (key 255). */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above0 = _mm512_cmpgt_epu8_mask(keys[0], highest[c]),
                            above1 = _mm512_cmpgt_epu8_mask(keys[1], highest[c]),
                            m0 = _kandn_mask64(above0, here[0]),
                            m1 = _kandn_mask64(above1, here[1]);
            const __m512i places0 = _mm512_mask_compress_epi8(up, m0, up),
                          places1 = _mm512_mask_compress_epi8(up_from_64, m1, up_from_64);
            const size_t ones0 = (size_t)_mm_popcnt_u64(m0),
                         ones = ones0 + (halves == 2 ? (size_t)_mm_popcnt_u64(m1) : 0);
            if (ones > 64 || halves == 1) {
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                {
                    uint8_t *const to = rows.row[c][p] + next[c];
                    lmc__store_avx512(to, _mm512_permutexvar_epi8(places0, v[0][p]));
                    if (halves == 2)
                        lmc__store_avx512(to + ones0, _mm512_permutexvar_epi8(places1, v[1][p]));
                }
            } else {
                const __m512i places = _mm512_mask_expand_epi8(
                    places0, ~_bzhi_u64(~(uint64_t)0, (unsigned)ones0), places1);
                const int is_long = (ones > 32) | (next[c] > i / 5);
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                {
                    const __m512i x = _mm512_permutex2var_epi8(v[0][p], places, v[1][p]);
                    uint8_t *const to = rows.row[c][p] + next[c];
                    if (is_long) lmc__store_avx512(to, x);
                    else lmc__store_avx2(to, _mm512_castsi512_si256(x));
                }
            }
            next[c] += ones;
            here[0] = above0;
            here[1] = above1;
        }
    }
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

LMC__DEFINE_WIDTHS(lmc__group_avx512, LMC__LOOP_AVX512,
                   (const lmc__classes *classes, const uint8_t *src, const lmc__delta_block *block,
                    lmc__delta_progress *done),
                   (classes, src, block, width, done))

LMC__AVX512 static uint32_t lmc__group_avx512(const lmc__kernels *k, lmc__classes *classes,
                                              const uint8_t *src, const lmc__delta_block *block)
{
    const unsigned width = block->width;
    lmc__delta_progress done;
    LMC__CALL_WIDTH(lmc__group_avx512, (classes, src, block, &done));
    return lmc__group_rest(k, classes, src, block, &done);
}
#endif
#endif /* LMC_NO_ENCODER */

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
/* Steps of 64 elements, from done->n on. In a plane, a class is merged from zeros and its list, by
 * the mask of its elements; the places are the same in all planes. */
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
    uint8x16x2_t x;
    unsigned p, c, j;
    memcpy(next, done->next, sizeof next);
    x.val[0] = vdupq_n_u8(0);
    for (i = done->n; i < n; i += 64) {
        lmc__load_step_neon(keys, base + i * width, width);
        lmc__find_classes_neon(m, keys, highest, n_classes);
        LMC__UNROLL for (j = 0; j < 4; j++) LMC__UNROLL for (p = 0; p < width; p++) v[j][p] =
            vdupq_n_u8(0);
        for (c = 0; c < n_classes; c++) {
            const size_t at = next[c];
            if (!spread->is_used[c]) continue;
            next[c] += lmc__merge_places_neon(places, before, m[c]);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side side = spread->from.side[c][p];
                if (side.list) LMC__UNROLL for (j = 0; j < 4; j++)
                    {
                        x.val[1] = vld1q_u8(side.list + at + before[j]);
                        v[j][p] = vorrq_u8(v[j][p], vqtbl2q_u8(x, places[j]));
                    }
                if (side.list || side.value == 0) continue;
                x.val[1] = vdupq_n_u8(side.value); /* at every place */
                LMC__UNROLL for (j = 0; j < 4; j++) v[j][p] =
                    vorrq_u8(v[j][p], vqtbl2q_u8(x, places[j]));
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

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
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

#ifndef LMC_NO_ENCODER
/* Sets entry j of changed to element i of the strips at src and base (from element `from` on). */
LMC__INLINE void lmc__add_changed(const lmc__changed *changed, size_t j, size_t from, size_t i,
                                  const uint8_t *src, const uint8_t *base, unsigned width)
{
    changed->place[j] = (uint32_t)(from + i);
    lmc__store_element(changed->now, j, lmc__load_element(src, i, width), width);
    lmc__store_element(changed->before, j, lmc__load_element(base, i, width), width);
}

/* Fills entries [n_kept, n_changed) of changed from the copies of the strip that has all these
 * elements; the strip begins at element `from`. */
static void lmc__keep_changed(const lmc__changed *changed, size_t n_kept, size_t n_changed,
                              size_t from, const uint8_t *now, const uint8_t *before,
                              unsigned width)
{
    LMC__FOR_WIDTH(for (; n_kept < n_changed; n_kept++) lmc__add_changed(
        changed, n_kept, from, changed->place[n_kept] - from, now, before, w));
}

/* Lists changes of elements [i, n); n_changed are listed already. Compares copies of a strip. */
static size_t lmc__list_strips(const lmc__kernels *k, uint32_t *crc, const lmc__changed *changed,
                               size_t most, const uint8_t *src, const uint8_t *base, size_t i,
                               size_t n, unsigned width, size_t n_changed)
{
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    while (i < n) {
        const size_t n_strip = lmc__min(LMC__STRIP_ELEMENTS(width), n - i), n_kept = n_changed;
        memcpy(now, src + i * width, n_strip * width);
        memcpy(before, base + i * width, n_strip * width);
        *crc = k->crc32c(*crc, now, n_strip * width);
        LMC__FOR_WIDTH(n_changed = lmc__list_words(changed->place, n_changed, most, now, before,
                                                   n_strip, w, i));
        if (n_changed == SIZE_MAX) return SIZE_MAX;
        lmc__keep_changed(changed, n_kept, n_changed, i, now, before, width);
        i += n_strip;
    }
    return n_changed;
}

static size_t lmc__list_changes_scalar(const lmc__kernels *k, uint32_t *crc,
                                       const lmc__changed *changed, size_t most, const uint8_t *src,
                                       const uint8_t *base, size_t n, unsigned width)
{
    *crc = 0;
    return lmc__list_strips(k, crc, changed, most, src, base, 0, n, width, 0);
}

#if LMC__NEON || LMC__X86
/* Returns which of 64 elements differ, and copies all of them. */
LMC__INLINE_VEC uint64_t LMC__VEC(find_changes)(uint8_t *now, uint8_t *before, const uint8_t *src,
                                                const uint8_t *base, unsigned width)
{
    lmc__vector same[LMC__VECTORS_OF_64];
    unsigned v, p;
    LMC__UNROLL for (v = 0; v < LMC__VECTORS_OF_64; v++)
    {
        lmc__vector s[8];
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const size_t at = LMC__VECTOR_SIZE * (v * width + p);
            const lmc__vector a = LMC__VEC(load_once)(src + at), b = LMC__VEC(load)(base + at);
            s[p] = width == 1   ? (lmc__vector)((LMC__VEC(u8s))a == (LMC__VEC(u8s))b)
                   : width == 2 ? (lmc__vector)((LMC__VEC(u16s))a == (LMC__VEC(u16s))b)
                   : width == 4 ? (lmc__vector)((LMC__VEC(u32s))a == (LMC__VEC(u32s))b)
                                : (lmc__vector)((LMC__VEC(u64s))a == (LMC__VEC(u64s))b);
            LMC__VEC(store)(now + at, a);
            LMC__VEC(store)(before + at, b);
        }
        same[v] = LMC__VEC(low_bytes)(s, width);
    }
    return ~LMC__VEC(to_bits)(same);
}

/* Whole strips, with one branch for 64 elements, of which few differ. Then the CRC of the strip's
 * copy is computed, while the next strip is fetched. */
LMC__INLINE_VEC size_t LMC__VEC(list_loop)(const lmc__kernels *k, uint32_t *crc,
                                           const lmc__changed *changed, size_t most,
                                           const uint8_t *src, const uint8_t *base, size_t n,
                                           unsigned width)
{
    const lmc__changed to = *changed; /* a copy, which no store of bytes can change */
    const size_t strip = LMC__STRIP_ELEMENTS(width);
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    size_t i, at, n_changed = 0;
    *crc = 0;
    for (i = 0; i + strip <= n; i += strip, src += LMC__STRIP_SIZE, base += LMC__STRIP_SIZE) {
        for (at = 0; at < strip; at += 64) {
            const size_t to_copy = at * width;
            uint64_t differ = LMC__VEC(find_changes)(now + to_copy, before + to_copy, src + to_copy,
                                                     base + to_copy, width);
            LMC__VEC(fetch_bytes)(base + to_copy, 64 * width);
            if ((size_t)__builtin_popcountll(differ) > most - n_changed) return SIZE_MAX;
            for (; differ; differ &= differ - 1)
                lmc__add_changed(&to, n_changed++, i, at + (size_t)__builtin_ctzll(differ), now,
                                 before, width);
        }
        *crc = LMC__VEC(crc_ahead)(k, *crc, now, LMC__STRIP_SIZE, src + LMC__STRIP_SIZE);
    }
    return lmc__list_strips(k, crc, changed, most, src - i * width, base - i * width, i, n, width,
                            n_changed);
}

LMC__STATIC_VEC size_t LMC__VEC(list_changes)(const lmc__kernels *k, uint32_t *crc,
                                              const lmc__changed *changed, size_t most,
                                              const uint8_t *src, const uint8_t *base, size_t n,
                                              unsigned width)
{
    size_t n_changed;
    LMC__FOR_WIDTH(n_changed = LMC__VEC(list_loop)(k, crc, changed, most, src, base, n, w));
    return n_changed;
}
#endif

#if LMC__X86
/* 256 bytes in a step. Numbers are stored 16 at a time, up to LMC__PAD bytes behind the valid ones.
 * So no branch depends on the data: a CPU cannot predict such branches. The elements are added once
 * for each strip, from its copies. */
LMC__INLINE_AVX512 size_t lmc__list_loop_avx512(const lmc__kernels *k, uint32_t *crc,
                                                const lmc__changed *changed, size_t most,
                                                const uint8_t *src, const uint8_t *base, size_t n,
                                                unsigned width)
{
    uint8_t now[LMC__STRIP_SIZE], before[LMC__STRIP_SIZE];
    const __m512i up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                  fold = lmc__crc_factor(4);
    const lmc__changed to = *changed; /* a copy, which no store of bytes can change */
    const size_t step = 64 / width, strip = LMC__STRIP_ELEMENTS(width);
    __m512i sum[4], start = lmc__crc_start(0);
    size_t i, n_changed = 0, n_kept = 0;
    unsigned v, j;
    LMC__UNROLL for (v = 0; v < 4; v++) sum[v] = _mm512_setzero_si512();
    for (i = 0; i + 4 * step <= n; i += 4 * step) {
        uint64_t differ[4];
        size_t n_differ = 0;
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (v = 0; v < 4; v++)
        {
            const size_t at = i * width + 64 * v;
            const __m512i a = lmc__load_once_avx512(src + at), b = lmc__load_avx512(base + at);
            lmc__store_avx512(now + at % LMC__STRIP_SIZE, a);
            lmc__store_avx512(before + at % LMC__STRIP_SIZE, b);
            LMC__PREFETCH(src + lmc__min(at + LMC__FETCH_AHEAD, n * width));
            LMC__PREFETCH(base + lmc__min(at + LMC__FETCH_AHEAD, n * width));
            differ[v] = width == 1   ? _mm512_cmpneq_epi8_mask(a, b)
                        : width == 2 ? _mm512_cmpneq_epi16_mask(a, b)
                        : width == 4 ? _mm512_cmpneq_epi32_mask(a, b)
                                     : _mm512_cmpneq_epi64_mask(a, b);
            n_differ += (size_t)_mm_popcnt_u64(differ[v]);
            sum[v] = lmc__crc_fold(sum[v], fold, a);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        if (n_differ > most - n_changed) return SIZE_MAX;
        if (n_differ) LMC__UNROLL for (v = 0; v < 4; v++) for (j = 0; j < step; j += 16)
            {
                const __mmask16 m = (__mmask16)(differ[v] >> j);
                const __m512i numbers =
                    _mm512_add_epi32(up, _mm512_set1_epi32((int)(i + v * step + j)));
                _mm512_storeu_si512(to.place + n_changed, _mm512_maskz_compress_epi32(m, numbers));
                n_changed += (size_t)_mm_popcnt_u32(m);
            }
        if ((i + 4 * step) % strip == 0) {
            lmc__keep_changed(&to, n_kept, n_changed, i - i % strip, now, before, width);
            n_kept = n_changed;
        }
    }
    lmc__keep_changed(&to, n_kept, n_changed, i - i % strip, now, before, width);
    *crc = i ? lmc__crc_finish(sum, 4) : 0;
    return lmc__list_strips(k, crc, changed, most, src, base, i, n, width, n_changed);
}

LMC__AVX512 static size_t lmc__list_changes_avx512(const lmc__kernels *k, uint32_t *crc,
                                                   const lmc__changed *changed, size_t most,
                                                   const uint8_t *src, const uint8_t *base,
                                                   size_t n, unsigned width)
{
    size_t n_changed;
    LMC__FOR_WIDTH(n_changed = lmc__list_loop_avx512(k, crc, changed, most, src, base, n, w));
    return n_changed;
}
#endif

/* The state of rank_changes after n elements: `next` have changed, and counts[c] are of class c. */
typedef struct lmc__ranking {
    uint32_t *ones[LMC__MAX_CLASSES]; /* the place of the next rank of each class */
    lmc__changed changed;
    size_t n_changed, next, n;
    const uint8_t *base;
    unsigned width;
    size_t *counts;
    uint8_t class_of[256];
} lmc__ranking;

static void lmc__begin_ranking(lmc__ranking *r, size_t counts[LMC__MAX_CLASSES],
                               uint32_t *const *ones, const uint8_t *base, unsigned width,
                               const lmc__grouping *grouping, const lmc__changed *changed,
                               size_t n_changed)
{
    memcpy(r->ones, ones, grouping->n_classes * sizeof *ones);
    r->changed = *changed;
    r->n_changed = n_changed;
    r->next = r->n = 0;
    r->base = base;
    r->width = width;
    r->counts = counts;
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    lmc__set_class_table(r->class_of, grouping);
}

/* The class of changed element j. */
LMC__INLINE unsigned lmc__changed_class(const lmc__ranking *r, size_t j)
{
    return r->class_of[lmc__key_at(r->changed.before, j, r->width)];
}

/* Elements [r->n, n), one by one. This defines rank_changes. */
static void lmc__rank_rest(lmc__ranking *r, size_t n)
{
    size_t i;
    for (i = r->n; i < n; i++) {
        if (r->next < r->n_changed && r->changed.place[r->next] == i) {
            const unsigned c = lmc__changed_class(r, r->next++);
            *r->ones[c]++ = (uint32_t)r->counts[c];
        }
        r->counts[r->class_of[lmc__key_at(r->base, i, r->width)]]++;
    }
    r->n = n;
}

static void lmc__rank_changes_scalar(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                     const uint8_t *base, size_t n, unsigned width,
                                     const lmc__grouping *grouping, const lmc__changed *changed,
                                     size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__rank_rest(&r, n);
}

#if LMC__NEON
/* Steps of 64 elements. up_to[c] counts classes 0 .. c before the step. An element's rank is the
 * count of its class, plus the elements of its class before it in the step: only for a changed
 * element, keys are compared with the range of its class. */
LMC__INLINE void lmc__rank_loop_neon(lmc__ranking *r, size_t n, unsigned width,
                                     const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    const uint32_t *const places = r->changed.place;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i, j = 0;
    uint8x16_t highest[LMC__MAX_CLASSES], keys[4];
    lmc__key_ranges ranges;
    unsigned c;
    lmc__set_highest_neon(highest, grouping);
    lmc__set_key_ranges(&ranges, grouping);
    for (i = 0; i + 64 <= n; i += 64) {
        up_to[n_classes - 1] = i;
        lmc__load_step_neon(keys, r->base + i * width, width);
        for (; j < r->n_changed && places[j] < i + 64; j++) {
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            uint64_t m;
            c = lmc__changed_class(r, j);
            m = lmc__in_range_neon(keys, ranges.first[c], ranges.more[c]);
            *r->ones[c]++ = (uint32_t)(up_to[c] - (c ? up_to[c - 1] : 0) +
                                       (size_t)__builtin_popcountll(m & low));
        }
        for (c = 0; c + 1 < n_classes; c++) up_to[c] += lmc__count_up_to_neon(keys, highest[c]);
    }
    up_to[n_classes - 1] = i;
    for (c = 0; c < n_classes; c++) r->counts[c] = up_to[c] - (c ? up_to[c - 1] : 0);
    r->next = j;
    r->n = i;
}

static void lmc__rank_changes_neon(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                   const uint8_t *base, size_t n, unsigned width,
                                   const lmc__grouping *grouping, const lmc__changed *changed,
                                   size_t n_changed)
{
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    LMC__FOR_WIDTH(lmc__rank_loop_neon(&r, n, w, grouping));
    lmc__rank_rest(&r, n);
}
#endif

#if LMC__X86
/* The sum of the lowest `groups` bytes of a word, at most seven; each byte is at most 64. */
LMC__INLINE uint32_t lmc__sum_groups(uint64_t bytes, size_t groups)
{
    const uint64_t wanted = bytes & (((uint64_t)1 << 8 * groups) - 1),
                   pairs = (wanted & 0x00FF00FF00FF00FF) + (wanted >> 8 & 0x00FF00FF00FF00FF);
    return (uint32_t)(pairs * 0x0001000100010001 >> 48);
}

/* Steps of eight groups. The tally has the counts of each group, so keys are compared only in
 * groups that have a changed element. */
LMC__AVX2 static void lmc__rank_changes_avx2(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                                             const uint8_t *base, size_t n, unsigned width,
                                             const lmc__grouping *grouping,
                                             const lmc__changed *changed, size_t n_changed)
{
    const unsigned n_classes = grouping->n_classes;
    const uint32_t *const places = changed->place;
    size_t up_to[LMC__MAX_CLASSES] = {0}, before[LMC__MAX_CLASSES], i, j = 0, c;
    uint64_t tally[LMC__MAX_CLASSES];
    __m256i keys[LMC__TALLY_STEP / 32], threshold[LMC__MAX_CLASSES];
    lmc__key_ranges ranges;
    lmc__ranking r;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__set_key_ranges(&ranges, grouping);
    lmc__set_thresholds_avx2(threshold, grouping);
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        up_to[n_classes - 1] = i;
        memcpy(before, up_to, sizeof before);
        lmc__load_step_avx2(keys, base + i * width, width);
        lmc__count_step_avx2(up_to, (uint8_t *)tally, sizeof *tally, keys, threshold, n_classes);
        tally[n_classes - 1] = 64 * LMC__ONES8;
        for (; j < n_changed && places[j] < i + LMC__TALLY_STEP; j++) {
            const size_t group = (places[j] - i) / 64;
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            uint64_t m, groups;
            c = lmc__changed_class(&r, j);
            m = lmc__in_range_avx2(keys + 2 * group, ranges.first[c], ranges.more[c]);
            groups = tally[c] - (c ? tally[c - 1] : 0);
            *r.ones[c]++ =
                (uint32_t)(before[c] - (c ? before[c - 1] : 0) + lmc__sum_groups(groups, group) +
                           (size_t)_mm_popcnt_u64(m & low));
        }
    }
    up_to[n_classes - 1] = i;
    for (c = 0; c < n_classes; c++) counts[c] = up_to[c] - (c ? up_to[c - 1] : 0);
    r.next = j;
    r.n = i;
    lmc__rank_rest(&r, n);
}

/* Steps of eight groups. The classes of all eight are found first, so that one loop can go over the
 * step's changed elements: CPUs predict its end better than the ends of eight loops. */
LMC__AVX512 static void lmc__rank_changes_avx512(size_t counts[LMC__MAX_CLASSES],
                                                 uint32_t *const *ones, const uint8_t *base,
                                                 size_t n, unsigned width,
                                                 const lmc__grouping *grouping,
                                                 const lmc__changed *changed, size_t n_changed)
{
    const uint32_t *const places = changed->place;
    __m512i n_of[LMC__MAX_CLASSES / 8];
    lmc__finder finder;
    lmc__found found;
    lmc__ranking r;
    size_t i, j = 0;
    lmc__begin_ranking(&r, counts, ones, base, width, grouping, changed, n_changed);
    lmc__set_finder(&finder, grouping, 0);
    n_of[0] = n_of[1] = _mm512_setzero_si512();
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        lmc__find_classes(&found, n_of, &finder, base + i * width, width);
        for (; j < n_changed && places[j] < i + LMC__TALLY_STEP; j++) {
            const uint64_t low = ((uint64_t)1 << (places[j] & 63)) - 1;
            const unsigned c = lmc__changed_class(&r, j);
            const size_t g = (places[j] - i) / 64;
            *r.ones[c]++ =
                (uint32_t)(found.before[g][c] + (uint64_t)_mm_popcnt_u64(found.mask[g][c] & low));
        }
    }
    lmc__store_found(counts, n_of);
    r.next = j;
    r.n = i;
    lmc__rank_rest(&r, n);
}
#endif
#endif /* LMC_NO_ENCODER */

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

#ifndef LMC_NO_ENCODER
/* Magnitude / scale, rounded to F32, then to the nearest integer, halves up; at most 65536. This is
 * IEEE's division, done with integers. A mantissa of 24 bits, shifted up by 9, divided by one of 8
 * bits gives 25 or 26 bits: 24 bits, and 1 or 2 that decide the rounding. Only exact divisions give
 * ties, which are rounded to the even neighbour.
 *
 *     a      1mmmmmmm mmmmmmmm mmmmmmmm             value a * 2^(exponent of magnitude - 150)
 *     b                        1nnnnnnn             value b * 2^(exponent of scale - 134)
 *     a / b = quotient / 2^9, so magnitude / scale = quotient * 2^(exponent - 25)
 *
 *     quotient of 26 bits   qqqqqqqq qqqqqqqq qqqqqqqq rr      shift 2, half 10
 *     of 25 bits             qqqqqqqq qqqqqqqq qqqqqqqq r      shift 1, half 1
 *
 * m has the 24 bits that F32 keeps. m++ may make it 2^24, which is also right. Then
 * floor(m * 2^(-1 - drop) + 1/2) is ((m >> drop) + 1) >> 1. If drop is below 0, the result is at
 * least 2^23; if drop is above 25, at most an eighth. */
LMC__INLINE uint32_t lmc__divide(uint32_t magnitude, uint32_t scale)
{
    const uint32_t a = (magnitude & 0x7FFFFF) | 0x800000, b = (scale >> 16 & 0x7F) | 0x80;
    const int exponent = (int)(magnitude >> 23) - (int)(scale >> 23);
    const uint64_t quotient = ((uint64_t)a << 9) / b; /* 25 or 26 bits */
    const unsigned shift = quotient >> 25 ? 2 : 1;
    const uint32_t rest = (uint32_t)quotient & ((1u << shift) - 1), half = 1u << (shift - 1);
    const int is_exact = quotient * b == (uint64_t)a << 9;
    uint32_t m = (uint32_t)(quotient >> shift);
    const int drop = 24 - exponent - (int)shift; /* the quotient is m * 2^(-1 - drop) */
    if (rest > half || (rest == half && (!is_exact || (m & 1)))) m++;
    if (drop < 0) return 65536;
    if (drop > 25) return 0;
    m = ((m >> drop) + 1) >> 1;
    return m < 65536 ? m : 65536;
}

/* Whether the exponent is neither 0 nor 255: subtracting wraps smaller numbers to large ones. */
LMC__INLINE int lmc__is_normal(uint32_t v) { return (v & 0x7FFFFFFF) - 0x00800000 < 0x7F000000; }

/* The nearest point, if its q is in [min, min + n_points): one unsigned comparison tests that. +0
 * is symbol 0; -0, subnormals, infinities and NaN are exceptions. Halves are rounded away from
 * zero, since the magnitude is rounded up. */
LMC__INLINE uint32_t lmc__quantize_linear(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const int32_t magnitude = (int32_t)lmc__divide(x & 0x7FFFFFFF, scale),
                  q = x >> 31 ? -magnitude : magnitude;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (uint32_t)(q - grid->min) >= grid->n_points) return LMC__EXCEPTION;
    return q == 0 ? 0 : (uint32_t)(q - grid->min) + 1;
}

/* Distance from scale to the lower border of the lowest point. In lmc__quantize_log, elements below
 * that border wrap to 2^31 and more. An encoder's grid has n_points * step below 2^31
 * (lmc__max_points), so no distance wraps to a point. */
LMC__INLINE uint32_t lmc__lowest(const lmc__grid *grid)
{
    return (uint32_t)grid->min * grid->step - (grid->step >> 1);
}

/* t: the distance from the lowest border, in steps: the number of the element's interval. */
LMC__INLINE uint32_t lmc__quantize_log(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t u = (x & 0x7FFFFFFF) - scale - lmc__lowest(grid), t = u / grid->step;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (x & 0x7FFFFFFF) > LMC__MAX_LOG_SCALE ||
        (x >> 31 && !grid->is_signed) || u >> 31 || t >= grid->n_points)
        return LMC__EXCEPTION; /* it is over half a step beyond the outermost points */
    return (grid->is_signed ? t << 1 | x >> 31 : t) + 1;
}
#endif

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

#ifndef LMC_NO_ENCODER
static size_t lmc__quantize_scalar(uint16_t *symbols, const uint8_t *src, const uint8_t *second,
                                   size_t n, uint32_t scale, const lmc__grid *grid)
{
    size_t i, exceptions = 0;
    for (i = 0; i < n; i++) {
        const uint32_t x = lmc__load32(src + 4 * i);
        if (second) scale = lmc__predicted_scale(lmc__load32(second + 4 * i), grid);
        symbols[i] = (uint16_t)(grid->is_log ? lmc__quantize_log(x, scale, grid)
                                             : lmc__quantize_linear(x, scale, grid));
        exceptions += symbols[i] == LMC__EXCEPTION;
    }
    return exceptions;
}

/* Sum of (bits of the magnitude >> 14) over those of n <= 32768 elements that are normal numbers;
 * *count: how many these are. The sum fits in 32 bits: 17 for each element, times 2^15. */
static uint32_t lmc__sum_magnitudes_scalar(const uint8_t *src, size_t n, uint32_t *count)
{
    uint32_t sum = 0;
    size_t i;
    *count = 0;
    for (i = 0; i < n; i++) {
        const uint32_t x = lmc__load32(src + 4 * i);
        if (!lmc__is_normal(x)) continue;
        sum += (x & 0x7FFFFFFF) >> 14;
        ++*count;
    }
    return sum;
}

static void lmc__cut_symbols_scalar(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                                    unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++) {
        high[i] = (uint8_t)(symbols[i] >> low_bits);
        if (low) low[i] = (uint8_t)(symbols[i] & ((1u << low_bits) - 1));
    }
}
#endif /* LMC_NO_ENCODER */

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

#ifndef LMC_NO_ENCODER
LMC__INLINE lmc__divisor lmc__divide_by(uint32_t divisor)
{
    lmc__divisor d;
    unsigned log2 = 0;
    while ((uint32_t)1 << log2 < divisor) log2++;
    d.shift = 31 + log2;
    d.is_power = (uint32_t)1 << log2 == divisor;
    d.magic = ((uint64_t)1 << d.shift) / divisor + 1;
    return d;
}
#endif

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

#ifndef LMC_NO_ENCODER
/* s: the symbols of elements x if they are on the grid; is_off: -1 where they are not. Only normal
 * numbers can be on the grid, and +0, which is symbol 0. The symbol of an x that is off the grid is
 * replaced, so any value may be there before. The exceptions are counted in each lane, and added up
 * at the end: less than 2^31, as n is. */
LMC__INLINE_VEC void lmc__finish_step_vec(uint16_t *symbols, lmc__i32v s, lmc__i32v x,
                                          lmc__i32v is_off, lmc__i32v *exceptions)
{
    const lmc__u32v from_normal = ((lmc__u32v)x & 0x7FFFFFFFu) - 0x00800000u;
    lmc__u16v narrow;
    is_off |= (lmc__i32v)(from_normal >= 0x7F000000u);
    is_off &= (lmc__i32v)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (lmc__i32v)(x != 0));
    narrow = __builtin_convertvector((lmc__u32v)s, lmc__u16v);
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

/* lmc__divide in floating point. Like lmc__divide, IEEE's division rounds once, to 24 bits.
 * Rounding to nearest is the default, and no function here changes it.
 *
 *     v = |x| / scale         the quotient as F32
 *     min(v, 65536)           compared as bits, which for positive floats have the order of the
 *                             numbers; NaN and infinity are above, and so are cut, too
 *     (int)(v + v)            floor(2 v): doubling is exact, converting cuts off the fraction
 *     (that + 1) >> 1         floor(v + 1/2), by integers: v + 0.5 in F32 could round up itself
 *
 * y = x >> 31 is the sign as 0 or -1, and (q ^ y) - y is q with that sign. */
LMC__INLINE_VEC void lmc__quantize_linear_step_vec(uint16_t *symbols, const uint8_t *src,
                                                   lmc__i32v scale, const lmc__grid *grid,
                                                   lmc__i32v *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    lmc__i32v x, y, q, is_off;
    lmc__f32v v;
    memcpy(&x, src, sizeof x);
    v = (lmc__f32v)(x & 0x7FFFFFFF) / (lmc__f32v)scale;
    y = (lmc__i32v)v;
    v = (lmc__f32v)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, lmc__i32v) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (lmc__i32v)((lmc__u32v)y >= grid->n_points);
    lmc__finish_step_vec(symbols, (y + 1) & (lmc__i32v)(q != 0), x, is_off, exceptions);
}

/* lowest: the scale plus the distance to the lower border of the lowest point. u is as in
 * lmc__quantize_log; its bit 31, copied to all bits, says that the element is off the grid. Vectors
 * cannot divide integers, so `step` is a reciprocal (lmc__divisor). The product of u's 31 bits and
 * magic's 33 has at most 64.
 *
 *     u, as 32 bits      | u0 | u1 | u2 | u3 |
 *     as 64 bits         | u0 + u1 << 32 | ...
 *     even               & 0x7FFFFFFF, times magic, >> shift: the quotient of u0, below 2^31
 *     odd                the same of >> 32: that of u1
 *     t                  even | odd << 32: each where its u was */
LMC__INLINE_VEC void lmc__quantize_log_step_vec(uint16_t *symbols, const uint8_t *src,
                                                uint32_t lowest, const lmc__grid *grid,
                                                const lmc__divisor *step, lmc__i32v *exceptions)
{
    lmc__i32v x, is_off;
    lmc__u32v u, t;
    memcpy(&x, src, sizeof x);
    u = ((lmc__u32v)x & 0x7FFFFFFFu) - lowest;
    is_off = (lmc__i32v)u >> 31 | (lmc__i32v)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const lmc__u64v even = (((lmc__u64v)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const lmc__u64v odd = (((lmc__u64v)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (lmc__u32v)(even | odd << 32);
    }
    is_off |= (lmc__i32v)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (lmc__u32v)x >> 31;
    else is_off |= x >> 31;
    lmc__finish_step_vec(symbols, (lmc__i32v)t + 1, x, is_off, exceptions);
}

LMC__INLINE_VEC size_t lmc__sum_vec(lmc__i32v v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

LMC__STATIC_VEC size_t lmc__quantize_vec(uint16_t *symbols, const uint8_t *src,
                                         const uint8_t *second, size_t n, uint32_t scale,
                                         const lmc__grid *grid)
{
    const lmc__i32v zero = {0};
    lmc__i32v exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_log_step_vec(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else if (second)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_linear_step_vec(symbols + i, src + 4 * i,
                                          lmc__predicted_scales_vec(second + 4 * i, grid), grid,
                                          &exceptions);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_linear_step_vec(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                          &exceptions);
    return lmc__sum_vec(exceptions) + lmc__quantize_scalar(symbols + i, src + 4 * i,
                                                           second ? second + 4 * i : NULL, n - i,
                                                           scale, grid);
}

/* A lane adds n / LMC__LANES numbers of 17 bits; the sum of all lanes fits in 32 bits. */
LMC__STATIC_VEC uint32_t lmc__sum_magnitudes_vec(const uint8_t *src, size_t n, uint32_t *count)
{
    lmc__i32v sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        lmc__u32v x;
        lmc__i32v is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (lmc__i32v)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (lmc__i32v)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)lmc__sum_vec(counts);
    return rest + (uint32_t)lmc__sum_vec(sum);
}

LMC__STATIC_VEC void lmc__cut_symbols_vec(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                          size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        lmc__w16v s;
        lmc__w8v part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, lmc__w8v);
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), lmc__w8v);
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#endif /* LMC_NO_ENCODER */
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
#define LMC__DECODERS(isa, crcs, join, join_root, patch)                                           \
    crcs, join, join_root, lmc__merge_##isa, lmc__unflatten_##isa, lmc__count_ones_##isa,          \
        lmc__count_classes_##isa, lmc__ungroup_##isa, patch,
#ifndef LMC_NO_ENCODER
#define LMC__ENCODERS(isa, split_root, list_changes)                                               \
    lmc__split_##isa, split_root, lmc__map_##isa, lmc__partition_##isa, lmc__flatten_##isa,        \
        lmc__group_##isa, list_changes, lmc__rank_changes_##isa,
#else
#define LMC__ENCODERS(isa, split_root, list_changes)
#endif

/* Kernels of grids.h. LMC__DIVIDING: those whose divisions -ffast-math would change. */
#ifdef LMC_NO_QUANTIZE
#define LMC__GRID_DECODERS(isa, stream)
#else
#define LMC__GRID_DECODERS(isa, stream) lmc__restore_##isa, lmc__join_symbols_##isa, stream,
#endif
#if defined(LMC_NO_QUANTIZE) || defined(LMC_NO_ENCODER)
#define LMC__GRID_ENCODERS(isa, quantize)
#else
#define LMC__GRID_ENCODERS(isa, quantize)                                                          \
    quantize, lmc__sum_magnitudes_##isa, lmc__cut_symbols_##isa,
#endif
#define LMC__SCALAR_GRIDS                                                                          \
    LMC__GRID_DECODERS(scalar, lmc__stream_scalar)                                                 \
    LMC__GRID_ENCODERS(scalar, lmc__quantize_scalar)
#if LMC__VECTORS
#define LMC__GRIDS(stream)                                                                         \
    LMC__GRID_DECODERS(vec, stream) LMC__GRID_ENCODERS(vec, LMC__DIVIDING(quantize))
#else
#define LMC__GRIDS(stream) LMC__SCALAR_GRIDS
#endif

/* One part on each line. The formatter would indent each line more than the line before. */
/* clang-format off */
/* The scalar tier, which every build has. Fused kernels call the others for each strip. */
#if LMC__HAS_PART(KERNELS)
LMC__TABLE lmc__kernels lmc__kernels_scalar = {
    LMC_TIER_SCALAR, 0,
    LMC__DECODERS(scalar, LMC__SUMS(lmc__crc32c_scalar, lmc__sum64_scalar, lmc__sha256_scalar),
                   lmc__join_scalar, lmc__join_root_strips, lmc__patch_scalar)
    LMC__ENCODERS(scalar, lmc__split_root_strips, lmc__list_changes_scalar)
    LMC__SCALAR_GRIDS
};

#if LMC__NEON
/* With the instructions for CRC-32, or without. */
#define LMC__NEON_KERNELS(crc32c, join_root, split_root, sha256)                                   \
    LMC_TIER_NEON, 0,                                                                              \
    LMC__DECODERS(neon, LMC__SUMS(crc32c, lmc__sum64_scalar, sha256), lmc__join_neon,              \
                  join_root, lmc__patch_neon)                                                      \
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
    lmc__ungroup_scalar, lmc__patch_scalar,
#ifndef LMC_NO_ENCODER
    lmc__split_scalar, lmc__split_root_strips, lmc__map_scalar,
    lmc__partition_avx2, lmc__flatten_avx2, lmc__group_scalar,
    lmc__list_changes_scalar, lmc__rank_changes_scalar,
#endif
    LMC__SCALAR_GRIDS
};
#endif
#endif

#if LMC__X86 && LMC__HAS_PART(AVX2)
#define LMC__AVX2_KERNELS(split_root, has_fast_pdep, sha256)                                       \
    LMC_TIER_AVX2, has_fast_pdep,                                                                  \
    LMC__DECODERS(avx2, LMC__SUMS(lmc__crc32c_avx2, lmc__sum64_avx2, sha256),                      \
                   lmc__join_avx2, lmc__join_root_avx2, lmc__patch_avx2)                           \
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
    LMC__DECODERS(avx512, LMC__SUMS(lmc__crc32c_avx512, lmc__sum64_avx512, sha256),                \
                   lmc__join_avx2, lmc__join_root_avx512, lmc__patch_avx512)                       \
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

#ifndef LMC_NO_ENCODER
static enum lmc__order lmc__order_of(enum lmc_dtype dtype, int is_own)
{
    if ((unsigned)dtype >= LMC__DTYPE_COUNT) dtype = LMC_AUTO;
    return (enum lmc__order)(is_own ? lmc__dtypes[dtype].own : lmc__dtypes[dtype].order);
}
#endif

/* == codec/half.h ============================================================================== */

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

#ifndef LMC_NO_SNAPSHOT
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

#ifndef LMC_NO_ENCODER
/* Completes a tree whose leaves have symbols: the symbols from the escape's rank on, all ranks. */
static void lmc__tree_set_ranks(lmc__tree *tree)
{
    unsigned n_coded = tree->escape, i, s;
    uint8_t coded[256];
    memset(coded, 0, sizeof coded);
    for (i = 0; i < n_coded; i++) coded[tree->symbol[i]] = 1;
    for (i = n_coded, s = 0; s < 256; s++)
        if (!coded[s]) tree->symbol[i++] = (uint8_t)s;
    for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
}
#endif

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
    uint64_t first_element;         /* index of the first element in the tensor of quant */
    uint64_t *sum;    /* gets the sum64 of the encoded elements if has_sum becomes 1; or NULL */
    int has_sum;      /* *sum was computed while encoding */
    int is_ungrouped; /* the file allows only Grouping 0 */
    int is_unparted;  /* Layout 3 is not allowed (LMC_FEATURE_ZEROS) */

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
 *   planning              while the stack has at most a row. If all elements are counted: w rows.
 *                         Else samples of elements and prediction, and the planes of one sample:
 *                         3 w * 2048 bytes, from 32768 elements on 3 w * 8192 (bytes: and n / 8, or
 *                         16384); for a delta also the changes, 4 + 2 w for each of n / 20 elements
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

#ifndef LMC_NO_ENCODER
/* How to code a list as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];   /* of the symbols' codes; 0: no code */
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* every symbol with a code is in [first, last] */
    int is_one_symbol;      /* the sample has only one symbol: the list may be constant */
    uint64_t bits;          /* that the list takes; estimated */
} lmc__plan;

/* The residuals of a sample for one key, or for a class (plan_delta.h), counted by magnitude: 0 to
 * 15 one by one, then two buckets for each octave (lmc__magnitude). */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint64_t bits;     /* that the class takes */
    int64_t saved;     /* bits saved by merging it with the next class */
    uint8_t first_key; /* its keys end before the next class's first key */
    uint32_t n;
    uint32_t magnitudes[LMC__MAGNITUDES];
} lmc__key_counts;
#endif

/* Data that is too large for the C stack. */
typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1]; /* of each nesting */
#ifndef LMC_NO_ENCODER
    lmc__tree root_tree;     /* the top plane's, while the planes before it are coded */
    uint32_t counts[8][256]; /* of each plane's bytes, in a sample */
    lmc__plan plans[8];      /* of each plane */
    lmc__key_counts keys[256], merged;
#endif
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

#ifndef LMC_NO_ENCODER
/* The state of encoding a payload. */
typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out;   /* where the payload's next byte goes */
    uint32_t worth; /* of a bit, as time: see cost.h */
    uint8_t *end;   /* the payload's limit: a longer payload is not wanted */
} lmc__encoder;

/* == codec/cost.h ============================================================================== */

/* What the encoder's choices cost: bits and time. Of all ways to code a list the encoder takes the
 * one with the least
 *
 *     bits * (time that a bit is worth) + time
 *
 * where time is that of encoding and decoding together. So a level is mainly one number: the worth
 * of a bit. Times come from tables, and are not measured, because bytes must not depend on the
 * machine. Unit: 1/1024 of a cycle, on a Zen 4 core with AVX2. */

#define LMC__CYCLE 1024u

/* Time to partition a byte and merge it again; index: number of children that are one symbol. */
static const uint16_t lmc__merge_time[3] = {512, 400, 118};

/* Time to flatten a byte to bit planes and back; index: the number of planes. */
static const uint16_t lmc__flat_time[LMC__MAX_FLAT + 1] = {0, 0, 280, 330, 390, 460, 540};

/* Time to nest a byte of a mask; index: level of its frozen tree. It is twice the time of the
 * tree's merges at its density of ones, because the lists are short. */
static const uint16_t lmc__frozen_time[LMC__FROZEN_LEVELS] = {3500, 3600, 4700, 3900, 3500,
                                                              2900, 2100, 1900, 1600, 1400};

/* Inner nodes of each frozen tree; a flat node counts as one. NODE_TIME: fixed time of a node;
 * NEST_TIME: fixed time of a nested mask (tables of its tree, copies). */
static const uint8_t lmc__frozen_nodes[LMC__FROZEN_LEVELS] = {9,  13, 55, 55, 47,
                                                              51, 37, 37, 29, 31};
#define LMC__NODE_TIME (100u * LMC__CYCLE)
#define LMC__NEST_TIME (1500u * LMC__CYCLE)

/* What a level means here; see also enum lmc_level. Deltas are small, so their bits are worth more.
 * So are those of fp8 and int8: with fewer cycles for a bit, flat nodes would lose 0.4 % of the
 * size. Classes have their own costs (plan_delta.h). */
typedef struct lmc__effort {
    uint32_t direct_worth; /* of a bit, as time, in blocks without a prediction */
    uint32_t byte_worth;   /* the same for elements of one byte */
    uint32_t delta_worth;
    unsigned sample;      /* the most quarters of a sample to use; 0: all elements, for the top
                             plane and for lists */
    unsigned max_classes; /* of a delta that is not sparse */
} lmc__effort;

/* By level. bench/levels.c defines LMC__EFFORTS to try other values. */
#ifndef LMC__EFFORTS
#define LMC__EFFORTS static const lmc__effort
#endif
LMC__EFFORTS lmc__efforts[] = {
    {3 * LMC__CYCLE, 3 * LMC__CYCLE, 10 * LMC__CYCLE, 2, 5},
    {16 * LMC__CYCLE, 34 * LMC__CYCLE, 40 * LMC__CYCLE, 4, 6},
    {24 * LMC__CYCLE, 42 * LMC__CYCLE, 60 * LMC__CYCLE, 0, 7},
    {60 * LMC__CYCLE, 60 * LMC__CYCLE, 90 * LMC__CYCLE, 0, LMC__MAX_CLASSES},
};

LMC__INLINE const lmc__effort *lmc__get_effort(enum lmc_level level)
{
    return &lmc__efforts[(int)level - (int)LMC_LEVEL_FAST];
}
#endif /* LMC_NO_ENCODER */

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

#ifndef LMC_NO_ENCODER
/* How a block has been coded, for its header. Unused fields are 0: decoders check that. */
typedef struct lmc__block_coding {
    unsigned layout, grouping;
    enum lmc__order order;
    int is_predicted;
    uint32_t content_crc;
    size_t payload_size; /* 0: stored */
    int has_sum;         /* *block->sum is the sum64 of the elements in the payload */
} lmc__block_coding;

/* Writes the header to dst. The payload must already be behind it. */
static void lmc__put_block_header(uint8_t *dst, const lmc__block_coding *coding, unsigned width,
                                  size_t n, const lmc__kernels *k, uint32_t number)
{
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)width;
    dst[2] = (uint8_t)((unsigned)coding->order | (coding->is_predicted ? LMC__PREDICTED : 0u) |
                       coding->layout << LMC__LAYOUT_SHIFT);
    dst[3] = (uint8_t)coding->grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)coding->payload_size);
    lmc__store32(dst + LMC__CONTENT_CRC_AT, coding->content_crc);
    lmc__store32(
        dst + LMC__PAYLOAD_CRC_AT,
        coding->is_predicted ? k->crc32c(0, dst + LMC_BLOCK_HEADER_SIZE, coding->payload_size) : 0);
    lmc__store32(dst + LMC__BLOCK_CRC_AT, lmc__header_crc(k, dst, number));
}
#endif

/* Parses a header whose CRC was right. The order of the checks is that of spec 5, because it
 * decides which error is reported. The conformance vectors test it.
 *
 *   1  values that a later version may use (UNSUPPORTED)
 *   2  n, then the payload's size: together they bound the memory that a block needs
 *   3  which fields go together: a stored block has no order, prediction or grouping; a quantised
 *      block has elements of 2 or 4 bytes, and no order or grouping; one with zeros apart has no
 *      prediction
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
                   order <= LMC__ORDER_FLOAT && (coding & 0x18) == 0 && layout <= LMC__LAYOUT_ZEROS,
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
    if (layout == LMC__LAYOUT_QUANTIZED)
        LMC__VALID((width == 2 || width == 4) && !order && !grouping);
    if (layout == LMC__LAYOUT_PLANES && is_predicted) LMC__VALID(order);
    if (layout == LMC__LAYOUT_ZEROS) LMC__VALID(!is_predicted);
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

/* == codec/huffman.h =========================================================================== */

/* Code lengths for counted symbols, at most 15 bits. Only integers are used, and ties depend only
 * on the order of the weights: so all machines find the same lengths. */

#ifndef LMC_NO_ENCODER
/* Sorts n different numbers (see lmc__choose_plane) in descending order: counts, given in the order
 * of their symbols. Counts of exponents rise to a peak and fall again. So taking the smaller of
 * the two outer counts again and again almost sorts them; Shell's sort (Knuth's gaps) ends it. */
static void lmc__sort_descending(uint32_t *v, unsigned n)
{
    uint32_t sorted[256];
    unsigned first = 0, last = n - 1, gap, i;
    for (i = n; i > 0;) sorted[--i] = v[first] < v[last] ? v[first++] : v[last--];
    for (gap = n > 40 ? 121 : 1; gap > 0; gap = gap / 3)
        for (i = gap; i < n; i++) {
            uint32_t x = sorted[i];
            unsigned j = i;
            for (; j >= gap && sorted[j - gap] < x; j -= gap) sorted[j] = sorted[j - gap];
            sorted[j] = x;
        }
    memcpy(v, sorted, n * sizeof *v);
}

/* Huffman code lengths, at most limit, for weights[0, n) in descending order, 2 <= n <= 256.
 * lengths are set in ascending order, and the codes fill the code space exactly.
 *
 * 1. The tree, with two queues (van Leeuwen, 1976): leaves and inner nodes. The two lightest nodes
 *    without a parent get one, until one such node is left. Leaves are taken from the lightest on;
 *    parents are made in ascending order of weight, so both queues are sorted.
 *
 * 2. The number of codes of each length. Inner nodes are visited from the root down, in the reverse
 *    order of their making. n_of[L] counts the nodes at depth L that have not been visited.
 *    Visiting a node removes one node of its depth and adds two children below.
 *
 * 3. The limit, as in libdeflate: if a node's children would be deeper than the limit, the deepest
 *    leaf that is above the limit gets two children instead. The sum of 2^-length stays 1. There
 *    always is such a leaf: with all leaves at the limit, there would be 2^limit > n. The result is
 *    slightly longer than the best limited code.
 *
 * 4. The heaviest weights get the shortest codes. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n,
                                 unsigned limit)
{
    uint32_t sum[256];    /* of inner nodes, in the order of making; node i is child n + i */
    uint16_t parent[512]; /* of leaves and inner nodes: an inner node's number */
    uint8_t depth[256];   /* of inner nodes */
    unsigned n_of[LMC__MAX_LENGTH + 1] = {0};
    unsigned leaf = n, next = 0, made, length, i;
    for (made = 0; made < n - 1; made++) {
        uint32_t w = 0;
        for (i = 0; i < 2; i++) {
            unsigned child;
            if (leaf > 0 && (next == made || weights[leaf - 1] <= sum[next])) {
                child = --leaf;
                w += weights[child];
            } else {
                child = n + next;
                w += sum[next++];
            }
            parent[child] = (uint16_t)made;
        }
        sum[made] = w;
    }
    depth[n - 2] = 0; /* the root, which was made last */
    n_of[1] = 2;
    for (i = n - 2; i-- > 0;) {
        depth[i] = (uint8_t)(depth[parent[n + i]] + 1);
        length = depth[i] < limit ? depth[i] : limit - 1;
        while (n_of[length] == 0) length--;
        n_of[length]--;
        n_of[length + 1] += 2;
    }
    for (length = 1, i = 0; length <= limit; length++) {
        memset(lengths + i, (int)length, n_of[length]);
        i += n_of[length];
    }
}

/* == codec/lengths.h =========================================================================== */

/* Chooses code lengths. Huffman's lengths take the fewest bits. But in trees with many leaves (fp8,
 * fp16, int8) nearly each bit of a code takes a merge. An aligned group of 2, 4 .. 64 leaves of one
 * length is one flat node (tree.h), which replaces up to six merges.
 *
 * So the symbols, sorted by descending count, are also grouped to *units* of 2, 4 .. 32, and
 * Huffman's algorithm is run on the units. A unit of 2^D symbols at depth d is a flat node: its
 * leaves have length d + D. This costs few bits, because neighbours in that order have similar
 * counts. */

#define LMC__MAX_LOG2_UNIT 5u

/* The time of a tree with n leaves: weights descend, lengths ascend, and the escape, if there is
 * one, is last. Each leaf is counted in the largest possible flat node: 2^D leaves of one length
 * that begin at a multiple of 2^D. This is an estimate: a real tree sorts leaves of one length by
 * symbol. */
static uint64_t lmc__tree_time(const uint32_t *weights, const uint8_t *lengths, unsigned n,
                               int has_escape)
{
    uint64_t time = 0;
    unsigned at = 0; /* place in the code space */
    unsigned i, j, next = 0, end = 0, depth;
    for (i = 0; i < n; i += 1u << depth) {
        const unsigned length = lengths[i], place = at >> (LMC__MAX_LENGTH - length);
        uint32_t weight = 0; /* of a sample or a block: below 2^23 */
        if (i == next) {
            while (next < n && lengths[next] == length) next++;
            end = has_escape && next == n ? n - 1 : next;
        }
        depth = 0;
        while (depth < LMC__MAX_FLAT && depth < length && i + (2u << depth) <= end &&
               (place & ((2u << depth) - 1)) == 0)
            depth++;
        for (j = i; j < i + (1u << depth); j++) weight += weights[j];
        time += depth < 2 ? (uint64_t)weight *
                                ((length - 1) * lmc__merge_time[0] + lmc__merge_time[1 + depth])
                          : (uint64_t)weight *
                                ((length - depth) * lmc__merge_time[0] + lmc__flat_time[depth]);
        at += (1u << depth) << (LMC__MAX_LENGTH - length);
    }
    return time;
}

/* The cost of a code with these lengths, as time; worth: of a bit (cost.h). */
static uint64_t lmc__code_cost(const uint32_t *weights, const uint8_t *lengths, unsigned n,
                               int has_escape, uint32_t worth)
{
    uint64_t bits = 0;
    unsigned i;
    for (i = 0; i < n; i++) bits += (uint64_t)weights[i] * lengths[i];
    return bits * worth + lmc__tree_time(weights, lengths, n, has_escape);
}

/* Sets ascending code lengths for weights[0, n) in descending order, 2 <= n <= 256. Returns the
 * number of lengths: n, or n rounded up to a multiple of a unit, at most 256; the weights from n on
 * are set to 0. With has_escape one weight is the escape's, and the last code will be its code. */
static unsigned lmc__choose_lengths(uint8_t lengths[256], uint32_t weights[256], unsigned n,
                                    int has_escape, uint32_t worth)
{
    uint32_t sums[128];
    uint8_t trial[256], depths[128];
    unsigned log2_unit, best_n = n, i;
    uint64_t best;
    memset(weights + n, 0, (256 - n) * sizeof *weights);
    lmc__huffman_lengths(lengths, weights, n, LMC__MAX_LENGTH);
    if (n < 16) return n;
    best = lmc__code_cost(weights, lengths, n, has_escape, worth);
    for (log2_unit = 1; log2_unit <= LMC__MAX_LOG2_UNIT && n >= 4u << log2_unit; log2_unit++) {
        const unsigned n_units = (n + (1u << log2_unit) - 1) >> log2_unit,
                       n_leaves = n_units << log2_unit;
        uint64_t cost;
        memset(sums, 0, n_units * sizeof *sums);
        for (i = 0; i < n; i++) sums[i >> log2_unit] += weights[i];
        lmc__huffman_lengths(depths, sums, n_units, LMC__MAX_LENGTH - log2_unit);
        for (i = 0; i < n_leaves; i++) trial[i] = (uint8_t)(depths[i >> log2_unit] + log2_unit);
        cost = lmc__code_cost(weights, trial, n_leaves, has_escape, worth);
        if (cost >= best) continue;
        best = cost;
        best_n = n_leaves;
        memcpy(lengths, trial, n_leaves);
    }
    return best_n;
}

/* == codec/plan.h ============================================================================== */

/* Chooses how a list of bytes is coded (spec 6): raw, as a constant, or as a tree, and which tree.
 * It uses only the counts of the list's symbols, mostly in a sample.
 *
 * Sizes are estimated by the entropy of the counts, with logarithms as integers: machines differ in
 * the last digit of log2 of floats, but must write the same bytes. */

/* log2(v) * 65536 for v >= 1, with an error of at most 8. It is linear between entries of the
 * table. */
LMC__INLINE uint32_t lmc__log2(uint32_t v)
{
    /* round(65536 * log2(1 + i / 64)) */
    static const uint32_t table[65] = {
        0,     1466,  2909,  4331,  5732,  7112,  8473,  9814,  11136, 12440, 13727, 14996, 16248,
        17484, 18704, 19909, 21098, 22272, 23433, 24579, 25711, 26830, 27936, 29029, 30109, 31178,
        32234, 33279, 34312, 35334, 36346, 37346, 38336, 39316, 40286, 41246, 42196, 43137, 44068,
        44990, 45904, 46809, 47705, 48593, 49472, 50344, 51207, 52063, 52911, 53751, 54584, 55410,
        56229, 57040, 57845, 58643, 59434, 60219, 60997, 61769, 62534, 63294, 64047, 64794, 65536};
    unsigned exponent, i;
    uint32_t mantissa, below, fraction;
#if defined(__GNUC__)
    exponent = 31u - (unsigned)__builtin_clz(v);
#else
    for (exponent = 0; v >> exponent > 1;) exponent++;
#endif
    if (exponent <= 6) return (exponent << 16) + table[(v << (6 - exponent)) - 64];
    mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent); /* 65536 .. 131071 */
    i = (mantissa >> 10) & 63;
    fraction = mantissa & 1023;
    below = table[i];
    return (exponent << 16) + below + (((table[i + 1] - below) * fraction + 512) >> 10);
}

/* The order-0 entropy of counts that add up to total, in 2^-16 bits: total * log2(total) less the
 * sum of counts * log2(counts). It is below 2^45. */
static uint64_t lmc__entropy_q16(const uint32_t counts[256], uint32_t total)
{
    uint64_t bits = (uint64_t)total * lmc__log2(total), symbols = 0;
    int s;
    for (s = 0; s < 256; s++)
        if (counts[s]) symbols += (uint64_t)counts[s] * lmc__log2(counts[s]);
    return bits - symbols;
}

/* lmc__entropy_q16 in whole bits, rounded down. */
static uint64_t lmc__entropy(const uint32_t counts[256], uint32_t total)
{
    return lmc__entropy_q16(counts, total) >> 16;
}

static unsigned lmc__count_symbols(const uint32_t counts[256])
{
    unsigned n = 0, s;
    for (s = 0; s < 256; s++) n += counts[s] != 0;
    return n;
}

/* What the counts say about a list. lmc__put_planned may still find that a list is not constant, or
 * that its tree is too long. */
enum lmc__choice {
    LMC__CHOOSE_RAW,
    LMC__CHOOSE_CONSTANT, /* all bytes were counted, and are one symbol */
    LMC__CHOOSE_TREE
};

/* A tree must save 1 / LMC__MIN_SAVING of the list; else raw is chosen, which decodes as fast as a
 * copy. */
#define LMC__MIN_SAVING 200u

/* 1 if a tree would save too little for a list. A sample's entropy is too low, by about 1 / (2 ln
 * 2) of a bit for each symbol but one (Miller, 1955): `eighths` 6 corrects this. With 7, lists near
 * the limit count as raw, too. */
static int lmc__is_raw(const uint32_t counts[256], uint32_t total, unsigned eighths)
{
    return lmc__entropy(counts, total) + (lmc__count_symbols(counts) - 1) * eighths / 8 >=
           (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
}

/* Estimates the bits of a list by the counts of a sample: its entropy, corrected like that, and at
 * most its raw size. */
static uint64_t lmc__estimate_plane(const uint32_t counts[256], size_t total)
{
    if (total == 0) return 0;
    return lmc__min64(8 * (uint64_t)total, lmc__entropy(counts, (uint32_t)total) +
                                               (lmc__count_symbols(counts) - 1) * 6 / 8);
}

/* Returns how many symbols get a code. The other symbols, which are the rarest, are escaped. order:
 * count << 8, descending; *escaped: how many elements of total have no code.
 *
 * An escaped element takes 8 bits and the longest code: if S are escaped, log2(total / S) bits, or
 * as many as the rarest kept symbol. In a sample S also has the elements of symbols that it lacks:
 * about as many as symbols that it has once (Good and Turing). So each code for a rare symbol makes
 * all of these longer, and of many equally rare symbols all or none are escaped.
 *
 * Escaping saves a symbol's field in the header: 4 bits of the whole list, of a sample only its
 * share. A rare symbol's count in a sample is mostly chance, which costs 3/2 bits more. The most
 * symbols are escaped that lose at most this and 1/512 bit for each counted element. */
static unsigned lmc__choose_kept(const uint32_t *order, unsigned n_symbols, uint32_t total,
                                 size_t n, uint32_t *escaped)
{
    const uint64_t saved = ((uint64_t)total << 11) / n + (total < n ? 768 : 0); /* 1/512 bits */
    uint64_t own = 0, all_kept = 0; /* 2^-16 bits: of the escaped symbols' own codes; of the escape
                                       if no symbol is escaped */
    uint32_t unseen = 0, sum;
    unsigned n_kept = n_symbols, i;
    while (total < n && unseen < n_symbols && order[n_symbols - 1 - unseen] >> 8 == 1) unseen++;
    *escaped = 0;
    sum = unseen;
    for (i = n_symbols; i >= 1; i--) {
        const uint32_t rarest = order[i - 1] >> 8, weight = sum < rarest ? sum : rarest;
        const uint64_t bits =
            sum ? sum * ((uint64_t)(8u << 16) + lmc__log2(total) - lmc__log2(weight)) : 0;
        if (i == n_symbols) {
            all_kept = bits;
        } else if (bits <= own + all_kept + ((total + (n_symbols - i) * saved) << 7)) {
            *escaped = sum - unseen;
            n_kept = i;
        }
        sum += rarest;
        own += (uint64_t)rarest * (lmc__log2(total) - lmc__log2(rarest));
    }
    return n_kept;
}

/* Returns the highest symbol of a short list that gets a code; higher ones are escaped. Without
 * this, each value below a few very high symbols would take 4 bits of the header. A limit costs the
 * bits of the symbols up to it, and for each other symbol the escape and 8 bits. */
static unsigned lmc__choose_last(const uint32_t counts[256], uint32_t total)
{
    uint64_t sum_log = 0, best = UINT64_MAX; /* of c log2 c, for symbols up to s */
    uint32_t coded = 0;
    unsigned s, first = 0, last = 255;
    while (counts[first] == 0) first++;
    for (s = first; s < 256; s++) {
        const uint32_t count = counts[s];
        uint32_t escaped;
        uint64_t bits;
        if (count == 0) continue;
        coded += count;
        sum_log += (uint64_t)count * lmc__log2(count);
        escaped = total - coded;
        bits = (uint64_t)total * lmc__log2(total) - sum_log;
        if (escaped) bits += escaped * ((uint64_t)(9u << 16) - lmc__log2(escaped));
        bits += (uint64_t)(s - first) << 18;
        if (bits >= best) continue;
        best = bits;
        last = s;
    }
    return last;
}

/* Adds symbols that get a code behind order[0, n_kept), until there are n_wanted: first those that
 * would have been escaped, then others, upwards from the most frequent symbol, then downwards.
 * Returns how many counted elements have a code. */
static uint32_t lmc__fill_units(uint32_t order[256], unsigned n_kept, unsigned n_symbols,
                                unsigned n_wanted, const uint32_t counts[256])
{
    const unsigned middle = 255 - (order[0] & 255);
    uint8_t is_coded[256] = {0};
    uint32_t n_coded = 0;
    unsigned i, s;
    if (n_kept < n_wanted) n_kept = n_wanted < n_symbols ? n_wanted : n_symbols;
    for (i = 0; i < n_kept; i++) is_coded[255 - (order[i] & 255)] = 1;
    for (i = 0; i < 256 && n_kept < n_wanted; i++) {
        s = middle + i < 256 ? middle + i : 255 - i;
        if (!is_coded[s]) order[n_kept++] = counts[s] << 8 | (255 - s);
    }
    for (i = 0; i < n_kept; i++) n_coded += order[i] >> 8;
    return n_coded;
}

/* Chooses how to code n bytes, of which `total`, a sample or all of them, were counted.
 *
 *   counts -> one symbol, all counted?       constant
 *          -> entropy too near 8 bits?       raw, like most planes of mantissas
 *          -> sort, escape rare symbols      kept symbols, and perhaps an escape
 *          -> lengths -> their cost too high raw
 *                     -> else                tree
 *
 * worth: of a bit, as time (cost.h). An escape is needed if symbols were escaped, if the list may
 * have symbols that the sample lacks, or if there is only one symbol: a tree has at least two
 * leaves. A count fits in 32 bits beside its symbol, as a block has at most 2^22 elements. All
 * entries of `order` differ by the symbol, so every sort gives the same result. */
static enum lmc__choice lmc__choose_plane(lmc__plan *plan, const uint32_t counts[256],
                                          uint32_t total, size_t n, uint32_t worth)
{
    uint32_t order[256]; /* count << 8 | 255 - symbol; most frequent first, then by symbol */
    uint32_t weights[256], escaped, above = 0; /* elements without a code; elements above `last` */
    uint8_t lengths[256];
    uint64_t bits = 0;
    unsigned n_symbols = 0, n_kept, n_leaves, n_wanted, i, s;
    const uint64_t enough = (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
    const int sampled = total < n;
    int has_escape;

    for (s = 0; s < 256; s++)
        if (counts[s]) order[n_symbols++] = counts[s] << 8 | (255 - s);
    plan->is_one_symbol = n_symbols == 1;
    plan->bits = 8 * (uint64_t)n;
    if (n_symbols == 1 && !sampled) {
        plan->bits = 8;
        return LMC__CHOOSE_CONSTANT;
    }
    if (lmc__is_raw(counts, total, 6)) return LMC__CHOOSE_RAW;
    if (!sampled && n_symbols > 2) {
        const unsigned last = lmc__choose_last(counts, total);
        for (s = last + 1; s < 256; s++) above += counts[s];
        for (i = n_symbols, n_symbols = 0, s = 0; s < i; s++)
            if (255 - (order[s] & 255) <= last) order[n_symbols++] = order[s];
    }
    lmc__sort_descending(order, n_symbols);
    n_kept = lmc__choose_kept(order, n_symbols, total, n, &escaped);
    escaped += above;
    has_escape = escaped || (sampled && n_symbols < 256) || n_symbols == 1;
    n_leaves = n_kept + (has_escape ? 1u : 0u); /* at most 256: there is no escape if 256 are
                                                   kept */
    for (i = 0; i < n_kept; i++) weights[i] = order[i] >> 8;
    if (has_escape) {
        const uint32_t w = escaped ? escaped : 1;
        for (i = n_kept; i > 0 && weights[i - 1] < w; i--) weights[i] = weights[i - 1];
        weights[i] = w;
    }
    /* There are at least two leaves: with one symbol there is an escape. */
    n_wanted = lmc__choose_lengths(lengths, weights, n_leaves, has_escape, worth);
    n_kept = n_wanted - (has_escape ? 1u : 0u);
    escaped = total -
              lmc__fill_units(order, n_leaves - (has_escape ? 1u : 0u), n_symbols, n_kept, counts);

    /* The escape must be the last leaf, so it gets the longest code, whatever its weight. So rarer
     * symbols get shorter codes than it; the set of lengths stays the same. */
    memset(plan->lengths, 0, sizeof plan->lengths);
    plan->first = 255;
    plan->last = 0;
    for (i = 0; i < n_kept; i++) {
        s = 255 - (order[i] & 255);
        plan->lengths[s] = lengths[i];
        bits += (uint64_t)counts[s] * lengths[i];
        if (s < plan->first) plan->first = s;
        if (s > plan->last) plan->last = s;
    }
    plan->escape_length = has_escape ? lengths[n_kept] : 0;
    if (has_escape) bits += (uint64_t)escaped * (lengths[n_kept] + 8u);
    /* The code fits the sample better than the list: about one bit is added for each symbol. */
    bits += n_symbols;
    if (bits >= enough || (8 * (uint64_t)total - bits) * worth <=
                              lmc__tree_time(weights, lengths, n_wanted, has_escape))
        return LMC__CHOOSE_RAW;
    plan->bits = bits * n / total + 4 * (uint64_t)(plan->last - plan->first + 1);
    return LMC__CHOOSE_TREE;
}

/* == codec/sample.h ============================================================================ */

/* Samples of blocks, for the encoder's choices. A block of up to 8192 elements is its own sample.
 * Other blocks are cut into 128 equal *steps*. A sample has a *run* of 64 neighbours from each
 * step, as a cache line is fetched as a whole. The place of a run in its step varies: else, if a
 * matrix has rows of 2^k elements, all runs would be in the same columns. The places depend only on
 * the block's size, so that the encoded bytes depend only on the input. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

typedef struct lmc__block {
    const uint8_t *src;  /* n elements of width bytes */
    const uint8_t *base; /* their prediction; or NULL */
    size_t n;
    unsigned width;
    enum lmc__order order, own; /* with and without a prediction (see dtypes.h) */
    enum lmc_level level;
    uint64_t *sum;      /* gets the elements' sum64 if they are coded as planes; or NULL */
    int may_group;      /* 0: Grouping must be 0 (see is_ungrouped in job.h) */
    int may_part_zeros; /* 0: Layout 3 is not allowed (see is_unparted in job.h) */
} lmc__block;

/* Sets what follows from src and the dtype. */
static void lmc__set_block(lmc__block *block, const uint8_t *src, size_t size, enum lmc_dtype dtype)
{
    memset(block, 0, sizeof *block);
    block->src = src;
    block->width = lmc_dtype_width(dtype);
    block->n = size / block->width;
    block->order = lmc__order_of(dtype, 0);
    block->own = lmc__order_of(dtype, 1);
}

/* The element where run i of the sample starts, for n > 8192. Runs are numbered so that each
 * quarter of them is a sample of the whole block: steps 0, 4, 8 ..., then 1, 5, 9 ..., and so on.
 *
 *     block   |  step 0   |  step 1   |  step 2   |  step 3   | ...     128 steps of n / 128
 *     runs    | [0]       |     [32]  |  [64]     |       [96]| ...     of 64 elements each
 *
 * A run starts at most `free` elements behind its step's start, so it ends in the same step. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step * 2^32 / golden ratio: the top bits of such multiples are spread evenly (Knuth, vol. 3,
     * 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* The n > 8192 elements at src have a sample. Copies its quarters [first, last) to dst, but only
 * `run` elements of each run. Runs are prefetched: the hardware does not expect their places. */
#define LMC__SAMPLE_AHEAD 16u
static void lmc__gather_runs(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, size_t run,
                             unsigned first, unsigned last)
{
    const uint32_t to = LMC__SAMPLE_RUNS / 4 * last;
    const size_t size = run * width;
    uint32_t i, ahead = LMC__SAMPLE_RUNS / 4 * first;
    size_t line;
    for (i = ahead; i < to; i++) {
        for (; ahead < to && ahead <= i + LMC__SAMPLE_AHEAD; ahead++) {
            const uint8_t *const next = src + lmc__sample_place(ahead, n) * width;
            for (line = 0; line < size; line += LMC__LINE) LMC__PREFETCH(next + line);
            LMC__PREFETCH(next + size - 1); /* a run may begin within a line */
        }
        memcpy(dst, src + lmc__sample_place(i, n) * width, size);
        dst += size;
    }
}

/* The planes of a sample. The caller pops its lists from the stack when they are counted. */
typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    uint8_t *room;      /* for its elements; NULL if the sample is the whole block */
    size_t n;           /* its elements */
} lmc__sample;

/* Pushes a list of n bytes for each of `width` planes. Returns 0 if there is no room, which cannot
 * happen (workspace.h). */
static int lmc__push_planes(lmc__encoder *e, lmc__planes *planes, size_t n, unsigned width)
{
    unsigned p;
    for (p = 0; p < width; p++)
        if ((planes->row[p] = lmc__push_list(&e->stack, n)) == NULL) return 0;
    return 1;
}

/* Pushes the lists for a sample of a block of n elements. Returns 0 if there is no room. */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    sample->room = n > sample->n ? lmc__push_list(&e->stack, sample->n * width) : NULL;
    return (n <= sample->n || sample->room) &&
           lmc__push_planes(e, &sample->planes, sample->n, width);
}

/* Splits quarters [first, last) of the sample of n elements at src into its planes: run i goes to
 * elements [64 i, 64 i + 64) of each list. Returns the number of elements. If the sample is the
 * whole block, all of it is the first quarter. */
static size_t lmc__take_sample(const lmc__kernels *k, const lmc__sample *sample, unsigned first,
                               unsigned last, const uint8_t *src, size_t n, unsigned width,
                               enum lmc__order own)
{
    const size_t at = LMC__SAMPLE_SIZE / 4 * first, part = LMC__SAMPLE_SIZE / 4 * (last - first);
    lmc__planes rows;
    unsigned p;
    if (!sample->room) {
        if (first == 0) k->split(&sample->planes, src, n, width, own);
        return first == 0 ? n : 0;
    }
    lmc__gather_runs(sample->room, src, n, width, LMC__SAMPLE_RUN, first, last);
    for (p = 0; p < width; p++) rows.row[p] = sample->planes.row[p] + at;
    k->split(&rows, sample->room, part, width, own);
    return part;
}

/* The counts of a list of n bytes, in e->scratch->counts[0]. */
static const uint32_t *lmc__count_list(lmc__encoder *e, const uint8_t *list, size_t n)
{
    uint32_t *const counts = e->scratch->counts[0];
    memset(counts, 0, sizeof e->scratch->counts[0]);
    lmc__count_bytes(counts, list, n);
    return counts;
}

/* Chooses how to code a list of n bytes. It counts only `quarters` quarters of a sample, or the
 * whole list if quarters is 0 or the list is short (at most 2 * LMC__SAMPLE_SIZE). */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, unsigned quarters)
{
    uint8_t *const top = e->stack.top, *sample = NULL;
    const uint32_t *counts;
    enum lmc__choice choice;
    size_t total = n;
    if (quarters && n > 2 * LMC__SAMPLE_SIZE) sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) {
        lmc__gather_runs(sample, list, n, 1, LMC__SAMPLE_RUN, 0, quarters);
        total = LMC__SAMPLE_SIZE / 4 * quarters;
    }
    counts = lmc__count_list(e, sample ? sample : list, total);
    e->stack.top = top;
    choice = lmc__choose_plane(plan, counts, (uint32_t)total, n, e->worth);
    if (choice == LMC__CHOOSE_TREE && plan->bits >= 8 * (uint64_t)n)
        choice = LMC__CHOOSE_RAW; /* because of the tree's header, if the list is short */
    return choice;
}

/* Splits a sample of src with this width and order, and returns its order-0 entropy, in 1/1024 bit
 * per byte. A plane is counted with 128 bits more than its entropy, but at most with its raw size,
 * so that chance does not decide between planes that hardly compress. UINT64_MAX if there is no
 * room, which cannot happen. */
static uint64_t lmc__try_elements(lmc__encoder *e, const uint8_t *src, size_t size, unsigned width,
                                  enum lmc__order order)
{
    uint8_t *const top = e->stack.top;
    uint64_t bits = 0, total;
    lmc__sample sample;
    unsigned p;
    if (!lmc__begin_sample(e, &sample, size / width, width)) return UINT64_MAX;
    total = lmc__take_sample(e->k, &sample, 0, 4, src, size / width, width, order);
    for (p = 0; p < width; p++) {
        const uint32_t *const counts = lmc__count_list(e, sample.planes.row[p], sample.n);
        bits += lmc__min64(lmc__entropy(counts, (uint32_t)total) + 128, total * 8);
    }
    e->stack.top = top;
    return (bits << 10) / (total * width);
}

/* For LMC_AUTO: sets the width and orders whose planes have the least order-0 entropy in a sample.
 * A larger width is chosen only if it is better by a 128th, because a width that is too large costs
 * more than one that is too small. The order of integers is tried only for the best width. */
static void lmc__guess_width(lmc__encoder *e, lmc__block *block)
{
    static const enum lmc__order orders[] = {LMC__ORDER_NONE, LMC__ORDER_FLOAT};
    const uint8_t *const src = block->src;
    const size_t size = block->n * block->width;
    uint64_t best = UINT64_MAX;
    unsigned w, i;
    for (w = 1; w <= 8 && size % w == 0; w *= 2)
        for (i = 0; i <= (w > 1); i++) {
            const uint64_t bits = lmc__try_elements(e, src, size, w, orders[i]);
            if (bits >= best - (best >> 7)) continue;
            best = bits;
            block->width = w;
            block->own = orders[i];
        }
    w = block->width;
    if (w > 1 && lmc__try_elements(e, src, size, w, LMC__ORDER_INTEGER) < best - (best >> 7))
        block->own = LMC__ORDER_INTEGER;
    block->order = block->own == LMC__ORDER_FLOAT ? LMC__ORDER_FLOAT : LMC__ORDER_INTEGER;
    block->n = size / w;
}

/* == codec/put_gaps.h ========================================================================== */

/* Writes a mask of few ones as the gaps between them (spec 6.3), which get_gaps.h reads.
 *
 *     mask      0 0 0 0 0 1 0 1 0 0 0 0 0 0 0 0 0 1 0 ...
 *     gaps      5, 1, 9                    zeros before each one
 *     s = 2     low parts 1, 1, 1          in two bits each: 01 01 01
 *               quotients 1, 0, 2          in zeros, then a one: 01 1 001
 *
 * If bits are independent, and one bit in m is 1, Golomb's code with parameter m ln 2 is the best
 * code for single gaps (Gallager and Van Voorhis, 1975). Rice's restriction to powers of two costs
 * up to 1.7 % and saves a division. Unlike a frozen tree, gaps take no bytes for nodes: only 3
 * bytes, and the bits of each gap. */

/* Chooses s for k ones in n bits. s and s + 1 cost the same if one bit in 2.08 * 2^s + 0.5 is 1,
 * where 2.08 = 1 / ln(golden ratio) (Kiely, 2004). 123 / 256 is 1 / 2.08. */
LMC__INLINE unsigned lmc__choose_gap_shift(size_t n, size_t k)
{
    unsigned s = 0;
    while (s < 21 && (uint64_t)(2 * n - k) * 123 > ((uint64_t)k * 512) << s) s++;
    return s;
}

/* Bytes of the gaps of k > 0 ones, without the mode byte. ones: their positions, ascending. */
static size_t lmc__count_gaps(const uint32_t *ones, size_t k, unsigned s)
{
    size_t quotients = ones[0] >> s, i;
    for (i = 1; i < k; i++) quotients += (ones[i] - ones[i - 1] - 1) >> s;
    return 3 + (k * s + 7) / 8 + (quotients + k + 7) / 8;
}

static void lmc__put_gaps(uint8_t *out, size_t size, const uint32_t *ones, size_t k, unsigned s)
{
    uint8_t *low = out + 3, *const quotients = low + (k * s + 7) / 8;
    uint64_t bits = 0;   /* of low parts */
    unsigned n_bits = 0; /* of these, below 8 */
    size_t at = 0 /* bit of quotients */, next = 0, i;
    out[0] = (uint8_t)k;
    out[1] = (uint8_t)(k >> 8);
    out[2] = (uint8_t)(k >> 16);
    memset(quotients, 0, (size_t)(out + size - quotients));
    for (i = 0; i < k; i++) {
        const size_t gap = ones[i] - next;
        next = (size_t)ones[i] + 1;
        bits |= (uint64_t)(gap & (((size_t)1 << s) - 1)) << n_bits;
        for (n_bits += s; n_bits >= 8; n_bits -= 8, bits >>= 8) *low++ = (uint8_t)bits;
        at += gap >> s;
        quotients[at / 8] |= (uint8_t)(1u << (at & 7));
        at++;
    }
    if (n_bits) *low = (uint8_t)bits;
}
#endif /* LMC_NO_ENCODER */

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

/* == codec/put_list.h ========================================================================== */

/* Writes a list of bytes (spec 6), which get_list.h reads: raw, a constant, or a tree of masks.
 *
 * A tree is written by partitioning. The list is mapped to ranks (tree.h). At each node, the kernel
 * partition makes a mask, one bit for each element, and the lists of the elements that go left and
 * right. The mask is written; then both lists are written in the same way. A child's n is the
 * number of ones or zeros in its parent's mask, so it is not stored.
 *
 * The bytes of a mask with few ones, or with few zeros, can be compressed again. Then the mask is
 * *nested*: its bytes are a list, coded by the same recursion with a frozen tree (tree.h). Masks of
 * that tree may be nested, too.
 *
 * Functions here return 0 if the output would go beyond e->end. Then the output is useless, and the
 * list is overwritten. They also return 0 if the list has a symbol without a code and there is no
 * escape, because elements changed after they were counted (put_block.h). Such a symbol's rank is
 * above those of all leaves: it goes right at each node, and is found at the last leaf. */

#ifndef LMC_NO_ENCODER
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n);

/* 1 if nesting a mask probably saves enough bits for the time that nesting takes (cost.h). A nested
 * mask takes about n / 200 bits more than its entropy. The bytes of a short mask do not reach all
 * nodes of the tree: one node for eight bytes is counted. */
static int lmc__is_worth_nesting(size_t n, size_t ones, unsigned level, uint32_t worth)
{
    const uint64_t information =
        (uint64_t)n * lmc__log2((uint32_t)n) -
        (uint64_t)ones * lmc__log2((uint32_t)(ones ? ones : 1)) -
        (uint64_t)(n - ones) * lmc__log2((uint32_t)(n > ones ? n - ones : 1));
    const uint64_t bits = (information >> 16) + n / 200;
    const size_t size = n / 8, nodes = lmc__min(lmc__frozen_nodes[level], size / 8);
    return bits < n && (n - bits) * worth > (uint64_t)size * lmc__frozen_time[level] +
                                                (uint64_t)nodes * LMC__NODE_TIME + LMC__NEST_TIME;
}

/* The level of the frozen tree (spec 6.4) for a mask of n bits, of which `rarer` are the rarer bit.
 * From level 2 on, the level is chosen whose probability has the nearest logarithm. The limits of
 * levels 0 and 1 are where the codes of two levels are equally long (spec/frozen_trees.py). */
static unsigned lmc__choose_level(size_t rarer, size_t n)
{
    static const uint16_t border[LMC__FROZEN_LEVELS - 1] = {
        25690, 20289,                               /* 0.392, 0.310; in 1/65536 */
        13777, 9742,  6889, 4871, 3444, 2436, 1722, /* 2^-2.25, 2^-2.75, ... 2^-5.25 */
    };
    unsigned level = 0;
    while (level < LMC__FROZEN_LEVELS - 1 && (uint64_t)rarer << 16 < (uint64_t)n * border[level])
        level++;
    return level;
}

/* Writes the nested code of a mask of size bytes to `code`, which has room for size bytes. Returns
 * its size, or `size` if it would not be smaller. list and spare: lists of `size` bytes. The mask
 * may already be at e->out, and must stay there if its code is not smaller: so e->out is set to
 * `code` meanwhile. */
static size_t lmc__nest_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t size,
                             unsigned level, unsigned polarity, uint8_t *code, uint8_t *list,
                             uint8_t *spare)
{
    lmc__tree *const tree = &e->scratch->trees[nesting + 1];
    uint8_t *const out = e->out, *const end = e->end;
    size_t coded = size;
    unsigned i;
    lmc__tree_set_frozen(tree, level, polarity ? 0xFF : 0);
    for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
    e->k->map(list, mask, size, tree->rank);
    e->out = code;
    e->end = code + size - 1; /* it must save a byte */
    if (lmc__put_node(e, lmc__root_of(tree, nesting + 1), list, spare, size))
        coded = (size_t)(e->out - code);
    e->out = out;
    e->end = end;
    return coded;
}

/* Writes a mask of n bits, `ones` of them set, to e->out, where it may already be. With a mode byte
 * (lmc__has_mode) it may be nested. Modes: 0 raw; 1 + 2 * level + polarity nested. */
static int lmc__put_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                         size_t ones)
{
    const size_t size = (n + 7) / 8, mode_size = lmc__has_mode(nesting, n) ? 1 : 0;
    uint8_t *const top = e->stack.top;
    size_t best_size = size;
    unsigned mode = 0;
    if (mode_size) {
        const unsigned polarity = ones > n - ones,
                       level = lmc__choose_level(polarity ? n - ones : ones, n);
        if (lmc__is_worth_nesting(n, ones, level, e->worth)) {
            uint8_t *const list = lmc__push_list(&e->stack, size);
            uint8_t *const spare = lmc__push_list(&e->stack, size);
            uint8_t *const code = lmc__push_list(&e->stack, size);
            if (code) /* there always is room (workspace.h); if not, raw is correct */
                best_size =
                    lmc__nest_mask(e, nesting, mask, size, level, polarity, code, list, spare);
            if (best_size < size) {
                mask = code;
                mode = 1 + 2 * level + polarity;
            }
        }
    }
    e->stack.top = top;
    if (mode_size + best_size > (size_t)(e->end - e->out)) return 0;
    if (mode_size) *e->out = (uint8_t)mode;
    e->out += mode_size;
    if (mask != e->out) memcpy(e->out, mask, best_size);
    e->out += best_size;
    return 1;
}

/* The mask of a class is written as gaps if at most one bit in 2^LMC__GAPS_RARE_SHIFT is the rarer
 * one, and gaps are smaller than the mask. If the mask has at most LMC__GAPS_FEW bits, gaps are
 * also tried, and the smallest form is kept. */
#define LMC__GAPS_RARE_SHIFT 4u
#define LMC__GAPS_FEW ((size_t)1 << 15)

/* Makes a mask of n bits from the positions of its k ones; NULL if there is no room. */
static const uint8_t *lmc__make_mask(lmc__encoder *e, const uint32_t *ones, size_t n, size_t k)
{
    uint8_t *const mask = lmc__push_list(&e->stack, (n + 7) / 8);
    size_t i;
    if (mask) memset(mask, 0, (n + 7) / 8);
    for (i = 0; mask && i < k; i++) mask[ones[i] / 8] |= (uint8_t)(1u << (ones[i] & 7));
    return mask;
}

/* Writes the mask of a class of n elements, k of them coded. ones: positions of the mask's ones.
 * mask or ones may be NULL, but not both. Mode 21 + 2 * s + polarity: gaps (spec 6.3). */
static int lmc__put_class_mask(lmc__encoder *e, const uint8_t *mask, const uint32_t *ones, size_t n,
                               size_t k)
{
    const size_t size = (n + 7) / 8, rarer = lmc__min(k, n - k);
    const unsigned polarity = k > n - k, s = lmc__choose_gap_shift(n, rarer);
    const int is_rare = rarer <= n >> LMC__GAPS_RARE_SHIFT,
              may_be_gaps = lmc__has_mode(0, n) && rarer &&
                            (is_rare || (n <= LMC__GAPS_FEW && rarer <= n / 3));
    uint8_t *const start = e->out, *const top = e->stack.top;
    size_t gaps = SIZE_MAX;
    int fits = 0;
    if (!mask && polarity) mask = lmc__make_mask(e, ones, n, k);
    if (may_be_gaps && (polarity || !ones)) {
        uint32_t *const places = lmc__push_numbers(&e->stack, rarer);
        if (!places || !mask) return 0;
        (void)lmc__list_ones(places, rarer, mask, n, polarity ? UINT64_MAX : 0);
        ones = places;
    }
    if (may_be_gaps) gaps = lmc__count_gaps(ones, rarer, s);
    if (!is_rare || gaps >= size) {
        if (!mask) mask = lmc__make_mask(e, ones, n, k);
        fits = mask && lmc__put_mask(e, 0, mask, n, k);
    }
    if (gaps < size && (!fits || gaps < (size_t)(e->out - start))) {
        e->out = start;
        fits = gaps < (size_t)(e->end - start);
        if (fits) {
            *e->out = (uint8_t)(LMC__MASK_GAPS + 2 * s + polarity);
            lmc__put_gaps(e->out + 1, gaps, ones, rarer, s);
            e->out += gaps + 1;
        }
    }
    e->stack.top = top;
    return fits;
}

/* Writes a partitioned inner node: its mask, which may already be in the output, and its children.
 * left and right: their two lists, each with room for n.
 *
 * Two buffers are enough for a whole tree. The left child overwrites its list, and its spare is the
 * free part of `right`. Then all of `left` is free, and is the right child's spare.
 *
 *     left    |  n - n_right elements  | free         |
 *     right   |  n_right elements      | left's spare |      while the left child is coded
 *
 *     left    |  right's spare                        |
 *     right   |  n_right elements      | free         |      while the right child is coded
 *
 * Kernels may write LMC__PAD bytes behind a list. They may do so here: behind the left child's
 * elements is free room, behind its spare the slack of `right`. */
static int lmc__put_sides(lmc__encoder *e, lmc__node node, lmc__children children,
                          const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    return lmc__put_mask(e, node.nesting, mask, n, n_right) &&
           lmc__put_node(e, children.left, left, right + n_right, n - n_right) &&
           lmc__put_node(e, children.right, right, left, n_right);
}

/* 1 if the node has the tree's last leaf, and the tree has neither an escape nor a code for each
 * byte. Only such a node can have symbols without a code. */
LMC__INLINE int lmc__may_have_uncoded(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf == tree->n_leaves && tree->escape == tree->n_leaves &&
           tree->n_leaves < 256;
}

/* 1 if the list has only ranks of leaves. */
static int lmc__are_coded(const lmc__tree *tree, const uint8_t *list, size_t n)
{
    size_t i;
    unsigned highest = 0;
    for (i = 0; i < n; i++) highest = list[i] > highest ? list[i] : highest;
    return highest < tree->n_leaves;
}

/* 1 if the node's list is known without reading it: all of it is one symbol. */
LMC__INLINE int lmc__is_known(const lmc__tree *tree, lmc__node node)
{
    return lmc__is_one_symbol(tree, node) && !lmc__may_have_uncoded(tree, node);
}

/* Writes a node of e->scratch->trees[node.nesting]. list: ranks of its n elements, overwritten;
 * spare: a list of n.
 *
 * What is written (spec 6.2): nothing if there are no elements or one symbol; for the escape, the
 * symbols, mapped back from ranks; for a flat node, bit planes; else a mask and two children. The
 * partition writes the mask to its place in the output. Only if it does not fit there, the mask is
 * made on the stack: a nested mask may fit. A child that is one symbol needs no list.
 *
 * Recursion is at most 15 deep in each of up to three trees. Time is O(n) for each level of the
 * tree, so at most 15 n; for lists with few frequent symbols little more than n. */
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n)
{
    const lmc__tree *const tree = &e->scratch->trees[node.nesting];
    const size_t room = (size_t)(e->end - e->out), row = (n + 7) / 8;
    lmc__children children;
    unsigned flat_depth;
    size_t n_right, mode_size;
    uint8_t *mask, *const top = e->stack.top;
    int fits;

    if (n == 0 || lmc__is_known(tree, node)) return 1;
    flat_depth = lmc__get_flat_depth(tree, node);
    if ((flat_depth || lmc__is_one_symbol(tree, node)) && lmc__may_have_uncoded(tree, node) &&
        !lmc__are_coded(tree, list, n))
        return 0;
    if (lmc__is_one_symbol(tree, node)) return 1;
    if (node.end_leaf - node.first_leaf == 1) { /* the escape: the symbols themselves */
        if (n > room) return 0;
        e->k->map(e->out, list, n, tree->symbol);
        e->out += n;
        return 1;
    }
    if (flat_depth) {
        if (flat_depth * row > room) return 0;
        e->k->flatten(e->out, list, n, node.first_leaf, flat_depth);
        e->out += flat_depth * row;
        return 1;
    }
    children = lmc__get_children(tree, node);
    mode_size = lmc__has_mode(node.nesting, n) ? 1 : 0;
    mask = e->out + mode_size;
    if (mode_size + row > room) { /* it may fit if it is nested */
        if (!mode_size || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, lmc__is_known(tree, children.left) ? NULL : list,
                              lmc__is_known(tree, children.right) ? NULL : spare, list, n,
                              children.right.first_leaf);
    fits = lmc__put_sides(e, node, children, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* Writes the header of a tree (spec 6.1): mode byte, range of symbols that have a code, and four
 * bits for the length of each code, then of the escape. */
static int lmc__put_tree_header(lmc__encoder *e, const lmc__plan *plan)
{
    const unsigned count = plan->last - plan->first + 1,
                   n_fields = count + (plan->escape_length ? 1 : 0);
    const size_t size = 3 + (n_fields + 1) / 2;
    uint8_t *const o = e->out;
    unsigned i;
    if (size > (size_t)(e->end - o)) return 0;
    o[0] = plan->escape_length ? LMC__PLANE_TREE_ESCAPE : LMC__PLANE_TREE;
    o[1] = (uint8_t)plan->first;
    o[2] = (uint8_t)(count - 1);
    memset(o + 3, 0, size - 3);
    for (i = 0; i < n_fields; i++) {
        unsigned length = i < count ? plan->lengths[plan->first + i] : plan->escape_length;
        o[3 + i / 2] = (uint8_t)(o[3 + i / 2] | length << 4 * (i & 1));
    }
    e->out += size;
    return 1;
}

/* Makes the tree of a plan, with ranks. Returns 0 if the plan is no tree, which cannot happen. */
static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* Writes a list of n bytes as a tree, with mode byte. The lists row and spare are overwritten. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, lmc__root_of(tree, 0), row, spare, n);
}

/* As lmc__put_tree, for a plane whose root the kernel split_root has partitioned by the ranks of
 * e->scratch->root_tree, to root->mask, row and spare. */
static int lmc__put_root(lmc__encoder *e, const lmc__plan *plan, const lmc__parted *root,
                         uint8_t *row, uint8_t *spare, size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    lmc__node node;
    *tree = e->scratch->root_tree;
    node = lmc__root_of(tree, 0);
    return lmc__put_tree_header(e, plan) &&
           lmc__put_sides(e, node, lmc__get_children(tree, node), root->mask, row, spare, n,
                          root->n_right);
}

static int lmc__put_constant(lmc__encoder *e, uint8_t value)
{
    if (e->end - e->out < 2) return 0;
    e->out[0] = LMC__PLANE_CONSTANT;
    e->out[1] = value;
    e->out += 2;
    return 1;
}

static int lmc__put_raw(lmc__encoder *e, const uint8_t *row, size_t n)
{
    if ((size_t)(e->end - e->out) < n + 1) return 0;
    e->out[0] = LMC__PLANE_RAW;
    memcpy(e->out + 1, row, n);
    e->out += n + 1;
    return 1;
}

/* Results of lmc__put_planned. SPOILED: the tree is longer than the list, because the plan comes
 * from a sample. e->out is unchanged, but the row is overwritten: the caller makes it again from
 * the elements, and writes it by lmc__put_raw. */
enum lmc__put { LMC__PUT_NO_ROOM, LMC__PUT_DONE, LMC__PUT_SPOILED };

/* Writes a list of n bytes as its plan says. The lists row and spare are overwritten. root: as for
 * lmc__put_root, or NULL. A tree must be shorter than raw, which takes n + 1 bytes with its mode.
 * It checks whether a list is really constant: a sample may be wrong, or elements have changed. */
static enum lmc__put lmc__put_planned(lmc__encoder *e, enum lmc__choice choice,
                                      const lmc__plan *plan, const lmc__parted *root, uint8_t *row,
                                      uint8_t *spare, size_t n)
{
    uint8_t *const start = e->out, *const end = e->end;
    int fits;
    if ((choice == LMC__CHOOSE_CONSTANT || (choice == LMC__CHOOSE_TREE && plan->is_one_symbol)) &&
        lmc__is_constant(row, n))
        return lmc__put_constant(e, row[0]) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    if (choice != LMC__CHOOSE_TREE)
        return lmc__put_raw(e, row, n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    e->end = start + lmc__min((size_t)(end - start), n);
    fits =
        root ? lmc__put_root(e, plan, root, row, spare, n) : lmc__put_tree(e, plan, row, spare, n);
    e->end = end;
    if (fits) return LMC__PUT_DONE;
    e->out = start;
    return LMC__PUT_SPOILED;
}

/* Writes a list of n > 0 bytes in the best way, without changing row. work and spare are lists;
 * sample: as quarters of lmc__choose_list. */
static int lmc__put_list(lmc__encoder *e, const uint8_t *row, uint8_t *work, uint8_t *spare,
                         size_t n, unsigned sample)
{
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(e, plan, row, n, sample);
    if (choice == LMC__CHOOSE_CONSTANT) return lmc__put_constant(e, row[0]);
    if (choice == LMC__CHOOSE_TREE) {
        enum lmc__put put;
        memcpy(work, row, n);
        put = lmc__put_planned(e, choice, plan, NULL, work, spare, n);
        if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    }
    return lmc__put_raw(e, row, n);
}

/* == codec/plan_zeros.h ======================================================================== */

/* Whether a block's zeros are coded apart (put_zeros.h), by a sample. */

/* Zeros are coded apart if more than this part of the elements is zero. */
#define LMC__ZEROS_ONE_IN 64u
/* Bits of the headers of a mask's tree, and of lists. */
#define LMC__ZEROS_HEADERS 1024u

/* Sets the mask of n elements, in planes: a bit is 1 unless the element is a zero. any: a list for
 * the work. Returns the number of ones. */
static size_t lmc__mark_others(const lmc__kernels *k, uint8_t *mask, uint8_t *any,
                               const lmc__planes *planes, size_t n, const lmc__block *block)
{
    const uint64_t sign = block->own == LMC__ORDER_FLOAT ? LMC__ONES8 : 0;
    size_t i;
    unsigned p;
    for (i = 0; i < n; i += 8) {
        uint64_t bits = lmc__load64(planes->row[0] + i) & ~sign;
        for (p = 1; p < block->width; p++) bits |= lmc__load64(planes->row[p] + i);
        lmc__store64(any + i, bits);
    }
    return k->partition(mask, NULL, NULL, any, n, 1);
}

/* Bits of `total` decisions, of which k are one way, at their entropy. */
static uint64_t lmc__decision_bits(uint32_t k, uint32_t total)
{
    uint32_t counts[256] = {0};
    counts[0] = k;
    counts[1] = total - k;
    return lmc__entropy(counts, total);
}

/* Whether zeros apart are worth their time, by a sample of n elements, in planes. A block without
 * zeros is recognised by the counts of its top plane, so this is not called for it. Times are those
 * of partitioning and merging each plane once more. */
static int lmc__are_zeros_worth(lmc__encoder *e, const lmc__planes *planes, size_t n,
                                const lmc__block *block)
{
    uint8_t *const top = e->stack.top, *const mask = lmc__push_list(&e->stack, (n + 7) / 8),
                   *const any = lmc__push_list(&e->stack, n);
    uint32_t counts[256], n_zeros, n_negative = 0;
    uint64_t as_planes = 0, apart, time;
    size_t i;
    unsigned p;
    e->stack.top = top;
    if (!mask || !any) return 0;
    n_zeros = (uint32_t)(n - lmc__mark_others(e->k, mask, any, planes, n, block));
    if (n_zeros <= n / LMC__ZEROS_ONE_IN || n_zeros == n) return 0;
    for (i = 0; i < n; i++) n_negative += any[i] == 0 && planes->row[0][i];
    apart = lmc__decision_bits(n_zeros, (uint32_t)n) + lmc__decision_bits(n_negative, n_zeros);
    for (p = 0; p < block->width; p++) {
        memset(counts, 0, sizeof counts);
        lmc__count_bytes(counts, planes->row[p], n);
        as_planes += lmc__estimate_plane(counts, n);
        counts[0] -= n_zeros - (p ? 0 : n_negative);
        counts[1] -= p ? 0 : n_negative;
        apart += lmc__estimate_plane(counts, n - n_zeros);
    }
    apart += LMC__ZEROS_HEADERS * n / block->n + as_planes / LMC__MIN_SAVING;
    time = (uint64_t)(block->width * lmc__merge_time[1]) * n;
    return apart < as_planes && (as_planes - apart) * e->worth > time;
}

/* == codec/plan_planes.h ======================================================================= */

/* Chooses how to code each plane of a block without a prediction, by a sample. From level MAX on
 * all bytes of the top plane are counted, because this plane saves most. */

/* The counts of the top plane of all elements. All planes are split, which is faster than to pick
 * the top bytes one by one. NULL if there is no room, which cannot happen (workspace.h). */
static const uint32_t *lmc__count_top(lmc__encoder *e, const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__planes planes;
    const uint32_t *counts;
    if (!lmc__push_planes(e, &planes, block->n, block->width)) return NULL;
    e->k->split(&planes, block->src, block->n, block->width, block->own);
    counts = lmc__count_list(e, planes.row[block->width - 1], block->n);
    e->stack.top = top;
    return counts;
}

/* Bytes of fp8 and int8 have some 200 symbols, for which a usual sample is too small. From this
 * size on, a block of bytes has a *long sample*: an eighth of the block, but at least 16384. */
#define LMC__LONG_SAMPLE_FROM ((size_t)1 << 15)

/* Counts the long sample of a block of bytes instead of what was counted. Returns its size, or 0 if
 * there is no room. Its runs begin where those of the usual sample do. They are at most half a step
 * long: the last one begins in the first half of its step, so it ends within the block. */
static uint32_t lmc__count_long_sample(lmc__encoder *e, uint32_t counts[256],
                                       const lmc__block *block)
{
    const size_t step = block->n / LMC__SAMPLE_RUNS, run = step < 1024 ? 128 : step / 8,
                 total = run * LMC__SAMPLE_RUNS;
    uint8_t *const top = e->stack.top, *const sample = lmc__push_list(&e->stack, total);
    if (!sample) return 0;
    lmc__gather_runs(sample, block->src, block->n, 1, run, 0, 4);
    e->stack.top = top;
    memset(counts, 0, 256 * sizeof *counts);
    lmc__count_bytes(counts, sample, total);
    return (uint32_t)total;
}

/* A sample of weights has as many negative as positive elements, but for chance. If its counts say
 * so, those of a number and of its negation are added up, which is as good as a sample of twice the
 * size. Counts a and b differ by chance if (a - b)^2 / (a + b) is about 1 in the mean of all pairs;
 * 3/2 is allowed. Returns the new total. */
static uint32_t lmc__fold_signs(uint32_t counts[256], enum lmc__order order, uint32_t total)
{
    const int is_float = order == LMC__ORDER_FLOAT; /* else two's complement */
    uint64_t chi = 0;                               /* in 1/16 */
    unsigned s, pairs = 0;
    for (s = 1; s < 128; s++) {
        const uint64_t a = counts[s], b = counts[is_float ? 128 + s : 256 - s];
        if (a + b == 0) continue;
        chi += (a - b) * (a - b) * 16 / (a + b);
        pairs++;
    }
    if (chi > pairs * (uint64_t)24) return total;
    counts[0] *= 2;
    counts[128] *= 2;
    for (s = 1; s < 128; s++) {
        const unsigned negative = is_float ? 128 + s : 256 - s;
        counts[s] = counts[negative] = counts[s] + counts[negative];
    }
    return 2 * total;
}

/* The first part of a sample is enough for planes with up to this number of symbols. */
#define LMC__FIRST_PART_BELOW 32u

/* Chooses by as little of a sample as possible. One quarter is enough to find most raw planes, and
 * the first part for planes of few symbols. The second part is used only if some plane needs it.
 * The parts are halves of the sample; at level FAST quarters. Returns 0 if there is no room.
 *
 *     split quarters 0, 1 -> count quarter 0 -> raw?  enough
 *                         -> count quarter 1 -> up to 32 symbols?  enough
 *     split quarters 2, 3 -> count both, of planes with more symbols; the long sample of bytes
 *
 * A block of up to 8192 elements is counted as a whole, as the first quarter. The same counts find
 * whether there are zeros: then the first quarter says whether they are coded apart. */
static int lmc__choose_by_sample(lmc__encoder *e, enum lmc__choice choice[8], int *zeros_apart,
                                 const lmc__block *block)
{
    const unsigned width = block->width, sampled = lmc__get_effort(block->level)->sample,
                   part = sampled ? sampled / 2 : 2; /* quarters in each part */
    const size_t n = block->n;
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, first, all;
    unsigned p, wants_all = 0; /* a bit for each plane */
    const int may_be_long = width == 1 && n >= LMC__LONG_SAMPLE_FROM && sampled == 4;
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    first = lmc__take_sample(e->k, &sample, 0, part, block->src, n, width, block->own);
    quarter = sample.n < n ? first / part : first;
    for (p = 0; p < width; p++) {
        e->scratch->plans[p].bits = 8 * (uint64_t)n;
        lmc__count_bytes(counts[p], sample.planes.row[p], quarter);
        choice[p] =
            lmc__is_raw(counts[p], (uint32_t)quarter, 7) ? LMC__CHOOSE_RAW : LMC__CHOOSE_TREE;
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        lmc__count_bytes(counts[p], sample.planes.row[p] + quarter, first - quarter);
        if (lmc__count_symbols(counts[p]) > LMC__FIRST_PART_BELOW) wants_all |= 1u << p;
    }
    *zeros_apart = block->may_part_zeros && width > 1 &&
                   counts[width - 1][0] > quarter / LMC__ZEROS_ONE_IN &&
                   lmc__are_zeros_worth(e, &sample.planes, quarter, block);
    all = first;
    if (wants_all && !may_be_long && !*zeros_apart)
        all += lmc__take_sample(e->k, &sample, part, 2 * part, block->src, n, width, block->own);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        uint32_t total = (uint32_t)(has_all ? all : first);
        if (choice[p] == LMC__CHOOSE_RAW || *zeros_apart) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + first, all - first);
        if (has_all && may_be_long) {
            if ((total = lmc__count_long_sample(e, counts[p], block)) == 0) return 0;
            if (2 * (size_t)total < n) total = lmc__fold_signs(counts[p], block->order, total);
        }
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p], total, n, e->worth);
    }
    e->stack.top = top;
    return 1;
}

/* Sets choice[p] for each plane, and e->scratch->plans[p] for trees; or *zeros_apart. Returns 0
 * without room. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], int *zeros_apart,
                              const lmc__block *block)
{
    const unsigned top = block->width - 1;
    const uint32_t *counts;
    if (!lmc__choose_by_sample(e, choice, zeros_apart, block)) return 0;
    if (*zeros_apart || lmc__get_effort(block->level)->sample) return 1;
    counts = lmc__count_top(e, block);
    if (!counts) return 0;
    choice[top] =
        lmc__choose_plane(&e->scratch->plans[top], counts, (uint32_t)block->n, block->n, e->worth);
    return 1;
}

/* == codec/put_planes.h ======================================================================== */

/* Writes the payload of a block without a prediction (spec 5.1): its planes, one after another. One
 * pass over the elements (the kernel split_root) splits them, computes their CRC, and does the
 * first partition of the top plane's tree while its bytes are in registers:
 *     elements -> order -> split -> plane 0 .. w-2 ------------------> rows, coded one by one
 *              |                  -> plane w-1 -> rank -> partition -> mask, left list, right list
 *              +-> CRC
 *
 * If the first planes are raw, the split writes them to their place in the payload. With bf16 these
 * are all planes except the exponents. */

/* The planes of a block, and what is needed to make them again: coding a plane overwrites its row.
 * If its tree was too long (LMC__PUT_SPOILED), all planes are split again. */
typedef struct lmc__split_block {
    const lmc__block *block;
    lmc__planes planes;
    lmc__parted root;    /* of the top plane's tree */
    uint8_t *root_spare; /* its right list, and the left list's spare */
    int has_root;
} lmc__split_block;

/* Splits all planes and partitions the root; returns the CRC. It may be called again at any time,
 * because it only reads the elements. */
static uint32_t lmc__split_planes(const lmc__kernels *k, lmc__split_block *split)
{
    const lmc__block *const block = split->block;
    if (block->sum) *block->sum = 0;
    return k->split_root(k, &split->planes, split->has_root ? &split->root : NULL, block->src,
                         block->n, block->width, block->own, block->sum);
}

/* Lets the split begin the top plane's tree, unless its root is flat, or the plane may be constant.
 * The plane's row becomes the left list; the plane itself is then never written. Returns 0 if there
 * is no room, which cannot happen (workspace.h). */
static int lmc__begin_root(lmc__encoder *e, lmc__split_block *split, const lmc__plan *plan)
{
    lmc__tree *const tree = &e->scratch->root_tree;
    lmc__parted *const root = &split->root;
    const size_t n = split->block->n;
    lmc__children children;
    lmc__node node;
    if (plan->is_one_symbol || !lmc__tree_set_plan(tree, plan)) return 1;
    node = lmc__root_of(tree, 0);
    if (lmc__get_flat_depth(tree, node)) return 1;
    children = lmc__get_children(tree, node);
    root->plane = split->block->width - 1;
    root->table = tree->rank;
    root->split = children.right.first_leaf;
    root->mask = lmc__push_list(&e->stack, (n + 7) / 8);
    split->root_spare = lmc__push_list(&e->stack, n);
    if (root->mask == NULL || split->root_spare == NULL) return 0;
    root->left = lmc__is_known(tree, children.left) ? NULL : split->planes.row[root->plane];
    root->right = lmc__is_known(tree, children.right) ? NULL : split->root_spare;
    split->has_root = 1;
    return 1;
}

/* Returns the size of the payload, if that is smaller than the elements, as it must be (spec 5),
 * and at most cap; else 0. *crc: of the elements in the payload. *zeros_apart: 1 if zeros should be
 * coded apart instead (put_zeros.h); then it returns 0.
 *
 *   1  choose by a sample; if all planes are raw, give up: a stored block is shorter
 *   2  rows: places in the payload for the leading raw planes, lists for the others
 *   3  split all elements, with the top plane's root and the CRC
 *   4  code the planes one by one, in the order of the payload */
static size_t lmc__put_planes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                              uint32_t *crc, int *zeros_apart)
{
    const size_t n = block->n;
    const unsigned width = block->width, top = width - 1;
    const lmc__plan *const plans = e->scratch->plans;
    uint8_t *const spare = lmc__push_list(&e->stack, n);
    enum lmc__choice choice[8];
    lmc__split_block split;
    unsigned p, n_leading = 0; /* raw planes before the first other plane */

    if (spare == NULL || !lmc__choose_planes(e, choice, zeros_apart, block) || *zeros_apart)
        return 0;
    while (n_leading < width && choice[n_leading] == LMC__CHOOSE_RAW) n_leading++;
    if (n_leading == width) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    if (n_leading * (n + 1) > (size_t)(e->end - e->out)) return 0;
    split.block = block;
    split.has_root = 0;
    split.root_spare = NULL;
    for (p = 0; p < width; p++) {
        split.planes.row[p] =
            p < n_leading ? e->out + p * (n + 1) + 1 : lmc__push_list(&e->stack, n);
        if (split.planes.row[p] == NULL) return 0;
    }
    if (choice[top] == LMC__CHOOSE_TREE && !lmc__begin_root(e, &split, &plans[top])) return 0;
    *crc = lmc__split_planes(e->k, &split);
    for (p = 0; p < n_leading; p++, e->out += n + 1) e->out[0] = LMC__PLANE_RAW;
    for (; p < width; p++) {
        const int is_root = split.has_root && p == top;
        enum lmc__put put;
        put = lmc__put_planned(e, choice[p], &plans[p], is_root ? &split.root : NULL,
                               split.planes.row[p], is_root ? split.root_spare : spare, n);
        if (put == LMC__PUT_SPOILED) {
            if (p == top) split.has_root = 0;                      /* now its row is needed */
            if (lmc__split_planes(e->k, &split) != *crc) return 0; /* changed elements */
            put = lmc__put_raw(e, split.planes.row[p], n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
        }
        if (put == LMC__PUT_NO_ROOM) return 0;
    }
    return (size_t)(e->out - dst);
}

/* == codec/put_zeros.h ========================================================================= */

/* Writes the payload of a block with zeros apart (spec/zeros.md). As planes, a zero element costs a
 * symbol in each plane that is not raw, and 8 bits in each that is: pruned weights are a seventh
 * larger than they need be. Here a mask tells zeros from other elements, and each plane is two
 * lists:
 *     elements -> split -> planes 0 .. w-1 -> any bit set? -> mask
 *                                          -> partition by the mask -> zeros, others: lists
 *
 * -0 is a zero, too: pruning by a product leaves the signs. With LMC__ORDER_FLOAT the sign is the
 * lowest bit of plane 0, so only this plane's list of zeros is more than a constant. */

/* Returns the size of the payload, if that is smaller than the elements and at most cap; else 0.
 * *crc: of the elements in the payload. It reads the elements once. */
static size_t lmc__put_zeros(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             uint32_t *crc)
{
    const size_t n = block->n, mask_size = (n + 7) / 8;
    const unsigned sample = lmc__get_effort(block->level)->sample;
    const int has_signs = block->own == LMC__ORDER_FLOAT;
    uint8_t *const mask = lmc__push_list(&e->stack, mask_size),
                   *const lists = lmc__push_list(&e->stack, n + LMC__PAD),
                   *const work = lmc__push_list(&e->stack, n),
                   *const spare = lmc__push_list(&e->stack, n);
    lmc__planes planes;
    size_t n_zeros, n_others;
    unsigned p;
    if (!mask || !lists || !work || !spare || !lmc__push_planes(e, &planes, n, block->width))
        return 0;
    if (block->sum) *block->sum = 0;
    *crc =
        e->k->split_root(e->k, &planes, NULL, block->src, n, block->width, block->own, block->sum);
    n_others = lmc__mark_others(e->k, mask, spare, &planes, n, block);
    n_zeros = n - n_others;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * block->width - 1);
    if (n_zeros == 0 || n_others == 0 || !lmc__put_list(e, mask, work, spare, mask_size, sample))
        return 0;
    for (p = 0; p < block->width; p++) {
        uint8_t *const zeros = p == 0 && has_signs ? lists : NULL, *const others =
                                                                       lists + n_zeros + LMC__PAD;
        e->k->partition(mask, zeros, others, planes.row[p], n, 0);
        if (!(zeros ? lmc__put_list(e, zeros, work, spare, n_zeros, sample)
                    : lmc__put_constant(e, 0)) ||
            !lmc__put_list(e, others, work, spare, n_others, sample))
            return 0;
    }
    return (size_t)(e->out - dst);
}

/* == codec/plan_delta.h ======================================================================== */

/* Chooses, by a sample, whether and how to code a block against its prediction (spec 5.2).
 *
 * An element is coded as its *residual*: its distance from the prediction, counted in floats or
 * integers. A residual's size depends on the prediction's exponent, the *key*: weights change by
 * similar absolute amounts, and small floats are closer to each other. So elements are sorted into
 * *classes*, ranges of the key, and each class has its own trees. The decoder has the prediction,
 * so it can compute each element's class.
 *
 * At first each key is a class; then neighbours are merged. A merge saves the headers of a class,
 * and costs bits because the two distributions differ. The size of a class is estimated from its
 * residuals' *magnitudes*: small residuals are counted one by one, others by half octaves. The
 * other bits are noise, which takes the same space with any classes. */

/* A list of the changed elements, if they are few. Then the block is coded from this list alone. */
typedef struct lmc__changes {
    lmc__changed list; /* place is NULL: there is no list */
    size_t n;
    uint32_t crc; /* of all elements, if there is a list */
} lmc__changes;

/* A block that has only the changed elements of a block. */
static lmc__block lmc__changed_block(const lmc__block *block, const lmc__changes *changes)
{
    lmc__block changed = *block;
    changed.src = changes->list.now;
    changed.base = changes->list.before;
    changed.n = changes->n;
    return changed;
}

/* How to code a block against its prediction. */
typedef struct lmc__delta {
    lmc__changes changes;
    lmc__grouping grouping;
    enum lmc__order order;
    int sparse;    /* a mask says which elements have changed; only these are coded */
    uint64_t bits; /* of the delta, estimated */
    size_t border; /* bytes: if it is larger, coding without the prediction may be better */
} lmc__delta;

/* More classes than in lmc__effort make deltas that are not sparse a little smaller, but each class
 * takes time to decode. Levels FAST and DEFAULT add a class if at most a fifth of the elements has
 * changed. If the limit is then LMC__DEFAULT_CLASSES, one more class is used if it saves
 * 1/LMC__MORE_SAVING of the bits. In a sparse delta each class must save 1/2048 of the bits, or
 * 1/256 if the delta takes more than n / 16 bits. */
#define LMC__MORE_CLASSES 7u
#define LMC__MORE_SAVING 108u
#define LMC__DEFAULT_CLASSES 6u

/* Changes are listed if at most n / LMC__SPARSE_ONE_IN elements have changed. */
#define LMC__SPARSE_ONE_IN 20u

/* Elements in each run of the sample, by default: half as many as in other samples, because this is
 * faster and hardly makes deltas larger. Blocks below 32768 elements have runs of half this size:
 * they have no more room. */
#define LMC__DELTA_SAMPLE_RUN 32u

/* The bucket of a residual, a signed number that is folded to 0, 1, 2 ... Most residuals are below
 * 16, and each of these has its own bucket. Above, each octave has two buckets. Below 256 the
 * bucket comes from a table, which is faster than finding the octave. */
LMC__INLINE unsigned lmc__magnitude(uint64_t residual)
{
    static const uint8_t buckets[32] = {0,  0,  16, 17, 18, 18, 19, 19, 20, 20, 20,
                                        20, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22,
                                        22, 22, 23, 23, 23, 23, 23, 23, 23, 23};
    unsigned octave = 8;
    if (residual < 256) return residual < 16 ? (unsigned)residual : buckets[residual / 8];
#if defined(__GNUC__)
    octave = 63u - (unsigned)__builtin_clzll(residual);
#else
    while (residual >> octave > 1) octave++;
#endif
    return 16 + 2 * octave - 8 + (unsigned)(residual >> (octave - 1) & 1);
}

/* Classes while they are merged, from one for each key to a few.
 *
 *     keys       112 113 114 115 116 117 118      those that occur in the sample
 *     classes     0   1   2   3   4   5   6       at first
 *     classes     0   .   .   1   .   2   .       in the end; first keys 112, 115, 117 */
typedef struct lmc__merging {
    lmc__key_counts *classes; /* scratch->keys: of each class */
    lmc__key_counts *merged;  /* scratch->merged */
    unsigned n_classes;
    unsigned last;   /* the highest magnitude */
    int sparse;      /* all changed elements are counted, and only these are coded */
    unsigned width;  /* bytes of an element */
    size_t n, total; /* elements of the block; counted elements */
    uint64_t within; /* bits of counted residuals within half octaves */
} lmc__merging;

/* Bits of a class in a sparse delta: positions of its k changed elements among its n elements,
 * their residuals, and its threshold.
 *
 * Positions take n h(k / n) bits, where h is the binary entropy. This is computed as
 * k log2(n / k) + (k - k^2 / 2n) / ln 2: less than a thousandth too large for k < n / 8. With
 * n log n - (n - k) log (n - k) the rounding of logarithms would matter. A class without changes
 * counts 8 bytes, and n / 512 bits for its nested mask.
 *
 * The residuals' lowest plane is raw or a tree; in the planes above, only n_high elements are not
 * zero. */
static uint64_t lmc__sparse_class_bits(const lmc__merging *m, const lmc__key_counts *counts)
{
    const uint32_t n = counts->n, k = n - counts->magnitudes[0];
    const uint64_t raw = 8 + 8 * (uint64_t)k;
    uint64_t places, coded = (uint64_t)k * lmc__log2(k ? k : 1), within = 0;
    uint32_t n_high = 0;
    unsigned i, last = 1;
    if (k == 0) return 8 * 8 + n / 512;
    places = (uint64_t)k * (lmc__log2(n) - lmc__log2(k)) + (uint64_t)k * 94548 -
             (uint64_t)k * k / n * 47274;
    for (i = 1; i <= m->last; i++) {
        const uint32_t count = counts->magnitudes[i];
        if (count == 0) continue;
        last = i;
        coded -= lmc__min64(coded, (uint64_t)count * lmc__log2(count));
        if (i >= 24) n_high += count;
        if (i >= 16) within += (uint64_t)count * (i < 24 ? (i - 16) / 2 + 3 : 8);
    }
    coded = (coded >> 16) + within + 32 + 4 * (last < 16 ? last : 24);
    return ((places + places / 128) >> 16) + 8 * 6 + lmc__min64(raw, coded) +
           (m->width - 1) * (16 + lmc__min64(raw, 12 * (uint64_t)n_high));
}

/* Bits of a class with k counted elements, in the whole block: the entropy k log k - sum of c log c
 * of its magnitudes' counts c, times n / total; 28 bytes for headers; 6 bits for each symbol, of
 * which at least 40 are assumed. */
static uint64_t lmc__class_bits(const lmc__merging *m, const lmc__key_counts *counts)
{
    uint64_t bits = (uint64_t)counts->n * lmc__log2(counts->n ? counts->n : 1), magnitudes = 0;
    unsigned i, n_used = 0;
    if (m->sparse) return lmc__sparse_class_bits(m, counts);
    for (i = 0; i <= m->last; i++) {
        const uint32_t count = counts->magnitudes[i];
        if (count == 0) continue;
        magnitudes += (uint64_t)count * lmc__log2(count);
        n_used++;
    }
    bits = bits > magnitudes ? bits - magnitudes : 0; /* at most 2^13 * 13 * 2^16 */
    return (bits * m->n / m->total >> 16) + 8 * 28 + 6 * (n_used < 40 ? 40 : n_used);
}

/* Adds a class's counts to those of another class. */
static void lmc__add_counts(lmc__key_counts *sum, const lmc__key_counts *counts, unsigned last)
{
    unsigned i;
    sum->n += counts->n;
    for (i = 0; i <= last; i++) sum->magnitudes[i] += counts->magnitudes[i];
}

/* Bits saved by merging class c with the next class; negative if that costs bits. */
static int64_t lmc__saved_by_merging(const lmc__merging *m, unsigned c)
{
    memcpy(m->merged, &m->classes[c],
           offsetof(lmc__key_counts, magnitudes) + (m->last + 1) * sizeof m->merged->magnitudes[0]);
    lmc__add_counts(m->merged, &m->classes[c + 1], m->last);
    return (int64_t)(m->classes[c].bits + m->classes[c + 1].bits - lmc__class_bits(m, m->merged));
}

/* Does lmc__count_keys for one constant width. Returns the bitwise or of all residuals. */
LMC__INLINE uint64_t lmc__count_keys_of(lmc__merging *m, const lmc__block *sample, unsigned width)
{
    lmc__key_counts *const classes = m->classes;
    const uint8_t *const src = sample->src, *const base = sample->base;
    const enum lmc__order order = sample->order;
    const size_t n = sample->n;
    uint64_t all = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t b = lmc__load_element(base, i, width);
        const uint64_t residual = lmc__residual(lmc__load_element(src, i, width), b, width, order);
        lmc__key_counts *const counts = &classes[lmc__key(b, width)];
        if (counts->n++ == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        counts->magnitudes[lmc__magnitude(residual)]++;
        all |= residual;
    }
    return all;
}

/* Counts the residuals of a sample by key and magnitude. Returns how many residuals are zero. */
static size_t lmc__count_keys(lmc__merging *m, const lmc__block *sample)
{
    uint64_t all;
    size_t n_equal = 0;
    unsigned key, i;
    m->total = sample->n;
    m->width = sample->width;
    m->within = 0;
    for (key = 0; key < 256; key++) m->classes[key].n = 0;
#define LMC__CALL(w) all = lmc__count_keys_of(m, sample, w)
    switch (sample->width) {
    case 1: LMC__CALL(1); break;
    case 2: LMC__CALL(2); break;
    case 4: LMC__CALL(4); break;
    default: LMC__CALL(8);
    }
#undef LMC__CALL
    m->last = lmc__magnitude(all);
    for (key = 0; key < 256; key++) {
        const lmc__key_counts *const counts = &m->classes[key];
        if (counts->n == 0) continue;
        n_equal += counts->magnitudes[0];
        for (i = 16; i <= m->last; i++)
            m->within += (uint64_t)counts->magnitudes[i] * ((i - 16) / 2 + 3);
    }
    return n_equal;
}

/* Counts all changed elements of a sparse block, instead of those in its sample. The number of
 * elements with each key is still estimated by the sample. */
static void lmc__count_changes(lmc__merging *m, const lmc__block *changed)
{
    uint32_t n_of[256];
    unsigned key;
    for (key = 0; key < 256; key++)
        n_of[key] = (uint32_t)((uint64_t)m->classes[key].n * m->n / m->total);
    (void)lmc__count_keys(m, changed);
    for (key = 0; key < 256; key++) {
        lmc__key_counts *const counts = &m->classes[key];
        const uint32_t n_changed = counts->n;
        if (n_changed == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        if (n_of[key] > n_changed) counts->n = n_of[key];
        counts->magnitudes[0] = counts->n - n_changed;
    }
    m->total = m->n;
    m->within = 0; /* lmc__sparse_class_bits counts these bits */
}

/* Merges class c with the next class, and closes the gap in the array. Then computes what merging c
 * with its new neighbours would save. */
static void lmc__merge_classes(lmc__merging *m, unsigned c)
{
    lmc__key_counts *const merged = &m->classes[c], *const next = merged + 1;
    merged->bits = merged->bits + next->bits - (uint64_t)merged->saved;
    lmc__add_counts(merged, next, m->last);
    m->n_classes--;
    memmove(next, next + 1, (m->n_classes - c - 1) * sizeof *next);
    if (c + 1 < m->n_classes) merged->saved = lmc__saved_by_merging(m, c);
    if (c > 0) merged[-1].saved = lmc__saved_by_merging(m, c - 1);
}

/* Finds the best way to merge a few classes to at most `most`, by dynamic programming. Sets their
 * new number and first keys; returns the bits of all classes. Each class above max_classes must
 * save 1/LMC__MORE_SAVING of the bits; in a sparse delta each class must save something.
 *
 *     cost[i][j]     of classes i .. j as one class
 *     best[k][j]     of classes 0 .. j as k + 1 classes, the last of which begins at from[k][j] */
#define LMC__FEW_CLASSES 12u
static uint64_t lmc__cut_classes(lmc__merging *m, unsigned max_classes, unsigned most)
{
    uint64_t cost[LMC__FEW_CLASSES][LMC__FEW_CLASSES], best[LMC__FEW_CLASSES][LMC__FEW_CLASSES];
    uint8_t from[LMC__FEW_CLASSES][LMC__FEW_CLASSES], begin[LMC__FEW_CLASSES];
    const unsigned n = m->n_classes;
    unsigned i, j, k, chosen = 0;
    for (i = 0; i < n; i++) {
        memcpy(m->merged, &m->classes[i], sizeof *m->merged);
        cost[i][i] = m->classes[i].bits;
        for (j = i + 1; j < n; j++) {
            lmc__add_counts(m->merged, &m->classes[j], m->last);
            cost[i][j] = lmc__class_bits(m, m->merged);
        }
    }
    for (j = 0; j < n; j++) {
        best[0][j] = cost[0][j];
        from[0][j] = 0;
    }
    for (k = 1; k < n && k < most; k++) {
        uint64_t bits, least = 0;
        for (j = k; j < n; j++) {
            best[k][j] = UINT64_MAX;
            for (i = k; i <= j; i++) {
                bits = best[k - 1][i - 1] + cost[i][j];
                if (bits >= best[k][j]) continue;
                best[k][j] = bits;
                from[k][j] = (uint8_t)i;
            }
        }
        bits = best[k][n - 1];
        if (m->sparse) least = bits >> (bits > m->n / 16 ? 8 : 11);
        else if (k >= max_classes) least = bits / LMC__MORE_SAVING;
        if (bits + (k - chosen) * least < best[chosen][n - 1]) chosen = k;
    }
    m->n_classes = chosen + 1;
    for (k = chosen + 1, j = n - 1; k-- > 0; j = begin[k] - 1u) begin[k] = from[k][j];
    for (k = 0; k <= chosen; k++) m->classes[k].first_key = m->classes[begin[k]].first_key;
    return best[chosen][n - 1];
}

/* Finds the best classes. m->classes: counts by key of a sample in which n_equal residuals are
 * zero. Sets all members of delta except changes and border.
 *
 * While more than LMC__FEW_CLASSES are left, it merges the two neighbours whose merge saves most or
 * costs least: at most 255 merges, of O(LMC__MAGNITUDES) each. Then it calls lmc__cut_classes. The
 * first class begins at key 0, so only the others have thresholds (spec 5.2). */
static void lmc__choose_classes(lmc__merging *m, lmc__delta *delta, const lmc__block *block,
                                size_t n_equal)
{
    const lmc__changes *const changes = &delta->changes;
    unsigned max_classes = block->may_group ? lmc__get_effort(block->level)->max_classes : 1u, most,
             key, i;
    m->sparse = changes->list.place != NULL;
    if (m->sparse) {
        const lmc__block changed = lmc__changed_block(block, changes);
        lmc__count_changes(m, &changed);
        max_classes = changes->n ? LMC__MAX_CLASSES : 1;
    } else if (block->may_group && n_equal * 5 >= m->total * 4 &&
               max_classes <= LMC__DEFAULT_CLASSES)
        max_classes++;
    most =
        block->may_group && max_classes == LMC__DEFAULT_CLASSES ? LMC__MORE_CLASSES : max_classes;
    for (key = 0, m->n_classes = 0; key < 256; key++) {
        if (m->classes[key].n == 0) continue;
        m->classes[key].first_key = (uint8_t)key;
        m->classes[key].bits = lmc__class_bits(m, &m->classes[key]);
        if (m->n_classes != key) m->classes[m->n_classes] = m->classes[key];
        m->n_classes++;
    }
    for (i = 0; i + 1 < m->n_classes; i++) m->classes[i].saved = lmc__saved_by_merging(m, i);
    while (m->n_classes > LMC__FEW_CLASSES) {
        unsigned best = 0;
        for (i = 1; i + 1 < m->n_classes; i++)
            if (m->classes[i].saved > m->classes[best].saved) best = i;
        lmc__merge_classes(m, best);
    }
    delta->bits = m->within * m->n / m->total + lmc__cut_classes(m, max_classes, most);
    delta->grouping.n_classes = m->n_classes;
    delta->grouping.n_natural = 0;
    for (i = 1; i < m->n_classes; i++) delta->grouping.threshold[i - 1] = m->classes[i].first_key;
    delta->order = block->order;
    delta->sparse = m->sparse && changes->n > 0;
}

/* Estimates the bits of a block of n elements without a prediction. rows: lists for the planes. The
 * delta's estimate uses the same sample, so both have similar errors. */
static uint64_t lmc__estimate_direct(lmc__encoder *e, const lmc__planes *rows,
                                     const lmc__block *sample, size_t n)
{
    const size_t total = sample->n;
    uint64_t bits = 0;
    unsigned p;
    e->k->split(rows, sample->src, total, sample->width, sample->own);
    for (p = 0; p < sample->width; p++) {
        const uint32_t *const counts = lmc__count_list(e, rows->row[p], total);
        bits += lmc__estimate_plane(counts, total);
    }
    return bits * n / total;
}

/* Takes a sample of a block and of its prediction. A block of up to 8192 elements is its own
 * sample. Returns 0 if there is no room, which cannot happen (workspace.h). */
static int lmc__take_pairs(lmc__encoder *e, lmc__block *sample, const lmc__block *block)
{
    const size_t n = block->n;
    const size_t run = n < 4 * LMC__SAMPLE_SIZE        ? LMC__DELTA_SAMPLE_RUN / 2
                       : block->level >= LMC_LEVEL_MAX ? LMC__SAMPLE_RUN
                                                       : LMC__DELTA_SAMPLE_RUN;
    uint8_t *src, *base;
    *sample = *block;
    if (n <= LMC__SAMPLE_SIZE) return 1;
    sample->n = run * LMC__SAMPLE_RUNS;
    src = lmc__push_list(&e->stack, sample->n * block->width);
    base = lmc__push_list(&e->stack, sample->n * block->width);
    if (!src || !base) return 0;
    lmc__gather_runs(src, block->src, n, block->width, run, 0, 4);
    lmc__gather_runs(base, block->base, n, block->width, run, 0, 4);
    sample->src = src;
    sample->base = base;
    return 1;
}

/* Used for elements of 4 or 8 bytes if the changes are not listed. If most residuals are zero, the
 * delta is sparse: a mask says which elements have changed. Else the lowest planes become natural
 * planes, which are not grouped, if they are noise even with the prediction: grouping would save
 * nothing. */
static void lmc__choose_layout(lmc__encoder *e, lmc__delta *delta, const lmc__planes *rows,
                               const lmc__block *sample, size_t n_equal)
{
    const unsigned width = sample->width;
    const lmc__grouping one = {1, 0, {0}};
    const lmc__delta_block block = {sample->base, sample->n, width, delta->order, &one};
    lmc__classes planes; /* of the residuals, as a single class */
    unsigned p;
    if (!sample->may_group || width <= 2) return;
    delta->sparse = n_equal > sample->n / 2;
    if (delta->sparse || delta->grouping.n_classes == 1) return;
    for (p = 0; p < width; p++) planes.row[0][p] = rows->row[p];
    (void)e->k->group(e->k, &planes, sample->src, &block);
    for (p = 0; p + 1 < width; p++) {
        const uint32_t *const counts = lmc__count_list(e, rows->row[p], sample->n);
        if (!lmc__is_raw(counts, (uint32_t)sample->n, 7)) break;
        delta->grouping.n_natural = p + 1;
    }
}

/* What the sample says: the prediction saves nothing (DIRECT), it saves at least an eighth (DELTA),
 * or put_block.h must try both ways (EITHER).
 *
 *     delta / direct, estimated    0 ........ 7/8 ........ 9/8 ........
 *                                    DELTA   |   EITHER   |   DIRECT
 *     level max                    0 .. 1/2 ..................
 *                                  DELTA  |  EITHER */
enum lmc__verdict { LMC__DIRECT, LMC__DELTA, LMC__EITHER };

/* Decides whether and how to code a block against its prediction. Both estimates come from one
 * sample and are wrong by some percent, so they decide only if they differ by an eighth. From level
 * MAX on, both ways are tried unless the delta takes less than half: so a prediction never makes a
 * block larger. */
static enum lmc__verdict lmc__plan_delta(lmc__encoder *e, lmc__delta *delta,
                                         const lmc__block *block)
{
    const int is_max = block->level >= LMC_LEVEL_MAX;
    const size_t n = block->n, room = n / LMC__SPARSE_ONE_IN;
    uint8_t *const top = e->stack.top, *behind_list;
    lmc__changes *const changes = &delta->changes;
    uint64_t direct, border;
    size_t n_equal;
    lmc__merging m;
    lmc__changed list;
    lmc__block sample;
    lmc__planes rows;
    list.place = lmc__push_numbers(&e->stack, room);
    list.now = lmc__push_list(&e->stack, room * block->width);
    list.before = lmc__push_list(&e->stack, room * block->width);
    behind_list = e->stack.top;
    if (!list.place || !list.now || !list.before || !lmc__take_pairs(e, &sample, block) ||
        !lmc__push_planes(e, &rows, sample.n, block->width))
        return LMC__DIRECT;
    m.classes = e->scratch->keys;
    m.merged = &e->scratch->merged;
    m.n = n;
    n_equal = lmc__count_keys(&m, &sample);
    memset(changes, 0, sizeof *changes);
    /* may_group: a sparse delta has Grouping, too */
    if (block->may_group && sample.n - n_equal <= sample.n / (LMC__SPARSE_ONE_IN - 4)) {
        changes->n = e->k->list_changes(e->k, &changes->crc, &list, room, block->src, block->base,
                                        n, block->width);
        if (changes->n != SIZE_MAX) changes->list = list;
    }
    direct = lmc__estimate_direct(e, &rows, &sample, n);
    lmc__choose_classes(&m, delta, block, n_equal);
    if (!changes->list.place) lmc__choose_layout(e, delta, &rows, &sample, n_equal);
    e->stack.top = changes->list.place ? behind_list : top;
    border = is_max ? direct / 2 : direct - direct / 8;
    delta->border = (size_t)(border / 8);
    if (delta->bits > direct + direct / 8 && !is_max) return LMC__DIRECT;
    return delta->bits < border ? LMC__DELTA : LMC__EITHER;
}

/* == codec/put_delta.h ========================================================================= */

/* Writes the payload of a block against its prediction (spec 5.2), in the form that plan_delta.h
 * has chosen. One pass over the elements and the base (the kernel group) computes the residuals,
 * sorts them into classes by the prediction, and splits them:
 *     elements \                                    class 0: plane 0 .. w-1 \
 *               residual -> by the key to ->        class 1: plane 0 .. w-1  } lists, coded
 *     base     /                                    ...                     /  one by one
 *
 * Natural planes are not sorted, and are raw in the payload. In a sparse delta each class has a
 * mask, in which bit i is 1 if its element i has changed, and its lists have only the changed
 * elements. The payload is: thresholds of the classes, masks, natural planes, then class by class
 * the lists of its planes. */

typedef struct lmc__grouped {
    const lmc__block *block;
    const lmc__delta *delta;
    lmc__classes lists;
    uint32_t crc;  /* of the elements that the lists were made from */
    int is_listed; /* from a list of changes; ones: their indices in each class */
    uint32_t *ones[LMC__MAX_CLASSES];
    uint8_t *masks[LMC__MAX_CLASSES]; /* else, in a sparse delta, the masks */
    size_t n_of[LMC__MAX_CLASSES];    /* elements of each class */
    size_t n_coded[LMC__MAX_CLASSES]; /* elements in the lists; the other residuals are zero */
} lmc__grouped;

/* Removes zero residuals from the lists of class c, and sets its mask: bit i is 1 if residual i is
 * kept. Kept residuals move to the front of each list.
 *
 *     residuals     0   7   0   0   3   0   0   1        mask     0 1 0 0 1 0 0 1
 *     plane p           7           3           1        list     7 3 1 */
static void lmc__drop_zeros(lmc__grouped *g, unsigned c)
{
    const size_t n = g->n_of[c];
    const unsigned width = g->block->width;
    uint8_t *const mask = g->masks[c], *const *const row = g->lists.row[c];
    size_t i, n_kept = 0;
    unsigned p;
    for (i = 0; i < n; i += 8) {
        const unsigned in_byte = (unsigned)lmc__min(8, n - i);
        uint64_t any = 0;
        unsigned bits = 0;
        for (p = 0; p < width; p++) any |= lmc__load64(row[p] + i);
        if (in_byte < 8) any &= ((uint64_t)1 << 8 * in_byte) - 1; /* not the lists' slack */
        while (any) {
            const unsigned bit = lmc__lowest_bit(any) / 8;
            any &= ~((uint64_t)255 << 8 * bit);
            bits |= 1u << bit;
            for (p = 0; p < width; p++) row[p][n_kept] = row[p][i + bit];
            n_kept++;
        }
        mask[i / 8] = (uint8_t)bits;
    }
    g->n_coded[c] = n_kept;
}

/* 1 if the indices of each class ascend and are below its number of elements. Else the prediction
 * has changed since the changes were listed. */
static int lmc__are_ranks(const lmc__grouped *g)
{
    size_t j;
    unsigned c;
    for (c = 0; c < g->delta->grouping.n_classes; c++) {
        const uint32_t *const ones = g->ones[c];
        for (j = 0; j < g->n_coded[c]; j++)
            if (ones[j] >= g->n_of[c] || (j && ones[j] <= ones[j - 1])) return 0;
    }
    return 1;
}

/* Makes the lists, and the masks of a sparse delta. Natural planes are written to their place in
 * the payload. Sets g->crc. Returns 0 if the prediction has changed: then the classes have other
 * numbers of elements than were counted. */
static int lmc__make_classes(const lmc__kernels *k, lmc__grouped *g)
{
    const lmc__changes *const changes = &g->delta->changes;
    const lmc__block block = g->is_listed ? lmc__changed_block(g->block, changes) : *g->block;
    const lmc__grouping *const grouping = &g->delta->grouping;
    const lmc__delta_block delta = {block.base, block.n, block.width, g->delta->order, grouping};
    unsigned c;
    g->crc = k->group(k, &g->lists, block.src, &delta);
    if (g->is_listed) {
        g->crc = changes->crc;
        return lmc__are_ranks(g);
    }
    for (c = 0; c < grouping->n_classes; c++)
        if (g->lists.n[c] != g->n_of[c]) return 0;
    for (c = 0; c < grouping->n_classes; c++) {
        g->n_coded[c] = g->n_of[c];
        if (g->delta->sparse) lmc__drop_zeros(g, c);
    }
    return 1;
}

/* Pushes the lists of each class, whose elements were counted. Returns 0 if there is no room, which
 * cannot happen (workspace.h). */
static int lmc__push_classes(lmc__encoder *e, lmc__grouped *g)
{
    const lmc__grouping *const grouping = &g->delta->grouping;
    unsigned c, p;
    for (c = 0; c < grouping->n_classes; c++) {
        for (p = grouping->n_natural; p < g->block->width; p++)
            if ((g->lists.row[c][p] =
                     lmc__push_list(&e->stack, g->is_listed ? g->n_coded[c] : g->n_of[c])) == NULL)
                return 0;
        if (g->is_listed) {
            if ((g->ones[c] = lmc__push_numbers(&e->stack, g->n_coded[c])) == NULL) return 0;
        } else if (g->delta->sparse &&
                   (g->masks[c] = lmc__push_list(&e->stack, (g->n_of[c] + 7) / 8)) == NULL)
            return 0;
    }
    return 1;
}

/* Writes one list of a class. If its tree is longer than the list, all lists are made again from
 * the elements; the CRC shows whether the elements are the same. Returns 0 if there is no room, or
 * if elements have changed. */
static int lmc__put_class_list(lmc__encoder *e, lmc__grouped *g, unsigned c, unsigned p,
                               uint8_t *spare)
{
    uint8_t *const row = g->lists.row[c][p];
    const size_t n = g->n_coded[c];
    uint32_t crc;
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(
        e, plan, row, n, g->delta->sparse ? 0 : lmc__get_effort(g->block->level)->sample);
    const enum lmc__put put = lmc__put_planned(e, choice, plan, NULL, row, spare, n);
    if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    crc = g->crc;
    if (!lmc__make_classes(e->k, g) || g->crc != crc) return 0; /* elements have changed */
    return lmc__put_raw(e, row, n);
}

/* Returns the size of the payload; 0 if it is not smaller than the elements, exceeds cap, or if the
 * elements or the prediction have changed meanwhile.
 *
 * A first pass over the prediction counts the elements of each class: this number is the length of
 * its lists. Classes without elements have no mask and no lists; classes without coded elements
 * have no lists. */
static size_t lmc__put_delta(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             const lmc__delta *delta, uint32_t *content_crc)
{
    const lmc__grouping *const grouping = &delta->grouping;
    const unsigned n_classes = grouping->n_classes, n_natural = grouping->n_natural;
    const lmc__changes *const changes = &delta->changes;
    const size_t n = block->n;
    uint8_t *const spare = lmc__push_list(&e->stack, n);
    lmc__grouped g;
    unsigned c, p;
    if (!spare) return 0;
    g.block = block;
    g.delta = delta;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * block->width - 1);
    if (n_classes - 1 + n_natural * n > (size_t)(e->end - e->out)) return 0;
    memcpy(e->out, grouping->threshold, n_classes - 1);
    e->out += n_classes - 1;
    g.is_listed = delta->sparse && changes->list.place;
    if (g.is_listed)
        e->k->count_classes(g.n_coded, changes->list.before, changes->n, block->width, grouping,
                            NULL);
    else e->k->count_classes(g.n_of, block->base, n, block->width, grouping, NULL);
    for (p = 0; p < n_natural; p++)
        g.lists.row[0][p] = e->out + p * n; /* their place in the payload: as such a delta is */
    e->out += n_natural * n;                /* not sparse, there are no masks before them */
    if (!lmc__push_classes(e, &g)) return 0;
    if (g.is_listed)
        e->k->rank_changes(g.n_of, g.ones, block->base, n, block->width, grouping, &changes->list,
                           changes->n);
    if (!lmc__make_classes(e->k, &g)) return 0;
    *content_crc = g.crc;
    for (c = 0; c < n_classes && delta->sparse; c++)
        if (g.n_of[c] &&
            !lmc__put_class_mask(e, g.is_listed ? NULL : g.masks[c], g.is_listed ? g.ones[c] : NULL,
                                 g.n_of[c], g.n_coded[c]))
            return 0;
    for (c = 0; c < n_classes; c++) {
        if (g.n_coded[c] == 0) continue;
        for (p = n_natural; p < block->width; p++)
            if (!lmc__put_class_list(e, &g, c, p, spare)) return 0;
    }
    return (size_t)(e->out - dst);
}

/* == codec/put_block.h ========================================================================= */

/* Encodes a block: as planes, as a delta against its prediction, or stored. It chooses the form
 * that is probably the smallest, by estimates.
 *
 * A program may change the elements while they are encoded (CONTRACT in lmc.h). The output must
 * still decode, to a mixture of old and new elements. So all of a payload, and Content_CRC, come
 * from one reading: one pass copies the elements to planes or classes, and computes the CRC of the
 * copied bytes. Other readings (samples, counts) are only for choices, and a choice can code any
 * elements. Only in a tree without an escape, a symbol that was not counted has no code: this is
 * found when the copy is coded. If the copy was overwritten and must be made again, its CRC has to
 * be the same. If either check fails, the elements have changed, and the block is stored.
 *
 *     lmc__encode_block      header; stores a block                this file
 *     lmc__encode_payload    the best of several levels            this file
 *     lmc__encode_at_level   with or without the prediction        this file
 *     lmc__put_planes        planes: choose, split, write          plan_planes.h, put_planes.h
 *     lmc__put_zeros         planes, with zeros apart              plan_zeros.h, put_zeros.h
 *     lmc__put_delta         classes: choose, group, write         plan_delta.h, put_delta.h
 *     lmc__put_planned       one list: constant, tree, raw         plan.h, put_list.h
 *
 * The bytes of a block depend only on its elements, prediction, dtype, level and number: not on the
 * tier, and not on other blocks. */

/* Encodes without the prediction, as planes, perhaps with zeros apart, in at most cap bytes and
 * fewer bytes than the elements. This and the next three functions return how the block is coded.
 * payload_size is 0 if the payload does not fit; dst is overwritten even then. */
static lmc__block_coding lmc__encode_direct(lmc__encoder *e, uint8_t *dst, size_t cap,
                                            const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__block_coding coding;
    int zeros_apart = 0;
    e->worth = block->width == 1 ? lmc__get_effort(block->level)->byte_worth
                                 : lmc__get_effort(block->level)->direct_worth;
    memset(&coding, 0, sizeof coding);
    coding.layout = LMC__LAYOUT_PLANES;
    coding.order = block->own;
    coding.payload_size = lmc__put_planes(e, dst, cap, block, &coding.content_crc, &zeros_apart);
    if (zeros_apart) {
        e->stack.top = top;
        coding.layout = LMC__LAYOUT_ZEROS;
        coding.payload_size = lmc__put_zeros(e, dst, cap, block, &coding.content_crc);
    }
    coding.has_sum = block->sum && coding.payload_size;
    e->stack.top = top;
    return coding;
}

/* As lmc__encode_direct, but against the prediction. */
static lmc__block_coding lmc__encode_delta(lmc__encoder *e, uint8_t *dst, size_t cap,
                                           const lmc__block *block, const lmc__delta *delta)
{
    uint8_t *const top = e->stack.top;
    lmc__block_coding coding;
    e->worth = lmc__get_effort(block->level)->delta_worth;
    memset(&coding, 0, sizeof coding);
    coding.layout = LMC__LAYOUT_PLANES;
    coding.order = delta->order;
    coding.is_predicted = 1;
    coding.grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? LMC__SPARSE : 0u) |
                      delta->grouping.n_natural << LMC__NATURAL_SHIFT;
    coding.payload_size = lmc__put_delta(e, dst, cap, block, delta, &coding.content_crc);
    e->stack.top = top;
    return coding;
}

/* Encodes in the smaller of two ways. lmc__plan_delta's verdict decides what is tried, so that most
 * blocks are coded only once:
 *   1  the delta, if the verdict is DELTA; done if it takes at most delta.border bytes
 *   2  else without the prediction (direct)
 *   3  then the delta in fewer bytes than step 2 took, unless the verdict is DIRECT, or step 1 has
 *      shown that the delta takes more
 *
 * There is only one buffer. So if the delta of step 3 does not fit, step 2 is done again. */
static lmc__block_coding lmc__encode_at_level(lmc__encoder *e, uint8_t *dst, size_t cap,
                                              const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__delta delta;
    const enum lmc__verdict verdict = block->base ? lmc__plan_delta(e, &delta, block) : LMC__DIRECT;
    lmc__block_coding direct, by_delta;
    size_t best, too_small = 0; /* the delta is known not to fit in this many bytes */
    by_delta.payload_size = 0;
    if (verdict == LMC__DELTA) {
        too_small = delta.border;
        by_delta = lmc__encode_delta(e, dst, lmc__min(cap, too_small), block, &delta);
    }
    if (!by_delta.payload_size) {
        direct = lmc__encode_direct(e, dst, cap, block);
        best = direct.payload_size ? direct.payload_size : SIZE_MAX;
        if (verdict != LMC__DIRECT && best > too_small) {
            by_delta = lmc__encode_delta(e, dst, lmc__min(cap, best - 1), block, &delta);
            if (!by_delta.payload_size && direct.payload_size)
                direct = lmc__encode_direct(e, dst, cap, block);
        }
    }
    e->stack.top = top;
    return by_delta.payload_size ? by_delta : direct;
}

/* A higher level makes most blocks smaller, but not all: by chance a sample may give a better
 * choice than all counts. So all levels from the default on are tried, and the smallest result is
 * kept. */
static lmc__block_coding lmc__encode_payload(lmc__encoder *e, uint8_t *dst, size_t cap,
                                             const lmc__block *block)
{
    lmc__block trial = *block;
    lmc__block_coding coding, best;
    enum lmc_level best_level;
    if (block->level > LMC_LEVEL_DEFAULT) trial.level = LMC_LEVEL_DEFAULT;
    coding = best = lmc__encode_at_level(e, dst, cap, &trial);
    best_level = trial.level;
    while (trial.level < block->level) {
        trial.level = (enum lmc_level)((int)trial.level + 1);
        coding = lmc__encode_at_level(
            e, dst, best.payload_size ? lmc__min(cap, best.payload_size) : cap, &trial);
        if (!coding.payload_size) continue;
        best = coding;
        best_level = trial.level;
    }
    if (coding.payload_size || !best.payload_size) return best;
    trial.level = best_level; /* a later trial has overwritten the best payload */
    return lmc__encode_at_level(e, dst, cap, &trial);
}

/* Copies the elements. Returns the CRC of the copy, taken strip by strip while it is in the first
 * cache. */
static uint32_t lmc__store_elements(const lmc__kernels *k, uint8_t *dst, const uint8_t *src,
                                    size_t size)
{
    uint32_t crc = 0;
    size_t i, n;
    for (i = 0; i < size; i += n) {
        n = lmc__min(LMC__STRIP_SIZE, size - i);
        memcpy(dst + i, src + i, n);
        crc = k->crc32c(crc, dst + i, n);
    }
    return crc;
}

/* Stores job's block. The caller has checked that there is room. */
static void lmc__store_block(const lmc__kernels *k, lmc__job *job, unsigned width)
{
    lmc__block_coding coding;
    memset(&coding, 0, sizeof coding); /* LMC__LAYOUT_STORED */
    coding.payload_size = job->src_size;
    coding.content_crc =
        lmc__store_elements(k, job->dst + LMC_BLOCK_HEADER_SIZE, job->src, job->src_size);
    lmc__put_block_header(job->dst, &coding, width, job->src_size / width, k, job->number);
    job->dst_size = LMC_BLOCK_HEADER_SIZE + job->src_size;
}

/* Encodes job's block, but does not quantise it: the payload, then the header, which has the
 * payload's CRC. If no payload is smaller than the elements, the elements are stored.
 * DST_TOO_SMALL: there is no room for the header, or for a block that must be stored. */
static enum lmc_status lmc__encode_block(const lmc__kernels *k, lmc__job *job, void *ws,
                                         size_t ws_size)
{
    uint8_t *const payload = job->dst + LMC_BLOCK_HEADER_SIZE;
    lmc__block_coding coding;
    lmc__encoder e;
    lmc__block block;
    size_t cap;

    if (job->dst_size < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = job->dst_size - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    lmc__set_block(&block, job->src, job->src_size, job->dtype);
    block.base = job->base;
    block.level = job->level;
    block.sum = job->sum;
    block.may_group = !job->is_ungrouped;
    block.may_part_zeros = !job->is_unparted;
    if (job->dtype == LMC_AUTO) lmc__guess_width(&e, &block);
    coding = lmc__encode_payload(&e, payload, cap, &block);
    job->has_sum = coding.payload_size && coding.has_sum;
    if (!coding.payload_size) {
        if (cap < job->src_size) return LMC_ERR_DST_TOO_SMALL;
        lmc__store_block(k, job, block.width);
        return LMC_OK;
    }
    lmc__put_block_header(job->dst, &coding, block.width, block.n, k, job->number);
    job->dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

/* For LMC_AUTO each byte counts as an element: then the limit and the workspace suffice for every
 * width that may be guessed. */
LMC_API enum lmc_status lmc_block_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size,
                                         const lmc_block_options *options, void *ws, size_t ws_size)
{
    lmc_block_options o;
    lmc__job job;
    unsigned width;
    if (!dst || !dst_size || !src || !ws || !options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, prediction_size, options));
    width = lmc_dtype_width(o.dtype);
    if ((unsigned)o.dtype >= LMC__DTYPE_COUNT || !lmc__is_level(o.level) || size == 0 ||
        size % width || size > LMC_MAX_BLOCK_SIZE)
        return LMC_ERR_ARGUMENT;
    if (!lmc__is_workspace(ws_size, size / width, width)) return LMC_ERR_WORKSPACE;
    if (o.prediction && o.prediction_size != size) return LMC_ERR_BASE_WRONG;
    memset(&job, 0, sizeof job);
    job.src = (const uint8_t *)src;
    job.src_size = size;
    job.base = (const uint8_t *)o.prediction;
    job.dst = (uint8_t *)dst;
    job.dst_size = dst_cap;
    job.dtype = o.dtype;
    job.level = o.level;
    job.number = o.number;
    job.is_unparted = (o.without & LMC_FEATURE_ZEROS) != 0;
    LMC__TRY(lmc__encode_block(lmc__get_kernels(), &job, ws, ws_size));
    *dst_size = job.dst_size;
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */

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

/* If dst is the prediction, copies it to d->kept: lmc__get_predicted may have to restore it. */
static enum lmc_status lmc__keep(lmc__decoder *d, const uint8_t *dst, const uint8_t *base,
                                 size_t size)
{
    if (dst != base) return LMC_OK;
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
    lmc__side side;
    size_t n_coded;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_list(d, &side, spare, mask_size));
    root.mask = lmc__row_of(d, &side, mask_size);
    LMC__CHECK(root.mask, LMC_ERR_WORKSPACE);
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
    for (p = 0; p < width; p++) {
        lmc__side side;
        LMC__TRY(lmc__get_list(d, &side, spare, n));
        planes.row[p] = lmc__row_of(d, &side, n);
        LMC__CHECK(planes.row[p], LMC_ERR_WORKSPACE);
    }
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

/* == codec/put_quantised.h ===================================================================== */

/* Encodes quantised blocks (spec/quantised.md; terms: quant_params.h), strip by strip.
 * get_quantised.h shows the payload.
 *
 *   elements --> symbols --> restored elements --> CRC
 *                   |
 *                   +--> High, Low; exceptions have the code of zero, and are stored separately
 *
 * Block CRCs, fingerprints and later predictions use the restored elements, which are computed as
 * in decoders. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* Elements of a tensor that are being quantised. */
typedef struct lmc__quant_source {
    const uint8_t *elements;
    const uint8_t *second; /* the prediction, as the decoder will have it; or NULL */
    uint64_t first;        /* index of the first element in its tensor; groups count from index 0 */
    size_t n;
} lmc__quant_source;

/* n elements of a source, from element i on. */
static lmc__quant_source lmc__part_of(const lmc__quant_source *source, unsigned width, size_t i,
                                      size_t n)
{
    const lmc__quant_source part = {source->elements + i * width,
                                    source->second ? source->second + i * width : NULL,
                                    source->first + i, n};
    return part;
}

/* Finds the symbols of n F32 elements at x; returns how many are LMC__EXCEPTION. s: their
 * predictions, used only with is_predicted. With a table, each symbol becomes the nearest symbol
 * that has a code; +0 always keeps symbol 0, and so code 0. */
static size_t lmc__find_symbols(const lmc__kernels *k, const lmc__quant_params *q,
                                uint16_t *symbols, const uint8_t *x, const uint8_t *s,
                                uint64_t first, size_t n)
{
    const uint8_t *const codes = q->codes;
    size_t exceptions = 0, i, part;
    uint32_t scale;
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        exceptions +=
            k->quantize(symbols + i, x + 4 * i, q->is_predicted ? s : NULL, part, scale, &q->grid);
    }
    for (i = 0; i < n && q->table_size; i++)
        if (symbols[i] != LMC__EXCEPTION && lmc__load32(x + 4 * i) != 0)
            symbols[i] = q->table[codes[symbols[i]]];
    return exceptions;
}

/* Finds a strip's symbols, and writes the restored elements to dst, which may be the source.
 * Returns the number of exceptions, which are unchanged; their symbol is LMC__EXCEPTION. With
 * is_exact each element that is not a point is an exception.
 *
 * A second call changes nothing: restored elements are points, or points rounded to BF16, and have
 * the same symbols. So a writer may get elements that were quantised in place. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *in, uint16_t *symbols, uint8_t *dst)
{
    const unsigned width = q->width;
    uint8_t x[4 * LMC__QUANTIZED_STRIP], s[4 * LMC__QUANTIZED_STRIP];
    size_t i,
        exceptions = lmc__find_symbols(
            k, q, symbols, lmc__widen(x, in->elements, in->n, width),
            q->is_predicted ? lmc__widen(s, in->second, in->n, width) : NULL, in->first, in->n);
    lmc__restore_strip(k, q, s, symbols, in->second, in->first, in->n);
    for (i = 0; i < in->n && (exceptions || q->is_exact); i++) {
        const uint8_t *const element = in->elements + i * width;
        if (q->is_exact && symbols[i] != LMC__EXCEPTION &&
            memcmp(s + i * width, element, width) != 0) {
            symbols[i] = LMC__EXCEPTION;
            exceptions++;
        }
        if (symbols[i] == LMC__EXCEPTION) memcpy(s + i * width, element, width);
    }
    memcpy(dst, s, in->n * width);
    return exceptions;
}

/* Exceptions are collected in the payload:
 *   | head | table | positions -->             | values -->             | end
 *                  |<-- 4 * max bytes -->      |<-- width * max -->     |
 *
 * When their number is known, the values are moved down. */
typedef struct lmc__exceptions {
    uint8_t *positions, *values;
    size_t n, max;
} lmc__exceptions;

/* Adds the exceptions of a strip: n elements from the block's element i on. Their symbols become 0.
 * Returns 0 if there is no room. Strips come in order, so positions ascend. elements: the restored
 * strip. */
static int lmc__add_exceptions(lmc__exceptions *to, uint16_t *symbols, const uint8_t *elements,
                               unsigned width, size_t i, size_t n)
{
    size_t j;
    for (j = 0; j < n; j++) {
        if (symbols[j] != LMC__EXCEPTION) continue;
        if (to->n == to->max) return 0;
        symbols[j] = 0;
        lmc__store32(to->positions + 4 * to->n, (uint32_t)(i + j));
        memcpy(to->values + width * to->n++, elements + j * width, width);
    }
    return 1;
}

/* Makes codes, exceptions and CRC of all elements; content gets the restored elements. Returns 0 if
 * the exceptions do not fit; even then content and CRC are complete, because the block will be
 * stored. Elements and prediction may change meanwhile (put_block.h), so each strip of the
 * prediction is copied first. */
static int lmc__quantize_elements(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *source, uint8_t *content, uint8_t *high,
                                  uint8_t *low, lmc__exceptions *exceptions, uint32_t *crc)
{
    const unsigned width = q->width;
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t second[4 * LMC__QUANTIZED_STRIP];
    lmc__quant_source strip;
    size_t i, j, n;
    int fits = 1;
    *crc = 0;
    for (i = 0; i < source->n; i += n) {
        n = lmc__min(source->n - i, LMC__QUANTIZED_STRIP);
        strip = lmc__part_of(source, width, i, n);
        if (q->is_predicted) strip.second = (uint8_t *)memcpy(second, strip.second, n * width);
        if (lmc__quantize_strip(k, q, &strip, symbols, content + i * width) && fits)
            fits = lmc__add_exceptions(exceptions, symbols, content + i * width, width, i, n);
        *crc = k->crc32c(*crc, content + i * width, n * width);
        if (!fits) continue;
        if (q->table_size)
            for (j = 0; j < n; j++) high[i + j] = symbols[j] ? q->codes[symbols[j]] : 0;
        else k->cut_symbols(high + i, low ? low + i : NULL, symbols, n, q->low_bits);
    }
    return fits;
}

/* Writes the payload's head, and behind it the table without entry 0. Unused fields are 0.
 * First_Group is the number of elements from the block's start to the end of a group.
 * get_quantised.h lists the offsets. */
static void lmc__put_quantized_head(uint8_t *dst, const lmc__quant_params *q, uint64_t first,
                                    size_t n_exceptions)
{
    size_t i;
    memset(dst, 0, LMC__QUANTIZED_HEADER);
    dst[0] = (uint8_t)((q->grid.is_log ? LMC__METHOD_LOG : 0) |
                       (q->grid.is_signed ? LMC__METHOD_SIGNED : 0) |
                       (q->table_size ? LMC__METHOD_TABLE : 0));
    dst[1] = (uint8_t)q->low_bits;
    lmc__store16(dst + 2, (uint16_t)q->table_size);
    lmc__store32(dst + 4, (uint32_t)q->grid.min);
    lmc__store32(dst + 8, q->grid.step);
    if (q->is_predicted) {
        lmc__store32(dst + 12, (uint32_t)q->grid.bias);
        lmc__store32(dst + 16, q->grid.floor);
    } else {
        const uint64_t group = first / q->group_size;
        lmc__store32(dst + 20, (uint32_t)q->group_size);
        lmc__store32(dst + 24, (uint32_t)((group + 1) * q->group_size - first));
    }
    lmc__store32(dst + 28, (uint32_t)n_exceptions);
    for (i = 0; i < q->table_size; i++)
        lmc__store16(dst + LMC__QUANTIZED_HEADER + 2 * i, q->table[i + 1]);
}

/* Writes the scales of the groups of n elements from `first` on: a list of their low bytes, and a
 * list of their high bytes. Returns 0 if there is no room. */
static int lmc__put_scales(lmc__encoder *e, const lmc__quant_params *q, uint64_t first, size_t n,
                           uint8_t *work, uint8_t *spare, unsigned sample)
{
    const uint64_t group = first / q->group_size;
    const size_t n_groups = (size_t)((first + n - 1) / q->group_size - group) + 1;
    uint8_t *const top = e->stack.top, *const row = lmc__push_list(&e->stack, n_groups);
    size_t i;
    unsigned j;
    if (!row) return 0;
    for (j = 0; j < 2; j++) {
        for (i = 0; i < n_groups; i++) row[i] = (uint8_t)(q->scales[group + i] >> 8 * j);
        if (!lmc__put_list(e, row, work, spare, n_groups, sample)) return 0;
    }
    e->stack.top = top;
    return 1;
}

/* Writes the payload of a quantised block and returns its size; 0 if it is not smaller than the
 * elements, or does not fit in cap. content: a list that gets the restored elements, even if 0 is
 * returned.
 *
 * One pass over the elements puts codes to `high` and `low`, and exceptions to the payload. Then
 * lmc__put_list codes each list without changing it, so that codes need not be made again. */
static size_t lmc__put_quantized(lmc__encoder *e, const lmc__quant_params *q, uint8_t *dst,
                                 size_t cap, const lmc__quant_source *source, uint8_t *content,
                                 enum lmc_level level, uint32_t *crc)
{
    const unsigned width = q->width, sample = lmc__get_effort(level)->sample;
    const size_t n = source->n, fixed = LMC__QUANTIZED_HEADER + 2 * (size_t)q->table_size;
    uint8_t *const high = lmc__push_list(&e->stack, n), *const spare = lmc__push_list(&e->stack, n),
                   *const work = lmc__push_list(&e->stack, n);
    uint8_t *const low = q->low_bits ? lmc__push_list(&e->stack, n) : NULL;
    lmc__exceptions exceptions;
    int fits;
    if (!high || !spare || !work || (!low && q->low_bits)) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    fits = (size_t)(e->end - e->out) > fixed;
    exceptions.n = 0;
    exceptions.max = fits ? ((size_t)(e->end - e->out) - fixed) / (4 + width) : 0;
    exceptions.positions = fits ? dst + fixed : dst;
    exceptions.values = exceptions.positions + 4 * exceptions.max;
    if (!lmc__quantize_elements(e->k, q, source, content, high, low, &exceptions, crc)) return 0;
    if (!fits) return 0;
    lmc__put_quantized_head(dst, q, source->first, exceptions.n);
    e->out = exceptions.positions + 4 * exceptions.n;
    memmove(e->out, exceptions.values, width * exceptions.n);
    e->out += width * exceptions.n;
    if (!q->is_predicted && !lmc__put_scales(e, q, source->first, n, work, spare, sample)) return 0;
    if (low && !lmc__put_list(e, low, work, spare, n, sample)) return 0;
    if (!lmc__put_list(e, high, work, spare, n, sample)) return 0;
    return (size_t)(e->out - dst);
}

/* Encodes job's block quantised; or, if that is not smaller, stores its restored elements. It must
 * not store the original elements: the caller may already have quantised this tensor to predict
 * another tensor, and a reader must get the same elements. *content: the restored elements, in the
 * workspace; not set if the block was coded without loss.
 *
 * With is_exact the elements were quantised before, and are coded exactly; if their quantised
 * form does not fit, the block is coded without loss. */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    const lmc__quant_params *const q = job->quant;
    uint8_t *const payload = job->dst + LMC_BLOCK_HEADER_SIZE;
    const size_t size = job->src_size;
    const lmc__quant_source source = {job->src, job->base, job->first_element, size / q->width};
    lmc__block_coding coding;
    uint8_t *restored;
    size_t cap;
    lmc__encoder e;
    if (job->dst_size < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = job->dst_size - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.worth = lmc__get_effort(job->level)->direct_worth;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    restored = lmc__push_list(&e.stack, size);
    if (restored == NULL) return LMC_ERR_WORKSPACE;
    memset(&coding, 0, sizeof coding);
    coding.payload_size =
        lmc__put_quantized(&e, q, payload, cap, &source, restored, job->level, &coding.content_crc);
    if (q->is_exact && coding.payload_size == 0) {
        lmc__job lossless = *job; /* src is not in the workspace, which is used again */
        enum lmc_status status;
        lossless.base = NULL;
        lossless.dtype = q->width == 2 ? LMC_BF16 : LMC_F32;
        lossless.sum = NULL;
        status = lmc__encode_block(k, &lossless, ws, ws_size);
        job->dst_size = lossless.dst_size;
        return status;
    }
    if (coding.payload_size) {
        coding.layout = LMC__LAYOUT_QUANTIZED;
        coding.is_predicted = q->is_predicted;
    } else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        coding.payload_size = size;
        memcpy(payload, restored, size);
    }
    lmc__put_block_header(job->dst, &coding, q->width, source.n, k, job->number);
    *content = restored;
    job->dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}
#elif !defined(LMC_NO_ENCODER)

static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, lmc__job *job, void *ws,
                                             size_t ws_size, const uint8_t **content)
{
    (void)k, (void)job, (void)ws, (void)ws_size, (void)content;
    return LMC_ERR_UNSUPPORTED;
}
#endif

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
        head->n_groups = (size_t)((head->first + n - 1) / group_size) + 1;
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
 *   lists, masks, tails           CORRUPT; only then dst is written
 *   Content_CRC                   CHECKSUM
 *   the last two, if predicted    BASE_WRONG instead
 *
 * With a prediction the payload has its own CRC. If that CRC is right, a later error means a wrong
 * prediction; or a damaged file, if the prediction comes from the same file. No payload can cause
 * an access outside of the buffers, and time is in proportion to the number of elements. A
 * workspace of lmc_block_workspace_size() is enough for any payload. */

/* Decodes the payload of a block that is not stored: quantised elements; else classes, if there is
 * a prediction; else planes, perhaps with zeros apart. base: the prediction, or NULL. */
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
    const int is_joined = !info->is_stored && !info->has_prediction &&
                          src[2] >> LMC__LAYOUT_SHIFT != LMC__LAYOUT_QUANTIZED;
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
            LMC__TRY(lmc__keep(&d, dst, base, info->size));
            LMC__TRY(lmc__get_payload(&d, dst, src, info, NULL, &crc));
            if (crc != info->crc && d.kept) memcpy(dst, d.kept, info->size);
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

/* == quantise/quantizer.h ====================================================================== */

/* lmc_quantizer: the parameters for coding blocks, their memory, and facts about the loss. fit.h
 * makes it from a tensor's elements, snapshot/requantise.h from a tensor's blocks.
 *
 * The caller keeps it until all functions and objects that use it are done. It does not change, so
 * threads may share it. A quantiser that keeps its tensor as it is (is_lossless) has the same
 * effect as NULL. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__SYMBOLS 65536u

/* The quantiser owns the arrays of params. scales: one for each group; NULL if they follow from a
 * prediction. codes: NULL unless there is a table. */
struct lmc_quantizer {
    lmc__quant_params params;
    lmc_quantizer_info info;
    const lmc_allocator *allocator;
    uint64_t n;      /* elements of the tensor */
    size_t n_groups; /* number of params.scales */
};

/* How a tensor is quantised; valid as long as the quantiser. NULL if there is no quantiser, or if
 * it keeps the tensor as it is. */
LMC__INLINE const lmc__quant_params *lmc__get_quant_params(const lmc_quantizer *q)
{
    return q && !q->info.is_lossless ? &q->params : NULL;
}

LMC__INLINE lmc_loss lmc__get_quantizer_loss(const lmc_quantizer *q) { return q->info.loss; }

/* Refuses a quantiser for a tensor of another dtype or size, because later lookups of its scales
 * are not checked. */
LMC__INLINE enum lmc_status lmc__check_quantizer(const lmc_quantizer *q, enum lmc_dtype dtype,
                                                 uint64_t size)
{
    if (!lmc__get_quant_params(q)) return LMC_OK;
    return (dtype == LMC_F32 || dtype == LMC_BF16) && lmc_dtype_width(dtype) == q->params.width &&
                   size == q->n * q->params.width
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

/* Replaces bytes [offset, offset + size) of the tensor, which are at data and must be whole
 * elements, by what decoding will return. Groups count from the tensor's first byte. second: the
 * second moments of the same elements. */
static enum lmc_status lmc__quantize_range(const lmc__quant_params *q, uint8_t *data,
                                           uint64_t offset, size_t size, const uint8_t *second)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    const lmc__quant_source source = {data, second, offset / q->width, size / q->width};
    size_t i, n;
    if (offset % q->width || size % q->width) return LMC_ERR_ARGUMENT;
    if (q->is_exact) return LMC_OK; /* these elements stay exact */
    if (q->is_predicted && !second && size) return LMC_ERR_ARGUMENT;
    for (i = 0; i < source.n; i += n) {
        const lmc__quant_source strip =
            lmc__part_of(&source, q->width, i, lmc__min(source.n - i, LMC__QUANTIZED_STRIP));
        n = strip.n;
        (void)lmc__quantize_strip(k, q, &strip, symbols, data + i * q->width);
    }
    return LMC_OK;
}

/* The quantiser may be incomplete. The allocator gets the size of each allocation. */
LMC_API void lmc_quantizer_free(lmc_quantizer *q)
{
    if (!q) return;
    if (q->params.codes) (void)lmc__realloc(q->allocator, q->params.codes, LMC__SYMBOLS, 0);
    if (q->params.scales)
        (void)lmc__realloc(q->allocator, q->params.scales, q->n_groups * sizeof q->params.scales[0],
                           0);
    (void)lmc__realloc(q->allocator, q, sizeof *q, 0);
}

LMC_API enum lmc_status lmc_quantizer_get_info(const lmc_quantizer *q, lmc_quantizer_info *info)
{
    if (!q || !info) return LMC_ERR_ARGUMENT;
    *info = q->info;
    return LMC_OK;
}

/* The check of the range has no sum that could overflow. */
LMC_API enum lmc_status lmc_quantizer_apply(const lmc_quantizer *q, uint64_t offset, void *data,
                                            size_t size, const void *second)
{
    unsigned width;
    if (!q || (!data && size)) return LMC_ERR_ARGUMENT;
    width = q->params.width;
    if (offset % width || size % width || offset > q->n * width || size > q->n * width - offset)
        return LMC_ERR_ARGUMENT;
    if (q->info.is_lossless) return LMC_OK;
    return lmc__quantize_range(&q->params, (uint8_t *)data, offset, size, (const uint8_t *)second);
}
#elif !defined(LMC_NO_ENCODER)

/* With LMC_NO_QUANTIZE callers can only have NULL; any other pointer is refused. */
LMC__INLINE const lmc__quant_params *lmc__get_quant_params(const lmc_quantizer *q)
{
    (void)q;
    return NULL;
}

LMC__INLINE lmc_loss lmc__get_quantizer_loss(const lmc_quantizer *q)
{
    const lmc_loss none = {0, LMC_MEASURE_NONE, 0};
    (void)q;
    return none;
}

LMC__INLINE enum lmc_status lmc__check_quantizer(const lmc_quantizer *q, enum lmc_dtype dtype,
                                                 uint64_t size)
{
    (void)dtype, (void)size;
    return q ? LMC_ERR_UNSUPPORTED : LMC_OK;
}

LMC__INLINE enum lmc_status lmc__quantize_range(const lmc__quant_params *q, uint8_t *data,
                                                uint64_t offset, size_t size, const uint8_t *second)
{
    (void)q, (void)data, (void)offset, (void)size, (void)second;
    return LMC_ERR_UNSUPPORTED;
}
#endif

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

#ifndef LMC_NO_ENCODER
/* Encodes a job's block. Returns the content that the block's CRC covers: job->src, or its
 * quantised elements, which are in the worker's workspace until the worker's next job. */
static const uint8_t *lmc__encode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *const ws = wave->workspaces + worker * wave->workspace_size;
    const uint8_t *content = job->src;
    job->status = job->quant
                      ? lmc__encode_quantized(wave->k, job, ws, wave->workspace_size, &content)
                      : lmc__encode_block(wave->k, job, ws, wave->workspace_size);
    return content;
}
#endif

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

#ifndef LMC_NO_ENCODER
static void lmc__encode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    (void)lmc__encode_job(wave, &wave->jobs[index], worker);
}
#endif

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

#if !defined(LMC_NO_SNAPSHOT) && !defined(LMC_NO_ENCODER)
/* Limits a log2_block that holds for all dtypes, so that wide dtypes do not exceed 4 MiB. */
static unsigned lmc__limit_log2_block(enum lmc_dtype dtype, unsigned log2_block)
{
    const unsigned most = LMC__MAX_LOG2_BLOCK - lmc__lowest_bit(lmc_dtype_width(dtype));
    return log2_block < most ? log2_block : most;
}
#endif

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
    return given && LMC__TAKE_OPTIONS(o, quantizer, given) == LMC_OK ? lmc__get_tensor_block_size(o)
                                                                     : 0;
}

#ifndef LMC_NO_ENCODER
/* size / block_size, rounded up; 0 for no bytes: an empty tensor has no block (spec 10). */
LMC__INLINE uint64_t lmc__count_blocks(uint64_t size, size_t block_size)
{
    return size / block_size + (size % block_size ? 1 : 0);
}

/* The worst case: all blocks are stored, and as small as without a prediction, which may be useless
 * (lmc__is_useless). This is also the size of all slots together (encode_tensor.h). */
LMC_API size_t lmc_tensor_bound(size_t size, const lmc_tensor_options *options)
{
    lmc_tensor_options o;
    size_t block_size = lmc__take_tensor_options(&o, options);
    uint64_t headers;
    if (block_size == 0) return SIZE_MAX;
    if (!o.quantizer) block_size = lmc__get_block_size(o.dtype, o.log2_block, 0);
    headers = lmc__count_blocks(size, block_size) * LMC_BLOCK_HEADER_SIZE; /* at most size / 8 */
    return size <= SIZE_MAX - headers ? size + (size_t)headers : SIZE_MAX;
}
#endif

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

/* == tensor/encode_tensor.h ==================================================================== */

#ifndef LMC_NO_ENCODER
/* Encodes a tensor. The encoded size of a block is known only at its end, but with several workers
 * the next block begins earlier. So each block of a wave is encoded to a *slot*, which has room for
 * any block. Then it is *packed*: moved down to the end of the block before it.
 *
 *     one worker        a wave is one block, which is encoded at its place
 *     several workers   if dst has room for the slots of all blocks, block i is encoded to slot i.
 *                       While a wave is encoded, one more task packs the wave before it:
 *                           dst   |packed....|  wave i: packing  |  wave i + 1: encoding  |
 *
 *                       Else a wave's slots begin behind the packed blocks. The wave has as many
 *                       blocks as dst has room for, and is packed before the next wave begins.
 *
 * Slot i begins at dst + i * lmc_block_bound(block_size). Blocks 0 to i - 1 fit in their slots, so
 * block i is never packed above its slot, and a packed wave ends at or below the next wave's first
 * slot. So packing and encoding write to different memory. All three ways give the same output. */
typedef struct lmc__tensor_encoding {
    const uint8_t *src;
    size_t size, block_size;
    uint64_t n_blocks;
    const lmc_tensor_options *options;
    const lmc__quant_params *quant; /* how to quantise the tensor; or NULL */
    lmc__wave wave;
    uint8_t *dst;
    size_t dst_cap;
    uint8_t *packed;           /* end of the packed blocks */
    const lmc__job *made_jobs; /* an encoded wave that is not packed yet */
    size_t n_made;
} lmc__tensor_encoding;

/* Packs the encoded wave, in order. memmove: a block may move by less than its size. */
static void lmc__pack_wave(lmc__tensor_encoding *t)
{
    size_t i;
    for (i = 0; i < t->n_made; i++) {
        const lmc__job *job = &t->made_jobs[i];
        if (job->dst != t->packed) memmove(t->packed, job->dst, job->dst_size);
        t->packed += job->dst_size;
    }
    t->n_made = 0;
}

static void lmc__pack_and_encode_task(void *arg, size_t index, unsigned worker)
{
    lmc__tensor_encoding *t = (lmc__tensor_encoding *)arg;
    if (index == 0) lmc__pack_wave(t);
    else lmc__encode_task(&t->wave, index - 1, worker);
}

/* Sets t->wave.jobs to encode up to max_jobs blocks from `first` on, in slots from `place` on. The
 * wave ends where dst has no room for another slot. The wave's first block may get less room than a
 * slot: it may fit all the same. Returns the number of jobs, at least 1. */
static size_t lmc__plan_wave(const lmc__tensor_encoding *t, uint64_t first, size_t max_jobs,
                             uint8_t *place)
{
    const lmc_tensor_options *const options = t->options;
    size_t n;
    for (n = 0; n < max_jobs && first + n < t->n_blocks; n++) {
        lmc__job *const job = &t->wave.jobs[n];
        const size_t at = (size_t)(first + n) * t->block_size,
                     room = t->dst_cap - (size_t)(place - t->dst);
        size_t slot;
        memset(job, 0, sizeof *job);
        job->src = t->src + at;
        job->src_size = lmc__min(t->block_size, t->size - at);
        job->base = options->prediction ? (const uint8_t *)options->prediction + at : NULL;
        slot = lmc_block_bound(job->src_size);
        if (slot > room && n > 0) break;
        job->dst = place;
        job->dst_size = lmc__min(slot, room);
        job->dtype = options->dtype;
        job->level = options->level;
        job->is_unparted = (options->without & LMC_FEATURE_ZEROS) != 0;
        job->quant = t->quant;
        job->first_element = at / lmc_dtype_width(options->dtype);
        job->number = (uint32_t)(first + n);
        place += job->dst_size;
    }
    return n;
}

/* Encodes all waves, of max_jobs each. slot: 0, or the size of a slot if a wave is packed while the
 * next one is encoded. Packing then needs the previous wave's jobs, so two sets of jobs alternate.
 * An error ends the call at once, and leaves dst undefined. */
static enum lmc_status lmc__encode_waves(lmc__tensor_encoding *t, size_t max_jobs, size_t slot)
{
    lmc__job *const jobs = t->wave.jobs;
    uint64_t block;
    size_t n;
    for (block = 0; block < t->n_blocks; block += n) {
        n = lmc__plan_wave(t, block, max_jobs, slot ? t->dst + (size_t)block * slot : t->packed);
        lmc__run_tasks(t->options->parallel, lmc__pack_and_encode_task, t, n + 1);
        LMC__TRY(lmc__wave_status(&t->wave, n));
        t->made_jobs = t->wave.jobs;
        t->n_made = n;
        if (slot) t->wave.jobs = t->wave.jobs == jobs ? jobs + max_jobs : jobs;
        else lmc__pack_wave(t);
    }
    lmc__pack_wave(t);
    return LMC_OK;
}

/* 1 if a sample of the first block says that the prediction is useless. Then the smaller blocks of
 * a tensor without a prediction are better. Always 0 if the caller has chosen the block size, or
 * for a quantizer: its blocks need their prediction. */
static int lmc__is_useless(const lmc__tensor_encoding *t)
{
    const lmc_tensor_options *const options = t->options;
    lmc__block block;
    lmc__delta delta;
    lmc__encoder e;
    if (!options->prediction || t->quant || options->log2_block != 0 ||
        options->dtype == LMC_AUTO || t->size == 0)
        return 0;
    e.k = t->wave.k;
    e.scratch = lmc__open_workspace(&e.stack, t->wave.workspaces, t->wave.workspace_size);
    lmc__set_block(&block, t->src, lmc__min(t->size, t->block_size), options->dtype);
    block.base = (const uint8_t *)options->prediction;
    block.may_group = 1; /* at the default level */
    return lmc__plan_delta(&e, &delta, &block) == LMC__DIRECT;
}

LMC_API enum lmc_status lmc_tensor_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    lmc_tensor_options o, direct;
    lmc__tensor_encoding t;
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, quantizer, options));
    LMC__TRY(lmc__check_parallel(o.parallel));
    options = &o;
    if (!ws) {
        enum lmc_status status;
        LMC__TRY(lmc__allocate_workspace(&ws, &ws_size, options));
        status = lmc_tensor_encode(dst, dst_cap, dst_size, src, size, options, ws, ws_size);
        (void)lmc__realloc(NULL, ws, ws_size, 0);
        return status;
    }
    memset(&t, 0, sizeof t);
    t.src = (const uint8_t *)src;
    t.size = size;
    t.block_size = lmc__get_tensor_block_size(options);
    t.options = options;
    if (t.block_size == 0 || !dst_size || (!src && size) || (!dst && dst_cap) ||
        size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;
    t.quant = lmc__get_quant_params(options->quantizer);
    if (t.quant && (options->without & LMC_FEATURE_QUANTIZED)) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_quantizer(options->quantizer, options->dtype, size));
    if (t.quant && t.quant->is_predicted != (options->prediction != NULL)) return LMC_ERR_ARGUMENT;
    lmc__set_tensor_wave(&t.wave, options, t.block_size, ws);
    if (lmc__is_useless(&t)) {
        direct = *options; /* the workspace is large enough: blocks do not grow */
        direct.prediction = NULL;
        t.options = &direct;
        t.block_size = lmc__get_tensor_block_size(&direct);
        lmc__set_tensor_wave(&t.wave, &direct, t.block_size, ws);
    }
    t.n_blocks = lmc__count_blocks(size, t.block_size);
    if (t.n_blocks > UINT32_MAX) return LMC_ERR_LIMIT;
    if (dst_cap == 0 && size != 0) return LMC_ERR_DST_TOO_SMALL; /* dst may be NULL */
    t.dst = t.packed = (uint8_t *)dst;
    t.dst_cap = dst_cap;
    if (lmc__count_workers(options->parallel) == 1) LMC__TRY(lmc__encode_waves(&t, 1, 0));
    else
        LMC__TRY(lmc__encode_waves(
            &t, lmc__count_jobs(options->parallel, t.block_size),
            dst_cap >= lmc_tensor_bound(size, t.options) ? lmc_block_bound(t.block_size) : 0));
    *dst_size = (size_t)(t.packed - t.dst);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */

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
    LMC__TRY(LMC__TAKE_OPTIONS(&o, quantizer, options));
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

/* Takes a number as `size` bytes, little-endian. */
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

#ifndef LMC_NO_ENCODER
/* features: without LMC_FEATURE_BASE. base_fingerprint: NULL if there is no base. */
static void lmc__put_header(uint8_t *dst, uint64_t features, const uint8_t *base_fingerprint,
                            const lmc__kernels *k)
{
    memset(dst, 0, LMC__HEADER_SIZE);
    memcpy(dst, LMC_MAGIC, 8);
    dst[8] = LMC_FORMAT_MAJOR;
    dst[9] = LMC_FORMAT_MINOR;
    dst[LMC__ALGORITHM_AT] = 1;
    lmc__store64(dst + LMC__FEATURES_AT, features);
    if (base_fingerprint) {
        lmc__store64(dst + LMC__FEATURES_AT, features | LMC_FEATURE_BASE);
        memcpy(dst + LMC__BASE_FINGERPRINT_AT, base_fingerprint, LMC_FINGERPRINT_SIZE);
    }
    lmc__store32(dst + LMC__HEADER_CRC_AT, k->crc32c(0, dst, LMC__HEADER_CRC_AT));
}

/* The index begins at index_at and ends where the trailer begins. */
static void lmc__put_trailer(uint8_t *dst, uint64_t index_at, uint64_t index_size,
                             const lmc__kernels *k)
{
    memset(dst, 0, LMC__TRAILER_SIZE);
    lmc__store64(dst, index_at);
    lmc__store64(dst + 8, index_size);
    lmc__store64(dst + 16, index_at + index_size + LMC__TRAILER_SIZE); /* the file's size */
    dst[24] = LMC_FORMAT_MAJOR;
    dst[25] = LMC_FORMAT_MINOR;
    lmc__store32(dst + 28, k->crc32c(0, dst, 28));
    memcpy(dst + 32, LMC__END_MAGIC, 8);
}
#endif

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

/* Allocates nothing yet. */
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

#ifndef LMC_NO_ENCODER
/* Sets the sums of a job's pieces, and returns the CRC-32C of all bytes of the job. job.src may
 * change meanwhile, so each strip is copied once, and all sums are taken from the copy. */
static uint32_t lmc__sum_pieces(const lmc__coder *c, const lmc__snapshot_job *job)
{
    const lmc__kernels *const k = c->wave.k;
    const size_t size = job->job.src_size;
    uint8_t copy[LMC__STRIP_SIZE];
    uint32_t crc = 0;
    size_t at, end, from, n, i = 0, left = 0; /* left: remaining bytes of piece i */
    if (job->n_pieces) left = lmc__piece_at(c, job, 0)->size;
    for (at = 0; at < size; at = end) {
        end = lmc__min(at + LMC__STRIP_SIZE, size);
        memcpy(copy, job->job.src + at, end - at);
        crc = k->crc32c(crc, copy, end - at);
        for (from = at; from < end && i < job->n_pieces; from += n) {
            lmc__piece *const piece = lmc__piece_at(c, job, i);
            n = lmc__min(end - from, left);
            if (piece->in_tensor) {
                const unsigned phase = (unsigned)(piece->phase + piece->size - left) % 8;
                piece->crc = k->crc32c(piece->crc, copy + (from - at), n);
                piece->sum += lmc__sum_words(k, copy + (from - at), n, phase);
            }
            left -= n;
            if (left == 0 && ++i < job->n_pieces) left = lmc__piece_at(c, job, i)->size;
        }
    }
    if (job->n_pieces) lmc__piece_at(c, job, 0)->part_crc = crc; /* a writer's block is one part */
    return crc;
}

/* Encodes a job's block. Fingerprints and hashes match the encoded bytes, even if the caller's
 * memory changes meanwhile:
 *
 * - with hashes, the bytes are copied once, and everything is computed from the copy;
 * - the sum of a block of planes is computed while the block is encoded;
 * - any other sum is computed later, with the CRC of the same bytes. If this CRC differs from the
 *   block's, the block is stored, and sums and CRC are those of the stored bytes. */
static void lmc__encode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *const c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    lmc__job *const block = &job->job;
    lmc__piece *const whole = job->n_pieces == 1 ? lmc__piece_at(c, job, 0) : NULL;
    const uint8_t *content;
    uint32_t crc;
    if (job->content && job->may_change) {
        memcpy(job->content, block->src, block->src_size);
        block->src = job->content;
        job->may_change = 0;
    }
    if (whole && whole->in_tensor && whole->phase == 0) block->sum = &whole->sum;
    content = lmc__encode_job(&c->wave, block, worker);
    if (block->status != LMC_OK) return;
    crc = lmc__load32(block->dst + LMC__CONTENT_CRC_AT);
    if (block->has_sum) {
        whole->crc = whole->part_crc = crc;
        return;
    }
    if (block->sum) *block->sum = 0; /* the block was not coded as planes */
    if (job->may_change && content == block->src) {
        if (lmc__sum_pieces(c, job) == crc) return;
        lmc__store_block(c->wave.k, block, lmc_dtype_width(block->dtype)); /* dst has room for it */
        content = block->dst + LMC_BLOCK_HEADER_SIZE;
        crc = lmc__load32(block->dst + LMC__CONTENT_CRC_AT);
    }
    if (job->content && job->content != content) memcpy(job->content, content, block->src_size);
    lmc__set_piece_sums(c, job, content, block->src_size, crc);
}
#endif

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

#ifndef LMC_NO_ENCODER
/* Writes the header of a section, LMC__SECTION_HEADER_SIZE bytes:
 *     0  kind        "FILE", "RUN ", "BLKS", "INDX"; ancillary kinds begin with a lower-case letter
 *     4  size        of the body
 *    12  Head_CRC    of the bytes before
 *    16  Body_CRC    of the body
 *
 * Head_CRC is before the body, so the size is checked before the body is read. */
static void lmc__put_section_header(uint8_t *dst, const char *kind, const uint8_t *body,
                                    uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store64(dst + 4, size);
    lmc__store32(dst + 12, k->crc32c(0, dst, 12));
    lmc__store32(dst + 16, k->crc32c(0, body, (size_t)size));
}
#endif

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
#ifndef LMC_NO_ENCODER
static uint64_t lmc__zigzag(int64_t d)
{
    return d < 0 ? 2 * (uint64_t)(-(d + 1)) + 1 : 2 * (uint64_t)d;
}
#endif

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

/* Adds a stream without files. */
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
/* The quantiser of tensor t, or NULL. */
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

/* == snapshot/put_files.h ====================================================================== */

/* Writes FILE bodies (spec 4.1). The writer parses them again (files.h) to check them. */

/* The Loss that is written for tensor number i, t; generation 0: nothing was lost. hints: as in
 * lmc__listed_file, or NULL. */
static lmc_loss lmc__get_loss(const lmc_tensor *t, size_t i, const lmc__buffer *hints)
{
#ifndef LMC_NO_ENCODER
    const lmc_quantizer *const quantizer = lmc__hints_at(hints, i).quantizer;
    const lmc__quant_params *const quant = lmc__get_quant_params(quantizer);
    if (quant && !quant->is_exact) return lmc__get_quantizer_loss(quantizer);
#endif
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

#ifndef LMC_NO_ENCODER
/* Writes a RUN body. */
static enum lmc_status lmc__append_run(lmc__buffer *out, const lmc__run *run)
{
    int64_t last = -1;
    uint32_t i;
    LMC__TRY(lmc__append_varint(out, run->size));
    LMC__TRY(lmc__append_varint(out, run->block_size));
    LMC__TRY(lmc__append8(out, run->prediction + run->conversion));
    if (run->prediction != LMC__PREDICT_ZERO) LMC__TRY(lmc__append_varint(out, run->n_segments));
    for (i = 0; i < run->n_segments; i++) {
        const lmc__segment *const s = &run->segments[i];
        LMC__TRY(lmc__append_varint(out, s->size));
        if (s->base == 0) {
            LMC__TRY(lmc__append_varint(out, 0));
            continue;
        }
        LMC__TRY(lmc__append_varint(
            out, 1 + (2 * lmc__zigzag((int64_t)s->base - 1 - (last + 1)) | (s->base_offset != 0))));
        if (s->base_offset) LMC__TRY(lmc__append_varint(out, s->base_offset));
        last = (int64_t)s->base - 1;
    }
    return LMC_OK;
}
#endif

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

/* Size of a file's facts before its fingerprints. */
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
/* Size of the item, in bytes. */
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

#ifndef LMC_NO_ENCODER
/* The number, plus 1, of the first item that has the part's name, path (NULL: any) and range of
 * bytes; 0: none. With a dtype ("": of a file) the item must have this dtype and exactly the part's
 * size. */
static uint32_t lmc__find_part(const lmc__origin *o, const lmc_base_part *part, const char *dtype)
{
    const lmc__item *const items = lmc__get_item(o, 0);
    const size_t n = (size_t)lmc__min64(lmc__count_items(o), UINT32_MAX),
                 name_size = strlen(part->name);
    size_t i = lmc__find_name(items, n, part->name, 0);
    for (; i < n && items[i].size == name_size && memcmp(items[i].name, part->name, name_size) == 0;
         i++) {
        const lmc_tensor *const t = items[i].tensor;
        const uint64_t size = lmc__item_size(o, &items[i]);
        if (part->path && strcmp(lmc__file_of_item(o, &items[i])->path, part->path) != 0) continue;
        if (dtype ? size == part->size && strcmp(t ? t->dtype : "", dtype) == 0
                  : part->offset <= size && part->size <= size - part->offset)
            return (uint32_t)i + 1;
    }
    return 0;
}

LMC__COLD static uint32_t lmc__match_part(const lmc__origin *o, const lmc_base_part *part)
{
    return part->name ? lmc__find_part(o, part, NULL) : 0;
}

/* The number, plus 1, of the item of that name, dtype ("": of a file) and size; 0: none. An item in
 * the file of that path is preferred: an optimizer's states may have the names of the weights. */
LMC__COLD static uint32_t lmc__match_item(const lmc__origin *o, const char *path, const char *name,
                                          const char *dtype, uint64_t size)
{
    lmc_base_part part = {path, name, 0, size, {0, 0}};
    const uint32_t found = lmc__find_part(o, &part, dtype);
    part.path = NULL;
    return found ? found : lmc__find_part(o, &part, dtype);
}

/* -- tensors whose names have another prefix in the base -- */

/* Some programs add a prefix to the names of all tensors, or remove one:
 *     base   model.layers.0.mlp.up.weight
 *     new    base_model.model.layers.0.mlp.up.weight      module.layers.0.mlp.up.weight
 *
 * So if the base lacks a name, shorter and shorter ends of the name are tried, each of which begins
 * after a dot. The base's tensors are sorted by their names read backwards, so tensors with the
 * same end are neighbours. The search stops at an end that a tensor has, or at this limit: */
#define LMC__MAX_PREFIX_PARTS 8u

/* Compares names read backwards. If one name ends with the other, the longer name comes later. */
static int lmc__compare_ends(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    const size_t n = lmc__min(x->size, y->size);
    size_t k;
    for (k = 1; k <= n; k++)
        if (x->name[x->size - k] != y->name[y->size - k])
            return x->name[x->size - k] < y->name[y->size - k] ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static enum lmc_status lmc__list_backwards(lmc__origin *o)
{
    lmc__item spare;
    size_t i;
    for (i = 0; i < lmc__count_items(o); i++) {
        const lmc__item *const item = lmc__get_item(o, i);
        if (item->tensor)
            LMC__TRY(
                lmc__append_item(&o->backwards, item->name, item->size, NULL, i, item->tensor));
    }
    lmc__heap_sort(o->backwards.data, o->backwards.size / sizeof spare, sizeof spare,
                   lmc__compare_ends, &spare);
    return LMC_OK;
}

/* Whether a part between dots is a number: then the prefix names a layer; it was not added. */
static int lmc__has_number(const uint8_t *prefix, size_t size)
{
    size_t i, n_digits = 0, start = 0;
    for (i = 0; i <= size; i++) {
        if (i < size && prefix[i] != '.') {
            n_digits += prefix[i] >= '0' && prefix[i] <= '9';
            continue;
        }
        if (i != start && n_digits == i - start) return 1;
        start = i + 1;
        n_digits = 0;
    }
    return 0;
}

/* The maximum number of names with the same end that are compared. */
#define LMC__MAX_ENDS 64u

/* The number, plus 1, of the base's tensor that has this end and the type of t; 0: none, or
 * several. *n: how many tensors have this end, of any type. */
static uint32_t lmc__match_end(const lmc__origin *o, const lmc_tensor *t, const char *end,
                               size_t *n)
{
    const lmc__item *const items = (const lmc__item *)(const void *)o->backwards.data;
    const size_t n_items = o->backwards.size / sizeof *items;
    const lmc__item wanted = {(const uint8_t *)end, strlen(end), NULL, 0, NULL};
    uint32_t found = 0;
    size_t i, n_looked = 0;
    LMC__FIND_FIRST(i, 0, n_items, lmc__compare_ends(&items[i], &wanted) < 0);
    for (*n = 0; i < n_items && n_looked < LMC__MAX_ENDS; i++, n_looked++) {
        const lmc__item *const item = &items[i];
        const size_t before = item->size - wanted.size; /* letters before the end */
        if (item->size < wanted.size || memcmp(item->name + before, end, wanted.size) != 0) break;
        if (before && item->name[before - 1] != '.') continue;
        ++*n;
        if (!lmc__is_like(item->tensor, t) || lmc__has_number(item->name, before)) continue;
        if (found) return 0;
        found = (uint32_t)item->file_number + 1;
    }
    return n_looked < LMC__MAX_ENDS ? found : 0;
}

/* The number, plus 1, of the base's tensor that differs from t only in the prefix of the name; or
 * 0. The common end has at least two parts, because too many tensors are called "weight". */
LMC__COLD static uint32_t lmc__match_by_end(const lmc__origin *o, const lmc_tensor *t)
{
    const char *end = t->name;
    unsigned parts;
    for (parts = 0; parts < LMC__MAX_PREFIX_PARTS && strchr(end, '.'); parts++) {
        size_t n;
        const uint32_t found = lmc__match_end(o, t, end, &n);
        if (found || n) return found;
        end = strchr(end, '.') + 1;
        if (lmc__has_number((const uint8_t *)t->name, (size_t)(end - t->name))) break;
    }
    return 0;
}
#endif

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
 *    the first base, so the bound holds for the whole chain. */

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
    int is_started; /* the last request was not alone: `left` is kept */
    int is_running; /* a request is being answered: reads that it makes are part of it */
} lmc__meter;

static uint64_t lmc__work_for(uint64_t size, uint64_t n_links)
{
    const uint64_t factor = LMC__WORK_FACTOR * n_links;
    return size < UINT64_MAX / 4 / factor ? size * factor : UINT64_MAX / 4;
}

/* Begins a request for size bytes. A request that is_alone (the user's own call) gets a new budget.
 * Requests that a decoder makes while it goes through a file share one budget. Returns 1 if the
 * request is the outermost: the caller then ends it with lmc__end_work. */
static int lmc__begin_work(lmc__meter *m, uint64_t size, uint64_t n_links, int is_alone)
{
    if (m->is_running) return 0;
    m->is_running = 1;
    if (is_alone || !m->is_started) m->left = lmc__work_for(LMC__WORK_FREE, n_links);
    m->is_started = !is_alone;
    m->left = lmc__min64(UINT64_MAX / 2, m->left + lmc__work_for(size, n_links));
    return 1;
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

#ifndef LMC_NO_ENCODER
/* The writer simulates the meter of readers, so that no reader refuses what it has written (R9-6).
 * It does not know how the base will be cut into blocks, so it simulates each block size from 4 KiB
 * to 1 MiB. A prediction that exceeds the limit at any of these sizes is not used. A block that is
 * in no window costs three times its size: the decoded bytes, at most as many encoded bytes, and
 * the window that may be filled after the block. */
#define LMC__REACH_LOG2 12u
#define LMC__REACH_SIZES 9u
#define LMC__REACH_COST 3u

typedef struct lmc__reach {
    /* [i]: the last blocks of 2^(REACH_LOG2 + i) bytes, the latest first: number of the file plus 1
     * (0: none), number of the block */
    uint64_t last[LMC__REACH_SIZES][LMC__N_WINDOWS][2];
    /* work since the start; work for the current request */
    uint64_t spent[LMC__REACH_SIZES], of_request[LMC__REACH_SIZES];
    uint64_t size, request; /* predicted bytes so far; number of the current request */
} lmc__reach;

/* Looks up a block, and makes it the latest. Returns whether it was in the list. */
static int lmc__reach_block(uint64_t last[LMC__N_WINDOWS][2], uint64_t file, uint64_t block)
{
    unsigned i = 0;
    int found;
    while (i < LMC__N_WINDOWS - 1 && (last[i][0] != file || last[i][1] != block)) i++;
    found = last[i][0] == file && last[i][1] == block;
    for (; i > 0; i--) memcpy(last[i], last[i - 1], sizeof last[i]);
    last[0][0] = file;
    last[0][1] = block;
    return found;
}

/* Whether size bytes of a file of the base, from offset on, may be a prediction; if so, they are
 * counted. Predictions with the same `request` are read at once. Only the first and the last block
 * count: for the blocks between them the limit grows by more than they cost. */
static int lmc__can_reach(lmc__reach *r, uint64_t file, uint64_t offset, uint64_t size,
                          uint64_t request)
{
    lmc__reach next = *r;
    unsigned i;
    next.size += size;
    if (request != next.request) memset(next.of_request, 0, sizeof next.of_request);
    next.request = request;
    for (i = 0; i < LMC__REACH_SIZES; i++) {
        const unsigned log2_size = LMC__REACH_LOG2 + i;
        const uint64_t first = offset >> log2_size, last = (offset + size - 1) >> log2_size,
                       cost = (uint64_t)LMC__REACH_COST << log2_size;
        uint64_t n = !lmc__reach_block(next.last[i], file + 1, first);
        if (last != first) n += !lmc__reach_block(next.last[i], file + 1, last);
        next.spent[i] += n * cost;
        next.of_request[i] += n * cost;
        if (next.spent[i] > lmc__work_for(next.size + LMC__WORK_FREE, 1) ||
            next.of_request[i] > lmc__work_for(LMC__WORK_FREE, 1))
            return 0;
    }
    *r = next;
    return 1;
}

/* == snapshot/writer_plan.h ==================================================================== */

/* How the writer plans a file: which bytes become a run, how they are coded, and what predicts
 * them. A run has one dtype and one kind of prediction:
 *     file   | header |  embed (large)  | norm | q | k (small, alike) | head (large) | rest |
 *     runs   |  text  |      BF16       |         BF16                |     BF16     | AUTO |
 *     segments   3            1           1      1   1, if predicted         1
 *
 * A tensor of at least one block is a run of its own. So the same tensor of the next snapshot is
 * cut into the same blocks. Small neighbours share a run, which saves headers and trees. Bytes
 * between tensors have dtype AUTO.
 *
 * What predicts the bytes:
 *   bytes before the first tensor   the file's header text (texts.h), if they contain it
 *   bytes between tensors           earlier such bytes of the same size, if they can be read back:
 *                                   the headers in an archive hardly differ
 *   a tensor                        its twin, if that was written before and can be read back; else
 *                                   the base's tensor of that name, or of a name that differs only
 *                                   in its prefix
 *   a quantised tensor              its second moment, or nothing
 *   a file without tensors          its twin, or the base's file of its path
 *
 * The plan depends only on the descriptions of files. So the output does not depend on the pieces
 * in which the caller writes a file. */

/* The longest run: a multiple of every block size, with fewer than 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* Log2 of the factor by which the blocks of a sparse delta are larger than others. */
#define LMC__SPARSE_MORE_LOG2 1u
/* Log2 of the elements of a block in a run of several tensors without a prediction: half the usual
 * number, because each tensor has its own statistics. */
#define LMC__SHARED_LOG2_BLOCK 15u

/* The mean size of such a run. Only the name and the size of a tensor decide whether the run ends
 * after it. So the blocks behind a changed tensor stay the same, for programs that store equal
 * ranges once. */
#define LMC__SHARED_RUN_SIZE ((uint32_t)128 << 10)

/* Bytes between small tensors, or a tensor of another dtype, join the run around them if they are
 * whole elements and at most this size. Two more runs would take 200 bytes. */
#define LMC__SPANNED_SIZE 256u

/* Gaps between tensors that may be headers have these sizes. A tensor of at most TINY_SIZE bytes
 * between two gaps is coded with them. The last MAX_GAPS sizes are remembered. */
#define LMC__MIN_GAP_SIZE 128u
#define LMC__MAX_GAP_SIZE 65536u
#define LMC__TINY_SIZE 512u
#define LMC__MAX_GAPS 64u

typedef struct lmc__gap {
    uint32_t file_number;
    uint64_t offset, size; /* size 0: no gap */
} lmc__gap;

struct lmc_writer {
    lmc__buffer body; /* of the section that is being written */
    /* encoded metadata entries, in the order of the calls; ancillary sections with headers */
    lmc__buffer metadata, sections;
    lmc__buffer contents; /* copies of what the wave has encoded, for hashes */
    lmc__buffer hashes;   /* of all files, with options.content_hashes */
    /* the segments of the current run; its section, which is written before its first block */
    lmc__buffer segments, run_head;
    /* bytes of the file that are in no job yet: the start of a block, or of a run if the size of
     * the file is unknown */
    lmc__buffer carry;
    /* lmc_quantizer *, of copied files (copy.h); the writer frees them */
    lmc__buffer quantizers;
    /* bytes of the small files that wait (writer_groups.h), one file after another; CRC and
     * fingerprint of each */
    lmc__buffer group, group_facts;
    lmc__buffer file_records, index_records; /* of the next file; of the index */
    lmc__buffer hints;                       /* for the next file; then they are in the listing */
    /* with read_back: an lmc__written_run for each run; for each block a u32, the CRC of its
     * content; the last block that was read back */
    lmc__buffer written, block_crcs, block_read;
    lmc_writer_options options;
    enum lmc_status status; /* the first error stays */
    uint64_t offset;        /* bytes that were written, or wait in parts */
    lmc_writer_info info;   /* the members from_base_... */
    lmc__coder coder;
    lmc__index_builder index;
    lmc__listing listing; /* all files so far; a waiting file is a stream of its own */
    lmc__origin origin;   /* reads predictions; its read_back is lmc__read_written */
    uint64_t read_block;  /* number of the block in block_read, plus 1; 0: none */
    uint32_t n_runs, n_metadata, n_sections;
    int is_finished;
    uint8_t header[LMC__HEADER_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    lmc__reach reach; /* the cost of reading all predictions so far */
    /* the last gaps, all of different sizes; a new gap replaces the oldest */
    lmc__gap gaps[LMC__MAX_GAPS];
    unsigned next_gap;
    size_t n_waiting; /* files that wait: the last files of the listing */
    int in_group;     /* 1: the waiting files are being written */
    int is_callers;   /* 1: the bytes to code are in the caller's memory, and may change */
    /* 1: the base lacks one of the files, so it cannot be overwritten */
    int is_moved;

    /* the current file, in the listing */
    int in_file, is_waiting;
    lmc_file *file;
    uint64_t left;                /* bytes of the file that may still come */
    enum lmc_dtype default_dtype; /* of bytes outside of tensors */
    lmc__digester digester;
    uint64_t position; /* bytes of its stream in runs that have begun */
    size_t next;       /* the first unit that does not end before position, or an earlier unit */
    /* bytes before the first tensor, if they are needed all at once; else 0 */
    size_t header_size;

    /* the current run, and how it is coded */
    lmc__run run;
    enum lmc_dtype dtype;
    const lmc__quant_params *quant; /* or NULL */
    int is_shared;                  /* several tensors share the run; its blocks are smaller */
    uint64_t run_left;              /* bytes of the run that are in no job yet */
    uint64_t wave_start;            /* where in the stream the planned wave begins */
    uint32_t block;                 /* number of the next block */
    int may_enlarge;                /* see lmc__choose_run_blocks */
};
#define LMC__WRITER_BUFFERS LMC__ROW(lmc_writer, body, options)

/* The current file, unless files wait: it was listed last. */
static lmc__listed_file *lmc__current_file(const lmc_writer *w)
{
    return lmc__listed_at(&w->listing, w->listing.n_files - 1);
}

/* Whether only lmc_writer_end_file tells where the current file ends. */
static int lmc__is_size_unknown(const lmc_writer *w)
{
    return w->in_file && w->file->size == LMC_UNKNOWN_SIZE;
}

/* -- reading back what was written -- */

/* The number of the file's first tensor that does not end before offset. */
static size_t lmc__find_tensor(const lmc_file *file, uint64_t offset)
{
    size_t i;
    LMC__FIND_FIRST(i, 0, file->n_tensors,
                    file->tensors[i].offset + file->tensors[i].size <= offset);
    return i;
}

/* Whether any piece of these bytes can be read back and quantised as in the snapshot. This is
 * impossible if the quantiser needs a second moment, or if elements are cut. */
static int lmc__is_readable(const lmc__listed_file *f, uint64_t offset, uint64_t size)
{
    const lmc_file *const file = &f->file;
    const uint64_t end = offset + size;
    size_t i = lmc__find_tensor(file, offset);
    for (; i < file->n_tensors && file->tensors[i].offset < end; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        const lmc__quant_params *const quant = lmc__quant_of(f, t);
        if (quant && !quant->is_exact &&
            (quant->is_predicted || (t->offset - offset) % quant->width ||
             (end < t->offset + t->size && (end - t->offset) % quant->width)))
            return 0;
    }
    return 1;
}

/* A run that was written. first_block: number of its first block, counted over the snapshot. */
typedef struct lmc__written_run {
    lmc__range range;
    uint64_t first_block;
    size_t block_size;
} lmc__written_run;

/* The number of the block that has byte `position` of a stream. *block: its range. */
static uint64_t lmc__find_block(const lmc_writer *w, size_t stream, uint64_t position,
                                lmc__range *block)
{
    const lmc__written_run *const run =
        (const lmc__written_run *)(const void *)w->written.data +
        lmc__find_stream_range(&w->written, sizeof *run, stream, position);
    const uint64_t i = (position - run->range.start) / run->block_size;
    block->start = run->range.start + i * run->block_size;
    block->end = lmc__min64(block->start + run->block_size, run->range.end);
    return run->first_block + i;
}

/* Whether the bytes of this snapshot that predict the run were already encoded. */
static int lmc__is_encoded(const lmc_writer *w)
{
    uint32_t i;
    for (i = 0; i < w->run.n_segments; i++) {
        const lmc__segment *const s = &w->run.segments[i];
        const lmc__listed_file *const f = lmc__listed_at(&w->listing, s->base ? s->base - 1 : 0);
        if (s->base && f->stream == w->run.stream &&
            f->start + s->base_offset + lmc__prediction_scale(&w->run) * s->size > w->wave_start)
            return 0;
    }
    return 1;
}

/* Reads bytes of a stream (of one file or several) through the caller's read_back. If the tensor is
 * quantised in the snapshot, they are then quantised, too. */
static enum lmc_status lmc__read_caller(const lmc_writer *w, size_t stream, uint64_t position,
                                        uint8_t *dst, size_t size)
{
    size_t number = lmc__find_file(&w->listing, lmc__stream_at(&w->listing, stream), position);
    for (; size != 0; number++) {
        const lmc__listed_file *const f = lmc__listed_at(&w->listing, number);
        const uint64_t offset = position - f->start;
        const size_t part = (size_t)lmc__min64(size, f->file.size - offset);
        size_t i = lmc__find_tensor(&f->file, offset);
        if (part) LMC__TRY(w->options.read_back(w->options.user, number, offset, dst, part));
        for (; i < f->file.n_tensors && f->file.tensors[i].offset < offset + part; i++) {
            const lmc_tensor *const t = &f->file.tensors[i];
            const lmc__quant_params *const quant = lmc__quant_of(f, t);
            const uint64_t from = t->offset > offset ? t->offset : offset,
                           to = lmc__min64(t->offset + t->size, offset + part);
            if (quant)
                LMC__TRY(lmc__quantize_range(quant, dst + (size_t)(from - offset), from - t->offset,
                                             (size_t)(to - from), NULL));
        }
        position += part;
        dst += part;
        size -= part;
    }
    return LMC_OK;
}

/* The origin's read_back; user: the writer. It reads whole blocks, to check by their CRCs that the
 * bytes are those that were encoded. */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_writer *const w = (lmc_writer *)user;
    const lmc__listed_file *const f = lmc__listed_at(&w->listing, file_number);
    uint64_t position = f->start + offset;
    uint8_t *to = (uint8_t *)dst;
    while (size != 0) {
        lmc__range block;
        const uint64_t number = lmc__find_block(w, f->stream, position, &block);
        const size_t block_size = (size_t)(block.end - block.start),
                     skip = (size_t)(position - block.start),
                     part = lmc__min(size, block_size - skip);
        if (w->read_block != number + 1) {
            w->read_block = 0;
            LMC__TRY(lmc__reserve(&w->block_read, block_size));
            LMC__TRY(lmc__read_caller(w, f->stream, block.start, w->block_read.data, block_size));
            if (w->coder.wave.k->crc32c(0, w->block_read.data, block_size) !=
                lmc__load32(w->block_crcs.data + 4 * (size_t)number))
                return LMC_ERR_CHANGED;
            w->read_block = number + 1;
        }
        memcpy(to, w->block_read.data + skip, part);
        position += part;
        to += part;
        size -= part;
    }
    return LMC_OK;
}

/* -- files -- */

/* Checks the tensor's quantiser, if there is one. The quantiser must fit the dtype, size and
 * generation of the tensor. If it needs a second moment, the tensor's twin must refer to it. */
static enum lmc_status lmc__check_quantization(const lmc_tensor *t, const lmc_tensor_hints *hints)
{
    const lmc_twin *const twin = hints->twin;
    const lmc__quant_params *const q = lmc__get_quant_params(hints->quantizer);
    LMC__TRY(lmc__check_quantizer(hints->quantizer, lmc_dtype_find(t->dtype), t->size));
    if (!q) return LMC_OK;
    if (lmc__get_quantizer_loss(hints->quantizer).generation !=
        t->loss.generation + (q->is_exact ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (twin && twin->conversion == LMC_CONVERT_NONE) ? LMC_OK
                                                                              : LMC_ERR_ARGUMENT;
}

#define LMC__MAX_TEXT_HEADER ((uint64_t)128 << 20)

/* Begins the file that was listed last. If the bytes before the first tensor may contain the header
 * text, they are kept in memory. */
LMC__COLD static enum lmc_status lmc__plan_file(lmc_writer *w)
{
    const uint64_t before = w->file->n_tensors ? w->file->tensors[0].offset : 0;
    uint64_t size;
    w->position = w->next = w->header_size = 0;
    w->run_left = 0;
    if (before == 0 || before > LMC__MAX_TEXT_HEADER) return LMC_OK;
    LMC__TRY(lmc__get_text_size(lmc__current_file(w), &size));
    if (size <= before) w->header_size = (size_t)before;
    return LMC_OK;
}

/* -- predictions -- */

/* A unit of prediction: a tensor, or a file without tensors (tensor is NULL). Both NULL: bytes
 * between tensors. */
typedef struct lmc__unit {
    const lmc__listed_file *file;
    const lmc_tensor *tensor;
    uint64_t start, end; /* within the stream */
} lmc__unit;

/* The unit that has byte `at` of the current stream, whose size is known. *i: the tensor (in a
 * group: file) where the search begins; on return, that of the unit, or the next tensor. */
static lmc__unit lmc__unit_at(const lmc_writer *w, uint64_t at, size_t *i)
{
    const lmc_file *const file = w->file;
    lmc__unit u = {lmc__current_file(w), NULL, 0, 0};
    if (w->in_group) {
        const lmc__listed_file *f = lmc__listed_at(&w->listing, *i);
        while (f->start + f->file.size <= at) f = lmc__listed_at(&w->listing, ++*i);
        u.file = f;
        u.start = f->start;
        u.end = f->start + f->file.size;
        return u;
    }
    u.end = file->size;
    if (file->n_tensors == 0) return u;
    u.tensor = file->tensors + *i;
    for (; *i < file->n_tensors && u.tensor->offset + u.tensor->size <= at; u.tensor++) ++*i;
    if (*i < file->n_tensors) {
        u.start = u.tensor->offset;
        u.end = u.start + u.tensor->size;
        if (u.start <= at) return u;
        u.end = u.start;
    }
    u.file = NULL;
    u.tensor = NULL;
    return u;
}

/* What predicts a unit: fields of a RUN body and of a segment. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t base; /* 0: there is no prediction */
    uint64_t base_offset;
} lmc__prediction;

/* The prediction by a twin. Its base is 0 if the twin cannot be read back. size: of the tensor or
 * file that has the twin. */
static lmc__prediction lmc__predict_by_twin(const lmc_writer *w, const lmc_twin *twin,
                                            uint64_t size)
{
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (!w->options.read_back || !twin || (unsigned)twin->conversion > LMC_CONVERT_F32_TO_F16 ||
        twin->file_number >= UINT32_MAX || (twin->conversion && size % 2 != 0))
        return found;
    if (twin->conversion) size *= 2;
    if (!lmc__can_read_back(&w->origin, twin->file_number, twin->offset, size) ||
        !lmc__is_readable(lmc__listed_at(&w->listing, twin->file_number), twin->offset, size))
        return found;
    found.kind = LMC__PREDICT_OWN;
    found.conversion = (unsigned)twin->conversion;
    found.base = (uint32_t)twin->file_number + 1;
    found.base_offset = twin->offset;
    return found;
}

/* What predicts tensor t, or the file if t is NULL. Repeated calls return the same result. */
LMC__COLD static lmc__prediction lmc__find_prediction(const lmc_writer *w,
                                                      const lmc__listed_file *listed,
                                                      const lmc_tensor *t)
{
    const lmc__origin *const o = &w->origin;
    const lmc_file *const f = &listed->file;
    const lmc_tensor_hints hints = lmc__hints_of(listed, t);
    const lmc__quant_params *const quant = lmc__get_quant_params(hints.quantizer);
    lmc__prediction found;
    size_t i;
    memset(&found, 0, sizeof found);
    if (!quant || quant->is_predicted)
        found = lmc__predict_by_twin(w, hints.twin, t ? t->size : f->size);
    if (found.base || quant || !o->base) return found;
    if (hints.base_parts)
        for (i = 0; i < hints.n_base_parts && !found.base; i++)
            found.base = lmc__match_part(o, &hints.base_parts[i]);
    else if (!t) found.base = lmc__match_item(o, f->path, f->path, "", f->size);
    else {
        found.base = lmc__match_item(o, f->path, t->name, t->dtype, t->size);
        if (!found.base) found.base = lmc__match_by_end(o, t);
    }
    if (found.base) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* Whether the twin of t is in no run yet: if so, t must be in a later run than its twin. */
static int lmc__repeats_run(const lmc_writer *w, const lmc_tensor *t)
{
    const lmc_twin *const twin = lmc__hints_of(lmc__current_file(w), t).twin;
    return w->options.read_back && twin && twin->file_number == w->listing.n_files - 1 &&
           (twin->offset >= w->position || t->size > w->position - twin->offset);
}

/* -- runs -- */

/* Each quantised block has a table, so quantised blocks are as large as those of deltas. */
static size_t lmc__choose_block_size(const lmc_writer *w)
{
    const int has_prediction = w->run.prediction != LMC__PREDICT_ZERO || w->quant != NULL;
    unsigned log2_block = w->options.log2_block;
    if (log2_block == 0 && w->is_shared && !has_prediction) log2_block = LMC__SHARED_LOG2_BLOCK;
    return lmc__get_block_size(w->dtype, lmc__limit_log2_block(w->dtype, log2_block),
                               has_prediction);
}

/* Whether tensor t[1] may continue the run that ends with t[0]. Elements must stay whole, even with
 * a conversion (R4-47). Bytes of no known dtype share trees only with others. */
static int lmc__continues_run(const lmc_writer *w, const lmc_tensor *t)
{
    const unsigned width = lmc_dtype_width(w->dtype);
    const uint64_t gap = t[1].offset - (t[0].offset + t[0].size);
    if (gap > LMC__SPANNED_SIZE || gap % width != 0) return 0;
    if (w->run.conversion && gap % 2 != 0) return 0;
    return lmc_dtype_find(t[1].dtype) == w->dtype ||
           (t[1].size <= LMC__SPANNED_SIZE && t[1].size % width == 0 &&
            (w->dtype != LMC_AUTO || w->run.prediction != LMC__PREDICT_ZERO));
}

/* Whether a run of several tensors ends after t. */
static int lmc__ends_run(const lmc_writer *w, const lmc_tensor *t)
{
    return w->coder.wave.k->crc32c(0, (const uint8_t *)t->name, strlen(t->name)) %
               LMC__SHARED_RUN_SIZE <
           t->size;
}

/* Begins a run with tensor t. Returns where the run ends: after t, or after the last of the small
 * tensors that follow and are coded in the same way. */
static uint64_t lmc__plan_tensors(lmc_writer *w, const lmc_tensor *t)
{
    const lmc__listed_file *const f = lmc__current_file(w);
    const lmc_tensor *const first = t, *const behind = w->file->tensors + w->file->n_tensors;
    uint64_t end = t->offset + t->size, large;
    lmc__prediction by = lmc__find_prediction(w, f, t);
    w->dtype = lmc_dtype_find(t->dtype);
    /* If t began in an earlier run, before its twin was written, its rest may have an odd size.
     * With a conversion, such segments are refused (R4-47). */
    if (!by.conversion || (w->position - t->offset) % 2 == 0) w->run.prediction = by.kind;
    if (w->run.prediction != LMC__PREDICT_ZERO) w->run.conversion = by.conversion;
    large = lmc__choose_block_size(w);
    w->quant = lmc__quant_of(f, t);
    if (t->size >= large || w->quant) return end;
    for (t++; t < behind && t - first < (ptrdiff_t)(LMC__MAX_SEGMENTS / 2); t++) {
        if (t->size >= large || !lmc__continues_run(w, t - 1) || lmc__quant_of(f, t) ||
            lmc__repeats_run(w, t) ||
            (w->run.prediction == LMC__PREDICT_ZERO && lmc__ends_run(w, t - 1)))
            break;
        by = lmc__find_prediction(w, f, t);
        if (by.kind != w->run.prediction || by.conversion != w->run.conversion) break;
        end = t->offset + t->size;
    }
    w->is_shared = t - first > 1;
    return end;
}

static enum lmc_status lmc__append_segment(lmc_writer *w, uint64_t start, uint64_t size,
                                           uint32_t base, uint64_t base_offset)
{
    const lmc__segment segment = {start, size, base_offset, base};
    if (size == 0) return LMC_OK;
    if (w->run.n_segments++ == LMC__MAX_SEGMENTS) return LMC_ERR_LIMIT;
    return lmc__append(&w->segments, &segment, sizeof segment);
}

/* If the bytes before the first tensor contain the header text, plans their run. Else plans
 * nothing. */
LMC__COLD static enum lmc_status lmc__plan_text(lmc_writer *w, const uint8_t *header)
{
    const size_t size = w->header_size;
    const uint8_t *at = header, *const end = header + size;
    lmc__listed_file *const f = lmc__current_file(w);
    uint64_t text_size;
    LMC__TRY(lmc__get_text_size(f, &text_size)); /* at most size */
    w->header_size = 0;
    w->body.size = 0;
    LMC__TRY(lmc__reserve(&w->body, text_size));
    lmc__read_text(f, 0, w->body.data, (size_t)text_size);
    for (;; at++) {
        const size_t left = (size_t)(end - at);
        if (left >= text_size)
            at = (const uint8_t *)memchr(at, w->body.data[0], left - (size_t)text_size + 1);
        if (left < text_size || !at) return LMC_OK;
        if (memcmp(at, w->body.data, (size_t)text_size) == 0) break;
    }
    LMC__TRY(lmc__append_segment(w, 0, (uint64_t)(at - header), 0, 0));
    LMC__TRY(lmc__append_segment(w, (uint64_t)(at - header), text_size,
                                 (uint32_t)w->listing.n_files, 0));
    at += text_size;
    LMC__TRY(lmc__append_segment(w, (uint64_t)(at - header), (uint64_t)(end - at), 0, 0));
    w->dtype = LMC_U8;
    w->run.size = size;
    w->run.prediction = LMC__PREDICT_TEXT;
    return LMC_OK;
}

/* An earlier gap of the same size that can be read back, or NULL. If no gap of this size is known,
 * remembers the gap at offset. */
static const lmc__gap *lmc__find_gap(lmc_writer *w, uint64_t offset, uint64_t size)
{
    lmc__gap *gap = w->gaps;
    if (!w->options.read_back || size < LMC__MIN_GAP_SIZE || size > LMC__MAX_GAP_SIZE) return NULL;
    while (gap < w->gaps + LMC__MAX_GAPS && gap->size != size) gap++;
    if (gap < w->gaps + LMC__MAX_GAPS)
        return lmc__can_read_back(&w->origin, gap->file_number, gap->offset, size) ? gap : NULL;
    gap = &w->gaps[w->next_gap++ % LMC__MAX_GAPS];
    gap->file_number = (uint32_t)(w->listing.n_files - 1);
    gap->offset = offset;
    gap->size = size;
    return NULL;
}

/* Whether a unit is a gap: bytes between tensors, or such bytes that are listed as a tensor and
 * that nothing else predicts. */
static int lmc__is_gap(const lmc_writer *w, const lmc__unit *u)
{
    const lmc_tensor *const t = u->tensor;
    return !u->file || (w->options.read_back && t && strcmp(t->dtype, "BYTES") == 0 &&
                        t->size <= LMC__MAX_GAP_SIZE &&
                        lmc__find_prediction(w, u->file, t).kind == LMC__PREDICT_ZERO);
}

/* Plans the run that begins with the gap u, if an earlier gap had its size; else nothing. A tiny
 * tensor with such a gap after it is part of the run. */
static enum lmc_status lmc__plan_gap(lmc_writer *w, lmc__unit u)
{
    uint64_t at = w->position;
    size_t i = w->next;
    const lmc__gap *gap = lmc__find_gap(w, at, u.end - at);
    if (!gap) return LMC_OK;
    while (gap) {
        uint64_t start = u.end; /* of the next gap */
        LMC__TRY(lmc__append_segment(w, at, start - at, gap->file_number + 1, gap->offset));
        at = start;
        u = lmc__unit_at(w, at, &i);
        if (!lmc__is_gap(w, &u) && u.end - at <= LMC__TINY_SIZE && !lmc__quant_of(u.file, u.tensor))
            u = lmc__unit_at(w, start = u.end, &i);
        gap = lmc__is_gap(w, &u) ? lmc__find_gap(w, start, u.end - start) : NULL;
        if (w->run.n_segments > LMC__MAX_SEGMENTS / 2) gap = NULL;
        if (gap) LMC__TRY(lmc__append_segment(w, at, start - at, 0, 0));
        if (gap) at = start;
    }
    w->dtype = LMC_U8;
    w->run.size = at - w->position;
    w->run.prediction = LMC__PREDICT_OWN;
    return LMC_OK;
}

/* Plans the run that begins with unit u, in a stream of known size. */
static enum lmc_status lmc__plan_units(lmc_writer *w, lmc__unit u)
{
    if (lmc__is_gap(w, &u)) {
        LMC__TRY(lmc__plan_gap(w, u));
        if (w->run.size) return LMC_OK;
    } else if (u.tensor) {
        u.end = lmc__plan_tensors(w, u.tensor);
    } else {
        const uint64_t all = lmc__stream_at(&w->listing, w->run.stream)->size;
        lmc__prediction by = lmc__find_prediction(w, u.file, NULL);
        size_t i = w->next;
        w->run.prediction = by.kind;
        w->run.conversion = by.conversion;
        while (u.end < all) { /* the files of a group */
            const lmc__unit next = lmc__unit_at(w, u.end, &i);
            by = lmc__find_prediction(w, next.file, NULL);
            if (by.kind != w->run.prediction) break;
            u.end = next.end;
        }
    }
    w->run.size = u.end - w->position;
    return LMC_OK;
}

/* Appends a segment of a predicted run. If reading its prediction would cost too much (work.h), the
 * segment gets no prediction. */
static enum lmc_status lmc__append_in_reach(lmc_writer *w, uint64_t start, uint64_t size,
                                            uint32_t base, uint64_t base_offset)
{
    if (base && size) {
        uint64_t file = base - 1, at = base_offset;
        if (w->run.prediction == LMC__PREDICT_BASE) {
            const lmc__item *const item = lmc__get_item(&w->origin, base - 1);
            file = item->file_number;
            at += item->tensor ? item->tensor->offset : 0;
        }
        if (!lmc__can_reach(&w->reach, file, at, lmc__prediction_scale(&w->run) * size,
                            start / w->run.block_size) &&
            !w->quant) /* quantised runs need it */
            base = 0;
    }
    return lmc__append_segment(w, start, size, base, base ? base_offset : 0);
}

/* Appends the segments of bytes [at, stop) of a unit that n parts of the base predict. start: where
 * the unit begins. */
LMC__COLD static enum lmc_status lmc__plan_parts(lmc_writer *w, const lmc_base_part *parts,
                                                 size_t n, uint64_t start, uint64_t at,
                                                 uint64_t stop)
{
    size_t i;
    for (i = 0; i < n && at < stop; i++) { /* the part begins at start <= at */
        const lmc_base_part *const part = &parts[i];
        const uint64_t end = part->size < stop - start ? start + part->size : stop;
        if (at < end) {
            const uint32_t base = lmc__match_part(&w->origin, part);
            LMC__TRY(lmc__append_in_reach(w, at, end - at, base,
                                          base ? part->offset + (at - start) : 0));
            at = end;
        }
        start = end;
    }
    return lmc__append_segment(w, at, stop - at, 0, 0);
}

/* Appends the segments of a predicted run: one or several for each unit. */
LMC__COLD static enum lmc_status lmc__plan_segments(lmc_writer *w)
{
    const uint64_t end = w->position + w->run.size;
    uint64_t at, stop;
    size_t i = w->next;
    w->reach.request = UINT64_MAX; /* no request: blocks of each run are counted from 0 */
    for (at = w->position; at < end; at = stop) {
        const lmc__unit u = lmc__unit_at(w, at, &i);
        const lmc_tensor *const t = u.tensor;
        lmc_tensor_hints hints;
        lmc__prediction by;
        stop = lmc__min64(end, u.end);
        if (!u.file) {
            LMC__TRY(lmc__append_segment(w, at, stop - at, 0, 0));
            continue;
        }
        by = lmc__find_prediction(w, u.file, t);
        hints = lmc__hints_of(u.file, t);
        if (by.kind == LMC__PREDICT_BASE && hints.base_parts)
            LMC__TRY(lmc__plan_parts(w, hints.base_parts, hints.n_base_parts, u.start, at, stop));
        else
            LMC__TRY(lmc__append_in_reach(
                w, at, stop - at, by.base,
                by.base ? by.base_offset + (by.conversion ? 2 : 1) * (at - u.start) : 0));
    }
    return LMC_OK;
}

/* Plans the run of the next bytes. data has at least one byte, and at least header_size bytes.
 * available: bytes of the run, if the file's size is unknown. Except in a group, a run has whole
 * elements; the next run, of bytes, takes the rest. */
LMC__COLD static enum lmc_status lmc__plan_run(lmc_writer *w, const uint8_t *data, size_t available)
{
    lmc__run *const run = &w->run;
    unsigned width;
    memset(run, 0, sizeof *run);
    run->start = w->position;
    run->stream = w->listing.n_streams - 1;
    w->segments.size = 0;
    w->dtype = w->default_dtype;
    w->quant = NULL;
    w->is_shared = 0;
    if (w->header_size) LMC__TRY(lmc__plan_text(w, data));
    if (run->size == 0 && lmc__is_size_unknown(w)) run->size = available;
    else if (run->size == 0) LMC__TRY(lmc__plan_units(w, lmc__unit_at(w, w->position, &w->next)));
    if (run->n_segments == 0 && !w->in_group) {
        run->size = lmc__min64(run->size, LMC__MAX_RUN_SIZE);
        width = lmc_dtype_width(w->dtype);
        if (run->size < width) w->dtype = LMC_AUTO;
        else run->size -= run->size % width;
        if (w->dtype == LMC_AUTO && run->size > 4096)
            run->size -= run->size % 8; /* so that blocks have whole elements of any width */
    }
    if (w->quant && w->quant->is_predicted && run->prediction != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its second moment was not written before */
    run->block_size = lmc__choose_block_size(w);
    if (run->prediction != LMC__PREDICT_ZERO && run->n_segments == 0)
        LMC__TRY(lmc__plan_segments(w));
    lmc__set_segments(run, &w->segments);
    return LMC_OK;
}

/* == snapshot/writer_blocks.h ================================================================== */

/* How the writer makes blocks from bytes and hands them to the sink.
 *
 *     lmc__write_bytes   caller's memory -+           +-> in place, whole blocks -----+
 *                                         |           |                               |
 *     lmc__write_stream  in[0] <-> in[1] -+-> spans --+                               +-> jobs
 *                                                     |                               |
 *                                                     +-> carry: blocks that are cut -+
 *
 *     jobs -> wave -> out[0] <-> out[1] -> sink
 *
 * The caller's memory may change while it is coded; each block is then still consistent
 * (lmc__encode_snapshot_task). A file of unknown size is cut into runs of LMC__PENDING_SIZE,
 * because a RUN section says how many bytes follow.
 *
 * Each block has a slot in `out`, as large as the block may become. So sections and blocks of a
 * wave are in order, with gaps between them, and are written as parts. A run's section is in front
 * of its first block (head_size). */

#define LMC__PENDING_SIZE ((size_t)16 << 20) /* runs of files of unknown size */
#define LMC__MIN_SPAN_SIZE (3 * LMC__WAVE_SIZE)

/* Writes directly to the sink, after the parts that wait. */
static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    LMC__TRY(w->coder.sink.write(w->coder.sink.user, data, size));
    w->offset += size;
    return LMC_OK;
}

/* Writes body as a section, without an entry in the index. Call this only when no wave is planned:
 * blocks of a planned wave belong before the section, but would be written after it. */
static enum lmc_status lmc__write_body(lmc_writer *w, const char *kind, const lmc__buffer *body)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    lmc__put_section_header(head, kind, body->data, body->size, w->coder.wave.k);
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, body->data, body->size);
}

/* Writes body as a section, and adds its entry to the index. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind, const lmc__buffer *body)
{
    const uint64_t size = body->size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__index_section(&w->index, kind, body->data, size));
    return lmc__write_body(w, kind, body);
}

LMC__COLD static enum lmc_status lmc__write_run_head(lmc_writer *w)
{
    lmc__buffer *const head = &w->run_head;
    head->size = 0;
    LMC__TRY(lmc__append(head, NULL, LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__append_run(head, &w->run));
    lmc__put_section_header(head->data, "RUN ", head->data + LMC__SECTION_HEADER_SIZE,
                            head->size - LMC__SECTION_HEADER_SIZE, w->coder.wave.k);
    return LMC_OK;
}

/* How much of a block is compared with the prediction: number of pieces, and bytes of each. */
#define LMC__COMPARED_PIECES 16u
#define LMC__COMPARED_SIZE 4096u

/* Enlarges the run's blocks if the run is a sparse delta: in samples of its first block, at data,
 * fewer than one element in 32 has changed. The headers, tables and classes of small blocks would
 * be large compared with so few changes. The run's section is not written yet. */
LMC__COLD static enum lmc_status lmc__choose_run_blocks(lmc_writer *w, const uint8_t *data)
{
    const unsigned width = lmc_dtype_width(w->dtype);
    const size_t step = w->run.block_size / LMC__COMPARED_PIECES,
                 per_piece = LMC__COMPARED_SIZE / width;
    uint8_t base[LMC__COMPARED_SIZE];
    size_t piece, i, n_changed = 0;
    w->may_enlarge = 0;
    if (step < LMC__COMPARED_SIZE) return LMC_OK;
    for (piece = 0; piece < LMC__COMPARED_PIECES; piece++) {
        const uint8_t *const src = data + piece * step;
        LMC__TRY(lmc__read_prediction(&w->origin, &w->run, piece * step, base, sizeof base));
        for (i = 0; i < per_piece; i++)
            n_changed += memcmp(src + i * width, base + i * width, width) != 0;
    }
    if (n_changed * 32 >= LMC__COMPARED_PIECES * per_piece) return LMC_OK;
    w->run.block_size <<= LMC__SPARSE_MORE_LOG2;
    LMC__TRY(lmc__write_run_head(w));
    return lmc__set_coder(&w->coder, w->run.block_size, width, 0);
}

/* Encodes the planned wave, and writes the parts of the previous wave at the same time. Then the
 * digester and the index get the sums and sizes of the new blocks, in order. These blocks become
 * parts, which are written while the next wave is encoded. */
static enum lmc_status lmc__encode_wave(lmc_writer *w)
{
    lmc__coder *c = &w->coder;
    const size_t n = c->n_jobs;
    uint64_t size = 0;
    size_t i, k;
    if (n == 0) return LMC_OK;
    /* so that reading takes no longer than coding */
    c->read_portion = c->out[c->out_number].size * c->read_per_coded;
    LMC__TRY(lmc__run_step(c));
    for (i = 0; i < n; i++) {
        const lmc__snapshot_job *const block_job = lmc__job_at(c, i);
        const lmc__job *const job = &block_job->job;
        const size_t head_size = block_job->head_size;
        const uint8_t *start = job->dst - head_size,
                      *content = block_job->content ? block_job->content : job->src;
        if (block_job->n_pieces) /* the index may have moved */
            lmc__index_fingerprints(&w->index, &w->digester);
        for (k = 0; k < block_job->n_pieces; k++) {
            const lmc__piece *const piece = lmc__piece_at(c, block_job, k);
            lmc__absorb_piece(&w->digester, piece, content);
            content += piece->size;
        }
        if (head_size)
            LMC__TRY(lmc__index_section(&w->index, "RUN ", start + LMC__SECTION_HEADER_SIZE,
                                        head_size - LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__index_block(&w->index, job->dst_size, job->dst));
        if (w->options.read_back)
            LMC__TRY(lmc__append(&w->block_crcs, job->dst + LMC__CONTENT_CRC_AT, 4));
        LMC__TRY(lmc__add_part(c, start, head_size + job->dst_size));
        w->offset += head_size + job->dst_size;
        size += job->src_size;
        if (!block_job->has_base || !(job->dst[2] & LMC__PREDICTED)) continue;
        w->info.from_base_size += job->src_size;
        w->info.from_base_encoded_size += job->dst_size;
    }
    w->contents.size = c->pieces.size = 0;
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return lmc__report_progress(c, size);
}

/* Begins the run of the next bytes (lmc__plan_run). */
LMC__COLD static enum lmc_status lmc__begin_run(lmc_writer *w, const uint8_t *data,
                                                size_t available)
{
    lmc__run *const run = &w->run;
    LMC__TRY(lmc__plan_run(w, data, available));
    if (w->n_runs == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__write_run_head(w));
    LMC__TRY(lmc__add_run(&w->origin, run));
    LMC__TRY(lmc__set_coder(&w->coder, run->block_size, lmc_dtype_width(w->dtype), 0));
    w->n_runs++;
    w->block = 0;
    w->may_enlarge = w->options.log2_block == 0 && !w->quant && w->dtype != LMC_AUTO &&
                     run->prediction == LMC__PREDICT_BASE && run->size > run->block_size;
    w->run_left = run->size;
    w->position += run->size;
    return run->prediction == LMC__PREDICT_OWN && !lmc__is_encoded(w) ? lmc__encode_wave(w)
                                                                      : LMC_OK;
}

/* Makes room in `out` for the whole wave, because jobs point into it. A sixteenth is added for the
 * headers of many small blocks, and for RUN sections that are not long. */
static enum lmc_status lmc__begin_wave(lmc_writer *w, lmc__buffer *out, size_t head_size)
{
    lmc__coder *const c = &w->coder;
    const uint64_t size = lmc__get_wave_size(c, w->run.block_size);
    LMC__TRY(lmc__reserve(out, size + size / 16 + (head_size & ~(size_t)4095)));
    /* A prediction is not larger than its slot, so this is enough for all runs of the wave. */
    if (w->origin.base || w->origin.read_back || w->run.prediction != LMC__PREDICT_ZERO)
        LMC__TRY(lmc__reserve(&c->base, out->cap));
    return w->options.content_hashes && (w->options.may_quantize || w->is_callers)
               ? lmc__reserve(&w->contents, out->cap)
               : LMC_OK;
}

/* Makes a job from the next block of the run, of size bytes. data must stay until the wave is
 * encoded. The prediction is read now, because workers never call callbacks of the base. */
static enum lmc_status lmc__plan_block(lmc_writer *w, const uint8_t *data, size_t size)
{
    lmc__coder *const c = &w->coder;
    const uint64_t at = w->run.size - w->run_left; /* where the block begins in the run */
    const size_t head_size = w->block == 0 ? w->run_head.size : 0,
                 slot = head_size + lmc_block_bound(size);
    lmc__buffer *out = &c->out[c->out_number];
    lmc__snapshot_job *block_job;
    lmc__job *job;
    if (c->n_jobs && slot > out->cap - out->size) {
        LMC__TRY(lmc__encode_wave(w));
        out = &c->out[c->out_number];
    }
    if (c->n_jobs == 0) {
        LMC__TRY(lmc__begin_wave(w, out, head_size));
        w->wave_start = w->run.start + at;
    }
    if (w->block == 0 && w->options.read_back) { /* for lmc__read_written */
        const lmc__written_run written = {{w->run.stream, w->run.start, w->run.start + w->run.size},
                                          w->block_crcs.size / 4 + c->n_jobs,
                                          w->run.block_size};
        LMC__TRY(lmc__append(&w->written, &written, sizeof written));
    }
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    if (w->run.prediction != LMC__PREDICT_ZERO) {
        uint8_t *const base = c->base.data + c->base.size;
        c->base.size += size;
        const enum lmc_status status = lmc__read_prediction(&w->origin, &w->run, at, base, size);
        if (status == LMC_OK) job->base = base;
        else if (status != LMC_ERR_CHANGED || w->quant) return status;
        /* else the predicting bytes have changed, and predict nothing */
    }
    if (head_size) memcpy(out->data + out->size, w->run_head.data, head_size);
    block_job->head_size = head_size;
    block_job->may_change = w->is_callers;
    block_job->has_base = w->run.prediction == LMC__PREDICT_BASE;
    if ((w->quant || w->is_callers) && w->options.content_hashes) {
        block_job->content = w->contents.data + w->contents.size;
        w->contents.size += size;
    }
    job->src = data;
    job->src_size = size;
    job->dst = out->data + out->size + head_size;
    job->dst_size = slot - head_size;
    job->dtype = w->dtype;
    job->level = w->options.level;
    job->is_ungrouped = !(w->header[LMC__FEATURES_AT] & (LMC_FEATURE_BASE | LMC_FEATURE_OWN));
    job->is_unparted = !(w->header[LMC__FEATURES_AT] & LMC_FEATURE_ZEROS);
    job->quant = w->quant;
    if (w->quant) /* the run is one tensor, or a part of one */
        job->first_element =
            (w->run.start + at - w->file->tensors[w->next].offset) / w->quant->width;
    job->number = w->block++;
    out->size += slot;
    w->run_left -= size;
    return w->in_group ? LMC_OK : lmc__plan_pieces(c, &w->digester, block_job, size);
}

/* Plans blocks of the next bytes, and begins runs when needed. *rest: bytes at the end that make no
 * whole block. data must stay until the wave is encoded. */
static enum lmc_status lmc__plan_blocks(lmc_writer *w, const uint8_t *data, size_t size,
                                        size_t *rest)
{
    while (size != 0) {
        size_t n;
        if (size < w->header_size) break;
        if (w->run_left == 0) LMC__TRY(lmc__begin_run(w, data, size));
        n = (size_t)lmc__min64(w->run.block_size, w->run_left);
        if (n > size) break;
        if (w->may_enlarge) {
            LMC__TRY(lmc__choose_run_blocks(w, data));
            continue;
        }
        LMC__TRY(lmc__plan_block(w, data, n));
        data += n;
        size -= n;
    }
    *rest = size;
    return LMC_OK;
}

/* Takes the file's next bytes. If the file waits in a group, they are copied and absorbed.
 *
 * Else they become blocks. `carry` has the first block's beginning, and data fills it up to a whole
 * block (a larger one if the run chooses so); later blocks are coded in place. data is valid only
 * until this returns, so even a small wave is encoded. The rest is copied to carry. But a rest of
 * at most `room` bytes is copied in front of the next read, for the next call; *kept: its size. */
static enum lmc_status lmc__write_span(lmc_writer *w, const uint8_t *data, size_t size, size_t room,
                                       size_t *kept)
{
    const int is_unknown = lmc__is_size_unknown(w);
    size_t rest = w->carry.size, n;
    if (size > w->left) return is_unknown ? LMC_ERR_LIMIT : LMC_ERR_ARGUMENT;
    w->left -= size;
    if (w->is_waiting) {
        LMC__TRY(lmc__append(&w->group, data, size));
        lmc__absorb_bytes(&w->digester, w->coder.wave.k, w->group.data + w->group.size - size,
                          size);
        return LMC_OK;
    }
    while (rest) {
        const size_t whole = is_unknown       ? LMC__PENDING_SIZE
                             : w->header_size ? w->header_size
                                              : (size_t)lmc__min64(w->run.block_size, w->run_left),
                     missing = whole - w->carry.size;
        LMC__TRY(lmc__reserve(&w->carry, missing));
        n = lmc__min(size, missing);
        LMC__TRY(lmc__append(&w->carry, data, n));
        if (n < missing) return LMC_OK;
        data += n;
        size -= n;
        LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
        if (rest == 0 || rest == w->carry.size) continue;
        /* the header's last block goes on after the header: carry lacks its end */
        LMC__TRY(lmc__encode_wave(w));
        memmove(w->carry.data, w->carry.data + w->carry.size - rest, rest);
        w->carry.size = rest;
    }
    for (; size != 0 && rest == 0; data += n - rest, size -= n - rest) {
        n = is_unknown ? LMC__PENDING_SIZE : size;
        if (n > size) break;
        LMC__TRY(lmc__plan_blocks(w, data, n, &rest));
    }
    if (size && size <= room) {
        w->coder.rest = data;
        w->coder.rest_size = *kept = size;
        w->left += size;
        size = 0;
    }
    LMC__TRY(lmc__encode_wave(w));
    w->carry.size = 0;
    return lmc__append(&w->carry, data, size);
}

static enum lmc_status lmc__write_bytes(lmc_writer *w, const uint8_t *data, size_t size)
{
    if (!w->in_file || (!data && size)) return LMC_ERR_ARGUMENT;
    if (size == 0) return LMC_OK;
    w->is_callers = 1;
    LMC__TRY(lmc__write_span(w, data, size, 0, NULL));
    w->is_callers = 0;
    return LMC_OK;
}

/* Where in a buffer a stream's bytes are read to. At least LMC__REST_ROOM bytes before it are for
 * the rest of the previous read. The place begins a cache line: memory of malloc often begins 8 to
 * 31 bytes after a page's start, and some OS kernels on x86-64 copy to such places more slowly. */
#define LMC__REST_ROOM LMC__WAVE_SIZE
#define LMC__PORTION_ROOM (LMC__REST_ROOM + LMC__LINE)
static uint8_t *lmc__portion_at(const lmc__buffer *b)
{
    return b->data + LMC__PORTION_ROOM - (uintptr_t)b->data % LMC__LINE;
}

/* Reads a stream in spans of one wave, so that their bytes stay in the caches; at least
 * LMC__MIN_SPAN_SIZE, as smaller spans cut blocks often. The first reads are smaller (`limit`). */
static enum lmc_status lmc__write_stream(lmc_writer *w, const lmc_stream *stream)
{
    lmc__coder *const c = &w->coder;
    const int is_unknown = lmc__is_size_unknown(w),
              may_predict = w->options.base || w->origin.read_back || w->options.may_quantize;
    const size_t block =
        lmc__get_block_size(LMC_U64, lmc__limit_log2_block(LMC_U64, w->options.log2_block),
                            may_predict)
        << (w->options.base && w->options.log2_block == 0 ? LMC__SPARSE_MORE_LOG2 : 0);
    const uint64_t wave = lmc__get_wave_size(c, block),
                   known = wave < LMC__MIN_SPAN_SIZE ? LMC__MIN_SPAN_SIZE : wave,
                   span = is_unknown ? LMC__PENDING_SIZE : known;
    uint64_t left = w->left,
             limit = is_unknown ? span : LMC__FIRST_READ_SIZE; /* of the next read */
    unsigned number = 0;
    size_t kept = 0;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    if (span > SIZE_MAX / 4) return LMC_ERR_SIZE;
    c->stream = *stream;
    c->ended = 0;
    LMC__TRY(lmc__reserve(&c->in[0], span + LMC__PORTION_ROOM));
    lmc__want(c, lmc__portion_at(&c->in[0]), (size_t)lmc__min64(limit, lmc__min64(span, left)));
    while (c->read_size != 0) {
        const uint8_t *const data = c->read_to;
        lmc__buffer *const next = &c->in[number ^= 1];
        size_t size, before = kept;
        c->read_portion = c->read_size; /* the first span, or the bytes that no step has read */
        lmc__read_portion(c);
        LMC__TRY(c->read_status);
        size = c->read_got;
        left -= size;
        limit = lmc__min64(4 * limit, span);
        LMC__TRY(lmc__reserve(next, span + LMC__PORTION_ROOM));
        lmc__want(c, lmc__portion_at(next), c->ended ? 0 : (size_t)lmc__min64(limit, left));
        c->read_per_coded = size ? (c->read_size + size - 1) / size : 1;
        kept = 0;
        if (size + before)
            LMC__TRY(lmc__write_span(w, data - before, size + before,
                                     c->read_size ? LMC__REST_ROOM : 0, &kept));
    }
    lmc__want(c, NULL, 0);
    return is_unknown && left == 0 ? LMC_ERR_LIMIT : LMC_OK;
}

/* == snapshot/writer_groups.h ================================================================== */

/* Groups of small files, which share a FILE section and runs (spec 4.1).
 *
 *     each its own   | FILE | RUN | block | FILE | RUN | block | FILE | RUN | block | ...
 *     a group        | FILE: 3 files | RUN | block |
 *
 * Two sections and a block take about 250 bytes and a tree. In a group, a file takes only its
 * entry, the entry's copy in the index, and its fingerprint. The section comes before the bytes and
 * has the sizes of all files, so small files wait in memory:
 *     begin_file   the file is listed and checked, as a stream of its own; it keeps its number
 *     write        the bytes are appended to w->group, and absorbed
 *     end_file     the facts are kept; if the group is full, lmc__write_group is called
 *     other file, finish: lmc__write_group joins the streams; writes section, runs and blocks
 *
 * A group cannot be restored over the base, because its blocks may have bytes of several files
 * (in_place.h). So with a base files are grouped only after the first file that the base lacks. */

/* A group is written when it has this many bytes, or files. */
#define LMC__GROUP_SIZE ((size_t)4 << 20)
#define LMC__GROUP_FILES 65536u

/* Whether the file is to wait. It must fit into a block, have no tensors (each begins a run), no
 * hints, no dtype, and no records, which are of a section. The file was not checked yet. */
static int lmc__is_small_file(lmc_writer *w, const lmc_file *file, enum lmc_dtype default_dtype)
{
    if (!w->options.group_files || !file->path || file->n_tensors || w->hints.size ||
        w->file_records.size || default_dtype != LMC_AUTO ||
        file->size >= lmc__get_block_size(LMC_AUTO, w->options.log2_block, 0))
        return 0;
    if (w->origin.base && !lmc__match_item(&w->origin, file->path, file->path, "", file->size))
        w->is_moved = 1;
    return !w->origin.base || w->is_moved || w->options.group_files == LMC_GROUP_ALL;
}

LMC__COLD static enum lmc_status lmc__append_group(lmc__buffer *out, const lmc__listing *l,
                                                   size_t n)
{
    const char *before = "";
    size_t i;
    LMC__TRY(lmc__append_varint(out, n));
    for (i = l->n_files - n; i < l->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        const size_t most = lmc__min(strlen(before), strlen(file->path));
        LMC__TRY(lmc__append_file_entry(out, file, lmc__count_shared(before, file->path, most, 1),
                                        NULL));
        before = file->path;
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__write_group(lmc_writer *w)
{
    lmc__listing *const l = &w->listing;
    const uint8_t *facts = w->group_facts.data;
    size_t i, rest = 0;
    if (w->n_waiting == 0) return LMC_OK;
    w->body.size = 0;
    LMC__TRY(lmc__append_group(&w->body, l, w->n_waiting));
    /* The files' streams become one. The files keep their numbers, and were checked before. */
    for (i = 0; i < w->n_waiting; i++) lmc__remove_stream(l);
    LMC__TRY(lmc__parse_stream(l, w->body.data, w->body.size));
    LMC__TRY(lmc__write_section(w, "FILE", &w->body));
    LMC__TRY(lmc__grow_index(&w->index, &w->index.entries, facts, w->group_facts.size));
    w->next = l->n_files - w->n_waiting;
    for (i = w->next; i < l->n_files; i++) {
        lmc_file *const file = &lmc__listed_at(l, i)->file;
        file->crc = lmc__load32(facts);
        lmc__keep_fingerprints(file, facts + 4);
        facts += 4 + LMC_FINGERPRINT_SIZE;
    }
    w->in_group = 1;
    w->position = w->run_left = 0;
    if (w->group.size) LMC__TRY(lmc__plan_blocks(w, w->group.data, w->group.size, &rest));
    LMC__TRY(lmc__encode_wave(w));
    w->in_group = 0;
    w->n_waiting = w->group.size = w->group_facts.size = 0;
    return LMC_OK;
}

static enum lmc_status lmc__end_waiting(lmc_writer *w)
{
    lmc__digester *const d = &w->digester;
    LMC__TRY(lmc__append(&w->group_facts, NULL, 4 + LMC_FINGERPRINT_SIZE));
    d->fingerprints = w->group_facts.data + w->group_facts.size - LMC_FINGERPRINT_SIZE;
    lmc__finish_digester(d);
    lmc__store32(d->fingerprints - 4, d->file_crc);
    w->n_waiting++;
    w->is_waiting = 0;
    return w->group.size >= LMC__GROUP_SIZE || w->n_waiting >= LMC__GROUP_FILES
               ? lmc__write_group(w)
               : LMC_OK;
}

/* == snapshot/writer.h ========================================================================= */

/* The writer's calls. writer_plan.h makes runs from a file's bytes, writer_blocks.h makes blocks
 * from runs, and writer_groups.h joins small files. All bytes are written once and in order, so any
 * sink can be used. The legal order of the calls:
 *     open -> [ begin_file -> write, write_stream ... -> end_file ] -> finish -> free
 *               ^---------- once or more often, one at a time ----^
 *
 * Metadata may be added at any time before finish. free may be called at any time. The calls write
 * this (spec 1 and 4), and the index grows in memory:
 *     | header | FILE 0 | RUN 0 | blocks | RUN 1 | blocks | FILE 1 | ... | BLKS | INDX | trailer |
 *       open     begin    as bytes come                     begin          finish
 *
 * w->offset is the place of the next byte in the file; bytes before it may still wait for the
 * sink. */

/* Allocates the writer, all zero, so that it can be freed after any error, and writes the header.
 * The options are copied, but not the objects to which they point. The base's fingerprint is
 * computed now. Bytes of the base are read only where they predict something. */
LMC__COLD LMC_API enum lmc_status lmc_writer_open(lmc_writer **writer, const lmc_sink *sink,
                                                  const lmc_writer_options *options)
{
    lmc_writer_options o;
    enum lmc_status status;
    uint64_t features; /* that the options need */
    lmc_writer *w;
    LMC__NEW_OBJECT(writer);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    options = &o;
    features = (options->base ? LMC_FEATURE_BASE : 0) | (options->read_back ? LMC_FEATURE_OWN : 0) |
               (options->may_quantize ? LMC_FEATURE_QUANTIZED : 0);
    if ((features & o.without) || !lmc__is_level(o.level) ||
        (unsigned)o.group_files > LMC_GROUP_ALL ||
        lmc__get_block_size(LMC_U8, o.log2_block, 0) == 0)
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(sink, write);
    LMC__TRY(lmc__check_parallel(options->parallel));
    LMC__TRY(lmc__check_allocator(options->allocator));
    w = (lmc_writer *)lmc__realloc(options->allocator, NULL, 0, sizeof *w);
    if (!w) return LMC_ERR_MEMORY;
    memset(w, 0, sizeof *w);
    w->options = *options;
    lmc__open_coder(&w->coder, options->parallel, options->allocator);
    w->coder.sink = *sink;
    w->coder.task = lmc__encode_snapshot_task;
    w->coder.progress = options->progress;
    w->coder.progress_user = options->user;
    lmc__init_listing(&w->listing, options->allocator);
    lmc__init_buffers(w, LMC__WRITER_BUFFERS, options->allocator);
    status = lmc__open_origin(&w->origin, &w->listing, options->base, options->allocator);
    if (status == LMC_OK)
        status = lmc__open_index(&w->index, options->max_index_size, options->allocator);
    if (status == LMC_OK) status = lmc__list_backwards(&w->origin);
    w->origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->origin.user = w;
    lmc__put_header(w->header, features | (LMC_FEATURE_ZEROS & ~options->without),
                    options->base ? w->origin.fingerprint : NULL, w->coder.wave.k);
    if (status == LMC_OK) status = lmc__sink_write(w, w->header, sizeof w->header);
    if (status != LMC_OK) {
        lmc_writer_free(w);
        return status;
    }
    *writer = w;
    return LMC_OK;
}

/* May be called at any time, even within a file: then the output has no trailer, so it is no LMC
 * file. Does not close the sink, which belongs to the caller. */
LMC__COLD LMC_API void lmc_writer_free(lmc_writer *w)
{
#ifndef LMC_NO_QUANTIZE
    size_t i;
#endif
    if (!w) return;
    lmc__free_coder(&w->coder);
#ifndef LMC_NO_QUANTIZE
    for (i = 0; i < w->quantizers.size / sizeof(lmc_quantizer *); i++)
        lmc_quantizer_free(((lmc_quantizer **)(void *)w->quantizers.data)[i]);
#endif
    lmc__free_buffers(w, LMC__WRITER_BUFFERS);
    lmc__free_buffers(&w->index, LMC__INDEX_BUFFERS);
    lmc__free_listing(&w->listing);
    lmc__free_origin(&w->origin);
    (void)lmc__realloc(w->options.allocator, w, sizeof *w, 0);
}

static enum lmc_status lmc__check_hint(const lmc_writer *w, const lmc_file *file,
                                       const lmc__hint *hint)
{
    const lmc_tensor_hints *const h = &hint->hints;
    const int has_tensor = hint->tensor_number < file->n_tensors && file->tensors;
    size_t i;
    if (h->twin) LMC__CHECK_RESERVED(h->twin);
    for (i = 0; i < h->n_base_parts && h->base_parts; i++) LMC__CHECK_RESERVED(&h->base_parts[i]);
    if (has_tensor && (!h->quantizer || w->options.may_quantize))
        return lmc__check_quantization(&file->tensors[hint->tensor_number], h);
    return h->quantizer || hint->tensor_number ? LMC_ERR_ARGUMENT : LMC_OK;
}

/* Begins a file. The description is written as a FILE body and parsed by the function that readers
 * use. If readers would refuse it: LMC_ERR_ARGUMENT. */
LMC__COLD static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                                 enum lmc_dtype default_dtype)
{
    lmc__listing *const l = &w->listing;
    enum lmc_status status;
    int is_small;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC__DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (l->n_files == UINT32_MAX - 1) return LMC_ERR_LIMIT;
    LMC__CHECK_RESERVED(file);
    for (i = 0; i < file->n_tensors && file->tensors; i++) LMC__CHECK_RESERVED(&file->tensors[i]);
    for (i = 0; i < w->hints.size / sizeof(lmc__hint); i++)
        LMC__TRY(lmc__check_hint(w, file, (const lmc__hint *)(const void *)w->hints.data + i));
    is_small = lmc__is_small_file(w, file, default_dtype);
    if (!is_small) LMC__TRY(lmc__write_group(w));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file, &w->hints));
    LMC__TRY(lmc__append(&w->body, w->file_records.data, w->file_records.size));
    w->file_records.size = 0;
    status = lmc__list_files(l, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    w->file = &lmc__current_file(w)->file;
    lmc__current_file(w)->hints = w->hints;
    lmc__init_buffer(&w->hints, w->options.allocator);
    w->left = file->size == LMC_UNKNOWN_SIZE ? LMC__MAX_FILE_SIZE - 1 : file->size;
    w->default_dtype = default_dtype;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, w->file);
    if (w->options.content_hashes) LMC__TRY(lmc__begin_hashes(&w->digester, &w->hashes));
    w->in_file = 1;
    w->is_waiting = is_small;
    if (is_small) return LMC_OK;
    LMC__TRY(lmc__write_section(w, "FILE", &w->body));
    LMC__TRY(lmc__index_files(&w->index, l, lmc__stream_at(l, l->n_streams - 1)));
    return lmc__plan_file(w);
}

/* Ends the current file. All of its bytes must have been written. If the size is unknown, the bytes
 * that are left become the last run. */
static enum lmc_status lmc__end_file(lmc_writer *w)
{
    size_t rest;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (lmc__is_size_unknown(w)) {
        LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
        LMC__TRY(lmc__encode_wave(w));
    } else if (w->left != 0) return LMC_ERR_ARGUMENT;
    w->in_file = 0;
    if (w->is_waiting) return lmc__end_waiting(w);
    lmc__index_file_end(&w->index, &w->digester, w->file);
    lmc__stream_at(&w->listing, w->listing.n_streams - 1)->size = w->file->size;
    return LMC_OK;
}

/* Whether a key starts with "lmc." but has no meaning yet (spec 8.3). */
static int lmc__is_reserved_key(const char *key)
{
    static const char *const known[] = {"base",    "writer", "created", "source",
                                        "options", "policy", "links"};
    size_t i;
    if (strncmp(key, "lmc.", 4) != 0) return 0;
    for (i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key + 4, known[i]) == 0) return 0;
    return 1;
}

/* Keeps an entry in the form of the index (spec 8.3). lmc__finish_writer sorts the entries. */
static enum lmc_status lmc__add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    size_t key_size;
    if (!key || (!value && size) || w->is_finished) return LMC_ERR_ARGUMENT;
    key_size = strlen(key);
    if (key_size < 1 || key_size > LMC__MAX_STRING || lmc__is_reserved_key(key))
        return LMC_ERR_ARGUMENT;
    if (size > LMC__MAX_VALUE_SIZE || w->n_metadata == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)key_size));
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)size));
    LMC__TRY(lmc__append(&w->metadata, key, key_size));
    LMC__TRY(lmc__append(&w->metadata, value, size));
    w->n_metadata++;
    return LMC_OK;
}

static enum lmc_status lmc__add_section(lmc_writer *w, const char *kind, const void *body,
                                        size_t size)
{
    const uint64_t body_size = size; /* a size_t may be too small for the limit below */
    if (!kind || (!body && size) || w->is_finished || strlen(kind) != 4 ||
        !lmc__is_kind_valid(kind) || !lmc__is_lower(*kind) || memcmp(kind, "hash", 4) == 0)
        return LMC_ERR_ARGUMENT;
    if (body_size > LMC__MAX_BODY_SIZE || w->n_sections == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append(&w->sections, NULL, LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__append(&w->sections, body, size));
    lmc__put_section_header(w->sections.data + w->sections.size - size - LMC__SECTION_HEADER_SIZE,
                            kind, w->sections.data + w->sections.size - size, size,
                            w->coder.wave.k);
    w->n_sections++;
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__write_added_sections(lmc_writer *w)
{
    size_t at;
    for (at = 0; at < w->sections.size;) {
        const uint8_t *const head = w->sections.data + at;
        const uint64_t size = lmc__load64(head + 4);
        LMC__TRY(lmc__index_section(&w->index, (const char *)head, NULL, size));
        at += LMC__SECTION_HEADER_SIZE + (size_t)size;
    }
    return at ? lmc__sink_write(w, w->sections.data, w->sections.size) : LMC_OK;
}

/* Copies the metadata entries to w->carry, sorted by key. An item's name points to the key in
 * w->metadata, so the entry begins 8 bytes before the name. */
LMC__COLD static enum lmc_status lmc__sort_metadata(lmc_writer *w)
{
    const uint8_t *p = w->metadata.data;
    lmc__item *items;
    uint32_t i;
    w->body.size = w->carry.size = 0; /* body holds the items */
    for (i = 0; i < w->n_metadata; i++) {
        const uint32_t key_size = lmc__load32(p), size = lmc__load32(p + 4);
        LMC__TRY(lmc__append_item(&w->body, p + 8, key_size, NULL, 0, NULL));
        p += 8 + (size_t)key_size + size;
    }
    items = (lmc__item *)(void *)w->body.data;
    lmc__sort_items(items, w->n_metadata);
    for (i = 0; i < w->n_metadata; i++) {
        p = items[i].name - 8;
        LMC__TRY(lmc__append(&w->carry, p, 8 + (size_t)lmc__load32(p) + lmc__load32(p + 4)));
    }
    return lmc__has_duplicates(items, w->n_metadata) ? LMC_ERR_ARGUMENT : LMC_OK;
}

/* Writes the section of hashes. The sorted metadata must be in w->carry. */
LMC__COLD static enum lmc_status lmc__write_hashes(lmc_writer *w)
{
    lmc__buffer *const body = &w->run_head; /* there are no more runs */
    body->size = 0;
    LMC__TRY(lmc__append(body, NULL, LMC__HASH_BODY_SIZE)); /* zeros */
    body->data[0] = LMC__HASH_SHA256;
    LMC__TRY(lmc__hash_snapshot(body->data + LMC__HASH_HEAD_SIZE, &w->listing, w->hashes.data,
                                w->carry.data, w->n_metadata, &w->body));
    LMC__TRY(lmc__append(body, w->hashes.data, w->hashes.size));
    return lmc__write_section(w, "hash", body);
}

/* Writes the table of blocks, the index and the trailer. A file that has a trailer is complete. */
LMC__COLD static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t trailer[LMC__TRAILER_SIZE];
    lmc__buffer *const entries = &w->index.entries;
    uint64_t n_sections, body_size, index_at;
    if (w->in_file || w->is_finished || w->listing.n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__write_group(w));
    n_sections = (uint64_t)w->listing.n_streams + w->n_runs + w->n_sections +
                 (w->options.content_hashes != 0);
    if (n_sections > UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__identify_listing(&w->body, &w->listing, w->fingerprint));
    LMC__TRY(lmc__sort_metadata(w));
    LMC__TRY(lmc__write_added_sections(w));
    if (w->options.content_hashes) LMC__TRY(lmc__write_hashes(w));
    LMC__TRY(lmc__index_run_end(&w->index));
    LMC__TRY(lmc__write_body(w, "BLKS", &w->index.rows));
    index_at = w->offset;
    LMC__TRY(lmc__grow_index(&w->index, entries, w->carry.data, w->carry.size));
    LMC__TRY(lmc__grow_index(&w->index, entries, w->index_records.data, w->index_records.size));
    body_size = entries->size;
    if (body_size > LMC__MAX_BODY_SIZE || body_size + LMC__SECTION_HEADER_SIZE > w->index.limit)
        return LMC_ERR_LIMIT;
    memcpy(entries->data, w->header, LMC__HEADER_SIZE);
    memcpy(entries->data + LMC__INDEX_FINGERPRINT_AT, w->fingerprint, LMC_FINGERPRINT_SIZE);
    lmc__store32(entries->data + LMC__INDEX_SECTIONS_AT, (uint32_t)n_sections);
    lmc__store32(entries->data + LMC__INDEX_METADATA_AT, w->n_metadata);
    LMC__TRY(lmc__write_body(w, "INDX", entries));
    lmc__put_trailer(trailer, index_at, w->offset - index_at, w->coder.wave.k);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays: every later call returns it, without evaluating `call`. */
#define LMC__STICKY(call)                                                                          \
    if (!w) return LMC_ERR_ARGUMENT;                                                               \
    if (w->status == LMC_OK) w->status = (call);                                                   \
    return w->status

LMC_API enum lmc_status lmc_writer_begin_file(lmc_writer *w, const lmc_file *file,
                                              enum lmc_dtype default_dtype)
{
    LMC__STICKY(lmc__begin_file(w, file, default_dtype));
}
LMC_API enum lmc_status lmc_writer_write(lmc_writer *w, const void *data, size_t size)
{
    LMC__STICKY(lmc__write_bytes(w, (const uint8_t *)data, size));
}
LMC_API enum lmc_status lmc_writer_write_stream(lmc_writer *w, const lmc_stream *stream)
{
    LMC__STICKY(lmc__write_stream(w, stream));
}
LMC_API enum lmc_status lmc_writer_end_file(lmc_writer *w) { LMC__STICKY(lmc__end_file(w)); }
LMC_API enum lmc_status lmc_writer_add_metadata(lmc_writer *w, const char *key, const void *value,
                                                size_t size)
{
    LMC__STICKY(lmc__add_metadata(w, key, value, size));
}
LMC_API enum lmc_status lmc_writer_add_section(lmc_writer *w, const char *kind, const void *body,
                                               size_t size)
{
    LMC__STICKY(lmc__add_section(w, kind, body, size));
}
LMC_API enum lmc_status lmc_writer_finish(lmc_writer *w) { LMC__STICKY(lmc__finish_writer(w)); }

/* w->offset includes the coder's parts (pipeline.h), which the sink has not got yet. */
LMC_API enum lmc_status lmc_writer_get_info(const lmc_writer *w, lmc_writer_info *info)
{
    size_t i;
    if (!w || !info) return LMC_ERR_ARGUMENT;
    *info = w->info;
    info->size = w->offset;
    for (i = 0; i < w->coder.parts.size / sizeof(lmc__part); i++)
        info->size -= ((const lmc__part *)(const void *)w->coder.parts.data)[i].size;
    info->is_finished = w->is_finished;
    info->coded_size = w->coder.done;
    if (w->is_finished) memcpy(info->fingerprint, w->fingerprint, LMC_FINGERPRINT_SIZE);
    return LMC_OK;
}

/* == snapshot/arrays.h ========================================================================= */

/* Makes a safetensors file from arrays in memory: the header that the safetensors library makes,
 * then the data. So every loader of safetensors opens the restored file.
 *
 *     u64 N | {"__metadata__":{...},"a":{...},"b":{...}} and spaces
 *     data of a | data of b ...
 *
 * Tensors are sorted by falling width of the dtype, then by name, so all data is aligned. */
/* No loader takes a larger header (spec/foreign-bases.md). The number of texts is limited, because
 * each key is compared with all others. */
#define LMC__MAX_SAFETENSORS_HEADER 100000000u
#define LMC__MAX_TEXTS 1024u

/* Whether s is valid UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing above U+10FFFF.
 * The range low .. high of the second byte excludes all of these. A zero byte ends the string, and
 * is never in that range. */
static int lmc__is_utf8(const char *s)
{
    const uint8_t *p = (const uint8_t *)s;
    while (*p) {
        const unsigned c = *p++,
                       low = c == 0xE0   ? 0xA0
                             : c == 0xF0 ? 0x90
                                         : 0x80,
                       high = c == 0xED   ? 0x9F
                              : c == 0xF4 ? 0x8F
                                          : 0xBF;
        unsigned more;
        if (c < 0x80) continue;
        if (c < 0xC2 || c > 0xF4 || *p < low || *p > high) return 0;
        p++;
        for (more = c >= 0xF0 ? 2 : c >= 0xE0 ? 1 : 0; more; more--)
            if ((*p++ & 0xC0) != 0x80) return 0;
    }
    return 1;
}

static enum lmc_status lmc__append_text(lmc__buffer *b, const char *text)
{
    return lmc__append(b, text, strlen(text));
}

/* Appends a string as JSON, without its quotes: control characters, '"' and '\' are escaped, the
 * rest is UTF-8. If a header has other bytes, loaders refuse it, and the command finds no tensors
 * in the file (spec/foreign-bases.md). */
LMC__COLD static enum lmc_status lmc__append_escaped(lmc__buffer *b, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    if (!s || !lmc__is_utf8(s)) return LMC_ERR_ARGUMENT;
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const char escaped[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (c < 0x20) {
            LMC__TRY(lmc__append(b, escaped, 6));
            continue;
        }
        if (c == '"' || c == '\\') LMC__TRY(lmc__append(b, escaped, 1));
        LMC__TRY(lmc__append(b, s, 1));
    }
    return LMC_OK;
}

typedef struct lmc__array_file {
    lmc__buffer sorted;  /* of lmc_array */
    lmc__buffer tensors; /* of lmc_tensor, in the order of `sorted` */
    lmc__buffer json;    /* the header: its size in 8 bytes, the JSON text, spaces */
    lmc__buffer name;    /* the escaped name of the last tensor */
    lmc_file file;
} lmc__array_file;

/* Whether the description is complete, and the size is a whole number of bytes. */
static int lmc__is_array(const lmc_array *a)
{
    uint64_t size;
    if (!a->name || strcmp(a->name, "__metadata__") == 0 || a->dtype == LMC_AUTO ||
        (unsigned)a->dtype >= LMC__DTYPE_COUNT || a->rank > LMC_MAX_RANK || (a->rank && !a->shape))
        return 0;
    size = lmc__tensor_size(lmc_dtype_bits(a->dtype), a->rank, a->shape);
    return size != UINT64_MAX && (a->data || size == 0);
}

/* The order of safetensors: wide dtypes first, then by name. Duplicate names of different dtypes
 * need not be neighbours in this order; the writer finds and refuses them. */
static int lmc__compare_arrays(const void *a, const void *b)
{
    const lmc_array *const x = (const lmc_array *)a, *const y = (const lmc_array *)b;
    const unsigned x_bits = lmc_dtype_bits(x->dtype), y_bits = lmc_dtype_bits(y->dtype);
    return x_bits != y_bits ? (x_bits > y_bits ? -1 : 1) : strcmp(x->name, y->name);
}

static enum lmc_status lmc__sort_arrays(lmc__array_file *f, const lmc_array *arrays, size_t n)
{
    lmc_array spare;
    size_t i;
    for (i = 0; i < n; i++) {
        if (!lmc__is_array(&arrays[i])) return LMC_ERR_ARGUMENT;
        LMC__CHECK_RESERVED(&arrays[i]);
    }
    LMC__TRY(lmc__append(&f->sorted, arrays, n * sizeof spare));
    lmc__heap_sort(f->sorted.data, n, sizeof spare, lmc__compare_arrays, &spare);
    return LMC_OK;
}

/* Appends __metadata__, if it has entries. Comparing all pairs of keys is fast enough, as there are
 * at most LMC__MAX_TEXTS. */
static enum lmc_status lmc__put_texts(lmc__buffer *json, const lmc_text *texts, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++) {
        if (!texts[i].key) return LMC_ERR_ARGUMENT;
        for (k = 0; k < i; k++)
            if (strcmp(texts[i].key, texts[k].key) == 0) return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_text(json, i ? ",\"" : "\"__metadata__\":{\""));
        LMC__TRY(lmc__append_escaped(json, texts[i].key));
        LMC__TRY(lmc__append_text(json, "\":\""));
        LMC__TRY(lmc__append_escaped(json, texts[i].value));
        LMC__TRY(lmc__append_text(json, "\""));
    }
    return n ? lmc__append_text(json, "}") : LMC_OK;
}

/* Makes the header. While its entries are made, tensors' offsets count from the start of the data;
 * in the end, from the start of the file. */
static enum lmc_status lmc__plan_array_file(lmc__array_file *f, const lmc_text *texts,
                                            size_t n_texts)
{
    const lmc_array *const sorted = (const lmc_array *)(const void *)f->sorted.data;
    const size_t n = f->sorted.size / sizeof *sorted;
    lmc_file *const file = &f->file;
    size_t i;
    LMC__TRY(lmc__append(&f->json, NULL, 8));
    LMC__TRY(lmc__append_text(&f->json, "{"));
    LMC__TRY(lmc__put_texts(&f->json, texts, n_texts));
    if (n && n_texts) LMC__TRY(lmc__append_text(&f->json, ","));
    for (i = 0; i < n; i++) {
        lmc__text x = {0, 0, UINT64_MAX, NULL};
        lmc_tensor tensor;
        memset(&tensor, 0, sizeof tensor);
        tensor.name = sorted[i].name;
        tensor.dtype = lmc_dtype_name(sorted[i].dtype);
        tensor.rank = sorted[i].rank;
        tensor.shape = sorted[i].shape;
        tensor.offset = file->size;
        tensor.size = lmc__tensor_size(lmc_dtype_bits(sorted[i].dtype), tensor.rank, tensor.shape);
        if (tensor.size > (uint64_t)INT64_MAX / 2 - file->size) return LMC_ERR_ARGUMENT;
        file->size += tensor.size;
        LMC__TRY(lmc__append(&f->tensors, &tensor, sizeof tensor));
        file->tensors = (const lmc_tensor *)(const void *)f->tensors.data;
        file->n_tensors++;
        f->name.size = 0;
        LMC__TRY(lmc__append_escaped(&f->name, tensor.name));
        LMC__TRY(lmc__reserve(&f->json, f->name.size + (uint64_t)LMC__MAX_ENTRY_TEXT));
        x.dst = f->json.data + f->json.size;
        lmc__make_entry(&x, file, i, f->name.data, f->name.size);
        f->json.size += (size_t)x.at;
    }
    LMC__TRY(lmc__append_text(&f->json, "}"));
    while (f->json.size % 8) LMC__TRY(lmc__append_text(&f->json, " "));
    if (f->json.size - 8 > LMC__MAX_SAFETENSORS_HEADER) return LMC_ERR_LIMIT;
    lmc__store64(f->json.data, f->json.size - 8);
    for (i = 0; i < n; i++) ((lmc_tensor *)(void *)f->tensors.data)[i].offset += f->json.size;
    file->size += f->json.size;
    return LMC_OK;
}

static enum lmc_status lmc__write_array_file(lmc_writer *writer, const lmc__array_file *f)
{
    const lmc_array *const sorted = (const lmc_array *)(const void *)f->sorted.data;
    size_t i;
    LMC__TRY(lmc_writer_begin_file(writer, &f->file, LMC_AUTO));
    LMC__TRY(lmc_writer_write(writer, f->json.data, f->json.size));
    for (i = 0; i < f->file.n_tensors; i++) {
        const uint64_t size = f->file.tensors[i].size;
        if (size > SIZE_MAX) return LMC_ERR_SIZE;
        LMC__TRY(lmc_writer_write(writer, sorted[i].data, (size_t)size));
    }
    return lmc_writer_end_file(writer);
}

LMC__COLD LMC_API enum lmc_status lmc_writer_add_arrays(lmc_writer *writer, const char *path,
                                                        const lmc_array *arrays, size_t n_arrays,
                                                        const lmc_text *texts, size_t n_texts)
{
    lmc__array_file f;
    enum lmc_status status;
    if (!writer || !path || (!arrays && n_arrays) || (!texts && n_texts) || n_arrays > (1u << 28) ||
        n_texts > LMC__MAX_TEXTS || writer->hints.size)
        return LMC_ERR_ARGUMENT;
    memset(&f, 0, sizeof f);
    f.file.path = path;
    lmc__init_buffers(&f, LMC__ROW(lmc__array_file, sorted, file), writer->options.allocator);
    status = lmc__sort_arrays(&f, arrays, n_arrays);
    if (status == LMC_OK) status = lmc__plan_array_file(&f, texts, n_texts);
    if (status == LMC_OK) status = lmc__write_array_file(writer, &f);
    lmc__free_buffers(&f, LMC__ROW(lmc__array_file, sorted, file));
    return status;
}
#endif

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
    lmc__meter own_meter, *meter; /* own_meter, or the base's, or the lender's */
    /* number of snapshots that share the meter, as far as is known, including this snapshot */
    uint64_t n_links;
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

/* The caller's limit on the bytes of the index in memory. */
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

/* A request of the user if windows is NULL; else of a reader whose base is this reader (work.h). */
static enum lmc_status lmc__read_range(lmc_reader *r, lmc__windows *windows, size_t file_number,
                                       uint64_t offset, void *dst, size_t size)
{
    const int is_outermost = lmc__begin_work(r->meter, size, r->n_links, !windows);
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

/* Whether whole files and tensors are checked: not in salvage, and not if the caller skips this. */
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
    const lmc_reader *below;
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
    below =
        o.base && o.base->read == lmc__read_as_base ? (const lmc_reader *)o.base->user : o.lender;
    r->meter = below ? below->meter : &r->own_meter;
    r->n_links = below ? below->n_links + 1 : 1;
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

#endif

#if (LMC__X86 && !defined(__clang__)) || LMC__SIMDE
#pragma GCC diagnostic pop
#endif
#endif /* LMC_IMPLEMENTATION */
