#pragma once

/* -- configuration --
 * Define these before including lmc.h, the same in every file:
 *
 *   LMC_STATIC           all functions are static: a private copy in each file that implements
 *   LMC_API              the text before each public function. Default: nothing, or static with
 *                        LMC_STATIC
 *
 * These leave out parts of the library and their declarations. They can be combined:
 *
 *   LMC_NO_SNAPSHOT      layer 3: snapshots, files and names
 *   LMC_NO_QUANTIZE      quantisers, and decoding what they have coded (LMC_ERR_UNSUPPORTED)
 *   LMC_NO_ENCODER       everything that encodes. The rest decodes what a full library writes
 *
 *   LMC_NO_STDIO         whatever uses files of the C library, and <stdio.h>
 *
 * These matter where LMC_IMPLEMENTATION is defined:
 *
 *   LMC_REALLOC(user, ptr, old_size, new_size)
 *                        like realloc; new_size 0 frees and returns NULL. Default: the C library
 *   LMC_NO_SIMD          the portable code only
 *   LMC_NO_AVX512        on x86-64 the tiers scalar and AVX2 only
 *   LMC_SIMDE            on machines other than x86 and Arm64: compile the AVX2 code through SIMDe
 *                        (SIMD Everywhere; Debian: libsimde-dev), as the tier "simde". Used where
 *                        the compiler's flags give the target vectors (wasm32: -msimd128)
 *
 * No build flags select instructions: the best tier of the machine is found at run time.
 */
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

/* The compiler warns if a status is ignored. Define this as nothing to prevent that. */
#ifndef LMC_NODISCARD
#if defined(__cplusplus) && __cplusplus >= 201703L
#define LMC_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define LMC_NODISCARD __attribute__((warn_unused_result))
#else
#define LMC_NODISCARD
#endif
#endif

#define LMC_STATUS LMC_NODISCARD LMC_API enum lmc_status

/* The defaults of every struct, all zero: `lmc_writer_options options = LMC_DEFAULTS;`. */
#ifdef __cplusplus
#define LMC_DEFAULTS                                                                               \
    {                                                                                              \
    }
#else
#define LMC_DEFAULTS {0}
#endif

/* -- public API --
 *
 * Names. lmc_NOUN_verb. n_ and n count elements or things; size is bytes, cap a capacity in bytes,
 * offset a place in bytes; is_, has_, can_ and may_ are 0 or 1. alloc_user: LMC_REALLOC is called
 * with it.
 *
 * Order of arguments: the object; which part of it (file, tensor, key); where from (offset); the
 * buffer and its size, or what is returned; options; the workspace or alloc_user. A function that
 * makes an object takes the address for it first. From buffer to buffer the destination comes
 * first, as with memcpy. Callbacks: the same, after user.
 *
 * Threads. Only one thread at a time may use an object (reader, writer, salvage) and the readers
 * that were given to it as base or lender. A pool and a quantizer may be shared. Different objects
 * may be used at the same time. Any thread may call functions without an object at any time.
 *
 * What changes within 1.x. Source for one 1.x compiles with every later one, and a compiled program
 * works with the shared library of any other 1.x:
 *
 *   functions, enums      get new ones, at free numbers. A status that a program does not know is
 *                         an error.
 *   structs _options      grow at their ends. Their first member is struct_size: sizeof options,
 *                         or 0 if program and library were compiled with the same lmc.h. Members
 *                         that an older program lacks have their defaults. Members that an older
 *                         library does not know must be zero, else LMC_ERR_UNSUPPORTED. An
 *                         impossible size is LMC_ERR_ARGUMENT.
 *   structs with          keep their size. A new member takes such a word. 0 is its default, or
 *   reserved words        means that the library does not know it. The library sets these words to
 *                         zero, and refuses to write a file or tensor in which they are not:
 *                         LMC_ERR_UNSUPPORTED.
 *   other structs         stay as they are: callbacks, small parts of others, lmc_array. */
