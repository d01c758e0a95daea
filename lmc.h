/* lmc.h - v0.5.0 - lossless codec for the tensors and checkpoints of large language models
 * SPDX-License-Identifier: MIT
 *
 * ABOUT
 *   Packs bf16, fp16, fp32, ... tensors and whole checkpoints, bit for bit: bf16 weights to about
 *   2/3 of their size, fp32 weights to about 5/6, and checkpoints that follow each other to what
 *   has changed. Every block is checked (CRC-32C) and decodes alone, so any tensor or slice can be
 *   read without the rest. Lossy coding is there for moments of optimizers (and other tensors),
 *   only where a caller asks for it: a fourth or an eighth of the size, with a known error.
 *   The format is described in spec/lmc-format.md; "spec 8.2" in comments is a section of it.
 *
 * SYNOPSIS
 *   In one C or C++ file of your program:
 *
 *       #define LMC_IMPLEMENTATION
 *       #include "lmc.h"
 *
 *   and everywhere else just #include "lmc.h". No build flags, no dependency but the C library.
 *
 * CONTRACT
 *   Layers   1 block codec:   buffers in, buffers out; no allocation, no threads.
 *            2 tensor codec:  arrays of any length as a row of blocks; ranges; the caller's
 *                             parallel_for.
 *            3 snapshot:      files with names, tensors and an index; callbacks or memory;
 *                             allocates by LMC_REALLOC.
 *   Errors   Every function that can fail returns enum lmc_status. Output parameters are set only
 *            on LMC_OK, unless said otherwise. After an error the contents of destination buffers
 *            are undefined.
 *   Bounds   Exactly [ptr, ptr + size) is read or written. Callers need neither pad nor align.
 *   Memory   Inputs are never modified. Names: size and cap are bytes, n is a count of elements.
 *   Input    Encoded input may be hostile. It is refused with a status, never trusted; LMC_OK
 *            means that everything was checked.
 *   Threads  The only global state is one pointer to a constant table, set atomically. Different
 *            objects may be used by different threads at once, one object by one thread at a time.
 *   Bytes    The same input and options give the same bytes on every CPU, compiler and thread
 *            count.
 *   Stack    Below 32 KiB, if compiled with optimisation (-O1 or more, -Os). Without it, functions
 *            with many vectors take up to 1 MiB. Reading through a chain of readers takes 1 KiB
 *            more for each link.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file of those of src/, each below a line with its name:
 *   interface  api
 *   base       platform status bytes wire_block wire_file
 *   kernels    types tables vec_swar vec_neon vec_avx2 vec_avx512 residual crc32c split_join
 *              count map partition merge flatten fold strip split_root join_root classes group
 *              ungroup grids tiers dispatch
 *   codec      dtypes half tree workspace block_header huffman plan sample put_list plan_planes
 *              put_planes plan_delta put_delta put_block get_list get_planes get_delta
 *              quant_params put_quantised get_quantised get_block
 *   quantise   quantizer clusters fit_sample fit_scales fit_error fit_table fit_grid fit
 *   tensor     wave tensor encode_tensor decode_tensor
 *   snapshot   buffer sha256 order identity ends pipeline names sections index_entries origin
 *              writer_plan writer_blocks writer restore index reader in_place requantise salvage
 *              salvage_walk salvage_place salvage_read open identify memory
 */
#ifndef LMC_H
#define LMC_H

/* == api.h ======================================================================================== */

/* -- configuration --
 * Define these before including lmc.h, the same in every file:
 *
 *   LMC_STATIC           all functions are static: a private copy in each file that implements
 *   LMC_API              what stands before each public function. Default: nothing, or static with
 *                        LMC_STATIC
 *
 * These leave out parts of the library, and the declarations of what is missing; any of them go
 * together:
 *
 *   LMC_NO_SNAPSHOT      layer 3: snapshots, files and names. Implies LMC_NO_SALVAGE
 *   LMC_NO_SALVAGE       reading of damaged files
 *   LMC_NO_QUANTIZE      quantisers, and decoding what they have coded (LMC_ERR_UNSUPPORTED)
 *   LMC_NO_ENCODER       everything that encodes. The rest decodes what a full library writes
 *
 * These matter where LMC_IMPLEMENTATION is defined:
 *
 *   LMC_REALLOC(user, ptr, old_size, new_size)
 *                        like realloc; new_size 0 frees and returns NULL. Default: the C library
 *   LMC_NO_SIMD          the portable code only
 *   LMC_SIMDE            on machines other than x86 and Arm64: compile the AVX2 code through SIMDe
 *                        (SIMD Everywhere), as the tier "simde". <simde/x86/avx2.h> must be on the
 *                        include path (Debian: libsimde-dev). Used where the compiler's flags say
 *                        that the target has vectors (wasm32: -msimd128); ignored elsewhere
 *
 * No build flags select instructions: the best tier of the machine is found at run time. See
 * "tools" at the end for functions that query and limit it.
 */
#if defined(LMC_NO_SNAPSHOT) && !defined(LMC_NO_SALVAGE)
#define LMC_NO_SALVAGE
#endif

#include <stddef.h>
#include <stdint.h>

#ifndef LMC_API
#if defined(LMC_STATIC) && defined(__GNUC__)
#define LMC_API static __attribute__((unused))
#elif defined(LMC_STATIC)
#define LMC_API static
#else
#define LMC_API
#endif
#endif

/* -- public API -- */
#ifdef __cplusplus
extern "C" {
#endif

#define LMC_VERSION_MAJOR 0
#define LMC_VERSION_MINOR 5
#define LMC_VERSION_PATCH 0
#define LMC_VERSION "0.5.0"

/* Version of the file format that is written; the only one that is read until format 1.0. */
#define LMC_FORMAT_MAJOR 0
#define LMC_FORMAT_MINOR 4

/* The library's version as compiled, "0.5.0": another one than LMC_VERSION tells a mixed build. */
LMC_API const char *lmc_version(void);

/* -- status -- */

/* Numbers are stable. */
enum lmc_status {
    LMC_OK = 0,
    LMC_ERR_ARGUMENT = 1, /* NULL, contradictory or out-of-range arguments; calls out of order */
    LMC_ERR_DST_TOO_SMALL = 2, /* dst_cap is less than what is needed */
    LMC_ERR_WORKSPACE = 3,     /* ws_size is less than lmc_workspace_size() */
    LMC_ERR_MEMORY = 4,        /* allocation failed */
    LMC_ERR_READ = 5,          /* the caller's read callback failed */
    LMC_ERR_WRITE = 6,         /* the caller's write callback failed */
    LMC_ERR_NOT_FOUND = 7,     /* no such file or tensor in the snapshot */
    LMC_ERR_LIMIT = 8,         /* over a limit of the format, or one that the caller set */
    LMC_ERR_SIZE = 9,          /* needs more than this machine's size_t can hold */
    LMC_ERR_READ_BACK = 10,    /* the snapshot refers to itself; a read_back callback is needed */
    LMC_ERR_NOT_LMC = 20,      /* no LMC file: wrong magic */
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

/* The dtypes of safetensors 0.8, in the order of their widths. Numbers are stable. */
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
    LMC_U64 = 22
};
#define LMC_DTYPE_COUNT 23

/* "BF16" and so on, as in safetensors; "AUTO" for LMC_AUTO; NULL for a number that is none. */
LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype);
/* The dtype of that name, in capitals as above. Any other name, NULL too: LMC_AUTO, so that tensors
 * of unknown dtypes are coded as bytes. */
LMC_API enum lmc_dtype lmc_find_dtype(const char *name);
/* Bits of one logical element (F4: 4, C64: 64); 8 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype);
/* Bytes of one *coded* element: 1, 2, 4 or 8. F4 and F6 are coded as bytes, C64 as two elements of
 * 4 bytes. 1 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype);

/* How to encode; decoders need not be told. Numbers are stable. */
enum lmc_level {
    LMC_LEVEL_DEFAULT = 0, /* fast */
    /* Smaller: bf16 by 0.4 to 0.5 % of the input, fp32 by 0.1 to 0.3 %. Encodes at a third to two
     * thirds of the speed; decodes bf16 and fp32 at two thirds to nine tenths. */
    LMC_LEVEL_MAX = 1
};

/* -- parallel_for of the caller -- */

/* One task. It must be called exactly once for every index below n_tasks, with worker < n_workers.
 * No two tasks may run at the same time with the same worker. */
typedef void (*lmc_task)(void *arg, size_t index, unsigned worker);

/* How to run tasks: run() returns when all n_tasks of them have returned. A NULL lmc_parallel
 * means: one after another. */
typedef struct lmc_parallel {
    void (*run)(void *user, lmc_task task, void *arg, size_t n_tasks);
    void *user;
    unsigned n_workers; /* 1 .. 1024 */
} lmc_parallel;

/* -- layer 1: blocks --
 * A block holds n coded elements, 1 <= n <= LMC_MAX_BLOCK_ELEMENTS, and a header of 24 bytes with
 * the size, the width and the CRC-32C of the decoded bytes.
 *
 * A block may be coded against a prediction: any array of as many bytes that the decoder will have,
 * too. Best are the same elements of an earlier snapshot, or what a caller computes from them. The
 * prediction is not used where a sample says that the block is smaller without it (at level max:
 * where it is smaller). */

#define LMC_BLOCK_HEADER_SIZE 24u
#define LMC_MAX_BLOCK_ELEMENTS (1u << 20)

/* Where a block belongs. It is not stored, but decoding checks it (spec 7): a block in another's
 * place is refused. {0, 0} where blocks have no order. */
typedef struct lmc_position {
    uint32_t run;
    uint32_t block;
} lmc_position;

typedef struct lmc_block_info {
    uint32_t n;          /* elements */
    unsigned width;      /* bytes per element: 1, 2, 4, 8 */
    size_t size;         /* decoded bytes: n * width */
    size_t encoded_size; /* header and payload */
    uint32_t crc;        /* CRC-32C of the decoded bytes, as stored */
    int stored;          /* 1: the payload is the bytes themselves */
    int has_prediction;  /* 1: coded against a prediction */
    uint32_t base_crc;   /* CRC-32C of the prediction; 0 if there is none */
} lmc_block_info;

/* Largest encoded size of any block of size decoded bytes: size + LMC_BLOCK_HEADER_SIZE
 * (saturating). */
LMC_API size_t lmc_bound_block(size_t size);

/* Workspace that one worker needs to encode or decode blocks of up to n elements of any dtype. It
 * may have any alignment. 0 if n is 0 or over LMC_MAX_BLOCK_ELEMENTS. */
LMC_API size_t lmc_workspace_size(size_t n);

#ifndef LMC_NO_ENCODER
/* Encodes size bytes at src, elements of dtype, as one block. size must be a multiple of the
 * dtype's width (LMC_AUTO: any). prediction: size bytes that the block may be coded against, or
 * NULL; it is used as said above. *dst_size: bytes written, at most lmc_bound_block(size). Time
 * O(size). Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE. */
LMC_API enum lmc_status lmc_encode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size, const void *prediction,
                                         enum lmc_dtype dtype, enum lmc_level level,
                                         lmc_position position, void *ws, size_t ws_size);
#endif

/* Reads the header of the block at src (src_size: at least the header; more may follow) and checks
 * it. Errors: ARGUMENT, TRUNCATED, CORRUPT, CHECKSUM (also: another position), UNSUPPORTED. */
LMC_API enum lmc_status lmc_read_block_info(const void *src, size_t src_size, lmc_position position,
                                            lmc_block_info *info);

/* Decodes the block at src, which must be exactly src_size bytes long, to dst. *dst_size: decoded
 * bytes. prediction: what the block was coded against; NULL and 0 where info.has_prediction is 0.
 * dst may be the prediction, which is then replaced. It is replaced even by bytes whose CRC turns
 * out to be wrong: keep a copy where that matters. On LMC_OK the CRC-32C of the prediction and that
 * of the output are right. Time O(size), whatever the input. Errors: those of lmc_read_block_info,
 * DST_TOO_SMALL, WORKSPACE; BASE_MISSING, BASE_WRONG (another size or other bytes; dst is not
 * touched). */
LMC_API enum lmc_status lmc_decode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size, const void *prediction,
                                         size_t prediction_size, lmc_position position, void *ws,
                                         size_t ws_size);

/* -- quantisers: lossy, on request --
 * For the moments that an optimizer keeps, which take most of a training checkpoint and tell
 * little: a quantiser replaces each element by the nearest of a few values, of which the codec then
 * stores numbers. What was lost is measured and stored with the tensor. Second moments are
 * quantised by their logarithm, and no positive one becomes zero; first moments as updates, m /
 * (sqrt(v) + eps), where the second moment is at hand, else in proportion to their group, as
 * anything else is. NaN, infinities, -0, subnormals and negative second moments survive exactly.
 * (After BitSnap, arXiv 2511.12376; how the scales and tables are found: quantise/fit.h and what it
 * includes.)
 *
 * LMC_NO_QUANTIZE leaves all of this out of the implementation. Then quantised blocks can be found,
 * passed over and described, but decoding one is LMC_ERR_UNSUPPORTED, and so is encoding with a
 * quantizer other than NULL. Types and numbers that other parts share stay, so that files with and
 * without it agree on every struct. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
enum lmc_role { LMC_ROLE_OTHER = 0, LMC_ROLE_FIRST_MOMENT = 1, LMC_ROLE_SECOND_MOMENT = 2 };
#endif

/* Of errors. Numbers are stable. */
enum lmc_measure {
    LMC_MEASURE_NONE = 0,
    /* Of moments: the L2 norm of the change of the optimizer's update, over that of the update. */
    LMC_MEASURE_UPDATE = 1,
    /* The largest change of an element, over the element: a hard bound. Exceptions do not change.
     */
    LMC_MEASURE_RELATIVE = 2,
    LMC_MEASURE_NMSE = 3 /* mean squared error over mean square */
};

/* What a tensor has lost. UPDATE and NMSE are taken from a sample, without the exceptions. Of
 * second moments they are estimates: within a percent or two where errors have nothing to do with
 * the size of the updates, as in all moments measured so far; up to 20 % too low with tails that
 * outweigh all the rest. */
typedef struct lmc_loss {
    unsigned generation;      /* how often it was quantised; 0: it is exact */
    enum lmc_measure measure; /* of the last time */
    double error;             /* by that measure; 0 .. 1 */
} lmc_loss;

typedef struct lmc_quantizer lmc_quantizer;

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* The elements of a tensor, wherever the caller has them. */
typedef struct lmc_elements {
    enum lmc_status (*read)(void *user, uint64_t offset, void *dst, size_t size); /* all of it */
    void *user;
    uint64_t size; /* bytes */
} lmc_elements;

typedef struct lmc_quantizer_options {
    enum lmc_dtype dtype; /* F32 or BF16; others stay as they are */
    enum lmc_role role;
    unsigned bits;            /* 4 .. 8: k-means with 2^bits codes. 0: the coarsest grid that
                                 keeps to the bound */
    enum lmc_measure measure; /* of the bound */
    double bound;             /* above 0, below 1 */
    uint64_t group;           /* neighbours that are of one scale: the elements of a row; 0: 256 */
    double eps;               /* of the optimizer; 0: 1e-8 */
    lmc_elements second_elements; /* of a first moment: the second moment of the same parameters; or
                                     all zero */
    const lmc_quantizer *second;  /* the quantiser of that, or NULL: it stays as it is */
    unsigned generation;          /* of the elements: 0, unless they were quantised before */
    void *alloc_user;
} lmc_quantizer_options;

/* Finds how to quantise a tensor. On LMC_OK there always is a quantiser: one that keeps the tensor
 * as it is where quantising would not make it a tenth smaller, the bound cannot be held, or more
 * than 1 % of the elements cannot be quantised (info.reason says which). Reads the elements once
 * for the scales, and a sample of 2 Mi of them a few times. Memory: 1 MiB; of it stays: 2 bytes for
 * each group, and up to 64 KiB. Errors: ARGUMENT, MEMORY, those of read. */
LMC_API enum lmc_status lmc_fit_quantizer(lmc_quantizer **quantizer, const lmc_elements *elements,
                                          const lmc_quantizer_options *options);
LMC_API void lmc_free_quantizer(lmc_quantizer *quantizer); /* NULL allowed */

typedef struct lmc_quantizer_info {
    int is_lossless;       /* 1: it keeps the tensor as it is */
    const char *reason;    /* why; "" if it does not */
    int is_grid;           /* 1: a uniform grid; 0: a table found by k-means */
    unsigned n_codes;      /* of the table, zero included; or points of the grid in the sample */
    uint64_t n_exceptions; /* elements that stay as they are, about */
    double bits;           /* for each element when coded, about */
    lmc_loss loss;
} lmc_quantizer_info;
LMC_API enum lmc_status lmc_get_quantizer_info(const lmc_quantizer *quantizer,
                                               lmc_quantizer_info *info);

/* Replaces size bytes at offset of the tensor by what decoding will give. second: the same bytes of
 * the second moment, as decoded; NULL where the quantiser was fitted without. A second time changes
 * nothing. Errors: ARGUMENT. */
LMC_API enum lmc_status lmc_quantize(const lmc_quantizer *quantizer, void *data, uint64_t offset,
                                     size_t size, const void *second);
#endif

/* -- layer 2: tensors in memory --
 * A coded tensor is its blocks, one after another, at positions {run, 0}, {run, 1}, ...: all of the
 * same decoded size but the last. There is no other header: the caller knows dtype and size. */

typedef struct lmc_tensor_options {
    enum lmc_dtype dtype;
    unsigned log2_block; /* 14 .. 20: elements per block as a power of two; 0: the default, 16 (17
                            for bytes; with a prediction 20, 18 for elements of 4 bytes and more) */
    uint32_t run;        /* position; 0 if in doubt */
    const lmc_parallel *parallel; /* or NULL */
    enum lmc_level level;         /* of encoding */
    const void *prediction;       /* of the whole tensor, see layer 1; or NULL */
    uint64_t prediction_size;     /* must be the tensor's size */
    /* Encoding, lossy: the quantiser of this tensor; or NULL. If it was fitted with a second
     * moment, that moment, as decoded, is the prediction, also of decoding. Size and number of
     * blocks are as with a prediction; decode with the same log2_block. */
    const lmc_quantizer *quantizer;
} lmc_tensor_options;

/* Largest encoded size of size bytes; UINT64_MAX if options are illegal or the result would
 * overflow. */
LMC_API uint64_t lmc_bound_tensor(uint64_t size, const lmc_tensor_options *options);
/* Workspace for encoding and decoding with these options (all workers together); 0 if they are
 * illegal. */
LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options);

#ifndef LMC_NO_ENCODER
/* Encodes size bytes (0 is allowed: no blocks). dst_cap may be anything that suffices;
 * lmc_bound_tensor() always does. Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE, LIMIT (2^32 blocks),
 * BASE_WRONG (prediction_size). */
LMC_API enum lmc_status lmc_encode_tensor(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size);
#endif

/* Decodes bytes [offset, offset + size) of the tensor of total_size bytes that is coded at src, to
 * dst. The whole tensor: 0, total_size. Only blocks in the range are decoded; to find them, the
 * headers of those before it are walked. For a whole tensor src_size must be exact; for a range,
 * bytes after the last block needed are not looked at. options: run, parallel and prediction as
 * above; dtype (the same) and log2_block (at least the one used to encode) say only how much
 * workspace there is. To apply a delta in place, decode a whole tensor to where its prediction is;
 * what an error leaves there is a mixture. Errors: ARGUMENT, WORKSPACE, TRUNCATED, CORRUPT,
 * CHECKSUM, UNSUPPORTED, BASE_MISSING, BASE_WRONG. */
LMC_API enum lmc_status lmc_decode_tensor(void *dst, uint64_t offset, size_t size, const void *src,
                                          size_t src_size, uint64_t total_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size);

#ifndef LMC_NO_SNAPSHOT
/* -- layer 3: snapshots --
 * A snapshot is a set of source files, restored byte for byte; ranges of a file are tensors, with a
 * name, a dtype and a shape, which can be read alone. A delta is a snapshot coded against another
 * one, its base.
 *
 * Strings are NUL-terminated. Callbacks return 0 for success; any other value makes the function
 * that called return LMC_ERR_READ or LMC_ERR_WRITE. */

#define LMC_UNKNOWN_SIZE UINT64_MAX
#define LMC_IDENTITY_SIZE 32
#define LMC_MAX_RANK 32

enum lmc_file_kind { LMC_FILE_REGULAR = 0, LMC_FILE_DIRECTORY = 1 };

/* A tensor: a named range of a source file. */
typedef struct lmc_tensor {
    const char *name;      /* unique within the file; may be "" */
    const char *dtype;     /* as the source says, "BF16"; unknown strings are kept; 1 .. 32 bytes */
    unsigned rank;         /* 0 .. LMC_MAX_RANK; 0: a scalar */
    const uint64_t *shape; /* rank entries, outermost first */
    uint64_t offset;       /* first byte within the file */
    uint64_t size; /* bytes. Of known dtypes exactly the product of shape times bits, over 8 */
    /* Set by readers and lmc_identify_file (spec 9.2); zero while not known. */
    uint8_t identity[LMC_IDENTITY_SIZE];
    const struct lmc_twin *twin; /* writer only: what the tensor can be made from, or NULL */
    /* Set by readers. The writer keeps it, unless quantizer says otherwise. All zero: exact. */
    lmc_loss loss;
    /* Writer only, lossy: what the writer gets is quantised by it; or NULL. Must outlive the
     * writer. One that was fitted with a second moment wants a twin: where that is, with
     * LMC_CONVERT_NONE. */
    const lmc_quantizer *quantizer;
} lmc_tensor;

/* Other bytes of the same snapshot, which a tensor equals or is rounded from: then it takes next to
 * nothing. A wrong claim costs only size. Those bytes must have been written before, and must not
 * have a twin themselves. */
enum lmc_conversion {
    LMC_CONVERT_NONE = 0,
    LMC_CONVERT_F32_TO_BF16 = 1,
    LMC_CONVERT_F32_TO_F16 = 2
};
typedef struct lmc_twin {
    size_t file_number;
    uint64_t offset;                /* first byte within that file */
    enum lmc_conversion conversion; /* other than NONE: of twice as many bytes, to nearest even */
} lmc_twin;
/* Rounds n F32 elements as the conversion says, which is not NONE; both little-endian. For those
 * who look for twins. */
LMC_API void lmc_convert(void *dst, const void *src, size_t n, enum lmc_conversion conversion);

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
    uint32_t crc; /* CRC-32C of the whole file; set as a tensor's identity is */
    uint8_t identity[LMC_IDENTITY_SIZE]; /* n_tensors == 0: identity of the file as one tensor */
} lmc_file;

/* Wherever there is an alloc_user, LMC_REALLOC is called with it. */

typedef struct lmc_sink {
    int (*write)(void *user, const void *data, size_t size); /* append all of it */
    void *user;
} lmc_sink;

typedef struct lmc_source {
    int (*read_at)(void *user, uint64_t offset, void *dst, size_t size); /* all of it, or fail */
    void *user;
    uint64_t size; /* of the LMC file */
} lmc_source;

/* Reads up to size bytes (at least 1 unless the stream ends: then 0) into dst; *got: how many. */
typedef struct lmc_stream {
    int (*read)(void *user, void *dst, size_t size, size_t *got);
    void *user;
} lmc_stream;

/* Memory in place of callbacks: a sink that appends to data and grows it (start from all zero, end
 * with lmc_free_memory); a source that reads data; a stream that reads data from position to size.
 */
typedef struct lmc_memory {
    uint8_t *data;
    size_t size, cap;
    size_t position;
    void *alloc_user;
} lmc_memory;

/* The snapshot that another one, a delta, is coded against: files whose identities are known, from
 * a reader (lmc_make_reader_base) or from lmc_identify_file. To restore the delta takes a base of
 * the same identity, in whatever form. Tensors are matched by name, dtype and size, wherever they
 * stand (of several, the one in the file of the same path); files without tensors are matched by
 * path. */
typedef struct lmc_base {
    size_t n_files;
    /* The result must be valid as long as the base is in use. */
    const lmc_file *(*get_file)(void *user, size_t file_number);
    /* Reads all of it. Errors, which whoever asked gets: READ, or what is wrong with the base. */
    enum lmc_status (*read)(void *user, size_t file_number, uint64_t offset, void *dst,
                            size_t size);
    void *user;
    uint32_t chain_depth; /* deltas that the base itself is made of */
} lmc_base;

LMC_API lmc_sink lmc_make_memory_sink(lmc_memory *memory);
LMC_API lmc_source lmc_make_memory_source(lmc_memory *memory);
LMC_API lmc_stream lmc_make_memory_stream(lmc_memory *memory);
LMC_API void lmc_free_memory(lmc_memory *memory);

#ifndef LMC_NO_ENCODER
/* -- writer --
 * For each file: lmc_begin_file; all of its bytes in order, in pieces of any size (lmc_write_bytes)
 * or from a stream (lmc_write_stream); lmc_end_file. In the end lmc_finish_writer. */

typedef struct lmc_writer lmc_writer;

/* All zero: the defaults. */
typedef struct lmc_writer_options {
    const lmc_parallel *parallel; /* must outlive the writer */
    unsigned log2_block; /* 14 .. 20: elements per block as a power of two; 0: as tensors */
    void *alloc_user;
    enum lmc_level level;
    const lmc_base *base; /* or NULL; must outlive the writer */
    /* For twins, or NULL: reads what was written earlier, from where the caller has it (before or
     * after it was quantised). With it, restoring wants a read_back, too. */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *read_back_user;
} lmc_writer_options;

/* Memory:
 *   for each worker  2 MiB (with blocks of more than 1 MiB: two blocks), twice that for
 *                    lmc_write_stream; and a workspace of about 13 bytes for each element of
 *                    a block
 *   in any case      one block; for files of unknown size 16 MiB, with lmc_write_stream 48 MiB
 *   for the index    8 bytes for each block, about 200 for each tensor, its name included
 *   in flight        12 bytes for each tensor that begins in a block
 * What the sink is given may lag behind by one wave of blocks. With a parallel the sink is called
 * by any of its workers, and at the same time as the stream of lmc_write_stream, but never twice
 * at once. */
LMC_API enum lmc_status lmc_open_writer(lmc_writer **writer, const lmc_sink *sink,
                                        const lmc_writer_options *options);
/* Begins a file, which is copied. Its path must differ from those before. default_dtype says how to
 * code the bytes that belong to no tensor (raw arrays); LMC_AUTO if in doubt. */
LMC_API enum lmc_status lmc_begin_file(lmc_writer *writer, const lmc_file *file,
                                       enum lmc_dtype default_dtype);
/* The file's next bytes. LMC_ERR_ARGUMENT if they are more than file->size said. */
LMC_API enum lmc_status lmc_write_bytes(lmc_writer *writer, const void *data, size_t size);
/* The file's next bytes, from stream: until it ends, or until the file is complete if its size is
 * known (then no byte more is taken). The same as reading and lmc_write_bytes, but reading, coding
 * and writing go on at the same time. */
LMC_API enum lmc_status lmc_write_stream(lmc_writer *writer, const lmc_stream *stream);
/* LMC_ERR_ARGUMENT if fewer bytes were written than file->size said. */
LMC_API enum lmc_status lmc_end_file(lmc_writer *writer);
/* Any time before finishing; value may hold any bytes. Two entries of the same key make finishing
 * fail. */
LMC_API enum lmc_status lmc_add_metadata(lmc_writer *writer, const char *key, const void *value,
                                         size_t size);
/* Writes index and trailer. The LMC file is complete when this has returned LMC_OK. After any error
 * all calls of the writer return that error again. */
LMC_API enum lmc_status lmc_finish_writer(lmc_writer *writer);
/* Identity of the snapshot; known after finishing. */
LMC_API enum lmc_status lmc_get_writer_identity(const lmc_writer *writer,
                                                uint8_t identity[LMC_IDENTITY_SIZE]);
/* Bytes handed to the sink so far. */
LMC_API uint64_t lmc_count_written(const lmc_writer *writer);
LMC_API void lmc_free_writer(lmc_writer *writer); /* NULL allowed */

#endif /* LMC_NO_ENCODER */

/* -- restore: front to back from a pipe, everything checked -- */

typedef struct lmc_limits {  /* 0: the default */
    uint64_t max_index_size; /* bytes of index kept in memory; default 1 GiB */
    uint64_t max_total_size; /* bytes of all files together; default: no limit */
} lmc_limits;

/* All zero: the defaults. */
typedef struct lmc_restore_options {
    const lmc_parallel *parallel;
    lmc_limits limits;
    void *alloc_user;
    void *user; /* of the callbacks below; each may be NULL (then its data is only checked) */
    /* The path was checked: relative, no "..". */
    int (*begin_file)(void *user, const lmc_file *file, size_t file_number);
    /* The file's next bytes, already checked block by block. */
    int (*write)(void *user, const void *data, size_t size);
    /* The file's size and crc are known now. */
    int (*end_file)(void *user, const lmc_file *file, size_t file_number);
    const lmc_base *base; /* what a delta is restored with, or NULL; must outlive the call */
    /* Reads what write() got; in place, also what it has not got yet. Or NULL. Called by the
     * caller's thread, never beside write(). */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    int in_place;    /* 1: write() overwrites the base, which read_back reads; see below */
    uint64_t n_done; /* in place: bytes that an earlier attempt has written: they are checked,
                        write() gets the rest */
} lmc_restore_options;

/* Restores every file of the snapshot, in order. Only when this has returned LMC_OK is everything
 * checked: keep what was written aside until then. identity: of the snapshot; or NULL. Memory: as
 * the writer with a stream, and twice the index. The stream is read ahead, to its end.
 *
 * With a parallel, the stream's read() and write() are called by any of the workers: at the same
 * time, but neither twice at once. begin_file and end_file are called by the caller's thread,
 * beside nothing else. Errors: READ, WRITE, MEMORY, LIMIT, SIZE, BASE_MISSING, BASE_WRONG,
 * READ_BACK, and all that say what is wrong with the input. Of a wrong base nothing is written.
 *
 * In place (spec 9.5): the files of the base become those of the delta, block by block.
 *
 * - Before: open the delta with a reader. That finds a delta that is cut short, and
 *   lmc_can_restore_in_place tells whether the files can stay where they are.
 * - The base: options->base is not used. The caller makes sure of the base's identity, or leaves it
 *   to the CRC of each block's base bytes, which is compared before the block is written. Nothing
 *   else is compared with the target: begin_file() must refuse a file that has another path,
 *   kind or size there, and read_back() what lies outside of it.
 * - Crashes: write() gets one or more whole blocks. A block that is half written when the program
 *   dies can be decoded no more. So keep what write() gets elsewhere, synced, until it is where it
 *   belongs, also after a crash.
 * - Going on: the sum of the sizes that write() got is what n_done of the next attempt may be. If
 *   bytes before that are not those of the delta: BASE_WRONG. An n_done within a block or
 *   beyond the end: ARGUMENT.
 * - After any error what was written stays, and the target is neither the one nor the other: go on
 *   later, with an intact copy of the same delta. */
LMC_API enum lmc_status lmc_restore_snapshot(const lmc_stream *stream,
                                             const lmc_restore_options *options,
                                             uint8_t identity[LMC_IDENTITY_SIZE]);

/* -- reader: random access by the index -- */

typedef struct lmc_reader lmc_reader;

/* All zero: the defaults. */
typedef struct lmc_reader_options {
    const lmc_parallel *parallel; /* must outlive the reader */
    lmc_limits limits;
    void *alloc_user;
    const lmc_base *base; /* or NULL; must outlive the reader */
    /* A reader whose buffers and parallel are used, or NULL; it must outlive this one. So a chain
     * of deltas, each a lender to the next, has buffers only once. None of the chain's other
     * readers may be in use by another thread then. */
    lmc_reader *lender;
    /* 1: the file may be damaged or cut short; see lmc_next_range. (With LMC_NO_SALVAGE opening is
     * LMC_ERR_UNSUPPORTED then.) */
    int salvage;
} lmc_reader_options;

/* Reads header, trailer and index (three reads) and checks them; LMC_ERR_LIMIT if the files are
 * larger than max_total_size. Memory: three to five times the index (names, shapes, where each
 * block is); while reading, blocks as the writer. A delta may be opened without its base, to list
 * it; to read it takes the base (LMC_ERR_BASE_MISSING). */
LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options);
LMC_API void lmc_free_reader(lmc_reader *reader); /* NULL allowed */
LMC_API size_t lmc_count_files(const lmc_reader *reader);
/* File number i and its tensors, valid as long as the reader; NULL if there is none. */
LMC_API const lmc_file *lmc_get_file(const lmc_reader *reader, size_t i);
/* The tensor of that name. path NULL: in any file; LMC_ERR_ARGUMENT if several files have one. */
LMC_API enum lmc_status lmc_find_tensor(const lmc_reader *reader, const char *path,
                                        const char *name, size_t *file_number,
                                        const lmc_tensor **tensor);
/* Bytes [offset, offset + size) of a file, to dst. Reads only the blocks that hold them, neighbours
 * in one read, and checks each. */
LMC_API enum lmc_status lmc_read_file(lmc_reader *reader, size_t file_number, uint64_t offset,
                                      void *dst, size_t size);
/* Bytes [offset, offset + size) of a tensor that lmc_get_file or lmc_find_tensor gave. */
LMC_API enum lmc_status lmc_read_tensor(lmc_reader *reader, size_t file_number,
                                        const lmc_tensor *tensor, uint64_t offset, void *dst,
                                        size_t size);
LMC_API void lmc_get_identity(const lmc_reader *reader, uint8_t identity[LMC_IDENTITY_SIZE]);
#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)
/* The quantiser that a tensor of loss.generation above 0 was coded with: to code it again, as small
 * and without further loss. On LMC_OK there always is one; where the tensor was coded without, it
 * keeps it as it is, which is large. Reads all of the tensor's code. *twin, if the quantiser wants
 * one: where the second moment is. */
LMC_API enum lmc_status lmc_read_quantizer(lmc_quantizer **quantizer, lmc_reader *reader,
                                           size_t file_number, const lmc_tensor *tensor,
                                           lmc_twin *twin);
#endif
/* The identity of the base. Returns the number of deltas down to a snapshot without a base; 0, and
 * zeros for the identity, if this is one. */
LMC_API uint32_t lmc_get_base_identity(const lmc_reader *reader,
                                       uint8_t identity[LMC_IDENTITY_SIZE]);
/* The same, from the first LMC_FILE_HEADER_SIZE bytes of an LMC file: to find the base before the
 * file is opened. Errors: ARGUMENT, NOT_LMC, VERSION, CHECKSUM, CORRUPT, UNSUPPORTED. */
#define LMC_FILE_HEADER_SIZE 80u
LMC_API enum lmc_status lmc_read_header(const void *header,
                                        uint8_t base_identity[LMC_IDENTITY_SIZE],
                                        uint32_t *chain_depth);
/* The reader's snapshot as a base; the reader must outlive it, and be used for nothing else
 * meanwhile. A chain of deltas that have their tensors in one order takes time in proportion to its
 * length. Where many small tensors are in another order than in the base, a block may be decoded
 * for each of them, and the factors of such links multiply: restore such a base to files first. */
LMC_API lmc_base lmc_make_reader_base(lmc_reader *reader);
/* 1 if the snapshot can be restored over its base, which the reader was given: both have files of
 * the same paths, kinds and sizes, and what predicts an element lies where the element will lie.
 * Without a base: 0 if the snapshot is no delta, or shows by itself that this cannot be; else 1.
 * (0, too, if there is no memory to find out.) */
LMC_API int lmc_can_restore_in_place(const lmc_reader *reader);
/* Reads a file from stream, of file->size bytes, and sets crc and identity of it and of its tensors
 * (tensors: those of file->tensors). Errors: ARGUMENT, READ, TRUNCATED, MEMORY. */
LMC_API enum lmc_status lmc_identify_file(lmc_file *file, lmc_tensor *tensors,
                                          const lmc_stream *stream, const lmc_parallel *parallel,
                                          void *alloc_user);
/* Identity of a base; LMC_ERR_MEMORY. */
LMC_API enum lmc_status lmc_identify_base(const lmc_base *base, uint8_t identity[LMC_IDENTITY_SIZE],
                                          void *alloc_user);
LMC_API size_t lmc_count_metadata(const lmc_reader *reader);
/* Entry i, in ascending order of key; LMC_ERR_NOT_FOUND if there is none. *value stays valid as
 * long as the reader. */
LMC_API enum lmc_status lmc_get_metadata(const lmc_reader *reader, size_t i, const char **key,
                                         const void **value, size_t *size);
/* Encoded bytes of the blocks that hold [offset, offset + size) of a file; in proportion, where
 * they hold more. For listings. */
LMC_API uint64_t lmc_count_encoded(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                   uint64_t size);

#ifndef LMC_NO_SALVAGE
/* -- salvage: what is intact in a damaged file (spec 16) --
 * A reader that is opened with options.salvage reads through the whole file. It finds the sections
 * and the headers of blocks wherever they are, and learns from the index, or from the sections if
 * the index is damaged, where each block belongs. Bytes that source.read_at fails to read count as
 * damaged. Files, tensors and ranges are then read as ever, and fail where something is lost;
 * lmc_next_range hands out all that there is. A base is needed only for the blocks that were coded
 * against it. Where the base is such a reader itself, what it has lost is lost here, too.
 *
 * What is handed out has the right Content_CRC, and its header is right for its place. That tells
 * damage, and blocks in a wrong place; it does not tell forgery. With the index, the Header_CRC
 * tells a block of another LMC file. Without it, such a block may pass: if it has the same number
 * and size in a run of the same number, it is as good as the right one; where both are found, both
 * are refused. In the end the identities tell (lmc_confirm). A file whose FILE section is lost has
 * size LMC_UNKNOWN_SIZE and path "".
 *
 * Opening fails with NOT_LMC (nothing was found), BASE_WRONG (by the header, if that is intact),
 * VERSION, UNSUPPORTED, LIMIT, MEMORY. Time: in proportion to the file, and to what is decoded,
 * whatever the input. Memory: as other readers; without an index 40 bytes for each header of a
 * block, and the bodies of sections. */

typedef struct lmc_range {
    size_t file_number; /* SIZE_MAX: a block whose place in the files is not known */
    uint64_t offset;    /* within the file; of a block without a place: 0 */
    uint64_t size;
    /* LMC_OK: intact. NOT_FOUND: lost. CHECKSUM, CORRUPT: its block is damaged. READ: it cannot be
     * read. BASE_MISSING, BASE_WRONG: it wants the base. Where a prediction of its own snapshot is
     * lost: what that gives. */
    enum lmc_status status;
    const void *data; /* of LMC_OK: size bytes, valid until the next call; else NULL */
    /* Of the block; of several lost ones in a row, of the first. UINT32_MAX where no run is known.
     */
    lmc_position position;
} lmc_range;

/* The next range: block by block, and what is lost between them, front to back through all files.
 * LMC_ERR_NOT_FOUND: that was all. LIMIT: more than max_total_size. MEMORY: try again. */
LMC_API enum lmc_status lmc_next_range(lmc_reader *reader, lmc_range *range);

typedef struct lmc_damage {
    int has_header, has_index, has_trailer; /* 1: intact */
    int is_complete;   /* 1: nothing followed what was found, so no file is missing unnoticed */
    uint64_t n_breaks; /* places where something else stood than what should follow */
    size_t
        n_sections; /* sections of files and runs that were found damaged (lost ones not counted) */
} lmc_damage;

LMC_API enum lmc_status lmc_get_damage(const lmc_reader *reader, lmc_damage *damage);
/* 1 if path, size and tensors of that file are known. */
LMC_API int lmc_is_described(const lmc_reader *reader, size_t file_number);
/* When lmc_next_range has handed out all of it: is the tensor (NULL: the file) the one that was
 * written? 1: yes, it has the identity (the CRC) that the index says. -1: no. 0: not known, for it
 * is not whole or the index is lost. */
LMC_API int lmc_confirm(const lmc_reader *reader, size_t file_number, const lmc_tensor *tensor);
#endif /* LMC_NO_SALVAGE */
#endif /* LMC_NO_SNAPSHOT */

/* -- tools -- */

/* CRC-32C of size bytes; crc: 0, or that of the bytes before. */
LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size);

/* Instruction set tiers, the better of two that one build can have last. */
enum lmc_tier {
    LMC_TIER_SCALAR = 0,
    LMC_TIER_NEON = 1,
    LMC_TIER_AVX2 = 2,
    LMC_TIER_AVX512 = 3,
    LMC_TIER_SIMDE = 4
};
#define LMC_TIER_COUNT 5
/* "scalar", "neon", "avx2", "avx512", "simde" */
LMC_API const char *lmc_tier_name(enum lmc_tier tier);
/* 1 if this build on this machine has that tier. */
LMC_API int lmc_has_tier(enum lmc_tier tier);
/* The tier in use: the best there is, unless limited. */
LMC_API enum lmc_tier lmc_get_tier(void);
/* Uses this tier or, where it is missing, the next one of a smaller number that is there: for tests
 * and measurements. The last tier lifts the limit. Thread-safe; affects calls that start later. */
LMC_API void lmc_limit_tier(enum lmc_tier tier);

#ifdef __cplusplus
}
#endif

#endif /* LMC_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__IMPLEMENTED)
#define LMC__IMPLEMENTED

/* == base/platform.h ============================================================================== */

#include <string.h>

/* What is known of compiler and machine, and the few words that all files here use: the allocator,
 * inline, LMC__CHECK and LMC__TRY. */

#ifndef LMC_REALLOC
#include <stdlib.h>
/* realloc(ptr, 0) is implementation-defined, hence the explicit free. */
static void *lmc__realloc(void *ptr, size_t new_size)
{
    if (new_size != 0) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}
#define LMC_REALLOC(user, ptr, old_size, new_size)                                                 \
    ((void)(user), (void)(old_size), lmc__realloc(ptr, new_size))
#endif

/*
 * The parts of a developer's build (make dev): the kernels are compiled apart from the rest, since
 * they take three quarters of the time. LMC__PART says what an object has; in lmc.h it is 0, all.
 */
#define LMC__PART_KERNELS 1 /* scalar, NEON, SIMDe */
#define LMC__PART_AVX2 2
#define LMC__PART_AVX512 3
#define LMC__PART_REST 4
#ifndef LMC__PART
#define LMC__PART 0
#endif
#define LMC__HAS_PART(part) (LMC__PART == 0 || LMC__PART == (part))
#if LMC__PART
#define LMC__TABLE const
#else
#define LMC__TABLE static const
#endif

/* LMC__INLINE: always, since constants must reach the bodies. LMC__COLD: rarely called, so small
 * code is better than fast one. LMC__PREFETCH: to the second cache. LMC__UNROLL, before a loop of
 * constant length: gcc unrolls late, and keeps arrays of vectors in memory unless told. */
#if defined(__GNUC__)
#define LMC__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LMC__PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define LMC__INLINE static inline __attribute__((always_inline))
#define LMC__COLD __attribute__((cold))
#elif defined(_MSC_VER)
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#define LMC__INLINE static __forceinline
#define LMC__COLD
#else
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#define LMC__INLINE static inline
#define LMC__COLD
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define LMC__UNROLL _Pragma("GCC unroll 8")
#else
#define LMC__UNROLL
#endif

/* 0 if not known: what is done byte by byte then is right everywhere. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LMC__LITTLE_ENDIAN 1
#elif defined(_M_X64) || defined(_M_IX86) || defined(_M_ARM64)
#define LMC__LITTLE_ENDIAN 1
#else
#define LMC__LITTLE_ENDIAN 0
#endif

/*
 * The tiers that this build has: native intrinsics in functions with target attributes, chosen at
 * run time (kernels/dispatch.h). No build flags are needed. A helper that takes vectors needs the
 * attribute of its callers; one with fewer features may be inlined into one with more.
 */

/* LMC__X86: AVX2 and AVX-512. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__x86_64__)
#define LMC__X86 1
#define LMC__AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt,sse4.2,pclmul")))
#define LMC__AVX512                                                                                \
    __attribute__((target("avx2,bmi,bmi2,popcnt,sse4.2,pclmul,avx512f,avx512bw,avx512dq,avx512vl," \
                          "avx512vbmi,avx512vbmi2,avx512vpopcntdq,vpclmulqdq")))
#define LMC__INLINE2 static inline __attribute__((always_inline)) LMC__AVX2
#define LMC__INLINE512 static inline __attribute__((always_inline)) LMC__AVX512
#else
#define LMC__X86 0
#endif

/* LMC__SIMDE, if the user defines LMC_SIMDE: the AVX2 text again, for other machines, where SIMDe
 * turns it into their vectors. Never on x86 or Arm64: in functions with target attributes it
 * silently emulates, many times slower than the portable code. LMC__SIMDE may be set from outside,
 * by tests only. */
#if defined(LMC_NO_SIMD) || !defined(LMC_SIMDE) || !defined(__GNUC__) || defined(__x86_64__) ||    \
    defined(__i386__) || defined(__aarch64__)
#undef LMC__SIMDE
#define LMC__SIMDE 0
#elif !defined(LMC__SIMDE)
/* Where it wins over the portable code. Not on s390x, whose shuffle SIMDe lacks and whose byte
 * order reverses what the text reads as wider elements; not on riscv64, for which SIMDe 0.7 has
 * nothing: on both, partition and merge take two to six times the instructions. */
#if LMC__LITTLE_ENDIAN && (defined(__VSX__) || defined(__wasm_simd128__) || defined(__ARM_NEON))
#define LMC__SIMDE 1
#else
#define LMC__SIMDE 0
#endif
#endif
#if LMC__SIMDE
#define LMC__AVX2
#define LMC__INLINE2 LMC__INLINE
#endif
#define LMC__AVX2_TEXT (LMC__X86 || LMC__SIMDE)

/* LMC__NEON: AArch64 always has it. Big-endian AArch64 numbers lanes the other way round and takes
 * the portable code. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__aarch64__) && LMC__LITTLE_ENDIAN
#define LMC__NEON 1
/* The CRC-32 instructions, optional in Armv8.0, by built-in functions: not every compiler's
 * arm_acle.h has them for single functions. */
#if defined(__clang__)
#define LMC__CRC __attribute__((target("crc")))
#define LMC__CRC_STEP8(crc, v) __builtin_arm_crc32cd(crc, v)
#else
#define LMC__CRC __attribute__((target("+crc")))
#define LMC__CRC_STEP8(crc, v) __builtin_aarch64_crc32cx(crc, v)
#endif
#else
#define LMC__NEON 0
#endif

/* Orders streaming stores before the plain ones that tell other threads of them. */
#if LMC__X86
#define LMC__FENCE_STREAMS() __builtin_ia32_sfence()
#else
#define LMC__FENCE_STREAMS() ((void)0)
#endif

/* The one way for decoders to refuse input: every rule of the spec that can be broken is a line
 * with LMC__CHECK. It returns the status if the condition does not hold. */
#define LMC__CHECK(condition, status)                                                              \
    do {                                                                                           \
        if (LMC__UNLIKELY(!(condition))) return (status);                                          \
    } while (0)

/* Passes an error on: returns the status of the expression unless it is LMC_OK. */
#define LMC__TRY(expression)                                                                       \
    do {                                                                                           \
        enum lmc_status lmc__s = (expression);                                                     \
        if (lmc__s != LMC_OK) return lmc__s;                                                       \
    } while (0)

LMC__INLINE size_t lmc__min(size_t a, size_t b) { return a < b ? a : b; }
LMC__INLINE uint64_t lmc__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* == base/status.h ================================================================================ */

/* The library's version, and what a status is called and says. All layers have these, so they stand
 * on the lowest floor.
 *
 * A text is for the user of a program, not for its author: what happened, then what to do about it,
 * where there is anything to do. It fits behind the name of a file ("x.lmc: not an LMC file"). */

LMC_API const char *lmc_version(void) { return LMC_VERSION; }

static const struct {
    enum lmc_status status;
    const char *name, *text;
} lmc__statuses[] = {
    {LMC_OK, "LMC_OK", "success"},
    {LMC_ERR_ARGUMENT, "LMC_ERR_ARGUMENT",
     "invalid argument: see the comment of the function in lmc.h"},
    {LMC_ERR_DST_TOO_SMALL, "LMC_ERR_DST_TOO_SMALL",
     "the output buffer is too small: lmc_bound_block, lmc_bound_tensor and lmc_read_block_info "
     "tell "
     "what is enough"},
    {LMC_ERR_WORKSPACE, "LMC_ERR_WORKSPACE",
     "the workspace is too small: lmc_workspace_size and lmc_tensor_workspace_size tell what is "
     "enough"},
    {LMC_ERR_MEMORY, "LMC_ERR_MEMORY", "out of memory: use fewer workers or smaller blocks"},
    {LMC_ERR_READ, "LMC_ERR_READ", "reading failed"},
    {LMC_ERR_WRITE, "LMC_ERR_WRITE", "writing failed"},
    {LMC_ERR_NOT_FOUND, "LMC_ERR_NOT_FOUND",
     "not found in the snapshot: list it to see what it holds"},
    {LMC_ERR_LIMIT, "LMC_ERR_LIMIT",
     "exceeds a limit of the format or of the caller: raise the limit if you trust the data"},
    {LMC_ERR_SIZE, "LMC_ERR_SIZE", "too large for a 32-bit program: use a 64-bit build"},
    {LMC_ERR_READ_BACK, "LMC_ERR_READ_BACK",
     "some tensors are copies of others in the snapshot: restore it from a file or to files, not "
     "from a pipe to a pipe"},
    {LMC_ERR_NOT_LMC, "LMC_ERR_NOT_LMC", "not an LMC file"},
    {LMC_ERR_VERSION, "LMC_ERR_VERSION",
     "unknown version of the LMC format: use the version of lmc that wrote it, or a newer one"},
    {LMC_ERR_UNSUPPORTED, "LMC_ERR_UNSUPPORTED",
     "unknown feature of the LMC format: use a newer lmc"},
    {LMC_ERR_TRUNCATED, "LMC_ERR_TRUNCATED",
     "truncated: the data ends early; fetch or write the file again"},
    {LMC_ERR_CORRUPT, "LMC_ERR_CORRUPT",
     "corrupt: the data breaks a rule of the format; use another copy"},
    {LMC_ERR_CHECKSUM, "LMC_ERR_CHECKSUM", "corrupt: a checksum does not match; use another copy"},
    {LMC_ERR_BASE_MISSING, "LMC_ERR_BASE_MISSING",
     "this is a delta: its base, the snapshot that it was made against, is needed"},
    {LMC_ERR_BASE_WRONG, "LMC_ERR_BASE_WRONG",
     "wrong base: not the snapshot that the delta was made against"}};

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

/* == base/bytes.h ================================================================================= */

/* Integers in memory, little-endian and of any alignment, as all of the format has them (spec 2).
 * memcpy of a constant size is one instruction; elsewhere compilers turn the shifts into a load and
 * a byte swap. */

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
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
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

/* floor(log2(v)), v > 0: the number of the highest one bit. */
LMC__INLINE unsigned lmc__log2_floor(uint64_t v)
{
#if defined(__GNUC__)
    return 63u - (unsigned)__builtin_clzll(v);
#else
    unsigned log2 = 0;
    while (v >> log2 > 1) log2++;
    return log2;
#endif
}

/* == base/wire_block.h ============================================================================ */

/* Constants of blocks and their lists (spec 7, 8). Sizes are in bytes, depths and lengths in bits.
 */

/* Block sizes (spec 5.2). */
#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 23u

/* Block_Header (spec 7). */
#define LMC__BLOCK_SYNC 0xB1u   /* its first byte */
#define LMC__CONTENT_CRC_AT 12u /* offset of Content_CRC */
#define LMC__BLOCK_CRC_AT 20u   /* offset of Header_CRC */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTIZED 2u

/* How a list of bytes is stored: its Mode byte (spec 8). */
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
};

/* Trees and masks. */
#define LMC__MAX_LENGTH 15u     /* of a code; so many levels has a tree (spec 8.2) */
#define LMC__MAX_FLAT 6u        /* depth of a flat node: 64 symbols, what one vpermb looks up */
#define LMC__MASK_MODE_MIN 256u /* masks of fewer bits have no mode byte (spec 8.3) */
#define LMC__MAX_NESTING 3u     /* masks within masks (spec 8.3) */
#define LMC__FROZEN_LEVELS 10u  /* trees for masks, by density (spec 8.4) */

/* == base/wire_file.h ============================================================================= */

/* Constants of files (spec 4, 5, 9, 10, 12). Sizes are in bytes. */

/* File_Header (spec 4). */
#define LMC__HEADER_SIZE 80u
#define LMC__FLAG_SEQUENTIAL 1u /* a pipe can restore the file: no run refers to this snapshot */
#define LMC__FLAGS_AT 12u
#define LMC__BASE_IDENTITY_AT 32u
#define LMC__CHAIN_DEPTH_AT 64u
#define LMC__HEADER_CRC_AT 76u

/* Section_Header (spec 5). */
#define LMC__SECTION_HEADER_SIZE 24u
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)

/* FILE body (spec 5.1). */
#define LMC__FILE_BODY_SIZE 36u    /* without path and tensors */
#define LMC__TENSOR_ENTRY_SIZE 24u /* without shape, name, dtype and error */
#define LMC__HAS_MODE 1u           /* bits of Attributes */
#define LMC__HAS_MTIME 2u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)

/* RUN body (spec 5.2). */
#define LMC__RUN_BODY_SIZE 16u /* without segments */
#define LMC__SEGMENT_SIZE 32u
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)
enum { LMC__PREDICT_ZERO = 0, LMC__PREDICT_BASE = 1, LMC__PREDICT_OWN = 2 };

/* Leaves of an identity: as many bytes of content have a CRC that is hashed (spec 9.2). */
#define LMC__LEAF_SIZE 262144u

/* INDX body and trailer (spec 10). */
#define LMC__INDEX_BODY_SIZE 48u /* without entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

/* The first and the last bytes of a file. As in PNG, a byte that is no ASCII and line ends of two
 * kinds show what a transfer as text has changed. */
static const uint8_t lmc__magic[8] = {0x8C, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t lmc__end_magic[8] = {0x8D, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};

/* == kernels/types.h ============================================================================== */

/*
 * What kernels are given. A kernel takes pointers and counts, parses nothing, allocates nothing and
 * cannot fail. The scalar functions define the meaning; those of the other tiers give the same,
 * byte by byte.
 *
 * *Lists* are arrays of bytes in the workspace with LMC__PAD bytes of slack behind their end:
 * kernels may read, and where they write a list also write, that far beyond it, so that the last
 * vector needs no care. Everything else is read and written exactly.
 *
 * Three of these types are knowledge of the format that kernels share, because they compute what
 * the spec defines element by element: joint (spec 7.4), grouping and class_sides (spec 7.3); grid
 * is that of spec 7.6.
 */
#define LMC__PAD 64u
#define LMC__LINE 64u /* bytes of a cache line, or near enough */

/* One row of bytes (a plane, spec 7.2) for each byte of an element. */
typedef struct lmc__planes {
    uint8_t *row[8];
} lmc__planes;
typedef struct lmc__const_planes {
    const uint8_t *row[8];
} lmc__const_planes;

/* A plane on its way to the root of a tree: not its bytes are wanted, but these mapped and
 * partitioned, as by the kernels map and partition. Its row is a list to do that in; left may be
 * the same one. */
typedef struct lmc__parted {
    unsigned plane;
    const uint8_t *table;
    unsigned split;
    uint8_t *mask, *left, *right;
    size_t n_right; /* result */
} lmc__parted;

/* One side of a merge: a list, or a constant where list is NULL. */
typedef struct lmc__side {
    const uint8_t *list;
    uint8_t value;
} lmc__side;

/* What a decoding kernel knows of the memory around its block. */
typedef struct lmc__streaming {
    int is_on; /* all that is decoded is so large that dst would not stay in the caches: write
                  it past them, with streaming stores. The caller ends with LMC__FENCE_STREAMS */
    const uint8_t *next; /* what will be read after this block: to fetch meanwhile */
    size_t next_size;    /* 0: not known, or in the caches anyway */
} lmc__streaming;
static const lmc__streaming lmc__no_streaming = {0, NULL, 0};

/* And back: a plane that is yet to be merged; `row` is a list to do that in. */
typedef struct lmc__merged {
    unsigned plane;
    uint8_t *row;
    const uint8_t *mask;
    lmc__side left, right;
} lmc__merged;

/* How the top byte of n elements is coded jointly with the `extra` top bits of the byte below it
 * (spec 7.4). That byte's other bits are packed: as bytes, of which those of the last elements,
 * from `packed_size` on, are in the others' free bits. */
typedef struct lmc__joint {
    unsigned extra;  /* 1 or 2; 0: not at all */
    unsigned offset; /* of the wide symbols: 0 .. 255 stand for offset .. offset + 255 */
    size_t row, packed_size;
    const uint8_t *packed; /* the rest is for join_root */
    size_t first;          /* of its elements */
    uint8_t *high, *low;   /* lists of a strip */
} lmc__joint;

LMC__INLINE void lmc__set_joint(lmc__joint *joint, unsigned extra, unsigned offset, size_t n)
{
    const size_t rows = extra ? 8 / extra : 1;
    joint->extra = extra;
    joint->offset = offset;
    joint->row = (n + rows - 1) / rows;
    joint->packed_size = joint->row * (rows - 1);
    joint->packed = NULL;
    joint->first = 0;
    joint->high = joint->low = NULL;
}

/* What the elements of a block are joined of. */
typedef struct lmc__join_source {
    const lmc__const_planes *planes;
    const lmc__merged *root; /* one of the planes, yet to be merged; or NULL */
    const lmc__joint *joint; /* how the two top planes are yet to be unfolded; or NULL */
    unsigned width;          /* bytes of an element */
    int rotate;              /* rotate each to the right by one bit */
} lmc__join_source;

LMC__INLINE lmc__join_source lmc__join_from(const lmc__const_planes *planes,
                                            const lmc__merged *root, const lmc__joint *joint,
                                            unsigned width, int rotate)
{
    lmc__join_source source;
    source.planes = planes;
    source.root = root;
    source.joint = joint;
    source.width = width;
    source.rotate = rotate;
    return source;
}

/* How elements are told apart by their prediction (spec 7.3). */
#define LMC__MAX_CLASSES 8u
typedef struct lmc__grouping {
    unsigned n_classes; /* 1 .. 8 */
    unsigned n_natural; /* planes that are not grouped, the lowest ones */
    uint8_t threshold[LMC__MAX_CLASSES - 1];
} lmc__grouping;

/* A list for each class and grouped plane. Natural planes are those of class 0: n bytes exactly, no
 * lists. */
typedef struct lmc__classes {
    uint8_t *row[LMC__MAX_CLASSES][8];
} lmc__classes;
typedef struct lmc__class_sides {
    lmc__side side[LMC__MAX_CLASSES][8];
} lmc__class_sides;

/* Grids (grids.h, spec 7.6). Scales are the bits of an F32. */
#define LMC__EXCEPTION 65535u /* in place of a symbol: the element is on no grid */
#define LMC__MIN_SCALE 0x00800000u
#define LMC__MAX_SCALE 0x77000000u /* of products: 2^111 times less than 2^16 */
#define LMC__MAX_LOG_SCALE 0x7F7F0000u

typedef struct lmc__grid {
    int is_log, is_signed;
    int32_t min;       /* of q; at most 0 */
    uint32_t n_points; /* encoding: q in [min, min + n_points); symbols stay below LMC__EXCEPTION */
    uint32_t step;     /* with log */
    int32_t bias;      /* of scales by prediction */
    uint32_t floor;
} lmc__grid;

/* The kernels of a tier. Those that take a table first are fused of others: they do their own work
 * at the ends of a block with the kernels of that table, which is the one they are from. */
typedef struct lmc__kernels {
    enum lmc_tier tier;
    uint32_t (*crc32c)(uint32_t crc, const uint8_t *p, size_t size);
    void (*join)(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                 int rotate);
    uint32_t (*split_root)(const struct lmc__kernels *k, const lmc__planes *planes,
                           lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                           int rotate);
    uint32_t (*join_root)(const struct lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                          size_t n, lmc__streaming streaming);
    int (*is_constant)(const uint8_t *src, size_t n);
    void (*split)(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                  int rotate);
    void (*map)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table);
    size_t (*partition)(uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src, size_t n,
                        unsigned split);
    void (*merge)(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left, lmc__side right);
    void (*flatten)(uint8_t *bits, const uint8_t *src, size_t n, unsigned first, unsigned depth);
    void (*unflatten)(uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols,
                      unsigned depth);
    size_t (*count_ones)(const uint8_t *mask, size_t size);
    void (*fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high, const uint8_t *low,
                 size_t n, const lmc__joint *joint);
    void (*unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols, const uint8_t *packed,
                   size_t first, size_t n, const lmc__joint *joint);
    uint32_t (*count_classes)(const struct lmc__kernels *k, size_t counts[LMC__MAX_CLASSES],
                              const uint8_t *base, size_t n, unsigned width,
                              const lmc__grouping *grouping);
    uint32_t (*group)(const struct lmc__kernels *k, const lmc__classes *classes, const uint8_t *src,
                      const uint8_t *base, size_t n, unsigned width, int subtract,
                      const lmc__grouping *grouping);
    uint32_t (*ungroup)(const struct lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                        const lmc__class_sides *sides, size_t n, unsigned width, int subtract,
                        const lmc__grouping *grouping, lmc__streaming streaming);
    void (*restore_rows)(uint8_t *dst, const uint16_t *symbols, size_t n, uint32_t scale,
                         const lmc__grid *grid);
    void (*restore_updates)(uint8_t *dst, const uint16_t *symbols, const uint8_t *second, size_t n,
                            const lmc__grid *grid);
    size_t (*quantize_rows)(uint16_t *symbols, const uint8_t *src, size_t n, uint32_t scale,
                            const lmc__grid *grid);
    size_t (*quantize_updates)(uint16_t *symbols, const uint8_t *src, const uint8_t *second,
                               size_t n, const lmc__grid *grid);
    uint32_t (*sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count);
    void (*join_symbols)(uint16_t *symbols, const uint8_t *high, const uint8_t *low, size_t n,
                         unsigned low_bits);
    void (*cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                        unsigned low_bits);
    void (*look_up)(uint16_t *symbols, const uint8_t *codes, size_t n, const uint16_t table[256]);
    void (*stream)(uint8_t *dst, const uint8_t *src, size_t size);
} lmc__kernels;

/* == kernels/tables.h ============================================================================= */

/* Tables and constants of the kernels. tools/tables.py writes this file and derives each number;
 * change them there. A mask m is a byte: bit i speaks of byte i of eight bytes. Words hold their
 * byte 0 in the lowest bits. */

/* clang-format off */
/* Number of one bits of m. */
static const uint8_t lmc__ones[256] =
    {0,1,1,2,1,2,2,3,1,2,2,3,2,3,3,4,1,2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,1,2,2,3,2,3,3,4,2,3,3,4,3,4,4,
    5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,1,2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,
    6,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,1,2,2,3,2,3,3,4,2,3,3,4,3,4,4,
    5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,
    7,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,
    7,4,5,5,6,5,6,6,7,5,6,6,7,6,7,7,8};

/* Byte i is 255 if bit i of m is set, else 0. */
static const uint64_t lmc__byte_mask[256] =
    {0,255,0xFF00,0xFFFF,0xFF0000,0xFF00FF,0xFFFF00,0xFFFFFF,0xFF000000,0xFF0000FF,0xFF00FF00,
    0xFF00FFFF,0xFFFF0000,0xFFFF00FF,0xFFFFFF00,0xFFFFFFFF,0xFF00000000,0xFF000000FF,0xFF0000FF00,
    0xFF0000FFFF,0xFF00FF0000,0xFF00FF00FF,0xFF00FFFF00,0xFF00FFFFFF,0xFFFF000000,0xFFFF0000FF,
    0xFFFF00FF00,0xFFFF00FFFF,0xFFFFFF0000,0xFFFFFF00FF,0xFFFFFFFF00,0xFFFFFFFFFF,0xFF0000000000,
    0xFF00000000FF,0xFF000000FF00,0xFF000000FFFF,0xFF0000FF0000,0xFF0000FF00FF,0xFF0000FFFF00,
    0xFF0000FFFFFF,0xFF00FF000000,0xFF00FF0000FF,0xFF00FF00FF00,0xFF00FF00FFFF,0xFF00FFFF0000,
    0xFF00FFFF00FF,0xFF00FFFFFF00,0xFF00FFFFFFFF,0xFFFF00000000,0xFFFF000000FF,0xFFFF0000FF00,
    0xFFFF0000FFFF,0xFFFF00FF0000,0xFFFF00FF00FF,0xFFFF00FFFF00,0xFFFF00FFFFFF,0xFFFFFF000000,
    0xFFFFFF0000FF,0xFFFFFF00FF00,0xFFFFFF00FFFF,0xFFFFFFFF0000,0xFFFFFFFF00FF,0xFFFFFFFFFF00,
    0xFFFFFFFFFFFF,0xFF000000000000,0xFF0000000000FF,0xFF00000000FF00,0xFF00000000FFFF,
    0xFF000000FF0000,0xFF000000FF00FF,0xFF000000FFFF00,0xFF000000FFFFFF,0xFF0000FF000000,
    0xFF0000FF0000FF,0xFF0000FF00FF00,0xFF0000FF00FFFF,0xFF0000FFFF0000,0xFF0000FFFF00FF,
    0xFF0000FFFFFF00,0xFF0000FFFFFFFF,0xFF00FF00000000,0xFF00FF000000FF,0xFF00FF0000FF00,
    0xFF00FF0000FFFF,0xFF00FF00FF0000,0xFF00FF00FF00FF,0xFF00FF00FFFF00,0xFF00FF00FFFFFF,
    0xFF00FFFF000000,0xFF00FFFF0000FF,0xFF00FFFF00FF00,0xFF00FFFF00FFFF,0xFF00FFFFFF0000,
    0xFF00FFFFFF00FF,0xFF00FFFFFFFF00,0xFF00FFFFFFFFFF,0xFFFF0000000000,0xFFFF00000000FF,
    0xFFFF000000FF00,0xFFFF000000FFFF,0xFFFF0000FF0000,0xFFFF0000FF00FF,0xFFFF0000FFFF00,
    0xFFFF0000FFFFFF,0xFFFF00FF000000,0xFFFF00FF0000FF,0xFFFF00FF00FF00,0xFFFF00FF00FFFF,
    0xFFFF00FFFF0000,0xFFFF00FFFF00FF,0xFFFF00FFFFFF00,0xFFFF00FFFFFFFF,0xFFFFFF00000000,
    0xFFFFFF000000FF,0xFFFFFF0000FF00,0xFFFFFF0000FFFF,0xFFFFFF00FF0000,0xFFFFFF00FF00FF,
    0xFFFFFF00FFFF00,0xFFFFFF00FFFFFF,0xFFFFFFFF000000,0xFFFFFFFF0000FF,0xFFFFFFFF00FF00,
    0xFFFFFFFF00FFFF,0xFFFFFFFFFF0000,0xFFFFFFFFFF00FF,0xFFFFFFFFFFFF00,0xFFFFFFFFFFFFFF,
    0xFF00000000000000,0xFF000000000000FF,0xFF0000000000FF00,0xFF0000000000FFFF,0xFF00000000FF0000,
    0xFF00000000FF00FF,0xFF00000000FFFF00,0xFF00000000FFFFFF,0xFF000000FF000000,0xFF000000FF0000FF,
    0xFF000000FF00FF00,0xFF000000FF00FFFF,0xFF000000FFFF0000,0xFF000000FFFF00FF,0xFF000000FFFFFF00,
    0xFF000000FFFFFFFF,0xFF0000FF00000000,0xFF0000FF000000FF,0xFF0000FF0000FF00,0xFF0000FF0000FFFF,
    0xFF0000FF00FF0000,0xFF0000FF00FF00FF,0xFF0000FF00FFFF00,0xFF0000FF00FFFFFF,0xFF0000FFFF000000,
    0xFF0000FFFF0000FF,0xFF0000FFFF00FF00,0xFF0000FFFF00FFFF,0xFF0000FFFFFF0000,0xFF0000FFFFFF00FF,
    0xFF0000FFFFFFFF00,0xFF0000FFFFFFFFFF,0xFF00FF0000000000,0xFF00FF00000000FF,0xFF00FF000000FF00,
    0xFF00FF000000FFFF,0xFF00FF0000FF0000,0xFF00FF0000FF00FF,0xFF00FF0000FFFF00,0xFF00FF0000FFFFFF,
    0xFF00FF00FF000000,0xFF00FF00FF0000FF,0xFF00FF00FF00FF00,0xFF00FF00FF00FFFF,0xFF00FF00FFFF0000,
    0xFF00FF00FFFF00FF,0xFF00FF00FFFFFF00,0xFF00FF00FFFFFFFF,0xFF00FFFF00000000,0xFF00FFFF000000FF,
    0xFF00FFFF0000FF00,0xFF00FFFF0000FFFF,0xFF00FFFF00FF0000,0xFF00FFFF00FF00FF,0xFF00FFFF00FFFF00,
    0xFF00FFFF00FFFFFF,0xFF00FFFFFF000000,0xFF00FFFFFF0000FF,0xFF00FFFFFF00FF00,0xFF00FFFFFF00FFFF,
    0xFF00FFFFFFFF0000,0xFF00FFFFFFFF00FF,0xFF00FFFFFFFFFF00,0xFF00FFFFFFFFFFFF,0xFFFF000000000000,
    0xFFFF0000000000FF,0xFFFF00000000FF00,0xFFFF00000000FFFF,0xFFFF000000FF0000,0xFFFF000000FF00FF,
    0xFFFF000000FFFF00,0xFFFF000000FFFFFF,0xFFFF0000FF000000,0xFFFF0000FF0000FF,0xFFFF0000FF00FF00,
    0xFFFF0000FF00FFFF,0xFFFF0000FFFF0000,0xFFFF0000FFFF00FF,0xFFFF0000FFFFFF00,0xFFFF0000FFFFFFFF,
    0xFFFF00FF00000000,0xFFFF00FF000000FF,0xFFFF00FF0000FF00,0xFFFF00FF0000FFFF,0xFFFF00FF00FF0000,
    0xFFFF00FF00FF00FF,0xFFFF00FF00FFFF00,0xFFFF00FF00FFFFFF,0xFFFF00FFFF000000,0xFFFF00FFFF0000FF,
    0xFFFF00FFFF00FF00,0xFFFF00FFFF00FFFF,0xFFFF00FFFFFF0000,0xFFFF00FFFFFF00FF,0xFFFF00FFFFFFFF00,
    0xFFFF00FFFFFFFFFF,0xFFFFFF0000000000,0xFFFFFF00000000FF,0xFFFFFF000000FF00,0xFFFFFF000000FFFF,
    0xFFFFFF0000FF0000,0xFFFFFF0000FF00FF,0xFFFFFF0000FFFF00,0xFFFFFF0000FFFFFF,0xFFFFFF00FF000000,
    0xFFFFFF00FF0000FF,0xFFFFFF00FF00FF00,0xFFFFFF00FF00FFFF,0xFFFFFF00FFFF0000,0xFFFFFF00FFFF00FF,
    0xFFFFFF00FFFFFF00,0xFFFFFF00FFFFFFFF,0xFFFFFFFF00000000,0xFFFFFFFF000000FF,0xFFFFFFFF0000FF00,
    0xFFFFFFFF0000FFFF,0xFFFFFFFF00FF0000,0xFFFFFFFF00FF00FF,0xFFFFFFFF00FFFF00,0xFFFFFFFF00FFFFFF,
    0xFFFFFFFFFF000000,0xFFFFFFFFFF0000FF,0xFFFFFFFFFF00FF00,0xFFFFFFFFFF00FFFF,0xFFFFFFFFFFFF0000,
    0xFFFFFFFFFFFF00FF,0xFFFFFFFFFFFFFF00,0xFFFFFFFFFFFFFFFF};

/* How to move the bytes of a word as m says. Expanding brings packed bytes up to the places of
 * the one bits in three steps, by 4, 2 and 1 bytes; compressing is the same backwards. [m][0],
 * [1], [2]: which bytes move in each step of expanding; [3]: the packed bytes, as many as m has
 * one bits. */
static const uint64_t lmc__moves[256][4] =
    {{0,0,0,0},{0,0,0,255},{0,0,255,255},{0,0,0,0xFFFF},{0,255,0,255},{0,0,0xFF00,0xFFFF},{0,0,
    0xFFFF,0xFFFF},{0,0,0,0xFFFFFF},{0,255,0xFF0000,255},{0,0xFF00,0,0xFFFF},{0,0xFF00,255,0xFFFF},
    {0,0,0xFF0000,0xFFFFFF},{0,0xFFFF,0,0xFFFF},{0,0,0xFFFF00,0xFFFFFF},{0,0,0xFFFFFF,0xFFFFFF},{0,
    0,0,0xFFFFFFFF},{255,0,0,255},{0,0xFF00,0xFF000000,0xFFFF},{0,0xFF00,0xFF0000FF,0xFFFF},{0,
    0xFF0000,0,0xFFFFFF},{0,0xFFFF,0xFF000000,0xFFFF},{0,0xFF0000,0xFF00,0xFFFFFF},{0,0xFF0000,
    0xFFFF,0xFFFFFF},{0,0,0xFF000000,0xFFFFFFFF},{0,0xFFFF,0xFFFF0000,0xFFFF},{0,0xFFFF00,0,
    0xFFFFFF},{0,0xFFFF00,255,0xFFFFFF},{0,0,0xFFFF0000,0xFFFFFFFF},{0,0xFFFFFF,0,0xFFFFFF},{0,0,
    0xFFFFFF00,0xFFFFFFFF},{0,0,0xFFFFFFFF,0xFFFFFFFF},{0,0,0,0xFFFFFFFFFF},{255,0,0xFF00000000,
    255},{0xFF00,0,0,0xFFFF},{0xFF00,0,255,0xFFFF},{0,0xFF0000,0xFF00000000,0xFFFFFF},{0xFF00,255,0,
    0xFFFF},{0,0xFF0000,0xFF0000FF00,0xFFFFFF},{0,0xFF0000,0xFF0000FFFF,0xFFFFFF},{0,0xFF000000,0,
    0xFFFFFFFF},{0xFF00,255,0xFF0000,0xFFFF},{0,0xFFFF00,0xFF00000000,0xFFFFFF},{0,0xFFFF00,
    0xFF000000FF,0xFFFFFF},{0,0xFF000000,0xFF0000,0xFFFFFFFF},{0,0xFFFFFF,0xFF00000000,0xFFFFFF},{0,
    0xFF000000,0xFFFF00,0xFFFFFFFF},{0,0xFF000000,0xFFFFFF,0xFFFFFFFF},{0,0,0xFF00000000,
    0xFFFFFFFFFF},{0xFFFF,0,0,0xFFFF},{0,0xFFFF00,0xFFFF000000,0xFFFFFF},{0,0xFFFF00,0xFFFF0000FF,
    0xFFFFFF},{0,0xFFFF0000,0,0xFFFFFFFF},{0,0xFFFFFF,0xFFFF000000,0xFFFFFF},{0,0xFFFF0000,0xFF00,
    0xFFFFFFFF},{0,0xFFFF0000,0xFFFF,0xFFFFFFFF},{0,0,0xFFFF000000,0xFFFFFFFFFF},{0,0xFFFFFF,
    0xFFFFFF0000,0xFFFFFF},{0,0xFFFFFF00,0,0xFFFFFFFF},{0,0xFFFFFF00,255,0xFFFFFFFF},{0,0,
    0xFFFFFF0000,0xFFFFFFFFFF},{0,0xFFFFFFFF,0,0xFFFFFFFF},{0,0,0xFFFFFFFF00,0xFFFFFFFFFF},{0,0,
    0xFFFFFFFFFF,0xFFFFFFFFFF},{0,0,0,0xFFFFFFFFFFFF},{255,0xFF00000000,0,255},{0xFF00,0,
    0xFF0000000000,0xFFFF},{0xFF00,0,0xFF00000000FF,0xFFFF},{0xFF0000,0,0,0xFFFFFF},{0xFF00,255,
    0xFF0000000000,0xFFFF},{0xFF0000,0,0xFF00,0xFFFFFF},{0xFF0000,0,0xFFFF,0xFFFFFF},{0,0xFF000000,
    0xFF0000000000,0xFFFFFFFF},{0xFF00,255,0xFF0000FF0000,0xFFFF},{0xFF0000,0xFF00,0,0xFFFFFF},
    {0xFF0000,0xFF00,255,0xFFFFFF},{0,0xFF000000,0xFF0000FF0000,0xFFFFFFFF},{0xFF0000,0xFFFF,0,
    0xFFFFFF},{0,0xFF000000,0xFF0000FFFF00,0xFFFFFFFF},{0,0xFF000000,0xFF0000FFFFFF,0xFFFFFFFF},{0,
    0xFF00000000,0,0xFFFFFFFFFF},{0xFFFF,0,0xFF0000000000,0xFFFF},{0xFF0000,0xFF00,0xFF000000,
    0xFFFFFF},{0xFF0000,0xFF00,0xFF0000FF,0xFFFFFF},{0,0xFFFF0000,0xFF0000000000,0xFFFFFFFF},
    {0xFF0000,0xFFFF,0xFF000000,0xFFFFFF},{0,0xFFFF0000,0xFF000000FF00,0xFFFFFFFF},{0,0xFFFF0000,
    0xFF000000FFFF,0xFFFFFFFF},{0,0xFF00000000,0xFF000000,0xFFFFFFFFFF},{0xFF0000,0xFFFF,0xFFFF0000,
    0xFFFFFF},{0,0xFFFFFF00,0xFF0000000000,0xFFFFFFFF},{0,0xFFFFFF00,0xFF00000000FF,0xFFFFFFFF},{0,
    0xFF00000000,0xFFFF0000,0xFFFFFFFFFF},{0,0xFFFFFFFF,0xFF0000000000,0xFFFFFFFF},{0,0xFF00000000,
    0xFFFFFF00,0xFFFFFFFFFF},{0,0xFF00000000,0xFFFFFFFF,0xFFFFFFFFFF},{0,0,0xFF0000000000,
    0xFFFFFFFFFFFF},{0xFFFF,0,0xFFFF00000000,0xFFFF},{0xFFFF00,0,0,0xFFFFFF},{0xFFFF00,0,255,
    0xFFFFFF},{0,0xFFFF0000,0xFFFF00000000,0xFFFFFFFF},{0xFFFF00,255,0,0xFFFFFF},{0,0xFFFF0000,
    0xFFFF0000FF00,0xFFFFFFFF},{0,0xFFFF0000,0xFFFF0000FFFF,0xFFFFFFFF},{0,0xFFFF000000,0,
    0xFFFFFFFFFF},{0xFFFF00,255,0xFF0000,0xFFFFFF},{0,0xFFFFFF00,0xFFFF00000000,0xFFFFFFFF},{0,
    0xFFFFFF00,0xFFFF000000FF,0xFFFFFFFF},{0,0xFFFF000000,0xFF0000,0xFFFFFFFFFF},{0,0xFFFFFFFF,
    0xFFFF00000000,0xFFFFFFFF},{0,0xFFFF000000,0xFFFF00,0xFFFFFFFFFF},{0,0xFFFF000000,0xFFFFFF,
    0xFFFFFFFFFF},{0,0,0xFFFF00000000,0xFFFFFFFFFFFF},{0xFFFFFF,0,0,0xFFFFFF},{0,0xFFFFFF00,
    0xFFFFFF000000,0xFFFFFFFF},{0,0xFFFFFF00,0xFFFFFF0000FF,0xFFFFFFFF},{0,0xFFFFFF0000,0,
    0xFFFFFFFFFF},{0,0xFFFFFFFF,0xFFFFFF000000,0xFFFFFFFF},{0,0xFFFFFF0000,0xFF00,0xFFFFFFFFFF},{0,
    0xFFFFFF0000,0xFFFF,0xFFFFFFFFFF},{0,0,0xFFFFFF000000,0xFFFFFFFFFFFF},{0,0xFFFFFFFF,
    0xFFFFFFFF0000,0xFFFFFFFF},{0,0xFFFFFFFF00,0,0xFFFFFFFFFF},{0,0xFFFFFFFF00,255,0xFFFFFFFFFF},{0,
    0,0xFFFFFFFF0000,0xFFFFFFFFFFFF},{0,0xFFFFFFFFFF,0,0xFFFFFFFFFF},{0,0,0xFFFFFFFFFF00,
    0xFFFFFFFFFFFF},{0,0,0xFFFFFFFFFFFF,0xFFFFFFFFFFFF},{0,0,0,0xFFFFFFFFFFFFFF},{255,0xFF00000000,
    0xFF000000000000,255},{0xFF00,0xFF0000000000,0,0xFFFF},{0xFF00,0xFF0000000000,255,0xFFFF},
    {0xFF0000,0,0xFF000000000000,0xFFFFFF},{0xFF00,0xFF00000000FF,0,0xFFFF},{0xFF0000,0,
    0xFF00000000FF00,0xFFFFFF},{0xFF0000,0,0xFF00000000FFFF,0xFFFFFF},{0xFF000000,0,0,0xFFFFFFFF},
    {0xFF00,0xFF00000000FF,0xFF0000,0xFFFF},{0xFF0000,0xFF00,0xFF000000000000,0xFFFFFF},{0xFF0000,
    0xFF00,0xFF0000000000FF,0xFFFFFF},{0xFF000000,0,0xFF0000,0xFFFFFFFF},{0xFF0000,0xFFFF,
    0xFF000000000000,0xFFFFFF},{0xFF000000,0,0xFFFF00,0xFFFFFFFF},{0xFF000000,0,0xFFFFFF,
    0xFFFFFFFF},{0,0xFF00000000,0xFF000000000000,0xFFFFFFFFFF},{0xFFFF,0xFF0000000000,0,0xFFFF},
    {0xFF0000,0xFF00,0xFF0000FF000000,0xFFFFFF},{0xFF0000,0xFF00,0xFF0000FF0000FF,0xFFFFFF},
    {0xFF000000,0xFF0000,0,0xFFFFFFFF},{0xFF0000,0xFFFF,0xFF0000FF000000,0xFFFFFF},{0xFF000000,
    0xFF0000,0xFF00,0xFFFFFFFF},{0xFF000000,0xFF0000,0xFFFF,0xFFFFFFFF},{0,0xFF00000000,
    0xFF0000FF000000,0xFFFFFFFFFF},{0xFF0000,0xFFFF,0xFF0000FFFF0000,0xFFFFFF},{0xFF000000,0xFFFF00,
    0,0xFFFFFFFF},{0xFF000000,0xFFFF00,255,0xFFFFFFFF},{0,0xFF00000000,0xFF0000FFFF0000,
    0xFFFFFFFFFF},{0xFF000000,0xFFFFFF,0,0xFFFFFFFF},{0,0xFF00000000,0xFF0000FFFFFF00,0xFFFFFFFFFF},
    {0,0xFF00000000,0xFF0000FFFFFFFF,0xFFFFFFFFFF},{0,0xFF0000000000,0,0xFFFFFFFFFFFF},{0xFFFF,
    0xFF0000000000,0xFF00000000,0xFFFF},{0xFFFF00,0,0xFF000000000000,0xFFFFFF},{0xFFFF00,0,
    0xFF0000000000FF,0xFFFFFF},{0xFF000000,0xFF0000,0xFF00000000,0xFFFFFFFF},{0xFFFF00,255,
    0xFF000000000000,0xFFFFFF},{0xFF000000,0xFF0000,0xFF0000FF00,0xFFFFFFFF},{0xFF000000,0xFF0000,
    0xFF0000FFFF,0xFFFFFFFF},{0,0xFFFF000000,0xFF000000000000,0xFFFFFFFFFF},{0xFFFF00,255,
    0xFF000000FF0000,0xFFFFFF},{0xFF000000,0xFFFF00,0xFF00000000,0xFFFFFFFF},{0xFF000000,0xFFFF00,
    0xFF000000FF,0xFFFFFFFF},{0,0xFFFF000000,0xFF000000FF0000,0xFFFFFFFFFF},{0xFF000000,0xFFFFFF,
    0xFF00000000,0xFFFFFFFF},{0,0xFFFF000000,0xFF000000FFFF00,0xFFFFFFFFFF},{0,0xFFFF000000,
    0xFF000000FFFFFF,0xFFFFFFFFFF},{0,0xFF0000000000,0xFF00000000,0xFFFFFFFFFFFF},{0xFFFFFF,0,
    0xFF000000000000,0xFFFFFF},{0xFF000000,0xFFFF00,0xFFFF000000,0xFFFFFFFF},{0xFF000000,0xFFFF00,
    0xFFFF0000FF,0xFFFFFFFF},{0,0xFFFFFF0000,0xFF000000000000,0xFFFFFFFFFF},{0xFF000000,0xFFFFFF,
    0xFFFF000000,0xFFFFFFFF},{0,0xFFFFFF0000,0xFF00000000FF00,0xFFFFFFFFFF},{0,0xFFFFFF0000,
    0xFF00000000FFFF,0xFFFFFFFFFF},{0,0xFF0000000000,0xFFFF000000,0xFFFFFFFFFFFF},{0xFF000000,
    0xFFFFFF,0xFFFFFF0000,0xFFFFFFFF},{0,0xFFFFFFFF00,0xFF000000000000,0xFFFFFFFFFF},{0,
    0xFFFFFFFF00,0xFF0000000000FF,0xFFFFFFFFFF},{0,0xFF0000000000,0xFFFFFF0000,0xFFFFFFFFFFFF},{0,
    0xFFFFFFFFFF,0xFF000000000000,0xFFFFFFFFFF},{0,0xFF0000000000,0xFFFFFFFF00,0xFFFFFFFFFFFF},{0,
    0xFF0000000000,0xFFFFFFFFFF,0xFFFFFFFFFFFF},{0,0,0xFF000000000000,0xFFFFFFFFFFFFFF},{0xFFFF,
    0xFFFF00000000,0,0xFFFF},{0xFFFF00,0,0xFFFF0000000000,0xFFFFFF},{0xFFFF00,0,0xFFFF00000000FF,
    0xFFFFFF},{0xFFFF0000,0,0,0xFFFFFFFF},{0xFFFF00,255,0xFFFF0000000000,0xFFFFFF},{0xFFFF0000,0,
    0xFF00,0xFFFFFFFF},{0xFFFF0000,0,0xFFFF,0xFFFFFFFF},{0,0xFFFF000000,0xFFFF0000000000,
    0xFFFFFFFFFF},{0xFFFF00,255,0xFFFF0000FF0000,0xFFFFFF},{0xFFFF0000,0xFF00,0,0xFFFFFFFF},
    {0xFFFF0000,0xFF00,255,0xFFFFFFFF},{0,0xFFFF000000,0xFFFF0000FF0000,0xFFFFFFFFFF},{0xFFFF0000,
    0xFFFF,0,0xFFFFFFFF},{0,0xFFFF000000,0xFFFF0000FFFF00,0xFFFFFFFFFF},{0,0xFFFF000000,
    0xFFFF0000FFFFFF,0xFFFFFFFFFF},{0,0xFFFF00000000,0,0xFFFFFFFFFFFF},{0xFFFFFF,0,0xFFFF0000000000,
    0xFFFFFF},{0xFFFF0000,0xFF00,0xFF000000,0xFFFFFFFF},{0xFFFF0000,0xFF00,0xFF0000FF,0xFFFFFFFF},
    {0,0xFFFFFF0000,0xFFFF0000000000,0xFFFFFFFFFF},{0xFFFF0000,0xFFFF,0xFF000000,0xFFFFFFFF},{0,
    0xFFFFFF0000,0xFFFF000000FF00,0xFFFFFFFFFF},{0,0xFFFFFF0000,0xFFFF000000FFFF,0xFFFFFFFFFF},{0,
    0xFFFF00000000,0xFF000000,0xFFFFFFFFFFFF},{0xFFFF0000,0xFFFF,0xFFFF0000,0xFFFFFFFF},{0,
    0xFFFFFFFF00,0xFFFF0000000000,0xFFFFFFFFFF},{0,0xFFFFFFFF00,0xFFFF00000000FF,0xFFFFFFFFFF},{0,
    0xFFFF00000000,0xFFFF0000,0xFFFFFFFFFFFF},{0,0xFFFFFFFFFF,0xFFFF0000000000,0xFFFFFFFFFF},{0,
    0xFFFF00000000,0xFFFFFF00,0xFFFFFFFFFFFF},{0,0xFFFF00000000,0xFFFFFFFF,0xFFFFFFFFFFFF},{0,0,
    0xFFFF0000000000,0xFFFFFFFFFFFFFF},{0xFFFFFF,0,0xFFFFFF00000000,0xFFFFFF},{0xFFFFFF00,0,0,
    0xFFFFFFFF},{0xFFFFFF00,0,255,0xFFFFFFFF},{0,0xFFFFFF0000,0xFFFFFF00000000,0xFFFFFFFFFF},
    {0xFFFFFF00,255,0,0xFFFFFFFF},{0,0xFFFFFF0000,0xFFFFFF0000FF00,0xFFFFFFFFFF},{0,0xFFFFFF0000,
    0xFFFFFF0000FFFF,0xFFFFFFFFFF},{0,0xFFFFFF000000,0,0xFFFFFFFFFFFF},{0xFFFFFF00,255,0xFF0000,
    0xFFFFFFFF},{0,0xFFFFFFFF00,0xFFFFFF00000000,0xFFFFFFFFFF},{0,0xFFFFFFFF00,0xFFFFFF000000FF,
    0xFFFFFFFFFF},{0,0xFFFFFF000000,0xFF0000,0xFFFFFFFFFFFF},{0,0xFFFFFFFFFF,0xFFFFFF00000000,
    0xFFFFFFFFFF},{0,0xFFFFFF000000,0xFFFF00,0xFFFFFFFFFFFF},{0,0xFFFFFF000000,0xFFFFFF,
    0xFFFFFFFFFFFF},{0,0,0xFFFFFF00000000,0xFFFFFFFFFFFFFF},{0xFFFFFFFF,0,0,0xFFFFFFFF},{0,
    0xFFFFFFFF00,0xFFFFFFFF000000,0xFFFFFFFFFF},{0,0xFFFFFFFF00,0xFFFFFFFF0000FF,0xFFFFFFFFFF},{0,
    0xFFFFFFFF0000,0,0xFFFFFFFFFFFF},{0,0xFFFFFFFFFF,0xFFFFFFFF000000,0xFFFFFFFFFF},{0,
    0xFFFFFFFF0000,0xFF00,0xFFFFFFFFFFFF},{0,0xFFFFFFFF0000,0xFFFF,0xFFFFFFFFFFFF},{0,0,
    0xFFFFFFFF000000,0xFFFFFFFFFFFFFF},{0,0xFFFFFFFFFF,0xFFFFFFFFFF0000,0xFFFFFFFFFF},{0,
    0xFFFFFFFFFF00,0,0xFFFFFFFFFFFF},{0,0xFFFFFFFFFF00,255,0xFFFFFFFFFFFF},{0,0,0xFFFFFFFFFF0000,
    0xFFFFFFFFFFFFFF},{0,0xFFFFFFFFFFFF,0,0xFFFFFFFFFFFF},{0,0,0xFFFFFFFFFFFF00,0xFFFFFFFFFFFFFF},
    {0,0,0xFFFFFFFFFFFFFF,0xFFFFFFFFFFFFFF},{0,0,0,0xFFFFFFFFFFFFFFFF}};

#if LMC__AVX2_TEXT || LMC__NEON
/* [m]: the places of the zero bits of m, then those of its one bits, eight bytes each, packed,
 * the rest 0: a shuffle by them sorts eight bytes. */
static const uint64_t lmc__sort_places[256][2] =
    {{0x706050403020100,0},{0x7060504030201,0},{0x7060504030200,1},{0x70605040302,0x100},
    {0x7060504030100,2},{0x70605040301,0x200},{0x70605040300,0x201},{0x706050403,0x20100},
    {0x7060504020100,3},{0x70605040201,0x300},{0x70605040200,0x301},{0x706050402,0x30100},
    {0x70605040100,0x302},{0x706050401,0x30200},{0x706050400,0x30201},{0x7060504,0x3020100},
    {0x7060503020100,4},{0x70605030201,0x400},{0x70605030200,0x401},{0x706050302,0x40100},
    {0x70605030100,0x402},{0x706050301,0x40200},{0x706050300,0x40201},{0x7060503,0x4020100},
    {0x70605020100,0x403},{0x706050201,0x40300},{0x706050200,0x40301},{0x7060502,0x4030100},
    {0x706050100,0x40302},{0x7060501,0x4030200},{0x7060500,0x4030201},{0x70605,0x403020100},
    {0x7060403020100,5},{0x70604030201,0x500},{0x70604030200,0x501},{0x706040302,0x50100},
    {0x70604030100,0x502},{0x706040301,0x50200},{0x706040300,0x50201},{0x7060403,0x5020100},
    {0x70604020100,0x503},{0x706040201,0x50300},{0x706040200,0x50301},{0x7060402,0x5030100},
    {0x706040100,0x50302},{0x7060401,0x5030200},{0x7060400,0x5030201},{0x70604,0x503020100},
    {0x70603020100,0x504},{0x706030201,0x50400},{0x706030200,0x50401},{0x7060302,0x5040100},
    {0x706030100,0x50402},{0x7060301,0x5040200},{0x7060300,0x5040201},{0x70603,0x504020100},
    {0x706020100,0x50403},{0x7060201,0x5040300},{0x7060200,0x5040301},{0x70602,0x504030100},
    {0x7060100,0x5040302},{0x70601,0x504030200},{0x70600,0x504030201},{0x706,0x50403020100},
    {0x7050403020100,6},{0x70504030201,0x600},{0x70504030200,0x601},{0x705040302,0x60100},
    {0x70504030100,0x602},{0x705040301,0x60200},{0x705040300,0x60201},{0x7050403,0x6020100},
    {0x70504020100,0x603},{0x705040201,0x60300},{0x705040200,0x60301},{0x7050402,0x6030100},
    {0x705040100,0x60302},{0x7050401,0x6030200},{0x7050400,0x6030201},{0x70504,0x603020100},
    {0x70503020100,0x604},{0x705030201,0x60400},{0x705030200,0x60401},{0x7050302,0x6040100},
    {0x705030100,0x60402},{0x7050301,0x6040200},{0x7050300,0x6040201},{0x70503,0x604020100},
    {0x705020100,0x60403},{0x7050201,0x6040300},{0x7050200,0x6040301},{0x70502,0x604030100},
    {0x7050100,0x6040302},{0x70501,0x604030200},{0x70500,0x604030201},{0x705,0x60403020100},
    {0x70403020100,0x605},{0x704030201,0x60500},{0x704030200,0x60501},{0x7040302,0x6050100},
    {0x704030100,0x60502},{0x7040301,0x6050200},{0x7040300,0x6050201},{0x70403,0x605020100},
    {0x704020100,0x60503},{0x7040201,0x6050300},{0x7040200,0x6050301},{0x70402,0x605030100},
    {0x7040100,0x6050302},{0x70401,0x605030200},{0x70400,0x605030201},{0x704,0x60503020100},
    {0x703020100,0x60504},{0x7030201,0x6050400},{0x7030200,0x6050401},{0x70302,0x605040100},
    {0x7030100,0x6050402},{0x70301,0x605040200},{0x70300,0x605040201},{0x703,0x60504020100},
    {0x7020100,0x6050403},{0x70201,0x605040300},{0x70200,0x605040301},{0x702,0x60504030100},
    {0x70100,0x605040302},{0x701,0x60504030200},{0x700,0x60504030201},{7,0x6050403020100},
    {0x6050403020100,7},{0x60504030201,0x700},{0x60504030200,0x701},{0x605040302,0x70100},
    {0x60504030100,0x702},{0x605040301,0x70200},{0x605040300,0x70201},{0x6050403,0x7020100},
    {0x60504020100,0x703},{0x605040201,0x70300},{0x605040200,0x70301},{0x6050402,0x7030100},
    {0x605040100,0x70302},{0x6050401,0x7030200},{0x6050400,0x7030201},{0x60504,0x703020100},
    {0x60503020100,0x704},{0x605030201,0x70400},{0x605030200,0x70401},{0x6050302,0x7040100},
    {0x605030100,0x70402},{0x6050301,0x7040200},{0x6050300,0x7040201},{0x60503,0x704020100},
    {0x605020100,0x70403},{0x6050201,0x7040300},{0x6050200,0x7040301},{0x60502,0x704030100},
    {0x6050100,0x7040302},{0x60501,0x704030200},{0x60500,0x704030201},{0x605,0x70403020100},
    {0x60403020100,0x705},{0x604030201,0x70500},{0x604030200,0x70501},{0x6040302,0x7050100},
    {0x604030100,0x70502},{0x6040301,0x7050200},{0x6040300,0x7050201},{0x60403,0x705020100},
    {0x604020100,0x70503},{0x6040201,0x7050300},{0x6040200,0x7050301},{0x60402,0x705030100},
    {0x6040100,0x7050302},{0x60401,0x705030200},{0x60400,0x705030201},{0x604,0x70503020100},
    {0x603020100,0x70504},{0x6030201,0x7050400},{0x6030200,0x7050401},{0x60302,0x705040100},
    {0x6030100,0x7050402},{0x60301,0x705040200},{0x60300,0x705040201},{0x603,0x70504020100},
    {0x6020100,0x7050403},{0x60201,0x705040300},{0x60200,0x705040301},{0x602,0x70504030100},
    {0x60100,0x705040302},{0x601,0x70504030200},{0x600,0x70504030201},{6,0x7050403020100},
    {0x50403020100,0x706},{0x504030201,0x70600},{0x504030200,0x70601},{0x5040302,0x7060100},
    {0x504030100,0x70602},{0x5040301,0x7060200},{0x5040300,0x7060201},{0x50403,0x706020100},
    {0x504020100,0x70603},{0x5040201,0x7060300},{0x5040200,0x7060301},{0x50402,0x706030100},
    {0x5040100,0x7060302},{0x50401,0x706030200},{0x50400,0x706030201},{0x504,0x70603020100},
    {0x503020100,0x70604},{0x5030201,0x7060400},{0x5030200,0x7060401},{0x50302,0x706040100},
    {0x5030100,0x7060402},{0x50301,0x706040200},{0x50300,0x706040201},{0x503,0x70604020100},
    {0x5020100,0x7060403},{0x50201,0x706040300},{0x50200,0x706040301},{0x502,0x70604030100},
    {0x50100,0x706040302},{0x501,0x70604030200},{0x500,0x70604030201},{5,0x7060403020100},
    {0x403020100,0x70605},{0x4030201,0x7060500},{0x4030200,0x7060501},{0x40302,0x706050100},
    {0x4030100,0x7060502},{0x40301,0x706050200},{0x40300,0x706050201},{0x403,0x70605020100},
    {0x4020100,0x7060503},{0x40201,0x706050300},{0x40200,0x706050301},{0x402,0x70605030100},
    {0x40100,0x706050302},{0x401,0x70605030200},{0x400,0x70605030201},{4,0x7060503020100},
    {0x3020100,0x7060504},{0x30201,0x706050400},{0x30200,0x706050401},{0x302,0x70605040100},
    {0x30100,0x706050402},{0x301,0x70605040200},{0x300,0x70605040201},{3,0x7060504020100},{0x20100,
    0x706050403},{0x201,0x70605040300},{0x200,0x70605040301},{2,0x7060504030100},{0x100,
    0x70605040302},{1,0x7060504030200},{0,0x7060504030201},{0,0x706050403020100}};
#endif

#if LMC__NEON
/* Where the bytes of a merge come from: places 0 .. 15 are of the left list, 16 .. 31 of the
 * right one. low[m]: 0, 1, ... where m has zeros, 16, 17, ... where it has ones. high[m] is for
 * the second byte of a pair whose first one has c ones: |high - c|, of signed bytes, is 8 - c, 9
 * - c, ... for zeros, 16 + c, 17 + c, ... for ones. */
static const uint64_t lmc__merge_low[256] =
    {0x706050403020100,0x605040302010010,0x605040302011000,0x504030201001110,0x605040302100100,
    0x504030201110010,0x504030201111000,0x403020100121110,0x605040310020100,0x504030211010010,
    0x504030211011000,0x403020112001110,0x504030211100100,0x403020112110010,0x403020112111000,
    0x302010013121110,0x605041003020100,0x504031102010010,0x504031102011000,0x403021201001110,
    0x504031102100100,0x403021201110010,0x403021201111000,0x302011300121110,0x504031110020100,
    0x403021211010010,0x403021211011000,0x302011312001110,0x403021211100100,0x302011312110010,
    0x302011312111000,0x201001413121110,0x605100403020100,0x504110302010010,0x504110302011000,
    0x403120201001110,0x504110302100100,0x403120201110010,0x403120201111000,0x302130100121110,
    0x504110310020100,0x403120211010010,0x403120211011000,0x302130112001110,0x403120211100100,
    0x302130112110010,0x302130112111000,0x201140013121110,0x504111003020100,0x403121102010010,
    0x403121102011000,0x302131201001110,0x403121102100100,0x302131201110010,0x302131201111000,
    0x201141300121110,0x403121110020100,0x302131211010010,0x302131211011000,0x201141312001110,
    0x302131211100100,0x201141312110010,0x201141312111000,0x100151413121110,0x610050403020100,
    0x511040302010010,0x511040302011000,0x412030201001110,0x511040302100100,0x412030201110010,
    0x412030201111000,0x313020100121110,0x511040310020100,0x412030211010010,0x412030211011000,
    0x313020112001110,0x412030211100100,0x313020112110010,0x313020112111000,0x214010013121110,
    0x511041003020100,0x412031102010010,0x412031102011000,0x313021201001110,0x412031102100100,
    0x313021201110010,0x313021201111000,0x214011300121110,0x412031110020100,0x313021211010010,
    0x313021211011000,0x214011312001110,0x313021211100100,0x214011312110010,0x214011312111000,
    0x115001413121110,0x511100403020100,0x412110302010010,0x412110302011000,0x313120201001110,
    0x412110302100100,0x313120201110010,0x313120201111000,0x214130100121110,0x412110310020100,
    0x313120211010010,0x313120211011000,0x214130112001110,0x313120211100100,0x214130112110010,
    0x214130112111000,0x115140013121110,0x412111003020100,0x313121102010010,0x313121102011000,
    0x214131201001110,0x313121102100100,0x214131201110010,0x214131201111000,0x115141300121110,
    0x313121110020100,0x214131211010010,0x214131211011000,0x115141312001110,0x214131211100100,
    0x115141312110010,0x115141312111000,0x16151413121110,0x1006050403020100,0x1105040302010010,
    0x1105040302011000,0x1204030201001110,0x1105040302100100,0x1204030201110010,0x1204030201111000,
    0x1303020100121110,0x1105040310020100,0x1204030211010010,0x1204030211011000,0x1303020112001110,
    0x1204030211100100,0x1303020112110010,0x1303020112111000,0x1402010013121110,0x1105041003020100,
    0x1204031102010010,0x1204031102011000,0x1303021201001110,0x1204031102100100,0x1303021201110010,
    0x1303021201111000,0x1402011300121110,0x1204031110020100,0x1303021211010010,0x1303021211011000,
    0x1402011312001110,0x1303021211100100,0x1402011312110010,0x1402011312111000,0x1501001413121110,
    0x1105100403020100,0x1204110302010010,0x1204110302011000,0x1303120201001110,0x1204110302100100,
    0x1303120201110010,0x1303120201111000,0x1402130100121110,0x1204110310020100,0x1303120211010010,
    0x1303120211011000,0x1402130112001110,0x1303120211100100,0x1402130112110010,0x1402130112111000,
    0x1501140013121110,0x1204111003020100,0x1303121102010010,0x1303121102011000,0x1402131201001110,
    0x1303121102100100,0x1402131201110010,0x1402131201111000,0x1501141300121110,0x1303121110020100,
    0x1402131211010010,0x1402131211011000,0x1501141312001110,0x1402131211100100,0x1501141312110010,
    0x1501141312111000,0x1600151413121110,0x1110050403020100,0x1211040302010010,0x1211040302011000,
    0x1312030201001110,0x1211040302100100,0x1312030201110010,0x1312030201111000,0x1413020100121110,
    0x1211040310020100,0x1312030211010010,0x1312030211011000,0x1413020112001110,0x1312030211100100,
    0x1413020112110010,0x1413020112111000,0x1514010013121110,0x1211041003020100,0x1312031102010010,
    0x1312031102011000,0x1413021201001110,0x1312031102100100,0x1413021201110010,0x1413021201111000,
    0x1514011300121110,0x1312031110020100,0x1413021211010010,0x1413021211011000,0x1514011312001110,
    0x1413021211100100,0x1514011312110010,0x1514011312111000,0x1615001413121110,0x1211100403020100,
    0x1312110302010010,0x1312110302011000,0x1413120201001110,0x1312110302100100,0x1413120201110010,
    0x1413120201111000,0x1514130100121110,0x1312110310020100,0x1413120211010010,0x1413120211011000,
    0x1514130112001110,0x1413120211100100,0x1514130112110010,0x1514130112111000,0x1615140013121110,
    0x1312111003020100,0x1413121102010010,0x1413121102011000,0x1514131201001110,0x1413121102100100,
    0x1514131201110010,0x1514131201111000,0x1615141300121110,0x1413121110020100,0x1514131211010010,
    0x1514131211011000,0x1615141312001110,0x1514131211100100,0x1615141312110010,0x1615141312111000,
    0x1716151413121110};
static const uint64_t lmc__merge_high[256] =
    {0xF0E0D0C0B0A0908,0xE0D0C0B0A0908F0,0xE0D0C0B0A09F008,0xD0C0B0A0908EFF0,0xE0D0C0B0AF00908,
    0xD0C0B0A09EF08F0,0xD0C0B0A09EFF008,0xC0B0A0908EEEFF0,0xE0D0C0BF00A0908,0xD0C0B0AEF0908F0,
    0xD0C0B0AEF09F008,0xC0B0A09EE08EFF0,0xD0C0B0AEFF00908,0xC0B0A09EEEF08F0,0xC0B0A09EEEFF008,
    0xB0A0908EDEEEFF0,0xE0D0CF00B0A0908,0xD0C0BEF0A0908F0,0xD0C0BEF0A09F008,0xC0B0AEE0908EFF0,
    0xD0C0BEF0AF00908,0xC0B0AEE09EF08F0,0xC0B0AEE09EFF008,0xB0A09ED08EEEFF0,0xD0C0BEFF00A0908,
    0xC0B0AEEEF0908F0,0xC0B0AEEEF09F008,0xB0A09EDEE08EFF0,0xC0B0AEEEFF00908,0xB0A09EDEEEF08F0,
    0xB0A09EDEEEFF008,0xA0908ECEDEEEFF0,0xE0DF00C0B0A0908,0xD0CEF0B0A0908F0,0xD0CEF0B0A09F008,
    0xC0BEE0A0908EFF0,0xD0CEF0B0AF00908,0xC0BEE0A09EF08F0,0xC0BEE0A09EFF008,0xB0AED0908EEEFF0,
    0xD0CEF0BF00A0908,0xC0BEE0AEF0908F0,0xC0BEE0AEF09F008,0xB0AED09EE08EFF0,0xC0BEE0AEFF00908,
    0xB0AED09EEEF08F0,0xB0AED09EEEFF008,0xA09EC08EDEEEFF0,0xD0CEFF00B0A0908,0xC0BEEEF0A0908F0,
    0xC0BEEEF0A09F008,0xB0AEDEE0908EFF0,0xC0BEEEF0AF00908,0xB0AEDEE09EF08F0,0xB0AEDEE09EFF008,
    0xA09ECED08EEEFF0,0xC0BEEEFF00A0908,0xB0AEDEEEF0908F0,0xB0AEDEEEF09F008,0xA09ECEDEE08EFF0,
    0xB0AEDEEEFF00908,0xA09ECEDEEEF08F0,0xA09ECEDEEEFF008,0x908EBECEDEEEFF0,0xEF00D0C0B0A0908,
    0xDEF0C0B0A0908F0,0xDEF0C0B0A09F008,0xCEE0B0A0908EFF0,0xDEF0C0B0AF00908,0xCEE0B0A09EF08F0,
    0xCEE0B0A09EFF008,0xBED0A0908EEEFF0,0xDEF0C0BF00A0908,0xCEE0B0AEF0908F0,0xCEE0B0AEF09F008,
    0xBED0A09EE08EFF0,0xCEE0B0AEFF00908,0xBED0A09EEEF08F0,0xBED0A09EEEFF008,0xAEC0908EDEEEFF0,
    0xDEF0CF00B0A0908,0xCEE0BEF0A0908F0,0xCEE0BEF0A09F008,0xBED0AEE0908EFF0,0xCEE0BEF0AF00908,
    0xBED0AEE09EF08F0,0xBED0AEE09EFF008,0xAEC09ED08EEEFF0,0xCEE0BEFF00A0908,0xBED0AEEEF0908F0,
    0xBED0AEEEF09F008,0xAEC09EDEE08EFF0,0xBED0AEEEFF00908,0xAEC09EDEEEF08F0,0xAEC09EDEEEFF008,
    0x9EB08ECEDEEEFF0,0xDEFF00C0B0A0908,0xCEEEF0B0A0908F0,0xCEEEF0B0A09F008,0xBEDEE0A0908EFF0,
    0xCEEEF0B0AF00908,0xBEDEE0A09EF08F0,0xBEDEE0A09EFF008,0xAECED0908EEEFF0,0xCEEEF0BF00A0908,
    0xBEDEE0AEF0908F0,0xBEDEE0AEF09F008,0xAECED09EE08EFF0,0xBEDEE0AEFF00908,0xAECED09EEEF08F0,
    0xAECED09EEEFF008,0x9EBEC08EDEEEFF0,0xCEEEFF00B0A0908,0xBEDEEEF0A0908F0,0xBEDEEEF0A09F008,
    0xAECEDEE0908EFF0,0xBEDEEEF0AF00908,0xAECEDEE09EF08F0,0xAECEDEE09EFF008,0x9EBECED08EEEFF0,
    0xBEDEEEFF00A0908,0xAECEDEEEF0908F0,0xAECEDEEEF09F008,0x9EBECEDEE08EFF0,0xAECEDEEEFF00908,
    0x9EBECEDEEEF08F0,0x9EBECEDEEEFF008,0x8EAEBECEDEEEFF0,0xF00E0D0C0B0A0908,0xEF0D0C0B0A0908F0,
    0xEF0D0C0B0A09F008,0xEE0C0B0A0908EFF0,0xEF0D0C0B0AF00908,0xEE0C0B0A09EF08F0,0xEE0C0B0A09EFF008,
    0xED0B0A0908EEEFF0,0xEF0D0C0BF00A0908,0xEE0C0B0AEF0908F0,0xEE0C0B0AEF09F008,0xED0B0A09EE08EFF0,
    0xEE0C0B0AEFF00908,0xED0B0A09EEEF08F0,0xED0B0A09EEEFF008,0xEC0A0908EDEEEFF0,0xEF0D0CF00B0A0908,
    0xEE0C0BEF0A0908F0,0xEE0C0BEF0A09F008,0xED0B0AEE0908EFF0,0xEE0C0BEF0AF00908,0xED0B0AEE09EF08F0,
    0xED0B0AEE09EFF008,0xEC0A09ED08EEEFF0,0xEE0C0BEFF00A0908,0xED0B0AEEEF0908F0,0xED0B0AEEEF09F008,
    0xEC0A09EDEE08EFF0,0xED0B0AEEEFF00908,0xEC0A09EDEEEF08F0,0xEC0A09EDEEEFF008,0xEB0908ECEDEEEFF0,
    0xEF0DF00C0B0A0908,0xEE0CEF0B0A0908F0,0xEE0CEF0B0A09F008,0xED0BEE0A0908EFF0,0xEE0CEF0B0AF00908,
    0xED0BEE0A09EF08F0,0xED0BEE0A09EFF008,0xEC0AED0908EEEFF0,0xEE0CEF0BF00A0908,0xED0BEE0AEF0908F0,
    0xED0BEE0AEF09F008,0xEC0AED09EE08EFF0,0xED0BEE0AEFF00908,0xEC0AED09EEEF08F0,0xEC0AED09EEEFF008,
    0xEB09EC08EDEEEFF0,0xEE0CEFF00B0A0908,0xED0BEEEF0A0908F0,0xED0BEEEF0A09F008,0xEC0AEDEE0908EFF0,
    0xED0BEEEF0AF00908,0xEC0AEDEE09EF08F0,0xEC0AEDEE09EFF008,0xEB09ECED08EEEFF0,0xED0BEEEFF00A0908,
    0xEC0AEDEEEF0908F0,0xEC0AEDEEEF09F008,0xEB09ECEDEE08EFF0,0xEC0AEDEEEFF00908,0xEB09ECEDEEEF08F0,
    0xEB09ECEDEEEFF008,0xEA08EBECEDEEEFF0,0xEFF00D0C0B0A0908,0xEEEF0C0B0A0908F0,0xEEEF0C0B0A09F008,
    0xEDEE0B0A0908EFF0,0xEEEF0C0B0AF00908,0xEDEE0B0A09EF08F0,0xEDEE0B0A09EFF008,0xECED0A0908EEEFF0,
    0xEEEF0C0BF00A0908,0xEDEE0B0AEF0908F0,0xEDEE0B0AEF09F008,0xECED0A09EE08EFF0,0xEDEE0B0AEFF00908,
    0xECED0A09EEEF08F0,0xECED0A09EEEFF008,0xEBEC0908EDEEEFF0,0xEEEF0CF00B0A0908,0xEDEE0BEF0A0908F0,
    0xEDEE0BEF0A09F008,0xECED0AEE0908EFF0,0xEDEE0BEF0AF00908,0xECED0AEE09EF08F0,0xECED0AEE09EFF008,
    0xEBEC09ED08EEEFF0,0xEDEE0BEFF00A0908,0xECED0AEEEF0908F0,0xECED0AEEEF09F008,0xEBEC09EDEE08EFF0,
    0xECED0AEEEFF00908,0xEBEC09EDEEEF08F0,0xEBEC09EDEEEFF008,0xEAEB08ECEDEEEFF0,0xEEEFF00C0B0A0908,
    0xEDEEEF0B0A0908F0,0xEDEEEF0B0A09F008,0xECEDEE0A0908EFF0,0xEDEEEF0B0AF00908,0xECEDEE0A09EF08F0,
    0xECEDEE0A09EFF008,0xEBECED0908EEEFF0,0xEDEEEF0BF00A0908,0xECEDEE0AEF0908F0,0xECEDEE0AEF09F008,
    0xEBECED09EE08EFF0,0xECEDEE0AEFF00908,0xEBECED09EEEF08F0,0xEBECED09EEEFF008,0xEAEBEC08EDEEEFF0,
    0xEDEEEFF00B0A0908,0xECEDEEEF0A0908F0,0xECEDEEEF0A09F008,0xEBECEDEE0908EFF0,0xECEDEEEF0AF00908,
    0xEBECEDEE09EF08F0,0xEBECEDEE09EFF008,0xEAEBECED08EEEFF0,0xECEDEEEFF00A0908,0xEBECEDEEEF0908F0,
    0xEBECEDEEEF09F008,0xEAEBECEDEE08EFF0,0xEBECEDEEEFF00908,0xEAEBECEDEEEF08F0,0xEAEBECEDEEEFF008,
    0xE9EAEBECEDEEEFF0};
#endif

#if LMC__X86
/* From 8 - n on, n <= 8: a shuffle that moves a vector's first bytes up behind n zeros. */
static const uint8_t lmc__behind[24] =
    {128,128,128,128,128,128,128,128,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15};
static const uint8_t lmc__count_up[64] =
    {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,
    35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63};

/* Places in two vectors, one behind the other: of their even bytes, of their odd bytes; of the
 * lower halves' bytes in turn, of the upper halves' bytes in turn. */
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

/* CRC-32C (crc32c.h says how they are used): polynomials over GF(2) modulo the CRC's, whose x^32
 * is left out. Bit 31 is the coefficient of x^0. */
#define LMC__CRC_POLYNOMIAL 0x82F63B78u

/* [k][b]: the register after byte b and k zero bytes, from register 0; that is b times x^(8 (k +
 * 1)). */
static const uint32_t lmc__crc_table[8][256] =
    {{0,0xF26B8303,0xE13B70F7,0x1350F3F4,0xC79A971F,0x35F1141C,0x26A1E7E8,0xD4CA64EB,0x8AD958CF,
    0x78B2DBCC,0x6BE22838,0x9989AB3B,0x4D43CFD0,0xBF284CD3,0xAC78BF27,0x5E133C24,0x105EC76F,
    0xE235446C,0xF165B798,0x30E349B,0xD7C45070,0x25AFD373,0x36FF2087,0xC494A384,0x9A879FA0,
    0x68EC1CA3,0x7BBCEF57,0x89D76C54,0x5D1D08BF,0xAF768BBC,0xBC267848,0x4E4DFB4B,0x20BD8EDE,
    0xD2D60DDD,0xC186FE29,0x33ED7D2A,0xE72719C1,0x154C9AC2,0x61C6936,0xF477EA35,0xAA64D611,
    0x580F5512,0x4B5FA6E6,0xB93425E5,0x6DFE410E,0x9F95C20D,0x8CC531F9,0x7EAEB2FA,0x30E349B1,
    0xC288CAB2,0xD1D83946,0x23B3BA45,0xF779DEAE,0x5125DAD,0x1642AE59,0xE4292D5A,0xBA3A117E,
    0x4851927D,0x5B016189,0xA96AE28A,0x7DA08661,0x8FCB0562,0x9C9BF696,0x6EF07595,0x417B1DBC,
    0xB3109EBF,0xA0406D4B,0x522BEE48,0x86E18AA3,0x748A09A0,0x67DAFA54,0x95B17957,0xCBA24573,
    0x39C9C670,0x2A993584,0xD8F2B687,0xC38D26C,0xFE53516F,0xED03A29B,0x1F682198,0x5125DAD3,
    0xA34E59D0,0xB01EAA24,0x42752927,0x96BF4DCC,0x64D4CECF,0x77843D3B,0x85EFBE38,0xDBFC821C,
    0x2997011F,0x3AC7F2EB,0xC8AC71E8,0x1C661503,0xEE0D9600,0xFD5D65F4,0xF36E6F7,0x61C69362,
    0x93AD1061,0x80FDE395,0x72966096,0xA65C047D,0x5437877E,0x4767748A,0xB50CF789,0xEB1FCBAD,
    0x197448AE,0xA24BB5A,0xF84F3859,0x2C855CB2,0xDEEEDFB1,0xCDBE2C45,0x3FD5AF46,0x7198540D,
    0x83F3D70E,0x90A324FA,0x62C8A7F9,0xB602C312,0x44694011,0x5739B3E5,0xA55230E6,0xFB410CC2,
    0x92A8FC1,0x1A7A7C35,0xE811FF36,0x3CDB9BDD,0xCEB018DE,0xDDE0EB2A,0x2F8B6829,0x82F63B78,
    0x709DB87B,0x63CD4B8F,0x91A6C88C,0x456CAC67,0xB7072F64,0xA457DC90,0x563C5F93,0x82F63B7,
    0xFA44E0B4,0xE9141340,0x1B7F9043,0xCFB5F4A8,0x3DDE77AB,0x2E8E845F,0xDCE5075C,0x92A8FC17,
    0x60C37F14,0x73938CE0,0x81F80FE3,0x55326B08,0xA759E80B,0xB4091BFF,0x466298FC,0x1871A4D8,
    0xEA1A27DB,0xF94AD42F,0xB21572C,0xDFEB33C7,0x2D80B0C4,0x3ED04330,0xCCBBC033,0xA24BB5A6,
    0x502036A5,0x4370C551,0xB11B4652,0x65D122B9,0x97BAA1BA,0x84EA524E,0x7681D14D,0x2892ED69,
    0xDAF96E6A,0xC9A99D9E,0x3BC21E9D,0xEF087A76,0x1D63F975,0xE330A81,0xFC588982,0xB21572C9,
    0x407EF1CA,0x532E023E,0xA145813D,0x758FE5D6,0x87E466D5,0x94B49521,0x66DF1622,0x38CC2A06,
    0xCAA7A905,0xD9F75AF1,0x2B9CD9F2,0xFF56BD19,0xD3D3E1A,0x1E6DCDEE,0xEC064EED,0xC38D26C4,
    0x31E6A5C7,0x22B65633,0xD0DDD530,0x417B1DB,0xF67C32D8,0xE52CC12C,0x1747422F,0x49547E0B,
    0xBB3FFD08,0xA86F0EFC,0x5A048DFF,0x8ECEE914,0x7CA56A17,0x6FF599E3,0x9D9E1AE0,0xD3D3E1AB,
    0x21B862A8,0x32E8915C,0xC083125F,0x144976B4,0xE622F5B7,0xF5720643,0x7198540,0x590AB964,
    0xAB613A67,0xB831C993,0x4A5A4A90,0x9E902E7B,0x6CFBAD78,0x7FAB5E8C,0x8DC0DD8F,0xE330A81A,
    0x115B2B19,0x20BD8ED,0xF0605BEE,0x24AA3F05,0xD6C1BC06,0xC5914FF2,0x37FACCF1,0x69E9F0D5,
    0x9B8273D6,0x88D28022,0x7AB90321,0xAE7367CA,0x5C18E4C9,0x4F48173D,0xBD23943E,0xF36E6F75,
    0x105EC76,0x12551F82,0xE03E9C81,0x34F4F86A,0xC69F7B69,0xD5CF889D,0x27A40B9E,0x79B737BA,
    0x8BDCB4B9,0x988C474D,0x6AE7C44E,0xBE2DA0A5,0x4C4623A6,0x5F16D052,0xAD7D5351},{0,0x13A29877,
    0x274530EE,0x34E7A899,0x4E8A61DC,0x5D28F9AB,0x69CF5132,0x7A6DC945,0x9D14C3B8,0x8EB65BCF,
    0xBA51F356,0xA9F36B21,0xD39EA264,0xC03C3A13,0xF4DB928A,0xE7790AFD,0x3FC5F181,0x2C6769F6,
    0x1880C16F,0xB225918,0x714F905D,0x62ED082A,0x560AA0B3,0x45A838C4,0xA2D13239,0xB173AA4E,
    0x859402D7,0x96369AA0,0xEC5B53E5,0xFFF9CB92,0xCB1E630B,0xD8BCFB7C,0x7F8BE302,0x6C297B75,
    0x58CED3EC,0x4B6C4B9B,0x310182DE,0x22A31AA9,0x1644B230,0x5E62A47,0xE29F20BA,0xF13DB8CD,
    0xC5DA1054,0xD6788823,0xAC154166,0xBFB7D911,0x8B507188,0x98F2E9FF,0x404E1283,0x53EC8AF4,
    0x670B226D,0x74A9BA1A,0xEC4735F,0x1D66EB28,0x298143B1,0x3A23DBC6,0xDD5AD13B,0xCEF8494C,
    0xFA1FE1D5,0xE9BD79A2,0x93D0B0E7,0x80722890,0xB4958009,0xA737187E,0xFF17C604,0xECB55E73,
    0xD852F6EA,0xCBF06E9D,0xB19DA7D8,0xA23F3FAF,0x96D89736,0x857A0F41,0x620305BC,0x71A19DCB,
    0x45463552,0x56E4AD25,0x2C896460,0x3F2BFC17,0xBCC548E,0x186ECCF9,0xC0D23785,0xD370AFF2,
    0xE797076B,0xF4359F1C,0x8E585659,0x9DFACE2E,0xA91D66B7,0xBABFFEC0,0x5DC6F43D,0x4E646C4A,
    0x7A83C4D3,0x69215CA4,0x134C95E1,0xEE0D96,0x3409A50F,0x27AB3D78,0x809C2506,0x933EBD71,
    0xA7D915E8,0xB47B8D9F,0xCE1644DA,0xDDB4DCAD,0xE9537434,0xFAF1EC43,0x1D88E6BE,0xE2A7EC9,
    0x3ACDD650,0x296F4E27,0x53028762,0x40A01F15,0x7447B78C,0x67E52FFB,0xBF59D487,0xACFB4CF0,
    0x981CE469,0x8BBE7C1E,0xF1D3B55B,0xE2712D2C,0xD69685B5,0xC5341DC2,0x224D173F,0x31EF8F48,
    0x50827D1,0x16AABFA6,0x6CC776E3,0x7F65EE94,0x4B82460D,0x5820DE7A,0xFBC3FAF9,0xE861628E,
    0xDC86CA17,0xCF245260,0xB5499B25,0xA6EB0352,0x920CABCB,0x81AE33BC,0x66D73941,0x7575A136,
    0x419209AF,0x523091D8,0x285D589D,0x3BFFC0EA,0xF186873,0x1CBAF004,0xC4060B78,0xD7A4930F,
    0xE3433B96,0xF0E1A3E1,0x8A8C6AA4,0x992EF2D3,0xADC95A4A,0xBE6BC23D,0x5912C8C0,0x4AB050B7,
    0x7E57F82E,0x6DF56059,0x1798A91C,0x43A316B,0x30DD99F2,0x237F0185,0x844819FB,0x97EA818C,
    0xA30D2915,0xB0AFB162,0xCAC27827,0xD960E050,0xED8748C9,0xFE25D0BE,0x195CDA43,0xAFE4234,
    0x3E19EAAD,0x2DBB72DA,0x57D6BB9F,0x447423E8,0x70938B71,0x63311306,0xBB8DE87A,0xA82F700D,
    0x9CC8D894,0x8F6A40E3,0xF50789A6,0xE6A511D1,0xD242B948,0xC1E0213F,0x26992BC2,0x353BB3B5,
    0x1DC1B2C,0x127E835B,0x68134A1E,0x7BB1D269,0x4F567AF0,0x5CF4E287,0x4D43CFD,0x1776A48A,
    0x23910C13,0x30339464,0x4A5E5D21,0x59FCC556,0x6D1B6DCF,0x7EB9F5B8,0x99C0FF45,0x8A626732,
    0xBE85CFAB,0xAD2757DC,0xD74A9E99,0xC4E806EE,0xF00FAE77,0xE3AD3600,0x3B11CD7C,0x28B3550B,
    0x1C54FD92,0xFF665E5,0x759BACA0,0x663934D7,0x52DE9C4E,0x417C0439,0xA6050EC4,0xB5A796B3,
    0x81403E2A,0x92E2A65D,0xE88F6F18,0xFB2DF76F,0xCFCA5FF6,0xDC68C781,0x7B5FDFFF,0x68FD4788,
    0x5C1AEF11,0x4FB87766,0x35D5BE23,0x26772654,0x12908ECD,0x13216BA,0xE64B1C47,0xF5E98430,
    0xC10E2CA9,0xD2ACB4DE,0xA8C17D9B,0xBB63E5EC,0x8F844D75,0x9C26D502,0x449A2E7E,0x5738B609,
    0x63DF1E90,0x707D86E7,0xA104FA2,0x19B2D7D5,0x2D557F4C,0x3EF7E73B,0xD98EEDC6,0xCA2C75B1,
    0xFECBDD28,0xED69455F,0x97048C1A,0x84A6146D,0xB041BCF4,0xA3E32483},{0,0xA541927E,0x4F6F520D,
    0xEA2EC073,0x9EDEA41A,0x3B9F3664,0xD1B1F617,0x74F06469,0x38513EC5,0x9D10ACBB,0x773E6CC8,
    0xD27FFEB6,0xA68F9ADF,0x3CE08A1,0xE9E0C8D2,0x4CA15AAC,0x70A27D8A,0xD5E3EFF4,0x3FCD2F87,
    0x9A8CBDF9,0xEE7CD990,0x4B3D4BEE,0xA1138B9D,0x45219E3,0x48F3434F,0xEDB2D131,0x79C1142,
    0xA2DD833C,0xD62DE755,0x736C752B,0x9942B558,0x3C032726,0xE144FB14,0x4405696A,0xAE2BA919,
    0xB6A3B67,0x7F9A5F0E,0xDADBCD70,0x30F50D03,0x95B49F7D,0xD915C5D1,0x7C5457AF,0x967A97DC,
    0x333B05A2,0x47CB61CB,0xE28AF3B5,0x8A433C6,0xADE5A1B8,0x91E6869E,0x34A714E0,0xDE89D493,
    0x7BC846ED,0xF382284,0xAA79B0FA,0x40577089,0xE516E2F7,0xA9B7B85B,0xCF62A25,0xE6D8EA56,
    0x43997828,0x37691C41,0x92288E3F,0x78064E4C,0xDD47DC32,0xC76580D9,0x622412A7,0x880AD2D4,
    0x2D4B40AA,0x59BB24C3,0xFCFAB6BD,0x16D476CE,0xB395E4B0,0xFF34BE1C,0x5A752C62,0xB05BEC11,
    0x151A7E6F,0x61EA1A06,0xC4AB8878,0x2E85480B,0x8BC4DA75,0xB7C7FD53,0x12866F2D,0xF8A8AF5E,
    0x5DE93D20,0x29195949,0x8C58CB37,0x66760B44,0xC337993A,0x8F96C396,0x2AD751E8,0xC0F9919B,
    0x65B803E5,0x1148678C,0xB409F5F2,0x5E273581,0xFB66A7FF,0x26217BCD,0x8360E9B3,0x694E29C0,
    0xCC0FBBBE,0xB8FFDFD7,0x1DBE4DA9,0xF7908DDA,0x52D11FA4,0x1E704508,0xBB31D776,0x511F1705,
    0xF45E857B,0x80AEE112,0x25EF736C,0xCFC1B31F,0x6A802161,0x56830647,0xF3C29439,0x19EC544A,
    0xBCADC634,0xC85DA25D,0x6D1C3023,0x8732F050,0x2273622E,0x6ED23882,0xCB93AAFC,0x21BD6A8F,
    0x84FCF8F1,0xF00C9C98,0x554D0EE6,0xBF63CE95,0x1A225CEB,0x8B277743,0x2E66E53D,0xC448254E,
    0x6109B730,0x15F9D359,0xB0B84127,0x5A968154,0xFFD7132A,0xB3764986,0x1637DBF8,0xFC191B8B,
    0x595889F5,0x2DA8ED9C,0x88E97FE2,0x62C7BF91,0xC7862DEF,0xFB850AC9,0x5EC498B7,0xB4EA58C4,
    0x11ABCABA,0x655BAED3,0xC01A3CAD,0x2A34FCDE,0x8F756EA0,0xC3D4340C,0x6695A672,0x8CBB6601,
    0x29FAF47F,0x5D0A9016,0xF84B0268,0x1265C21B,0xB7245065,0x6A638C57,0xCF221E29,0x250CDE5A,
    0x804D4C24,0xF4BD284D,0x51FCBA33,0xBBD27A40,0x1E93E83E,0x5232B292,0xF77320EC,0x1D5DE09F,
    0xB81C72E1,0xCCEC1688,0x69AD84F6,0x83834485,0x26C2D6FB,0x1AC1F1DD,0xBF8063A3,0x55AEA3D0,
    0xF0EF31AE,0x841F55C7,0x215EC7B9,0xCB7007CA,0x6E3195B4,0x2290CF18,0x87D15D66,0x6DFF9D15,
    0xC8BE0F6B,0xBC4E6B02,0x190FF97C,0xF321390F,0x5660AB71,0x4C42F79A,0xE90365E4,0x32DA597,
    0xA66C37E9,0xD29C5380,0x77DDC1FE,0x9DF3018D,0x38B293F3,0x7413C95F,0xD1525B21,0x3B7C9B52,
    0x9E3D092C,0xEACD6D45,0x4F8CFF3B,0xA5A23F48,0xE3AD36,0x3CE08A10,0x99A1186E,0x738FD81D,
    0xD6CE4A63,0xA23E2E0A,0x77FBC74,0xED517C07,0x4810EE79,0x4B1B4D5,0xA1F026AB,0x4BDEE6D8,
    0xEE9F74A6,0x9A6F10CF,0x3F2E82B1,0xD50042C2,0x7041D0BC,0xAD060C8E,0x8479EF0,0xE2695E83,
    0x4728CCFD,0x33D8A894,0x96993AEA,0x7CB7FA99,0xD9F668E7,0x9557324B,0x3016A035,0xDA386046,
    0x7F79F238,0xB899651,0xAEC8042F,0x44E6C45C,0xE1A75622,0xDDA47104,0x78E5E37A,0x92CB2309,
    0x378AB177,0x437AD51E,0xE63B4760,0xC158713,0xA954156D,0xE5F54FC1,0x40B4DDBF,0xAA9A1DCC,
    0xFDB8FB2,0x7B2BEBDB,0xDE6A79A5,0x3444B9D6,0x91052BA8},{0,0xDD45AAB8,0xBF672381,0x62228939,
    0x7B2231F3,0xA6679B4B,0xC4451272,0x1900B8CA,0xF64463E6,0x2B01C95E,0x49234067,0x9466EADF,
    0x8D665215,0x5023F8AD,0x32017194,0xEF44DB2C,0xE964B13D,0x34211B85,0x560392BC,0x8B463804,
    0x924680CE,0x4F032A76,0x2D21A34F,0xF06409F7,0x1F20D2DB,0xC2657863,0xA047F15A,0x7D025BE2,
    0x6402E328,0xB9474990,0xDB65C0A9,0x6206A11,0xD725148B,0xA60BE33,0x6842370A,0xB5079DB2,
    0xAC072578,0x71428FC0,0x136006F9,0xCE25AC41,0x2161776D,0xFC24DDD5,0x9E0654EC,0x4343FE54,
    0x5A43469E,0x8706EC26,0xE524651F,0x3861CFA7,0x3E41A5B6,0xE3040F0E,0x81268637,0x5C632C8F,
    0x45639445,0x98263EFD,0xFA04B7C4,0x27411D7C,0xC805C650,0x15406CE8,0x7762E5D1,0xAA274F69,
    0xB327F7A3,0x6E625D1B,0xC40D422,0xD1057E9A,0xABA65FE7,0x76E3F55F,0x14C17C66,0xC984D6DE,
    0xD0846E14,0xDC1C4AC,0x6FE34D95,0xB2A6E72D,0x5DE23C01,0x80A796B9,0xE2851F80,0x3FC0B538,
    0x26C00DF2,0xFB85A74A,0x99A72E73,0x44E284CB,0x42C2EEDA,0x9F874462,0xFDA5CD5B,0x20E067E3,
    0x39E0DF29,0xE4A57591,0x8687FCA8,0x5BC25610,0xB4868D3C,0x69C32784,0xBE1AEBD,0xD6A40405,
    0xCFA4BCCF,0x12E11677,0x70C39F4E,0xAD8635F6,0x7C834B6C,0xA1C6E1D4,0xC3E468ED,0x1EA1C255,
    0x7A17A9F,0xDAE4D027,0xB8C6591E,0x6583F3A6,0x8AC7288A,0x57828232,0x35A00B0B,0xE8E5A1B3,
    0xF1E51979,0x2CA0B3C1,0x4E823AF8,0x93C79040,0x95E7FA51,0x48A250E9,0x2A80D9D0,0xF7C57368,
    0xEEC5CBA2,0x3380611A,0x51A2E823,0x8CE7429B,0x63A399B7,0xBEE6330F,0xDCC4BA36,0x181108E,
    0x1881A844,0xC5C402FC,0xA7E68BC5,0x7AA3217D,0x52A0C93F,0x8FE56387,0xEDC7EABE,0x30824006,
    0x2982F8CC,0xF4C75274,0x96E5DB4D,0x4BA071F5,0xA4E4AAD9,0x79A10061,0x1B838958,0xC6C623E0,
    0xDFC69B2A,0x2833192,0x60A1B8AB,0xBDE41213,0xBBC47802,0x6681D2BA,0x4A35B83,0xD9E6F13B,
    0xC0E649F1,0x1DA3E349,0x7F816A70,0xA2C4C0C8,0x4D801BE4,0x90C5B15C,0xF2E73865,0x2FA292DD,
    0x36A22A17,0xEBE780AF,0x89C50996,0x5480A32E,0x8585DDB4,0x58C0770C,0x3AE2FE35,0xE7A7548D,
    0xFEA7EC47,0x23E246FF,0x41C0CFC6,0x9C85657E,0x73C1BE52,0xAE8414EA,0xCCA69DD3,0x11E3376B,
    0x8E38FA1,0xD5A62519,0xB784AC20,0x6AC10698,0x6CE16C89,0xB1A4C631,0xD3864F08,0xEC3E5B0,
    0x17C35D7A,0xCA86F7C2,0xA8A47EFB,0x75E1D443,0x9AA50F6F,0x47E0A5D7,0x25C22CEE,0xF8878656,
    0xE1873E9C,0x3CC29424,0x5EE01D1D,0x83A5B7A5,0xF90696D8,0x24433C60,0x4661B559,0x9B241FE1,
    0x8224A72B,0x5F610D93,0x3D4384AA,0xE0062E12,0xF42F53E,0xD2075F86,0xB025D6BF,0x6D607C07,
    0x7460C4CD,0xA9256E75,0xCB07E74C,0x16424DF4,0x106227E5,0xCD278D5D,0xAF050464,0x7240AEDC,
    0x6B401616,0xB605BCAE,0xD4273597,0x9629F2F,0xE6264403,0x3B63EEBB,0x59416782,0x8404CD3A,
    0x9D0475F0,0x4041DF48,0x22635671,0xFF26FCC9,0x2E238253,0xF36628EB,0x9144A1D2,0x4C010B6A,
    0x5501B3A0,0x88441918,0xEA669021,0x37233A99,0xD867E1B5,0x5224B0D,0x6700C234,0xBA45688C,
    0xA345D046,0x7E007AFE,0x1C22F3C7,0xC167597F,0xC747336E,0x1A0299D6,0x782010EF,0xA565BA57,
    0xBC65029D,0x6120A825,0x302211C,0xDE478BA4,0x31035088,0xEC46FA30,0x8E647309,0x5321D9B1,
    0x4A21617B,0x9764CBC3,0xF54642FA,0x2803E842},{0,0x38116FAC,0x7022DF58,0x4833B0F4,0xE045BEB0,
    0xD854D11C,0x906761E8,0xA8760E44,0xC5670B91,0xFD76643D,0xB545D4C9,0x8D54BB65,0x2522B521,
    0x1D33DA8D,0x55006A79,0x6D1105D5,0x8F2261D3,0xB7330E7F,0xFF00BE8B,0xC711D127,0x6F67DF63,
    0x5776B0CF,0x1F45003B,0x27546F97,0x4A456A42,0x725405EE,0x3A67B51A,0x276DAB6,0xAA00D4F2,
    0x9211BB5E,0xDA220BAA,0xE2336406,0x1BA8B557,0x23B9DAFB,0x6B8A6A0F,0x539B05A3,0xFBED0BE7,
    0xC3FC644B,0x8BCFD4BF,0xB3DEBB13,0xDECFBEC6,0xE6DED16A,0xAEED619E,0x96FC0E32,0x3E8A0076,
    0x69B6FDA,0x4EA8DF2E,0x76B9B082,0x948AD484,0xAC9BBB28,0xE4A80BDC,0xDCB96470,0x74CF6A34,
    0x4CDE0598,0x4EDB56C,0x3CFCDAC0,0x51EDDF15,0x69FCB0B9,0x21CF004D,0x19DE6FE1,0xB1A861A5,
    0x89B90E09,0xC18ABEFD,0xF99BD151,0x37516AAE,0xF400502,0x4773B5F6,0x7F62DA5A,0xD714D41E,
    0xEF05BBB2,0xA7360B46,0x9F2764EA,0xF236613F,0xCA270E93,0x8214BE67,0xBA05D1CB,0x1273DF8F,
    0x2A62B023,0x625100D7,0x5A406F7B,0xB8730B7D,0x806264D1,0xC851D425,0xF040BB89,0x5836B5CD,
    0x6027DA61,0x28146A95,0x10050539,0x7D1400EC,0x45056F40,0xD36DFB4,0x3527B018,0x9D51BE5C,
    0xA540D1F0,0xED736104,0xD5620EA8,0x2CF9DFF9,0x14E8B055,0x5CDB00A1,0x64CA6F0D,0xCCBC6149,
    0xF4AD0EE5,0xBC9EBE11,0x848FD1BD,0xE99ED468,0xD18FBBC4,0x99BC0B30,0xA1AD649C,0x9DB6AD8,
    0x31CA0574,0x79F9B580,0x41E8DA2C,0xA3DBBE2A,0x9BCAD186,0xD3F96172,0xEBE80EDE,0x439E009A,
    0x7B8F6F36,0x33BCDFC2,0xBADB06E,0x66BCB5BB,0x5EADDA17,0x169E6AE3,0x2E8F054F,0x86F90B0B,
    0xBEE864A7,0xF6DBD453,0xCECABBFF,0x6EA2D55C,0x56B3BAF0,0x1E800A04,0x269165A8,0x8EE76BEC,
    0xB6F60440,0xFEC5B4B4,0xC6D4DB18,0xABC5DECD,0x93D4B161,0xDBE70195,0xE3F66E39,0x4B80607D,
    0x73910FD1,0x3BA2BF25,0x3B3D089,0xE180B48F,0xD991DB23,0x91A26BD7,0xA9B3047B,0x1C50A3F,
    0x39D46593,0x71E7D567,0x49F6BACB,0x24E7BF1E,0x1CF6D0B2,0x54C56046,0x6CD40FEA,0xC4A201AE,
    0xFCB36E02,0xB480DEF6,0x8C91B15A,0x750A600B,0x4D1B0FA7,0x528BF53,0x3D39D0FF,0x954FDEBB,
    0xAD5EB117,0xE56D01E3,0xDD7C6E4F,0xB06D6B9A,0x887C0436,0xC04FB4C2,0xF85EDB6E,0x5028D52A,
    0x6839BA86,0x200A0A72,0x181B65DE,0xFA2801D8,0xC2396E74,0x8A0ADE80,0xB21BB12C,0x1A6DBF68,
    0x227CD0C4,0x6A4F6030,0x525E0F9C,0x3F4F0A49,0x75E65E5,0x4F6DD511,0x777CBABD,0xDF0AB4F9,
    0xE71BDB55,0xAF286BA1,0x9739040D,0x59F3BFF2,0x61E2D05E,0x29D160AA,0x11C00F06,0xB9B60142,
    0x81A76EEE,0xC994DE1A,0xF185B1B6,0x9C94B463,0xA485DBCF,0xECB66B3B,0xD4A70497,0x7CD10AD3,
    0x44C0657F,0xCF3D58B,0x34E2BA27,0xD6D1DE21,0xEEC0B18D,0xA6F30179,0x9EE26ED5,0x36946091,
    0xE850F3D,0x46B6BFC9,0x7EA7D065,0x13B6D5B0,0x2BA7BA1C,0x63940AE8,0x5B856544,0xF3F36B00,
    0xCBE204AC,0x83D1B458,0xBBC0DBF4,0x425B0AA5,0x7A4A6509,0x3279D5FD,0xA68BA51,0xA21EB415,
    0x9A0FDBB9,0xD23C6B4D,0xEA2D04E1,0x873C0134,0xBF2D6E98,0xF71EDE6C,0xCF0FB1C0,0x6779BF84,
    0x5F68D028,0x175B60DC,0x2F4A0F70,0xCD796B76,0xF56804DA,0xBD5BB42E,0x854ADB82,0x2D3CD5C6,
    0x152DBA6A,0x5D1E0A9E,0x650F6532,0x81E60E7,0x300F0F4B,0x783CBFBF,0x402DD013,0xE85BDE57,
    0xD04AB1FB,0x9879010F,0xA0686EA3},{0,0xEF306B19,0xDB8CA0C3,0x34BCCBDA,0xB2F53777,0x5DC55C6E,
    0x697997B4,0x8649FCAD,0x6006181F,0x8F367306,0xBB8AB8DC,0x54BAD3C5,0xD2F32F68,0x3DC34471,
    0x97F8FAB,0xE64FE4B2,0xC00C303E,0x2F3C5B27,0x1B8090FD,0xF4B0FBE4,0x72F90749,0x9DC96C50,
    0xA975A78A,0x4645CC93,0xA00A2821,0x4F3A4338,0x7B8688E2,0x94B6E3FB,0x12FF1F56,0xFDCF744F,
    0xC973BF95,0x2643D48C,0x85F4168D,0x6AC47D94,0x5E78B64E,0xB148DD57,0x370121FA,0xD8314AE3,
    0xEC8D8139,0x3BDEA20,0xE5F20E92,0xAC2658B,0x3E7EAE51,0xD14EC548,0x570739E5,0xB83752FC,
    0x8C8B9926,0x63BBF23F,0x45F826B3,0xAAC84DAA,0x9E748670,0x7144ED69,0xF70D11C4,0x183D7ADD,
    0x2C81B107,0xC3B1DA1E,0x25FE3EAC,0xCACE55B5,0xFE729E6F,0x1142F576,0x970B09DB,0x783B62C2,
    0x4C87A918,0xA3B7C201,0xE045BEB,0xE13430F2,0xD588FB28,0x3AB89031,0xBCF16C9C,0x53C10785,
    0x677DCC5F,0x884DA746,0x6E0243F4,0x813228ED,0xB58EE337,0x5ABE882E,0xDCF77483,0x33C71F9A,
    0x77BD440,0xE84BBF59,0xCE086BD5,0x213800CC,0x1584CB16,0xFAB4A00F,0x7CFD5CA2,0x93CD37BB,
    0xA771FC61,0x48419778,0xAE0E73CA,0x413E18D3,0x7582D309,0x9AB2B810,0x1CFB44BD,0xF3CB2FA4,
    0xC777E47E,0x28478F67,0x8BF04D66,0x64C0267F,0x507CEDA5,0xBF4C86BC,0x39057A11,0xD6351108,
    0xE289DAD2,0xDB9B1CB,0xEBF65579,0x4C63E60,0x307AF5BA,0xDF4A9EA3,0x5903620E,0xB6330917,
    0x828FC2CD,0x6DBFA9D4,0x4BFC7D58,0xA4CC1641,0x9070DD9B,0x7F40B682,0xF9094A2F,0x16392136,
    0x2285EAEC,0xCDB581F5,0x2BFA6547,0xC4CA0E5E,0xF076C584,0x1F46AE9D,0x990F5230,0x763F3929,
    0x4283F2F3,0xADB399EA,0x1C08B7D6,0xF338DCCF,0xC7841715,0x28B47C0C,0xAEFD80A1,0x41CDEBB8,
    0x75712062,0x9A414B7B,0x7C0EAFC9,0x933EC4D0,0xA7820F0A,0x48B26413,0xCEFB98BE,0x21CBF3A7,
    0x1577387D,0xFA475364,0xDC0487E8,0x3334ECF1,0x788272B,0xE8B84C32,0x6EF1B09F,0x81C1DB86,
    0xB57D105C,0x5A4D7B45,0xBC029FF7,0x5332F4EE,0x678E3F34,0x88BE542D,0xEF7A880,0xE1C7C399,
    0xD57B0843,0x3A4B635A,0x99FCA15B,0x76CCCA42,0x42700198,0xAD406A81,0x2B09962C,0xC439FD35,
    0xF08536EF,0x1FB55DF6,0xF9FAB944,0x16CAD25D,0x22761987,0xCD46729E,0x4B0F8E33,0xA43FE52A,
    0x90832EF0,0x7FB345E9,0x59F09165,0xB6C0FA7C,0x827C31A6,0x6D4C5ABF,0xEB05A612,0x435CD0B,
    0x308906D1,0xDFB96DC8,0x39F6897A,0xD6C6E263,0xE27A29B9,0xD4A42A0,0x8B03BE0D,0x6433D514,
    0x508F1ECE,0xBFBF75D7,0x120CEC3D,0xFD3C8724,0xC9804CFE,0x26B027E7,0xA0F9DB4A,0x4FC9B053,
    0x7B757B89,0x94451090,0x720AF422,0x9D3A9F3B,0xA98654E1,0x46B63FF8,0xC0FFC355,0x2FCFA84C,
    0x1B736396,0xF443088F,0xD200DC03,0x3D30B71A,0x98C7CC0,0xE6BC17D9,0x60F5EB74,0x8FC5806D,
    0xBB794BB7,0x544920AE,0xB206C41C,0x5D36AF05,0x698A64DF,0x86BA0FC6,0xF3F36B,0xEFC39872,
    0xDB7F53A8,0x344F38B1,0x97F8FAB0,0x78C891A9,0x4C745A73,0xA344316A,0x250DCDC7,0xCA3DA6DE,
    0xFE816D04,0x11B1061D,0xF7FEE2AF,0x18CE89B6,0x2C72426C,0xC3422975,0x450BD5D8,0xAA3BBEC1,
    0x9E87751B,0x71B71E02,0x57F4CA8E,0xB8C4A197,0x8C786A4D,0x63480154,0xE501FDF9,0xA3196E0,
    0x3E8D5D3A,0xD1BD3623,0x37F2D291,0xD8C2B988,0xEC7E7252,0x34E194B,0x8507E5E6,0x6A378EFF,
    0x5E8B4525,0xB1BB2E3C},{0,0x68032CC8,0xD0065990,0xB8057558,0xA5E0C5D1,0xCDE3E919,0x75E69C41,
    0x1DE5B089,0x4E2DFD53,0x262ED19B,0x9E2BA4C3,0xF628880B,0xEBCD3882,0x83CE144A,0x3BCB6112,
    0x53C84DDA,0x9C5BFAA6,0xF458D66E,0x4C5DA336,0x245E8FFE,0x39BB3F77,0x51B813BF,0xE9BD66E7,
    0x81BE4A2F,0xD27607F5,0xBA752B3D,0x2705E65,0x6A7372AD,0x7796C224,0x1F95EEEC,0xA7909BB4,
    0xCF93B77C,0x3D5B83BD,0x5558AF75,0xED5DDA2D,0x855EF6E5,0x98BB466C,0xF0B86AA4,0x48BD1FFC,
    0x20BE3334,0x73767EEE,0x1B755226,0xA370277E,0xCB730BB6,0xD696BB3F,0xBE9597F7,0x690E2AF,
    0x6E93CE67,0xA100791B,0xC90355D3,0x7106208B,0x19050C43,0x4E0BCCA,0x6CE39002,0xD4E6E55A,
    0xBCE5C992,0xEF2D8448,0x872EA880,0x3F2BDDD8,0x5728F110,0x4ACD4199,0x22CE6D51,0x9ACB1809,
    0xF2C834C1,0x7AB7077A,0x12B42BB2,0xAAB15EEA,0xC2B27222,0xDF57C2AB,0xB754EE63,0xF519B3B,
    0x6752B7F3,0x349AFA29,0x5C99D6E1,0xE49CA3B9,0x8C9F8F71,0x917A3FF8,0xF9791330,0x417C6668,
    0x297F4AA0,0xE6ECFDDC,0x8EEFD114,0x36EAA44C,0x5EE98884,0x430C380D,0x2B0F14C5,0x930A619D,
    0xFB094D55,0xA8C1008F,0xC0C22C47,0x78C7591F,0x10C475D7,0xD21C55E,0x6522E996,0xDD279CCE,
    0xB524B006,0x47EC84C7,0x2FEFA80F,0x97EADD57,0xFFE9F19F,0xE20C4116,0x8A0F6DDE,0x320A1886,
    0x5A09344E,0x9C17994,0x61C2555C,0xD9C72004,0xB1C40CCC,0xAC21BC45,0xC422908D,0x7C27E5D5,
    0x1424C91D,0xDBB77E61,0xB3B452A9,0xBB127F1,0x63B20B39,0x7E57BBB0,0x16549778,0xAE51E220,
    0xC652CEE8,0x959A8332,0xFD99AFFA,0x459CDAA2,0x2D9FF66A,0x307A46E3,0x58796A2B,0xE07C1F73,
    0x887F33BB,0xF56E0EF4,0x9D6D223C,0x25685764,0x4D6B7BAC,0x508ECB25,0x388DE7ED,0x808892B5,
    0xE88BBE7D,0xBB43F3A7,0xD340DF6F,0x6B45AA37,0x34686FF,0x1EA33676,0x76A01ABE,0xCEA56FE6,
    0xA6A6432E,0x6935F452,0x136D89A,0xB933ADC2,0xD130810A,0xCCD53183,0xA4D61D4B,0x1CD36813,
    0x74D044DB,0x27180901,0x4F1B25C9,0xF71E5091,0x9F1D7C59,0x82F8CCD0,0xEAFBE018,0x52FE9540,
    0x3AFDB988,0xC8358D49,0xA036A181,0x1833D4D9,0x7030F811,0x6DD54898,0x5D66450,0xBDD31108,
    0xD5D03DC0,0x8618701A,0xEE1B5CD2,0x561E298A,0x3E1D0542,0x23F8B5CB,0x4BFB9903,0xF3FEEC5B,
    0x9BFDC093,0x546E77EF,0x3C6D5B27,0x84682E7F,0xEC6B02B7,0xF18EB23E,0x998D9EF6,0x2188EBAE,
    0x498BC766,0x1A438ABC,0x7240A674,0xCA45D32C,0xA246FFE4,0xBFA34F6D,0xD7A063A5,0x6FA516FD,
    0x7A63A35,0x8FD9098E,0xE7DA2546,0x5FDF501E,0x37DC7CD6,0x2A39CC5F,0x423AE097,0xFA3F95CF,
    0x923CB907,0xC1F4F4DD,0xA9F7D815,0x11F2AD4D,0x79F18185,0x6414310C,0xC171DC4,0xB412689C,
    0xDC114454,0x1382F328,0x7B81DFE0,0xC384AAB8,0xAB878670,0xB66236F9,0xDE611A31,0x66646F69,
    0xE6743A1,0x5DAF0E7B,0x35AC22B3,0x8DA957EB,0xE5AA7B23,0xF84FCBAA,0x904CE762,0x2849923A,
    0x404ABEF2,0xB2828A33,0xDA81A6FB,0x6284D3A3,0xA87FF6B,0x17624FE2,0x7F61632A,0xC7641672,
    0xAF673ABA,0xFCAF7760,0x94AC5BA8,0x2CA92EF0,0x44AA0238,0x594FB2B1,0x314C9E79,0x8949EB21,
    0xE14AC7E9,0x2ED97095,0x46DA5C5D,0xFEDF2905,0x96DC05CD,0x8B39B544,0xE33A998C,0x5B3FECD4,
    0x333CC01C,0x60F48DC6,0x8F7A10E,0xB0F2D456,0xD8F1F89E,0xC5144817,0xAD1764DF,0x15121187,
    0x7D113D4F},{0,0x493C7D27,0x9278FA4E,0xDB448769,0x211D826D,0x6821FF4A,0xB3657823,0xFA590504,
    0x423B04DA,0xB0779FD,0xD043FE94,0x997F83B3,0x632686B7,0x2A1AFB90,0xF15E7CF9,0xB86201DE,
    0x847609B4,0xCD4A7493,0x160EF3FA,0x5F328EDD,0xA56B8BD9,0xEC57F6FE,0x37137197,0x7E2F0CB0,
    0xC64D0D6E,0x8F717049,0x5435F720,0x1D098A07,0xE7508F03,0xAE6CF224,0x7528754D,0x3C14086A,
    0xD006599,0x443C18BE,0x9F789FD7,0xD644E2F0,0x2C1DE7F4,0x65219AD3,0xBE651DBA,0xF759609D,
    0x4F3B6143,0x6071C64,0xDD439B0D,0x947FE62A,0x6E26E32E,0x271A9E09,0xFC5E1960,0xB5626447,
    0x89766C2D,0xC04A110A,0x1B0E9663,0x5232EB44,0xA86BEE40,0xE1579367,0x3A13140E,0x732F6929,
    0xCB4D68F7,0x827115D0,0x593592B9,0x1009EF9E,0xEA50EA9A,0xA36C97BD,0x782810D4,0x31146DF3,
    0x1A00CB32,0x533CB615,0x8878317C,0xC1444C5B,0x3B1D495F,0x72213478,0xA965B311,0xE059CE36,
    0x583BCFE8,0x1107B2CF,0xCA4335A6,0x837F4881,0x79264D85,0x301A30A2,0xEB5EB7CB,0xA262CAEC,
    0x9E76C286,0xD74ABFA1,0xC0E38C8,0x453245EF,0xBF6B40EB,0xF6573DCC,0x2D13BAA5,0x642FC782,
    0xDC4DC65C,0x9571BB7B,0x4E353C12,0x7094135,0xFD504431,0xB46C3916,0x6F28BE7F,0x2614C358,
    0x1700AEAB,0x5E3CD38C,0x857854E5,0xCC4429C2,0x361D2CC6,0x7F2151E1,0xA465D688,0xED59ABAF,
    0x553BAA71,0x1C07D756,0xC743503F,0x8E7F2D18,0x7426281C,0x3D1A553B,0xE65ED252,0xAF62AF75,
    0x9376A71F,0xDA4ADA38,0x10E5D51,0x48322076,0xB26B2572,0xFB575855,0x2013DF3C,0x692FA21B,
    0xD14DA3C5,0x9871DEE2,0x4335598B,0xA0924AC,0xF05021A8,0xB96C5C8F,0x6228DBE6,0x2B14A6C1,
    0x34019664,0x7D3DEB43,0xA6796C2A,0xEF45110D,0x151C1409,0x5C20692E,0x8764EE47,0xCE589360,
    0x763A92BE,0x3F06EF99,0xE44268F0,0xAD7E15D7,0x572710D3,0x1E1B6DF4,0xC55FEA9D,0x8C6397BA,
    0xB0779FD0,0xF94BE2F7,0x220F659E,0x6B3318B9,0x916A1DBD,0xD856609A,0x312E7F3,0x4A2E9AD4,
    0xF24C9B0A,0xBB70E62D,0x60346144,0x29081C63,0xD3511967,0x9A6D6440,0x4129E329,0x8159E0E,
    0x3901F3FD,0x703D8EDA,0xAB7909B3,0xE2457494,0x181C7190,0x51200CB7,0x8A648BDE,0xC358F6F9,
    0x7B3AF727,0x32068A00,0xE9420D69,0xA07E704E,0x5A27754A,0x131B086D,0xC85F8F04,0x8163F223,
    0xBD77FA49,0xF44B876E,0x2F0F0007,0x66337D20,0x9C6A7824,0xD5560503,0xE12826A,0x472EFF4D,
    0xFF4CFE93,0xB67083B4,0x6D3404DD,0x240879FA,0xDE517CFE,0x976D01D9,0x4C2986B0,0x515FB97,
    0x2E015D56,0x673D2071,0xBC79A718,0xF545DA3F,0xF1CDF3B,0x4620A21C,0x9D642575,0xD4585852,
    0x6C3A598C,0x250624AB,0xFE42A3C2,0xB77EDEE5,0x4D27DBE1,0x41BA6C6,0xDF5F21AF,0x96635C88,
    0xAA7754E2,0xE34B29C5,0x380FAEAC,0x7133D38B,0x8B6AD68F,0xC256ABA8,0x19122CC1,0x502E51E6,
    0xE84C5038,0xA1702D1F,0x7A34AA76,0x3308D751,0xC951D255,0x806DAF72,0x5B29281B,0x1215553C,
    0x230138CF,0x6A3D45E8,0xB179C281,0xF845BFA6,0x21CBAA2,0x4B20C785,0x906440EC,0xD9583DCB,
    0x613A3C15,0x28064132,0xF342C65B,0xBA7EBB7C,0x4027BE78,0x91BC35F,0xD25F4436,0x9B633911,
    0xA777317B,0xEE4B4C5C,0x350FCB35,0x7C33B612,0x866AB316,0xCF56CE31,0x14124958,0x5D2E347F,
    0xE54C35A1,0xAC704886,0x7734CFEF,0x3E08B2C8,0xC451B7CC,0x8D6DCAEB,0x56294D82,0x1F1530A5}};

/* [i]: x^(8 * 2^i). Each is the square of the one before, and the first that of the last. */
static const uint32_t lmc__crc_powers[31] =
    {0x800000,0x8000,0x82F63B78,0x6EA2D55C,0x18B8EA18,0x510AC59A,0xB82BE955,0xB8FDB1E7,0x88E56F72,
    0x74C360A4,0xE4172B16,0xD65762A,0x35D73A62,0x28461564,0xBF455269,0xE2EA32DC,0xFE7740E6,
    0xF946610B,0x3C204F8F,0x538586E3,0x59726915,0x734D5309,0xBC1AC763,0x7D0722CC,0xD289CABE,
    0xE94CA9BC,0x5B74F3F,0xA51E1F42,0x40000000,0x20000000,0x8000000};

/* Bytes of each of the lanes that a CRC is computed in at once. Three lanes fill 8 KiB, a strip
 * of root.h, up to its last 8 bytes; four fill it. LANE3_SHIFT is x^(8 LANE3), LANE4_SHIFTj x^(8
 * j LANE4 - 33). */
#define LMC__CRC_LANE3 2728u
#define LMC__CRC_LANE3_SHIFT 0x9075A4EFu
#define LMC__CRC_LANE4 2048u
#define LMC__CRC_LANE4_SHIFT1 0xA51B6135
#define LMC__CRC_LANE4_SHIFT2 0x82F89C77
#define LMC__CRC_LANE4_SHIFT3 0xB9D68D49

#if LMC__X86
/* Factors that fold 16 bytes over a distance of d bytes: x^(8 d + 31) for the first eight, x^(8 d
 * - 33) for the others, with x^-1 in bit 32. [i]: d = 64 * 2^i. */
static const uint64_t lmc__crc_folds[4][2] =
    {{0x740EEF02,0x9E4ADDF8},{0x6992CEA2,0xD3B6092},{0xDCB17AA4,0xB9E02B86},{0xBD6F81F8,
    0xDD7E3B0C}};

/* The same for d = 48, 32, 16, one after the other, then zeros. */
static const uint64_t lmc__crc_fold_last[8] =
    {0x1C291D04,0x1D82C63DA,0x1384AA63A,0xBA4FC28E,0xF20C0DFE,0x14CD00BD6,0,0};
#endif

/* clang-format on */

/* == kernels/vec_swar.h =========================================================================== */

/* Eight elements at a time travel as `width` 64-bit words, either one word for 8/width elements in
 * order, or one word for each plane. Both directions are the same network of swaps: a transpose is
 * its own inverse. */

/* Swap the bits of *a under mask << shift with those of *b under mask. */
LMC__INLINE void lmc__swap_bits(uint64_t *a, uint64_t *b, uint64_t mask, unsigned shift)
{
    uint64_t t = (*a >> shift ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* width 4: words {e0 e4}, {e1 e5}, {e2 e6}, {e3 e7} <-> planes 0..3 */
LMC__INLINE void lmc__transpose4(uint64_t *v)
{
    lmc__swap_bits(&v[0], &v[1], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[2], &v[3], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[0], &v[2], 0x0000FFFF0000FFFFu, 16);
    lmc__swap_bits(&v[1], &v[3], 0x0000FFFF0000FFFFu, 16);
}

/* width 8: words e0 .. e7 <-> planes 0..7 */
LMC__INLINE void lmc__transpose8(uint64_t *v)
{
    int i;
    lmc__transpose4(v);
    lmc__transpose4(v + 4);
    for (i = 0; i < 4; i++) lmc__swap_bits(&v[i], &v[i + 4], 0x00000000FFFFFFFFu, 32);
}

/* width 2, both directions: words {e0 e1 e2 e3}, {e4 ..} -> bytes of even position, then of odd
 * position */
LMC__INLINE uint64_t lmc__gather_even(uint64_t a) /* bytes 0, 2, 4, 6 to the low half */
{
    a &= 0x00FF00FF00FF00FFu;
    a = (a | a >> 8) & 0x0000FFFF0000FFFFu;
    return (a | a >> 16) & 0x00000000FFFFFFFFu;
}
LMC__INLINE uint64_t lmc__spread_even(uint64_t a) /* and back; the high half of a is ignored */
{
    a &= 0x00000000FFFFFFFFu;
    a = (a | a << 16) & 0x0000FFFF0000FFFFu;
    return (a | a << 8) & 0x00FF00FF00FF00FFu;
}

/* Rotate each of the four 16-bit parts by one bit. */
LMC__INLINE uint64_t lmc__rotl16x4(uint64_t v)
{
    return (v << 1 & 0xFFFEFFFEFFFEFFFEu) | (v >> 15 & 0x0001000100010001u);
}
LMC__INLINE uint64_t lmc__rotr16x4(uint64_t v)
{
    return (v >> 1 & 0x7FFF7FFF7FFF7FFFu) | (v << 15 & 0x8000800080008000u);
}
LMC__INLINE uint64_t lmc__rotl8x8(uint64_t v)
{
    return (v << 1 & 0xFEFEFEFEFEFEFEFEu) | (v >> 7 & 0x0101010101010101u);
}
LMC__INLINE uint64_t lmc__rotr8x8(uint64_t v)
{
    return (v >> 1 & 0x7F7F7F7F7F7F7F7Fu) | (v << 7 & 0x8080808080808080u);
}
LMC__INLINE uint32_t lmc__rotl32(uint32_t v) { return v << 1 | v >> 31; }
LMC__INLINE uint32_t lmc__rotr32(uint32_t v) { return v >> 1 | v << 31; }
LMC__INLINE uint64_t lmc__rotl64(uint64_t v) { return v << 1 | v >> 63; }
LMC__INLINE uint64_t lmc__rotr64(uint64_t v) { return v >> 1 | v << 63; }

/* v[p] = bytes of plane p of the eight elements at src */
LMC__INLINE void lmc__split8(uint64_t v[8], const uint8_t *src, unsigned width, int rotate)
{
    int i;
    switch (width) {
    case 1:
        v[0] = lmc__load64(src);
        if (rotate) v[0] = lmc__rotl8x8(v[0]);
        break;
    case 2: {
        uint64_t a = lmc__load64(src), b = lmc__load64(src + 8);
        if (rotate) {
            a = lmc__rotl16x4(a);
            b = lmc__rotl16x4(b);
        }
        v[0] = lmc__gather_even(a) | lmc__gather_even(b) << 32;
        v[1] = lmc__gather_even(a >> 8) | lmc__gather_even(b >> 8) << 32;
        break;
    }
    case 4:
        for (i = 0; i < 4; i++) {
            uint32_t a = lmc__load32(src + 4 * i), b = lmc__load32(src + 16 + 4 * i);
            if (rotate) {
                a = lmc__rotl32(a);
                b = lmc__rotl32(b);
            }
            v[i] = a | (uint64_t)b << 32;
        }
        lmc__transpose4(v);
        break;
    default:
        for (i = 0; i < 8; i++) {
            v[i] = lmc__load64(src + 8 * i);
            if (rotate) v[i] = lmc__rotl64(v[i]);
        }
        lmc__transpose8(v);
    }
}

/* The inverse. v is destroyed. */
LMC__INLINE void lmc__join8(uint8_t *dst, uint64_t v[8], unsigned width, int rotate)
{
    int i;
    switch (width) {
    case 1: lmc__store64(dst, rotate ? lmc__rotr8x8(v[0]) : v[0]); break;
    case 2: {
        uint64_t a = lmc__spread_even(v[0]) | lmc__spread_even(v[1]) << 8;
        uint64_t b = lmc__spread_even(v[0] >> 32) | lmc__spread_even(v[1] >> 32) << 8;
        if (rotate) {
            a = lmc__rotr16x4(a);
            b = lmc__rotr16x4(b);
        }
        lmc__store64(dst, a);
        lmc__store64(dst + 8, b);
        break;
    }
    case 4:
        lmc__transpose4(v);
        for (i = 0; i < 4; i++) {
            uint32_t a = (uint32_t)v[i], b = (uint32_t)(v[i] >> 32);
            if (rotate) {
                a = lmc__rotr32(a);
                b = lmc__rotr32(b);
            }
            lmc__store32(dst + 4 * i, a);
            lmc__store32(dst + 16 + 4 * i, b);
        }
        break;
    default:
        lmc__transpose8(v);
        for (i = 0; i < 8; i++) lmc__store64(dst + 8 * i, rotate ? lmc__rotr64(v[i]) : v[i]);
    }
}

/* Sixteen 16-bit elements, in loops of constant length that compilers turn into vector code by
 * themselves. */
LMC__INLINE void lmc__load16x16(uint16_t v[16], const uint8_t *src)
{
#if LMC__LITTLE_ENDIAN
    memcpy(v, src, 32);
#else
    int i;
    for (i = 0; i < 16; i++) v[i] = lmc__load16(src + 2 * i);
#endif
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

/* The low bytes of v, as many as m has one bits, to the places of those bits, in order; the other
 * places get 0. */
LMC__INLINE uint64_t lmc__expand8(uint64_t v, unsigned m)
{
    const uint64_t *moves = lmc__moves[m];
    uint64_t t;
    v &= moves[3]; /* what does not move must not be in the way */
    t = v & moves[0];
    v = (v ^ t) | t << 32;
    t = v & moves[1];
    v = (v ^ t) | t << 16;
    t = v & moves[2];
    return (v ^ t) | t << 8;
}

/* The inverse: bytes of v under m, packed to the low end; zeros above them. */
LMC__INLINE uint64_t lmc__compress8(uint64_t v, unsigned m)
{
    const uint64_t *moves = lmc__moves[m];
    uint64_t t;
    v &= lmc__byte_mask[m];
    t = v & moves[2] << 8;
    v = (v ^ t) | t >> 8;
    t = v & moves[1] << 16;
    v = (v ^ t) | t >> 16;
    t = v & moves[0] << 32;
    return (v ^ t) | t >> 32;
}

#define LMC__ONES8 0x0101010101010101u

/* Bit j of the result: the lowest bit of byte j of v; the other bits of v must be zero. The
 * multiplication adds byte j shifted to bit 56 + j, without carries. */
LMC__INLINE unsigned lmc__collect_bits(uint64_t v)
{
    return (unsigned)(v * 0x0102040810204080u >> 56);
}

/* Bit j of the result: byte j of v >= s, unsigned. */
LMC__INLINE unsigned lmc__compare8(uint64_t v, uint64_t s_times_ones)
{
    const uint64_t high = 0x80 * LMC__ONES8;
    uint64_t low =
        (v | high) - (s_times_ones & ~high); /* bit 7 of a byte: its low 7 bits >= those of s */
    uint64_t ge = (v & ~s_times_ones) | (~(v ^ s_times_ones) & low);
    return lmc__collect_bits((ge & high) >> 7);
}

/* The scalar tier's words for what the vector tiers do with all bytes of a vector, here of eight.
 */
LMC__INLINE uint64_t lmc__load_scalar(const uint8_t *p) { return lmc__load64(p); }
LMC__INLINE void lmc__store_scalar(uint8_t *p, uint64_t v) { lmc__store64(p, v); }
LMC__INLINE uint64_t lmc__splat_scalar(unsigned v) { return v * LMC__ONES8; }

/* sums of bytes modulo 256: the top bits apart, so that nothing is carried over */
LMC__INLINE uint64_t lmc__add_scalar(uint64_t a, uint64_t b)
{
    const uint64_t top = LMC__ONES8 << 7;
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}
LMC__INLINE uint64_t lmc__shl_scalar(uint64_t v, unsigned k) { return v << k; }
LMC__INLINE uint64_t lmc__shr_scalar(uint64_t v, unsigned k) { return v >> k; }
LMC__INLINE uint64_t lmc__select_scalar(uint64_t mask, uint64_t a, uint64_t b)
{
    return (a & mask) | (b & ~mask);
}

/* 255 in each byte where v >= from: the low seven bits compare by a subtraction that cannot borrow
 * from the next byte. */
LMC__INLINE uint64_t lmc__not_below_scalar(uint64_t v, uint64_t from)
{
    const uint64_t top = LMC__ONES8 << 7, low = (v | top) - (from & ~top);
    return ((((v & ~from) | (~(v ^ from) & low)) & top) >> 7) * 255;
}

#if LMC__AVX2_TEXT || LMC__NEON
/* Bits [i, i + 64) of a mask of n bits; those behind its end are 0. */
LMC__INLINE uint64_t lmc__load_mask(const uint8_t *mask, size_t i, size_t n)
{
    uint8_t bits[8];
    if (n - i >= 64) return lmc__load64(mask + i / 8);
    memset(bits, 0, sizeof bits);
    memcpy(bits, mask + i / 8, (n - i + 7) / 8);
    return lmc__load64(bits);
}
#endif

/* == kernels/vec_neon.h =========================================================================== */

/* The vocabulary of the NEON tier: what the kernels do with vectors of 16 bytes. Each operation has
 * its scalar meaning, for byte i of the result r, in front of it. Elements have `width` bytes, 1,
 * 2, 4 or 8, the lowest first, as the machine has them; width, left and the like are constants
 * where these are inlined. */
#if LMC__NEON
#include <arm_neon.h>

/* r[i] = p[i]; and back. */
LMC__INLINE uint8x16_t lmc__load_neon(const uint8_t *p) { return vld1q_u8(p); }
LMC__INLINE void lmc__store_neon(uint8_t *p, uint8x16_t v) { vst1q_u8(p, v); }

/* Four vectors that look-ups want in consecutive registers: gcc copies them there each time unless
 * one instruction loads them. */
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

/* r[i] = v. */
LMC__INLINE uint8x16_t lmc__splat_neon(unsigned v) { return vdupq_n_u8((uint8_t)v); }

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b. */
LMC__INLINE uint8x16_t lmc__even_neon(uint8x16_t a, uint8x16_t b) { return vuzp1q_u8(a, b); }
LMC__INLINE uint8x16_t lmc__odd_neon(uint8x16_t a, uint8x16_t b) { return vuzp2q_u8(a, b); }

/* And back: first, then second, are the bytes of a and b in turn. */
LMC__INLINE void lmc__zip_neon(uint8x16_t *first, uint8x16_t *second, uint8x16_t a, uint8x16_t b)
{
    *first = vzip1q_u8(a, b);
    *second = vzip2q_u8(a, b);
}

/* r[i] = a[i] + b[i], modulo 256. */
LMC__INLINE uint8x16_t lmc__add_neon(uint8x16_t a, uint8x16_t b) { return vaddq_u8(a, b); }

/* r[i] = v[i] << k; r[i] = v[i] >> k. */
LMC__INLINE uint8x16_t lmc__shl_neon(uint8x16_t v, unsigned k)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)k));
}
LMC__INLINE uint8x16_t lmc__shr_neon(uint8x16_t v, unsigned k)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)-(int)k));
}

/* r = (mask & a) | (~mask & b), bit by bit. */
LMC__INLINE uint8x16_t lmc__select_neon(uint8x16_t mask, uint8x16_t a, uint8x16_t b)
{
    return vbslq_u8(mask, a, b);
}

/* r[i] = v[i] >= from[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__not_below_neon(uint8x16_t v, uint8x16_t from)
{
    return vcgeq_u8(v, from);
}

/* Each element rotated by one bit: shift, then insert the other shift into the bits that are
 * free. */
LMC__INLINE uint8x16_t lmc__rotate_neon(uint8x16_t v, unsigned width, int left)
{
    const uint16x8_t h = vreinterpretq_u16_u8(v);
    const uint32x4_t w = vreinterpretq_u32_u8(v);
    const uint64x2_t d = vreinterpretq_u64_u8(v);
    switch (width) {
    case 1: return left ? vsriq_n_u8(vshlq_n_u8(v, 1), v, 7) : vsliq_n_u8(vshrq_n_u8(v, 1), v, 7);
    case 2:
        return vreinterpretq_u8_u16(left ? vsriq_n_u16(vshlq_n_u16(h, 1), h, 15)
                                         : vsliq_n_u16(vshrq_n_u16(h, 1), h, 15));
    case 4:
        return vreinterpretq_u8_u32(left ? vsriq_n_u32(vshlq_n_u32(w, 1), w, 31)
                                         : vsliq_n_u32(vshrq_n_u32(w, 1), w, 31));
    default:
        return vreinterpretq_u8_u64(left ? vsriq_n_u64(vshlq_n_u64(d, 1), d, 63)
                                         : vsliq_n_u64(vshrq_n_u64(d, 1), d, 63));
    }
}

/* The sign bit of each element, and no other bit. */
LMC__INLINE uint8x16_t lmc__sign_bits_neon(unsigned width)
{
    return width == 1   ? vdupq_n_u8(0x80)
           : width == 2 ? vreinterpretq_u8_u16(vdupq_n_u16(0x8000))
           : width == 4 ? vreinterpretq_u8_u32(vdupq_n_u32(0x80000000u))
                        : vreinterpretq_u8_u64(vdupq_n_u64(0x8000000000000000u));
}

/* All bits of the elements whose sign bit is set, none of the others. */
LMC__INLINE uint8x16_t lmc__negative_neon(uint8x16_t v, unsigned width)
{
    return width == 1   ? vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(v), 7))
           : width == 2 ? vreinterpretq_u8_s16(vshrq_n_s16(vreinterpretq_s16_u8(v), 15))
           : width == 4 ? vreinterpretq_u8_s32(vshrq_n_s32(vreinterpretq_s32_u8(v), 31))
                        : vreinterpretq_u8_s64(vshrq_n_s64(vreinterpretq_s64_u8(v), 63));
}

/* Element by element, modulo 2^(8 width). */
LMC__INLINE uint8x16_t lmc__plus_neon(uint8x16_t a, uint8x16_t b, unsigned width)
{
    return width == 1 ? vaddq_u8(a, b)
           : width == 2
               ? vreinterpretq_u8_u16(vaddq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : width == 4
               ? vreinterpretq_u8_u32(vaddq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
               : vreinterpretq_u8_u64(vaddq_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
LMC__INLINE uint8x16_t lmc__minus_neon(uint8x16_t a, uint8x16_t b, unsigned width)
{
    return width == 1 ? vsubq_u8(a, b)
           : width == 2
               ? vreinterpretq_u8_u16(vsubq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : width == 4
               ? vreinterpretq_u8_u32(vsubq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
               : vreinterpretq_u8_u64(vsubq_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

/* Bit i of the result: whether byte i of the four vectors (0 or 255 each) is set. Each byte keeps
 * the bit of its place, i mod 8; three pairwise sums join eight bytes to one. */
LMC__INLINE uint8x8_t lmc__collect_neon(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t ab = vpaddq_u8(vandq_u8(a, weight), vandq_u8(b, weight)),
                     cd = vpaddq_u8(vandq_u8(c, weight), vandq_u8(d, weight));
    const uint8x16_t all = vpaddq_u8(ab, cd);
    return vget_low_u8(vpaddq_u8(all, all));
}

/* And back, for 16 of the 64 bits: r[i] = bit 16 j + i of m ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__spread_neon(uint8x8_t m, unsigned j)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t byte = vreinterpretq_u8_u64(
        vcombine_u64(vdup_n_u64(2 * j * LMC__ONES8), vdup_n_u64((2 * j + 1) * LMC__ONES8)));
    return vtstq_u8(vqtbl1q_u8(vcombine_u8(m, m), byte), weight);
}

/* The next 64 bits of a mask of n more bits; those behind its end are 0. */
LMC__INLINE uint8x8_t lmc__load_mask_neon(const uint8_t *mask, size_t n)
{
    uint8_t bits[8];
    if (n >= 64) return vld1_u8(mask);
    memset(bits, 0, sizeof bits);
    memcpy(bits, mask, (n + 7) / 8);
    return vld1_u8(bits);
}

/* The next 64 bits of a mask of n more bits; nothing is written behind its last byte. */
LMC__INLINE void lmc__store_mask_neon(uint8_t *mask, uint8x8_t m, size_t n)
{
    uint8_t bits[8];
    if (n >= 64) {
        vst1_u8(mask, m);
    } else {
        vst1_u8(bits, m);
        memcpy(mask, bits, (n + 7) / 8);
    }
}

/* The first n bits of m, zeros above them. */
LMC__INLINE uint8x8_t lmc__first_bits_neon(uint8x8_t m, size_t n)
{
    return n >= 64 ? m : vand_u8(m, vcreate_u8(((uint64_t)1 << n) - 1));
}

/* A shuffle that moves the bytes of the zero bits of m to the low half and those of its one
 * bits to the high half, in order. */
LMC__INLINE uint8x16_t lmc__load_sort_places_neon(unsigned m)
{
    return vreinterpretq_u8_u64(vld1q_u64(lmc__sort_places[m]));
}
#endif

/* == kernels/vec_avx2.h =========================================================================== */

/* The vocabulary of the AVX2 tier: what the kernels do with vectors of 32 bytes. Each operation has
 * its scalar meaning, for byte i of the result r, in front of it. Elements have `width` bytes, 1,
 * 2, 4 or 8, the lowest first, as the machine has them; width, left and the like are constants
 * where these are inlined. Most instructions work within the two halves of 16 bytes; what crosses
 * them is said. */
#if LMC__X86
/* gcc 12's own headers set their undefined vectors from themselves:
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
#pragma GCC diagnostic ignored "-Wsign-conversion" /* SIMDe's parameters are int8_t where the      \
                                                      compilers' own headers say char */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#define _mm_popcnt_u64(v) __builtin_popcountll(v) /* not in SIMDe */
#if defined(__wasm_simd128__)                     /* SIMDe 0.7 does these byte by byte */
#include <wasm_simd128.h>
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
/* r[i] = p[i]; and back. */
LMC__INLINE2 __m256i lmc__load_avx2(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
LMC__INLINE2 void lmc__store_avx2(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

/* r[i] = row[i mod 16]. */
LMC__INLINE2 __m256i lmc__load_row_avx2(const uint8_t *row)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)row));
}

/* The 16 bytes at first, then those at second. */
LMC__INLINE2 __m256i lmc__load_pair_avx2(const uint8_t *first, const uint8_t *second)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)first)),
        _mm_loadu_si128((const __m128i *)(const void *)second), 1);
}

/* r[i] = v. */
LMC__INLINE2 __m256i lmc__splat_avx2(unsigned v) { return _mm256_set1_epi8((char)v); }

/* r[i] = a[i] + b[i], modulo 256. */
LMC__INLINE2 __m256i lmc__add_avx2(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }

/* r[i] = v[i] << k, r[i] = v[i] >> k, but for the bits that shift in from the neighbouring byte. */
LMC__INLINE2 __m256i lmc__shl_avx2(__m256i v, unsigned k)
{
    return _mm256_sll_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE2 __m256i lmc__shr_avx2(__m256i v, unsigned k)
{
    return _mm256_srl_epi16(v, _mm_cvtsi32_si128((int)k));
}

/* r = (mask & a) | (~mask & b), bit by bit. */
LMC__INLINE2 __m256i lmc__select_avx2(__m256i mask, __m256i a, __m256i b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}

/* r[i] = mask[i] ? a[i] : b[i], for bytes of mask that are 0 or 255. With -funsigned-char gcc 12
 * takes the mask's bytes for unsigned and asks whether they are below zero: always b. */
LMC__INLINE2 __m256i lmc__blend_avx2(__m256i mask, __m256i a, __m256i b)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(__CHAR_UNSIGNED__)
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
#else
    return _mm256_blendv_epi8(b, a, mask);
#endif
}

/* r[i] = v[i] >= from[i] ? 255 : 0, unsigned. */
LMC__INLINE2 __m256i lmc__not_below_avx2(__m256i v, __m256i from)
{
    return _mm256_cmpeq_epi8(_mm256_max_epu8(v, from), v);
}

/* The same as bits: bit i of the result. */
LMC__INLINE2 uint32_t lmc__compare_avx2(__m256i v, __m256i s)
{
    return (uint32_t)_mm256_movemask_epi8(lmc__not_below_avx2(v, s));
}

/* r[i] = bit i of m ? 255 : 0. */
LMC__INLINE2 __m256i lmc__spread_bits_avx2(uint32_t m)
{
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_cmpeq_epi8(
        _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)m), byte), bit), bit);
}

/* r[i] = the sum of v[j], ..., v[i], modulo 256, from j = 0 or, in the upper half, 16 on. Three
 * steps double how far back the sums reach, after a first one by a multiplication. */
LMC__INLINE2 __m256i lmc__sum_up_avx2(__m256i v)
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

/* A shuffle that moves the bytes of the zero bits of m to the low half and those of its one bits to
 * the high half, in order. (pext needs less table, but is microcoded on Zen 1 and 2.) */
LMC__INLINE2 __m128i lmc__load_sort_places_avx2(unsigned m)
{
    return _mm_loadu_si128((const __m128i *)(const void *)lmc__sort_places[m]);
}
#endif

#if LMC__X86
/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b. Packing works within 16 bytes;
 * quarters 0, 2, 1, 3 of its result are in order. */
LMC__INLINE2 __m256i lmc__even_avx2(__m256i a, __m256i b)
{
    const __m256i low = _mm256_set1_epi16(0xFF);
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low)), 0xD8);
}
LMC__INLINE2 __m256i lmc__odd_avx2(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)), 0xD8);
}

/* And back: first, then second, are the bytes of a and b in turn. */
LMC__INLINE2 void lmc__zip_avx2(__m256i *first, __m256i *second, __m256i a, __m256i b)
{
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    *first = _mm256_permute2x128_si256(low, high, 0x20);
    *second = _mm256_permute2x128_si256(low, high, 0x31);
}

/* Each element rotated by one bit, to the left or to the right. */
LMC__INLINE2 __m256i lmc__rotate_avx2(__m256i v, unsigned width, int left)
{
    switch (width) {
    case 1: {
        const __m256i low7 = _mm256_set1_epi8(0x7F), low1 = _mm256_set1_epi8(1);
        return left ? _mm256_or_si256(_mm256_add_epi8(v, v),
                                      _mm256_and_si256(_mm256_srli_epi16(v, 7), low1))
                    : _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 1), low7),
                                      _mm256_andnot_si256(low7, _mm256_slli_epi16(v, 7)));
    }
    case 2:
        return left ? _mm256_or_si256(_mm256_slli_epi16(v, 1), _mm256_srli_epi16(v, 15))
                    : _mm256_or_si256(_mm256_srli_epi16(v, 1), _mm256_slli_epi16(v, 15));
    case 4:
        return left ? _mm256_or_si256(_mm256_slli_epi32(v, 1), _mm256_srli_epi32(v, 31))
                    : _mm256_or_si256(_mm256_srli_epi32(v, 1), _mm256_slli_epi32(v, 31));
    default:
        return left ? _mm256_or_si256(_mm256_slli_epi64(v, 1), _mm256_srli_epi64(v, 63))
                    : _mm256_or_si256(_mm256_srli_epi64(v, 1), _mm256_slli_epi64(v, 63));
    }
}

/* The sign bit of each element, and no other bit. */
LMC__INLINE2 __m256i lmc__sign_bits_avx2(unsigned width)
{
    return width == 1   ? _mm256_set1_epi8((char)0x80)
           : width == 2 ? _mm256_set1_epi16((short)0x8000)
           : width == 4 ? _mm256_set1_epi32((int)0x80000000u)
                        : _mm256_set1_epi64x((long long)0x8000000000000000u);
}

/* All bits of the elements whose sign bit is set, none of the others. */
LMC__INLINE2 __m256i lmc__negative_avx2(__m256i v, unsigned width)
{
    const __m256i zero = _mm256_setzero_si256();
    return width == 1   ? _mm256_cmpgt_epi8(zero, v)
           : width == 2 ? _mm256_srai_epi16(v, 15)
           : width == 4 ? _mm256_srai_epi32(v, 31)
                        : _mm256_cmpgt_epi64(zero, v);
}

/* Element by element, modulo 2^(8 width). */
LMC__INLINE2 __m256i lmc__plus_avx2(__m256i a, __m256i b, unsigned width)
{
    return width == 1   ? _mm256_add_epi8(a, b)
           : width == 2 ? _mm256_add_epi16(a, b)
           : width == 4 ? _mm256_add_epi32(a, b)
                        : _mm256_add_epi64(a, b);
}
LMC__INLINE2 __m256i lmc__minus_avx2(__m256i a, __m256i b, unsigned width)
{
    return width == 1   ? _mm256_sub_epi8(a, b)
           : width == 2 ? _mm256_sub_epi16(a, b)
           : width == 4 ? _mm256_sub_epi32(a, b)
                        : _mm256_sub_epi64(a, b);
}

/* r[i] = keys[i] <= highest[i] ? 255 : 0, unsigned. */
LMC__INLINE2 __m256i lmc__up_to_avx2(__m256i keys, __m256i highest)
{
    return _mm256_cmpeq_epi8(_mm256_min_epu8(keys, highest), keys);
}

/* The second half of lmc__load_sort_places_avx2: the places of the one bits of m, then zeros. */
LMC__INLINE2 __m128i lmc__load_places_avx2(unsigned m)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)&lmc__sort_places[m][1]);
}
#endif

/* == kernels/vec_avx512.h ========================================================================= */

/* The vocabulary of the AVX-512 tier: what the kernels do with vectors of 64 bytes. Each operation
 * has its scalar meaning, for byte i of the result r, in front of it. Elements have `width` bytes,
 * 1, 2, 4 or 8, the lowest first, as the machine has them; width, left and the like are constants
 * where these are inlined. */
#if LMC__X86
/* r[i] = p[i]; and back. */
LMC__INLINE512 __m512i lmc__load_avx512(const uint8_t *p) { return _mm512_loadu_si512(p); }
LMC__INLINE512 void lmc__store_avx512(uint8_t *p, __m512i v) { _mm512_storeu_si512(p, v); }

/* r[i] = v. */
LMC__INLINE512 __m512i lmc__splat_avx512(unsigned v) { return _mm512_set1_epi8((char)v); }

/* r[i] = a[i] + b[i], modulo 256. */
LMC__INLINE512 __m512i lmc__add_avx512(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }

/* r[i] = v[i] << k, r[i] = v[i] >> k, but for the bits that shift in from the neighbouring byte. */
LMC__INLINE512 __m512i lmc__shl_avx512(__m512i v, unsigned k)
{
    return _mm512_sll_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE512 __m512i lmc__shr_avx512(__m512i v, unsigned k)
{
    return _mm512_srl_epi16(v, _mm_cvtsi32_si128((int)k));
}

/* r = (mask & a) | (~mask & b), bit by bit. */
LMC__INLINE512 __m512i lmc__select_avx512(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi64(mask, a, b, 0xCA);
}

/* r[i] = v[i] >= from[i] ? 255 : 0, unsigned. */
LMC__INLINE512 __m512i lmc__not_below_avx512(__m512i v, __m512i from)
{
    return _mm512_movm_epi8(_mm512_cmpge_epu8_mask(v, from));
}

/* r[i] = ab[2 i], r[i] = ab[2 i + 1], where ab is a, then b. */
LMC__INLINE512 __m512i lmc__even_avx512(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[0]), b);
}
LMC__INLINE512 __m512i lmc__odd_avx512(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[1]), b);
}

/* And back: first, then second, are the bytes of a and b in turn. */
LMC__INLINE512 void lmc__zip_avx512(__m512i *first, __m512i *second, __m512i a, __m512i b)
{
    *first = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[2]), b);
    *second = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(lmc__shuffles[3]), b);
}

/* Each element rotated by one bit, to the left or to the right. */
LMC__INLINE512 __m512i lmc__rotate_avx512(__m512i v, unsigned width, int left)
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

/* The sign bit of each element, and no other bit. */
LMC__INLINE512 __m512i lmc__sign_bits_avx512(unsigned width)
{
    return width == 1   ? _mm512_set1_epi8((char)0x80)
           : width == 2 ? _mm512_set1_epi16((short)0x8000)
           : width == 4 ? _mm512_set1_epi32((int)0x80000000u)
                        : _mm512_set1_epi64((long long)0x8000000000000000u);
}

/* All bits of the elements whose sign bit is set, none of the others. */
LMC__INLINE512 __m512i lmc__negative_avx512(__m512i v, unsigned width)
{
    return width == 1   ? _mm512_movm_epi8(_mm512_movepi8_mask(v))
           : width == 2 ? _mm512_srai_epi16(v, 15)
           : width == 4 ? _mm512_srai_epi32(v, 31)
                        : _mm512_srai_epi64(v, 63);
}

/* Element by element, modulo 2^(8 width). */
LMC__INLINE512 __m512i lmc__plus_avx512(__m512i a, __m512i b, unsigned width)
{
    return width == 1   ? _mm512_add_epi8(a, b)
           : width == 2 ? _mm512_add_epi16(a, b)
           : width == 4 ? _mm512_add_epi32(a, b)
                        : _mm512_add_epi64(a, b);
}
LMC__INLINE512 __m512i lmc__minus_avx512(__m512i a, __m512i b, unsigned width)
{
    return width == 1   ? _mm512_sub_epi8(a, b)
           : width == 2 ? _mm512_sub_epi16(a, b)
           : width == 4 ? _mm512_sub_epi32(a, b)
                        : _mm512_sub_epi64(a, b);
}
#endif

/* == kernels/residual.h =========================================================================== */

/*
 * The residual of an element against its prediction, and back (spec 7.2). Elements are integers of
 * W = 8 * width bits; small differences in either direction become small numbers. Subtracting goes
 * in three steps, each a bijection of all bit patterns, NaN and -0 included:
 *
 *     sign      x = v ^ (base's sign bit): both signs relative to the prediction's. The prediction
 *               is positive now, as an integer: base without its sign bit
 *     order     a float's magnitude falls with its bits where it is negative: flip those bits, and
 *               the integers are in the order of the numbers
 *     distance  d = x - base modulo 2^W, then zigzag: 0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ...
 *
 * With prediction 0 all that is left is a rotation to the left by one bit: x = v; where v is
 * negative, the order flips all bits but the sign, and the zigzag of that flips them back.
 */

LMC__INLINE uint64_t lmc__residual(uint64_t v, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t x = v ^ (base & sign_bit), ordered = x & sign_bit ? x ^ below : x;
    const uint64_t d = (ordered - (base & below)) & all;
    if (!subtract) return v ^ base;
    return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;
}

LMC__INLINE uint64_t lmc__restore_element(uint64_t r, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t d = (r >> 1) ^ (0 - (r & 1)), ordered = ((base & below) + d) & all;
    if (!subtract) return r ^ base;
    return (ordered & sign_bit ? ordered ^ below : ordered) ^ (base & sign_bit);
}

#if LMC__NEON
#define LMC__VECTOR uint8x16_t
#define LMC__ISA(name) lmc__##name##_neon
#define LMC__INLINE_ISA LMC__INLINE
/* -- kernels/residual_vec.inl -- */
/* lmc__residual and lmc__restore_element for each element of a vector: a template, included once
 * for each tier, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *
 * which it undefines at its end. Bitwise operators are those of gcc and clang for all vectors. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(residual)(LMC__VECTOR v, LMC__VECTOR base, unsigned width,
                                               int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), x = v ^ (base & sign),
                      ordered = x ^ (LMC__ISA(negative)(x, width) & ~sign),
                      d = LMC__ISA(minus)(ordered, base & ~sign, width);
    if (!subtract) return v ^ base;
    return LMC__ISA(plus)(d, d, width) ^ LMC__ISA(negative)(d, width);
}

/* r rotated to the right by one bit is the magnitude of the zigzag, and its sign in the top bit. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(restore)(LMC__VECTOR r, LMC__VECTOR base, unsigned width,
                                              int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), z = LMC__ISA(rotate)(r, width, 0),
                      d = (z & ~sign) ^ LMC__ISA(negative)(z, width),
                      ordered = LMC__ISA(plus)(base & ~sign, d, width);
    if (!subtract) return r ^ base;
    return ordered ^ (LMC__ISA(negative)(ordered, width) & ~sign) ^ (base & sign);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */
#endif

#if LMC__X86
#define LMC__VECTOR __m256i
#define LMC__ISA(name) lmc__##name##_avx2
#define LMC__INLINE_ISA LMC__INLINE2
/* -- kernels/residual_vec.inl -- */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(residual)(LMC__VECTOR v, LMC__VECTOR base, unsigned width,
                                               int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), x = v ^ (base & sign),
                      ordered = x ^ (LMC__ISA(negative)(x, width) & ~sign),
                      d = LMC__ISA(minus)(ordered, base & ~sign, width);
    if (!subtract) return v ^ base;
    return LMC__ISA(plus)(d, d, width) ^ LMC__ISA(negative)(d, width);
}

LMC__INLINE_ISA LMC__VECTOR LMC__ISA(restore)(LMC__VECTOR r, LMC__VECTOR base, unsigned width,
                                              int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), z = LMC__ISA(rotate)(r, width, 0),
                      d = (z & ~sign) ^ LMC__ISA(negative)(z, width),
                      ordered = LMC__ISA(plus)(base & ~sign, d, width);
    if (!subtract) return r ^ base;
    return ordered ^ (LMC__ISA(negative)(ordered, width) & ~sign) ^ (base & sign);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */

#define LMC__VECTOR __m512i
#define LMC__ISA(name) lmc__##name##_avx512
#define LMC__INLINE_ISA LMC__INLINE512
/* -- kernels/residual_vec.inl -- */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(residual)(LMC__VECTOR v, LMC__VECTOR base, unsigned width,
                                               int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), x = v ^ (base & sign),
                      ordered = x ^ (LMC__ISA(negative)(x, width) & ~sign),
                      d = LMC__ISA(minus)(ordered, base & ~sign, width);
    if (!subtract) return v ^ base;
    return LMC__ISA(plus)(d, d, width) ^ LMC__ISA(negative)(d, width);
}

LMC__INLINE_ISA LMC__VECTOR LMC__ISA(restore)(LMC__VECTOR r, LMC__VECTOR base, unsigned width,
                                              int subtract)
{
    const LMC__VECTOR sign = LMC__ISA(sign_bits)(width), z = LMC__ISA(rotate)(r, width, 0),
                      d = (z & ~sign) ^ LMC__ISA(negative)(z, width),
                      ordered = LMC__ISA(plus)(base & ~sign, d, width);
    if (!subtract) return r ^ base;
    return ordered ^ (LMC__ISA(negative)(ordered, width) & ~sign) ^ (base & sign);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */
#endif

/* == kernels/crc32c.h ============================================================================= */

/*
 * CRC-32C (Castagnoli; spec 2): crc32c(crc, p, size) continues from the CRC of what stands
 * before, 0 at the start. The kernels of all tiers give the same.
 *
 * Why it can be cut in parts: but for the inversions at both ends, the CRC of a message is the
 * remainder of the message, as a polynomial over GF(2) with its first bit as the highest
 * coefficient, divided by the CRC's polynomial. So it is linear: the register after parts A, B is
 *
 *     register(A B) = register(A) * x^(8 size(B))  xor  register(B), B from register 0
 *
 * All constants in tables.h are such powers of x modulo the polynomial. Numbers are *reflected*:
 * bit 31 of a register is the coefficient of x^0, so that x times it is a shift to the right.
 */

/* Product of two polynomials modulo the CRC's. */
static uint32_t lmc__crc_multiply(uint32_t a, uint32_t b)
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
static uint32_t lmc__crc_combine(uint32_t a, uint32_t b, uint64_t b_size)
{
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; b_size >>= 1) {
        if (b_size & 1) a = lmc__crc_multiply(a, lmc__crc_powers[i]);
        i = i < 30 ? i + 1 : 0;
    }
    return a ^ b;
}

/* The register before the bytes of p, from the one behind them: a step's shift to the right is
 * undone by one to the left. The polynomial's bit 31 is set and a shifted register's is not, so bit
 * 31 tells whether the step had added the polynomial. */
static uint32_t lmc__rewind_crc(uint32_t state, const uint8_t *p, size_t size)
{
    unsigned bit;
    while (size != 0) {
        for (bit = 0; bit < 8; bit++)
            state = state >> 31 ? (state ^ LMC__CRC_POLYNOMIAL) << 1 | 1 : state << 1;
        state ^= p[--size];
    }
    return state;
}

/*
 * Lanes. A step of a CRC needs the register of the step before and waits for it. So a strip is cut
 * into lanes whose registers advance in turn, each from 0 but the first, and are joined at the end:
 *
 *     | lane 0 ------> | lane 1 ------> | lane 2 ------> | rest, with one register
 *       crc      ->  c0  * shift ^ c1  -> * shift ^ c2  ->  crc       shift = x^(8 LANE3)
 */

/* Eight bytes more, by look-ups: a byte with k others behind it, in table k (slicing by 8: Kounavis
 * and Berry, "Novel table lookup-based algorithms for high-performance CRC generation", 2008). */
LMC__INLINE uint32_t lmc__crc_step8(uint32_t crc, const uint8_t *p)
{
    const uint32_t(*t)[256] = lmc__crc_table;
    uint64_t v = lmc__load64(p) ^ crc;
    return t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^
           t[3][v >> 32 & 255] ^ t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
}

/* Three lanes are twice as fast as one. */
static uint32_t lmc__crc32c_scalar(uint32_t crc, const uint8_t *p, size_t size)
{
    crc = ~crc;
    for (; size >= 3 * LMC__CRC_LANE3; p += 3 * LMC__CRC_LANE3, size -= 3 * LMC__CRC_LANE3) {
        uint32_t crc1 = 0, crc2 = 0;
        size_t i;
        for (i = 0; i < LMC__CRC_LANE3; i += 8) {
            crc = lmc__crc_step8(crc, p + i);
            crc1 = lmc__crc_step8(crc1, p + LMC__CRC_LANE3 + i);
            crc2 = lmc__crc_step8(crc2, p + 2 * LMC__CRC_LANE3 + i);
        }
        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc1;
        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc2;
    }
    for (; size >= 8; p += 8, size -= 8) crc = lmc__crc_step8(crc, p);
    for (; size != 0; p++, size--) crc = crc >> 8 ^ lmc__crc_table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if LMC__NEON
/* The crc32cx instruction takes one cycle, its result two or three more: three lanes again. */
LMC__CRC static uint32_t lmc__crc32c_neon(uint32_t crc, const uint8_t *p, size_t size)
{
    uint32_t c0 = ~crc;
    for (; size >= 3 * LMC__CRC_LANE3; p += 3 * LMC__CRC_LANE3, size -= 3 * LMC__CRC_LANE3) {
        uint32_t c1 = 0, c2 = 0;
        size_t i;
        for (i = 0; i < LMC__CRC_LANE3; i += 8) {
            c0 = LMC__CRC_STEP8(c0, lmc__load64(p + i));
            c1 = LMC__CRC_STEP8(c1, lmc__load64(p + LMC__CRC_LANE3 + i));
            c2 = LMC__CRC_STEP8(c2, lmc__load64(p + 2 * LMC__CRC_LANE3 + i));
        }
        c0 = lmc__crc_multiply(c0, LMC__CRC_LANE3_SHIFT) ^ c1;
        c0 = lmc__crc_multiply(c0, LMC__CRC_LANE3_SHIFT) ^ c2;
    }
    for (; size >= 8; p += 8, size -= 8) c0 = LMC__CRC_STEP8(c0, lmc__load64(p));
    for (; size != 0; p++, size--) c0 = c0 >> 8 ^ lmc__crc_table[0][(c0 ^ *p) & 255];
    return ~c0;
}
#endif

#if LMC__X86
/* Word i of each of four lanes: the crc32 instruction has a latency of three cycles, and one starts
 * in each cycle. */
LMC__INLINE2 void lmc__crc_lanes(uint64_t c[4], const uint8_t *p, size_t i)
{
    c[0] = _mm_crc32_u64(c[0], lmc__load64(p + 8 * i));
    c[1] = _mm_crc32_u64(c[1], lmc__load64(p + LMC__CRC_LANE4 + 8 * i));
    c[2] = _mm_crc32_u64(c[2], lmc__load64(p + 2 * LMC__CRC_LANE4 + 8 * i));
    c[3] = _mm_crc32_u64(c[3], lmc__load64(p + 3 * LMC__CRC_LANE4 + 8 * i));
}

/* The register after all four lanes: lane 3 - j times x^(8 j LANE4). A product by pclmul is not
 * reduced; that is left to one crc32 instruction for the sum of all three. It multiplies by x^32.
 * One more x comes from the product itself: those of two numbers of 32 bits have 63, so that what
 * stands for x^0 is one bit below the top of the 64. The factors are x^(8 j LANE4 - 33), to make up
 * for both. */
LMC__INLINE2 uint64_t lmc__crc_join_lanes(const uint64_t c[4])
{
    const __m128i shift3 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT3),
                  shift2 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT2),
                  shift1 = _mm_cvtsi64_si128(LMC__CRC_LANE4_SHIFT1);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[0]), shift3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[1]), shift2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[2]), shift1, 0));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)) ^ c[3];
}

LMC__AVX2 static uint32_t lmc__crc32c_avx2(uint32_t crc, const uint8_t *p, size_t size)
{
    uint64_t c[4] = {(uint32_t)~crc, 0, 0, 0};
    for (; size >= 4 * LMC__CRC_LANE4; p += 4 * LMC__CRC_LANE4, size -= 4 * LMC__CRC_LANE4) {
        size_t i;
        for (i = 0; i < LMC__CRC_LANE4 / 8; i++) lmc__crc_lanes(c, p, i);
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    for (; size >= 8; p += 8, size -= 8) c[0] = _mm_crc32_u64(c[0], lmc__load64(p));
    for (; size != 0; p++, size--) c[0] = _mm_crc32_u8((uint32_t)c[0], *p);
    return ~(uint32_t)c[0];
}

/*
 * Folding, on AVX-512 (Gopal et al., "Fast CRC computation for generic polynomials using
 * PCLMULQDQ", 2009). 16 bytes that stand d bytes before 16 others can be replaced by their product
 * with x^(8d), added to these: it is congruent, and 16 bytes long because the factor is reduced to
 * 32 bits. A vector has four lanes of 16 bytes; here four vectors are folded over 256 bytes at a
 * time:
 *
 *     bytes    0         64        128       192       256       320 ...
 *              [ v0    ] [ v1    ] [ v2    ] [ v3    ] [ w0    ] [ w1    ] ...
 *                  |         '-----------------------------------> * x^2048 ^ w1
 *                  '-------------------------------------> * x^2048 ^ w0
 *
 * and in the end v0 onto v1, v2, v3, their lanes 0, 1, 2 onto lane 3, and the 16 bytes left go
 * through the crc32 instruction.
 *
 * The factors. The first eight bytes of a lane stand 8 bytes before its others, so they have to
 * move by d + 8 bytes, x^(8 d + 64), the others by x^(8 d). A factor of 32 bits in the low half of
 * a word of 64 counts x^32 more than it says, and a product of two words has 127 bits, its x^0 one
 * below the top of 128: one x more. This leaves x^(8 d + 31) and x^(8 d - 33).
 */

/* To fold by a distance of `vectors` = 1, 2, 4, 8 vectors. */
LMC__INLINE512 __m512i lmc__crc_factor(unsigned vectors)
{
    const uint64_t *fold = lmc__crc_folds[vectors == 1   ? 0
                                          : vectors == 2 ? 1
                                          : vectors == 4 ? 2
                                                         : 3];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold));
}

/* a folded onto b, in each of the four lanes */
LMC__INLINE512 __m512i lmc__crc_fold(__m512i a, __m512i k, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
                                     _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96); /* a ^ b ^ c */
}

/* What a message's first vector is xored with, to continue from crc: the register is added to the
 * first 32 bits. */
LMC__INLINE512 __m512i lmc__crc_start(uint32_t crc)
{
    return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
}

/* The CRC of n vectors, one after the other. */
LMC__INLINE512 uint32_t lmc__crc_finish(const __m512i *v, unsigned n)
{
    const __m512i k64 = lmc__crc_factor(1), last = _mm512_loadu_si512(lmc__crc_fold_last);
    __m512i sum = v[0], low;
    __m128i x;
    unsigned i;
    LMC__UNROLL for (i = 1; i < n; i++) sum = lmc__crc_fold(sum, k64, v[i]);
    /* lanes 0, 1, 2 onto lane 3, which has no factor */
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

/* == kernels/split_join.h ========================================================================= */

/*
 * split: byte p of element i, rotated left by one bit if rotate, to planes->row[p][i] (spec 7.2).
 * join: the inverse. Elements have `width` bytes, 1, 2, 4 or 8; all rows and the elements are read
 * and written exactly, of any alignment. The rotation brings the exponent of a float into a byte of
 * its own, the top one, and its sign to the lowest bit.
 */

/* Constant widths let the compiler unroll what is called. The flag is a constant for the scalar
 * bodies only, which lose up to half their speed otherwise. */
#define LMC__FOR_WIDTH(call)                                                                       \
    switch (width) {                                                                               \
    case 1: call(1); break;                                                                        \
    case 2: call(2); break;                                                                        \
    case 4: call(4); break;                                                                        \
    default: call(8);                                                                              \
    }

LMC__INLINE void lmc__split_body(const lmc__planes *planes, const uint8_t *src, size_t n,
                                 unsigned width, int rotate)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (width == 2) /* of constant length, which compilers turn into vector code by themselves */
        for (; i + 16 <= n; i += 16) {
            uint16_t e[16];
            uint8_t low[16], high[16];
            int j;
            lmc__load16x16(e, src + 2 * i);
            for (j = 0; j < 16; j++) {
                const uint16_t r = rotate ? (uint16_t)(e[j] << 1 | e[j] >> 15) : e[j];
                low[j] = (uint8_t)r;
                high[j] = (uint8_t)(r >> 8);
            }
            memcpy(planes->row[0] + i, low, 16);
            memcpy(planes->row[1] + i, high, 16);
        }
    for (; i + 8 <= n; i += 8) {
        lmc__split8(v, src + i * width, width, rotate);
        for (p = 0; p < width; p++) lmc__store64(planes->row[p] + i, v[p]);
    }
    if (i < n) {
        uint8_t tail[64], out[8];
        memset(tail, 0, sizeof tail);
        memcpy(tail, src + i * width, (n - i) * width);
        lmc__split8(v, tail, width, rotate);
        for (p = 0; p < width; p++) {
            lmc__store64(out, v[p]);
            memcpy(planes->row[p] + i, out, n - i);
        }
    }
}

LMC__INLINE void lmc__join_body(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                unsigned width, int rotate)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (width == 2)
        for (; i + 16 <= n; i += 16) {
            const uint8_t *low = planes->row[0] + i, *high = planes->row[1] + i;
            uint16_t e[16];
            int j;
            for (j = 0; j < 16; j++) {
                const uint16_t r = (uint16_t)(low[j] | high[j] << 8);
                e[j] = rotate ? (uint16_t)(r >> 1 | r << 15) : r;
            }
            lmc__store16x16(dst + 2 * i, e);
        }
    for (; i + 8 <= n; i += 8) {
        for (p = 0; p < width; p++) v[p] = lmc__load64(planes->row[p] + i);
        lmc__join8(dst + i * width, v, width, rotate);
    }
    if (i < n) {
        uint8_t tail[64], in[8];
        for (p = 0; p < width; p++) {
            memset(in, 0, sizeof in);
            memcpy(in, planes->row[p] + i, n - i);
            v[p] = lmc__load64(in);
        }
        lmc__join8(tail, v, width, rotate);
        memcpy(dst + i * width, tail, (n - i) * width);
    }
}

static void lmc__split_scalar(const lmc__planes *planes, const uint8_t *src, size_t n,
                              unsigned width, int rotate)
{
#define LMC__CALL(w)                                                                               \
    rotate ? lmc__split_body(planes, src, n, w, 1) : lmc__split_body(planes, src, n, w, 0)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}

static void lmc__join_scalar(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                             unsigned width, int rotate)
{
#define LMC__CALL(w)                                                                               \
    rotate ? lmc__join_body(dst, planes, n, w, 1) : lmc__join_body(dst, planes, n, w, 0)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}

#if LMC__NEON
#define LMC__ISA(name) lmc__##name##_neon
#define LMC__VECTOR uint8x16_t
#define LMC__INLINE_ISA LMC__INLINE
/* -- kernels/split_join_vec.inl -- */
/* split and join for the vectors of a tier: a template, included once for each of them, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *
 * which it undefines at its end. A block of `width` vectors of elements, in order, becomes
 * one vector for each plane in log2(width) steps; each sorts bytes by one more bit of their place p
 * within the element. Width 4, a vector of 8 bytes, where 21 is byte 1 of element 2:
 *
 *     v[0]  00 01 02 03 10 11 12 13         00 02 10 12 20 22 30 32         00 10 20 30 40 50 60 70
 *     v[1]  20 21 22 23 30 31 32 33  s = 1  40 42 50 52 60 62 70 72  s = 2  01 11 21 31 41 51 61 71
 *     v[2]  40 41 42 43 50 51 52 53  ---->  01 03 11 13 21 23 31 33  ---->  02 12 22 32 42 52 62 72
 *     v[3]  60 61 62 63 70 71 72 73         41 43 51 53 61 63 71 73         03 13 23 33 43 53 63 73
 *
 * Before step s = 1, 2, 4, the bytes of p = r (mod s) are in vectors r * parts + j, the j-th part
 * of them, parts = width / s; its even bytes have p = r, its odd ones p = r + s (mod 2 s). The
 * steps of a join are the same backwards. All bounds are constant where this is inlined, and gcc
 * must be told to unroll. */
LMC__INLINE_ISA void LMC__ISA(split_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        t[r * half + j] = LMC__ISA(even)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
        t[(r + s) * half + j] = LMC__ISA(odd)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

LMC__INLINE_ISA void LMC__ISA(join_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        LMC__ISA(zip)(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],
                      v[(r + s) * half + j]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

/* Elements to planes, in place. */
LMC__INLINE_ISA void LMC__ISA(split_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 2) LMC__ISA(split_step)(v, width, 1);
    if (width >= 4) LMC__ISA(split_step)(v, width, 2);
    if (width >= 8) LMC__ISA(split_step)(v, width, 4);
}

/* And back. */
LMC__INLINE_ISA void LMC__ISA(join_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 8) LMC__ISA(join_step)(v, width, 4);
    if (width >= 4) LMC__ISA(join_step)(v, width, 2);
    if (width >= 2) LMC__ISA(join_step)(v, width, 1);
}

LMC__INLINE_ISA void LMC__ISA(split_body)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, int rotate)
{
    lmc__planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[p] = LMC__ISA(load)(src + i * width + sizeof v[0] * p);
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 1);
        }
        LMC__ISA(split_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++) LMC__ISA(store)(planes->row[p] + i, v[p]);
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__split_scalar(&rest, src + i * width, n - i, width, rotate);
}

LMC__INLINE_ISA void LMC__ISA(join_body)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                         unsigned width, int rotate)
{
    lmc__const_planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = LMC__ISA(load)(planes->row[p] + i);
        LMC__ISA(join_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 0);
            LMC__ISA(store)(dst + i * width + sizeof v[0] * p, v[p]);
        }
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__join_scalar(dst + i * width, &rest, n - i, width, rotate);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */

static void lmc__split_neon(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                            int rotate)
{
#define LMC__CALL(w) lmc__split_body_neon(planes, src, n, w, rotate)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}

static void lmc__join_neon(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                           int rotate){
#define LMC__CALL(w) lmc__join_body_neon(dst, planes, n, w, rotate)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif

#if LMC__X86
#define LMC__ISA(name) lmc__##name##_avx2
#define LMC__VECTOR __m256i
#define LMC__INLINE_ISA LMC__INLINE2
/* -- kernels/split_join_vec.inl -- */
LMC__INLINE_ISA void LMC__ISA(split_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        t[r * half + j] = LMC__ISA(even)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
        t[(r + s) * half + j] = LMC__ISA(odd)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

LMC__INLINE_ISA void LMC__ISA(join_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        LMC__ISA(zip)(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],
                      v[(r + s) * half + j]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

LMC__INLINE_ISA void LMC__ISA(split_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 2) LMC__ISA(split_step)(v, width, 1);
    if (width >= 4) LMC__ISA(split_step)(v, width, 2);
    if (width >= 8) LMC__ISA(split_step)(v, width, 4);
}

LMC__INLINE_ISA void LMC__ISA(join_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 8) LMC__ISA(join_step)(v, width, 4);
    if (width >= 4) LMC__ISA(join_step)(v, width, 2);
    if (width >= 2) LMC__ISA(join_step)(v, width, 1);
}

LMC__INLINE_ISA void LMC__ISA(split_body)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, int rotate)
{
    lmc__planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[p] = LMC__ISA(load)(src + i * width + sizeof v[0] * p);
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 1);
        }
        LMC__ISA(split_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++) LMC__ISA(store)(planes->row[p] + i, v[p]);
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__split_scalar(&rest, src + i * width, n - i, width, rotate);
}

LMC__INLINE_ISA void LMC__ISA(join_body)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                         unsigned width, int rotate)
{
    lmc__const_planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = LMC__ISA(load)(planes->row[p] + i);
        LMC__ISA(join_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 0);
            LMC__ISA(store)(dst + i * width + sizeof v[0] * p, v[p]);
        }
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__join_scalar(dst + i * width, &rest, n - i, width, rotate);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */

#define LMC__ISA(name) lmc__##name##_avx512
#define LMC__VECTOR __m512i
#define LMC__INLINE_ISA LMC__INLINE512
/* -- kernels/split_join_vec.inl -- */
LMC__INLINE_ISA void LMC__ISA(split_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        t[r * half + j] = LMC__ISA(even)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
        t[(r + s) * half + j] = LMC__ISA(odd)(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

LMC__INLINE_ISA void LMC__ISA(join_step)(LMC__VECTOR v[8], unsigned width, unsigned s)
{
    const unsigned parts = width / s, half = parts / 2;
    LMC__VECTOR t[8];
    unsigned i;
    LMC__UNROLL for (i = 0; i < width / 2; i++)
    {
        const unsigned r = i / half, j = i % half;
        LMC__ISA(zip)(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],
                      v[(r + s) * half + j]);
    }
    LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];
}

LMC__INLINE_ISA void LMC__ISA(split_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 2) LMC__ISA(split_step)(v, width, 1);
    if (width >= 4) LMC__ISA(split_step)(v, width, 2);
    if (width >= 8) LMC__ISA(split_step)(v, width, 4);
}

LMC__INLINE_ISA void LMC__ISA(join_vectors)(LMC__VECTOR v[8], unsigned width)
{
    if (width >= 8) LMC__ISA(join_step)(v, width, 4);
    if (width >= 4) LMC__ISA(join_step)(v, width, 2);
    if (width >= 2) LMC__ISA(join_step)(v, width, 1);
}

LMC__INLINE_ISA void LMC__ISA(split_body)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, int rotate)
{
    lmc__planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[p] = LMC__ISA(load)(src + i * width + sizeof v[0] * p);
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 1);
        }
        LMC__ISA(split_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++) LMC__ISA(store)(planes->row[p] + i, v[p]);
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__split_scalar(&rest, src + i * width, n - i, width, rotate);
}

LMC__INLINE_ISA void LMC__ISA(join_body)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                         unsigned width, int rotate)
{
    lmc__const_planes rest;
    LMC__VECTOR v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = LMC__ISA(load)(planes->row[p] + i);
        LMC__ISA(join_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            if (rotate) v[p] = LMC__ISA(rotate)(v[p], width, 0);
            LMC__ISA(store)(dst + i * width + sizeof v[0] * p, v[p]);
        }
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__join_scalar(dst + i * width, &rest, n - i, width, rotate);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
/* -- */

LMC__AVX2 static void lmc__split_avx2(const lmc__planes *planes, const uint8_t *src, size_t n,
                                      unsigned width, int rotate){
#define LMC__CALL(w) lmc__split_body_avx2(planes, src, n, w, rotate)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}

LMC__AVX2 static void lmc__join_avx2(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                     unsigned width, int rotate){
#define LMC__CALL(w) lmc__join_body_avx2(dst, planes, n, w, rotate)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}

LMC__AVX512 static void lmc__split_avx512(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, int rotate)
{
#define LMC__CALL(w) lmc__split_body_avx512(planes, src, n, w, rotate)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif

/* == kernels/count.h ============================================================================== */

/* count_bytes: counts[v] += number of bytes v in src[0, n); on every tier the same. Eight tables,
 * because a count that was stored a few cycles ago is slow to load, and in skewed planes most bytes
 * want the same one. */
static void lmc__count_bytes(uint32_t counts[256], const uint8_t *src, size_t n)
{
    const size_t most = (size_t)8 << 15; /* bytes that counts of 16 bits suffice for: each table
                                            gets an eighth of them */
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

/* is_constant: 1 if src[0, n), n > 0, are all equal, which is to say that each byte equals its
 * successor. */
static int lmc__is_constant_scalar(const uint8_t *src, size_t n)
{
    return memcmp(src, src + 1, n - 1) == 0;
}

/* count_ones: the number of one bits in mask[0, size). Here: sums of 1, 2, 4 bits side by side in a
 * word, then all bytes in the top one, by a multiplication. */
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
    /* a lane grows by 128 at most in a step: enough for masks of 2 GiB, and a block has 2^20 bits
     */
    ones = (size_t)vaddlvq_u32(sum);
    for (; i < size; i++) ones += lmc__ones[mask[i]];
    return ones;
}
#endif

#if LMC__X86
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

/* == kernels/map.h ================================================================================ */

/*
 * map: dst[i] = table[src[i]], table of 256 bytes; dst == src is legal. Both are exact. Encoders
 * map symbols to ranks, the order of their leaves, and partition these.
 */

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

#if LMC__NEON

/* Four look-ups of 64 entries each, by places less 0, 64, 128, 192. For places out of range tbl
 * gives 0, and tbx keeps what was there: so each place counts once. */
static void lmc__map_neon(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    const uint8x16x4_t t0 = lmc__load64_neon(table), t1 = lmc__load64_neon(table + 64),
                       t2 = lmc__load64_neon(table + 128), t3 = lmc__load64_neon(table + 192);
    const uint8x16_t step = vdupq_n_u8(64);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        uint8x16_t v = vld1q_u8(src + i), out = vqtbl4q_u8(t0, v);
        out = vqtbx4q_u8(out, t1, v = vsubq_u8(v, step));
        out = vqtbx4q_u8(out, t2, v = vsubq_u8(v, step));
        vst1q_u8(dst + i, vqtbx4q_u8(out, t3, vsubq_u8(v, step)));
    }
    lmc__map_scalar(dst + i, src + i, n - i, table);
}
#endif

#if LMC__AVX2_TEXT
/*
 * AVX2 looks up among 16 entries only, so the table is 16 rows of 16. But ranks are permutations in
 * which most rows just count up: there the distance between an entry and its place is the same
 * throughout.
 *
 *     place     00 01 02 03 ...    10 11 12 13 ...    20 21 22 23 ...
 *     entry     05 06 07 08 ...    02 15 00 16 ...    30 31 32 33 ...
 *     distance  05 in all          F2, corrected by   10 in all
 *               the row            00 12 FC 11 ...
 *
 * One shuffle, by a place's upper half, finds its row's distance. One more for each row that needs
 * it, by the lower half, adds the corrections. All sums are modulo 256.
 */
typedef struct lmc__rows {
    uint8_t distance[16]; /* of each row's first entry from its place */
    unsigned n;           /* rows to correct */
    uint8_t first[16];    /* places where they start */
    uint8_t more[16][16]; /* what is added there: entry - place - distance */
} lmc__rows;

LMC__AVX2 static void lmc__set_rows_avx2(lmc__rows *rows, const uint8_t *table)
{
    const __m128i up = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    unsigned i;
    rows->n = 0;
    for (i = 0; i < 16; i++) {
        const __m128i row = _mm_loadu_si128((const __m128i *)(const void *)(table + 16 * i));
        const __m128i more =
            _mm_sub_epi8(_mm_sub_epi8(row, up), _mm_set1_epi8((char)table[16 * i]));
        rows->distance[i] = (uint8_t)(table[16 * i] - 16 * i);
        if (_mm_movemask_epi8(_mm_cmpeq_epi8(more, _mm_setzero_si128())) == 0xFFFF) continue;
        rows->first[rows->n] = (uint8_t)(16 * i);
        _mm_storeu_si128((__m128i *)(void *)rows->more[rows->n++], more);
    }
}

LMC__INLINE2 __m256i lmc__map_step_avx2(const lmc__rows *rows, __m256i v)
{
    const __m256i row = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    __m256i out = _mm256_add_epi8(v, _mm256_shuffle_epi8(lmc__load_row_avx2(rows->distance), row));
    unsigned i;
    for (i = 0; i < rows->n; i++) {
        /* v ^ first is below 16 in this row only; 0x70 more, saturated, sets bit 7 of all others,
         * for which a shuffle gives 0 */
        const __m256i place = _mm256_adds_epu8(
            _mm256_xor_si256(v, _mm256_set1_epi8((char)rows->first[i])), _mm256_set1_epi8(0x70));
        out = _mm256_add_epi8(out, _mm256_shuffle_epi8(lmc__load_row_avx2(rows->more[i]), place));
    }
    return out;
}

LMC__AVX2 static void lmc__map_avx2(uint8_t *dst, const uint8_t *src, size_t n,
                                    const uint8_t *table)
{
    lmc__rows rows;
    size_t i;
    lmc__set_rows_avx2(&rows, table);
    for (i = 0; i + 32 <= n; i += 32)
        lmc__store_avx2(dst + i, lmc__map_step_avx2(&rows, lmc__load_avx2(src + i)));
    lmc__map_scalar(dst + i, src + i, n - i, table);
}

#endif

#if LMC__X86
/* Two look-ups of 128 entries each, which ignore bit 7 of a byte; bit 7 chooses between them. */
LMC__INLINE512 __m512i lmc__map_step_avx512(__m512i v, const __m512i table[4])
{
    const __m512i low = _mm512_permutex2var_epi8(table[0], v, table[1]),
                  high = _mm512_permutex2var_epi8(table[2], v, table[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v), high);
}

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

/* == kernels/partition.h ========================================================================== */

/*
 * partition: bit i of mask = (src[i] >= split); elements with 0 to the list left, with 1 to the
 * list right, in order. One node of a mask tree, encoded.
 *
 *     src    3 9 4 4 8 9 1 7        split 7
 *     mask   0 1 0 0 1 1 0 1
 *     left   3 4 4 1
 *     right  9 8 9 7
 *
 * src is a list. left and right may each be NULL (not wanted); left may be src, for it never
 * overtakes it. mask is written exactly; unused bits of its last byte are zero. Returns the number
 * of ones.
 *
 * All tiers sort a group of elements in a register by its mask, then store both parts in full
 * vectors. What a store writes behind the end of its part is overwritten by the next one, and in
 * the end lies in the slack of the list.
 */

static size_t lmc__partition_scalar(uint8_t *mask, uint8_t *left, uint8_t *right,
                                    const uint8_t *src, size_t n, unsigned split)
{
    const uint64_t s = split * LMC__ONES8;
    size_t i, n_right = 0, n_left = 0;
    for (i = 0; i < n; i += 8) {
        uint64_t v = lmc__load64(src + i);
        unsigned m = lmc__compare8(v, s), all = n - i >= 8 ? 255u : (1u << (n - i)) - 1, ones;
        m &= all;
        ones = lmc__ones[m];
        mask[i >> 3] = (uint8_t)m;
        if (right) lmc__store64(right + n_right, lmc__compress8(v, m));
        if (left) lmc__store64(left + n_left, lmc__compress8(v, m ^ all));
        n_right += ones;
        n_left += 8 - ones;
    }
    return n_right;
}

#if LMC__NEON

/* A step of 64 elements, of which n count. Returns the number of ones. Eight elements at a time are
 * sorted by a shuffle from lmc__sort_places: zeros to the lower half, ones to the upper. Where the
 * eight stores of a side go is known before the first, by one multiplication, so none waits. */
LMC__INLINE size_t lmc__partition64_neon(uint8_t *mask, uint8_t *left, uint8_t *right,
                                         const uint8_t *src, size_t n, unsigned split,
                                         int want_left, int want_right)
{
    const uint8x16_t s = vdupq_n_u8((uint8_t)split),
                     v[4] = {vld1q_u8(src), vld1q_u8(src + 16), vld1q_u8(src + 32),
                             vld1q_u8(src + 48)};
    const uint8x8_t m8 =
        lmc__first_bits_neon(lmc__collect_neon(vcgeq_u8(v[0], s), vcgeq_u8(v[1], s),
                                               vcgeq_u8(v[2], s), vcgeq_u8(v[3], s)),
                             n);
    const uint64_t m = vget_lane_u64(vreinterpret_u64_u8(m8), 0);
    const uint64_t ones = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(m8)), 0) *
                          LMC__ONES8; /* byte j: the ones of bytes 0 .. j of m */
    unsigned j;
    lmc__store_mask_neon(mask, m8, n);
    if (!want_left && !want_right) return (size_t)(ones >> 56);
    LMC__UNROLL for (j = 0; j < 8; j++)
    {
        const size_t before = j ? (size_t)(ones >> (8 * j - 8) & 255) : 0;
        const uint8x16_t half = j & 1 ? vextq_u8(v[j / 2], v[j / 2], 8) : v[j / 2];
        const uint8x16_t x = vqtbl1q_u8(half, lmc__load_sort_places_neon(m >> 8 * j & 255));
        if (want_left) vst1_u8(left - before + 8 * j, vget_low_u8(x));
        if (want_right) vst1_u8(right + before, vget_high_u8(x));
    }
    return (size_t)(ones >> 56);
}

LMC__INLINE size_t lmc__partition_body_neon(uint8_t *mask, uint8_t *left, uint8_t *right,
                                            const uint8_t *src, size_t n, unsigned split,
                                            int want_left, int want_right)
{
    size_t n_right = 0;
    for (; n >= 64; n -= 64, src += 64, mask += 8) {
        const size_t ones =
            lmc__partition64_neon(mask, left, right, src, 64, split, want_left, want_right);
        if (want_left) left += 64 - ones;
        if (want_right) right += ones;
        n_right += ones;
    }
    if (n != 0)
        n_right += lmc__partition64_neon(mask, left, right, src, n, split, want_left, want_right);
    return n_right;
}

static size_t lmc__partition_neon(uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src,
                                  size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_neon(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_neon(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_neon(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_neon(mask, left, right, src, n, split, 0, 0);
}
#endif

#if LMC__AVX2_TEXT

/* The 8 bytes in the lower or, if high, in the upper half of v. */
LMC__INLINE2 void lmc__partition8_avx2(uint8_t *left, uint8_t *right, size_t n_left, size_t n_right,
                                       __m128i v, int high, unsigned m)
{
    const __m128i places = lmc__load_sort_places_avx2(m);
    const __m128i x = _mm_shuffle_epi8(high ? _mm_unpackhi_epi64(v, v) : v, places);
    if (left) _mm_storel_epi64((__m128i *)(void *)(left + n_left), x);
    if (right) lmc__store64(right + n_right, (uint64_t)_mm_extract_epi64(x, 1));
}

/* 32 elements, those in m to the right, behind n_left and n_right others: by eights, as on NEON.
 * Returns how many there are now on the right. */
LMC__INLINE2 size_t lmc__partition_step_avx2(uint8_t *left, uint8_t *right, size_t n_left,
                                             size_t n_right, __m256i v, uint32_t m)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    const size_t r1 = (size_t)_mm_popcnt_u64(m & 0xFF), r2 = (size_t)_mm_popcnt_u64(m & 0xFFFF),
                 r3 = (size_t)_mm_popcnt_u64(m & 0xFFFFFF);
    lmc__partition8_avx2(left, right, n_left, n_right, low, 0, m & 255);
    lmc__partition8_avx2(left, right, n_left + 8 - r1, n_right + r1, low, 1, m >> 8 & 255);
    lmc__partition8_avx2(left, right, n_left + 16 - r2, n_right + r2, high, 0, m >> 16 & 255);
    lmc__partition8_avx2(left, right, n_left + 24 - r3, n_right + r3, high, 1, m >> 24);
    return n_right + (size_t)_mm_popcnt_u64(m);
}

LMC__INLINE2 size_t lmc__partition_body_avx2(uint8_t *mask, uint8_t *left, uint8_t *right,
                                             const uint8_t *src, size_t n, unsigned split,
                                             int want_left, int want_right)
{
    const __m256i s = _mm256_set1_epi8((char)split);
    size_t i, n_right = 0;
    if (!want_left) left = NULL;
    if (!want_right) right = NULL;
    for (i = 0; i + 32 <= n; i += 32) {
        const __m256i v = lmc__load_avx2(src + i);
        const uint32_t m = lmc__compare_avx2(v, s);
        lmc__store32(mask + i / 8, m);
        n_right = lmc__partition_step_avx2(left, right, i - n_right, n_right, v, m);
    }
    if (i < n) {
        const __m256i v = lmc__load_avx2(src + i);
        const uint32_t m = lmc__compare_avx2(v, s) & (((uint32_t)1 << (n - i)) - 1);
        uint8_t word[4];
        lmc__store32(word, m);
        memcpy(mask + i / 8, word, (n - i + 7) / 8);
        n_right = lmc__partition_step_avx2(left, right, i - n_right, n_right, v, m);
    }
    return n_right;
}

LMC__AVX2 static size_t lmc__partition_avx2(uint8_t *mask, uint8_t *left, uint8_t *right,
                                            const uint8_t *src, size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_avx2(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_avx2(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_avx2(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_avx2(mask, left, right, src, n, split, 0, 0);
}
#endif

#if LMC__X86
/* vpcompressb sorts 64 elements at once, to a register, and a full store follows: the form with a
 * memory operand is microcoded on Zen 4. The zero-masked form waits for the old value of its
 * destination there; so the merge-masked one is used, whose other bytes do not matter. */
LMC__INLINE512 size_t lmc__partition_body_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                 const uint8_t *src, size_t n, unsigned split,
                                                 int want_left, int want_right)
{
    const __m512i s = _mm512_set1_epi8((char)split);
    size_t i, n_right = 0, n_left = 0;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_loadu_si512(src + i);
        const __mmask64 m = _mm512_cmpge_epu8_mask(v, s); /* m[j] = v[j] >= split */
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        lmc__store64(mask + i / 8, m);
        if (want_right) _mm512_storeu_si512(right + n_right, _mm512_mask_compress_epi8(v, m, v));
        if (want_left) _mm512_storeu_si512(left + n_left, _mm512_mask_compress_epi8(v, ~m, v));
        n_right += ones;
        n_left += 64 - ones;
    }
    if (i < n) {
        const __mmask64 valid = ((__mmask64)1 << (n - i)) - 1;
        const __m512i v = _mm512_loadu_si512(src + i);
        const __mmask64 m = _mm512_mask_cmpge_epu8_mask(valid, v, s);
        uint8_t bits[8];
        lmc__store64(bits, m);
        memcpy(mask + i / 8, bits, (n - i + 7) / 8);
        if (want_right) _mm512_storeu_si512(right + n_right, _mm512_mask_compress_epi8(v, m, v));
        if (want_left)
            _mm512_storeu_si512(left + n_left, _mm512_mask_compress_epi8(v, valid & ~m, v));
        n_right += (size_t)_mm_popcnt_u64(m);
    }
    return n_right;
}

LMC__AVX512 static size_t lmc__partition_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_avx512(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_avx512(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_avx512(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_avx512(mask, left, right, src, n, split, 0, 0);
}
#endif

/* == kernels/merge.h ============================================================================== */

/*
 * merge: dst[i] = the next element of left (bit i of mask is 0) or right (1). One node of a mask
 * tree, decoded: the inverse of partition. A side may be a constant instead of a list. dst is a
 * list, mask is read exactly.
 *
 *     mask   0 1 0 0 1 1 0 1         place in its list   0 0 1 2 1 2 3 3
 *     left   3 4 4 1
 *     right  9 8 9 7
 *     dst    3 9 4 4 8 9 1 7
 *
 * An element's place is the number of mask bits of its kind before it. All tiers find the places of
 * a group of elements from its mask bits, shuffle both sides to them, and choose by the mask.
 */

static void lmc__merge_scalar(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                              lmc__side right)
{
    const uint64_t l = left.value * LMC__ONES8, r = right.value * LMC__ONES8;
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    if (a && b) {
        for (i = 0; i < n; i += 8) {
            unsigned m = mask[i >> 3], ones = lmc__ones[m];
            lmc__store64(dst + i,
                         lmc__expand8(lmc__load64(a), m ^ 255) | lmc__expand8(lmc__load64(b), m));
            a += lmc__min(8 - ones,
                          n - i); /* the last mask byte has zero bits that stand for nothing */
            b += ones;
        }
    } else if (a) {
        for (i = 0; i < n; i += 8) {
            unsigned m = mask[i >> 3];
            lmc__store64(dst + i, lmc__expand8(lmc__load64(a), m ^ 255) | (r & lmc__byte_mask[m]));
            a += 8 - lmc__ones[m];
        }
    } else if (b) {
        for (i = 0; i < n; i += 8) {
            unsigned m = mask[i >> 3];
            lmc__store64(dst + i, lmc__expand8(lmc__load64(b), m) | (l & ~lmc__byte_mask[m]));
            b += lmc__ones[m];
        }
    } else {
        for (i = 0; i < n; i += 8)
            lmc__store64(dst + i, l ^ ((l ^ r) & lmc__byte_mask[mask[i >> 3]]));
    }
}

#if LMC__NEON
/* Elements [16 j, 16 j + 16) of a step of 64: both sides' next 16 bytes are in x, and one look-up
 * among the 32 takes the right ones. The tables have the places of eight elements; those of the
 * second eight depend on the number c of ones in the first: lmc__merge_high has them so that |high
 * - c| corrects both kinds. counts: ones in each byte of m; ones: in all up to it. A macro, for
 * clang wants the number of a lane to be a literal. */
#define LMC__MERGE16(j)                                                                            \
    do {                                                                                           \
        const size_t before = (j) ? (size_t)(ones >> ((16 * (j) - 8) & 63) & 255) : 0;             \
        const uint8x8_t low = vcreate_u8(lmc__merge_low[m >> 16 * (j) & 255]);                     \
        const int8x8_t high = vabd_s8(vcreate_s8(lmc__merge_high[m >> (16 * (j) + 8) & 255]),      \
                                      vreinterpret_s8_u8(vdup_lane_u8(counts, 2 * (j))));          \
        if (left_list) x.val[0] = vld1q_u8(a - before + 16 * (j));                                 \
        if (right_list) x.val[1] = vld1q_u8(b + before);                                           \
        vst1q_u8(dst + 16 * (j), vqtbl2q_u8(x, vcombine_u8(low, vreinterpret_u8_s8(high))));       \
    } while (0)

LMC__INLINE void lmc__merge_body_neon(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                                      lmc__side right, int left_list, int right_list)
{
    const uint8_t *a = left.list, *b = right.list;
    uint8x16x2_t x;
    x.val[0] = vdupq_n_u8(left.value);
    x.val[1] = vdupq_n_u8(right.value);
    for (;; n -= 64, mask += 8, dst += 64) {
        const uint8x8_t m8 = lmc__load_mask_neon(mask, n), counts = vcnt_u8(m8);
        const uint64_t m = vget_lane_u64(vreinterpret_u64_u8(m8), 0),
                       ones = vget_lane_u64(vreinterpret_u64_u8(counts), 0) * LMC__ONES8;
        LMC__MERGE16(0);
        LMC__MERGE16(1);
        LMC__MERGE16(2);
        LMC__MERGE16(3);
        if (n <= 64) return;
        if (left_list) a += 64 - (ones >> 56);
        if (right_list) b += ones >> 56;
    }
}

/* Between two constants each bit, spread to a byte, chooses. */
static void lmc__choose_neon(uint8_t *dst, const uint8_t *mask, size_t n, uint8_t left,
                             uint8_t right)
{
    const uint8x16_t l = vdupq_n_u8(left), r = vdupq_n_u8(right);
    size_t i;
    unsigned j;
    for (i = 0; i < n; i += 64) {
        const uint8x8_t m = lmc__load_mask_neon(mask + i / 8, n - i);
        LMC__UNROLL for (j = 0; j < 4; j++)
            vst1q_u8(dst + i + 16 * j, vbslq_u8(lmc__spread_neon(m, j), r, l));
    }
}

static void lmc__merge_neon(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                            lmc__side right)
{
    if (left.list && right.list) lmc__merge_body_neon(dst, mask, n, left, right, 1, 1);
    else if (left.list) lmc__merge_body_neon(dst, mask, n, left, right, 1, 0);
    else if (right.list) lmc__merge_body_neon(dst, mask, n, left, right, 0, 1);
    else lmc__choose_neon(dst, mask, n, left.value, right.value);
}
#endif

#if LMC__AVX2_TEXT

/* 32 elements, in halves of 16, for byte shuffles see no more. With the mask's bits as bytes 0 or
 * -1, sums up to each element give minus the number of ones up to it, itself included, s:
 *
 *     an element of the left   is number i + s     of its half's (no ones of its own)
 *     one of the right         is number -s - 1 = ~s
 *
 * Tables for this, as on NEON, would want shuffles by 8 bytes and cost more. */
LMC__INLINE2 __m256i lmc__merge_step_avx2(uint32_t m, const uint8_t *a, const uint8_t *b, __m256i l,
                                          __m256i r, int left_list, int right_list)
{
    const __m256i up = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
                                        2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i one = lmc__spread_bits_avx2(m);
    const size_t half = (size_t)_mm_popcnt_u64(m & 0xFFFF); /* ones in the first half */
    __m256i sum = one;
    if (left_list || right_list) sum = lmc__sum_up_avx2(sum);
    if (left_list)
        l = _mm256_shuffle_epi8(lmc__load_pair_avx2(a, a + 16 - half), _mm256_add_epi8(up, sum));
    if (right_list)
        r = _mm256_shuffle_epi8(lmc__load_pair_avx2(b, b + half),
                                _mm256_xor_si256(sum, _mm256_set1_epi16(-1)));
    return lmc__blend_avx2(one, r, l);
}

LMC__INLINE2 void lmc__merge_body_avx2(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                                       lmc__side right, int left_list, int right_list)
{
    const __m256i l = _mm256_set1_epi8((char)left.value), r = _mm256_set1_epi8((char)right.value);
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    for (i = 0; i + 32 <= n; i += 32) {
        const uint32_t m = lmc__load32(mask + i / 8);
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        lmc__store_avx2(dst + i, lmc__merge_step_avx2(m, a, b, l, r, left_list, right_list));
        if (left_list) a += 32 - ones;
        if (right_list) b += ones;
    }
    if (i < n)
        lmc__store_avx2(dst + i, lmc__merge_step_avx2((uint32_t)lmc__load_mask(mask, i, n), a, b, l,
                                                      r, left_list, right_list));
}

LMC__AVX2 static void lmc__merge_avx2(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                                      lmc__side right)
{
    if (left.list && right.list) lmc__merge_body_avx2(dst, mask, n, left, right, 1, 1);
    else if (left.list) lmc__merge_body_avx2(dst, mask, n, left, right, 1, 0);
    else if (right.list) lmc__merge_body_avx2(dst, mask, n, left, right, 0, 1);
    else lmc__merge_body_avx2(dst, mask, n, left, right, 0, 0);
}
#endif

#if LMC__X86
/* vpexpandb is the merge of one side. */
LMC__INLINE512 __m512i lmc__merge_step_avx512(uint64_t m, const uint8_t *a, const uint8_t *b,
                                              __m512i l, __m512i r, int left_list, int right_list)
{
    __m512i v = l;
    if (left_list) { /* the merge-masked form, which has no false dependency */
        const __m512i x = _mm512_loadu_si512(a);
        v = _mm512_mask_expand_epi8(x, ~m, x);
    }
    return right_list ? _mm512_mask_expand_epi8(v, m, _mm512_loadu_si512(b))
                      : _mm512_mask_mov_epi8(v, m, r);
}

LMC__INLINE512 void lmc__merge_body_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                           lmc__side left, lmc__side right, int left_list,
                                           int right_list)
{
    const __m512i l = _mm512_set1_epi8((char)left.value), r = _mm512_set1_epi8((char)right.value);
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    for (i = 0; i + 64 <= n; i += 64) {
        const uint64_t m = lmc__load64(mask + i / 8);
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(m, a, b, l, r, left_list, right_list));
        if (left_list) a += 64 - ones;
        if (right_list) b += ones;
    }
    if (i < n)
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(lmc__load_mask(mask, i, n), a, b, l, r,
                                                            left_list, right_list));
}

LMC__AVX512 static void lmc__merge_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                          lmc__side left, lmc__side right)
{
    if (left.list && right.list) lmc__merge_body_avx512(dst, mask, n, left, right, 1, 1);
    else if (left.list) lmc__merge_body_avx512(dst, mask, n, left, right, 1, 0);
    else if (right.list) lmc__merge_body_avx512(dst, mask, n, left, right, 0, 1);
    else lmc__merge_body_avx512(dst, mask, n, left, right, 0, 0);
}
#endif

#if LMC__SIMDE
/* Between two constants the scalar kernel wins: it has no bytes to shuffle. */
static void lmc__merge_simde(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                             lmc__side right)
{
    if (left.list || right.list) lmc__merge_avx2(dst, mask, n, left, right);
    else lmc__merge_scalar(dst, mask, n, left, right);
}
#endif

/* == kernels/flatten.h ============================================================================ */

/*
 * Flat nodes (spec 8.2): all 2^depth leaves below a node have the same depth, 2 to 6, so that an
 * element is a number of so many bits, and the node is `depth` bit planes, the most significant
 * first, of ceil(n / 8) bytes each:
 *
 *     src - first     5 2 7 0 ...           = 101 010 111 000 ...
 *     plane 0         1 0 1 0 ...
 *     plane 1         0 1 1 0 ...
 *     plane 2         1 0 1 0 ...
 *
 * flatten: src is a list, first <= src[i] < first + 2^depth; bits is written exactly, its unused
 * bits as zeros. unflatten: the inverse, dst[i] = symbols[number i]; dst is a list, symbols has
 * 2^depth entries. Both go through the planes once for each vector of elements; a plane is shifted
 * out of, or into, the bytes of that vector.
 */

static void lmc__flatten_scalar(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint64_t low = first * LMC__ONES8;
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 8) {
        /* no borrow between the bytes that count: src[i] >= first */
        uint64_t v = lmc__load64(src + i) - low;
        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;
        for (d = 0; d < depth; d++)
            bits[d * row + (i >> 3)] =
                (uint8_t)lmc__collect_bits(v >> (depth - 1 - d) & LMC__ONES8);
    }
}

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

#if LMC__NEON
/* A step of 64 elements, of which n count. */
LMC__INLINE void lmc__flatten64_neon(uint8_t *bits, size_t row, const uint8_t *src, size_t n,
                                     uint8x16_t first, unsigned depth)
{
    const uint8x16_t v[4] = {vsubq_u8(vld1q_u8(src), first), vsubq_u8(vld1q_u8(src + 16), first),
                             vsubq_u8(vld1q_u8(src + 32), first),
                             vsubq_u8(vld1q_u8(src + 48), first)};
    for (; depth-- != 0; bits += row) {
        const uint8x16_t bit = vdupq_n_u8((uint8_t)(1u << depth));
        const uint8x8_t m = lmc__collect_neon(vtstq_u8(v[0], bit), vtstq_u8(v[1], bit),
                                              vtstq_u8(v[2], bit), vtstq_u8(v[3], bit));
        lmc__store_mask_neon(bits, lmc__first_bits_neon(m, n), n);
    }
}

static void lmc__flatten_neon(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                              unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint8x16_t low = vdupq_n_u8((uint8_t)first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        lmc__flatten64_neon(bits, row, src, 64, low, depth);
    if (n != 0) lmc__flatten64_neon(bits, row, src, n, low, depth);
}

LMC__INLINE void lmc__unflatten64_neon(uint8_t *dst, const uint8_t *bits, size_t row, size_t n,
                                       uint8x16x4_t table, unsigned depth)
{
    uint8x16_t v[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    unsigned j;
    for (; depth-- != 0; bits += row) {
        const uint8x8_t m = lmc__load_mask_neon(bits, n);
        LMC__UNROLL for (j = 0; j < 4; j++) v[j] =
            vsliq_n_u8(lmc__spread_neon(m, j), v[j], 1); /* v = 2 v + bit */
    }
    LMC__UNROLL for (j = 0; j < 4; j++) vst1q_u8(dst + 16 * j, vqtbl4q_u8(table, v[j]));
}

static void lmc__unflatten_neon(uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    uint8x16x4_t table;
    uint8_t padded[64];
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    table = lmc__load64_neon(padded);
    for (; n >= 64; n -= 64, dst += 64, bits += 8)
        lmc__unflatten64_neon(dst, bits, row, 64, table, depth);
    if (n != 0) lmc__unflatten64_neon(dst, bits, row, n, table, depth);
}
#endif

#if LMC__AVX2_TEXT
LMC__AVX2 static void lmc__flatten_avx2(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                        unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m256i low = _mm256_set1_epi8((char)first);
    const __m128i up = _mm_cvtsi32_si128((int)(8 - depth));
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 32) {
        __m256i v = _mm256_sub_epi8(lmc__load_avx2(src + i), low);
        /* the top one of the depth bits to bit 7; what comes from a neighbour is below the last one
         */
        v = _mm256_sll_epi16(v, up);
        for (d = 0; d < depth; d++, v = _mm256_add_epi8(v, v)) {
            uint32_t m = (uint32_t)_mm256_movemask_epi8(v);
            uint8_t word[4];
            if (n - i >= 32) lmc__store32(bits + d * row + i / 8, m);
            else {
                lmc__store32(word, m & (((uint32_t)1 << (n - i)) - 1));
                memcpy(bits + d * row + i / 8, word, (n - i + 7) / 8);
            }
        }
    }
}

LMC__INLINE2 void lmc__unflatten_body_avx2(uint8_t *dst, const uint8_t *bits, size_t n,
                                           const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m256i three = _mm256_set1_epi8(3);
    __m256i table[4];
    uint8_t padded[64];
    size_t i;
    unsigned d, t;
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    for (t = 0; t < 4; t++) table[t] = lmc__load_row_avx2(padded + 16 * t);
    for (i = 0; i < n; i += 32) {
        const uint8_t *plane = bits;
        __m256i v = _mm256_setzero_si256(), out;
        LMC__UNROLL for (d = 0; d < 6; d++, plane += row)
        { /* v = 2 v + bit */
            uint32_t m;
            if (d >= depth) break;
            m = n - i >= 32 ? lmc__load32(plane + i / 8) : (uint32_t)lmc__load_mask(plane, i, n);
            v = _mm256_sub_epi8(_mm256_add_epi8(v, v), lmc__spread_bits_avx2(m));
        }
        out = _mm256_shuffle_epi8(table[0], v); /* looks at the low 4 bits: bit 7 is clear */
        if (depth > 4) {
            const __m256i row_of = _mm256_and_si256(_mm256_srli_epi16(v, 4), three);
            LMC__UNROLL for (t = 1; t < 4; t++) out =
                lmc__blend_avx2(_mm256_cmpeq_epi8(row_of, _mm256_set1_epi8((char)t)),
                                _mm256_shuffle_epi8(table[t], v), out);
        }
        lmc__store_avx2(dst + i, out);
    }
}

LMC__AVX2 static void lmc__unflatten_avx2(uint8_t *dst, const uint8_t *bits, size_t n,
                                          const uint8_t *symbols, unsigned depth)
{
    switch (depth) { /* what is a constant is faster by 5 %, by 15 % for 2 */
    case 2: lmc__unflatten_body_avx2(dst, bits, n, symbols, 2); break;
    case 3: lmc__unflatten_body_avx2(dst, bits, n, symbols, 3); break;
    case 4: lmc__unflatten_body_avx2(dst, bits, n, symbols, 4); break;
    default: lmc__unflatten_body_avx2(dst, bits, n, symbols, depth);
    }
}
#endif

#if LMC__X86
LMC__AVX512 static void lmc__flatten_avx512(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i low = _mm512_set1_epi8((char)first);
    size_t i;
    unsigned d;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_sub_epi8(_mm512_loadu_si512(src + i), low);
        for (d = 0; d < depth; d++)
            lmc__store64(bits + d * row + i / 8,
                         _mm512_test_epi8_mask(v, _mm512_set1_epi8((char)(1 << (depth - 1 - d)))));
    }
    if (i < n) {
        const __mmask64 valid = ((__mmask64)1 << (n - i)) - 1;
        const __m512i v = _mm512_sub_epi8(_mm512_loadu_si512(src + i), low);
        uint8_t word[8];
        for (d = 0; d < depth; d++) {
            lmc__store64(word, _mm512_mask_test_epi8_mask(
                                   valid, v, _mm512_set1_epi8((char)(1 << (depth - 1 - d)))));
            memcpy(bits + d * row + i / 8, word, row - i / 8);
        }
    }
}

LMC__INLINE512 void lmc__unflatten_body_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
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

/* == kernels/fold.h =============================================================================== */

/*
 * Joint coding (spec 7.4): the top byte of an element and the `extra` top bits of the byte below it
 * as one symbol. With extra = 2, of the two top bytes of n elements:
 *
 *     high  hhhhhhhh     low  xxllllll
 *     the wide symbol is hhhhhhhhxx; less joint->offset, modulo 256, it goes to symbols
 *     llllll, the packed bits, go to packed, which has 8 / extra - 1 rows:
 *
 *     element           0      1   ...  row-1     row  row+1  ...       packed_size ...  n-1
 *     packed, row 0   ..llllll ..llllll ...                              |
 *             row 1                              ..llllll ...            |
 *             row 2                                          ...         |
 *                     '' the fields of an element behind packed_size: its bits 1..0 in row 0,
 *                        3..2 in row 1, 5..4 in row 2
 *
 * A byte of packed has 8 - extra bits of an element of its own and, in the bits left, a field of
 * one of the last elements, those from packed_size on, of which there are at most `row`.
 *
 * fold: packed is zero before; symbols == high is legal. unfold: the inverse, of n elements from
 * number `first` on, whose symbols are at `symbols`. All rows are lists.
 */

/* The packed bits of element i. */
LMC__INLINE unsigned lmc__unpack(const uint8_t *packed, size_t i, const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    unsigned b, v = 0;
    if (i < joint->packed_size) return packed[i] & 255u >> extra;
    for (b = 0; b < 8 - extra; b += extra)
        v |= (unsigned)packed[b / extra * joint->row + i - joint->packed_size] >> (8 - extra) << b;
    return v;
}

/* Elements [i, n), one by one. */
static void lmc__fold_rest(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                           const uint8_t *low, size_t i, size_t n, const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    for (; i < n; i++) {
        const unsigned rest = low[i] & 255u >> extra;
        unsigned b;
        symbols[i] = (uint8_t)((high[i] << extra | low[i] >> (8 - extra)) - (int)joint->offset);
        if (i < joint->packed_size) packed[i] = (uint8_t)rest;
        else
            for (b = 0; b < 8 - extra; b += extra) {
                uint8_t *const p = packed + b / extra * joint->row + i - joint->packed_size;
                *p = (uint8_t)(*p | (rest >> b) << (8 - extra));
            }
    }
}

/* Elements [first + i, first + n), one by one. */
static void lmc__unfold_rest(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                             const uint8_t *packed, size_t first, size_t i, size_t n,
                             const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    for (; i < n; i++) {
        const unsigned wide = joint->offset + symbols[i];
        low[i] = (uint8_t)(wide << (8 - extra) | lmc__unpack(packed, first + i, joint));
        high[i] = (uint8_t)(wide >> extra);
    }
}

/* The tiers. */
#define LMC__ISA(name) lmc__##name##_scalar
#define LMC__VECTOR uint64_t
#define LMC__INLINE_ISA LMC__INLINE
#define LMC__STATIC_ISA static
/* -- kernels/fold_vec.inl -- */
/* fold and unfold for the vectors of a tier: a template, included once for each of them, between
 *
 *     LMC__VECTOR       the type of its vectors
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *     LMC__STATIC_ISA   what its other functions begin with
 *
 * which it undefines at its end. Shifts of bytes let bits of the neighbouring byte in; a select
 * removes them. `extra` is a constant where these are inlined. */

/* high and low to symbols. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(fold_step)(LMC__VECTOR high, LMC__VECTOR low, unsigned extra,
                                                unsigned offset)
{
    const LMC__VECTOR wide =
        LMC__ISA(select)(LMC__ISA(splat)((1u << extra) - 1), LMC__ISA(shr)(low, 8 - extra),
                         LMC__ISA(shl)(high, extra));
    return LMC__ISA(add)(wide, LMC__ISA(splat)((256 - offset) & 255));
}

/* The packed bits of low of elements behind packed_size; packed: where the field of the first is in
 * row 0. */
LMC__INLINE_ISA void LMC__ISA(pack_tail)(uint8_t *packed, LMC__VECTOR low, size_t row,
                                         unsigned extra)
{
    const LMC__VECTOR top = LMC__ISA(splat)((255u << (8 - extra)) & 255);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra) {
        uint8_t *const p = packed + b / extra * row;
        const LMC__VECTOR field = LMC__ISA(shl)(low, 8 - extra - b);
        LMC__ISA(store)(p, LMC__ISA(select)(top, field, LMC__ISA(load)(p)));
    }
}

/* And back. */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(unpack_tail)(const uint8_t *packed, size_t row, unsigned extra)
{
    LMC__VECTOR r = LMC__ISA(splat)(0);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra)
        r = LMC__ISA(select)(LMC__ISA(splat)(((1u << extra) - 1) << b),
                             LMC__ISA(shr)(LMC__ISA(load)(packed + b / extra * row), 8 - extra - b),
                             r);
    return r;
}

/* *high: symbols, *low: what was packed; to the bytes. s is the wide symbol modulo 256. The sum has
 * wrapped where it is below the offset's low byte: then the wide symbol's upper bits are one more
 * than the offset's. */
LMC__INLINE_ISA void LMC__ISA(unfold_step)(LMC__VECTOR *high, LMC__VECTOR *low, unsigned extra,
                                           unsigned offset)
{
    const LMC__VECTOR from = LMC__ISA(splat)(offset & 255), s = LMC__ISA(add)(*high, from);
    const LMC__VECTOR lower = LMC__ISA(splat)((offset >> 8 << (8 - extra)) & 255),
                      upper = LMC__ISA(splat)((((offset >> 8) + 1) << (8 - extra)) & 255);
    *high = LMC__ISA(select)(LMC__ISA(splat)(255u >> extra), LMC__ISA(shr)(s, extra),
                             LMC__ISA(select)(LMC__ISA(not_below)(s, from), lower, upper));
    *low = LMC__ISA(select)(LMC__ISA(splat)((255u << (8 - extra)) & 255),
                            LMC__ISA(shl)(s, 8 - extra), *low);
}

LMC__INLINE_ISA void LMC__ISA(fold_body)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                         const uint8_t *low, size_t n, const lmc__joint *joint,
                                         unsigned extra)
{
    const size_t n_main = lmc__min(n, joint->packed_size), row = joint->row;
    const unsigned offset = joint->offset;
    const LMC__VECTOR rest = LMC__ISA(splat)(255u >> extra), zero = LMC__ISA(splat)(0);
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(store)(packed + i, LMC__ISA(select)(rest, l, zero));
    }
    lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(pack_tail)(packed + (i - n_main), l, row, extra);
    }
    lmc__fold_rest(symbols, packed, high, low, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                    const uint8_t *low, size_t n, const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 1);
    else LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 2);
}

LMC__INLINE_ISA void LMC__ISA(unfold_body)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                           const uint8_t *packed, size_t first, size_t n,
                                           const lmc__joint *joint, unsigned extra)
{
    const size_t size = joint->packed_size, n_main = first < size ? lmc__min(n, size - first) : 0;
    const size_t row = joint->row;
    const unsigned offset = joint->offset;
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i), l = LMC__ISA(load)(packed + first + i);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i),
                    l = LMC__ISA(unpack_tail)(packed + (first + i - size), row, extra);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                      const uint8_t *packed, size_t first, size_t n,
                                      const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 1);
    else LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 2);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */

#if LMC__NEON
#define LMC__ISA(name) lmc__##name##_neon
#define LMC__VECTOR uint8x16_t
#define LMC__INLINE_ISA LMC__INLINE
#define LMC__STATIC_ISA static
/* -- kernels/fold_vec.inl -- */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(fold_step)(LMC__VECTOR high, LMC__VECTOR low, unsigned extra,
                                                unsigned offset)
{
    const LMC__VECTOR wide =
        LMC__ISA(select)(LMC__ISA(splat)((1u << extra) - 1), LMC__ISA(shr)(low, 8 - extra),
                         LMC__ISA(shl)(high, extra));
    return LMC__ISA(add)(wide, LMC__ISA(splat)((256 - offset) & 255));
}

LMC__INLINE_ISA void LMC__ISA(pack_tail)(uint8_t *packed, LMC__VECTOR low, size_t row,
                                         unsigned extra)
{
    const LMC__VECTOR top = LMC__ISA(splat)((255u << (8 - extra)) & 255);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra) {
        uint8_t *const p = packed + b / extra * row;
        const LMC__VECTOR field = LMC__ISA(shl)(low, 8 - extra - b);
        LMC__ISA(store)(p, LMC__ISA(select)(top, field, LMC__ISA(load)(p)));
    }
}

LMC__INLINE_ISA LMC__VECTOR LMC__ISA(unpack_tail)(const uint8_t *packed, size_t row, unsigned extra)
{
    LMC__VECTOR r = LMC__ISA(splat)(0);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra)
        r = LMC__ISA(select)(LMC__ISA(splat)(((1u << extra) - 1) << b),
                             LMC__ISA(shr)(LMC__ISA(load)(packed + b / extra * row), 8 - extra - b),
                             r);
    return r;
}

LMC__INLINE_ISA void LMC__ISA(unfold_step)(LMC__VECTOR *high, LMC__VECTOR *low, unsigned extra,
                                           unsigned offset)
{
    const LMC__VECTOR from = LMC__ISA(splat)(offset & 255), s = LMC__ISA(add)(*high, from);
    const LMC__VECTOR lower = LMC__ISA(splat)((offset >> 8 << (8 - extra)) & 255),
                      upper = LMC__ISA(splat)((((offset >> 8) + 1) << (8 - extra)) & 255);
    *high = LMC__ISA(select)(LMC__ISA(splat)(255u >> extra), LMC__ISA(shr)(s, extra),
                             LMC__ISA(select)(LMC__ISA(not_below)(s, from), lower, upper));
    *low = LMC__ISA(select)(LMC__ISA(splat)((255u << (8 - extra)) & 255),
                            LMC__ISA(shl)(s, 8 - extra), *low);
}

LMC__INLINE_ISA void LMC__ISA(fold_body)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                         const uint8_t *low, size_t n, const lmc__joint *joint,
                                         unsigned extra)
{
    const size_t n_main = lmc__min(n, joint->packed_size), row = joint->row;
    const unsigned offset = joint->offset;
    const LMC__VECTOR rest = LMC__ISA(splat)(255u >> extra), zero = LMC__ISA(splat)(0);
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(store)(packed + i, LMC__ISA(select)(rest, l, zero));
    }
    lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(pack_tail)(packed + (i - n_main), l, row, extra);
    }
    lmc__fold_rest(symbols, packed, high, low, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                    const uint8_t *low, size_t n, const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 1);
    else LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 2);
}

LMC__INLINE_ISA void LMC__ISA(unfold_body)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                           const uint8_t *packed, size_t first, size_t n,
                                           const lmc__joint *joint, unsigned extra)
{
    const size_t size = joint->packed_size, n_main = first < size ? lmc__min(n, size - first) : 0;
    const size_t row = joint->row;
    const unsigned offset = joint->offset;
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i), l = LMC__ISA(load)(packed + first + i);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i),
                    l = LMC__ISA(unpack_tail)(packed + (first + i - size), row, extra);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                      const uint8_t *packed, size_t first, size_t n,
                                      const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 1);
    else LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 2);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */
#endif

#if LMC__AVX2_TEXT
#define LMC__ISA(name) lmc__##name##_avx2
#define LMC__VECTOR __m256i
#define LMC__INLINE_ISA LMC__INLINE2
#define LMC__STATIC_ISA LMC__AVX2 static
/* -- kernels/fold_vec.inl -- */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(fold_step)(LMC__VECTOR high, LMC__VECTOR low, unsigned extra,
                                                unsigned offset)
{
    const LMC__VECTOR wide =
        LMC__ISA(select)(LMC__ISA(splat)((1u << extra) - 1), LMC__ISA(shr)(low, 8 - extra),
                         LMC__ISA(shl)(high, extra));
    return LMC__ISA(add)(wide, LMC__ISA(splat)((256 - offset) & 255));
}

LMC__INLINE_ISA void LMC__ISA(pack_tail)(uint8_t *packed, LMC__VECTOR low, size_t row,
                                         unsigned extra)
{
    const LMC__VECTOR top = LMC__ISA(splat)((255u << (8 - extra)) & 255);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra) {
        uint8_t *const p = packed + b / extra * row;
        const LMC__VECTOR field = LMC__ISA(shl)(low, 8 - extra - b);
        LMC__ISA(store)(p, LMC__ISA(select)(top, field, LMC__ISA(load)(p)));
    }
}

LMC__INLINE_ISA LMC__VECTOR LMC__ISA(unpack_tail)(const uint8_t *packed, size_t row, unsigned extra)
{
    LMC__VECTOR r = LMC__ISA(splat)(0);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra)
        r = LMC__ISA(select)(LMC__ISA(splat)(((1u << extra) - 1) << b),
                             LMC__ISA(shr)(LMC__ISA(load)(packed + b / extra * row), 8 - extra - b),
                             r);
    return r;
}

LMC__INLINE_ISA void LMC__ISA(unfold_step)(LMC__VECTOR *high, LMC__VECTOR *low, unsigned extra,
                                           unsigned offset)
{
    const LMC__VECTOR from = LMC__ISA(splat)(offset & 255), s = LMC__ISA(add)(*high, from);
    const LMC__VECTOR lower = LMC__ISA(splat)((offset >> 8 << (8 - extra)) & 255),
                      upper = LMC__ISA(splat)((((offset >> 8) + 1) << (8 - extra)) & 255);
    *high = LMC__ISA(select)(LMC__ISA(splat)(255u >> extra), LMC__ISA(shr)(s, extra),
                             LMC__ISA(select)(LMC__ISA(not_below)(s, from), lower, upper));
    *low = LMC__ISA(select)(LMC__ISA(splat)((255u << (8 - extra)) & 255),
                            LMC__ISA(shl)(s, 8 - extra), *low);
}

LMC__INLINE_ISA void LMC__ISA(fold_body)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                         const uint8_t *low, size_t n, const lmc__joint *joint,
                                         unsigned extra)
{
    const size_t n_main = lmc__min(n, joint->packed_size), row = joint->row;
    const unsigned offset = joint->offset;
    const LMC__VECTOR rest = LMC__ISA(splat)(255u >> extra), zero = LMC__ISA(splat)(0);
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(store)(packed + i, LMC__ISA(select)(rest, l, zero));
    }
    lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(pack_tail)(packed + (i - n_main), l, row, extra);
    }
    lmc__fold_rest(symbols, packed, high, low, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                    const uint8_t *low, size_t n, const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 1);
    else LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 2);
}

LMC__INLINE_ISA void LMC__ISA(unfold_body)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                           const uint8_t *packed, size_t first, size_t n,
                                           const lmc__joint *joint, unsigned extra)
{
    const size_t size = joint->packed_size, n_main = first < size ? lmc__min(n, size - first) : 0;
    const size_t row = joint->row;
    const unsigned offset = joint->offset;
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i), l = LMC__ISA(load)(packed + first + i);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i),
                    l = LMC__ISA(unpack_tail)(packed + (first + i - size), row, extra);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                      const uint8_t *packed, size_t first, size_t n,
                                      const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 1);
    else LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 2);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */
#endif

#if LMC__X86
#define LMC__ISA(name) lmc__##name##_avx512
#define LMC__VECTOR __m512i
#define LMC__INLINE_ISA LMC__INLINE512
#define LMC__STATIC_ISA LMC__AVX512 static
/* -- kernels/fold_vec.inl -- */
LMC__INLINE_ISA LMC__VECTOR LMC__ISA(fold_step)(LMC__VECTOR high, LMC__VECTOR low, unsigned extra,
                                                unsigned offset)
{
    const LMC__VECTOR wide =
        LMC__ISA(select)(LMC__ISA(splat)((1u << extra) - 1), LMC__ISA(shr)(low, 8 - extra),
                         LMC__ISA(shl)(high, extra));
    return LMC__ISA(add)(wide, LMC__ISA(splat)((256 - offset) & 255));
}

LMC__INLINE_ISA void LMC__ISA(pack_tail)(uint8_t *packed, LMC__VECTOR low, size_t row,
                                         unsigned extra)
{
    const LMC__VECTOR top = LMC__ISA(splat)((255u << (8 - extra)) & 255);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra) {
        uint8_t *const p = packed + b / extra * row;
        const LMC__VECTOR field = LMC__ISA(shl)(low, 8 - extra - b);
        LMC__ISA(store)(p, LMC__ISA(select)(top, field, LMC__ISA(load)(p)));
    }
}

LMC__INLINE_ISA LMC__VECTOR LMC__ISA(unpack_tail)(const uint8_t *packed, size_t row, unsigned extra)
{
    LMC__VECTOR r = LMC__ISA(splat)(0);
    unsigned b;
    for (b = 0; b < 8 - extra; b += extra)
        r = LMC__ISA(select)(LMC__ISA(splat)(((1u << extra) - 1) << b),
                             LMC__ISA(shr)(LMC__ISA(load)(packed + b / extra * row), 8 - extra - b),
                             r);
    return r;
}

LMC__INLINE_ISA void LMC__ISA(unfold_step)(LMC__VECTOR *high, LMC__VECTOR *low, unsigned extra,
                                           unsigned offset)
{
    const LMC__VECTOR from = LMC__ISA(splat)(offset & 255), s = LMC__ISA(add)(*high, from);
    const LMC__VECTOR lower = LMC__ISA(splat)((offset >> 8 << (8 - extra)) & 255),
                      upper = LMC__ISA(splat)((((offset >> 8) + 1) << (8 - extra)) & 255);
    *high = LMC__ISA(select)(LMC__ISA(splat)(255u >> extra), LMC__ISA(shr)(s, extra),
                             LMC__ISA(select)(LMC__ISA(not_below)(s, from), lower, upper));
    *low = LMC__ISA(select)(LMC__ISA(splat)((255u << (8 - extra)) & 255),
                            LMC__ISA(shl)(s, 8 - extra), *low);
}

LMC__INLINE_ISA void LMC__ISA(fold_body)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                         const uint8_t *low, size_t n, const lmc__joint *joint,
                                         unsigned extra)
{
    const size_t n_main = lmc__min(n, joint->packed_size), row = joint->row;
    const unsigned offset = joint->offset;
    const LMC__VECTOR rest = LMC__ISA(splat)(255u >> extra), zero = LMC__ISA(splat)(0);
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(store)(packed + i, LMC__ISA(select)(rest, l, zero));
    }
    lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        const LMC__VECTOR h = LMC__ISA(load)(high + i), l = LMC__ISA(load)(low + i);
        LMC__ISA(store)(symbols + i, LMC__ISA(fold_step)(h, l, extra, offset));
        LMC__ISA(pack_tail)(packed + (i - n_main), l, row, extra);
    }
    lmc__fold_rest(symbols, packed, high, low, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(fold)(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                                    const uint8_t *low, size_t n, const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 1);
    else LMC__ISA(fold_body)(symbols, packed, high, low, n, joint, 2);
}

LMC__INLINE_ISA void LMC__ISA(unfold_body)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                           const uint8_t *packed, size_t first, size_t n,
                                           const lmc__joint *joint, unsigned extra)
{
    const size_t size = joint->packed_size, n_main = first < size ? lmc__min(n, size - first) : 0;
    const size_t row = joint->row;
    const unsigned offset = joint->offset;
    size_t i;
    for (i = 0; i + sizeof(LMC__VECTOR) <= n_main; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i), l = LMC__ISA(load)(packed + first + i);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);
    for (i = n_main; i + sizeof(LMC__VECTOR) <= n; i += sizeof(LMC__VECTOR)) {
        LMC__VECTOR h = LMC__ISA(load)(symbols + i),
                    l = LMC__ISA(unpack_tail)(packed + (first + i - size), row, extra);
        LMC__ISA(unfold_step)(&h, &l, extra, offset);
        LMC__ISA(store)(high + i, h);
        LMC__ISA(store)(low + i, l);
    }
    lmc__unfold_rest(high, low, symbols, packed, first, i, n, joint);
}

LMC__STATIC_ISA void LMC__ISA(unfold)(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                                      const uint8_t *packed, size_t first, size_t n,
                                      const lmc__joint *joint)
{
    if (joint->extra == 1) LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 1);
    else LMC__ISA(unfold_body)(high, low, symbols, packed, first, n, joint, 2);
}
#undef LMC__VECTOR
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */
#endif

/* == kernels/strip.h ============================================================================== */

/*
 * Strips and streams: how the fused kernels (split_root, join_root, count_classes, group, ungroup)
 * go through a block and through memory.
 *
 * Each of them does what several kernels could do one after the other: checksum, split, map,
 * partition, say. But a block does not fit into the first cache, and every pass over it would read
 * from the second what the pass before wrote there. So they take a strip of the block through all
 * stages, then the next one:
 *
 *   scalar, NEON, SIMDe   kernel after kernel, on one strip at a time
 *   AVX2                  all stages in one loop over the strip's vectors
 *   AVX-512               the same; a strip is one step of 64 elements, and the CRC, which AVX-512
 *                         computes in vector registers, needs no bytes in memory
 *
 * The vector loops take whole steps or strips only and return how far they came, an lmc__progress;
 * the kernels of the tier do the rest of the block, strip by strip. */

/* Bytes of elements in a strip. With a strip of planes and the lists that these are made of, it
 * stays in a first cache of 32 KiB. */
#define LMC__STRIP_SIZE 8192u

/* How many elements that are: 1024 of the widest ones, and always a multiple of 64, so that a strip
 * begins with a byte of the mask and ends with a step of any tier. */
#define LMC__STRIP_ELEMENTS(width) (LMC__STRIP_SIZE / (width))

/* What a vector loop has done: the first n elements, whose bytes in src or dst have that CRC-32C.
 * n_right, of split_root only: ones in their part of the root's mask. */
typedef struct lmc__progress {
    size_t n, n_right;
    uint32_t crc;
} lmc__progress;

LMC__INLINE lmc__progress lmc__no_progress(void)
{
    lmc__progress none;
    none.n = none.n_right = 0;
    none.crc = 0;
    return none;
}

#if LMC__X86
/* A loop is a function of its own for each width: in one function for all widths, gcc runs out of
 * registers for the counters and pointers of the innermost loop (3 to 6 % of join_root's time). */
#define LMC__LOOP2 static __attribute__((noinline)) LMC__AVX2
#define LMC__LOOP512 static __attribute__((noinline)) LMC__AVX512

#define LMC__PAGE 4096u

/* To be called with i = 0, k, 2 k, ..., k a divisor of the page's size: once a page, touches the
 * page behind the one of data[i]. The first access to a page waits until its address is translated,
 * and other stores and prefetches with it. A prefetch to the first cache gets that done before; one
 * to the second does not (Zen 4: without this, decoding bf16 took 1.4 times as long). A prefetch is
 * no access: where the data ends before that page, it does no harm. */
LMC__INLINE2 void lmc__touch_ahead(const uint8_t *data, size_t i)
{
    if (i % LMC__PAGE == 0)
        __builtin_prefetch((const uint8_t *)((uintptr_t)data + i + LMC__PAGE), 0, 3);
}

/* Encoders have looked at samples all over the block. That has broken the order of reads by which
 * the hardware foresees the next ones: fetch so many bytes ahead. */
#define LMC__FETCH_AHEAD 4096u

/* Fetches vector p of the step at element i of n, LMC__FETCH_AHEAD bytes early; not beyond the
 * block. */
LMC__INLINE512 void lmc__fetch_ahead_avx512(const uint8_t *src, size_t i, size_t n, unsigned width,
                                            unsigned p)
{
    LMC__PREFETCH(src + lmc__min(i * width + 64 * p + LMC__FETCH_AHEAD, n * width));
}

/* Bytes of streaming.next to fetch with each of n elements, so that all of them are there at the
 * end of the block. */
LMC__INLINE size_t lmc__next_per_element(lmc__streaming streaming, size_t n)
{
    return (streaming.next_size + n - 1) / n;
}

/* Fetches the share of the 64 elements from number i on, line by line. */
LMC__INLINE512 void lmc__fetch_next_avx512(lmc__streaming streaming, size_t i, size_t per_element)
{
    const size_t end = lmc__min((i + 64) * per_element, streaming.next_size);
    size_t at;
    for (at = i * per_element; at < end; at += LMC__LINE) {
        lmc__touch_ahead(streaming.next, at);
        LMC__PREFETCH(streaming.next + at);
    }
}

/*
 * Streaming stores want whole cache lines, and dst may start anywhere in one. So each line is put
 * together from the end of one vector and the start of the next; `head` bytes of dst stand before
 * its first full line:
 *
 *   vectors        |      v0       |      v1       |      v2       |
 *   lines     |  (head)  |    line 0     |    line 1     | (tail)  |
 *
 * line i = bytes [head, 64) of vector i, then [0, head) of vector i + 1. The head is stored from
 * v0, the tail from the last vector, both masked: nothing outside of dst is written. */
typedef struct lmc__streamer_avx512 {
    unsigned head;
    __m512i shift, last; /* places of a line's bytes in the two vectors; the vector before */
} lmc__streamer_avx512;

LMC__INLINE512 lmc__streamer_avx512 lmc__start_stream_avx512(const uint8_t *dst)
{
    lmc__streamer_avx512 s;
    s.head = (unsigned)((0 - (uintptr_t)dst) & 63);
    s.shift = _mm512_add_epi8(lmc__load_avx512(lmc__count_up), lmc__splat_avx512(s.head));
    s.last = _mm512_setzero_si512();
    return s;
}

/* The next vector of dst, which is at `at`. */
LMC__INLINE512 void lmc__stream_avx512(lmc__streamer_avx512 *s, uint8_t *at, __m512i v,
                                       int is_first)
{
    if (is_first) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << s->head) - 1, v);
    else
        _mm512_stream_si512((__m512i *)(void *)(at + s->head - 64),
                            _mm512_permutex2var_epi8(s->last, s->shift, v));
    s->last = v;
}

/* The last 64 - head bytes before `end`, where the next vector would be. */
LMC__INLINE512 void lmc__end_stream_avx512(const lmc__streamer_avx512 *s, uint8_t *end)
{
    _mm512_mask_storeu_epi8(end + s->head - 64, ~(__mmask64)0 >> s->head,
                            _mm512_permutex2var_epi8(s->last, s->shift, s->last));
}
#endif

/* == kernels/split_root.h ========================================================================= */

/*
 * split_root: the first thing an encoder does to a block, in one pass over it:
 *
 *   src --crc32c--> the result
 *    |
 *    +--split--> planes->row[0 .. width), each of n bytes exactly
 *                  |
 *                  +-- row[root->plane], a list, if root is not NULL:
 *                        --map by root->table--> ranks
 *                        --partition at root->split--> root->mask, root->left, root->right
 *
 * That is the root of one plane's tree; root->n_right becomes the number of ones in the mask. left
 * and right may be NULL (not wanted), and left may be the row itself. What the row holds afterwards
 * is not defined: to have the plane's bytes, call again without a root. */

/* Elements [done.n, n), strip by strip. This is the definition of split_root, and what the other
 * tiers end with.
 *
 * left may be the row: the ranks of a strip are in row[i, i + m) when they are partitioned, and at
 * most i of them have been written to left before. */
static uint32_t lmc__split_strips(const lmc__kernels *k, const lmc__planes *planes,
                                  lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                                  int rotate, lmc__progress done)
{
    size_t i, m;
    unsigned p;
    for (i = done.n; i < n; i += m) {
        lmc__planes strip;
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        for (p = 0; p < width; p++) strip.row[p] = planes->row[p] + i;
        done.crc = k->crc32c(done.crc, src + i * width, m * width);
        k->split(&strip, src + i * width, m, width, rotate);
        if (root) {
            uint8_t *const row = strip.row[root->plane],
                           *const left = root->left ? root->left + (i - done.n_right) : NULL,
                           *const right = root->right ? root->right + done.n_right : NULL;
            k->map(row, row, m, root->table);
            done.n_right += k->partition(root->mask + i / 8, left, right, row, m, root->split);
        }
    }
    if (root) root->n_right = done.n_right;
    return done.crc;
}

/* The tiers without a loop of their own: scalar, NEON, SIMDe. */
static uint32_t lmc__split_root_strips(const lmc__kernels *k, const lmc__planes *planes,
                                       lmc__parted *root, const uint8_t *src, size_t n,
                                       unsigned width, int rotate)
{
    return lmc__split_strips(k, planes, root, src, n, width, rotate, lmc__no_progress());
}

#if LMC__X86
/* Whole strips; the root, if any, is the top plane.
 *
 * The CRC is that of four lanes, a quarter of the strip each, since one crc32 instruction waits
 * three cycles for the one before. So while the vectors of elements [j, j + 32) are split, the
 * checksum reads 8 * width bytes of each lane, from byte j * width / 4 on: other bytes, but as
 * many, and all in the first cache. It takes none of the units that vectors need. */
LMC__INLINE2 lmc__progress lmc__split_root_loop_avx2(const lmc__planes *planes,
                                                     const lmc__parted *root, const uint8_t *src,
                                                     size_t n, unsigned width, int rotate,
                                                     int has_root)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width);
    const unsigned n_rows = has_root ? width - 1 : width; /* those that are written */
    __m256i v[8], split = _mm256_setzero_si256();
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    size_t i, j, n_right = 0;
    lmc__progress done;
    lmc__rows rows;
    unsigned p;
    if (has_root) {
        lmc__set_rows_avx2(&rows, root->table);
        split = _mm256_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    for (i = 0; i + strip <= n; i += strip) {
        const uint8_t *const from = src + i * width;
        for (j = 0; j < strip; j += 32) {
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                lmc__crc_lanes(c, from + j * width / 4, p);
                v[p] = lmc__load_avx2(from + j * width + 32 * p);
                if (rotate) v[p] = lmc__rotate_avx2(v[p], width, 1);
            }
            if (width >= 2) lmc__split_step_avx2(v, width, 1);
            if (width >= 4) lmc__split_step_avx2(v, width, 2);
            if (width >= 8) lmc__split_step_avx2(v, width, 4);
            LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__store_avx2(planes->row[p] + i + j, v[p]);
            if (has_root) {
                const __m256i ranks = lmc__map_step_avx2(&rows, v[width - 1]);
                const uint32_t m = lmc__compare_avx2(ranks, split);
                lmc__store32(mask + (i + j) / 8, m);
                n_right = lmc__partition_step_avx2(left, right, i + j - n_right, n_right, ranks, m);
            }
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    done.n = i;
    done.n_right = n_right;
    done.crc = ~(uint32_t)c[0];
    return done;
}

/* Whether there is a root is a constant, so that the loop without one has its registers free.
 * rotate is tested once a step: as a constant it would double the code and gains nothing. */
#define LMC__DEFINE_SPLIT_ROOT(width)                                                              \
    LMC__LOOP2 lmc__progress lmc__split_root_##width##_avx2(                                       \
        const lmc__planes *planes, const lmc__parted *root, const uint8_t *src, size_t n,          \
        int rotate)                                                                                \
    {                                                                                              \
        if (root && width == 1 && !rotate)                                                         \
            return lmc__split_root_loop_avx2(planes, root, src, n, width, 0, 1);                   \
        if (root) return lmc__split_root_loop_avx2(planes, root, src, n, width, rotate, 1);        \
        return lmc__split_root_loop_avx2(planes, NULL, src, n, width, rotate, 0);                  \
    }
LMC__DEFINE_SPLIT_ROOT(1)
LMC__DEFINE_SPLIT_ROOT(2)
LMC__DEFINE_SPLIT_ROOT(4)
LMC__DEFINE_SPLIT_ROOT(8)
#undef LMC__DEFINE_SPLIT_ROOT

/* By strips what is rare: a root that is not the top plane. */
LMC__AVX2 static uint32_t lmc__split_root_avx2(const lmc__kernels *k, const lmc__planes *planes,
                                               lmc__parted *root, const uint8_t *src, size_t n,
                                               unsigned width, int rotate)
{
    lmc__progress done = lmc__no_progress();
    if (!root || root->plane == width - 1) switch (width) {
        case 1: done = lmc__split_root_1_avx2(planes, root, src, n, rotate); break;
        case 2: done = lmc__split_root_2_avx2(planes, root, src, n, rotate); break;
        case 4: done = lmc__split_root_4_avx2(planes, root, src, n, rotate); break;
        default: done = lmc__split_root_8_avx2(planes, root, src, n, rotate);
        }
    return lmc__split_strips(k, planes, root, src, n, width, rotate, done);
}

/* Steps of 64 elements, all in registers; the root, if any, is the top plane. The CRC has one
 * accumulator for each of a step's vectors: they are folded, step by step, over the distance of
 * width vectors, and onto each other at the end. */
LMC__INLINE512 lmc__progress lmc__split_root_loop_avx512(const lmc__planes *planes,
                                                         const lmc__parted *root,
                                                         const uint8_t *src, size_t n,
                                                         unsigned width, int rotate, int has_root)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_rows = has_root ? width - 1 : width; /* those that are written */
    const lmc__planes rows = *planes; /* a copy, which no store of bytes can change */
    __m512i sum[8], v[8], start = lmc__crc_start(0), table[4], split = _mm512_setzero_si512();
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    lmc__progress done = lmc__no_progress();
    size_t i, n_right = 0;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    LMC__UNROLL for (p = 0; p < 4; p++) table[p] =
        has_root ? lmc__load_avx512(root->table + 64 * p) : _mm512_setzero_si512();
    if (has_root) {
        split = _mm512_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    /* left, right: where the next ranks go. Each store writes 64 bytes, of which the first ones
     * count; the next step writes over the others, or they lie in the list's slack. left may be the
     * row itself, which is not written here. */
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__touch_ahead(rows.row[p], i);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(src, i, n, width, p);
            v[p] = lmc__load_avx512(src + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        if (rotate)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__rotate_avx512(v[p], width, 1);
        if (width >= 2) lmc__split_step_avx512(v, width, 1);
        if (width >= 4) lmc__split_step_avx512(v, width, 2);
        if (width >= 8) lmc__split_step_avx512(v, width, 4);
        LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__store_avx512(rows.row[p] + i, v[p]);
        if (has_root) {
            const __m512i ranks = lmc__map_step_avx512(v[width - 1], table);
            const __mmask64 m = _mm512_cmpge_epu8_mask(ranks, split);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            lmc__store64(mask + i / 8, m);
            if (right) {
                lmc__store_avx512(right, _mm512_mask_compress_epi8(ranks, m, ranks));
                right += ones;
            }
            if (left) {
                lmc__store_avx512(left, _mm512_mask_compress_epi8(ranks, ~m, ranks));
                left += 64 - ones;
            }
            n_right += ones;
        }
    }
    if (i) done.crc = lmc__crc_finish(sum, width);
    done.n = i;
    done.n_right = n_right;
    return done;
}

#define LMC__DEFINE_SPLIT_ROOT(width)                                                              \
    LMC__LOOP512 lmc__progress lmc__split_root_##width##_avx512(                                   \
        const lmc__planes *planes, const lmc__parted *root, const uint8_t *src, size_t n,          \
        int rotate)                                                                                \
    {                                                                                              \
        if (root) return lmc__split_root_loop_avx512(planes, root, src, n, width, rotate, 1);      \
        return lmc__split_root_loop_avx512(planes, NULL, src, n, width, rotate, 0);                \
    }
LMC__DEFINE_SPLIT_ROOT(1)
LMC__DEFINE_SPLIT_ROOT(2)
LMC__DEFINE_SPLIT_ROOT(4)
LMC__DEFINE_SPLIT_ROOT(8)
#undef LMC__DEFINE_SPLIT_ROOT

LMC__AVX512 static uint32_t lmc__split_root_avx512(const lmc__kernels *k, const lmc__planes *planes,
                                                   lmc__parted *root, const uint8_t *src, size_t n,
                                                   unsigned width, int rotate)
{
    lmc__progress done = lmc__no_progress();
    if (!root || root->plane == width - 1) switch (width) {
        case 1: done = lmc__split_root_1_avx512(planes, root, src, n, rotate); break;
        case 2: done = lmc__split_root_2_avx512(planes, root, src, n, rotate); break;
        case 4: done = lmc__split_root_4_avx512(planes, root, src, n, rotate); break;
        default: done = lmc__split_root_8_avx512(planes, root, src, n, rotate);
        }
    return lmc__split_strips(k, planes, root, src, n, width, rotate, done);
}
#endif

/* == kernels/join_root.h ========================================================================== */

/*
 * join_root: the last thing a decoder does to a block, in one pass over it, and the inverse of
 * split_root:
 *
 *   source->planes->row[0 .. width)
 *     |
 *     |   row[root->plane], if root is not NULL, is yet to be made:
 *     |     root->mask, left, right --merge--> bytes of the plane
 *     |   if joint is not NULL, the two top planes are:
 *     |     symbols (the top row, as just merged) and joint->packed --unfold--> both planes
 *     |
 *     +--join, rotated to the right if source->rotate--> dst --crc32c--> the result
 *
 * dst gets exactly n * width bytes. root->row, joint->high and joint->low are lists of a strip, or
 * of n elements if that is less, to work in. The row of a plane that is yet to be made is not
 * looked at. If streaming.is_on, dst is written past the caches where the tier can. */

/* What is left of a side when `used` bytes of its list are. */
LMC__INLINE lmc__side lmc__rest_of_side(lmc__side side, size_t used)
{
    if (side.list) side.list += used;
    return side;
}

/* Elements [i, i + m), at most a strip, to dst; n_right ones of the root's mask are before them.
 * Returns that number for the next strip. */
static size_t lmc__join_strip(const lmc__kernels *k, uint8_t *dst, const lmc__join_source *source,
                              size_t i, size_t m, size_t n_right)
{
    const lmc__merged *const root = source->root;
    const lmc__joint *const joint = source->joint;
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
    if (joint) {
        k->unfold(joint->high, joint->low, strip.row[width - 1], joint->packed, i, m, joint);
        strip.row[width - 1] = joint->high;
        strip.row[width - 2] = joint->low;
    }
    k->join(dst, &strip, m, width, source->rotate);
    return n_right;
}

/* Elements [done.n, n), strip by strip. This is the definition of join_root, and what the other
 * tiers end with. */
static uint32_t lmc__join_strips(const lmc__kernels *k, uint8_t *dst,
                                 const lmc__join_source *source, size_t n, lmc__progress done)
{
    const unsigned width = source->width;
    size_t i, m, n_right = 0;
    if (source->root && done.n < n) n_right = k->count_ones(source->root->mask, done.n / 8);
    for (i = done.n; i < n; i += m) {
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        n_right = lmc__join_strip(k, dst + i * width, source, i, m, n_right);
        done.crc = k->crc32c(done.crc, dst + i * width, m * width);
    }
    return done.crc;
}

/* The tiers without a loop of their own: scalar, NEON, SIMDe. They do not stream. */
static uint32_t lmc__join_root_strips(const lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                                      size_t n, lmc__streaming streaming)
{
    (void)streaming;
    return lmc__join_strips(k, dst, &source, n, lmc__no_progress());
}

#if LMC__X86
/*
 * AVX2, to a dst that is streamed. What is streamed is not in the caches afterwards, and the crc32
 * instructions want bytes in memory, in four lanes a quarter of a strip apart. So a strip is made
 * in a buffer, and while the next one is made in another, it is drained: summed up and copied to
 * dst. Vector instructions make, crc32 instructions sum up: they do not compete for units. In time:
 *
 *   strip                 0        1        2             last
 *   made in buffer        0        1        0             last % 2
 *
 *   make             |----0---|----1---|----2---|- ... --|--last--|
 *   drain                     |----0---|----1---|- ...            |--last--|
 *                    lmc__join_ \__ this function's loop ________/ \_ after it
 *                    strip
 *
 * Streaming stores want aligned places, but dst may start anywhere: `head` bytes stand before the
 * first aligned one. So what is copied while a strip is drained is shifted by head bytes:
 *
 *   strip s in its buffer      |(head)|            ...                    |slack|
 *   copied to dst + head              |  vector | vector | ... | vector      |
 *
 * The last vector needs the first head bytes of strip s + 1, which are not here. They are by then:
 * when the first step of strip s + 1 is made, its first vector is copied to the slack behind strip
 * s, long before the last step of draining reads it. At both ends plain stores that may overlap
 * others fill in: one vector at dst for the head of strip 0, and of the last strip one vector less
 * is streamed, and its last 32 bytes are stored where they belong. */

/* Bytes behind a strip in its buffer: 32 of slack, and so many that the two buffers do not lie at a
 * multiple of 4 KiB from each other: a load from one would wait for a store to the other whose
 * address has the same lowest 12 bits. */
#define LMC__STRIP_GAP 1024u
typedef struct lmc__strip_buffers {
    uint8_t strip[2][LMC__STRIP_SIZE + LMC__STRIP_GAP];
} lmc__strip_buffers;

/* A side of a merge in steps. A constant is a list of 32 equal bytes that never goes on: how far a
 * step would go is masked, with no bits for constants, all bits for lists. */
typedef struct lmc__side_cursor {
    const uint8_t *at;
    size_t mask;
} lmc__side_cursor;

LMC__INLINE2 lmc__side_cursor lmc__open_side_avx2(lmc__side side, size_t used, uint8_t constant[32])
{
    lmc__side_cursor cursor;
    lmc__store_avx2(constant, lmc__splat_avx2(side.value));
    cursor.at = side.list ? side.list + used : constant;
    cursor.mask = side.list ? ~(size_t)0 : 0;
    return cursor;
}

/* Copies to an aligned place: `at` bytes behind out, `width` vectors. */
LMC__INLINE2 void lmc__copy_stream_avx2(uint8_t *out, const uint8_t *from, size_t at,
                                        unsigned width)
{
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) _mm256_stream_si256(
        (__m256i *)(void *)(out + at + 32 * p), lmc__load_avx2(from + at + 32 * p));
}

/* All whole strips, of which there is one at least; the root, if any, is the top plane, and there
 * is no joint. */
LMC__INLINE2 lmc__progress lmc__join_root_loop_avx2(const lmc__kernels *k, uint8_t *dst,
                                                    const lmc__join_source *source, size_t n,
                                                    unsigned width, int rotate, int can_merge,
                                                    lmc__streaming streaming,
                                                    lmc__strip_buffers *buffers)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width), head = (0 - (uintptr_t)dst) & 31;
    const lmc__merged *const root = can_merge ? source->root : NULL;
    const lmc__const_planes rows = *source->planes;
    const __m256i zero = _mm256_setzero_si256();
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    const uint8_t *mask = NULL;
    uint8_t *from, *to = buffers->strip[0], constant[2][32];
    lmc__side_cursor left = {NULL, 0}, right = {NULL, 0};
    lmc__progress done;
    size_t i, j, n_right = lmc__join_strip(k, to, source, 0, strip, 0);
    __m256i v[8];
    unsigned p;
    lmc__store_avx2(dst, lmc__load_avx2(to));
    if (root) {
        mask = root->mask;
        left = lmc__open_side_avx2(root->left, strip - n_right, constant[0]);
        right = lmc__open_side_avx2(root->right, n_right, constant[1]);
    }
    for (i = strip; i + strip <= n; i += strip) {
        uint8_t *const out = dst + (i - strip) * width + head;
        from = to;
        to = buffers->strip[i / strip & 1];
        for (j = 0; j < strip; j += 32) {
            const size_t at = j * width, out_at = (i - strip) * width + at;
            /* Fetch what is read next at the speed of what is written now: it is compressed, and
             * so the shorter of the two. */
            lmc__touch_ahead(dst, out_at);
            if (out_at < streaming.next_size) {
                lmc__touch_ahead(streaming.next, out_at);
                LMC__UNROLL for (p = 0; p < width; p += LMC__LINE / 32)
                    LMC__PREFETCH(streaming.next + lmc__min(out_at + 32 * p, streaming.next_size));
            }
            LMC__UNROLL for (p = 0; p < width; p++) lmc__crc_lanes(c, from + at / 4, p);
            if (root) {
                const uint32_t m = lmc__load32(mask + (i + j) / 8);
                const size_t ones = (size_t)_mm_popcnt_u64(m);
                v[width - 1] = lmc__merge_step_avx2(m, left.at, right.at, zero, zero, 1, 1);
                left.at += (32 - ones) & left.mask;
                right.at += ones & right.mask;
            } else {
                v[width - 1] = lmc__load_avx2(rows.row[width - 1] + i + j);
            }
            LMC__UNROLL for (p = 0; p + 1 < width; p++) v[p] = lmc__load_avx2(rows.row[p] + i + j);
            if (width >= 8) lmc__join_step_avx2(v, width, 4);
            if (width >= 4) lmc__join_step_avx2(v, width, 2);
            if (width >= 2) lmc__join_step_avx2(v, width, 1);
            if (rotate)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__rotate_avx2(v[p], width, 0);
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(to + at + 32 * p, v[p]);
            if (j == 0) lmc__store_avx2(from + LMC__STRIP_SIZE, v[0]);
            lmc__copy_stream_avx2(out, from + head, at, width);
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    for (j = 0; j < LMC__STRIP_SIZE - 32; j += 32)
        lmc__copy_stream_avx2(dst + (i - strip) * width + head, to + head, j, 1);
    lmc__store_avx2(dst + i * width - 32, lmc__load_avx2(to + LMC__STRIP_SIZE - 32));
    done.n = i;
    done.crc = lmc__crc32c_avx2(~(uint32_t)c[0], to, LMC__STRIP_SIZE);
    return done;
}

/* By strips what is not streamed, and what is rare: joint planes, and a root that is not the top
 * plane. */
LMC__AVX2 static uint32_t lmc__join_root_avx2(const lmc__kernels *k, uint8_t *dst,
                                              lmc__join_source source, size_t n,
                                              lmc__streaming streaming)
{
    const unsigned width = source.width;
    const int rotate = source.rotate;
    lmc__progress done = lmc__no_progress();
    lmc__strip_buffers buffers;
    if (streaming.is_on && !source.joint && n >= LMC__STRIP_ELEMENTS(width) &&
        (!source.root || source.root->plane == width - 1))
        switch (width) {
#define LMC__CALL(w, can_merge)                                                                    \
    done = lmc__join_root_loop_avx2(k, dst, &source, n, w, rotate, can_merge, streaming, &buffers)
        case 1: LMC__CALL(1, 1); break;
        case 2: /* zeros are decoded at 0.87 of the speed where the root is tested in the loop */
            if (source.root) LMC__CALL(2, 1);
            else LMC__CALL(2, 0);
            break;
        case 4: LMC__CALL(4, 1); break;
        default: LMC__CALL(8, 1);
#undef LMC__CALL
        }
    return lmc__join_strips(k, dst, &source, n, done);
}

/* Elements [i, i + 64) of the plane below the top one, as far as they are packed. Of those that lie
 * across packed_size, which is no multiple of 64, each is looked up. */
LMC__INLINE512 __m512i lmc__load_packed_avx512(const lmc__joint *joint, size_t i)
{
    const uint8_t *const packed = joint->packed;
    const size_t packed_size = joint->packed_size;
    uint8_t bytes[64];
    unsigned p;
    if (i + 64 <= packed_size) return lmc__load_avx512(packed + i);
    if (i >= packed_size)
        return joint->extra == 1 ? lmc__unpack_tail_avx512(packed + i - packed_size, joint->row, 1)
                                 : lmc__unpack_tail_avx512(packed + i - packed_size, joint->row, 2);
    for (p = 0; p < 64; p++) bytes[p] = (uint8_t)lmc__unpack(packed, i + p, joint);
    return lmc__load_avx512(bytes);
}

/* Steps of 64 elements, all in registers; the root, if any, is the top plane, and so it is if there
 * is a joint. CRC as in split_root, streams as in strip.h. */
LMC__INLINE512 lmc__progress lmc__join_root_loop_avx512(uint8_t *dst,
                                                        const lmc__join_source *source, size_t n,
                                                        unsigned width, int rotate,
                                                        lmc__streaming streaming, int streams,
                                                        int has_root, int has_joint)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__merged *const root = has_root ? source->root : NULL;
    const lmc__joint *const joint = has_joint ? source->joint : NULL;
    const lmc__const_planes rows = *source->planes; /* a copy, which no store of bytes can change */
    const size_t per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    __m512i sum[8], v[8], start = lmc__crc_start(0), l = start, r = start;
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
            if (left) left += 64 - ones;
            if (right) right += ones;
        } else {
            v[width - 1] = lmc__load_avx512(rows.row[width - 1] + i);
        }
        if (width >= 2 && has_joint) {
            v[width - 2] = lmc__load_packed_avx512(joint, i);
            lmc__unfold_step_avx512(&v[width - 1], &v[width - 2], joint->extra, joint->offset);
        }
        if (width >= 8) lmc__join_step_avx512(v, width, 4);
        if (width >= 4) lmc__join_step_avx512(v, width, 2);
        if (width >= 2) lmc__join_step_avx512(v, width, 1);
        if (rotate)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__rotate_avx512(v[p], width, 0);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
    }
    if (i) {
        done.crc = lmc__crc_finish(sum, width);
        if (streams) lmc__end_stream_avx512(&stream, dst + i * width);
    }
    done.n = i;
    return done;
}

/* The tests that a step would feel are made here, once a block: is there a root, is dst streamed.
 * Joint planes are slower anyway, and test for themselves; so does rotate, in any case. */
#define LMC__DEFINE_JOIN_ROOT(width)                                                               \
    LMC__LOOP512 lmc__progress lmc__join_root_##width##_avx512(                                    \
        uint8_t *dst, const lmc__join_source *source, size_t n, lmc__streaming streaming)          \
    {                                                                                              \
        const int rotate = source->rotate, streams = streaming.is_on;                              \
        if (source->joint)                                                                         \
            return lmc__join_root_loop_avx512(dst, source, n, width, rotate, streaming, streams,   \
                                              1, 1);                                               \
        if (source->root)                                                                          \
            return streams ? lmc__join_root_loop_avx512(dst, source, n, width, rotate, streaming,  \
                                                        1, 1, 0)                                   \
                           : lmc__join_root_loop_avx512(dst, source, n, width, rotate, streaming,  \
                                                        0, 1, 0);                                  \
        return streams                                                                             \
                   ? lmc__join_root_loop_avx512(dst, source, n, width, rotate, streaming, 1, 0, 0) \
                   : lmc__join_root_loop_avx512(dst, source, n, width, rotate, streaming, 0, 0,    \
                                                0);                                                \
    }
LMC__DEFINE_JOIN_ROOT(1)
LMC__DEFINE_JOIN_ROOT(2)
LMC__DEFINE_JOIN_ROOT(4)
LMC__DEFINE_JOIN_ROOT(8)
#undef LMC__DEFINE_JOIN_ROOT

LMC__AVX512 static uint32_t lmc__join_root_avx512(const lmc__kernels *k, uint8_t *dst,
                                                  lmc__join_source source, size_t n,
                                                  lmc__streaming streaming)
{
    lmc__progress done = lmc__no_progress();
    if (source.root ? source.root->plane == source.width - 1 : !source.joint)
        switch (source.width) {
        case 1: done = lmc__join_root_1_avx512(dst, &source, n, streaming); break;
        case 2: done = lmc__join_root_2_avx512(dst, &source, n, streaming); break;
        case 4: done = lmc__join_root_4_avx512(dst, &source, n, streaming); break;
        default: done = lmc__join_root_8_avx512(dst, &source, n, streaming);
        }
    return lmc__join_strips(k, dst, &source, n, done);
}
#endif

/* == kernels/classes.h ============================================================================ */

/*
 * Classes of elements (spec 7.3), and count_classes, which counts the elements of base in each:
 * counts[c] for each class c of the grouping. Returns the CRC-32C of base.
 *
 * An element's class depends on the *key* of its prediction alone, so encoder and decoder agree on
 * it without a word in the block. The classes are intervals of keys, one behind the other:
 *
 *   key       0 ........ t[0] ........ t[1] ........ 255       t: grouping->threshold, ascending
 *   class     |    0    |      1      |       2       |
 *
 * Vectors never name a class. They compare 16, 32 or 64 keys at once with the highest key of class
 * c, that is t[c] - 1, for each c in turn: so they count, or mark, the elements of class c *and all
 * before it* (or, in AVX-512, all behind it). Two neighbouring classes' numbers differ by the
 * elements of one class. Every element is in the last class or before, so that needs no comparison.
 */

/* The key: the eight bits below the sign bit, which of bf16 and fp32 are the exponent. A byte has
 * seven bits there; its sign follows them. */
LMC__INLINE unsigned lmc__key(uint64_t base, unsigned width)
{
    return (unsigned)(width == 1 ? (base << 1 | base >> 7) & 255 : base >> (8 * width - 9) & 255);
}

/* classes[key]: the number of thresholds that the key has reached. */
static void lmc__set_class_table(uint8_t classes[256], const lmc__grouping *grouping)
{
    unsigned key, c = 0;
    for (key = 0; key < 256; key++) {
        while (c < grouping->n_classes - 1 && key >= grouping->threshold[c]) c++;
        classes[key] = (uint8_t)c;
    }
}

LMC__INLINE void lmc__count_classes_body(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                         size_t n, unsigned width, const lmc__grouping *grouping)
{
    uint8_t classes[256];
    size_t i;
    lmc__set_class_table(classes, grouping);
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    for (i = 0; i < n; i++) counts[classes[lmc__key(lmc__load_element(base, i, width), width)]]++;
}

#define LMC__FOR_WIDTHS(call)                                                                      \
    switch (width) {                                                                               \
    case 1: call(1); break;                                                                        \
    case 2: call(2); break;                                                                        \
    case 4: call(4); break;                                                                        \
    default: call(8);                                                                              \
    }

/* One by one. This is the definition of the counts, and what the vector loops end with. */
static void lmc__count_elements(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                                unsigned width, const lmc__grouping *grouping)
{
#define LMC__CALL(w) lmc__count_classes_body(counts, base, n, w, grouping)
    LMC__FOR_WIDTHS(LMC__CALL)
#undef LMC__CALL
}

static uint32_t lmc__count_classes_scalar(const lmc__kernels *k, size_t counts[LMC__MAX_CLASSES],
                                          const uint8_t *base, size_t n, unsigned width,
                                          const lmc__grouping *grouping)
{
    lmc__count_elements(counts, base, n, width, grouping);
    return k->crc32c(0, base, n * width);
}

#if LMC__NEON
/* The keys of 16 elements, of `width` vectors. A shift leaves the key in the lowest byte of each
 * element; log2(width) times, every other byte is dropped. */
LMC__INLINE uint8x16_t lmc__keys_neon(const uint8x16_t b[8], unsigned width)
{
    uint8x16_t v[8];
    unsigned p;
    if (width == 1) return lmc__rotate_neon(b[0], 1, 1);
    LMC__UNROLL for (p = 0; p < width; p++) v[p] =
        width == 2   ? vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(b[p]), 7))
        : width == 4 ? vreinterpretq_u8_u32(vshrq_n_u32(vreinterpretq_u32_u8(b[p]), 23))
                     : vreinterpretq_u8_u64(vshrq_n_u64(vreinterpretq_u64_u8(b[p]), 55));
    if (width >= 8)
        LMC__UNROLL for (p = 0; p < width / 2; p++) v[p] = lmc__even_neon(v[2 * p], v[2 * p + 1]);
    if (width >= 4)
        LMC__UNROLL for (p = 0; p < 2; p++) v[p] = lmc__even_neon(v[2 * p], v[2 * p + 1]);
    return lmc__even_neon(v[0], v[1]);
}

/* The highest key of each class, in all bytes. */
LMC__INLINE void lmc__set_highest_neon(uint8x16_t highest[LMC__MAX_CLASSES],
                                       const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c + 1 < grouping->n_classes; c++)
        highest[c] = vdupq_n_u8((uint8_t)(grouping->threshold[c] - 1));
    highest[c] = vdupq_n_u8(255);
}

/* Comparisons give -1 for yes: sums of bytes, minus those, hold for 255 steps. */
LMC__INLINE void lmc__count_classes_body_neon(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                              size_t n, unsigned width,
                                              const lmc__grouping *grouping)
{
    const unsigned n_classes = grouping->n_classes;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i = 0; /* elements of each class and those before */
    uint8x16_t b[8], highest[LMC__MAX_CLASSES];
    unsigned p, c;
    lmc__set_highest_neon(highest, grouping);
    while (i + 16 <= n) {
        const size_t end =
            i + lmc__min(255 * 16, (n - i) & ~(size_t)15); /* as far as the sums go */
        uint8x16_t sum[LMC__MAX_CLASSES];
        for (c = 0; c + 1 < n_classes; c++) sum[c] = vdupq_n_u8(0);
        for (; i < end; i += 16) {
            uint8x16_t keys;
            LMC__UNROLL for (p = 0; p < width; p++) b[p] =
                lmc__load_neon(base + i * width + 16 * p);
            keys = lmc__keys_neon(b, width);
            for (c = 0; c + 1 < n_classes; c++)
                sum[c] = vsubq_u8(sum[c], vcleq_u8(keys, highest[c]));
        }
        for (c = 0; c + 1 < n_classes; c++) up_to[c] += vaddlvq_u8(sum[c]);
    }
    up_to[n_classes - 1] = i;
    lmc__count_elements(counts, base + i * width, n - i, width, grouping);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
}

static uint32_t lmc__count_classes_neon(const lmc__kernels *k, size_t counts[LMC__MAX_CLASSES],
                                        const uint8_t *base, size_t n, unsigned width,
                                        const lmc__grouping *grouping)
{
#define LMC__CALL(w) lmc__count_classes_body_neon(counts, base, n, w, grouping)
    LMC__FOR_WIDTHS(LMC__CALL)
#undef LMC__CALL
    return k->crc32c(0, base, n * width);
}
#endif

#if LMC__X86
/* The keys of 32 elements, of `width` vectors. A shift leaves the key in the lowest byte of each
 * element; log2(width) times, every other byte is dropped. */
LMC__INLINE2 __m256i lmc__keys_avx2(const __m256i b[8], unsigned width)
{
    __m256i v[8];
    unsigned p;
    if (width == 1) return lmc__rotate_avx2(b[0], 1, 1);
    LMC__UNROLL for (p = 0; p < width; p++) v[p] = width == 2   ? _mm256_srli_epi16(b[p], 7)
                                                   : width == 4 ? _mm256_srli_epi32(b[p], 23)
                                                                : _mm256_srli_epi64(b[p], 55);
    if (width >= 8)
        LMC__UNROLL for (p = 0; p < width / 2; p++) v[p] = lmc__even_avx2(v[2 * p], v[2 * p + 1]);
    if (width >= 4)
        LMC__UNROLL for (p = 0; p < 2; p++) v[p] = lmc__even_avx2(v[2 * p], v[2 * p + 1]);
    return lmc__even_avx2(v[0], v[1]);
}

/* The highest key of each class, in all bytes. */
LMC__INLINE2 void lmc__set_highest_avx2(__m256i highest[LMC__MAX_CLASSES],
                                        const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c + 1 < grouping->n_classes; c++)
        highest[c] = _mm256_set1_epi8((char)(grouping->threshold[c] - 1));
    highest[c] = _mm256_set1_epi8((char)255);
}

/* Strip by strip, so that the bytes which the CRC has read are in the first cache. */
LMC__INLINE2 uint32_t lmc__count_classes_body_avx2(size_t counts[LMC__MAX_CLASSES],
                                                   const uint8_t *base, size_t n, unsigned width,
                                                   const lmc__grouping *grouping)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width);
    const unsigned n_classes = grouping->n_classes;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i = 0; /* elements of each class and those before */
    __m256i b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t end = i + lmc__min(strip, (n - i) & ~(size_t)31);
        crc = lmc__crc32c_avx2(crc, base + i * width, (end - i) * width);
        for (; i < end; i += 32) {
            __m256i keys;
            LMC__UNROLL for (p = 0; p < width; p++) b[p] =
                lmc__load_avx2(base + i * width + 32 * p);
            keys = lmc__keys_avx2(b, width);
            for (c = 0; c + 1 < n_classes; c++)
                up_to[c] += (size_t)_mm_popcnt_u64(
                    (uint32_t)_mm256_movemask_epi8(lmc__up_to_avx2(keys, highest[c])));
        }
    }
    up_to[n_classes - 1] = i;
    lmc__count_elements(counts, base + i * width, n - i, width, grouping);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
    return lmc__crc32c_avx2(crc, base + i * width, (n - i) * width);
}

LMC__AVX2 static uint32_t lmc__count_classes_avx2(const lmc__kernels *k,
                                                  size_t counts[LMC__MAX_CLASSES],
                                                  const uint8_t *base, size_t n, unsigned width,
                                                  const lmc__grouping *grouping)
{
    uint32_t crc;
    (void)k;
#define LMC__CALL(w) crc = lmc__count_classes_body_avx2(counts, base, n, w, grouping)
    LMC__FOR_WIDTHS(LMC__CALL)
#undef LMC__CALL
    return crc;
}

/* The keys of 64 elements, of `width` vectors. A shift leaves the key in the lowest byte of each
 * element; log2(width) times, every other byte is dropped. */
LMC__INLINE512 __m512i lmc__keys_avx512(const __m512i b[8], unsigned width)
{
    __m512i v[8];
    unsigned p;
    if (width == 1) return lmc__rotate_avx512(b[0], 1, 1);
    LMC__UNROLL for (p = 0; p < width; p++) v[p] = width == 2   ? _mm512_srli_epi16(b[p], 7)
                                                   : width == 4 ? _mm512_srli_epi32(b[p], 23)
                                                                : _mm512_srli_epi64(b[p], 55);
    if (width >= 8)
        LMC__UNROLL for (p = 0; p < width / 2; p++) v[p] = lmc__even_avx512(v[2 * p], v[2 * p + 1]);
    if (width >= 4)
        LMC__UNROLL for (p = 0; p < 2; p++) v[p] = lmc__even_avx512(v[2 * p], v[2 * p + 1]);
    return lmc__even_avx512(v[0], v[1]);
}

/* The highest key of each class, in all bytes. */
LMC__INLINE512 void lmc__set_highest_avx512(__m512i highest[LMC__MAX_CLASSES],
                                            const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c + 1 < grouping->n_classes; c++)
        highest[c] = _mm512_set1_epi8((char)(grouping->threshold[c] - 1));
    highest[c] = _mm512_set1_epi8((char)255);
}

/* In registers, the CRC as in split_root. */
LMC__INLINE512 uint32_t lmc__count_classes_body_avx512(size_t counts[LMC__MAX_CLASSES],
                                                       const uint8_t *base, size_t n,
                                                       unsigned width,
                                                       const lmc__grouping *grouping)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_classes = grouping->n_classes;
    size_t above[LMC__MAX_CLASSES] = {0}, i; /* elements of the classes behind each */
    __m512i sum[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __m512i keys;
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(base, i, n, width, p);
            b[p] = lmc__load_avx512(base + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, b[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        keys = lmc__keys_avx512(b, width);
        for (c = 0; c + 1 < n_classes; c++)
            above[c] += (size_t)_mm_popcnt_u64(_mm512_cmpgt_epu8_mask(keys, highest[c]));
    }
    if (i) crc = lmc__crc_finish(sum, width);
    lmc__count_elements(counts, base + i * width, n - i, width, grouping);
    for (c = 0; c < n_classes; c++) counts[c] += (c ? above[c - 1] : i) - above[c];
    return lmc__crc32c_avx512(crc, base + i * width, (n - i) * width);
}

LMC__AVX512 static uint32_t lmc__count_classes_avx512(const lmc__kernels *k,
                                                      size_t counts[LMC__MAX_CLASSES],
                                                      const uint8_t *base, size_t n, unsigned width,
                                                      const lmc__grouping *grouping)
{
    uint32_t crc;
    (void)k;
#define LMC__CALL(w) crc = lmc__count_classes_body_avx512(counts, base, n, w, grouping)
    LMC__FOR_WIDTHS(LMC__CALL)
#undef LMC__CALL
    return crc;
}
#endif

/* == kernels/group.h ============================================================================== */

/*
 * group: what an encoder does to a block that has a prediction (spec 7.2, 7.3), in one pass:
 *
 *   src, base --residual--> r --split--> bytes p = 0 .. width - 1 of each element
 *   base      --class-----> c
 *
 * Byte p of an element of class c goes to the next place of the list classes->row[c][p]; but the
 * lowest planes, p < n_natural, are not grouped: theirs go to place i of classes->row[0][p], which
 * has n bytes exactly. Returns the CRC-32C of src.
 *
 * All tiers find an element's class without a table look-up: the classes are intervals of keys, one
 * behind the other, so a class is the elements whose key is not above its highest one and above
 * that of the class before. For each class in turn, its elements of a step are packed, by the same
 * shuffle in all planes, and stored at the end of its lists; only as many count as there are, and
 * what is stored behind them is overwritten by the next step, or lies in the lists' slack. */

/* A block of a delta: what group and ungroup are called with. */
typedef struct lmc__delta_block {
    const uint8_t *base;
    size_t n;
    unsigned width;
    int subtract;
    const lmc__grouping *grouping;
} lmc__delta_block;

/* What a loop of group or ungroup has done: the first n elements, whose bytes in src or dst have
 * that CRC-32C; next[c] of them are in class c. */
typedef struct lmc__delta_progress {
    size_t n, next[LMC__MAX_CLASSES];
    uint32_t crc;
} lmc__delta_progress;

/* Byte p of a residual goes to one of two places. The width is constant, so that the loop over p
 * and the residual's masks are. */
LMC__INLINE void lmc__group_body(const lmc__classes *classes, const uint8_t *src,
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
        const uint64_t v = lmc__load_element(src, i, width);
        const uint64_t r =
            own.subtract ? lmc__residual(v, b, width, 1) : lmc__residual(v, b, width, 0);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = next[c]++;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const to = p < first ? classes->row[0][p] + i : classes->row[c][p] + at;
            *to = (uint8_t)(r >> 8 * p);
        }
    }
}

/* Elements [done->n, n), one by one. This is the definition of group, and what the other tiers end
 * with. */
static uint32_t lmc__group_rest(const lmc__kernels *k, const lmc__classes *classes,
                                const uint8_t *src, const lmc__delta_block *block,
                                lmc__delta_progress *done)
{
    const size_t from = done->n * block->width, end = block->n * block->width;
    switch (block->width) {
    case 1: lmc__group_body(classes, src, block, 1, done); break;
    case 2: lmc__group_body(classes, src, block, 2, done); break;
    case 4: lmc__group_body(classes, src, block, 4, done); break;
    default: lmc__group_body(classes, src, block, 8, done);
    }
    return k->crc32c(done->crc, src + from, end - from);
}

static uint32_t lmc__group_scalar(const lmc__kernels *k, const lmc__classes *classes,
                                  const uint8_t *src, const uint8_t *base, size_t n, unsigned width,
                                  int subtract, const lmc__grouping *grouping)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done = {0, {0}, 0};
    return lmc__group_rest(k, classes, src, &block, &done);
}

#if LMC__NEON
/* Whole steps of 64 elements; done->crc is left to the caller. A class's ones are packed by 8, as
 * in lmc__partition64_neon: the mask byte of 8 elements looks up the shuffle, and the sums of ones
 * in the bytes before it, all eight by one multiplication, say where they go. */
LMC__INLINE void lmc__group_loop_neon(const lmc__classes *classes, const uint8_t *src,
                                      const lmc__delta_block *block, unsigned width,
                                      lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t highest[LMC__MAX_CLASSES];
    unsigned p, c, j;
    lmc__set_highest_neon(highest, grouping);
    for (i = 0; i + 64 <= block->n; i += 64) {
        uint8x16_t keys[4], before[4];
        uint8x16_t planes[8]
                         [8]; /* [p][j]: bytes p of the 8 elements from 8 j on, in the lower half */
        LMC__UNROLL for (j = 0; j < 4; j++)
        {
            uint8x16_t v[8], b[8];
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const size_t at = (i + 16 * j) * width + 16 * p;
                b[p] = lmc__load_neon(base + at);
                v[p] = lmc__load_neon(src + at);
            }
            if (block->subtract)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_neon(v[p], b[p], width, 1);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_neon(v[p], b[p], width, 0);
            keys[j] = lmc__keys_neon(b, width);
            before[j] = vdupq_n_u8(0);
            if (width >= 2) lmc__split_step_neon(v, width, 1);
            if (width >= 4) lmc__split_step_neon(v, width, 2);
            if (width >= 8) lmc__split_step_neon(v, width, 4);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                if (p < first) lmc__store_neon(rows.row[0][p] + i + 16 * j, v[p]);
                planes[p][2 * j] = v[p];
                planes[p][2 * j + 1] = vextq_u8(v[p], v[p], 8);
            }
        }
        for (c = 0; c < n_classes; c++) {
            uint8x16_t one[4];
            uint8x8_t m8, counts;
            uint64_t m, ones;
            LMC__UNROLL for (j = 0; j < 4; j++)
            {
                const uint8x16_t up_to = vcleq_u8(keys[j], highest[c]);
                one[j] = vbicq_u8(up_to, before[j]);
                before[j] = up_to;
            }
            m8 = lmc__collect_neon(one[0], one[1], one[2], one[3]);
            counts = vcnt_u8(m8);
            m = vget_lane_u64(vreinterpret_u64_u8(m8), 0);
            ones = vget_lane_u64(vreinterpret_u64_u8(counts), 0) *
                   LMC__ONES8; /* byte j: of bytes 0 .. j of m */
            LMC__UNROLL for (j = 0; j < 8; j++)
            {
                const size_t at = next[c] + (j ? (size_t)(ones >> (8 * j - 8) & 255) : 0);
                const uint8x8_t places = vget_high_u8(lmc__load_sort_places_neon(m >> 8 * j & 255));
                LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                    vst1_u8(rows.row[c][p] + at, vqtbl1_u8(planes[p][j], places));
            }
            next[c] += (size_t)(ones >> 56);
        }
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

static uint32_t lmc__group_neon(const lmc__kernels *k, const lmc__classes *classes,
                                const uint8_t *src, const uint8_t *base, size_t n, unsigned width,
                                int subtract, const lmc__grouping *grouping)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    switch (width) {
    case 1: lmc__group_loop_neon(classes, src, &block, 1, &done); break;
    case 2: lmc__group_loop_neon(classes, src, &block, 2, &done); break;
    case 4: lmc__group_loop_neon(classes, src, &block, 4, &done); break;
    default: lmc__group_loop_neon(classes, src, &block, 8, &done);
    }
    done.crc = k->crc32c(0, src, done.n * width);
    return lmc__group_rest(k, classes, src, &block, &done);
}
#endif

#if LMC__X86
/* A shuffle that packs those of 16 bytes which have a bit in m. The table holds such shuffles of 8
 * bytes only. So there are two, one for each byte of m:
 *
 *   low     places of the ones of m's first byte, then zeros
 *   upper   those of the second byte, plus 8, moved up behind the ones of the first; where it is
 *           moved from, it is zero
 *
 * Their union is the shuffle. What stands behind the ones in it does not matter. */
LMC__INLINE2 __m128i lmc__pack_places_avx2(unsigned m)
{
    const unsigned low = m & 255, high = m >> 8 & 255;
    const __m128i behind =
        _mm_loadu_si128((const __m128i *)(const void *)(lmc__behind + 8 - _mm_popcnt_u64(low)));
    const __m128i upper = _mm_or_si128(lmc__load_places_avx2(high), _mm_set1_epi8(8));
    return _mm_or_si128(lmc__load_places_avx2(low), _mm_shuffle_epi8(upper, behind));
}

/* Whole steps of 32 elements, packed by 16, since byte shuffles do not cross halves: the second
 * half's are stored behind those of the first, of which there are as many as m has ones in its
 * lower half. Strip by strip, so that the bytes which the CRC has read are in the first cache. */
LMC__INLINE2 void lmc__group_loop_avx2(const lmc__classes *classes, const uint8_t *src,
                                       const lmc__delta_block *block, unsigned width,
                                       lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const int subtract = block->subtract;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c, j;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)31);
        crc = lmc__crc32c_avx2(crc, src + i * width, (end - i) * width);
        for (; i < end; i += 32) {
            __m128i half[2][8];
            uint32_t before = 0;
            __m256i keys;
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + 32 * p);
                v[p] = lmc__load_avx2(src + i * width + 32 * p);
            }
            if (subtract)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_avx2(v[p], b[p], width, 1);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__residual_avx2(v[p], b[p], width, 0);
            keys = lmc__keys_avx2(b, width);
            if (width >= 2) lmc__split_step_avx2(v, width, 1);
            if (width >= 4) lmc__split_step_avx2(v, width, 2);
            if (width >= 8) lmc__split_step_avx2(v, width, 4);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                if (p < first) lmc__store_avx2(rows.row[0][p] + i, v[p]);
                half[0][p] = _mm256_castsi256_si128(v[p]);
                half[1][p] = _mm256_extracti128_si256(v[p], 1);
            }
            /* before: elements of the classes before c. Of a natural plane nothing is grouped; but
             * the top plane always is, and saying so spares the test. */
            for (c = 0; c < n_classes; c++) {
                const uint32_t up_to =
                    (uint32_t)_mm256_movemask_epi8(lmc__up_to_avx2(keys, highest[c]));
                const uint32_t m = up_to & ~before;
                LMC__UNROLL for (j = 0; j < 2; j++)
                {
                    const __m128i places = lmc__pack_places_avx2(m >> 16 * j);
                    const size_t at = next[c] + (j ? (size_t)_mm_popcnt_u64(m & 0xFFFF) : 0);
                    LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
                        _mm_storeu_si128((__m128i *)(void *)(rows.row[c][p] + at),
                                         _mm_shuffle_epi8(half[j][p], places));
                }
                next[c] += (size_t)_mm_popcnt_u64(m);
                before = up_to;
            }
        }
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

/* subtract is tested once a step: as a constant it would double the code and gains nothing. */
#define LMC__DEFINE_GROUP(width)                                                                   \
    LMC__LOOP2 void lmc__group_##width##_avx2(const lmc__classes *classes, const uint8_t *src,     \
                                              const lmc__delta_block *block,                       \
                                              lmc__delta_progress *done)                           \
    {                                                                                              \
        lmc__group_loop_avx2(classes, src, block, width, done);                                    \
    }
LMC__DEFINE_GROUP(1)
LMC__DEFINE_GROUP(2)
LMC__DEFINE_GROUP(4)
LMC__DEFINE_GROUP(8)
#undef LMC__DEFINE_GROUP

LMC__AVX2 static uint32_t lmc__group_avx2(const lmc__kernels *k, const lmc__classes *classes,
                                          const uint8_t *src, const uint8_t *base, size_t n,
                                          unsigned width, int subtract,
                                          const lmc__grouping *grouping)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    switch (width) {
    case 1: lmc__group_1_avx2(classes, src, &block, &done); break;
    case 2: lmc__group_2_avx2(classes, src, &block, &done); break;
    case 4: lmc__group_4_avx2(classes, src, &block, &done); break;
    default: lmc__group_8_avx2(classes, src, &block, &done);
    }
    return lmc__group_rest(k, classes, src, &block, &done);
}

/* Whole steps of 64 elements, all in registers, the CRC as in split_root. Of a class's elements,
 * the places are compressed, and each plane is permuted by them: one instruction, where compressing
 * is two. Most lists get 32 elements at most, which take fewer store cycles than 64. */
LMC__INLINE512 void lmc__group_loop_avx512(const lmc__classes *classes, const uint8_t *src,
                                           const lmc__delta_block *block, unsigned width,
                                           lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width), up = lmc__load_avx512(lmc__count_up);
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const size_t n = block->n;
    const int subtract = block->subtract;
    const lmc__classes rows = *classes; /* a copy, which no store of bytes can change */
    const uint8_t *const base = block->base;
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(src, i, n, width, p);
            b[p] = lmc__load_avx512(base + i * width + 64 * p);
            v[p] = lmc__load_avx512(src + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
        if (subtract)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__residual_avx512(v[p], b[p], width, 1);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__residual_avx512(v[p], b[p], width, 0);
        keys = lmc__keys_avx512(b, width);
        if (width >= 2) lmc__split_step_avx512(v, width, 1);
        if (width >= 4) lmc__split_step_avx512(v, width, 2);
        if (width >= 8) lmc__split_step_avx512(v, width, 4);
        LMC__UNROLL for (p = 0; p < width; p++) if (p < first)
            lmc__store_avx512(rows.row[0][p] + i, v[p]);
        /* here minus what is above class c is class c. The last class's highest key is 255: nothing
         * is above it. */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            const __m512i places = _mm512_mask_compress_epi8(up, m, up);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            LMC__UNROLL for (p = 0; p < width; p++) if (p + 1 == width || p >= first)
            {
                const __m512i x = _mm512_permutexvar_epi8(places, v[p]);
                uint8_t *const to = rows.row[c][p] + next[c];
                if (ones > 32) lmc__store_avx512(to, x);
                else lmc__store_avx2(to, _mm512_castsi512_si256(x));
            }
            next[c] += ones;
            here = above;
        }
    }
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

#define LMC__DEFINE_GROUP(width)                                                                   \
    LMC__LOOP512 void lmc__group_##width##_avx512(const lmc__classes *classes, const uint8_t *src, \
                                                  const lmc__delta_block *block,                   \
                                                  lmc__delta_progress *done)                       \
    {                                                                                              \
        lmc__group_loop_avx512(classes, src, block, width, done);                                  \
    }
LMC__DEFINE_GROUP(1)
LMC__DEFINE_GROUP(2)
LMC__DEFINE_GROUP(4)
LMC__DEFINE_GROUP(8)
#undef LMC__DEFINE_GROUP

LMC__AVX512 static uint32_t lmc__group_avx512(const lmc__kernels *k, const lmc__classes *classes,
                                              const uint8_t *src, const uint8_t *base, size_t n,
                                              unsigned width, int subtract,
                                              const lmc__grouping *grouping)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    switch (width) {
    case 1: lmc__group_1_avx512(classes, src, &block, &done); break;
    case 2: lmc__group_2_avx512(classes, src, &block, &done); break;
    case 4: lmc__group_4_avx512(classes, src, &block, &done); break;
    default: lmc__group_8_avx512(classes, src, &block, &done);
    }
    return lmc__group_rest(k, classes, src, &block, &done);
}
#endif

/* == kernels/ungroup.h ============================================================================ */

/*
 * ungroup: the inverse of group (spec 7.2, 7.3). Byte p of element i is the next one of the side
 * sides->side[c][p], c the class of base's element i; for natural planes, p < n_natural, it is byte
 * i of the list side[0][p], which has n bytes exactly and no slack, and is no constant. The bytes
 * make a residual, which with base's element gives the element of dst. dst may be base: a step
 * reads its elements of base before it writes any. Returns the CRC-32C of dst.
 *
 * A step starts with zeros. For each class in turn, the next bytes of its lists are spread to the
 * places of its elements, by the same shuffle in all planes, and all other places of the shuffle
 * give zero: so the classes are combined by or. */

/* Sides as the steps want them: those of the grouped planes only. In a natural plane all classes
 * have the constant zero, which leaves the step's zeros as they are. */
typedef struct lmc__spread {
    lmc__class_sides from;
    int any_list[LMC__MAX_CLASSES]; /* the class has a list in one of its planes at least */
    const uint8_t *natural[8];      /* of the natural planes; else NULL */
} lmc__spread;

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
            if (sides->side[c][p].list) spread->any_list[c] = 1;
        }
}

/* The bytes of a residual, from the lists of its class and the natural planes. */
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
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const lmc__side *const side = &sides->side[p < first ? 0 : c][p];
            r |= (uint64_t)(side->list ? side->list[p < first ? i : at] : side->value) << 8 * p;
        }
        r = own.subtract ? lmc__restore_element(r, b, width, 1)
                         : lmc__restore_element(r, b, width, 0);
        lmc__store_element(dst, i, r, width);
    }
}

/* Elements [done->n, n), one by one. This is the definition of ungroup, and what the other tiers
 * end with. */
static uint32_t lmc__ungroup_rest(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  const lmc__delta_progress *done)
{
    const size_t from = done->n * block->width, end = block->n * block->width;
    switch (block->width) {
    case 1: lmc__ungroup_body(dst, sides, block, 1, done); break;
    case 2: lmc__ungroup_body(dst, sides, block, 2, done); break;
    case 4: lmc__ungroup_body(dst, sides, block, 4, done); break;
    default: lmc__ungroup_body(dst, sides, block, 8, done);
    }
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__ungroup_scalar(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                    const lmc__class_sides *sides, size_t n, unsigned width,
                                    int subtract, const lmc__grouping *grouping,
                                    lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done = {0, {0}, 0};
    (void)streaming;
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}

#if LMC__NEON
/* Whole steps of 16 elements; done->crc is left to the caller.
 *
 * An element's place in its class's lists, counted from next[c], is the number of those of its
 * class before it in the step. Bytes that are -1 where an element is of the class are summed up
 * within 2, 4, 8 and 16: then each byte is minus the number of those up to itself, and its
 * complement is that number less one, the place. Elements of other classes get 255 by the same
 * complement of zero, and a shuffle gives zero for a place beyond its vector. */
LMC__INLINE void lmc__ungroup_loop_neon(uint8_t *dst, const lmc__spread *spread,
                                        const lmc__delta_block *block, unsigned width,
                                        lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const int subtract = block->subtract;
    const uint8x16_t zero = vdupq_n_u8(0);
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    uint8x16_t v[8], b[8], highest[LMC__MAX_CLASSES];
    unsigned p, c;
    lmc__set_highest_neon(highest, grouping);
    for (i = 0; i + 16 <= block->n; i += 16) {
        uint8x16_t keys, before = zero;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            b[p] = lmc__load_neon(base + i * width + 16 * p);
            v[p] = zero;
        }
        keys = lmc__keys_neon(b, width);
        for (c = 0; c < n_classes; c++) {
            const uint8x16_t up_to = vcleq_u8(keys, highest[c]), one = vbicq_u8(up_to, before);
            uint8x16_t sum = one, places = one; /* sum: minus the number of ones up to here */
            before = up_to;
            if (spread->any_list[c]) {
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 15));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 14));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 12));
                sum = vaddq_u8(sum, vextq_u8(zero, sum, 8));
                places = vmvnq_u8(vandq_u8(sum, one));
            }
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &spread->from.side[c][p];
                if (side->list)
                    v[p] = vorrq_u8(v[p], vqtbl1q_u8(vld1q_u8(side->list + next[c]), places));
                else if (side->value) v[p] = vorrq_u8(v[p], vandq_u8(one, vdupq_n_u8(side->value)));
            }
            if (spread->any_list[c]) next[c] += (size_t)((0u - vgetq_lane_u8(sum, 15)) & 255);
        }
        LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
            lmc__load_neon(spread->natural[p] + i);
        if (width >= 8) lmc__join_step_neon(v, width, 4);
        if (width >= 4) lmc__join_step_neon(v, width, 2);
        if (width >= 2) lmc__join_step_neon(v, width, 1);
        if (subtract)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__restore_neon(v[p], b[p], width, 1);
        else LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__restore_neon(v[p], b[p], width, 0);
        LMC__UNROLL for (p = 0; p < width; p++) lmc__store_neon(dst + i * width + 16 * p, v[p]);
    }
    done->n = i;
    memcpy(done->next, next, sizeof next);
}

static uint32_t lmc__ungroup_neon(const lmc__kernels *k, uint8_t *dst, const uint8_t *base,
                                  const lmc__class_sides *sides, size_t n, unsigned width,
                                  int subtract, const lmc__grouping *grouping,
                                  lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, &block);
    switch (width) {
    case 1: lmc__ungroup_loop_neon(dst, &spread, &block, 1, &done); break;
    case 2: lmc__ungroup_loop_neon(dst, &spread, &block, 2, &done); break;
    case 4: lmc__ungroup_loop_neon(dst, &spread, &block, 4, &done); break;
    default: lmc__ungroup_loop_neon(dst, &spread, &block, 8, &done);
    }
    done.crc = k->crc32c(0, dst, done.n * width);
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}
#endif

#if LMC__X86
/* Whole steps of 32 elements, in halves of 16, since byte shuffles see no more. The second half's
 * bytes begin in a list behind those of the first: each half is loaded from its own place. Within a
 * half, an element's place is the number of those of its class before it, by sums as in
 * lmc__merge_step_avx2: minus the number up to itself, complemented; elements of other classes get
 * 255, whose top bit makes the shuffle give zero.
 *
 * Strip by strip, so that the CRC finds what was stored in the first cache. */
LMC__INLINE2 void lmc__ungroup_loop_avx2(uint8_t *dst, const lmc__spread *spread,
                                         const lmc__delta_block *block, unsigned width,
                                         lmc__delta_progress *done)
{
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const int subtract = block->subtract;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const size_t n = block->n;
    size_t next[LMC__MAX_CLASSES] = {0}, i = 0;
    __m256i v[8], b[8], highest[LMC__MAX_CLASSES];
    uint32_t crc = 0;
    unsigned p, c;
    lmc__set_highest_avx2(highest, grouping);
    while (i + 32 <= n) {
        const size_t start = i;
        const size_t end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)31);
        for (; i < end; i += 32) {
            __m256i keys, before = _mm256_setzero_si256();
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                b[p] = lmc__load_avx2(base + i * width + 32 * p);
                v[p] = _mm256_setzero_si256();
            }
            keys = lmc__keys_avx2(b, width);
            for (c = 0; c < n_classes; c++) {
                const __m256i up_to = lmc__up_to_avx2(keys, highest[c]),
                              one = _mm256_andnot_si256(before, up_to);
                const uint32_t m = (uint32_t)_mm256_movemask_epi8(one);
                const size_t half = (size_t)_mm_popcnt_u64(m & 0xFFFF);
                __m256i places = one;
                if (s.any_list[c]) {
                    places = _mm256_and_si256(lmc__sum_up_avx2(one), one);
                    places = _mm256_xor_si256(places, _mm256_set1_epi8((char)-1));
                }
                LMC__UNROLL for (p = 0; p < width; p++)
                {
                    const lmc__side *const side = &s.from.side[c][p];
                    if (side->list) {
                        const uint8_t *const list = side->list + next[c];
                        v[p] = _mm256_or_si256(
                            v[p],
                            _mm256_shuffle_epi8(lmc__load_pair_avx2(list, list + half), places));
                    } else if (side->value)
                        v[p] = _mm256_or_si256(
                            v[p], _mm256_and_si256(one, _mm256_set1_epi8((char)side->value)));
                }
                next[c] += (size_t)_mm_popcnt_u64(m);
                before = up_to;
            }
            LMC__UNROLL for (p = 0; p + 1 < width; p++) if (p < first) v[p] =
                lmc__load_avx2(s.natural[p] + i);
            if (width >= 8) lmc__join_step_avx2(v, width, 4);
            if (width >= 4) lmc__join_step_avx2(v, width, 2);
            if (width >= 2) lmc__join_step_avx2(v, width, 1);
            if (subtract)
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, 1);
            else
                LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                    lmc__restore_avx2(v[p], b[p], width, 0);
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(dst + i * width + 32 * p, v[p]);
        }
        crc = lmc__crc32c_avx2(crc, dst + start * width, (end - start) * width);
    }
    done->n = i;
    done->crc = crc;
    memcpy(done->next, next, sizeof next);
}

#define LMC__DEFINE_UNGROUP(width)                                                                 \
    LMC__LOOP2 void lmc__ungroup_##width##_avx2(uint8_t *dst, const lmc__spread *spread,           \
                                                const lmc__delta_block *block,                     \
                                                lmc__delta_progress *done)                         \
    {                                                                                              \
        lmc__ungroup_loop_avx2(dst, spread, block, width, done);                                   \
    }
LMC__DEFINE_UNGROUP(1)
LMC__DEFINE_UNGROUP(2)
LMC__DEFINE_UNGROUP(4)
LMC__DEFINE_UNGROUP(8)
#undef LMC__DEFINE_UNGROUP

LMC__AVX2 static uint32_t lmc__ungroup_avx2(const lmc__kernels *k, uint8_t *dst,
                                            const uint8_t *base, const lmc__class_sides *sides,
                                            size_t n, unsigned width, int subtract,
                                            const lmc__grouping *grouping, lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    (void)streaming;
    lmc__begin_ungroup(&spread, sides, &block);
    switch (width) {
    case 1: lmc__ungroup_1_avx2(dst, &spread, &block, &done); break;
    case 2: lmc__ungroup_2_avx2(dst, &spread, &block, &done); break;
    case 4: lmc__ungroup_4_avx2(dst, &spread, &block, &done); break;
    default: lmc__ungroup_8_avx2(dst, &spread, &block, &done);
    }
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}

/* Whole steps of 64 elements, all in registers: an expanding load spreads a list's next bytes to
 * the places of a class, and leaves what other classes have put elsewhere. CRC and streams as in
 * join_root; but base is not streamed to: what was just read is in the caches. */
LMC__INLINE512 void lmc__ungroup_loop_avx512(uint8_t *dst, const lmc__spread *spread,
                                             const lmc__delta_block *block, unsigned width,
                                             lmc__streaming streaming, lmc__delta_progress *done)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__grouping *const grouping = block->grouping;
    const unsigned n_classes = grouping->n_classes, first = grouping->n_natural;
    const uint8_t *const base = block->base;
    const int streams = streaming.is_on && dst != base, subtract = block->subtract;
    const lmc__spread s = *spread; /* a copy, which no store of bytes can change */
    const size_t n = block->n, per_element = lmc__next_per_element(streaming, n);
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    size_t next[LMC__MAX_CLASSES] = {0}, i;
    __m512i sum[8], v[8], b[8], highest[LMC__MAX_CLASSES], start = lmc__crc_start(0);
    unsigned p, c;
    lmc__set_highest_avx512(highest, grouping);
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    for (i = 0; i + 64 <= n; i += 64) {
        __mmask64 here = ~(__mmask64)0; /* class c and those behind it */
        __m512i keys;
        lmc__touch_ahead(dst, i * width);
        lmc__fetch_next_avx512(streaming, i, per_element);
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_avx512(base + i * width + 64 * p);
        keys = lmc__keys_avx512(b, width);
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = _mm512_setzero_si512();
        /* here minus what is above class c is class c */
        for (c = 0; c < n_classes; c++) {
            const __mmask64 above = _mm512_cmpgt_epu8_mask(keys, highest[c]),
                            m = _kandn_mask64(above, here);
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                const lmc__side *const side = &s.from.side[c][p];
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
        if (width >= 8) lmc__join_step_avx512(v, width, 4);
        if (width >= 4) lmc__join_step_avx512(v, width, 2);
        if (width >= 2) lmc__join_step_avx512(v, width, 1);
        if (subtract)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, 1);
        else
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__restore_avx512(v[p], b[p], width, 0);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            if (streams) lmc__stream_avx512(&stream, at, v[p], p == 0 && i == 0);
            else lmc__store_avx512(at, v[p]);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512(); /* for the first step only */
    }
    if (i && streams) lmc__end_stream_avx512(&stream, dst + i * width);
    done->n = i;
    done->crc = i ? lmc__crc_finish(sum, width) : 0;
    memcpy(done->next, next, sizeof next);
}

#define LMC__DEFINE_UNGROUP(width)                                                                 \
    LMC__LOOP512 void lmc__ungroup_##width##_avx512(                                               \
        uint8_t *dst, const lmc__spread *spread, const lmc__delta_block *block,                    \
        lmc__streaming streaming, lmc__delta_progress *done)                                       \
    {                                                                                              \
        lmc__ungroup_loop_avx512(dst, spread, block, width, streaming, done);                      \
    }
LMC__DEFINE_UNGROUP(1)
LMC__DEFINE_UNGROUP(2)
LMC__DEFINE_UNGROUP(4)
LMC__DEFINE_UNGROUP(8)
#undef LMC__DEFINE_UNGROUP

LMC__AVX512 static uint32_t lmc__ungroup_avx512(const lmc__kernels *k, uint8_t *dst,
                                                const uint8_t *base, const lmc__class_sides *sides,
                                                size_t n, unsigned width, int subtract,
                                                const lmc__grouping *grouping,
                                                lmc__streaming streaming)
{
    const lmc__delta_block block = {base, n, width, subtract, grouping};
    lmc__delta_progress done;
    lmc__spread spread;
    lmc__begin_ungroup(&spread, sides, &block);
    switch (width) {
    case 1: lmc__ungroup_1_avx512(dst, &spread, &block, streaming, &done); break;
    case 2: lmc__ungroup_2_avx512(dst, &spread, &block, streaming, &done); break;
    case 4: lmc__ungroup_4_avx512(dst, &spread, &block, streaming, &done); break;
    default: lmc__ungroup_8_avx512(dst, &spread, &block, streaming, &done);
    }
    return lmc__ungroup_rest(k, dst, sides, &block, &done);
}
#endif

/* == kernels/grids.h ============================================================================== */

/*
 * Quantised elements (spec 7.6): each is a point of a grid, named by a symbol of 16 bits; symbol 0
 * is the element +0. Elements are the bits of F32, little-endian.
 *
 *     restore   symbols to elements     rows: all n elements have one scale
 *     quantize  elements to symbols     updates: each has the scale that its prediction gives
 *
 *     linear    element = q * scale                      q = grid->min + symbol - 1
 *     log       bits of element = scale + q * step, so the points are steps of a ratio; the sign,
 * if there is one, is the lowest bit of symbol - 1
 *
 * All tiers, compilers and options must give the same bits. So whatever could be rounded is done in
 * integers, or by an operation that IEEE 754 defines exactly.
 *
 * Arguments: q fits in 17 bits with its sign, and a scale is the bits of a number of 8 significant
 * bits (its lower half is zero).
 */

/* The scale that an element's prediction gives: about its square root times a constant, since half
 * of a float's bits is its root's but for the exponent's bias. */
LMC__INLINE uint32_t lmc__predicted_scale(uint32_t p, const lmc__grid *grid)
{
    int32_t half;
    p &= 0x7FFFFFFF;
    half = (int32_t)((p > grid->floor ? p : grid->floor) >> 1) + grid->bias;
    if (half < (int32_t)LMC__MIN_SCALE) half = (int32_t)LMC__MIN_SCALE;
    if (half > (int32_t)LMC__MAX_SCALE) half = (int32_t)LMC__MAX_SCALE;
    return (uint32_t)half & 0xFFFF0000u;
}

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

/* Magnitude over scale as the nearest F32, then that to the nearest integer, halves up; 65536 if
 * that is less. It is what IEEE division gives, in integers: a mantissa of 24 bits, shifted up by
 * 9, over one of 8 bits has 25 or 26 bits, so 24 and a rest of one or two that decides the
 * rounding; ties are exact divisions only, and go to the even neighbour. */
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

/* The exponent is neither 0 nor 255: subtracting wraps what is below to large numbers. */
LMC__INLINE int lmc__is_normal(uint32_t v) { return (v & 0x7FFFFFFF) - 0x00800000 < 0x7F000000; }

LMC__INLINE uint32_t lmc__quantize_linear(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const int32_t magnitude = (int32_t)lmc__divide(x & 0x7FFFFFFF, scale),
                  q = x >> 31 ? -magnitude : magnitude;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (uint32_t)(q - grid->min) >= grid->n_points) return LMC__EXCEPTION;
    return q == 0 ? 0 : (uint32_t)(q - grid->min) + 1;
}

/* Distance to the lower border of the lowest point; what is below wraps to 2^31 and more, as does
 * what is too far above. */
LMC__INLINE uint32_t lmc__lowest(const lmc__grid *grid)
{
    return (uint32_t)grid->min * grid->step - (grid->step >> 1);
}

LMC__INLINE uint32_t lmc__quantize_log(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t u = (x & 0x7FFFFFFF) - scale - lmc__lowest(grid), t = u / grid->step;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (x & 0x7FFFFFFF) > LMC__MAX_LOG_SCALE ||
        (x >> 31 && !grid->is_signed) || u >> 31 || t >= grid->n_points)
        return LMC__EXCEPTION; /* beyond the outmost points it would move by more than half a step
                                */
    return (grid->is_signed ? t << 1 | x >> 31 : t) + 1;
}

static void lmc__restore_rows_scalar(uint8_t *dst, const uint16_t *symbols, size_t n,
                                     uint32_t scale, const lmc__grid *grid)
{
    size_t i;
    if (grid->is_log)
        for (i = 0; i < n; i++)
            lmc__store32(dst + 4 * i, lmc__restore_log(symbols[i], scale, grid));
    else
        for (i = 0; i < n; i++)
            lmc__store32(dst + 4 * i, lmc__restore_linear(symbols[i], scale, grid->min));
}

static void lmc__restore_updates_scalar(uint8_t *dst, const uint16_t *symbols,
                                        const uint8_t *second, size_t n, const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i < n; i++)
        lmc__store32(dst + 4 * i,
                     lmc__restore_linear(symbols[i],
                                         lmc__predicted_scale(lmc__load32(second + 4 * i), grid),
                                         grid->min));
}

static size_t lmc__quantize_rows_scalar(uint16_t *symbols, const uint8_t *src, size_t n,
                                        uint32_t scale, const lmc__grid *grid)
{
    size_t i, exceptions = 0;
    for (i = 0; i < n; i++) {
        const uint32_t x = lmc__load32(src + 4 * i);
        symbols[i] = (uint16_t)(grid->is_log ? lmc__quantize_log(x, scale, grid)
                                             : lmc__quantize_linear(x, scale, grid));
        exceptions += symbols[i] == LMC__EXCEPTION;
    }
    return exceptions;
}

static size_t lmc__quantize_updates_scalar(uint16_t *symbols, const uint8_t *src,
                                           const uint8_t *second, size_t n, const lmc__grid *grid)
{
    size_t i, exceptions = 0;
    for (i = 0; i < n; i++) {
        symbols[i] = (uint16_t)lmc__quantize_linear(
            lmc__load32(src + 4 * i), lmc__predicted_scale(lmc__load32(second + 4 * i), grid),
            grid);
        exceptions += symbols[i] == LMC__EXCEPTION;
    }
    return exceptions;
}

/* Sum of the magnitudes' bits >> 14 of those elements, at most 65536, that are normal numbers;
 * *count: how many. */
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

/* symbols[i] = table[codes[i]] */
static void lmc__look_up_scalar(uint16_t *symbols, const uint8_t *codes, size_t n,
                                const uint16_t table[256])
{
    size_t i;
    for (i = 0; i < n; i++) symbols[i] = table[codes[i]];
}

/* symbols[i] = high[i] << low_bits | low[i]; low is NULL if low_bits is 0 */
static void lmc__join_symbols_scalar(uint16_t *symbols, const uint8_t *high, const uint8_t *low,
                                     size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++)
        symbols[i] = (uint16_t)((unsigned)high[i] << low_bits | (low ? low[i] : 0u));
}

/* The inverse, of symbols below 256 << low_bits. */
static void lmc__cut_symbols_scalar(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                                    unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++) {
        high[i] = (uint8_t)(symbols[i] >> low_bits);
        if (low) low[i] = (uint8_t)(symbols[i] & ((1u << low_bits) - 1));
    }
}

/* memcpy of what will not be looked at soon: past the caches */
static void lmc__stream_scalar(uint8_t *dst, const uint8_t *src, size_t size)
{
    memcpy(dst, src, size);
}

/* u / divisor for u < 2^31 is (u * magic) >> shift, shift = 31 + log2, where 2^log2 is the least
 * power of two from the divisor on (Warren, Hacker's Delight, 10-9). Of a power of two, just a
 * shift by log2. */
typedef struct lmc__divisor {
    uint64_t magic;
    unsigned shift;
    int is_power;
} lmc__divisor;

/* Several at a time, in the vectors of gcc and clang. Division is IEEE's, so not under -ffast-math,
 * which has approximations in its place: then the scalar code divides (clang does not tell of
 * -freciprocal-math alone). */
#if (LMC__X86 || LMC__NEON) && (defined(__clang__) || __GNUC__ >= 9)
#define LMC__VECTORS 1
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__)
#define LMC__OR_SCALAR(name, isa) lmc__##name##_scalar
#else
#define LMC__OR_SCALAR(name, isa) lmc__##name##_##isa
#endif
#else
#define LMC__VECTORS 0
#endif

#if LMC__VECTORS
/* a where the mask is -1, b where it is 0. A macro: as a function, gcc 12 makes three instructions
 * of it on AVX-512 in place of one. */
#define LMC__PICK(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

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

#if LMC__NEON
#define LMC__LANES 4
#define LMC__ISA(name) lmc__##name##_neon
#define LMC__INLINE_ISA LMC__INLINE
#define LMC__STATIC_ISA static
/* -- kernels/grids_vec.inl -- */
/* The kernels of grids.h in the vectors of gcc and clang: a template, included once for each tier,
 * between
 *
 *     LMC__LANES        elements of 32 bits in a vector
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *     LMC__STATIC_ISA   what its other functions begin with
 *
 * which it undefines at its end. Each function has the name of the scalar one, and each line of a
 * step computes what the scalar text does for one element. A comparison gives -1 or 0 for each
 * element; LMC__PICK chooses by that. */
typedef uint32_t LMC__ISA(u32) __attribute__((vector_size(4 * LMC__LANES)));
typedef int32_t LMC__ISA(i32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint64_t LMC__ISA(u64) __attribute__((vector_size(4 * LMC__LANES)));
typedef float LMC__ISA(f32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint16_t LMC__ISA(u16) __attribute__((vector_size(2 * LMC__LANES))); /* as many */
typedef uint16_t LMC__ISA(w16) __attribute__((vector_size(4 * LMC__LANES))); /* as long */
typedef uint8_t LMC__ISA(w8) __attribute__((vector_size(2 * LMC__LANES)));   /* as many as w16 */
#define LMC__U32 LMC__ISA(u32)
#define LMC__I32 LMC__ISA(i32)
#define LMC__U64 LMC__ISA(u64)
#define LMC__F32 LMC__ISA(f32)

/* The scales that the predictions at `second` give. They are positive as signed integers. */
LMC__INLINE_ISA LMC__I32 LMC__ISA(predicted_scales)(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    LMC__I32 p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

LMC__INLINE_ISA void LMC__ISA(restore_linear_step)(uint8_t *dst, const uint16_t *symbols,
                                                   LMC__I32 scale, int32_t min)
{
    LMC__ISA(u16) s;
    LMC__I32 q;
    LMC__F32 v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, LMC__I32);
    q = (q + (min - 1)) & (LMC__I32)(q != 0);
    v = __builtin_convertvector(q, LMC__F32) * (LMC__F32)scale;
    memcpy(dst, &v, sizeof v);
}

/* The scalar text adds in 64 bits; here |q| is cut to `limit`, the most that times step fits in 31:
 * what is beyond gives a sum beyond both bounds as well. The bounds less the scale are compared,
 * so that the sum itself cannot overflow. */
LMC__INLINE_ISA void LMC__ISA(restore_log_step)(uint8_t *dst, const uint16_t *symbols,
                                                uint32_t scale, const lmc__grid *grid,
                                                int32_t limit, int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    LMC__ISA(u16) s;
    LMC__I32 q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, LMC__I32);
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

LMC__STATIC_ISA void LMC__ISA(restore_rows)(uint8_t *dst, const uint16_t *symbols, size_t n,
                                            uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const LMC__I32 zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                          grid->min);
    lmc__restore_rows_scalar(dst + 4 * i, symbols + i, n - i, scale, grid);
}

LMC__STATIC_ISA void LMC__ISA(restore_updates)(uint8_t *dst, const uint16_t *symbols,
                                               const uint8_t *second, size_t n,
                                               const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i,
                                      LMC__ISA(predicted_scales)(second + 4 * i, grid), grid->min);
    lmc__restore_updates_scalar(dst + 4 * i, symbols + i, second + 4 * i, n - i, grid);
}

/* s: the symbols of elements x if they are on the grid; is_off: -1 where they are not. Elements
 * that are no normal numbers are not either, but +0 always is: symbol 0. */
LMC__INLINE_ISA void LMC__ISA(finish_step)(uint16_t *symbols, LMC__I32 s, LMC__I32 x,
                                           LMC__I32 is_off, LMC__I32 *exceptions)
{
    const LMC__U32 from_normal = ((LMC__U32)x & 0x7FFFFFFFu) - 0x00800000u;
    LMC__ISA(u16) narrow;
    is_off |= (LMC__I32)(from_normal >= 0x7F000000u);
    is_off &= (LMC__I32)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (LMC__I32)(x != 0));
    narrow = __builtin_convertvector((LMC__U32)s, LMC__ISA(u16));
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

LMC__INLINE_ISA void LMC__ISA(quantize_linear_step)(uint16_t *symbols, const uint8_t *src,
                                                    LMC__I32 scale, const lmc__grid *grid,
                                                    LMC__I32 *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    LMC__I32 x, y, q, is_off;
    LMC__F32 v;
    memcpy(&x, src, sizeof x);
    v = (LMC__F32)(x & 0x7FFFFFFF) / (LMC__F32)scale;
    y = (LMC__I32)v;
    v = (LMC__F32)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, LMC__I32) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (LMC__I32)((LMC__U32)y >= grid->n_points);
    LMC__ISA(finish_step)(symbols, (y + 1) & (LMC__I32)(q != 0), x, is_off, exceptions);
}

/* lowest: the scale plus the distance to the lower border of the lowest point. */
LMC__INLINE_ISA void LMC__ISA(quantize_log_step)(uint16_t *symbols, const uint8_t *src,
                                                 uint32_t lowest, const lmc__grid *grid,
                                                 const lmc__divisor *step, LMC__I32 *exceptions)
{
    LMC__I32 x, is_off;
    LMC__U32 u, t;
    memcpy(&x, src, sizeof x);
    u = ((LMC__U32)x & 0x7FFFFFFFu) - lowest;
    is_off = (LMC__I32)u >> 31 | (LMC__I32)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const LMC__U64 even = (((LMC__U64)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const LMC__U64 odd = (((LMC__U64)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (LMC__U32)(even | odd << 32);
    }
    is_off |= (LMC__I32)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (LMC__U32)x >> 31;
    else is_off |= x >> 31;
    LMC__ISA(finish_step)(symbols, (LMC__I32)t + 1, x, is_off, exceptions);
}

LMC__INLINE_ISA size_t LMC__ISA(sum)(LMC__I32 v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_rows)(uint16_t *symbols, const uint8_t *src, size_t n,
                                               uint32_t scale, const lmc__grid *grid)
{
    const LMC__I32 zero = {0};
    LMC__I32 exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_log_step)(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                           &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_rows_scalar(symbols + i, src + 4 * i, n - i, scale, grid);
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_updates)(uint16_t *symbols, const uint8_t *src,
                                                  const uint8_t *second, size_t n,
                                                  const lmc__grid *grid)
{
    LMC__I32 exceptions = {0};
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i,
                                       LMC__ISA(predicted_scales)(second + 4 * i, grid), grid,
                                       &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_updates_scalar(symbols + i, src + 4 * i, second + 4 * i, n - i, grid);
}

LMC__STATIC_ISA uint32_t LMC__ISA(sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count)
{
    LMC__I32 sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        LMC__U32 x;
        LMC__I32 is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (LMC__I32)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (LMC__I32)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)LMC__ISA(sum)(counts);
    return rest + (uint32_t)LMC__ISA(sum)(sum);
}

LMC__STATIC_ISA void LMC__ISA(join_symbols)(uint16_t *symbols, const uint8_t *high,
                                            const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w8) h, l;
        LMC__ISA(w16) s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, LMC__ISA(w16)) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, LMC__ISA(w16));
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

LMC__STATIC_ISA void LMC__ISA(cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                           size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w16) s;
        LMC__ISA(w8) part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, LMC__ISA(w8));
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), LMC__ISA(w8));
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#undef LMC__U32
#undef LMC__I32
#undef LMC__U64
#undef LMC__F32
#undef LMC__LANES
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */
#endif
#if LMC__X86
#define LMC__LANES 8
#define LMC__ISA(name) lmc__##name##_avx2
#define LMC__INLINE_ISA LMC__INLINE2
#define LMC__STATIC_ISA LMC__AVX2 static
/* -- kernels/grids_vec.inl -- */
typedef uint32_t LMC__ISA(u32) __attribute__((vector_size(4 * LMC__LANES)));
typedef int32_t LMC__ISA(i32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint64_t LMC__ISA(u64) __attribute__((vector_size(4 * LMC__LANES)));
typedef float LMC__ISA(f32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint16_t LMC__ISA(u16) __attribute__((vector_size(2 * LMC__LANES))); /* as many */
typedef uint16_t LMC__ISA(w16) __attribute__((vector_size(4 * LMC__LANES))); /* as long */
typedef uint8_t LMC__ISA(w8) __attribute__((vector_size(2 * LMC__LANES)));   /* as many as w16 */
#define LMC__U32 LMC__ISA(u32)
#define LMC__I32 LMC__ISA(i32)
#define LMC__U64 LMC__ISA(u64)
#define LMC__F32 LMC__ISA(f32)

LMC__INLINE_ISA LMC__I32 LMC__ISA(predicted_scales)(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    LMC__I32 p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

LMC__INLINE_ISA void LMC__ISA(restore_linear_step)(uint8_t *dst, const uint16_t *symbols,
                                                   LMC__I32 scale, int32_t min)
{
    LMC__ISA(u16) s;
    LMC__I32 q;
    LMC__F32 v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, LMC__I32);
    q = (q + (min - 1)) & (LMC__I32)(q != 0);
    v = __builtin_convertvector(q, LMC__F32) * (LMC__F32)scale;
    memcpy(dst, &v, sizeof v);
}

LMC__INLINE_ISA void LMC__ISA(restore_log_step)(uint8_t *dst, const uint16_t *symbols,
                                                uint32_t scale, const lmc__grid *grid,
                                                int32_t limit, int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    LMC__ISA(u16) s;
    LMC__I32 q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, LMC__I32);
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

LMC__STATIC_ISA void LMC__ISA(restore_rows)(uint8_t *dst, const uint16_t *symbols, size_t n,
                                            uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const LMC__I32 zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                          grid->min);
    lmc__restore_rows_scalar(dst + 4 * i, symbols + i, n - i, scale, grid);
}

LMC__STATIC_ISA void LMC__ISA(restore_updates)(uint8_t *dst, const uint16_t *symbols,
                                               const uint8_t *second, size_t n,
                                               const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i,
                                      LMC__ISA(predicted_scales)(second + 4 * i, grid), grid->min);
    lmc__restore_updates_scalar(dst + 4 * i, symbols + i, second + 4 * i, n - i, grid);
}

LMC__INLINE_ISA void LMC__ISA(finish_step)(uint16_t *symbols, LMC__I32 s, LMC__I32 x,
                                           LMC__I32 is_off, LMC__I32 *exceptions)
{
    const LMC__U32 from_normal = ((LMC__U32)x & 0x7FFFFFFFu) - 0x00800000u;
    LMC__ISA(u16) narrow;
    is_off |= (LMC__I32)(from_normal >= 0x7F000000u);
    is_off &= (LMC__I32)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (LMC__I32)(x != 0));
    narrow = __builtin_convertvector((LMC__U32)s, LMC__ISA(u16));
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

LMC__INLINE_ISA void LMC__ISA(quantize_linear_step)(uint16_t *symbols, const uint8_t *src,
                                                    LMC__I32 scale, const lmc__grid *grid,
                                                    LMC__I32 *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    LMC__I32 x, y, q, is_off;
    LMC__F32 v;
    memcpy(&x, src, sizeof x);
    v = (LMC__F32)(x & 0x7FFFFFFF) / (LMC__F32)scale;
    y = (LMC__I32)v;
    v = (LMC__F32)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, LMC__I32) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (LMC__I32)((LMC__U32)y >= grid->n_points);
    LMC__ISA(finish_step)(symbols, (y + 1) & (LMC__I32)(q != 0), x, is_off, exceptions);
}

LMC__INLINE_ISA void LMC__ISA(quantize_log_step)(uint16_t *symbols, const uint8_t *src,
                                                 uint32_t lowest, const lmc__grid *grid,
                                                 const lmc__divisor *step, LMC__I32 *exceptions)
{
    LMC__I32 x, is_off;
    LMC__U32 u, t;
    memcpy(&x, src, sizeof x);
    u = ((LMC__U32)x & 0x7FFFFFFFu) - lowest;
    is_off = (LMC__I32)u >> 31 | (LMC__I32)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const LMC__U64 even = (((LMC__U64)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const LMC__U64 odd = (((LMC__U64)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (LMC__U32)(even | odd << 32);
    }
    is_off |= (LMC__I32)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (LMC__U32)x >> 31;
    else is_off |= x >> 31;
    LMC__ISA(finish_step)(symbols, (LMC__I32)t + 1, x, is_off, exceptions);
}

LMC__INLINE_ISA size_t LMC__ISA(sum)(LMC__I32 v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_rows)(uint16_t *symbols, const uint8_t *src, size_t n,
                                               uint32_t scale, const lmc__grid *grid)
{
    const LMC__I32 zero = {0};
    LMC__I32 exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_log_step)(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                           &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_rows_scalar(symbols + i, src + 4 * i, n - i, scale, grid);
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_updates)(uint16_t *symbols, const uint8_t *src,
                                                  const uint8_t *second, size_t n,
                                                  const lmc__grid *grid)
{
    LMC__I32 exceptions = {0};
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i,
                                       LMC__ISA(predicted_scales)(second + 4 * i, grid), grid,
                                       &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_updates_scalar(symbols + i, src + 4 * i, second + 4 * i, n - i, grid);
}

LMC__STATIC_ISA uint32_t LMC__ISA(sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count)
{
    LMC__I32 sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        LMC__U32 x;
        LMC__I32 is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (LMC__I32)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (LMC__I32)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)LMC__ISA(sum)(counts);
    return rest + (uint32_t)LMC__ISA(sum)(sum);
}

LMC__STATIC_ISA void LMC__ISA(join_symbols)(uint16_t *symbols, const uint8_t *high,
                                            const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w8) h, l;
        LMC__ISA(w16) s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, LMC__ISA(w16)) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, LMC__ISA(w16));
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

LMC__STATIC_ISA void LMC__ISA(cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                           size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w16) s;
        LMC__ISA(w8) part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, LMC__ISA(w8));
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), LMC__ISA(w8));
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#undef LMC__U32
#undef LMC__I32
#undef LMC__U64
#undef LMC__F32
#undef LMC__LANES
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */

#define LMC__LANES 16
#define LMC__ISA(name) lmc__##name##_avx512
#define LMC__INLINE_ISA LMC__INLINE512
#define LMC__STATIC_ISA LMC__AVX512 static
/* -- kernels/grids_vec.inl -- */
typedef uint32_t LMC__ISA(u32) __attribute__((vector_size(4 * LMC__LANES)));
typedef int32_t LMC__ISA(i32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint64_t LMC__ISA(u64) __attribute__((vector_size(4 * LMC__LANES)));
typedef float LMC__ISA(f32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint16_t LMC__ISA(u16) __attribute__((vector_size(2 * LMC__LANES))); /* as many */
typedef uint16_t LMC__ISA(w16) __attribute__((vector_size(4 * LMC__LANES))); /* as long */
typedef uint8_t LMC__ISA(w8) __attribute__((vector_size(2 * LMC__LANES)));   /* as many as w16 */
#define LMC__U32 LMC__ISA(u32)
#define LMC__I32 LMC__ISA(i32)
#define LMC__U64 LMC__ISA(u64)
#define LMC__F32 LMC__ISA(f32)

LMC__INLINE_ISA LMC__I32 LMC__ISA(predicted_scales)(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    LMC__I32 p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

LMC__INLINE_ISA void LMC__ISA(restore_linear_step)(uint8_t *dst, const uint16_t *symbols,
                                                   LMC__I32 scale, int32_t min)
{
    LMC__ISA(u16) s;
    LMC__I32 q;
    LMC__F32 v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, LMC__I32);
    q = (q + (min - 1)) & (LMC__I32)(q != 0);
    v = __builtin_convertvector(q, LMC__F32) * (LMC__F32)scale;
    memcpy(dst, &v, sizeof v);
}

LMC__INLINE_ISA void LMC__ISA(restore_log_step)(uint8_t *dst, const uint16_t *symbols,
                                                uint32_t scale, const lmc__grid *grid,
                                                int32_t limit, int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    LMC__ISA(u16) s;
    LMC__I32 q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, LMC__I32);
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

LMC__STATIC_ISA void LMC__ISA(restore_rows)(uint8_t *dst, const uint16_t *symbols, size_t n,
                                            uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const LMC__I32 zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                          grid->min);
    lmc__restore_rows_scalar(dst + 4 * i, symbols + i, n - i, scale, grid);
}

LMC__STATIC_ISA void LMC__ISA(restore_updates)(uint8_t *dst, const uint16_t *symbols,
                                               const uint8_t *second, size_t n,
                                               const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i,
                                      LMC__ISA(predicted_scales)(second + 4 * i, grid), grid->min);
    lmc__restore_updates_scalar(dst + 4 * i, symbols + i, second + 4 * i, n - i, grid);
}

LMC__INLINE_ISA void LMC__ISA(finish_step)(uint16_t *symbols, LMC__I32 s, LMC__I32 x,
                                           LMC__I32 is_off, LMC__I32 *exceptions)
{
    const LMC__U32 from_normal = ((LMC__U32)x & 0x7FFFFFFFu) - 0x00800000u;
    LMC__ISA(u16) narrow;
    is_off |= (LMC__I32)(from_normal >= 0x7F000000u);
    is_off &= (LMC__I32)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (LMC__I32)(x != 0));
    narrow = __builtin_convertvector((LMC__U32)s, LMC__ISA(u16));
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

LMC__INLINE_ISA void LMC__ISA(quantize_linear_step)(uint16_t *symbols, const uint8_t *src,
                                                    LMC__I32 scale, const lmc__grid *grid,
                                                    LMC__I32 *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    LMC__I32 x, y, q, is_off;
    LMC__F32 v;
    memcpy(&x, src, sizeof x);
    v = (LMC__F32)(x & 0x7FFFFFFF) / (LMC__F32)scale;
    y = (LMC__I32)v;
    v = (LMC__F32)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, LMC__I32) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (LMC__I32)((LMC__U32)y >= grid->n_points);
    LMC__ISA(finish_step)(symbols, (y + 1) & (LMC__I32)(q != 0), x, is_off, exceptions);
}

LMC__INLINE_ISA void LMC__ISA(quantize_log_step)(uint16_t *symbols, const uint8_t *src,
                                                 uint32_t lowest, const lmc__grid *grid,
                                                 const lmc__divisor *step, LMC__I32 *exceptions)
{
    LMC__I32 x, is_off;
    LMC__U32 u, t;
    memcpy(&x, src, sizeof x);
    u = ((LMC__U32)x & 0x7FFFFFFFu) - lowest;
    is_off = (LMC__I32)u >> 31 | (LMC__I32)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const LMC__U64 even = (((LMC__U64)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const LMC__U64 odd = (((LMC__U64)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (LMC__U32)(even | odd << 32);
    }
    is_off |= (LMC__I32)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (LMC__U32)x >> 31;
    else is_off |= x >> 31;
    LMC__ISA(finish_step)(symbols, (LMC__I32)t + 1, x, is_off, exceptions);
}

LMC__INLINE_ISA size_t LMC__ISA(sum)(LMC__I32 v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_rows)(uint16_t *symbols, const uint8_t *src, size_t n,
                                               uint32_t scale, const lmc__grid *grid)
{
    const LMC__I32 zero = {0};
    LMC__I32 exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_log_step)(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                           &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_rows_scalar(symbols + i, src + 4 * i, n - i, scale, grid);
}

LMC__STATIC_ISA size_t LMC__ISA(quantize_updates)(uint16_t *symbols, const uint8_t *src,
                                                  const uint8_t *second, size_t n,
                                                  const lmc__grid *grid)
{
    LMC__I32 exceptions = {0};
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i,
                                       LMC__ISA(predicted_scales)(second + 4 * i, grid), grid,
                                       &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_updates_scalar(symbols + i, src + 4 * i, second + 4 * i, n - i, grid);
}

LMC__STATIC_ISA uint32_t LMC__ISA(sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count)
{
    LMC__I32 sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        LMC__U32 x;
        LMC__I32 is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (LMC__I32)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (LMC__I32)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)LMC__ISA(sum)(counts);
    return rest + (uint32_t)LMC__ISA(sum)(sum);
}

LMC__STATIC_ISA void LMC__ISA(join_symbols)(uint16_t *symbols, const uint8_t *high,
                                            const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w8) h, l;
        LMC__ISA(w16) s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, LMC__ISA(w16)) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, LMC__ISA(w16));
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

LMC__STATIC_ISA void LMC__ISA(cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                           size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w16) s;
        LMC__ISA(w8) part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, LMC__ISA(w8));
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), LMC__ISA(w8));
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#undef LMC__U32
#undef LMC__I32
#undef LMC__U64
#undef LMC__F32
#undef LMC__LANES
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
/* -- */

LMC__AVX2 static void lmc__stream_avx2(uint8_t *dst, const uint8_t *src, size_t size)
{
    size_t i =
        lmc__min(size, (0 - (uintptr_t)dst) &
                           (LMC__LINE -
                            1)); /* whole lines only: parts of one would wait for it to be read */
    memcpy(dst, src, i);
    for (; i + LMC__LINE <= size; i += LMC__LINE) {
        _mm256_stream_si256((__m256i *)(void *)(dst + i),
                            _mm256_loadu_si256((const __m256i *)(const void *)(src + i)));
        _mm256_stream_si256((__m256i *)(void *)(dst + i + 32),
                            _mm256_loadu_si256((const __m256i *)(const void *)(src + i + 32)));
    }
    memcpy(dst + i, src + i, size - i);
}

LMC__AVX512 static void lmc__look_up_avx512(uint16_t *symbols, const uint8_t *codes, size_t n,
                                            const uint16_t table[256])
{
    __m512i low[4], high[4]; /* the table's bytes, 64 to a vector */
    size_t i;
    for (i = 0; i < 4; i++) {
        const __m512i a = lmc__load_avx512((const uint8_t *)(table + 64 * i)),
                      b = lmc__load_avx512((const uint8_t *)(table + 64 * i + 32));
        low[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                                    _mm512_cvtepi16_epi8(b), 1);
        high[i] = _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)), 1);
    }
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i c = lmc__load_avx512(codes + i);
        const __mmask64 upper = _mm512_movepi8_mask(c); /* codes of 128 and more */
        const __m512i l = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(low[0], c, low[1]),
                                                 _mm512_permutex2var_epi8(low[2], c, low[3]));
        const __m512i h =
            _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(high[0], c, high[1]),
                                   _mm512_permutex2var_epi8(high[2], c, high[3]));
        /* unpack interleaves within 128 bits: 64-bit lanes 0 2 4 6 | 1 3 5 7 first */
        const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
        const __m512i lo = _mm512_permutexvar_epi64(order, l),
                      hi = _mm512_permutexvar_epi64(order, h);
        lmc__store_avx512((uint8_t *)(symbols + i), _mm512_unpacklo_epi8(lo, hi));
        lmc__store_avx512((uint8_t *)(symbols + i + 32), _mm512_unpackhi_epi8(lo, hi));
    }
    lmc__look_up_scalar(symbols + i, codes + i, n - i, table);
}
#endif
#endif

/* == kernels/tiers.h ============================================================================== */

/*
 * The kernels of each tier, in the order of struct lmc__kernels. All that is above the kernels
 * calls them through one of these tables. In a developer's build (make dev) each table is in an
 * object of its own, and with it the code of that tier.
 */
#if LMC__PART
extern const lmc__kernels lmc__kernels_scalar, lmc__kernels_neon, lmc__kernels_neon_only,
    lmc__kernels_simde, lmc__kernels_avx2, lmc__kernels_avx512;
#endif

/* Those that a tier has under its own name. */
#define LMC__KERNELS(isa)                                                                          \
    lmc__is_constant_scalar, lmc__split_##isa, lmc__map_##isa, lmc__partition_##isa,               \
        lmc__merge_##isa, lmc__flatten_##isa, lmc__unflatten_##isa, lmc__count_ones_##isa,         \
        lmc__fold_##isa, lmc__unfold_##isa, lmc__count_classes_##isa, lmc__group_##isa,            \
        lmc__ungroup_##isa
#define LMC__SCALAR_GRIDS                                                                          \
    lmc__restore_rows_scalar, lmc__restore_updates_scalar, lmc__quantize_rows_scalar,              \
        lmc__quantize_updates_scalar, lmc__sum_magnitudes_scalar, lmc__join_symbols_scalar,        \
        lmc__cut_symbols_scalar, lmc__look_up_scalar, lmc__stream_scalar
#if LMC__VECTORS
#define LMC__GRIDS(isa, look_up, stream)                                                           \
    lmc__restore_rows_##isa, lmc__restore_updates_##isa, LMC__OR_SCALAR(quantize_rows, isa),       \
        LMC__OR_SCALAR(quantize_updates, isa), lmc__sum_magnitudes_##isa, lmc__join_symbols_##isa, \
        lmc__cut_symbols_##isa, look_up, stream
#else
#define LMC__GRIDS(isa, look_up, stream) LMC__SCALAR_GRIDS
#endif

#if LMC__HAS_PART(LMC__PART_KERNELS)
LMC__TABLE lmc__kernels lmc__kernels_scalar = {
    LMC_TIER_SCALAR,       lmc__crc32c_scalar,   lmc__join_scalar, lmc__split_root_strips,
    lmc__join_root_strips, LMC__KERNELS(scalar), LMC__SCALAR_GRIDS};

#if LMC__NEON
/* with the CRC-32 instructions, and without */
LMC__TABLE lmc__kernels lmc__kernels_neon = {
    LMC_TIER_NEON,
    lmc__crc32c_neon,
    lmc__join_neon,
    lmc__split_root_strips,
    lmc__join_root_strips,
    LMC__KERNELS(neon),
    LMC__GRIDS(neon, lmc__look_up_scalar, lmc__stream_scalar)};
LMC__TABLE lmc__kernels lmc__kernels_neon_only = {
    LMC_TIER_NEON,
    lmc__crc32c_scalar,
    lmc__join_neon,
    lmc__split_root_strips,
    lmc__join_root_strips,
    LMC__KERNELS(neon),
    LMC__GRIDS(neon, lmc__look_up_scalar, lmc__stream_scalar)};
#endif

#if LMC__SIMDE
/* The kernels that won when measured (bench/instructions.md: instructions on ppc64le and 32-bit
 * Arm, time on wasm32): partition takes 0.2 to 0.5 of the scalar one, merge 0.3 to 0.9, flatten 0.6
 * to 1, unflatten of two planes 0.3 to 0.6, of five 0.9 to 1.2. Split and join do not: of elements
 * of two bytes they take up to three times as long, for compilers turn the scalar loops into vector
 * code by themselves. */
LMC__TABLE lmc__kernels lmc__kernels_simde = {
    LMC_TIER_SIMDE,         lmc__crc32c_scalar,      lmc__join_scalar,  lmc__split_root_strips,
    lmc__join_root_strips,  lmc__is_constant_scalar, lmc__split_scalar, lmc__map_scalar,
    lmc__partition_avx2,    lmc__merge_simde,        lmc__flatten_avx2, lmc__unflatten_avx2,
    lmc__count_ones_scalar, lmc__fold_avx2,          lmc__unfold_avx2,  lmc__count_classes_scalar,
    lmc__group_scalar,      lmc__ungroup_scalar,     LMC__SCALAR_GRIDS};
#endif
#endif

#if LMC__X86 && LMC__HAS_PART(LMC__PART_AVX2)
LMC__TABLE lmc__kernels lmc__kernels_avx2 = {
    LMC_TIER_AVX2,
    lmc__crc32c_avx2,
    lmc__join_avx2,
    lmc__split_root_avx2,
    lmc__join_root_avx2,
    LMC__KERNELS(avx2),
    LMC__GRIDS(avx2, lmc__look_up_scalar, lmc__stream_avx2)};
#endif

#if LMC__X86 && LMC__HAS_PART(LMC__PART_AVX512)
/* join on its own is rare: what join_root leaves over */
LMC__TABLE lmc__kernels lmc__kernels_avx512 = {
    LMC_TIER_AVX512,
    lmc__crc32c_avx512,
    lmc__join_avx2,
    lmc__split_root_avx512,
    lmc__join_root_avx512,
    LMC__KERNELS(avx512),
    LMC__GRIDS(avx512, lmc__look_up_avx512, lmc__stream_avx2)};
#endif

/* == kernels/dispatch.h =========================================================================== */

#if LMC__X86
#include <cpuid.h>
#endif
#if LMC__NEON && defined(__linux__)
#include <sys/auxv.h>
#endif

/*
 * Which tier's kernels are used: the best that the build has and the machine can run, unless the
 * user limits it. The only state of this library.
 */

/* One pointer to a constant table, chosen at first use. Choosing twice gives the same answer, so
 * relaxed atomics do. */

static const lmc__kernels *lmc__active_kernels; /* NULL: not chosen yet */

#if defined(__GNUC__)
#define LMC__ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define LMC__ATOMIC_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
/* *p = v if it is still *expected, else *expected = *p: what another thread has chosen stays */
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#else
#define LMC__ATOMIC_LOAD(p)                                                                        \
    (*(const lmc__kernels *volatile                                                                \
           *)(p)) /* MSVC: volatile loads and stores of pointers are atomic */
#define LMC__ATOMIC_STORE(p, v) (*(const lmc__kernels *volatile *)(p) = (v))
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    (LMC__ATOMIC_STORE(p, v), (void)(expected), 1) /* there is one table only */
#endif

#if LMC__X86
/* 1 if the CPU has the tier's instructions and the system saves its registers (XCR0). */
static int lmc__cpu_has(enum lmc_tier tier)
{
    unsigned a, b, c, d, b7, c7, xcr0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if ((c & 0x8900002) != 0x8900002) return 0; /* OSXSAVE, POPCNT, SSE4.2, PCLMULQDQ */
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 & 0x06) != 0x06 || (b7 & 0x128) != 0x128) return 0; /* XMM, YMM; BMI1, AVX2, BMI2 */
    if (tier == LMC_TIER_AVX2) return 1;
    /* opmask, ZMM; AVX512 F, DQ, BW, VL; VBMI, VBMI2, VPCLMULQDQ, VPOPCNTDQ: Ice Lake, Zen 4 and
     * later have all */
    return (xcr0 & 0xE6) == 0xE6 && (b7 & 0xC0030000u) == 0xC0030000u && (c7 & 0x4442) == 0x4442;
}
#endif

#if LMC__NEON
/* 1 if the CPU has the CRC-32 instructions. */
static int lmc__cpu_has_crc(void)
{
#if defined(__ARM_FEATURE_CRC32) || defined(__APPLE__)
    return 1;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 7 & 1) != 0; /* HWCAP_CRC32 */
#else
    return 0;
#endif
}
#endif

/* The table of a tier, or NULL where this build or this machine lacks it. */
static const lmc__kernels *lmc__find_kernels(enum lmc_tier tier)
{
    switch (tier) {
    case LMC_TIER_SCALAR: return &lmc__kernels_scalar;
#if LMC__NEON
    case LMC_TIER_NEON: return lmc__cpu_has_crc() ? &lmc__kernels_neon : &lmc__kernels_neon_only;
#endif
#if LMC__X86
    case LMC_TIER_AVX2: return lmc__cpu_has(tier) ? &lmc__kernels_avx2 : NULL;
    case LMC_TIER_AVX512: return lmc__cpu_has(tier) ? &lmc__kernels_avx512 : NULL;
#endif
#if LMC__SIMDE
    case LMC_TIER_SIMDE: return &lmc__kernels_simde;
#endif
    default: return NULL;
    }
}

/* The best table up to a tier; at the latest the scalar one. */
static const lmc__kernels *lmc__best_kernels(int tier)
{
    const lmc__kernels *k = lmc__find_kernels((enum lmc_tier)tier);
    while (k == NULL) k = lmc__find_kernels((enum lmc_tier)-- tier);
    return k;
}

static const lmc__kernels *lmc__get_kernels(void)
{
    const lmc__kernels *k = LMC__ATOMIC_LOAD(&lmc__active_kernels);
    if (k == NULL) {
        const lmc__kernels *chosen = NULL;
        k = lmc__best_kernels(LMC_TIER_COUNT - 1);
        if (!LMC__ATOMIC_STORE_ONCE(&lmc__active_kernels, &chosen, k)) k = chosen;
    }
    return k;
}

LMC_API const char *lmc_tier_name(enum lmc_tier tier)
{
    static const char *const names[LMC_TIER_COUNT] = {"scalar", "neon", "avx2", "avx512", "simde"};
    return (unsigned)tier < LMC_TIER_COUNT ? names[tier] : "?";
}

LMC_API int lmc_has_tier(enum lmc_tier tier) { return lmc__find_kernels(tier) != NULL; }

LMC_API enum lmc_tier lmc_get_tier(void) { return lmc__get_kernels()->tier; }

LMC_API void lmc_limit_tier(enum lmc_tier tier)
{
    LMC__ATOMIC_STORE(
        &lmc__active_kernels,
        lmc__best_kernels((unsigned)tier < LMC_TIER_COUNT ? (int)tier : LMC_TIER_COUNT - 1));
}

LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size)
{
    return lmc__get_kernels()->crc32c(crc, (const uint8_t *)data, size);
}

/* == codec/dtypes.h =============================================================================== */

/* What the codec knows of a dtype. Files keep a dtype as the string of its source, and blocks keep
 * the width only, so this table serves encoders, and whoever computes sizes from shapes.
 *
 * A new dtype needs a number and a count (enum lmc_dtype and LMC_DTYPE_COUNT in api.h; numbers
 * never change), a row here at that number, and its bits in the table of spec 5.1, which decoders
 * check a tensor's size by: they refuse what they took for an unknown string before, so that is a
 * change of the format. Nothing in a block depends on it.
 *
 * rotates: 1 where the top bit of an element is a sign and an exponent of 8 bits or so follows.
 * Then encoders rotate elements left by one bit, so that the exponent is all of the top plane and
 * the sign is one of the noisy bits (spec 7.2: residual "subtract" with prediction zero). Floats of
 * one byte have only one plane: 0. */
static const struct {
    const char *name; /* as in safetensors */
    uint8_t bits;     /* of a logical element */
    uint8_t width;    /* bytes of a coded element: 1, 2, 4 or 8 */
    uint8_t rotates;
} lmc__dtypes[] = {
    {"AUTO", 8, 1, 0},    {"BOOL", 8, 1, 0},    {"F4", 4, 1, 0},          {"F6_E2M3", 6, 1, 0},
    {"F6_E3M2", 6, 1, 0}, {"U8", 8, 1, 0},      {"I8", 8, 1, 0},          {"F8_E5M2", 8, 1, 0},
    {"F8_E4M3", 8, 1, 0}, {"F8_E8M0", 8, 1, 0}, {"F8_E4M3FNUZ", 8, 1, 0}, {"F8_E5M2FNUZ", 8, 1, 0},
    {"I16", 16, 2, 0},    {"U16", 16, 2, 0},    {"F16", 16, 2, 1},        {"BF16", 16, 2, 1},
    {"I32", 32, 4, 0},    {"U32", 32, 4, 0},    {"F32", 32, 4, 1},        {"C64", 64, 4, 1},
    {"F64", 64, 8, 1},    {"I64", 64, 8, 0},    {"U64", 64, 8, 0}};

/* Does not compile unless there is one row for each number. */
typedef char
    lmc__has_all_dtypes[sizeof lmc__dtypes / sizeof *lmc__dtypes == LMC_DTYPE_COUNT ? 1 : -1];

LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].name : NULL;
}

LMC_API enum lmc_dtype lmc_find_dtype(const char *name)
{
    int i;
    for (i = 1; i < LMC_DTYPE_COUNT; i++) /* not "AUTO", which no source says */
        if (name && strcmp(name, lmc__dtypes[i].name) == 0) return (enum lmc_dtype)i;
    return LMC_AUTO;
}

LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].bits : 8;
}

LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].width : 1;
}

/* Whether elements of the dtype are rotated by one bit when they are coded without a prediction. */
static int lmc__rotates(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT && lmc__dtypes[dtype].rotates;
}

/* == codec/half.h ================================================================================= */

/* F32 to the formats of 16 bits, in integers, so that every machine rounds alike: to nearest, ties
 * to even; NaN stays NaN (spec 5.2). A bf16 weight that is the rounding of its fp32 master costs
 * nothing in a snapshot, but only if both sides round by the bit.
 *
 * Ties to even without a branch: add half a unit less one, and the lowest bit that stays. Below the
 * half nothing is carried, above it one; at the half itself one is carried if that bit is 1, which
 * makes it 0. A carry out of the mantissa raises the exponent, up to infinity, as it should. */

/* BF16 is the upper half of an F32. */
LMC__INLINE unsigned lmc__to_bf16(uint32_t v)
{
    if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40; /* or it might become infinity */
    return (v + 0x7FFF + (v >> 16 & 1)) >> 16;
}

/* F16 has 5 bits of exponent and 10 of mantissa, so four cases by magnitude: too large, normal,
 * subnormal, and below half of the least that there is. */
LMC__INLINE unsigned lmc__to_f16(uint32_t v)
{
    const unsigned sign = v >> 16 & 0x8000;
    const uint32_t magnitude = v & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00 | (magnitude >> 13 & 0x3FF);
    if (magnitude >= 0x47800000) return sign | 0x7C00; /* 2^16 and more: infinity */
    if (magnitude >= 0x38800000) /* 2^-14 and more: normal; exponents differ by 127 - 15 = 112 */
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
/* One loop for each conversion, so that neither asks for every element which one it is. */
LMC_API void lmc_convert(void *dst, const void *src, size_t n, enum lmc_conversion conversion)
{
    uint8_t *const out = (uint8_t *)dst;
    const uint8_t *const in = (const uint8_t *)src;
    size_t i;
    if (conversion == LMC_CONVERT_F32_TO_BF16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(in + 4 * i)));
    else
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_f16(lmc__load32(in + 4 * i)));
}
#endif

/* == codec/tree.h ================================================================================= */

/* The tree of a mask tree (spec 8.1, 8.2): canonical codes, and what its nodes own.
 *
 * Leaves are numbered in the order of their codes: by length, then by symbol; the escape, which
 * stands for every symbol without a code of its own, is the last. Leaf i has length[i] bits and
 * owns 2^(15 - length[i]) of a code space of 2^15, one leaf's share behind the other's. The shares
 * fill it exactly (lmc__tree_set_lengths refuses anything else), so the path from the root to a
 * leaf, 0 left and 1 right, is where its share starts, in binary. A node at depth d owns an aligned
 * 2^(15 - d) of the space, hence leaves that follow each other: a node is a range of leaves. As the
 * leaves are in order of length, one number for each length says where they start; no node is
 * stored anywhere, in memory or in the file.
 *
 * A *rank* is the number of a symbol's leaf. The encoder maps a list to ranks first. Then "goes
 * left at this node" is "rank below the first leaf of the right child": one comparison for each
 * element, without a look at codes. Symbols without a code have the ranks from the escape's on,
 * each another one, so that they pass all comparisons as the escape does, and can be mapped back.
 *
 * Symbols A to E with code lengths 1, 3, 3, 3, 3, and a list of eight, as stored:
 *
 *                 depth 0: leaves [0, 5)                 list    A C A A E A B A
 *                0 /           \ 1                       ranks   0 2 0 0 4 0 1 0
 *                 A    depth 1: leaves [1, 5)            mask    0 1 0 0 1 0 1 0   = 52 hex
 *                      flat, 4 = 2^2 of equal depth
 *                      /     |     |     \               ranks of the right child's: 2 4 1
 *                     B      C     D      E              less 1, in two bits: 01 11 00
 *                                                        high bits 0 1 0 = 02, low bits 1 1 0 = 03
 *
 * Nodes stand in pre-order: 52 of the root; nothing for A, whose elements are all alike; 02 03 for
 * the flat node. Bits are counted from the lowest of a byte. That is three bytes for eight elements
 * (12 bits by Shannon), and no length of anything: the 3 elements of the flat node are the ones of
 * the root's mask. Flat nodes are there for speed: two planes side by side are combined in one step
 * where masks would take three merges. */

/* The leaves of each length 1 .. 15, of the frozen trees (spec 8.4), which code the bytes of masks
 * in which one bit is rarer than the other: the higher the level, the rarer (see
 * lmc__choose_level). Made by: python3 spec/frozen_trees.py --c */
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

/* The symbols of all frozen trees in the order of their leaves: bytes with few ones first. In
 * Python: sorted(range(256), key=lambda v: (bin(v).count("1"), v)) */
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

typedef struct lmc__tree {
    unsigned n_leaves;
    unsigned escape;                     /* the escape's leaf; n_leaves if there is none */
    uint16_t first[LMC__MAX_LENGTH + 2]; /* first[L]: number of leaves shorter than L */
    uint16_t start[LMC__MAX_LENGTH + 2]; /* start[L]: their share of the code space of 2^15 */
    uint8_t length[256];                 /* of leaf i */
    uint8_t symbol[256];                 /* of leaf i; from the escape's on: all other symbols */
    uint8_t rank[256];                   /* the inverse of symbol */
} lmc__tree;

/* A node, by value: 20 bytes that are known on the way down. nesting says of which tree: 0 is that
 * of a list, 1 .. 3 are the frozen trees that code the masks of the one before. */
typedef struct lmc__node {
    unsigned nesting, depth;
    unsigned start;                /* of its share of the code space */
    unsigned first_leaf, end_leaf; /* it owns leaves [first_leaf, end_leaf) */
} lmc__node;

typedef struct lmc__children {
    lmc__node left, right;
} lmc__children;

/* From counts[L], the number of leaves of length L: first, start and length. */
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

/* Number of leaves that start below x of the code space, where x is the border of a node: all
 * shorter ones, and of the length that has its shares around x as many as fit below it. The
 * division leaves no rest, for no leaf's share lies across the border of a node. */
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

/* The children of a node that has more than one leaf. */
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

/* 1 if all elements of the node are one symbol: it takes no bytes and needs no list. */
LMC__INLINE int lmc__is_one_symbol(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf - node.first_leaf == 1 && node.first_leaf != tree->escape;
}

/* The planes of a flat node (spec 8.2, case 4), or 0 if it is none: leaves of one length, D below
 * the node, are 2^D of them, and those of the first and the last being equal makes all equal. */
LMC__INLINE unsigned lmc__get_flat_depth(const lmc__tree *tree, lmc__node node)
{
    const unsigned length = tree->length[node.first_leaf], flat_depth = length - node.depth;
    return node.end_leaf <= tree->escape && tree->length[node.end_leaf - 1] == length &&
                   flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT
               ? flat_depth
               : 0;
}

/* A mask of n bits has a mode byte and may be nested. Others are too short to gain by it, or are
 * the masks of masks of masks; both sides know without being told. */
LMC__INLINE int lmc__has_mode(unsigned nesting, size_t n)
{
    return n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
}

#ifndef LMC_NO_ENCODER
/* For encoders, when the symbols of the leaves are set: those of the ranks from the escape's on,
 * and the ranks. */
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

/* The frozen tree of a level; without ranks, which only encoders need. Its symbols are the bytes of
 * a mask, exclusive-or flip: 0xFF for masks of mostly ones. */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip)
{
    unsigned counts[LMC__MAX_LENGTH + 1], i;
    counts[0] = 0;
    for (i = 0; i < LMC__MAX_LENGTH; i++) counts[i + 1] = lmc__frozen_counts[level][i];
    lmc__tree_set_counts(tree, counts);
    tree->escape = 256;
    for (i = 0; i < 256; i++) tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);
}

/* From lengths[s - first], the code length of symbol s of [first, last] (0: it has no code), and
 * the escape's (0: there is none). Without ranks. Returns 0 if that is no tree (spec 8.1): input
 * that is not trusted comes here, so whatever the lengths, nothing is written out of bounds: a tree
 * of 2 to 256 leaves that fill the code space is found to be one before anything is set. */
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

/* == codec/workspace.h ============================================================================ */

/* The caller's workspace: lmc__scratch, and a stack of *lists* (see kernels/types.h: bytes with
 * LMC__PAD of slack behind them). Whoever pushes lists remembers stack.top before, and sets it back
 * to free them; nothing else is kept from one block to the next.
 *
 * What lies on the stack at once, at worst, for a block of n elements of w <= 8 bytes. A "row" is a
 * list of n; m = n / 8 is the bytes of a mask.
 *
 *   encoding planes       w rows of planes; one row that trees partition into; one more row and m
 *                         for the top plane, which is mapped and partitioned while it is split
 *   encoding classes      w rows, each cut to a list for every class (the pads: 8 for each row); m
 *                         for the masks of a sparse delta, likewise cut; one row for trees
 *   encoding quantised    the restored elements (w <= 4 rows); codes, low bits, a row to work in
 *                         and one for trees; the scales of groups (at most a row)
 *   decoding planes       w rows of planes, or w - 1 and two strips with joint coding; one row for
 *                         trees; the masks on the way to a node (below)
 *   decoding classes      the same, cut by classes; m for the masks of a sparse delta; and one row
 *                         more, for the coded elements before zeros are merged in between
 *   decoding quantised    codes, low bits, two lists of scales, one row for trees
 *   planning              before anything else is pushed. A block of up to 8192 elements: w rows.
 * Of others samples of the elements and of the prediction, and the planes of one: 3 w times 2048
 * bytes, from 32768 elements on 3 w times 8192 masks                 see lmc__mask_stack_size
 *
 * That is ten rows and two masks with the pads of eight classes in each, and the masks' stack. So
 * "no room" cannot happen where a caller's workspace is as large as lmc_workspace_size says, and
 * tests/private_block.h makes the block that needs most of it. All the same each push is checked:
 * a mistake in this table must not become a write out of bounds. */
typedef struct lmc__stack {
    uint8_t *top, *end;
} lmc__stack;

/* Room for a list of n, or NULL. */
LMC__INLINE uint8_t *lmc__push_list(lmc__stack *stack, size_t n)
{
    uint8_t *list = stack->top;
    if ((size_t)(stack->end - stack->top) < n + LMC__PAD) return NULL;
    stack->top += n + LMC__PAD;
    return list;
}

#ifndef LMC_NO_ENCODER
/* How to code a list as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];   /* of the codes of symbols; 0: none */
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* the symbols that have a code lie in [first, last] */
    int is_one_symbol;      /* the sample has one symbol only: the list may be constant */
    uint64_t bits;          /* that the list takes, about */
} lmc__plan;

/* The residuals of a sample, of one key or of a class of them, counted by magnitude: those of 0 ..
 * 15 one by one, then two buckets for each octave (see lmc__magnitude). */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint32_t n;
    uint16_t magnitudes[LMC__MAGNITUDES]; /* a sample has at most 8192 elements */
} lmc__key_counts;
#endif

/* What is too large for the C stack, which programs with many threads keep small. */
typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1]; /* [0]: a list's own; [t]: of masks at nesting t - 1 */
#ifndef LMC_NO_ENCODER
    lmc__tree root_tree;            /* the top plane's, while others are coded before it */
    uint32_t counts[8][256];        /* of each plane's bytes, in a sample */
    lmc__plan plans[8], joint_plan; /* of each plane */
    uint32_t wide[4][1024];         /* of lmc__count_wide */
    lmc__key_counts keys[256], merged;
#endif
} lmc__scratch;

/* The masks' part of the stack, for a tree over a list of n bytes at a nesting. A node keeps its
 * mask until its children are made. Decoding, a nested mask is a list of m = n / 8 bytes, and there
 * are at most 15 nodes from the root down that have one; while the last one is decoded, it needs a
 * spare of m, and for its own masks what this function says of m bytes one nesting deeper: in all
 * 16 m and so on, 16 / 7 n at most. Encoding needs three lists of m for each nesting, and one for
 * each node on the way whose mask has room in the output only when it is nested. */
static size_t lmc__mask_stack_size(size_t n, unsigned nesting)
{
    size_t m = (n + 7) / 8;
    if (nesting == LMC__MAX_NESTING) return 0;
    return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);
}

LMC_API size_t lmc_workspace_size(size_t n)
{
    if (n == 0 || n > LMC_MAX_BLOCK_ELEMENTS) return 0;
    return sizeof(lmc__scratch) + 16 /* alignment */ + 10 * (n + LMC__MAX_CLASSES * LMC__PAD) +
           2 * ((n + 7) / 8 + LMC__MAX_CLASSES * (LMC__PAD + 1)) + lmc__mask_stack_size(n, 0);
}

/* ws_size is enough for n elements. */
static int lmc__is_workspace(size_t ws_size, size_t n)
{
    size_t needed = lmc_workspace_size(n);
    return needed != 0 && ws_size >= needed;
}

/* The scratch, at the first address of the workspace that is a multiple of 16; *stack: the rest. */
static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

#ifndef LMC_NO_ENCODER
/* What all functions that write a payload pass on. */
typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out; /* where the payload's next byte goes */
    uint8_t *end; /* the payload must not pass it: what needs more is not worth coding */
} lmc__encoder;
#endif

/* == codec/block_header.h ========================================================================= */

/* The 24 bytes in front of each block (spec 7), written and read:
 *
 *     0  sync B1         a mark to look for in damaged files
 *     1  coding          width | residual | joint | layout, see below
 *     2  prediction      0: none; 1: the bytes that the caller or the run says
 *     3  grouping        classes - 1 | sparse | natural planes (spec 7.3)
 *     4  n               elements
 *     8  payload size    bytes that follow the header
 *    12  content CRC     of the decoded bytes
 *    16  base CRC        of the prediction; 0 without
 *    20  header CRC      of position and bytes 0 .. 19
 *
 * That is all it takes to find the next block and to decode this one. The position, run and number
 * of the block, is not stored, as both sides know it. The header's CRC covers it, so a block that
 * stands in another's place is refused like a damaged one.
 *
 * Why two CRCs of data: with one, a wrong base could not be told from damage, and a flipped bit in
 * a mask mostly decodes to something. */

/* The parts of byte 1, Coding: bits 0-1 are the logarithm of the width, bit 2 the residual (0:
 * xor), bits 3-4 the bits of joint coding, bits 5-7 the layout. */
#define LMC__RESIDUAL_SUBTRACT 4u
#define LMC__JOINT_SHIFT 3u
#define LMC__LAYOUT_SHIFT 5u

/* What a block is checked against. */
typedef struct lmc__block_crcs {
    uint32_t content, base;
} lmc__block_crcs;

/* CRC of the position, as if it stood in front, and of the header up to the CRC itself. */
LMC__INLINE uint32_t lmc__header_crc(const lmc__kernels *k, const uint8_t *header,
                                     lmc_position position)
{
    uint8_t place[8];
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    return k->crc32c(k->crc32c(0, place, 8), header, LMC__BLOCK_CRC_AT);
}

static unsigned lmc__log2_width(unsigned width)
{
    return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

/* The largest block: its elements stored. */
LMC_API size_t lmc_bound_block(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

#ifndef LMC_NO_ENCODER
/* coding, prediction, grouping: bytes 1 to 3. */
static void lmc__put_block_header(uint8_t *dst, unsigned coding, unsigned prediction,
                                  unsigned grouping, size_t n, size_t payload_size,
                                  lmc__block_crcs crcs, const lmc__kernels *k,
                                  lmc_position position)
{
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)coding;
    dst[2] = (uint8_t)prediction;
    dst[3] = (uint8_t)grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)payload_size);
    lmc__store32(dst + 12, crcs.content);
    lmc__store32(dst + 16, crcs.base);
    lmc__store32(dst + LMC__BLOCK_CRC_AT, lmc__header_crc(k, dst, position));
}
#endif

/* A header whose CRC was right, so what breaks a rule was written like that.
 *
 * The order of checks is that of spec 7: it decides which error is reported where a block breaks
 * two rules, and the conformance vectors test it.
 *
 *   1  what a later version may use (UNSUPPORTED): before anything else, or its blocks would be
 *      called corrupt
 *   2  n, then the payload's size: together they bound the memory that a block can ask for, and no
 *      block is larger than its elements and a header
 *   3  which parts go together: a stored block has no coding at all; quantised elements are BF16
 *      or F32, with nothing else; joint planes need two planes and no prediction
 *   4  without a prediction there is one class, and no CRC of a base; natural planes are those that
 *      classes leave out, so there must be classes
 *
 * Nothing of the payload is looked at. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned coding = src[1], prediction = src[2], grouping = src[3];
    const unsigned width = 1u << (coding & 3), subtract = coding & LMC__RESIDUAL_SUBTRACT,
                   joint = coding >> LMC__JOINT_SHIFT & 3, layout = coding >> LMC__LAYOUT_SHIFT;
    const unsigned n_classes = (grouping & 7) + 1, sparse = grouping >> 3 & 1,
                   n_natural = grouping >> 4;
    const uint32_t payload_size = lmc__load32(src + 8);
    uint64_t size;
    LMC__CHECK(joint != 3 && layout <= LMC__LAYOUT_QUANTIZED && prediction <= 1 && grouping < 0x80,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + 12);
    info->stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = (int)prediction;
    info->base_crc = lmc__load32(src + 16);
    LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);
    size = (uint64_t)info->n * width;
    if (info->stored)
        LMC__CHECK(payload_size == size && !subtract && !joint && !prediction && !grouping,
                   LMC_ERR_CORRUPT);
    else LMC__CHECK(payload_size < size, LMC_ERR_CORRUPT);
    if (layout == LMC__LAYOUT_QUANTIZED)
        LMC__CHECK((width == 2 || width == 4) && !subtract && !joint && !grouping, LMC_ERR_CORRUPT);
    if (joint) LMC__CHECK(width > 1 && !prediction && !grouping, LMC_ERR_CORRUPT);
    LMC__CHECK(prediction || (n_classes == 1 && info->base_crc == 0), LMC_ERR_CORRUPT);
    LMC__CHECK(n_natural == 0 || (n_natural < width && n_classes > 1 && !sparse), LMC_ERR_CORRUPT);
    info->size = (size_t)size; /* at most 8 MiB */
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)payload_size;
    return LMC_OK;
}

/* The header of the block at src, of which src_size bytes are there. Only when its CRC was found
 * right are its fields worth a look. */
static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__CHECK(src[0] == LMC__BLOCK_SYNC, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__header_crc(k, src, position) == lmc__load32(src + LMC__BLOCK_CRC_AT),
               LMC_ERR_CHECKSUM);
    return lmc__parse_block_info(src, info);
}

LMC_API enum lmc_status lmc_read_block_info(const void *src, size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, position, &found));
    *info = found;
    return LMC_OK;
}

/* == codec/huffman.h ============================================================================== */

/* Code lengths for counted symbols: the best that no code longer than 15 bits allows, or all but
 * that. Integers only, and ties are decided by the order of the weights: the same everywhere. */

#ifndef LMC_NO_ENCODER
/* Sorts the counts of symbols, in ascending order of the symbol, for a start. They rise to a peak
 * and fall again, as exponents do: taking the smaller of both ends all but sorts them, and Shell's
 * sort (gaps by Knuth) has little left to do. No two are equal: each has its symbol in the low bits
 * (see lmc__choose_plane). */
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

/* Huffman code lengths, at most LMC__MAX_LENGTH, of weights[0, n) in descending order, 2 <= n <=
 * 256. lengths come out ascending, and the codes fill the code space exactly.
 *
 * 1. The tree, by two queues (van Leeuwen, 1976). The two lightest nodes that have no parent get
 *    one, until one node is left. Leaves are taken from the lightest up, and parents are made in
 *    ascending order of weight, so both queues are sorted and the lightest is at the front of one.
 *
 * 2. The number of codes of each length, without a limit. Inner nodes are visited from the root
 *    down: in the opposite order to that in which they were made, so each after its parent. n_of[L]
 *    counts the nodes at depth L that have not been visited: all of them would be leaves if the
 * tree ended here. To visit a node takes one of its depth away and adds its two children.
 *
 * 3. The limit, as libdeflate does it: a node whose children would lie too deep is taken for one at
 *    the greatest depth below the limit that has a leaf, and that leaf gets the children instead.
 *    Whatever is replaced, one leaf at L becomes two at L + 1: the sum of 2^-length stays 1, so the
 *    result is a complete tree of n leaves without any repair. There always is such a leaf: if all
 *    were at the limit, they would be 2^15, and n is at most 256. Nodes are visited by ascending
 *    depth (lighter parents are made earlier and lie no higher), so all that fit are in place
 * before the first one is replaced.
 *
 * 4. Short codes to heavy weights.
 *
 * With the limit this is not quite the best code, as package-merge would make it. It is needed only
 * where weights grow like Fibonacci numbers or faster, which takes a sum of 2584 (F(18)) at least:
 * one count in the sample against thousands. In 1.4 million such sets of weights it cost 0.03 % of
 * the bits in the mean, 0.47 % at worst. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n)
{
    uint32_t sum[256];    /* of inner nodes, in the order they are made; node i is child n + i */
    uint16_t parent[512]; /* of leaves and inner nodes: an inner node */
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
        length = depth[i] < LMC__MAX_LENGTH ? depth[i] : LMC__MAX_LENGTH - 1;
        while (n_of[length] == 0) length--;
        n_of[length]--;
        n_of[length + 1] += 2;
    }
    for (length = 1, i = 0; length <= LMC__MAX_LENGTH; length++) {
        memset(lengths + i, (int)length, n_of[length]);
        i += n_of[length];
    }
}
#endif /* LMC_NO_ENCODER */

/* == codec/plan.h ================================================================================= */

/* How a list of bytes is coded (spec 8): raw, constant, or as a tree, and then with which code. All
 * that is known of the list are the counts of its symbols, mostly in a sample.
 *
 * Sizes are estimated by the entropy of the counts, in logarithms made of integers. Floating point
 * would not do: compilers and libraries differ in the last digit of log2, and where two estimates
 * all but agree that digit would decide what is written. The same input must give the same bytes on
 * every machine. */

#ifndef LMC_NO_ENCODER
/* log2(v) * 65536 for v >= 1, within 8. Between the entries of the table: straight lines. */
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
    if (exponent <= 6)
        return (exponent << 16) + table[(v << (6 - exponent)) -
                                        64]; /* an entry of the table: most counts of a sample */
    mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent); /* 65536 .. 131071 */
    i = (mantissa >> 10) & 63;
    fraction = mantissa & 1023;
    below = table[i];
    return (exponent << 16) + below + (((table[i + 1] - below) * fraction + 512) >> 10);
}

/* The order-0 information of counts that add up to total, in 2^-16 bits: total * log2(total) less
 * the sum of counts * log2(counts). It is not below zero, for no count is more than total, and
 * lmc__log2 never descends. */
static uint64_t lmc__entropy_q16(const uint32_t counts[256], uint32_t total)
{
    uint64_t bits = (uint64_t)total * lmc__log2(total), symbols = 0;
    int s;
    for (s = 0; s < 256; s++)
        if (counts[s]) symbols += (uint64_t)counts[s] * lmc__log2(counts[s]);
    return bits - symbols;
}

/* The same in bits, rounded down. */
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

/* What the counts say of a list. */
enum lmc__choice {
    LMC__CHOOSE_RAW,
    LMC__CHOOSE_CONSTANT, /* all of it was counted, and is one symbol */
    LMC__CHOOSE_TREE,
    LMC__CHOOSE_PACKED /* of a plane below one that is coded jointly with it (spec 7.4) */
};

/* A tree must save 1 / LMC__MIN_SAVING of the list, or raw is chosen: it decodes at the speed of a
 * copy. */
#define LMC__MIN_SAVING 200u

/* Not worth a tree. A sample's entropy is too low, for what is rare is mostly missing in it: by
 * about 1 / (2 ln 2) of a bit for each symbol but one (Miller, 1955), here 6 eighths. With 7
 * eighths, lists near the border count as raw, too: two standard deviations for 2048 elements of
 * 256 symbols. */
static int lmc__is_raw(const uint32_t counts[256], uint32_t total, unsigned eighths)
{
    return lmc__entropy(counts, total) + (lmc__count_symbols(counts) - 1) * eighths / 8 >=
           (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
}

/* How many symbols keep a code of their own; the rarest, from that rank on, go to the escape.
 * order: count << 8 in descending order; *escaped: what of the total has no code.
 *
 * An escaped element costs 8 bits more, and saves what told it from the other escaped ones: for
 * counts c of the escaped symbols with the sum S, the loss is 8 S - (S log2 S - sum of c log2 c)
 * bits. In exchange there are fewer nodes to walk and lengths to store. So symbols are given up,
 * the rarest first, while the loss is at most 1/512 of a bit for each element that was counted, and
 * 4 bits, a field of the header, for each symbol given up. (Below: both sides in 1/512 bits.) */
static unsigned lmc__choose_kept(const uint32_t *order, unsigned n_symbols, uint32_t total,
                                 uint32_t *escaped)
{
    uint64_t sum_log = 0; /* of c log2 c, over the escaped symbols */
    unsigned n_kept = n_symbols, i;
    *escaped = 0;
    for (i = n_symbols - 1; i >= 1; i--) {
        const uint32_t count = order[i] >> 8, sum = *escaped + count;
        const uint64_t with_log = sum_log + (uint64_t)count * lmc__log2(count);
        const uint64_t loss =
            ((uint64_t)sum * (8u << 16) + with_log - (uint64_t)sum * lmc__log2(sum)) >> 8;
        if (2 * loss > (uint64_t)total + ((uint64_t)(n_symbols - i) << 11)) break;
        *escaped = sum;
        sum_log = with_log;
        n_kept = i;
    }
    return n_kept;
}

/* Chooses how to code n elements of which `total`, a sample or all of them, were counted.
 *
 * Symbols that a sample did not see may be in the list all the same. The escape is there for them:
 * that is why a code may be made from a sample at all. (Counting all of a plane would take several
 * times as long as all the rest of encoding does with AVX-512.) If it misjudges the list, that
 * costs size, never correctness: a tree that gets longer than the list is given up for raw
 * (lmc__put_planned). */
static enum lmc__choice lmc__choose_plane(lmc__plan *plan, const uint32_t counts[256],
                                          uint32_t total, size_t n)
{
    uint32_t order[256]; /* count << 8 | 255 - symbol; most frequent first, then by symbol */
    uint32_t weights[256], escaped;
    uint8_t lengths[256];
    uint64_t bits = 0;
    unsigned n_symbols = 0, n_kept, n_leaves, i, s;
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
    lmc__sort_descending(order, n_symbols);
    n_kept = lmc__choose_kept(order, n_symbols, total, &escaped);
    has_escape = n_kept < n_symbols || (sampled && n_symbols < 256) || n_symbols == 1;
    n_leaves = n_kept + (has_escape ? 1u : 0u); /* at most 256: with 256 kept there is no escape */
    for (i = 0; i < n_kept; i++) weights[i] = order[i] >> 8;
    if (has_escape) {
        const uint32_t w = escaped ? escaped : 1;
        for (i = n_kept; i > 0 && weights[i - 1] < w; i--) weights[i] = weights[i - 1];
        weights[i] = w;
    }
    lmc__huffman_lengths(lengths, weights, n_leaves);

    /* The escape must be the last leaf, whatever its weight. So it gets the longest code, and the
     * symbols that are rarer than it move up; the lengths stay the same set. */
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
    /* The sample's luck counts twice: its counts look more skewed than the list is, and the code
     * fits them, not the rest of the list. Together about a bit for each symbol. */
    bits += n_symbols;
    if (bits >= enough) return LMC__CHOOSE_RAW;
    plan->bits = bits * n / total + 4 * (uint64_t)(plan->last - plan->first + 1);
    return LMC__CHOOSE_TREE;
}
#endif /* LMC_NO_ENCODER */

/* == codec/sample.h =============================================================================== */

#ifndef LMC_NO_ENCODER
/* Samples, from which the encoder learns what a block is like. A block of up to 8192 elements is
 * looked at as a whole. Others are cut into 128 equal steps, and a run of 64 neighbours is taken of
 * each: runs, not single elements, because a cache line is fetched whole anyway. Where in its step
 * a run lies changes from one to the next, or all runs of a matrix whose rows have a power of two
 * elements would lie in the same columns. It is the same for every block of a size: no random
 * numbers, so that the bytes that are written depend on the input only. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

/* What a block is encoded from. */
typedef struct lmc__block {
    const uint8_t *src;  /* n elements of width bytes */
    const uint8_t *base; /* their prediction; or NULL */
    size_t n;
    unsigned width;
    int rotate; /* elements are rotated by a bit before they are split (see dtypes.h) */
    enum lmc_level level;
} lmc__block;

/* The element of n > 8192 where run i of the sample starts. Runs are numbered so that every quarter
 * is a sample of the whole block, too: the steps 0, 4, 8 ..., then 1, 5, 9 ..., and so on. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step times 2^32 over the golden ratio: the top bits of its multiples are spread evenly
     * (Knuth, vol. 3, 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* Runs are fetched so many ahead, at most the 32 of a quarter: they lie where no hardware expects
 * them, and each would wait for memory. */
#define LMC__SAMPLE_AHEAD 16u

typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    size_t n;           /* elements of them */
    size_t n_block;     /* elements of the block; if they are as many, they are all taken at once */
} lmc__sample;

/* Returns 0 if there is no room, which cannot happen (see workspace.h). */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    unsigned p;
    sample->n_block = n;
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    for (p = 0; p < width; p++)
        if ((sample->planes.row[p] = lmc__push_list(&e->stack, sample->n)) == NULL) return 0;
    return 1;
}

/* Asks for the cache lines of run i, also for the last one if the run does not begin on a border.
 */
LMC__INLINE void lmc__fetch_run(const lmc__sample *sample, uint32_t i, const uint8_t *src,
                                unsigned width)
{
    const uint8_t *const run = src + lmc__sample_place(i, sample->n_block) * width;
    const size_t size = LMC__SAMPLE_RUN * width;
    size_t line;
    for (line = 0; line <= size; line += LMC__LINE) LMC__PREFETCH(run + lmc__min(line, size - 1));
}

/* Splits quarters [first, last) of the sample into its planes: run i goes to elements [64 i, 64 i +
 * 64) of each list, whatever was taken before. Returns how many elements that are. Two quarters are
 * often enough, so callers take the rest only where it is wanted. Where the sample is the whole
 * block, all of it belongs to the first quarter, and the others are empty. */
static size_t lmc__take_sample(const lmc__kernels *k, const lmc__sample *sample, unsigned first,
                               unsigned last, const uint8_t *src, unsigned width, int rotate)
{
    const uint32_t from = LMC__SAMPLE_RUNS / 4 * first, to = LMC__SAMPLE_RUNS / 4 * last;
    uint32_t i;
    unsigned p;
    if (sample->n == sample->n_block) {
        if (first == 0) k->split(&sample->planes, src, sample->n, width, rotate);
        return first == 0 ? sample->n : 0;
    }
    for (i = from; i < from + LMC__SAMPLE_AHEAD; i++) lmc__fetch_run(sample, i, src, width);
    for (i = from; i < to; i++) {
        lmc__planes rows;
        if (i + LMC__SAMPLE_AHEAD < to) lmc__fetch_run(sample, i + LMC__SAMPLE_AHEAD, src, width);
        for (p = 0; p < width; p++) rows.row[p] = sample->planes.row[p] + i * LMC__SAMPLE_RUN;
        k->split(&rows, src + lmc__sample_place(i, sample->n_block) * width, LMC__SAMPLE_RUN, width,
                 rotate);
    }
    return (to - from) * LMC__SAMPLE_RUN;
}

/* How to code a list of n bytes: by a sample of it, or at level max by all of it. It is gathered to
 * one place first, for counting begins and ends with eight tables. */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, enum lmc_level level)
{
    uint32_t *const counts = e->scratch->counts[0];
    uint8_t *const top = e->stack.top, *sample = NULL;
    enum lmc__choice choice;
    size_t total = n;
    if (level != LMC_LEVEL_MAX && n > 2 * LMC__SAMPLE_SIZE)
        sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) {
        uint32_t i;
        for (i = 0; i < LMC__SAMPLE_RUNS; i++)
            memcpy(sample + i * LMC__SAMPLE_RUN, list + lmc__sample_place(i, n), LMC__SAMPLE_RUN);
        total = LMC__SAMPLE_SIZE;
    }
    memset(counts, 0, sizeof e->scratch->counts[0]);
    lmc__count_bytes(counts, sample ? sample : list, total);
    e->stack.top = top;
    choice = lmc__choose_plane(plan, counts, (uint32_t)total, n);
    if (choice == LMC__CHOOSE_TREE && plan->bits >= 8 * (uint64_t)n)
        choice = LMC__CHOOSE_RAW; /* a short list, by the size of the tree's header */
    return choice;
}

/* LMC_AUTO: the width and rotation whose planes have the least order-0 information, in a sample.
 * *width and *rotate are set for bytes already; more is chosen only if it is better by a 128th, for
 * a wrong guess costs more than a missed one gains.
 *
 * Width 1 is tried without rotation only: it would do nothing but rename the symbols. Samples of
 * different widths are different in size, so bits per byte of input are compared (in 1/1024). A
 * plane is taken for 128 bits more than its entropy, and for raw at most, so that planes which are
 * all but incompressible do not decide by their luck. */
static void lmc__guess_width(lmc__encoder *e, const uint8_t *src, size_t size, unsigned *width,
                             int *rotate)
{
    uint8_t *const top = e->stack.top;
    uint32_t *const counts = e->scratch->counts[0];
    uint64_t best = UINT64_MAX;
    unsigned w, p;
    int r;
    for (w = 1; w <= 8; w *= 2) {
        if (size % w) break;
        for (r = 0; r <= (w > 1); r++) {
            uint64_t bits = 0, total;
            lmc__sample sample;
            if (!lmc__begin_sample(e, &sample, size / w, w)) break;
            total = lmc__take_sample(e->k, &sample, 0, 4, src, w, r);
            for (p = 0; p < w; p++) {
                memset(counts, 0, sizeof e->scratch->counts[0]);
                lmc__count_bytes(counts, sample.planes.row[p], sample.n);
                bits += lmc__min64(lmc__entropy(counts, (uint32_t)total) + 128, total * 8);
            }
            e->stack.top = top;
            bits = (bits << 10) / (total * w);
            if (bits + (best >> 7) < best) {
                best = bits;
                *width = w;
                *rotate = r;
            }
        }
    }
}
#endif /* LMC_NO_ENCODER */

/* == codec/put_list.h ============================================================================= */

/* Writing a list of bytes: a constant, a mask tree, or as it is (spec 8). get_list.h reads it.
 *
 * A tree is written by partitioning. The list is mapped to ranks (see tree.h). At a node, the
 * kernel partition makes a mask of n bits, one for each element, and two lists: the elements that
 * go left, and those that go right. The mask is written, then the same is done to the left list and
 * to the right one. A child's n is a count of bits in its parent's mask, which the decoder counts,
 * too: so nothing but masks is stored. Each level of the tree passes over all elements that get
 * there once, in vectors of up to 64, without a branch or a table per element.
 *
 * A mask in which one bit is rare is itself a list of bytes worth coding: it is *nested*, coded by
 * this same recursion with a frozen tree (tree.h), and its masks may be nested in turn, three deep.
 * That is how a list of which 1 % is not zero takes much less than a bit for each element, which no
 * Huffman code alone can do.
 *
 * "No room" (0) means that the output would pass e->end. Then what has been written is of no use,
 * and the list, which partitioning has overwritten, is gone. */

#ifndef LMC_NO_ENCODER
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n);

/* A mask is worth nesting if that is likely to save 24 bytes and a hundredth of it: a byte saved
 * then costs some 30 cycles of decoding, for 9 nodes or more and the mask's bytes. What a frozen
 * tree adds to the entropy is counted as a 200th.
 *
 * The information of a mask is that of its number of ones, n log n - ones log ones - zeros log
 * zeros: as if bits did not depend on their neighbours. Where they do, the frozen tree gains more,
 * because it codes eight neighbours at a time, but nobody counts on it: this is one look at two
 * numbers for each mask. */
static int lmc__is_worth_nesting(size_t n, size_t ones)
{
    const uint64_t information =
        (uint64_t)n * lmc__log2((uint32_t)n) -
        (uint64_t)ones * lmc__log2((uint32_t)(ones ? ones : 1)) -
        (uint64_t)(n - ones) * lmc__log2((uint32_t)(n > ones ? n - ones : 1));
    return (information >> 16) + 8 * 24 + n / 100 + n / 200 < n;
}

/* The level of the frozen tree (spec 8.4) for a mask whose rarer bit is `rarer` of n. Levels from 2
 * on are the best codes for masks with a share of 2^-(level / 2 + 1) of rarer bits: 1/4 at level 2,
 * 1/45 at level 9, which serves all sparser ones, too. Of these the nearest in the logarithm is
 * taken. Levels 0 and 1 stand for 0.42 and 0.36. Masks like these are at the roots of ordinary
 * planes; the best codes would save little more there and have 43 nodes, so these two have few
 * lengths instead, nearly all leaves in flat nodes, and 9 and 13 nodes. Their borders are where the
 * costs of neighbouring trees are equal. (spec/frozen_trees.py derives all of it.) */
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

/* The nested code of a mask of size bytes, to code, which has room for as many: its size, or size
 * if it would not be smaller. list and spare: lists of size. */
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

/* A mask of n bits, `ones` of them set, as mode byte and code, to e->out; it may stand at e->out +
 * 1 already. Returns 0 if there is no room. */
static int lmc__put_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                         size_t ones)
{
    const size_t size = (n + 7) / 8;
    uint8_t *const mode = e->out;
    if (lmc__is_worth_nesting(n, ones)) {
        const unsigned polarity = ones > n - ones;
        const unsigned level = lmc__choose_level(lmc__min(ones, n - ones), n);
        uint8_t *const top = e->stack.top;
        uint8_t *const list = lmc__push_list(&e->stack, size);
        uint8_t *const spare = lmc__push_list(&e->stack, size);
        uint8_t *const code = lmc__push_list(&e->stack, size);
        const size_t coded =
            code ? lmc__nest_mask(e, nesting, mask, size, level, polarity, code, list, spare)
                 : size;
        e->stack.top = top;
        if (coded < size) {
            if (coded + 1 > (size_t)(e->end - mode)) return 0;
            mode[0] = (uint8_t)(1 + 2 * level + polarity);
            memcpy(mode + 1, code, coded);
            e->out += coded + 1;
            return 1;
        }
    }
    if (size + 1 > (size_t)(e->end - mode)) return 0;
    mode[0] = 0;
    if (mask != mode + 1) memcpy(mode + 1, mask, size);
    e->out += size + 1;
    return 1;
}

/* A mask with or without a mode byte, as is due; it may stand in its place already. Returns 0 if
 * there is no room. */
static int lmc__put_list_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                              size_t ones)
{
    const size_t row = (n + 7) / 8;
    if (lmc__has_mode(nesting, n)) return lmc__put_mask(e, nesting, mask, n, ones);
    if (row > (size_t)(e->end - e->out)) return 0;
    if (mask != e->out) memcpy(e->out, mask, row);
    e->out += row;
    return 1;
}

/* What is left of an inner node that is partitioned: its mask, which may lie in its place in the
 * output already, and the children; left and right are the two lists, each with room for n. Returns
 * 0 if there is no room.
 *
 * Two buffers are enough for a whole tree. The left child works in place, with what is behind the
 * right list as its spare (n - n_right bytes are free there, all that it has); after it, all of
 * left is free, and is the spare of the right child. */
static int lmc__put_sides(lmc__encoder *e, lmc__node node, lmc__children children,
                          const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    return lmc__put_list_mask(e, node.nesting, mask, n, n_right) &&
           lmc__put_node(e, children.left, left, right + n_right, n - n_right) &&
           lmc__put_node(e, children.right, right, left, n_right);
}

/* A node of tree e->scratch->trees[node.nesting]; list: ranks of its n elements, overwritten;
 * spare: a list of n. Returns 0 if there is no room.
 *
 * The five cases of spec 8.2: nothing to say (no elements, or all are one symbol); the escape,
 * whose ranks are mapped back to bytes; a flat node, as planes of bits; else a mask and two
 * children. The partition writes the mask where it will stand, behind its mode byte if it has one.
 * Only where that would pass the end, the mask goes to the stack first: nested it may fit.
 *
 * Recursion is 15 deep at most in each of up to four trees; the depth of a code is its length. */
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n)
{
    const lmc__tree *const tree = &e->scratch->trees[node.nesting];
    const size_t room = (size_t)(e->end - e->out), row = (n + 7) / 8;
    lmc__children children;
    unsigned flat_depth;
    size_t n_right, mode_size;
    uint8_t *mask, *const top = e->stack.top;
    int fits;

    if (n == 0 || lmc__is_one_symbol(tree, node)) return 1;
    if (node.end_leaf - node.first_leaf == 1) { /* the escape: the symbols themselves */
        if (n > room) return 0;
        e->k->map(e->out, list, n, tree->symbol);
        e->out += n;
        return 1;
    }
    flat_depth = lmc__get_flat_depth(tree, node);
    if (flat_depth) {
        if (flat_depth * row > room) return 0;
        e->k->flatten(e->out, list, n, node.first_leaf, flat_depth);
        e->out += flat_depth * row;
        return 1;
    }
    children = lmc__get_children(tree, node);
    mode_size = lmc__has_mode(node.nesting, n) ? 1 : 0;
    mask = e->out + mode_size;
    if (mode_size + row > room) { /* it may yet fit if it is nested */
        if (!mode_size || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, lmc__is_one_symbol(tree, children.left) ? NULL : list,
                              lmc__is_one_symbol(tree, children.right) ? NULL : spare, list, n,
                              children.right.first_leaf);
    fits = lmc__put_sides(e, node, children, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* The header of a tree (spec 8.1): the mode byte, the range of symbols that have a code, and four
 * bits for the length of each, then of the escape. Returns 0 if there is no room. */
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

/* The tree of a plan, with ranks. Returns 0 if it is none, which cannot happen. */
static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* A list of n bytes as a tree, mode byte and all; row and spare are lists and are overwritten.
 * Returns 0 if there is no room. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, lmc__root_of(tree, 0), row, spare, n);
}

/* The same for a plane whose root is done: the kernel split_root has mapped it by the ranks of
 * e->scratch->root_tree and partitioned it, to root->mask, row and spare. */
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

/* A list of bytes that are all alike. Returns 0 if there is no room. */
static int lmc__put_constant(lmc__encoder *e, uint8_t value)
{
    if (e->end - e->out < 2) return 0;
    e->out[0] = LMC__PLANE_CONSTANT;
    e->out[1] = value;
    e->out += 2;
    return 1;
}

/* A list as it is. Returns 0 if there is no room. */
static int lmc__put_raw(lmc__encoder *e, const uint8_t *row, size_t n)
{
    if ((size_t)(e->end - e->out) < n + 1) return 0;
    e->out[0] = LMC__PLANE_RAW;
    memcpy(e->out + 1, row, n);
    e->out += n + 1;
    return 1;
}

/* How lmc__put_planned ends. */
enum lmc__put {
    LMC__PUT_NO_ROOM,
    LMC__PUT_DONE,
    LMC__PUT_SPOILED /* as a tree the list takes more bytes than it has: nothing is written, but row
                        is overwritten. Rare, so nobody keeps a copy: make it again, and write it
                        by lmc__put_raw */
};

/* A list of n bytes as its plan says; row and spare are lists and are overwritten. root: of
 * lmc__put_root, or NULL. */
static enum lmc__put lmc__put_planned(lmc__encoder *e, enum lmc__choice choice,
                                      const lmc__plan *plan, const lmc__parted *root, uint8_t *row,
                                      uint8_t *spare, size_t n)
{
    uint8_t *const start = e->out, *const end = e->end;
    int fits;
    if (choice == LMC__CHOOSE_CONSTANT ||
        (choice == LMC__CHOOSE_TREE && plan->is_one_symbol && e->k->is_constant(row, n)))
        return lmc__put_constant(e, row[0]) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    if (choice == LMC__CHOOSE_RAW)
        return lmc__put_raw(e, row, n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    e->end = start + lmc__min((size_t)(end - start), n);
    fits =
        root ? lmc__put_root(e, plan, root, row, spare, n) : lmc__put_tree(e, plan, row, spare, n);
    e->end = end;
    if (fits) return LMC__PUT_DONE;
    e->out = start;
    return LMC__PUT_SPOILED;
}

#ifndef LMC_NO_QUANTIZE
/* A list of n > 0 bytes in the best way, for callers that cannot make it again: row is not changed.
 * work and spare are lists. Returns 0 if there is no room. */
static int lmc__put_list(lmc__encoder *e, const uint8_t *row, uint8_t *work, uint8_t *spare,
                         size_t n, enum lmc_level level)
{
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(e, plan, row, n, level);
    if (choice == LMC__CHOOSE_CONSTANT) return lmc__put_constant(e, row[0]);
    if (choice == LMC__CHOOSE_TREE) {
        enum lmc__put put;
        memcpy(work, row, n);
        put = lmc__put_planned(e, choice, plan, NULL, work, spare, n);
        if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    }
    return lmc__put_raw(e, row, n);
}
#endif
#endif /* LMC_NO_ENCODER */

/* == codec/plan_planes.h ========================================================================== */

/* How to code each plane of a block without a prediction, and whether to code the two top planes
 * jointly (spec 7.4). Everything is decided from a sample, before a byte is written; only level max
 * counts all of the top plane, where there is most to gain.
 *
 * Joint coding. A plane is a byte, a cut that the data does not know: of a rotated bf16 element,
 * the top plane is the exponent, the lower one mantissa and sign, which look like noise. But in the
 * highest octaves of a bell curve, low mantissas are more frequent than high ones. So one or two of
 * the lower plane's top bits are moved into the top plane's symbols, which then have 9 or 10 bits,
 *
 *         top plane      plane below                symbols           rest
 *         e7 ..... e0    m6 m5 m4 .. m0 s    ->     e7 .. e0 m6 m5    m4 .. m0 s
 *
 * and are coded as bytes less an offset, for no more than 256 neighbouring values of them occur in
 * real blocks. The rest is packed without the gaps. The price is a larger tree, and a decoder that
 * puts the planes together again. */

#ifndef LMC_NO_ENCODER
/* counts[0][v] = number of elements whose 10 top bits, after the rotation, are v. Four tables in
 * turn, as for bytes: one would wait for its own last increment where neighbours are equal. With W
 * bits in an element, they are its bits W-2 to W-11 if it is rotated, else W-1 to W-10: all of them
 * in its two top bytes, as they are before the rotation. */
static void lmc__count_wide(uint32_t counts[4][1024], const lmc__block *block)
{
    const unsigned width = block->width, shift = block->rotate ? 5 : 6;
    const uint8_t *top = block->src + width - 2;
    size_t i;
    memset(counts, 0, 4 * sizeof counts[0]);
    for (i = 0; i + 4 <= block->n; i += 4, top += 4 * width) {
        counts[0][lmc__load16(top) >> shift & 1023]++;
        counts[1][lmc__load16(top + width) >> shift & 1023]++;
        counts[2][lmc__load16(top + 2 * width) >> shift & 1023]++;
        counts[3][lmc__load16(top + 3 * width) >> shift & 1023]++;
    }
    for (; i < block->n; i++, top += width) counts[0][lmc__load16(top) >> shift & 1023]++;
    for (i = 0; i < 1024; i++) counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
}

/* From the counts of 10 bits those of the top 8 + n_more bits, less *offset: the lowest value that
 * occurs (0 if n_more is 0). Returns 0 if they are not within 256 of it. */
static int lmc__narrow_counts(uint32_t counts[256], unsigned *offset, const uint32_t wide[1024],
                              unsigned n_more)
{
    const unsigned shift = 2 - n_more;
    unsigned v, first = 0;
    memset(counts, 0, 256 * sizeof counts[0]);
    if (n_more)
        while (wide[first] == 0) first++;
    first >>= shift;
    *offset = first;
    for (v = first << shift; v < 1024; v++) {
        if (wide[v] == 0) continue;
        if ((v >> shift) - first >= 256) return 0;
        counts[(v >> shift) - first] += wide[v];
    }
    return 1;
}

/* Joint coding, where it takes fewer bits than the plans for the two planes say: then it replaces
 * both. scratch->wide: of lmc__count_wide. */
static void lmc__choose_joint(lmc__joint *joint, enum lmc__choice choice[8], lmc__scratch *scratch,
                              size_t n, unsigned width)
{
    const unsigned top = width - 1;
    uint64_t best = scratch->plans[top].bits + scratch->plans[top - 1].bits;
    unsigned n_more, offset;
    for (n_more = 1; n_more <= 2; n_more++) {
        lmc__plan *const plan = &scratch->joint_plan;
        uint64_t bits;
        if (!lmc__narrow_counts(scratch->counts[top], &offset, scratch->wide[0], n_more)) return;
        if (lmc__choose_plane(plan, scratch->counts[top], (uint32_t)n, n) != LMC__CHOOSE_TREE)
            continue;
        bits = plan->bits + (8 - n_more) * (uint64_t)n;
        if (bits >= best) continue;
        /* The tree must fit in n bytes, for the rest alone says nothing and cannot fall back on
         * raw: with a header, and two bytes for each leaf, for a mask's mode and the last of its
         * bits. Else blocks of some hundred elements could end up stored. */
        if (plan->bits + 8 * (3 + 2 * (uint64_t)(plan->last - plan->first + 2)) > 8 * (uint64_t)n)
            continue;
        best = bits;
        lmc__set_joint(joint, n_more, offset, n);
        scratch->plans[top] = *plan;
        choice[top] = LMC__CHOOSE_TREE;
        choice[top - 1] = LMC__CHOOSE_PACKED;
    }
}

/* Half of the sample is enough for so many different bytes: the codes of more depend on luck. */
#define LMC__SAMPLE_HALF_BELOW 32u

/* By as much of a sample as it takes: a quarter tells most raw planes, a half is enough for planes
 * of few symbols, and the other half is taken only if some plane wants it. Returns 0 if there is no
 * room, which cannot happen (see workspace.h). */
static int lmc__choose_by_sample(lmc__encoder *e, enum lmc__choice choice[8],
                                 const lmc__block *block)
{
    const unsigned width = block->width;
    const size_t n = block->n;
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, half, all;
    unsigned p, wants_all = 0; /* a bit for each plane */
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    half = lmc__take_sample(e->k, &sample, 0, 2, block->src, width, block->rotate);
    quarter = sample.n < n ? half / 2 : half;
    for (p = 0; p < width; p++) {
        e->scratch->plans[p].bits = 8 * (uint64_t)n;
        lmc__count_bytes(counts[p], sample.planes.row[p], quarter);
        choice[p] =
            lmc__is_raw(counts[p], (uint32_t)quarter, 7) ? LMC__CHOOSE_RAW : LMC__CHOOSE_TREE;
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        lmc__count_bytes(counts[p], sample.planes.row[p] + quarter, half - quarter);
        if (lmc__count_symbols(counts[p]) > LMC__SAMPLE_HALF_BELOW) wants_all |= 1u << p;
    }
    all = half;
    if (wants_all) all += lmc__take_sample(e->k, &sample, 2, 4, block->src, width, block->rotate);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + half, all - half);
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p],
                                      (uint32_t)(has_all ? all : half), n);
    }
    e->stack.top = top;
    return 1;
}

/* How to code each plane: choice[p], and e->scratch->plans[p] where that is a tree. joint->extra is
 * 0 before, and stays so where planes are coded each by itself. Returns 0 as above. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], const lmc__block *block,
                              lmc__joint *joint)
{
    const unsigned top = block->width - 1;
    uint32_t *const counts = e->scratch->counts[top];
    if (!lmc__choose_by_sample(e, choice, block)) return 0;
    if (block->level != LMC_LEVEL_MAX) return 1;
    if (block->width == 1) { /* elements of one byte are not rotated */
        memset(counts, 0, sizeof e->scratch->counts[0]);
        lmc__count_bytes(counts, block->src, block->n);
    } else {
        lmc__count_wide(e->scratch->wide, block);
        lmc__narrow_counts(counts, &joint->offset, e->scratch->wide[0], 0);
    }
    choice[top] = lmc__choose_plane(&e->scratch->plans[top], counts, (uint32_t)block->n, block->n);
    if (block->width > 1) lmc__choose_joint(joint, choice, e->scratch, block->n, block->width);
    return 1;
}
#endif /* LMC_NO_ENCODER */

/* == codec/put_planes.h =========================================================================== */

/* The payload of a block without a prediction (spec 7.2): its planes, one after another. One pass
 * over the elements (the kernel split_root) splits them, takes their CRC, and does the first step
 * of the top plane's tree on the way, while its bytes are in registers:
 *
 *     elements -> rotate -> split -> plane 0 .. w-2 ------------------> rows, coded one by one
 *              |                  -> plane w-1 -> rank -> partition -> mask, left list, right list
 *              +-> CRC
 *
 * Planes that stay raw are written by the split where they will stand in the payload, as long as
 * their place is known: that is, the leading ones. With bf16 that is all but the exponent. */

#ifndef LMC_NO_ENCODER
/* The planes of a block, and how to make them again: coding a plane overwrites its row, and where
 * that was in vain (LMC__PUT_SPOILED) all are split once more. */
typedef struct lmc__split_block {
    const lmc__block *block;
    lmc__planes planes;
    lmc__parted root;    /* the top plane's tree, begun */
    uint8_t *root_spare; /* where its right list is: the spare of its left one */
    int has_root;
} lmc__split_block;

static uint32_t lmc__split_planes(const lmc__kernels *k, lmc__split_block *split)
{
    const lmc__block *const block = split->block;
    return k->split_root(k, &split->planes, split->has_root ? &split->root : NULL, block->src,
                         block->n, block->width, block->rotate);
}

/* Lets the split begin the top plane's tree, where that has a root that is partitioned (a flat one
 * has not, and what may be a constant is better looked at first). The plane's own row becomes the
 * left list. The plane itself is then never written: it goes from the registers that split it to
 * the mask and the two lists, which saves a pass of writing and one of reading. Only the top plane,
 * for it is the one that is nearly always a tree. Returns 0 if there is no room, which cannot
 * happen (see workspace.h). */
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
    root->left = lmc__is_one_symbol(tree, children.left) ? NULL : split->planes.row[root->plane];
    root->right = lmc__is_one_symbol(tree, children.right) ? NULL : split->root_spare;
    split->has_root = 1;
    return 1;
}

/* The plane below the top one: the bits that joint coding has left in it. The top plane's row
 * becomes the joint symbols, to be coded next. Returns 0 if there is no room. */
static int lmc__put_packed(lmc__encoder *e, const lmc__split_block *split, const lmc__joint *joint)
{
    const unsigned top = split->block->width - 1;
    uint8_t *const symbols = split->planes.row[top];
    if ((size_t)(e->end - e->out) < joint->packed_size) return 0;
    memset(e->out, 0, joint->packed_size);
    e->k->fold(symbols, e->out, symbols, split->planes.row[top - 1], split->block->n, joint);
    e->out += joint->packed_size;
    return 1;
}

/* Returns the size of the payload, if that is smaller than the elements and at most cap; else 0.
 * *joint: whether the two top planes are joint. crcs->content is set and *has_crc is 1 where all
 * elements have been read, also if the result is 0.
 *
 *   1  choose by a sample; if all planes are raw there is nothing to gain: stored is shorter
 *   2  rows: places in the payload for the leading raw planes, lists for the others
 *   3  split all elements, with the top plane's root and the CRC
 *   4  code the planes one by one, in the order of the payload
 *
 * With joint coding the packed rest of a plane comes before the top plane, as its place in the
 * payload does; folding it also makes the symbols that the top plane codes next. If their tree does
 * not fit, raw would not do either: the symbols alone do not restore the plane. */
static size_t lmc__put_planes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                              lmc__joint *joint, lmc__block_crcs *crcs, int *has_crc)
{
    const size_t n = block->n;
    const unsigned width = block->width, top = width - 1;
    const lmc__plan *const plans = e->scratch->plans;
    uint8_t *const spare = lmc__push_list(&e->stack, n);
    enum lmc__choice choice[8];
    lmc__split_block split;
    unsigned p, n_leading = 0; /* raw planes before the first other one */

    joint->extra = 0;
    if (spare == NULL || !lmc__choose_planes(e, choice, block, joint)) return 0;
    while (n_leading < width && choice[n_leading] == LMC__CHOOSE_RAW) n_leading++;
    if (n_leading == width) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    if (joint->extra) {
        if (e->end - e->out < 2) return 0;
        lmc__store16(e->out, (uint16_t)joint->offset);
        e->out += 2;
    }
    if (n_leading * (n + 1) > (size_t)(e->end - e->out)) return 0;
    split.block = block;
    split.has_root = 0;
    split.root_spare = NULL;
    for (p = 0; p < width; p++) {
        split.planes.row[p] =
            p < n_leading ? e->out + p * (n + 1) + 1 : lmc__push_list(&e->stack, n);
        if (split.planes.row[p] == NULL) return 0;
    }
    if (choice[top] == LMC__CHOOSE_TREE && !joint->extra &&
        !lmc__begin_root(e, &split, &plans[top]))
        return 0;
    crcs->content = lmc__split_planes(e->k, &split);
    *has_crc = 1;
    for (p = 0; p < n_leading; p++, e->out += n + 1) e->out[0] = LMC__PLANE_RAW;
    for (; p < width; p++) {
        const int is_root = split.has_root && p == top;
        enum lmc__put put;
        if (choice[p] == LMC__CHOOSE_PACKED) {
            if (!lmc__put_packed(e, &split, joint)) return 0;
            continue;
        }
        put = lmc__put_planned(e, choice[p], &plans[p], is_root ? &split.root : NULL,
                               split.planes.row[p], is_root ? split.root_spare : spare, n);
        if (put == LMC__PUT_SPOILED) {
            if (joint->extra && p == top) return 0; /* dst is too small: see lmc__choose_joint */
            if (p == top) split.has_root = 0;       /* now its row is wanted */
            (void)lmc__split_planes(e->k, &split);
            put = lmc__put_raw(e, split.planes.row[p], n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
        }
        if (put == LMC__PUT_NO_ROOM) return 0;
    }
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */

/* == codec/plan_delta.h =========================================================================== */

/* How to code a block against its prediction (spec 7.3), and whether, by a sample of both.
 *
 * An element is coded as its distance from the prediction, counted in floats (residual "subtract")
 * or bit by bit (xor). How large that is likely to be depends on the prediction's exponent, the
 * *key*: a weight moves by some absolute amount, and small floats are closer to each other. So
 * elements are sorted into *classes*, ranges of the key, each coded with trees of its own; the
 * decoder has the prediction, so it knows each element's class without being told.
 *
 * Which ranges: one class for each key first, then neighbours are merged, those first that lose
 * least by it, as long as that saves anything or there are too many classes. A merge saves the
 * headers of a class and costs what the two distributions differ by. What a class takes is
 * estimated from the *magnitudes* of its residuals: the small ones one by one, others by octave and
 * a half; the bits within an octave are noise, the same for all ways to cut. */

#ifndef LMC_NO_ENCODER
/* How to code a block against its prediction. */
typedef struct lmc__delta {
    lmc__grouping grouping;
    int subtract;  /* residuals; else xor */
    int sparse;    /* which elements have changed is a mask, and only they are coded */
    uint64_t bits; /* that it takes, about */
    size_t worth;  /* bytes: if it turns out to take more, coding without the prediction may be
                      smaller */
} lmc__delta;

/* More classes than these make deltas smaller by 0 to 2 % and slower to decode by 10 to 20 %. */
#define LMC__DEFAULT_CLASSES 6u

/* Elements of each of the sample's runs, by default: classes by 2048 elements cost deltas 0.2 to
 * 0.5 % more than by all 8192. */
#define LMC__DELTA_SAMPLE_RUN 16u

/* The bucket of a residual. Residuals are signed numbers folded to 0, 1, 2 ..., so their size says
 * how unlikely they are. 0 .. 15 have a bucket of their own: in deltas most residuals are there,
 * and each is a symbol of the lowest plane. Above, two for each octave are fine enough to compare
 * classes. */
LMC__INLINE unsigned lmc__magnitude(uint64_t residual)
{
    unsigned octave = 0;
    if (residual < 16) return (unsigned)residual;
#if defined(__GNUC__)
    octave = 63u - (unsigned)__builtin_clzll(residual);
#else
    while (residual >> octave > 1) octave++;
#endif
    return 16 + 2 * (octave - 4) + (unsigned)(residual >> (octave - 1) & 1);
}

/* Classes on their way from one for each key to a few. */
typedef struct lmc__merging {
    lmc__key_counts *classes; /* scratch->keys: of class i */
    lmc__key_counts *merged;  /* scratch->merged */
    unsigned n_classes;
    unsigned last;          /* the highest magnitude there is */
    size_t n, total;        /* elements of the block, of the sample */
    uint64_t bits[256];     /* that class i takes */
    int64_t saved[256];     /* bits, by merging class i with the next one */
    uint8_t first_key[256]; /* of class i */
    uint32_t logs[256];     /* i * log2(i), for counts are mostly small */
} lmc__merging;

/* Bits that a class takes in the whole block: its information, but for what lies within an octave,
 * and headers: two dozen bytes, and 6 bits for each of the 40 symbols or more that trees have. */
static uint64_t lmc__class_bits(const lmc__merging *m, const lmc__key_counts *counts)
{
    uint64_t bits = (uint64_t)counts->n * lmc__log2(counts->n ? counts->n : 1), magnitudes = 0;
    unsigned i, n_used = 0;
    for (i = 0; i <= m->last; i++) {
        const uint32_t count = counts->magnitudes[i];
        magnitudes += count < 256 ? m->logs[count] : (uint64_t)count * lmc__log2(count);
        n_used += count != 0;
    }
    bits = bits > magnitudes ? bits - magnitudes : 0; /* at most 2^13 * 13 * 2^16 */
    return (bits * m->n / m->total >> 16) + 8 * 28 + 6 * (n_used < 40 ? 40 : n_used);
}

/* Adds the counts of a class to those of another. They cannot overflow: a sample has 8192 elements.
 */
static void lmc__add_counts(lmc__key_counts *sum, const lmc__key_counts *counts, unsigned last)
{
    unsigned i;
    sum->n += counts->n;
    for (i = 0; i <= last; i++)
        sum->magnitudes[i] = (uint16_t)(sum->magnitudes[i] + counts->magnitudes[i]);
}

/* Bits saved by merging class c with the next one: what both take, less what one class of all their
 * elements would. Below zero where that costs bits, because their residuals differ too much. */
static int64_t lmc__saved_by_merging(const lmc__merging *m, unsigned c)
{
    *m->merged = m->classes[c];
    lmc__add_counts(m->merged, &m->classes[c + 1], m->last);
    return (int64_t)(m->bits[c] + m->bits[c + 1] - lmc__class_bits(m, m->merged));
}

/* Counts the residuals of a sample by key. Returns the bits that lie within octaves: for a residual
 * of octave o, of which one bit is in the bucket, o - 1. */
static uint64_t lmc__count_keys(lmc__merging *m, const lmc__block *sample, int subtract)
{
    const unsigned width = sample->width;
    uint64_t within = 0;
    unsigned key;
    size_t i;
    m->last = 0;
    for (key = 0; key < 256; key++) m->classes[key].n = 0;
    for (i = 0; i < sample->n; i++) {
        const uint64_t base = lmc__load_element(sample->base, i, width);
        const uint64_t residual =
            lmc__residual(lmc__load_element(sample->src, i, width), base, width, subtract);
        const unsigned magnitude = lmc__magnitude(residual);
        lmc__key_counts *const counts = &m->classes[lmc__key(base, width)];
        if (counts->n++ == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        counts->magnitudes[magnitude]++;
        if (magnitude >= 16) within += (magnitude - 16) / 2 + 3;
        if (magnitude > m->last) m->last = magnitude;
    }
    return within;
}

/* Merges class c with the next one; those behind move up. Only what merging c with its neighbours
 * would save has to be found again. */
static void lmc__merge_classes(lmc__merging *m, unsigned c)
{
    unsigned i;
    m->bits[c] = m->bits[c] + m->bits[c + 1] - (uint64_t)m->saved[c];
    lmc__add_counts(&m->classes[c], &m->classes[c + 1], m->last);
    m->n_classes--;
    for (i = c + 1; i < m->n_classes; i++) {
        m->classes[i] = m->classes[i + 1];
        m->first_key[i] = m->first_key[i + 1];
        m->bits[i] = m->bits[i + 1];
        m->saved[i - 1] = m->saved[i];
    }
    if (c + 1 < m->n_classes) m->saved[c] = lmc__saved_by_merging(m, c);
    if (c > 0) m->saved[c - 1] = lmc__saved_by_merging(m, c - 1);
}

/* The best classes for a sample of a block of n elements, with residuals of this kind. Sets
 * delta->grouping, subtract and bits.
 *
 * Greedy: at each step the pair of neighbours is merged that saves most, or costs least. The best
 * of all cuts (by dynamic programming) would take time in the square of the number of keys, of
 * which there may be 256. */
static void lmc__choose_classes(lmc__scratch *scratch, lmc__delta *delta, const lmc__block *sample,
                                size_t n, int subtract, unsigned max_classes)
{
    lmc__merging m;
    uint64_t within;
    unsigned key, i;
    m.classes = scratch->keys;
    m.merged = &scratch->merged;
    m.n = n;
    m.total = sample->n;
    within = lmc__count_keys(&m, sample, subtract);
    m.logs[0] = 0;
    for (i = 1; i < 256; i++) m.logs[i] = i * lmc__log2(i);
    for (key = 0, m.n_classes = 0; key < 256; key++) {
        if (m.classes[key].n == 0) continue;
        if (m.n_classes != key) m.classes[m.n_classes] = m.classes[key];
        m.first_key[m.n_classes] = (uint8_t)key;
        m.bits[m.n_classes] = lmc__class_bits(&m, &m.classes[m.n_classes]);
        m.n_classes++;
    }
    for (i = 0; i + 1 < m.n_classes; i++) m.saved[i] = lmc__saved_by_merging(&m, i);
    while (m.n_classes > 1) {
        unsigned best = 0;
        for (i = 1; i + 1 < m.n_classes; i++)
            if (m.saved[i] > m.saved[best]) best = i;
        if (m.saved[best] < 0 && m.n_classes <= max_classes) break;
        lmc__merge_classes(&m, best);
    }
    delta->grouping.n_classes = m.n_classes;
    delta->grouping.n_natural = 0;
    for (i = 1; i < m.n_classes; i++) delta->grouping.threshold[i - 1] = m.first_key[i];
    delta->subtract = subtract;
    delta->bits = within * n / m.total;
    for (i = 0; i < m.n_classes; i++) delta->bits += m.bits[i];
}

/* Bits that a block of n elements takes without a prediction, by a sample of it: those of its
 * planes, each as large as lmc__is_raw counts it, and raw at most. rows: lists for them. */
static uint64_t lmc__estimate_direct(lmc__encoder *e, const lmc__planes *rows,
                                     const lmc__block *sample, size_t n)
{
    const size_t total = sample->n;
    uint64_t bits = 0;
    unsigned p;
    e->k->split(rows, sample->src, total, sample->width, sample->rotate);
    for (p = 0; p < sample->width; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows->row[p], total);
        bits += lmc__min64(8 * (uint64_t)total, lmc__entropy(counts, (uint32_t)total) +
                                                    (lmc__count_symbols(counts) - 1) * 6 / 8);
    }
    return bits * n / total;
}

/* A sample of a block and of its prediction, elements side by side; of a block of up to 8192
 * elements: the block itself. Returns 0 if there is no room, which cannot happen (see workspace.h).
 */
static int lmc__take_pairs(lmc__encoder *e, lmc__block *sample, const lmc__block *block)
{
    const size_t n = block->n;
    const size_t run = block->level == LMC_LEVEL_MAX && n >= 4 * LMC__SAMPLE_SIZE
                           ? LMC__SAMPLE_RUN
                           : LMC__DELTA_SAMPLE_RUN,
                 size = run * block->width;
    uint8_t *src, *base;
    size_t i;
    *sample = *block;
    if (n <= LMC__SAMPLE_SIZE) return 1;
    sample->n = run * LMC__SAMPLE_RUNS;
    src = lmc__push_list(&e->stack, sample->n * block->width);
    base = lmc__push_list(&e->stack, sample->n * block->width);
    if (!src || !base) return 0;
    for (i = 0; i < LMC__SAMPLE_RUNS; i++) {
        const size_t at = lmc__sample_place((uint32_t)i, n) * block->width;
        if (i + LMC__SAMPLE_AHEAD < LMC__SAMPLE_RUNS) {
            const size_t next =
                lmc__sample_place((uint32_t)(i + LMC__SAMPLE_AHEAD), n) * block->width;
            LMC__PREFETCH(block->src + next);
            LMC__PREFETCH(block->base + next);
        }
        memcpy(src + i * size, block->src + at, size);
        memcpy(base + i * size, block->base + at, size);
    }
    sample->src = src;
    sample->base = base;
    return 1;
}

/* Sets what depends on the residuals' planes: the lowest planes that are noise in spite of the
 * prediction stay in natural order, ungrouped; and wide elements of which most are zero are sparse,
 * or each of their planes would say again which ones are. (Of two bytes, only few have a second
 * one.) */
static void lmc__choose_layout(lmc__encoder *e, lmc__delta *delta, const lmc__planes *rows,
                               const lmc__block *sample)
{
    const unsigned width = sample->width;
    const size_t total = sample->n;
    size_t i, n_zero = 0;
    unsigned p;
    for (i = 0; i < total; i++) {
        const uint64_t residual =
            lmc__residual(lmc__load_element(sample->src, i, width),
                          lmc__load_element(sample->base, i, width), width, delta->subtract);
        n_zero += residual == 0;
        for (p = 0; p < width; p++) rows->row[p][i] = (uint8_t)(residual >> 8 * p);
    }
    for (p = 0; p + 1 < width && delta->grouping.n_classes > 1; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows->row[p], total);
        if (!lmc__is_raw(counts, (uint32_t)total, 7)) break;
        delta->grouping.n_natural = p + 1;
    }
    delta->sparse = width > 2 && n_zero > total / 2 && delta->grouping.n_natural == 0;
}

/* What the sample says of the prediction: it is worth nothing; it is worth an eighth of the size or
 * more; or only trying both ways will tell. */
enum lmc__verdict { LMC__DIRECT, LMC__DELTA, LMC__EITHER };

/* How to code a block against its prediction, and whether. Floats are subtracted, integers by
 * whatever seems smaller; at level max both kinds are compared for all, and both ways are tried
 * whatever the sample says, so that a block never gets larger by its prediction.
 *
 * The estimates for both ways come from one sample and are off by some percent, so they decide only
 * where they differ by an eighth. delta->worth is the border: a delta that takes more than that
 * after all is compared with the other way. */
static enum lmc__verdict lmc__plan_delta(lmc__encoder *e, lmc__delta *delta,
                                         const lmc__block *block)
{
    const int is_max = block->level == LMC_LEVEL_MAX;
    const unsigned max_classes = is_max ? LMC__MAX_CLASSES : LMC__DEFAULT_CLASSES;
    const size_t n = block->n;
    uint8_t *const top = e->stack.top;
    uint64_t direct;
    lmc__block sample;
    lmc__planes rows;
    unsigned p;
    if (!lmc__take_pairs(e, &sample, block)) return LMC__DIRECT;
    for (p = 0; p < block->width; p++)
        if ((rows.row[p] = lmc__push_list(&e->stack, sample.n)) == NULL) return LMC__DIRECT;
    direct = lmc__estimate_direct(e, &rows, &sample, n);
    lmc__choose_classes(e->scratch, delta, &sample, n, block->rotate, max_classes);
    if (!block->rotate || is_max) {
        lmc__delta other;
        lmc__choose_classes(e->scratch, &other, &sample, n, !block->rotate, max_classes);
        if (other.bits < delta->bits) *delta = other;
    }
    lmc__choose_layout(e, delta, &rows, &sample);
    e->stack.top = top;
    delta->worth = (size_t)((direct - direct / 8) / 8);
    if (is_max) return LMC__EITHER;
    if (delta->bits > direct + direct / 8) return LMC__DIRECT;
    return delta->bits < direct - direct / 8 ? LMC__DELTA : LMC__EITHER;
}
#endif /* LMC_NO_ENCODER */

/* == codec/put_delta.h ============================================================================ */

/* The payload of a block against its prediction (spec 7.3), as plan_delta.h has decided. One pass
 * over both (the kernel group) takes the residuals, sorts them into classes by the prediction, and
 * splits them:
 *
 *     elements \                                    class 0: plane 0 .. w-1 \
 *               residual -> by the key, one of ->   class 1: plane 0 .. w-1  } lists, coded one by
 * one base     /                                    ...                     /
 *
 * Natural planes are not sorted, and stand in the payload as they are. In a sparse delta each class
 * has a mask, one bit for each element, 1 if it has changed, and its lists hold the changed ones
 * only. The payload: thresholds of the classes, masks, natural planes, then class by class the
 * lists of its planes. */

#ifndef LMC_NO_ENCODER
/* The lists of a delta, and how to make them again. */
typedef struct lmc__grouped {
    const lmc__block *block;
    const lmc__delta *delta;
    lmc__classes lists;
    uint8_t *masks[LMC__MAX_CLASSES]; /* of a sparse delta */
    size_t n_of[LMC__MAX_CLASSES];    /* elements of each class */
    size_t n_coded[LMC__MAX_CLASSES]; /* those that are in the lists; the others are zero */
} lmc__grouped;

/* Keeps what is not zero of the lists of class c, and sets its mask: bit i is 1 if element i is
 * kept. Elements move up in place, in all planes alike; a kept one never moves behind where it is
 * read. (Plain loops: of wide elements only those deltas are sparse in which most elements are
 * zero.) */
static void lmc__drop_zeros(lmc__grouped *g, unsigned c)
{
    const size_t n = g->n_of[c];
    const unsigned width = g->block->width;
    uint8_t *const mask = g->masks[c], *const *const row = g->lists.row[c];
    size_t i, n_kept = 0;
    unsigned p;
    for (i = 0; i < n; i += 8) {
        const unsigned in_byte = (unsigned)lmc__min(8, n - i);
        unsigned bits = 0, bit;
        for (bit = 0; bit < in_byte; bit++) {
            unsigned any = 0;
            for (p = 0; p < width; p++) any |= row[p][i + bit];
            if (!any) continue;
            bits |= 1u << bit;
            for (p = 0; p < width; p++) row[p][n_kept] = row[p][i + bit];
            n_kept++;
        }
        mask[i / 8] = (uint8_t)bits;
    }
    g->n_coded[c] = n_kept;
}

/* Makes the lists, and the masks of a sparse delta. Returns the CRC of the elements. Natural planes
 * are written where they stand in the payload, also when the lists are made again: the same bytes.
 */
static uint32_t lmc__make_classes(const lmc__kernels *k, lmc__grouped *g)
{
    const lmc__block *const block = g->block;
    const lmc__grouping *const grouping = &g->delta->grouping;
    const uint32_t crc = k->group(k, &g->lists, block->src, block->base, block->n, block->width,
                                  g->delta->subtract, grouping);
    unsigned c;
    for (c = 0; c < grouping->n_classes; c++) {
        g->n_coded[c] = g->n_of[c];
        if (g->delta->sparse) lmc__drop_zeros(g, c);
    }
    return crc;
}

/* Room for the lists of each class, whose elements count_classes has counted: together as much as
 * the rows of planes would take, and the pads. Returns 0 if there is none, which cannot happen (see
 * workspace.h). */
static int lmc__push_classes(lmc__encoder *e, lmc__grouped *g)
{
    const lmc__grouping *const grouping = &g->delta->grouping;
    unsigned c, p;
    for (c = 0; c < grouping->n_classes; c++) {
        for (p = grouping->n_natural; p < g->block->width; p++)
            if ((g->lists.row[c][p] = lmc__push_list(&e->stack, g->n_of[c])) == NULL) return 0;
        if (g->delta->sparse &&
            (g->masks[c] = lmc__push_list(&e->stack, (g->n_of[c] + 7) / 8)) == NULL)
            return 0;
    }
    return 1;
}

/* One list of a class. If the tree turns out longer than the list, all lists are made again from
 * the elements. That takes as long as the first time, but it happens only where a sample was
 * unlucky; a copy of each list would cost every block something. Those that are written already are
 * made for nothing, and come out the same. Returns 0 if there is no room. */
static int lmc__put_class_list(lmc__encoder *e, lmc__grouped *g, unsigned c, unsigned p,
                               uint8_t *spare)
{
    uint8_t *const row = g->lists.row[c][p];
    const size_t n = g->n_coded[c];
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(e, plan, row, n, g->block->level);
    const enum lmc__put put = lmc__put_planned(e, choice, plan, NULL, row, spare, n);
    if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    (void)lmc__make_classes(e->k, g);
    return lmc__put_raw(e, row, n);
}

/* Returns the size of the payload, if that is smaller than the elements and at most cap; else 0.
 *
 * The classes are counted before, in a pass of its own over the prediction: only then is it known
 * how long their lists are, and it takes the prediction's CRC on the way. */
static size_t lmc__put_delta(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             const lmc__delta *delta, lmc__block_crcs *crcs)
{
    const unsigned n_classes = delta->grouping.n_classes, n_natural = delta->grouping.n_natural;
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
    memcpy(e->out, delta->grouping.threshold, n_classes - 1);
    e->out += n_classes - 1;
    crcs->base = e->k->count_classes(e->k, g.n_of, block->base, n, block->width, &delta->grouping);
    if (!lmc__push_classes(e, &g)) return 0;
    for (p = 0; p < n_natural; p++, e->out += n)
        g.lists.row[0][p] = e->out; /* made in their place */
    crcs->content = lmc__make_classes(e->k, &g);
    for (c = 0; c < n_classes && delta->sparse; c++)
        if (g.n_of[c] && !lmc__put_list_mask(e, 0, g.masks[c], g.n_of[c], g.n_coded[c])) return 0;
    for (c = 0; c < n_classes; c++) {
        if (g.n_coded[c] == 0) continue;
        for (p = n_natural; p < block->width; p++)
            if (!lmc__put_class_list(e, &g, c, p, spare)) return 0;
    }
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */

/* == codec/put_block.h ============================================================================ */

/* Encoding a block: its planes, or a delta against its prediction, or stored, whichever is the
 * smallest as far as that is known without trying everything. A payload is never larger than the
 * elements, so a block is never larger than lmc_bound_block says. */

#ifndef LMC_NO_ENCODER
/* How a block has been coded, for its header. */
typedef struct lmc__block_coding {
    unsigned prediction, grouping; /* header fields; 0, 0: directly */
    int subtract;                  /* the residual is subtracted; without a prediction: rotated */
    unsigned joint;                /* bits of joint coding */
    lmc__block_crcs crcs;
    size_t payload_size; /* 0: stored */
} lmc__block_coding;

/* Without the prediction: in planes or, if that is not smaller, stored (which is left to the
 * caller; the CRC is set). */
static void lmc__encode_direct(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                               const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__joint joint;
    int has_crc = 0;
    coding->prediction = coding->grouping = 0;
    coding->subtract = block->rotate;
    coding->crcs.base = 0;
    coding->payload_size = lmc__put_planes(e, dst, cap, block, &joint, &coding->crcs, &has_crc);
    coding->joint = joint.extra;
    if (!has_crc) coding->crcs.content = e->k->crc32c(0, block->src, block->n * block->width);
    e->stack.top = top;
}

/* Against the prediction, in at most cap bytes and in less than the elements have. Returns 0, and
 * leaves coding as it is, if it does not fit. */
static int lmc__encode_delta(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                             const lmc__block *block, const lmc__delta *delta)
{
    uint8_t *const top = e->stack.top;
    lmc__block_crcs crcs;
    const size_t payload_size = lmc__put_delta(e, dst, cap, block, delta, &crcs);
    e->stack.top = top;
    if (payload_size == 0) return 0;
    coding->prediction = 1;
    coding->grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? 8u : 0u) |
                       delta->grouping.n_natural << 4;
    coding->subtract = delta->subtract;
    coding->joint = 0;
    coding->crcs = crcs;
    coding->payload_size = payload_size;
    return 1;
}

/* Encodes the payload in the smaller of two ways. A sample has been asked for a verdict first, so
 * that most blocks are coded once:
 *
 *   1  the delta alone, if it is likely to be smaller by an eighth, and turns out to be;
 *   2  else without the prediction: the best so far;
 *   3  then the delta in fewer bytes than that, unless the sample was sure that it is worth
 * nothing, or 1 has shown that it takes more than the best.
 *
 * There is one buffer, so where 3 fails, what it has overwritten is made once more. */
static void lmc__encode_payload(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst,
                                size_t cap, const lmc__block *block)
{
    lmc__delta delta;
    const enum lmc__verdict verdict = block->base ? lmc__plan_delta(e, &delta, block) : LMC__DIRECT;
    size_t best, too_small = 0; /* bytes in which the delta does not fit, as is known */
    if (verdict == LMC__DELTA) {
        too_small = delta.worth;
        if (lmc__encode_delta(e, coding, dst, lmc__min(cap, too_small), block, &delta)) return;
    }
    lmc__encode_direct(e, coding, dst, cap, block);
    best = coding->payload_size ? coding->payload_size : SIZE_MAX;
    if (verdict == LMC__DIRECT || best <= too_small) return;
    if (lmc__encode_delta(e, coding, dst, lmc__min(cap, best - 1), block, &delta)) return;
    if (coding->payload_size) lmc__encode_direct(e, coding, dst, cap, block);
}

/* One block: payload behind the place of the header, then the header, which has its CRCs. Arguments
 * are valid. A payload that would not be smaller than the elements has size 0: then they are
 * stored. So dst_cap may be too small in two ways: for the header, or for a block that has to be
 * stored; a payload is only ever made as large as there is room. */
static enum lmc_status lmc__encode_block(const lmc__kernels *k, void *dst, size_t dst_cap,
                                         size_t *dst_size, const uint8_t *src, size_t size,
                                         const uint8_t *base, enum lmc_dtype dtype,
                                         enum lmc_level level, lmc_position position, void *ws,
                                         size_t ws_size)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    lmc__block_coding coding;
    lmc__encoder e;
    lmc__block block;
    unsigned header;
    size_t cap;

    if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = dst_cap - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    block.src = src;
    block.base = base;
    block.level = level;
    block.width = lmc_dtype_width(dtype);
    block.rotate = lmc__rotates(dtype);
    if (dtype == LMC_AUTO) lmc__guess_width(&e, src, size, &block.width, &block.rotate);
    block.n = size / block.width;
    lmc__encode_payload(&e, &coding, payload, cap, &block);
    header = lmc__log2_width(block.width);
    if (coding.payload_size) {
        header |= (coding.subtract ? LMC__RESIDUAL_SUBTRACT : 0u) |
                  coding.joint << LMC__JOINT_SHIFT | LMC__LAYOUT_PLANES << LMC__LAYOUT_SHIFT;
    } else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        header |= LMC__LAYOUT_STORED << LMC__LAYOUT_SHIFT;
        coding.payload_size = size;
        memcpy(payload, src, size);
    }
    lmc__put_block_header(out, header, coding.prediction, coding.grouping, block.n,
                          coding.payload_size, coding.crcs, k, position);
    *dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

/* Checks the arguments. LMC_AUTO blocks count their bytes as elements, so that any width guessed
 * stays within the limit and the workspace. */
LMC_API enum lmc_status lmc_encode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size, const void *prediction,
                                         enum lmc_dtype dtype, enum lmc_level level,
                                         lmc_position position, void *ws, size_t ws_size)
{
    const unsigned width = lmc_dtype_width(dtype);
    if (!dst || !dst_size || !src || !ws || (unsigned)dtype >= LMC_DTYPE_COUNT ||
        (unsigned)level > LMC_LEVEL_MAX || size == 0 || size % width ||
        size / width > LMC_MAX_BLOCK_ELEMENTS)
        return LMC_ERR_ARGUMENT;
    if (!lmc__is_workspace(ws_size, size / width)) return LMC_ERR_WORKSPACE;
    return lmc__encode_block(lmc__get_kernels(), dst, dst_cap, dst_size, (const uint8_t *)src, size,
                             (const uint8_t *)prediction, dtype, level, position, ws, ws_size);
}
#endif /* LMC_NO_ENCODER */

/* == codec/get_list.h ============================================================================= */

/* Reading a list of bytes: a constant, a mask tree, or as it is (spec 8). put_list.h writes it.
 *
 * A node's children are read first, the left one and then the right one, and merged by its mask:
 * the way of put_list.h backwards. How many elements a child has, the mask says by its bits.
 *
 * Safety: the input is not trusted, and these functions are all that walks it. Each read is
 * preceded by one comparison with what is left. Nothing that is read becomes an address or a
 * length, but two: the number of ones of a mask, which is at most the n that is known already,
 * because a mask has n bits and all others are checked to be zero; and the code lengths, from which
 * a tree is made only if they fill the code space exactly (tree.h), so that every node has its
 * leaves. Recursion is 15 deep at most in a tree, and 4 trees deep. */

/* What all functions that read a payload pass on. */
typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end; /* of the payload: what is left */
    lmc__streaming streaming;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* The next size bytes of the payload, or NULL if there are not so many. */
LMC__INLINE const uint8_t *lmc__take(lmc__decoder *d, size_t size)
{
    const uint8_t *const taken = d->in;
    if (LMC__UNLIKELY((size_t)(d->end - d->in) < size)) return NULL;
    d->in += size;
    return taken;
}

/* The unused bits of the last of size bytes that hold n bits are zero. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* A mask of n > 0 bits: *mask points into the input, or to a list that stays on the stack.
 *
 * Mode 0: the bits are there. Others name a frozen tree (its level, and whether the bytes are
 * complemented), by which the mask's bytes are coded, one nesting deeper. In either case the bits
 * behind the last one must be zero: whoever counts ones may count whole bytes. */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (lmc__has_mode(nesting, n)) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
    }
    if (mode == 0) {
        *mask = lmc__take(d, size);
        LMC__CHECK(*mask, LMC_ERR_CORRUPT);
    } else {
        lmc__tree *const tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS, LMC_ERR_CORRUPT);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, lmc__root_of(tree, nesting + 1), list, spare, size));
        d->stack.top = spare; /* the list stays for as long as its node needs it */
        *mask = list;
    }
    LMC__CHECK(lmc__is_tail_clear(*mask, size, n), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* The mask and the two sides of an inner node that is not flat. list and spare: lists of n. On
 * return the sides are in spare, one behind the other, and a mask that was nested is on the stack;
 * list, which lent its room to both children in turn, is free for what they are merged to. */
static enum lmc_status lmc__get_sides(lmc__decoder *d, lmc__node node, uint8_t *list,
                                      uint8_t *spare, size_t n, lmc__merged *sides)
{
    const lmc__tree *const tree = &d->scratch->trees[node.nesting];
    const lmc__children children = lmc__get_children(tree, node);
    size_t n_right;
    LMC__TRY(lmc__get_mask(d, node.nesting, n, &sides->mask));
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

/* A node's n elements, to list; spare: a list of n.
 *
 * The cases of spec 8.2, as in lmc__put_node. Two buffers take turns on the way down:
 *
 *     this node       wants its elements in list; spare is free
 *     its children    want theirs in spare, one behind the other; list is free for them
 *     their children  want theirs in list ...
 *
 * and on the way back each merge reads from one buffer and writes to the other. A child has as much
 * room for itself as it has elements, in both: n_left + n_right = n. Kernels write up to LMC__PAD
 * bytes behind a list: of the left child that may be the start of the right one, which is made
 * later, so left comes first.
 *
 * A nested mask is pushed on the stack and stays there until its node is merged; then the stack is
 * as high as before. */
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
            LMC__CHECK(symbols, LMC_ERR_CORRUPT);
            memcpy(list, symbols, n);
        } else memset(list, tree->symbol[node.first_leaf], n);
        return LMC_OK;
    }
    flat_depth = lmc__get_flat_depth(tree, node);
    if (flat_depth) {
        const uint8_t *const bits = lmc__take(d, flat_depth * row);
        unsigned i;
        LMC__CHECK(bits, LMC_ERR_CORRUPT);
        for (i = 0; i < flat_depth; i++)
            LMC__CHECK(lmc__is_tail_clear(bits + i * row, row, n), LMC_ERR_CORRUPT);
        d->k->unflatten(list, bits, n, tree->symbol + node.first_leaf, flat_depth);
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, node, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* The header of a tree (spec 8.1), behind its mode byte, to d->scratch->trees[0]. It says the range
 * of symbols that have a code and four bits for the length of each, so it takes 131 bytes at most;
 * the tree itself is not described in any other way. The first and the last symbol must have a
 * code, or one tree could be written in many ways. */
static enum lmc_status lmc__get_tree_header(lmc__decoder *d, int has_escape)
{
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    const uint8_t *const range = lmc__take(d, 2), *fields;
    LMC__CHECK(range, LMC_ERR_CORRUPT);
    first = range[0];
    count = range[1] + 1u;
    n_fields = count + (has_escape ? 1 : 0);
    LMC__CHECK(first + count <= 256, LMC_ERR_CORRUPT);
    fields = lmc__take(d, (n_fields + 1) / 2);
    LMC__CHECK(fields, LMC_ERR_CORRUPT);
    LMC__CHECK(n_fields % 2 == 0 || fields[n_fields / 2] >> 4 == 0, LMC_ERR_CORRUPT);
    for (i = 0; i < count; i++) lengths[i] = fields[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = fields[count / 2] >> 4 * (count & 1) & 15;
        LMC__CHECK(escape_length, LMC_ERR_CORRUPT);
    }
    LMC__CHECK(lengths[0] && lengths[count - 1], LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__tree_set_lengths(&d->scratch->trees[0], lengths, first, first + count - 1,
                                     escape_length),
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* A list that is coded as a tree, behind its mode byte: to list; or, where its root is a merge, to
 * *root, whose sides stay in spare and on the stack. Then the caller merges: the planes of a block
 * do that on the way to the elements, which saves writing and reading a plane (get_planes.h).
 * root->mask NULL: it is in list. list and spare: lists of n. */
static enum lmc_status lmc__get_tree(lmc__decoder *d, int has_escape, uint8_t *list, uint8_t *spare,
                                     size_t n, lmc__merged *root)
{
    const lmc__tree *const tree = &d->scratch->trees[0];
    lmc__node node;
    LMC__TRY(lmc__get_tree_header(d, has_escape));
    node = lmc__root_of(tree, 0);
    if (lmc__get_flat_depth(tree, node)) {
        root->mask = NULL;
        return lmc__get_node(d, node, list, spare, n);
    }
    return lmc__get_sides(d, node, list, spare, n, root);
}

/* A list of n > 0 bytes; spare: a list of n. *side may lie in the input, where LMC__PAD bytes of
 * input behind it make it a list as it is, or on the stack. */
static enum lmc_status lmc__get_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n)
{
    unsigned mode;
    uint8_t *list, *top;
    lmc__merged root;
    LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
    mode = *d->in++;
    LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
    side->list = NULL;
    side->value = 0;
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        side->value = *d->in++;
        return LMC_OK;
    }
    if (mode == LMC__PLANE_RAW && (size_t)(d->end - d->in) >= n + LMC__PAD) {
        side->list = lmc__take(d, n);
        return LMC_OK;
    }
    side->list = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_RAW) {
        const uint8_t *const raw = lmc__take(d, n);
        LMC__CHECK(raw, LMC_ERR_CORRUPT);
        memcpy(list, raw, n);
        return LMC_OK;
    }
    top = d->stack.top;
    LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
    if (root.mask) d->k->merge(list, root.mask, n, root.left, root.right);
    d->stack.top = top;
    return LMC_OK;
}

/* == codec/get_planes.h =========================================================================== */

/* The payload of a block without a prediction and without classes (spec 7.2, 7.4): put_planes.h
 * backwards. The rows of all planes are found or made first, then one pass (the kernel join_root)
 * puts the elements together, does the last merge of one tree on the way, and takes the CRC:
 *
 *     plane 0 .. w-2 ---------------------> row, often where it lies in the payload \
 *     plane w-1 -> sides of the root ----------------------------> merge in strips -> join -> dst
 *                                                                                        +-> CRC
 */

/* What joint coding has left of the plane below the top one, where it lies in the payload. The last
 * elements have no byte of their own there, their bits are in the gaps of the others (spec 7.4);
 * gaps that belong to no element must be zero, as all unused bits. */
static enum lmc_status lmc__get_packed(lmc__decoder *d, lmc__joint *joint, size_t n)
{
    size_t i;
    joint->packed = lmc__take(d, joint->packed_size);
    LMC__CHECK(joint->packed, LMC_ERR_CORRUPT);
    for (i = n; i < joint->packed_size + joint->row; i++) /* places behind the last element */
        LMC__CHECK(lmc__unpack(joint->packed, i, joint) == 0, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* One plane, to *row; or, where it is a tree that ends in a merge, its sides to *root: then *row is
 * the list that it may be merged to. There is one spare, so only one plane's sides can wait: a tree
 * that was in *root before is merged to its row first. */
static enum lmc_status lmc__get_plane(lmc__decoder *d, const uint8_t **row, unsigned p,
                                      uint8_t *spare, size_t n, lmc__merged *root)
{
    unsigned mode;
    uint8_t *list;
    LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
    mode = *d->in++;
    if (mode == LMC__PLANE_RAW) { /* used where it lies: the join wants no slack behind it */
        *row = lmc__take(d, n);
        LMC__CHECK(*row, LMC_ERR_CORRUPT);
        return LMC_OK;
    }
    LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
    if (mode != LMC__PLANE_CONSTANT && root->mask) {
        d->k->merge(root->row, root->mask, n, root->left, root->right);
        root->mask = NULL;
    }
    *row = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        memset(list, *d->in++, n);
        return LMC_OK;
    }
    root->plane = p;
    root->row = list;
    return lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, root);
}

/* rotate and n_more: Residual and Joint of the block's header. The whole payload must be used up
 * before the join: what is left over is an error that must not be found after the output is
 * written. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       int rotate, unsigned n_more, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__joint joint;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL; /* there is none yet */
    lmc__set_joint(&joint, n_more, 0, n);
    if (n_more) {
        const uint8_t *const offset = lmc__take(d, 2);
        LMC__CHECK(offset, LMC_ERR_CORRUPT);
        joint.offset = lmc__load16(offset);
        LMC__CHECK(joint.offset < 256u << n_more, LMC_ERR_CORRUPT);
    }
    for (p = 0; p < width; p++) {
        if (n_more && p == width - 2) LMC__TRY(lmc__get_packed(d, &joint, n));
        else LMC__TRY(lmc__get_plane(d, &planes.row[p], p, spare, n, &root));
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (n_more) {
        planes.row[width - 2] = spare; /* any bytes: they are unpacked strip by strip in the join */
        joint.high = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        joint.low = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        LMC__CHECK(joint.high && joint.low, LMC_ERR_WORKSPACE);
    }
    *crc = d->k->join_root(
        d->k, dst,
        lmc__join_from(&planes, root.mask ? &root : NULL, n_more ? &joint : NULL, width, rotate), n,
        d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/get_delta.h ============================================================================ */

/* The payload of a block with a prediction (spec 7.3): put_delta.h backwards.
 *
 *     prediction -> keys -> elements of each class, CRC
 *     payload    -> lists of each class and plane, as long as that
 *     prediction, lists -> residual by residual -> elements, CRC
 *
 * The prediction is read twice. First by the kernel count_classes: how many elements each class has
 * says how long its lists are, and the CRC says whether it is the right prediction, before anything
 * is written. Then by the kernel ungroup, which takes each element's residual from the list of its
 * class and adds it.
 *
 * The output may be the prediction itself. Ungroup reads an element of the prediction, or a vector
 * of them, before it writes at the same place, and nothing reads that place later: the lists lie
 * elsewhere, and the classes were counted before.
 *
 * A sparse block without a prediction has one class, and its residuals are the elements, rotated.
 */

/* What the start of the payload says. */
typedef struct lmc__grouped_payload {
    lmc__grouping grouping;
    size_t n_of[LMC__MAX_CLASSES];          /* elements of each class */
    const uint8_t *masks[LMC__MAX_CLASSES]; /* sparse: which of them are coded; unset if none */
    int sparse;
    lmc__class_sides sides;
} lmc__grouped_payload;

/* Thresholds, masks and natural planes; checks the prediction. header: Grouping of the block's.
 *
 * The prediction is compared when the thresholds are known and before any mask is read, for with
 * a wrong one the classes would have other sizes, and the masks would be misread: the error has to
 * be BASE_WRONG, not CORRUPT. */
static enum lmc_status lmc__get_grouping(lmc__decoder *d, lmc__grouped_payload *g,
                                         const uint8_t *base, const lmc_block_info *info,
                                         unsigned header)
{
    lmc__grouping *const grouping = &g->grouping;
    const size_t n = info->n;
    const uint8_t *thresholds;
    unsigned c, p;
    g->sparse = header >> 3 & 1;
    grouping->n_classes = (header & 7) + 1;
    grouping->n_natural = header >> 4 & 7;
    thresholds = lmc__take(d, grouping->n_classes - 1);
    LMC__CHECK(thresholds, LMC_ERR_CORRUPT);
    for (c = 0; c + 1 < grouping->n_classes; c++) {
        LMC__CHECK(thresholds[c] > (c ? thresholds[c - 1] : 0), LMC_ERR_CORRUPT);
        grouping->threshold[c] = thresholds[c];
    }
    g->n_of[0] = n;
    if (base) {
        const uint32_t base_crc =
            grouping->n_classes == 1
                ? d->k->crc32c(0, base, info->size)
                : d->k->count_classes(d->k, g->n_of, base, n, info->width, grouping);
        LMC__CHECK(base_crc == info->base_crc, LMC_ERR_BASE_WRONG);
    }
    for (c = 0; c < grouping->n_classes && g->sparse; c++)
        if (g->n_of[c]) LMC__TRY(lmc__get_mask(d, 0, g->n_of[c], &g->masks[c]));
    for (p = 0; p < grouping->n_natural; p++) {
        g->sides.side[0][p].list = lmc__take(d, n);
        LMC__CHECK(g->sides.side[0][p].list, LMC_ERR_CORRUPT);
    }
    return LMC_OK;
}

/* A list of class c, of which n_coded elements are coded, as a side of n_of[c] elements. Those that
 * a sparse block leaves out are zeros, merged in by the class's mask: the mask is the root of a
 * tree, so to speak, whose left leaf is the zero. Where no element is coded nothing was stored, and
 * where all are, the list is used as it is. */
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

/* Residuals of one class and no prediction are the planes of elements. The kernel wants rows, so
 * constants are written out; that is rare, so it need not be fast. */
static enum lmc_status lmc__join_sides(lmc__decoder *d, uint8_t *dst, const lmc__side *sides,
                                       size_t n, unsigned width, int rotate, uint32_t *crc)
{
    lmc__const_planes planes;
    unsigned p;
    for (p = 0; p < width; p++) {
        planes.row[p] = sides[p].list;
        if (!sides[p].list) {
            uint8_t *const list = lmc__push_list(&d->stack, n);
            LMC__CHECK(list, LMC_ERR_WORKSPACE);
            memset(list, sides[p].value, n);
            planes.row[p] = list;
        }
    }
    *crc = d->k->join_root(d->k, dst, lmc__join_from(&planes, NULL, NULL, width, rotate), n,
                           d->streaming);
    return LMC_OK;
}

/* base: as many bytes as dst, which may be the same; or NULL. subtract and header: Residual and
 * Grouping of the block's header. */
static enum lmc_status lmc__get_delta(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, int subtract, unsigned header,
                                      uint32_t *crc)
{
    const unsigned width = info->width;
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__grouped_payload g;
    unsigned c, p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_grouping(d, &g, base, info, header));
    for (c = 0; c < g.grouping.n_classes; c++) {
        const size_t n_coded =
            g.sparse && g.n_of[c] ? d->k->count_ones(g.masks[c], (g.n_of[c] + 7) / 8) : g.n_of[c];
        for (p = g.grouping.n_natural; p < width; p++)
            LMC__TRY(lmc__get_class_side(d, &g, c, n_coded, spare, &g.sides.side[c][p]));
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (base)
        *crc =
            d->k->ungroup(d->k, dst, base, &g.sides, n, width, subtract, &g.grouping, d->streaming);
    else LMC__TRY(lmc__join_sides(d, dst, g.sides.side[0], n, width, subtract, crc));
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/quant_params.h ========================================================================= */

/* Quantised elements, as encoder and decoder both know them (spec 7.6).
 *
 *   element -> symbol -> High, Low -> two lists of bytes, coded like any other (spec 8)
 *
 * A symbol has 16 bits: 0 is the element +0, and others are numbers, from 1, of the points of a
 * grid. A grid is a row of points, q = min, min + 1, ..., for every scale G:
 *
 *   linear        the point q is the float q * G
 *   logarithmic   the point q is the float whose bits are those of G, plus q * step. The bits of a
 *                 float, read as an integer, grow by 2^23 from one power of two to the next, and
 *                 in straight lines between them: all but a logarithm.
 *
 * A scale is the upper half of a float, so it has 8 bits of mantissa; q has at most 16. Their
 * product has 24, as many as a float holds, so it is exact: no rounding mode, no precision of a
 * machine's registers and no option of a compiler can change it. The limits of scales keep it
 * normal and finite.
 *
 * Each group of group_size neighbours has a scale that is stored; or, with is_predicted, each
 * element has one that follows from its prediction, which the decoder has, too. For the first
 * moment of an optimizer that is the second moment, and the points are updates.
 *
 * Symbols become bytes by a table, whose index is High; or they are cut into Low, the lowest
 * low_bits bits, and High, the others.
 *
 * For example, a linear grid with min = -3 whose group has the scale 0.25, and low_bits = 0:
 *
 *   symbol      0    1     2     3     4    5     6     7     and so on
 *   q                -3    -2    -1    0    1     2     3
 *   element     0  -0.75  -0.5 -0.25   0   0.25  0.5  0.75
 *
 * Symbol 4 says the same as symbol 0, which encoders use. A table 1, 3, 6 would keep -0.75, -0.25
 * and 0.5 of it, as codes 1, 2 and 3, and zero as code 0. On a logarithmic grid with step = 2^22,
 * half an octave, min = -2 and the scale 1.0 the points are 0.5, 0.75, 1, 1.5, 2, ...
 *
 * How a symbol becomes an element is the format's: encoder and decoder do it by the same kernels
 * (kernels/grids.h). How an element finds its symbol is the encoder's: any choice can be decoded.
 *
 * An exception is an element that is on no grid (NaN, infinities, -0, subnormals and what is out
 * of reach): it is stored as it is. */

/* The head of a quantised block's payload. */
#define LMC__QUANTIZED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u

/* Elements that are worked on at once: their symbols and, of BF16, their F32 forms stay in the
 * first cache. */
#define LMC__QUANTIZED_STRIP 1024u

/* How the elements of one tensor are quantised. Block codecs only read it: it belongs, with codes
 * and scales, to whoever found it (lmc_quantizer) or, in a decoder, to the block at hand. */
typedef struct lmc__quant_params {
    unsigned width;   /* of an element: 2 (BF16) or 4 (F32) */
    int is_predicted; /* scales by the prediction, otherwise of groups */
    int is_recovered; /* of elements that were quantised before: they must come out as they go in.
                         A block that does not is coded without loss */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; table[0] and all beyond table_size: 0 */
    uint8_t *codes;      /* encoding with a table: the code of each symbol that the grid gives */
    uint64_t group_size;
    uint16_t *scales; /* encoding: the upper half of each group's scale, from the tensor's first */
} lmc__quant_params;

#ifndef LMC_NO_QUANTIZE

/* n elements as F32: src itself if they are, or else `wide`. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

#endif

/* == codec/put_quantised.h ======================================================================== */

/* Encodes quantised blocks (spec 7.6). Their payload is
 *
 *   head | table | positions, values of exceptions | scales | Low | High
 *
 * where the last three are lists of bytes, coded as any plane is (spec 8). One strip at a time:
 *
 *   elements --> symbols --> High, Low --> symbols that these stand for --> restored elements
 *      |            |                                                             |
 *      |            +--> exceptions: zero's code in the lists, and set aside      +--> CRC
 *      +--> with is_recovered compared, in the end, with what was restored
 *
 * What a decoder will make of the elements is restored at once, by the kernels that the decoder
 * uses: block CRCs, identities and later predictions are all of the restored elements, never of
 * those that came in.
 *
 * The workspace suffices as for any block of n elements: content takes 4 n bytes at most, High,
 * Low, work, spare and a row for scales n each, 9 n together; workspaces have 10 n, and room for
 * masks. */

/* The elements of a block, or of a part of it. */
typedef struct lmc__quant_source {
    const uint8_t *elements;
    /* The prediction of as many elements, as the decoder will have it; or NULL. */
    const uint8_t *second;
    /* Which number the first has in its tensor. Groups are counted from the tensor's first element,
     * and blocks may begin within one. */
    uint64_t first;
    size_t n;
} lmc__quant_source;

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* The scale of element number first of the tensor; returns how many of n elements share it. */
LMC__INLINE size_t lmc__get_group(const lmc__quant_params *q, uint64_t first, size_t n,
                                  uint32_t *scale)
{
    const uint64_t group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* The nearest symbols of n F32 elements at x; s: their predictions, used with is_predicted only. A
 * run of elements of one scale is one call of the kernel. Returns how many symbols are
 * LMC__EXCEPTION. */
static size_t lmc__find_symbols(const lmc__kernels *k, const lmc__quant_params *q,
                                uint16_t *symbols, const uint8_t *x, const uint8_t *s,
                                uint64_t first, size_t n)
{
    size_t exceptions = 0, i, part;
    uint32_t scale;
    if (q->is_predicted) return k->quantize_updates(symbols, x, s, n, &q->grid);
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        exceptions += k->quantize_rows(symbols + i, x + 4 * i, part, scale, &q->grid);
    }
    return exceptions;
}

/* The inverse: the points of n symbols, none of them LMC__EXCEPTION, as F32. dst may be s. */
static void lmc__restore_symbols(const lmc__kernels *k, const lmc__quant_params *q, uint8_t *dst,
                                 const uint16_t *symbols, const uint8_t *s, uint64_t first,
                                 size_t n)
{
    size_t i, part;
    uint32_t scale;
    if (q->is_predicted) {
        k->restore_updates(dst, symbols, s, n, &q->grid);
        return;
    }
    for (i = 0; i < n; i += part) {
        part = lmc__get_group(q, first + i, n - i, &scale);
        k->restore_rows(dst + 4 * i, symbols + i, part, scale, &q->grid);
    }
}

/* A strip on its way through a quantiser: where it comes from, and rooms that the caller gives for
 * all that is found on the way. */
typedef struct lmc__quant_strip {
    /* At most LMC__QUANTIZED_STRIP elements. */
    lmc__quant_source source;
    /* Gets what decoding will give. May be source.elements: that is quantising in place. */
    uint8_t *dst;
    /* Get the nearest symbols, LMC__EXCEPTION included, which tells where exceptions are. */
    uint16_t *symbols;
    /* Get the codes, of exceptions those of zero. low is NULL where there are no low bits. */
    uint8_t *high, *low;
} lmc__quant_strip;

/* The strip's codes, from its symbols. Returns the symbols that the codes stand for, which are what
 * will be restored: they are in `room`, a strip's, or the strip's own where nothing differs.
 *
 * An exception takes the code of zero, which every table and every grid has; what is restored from
 * it is overwritten. */
static const uint16_t *lmc__put_codes(const lmc__kernels *k, const lmc__quant_params *q,
                                      const lmc__quant_strip *strip, size_t exceptions,
                                      uint16_t *room)
{
    const size_t n = strip->source.n;
    const uint16_t *symbols = strip->symbols;
    size_t i;
    if (exceptions) {
        for (i = 0; i < n; i++) room[i] = symbols[i] == LMC__EXCEPTION ? 0 : symbols[i];
        symbols = room;
    }
    if (q->table_size) { /* not each symbol has a code: take the nearest that has */
        const uint8_t *const codes = q->codes;
        uint8_t *const high = strip->high; /* bytes that are stored may alias strip */
        for (i = 0; i < n; i++) high[i] = codes[symbols[i]];
        k->look_up(room, high, n, q->table);
        return room;
    }
    k->cut_symbols(strip->high, strip->low, symbols, n, q->low_bits);
    return symbols;
}

/* F32 are restored where they are to be, and exceptions put back over what zero's code gave. They
 * need a copy, for that may be where they came from; strips without any, which is nearly all, are
 * spared it. */
static size_t lmc__quantize_f32(const lmc__kernels *k, const lmc__quant_params *q,
                                const lmc__quant_strip *strip)
{
    const lmc__quant_source *const in = &strip->source;
    uint8_t copy[4 * LMC__QUANTIZED_STRIP];
    uint16_t room[LMC__QUANTIZED_STRIP];
    const size_t exceptions =
        lmc__find_symbols(k, q, strip->symbols, in->elements, in->second, in->first, in->n);
    const uint16_t *const symbols = lmc__put_codes(k, q, strip, exceptions, room);
    size_t i;
    if (exceptions) memcpy(copy, in->elements, 4 * in->n);
    lmc__restore_symbols(k, q, strip->dst, symbols, in->second, in->first, in->n);
    for (i = 0; i < in->n && exceptions; i++)
        if (strip->symbols[i] == LMC__EXCEPTION) memcpy(strip->dst + 4 * i, copy + 4 * i, 4);
    return exceptions;
}

/* BF16 are widened, restored as F32, and rounded as the decoder rounds them. `restored` first holds
 * the predictions: each is used before it is overwritten. `wide` keeps the elements, so exceptions
 * are copied from there, whatever dst is. */
static size_t lmc__quantize_bf16(const lmc__kernels *k, const lmc__quant_params *q,
                                 const lmc__quant_strip *strip)
{
    const lmc__quant_source *const in = &strip->source;
    const size_t n = in->n;
    uint8_t *const dst = strip->dst;
    uint8_t wide[4 * LMC__QUANTIZED_STRIP], restored[4 * LMC__QUANTIZED_STRIP];
    uint16_t room[LMC__QUANTIZED_STRIP];
    const uint8_t *const x = lmc__widen(wide, in->elements, in->n, 2);
    const uint8_t *const s = q->is_predicted ? lmc__widen(restored, in->second, in->n, 2) : NULL;
    const size_t exceptions = lmc__find_symbols(k, q, strip->symbols, x, s, in->first, in->n);
    const uint16_t *const symbols = lmc__put_codes(k, q, strip, exceptions, room);
    size_t i;
    lmc__restore_symbols(k, q, restored, symbols, s, in->first, in->n);
    for (i = 0; i < in->n && exceptions; i++)
        if (strip->symbols[i] == LMC__EXCEPTION) memcpy(restored + 4 * i, x + 4 * i, 4);
    for (i = 0; i < n; i++) {
        /* Exceptions are BF16 already. Of them a NaN must not be rounded, which would make it
         * quiet. */
        const uint32_t v = lmc__load32(restored + 4 * i);
        lmc__store16(dst + 2 * i, (uint16_t)(v & 0xFFFF ? lmc__to_bf16(v) : v >> 16));
    }
    return exceptions;
}

/* Returns the number of exceptions, which dst has as they came. Done again, it
 * changes nothing: restored elements lie on points, or BF16, which were rounded, so near to some
 * that these round to the same. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_strip *strip)
{
    return q->width == 4 ? lmc__quantize_f32(k, q, strip) : lmc__quantize_bf16(k, q, strip);
}

/* Part of a block: n elements from number i on. */
static lmc__quant_source lmc__part_of(const lmc__quant_source *source, unsigned width, size_t i,
                                      size_t n)
{
    lmc__quant_source part;
    part.elements = source->elements + i * width;
    part.second = source->second ? source->second + i * width : NULL;
    part.first = source->first + i;
    part.n = n;
    return part;
}

/* Where exceptions are gathered, in the payload itself:
 *
 *   | head | table | positions -->             | values -->             | end
 *                  |<-- 4 * max bytes -->      |<-- width * max -->     |
 *
 * Positions are at their place already. Values begin behind the most positions that fit together
 * with their values; when the number of exceptions is known, they are moved down. */
typedef struct lmc__exceptions {
    uint8_t *positions, *values;
    size_t n, max;
} lmc__exceptions;

/* Those of a strip of n elements, of which i is the first in the block. Returns 0 if there is no
 * room. */
static int lmc__add_exceptions(lmc__exceptions *to, const uint16_t *symbols,
                               const uint8_t *elements, unsigned width, size_t i, size_t n)
{
    size_t j;
    for (j = 0; j < n; j++) {
        if (symbols[j] != LMC__EXCEPTION) continue;
        if (to->n == to->max) return 0;
        lmc__store32(to->positions + 4 * to->n, (uint32_t)(i + j));
        memcpy(to->values + width * to->n++, elements + j * width, width);
    }
    return 1;
}

/* Codes, exceptions and CRCs of all elements; content: what they are restored to. Returns 0 if the
 * exceptions do not fit; content and CRCs are complete all the same, for the block is then stored.
 * The CRC is taken strip by strip, while the strip is in the first cache. */
static int lmc__quantize_elements(const lmc__kernels *k, const lmc__quant_params *q,
                                  const lmc__quant_source *source, uint8_t *content, uint8_t *high,
                                  uint8_t *low, lmc__exceptions *exceptions, lmc__block_crcs *crcs)
{
    const unsigned width = q->width;
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    lmc__quant_strip strip;
    size_t i, n;
    int fits = 1;
    strip.symbols = symbols;
    crcs->content = 0;
    for (i = 0; i < source->n; i += n) {
        n = lmc__min(source->n - i, LMC__QUANTIZED_STRIP);
        strip.source = lmc__part_of(source, width, i, n);
        strip.dst = content + i * width;
        strip.high = high + i;
        strip.low = low ? low + i : NULL;
        if (lmc__quantize_strip(k, q, &strip) && fits)
            fits = lmc__add_exceptions(exceptions, symbols, strip.dst, width, i, n);
        crcs->content = k->crc32c(crcs->content, strip.dst, n * width);
    }
    crcs->base = q->is_predicted ? k->crc32c(0, source->second, source->n * width) : 0;
    return fits;
}

/* The payload's head, and the table behind it. Fields that do not apply are 0, as decoders check.
 * The first group is what is left of the group in which the block begins. */
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

/* The scales of the groups that n elements from number first are in: a list of their low bytes,
 * and one of their high ones. High bytes, a sign of 0 and most of an exponent, are all but
 * constant. Returns 0 if there is no room. */
static int lmc__put_scales(lmc__encoder *e, const lmc__quant_params *q, uint64_t first, size_t n,
                           uint8_t *work, uint8_t *spare, enum lmc_level level)
{
    const uint64_t group = first / q->group_size;
    const size_t n_groups = (size_t)((first + n - 1) / q->group_size - group) + 1;
    uint8_t *const top = e->stack.top, *const row = lmc__push_list(&e->stack, n_groups);
    size_t i;
    unsigned j;
    if (!row) return 0;
    for (j = 0; j < 2; j++) {
        for (i = 0; i < n_groups; i++) row[i] = (uint8_t)(q->scales[group + i] >> 8 * j);
        if (!lmc__put_list(e, row, work, spare, n_groups, level)) return 0;
    }
    e->stack.top = top;
    return 1;
}

/* The payload of a quantised block, in the order of the picture above. content: a list of as many
 * bytes as the elements, becomes what they are restored to, also if 0 is returned: where the
 * payload is not smaller than they are, as spec 7.6 wants it, or does not fit in cap. The lists
 * come last, because their size is known when they are written, while exceptions must be counted
 * first. */
static size_t lmc__put_quantized(lmc__encoder *e, const lmc__quant_params *q, uint8_t *dst,
                                 size_t cap, const lmc__quant_source *source, uint8_t *content,
                                 enum lmc_level level, lmc__block_crcs *crcs)
{
    const unsigned width = q->width;
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
    if (!lmc__quantize_elements(e->k, q, source, content, high, low, &exceptions, crcs)) return 0;
    if (!fits) return 0;
    lmc__put_quantized_head(dst, q, source->first, exceptions.n);
    e->out = exceptions.positions + 4 * exceptions.n;
    memmove(e->out, exceptions.values, width * exceptions.n);
    e->out += width * exceptions.n;
    if (!q->is_predicted && !lmc__put_scales(e, q, source->first, n, work, spare, level)) return 0;
    if (low && !lmc__put_list(e, low, work, spare, n, level)) return 0;
    if (!lmc__put_list(e, high, work, spare, n, level)) return 0;
    return (size_t)(e->out - dst);
}

/* A block that is quantised; or, if that is not smaller, its restored elements stored. They are not
 * coded without loss instead: whoever quantised the same tensor before, to predict another one, has
 * restored elements, and a reader must get those. *content: these, in the workspace; not set where
 * the block was coded without loss.
 *
 * With is_recovered the elements are the truth: they were quantised before, and what is coded must
 * be exactly they. Almost all blocks do come out so. One that does not, as one that was stored and
 * does not lie on the grid, is coded without loss. */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, void *dst, size_t dst_cap,
                                             size_t *dst_size, const lmc__quant_params *q,
                                             const lmc__quant_source *source, enum lmc_level level,
                                             lmc_position position, void *ws, size_t ws_size,
                                             const uint8_t **content)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    const size_t size = source->n * q->width;
    unsigned flags = lmc__log2_width(q->width) | LMC__LAYOUT_QUANTIZED << 5, prediction;
    lmc__block_crcs crcs;
    uint8_t *restored;
    size_t cap, payload_size;
    lmc__encoder e;
    if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = dst_cap - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    restored = lmc__push_list(&e.stack, size);
    if (restored == NULL) return LMC_ERR_WORKSPACE;
    payload_size = lmc__put_quantized(&e, q, payload, cap, source, restored, level, &crcs);
    /* The workspace is given up and used again: source lies elsewhere. */
    if (q->is_recovered && (payload_size == 0 || memcmp(restored, source->elements, size) != 0))
        return lmc__encode_block(k, dst, dst_cap, dst_size, source->elements, size, NULL,
                                 q->width == 2 ? LMC_BF16 : LMC_F32, level, position, ws, ws_size);
    prediction = q->is_predicted ? 1 : 0;
    if (payload_size == 0) {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        payload_size = size;
        memcpy(payload, restored, size);
        flags = lmc__log2_width(q->width) | LMC__LAYOUT_STORED << 5;
        prediction = 0;
        crcs.base = 0;
    }
    lmc__put_block_header(out, flags, prediction, 0, source->n, payload_size, crcs, k, position);
    *content = restored;
    *dst_size = LMC_BLOCK_HEADER_SIZE + payload_size;
    return LMC_OK;
}

#else

/* There are no quantisers, so no block asks for one. This stands here so that wave.h need not know
 * how the library was configured. */
static enum lmc_status lmc__encode_quantized(const lmc__kernels *k, void *dst, size_t dst_cap,
                                             size_t *dst_size, const lmc__quant_params *q,
                                             const lmc__quant_source *source, enum lmc_level level,
                                             lmc_position position, void *ws, size_t ws_size,
                                             const uint8_t **content)
{
    (void)k, (void)dst, (void)dst_cap, (void)dst_size, (void)q, (void)source, (void)level;
    (void)position, (void)ws, (void)ws_size, (void)content;
    return LMC_ERR_UNSUPPORTED;
}

#endif

/* == codec/get_quantised.h ======================================================================== */

/* Decodes quantised blocks (spec 7.6). Their payload is
 *
 *   head | table | positions, values of exceptions | scales | Low | High
 *
 * In this order it is checked: each number of the head by itself, then against the others, then the
 * table, the positions and the scales. The lists are decoded whole (get_list.h), and the largest
 * code is compared with the table's size once for all. Only then elements are restored, and from
 * there on nothing can go wrong: any symbol is a point of any grid, and what restores it clamps
 * (kernels/grids.h). Nothing that the payload says is used before it is checked; what it claims to
 * hold is compared with what there is before a pointer moves.
 *
 * Strips go through the first cache:
 *
 *   High, Low --> symbols --> F32 --(BF16: rounded)--> exceptions replaced --> CRC --> dst
 *
 * dst may be the prediction: a strip's predictions are read before its elements are written. */

#ifndef LMC_NO_QUANTIZE

/* What a payload says before its codes. Pointers and lists lie in the payload and the workspace, so
 * they are good as long as both are. */
typedef struct lmc__quantized_head {
    /* Without codes and scales, and without the grid's n_points: only encoders ask how far a grid
     * reaches. */
    lmc__quant_params params;
    /* Elements of the block in its first group. All groups after it have group_size elements, but
     * for the last. */
    uint32_t first_group;
    uint32_t n_exceptions;
    /* 0 where elements have scales of their own. */
    size_t n_groups;
    /* Of exceptions: u32 numbers in ascending order, and as many elements. */
    const uint8_t *positions, *values;
    /* Of the groups: low bytes, high bytes. */
    lmc__side scales[2];
} lmc__quantized_head;

/* The layout, in the header of a block that was checked. */
LMC__INLINE int lmc__is_quantized(const uint8_t *block)
{
    return block[1] >> 5 == LMC__LAYOUT_QUANTIZED;
}

/* The scale of the block's group number i, as the bits of an F32. */
LMC__INLINE uint32_t lmc__scale_at(const lmc__quantized_head *head, size_t i)
{
    const lmc__side *const s = head->scales;
    const uint32_t low = s[0].list ? s[0].list[i] : s[0].value,
                   high = s[1].list ? s[1].list[i] : s[1].value;
    return low << 16 | high << 24;
}

/* The 32 bytes that every payload begins with:
 *
 *    0  Method   1  Low_Bits   2  Table_Size   4  Min    8  Step   12  Bias   16  Floor
 *   20  Group_Size   24  First_Group   28  N_Exceptions
 *
 * Numbers of two's complement are made without a conversion of what an int32_t cannot hold, which
 * each compiler may do its way. Ranges keep what follows within 32 bits: Min + a symbol, and a
 * Bias + half of any float. */
static enum lmc_status lmc__parse_quantized_head(lmc__quantized_head *head, const uint8_t *p,
                                                 const lmc_block_info *info)
{
    lmc__quant_params *const q = &head->params;
    const size_t n = info->n;
    const uint32_t min = lmc__load32(p + 4), bias = lmc__load32(p + 12),
                   group_size = lmc__load32(p + 20);
    memset(head, 0, sizeof *head);
    LMC__CHECK(p[0] <= (LMC__METHOD_LOG | LMC__METHOD_SIGNED | LMC__METHOD_TABLE), LMC_ERR_CORRUPT);
    q->width = info->width;
    q->is_predicted = info->has_prediction;
    q->grid.is_log = (p[0] & LMC__METHOD_LOG) != 0;
    q->grid.is_signed = (p[0] & LMC__METHOD_SIGNED) != 0;
    q->low_bits = p[1];
    q->table_size = lmc__load16(p + 2);
    LMC__CHECK(min == 0 || min >= 0u - 65535u, LMC_ERR_CORRUPT);
    q->grid.min = -(int32_t)(0u - min); /* converts no number above INT32_MAX */
    q->grid.step = lmc__load32(p + 8);
    LMC__CHECK(bias + (1u << 30) <= 1u << 31, LMC_ERR_CORRUPT);
    q->grid.bias = bias <= 1u << 30 ? (int32_t)bias : -(int32_t)(0u - bias);
    q->grid.floor = lmc__load32(p + 16);
    q->group_size = group_size;
    head->first_group = lmc__load32(p + 24);
    head->n_exceptions = lmc__load32(p + 28);
    /* Linear points have signs of their own. A table takes the place of low bits. */
    LMC__CHECK(q->grid.is_log || !q->grid.is_signed, LMC_ERR_CORRUPT);
    LMC__CHECK(p[0] & LMC__METHOD_TABLE
                   ? q->table_size >= 1 && q->table_size <= 255 && q->low_bits == 0
                   : q->table_size == 0 && q->low_bits <= LMC__MAX_LOW_BITS,
               LMC_ERR_CORRUPT);
    LMC__CHECK(q->grid.is_log ? q->grid.step >= 1 && q->grid.step <= 1u << 24 : q->grid.step == 0,
               LMC_ERR_CORRUPT);
    /* Scales follow from a prediction, or stand in the block; the fields of the other kind are 0.
     */
    if (info->has_prediction) {
        LMC__CHECK(!q->grid.is_log && q->grid.floor <= 0x7F800000u && group_size == 0 &&
                       head->first_group == 0,
                   LMC_ERR_CORRUPT);
    } else {
        LMC__CHECK(q->grid.bias == 0 && q->grid.floor == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(group_size >= 1 && group_size <= 0x7FFFFFFFu && head->first_group >= 1 &&
                       head->first_group <= group_size,
                   LMC_ERR_CORRUPT);
        head->n_groups = 1;
        if (n > head->first_group) head->n_groups += 1 + (n - head->first_group - 1) / group_size;
    }
    LMC__CHECK(head->n_exceptions <= n, LMC_ERR_CORRUPT); /* so that sizes below fit in size_t */
    return LMC_OK;
}

/* The payload up to Low; spare: a list of info->n, which is enough for the scales, as there are not
 * more groups than elements. Tables and positions ascend strictly: each can be written in one way
 * only, and exceptions are met in one pass.
 */
static enum lmc_status lmc__get_quantized_head(lmc__decoder *d, lmc__quantized_head *head,
                                               const lmc_block_info *info, uint8_t *spare)
{
    lmc__quant_params *const q = &head->params;
    uint32_t previous, i, largest;
    LMC__CHECK((size_t)(d->end - d->in) >= LMC__QUANTIZED_HEADER, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__parse_quantized_head(head, d->in, info));
    d->in += LMC__QUANTIZED_HEADER;
    LMC__CHECK((size_t)(d->end - d->in) >=
                   2 * (size_t)q->table_size + (4 + info->width) * (size_t)head->n_exceptions,
               LMC_ERR_CORRUPT);
    for (i = 1, previous = 0; i <= q->table_size; i++, d->in += 2) {
        q->table[i] = lmc__load16(d->in);
        LMC__CHECK(q->table[i] > previous, LMC_ERR_CORRUPT);
        previous = q->table[i];
    }
    head->positions = d->in;
    for (i = 0; i < head->n_exceptions; i++, d->in += 4) {
        const uint32_t position = lmc__load32(d->in);
        LMC__CHECK(position < info->n && (i == 0 || position > previous), LMC_ERR_CORRUPT);
        previous = position;
    }
    head->values = d->in;
    d->in += info->width * (size_t)head->n_exceptions;
    if (info->has_prediction) return LMC_OK;
    for (i = 0; i < 2; i++) LMC__TRY(lmc__get_list(d, &head->scales[i], spare, head->n_groups));
    /* A linear point is up to 2^16 scales, and must stay finite. */
    largest = q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE;
    for (i = 0; i < head->n_groups; i++)
        LMC__CHECK(lmc__scale_at(head, i) >= LMC__MIN_SCALE && lmc__scale_at(head, i) <= largest,
                   LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Reads no more than the head of the quantised block at src, which info is of; ws is large enough
 * for blocks of its size. For readers that want to know how a tensor was quantised: they need no
 * decoder of their own, and nothing of how a payload is laid out. */
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

/* 1 if one of n bytes is more than most. Eight at a time: 127 - most is added to the lower 7 bits
 * of each, which carries into the eighth if they are more than the lower 7 bits of most. */
static int lmc__has_more(const uint8_t *p, size_t n, unsigned most)
{
    const uint64_t ones = UINT64_MAX / 255, low7 = 0x7F * ones, add = (127 - (most & 0x7F)) * ones;
    uint64_t more = 0;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const uint64_t v = lmc__load64(p + i), carry = (v & low7) + add;
        more |= most < 128 ? carry | v : carry & v;
    }
    more &= 0x80 * ones;
    for (; i < n; i++) more |= p[i] > most;
    return more != 0;
}

/* Codes [at, at + n) of a list or constant, in room for a strip where they must be made. A constant
 * is made anew for each strip: it stays in the cache, where a list of it would not. */
static const uint8_t *lmc__codes_at(const lmc__side *side, size_t at, size_t n, uint8_t *room)
{
    if (side->list) return side->list + at;
    memset(room, side->value, n);
    return room;
}

/* All elements, from codes that were checked; returns their CRC. base: as many bytes as dst, which
 * may be the same; or NULL where scales are of groups.
 *
 * Three counters go along with i, the strip's first element: the group at hand and the element at
 * which the next one begins (group_end; strips and groups are cut where either ends), and the first
 * exception that has not been met. */
static uint32_t lmc__restore_elements(const lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, const lmc__quantized_head *head,
                                      const lmc__side *high, const lmc__side *low)
{
    const lmc__quant_params *const q = &head->params;
    const size_t n = info->n;
    const unsigned width = info->width;
    uint8_t wide[4 * LMC__QUANTIZED_STRIP], room[LMC__QUANTIZED_STRIP],
        low_room[LMC__QUANTIZED_STRIP];
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    size_t i, j, part, step, group = 0, group_end = head->first_group, exception = 0, place;
    uint32_t crc = 0;
    for (i = 0; i < n; i += part) {
        /* Where F32 go past the caches (d->streaming), the CRC is taken before, so they are made in
         * `wide`; BF16 are made there anyway. */
        uint8_t *const out = dst + i * width;
        uint8_t *const restored = width == 4 && !d->streaming.is_on ? out : wide;
        const uint8_t *codes;
        part = lmc__min(n - i, LMC__QUANTIZED_STRIP);
        codes = lmc__codes_at(high, i, part, room);
        if (q->table_size) d->k->look_up(symbols, codes, part, q->table);
        else
            d->k->join_symbols(symbols, codes,
                               q->low_bits ? lmc__codes_at(low, i, part, low_room) : NULL, part,
                               q->low_bits);
        if (base)
            d->k->restore_updates(restored, symbols,
                                  lmc__widen(wide, base + i * width, part, width), part, &q->grid);
        else
            for (j = 0; j < part; j += step) {
                if (i + j == group_end) {
                    group++;
                    group_end += (size_t)q->group_size;
                }
                step = lmc__min(part - j, group_end - i - j);
                d->k->restore_rows(restored + 4 * j, symbols + j, step, lmc__scale_at(head, group),
                                   &q->grid);
            }
        LMC__PREFETCH((const void *)((uintptr_t)out + 2 * sizeof wide)); /* the TLB's next page */
        if (width == 2)
            for (j = 0; j < part; j++)
                lmc__store16(wide + 2 * j, (uint16_t)lmc__to_bf16(lmc__load32(wide + 4 * j)));
        /* Last, so that nothing is done to them: a NaN keeps its bits. */
        for (; exception < head->n_exceptions &&
               (place = lmc__load32(head->positions + 4 * exception)) < i + part;
             exception++)
            memcpy(restored + width * (place - i), head->values + width * exception, width);
        crc = d->k->crc32c(crc, restored, part * width);
        if (restored != out && d->streaming.is_on) d->k->stream(out, restored, part * width);
        else if (restored != out) memcpy(out, restored, part * width);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return crc;
}

/* The payload of a quantised block. base: as many bytes as dst, which may be the same; or NULL.
 * The prediction's CRC is compared before dst is touched: with a wrong second moment, all would
 * decode, and be wrong. */
static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__quantized_head head;
    lmc__side high, low;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantized_head(d, &head, info, spare));
    low.list = NULL;
    low.value = 0;
    if (head.params.low_bits) LMC__TRY(lmc__get_list(d, &low, spare, n));
    LMC__TRY(lmc__get_list(d, &high, spare, n));
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    /* Exceptions, too, must have codes that there are: their symbols are looked up with the rest.
     */
    if (head.params.table_size)
        LMC__CHECK(high.list ? !lmc__has_more(high.list, n, head.params.table_size)
                             : high.value <= head.params.table_size,
                   LMC_ERR_CORRUPT);
    if (base) LMC__CHECK(d->k->crc32c(0, base, info->size) == info->base_crc, LMC_ERR_BASE_WRONG);
    *crc = lmc__restore_elements(d, dst, base, info, &head, &high, &low);
    return LMC_OK;
}

#else

/* A library without quantisers knows such blocks by their headers, so it can pass over them. */
static enum lmc_status lmc__get_quantized(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    (void)d, (void)dst, (void)base, (void)info, (void)crc;
    return LMC_ERR_UNSUPPORTED;
}

#endif

/* == codec/get_block.h ============================================================================ */

/* Decoding a block:
 *
 *     header -> prediction -> payload -> content
 *     CRC       size, CRC     each rule  CRC
 *
 * Each is checked before anything is done with it. The header, when it is read (block_header.h).
 * The prediction, before an element is decoded: so a wrong base is told from damage, and who
 * applies a delta to the base itself loses nothing if it is the wrong base. The payload, rule by
 * rule, while it is read: whatever it says, no access leaves the buffers, and time is in proportion
 * to the elements. The content last: only its CRC can tell bits that are wrong but break no rule.
 *
 * Memory: a workspace of lmc_workspace_size(n) is enough for any payload, also for one that no
 * encoder would write (workspace.h), so a hostile block cannot make decoding fail elsewhere. */

/* The payload of a block that is not stored, by its layout: quantised elements; classes, where
 * there is a prediction, or zeros left out without one; else plain planes. base: NULL where there
 * is none. */
static enum lmc_status lmc__get_payload(lmc__decoder *d, uint8_t *dst, const uint8_t *src,
                                        const lmc_block_info *info, const uint8_t *base,
                                        uint32_t *crc)
{
    const unsigned coding = src[1], grouping = src[3];
    const int subtract = (coding & LMC__RESIDUAL_SUBTRACT) != 0;
    if (coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_QUANTIZED)
        return lmc__get_quantized(d, dst, base, info, crc);
    if (base || grouping) return lmc__get_delta(d, dst, base, info, subtract, grouping, crc);
    return lmc__get_planes(d, dst, info->n, info->width, subtract, coding >> LMC__JOINT_SHIFT & 3,
                           crc);
}

/* info was read from src, which has info->encoded_size bytes; dst has room for info->size; ws is
 * large enough. base: as many bytes; NULL where there is none, and not used where the block has no
 * prediction. */
static enum lmc_status lmc__decode_block(const lmc__kernels *k, uint8_t *dst,
                                         lmc__streaming streaming, const uint8_t *src,
                                         const lmc_block_info *info, const uint8_t *base, void *ws,
                                         size_t ws_size)
{
    uint32_t crc;
    if (info->stored) {
        memcpy(dst, src + LMC_BLOCK_HEADER_SIZE, info->size);
        crc = k->crc32c(0, dst, info->size);
    } else {
        lmc__decoder d;
        d.k = k;
        d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
        d.in = src + LMC_BLOCK_HEADER_SIZE;
        d.end = src + info->encoded_size;
        d.streaming = streaming;
        if (!info->has_prediction) base = NULL;
        else LMC__CHECK(base, LMC_ERR_BASE_MISSING);
        LMC__TRY(lmc__get_payload(&d, dst, src, info, base, &crc));
    }
    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* The checks of sizes that a caller of blocks needs; tensors and snapshots make their own, and call
 * lmc__decode_block. Whatever is wrong with the header is said before what is wrong with the
 * arguments that depend on it: the caller cannot know better. */
LMC_API enum lmc_status lmc_decode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size, const void *prediction,
                                         size_t prediction_size, lmc_position position, void *ws,
                                         size_t ws_size)
{
    const lmc__kernels *k = lmc__get_kernels();
    lmc_block_info info;
    if (!dst || !dst_size || !src || !ws) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_block_info(k, (const uint8_t *)src, src_size, position, &info));
    LMC__CHECK(info.encoded_size <= src_size, LMC_ERR_TRUNCATED);
    LMC__CHECK(info.encoded_size == src_size, LMC_ERR_CORRUPT);
    if (info.size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    if (!lmc__is_workspace(ws_size, info.n)) return LMC_ERR_WORKSPACE;
    if (info.has_prediction) {
        LMC__CHECK(prediction, LMC_ERR_BASE_MISSING);
        LMC__CHECK(prediction_size == info.size, LMC_ERR_BASE_WRONG);
    }
    LMC__TRY(lmc__decode_block(k, (uint8_t *)dst, lmc__no_streaming, (const uint8_t *)src, &info,
                               (const uint8_t *)prediction, ws, ws_size));
    *dst_size = info.size;
    return LMC_OK;
}

/* == quantise/quantizer.h ========================================================================= */

/* lmc_quantizer: the parameters that block codecs read, with the memory that they lie in and what
 * is known of their loss.
 *
 *   quantise/fit.h        makes one from a tensor's elements
 *   snapshot/requantise.h makes one from a tensor's blocks, to code it again
 *   tensor/, snapshot/    ask here for parameters and loss, and whether it is of their tensor
 *   codec/                knows the parameters only
 *
 * The caller owns it, and keeps it until all that was told of it is done: writers and jobs hold
 * pointers to the parameters. It does not change once it was made, so threads may share it.
 *
 * A quantiser may be one that keeps its tensor as it is (is_lossless): to everyone but the caller
 * it is as if there were none. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

struct lmc_quantizer {
    lmc__quant_params params;
    lmc_quantizer_info info;
    void *alloc_user;
    /* Elements of the tensor. */
    uint64_t n;
    /* How many of params.codes and params.scales are allocated, by LMC_REALLOC and alloc_user. */
    size_t n_codes;
    size_t n_groups;
};

/* How a tensor is quantised, valid as long as the quantiser; NULL: it is not, for there is no
 * quantiser, or one that keeps the tensor as it is. */
LMC__INLINE const lmc__quant_params *lmc__get_quant_params(const lmc_quantizer *q)
{
    return q && !q->info.is_lossless ? &q->params : NULL;
}

/* What a tensor of such parameters has lost. */
LMC__INLINE lmc_loss lmc__get_quantizer_loss(const lmc_quantizer *q) { return q->info.loss; }

/* Refuses a quantiser that was not fitted to a tensor of that dtype and size: it has as many scales
 * as groups, and whoever codes elements looks them up without a further question. */
LMC__INLINE enum lmc_status lmc__check_quantizer(const lmc_quantizer *q, enum lmc_dtype dtype,
                                                 uint64_t size)
{
    if (!lmc__get_quant_params(q)) return LMC_OK;
    return (dtype == LMC_F32 || dtype == LMC_BF16) && lmc_dtype_width(dtype) == q->params.width &&
                   size == q->n * q->params.width
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

/* Not an error, so LMC_OK: for callers to return. reason: of static storage. */
static enum lmc_status lmc__keep_lossless(lmc_quantizer *q, const char *reason)
{
    q->info.is_lossless = 1;
    q->info.reason = reason;
    return LMC_OK;
}

/* The most points that a grid may have: their numbers, and with signs twice as many, stay below
 * LMC__EXCEPTION. A logarithmic one has no use for more than reach across all magnitudes, which are
 * below 2^31. */
static uint32_t lmc__max_points(const lmc__grid *grid)
{
    const uint32_t n = grid->is_signed ? (LMC__EXCEPTION - 1) / 2 : LMC__EXCEPTION - 1;
    return grid->is_log ? (uint32_t)lmc__min(n, 0x7FFFFFFFu / grid->step) : n;
}

/* The code whose symbol is nearest to s, and the distance. The table's symbols ascend, so the
 * nearest is that of *code, the last one that is not above s, or the next; of two as near, the
 * lower one. zero: another symbol of code 0 (see lmc__zero_symbol), or 0; it must be nearer than
 * both. *code: 1, or what an earlier call for a lower symbol has left, so that one pass over all
 * symbols is one pass over the table. */
LMC__INLINE unsigned lmc__find_code(const lmc__quant_params *q, unsigned *code, uint32_t s,
                                    uint32_t zero, uint32_t *distance)
{
    unsigned best;
    while (*code < q->table_size && q->table[*code + 1] <= s) ++*code;
    best = *code;
    *distance = s > q->table[best] ? s - q->table[best] : q->table[best] - s;
    if (*code < q->table_size && q->table[*code + 1] > s &&
        (uint32_t)(q->table[*code + 1] - s) < *distance) {
        best = *code + 1;
        *distance = q->table[best] - s;
    }
    if (zero && (s > zero ? s - zero : zero - s) < *distance) {
        best = 0;
        *distance = s > zero ? s - zero : zero - s;
    }
    return best;
}

/* The symbol of a linear grid whose point is zero, so that it says the same as symbol 0, which the
 * kernels give in its place; 0: a logarithmic one has none. */
static uint32_t lmc__zero_symbol(const lmc__grid *grid)
{
    return grid->is_log ? 0 : (uint32_t)(1 - grid->min);
}

/* Quantises bytes [offset, offset + size) of the tensor in place, which must be whole elements.
 * This is what lmc__encode_quantized does, without making a block: so it gives what decoding will.
 */
static enum lmc_status lmc__quantize_range(const lmc__quant_params *q, uint8_t *data,
                                           uint64_t offset, size_t size, const uint8_t *second)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t high[LMC__QUANTIZED_STRIP], low[LMC__QUANTIZED_STRIP];
    lmc__quant_source source;
    lmc__quant_strip strip;
    size_t i, n;
    if (offset % q->width || size % q->width) return LMC_ERR_ARGUMENT;
    if (q->is_recovered) return LMC_OK; /* they come out as they go in */
    if (q->is_predicted && !second && size) return LMC_ERR_ARGUMENT;
    source.elements = data;
    source.second = second;
    source.first = offset / q->width;
    source.n = size / q->width;
    strip.symbols = symbols;
    strip.high = high;
    strip.low = q->low_bits ? low : NULL;
    for (i = 0; i < source.n; i += n) {
        n = lmc__min(source.n - i, LMC__QUANTIZED_STRIP);
        strip.source = lmc__part_of(&source, q->width, i, n);
        strip.dst = data + i * q->width;
        (void)lmc__quantize_strip(k, q, &strip);
    }
    return LMC_OK;
}

/* Also of a quantiser that is made half: what was not allocated is NULL. */
LMC_API void lmc_free_quantizer(lmc_quantizer *q)
{
    if (!q) return;
    if (q->params.codes) (void)LMC_REALLOC(q->alloc_user, q->params.codes, q->n_codes, 0);
    if (q->params.scales)
        (void)LMC_REALLOC(q->alloc_user, q->params.scales, q->n_groups * sizeof q->params.scales[0],
                          0);
    (void)LMC_REALLOC(q->alloc_user, q, sizeof *q, 0);
}

LMC_API enum lmc_status lmc_get_quantizer_info(const lmc_quantizer *q, lmc_quantizer_info *info)
{
    if (!q || !info) return LMC_ERR_ARGUMENT;
    *info = q->info;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_quantize(const lmc_quantizer *q, void *data, uint64_t offset,
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

#else

/* Without quantisers none can be made, so callers have NULL; any other pointer is refused. */
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

/* == quantise/clusters.h ========================================================================== */

/* Exact k-means in one dimension: n bins with counts are cut into at most k cells of neighbours, so
 * that the sum of squared distances to the cells' means is least. (In one dimension the cells of a
 * best clustering are intervals.) All in integers, so every machine finds the same cells.
 *
 * Cost. With sums of counts, of count * i and of count * i^2 over all bins before, the cost of a
 * cell takes three subtractions and a division: sum of squares less sum^2 / count. It is rounded
 * up to a whole number, so what is found is the least within one for each cell.
 *
 * Cells at a price. Say that each cell costs a price more. Then the best cut of the first i bins is
 *
 *   best[i] = min over begin < i of  best[begin] + cost(begin, i) + price
 *
 * and k is gone. The cost is a Monge array, cost(a, c) + cost(b, d) <= cost(a, d) + cost(b, c) for
 * a <= b <= c <= d, so a later begin that is once better than an earlier one stays better for all
 * later ends. A queue then holds, for the ends still to come, which begin is best from where on; a
 * new begin takes over at the end of the queue, from a place that is found by halving. That is
 * O(n log n) in time, O(n) in memory (Galil, Park: A linear-time algorithm for concave
 * one-dimensional dynamic programming, 1990).
 *
 * The price. The least cost for k cells falls convexly as k grows, again by Monge, so each price
 * has a number of cells that is best, fewer the higher the price: the price is found by halving,
 * and the cells are the best of their number. Several numbers are best at once only at single
 * prices, where the queue takes one of them: then there are fewer than k cells, which are the best
 * of theirs. Some dozen prices are tried. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__MAX_BINS 4096u
/* Sum of counts: sums of count * i^2 stay below 2^43, and the square of count * i, which is 2^31 at
 * most, below 2^64. */
#define LMC__MAX_COUNT ((uint32_t)1 << 19)

/* Arrays of sums and of results have an entry for each number of bins from the first, 0 to n. */
typedef struct lmc__clusters {
    size_t n;
    uint32_t count[LMC__MAX_BINS + 1];
    uint64_t sum[LMC__MAX_BINS + 1], square[LMC__MAX_BINS + 1];
    uint64_t best[LMC__MAX_BINS + 1];      /* the least cost, prices included */
    uint16_t begin[LMC__MAX_BINS + 1];     /* of the last cell */
    uint16_t cells[LMC__MAX_BINS + 1];     /* their number */
    uint16_t candidate[LMC__MAX_BINS + 1]; /* the queue: begins, in ascending order, */
    uint16_t from[LMC__MAX_BINS + 1];      /* and the first end for which each is best */
} lmc__clusters;

/* Counts are halved until their sum is in range; bins that have any keep at least one. */
static void lmc__set_clusters(lmc__clusters *c, const uint32_t *counts, size_t n)
{
    uint64_t total = 0;
    unsigned shift = 0;
    size_t i;
    for (i = 0; i < n; i++) total += counts[i];
    while (total >> shift > LMC__MAX_COUNT - LMC__MAX_BINS) shift++;
    c->n = n;
    c->count[0] = 0;
    c->sum[0] = c->square[0] = 0;
    for (i = 0; i < n; i++) {
        const uint32_t count = counts[i] >> shift ? counts[i] >> shift : counts[i] != 0;
        c->count[i + 1] = c->count[i] + count;
        c->sum[i + 1] = c->sum[i] + (uint64_t)count * i;
        c->square[i + 1] = c->square[i] + (uint64_t)count * i * i;
    }
}

/* Sum of squared distances of bins [a, b) to their mean; rounded up. Distances are taken from bin
 * a: smaller numbers, whose square fits. */
LMC__INLINE uint64_t lmc__cell_cost(const lmc__clusters *c, size_t a, size_t b)
{
    const uint64_t count = c->count[b] - c->count[a], sum = c->sum[b] - c->sum[a] - count * a;
    if (count == 0) return 0;
    return c->square[b] - c->square[a] - 2 * a * (c->sum[b] - c->sum[a]) + count * a * a -
           sum * sum / count;
}

/* The least cost of the first `end` bins whose last cell is [begin, end), without its price. */
LMC__INLINE uint64_t lmc__cut_cost(const lmc__clusters *c, size_t begin, size_t end)
{
    return c->best[begin] + lmc__cell_cost(c, begin, end);
}

/* The best cells at a price; returns their number. The queue is [head, tail). */
static unsigned lmc__cut_cells(lmc__clusters *c, uint64_t price)
{
    const size_t n = c->n;
    size_t head = 0, tail = 1, i;
    c->best[0] = 0;
    c->cells[0] = 0;
    c->candidate[0] = 0;
    c->from[0] = 1;
    for (i = 1; i <= n; i++) {
        size_t j;
        while (head + 1 < tail && c->from[head + 1] <= i) head++;
        j = c->candidate[head];
        c->best[i] = lmc__cut_cost(c, j, i) + price;
        c->begin[i] = (uint16_t)j;
        c->cells[i] = (uint16_t)(c->cells[j] + 1);
        if (i == n) break;
        /* i becomes a candidate. Those at the end of the queue go, if i is as good where they
         * begin to be best: they never are. */
        while (tail - 1 > head && lmc__cut_cost(c, i, c->from[tail - 1]) <=
                                      lmc__cut_cost(c, c->candidate[tail - 1], c->from[tail - 1]))
            tail--;
        j = c->candidate[tail - 1];
        if (lmc__cut_cost(c, i, n) <= lmc__cut_cost(c, j, n)) {
            /* i takes over from j, after the first end for which j is best. */
            size_t low = (tail - 1 > head ? c->from[tail - 1] : i) + 1, high = n;
            while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (lmc__cut_cost(c, i, middle) <= lmc__cut_cost(c, j, middle)) high = middle;
                else low = middle + 1;
            }
            c->candidate[tail] = (uint16_t)i;
            c->from[tail++] = (uint16_t)low;
        }
    }
    return c->cells[n];
}

/* At most k cells; returns how many. ends: of each. The first price is about half of what would be
 * right for bins of equal counts: there the cost of j cells is all / j^2, and from j to j + 1 cells
 * it falls by 2 * all / j^3. */
static unsigned lmc__find_cells(lmc__clusters *c, unsigned k, uint16_t *ends)
{
    const uint64_t all = lmc__cell_cost(c, 0, c->n);
    uint64_t low = 0, high = all / ((uint64_t)k * k * k) + 1;
    unsigned n = lmc__cut_cells(c, high), i;
    size_t end;
    while (n > k) {
        low = high;
        high = 4 * high;
        n = lmc__cut_cells(c, high);
    }
    /* The price low has more than k cells, or is 0; high has at most k. Until they are exactly k,
     * or the price is known to a 4096th. */
    while (n != k && high - low > high / 4096 + 1) {
        const uint64_t middle = low + (high - low) / 2;
        const unsigned found = lmc__cut_cells(c, middle);
        if (found > k) low = middle;
        else {
            high = middle;
            n = found;
        }
    }
    n = lmc__cut_cells(c, high);
    for (i = n, end = c->n; i > 0; i--) {
        ends[i - 1] = (uint16_t)end;
        end = c->begin[end];
    }
    return n;
}

#endif

/* == quantise/fit_sample.h ======================================================================== */

/* The state of a fit, and its sample.
 *
 * Elements come from a callback, again in each pass: a tensor may be larger than memory. So each
 * pass costs a read, and a fit makes few. What most of it looks at is no element but the counts of
 * the symbols that a pass has found on a grid: 64 Ki numbers, whatever the tensor's size.
 *
 * The sample of a tensor below 4 Mi elements is all of it. Of a larger one it is chunks of 16 Ki at
 * equal distances, 2 to 3 Mi elements together, the same ones in each pass, so that what one pass
 * finds, the next one can compare with. It does not depend on threads or caches: the quantiser must
 * be the same on every machine. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__FIT_CHUNK 16384u               /* elements that are read at once */
#define LMC__FIT_SAMPLE ((uint64_t)1 << 21) /* tensors of twice as many, or more, are sampled */
#define LMC__SYMBOLS 65536u

/* 0.7 MiB, allocated while a fit lasts. */
typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_elements elements;
    /* What is being made; not yet of use to others. */
    lmc_quantizer *q;
    /* The chunk at hand: its elements and, with is_predicted, their second moments, as they come
     * (chunk, second) and as F32 (x, s), which is in `wide` where they are BF16. */
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK];
    uint8_t wide[4 * LMC__FIT_CHUNK], wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s;
    uint16_t symbols[LMC__FIT_CHUNK];
    /* Of the sample's symbols, LMC__EXCEPTION included; their sum without that and symbol 0. */
    uint32_t counts[LMC__SYMBOLS];
    uint64_t total;
    /* Of symbol 0 on the first, fine grid: of what is zero indeed, or as good as that. */
    uint32_t zeros;
    /* Of k-means: counts of its bins, and where its cells end. */
    uint32_t bins[LMC__MAX_BINS];
    uint16_t ends[256];
    lmc__clusters clusters;
} lmc__fit;

/* Reads elements [first, first + n), and of the second moment what the decoder will have: that may
 * be quantised, too, and an update over a moment that was rounded is another one. */
static enum lmc_status lmc__read_chunk(lmc__fit *f, uint64_t first, size_t n)
{
    const lmc_quantizer_options *const o = f->options;
    const lmc__quant_params *const q = &f->q->params;
    const size_t size = n * q->width;
    LMC__TRY(f->elements.read(f->elements.user, first * q->width, f->chunk, size));
    f->x = lmc__widen(f->wide, f->chunk, n, q->width);
    f->s = NULL;
    if (!q->is_predicted) return LMC_OK;
    LMC__TRY(o->second_elements.read(o->second_elements.user, first * q->width, f->second, size));
    if (o->second) LMC__TRY(lmc_quantize(o->second, f->second, first * q->width, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* The sample is the chunks that begin at 0, stride, 2 * stride, ... A stride is a whole number of
 * chunks; of a small tensor it is one. The tensor's last chunk may be shorter. */
static uint64_t lmc__get_stride(const lmc_quantizer *q)
{
    return q->n < 2 * LMC__FIT_SAMPLE ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / LMC__FIT_SAMPLE);
}

static size_t lmc__get_chunk_size(const lmc_quantizer *q, uint64_t at)
{
    return (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
}

/* Counts the sample's symbols on the grid. *is_off: more than a 100th of them are on none. Then
 * exceptions, of 8 bytes with F32, take more than 0.6 bits for each element of the tensor, and
 * there is little to be won. */
static enum lmc_status lmc__count_sample(lmc__fit *f, int *is_off)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__get_stride(q);
    uint64_t at, seen = 0;
    size_t i;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        (void)lmc__find_symbols(f->k, &q->params, f->symbols, f->x, f->s, at, n);
        for (i = 0; i < n; i++) f->counts[f->symbols[i]]++;
        seen += n;
    }
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->total = seen - f->counts[0] - f->counts[LMC__EXCEPTION];
    *is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > seen;
    return LMC_OK;
}

/* The first and the last point that occur; 0, 0 if none does. */
static void lmc__find_range(const lmc__fit *f, uint32_t *first, uint32_t *last)
{
    uint32_t s;
    *first = *last = 0;
    for (s = 1; s < LMC__EXCEPTION; s++)
        if (f->counts[s]) {
            if (!*first) *first = s;
            *last = s;
        }
}

#endif

/* == quantise/fit_scales.h ======================================================================== */

/* How fine the grid of each element is (spec 7.6).
 *
 * Elements of groups, such as the rows of a matrix, are alike in size within a group and differ
 * between groups by orders of magnitude. Each group has a scale of its own, found here in one pass
 * over the whole tensor; coding a tensor must not have to look at it.
 *
 * Elements with a prediction have a scale that follows from it: about the root of the second
 * moment, times 2^bias. An update m / (sqrt(v) + eps) is then a number of scales, alike in size in
 * all of the tensor, and there is nothing to store. What is found here is one bias for all, and the
 * floor, which stands for eps.
 *
 * Both only say which points there are, not which of them are used: fit_table.h and fit_grid.h
 * choose. Bits of floats serve as logarithms: they grow by 2^23, an LMC__OCTAVE, from one power of
 * two to the next, and a difference of bits is a ratio of floats, within 6 %. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Units of bias and of bits: numbers of a float's bits from one power of two to the next. */
#define LMC__OCTAVE ((int32_t)1 << 23)
#define LMC__MAX_BIAS ((int32_t)1 << 30)          /* of the format, either way */
#define LMC__LEAST_SCALE (LMC__MIN_SCALE >> 16)   /* scales of groups are upper halves */
#define LMC__LARGEST_SCALE (LMC__MAX_SCALE >> 16) /* of a linear grid */
#define LMC__LARGEST_LOG_SCALE (LMC__MAX_LOG_SCALE >> 16)
#define LMC__SCALE_OF_ONE 0x3F80u /* of 1.0: for groups without any number */

/* The scale of each group: the mean of the bits of its elements' magnitudes, so about their
 * geometric mean M. That is robust: one element that is far above the others hardly moves it, where
 * it would determine a maximum, and zeros and subnormals, which are left out, do not drag it down.
 *
 * A linear grid gets M * 2^-9: its 65,534 points then reach from a 512th of M to 64 M, on either
 * side of zero. A logarithmic one has M in its middle.
 *
 * The sums are of bits >> 14 (lmc__sum_magnitudes), so that 65,536 of them fit in 32 bits; the mean
 * >> 2 is an upper half. Groups go on from chunk to chunk, with what was summed so far. */
static enum lmc_status lmc__fit_scales(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const uint64_t group_size = q->params.group_size;
    const uint32_t down = q->params.grid.is_log ? 0 : 9u * (LMC__OCTAVE >> 16),
                   largest = q->params.grid.is_log ? LMC__LARGEST_LOG_SCALE : LMC__LARGEST_SCALE;
    uint64_t at, sum = 0, count = 0;
    uint16_t *scales;
    size_t n;
    if (q->n / group_size > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    q->n_groups = (size_t)((q->n + group_size - 1) / group_size);
    scales = (uint16_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_groups * sizeof scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->params.scales = scales;
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
            /* The group ends here, not with the chunk alone. */
            if (at + i + part == end) {
                const uint32_t mean = count ? (uint32_t)(sum / count) >> 2 : LMC__SCALE_OF_ONE,
                               scale =
                                   mean > down + LMC__LEAST_SCALE ? mean - down : LMC__LEAST_SCALE;
                scales[group] = (uint16_t)(scale < largest ? scale : largest);
                sum = count = 0;
            }
        }
    }
    return LMC_OK;
}

/* Where the second moment v is less than eps^2, eps counts for most in the update m / (sqrt(v) +
 * eps), which is then taken as m / eps: by a floor of eps^2 for v. Squaring doubles a logarithm, so
 * the distance of the bits from those of 1. */
static void lmc__fit_floor(lmc__fit *f)
{
    lmc__grid *const grid = &f->q->params.grid;
    const float eps = (float)(f->options->eps > 0 ? f->options->eps : 1e-8);
    uint32_t bits;
    memcpy(&bits, &eps, 4);
    grid->floor = bits > 0x3F800000u / 2 ? 2 * bits - 0x3F800000u : 0;
    if (grid->floor > 0x7F800000u) grid->floor = 0x7F800000u;
}

/* The bias with which the largest update of the sample is 2^14 scales, half of what the grid
 * reaches; *found: there is one within the format's limits. Few that are far above all others, as
 * where the second moment is lost, do not make the grid coarse: they become exceptions. */
static enum lmc_status lmc__fit_bias(lmc__fit *f, int *found)
{
    lmc_quantizer *const q = f->q;
    lmc__grid *const grid = &q->params.grid;
    const uint64_t stride = lmc__get_stride(q);
    /* Updates, as ratios: differences of bits, from -2^31 to 2^31. */
    int64_t largest = INT64_MIN / 2, usual;
    uint64_t at;
    uint32_t octave = 512, above = 0, total = 0;
    size_t i;
    memset(f->bins, 0, sizeof f->bins); /* here: of octaves, from 2^-256 on */
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i++) {
            const uint32_t v = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF,
                           p = lmc__load32(f->s + 4 * i) & 0x7FFFFFFF;
            const int64_t ratio = (int64_t)v - (int64_t)((p > grid->floor ? p : grid->floor) >> 1);
            if (!lmc__is_normal(v) || p > 0x7F800000) continue;
            if (ratio > largest) largest = ratio;
            f->bins[(ratio >> 23) + 256]++;
            total++;
        }
    }
    /* The highest octave such that more than one element of 8192 is in it or above: up to 16 times
     * its end is usual, too. */
    while (octave > 0 && above <= total / 8192) above += f->bins[--octave];
    usual = ((int64_t)octave - 256 + 5) * LMC__OCTAVE;
    if (largest > usual) largest = usual;
    largest -= 14 * (int64_t)LMC__OCTAVE;
    *found = largest >= -LMC__MAX_BIAS && largest <= LMC__MAX_BIAS;
    if (*found) grid->bias = (int32_t)largest;
    return LMC_OK;
}

/* Makes a linear grid coarser by about 2^(by / LMC__OCTAVE); finer, where that is negative. by: a
 * multiple of 2^16, or scales of groups, which are upper halves, would not all move alike. Those at
 * the format's limits stay there: the errors that follow are measured, not computed. */
static void lmc__coarsen(lmc_quantizer *q, int32_t by)
{
    size_t i;
    if (q->params.is_predicted) {
        const int32_t bias = q->params.grid.bias + by;
        q->params.grid.bias = bias < -LMC__MAX_BIAS  ? -LMC__MAX_BIAS
                              : bias > LMC__MAX_BIAS ? LMC__MAX_BIAS
                                                     : bias;
        return;
    }
    for (i = 0; i < q->n_groups; i++) {
        const int32_t scale = q->params.scales[i] + by / 65536;
        q->params.scales[i] =
            (uint16_t)(scale<(int32_t)LMC__LEAST_SCALE ? LMC__LEAST_SCALE : scale>(int32_t)
                               LMC__LARGEST_SCALE
                           ? LMC__LARGEST_SCALE
                           : (uint32_t)scale);
    }
}

#endif

/* == quantise/fit_error.h ========================================================================= */

/* What quantising loses, in integers: every machine must find the same grid.
 *
 * Errors are fractions of 1 in units of 2^-32 (lmc__q32). By measure they are
 *
 *   RELATIVE  the largest change of an element, over the element
 *   NMSE      the sum of squared changes, over the sum of squares
 *   UPDATE    the root of the same, of updates m / (sqrt(v) + eps)
 *
 * There are two ways to them. lmc__estimate_error takes the symbols' counts alone: a pass over 64
 * Ki numbers, for each grid that is tried. lmc__measure_loss restores the sample and compares it:
 * what is reported for a linear grid, and what the bound is held against. A logarithmic grid needs
 * no such pass: its relative errors do not depend on where the elements lie. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

typedef uint32_t lmc__q32;
#define LMC__Q32_ONE 4294967296.0
#define LMC__Q32_MAX UINT32_MAX /* also for everything above */

/* Square root, rounded down, bit by bit from the top: a bit stays if its square still fits. */
static uint32_t lmc__square_root(uint64_t v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= v) root |= bit;
    return root;
}

/* sqrt(v * 2^-32) in the same units, as sqrt(v * 2^32) is. */
static lmc__q32 lmc__root_q32(lmc__q32 v) { return lmc__square_root((uint64_t)v << 32); }

/* a / b, at most LMC__Q32_MAX. Both lose as many low bits until a << 32 fits. */
static lmc__q32 lmc__fraction(uint64_t a, uint64_t b)
{
    while (a >> 32) {
        a >>= 1;
        b >>= 1;
    }
    return b == 0 || (a << 32) / b > LMC__Q32_MAX ? LMC__Q32_MAX : (lmc__q32)((a << 32) / b);
}

/* The squared relative error of n magnitudes on a logarithmic grid, from squares12: 12 times the
 * sum of their squared errors, in points. One point is `step` of the 2^23 numbers of an octave.
 * There a float x = 2^e * m, 1 <= m < 2, is off by 2^e times the error in octaves, so by the error
 * over m in proportion. In octaves that are evenly filled by logarithm, the mean of 1 / m^2 is the
 * integral of 1 / (m^3 ln 2) from 1 to 2: 3 / (8 ln 2) = 0.541. */
static lmc__q32 lmc__log_error(uint64_t squares12, uint64_t n, uint32_t step)
{
    /* (step / 2^23)^2 * 0.541 * squares12 / 12 / n; step is at most 2^24 */
    const uint64_t step2 = (uint64_t)step * step; /* in 2^-46 */
    uint64_t mean = n ? squares12 * 256 / n : 0;  /* in 2^-8 */
    /* Both factors are cut to 32 bits, so that their product fits; the shift says how far it is
     * from units of 2^-32. */
    unsigned shift = 46 + 8 - 32;
    uint64_t a = step2 / 12 * 541 / 1000;
    while (a >> 32) {
        a >>= 1;
        shift--;
    }
    while (mean >> 31) {
        mean >>= 1;
        shift--;
    }
    a *= mean;
    if ((int)shift < 0 || a >> shift > LMC__Q32_MAX) return LMC__Q32_MAX;
    return (lmc__q32)(a >> shift);
}

/* What rounding to BF16 adds: an even error within 2^-7 of an octave's begin, squared 2^-14 / 12,
 * times 0.541 (see lmc__log_error). */
#define LMC__BF16_ERROR ((lmc__q32)11818)

/* The error by the quantiser's measure, from squares12: 12 times the sum of squared errors, in
 * points. (An even error within one point has the mean square 1/12, so squares12 is a whole
 * number.)
 *
 * Of a linear grid it is the sum over that of the points' squares, over all elements as if they
 * were of one scale: right where the loss is spread as the elements are. Of updates that is so, for
 * they are counted in scales themselves. */
static lmc__q32 lmc__estimate_error(const lmc__fit *f, uint64_t squares12)
{
    const lmc__quant_params *const q = &f->q->params;
    uint64_t power = 0; /* sum of squares, in points */
    lmc__q32 error;
    uint32_t s;
    if (q->grid.is_log) error = lmc__log_error(squares12, f->total, q->grid.step);
    else {
        for (s = 1; s < LMC__EXCEPTION; s++) {
            const int64_t v = (int64_t)q->grid.min + s - 1;
            power += f->counts[s] * (uint64_t)(v * v);
        }
        error = power >> 60 ? LMC__Q32_MAX : lmc__fraction(squares12 / 12, power);
        if (q->width == 2)
            error = error > LMC__Q32_MAX - LMC__BF16_ERROR ? LMC__Q32_MAX : error + LMC__BF16_ERROR;
    }
    if (f->q->info.loss.measure != LMC_MEASURE_UPDATE) return error;
    error = lmc__root_q32(error);
    return q->grid.is_log ? error / 2 : error; /* of v: the root halves relative errors */
}

/* The error of the grid as it is, if errors are spread evenly over each point's interval: of one
 * point's width, squared, a 12th. Elements that became zero have one, too. */
static lmc__q32 lmc__even_error(const lmc__fit *f)
{
    const uint32_t lost = f->counts[0] > f->zeros ? f->counts[0] - f->zeros : 0;
    return lmc__estimate_error(f, f->total + lost);
}

/* The asked bound; of measures that are estimated or sampled a hundredth less: on real moments
 * estimates were up to 0.7 % below the truth. */
static lmc__q32 lmc__get_bound(const lmc_quantizer_options *options)
{
    const lmc__q32 bound = (lmc__q32)(options->bound * LMC__Q32_ONE);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* A sum of squares of 64 bits, in 128: of up to 2^22 of them. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;
LMC__INLINE void lmc__add_square(lmc__wide_sum *sum, int64_t v)
{
    const uint64_t square = (uint64_t)(v * v);
    sum->low += square;
    sum->high += sum->low < square;
}

/* a / b; both lose as many bits until they fit. */
static lmc__q32 lmc__wide_fraction(lmc__wide_sum a, lmc__wide_sum b)
{
    while (a.high | b.high) {
        a.low = a.low >> 1 | a.high << 63;
        b.low = b.low >> 1 | b.high << 63;
        a.high >>= 1;
        b.high >>= 1;
    }
    return lmc__fraction(a.low, b.low);
}

/* 2^exponent, -1022 .. 1023: by its bits, as ldexp is in the mathematical library. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* The sums of squares of what is lost and of what there is, over the sample, in the same unit: only
 * their ratio counts. */
typedef struct lmc__losses {
    lmc__wide_sum lost, all;
} lmc__losses;

/* Adds an element of bits v, restored as w, in units of 1 / unit, over `divisor`. unit is a power
 * of two, so only the conversion to a whole number rounds, towards zero. The difference of the
 * floats is exact in a double: if w is not zero, v is at least half a scale, and with 2^e <= scale
 * < 2^(e + 1) both are multiples of 2^(e - 24) and less than 2^(e + 16). That is 40 bits of 53. */
LMC__INLINE void lmc__add_loss(lmc__losses *sums, uint32_t v, uint32_t w, double unit,
                               int64_t divisor)
{
    float x, y;
    memcpy(&x, &v, 4);
    memcpy(&y, &w, 4);
    lmc__add_square(&sums->lost, (int64_t)(((double)x - (double)y) * unit) / divisor);
    lmc__add_square(&sums->all, (int64_t)((double)x * unit) / divisor);
}

/* The same of an update: in units of its scale, which is the divisor of the update within 6 %. It
 * is below 2^15 scales: times 2^24, over the scale's power of two, makes 40 bits, and over twice
 * its mantissa, of 8 bits, 31. */
LMC__INLINE void lmc__add_update_loss(lmc__losses *sums, uint32_t v, uint32_t w, uint32_t scale)
{
    const int64_t mantissa = 0x80 | (scale >> 16 & 0x7F);
    lmc__add_loss(sums, v, w, lmc__power(24 + 127 - (int)(scale >> 23)), 2 * mantissa);
}

/* The bits of the largest magnitude in the sample that is no exception: a pass of its own, which
 * finds the unit for the next one. */
static enum lmc_status lmc__find_largest(lmc__fit *f, uint32_t *largest)
{
    const uint64_t stride = lmc__get_stride(f->q);
    uint64_t at;
    size_t i;
    *largest = LMC__MIN_SCALE;
    for (at = 0; at < f->q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(f->q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        (void)lmc__find_symbols(f->k, &f->q->params, f->symbols, f->x, f->s, at, n);
        for (i = 0; i < n; i++) {
            const uint32_t magnitude = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF;
            if (f->symbols[i] != LMC__EXCEPTION && magnitude > *largest) *largest = magnitude;
        }
    }
    return LMC_OK;
}

/* Restores a part of the chunk at hand, which begins at number `at`, by the functions that code it,
 * and adds what it loses. Exceptions lose nothing, and are left out of both sums: one infinity
 * would be all of them. So are zeros, which are restored as zeros. unit: of elements that are not
 * predicted. */
static void lmc__add_losses(lmc__fit *f, uint64_t at, size_t begin, size_t n, double unit,
                            lmc__losses *sums)
{
    const lmc__quant_params *const q = &f->q->params;
    uint8_t restored[4 * LMC__QUANTIZED_STRIP], wide[4 * LMC__QUANTIZED_STRIP],
        high[LMC__QUANTIZED_STRIP], low[LMC__QUANTIZED_STRIP];
    lmc__quant_strip strip;
    const uint8_t *y;
    size_t i;
    strip.source.elements = f->chunk + begin * q->width;
    strip.source.second = f->second + begin * q->width;
    strip.source.first = at + begin;
    strip.source.n = n;
    strip.dst = restored;
    strip.symbols = f->symbols;
    strip.high = high;
    strip.low = q->low_bits ? low : NULL;
    (void)lmc__quantize_strip(f->k, q, &strip);
    y = lmc__widen(wide, restored, n, q->width);
    for (i = 0; i < n; i++) {
        const uint32_t v = lmc__load32(f->x + 4 * (begin + i)), w = lmc__load32(y + 4 * i);
        if (f->symbols[i] == LMC__EXCEPTION || v == 0) continue;
        if (q->is_predicted)
            lmc__add_update_loss(
                sums, v, w, lmc__predicted_scale(lmc__load32(f->s + 4 * (begin + i)), &q->grid));
        else lmc__add_loss(sums, v, w, unit, 1);
    }
}

/* What the quantiser, complete by now, loses of a linear tensor: of the elements, in units of which
 * the largest has 30 bits, or of updates. With UPDATE the root of it.
 *
 * Sums are of whole numbers, so no order of additions, no width of vectors and no option of a
 * compiler changes them. Elements of a billionth of the largest count as zero: a tensor's loss is a
 * ratio of sums in which they have no part. */
static enum lmc_status lmc__measure_loss(lmc__fit *f, lmc__q32 *error)
{
    const lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__get_stride(q);
    lmc__losses sums = {{0, 0}, {0, 0}};
    double unit = 1;
    uint64_t at;
    if (!q->params.is_predicted) {
        uint32_t largest;
        LMC__TRY(lmc__find_largest(f, &largest));
        unit = lmc__power(30 + 127 - (int)(largest >> 23) - 1);
    }
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        size_t i, part;
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            part = lmc__min(n - i, LMC__QUANTIZED_STRIP);
            lmc__add_losses(f, at, i, part, unit, &sums);
        }
    }
    *error = lmc__wide_fraction(sums.lost, sums.all);
    if (q->info.loss.measure == LMC_MEASURE_UPDATE) *error = lmc__root_q32(*error);
    return LMC_OK;
}

#endif

/* == quantise/fit_table.h ========================================================================= */

/* A table of up to 2^bits codes: k-means over the symbols of a fine grid.
 *
 * The grid has up to 65,534 points and the table at most 256, which lie far apart on it: looking at
 * symbols instead of elements loses next to nothing. In return the tensor becomes a histogram,
 * k-means becomes exact (clusters.h), a table is some hundred bytes, and decoders need one lookup
 * in front of the arithmetic that they have anyway.
 *
 *   counts of symbols --> bins --> cells of bins --> centres --> table --> code of each symbol
 *
 * With a logarithmic grid the distances are those of logarithms: so relative errors are evened out,
 * as second moments want it. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Cells of neighbouring symbols, from k-means over bins of 2^shift symbols; centres: their means,
 * in ascending order. Returns how many of at most k there are: cells may be empty, and the means of
 * two may be rounded to one symbol. */
static unsigned lmc__find_centres(lmc__fit *f, unsigned k, size_t max_bins, uint32_t *centres)
{
    uint32_t first, last, s;
    unsigned shift = 0, n_cells, i, n = 0;
    lmc__find_range(f, &first, &last);
    /* Time is O(bins * log bins) for each price, so bins are not finer than cells need it. */
    while ((last - first) >> shift >= max_bins) shift++;
    memset(f->bins, 0, sizeof f->bins);
    for (s = first; s <= last; s++) f->bins[(s - first) >> shift] += f->counts[s];
    lmc__set_clusters(&f->clusters, f->bins, ((last - first) >> shift) + 1);
    n_cells = lmc__find_cells(&f->clusters, k, f->ends);
    for (i = 0; i < n_cells; i++) {
        const size_t from = i ? f->ends[i - 1] : 0, to = f->ends[i];
        const uint64_t count = f->clusters.count[to] - f->clusters.count[from],
                       sum = f->clusters.sum[to] - f->clusters.sum[from];
        uint32_t symbol;
        if (count == 0) continue; /* a cell that no symbol is in needs no code */
        /* The mean bin, plus a half: the middle of its symbols. */
        symbol = first + (uint32_t)(((2 * sum + count) << shift) / (2 * count));
        if (symbol > last) symbol = last;
        if (n && symbol <= centres[n - 1]) continue;
        centres[n++] = symbol;
    }
    return n;
}

/* The table of n centres. Code 0 is zero already, which on a linear grid is a point among others:
 * there the centre nearest to it is left out, so that zero itself stands in its place, unless all
 * of the k codes cannot be used otherwise. */
static void lmc__set_table(lmc__quant_params *q, const uint32_t *centres, unsigned n, unsigned k)
{
    const uint32_t zero = lmc__zero_symbol(&q->grid);
    uint32_t nearest = UINT32_MAX;
    unsigned i, skip = 256;
    for (i = 0; i < n && zero; i++) {
        const uint32_t distance = centres[i] > zero ? centres[i] - zero : zero - centres[i];
        if (distance < nearest) {
            nearest = distance;
            skip = i;
        }
    }
    /* table[0] is symbol 0, and what is beyond the table is looked up by no valid code: 0, so that
     * tables can be compared whole. */
    q->table[0] = 0;
    q->table_size = 0;
    for (i = 0; i < n; i++)
        if (i != skip || (n < k && nearest != 0)) q->table[++q->table_size] = (uint16_t)centres[i];
    for (i = q->table_size + 1; i < 256; i++) q->table[i] = 0;
}

/* The table of at most k codes, the first for zero, and codes for all symbols. *bits: of the
 * sample and the table when coded, times 2^16. Returns the estimated error. */
static lmc__q32 lmc__fit_table(lmc__fit *f, unsigned k, uint64_t *bits)
{
    lmc__quant_params *const q = &f->q->params;
    const uint32_t zero = lmc__zero_symbol(&q->grid);
    /* 16 bins to a code are enough; of small tensors, time counts more */
    const size_t max_bins =
        lmc__min(16 * (size_t)k, f->q->n < ((uint64_t)1 << 16) ? 1024 : LMC__MAX_BINS);
    uint32_t s, codes[256] = {0}, centres[256];
    uint64_t squares12 = 0;
    unsigned n, code;
    /* A logarithmic grid has no point for zero, so zero takes one of the codes. */
    n = lmc__find_centres(f, q->grid.is_log ? k - 1 : k, max_bins, centres);
    lmc__set_table(q, centres, n, k);
    /* Codes of all symbols, not of those alone that the sample has: the tensor may have others. */
    memset(q->codes, 0, LMC__SYMBOLS);
    for (s = 1, code = 1; s < LMC__EXCEPTION && q->table_size; s++) {
        uint32_t distance;
        const unsigned best = lmc__find_code(q, &code, s, zero, &distance);
        q->codes[s] = (uint8_t)best;
        codes[best] += f->counts[s];
        /* The symbol's own elements are spread over its interval: a 12th more. */
        squares12 += f->counts[s] * (12 * (uint64_t)distance * distance + 1);
    }
    codes[0] += f->counts[0];
    *bits = lmc__entropy_q16(codes, (uint32_t)f->total + f->counts[0]) +
            ((uint64_t)(16 * q->table_size) << 16);
    return lmc__estimate_error(f, squares12);
}

/* Moves the grid to begin and end where the sample does: then few symbols need a code, and the
 * array of codes becomes as short, at most 64 KiB before. Elements beyond become exceptions; there
 * are few of them, as the sample had none. Numbers of symbols move down with the grid's begin. */
static enum lmc_status lmc__narrow_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const uint32_t no_more = (uint32_t)(1 - p->grid.min); /* min must stay at most 0 */
    uint32_t first, last, i;
    uint8_t *codes;
    lmc__find_range(f, &first, &last);
    first = first < no_more ? first : no_more;
    if (!p->grid.is_log && last < no_more) last = no_more; /* zero is a point */
    codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, last - first + 2);
    if (!codes) return LMC_ERR_MEMORY;
    codes[0] = 0;
    memcpy(codes + 1, p->codes + first, last - first + 1);
    (void)LMC_REALLOC(q->alloc_user, p->codes, q->n_codes, 0);
    p->codes = codes;
    q->n_codes = last - first + 2;
    for (i = 1; i <= p->table_size; i++) p->table[i] = (uint16_t)(p->table[i] - (first - 1));
    p->grid.min += (int32_t)first - 1;
    p->grid.n_points = last - first + 1;
    return LMC_OK;
}

#endif

/* == quantise/fit_grid.h ========================================================================== */

/* The coarsest grid that keeps to a bound, coded without a table.
 *
 * Logarithmic grids: the step follows from the bound, by arithmetic. With RELATIVE the bound is
 * hard. An element's bits are at most half a step, d numbers, from those of its point, and a step
 * is at most 2^24. If both lie in one octave, [2^e, 2^(e + 1)), a number is 2^(e - 23), so the
 * change over the element is at most d / 2^23. If the point lies beyond 2^(e + 1), a numbers above
 * the element, the d - a numbers after it weigh double: the change is 2^(e - 23) (2 d - a), and
 * the element 2^(e - 23) (2^24 - a). Their ratio is at most d / 2^23, too, as d <= 2^23. The limits
 * of spec 7.6 only move points towards elements, and BF16 have steps of whole BF16.
 *
 * Linear grids: of NMSE and UPDATE, over a sample. A first guess takes errors as spread evenly
 * over the interval of each point; then the grid is used and the loss measured, and made finer
 * until it is within the bound. What is reported is what was measured. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Tries: of the even error, each a pass that counts symbols; and of the loss, each one or two that
 * quantise, and one that counts. What does not hold the bound by then is kept without loss. */
#define LMC__MAX_GUESSES 32u
#define LMC__MAX_MEASURES 16u

/* Ratios have 20 bits behind the point. */
#define LMC__RATIO_ONE ((uint64_t)1 << 20)
#define LMC__MAX_RATIO ((uint64_t)1 << 40)

/* Scales of groups are upper halves of floats: one of them is a 128th of an octave. */
#define LMC__SCALE_STEP ((int32_t)1 << 16)

/* What a fit has found: bits of the sample when coded, times 2^16, and codes that occur. */
typedef struct lmc__fitted {
    int found; /* there is a grid */
    uint64_t bits;
    unsigned n_codes;
    lmc__q32 error;
} lmc__fitted;

/* The grid itself as symbols, without a table: it is moved to begin where the sample does, which
 * makes for small numbers, and as many low bits are cut off as the largest has beyond 8. Low bits
 * are of points next to each other, so they hardly compress: they are counted as they are, High by
 * its entropy. Elements beyond the sample's ends become exceptions. */
static void lmc__narrow_grid(lmc__fit *f, lmc__fitted *fitted)
{
    lmc__quant_params *const q = &f->q->params;
    const unsigned sign = q->grid.is_signed ? 1 : 0; /* points have a symbol for each sign */
    uint32_t first, last, s, codes[256] = {0};
    lmc__find_range(f, &first, &last);
    q->table_size = 0;
    first -= (first - 1) & sign; /* both signs of the first point */
    if (!q->grid.is_log) {       /* zero is a point */
        const uint32_t zero = lmc__zero_symbol(&q->grid);
        first = first < zero ? first : zero;
        last = last > zero ? last : zero;
    }
    if (q->grid.is_log && q->grid.min + (int32_t)((first - 1) >> sign) > 0)
        first = ((uint32_t)-q->grid.min << sign) + 1; /* min must stay at most 0 */
    q->grid.min += (int32_t)((first - 1) >> sign);
    q->grid.n_points = ((last - first) >> sign) + 1;
    /* With signs, the last point's other sign needs a number, too. */
    q->low_bits = 0;
    while ((last - first + 1 + sign) >> q->low_bits > 255) q->low_bits++;
    fitted->n_codes = 0;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->low_bits] += f->counts[s];
        if (f->counts[s]) fitted->n_codes++;
    }
    codes[0] += f->counts[0];
    fitted->bits = lmc__entropy_q16(codes, (uint32_t)f->total + f->counts[0]) +
                   ((q->low_bits * (f->total + f->counts[0])) << 16);
}

/* All points that symbols can number, as many on either side of the scale. */
static void lmc__reset_grid(lmc__grid *grid)
{
    grid->n_points = lmc__max_points(grid);
    grid->min = -(int32_t)(grid->n_points / 2);
}

/* The logarithmic grid of the widest step within the bound. One pass over the sample; with signs,
 * a point has two symbols. */
static enum lmc_status lmc__fit_log_grid(lmc__fit *f, lmc__q32 bound, lmc__fitted *fitted)
{
    lmc__quant_params *const q = &f->q->params;
    const enum lmc_measure measure = f->q->info.loss.measure;
    uint64_t step;
    int is_off;
    fitted->found = 0;
    if (measure == LMC_MEASURE_RELATIVE) step = bound >> 8; /* 2^24 * bound */
    else {
        /* Errors that are spread evenly: relative^2 = (step / 2^23)^2 / 12 * 0.541 (see
         * lmc__log_error), so step = 2^23 * relative * sqrt(12 / 0.541), which is 4.7097. An update
         * moves half as far as its second moment. */
        const uint64_t relative =
            measure == LMC_MEASURE_NMSE ? lmc__root_q32(bound) : 2 * (uint64_t)bound;
        step = relative * 4709 / 1000 >> 9;
    }
    if (step > 1u << 24) step = 1u << 24;
    if (q->width == 2) step &= ~(uint64_t)0xFFFF; /* BF16 have 16 bits less */
    if (step == 0) return LMC_OK;
    q->grid.step = (uint32_t)step;
    lmc__reset_grid(&q->grid);
    LMC__TRY(lmc__count_sample(f, &is_off));
    if (is_off || f->total == 0) return LMC_OK;
    fitted->error = measure != LMC_MEASURE_RELATIVE ? lmc__estimate_error(f, f->total)
                    : step >> 24                    ? LMC__Q32_MAX
                                                    : (lmc__q32)step << 8;
    fitted->found = 1;
    lmc__narrow_grid(f, fitted);
    return LMC_OK;
}

/* How much wider one grid is than another, by the ratio of their errors: that of NMSE is of
 * squares. */
static uint64_t lmc__width_ratio(const lmc__fit *f, uint64_t ratio)
{
    if (f->q->info.loss.measure != LMC_MEASURE_NMSE) return ratio;
    return lmc__square_root(lmc__min64(ratio, UINT64_MAX >> 20) << 20);
}

/* The logarithm of a ratio of at least 1, in units of LMC__OCTAVE, down to what scales can be
 * changed by; 13 octaves at most. Between powers of two, straight lines, which are below it. */
static int32_t lmc__octaves(uint64_t ratio)
{
    int32_t by = 0;
    for (; ratio >= 2 * LMC__RATIO_ONE && by < 13 * LMC__OCTAVE; ratio >>= 1) by += LMC__OCTAVE;
    if (ratio < 2 * LMC__RATIO_ONE) by += (int32_t)(ratio - LMC__RATIO_ONE) << 3;
    return by & ~(LMC__SCALE_STEP - 1);
}

/* Makes a linear grid as coarse as an even error within the bound allows, within 2 %. *found: the
 * finest one is fine enough, and this one holds the sample. */
static enum lmc_status lmc__guess_linear_grid(lmc__fit *f, lmc__q32 bound, int *found)
{
    unsigned guess;
    int is_off = 0;
    *found = 0;
    /* From the finest grid on, so that first is as coarse as evenly spread errors allow; then back,
     * in small steps, where zeros have grown: what falls below half a point loses all it had. */
    for (guess = 0; guess < LMC__MAX_GUESSES; guess++) {
        const lmc__q32 error = lmc__even_error(f);
        if (error <= bound) {
            const uint64_t allowed = ((uint64_t)bound << 20) / (error ? error : 1),
                           ratio = lmc__width_ratio(f, lmc__min64(allowed, LMC__MAX_RATIO));
            const int32_t by = lmc__octaves(ratio);
            if ((guess && ratio < LMC__RATIO_ONE * 102 / 100) || by == 0) break;
            lmc__coarsen(f->q, by);
        } else {
            if (guess == 0) return LMC_OK;            /* the finest is too coarse */
            lmc__coarsen(f->q, -3 * LMC__SCALE_STEP); /* by 1.6 % */
        }
        LMC__TRY(lmc__count_sample(f, &is_off));
    }
    *found = !is_off;
    return LMC_OK;
}

/* A linear grid whose measured loss is within the bound, but not by much. Each time that it is not,
 * it is made finer by what is missing, and a 64th of an octave, lest the next one miss again by a
 * hair. */
static enum lmc_status lmc__fit_linear_grid(lmc__fit *f, lmc__q32 bound, lmc__fitted *fitted)
{
    unsigned i;
    LMC__TRY(lmc__guess_linear_grid(f, bound, &fitted->found));
    /* The guess takes all scales for one, and zeros for even errors: the truth may be worse. */
    for (i = 0; i < LMC__MAX_MEASURES && fitted->found; i++) {
        uint64_t ratio;
        int is_off;
        lmc__narrow_grid(f, fitted);
        LMC__TRY(lmc__measure_loss(f, &fitted->error));
        if (fitted->error <= bound) return LMC_OK;
        ratio = lmc__width_ratio(f, ((uint64_t)fitted->error << 20) / bound);
        lmc__coarsen(f->q, -(lmc__octaves(ratio) + 2 * LMC__SCALE_STEP));
        lmc__reset_grid(&f->q->params.grid);
        LMC__TRY(lmc__count_sample(f, &is_off));
        if (is_off) break;
    }
    fitted->found = 0;
    return LMC_OK;
}

#endif

/* == quantise/fit.h =============================================================================== */

/* lmc_fit_quantizer: which kind of grid a tensor gets, whether by table or bound, and whether it is
 * worth it at all. Whatever cannot be quantised well is kept as it is, with the reason: that is no
 * error.
 *
 *                          asked by bits               asked by a bound
 *   second moment          table, logarithmic grid     logarithmic grid
 *   first, with a second   table, updates              updates; RELATIVE: logarithmic grid
 *   anything else          table, linear grid          linear grid; RELATIVE: logarithmic grid
 *
 *
 *   scales, or bias and floor     one pass over all, or the sample        fit_scales.h
 *   symbols on a fine grid        a pass over the sample                  fit_sample.h
 *   table by k-means, or          no pass, for a linear grid one          fit_table.h, clusters.h
 *   the coarsest grid in bounds   a pass for each that is tried           fit_grid.h, fit_error.h
 */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Elements. Below, a table and scales for each block are not worth it. */
#define LMC__MIN_QUANTIZED 16384u
/* Elements of a group. Scales take 16 bits at most, and about 12 when coded: with 16 elements up to
 * one bit each, with 256 less than a 20th of one. */
#define LMC__DEFAULT_GROUP 256u
#define LMC__LEAST_GROUP 16u
#define LMC__SCALE_BITS 12u

/* Bits per element without loss, times 2^16: of one block of elements from the middle, which is as
 * near as the comparison needs it, coded as any block is. */
static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_workspace_size(LMC__FIT_CHUNK),
                 cap = lmc_bound_block(4 * LMC__FIT_CHUNK),
                 chunk = LMC__FIT_CHUNK * q->params.width;
    const lmc_position position = {0, 0};
    enum lmc_status status;
    uint8_t *ws;
    size_t size;
    LMC__TRY(f->elements.read(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->params.width,
                              f->chunk, chunk));
    ws = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    status = lmc__encode_block(f->k, ws + ws_size, cap, &size, f->chunk, chunk, NULL,
                               f->options->dtype, LMC_LEVEL_DEFAULT, position, ws, ws_size);
    (void)LMC_REALLOC(q->alloc_user, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

/* A row's elements, or of a flat shard 256, so that a scale is 16 bits to 256 elements. Short rows
 * are joined to at least 16. What the format has no number for is as if it were not said. */
static uint64_t lmc__get_group_size(uint64_t group)
{
    if (group == 0) return LMC__DEFAULT_GROUP;
    if (group < LMC__LEAST_GROUP) group *= (LMC__LEAST_GROUP + group - 1) / group;
    return group <= 0x7FFFFFFF ? group : LMC__DEFAULT_GROUP;
}

/* The kind of grid, and its scales. Relative errors are bounded by a logarithmic one, and so are
 * second moments, of which none may become zero: updates are divided by their roots. First moments
 * are signed and of updates about as large as 1; what counts is the update's error, not its
 * relative one, so their grid is linear. */
static enum lmc_status lmc__begin_fit(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc__quant_params *const q = &f->q->params;
    int found;
    q->grid.is_log =
        f->q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted =
        o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements.read && !q->grid.is_log;
    /* Points of logarithmic grids are 1/1024 of an octave apart, or of BF16, which have no others,
     * 1/128: until a bound says otherwise. */
    q->grid.step = !q->grid.is_log ? 0 : q->width == 2 ? 1u << 16 : 1u << 13;
    lmc__reset_grid(&q->grid);
    if (!q->is_predicted) {
        q->group_size = lmc__get_group_size(o->group);
        return lmc__fit_scales(f);
    }
    lmc__fit_floor(f);
    LMC__TRY(lmc__fit_bias(f, &found));
    return found ? LMC_OK : lmc__keep_lossless(f->q, "no update is a normal number");
}

/* The symbols on a fine grid. Of logarithmic ones with 1024 points to an octave the 65,534 reach 32
 * octaves either way from the scale; magnitudes that are too far from it for that may be within
 * reach of 256 to an octave. BF16 reach everything as it is. */
static enum lmc_status lmc__find_fine_grid(lmc__fit *f)
{
    lmc__grid *const grid = &f->q->params.grid;
    int is_off;
    LMC__TRY(lmc__count_sample(f, &is_off));
    if (is_off && grid->is_log && f->q->params.width == 4) {
        grid->step <<= 2;
        LMC__TRY(lmc__count_sample(f, &is_off));
    }
    if (is_off) return lmc__keep_lossless(f->q, "more than 1 % of its elements are exceptions");
    f->zeros = f->counts[0];
    return f->total ? LMC_OK : lmc__keep_lossless(f->q, "all of it is zero");
}

/* A table of 2^bits codes. Its loss is measured where it is over all elements; with a logarithmic
 * grid the estimate stands, for relative errors depend on the symbols alone. */
static enum lmc_status lmc__fit_codes(lmc__fit *f, unsigned bits, lmc__fitted *fitted)
{
    lmc_quantizer *const q = f->q;
    q->params.codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, LMC__SYMBOLS);
    q->n_codes = LMC__SYMBOLS;
    if (!q->params.codes) return LMC_ERR_MEMORY;
    fitted->error = lmc__fit_table(f, 1u << bits, &fitted->bits);
    if (q->params.table_size == 0) return lmc__keep_lossless(q, "all of it is zero");
    LMC__TRY(lmc__narrow_table(f));
    if (!q->params.grid.is_log) LMC__TRY(lmc__measure_loss(f, &fitted->error));
    fitted->n_codes = q->params.table_size + 1;
    fitted->found = 1;
    return LMC_OK;
}

/* What callers are told; and whether it is worth it: a tenth must be saved of what is coded without
 * loss. That comparison is in integers, for it decides what is written. Sizes are by entropy: of
 * the sample's codes, with 4 bytes and an element for each exception, and scales. */
static enum lmc_status lmc__end_fit(lmc__fit *f, const lmc__fitted *fitted, uint64_t lossless)
{
    lmc_quantizer *const q = f->q;
    const uint64_t exceptions = f->counts[LMC__EXCEPTION],
                   seen = f->total + f->counts[0] + exceptions, group_size = q->params.group_size;
    uint64_t bits = fitted->bits + (exceptions * (32 + 8 * q->params.width) << 16);
    q->info.is_grid = q->params.table_size == 0;
    q->info.n_codes = fitted->n_codes;
    q->info.loss.generation = f->options->generation + 1;
    q->info.loss.error = fitted->error / LMC__Q32_ONE;
    q->info.bits = (double)bits / 65536.0 / (double)seen +
                   (q->params.is_predicted ? 0.0 : (double)LMC__SCALE_BITS / (double)group_size);
    bits = bits / seen + (q->params.is_predicted ? 0 : (LMC__SCALE_BITS << 16) / group_size);
    if (10 * bits > 9 * lossless) return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

/* The passes, in the order of the table above. Each may find that the tensor must be kept as it is,
 * and says so in q->info. */
static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc_quantizer *const q = f->q;
    lmc__fitted fitted = {0, 0, 0, 0};
    uint64_t lossless;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    LMC__TRY(lmc__begin_fit(f));
    if (q->info.is_lossless) return LMC_OK;
    /* A logarithmic grid's step follows from the bound; others are found from the finest. */
    if (o->bits == 0 && q->params.grid.is_log)
        LMC__TRY(lmc__fit_log_grid(f, lmc__get_bound(o), &fitted));
    else {
        LMC__TRY(lmc__find_fine_grid(f));
        if (q->info.is_lossless) return LMC_OK;
        if (o->bits) LMC__TRY(lmc__fit_codes(f, o->bits, &fitted));
        else LMC__TRY(lmc__fit_linear_grid(f, lmc__get_bound(o), &fitted));
        if (q->info.is_lossless) return LMC_OK;
    }
    if (!fitted.found) return lmc__keep_lossless(q, "no grid holds the bound");
    return lmc__end_fit(f, &fitted, lossless);
}

/* The rules of lmc_fit_quantizer for its arguments. A second moment's quantiser must be of as many
 * elements, and must not want a prediction itself. */
static enum lmc_status lmc__check_fit_options(const lmc_elements *elements,
                                              const lmc_quantizer_options *o)
{
    const unsigned width = (unsigned)o->dtype < LMC_DTYPE_COUNT ? lmc_dtype_width(o->dtype) : 0;
    const lmc_quantizer *const second = o->second;
    if (width == 0 || elements->size % width || (unsigned)o->role > LMC_ROLE_SECOND_MOMENT ||
        o->generation > 254)
        return LMC_ERR_ARGUMENT;
    if (o->bits
            ? o->bits < 4 || o->bits > 8
            : !(o->bound > 0) || !(o->bound < 1) || (unsigned)o->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (!o->second_elements.read) return LMC_OK;
    if (o->second_elements.size != elements->size ||
        (second && (second->n != elements->size / width || second->params.width != width ||
                    second->params.is_predicted)))
        return LMC_ERR_ARGUMENT;
    return LMC_OK;
}

/* Why a tensor is kept as it is, whatever its elements; or NULL. */
static const char *lmc__find_obstacle(const lmc_quantizer *q, const lmc_quantizer_options *o)
{
    if (o->dtype != LMC_F32 && o->dtype != LMC_BF16) return "its elements are not F32 or BF16";
    if (q->n < LMC__MIN_QUANTIZED) return "it has fewer than 16,384 elements";
    if (q->info.loss.measure == LMC_MEASURE_UPDATE && o->role == LMC_ROLE_OTHER)
        return "only moments have an update";
    return NULL;
}

LMC_API enum lmc_status lmc_fit_quantizer(lmc_quantizer **quantizer, const lmc_elements *elements,
                                          const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    const char *obstacle;
    lmc_quantizer *q;
    lmc__fit *f;
    if (!quantizer || !elements || !elements->read || !options) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_fit_options(elements, options));
    q = (lmc_quantizer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = options->alloc_user;
    q->info.reason = "";
    q->params.width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->params.width;
    /* With bits nothing is bounded: what moments are for tells how their loss is measured. */
    q->info.loss.measure = options->bits == 0                ? options->measure
                           : options->role == LMC_ROLE_OTHER ? LMC_MEASURE_NMSE
                                                             : LMC_MEASURE_UPDATE;
    obstacle = lmc__find_obstacle(q, options);
    if (obstacle) (void)lmc__keep_lossless(q, obstacle);
    else {
        f = (lmc__fit *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *f);
        if (f) {
            f->k = lmc__get_kernels();
            f->options = options;
            f->elements = *elements;
            f->q = q;
            f->zeros = 0;
            status = lmc__fit_quantizer(f);
            (void)LMC_REALLOC(options->alloc_user, f, sizeof *f, 0);
        } else status = LMC_ERR_MEMORY;
    }
    /* What is kept as it is has lost nothing, whatever was found before that was decided. */
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}

#endif

/* == tensor/wave.h ================================================================================ */

/* Blocks coded side by side. A *job* is one block; a *wave* is the jobs that the caller's
 * parallel_for runs at once, each on the workspace of the worker that takes it. Jobs of a wave
 * share nothing that is written, so any order gives the same bytes.
 *
 * What a job does not know: files, runs, snapshots. Floors above that need more for each block put
 * a lmc__job into a struct of their own (pipeline.h). */
typedef struct lmc__job {
    const uint8_t *src;
    /* The prediction, as many bytes as the decoded block; or NULL. */
    const uint8_t *base;
    uint8_t *dst;
    /* Encoding: of src; room at dst, then what was written there. */
    size_t src_size, dst_size;

    /* Encoding. quant: how to quantise it, or NULL; first_element: number of its first element in
     * the tensor that quant is of. */
    enum lmc_dtype dtype;
    enum lmc_level level;
    const lmc__quant_params *quant;
    uint64_t first_element;

    /* Decoding. info: of its header. Only
     * bytes [skip, skip + keep) of the block go to dst: if that is all, it is decoded right there,
     * else in the worker's workspace, and copied. */
    lmc_block_info info;
    lmc__streaming streaming;
    size_t skip, keep;

    lmc_position position;
    /* Set when the job has run. */
    enum lmc_status status;
} lmc__job;

/* What the tasks of a wave share. */
typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;      /* NULL where jobs are part of larger structs */
    uint8_t *workspaces; /* one for each worker, workspace_size bytes each */
    size_t workspace_size;
    size_t temp_size; /* at the end of each workspace: room for a block that is not kept whole */
} lmc__wave;

/* Jobs of a wave for each worker: several, so that who is done early takes what would wait. And the
 * most decoded bytes that they may take, so that blocks of 8 MiB do not come in fours. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

/* Without a parallel_for the caller is the only one. */
static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}
/* NULL, or one that can be called. */
static int lmc__is_parallel(const lmc_parallel *parallel)
{
    return !parallel || (parallel->run && parallel->n_workers >= 1 && parallel->n_workers <= 1024);
}
/* Jobs of one wave of blocks of block_size decoded bytes: at least one for each worker. */
static size_t lmc__count_jobs(const lmc_parallel *parallel, size_t block_size)
{
    size_t n = LMC__WAVE_BYTES_PER_WORKER / block_size;
    return (n < 1                      ? 1
            : n > LMC__JOBS_PER_WORKER ? LMC__JOBS_PER_WORKER
                                       : n) *
           lmc__count_workers(parallel);
}

/* Runs task(arg, i, worker) for i below n; returns when all have returned. */
static void lmc__run_tasks(const lmc_parallel *parallel, lmc_task task, void *arg, size_t n)
{
    size_t i;
    if (parallel && n > 1) parallel->run(parallel->user, task, arg, n);
    else
        for (i = 0; i < n; i++) task(arg, i, 0);
}

#ifndef LMC_NO_ENCODER
/* Encodes a job's block. Returns the content that its CRC is of: job->src, or what quantising made
 * of it, which stays in the worker's workspace until its next job. */
static const uint8_t *lmc__encode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const uint8_t *content = job->src;
    if (job->quant) {
        lmc__quant_source source;
        source.elements = job->src;
        source.second = job->base;
        source.first = job->first_element;
        source.n = job->src_size / job->quant->width;
        job->status = lmc__encode_quantized(wave->k, job->dst, job->dst_size, &job->dst_size,
                                            job->quant, &source, job->level, job->position, ws,
                                            wave->workspace_size, &content);
    } else
        job->status = lmc__encode_block(wave->k, job->dst, job->dst_size, &job->dst_size, job->src,
                                        job->src_size, job->base, job->dtype, job->level,
                                        job->position, ws, wave->workspace_size);
    return content;
}
#endif

/* Decodes a job's block, whose header was read to job->info. Returns all of its content, wherever
 * that is; it is valid if job->status is LMC_OK, until the worker's next job. */
static const uint8_t *lmc__decode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const int is_whole = job->keep == job->info.size;
    uint8_t *content = is_whole ? job->dst : ws + wave->workspace_size - wave->temp_size;
    job->status = lmc__decode_block(wave->k, content, job->streaming, job->src, &job->info,
                                    job->base, ws, wave->workspace_size - wave->temp_size);
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

/* The first error of n jobs, in order: so it does not depend on who was faster. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}

/* == tensor/tensor.h ============================================================================== */

/* Tensors in memory: an array of any length is a row of blocks, without any header of its own (spec
 * 7.5). All blocks but the last have the same decoded size; which one, the first one says. Blocks
 * are coded in *waves* (wave.h): as many as keep all workers busy, then the next ones.
 *
 * The caller's workspace: jobs of two waves, then for each worker a block's workspace with room for
 * one decoded block behind it. */

/* Decoded tensors of this size on do not stay in caches: the first block is gone when the last one
 * is done. They are written past the caches. */
#define LMC__STREAM_FROM ((size_t)8 << 20)

/* Elements per block that suit full snapshots: smaller blocks cost headers and trees, larger ones
 * follow changes in the data less well. Twice as many if they are bytes; so are bytes of unknown
 * kind, which may be 16-bit elements. */
#define LMC__DEFAULT_LOG2_BLOCK 16u

/* Deltas are of one kind for long: larger blocks have fewer headers and trees, which are most of a
 * sparse one (bf16 with 1.6 % changed: 1 Mi elements take 8 % less than 256 Ki). Wider elements are
 * not sparse, and larger blocks of them follow changes less well. */
#define LMC__DELTA_LOG2_BLOCK 20u
#define LMC__WIDE_DELTA_LOG2_BLOCK 18u

/* Bytes per block, or 0 if the options are illegal. */
static size_t lmc__get_block_size(enum lmc_dtype dtype, unsigned log2_block, int has_prediction)
{
    unsigned log2_width = lmc__log2_width(lmc_dtype_width(dtype));
    if ((unsigned)dtype >= LMC_DTYPE_COUNT ||
        (log2_block != 0 && (log2_block < 14 || log2_block > 20)))
        return 0;
    if (log2_block == 0) {
        if (has_prediction)
            log2_block = log2_width <= 1 ? LMC__DELTA_LOG2_BLOCK : LMC__WIDE_DELTA_LOG2_BLOCK;
        else log2_block = LMC__DEFAULT_LOG2_BLOCK + (log2_width == 0 ? 1 : 0);
    }
    return (size_t)1 << (log2_block + log2_width);
}

/* The same for a tensor. A quantiser counts as a prediction, whether it was fitted with one or not:
 * so the sizes of blocks do not depend on what is in it. */
static size_t lmc__get_tensor_block_size(const lmc_tensor_options *options)
{
    if (!options || !lmc__is_parallel(options->parallel) ||
        (unsigned)options->level > LMC_LEVEL_MAX)
        return 0;
    return lmc__get_block_size(options->dtype, options->log2_block,
                               options->prediction != NULL || options->quantizer != NULL);
}

LMC__INLINE uint64_t lmc__count_blocks(uint64_t size, size_t block_size)
{
    return size / block_size + (size % block_size ? 1 : 0);
}

#ifndef LMC_NO_ENCODER
LMC_API uint64_t lmc_bound_tensor(uint64_t size, const lmc_tensor_options *options)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    uint64_t headers;
    if (block_size == 0) return UINT64_MAX;
    headers = lmc__count_blocks(size, block_size) * LMC_BLOCK_HEADER_SIZE; /* at most size / 8 */
    return size <= UINT64_MAX - headers ? size + headers : UINT64_MAX;
}
#endif

/* Lays out the workspace, which may be NULL, and returns the size that it needs. Two waves of jobs:
 * while one is encoded, what the one before has made is packed. */
static size_t lmc__set_tensor_wave(lmc__wave *wave, const lmc_tensor_options *options,
                                   size_t block_size, void *ws)
{
    const size_t jobs_size = 2 * lmc__count_jobs(options->parallel, block_size) * sizeof(lmc__job);
    const size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    uint64_t needed;
    memset(wave, 0, sizeof *wave);
    wave->k = lmc__get_kernels();
    wave->temp_size = block_size;
    wave->workspace_size =
        lmc_workspace_size(block_size / lmc_dtype_width(options->dtype)) + block_size;
    if (ws) {
        wave->jobs = (lmc__job *)(void *)((uint8_t *)ws + skip);
        wave->workspaces = (uint8_t *)ws + skip + jobs_size;
    }
    needed =
        16 + jobs_size + (uint64_t)lmc__count_workers(options->parallel) * wave->workspace_size;
    return needed < SIZE_MAX ? (size_t)needed
                             : SIZE_MAX; /* 1024 workers can need more than 32 bits */
}

LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    lmc__wave wave;
    return block_size ? lmc__set_tensor_wave(&wave, options, block_size, NULL) : 0;
}

/* == tensor/encode_tensor.h ======================================================================= */

#ifndef LMC_NO_ENCODER
/* Encoding a tensor. How large a block gets is known only when it is made, but with several workers
 * the next one is begun before. So each block of a wave is made in a slot that is large enough for
 * any, and then moved down to where the one before it ends:
 *
 *     one worker        a wave is one block, and lands where it stays
 *     several workers   if dst has room for the slots of all blocks, block i is made in slot i, and
 *                       while a wave is made, the one before is packed by one more task:
 *
 *                           dst   |packed......|  wave i, being packed  |  wave i + 1, being made |
 *
 *                       that is safe, because packed bytes only ever move down, to places below the
 *                       slots that are being written. Else a wave's slots follow what is packed,
 *                       and waves are made and packed in turn, as many blocks as dst has room for.
 *
 * The bytes are the same in all three ways, for a block depends on nothing but its own elements. */
typedef struct lmc__tensor_encoding {
    const uint8_t *src;
    size_t size, block_size;
    uint64_t n_blocks;
    const lmc_tensor_options *options;
    const lmc__quant_params *quant; /* how to quantise it; or NULL */
    lmc__wave wave;
    uint8_t *dst;
    size_t dst_cap;
    uint8_t *packed;           /* the end of what is in its place */
    const lmc__job *made_jobs; /* a wave that is made, and is yet to be packed */
    size_t n_made;
} lmc__tensor_encoding;

/* Moves the blocks of the wave that is made down to their place, in order: each to where the one
 * before it ends, which is never above where it lies. */
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

/* Task 0 packs one wave, the others make the next one. Both are done when the caller's run()
 * returns, so waves need no other lock. */
static void lmc__pack_and_encode_task(void *arg, size_t index, unsigned worker)
{
    lmc__tensor_encoding *t = (lmc__tensor_encoding *)arg;
    if (index == 0) lmc__pack_wave(t);
    else lmc__encode_task(&t->wave, index - 1, worker);
}

/* Sets t->wave.jobs to encode the blocks from `first` on, up to max_jobs of them, in slots one
 * behind the other from `place` on. A slot has room for the block if it has to be stored. Where dst
 * ends before that, the wave does; but its first block always gets what room there is, because it
 * may be small enough, and if not, that is what the caller has to be told (DST_TOO_SMALL). Returns
 * the number of jobs, 1 at least. */
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
        job->src = t->src + at;
        job->src_size = lmc__min(t->block_size, t->size - at);
        job->base = options->prediction ? (const uint8_t *)options->prediction + at : NULL;
        slot = lmc_bound_block(job->src_size);
        if (slot > room && n > 0) break;
        job->dst = place;
        job->dst_size = lmc__min(slot, room);
        job->dtype = options->dtype;
        job->level = options->level;
        job->quant = t->quant;
        job->first_element = at / lmc_dtype_width(options->dtype);
        job->position.run = options->run;
        job->position.block = (uint32_t)(first + n);
        place += job->dst_size;
    }
    return n;
}

/* Waves of max_jobs that are made behind what is packed, and then packed. With one block in each
 * there is nothing to move. */
static enum lmc_status lmc__encode_behind_packed(lmc__tensor_encoding *t, size_t max_jobs)
{
    uint64_t block;
    size_t n;
    for (block = 0; block < t->n_blocks; block += n) {
        n = lmc__plan_wave(t, block, max_jobs, t->packed);
        lmc__run_tasks(t->options->parallel, lmc__encode_task, &t->wave, n);
        LMC__TRY(lmc__wave_status(&t->wave, n));
        t->made_jobs = t->wave.jobs;
        t->n_made = n;
        lmc__pack_wave(t);
    }
    return LMC_OK;
}

/* Waves that are made in the slots of their blocks, while the one before is packed. The jobs of
 * both are needed at once, hence two sets that take turns. The last wave is packed alone. */
static enum lmc_status lmc__encode_in_slots(lmc__tensor_encoding *t, size_t max_jobs)
{
    const lmc_parallel *const parallel = t->options->parallel;
    const size_t slot = lmc_bound_block(t->block_size);
    lmc__job *const jobs = t->wave.jobs; /* of two waves, which take turns */
    uint64_t block;
    size_t n;
    for (block = 0; block < t->n_blocks; block += n) {
        n = lmc__plan_wave(t, block, max_jobs, t->dst + (size_t)block * slot);
        parallel->run(parallel->user, lmc__pack_and_encode_task, t, n + 1);
        LMC__TRY(lmc__wave_status(&t->wave, n));
        t->made_jobs = t->wave.jobs;
        t->n_made = n;
        t->wave.jobs = t->wave.jobs == jobs ? jobs + max_jobs : jobs;
    }
    lmc__pack_wave(t);
    return LMC_OK;
}

/* 1 if a sample of the first block says that the prediction is worth nothing: then blocks are
 * better cut as if there were none. Not where the caller has chosen the size of blocks, which is
 * cut by that; nor with a quantizer, whose blocks want their prediction whatever it is worth. */
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
    block.src = t->src;
    block.base = (const uint8_t *)options->prediction;
    block.width = lmc_dtype_width(options->dtype);
    block.n = lmc__min(t->size, t->block_size) / block.width;
    block.rotate = lmc__rotates(options->dtype);
    block.level = LMC_LEVEL_DEFAULT;
    return lmc__plan_delta(&e, &delta, &block) == LMC__DIRECT;
}

LMC_API enum lmc_status lmc_encode_tensor(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    lmc_tensor_options direct;
    lmc__tensor_encoding t;
    memset(&t, 0, sizeof t);
    t.src = (const uint8_t *)src;
    t.size = size;
    t.block_size = lmc__get_tensor_block_size(options);
    t.options = options;
    if (t.block_size == 0 || !dst_size || !ws || (!src && size) || (!dst && dst_cap) ||
        size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;
    t.quant = lmc__get_quant_params(options->quantizer);
    LMC__TRY(lmc__check_quantizer(options->quantizer, options->dtype, size));
    if (t.quant && t.quant->is_predicted != (options->prediction != NULL)) return LMC_ERR_ARGUMENT;
    lmc__set_tensor_wave(&t.wave, options, t.block_size, ws);
    if (lmc__is_useless(&t)) {
        direct = *options; /* which takes less workspace: its blocks are not larger */
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
    if (lmc__count_workers(options->parallel) == 1) LMC__TRY(lmc__encode_behind_packed(&t, 1));
    else {
        const size_t max_jobs = lmc__count_jobs(options->parallel, t.block_size);
        if (dst_cap >= lmc_bound_tensor(size, t.options))
            LMC__TRY(lmc__encode_in_slots(&t, max_jobs));
        else LMC__TRY(lmc__encode_behind_packed(&t, max_jobs));
    }
    *dst_size = (size_t)(t.packed - t.dst);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */

/* == tensor/decode_tensor.h ======================================================================= */

/* Decoding a range of a tensor. Blocks say their sizes only in their own headers, so the headers
 * are walked from the start; those before the range are checked and skipped. Each header is checked
 * before it is used to find the next one.
 *
 * A block that lies in the range as a whole is decoded to where it belongs. Of one that does not,
 * all is decoded to the end of the worker's workspace, and the part is copied. As each block reads
 * its prediction only at its own place, and wants it there unchanged, dst may be the prediction if
 * all of the tensor is decoded; a part cannot be. */
typedef struct lmc__tensor_decoding {
    const uint8_t *src;
    size_t src_size;
    uint8_t *dst;         /* where the range goes */
    uint64_t first, last; /* the range: bytes [first, last) of the tensor */
    uint64_t total_size;
    const lmc_tensor_options *options;
    lmc__wave wave;
    size_t used;        /* bytes of src that have been walked over */
    uint64_t at, block; /* where the next block belongs, and its number */
    uint64_t
        block_size; /* decoded bytes of the first block, which all have but the last; 0: none yet */
} lmc__tensor_decoding;

/* Reads the next block's header into job, and moves behind the block. Its decoded size must be that
 * of the first one, or what is left of the tensor: so blocks cannot overlap, leave gaps, or reach
 * beyond the end, whatever the headers say. */
static enum lmc_status lmc__next_block(lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const src = t->src + t->used;
    const size_t left = t->src_size - t->used;
    LMC__CHECK(t->block <= UINT32_MAX, LMC_ERR_CORRUPT);
    job->position.run = t->options->run;
    job->position.block = (uint32_t)t->block++;
    LMC__TRY(lmc__read_block_info(t->wave.k, src, left, job->position, &job->info));
    LMC__CHECK(job->info.encoded_size <= left, LMC_ERR_TRUNCATED);
    if (t->block_size == 0) t->block_size = job->info.size;
    LMC__CHECK(job->info.size == lmc__min64(t->block_size, t->total_size - t->at), LMC_ERR_CORRUPT);
    job->src = src;
    t->used += job->info.encoded_size;
    t->at += job->info.size;
    return LMC_OK;
}

/* The rest of a job, for a block that ends behind the start of the range: what of it goes where,
 * and whether its bytes should pass by the caches. They should, if the range is so large that its
 * start would be thrown out before its end is written; then the next block's bytes are fetched
 * meanwhile, as the loads of this one no longer run far ahead of slow stores. A block that is
 * decoded to the workspace first is small change.
 *
 * A block may be larger than the options say, if another size was used to encode: then the
 * workspace is too small, which has to be said before a worker finds out. */
static enum lmc_status lmc__plan_decoding(const lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const base = (const uint8_t *)t->options->prediction;
    const uint64_t start = t->at - job->info.size; /* of the block, in the tensor */
    const size_t temp_size = t->wave.temp_size;
    job->base = base ? base + (size_t)start : NULL;
    job->skip = start < t->first ? (size_t)(t->first - start) : 0;
    job->keep = (size_t)lmc__min64(job->info.size - job->skip, t->last - (start + job->skip));
    job->dst = t->dst + (size_t)(start + job->skip - t->first);
    job->streaming = lmc__no_streaming;
    if (t->last - t->first >= LMC__STREAM_FROM && job->keep == job->info.size) {
        job->streaming.is_on = 1;
        job->streaming.next = t->src + t->used;
        job->streaming.next_size = lmc__min(t->src_size - t->used, job->info.encoded_size);
    }
    /* the prediction before the workspace, for with one that is larger */
    LMC__CHECK(base || !job->info.has_prediction, LMC_ERR_BASE_MISSING);
    if (!lmc__is_workspace(t->wave.workspace_size - temp_size, job->info.n) ||
        (job->keep != job->info.size && job->info.size > temp_size))
        return LMC_ERR_WORKSPACE;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_decode_tensor(void *dst, uint64_t offset, size_t size, const void *src,
                                          size_t src_size, uint64_t total_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    const size_t temp_size = lmc__get_tensor_block_size(options);
    lmc__tensor_decoding t;
    size_t max_jobs;
    if (temp_size == 0 || !ws || (!src && src_size) || (!dst && size) || offset > total_size ||
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
            if (t.at <= t.first) continue; /* before the range */
            LMC__TRY(lmc__plan_decoding(&t, job));
            n++;
        }
        lmc__run_tasks(options->parallel, lmc__decode_task, &t.wave, n);
        LMC__TRY(lmc__wave_status(&t.wave, n));
    }
    if (offset == 0 && size == total_size) LMC__CHECK(t.used == src_size, LMC_ERR_CORRUPT);
    return LMC_OK;
}

#ifndef LMC_NO_SNAPSHOT
/* == snapshot/buffer.h ============================================================================ */

/* Memory that grows. Everything above the codec allocates by this, so allocation can fail in one
 * place, and sizes overflow in none: a buffer never has more than half of what a size_t can count.
 *
 * data moves when it grows: what points into it does so only while nothing is appended. Elements of
 * an array in a buffer begin at multiples of their size, so they are as aligned as malloc's. */
typedef struct lmc__buffer {
    uint8_t *data; /* NULL: nothing yet */
    size_t size, cap;
    void *alloc_user; /* of LMC_REALLOC */
} lmc__buffer;

static void lmc__init_buffer(lmc__buffer *b, void *alloc_user)
{
    memset(b, 0, sizeof *b);
    b->alloc_user = alloc_user;
}

/* The buffer can be used again. */
static void lmc__free_buffer(lmc__buffer *b)
{
    if (b->data) (void)LMC_REALLOC(b->alloc_user, b->data, b->cap, 0);
    b->data = NULL;
    b->size = b->cap = 0;
}

/* What a struct does with each of its buffers, so that they are listed once: sets them up, or frees
 * them. */
typedef void (*lmc__visit_buffer)(lmc__buffer *b, void *alloc_user);

static void lmc__free_visited(lmc__buffer *b, void *alloc_user)
{
    (void)alloc_user; /* the buffer has it */
    lmc__free_buffer(b);
}

/* Room for `more` bytes behind the size that is in use. Capacity grows by halves at least, so that
 * appending n bytes one by one takes time in proportion to n. On errors nothing changes. */
static enum lmc_status lmc__reserve(lmc__buffer *b, uint64_t more)
{
    uint64_t needed, cap;
    void *data;
    if (more <= b->cap - b->size) return LMC_OK;
    if (more > SIZE_MAX / 2 - b->size) return LMC_ERR_SIZE;
    needed = b->size + more;
    cap = (uint64_t)b->cap + b->cap / 2;
    cap = cap < needed || cap > SIZE_MAX / 2 ? needed : cap;
    data = LMC_REALLOC(b->alloc_user, b->data, b->cap, (size_t)cap);
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

/* Little-endian. */
static enum lmc_status lmc__append32(lmc__buffer *b, uint32_t v)
{
    uint8_t field[4];
    lmc__store32(field, v);
    return lmc__append(b, field, 4);
}

/* == snapshot/sha256.h ============================================================================ */

/* SHA-256 (FIPS 180-4), for identities. It takes 4 bytes for each leaf of 256 KiB of content, names
 * and dtypes, so its speed does not matter, and plain C will do. */
typedef struct lmc__sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
} lmc__sha256;

static void lmc__sha256_init(lmc__sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->size = 0;
}

/* FIPS 180-4, 6.2.2 */
static void lmc__sha256_block(uint32_t state[8], const uint8_t block[64])
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], v[8];
    int t;
#define LMC__ROTR(x, n) ((x) >> (n) | (x) << (32 - (n)))
    for (t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (; t < 64; t++)
        w[t] = w[t - 16] + (LMC__ROTR(w[t - 15], 7) ^ LMC__ROTR(w[t - 15], 18) ^ w[t - 15] >> 3) +
               w[t - 7] + (LMC__ROTR(w[t - 2], 17) ^ LMC__ROTR(w[t - 2], 19) ^ w[t - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (t = 0; t < 64; t++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (LMC__ROTR(e, 6) ^ LMC__ROTR(e, 11) ^ LMC__ROTR(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + constants[t] + w[t];
        uint32_t t2 = (LMC__ROTR(a, 2) ^ LMC__ROTR(a, 13) ^ LMC__ROTR(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (t = 0; t < 8; t++) state[t] += v[t];
#undef LMC__ROTR
}

static void lmc__sha256_update(lmc__sha256 *sha, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    while (size != 0) {
        size_t used = (size_t)(sha->size & 63), n = lmc__min(64 - used, size);
        memcpy(sha->block + used, p, n);
        sha->size += n;
        p += n;
        size -= n;
        if (used + n == 64) lmc__sha256_block(sha->state, sha->block);
    }
}

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

/* == snapshot/order.h ============================================================================= */

/* Sorting and searching, once for all that is sorted here. Both are inlined with their comparison
 * and the size of an element, so they cost no more than written out. */

typedef int (*lmc__compare)(const void *a, const void *b); /* below, at or above 0 */
typedef int (*lmc__is_before)(const void *context, size_t i);

LMC__INLINE void lmc__swap(uint8_t *a, uint8_t *b, size_t size)
{
    uint8_t copy[64]; /* no element is larger */
    memcpy(copy, a, size);
    memcpy(a, b, size);
    memcpy(b, copy, size);
}

/* Heap sort of n elements of `size` bytes: no memory, no recursion, and time n log n whatever the
 * input, which may be chosen by an enemy. Not stable.
 *
 * While start > 0, elements [start, n) are made a heap from the back; then the largest is swapped
 * to the end, again and again, and [0, end) made a heap anew. Both sift down the element at
 * `start`, which is 0 from then on. */
LMC__INLINE void lmc__heap_sort(void *array, size_t n, size_t size, lmc__compare compare)
{
    uint8_t *const a = (uint8_t *)array;
    size_t start = n / 2, end = n;
    while (end > 1) {
        size_t root, child;
        if (start > 0) start--;
        else {
            end--;
            lmc__swap(a, a + end * size, size);
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && compare(a + child * size, a + (child + 1) * size) < 0) child++;
            if (compare(a + root * size, a + child * size) >= 0) break;
            lmc__swap(a + root * size, a + child * size, size);
        }
    }
}

/* The first i of [low, high) for which is_before(context, i) is 0, or high: those for which it is
 * 1 must stand before the others. */
LMC__INLINE size_t lmc__find_first(size_t low, size_t high, lmc__is_before is_before,
                                   const void *context)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (is_before(context, middle)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* == snapshot/identity.h ========================================================================== */

/* Identities of a file's tensors and the CRC of the file (spec 9.2).
 *
 * A tensor's identity is a SHA-256 over the CRC-32Cs of its leaves of 256 KiB, its dtype and its
 * shape. The CRCs are what costs, and a block has been given one anyhow; so a file is cut into
 * *pieces*, each within one block, and within one leaf of one tensor or in none:
 *
 *     tensors   |------- A ---------------|  gap |--- B ---|
 *     leaves    |-- 0 ---|-- 1 ---|- 2 ---|      |-- 0 ----|
 *     blocks    |------ 0 ------|------ 1 ------|-- 2 -----|
 *     pieces    |   a    |  b   |c| d     | e   |f|   g    |      (e and f: e is the gap)
 *
 * Pieces are planned in order (lmc__plan_piece), their CRCs taken by the workers in any order while
 * a block is in their caches, and joined in order (lmc__absorb): lmc__crc_combine makes the CRC of
 * a leaf, and of the file, of those of their pieces, without the bytes. A block that is one piece
 * has its CRC in its header, and costs nothing more.
 *
 * A file without tensors counts as one tensor of bytes. */
typedef struct lmc__piece {
    uint32_t size, crc;
    int in_tensor;
} lmc__piece;

typedef struct lmc__digester {
    const lmc_file *file;
    /* how far pieces are planned */
    uint64_t planned;
    size_t planned_tensor;
    /* bytes of the file */
    uint64_t absorbed;
    /* the one that is being absorbed, or next */
    size_t tensor;
    /* bytes of it */
    uint64_t tensor_done;
    uint32_t file_crc, leaf_crc, leaf_size;
    lmc__sha256 sha;
    /* where they go: 32 bytes for each tensor, or for the file */
    uint8_t *identities;
} lmc__digester;

/* The next tensor begins; "LMC tensor 1" keeps its digest apart from any other use of SHA-256. */
static void lmc__begin_identity(lmc__digester *d)
{
    lmc__sha256_init(&d->sha);
    lmc__sha256_update(&d->sha, "LMC tensor 1", 13);
    d->tensor_done = 0;
    d->leaf_size = d->leaf_crc = 0;
}

/* d: nothing of file is planned or absorbed yet. file must stay, and have its tensors in order. */
static void lmc__begin_digester(lmc__digester *d, const lmc_file *file)
{
    memset(d, 0, sizeof *d);
    d->file = file;
    lmc__begin_identity(d);
}

/* A file has an identity for each tensor, or one for itself if it has none. */
static size_t lmc__count_identities(const lmc_file *file)
{
    return file->n_tensors ? file->n_tensors : 1;
}

/* The next piece, at most max > 0 bytes: up to the end of a leaf, of a tensor, or of the gap
 * between two. Tensors of no bytes have no pieces. */
static lmc__piece lmc__plan_piece(lmc__digester *d, size_t max)
{
    const lmc_tensor *t = d->file->tensors;
    uint64_t start = 0, end = UINT64_MAX;
    lmc__piece piece;
    piece.in_tensor = 1;
    piece.crc = 0;
    if (d->file->n_tensors) {
        while (d->planned_tensor < d->file->n_tensors &&
               t[d->planned_tensor].offset + t[d->planned_tensor].size <= d->planned)
            d->planned_tensor++;
        if (d->planned_tensor < d->file->n_tensors) {
            start = t[d->planned_tensor].offset;
            end = start + t[d->planned_tensor].size;
        }
        piece.in_tensor = d->planned_tensor < d->file->n_tensors && start <= d->planned;
        if (!piece.in_tensor)
            end = d->planned_tensor < d->file->n_tensors ? start : UINT64_MAX; /* a gap */
    }
    if (piece.in_tensor)
        end = lmc__min64(end, d->planned + LMC__LEAF_SIZE - (d->planned - start) % LMC__LEAF_SIZE);
    piece.size = (uint32_t)lmc__min64(max, end - d->planned); /* max is at most a block */
    d->planned += piece.size;
    return piece;
}

/* The CRC of a leaf goes to the digest; the last may be short. */
static void lmc__finish_leaf(lmc__digester *d)
{
    uint8_t field[4];
    lmc__store32(field, d->leaf_crc);
    lmc__sha256_update(&d->sha, field, 4);
    d->leaf_size = d->leaf_crc = 0;
}

/* Ends the tensor at hand, of which tensor_done bytes were absorbed, and begins the next. dtype and
 * shape stand behind the content, for a file without tensors has a size only now: it counts as a U8
 * tensor of that many elements. */
static void lmc__finish_identity_to(lmc__digester *d, uint8_t *identity)
{
    const lmc_tensor *t = d->file->n_tensors ? &d->file->tensors[d->tensor] : NULL;
    const char *dtype = t ? t->dtype : "U8";
    const unsigned rank = t ? t->rank : 1;
    uint8_t field[8];
    unsigned i;
    if (d->leaf_size) lmc__finish_leaf(d);
    field[0] = (uint8_t)strlen(dtype);
    lmc__sha256_update(&d->sha, field, 1);
    lmc__sha256_update(&d->sha, dtype, strlen(dtype));
    field[0] = (uint8_t)rank;
    lmc__sha256_update(&d->sha, field, 1);
    for (i = 0; i < rank; i++) {
        lmc__store64(field, t ? t->shape[i] : d->tensor_done);
        lmc__sha256_update(&d->sha, field, 8);
    }
    lmc__store64(field, d->tensor_done);
    lmc__sha256_update(&d->sha, field, 8);
    lmc__sha256_finish(&d->sha, identity);
    d->tensor++;
    lmc__begin_identity(d);
}

/* To where the index has room for it. */
static void lmc__finish_identity(lmc__digester *d)
{
    lmc__finish_identity_to(d, d->identities + d->tensor * LMC_IDENTITY_SIZE);
}

/* Tensors that are complete now, also those of no bytes. */
static void lmc__finish_identities(lmc__digester *d)
{
    while (d->tensor < d->file->n_tensors && d->tensor_done == d->file->tensors[d->tensor].size)
        lmc__finish_identity(d);
}

/* The next size bytes of a tensor, within one leaf, whose CRC is crc: size is not 0, and leaf_size
 * + size at most LMC__LEAF_SIZE. */
static void lmc__absorb(lmc__digester *d, uint32_t crc, uint32_t size)
{
    d->leaf_crc = lmc__crc_combine(d->leaf_crc, crc, size);
    d->leaf_size += size;
    d->tensor_done += size;
    if (d->leaf_size == LMC__LEAF_SIZE) lmc__finish_leaf(d);
}

/* The next piece, in the order in which they were planned; its CRC is known now. Tensors that ended
 * before it are finished first: only then is it known that nothing more of them comes. */
static void lmc__absorb_piece(lmc__digester *d, const lmc__piece *piece)
{
    d->file_crc = lmc__crc_combine(d->file_crc, piece->crc, piece->size);
    d->absorbed += piece->size;
    if (!piece->in_tensor) return;
    lmc__finish_identities(d);
    lmc__absorb(d, piece->crc, piece->size);
}

/* All bytes of the file are absorbed: what is still open is finished. */
static void lmc__finish_digester(lmc__digester *d)
{
    if (d->file->n_tensors) lmc__finish_identities(d);
    else lmc__finish_identity(d);
}

/* == snapshot/ends.h ============================================================================== */

/* The two ends of a LMC file: its header (spec 4), by which a pipe knows what it is going to need,
 * and its trailer (spec 10), by which a reader finds the index. */

#ifndef LMC_NO_ENCODER
/* base_identity: NULL if there is no base. */
static void lmc__put_header(uint8_t *dst, uint32_t flags, const uint8_t *base_identity,
                            uint32_t chain_depth, const lmc__kernels *k)
{
    memset(dst, 0, LMC__HEADER_SIZE);
    memcpy(dst, lmc__magic, 8);
    dst[8] = LMC_FORMAT_MAJOR;
    dst[9] = LMC_FORMAT_MINOR;
    lmc__store16(dst + 10, LMC__HEADER_SIZE);
    lmc__store32(dst + LMC__FLAGS_AT, flags);
    if (base_identity) memcpy(dst + LMC__BASE_IDENTITY_AT, base_identity, LMC_IDENTITY_SIZE);
    lmc__store32(dst + LMC__CHAIN_DEPTH_AT, chain_depth);
    lmc__store32(dst + LMC__HEADER_CRC_AT, k->crc32c(0, dst, LMC__HEADER_CRC_AT));
}

/* Of an index at that place, up to the trailer. */
static void lmc__put_trailer(uint8_t *dst, uint64_t index_at, uint64_t index_size,
                             const lmc__kernels *k)
{
    memset(dst, 0, LMC__TRAILER_SIZE);
    lmc__store64(dst, index_at);
    lmc__store64(dst + 8, index_size);
    lmc__store64(dst + 16, index_at + index_size + LMC__TRAILER_SIZE); /* of the file */
    lmc__store32(dst + 28, k->crc32c(0, dst, 28));
    memcpy(dst + 32, lmc__end_magic, 8);
}
#endif

/* The snapshot is a delta: the header has an identity of a base, which is never all zero. */
static int lmc__has_base(const uint8_t *header)
{
    const uint8_t *const identity = header + LMC__BASE_IDENTITY_AT;
    unsigned i, any = 0;
    for (i = 0; i < LMC_IDENTITY_SIZE; i++) any |= identity[i];
    return any != 0;
}

/* All of a header's LMC__HEADER_SIZE bytes. The version comes before the CRC, so that a newer file
 * is called one, and not damaged, whatever else its header has become:
 *
 *     0  magic            12  flags            32  identity of the base, or 0
 *     8  version         16  features         64  depth of the chain, 0 without a base
 *    10  header's size    24  reserved...      76  Header_CRC of the bytes before
 *
 * Any feature that is not known could change what the file means, so all are refused. */
static enum lmc_status lmc__check_header(const uint8_t *header, const lmc__kernels *k)
{
    size_t i;
    LMC__CHECK(memcmp(header, lmc__magic, 8) == 0, LMC_ERR_NOT_LMC);
    LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);
    LMC__CHECK(k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT),
               LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load16(header + 10) == LMC__HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(header + 16) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(lmc__load32(header + LMC__FLAGS_AT) <= LMC__FLAG_SEQUENTIAL, LMC_ERR_UNSUPPORTED);
    for (i = 68; i < 76; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* reserved */
    LMC__CHECK((lmc__load32(header + LMC__CHAIN_DEPTH_AT) != 0) == lmc__has_base(header),
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_header(const void *header,
                                        uint8_t base_identity[LMC_IDENTITY_SIZE],
                                        uint32_t *chain_depth)
{
    if (!header || !base_identity || !chain_depth) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_header((const uint8_t *)header, lmc__get_kernels()));
    memcpy(base_identity, (const uint8_t *)header + LMC__BASE_IDENTITY_AT, LMC_IDENTITY_SIZE);
    *chain_depth = lmc__load32((const uint8_t *)header + LMC__CHAIN_DEPTH_AT);
    return LMC_OK;
}

/* *total += size, if the limits allow that: 1. Never overflows. */
static int lmc__add_total(uint64_t *total, uint64_t size, const lmc_limits *limits)
{
    const uint64_t most = limits->max_total_size ? limits->max_total_size : UINT64_MAX;
    if (size > most || *total > most - size) return 0;
    *total += size;
    return 1;
}

/* What to say of an input that ends within its header, of which size bytes are there. */
static enum lmc_status lmc__short_header(const uint8_t *header, size_t size)
{
    return size >= 8 && memcmp(header, lmc__magic, 8) == 0 ? LMC_ERR_TRUNCATED : LMC_ERR_NOT_LMC;
}

/* The trailer of a file of `total` bytes that has an index of that place and size:
 *
 *     0  where the index begins     16  size of the file     28  CRC of the bytes before
 *     8  size of the index          24  reserved             32  magic, another than the header's
 *
 * It repeats what is known from elsewhere, so it can only agree or be wrong. The size of the file
 * tells one that was cut and continued by another. */
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

/* == snapshot/pipeline.h ========================================================================== */

/* How blocks flow through writer, restorer and reader: a lmc__coder has the buffers, and runs
 * waves.
 *
 * Writer and restorer keep two buffers of each kind, and take turns. While wave w is coded, what
 * wave w - 1 has made is written, and what wave w + 1 will need is read:
 *
 *     step          1          2          3          4
 *     read      in[0]: w0  in[1]: w1  in[0]: w2  in[1]: w3
 *     code                 out[0]: w0 out[1]: w1 out[0]: w2
 *     write                           out[0]: w0 out[1]: w1
 *
 * Writing and reading are two more tasks of the wave's parallel_for (lmc__step_task), so there are
 * no threads but the caller's, and nothing outlives a step. Without a parallel_for the same
 * tasks run one after another.
 *
 * Memory is bounded: a wave has LMC__WAVE_SIZE decoded bytes for each worker, or one block if that
 * is larger, whatever the file's size. */

/* A block of a snapshot. */
typedef struct lmc__snapshot_job {
    lmc__job job;
    /* writer: bytes before job.dst that hold the header and the body of the RUN section which
     * begins here; 0: none does */
    size_t head_size;
    /* of the block's content, in coder.pieces */
    size_t first_piece, n_pieces;
    /* decoding: it comes from this very file. If it is wrong, the file is */
    int is_own_prediction;
    /* restoring in place: an earlier attempt has written the block, so dst has it already, and is
     * only compared */
    int is_written;
} lmc__snapshot_job;

/* Bytes to be written, which stay where they are until then. */
typedef struct lmc__part {
    const uint8_t *data;
    size_t size;
} lmc__part;

/* Buffers, workspaces and callbacks of the waves of one writer, restorer or reader. All buffers
 * keep their size, so a wave allocates nothing that one as large before it has not. */
typedef struct lmc__coder {
    /* without jobs: those are the snapshot's */
    lmc__wave wave;
    const lmc_parallel *parallel;
    /* lmc__snapshot_job, lmc__piece: of the wave that is being planned */
    lmc__buffer jobs, pieces;
    lmc__buffer workspaces, in[2], out[2];
    /* encoding: predictions of the wave's blocks */
    lmc__buffer base;
    /* of the wave that is being planned */
    size_t n_jobs;
    /* the wave at hand makes out[out_number] */
    unsigned out_number;
    /* what is to be done with each job; gets the coder */
    lmc_task task;
    /* takes the parts; write NULL: nobody wants them */
    lmc_sink sink;
    /* of the other out */
    lmc__buffer parts;
    int write_failed;
    lmc_stream stream;
    /* what is wanted of the stream: read_size bytes, of which read_got are there */
    uint8_t *read_to;
    size_t read_size, read_got;
    /* the most that is read beside one wave */
    size_t read_portion;
    int read_failed, ended;
} lmc__coder;

/* See lmc__visit_buffer. */
static void lmc__visit_coder(lmc__coder *c, lmc__visit_buffer visit, void *alloc_user)
{
    unsigned i;
    visit(&c->jobs, alloc_user);
    visit(&c->pieces, alloc_user);
    visit(&c->workspaces, alloc_user);
    visit(&c->parts, alloc_user);
    visit(&c->base, alloc_user);
    for (i = 0; i < 2; i++) {
        visit(&c->in[i], alloc_user);
        visit(&c->out[i], alloc_user);
    }
}

/* Allocates nothing yet. */
static void lmc__open_coder(lmc__coder *c, const lmc_parallel *parallel, void *alloc_user)
{
    memset(c, 0, sizeof *c);
    c->wave.k = lmc__get_kernels();
    c->parallel = parallel;
    lmc__visit_coder(c, lmc__init_buffer, alloc_user);
}

static void lmc__free_coder(lmc__coder *c) { lmc__visit_coder(c, lmc__free_visited, NULL); }

/* Prepares for blocks of up to block_size bytes, n_elements elements each, beside those that are
 * planned already; in_parts: to decode blocks of which only a part is kept. Workspaces never
 * shrink, so jobs that are planned keep theirs. */
static enum lmc_status lmc__set_coder(lmc__coder *c, size_t block_size, size_t n_elements,
                                      int in_parts)
{
    const size_t temp_size = in_parts ? (block_size + 15) & ~(size_t)15 : 0;
    const size_t size = ((lmc_workspace_size(n_elements) + 15) & ~(size_t)15) + temp_size;
    LMC__TRY(lmc__reserve(&c->jobs,
                          lmc__count_jobs(c->parallel, block_size) * sizeof(lmc__snapshot_job)));
    if (size > c->wave.workspace_size) c->wave.workspace_size = size;
    LMC__TRY(lmc__reserve(&c->workspaces,
                          (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));
    c->wave.workspaces = c->workspaces.data;
    c->wave.temp_size = temp_size;
    return LMC_OK;
}

/* Decoded bytes of a wave for each worker: more makes waking and waiting for the workers rarer,
 * less keeps the four buffers in the caches. Not tuned: sizes from 1/2 to 4 MiB were compared on a
 * loaded machine only, which showed no clear best. */
#define LMC__WAVE_SIZE ((size_t)1 << 20)

/* Decoded bytes of a wave of blocks of up to block_size bytes. */
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

/* Room for one more job of the wave, all zero. Jobs move when more are added: *job is valid until
 * then. */
static enum lmc_status lmc__add_job(lmc__coder *c, lmc__snapshot_job **job)
{
    c->jobs.size = c->n_jobs * sizeof **job;
    LMC__TRY(lmc__append(&c->jobs, NULL, sizeof **job));
    *job = lmc__job_at(c, c->n_jobs++);
    return LMC_OK;
}

/* The CRCs of a job's pieces, which make up the bytes at content, whose CRC is crc: of a single
 * piece, that is its own. Pieces of different jobs are different ones, so tasks do not disturb each
 * other. */
static void lmc__set_piece_crcs(const lmc__coder *c, const lmc__snapshot_job *job,
                                const uint8_t *content, uint32_t crc)
{
    lmc__piece *pieces;
    size_t i;
    if (job->n_pieces == 0) return; /* a reader's: nobody asks for identities */
    pieces = (lmc__piece *)(void *)c->pieces.data + job->first_piece;
    if (job->n_pieces == 1) {
        pieces[0].crc = crc;
        return;
    }
    for (i = 0; i < job->n_pieces; i++) {
        pieces[i].crc = c->wave.k->crc32c(0, content, pieces[i].size);
        content += pieces[i].size;
    }
}

/* Tasks of a wave; arg is the coder. */
#ifndef LMC_NO_ENCODER
static void lmc__encode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const uint8_t *content = lmc__encode_job(&c->wave, &job->job, worker);
    if (job->job.status == LMC_OK)
        lmc__set_piece_crcs(c, job, content, lmc__load32(job->job.dst + LMC__CONTENT_CRC_AT));
}
#endif

/* Decodes a job's block, or compares it if it is written already. A prediction that does not match
 * is a wrong base, unless it was made from this very file. */
static void lmc__decode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const lmc_block_info *const info = &job->job.info;
    const uint8_t *content = job->job.dst;
    if (job->is_written)
        job->job.status =
            c->wave.k->crc32c(0, content, info->size) == info->crc ? LMC_OK : LMC_ERR_BASE_WRONG;
    else content = lmc__decode_job(&c->wave, &job->job, worker);
    if (job->job.status == LMC_ERR_BASE_WRONG && job->is_own_prediction)
        job->job.status = LMC_ERR_CORRUPT;
    if (job->job.status == LMC_OK) lmc__set_piece_crcs(c, job, content, info->crc);
}

/* The first error of n jobs, in order. */
static enum lmc_status lmc__jobs_status(const lmc__coder *c, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(lmc__job_at(c, i)->job.status);
    return LMC_OK;
}

/* To be written beside the next wave. An empty one, or one that nobody wants, is none. */
static enum lmc_status lmc__add_part(lmc__coder *c, const uint8_t *data, size_t size)
{
    lmc__part part;
    part.data = data;
    part.size = size;
    return c->sink.write && size ? lmc__append(&c->parts, &part, sizeof part) : LMC_OK;
}

/* A task: one at a time, so that the sink gets bytes in order. */
static void lmc__write_parts(lmc__coder *c)
{
    const lmc__part *part = (const lmc__part *)(const void *)c->parts.data;
    size_t i;
    for (i = 0; i < c->parts.size / sizeof *part && !c->write_failed; i++)
        c->write_failed = c->sink.write(c->sink.user, part[i].data, part[i].size) != 0;
}

/* A task: goes on with what is wanted of the stream, up to a portion. A stream may bring less than
 * it was asked for, and ends by bringing nothing. */
static void lmc__read_portion(lmc__coder *c)
{
    const size_t end = lmc__min(c->read_size, c->read_got + c->read_portion);
    while (c->read_got < end && !c->ended && !c->read_failed) {
        size_t n = 0;
        c->read_failed =
            c->stream.read(c->stream.user, c->read_to + c->read_got, end - c->read_got, &n) != 0 ||
            n > end - c->read_got;
        if (c->read_failed) break;
        c->ended = n == 0;
        c->read_got += n;
    }
}

/* What the caller's parallel_for runs: writing and reading first, as they take longest. */
static void lmc__step_task(void *arg, size_t index, unsigned worker)
{
    lmc__coder *c = (lmc__coder *)arg;
    if (index == 0) lmc__write_parts(c); /* first what takes longest */
    else if (index == 1) lmc__read_portion(c);
    else c->task(c, index - 2, worker);
}

/* Codes the wave that is planned, writes the parts, reads what is wanted. An error of writing comes
 * first, for it came first; then those of blocks, in order; then that of reading, which is about
 * bytes behind them. */
static enum lmc_status lmc__run_step(lmc__coder *c)
{
    const size_t n = c->n_jobs;
    size_t i;
    if (c->parallel && n > 0) c->parallel->run(c->parallel->user, lmc__step_task, c, n + 2);
    else
        for (i = 0; i < n + 2; i++) lmc__step_task(c, i, 0);
    c->parts.size = 0;
    c->n_jobs = 0;
    c->base.size = 0;
    if (c->write_failed) return LMC_ERR_WRITE;
    LMC__TRY(lmc__jobs_status(c, n));
    return c->read_failed ? LMC_ERR_READ : LMC_OK;
}

/* Writes what is still to be written, now, by the caller's thread. */
static enum lmc_status lmc__drain(lmc__coder *c)
{
    lmc__write_parts(c);
    c->parts.size = 0;
    return c->write_failed ? LMC_ERR_WRITE : LMC_OK;
}

/* Asks for size bytes of the stream, to come with the next steps, a portion with each. */
static void lmc__want(lmc__coder *c, uint8_t *dst, size_t size, size_t portion)
{
    c->read_to = dst;
    c->read_size = size;
    c->read_got = 0;
    c->read_portion = portion;
}

/* Plans the pieces of a job that covers the next size bytes of the digester's file. */
static enum lmc_status lmc__plan_pieces(lmc__coder *c, lmc__digester *d, lmc__snapshot_job *job,
                                        size_t size)
{
    job->first_piece = c->pieces.size / sizeof(lmc__piece);
    job->n_pieces = 0;
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        LMC__TRY(lmc__append(&c->pieces, &piece, sizeof piece));
        size -= piece.size;
        job->n_pieces++;
    }
    return LMC_OK;
}

/* The pieces of a wave that was coded, in order. */
static void lmc__absorb_pieces(lmc__coder *c, lmc__digester *d)
{
    size_t i;
    for (i = 0; i < c->pieces.size / sizeof(lmc__piece); i++)
        lmc__absorb_piece(d, (const lmc__piece *)(const void *)c->pieces.data + i);
    c->pieces.size = 0;
}

/* == snapshot/names.h ============================================================================= */

/* Names, and what must be unique of them.
 *
 * Sets are sorted arrays, or tables of 64 bits of a hash: a snapshot has up to 2^32 files and 2^28
 * tensors each, so what grows with them is kept small, and no input makes it slower than n log n.
 */

/* Something with a name. The name is not NUL-terminated, and belongs to someone else. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *identity;  /* or NULL: only the name counts */
    size_t file_number;       /* of the base's items: where it is */
    const lmc_tensor *tensor; /* of the base's items; NULL: the whole file */
} lmc__item;

/* By bytes, a prefix first: the order of spec 9.3 and 10. */
static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

/* For lmc__heap_sort: by name, then by identity. */
static int lmc__compare_items(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    int order = lmc__compare_names(x, y);
    return order || !x->identity ? order : memcmp(x->identity, y->identity, LMC_IDENTITY_SIZE);
}

/* By name, then by identity. */
static void lmc__sort_items(lmc__item *items, size_t n)
{
    lmc__heap_sort(items, n, sizeof *items, lmc__compare_items);
}

/* Of sorted items: equal names are neighbours. */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

typedef struct lmc__name_search {
    const lmc__item *items;
    lmc__item wanted;
} lmc__name_search;

static int lmc__is_name_before(const void *context, size_t i)
{
    const lmc__name_search *const s = (const lmc__name_search *)context;
    return lmc__compare_names(&s->items[i], &s->wanted) < 0;
}

/* The first of n sorted items that is not before name. */
static size_t lmc__find_name(const lmc__item *items, size_t n, const char *name)
{
    lmc__name_search search;
    memset(&search, 0, sizeof search);
    search.items = items;
    search.wanted.name = (const uint8_t *)name;
    search.wanted.size = strlen(name);
    return lmc__find_first(0, n, lmc__is_name_before, &search);
}

/* name and identity stay with whoever has them. */
static enum lmc_status lmc__append_item(lmc__buffer *items, const void *name, size_t size,
                                        const uint8_t *identity)
{
    lmc__item item;
    item.name = (const uint8_t *)name;
    item.size = size;
    item.identity = identity;
    item.file_number = 0;
    item.tensor = NULL;
    return lmc__append(items, &item, sizeof item);
}

/* Where key stands in a table of `size` keys, a power of two, or the free place where it should. */
static size_t lmc__place_key(const uint64_t *table, size_t size, uint64_t key)
{
    size_t i = (size_t)key & (size - 1);
    while (table[i] && table[i] != key) i = (i + 1) & (size - 1);
    return i;
}

/* A table of twice the size, or the first, with the same keys. */
static enum lmc_status lmc__grow_paths(lmc__buffer *set)
{
    lmc__buffer grown;
    const uint64_t *const old = (const uint64_t *)(const void *)set->data;
    const size_t old_size = set->size / 8, size = old_size ? 2 * old_size : 64;
    size_t i;
    lmc__init_buffer(&grown, set->alloc_user);
    LMC__TRY(lmc__append(&grown, NULL, 8 * size));
    for (i = 0; i < old_size; i++) {
        uint64_t *const table = (uint64_t *)(void *)grown.data;
        if (old[i]) table[lmc__place_key(table, size, old[i])] = old[i];
    }
    lmc__free_buffer(set);
    *set = grown;
    return LMC_OK;
}

/* Adds the path of file number n to the set, which has n, or refuses it (CORRUPT) if it is there
 * already. The set holds 64 bits of each path's SHA-256: a table of open addressing, at most half
 * full, 0 for free. So it takes 16 to 32 bytes for each file, however long their paths, and none
 * can choose paths that collide. */
static enum lmc_status lmc__add_path(lmc__buffer *set, size_t n, const char *path)
{
    uint8_t digest[32];
    lmc__sha256 sha;
    uint64_t key, *table;
    size_t place;
    if (n >= set->size / 8 / 2) LMC__TRY(lmc__grow_paths(set));
    table = (uint64_t *)(void *)set->data;
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, path, strlen(path));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) | 1; /* not 0 */
    place = lmc__place_key(table, set->size / 8, key);
    LMC__CHECK(table[place] == 0, LMC_ERR_CORRUPT);
    table[place] = key;
    return LMC_OK;
}

/* == snapshot/sections.h ========================================================================== */

/* Sections (spec 5): a header of 24 bytes, then a body of a FILE, a RUN or the INDX. What the bytes
 * of FILE and RUN bodies mean stands here, both ways, and what must hold for them; nobody above
 * looks at bytes of a body by number, and nobody above checks them again.
 *
 * Checks come before use, field by field. A body is at hand as a whole, and no larger than what the
 * caller allows, so what is allocated for it is in proportion to bytes that are really there. */

#ifndef LMC_NO_ENCODER
/* Header of a section at dst, LMC__SECTION_HEADER_SIZE bytes:
 *
 *     0  kind        "FILE", "RUN ", "INDX"
 *     4  number      files and runs are counted apart; 0 for the index
 *     8  size        of the body
 *    16  Head_CRC    of the bytes before
 *    20  Body_CRC    of the body
 *
 * Head_CRC comes first, so that the size can be trusted before anything is read by it. */
static void lmc__put_section_header(uint8_t *dst, const char *kind, uint32_t number,
                                    const uint8_t *body, uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store32(dst + 4, number);
    lmc__store64(dst + 8, size);
    lmc__store32(dst + 16, k->crc32c(0, dst, 16));
    lmc__store32(dst + 20, k->crc32c(0, body, (size_t)size));
}
#endif

/* The header of a section; whoever reads the body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint32_t number;
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

/* Reads a section's header at p. What is not known is refused by whoever wants a kind; a size over
 * the limit of the format here. */
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

/* kind: four characters. */
static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

/* The path rules of spec 5.1: relative, no component "", "." or "..", no backslash, no NUL; or
 * empty. So a restored file lies below the directory that it is restored to, on every system whose
 * separators are these. */
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
 * times bits, over 8, without a rest. Every step is checked before it could overflow; a 0 in the
 * shape makes the rest of it irrelevant, however large. */
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

/* -- FILE -- */

/* Bytes that are read front to back. Whoever takes some has looked before that they are there
 * (lmc__left): taking checks nothing. */
typedef struct lmc__cursor {
    const uint8_t *p, *end;
} lmc__cursor;

static size_t lmc__left(const lmc__cursor *c) { return (size_t)(c->end - c->p); }

/* Where the next size bytes are. */
static const uint8_t *lmc__take_bytes(lmc__cursor *c, size_t size)
{
    c->p += size;
    return c->p - size;
}
static uint8_t lmc__take8(lmc__cursor *c) { return *lmc__take_bytes(c, 1); }
static uint32_t lmc__take32(lmc__cursor *c) { return lmc__load32(lmc__take_bytes(c, 4)); }
static uint64_t lmc__take64(lmc__cursor *c) { return lmc__load64(lmc__take_bytes(c, 8)); }

/* The fixed fields of a FILE body, checked, and where its path is, which has no NUL at its end:
 *
 *     0  size of the file, or LMC_UNKNOWN_SIZE     16  mtime, seconds
 *     8  kind                                      24  mtime, nanoseconds
 *     9  flags: which of mode and mtime are set    28  size of the path
 *    10  reserved                                  32  number of tensors
 *    12  mode                                      36  path, then an entry for each tensor
 *
 * A file of unknown size, or a directory, has no tensors. The number of tensors is limited, but not
 * to be trusted: entries may end before. */
static enum lmc_status lmc__parse_file_head(lmc__cursor *c, lmc_file *file, const uint8_t **path,
                                            uint32_t *path_size, uint32_t *n_tensors)
{
    uint8_t kind, flags, reserved;
    LMC__CHECK(lmc__left(c) >= LMC__FILE_BODY_SIZE, LMC_ERR_CORRUPT);
    file->size = lmc__take64(c);
    kind = lmc__take8(c);
    flags = lmc__take8(c);
    reserved = lmc__take8(c);
    reserved |= lmc__take8(c);
    LMC__CHECK(kind <= LMC_FILE_DIRECTORY && flags <= (LMC__HAS_MODE | LMC__HAS_MTIME) &&
                   reserved == 0,
               LMC_ERR_UNSUPPORTED);
    file->kind = kind == LMC_FILE_DIRECTORY ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    file->has_mode = (flags & LMC__HAS_MODE) != 0;
    file->has_mtime = (flags & LMC__HAS_MTIME) != 0;
    file->mode = lmc__take32(c);
    file->mtime_s = (int64_t)lmc__take64(c);
    file->mtime_ns = lmc__take32(c);
    *path_size = lmc__take32(c);
    *n_tensors = lmc__take32(c);
    LMC__CHECK(file->size <= LMC__MAX_FILE_SIZE || file->size == LMC_UNKNOWN_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(file->mode <= (file->has_mode ? 07777u : 0u), LMC_ERR_CORRUPT);
    LMC__CHECK(file->mtime_ns <= 999999999u &&
                   (file->has_mtime || (file->mtime_s == 0 && file->mtime_ns == 0)),
               LMC_ERR_CORRUPT);
    LMC__CHECK(file->kind != LMC_FILE_DIRECTORY || file->size == 0, LMC_ERR_CORRUPT);
    LMC__CHECK(*n_tensors == 0 ||
                   (file->size != LMC_UNKNOWN_SIZE && file->kind != LMC_FILE_DIRECTORY),
               LMC_ERR_CORRUPT);
    LMC__CHECK(*n_tensors <= LMC__MAX_TENSORS && *path_size <= LMC__MAX_STRING, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__left(c) >= *path_size && lmc__is_path(c->p, *path_size), LMC_ERR_CORRUPT);
    *path = lmc__take_bytes(c, *path_size);
    return LMC_OK;
}

/* A tensor's entry in a FILE body:
 *
 *     0  offset      8  size           16  size of the name
 *    20  size of the dtype's name      21  rank
 *    22  generation, 0: exact          23  measure of the loss, 0 if exact
 *    24  shape, name, dtype; if not exact the error, in units of 2^-32
 *
 * Once parsed, all of it is there, sizes and counts are within their limits. Whether the tensor
 * makes sense in its file is not looked at. */
typedef struct lmc__tensor_entry {
    uint64_t offset, size;
    uint32_t name_size;
    uint8_t dtype_size, rank, generation, measure;
    const uint8_t *shape, *name, *dtype; /* in the body */
    uint32_t error;                      /* in units of 2^-32 */
} lmc__tensor_entry;

static enum lmc_status lmc__parse_tensor(lmc__cursor *c, lmc__tensor_entry *e)
{
    LMC__CHECK(lmc__left(c) >= LMC__TENSOR_ENTRY_SIZE, LMC_ERR_CORRUPT);
    e->offset = lmc__take64(c);
    e->size = lmc__take64(c);
    e->name_size = lmc__take32(c);
    e->dtype_size = lmc__take8(c);
    e->rank = lmc__take8(c);
    e->generation = lmc__take8(c);
    e->measure = lmc__take8(c);
    LMC__CHECK(e->name_size <= LMC__MAX_STRING && e->dtype_size >= 1 &&
                   e->dtype_size <= LMC__MAX_DTYPE_SIZE && e->rank <= LMC_MAX_RANK,
               LMC_ERR_CORRUPT);
    LMC__CHECK(e->generation ? e->measure >= LMC_MEASURE_UPDATE && e->measure <= LMC_MEASURE_NMSE
                             : e->measure == 0,
               LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__left(c) >=
                   8u * e->rank + e->name_size + e->dtype_size + (e->generation ? 4u : 0u),
               LMC_ERR_CORRUPT);
    e->shape = lmc__take_bytes(c, 8u * e->rank);
    e->name = lmc__take_bytes(c, e->name_size);
    e->dtype = lmc__take_bytes(c, e->dtype_size);
    e->error = e->generation ? lmc__take32(c) : 0;
    return LMC_OK;
}

/* What is left of the one allocation that a lmc_file's arrays and strings are in. */
typedef struct lmc__file_room {
    uint64_t *words; /* shapes */
    char *chars;     /* strings, NUL-terminated */
} lmc__file_room;

/* The bytes at p as a string. */
static const char *lmc__copy_string(lmc__file_room *room, const uint8_t *p, size_t size)
{
    char *const copy = room->chars;
    memcpy(copy, p, size);
    copy[size] = 0;
    room->chars += size + 1;
    return copy;
}

/* The tensor of an entry, whose arrays and strings go to room. It must lie in the file, and not
 * before *position, where the one before it ends: so tensors are in order and do not overlap. Of a
 * known dtype, its shape must give its size; of others nobody can tell. */
static enum lmc_status lmc__copy_tensor(lmc_tensor *t, const lmc__tensor_entry *e,
                                        const lmc_file *file, lmc__file_room *room,
                                        uint64_t *position)
{
    enum lmc_dtype dtype;
    unsigned i;
    LMC__CHECK(memchr(e->name, 0, (size_t)e->name_size + e->dtype_size) == NULL, LMC_ERR_CORRUPT);
    memset(t, 0, sizeof *t);
    t->offset = e->offset;
    t->size = e->size;
    t->rank = e->rank;
    t->loss.generation = e->generation;
    t->loss.measure = (enum lmc_measure)e->measure;
    t->loss.error = e->error / 4294967296.0;
    t->shape = room->words;
    for (i = 0; i < e->rank; i++) *room->words++ = lmc__load64(e->shape + 8 * i);
    t->name = lmc__copy_string(room, e->name, e->name_size);
    t->dtype = lmc__copy_string(room, e->dtype, e->dtype_size);
    LMC__CHECK(t->offset >= *position && t->offset <= file->size &&
                   t->size <= file->size - t->offset,
               LMC_ERR_CORRUPT);
    *position = t->offset + t->size;
    dtype = lmc_find_dtype(t->dtype);
    LMC__CHECK(dtype == LMC_AUTO ||
                   lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) == t->size,
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* A FILE body, checked, as a lmc_file whose arrays and strings are in *memory, which it replaces.
 *
 * Two passes over the entries. The first finds that all are there, that they end where the body
 * does, and how much memory they take: an entry has 25 bytes at least, so that is linear in size,
 * whatever the number of tensors claims to be. The second copies them to one allocation:
 *
 *     lmc_tensor[n]   uint64_t[] (shapes)   lmc__item[n] (to find equal names)   characters
 *
 * in order of falling alignment, so that each part is aligned where the one before ends. Names must
 * differ within the file: sorted, equal ones are neighbours. Errors leave *memory allocated; it
 * belongs to the caller in any case. */
static enum lmc_status lmc__parse_file(lmc_file *file, lmc__buffer *memory, const uint8_t *body,
                                       size_t size)
{
    uint64_t n_words = 0, n_chars = 0, position = 0;
    uint32_t path_size, n_tensors, i;
    const uint8_t *path;
    lmc__tensor_entry e;
    lmc__cursor c, tensors_at;
    lmc__file_room room;
    lmc_tensor *tensors;
    lmc__item *items;

    memset(file, 0, sizeof *file);
    LMC__CHECK(size != 0, LMC_ERR_CORRUPT); /* body may be NULL */
    c.p = body;
    c.end = body + size;
    LMC__TRY(lmc__parse_file_head(&c, file, &path, &path_size, &n_tensors));
    tensors_at = c;
    for (i = 0; i < n_tensors; i++) {
        LMC__TRY(lmc__parse_tensor(&c, &e));
        n_words += e.rank;
        n_chars += e.name_size + e.dtype_size + 2u;
    }
    LMC__CHECK(c.p == c.end, LMC_ERR_CORRUPT);

    memory->size = 0;
    LMC__TRY(lmc__reserve(memory, n_tensors * (uint64_t)(sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                      8 * n_words + n_chars + path_size + 1));
    tensors = (lmc_tensor *)(void *)memory->data;
    room.words = (uint64_t *)(void *)(tensors + n_tensors); /* in order of falling alignment */
    items = (lmc__item *)(void *)(room.words + n_words);
    room.chars = (char *)(items + n_tensors);
    file->path = lmc__copy_string(&room, path, path_size);
    c = tensors_at;
    for (i = 0; i < n_tensors; i++) {
        LMC__TRY(lmc__parse_tensor(&c, &e));
        LMC__TRY(lmc__copy_tensor(&tensors[i], &e, file, &room, &position));
        memset(&items[i], 0, sizeof items[i]); /* only to find names that are there twice */
        items[i].name = (const uint8_t *)tensors[i].name;
        items[i].size = e.name_size;
    }
    lmc__sort_items(items, n_tensors);
    LMC__CHECK(!lmc__has_duplicates(items, n_tensors), LMC_ERR_CORRUPT);
    file->n_tensors = n_tensors;
    file->tensors = n_tensors ? tensors : NULL;
    return LMC_OK;
}

/* What is to be said of a tensor that is written; generation 0: nothing was lost. */
static lmc_loss lmc__get_loss(const lmc_tensor *t)
{
    return lmc__get_quant_params(t->quantizer) ? lmc__get_quantizer_loss(t->quantizer) : t->loss;
}

/* An entry as lmc__parse_tensor reads it. The error of a loss is rounded down to a multiple of
 * 2^-32, and 1 to the largest below it. */
static enum lmc_status lmc__append_tensor(lmc__buffer *out, const lmc_tensor *t)
{
    uint8_t entry[LMC__TENSOR_ENTRY_SIZE], field[8];
    size_t name_size, dtype_size;
    lmc_loss loss;
    unsigned i;
    if (!t->name || !t->dtype || (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
        return LMC_ERR_ARGUMENT;
    name_size = strlen(t->name);
    dtype_size = strlen(t->dtype);
    if (name_size > LMC__MAX_STRING || dtype_size < 1 || dtype_size > LMC__MAX_DTYPE_SIZE)
        return LMC_ERR_ARGUMENT;
    loss = lmc__get_loss(t);
    memset(entry, 0, sizeof entry);
    lmc__store64(entry, t->offset);
    lmc__store64(entry + 8, t->size);
    lmc__store32(entry + 16, (uint32_t)name_size);
    entry[20] = (uint8_t)dtype_size;
    entry[21] = (uint8_t)t->rank;
    if (loss.generation) {
        if (loss.generation > 255 || !(loss.error >= 0) || loss.error > 1)
            return LMC_ERR_ARGUMENT; /* the measure: see lmc__parse_tensor */
        entry[22] = (uint8_t)loss.generation;
        entry[23] = (uint8_t)loss.measure;
    }
    LMC__TRY(lmc__append(out, entry, sizeof entry));
    for (i = 0; i < t->rank; i++) {
        lmc__store64(field, t->shape[i]);
        LMC__TRY(lmc__append(out, field, 8));
    }
    LMC__TRY(lmc__append(out, t->name, name_size));
    LMC__TRY(lmc__append(out, t->dtype, dtype_size));
    if (loss.generation)
        LMC__TRY(lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0)
                                                   : UINT32_MAX));
    return LMC_OK;
}

/* The FILE body of a description from the caller. Only what could not be written down is refused
 * here; all other rules lmc__parse_file checks, which whoever calls this calls next. */
static enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file)
{
    uint8_t head[LMC__FILE_BODY_SIZE];
    size_t i, n;
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
    for (i = 0; i < file->n_tensors; i++) LMC__TRY(lmc__append_tensor(out, &file->tensors[i]));
    return LMC_OK;
}

/* -- RUN -- */

/* A run, as its RUN body describes it:
 *
 *     0  size        8  log2 of the block size      9  prediction     10  conversion
 *    11  reserved   12  number of segments         16  segments, LMC__SEGMENT_SIZE bytes each
 *
 * Its place in the file is where the run before it ends. segments points into the body, which must
 * stay. */
typedef struct lmc__run {
    /* within the file */
    uint64_t start;
    uint64_t size;
    /* decoded bytes of each block but the last */
    size_t block_size;
    /* at most 2^32 - 1 */
    uint64_t n_blocks;
    size_t file_number;
    /* LMC__PREDICT_... */
    unsigned prediction;
    /* enum lmc_conversion, of a prediction by the run's own snapshot */
    unsigned conversion;
    /* in the body */
    const uint8_t *segments;
    uint32_t n_segments;
} lmc__run;

/* A segment: bytes of a run whose predictions lie side by side. The segments of a run cover it
 * without a gap, in order. */
typedef struct lmc__segment {
    uint32_t file_number;
    /* 0: zeros. By the base: number of the item, plus 1. By its own snapshot: number of the file,
     * plus 1 */
    uint32_t base;
    /* within the file */
    uint64_t start, size;
    /* within the base's item, or the file: where the prediction begins */
    uint64_t base_offset;
} lmc__segment;

/* p: LMC__SEGMENT_SIZE bytes. */
static lmc__segment lmc__get_segment(const uint8_t *p)
{
    lmc__segment s;
    s.file_number = lmc__load32(p);
    s.base = lmc__load32(p + 4);
    s.start = lmc__load64(p + 8);
    s.size = lmc__load64(p + 16);
    s.base_offset = lmc__load64(p + 24);
    return s;
}

#ifndef LMC_NO_ENCODER
/* dst: LMC__SEGMENT_SIZE bytes. */
static void lmc__put_segment(uint8_t *dst, const lmc__segment *s)
{
    lmc__store32(dst, s->file_number);
    lmc__store32(dst + 4, s->base);
    lmc__store64(dst + 8, s->start);
    lmc__store64(dst + 16, s->size);
    lmc__store64(dst + 24, s->base_offset);
}

/* The fixed fields of a RUN body, of LMC__RUN_BODY_SIZE bytes; the segments stand behind. */
static void lmc__put_run(uint8_t *dst, const lmc__run *run)
{
    uint8_t log2_block = 0;
    while ((size_t)1 << log2_block < run->block_size) log2_block++;
    lmc__store64(dst, run->size);
    dst[8] = log2_block;
    dst[9] = (uint8_t)run->prediction;
    dst[10] = (uint8_t)run->conversion;
    dst[11] = 0;
    lmc__store32(dst + 12, run->n_segments);
}
#endif

/* Number i of a run that was parsed. */
static lmc__segment lmc__segment_at(const lmc__run *run, uint32_t i)
{
    return lmc__get_segment(run->segments + (size_t)LMC__SEGMENT_SIZE * i);
}

/* A RUN body that continues file number file_number, of which *position bytes have been covered;
 * advances *position over the run.
 *
 * Checked here: known kinds of prediction and conversion, a conversion only of the snapshot's own
 * bytes, block sizes within the format's limits, segments that are as many as the body has room
 * for, that follow each other from *position on, that end where the run does and within the file,
 * and a prediction only where there is to be one. Not checked here: whether what predicts them is
 * there (lmc__check_predictions). */
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
        const lmc__segment segment = lmc__segment_at(run, i);
        LMC__CHECK(segment.base == 0 ? segment.base_offset == 0
                                     : run->prediction != LMC__PREDICT_ZERO,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(run->conversion == 0 || segment.size % 2 == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(segment.file_number == file_number && segment.start == *position,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(segment.size >= 1 && segment.size <= limit - *position &&
                       segment.size <= run->size - sum,
                   LMC_ERR_CORRUPT);
        *position += segment.size;
        sum += segment.size;
    }
    LMC__CHECK(sum == run->size, LMC_ERR_CORRUPT);
    run->block_size = (size_t)1 << body[8];
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__CHECK(run->n_blocks <= UINT32_MAX, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Decoded bytes of a block: the last has what is left. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

/* Identity of the snapshot (spec 9.3), of items in any order: sorts them. Names and identities of
 * tensors count, and paths of files without tensors; in which file a tensor lies does not. So a
 * snapshot is the same one however its tensors are distributed to files. */
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

/* == snapshot/index_entries.h ===================================================================== */

/* The body of the INDX section (spec 10): what its bytes mean, and how it grows.
 *
 *     head           counts, identity of the snapshot                   LMC__INDEX_BODY_SIZE
 *     entry of file 0: offset | header and body of its FILE section | facts
 *     entry of run 0:  offset | header and body of its RUN section  | {size, Header_CRC} per block
 *     ...            one entry for each section before, in their order
 *     metadata       sorted by key
 *
 * The *facts* of a file are what is known only at its end: File_Size, File_CRC, identities.
 *
 * Writer and restorer build the entries while blocks go by; the restorer then compares them with
 * those of the file byte for byte, so nothing else of an index that a pipe brings is to be checked.
 * A reader, which begins with the index, must parse it (index.h). */

#define LMC__DEFAULT_INDEX_LIMIT ((uint64_t)1 << 30)
#define LMC__FILE_FACTS_SIZE 16u /* without identities */

/* The entries as they grow, without head and metadata. The facts of a file stay zero until it has
 * ended; entries of its runs and blocks stand behind them meanwhile. */
typedef struct lmc__index_builder {
    lmc__buffer entries;
    uint64_t limit;  /* on their size */
    size_t facts_at; /* in entries: the facts of the file at hand */
} lmc__index_builder;

/* Appends, up to the limit: a restorer's index grows with what a pipe brings, which may be endless.
 */
static enum lmc_status lmc__grow_index(lmc__index_builder *b, const void *data, size_t size)
{
    if (b->entries.size + (uint64_t)size > b->limit) return LMC_ERR_LIMIT;
    return lmc__append(&b->entries, data, size);
}

/* The entry of a section that begins at `offset` of the file. head: its header; its body may stand
 * elsewhere. */
static enum lmc_status lmc__index_section(lmc__index_builder *b, uint64_t offset,
                                          const uint8_t *head, const uint8_t *body,
                                          size_t body_size)
{
    uint8_t field[8];
    lmc__store64(field, offset);
    LMC__TRY(lmc__grow_index(b, field, 8));
    LMC__TRY(lmc__grow_index(b, head, LMC__SECTION_HEADER_SIZE));
    return lmc__grow_index(b, body, body_size);
}

/* Room for the facts of a file whose section was the last entry. */
static enum lmc_status lmc__index_file(lmc__index_builder *b, const lmc_file *file)
{
    b->facts_at = b->entries.size;
    return lmc__grow_index(b, NULL,
                           LMC__FILE_FACTS_SIZE + LMC_IDENTITY_SIZE * lmc__count_identities(file));
}

/* Where the digester puts the identities of the file at hand; they move when the index grows. */
static uint8_t *lmc__index_identities(const lmc__index_builder *b)
{
    return b->entries.data + b->facts_at + LMC__FILE_FACTS_SIZE;
}

/* All of the file was absorbed by d: its facts are known now. */
static void lmc__index_file_end(lmc__index_builder *b, lmc__digester *d, uint64_t file_size)
{
    uint8_t *const facts = b->entries.data + b->facts_at;
    d->identities = lmc__index_identities(b);
    lmc__finish_digester(d);
    lmc__store64(facts, file_size);
    lmc__store32(facts + 8, d->file_crc);
}

/* The next block of the run whose section was the last. */
static enum lmc_status lmc__index_block(lmc__index_builder *b, size_t encoded_size,
                                        const uint8_t *header)
{
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    lmc__store32(entry, (uint32_t)encoded_size);
    lmc__store32(entry + 4, lmc__load32(header + LMC__BLOCK_CRC_AT));
    return lmc__grow_index(b, entry, sizeof entry);
}

/* The head of the body. */
typedef struct lmc__index_head {
    uint32_t n_files, n_runs, n_metadata;
    uint8_t identity[LMC_IDENTITY_SIZE];
} lmc__index_head;

#ifndef LMC_NO_ENCODER
static void lmc__put_index_head(uint8_t *dst, const lmc__index_head *head)
{
    memset(dst, 0, LMC__INDEX_BODY_SIZE);
    lmc__store32(dst, head->n_files);
    lmc__store32(dst + 4, head->n_runs);
    memcpy(dst + 8, head->identity, LMC_IDENTITY_SIZE);
    lmc__store32(dst + 40, head->n_metadata);
}
#endif

/* p: LMC__INDEX_BODY_SIZE bytes. The counts are only what the head says. */
static enum lmc_status lmc__get_index_head(lmc__index_head *head, const uint8_t *p)
{
    head->n_files = lmc__load32(p);
    head->n_runs = lmc__load32(p + 4);
    memcpy(head->identity, p + 8, LMC_IDENTITY_SIZE);
    head->n_metadata = lmc__load32(p + 40);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    return LMC_OK;
}

/* Names and identities of everything that has them among n_entries entries. These are known to be
 * sound: they were built here, or parsed before; so the grammar is only followed, and where a check
 * of it fails nothing is leaked. Items point into the entries. */
static enum lmc_status lmc__collect_items(lmc__buffer *items, const uint8_t *entries,
                                          uint64_t n_entries)
{
    items->size = 0;
    for (; n_entries > 0; n_entries--) {
        const uint8_t *const head = entries + 8, *const body = head + LMC__SECTION_HEADER_SIZE;
        const uint8_t *const behind = body + (size_t)lmc__load64(head + 8);
        if (head[0] == 'F') {
            const uint8_t *identity = behind + LMC__FILE_FACTS_SIZE, *path;
            uint32_t path_size, n_tensors, i;
            lmc__tensor_entry tensor;
            lmc__cursor c;
            lmc_file file;
            c.p = body;
            c.end = behind;
            LMC__TRY(lmc__parse_file_head(&c, &file, &path, &path_size, &n_tensors));
            if (n_tensors == 0) LMC__TRY(lmc__append_item(items, path, path_size, identity));
            for (i = 0; i < n_tensors; i++) {
                LMC__TRY(lmc__parse_tensor(&c, &tensor));
                LMC__TRY(lmc__append_item(items, tensor.name, tensor.name_size,
                                          identity + (size_t)LMC_IDENTITY_SIZE * i));
            }
            entries = identity + (size_t)LMC_IDENTITY_SIZE * (n_tensors ? n_tensors : 1);
        } else {
            const uint64_t run_size = lmc__load64(body), block_size = (uint64_t)1 << body[8];
            entries =
                behind + LMC__BLOCK_ENTRY_SIZE * (size_t)((run_size + block_size - 1) / block_size);
        }
    }
    return LMC_OK;
}

/* Metadata entries, exactly [p, end): each two sizes, a key, a value. Keys are in strictly
 * ascending order, so none is there twice, and have no NUL, so they can be C strings. */
static enum lmc_status lmc__check_metadata(const uint8_t *p, const uint8_t *end, uint32_t n)
{
    lmc__item last, next;
    uint32_t i;
    last.name = NULL;
    last.size = 0;
    for (i = 0; i < n; i++) {
        uint32_t key_size, value_size;
        LMC__CHECK(end - p >= 8, LMC_ERR_CORRUPT);
        key_size = lmc__load32(p);
        value_size = lmc__load32(p + 4);
        p += 8;
        LMC__CHECK(key_size >= 1 && key_size <= LMC__MAX_STRING &&
                       value_size <= LMC__MAX_VALUE_SIZE,
                   LMC_ERR_CORRUPT);
        LMC__CHECK((uint64_t)(end - p) >= (uint64_t)key_size + value_size &&
                       memchr(p, 0, key_size) == NULL,
                   LMC_ERR_CORRUPT);
        next.name = p;
        next.size = key_size;
        LMC__CHECK(last.name == NULL || lmc__compare_names(&last, &next) < 0, LMC_ERR_CORRUPT);
        last = next;
        p += (size_t)key_size + value_size;
    }
    LMC__CHECK(p == end, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* == snapshot/origin.h ============================================================================ */

/* Where the predictions of runs come from: the base, or this very snapshot, as far as it is written
 * or restored. Writer, restorer and reader each have one.
 *
 * A RUN maps its bytes to those that predict them, segment by segment; the base by *items*: its
 * tensors, and its files without tensors, sorted by name and identity (spec 9.3). So a mapping
 * holds for every base of the same content, however it is cut into files.
 *
 * Where a base is refused. In this order; each check rests on those before it.
 *
 *   what is checked               where                        when               status
 *   ----------------------------  ---------------------------  -----------------  ------------
 *   the base describes itself     lmc__open_origin             opening            ARGUMENT
 *   a delta has a base            lmc__check_base              header (restore);  BASE_MISSING
 *                                 lmc__read_prediction         a block is read    BASE_MISSING
 *                                                              (reader: a delta
 *                                                              may be listed
 *                                                              without)
 *   it has the identity that the  lmc__check_base              header, so before  BASE_WRONG
 *   header names                                               anything is
 *                                                              written
 *   no delta without a base in    restore.h, reader.h          RUN section;       CORRUPT
 *   the header                                                 opening
 *   segments map to bytes that    lmc__check_predictions       RUN section;       CORRUPT:
 *   the base has                                               opening            see below
 *   the base can be read          lmc_base.read                a block is read    what it says
 *   the very bytes: Base_CRC      codec/get_delta.h,           a block is         BASE_WRONG
 *                                 codec/get_quantised.h        decoded, before
 *                                                              dst is written
 *   in place, what is already     lmc__decode_snapshot_task    n_done             BASE_WRONG
 *   written is the delta's        (pipeline.h)
 *   in place, files of the same   lmc_can_restore_in_place     the caller asks    0
 *   paths, kinds, sizes
 *
 * The identity protects the whole (a mistake about which file it is); the CRC each block, also from
 * a base that changes while it is read, or whose identity nobody could check (in place, salvage).
 * A base of the right identity that lacks what a segment names is no wrong base: the delta
 * contradicts itself. Not so in salvage, where the header with the identity may be lost: there it
 * is BASE_WRONG. Where a prediction is of the snapshot's own, there is no base to be wrong: a
 * Base_CRC that does not match is CORRUPT. Blocks and tensors (layers 1 and 2) have a prediction in
 * place of a base, and compare its size, and its CRC in the same way. */

/* Bytes of a file. */
typedef struct lmc__range {
    size_t file_number;
    uint64_t start, end;
} lmc__range;

typedef struct lmc__origin {
    /* or NULL */
    const lmc_base *base;
    /* of the base, sorted: lmc__item */
    lmc__buffer items;
    /* of the base */
    uint8_t identity[LMC_IDENTITY_SIZE];
    /* of this snapshot, or NULL */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *user;
    /* read_back reads the base, which is being overwritten; base is NULL */
    int in_place;
    /* lmc__range, in order and not touching: what can be read back */
    lmc__buffer ranges;
    /* what a conversion is made from */
    lmc__buffer wide;
} lmc__origin;

/* See lmc__visit_buffer. */
static void lmc__visit_origin(lmc__origin *o, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&o->items, alloc_user);
    visit(&o->ranges, alloc_user);
    visit(&o->wide, alloc_user);
}

/* base: NULL, or one that is described completely: every file has a path and a known size, every
 * tensor a name and a dtype. Its identity is taken here, from the identities that it says its files
 * and tensors have; whether its bytes are those shows when they are read. On errors the origin is
 * to be freed all the same. */
static enum lmc_status lmc__open_origin(lmc__origin *o, const lmc_base *base, void *alloc_user)
{
    size_t i, j;
    memset(o, 0, sizeof *o);
    lmc__visit_origin(o, lmc__init_buffer, alloc_user);
    o->base = base;
    if (!base) return LMC_OK;
    if (!base->get_file || !base->read) return LMC_ERR_ARGUMENT;
    for (i = 0; i < base->n_files; i++) {
        const lmc_file *f = base->get_file(base->user, i);
        lmc__item item;
        if (!f || !f->path || f->size == LMC_UNKNOWN_SIZE || (f->n_tensors && !f->tensors))
            return LMC_ERR_ARGUMENT;
        for (j = 0; j < lmc__count_identities(f); j++) {
            const lmc_tensor *t = f->n_tensors ? &f->tensors[j] : NULL;
            const char *name = t ? t->name : f->path;
            if (!name || (t && !t->dtype)) return LMC_ERR_ARGUMENT;
            item.name = (const uint8_t *)name;
            item.size = strlen(name);
            item.identity = t ? t->identity : f->identity;
            item.file_number = i;
            item.tensor = t;
            LMC__TRY(lmc__append(&o->items, &item, sizeof item));
        }
    }
    lmc__snapshot_identity(&o->items, o->identity);
    return LMC_OK;
}

static void lmc__free_origin(lmc__origin *o) { lmc__visit_origin(o, lmc__free_visited, NULL); }

/* Of the base, by its number in the sorted order. */
static const lmc__item *lmc__get_item(const lmc__origin *o, size_t i)
{
    return (const lmc__item *)(const void *)o->items.data + i;
}
/* Bytes of the tensor or file that an item is. */
static uint64_t lmc__item_size(const lmc__origin *o, const lmc__item *item)
{
    return item->tensor ? item->tensor->size
                        : o->base->get_file(o->base->user, item->file_number)->size;
}

/* The base that the header names is the one at hand. In place that is for the caller to know. */
static enum lmc_status lmc__check_base(const lmc__origin *o, const uint8_t *header)
{
    if (!lmc__has_base(header) || o->in_place) return LMC_OK;
    LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    LMC__CHECK(memcmp(header + LMC__BASE_IDENTITY_AT, o->identity, LMC_IDENTITY_SIZE) == 0,
               LMC_ERR_BASE_WRONG);
    return LMC_OK;
}

#ifndef LMC_NO_ENCODER
/* The number of the item that may predict `size` bytes of that name and dtype (NULL: a file's),
 * plus 1; or 0. Names, dtypes and sizes must be equal. Of several, the one in the file of that
 * path: optimizer states have the names of their weights. */
static uint32_t lmc__match_item(const lmc__origin *o, const char *path, const char *name,
                                const char *dtype, uint64_t size)
{
    const size_t n = o->items.size / sizeof(lmc__item);
    size_t i = lmc__find_name((const lmc__item *)(const void *)o->items.data, n, name);
    uint32_t found = 0;
    for (; i < n && i < UINT32_MAX; i++) {
        const lmc__item *item = lmc__get_item(o, i);
        int is_of_path;
        if (item->size != strlen(name) || memcmp(item->name, name, item->size) != 0) break;
        is_of_path = strcmp(o->base->get_file(o->base->user, item->file_number)->path, path) == 0;
        if ((item->tensor != NULL) != (dtype != NULL) ||
            (dtype && strcmp(item->tensor->dtype, dtype) != 0) || lmc__item_size(o, item) != size)
            continue;
        if (is_of_path) return (uint32_t)i + 1;
        if (!found) found = (uint32_t)i + 1;
    }
    return found;
}
#endif

typedef struct lmc__range_search {
    const uint8_t *ranges; /* each begins with a lmc__range */
    size_t step;           /* from one to the next */
    uint64_t file_number, offset;
} lmc__range_search;

static int lmc__is_range_before(const void *context, size_t i)
{
    const lmc__range_search *const s = (const lmc__range_search *)context;
    const lmc__range *const r = (const lmc__range *)(const void *)(s->ranges + i * s->step);
    return r->file_number < s->file_number ||
           (r->file_number == s->file_number && r->end <= s->offset);
}

/* Of a buffer of elements of `step` bytes that begin with a lmc__range, in order: the number of the
 * first that ends behind offset of that file, or belongs to a later one. */
static size_t lmc__find_file_range(const lmc__buffer *ranges, size_t step, uint64_t file_number,
                                   uint64_t offset)
{
    lmc__range_search search;
    search.ranges = ranges->data;
    search.step = step;
    search.file_number = file_number;
    search.offset = offset;
    return lmc__find_first(0, ranges->size / step, lmc__is_range_before, &search);
}

/* Bytes [offset, offset + size) of a file belong to runs that were added. */
static int lmc__can_read_back(const lmc__origin *o, uint64_t file_number, uint64_t offset,
                              uint64_t size)
{
    const lmc__range *const ranges = (const lmc__range *)(const void *)o->ranges.data;
    const size_t i = lmc__find_file_range(&o->ranges, sizeof *ranges, file_number, offset);
    if (size == 0) return 1;
    return i < o->ranges.size / sizeof *ranges && ranges[i].file_number == file_number &&
           ranges[i].start <= offset && size <= ranges[i].end - offset;
}

/* Bytes of prediction for one byte of the run: a conversion makes 16 bits of 32. */
static unsigned lmc__prediction_scale(const lmc__run *run) { return run->conversion ? 2 : 1; }

/* Segment s of a run that is predicted by the base maps to bytes that the base has. */
static int lmc__is_in_base(const lmc__origin *o, const lmc__segment *s)
{
    uint64_t item_size;
    if (s->base > o->items.size / sizeof(lmc__item)) return 0;
    item_size = lmc__item_size(o, lmc__get_item(o, s->base - 1));
    return s->base_offset <= item_size && s->size <= item_size - s->base_offset;
}

/* Segment s of a run that is predicted by its own snapshot maps to bytes that come before it. */
static int lmc__is_written_before(const lmc__origin *o, const lmc__run *run, const lmc__segment *s)
{
    const uint64_t size = lmc__prediction_scale(run) * s->size; /* s->size is below 2^63 */
    return s->base_offset <= LMC__MAX_FILE_SIZE && size <= LMC__MAX_FILE_SIZE - s->base_offset &&
           lmc__can_read_back(o, s->base - 1, s->base_offset, size);
}

/* Every segment of the run maps to bytes that are there: only then lmc__read_prediction may be
 * called. not_in_base: what to say of a segment that the base has not. */
static enum lmc_status lmc__check_predictions(const lmc__origin *o, const lmc__run *run,
                                              enum lmc_status not_in_base)
{
    uint32_t i;
    if (run->prediction == LMC__PREDICT_ZERO) return LMC_OK;
    if (run->prediction == LMC__PREDICT_BASE && o->in_place) return LMC_OK; /* at its own place */
    if (run->prediction == LMC__PREDICT_BASE) LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    for (i = 0; i < run->n_segments; i++) {
        const lmc__segment s = lmc__segment_at(run, i);
        if (s.base == 0) continue;
        if (run->prediction == LMC__PREDICT_BASE) LMC__CHECK(lmc__is_in_base(o, &s), not_in_base);
        else LMC__CHECK(lmc__is_written_before(o, run, &s), LMC_ERR_CORRUPT);
    }
    return LMC_OK;
}

/* From now on the run can be read back, unless it refers to its own snapshot itself: references are
 * one step deep, so that reading one never leads to another. */
static enum lmc_status lmc__add_run(lmc__origin *o, const lmc__run *run)
{
    lmc__range *last = (lmc__range *)(void *)o->ranges.data, range;
    if (run->prediction == LMC__PREDICT_OWN) return LMC_OK;
    if (o->ranges.size) {
        last += o->ranges.size / sizeof *last - 1;
        if (last->file_number == run->file_number && last->end == run->start) {
            last->end += run->size;
            return LMC_OK;
        }
    }
    range.file_number = run->file_number;
    range.start = run->start;
    range.end = run->start + run->size;
    return lmc__append(&o->ranges, &range, sizeof range);
}

typedef struct lmc__segment_search {
    const lmc__run *run;
    uint64_t offset;
} lmc__segment_search;

static int lmc__is_segment_before(const void *context, size_t i)
{
    const lmc__segment_search *const s = (const lmc__segment_search *)context;
    return lmc__segment_at(s->run, (uint32_t)i).start <= s->offset;
}

/* The segment of a byte of the run's file: the last that does not begin behind it. */
static uint32_t lmc__find_segment(const lmc__run *run, uint64_t offset)
{
    lmc__segment_search search;
    search.run = run;
    search.offset = offset;
    return (uint32_t)lmc__find_first(1, run->n_segments, lmc__is_segment_before, &search) - 1;
}

/* A place in a file of the base, or of this snapshot. */
typedef struct lmc__place {
    size_t file_number;
    uint64_t start;
} lmc__place;

/* Where the prediction of a segment begins, which has one. */
static lmc__place lmc__locate(const lmc__origin *o, const lmc__run *run, const lmc__segment *s)
{
    lmc__place place;
    if (run->prediction == LMC__PREDICT_OWN) {
        place.file_number = s->base - 1;
        place.start = s->base_offset;
    } else if (o->in_place) {
        place.file_number = run->file_number;
        place.start = s->start;
    } else {
        const lmc__item *item = lmc__get_item(o, s->base - 1);
        place.file_number = item->file_number;
        place.start = (item->tensor ? item->tensor->offset : 0) + s->base_offset;
    }
    return place;
}

/* The prediction of a segment begins there: mostly what lies side by side does so in the base, too,
 * and is best read at once. */
static int lmc__begins_at(const lmc__origin *o, const lmc__run *run, const lmc__segment *s,
                          size_t file_number, uint64_t start)
{
    lmc__place place;
    if (s->base == 0) return 0;
    place = lmc__locate(o, run, s);
    return place.file_number == file_number && place.start == start;
}

/* The prediction of size bytes of the run, from that place on. Blocks and segments have whole
 * elements, so a conversion has them, too; it reads twice the bytes. */
static enum lmc_status lmc__read_place(lmc__origin *o, const lmc__run *run, size_t file_number,
                                       uint64_t start, uint8_t *dst, size_t size)
{
    if (run->prediction == LMC__PREDICT_BASE && !o->in_place)
        return o->base->read(o->base->user, file_number, start, dst, size);
    if (!run->conversion) return o->read_back(o->user, file_number, start, dst, size);
    LMC__TRY(lmc__reserve(&o->wide, 2 * (uint64_t)size));
    LMC__TRY(o->read_back(o->user, file_number, start, o->wide.data, 2 * size));
    lmc_convert(dst, o->wide.data, size / 2, (enum lmc_conversion)run->conversion);
    return LMC_OK;
}

/* The prediction of bytes [offset, offset + size) of a run that was checked, to dst: zeros where a
 * segment has no base. Segments whose predictions lie side by side, as those of small tensors
 * mostly do, are read at once. */
static enum lmc_status lmc__read_prediction(lmc__origin *o, const lmc__run *run, uint64_t offset,
                                            uint8_t *dst, size_t size)
{
    const unsigned scale = lmc__prediction_scale(run);
    uint32_t i;
    offset += run->start;
    if (run->prediction == LMC__PREDICT_BASE && !o->base && !o->in_place)
        return LMC_ERR_BASE_MISSING;
    if ((run->prediction == LMC__PREDICT_OWN || o->in_place) && !o->read_back)
        return LMC_ERR_READ_BACK;
    for (i = lmc__find_segment(run, offset); size != 0; i++) {
        lmc__segment s = lmc__segment_at(run, i);
        const uint64_t at = offset - s.start; /* not 0 only in the first */
        size_t part = (size_t)lmc__min64(size, s.size - at);
        if (s.base == 0) {
            memset(dst, 0, part);
        } else {
            lmc__place from = lmc__locate(o, run, &s);
            from.start += scale * at;
            for (; part < size; i++) { /* segments that are read with this one */
                s = lmc__segment_at(run, i + 1);
                if (!lmc__begins_at(o, run, &s, from.file_number, from.start + scale * part)) break;
                part += (size_t)lmc__min64(size - part, s.size);
            }
            LMC__TRY(lmc__read_place(o, run, from.file_number, from.start, dst, part));
        }
        dst += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}

/* == snapshot/writer_plan.h ======================================================================= */

#ifndef LMC_NO_ENCODER

/* What the writer makes of a file: which bytes become a run, how they are coded, and what they are
 * predicted by. A run is all of one dtype and one kind of prediction:
 *
 *     file   | header |  embed (large)  | norm | q | k (small, alike) | head (large) | rest |
 *     runs   |  AUTO  |      BF16       |         BF16                |     BF16     | AUTO |
 *     segments                1           1      1   1, if predicted         1
 *
 * A large tensor is a run of its own: its blocks begin where it begins, so that a slice of it, and
 * the same tensor of the next snapshot, are cut alike. Small neighbours share one, as a block for
 * each would cost more headers and trees than it saves. Bytes between tensors are AUTO.
 *
 * What a tensor is predicted by: its twin, if that was written before and can be read back; else
 * the tensor of that name in the base; else nothing. A quantised tensor has its second moment, or
 * nothing. The plan depends on descriptions alone, not on what blocks turn out to be: so runs, and
 * with them all bytes written, are the same however the file comes. */

/* A longer range of tensors or other bytes is cut; a multiple of any block size, and fewer than
 * 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* A tensor of at least this many blocks starts a run of its own. */
#define LMC__OWN_RUN_BLOCKS 4u

/* What a plan is made from. Nothing of it changes while a run is written, but for position. */
typedef struct lmc__planner {
    const lmc_writer_options *options;
    /* where predictions come from; reads back by lmc__read_written */
    lmc__origin origin;
    /* lmc__quantized_range, of all files */
    lmc__buffer quantized;
    /* the file at hand, and its number */
    lmc_file file;
    uint32_t file_number;
    /* of bytes that are in no tensor */
    enum lmc_dtype default_dtype;
    /* one of the file's tensors does */
    int has_quantizer;
    /* bytes of the file that are in runs begun so far */
    uint64_t position;
    /* the first that does not end before position, or a lower one */
    size_t next_tensor;
} lmc__planner;

/* -- what was written, as it can be read back -- */

/* A tensor that the caller has otherwise than the snapshot: it was quantised on its way. */
typedef struct lmc__quantized_range {
    lmc__range range;
    const lmc__quant_params *quant;
} lmc__quantized_range;

/* Valid until the next file begins. */
static const lmc__quantized_range *lmc__quantized_at(const lmc__planner *p, size_t i)
{
    return (const lmc__quantized_range *)(const void *)p->quantized.data + i;
}

/* Number i is there, and has bytes of [offset, end) of that file. */
static int lmc__is_quantized_in(const lmc__planner *p, size_t i, size_t file_number, uint64_t end)
{
    return i < p->quantized.size / sizeof(lmc__quantized_range) &&
           lmc__quantized_at(p, i)->range.file_number == file_number &&
           lmc__quantized_at(p, i)->range.start < end;
}

/* The first that does not end before offset of that file; those behind it follow in order. */
static size_t lmc__find_quantized(const lmc__planner *p, size_t file_number, uint64_t offset)
{
    return lmc__find_file_range(&p->quantized, sizeof(lmc__quantized_range), file_number, offset);
}

/* Whether any pieces of those bytes can be read as the snapshot has them: no updates, which want a
 * second moment, nor parts of elements. */
static int lmc__is_readable(const lmc__planner *p, size_t file_number, uint64_t offset,
                            uint64_t size)
{
    size_t i = lmc__find_quantized(p, file_number, offset);
    for (; lmc__is_quantized_in(p, i, file_number, offset + size); i++) {
        const lmc__range *const r = &lmc__quantized_at(p, i)->range;
        const lmc__quant_params *const quant = lmc__quantized_at(p, i)->quant;
        if (quant->is_predicted || (r->start - offset) % quant->width ||
            (offset + size < r->end && (offset + size - r->start) % quant->width))
            return 0;
    }
    return 1;
}

/* The origin's read_back; user: the planner. What the caller has, quantised where the snapshot is.
 */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    const lmc__planner *const p = (const lmc__planner *)user;
    const uint64_t end = offset + size;
    size_t i = lmc__find_quantized(p, file_number, offset);
    LMC__TRY(p->options->read_back(p->options->read_back_user, file_number, offset, dst, size));
    for (; lmc__is_quantized_in(p, i, file_number, end); i++) {
        const lmc__range *const r = &lmc__quantized_at(p, i)->range;
        const uint64_t from = r->start > offset ? r->start : offset, to = lmc__min64(r->end, end);
        LMC__TRY(lmc__quantize_range(lmc__quantized_at(p, i)->quant,
                                     (uint8_t *)dst + (size_t)(from - offset), from - r->start,
                                     (size_t)(to - from), NULL));
    }
    return LMC_OK;
}

/* -- files -- */

/* The tensor's quantiser, if it has one, was fitted to such a tensor, of its generation: elements
 * that were quantised once more lose once more, unless the quantiser is the one that they were
 * quantised with. One that wants a second moment is told by the twin where that is. */
static enum lmc_status lmc__check_quantization(const lmc_tensor *t)
{
    const lmc__quant_params *const q = lmc__get_quant_params(t->quantizer);
    LMC__TRY(lmc__check_quantizer(t->quantizer, lmc_find_dtype(t->dtype), t->size));
    if (!q) return LMC_OK;
    if (lmc__get_quantizer_loss(t->quantizer).generation !=
        t->loss.generation + (q->is_recovered ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (t->twin && t->twin->conversion == LMC_CONVERT_NONE)
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

/* Begins the file that p->file describes, a copy of `given` that lacks its pointers: twins and
 * quantisers are taken over. tensors: those of p->file. */
static enum lmc_status lmc__plan_file(lmc__planner *p, lmc_tensor *tensors, const lmc_file *given,
                                      uint32_t file_number, enum lmc_dtype default_dtype)
{
    size_t i;
    p->file_number = file_number;
    p->default_dtype = default_dtype;
    p->has_quantizer = 0;
    p->position = 0;
    p->next_tensor = 0;
    for (i = 0; i < given->n_tensors; i++) {
        lmc_tensor *const t = &tensors[i];
        lmc__quantized_range quantized;
        t->twin = given->tensors[i].twin;
        t->quantizer = given->tensors[i].quantizer;
        quantized.quant = lmc__get_quant_params(t->quantizer);
        if (!quantized.quant) continue;
        p->has_quantizer = 1;
        if (quantized.quant->is_recovered) continue; /* the caller has it as it is */
        quantized.range.file_number = file_number;
        quantized.range.start = t->offset;
        quantized.range.end = t->offset + t->size;
        LMC__TRY(lmc__append(&p->quantized, &quantized, sizeof quantized));
    }
    return LMC_OK;
}

/* -- predictions -- */

/* How a tensor is predicted, and by what: as RUN body and segment say it. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t base; /* 0: by nothing */
    uint64_t base_offset;
} lmc__prediction;

/* By its twin, if it has one that can be read back now as it will be restored then; else .base is
 * 0. A twin that is promised wrongly costs size, not correctness: what predicts a block is always
 * what was read. */
static lmc__prediction lmc__predict_by_twin(const lmc__planner *p, const lmc_tensor *t)
{
    const lmc_twin *const twin = p->options->read_back ? t->twin : NULL;
    lmc__prediction found;
    uint64_t size;
    memset(&found, 0, sizeof found);
    if (!twin || (unsigned)twin->conversion > LMC_CONVERT_F32_TO_F16 ||
        twin->file_number >= UINT32_MAX || (twin->conversion && t->size % 2 != 0))
        return found;
    size = twin->conversion ? 2 * t->size : t->size;
    if (twin->offset > LMC__MAX_FILE_SIZE || size > LMC__MAX_FILE_SIZE - twin->offset ||
        !lmc__can_read_back(&p->origin, twin->file_number, twin->offset, size) ||
        !lmc__is_readable(p, (size_t)twin->file_number, twin->offset, size))
        return found;
    found.kind = LMC__PREDICT_OWN;
    found.conversion = twin->conversion;
    found.base = (uint32_t)twin->file_number + 1;
    found.base_offset = twin->offset;
    return found;
}

/* What predicts a tensor; t: NULL for a file without tensors. By the same description and the same
 * base it is always the same: it is asked for more than once, when runs are planned and when
 * segments are written. */
static lmc__prediction lmc__find_prediction(const lmc__planner *p, const lmc_tensor *t)
{
    const lmc_file *const f = &p->file;
    const lmc__quant_params *const quant = lmc__get_quant_params(t ? t->quantizer : NULL);
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (t && (!quant || quant->is_predicted)) found = lmc__predict_by_twin(p, t);
    if (found.base || quant || !p->origin.base) return found;
    found.base = t ? lmc__match_item(&p->origin, f->path, t->name, t->dtype, t->size)
                   : lmc__match_item(&p->origin, f->path, f->path, NULL, f->size);
    if (found.base) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* The tensor's twin is in the run that would begin at start of this file: only in a later run can
 * it refer to that. */
static int lmc__repeats_run(const lmc__planner *p, const lmc_tensor *t, uint64_t start)
{
    const lmc_twin *const twin = p->options->read_back ? t->twin : NULL;
    return twin && twin->file_number == p->file_number &&
           (twin->offset >= start || t->size > start - twin->offset);
}

/* -- runs -- */

/* What lmc__plan_run has found. */
typedef struct lmc__planned_run {
    uint64_t size;
    enum lmc_dtype dtype;
    lmc__prediction prediction;     /* of the first of its tensors; its kind is that of all */
    const lmc__quant_params *quant; /* or NULL */
    uint64_t quantized_from;        /* where its tensor begins */
    size_t block_size;
} lmc__planned_run;

/* Quantised runs have a table in each block, as deltas have much else: theirs are as large. */
static size_t lmc__choose_block_size(const lmc__planner *p, const lmc__planned_run *run)
{
    return lmc__get_block_size(run->dtype, p->options->log2_block,
                               run->prediction.kind != LMC__PREDICT_ZERO || run->quant != NULL);
}

/* Tensor number i begins a run that ends at the result: at its own end, or at that of the last of
 * the small ones that lie behind it without a gap and are coded alike. */
static uint64_t lmc__plan_tensors(lmc__planner *p, lmc__planned_run *run, size_t i)
{
    const lmc_file *const f = &p->file;
    uint64_t end = f->tensors[i].offset + f->tensors[i].size, large;
    uint32_t n = 0;
    run->dtype = lmc_find_dtype(f->tensors[i].dtype);
    run->prediction = lmc__find_prediction(p, &f->tensors[i]);
    large = (uint64_t)LMC__OWN_RUN_BLOCKS * lmc__choose_block_size(p, run);
    run->quant = lmc__get_quant_params(f->tensors[i].quantizer);
    run->quantized_from = f->tensors[i].offset;
    if (f->tensors[i].size >= large || run->quant) return end;
    for (i++; i < f->n_tensors && ++n < LMC__MAX_SEGMENTS; i++) {
        const lmc_tensor *const t = &f->tensors[i];
        lmc__prediction next;
        if (t->offset != end || t->size >= large || lmc_find_dtype(t->dtype) != run->dtype ||
            lmc__get_quant_params(t->quantizer) || lmc__repeats_run(p, t, p->position))
            break;
        next = lmc__find_prediction(p, t);
        if (next.kind != run->prediction.kind || next.conversion != run->prediction.conversion)
            break;
        end += t->size;
    }
    return end;
}

/* The run of the bytes that come next, of which at least one is there; available: all that are
 * known to come if the file's size is unknown. Bytes in no tensor make runs up to where the next
 * one begins.
 *
 * A run has whole elements. What does not fill one (a file may end so, or hold a tensor of odd
 * bytes) is left for a run of bytes, which comes next; so every byte is in a run, and each call
 * makes one of at least one byte. */
static enum lmc_status lmc__plan_run(lmc__planner *p, size_t available, lmc__planned_run *run)
{
    const lmc_file *const f = &p->file;
    unsigned width;
    memset(run, 0, sizeof *run);
    run->dtype = p->default_dtype;
    if (f->size == LMC_UNKNOWN_SIZE) {
        run->size = available;
    } else {
        size_t *const i = &p->next_tensor;
        uint64_t end = f->size;
        if (p->position == f->size) return LMC_ERR_ARGUMENT; /* more than the file has */
        if (f->n_tensors == 0) run->prediction = lmc__find_prediction(p, NULL);
        while (*i < f->n_tensors && f->tensors[*i].offset + f->tensors[*i].size <= p->position)
            ++*i;
        if (*i < f->n_tensors)
            end = f->tensors[*i].offset <= p->position ? lmc__plan_tensors(p, run, *i)
                                                       : f->tensors[*i].offset;
        run->size = end - p->position;
    }
    run->size = lmc__min64(run->size, LMC__MAX_RUN_SIZE);
    width = lmc_dtype_width(run->dtype);
    if (run->size < width) run->dtype = LMC_AUTO;
    else run->size -= run->size % width;
    if (run->dtype == LMC_AUTO && run->size > 4096)
        run->size -= run->size % 8; /* so that every block can be split at any width */
    if (run->quant && run->quant->is_predicted && run->prediction.kind != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its twin was not written before */
    run->block_size = lmc__choose_block_size(p, run);
    return LMC_OK;
}

/* Appends a planned run's segments: one for each tensor that is predicted, else one for all. *n:
 * how many. The limit can be met only by a file of more small tensors than any has. */
static enum lmc_status lmc__append_segments(const lmc__planner *p, const lmc__planned_run *run,
                                            lmc__buffer *out, uint32_t *n)
{
    const uint64_t end = p->position + run->size;
    const int is_by_tensor = run->prediction.kind != LMC__PREDICT_ZERO && p->file.n_tensors != 0;
    uint64_t at = p->position;
    size_t i = p->next_tensor;
    *n = 0;
    while (at < end) {
        lmc__prediction found = run->prediction;
        uint64_t stop = end, start = 0; /* of the tensor */
        uint8_t field[LMC__SEGMENT_SIZE];
        lmc__segment segment;
        if (is_by_tensor) {
            const lmc_tensor *t = &p->file.tensors[i];
            while (t->offset + t->size <= at) t = &p->file.tensors[++i]; /* empty ones, too */
            start = t->offset;
            stop = lmc__min64(end, start + t->size);
            found = lmc__find_prediction(p, t);
        }
        if (*n == LMC__MAX_SEGMENTS) return LMC_ERR_LIMIT;
        ++*n;
        segment.file_number = p->file_number;
        segment.base = found.base;
        segment.start = at;
        segment.size = stop - at;
        segment.base_offset =
            found.base ? found.base_offset + (found.conversion ? 2 : 1) * (at - start) : 0;
        lmc__put_segment(field, &segment);
        LMC__TRY(lmc__append(out, field, sizeof field));
        at = stop;
    }
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */

/* == snapshot/writer_blocks.h ===================================================================== */

#ifndef LMC_NO_ENCODER

/* The writer's way from bytes to blocks in the sink.
 *
 *     lmc__write_bytes   caller's memory ---+          +-> in place, whole blocks
 *                                           |          |
 *     lmc__write_stream  in[0] <-> in[1] ---+-> blocks +-> jobs -> wave -> out[0] <-> out[1] ->
 * sink |          | carry  the beginning of a block ------+          +-> a block that was in pieces
 *
 * Blocks are coded from where their bytes are, never copied, but for the one that begins in what
 * one call brings and ends in what the next does: its beginning waits in carry. From a stream it
 * does not even do that: it is moved to just before the next span, for which room is left there.
 *
 *     in[0]  |  room  |#### span 0 ########|==|             ==: the beginning of a block
 *     in[1]            |==|#### span 1 ##########|          moved to before its rest
 *
 * A file of unknown size is cut into runs of LMC__PENDING_SIZE, for a RUN section says how many
 * bytes follow: that many are collected, in carry or in the span, before any is coded.
 *
 * Each block has a slot in out as large as it can get, and behind the one before: so sections and
 * blocks of a wave lie in their order, with gaps, and are written as parts. A run's section stands
 * before its first block (head_size). */

/* Files of unknown size are cut into runs of this many bytes. */
#define LMC__PENDING_SIZE ((size_t)16 << 20)

struct lmc_writer {
    lmc_writer_options options;
    /* the first error stays */
    enum lmc_status status;
    /* bytes written, or about to be */
    uint64_t offset;
    lmc__coder coder;
    lmc__index_builder index;
    /* of the section at hand */
    lmc__buffer body;
    /* encoded entries, in the order they came */
    lmc__buffer metadata;
    /* see lmc__add_path */
    lmc__buffer paths;
    uint32_t n_files, n_runs, n_metadata;
    int has_empty_path, is_finished;
    uint8_t identity[LMC_IDENTITY_SIZE];

    lmc__planner plan;
    int in_file;
    /* of plan.file */
    lmc__buffer file_memory;
    lmc__digester digester;

    /* the run at hand; where it is from: */
    lmc__run run;
    lmc__planned_run planned;
    /* bytes of it that are in no job yet */
    uint64_t run_left;
    /* number of the next block */
    uint32_t block;
    /* to be written before its first block: header and body of its section */
    lmc__buffer run_head;
    /* bytes of the file that are in no job yet: the beginning of a block; of a run if the file's
     * size is unknown */
    lmc__buffer carry;
};

/* A file is at hand that ends when the caller says so. */
static int lmc__is_size_unknown(const lmc_writer *w)
{
    return w->in_file && w->plan.file.size == LMC_UNKNOWN_SIZE;
}

/* Begin the run of the bytes that come next: see lmc__plan_run. What it says is written down, and
 * read again as every reader will. */
static enum lmc_status lmc__begin_run(lmc_writer *w, size_t available)
{
    lmc__buffer *const head = &w->run_head;
    uint64_t position = w->plan.position;
    lmc__run run;
    uint8_t *body;
    size_t body_size;
    LMC__TRY(lmc__plan_run(&w->plan, available, &w->planned));
    if (w->n_runs == UINT32_MAX) return LMC_ERR_LIMIT;
    memset(&run, 0, sizeof run);
    run.size = w->planned.size;
    run.block_size = w->planned.block_size;
    run.prediction = w->planned.prediction.kind;
    run.conversion = w->planned.prediction.conversion;
    head->size = 0;
    LMC__TRY(lmc__append(head, NULL, LMC__SECTION_HEADER_SIZE + LMC__RUN_BODY_SIZE));
    LMC__TRY(lmc__append_segments(&w->plan, &w->planned, head, &run.n_segments));
    body = head->data + LMC__SECTION_HEADER_SIZE;
    body_size = head->size - LMC__SECTION_HEADER_SIZE;
    lmc__put_run(body, &run);
    lmc__put_section_header(head->data, "RUN ", w->n_runs, body, body_size, w->coder.wave.k);
    LMC__TRY(lmc__parse_run(&w->run, body, body_size, w->n_files - 1, &w->plan.file, &position));
    LMC__TRY(lmc__add_run(&w->plan.origin, &w->run));
    LMC__TRY(lmc__set_coder(&w->coder, run.block_size,
                            run.block_size / lmc_dtype_width(w->planned.dtype), 0));
    w->n_runs++;
    w->block = 0;
    w->run_left = run.size;
    w->plan.position = position;
    return LMC_OK;
}

/* Encodes the wave that is planned; beside that, what the wave before has made is written. Then
 * what is known of its blocks goes to the digester and to the index, in order, and its slots become
 * parts, to be written with the next wave. The gaps between them, where blocks got smaller than
 * their slots, are not written.
 *
 * w->offset counts what is going to be written, so that the index can say where blocks begin. */
static enum lmc_status lmc__encode_wave(lmc_writer *w)
{
    lmc__coder *c = &w->coder;
    const size_t n = c->n_jobs;
    size_t i;
    if (n == 0) return LMC_OK;
    LMC__TRY(lmc__run_step(c));
    w->digester.identities = lmc__index_identities(&w->index);
    lmc__absorb_pieces(c, &w->digester);
    for (i = 0; i < n; i++) {
        const lmc__job *job = &lmc__job_at(c, i)->job;
        const size_t head_size = lmc__job_at(c, i)->head_size;
        const uint8_t *start = job->dst - head_size;
        if (head_size)
            LMC__TRY(lmc__index_section(&w->index, w->offset, start,
                                        start + LMC__SECTION_HEADER_SIZE,
                                        head_size - LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__index_block(&w->index, job->dst_size, job->dst));
        LMC__TRY(lmc__add_part(c, start, head_size + job->dst_size));
        w->offset += head_size + job->dst_size;
    }
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Room in `out`, of a wave that has no jobs yet, for all that it may get: pointers into it from now
 * on. A sixteenth more is for the headers of many small blocks. */
static enum lmc_status lmc__begin_wave(lmc_writer *w, lmc__buffer *out, size_t head_size)
{
    lmc__coder *const c = &w->coder;
    const uint64_t size = lmc__get_wave_size(c, w->planned.block_size);
    LMC__TRY(lmc__reserve(out, size + size / 16 + head_size));
    if (w->plan.origin.base || w->plan.origin.read_back)
        LMC__TRY(lmc__reserve(&c->base, out->cap)); /* a prediction is no larger than its slot */
    return LMC_OK;
}

/* The next block of the run becomes a job; size: of it. data must stay until the wave is encoded.
 * Its prediction is read now, by the caller's thread: callbacks of the base are never called by
 * workers. */
static enum lmc_status lmc__plan_block(lmc_writer *w, const uint8_t *data, size_t size)
{
    lmc__coder *const c = &w->coder;
    const lmc__quant_params *const quant = w->planned.quant;
    const uint64_t at = w->run.size - w->run_left; /* within the run */
    const size_t head_size = w->block == 0 ? w->run_head.size : 0,
                 slot = head_size + lmc_bound_block(size);
    lmc__buffer *out = &c->out[c->out_number];
    lmc__snapshot_job *block_job;
    lmc__job *job;
    if (c->n_jobs && slot > out->cap - out->size) {
        LMC__TRY(lmc__encode_wave(w));
        out = &c->out[c->out_number];
    }
    if (c->n_jobs == 0) LMC__TRY(lmc__begin_wave(w, out, head_size));
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    if (w->run.prediction != LMC__PREDICT_ZERO) {
        uint8_t *const base = c->base.data + c->base.size;
        c->base.size += size;
        LMC__TRY(lmc__read_prediction(&w->plan.origin, &w->run, at, base, size));
        job->base = base;
    }
    if (head_size) memcpy(out->data + out->size, w->run_head.data, head_size);
    block_job->head_size = head_size;
    job->src = data;
    job->src_size = size;
    job->dst = out->data + out->size + head_size;
    job->dst_size = slot - head_size;
    job->dtype = w->planned.dtype;
    job->level = w->options.level;
    job->quant = quant;
    job->first_element = quant ? (w->run.start + at - w->planned.quantized_from) / quant->width : 0;
    job->position.run = w->n_runs - 1;
    job->position.block = w->block++;
    out->size += slot;
    w->run_left -= size;
    return lmc__plan_pieces(c, &w->digester, block_job, size);
}

/* Plans blocks of the next bytes, and begins runs as needed; *rest: how many bytes at the end are
 * less than a block. data must stay until the wave is encoded. */
static enum lmc_status lmc__plan_blocks(lmc_writer *w, const uint8_t *data, size_t size,
                                        size_t *rest)
{
    while (size != 0) {
        size_t n;
        if (w->run_left == 0) LMC__TRY(lmc__begin_run(w, size));
        n = (size_t)lmc__min64(w->planned.block_size, w->run_left);
        if (n > size) break;
        LMC__TRY(lmc__plan_block(w, data, n));
        data += n;
        size -= n;
    }
    *rest = size;
    return LMC_OK;
}

/* Encodes what is in carry: whole blocks, or the last of a file. */
static enum lmc_status lmc__flush_carry(lmc_writer *w)
{
    size_t rest;
    LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
    w->carry.size = 0;
    return lmc__encode_wave(w);
}

/* The file's next bytes, in the caller's memory, which is his again when this returns: so a wave is
 * encoded before that, however small. carry is empty, or has the beginning of a block (of a run if
 * the file's size is unknown), which is filled up first. */
static enum lmc_status lmc__write_bytes(lmc_writer *w, const uint8_t *data, size_t size)
{
    const int is_unknown = lmc__is_size_unknown(w);
    if (!w->in_file || (!data && size)) return LMC_ERR_ARGUMENT;
    while (size != 0) {
        size_t n = size;
        if (is_unknown ||
            w->carry.size) { /* in carry is the beginning of what is coded as a whole */
            const size_t whole = is_unknown
                                     ? LMC__PENDING_SIZE
                                     : (size_t)lmc__min64(w->planned.block_size, w->run_left);
            if (is_unknown && w->plan.position + w->carry.size >= LMC__MAX_FILE_SIZE - size)
                return LMC_ERR_LIMIT;
            LMC__TRY(lmc__reserve(&w->carry, whole - w->carry.size));
            n = lmc__min(size, whole - w->carry.size);
            LMC__TRY(lmc__append(&w->carry, data, n));
            if (w->carry.size == whole) LMC__TRY(lmc__flush_carry(w));
        } else { /* straight from the caller's memory */
            size_t rest;
            LMC__TRY(lmc__plan_blocks(w, data, size, &rest));
            LMC__TRY(lmc__encode_wave(w));
            LMC__TRY(lmc__append(&w->carry, data + size - rest, rest));
        }
        data += n;
        size -= n;
    }
    return LMC_OK;
}

/* See the picture above. What waits in carry becomes the beginning of the first span, and what is
 * left over at the end, less than a block or a run, waits there again. */
static enum lmc_status lmc__write_stream(lmc_writer *w, const lmc_stream *stream)
{
    lmc__coder *c = &w->coder;
    const int is_unknown = lmc__is_size_unknown(w);
    const size_t room = is_unknown
                            ? 0
                            : lmc__get_block_size(LMC_U64, w->options.log2_block,
                                                  w->options.base || w->options.read_back ||
                                                      w->plan.has_quantizer); /* none is larger */
    const uint64_t wave_size = lmc__get_wave_size(c, room),
                   span = is_unknown ? LMC__PENDING_SIZE : wave_size;
    uint64_t left;
    size_t size, rest;
    unsigned number = 0;
    uint8_t *data;
    if (!w->in_file || !stream || !stream->read) return LMC_ERR_ARGUMENT;
    if (span > SIZE_MAX / 4) return LMC_ERR_SIZE;
    c->stream = *stream;
    c->ended = 0;
    left = (is_unknown ? LMC__MAX_FILE_SIZE : w->plan.file.size) -
           (w->plan.position - w->run_left) - w->carry.size;
    rest = w->carry.size;
    LMC__TRY(lmc__reserve(&c->in[0], room + span));
    data = c->in[0].data + room; /* carry has less than room for blocks, less than span for runs */
    if (!is_unknown) data -= rest;
    if (rest) memcpy(data, w->carry.data, rest);
    w->carry.size = 0;
    lmc__want(c, data + rest, (size_t)lmc__min64(is_unknown ? span - rest : span, left),
              SIZE_MAX / 2);
    for (;;) {
        lmc__buffer *next = &c->in[number ^= 1];
        lmc__read_portion(c); /* the first, or what no step has read */
        while (c->read_got < c->read_size && !c->ended && !c->read_failed) lmc__read_portion(c);
        if (c->read_failed) return LMC_ERR_READ;
        left -= c->read_got;
        size = rest + c->read_got;
        if (size == 0 || (is_unknown && size < span)) break;
        LMC__TRY(lmc__reserve(next, room + span));
        lmc__want(c, next->data + room, c->ended ? 0 : (size_t)lmc__min64(span, left),
                  (size_t)wave_size);
        LMC__TRY(lmc__plan_blocks(w, data, size, &rest));
        LMC__TRY(lmc__encode_wave(w));
        if (c->read_size == 0) {
            data += size - rest;
            size = rest;
            break;
        }
        if (rest) memcpy(next->data + room - rest, data + size - rest, rest);
        data = next->data + room - rest;
    }
    lmc__want(c, NULL, 0, 0);
    if (is_unknown && left == 0) return LMC_ERR_LIMIT;
    return lmc__append(&w->carry, data, size);
}
#endif /* LMC_NO_ENCODER */

/* == snapshot/writer.h ============================================================================ */

#ifndef LMC_NO_ENCODER

/* The writer: opened, told of files and metadata, finished. What it makes of a file's bytes is in
 * writer_plan.h (runs) and writer_blocks.h (blocks).
 *
 * Everything is written once and in its order, so any sink will do. What cannot be known before
 * (sizes of files, identities, where blocks are) goes to the index at the end, which grows with
 * what is written. */

/* Straight to the sink, behind what waits to be written. The first thing that fails stops
 * everything: a sink cannot take back. */
static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    if (w->coder.sink.write(w->coder.sink.user, data, size) != 0) return LMC_ERR_WRITE;
    w->offset += size;
    return LMC_OK;
}

/* Writes w->body as a section of a file or run, and its entry to the index. No wave may be planned,
 * whose blocks would come before. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind, uint32_t number)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    const uint64_t size = w->body.size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(head, kind, number, w->body.data, size, w->coder.wave.k);
    LMC__TRY(lmc__index_section(&w->index, w->offset, head, w->body.data, w->body.size));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, w->body.data, w->body.size);
}

/* See lmc__visit_buffer. */
static void lmc__visit_writer(lmc_writer *w, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&w->index.entries, alloc_user);
    visit(&w->body, alloc_user);
    visit(&w->metadata, alloc_user);
    visit(&w->paths, alloc_user);
    visit(&w->file_memory, alloc_user);
    visit(&w->carry, alloc_user);
    visit(&w->run_head, alloc_user);
    visit(&w->plan.quantized, alloc_user);
}

LMC_API enum lmc_status lmc_open_writer(lmc_writer **writer, const lmc_sink *sink,
                                        const lmc_writer_options *options)
{
    lmc_writer_options defaults;
    uint8_t header[LMC__HEADER_SIZE];
    enum lmc_status status;
    lmc_writer *w;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!writer || !sink || !sink->write || !lmc__is_parallel(options->parallel) ||
        (unsigned)options->level > LMC_LEVEL_MAX ||
        lmc__get_block_size(LMC_U8, options->log2_block, 0) == 0)
        return LMC_ERR_ARGUMENT;
    w = (lmc_writer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *w);
    if (!w) return LMC_ERR_MEMORY;
    memset(w, 0, sizeof *w);
    w->options = *options;
    lmc__open_coder(&w->coder, options->parallel, options->alloc_user);
    w->coder.sink = *sink;
    w->coder.task = lmc__encode_snapshot_task;
    lmc__visit_writer(w, lmc__init_buffer, options->alloc_user);
    w->index.limit = UINT64_MAX;
    status = lmc__open_origin(&w->plan.origin, options->base, options->alloc_user);
    w->plan.origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->plan.origin.user = &w->plan;
    w->plan.options = &w->options;
    if (options->base && options->base->chain_depth == UINT32_MAX) status = LMC_ERR_LIMIT;
    lmc__put_header(header, options->read_back ? 0 : LMC__FLAG_SEQUENTIAL,
                    options->base ? w->plan.origin.identity : NULL,
                    options->base ? options->base->chain_depth + 1 : 0, w->coder.wave.k);
    if (status == LMC_OK) status = lmc__sink_write(w, header, sizeof header);
    if (status != LMC_OK) {
        lmc_free_writer(w);
        return status;
    }
    *writer = w;
    return LMC_OK;
}

LMC_API void lmc_free_writer(lmc_writer *w)
{
    if (!w) return;
    lmc__free_coder(&w->coder);
    lmc__visit_writer(w, lmc__free_visited, NULL);
    lmc__free_origin(&w->plan.origin);
    (void)LMC_REALLOC(w->options.alloc_user, w, sizeof *w, 0);
}

/* Begins a file. What the caller describes is written down as a FILE body, and read again by the
 * function that every reader will check it with: so whatever a reader would refuse is refused here,
 * as a wrong argument, and the copy that the writer works with is what a reader will have. */
static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                       enum lmc_dtype default_dtype)
{
    lmc_file *const copy = &w->plan.file;
    enum lmc_status status;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC_DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (w->n_files == UINT32_MAX) return LMC_ERR_LIMIT;
    for (i = 0; i < file->n_tensors && file->tensors; i++)
        LMC__TRY(lmc__check_quantization(&file->tensors[i]));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file));
    status = lmc__parse_file(copy, &w->file_memory, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    if (w->n_files > 0 && (w->has_empty_path || copy->path[0] == 0)) return LMC_ERR_ARGUMENT;
    w->has_empty_path = copy->path[0] == 0;
    status = lmc__add_path(&w->paths, w->n_files, copy->path);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    LMC__TRY(lmc__write_section(w, "FILE", w->n_files));
    LMC__TRY(lmc__plan_file(&w->plan, (lmc_tensor *)(void *)w->file_memory.data, file, w->n_files,
                            default_dtype));
    w->n_files++;
    LMC__TRY(lmc__index_file(&w->index, copy));
    w->in_file = 1;
    w->run_left = 0;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, copy);
    return LMC_OK;
}

/* Ends the file at hand, of which exactly as many bytes must have come as were promised; of a file
 * of unknown size, what is left becomes its last run. The file's facts are complete now. */
static enum lmc_status lmc__end_file(lmc_writer *w)
{
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (w->plan.file.size == LMC_UNKNOWN_SIZE) {
        LMC__TRY(lmc__flush_carry(w));
        w->plan.file.size = w->plan.position;
    }
    if (w->digester.absorbed != w->plan.file.size) return LMC_ERR_ARGUMENT;
    lmc__index_file_end(&w->index, &w->digester, w->plan.file.size);
    w->in_file = 0;
    return LMC_OK;
}

/* Keeps an entry, encoded as in the index, until the end: keys may come in any order. */
static enum lmc_status lmc__add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    size_t key_size;
    if (!key || (!value && size) || w->is_finished) return LMC_ERR_ARGUMENT;
    key_size = strlen(key);
    if (key_size < 1 || key_size > LMC__MAX_STRING) return LMC_ERR_ARGUMENT;
    if (size > LMC__MAX_VALUE_SIZE || w->n_metadata == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)key_size));
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)size));
    LMC__TRY(lmc__append(&w->metadata, key, key_size));
    LMC__TRY(lmc__append(&w->metadata, value, size));
    w->n_metadata++;
    return LMC_OK;
}

/* The metadata entries in order of their keys, appended to the index. They are sorted by what
 * points to them, and then copied. */
static enum lmc_status lmc__append_metadata(lmc_writer *w)
{
    const uint8_t *p = w->metadata.data;
    uint32_t i;
    lmc__item *items;
    w->body.size = 0; /* holds the items */
    for (i = 0; i < w->n_metadata; i++) {
        const uint32_t key_size = lmc__load32(p), size = lmc__load32(p + 4);
        LMC__TRY(lmc__append_item(&w->body, p + 8, key_size, NULL));
        p += 8 + (size_t)key_size + size;
    }
    items = (lmc__item *)(void *)w->body.data;
    lmc__sort_items(items, w->n_metadata);
    if (lmc__has_duplicates(items, w->n_metadata)) return LMC_ERR_ARGUMENT;
    for (i = 0; i < w->n_metadata; i++) {
        const uint8_t *entry = items[i].name - 8;
        LMC__TRY(lmc__grow_index(&w->index, entry,
                                 8 + (size_t)lmc__load32(entry) + lmc__load32(entry + 4)));
    }
    return LMC_OK;
}

/* Index and trailer. The index's CRC is that of its head, continued over the entries, for the two
 * do not lie side by side. The trailer must come last: a file that has one is complete. */
static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t head[LMC__INDEX_BODY_SIZE], section[LMC__SECTION_HEADER_SIZE],
        trailer[LMC__TRAILER_SIZE];
    const lmc__kernels *k = w->coder.wave.k;
    const uint64_t index_at = w->offset, n_entries = (uint64_t)w->n_files + w->n_runs;
    lmc__index_head counts;
    uint64_t body_size;
    if (w->in_file || w->is_finished || w->n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__collect_items(&w->body, w->index.entries.data, n_entries));
    lmc__snapshot_identity(&w->body, w->identity);
    LMC__TRY(lmc__append_metadata(w));
    counts.n_files = w->n_files;
    counts.n_runs = w->n_runs;
    counts.n_metadata = w->n_metadata;
    memcpy(counts.identity, w->identity, LMC_IDENTITY_SIZE);
    lmc__put_index_head(head, &counts);
    body_size = sizeof head + (uint64_t)w->index.entries.size;
    if (body_size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(section, "INDX", 0, head, sizeof head,
                            k); /* the head's CRC, to be continued */
    lmc__store64(section + 8, body_size);
    lmc__store32(section + 16, k->crc32c(0, section, 16));
    lmc__store32(section + 20, k->crc32c(lmc__load32(section + 20), w->index.entries.data,
                                         w->index.entries.size));
    LMC__TRY(lmc__sink_write(w, section, sizeof section));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    LMC__TRY(lmc__sink_write(w, w->index.entries.data, w->index.entries.size));
    lmc__put_trailer(trailer, index_at, w->offset - index_at, k);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays, and is all that any later call returns: what was written after it would be
 * wrong. */
#define LMC__STICKY(call)                                                                          \
    if (!w) return LMC_ERR_ARGUMENT;                                                               \
    if (w->status == LMC_OK) w->status = (call);                                                   \
    return w->status

LMC_API enum lmc_status lmc_begin_file(lmc_writer *w, const lmc_file *file,
                                       enum lmc_dtype default_dtype)
{
    LMC__STICKY(lmc__begin_file(w, file, default_dtype));
}
LMC_API enum lmc_status lmc_write_bytes(lmc_writer *w, const void *data, size_t size)
{
    LMC__STICKY(lmc__write_bytes(w, (const uint8_t *)data, size));
}
LMC_API enum lmc_status lmc_write_stream(lmc_writer *w, const lmc_stream *stream)
{
    LMC__STICKY(lmc__write_stream(w, stream));
}
LMC_API enum lmc_status lmc_end_file(lmc_writer *w) { LMC__STICKY(lmc__end_file(w)); }
LMC_API enum lmc_status lmc_add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    LMC__STICKY(lmc__add_metadata(w, key, value, size));
}
LMC_API enum lmc_status lmc_finish_writer(lmc_writer *w) { LMC__STICKY(lmc__finish_writer(w)); }

LMC_API enum lmc_status lmc_get_writer_identity(const lmc_writer *w,
                                                uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (!w || !identity || !w->is_finished) return LMC_ERR_ARGUMENT;
    memcpy(identity, w->identity, LMC_IDENTITY_SIZE);
    return LMC_OK;
}

LMC_API uint64_t lmc_count_written(const lmc_writer *w)
{
    uint64_t pending = 0;
    size_t i;
    if (!w) return 0;
    for (i = 0; i < w->coder.parts.size / sizeof(lmc__part); i++)
        pending += ((const lmc__part *)(const void *)w->coder.parts.data)[i].size;
    return w->offset - pending;
}
#endif /* LMC_NO_ENCODER */

/* == snapshot/restore.h =========================================================================== */

/* Restoring front to back, from a pipe to a pipe if need be: everything is checked, nothing is
 * sought.
 *
 * The stream is read into two buffers in turn. Blocks are decoded from where they lie; what begins
 * at the end of one buffer is moved to before what the other one holds, where room was left for it:
 *
 *     in[0]  |room|--- section --|=== block 0 ===|=== block 1 ===|=== bl|
 *                                                               at ^   ^ end
 *     in[1]  |      room     |=== bl|ock 2 ======|=== block 3 ===|== ...
 *                             at ^  ^ next_room: what the stream brought
 *
 * Decoding a wave frees the buffer that its blocks were in, so that reading can go on there while
 * the next wave is decoded from the other. Three things bound what is in flight: the wave is full
 * (its decoded bytes do not fit into `out`), a wave may have no blocks in the buffer that is to be
 * read to (is_other_used), and a section that refers to this snapshot waits for all before it.
 *
 * What is asked for (lmc__fetch) is at most a block and its header, or a section's fixed fields;
 * bodies are taken in steps (lmc__read_body). So a hostile size makes nothing grow before as many
 * bytes have really come. The index grows with files, tensors and blocks, and is limited by the
 * caller.
 *
 * Order of things: a block goes to write() only after its CRC was compared; in its order; and one
 * wave later. begin_file and end_file come between waves. Only when lmc_restore_snapshot returns
 * LMC_OK are names, sizes and identities known to be right, since the index that repeats them comes
 * last. */
typedef struct lmc__restorer {
    const lmc_restore_options *options;
    lmc__coder coder;

    /* -- the stream -- */
    /* What is there of it and not used yet: a part of coder.in[in_number]. */
    const uint8_t *at, *end;
    unsigned in_number;
    /* The other coder.in holds what follows, from next_room on; before that there is room for what
     * is left of this one. */
    int is_next_read;
    size_t next_room;
    /* Blocks of the wave that is being planned are in the other coder.in, so nothing can be read
     * to it before they are decoded. */
    int is_other_used;
    /* Bytes of the stream from its beginning to `at`. */
    uint64_t offset;

    /* -- what has been seen -- */
    /* What the INDX section must say, byte by byte. */
    lmc__index_builder index;
    /* The body of the section at hand. */
    lmc__buffer body;
    /* Names and identities of everything, at the end. */
    lmc__buffer items;
    /* See lmc__add_path. */
    lmc__buffer paths;
    uint32_t n_files, n_runs;
    /* Bytes of all runs. */
    uint64_t total;
    int has_base, is_sequential;
    lmc__origin origin;

    /* -- the file at hand -- */
    int in_file, has_empty_path;
    lmc_file file;
    lmc__buffer file_memory;
    /* Bytes of it in runs so far. */
    uint64_t position;
    lmc__digester digester;

    /* -- the wave at hand -- */
    /* Decoded bytes of the largest block of the run. */
    size_t largest;
    /* In place: an earlier attempt has written its blocks, so they are compared, and not written
     * again. A wave has only blocks of one sort. */
    int is_written;
} lmc__restorer;

/* Bytes of the stream that are read at once, for each worker. bf16 weights grow by half when they
 * are decoded: a wave of LMC__WAVE_SIZE decoded bytes takes up to twice as many as this. */
#define LMC__READ_SIZE (LMC__WAVE_SIZE / 2)

/* Decodes the wave that is planned, which may be empty; beside that writes what the wave before has
 * made, and reads on if the other buffer is free. Then the pieces are absorbed, in order, and `out`
 * changes sides: what was decoded is handed to the next wave to be written. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended,
              is_coding = c->n_jobs != 0;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->in_number ^ 1];
    lmc__want(c, NULL, 0, 0);
    if (is_reading) {
        uint64_t size = 65536; /* at first: there may be little */
        r->next_room = lmc_bound_block(r->largest);
        if (r->largest)
            size = lmc__count_workers(c->parallel) *
                   (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE);
        next->size = 0;
        /* after which size is no more than a size_t holds */
        LMC__TRY(lmc__reserve(next, r->next_room + size));
        lmc__want(c, next->data + r->next_room, (size_t)size, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (is_coding) r->digester.identities = lmc__index_identities(&r->index);
    lmc__absorb_pieces(c, &r->digester);
    if (!r->is_written) LMC__TRY(lmc__add_part(c, out->data, out->size));
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Goes on to the other buffer, to whose front what is left of this one moves. If nothing comes any
 * more, nothing changes.
 *
 * Room before what was read is that for the largest block of the run at hand then; the next run's
 * may be larger, and then what was read moves up. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->in_number ^ 1];
    /* Decoding reads, too, if no block of the wave is in the other buffer; if one was, the second
     * wave, which is empty, does. */
    if (!r->is_next_read) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read && !c->ended) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read) return LMC_OK;
    if (left > r->next_room) { /* which was for smaller blocks */
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

/* Makes size bytes lie at r->at; fewer only at the end of the stream. May decode a wave, so
 * pointers into `out` and its number may change. */
static enum lmc_status lmc__fetch(lmc__restorer *r, size_t size)
{
    while ((size_t)(r->end - r->at) < size && (r->is_next_read || !r->coder.ended))
        LMC__TRY(lmc__turn_buffer(r));
    return LMC_OK;
}

/* The same, where the stream must not end. */
static enum lmc_status lmc__fetch_all(lmc__restorer *r, size_t size)
{
    LMC__TRY(lmc__fetch(r, size));
    LMC__CHECK((size_t)(r->end - r->at) >= size, LMC_ERR_TRUNCATED);
    return LMC_OK;
}

/* These bytes were used. */
static void lmc__skip(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
}

/* The next size bytes, copied. Larger than any buffer they may be: they are taken as they come. */
static enum lmc_status lmc__read_all(lmc__restorer *r, uint8_t *dst, size_t size)
{
    while (size != 0) {
        size_t n;
        LMC__TRY(lmc__fetch_all(r, 1));
        n = lmc__min(size, (size_t)(r->end - r->at));
        memcpy(dst, r->at, n);
        lmc__skip(r, n);
        dst += n;
        size -= n;
    }
    return LMC_OK;
}

/* The section's body to r->body, in steps of 1 MiB: memory grows with what is really there, not
 * with what the section's header claims. Its CRC is compared, so whoever parses it parses what was
 * written. */
static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section)
{
    if (section->size > r->index.limit) return LMC_ERR_LIMIT;
    r->body.size = 0;
    while (r->body.size < section->size) {
        const size_t step = (size_t)lmc__min64(section->size - r->body.size, 1 << 20);
        LMC__TRY(lmc__reserve(&r->body, step));
        LMC__TRY(lmc__read_all(r, r->body.data + r->body.size, step));
        r->body.size += step;
    }
    LMC__CHECK(r->coder.wave.k->crc32c(0, r->body.data, r->body.size) == section->body_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* To the index: the section at hand, whose body was read last. head: its header. */
static enum lmc_status lmc__restore_section(lmc__restorer *r, const uint8_t *head)
{
    return lmc__index_section(&r->index, r->offset - r->body.size - LMC__SECTION_HEADER_SIZE, head,
                              r->body.data, r->body.size);
}

/* A FILE section. All that can be refused is refused before the caller hears of the file: a path
 * twice, a nameless file that is not alone, a size over the limit. Its size and identities are not
 * known yet: the index gets room for them. */
static enum lmc_status lmc__restore_file(lmc__restorer *r, const lmc__section *section,
                                         const uint8_t *head)
{
    const lmc_restore_options *o = r->options;
    LMC__CHECK(section->number == r->n_files, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__TRY(lmc__parse_file(&r->file, &r->file_memory, r->body.data, r->body.size));
    LMC__CHECK(r->n_files == 0 || (!r->has_empty_path && r->file.path[0] != 0), LMC_ERR_CORRUPT);
    r->has_empty_path = r->file.path[0] == 0;
    LMC__TRY(lmc__add_path(&r->paths, r->n_files, r->file.path));
    LMC__TRY(lmc__restore_section(r, head));
    LMC__TRY(lmc__index_file(&r->index, &r->file));
    if (r->file.size != LMC_UNKNOWN_SIZE) { /* before the caller makes room for it */
        uint64_t total = r->total;
        if (!lmc__add_total(&total, r->file.size, &o->limits)) return LMC_ERR_LIMIT;
    }
    r->n_files++;
    r->in_file = 1;
    r->position = 0;
    lmc__begin_digester(&r->digester, &r->file);
    if (o->begin_file && o->begin_file(o->user, &r->file, r->n_files - 1) != 0)
        return LMC_ERR_WRITE;
    return LMC_OK;
}

/* What follows is no run of this file. Everything of it must be decoded and written before the
 * caller is told that it is complete. */
static enum lmc_status lmc__restore_file_end(lmc__restorer *r)
{
    const lmc_restore_options *o = r->options;
    if (!r->in_file) return LMC_OK;
    if (r->file.size == LMC_UNKNOWN_SIZE) r->file.size = r->position;
    LMC__CHECK(r->position == r->file.size, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__decode_wave(r));
    LMC__TRY(lmc__drain(&r->coder));
    lmc__index_file_end(&r->index, &r->digester, r->file.size);
    r->file.crc = r->digester.file_crc;
    r->in_file = 0;
    if (o->end_file && o->end_file(o->user, &r->file, r->n_files - 1) != 0) return LMC_ERR_WRITE;
    return LMC_OK;
}

/* Makes the block at hand a job of the wave. Its header is checked against its position and what
 * the run says of its size; a prediction is read to where the block will be decoded over it.
 *
 * In place, a block is written already (n_done) or it is not; one that n_done cuts in two cannot
 * be. What is written is read back and compared, and not handed to write() again. */
static enum lmc_status lmc__restore_block(lmc__restorer *r, const lmc__run *run, uint64_t block,
                                          size_t size)
{
    const uint64_t offset = block * run->block_size,
                   n_before = r->total - run->size + offset; /* within the run, of the snapshot */
    const int is_done = n_before < r->options->n_done;
    lmc__coder *c = &r->coder;
    lmc__buffer *out;
    lmc_position position;
    lmc_block_info info;
    lmc__snapshot_job *block_job;
    lmc__job *job;
    position.run = r->n_runs - 1;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, position, &info));
    LMC__CHECK(info.size == size, LMC_ERR_CORRUPT);
    if (is_done && size > r->options->n_done - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number]; /* fetching may have changed the number, and so may coding */
    if (c->n_jobs && (size > out->cap - out->size || r->is_written != is_done))
        LMC__TRY(lmc__decode_wave(r));
    r->is_written = is_done;
    out = &c->out[c->out_number];
    /* pointers into it from now on */
    if (c->n_jobs == 0) LMC__TRY(lmc__reserve(out, lmc__get_wave_size(c, r->largest)));
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    job->position = position;
    job->info = info;
    job->src = r->at;
    job->dst = out->data + out->size;
    job->skip = 0;
    job->keep = size;
    job->streaming = lmc__no_streaming;
    block_job->is_written = is_done;
    if (info.has_prediction) LMC__CHECK(run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, run->file_number, run->start + offset,
                                     job->dst, size));
    } else if (info.has_prediction) {
        /* over which the block is decoded */
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst, size));
        job->base = job->dst;
        block_job->is_own_prediction = run->prediction == LMC__PREDICT_OWN;
    }
    out->size += size;
    lmc__skip(r, info.encoded_size);
    LMC__TRY(lmc__index_block(&r->index, info.encoded_size, job->src));
    return lmc__plan_pieces(c, &r->digester, block_job, size);
}

/* A RUN section and its blocks. A run that refers to its own snapshot reads back what write() was
 * given, so that must have reached the caller: the wave is decoded, and what it made is written,
 * before its first prediction is read. */
static enum lmc_status lmc__restore_run(lmc__restorer *r, const lmc__section *section,
                                        const uint8_t *head)
{
    uint64_t block;
    lmc__run run;
    LMC__CHECK(section->number == r->n_runs && r->in_file, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__TRY(
        lmc__parse_run(&run, r->body.data, r->body.size, r->n_files - 1, &r->file, &r->position));
    LMC__CHECK(run.prediction != LMC__PREDICT_BASE || r->has_base, LMC_ERR_CORRUPT);
    LMC__CHECK(run.prediction != LMC__PREDICT_OWN || !r->is_sequential, LMC_ERR_CORRUPT);
    if (!lmc__add_total(&r->total, run.size, &r->options->limits)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__restore_section(r, head));
    if (run.prediction == LMC__PREDICT_OWN) {
        LMC__TRY(lmc__decode_wave(r));
        LMC__TRY(lmc__drain(&r->coder));
    }
    r->n_runs++;
    r->largest = lmc__block_size_at(&run, 0);
    LMC__TRY(
        lmc__set_coder(&r->coder, r->largest, lmc__min(r->largest, LMC_MAX_BLOCK_ELEMENTS), 0));
    for (block = 0; block < run.n_blocks; block++)
        LMC__TRY(lmc__restore_block(r, &run, block, lmc__block_size_at(&run, block)));
    return LMC_OK;
}

/* The INDX section. Its entries must be those that were built on the way, byte for byte: that
 * checks sizes, CRCs, offsets, identities and names at once. What is left is the counts, the
 * metadata and the snapshot's identity. */
static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          uint8_t identity[LMC_IDENTITY_SIZE])
{
    const uint64_t n_entries = (uint64_t)r->n_files + r->n_runs;
    lmc__index_head head;
    const lmc__buffer *const entries = &r->index.entries;
    const uint8_t *p;
    LMC__CHECK(section->number == 0 && r->n_files > 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE &&
                   r->body.size - LMC__INDEX_BODY_SIZE >= entries->size,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get_index_head(&head, r->body.data));
    LMC__CHECK(head.n_files == r->n_files && head.n_runs == r->n_runs, LMC_ERR_CORRUPT);
    p = r->body.data + LMC__INDEX_BODY_SIZE;
    LMC__CHECK(memcmp(p, entries->data, entries->size) == 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__check_metadata(p + entries->size, r->body.data + r->body.size, head.n_metadata));
    LMC__TRY(lmc__collect_items(&r->items, entries->data, n_entries));
    lmc__snapshot_identity(&r->items, identity);
    LMC__CHECK(memcmp(head.identity, identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* All of the stream, of which not a byte may be left. The loop takes one section at a time; a run
 * takes its blocks with it. */
static enum lmc_status lmc__restore(lmc__restorer *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    const lmc__kernels *k = r->coder.wave.k;
    uint8_t bytes[LMC__HEADER_SIZE];
    lmc__section section;
    uint64_t index_at;
    LMC__TRY(lmc__fetch(r, LMC__HEADER_SIZE));
    if (r->end - r->at < (ptrdiff_t)LMC__HEADER_SIZE)
        return lmc__short_header(r->at, (size_t)(r->end - r->at));
    LMC__TRY(lmc__check_header(r->at, k));
    LMC__TRY(lmc__check_base(&r->origin, r->at));
    r->has_base = lmc__has_base(r->at);
    r->is_sequential = (int)(lmc__load32(r->at + 12) & LMC__FLAG_SEQUENTIAL);
    lmc__skip(r, LMC__HEADER_SIZE);
    for (;;) {
        index_at = r->offset;
        LMC__TRY(lmc__read_all(r, bytes, LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__get_section(&section, bytes, k));
        if (lmc__is_kind(&section, "RUN ")) {
            LMC__TRY(lmc__restore_run(r, &section, bytes));
            continue;
        }
        LMC__TRY(lmc__restore_file_end(r));
        if (!lmc__is_kind(&section, "FILE")) break;
        LMC__TRY(lmc__restore_file(r, &section, bytes));
    }
    LMC__CHECK(lmc__is_kind(&section, "INDX"), LMC_ERR_CORRUPT);
    if (r->options->n_done > r->total) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__restore_index(r, &section, identity));
    LMC__TRY(lmc__read_all(r, bytes, LMC__TRAILER_SIZE));
    LMC__TRY(lmc__check_trailer(bytes, index_at, r->offset - LMC__TRAILER_SIZE - index_at,
                                r->offset, k));
    LMC__TRY(lmc__fetch(r, 1));
    LMC__CHECK(r->at == r->end, LMC_ERR_CORRUPT); /* nothing follows the trailer */
    return LMC_OK;
}

/* See lmc__visit_buffer. */
static void lmc__visit_restorer(lmc__restorer *r, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&r->index.entries, alloc_user);
    visit(&r->body, alloc_user);
    visit(&r->items, alloc_user);
    visit(&r->paths, alloc_user);
    visit(&r->file_memory, alloc_user);
}

LMC_API enum lmc_status lmc_restore_snapshot(const lmc_stream *stream,
                                             const lmc_restore_options *options,
                                             uint8_t identity[LMC_IDENTITY_SIZE])
{
    lmc_restore_options defaults;
    uint8_t found[LMC_IDENTITY_SIZE];
    enum lmc_status status;
    lmc__restorer *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!stream || !stream->read || !lmc__is_parallel(options->parallel)) return LMC_ERR_ARGUMENT;
    if (options->in_place ? !options->read_back : options->n_done != 0) return LMC_ERR_ARGUMENT;
    r = (lmc__restorer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->options = options;
    r->index.limit =
        options->limits.max_index_size ? options->limits.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
    lmc__open_coder(&r->coder, options->parallel, options->alloc_user);
    r->coder.stream = *stream;
    r->coder.sink.write = options->write;
    r->coder.sink.user = options->user;
    r->coder.task = lmc__decode_snapshot_task;
    lmc__visit_restorer(r, lmc__init_buffer, options->alloc_user);
    status =
        lmc__open_origin(&r->origin, options->in_place ? NULL : options->base, options->alloc_user);
    r->origin.in_place = options->in_place;
    r->origin.read_back = options->read_back;
    r->origin.user = options->user;
    if (status == LMC_OK) status = lmc__restore(r, found);
    if (status == LMC_OK && identity) memcpy(identity, found, LMC_IDENTITY_SIZE);
    lmc__free_coder(&r->coder);
    lmc__visit_restorer(r, lmc__free_visited, NULL);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(options->alloc_user, r, sizeof *r, 0);
    return status;
}

/* == snapshot/index.h ============================================================================= */

/* Tables of what is in a snapshot, as a reader wants them, and how they are made of an index.
 *
 * How each field of the index is checked before it is used:
 *     body           Body_CRC first. It tells damage, not malice: everything below holds for any
 * bytes counts         not used to allocate; entries are parsed until as many were there, or they
 * end offset         equals the sum of all sizes before: sections and blocks follow each other
 * without a gap, from the header up to the index itself section        its own CRCs, kind, number;
 * size is at most what is left of the body FILE, RUN      lmc__parse_file, lmc__parse_run: limits,
 * order, sizes that add up File_Size      at most 2^63 - 1, what the FILE section said if it did,
 * and the sum of its runs block entries  8 bytes each must be there before room for them is made;
 * size above that of a header, and at most that of a block stored as it is metadata       sizes
 * within the body, keys in strictly ascending order identity       equals that of the names and
 * identities above So memory is at most a few times the size of the index, which the caller limits,
 * and time is n log n in it. */

/* A run as the index has it. Its segments and block entries are in tables.index. */
typedef struct lmc__reader_run {
    lmc__run run;
    /* in tables.block_at */
    uint64_t first_block;
    /* LMC__BLOCK_ENTRY_SIZE bytes each; NULL: not known */
    const uint8_t *blocks;
    /* LMC_OK. In tables of a damaged file: why its prediction cannot be read; LMC_ERR_NOT_FOUND:
     * because its section is lost */
    enum lmc_status prediction;
} lmc__reader_run;

typedef struct lmc__reader_file {
    lmc_file file;
    lmc__buffer memory;       /* of its arrays and strings */
    size_t first_run, n_runs; /* in tables.runs */
    int is_described;         /* 1. In tables of a damaged file 0: its FILE section is lost */
} lmc__reader_file;

typedef struct lmc__metadata_entry {
    size_t key_at; /* in tables.keys */
    const uint8_t *value;
    size_t size;
} lmc__metadata_entry;

typedef struct lmc__tables {
    /* the INDX section; what is parsed of it points into it */
    lmc__buffer index;
    /* lmc__reader_file, lmc__reader_run */
    lmc__buffer files, runs;
    /* uint64_t: where each block begins; behind a run's blocks: where they end. So block_at[i + 1]
     * - block_at[i] is a block's size */
    lmc__buffer block_at;
    /* of metadata, NUL-terminated */
    lmc__buffer keys;
    /* lmc__metadata_entry */
    lmc__buffer metadata;
    /* see lmc__add_path */
    lmc__buffer paths;
    size_t n_files, n_metadata;
    uint8_t identity[LMC_IDENTITY_SIZE];
} lmc__tables;

/* Rows of the tables, valid until more are added. */
static lmc__reader_file *lmc__table_file(const lmc__tables *t, size_t i)
{
    return (lmc__reader_file *)(void *)t->files.data + i;
}
static lmc__reader_run *lmc__table_run(const lmc__tables *t, size_t i)
{
    return t->runs.data ? (lmc__reader_run *)(void *)t->runs.data + i : NULL;
}
static uint64_t *lmc__table_blocks(const lmc__tables *t)
{
    return (uint64_t *)(void *)t->block_at.data;
}
static size_t lmc__count_runs(const lmc__tables *t)
{
    return t->runs.size / sizeof(lmc__reader_run);
}

/* See lmc__visit_buffer; files have a buffer each beside. */
static void lmc__visit_tables(lmc__tables *t, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&t->index, alloc_user);
    visit(&t->files, alloc_user);
    visit(&t->runs, alloc_user);
    visit(&t->block_at, alloc_user);
    visit(&t->keys, alloc_user);
    visit(&t->metadata, alloc_user);
    visit(&t->paths, alloc_user);
}

static void lmc__init_tables(lmc__tables *t, void *alloc_user)
{
    memset(t, 0, sizeof *t);
    lmc__visit_tables(t, lmc__init_buffer, alloc_user);
}

static void lmc__free_tables(lmc__tables *t)
{
    size_t i;
    for (i = 0; i < t->n_files; i++) lmc__free_buffer(&lmc__table_file(t, i)->memory);
    t->n_files = 0;
    lmc__visit_tables(t, lmc__free_visited, NULL);
}

/* One more file, of which nothing is known yet; it has no runs. */
static enum lmc_status lmc__add_file(lmc__tables *t, lmc__reader_file **file)
{
    LMC__TRY(lmc__append(&t->files, NULL, sizeof **file));
    *file = lmc__table_file(t, t->n_files++);
    lmc__init_buffer(&(*file)->memory, t->files.alloc_user);
    (*file)->first_run = lmc__count_runs(t);
    return LMC_OK;
}

/* While the entries of an index are parsed. */
typedef struct lmc__index_parser {
    lmc__tables *t;
    const lmc__kernels *k;
    const uint8_t *p, *end; /* what is left of the body */
    uint64_t offset;        /* of the file: where the next section must begin */
    uint64_t position;      /* bytes of the last file that are in runs so far */
} lmc__index_parser;

/* An entry of a file: body is that of its FILE section, which ends at x->p, where the facts begin.
 * The file before it must be complete. */
static enum lmc_status lmc__parse_file_entry(lmc__index_parser *x, const lmc__section *section,
                                             const uint8_t *body)
{
    lmc__tables *const t = x->t;
    lmc__reader_file *f;
    uint64_t size;
    size_t i;
    LMC__CHECK(t->n_files == 0 || x->position == lmc__table_file(t, t->n_files - 1)->file.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(section->number == t->n_files, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__add_file(t, &f));
    f->is_described = 1;
    LMC__TRY(lmc__parse_file(&f->file, &f->memory, body, (size_t)section->size));
    LMC__TRY(lmc__add_path(&t->paths, t->n_files - 1, f->file.path));
    LMC__CHECK(t->n_files == 1 ||
                   (f->file.path[0] != 0 && lmc__table_file(t, 0)->file.path[0] != 0),
               LMC_ERR_CORRUPT);
    LMC__CHECK((uint64_t)(x->end - x->p) >=
                   LMC__FILE_FACTS_SIZE +
                       (uint64_t)LMC_IDENTITY_SIZE * lmc__count_identities(&f->file),
               LMC_ERR_CORRUPT);
    size = lmc__load64(x->p);
    LMC__CHECK(size <= LMC__MAX_FILE_SIZE &&
                   (f->file.size == LMC_UNKNOWN_SIZE || f->file.size == size),
               LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load32(x->p + 12) == 0, LMC_ERR_CORRUPT);
    f->file.size = size;
    f->file.crc = lmc__load32(x->p + 8);
    x->p += LMC__FILE_FACTS_SIZE;
    for (i = 0; i < lmc__count_identities(&f->file); i++, x->p += LMC_IDENTITY_SIZE)
        memcpy(f->file.n_tensors ? ((lmc_tensor *)(void *)f->memory.data)[i].identity
                                 : f->file.identity,
               x->p, LMC_IDENTITY_SIZE);
    x->position = 0;
    return LMC_OK;
}

/* An entry of a run: body is that of its RUN section, which ends at x->p, where the block entries
 * begin. That as many are there as the run has blocks is looked at before room is made for them. */
static enum lmc_status lmc__parse_run_entry(lmc__index_parser *x, const lmc__section *section,
                                            const uint8_t *body)
{
    lmc__tables *const t = x->t;
    lmc__reader_file *const f = t->n_files ? lmc__table_file(t, t->n_files - 1) : NULL;
    lmc__reader_run r;
    uint64_t *block_at;
    size_t i;
    LMC__CHECK(lmc__is_kind(section, "RUN ") && f, LMC_ERR_CORRUPT);
    LMC__CHECK(section->number == lmc__count_runs(t), LMC_ERR_CORRUPT);
    LMC__TRY(lmc__parse_run(&r.run, body, (size_t)section->size, (uint32_t)(t->n_files - 1),
                            &f->file, &x->position));
    LMC__CHECK(r.run.n_blocks <= (uint64_t)(x->end - x->p) / LMC__BLOCK_ENTRY_SIZE,
               LMC_ERR_CORRUPT);
    r.prediction = LMC_OK;
    r.first_block = t->block_at.size / 8;
    r.blocks = x->p;
    LMC__TRY(lmc__append(&t->runs, &r, sizeof r));
    LMC__TRY(lmc__reserve(&t->block_at, 8 * (r.run.n_blocks + 1)));
    block_at = lmc__table_blocks(t) + r.first_block;
    for (i = 0; i < r.run.n_blocks; i++, x->p += LMC__BLOCK_ENTRY_SIZE) {
        const uint32_t size = lmc__load32(x->p);
        LMC__CHECK(size > LMC_BLOCK_HEADER_SIZE &&
                       size <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&r.run, i),
                   LMC_ERR_CORRUPT);
        block_at[i] = x->offset;
        x->offset += size;
    }
    block_at[i] = x->offset;
    t->block_at.size += 8 * ((size_t)r.run.n_blocks + 1);
    f->n_runs++;
    return LMC_OK;
}

/* The next entry. Offsets are at most max_offset, below 2^63, after each: a body adds less than
 * 2^41 to them, the blocks of a run less than 2^56, so they do not overflow before that is seen. */
static enum lmc_status lmc__parse_entry(lmc__index_parser *x, uint64_t max_offset)
{
    const uint8_t *body;
    lmc__section section;
    LMC__CHECK(x->end - x->p >= 8 + (int)LMC__SECTION_HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(x->p) == x->offset, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get_section(&section, x->p + 8, x->k));
    body = x->p + 8 + LMC__SECTION_HEADER_SIZE;
    LMC__CHECK(section.size <= (uint64_t)(x->end - body), LMC_ERR_CORRUPT);
    LMC__CHECK(x->k->crc32c(0, body, (size_t)section.size) == section.body_crc, LMC_ERR_CHECKSUM);
    x->p = body + (size_t)section.size;
    x->offset += LMC__SECTION_HEADER_SIZE + section.size;
    LMC__TRY(lmc__is_kind(&section, "FILE") ? lmc__parse_file_entry(x, &section, body)
                                            : lmc__parse_run_entry(x, &section, body));
    LMC__CHECK(x->offset <= max_offset, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Exactly [p, end). Keys are copied, for a caller wants them NUL-terminated; values stay where they
 * are. */
static enum lmc_status lmc__parse_metadata(lmc__tables *t, const uint8_t *p, const uint8_t *end,
                                           uint32_t n)
{
    LMC__TRY(lmc__check_metadata(p, end, n));
    for (; n > 0; n--, t->n_metadata++) {
        const uint32_t key_size = lmc__load32(p);
        lmc__metadata_entry entry;
        entry.key_at = t->keys.size;
        entry.size = lmc__load32(p + 4);
        entry.value = p + 8 + key_size;
        LMC__TRY(lmc__append(&t->keys, p + 8, key_size));
        LMC__TRY(lmc__append(&t->keys, NULL, 1));
        LMC__TRY(lmc__append(&t->metadata, &entry, sizeof entry));
        p = entry.value + entry.size;
    }
    return LMC_OK;
}

/* Fills empty tables by the INDX section in t->index, the header of which, but for Body_CRC, is
 * known to be right or does not matter. *offset: where the entries say that the section begins.
 * items: a buffer for the time being. Whose base it is, and whether its predictions are there, is
 * not looked at. */
static enum lmc_status lmc__parse_index(lmc__tables *t, const lmc__kernels *k, uint64_t max_offset,
                                        lmc__buffer *items, uint64_t *offset)
{
    const uint8_t *const body = t->index.data + LMC__SECTION_HEADER_SIZE;
    lmc__index_parser x;
    lmc__index_head head;
    uint64_t n_entries, i;
    x.t = t;
    x.k = k;
    x.p = body + LMC__INDEX_BODY_SIZE;
    x.end = t->index.data + t->index.size;
    x.offset = LMC__HEADER_SIZE;
    x.position = 0;
    LMC__CHECK(k->crc32c(0, body, (size_t)(x.end - body)) == lmc__load32(t->index.data + 20),
               LMC_ERR_CHECKSUM);
    LMC__TRY(lmc__get_index_head(&head, body));
    n_entries = (uint64_t)head.n_files + head.n_runs;
    for (i = 0; i < n_entries; i++) LMC__TRY(lmc__parse_entry(&x, max_offset));
    LMC__CHECK(t->n_files > 0 && x.position == lmc__table_file(t, t->n_files - 1)->file.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(t->n_files == head.n_files, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__parse_metadata(t, x.p, x.end, head.n_metadata));
    LMC__TRY(lmc__collect_items(items, body + LMC__INDEX_BODY_SIZE, n_entries));
    lmc__snapshot_identity(items, t->identity);
    LMC__CHECK(memcmp(head.identity, t->identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_CORRUPT);
    *offset = x.offset;
    return LMC_OK;
}

/* == snapshot/reader.h ============================================================================ */

/* Reading by the index: any bytes of any file, without what lies between.
 *
 *     bytes of a file -> runs that hold them -> blocks of each -> waves -> dst
 *
 * A block that is wanted whole is decoded where it belongs in dst, also over its own prediction,
 * which is read to that place; only the first and the last of a range may be wanted in part, and
 * take a buffer.
 *
 * Chains. A delta's predictions are read from its base, which may be a reader itself, and so on
 * down to a full snapshot. Links are mostly cut alike: then a block goes through all of them at one
 * place, from the full snapshot up, and each link's decoder turns what is there into its own.
 *
 *     dst  <- link 3: decode over <- link 2: decode over <- link 1: decode
 *
 * Where they are not cut alike, a link is asked for less than a block, again and again for
 * neighbours. It then decodes LMC__WINDOW_SIZE bytes to its *window*, from which the next questions
 * are answered: what is asked for from front to back is decoded once (lmc__read_as_base).
 *
 * Links that are used one at a time share the buffers of a lender (options.lender): so nothing of
 * the coder may be in use while a prediction is read, which may need it.
 *
 * Two kinds of snapshots are read by this: intact ones, and what salvage found of damaged ones. The
 * latter bring tables with gaps, and a way to read a run of their own (read_run). */
struct lmc_reader {
    lmc_source source;
    lmc_reader_options options;
    /* the lender's, or the own one */
    lmc__coder own_coder, *coder;
    lmc__tables tables;
    /* bytes of all runs */
    uint64_t total;
    uint8_t base_identity[LMC_IDENTITY_SIZE];
    uint32_t chain_depth;
    int is_sequential;
    /* the tables have no gaps: every byte of a file is in a run, every block's place is known */
    int is_complete;
    lmc__origin origin;
    /* bytes of file window_file from window_start on */
    lmc__buffer window;
    size_t window_file;
    uint64_t window_start;
    /* predictions of blocks that are not wanted whole: by another snapshot; by this one, for which
     * the first may be needed */
    lmc__buffer base[2];
    /* What open.h sets. Bytes [offset, offset + size) of a run, to dst: */
    enum lmc_status (*read_run)(lmc_reader *reader, size_t number, uint64_t offset, uint8_t *dst,
                                size_t size);
    /* what a larger struct has beside; or NULL */
    void (*free_extra)(lmc_reader *reader);
    /* of that, which begins with this one */
    size_t struct_size;
};

static lmc__reader_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return lmc__table_file(&r->tables, i);
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return lmc__table_run(&r->tables, i);
}
static uint64_t *lmc__block_at(const lmc_reader *r) { return lmc__table_blocks(&r->tables); }

/* Of its own; coder, tables and origin have theirs. */
static void lmc__visit_reader(lmc_reader *r, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&r->window, alloc_user);
    visit(&r->base[0], alloc_user);
    visit(&r->base[1], alloc_user);
}

/* All of it, or LMC_ERR_READ. Not called for no bytes. */
static enum lmc_status lmc__read_at(lmc_reader *r, uint64_t offset, void *dst, size_t size)
{
    return size == 0 || r->source.read_at(r->source.user, offset, dst, size) == 0 ? LMC_OK
                                                                                  : LMC_ERR_READ;
}

/* The most bytes of index that the caller wants in memory. */
static uint64_t lmc__index_limit(const lmc_limits *limits)
{
    return limits->max_index_size ? limits->max_index_size : LMC__DEFAULT_INDEX_LIMIT;
}

/* The INDX section, which is at that place and within the file, to empty tables. */
static enum lmc_status lmc__read_index(lmc_reader *r, lmc__tables *t, uint64_t at, uint64_t size)
{
    LMC__CHECK(size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE, LMC_ERR_CORRUPT);
    if (size > lmc__index_limit(&r->options.limits)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__reserve(&t->index, size));
    LMC__TRY(lmc__read_at(r, at, t->index.data, (size_t)size));
    t->index.size = (size_t)size;
    return LMC_OK;
}

/* What the reader keeps of an intact header. */
static void lmc__keep_header(lmc_reader *r, const uint8_t *header)
{
    memcpy(r->base_identity, header + LMC__BASE_IDENTITY_AT, LMC_IDENTITY_SIZE);
    r->chain_depth = lmc__load32(header + LMC__CHAIN_DEPTH_AT);
    r->is_sequential = (int)(lmc__load32(header + LMC__FLAGS_AT) & LMC__FLAG_SEQUENTIAL);
}

/* Of runs in their order: the snapshot may be predicted as they say, its size is within the
 * caller's limit, and the bytes that predict them are there. Those of a base are looked for only if
 * that is at hand: a delta may be listed without. */
static enum lmc_status lmc__check_runs(lmc_reader *r)
{
    const size_t n_runs = lmc__count_runs(&r->tables);
    size_t i;
    for (i = 0; i < n_runs; i++) {
        const lmc__run *const run = &lmc__run_at(r, i)->run;
        LMC__CHECK(run->prediction != LMC__PREDICT_BASE || r->chain_depth != 0, LMC_ERR_CORRUPT);
        LMC__CHECK(run->prediction != LMC__PREDICT_OWN || !r->is_sequential, LMC_ERR_CORRUPT);
        if (!lmc__add_total(&r->total, run->size, &r->options.limits)) return LMC_ERR_LIMIT;
        if (run->prediction != LMC__PREDICT_BASE || r->origin.base)
            LMC__TRY(lmc__check_predictions(&r->origin, run, LMC_ERR_CORRUPT));
        LMC__TRY(lmc__add_run(&r->origin, run));
    }
    return LMC_OK;
}

/* Header, trailer, index: three reads. The trailer's size of the file must be that of the source,
 * and header, index and trailer must leave nothing out: what lies between them the index accounts
 * for. */
static enum lmc_status lmc__open_intact(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    const size_t header_size = (size_t)lmc__min64(total, LMC__HEADER_SIZE);
    uint64_t index_at, index_size, offset;
    lmc__section section;

    LMC__TRY(lmc__read_at(r, 0, header, header_size));
    if (header_size < LMC__HEADER_SIZE) return lmc__short_header(header, header_size);
    LMC__TRY(lmc__check_header(header, k));
    lmc__keep_header(r, header);
    if (r->origin.base) LMC__TRY(lmc__check_base(&r->origin, header));
    LMC__CHECK(total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE, LMC_ERR_TRUNCATED);
    LMC__TRY(lmc__read_at(r, total - LMC__TRAILER_SIZE, trailer, LMC__TRAILER_SIZE));
    LMC__CHECK(memcmp(trailer + 32, lmc__end_magic, 8) == 0, LMC_ERR_TRUNCATED);
    index_at = lmc__load64(trailer);
    index_size = lmc__load64(trailer + 8);
    LMC__TRY(lmc__check_trailer(trailer, index_at, index_size, total, k));
    LMC__CHECK(index_at >= LMC__HEADER_SIZE && index_at <= total - LMC__TRAILER_SIZE &&
                   index_size == total - LMC__TRAILER_SIZE - index_at,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_index(r, &r->tables, index_at, index_size));
    LMC__TRY(lmc__get_section(&section, r->tables.index.data, k));
    LMC__CHECK(lmc__is_kind(&section, "INDX") && section.number == 0 &&
                   section.size == index_size - LMC__SECTION_HEADER_SIZE,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__parse_index(&r->tables, k, total, &r->coder->in[0], &offset));
    LMC__CHECK(offset == index_at, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__check_runs(r));
    r->is_complete = 1;
    return LMC_OK;
}

/* In tables with gaps a byte may be in no run, or in one of which nothing but the number is known.
 */
static int lmc__is_in_run(const lmc_reader *r, const lmc__reader_file *f, size_t number,
                          uint64_t offset)
{
    return number < f->first_run + f->n_runs && lmc__run_at(r, number)->run.start <= offset &&
           offset - lmc__run_at(r, number)->run.start < lmc__run_at(r, number)->run.size;
}

/* What a reader's origin reads back: its own file. Not by the window, in which might be what is
 * just being read. What it reads refers to nothing of this snapshot (lmc__add_run), so this is one
 * level deep. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    return lmc_read_file((lmc_reader *)user, file_number, offset, dst, size);
}

LMC_API size_t lmc_count_files(const lmc_reader *r) { return r ? r->tables.n_files : 0; }

LMC_API const lmc_file *lmc_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->tables.n_files ? &lmc__file_at(r, i)->file : NULL;
}

/* Linear in the number of tensors. */
LMC_API enum lmc_status lmc_find_tensor(const lmc_reader *r, const char *path, const char *name,
                                        size_t *file_number, const lmc_tensor **tensor)
{
    const lmc_tensor *found = NULL;
    size_t i, j, where = 0;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    for (i = 0; i < r->tables.n_files; i++) {
        const lmc_file *f = &lmc__file_at(r, i)->file;
        if (path && strcmp(path, f->path) != 0) continue;
        for (j = 0; j < f->n_tensors; j++) {
            if (strcmp(name, f->tensors[j].name) != 0) continue;
            if (found) return LMC_ERR_ARGUMENT;
            found = &f->tensors[j];
            where = i;
        }
    }
    if (!found) return LMC_ERR_NOT_FOUND;
    *file_number = where;
    *tensor = found;
    return LMC_OK;
}

typedef struct lmc__run_search {
    const lmc_reader *reader;
    uint64_t offset;
} lmc__run_search;

static int lmc__is_run_before(const void *context, size_t i)
{
    const lmc__run_search *const s = (const lmc__run_search *)context;
    return lmc__run_at(s->reader, i)->run.start <= s->offset;
}

/* The run of a file that holds byte offset, which is below the file's size: the last that does not
 * begin behind it. Of a file without runs (salvage): first_run. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__reader_file *f, uint64_t offset)
{
    lmc__run_search search;
    if (f->n_runs == 0) return f->first_run;
    search.reader = r;
    search.offset = offset;
    return lmc__find_first(f->first_run + 1, f->first_run + f->n_runs, lmc__is_run_before,
                           &search) -
           1;
}

/* The predictions of n blocks of a run, from number first on, of which bytes [offset, end) of the
 * run go to dst:
 *
 *     run     |     first     |       ...       |      last     |
 *     wanted           |---------- dst ---------------|
 *     reads   |--buffer------|---- to dst -----|--buffer-------|
 *
 * Of a block that is wanted whole, to its place in dst, where it is decoded then; of the others,
 * the first and the last at most, to buffer, that of the first in *head bytes. So what lies side by
 * side is asked for at once. */
static enum lmc_status lmc__read_predictions(lmc_reader *r, const lmc__run *run, uint64_t first,
                                             size_t n, uint64_t offset, uint64_t end, uint8_t *dst,
                                             lmc__buffer *buffer, size_t *head)
{
    const uint64_t start = first * run->block_size,
                   stop = lmc__min64(start + n * (uint64_t)run->block_size, run->size);
    const int has_head = start<offset, has_tail = stop> end && !(has_head && n == 1);
    const size_t tail = has_tail ? lmc__block_size_at(run, first + n - 1) : 0;
    *head = has_head ? lmc__block_size_at(run, first) : 0;
    LMC__TRY(lmc__reserve(buffer, (uint64_t)*head + tail));
    if (*head) LMC__TRY(lmc__read_prediction(&r->origin, run, start, buffer->data, *head));
    if (stop - start > *head + (uint64_t)tail)
        LMC__TRY(lmc__read_prediction(&r->origin, run, start + *head,
                                      dst + (size_t)(start + *head - offset),
                                      (size_t)(stop - start - *head - tail)));
    return tail ? lmc__read_prediction(&r->origin, run, stop - tail, buffer->data + *head, tail)
                : LMC_OK;
}

/* The header of a block that is in memory as far as the index says: it must be the very one that
 * the index knows. Its own checks do not tell it from a block of another file that has the same
 * number there, and perhaps the same size. */
static enum lmc_status lmc__read_known_block(const lmc_reader *r, size_t number, uint64_t block,
                                             const uint8_t *src, lmc_block_info *info)
{
    const lmc__reader_run *run = lmc__run_at(r, number);
    const uint8_t *entry = run->blocks + LMC__BLOCK_ENTRY_SIZE * (size_t)block;
    lmc_position position;
    position.run = (uint32_t)number;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__read_block_info(r->coder->wave.k, src, lmc__load32(entry), position, info));
    LMC__CHECK(info->encoded_size == lmc__load32(entry) &&
                   lmc__load32(src + LMC__BLOCK_CRC_AT) == lmc__load32(entry + 4),
               LMC_ERR_CORRUPT);
    LMC__CHECK(info->size == lmc__block_size_at(&run->run, block), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Bytes [offset, offset + size) of run number `number`, within the run: as many blocks at a time as
 * a wave has, whose code lies side by side and is read at once.
 *
 * First predictions, which may need the coder's buffers, as this reader or one that shares them
 * reads them; from then on the wave. A block that is not the one that the index knows is refused
 * before it is decoded. */
static enum lmc_status lmc__read_indexed_run(lmc_reader *r, size_t number, uint64_t offset,
                                             uint8_t *dst, size_t size)
{
    const lmc__run *run = &lmc__run_at(r, number)->run;
    const uint64_t *block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block,
                   end = offset + size;
    uint64_t block = offset / run->block_size;
    lmc__coder *c = r->coder;
    const size_t largest = (size_t)lmc__min64(run->block_size, run->size);
    lmc__buffer *const base = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (block * run->block_size < end) {
        const uint64_t first = block, blocks_end = (end + run->block_size - 1) / run->block_size;
        const size_t n =
            (size_t)lmc__min64(lmc__count_jobs(c->parallel, largest), blocks_end - first);
        const size_t in_size = (size_t)(block_at[first + n] - block_at[first]);
        size_t head = 0, i;
        /* by this reader, perhaps, or one that shares the coder: before that is in use */
        if (run->prediction != LMC__PREDICT_ZERO)
            LMC__TRY(lmc__read_predictions(r, run, first, n, offset, end, dst, base, &head));
        LMC__TRY(lmc__set_coder(c, largest, lmc__min(largest, LMC_MAX_BLOCK_ELEMENTS), 1));
        c->in[0].size = 0;
        LMC__TRY(lmc__reserve(&c->in[0], in_size));
        LMC__TRY(lmc__read_at(r, block_at[first], c->in[0].data, in_size));
        for (i = 0; i < n; i++, block++) {
            lmc__snapshot_job *const block_job = lmc__job_at(c, i);
            lmc__job *const job = &block_job->job;
            const uint64_t at = block * run->block_size;
            job->src = c->in[0].data + (size_t)(block_at[block] - block_at[first]);
            job->position.run = (uint32_t)number;
            job->position.block = (uint32_t)block;
            LMC__TRY(lmc__read_known_block(r, number, block, job->src, &job->info));
            job->skip = at < offset ? (size_t)(offset - at) : 0;
            job->keep = (size_t)lmc__min64(job->info.size - job->skip, end - (at + job->skip));
            job->dst = dst + (size_t)(at + job->skip - offset);
            LMC__CHECK(!job->info.has_prediction || run->prediction != LMC__PREDICT_ZERO,
                       LMC_ERR_CORRUPT);
            job->base = !job->info.has_prediction     ? NULL
                        : job->keep == job->info.size ? job->dst
                        : at < offset                 ? base->data
                                                      : base->data + head;
            block_job->is_own_prediction = run->prediction == LMC__PREDICT_OWN;
            block_job->is_written = 0;
            block_job->n_pieces = 0;
            job->streaming = lmc__no_streaming;
            job->streaming.is_on = end - offset >= LMC__STREAM_FROM && job->keep == job->info.size;
        }
        lmc__run_tasks(c->parallel, lmc__decode_snapshot_task, c, n);
        LMC__TRY(lmc__jobs_status(c, n));
    }
    return LMC_OK;
}

/* Of a block that is not wanted whole, these many bytes of the run are decoded and kept, or the
 * block if that is larger: what a delta wants of its base comes in pieces as small as tensors,
 * mostly neighbours. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)

/* lmc_base's read. Three ways, whichever fits the next bytes:
 *  - they are in the window;
 *  - they begin with a block that is wanted whole, or are the rest of the run from a block on:
 *    straight to dst, as many whole blocks as there are. The links of a chain are mostly cut alike,
 *    and then a block goes through all of them at one place;
 *  - else the window is filled, from the block that they begin in, and asked again.
 * A window begins with the block that is wanted and ends at a multiple of its span: what is asked
 * for from front to back is decoded once, and so asked for once of the next link. */
static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_reader *r = (lmc_reader *)user;
    const lmc_file *f = lmc_get_file(r, file_number);
    uint8_t *out = (uint8_t *)dst;
    if (!f || offset > f->size || size > f->size - offset) return LMC_ERR_ARGUMENT;
    while (size != 0) {
        const size_t number = lmc__find_run(r, lmc__file_at(r, file_number), offset);
        const lmc__run *run;
        uint64_t at;
        size_t part;
        LMC__CHECK(lmc__is_in_run(r, lmc__file_at(r, file_number), number, offset),
                   LMC_ERR_NOT_FOUND);
        run = &lmc__run_at(r, number)->run;
        at = offset - run->start;
        part = (size_t)lmc__min64(size, run->size - at);
        if (file_number == r->window_file && offset >= r->window_start &&
            offset - r->window_start < r->window.size) {
            part = lmc__min(part, (size_t)(r->window_start + r->window.size - offset));
            memcpy(out, r->window.data + (size_t)(offset - r->window_start), part);
        } else if (at % run->block_size == 0 &&
                   (part >= run->block_size || part == run->size - at)) {
            if (part < run->size - at) part -= part % run->block_size;
            LMC__TRY(r->read_run(r, number, at, out, part));
        } else { /* to be found in it now */
            const size_t span = run->block_size > LMC__WINDOW_SIZE
                                    ? run->block_size
                                    : LMC__WINDOW_SIZE; /* powers of two */
            const uint64_t start = at - at % run->block_size;
            const size_t n = (size_t)lmc__min64(span - start % span, run->size - start);
            r->window.size = 0; /* nothing, if reading fails */
            LMC__TRY(lmc__reserve(&r->window, n));
            LMC__TRY(r->read_run(r, number, start, r->window.data, n));
            r->window.size = n;
            r->window_file = file_number;
            r->window_start = run->start + start;
            continue;
        }
        out += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}

static const lmc_file *lmc__get_reader_file(void *user, size_t file_number)
{
    return lmc_get_file((const lmc_reader *)user, file_number);
}

LMC_API lmc_base lmc_make_reader_base(lmc_reader *reader)
{
    lmc_base base;
    base.n_files = lmc_count_files(reader);
    base.get_file = lmc__get_reader_file;
    base.read = lmc__read_as_base;
    base.user = reader;
    base.chain_depth = reader ? reader->chain_depth : 0;
    return base;
}

/* Run by run. A byte that is in no run is lost (salvage), and what was read before it is of no use
 * to the caller, who learns of no sizes. */
LMC_API enum lmc_status lmc_read_file(lmc_reader *r, size_t file_number, uint64_t offset, void *dst,
                                      size_t size)
{
    const lmc__reader_file *f;
    uint8_t *out = (uint8_t *)dst;
    size_t number;
    if (!r || file_number >= r->tables.n_files || (!dst && size)) return LMC_ERR_ARGUMENT;
    f = lmc__file_at(r, file_number);
    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;
    if (size == 0) return LMC_OK;
    for (number = lmc__find_run(r, f, offset); size != 0; number++) {
        const lmc__run *run;
        size_t n;
        LMC__CHECK(lmc__is_in_run(r, f, number, offset), LMC_ERR_NOT_FOUND);
        run = &lmc__run_at(r, number)->run;
        n = (size_t)lmc__min64(size, run->start + run->size - offset);
        LMC__TRY(r->read_run(r, number, offset - run->start, out, n));
        out += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_tensor(lmc_reader *r, size_t file_number, const lmc_tensor *tensor,
                                        uint64_t offset, void *dst, size_t size)
{
    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;
    return lmc_read_file(r, file_number, tensor->offset + offset, dst, size);
}

LMC_API void lmc_get_identity(const lmc_reader *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (r && identity) memcpy(identity, r->tables.identity, LMC_IDENTITY_SIZE);
}

LMC_API uint32_t lmc_get_base_identity(const lmc_reader *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (r && identity) memcpy(identity, r->base_identity, LMC_IDENTITY_SIZE);
    return r ? r->chain_depth : 0;
}

LMC_API size_t lmc_count_metadata(const lmc_reader *r) { return r ? r->tables.n_metadata : 0; }

LMC_API enum lmc_status lmc_get_metadata(const lmc_reader *r, size_t i, const char **key,
                                         const void **value, size_t *size)
{
    const lmc__metadata_entry *entry;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->tables.n_metadata) return LMC_ERR_NOT_FOUND;
    entry = (const lmc__metadata_entry *)(const void *)r->tables.metadata.data + i;
    *key = (const char *)r->tables.keys.data + entry->key_at;
    *value = entry->value;
    *size = entry->size;
    return LMC_OK;
}

/* The blocks' sizes, and of the first and the last of them their share: a listing wants numbers
 * that add up. */
LMC_API uint64_t lmc_count_encoded(const lmc_reader *r, size_t file_number, uint64_t offset,
                                   uint64_t size)
{
    const lmc__reader_file *f;
    uint64_t encoded = 0;
    size_t number;
    if (!r || file_number >= r->tables.n_files || !r->is_complete) return 0;
    f = lmc__file_at(r, file_number);
    if (offset >= f->file.size) return 0;
    size = lmc__min64(size, f->file.size - offset);
    for (number = lmc__find_run(r, f, offset); size != 0; number++) {
        const lmc__run *run = &lmc__run_at(r, number)->run;
        const uint64_t *block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block;
        const uint64_t n = lmc__min64(size, run->start + run->size - offset),
                       at = offset - run->start;
        const uint64_t first = at / run->block_size, last = (at + n - 1) / run->block_size;
        const uint64_t last_size = lmc__min64(run->block_size, run->size - last * run->block_size);
        const uint64_t before = at - first * run->block_size,
                       behind = last * run->block_size + last_size - (at + n);
        /* all of the blocks, less what lies before and behind in the first and the last of them, in
         * proportion */
        encoded += block_at[last + 1] - block_at[first];
        encoded -= (block_at[first + 1] - block_at[first]) * before /
                   lmc__min64(run->block_size, run->size - first * run->block_size);
        encoded -= (block_at[last + 1] - block_at[last]) * behind / last_size;
        offset += n;
        size -= n;
    }
    return encoded;
}

/* == snapshot/in_place.h ========================================================================== */

/* Whether a delta can be restored over the files of its base, so that no file is needed twice.
 *
 * Each block is decoded where its prediction lies, so a prediction must have the very place, in a
 * file of the same path and size, that what it predicts will have. Blocks go from front to back and
 * only once, and no block's prediction is another block's place: so nothing is overwritten before
 * it was used.
 *
 * That is a question about the mapping, not about bytes: the answer is found in the tables of the
 * reader, in time in proportion to segments and tensors. */

/* The base's files by path; of one path the order is any. */
static enum lmc_status lmc__sort_base_files(const lmc_base *base, lmc__buffer *items)
{
    size_t i;
    for (i = 0; i < base->n_files; i++) {
        const char *path = base->get_file(base->user, i)->path;
        LMC__TRY(lmc__append_item(items, path, strlen(path), NULL));
        ((lmc__item *)(void *)items->data)[i].file_number = i;
    }
    lmc__sort_items((lmc__item *)(void *)items->data, base->n_files);
    return LMC_OK;
}

/* The base's file of the same path, kind and size as file; NULL: there is none. items: the base's
 * files, sorted. Of several of one path any is found; restoring them would not work anyhow. */
static const lmc_file *lmc__find_base_file(const lmc_base *base, const lmc__buffer *items,
                                           const lmc_file *file)
{
    const lmc__item *const item = (const lmc__item *)(const void *)items->data;
    const size_t i = lmc__find_name(item, base->n_files, file->path);
    const lmc_file *const found =
        i < base->n_files ? base->get_file(base->user, item[i].file_number) : NULL;
    return found && strcmp(found->path, file->path) == 0 && found->kind == file->kind &&
                   found->size == file->size
               ? found
               : NULL;
}

/* The prediction of a segment by the base has the segment's own place. file: the base's file, where
 * the base is at hand; else the snapshot's own, which is the same if it can be restored in place at
 * all. *tensor: of file, the first that does not end before the segment; is advanced, as segments
 * come in order.
 *
 * A mapping names an item and an offset in it; the item must be the tensor of that name that lies
 * there, or the file itself if it has no tensors. */
static int lmc__is_in_place(const lmc_reader *r, const lmc_file *file, const lmc__segment *s,
                            size_t *tensor)
{
    const uint64_t at = s->start, from = s->base_offset;
    const lmc__item *item =
        s->base && r->origin.base ? lmc__get_item(&r->origin, s->base - 1) : NULL;
    const lmc_tensor *t;
    if (s->base == 0) return 1;
    if (file->n_tensors == 0)
        return from == at &&
               (!item || (!item->tensor && strcmp((const char *)item->name, file->path) == 0));
    while (*tensor < file->n_tensors &&
           file->tensors[*tensor].offset + file->tensors[*tensor].size <= at)
        ++*tensor;
    if (*tensor == file->n_tensors) return 0;
    t = &file->tensors[*tensor];
    if (t->offset > at || at - t->offset != from) return 0;
    /* of several items of one name and identity, the encoder may have meant any: they have the same
     * bytes */
    return !item || (item->tensor && strcmp(item->tensor->name, t->name) == 0 &&
                     memcmp(item->identity, t->identity, LMC_IDENTITY_SIZE) == 0);
}

LMC_API int lmc_can_restore_in_place(const lmc_reader *r)
{
    const lmc_base *base = r ? r->origin.base : NULL;
    lmc__buffer items;
    size_t i, j;
    uint32_t k;
    int can = r && r->chain_depth != 0 && r->is_complete;
    lmc__init_buffer(&items, r ? r->options.alloc_user : NULL);
    if (can && base) {
        can = base->n_files == r->tables.n_files && lmc__sort_base_files(base, &items) == LMC_OK;
    }
    for (i = 0; can && i < r->tables.n_files; i++) {
        const lmc__reader_file *f = lmc__file_at(r, i);
        const lmc_file *file = base ? lmc__find_base_file(base, &items, &f->file) : &f->file;
        size_t tensor = 0;
        can = file != NULL;
        for (j = f->first_run; can && j < f->first_run + f->n_runs; j++) {
            const lmc__run *run = &lmc__run_at(r, j)->run;
            for (k = 0; can && run->prediction == LMC__PREDICT_BASE && k < run->n_segments; k++) {
                const lmc__segment segment = lmc__segment_at(run, k);
                can = lmc__is_in_place(r, file, &segment, &tensor);
            }
        }
    }
    lmc__free_buffer(&items);
    return can;
}

/* == snapshot/requantise.h ======================================================================== */

/* lmc_read_quantizer: from the heads of a tensor's blocks, the quantiser that they were coded with.
 *
 * Whoever restores a snapshot and codes it again (at another level, without a base, with other
 * files) has elements that lie on a grid, of which nobody but the old file knows. Without it they
 * would be coded as floats, several times as large; fitted anew, they would lose once more.
 * With it the same elements come out, and about the same size. That is not taken on trust: blocks
 * that come out otherwise are coded without loss (is_recovered, see codec/put_quantised.h).
 *
 * A file may be made so that its heads say anything that spec 7.6 allows, and each block something
 * else. So the first head counts, the others must agree, and where they do not the tensor has no
 * quantiser, which is no error. Blocks are read one by one, and their CRCs of headers checked;
 * their elements are not decoded. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Room for the scales of n groups, as blocks come. Not for all at once: a file may claim a tensor
 * of any size, and memory is taken only for what it has shown, doubling, so that scales are seldom
 * moved. What is not read, of blocks that are stored, has the scale of 1. */
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
        (uint16_t *)LMC_REALLOC(q->alloc_user, q->params.scales, q->n_groups * sizeof scales[0],
                                (size_t)more * sizeof scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->params.scales = scales;
    while (q->n_groups < more) scales[q->n_groups++] = LMC__SCALE_OF_ONE;
    return LMC_OK;
}

/* All that a block's head says but its scales, which differ from block to block. */
static int lmc__is_same_quantization(const lmc__quant_params *a, const lmc__quant_params *b)
{
    return a->is_predicted == b->is_predicted && a->low_bits == b->low_bits &&
           a->table_size == b->table_size && a->group_size == b->group_size &&
           a->grid.is_log == b->grid.is_log && a->grid.is_signed == b->grid.is_signed &&
           a->grid.min == b->grid.min && a->grid.step == b->grid.step &&
           a->grid.bias == b->grid.bias && a->grid.floor == b->grid.floor &&
           memcmp(a->table, b->table, sizeof a->table) == 0;
}

/* Takes on what the head of the tensor's first quantised block says. It does not say how many
 * points the grid has: as many as can be numbered and, without a table, have a code. */
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

/* The parameters of a run's quantised block, if the quantiser has none yet, else *is_other where
 * they differ; and the scales of the groups in it. A block that is not quantised, as was smaller,
 * says nothing: it will be coded so again. */
static enum lmc_status lmc__recover_block(lmc_quantizer *q, const lmc__kernels *k,
                                          const uint8_t *src, const lmc_block_info *info,
                                          uint64_t first, uint8_t *ws, size_t ws_size,
                                          int *is_other)
{
    lmc__quant_params *const p = &q->params;
    lmc__quantized_head head;
    size_t i;
    if (!lmc__is_quantized(src)) return LMC_OK;
    *is_other = 1;
    if (info->width != p->width) return LMC_OK;
    LMC__TRY(lmc__read_quantized_head(k, &head, src, info, ws, ws_size));
    if (p->grid.n_points == 0) lmc__set_quantization(p, &head.params);
    else if (!lmc__is_same_quantization(p, &head.params)) return LMC_OK;
    if (!p->is_predicted) {
        const uint64_t group = first / p->group_size;
        /* Groups are counted from the tensor's first element. */
        if ((first + head.first_group) % p->group_size != 0) return LMC_OK;
        LMC__TRY(lmc__reserve_scales(q, group + head.n_groups));
        for (i = 0; i < head.n_groups; i++)
            p->scales[group + i] = (uint16_t)(lmc__scale_at(&head, i) >> 16);
    }
    *is_other = 0;
    return LMC_OK;
}

/* The codes of symbols, as they were found when the table was fitted: not only of those in it, for
 * BF16 may have been rounded to a neighbour, which must find its code again. The grid's begin is
 * not where it was when codes were found, but table and symbols have moved together. */
static enum lmc_status lmc__set_codes(lmc_quantizer *q)
{
    lmc__quant_params *const p = &q->params;
    uint32_t s, distance;
    unsigned code = 1;
    if (p->table_size == 0) return LMC_OK;
    q->n_codes = LMC__SYMBOLS;
    p->codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_codes);
    if (!p->codes) return LMC_ERR_MEMORY;
    memset(p->codes, 0, q->n_codes);
    for (s = 1; s < LMC__EXCEPTION; s++)
        p->codes[s] = (uint8_t)lmc__find_code(p, &code, s, lmc__zero_symbol(&p->grid), &distance);
    return LMC_OK;
}

/* From the blocks of the run that holds the tensor, one after another. Only a run of the tensor
 * alone may be quantised. Its parameters are complete when the last block was read: each has the
 * scales of its own groups, and the table and grid are the same in all. *twin: where the run's
 * prediction lies, which the one who codes it again must give. Memory grows with what was read. */
static enum lmc_status lmc__recover_quantizer(lmc_quantizer *q, lmc_reader *r,
                                              const lmc__reader_file *f, const lmc_tensor *t,
                                              lmc_twin *twin)
{
    const size_t number = lmc__find_run(r, f, t->offset);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t *const block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block;
    const size_t ws_size = lmc_workspace_size(
        lmc__min((size_t)lmc__min64(run->block_size, run->size), LMC_MAX_BLOCK_ELEMENTS));
    enum lmc_status status = LMC_OK;
    lmc__buffer in, ws;
    uint64_t block;
    int is_other = 0;
    /* Until the end proves otherwise. */
    (void)lmc__keep_lossless(q, "its blocks are not of one quantiser");
    if (run->start != t->offset || run->size != t->size || run->n_segments != 1 ||
        run->prediction == LMC__PREDICT_BASE || run->conversion)
        return LMC_OK;
    memset(&in, 0, sizeof in);
    in.alloc_user = q->alloc_user;
    ws = in;
    status = lmc__reserve(&ws, ws_size);
    for (block = 0; block < run->n_blocks && status == LMC_OK && !is_other; block++) {
        const size_t size = (size_t)(block_at[block + 1] - block_at[block]);
        lmc_block_info info;
        in.size = 0;
        status = lmc__reserve(&in, size);
        if (status == LMC_OK) status = lmc__read_at(r, block_at[block], in.data, size);
        if (status == LMC_OK) status = lmc__read_known_block(r, number, block, in.data, &info);
        if (status == LMC_OK)
            status = lmc__recover_block(q, r->coder->wave.k, in.data, &info,
                                        block * run->block_size / q->params.width, ws.data, ws_size,
                                        &is_other);
    }
    lmc__free_buffer(&in);
    lmc__free_buffer(&ws);
    LMC__TRY(status);
    /* No block that is quantised says nothing, and a prediction in the blocks but none in the run,
     * or the other way round, is not what an encoder writes. */
    if (is_other || q->params.grid.n_points == 0 ||
        q->params.is_predicted != (run->prediction == LMC__PREDICT_OWN))
        return LMC_OK;
    LMC__TRY(lmc__set_codes(q));
    if (!q->params.is_predicted) /* also of blocks that are not quantised */
        LMC__TRY(lmc__reserve_scales(q, (q->n - 1) / q->params.group_size + 1));
    if (q->params.is_predicted && twin) {
        twin->file_number = lmc__load32(run->segments + 4) - 1;
        twin->offset = lmc__load64(run->segments + 24);
        twin->conversion = LMC_CONVERT_NONE;
    }
    /* Who does not ask for the twin cannot give the prediction. */
    q->info.is_lossless = q->params.is_predicted && !twin;
    q->info.reason = "";
    q->info.is_grid = q->params.table_size == 0;
    q->info.n_codes = q->params.table_size ? q->params.table_size + 1 : 0;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_quantizer(lmc_quantizer **quantizer, lmc_reader *r,
                                           size_t file_number, const lmc_tensor *t, lmc_twin *twin)
{
    enum lmc_status status = LMC_OK;
    enum lmc_dtype dtype;
    lmc_quantizer *q;
    if (!quantizer || !r || r->options.salvage || file_number >= lmc_count_files(r) || !t ||
        t->offset > lmc__file_at(r, file_number)->file.size ||
        t->size > lmc__file_at(r, file_number)->file.size - t->offset)
        return LMC_ERR_ARGUMENT;
    q = (lmc_quantizer *)LMC_REALLOC(r->options.alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = r->options.alloc_user;
    q->params.is_recovered = 1;
    q->info.loss = t->loss;
    dtype = lmc_find_dtype(t->dtype);
    q->params.width = lmc_dtype_width(dtype);
    q->n = t->size / q->params.width;
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || t->loss.generation == 0 || t->size == 0)
        (void)lmc__keep_lossless(q, "it was not quantised");
    else status = lmc__recover_quantizer(q, r, lmc__file_at(r, file_number), t, twin);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}

#endif

/* == snapshot/salvage.h =========================================================================== */

#ifndef LMC_NO_SALVAGE

/* Salvage: what is intact in a damaged file (spec 16). A reader, as others, whose tables come from
 * what was found:
 *
 *     salvage_walk.h    goes through the file: sections, headers of blocks, the index
 *     salvage_place.h   says which bytes of which file each block is; fills the tables
 *     salvage_read.h    decodes them; hands out ranges; compares identities
 *
 * What it promises, and on what:
 *
 *  - What is handed out as intact has the Content_CRC that its header says; the header has its
 *    Header_CRC, which covers the block's position; and that position is where it is handed out.
 *    Damage passes with a chance of 2^-32 or so for each block. A block in a wrong place does not,
 *    unless it was made for such a place: in another LMC file, with the same numbers and size. An
 *    index tells it from the right one by its Header_CRC; without an index, where both are found,
 *    neither is handed out (is_doubtful).
 *
 *  - Nothing intact is passed over, wherever it lies: bytes that a damaged header claims are
 *    searched again. The limits on work below are reached by hostile files only.
 *
 *  - Time is linear in the file's size: what is read twice is counted (lmc__may_claim), and so is
 *    what is tried (LMC__MAX_ORPHANS, LMC__MAX_TRIES, LMC__MAX_COPIES).
 *
 *  - Memory is in proportion to what is found: bodies of sections up to max_index_size, a
 *    lmc__found_block for each block, and tables as of other readers. */

enum { LMC__KIND_FILE = 0, LMC__KIND_RUN = 1 };

/* An intact section, where there is no index. */
typedef struct lmc__found_section {
    uint64_t at;
    uint64_t body_at; /* in tables.index */
    uint64_t size;    /* of the body */
    uint32_t number;
    int kind;
} lmc__found_section;

/* How sure it is that a block belongs where its header says; more is better. */
enum {
    /* It lies within the bytes that another block's header claims: perhaps it is part of the
     * content of that one. */
    LMC__TRUST_INNER = 0,
    /* It lies anywhere else. */
    LMC__TRUST_LONE = 1,
    /* It follows its section, or another such block, without a gap. */
    LMC__TRUST_ROW = 2,
    /* It lies where the index says. */
    LMC__TRUST_INDEX = 3
};

/* The header of a block, which is right for that position. */
typedef struct lmc__found_block {
    uint64_t at;
    uint32_t run, block;
    /* Encoded size, decoded size, CRC of the content: as the header says. */
    uint32_t size, length, crc;
    uint32_t header_crc;
    uint8_t trust;
    /* There is another block of this position, as good, but of other content. */
    uint8_t is_doubtful;
    uint8_t has_prediction;
    /* Of LMC__TRUST_INNER the other block, in which it lies. If that is intact, this one is but a
     * part of its content. */
    uint32_t outer_run, outer_block;
} lmc__found_block;

/* The header of a block, perhaps: of which run is not known yet. Its position is state ^
 * lmc__run_state(run). */
typedef struct lmc__orphan {
    lmc__found_block block;
    uint32_t state;
    uint32_t after;    /* number of the run that it follows, plus 1 */
    uint64_t after_at; /* and where that one's section ended */
} lmc__orphan;

/* Bytes look like the header of a block by chance, too, as without its run a Header_CRC cannot be
 * compared. So many are kept at most. */
#define LMC__MAX_ORPHANS ((size_t)1 << 20)
/* Copies of a block that are tried before it counts as damaged. */
#define LMC__MAX_COPIES 4u

/* A reader of a damaged file: the reader first, so that whoever has that has this, too. */
typedef struct lmc__salvage {
    lmc_reader reader;
    /* What lmc_get_damage says. */
    lmc_damage damage;

    /* -- the walk -- */
    /* Where the index begins, if that is known; else the file's size. */
    uint64_t end;
    /* Bytes of the file from view_at on, read at once. */
    lmc__buffer view;
    uint64_t view_at;
    /* lmc__found_section, where there is no index. Their bodies are in reader.tables.index. */
    lmc__buffer sections;
    /* The body of one section, where the index has them all. */
    lmc__buffer body;
    /* lmc__orphan. */
    lmc__buffer orphans;
    /* Bytes that were read twice. */
    uint64_t claimed;

    /* -- what was found -- */
    /* lmc__found_block: n_blocks that have a place in the files, sorted; then those without. */
    lmc__buffer blocks;
    size_t n_blocks;

    /* -- decoding -- */
    /* The outer block of one that was asked for last, and whether it is intact; see lmc__try_outer.
     * in_outer: it is just being decoded. */
    lmc__buffer outer;
    uint32_t outer_run, outer_block;
    enum lmc_status outer_status;
    int in_outer;

    /* -- lmc_next_range -- */
    /* Where it is: file, byte of it, run; behind the last file, the block without a place. */
    size_t file, run, unplaced;
    uint64_t offset;
    /* Bytes that were handed out, of max_total_size. */
    uint64_t delivered;
    /* The range that was handed out last. */
    lmc__buffer range;

    /* -- lmc_confirm -- */
    /* Of the file at hand; is_whole: nothing of it was lost so far. */
    lmc__digester digester;
    int is_whole;
    /* int8_t, what to say: of each file, followed by its tensors. And size_t: where in that each
     * file's begin. */
    lmc__buffer verdicts, verdicts_at;
} lmc__salvage;

/* Of a reader that was opened with options.salvage. */
static lmc__salvage *lmc__get_salvage(const lmc_reader *r) { return (lmc__salvage *)(void *)r; }

/* Of its own; the reader has its own, too. */
static void lmc__visit_salvage(lmc__salvage *s, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&s->view, alloc_user);
    visit(&s->sections, alloc_user);
    visit(&s->blocks, alloc_user);
    visit(&s->orphans, alloc_user);
    visit(&s->body, alloc_user);
    visit(&s->outer, alloc_user);
    visit(&s->range, alloc_user);
    visit(&s->verdicts, alloc_user);
    visit(&s->verdicts_at, alloc_user);
}

/* -- blocks that were found -- */

/* Valid until one more is found. */
static lmc__found_block *lmc__found_at(const lmc__salvage *s, size_t i)
{
    return (lmc__found_block *)(void *)s->blocks.data + i;
}
static size_t lmc__count_found(const lmc__salvage *s)
{
    return s->blocks.size / sizeof(lmc__found_block);
}

/* By position; of one position the best first, and of two as good the one that lies first. */
static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->run != b->run) return a->run < b->run ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    if (a->trust != b->trust) return a->trust > b->trust ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Blocks of a file that was not shuffled are in order as they were found. */
static void lmc__sort_found(lmc__found_block *found, size_t n)
{
    size_t i = 1;
    while (i < n && lmc__compare_found(&found[i - 1], &found[i]) < 0) i++;
    if (i < n) lmc__heap_sort(found, n, sizeof *found, lmc__compare_found);
}

typedef struct lmc__block_search {
    const lmc__salvage *s;
    size_t run;
    uint64_t block;
} lmc__block_search;

static int lmc__is_block_before(const void *context, size_t i)
{
    const lmc__block_search *const search = (const lmc__block_search *)context;
    const lmc__found_block *const f = lmc__found_at(search->s, i);
    return f->run < search->run || (f->run == search->run && f->block < search->block);
}

/* The first of the sorted ones that is not before (run, block). */
static size_t lmc__find_found(const lmc__salvage *s, size_t run, uint64_t block)
{
    lmc__block_search search;
    search.s = s;
    search.run = run;
    search.block = block;
    return lmc__find_first(0, s->n_blocks, lmc__is_block_before, &search);
}

/* -- the position of a block, out of its header --
 * Header_CRC is a CRC-32C over run number, block number and the header before it; neither number is
 * stored. A CRC register takes 32 bits by exclusive or, then steps: reversible, and linear. So the
 * bytes of the header can be taken back from the stored CRC, then four steps of the block's number
 * as if that were 0. What is left is the register after the run's number, exclusive or the
 * block's: with one number known, the other is. */

/* Of the header at that place: the exclusive or of its block's number and of lmc__run_state of its
 * run. */
static uint32_t lmc__header_state(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    return lmc__rewind_crc(
        lmc__rewind_crc(~lmc__load32(header + LMC__BLOCK_CRC_AT), header, LMC__BLOCK_CRC_AT), zeros,
        4);
}

/* The register after a run's number was taken, as a header's CRC begins. */
static uint32_t lmc__run_state(const lmc__kernels *k, uint32_t run)
{
    uint8_t field[4];
    lmc__store32(field, run);
    return ~k->crc32c(0, field, 4);
}

/* The header of a block may be that of this number in the run; entries: what the index knows of the
 * run's blocks, or NULL. */
static int lmc__fits_run(const lmc__run *run, const uint8_t *entries, const lmc__found_block *f)
{
    if (f->block >= run->n_blocks || lmc__block_size_at(run, f->block) != f->length) return 0;
    if (!entries) return 1;
    entries += LMC__BLOCK_ENTRY_SIZE * (size_t)f->block;
    return lmc__load32(entries) == f->size && lmc__load32(entries + 4) == f->header_crc;
}

/* -- bytes of the file -- */

/* Bytes of the file; what cannot be read is zero. 1: all could. By pages where reading fails, which
 * is how disks fail, so that only what is really lost is. */
static int lmc__read_rest(lmc_reader *r, uint64_t at, uint8_t *dst, size_t size)
{
    size_t i, part;
    int all = 1;
    if (lmc__read_at(r, at, dst, size) == LMC_OK) return 1;
    for (i = 0; i < size; i += part) { /* by pages, which is how disks fail */
        part = lmc__min(size - i, 4096 - (size_t)((at + i) % 4096));
        if (lmc__read_at(r, at + i, dst + i, part) == LMC_OK) continue;
        memset(dst + i, 0, part);
        all = 0;
    }
    return all;
}

/* Bytes [at, at + size) of the file, which has them, and up to `more` behind them; *n: how many.
 * What is at hand is used first: a search asks for one byte after the other. */
static enum lmc_status lmc__view(lmc__salvage *s, uint64_t at, size_t size, size_t more,
                                 const uint8_t **p, size_t *n)
{
    if (at < s->view_at || at - s->view_at > s->view.size ||
        size > s->view.size - (size_t)(at - s->view_at)) {
        const size_t wanted = (size_t)lmc__min64(size + (uint64_t)more, s->reader.source.size - at);
        s->view.size = 0;
        LMC__TRY(lmc__reserve(&s->view, wanted));
        (void)lmc__read_rest(&s->reader, at, s->view.data, wanted);
        s->view.size = wanted;
        s->view_at = at;
    }
    *p = s->view.data + (size_t)(at - s->view_at);
    *n = s->view.size - (size_t)(at - s->view_at);
    return LMC_OK;
}

/* What may be read twice: a hostile file can have a header at every byte, each of which claims the
 * rest of the file. Eight times the file's size is enough for any damage. size 0: only to ask. */
static int lmc__may_claim(lmc__salvage *s, uint64_t size)
{
    const uint64_t file_size = lmc__min64(s->reader.source.size, (uint64_t)1 << 56);
    if (s->claimed > 8 * file_size + ((uint64_t)16 << 20)) return 0;
    s->claimed += size;
    return 1;
}

/* -- the index -- */

/* The index that the tables hold says that it begins somewhere else than where it was found. It is
 * this file's all the same if the first section is the one that it names: then bytes were lost or
 * came in between. Another file's, whole, could be part of a damaged block. */
static int lmc__is_foreign(lmc_reader *r, const lmc__tables *t)
{
    uint8_t first[LMC__SECTION_HEADER_SIZE];
    return !lmc__read_rest(r, LMC__HEADER_SIZE, first, sizeof first) ||
           memcmp(first, t->index.data + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + 8,
                  sizeof first) != 0;
}

/* The index, if there is an intact one at that place and it is this file's, becomes the tables.
 * What was found so far is forgotten then, for all is searched again with its help. If it is not,
 * nothing changes but *is_foreign. */
static enum lmc_status lmc__take_index(lmc__salvage *s, uint64_t at, uint64_t size, int *is_foreign)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    lmc__tables found;
    lmc__section section;
    uint64_t offset = 0;
    enum lmc_status status;
    lmc__init_tables(&found, r->options.alloc_user);
    status = lmc__read_index(r, &found, at, size);
    if (status == LMC_OK)
        status = lmc__parse_index(&found, k, LMC__MAX_FILE_SIZE, &r->coder->in[0], &offset);
    if (status == LMC_OK && offset != at && lmc__is_foreign(r, &found)) {
        *is_foreign = 1;
        status = LMC_ERR_CORRUPT;
    }
    if (status != LMC_OK) {
        lmc__free_tables(&found);
        return status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE ? status : LMC_OK;
    }
    lmc__free_tables(&r->tables);
    r->tables = found;
    s->sections.size = s->blocks.size = s->orphans.size = 0;
    s->damage.n_sections = lmc__get_section(&section, found.index.data, k) != LMC_OK;
    s->damage.n_breaks = 0;
    s->damage.has_index = s->damage.is_complete = 1;
    s->end = at;
    return LMC_OK;
}
#endif /* LMC_NO_SALVAGE */

/* == snapshot/salvage_walk.h ====================================================================== */

#ifndef LMC_NO_SALVAGE

/* The walk through a damaged file: from front to back, from one thing (section or block) to the
 * next, and where that fails, byte by byte until something is found again.
 *
 *     state      what holds                            next: a section  a block    neither
 *     IN_ROW     `at` is where the last thing ends;    IN_ROW           IN_ROW     break
 *                nothing was missing since a section
 *     LINKED     `at` is where the last thing ends;    IN_ROW           LINKED     break
 *                the row began with a block
 *     SEARCHING  anything may begin at any byte        IN_ROW           LINKED     one byte on
 *     ENDED      the index, or the file's end
 *
 * The walk begins LINKED, behind the file's header.
 *
 * While linked, only what *should* follow is taken (lmc__is_next): if something else stands there,
 * what is between may lie in the bytes of the last thing, which was shortened. While searching, a
 * section is taken only if its body is intact, as nothing but its own header speaks for it.
 *
 * A break (lmc__break_link) searches on from `resume`, behind the last thing's *header*: its size
 * may be damaged, or bytes of it lost, so the next thing may begin anywhere behind. Only the body
 * of an intact section is passed over. If the last thing was a block, the bytes up to where it
 * would end are its *outer* block's: what is found there may be content, and is trusted least.
 *
 *     |--- header ---|------------ payload of block 7 ------------|
 *                    ^ resume                                     ^ at: nothing that fits
 *                    |<---------- searched again: outer = 7 ------>|
 *
 * At the end of the file, linked: ENDED if all blocks of the last run were there, else a break: the
 * last thing may be longer than it was. Searching: ENDED.
 *
 * Every step moves `at` forwards, but for breaks. Those are bounded: one needs a thing found since
 * the last, and moves to behind that thing's header; and what is read twice for it is counted
 * (lmc__may_claim). */
enum lmc__walk_state { LMC__LINKED, LMC__IN_ROW, LMC__SEARCHING, LMC__ENDED };

/* What was found last. */
enum lmc__walk_last { LMC__LAST_NOTHING, LMC__LAST_FILE, LMC__LAST_RUN, LMC__LAST_BLOCK };

typedef struct lmc__walk {
    enum lmc__walk_state state;
    enum lmc__walk_last last;
    /* Where it is. Linked: where the last thing ends. */
    uint64_t at;
    /* Of the last thing: so many bytes a break reads again, and from here on. */
    uint64_t last_size, resume;
    /* The block in which the search began: where it would end; its numbers. */
    uint64_t outer_end;
    uint32_t outer_run, outer_block;
    /* Number of the file that should come next. */
    uint32_t next_file;

    /* -- the run at hand: the last whose section, or one of whose blocks, was found -- */
    /* Its number, plus 1; 0: none yet. */
    uint32_t after;
    /* Where its section ended, if that was found. */
    uint64_t after_at;
    /* The block that should come next, of so many; 0: it is not known of how many. */
    uint64_t next_block, n_blocks;
    /* Without an index: its section was intact, so it is known. */
    int has_run;
    lmc__run run;
} lmc__walk;

/* Something should begin right here. */
static int lmc__is_linked(const lmc__walk *w) { return w->state != LMC__SEARCHING; }

/* A section that stands where the last thing ends is also what should follow that: the next one in
 * its numbers, and not before all blocks of the run. While searching, any may be. */
static int lmc__is_next(const lmc__salvage *s, const lmc__walk *w, const lmc__section *section)
{
    if (!lmc__is_linked(w)) return 1;
    if (w->n_blocks != 0 && w->next_block != w->n_blocks) return 0;
    if (lmc__is_kind(section, "INDX")) return 1;
    if (!lmc__is_kind(section, "FILE")) return section->number == w->after;
    if (section->number != w->next_file) return 0;
    /* with an index it is known which runs stand before it */
    return !s->damage.has_index ||
           (section->number < s->reader.tables.n_files &&
            lmc__file_at(&s->reader, section->number)->first_run == w->after);
}

/* An INDX section. If it is intact and this file's, its tables replace what was found, and all is
 * searched again with their help. Damaged, where it should be, it is the end as well. Elsewhere it
 * is part of something else. *step: its size, if it is the end. */
static enum lmc_status lmc__meet_index(lmc__salvage *s, lmc__walk *w, const lmc__section *section,
                                       uint64_t *step)
{
    const uint64_t size = LMC__SECTION_HEADER_SIZE + section->size;
    int is_foreign = 0;
    if (s->damage.has_index || section->number != 0 || !lmc__may_claim(s, section->size))
        return LMC_OK; /* where the index that is known begins the walk ends */
    LMC__TRY(lmc__take_index(s, w->at, size, &is_foreign));
    if (!s->damage.has_index) {
        if (!lmc__is_linked(w) || is_foreign) return LMC_OK;
        s->damage.is_complete = s->damage.n_breaks == 0;
    }
    w->state = LMC__ENDED; /* nothing follows it, be it damaged or not */
    s->end = w->at;
    *step = size;
    return LMC_OK;
}

/* The run at hand is now the one whose section begins at w->at. How many blocks it has is known by
 * the index, or by the section's body, if that is intact; else body is NULL. */
static void lmc__begin_walked_run(lmc__salvage *s, lmc__walk *w, const lmc__section *section,
                                  const uint8_t *body)
{
    w->after = section->number + 1;
    w->after_at = w->at + LMC__SECTION_HEADER_SIZE + section->size;
    if (s->damage.has_index) {
        if (section->number < lmc__count_runs(&s->reader.tables))
            w->n_blocks = lmc__run_at(&s->reader, section->number)->run.n_blocks;
    } else if (body && section->size >= LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE) {
        const uint8_t *const segment = body + LMC__RUN_BODY_SIZE;
        uint64_t start = lmc__load64(segment + 8);
        lmc_file file; /* which is not known here */
        memset(&file, 0, sizeof file);
        file.size = LMC_UNKNOWN_SIZE;
        w->has_run = start <= LMC__MAX_FILE_SIZE &&
                     lmc__parse_run(&w->run, body, (size_t)section->size, lmc__load32(segment),
                                    &file, &start) == LMC_OK;
        if (w->has_run) w->n_blocks = w->run.n_blocks;
    }
}

/* A FILE or RUN section. A damaged one is taken where it should be, since its header is right; so
 * the walk stays linked. *step: its size, if it is taken. */
static enum lmc_status lmc__meet_section(lmc__salvage *s, lmc__walk *w, const lmc__section *section,
                                         uint64_t *step)
{
    lmc_reader *const r = &s->reader;
    const uint64_t size = LMC__SECTION_HEADER_SIZE + section->size;
    const int is_file = lmc__is_kind(section, "FILE");
    /* without an index bodies are kept, one behind the other */
    lmc__buffer *const kept = s->damage.has_index ? &s->body : &r->tables.index;
    const uint8_t *body;
    int is_intact;
    /* a section and a block before it take so many bytes at least */
    if ((!is_file && !lmc__is_kind(section, "RUN ")) || section->number > w->at / 56 + 1)
        return LMC_OK;
    if (!lmc__may_claim(s, section->size)) return LMC_OK;
    if (s->damage.has_index) kept->size = 0;
    LMC__TRY(lmc__reserve(kept, section->size + 1)); /* so that data is not NULL */
    body = kept->data + kept->size;
    (void)lmc__read_rest(r, w->at + LMC__SECTION_HEADER_SIZE, kept->data + kept->size,
                         (size_t)section->size);
    is_intact = r->coder->wave.k->crc32c(0, body, (size_t)section->size) == section->body_crc;
    if (!is_intact && !lmc__is_linked(w)) return LMC_OK;
    s->damage.n_sections += !is_intact;
    if (is_intact && !s->damage.has_index) {
        lmc__found_section found;
        found.kind = is_file ? LMC__KIND_FILE : LMC__KIND_RUN;
        found.body_at = kept->size;
        found.at = w->at;
        found.size = section->size;
        found.number = section->number;
        LMC__TRY(lmc__append(&s->sections, &found, sizeof found));
        kept->size += (size_t)section->size;
    }
    w->has_run = 0;
    w->n_blocks = w->next_block = 0;
    if (is_file) w->next_file = section->number + 1;
    else lmc__begin_walked_run(s, w, section, is_intact ? body : NULL);
    w->state = LMC__IN_ROW;
    w->last = is_file ? LMC__LAST_FILE : LMC__LAST_RUN;
    /* Head_CRC does not cover Body_CRC, the header's last four bytes: of a damaged section, they
     * may be the first of something else */
    w->resume = w->at + (is_intact ? size : LMC__SECTION_HEADER_SIZE - 4);
    *step = size;
    return LMC_OK;
}

/* What looks like the header of a section is at p. It must have its Head_CRC, fit what should
 * follow, and lie within the file and the limits. */
static enum lmc_status lmc__look_at_section(lmc__salvage *s, lmc__walk *w, const uint8_t *p,
                                            uint64_t *step)
{
    const lmc_reader *const r = &s->reader;
    const uint64_t limit = lmc__index_limit(&r->options.limits);
    lmc__section section;
    if (lmc__get_section(&section, p, r->coder->wave.k) != LMC_OK ||
        !lmc__is_next(s, w, &section) ||
        section.size > r->source.size - w->at - LMC__SECTION_HEADER_SIZE || section.size > limit ||
        s->sections.size > limit)
        return LMC_OK;
    return lmc__is_kind(&section, "INDX") ? lmc__meet_index(s, w, &section, step)
                                          : lmc__meet_section(s, w, &section, step);
}

/* The runs that a block may belong to: number j, from that of the run at hand on; NULL: no more.
 * With an index, that and three more, for the sections of a few may be lost in between; without,
 * only the run at hand is known. entries: as of lmc__fits_run. */
static const lmc__run *lmc__walked_run(const lmc__salvage *s, const lmc__walk *w, size_t j,
                                       const uint8_t **entries)
{
    const lmc_reader *const r = &s->reader;
    const size_t first = w->after ? w->after - 1 : 0;
    *entries = NULL;
    if (!s->damage.has_index) return w->has_run && j == first ? &w->run : NULL;
    if (j >= lmc__count_runs(&r->tables) || j >= first + 4) return NULL;
    *entries = lmc__run_at(r, j)->blocks;
    return &lmc__run_at(r, j)->run;
}

/* The header of a block whose numbers are right for run number j. Linked, only the next block of
 * the run at hand is taken: what else stands there may be content of one that was shortened. *step:
 * its size, if it is taken. */
static enum lmc_status lmc__meet_block(lmc__salvage *s, lmc__walk *w, const lmc__run *run, size_t j,
                                       const lmc__found_block *block, uint64_t *step)
{
    const size_t first = w->after ? w->after - 1 : 0;
    const int is_in_run = w->last == LMC__LAST_RUN || w->last == LMC__LAST_BLOCK;
    if (lmc__is_linked(w) && (!is_in_run || j != first || block->block != w->next_block))
        return LMC_OK;
    LMC__TRY(lmc__append(&s->blocks, block, sizeof *block));
    w->after = (uint32_t)j + 1;
    w->next_block = (uint64_t)block->block + 1;
    w->n_blocks = run->n_blocks;
    if (w->state == LMC__SEARCHING) w->state = LMC__LINKED;
    w->last = LMC__LAST_BLOCK;
    w->resume = w->at + LMC__SECTION_HEADER_SIZE - 4;
    *step = block->size;
    return LMC_OK;
}

/* What looks like the header of a block is at p. Run and block are not stored in it, but follow
 * from its CRC (lmc__header_state): a run is tried by working out the block's number, which must
 * then be below the run's count, and the size right for it. If no run that is known fits, it is
 * kept as an orphan: its section may be lost, or come later. */
static enum lmc_status lmc__look_at_block(lmc__salvage *s, lmc__walk *w, const uint8_t *p,
                                          uint64_t *step)
{
    const lmc__kernels *const k = s->reader.coder->wave.k;
    const lmc__run *run;
    const uint8_t *entries;
    lmc_block_info info;
    lmc__orphan o;
    size_t j;
    if (!lmc__is_linked(w) && !lmc__may_claim(s, 0)) return LMC_OK;
    if (lmc__parse_block_info(p, &info) != LMC_OK ||
        info.encoded_size > s->reader.source.size - w->at ||
        info.encoded_size <= LMC_BLOCK_HEADER_SIZE)
        return LMC_OK;
    memset(&o, 0, sizeof o);
    o.block.at = w->at;
    o.block.size = (uint32_t)info.encoded_size;
    o.block.length = (uint32_t)info.size;
    o.block.crc = info.crc;
    o.block.header_crc = lmc__load32(p + LMC__BLOCK_CRC_AT);
    o.block.has_prediction = (uint8_t)info.has_prediction;
    o.block.trust = w->state == LMC__IN_ROW ? LMC__TRUST_ROW : LMC__TRUST_LONE;
    if (w->at < w->outer_end) {
        o.block.trust = LMC__TRUST_INNER;
        o.block.outer_run = w->outer_run;
        o.block.outer_block = w->outer_block;
    }
    o.state = lmc__header_state(p);
    o.after = w->after;
    o.after_at = w->after_at;
    for (j = w->after ? w->after - 1 : 0; (run = lmc__walked_run(s, w, j, &entries)) != NULL; j++) {
        o.block.run = (uint32_t)j;
        o.block.block = o.state ^ lmc__run_state(k, (uint32_t)j);
        if (lmc__fits_run(run, entries, &o.block))
            return lmc__meet_block(s, w, run, j, &o.block, step);
    }
    if (s->orphans.size / sizeof o < LMC__MAX_ORPHANS && lmc__may_claim(s, LMC_BLOCK_HEADER_SIZE))
        return lmc__append(&s->orphans, &o, sizeof o);
    return LMC_OK;
}

/* Nothing that fits is where the last thing ends: the search begins at w->resume. If that was a
 * block and its bytes may not be searched (too much was read twice), it is taken back: what it
 * hides would be lost silently otherwise. */
static void lmc__break_link(lmc__salvage *s, lmc__walk *w)
{
    s->damage.n_breaks++;
    if (w->last == LMC__LAST_BLOCK) {
        const lmc__found_block *const last = lmc__found_at(s, lmc__count_found(s) - 1);
        if (lmc__may_claim(s, w->last_size)) {
            w->outer_end = w->at;
            w->outer_run = last->run;
            w->outer_block = last->block;
        } else
            s->blocks.size -= sizeof *last; /* its bytes cannot be searched: it may hide others */
    }
    w->state = LMC__SEARCHING;
    w->at = w->resume;
}

/* No section fits into what is left of the file. Where that is also the end of what should be
 * there, nothing is missing at the end. */
static void lmc__meet_end(lmc__salvage *s, lmc__walk *w)
{
    const int has_all_blocks = w->n_blocks == 0 || w->next_block == w->n_blocks;
    const int has_all_runs = !s->damage.has_index || w->after == lmc__count_runs(&s->reader.tables);
    if (!lmc__is_linked(w)) {
        w->state = LMC__ENDED;
    } else if (w->at == s->end && has_all_blocks && has_all_runs) {
        if (s->damage.n_breaks == 0 && s->damage.has_trailer) s->damage.is_complete = 1;
        w->state = LMC__ENDED;
    } else lmc__break_link(s, w);
}

/* The whole walk. While searching, only bytes with which a header can begin are looked at: the sync
 * byte of blocks, and the first letters of the kinds of sections. */
static enum lmc_status lmc__walk_through(lmc__salvage *s)
{
    uint8_t is_first[256]; /* bytes with which a header begins */
    lmc__walk w;
    memset(is_first, 0, sizeof is_first);
    is_first[LMC__BLOCK_SYNC] = is_first['F'] = is_first['R'] = is_first['I'] = 1;
    memset(&w, 0, sizeof w);
    w.state = LMC__LINKED;
    w.at = LMC__HEADER_SIZE;
    w.resume = s->damage.has_header ? LMC__HEADER_SIZE : 0;
    while (w.state != LMC__ENDED) {
        uint64_t step = 0; /* 0: nothing is taken */
        const uint8_t *p;
        size_t n, i;
        if (w.at > s->end || s->end - w.at < LMC__SECTION_HEADER_SIZE) {
            lmc__meet_end(s, &w);
            continue;
        }
        LMC__TRY(lmc__view(s, w.at, LMC__SECTION_HEADER_SIZE,
                           lmc__is_linked(&w) ? 4096 : (size_t)256 << 10, &p, &n));
        if (p[0] == LMC__BLOCK_SYNC) LMC__TRY(lmc__look_at_block(s, &w, p, &step));
        else if (is_first[p[0]]) LMC__TRY(lmc__look_at_section(s, &w, p, &step));
        if (step) {
            w.last_size = step;
            w.at += step;
        } else if (lmc__is_linked(&w)) {
            lmc__break_link(s, &w);
        } else {
            for (i = 1; i < n && !is_first[p[i]]; i++) {}
            w.at += i;
        }
    }
    return LMC_OK;
}
#endif /* LMC_NO_SALVAGE */

/* == snapshot/salvage_place.h ===================================================================== */

#ifndef LMC_NO_SALVAGE

/* From what the walk has found to tables: which bytes of which file each block is.
 *
 * With an index that is known. Without, it is put together in this order, each step from what the
 * ones before have made certain:
 *     1. sections: files and runs whose sections are intact (lmc__collect_sections)
 *     2. orphans of known runs: blocks whose numbers fit one of those (lmc__adopt_orphans)
 *     3. orphans of unknown runs: their run's number, where only one is possible, then its place in
 *        the files, where its neighbours leave only one (lmc__number_orphans, lmc__place_run)
 *     4. of blocks with the same position the best, and up to three copies (lmc__choose_blocks)
 *     5. blocks of runs that have no place go behind the others (lmc__part_blocks)
 *     6. what each run is predicted by, if that is still known (lmc__finish_runs)
 * What is not certain is not guessed: it stays without a place, or is not handed out. */

/* At least n files; of those that are new nothing is known. */
static enum lmc_status lmc__extend_files(lmc_reader *r, size_t n)
{
    while (r->tables.n_files < n) {
        lmc__reader_file *f;
        LMC__TRY(lmc__add_file(&r->tables, &f));
        f->file.path = "";
        f->file.size = LMC_UNKNOWN_SIZE;
    }
    return LMC_OK;
}

/* At least n runs, likewise: of size 0, as they are in no file. */
static enum lmc_status lmc__extend_runs(lmc_reader *r, size_t n)
{
    while (lmc__count_runs(&r->tables) < n) {
        lmc__reader_run *run;
        LMC__TRY(lmc__append(&r->tables.runs, NULL, sizeof *run));
        run = lmc__run_at(r, lmc__count_runs(&r->tables) - 1);
        run->prediction = LMC_ERR_NOT_FOUND;
        run->run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* so that nothing divides by 0 */
    }
    return LMC_OK;
}

/* By its section, or by the index. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_NOT_FOUND;
}

/* Makes the run one of its file's, which then reaches from its first to its last run. Runs come in
 * any order, for some are found only as orphans. */
static void lmc__add_run_to_file(lmc_reader *r, size_t number)
{
    lmc__reader_file *const f = lmc__file_at(r, lmc__run_at(r, number)->run.file_number);
    if (f->n_runs == 0) f->first_run = number;
    else if (number < f->first_run) {
        f->n_runs += f->first_run - number;
        f->first_run = number;
    }
    if (number - f->first_run >= f->n_runs) f->n_runs = number - f->first_run + 1;
}

/* -- 1 -- */

/* A FILE section. One that is no valid file leaves one of which nothing is known. */
static enum lmc_status lmc__collect_file(lmc_reader *r, const lmc__found_section *found,
                                         const uint8_t *body)
{
    lmc__tables *const t = &r->tables;
    lmc__reader_file *f;
    enum lmc_status status;
    if (found->number < t->n_files) return LMC_OK;
    LMC__TRY(lmc__extend_files(r, (size_t)found->number + 1));
    f = lmc__file_at(r, found->number);
    status = lmc__parse_file(&f->file, &f->memory, body, (size_t)found->size);
    /* a file without a name is alone: this is one of another snapshot */
    if (status == LMC_OK && found->number != 0 &&
        (*f->file.path == 0 ||
         (lmc__file_at(r, 0)->is_described && *lmc__file_at(r, 0)->file.path == 0)))
        status = LMC_ERR_CORRUPT;
    if (status == LMC_OK) status = lmc__add_path(&t->paths, found->number, f->file.path);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    f->is_described = status == LMC_OK;
    if (status == LMC_OK) return LMC_OK;
    memset(&f->file, 0, sizeof f->file);
    f->file.path = "";
    f->file.size = LMC_UNKNOWN_SIZE;
    return LMC_OK;
}

/* A RUN section. *file_number, *end: of the last run that was taken, which this one must follow. */
static enum lmc_status lmc__collect_run(lmc_reader *r, const lmc__found_section *found,
                                        const uint8_t *body, size_t *file_number, uint64_t *end)
{
    const size_t size = (size_t)found->size;
    const uint8_t *const segment = body + LMC__RUN_BODY_SIZE;
    lmc__reader_run *run;
    lmc__run parsed;
    uint32_t number;
    uint64_t position;
    if (found->number < lmc__count_runs(&r->tables) ||
        size < LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE)
        return LMC_OK;
    number = lmc__load32(segment);
    position = lmc__load64(segment + 8);
    /* a section and a block take 56 bytes at least: no file before it, no such number */
    if (number > found->at / 56 || number < *file_number ||
        (number == *file_number && position < *end) || position > LMC__MAX_FILE_SIZE)
        return LMC_OK;
    LMC__TRY(lmc__extend_files(r, (size_t)number + 1));
    if (lmc__parse_run(&parsed, body, size, number, &lmc__file_at(r, number)->file, &position) !=
        LMC_OK)
        return LMC_OK;
    LMC__TRY(lmc__extend_runs(r, (size_t)found->number + 1));
    run = lmc__run_at(r, found->number);
    run->run = parsed;
    run->prediction = LMC_OK;
    lmc__add_run_to_file(r, found->number);
    *file_number = number;
    *end = position;
    return LMC_OK;
}

/* Sections in the order in which they lie. Those that contradict what came before them (a number
 * again, a place that is taken) count as lost. */
static enum lmc_status lmc__collect_sections(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__found_section *const found =
        (const lmc__found_section *)(const void *)s->sections.data;
    const size_t n = s->sections.size / sizeof *found;
    size_t i, last_file = 0;
    uint64_t last_end = 0;
    for (i = 0; i < n; i++) {
        const uint8_t *const body = r->tables.index.data + (size_t)found[i].body_at;
        if (found[i].kind == LMC__KIND_FILE) LMC__TRY(lmc__collect_file(r, &found[i], body));
        else LMC__TRY(lmc__collect_run(r, &found[i], body, &last_file, &last_end));
    }
    return LMC_OK;
}

/* -- 3: where a run lies whose section is lost -- */

/* Where unknown run number `number` begins, if that is certain: *file_number, *start. It begins
 * where the run before it ends, if that is known: in the same file, if that has more bytes, else at
 * the beginning of the next one that has any. The run behind it, if known, must agree. For run 0
 * the run before it ends at the beginning of all. */
static int lmc__locate_run(const lmc_reader *r, size_t number, size_t *file_number, uint64_t *start)
{
    const size_t n_runs = lmc__count_runs(&r->tables);
    const lmc__run *const before = number ? &lmc__run_at(r, number - 1)->run : NULL;
    const lmc__run *const behind = number + 1 < n_runs && lmc__is_known_run(r, number + 1)
                                       ? &lmc__run_at(r, number + 1)->run
                                       : NULL;
    const lmc__reader_file *f;
    if (before && !lmc__is_known_run(r, number - 1)) return 0; /* nor where that one ends */
    *file_number = before ? before->file_number : 0;
    *start = before ? before->start + before->size : 0;
    if (behind && behind->file_number == *file_number) return behind->start > *start;
    if (*file_number >= r->tables.n_files) return 0;
    f = lmc__file_at(r, *file_number);
    if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    if (*start < f->file.size) return 1;
    /* the next file that has bytes, if all up to that are known */
    do {
        if (++*file_number >= r->tables.n_files) return 0;
        f = lmc__file_at(r, *file_number);
        if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    } while (f->file.size == 0);
    *start = 0;
    return !behind || behind->file_number > *file_number ||
           (behind->file_number == *file_number && behind->start > 0);
}

/* n blocks of one unknown run, sorted. If their place is certain, the run gets it.
 *
 * Where it begins lmc__locate_run says. The size of its blocks is that of the first found, if there
 * is another to show that it is not the last, which may be shorter; all others must agree. A run
 * ends with the last of its blocks that was found, and must not reach into what is known. */
static enum lmc_status lmc__place_run(lmc_reader *r, lmc__found_block *block, size_t n)
{
    const uint32_t number = block->run;
    uint64_t start, end, limit = LMC__MAX_FILE_SIZE;
    size_t file_number, i, largest = block[0].length;
    const lmc__reader_file *f;
    lmc__run run;
    LMC__TRY(lmc__extend_runs(r, (size_t)number + 1));
    if (!lmc__locate_run(r, number, &file_number, &start)) return LMC_OK;
    for (i = 0; i + 1 < n && block[i].block == block[i + 1].block; i++) {} /* copies */
    /* a lone block, which might be the last: of what size the others are is not known */
    if (i + 1 == n && block[0].block != 0) return LMC_OK;
    if (largest < (size_t)1 << LMC__MIN_LOG2_BLOCK || (largest & (largest - 1)) != 0) {
        if (block[n - 1].block != 0) return LMC_OK;
        largest = (size_t)1 << LMC__MAX_LOG2_BLOCK; /* the only one */
    }
    for (i = 0; i < n; i++)
        if (block[i].length > largest ||
            (block[i].length < largest && block[i].block != block[n - 1].block))
            return LMC_OK;
    f = lmc__file_at(r, file_number);
    if (f->file.size != LMC_UNKNOWN_SIZE) limit = f->file.size;
    if ((size_t)number + 1 < lmc__count_runs(&r->tables)) {
        const lmc__reader_run *const behind = lmc__run_at(r, (size_t)number + 1);
        if (behind->run.size != 0 && behind->run.file_number == file_number)
            limit = behind->run.start;
    }
    if (start > limit || block[n - 1].block > (limit - start) / largest) return LMC_OK;
    end = start + block[n - 1].block * (uint64_t)largest;
    if (block[n - 1].length > limit - end) return LMC_OK;
    memset(&run, 0, sizeof run);
    run.start = start;
    run.size = end + block[n - 1].length - start;
    run.block_size = largest;
    run.n_blocks = (uint64_t)block[n - 1].block + 1;
    run.file_number = file_number;
    lmc__run_at(r, number)->run = run; /* its prediction stays LMC_ERR_NOT_FOUND */
    lmc__add_run_to_file(r, number);
    return LMC_OK;
}

/* -- 2 -- */

#define LMC__MAX_TRIES ((uint64_t)1 << 26)

/* Finds the known runs of orphans, trying those that follow the one before them first. The number
 * of tries is bounded, for a hostile file can have as many orphans as runs. */
static enum lmc_status lmc__adopt_orphans(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan), n_runs = lmc__count_runs(&r->tables);
    lmc__orphan *const o = (lmc__orphan *)(void *)s->orphans.data;
    uint64_t tries = 0;
    size_t i, j, n_left = 0;
    for (i = 0; i < n; i++) {
        const size_t first = o[i].after ? o[i].after - 1 : 0;
        int is_found = 0;
        for (j = 0; j < n_runs && tries < LMC__MAX_TRIES && !is_found; j++, tries++) {
            const size_t number = (first + j) % n_runs;
            o[i].block.block = o[i].state ^ lmc__run_state(k, (uint32_t)number);
            is_found = lmc__is_known_run(r, number) &&
                       lmc__fits_run(&lmc__run_at(r, number)->run, lmc__run_at(r, number)->blocks,
                                     &o[i].block);
            if (is_found) o[i].block.run = (uint32_t)number;
        }
        if (is_found) {
            if (o[i].block.trust == LMC__TRUST_ROW) o[i].block.trust = LMC__TRUST_LONE;
            LMC__TRY(lmc__append(&s->blocks, &o[i].block, sizeof o[i].block));
        } else o[n_left++] = o[i];
    }
    s->orphans.size = n_left * sizeof *o;
    if (s->damage.has_index) s->orphans.size = 0; /* all runs are known: these are none of theirs */
    return LMC_OK;
}

/* -- 3 again -- */

/* Orphans of unknown runs. A wrong guess of the run's number gives a random number of 32 bits for
 * the block; the right one gives one that the bytes since the last section can hold, at 25 for each
 * block. So of the 16 next unknown runs the one that fits is right, if only one does. */
static enum lmc_status lmc__number_orphans(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan), n_runs = lmc__count_runs(&r->tables);
    const lmc__orphan *const o = (const lmc__orphan *)(const void *)s->orphans.data;
    lmc__buffer numbered;
    enum lmc_status status = LMC_OK;
    lmc__found_block *block;
    size_t i, j, first;
    lmc__init_buffer(&numbered, r->options.alloc_user);
    for (i = 0; i < n && status == LMC_OK; i++) {
        const uint64_t most = o[i].block.at < o[i].after_at
                                  ? 0
                                  : (o[i].block.at - o[i].after_at) / (LMC_BLOCK_HEADER_SIZE + 1);
        const size_t from =
            o[i].after && (o[i].after > n_runs || !lmc__is_known_run(r, o[i].after - 1))
                ? o[i].after - 1
                : o[i].after;
        lmc__found_block found = o[i].block;
        unsigned n_found = 0;
        for (j = from;
             j < from + 16 && j <= UINT32_MAX && (j >= n_runs || !lmc__is_known_run(r, j)); j++) {
            const uint32_t number = o[i].state ^ lmc__run_state(k, (uint32_t)j);
            if (number > most) continue;
            n_found++;
            found.run = (uint32_t)j;
            found.block = number;
        }
        if (n_found == 1) status = lmc__append(&numbered, &found, sizeof found);
    }
    block = (lmc__found_block *)(void *)numbered.data;
    lmc__sort_found(block, numbered.size / sizeof *block);
    for (first = 0; first < numbered.size / sizeof *block && status == LMC_OK; first = i) {
        for (i = first; i < numbered.size / sizeof *block && block[i].run == block[first].run;
             i++) {}
        status = lmc__place_run(r, block + first, i - first);
    }
    if (status == LMC_OK && numbered.size)
        status = lmc__append(&s->blocks, numbered.data, numbered.size);
    lmc__free_buffer(&numbered);
    return status;
}

/* -- 4 -- */

/* Of blocks with one position keeps the best and its copies (same content by CRC and length). If
 * another one, as good, has other content, there is no telling which is right, and none is handed
 * out. In place: what is kept is never more than what was looked at.
 *
 * Before that, blocks go that do not fit their run after all: without an index, two sections may
 * have had the number, of which one was taken. */
static void lmc__choose_blocks(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const size_t n_found = lmc__count_found(s), n_runs = lmc__count_runs(&r->tables);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    size_t i, j, n = 0, n_kept = 0;
    for (i = 0; i < n_found; i++) {
        /* without an index, two sections may have had the number: blocks of the one that was not
         * taken go */
        const lmc__reader_run *const run = f[i].run < n_runs ? lmc__run_at(r, f[i].run) : NULL;
        if (!run || run->run.size == 0 || lmc__fits_run(&run->run, run->blocks, &f[i]))
            f[n++] = f[i];
    }
    for (i = 0; i < n && s->damage.has_index; i++)
        if (f[i].at == lmc__block_at(r)[lmc__run_at(r, f[i].run)->first_block + f[i].block])
            f[i].trust = LMC__TRUST_INDEX;
    lmc__sort_found(f, n);
    for (i = 0; i < n; i = j) {
        const lmc__found_block best = f[i];
        size_t n_copies = 0;
        f[n_kept] = best;
        for (j = i + 1; j < n && f[j].run == best.run && f[j].block == best.block; j++) {
            if (f[j].crc == best.crc && f[j].length == best.length) {
                if (++n_copies < LMC__MAX_COPIES) f[n_kept + n_copies] = f[j]; /* at or before j */
            } else if (f[j].trust == best.trust ||
                       (f[j].trust == LMC__TRUST_LONE && best.trust == LMC__TRUST_ROW))
                f[n_kept].is_doubtful = 1;
        }
        n_kept += 1 + lmc__min(n_copies, LMC__MAX_COPIES - 1);
    }
    s->blocks.size = n_kept * sizeof *f;
    s->n_blocks = n_kept;
}

/* -- 5 -- */

/* Blocks of runs without a place go behind the others, which stay sorted. */
static enum lmc_status lmc__part_blocks(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__buffer unplaced;
    enum lmc_status status = LMC_OK;
    size_t i, n_kept = 0;
    lmc__init_buffer(&unplaced, r->options.alloc_user);
    for (i = 0; i < s->n_blocks && status == LMC_OK; i++) {
        if (f[i].run < lmc__count_runs(&r->tables) && lmc__run_at(r, f[i].run)->run.size != 0)
            f[n_kept++] = f[i];
        else status = lmc__append(&unplaced, &f[i], sizeof f[i]);
    }
    s->n_blocks = n_kept;
    s->blocks.size = n_kept * sizeof *f;
    if (status == LMC_OK && unplaced.size)
        status = lmc__append(&s->blocks, unplaced.data, unplaced.size);
    lmc__free_buffer(&unplaced);
    return status;
}

/* -- 6 -- */

/* Starts of unknown runs within a file, so that runs are in order for searching; and what each run
 * is predicted by. Here, unlike elsewhere, a mapping that leads outside of the base is a wrong
 * base: the header that would have told may be lost. */
static enum lmc_status lmc__finish_runs(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i, j;
    for (i = 0; i < r->tables.n_files; i++) {
        lmc__reader_file *const f = lmc__file_at(r, i);
        uint64_t end = 0;
        for (j = f->first_run; j < f->first_run + f->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.size == 0) {
                run->run.start = end;
                run->run.file_number = i;
            }
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK)
                run->prediction = lmc__check_predictions(&r->origin, &run->run, LMC_ERR_BASE_WRONG);
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}

/* -- opening -- */

/* The header, if it is intact. What its CRC confirms, but is not known here, is no damage. */
static enum lmc_status lmc__salvage_header(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE];
    enum lmc_status status;
    if (r->source.size < LMC__HEADER_SIZE || !lmc__read_rest(r, 0, header, sizeof header))
        return LMC_OK;
    status = lmc__check_header(header, k);
    if ((status == LMC_ERR_VERSION || status == LMC_ERR_UNSUPPORTED) &&
        k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT))
        return status;
    if (status != LMC_OK) return LMC_OK;
    s->damage.has_header = 1;
    lmc__keep_header(r, header);
    return r->origin.base ? lmc__check_base(&r->origin, header) : LMC_OK;
}

/* The trailer, if it is intact, and the index that it leads to: from the file's end backwards, so
 * that bytes lost or added before it do not matter. */
static enum lmc_status lmc__salvage_trailer(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const uint64_t total = r->source.size, end = total - LMC__TRAILER_SIZE;
    uint8_t trailer[LMC__TRAILER_SIZE];
    uint64_t index_size, index_at;
    int is_foreign = 0;
    if (total < LMC__HEADER_SIZE + LMC__TRAILER_SIZE ||
        !lmc__read_rest(r, end, trailer, sizeof trailer))
        return LMC_OK;
    index_size = lmc__load64(trailer + 8);
    index_at = index_size <= end ? end - index_size : 0;
    if (index_at < LMC__HEADER_SIZE) return LMC_OK;
    s->damage.has_trailer = lmc__check_trailer(trailer, index_at, index_size, total, k) == LMC_OK;
    if (s->damage.has_trailer) s->end = index_at;
    /* one that was moved is good enough to look there */
    if (memcmp(trailer + 32, lmc__end_magic, 8) == 0 &&
        k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28))
        return lmc__take_index(s, index_at, index_size, &is_foreign);
    return LMC_OK;
}

/* The steps of the comment above. With an index, 1 and 3 have nothing to find. */
static enum lmc_status lmc__fill_tables(lmc__salvage *s)
{
    if (!s->damage.has_index) LMC__TRY(lmc__collect_sections(s));
    LMC__TRY(lmc__adopt_orphans(s));
    if (!s->damage.has_index) LMC__TRY(lmc__number_orphans(s));
    lmc__choose_blocks(s);
    LMC__TRY(lmc__part_blocks(s));
    return lmc__finish_runs(s);
}

/* Room for what lmc_confirm says: of each file, then of each of its tensors. */
static enum lmc_status lmc__add_verdicts(lmc__salvage *s)
{
    size_t i, n = 0;
    for (i = 0; i < s->reader.tables.n_files; i++) {
        LMC__TRY(lmc__append(&s->verdicts_at, &n, sizeof n));
        n += 1 + lmc__file_at(&s->reader, i)->file.n_tensors;
    }
    return lmc__append(&s->verdicts, NULL, n);
}

/* Header, trailer and index, as far as they are intact; then the walk, a second time if it has
 * found an index; then the tables. A file in which nothing is found at all is no LMC file. */
static enum lmc_status lmc__open_salvage(lmc_reader *r)
{
    lmc__salvage *const s = lmc__get_salvage(r);
    int had_index;
    lmc__visit_salvage(s, lmc__init_buffer, r->options.alloc_user);
    s->outer_run = UINT32_MAX;
    s->end = r->source.size;
    LMC__TRY(lmc__salvage_header(s));
    LMC__TRY(lmc__salvage_trailer(s));
    had_index = s->damage.has_index;
    LMC__TRY(lmc__walk_through(s));
    if (s->damage.has_index && !had_index)
        LMC__TRY(lmc__walk_through(s)); /* now that it is known */
    LMC__TRY(lmc__fill_tables(s));
    if (!s->damage.has_header && r->tables.n_files == 0 && s->blocks.size == 0)
        return LMC_ERR_NOT_LMC;
    /* a file without a name is alone */
    if (r->tables.n_files == 1 && lmc__file_at(r, 0)->is_described &&
        *lmc__file_at(r, 0)->file.path == 0 && lmc__file_at(r, 0)->file.size != LMC_UNKNOWN_SIZE)
        s->damage.is_complete = 1;
    LMC__TRY(lmc__add_verdicts(s));
    s->run = r->tables.n_files ? lmc__file_at(r, 0)->first_run : 0;
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->body);
    lmc__free_buffer(&s->view);
    return LMC_OK;
}

static void lmc__free_salvage(lmc_reader *r)
{
    lmc__visit_salvage(lmc__get_salvage(r), lmc__free_visited, NULL);
}
#endif /* LMC_NO_SALVAGE */

/* == snapshot/salvage_read.h ====================================================================== */

#ifndef LMC_NO_SALVAGE

/* What was found, decoded: for whoever reads a file (lmc__read_salvaged), and range by range
 * (lmc_next_range), with what is lost in between. Identities are taken of ranges as they go by, so
 * that lmc_confirm can tell. */

/* -- blocks -- */

/* One of the copies of a block, to dst, of block->length bytes; number: of its run, SIZE_MAX if
 * that has no place, and then no prediction. As other readers do it, but block by block: a damaged
 * neighbour must not cost this one. */
static enum lmc_status lmc__decode_copy(lmc_reader *r, size_t number, const lmc__found_block *block,
                                        uint8_t *dst)
{
    static const lmc__streaming off = {0, NULL, 0};
    const lmc__reader_run *const run = number == SIZE_MAX ? NULL : lmc__run_at(r, number);
    lmc__coder *const c = r->coder;
    enum lmc_status status;
    lmc_position position;
    lmc_block_info info;
    if (block->has_prediction) { /* before the coder is in use, which may have to read it */
        if (!run) return LMC_ERR_NOT_FOUND;
        LMC__TRY(run->prediction);
        LMC__CHECK(run->run.prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
        LMC__TRY(lmc__read_prediction(&r->origin, &run->run,
                                      (uint64_t)block->block * run->run.block_size, dst,
                                      block->length));
    }
    LMC__TRY(lmc__set_coder(c, block->length, lmc__min(block->length, LMC_MAX_BLOCK_ELEMENTS), 0));
    c->in[0].size = 0;
    LMC__TRY(lmc__reserve(&c->in[0], block->size));
    LMC__TRY(lmc__read_at(r, block->at, c->in[0].data, block->size));
    position.run = block->run;
    position.block = block->block;
    LMC__TRY(lmc__read_block_info(c->wave.k, c->in[0].data, block->size, position, &info));
    LMC__CHECK(info.size == block->length && info.encoded_size == block->size &&
                   info.has_prediction == block->has_prediction,
               LMC_ERR_CORRUPT); /* it changed */
    status = lmc__decode_block(c->wave.k, dst, off, c->in[0].data, &info,
                               info.has_prediction ? dst : NULL, c->wave.workspaces,
                               c->wave.workspace_size);
    return status == LMC_ERR_BASE_WRONG && run && run->run.prediction == LMC__PREDICT_OWN
               ? LMC_ERR_CORRUPT
               : status;
}

static enum lmc_status lmc__decode_found(lmc__salvage *s, size_t number, size_t i, uint8_t *dst);

/* Whether the outer block of a found one is intact, to s->outer_status: LMC_OK if so. It is decoded
 * for that, and remembered, for there may be many within one. Blocks within blocks within blocks
 * are not asked for: in_outer keeps this to one level. */
static enum lmc_status lmc__try_outer(lmc__salvage *s, uint32_t run, uint32_t block)
{
    size_t i;
    if (s->outer_run == run && s->outer_block == block) return LMC_OK;
    s->outer_status = LMC_ERR_NOT_FOUND;
    i = lmc__find_found(s, run, block);
    if (i < s->n_blocks && lmc__found_at(s, i)->run == run && lmc__found_at(s, i)->block == block) {
        s->outer.size = 0;
        LMC__TRY(lmc__reserve(&s->outer, lmc__found_at(s, i)->length));
        s->in_outer = 1;
        s->outer_status = lmc__decode_found(s, run, i, s->outer.data);
        s->in_outer = 0;
        if (s->outer_status == LMC_ERR_MEMORY) return LMC_ERR_MEMORY;
    }
    s->outer_run = run;
    s->outer_block = block;
    return LMC_OK;
}

/* The first intact one of the copies of a block, which begin with number i of those found. */
static enum lmc_status lmc__decode_found(lmc__salvage *s, size_t number, size_t i, uint8_t *dst)
{
    const size_t n = number == SIZE_MAX ? lmc__count_found(s) : s->n_blocks;
    const lmc__found_block first = *lmc__found_at(s, i);
    enum lmc_status status = LMC_ERR_NOT_FOUND;
    if (first.is_doubtful) return LMC_ERR_CORRUPT;
    for (; i < n; i++) {
        const lmc__found_block *const f = lmc__found_at(s, i);
        if (f->run != first.run || f->block != first.block) break;
        if (f->trust == LMC__TRUST_INNER && !s->in_outer &&
            (f->outer_run != first.run || f->outer_block != first.block)) {
            LMC__TRY(lmc__try_outer(s, f->outer_run, f->outer_block));
            if (s->outer_status == LMC_OK) continue;
        }
        status = lmc__decode_copy(&s->reader, number, f, dst);
        if (status == LMC_OK || status == LMC_ERR_MEMORY) return status;
    }
    return status;
}

/* The reader's read_run. */
static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                          uint8_t *dst, size_t size)
{
    lmc__salvage *const s = lmc__get_salvage(r);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__buffer *const part = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (size != 0) {
        const uint64_t block = offset / run->block_size;
        const size_t skip = (size_t)(offset - block * run->block_size),
                     length = lmc__block_size_at(run, block), n = lmc__min(length - skip, size);
        const size_t i = lmc__find_found(s, number, block);
        uint8_t *to = dst;
        LMC__CHECK(i < s->n_blocks && lmc__found_at(s, i)->run == number &&
                       lmc__found_at(s, i)->block == block,
                   LMC_ERR_NOT_FOUND);
        LMC__CHECK(lmc__found_at(s, i)->length == length,
                   LMC_ERR_NOT_FOUND); /* of an unknown run */
        if (n < length) {
            part->size = 0;
            LMC__TRY(lmc__reserve(part, length));
            to = part->data;
        }
        LMC__TRY(lmc__decode_found(s, number, i, to));
        if (n < length) memcpy(dst, to + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* -- ranges -- */

/* What lmc_confirm says of a file, then of its tensors. */
static int8_t *lmc__verdicts_of(const lmc__salvage *s, size_t file_number)
{
    return (int8_t *)(void *)s->verdicts.data +
           ((const size_t *)(const void *)s->verdicts_at.data)[file_number];
}

/* What lmc_confirm says of what is whole. */
static int8_t lmc__verdict(int is_same) { return (int8_t)(is_same ? 1 : -1); }

/* Tensors that end at or before `end`: of each, all that there will be was absorbed. What is whole
 * is compared with the identity that the index has. */
static void lmc__confirm_tensors(lmc__digester *d, const lmc_file *file, int8_t *verdicts,
                                 uint64_t end)
{
    while (d->tensor < file->n_tensors &&
           file->tensors[d->tensor].offset + file->tensors[d->tensor].size <= end) {
        const size_t tensor = d->tensor;
        const lmc_tensor *const t = &file->tensors[tensor];
        const int is_whole = d->tensor_done == t->size;
        uint8_t identity[LMC_IDENTITY_SIZE];
        lmc__finish_identity_to(d, identity); /* goes on to the next */
        if (is_whole)
            verdicts[1 + tensor] =
                lmc__verdict(memcmp(identity, t->identity, LMC_IDENTITY_SIZE) == 0);
    }
}

/* Bytes of a file: from offset on, size of them; data NULL: they are lost. */
typedef struct lmc__span {
    uint64_t offset, size;
    const uint8_t *data;
} lmc__span;

/* Cuts off the front up to that offset of the file. */
static void lmc__advance(lmc__span *span, uint64_t offset)
{
    if (span->data) span->data += (size_t)(offset - span->offset);
    span->size -= offset - span->offset;
    span->offset = offset;
}

/* The bytes of tensors in a span. A tensor of which something was lost is not whole any more, for
 * tensor_done stays behind: then nothing more of it is absorbed. */
static void lmc__digest_tensors(lmc__salvage *s, const lmc_file *file, int8_t *verdicts,
                                lmc__span span)
{
    const lmc__kernels *const k = s->reader.coder->wave.k;
    lmc__digester *const d = &s->digester;
    const uint64_t end = span.offset + span.size;
    while (span.size != 0) {
        const lmc_tensor *t;
        uint64_t part;
        lmc__confirm_tensors(d, file, verdicts, span.offset);
        if (d->tensor == file->n_tensors) return;
        t = &file->tensors[d->tensor]; /* ends behind span.offset */
        if (t->offset >= end) break;
        if (span.offset < t->offset) lmc__advance(&span, t->offset);
        part = lmc__min64(span.size, t->offset + t->size - span.offset);
        if (span.data && span.offset - t->offset == d->tensor_done) {
            part = lmc__min64(part, LMC__LEAF_SIZE - d->leaf_size);
            lmc__absorb(d, k->crc32c(0, span.data, (size_t)part), (uint32_t)part);
        }
        lmc__advance(&span, span.offset + part);
    }
    lmc__confirm_tensors(d, file, verdicts, end);
}

/* The next bytes of file number `number`, in order and without a gap: what is lost is a span, too.
 */
static void lmc__digest_range(lmc__salvage *s, size_t number, lmc__span span)
{
    const lmc_file *const file = &lmc__file_at(&s->reader, number)->file;
    int8_t *const verdicts = lmc__verdicts_of(s, number);
    lmc__digester *const d = &s->digester;
    if (!s->damage.has_index) return; /* else identities are not known */
    if (span.offset == 0) {
        lmc__begin_digester(d, file);
        s->is_whole = 1;
    }
    if (span.data)
        d->file_crc = s->reader.coder->wave.k->crc32c(d->file_crc, span.data, (size_t)span.size);
    else s->is_whole = 0;
    lmc__digest_tensors(s, file, verdicts, span);
    if (span.offset + span.size == file->size && s->is_whole)
        verdicts[0] = lmc__verdict(d->file_crc == file->crc);
}

/* The next range is that, of the file at hand. */
static void lmc__digest_next(lmc__salvage *s, const lmc_range *range)
{
    lmc__span span;
    span.offset = s->offset;
    span.size = range->size;
    span.data = (const uint8_t *)range->data;
    lmc__digest_range(s, s->file, span);
    s->offset += range->size;
}

/* The next range is lost, from where it begins up to `end` of the file at hand. */
static enum lmc_status lmc__report_lost(lmc__salvage *s, lmc_range *range, uint64_t end)
{
    range->size = end - s->offset;
    range->status = LMC_ERR_NOT_FOUND;
    lmc__digest_next(s, range);
    return LMC_OK;
}

/* Number i of those found becomes the range; number: of its run, or SIZE_MAX. That it turns out to
 * be damaged is in range->status; what is returned is about the call. */
static enum lmc_status lmc__deliver(lmc__salvage *s, size_t number, size_t i, lmc_range *range)
{
    const lmc_limits *const limits = &s->reader.options.limits;
    const uint64_t most = limits->max_total_size ? limits->max_total_size : UINT64_MAX;
    const lmc__found_block *const f = lmc__found_at(s, i);
    enum lmc_status status;
    if (f->length > most - lmc__min64(most, s->delivered)) return LMC_ERR_LIMIT;
    s->range.size = 0;
    LMC__TRY(lmc__reserve(&s->range, f->length));
    range->size = f->length;
    range->position.run = f->run;
    range->position.block = f->block;
    status = lmc__decode_found(s, number, i, s->range.data);
    if (status == LMC_ERR_MEMORY) return status;
    range->status = status;
    if (status == LMC_OK) range->data = s->range.data;
    s->delivered += f->length;
    return LMC_OK;
}

/* The next range of run number s->run, in which s->offset of the file is: a block that was found,
 * or what is lost up to the next one. */
static enum lmc_status lmc__next_of_run(lmc__salvage *s, lmc_range *range)
{
    const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
    const uint64_t at = s->offset - run->start, block = at / run->block_size;
    const lmc__found_block *f;
    size_t i;
    if (at % run->block_size != 0) /* behind a run that reached into this one: of a hostile file */
        return lmc__report_lost(s, range,
                                run->start + lmc__min64((block + 1) * run->block_size, run->size));
    i = lmc__find_found(s, s->run, block);
    f = i < s->n_blocks && lmc__found_at(s, i)->run == s->run ? lmc__found_at(s, i) : NULL;
    range->position.run = (uint32_t)s->run;
    range->position.block = (uint32_t)block;
    if (!f) return lmc__report_lost(s, range, run->start + run->size);
    if (f->block != block)
        return lmc__report_lost(s, range, run->start + f->block * (uint64_t)run->block_size);
    LMC__TRY(lmc__deliver(s, s->run, i, range));
    lmc__digest_next(s, range);
    return LMC_OK;
}

/* The next range of the file at hand; LMC_ERR_NOT_FOUND: that was all of it. */
static enum lmc_status lmc__next_of_file(lmc__salvage *s, lmc_range *range)
{
    const lmc__reader_file *const f = lmc__file_at(&s->reader, s->file);
    range->file_number = s->file;
    range->offset = s->offset;
    for (; s->run < f->first_run + f->n_runs; s->run++) {
        const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
        if (s->offset < run->start) return lmc__report_lost(s, range, run->start);
        if (s->offset - run->start < run->size) return lmc__next_of_run(s, range);
    }
    if (f->file.size != LMC_UNKNOWN_SIZE && s->offset < f->file.size)
        return lmc__report_lost(s, range, f->file.size);
    if (f->file.size == 0) { /* without a range, but with an identity */
        lmc__span span;
        span.offset = span.size = 0;
        span.data = (const uint8_t *)"";
        lmc__digest_range(s, s->file, span);
    }
    return LMC_ERR_NOT_FOUND;
}

/* The next block without a place; its copies are passed over. */
static enum lmc_status lmc__next_unplaced(lmc__salvage *s, lmc_range *range)
{
    const size_t n = lmc__count_found(s);
    if (s->unplaced == 0) s->unplaced = s->n_blocks;
    if (s->unplaced == n) return LMC_ERR_NOT_FOUND;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    LMC__TRY(lmc__deliver(s, SIZE_MAX, s->unplaced, range));
    for (s->unplaced++; s->unplaced < n; s->unplaced++) {
        const lmc__found_block *const f = lmc__found_at(s, s->unplaced);
        if (f->run != range->position.run || f->block != range->position.block) break;
    }
    return LMC_OK;
}

/* File by file, then the blocks without a place. Each call returns one range, so memory is one
 * block's. */
LMC_API enum lmc_status lmc_next_range(lmc_reader *r, lmc_range *range)
{
    lmc__salvage *s;
    if (!r || !range || !r->options.salvage) return LMC_ERR_ARGUMENT;
    s = lmc__get_salvage(r);
    memset(range, 0, sizeof *range);
    range->position.run = range->position.block = UINT32_MAX;
    while (s->file < r->tables.n_files) {
        const enum lmc_status status = lmc__next_of_file(s, range);
        if (status != LMC_ERR_NOT_FOUND) return status;
        s->offset = 0;
        s->file++;
        s->run = s->file < r->tables.n_files ? lmc__file_at(r, s->file)->first_run : 0;
    }
    return lmc__next_unplaced(s, range);
}

LMC_API enum lmc_status lmc_get_damage(const lmc_reader *r, lmc_damage *damage)
{
    if (!r || !damage || !r->options.salvage) return LMC_ERR_ARGUMENT;
    *damage = lmc__get_salvage(r)->damage;
    return LMC_OK;
}

LMC_API int lmc_is_described(const lmc_reader *r, size_t file_number)
{
    return r && file_number < r->tables.n_files && lmc__file_at(r, file_number)->is_described;
}

LMC_API int lmc_confirm(const lmc_reader *r, size_t file_number, const lmc_tensor *tensor)
{
    const lmc_file *const file = lmc_get_file(r, file_number);
    if (!file || !r->options.salvage) return 0;
    return lmc__verdicts_of(lmc__get_salvage(r),
                            file_number)[tensor ? 1 + (size_t)(tensor - file->tensors) : 0];
}
#endif /* LMC_NO_SALVAGE */

/* == snapshot/open.h ============================================================================== */

/* Opens and frees readers of both kinds: of intact files, and of damaged ones (options.salvage),
 * which are a reader with more behind it. Only this file knows that there are two. */

/* Sets how runs are read, and opens. What is to be freed is known before anything can fail. */
static enum lmc_status lmc__open_as_asked(lmc_reader *r)
{
#ifndef LMC_NO_SALVAGE
    if (r->options.salvage) {
        r->read_run = lmc__read_salvaged;
        r->free_extra = lmc__free_salvage;
        return lmc__open_salvage(r);
    }
#endif
    r->read_run = lmc__read_indexed_run;
    return lmc__open_intact(r);
}

/* One allocation for the reader, and what it has beside. On errors it is freed like one that was
 * opened: everything in it is zero, or valid. */
LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options)
{
    lmc_reader_options defaults;
    size_t struct_size = sizeof(lmc_reader);
    enum lmc_status status;
    lmc_reader *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!reader || !source || !source->read_at || !lmc__is_parallel(options->parallel))
        return LMC_ERR_ARGUMENT;
#ifdef LMC_NO_SALVAGE
    if (options->salvage) return LMC_ERR_UNSUPPORTED;
#else
    if (options->salvage) struct_size = sizeof(lmc__salvage);
#endif
    r = (lmc_reader *)LMC_REALLOC(options->alloc_user, NULL, 0, struct_size);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, struct_size);
    r->struct_size = struct_size;
    r->source = *source;
    r->options = *options;
    lmc__open_coder(&r->own_coder, options->parallel, options->alloc_user);
    r->coder = options->lender ? options->lender->coder : &r->own_coder;
    lmc__init_tables(&r->tables, options->alloc_user);
    lmc__visit_reader(r, lmc__init_buffer, options->alloc_user);
    status = lmc__open_origin(&r->origin, options->base, options->alloc_user);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = lmc__open_as_asked(r);
    if (status != LMC_OK) {
        lmc_free_reader(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

LMC_API void lmc_free_reader(lmc_reader *r)
{
    if (!r) return;
    lmc__free_coder(&r->own_coder);
    lmc__free_tables(&r->tables);
    lmc__visit_reader(r, lmc__free_visited, NULL);
    if (r->free_extra) r->free_extra(r);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(r->options.alloc_user, r, r->struct_size, 0);
}

/* == snapshot/identify.h ========================================================================== */

/* A task of a wave that codes nothing: only CRCs of pieces are taken. */
static void lmc__identify_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const uint8_t *const content = job->job.src;
    (void)worker;
    lmc__set_piece_crcs(c, job, content,
                        job->n_pieces == 1 ? c->wave.k->crc32c(0, content, job->job.src_size) : 0);
    job->job.status = LMC_OK;
}

/* Bytes that one task sums up. */
#define LMC__IDENTIFY_SIZE LMC__WAVE_SIZE

/* Reads all of the file, a span at a time, and absorbs it. Reading and summing up take turns: what
 * costs here is the caller's disk, and the next span cannot be read to where tasks still read this
 * one. */
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
        lmc__want(c, c->in[0].data, (size_t)lmc__min64(span, file->size - d->absorbed),
                  SIZE_MAX / 2);
        lmc__read_portion(c);
        if (c->read_failed) return LMC_ERR_READ;
        if (c->read_got < c->read_size) return LMC_ERR_TRUNCATED;
        for (at = 0; at < c->read_got; at += LMC__IDENTIFY_SIZE) {
            lmc__snapshot_job *job;
            LMC__TRY(lmc__add_job(c, &job));
            job->job.src = c->in[0].data + at;
            job->job.src_size = lmc__min(LMC__IDENTIFY_SIZE, c->read_got - at);
            LMC__TRY(lmc__plan_pieces(c, d, job, job->job.src_size));
        }
        lmc__want(c, NULL, 0, 0);
        LMC__TRY(lmc__run_step(c));
        lmc__absorb_pieces(c, d);
    }
    lmc__finish_digester(d);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_identify_file(lmc_file *file, lmc_tensor *tensors,
                                          const lmc_stream *stream, const lmc_parallel *parallel,
                                          void *alloc_user)
{
    lmc__buffer body, memory;
    lmc__digester digester;
    lmc__coder *coder;
    lmc_file checked;
    enum lmc_status status;
    size_t i;
    if (!file || !stream || !stream->read || !lmc__is_parallel(parallel) ||
        tensors != file->tensors || file->size == LMC_UNKNOWN_SIZE)
        return LMC_ERR_ARGUMENT;
    lmc__init_buffer(&body, alloc_user);
    lmc__init_buffer(&memory, alloc_user);
    coder = (lmc__coder *)LMC_REALLOC(alloc_user, NULL, 0, sizeof *coder);
    if (!coder) return LMC_ERR_MEMORY;
    lmc__open_coder(coder, parallel, alloc_user);
    status = lmc__append_file(&body, file); /* the rules for files, and room for the identities */
    if (status == LMC_OK) status = lmc__parse_file(&checked, &memory, body.data, body.size);
    if (status == LMC_ERR_CORRUPT || status == LMC_ERR_UNSUPPORTED) status = LMC_ERR_ARGUMENT;
    body.size = 0;
    if (status == LMC_OK)
        status = lmc__append(&body, NULL, LMC_IDENTITY_SIZE * lmc__count_identities(file));
    if (status == LMC_OK) {
        lmc__begin_digester(&digester, file);
        digester.identities = body.data;
        status = lmc__identify_file(coder, &digester, file, stream);
    }
    if (status == LMC_OK) {
        file->crc = digester.file_crc;
        if (file->n_tensors == 0) memcpy(file->identity, body.data, LMC_IDENTITY_SIZE);
        for (i = 0; i < file->n_tensors; i++)
            memcpy(tensors[i].identity, body.data + LMC_IDENTITY_SIZE * i, LMC_IDENTITY_SIZE);
    }
    lmc__free_coder(coder);
    (void)LMC_REALLOC(alloc_user, coder, sizeof *coder, 0);
    lmc__free_buffer(&body);
    lmc__free_buffer(&memory);
    return status;
}

LMC_API enum lmc_status lmc_identify_base(const lmc_base *base, uint8_t identity[LMC_IDENTITY_SIZE],
                                          void *alloc_user)
{
    lmc__origin origin;
    enum lmc_status status;
    if (!base || !identity) return LMC_ERR_ARGUMENT;
    status = lmc__open_origin(&origin, base, alloc_user);
    if (status == LMC_OK) memcpy(identity, origin.identity, LMC_IDENTITY_SIZE);
    lmc__free_origin(&origin);
    return status;
}

/* == snapshot/memory.h ============================================================================ */

/* Memory in place of files. A lmc_memory is a lmc__buffer that the caller can look into; it is made
 * one for the time of a call, so that both grow by the same rule. */
static int lmc__write_memory(void *user, const void *data, size_t size)
{
    lmc_memory *m = (lmc_memory *)user;
    lmc__buffer b;
    enum lmc_status status;
    b.data = m->data;
    b.size = m->size;
    b.cap = m->cap;
    b.alloc_user = m->alloc_user;
    status = lmc__append(&b, data, size);
    m->data = b.data;
    m->size = b.size;
    m->cap = b.cap;
    return status != LMC_OK;
}

/* All of it, or it fails. */
static int lmc__read_memory_at(void *user, uint64_t offset, void *dst, size_t size)
{
    const lmc_memory *m = (const lmc_memory *)user;
    if (offset > m->size || size > m->size - offset) return 1;
    memcpy(dst, m->data + offset, size);
    return 0;
}

/* What is left from position on; a position beyond the end is the caller's mistake, and an error.
 */
static int lmc__read_memory(void *user, void *dst, size_t size, size_t *got)
{
    lmc_memory *m = (lmc_memory *)user;
    if (m->position > m->size) return 1;
    *got = lmc__min(size, m->size - m->position);
    if (*got) memcpy(dst, m->data + m->position, *got);
    m->position += *got;
    return 0;
}

LMC_API lmc_sink lmc_make_memory_sink(lmc_memory *memory)
{
    lmc_sink sink;
    sink.write = lmc__write_memory;
    sink.user = memory;
    return sink;
}

LMC_API lmc_source lmc_make_memory_source(lmc_memory *memory)
{
    lmc_source source;
    source.read_at = lmc__read_memory_at;
    source.user = memory;
    source.size = memory->size;
    return source;
}

LMC_API lmc_stream lmc_make_memory_stream(lmc_memory *memory)
{
    lmc_stream stream;
    stream.read = lmc__read_memory;
    stream.user = memory;
    return stream;
}

LMC_API void lmc_free_memory(lmc_memory *memory)
{
    if (memory->data) (void)LMC_REALLOC(memory->alloc_user, memory->data, memory->cap, 0);
    memory->data = NULL;
    memory->size = memory->cap = memory->position = 0;
}

#endif

#if (LMC__X86 && !defined(__clang__)) || LMC__SIMDE
#pragma GCC diagnostic pop
#endif
#endif /* LMC_IMPLEMENTATION */