#ifdef __cplusplus
extern "C" {
#endif

#define LMC_VERSION_MAJOR 1
#define LMC_VERSION_MINOR 0
#define LMC_VERSION_PATCH 0
#define LMC_VERSION "1.0.0"

/* Version of the file format that is written. Files of all its minor versions are read, unless they
 * use what this library does not know (LMC_ERR_UNSUPPORTED). Files of drafts are not read
 * (LMC_ERR_VERSION): restore 0.4 by v0.5.0, earlier ones by older versions. */
#define LMC_FORMAT_MAJOR 1
#define LMC_FORMAT_MINOR 0

/* The library's version as compiled, "1.0.0". If it differs from LMC_VERSION, the build is
 * mixed. */
LMC_API const char *lmc_version(void);

/* -- status -- */

/* Numbers are stable. */
enum lmc_status {
    LMC_OK = 0,
    LMC_ERR_ARGUMENT = 1, /* NULL, contradictory or out-of-range arguments; calls out of order */
    LMC_ERR_DST_TOO_SMALL = 2, /* dst_cap is less than what is needed */
    LMC_ERR_WORKSPACE = 3,     /* ws_size is less than lmc_block_workspace_size() */
    LMC_ERR_MEMORY = 4,        /* allocation failed */
    LMC_ERR_READ = 5,          /* reading failed: what callbacks return */
    LMC_ERR_WRITE = 6,         /* writing failed: what callbacks return */
    LMC_ERR_NOT_FOUND = 7,     /* no such file, tensor, metadata entry or hash */
    LMC_ERR_LIMIT = 8,         /* over a limit of the format, or one that the caller set */
    LMC_ERR_SIZE = 9,          /* needs more than this machine's size_t can hold */
    LMC_ERR_READ_BACK = 10,    /* the snapshot refers to itself; a read_back callback is needed */
    LMC_ERR_AMBIGUOUS = 11,    /* several files have a tensor of that name: say which */
    LMC_ERR_CANCELLED = 12,    /* for callbacks: the caller does not want to go on */
    LMC_ERR_LOST = 13,         /* salvage: these bytes are not in the file any more */
    LMC_ERR_NOT_ONE_FILE = 14, /* one call: the snapshot holds several files, or a directory */
    LMC_ERR_CHANGED = 15,      /* data that was encoded has changed meanwhile */
    LMC_ERR_DEVICE = 16,       /* lmc_cuda.h (experimental): no GPU, driver or NVRTC; it failed */
    LMC_ERR_NOT_LMC = 20,      /* not an LMC file: wrong magic */
    LMC_ERR_VERSION = 21,      /* a version of the format that this library does not know */
    LMC_ERR_UNSUPPORTED = 22,  /* a feature that this library does not know, or was built without */
    LMC_ERR_TRUNCATED = 23,    /* the input ends early */
    LMC_ERR_CORRUPT = 24,      /* the input breaks a rule of the format */
    LMC_ERR_CHECKSUM = 25,     /* a checksum does not match */
    LMC_ERR_BASE_MISSING = 30, /* a delta without its base */
    LMC_ERR_BASE_WRONG = 31    /* a base other than the one that the delta was made against */
};

/* "LMC_ERR_CORRUPT" and the like; "LMC_ERR_?" for an unknown number. Never NULL. */
LMC_API const char *lmc_status_name(enum lmc_status status);
/* One line for a user: what happened and what to do. Never NULL. */
LMC_API const char *lmc_status_text(enum lmc_status status);

/* -- dtypes -- */

/* The dtypes of safetensors 0.8, and five more. Numbers are stable, and the same in files (spec
 * 4.1), which store any other dtype as a string. */
enum lmc_dtype {
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
    LMC_I4 = 23, /* two in a byte; I2 and U2: four */
    LMC_U4 = 24,
    LMC_I2 = 25,
    LMC_U2 = 26,
    LMC_C128 = 27
};
#define LMC_DTYPE_COUNT 28

/* "BF16" and so on, as in safetensors; "AUTO" for LMC_AUTO; NULL for an unknown number. */
LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype);
/* The dtype of that name; LMC_AUTO for any other name, and for NULL. */
LMC_API enum lmc_dtype lmc_dtype_find(const char *name);
/* Bits of one logical element (F4: 4, C64: 64); 8 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype);
/* Bytes of one *coded* element: 1, 2, 4 or 8. F4 and F6 are coded as bytes, C64 as two of 4 bytes.
 * 1 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype);

/* How to encode: size against time. Decoders need not be told. Each level gives the same bytes on
 * every machine, and from the default on a higher level never makes a block larger. Percentages are
 * of the input, or of a delta's size. Speeds: bench/README.md. Numbers are stable. */
enum lmc_level {
    /* Faster both ways. Larger by 0.1 to 0.5 %; deltas by up to 2 %. */
    LMC_LEVEL_FAST = -1,
    LMC_LEVEL_DEFAULT = 0,
    /* The encoder works harder, decoders hardly. Smaller by 0.02 to 0.3 %; deltas by up to 1 %. */
    LMC_LEVEL_MAX = 1,
    /* The smallest and slowest; deltas are also decoded more slowly. Smaller than MAX by less than
     * 0.1 %; deltas by up to 1.2 %. */
    LMC_LEVEL_ARCHIVE = 2
};

/* -- parallel_for of the caller -- */

/* One task. It must be called once for every index below n_tasks, with worker < n_workers. No two
 * tasks may run at the same time with the same worker. */
typedef void (*lmc_task)(void *arg, size_t index, unsigned worker);

/* How to run tasks: run() gets n_workers as it stands here, and returns when all of them have
 * returned. A NULL lmc_parallel: one after another. */
typedef struct lmc_parallel {
    void (*run)(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers);
    void *user;
    unsigned n_workers; /* 1 .. 1024 */
} lmc_parallel;

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* Bytes at random access: an LMC file, or the elements of a tensor. read_at reads all of it, or
 * fails. Like every callback it returns LMC_OK, or the error that the calling function then
 * returns: best LMC_ERR_READ, LMC_ERR_WRITE or LMC_ERR_CANCELLED. */
typedef struct lmc_source {
    enum lmc_status (*read_at)(void *user, uint64_t offset, void *dst, size_t size);
    void *user;
    uint64_t size; /* bytes */
} lmc_source;
#endif

/* -- layer 1: blocks --
 * A block holds n >= 1 coded elements of at most LMC_MAX_BLOCK_SIZE bytes, and a header of 24 bytes
 * with the size, the width and the CRC-32C of the decoded bytes; with a prediction, also that of
 * the payload: so damage is found without the prediction, and is not mistaken for a wrong one.
 *
 * The prediction is any array of the same size that the decoder will also have. Best are the same
 * elements of an earlier snapshot, or what a caller computes from them. It is not used if a sample
 * says that the block is smaller without it (at level max: if it is smaller). */

#define LMC_BLOCK_HEADER_SIZE 24u
#define LMC_MAX_BLOCK_SIZE (1u << 22)

typedef struct lmc_block_info {
    uint32_t n;           /* elements */
    unsigned width;       /* bytes per element: 1, 2, 4, 8 */
    size_t size;          /* decoded bytes: n * width */
    size_t encoded_size;  /* header and payload */
    uint32_t crc;         /* CRC-32C of the decoded bytes, as stored */
    int is_stored;        /* 1: the payload is the bytes themselves */
    int has_prediction;   /* 1: coded against a prediction */
    uint32_t payload_crc; /* CRC-32C of the payload if has_prediction; else 0 */
    uint64_t reserved[4]; /* zero; see the head of this part */
} lmc_block_info;

/* Largest encoded size of a block of size bytes: size + LMC_BLOCK_HEADER_SIZE (saturating). */
LMC_API size_t lmc_block_bound(size_t size);

/* Workspace in bytes to encode or decode blocks of up to n elements of `width` bytes (1, 2, 4 or 8;
 * LMC_AUTO: 1), of any alignment. One for each thread, which may be used again and again. 0 if n is
 * 0 or the block too large. */
LMC_API size_t lmc_block_workspace_size(size_t n, unsigned width);

typedef struct lmc_block_options {
    size_t struct_size;     /* see the head of this part; 0 will do */
    enum lmc_dtype dtype;   /* of encoding */
    enum lmc_level level;   /* of encoding */
    uint32_t number;        /* of the block among its neighbours, from 0. It is not stored, but
                               decoding checks it */
    const void *prediction; /* see above; or NULL */
    size_t prediction_size; /* must be the block's decoded size */
} lmc_block_options;

/* The defaults for that dtype. */
static inline lmc_block_options LMC_BLOCK_OPTIONS(enum lmc_dtype dtype)
{
    lmc_block_options options = LMC_DEFAULTS;
    options.struct_size = sizeof options;
    options.dtype = dtype;
    return options;
}

#ifndef LMC_NO_ENCODER
/* Encodes size bytes at src, a multiple of the dtype's width, as one block. options must not be
 * NULL: it has the dtype. *dst_size: bytes written, at most lmc_block_bound(size). Time O(size).
 * Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE, BASE_WRONG (prediction_size). */
LMC_STATUS lmc_block_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                            size_t size, const lmc_block_options *options, void *ws,
                            size_t ws_size);
#endif

/* Reads and checks the header of a block, of which src has at least the header. Errors: ARGUMENT,
 * TRUNCATED, CORRUPT, CHECKSUM (also: another number), UNSUPPORTED. */
LMC_STATUS lmc_block_parse(const void *src, size_t src_size, uint32_t number, lmc_block_info *info);

/* Decodes the block at src, which must be exactly src_size bytes long, to dst. *dst_size: decoded
 * bytes. options: number and prediction; NULL: 0 and none. The prediction is not read if
 * info.has_prediction is 0. dst may be the prediction, which is then replaced. After an error the
 * prediction is as it was; any other dst may hold anything. Time O(size), whatever the input.
 * Errors: those of lmc_block_parse, DST_TOO_SMALL, WORKSPACE; BASE_MISSING (the block itself is
 * intact), BASE_WRONG (another size or other bytes). */
LMC_STATUS lmc_block_decode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                            size_t src_size, const lmc_block_options *options, void *ws,
                            size_t ws_size);

typedef struct lmc_quantizer lmc_quantizer;

#if !defined(LMC_NO_ENCODER) || !defined(LMC_NO_SNAPSHOT)
/* -- quantisers: lossy, on request --
 * For the moments of an optimizer, which take most of a training checkpoint but need little
 * precision. A quantiser replaces each element by the nearest of a few values, and the codec stores
 * the numbers of these. The loss is measured and stored with the tensor. Second moments are
 * quantised by their logarithm, and no positive one becomes zero. First moments are quantised as
 * updates, m / (sqrt(v) + eps), if the second moment is given; else in proportion to their group,
 * as all other tensors. NaN, infinities, -0, subnormals and negative second moments survive
 * exactly. (After BitSnap, arXiv 2511.12376.) lmc_quantizer_fit (include/lmc_extra.h) finds one.
 *
 * With LMC_NO_QUANTIZE quantised blocks can still be found, skipped and described. Decoding one is
 * LMC_ERR_UNSUPPORTED, and so is encoding with a quantizer other than NULL. */

/* How an error is measured. Numbers are stable. */
enum lmc_measure {
    LMC_MEASURE_NONE = 0,
    /* For moments: the L2 norm of the change of the optimizer's update, over that of the update. */
    LMC_MEASURE_UPDATE = 1,
    /* The largest change of an element, over the element: a hard bound. Exceptions do not
     * change. */
    LMC_MEASURE_RELATIVE = 2,
    LMC_MEASURE_NMSE = 3 /* mean squared error over mean square */
};

/* What a tensor has lost. UPDATE and NMSE are taken from a sample, without exceptions. For second
 * moments they are estimates: within a percent or two if the errors do not depend on the size of
 * the updates; up to 20 % too low if a few updates outweigh all others. */
typedef struct lmc_loss {
    unsigned generation;      /* how often it was quantised; 0: it is exact */
    enum lmc_measure measure; /* of the last time */
    double error;             /* by that measure; 0 .. 1 */
} lmc_loss;
#endif

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
LMC_API void lmc_quantizer_free(lmc_quantizer *quantizer); /* NULL allowed */

typedef struct lmc_quantizer_info {
    int is_lossless;       /* 1: it keeps the tensor as it is */
    const char *reason;    /* why; "" if it does not */
    int is_grid;           /* 1: a uniform grid; 0: a table, as earlier versions made */
    unsigned n_codes;      /* of the table, zero included; or points of the grid in the sample */
    uint64_t n_exceptions; /* elements that stay as they are, about */
    double bits;           /* for each element when coded, about */
    lmc_loss loss;
    uint64_t reserved[4]; /* zero; see the head of this part */
} lmc_quantizer_info;
LMC_STATUS lmc_quantizer_get_info(const lmc_quantizer *quantizer, lmc_quantizer_info *info);

/* Replaces bytes [offset, offset + size) of the tensor, which are at data, by what decoding will
 * give. second: the same bytes of the second moment, as decoded, if the quantizer was fitted with
 * one; else NULL. Applying it again changes nothing. Errors: ARGUMENT. */
LMC_STATUS lmc_quantizer_apply(const lmc_quantizer *quantizer, uint64_t offset, void *data,
                               size_t size, const void *second);
#endif

/* -- layer 2: tensors in memory --
 * A coded tensor is its blocks, one after another, numbered from 0: all of the same decoded size
 * but the last. There is no other header: the caller knows dtype and size. */

typedef struct lmc_tensor_options {
    size_t struct_size; /* as of a block's */
    enum lmc_dtype dtype;
    unsigned log2_block; /* 14 .. 22: elements per block as a power of two, of at most 4 MiB
                            altogether; 0: the default, 16 (17 for bytes; with a prediction 20, 18
                            for elements of 4 bytes and more) */
    const lmc_parallel *parallel; /* or NULL */
    enum lmc_level level;         /* of encoding */
    const void *prediction;       /* of the whole tensor, see layer 1; or NULL */
    /* Encoding, lossy; or NULL. If it was fitted with a second moment, that moment, as decoded, is
     * the prediction, also of decoding. Blocks are as with a prediction: to decode, give the
     * quantizer or the log2_block, too. */
    const lmc_quantizer *quantizer;
    uint64_t prediction_size; /* must be the tensor's size */
} lmc_tensor_options;

/* The defaults for that dtype, which is the only option without a default. */
static inline lmc_tensor_options LMC_TENSOR_OPTIONS(enum lmc_dtype dtype)
{
    lmc_tensor_options options = LMC_DEFAULTS;
    options.struct_size = sizeof options;
    options.dtype = dtype;
    return options;
}

/* Workspace for encoding and decoding with these options, in bytes, for all workers; 0 if the
 * options are illegal. For bf16 each worker takes about 1 MiB; with a prediction about 13 MiB. A
 * call without a workspace (NULL and 0) allocates one by LMC_REALLOC (errors: MEMORY, too). */
LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options);

#ifndef LMC_NO_ENCODER
/* Largest encoded size of size bytes; SIZE_MAX if options are illegal, or if that is more. */
LMC_API size_t lmc_tensor_bound(size_t size, const lmc_tensor_options *options);
/* Encodes size bytes (0: no blocks). A dst_cap of lmc_tensor_bound() always suffices. Errors:
 * ARGUMENT, DST_TOO_SMALL, WORKSPACE, LIMIT (2^32 blocks), BASE_WRONG (prediction_size). */
LMC_STATUS lmc_tensor_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                             size_t size, const lmc_tensor_options *options, void *ws,
                             size_t ws_size);
#endif

/* Decodes the whole tensor of size bytes, coded in exactly src_size bytes at src, to dst. options:
 * parallel and prediction as above; dtype (the same) and log2_block (at least the one used to
 * encode) only tell the size of the workspace. dst may be the prediction; an error leaves a mixture
 * there. Errors: ARGUMENT, WORKSPACE, TRUNCATED, CORRUPT, CHECKSUM, UNSUPPORTED, BASE_MISSING,
 * BASE_WRONG (also: prediction_size is not size). */
LMC_STATUS lmc_tensor_decode(void *dst, size_t size, const void *src, size_t src_size,
                             const lmc_tensor_options *options, void *ws, size_t ws_size);
/* The same for bytes [offset, offset + size) of a tensor of total_size bytes. Only blocks in the
 * range are decoded; of those before it only the headers are read. Blocks after it are not read,
 * and total_size is not checked, unless the range is the whole tensor. The prediction is that of
 * the whole tensor, and must not overlap dst. */
LMC_STATUS lmc_tensor_decode_range(void *dst, size_t size, const void *src, size_t src_size,
                                   uint64_t offset, uint64_t total_size,
                                   const lmc_tensor_options *options, void *ws, size_t ws_size);

#ifndef LMC_NO_SNAPSHOT
/* -- layer 3: snapshots --
 * A snapshot is a set of source files, restored byte for byte; ranges of a file are tensors, with a
 * name, a dtype and a shape, which can be read alone. A delta is a snapshot coded against another
 * one, its base.
 *
 * Strings are NUL-terminated, and UTF-8 by convention. Only lmc_writer_add_arrays checks that:
 * escape strings before you print them. If a stream claims to have read more than was asked for,
 * that is LMC_ERR_READ. */

#define LMC_UNKNOWN_SIZE UINT64_MAX
#define LMC_FINGERPRINT_SIZE 16
#define LMC_MAX_RANK 32

enum lmc_file_kind { LMC_FILE_REGULAR = 0, LMC_FILE_DIRECTORY = 1 };

/* A tensor: a named range of a source file. */
typedef struct lmc_tensor {
    const char *name;      /* unique within the file; may be "" */
    const char *dtype;     /* as the source says, "BF16"; unknown strings are kept; 1 .. 32 bytes */
    unsigned rank;         /* 0 .. LMC_MAX_RANK; 0: a scalar */
    const uint64_t *shape; /* rank entries, outermost first */
    uint64_t offset;       /* first byte within the file */
    uint64_t size;         /* bytes. For known dtypes: product of shape, times bits, over 8 */
    /* Set by readers and lmc_file_identify (spec 7.1); zero while not known. */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    const struct lmc_twin *twin; /* writer only: what the tensor can be made from, or NULL */
    /* Set by readers. The writer keeps it, unless quantizer says otherwise. All zero: exact. */
    lmc_loss loss;
    /* Writer only, lossy: quantises what the writer gets; or NULL. Must outlive the writer. If it
     * was fitted with a second moment, twin says where that is, with LMC_CONVERT_NONE. */
    const lmc_quantizer *quantizer;
    /* Writer only: the parts of the base to code it against; NULL: the tensor of its name. */
    const struct lmc_base_part *base_parts;
    size_t n_base_parts;
    uint64_t reserved[4]; /* zero; see the head of this part */
} lmc_tensor;

/* The next `size` bytes of a tensor are coded against as many bytes of a tensor or file of the
 * base, from `offset` on. Parts follow one another; what comes after the last one is coded by
 * itself. A wrong claim costs only size. Parts should begin and end with whole elements. */
typedef struct lmc_base_part {
    const char *path; /* of the base's file that has the tensor; "" is that of a lone file. NULL:
                         the first file that has one of that name which is long enough */
    const char *name; /* of the tensor; may be "". NULL: a gap, which nothing predicts */
    uint64_t offset;  /* first byte within the tensor of the base */
    uint64_t size;    /* bytes */
} lmc_base_part;

/* Other bytes of the same snapshot that a tensor, or a file without tensors, equals or is rounded
 * from. It then takes almost nothing. A wrong claim costs only size. These bytes must have been
 * written before, and must not have a twin themselves. */
enum lmc_conversion {
    LMC_CONVERT_NONE = 0,
    LMC_CONVERT_F32_TO_BF16 = 1,
    LMC_CONVERT_F32_TO_F16 = 2
};
typedef struct lmc_twin {
    size_t file_number;
    uint64_t offset;                /* first byte within that file */
    enum lmc_conversion conversion; /* if not NONE: from twice as many bytes, to nearest even */
} lmc_twin;
/* Rounds n F32 elements as the conversion says; both little-endian. ARGUMENT: no conversion. */
LMC_STATUS lmc_conversion_apply(void *dst, const void *src, size_t n,
                                enum lmc_conversion conversion);

typedef struct lmc_file {
    const char *path; /* relative, '/'-separated, without "." and ".."; "" only of a lone file */
    enum lmc_file_kind kind;
    uint64_t size;     /* bytes, or LMC_UNKNOWN_SIZE; 0 for a directory */
    int has_mode;      /* 1: mode is set */
    uint32_t mode;     /* POSIX permission bits, at most 07777 */
    int has_mtime;     /* 1: the time below is set */
    int64_t mtime_s;   /* seconds since 1970 */
    uint32_t mtime_ns; /* 0 .. 999,999,999 */
    size_t n_tensors;  /* sorted by offset, not overlapping; 0 if size is unknown */
    const lmc_tensor *tensors;
    uint32_t crc; /* CRC-32C of the whole file; set as a tensor's fingerprint is */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* n_tensors == 0: of the file as one tensor */
    /* Writer only, for a file of known size without tensors: as for tensors. The name of such a
     * file is its path. One with a twin is never grouped (group_files). */
    const struct lmc_base_part *base_parts;
    size_t n_base_parts;
    const struct lmc_twin *twin;
    uint64_t reserved[4]; /* zero; see the head of this part */
} lmc_file;

typedef struct lmc_sink {
    enum lmc_status (*write)(void *user, const void *data, size_t size); /* append all of it */
    void *user;
} lmc_sink;

/* Reads up to size bytes (at least 1 unless the stream ends: then 0) into dst; *got: how many. */
typedef struct lmc_stream {
    enum lmc_status (*read)(void *user, void *dst, size_t size, size_t *got);
    void *user;
} lmc_stream;

/* Memory in place of callbacks: a sink that appends to data and grows it (start from all zero, end
 * with lmc_memory_free); a source; a stream that reads data from position on. */
typedef struct lmc_memory {
    uint8_t *data;
    size_t size, cap;
    size_t position;
    void *alloc_user;
} lmc_memory;

/* The snapshot that a delta is coded against: files whose fingerprints are known, from a reader
 * (lmc_reader_base) or from lmc_file_identify. To restore the delta, a base with the same
 * fingerprint is needed, in any form. Tensors are matched by name, dtype and size (of several, the
 * one in the file of the same path); files without tensors by path. */
typedef struct lmc_base {
    size_t n_files;
    /* The result must be valid as long as the base is in use. */
    const lmc_file *(*get_file)(void *user, size_t file_number);
    /* Reads all of it. Errors: READ, or what is wrong with the base. */
    enum lmc_status (*read)(void *user, size_t file_number, uint64_t offset, void *dst,
                            size_t size);
    void *user;
} lmc_base;

LMC_API lmc_sink lmc_memory_sink(lmc_memory *memory);
LMC_API lmc_source lmc_memory_source(lmc_memory *memory);
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory);
LMC_API void lmc_memory_free(lmc_memory *memory);

#ifndef LMC_NO_STDIO
/* Open files, in binary mode. The caller closes them (fclose may fail). A source seeks; its size is
 * taken when it is made. Errors: ARGUMENT, READ (the file cannot seek, or is larger than the C
 * library can say). */
LMC_API lmc_sink lmc_stdio_sink(FILE *file);
LMC_API lmc_stream lmc_stdio_stream(FILE *file);
LMC_STATUS lmc_stdio_source(lmc_source *source, FILE *file);
#endif
#ifndef LMC_NO_ENCODER
/* -- writer --
 * For each file: lmc_writer_begin_file; all of its bytes in order, in pieces of any size
 * (lmc_writer_write) or from a stream (lmc_writer_write_stream); lmc_writer_end_file. In the end
 * lmc_writer_finish. */

typedef struct lmc_writer lmc_writer;

/* All zero: the defaults. */
typedef struct lmc_writer_options {
    size_t struct_size;  /* as of a block's */
    unsigned log2_block; /* 14 .. 22: elements per block as a power of two, of wide ones fewer:
                            blocks have 4 MiB at most; 0: as tensors */
    enum lmc_level level;
    /* 1: tensors may have a quantizer. The file's header, which is written first, says so. */
    int may_quantize;
    /* 1: the snapshot has the SHA-256 of each tensor's bytes, and of each file's other bytes, and
     * one that covers all of it, to be signed (lmc_reader_read_snapshot_hash). Slow. */
    int content_hashes;
    /* 1: small files without tensors share sections, blocks and trees, which saves some 160 bytes
     * for each. Up to 4 MiB of them wait in memory. Add similar ones one after another. Files that
     * the base has, too, do not share: so the snapshot can be restored over it
     * (lmc_reader_can_restore_in_place). 2: these share, too, and it cannot. */
    int group_files;
    /* Bytes of index; 0: 1 GiB, which every reader opens by default. More is LMC_ERR_LIMIT. */
    uint64_t max_index_size;
    const lmc_parallel *parallel; /* or NULL; must outlive the writer */
    const lmc_base *base;         /* or NULL; must outlive the writer */
    /* For twins, or NULL: reads what was written earlier, from where the caller has it (before or
     * after it was quantised). With it, restoring needs a read_back, too. */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    /* Or NULL. Called by the caller's thread about once a wave of blocks, with the number of bytes
     * coded so far. It rises, and the last call gives the total. If it does not return LMC_OK, the
     * writer ends. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user; /* of read_back and progress */
    void *alloc_user;
} lmc_writer_options;

/* Memory:
 *   for each worker  1 MiB (with blocks of more than 512 KiB: two blocks), twice that for
 *                    lmc_writer_write_stream; a workspace of about 13 bytes for each element of a
 *                    block
 *   in any case      one block; for files of unknown size 16 MiB, or 48 MiB with
 *                    lmc_writer_write_stream
 *   for the index    8 bytes for each block, about 250 and its name for each tensor
 *   for a header     the bytes before a file's first tensor, up to 128 MiB, if they may be what
 *                    safetensors writes there
 *   in flight        12 bytes for each tensor that begins in a block
 *   with group_files the small files that wait, up to 4 MiB and a block
 *
 * The sink may get bytes one wave of blocks later. With a parallel, any of its workers calls the
 * sink, perhaps while the stream of lmc_writer_write_stream is called, but never two at once. */
LMC_STATUS lmc_writer_open(lmc_writer **writer, const lmc_sink *sink,
                           const lmc_writer_options *options);
/* Begins a file. *file is copied. Its path must differ from those before. default_dtype says how to
 * code the bytes that belong to no tensor (raw arrays); LMC_AUTO if in doubt. */
LMC_STATUS lmc_writer_begin_file(lmc_writer *writer, const lmc_file *file,
                                 enum lmc_dtype default_dtype);
/* The file's next bytes. LMC_ERR_ARGUMENT if they are more than file->size said. */
LMC_STATUS lmc_writer_write(lmc_writer *writer, const void *data, size_t size);
/* The file's next bytes, from stream: until it ends, or until the file is complete if its size is
 * known (then no byte more is taken). Reading, coding and writing go on at the same time. */
LMC_STATUS lmc_writer_write_stream(lmc_writer *writer, const lmc_stream *stream);
/* LMC_ERR_ARGUMENT if fewer bytes were written than file->size said. */
LMC_STATUS lmc_writer_end_file(lmc_writer *writer);

/* An array in memory, to be a tensor of a file. */
typedef struct lmc_array {
    const char *name;     /* UTF-8 */
    enum lmc_dtype dtype; /* not LMC_AUTO */
    unsigned rank;
    const uint64_t *shape; /* rank entries, outermost first */
    const void *data;      /* product of shape times lmc_dtype_bits, over 8, bytes; little-endian */
} lmc_array;

/* An entry of the __metadata__ of a safetensors file. */
typedef struct lmc_text {
    const char *key;   /* UTF-8 */
    const char *value; /* UTF-8 */
} lmc_text;

/* Adds a whole safetensors file of these arrays, as safetensors' own writer makes it: wide dtypes
 * first, then by name. path: "" if it is the only file. texts: entries of __metadata__, in their
 * order ({"format", "pt"}); NULL and 0 for none. Errors: before anything is written ARGUMENT (a
 * name or key twice, or not valid UTF-8 (RFC 3629); a shape that makes no whole bytes), LIMIT (a
 * header over 100,000,000 bytes, which no loader takes); then those of the writer. */
LMC_STATUS lmc_writer_add_arrays(lmc_writer *writer, const char *path, const lmc_array *arrays,
                                 size_t n_arrays, const lmc_text *texts, size_t n_texts);
/* Any time before finishing; key: 1 to 65,535 bytes, value: any bytes, at most 2^28. Two entries of
 * the same key make finishing fail. Of keys that start with "lmc." only those of spec 8.3 are
 * allowed. Errors: ARGUMENT, LIMIT, MEMORY. */
LMC_STATUS lmc_writer_add_metadata(lmc_writer *writer, const char *key, const void *value,
                                   size_t size);
/* An ancillary section (spec 4.4), any time before finishing; kind: starts with a lower-case
 * letter, not "hash". For copying sections when a snapshot is coded again (lmc_reader_get_section),
 * if their fourth letter is not upper-case. Held in memory. Errors: ARGUMENT, LIMIT, MEMORY. */
LMC_STATUS lmc_writer_add_section(lmc_writer *writer, const char *kind, const void *body,
                                  size_t size);
/* Writes index and trailer. The LMC file is complete when this has returned LMC_OK. After any error
 * all calls of the writer return that error again. */
LMC_STATUS lmc_writer_finish(lmc_writer *writer);
typedef struct lmc_writer_info {
    uint64_t size;                             /* bytes handed to the sink so far */
    int is_finished;                           /* 1: lmc_writer_finish has returned LMC_OK */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of the snapshot; all zero until it is finished */
    uint64_t reserved[4];                      /* zero; see the head of this part */
} lmc_writer_info;
LMC_STATUS lmc_writer_get_info(const lmc_writer *writer, lmc_writer_info *info);
LMC_API void lmc_writer_free(lmc_writer *writer); /* NULL allowed */

#endif /* LMC_NO_ENCODER */

/* -- restore: front to back from a pipe, everything checked -- */

/* All zero: the defaults. */
typedef struct lmc_restore_options {
    size_t struct_size; /* as of a block's */
    const lmc_parallel *parallel;
    uint64_t max_index_size; /* bytes of index kept in memory; 0: 1 GiB */
    uint64_t max_total_size; /* bytes of all files together; 0: no limit */
    uint64_t
        done_size; /* in place: bytes that an earlier attempt has written; they are checked, and
                           write() gets the rest */
    const lmc_base *base; /* what a delta is restored with, or NULL; must outlive the call */
    int in_place;         /* 1: write() overwrites the base, which read_back reads; see below */
    int check_hashes; /* 1: content_hashes, if any, are compared; LMC_ERR_CORRUPT if they differ */
    int *has_hashes;  /* or NULL; with check_hashes, set on LMC_OK: 1, if there were any */
    /* Callbacks; each may be NULL (then its data is only checked). The path was checked: relative,
     * no "..". */
    enum lmc_status (*begin_file)(void *user, const lmc_file *file, size_t file_number);
    /* The file's next bytes, already checked block by block. */
    enum lmc_status (*write)(void *user, const void *data, size_t size);
    /* The file's size and crc are known now. */
    enum lmc_status (*end_file)(void *user, const lmc_file *file, size_t file_number);
    /* Reads what write() got; in place, also what it has not got yet. Called by the caller's
     * thread, never beside write(). */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    /* Each entry of the metadata, in the order of the keys, when all else was checked; key ends
     * with a zero byte, value is valid during the call. */
    enum lmc_status (*metadata)(void *user, const char *key, const void *value, size_t size);
    /* As that of a writer: bytes of files that were decoded so far. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user; /* of all callbacks */
    void *alloc_user;
    /* In place of write(), for files that take bytes anywhere; or NULL. Called by several workers
     * at once, in any order, each with a block of the file that was begun last, decoded and
     * checked; all return before end_file and read_back are called. Files that share blocks, as
     * small ones do, still go to write(). Not in place. ARGUMENT: without write. */
    enum lmc_status (*write_at)(void *user, uint64_t offset, const void *data, size_t size);
    size_t reserved; /* zero: keeps the size a multiple of 8 everywhere */
} lmc_restore_options;

/* Restores every file of the snapshot, in order. Everything is checked only when this has returned
 * LMC_OK: keep the output apart until then. fingerprint: gets that of the snapshot; or NULL.
 * Memory: as the writer with a stream. The stream is read ahead, to its end.
 *
 * With a parallel, any of the workers calls the stream's read(), and write(): perhaps both at the
 * same time, but neither twice. begin_file and end_file are called by the caller's thread, while
 * nothing else runs. Errors: READ, WRITE, MEMORY, LIMIT, SIZE, BASE_MISSING, BASE_WRONG, READ_BACK,
 * and all that say what is wrong with the input. With a wrong base nothing is written.
 *
 * A delta can be checked without its base: with neither base nor write, in_place or check_hashes.
 * BASE_MISSING then means that all that can be checked without the base is intact. The content was
 * not checked, nor fingerprints and CRCs of files (end_file gets 0). READ_BACK means the same for a
 * snapshot that refers to itself, without read_back.
 *
 * In place (spec/salvage.md, 2): the files of the base become those of the delta, block by block.
 * ARGUMENT: several files share blocks.
 *
 * - Before: open the delta with a reader. That finds a delta that is cut short, and
 *   lmc_reader_can_restore_in_place tells whether the files can stay where they are.
 * - The base: options->base is not used. The caller checks the base's fingerprint, or relies on the
 *   CRC of each block's content, which is compared before the block is written. begin_file() must
 *   refuse a file whose path, kind or size differs from the base's, and read_back() must refuse
 *   what lies outside of a file.
 * - Crashes: write() gets whole blocks. A block that is half written when the program dies cannot
 *   be decoded any more. So first store what write() gets in another place, synced, until it is in
 *   the target.
 * - Going on: done_size of the next attempt may be the sum of the sizes that write() got. If the
 *   bytes before that are not those of the delta: BASE_WRONG. A done_size within a block or beyond
 *   the end: ARGUMENT.
 * - After any error what was written stays, and the target is half old and half new: go on later,
 *   with an intact copy of the same delta. */
LMC_STATUS lmc_snapshot_restore(const lmc_stream *stream, uint8_t fingerprint[LMC_FINGERPRINT_SIZE],
                                const lmc_restore_options *options);

/* -- reader: random access by the index -- */

typedef struct lmc_reader lmc_reader;

/* All zero: the defaults. */
typedef struct lmc_reader_options {
    size_t struct_size;           /* as of a block's */
    const lmc_parallel *parallel; /* or NULL; must outlive the reader */
    uint64_t max_index_size;      /* as of lmc_restore_options */
    uint64_t max_total_size;
    const lmc_base *base; /* or NULL; must outlive the reader */
    /* 0: reading all of a tensor or of a file in one call is LMC_ERR_CORRUPT if its fingerprint is
     * not what the index says. That also finds blocks of another snapshot, which CRCs do not. It
     * does not protect against forgers. 1: without this check, which takes some 5 % of the
     * instructions. */
    int skip_fingerprints;
    /* A reader whose buffers and parallel are used, or NULL; it must outlive this one, and no other
     * thread may use it meanwhile. So a chain of deltas in which each is the lender of the next
     * needs buffers only once. */
    lmc_reader *lender;
    void *alloc_user;
    /* 1: several workers may call the source's read_at at once, as pread and memory allow; each
     * reads the blocks that it decodes. Not for lmc_fd_source and lmc_stdio_source, which seek. */
    uint64_t parallel_reads;
} lmc_reader_options;

/* Reads and checks the trailer and the index. They are in the last 64 KiB, if there are up to about
 * a thousand tensors; else there is a second read. LMC_ERR_LIMIT if the files are larger than
 * max_total_size. Then a tensor takes one call of read_at for each 16 MiB of its code, in a chain
 * for each link; with parallel_reads one for each block. Of files of more than 8,000 blocks, one
 * more for a part of a tensor, or of a delta. Memory: the index, about 200 bytes and its name for
 * each tensor, 16 for each block that was looked up; while reading, blocks as the writer, and up to
 * 16 MiB of code. A delta can be listed without its base, but not read (LMC_ERR_BASE_MISSING). */
LMC_STATUS lmc_reader_open(lmc_reader **reader, const lmc_source *source,
                           const lmc_reader_options *options);
LMC_API void lmc_reader_free(lmc_reader *reader); /* NULL allowed */

/* Of a snapshot; lmc_header_parse sets only what the file's header tells. */
typedef struct lmc_snapshot_info {
    size_t n_files, n_metadata;                     /* 0 in a header */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];      /* all zero in a header */
    uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE]; /* all zero if it has no base */
    int has_base;                                   /* 1: it is a delta */
    uint64_t features;     /* bits of Incompatible: what the file may use (spec 3.1) */
    unsigned format_minor; /* of the version that wrote it */
    uint64_t n_sections;   /* ancillary ones; 0 in a header */
    uint64_t has_records;  /* 1: it has extension records, which this library skips */
    uint64_t reserved[4];  /* zero; see the head of this part */
} lmc_snapshot_info;
/* Of a damaged file, as far as that is known. */
LMC_STATUS lmc_reader_get_info(const lmc_reader *reader, lmc_snapshot_info *info);
/* File number i and its tensors, valid as long as the reader; NULL if there is none. */
LMC_API const lmc_file *lmc_reader_get_file(const lmc_reader *reader, size_t i);
/* The file of that path, and the tensor of that name. path NULL: in any file; AMBIGUOUS if several
 * have one. The first search sorts the names (40 to 60 bytes for each, which the reader keeps);
 * each then takes the logarithm of their number. Errors: ARGUMENT, NOT_FOUND, MEMORY. */
LMC_STATUS lmc_reader_find_file(lmc_reader *reader, const char *path, size_t *file_number);
LMC_STATUS lmc_reader_find_tensor(lmc_reader *reader, const char *path, const char *name,
                                  size_t *file_number, const lmc_tensor **tensor);
/* Bytes [offset, offset + size) of a file, to dst. Reads only the blocks that hold them, and checks
 * each. LMC_ERR_LIMIT: to predict them, more than 64 * (size + 2^22) bytes would be decoded for
 * each snapshot of the chain, as only hostile files need. */
LMC_STATUS lmc_reader_read_file(lmc_reader *reader, size_t file_number, uint64_t offset, void *dst,
                                size_t size);
/* Bytes [offset, offset + size) of a tensor that lmc_reader_get_file or lmc_reader_find_tensor
 * gave. */
LMC_STATUS lmc_reader_read_tensor(lmc_reader *reader, size_t file_number, const lmc_tensor *tensor,
                                  uint64_t offset, void *dst, size_t size);
/* What the header of an LMC file tells, the first LMC_FILE_HEADER_SIZE bytes of it (more may
 * follow): to find the base before the file is opened. Errors: ARGUMENT, NOT_LMC, TRUNCATED,
 * VERSION, CHECKSUM, CORRUPT, UNSUPPORTED. */
#define LMC_FILE_HEADER_SIZE 64u
LMC_STATUS lmc_header_parse(const void *src, size_t src_size, lmc_snapshot_info *info);
/* The reader's snapshot as a base. The reader must outlive it, and must not be used for anything
 * else meanwhile. A chain of deltas takes time in proportion to its length. But where many small
 * tensors are in another order than in the base, a block may be decoded for each of them, and the
 * factors of such links multiply: restore such a base to files first. */
LMC_API lmc_base lmc_reader_base(lmc_reader *reader);
/* Entry i, in ascending order of key; LMC_ERR_NOT_FOUND if there is none. *value stays valid as
 * long as the reader. */
LMC_STATUS lmc_reader_get_metadata(const lmc_reader *reader, size_t i, const char **key,
                                   const void **value, size_t *size);
/* The entry of that key; NOT_FOUND. */
LMC_STATUS lmc_reader_find_metadata(const lmc_reader *reader, const char *key, const void **value,
                                    size_t *size);
/* -- one call --
 * Whole buffers and files. What is written is an LMC file of one file; what is read may be any LMC
 * file of one file that has no base. All memory but the buffers is allocated by LMC_REALLOC. */

/* Of compressing and decompressing. NULL or all zero: the defaults. */
typedef struct lmc_compress_options {
    size_t struct_size;   /* as of a block's */
    enum lmc_level level; /* of compressing */
    /* Of what is decompressed; as of lmc_restore_options. For strangers' files set max_total_size.
     */
    uint64_t max_index_size, max_total_size;
    const lmc_parallel *parallel;
    /* Or NULL. As that of a writer. */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *user; /* of progress */
    void *alloc_user;
} lmc_compress_options;

#ifndef LMC_NO_ENCODER
/* Most bytes that lmc_compress writes for size bytes; SIZE_MAX if that is more. */
LMC_API size_t lmc_compress_bound(size_t size);
/* Compresses size bytes at src, elements of dtype, to dst. *dst_size: bytes written. If size is a
 * multiple of the dtype's, the bytes become one nameless tensor, which tells the dtype. Errors:
 * ARGUMENT, DST_TOO_SMALL, MEMORY. */
LMC_STATUS lmc_compress(void *dst, size_t dst_cap, size_t *dst_size, const void *src, size_t size,
                        enum lmc_dtype dtype, const lmc_compress_options *options);
#endif
/* Bytes that lmc_decompress will write, and their dtype (dtype may be NULL; LMC_AUTO where the file
 * is not one tensor), as the file claims: set a limit for files of strangers (options). Errors: as
 * lmc_reader_open; NOT_ONE_FILE. */
LMC_STATUS lmc_decompressed_size(const void *src, size_t src_size, uint64_t *size,
                                 enum lmc_dtype *dtype, const lmc_compress_options *options);
/* Decompresses to dst. *dst_size: bytes written; all of them were checked. Errors: those of
 * lmc_decompressed_size and lmc_reader_read_file, DST_TOO_SMALL. */
LMC_STATUS lmc_decompress(void *dst, size_t dst_cap, size_t *dst_size, const void *src,
                          size_t src_size, const lmc_compress_options *options);

#ifndef LMC_NO_STDIO
/* File to file. The result stands in dst_path.part until it is whole and checked; then it takes the
 * place of dst_path. After any error dst_path is as it was, and dst_path.part is gone. dtype: of
 * all of its bytes; LMC_AUTO if in doubt. (Only the command knows containers, such as safetensors.)
 * Errors: READ, WRITE, and those above. */
#ifndef LMC_NO_ENCODER
LMC_STATUS lmc_compress_file(const char *dst_path, const char *src_path, enum lmc_dtype dtype,
                             const lmc_compress_options *options);
#endif
LMC_STATUS lmc_decompress_file(const char *dst_path, const char *src_path,
                               const lmc_compress_options *options);
#endif
#endif /* LMC_NO_SNAPSHOT */

/* -- tools -- */

/* CRC-32C of size bytes; crc: 0, or that of the bytes before. */
LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size);

/* Instruction set tiers. Their numbers have no order: a new tier gets a free one. */
enum lmc_tier {
    LMC_TIER_SCALAR = 0,
    LMC_TIER_NEON = 1,
    LMC_TIER_AVX2 = 2,
    LMC_TIER_AVX512 = 3,
    LMC_TIER_SIMDE = 4,
    LMC_TIER_BEST = 255 /* for lmc_tier_limit */
};
#define LMC_TIER_COUNT 5 /* of this lmc.h */
/* "scalar", "neon", "avx2", "avx512", "simde" */
LMC_API const char *lmc_tier_name(enum lmc_tier tier);
/* 1 if this build on this machine has that tier. */
LMC_API int lmc_tier_is_available(enum lmc_tier tier);
/* The tier in use: the best there is, unless limited. */
LMC_API enum lmc_tier lmc_tier_current(void);
/* Uses this tier, or the best of lesser ones, for tests and measurements. LMC_TIER_BEST, or no
 * tier: no limit. Thread-safe; affects calls that start later. */
LMC_API void lmc_tier_limit(enum lmc_tier tier);

#ifdef __cplusplus
}
#endif
