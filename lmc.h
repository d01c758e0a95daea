/* lmc.h - v0.5.0 - lossless codec for the tensors and checkpoints of large language models
 * SPDX-License-Identifier: MIT
 *
 * ABOUT
 *   Packs bf16, fp16, fp32, ... tensors and whole checkpoints, bit-exactly: bf16 weights to about
 *   2/3, fp32 to about 5/6
 *   of their size. Every block is checked (CRC-32C), decodes alone, and any tensor or slice can be
 *   read without the rest.
 *   Only where a caller asks for it, moments of optimizers (and other tensors) are quantised: to a
 *   fourth or an eighth, with a known error (2.5).
 *   The format is written down in spec/lmc-format.md; section numbers in this file ("spec 8.2")
 *   refer to it.
 *
 * SYNOPSIS
 *   In one C or C++ file of your program:
 *
 *       #define LMC_IMPLEMENTATION
 *       #include "lmc.h"
 *
 *   and everywhere else just #include "lmc.h". No build flags, no other dependency than the C
 *   library.
 *
 * CONTRACT
 *   Layers   1 block codec:    buffers in, buffers out; no allocation, no threads.
 *            2 tensor codec:   arrays of any length as a row of blocks; ranges; the caller's
 *            parallel_for.
 *            3 snapshot:       files with names, tensors and an index; callbacks or memory;
 *                              allocates by LMC_REALLOC.
 *   Errors   Every function that can fail returns enum lmc_status. Output parameters are set only
 *            on LMC_OK, unless
 *            said otherwise; the contents of destination buffers are undefined after an error.
 *   Bounds   Exactly [ptr, ptr + size) is read or written: no padding, no alignment is asked of the
 *            caller.
 *   Memory   Inputs are never modified. Sizes in bytes are called size or cap, counts of elements
 *            n.
 *   Input    Encoded input may be hostile: it is refused with a status, never trusted. LMC_OK means
 *            fully checked.
 *   Threads  No global state but one atomically set pointer to a constant table. Different objects
 *            may be used by
 *            different threads at once; one object by one thread at a time.
 *   Bytes    The same input and options give the same bytes on every CPU, compiler and thread
 *            count.
 *   Stack    Below 32 KiB, if compiled with optimisation (-O1 or more, -Os): without it, functions
 *            of many vectors take up to 1 MiB.
 *            Reading through a chain of readers takes 1 KiB more for each link.
 *
 * CONTENTS
 *   interface  api
 *   base       platform bytes wire_block wire_file
 *   kernels    types tables vec_swar vec_neon vec_avx2 vec_avx512 residual crc32c split_join
 *              count map partition merge flatten fold strip split_root join_root classes group
 *              ungroup grids dispatch
 *   codec      dtypes half tree workspace plan put_list get_list sample put_planes put_delta
 *              put_quantised put_block get_quantised get_block
 *   tensor     wave tensor
 *   quantise   clusters fit
 *   snapshot   buffer sha256 identity pipeline names sections origin writer restore reader
 *              in_place requantise salvage salvage_place salvage_read open identify memory status
 */
#ifndef LMC_H
#define LMC_H

/* == api.h ======================================================================================== */

/* -- configuration --
 * Define before including, the same way everywhere:
 *   LMC_STATIC           all functions are static (a private copy in each file that implements)
 *   LMC_API              what stands before each public function; default: nothing (static with
 *                        LMC_STATIC)
 * Define with LMC_IMPLEMENTATION only:
 *   LMC_REALLOC(user, ptr, old_size, new_size)   like realloc; new_size 0 frees and returns NULL;
 *   default: the C library
 *   LMC_NO_SIMD          compile the portable code only
 *   LMC_SIMDE            on machines other than x86 and Arm64, compile the AVX2 code through SIMDe,
 *                        SIMD Everywhere, whose
 *                        <simde/x86/avx2.h> must be on the include path (Debian: libsimde-dev); it
 *                        is taken where the compiler's
 *                        flags say that the target has vectors (wasm32: -msimd128), as the tier
 *                        "simde". Ignored elsewhere
 * The tier of the machine's instructions is found at run time, without build flags; 2.8 has
 * functions that query and limit it.
 */
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

/* The library's version as compiled, e.g. "0.5.0": compare with LMC_VERSION to find a mixed build.
 */
LMC_API const char *lmc_version(void);

/* -- status -- */

/* Numbers are stable. */
enum lmc_status {
    LMC_OK = 0,
    LMC_ERR_ARGUMENT = 1, /* the call is wrong: NULL, contradictory or out-of-range arguments, calls
                             out of order */
    LMC_ERR_DST_TOO_SMALL = 2, /* dst_cap is less than what is needed */
    LMC_ERR_WORKSPACE = 3,     /* ws_size is less than lmc_workspace_size() */
    LMC_ERR_MEMORY = 4,        /* allocation failed */
    LMC_ERR_READ = 5,          /* the caller's read callback failed */
    LMC_ERR_WRITE = 6,         /* the caller's write callback failed */
    LMC_ERR_NOT_FOUND = 7,     /* no such file or tensor in the snapshot */
    LMC_ERR_LIMIT = 8,         /* over a limit of the format or one that the caller set */
    LMC_ERR_SIZE = 9,          /* needs more than this machine's size_t can hold */
    LMC_ERR_READ_BACK = 10, /* the snapshot refers to itself, and there is no read_back callback */
    LMC_ERR_NOT_LMC = 20,   /* no LMC file: wrong magic */
    LMC_ERR_VERSION = 21,   /* a version of the format that this library does not know */
    LMC_ERR_UNSUPPORTED = 22,  /* a feature that this library does not know */
    LMC_ERR_TRUNCATED = 23,    /* the input ends early */
    LMC_ERR_CORRUPT = 24,      /* the input breaks a rule of the format */
    LMC_ERR_CHECKSUM = 25,     /* a checksum does not match */
    LMC_ERR_BASE_MISSING = 30, /* a delta without its base */
    LMC_ERR_BASE_WRONG = 31    /* a base that is not the one the delta was made against */
};

/* "LMC_ERR_CORRUPT" and the like; "LMC_ERR_?" for an unknown number. Never NULL. */
LMC_API const char *lmc_status_name(enum lmc_status status);
/* One line for a user: what happened and what to do. Never NULL. */
LMC_API const char *lmc_status_text(enum lmc_status status);

/* -- dtypes -- */

/* The dtypes of safetensors 0.8, by element width; what the codec needs of them is width and kind.
 * Numbers are stable. */
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
/* The dtype of that name, in capitals as above; LMC_AUTO for any other: unknown dtypes are coded as
 * bytes. */
LMC_API enum lmc_dtype lmc_find_dtype(const char *name);
/* Bits of one logical element (F4: 4, C64: 64); 8 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype);
/* Bytes of one *coded* element: 1, 2, 4 or 8. F4 and F6 are coded as bytes, C64 as two of 4 bytes;
 * 1 for LMC_AUTO. */
LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype);

/* How to encode; decoders need not be told. Numbers are stable. */
enum lmc_level {
    LMC_LEVEL_DEFAULT = 0, /* fast */
    LMC_LEVEL_MAX =
        1 /* smaller: bf16 by 0.4 to 0.5 % of the input, fp32 by 0.1 to 0.3 %; encodes at a third to
             two thirds of the speed, decodes bf16 and fp32 at two thirds to nine tenths */
};

/* -- parallel_for of the caller -- */

/* One task: must be called exactly once for every index below n_tasks, with worker < n_workers, and
 * no two tasks at the same time with the same worker. */
typedef void (*lmc_task)(void *arg, size_t index, unsigned worker);

/* How to run n_tasks tasks; returns when all have returned. A NULL lmc_parallel means: one after
 * another. */
typedef struct lmc_parallel {
    void (*run)(void *user, lmc_task task, void *arg, size_t n_tasks);
    void *user;
    unsigned n_workers; /* 1 .. 1024 */
} lmc_parallel;

/* -- layer 1: blocks --
 * A block holds n coded elements, 1 <= n <= LMC_MAX_BLOCK_ELEMENTS, and a header of 24 bytes with
 * the size, the width and the CRC-32C of the decoded bytes. A block may be coded against a
 * prediction: any array of as many bytes that the decoder will have, too. Best are the same
 * elements of an earlier snapshot, or what a caller computes from it. Where a sample says that the
 * block is smaller without, the prediction is not used (at level max: where it is smaller). */

#define LMC_BLOCK_HEADER_SIZE 24u
#define LMC_MAX_BLOCK_ELEMENTS (1u << 20)

/* What a block is bound to: checked when it is decoded, not stored (spec 7). {0, 0} where blocks
 * have no order. */
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

/* Workspace that encoding or decoding blocks of up to n elements of any dtype needs, for one
 * worker. Any alignment. 0 if n is 0 or over LMC_MAX_BLOCK_ELEMENTS. */
LMC_API size_t lmc_workspace_size(size_t n);

/* Encode size bytes at src, elements of dtype, as one block. size must be a multiple of the dtype's
 * width (LMC_AUTO: any). prediction: size bytes that the block may be coded against, or NULL; it is
 * used as said above. *dst_size: bytes written, at most lmc_bound_block(size). Time O(size).
 * Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE. */
LMC_API enum lmc_status lmc_encode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size, const void *prediction,
                                         enum lmc_dtype dtype, enum lmc_level level,
                                         lmc_position position, void *ws, size_t ws_size);

/* Read the header of the block at src (src_size: at least the header; more may follow) and check
 * it. Errors: ARGUMENT, TRUNCATED, CORRUPT, CHECKSUM (also: another position), UNSUPPORTED. */
LMC_API enum lmc_status lmc_read_block_info(const void *src, size_t src_size, lmc_position position,
                                            lmc_block_info *info);

/* Decode the block at src, which must be exactly src_size bytes long, to dst. *dst_size: decoded
 * bytes. prediction: what the block was coded against; NULL and 0 where info.has_prediction is 0.
 * dst may be the prediction, which is then replaced, also by bytes whose CRC turns out to be wrong:
 * keep a copy where that matters. On LMC_OK the CRC-32C of the prediction and of the output were
 * compared. Time O(size), whatever the input. Errors: those of lmc_read_block_info, DST_TOO_SMALL,
 * WORKSPACE; BASE_MISSING, BASE_WRONG (another size or other bytes; dst is not touched). */
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
 * (After BitSnap, arXiv 2511.12376; how the scales and tables are found: spec 7.6 and
 * section 8.13.) */

enum lmc_role { LMC_ROLE_OTHER = 0, LMC_ROLE_FIRST_MOMENT = 1, LMC_ROLE_SECOND_MOMENT = 2 };

/* Of errors. Numbers are stable. */
enum lmc_measure {
    LMC_MEASURE_NONE = 0,
    LMC_MEASURE_UPDATE = 1,   /* L2 norm of the change of the optimizer's update, over that of the
                                 update; of moments */
    LMC_MEASURE_RELATIVE = 2, /* the largest change of an element, over the element: a hard bound;
                                 exceptions do not change */
    LMC_MEASURE_NMSE = 3      /* mean squared error over mean square */
};

/* What a tensor has lost: UPDATE and NMSE by a sample, exceptions left out. Of second moments they
 * are estimated, within a percent or two where errors have nothing to do with the size of the
 * updates, as in all moments measured so far; with tails that outweigh all the rest up to 20 % too
 * low. */
typedef struct lmc_loss {
    unsigned generation;      /* how often it was quantised; 0: it is exact */
    enum lmc_measure measure; /* of the last time */
    double error;             /* by that measure; 0 .. 1 */
} lmc_loss;

/* The elements of a tensor, wherever the caller has them. */
typedef struct lmc_elements {
    enum lmc_status (*read)(void *user, uint64_t offset, void *dst, size_t size); /* all of it */
    void *user;
    uint64_t size; /* bytes */
} lmc_elements;

typedef struct lmc_quantizer lmc_quantizer;

typedef struct lmc_quantizer_options {
    enum lmc_dtype dtype; /* F32 or BF16; others stay as they are */
    enum lmc_role role;
    unsigned bits; /* 4 .. 8: k-means with 2^bits codes; or 0: the coarsest grid that keeps to the
                      bound */
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
    int is_lossless;    /* 1: it keeps the tensor as it is */
    const char *reason; /* why; "" if it does not */
    int is_grid;        /* 1: a uniform grid; 0: a table found by k-means */
    unsigned
        n_codes; /* of the table, zero included, or points of the grid that occur in the sample */
    uint64_t n_exceptions; /* elements that stay as they are, about */
    double bits;           /* for each element when coded, about */
    lmc_loss loss;
} lmc_quantizer_info;
LMC_API enum lmc_status lmc_get_quantizer_info(const lmc_quantizer *quantizer,
                                               lmc_quantizer_info *info);

/* Replaces size bytes at offset of the tensor by what decoding will give. second: the same bytes of
 * the second moment, as decoded; NULL where the quantiser was fitted without. Again: no change.
 * Errors: ARGUMENT. */
LMC_API enum lmc_status lmc_quantize(const lmc_quantizer *quantizer, void *data, uint64_t offset,
                                     size_t size, const void *second);

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
    const lmc_quantizer
        *quantizer; /* encoding, lossy: of this tensor; or NULL. If it was fitted with a second
                     moment, that, as decoded, is the prediction, also of decoding. Size and number
                     of blocks are as with a prediction; decode with the same log2_block */
} lmc_tensor_options;

/* Largest encoded size of size bytes; UINT64_MAX if options are illegal or the result would
 * overflow. */
LMC_API uint64_t lmc_bound_tensor(uint64_t size, const lmc_tensor_options *options);
/* Workspace for encoding and decoding with these options (all workers together); 0 if they are
 * illegal. */
LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options);

/* Encode size bytes (0 allowed: no blocks). Any dst_cap that suffices will do, lmc_bound_tensor()
 * always does. Errors: ARGUMENT, DST_TOO_SMALL, WORKSPACE, LIMIT (2^32 blocks), BASE_WRONG
 * (prediction_size). */
LMC_API enum lmc_status lmc_encode_tensor(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size);

/* Decode bytes [offset, offset + size) of the tensor of total_size bytes coded at src. The whole
 * tensor: 0, total_size. Only blocks in the range are decoded; finding them walks the block headers
 * before it. size bytes are written to dst. For a whole tensor src_size must be exact; for a range,
 * bytes after the last block needed are not looked at. options: run and parallel as above; dtype
 * and log2_block are not used but for the workspace (log2_block: at least the one used to encode,
 * dtype: the same). To apply a delta in place, decode a whole tensor to where its prediction is;
 * what an error leaves there is a mixture. Errors: ARGUMENT, WORKSPACE, TRUNCATED, CORRUPT,
 * CHECKSUM, UNSUPPORTED, BASE_MISSING, BASE_WRONG. */
LMC_API enum lmc_status lmc_decode_tensor(void *dst, uint64_t offset, size_t size, const void *src,
                                          size_t src_size, uint64_t total_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size);

/* -- layer 3: snapshots --
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
    uint64_t size; /* bytes; for dtypes with a number: the product of shape times bits, over 8,
                      exactly */
    uint8_t identity[LMC_IDENTITY_SIZE]; /* spec 9.2; set by readers and lmc_identify_file, zero
                                            while not known */
    const struct lmc_twin *twin; /* writer only: what the tensor can be made from, or NULL */
    lmc_loss loss; /* set by readers; the writer keeps it, if quantizer does not say otherwise. All
                      zero: exact */
    const lmc_quantizer *quantizer; /* writer only, lossy: what write gets is quantised by it; or
                              NULL. Must outlive the writer. One fitted with a second moment wants a
                              twin: where that is, with LMC_CONVERT_NONE */
} lmc_tensor;

/* Bytes of the same snapshot that a tensor equals, or is rounded from: then it takes next to
 * nothing. A wrong claim costs only size. They must have been written before, and not be a twin's
 * themselves. */
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
/* Rounds n F32 elements as the conversion says, which is not NONE; both little-endian. To find
 * twins. */
LMC_API void lmc_convert(void *dst, const void *src, size_t n, enum lmc_conversion conversion);

typedef struct lmc_file {
    const char *path; /* relative, '/'-separated, no "." or ".." components; "" only if it is the
                         only file */
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

/* Allocation: LMC_REALLOC is called with alloc_user, NULL if never set. */

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

/* Memory in place of callbacks: a sink that appends to data, growing it by LMC_REALLOC (start from
 * all zero, end with lmc_free_memory); a source that reads data; a stream that reads data from
 * position to size. */
typedef struct lmc_memory {
    uint8_t *data;
    size_t size, cap;
    size_t position;
    void *alloc_user;
} lmc_memory;

/* The snapshot that another one, a delta, is coded against: files whose identities are known, by a
 * reader (lmc_make_reader_base) or by lmc_identify_file. Whoever restores the delta needs one of
 * the same identity, in whatever form. Tensors are matched by name, dtype and size, wherever they
 * stand (of several, the one in the file of the same path), and files without tensors by path. */
typedef struct lmc_base {
    size_t n_files;
    const lmc_file *(*get_file)(void *user,
                                size_t file_number); /* valid as long as the base is in use */
    /* all of it; or LMC_ERR_READ, or what is wrong with the base: whoever asked gets that */
    enum lmc_status (*read)(void *user, size_t file_number, uint64_t offset, void *dst,
                            size_t size);
    void *user;
    uint32_t chain_depth; /* deltas that the base itself is made of */
} lmc_base;

LMC_API lmc_sink lmc_make_memory_sink(lmc_memory *memory);
LMC_API lmc_source lmc_make_memory_source(lmc_memory *memory);
LMC_API lmc_stream lmc_make_memory_stream(lmc_memory *memory);
LMC_API void lmc_free_memory(lmc_memory *memory);

/* -- writer: begin_file, write (all bytes of the file, in order, in pieces of any size or from a
 * stream), end_file; again; finish -- */

typedef struct lmc_writer lmc_writer;

typedef struct lmc_writer_options { /* all zero: defaults */
    const lmc_parallel *parallel;   /* must outlive the writer */
    unsigned log2_block;            /* 14 .. 20 elements per block; 0: default, as of tensors */
    void *alloc_user;
    enum lmc_level level;
    const lmc_base *base; /* or NULL; must outlive the writer */
    /* for twins, or NULL: reads what was written earlier, from where the caller has it (before or
     * after it was quantised). With it, restoring wants a read_back, too. */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    void *read_back_user;
} lmc_writer_options;

/* Memory: for each worker, 2 MiB (with blocks of more than 1 MiB, two of them) and a workspace of
 * about 13 bytes for each element of a block; as much again as the 2 MiB for lmc_write_stream; one
 * block more, for files of unknown size 16 MiB (48 for lmc_write_stream); 12 bytes for each tensor
 * that begins in a block in flight; and the index: 8 bytes per block, about 200 per tensor, its
 * name included. What the sink is given may lag behind by one wave of blocks. With a parallel the
 * sink is called by any of its workers, and at the same time as the stream of lmc_write_stream, but
 * never twice at once. */
LMC_API enum lmc_status lmc_open_writer(lmc_writer **writer, const lmc_sink *sink,
                                        const lmc_writer_options *options);
/* file is copied; its path must differ from those before. A default_dtype other than LMC_AUTO says
 * how to code the bytes that belong to no tensor (raw arrays). */
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
/* Writes index and trailer. The file is complete when this has returned LMC_OK. After any error the
 * writer only repeats it. */
LMC_API enum lmc_status lmc_finish_writer(lmc_writer *writer);
/* Identity of the snapshot; known after finishing. */
LMC_API enum lmc_status lmc_get_writer_identity(const lmc_writer *writer,
                                                uint8_t identity[LMC_IDENTITY_SIZE]);
/* Bytes handed to the sink so far. */
LMC_API uint64_t lmc_count_written(const lmc_writer *writer);
LMC_API void lmc_free_writer(lmc_writer *writer); /* NULL allowed */

/* -- restore: front to back from a pipe, everything checked -- */

typedef struct lmc_limits {  /* 0: the default */
    uint64_t max_index_size; /* bytes of index kept in memory; default 1 GiB */
    uint64_t max_total_size; /* bytes of all files together; default: no limit */
} lmc_limits;

typedef struct lmc_restore_options { /* all zero: defaults */
    const lmc_parallel *parallel;
    lmc_limits limits;
    void *alloc_user;
    void *user; /* of the callbacks below; each may be NULL (then its data is only checked) */
    int (*begin_file)(void *user, const lmc_file *file,
                      size_t file_number); /* path was checked: relative, no ".." */
    int (*write)(void *user, const void *data,
                 size_t size); /* the file's next bytes, already checked block by block */
    int (*end_file)(void *user, const lmc_file *file,
                    size_t file_number); /* size and crc are now known */
    const lmc_base *base; /* what a delta is restored with, or NULL; must outlive the call */
    /* what write() got; in place, also what it has not got yet; or NULL. Called by the caller's
     * thread, never beside write() */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size);
    int in_place;    /* 1: write() overwrites the base, which read_back reads; see below */
    uint64_t n_done; /* in place: bytes that an earlier attempt has written: they are checked,
                        write() gets the rest */
} lmc_restore_options;

/* Restores every file of the snapshot, in order. Only when this has returned LMC_OK is everything
 * checked: keep what was written aside until then. identity: of the snapshot; or NULL. Memory: as
 * the writer with a stream, and twice the index. The stream is read ahead, to its end. With a
 * parallel, its read() and write() are called by any of the workers, and at the same time, but
 * neither twice at once; begin_file and end_file are called by the caller's thread, beside nothing
 * else. Errors: READ, WRITE, MEMORY, LIMIT, SIZE, BASE_MISSING, BASE_WRONG, READ_BACK, and all that
 * say what is wrong with the input. Of a wrong base nothing is written.
 *
 * In place (spec 9.5): the files of the base become those of the delta, block by block. Open the
 * delta with a reader first: that finds one that is cut short, and lmc_can_restore_in_place tells
 * whether the files can stay where they are. The caller makes sure of the base's identity
 * (options->base is not used), or leaves it to the CRC of each block's base bytes, which is
 * compared before the block is written; and as nothing else is compared with the target,
 * begin_file() must refuse a file that has another path, kind or size there, and read_back() what
 * lies outside of it. write() gets one or more whole blocks. One that is half written when the
 * program dies can be decoded no more, so keep what write() gets elsewhere, synced, until it is
 * where it belongs, also after a crash. The sum of the sizes that it got is what n_done of the next
 * attempt may be: bytes before that which are not those of the delta are BASE_WRONG, an n_done
 * within a block or beyond the end ARGUMENT. After any error what was written stays, and the target
 * is neither the one nor the other: go on later, with an intact copy of the same delta.
 */
LMC_API enum lmc_status lmc_restore_snapshot(const lmc_stream *stream,
                                             const lmc_restore_options *options,
                                             uint8_t identity[LMC_IDENTITY_SIZE]);

/* -- reader: random access by the index -- */

typedef struct lmc_reader lmc_reader;

typedef struct lmc_reader_options { /* all zero: defaults */
    const lmc_parallel *parallel;   /* must outlive the reader */
    lmc_limits limits;
    void *alloc_user;
    const lmc_base *base; /* or NULL; must outlive the reader */
    lmc_reader *lender;   /* or NULL; must outlive the reader. Its buffers and parallel are used, so
                             that a chain of deltas, each a   lender to the next, has buffers only once;
                             none of the others is to be in use by another thread */
    int salvage;          /* 1: the file may be damaged or cut short; see lmc_next_range */
} lmc_reader_options;

/* Reads header, trailer and index (three reads) and checks them; LMC_ERR_LIMIT if the files are
 * larger than max_total_size. Memory: three to five times the index (names, shapes, where each
 * block is); while reading, blocks as the writer. A delta may be opened without its base, to list
 * it; reading needs the base then (LMC_ERR_BASE_MISSING). */
LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options);
LMC_API void lmc_free_reader(lmc_reader *reader); /* NULL allowed */
LMC_API size_t lmc_count_files(const lmc_reader *reader);
/* File number i and its tensors, valid as long as the reader; NULL if there is none. */
LMC_API const lmc_file *lmc_get_file(const lmc_reader *reader, size_t i);
/* The tensor of that name. path NULL: in any file, and LMC_ERR_ARGUMENT if several files have one.
 */
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
/* The quantiser that a tensor of loss.generation above 0 was coded with: to code it again as small,
 * without further loss. On LMC_OK there always is one; it keeps the tensor as it is (large) where
 * it was not coded with one. Reads all of the tensor's code. *twin, if the quantiser wants one:
 * where the second moment is. */
LMC_API enum lmc_status lmc_read_quantizer(lmc_quantizer **quantizer, lmc_reader *reader,
                                           size_t file_number, const lmc_tensor *tensor,
                                           lmc_twin *twin);
/* The identity of the base, and the number of deltas down to a snapshot without one; 0 and zeros if
 * there is none. */
LMC_API uint32_t lmc_get_base_identity(const lmc_reader *reader,
                                       uint8_t identity[LMC_IDENTITY_SIZE]);
/* The same, from the first LMC_FILE_HEADER_SIZE bytes of an LMC file: to find the base before the
 * file is opened. Errors: ARGUMENT, NOT_LMC, VERSION, CHECKSUM, CORRUPT, UNSUPPORTED. */
#define LMC_FILE_HEADER_SIZE 80u
LMC_API enum lmc_status lmc_read_header(const void *header,
                                        uint8_t base_identity[LMC_IDENTITY_SIZE],
                                        uint32_t *chain_depth);
/* The reader's snapshot as a base; the reader must outlive it, and be used for nothing else
 * meanwhile. Links of a chain that have their tensors in one order take time in proportion to their
 * number. Where many small tensors are in another order than in the base, a block may be decoded
 * for each of them, and for each link where that is so, the factors multiply: restore such a base
 * to files first. */
LMC_API lmc_base lmc_make_reader_base(lmc_reader *reader);
/* 1 if the snapshot can be restored over its base, which the reader was given: the two have files
 * of the same paths, kinds and sizes, and each prediction by the base lies where what it predicts
 * will lie. Without a base: 0 if the snapshot is no delta, or shows of itself that this cannot be;
 * else 1. (0, too, if there is no memory to find out.) */
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
/* Entry i, in ascending order of key; LMC_ERR_NOT_FOUND. *value stays valid as long as the reader.
 */
LMC_API enum lmc_status lmc_get_metadata(const lmc_reader *reader, size_t i, const char **key,
                                         const void **value, size_t *size);
/* Encoded bytes of the blocks that hold [offset, offset + size) of a file, in proportion where they
 * hold more: for listings. */
LMC_API uint64_t lmc_count_encoded(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                   uint64_t size);

/* -- salvage: what is intact in a damaged file (spec 16) --
 * A reader that is opened with options.salvage reads through the file, and finds the sections and
 * the headers of blocks wherever they are: the index, if that is intact, else the sections say
 * where each block belongs. Bytes that source.read_at fails to read count as damaged. Files,
 * tensors and ranges are then read as ever, and fail where something is lost; lmc_next_range hands
 * out all that there is. A base is wanted for the blocks that were coded against it, and only for
 * these; what a base in the form of such a reader has lost is lost here, too.
 *
 * What is handed out has the right Content_CRC, and its header is right for its place. That tells
 * damage, and blocks that are in a wrong place, not forgery. If the index is lost, a block of
 * another LMC file that has the same number and size in a run of the same number is as good as the
 * right one; where both are found, both are refused. With the index it is told by its Header_CRC;
 * in the end the identities tell (lmc_confirm). A file whose FILE section is lost has size
 * LMC_UNKNOWN_SIZE and path "".
 *
 * Opening fails on LMC_ERR_NOT_LMC (nothing was found), BASE_WRONG (the header, if intact, tells),
 * VERSION, UNSUPPORTED, LIMIT, MEMORY. Time: in proportion to the file, and to what is decoded,
 * whatever the input. Memory: as other readers, without an index 40 bytes for each header of a
 * block, and the bodies of sections. */

typedef struct lmc_range {
    size_t file_number; /* SIZE_MAX: a block whose place in the files is not known */
    uint64_t offset;    /* within the file; of a block without a place: 0 */
    uint64_t size;
    enum lmc_status
        status; /* LMC_OK: intact. NOT_FOUND: lost. CHECKSUM, CORRUPT: its block is damaged. READ:
                   it cannot be read. BASE_MISSING, BASE_WRONG: it wants the base. Where a
                   prediction of its own snapshot is lost: what that gives */
    const void *data;      /* of LMC_OK: size bytes, valid until the next call; else NULL */
    lmc_position position; /* of the block; UINT32_MAX where no run is known, the first of several
                              blocks in a row that are lost */
} lmc_range;

/* The next range: block by block, and what is lost between them, front to back through all files.
 * LMC_ERR_NOT_FOUND: that was all. LIMIT: more than max_total_size. MEMORY: try again. */
LMC_API enum lmc_status lmc_next_range(lmc_reader *reader, lmc_range *range);

typedef struct lmc_damage {
    int has_header, has_index, has_trailer; /* 1: intact */
    int is_complete; /* 1: nothing followed what was found, so there are no files nobody knows of */
    uint64_t n_breaks; /* places where something else stood than what should follow */
    size_t
        n_sections; /* of files and runs, found damaged (of others, only their absence is known) */
} lmc_damage;

LMC_API enum lmc_status lmc_get_damage(const lmc_reader *reader, lmc_damage *damage);
/* 1 if path, size and tensors of that file are known. */
LMC_API int lmc_is_described(const lmc_reader *reader, size_t file_number);
/* When all of it was handed out by lmc_next_range: 1, the tensor (NULL: the file) is the one that
 * was written, as the index has its identity (its CRC); -1: it is not; 0: not known, for it is not
 * whole or the index is lost. */
LMC_API int lmc_confirm(const lmc_reader *reader, size_t file_number, const lmc_tensor *tensor);

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
LMC_API const char *lmc_tier_name(
    enum lmc_tier tier); /* "scalar", "neon", "avx2", "avx512", "simde" */
/* 1 if this build on this machine has that tier. */
LMC_API int lmc_has_tier(enum lmc_tier tier);
/* The tier in use: the best there is, unless limited. */
LMC_API enum lmc_tier lmc_get_tier(void);
/* Use this tier or, where it is missing, the next one of a smaller number that is there (for tests
 * and measurements); the last one lifts the limit. Thread-safe; affects calls that start later. */
LMC_API void lmc_limit_tier(enum lmc_tier tier);

#ifdef __cplusplus
}
#endif

#endif /* LMC_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__IMPLEMENTED)
#define LMC__IMPLEMENTED

/* == base/platform.h ============================================================================== */

#include <string.h>

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

#if defined(__GNUC__)
#define LMC__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LMC__PREFETCH(p) __builtin_prefetch(p, 0, 2) /* to the second cache */
#define LMC__INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#define LMC__INLINE static __forceinline
#else
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#define LMC__INLINE static inline
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LMC__LITTLE_ENDIAN 1
#elif defined(_M_X64) || defined(_M_IX86) || defined(_M_ARM64)
#define LMC__LITTLE_ENDIAN 1
#else
#define LMC__LITTLE_ENDIAN                                                                         \
    0 /* the shifts below are right everywhere; compilers turn them into a load and a byte swap */
#endif

/* SIMD tiers: native intrinsics in functions with target attributes, chosen at run time (section
 * 7); no build flags. A helper that takes vectors needs the attribute of its callers; one with
 * fewer features may be inlined into one with more. */
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
/* LMC_SIMDE: the AVX2 text again, for other machines, where SIMDe turns it into their vectors.
 * Never on x86 or Arm64: in functions with target attributes it silently emulates, many times
 * slower than the portable code. LMC__SIMDE may be set from outside, by tests only. */
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
/* AArch64 always has NEON. Big-endian AArch64 numbers lanes the other way round: it takes the
 * portable code. */
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
#if defined(__GNUC__) && !defined(__clang__)
#define LMC__UNROLL _Pragma("GCC unroll 8")
#else
#define LMC__UNROLL
#endif

/* The one way for decoders to refuse input: every rule of the spec that can be broken is a line
 * with LMC__CHECK. */
#define LMC__CHECK(condition, status)                                                              \
    do {                                                                                           \
        if (LMC__UNLIKELY(!(condition))) return (status);                                          \
    } while (0)
/* Pass an error on. */
#define LMC__TRY(expression)                                                                       \
    do {                                                                                           \
        enum lmc_status lmc__s = (expression);                                                     \
        if (lmc__s != LMC_OK) return lmc__s;                                                       \
    } while (0)

LMC__INLINE size_t lmc__min(size_t a, size_t b) { return a < b ? a : b; }
LMC__INLINE uint64_t lmc__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* == base/bytes.h ================================================================================= */

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

/* Element i as an integer. */
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

/* == base/wire_block.h ============================================================================ */

#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 23u
#define LMC__BLOCK_SYNC 0xB1u /* spec 7 */
#define LMC__BLOCK_CRC_AT 20u /* Header_CRC, in a block's header */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTISED 2u
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
}; /* spec 8 */
#define LMC__MAX_LENGTH 15u     /* spec 8.1 */
#define LMC__MAX_FLAT 6u        /* spec 8.2: 64 symbols, what one vpermb looks up */
#define LMC__MASK_MODE_MIN 256u /* spec 8.3: masks of fewer bits have no mode byte */
#define LMC__MAX_NESTING 3u
#define LMC__FROZEN_LEVELS 10u /* spec 8.4 */

/* == base/wire_file.h ============================================================================= */

#define LMC__HEADER_SIZE 80u /* spec 4 */
#define LMC__FLAG_SEQUENTIAL 1u
#define LMC__SECTION_HEADER_SIZE 24u /* spec 5 */
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)
#define LMC__FILE_BODY_SIZE 36u    /* spec 5.1, without path and tensors */
#define LMC__TENSOR_ENTRY_SIZE 24u /* without shape, name and dtype */
#define LMC__HAS_MODE 1u
#define LMC__HAS_MTIME 2u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)
#define LMC__RUN_BODY_SIZE 16u /* spec 5.2, without segments */
#define LMC__SEGMENT_SIZE 32u
enum { LMC__PREDICT_ZERO = 0, LMC__PREDICT_BASE = 1, LMC__PREDICT_OWN = 2 };
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)

#define LMC__LEAF_SIZE 262144u   /* spec 9.2 */
#define LMC__INDEX_BODY_SIZE 48u /* spec 10, without entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

static const uint8_t lmc__magic[8] = {0x8C, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t lmc__end_magic[8] = {0x8D, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};

/* == kernels/types.h ============================================================================== */

/*
 * A kernel takes pointers and counts, knows no format and cannot fail. The scalar functions define
 * the meaning. *Lists* are arrays of bytes in the workspace with LMC__PAD bytes of slack behind
 * their end: kernels may read, and where they write a list also write, that far beyond it.
 * Everything else is read and written exactly. */
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

/* Grids (6.19). */
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
    void (*split)(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                  int rotate);
    void (*join)(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                 int rotate);
    uint32_t (*split_root)(const struct lmc__kernels *k, const lmc__planes *planes,
                           lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                           int rotate);
    uint32_t (*join_root)(const struct lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                          size_t n, lmc__streaming streaming);
    int (*is_constant)(const uint8_t *src, size_t n);
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
    void (*look_up)(uint16_t *symbols, const uint8_t *codes, size_t n, const uint16_t table[256]);
    void (*join_symbols)(uint16_t *symbols, const uint8_t *high, const uint8_t *low, size_t n,
                         unsigned low_bits);
    void (*cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                        unsigned low_bits);
    void (*stream)(uint8_t *dst, const uint8_t *src, size_t size);
} lmc__kernels;

/* == kernels/tables.h ============================================================================= */

/* Tables by the preprocessor: f(m), f(m + 1), ... */
#define LMC__4(f, m) f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define LMC__16(f, m) LMC__4(f, m), LMC__4(f, (m) + 4), LMC__4(f, (m) + 8), LMC__4(f, (m) + 12)
#define LMC__64(f, m)                                                                              \
    LMC__16(f, m), LMC__16(f, (m) + 16), LMC__16(f, (m) + 32), LMC__16(f, (m) + 48)
#define LMC__256(f) LMC__64(f, 0), LMC__64(f, 64), LMC__64(f, 128), LMC__64(f, 192)

/* lmc__byte_mask[m]: byte i is 0xFF if bit i of m is set. lmc__ones[m]: number of one bits. */
#define LMC__BYTE_MASK_1(m)                                                                        \
    (((m) & 1 ? 0xFFull : 0) | ((m) & 2 ? 0xFFull << 8 : 0) | ((m) & 4 ? 0xFFull << 16 : 0) |      \
     ((m) & 8 ? 0xFFull << 24 : 0) | ((m) & 16 ? 0xFFull << 32 : 0) |                              \
     ((m) & 32 ? 0xFFull << 40 : 0) | ((m) & 64 ? 0xFFull << 48 : 0) |                             \
     ((m) & 128 ? 0xFFull << 56 : 0))
#define LMC__ONES_1(m)                                                                             \
    (((m) & 1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) +               \
     ((m) >> 5 & 1) + ((m) >> 6 & 1) + ((m) >> 7 & 1))
static const uint64_t lmc__byte_mask[256] = {LMC__256(LMC__BYTE_MASK_1)};
static const uint8_t lmc__ones[256] = {LMC__256(LMC__ONES_1)};

/* How to move the bytes of a 64-bit word as a mask byte says. Expanding moves packed bytes up to
 * the places of the one bits in three steps, by 4, 2 and 1 bytes; compressing is the same
 * backwards. lmc__moves[m][0..2]: which bytes move in each step of expanding; [3]: the packed
 * bytes. Below, they are written as bits, 8 for each step, and the number of ones. Derivation: the
 * j-th one bit is at place p_j; byte j moves by s in step s = 4, 2, 1 if (p_j - j) & s. */
#define LMC__M(v)                                                                                  \
    {LMC__BYTE_MASK_1((v) & 255), LMC__BYTE_MASK_1((v) >> 8 & 255),                                \
     LMC__BYTE_MASK_1((v) >> 16 & 255), LMC__BYTE_MASK_1((1u << ((v) >> 24)) - 1)}
static const uint64_t lmc__moves[256][4] = {
    LMC__M(0x0000000), LMC__M(0x1000000), LMC__M(0x1010000), LMC__M(0x2000000), LMC__M(0x1000100),
    LMC__M(0x2020000), LMC__M(0x2030000), LMC__M(0x3000000), LMC__M(0x1040100), LMC__M(0x2000200),
    LMC__M(0x2010200), LMC__M(0x3040000), LMC__M(0x2000300), LMC__M(0x3060000), LMC__M(0x3070000),
    LMC__M(0x4000000), LMC__M(0x1000001), LMC__M(0x2080200), LMC__M(0x2090200), LMC__M(0x3000400),
    LMC__M(0x2080300), LMC__M(0x3020400), LMC__M(0x3030400), LMC__M(0x4080000), LMC__M(0x20c0300),
    LMC__M(0x3000600), LMC__M(0x3010600), LMC__M(0x40c0000), LMC__M(0x3000700), LMC__M(0x40e0000),
    LMC__M(0x40f0000), LMC__M(0x5000000), LMC__M(0x1100001), LMC__M(0x2000002), LMC__M(0x2010002),
    LMC__M(0x3100400), LMC__M(0x2000102), LMC__M(0x3120400), LMC__M(0x3130400), LMC__M(0x4000800),
    LMC__M(0x2040102), LMC__M(0x3100600), LMC__M(0x3110600), LMC__M(0x4040800), LMC__M(0x3100700),
    LMC__M(0x4060800), LMC__M(0x4070800), LMC__M(0x5100000), LMC__M(0x2000003), LMC__M(0x3180600),
    LMC__M(0x3190600), LMC__M(0x4000c00), LMC__M(0x3180700), LMC__M(0x4020c00), LMC__M(0x4030c00),
    LMC__M(0x5180000), LMC__M(0x31c0700), LMC__M(0x4000e00), LMC__M(0x4010e00), LMC__M(0x51c0000),
    LMC__M(0x4000f00), LMC__M(0x51e0000), LMC__M(0x51f0000), LMC__M(0x6000000), LMC__M(0x1001001),
    LMC__M(0x2200002), LMC__M(0x2210002), LMC__M(0x3000004), LMC__M(0x2200102), LMC__M(0x3020004),
    LMC__M(0x3030004), LMC__M(0x4200800), LMC__M(0x2240102), LMC__M(0x3000204), LMC__M(0x3010204),
    LMC__M(0x4240800), LMC__M(0x3000304), LMC__M(0x4260800), LMC__M(0x4270800), LMC__M(0x5001000),
    LMC__M(0x2200003), LMC__M(0x3080204), LMC__M(0x3090204), LMC__M(0x4200c00), LMC__M(0x3080304),
    LMC__M(0x4220c00), LMC__M(0x4230c00), LMC__M(0x5081000), LMC__M(0x30c0304), LMC__M(0x4200e00),
    LMC__M(0x4210e00), LMC__M(0x50c1000), LMC__M(0x4200f00), LMC__M(0x50e1000), LMC__M(0x50f1000),
    LMC__M(0x6200000), LMC__M(0x2300003), LMC__M(0x3000006), LMC__M(0x3010006), LMC__M(0x4300c00),
    LMC__M(0x3000106), LMC__M(0x4320c00), LMC__M(0x4330c00), LMC__M(0x5001800), LMC__M(0x3040106),
    LMC__M(0x4300e00), LMC__M(0x4310e00), LMC__M(0x5041800), LMC__M(0x4300f00), LMC__M(0x5061800),
    LMC__M(0x5071800), LMC__M(0x6300000), LMC__M(0x3000007), LMC__M(0x4380e00), LMC__M(0x4390e00),
    LMC__M(0x5001c00), LMC__M(0x4380f00), LMC__M(0x5021c00), LMC__M(0x5031c00), LMC__M(0x6380000),
    LMC__M(0x43c0f00), LMC__M(0x5001e00), LMC__M(0x5011e00), LMC__M(0x63c0000), LMC__M(0x5001f00),
    LMC__M(0x63e0000), LMC__M(0x63f0000), LMC__M(0x7000000), LMC__M(0x1401001), LMC__M(0x2002002),
    LMC__M(0x2012002), LMC__M(0x3400004), LMC__M(0x2002102), LMC__M(0x3420004), LMC__M(0x3430004),
    LMC__M(0x4000008), LMC__M(0x2042102), LMC__M(0x3400204), LMC__M(0x3410204), LMC__M(0x4040008),
    LMC__M(0x3400304), LMC__M(0x4060008), LMC__M(0x4070008), LMC__M(0x5401000), LMC__M(0x2002003),
    LMC__M(0x3480204), LMC__M(0x3490204), LMC__M(0x4000408), LMC__M(0x3480304), LMC__M(0x4020408),
    LMC__M(0x4030408), LMC__M(0x5481000), LMC__M(0x34c0304), LMC__M(0x4000608), LMC__M(0x4010608),
    LMC__M(0x54c1000), LMC__M(0x4000708), LMC__M(0x54e1000), LMC__M(0x54f1000), LMC__M(0x6002000),
    LMC__M(0x2102003), LMC__M(0x3400006), LMC__M(0x3410006), LMC__M(0x4100408), LMC__M(0x3400106),
    LMC__M(0x4120408), LMC__M(0x4130408), LMC__M(0x5401800), LMC__M(0x3440106), LMC__M(0x4100608),
    LMC__M(0x4110608), LMC__M(0x5441800), LMC__M(0x4100708), LMC__M(0x5461800), LMC__M(0x5471800),
    LMC__M(0x6102000), LMC__M(0x3400007), LMC__M(0x4180608), LMC__M(0x4190608), LMC__M(0x5401c00),
    LMC__M(0x4180708), LMC__M(0x5421c00), LMC__M(0x5431c00), LMC__M(0x6182000), LMC__M(0x41c0708),
    LMC__M(0x5401e00), LMC__M(0x5411e00), LMC__M(0x61c2000), LMC__M(0x5401f00), LMC__M(0x61e2000),
    LMC__M(0x61f2000), LMC__M(0x7400000), LMC__M(0x2003003), LMC__M(0x3600006), LMC__M(0x3610006),
    LMC__M(0x400000c), LMC__M(0x3600106), LMC__M(0x402000c), LMC__M(0x403000c), LMC__M(0x5601800),
    LMC__M(0x3640106), LMC__M(0x400020c), LMC__M(0x401020c), LMC__M(0x5641800), LMC__M(0x400030c),
    LMC__M(0x5661800), LMC__M(0x5671800), LMC__M(0x6003000), LMC__M(0x3600007), LMC__M(0x408020c),
    LMC__M(0x409020c), LMC__M(0x5601c00), LMC__M(0x408030c), LMC__M(0x5621c00), LMC__M(0x5631c00),
    LMC__M(0x6083000), LMC__M(0x40c030c), LMC__M(0x5601e00), LMC__M(0x5611e00), LMC__M(0x60c3000),
    LMC__M(0x5601f00), LMC__M(0x60e3000), LMC__M(0x60f3000), LMC__M(0x7600000), LMC__M(0x3700007),
    LMC__M(0x400000e), LMC__M(0x401000e), LMC__M(0x5701c00), LMC__M(0x400010e), LMC__M(0x5721c00),
    LMC__M(0x5731c00), LMC__M(0x6003800), LMC__M(0x404010e), LMC__M(0x5701e00), LMC__M(0x5711e00),
    LMC__M(0x6043800), LMC__M(0x5701f00), LMC__M(0x6063800), LMC__M(0x6073800), LMC__M(0x7700000),
    LMC__M(0x400000f), LMC__M(0x5781e00), LMC__M(0x5791e00), LMC__M(0x6003c00), LMC__M(0x5781f00),
    LMC__M(0x6023c00), LMC__M(0x6033c00), LMC__M(0x7780000), LMC__M(0x57c1f00), LMC__M(0x6003e00),
    LMC__M(0x6013e00), LMC__M(0x77c0000), LMC__M(0x6003f00), LMC__M(0x77e0000), LMC__M(0x77f0000),
    LMC__M(0x8000000)};

/* lmc__sort_places[m]: the places of the zero bits of m, then those of the one bits, 8 bytes each,
 * packed, the rest 0: a shuffle by them sorts 8 bytes. */
#if LMC__AVX2_TEXT || LMC__NEON
#define LMC__SORT_PLACES_1(m) {LMC__PACK_PLACES_1(~(m)), LMC__PACK_PLACES_1(m)}
#define LMC__PACK_PLACE(m, i)                                                                      \
    ((m) >> (i) & 1 ? (uint64_t)(i) << 8 * LMC__ONES_1((m) & ((1 << (i)) - 1)) : 0)
#define LMC__PACK_PLACES_1(m)                                                                      \
    (LMC__PACK_PLACE(m, 1) | LMC__PACK_PLACE(m, 2) | LMC__PACK_PLACE(m, 3) |                       \
     LMC__PACK_PLACE(m, 4) | LMC__PACK_PLACE(m, 5) | LMC__PACK_PLACE(m, 6) |                       \
     LMC__PACK_PLACE(m, 7))
static const uint64_t lmc__sort_places[256][2] = {LMC__256(LMC__SORT_PLACES_1)};
#endif

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

/* lmc__behind + 8 - n, n <= 8: a shuffle that moves a vector's first bytes n places up, behind n
 * zeros. */
static const uint8_t lmc__behind[24] = {128, 128, 128, 128, 128, 128, 128, 128, 0,  1,  2,  3,
                                        4,   5,   6,   7,   8,   9,   10,  11,  12, 13, 14, 15};
#endif

/* == kernels/vec_avx512.h ========================================================================= */

/* The vocabulary of the AVX-512 tier: what the kernels do with vectors of 64 bytes. Each operation
 * has its scalar meaning, for byte i of the result r, in front of it. Elements have `width` bytes,
 * 1, 2, 4 or 8, the lowest first, as the machine has them; width, left and the like are constants
 * where these are inlined. */
#if LMC__X86
/* lmc__count_up[i] = i. lmc__shuffles: the places in ab, that is a, then b, for even, odd, and the
 * two halves of zip. */
#define LMC__EVEN(i) (2 * (i))
#define LMC__ODD(i) (2 * (i) + 1)
#define LMC__ZIP_LOW(i) ((i) / 2 + ((i) % 2) * 64)
#define LMC__ZIP_HIGH(i) (32 + (i) / 2 + ((i) % 2) * 64)
#define LMC__SAME(i) (i)
static const uint8_t lmc__count_up[64] = {LMC__64(LMC__SAME, 0)};
static const uint8_t lmc__shuffles[4][64] = {{LMC__64(LMC__EVEN, 0)},
                                             {LMC__64(LMC__ODD, 0)},
                                             {LMC__64(LMC__ZIP_LOW, 0)},
                                             {LMC__64(LMC__ZIP_HIGH, 0)}};

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

/* The residual of an element against its prediction, and back (spec 7.2). */

/* Integers of 8 * width bits in 64. */
LMC__INLINE uint64_t lmc__residual(uint64_t v, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t x = v ^ (base & sign_bit); /* its sign is relative to the base's */
    const uint64_t d = (((x & sign_bit) ? x ^ below : x) - (base & below)) & all;
    if (!subtract) return v ^ base;
    return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;
}

/* The inverse. */
LMC__INLINE uint64_t lmc__restore_element(uint64_t r, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t t = ((base & below) + ((r >> 1) ^ (0 - (r & 1)))) & all;
    if (!subtract) return r ^ base;
    return ((t & sign_bit) ? t ^ below : t) ^ (base & sign_bit);
}

#if LMC__X86 || LMC__NEON
/* lmc__residual and lmc__restore_element in each element of a vector, with the compilers' own
 * operators on vectors. */
#define LMC__DEFINE_RESIDUAL(isa, inline_isa, vector)                                              \
    inline_isa vector lmc__residual_##isa(vector v, vector b, unsigned width, int subtract)        \
    {                                                                                              \
        const vector sign = lmc__sign_bits_##isa(width), x = v ^ (b & sign);                       \
        const vector d =                                                                           \
            lmc__minus_##isa(x ^ (lmc__negative_##isa(x, width) & ~sign), b & ~sign, width);       \
        return subtract ? lmc__plus_##isa(d, d, width) ^ lmc__negative_##isa(d, width) : v ^ b;    \
    }                                                                                              \
    inline_isa vector lmc__restore_##isa(vector r, vector b, unsigned width, int subtract)         \
    {                                                                                              \
        const vector sign = lmc__sign_bits_##isa(width),                                           \
                     z = lmc__rotate_##isa(r, width, 0); /* its sign: the zigzag's */              \
        const vector t =                                                                           \
            lmc__plus_##isa(b & ~sign, (z & ~sign) ^ lmc__negative_##isa(z, width), width);        \
        return subtract ? t ^ (lmc__negative_##isa(t, width) & ~sign) ^ (b & sign) : r ^ b;        \
    }

#if LMC__NEON
LMC__DEFINE_RESIDUAL(neon, LMC__INLINE, uint8x16_t)
#endif
#if LMC__X86
LMC__DEFINE_RESIDUAL(avx2, LMC__INLINE2, __m256i)
LMC__DEFINE_RESIDUAL(avx512, LMC__INLINE512, __m512i)
#endif
#endif

/* == kernels/crc32c.h ============================================================================= */

/* lmc__crc_table[k][b]: the CRC register after byte b and k zero bytes, from register 0. A CRC is
 * linear, so an entry is the xor of those of its bits; each row is given by the entries of 1, 2, 4,
 * ... 128, and the preprocessor does the rest. Derivation: c = b; (k + 1) times eight times: c = c
 * >> 1 ^ (c & 1 ? 0x82F63B78 : 0). */
#define LMC__CRC_1(b, v0, v1, v2, v3, v4, v5, v6, v7)                                              \
    (((b) & 1 ? v0 : 0) ^ ((b) & 2 ? v1 : 0) ^ ((b) & 4 ? v2 : 0) ^ ((b) & 8 ? v3 : 0) ^           \
     ((b) & 16 ? v4 : 0) ^ ((b) & 32 ? v5 : 0) ^ ((b) & 64 ? v6 : 0) ^ ((b) & 128 ? v7 : 0))
#define LMC__CRC_4(b, v0, v1, v2, v3, v4, v5, v6, v7)                                              \
    LMC__CRC_1(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                 \
        LMC__CRC_1((b) + 1, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_1((b) + 2, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_1((b) + 3, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_16(b, v0, v1, v2, v3, v4, v5, v6, v7)                                             \
    LMC__CRC_4(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                 \
        LMC__CRC_4((b) + 4, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_4((b) + 8, v0, v1, v2, v3, v4, v5, v6, v7),                                       \
        LMC__CRC_4((b) + 12, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_64(b, v0, v1, v2, v3, v4, v5, v6, v7)                                             \
    LMC__CRC_16(b, v0, v1, v2, v3, v4, v5, v6, v7),                                                \
        LMC__CRC_16((b) + 16, v0, v1, v2, v3, v4, v5, v6, v7),                                     \
        LMC__CRC_16((b) + 32, v0, v1, v2, v3, v4, v5, v6, v7),                                     \
        LMC__CRC_16((b) + 48, v0, v1, v2, v3, v4, v5, v6, v7)
#define LMC__CRC_ROW(v0, v1, v2, v3, v4, v5, v6, v7)                                               \
    {LMC__CRC_64(0, v0, v1, v2, v3, v4, v5, v6, v7),                                               \
     LMC__CRC_64(64, v0, v1, v2, v3, v4, v5, v6, v7),                                              \
     LMC__CRC_64(128, v0, v1, v2, v3, v4, v5, v6, v7),                                             \
     LMC__CRC_64(192, v0, v1, v2, v3, v4, v5, v6, v7)}

static const uint32_t lmc__crc_table[8][256] = {
    LMC__CRC_ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc,
                 0x82f63b78),
    LMC__CRC_ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604,
                 0xfbc3faf9),
    LMC__CRC_ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9,
                 0x8b277743),
    LMC__CRC_ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7,
                 0x52a0c93f),
    LMC__CRC_ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae,
                 0x6ea2d55c),
    LMC__CRC_ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb,
                 0x1c08b7d6),
    LMC__CRC_ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a,
                 0xf56e0ef4),
    LMC__CRC_ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32,
                 0x34019664)};

/* Product of two polynomials modulo the CRC's, bit 31 first: crc of a message followed by k zero
 * bytes is multiplied by x^8k. */
static uint32_t lmc__crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    int i;
    for (i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (0x82F63B78u & (0u - (b & 1)));
    }
    return product;
}

/* Bytes of each of the lanes that a CRC is computed in at once. Three fill a strip of
 * LMC__STRIP_SIZE bytes up to its last 8, four fill it. */
#define LMC__CRC_LANE3 2728u
#define LMC__CRC_LANE3_SHIFT 0x9075A4EFu /* x^(8 * LMC__CRC_LANE3) */
#define LMC__CRC_LANE4 2048u

/* Eight bytes more (slicing by 8: Kounavis and Berry, "Novel table lookup-based algorithms for
 * high-performance CRC generation", 2008). */
LMC__INLINE uint32_t lmc__crc_step8(uint32_t crc, const uint8_t *p)
{
    const uint32_t(*t)[256] = lmc__crc_table;
    uint64_t v = lmc__load64(p) ^ crc;
    return t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^
           t[3][v >> 32 & 255] ^ t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
}

/* Three lanes at once hide the latency of the look-ups: twice the speed of one. */
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
/* The crc32cx instruction takes one cycle, its result two or three more: three lanes, as above. */
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
/* The crc32 instruction has three cycles of latency and one of throughput: lanes again. This is
 * word i of each. */
LMC__INLINE2 void lmc__crc_lanes(uint64_t c[4], const uint8_t *p, size_t i)
{
    c[0] = _mm_crc32_u64(c[0], lmc__load64(p + 8 * i));
    c[1] = _mm_crc32_u64(c[1], lmc__load64(p + LMC__CRC_LANE4 + 8 * i));
    c[2] = _mm_crc32_u64(c[2], lmc__load64(p + 2 * LMC__CRC_LANE4 + 8 * i));
    c[3] = _mm_crc32_u64(c[3], lmc__load64(p + 3 * LMC__CRC_LANE4 + 8 * i));
}

/* The register after all lanes: lane 3 - j is multiplied by x^(8 j LMC__CRC_LANE4). The product
 * with x^(8 j LMC__CRC_LANE4 - 33) as a number of 64 bits lacks 33 powers of x: 32 that the crc32
 * instruction adds, one because the product of two 32-bit numbers has 63. */
LMC__INLINE2 uint64_t lmc__crc_join_lanes(const uint64_t c[4])
{
    const __m128i k3 = _mm_cvtsi64_si128(0xB9D68D49), k2 = _mm_cvtsi64_si128(0x82F89C77),
                  k1 = _mm_cvtsi64_si128(0xA51B6135);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[0]), k3, 0);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[1]), k2, 0));
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c[2]), k1, 0));
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

/* Folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009): 16
 * bytes that stand d bytes before others are replaced by their product with x^(8d), which is
 * congruent and as long. For each distance d: the reflected x^(8d + 32) and x^(8d - 32) modulo the
 * polynomial, times x, for the low and the high 8 bytes. */
#define LMC__FOLD_16 0xF20C0DFE, 0x14CD00BD6
#define LMC__FOLD_32 0x1384AA63A, 0xBA4FC28E
#define LMC__FOLD_48 0x1C291D04, 0x1D82C63DA
static const uint64_t lmc__folds[4][2] = {/* 64, 128, 256, 512 */
                                          {0x740EEF02, 0x9E4ADDF8},
                                          {0x6992CEA2, 0xD3B6092},
                                          {0xDCB17AA4, 0xB9E02B86},
                                          {0xBD6F81F8, 0xDD7E3B0C}};
static const uint64_t lmc__fold_last[8] = {LMC__FOLD_48, LMC__FOLD_32, LMC__FOLD_16, 0, 0};

/* To fold by a distance of `vectors` = 1, 2, 4, 8 vectors. */
LMC__INLINE512 __m512i lmc__crc_factor(unsigned vectors)
{
    const uint64_t *fold = lmc__folds[vectors == 1 ? 0 : vectors == 2 ? 1 : vectors == 4 ? 2 : 3];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold));
}

/* a folded onto b, in each of the four lanes */
LMC__INLINE512 __m512i lmc__crc_fold(__m512i a, __m512i k, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
                                     _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96); /* a ^ b ^ c */
}

/* What a message's first vector is xored with, to continue from crc. */
LMC__INLINE512 __m512i lmc__crc_start(uint32_t crc)
{
    return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
}

/* The CRC of n vectors, one after the other. */
LMC__INLINE512 uint32_t lmc__crc_finish(const __m512i *v, unsigned n)
{
    const __m512i k64 = lmc__crc_factor(1), last = _mm512_loadu_si512(lmc__fold_last);
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

/* CRC of two messages, one after the other, from their CRCs: a times x^(8 * b_size), plus b. */
static uint32_t lmc__crc_combine(uint32_t a, uint32_t b, uint64_t b_size)
{
    /* x^(8 * 2^i), modulo the polynomial: each the square of the one before */
    static const uint32_t power[64] = {
        0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955,
        0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564,
        0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915,
        0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42,
        0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c,
        0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16,
        0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b,
        0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
        0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
        0x00008000};
    unsigned i;
    for (i = 0; a != 0 && b_size != 0; i++, b_size >>= 1)
        if (b_size & 1) a = lmc__crc_multiply(a, power[i]);
    return a ^ b;
}

/* -- the numbers of a block from its header: CRC-32C is linear, so that its register can be run
 * backwards -- */

static uint32_t lmc__rewind_crc(uint32_t state, const uint8_t *p, size_t size)
{
    unsigned bit;
    while (size != 0) {
        for (bit = 0; bit < 8; bit++)
            state = state >> 31 ? (state ^ 0x82F63B78u) << 1 | 1 : state << 1;
        state ^= p[--size];
    }
    return state;
}

/* == kernels/split_join.h ========================================================================= */

/* -- 6.2 split: byte p of element i, rotated left by one bit if rotate, to planes->row[p][i] -- */
LMC__INLINE void lmc__split_body(const lmc__planes *planes, const uint8_t *src, size_t n,
                                 unsigned width, int rotate)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (width == 2)
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

/* -- 6.3 join: the inverse of split -- */
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

/* Constant widths and flags let the compiler unroll the bodies. */
#define LMC__FOR_WIDTH(call)                                                                       \
    switch (width) {                                                                               \
    case 1:                                                                                        \
        if (rotate) {                                                                              \
            call(1, 1);                                                                            \
        } else {                                                                                   \
            call(1, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 2:                                                                                        \
        if (rotate) {                                                                              \
            call(2, 1);                                                                            \
        } else {                                                                                   \
            call(2, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 4:                                                                                        \
        if (rotate) {                                                                              \
            call(4, 1);                                                                            \
        } else {                                                                                   \
            call(4, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    default:                                                                                       \
        if (rotate) {                                                                              \
            call(8, 1);                                                                            \
        } else {                                                                                   \
            call(8, 0);                                                                            \
        }                                                                                          \
    }

static void lmc__split_scalar(const lmc__planes *planes, const uint8_t *src, size_t n,
                              unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
static void lmc__join_scalar(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                             unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__join_body(dst, planes, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#if LMC__X86 || LMC__NEON
/* A block of `width` vectors of elements, in order, becomes one vector for each plane in
 * log2(width) steps; each sorts bytes by one more bit of their place p within the element. Before
 * step s = 1, 2, 4, the bytes of p = r (mod s) are in vectors r * parts + j, the j-th part of them,
 * parts = width / s; its even bytes have p = r, its odd ones p = r + s (mod 2 s). The steps of a
 * join are the same backwards. All bounds are constant where this is inlined, and gcc must be told
 * to unroll. */
#define LMC__DEFINE_STEPS(isa, inline_isa, vector)                                                 \
    inline_isa void lmc__split_step_##isa(vector v[8], unsigned width, unsigned s)                 \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        vector t[8];                                                                               \
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
    inline_isa void lmc__join_step_##isa(vector v[8], unsigned width, unsigned s)                  \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        vector t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            lmc__zip_##isa(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],      \
                           v[(r + s) * half + j]);                                                 \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }

#define LMC__DEFINE_SPLIT(isa, inline_isa, vector)                                                 \
    inline_isa void lmc__split_body_##isa(const lmc__planes *planes, const uint8_t *src, size_t n, \
                                          unsigned width, int rotate)                              \
    {                                                                                              \
        lmc__planes rest;                                                                          \
        vector v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                v[p] = lmc__load_##isa(src + i * width + sizeof v[0] * p);                         \
                if (rotate) v[p] = lmc__rotate_##isa(v[p], width, 1);                              \
            }                                                                                      \
            if (width >= 2) lmc__split_step_##isa(v, width, 1);                                    \
            if (width >= 4) lmc__split_step_##isa(v, width, 2);                                    \
            if (width >= 8) lmc__split_step_##isa(v, width, 4);                                    \
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_##isa(planes->row[p] + i, v[p]);    \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__split_scalar(&rest, src + i * width, n - i, width, rotate);                           \
    }
#define LMC__DEFINE_JOIN(isa, inline_isa, vector)                                                  \
    inline_isa void lmc__join_body_##isa(uint8_t *dst, const lmc__const_planes *planes, size_t n,  \
                                         unsigned width, int rotate)                               \
    {                                                                                              \
        lmc__const_planes rest;                                                                    \
        vector v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__load_##isa(planes->row[p] + i);    \
            if (width >= 8) lmc__join_step_##isa(v, width, 4);                                     \
            if (width >= 4) lmc__join_step_##isa(v, width, 2);                                     \
            if (width >= 2) lmc__join_step_##isa(v, width, 1);                                     \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                if (rotate) v[p] = lmc__rotate_##isa(v[p], width, 0);                              \
                lmc__store_##isa(dst + i * width + sizeof v[0] * p, v[p]);                         \
            }                                                                                      \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__join_scalar(dst + i * width, &rest, n - i, width, rotate);                            \
    }
#endif

#if LMC__NEON

LMC__DEFINE_STEPS(neon, LMC__INLINE, uint8x16_t) LMC__DEFINE_SPLIT(neon, LMC__INLINE, uint8x16_t)
    LMC__DEFINE_JOIN(neon, LMC__INLINE, uint8x16_t)

        static void lmc__split_neon(const lmc__planes *planes, const uint8_t *src, size_t n,
                                    unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body_neon(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
static void lmc__join_neon(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                           int rotate){
#define LMC__CALL(w, r) lmc__join_body_neon(dst, planes, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif

#if LMC__AVX2_TEXT
#endif

#if LMC__X86

LMC__DEFINE_STEPS(avx2, LMC__INLINE2, __m256i) LMC__DEFINE_SPLIT(avx2, LMC__INLINE2, __m256i)
    LMC__DEFINE_JOIN(avx2, LMC__INLINE2, __m256i) LMC__DEFINE_STEPS(avx512, LMC__INLINE512, __m512i)
        LMC__DEFINE_SPLIT(avx512, LMC__INLINE512, __m512i)

            LMC__AVX2 static void lmc__split_avx2(const lmc__planes *planes, const uint8_t *src,
                                                  size_t n, unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__split_body_avx2(planes, src, n, w, r)
                LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
            } LMC__AVX2 static void lmc__join_avx2(uint8_t *dst, const lmc__const_planes *planes,
                                                   size_t n, unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__join_body_avx2(dst, planes, n, w, r)
                LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
            } LMC__AVX512
    static void lmc__split_avx512(const lmc__planes *planes, const uint8_t *src, size_t n,
                                  unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body_avx512(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif

/* == kernels/count.h ============================================================================== */

/* -- 6.4 count_bytes: counts[v] += number of bytes v; on every tier the same. Eight tables, because
 * a count that was stored a few cycles ago is slow to load, and in skewed planes most bytes want
 * the same one. -- */
static void lmc__count_bytes(uint32_t counts[256], const uint8_t *src, size_t n)
{
    const size_t most = (size_t)8 << 15; /* so that 16 bits suffice */
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

/* -- 6.5 is_constant: 1 if src[0, n), n > 0, are all equal -- */
static int lmc__is_constant_scalar(const uint8_t *src, size_t n)
{
    return memcmp(src, src + 1, n - 1) == 0; /* each byte equals its successor */
}

/* -- 6.11 count_ones: number of one bits in mask[0, size) -- */
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
    ones = (size_t)vaddlvq_u32(
        sum); /* a lane grows by 128 at most in a step: enough for masks of 2 GiB */
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

/* -- 6.6 map: dst[i] = table[src[i]]; dst == src is legal -- */
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

/* Four look-ups of 64 entries each: tbl gives 0, tbx keeps what was there, for places out of range.
 */
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
/* A table of 256 entries in rows of 16. Ranks (section 8.2) are permutations in which most rows
 * just count up: there the distance between an entry and its place is the same throughout. One
 * shuffle finds each row's distance, one more for each other row corrects it. */
typedef struct lmc__rows {
    uint8_t distance[16]; /* of the row's first entry */
    unsigned n;           /* rows to correct */
    uint8_t first[16];    /* where they start */
    uint8_t more[16][16]; /* what is added there */
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
    for (i = 0; i < rows->n; i++) { /* a shuffle gives 0 for places with bit 7 set, which here those
                                       of other rows get */
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
/* Four look-ups of 64 entries each; bit 6 of a byte chooses within a pair, bit 7 the pair. */
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
    for (i = 0; i < 4; i++) t[i] = _mm512_loadu_si512(table + 64 * i);
    for (i = 0; i < n; i += 64) {
        const __mmask64 valid = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        _mm512_mask_storeu_epi8(dst + i, valid,
                                lmc__map_step_avx512(_mm512_maskz_loadu_epi8(valid, src + i), t));
    }
}
#endif

/* == kernels/partition.h ========================================================================== */

/* -- 6.7 partition: bit i of mask = (src[i] >= split); elements with 0 to the list left, with 1 to
 * the list right, in order. left and right may each be NULL (not wanted); left may be src. Unused
 * bits of the last mask byte are zero. Returns the number of ones. -- */
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

/* A step of 64 elements, of which n count. Returns the number of ones. */
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
                          LMC__ONES8; /* byte j: of bytes 0 .. j of m; so no store waits */
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

/* 32 elements, those in m to the right, behind n_left and n_right others. Returns how many there
 * are now on the right. */
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
/* vpcompressb to a register and a full store: the form with a memory operand is microcoded on Zen
 * 4, and the zero-masked one waits for the old value of its destination, so the merge-masked one is
 * used. */
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

/* -- 6.8 merge: the inverse. dst[i] = the next element of left or right, as bit i of mask says. dst
 * is a list. -- */
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
/* Number of one bits of m below bit i. */
#define LMC__BELOW_0(m) 0
#define LMC__BELOW_1(m) ((m) & 1)
#define LMC__BELOW_2(m) (LMC__BELOW_1(m) + ((m) >> 1 & 1))
#define LMC__BELOW_3(m) (LMC__BELOW_2(m) + ((m) >> 2 & 1))
#define LMC__BELOW_4(m) (LMC__BELOW_3(m) + ((m) >> 3 & 1))
#define LMC__BELOW_5(m) (LMC__BELOW_4(m) + ((m) >> 4 & 1))
#define LMC__BELOW_6(m) (LMC__BELOW_5(m) + ((m) >> 5 & 1))
#define LMC__BELOW_7(m) (LMC__BELOW_6(m) + ((m) >> 6 & 1))

/* Where the bytes of a merge come from, for each bit of a mask byte: low[m]: 0, 1, ... for zeros,
 * 16, 17, ... for ones; high[m] is for the second byte of a pair whose first one has c ones: |high
 * - c| is 8 - c, 9 - c, ... for zeros and 16 + c, 17 + c, ... for ones. */
#define LMC__PLACE(m, i, left, right, step)                                                        \
    ((uint64_t)(((m) >> i & 1 ? right + step * LMC__BELOW_##i(m) : left + i - LMC__BELOW_##i(m)) & \
                255)                                                                               \
     << 8 * i)
#define LMC__PLACES(m, left, right, step)                                                          \
    (LMC__PLACE(m, 0, left, right, step) | LMC__PLACE(m, 1, left, right, step) |                   \
     LMC__PLACE(m, 2, left, right, step) | LMC__PLACE(m, 3, left, right, step) |                   \
     LMC__PLACE(m, 4, left, right, step) | LMC__PLACE(m, 5, left, right, step) |                   \
     LMC__PLACE(m, 6, left, right, step) | LMC__PLACE(m, 7, left, right, step))
#define LMC__MERGE_LOW(m) LMC__PLACES(m, 0, 16, 1)
#define LMC__MERGE_HIGH(m) LMC__PLACES(m, 8, 240, -1)
static const uint64_t lmc__merge_low[256] = {LMC__256(LMC__MERGE_LOW)},
                      lmc__merge_high[256] = {LMC__256(LMC__MERGE_HIGH)};

/* Elements [16 j, 16 j + 16) of a step of 64. counts: number of ones in each byte of m; ones: of
 * all up to it. A macro: clang wants the number of a lane to be a literal. */
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

/* Between two constants: each bit to a byte, which chooses. */
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

/* 32 elements, in halves of 16, for byte shuffles see no more: an element's place in its list is
 * the number of those before it that come from the same one. Without tables: twice 16 shuffles by 8
 * bytes cost more. */
LMC__INLINE2 __m256i lmc__merge_step_avx2(uint32_t m, const uint8_t *a, const uint8_t *b, __m256i l,
                                          __m256i r, int left_list, int right_list)
{
    const __m256i up = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
                                        2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i one = lmc__spread_bits_avx2(m);
    const size_t half = (size_t)_mm_popcnt_u64(m & 0xFFFF);
    __m256i sum = one; /* minus the number of ones up to here */
    if (left_list || right_list) sum = lmc__sum_up_avx2(sum);
    if (left_list)
        l = _mm256_shuffle_epi8(lmc__load_pair_avx2(a, a + 16 - half), _mm256_add_epi8(up, sum));
    if (right_list)
        r = _mm256_shuffle_epi8(lmc__load_pair_avx2(b, b + half),
                                _mm256_xor_si256(sum, _mm256_set1_epi16(-1))); /* -sum - 1 */
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
/* Between two constants, the scalar kernel wins: it has no bytes to shuffle. */
static void lmc__merge_simde(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                             lmc__side right)
{
    if (left.list || right.list) lmc__merge_avx2(dst, mask, n, left, right);
    else lmc__merge_scalar(dst, mask, n, left, right);
}
#endif

/* == kernels/flatten.h ============================================================================ */

/* -- 6.9 flatten: depth lists of n bits, most significant first: the bits of src[i] - first -- */
static void lmc__flatten_scalar(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint64_t low = first * LMC__ONES8;
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 8) {
        uint64_t v = lmc__load64(src + i) -
                     low; /* no borrow between the bytes that count: src[i] >= first */
        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;
        for (d = 0; d < depth; d++)
            bits[d * row + (i >> 3)] =
                (uint8_t)lmc__collect_bits(v >> (depth - 1 - d) & LMC__ONES8);
    }
}

/* -- 6.10 unflatten: the inverse; dst[i] = symbols[index]; dst is a list -- */
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
        v = _mm256_sll_epi16(v, up); /* the top one of the depth bits to bit 7; what crosses into a
                                        neighbour is below */
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
    __m256i table[4];
    uint8_t padded[64];
    size_t i;
    unsigned d, t;
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    for (t = 0; t < 4; t++)
        table[t] = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)(padded + 16 * t)));
    for (i = 0; i < n; i += 32) {
        __m256i v = _mm256_setzero_si256(), out, row_of;
        LMC__UNROLL for (d = 0; d < depth; d++)
        { /* v = 2 v + bit */
            const uint32_t m = n - i >= 32 ? lmc__load32(bits + d * row + i / 8)
                                           : (uint32_t)lmc__load_mask(bits + d * row, i, n);
            v = _mm256_sub_epi8(_mm256_add_epi8(v, v), lmc__spread_bits_avx2(m));
        }
        out =
            _mm256_shuffle_epi8(table[0], v); /* looks at the low 4 bits: v < 64, bit 7 is clear */
        if (depth > 4) {
            row_of = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(3));
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
    switch (depth) {
    case 1: lmc__unflatten_body_avx2(dst, bits, n, symbols, 1); break;
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
        __m512i v = _mm512_setzero_si512();
        LMC__UNROLL for (d = 0; d < depth; d++)
        {
            const __mmask64 m = n - i >= 64 ? lmc__load64(bits + d * row + i / 8)
                                            : lmc__load_mask(bits + d * row, i, n);
            v = _mm512_mask_add_epi8(v, m, v, _mm512_set1_epi8((char)(1 << (depth - 1 - d))));
        }
        _mm512_storeu_si512(dst + i, _mm512_permutexvar_epi8(v, table));
    }
}

LMC__AVX512 static void lmc__unflatten_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
                                              const uint8_t *symbols, unsigned depth)
{
    switch (depth) { /* constant depths, so that the bits stay in registers */
    case 2: lmc__unflatten_body_avx512(dst, bits, n, symbols, 2); break;
    case 3: lmc__unflatten_body_avx512(dst, bits, n, symbols, 3); break;
    case 4: lmc__unflatten_body_avx512(dst, bits, n, symbols, 4); break;
    case 5: lmc__unflatten_body_avx512(dst, bits, n, symbols, 5); break;
    case 6: lmc__unflatten_body_avx512(dst, bits, n, symbols, 6); break;
    default: lmc__unflatten_body_avx512(dst, bits, n, symbols, depth);
    }
}
#endif

/* == kernels/fold.h =============================================================================== */

/* -- 6.12 fold: high, low: the two top bytes of n elements. The wide symbol is high and the `extra`
 * top bits of low; less the offset, modulo 256, it goes to symbols; low's other bits go to packed,
 * which is zero. symbols == high is legal. --
 * -- 6.13 unfold: the inverse, of n elements from number `first` on, whose symbols are at
 * `symbols`; all rows are lists -- */

/* Whole vectors only; returns the number of elements done. The steps: shifts of bytes whose stray
 * bits a select removes. `tail`: these elements are behind packed_size, and packed is where the
 * field of the first is in row 0; else it is where its byte is. */
#define LMC__DEFINE_JOINT(isa, inline_isa, vector)                                                 \
    inline_isa size_t lmc__fold_part_##isa(uint8_t *symbols, uint8_t *packed, const uint8_t *high, \
                                           const uint8_t *low, size_t n, unsigned extra,           \
                                           unsigned offset, size_t row, int tail)                  \
    {                                                                                              \
        const vector field = lmc__splat_##isa((1u << extra) - 1),                                  \
                     rest = lmc__splat_##isa(255u >> extra);                                       \
        const vector top = lmc__splat_##isa((255u << (8 - extra)) & 255),                          \
                     zero = lmc__splat_##isa(0), to = lmc__splat_##isa((256 - offset) & 255);      \
        size_t i;                                                                                  \
        for (i = 0; i + sizeof(vector) <= n; i += sizeof(vector)) {                                \
            const vector h = lmc__load_##isa(high + i), l = lmc__load_##isa(low + i);              \
            lmc__store_##isa(symbols + i,                                                          \
                             lmc__add_##isa(lmc__select_##isa(field, lmc__shr_##isa(l, 8 - extra), \
                                                              lmc__shl_##isa(h, extra)),           \
                                            to));                                                  \
            if (tail) {                                                                            \
                unsigned b;                                                                        \
                for (b = 0; b < 8 - extra; b += extra) {                                           \
                    uint8_t *const p = packed + b / extra * row + i;                               \
                    lmc__store_##isa(p, lmc__select_##isa(top, lmc__shl_##isa(l, 8 - extra - b),   \
                                                          lmc__load_##isa(p)));                    \
                }                                                                                  \
            } else {                                                                               \
                lmc__store_##isa(packed + i, lmc__select_##isa(rest, l, zero));                    \
            }                                                                                      \
        }                                                                                          \
        return i;                                                                                  \
    }                                                                                              \
    /* the bits of elements behind packed_size; packed: the field of the first in row 0 */         \
    inline_isa vector lmc__unpack_tail_##isa(const uint8_t *packed, size_t row, unsigned extra)    \
    {                                                                                              \
        vector r = lmc__splat_##isa(0);                                                            \
        unsigned b;                                                                                \
        for (b = 0; b < 8 - extra; b += extra)                                                     \
            r = lmc__select_##isa(                                                                 \
                lmc__splat_##isa(((1u << extra) - 1) << b),                                        \
                lmc__shr_##isa(lmc__load_##isa(packed + b / extra * row), 8 - extra - b), r);      \
        return r;                                                                                  \
    }                                                                                              \
    /* *high: symbols, *low: what is packed; to the bytes */                                       \
    inline_isa void lmc__unfold_step_##isa(vector *high, vector *low, unsigned extra,              \
                                           unsigned offset)                                        \
    {                                                                                              \
        const vector from = lmc__splat_##isa(offset & 255), s = lmc__add_##isa(*high, from);       \
        const vector lower = lmc__splat_##isa((offset >> 8 << (8 - extra)) & 255),                 \
                     upper = lmc__splat_##isa((((offset >> 8) + 1) << (8 - extra)) & 255);         \
        *high = lmc__select_##isa(lmc__splat_##isa(255u >> extra), lmc__shr_##isa(s, extra),       \
                                  lmc__select_##isa(lmc__not_below_##isa(s, from), lower, upper)); \
        *low = lmc__select_##isa(lmc__splat_##isa((255u << (8 - extra)) & 255),                    \
                                 lmc__shl_##isa(s, 8 - extra), *low);                              \
    }                                                                                              \
    inline_isa size_t lmc__unfold_part_##isa(uint8_t *high, uint8_t *low, const uint8_t *symbols,  \
                                             const uint8_t *packed, size_t n, unsigned extra,      \
                                             unsigned offset, size_t row, int tail)                \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i + sizeof(vector) <= n; i += sizeof(vector)) {                                \
            vector h = lmc__load_##isa(symbols + i),                                               \
                   l = tail ? lmc__unpack_tail_##isa(packed + i, row, extra)                       \
                            : lmc__load_##isa(packed + i);                                         \
            lmc__unfold_step_##isa(&h, &l, extra, offset);                                         \
            lmc__store_##isa(high + i, h);                                                         \
            lmc__store_##isa(low + i, l);                                                          \
        }                                                                                          \
        return i;                                                                                  \
    }                                                                                              \
    LMC__TARGET_##isa static void lmc__fold_##isa(uint8_t *symbols, uint8_t *packed,               \
                                                  const uint8_t *high, const uint8_t *low,         \
                                                  size_t n, const lmc__joint *joint)               \
    {                                                                                              \
        const size_t row = joint->row, n_main = lmc__min(n, joint->packed_size);                   \
        size_t i = joint->extra == 1 ? lmc__fold_part_##isa(symbols, packed, high, low, n_main, 1, \
                                                            joint->offset, row, 0)                 \
                                     : lmc__fold_part_##isa(symbols, packed, high, low, n_main, 2, \
                                                            joint->offset, row, 0);                \
        lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);                              \
        if (n == n_main) return;                                                                   \
        symbols += n_main;                                                                         \
        high += n_main;                                                                            \
        low += n_main;                                                                             \
        i = joint->extra == 1 ? lmc__fold_part_##isa(symbols, packed, high, low, n - n_main, 1,    \
                                                     joint->offset, row, 1)                        \
                              : lmc__fold_part_##isa(symbols, packed, high, low, n - n_main, 2,    \
                                                     joint->offset, row, 1);                       \
        lmc__fold_rest(symbols - n_main, packed, high - n_main, low - n_main, n_main + i, n,       \
                       joint);                                                                     \
    }                                                                                              \
    LMC__TARGET_##isa static void lmc__unfold_##isa(                                               \
        uint8_t *high, uint8_t *low, const uint8_t *symbols, const uint8_t *packed, size_t first,  \
        size_t n, const lmc__joint *joint)                                                         \
    {                                                                                              \
        const size_t row = joint->row, offset = joint->offset, size = joint->packed_size;          \
        const size_t n_main = first < size ? lmc__min(n, size - first) : 0;                        \
        size_t i = joint->extra == 1                                                               \
                       ? lmc__unfold_part_##isa(high, low, symbols, packed + first, n_main, 1,     \
                                                (unsigned)offset, row, 0)                          \
                       : lmc__unfold_part_##isa(high, low, symbols, packed + first, n_main, 2,     \
                                                (unsigned)offset, row, 0);                         \
        lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);                     \
        if (n == n_main) return;                                                                   \
        packed += first + n_main - size;                                                           \
        i = joint->extra == 1                                                                      \
                ? lmc__unfold_part_##isa(high + n_main, low + n_main, symbols + n_main, packed,    \
                                         n - n_main, 1, (unsigned)offset, row, 1)                  \
                : lmc__unfold_part_##isa(high + n_main, low + n_main, symbols + n_main, packed,    \
                                         n - n_main, 2, (unsigned)offset, row, 1);                 \
        lmc__unfold_rest(high, low, symbols, packed - (first + n_main - size), first, n_main + i,  \
                         n, joint);                                                                \
    }

/* The bits of element i of the byte below the top one that are packed. */
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

#define LMC__TARGET_scalar
LMC__DEFINE_JOINT(scalar, LMC__INLINE, uint64_t)

#if LMC__NEON
#define LMC__TARGET_neon
LMC__DEFINE_JOINT(neon, LMC__INLINE, uint8x16_t)
#endif

#if LMC__AVX2_TEXT
#define LMC__TARGET_avx2 LMC__AVX2
LMC__DEFINE_JOINT(avx2, LMC__INLINE2, __m256i)
#endif

#if LMC__X86
#define LMC__TARGET_avx512 LMC__AVX512
LMC__DEFINE_JOINT(avx512, LMC__INLINE512, __m512i)
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
typedef struct lmc__cursor {
    const uint8_t *at;
    size_t mask;
} lmc__cursor;

LMC__INLINE2 lmc__cursor lmc__open_side_avx2(lmc__side side, size_t used, uint8_t constant[32])
{
    lmc__cursor cursor;
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
                                                    unsigned width, int rotate,
                                                    lmc__streaming streaming,
                                                    lmc__strip_buffers *buffers)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width), head = (0 - (uintptr_t)dst) & 31;
    const lmc__merged *const root = source->root;
    const lmc__const_planes rows = *source->planes;
    const __m256i zero = _mm256_setzero_si256();
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    const uint8_t *mask = NULL;
    uint8_t *from, *to = buffers->strip[0], constant[2][32];
    lmc__cursor left = {NULL, 0}, right = {NULL, 0};
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
#define LMC__CALL(w)                                                                               \
    done = lmc__join_root_loop_avx2(k, dst, &source, n, w, rotate, streaming, &buffers)
        case 1: LMC__CALL(1); break;
        case 2: LMC__CALL(2); break;
        case 4: LMC__CALL(4); break;
        default: LMC__CALL(8);
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
                                 lmc__delta_progress *done)
{
    const unsigned first = block->grouping->n_natural;
    uint8_t class_of[256];
    size_t i;
    unsigned p;
    lmc__set_class_table(class_of, block->grouping);
    for (i = done->n; i < block->n; i++) {
        const uint64_t b = lmc__load_element(block->base, i, width);
        const uint64_t v = lmc__load_element(src, i, width);
        const uint64_t r =
            block->subtract ? lmc__residual(v, b, width, 1) : lmc__residual(v, b, width, 0);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = done->next[c]++;
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
                                   lmc__delta_progress *done)
{
    const unsigned first = block->grouping->n_natural;
    uint8_t class_of[256];
    size_t i;
    unsigned p;
    lmc__set_class_table(class_of, block->grouping);
    for (i = done->n; i < block->n; i++) {
        const uint64_t b = lmc__load_element(block->base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        const size_t at = done->next[c]++;
        uint64_t r = 0;
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            const lmc__side *const side = &sides->side[p < first ? 0 : c][p];
            r |= (uint64_t)(side->list ? side->list[p < first ? i : at] : side->value) << 8 * p;
        }
        r = block->subtract ? lmc__restore_element(r, b, width, 1)
                            : lmc__restore_element(r, b, width, 0);
        lmc__store_element(dst, i, r, width);
    }
}

/* Elements [done->n, n), one by one. This is the definition of ungroup, and what the other tiers
 * end with. */
static uint32_t lmc__ungroup_rest(const lmc__kernels *k, uint8_t *dst,
                                  const lmc__class_sides *sides, const lmc__delta_block *block,
                                  lmc__delta_progress *done)
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

/* -- 6.19 grids: elements that are quantised (spec 7.6). Elements are the bits of F32,
 * little-endian; symbols are 16 bits -- */

/* The scale that an element's prediction gives. */
LMC__INLINE uint32_t lmc__predicted_scale(uint32_t p, const lmc__grid *grid)
{
    int32_t half;
    p &= 0x7FFFFFFF;
    half = (int32_t)((p > grid->floor ? p : grid->floor) >> 1) + grid->bias;
    half = half<(int32_t)LMC__MIN_SCALE ? (int32_t)LMC__MIN_SCALE : half>(int32_t) LMC__MAX_SCALE
               ? (int32_t)LMC__MAX_SCALE
               : half;
    return (uint32_t)half & 0xFFFF0000u;
}

LMC__INLINE uint32_t lmc__restore_linear(uint32_t symbol, uint32_t scale, int32_t min)
{
    const float q = symbol ? (float)(min + (int32_t)symbol - 1) : 0.0f;
    float g, product;
    uint32_t bits;
    memcpy(&g, &scale, 4);
    product =
        q * g; /* 16 bits times 8: exact in any rounding mode, any precision, never subnormal */
    memcpy(&bits, &product, 4);
    return bits;
}

LMC__INLINE uint32_t lmc__restore_log(uint32_t symbol, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t t = symbol - 1, sign = grid->is_signed ? t << 31 : 0;
    const int64_t v = (int64_t)scale +
                      ((int64_t)grid->min + (int64_t)(grid->is_signed ? t >> 1 : t)) * grid->step;
    if (symbol == 0) return 0;
    return (uint32_t)(v<(int64_t)LMC__MIN_SCALE ? (int64_t)LMC__MIN_SCALE : v>(int64_t)
                              LMC__MAX_LOG_SCALE
                          ? (int64_t)LMC__MAX_LOG_SCALE
                          : v) |
           sign;
}

/* Magnitude over scale as the nearest F32, to the nearest integer, halves up; 65536 if that is
 * less. What IEEE division gives, in integers: on no machine and under no option of a compiler may
 * it be another. */
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
        return LMC__EXCEPTION; /* what is beyond the largest point would move by more than half a
                                  step */
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

/* One text for all tiers, in the vectors of gcc and clang: every line is the scalar one. Division
 * is IEEE's, so not under -ffast-math, which has approximations in its place: then the scalar code
 * does it (clang does not tell of -freciprocal-math alone). */
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
#define LMC__PICK(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))
#define LMC__DEFINE_GRIDS(isa, lanes, attribute, inline_attribute)                                 \
    typedef uint32_t lmc__u32_##isa __attribute__((vector_size(4 * lanes)));                       \
    typedef int32_t lmc__i32_##isa __attribute__((vector_size(4 * lanes)));                        \
    typedef uint64_t lmc__u64_##isa __attribute__((vector_size(4 * lanes)));                       \
    typedef float lmc__f32_##isa __attribute__((vector_size(4 * lanes)));                          \
    typedef uint16_t lmc__u16_##isa __attribute__((vector_size(2 * lanes)));                       \
    typedef uint16_t lmc__w16_##isa __attribute__((vector_size(4 * lanes)));                       \
    typedef uint8_t lmc__u8_##isa __attribute__((vector_size(2 * lanes)));                         \
    inline_attribute void lmc__scale_step_##isa(lmc__i32_##isa *scale, const uint8_t *second,      \
                                                const lmc__grid *grid)                             \
    {                                                                                              \
        lmc__i32_##isa p, above;                                                                   \
        memcpy(&p, second, sizeof p);                                                              \
        p &= 0x7FFFFFFF;                                                                           \
        above = p > (int32_t)grid->floor;                                                          \
        p = (LMC__PICK(above, p, (int32_t)grid->floor) >> 1) + grid->bias;                         \
        above = p > (int32_t)LMC__MIN_SCALE;                                                       \
        p = LMC__PICK(above, p, (int32_t)LMC__MIN_SCALE);                                          \
        above = p > (int32_t)LMC__MAX_SCALE;                                                       \
        *scale = LMC__PICK(above, (int32_t)LMC__MAX_SCALE, p) & (int32_t)0xFFFF0000;               \
    }                                                                                              \
    inline_attribute void lmc__linear_step_##isa(uint8_t *dst, const uint16_t *symbols,            \
                                                 const lmc__i32_##isa *scale, int32_t min)         \
    {                                                                                              \
        lmc__u16_##isa s;                                                                          \
        lmc__i32_##isa q;                                                                          \
        lmc__f32_##isa v;                                                                          \
        memcpy(&s, symbols, sizeof s);                                                             \
        q = __builtin_convertvector(s, lmc__i32_##isa);                                            \
        q = (q + (min - 1)) & (lmc__i32_##isa)(q != 0);                                            \
        v = __builtin_convertvector(q, lmc__f32_##isa) * (lmc__f32_##isa) * scale;                 \
        memcpy(dst, &v, sizeof v);                                                                 \
    }                                                                                              \
    inline_attribute void lmc__log_step_##isa(uint8_t *dst, const uint16_t *symbols,               \
                                              uint32_t scale, const lmc__grid *grid,               \
                                              int32_t limit, int is_signed)                        \
    {                                                                                              \
        const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),                                     \
                      high = (int32_t)(LMC__MAX_LOG_SCALE - scale);                                \
        lmc__u16_##isa s;                                                                          \
        lmc__i32_##isa q, t, sign, is;                                                             \
        memcpy(&s, symbols, sizeof s);                                                             \
        t = __builtin_convertvector(s, lmc__i32_##isa);                                            \
        is = t != 0;                                                                               \
        t -= 1;                                                                                    \
        sign = t << 31;                                                                            \
        q = (is_signed ? t >> 1 : t) + grid->min;                                                  \
        t = q > limit; /* beyond it, the product is beyond all floats, and need not be right */    \
        q = LMC__PICK(t, limit, q);                                                                \
        t = q < -limit;                                                                            \
        q = LMC__PICK(t, -limit, q);                                                               \
        q *= (int32_t)grid->step;                                                                  \
        t = q > high;                                                                              \
        q = LMC__PICK(t, high, q);                                                                 \
        t = q < low;                                                                               \
        q = LMC__PICK(t, low, q) + (int32_t)scale;                                                 \
        if (is_signed) q |= sign;                                                                  \
        q &= is;                                                                                   \
        memcpy(dst, &q, sizeof q);                                                                 \
    }                                                                                              \
    attribute static void lmc__restore_rows_##isa(uint8_t *dst, const uint16_t *symbols, size_t n, \
                                                  uint32_t scale, const lmc__grid *grid)           \
    {                                                                                              \
        size_t i = 0;                                                                              \
        if (grid->is_log) {                                                                        \
            const int32_t limit = (int32_t)(0x7FFFFFFF / grid->step);                              \
            if (grid->is_signed)                                                                   \
                for (; i + lanes <= n; i += lanes)                                                 \
                    lmc__log_step_##isa(dst + 4 * i, symbols + i, scale, grid, limit, 1);          \
            else                                                                                   \
                for (; i + lanes <= n; i += lanes)                                                 \
                    lmc__log_step_##isa(dst + 4 * i, symbols + i, scale, grid, limit, 0);          \
        } else {                                                                                   \
            lmc__i32_##isa scales = {0};                                                           \
            scales += (int32_t)scale;                                                              \
            for (; i + lanes <= n; i += lanes)                                                     \
                lmc__linear_step_##isa(dst + 4 * i, symbols + i, &scales, grid->min);              \
        }                                                                                          \
        lmc__restore_rows_scalar(dst + 4 * i, symbols + i, n - i, scale, grid);                    \
    }                                                                                              \
    attribute static void lmc__restore_updates_##isa(uint8_t *dst, const uint16_t *symbols,        \
                                                     const uint8_t *second, size_t n,              \
                                                     const lmc__grid *grid)                        \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i + lanes <= n; i += lanes) {                                                  \
            lmc__i32_##isa scale;                                                                  \
            lmc__scale_step_##isa(&scale, second + 4 * i, grid);                                   \
            lmc__linear_step_##isa(dst + 4 * i, symbols + i, &scale, grid->min);                   \
        }                                                                                          \
        lmc__restore_updates_scalar(dst + 4 * i, symbols + i, second + 4 * i, n - i, grid);        \
    }                                                                                              \
    /* s: symbols as they would be; is_special: where they are not. Returns what is_special has    \
     * become. */                                                                                  \
    inline_attribute void lmc__finish_step_##isa(uint16_t *symbols, lmc__i32_##isa s,              \
                                                 lmc__i32_##isa x, lmc__i32_##isa is_bad,          \
                                                 lmc__i32_##isa *exceptions)                       \
    {                                                                                              \
        const lmc__u32_##isa from_normal = ((lmc__u32_##isa)x & 0x7FFFFFFFu) - 0x00800000u;        \
        lmc__u16_##isa narrow;                                                                     \
        is_bad |= (lmc__i32_##isa)(from_normal >= 0x7F000000u);                                    \
        is_bad &= (lmc__i32_##isa)(x != 0);                                                        \
        s = LMC__PICK(is_bad, (int32_t)LMC__EXCEPTION, s & (lmc__i32_##isa)(x != 0));              \
        narrow = __builtin_convertvector((lmc__u32_##isa)s, lmc__u16_##isa);                       \
        memcpy(symbols, &narrow, sizeof narrow);                                                   \
        *exceptions -= is_bad;                                                                     \
    }                                                                                              \
    inline_attribute void lmc__quantize_step_##isa(                                                \
        uint16_t *symbols, const uint8_t *src, const lmc__i32_##isa *scale, const lmc__grid *grid, \
        lmc__i32_##isa *exceptions)                                                                \
    {                                                                                              \
        lmc__i32_##isa x, y, above, q;                                                             \
        lmc__f32_##isa v;                                                                          \
        memcpy(&x, src, sizeof x);                                                                 \
        v = (lmc__f32_##isa)(x & 0x7FFFFFFF) / (lmc__f32_##isa) * scale;                           \
        y = (lmc__i32_##isa)v;                                                                     \
        above = y > 0x47800000; /* 65536.0 */                                                      \
        v = (lmc__f32_##isa)LMC__PICK(above, 0x47800000, y);                                       \
        q = (__builtin_convertvector(v + v, lmc__i32_##isa) + 1) >> 1;                             \
        y = x >> 31;                                                                               \
        q = (q ^ y) - y;                                                                           \
        y = q - grid->min;                                                                         \
        above = (lmc__i32_##isa)((lmc__u32_##isa)y >= grid->n_points);                             \
        lmc__finish_step_##isa(symbols, (y + 1) & (lmc__i32_##isa)(q != 0), x, above, exceptions); \
    }                                                                                              \
    inline_attribute size_t lmc__sum_##isa(lmc__i32_##isa v)                                       \
    {                                                                                              \
        size_t sum = 0;                                                                            \
        unsigned i;                                                                                \
        for (i = 0; i < lanes; i++) sum += (uint32_t)v[i];                                         \
        return sum;                                                                                \
    }                                                                                              \
    attribute static size_t lmc__quantize_rows_##isa(                                              \
        uint16_t *symbols, const uint8_t *src, size_t n, uint32_t scale, const lmc__grid *grid)    \
    {                                                                                              \
        lmc__i32_##isa scales = {0}, exceptions = {0};                                             \
        size_t i = 0;                                                                              \
        scales += (int32_t)scale;                                                                  \
        if (grid->is_log) {                                                                        \
            /* u / step for u < 2^31: (u * magic) >> (31 + log2), where 2^log2 is the least power  \
             * of two from step on (Hacker's Delight, 10-9) */                                     \
            const uint32_t offset = scale + lmc__lowest(grid);                                     \
            unsigned log2 = 0;                                                                     \
            uint64_t magic;                                                                        \
            int is_power;                                                                          \
            while ((uint32_t)1 << log2 < grid->step) log2++;                                       \
            is_power = (uint32_t)1 << log2 == grid->step;                                          \
            magic = ((uint64_t)1 << (31 + log2)) / grid->step + 1;                                 \
            for (; i + lanes <= n; i += lanes) {                                                   \
                lmc__i32_##isa x, is_bad;                                                          \
                lmc__u32_##isa u, t;                                                               \
                memcpy(&x, src + 4 * i, sizeof x);                                                 \
                u = ((lmc__u32_##isa)x & 0x7FFFFFFFu) - offset;                                    \
                is_bad = (lmc__i32_##isa)u >> 31 |                                                 \
                         (lmc__i32_##isa)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);         \
                if (is_power) t = u >> log2;                                                       \
                else {                                                                             \
                    const lmc__u64_##isa even =                                                    \
                        (((lmc__u64_##isa)u & 0x7FFFFFFFu) * magic) >> (31 + log2);                \
                    const lmc__u64_##isa odd =                                                     \
                        (((lmc__u64_##isa)u >> 32 & 0x7FFFFFFFu) * magic) >> (31 + log2);          \
                    t = (lmc__u32_##isa)(even | odd << 32);                                        \
                }                                                                                  \
                is_bad |= (lmc__i32_##isa)(t >= grid->n_points);                                   \
                if (grid->is_signed) t = t << 1 | (lmc__u32_##isa)x >> 31;                         \
                else is_bad |= x >> 31;                                                            \
                lmc__finish_step_##isa(symbols + i, (lmc__i32_##isa)t + 1, x, is_bad,              \
                                       &exceptions);                                               \
            }                                                                                      \
        } else                                                                                     \
            for (; i + lanes <= n; i += lanes)                                                     \
                lmc__quantize_step_##isa(symbols + i, src + 4 * i, &scales, grid, &exceptions);    \
        return lmc__sum_##isa(exceptions) +                                                        \
               lmc__quantize_rows_scalar(symbols + i, src + 4 * i, n - i, scale, grid);            \
    }                                                                                              \
    attribute static size_t lmc__quantize_updates_##isa(uint16_t *symbols, const uint8_t *src,     \
                                                        const uint8_t *second, size_t n,           \
                                                        const lmc__grid *grid)                     \
    {                                                                                              \
        lmc__i32_##isa exceptions = {0};                                                           \
        size_t i;                                                                                  \
        for (i = 0; i + lanes <= n; i += lanes) {                                                  \
            lmc__i32_##isa scale;                                                                  \
            lmc__scale_step_##isa(&scale, second + 4 * i, grid);                                   \
            lmc__quantize_step_##isa(symbols + i, src + 4 * i, &scale, grid, &exceptions);         \
        }                                                                                          \
        return lmc__sum_##isa(exceptions) + lmc__quantize_updates_scalar(symbols + i, src + 4 * i, \
                                                                         second + 4 * i, n - i,    \
                                                                         grid);                    \
    }                                                                                              \
    attribute static uint32_t lmc__sum_magnitudes_##isa(const uint8_t *src, size_t n,              \
                                                        uint32_t *count)                           \
    {                                                                                              \
        lmc__i32_##isa sum = {0}, counts = {0};                                                    \
        uint32_t rest;                                                                             \
        size_t i;                                                                                  \
        for (i = 0; i + lanes <= n; i += lanes) {                                                  \
            lmc__u32_##isa x;                                                                      \
            lmc__i32_##isa is;                                                                     \
            memcpy(&x, src + 4 * i, sizeof x);                                                     \
            x &= 0x7FFFFFFFu;                                                                      \
            is = (lmc__i32_##isa)(x - 0x00800000u < 0x7F000000u);                                  \
            counts -= is;                                                                          \
            sum += (lmc__i32_##isa)(x >> 14) & is;                                                 \
        }                                                                                          \
        rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);                              \
        *count += (uint32_t)lmc__sum_##isa(counts);                                                \
        return rest + (uint32_t)lmc__sum_##isa(sum);                                               \
    }                                                                                              \
    attribute static void lmc__join_symbols_##isa(uint16_t *symbols, const uint8_t *high,          \
                                                  const uint8_t *low, size_t n, unsigned low_bits) \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i + 2 * lanes <= n; i += 2 * lanes) {                                          \
            lmc__u8_##isa h, l;                                                                    \
            lmc__w16_##isa s;                                                                      \
            memcpy(&h, high + i, sizeof h);                                                        \
            s = __builtin_convertvector(h, lmc__w16_##isa) << low_bits;                            \
            if (low) {                                                                             \
                memcpy(&l, low + i, sizeof l);                                                     \
                s |= __builtin_convertvector(l, lmc__w16_##isa);                                   \
            }                                                                                      \
            memcpy(symbols + i, &s, sizeof s);                                                     \
        }                                                                                          \
        lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);    \
    }                                                                                              \
    attribute static void lmc__cut_symbols_##isa(                                                  \
        uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n, unsigned low_bits)         \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i + 2 * lanes <= n; i += 2 * lanes) {                                          \
            lmc__w16_##isa s;                                                                      \
            lmc__u8_##isa part;                                                                    \
            memcpy(&s, symbols + i, sizeof s);                                                     \
            part = __builtin_convertvector(s >> low_bits, lmc__u8_##isa);                          \
            memcpy(high + i, &part, sizeof part);                                                  \
            if (!low) continue;                                                                    \
            part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), lmc__u8_##isa);   \
            memcpy(low + i, &part, sizeof part);                                                   \
        }                                                                                          \
        lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);     \
    }
#if LMC__NEON
LMC__DEFINE_GRIDS(neon, 4, , LMC__INLINE)
#endif
#if LMC__X86
LMC__DEFINE_GRIDS(avx2, 8, LMC__AVX2, LMC__INLINE2)
LMC__DEFINE_GRIDS(avx512, 16, LMC__AVX512, LMC__INLINE512)

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

/* == kernels/dispatch.h =========================================================================== */

#if LMC__X86
#include <cpuid.h>
#endif
#if LMC__NEON && defined(__linux__)
#include <sys/auxv.h>
#endif

#define LMC__SCALAR_GRIDS                                                                          \
    lmc__restore_rows_scalar, lmc__restore_updates_scalar, lmc__quantize_rows_scalar,              \
        lmc__quantize_updates_scalar, lmc__sum_magnitudes_scalar, lmc__look_up_scalar,             \
        lmc__join_symbols_scalar, lmc__cut_symbols_scalar, lmc__stream_scalar
#if LMC__VECTORS
#define LMC__GRIDS(isa, look_up, stream)                                                           \
    lmc__restore_rows_##isa, lmc__restore_updates_##isa, LMC__OR_SCALAR(quantize_rows, isa),       \
        LMC__OR_SCALAR(quantize_updates, isa), lmc__sum_magnitudes_##isa, look_up,                 \
        lmc__join_symbols_##isa, lmc__cut_symbols_##isa, stream
#else
#define LMC__GRIDS(isa, look_up, stream) LMC__SCALAR_GRIDS
#endif

static const lmc__kernels lmc__kernels_scalar = {
    LMC_TIER_SCALAR,           lmc__crc32c_scalar,     lmc__split_scalar,
    lmc__join_scalar,          lmc__split_root_strips, lmc__join_root_strips,
    lmc__is_constant_scalar,   lmc__map_scalar,        lmc__partition_scalar,
    lmc__merge_scalar,         lmc__flatten_scalar,    lmc__unflatten_scalar,
    lmc__count_ones_scalar,    lmc__fold_scalar,       lmc__unfold_scalar,
    lmc__count_classes_scalar, lmc__group_scalar,      lmc__ungroup_scalar,
    LMC__SCALAR_GRIDS};
#if LMC__NEON
static const lmc__kernels lmc__kernels_neon = {/* with the CRC-32 instructions */
                                               LMC_TIER_NEON,
                                               lmc__crc32c_neon,
                                               lmc__split_neon,
                                               lmc__join_neon,
                                               lmc__split_root_strips,
                                               lmc__join_root_strips,
                                               lmc__is_constant_scalar,
                                               lmc__map_neon,
                                               lmc__partition_neon,
                                               lmc__merge_neon,
                                               lmc__flatten_neon,
                                               lmc__unflatten_neon,
                                               lmc__count_ones_neon,
                                               lmc__fold_neon,
                                               lmc__unfold_neon,
                                               lmc__count_classes_neon,
                                               lmc__group_neon,
                                               lmc__ungroup_neon,
                                               LMC__GRIDS(neon, lmc__look_up_scalar,
                                                          lmc__stream_scalar)};
static const lmc__kernels lmc__kernels_neon_only = {
    LMC_TIER_NEON,
    lmc__crc32c_scalar,
    lmc__split_neon,
    lmc__join_neon,
    lmc__split_root_strips,
    lmc__join_root_strips,
    lmc__is_constant_scalar,
    lmc__map_neon,
    lmc__partition_neon,
    lmc__merge_neon,
    lmc__flatten_neon,
    lmc__unflatten_neon,
    lmc__count_ones_neon,
    lmc__fold_neon,
    lmc__unfold_neon,
    lmc__count_classes_neon,
    lmc__group_neon,
    lmc__ungroup_neon,
    LMC__GRIDS(neon, lmc__look_up_scalar, lmc__stream_scalar)};
#endif
#if LMC__SIMDE
/* The kernels that won when measured (bench/instructions.md: instructions on ppc64le and 32-bit
 * Arm, time on wasm32): partition takes 0.2 to 0.5 of the scalar one, merge 0.3 to 0.9, flatten 0.6
 * to 1, unflatten of two planes 0.3 to 0.6, of five 0.9 to 1.2. Split and join do not: of elements
 * of two bytes they take up to three times as long, for compilers turn the scalar loops into vector
 * code by themselves. */
static const lmc__kernels lmc__kernels_simde = {LMC_TIER_SIMDE,          lmc__crc32c_scalar,
                                                lmc__split_scalar,       lmc__join_scalar,
                                                lmc__split_root_strips,  lmc__join_root_strips,
                                                lmc__is_constant_scalar, lmc__map_scalar,
                                                lmc__partition_avx2,     lmc__merge_simde,
                                                lmc__flatten_avx2,       lmc__unflatten_avx2,
                                                lmc__count_ones_scalar,  lmc__fold_avx2,
                                                lmc__unfold_avx2,        lmc__count_classes_scalar,
                                                lmc__group_scalar,       lmc__ungroup_scalar,
                                                LMC__SCALAR_GRIDS};
#endif
#if LMC__X86
static const lmc__kernels lmc__kernels_avx2 = {
    LMC_TIER_AVX2,
    lmc__crc32c_avx2,
    lmc__split_avx2,
    lmc__join_avx2,
    lmc__split_root_avx2,
    lmc__join_root_avx2,
    lmc__is_constant_scalar,
    lmc__map_avx2,
    lmc__partition_avx2,
    lmc__merge_avx2,
    lmc__flatten_avx2,
    lmc__unflatten_avx2,
    lmc__count_ones_avx2,
    lmc__fold_avx2,
    lmc__unfold_avx2,
    lmc__count_classes_avx2,
    lmc__group_avx2,
    lmc__ungroup_avx2,
    LMC__GRIDS(avx2, lmc__look_up_scalar, lmc__stream_avx2)};
static const lmc__kernels lmc__kernels_avx512 = {
    LMC_TIER_AVX512,
    lmc__crc32c_avx512,
    lmc__split_avx512,
    lmc__join_avx2,
    lmc__split_root_avx512,
    lmc__join_root_avx512,
    lmc__is_constant_scalar,
    lmc__map_avx512,
    lmc__partition_avx512,
    lmc__merge_avx512,
    lmc__flatten_avx512,
    lmc__unflatten_avx512,
    lmc__count_ones_avx512,
    lmc__fold_avx512,
    lmc__unfold_avx512,
    lmc__count_classes_avx512,
    lmc__group_avx512,
    lmc__ungroup_avx512,
    LMC__GRIDS(avx512, lmc__look_up_avx512, lmc__stream_avx2)};
#endif

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

static const struct {
    const char *name;
    uint8_t bits, width, is_float;
} lmc__dtypes[LMC_DTYPE_COUNT] = {
    {"AUTO", 8, 1, 0},    {"BOOL", 8, 1, 0},    {"F4", 4, 1, 0},          {"F6_E2M3", 6, 1, 0},
    {"F6_E3M2", 6, 1, 0}, {"U8", 8, 1, 0},      {"I8", 8, 1, 0},          {"F8_E5M2", 8, 1, 0},
    {"F8_E4M3", 8, 1, 0}, {"F8_E8M0", 8, 1, 0}, {"F8_E4M3FNUZ", 8, 1, 0}, {"F8_E5M2FNUZ", 8, 1, 0},
    {"I16", 16, 2, 0},    {"U16", 16, 2, 0},    {"F16", 16, 2, 1},        {"BF16", 16, 2, 1},
    {"I32", 32, 4, 0},    {"U32", 32, 4, 0},    {"F32", 32, 4, 1},        {"C64", 64, 4, 1},
    {"F64", 64, 8, 1},    {"I64", 64, 8, 0},    {"U64", 64, 8, 0}};

LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].name : NULL;
}

LMC_API enum lmc_dtype lmc_find_dtype(const char *name)
{
    int i;
    for (i = 1; i < LMC_DTYPE_COUNT; i++)
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

/* == codec/half.h ================================================================================= */

/* F32 to BF16, to nearest, ties to even; NaN stays NaN. */
LMC__INLINE unsigned lmc__to_bf16(uint32_t v)
{
    if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40;
    return (v + 0x7FFF + (v >> 16 & 1)) >> 16;
}

/* F32 to F16, likewise. */
LMC__INLINE unsigned lmc__to_f16(uint32_t v)
{
    const unsigned sign = v >> 16 & 0x8000;
    const uint32_t magnitude = v & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00 | (magnitude >> 13 & 0x3FF);
    if (magnitude >= 0x47800000) return sign | 0x7C00; /* 2^16 and more */
    if (magnitude >= 0x38800000) /* 2^-14 and more: exponents differ by 112; the carry may reach
                                    infinity, as it should */
        return sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13);
    if (magnitude < 0x33000000) return sign; /* below 2^-25 */
    {
        const unsigned shift = 126 - (magnitude >> 23); /* 14 .. 24: the units of 2^-24 */
        const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000,
                       half = (uint32_t)1 << (shift - 1);
        return sign | ((mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
    }
}

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

/* == codec/tree.h ================================================================================= */

/* spec 8.4; python3 spec/frozen_trees.py --c */
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

/* All bytes by (number of one bits, value); python3: sorted(range(256), key=lambda v:
 * (bin(v).count("1"), v)) */
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
    unsigned escape;                     /* index of the escape leaf; n_leaves if there is none */
    uint16_t first[LMC__MAX_LENGTH + 2]; /* first[L]: number of leaves shorter than L */
    uint16_t start[LMC__MAX_LENGTH + 2]; /* start[L]: their share of the code space of 2^15 */
    uint8_t length[256];                 /* of leaf i */
    uint8_t symbol[256];                 /* of leaf i; after the leaves: all other symbols */
    uint8_t rank[256]; /* the inverse: symbols without a code have ranks from the escape's on */
} lmc__tree;

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

/* Number of leaves that start below x of the code space, where x is the border of a node. */
LMC__INLINE unsigned lmc__tree_leaves_below(const lmc__tree *tree, unsigned x)
{
    unsigned length = 1;
    while (tree->start[length + 1] <= x && length < LMC__MAX_LENGTH) length++;
    return tree->first[length] + ((x - tree->start[length]) >> (LMC__MAX_LENGTH - length));
}

/* Where an inner node, which owns leaves [a, b), parts. */
typedef struct lmc__split {
    unsigned half, middle;           /* of the code space, of the leaves */
    int is_left_leaf, is_right_leaf; /* these sides need no list */
} lmc__split;

static void lmc__set_split(const lmc__tree *tree, unsigned depth, unsigned x, unsigned a,
                           unsigned b, lmc__split *split)
{
    split->half = x + (1u << (LMC__MAX_LENGTH - 1 - depth));
    split->middle = lmc__tree_leaves_below(tree, split->half);
    split->is_left_leaf = split->middle - a == 1 && a != tree->escape;
    split->is_right_leaf = b - split->middle == 1 && split->middle != tree->escape;
}

/* Leaves [a, b) at depth d: the D of a flat node (spec 8.2, case 4), or 0. */
LMC__INLINE unsigned lmc__tree_flat_depth(const lmc__tree *tree, unsigned a, unsigned b,
                                          unsigned depth)
{
    unsigned d = tree->length[a] - depth;
    return b <= tree->escape && tree->length[b - 1] == tree->length[a] && d >= 2 &&
                   d <= LMC__MAX_FLAT
               ? d
               : 0;
}

/* symbol[0, n_leaves) is set: complete symbol and rank. */
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

/* What is coded are the bytes xor flip: 0xFF for masks of mostly ones. Without ranks, which only
 * encoders need. */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip)
{
    unsigned counts[LMC__MAX_LENGTH + 1], i;
    counts[0] = 0;
    for (i = 0; i < LMC__MAX_LENGTH; i++) counts[i + 1] = lmc__frozen_counts[level][i];
    lmc__tree_set_counts(tree, counts);
    tree->escape = 256;
    for (i = 0; i < 256; i++) tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);
}

/* lengths: of the codes of symbols [first, last] (0: none); escape_length (0: no escape). Builds
 * the tree, but for what only encoders need, see lmc__tree_set_ranks. Returns 0 if it is not one
 * (spec 8.1). */
static int lmc__tree_set_lengths(lmc__tree *tree, const uint8_t *lengths, unsigned first,
                                 unsigned last, unsigned escape_length)
{
    unsigned counts[LMC__MAX_LENGTH + 1], next[LMC__MAX_LENGTH + 1], length, s, kraft = 0, n = 0;
    memset(counts, 0, sizeof counts);
    for (s = first; s <= last; s++) counts[lengths[s - first]]++;
    counts[0] = 0;
    if (escape_length) counts[escape_length]++;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) {
        kraft += counts[length] << (LMC__MAX_LENGTH - length);
        n += counts[length];
        if (escape_length && length > escape_length && counts[length]) return 0;
    }
    if (n < 2 || n > 256 || kraft != 1u << LMC__MAX_LENGTH) return 0;
    lmc__tree_set_counts(tree, counts);
    tree->escape = escape_length ? n - 1 : n;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) next[length] = tree->first[length];
    for (s = first; s <= last; s++)
        if (lengths[s - first]) tree->symbol[next[lengths[s - first]]++] = (uint8_t)s;
    return 1;
}

/* == codec/workspace.h ============================================================================ */

/* -- 8.3 workspace --
 * A stack of lists. Sizes (n elements, w <= 8 planes), encoding and decoding:
 *   planes      w lists of n, or a list for each class in place of one; with joint coding two
 *               strips in place of one of them
 *   spares      trees need two buffers that take turns: one list of n; encoding, a second one for
 *               the top plane, which is partitioned
 *               while the others wait, and n/8 for that root's mask
 *   masks       decoding a list of m elements keeps the nested masks on the path from root to node,
 *               at most 15 of m/8 bytes,
 *               and while one is made, a spare of m/8 and what the list of its m/8 bytes needs in
 *               turn; the top plane's root mask stays
 *               until the block's end. Encoding keeps three for each nesting at most.
 *   sample      its planes; to plan a delta, two samples of whole elements and their planes: in the
 *               same place, before
 *   trees       one for each nesting, and the counts of the sample */

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

/* How to code a plane as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* symbols */
    int is_one_symbol;      /* that was counted: the plane may be constant */
    uint64_t bits;          /* that the plane takes, about */
} lmc__plan;

/* What a sample says of the residuals of one key or class: counted by magnitude, 0 .. 15 one by
 * one, then two buckets for each octave. */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint32_t n;
    uint16_t magnitudes[LMC__MAGNITUDES]; /* of at most 8192 elements */
} lmc__key_counts;

typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1];
    lmc__tree root_tree;
    uint32_t counts[8][256];
    lmc__plan plans[8], joint_plan;
    uint32_t wide[4][1024]; /* of lmc__count_wide */
    lmc__key_counts keys[256], merged;
} lmc__scratch;

/* A block of more than 8192 elements is sampled: it is cut into 128 equal steps, and 64 elements
 * are taken of each, at a place that changes from one to the next, so that rows of a power of two
 * elements are not sampled in the same columns only. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

/* Mask stack for a list of n at a nesting. */
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

static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out, *end; /* of the payload: what would pass the end is not worth coding */
} lmc__encoder;

static int lmc__is_workspace(size_t ws_size, size_t n)
{
    size_t needed = lmc_workspace_size(n);
    return needed != 0 && ws_size >= needed;
}

/* == codec/plan.h ================================================================================= */

/* log2(v) * 65536 for v >= 1, within 8; the same on every machine. Between the entries of the
 * table: straight lines. */
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
        return (exponent << 16) +
               table[(v << (6 - exponent)) - 64]; /* most counts of a sample: between no entries */
    mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent); /* 65536 .. 131071 */
    i = (mantissa >> 10) & 63;
    fraction = mantissa & 1023;
    below = table[i];
    return (exponent << 16) + below + (((table[i + 1] - below) * fraction + 512) >> 10);
}

/* total * log2(total) - sum of counts * log2(counts): the order-0 information of counts, in bits,
 * rounded down. */
static uint64_t lmc__entropy(const uint32_t counts[256], uint32_t total)
{
    uint64_t bits = (uint64_t)total * lmc__log2(total), symbols = 0;
    int s;
    for (s = 0; s < 256; s++)
        if (counts[s]) symbols += (uint64_t)counts[s] * lmc__log2(counts[s]);
    return bits > symbols ? (bits - symbols) >> 16 : 0;
}

/* Huffman code lengths of weights[0, n) in descending order, n >= 2, at most LMC__MAX_LENGTH:
 * lengths ascend. Two queues (van Leeuwen, 1976): leaves from the lightest up, and the sums made so
 * far, which come in ascending order. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n)
{
    uint32_t sum[256]; /* inner nodes, in the order they are made; node i has index n + i */
    uint16_t parent[512];
    uint8_t depth[256]; /* of inner nodes */
    unsigned leaf = n, next = 0, made, i, kraft = 0;
    const unsigned one = 1u << LMC__MAX_LENGTH;
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
    depth[n - 2] = 0;
    for (i = n - 2; i-- > 0;)
        depth[i] = (uint8_t)(depth[parent[n + i]] + 1); /* a parent is made after its children */
    for (i = 0; i < n; i++) {
        lengths[i] = (uint8_t)lmc__min(depth[parent[i]] + 1u, LMC__MAX_LENGTH);
        kraft += one >> lengths[i];
    }
    /* Cut lengths took too much of the code space: lengthen the lightest that can be, then give
     * back what is left over. */
    for (i = n; kraft > one;) {
        if (lengths[i - 1] == LMC__MAX_LENGTH) {
            i--;
            continue;
        }
        lengths[i - 1]++;
        kraft -= one >> lengths[i - 1];
    }
    for (i = 0; i < n && kraft < one; i++)
        while (lengths[i] > 1 && kraft + (one >> lengths[i]) <= one) {
            kraft += one >> lengths[i];
            lengths[i]--;
        }
    for (i = 1; i < n; i++) { /* the repair can break the order by a step or two */
        uint8_t length = lengths[i];
        unsigned j = i;
        for (; j > 0 && lengths[j - 1] > length; j--) lengths[j] = lengths[j - 1];
        lengths[j] = length;
    }
}

/* The counts of weights rise to a peak and fall again: taking the smaller of both ends all but
 * sorts them. */
static void lmc__sort_descending(uint32_t *v, unsigned n)
{
    uint32_t sorted[256];
    unsigned first = 0, last = n - 1, gap, i;
    for (i = n; i > 0;) sorted[--i] = v[first] < v[last] ? v[first++] : v[last--];
    for (gap = n > 40 ? 121 : 1; gap > 0; gap = gap / 3) /* Shell's sort; gaps by Knuth */
        for (i = gap; i < n; i++) {
            uint32_t x = sorted[i];
            unsigned j = i;
            for (; j >= gap && sorted[j - gap] < x; j -= gap) sorted[j] = sorted[j - gap];
            sorted[j] = x;
        }
    memcpy(v, sorted, n * sizeof *v);
}

/* What a plane's counts say. */
enum lmc__choice {
    LMC__CHOOSE_RAW,
    LMC__CHOOSE_CONSTANT,
    LMC__CHOOSE_TREE,
    LMC__CHOOSE_PACKED /* by joint coding only */
};

/* A tree must save 1/LMC__MIN_SAVING of the plane, or raw is chosen: it decodes at the speed of a
 * copy. */
#define LMC__MIN_SAVING 200u

static unsigned lmc__count_symbols(const uint32_t counts[256])
{
    unsigned n = 0, s;
    for (s = 0; s < 256; s++) n += counts[s] != 0;
    return n;
}

/* Not worth a tree. For each symbol 1 / (2 ln 2) of a bit is added, about 6/8: by that a sample's
 * entropy is too low (Miller, 1955). With 7/8, planes near the border count as raw, too: two
 * standard deviations for 2048 elements of 256 symbols. */
static int lmc__is_raw(const uint32_t counts[256], uint32_t total, unsigned eighths)
{
    return lmc__entropy(counts, total) + (lmc__count_symbols(counts) - 1) * eighths / 8 >=
           (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
}

/* Choose how to code n elements of which `total`, a sample or all of them, were counted. CONSTANT
 * means: the sample is. The tree: Huffman lengths over the counted symbols; the rarest go to the
 * escape as long as that costs less than a 512th of a bit per element (fewer nodes to walk), as
 * does every symbol that a sample did not see. */
static enum lmc__choice lmc__choose_plane(lmc__plan *plan, const uint32_t counts[256],
                                          uint32_t total, size_t n)
{
    uint32_t order[256]; /* count << 8 | 255 - symbol; most frequent first, then by symbol */
    uint32_t weights[257], escaped = 0;
    uint8_t lengths[257];
    uint64_t bits = 0, escaped_log = 0;
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

    /* Escaping the symbols from rank i on costs: 8 bits each, less the information of which one of
     * them it is. */
    n_kept = n_symbols;
    for (i = n_symbols - 1; i >= 1; i--) {
        const uint32_t count = order[i] >> 8, with = escaped + count;
        const uint64_t with_log = escaped_log + (uint64_t)count * lmc__log2(count);
        uint64_t loss =
            ((uint64_t)with * (8u << 16) + with_log - (uint64_t)with * lmc__log2(with)) >>
            8; /* bits / 256 */
        if (2 * loss > (uint64_t)total + ((uint64_t)(n_symbols - i) << 11))
            break; /* a header field is worth 4 bits */
        escaped = with;
        escaped_log = with_log;
        n_kept = i;
    }
    has_escape = n_kept < n_symbols || (sampled && n_symbols < 256) || n_symbols == 1;
    n_leaves = n_kept + (has_escape ? 1u : 0u);
    for (i = 0; i < n_kept; i++) weights[i] = order[i] >> 8;
    if (has_escape) {
        uint32_t w = escaped ? escaped : 1;
        for (i = n_kept; i > 0 && weights[i - 1] < w; i--) weights[i] = weights[i - 1];
        weights[i] = w;
    }
    lmc__huffman_lengths(lengths, weights, n_leaves);

    /* The escape is the last leaf, whatever its weight: the lengths stay the same set. */
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
    bits += n_symbols; /* the sample's luck, twice: its counts look more skewed than they are, and
                          the code fits them, not the rest */
    if (bits >= enough) return LMC__CHOOSE_RAW;
    plan->bits = bits * n / total + 4 * (uint64_t)(plan->last - plan->first + 1);
    return LMC__CHOOSE_TREE;
}

/* == codec/put_list.h ============================================================================= */

static int lmc__put_node(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                         unsigned b, uint8_t *list, uint8_t *spare, size_t n);

/* A mask is worth nesting if that is likely to save 24 bytes and a hundredth of it: a byte saved
 * then costs some 30 cycles of decoding, for 9 nodes or more and the mask's bytes. What a frozen
 * tree adds to the entropy is counted as a 200th. */
static int lmc__is_worth_nesting(size_t n, size_t ones)
{
    const uint64_t information =
        (uint64_t)n * lmc__log2((uint32_t)n) -
        (uint64_t)ones * lmc__log2((uint32_t)(ones ? ones : 1)) -
        (uint64_t)(n - ones) * lmc__log2((uint32_t)(n > ones ? n - ones : 1));
    return (information >> 16) + 8 * 24 + n / 100 + n / 200 < n;
}

/* The level (spec 8.4) for masks whose rarer bit is `ones` of n. The first two borders are where
 * the costs of the trees are equal; behind them levels are 2^-(L / 2 + 1), and the nearest in the
 * logarithm is taken. */
static unsigned lmc__choose_level(size_t ones, size_t n)
{
    static const uint16_t border[LMC__FROZEN_LEVELS - 1] = {25690, 20289, 13777, 9742, 6889,
                                                            4871,  3444,  2436,  1722};
    unsigned level = 0;
    while (level < LMC__FROZEN_LEVELS - 1 && (uint64_t)ones << 16 < (uint64_t)n * border[level])
        level++;
    return level;
}

/* A mask of n bits, `ones` of them set, as mode byte and code, to e->out; it may stand at e->out +
 * 1 already. Returns 0 if there is no room. */
static int lmc__put_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                         size_t ones)
{
    const size_t size = (n + 7) / 8, rarer = lmc__min(ones, n - ones);
    uint8_t *const mode = e->out;
    if (lmc__is_worth_nesting(n, ones)) {
        const unsigned polarity = ones > n - ones, level = lmc__choose_level(rarer, n);
        lmc__tree *tree = &e->scratch->trees[nesting + 1];
        uint8_t *const end = e->end, *const top = e->stack.top;
        uint8_t *list = lmc__push_list(&e->stack, size), *spare = lmc__push_list(&e->stack, size);
        uint8_t *code = lmc__push_list(&e->stack, size);
        size_t coded = size;
        if (code) {
            unsigned i;
            lmc__tree_set_frozen(tree, level, polarity ? 0xFF : 0);
            for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
            e->k->map(list, mask, size, tree->rank);
            e->out = code;
            e->end = code + size - 1; /* it must save a byte */
            if (lmc__put_node(e, nesting + 1, 0, 0, 0, tree->n_leaves, list, spare, size))
                coded = (size_t)(e->out - code);
        }
        e->end = end;
        e->out = mode;
        e->stack.top = top;
        if (coded < size) {
            if (coded + 1 > (size_t)(end - mode)) return 0;
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

/* The same where masks of so few bits and so deep have no mode byte. */
static int lmc__put_list_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                              size_t ones)
{
    const size_t row = (n + 7) / 8;
    if (n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING)
        return lmc__put_mask(e, nesting, mask, n, ones);
    if (row > (size_t)(e->end - e->out)) return 0;
    if (mask != e->out) memcpy(e->out, mask, row);
    e->out += row;
    return 1;
}

/* What is left of an inner node that is partitioned: its mask, which may lie at e->out already, and
 * the children; left and right are the two lists, each with room for n. Returns 0 if there is no
 * room. */
static int lmc__put_sides(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                          unsigned b, const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    uint8_t *const top = e->stack.top;
    lmc__split split;
    lmc__set_split(&e->scratch->trees[nesting], depth, x, a, b, &split);
    if (!lmc__put_list_mask(e, nesting, mask, n, n_right)) return 0;
    e->stack.top = top;
    /* The left child works in place, with what is behind the right list as its spare; then its room
     * is the right child's spare. */
    return lmc__put_node(e, nesting, depth + 1, x, a, split.middle, left, right + n_right,
                         n - n_right) &&
           lmc__put_node(e, nesting, depth + 1, split.half, split.middle, b, right, left, n_right);
}

/* Node(depth, x) of the tree of this nesting, which owns leaves [a, b); list: ranks of its n
 * elements, overwritten; spare: a list of n. Returns 0 if there is no room. */
static int lmc__put_node(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                         unsigned b, uint8_t *list, uint8_t *spare, size_t n)
{
    const lmc__tree *tree = &e->scratch->trees[nesting];
    const size_t room = (size_t)(e->end - e->out), row = (n + 7) / 8;
    unsigned flat, has_mode;
    size_t n_right;
    uint8_t *mask, *const top = e->stack.top;
    lmc__split split;
    int fits;

    if (n == 0 || (b - a == 1 && a != tree->escape)) return 1;
    if (b - a == 1) {
        if (n > room) return 0;
        e->k->map(e->out, list, n, tree->symbol);
        e->out += n;
        return 1;
    }
    flat = lmc__tree_flat_depth(tree, a, b, depth);
    if (flat) {
        if (flat * row > room) return 0;
        e->k->flatten(e->out, list, n, a, flat);
        e->out += flat * row;
        return 1;
    }
    lmc__set_split(tree, depth, x, a, b, &split);
    has_mode = n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
    mask = e->out + has_mode;
    if (has_mode + row > room) { /* it may yet fit if it is nested */
        if (!has_mode || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, split.is_left_leaf ? NULL : list,
                              split.is_right_leaf ? NULL : spare, list, n, split.middle);
    fits = lmc__put_sides(e, nesting, depth, x, a, b, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* The header of a tree (spec 8.1). Returns 0 if there is no room. */
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

static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* One plane of n elements (spec 8), as the plan says; row and spare are lists and are overwritten.
 * Returns 0 if there is no room. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, 0, 0, 0, 0, tree->n_leaves, row, spare, n);
}

/* The same for a plane that has been mapped by e->scratch->root_tree and partitioned. */
static int lmc__put_root(lmc__encoder *e, const lmc__plan *plan, const lmc__parted *root,
                         uint8_t *row, uint8_t *spare, size_t n)
{
    lmc__tree *tree = &e->scratch->trees[0];
    *tree = e->scratch->root_tree;
    return lmc__put_tree_header(e, plan) &&
           lmc__put_sides(e, 0, 0, 0, 0, tree->n_leaves, root->mask, row, spare, n, root->n_right);
}

/* == codec/get_list.h ============================================================================= */

typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end;
    lmc__streaming streaming;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                     unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* The unused bits of the last of size bytes that hold n bits are zero. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* A mask of n > 0 bits: *mask points into the input, or to the stack. Invariant: whatever the input
 * says, mask has n bits and no others, so its number of ones is at most n. */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
    }
    if (mode == 0) {
        LMC__CHECK((size_t)(d->end - d->in) >= size, LMC_ERR_CORRUPT);
        *mask = d->in;
        d->in += size;
    } else {
        lmc__tree *tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS, LMC_ERR_CORRUPT);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, nesting + 1, 0, 0, 0, tree->n_leaves, list, spare, size));
        d->stack.top = spare; /* the list stays for as long as its node needs it */
        *mask = list;
    }
    LMC__CHECK(lmc__is_tail_clear(*mask, size, n), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* The children of Node(depth, x), which owns leaves [a, b) and is neither leaf nor flat. list and
 * spare: lists of n; the sides and, if it was nested, the mask are in spare and on the stack, list
 * is free again. */
static enum lmc_status lmc__get_sides(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                      unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                      size_t n, lmc__merged *sides)
{
    const lmc__tree *tree = &d->scratch->trees[nesting];
    size_t n_right;
    lmc__split split;
    lmc__set_split(tree, depth, x, a, b, &split);
    LMC__TRY(lmc__get_mask(d, nesting, n, &sides->mask));
    n_right = d->k->count_ones(sides->mask, (n + 7) / 8);
    sides->left.list = sides->right.list = NULL;
    sides->left.value = sides->right.value = 0;
    if (split.is_left_leaf) sides->left.value = tree->symbol[a];
    else {
        sides->left.list = spare;
        LMC__TRY(
            lmc__get_node(d, nesting, depth + 1, x, a, split.middle, spare, list, n - n_right));
    }
    if (split.is_right_leaf) sides->right.value = tree->symbol[split.middle];
    else {
        sides->right.list = spare + (n - n_right);
        LMC__TRY(lmc__get_node(d, nesting, depth + 1, split.half, split.middle, b,
                               spare + (n - n_right), list, n_right));
    }
    return LMC_OK;
}

/* Node(depth, x), which owns leaves [a, b), to list; spare: a list of n.
 * Safety: every read of input is preceded by one comparison with what is left of it; nothing read
 * from the input is used as an address or a length, but the number of ones of a mask of n bits,
 * which is at most n. Recursion: at most 15 deep. */
static enum lmc_status lmc__get_node(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                     unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                     size_t n)
{
    const lmc__tree *tree = &d->scratch->trees[nesting];
    const size_t row = (n + 7) / 8;
    uint8_t *const top = d->stack.top;
    lmc__merged sides;
    unsigned flat;

    if (n == 0) return LMC_OK;
    if (b - a == 1) {
        if (a != tree->escape) {
            memset(list, tree->symbol[a], n);
            return LMC_OK;
        }
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        memcpy(list, d->in, n);
        d->in += n;
        return LMC_OK;
    }
    flat = lmc__tree_flat_depth(tree, a, b, depth);
    if (flat) {
        unsigned i;
        LMC__CHECK((size_t)(d->end - d->in) >= flat * row, LMC_ERR_CORRUPT);
        for (i = 0; i < flat; i++)
            LMC__CHECK(lmc__is_tail_clear(d->in + i * row, row, n), LMC_ERR_CORRUPT);
        d->k->unflatten(list, d->in, n, tree->symbol + a, flat);
        d->in += flat * row;
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, nesting, depth, x, a, b, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* A plane that is coded as a tree (d->in is behind its mode byte): to list or, where its root is a
 * merge, to *root, whose sides stay in spare and on the stack. list and spare: lists of n. */
static enum lmc_status lmc__get_tree(lmc__decoder *d, int has_escape, uint8_t *list, uint8_t *spare,
                                     size_t n, lmc__merged *root)
{
    lmc__tree *tree = &d->scratch->trees[0];
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    size_t size;
    LMC__CHECK(d->end - d->in >= 2, LMC_ERR_CORRUPT);
    first = d->in[0];
    count = d->in[1] + 1u;
    d->in += 2;
    n_fields = count + (has_escape ? 1 : 0);
    size = (n_fields + 1) / 2;
    LMC__CHECK(first + count <= 256 && (size_t)(d->end - d->in) >= size, LMC_ERR_CORRUPT);
    LMC__CHECK(n_fields % 2 == 0 || d->in[size - 1] >> 4 == 0, LMC_ERR_CORRUPT);
    for (i = 0; i < count; i++) lengths[i] = d->in[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = d->in[count / 2] >> 4 * (count & 1) & 15;
        LMC__CHECK(escape_length, LMC_ERR_CORRUPT);
    }
    LMC__CHECK(lengths[0] && lengths[count - 1], LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__tree_set_lengths(tree, lengths, first, first + count - 1, escape_length),
               LMC_ERR_CORRUPT);
    d->in += size;
    if (lmc__tree_flat_depth(tree, 0, tree->n_leaves, 0)) {
        root->mask = NULL;
        return lmc__get_node(d, 0, 0, 0, 0, tree->n_leaves, list, spare, n);
    }
    return lmc__get_sides(d, 0, 0, 0, 0, tree->n_leaves, list, spare, n, root);
}

/* A list of n > 0 bytes (spec 8); spare: a list of n. *side may lie in the input or on the stack.
 */
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
    if (mode == LMC__PLANE_RAW &&
        (size_t)(d->end - d->in) >= n + LMC__PAD) { /* a list where it lies */
        side->list = d->in;
        d->in += n;
        return LMC_OK;
    }
    side->list = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_RAW) {
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        memcpy(list, d->in, n);
        d->in += n;
        return LMC_OK;
    }
    top = d->stack.top;
    LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
    if (root.mask) d->k->merge(list, root.mask, n, root.left, root.right);
    d->stack.top = top;
    return LMC_OK;
}

/* == codec/sample.h =============================================================================== */

/* The element of n where the sample's run i starts: every fourth step, then the ones behind these,
 * and so on; so every quarter is a sample of the whole block, too. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step times 2^32 over the golden ratio: the top bits of its multiples are spread evenly
     * (Knuth, vol. 3, 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* Runs are fetched so far ahead, at most the 32 of a quarter: they lie where no hardware expects
 * them. */
#define LMC__SAMPLE_AHEAD 16u

typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    size_t n;           /* elements of them */
    size_t n_block;     /* elements of the block; if they are as many, they are all taken at once */
} lmc__sample;

/* Returns 0 if there is no room, which cannot happen: see lmc_workspace_size. */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    unsigned p;
    sample->n_block = n;
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    for (p = 0; p < width; p++)
        if ((sample->planes.row[p] = lmc__push_list(&e->stack, sample->n)) == NULL) return 0;
    return 1;
}

LMC__INLINE void lmc__fetch_run(const lmc__sample *sample, uint32_t i, const uint8_t *src,
                                unsigned width)
{
    const uint8_t *const run = src + lmc__sample_place(i, sample->n_block) * width;
    const size_t size = LMC__SAMPLE_RUN * width;
    size_t line;
    for (line = 0; line <= size; line += LMC__LINE) LMC__PREFETCH(run + lmc__min(line, size - 1));
}

/* Quarters [first, last) of the sample. Returns the number of elements. */
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

/* LMC_AUTO: width and rotation whose planes have the least order-0 information, by a sample; width
 * 1 if in doubt. */
static void lmc__guess_width(lmc__encoder *e, const uint8_t *src, size_t size, unsigned *width,
                             int *rotate)
{
    uint8_t *const top = e->stack.top;
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
            /* Samples of different size: compare bits per byte of input. A plane that is nearly
             * incompressible counts as raw. */
            for (p = 0; p < w; p++) {
                memset(e->scratch->counts[0], 0, sizeof e->scratch->counts[0]);
                lmc__count_bytes(e->scratch->counts[0], sample.planes.row[p], sample.n);
                bits += lmc__min64(lmc__entropy(e->scratch->counts[0], (uint32_t)total) + 128,
                                   total * 8);
            }
            e->stack.top = top;
            bits = (bits << 10) / (total * w);
            if (bits + (best >> 7) < best) { /* better by a 128th */
                best = bits;
                *width = w;
                *rotate = r;
            }
        }
    }
}

/* == codec/put_planes.h =========================================================================== */

/* What a block is checked against. */
typedef struct lmc__block_crcs {
    uint32_t content, base;
} lmc__block_crcs;

static void lmc__put_block_header(uint8_t *dst, unsigned coding, unsigned prediction,
                                  unsigned grouping, size_t n, size_t payload_size,
                                  lmc__block_crcs crcs, const lmc__kernels *k,
                                  lmc_position position)
{
    uint8_t place[8];
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)coding;
    dst[2] = (uint8_t)prediction;
    dst[3] = (uint8_t)grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)payload_size);
    lmc__store32(dst + 12, crcs.content);
    lmc__store32(dst + 16, crcs.base);
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    lmc__store32(dst + 20, k->crc32c(k->crc32c(0, place, 8), dst, 20));
}

static unsigned lmc__log2_width(unsigned width)
{
    return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

/* counts[0][v] = number of elements whose 10 top bits, after the rotation, are v. Four tables, as
 * for bytes. */
static void lmc__count_wide(uint32_t counts[4][1024], const uint8_t *src, size_t n, unsigned width,
                            int rotate)
{
    const unsigned shift = rotate ? 5 : 6;
    size_t i;
    memset(counts, 0, 4 * sizeof counts[0]);
    src += width - 2; /* the two top bytes: the bit that a rotation brings to their lower end is not
                         looked at */
    for (i = 0; i + 4 <= n; i += 4, src += 4 * width) {
        counts[0][lmc__load16(src) >> shift & 1023]++;
        counts[1][lmc__load16(src + width) >> shift & 1023]++;
        counts[2][lmc__load16(src + 2 * width) >> shift & 1023]++;
        counts[3][lmc__load16(src + 3 * width) >> shift & 1023]++;
    }
    for (; i < n; i++, src += width) counts[0][lmc__load16(src) >> shift & 1023]++;
    for (i = 0; i < 1024; i++) counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
}

/* Counts of the symbols with `extra` extra bits, less *offset, the lowest that occurs (0 if extra
 * is 0), from those with two. Returns 0 if they are not within 256. */
static int lmc__narrow_counts(uint32_t counts[256], unsigned *offset, const uint32_t wide[1024],
                              unsigned extra)
{
    const unsigned shift = 2 - extra;
    unsigned v, first = 0;
    memset(counts, 0, 256 * sizeof counts[0]);
    if (extra)
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

/* Joint coding of the two top planes (spec 7.4), where it takes fewer bits than the plans for them
 * say: then it changes those of the top plane. It pays where the mantissa's top bits depend on the
 * exponent: in the highest octaves of a bell curve, low values are more frequent than high ones.
 * scratch->wide: of lmc__count_wide. */
static void lmc__choose_joint(lmc__joint *joint, enum lmc__choice choice[8], lmc__scratch *scratch,
                              size_t n, unsigned width)
{
    const unsigned top = width - 1;
    uint64_t best = scratch->plans[top].bits + scratch->plans[top - 1].bits;
    unsigned extra, offset;
    for (extra = 1; extra <= 2; extra++) {
        lmc__plan *const plan = &scratch->joint_plan;
        uint64_t bits;
        if (!lmc__narrow_counts(scratch->counts[top], &offset, scratch->wide[0], extra)) return;
        if (lmc__choose_plane(plan, scratch->counts[top], (uint32_t)n, n) != LMC__CHOOSE_TREE)
            continue;
        bits = plan->bits + (8 - extra) * (uint64_t)n;
        if (bits >= best) continue;
        /* It must fit: with a header, and two bytes for each leaf, for a mask's mode and the last
         * of its bits. Else blocks of some hundred elements could end up stored. */
        if (plan->bits + 8 * (3 + 2 * (uint64_t)(plan->last - plan->first + 2)) > 8 * (uint64_t)n)
            continue;
        best = bits;
        lmc__set_joint(joint, extra, offset, n);
        scratch->plans[top] = *plan;
        choice[top] = LMC__CHOOSE_TREE;
        choice[top - 1] = LMC__CHOOSE_PACKED;
    }
}

/* Half of the sample is enough for so many different bytes: the codes of more depend on luck. */
#define LMC__SAMPLE_HALF_BELOW 32u

/* How to code each plane, by a sample; at LMC_LEVEL_MAX the top plane, which has most to gain, is
 * counted exactly. Returns 0 if there is no room for that, which cannot happen. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], const uint8_t *src,
                              size_t n, unsigned width, int rotate, enum lmc_level level,
                              lmc__joint *joint)
{
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, half, all;
    unsigned p, wants_all = 0;
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    half = lmc__take_sample(e->k, &sample, 0, 2, src, width, rotate);
    quarter = sample.n < n ? half / 2 : half;
    for (p = 0; p < width; p++) { /* most raw planes are found out by a quarter */
        e->scratch->plans[p].bits = 8 * (uint64_t)n;
        lmc__count_bytes(counts[p], sample.planes.row[p], quarter);
        choice[p] =
            lmc__is_raw(counts[p], (uint32_t)quarter, 7) ? LMC__CHOOSE_RAW : LMC__CHOOSE_TREE;
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        lmc__count_bytes(counts[p], sample.planes.row[p] + quarter, half - quarter);
        if (lmc__count_symbols(counts[p]) > LMC__SAMPLE_HALF_BELOW) wants_all |= 1u << p;
    }
    all = half + (wants_all ? lmc__take_sample(e->k, &sample, 2, 4, src, width, rotate) : 0);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + half, all - half);
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p],
                                      (uint32_t)(has_all ? all : half), n);
    }
    e->stack.top = top;
    if (level == LMC_LEVEL_MAX) {
        if (width == 1) { /* not rotated */
            memset(counts[0], 0, sizeof counts[0]);
            lmc__count_bytes(counts[0], src, n);
        } else {
            lmc__count_wide(e->scratch->wide, src, n, width, rotate);
            lmc__narrow_counts(counts[width - 1], &joint->offset, e->scratch->wide[0], 0);
        }
        choice[width - 1] =
            lmc__choose_plane(&e->scratch->plans[width - 1], counts[width - 1], (uint32_t)n, n);
        if (width > 1) lmc__choose_joint(joint, choice, e->scratch, n, width);
    }
    return 1;
}

/* The payload of a block in layout planes, if it is smaller than size bytes and than cap; else 0.
 * *crc, if that becomes known, and *has_crc is set. */
static size_t lmc__put_planes(lmc__encoder *e, uint8_t *dst, size_t cap, const uint8_t *src,
                              size_t n, unsigned width, int rotate, enum lmc_level level,
                              lmc__joint *joint, uint32_t *crc, int *has_crc)
{
    const size_t size = n * width;
    enum lmc__choice choice[8];
    lmc__planes planes;
    lmc__plan *const plans = e->scratch->plans;
    uint8_t *const spare = lmc__push_list(&e->stack, n), *root_spare = NULL;
    lmc__parted root; /* the topmost plane, if it is a tree */
    unsigned p, n_raw = 0, n_leading = 0;
    int has_root = 0;

    root.plane = width - 1;
    if (spare == NULL || !lmc__choose_planes(e, choice, src, n, width, rotate, level, joint))
        return 0;
    for (p = 0; p < width; p++) {
        if (choice[p] == LMC__CHOOSE_RAW) n_raw++;
        if (choice[p] == LMC__CHOOSE_RAW && n_leading == p) n_leading++;
    }
    if (n_raw == width) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, size - 1);
    if (joint->extra) {
        if (e->end - e->out < 2) return 0;
        lmc__store16(e->out, (uint16_t)joint->offset);
        e->out += 2;
    }
    if (n_leading * (n + 1) > (size_t)(e->end - e->out)) return 0;
    for (p = 0; p < width; p++) { /* leading raw planes have a place in dst already */
        planes.row[p] = p < n_leading ? e->out + p * (n + 1) + 1 : lmc__push_list(&e->stack, n);
        if (planes.row[p] == NULL) return 0;
    }
    if (choice[width - 1] == LMC__CHOOSE_TREE && !joint->extra && !plans[width - 1].is_one_symbol) {
        lmc__tree *tree = &e->scratch->root_tree;
        if (lmc__tree_set_plan(tree, &plans[width - 1]) &&
            !lmc__tree_flat_depth(tree, 0, tree->n_leaves, 0)) {
            lmc__split split;
            lmc__set_split(tree, 0, 0, 0, tree->n_leaves, &split);
            root.table = tree->rank;
            root.split = split.middle;
            root.mask = lmc__push_list(&e->stack, (n + 7) / 8);
            root.left = split.is_left_leaf ? NULL : planes.row[width - 1];
            root.right = root_spare = lmc__push_list(&e->stack, n);
            if (split.is_right_leaf) root.right = NULL;
            if (root.mask == NULL || root_spare == NULL) return 0;
            has_root = 1;
        }
    }
    *crc = e->k->split_root(e->k, &planes, has_root ? &root : NULL, src, n, width, rotate);
    *has_crc = 1;
    for (p = 0; p < width; p++) {
        uint8_t *const start = e->out, *const end = e->end;
        if (p < n_leading) {
            start[0] = LMC__PLANE_RAW;
            e->out += n + 1;
            continue;
        }
        if (choice[p] == LMC__CHOOSE_PACKED) { /* and the top plane's row becomes its symbols */
            if ((size_t)(end - start) < joint->packed_size) return 0;
            memset(start, 0, joint->packed_size);
            e->k->fold(planes.row[p + 1], start, planes.row[p + 1], planes.row[p], n, joint);
            e->out += joint->packed_size;
            continue;
        }
        if ((choice[p] == LMC__CHOOSE_CONSTANT ||
             (choice[p] == LMC__CHOOSE_TREE && plans[p].is_one_symbol)) &&
            e->k->is_constant(planes.row[p], n)) {
            if (end - start < 2) return 0;
            start[0] = LMC__PLANE_CONSTANT;
            start[1] = planes.row[p][0];
            e->out += 2;
            continue;
        }
        if (choice[p] == LMC__CHOOSE_TREE) {
            int fits;
            if ((size_t)(end - start) > n) e->end = start + n; /* longer than raw is no use */
            fits = has_root && p == root.plane
                       ? lmc__put_root(e, &plans[p], &root, planes.row[p], root_spare, n)
                       : lmc__put_tree(e, &plans[p], planes.row[p], spare, n);
            e->end = end;
            if (fits) continue;
            if (joint->extra && p == width - 1)
                return 0; /* see lmc__choose_joint: dst is too small */
            e->out = start;
            if (p == root.plane) has_root = 0;
            (void)e->k->split_root(e->k, &planes, has_root ? &root : NULL, src, n, width,
                                   rotate); /* rare: the row was overwritten, make it again */
        }
        if ((size_t)(end - start) < n + 1) return 0;
        start[0] = LMC__PLANE_RAW;
        memcpy(start + 1, planes.row[p], n);
        e->out += n + 1;
    }
    return (size_t)(e->out - dst);
}

/* == codec/put_delta.h ============================================================================ */

/* How to code a block against its prediction. */
typedef struct lmc__delta {
    lmc__grouping grouping;
    int subtract, sparse;
    uint64_t bits; /* that it takes, about */
    size_t worth;  /* bytes: if it turns out to take more, coding without the prediction may be
                      smaller */
} lmc__delta;

/* Classes: more of them make deltas smaller by 0 to 2 % and slower to decode by 10 to 20 %. */
#define LMC__DEFAULT_CLASSES 6u

/* Of each of the sample's runs, so many elements by default: classes by 2048 elements cost deltas
 * 0.2 to 0.5 % more than by all. */
#define LMC__DELTA_SAMPLE_RUN 16u

LMC__INLINE unsigned lmc__magnitude(uint64_t r)
{
    unsigned octave = 0;
    if (r < 16) return (unsigned)r;
#if defined(__GNUC__)
    octave = 63u - (unsigned)__builtin_clzll(r);
#else
    while (r >> octave > 1) octave++;
#endif
    return 16 + 2 * (octave - 4) + (unsigned)(r >> (octave - 1) & 1);
}

/* count * log2(count), by a table for the small ones. */
LMC__INLINE uint64_t lmc__count_log(const uint32_t logs[256], uint32_t count)
{
    return count < 256 ? logs[count] : (uint64_t)count * lmc__log2(count);
}

/* Bits that n elements of a class take, of which the sample's total had those counted: their
 * information without what lies within an octave, and a class's headers: two dozen bytes, and 6
 * bits for each of the 40 symbols or more that trees have. */
static uint64_t lmc__class_bits(const lmc__key_counts *counts, const uint32_t logs[256],
                                unsigned last, size_t n, size_t total)
{
    uint64_t bits = (uint64_t)counts->n * lmc__log2(counts->n ? counts->n : 1), magnitudes = 0;
    unsigned i, n_used = 0;
    for (i = 0; i <= last; i++) {
        magnitudes += lmc__count_log(logs, counts->magnitudes[i]);
        n_used += counts->magnitudes[i] != 0;
    }
    bits = bits > magnitudes ? bits - magnitudes : 0; /* at most 2^13 * 13 * 2^16 */
    return (bits * n / total >> 16) + 8 * 28 + 6 * (n_used < 40 ? 40 : n_used);
}

static void lmc__add_counts(lmc__key_counts *sum, const lmc__key_counts *counts, unsigned last)
{
    unsigned i;
    sum->n += counts->n;
    for (i = 0; i <= last; i++)
        sum->magnitudes[i] = (uint16_t)(sum->magnitudes[i] + counts->magnitudes[i]);
}

/* The classes for a sample of `total` elements of n: one for each key first, then neighbours are
 * merged that lose least by it, as long as that saves anything or there are too many classes. Sets
 * delta->grouping and delta->bits. */
static void lmc__choose_classes(lmc__scratch *scratch, lmc__delta *delta, const uint8_t *src,
                                const uint8_t *base, size_t total, size_t n, unsigned width,
                                int subtract, unsigned max_classes)
{
    lmc__key_counts *const keys = scratch->keys;
    uint64_t bits[256], saved[256],
        within = 0; /* of each class; by its merging with the next one (signed); within octaves */
    uint8_t first[256]; /* key of each class */
    uint32_t logs[256];
    unsigned n_classes = 0, last = 0, k, i;
    size_t at;
    for (k = 0; k < 256; k++) keys[k].n = 0;
    for (at = 0; at < total; at++) {
        const uint64_t b = lmc__load_element(base, at, width),
                       r = lmc__residual(lmc__load_element(src, at, width), b, width, subtract);
        const unsigned m = lmc__magnitude(r);
        lmc__key_counts *const counts = &keys[lmc__key(b, width)];
        if (counts->n++ == 0) memset(counts->magnitudes, 0, sizeof counts->magnitudes);
        counts->magnitudes[m]++;
        if (m >= 16) within += (m - 16) / 2 + 3;
        if (m > last) last = m;
    }
    logs[0] = 0;
    for (i = 1; i < 256; i++) logs[i] = i * lmc__log2(i);
    for (k = 0; k < 256; k++) {
        if (keys[k].n == 0) continue;
        if (n_classes != k) keys[n_classes] = keys[k];
        first[n_classes] = (uint8_t)k;
        bits[n_classes] = lmc__class_bits(&keys[n_classes], logs, last, n, total);
        n_classes++;
    }
#define LMC__SAVING(c)                                                                             \
    (scratch->merged = keys[c], lmc__add_counts(&scratch->merged, &keys[(c) + 1], last),           \
     bits[c] + bits[(c) + 1] - lmc__class_bits(&scratch->merged, logs, last, n, total))
    for (i = 0; i + 1 < n_classes; i++) saved[i] = LMC__SAVING(i);
    while (n_classes > 1) {
        unsigned best = 0;
        for (i = 1; i + 1 < n_classes; i++)
            if ((int64_t)saved[i] > (int64_t)saved[best]) best = i;
        if ((int64_t)saved[best] < 0 && n_classes <= max_classes) break;
        bits[best] = bits[best] + bits[best + 1] - saved[best];
        lmc__add_counts(&keys[best], &keys[best + 1], last);
        n_classes--;
        for (i = best + 1; i < n_classes; i++) {
            keys[i] = keys[i + 1];
            first[i] = first[i + 1];
            bits[i] = bits[i + 1];
            saved[i - 1] = saved[i];
        }
        if (best + 1 < n_classes) saved[best] = LMC__SAVING(best);
        if (best > 0) saved[best - 1] = LMC__SAVING(best - 1);
    }
#undef LMC__SAVING
    delta->grouping.n_classes = n_classes;
    delta->grouping.n_natural = 0;
    for (i = 1; i < n_classes; i++) delta->grouping.threshold[i - 1] = first[i];
    delta->subtract = subtract;
    delta->bits = within * n / total;
    for (i = 0; i < n_classes; i++) delta->bits += bits[i];
}

/* Bits that n elements take without a prediction, by a sample of `total` of them: those of their
 * planes. */
static uint64_t lmc__estimate_direct(lmc__encoder *e, const lmc__planes *rows, const uint8_t *src,
                                     size_t total, size_t n, unsigned width, int rotate)
{
    uint64_t bits = 0;
    unsigned p;
    e->k->split(rows, src, total, width, rotate);
    for (p = 0; p < width; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows->row[p], total);
        bits += lmc__min64(8 * (uint64_t)total, lmc__entropy(counts, (uint32_t)total) +
                                                    (lmc__count_symbols(counts) - 1) * 6 / 8);
    }
    return bits * n / total;
}

enum lmc__verdict { LMC__DIRECT, LMC__DELTA, LMC__EITHER };

/* How to code n elements against their prediction, and whether. */
static enum lmc__verdict lmc__plan_delta(lmc__encoder *e, lmc__delta *delta, const uint8_t *src,
                                         const uint8_t *base, size_t n, unsigned width, int rotate,
                                         enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    /* two samples and their planes take three lists of width * total, and the workspace has ten of
     * n */
    const size_t run = level == LMC_LEVEL_MAX && n >= 4 * LMC__SAMPLE_SIZE ? LMC__SAMPLE_RUN
                                                                           : LMC__DELTA_SAMPLE_RUN,
                 size = run * width;
    const int is_sampled = n > LMC__SAMPLE_SIZE;
    const size_t total = is_sampled ? run * LMC__SAMPLE_RUNS : n;
    const unsigned max_classes = level == LMC_LEVEL_MAX ? LMC__MAX_CLASSES : LMC__DEFAULT_CLASSES;
    uint8_t *const sample = lmc__push_list(&e->stack, is_sampled ? total * width : 0);
    uint8_t *const base_sample = lmc__push_list(&e->stack, is_sampled ? total * width : 0);
    const uint8_t *s = src, *b = base;
    uint64_t direct;
    lmc__planes rows;
    size_t i, n_zero = 0;
    unsigned p;
    for (p = 0; p < width; p++) rows.row[p] = lmc__push_list(&e->stack, total);
    if (!sample || !base_sample || !rows.row[width - 1]) return LMC__DIRECT; /* cannot happen */
    if (is_sampled) {
        s = sample;
        b = base_sample;
        for (i = 0; i < LMC__SAMPLE_RUNS; i++) {
            const size_t at = lmc__sample_place((uint32_t)i, n) * width;
            if (i + LMC__SAMPLE_AHEAD < LMC__SAMPLE_RUNS) {
                const size_t next = lmc__sample_place((uint32_t)(i + LMC__SAMPLE_AHEAD), n) * width;
                LMC__PREFETCH(src + next);
                LMC__PREFETCH(base + next);
            }
            memcpy(sample + i * size, src + at, size);
            memcpy(base_sample + i * size, base + at, size);
        }
    }
    direct = lmc__estimate_direct(e, &rows, s, total, n, width, rotate);
    lmc__choose_classes(e->scratch, delta, s, b, total, n, width, rotate, max_classes);
    if (!rotate || level == LMC_LEVEL_MAX) {
        lmc__delta other;
        lmc__choose_classes(e->scratch, &other, s, b, total, n, width, !rotate, max_classes);
        if (other.bits < delta->bits) *delta = other;
    }
    /* planes of residuals that are hopeless, and how many are zero */
    for (i = 0; i < total; i++) {
        const uint64_t r = lmc__residual(lmc__load_element(s, i, width),
                                         lmc__load_element(b, i, width), width, delta->subtract);
        n_zero += r == 0;
        for (p = 0; p < width; p++) rows.row[p][i] = (uint8_t)(r >> 8 * p);
    }
    for (p = 0; p + 1 < width && delta->grouping.n_classes > 1; p++) {
        uint32_t *const counts = e->scratch->counts[p];
        memset(counts, 0, sizeof e->scratch->counts[p]);
        lmc__count_bytes(counts, rows.row[p], total);
        if (!lmc__is_raw(counts, (uint32_t)total, 7)) break;
        delta->grouping.n_natural = p + 1;
    }
    /* Else every plane says again which elements are zero; of two bytes, only few have a second
     * one. */
    delta->sparse = width > 2 && n_zero > total / 2 && delta->grouping.n_natural == 0;
    e->stack.top = top;
    delta->worth = (size_t)((direct - direct / 8) / 8);
    if (level == LMC_LEVEL_MAX)
        return LMC__EITHER; /* whatever the sample says: never larger than without the prediction */
    if (delta->bits > direct + direct / 8) return LMC__DIRECT;
    return delta->bits < direct - direct / 8 ? LMC__DELTA : LMC__EITHER;
}

/* The residuals' lists; *counts: elements of each. If sparse, only those that are not zero, and
 * masks say which (to masks[c], lists). Returns the CRC of src. */
static uint32_t lmc__make_classes(lmc__encoder *e, const lmc__delta *delta,
                                  const lmc__classes *classes,
                                  uint8_t *const masks[LMC__MAX_CLASSES],
                                  size_t counts[LMC__MAX_CLASSES],
                                  const size_t n_of[LMC__MAX_CLASSES], const uint8_t *src,
                                  const uint8_t *base, size_t n, unsigned width)
{
    const uint32_t crc =
        e->k->group(e->k, classes, src, base, n, width, delta->subtract, &delta->grouping);
    unsigned c, p;
    for (c = 0; c < delta->grouping.n_classes; c++) {
        uint8_t *const mask = masks[c], *const *const row = classes->row[c];
        size_t at, i, m = 0;
        counts[c] = n_of[c];
        if (!delta->sparse) continue;
        memset(mask, 0, (n_of[c] + 7) / 8);
        for (i = 0; i < n_of[c]; i += 8) {
            const unsigned in_byte = (unsigned)lmc__min(8, n_of[c] - i);
            unsigned bits = 0;
            for (at = 0; at < in_byte; at++) {
                unsigned any = 0;
                for (p = 0; p < width; p++) any |= row[p][i + at];
                if (!any) continue;
                bits |= 1u << at;
                for (p = 0; p < width; p++) row[p][m] = row[p][i + at];
                m++;
            }
            mask[i / 8] = (uint8_t)bits;
        }
        counts[c] = m;
    }
    return crc;
}

/* How to code a list of n bytes: by a sample of it, or at level max by all of it. */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, enum lmc_level level)
{
    uint32_t *const counts = e->scratch->counts[0];
    uint8_t *const top = e->stack.top, *sample = NULL;
    enum lmc__choice choice;
    size_t total = n;
    if (level != LMC_LEVEL_MAX && n > 2 * LMC__SAMPLE_SIZE)
        sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) { /* gathered, for counting begins and ends with eight tables */
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
        choice = LMC__CHOOSE_RAW; /* short lists: by its header */
    return choice;
}

/* The payload of a block against its prediction, if it is smaller than size bytes and than cap;
 * else 0. */
static size_t lmc__put_delta(lmc__encoder *e, uint8_t *dst, size_t cap, const uint8_t *src,
                             const uint8_t *base, size_t n, unsigned width, const lmc__delta *delta,
                             enum lmc_level level, lmc__block_crcs *crcs)
{
    const unsigned n_classes = delta->grouping.n_classes, n_natural = delta->grouping.n_natural;
    uint8_t *const spare = lmc__push_list(&e->stack, n), *masks[LMC__MAX_CLASSES] = {NULL};
    size_t n_of[LMC__MAX_CLASSES], counts[LMC__MAX_CLASSES];
    lmc__plan *const plan = &e->scratch->plans[0];
    lmc__classes classes;
    unsigned c, p;
    if (!spare) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    if (n_classes - 1 + n_natural * n > (size_t)(e->end - e->out)) return 0;
    memcpy(e->out, delta->grouping.threshold, n_classes - 1);
    e->out += n_classes - 1;
    crcs->base = e->k->count_classes(e->k, n_of, base, n, width, &delta->grouping);
    for (c = 0; c < n_classes; c++) {
        for (p = n_natural; p < width; p++)
            if ((classes.row[c][p] = lmc__push_list(&e->stack, n_of[c])) == NULL) return 0;
        if (delta->sparse && (masks[c] = lmc__push_list(&e->stack, (n_of[c] + 7) / 8)) == NULL)
            return 0;
    }
    for (p = 0; p < n_natural; p++, e->out += n)
        classes.row[0][p] = e->out; /* natural planes are made in their place */
    crcs->content = lmc__make_classes(e, delta, &classes, masks, counts, n_of, src, base, n, width);
    for (c = 0; c < n_classes && delta->sparse; c++)
        if (n_of[c] != 0 && !lmc__put_list_mask(e, 0, masks[c], n_of[c], counts[c])) return 0;
    for (c = 0; c < n_classes; c++) {
        const size_t m = counts[c];
        if (m == 0) continue;
        for (p = n_natural; p < width; p++) {
            uint8_t *const start = e->out, *const end = e->end, *const row = classes.row[c][p];
            const enum lmc__choice choice = lmc__choose_list(e, plan, row, m, level);
            if ((choice == LMC__CHOOSE_CONSTANT || plan->is_one_symbol) &&
                e->k->is_constant(row, m)) {
                if (end - start < 2) return 0;
                start[0] = LMC__PLANE_CONSTANT;
                start[1] = row[0];
                e->out += 2;
                continue;
            }
            if (choice == LMC__CHOOSE_TREE) {
                int fits;
                if ((size_t)(end - start) > m) e->end = start + m; /* longer than raw is no use */
                fits = lmc__put_tree(e, plan, row, spare, m);
                e->end = end;
                if (fits) continue;
                e->out = start;
                (void)lmc__make_classes(e, delta, &classes, masks, counts, n_of, src, base, n,
                                        width); /* rare: the row was overwritten */
            }
            if ((size_t)(end - start) < m + 1) return 0;
            start[0] = LMC__PLANE_RAW;
            memcpy(start + 1, row, m);
            e->out += m + 1;
        }
    }
    return (size_t)(e->out - dst);
}

/* == codec/put_quantised.h ======================================================================== */

#define LMC__QUANTISED_HEADER 32u
enum { LMC__METHOD_LOG = 1, LMC__METHOD_SIGNED = 2, LMC__METHOD_TABLE = 4 };
#define LMC__MAX_LOW_BITS 8u
/* Elements that are quantised at once: their symbols and, of BF16, their F32 forms stay in the
 * first cache. */
#define LMC__QUANTISED_STRIP 1024u

struct lmc_quantizer {
    lmc_quantizer_info info;
    void *alloc_user;
    unsigned width;   /* of an element: 2 or 4 */
    int is_recovered; /* of elements that are quantised already: what it does not give back exactly
                         is coded without it */
    uint64_t n;       /* elements of the tensor */
    int is_predicted; /* scales by the second moment; else those of groups */
    lmc__grid grid;
    unsigned low_bits;
    unsigned table_size; /* 0: no table */
    uint16_t table[256]; /* symbol of each code; behind table_size: 0 */
    uint8_t
        *codes; /* of each symbol, if there is a table: grid's n_points (twice if signed), plus 1 */
    size_t n_codes;
    uint64_t group_size;
    uint16_t *scales; /* of the groups: the upper halves of F32 */
    size_t n_groups;
};

/* n elements as F32; the result may be src. */
static const uint8_t *lmc__widen(uint8_t *wide, const uint8_t *src, size_t n, unsigned width)
{
    size_t i;
    if (width == 4) return src;
    for (i = 0; i < n; i++) lmc__store32(wide + 4 * i, (uint32_t)lmc__load16(src + 2 * i) << 16);
    return wide;
}

/* The scales of elements from number first of a tensor on: how many of n have that of the first. */
LMC__INLINE size_t lmc__get_group(const lmc_quantizer *q, uint64_t first, size_t n, uint32_t *scale)
{
    const uint64_t group = first / q->group_size;
    *scale = (uint32_t)q->scales[group] << 16;
    return (size_t)lmc__min64(n, (group + 1) * q->group_size - first);
}

/* Quantises n elements from number first of the tensor, at most a strip: dst gets what they are
 * restored to, high and low their codes, or those of zero for exceptions, which stay as they are.
 * src (and second) are elements as they come; dst may be one of them. low may be NULL where there
 * are no low bits. Returns the number of exceptions; where symbols is EXCEPTION, they are. */
static size_t lmc__quantize_strip(const lmc__kernels *k, const lmc_quantizer *q, uint8_t *high,
                                  uint8_t *low, uint16_t *symbols, uint8_t *dst, const uint8_t *src,
                                  const uint8_t *second, uint64_t first, size_t n)
{
    uint8_t wide[4 * LMC__QUANTISED_STRIP], wide_second[4 * LMC__QUANTISED_STRIP];
    uint16_t kept[LMC__QUANTISED_STRIP];
    const uint8_t *const x = lmc__widen(wide, src, n, q->width), *const s =
                                                                     q->is_predicted
                                                                         ? lmc__widen(wide_second,
                                                                                      second, n,
                                                                                      q->width)
                                                                         : NULL;
    uint16_t *valid = symbols;
    size_t exceptions = 0, i, part;
    uint8_t *restored = dst;
    uint32_t scale;
    if (q->is_predicted) exceptions = k->quantize_updates(symbols, x, s, n, &q->grid);
    else
        for (i = 0; i < n; i += part) {
            part = lmc__get_group(q, first + i, n - i, &scale);
            exceptions += k->quantize_rows(symbols + i, x + 4 * i, part, scale, &q->grid);
        }
    if (exceptions) {
        valid = kept;
        for (i = 0; i < n; i++) kept[i] = symbols[i] == LMC__EXCEPTION ? 0 : symbols[i];
        if (q->width == 4) memcpy(wide, src, 4 * n); /* dst may be src */
    }
    if (q->table_size) { /* the nearest that the table has */
        const uint8_t *const codes = q->codes;
        for (i = 0; i < n; i++) high[i] = codes[valid[i]];
        k->look_up(kept, high, n, q->table);
        valid = kept;
    } else k->cut_symbols(high, low, valid, n, q->low_bits);
    if (q->width == 2) restored = q->is_predicted ? wide_second : wide;
    if (q->width == 2 && exceptions && !q->is_predicted) restored = wide_second;
    if (q->is_predicted) k->restore_updates(restored, valid, s, n, &q->grid);
    else
        for (i = 0; i < n; i += part) {
            part = lmc__get_group(q, first + i, n - i, &scale);
            k->restore_rows(restored + 4 * i, valid + i, part, scale, &q->grid);
        }
    for (i = 0; i < n && exceptions; i++)
        if (symbols[i] == LMC__EXCEPTION) memcpy(restored + 4 * i, wide + 4 * i, 4);
    if (q->width == 2)
        for (i = 0; i < n;
             i++) { /* exceptions lie on BF16 already: a NaN, too, must stay as it is */
            const uint32_t v = lmc__load32(restored + 4 * i);
            lmc__store16(dst + 2 * i, (uint16_t)(v & 0xFFFF ? lmc__to_bf16(v) : v >> 16));
        }
    return exceptions;
}

/* A list of n > 0 bytes (spec 8): row is not changed; work and spare are lists. Returns 0 if there
 * is no room. */
static int lmc__put_list(lmc__encoder *e, const uint8_t *row, uint8_t *work, uint8_t *spare,
                         size_t n, enum lmc_level level)
{
    lmc__plan *const plan = &e->scratch->plans[0];
    uint8_t *const start = e->out, *const end = e->end;
    const enum lmc__choice choice = lmc__choose_list(e, plan, row, n, level);
    if ((choice == LMC__CHOOSE_CONSTANT || plan->is_one_symbol) && e->k->is_constant(row, n)) {
        if (end - start < 2) return 0;
        start[0] = LMC__PLANE_CONSTANT;
        start[1] = row[0];
        e->out += 2;
        return 1;
    }
    if (choice == LMC__CHOOSE_TREE) {
        int fits;
        if ((size_t)(end - start) > n) e->end = start + n; /* longer than raw is no use */
        memcpy(work, row, n);
        fits = lmc__put_tree(e, plan, work, spare, n);
        e->end = end;
        if (fits) return 1;
        e->out = start;
    }
    if ((size_t)(end - start) < n + 1) return 0;
    start[0] = LMC__PLANE_RAW;
    memcpy(start + 1, row, n);
    e->out += n + 1;
    return 1;
}

/* Payload of a quantised block: n elements from number first. content: a list of n * width bytes,
 * becomes what they are restored to. Returns 0 if it is not smaller than that, or than cap. */
static size_t lmc__put_quantised(lmc__encoder *e, const lmc_quantizer *q, uint8_t *dst, size_t cap,
                                 uint8_t *content, const uint8_t *src, const uint8_t *second,
                                 uint64_t first, size_t n, enum lmc_level level,
                                 lmc__block_crcs *crcs)
{
    const unsigned width = q->width;
    uint8_t *const high = lmc__push_list(&e->stack, n), *const spare = lmc__push_list(&e->stack, n),
                   *const work = lmc__push_list(&e->stack, n);
    uint8_t *const low = q->low_bits ? lmc__push_list(&e->stack, n) : NULL;
    uint8_t *positions, *values;
    size_t i, j, part, n_exceptions = 0, max_exceptions, n_groups = 0,
                       table_bytes = 2 * (size_t)q->table_size;
    uint16_t symbols[LMC__QUANTISED_STRIP];
    int fits = 1;
    if (!high || !spare || !work || (!low && q->low_bits)) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    crcs->content = 0;
    crcs->base = q->is_predicted ? e->k->crc32c(0, second, n * width) : 0;
    /* Positions are made where they will stand, values behind the most of them that fit. */
    fits = (size_t)(e->end - e->out) > LMC__QUANTISED_HEADER + table_bytes;
    positions = e->out + LMC__QUANTISED_HEADER + table_bytes;
    max_exceptions = fits ? (size_t)(e->end - positions) / (4 + width) : 0;
    values = positions + 4 * max_exceptions;
    for (i = 0; i < n; i += part) {
        size_t exceptions;
        part = lmc__min(n - i, LMC__QUANTISED_STRIP);
        exceptions = lmc__quantize_strip(e->k, q, high + i, low ? low + i : NULL, symbols,
                                         content + i * width, src + i * width,
                                         second ? second + i * width : NULL, first + i, part);
        crcs->content = e->k->crc32c(crcs->content, content + i * width, part * width);
        for (j = 0; j < part && exceptions; j++) {
            if (symbols[j] != LMC__EXCEPTION) continue;
            if (n_exceptions == max_exceptions) fits = 0;
            if (!fits) continue;
            lmc__store32(positions + 4 * n_exceptions, (uint32_t)(i + j));
            memcpy(values + width * n_exceptions++, content + (i + j) * width, width);
        }
    }
    if (!fits) return 0;
    memset(dst, 0, LMC__QUANTISED_HEADER);
    dst[0] = (uint8_t)((q->grid.is_log ? LMC__METHOD_LOG : 0) |
                       (q->grid.is_signed ? LMC__METHOD_SIGNED : 0) |
                       (q->table_size ? LMC__METHOD_TABLE : 0));
    dst[1] = (uint8_t)q->low_bits;
    lmc__store16(dst + 2, (uint16_t)q->table_size);
    lmc__store32(dst + 4, (uint32_t)q->grid.min);
    lmc__store32(dst + 8, q->grid.step);
    lmc__store32(dst + 28, (uint32_t)n_exceptions);
    for (i = 0; i < q->table_size; i++)
        lmc__store16(dst + LMC__QUANTISED_HEADER + 2 * i, q->table[i + 1]);
    memmove(positions + 4 * n_exceptions, values, width * n_exceptions);
    e->out = positions + (4 + width) * n_exceptions;
    if (q->is_predicted) {
        lmc__store32(dst + 12, (uint32_t)q->grid.bias);
        lmc__store32(dst + 16, q->grid.floor);
    } else {
        const uint64_t first_group = first / q->group_size;
        uint8_t *const top = e->stack.top;
        uint8_t *row;
        lmc__store32(dst + 20, (uint32_t)q->group_size);
        lmc__store32(dst + 24, (uint32_t)((first_group + 1) * q->group_size - first));
        n_groups = (size_t)((first + n - 1) / q->group_size - first_group) + 1;
        if ((row = lmc__push_list(&e->stack, n_groups)) == NULL) return 0;
        for (j = 0; j < 2; j++) {
            for (i = 0; i < n_groups; i++) row[i] = (uint8_t)(q->scales[first_group + i] >> 8 * j);
            if (!lmc__put_list(e, row, work, spare, n_groups, level)) return 0;
        }
        e->stack.top = top;
    }
    if (low && !lmc__put_list(e, low, work, spare, n, level)) return 0;
    if (!lmc__put_list(e, high, work, spare, n, level)) return 0;
    return (size_t)(e->out - dst);
}

/* == codec/put_block.h ============================================================================ */

typedef struct lmc__block_coding {
    unsigned width, prediction, grouping;
    int rotate;
    lmc__joint joint;
    lmc__block_crcs crcs;
    size_t payload_size; /* 0: stored */
} lmc__block_coding;

static void lmc__encode_direct(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                               const uint8_t *src, size_t n, enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    int has_crc = 0;
    coding->prediction = coding->grouping = 0;
    coding->crcs.base = 0;
    coding->joint.extra = 0;
    coding->payload_size = lmc__put_planes(e, dst, cap, src, n, coding->width, coding->rotate,
                                           level, &coding->joint, &coding->crcs.content, &has_crc);
    if (!has_crc) coding->crcs.content = e->k->crc32c(0, src, n * coding->width);
    e->stack.top = top;
}

/* Leaves coding as it is if that is not smaller than cap and than the elements. */
static void lmc__encode_delta(lmc__encoder *e, lmc__block_coding *coding, const lmc__delta *delta,
                              uint8_t *dst, size_t cap, const uint8_t *src, const uint8_t *base,
                              size_t n, enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    lmc__block_crcs crcs;
    const size_t payload_size =
        lmc__put_delta(e, dst, cap, src, base, n, coding->width, delta, level, &crcs);
    e->stack.top = top;
    if (payload_size == 0) return;
    coding->prediction = 1;
    coding->grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? 8u : 0u) |
                       delta->grouping.n_natural << 4;
    coding->rotate = delta->subtract;
    coding->joint.extra = 0;
    coding->crcs = crcs;
    coding->payload_size = payload_size;
}

static enum lmc_status lmc__encode_block(const lmc__kernels *k, void *dst, size_t dst_cap,
                                         size_t *dst_size, const uint8_t *src, size_t size,
                                         const uint8_t *base, enum lmc_dtype dtype,
                                         enum lmc_level level, lmc_position position, void *ws,
                                         size_t ws_size)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    enum lmc__verdict verdict = LMC__DIRECT;
    lmc__block_coding coding;
    lmc__delta delta;
    lmc__encoder e;
    size_t n, cap, tried = 0; /* bytes in which the delta does not fit */

    if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = dst_cap - LMC_BLOCK_HEADER_SIZE;
    memset(&coding, 0, sizeof coding);
    coding.width = lmc_dtype_width(dtype);
    coding.rotate = lmc__dtypes[dtype].is_float;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    if (dtype == LMC_AUTO) lmc__guess_width(&e, src, size, &coding.width, &coding.rotate);
    n = size / coding.width;
    if (base)
        verdict = lmc__plan_delta(&e, &delta, src, base, n, coding.width, coding.rotate, level);
    if (verdict == LMC__DELTA) {
        lmc__encode_delta(&e, &coding, &delta, payload, lmc__min(cap, delta.worth), src, base, n,
                          level);
        if (coding.prediction == 0) { /* the sample has promised too much */
            verdict = LMC__EITHER;
            tried = delta.worth;
        }
    }
    if (coding.prediction == 0) lmc__encode_direct(&e, &coding, payload, cap, src, n, level);
    if (verdict == LMC__EITHER && coding.payload_size - 1 >= tried) { /* stored: payload_size 0 */
        const size_t direct_size = coding.payload_size;
        lmc__encode_delta(&e, &coding, &delta, payload, direct_size ? direct_size - 1 : cap, src,
                          base, n, level);
        if (coding.prediction == 0 && direct_size)
            lmc__encode_direct(&e, &coding, payload, cap, src, n,
                               level); /* again what was overwritten */
    }
    if (coding.payload_size) {
        const unsigned residual = coding.rotate ? 4u : 0u;
        lmc__put_block_header(out,
                              lmc__log2_width(coding.width) | residual | coding.joint.extra << 3 |
                                  LMC__LAYOUT_PLANES << 5,
                              coding.prediction, coding.grouping, n, coding.payload_size,
                              coding.crcs, k, position);
    } else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        coding.payload_size = size;
        memcpy(payload, src, size);
        lmc__put_block_header(out, lmc__log2_width(coding.width) | LMC__LAYOUT_STORED << 5, 0, 0, n,
                              size, coding.crcs, k, position);
    }
    *dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

LMC_API size_t lmc_bound_block(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

/* LMC_AUTO blocks count their bytes as elements, so that any width guessed stays within the limit
 * and the workspace. */
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

/* The same with its header; or its restored elements stored. *content: these, in the workspace. */
static enum lmc_status lmc__encode_quantised(const lmc__kernels *k, void *dst, size_t dst_cap,
                                             size_t *dst_size, const uint8_t *src, size_t size,
                                             const uint8_t *second, const lmc_quantizer *q,
                                             uint64_t first, enum lmc_level level,
                                             lmc_position position, void *ws, size_t ws_size,
                                             const uint8_t **content)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    const size_t n = size / q->width;
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
    payload_size =
        lmc__put_quantised(&e, q, payload, cap, restored, src, second, first, n, level, &crcs);
    if (q->is_recovered && (payload_size == 0 || memcmp(restored, src, size) != 0))
        return lmc__encode_block(k, dst, dst_cap, dst_size, src, size, NULL,
                                 q->width == 2 ? LMC_BF16 : LMC_F32, level, position, ws, ws_size);
    if (payload_size)
        lmc__put_block_header(out, lmc__log2_width(q->width) | LMC__LAYOUT_QUANTISED << 5,
                              q->is_predicted ? 1 : 0, 0, n, payload_size, crcs, k, position);
    else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        payload_size = size;
        memcpy(payload, restored, size);
        crcs.base = 0;
        lmc__put_block_header(out, lmc__log2_width(q->width) | LMC__LAYOUT_STORED << 5, 0, 0, n,
                              size, crcs, k, position);
    }
    *content = restored;
    *dst_size = LMC_BLOCK_HEADER_SIZE + payload_size;
    return LMC_OK;
}

/* == codec/get_quantised.h ======================================================================== */

/* What the head of a quantised block's payload says. */
typedef struct lmc__quantised {
    lmc__grid grid;
    unsigned low_bits, table_size;
    uint32_t group_size, first_group, n_exceptions;
    size_t n_groups;
    uint16_t table[256];               /* of codes */
    const uint8_t *positions, *values; /* of exceptions */
    lmc__side scales[2];               /* their low bytes, their high ones */
} lmc__quantised;

LMC__INLINE uint32_t lmc__scale_at(const lmc__quantised *q, size_t i)
{
    const uint32_t low = q->scales[0].list ? q->scales[0].list[i] : q->scales[0].value,
                   high = q->scales[1].list ? q->scales[1].list[i] : q->scales[1].value;
    return low << 16 | high << 24;
}

/* The payload up to Low; spare: a list of info->n. */
static enum lmc_status lmc__get_quantised_head(lmc__decoder *d, lmc__quantised *q,
                                               const lmc_block_info *info, uint8_t *spare)
{
    const uint8_t *const p = d->in;
    const size_t n = info->n;
    uint32_t previous, i, largest;
    LMC__CHECK((size_t)(d->end - d->in) >= LMC__QUANTISED_HEADER, LMC_ERR_CORRUPT);
    memset(q, 0, sizeof *q);
    LMC__CHECK(p[0] <= (LMC__METHOD_LOG | LMC__METHOD_SIGNED | LMC__METHOD_TABLE), LMC_ERR_CORRUPT);
    q->grid.is_log = (p[0] & LMC__METHOD_LOG) != 0;
    q->grid.is_signed = (p[0] & LMC__METHOD_SIGNED) != 0;
    q->low_bits = p[1];
    q->table_size = lmc__load16(p + 2);
    LMC__CHECK(lmc__load32(p + 4) == 0 || lmc__load32(p + 4) >= 0u - 65535u, LMC_ERR_CORRUPT);
    q->grid.min = -(int32_t)(0u - lmc__load32(p + 4));
    q->grid.step = lmc__load32(p + 8);
    LMC__CHECK(lmc__load32(p + 12) + (1u << 30) <= 1u << 31, LMC_ERR_CORRUPT);
    q->grid.bias = lmc__load32(p + 12) <= 1u << 30 ? (int32_t)lmc__load32(p + 12)
                                                   : -(int32_t)(0u - lmc__load32(p + 12));
    q->grid.floor = lmc__load32(p + 16);
    q->group_size = lmc__load32(p + 20);
    q->first_group = lmc__load32(p + 24);
    q->n_exceptions = lmc__load32(p + 28);
    LMC__CHECK(q->grid.is_log || !q->grid.is_signed, LMC_ERR_CORRUPT);
    LMC__CHECK(p[0] & LMC__METHOD_TABLE
                   ? q->table_size >= 1 && q->table_size <= 255 && q->low_bits == 0
                   : q->table_size == 0 && q->low_bits <= LMC__MAX_LOW_BITS,
               LMC_ERR_CORRUPT);
    LMC__CHECK(q->grid.is_log ? q->grid.step >= 1 && q->grid.step <= 1u << 24 : q->grid.step == 0,
               LMC_ERR_CORRUPT);
    if (info->has_prediction) {
        LMC__CHECK(!q->grid.is_log && q->grid.floor <= 0x7F800000u && q->group_size == 0 &&
                       q->first_group == 0,
                   LMC_ERR_CORRUPT);
    } else {
        LMC__CHECK(q->grid.bias == 0 && q->grid.floor == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(q->group_size >= 1 && q->group_size <= 0x7FFFFFFFu && q->first_group >= 1 &&
                       q->first_group <= q->group_size,
                   LMC_ERR_CORRUPT);
        q->n_groups = n <= q->first_group ? 1 : 1 + (n - q->first_group - 1) / q->group_size + 1;
    }
    LMC__CHECK(q->n_exceptions <= n, LMC_ERR_CORRUPT);
    d->in += LMC__QUANTISED_HEADER;
    LMC__CHECK((size_t)(d->end - d->in) >=
                   2 * (size_t)q->table_size + (4 + info->width) * (size_t)q->n_exceptions,
               LMC_ERR_CORRUPT);
    for (i = 1, previous = 0; i <= q->table_size; i++, d->in += 2) {
        q->table[i] = lmc__load16(d->in);
        LMC__CHECK(q->table[i] > previous, LMC_ERR_CORRUPT);
        previous = q->table[i];
    }
    q->positions = d->in;
    for (i = 0; i < q->n_exceptions; i++, d->in += 4) {
        const uint32_t position = lmc__load32(d->in);
        LMC__CHECK(position < n && (i == 0 || position > previous), LMC_ERR_CORRUPT);
        previous = position;
    }
    q->values = d->in;
    d->in += info->width * (size_t)q->n_exceptions;
    if (info->has_prediction) return LMC_OK;
    for (i = 0; i < 2; i++) LMC__TRY(lmc__get_list(d, &q->scales[i], spare, q->n_groups));
    largest = q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE;
    for (i = 0; i < q->n_groups; i++)
        LMC__CHECK(lmc__scale_at(q, i) >= LMC__MIN_SCALE && lmc__scale_at(q, i) <= largest,
                   LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* 1 if one of n bytes is more than most. */
static int lmc__has_more(const uint8_t *p, size_t n, unsigned most)
{
    const uint64_t ones = UINT64_MAX / 255, low7 = 0x7F * ones,
                   add = (127 - (most & 0x7F)) *
                         ones; /* to 7 bits: a carry into the eighth if they are more */
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

/* Codes [at, at + n) of a list or constant, in room for a strip where they must be made. */
static const uint8_t *lmc__codes_at(const lmc__side *side, size_t at, size_t n, uint8_t *room)
{
    if (side->list) return side->list + at;
    memset(room, side->value, n);
    return room;
}

/* The payload of a quantised block. base: as many bytes as dst, which may be the same; or NULL. */
static enum lmc_status lmc__get_quantised(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                          const lmc_block_info *info, uint32_t *crc)
{
    const size_t n = info->n;
    const unsigned width = info->width;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    uint8_t wide[4 * LMC__QUANTISED_STRIP], room[LMC__QUANTISED_STRIP],
        low_room[LMC__QUANTISED_STRIP];
    uint16_t symbols[LMC__QUANTISED_STRIP];
    lmc__quantised q;
    lmc__side high, low;
    size_t i, j, part, step, group = 0, group_end, exception = 0, place;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantised_head(d, &q, info, spare));
    if (q.low_bits) LMC__TRY(lmc__get_list(d, &low, spare, n));
    LMC__TRY(lmc__get_list(d, &high, spare, n));
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (q.table_size)
        LMC__CHECK(high.list ? !lmc__has_more(high.list, n, q.table_size)
                             : high.value <= q.table_size,
                   LMC_ERR_CORRUPT);
    if (base) LMC__CHECK(d->k->crc32c(0, base, info->size) == info->base_crc, LMC_ERR_BASE_WRONG);
    *crc = 0;
    group_end = q.first_group;
    for (i = 0; i < n; i += part) {
        /* F32 go to their place by way of the first cache, if that is not to hold them; BF16 come
         * from there */
        uint8_t *const out = dst + i * width, *const restored =
                                                  width == 4 && !d->streaming.is_on ? out : wide;
        const uint8_t *const codes =
            lmc__codes_at(&high, i, part = lmc__min(n - i, LMC__QUANTISED_STRIP), room);
        if (q.table_size) d->k->look_up(symbols, codes, part, q.table);
        else
            d->k->join_symbols(symbols, codes,
                               q.low_bits ? lmc__codes_at(&low, i, part, low_room) : NULL, part,
                               q.low_bits);
        if (base)
            d->k->restore_updates(restored, symbols,
                                  lmc__widen(wide, base + i * width, part, width), part, &q.grid);
        else
            for (j = 0; j < part; j += step) {
                if (i + j == group_end) {
                    group++;
                    group_end += q.group_size;
                }
                step = lmc__min(part - j, group_end - i - j);
                d->k->restore_rows(restored + 4 * j, symbols + j, step, lmc__scale_at(&q, group),
                                   &q.grid);
            }
        LMC__PREFETCH(
            (const void *)((uintptr_t)out + 2 * sizeof wide)); /* a page ahead: for its address */
        if (width == 2)
            for (j = 0; j < part; j++)
                lmc__store16(wide + 2 * j, (uint16_t)lmc__to_bf16(lmc__load32(wide + 4 * j)));
        for (; exception < q.n_exceptions &&
               (place = lmc__load32(q.positions + 4 * exception)) < i + part;
             exception++)
            memcpy(restored + width * (place - i), q.values + width * exception, width);
        *crc = d->k->crc32c(*crc, restored, part * width);
        if (restored != out && d->streaming.is_on) d->k->stream(out, restored, part * width);
        else if (restored != out) memcpy(out, restored, part * width);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* == codec/get_block.h ============================================================================ */

/* The payload of a block in layout planes. The last tree's root is merged with the join. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       int rotate, unsigned extra, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__joint joint;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL;
    lmc__set_joint(&joint, extra, 0, n);
    if (extra) {
        LMC__CHECK(d->end - d->in >= 2, LMC_ERR_CORRUPT);
        joint.offset = lmc__load16(d->in);
        LMC__CHECK(joint.offset < 256u << extra, LMC_ERR_CORRUPT);
        d->in += 2;
    }
    for (p = 0; p < width; p++) {
        unsigned mode;
        uint8_t *list;
        if (extra && p == width - 2) {
            size_t i;
            LMC__CHECK((size_t)(d->end - d->in) >= joint.packed_size, LMC_ERR_CORRUPT);
            joint.packed = d->in;
            d->in += joint.packed_size;
            for (i = n; i < joint.packed_size + joint.row; i++)
                LMC__CHECK(lmc__unpack(joint.packed, i, &joint) == 0, LMC_ERR_CORRUPT);
            continue;
        }
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
        if (mode == LMC__PLANE_RAW) { /* used where it lies */
            LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
            planes.row[p] = d->in;
            d->in += n;
            continue;
        }
        LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
        if (mode != LMC__PLANE_CONSTANT &&
            root.mask) { /* the spare is needed again; the mask may be above the row */
            d->k->merge(root.row, root.mask, n, root.left, root.right);
            root.mask = NULL;
        }
        planes.row[p] = list = lmc__push_list(&d->stack, n);
        LMC__CHECK(list, LMC_ERR_WORKSPACE);
        if (mode == LMC__PLANE_CONSTANT) {
            LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
            memset(list, *d->in++, n);
        } else {
            root.plane = p;
            root.row = list;
            LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
        }
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (extra) {
        planes.row[width - 2] = spare; /* for what is not there: it is not looked at */
        joint.high = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        joint.low = lmc__push_list(&d->stack, lmc__min(n, LMC__STRIP_ELEMENTS(width)));
        LMC__CHECK(joint.high && joint.low, LMC_ERR_WORKSPACE);
    }
    *crc = d->k->join_root(
        d->k, dst,
        lmc__join_from(&planes, root.mask ? &root : NULL, extra ? &joint : NULL, width, rotate), n,
        d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* The payload of a block with a prediction or with classes (spec 7.3). base: as many bytes as dst,
 * which may be the same; or NULL. */
static enum lmc_status lmc__get_classes(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                        const lmc_block_info *info, int subtract, unsigned coding,
                                        uint32_t *crc)
{
    const unsigned width = info->width;
    const int sparse = coding >> 3 & 1;
    const size_t n = info->n;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    const uint8_t *masks[LMC__MAX_CLASSES];
    size_t n_of[LMC__MAX_CLASSES];
    lmc__grouping grouping;
    lmc__class_sides sides;
    unsigned c, p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    grouping.n_classes = (coding & 7) + 1;
    grouping.n_natural = coding >> 4 & 7;
    LMC__CHECK((size_t)(d->end - d->in) >= grouping.n_classes - 1, LMC_ERR_CORRUPT);
    for (c = 0; c + 1 < grouping.n_classes; c++) {
        grouping.threshold[c] = *d->in++;
        LMC__CHECK(grouping.threshold[c] > (c ? grouping.threshold[c - 1] : 0), LMC_ERR_CORRUPT);
    }
    n_of[0] = n;
    if (base) {
        const uint32_t base_crc = grouping.n_classes == 1
                                      ? d->k->crc32c(0, base, info->size)
                                      : d->k->count_classes(d->k, n_of, base, n, width, &grouping);
        LMC__CHECK(base_crc == info->base_crc, LMC_ERR_BASE_WRONG);
    }
    for (c = 0; c < grouping.n_classes && sparse; c++)
        if (n_of[c]) LMC__TRY(lmc__get_mask(d, 0, n_of[c], &masks[c]));
    for (p = 0; p < grouping.n_natural; p++) {
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        sides.side[0][p].list = d->in;
        d->in += n;
    }
    for (c = 0; c < grouping.n_classes; c++) {
        const size_t m =
            sparse && n_of[c] ? d->k->count_ones(masks[c], (n_of[c] + 7) / 8) : n_of[c];
        for (p = grouping.n_natural; p < width; p++) {
            lmc__side *const side = &sides.side[c][p];
            side->list = NULL;
            side->value = 0;
            if (m == 0) continue;
            if (sparse && m < n_of[c]) { /* between the coded ones: zeros */
                lmc__side zero, coded;
                uint8_t *const list = lmc__push_list(&d->stack, n_of[c]), *const top = d->stack.top;
                LMC__CHECK(list, LMC_ERR_WORKSPACE);
                LMC__TRY(lmc__get_list(d, &coded, spare, m));
                zero.list = NULL;
                zero.value = 0;
                d->k->merge(list, masks[c], n_of[c], zero, coded);
                d->stack.top = top;
                side->list = list;
            } else {
                LMC__TRY(lmc__get_list(d, side, spare, m));
            }
        }
    }
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    if (base)
        *crc = d->k->ungroup(d->k, dst, base, &sides, n, width, subtract, &grouping, d->streaming);
    else {
        lmc__const_planes planes;
        for (p = 0; p < width; p++) {
            const lmc__side *const side = &sides.side[0][p];
            planes.row[p] = side->list;
            if (!side->list) {
                uint8_t *const list = lmc__push_list(&d->stack, n);
                LMC__CHECK(list, LMC_ERR_WORKSPACE);
                memset(list, side->value, n);
                planes.row[p] = list;
            }
        }
        *crc = d->k->join_root(d->k, dst, lmc__join_from(&planes, NULL, NULL, width, subtract), n,
                               d->streaming);
    }
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}

/* The header of a block, after its CRC. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned width = 1u << (src[1] & 3), layout = src[1] >> 5, grouping = src[3];
    uint64_t size;
    LMC__CHECK((src[1] >> 3 & 3) != 3 && layout <= LMC__LAYOUT_QUANTISED && src[2] <= 1 &&
                   grouping < 0x80,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + 12);
    info->stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = src[2];
    info->base_crc = lmc__load32(src + 16);
    LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);
    size = (uint64_t)info->n * width;
    if (info->stored)
        LMC__CHECK(lmc__load32(src + 8) == size && (src[1] & 0x1C) == 0 && src[2] == 0 &&
                       grouping == 0,
                   LMC_ERR_CORRUPT);
    else LMC__CHECK(lmc__load32(src + 8) < size, LMC_ERR_CORRUPT);
    if (layout == LMC__LAYOUT_QUANTISED)
        LMC__CHECK((width == 2 || width == 4) && (src[1] & 0x1C) == 0 && grouping == 0,
                   LMC_ERR_CORRUPT);
    if (src[1] & 0x18)
        LMC__CHECK(width > 1 && src[2] == 0 && grouping == 0, LMC_ERR_CORRUPT); /* joint */
    LMC__CHECK(src[2] || ((grouping & 7) == 0 && info->base_crc == 0), LMC_ERR_CORRUPT);
    LMC__CHECK(grouping >> 4 == 0 ||
                   (grouping >> 4 < width && (grouping & 7) != 0 && (grouping & 8) == 0),
               LMC_ERR_CORRUPT);
    info->size = (size_t)size; /* at most 8 MiB */
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)lmc__load32(src + 8);
    return LMC_OK;
}

static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    uint8_t place[8];
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__CHECK(src[0] == LMC__BLOCK_SYNC, LMC_ERR_CORRUPT);
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    LMC__CHECK(k->crc32c(k->crc32c(0, place, 8), src, 20) == lmc__load32(src + 20),
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

/* info was read from src, which has info->encoded_size bytes; dst has room for info->size; ws is
 * large enough. base: as many bytes; NULL where there is none. */
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
        if (info->has_prediction) LMC__CHECK(base, LMC_ERR_BASE_MISSING);
        if (src[1] >> 5 == LMC__LAYOUT_QUANTISED)
            LMC__TRY(lmc__get_quantised(&d, dst, info->has_prediction ? base : NULL, info, &crc));
        else if (info->has_prediction || src[3])
            LMC__TRY(lmc__get_classes(&d, dst, info->has_prediction ? base : NULL, info,
                                      src[1] >> 2 & 1, src[3], &crc));
        else
            LMC__TRY(lmc__get_planes(&d, dst, info->n, info->width, src[1] >> 2 & 1,
                                     src[1] >> 3 & 3, &crc));
    }
    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_decode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size, const void *prediction,
                                         size_t prediction_size, lmc_position position, void *ws,
                                         size_t ws_size)
{
    const lmc__kernels *k = lmc__get_kernels();
    const lmc__streaming off = {0, NULL, 0};
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
    LMC__TRY(lmc__decode_block(k, (uint8_t *)dst, off, (const uint8_t *)src, &info,
                               (const uint8_t *)prediction, ws, ws_size));
    *dst_size = info.size;
    return LMC_OK;
}

/* == tensor/wave.h ================================================================================ */

/* One block of a wave. */
typedef struct lmc__job {
    const uint8_t *src;
    const uint8_t *base; /* its prediction; or NULL */
    int own;             /* that is this snapshot's own: if it is wrong, the file is */
    int is_done;         /* decoding: dst has the block already, they say */
    uint8_t *dst;
    size_t src_size, dst_size; /* encoding: dst_size is dst's capacity, then what was written */
    enum lmc_dtype dtype;      /* encoding */
    enum lmc_level level;
    const lmc_quantizer *quantizer; /* encoding; or NULL */
    uint64_t first_element;         /* of the quantizer's tensor */
    size_t
        head; /* the writer: bytes before dst that hold the header of the run which begins here */
    lmc_block_info info; /* decoding */
    lmc_position position;
    lmc__streaming streaming; /* decoding */
    size_t skip, keep; /* decoding: only info.size bytes [skip, skip + keep) go to dst, if keep is
                          not all of it */
    size_t first_piece, n_pieces; /* section 9 */
    enum lmc_status status;
} lmc__job;

typedef struct lmc__piece { /* of a block: as much as belongs to one leaf of one tensor, or to none
                               (section 9) */
    uint32_t size, crc;
    int in_tensor;
} lmc__piece;

typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;
    lmc__piece *pieces;  /* NULL: none wanted */
    uint8_t *workspaces; /* one for each worker */
    size_t workspace_size;
    size_t temp_size; /* at the end of each workspace: room for a block that is not kept whole */
} lmc__wave;

/* Blocks in flight for each worker, and the most memory that they may take for each, so that 8 MiB
 * blocks do not come in fours. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}
static int lmc__is_parallel(const lmc_parallel *parallel)
{
    return !parallel || (parallel->run && parallel->n_workers >= 1 && parallel->n_workers <= 1024);
}
static size_t lmc__count_jobs(const lmc_parallel *parallel, size_t block_size)
{
    size_t n = LMC__WAVE_BYTES_PER_WORKER / block_size;
    return (n < 1                      ? 1
            : n > LMC__JOBS_PER_WORKER ? LMC__JOBS_PER_WORKER
                                       : n) *
           lmc__count_workers(parallel);
}

static void lmc__run_wave(const lmc_parallel *parallel, lmc_task task, lmc__wave *wave, size_t n)
{
    size_t i;
    if (parallel && n > 1) parallel->run(parallel->user, task, wave, n);
    else
        for (i = 0; i < n; i++) task(wave, i, 0);
}

/* The CRCs of a job's pieces, which make up the bytes at p, whose CRC is crc. */
static void lmc__set_piece_crcs(const lmc__wave *wave, const lmc__job *job, const uint8_t *p,
                                uint32_t crc)
{
    size_t i;
    if (!wave->pieces) return;
    if (job->n_pieces == 1) {
        wave->pieces[job->first_piece].crc = crc;
        return;
    }
    for (i = job->first_piece; i < job->first_piece + job->n_pieces; i++) {
        lmc__piece *piece = &wave->pieces[i];
        piece->crc = wave->k->crc32c(0, p, piece->size);
        p += piece->size;
    }
}

static void lmc__encode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    lmc__job *job = &wave->jobs[index];
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const uint8_t *content = job->src;
    if (job->quantizer)
        job->status =
            lmc__encode_quantised(wave->k, job->dst, job->dst_size, &job->dst_size, job->src,
                                  job->src_size, job->base, job->quantizer, job->first_element,
                                  job->level, job->position, ws, wave->workspace_size, &content);
    else
        job->status = lmc__encode_block(wave->k, job->dst, job->dst_size, &job->dst_size, job->src,
                                        job->src_size, job->base, job->dtype, job->level,
                                        job->position, ws, wave->workspace_size);
    if (job->status == LMC_OK) lmc__set_piece_crcs(wave, job, content, lmc__load32(job->dst + 12));
}

static void lmc__decode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    lmc__job *job = &wave->jobs[index];
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const int whole = job->keep == job->info.size;
    uint8_t *dst = whole ? job->dst : ws + wave->workspace_size - wave->temp_size;
    if (job->is_done)
        job->status =
            wave->k->crc32c(0, dst, job->info.size) == job->info.crc ? LMC_OK : LMC_ERR_BASE_WRONG;
    else
        job->status = lmc__decode_block(wave->k, dst, job->streaming, job->src, &job->info,
                                        job->base, ws, wave->workspace_size - wave->temp_size);
    if (job->status == LMC_ERR_BASE_WRONG && job->own) job->status = LMC_ERR_CORRUPT;
    if (job->status != LMC_OK) return;
    if (!whole) memcpy(job->dst, dst + job->skip, job->keep);
    lmc__set_piece_crcs(wave, job, dst, job->info.crc);
}

/* The first error of n jobs, in order. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}

/* == tensor/tensor.h ============================================================================== */

/* Decoded tensors of this size on do not stay in caches: a block is gone when the last is done. */
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

static size_t lmc__get_tensor_block_size(const lmc_tensor_options *options)
{
    if (!options || !lmc__is_parallel(options->parallel) ||
        (unsigned)options->level > LMC_LEVEL_MAX)
        return 0;
    return lmc__get_block_size(options->dtype, options->log2_block,
                               options->prediction != NULL || options->quantizer != NULL);
}

LMC_API uint64_t lmc_bound_tensor(uint64_t size, const lmc_tensor_options *options)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    uint64_t headers;
    if (block_size == 0) return UINT64_MAX;
    headers = (size / block_size + (size % block_size ? 1 : 0)) *
              LMC_BLOCK_HEADER_SIZE; /* at most size / 8 */
    return size <= UINT64_MAX - headers ? size + headers : UINT64_MAX;
}

/* Jobs, then the workspaces of the workers, each with room for a block. */
static size_t lmc__set_tensor_wave(lmc__wave *wave, const lmc_tensor_options *options,
                                   size_t block_size, void *ws)
{
    const size_t jobs_size = 2 * lmc__count_jobs(options->parallel, block_size) *
                             sizeof(lmc__job); /* encoding: two waves take turns */
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

/* While a wave is coded, what the one before has made is moved down to its place. */
typedef struct lmc__packing {
    lmc__wave wave;
    const lmc__job *jobs; /* of the wave before */
    size_t n;
    uint8_t *end; /* of what is in its place */
} lmc__packing;

static void lmc__pack_wave(lmc__packing *packing)
{
    size_t i;
    for (i = 0; i < packing->n; i++) {
        const lmc__job *job = &packing->jobs[i];
        if (job->dst != packing->end) memmove(packing->end, job->dst, job->dst_size);
        packing->end += job->dst_size;
    }
    packing->n = 0;
}

static void lmc__pack_task(void *arg, size_t index, unsigned worker)
{
    lmc__packing *packing = (lmc__packing *)arg;
    if (index == 0) lmc__pack_wave(packing);
    else lmc__encode_task(&packing->wave, index - 1, worker);
}

/* The first block's sample says that the prediction is worth nothing: then blocks are better cut as
 * if there were none. */
static int lmc__is_useless(const lmc__wave *wave, const lmc_tensor_options *options,
                           const uint8_t *src, size_t size)
{
    const unsigned width = lmc_dtype_width(options->dtype);
    lmc__delta delta;
    lmc__encoder e;
    e.k = wave->k;
    e.scratch = lmc__open_workspace(&e.stack, wave->workspaces, wave->workspace_size);
    return lmc__plan_delta(&e, &delta, src, (const uint8_t *)options->prediction, size / width,
                           width, lmc__dtypes[options->dtype].is_float,
                           LMC_LEVEL_DEFAULT) == LMC__DIRECT;
}

LMC_API enum lmc_status lmc_encode_tensor(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;
    lmc__packing packing;
    lmc__wave *const wave = &packing.wave;
    size_t max_jobs, block, n;
    uint64_t n_blocks;
    int is_serial, in_own_place;
    lmc__job *first;
    const lmc_quantizer *const quantizer =
        options && options->quantizer && !options->quantizer->info.is_lossless ? options->quantizer
                                                                               : NULL;
    if (block_size == 0 || !dst_size || !ws || (!src && size) || (!dst && dst_cap) ||
        size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;
    if (quantizer && (quantizer->width != lmc_dtype_width(options->dtype) ||
                      (options->dtype != LMC_F32 && options->dtype != LMC_BF16) ||
                      quantizer->n * quantizer->width != size ||
                      quantizer->is_predicted != (options->prediction != NULL)))
        return LMC_ERR_ARGUMENT;
    n_blocks = size / block_size + (size % block_size ? 1 : 0);
    if (n_blocks > UINT32_MAX) return LMC_ERR_LIMIT;
    if (dst_cap == 0 && size != 0) return LMC_ERR_DST_TOO_SMALL; /* dst may be NULL */
    lmc__set_tensor_wave(wave, options, block_size, ws);
    if (options->prediction && !quantizer && options->log2_block == 0 &&
        options->dtype != LMC_AUTO && size != 0 &&
        lmc__is_useless(wave, options, in, lmc__min(size, block_size))) {
        lmc_tensor_options direct = *options; /* which takes less workspace */
        direct.prediction = NULL;
        return lmc_encode_tensor(dst, dst_cap, dst_size, src, size, &direct, ws, ws_size);
    }
    first = wave->jobs;
    is_serial = lmc__count_workers(options->parallel) == 1;
    max_jobs = is_serial ? 1
                         : lmc__count_jobs(options->parallel,
                                           block_size); /* one lands in its place at once */
    /* Every block has a place of its own, where it would land if none gets smaller; if dst is too
     * small for that, or waits for it, blocks land behind what is packed. */
    in_own_place = !is_serial && dst_cap >= lmc_bound_tensor(size, options);
    packing.n = 0;
    packing.end = out;
    for (block = 0; block < n_blocks; block += n) {
        uint8_t *place;
        if (!in_own_place) lmc__pack_wave(&packing);
        place = in_own_place ? out + block * lmc_bound_block(block_size) : packing.end;
        for (n = 0; n < max_jobs && block + n < n_blocks; n++) {
            lmc__job *job = &wave->jobs[n];
            const size_t at = (block + n) * block_size, room = dst_cap - (size_t)(place - out);
            size_t slot;
            job->src = in + at;
            job->src_size = lmc__min(block_size, size - at);
            job->base = options->prediction ? (const uint8_t *)options->prediction + at : NULL;
            slot = lmc_bound_block(job->src_size);
            if (slot > room && n > 0) break;
            job->dst = place;
            job->dst_size = lmc__min(slot, room);
            job->dtype = options->dtype;
            job->level = options->level;
            job->quantizer = quantizer;
            job->first_element = at / lmc_dtype_width(options->dtype);
            job->position.run = options->run;
            job->position.block = (uint32_t)(block + n);
            place += job->dst_size;
        }
        if (is_serial) lmc__encode_task(wave, 0, 0);
        else options->parallel->run(options->parallel->user, lmc__pack_task, &packing, n + 1);
        LMC__TRY(lmc__wave_status(wave, n));
        packing.jobs = wave->jobs;
        packing.n = n;
        wave->jobs = wave->jobs == first ? first + max_jobs : first;
    }
    lmc__pack_wave(&packing);
    *dst_size = (size_t)(packing.end - out);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_decode_tensor(void *dst, uint64_t offset, size_t size, const void *src,
                                          size_t src_size, uint64_t total_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    const size_t temp_size = lmc__get_tensor_block_size(options);
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;
    uint64_t at = 0, block_size = 0, block = 0;
    size_t used = 0, max_jobs;
    lmc__wave wave;
    if (temp_size == 0 || !ws || (!src && src_size) || (!dst && size) || offset > total_size ||
        size > total_size - offset)
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != total_size) return LMC_ERR_BASE_WRONG;
    LMC__CHECK(src_size != 0 || size == 0, LMC_ERR_TRUNCATED); /* src may be NULL */
    lmc__set_tensor_wave(&wave, options, temp_size, ws);
    max_jobs = lmc__count_jobs(options->parallel, temp_size);
    while (size != 0 && at < offset + size) {
        size_t n = 0;
        while (n < max_jobs && at < offset + size) {
            lmc__job *job = &wave.jobs[n];
            LMC__CHECK(block <= UINT32_MAX, LMC_ERR_CORRUPT);
            job->position.run = options->run;
            job->position.block = (uint32_t)block++;
            LMC__TRY(lmc__read_block_info(wave.k, in + used, src_size - used, job->position,
                                          &job->info));
            LMC__CHECK(job->info.encoded_size <= src_size - used, LMC_ERR_TRUNCATED);
            if (block_size == 0) block_size = job->info.size;
            LMC__CHECK(job->info.size == lmc__min64(block_size, total_size - at), LMC_ERR_CORRUPT);
            job->src = in + used;
            job->base =
                options->prediction ? (const uint8_t *)options->prediction + (size_t)at : NULL;
            job->own = job->is_done = 0;
            used += job->info.encoded_size;
            if (at + job->info.size > offset) {
                job->skip = at < offset ? (size_t)(offset - at) : 0;
                job->keep = (size_t)lmc__min64(job->info.size - job->skip,
                                               offset + size - (at + job->skip));
                job->dst = out + (size_t)(at + job->skip - offset);
                job->streaming.is_on = size >= LMC__STREAM_FROM && job->keep == job->info.size;
                job->streaming.next = in + used;
                job->streaming.next_size =
                    job->streaming.is_on ? lmc__min(src_size - used, job->info.encoded_size) : 0;
                LMC__CHECK(options->prediction || !job->info.has_prediction,
                           LMC_ERR_BASE_MISSING); /* before the workspace: with one it is larger */
                if (!lmc__is_workspace(wave.workspace_size - temp_size, job->info.n) ||
                    (job->keep != job->info.size && job->info.size > temp_size))
                    return LMC_ERR_WORKSPACE;
                n++;
            }
            at += job->info.size;
        }
        lmc__run_wave(options->parallel, lmc__decode_task, &wave, n);
        LMC__TRY(lmc__wave_status(&wave, n));
    }
    if (offset == 0 && size == total_size) LMC__CHECK(used == src_size, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* == quantise/clusters.h ========================================================================== */

/* Exact one-dimensional k-means: n bins with counts into at most k cells of neighbours, so that the
 * sum of squared distances to the cells' means is least. For a price on each cell the best cells
 * are found by dynamic programming; as the cost is a Monge array, a candidate for a cell's begin
 * that once is better than an earlier one stays so, and a queue of them takes O(n log n) (Galil,
 * Park: A linear-time algorithm for concave one-dimensional dynamic programming, 1990). The least
 * error falls convexly with the number of cells, so a price leads to k of them (where two cells or
 * more appear at the same price, to fewer). All in integers. */
#define LMC__MAX_BINS 4096u
#define LMC__MAX_COUNT                                                                             \
    ((uint32_t)1 << 19) /* sum of counts; times MAX_BINS, squared, is less than 2^64 */

typedef struct lmc__clusters {
    size_t n;
    uint32_t count[LMC__MAX_BINS + 1]; /* of the bins before */
    uint64_t sum[LMC__MAX_BINS + 1], square[LMC__MAX_BINS + 1];
    uint64_t best[LMC__MAX_BINS + 1];  /* cost of the bins before, with prices */
    uint16_t begin[LMC__MAX_BINS + 1]; /* of the last cell */
    uint16_t cells[LMC__MAX_BINS + 1]; /* their number */
    uint16_t candidate[LMC__MAX_BINS + 1],
        from[LMC__MAX_BINS + 1]; /* the queue: which begin is best from which end on */
} lmc__clusters;

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

/* Sum of squared distances of bins [a, b) to their mean; rounded up. */
LMC__INLINE uint64_t lmc__cell_cost(const lmc__clusters *c, size_t a, size_t b)
{
    const uint64_t count = c->count[b] - c->count[a],
                   sum = c->sum[b] - c->sum[a] - count * a; /* from a */
    if (count == 0) return 0;
    return c->square[b] - c->square[a] - 2 * a * (c->sum[b] - c->sum[a]) + count * a * a -
           sum * sum / count;
}

/* The best cells at a price; returns their number. */
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
        c->best[i] = c->best[j] + lmc__cell_cost(c, j, i) + price;
        c->begin[i] = (uint16_t)j;
        c->cells[i] = (uint16_t)(c->cells[j] + 1);
        if (i == n) break;
#define LMC__VALUE(j, end) (c->best[j] + lmc__cell_cost(c, j, end))
        while (tail - 1 > head && LMC__VALUE(i, c->from[tail - 1]) <=
                                      LMC__VALUE(c->candidate[tail - 1], c->from[tail - 1]))
            tail--;
        j = c->candidate[tail - 1];
        if (LMC__VALUE(i, n) <= LMC__VALUE(j, n)) {
            size_t low = (tail - 1 > head ? c->from[tail - 1] : i) + 1,
                   high = n; /* not before what the last candidate is best from */
            while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (LMC__VALUE(i, middle) <= LMC__VALUE(j, middle)) high = middle;
                else low = middle + 1;
            }
            c->candidate[tail] = (uint16_t)i;
            c->from[tail++] = (uint16_t)low;
        }
#undef LMC__VALUE
    }
    return c->cells[n];
}

/* At most k cells; returns how many. ends: of each. */
static unsigned lmc__find_cells(lmc__clusters *c, unsigned k, uint16_t *ends)
{
    const uint64_t all = lmc__cell_cost(c, 0, c->n);
    uint64_t low = 0,
             high = all / ((uint64_t)k * k * k) + 1; /* prices: too low (or 0), high enough */
    unsigned n = lmc__cut_cells(c, high), i;
    size_t end;
    while (n > k) {
        low = high;
        high = 4 * high;
        n = lmc__cut_cells(c, high);
    }
    /* low has more than k cells, or is 0; until they are exactly k, or the price is known to a
     * 4096th */
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

/* == quantise/fit.h =============================================================================== */

#define LMC__MIN_QUANTISED 16384u /* elements: below, codebooks and scales are not worth it */
#define LMC__FIT_CHUNK 16384u     /* elements that are read at once */
#define LMC__FIT_SAMPLE                                                                            \
    ((uint64_t)1                                                                                   \
     << 21) /* of twice as many elements and more, so many are looked at, evenly spread */
#define LMC__SYMBOLS 65536u
#define LMC__DEFAULT_GROUP 256u

typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_elements elements;
    lmc_quantizer *q;
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK], wide[4 * LMC__FIT_CHUNK],
        wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s; /* the first two as F32 */
    uint16_t symbols[LMC__FIT_CHUNK];
    uint32_t counts[LMC__SYMBOLS]; /* of the sample's symbols; of EXCEPTION, too */
    uint32_t bins[LMC__MAX_BINS];
    uint16_t ends[256];
    uint64_t total; /* of the sample, without symbol 0 and exceptions */
    uint32_t zeros; /* of symbol 0 at first */
    lmc__clusters clusters;
} lmc__fit;

static enum lmc_status lmc__keep_lossless(lmc_quantizer *q, const char *reason)
{
    q->info.is_lossless = 1;
    q->info.reason = reason;
    return LMC_OK;
}

/* Reads elements [first, first + n), and of the second moment what the decoder will have. */
static enum lmc_status lmc__read_chunk(lmc__fit *f, uint64_t first, size_t n)
{
    lmc_quantizer *const q = f->q;
    const size_t size = n * q->width;
    LMC__TRY(f->elements.read(f->elements.user, first * q->width, f->chunk, size));
    f->x = lmc__widen(f->wide, f->chunk, n, q->width);
    if (!q->is_predicted) return LMC_OK;
    LMC__TRY(f->options->second_elements.read(f->options->second_elements.user, first * q->width,
                                              f->second, size));
    if (f->options->second)
        LMC__TRY(lmc_quantize(f->options->second, f->second, first * q->width, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* The scale of each group: the mean of its elements' bits, which is near the logarithm's; with a
 * linear grid, 2^-9 times that, so that its points reach from a 512th of the mean to 64 times of
 * it. */
static enum lmc_status lmc__fit_scales(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint64_t at = 0, sum = 0, count = 0;
    const uint32_t down = q->grid.is_log ? 0 : 9u << 7,
                   largest = (q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16;
    if (q->n / q->group_size > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    q->n_groups = (size_t)((q->n + q->group_size - 1) / q->group_size);
    q->scales = (uint16_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_groups * sizeof q->scales[0]);
    if (!q->scales) return LMC_ERR_MEMORY;
    while (at < q->n) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        size_t i, part;
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const uint64_t group = (at + i) / q->group_size,
                           end = lmc__min64((group + 1) * q->group_size, q->n);
            uint32_t normal;
            part = (size_t)lmc__min64(n - i, end - at - i);
            sum += f->k->sum_magnitudes(f->x + 4 * i, part, &normal);
            count += normal;
            if (at + i + part == end) {
                const uint32_t mean = count ? (uint32_t)(sum / count) >> 2 : 0x3F80,
                               scale = mean > down + 0x80 ? mean - down : 0x80;
                q->scales[group] = (uint16_t)(scale < largest ? scale : largest);
                sum = count = 0;
            }
        }
        at += n;
    }
    return LMC_OK;
}

/* Elements from one part of the sample to the next. */
static uint64_t lmc__fit_stride(const lmc_quantizer *q)
{
    return q->n < 2 * LMC__FIT_SAMPLE ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / LMC__FIT_SAMPLE);
}

/* The bias with which the largest update of the sample is 2^14, half of what the grid reaches; 0 if
 * there is none within the format's limits. Few that are far above all others, as where the second
 * moment is lost, do not make it coarse: they become exceptions. */
static enum lmc_status lmc__fit_bias(lmc__fit *f, int *found)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    int64_t largest = INT64_MIN / 2, usual;
    uint64_t at;
    uint32_t octave = 512, above = 0, total = 0;
    size_t i;
    memset(f->bins, 0, sizeof f->bins); /* here: of octaves, from 2^-256 on */
    for (at = 0; at < q->n; at += stride) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i++) {
            const uint32_t v = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF,
                           p = lmc__load32(f->s + 4 * i) & 0x7FFFFFFF;
            const int64_t ratio =
                (int64_t)v - (int64_t)((p > q->grid.floor ? p : q->grid.floor) >> 1);
            if (!lmc__is_normal(v) || p > 0x7F800000) continue;
            if (ratio > largest) largest = ratio;
            f->bins[(ratio >> 23) + 256]++;
            total++;
        }
    }
    while (octave > 0 && above <= total / 8192) above += f->bins[--octave];
    usual = ((int64_t)octave - 256 + 5) * ((int64_t)1 << 23); /* 16 times what is usual, and more */
    if (largest > usual) largest = usual;
    largest -= (int64_t)14 << 23;
    *found = largest >= -((int64_t)1 << 30) && largest <= (int64_t)1 << 30;
    if (*found) q->grid.bias = (int32_t)largest;
    return LMC_OK;
}

/* Counts the sample's symbols on the grid; *exceptions: a 100th of it or more cannot be on it. */
static enum lmc_status lmc__count_symbols_of(lmc__fit *f, int *is_off)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    uint64_t at, seen = 0;
    size_t i, part;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
        LMC__TRY(lmc__read_chunk(f, at, n));
        if (q->is_predicted) (void)f->k->quantize_updates(f->symbols, f->x, f->s, n, &q->grid);
        else
            for (i = 0; i < n; i += part) {
                uint32_t scale;
                part = lmc__get_group(q, at + i, n - i, &scale);
                (void)f->k->quantize_rows(f->symbols + i, f->x + 4 * i, part, scale, &q->grid);
            }
        for (i = 0; i < n; i++) f->counts[f->symbols[i]]++;
        seen += n;
    }
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->total = seen - f->counts[0] - f->counts[LMC__EXCEPTION];
    *is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > seen;
    return LMC_OK;
}

/* Square root, rounded down. */
static uint32_t lmc__square_root(uint64_t v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= v) root |= bit;
    return root;
}

/* a / b in units of 2^-32, at most 2^32 - 1. */
static uint32_t lmc__fraction(uint64_t a, uint64_t b)
{
    while (a >> 32) {
        a >>= 1;
        b >>= 1;
    }
    return b == 0 || (a << 32) / b > UINT32_MAX ? UINT32_MAX : (uint32_t)((a << 32) / b);
}

/* What a mean squared error of a log grid's magnitudes (in units of its step, times 12) is in the
 * relative error's: bits of a float are 2^23 to the octave, so an error of them is up to twice as
 * large relative to a float at an octave's begin as at its end; the mean of the square of 1 /
 * mantissa, in octaves that are evenly filled, is 3 / (8 ln 2) = 0.541. Units of 2^-32. */
static uint32_t lmc__log_error(uint64_t squares12, uint64_t n, uint32_t step)
{
    /* (step / 2^23)^2 * 0.541 * squares12 / 12 / n; step is at most 2^24 */
    const uint64_t step2 = (uint64_t)step * step; /* in 2^-46 */
    uint64_t mean = n ? squares12 * 256 / n : 0;  /* in 1/256 */
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
    if ((int)shift < 0 || a >> shift > UINT32_MAX) return UINT32_MAX;
    return (uint32_t)(a >> shift);
}

/* What rounding to BF16 adds: steps of 2^-7 of the octave's begin, 2^-14 / 12 * 0.541 (see
 * lmc__log_error), in units of 2^-32. */
#define LMC__BF16_ERROR 11818u

/* The squared relative error (of second moments: of the elements; else of all together), by the
 * options' measure, in units of 2^-32, of squares12 / 12, the sum of squared errors in grid points.
 */
static uint32_t lmc__measure_error(const lmc__fit *f, uint64_t squares12)
{
    const lmc_quantizer *const q = f->q;
    uint64_t power = 0;
    uint32_t error, s;
    if (q->grid.is_log) error = lmc__log_error(squares12, f->total, q->grid.step);
    else {
        for (s = 1; s < LMC__EXCEPTION; s++) {
            const int64_t v = (int64_t)q->grid.min + s - 1;
            power += f->counts[s] * (uint64_t)(v * v);
        }
        error = power >> 60 ? UINT32_MAX : lmc__fraction(squares12 / 12, power);
        if (q->width == 2)
            error = error > UINT32_MAX - LMC__BF16_ERROR ? UINT32_MAX : error + LMC__BF16_ERROR;
    }
    if (q->info.loss.measure != LMC_MEASURE_UPDATE) return error;
    error = lmc__square_root((uint64_t)error << 32);
    return q->grid.is_log ? error / 2 : error; /* of sqrt(v) */
}

/* The asked bound, in the same units; of measures that are estimated, a hundredth less: on real
 * moments estimates were up to 0.7 % below the truth. */
static uint32_t lmc__get_bound(const lmc_quantizer_options *options)
{
    const uint32_t bound = (uint32_t)(options->bound * 4294967296.0);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* Order-0 bits of counts, times 65536. */
static uint64_t lmc__count_bits(const uint32_t *counts, size_t n)
{
    uint64_t total = 0, logs = 0;
    size_t i;
    for (i = 0; i < n; i++)
        if (counts[i]) {
            total += counts[i];
            logs += (uint64_t)counts[i] * lmc__log2(counts[i]);
        }
    return total ? total * lmc__log2((uint32_t)total) - logs : 0;
}

/* Symbols that occur: first, last; 0, 0 if none does. */
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

/* The code whose symbol is nearest to s; zero: another symbol of code 0, or 0. *code: 1, or what an
 * earlier call for a lower symbol has left. */
static unsigned lmc__find_code(const lmc_quantizer *q, unsigned *code, uint32_t s, uint32_t zero,
                               uint32_t *distance)
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

/* The table of at most k codes, the first for zero. Returns its error. */
static uint32_t lmc__fit_table(lmc__fit *f, unsigned k, uint64_t *bits)
{
    lmc_quantizer *const q = f->q;
    const uint32_t zero =
        q->grid.is_log
            ? 0
            : (uint32_t)(1 - q->grid.min); /* the symbol that a code of its own has already */
    const size_t max_bins = lmc__min(
        16 * (size_t)k, q->n < ((uint64_t)1 << 16)
                            ? 1024
                            : LMC__MAX_BINS); /* 16 to a code; of small tensors, time counts more */
    uint32_t first, last, s, codes[256] = {0}, centres[256], nearest = UINT32_MAX;
    uint64_t squares12 = 0;
    unsigned shift = 0, n_cells, i, n = 0, skip = 256, code;
    lmc__find_range(f, &first, &last);
    while ((last - first) >> shift >= max_bins) shift++;
    memset(f->bins, 0, sizeof f->bins);
    for (s = first; s <= last; s++) f->bins[(s - first) >> shift] += f->counts[s];
    lmc__set_clusters(&f->clusters, f->bins, ((last - first) >> shift) + 1);
    n_cells = lmc__find_cells(&f->clusters, q->grid.is_log ? k - 1 : k, f->ends);
    for (i = 0; i < n_cells; i++) {
        const size_t from = i ? f->ends[i - 1] : 0, to = f->ends[i];
        const uint64_t count = f->clusters.count[to] - f->clusters.count[from],
                       sum = f->clusters.sum[to] - f->clusters.sum[from];
        uint32_t symbol, distance;
        if (count == 0) continue;
        symbol = first + (uint32_t)(((2 * sum + count) << shift) / (2 * count)); /* bins' middles */
        if (symbol > last) symbol = last;
        if (n && symbol <= centres[n - 1]) continue;
        distance = symbol > zero ? symbol - zero : zero - symbol;
        if (zero && distance < nearest) {
            nearest = distance;
            skip = n;
        }
        centres[n++] = symbol;
    }
    q->table[0] = 0;
    q->table_size = 0;
    for (i = 0; i < n; i++) /* of a linear grid, what is nearest to zero becomes zero */
        if (i != skip || (n < k && nearest != 0)) q->table[++q->table_size] = (uint16_t)centres[i];
    for (i = q->table_size + 1; i < 256; i++) q->table[i] = 0;
    /* the nearest code of each symbol */
    memset(q->codes, 0, LMC__SYMBOLS);
    for (s = 1, code = 1; s < LMC__EXCEPTION && q->table_size; s++) {
        uint32_t distance;
        const unsigned best = lmc__find_code(q, &code, s, zero, &distance);
        q->codes[s] = (uint8_t)best;
        codes[best] += f->counts[s];
        squares12 += f->counts[s] * (12 * (uint64_t)distance * distance + 1);
    }
    codes[0] += f->counts[0];
    *bits = lmc__count_bits(codes, 256) + ((uint64_t)(16 * q->table_size) << 16);
    return lmc__measure_error(f, squares12);
}

/* The grid itself as symbols: it is moved to begin where the sample does. Returns 0 if it has too
 * many points. */
static void lmc__fit_grid(lmc__fit *f, uint64_t *bits, unsigned *n_codes)
{
    lmc_quantizer *const q = f->q;
    const unsigned sign = q->grid.is_signed ? 1 : 0;
    uint32_t first, last, s, codes[256] = {0};
    lmc__find_range(f, &first, &last);
    q->table_size = 0;
    first -= (first - 1) & sign;
    if (!q->grid.is_log) { /* zero is a point */
        const uint32_t zero = (uint32_t)(1 - q->grid.min);
        first = first < zero ? first : zero;
        last = last > zero ? last : zero;
    }
    if (q->grid.is_log && q->grid.min + (int32_t)((first - 1) >> sign) > 0)
        first = ((uint32_t)-q->grid.min << sign) + 1;
    q->grid.min += (int32_t)((first - 1) >> sign);
    q->grid.n_points = ((last - first) >> sign) + 1;
    q->low_bits = 0;
    while ((last - first + 1 + sign) >> q->low_bits > 255) q->low_bits++;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->low_bits] += f->counts[s];
        if (f->counts[s]) ++*n_codes;
    }
    codes[0] += f->counts[0];
    *bits = lmc__count_bits(codes, 256) + ((q->low_bits * (f->total + f->counts[0])) << 16);
}

/* Moves the grid of a table to begin where the sample does: then few of its symbols need a code. */
static enum lmc_status lmc__narrow_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint32_t first, last, i;
    uint8_t *codes;
    lmc__find_range(f, &first, &last);
    first = first < (uint32_t)(1 - q->grid.min)
                ? first
                : (uint32_t)(1 - q->grid.min); /* min is at most 0 */
    if (!q->grid.is_log && last < (uint32_t)(1 - q->grid.min))
        last = (uint32_t)(1 - q->grid.min); /* zero is a point */
    codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, last - first + 2);
    if (!codes) return LMC_ERR_MEMORY;
    codes[0] = 0;
    memcpy(codes + 1, q->codes + first, last - first + 1);
    (void)LMC_REALLOC(q->alloc_user, q->codes, q->n_codes, 0);
    q->codes = codes;
    q->n_codes = last - first + 2;
    for (i = 1; i <= q->table_size; i++) q->table[i] = (uint16_t)(q->table[i] - (first - 1));
    q->grid.min += (int32_t)first - 1;
    q->grid.n_points = last - first + 1;
    return LMC_OK;
}

/* Makes a linear grid coarser: by 2^(by / 2^23), or near it. */
static void lmc__coarsen(lmc_quantizer *q, int32_t by)
{
    size_t i;
    if (q->is_predicted) {
        const int32_t most = 1 << 30, bias = q->grid.bias + by; /* of the format */
        q->grid.bias = bias < -most ? -most : bias > most ? most : bias;
    } else
        for (i = 0; i < q->n_groups; i++) {
            const int32_t scale = q->scales[i] + by / 65536;
            q->scales[i] = (uint16_t)(scale<0x80 ? 0x80 : scale>(int32_t)(LMC__MAX_SCALE >> 16)
                                          ? (int32_t)(LMC__MAX_SCALE >> 16)
                                          : scale);
        }
}

/* The error of the grid as it is now, if errors are spread evenly: a 12th of a point, squared;
 * elements that became zero have one, too. */
static uint32_t lmc__even_error(const lmc__fit *f)
{
    return lmc__measure_error(f,
                              f->total + (f->counts[0] > f->zeros ? f->counts[0] - f->zeros : 0));
}

/* A sum of squares of 64 bits. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;
LMC__INLINE void lmc__add_square(lmc__wide_sum *sum, int64_t v)
{
    const uint64_t square = (uint64_t)(v * v);
    sum->low += square;
    sum->high += sum->low < square;
}

/* 2^exponent, -1022 .. 1023. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* What the quantiser, complete by now, loses of a linear tensor: the sample's parts are restored
 * and compared. Of elements, or of updates in units of their scale, which is the divisor of the
 * update within 6 %. Differences of floats are made whole numbers of 31 bits by a power of two:
 * nothing is rounded before that, so that no machine or option of a compiler gives another sum.
 * Units of 2^-32; with UPDATE the root of it. */
static enum lmc_status lmc__measure_loss(lmc__fit *f, uint32_t *error)
{
    const lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__fit_stride(q);
    uint8_t restored[4 * LMC__QUANTISED_STRIP], wide[4 * LMC__QUANTISED_STRIP],
        high[LMC__QUANTISED_STRIP], low[LMC__QUANTISED_STRIP];
    uint16_t symbols[LMC__QUANTISED_STRIP];
    lmc__wide_sum lost = {0, 0}, all = {0, 0};
    uint32_t largest = LMC__MIN_SCALE, pass;
    for (pass = q->is_predicted ? 1 : 0; pass < 2; pass++) {
        uint64_t at;
        for (at = 0; at < q->n; at += stride) {
            const size_t n = (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
            size_t i, j, part;
            LMC__TRY(lmc__read_chunk(f, at, n));
            for (i = 0; i < n; i += part) {
                const uint8_t *y;
                part = lmc__min(n - i, LMC__QUANTISED_STRIP);
                (void)lmc__quantize_strip(f->k, q, high, q->low_bits ? low : NULL, symbols,
                                          restored, f->chunk + i * q->width,
                                          f->second + i * q->width, at + i, part);
                y = lmc__widen(wide, restored, part, q->width);
                for (j = 0; j < part; j++) {
                    const uint32_t v = lmc__load32(f->x + 4 * (i + j)), w = lmc__load32(y + 4 * j);
                    uint32_t scale, factor = 0x80;
                    float a, b;
                    double unit;
                    int64_t difference, value;
                    if (symbols[j] == LMC__EXCEPTION || v == 0) continue;
                    if (pass == 0) {
                        if ((v & 0x7FFFFFFF) > largest) largest = v & 0x7FFFFFFF;
                        continue;
                    }
                    memcpy(&a, &v, 4);
                    memcpy(&b, &w, 4);
                    scale = q->is_predicted
                                ? lmc__predicted_scale(lmc__load32(f->s + 4 * (i + j)), &q->grid)
                                : 0;
                    if (q->is_predicted) factor |= scale >> 16 & 0x7F;
                    /* updates are below 2^16 scales: 2^24 to a scale's power of two makes 41 bits;
                     * over its mantissa, 31 */
                    unit = q->is_predicted ? lmc__power(24 + 127 - (int)(scale >> 23))
                                           : lmc__power(30 + 127 - (int)(largest >> 23) - 1);
                    difference = (int64_t)(((double)a - (double)b) * unit);
                    value = (int64_t)((double)a * unit);
                    if (q->is_predicted) {
                        difference = difference / (int64_t)(2 * factor);
                        value = value / (int64_t)(2 * factor);
                    }
                    lmc__add_square(&lost, difference);
                    lmc__add_square(&all, value);
                }
            }
        }
    }
    while (lost.high | all.high) {
        lost.low = lost.low >> 1 | lost.high << 63;
        all.low = all.low >> 1 | all.high << 63;
        lost.high >>= 1;
        all.high >>= 1;
    }
    *error = lmc__fraction(lost.low, all.low);
    if (q->info.loss.measure == LMC_MEASURE_UPDATE)
        *error = lmc__square_root((uint64_t)*error << 32);
    return LMC_OK;
}

/* By how much, in units of 2^23 to the octave, one is coarser than the other; ratio: 20 bits behind
 * the point, from 1 on. */
static int32_t lmc__octaves(uint64_t ratio)
{
    int32_t by = 0;
    for (; ratio >= 2u << 20 && by < 13 << 23; ratio >>= 1) by += 1 << 23;
    return ratio >= 2u << 20 ? by : by + ((int32_t)(ratio - (1u << 20)) << 3);
}

/* The widest grid whose error is within the bound. *found: there is one. */
static enum lmc_status lmc__fit_grid_to(lmc__fit *f, uint32_t bound, uint64_t *bits,
                                        unsigned *n_codes, uint32_t *error, int *found)
{
    lmc_quantizer *const q = f->q;
    int is_off = 0;
    unsigned tries;
    *found = 0;
    if (q->grid.is_log) {
        /* Evenly spread errors: step^2 / 12 * 0.541 / 2^46 = relative error squared (see
         * lmc__log_error); sqrt(12 / 0.541) = 4.7097 */
        uint64_t relative = q->info.loss.measure == LMC_MEASURE_NMSE
                                ? lmc__square_root((uint64_t)bound << 32)
                                : 2 * (uint64_t)bound,
                 step;
        if (q->info.loss.measure == LMC_MEASURE_RELATIVE)
            step = bound >> 8; /* half a step at the begin of an octave */
        else step = relative * 4709 / 1000 >> 9;
        if (step > 1u << 24) step = 1u << 24;
        if (q->width == 2) step &= ~(uint64_t)0xFFFF; /* BF16 have 16 bits less */
        if (step == 0) return LMC_OK;
        q->grid.step = (uint32_t)step;
        q->grid.n_points = q->grid.is_signed ? 32767 : 65534;
        q->grid.min = -(int32_t)(q->grid.n_points / 2);
        /* magnitudes are within 2^31: fewer points reach all */
        if (q->grid.n_points > 0x7FFFFFFFu / q->grid.step) {
            q->grid.n_points = 0x7FFFFFFFu / q->grid.step;
            q->grid.min = -(int32_t)(q->grid.n_points / 2);
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off || f->total == 0) return LMC_OK;
        *error = q->info.loss.measure != LMC_MEASURE_RELATIVE ? lmc__measure_error(f, f->total)
                 : q->grid.step >> 24                         ? UINT32_MAX
                                                              : q->grid.step << 8;
        *found = 1;
        lmc__fit_grid(f, bits, n_codes);
        return LMC_OK;
    }
    for (tries = 0; tries < 32; tries++) {
        const uint32_t fine = lmc__even_error(f);
        if (fine <= bound) {
            uint64_t ratio = lmc__min64(
                ((uint64_t)bound << 20) / (fine ? fine : 1),
                (uint64_t)1 << 40); /* how much coarser it may be, 20 bits behind the point */
            int32_t by;
            if (q->info.loss.measure == LMC_MEASURE_NMSE) ratio = lmc__square_root(ratio << 20);
            if (tries && ratio < (102u << 20) / 100) break; /* near enough */
            by = lmc__octaves(ratio);
            if (by >> 16 == 0) break;
            lmc__coarsen(q, by & ~0xFFFF);
        } else {
            if (tries == 0) return LMC_OK; /* the finest is too coarse */
            lmc__coarsen(q, -(3 << 16));   /* by 1.6 % */
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
    }
    if (is_off) return LMC_OK;
    for (tries = 0; tries < 16; tries++) { /* so much for what is spread evenly; now as it is */
        uint64_t ratio;
        *n_codes = 0;
        lmc__fit_grid(f, bits, n_codes);
        LMC__TRY(lmc__measure_loss(f, error));
        *found = *error <= bound;
        if (*found) break;
        ratio = ((uint64_t)*error << 20) / bound;
        if (q->info.loss.measure == LMC_MEASURE_NMSE) ratio = lmc__square_root(ratio << 20);
        lmc__coarsen(q, -((lmc__octaves(ratio) & ~0xFFFF) + (2 << 16)));
        q->grid.min = -32767;
        q->grid.n_points = LMC__EXCEPTION - 1;
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off) break;
    }
    return LMC_OK;
}

/* Bits per element without loss, times 2^16, of elements from the middle. */
static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_workspace_size(LMC__FIT_CHUNK),
                 cap = lmc_bound_block(4 * LMC__FIT_CHUNK);
    const lmc_position position = {0, 0};
    enum lmc_status status;
    uint8_t *ws;
    size_t size;
    LMC__TRY(f->elements.read(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->width, f->chunk,
                              LMC__FIT_CHUNK * q->width));
    ws = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    status = lmc__encode_block(f->k, ws + ws_size, cap, &size, f->chunk, LMC__FIT_CHUNK * q->width,
                               NULL, f->options->dtype, LMC_LEVEL_DEFAULT, position, ws, ws_size);
    (void)LMC_REALLOC(q->alloc_user, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc_quantizer *const q = f->q;
    uint32_t error = 0, first, last;
    uint64_t bits = 0, lossless, seen;
    unsigned n_codes = 0;
    int found = 1, is_off;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    q->grid.is_log =
        q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted =
        o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements.read && !q->grid.is_log;
    q->grid.n_points = LMC__EXCEPTION - 1;
    q->grid.min = -32767;
    if (q->is_predicted) {
        const float eps = (float)(o->eps > 0 ? o->eps : 1e-8);
        uint32_t eps_bits;
        memcpy(&eps_bits, &eps, 4);
        q->grid.floor = eps_bits > 0x3F800000u / 2
                            ? 2 * eps_bits - 0x3F800000u
                            : 0; /* half of it, and half of 1, is eps again */
        if (q->grid.floor > 0x7F800000u) q->grid.floor = 0x7F800000u;
        LMC__TRY(lmc__fit_bias(f, &found));
        if (!found) return lmc__keep_lossless(q, "no update is a normal number");
    } else {
        /* a row's share of the tensor, or of a flat shard 256 elements; at least 16, for a scale
         * takes up to 16 bits */
        q->group_size = o->group ? o->group : LMC__DEFAULT_GROUP;
        if (q->group_size < 16) q->group_size *= (16 + q->group_size - 1) / q->group_size;
        if (q->group_size > 0x7FFFFFFF) q->group_size = LMC__DEFAULT_GROUP;
        LMC__TRY(lmc__fit_scales(f));
    }
    if (o->bits == 0 && q->grid.is_log) {
        LMC__TRY(lmc__fit_grid_to(f, lmc__get_bound(o), &bits, &n_codes, &error, &found));
    } else {
        if (q->grid.is_log) { /* points 1/1024 of an octave apart (BF16: all that there are), or
                                 1/256 */
            q->grid.step = q->width == 2 ? 1u << 16 : 1u << 13;
            q->grid.n_points = q->width == 2 ? 32767 : LMC__EXCEPTION - 1;
            q->grid.min = -(int32_t)(q->grid.n_points / 2);
        }
        LMC__TRY(lmc__count_symbols_of(f, &is_off));
        if (is_off && q->grid.is_log && q->width == 4) {
            q->grid.step <<= 2;
            LMC__TRY(lmc__count_symbols_of(f, &is_off));
        }
        if (is_off) return lmc__keep_lossless(q, "more than 1 % of its elements are exceptions");
        f->zeros = f->counts[0];
        if (f->total == 0) return lmc__keep_lossless(q, "all of it is zero");
        if (o->bits) {
            q->codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, LMC__SYMBOLS);
            q->n_codes = LMC__SYMBOLS;
            if (!q->codes) return LMC_ERR_MEMORY;
            error = lmc__fit_table(f, 1u << o->bits, &bits);
            if (q->table_size == 0) return lmc__keep_lossless(q, "all of it is zero");
            LMC__TRY(lmc__narrow_table(f));
            if (!q->grid.is_log) LMC__TRY(lmc__measure_loss(f, &error));
            n_codes = q->table_size + 1;
        } else LMC__TRY(lmc__fit_grid_to(f, lmc__get_bound(o), &bits, &n_codes, &error, &found));
    }
    lmc__find_range(f, &first, &last);
    if (!found) return lmc__keep_lossless(q, "no grid holds the bound");
    q->info.is_grid = q->table_size == 0;
    q->info.n_codes = n_codes;
    q->info.loss.generation = o->generation + 1;
    q->info.loss.error = error / 4294967296.0;
    seen = f->total + f->counts[0] + f->counts[LMC__EXCEPTION];
    bits += (uint64_t)f->counts[LMC__EXCEPTION] * (32 + 8 * q->width) << 16;
    q->info.bits = (double)bits / 65536.0 / (double)seen +
                   (q->is_predicted ? 0.0 : 12.0 / (double)q->group_size);
    bits = bits / seen + (q->is_predicted ? 0 : (12u << 16) / q->group_size);
    if (10 * bits > 9 * lossless) return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

LMC_API enum lmc_status lmc_fit_quantizer(lmc_quantizer **quantizer, const lmc_elements *elements,
                                          const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    lmc_quantizer *q;
    lmc__fit *f;
    if (!quantizer || !elements || !elements->read || !options ||
        (unsigned)options->dtype >= LMC_DTYPE_COUNT || options->generation > 254 ||
        (unsigned)options->role > LMC_ROLE_SECOND_MOMENT ||
        elements->size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (options->bits ? options->bits < 4 || options->bits > 8
                      : !(options->bound > 0) || !(options->bound < 1) ||
                            (unsigned)options->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (options->second_elements.read &&
        (options->second_elements.size != elements->size ||
         (options->second &&
          (options->second->n != elements->size / lmc_dtype_width(options->dtype) ||
           options->second->width != lmc_dtype_width(options->dtype) ||
           options->second->is_predicted))))
        return LMC_ERR_ARGUMENT;
    q = (lmc_quantizer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = options->alloc_user;
    q->info.reason = "";
    q->width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->width;
    q->info.loss.measure = options->bits == 0                ? options->measure
                           : options->role == LMC_ROLE_OTHER ? LMC_MEASURE_NMSE
                                                             : LMC_MEASURE_UPDATE;
    if (options->dtype != LMC_F32 && options->dtype != LMC_BF16)
        (void)lmc__keep_lossless(q, "its elements are not F32 or BF16");
    else if (q->n < LMC__MIN_QUANTISED)
        (void)lmc__keep_lossless(q, "it has fewer than 16,384 elements");
    else if (q->info.loss.measure == LMC_MEASURE_UPDATE && options->role == LMC_ROLE_OTHER)
        (void)lmc__keep_lossless(q, "only moments have an update");
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
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}

LMC_API void lmc_free_quantizer(lmc_quantizer *q)
{
    if (!q) return;
    if (q->codes) (void)LMC_REALLOC(q->alloc_user, q->codes, q->n_codes, 0);
    if (q->scales)
        (void)LMC_REALLOC(q->alloc_user, q->scales, q->n_groups * sizeof q->scales[0], 0);
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
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t *const p = (uint8_t *)data;
    const uint8_t *const s = (const uint8_t *)second;
    uint16_t symbols[LMC__QUANTISED_STRIP];
    uint8_t high[LMC__QUANTISED_STRIP], low[LMC__QUANTISED_STRIP];
    size_t i, part;
    if (!q || (!data && size) || offset % q->width || size % q->width || offset > q->n * q->width ||
        size > q->n * q->width - offset)
        return LMC_ERR_ARGUMENT;
    if (q->info.is_lossless || q->is_recovered)
        return LMC_OK; /* which is exact, whatever the elements */
    if (q->is_predicted && !second && size) return LMC_ERR_ARGUMENT;
    for (i = 0; i < size; i += part) {
        part = lmc__min(size - i, LMC__QUANTISED_STRIP * (size_t)q->width);
        (void)lmc__quantize_strip(k, q, high, q->low_bits ? low : NULL, symbols, p + i, p + i,
                                  s ? s + i : NULL, (offset + i) / q->width, part / q->width);
    }
    return LMC_OK;
}

/* == snapshot/buffer.h ============================================================================ */

typedef struct lmc__buffer {
    uint8_t *data;
    size_t size, cap;
    void *alloc_user;
} lmc__buffer;

static void lmc__free_buffer(lmc__buffer *b)
{
    if (b->data) (void)LMC_REALLOC(b->alloc_user, b->data, b->cap, 0);
    b->data = NULL;
    b->size = b->cap = 0;
}

/* Room for `more` bytes behind the size that is in use; capacity grows by halves, so that appending
 * is linear. */
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

/* Appends `more` bytes, data or zeros if data is NULL. */
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

/* == snapshot/sha256.h ============================================================================ */

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

/* == snapshot/identity.h ========================================================================== */

/* Identities of a file's tensors and the CRC of the file, from its bytes in *pieces*: a piece lies
 * in one block, and in one leaf of one tensor (spec 9.2) or in none. Pieces are planned in order,
 * their CRCs taken in parallel, then absorbed in order. A file without tensors counts as one
 * tensor. */
typedef struct lmc__digester {
    const lmc_file *file;
    uint64_t planned; /* how far pieces are planned */
    size_t planned_tensor;
    uint64_t absorbed;    /* bytes of the file */
    size_t tensor;        /* the one that is being absorbed, or next */
    uint64_t tensor_done; /* bytes of it */
    uint32_t file_crc, leaf_crc, leaf_size;
    lmc__sha256 sha;
    uint8_t *identities; /* where they go: 32 bytes for each tensor, or for the file */
} lmc__digester;

static void lmc__begin_identity(lmc__digester *d)
{
    lmc__sha256_init(&d->sha);
    lmc__sha256_update(&d->sha, "LMC tensor 1", 13);
    d->tensor_done = 0;
    d->leaf_size = d->leaf_crc = 0;
}

static void lmc__begin_digester(lmc__digester *d, const lmc_file *file)
{
    memset(d, 0, sizeof *d);
    d->file = file;
    lmc__begin_identity(d);
}

static size_t lmc__count_identities(const lmc_file *file)
{
    return file->n_tensors ? file->n_tensors : 1;
}

/* The next piece, at most max > 0 bytes. */
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

static void lmc__finish_identity_to(lmc__digester *d, uint8_t *identity)
{
    const lmc_tensor *t = d->file->n_tensors ? &d->file->tensors[d->tensor] : NULL;
    const char *dtype = t ? t->dtype : "U8";
    const unsigned rank = t ? t->rank : 1;
    uint8_t field[8];
    unsigned i;
    if (d->leaf_size) {
        lmc__store32(field, d->leaf_crc);
        lmc__sha256_update(&d->sha, field, 4);
    }
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

static void lmc__finish_identity(lmc__digester *d)
{
    lmc__finish_identity_to(d, d->identities + d->tensor * LMC_IDENTITY_SIZE);
}

/* Tensors that are complete now, empty ones included. */
static void lmc__finish_identities(lmc__digester *d)
{
    while (d->tensor < d->file->n_tensors && d->tensor_done == d->file->tensors[d->tensor].size)
        lmc__finish_identity(d);
}

static void lmc__absorb_piece(lmc__digester *d, const lmc__piece *piece)
{
    d->file_crc = lmc__crc_combine(d->file_crc, piece->crc, piece->size);
    d->absorbed += piece->size;
    if (!piece->in_tensor) return;
    lmc__finish_identities(d);
    d->leaf_crc = lmc__crc_combine(d->leaf_crc, piece->crc, piece->size);
    d->leaf_size += piece->size;
    d->tensor_done += piece->size;
    if (d->leaf_size == LMC__LEAF_SIZE) {
        uint8_t field[4];
        lmc__store32(field, d->leaf_crc);
        lmc__sha256_update(&d->sha, field, 4);
        d->leaf_size = d->leaf_crc = 0;
    }
}

/* All bytes of the file are absorbed. */
static void lmc__finish_digester(lmc__digester *d)
{
    if (d->file->n_tensors) lmc__finish_identities(d);
    else lmc__finish_identity(d);
}

/* == snapshot/pipeline.h ========================================================================== */

/* Bytes to be written. */
typedef struct lmc__part {
    const uint8_t *data;
    size_t size;
} lmc__part;

/* Buffers and workspaces of waves; grow to what the blocks at hand need. Writer and restorer code a
 * wave while what the wave before it has made is written and what the next one needs is read, so
 * they have two buffers of each kind. Reading and writing are tasks beside those that code: no
 * threads but those of the caller's lmc_parallel. */
typedef struct lmc__coder {
    lmc__wave wave;
    const lmc_parallel *parallel;
    lmc__buffer jobs, pieces, workspaces, in[2], out[2];
    lmc__buffer base;    /* encoding: predictions of the wave's blocks */
    size_t max_jobs;     /* the reader: of one wave */
    size_t n_jobs;       /* of the wave that is being planned */
    unsigned out_number; /* the wave at hand makes out[out_number] */
    lmc_task task;       /* what the jobs are */
    lmc_sink sink;       /* takes the parts; write NULL: nobody wants them */
    lmc__buffer parts;   /* of the other out */
    int write_failed;
    lmc_stream stream;
    uint8_t
        *read_to; /* what is wanted of the stream: read_size bytes, of which read_got are there */
    size_t read_size, read_got;
    size_t read_portion; /* the most that is read beside one wave */
    int read_failed, ended;
} lmc__coder;

static void lmc__open_coder(lmc__coder *c, const lmc_parallel *parallel, void *alloc_user)
{
    memset(c, 0, sizeof *c);
    c->wave.k = lmc__get_kernels();
    c->parallel = parallel;
    c->jobs.alloc_user = c->pieces.alloc_user = c->workspaces.alloc_user = c->parts.alloc_user =
        alloc_user;
    c->base.alloc_user = c->in[0].alloc_user = c->in[1].alloc_user = c->out[0].alloc_user =
        c->out[1].alloc_user = alloc_user;
}

static void lmc__free_coder(lmc__coder *c)
{
    unsigned i;
    lmc__free_buffer(&c->jobs);
    lmc__free_buffer(&c->pieces);
    lmc__free_buffer(&c->workspaces);
    lmc__free_buffer(&c->parts);
    lmc__free_buffer(&c->base);
    for (i = 0; i < 2; i++) {
        lmc__free_buffer(&c->in[i]);
        lmc__free_buffer(&c->out[i]);
    }
}

/* Prepare for blocks of up to block_size bytes, n_elements elements each, beside those that are
 * planned; in_parts: to decode blocks of which only a part is kept. */
static enum lmc_status lmc__set_coder(lmc__coder *c, size_t block_size, size_t n_elements,
                                      int in_parts)
{
    const size_t temp_size = in_parts ? (block_size + 15) & ~(size_t)15 : 0;
    const size_t size = ((lmc_workspace_size(n_elements) + 15) & ~(size_t)15) + temp_size;
    c->max_jobs = lmc__count_jobs(c->parallel, block_size);
    LMC__TRY(lmc__reserve(&c->jobs, c->max_jobs * sizeof(lmc__job)));
    if (size > c->wave.workspace_size) c->wave.workspace_size = size;
    LMC__TRY(lmc__reserve(&c->workspaces,
                          (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));
    c->wave.jobs = (lmc__job *)(void *)c->jobs.data;
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

/* Room for one more job of the wave. */
static enum lmc_status lmc__add_job(lmc__coder *c, lmc__job **job)
{
    c->jobs.size = c->n_jobs * sizeof **job;
    LMC__TRY(lmc__append(&c->jobs, NULL, sizeof **job));
    c->wave.jobs = (lmc__job *)(void *)c->jobs.data;
    *job = &c->wave.jobs[c->n_jobs++];
    return LMC_OK;
}

static enum lmc_status lmc__add_part(lmc__coder *c, const uint8_t *data, size_t size)
{
    lmc__part part;
    part.data = data;
    part.size = size;
    return c->sink.write && size ? lmc__append(&c->parts, &part, sizeof part) : LMC_OK;
}

static void lmc__write_parts(lmc__coder *c)
{
    const lmc__part *part = (const lmc__part *)(const void *)c->parts.data;
    size_t i;
    for (i = 0; i < c->parts.size / sizeof *part && !c->write_failed; i++)
        c->write_failed = c->sink.write(c->sink.user, part[i].data, part[i].size) != 0;
}

/* Continue with what is wanted of the stream, up to a portion. */
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

static void lmc__step_task(void *arg, size_t index, unsigned worker)
{
    lmc__coder *c = (lmc__coder *)arg;
    if (index == 0) lmc__write_parts(c); /* first what takes longest */
    else if (index == 1) lmc__read_portion(c);
    else c->task(&c->wave, index - 2, worker);
}

/* Code the wave that is planned, write the parts, read. */
static enum lmc_status lmc__run_step(lmc__coder *c)
{
    const size_t n = c->n_jobs;
    size_t i;
    c->wave.pieces = (lmc__piece *)(void *)c->pieces.data;
    if (c->parallel && n > 0) c->parallel->run(c->parallel->user, lmc__step_task, c, n + 2);
    else
        for (i = 0; i < n + 2; i++) lmc__step_task(c, i, 0);
    c->parts.size = 0;
    c->n_jobs = 0;
    c->base.size = 0;
    if (c->write_failed) return LMC_ERR_WRITE;
    LMC__TRY(lmc__wave_status(&c->wave, n));
    return c->read_failed ? LMC_ERR_READ : LMC_OK;
}

/* Write what is still to be written. */
static enum lmc_status lmc__drain(lmc__coder *c)
{
    lmc__write_parts(c);
    c->parts.size = 0;
    return c->write_failed ? LMC_ERR_WRITE : LMC_OK;
}

/* Ask for size bytes of the stream, to come with the next steps. */
static void lmc__want(lmc__coder *c, uint8_t *dst, size_t size, size_t portion)
{
    c->read_to = dst;
    c->read_size = size;
    c->read_got = 0;
    c->read_portion = portion;
}

/* Plan the pieces of a job that covers the next size bytes of the digester's file. */
static enum lmc_status lmc__plan_job(lmc__coder *c, lmc__digester *d, lmc__job *job, size_t size)
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

static void lmc__absorb_pieces(lmc__coder *c, lmc__digester *d)
{
    size_t i;
    for (i = 0; i < c->pieces.size / sizeof(lmc__piece); i++)
        lmc__absorb_piece(d, &c->wave.pieces[i]);
    c->pieces.size = 0;
}

/* == snapshot/names.h ============================================================================= */

/* Something with a name, and an identity where that counts. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *identity;  /* or NULL */
    size_t file_number;       /* of the base's items: where it is */
    const lmc_tensor *tensor; /* NULL: the whole file */
} lmc__item;

static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

static int lmc__compare_items(const lmc__item *a, const lmc__item *b)
{
    int order = lmc__compare_names(a, b);
    return order || !a->identity ? order : memcmp(a->identity, b->identity, LMC_IDENTITY_SIZE);
}

/* Heap sort: n log n whatever the input, no memory. */
static void lmc__sort_items(lmc__item *items, size_t n)
{
    size_t start = n / 2, end = n;
    while (end > 1) {
        size_t root, child;
        lmc__item item;
        if (start > 0) item = items[--start];
        else {
            item = items[--end];
            items[end] = items[0];
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && lmc__compare_items(&items[child], &items[child + 1]) < 0)
                child++;
            if (lmc__compare_items(&item, &items[child]) >= 0) break;
            items[root] = items[child];
        }
        items[root] = item;
    }
}

/* items are sorted */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

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

/* Add the path of file number n to the set, or refuse it (CORRUPT) if it is there already. The set
 * holds 64 bits of each path's SHA-256: a table of open addressing, at most half full, 0 for free.
 */
static enum lmc_status lmc__add_path(lmc__buffer *set, size_t n, const char *path)
{
    uint8_t digest[32];
    lmc__sha256 sha;
    uint64_t key, *table = (uint64_t *)(void *)set->data;
    size_t size = set->size / 8, i;
    if (n >= size / 2) {
        lmc__buffer old = *set;
        const uint64_t *const from = table;
        enum lmc_status status;
        memset(set, 0, sizeof *set);
        set->alloc_user = old.alloc_user;
        size = size ? 2 * size : 64;
        status = lmc__append(set, NULL, 8 * size);
        table = (uint64_t *)(void *)set->data;
        for (i = 0; status == LMC_OK && i < old.size / 8; i++) {
            size_t at = (size_t)from[i] & (size - 1);
            if (from[i] == 0) continue;
            while (table[at]) at = (at + 1) & (size - 1);
            table[at] = from[i];
        }
        lmc__free_buffer(&old);
        LMC__TRY(status);
    }
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, path, strlen(path));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) | 1;
    for (i = (size_t)key & (size - 1); table[i]; i = (i + 1) & (size - 1))
        LMC__CHECK(table[i] != key, LMC_ERR_CORRUPT);
    table[i] = key;
    return LMC_OK;
}

/* == snapshot/sections.h ========================================================================== */

static void lmc__put_section_header(uint8_t *dst, const char *kind, uint32_t number,
                                    const uint8_t *body, uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store32(dst + 4, number);
    lmc__store64(dst + 8, size);
    lmc__store32(dst + 16, k->crc32c(0, dst, 16));
    lmc__store32(dst + 20, k->crc32c(0, body, (size_t)size));
}

/* The head of a section; whoever reads its body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint32_t number;
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

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

static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

/* Path rules of spec 5.1. */
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
 * times bits, over 8. */
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

/* A FILE body, checked, as a lmc_file whose arrays and strings are in *memory (one allocation, the
 * lmc_tensors first). */
static enum lmc_status lmc__parse_file(lmc_file *file, lmc__buffer *memory, const uint8_t *body,
                                       size_t size)
{
    const uint8_t *p = body, *const end = size ? body + size : body; /* body may be NULL */
    uint64_t n_words = 0, n_chars = 0, position = 0;
    uint32_t path_size, n_tensors, i;
    unsigned j;
    lmc_tensor *tensors;
    uint64_t *words;
    char *chars;
    lmc__item *items;

    memset(file, 0, sizeof *file);
    LMC__CHECK(size >= LMC__FILE_BODY_SIZE, LMC_ERR_CORRUPT);
    file->size = lmc__load64(p);
    LMC__CHECK(p[8] <= LMC_FILE_DIRECTORY && p[9] <= (LMC__HAS_MODE | LMC__HAS_MTIME) &&
                   p[10] == 0 && p[11] == 0,
               LMC_ERR_UNSUPPORTED);
    file->kind = p[8] == LMC_FILE_DIRECTORY ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    file->has_mode = (p[9] & LMC__HAS_MODE) != 0;
    file->has_mtime = (p[9] & LMC__HAS_MTIME) != 0;
    file->mode = lmc__load32(p + 12);
    file->mtime_s = (int64_t)lmc__load64(p + 16);
    file->mtime_ns = lmc__load32(p + 24);
    path_size = lmc__load32(p + 28);
    n_tensors = lmc__load32(p + 32);
    LMC__CHECK(file->size <= LMC__MAX_FILE_SIZE || file->size == LMC_UNKNOWN_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(file->mode <= (file->has_mode ? 07777u : 0u), LMC_ERR_CORRUPT);
    LMC__CHECK(file->mtime_ns <= 999999999u &&
                   (file->has_mtime || (file->mtime_s == 0 && file->mtime_ns == 0)),
               LMC_ERR_CORRUPT);
    LMC__CHECK(file->kind != LMC_FILE_DIRECTORY || file->size == 0, LMC_ERR_CORRUPT);
    LMC__CHECK(n_tensors == 0 ||
                   (file->size != LMC_UNKNOWN_SIZE && file->kind != LMC_FILE_DIRECTORY),
               LMC_ERR_CORRUPT);
    LMC__CHECK(n_tensors <= LMC__MAX_TENSORS && path_size <= LMC__MAX_STRING, LMC_ERR_CORRUPT);
    p += LMC__FILE_BODY_SIZE;
    LMC__CHECK((size_t)(end - p) >= path_size && lmc__is_path(p, path_size), LMC_ERR_CORRUPT);
    p += path_size;

    /* First pass: everything fits, and how much memory it takes. An entry takes 25 bytes at least,
     * so this is linear in size. */
    for (i = 0; i < n_tensors; i++) {
        uint32_t name_size;
        size_t more;
        LMC__CHECK((size_t)(end - p) >= LMC__TENSOR_ENTRY_SIZE, LMC_ERR_CORRUPT);
        name_size = lmc__load32(p + 16);
        LMC__CHECK(name_size <= LMC__MAX_STRING && p[20] >= 1 && p[20] <= LMC__MAX_DTYPE_SIZE &&
                       p[21] <= LMC_MAX_RANK,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(p[22] ? p[23] >= LMC_MEASURE_UPDATE && p[23] <= LMC_MEASURE_NMSE : p[23] == 0,
                   LMC_ERR_CORRUPT);
        more = LMC__TENSOR_ENTRY_SIZE + 8u * p[21] + name_size + p[20] + (p[22] ? 4u : 0u);
        LMC__CHECK((size_t)(end - p) >= more, LMC_ERR_CORRUPT);
        n_words += p[21];
        n_chars += name_size + p[20] + 2u;
        p += more;
    }
    LMC__CHECK(p == end, LMC_ERR_CORRUPT);

    memory->size = 0;
    LMC__TRY(lmc__reserve(memory, n_tensors * (uint64_t)(sizeof(lmc_tensor) + sizeof(lmc__item)) +
                                      8 * n_words + n_chars + path_size + 1));
    tensors = (lmc_tensor *)(void *)memory->data;
    words = (uint64_t *)(void *)(tensors + n_tensors); /* in order of falling alignment */
    items = (lmc__item *)(void *)(words + n_words);
    chars = (char *)(items + n_tensors);
    p = body + LMC__FILE_BODY_SIZE;
    memcpy(chars, p, path_size);
    chars[path_size] = 0;
    file->path = chars;
    chars += path_size + 1;
    p += path_size;
    for (i = 0; i < n_tensors; i++) {
        lmc_tensor *t = &tensors[i];
        const uint32_t name_size = lmc__load32(p + 16), dtype_size = p[20];
        enum lmc_dtype dtype;
        memset(t, 0, sizeof *t);
        t->offset = lmc__load64(p);
        t->size = lmc__load64(p + 8);
        t->rank = p[21];
        t->loss.generation = p[22];
        t->loss.measure = (enum lmc_measure)p[23];
        t->shape = words;
        p += LMC__TENSOR_ENTRY_SIZE;
        for (j = 0; j < t->rank; j++, p += 8) *words++ = lmc__load64(p);
        LMC__CHECK(memchr(p, 0, name_size + dtype_size) == NULL, LMC_ERR_CORRUPT);
        memcpy(chars, p, name_size);
        chars[name_size] = 0;
        t->name = chars;
        items[i].name = (const uint8_t *)chars;
        items[i].size = name_size;
        items[i].identity = NULL;
        chars += name_size + 1;
        p += name_size;
        memcpy(chars, p, dtype_size);
        chars[dtype_size] = 0;
        t->dtype = chars;
        chars += dtype_size + 1;
        p += dtype_size;
        if (t->loss.generation) {
            t->loss.error = lmc__load32(p) / 4294967296.0;
            p += 4;
        }
        LMC__CHECK(t->offset >= position && t->offset <= file->size &&
                       t->size <= file->size - t->offset,
                   LMC_ERR_CORRUPT);
        position = t->offset + t->size;
        dtype = lmc_find_dtype(t->dtype);
        LMC__CHECK(dtype == LMC_AUTO ||
                       lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) == t->size,
                   LMC_ERR_CORRUPT);
    }
    lmc__sort_items(items, n_tensors);
    LMC__CHECK(!lmc__has_duplicates(items, n_tensors), LMC_ERR_CORRUPT);
    file->n_tensors = n_tensors;
    file->tensors = n_tensors ? tensors : NULL;
    return LMC_OK;
}

/* What a tensor is quantised by, or NULL. */
static const lmc_quantizer *lmc__get_quantizer(const lmc_tensor *t)
{
    return t && t->quantizer && !t->quantizer->info.is_lossless ? t->quantizer : NULL;
}

/* What is to be said of a tensor that is written; returns whether anything was lost. */
static int lmc__get_loss(const lmc_tensor *t, lmc_loss *loss)
{
    const lmc_quantizer *const q = lmc__get_quantizer(t);
    *loss = q ? q->info.loss : t->loss;
    return loss->generation != 0;
}

/* The FILE body of a description from the caller; strings of it are measured here, everything else
 * lmc__parse_file checks. */
static enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file)
{
    uint8_t head[LMC__FILE_BODY_SIZE];
    size_t i, n;
    unsigned j;
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
    for (i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *t = &file->tensors[i];
        uint8_t entry[LMC__TENSOR_ENTRY_SIZE];
        size_t dtype_size;
        lmc_loss loss;
        if (!t->name || !t->dtype || (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
            return LMC_ERR_ARGUMENT;
        n = strlen(t->name);
        dtype_size = strlen(t->dtype);
        if (n > LMC__MAX_STRING || dtype_size < 1 || dtype_size > LMC__MAX_DTYPE_SIZE)
            return LMC_ERR_ARGUMENT;
        memset(entry, 0, sizeof entry);
        lmc__store64(entry, t->offset);
        lmc__store64(entry + 8, t->size);
        lmc__store32(entry + 16, (uint32_t)n);
        entry[20] = (uint8_t)dtype_size;
        entry[21] = (uint8_t)t->rank;
        if (lmc__get_loss(t, &loss)) {
            if (loss.generation > 255 || !(loss.error >= 0) || loss.error > 1)
                return LMC_ERR_ARGUMENT; /* the measure: see lmc__parse_file */
            entry[22] = (uint8_t)loss.generation;
            entry[23] = (uint8_t)loss.measure;
        }
        LMC__TRY(lmc__append(out, entry, sizeof entry));
        for (j = 0; j < t->rank; j++) {
            uint8_t field[8];
            lmc__store64(field, t->shape[j]);
            LMC__TRY(lmc__append(out, field, 8));
        }
        LMC__TRY(lmc__append(out, t->name, n));
        LMC__TRY(lmc__append(out, t->dtype, dtype_size));
        if (loss.generation)
            LMC__TRY(lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0)
                                                       : UINT32_MAX));
    }
    return LMC_OK;
}

typedef struct lmc__run {
    uint64_t start; /* within the file */
    uint64_t size;
    size_t block_size;
    uint64_t n_blocks; /* at most 2^32 - 1 */
    size_t file_number;
    unsigned prediction, conversion;
    const uint8_t *segments; /* in the body */
    uint32_t n_segments;
} lmc__run;

/* A RUN body that continues file number file_number, of which *position bytes have been covered;
 * advances *position. */
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
        const uint8_t *p = body + LMC__RUN_BODY_SIZE + (size_t)LMC__SEGMENT_SIZE * i;
        const uint64_t segment_size = lmc__load64(p + 16);
        LMC__CHECK(lmc__load32(p + 4) == 0 ? lmc__load64(p + 24) == 0
                                           : body[9] != LMC__PREDICT_ZERO,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(body[10] == 0 || segment_size % 2 == 0, LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load32(p) == file_number && lmc__load64(p + 8) == *position,
                   LMC_ERR_CORRUPT);
        LMC__CHECK(segment_size >= 1 && segment_size <= limit - *position &&
                       segment_size <= run->size - sum,
                   LMC_ERR_CORRUPT);
        *position += segment_size;
        sum += segment_size;
    }
    LMC__CHECK(sum == run->size, LMC_ERR_CORRUPT);
    run->block_size = (size_t)1 << body[8];
    run->n_blocks = run->size / run->block_size + (run->size % run->block_size ? 1 : 0);
    LMC__CHECK(run->n_blocks <= UINT32_MAX, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Decoded size of a block. */
LMC__INLINE size_t lmc__block_size_at(const lmc__run *run, uint64_t block)
{
    return (size_t)lmc__min64(run->block_size, run->size - block * run->block_size);
}

/* Identity of the snapshot (spec 9.3), of items in any order: sorts them. */
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

/* Size of the index entry at p, which is known to be sound. */
static size_t lmc__entry_size(const uint8_t *p)
{
    const uint8_t *body = p + 8 + LMC__SECTION_HEADER_SIZE;
    const size_t size = 8 + LMC__SECTION_HEADER_SIZE + (size_t)lmc__load64(p + 16);
    if (p[8] == 'F') {
        const uint32_t n_tensors = lmc__load32(body + 32);
        return size + 16 + (size_t)LMC_IDENTITY_SIZE * (n_tensors ? n_tensors : 1);
    } else {
        const uint64_t run_size = lmc__load64(body), block_size = (uint64_t)1 << body[8];
        return size + LMC__BLOCK_ENTRY_SIZE *
                          (size_t)(run_size / block_size + (run_size % block_size ? 1 : 0));
    }
}

/* Names and identities of everything that has them among n_entries sound index entries at p. */
static enum lmc_status lmc__collect_items(lmc__buffer *items, const uint8_t *p, uint64_t n_entries)
{
    items->size = 0;
    for (; n_entries > 0; n_entries--, p += lmc__entry_size(p)) {
        const uint8_t *body = p + 8 + LMC__SECTION_HEADER_SIZE;
        if (p[8] == 'F') {
            const uint32_t path_size = lmc__load32(body + 28), n_tensors = lmc__load32(body + 32);
            const uint8_t *entry = body + LMC__FILE_BODY_SIZE + path_size,
                          *identity = body + (size_t)lmc__load64(p + 16) + 16;
            uint32_t i;
            if (n_tensors == 0)
                LMC__TRY(lmc__append_item(items, body + LMC__FILE_BODY_SIZE, path_size, identity));
            for (i = 0; i < n_tensors; i++) {
                const uint32_t name_size = lmc__load32(entry + 16);
                const uint8_t *name = entry + LMC__TENSOR_ENTRY_SIZE + 8u * entry[21];
                LMC__TRY(lmc__append_item(items, name, name_size,
                                          identity + (size_t)LMC_IDENTITY_SIZE * i));
                entry = name + name_size + entry[20] + (entry[22] ? 4 : 0);
            }
        }
    }
    return LMC_OK;
}

#define LMC__DEFAULT_INDEX_LIMIT ((uint64_t)1 << 30)

static int lmc__has_base(const uint8_t *header)
{
    unsigned i, any = 0;
    for (i = 32; i < 64; i++) any |= header[i];
    return any != 0;
}

/* File_Header (spec 4); header has LMC__HEADER_SIZE bytes. */
static enum lmc_status lmc__check_header(const uint8_t *header, const lmc__kernels *k)
{
    size_t i;
    LMC__CHECK(memcmp(header, lmc__magic, 8) == 0, LMC_ERR_NOT_LMC);
    LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);
    LMC__CHECK(k->crc32c(0, header, 76) == lmc__load32(header + 76), LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load16(header + 10) == LMC__HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(header + 16) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(lmc__load32(header + 12) <= LMC__FLAG_SEQUENTIAL, LMC_ERR_UNSUPPORTED);
    for (i = 68; i < 76; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* reserved */
    LMC__CHECK((lmc__load32(header + 64) != 0) == lmc__has_base(header), LMC_ERR_CORRUPT);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_header(const void *header,
                                        uint8_t base_identity[LMC_IDENTITY_SIZE],
                                        uint32_t *chain_depth)
{
    if (!header || !base_identity || !chain_depth) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_header((const uint8_t *)header, lmc__get_kernels()));
    memcpy(base_identity, (const uint8_t *)header + 32, LMC_IDENTITY_SIZE);
    *chain_depth = lmc__load32((const uint8_t *)header + 64);
    return LMC_OK;
}

/* *total += size, if the limits allow that. */
static int lmc__add_total(uint64_t *total, uint64_t size, const lmc_limits *limits)
{
    const uint64_t most = limits->max_total_size ? limits->max_total_size : UINT64_MAX;
    if (size > most || *total > most - size) return 0;
    *total += size;
    return 1;
}

/* The beginning of an input that has only size bytes of a header: what to say of it. */
static enum lmc_status lmc__short_header(const uint8_t *header, size_t size)
{
    return size >= 8 && memcmp(header, lmc__magic, 8) == 0 ? LMC_ERR_TRUNCATED : LMC_ERR_NOT_LMC;
}

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

/* Metadata entries, exactly [p, end). */
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

/* Bytes of a file. */
typedef struct lmc__range {
    size_t file_number;
    uint64_t start, end;
} lmc__range;

/* Where the predictions of runs come from. */
typedef struct lmc__origin {
    const lmc_base *base;                /* or NULL */
    lmc__buffer items;                   /* of the base, in order: lmc__item */
    uint8_t identity[LMC_IDENTITY_SIZE]; /* of the base */
    enum lmc_status (*read_back)(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size); /* of this snapshot, or NULL */
    int in_place; /* its files are those of the base, too, which is not at hand otherwise */
    void *user;
    lmc__buffer ranges; /* lmc__range, in order and not touching: what can be read back */
    lmc__buffer wide;   /* of a conversion */
} lmc__origin;

static enum lmc_status lmc__open_origin(lmc__origin *o, const lmc_base *base, void *alloc_user)
{
    size_t i, j;
    memset(o, 0, sizeof *o);
    o->items.alloc_user = o->ranges.alloc_user = o->wide.alloc_user = alloc_user;
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

static void lmc__free_origin(lmc__origin *o)
{
    lmc__free_buffer(&o->items);
    lmc__free_buffer(&o->ranges);
    lmc__free_buffer(&o->wide);
}

static const lmc__item *lmc__get_item(const lmc__origin *o, size_t i)
{
    return (const lmc__item *)(const void *)o->items.data + i;
}
static uint64_t lmc__item_size(const lmc__origin *o, const lmc__item *item)
{
    return item->tensor ? item->tensor->size
                        : o->base->get_file(o->base->user, item->file_number)->size;
}

/* The number of the item that may predict `size` bytes of that name and dtype (NULL: a file's),
 * plus 1; or 0. Of several, the one in the file of that path: optimizer states have the names of
 * their weights. */
static uint32_t lmc__match_item(const lmc__origin *o, const char *path, const char *name,
                                const char *dtype, uint64_t size)
{
    const size_t n = o->items.size / sizeof(lmc__item);
    size_t low = 0, high = n;
    uint32_t found = 0;
    lmc__item wanted;
    wanted.name = (const uint8_t *)name;
    wanted.size = strlen(name);
    while (low < high) { /* the first that is not before */
        const size_t middle = low + (high - low) / 2;
        if (lmc__compare_names(lmc__get_item(o, middle), &wanted) < 0) low = middle + 1;
        else high = middle;
    }
    for (; low < n && low < UINT32_MAX && lmc__compare_names(lmc__get_item(o, low), &wanted) == 0;
         low++) {
        const lmc__item *item = lmc__get_item(o, low);
        const int is_of_path =
            strcmp(o->base->get_file(o->base->user, item->file_number)->path, path) == 0;
        if ((item->tensor != NULL) != (dtype != NULL) ||
            (dtype && strcmp(item->tensor->dtype, dtype) != 0) || lmc__item_size(o, item) != size)
            continue;
        if (is_of_path) return (uint32_t)low + 1;
        if (!found) found = (uint32_t)low + 1;
    }
    return found;
}

/* Bytes [offset, offset + size) of a file belong to runs before this that are not predicted by
 * their own snapshot. */
static int lmc__can_read_back(const lmc__origin *o, uint64_t file_number, uint64_t offset,
                              uint64_t size)
{
    const lmc__range *const ranges = (const lmc__range *)(const void *)o->ranges.data;
    const size_t n = o->ranges.size / sizeof *ranges;
    size_t low = 0, high = n;
    if (size == 0) return 1;
    while (low < high) { /* the first that ends behind offset, or belongs to a later file */
        const size_t middle = low + (high - low) / 2;
        if (ranges[middle].file_number < file_number ||
            (ranges[middle].file_number == file_number && ranges[middle].end <= offset))
            low = middle + 1;
        else high = middle;
    }
    return low < n && ranges[low].file_number == file_number && ranges[low].start <= offset &&
           size <= ranges[low].end - offset;
}

/* Every segment's prediction is there. */
static enum lmc_status lmc__check_origin(const lmc__origin *o, const lmc__run *run)
{
    uint32_t i;
    if (run->prediction == LMC__PREDICT_ZERO) return LMC_OK;
    if (run->prediction == LMC__PREDICT_BASE && o->in_place) return LMC_OK;
    if (run->prediction == LMC__PREDICT_BASE) LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    for (i = 0; i < run->n_segments; i++) {
        const uint8_t *p = run->segments + (size_t)LMC__SEGMENT_SIZE * i;
        const uint64_t size = lmc__load64(p + 16), offset = lmc__load64(p + 24);
        const uint32_t number = lmc__load32(p + 4);
        if (number == 0) continue;
        if (run->prediction == LMC__PREDICT_BASE) {
            uint64_t item_size;
            LMC__CHECK(number <= o->items.size / sizeof(lmc__item), LMC_ERR_CORRUPT);
            item_size = lmc__item_size(o, lmc__get_item(o, number - 1));
            LMC__CHECK(offset <= item_size && size <= item_size - offset, LMC_ERR_CORRUPT);
        } else {
            const uint64_t wide = run->conversion ? 2 * size : size; /* size is less than 2^63 */
            LMC__CHECK(offset <= LMC__MAX_FILE_SIZE && wide <= LMC__MAX_FILE_SIZE - offset,
                       LMC_ERR_CORRUPT);
            LMC__CHECK(lmc__can_read_back(o, number - 1, offset, wide), LMC_ERR_CORRUPT);
        }
    }
    return LMC_OK;
}

/* The run can be read back from now on, if it may. */
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

static const uint8_t *lmc__segment_at(const lmc__run *run, uint32_t i)
{
    return run->segments + (size_t)LMC__SEGMENT_SIZE * i;
}

/* Bytes of prediction for one of the run. */
static unsigned lmc__scale(const lmc__run *run) { return run->conversion ? 2 : 1; }

/* Where the prediction of a segment with a Base begins. */
static lmc__range lmc__locate(const lmc__origin *o, const lmc__run *run, const uint8_t *segment)
{
    const uint32_t number = lmc__load32(segment + 4) - 1;
    lmc__range found;
    found.end = 0; /* not looked for */
    if (run->prediction == LMC__PREDICT_OWN) {
        found.file_number = number;
        found.start = lmc__load64(segment + 24);
    } else if (o->in_place) {
        found.file_number = run->file_number;
        found.start = lmc__load64(segment + 8);
    } else {
        const lmc__item *item = lmc__get_item(o, number);
        found.file_number = item->file_number;
        found.start = (item->tensor ? item->tensor->offset : 0) + lmc__load64(segment + 24);
    }
    return found;
}

/* The prediction of segment i begins there: mostly what lies side by side does so in the base, too,
 * and is best read at once. */
static int lmc__follows(const lmc__origin *o, const lmc__run *run, uint32_t i, size_t file_number,
                        uint64_t start)
{
    const uint8_t *segment = lmc__segment_at(run, i);
    lmc__range found;
    if (lmc__load32(segment + 4) == 0) return 0;
    found = lmc__locate(o, run, segment);
    return found.file_number == file_number && found.start == start;
}

/* The prediction of size bytes of the run, from there. Blocks and segments have whole elements. */
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

/* The prediction of bytes [offset, offset + size) of a run that was checked, to dst. */
static enum lmc_status lmc__read_prediction(lmc__origin *o, const lmc__run *run, uint64_t offset,
                                            uint8_t *dst, size_t size)
{
    uint32_t low = 0, high = run->n_segments; /* the segment of offset is in [low, high) */
    offset += run->start;
    if (run->prediction == LMC__PREDICT_BASE && !o->base && !o->in_place)
        return LMC_ERR_BASE_MISSING;
    if ((run->prediction == LMC__PREDICT_OWN || o->in_place) && !o->read_back)
        return LMC_ERR_READ_BACK;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (lmc__load64(lmc__segment_at(run, middle) + 8) <= offset) low = middle;
        else high = middle;
    }
    for (; size != 0; low++) {
        const uint8_t *p = lmc__segment_at(run, low);
        const uint64_t at = offset - lmc__load64(p + 8);
        size_t part = (size_t)lmc__min64(size, lmc__load64(p + 16) - at);
        lmc__range from;
        if (lmc__load32(p + 4) == 0) {
            memset(dst, 0, part);
        } else {
            from = lmc__locate(o, run, p);
            from.start += lmc__scale(run) * at;
            for (; part < size && lmc__follows(o, run, low + 1, from.file_number,
                                               from.start + lmc__scale(run) * part);
                 low++)
                part += (size_t)lmc__min64(size - part,
                                           lmc__load64(lmc__segment_at(run, low + 1) + 16));
            LMC__TRY(lmc__read_place(o, run, from.file_number, from.start, dst, part));
        }
        dst += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}

/* The base that the header wants is the one of the origin. */
static enum lmc_status lmc__check_base(const lmc__origin *o, const uint8_t *header)
{
    if (!lmc__has_base(header) || o->in_place) return LMC_OK;
    LMC__CHECK(o->base, LMC_ERR_BASE_MISSING);
    LMC__CHECK(memcmp(header + 32, o->identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_BASE_WRONG);
    return LMC_OK;
}

/* == snapshot/writer.h ============================================================================ */

/* Files of unknown size are cut into runs of this many bytes, which are collected before they are
 * written. */
#define LMC__PENDING_SIZE ((size_t)16 << 20)
/* A longer range of tensors or other bytes is cut; a multiple of any block size, and fewer than
 * 2^32 blocks. */
#define LMC__MAX_RUN_SIZE ((uint64_t)1 << 40)
/* A tensor of at least this many blocks starts a run of its own; smaller neighbours of one dtype
 * share one. */
#define LMC__OWN_RUN_BLOCKS 4u

struct lmc_writer {
    lmc_writer_options options;
    enum lmc_status status; /* the first error stays */
    uint64_t offset;        /* bytes written, or about to be */
    lmc__coder coder;
    lmc__buffer index;    /* entries of the index so far */
    lmc__buffer body;     /* of the section at hand */
    lmc__buffer metadata; /* encoded entries, in the order they came */
    lmc__buffer paths;    /* see lmc__add_path */
    uint32_t n_files, n_runs, n_metadata;
    int has_empty_path, is_finished;
    uint8_t identity[LMC_IDENTITY_SIZE];

    int in_file;
    lmc_file file;
    lmc__buffer file_memory;
    enum lmc_dtype default_dtype;
    uint64_t position; /* bytes of the file that are in runs begun so far */
    size_t next_tensor;
    size_t identities_at; /* in index: File_Size, File_CRC, identities of this file */
    lmc__digester digester;

    lmc__origin origin;
    lmc__run run;
    uint64_t run_left; /* bytes of the run that are in no job yet */
    enum lmc_dtype dtype;
    size_t block_size;
    uint32_t block;                 /* number of the next block */
    const lmc_quantizer *quantizer; /* of the run, or NULL */
    uint64_t quantised_from;        /* where its tensor begins */
    lmc__buffer quantised;          /* lmc__quantised_range, of all files */
    int has_quantizer;              /* the file at hand does */
    lmc__buffer
        run_head; /* to be written before the run's first block: header and body of its section */
    lmc__buffer carry; /* the beginning of a block; of a run if the file's size is unknown */
};

/* A tensor that is not in the file as it is read back. */
typedef struct lmc__quantised_range {
    lmc__range range;
    const lmc_quantizer *quantizer;
} lmc__quantised_range;

/* Of those the number of the first that ends behind offset, or belongs to a later file. */
static size_t lmc__find_quantised(const lmc_writer *w, size_t file_number, uint64_t offset)
{
    const lmc__quantised_range *const ranges =
        (const lmc__quantised_range *)(const void *)w->quantised.data;
    size_t low = 0, high = w->quantised.size / sizeof *ranges;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const lmc__range *const r = &ranges[middle].range;
        if (r->file_number < file_number || (r->file_number == file_number && r->end <= offset))
            low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Whether pieces of that can be read as the snapshot has them: no updates, which want a second
 * moment, nor parts of elements. */
static int lmc__is_readable(const lmc_writer *w, size_t file_number, uint64_t offset, uint64_t size)
{
    const lmc__quantised_range *const ranges =
        (const lmc__quantised_range *)(const void *)w->quantised.data;
    const size_t n = w->quantised.size / sizeof *ranges;
    size_t i;
    for (i = lmc__find_quantised(w, file_number, offset);
         i < n && ranges[i].range.file_number == file_number &&
         ranges[i].range.start < offset + size;
         i++) {
        const lmc__range *const r = &ranges[i].range;
        const unsigned width = ranges[i].quantizer->width;
        if (ranges[i].quantizer->is_predicted || (r->start - offset) % width ||
            (offset + size < r->end && (offset + size - r->start) % width))
            return 0;
    }
    return 1;
}

/* The caller's read_back, and what the snapshot has of that. */
static enum lmc_status lmc__read_written(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    const lmc_writer *const w = (const lmc_writer *)user;
    const lmc__quantised_range *const ranges =
        (const lmc__quantised_range *)(const void *)w->quantised.data;
    const size_t n = w->quantised.size / sizeof *ranges;
    size_t i;
    LMC__TRY(w->options.read_back(w->options.read_back_user, file_number, offset, dst, size));
    for (i = lmc__find_quantised(w, file_number, offset);
         i < n && ranges[i].range.file_number == file_number &&
         ranges[i].range.start < offset + size;
         i++) {
        const lmc__range *const r = &ranges[i].range;
        const uint64_t from = r->start > offset ? r->start : offset,
                       to = lmc__min64(r->end, offset + size);
        LMC__TRY(lmc_quantize(ranges[i].quantizer, (uint8_t *)dst + (size_t)(from - offset),
                              from - r->start, (size_t)(to - from), NULL));
    }
    return LMC_OK;
}

static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    if (w->coder.sink.write(w->coder.sink.user, data, size) != 0) return LMC_ERR_WRITE;
    w->offset += size;
    return LMC_OK;
}

/* Write w->body as a section, and its entry so far to the index. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind, uint32_t number)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE], field[8];
    const uint64_t size = w->body.size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(head, kind, number, w->body.data, size, w->coder.wave.k);
    lmc__store64(field, w->offset);
    LMC__TRY(lmc__append(&w->index, field, 8));
    LMC__TRY(lmc__append(&w->index, head, sizeof head));
    LMC__TRY(lmc__append(&w->index, w->body.data, w->body.size));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, w->body.data, w->body.size);
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
    w->coder.task = lmc__encode_task;
    w->index.alloc_user = w->body.alloc_user = w->metadata.alloc_user = w->paths.alloc_user =
        options->alloc_user;
    w->file_memory.alloc_user = w->carry.alloc_user = w->run_head.alloc_user =
        w->quantised.alloc_user = options->alloc_user;
    status = lmc__open_origin(&w->origin, options->base, options->alloc_user);
    w->origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->origin.user = w;
    memset(header, 0, sizeof header);
    memcpy(header, lmc__magic, 8);
    header[8] = LMC_FORMAT_MAJOR;
    header[9] = LMC_FORMAT_MINOR;
    lmc__store16(header + 10, LMC__HEADER_SIZE);
    lmc__store32(header + 12, options->read_back ? 0 : LMC__FLAG_SEQUENTIAL);
    if (options->base) {
        memcpy(header + 32, w->origin.identity, LMC_IDENTITY_SIZE);
        lmc__store32(header + 64, options->base->chain_depth + 1);
        if (options->base->chain_depth == UINT32_MAX) status = LMC_ERR_LIMIT;
    }
    lmc__store32(header + 76, w->coder.wave.k->crc32c(0, header, 76));
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
    lmc__free_buffer(&w->index);
    lmc__free_buffer(&w->body);
    lmc__free_buffer(&w->metadata);
    lmc__free_buffer(&w->paths);
    lmc__free_buffer(&w->file_memory);
    lmc__free_buffer(&w->carry);
    lmc__free_buffer(&w->run_head);
    lmc__free_buffer(&w->quantised);
    lmc__free_origin(&w->origin);
    (void)LMC_REALLOC(w->options.alloc_user, w, sizeof *w, 0);
}

/* The tensor's quantiser, if it has one, was fitted to such a tensor, of its generation. */
static enum lmc_status lmc__check_quantizer(const lmc_tensor *t)
{
    const lmc_quantizer *const q = lmc__get_quantizer(t);
    enum lmc_dtype dtype;
    if (!q) return LMC_OK;
    dtype = lmc_find_dtype(t->dtype);
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || lmc_dtype_width(dtype) != q->width ||
        t->size != q->n * q->width)
        return LMC_ERR_ARGUMENT;
    if (q->info.loss.generation != t->loss.generation + (q->is_recovered ? 0 : 1))
        return LMC_ERR_ARGUMENT;
    return !q->is_predicted || (t->twin && t->twin->conversion == LMC_CONVERT_NONE)
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                       enum lmc_dtype default_dtype)
{
    enum lmc_status status;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC_DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (w->n_files == UINT32_MAX) return LMC_ERR_LIMIT;
    for (i = 0; i < file->n_tensors && file->tensors; i++)
        LMC__TRY(lmc__check_quantizer(&file->tensors[i]));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file));
    status = lmc__parse_file(&w->file, &w->file_memory, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    if (w->n_files > 0 && (w->has_empty_path || w->file.path[0] == 0)) return LMC_ERR_ARGUMENT;
    w->has_empty_path = w->file.path[0] == 0;
    status = lmc__add_path(&w->paths, w->n_files, w->file.path);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    LMC__TRY(lmc__write_section(w, "FILE", w->n_files));
    w->has_quantizer = 0;
    for (i = 0; i < file->n_tensors; i++) {
        lmc_tensor *const t = &((lmc_tensor *)(void *)w->file_memory.data)[i];
        lmc__quantised_range quantised;
        t->twin = file->tensors[i].twin;
        quantised.quantizer = t->quantizer = lmc__get_quantizer(&file->tensors[i]);
        if (!t->quantizer) continue;
        w->has_quantizer = 1;
        if (t->quantizer->is_recovered) continue; /* is at hand as it is */
        quantised.range.file_number = w->n_files;
        quantised.range.start = t->offset;
        quantised.range.end = t->offset + t->size;
        LMC__TRY(lmc__append(&w->quantised, &quantised, sizeof quantised));
    }
    w->n_files++;
    w->identities_at = w->index.size;
    LMC__TRY(
        lmc__append(&w->index, NULL, 16 + LMC_IDENTITY_SIZE * lmc__count_identities(&w->file)));
    w->in_file = 1;
    w->default_dtype = default_dtype;
    w->position = 0;
    w->next_tensor = 0;
    w->run_left = 0;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, &w->file);
    return LMC_OK;
}

/* How a tensor is predicted (NULL: the file, which has none), and by what: the Base and Base_Offset
 * of a segment. */
typedef struct lmc__prediction {
    unsigned kind, conversion;
    uint32_t number;
    uint64_t offset;
} lmc__prediction;

static lmc__prediction lmc__find_prediction(const lmc_writer *w, const lmc_tensor *t)
{
    const lmc_quantizer *const quantizer = lmc__get_quantizer(t);
    const lmc_twin *const twin =
        t && w->options.read_back && (!quantizer || quantizer->is_predicted) ? t->twin : NULL;
    lmc__prediction found;
    memset(&found, 0, sizeof found);
    if (twin && (unsigned)twin->conversion <= LMC_CONVERT_F32_TO_F16 &&
        twin->file_number < UINT32_MAX && (!twin->conversion || t->size % 2 == 0)) {
        const uint64_t size = twin->conversion ? 2 * t->size : t->size;
        if (twin->offset <= LMC__MAX_FILE_SIZE && size <= LMC__MAX_FILE_SIZE - twin->offset &&
            lmc__can_read_back(&w->origin, twin->file_number, twin->offset, size) &&
            lmc__is_readable(w, (size_t)twin->file_number, twin->offset, size)) {
            found.kind = LMC__PREDICT_OWN;
            found.conversion = twin->conversion;
            found.number = (uint32_t)twin->file_number + 1;
            found.offset = twin->offset;
            return found;
        }
    }
    if (w->origin.base && !quantizer)
        found.number = lmc__match_item(&w->origin, w->file.path, t ? t->name : w->file.path,
                                       t ? t->dtype : NULL, t ? t->size : w->file.size);
    if (found.number) found.kind = LMC__PREDICT_BASE;
    return found;
}

/* The tensor's twin is in the run that would begin at start of this file: only in a later run can
 * it refer to that. */
static int lmc__repeats_run(const lmc_writer *w, const lmc_tensor *t, uint64_t start)
{
    const lmc_twin *const twin = w->options.read_back ? t->twin : NULL;
    return twin && twin->file_number == w->n_files - 1 &&
           (twin->offset >= start || t->size > start - twin->offset);
}

/* Quantised runs have a table in each block, as deltas have much else: theirs are as large. */
static size_t lmc__get_run_block_size(const lmc_writer *w, enum lmc_dtype dtype,
                                      const lmc__prediction *prediction, int is_quantised)
{
    return lmc__get_block_size(dtype, w->options.log2_block,
                               prediction->kind != LMC__PREDICT_ZERO || is_quantised);
}

/* How to code the next bytes of a file of known size: the run's end, dtype and kind of prediction.
 */
static uint64_t lmc__plan_run(lmc_writer *w, enum lmc_dtype *dtype, lmc__prediction *prediction)
{
    const lmc_file *f = &w->file;
    const uint64_t start = w->position;
    uint64_t end = f->size;
    *dtype = w->default_dtype;
    w->quantizer = NULL;
    memset(prediction, 0, sizeof *prediction);
    if (f->n_tensors == 0) *prediction = lmc__find_prediction(w, NULL);
    while (w->next_tensor < f->n_tensors &&
           f->tensors[w->next_tensor].offset + f->tensors[w->next_tensor].size <= start)
        w->next_tensor++;
    if (w->next_tensor < f->n_tensors) {
        size_t i = w->next_tensor;
        end = f->tensors[i].offset;
        if (end <= start) { /* in a tensor */
            uint32_t n = 0;
            uint64_t own;
            *dtype = lmc_find_dtype(f->tensors[i].dtype);
            *prediction = lmc__find_prediction(w, &f->tensors[i]);
            own = (uint64_t)LMC__OWN_RUN_BLOCKS * lmc__get_run_block_size(w, *dtype, prediction, 0);
            end += f->tensors[i].size;
            w->quantizer = f->tensors[i].quantizer;
            w->quantised_from = f->tensors[i].offset;
            if (f->tensors[i].size < own && !w->quantizer)
                for (i++;
                     i < f->n_tensors && ++n < LMC__MAX_SEGMENTS && f->tensors[i].offset == end &&
                     f->tensors[i].size < own && lmc_find_dtype(f->tensors[i].dtype) == *dtype &&
                     !f->tensors[i].quantizer && !lmc__repeats_run(w, &f->tensors[i], start);
                     i++) {
                    const lmc__prediction next = lmc__find_prediction(w, &f->tensors[i]);
                    if (next.kind != prediction->kind || next.conversion != prediction->conversion)
                        break;
                    end += f->tensors[i].size;
                }
        }
    }
    return end;
}

/* The run's segments: one for each tensor that is predicted, else one for all. */
static enum lmc_status lmc__append_segments(lmc_writer *w, uint64_t size,
                                            const lmc__prediction *prediction)
{
    const uint64_t end = w->position + size;
    uint64_t at = w->position;
    size_t i = w->next_tensor;
    uint32_t n = 0;
    while (at < end) {
        const lmc_tensor *t = NULL;
        lmc__prediction found = *prediction;
        uint64_t stop = end, start = 0;
        uint8_t segment[LMC__SEGMENT_SIZE];
        if (prediction->kind != LMC__PREDICT_ZERO && w->file.n_tensors) {
            while (w->file.tensors[i].offset + w->file.tensors[i].size <= at)
                i++; /* empty ones, too */
            t = &w->file.tensors[i];
            start = t->offset;
            stop = lmc__min64(end, start + t->size);
            found = lmc__find_prediction(w, t);
        }
        memset(segment, 0, sizeof segment);
        lmc__store32(segment, w->n_files - 1);
        lmc__store32(segment + 4, found.number);
        lmc__store64(segment + 8, at);
        lmc__store64(segment + 16, stop - at);
        lmc__store64(segment + 24, found.number == 0
                                       ? 0
                                       : found.offset + (found.conversion ? 2 : 1) * (at - start));
        LMC__TRY(lmc__append(&w->run_head, segment, sizeof segment));
        at = stop;
        if (++n == LMC__MAX_SEGMENTS && at < end) return LMC_ERR_LIMIT;
    }
    lmc__store32(w->run_head.data + LMC__SECTION_HEADER_SIZE + 12, n);
    return LMC_OK;
}

/* Begin a run of at most size bytes that continues the file; what does not fill an element is left
 * for a run of bytes. */
static enum lmc_status lmc__begin_run(lmc_writer *w, uint64_t size, enum lmc_dtype dtype,
                                      const lmc__prediction *prediction)
{
    unsigned log2_block = 0;
    uint64_t position = w->position;
    uint8_t *body;
    size_t body_size;
    size = lmc__min64(size, LMC__MAX_RUN_SIZE);
    if (size < lmc_dtype_width(dtype)) dtype = LMC_AUTO;
    size -= size % lmc_dtype_width(dtype);
    if (dtype == LMC_AUTO && size > 4096)
        size -= size % 8; /* so that every block can be split at any width */
    if (w->n_runs == UINT32_MAX) return LMC_ERR_LIMIT;
    if (w->quantizer && w->quantizer->is_predicted && prediction->kind != LMC__PREDICT_OWN)
        return LMC_ERR_ARGUMENT; /* its twin was not written before */
    w->block_size = lmc__get_run_block_size(w, dtype, prediction, w->quantizer != NULL);
    while ((size_t)1 << log2_block < w->block_size) log2_block++;
    w->run_head.size = 0;
    LMC__TRY(lmc__append(&w->run_head, NULL, LMC__SECTION_HEADER_SIZE + LMC__RUN_BODY_SIZE));
    LMC__TRY(lmc__append_segments(w, size, prediction));
    body = w->run_head.data + LMC__SECTION_HEADER_SIZE;
    body_size = w->run_head.size - LMC__SECTION_HEADER_SIZE;
    lmc__store64(body, size);
    body[8] = (uint8_t)log2_block;
    body[9] = (uint8_t)prediction->kind;
    body[10] = (uint8_t)prediction->conversion;
    lmc__put_section_header(w->run_head.data, "RUN ", w->n_runs, body, body_size, w->coder.wave.k);
    LMC__TRY(lmc__parse_run(&w->run, body, body_size, w->n_files - 1, &w->file, &position));
    LMC__TRY(lmc__add_run(&w->origin, &w->run));
    LMC__TRY(lmc__set_coder(&w->coder, w->block_size, w->block_size / lmc_dtype_width(dtype), 0));
    w->dtype = dtype;
    w->n_runs++;
    w->block = 0;
    w->run_left = size;
    w->position += size;
    return LMC_OK;
}

/* Begin the run of the bytes that come next, of which at least one is there; available: all that
 * are known to come if the file's size is unknown. */
static enum lmc_status lmc__next_run(lmc_writer *w, size_t available)
{
    enum lmc_dtype dtype;
    lmc__prediction prediction;
    uint64_t end;
    memset(&prediction, 0, sizeof prediction);
    w->quantizer = NULL;
    if (w->file.size == LMC_UNKNOWN_SIZE)
        return lmc__begin_run(w, available, w->default_dtype, &prediction);
    if (w->position == w->file.size) return LMC_ERR_ARGUMENT; /* more than the file has */
    end = lmc__plan_run(w, &dtype, &prediction);
    return lmc__begin_run(w, end - w->position, dtype, &prediction);
}

/* Encode the wave that is planned; what it made is written beside the next one. */
static enum lmc_status lmc__encode_wave(lmc_writer *w)
{
    lmc__coder *c = &w->coder;
    const size_t n = c->n_jobs;
    size_t i;
    if (n == 0) return LMC_OK;
    LMC__TRY(lmc__run_step(c));
    w->digester.identities = w->index.data + w->identities_at + 16;
    lmc__absorb_pieces(c, &w->digester);
    for (i = 0; i < n; i++) {
        const lmc__job *job = &c->wave.jobs[i];
        const uint8_t *start = job->dst - job->head;
        if (job->head) {
            uint8_t field[8];
            lmc__store64(field, w->offset);
            LMC__TRY(lmc__append(&w->index, field, 8));
            LMC__TRY(lmc__append(&w->index, start, job->head));
        }
        LMC__TRY(lmc__append32(&w->index, (uint32_t)job->dst_size));
        LMC__TRY(lmc__append32(&w->index, lmc__load32(job->dst + LMC__BLOCK_CRC_AT)));
        LMC__TRY(lmc__add_part(c, start, job->head + job->dst_size));
        w->offset += job->head + job->dst_size;
    }
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Plan a block of the run. */
static enum lmc_status lmc__plan_block(lmc_writer *w, const uint8_t *data, size_t size)
{
    lmc__coder *c = &w->coder;
    const size_t head = w->block == 0 ? w->run_head.size : 0, slot = head + lmc_bound_block(size);
    lmc__buffer *out = &c->out[c->out_number];
    lmc__job *job;
    if (c->n_jobs && slot > out->cap - out->size) {
        LMC__TRY(lmc__encode_wave(w));
        out = &c->out[c->out_number];
    }
    if (c->n_jobs ==
        0) { /* pointers into it from now on; a sixteenth more: heads of many small blocks */
        const uint64_t wave_size = lmc__get_wave_size(c, w->block_size);
        LMC__TRY(lmc__reserve(out, wave_size + wave_size / 16 + head));
        if (w->origin.base || w->origin.read_back)
            LMC__TRY(lmc__reserve(&c->base, out->cap)); /* a block's is no larger than its slot */
    }
    LMC__TRY(lmc__add_job(c, &job));
    if (w->run.prediction != LMC__PREDICT_ZERO) {
        uint8_t *const base = c->base.data + c->base.size;
        c->base.size += size;
        LMC__TRY(lmc__read_prediction(&w->origin, &w->run, w->run.size - w->run_left, base, size));
        job->base = base;
    }
    if (head) memcpy(out->data + out->size, w->run_head.data, head);
    job->head = head;
    job->src = data;
    job->src_size = size;
    job->dst = out->data + out->size + head;
    job->dst_size = slot - head;
    job->dtype = w->dtype;
    job->level = w->options.level;
    job->quantizer = w->quantizer;
    job->first_element =
        w->quantizer
            ? (w->run.start + w->run.size - w->run_left - w->quantised_from) / w->quantizer->width
            : 0;
    job->position.run = w->n_runs - 1;
    job->position.block = w->block++;
    out->size += slot;
    w->run_left -= size;
    return lmc__plan_job(c, &w->digester, job, size);
}

/* Plan blocks of the next bytes; *rest: how many at the end are less than a block. data must stay
 * until the wave is encoded. */
static enum lmc_status lmc__plan_blocks(lmc_writer *w, const uint8_t *data, size_t size,
                                        size_t *rest)
{
    while (size != 0) {
        size_t n;
        if (w->run_left == 0) LMC__TRY(lmc__next_run(w, size));
        n = (size_t)lmc__min64(w->block_size, w->run_left);
        if (n > size) break;
        LMC__TRY(lmc__plan_block(w, data, n));
        data += n;
        size -= n;
    }
    *rest = size;
    return LMC_OK;
}

/* Encode the blocks in carry, which must be whole. */
static enum lmc_status lmc__flush_carry(lmc_writer *w)
{
    size_t rest;
    LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
    w->carry.size = 0;
    return lmc__encode_wave(w);
}

static enum lmc_status lmc__write_bytes(lmc_writer *w, const uint8_t *data, size_t size)
{
    const int is_unknown = w->in_file && w->file.size == LMC_UNKNOWN_SIZE;
    if (!w->in_file || (!data && size)) return LMC_ERR_ARGUMENT;
    while (size != 0) {
        size_t n = size;
        if (is_unknown ||
            w->carry.size) { /* in carry is the beginning of what is coded as a whole */
            const size_t whole =
                is_unknown ? LMC__PENDING_SIZE : (size_t)lmc__min64(w->block_size, w->run_left);
            if (is_unknown && w->position + w->carry.size >= LMC__MAX_FILE_SIZE - size)
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

/* Spans of the stream are read into the two buffers in turn. The beginning of a block that ends in
 * the next span is moved to just before that. */
static enum lmc_status lmc__write_stream(lmc_writer *w, const lmc_stream *stream)
{
    lmc__coder *c = &w->coder;
    const int is_unknown = w->in_file && w->file.size == LMC_UNKNOWN_SIZE;
    const size_t room = is_unknown ? 0
                                   : lmc__get_block_size(LMC_U64, w->options.log2_block,
                                                         w->options.base || w->options.read_back ||
                                                             w->has_quantizer); /* none is larger */
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
    left = (is_unknown ? LMC__MAX_FILE_SIZE : w->file.size) - (w->position - w->run_left) -
           w->carry.size;
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

static enum lmc_status lmc__end_file(lmc_writer *w)
{
    uint8_t *info;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (w->file.size == LMC_UNKNOWN_SIZE) {
        LMC__TRY(lmc__flush_carry(w));
        w->file.size = w->position;
    }
    if (w->digester.absorbed != w->file.size) return LMC_ERR_ARGUMENT;
    info = w->index.data + w->identities_at;
    w->digester.identities = info + 16;
    lmc__finish_digester(&w->digester);
    lmc__store64(info, w->file.size);
    lmc__store32(info + 8, w->digester.file_crc);
    w->in_file = 0;
    return LMC_OK;
}

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

/* The metadata entries in order of their keys, appended to the index. */
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
        LMC__TRY(
            lmc__append(&w->index, entry, 8 + (size_t)lmc__load32(entry) + lmc__load32(entry + 4)));
    }
    return LMC_OK;
}

static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t head[LMC__INDEX_BODY_SIZE], section[LMC__SECTION_HEADER_SIZE],
        trailer[LMC__TRAILER_SIZE];
    const lmc__kernels *k = w->coder.wave.k;
    const uint64_t index_at = w->offset, n_entries = (uint64_t)w->n_files + w->n_runs;
    uint64_t body_size;
    if (w->in_file || w->is_finished || w->n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__collect_items(&w->body, w->index.data, n_entries));
    lmc__snapshot_identity(&w->body, w->identity);
    LMC__TRY(lmc__append_metadata(w));
    memset(head, 0, sizeof head);
    lmc__store32(head, w->n_files);
    lmc__store32(head + 4, w->n_runs);
    memcpy(head + 8, w->identity, LMC_IDENTITY_SIZE);
    lmc__store32(head + 40, w->n_metadata);
    body_size = sizeof head + (uint64_t)w->index.size;
    if (body_size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    lmc__put_section_header(section, "INDX", 0, head, sizeof head,
                            k); /* the head's CRC, to be continued */
    lmc__store64(section + 8, body_size);
    lmc__store32(section + 16, k->crc32c(0, section, 16));
    lmc__store32(section + 20, k->crc32c(lmc__load32(section + 20), w->index.data, w->index.size));
    LMC__TRY(lmc__sink_write(w, section, sizeof section));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    LMC__TRY(lmc__sink_write(w, w->index.data, w->index.size));
    memset(trailer, 0, sizeof trailer);
    lmc__store64(trailer, index_at);
    lmc__store64(trailer + 8, w->offset - index_at);
    lmc__store64(trailer + 16, w->offset + LMC__TRAILER_SIZE);
    lmc__store32(trailer + 28, k->crc32c(0, trailer, 28));
    memcpy(trailer + 32, lmc__end_magic, 8);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays: what was written after it would be wrong. */
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

/* == snapshot/restore.h =========================================================================== */

typedef struct lmc__restorer {
    const lmc_restore_options *options;
    uint64_t max_index;
    lmc__coder coder;
    const uint8_t *at, *end; /* what is there of the stream, in coder.in[number] */
    unsigned number;
    int is_next_read; /* the other coder.in holds what follows, from next_room on */
    size_t next_room;
    int is_other_used; /* blocks of the planned wave are in the other coder.in */
    size_t largest;    /* decoded bytes of the largest block of the run */
    uint64_t offset;   /* bytes taken from the stream, from its beginning to `at` */
    lmc__buffer index; /* what the index must say, entries only */
    lmc__buffer body;
    lmc__buffer items;
    lmc__buffer paths; /* see lmc__add_path */
    uint32_t n_files, n_runs;
    uint64_t total; /* bytes of all runs so far */
    lmc__origin origin;
    int has_base, is_sequential;
    int is_done; /* the blocks of the planned wave were written by an earlier attempt */

    int in_file, has_empty_path;
    lmc_file file;
    lmc__buffer file_memory;
    size_t identities_at;
    uint64_t position; /* bytes of the file in runs so far */
    lmc__digester digester;
} lmc__restorer;

/* Bytes of the stream that are read at once, for each worker: bf16 weights grow by half when they
 * are decoded, and a wave then has up to twice as many. */
#define LMC__READ_SIZE (LMC__WAVE_SIZE / 2)

/* Decode the wave that is planned, and read on; what was decoded is written beside the next one.
 * Before what is read there is room for the beginning of a block that ends in it. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended,
              is_coding = c->n_jobs != 0;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->number ^ 1];
    lmc__want(c, NULL, 0, 0);
    if (is_reading) {
        uint64_t size = 65536; /* at first: there may be little */
        r->next_room = lmc_bound_block(r->largest);
        if (r->largest)
            size = lmc__count_workers(c->parallel) *
                   (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE);
        next->size = 0;
        LMC__TRY(
            lmc__reserve(next, r->next_room + size)); /* so size is no more than a size_t holds */
        lmc__want(c, next->data + r->next_room, (size_t)size, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (is_coding) r->digester.identities = r->index.data + r->identities_at + 16;
    lmc__absorb_pieces(c, &r->digester);
    if (!r->is_done) LMC__TRY(lmc__add_part(c, out->data, out->size));
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Go on to the next buffer, to whose front what is left of this one moves. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->number ^ 1];
    if (!r->is_next_read)
        LMC__TRY(
            lmc__decode_wave(r)); /* which reads, too, if no block of it is in the other buffer */
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
    r->number ^= 1;
    r->is_next_read = 0;
    r->is_other_used = c->n_jobs != 0;
    return LMC_OK;
}

/* Makes size bytes lie at r->at; fewer only at the end of the stream. */
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

static void lmc__skip(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
}

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

/* The section's body to r->body, in steps: memory grows with what is really there. */
static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section)
{
    if (section->size > r->max_index) return LMC_ERR_LIMIT;
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

static enum lmc_status lmc__grow_index(lmc__restorer *r, const void *data, size_t size)
{
    if (r->index.size + (uint64_t)size > r->max_index) return LMC_ERR_LIMIT;
    return lmc__append(&r->index, data, size);
}

/* The section at hand, as the index has it. */
static enum lmc_status lmc__index_section(lmc__restorer *r, const uint8_t *head)
{
    uint8_t field[8];
    lmc__store64(field, r->offset - r->body.size - LMC__SECTION_HEADER_SIZE);
    LMC__TRY(lmc__grow_index(r, field, 8));
    LMC__TRY(lmc__grow_index(r, head, LMC__SECTION_HEADER_SIZE));
    return lmc__grow_index(r, r->body.data, r->body.size);
}

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
    LMC__TRY(lmc__index_section(r, head));
    r->identities_at = r->index.size;
    LMC__TRY(lmc__grow_index(r, NULL, 16 + LMC_IDENTITY_SIZE * lmc__count_identities(&r->file)));
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

static enum lmc_status lmc__restore_file_end(lmc__restorer *r)
{
    const lmc_restore_options *o = r->options;
    uint8_t *info;
    if (!r->in_file) return LMC_OK;
    if (r->file.size == LMC_UNKNOWN_SIZE) r->file.size = r->position;
    LMC__CHECK(r->position == r->file.size, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__decode_wave(r));
    LMC__TRY(lmc__drain(&r->coder));
    info = r->index.data + r->identities_at;
    r->digester.identities = info + 16;
    lmc__finish_digester(&r->digester);
    lmc__store64(info, r->file.size);
    lmc__store32(info + 8, r->digester.file_crc);
    r->file.crc = r->digester.file_crc;
    r->in_file = 0;
    if (o->end_file && o->end_file(o->user, &r->file, r->n_files - 1) != 0) return LMC_ERR_WRITE;
    return LMC_OK;
}

/* Plan the block at hand. */
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
    lmc__job *job;
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    position.run = r->n_runs - 1;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, position, &info));
    LMC__CHECK(info.size == size, LMC_ERR_CORRUPT);
    if (is_done && size > r->options->n_done - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number]; /* fetching may have changed the number, and so may coding */
    if (c->n_jobs && (size > out->cap - out->size || r->is_done != is_done))
        LMC__TRY(lmc__decode_wave(r));
    r->is_done = is_done;
    out = &c->out[c->out_number];
    if (c->n_jobs == 0)
        LMC__TRY(lmc__reserve(
            out, lmc__get_wave_size(c, r->largest))); /* pointers into it from now on */
    LMC__TRY(lmc__add_job(c, &job));
    job->position = position;
    job->info = info;
    job->src = r->at;
    job->dst = out->data + out->size;
    job->skip = 0;
    job->keep = size;
    job->streaming.is_on = 0;
    job->streaming.next = NULL;
    job->streaming.next_size = 0;
    job->is_done = is_done;
    if (info.has_prediction) LMC__CHECK(run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, run->file_number, run->start + offset,
                                     job->dst, size));
    } else if (info.has_prediction) {
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst,
                                      size)); /* which is decoded over it */
        job->base = job->dst;
        job->own = run->prediction == LMC__PREDICT_OWN;
    }
    out->size += size;
    lmc__skip(r, info.encoded_size);
    lmc__store32(entry, (uint32_t)info.encoded_size);
    lmc__store32(entry + 4, lmc__load32(job->src + LMC__BLOCK_CRC_AT));
    LMC__TRY(lmc__grow_index(r, entry, sizeof entry));
    return lmc__plan_job(c, &r->digester, job, size);
}

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
    LMC__TRY(lmc__check_origin(&r->origin, &run));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__index_section(r, head));
    if (run.prediction == LMC__PREDICT_OWN) { /* what it refers to must have reached the caller */
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

static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          uint8_t identity[LMC_IDENTITY_SIZE])
{
    const uint64_t n_entries = (uint64_t)r->n_files + r->n_runs;
    const uint8_t *p;
    LMC__CHECK(section->number == 0 && r->n_files > 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    p = r->body.data;
    LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE &&
                   r->body.size - LMC__INDEX_BODY_SIZE >= r->index.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load32(p) == r->n_files && lmc__load32(p + 4) == r->n_runs, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(memcmp(p + LMC__INDEX_BODY_SIZE, r->index.data, r->index.size) == 0,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__check_metadata(p + LMC__INDEX_BODY_SIZE + r->index.size, p + r->body.size,
                                 lmc__load32(p + 40)));
    LMC__TRY(lmc__collect_items(&r->items, r->index.data, n_entries));
    lmc__snapshot_identity(&r->items, identity);
    LMC__CHECK(memcmp(p + 8, identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_CORRUPT);
    return LMC_OK;
}

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
    r->max_index =
        options->limits.max_index_size ? options->limits.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
    lmc__open_coder(&r->coder, options->parallel, options->alloc_user);
    r->coder.stream = *stream;
    r->coder.sink.write = options->write;
    r->coder.sink.user = options->user;
    r->coder.task = lmc__decode_task;
    r->index.alloc_user = r->body.alloc_user = r->items.alloc_user = r->paths.alloc_user =
        r->file_memory.alloc_user = options->alloc_user;
    status =
        lmc__open_origin(&r->origin, options->in_place ? NULL : options->base, options->alloc_user);
    r->origin.in_place = options->in_place;
    r->origin.read_back = options->read_back;
    r->origin.user = options->user;
    if (status == LMC_OK) status = lmc__restore(r, found);
    if (status == LMC_OK && identity) memcpy(identity, found, LMC_IDENTITY_SIZE);
    lmc__free_coder(&r->coder);
    lmc__free_buffer(&r->index);
    lmc__free_buffer(&r->body);
    lmc__free_buffer(&r->items);
    lmc__free_buffer(&r->paths);
    lmc__free_buffer(&r->file_memory);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(options->alloc_user, r, sizeof *r, 0);
    return status;
}

/* == snapshot/reader.h ============================================================================ */

/* A run as the index has it. */
typedef struct lmc__reader_run {
    lmc__run run;               /* its segments are in reader->index */
    uint64_t first_block;       /* in reader->block_at */
    const uint8_t *blocks;      /* in reader->index: LMC__BLOCK_ENTRY_SIZE bytes each */
    enum lmc_status prediction; /* salvage: whether its prediction can be found. LMC_ERR_NOT_FOUND:
                                   its section is lost */
} lmc__reader_run;

typedef struct lmc__reader_file {
    lmc_file file;
    lmc__buffer memory;
    size_t first_run, n_runs;
    int is_described;    /* salvage: by its section */
    size_t confirmed_at; /* in salvage.confirmed */
} lmc__reader_file;

/* What the readers of damaged files have beside the tables of others; section 9.10. */
typedef struct lmc__salvage {
    lmc_damage damage;
    uint64_t end;     /* where the index begins, or of the file */
    lmc__buffer view; /* bytes of the file from view_at on */
    uint64_t view_at;
    lmc__buffer sections; /* lmc__found_section; their bodies are in reader->index */
    lmc__buffer blocks;   /* lmc__found_block, sorted; then those without a place */
    size_t n_blocks;      /* with a place */
    lmc__buffer orphans;  /* lmc__orphan */
    uint64_t claimed;     /* bytes that were read twice */
    lmc__buffer
        container; /* a block decoded to see whether it is intact; the one of these numbers */
    uint32_t container_run, container_block;
    enum lmc_status container_status;
    int in_container; /* it is being decoded */
    /* lmc_next_range */
    size_t file, run, unplaced;
    uint64_t offset, delivered;
    lmc__buffer range;
    lmc__digester digester;
    int is_whole;          /* the file so far */
    lmc__buffer confirmed; /* int8_t: what lmc_confirm says of a file, then of its tensors */
} lmc__salvage;

struct lmc_reader {
    lmc_source source;
    lmc_reader_options options;
    lmc__coder own_coder, *coder; /* the lender's, or the own one */
    lmc__buffer index;            /* the body, for metadata */
    lmc__buffer files, runs;      /* arrays of the two above */
    lmc__buffer
        block_at;     /* uint64_t: where each block starts; after a run's blocks: where they end */
    lmc__buffer keys; /* metadata keys, NUL-terminated; and pointers to the entries */
    lmc__buffer metadata;
    lmc__buffer paths; /* see lmc__add_path */
    size_t n_files, n_metadata;
    uint64_t total; /* bytes of all files */
    uint8_t identity[LMC_IDENTITY_SIZE], base_identity[LMC_IDENTITY_SIZE];
    uint32_t chain_depth;
    int is_sequential;
    lmc__origin origin;
    lmc__buffer window; /* of lmc__read_as_base: bytes of a file from window_start on */
    size_t window_file;
    uint64_t window_start;
    lmc__buffer base[2]; /* predictions of blocks that are not wanted whole: by another snapshot, by
                            this one (which may need the first) */
    lmc__salvage salvage;
};

typedef struct lmc__entry {
    size_t key_at; /* in keys */
    const uint8_t *value;
    size_t size;
} lmc__entry;

static lmc__reader_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return (lmc__reader_file *)(void *)r->files.data + i;
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return r->runs.data ? (lmc__reader_run *)(void *)r->runs.data + i : NULL;
}
static uint64_t *lmc__block_at(const lmc_reader *r) { return (uint64_t *)(void *)r->block_at.data; }

/* One entry of the index at *p; *offset: where its section must start, then where the next must. */
static enum lmc_status lmc__read_entry(lmc_reader *r, const uint8_t **p, const uint8_t *end,
                                       uint64_t *offset, uint64_t *position)
{
    const lmc__kernels *k = r->coder->wave.k;
    lmc__reader_file *f = r->n_files ? lmc__file_at(r, r->n_files - 1) : NULL;
    const uint8_t *body;
    lmc__section section;
    size_t size, i;
    LMC__CHECK(end - *p >= 8 + (int)LMC__SECTION_HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(*p) == *offset, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get_section(&section, *p + 8, k));
    body = *p + 8 + LMC__SECTION_HEADER_SIZE;
    LMC__CHECK(section.size <= (uint64_t)(end - body), LMC_ERR_CORRUPT);
    size = (size_t)section.size;
    LMC__CHECK(k->crc32c(0, body, size) == section.body_crc, LMC_ERR_CHECKSUM);
    *p = body + size;
    *offset += LMC__SECTION_HEADER_SIZE + section.size;
    if (lmc__is_kind(&section, "FILE")) {
        lmc__reader_file *next;
        LMC__CHECK(f == NULL || *position == f->file.size, LMC_ERR_CORRUPT);
        LMC__CHECK(section.number == r->n_files, LMC_ERR_CORRUPT);
        LMC__TRY(lmc__append(&r->files, NULL, sizeof *next));
        next = lmc__file_at(r, r->n_files);
        next->memory.alloc_user = r->options.alloc_user;
        next->is_described = 1;
        r->n_files++;
        LMC__TRY(lmc__parse_file(&next->file, &next->memory, body, size));
        LMC__TRY(lmc__add_path(&r->paths, r->n_files - 1, next->file.path));
        LMC__CHECK(f == NULL || (next->file.path[0] != 0 && lmc__file_at(r, 0)->file.path[0] != 0),
                   LMC_ERR_CORRUPT);
        LMC__CHECK((uint64_t)(end - *p) >=
                       16 + (uint64_t)LMC_IDENTITY_SIZE * lmc__count_identities(&next->file),
                   LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load64(*p) <= LMC__MAX_FILE_SIZE &&
                       (next->file.size == LMC_UNKNOWN_SIZE || next->file.size == lmc__load64(*p)),
                   LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load32(*p + 12) == 0, LMC_ERR_CORRUPT);
        next->file.size = lmc__load64(*p);
        next->file.crc = lmc__load32(*p + 8);
        *p += 16;
        for (i = 0; i < lmc__count_identities(&next->file); i++, *p += LMC_IDENTITY_SIZE)
            memcpy(next->file.n_tensors ? ((lmc_tensor *)(void *)next->memory.data)[i].identity
                                        : next->file.identity,
                   *p, LMC_IDENTITY_SIZE);
        next->first_run = r->runs.size / sizeof(lmc__reader_run);
        *position = 0;
    } else {
        lmc__reader_run run;
        LMC__CHECK(lmc__is_kind(&section, "RUN ") && f, LMC_ERR_CORRUPT);
        LMC__CHECK(section.number == r->runs.size / sizeof run, LMC_ERR_CORRUPT);
        LMC__TRY(
            lmc__parse_run(&run.run, body, size, (uint32_t)(r->n_files - 1), &f->file, position));
        LMC__CHECK(run.run.n_blocks <= (uint64_t)(end - *p) / LMC__BLOCK_ENTRY_SIZE,
                   LMC_ERR_CORRUPT);
        run.prediction = LMC_OK;
        if (!r->options.salvage) {
            LMC__CHECK(run.run.prediction != LMC__PREDICT_BASE || r->chain_depth != 0,
                       LMC_ERR_CORRUPT);
            LMC__CHECK(run.run.prediction != LMC__PREDICT_OWN || !r->is_sequential,
                       LMC_ERR_CORRUPT);
            if (!lmc__add_total(&r->total, run.run.size, &r->options.limits)) return LMC_ERR_LIMIT;
            if (run.run.prediction != LMC__PREDICT_BASE || r->origin.base)
                LMC__TRY(lmc__check_origin(&r->origin, &run.run));
            LMC__TRY(lmc__add_run(&r->origin, &run.run));
        }
        run.first_block = r->block_at.size / 8;
        run.blocks = *p;
        LMC__TRY(lmc__append(&r->runs, &run, sizeof run));
        LMC__TRY(lmc__reserve(&r->block_at, 8 * (run.run.n_blocks + 1)));
        for (i = 0; i < run.run.n_blocks; i++, *p += LMC__BLOCK_ENTRY_SIZE) {
            const uint32_t block_size = lmc__load32(*p);
            LMC__CHECK(block_size > LMC_BLOCK_HEADER_SIZE &&
                           block_size <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&run.run, i),
                       LMC_ERR_CORRUPT);
            lmc__block_at(r)[run.first_block + i] = *offset;
            *offset += block_size;
        }
        lmc__block_at(r)[run.first_block + i] = *offset;
        r->block_at.size += 8 * ((size_t)run.run.n_blocks + 1);
        f->n_runs++;
    }
    LMC__CHECK(*offset <= (r->options.salvage ? LMC__MAX_FILE_SIZE : r->source.size),
               LMC_ERR_CORRUPT); /* also keeps sums from overflowing */
    return LMC_OK;
}

static enum lmc_status lmc__read_at(lmc_reader *r, uint64_t offset, void *dst, size_t size)
{
    return size == 0 || r->source.read_at(r->source.user, offset, dst, size) == 0 ? LMC_OK
                                                                                  : LMC_ERR_READ;
}

static enum lmc_status lmc__read_metadata(lmc_reader *r, const uint8_t *p, const uint8_t *end,
                                          uint32_t n)
{
    LMC__TRY(lmc__check_metadata(p, end, n));
    for (; n > 0; n--, r->n_metadata++) {
        const uint32_t key_size = lmc__load32(p);
        lmc__entry entry;
        entry.key_at = r->keys.size;
        entry.size = lmc__load32(p + 4);
        entry.value = p + 8 + key_size;
        LMC__TRY(lmc__append(&r->keys, p + 8, key_size));
        LMC__TRY(lmc__append(&r->keys, NULL, 1));
        LMC__TRY(lmc__append(&r->metadata, &entry, sizeof entry));
        p = entry.value + entry.size;
    }
    return LMC_OK;
}

/* The INDX section, which is at that place and within the file. *offset: where it says that it
 * begins. */
static enum lmc_status lmc__read_index(lmc_reader *r, uint64_t index_at, uint64_t index_size,
                                       uint64_t *offset)
{
    const uint64_t limit = r->options.limits.max_index_size ? r->options.limits.max_index_size
                                                            : LMC__DEFAULT_INDEX_LIMIT;
    const lmc__kernels *k = r->coder->wave.k;
    lmc__buffer *items = &r->coder->in[0]; /* not needed for anything else yet */
    uint64_t position = 0, n_entries, i;
    const uint8_t *p, *end, *entries;
    lmc__section section;
    *offset = LMC__HEADER_SIZE;
    LMC__CHECK(index_size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE, LMC_ERR_CORRUPT);
    if (index_size > limit) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__reserve(&r->index, index_size));
    LMC__TRY(lmc__read_at(r, index_at, r->index.data, (size_t)index_size));
    if (!r->options.salvage) { /* else what the header says is known */
        LMC__TRY(lmc__get_section(&section, r->index.data, k));
        LMC__CHECK(lmc__is_kind(&section, "INDX") && section.number == 0 &&
                       section.size == index_size - LMC__SECTION_HEADER_SIZE,
                   LMC_ERR_CORRUPT);
    }
    p = r->index.data + LMC__SECTION_HEADER_SIZE;
    end = r->index.data + index_size;
    LMC__CHECK(k->crc32c(0, p, (size_t)(end - p)) == lmc__load32(r->index.data + 20),
               LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    n_entries = (uint64_t)lmc__load32(p) + lmc__load32(p + 4);
    entries = p + LMC__INDEX_BODY_SIZE;
    p = entries;
    for (i = 0; i < n_entries; i++) LMC__TRY(lmc__read_entry(r, &p, end, offset, &position));
    LMC__CHECK(r->n_files > 0 && position == lmc__file_at(r, r->n_files - 1)->file.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(r->n_files == lmc__load32(entries - LMC__INDEX_BODY_SIZE), LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_metadata(r, p, end, lmc__load32(entries - LMC__INDEX_BODY_SIZE + 40)));
    LMC__TRY(lmc__collect_items(items, entries, n_entries));
    lmc__snapshot_identity(items, r->identity);
    LMC__CHECK(memcmp(entries - LMC__INDEX_BODY_SIZE + 8, r->identity, LMC_IDENTITY_SIZE) == 0,
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* What the reader keeps of an intact header. */
static void lmc__keep_header(lmc_reader *r, const uint8_t *header)
{
    memcpy(r->base_identity, header + 32, LMC_IDENTITY_SIZE);
    r->chain_depth = lmc__load32(header + 64);
    r->is_sequential = (int)(lmc__load32(header + 12) & LMC__FLAG_SEQUENTIAL);
}

static enum lmc_status lmc__open_reader(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    uint64_t index_at, index_size, offset;
    const size_t header_size = (size_t)lmc__min64(total, LMC__HEADER_SIZE);

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
    LMC__TRY(lmc__read_index(r, index_at, index_size, &offset));
    LMC__CHECK(offset == index_at, LMC_ERR_CORRUPT);
    return LMC_OK;
}

static enum lmc_status lmc__open_salvage(lmc_reader *r);
static void lmc__free_salvage(lmc_reader *r);
static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                          uint8_t *dst, size_t size);
/* Readers of damaged files have no run everywhere. */
static int lmc__is_in_run(const lmc_reader *r, const lmc__reader_file *f, size_t number,
                          uint64_t offset)
{
    return number < f->first_run + f->n_runs && lmc__run_at(r, number)->run.start <= offset &&
           offset - lmc__run_at(r, number)->run.start < lmc__run_at(r, number)->run.size;
}

static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size);

/* What a reader's origin reads back: its own file. Not by the window, in which might be what is
 * just being read. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    return lmc_read_file((lmc_reader *)user, file_number, offset, dst, size);
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

LMC_API size_t lmc_count_files(const lmc_reader *r) { return r ? r->n_files : 0; }

LMC_API const lmc_file *lmc_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->n_files ? &lmc__file_at(r, i)->file : NULL;
}

LMC_API enum lmc_status lmc_find_tensor(const lmc_reader *r, const char *path, const char *name,
                                        size_t *file_number, const lmc_tensor **tensor)
{
    const lmc_tensor *found = NULL;
    size_t i, j, where = 0;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    for (i = 0; i < r->n_files; i++) {
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

/* The run of a file that holds byte offset, which is below the file's size. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__reader_file *f, uint64_t offset)
{
    size_t low = f->first_run, high = f->first_run + f->n_runs; /* the answer is in [low, high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (lmc__run_at(r, middle)->run.start <= offset) low = middle;
        else high = middle;
    }
    return low;
}

/* The predictions of blocks [first, first + n) of a run, of which bytes [offset, end) of the run go
 * to dst: of a block that is wanted whole, to its place there, where it is decoded then; of the
 * others, the first and the last at most, to buffer, that of the first in *head bytes. */
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

/* Bytes [offset, offset + size) of run number n, within the run. */
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
        if (run->prediction != LMC__PREDICT_ZERO) /* by this reader, perhaps, or one that shares the
                                                     coder: before that is in use */
            LMC__TRY(lmc__read_predictions(r, run, first, n, offset, end, dst, base, &head));
        LMC__TRY(lmc__set_coder(c, largest, lmc__min(largest, LMC_MAX_BLOCK_ELEMENTS), 1));
        c->wave.pieces = NULL;
        c->in[0].size = 0;
        LMC__TRY(lmc__reserve(&c->in[0], in_size));
        LMC__TRY(lmc__read_at(r, block_at[first], c->in[0].data, in_size));
        for (i = 0; i < n; i++, block++) {
            lmc__job *job = &c->wave.jobs[i];
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
            job->own = run->prediction == LMC__PREDICT_OWN;
            job->is_done = 0;
            job->streaming.is_on = end - offset >= LMC__STREAM_FROM && job->keep == job->info.size;
            job->streaming.next = NULL;
            job->streaming.next_size = 0;
        }
        lmc__run_wave(c->parallel, lmc__decode_task, &c->wave, n);
        LMC__TRY(lmc__wave_status(&c->wave, n));
    }
    return LMC_OK;
}

static enum lmc_status lmc__read_run(lmc_reader *r, size_t number, uint64_t offset, uint8_t *dst,
                                     size_t size)
{
    return r->options.salvage ? lmc__read_salvaged(r, number, offset, dst, size)
                              : lmc__read_indexed_run(r, number, offset, dst, size);
}

/* Of a block that is not wanted whole, these many bytes of the run are decoded and kept, or the
 * block if that is larger: what a delta wants of its base comes in pieces as small as tensors,
 * mostly neighbours. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)

/* lmc_base's read. Whole blocks go straight to dst: the links of a chain are mostly cut alike, and
 * then a block goes through all of them at one place. A window begins with the first block that is
 * not there yet: what is asked for from front to back is decoded once, and so asked for once of the
 * next link. */
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
        LMC__CHECK(!r->options.salvage ||
                       lmc__is_in_run(r, lmc__file_at(r, file_number), number, offset),
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
            LMC__TRY(lmc__read_run(r, number, at, out, part));
        } else { /* to be found in it now */
            const size_t span = run->block_size > LMC__WINDOW_SIZE
                                    ? run->block_size
                                    : LMC__WINDOW_SIZE; /* powers of two */
            const uint64_t start = at - at % run->block_size;
            const size_t n = (size_t)lmc__min64(span - start % span, run->size - start);
            r->window.size = 0; /* nothing, if reading fails */
            LMC__TRY(lmc__reserve(&r->window, n));
            LMC__TRY(lmc__read_run(r, number, start, r->window.data, n));
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

LMC_API enum lmc_status lmc_read_file(lmc_reader *r, size_t file_number, uint64_t offset, void *dst,
                                      size_t size)
{
    const lmc__reader_file *f;
    uint8_t *out = (uint8_t *)dst;
    size_t number;
    if (!r || file_number >= r->n_files || (!dst && size)) return LMC_ERR_ARGUMENT;
    f = lmc__file_at(r, file_number);
    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;
    if (size == 0) return LMC_OK;
    for (number = lmc__find_run(r, f, offset); size != 0; number++) {
        const lmc__run *run;
        size_t n;
        LMC__CHECK(!r->options.salvage || lmc__is_in_run(r, f, number, offset), LMC_ERR_NOT_FOUND);
        run = &lmc__run_at(r, number)->run;
        n = (size_t)lmc__min64(size, run->start + run->size - offset);
        LMC__TRY(lmc__read_run(r, number, offset - run->start, out, n));
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
    if (r && identity) memcpy(identity, r->identity, LMC_IDENTITY_SIZE);
}

LMC_API uint32_t lmc_get_base_identity(const lmc_reader *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (r && identity) memcpy(identity, r->base_identity, LMC_IDENTITY_SIZE);
    return r ? r->chain_depth : 0;
}

LMC_API size_t lmc_count_metadata(const lmc_reader *r) { return r ? r->n_metadata : 0; }

LMC_API enum lmc_status lmc_get_metadata(const lmc_reader *r, size_t i, const char **key,
                                         const void **value, size_t *size)
{
    const lmc__entry *entry;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->n_metadata) return LMC_ERR_NOT_FOUND;
    entry = (const lmc__entry *)(const void *)r->metadata.data + i;
    *key = (const char *)r->keys.data + entry->key_at;
    *value = entry->value;
    *size = entry->size;
    return LMC_OK;
}

LMC_API uint64_t lmc_count_encoded(const lmc_reader *r, size_t file_number, uint64_t offset,
                                   uint64_t size)
{
    const lmc__reader_file *f;
    uint64_t encoded = 0;
    size_t number;
    if (!r || file_number >= r->n_files || r->options.salvage) return 0;
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

/* The base's file of that path, kind and size; NULL: there is none. */
static const lmc_file *lmc__find_base_file(const lmc_base *base, const lmc__buffer *items,
                                           const lmc_file *file)
{
    const lmc__item *const item = (const lmc__item *)(const void *)items->data;
    const lmc_file *found = NULL;
    size_t low = 0, high = base->n_files;
    lmc__item wanted;
    wanted.name = (const uint8_t *)file->path;
    wanted.size = strlen(file->path);
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (lmc__compare_names(&item[middle], &wanted) <= 0) low = middle;
        else high = middle;
    }
    if (low < base->n_files) found = base->get_file(base->user, item[low].file_number);
    return found && strcmp(found->path, file->path) == 0 && found->kind == file->kind &&
                   found->size == file->size
               ? found
               : NULL;
}

/* The prediction of a segment by the base has the segment's own place in file, which is the base's
 * or, where that is not at hand, the snapshot's own: then it seems so. *tensor: of file, the first
 * that does not end before the segment; to be advanced. */
static int lmc__is_in_place(const lmc_reader *r, const lmc_file *file, const uint8_t *segment,
                            size_t *tensor)
{
    const uint32_t number = lmc__load32(segment + 4);
    const uint64_t at = lmc__load64(segment + 8), from = lmc__load64(segment + 24);
    const lmc__item *item = number && r->origin.base ? lmc__get_item(&r->origin, number - 1) : NULL;
    const lmc_tensor *t;
    if (number == 0) return 1;
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
    size_t i, j, k;
    int can = r && r->chain_depth != 0 && !r->options.salvage;
    memset(&items, 0, sizeof items);
    if (can && base) {
        items.alloc_user = r->options.alloc_user;
        can = base->n_files == r->n_files && lmc__sort_base_files(base, &items) == LMC_OK;
    }
    for (i = 0; can && i < r->n_files; i++) {
        const lmc__reader_file *f = lmc__file_at(r, i);
        const lmc_file *file = base ? lmc__find_base_file(base, &items, &f->file) : &f->file;
        size_t tensor = 0;
        can = file != NULL;
        for (j = f->first_run; can && j < f->first_run + f->n_runs; j++) {
            const lmc__run *run = &lmc__run_at(r, j)->run;
            for (k = 0; can && run->prediction == LMC__PREDICT_BASE && k < run->n_segments; k++)
                can = lmc__is_in_place(r, file, lmc__segment_at(run, (uint32_t)k), &tensor);
        }
    }
    lmc__free_buffer(&items);
    return can;
}

/* == snapshot/requantise.h ======================================================================== */

/* Room for the scales of n groups, as blocks come: a file may claim more than it has. */
static enum lmc_status lmc__reserve_scales(lmc_quantizer *q, uint64_t n)
{
    const uint64_t all = q->n / q->group_size + (q->n % q->group_size ? 1 : 0),
                   doubled = lmc__min64(all, 2 * (uint64_t)q->n_groups),
                   more = n > doubled ? n : doubled;
    uint16_t *scales;
    if (n <= q->n_groups) return LMC_OK;
    if (more > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    scales = (uint16_t *)LMC_REALLOC(q->alloc_user, q->scales, q->n_groups * sizeof q->scales[0],
                                     (size_t)more * sizeof q->scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->scales = scales;
    while (q->n_groups < more) scales[q->n_groups++] = 0x3F80;
    return LMC_OK;
}

/* The grid of a quantised block of a run, if the quantiser has none yet, else *is_other where that
 * differs; and the scales of the groups in it. A block that is not quantised, as was smaller, says
 * nothing: it will be coded so again. */
static enum lmc_status lmc__recover_block(lmc_quantizer *q, const lmc__kernels *k,
                                          const uint8_t *src, const lmc_block_info *info,
                                          uint64_t first, uint8_t *ws, size_t ws_size,
                                          int *is_other)
{
    lmc__decoder d;
    lmc__quantised head;
    uint8_t *spare;
    size_t i;
    if (src[1] >> 5 != LMC__LAYOUT_QUANTISED) return LMC_OK;
    *is_other = 1;
    if (info->width != q->width) return LMC_OK;
    d.k = k;
    d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
    d.in = src + LMC_BLOCK_HEADER_SIZE;
    d.end = src + info->encoded_size;
    spare = lmc__push_list(&d.stack, info->n);
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantised_head(&d, &head, info, spare));
    if (q->grid.n_points == 0) {
        q->grid = head.grid;
        q->grid.n_points = head.grid.is_signed ? 32767 : LMC__EXCEPTION - 1;
        if (head.grid.is_log && q->grid.n_points > 0x7FFFFFFFu / head.grid.step)
            q->grid.n_points = 0x7FFFFFFFu / head.grid.step;
        q->is_predicted = info->has_prediction;
        q->low_bits = head.low_bits;
        q->table_size = head.table_size;
        if (!q->table_size)
            q->grid.n_points =
                (uint32_t)lmc__min(q->grid.n_points, ((256u << q->low_bits) - 1) >>
                                                         q->grid.is_signed); /* that have codes */
        memcpy(q->table, head.table, sizeof q->table);
        q->group_size = head.group_size;
    } else if (q->is_predicted != info->has_prediction || q->low_bits != head.low_bits ||
               q->table_size != head.table_size || q->group_size != head.group_size ||
               q->grid.is_log != head.grid.is_log || q->grid.is_signed != head.grid.is_signed ||
               q->grid.min != head.grid.min || q->grid.step != head.grid.step ||
               q->grid.bias != head.grid.bias || q->grid.floor != head.grid.floor ||
               memcmp(q->table, head.table, sizeof q->table) != 0)
        return LMC_OK;
    if (!q->is_predicted && (first + head.first_group) % q->group_size != 0) return LMC_OK;
    if (!q->is_predicted) LMC__TRY(lmc__reserve_scales(q, first / q->group_size + head.n_groups));
    for (i = 0; i < head.n_groups && !q->is_predicted; i++)
        q->scales[first / q->group_size + i] = (uint16_t)(lmc__scale_at(&head, i) >> 16);
    *is_other = 0;
    return LMC_OK;
}

/* The codes of symbols, as they were found when the table was fitted: not only of those in it, for
 * BF16 may be rounded to a neighbour. */
static enum lmc_status lmc__set_codes(lmc_quantizer *q)
{
    const uint32_t zero = q->grid.is_log ? 0 : (uint32_t)(1 - q->grid.min);
    uint32_t s, distance;
    unsigned code = 1;
    if (q->table_size == 0) return LMC_OK;
    q->n_codes = LMC__SYMBOLS;
    q->codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_codes);
    if (!q->codes) return LMC_ERR_MEMORY;
    memset(q->codes, 0, q->n_codes);
    for (s = 1; s < LMC__EXCEPTION; s++)
        q->codes[s] = (uint8_t)lmc__find_code(q, &code, s, zero, &distance);
    return LMC_OK;
}

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
            status =
                lmc__recover_block(q, r->coder->wave.k, in.data, &info,
                                   block * run->block_size / q->width, ws.data, ws_size, &is_other);
    }
    lmc__free_buffer(&in);
    lmc__free_buffer(&ws);
    LMC__TRY(status);
    if (is_other || q->grid.n_points == 0 ||
        q->is_predicted != (run->prediction == LMC__PREDICT_OWN))
        return LMC_OK;
    LMC__TRY(lmc__set_codes(q));
    if (!q->is_predicted)
        LMC__TRY(lmc__reserve_scales(q, (q->n - 1) / q->group_size +
                                            1)); /* of blocks that are not quantised, too */
    if (q->is_predicted && twin) {
        twin->file_number = lmc__load32(run->segments + 4) - 1;
        twin->offset = lmc__load64(run->segments + 24);
        twin->conversion = LMC_CONVERT_NONE;
    }
    q->info.is_lossless = q->is_predicted && !twin;
    q->info.reason = "";
    q->info.is_grid = q->table_size == 0;
    q->info.n_codes = q->table_size ? q->table_size + 1 : 0;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_quantizer(lmc_quantizer **quantizer, lmc_reader *r,
                                           size_t file_number, const lmc_tensor *t, lmc_twin *twin)
{
    enum lmc_status status = LMC_OK;
    enum lmc_dtype dtype;
    lmc_quantizer *q;
    if (!quantizer || !r || r->options.salvage || file_number >= r->n_files || !t ||
        t->offset > lmc__file_at(r, file_number)->file.size ||
        t->size > lmc__file_at(r, file_number)->file.size - t->offset)
        return LMC_ERR_ARGUMENT;
    q = (lmc_quantizer *)LMC_REALLOC(r->options.alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = r->options.alloc_user;
    q->is_recovered = 1;
    q->info.loss = t->loss;
    dtype = lmc_find_dtype(t->dtype);
    q->width = lmc_dtype_width(dtype);
    q->n = t->size / q->width;
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || t->loss.generation == 0 || t->size == 0)
        (void)lmc__keep_lossless(q, "it was not quantised");
    else status = lmc__recover_quantizer(q, r, lmc__file_at(r, file_number), t, twin);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}

/* == snapshot/salvage.h =========================================================================== */

enum { LMC__KIND_FILE = 0, LMC__KIND_RUN = 1 };

typedef struct lmc__found_section {
    uint64_t at;
    uint64_t body_at; /* in reader->index */
    uint64_t size;    /* of the body */
    uint32_t number;
    int kind;
} lmc__found_section;

/* The header of a block, right for that place. */
typedef struct lmc__found_block {
    uint64_t at;
    uint32_t run, block;
    uint32_t size, length, crc; /* encoded, decoded, of the content */
    uint32_t header_crc;
    uint8_t trust;       /* 3: where the index says; 2: in an unbroken row after its section; 1:
                            elsewhere; 0: within another block */
    uint8_t is_doubtful; /* there is another one, as good, of other content */
    uint8_t has_prediction;
    uint32_t outer_run, outer_block; /* trust 0: that other block; if it is intact, this one is but
                                        a part of its content */
} lmc__found_block;

/* The header of a block, perhaps: of which run is not known yet. Its position is the run's state
 * (lmc__run_state) ^ state. */
typedef struct lmc__orphan {
    lmc__found_block block;
    uint32_t state;
    uint32_t after;    /* number of the run that it follows, plus 1 */
    uint64_t after_at; /* and where that one's section ended */
} lmc__orphan;

#define LMC__MAX_ORPHANS ((size_t)1 << 20)
#define LMC__MAX_COPIES 4u /* of a block that are tried */

static lmc__found_block *lmc__found_at(const lmc_reader *r, size_t i)
{
    return (lmc__found_block *)(void *)r->salvage.blocks.data + i;
}

static int lmc__compare_found(const lmc__found_block *a, const lmc__found_block *b)
{
    if (a->run != b->run) return a->run < b->run ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    if (a->trust != b->trust) return a->trust > b->trust ? -1 : 1; /* the best first */
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Heap sort, unless they are in order, as they are in a file that was not shuffled. */
static void lmc__sort_found(lmc__found_block *found, size_t n)
{
    size_t start = n / 2, end = n, i = 1;
    while (i < n && lmc__compare_found(&found[i - 1], &found[i]) < 0) i++;
    if (i >= n) return;
    while (end > 1) {
        size_t root, child;
        lmc__found_block item;
        if (start > 0) item = found[--start];
        else {
            item = found[--end];
            found[end] = found[0];
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && lmc__compare_found(&found[child], &found[child + 1]) < 0)
                child++;
            if (lmc__compare_found(&item, &found[child]) >= 0) break;
            found[root] = found[child];
        }
        found[root] = item;
    }
}

/* The first of the sorted ones that is not before (run, block). */
static size_t lmc__find_found(const lmc_reader *r, size_t run, uint64_t block)
{
    size_t low = 0, high = r->salvage.n_blocks;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const lmc__found_block *const f = lmc__found_at(r, middle);
        if (f->run < run || (f->run == run && f->block < block)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Exclusive or of the block's number and of lmc__run_state of its run. */
static uint32_t lmc__header_state(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    return lmc__rewind_crc(
        lmc__rewind_crc(~lmc__load32(header + LMC__BLOCK_CRC_AT), header, LMC__BLOCK_CRC_AT), zeros,
        4);
}

static uint32_t lmc__run_state(const lmc__kernels *k, uint32_t run)
{
    uint8_t field[4];
    lmc__store32(field, run);
    return ~k->crc32c(0, field, 4);
}

/* -- the walk through the file -- */

/* Bytes of the file; what cannot be read is zero. 1: all could. */
static int lmc__read_rest(lmc_reader *r, uint64_t at, uint8_t *dst, size_t size)
{
    size_t i, part;
    int all = 1;
    if (lmc__read_at(r, at, dst, size) == LMC_OK) return 1;
    for (i = 0; i < size; i += part) {
        part = lmc__min(size - i, 4096 - (size_t)((at + i) % 4096));
        if (lmc__read_at(r, at + i, dst + i, part) == LMC_OK) continue;
        memset(dst + i, 0, part);
        all = 0;
    }
    return all;
}

/* Bytes [at, at + size) of the file, which has them, and up to `more` behind them; *n: how many. */
static enum lmc_status lmc__view(lmc_reader *r, uint64_t at, size_t size, size_t more,
                                 const uint8_t **p, size_t *n)
{
    lmc__salvage *const s = &r->salvage;
    if (at < s->view_at || at - s->view_at > s->view.size ||
        size > s->view.size - (size_t)(at - s->view_at)) {
        const size_t wanted = (size_t)lmc__min64(size + (uint64_t)more, r->source.size - at);
        s->view.size = 0;
        LMC__TRY(lmc__reserve(&s->view, wanted));
        (void)lmc__read_rest(r, at, s->view.data, wanted);
        s->view.size = wanted;
        s->view_at = at;
    }
    *p = s->view.data + (size_t)(at - s->view_at);
    *n = s->view.size - (size_t)(at - s->view_at);
    return LMC_OK;
}

typedef struct lmc__walk {
    uint64_t at;
    uint64_t
        resume; /* if nothing is there: where to search on, behind the last header that was found */
    uint64_t last_size; /* of what begins there: its bytes are read again */
    int is_linked;      /* `at` is where that ends */
    int is_row;         /* an unbroken one since a section */
    int is_end;         /* the index has been reached */
    uint64_t outer_end; /* of the block that the search began in; its numbers */
    uint32_t outer_run, outer_block;
    uint32_t after; /* number of the run at hand, plus 1; 0: none yet */
    uint64_t after_at;
    uint32_t next_file;  /* number */
    uint64_t next_block; /* of the run at hand; */
    uint64_t n_blocks;   /* of so many; 0: not known */
    int is_in_run;       /* the last thing found was a RUN section or a block: a block may follow */
    int has_run;         /* without index: it is known */
    lmc__run run;        /* then */
    int can_pop;  /* the last thing found was a block, which would be taken back if too much were
                     read twice */
    int is_whole; /* it was a section, and is intact */
} lmc__walk;

/* What may be read twice: a hostile file can have a header at every byte. */
static int lmc__may_claim(lmc_reader *r, uint64_t size)
{
    lmc__salvage *const s = &r->salvage;
    if (s->claimed > 8 * lmc__min64(r->source.size, (uint64_t)1 << 56) + ((uint64_t)16 << 20))
        return 0;
    s->claimed += size; /* 0: only to ask */
    return 1;
}

static enum lmc_status lmc__take_index(lmc_reader *r, uint64_t at, uint64_t size, int *is_foreign);

/* What stands where the thing before it ends is also what should follow it. If it is not, what lies
 * between may be in that, shortened. */
static int lmc__is_next(const lmc_reader *r, const lmc__walk *w, const lmc__section *section)
{
    if (!w->is_linked) return 1;
    if (w->n_blocks != 0 && w->next_block != w->n_blocks) return 0;
    if (r->salvage.damage.has_index &&
        lmc__is_kind(section, "FILE")) /* which runs stand before it is known */
        return section->number == w->next_file && section->number < r->n_files &&
               lmc__file_at(r, section->number)->first_run == w->after;
    return lmc__is_kind(section, "FILE")
               ? section->number == w->next_file
               : lmc__is_kind(section, "INDX") || section->number == w->after;
}

/* *step: the size of the section at p, 0 if there is none. */
static enum lmc_status lmc__look_at_section(lmc_reader *r, lmc__walk *w, const uint8_t *p,
                                            uint64_t *step)
{
    const lmc__kernels *const k = r->coder->wave.k;
    const uint64_t limit = r->options.limits.max_index_size ? r->options.limits.max_index_size
                                                            : LMC__DEFAULT_INDEX_LIMIT;
    lmc__salvage *const s = &r->salvage;
    const size_t size_before = r->index.size;
    lmc__found_section found;
    lmc__section section;
    lmc__buffer *body;
    int is_whole;
    *step = 0;
    if (lmc__get_section(&section, p, k) != LMC_OK) return LMC_OK;
    if (!lmc__is_next(r, w, &section) ||
        section.size > r->source.size - w->at - LMC__SECTION_HEADER_SIZE || section.size > limit ||
        s->sections.size > limit)
        return LMC_OK;
    if (lmc__is_kind(&section, "INDX")) {
        int is_foreign = 0;
        if (s->damage.has_index || section.number != 0 || !lmc__may_claim(r, section.size))
            return LMC_OK; /* where it begins the walk ends */
        LMC__TRY(lmc__take_index(r, w->at, LMC__SECTION_HEADER_SIZE + section.size, &is_foreign));
        if (!s->damage.has_index && (!w->is_linked || is_foreign)) return LMC_OK;
        w->is_end = 1; /* nothing follows it, be it damaged or not */
        if (!s->damage.has_index) s->damage.is_complete = s->damage.n_breaks == 0;
        s->end = w->at;
        *step = LMC__SECTION_HEADER_SIZE + section.size;
        return LMC_OK;
    }
    found.kind = lmc__is_kind(&section, "FILE") ? LMC__KIND_FILE : LMC__KIND_RUN;
    /* a section and a block before it take so many bytes at least */
    if ((found.kind == LMC__KIND_RUN && !lmc__is_kind(&section, "RUN ")) ||
        section.number > w->at / 56 + 1)
        return LMC_OK;
    if (!lmc__may_claim(r, section.size)) return LMC_OK;
    body = s->damage.has_index ? &s->container : &r->index;
    if (s->damage.has_index) body->size = 0;
    found.body_at = body->size;
    LMC__TRY(
        lmc__reserve(body, section.size + 1)); /* of an empty one, too, data is no null pointer */
    (void)lmc__read_rest(r, w->at + LMC__SECTION_HEADER_SIZE, body->data + body->size,
                         (size_t)section.size);
    is_whole = k->crc32c(0, body->data + body->size, (size_t)section.size) == section.body_crc;
    if (!is_whole && !w->is_linked) return LMC_OK;
    s->damage.n_sections += !is_whole;
    found.at = w->at;
    found.size = section.size;
    found.number = section.number;
    if (is_whole && !s->damage.has_index) {
        LMC__TRY(lmc__append(&s->sections, &found, sizeof found));
        r->index.size += (size_t)section.size;
    }
    w->has_run = 0;
    w->n_blocks = w->next_block = 0;
    w->is_in_run = found.kind == LMC__KIND_RUN;
    if (found.kind == LMC__KIND_FILE) w->next_file = section.number + 1;
    if (found.kind == LMC__KIND_RUN) {
        lmc_file file;
        uint64_t start;
        memset(&file, 0, sizeof file);
        file.size = LMC_UNKNOWN_SIZE;
        w->after = section.number + 1;
        w->after_at = w->at + LMC__SECTION_HEADER_SIZE + section.size;
        if (is_whole && !s->damage.has_index &&
            section.size >= LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE) {
            const uint8_t *const segment = r->index.data + size_before + LMC__RUN_BODY_SIZE;
            start = lmc__load64(segment + 8);
            w->has_run = start <= LMC__MAX_FILE_SIZE &&
                         lmc__parse_run(&w->run, r->index.data + size_before, (size_t)section.size,
                                        lmc__load32(segment), &file, &start) == LMC_OK;
            if (w->has_run) w->n_blocks = w->run.n_blocks;
        } else if (s->damage.has_index && section.number < r->runs.size / sizeof(lmc__reader_run))
            w->n_blocks = lmc__run_at(r, section.number)->run.n_blocks;
    }
    w->is_row = 1;
    w->is_whole = is_whole;
    w->can_pop = 0;
    *step = LMC__SECTION_HEADER_SIZE + section.size;
    return LMC_OK;
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

/* *step: the size of the block at p, 0 if there is none that fits the run at hand. */
static enum lmc_status lmc__look_at_block(lmc_reader *r, lmc__walk *w, const uint8_t *p,
                                          uint64_t *step)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n_known = r->runs.size / sizeof(lmc__reader_run),
                 first = w->after ? w->after - 1 : 0;
    lmc_block_info info;
    lmc__orphan o;
    size_t j;
    *step = 0;
    if (!w->is_linked && !lmc__may_claim(r, 0)) return LMC_OK;
    if (lmc__parse_block_info(p, &info) != LMC_OK || info.encoded_size > r->source.size - w->at ||
        info.encoded_size <= LMC_BLOCK_HEADER_SIZE)
        return LMC_OK;
    memset(&o, 0, sizeof o);
    o.block.at = w->at;
    o.block.size = (uint32_t)info.encoded_size;
    o.block.length = (uint32_t)info.size;
    o.block.crc = info.crc;
    o.block.header_crc = lmc__load32(p + LMC__BLOCK_CRC_AT);
    o.block.has_prediction = (uint8_t)info.has_prediction;
    o.block.trust = w->is_row ? 2 : 1;
    if (w->at < w->outer_end) {
        o.block.trust = 0;
        o.block.outer_run = w->outer_run;
        o.block.outer_block = w->outer_block;
    }
    o.state = lmc__header_state(p);
    o.after = w->after;
    o.after_at = w->after_at;
    /* with an index, the sections of a few runs may be missing in between */
    for (j = first; s->damage.has_index ? j < n_known && j < first + 4 : w->has_run && j == first;
         j++) {
        const lmc__run *const run = s->damage.has_index ? &lmc__run_at(r, j)->run : &w->run;
        o.block.run = (uint32_t)j;
        o.block.block = o.state ^ lmc__run_state(k, (uint32_t)j);
        if (!lmc__fits_run(run, s->damage.has_index ? lmc__run_at(r, j)->blocks : NULL, &o.block))
            continue;
        if (w->is_linked && (!w->is_in_run || j != first || o.block.block != w->next_block))
            return LMC_OK; /* see lmc__is_next */
        w->is_in_run = 1;
        w->after = (uint32_t)j + 1;
        w->next_block = (uint64_t)o.block.block + 1;
        w->n_blocks = run->n_blocks;
        LMC__TRY(lmc__append(&s->blocks, &o.block, sizeof o.block));
        *step = info.encoded_size;
        w->can_pop = 1;
        w->is_whole = 0;
        return LMC_OK;
    }
    if (s->orphans.size / sizeof o < LMC__MAX_ORPHANS && lmc__may_claim(r, LMC_BLOCK_HEADER_SIZE))
        return lmc__append(&s->orphans, &o, sizeof o);
    return LMC_OK;
}

/* Nothing that could be is where the last thing ends. That may be damaged itself, and shorter or
 * longer than its header says: search from there. */
static void lmc__break_link(lmc_reader *r, lmc__walk *w)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__found_block *last;
    s->damage.n_breaks++;
    w->is_linked = w->is_row = 0;
    if (w->can_pop) {
        last = lmc__found_at(r, s->blocks.size / sizeof *last - 1);
        if (lmc__may_claim(r, w->last_size)) {
            w->outer_end = w->at;
            w->outer_run = last->run;
            w->outer_block = last->block;
        } else s->blocks.size -= sizeof *last;
    }
    w->can_pop = 0;
    w->at = w->resume;
}

static enum lmc_status lmc__walk_through(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    uint8_t is_first[256]; /* bytes with which a header begins */
    lmc__walk w;
    memset(is_first, 0, sizeof is_first);
    is_first[LMC__BLOCK_SYNC] = is_first['F'] = is_first['R'] = is_first['I'] = 1;
    memset(&w, 0, sizeof w);
    w.at = LMC__HEADER_SIZE;
    w.resume = s->damage.has_header ? LMC__HEADER_SIZE : 0;
    w.is_linked = 1;
    while (!w.is_end) {
        uint64_t step = 0;
        const uint8_t *p;
        size_t n, i;
        if (w.at > s->end || s->end - w.at < LMC__SECTION_HEADER_SIZE) {
            const int is_last =
                (w.n_blocks == 0 || w.next_block == w.n_blocks) &&
                (!s->damage.has_index || w.after == r->runs.size / sizeof(lmc__reader_run));
            if (!w.is_linked ||
                (w.at == s->end &&
                 is_last)) { /* else behind an incomplete block, or one that was shortened */
                if (w.is_linked && s->damage.n_breaks == 0 && s->damage.has_trailer)
                    s->damage.is_complete = 1;
                break;
            }
            lmc__break_link(r, &w);
            continue;
        }
        LMC__TRY(lmc__view(r, w.at, LMC__SECTION_HEADER_SIZE,
                           w.is_linked ? 4096 : (size_t)256 << 10, &p, &n));
        if (p[0] == LMC__BLOCK_SYNC) LMC__TRY(lmc__look_at_block(r, &w, p, &step));
        else if (is_first[p[0]]) LMC__TRY(lmc__look_at_section(r, &w, p, &step));
        if (step) {
            w.resume = w.at + (w.is_whole ? step
                                          : LMC__SECTION_HEADER_SIZE -
                                                4); /* Head_CRC does not cover Body_CRC, which may
                                                       be another's first bytes */
            w.last_size = step;
            w.at += step;
            w.is_linked = 1;
        } else if (w.is_linked) {
            lmc__break_link(r, &w);
        } else {
            for (i = 1; i < n && !is_first[p[i]]; i++) {}
            w.at += i;
        }
    }
    return LMC_OK;
}

/* == snapshot/salvage_place.h ===================================================================== */

/* -- tables -- */

static void lmc__clear_tables(lmc_reader *r)
{
    size_t i;
    for (i = 0; i < r->n_files; i++) lmc__free_buffer(&lmc__file_at(r, i)->memory);
    r->n_files = r->n_metadata = 0;
    r->index.size = r->files.size = r->runs.size = r->block_at.size = r->keys.size =
        r->metadata.size = 0;
    lmc__free_buffer(&r->paths);
    r->salvage.sections.size = r->salvage.blocks.size = r->salvage.orphans.size = 0;
    memset(r->identity, 0, sizeof r->identity);
}

/* The index, if there is one at that place and it is this file's: sections before it are where it
 * says, or all of it is. Another file's could be part of a damaged block. What was found so far is
 * forgotten then, for all is searched again with its help. */
static enum lmc_status lmc__take_index(lmc_reader *r, uint64_t at, uint64_t size, int *is_foreign)
{
    lmc__salvage *const s = &r->salvage;
    lmc_reader found = *r;
    uint8_t first[LMC__SECTION_HEADER_SIZE];
    uint64_t offset;
    enum lmc_status status;
    found.index.data = found.files.data = found.runs.data = found.block_at.data = found.keys.data =
        found.metadata.data = found.paths.data = NULL;
    found.index.cap = found.files.cap = found.runs.cap = found.block_at.cap = found.keys.cap =
        found.metadata.cap = found.paths.cap = 0;
    found.index.size = found.files.size = found.runs.size = found.block_at.size = found.keys.size =
        found.metadata.size = found.paths.size = 0;
    found.n_files = found.n_metadata = 0;
    status = lmc__read_index(&found, at, size, &offset);
    if (status == LMC_OK && offset != at &&
        (!lmc__read_rest(r, LMC__HEADER_SIZE, first, sizeof first) ||
         memcmp(first, found.index.data + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + 8,
                sizeof first) != 0)) {
        *is_foreign = 1;
        status = LMC_ERR_CORRUPT;
    }
    if (status == LMC_OK) {
        lmc__section section;
        s->damage.n_sections =
            lmc__get_section(&section, found.index.data, r->coder->wave.k) != LMC_OK;
        s->damage.n_breaks = 0;
        lmc__clear_tables(r);
        lmc__free_buffer(&r->index);
        lmc__free_buffer(&r->files);
        lmc__free_buffer(&r->runs);
        lmc__free_buffer(&r->block_at);
        lmc__free_buffer(&r->keys);
        lmc__free_buffer(&r->metadata);
        r->index = found.index;
        r->files = found.files;
        r->runs = found.runs;
        r->block_at = found.block_at;
        r->keys = found.keys;
        r->metadata = found.metadata;
        r->paths = found.paths;
        r->n_files = found.n_files;
        r->n_metadata = found.n_metadata;
        memcpy(r->identity, found.identity, LMC_IDENTITY_SIZE);
        s->damage.has_index = s->damage.is_complete = 1;
        s->end = at;
        return LMC_OK;
    }
    lmc__clear_tables(&found); /* of what is shared, only the sizes in this copy */
    lmc__free_buffer(&found.index);
    lmc__free_buffer(&found.files);
    lmc__free_buffer(&found.runs);
    lmc__free_buffer(&found.block_at);
    lmc__free_buffer(&found.keys);
    lmc__free_buffer(&found.metadata);
    return status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE ? status : LMC_OK;
}

/* So many files and runs, of which nothing is known so far. */
static enum lmc_status lmc__extend_files(lmc_reader *r, size_t n)
{
    while (r->n_files < n) {
        lmc__reader_file *f;
        LMC__TRY(lmc__append(&r->files, NULL, sizeof *f));
        f = lmc__file_at(r, r->n_files++);
        f->memory.alloc_user = r->options.alloc_user;
        f->file.path = "";
        f->file.size = LMC_UNKNOWN_SIZE;
        f->first_run = r->runs.size / sizeof(lmc__reader_run);
    }
    return LMC_OK;
}

static enum lmc_status lmc__extend_runs(lmc_reader *r, size_t n)
{
    while (r->runs.size / sizeof(lmc__reader_run) < n) {
        lmc__reader_run *run;
        LMC__TRY(lmc__append(&r->runs, NULL, sizeof *run));
        run = lmc__run_at(r, r->runs.size / sizeof *run - 1);
        run->prediction = LMC_ERR_NOT_FOUND;
        run->run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK;
    }
    return LMC_OK;
}

/* A run belongs to a file, and lies behind all that did so before. */
static void lmc__give_run(lmc_reader *r, size_t number)
{
    lmc__reader_file *const f = lmc__file_at(r, lmc__run_at(r, number)->run.file_number);
    if (f->n_runs == 0) f->first_run = number;
    else if (number < f->first_run) {
        f->n_runs += f->first_run - number;
        f->first_run = number;
    }
    if (number - f->first_run >= f->n_runs) f->n_runs = number - f->first_run + 1;
}

/* Without an index: files and runs by their sections. Those that contradict what came before count
 * as lost. */
static enum lmc_status lmc__collect_sections(lmc_reader *r)
{
    const lmc__salvage *const s = &r->salvage;
    const lmc__found_section *const found =
        (const lmc__found_section *)(const void *)s->sections.data;
    const size_t n = s->sections.size / sizeof *found;
    size_t i, last_file = 0;
    uint64_t last_end = 0;
    for (i = 0; i < n; i++) {
        const uint8_t *const body = r->index.data + (size_t)found[i].body_at;
        const size_t size = (size_t)found[i].size;
        if (found[i].kind == LMC__KIND_FILE) {
            lmc__reader_file *f;
            enum lmc_status status;
            if (found[i].number < r->n_files) continue;
            LMC__TRY(lmc__extend_files(r, (size_t)found[i].number + 1));
            f = lmc__file_at(r, found[i].number);
            status = lmc__parse_file(&f->file, &f->memory, body, size);
            if (status == LMC_OK && found[i].number != 0 &&
                (*f->file.path == 0 ||
                 (lmc__file_at(r, 0)->is_described && *lmc__file_at(r, 0)->file.path == 0)))
                status = LMC_ERR_CORRUPT; /* a file without a name is alone: this is one of another
                                             snapshot */
            if (status == LMC_OK) status = lmc__add_path(&r->paths, found[i].number, f->file.path);
            if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
            f->is_described = status == LMC_OK;
            if (status == LMC_OK) continue;
            memset(&f->file, 0, sizeof f->file);
            f->file.path = "";
            f->file.size = LMC_UNKNOWN_SIZE;
        } else {
            lmc__reader_run *run;
            lmc__run parsed;
            uint32_t file_number;
            uint64_t position;
            if (found[i].number < r->runs.size / sizeof *run ||
                size < LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE)
                continue;
            file_number = lmc__load32(body + LMC__RUN_BODY_SIZE);
            position = lmc__load64(body + LMC__RUN_BODY_SIZE + 8);
            if (file_number > found[i].at / 56 || file_number < last_file ||
                (file_number == last_file && position < last_end))
                continue;
            if (position > LMC__MAX_FILE_SIZE) continue;
            LMC__TRY(lmc__extend_files(r, (size_t)file_number + 1));
            if (lmc__parse_run(&parsed, body, size, file_number,
                               &lmc__file_at(r, file_number)->file, &position) != LMC_OK)
                continue;
            LMC__TRY(lmc__extend_runs(r, (size_t)found[i].number + 1));
            run = lmc__run_at(r, found[i].number);
            run->run = parsed;
            run->prediction = LMC_OK;
            lmc__give_run(r, found[i].number);
            last_file = file_number;
            last_end = position;
        }
    }
    return LMC_OK;
}

/* -- orphans: blocks of runs whose sections are lost, or that are in the wrong place -- */

/* Where an unknown run begins, if that is certain: *file_number, *start. `number` is not known, and
 * the run before it, if there is one, is. */
static int lmc__locate_run(const lmc_reader *r, size_t number, size_t *file_number, uint64_t *start)
{
    const size_t n_runs = r->runs.size / sizeof(lmc__reader_run);
    const lmc__run *const before = number ? &lmc__run_at(r, number - 1)->run : NULL;
    const lmc__run *const behind =
        number + 1 < n_runs && lmc__run_at(r, number + 1)->prediction != LMC_ERR_NOT_FOUND
            ? &lmc__run_at(r, number + 1)->run
            : NULL;
    const lmc__reader_file *f;
    if (before && lmc__run_at(r, number - 1)->prediction == LMC_ERR_NOT_FOUND)
        return 0; /* nor where that one ends */
    *file_number = before ? before->file_number : 0;
    *start = before ? before->start + before->size : 0;
    if (behind && behind->file_number == *file_number) return behind->start > *start;
    if (*file_number >= r->n_files) return 0;
    f = lmc__file_at(r, *file_number);
    if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    if (*start < f->file.size) return 1;
    /* the next file that has bytes, if all up to that are known */
    do {
        if (++*file_number >= r->n_files) return 0;
        f = lmc__file_at(r, *file_number);
        if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    } while (f->file.size == 0);
    *start = 0;
    return !behind || behind->file_number > *file_number ||
           (behind->file_number == *file_number && behind->start > 0);
}

/* The blocks of one unknown run: found blocks [first, first + n), sorted. If their place is
 * certain, the run gets it. */
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
    if (i + 1 == n && block[0].block != 0)
        return LMC_OK; /* a lone block, which might be the last: of what size the others are is not
                          known */
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
    if ((size_t)number + 1 < r->runs.size / sizeof(lmc__reader_run)) {
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
    lmc__give_run(r, number);
    return LMC_OK;
}

/* Finds the runs of orphans. */
static enum lmc_status lmc__adopt_orphans(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    lmc__orphan *const o = (lmc__orphan *)(void *)s->orphans.data;
    uint64_t tries = 0;
    size_t i, j, n_left = 0;
    for (i = 0; i < n; i++) {
        const size_t first = o[i].after ? o[i].after - 1 : 0;
        int is_found = 0;
        for (j = 0; j < n_runs && tries < (uint64_t)1 << 26 && !is_found;
             j++, tries++) { /* of known runs; those that follow first */
            const size_t number = (first + j) % n_runs;
            o[i].block.block = o[i].state ^ lmc__run_state(k, (uint32_t)number);
            is_found = lmc__run_at(r, number)->prediction != LMC_ERR_NOT_FOUND &&
                       lmc__fits_run(&lmc__run_at(r, number)->run, lmc__run_at(r, number)->blocks,
                                     &o[i].block);
            if (is_found) o[i].block.run = (uint32_t)number;
        }
        if (is_found) {
            if (o[i].block.trust == 2) o[i].block.trust = 1;
            LMC__TRY(lmc__append(&s->blocks, &o[i].block, sizeof o[i].block));
        } else o[n_left++] = o[i];
    }
    s->orphans.size = n_left * sizeof *o;
    if (s->damage.has_index) s->orphans.size = 0; /* all runs are known: these are none of theirs */
    return LMC_OK;
}

/* Of runs that nobody knows: the one number between those known for which the block's number is not
 * beyond what the bytes since then can hold. */
static enum lmc_status lmc__number_orphans(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    const lmc__orphan *const o = (const lmc__orphan *)(const void *)s->orphans.data;
    lmc__buffer numbered;
    enum lmc_status status = LMC_OK;
    lmc__found_block *block;
    size_t i, j, first;
    memset(&numbered, 0, sizeof numbered);
    numbered.alloc_user = r->options.alloc_user;
    for (i = 0; i < n && status == LMC_OK; i++) {
        const uint64_t most = o[i].block.at < o[i].after_at
                                  ? 0
                                  : (o[i].block.at - o[i].after_at) / (LMC_BLOCK_HEADER_SIZE + 1);
        const size_t from =
            o[i].after && (o[i].after > n_runs ||
                           lmc__run_at(r, o[i].after - 1)->prediction == LMC_ERR_NOT_FOUND)
                ? o[i].after - 1
                : o[i].after;
        lmc__found_block found = o[i].block;
        unsigned n_found = 0;
        for (j = from; j < from + 16 && j <= UINT32_MAX &&
                       (j >= n_runs || lmc__run_at(r, j)->prediction == LMC_ERR_NOT_FOUND);
             j++) {
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

/* Of the blocks that were found under one number, keeps the best and its copies; sets what is not
 * known yet of their worth. */
static void lmc__choose_blocks(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const size_t n_found = s->blocks.size / sizeof(lmc__found_block),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    size_t i, j, n = 0, n_kept = 0;
    for (i = 0; i < n_found; i++) { /* without an index, two sections may have had the number:
                                       blocks of the one that was not taken go */
        const lmc__reader_run *const run = f[i].run < n_runs ? lmc__run_at(r, f[i].run) : NULL;
        if (!run || run->run.size == 0 || lmc__fits_run(&run->run, run->blocks, &f[i]))
            f[n++] = f[i];
    }
    for (i = 0; i < n && s->damage.has_index; i++)
        if (f[i].at == lmc__block_at(r)[lmc__run_at(r, f[i].run)->first_block + f[i].block])
            f[i].trust = 3;
    lmc__sort_found(f, n);
    for (i = 0; i < n; i = j) {
        const lmc__found_block best = f[i];
        size_t n_copies = 0;
        f[n_kept] = best;
        for (j = i + 1; j < n && f[j].run == best.run && f[j].block == best.block; j++) {
            if (f[j].crc == best.crc && f[j].length == best.length) {
                if (++n_copies < LMC__MAX_COPIES) f[n_kept + n_copies] = f[j]; /* at or before j */
            } else if (f[j].trust == best.trust || (f[j].trust == 1 && best.trust == 2))
                f[n_kept].is_doubtful = 1;
        }
        n_kept += 1 + lmc__min(n_copies, LMC__MAX_COPIES - 1);
    }
    s->blocks.size = n_kept * sizeof *f;
    s->n_blocks = n_kept;
}

/* Blocks of runs without a place go behind the others, which stay sorted. */
static enum lmc_status lmc__part_blocks(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__buffer unplaced;
    enum lmc_status status = LMC_OK;
    size_t i, n_kept = 0;
    memset(&unplaced, 0, sizeof unplaced);
    unplaced.alloc_user = r->options.alloc_user;
    for (i = 0; i < s->n_blocks && status == LMC_OK; i++) {
        if (f[i].run < r->runs.size / sizeof(lmc__reader_run) &&
            lmc__run_at(r, f[i].run)->run.size != 0)
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

/* Starts of unknown runs within a file, for searching; and what each run is predicted by. */
static enum lmc_status lmc__finish_runs(lmc_reader *r)
{
    size_t i, j;
    for (i = 0; i < r->n_files; i++) {
        lmc__reader_file *const f = lmc__file_at(r, i);
        uint64_t end = 0;
        for (j = f->first_run; j < f->first_run + f->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.size == 0) {
                run->run.start = end;
                run->run.file_number = i;
            }
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK && run->run.prediction == LMC__PREDICT_BASE &&
                !r->origin.base)
                run->prediction = LMC_ERR_BASE_MISSING;
            else if (run->prediction == LMC_OK)
                run->prediction = lmc__check_origin(&r->origin, &run->run);
            /* the header that would have told whose base it is may be lost */
            if (run->prediction == LMC_ERR_CORRUPT && run->run.prediction == LMC__PREDICT_BASE)
                run->prediction = LMC_ERR_BASE_WRONG;
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}

static enum lmc_status lmc__open_salvage(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const uint64_t total = r->source.size;
    const lmc__kernels *const k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    size_t i, n = 0;
    int had_index = 0;
    s->view.alloc_user = s->sections.alloc_user = s->blocks.alloc_user = s->orphans.alloc_user =
        r->options.alloc_user;
    s->container.alloc_user = s->range.alloc_user = s->confirmed.alloc_user = r->options.alloc_user;
    s->container_run = UINT32_MAX;
    s->end = total;
    if (total >= LMC__HEADER_SIZE && lmc__read_rest(r, 0, header, sizeof header)) {
        const enum lmc_status status = lmc__check_header(header, k);
        /* what its CRC confirms is no damage */
        if (k->crc32c(0, header, 76) == lmc__load32(header + 76) &&
            (status == LMC_ERR_VERSION || status == LMC_ERR_UNSUPPORTED))
            return status;
        s->damage.has_header = status == LMC_OK;
        if (status == LMC_OK) lmc__keep_header(r, header);
        if (status == LMC_OK && r->origin.base) LMC__TRY(lmc__check_base(&r->origin, header));
    }
    if (total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE &&
        lmc__read_rest(r, total - LMC__TRAILER_SIZE, trailer, sizeof trailer)) {
        const uint64_t index_size = lmc__load64(trailer + 8);
        const uint64_t index_at =
            index_size <= total - LMC__TRAILER_SIZE ? total - LMC__TRAILER_SIZE - index_size : 0;
        s->damage.has_trailer =
            lmc__check_trailer(trailer, index_at, index_size, total, k) == LMC_OK &&
            index_at >= LMC__HEADER_SIZE;
        if (s->damage.has_trailer) s->end = index_at;
        if (memcmp(trailer + 32, lmc__end_magic, 8) == 0 &&
            k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28) && index_at >= LMC__HEADER_SIZE)
            LMC__TRY(lmc__take_index(r, index_at, index_size, &had_index));
        had_index = s->damage.has_index;
    }
    LMC__TRY(lmc__walk_through(r));
    if (s->damage.has_index && !had_index)
        LMC__TRY(lmc__walk_through(r)); /* now that it is known */
    if (!s->damage.has_index) LMC__TRY(lmc__collect_sections(r));
    LMC__TRY(lmc__adopt_orphans(r));
    if (!s->damage.has_index) LMC__TRY(lmc__number_orphans(r));
    lmc__choose_blocks(r);
    LMC__TRY(lmc__part_blocks(r));
    LMC__TRY(lmc__finish_runs(r));
    if (!s->damage.has_header && r->n_files == 0 && s->blocks.size == 0) return LMC_ERR_NOT_LMC;
    /* a file without a name is alone */
    if (r->n_files == 1 && lmc__file_at(r, 0)->is_described &&
        *lmc__file_at(r, 0)->file.path == 0 && lmc__file_at(r, 0)->file.size != LMC_UNKNOWN_SIZE)
        s->damage.is_complete = 1;
    for (i = 0; i < r->n_files; i++) {
        lmc__file_at(r, i)->confirmed_at = n;
        n += 1 + lmc__file_at(r, i)->file.n_tensors;
    }
    LMC__TRY(lmc__append(&s->confirmed, NULL, n));
    s->run = r->n_files ? lmc__file_at(r, 0)->first_run : 0;
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->view);
    return LMC_OK;
}

static void lmc__free_salvage(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    lmc__free_buffer(&s->view);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->blocks);
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->container);
    lmc__free_buffer(&s->range);
    lmc__free_buffer(&s->confirmed);
}

/* == snapshot/salvage_read.h ====================================================================== */

/* -- what was found, decoded -- */

/* The block to dst, of block->length bytes. number SIZE_MAX: of a run without a place. */
static enum lmc_status lmc__decode_copy(lmc_reader *r, size_t number, const lmc__found_block *block,
                                        uint8_t *dst)
{
    static const lmc__streaming off = {0, NULL, 0};
    const lmc__reader_run *const run = number == SIZE_MAX ? NULL : lmc__run_at(r, number);
    lmc__coder *const c = r->coder;
    enum lmc_status status;
    lmc_position position;
    lmc_block_info info;
    const int is_own = run && run->run.prediction == LMC__PREDICT_OWN;
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
    return status == LMC_ERR_BASE_WRONG && is_own ? LMC_ERR_CORRUPT : status;
}

/* The copies of a block, of which the first is number i of those found, one after another. */
static enum lmc_status lmc__decode_found(lmc_reader *r, size_t number, size_t i, uint8_t *dst)
{
    lmc__salvage *const s = &r->salvage;
    const size_t n = number == SIZE_MAX ? s->blocks.size / sizeof(lmc__found_block) : s->n_blocks;
    const lmc__found_block first = *lmc__found_at(r, i);
    enum lmc_status status = LMC_ERR_NOT_FOUND;
    size_t j;
    if (first.is_doubtful) return LMC_ERR_CORRUPT;
    for (j = i; j < n; j++) {
        const lmc__found_block *const f = lmc__found_at(r, j);
        if (f->run != first.run || f->block != first.block) break;
        if (f->trust == 0 && !s->in_container &&
            (f->outer_run != first.run || f->outer_block != first.block)) {
            if (s->container_run != f->outer_run || s->container_block != f->outer_block) {
                const size_t outer = lmc__find_found(r, f->outer_run, f->outer_block);
                const lmc__found_block *const found =
                    outer < s->n_blocks ? lmc__found_at(r, outer) : NULL;
                s->container_status = LMC_ERR_NOT_FOUND;
                if (found && found->run == f->outer_run && found->block == f->outer_block) {
                    s->container.size = 0;
                    LMC__TRY(lmc__reserve(&s->container, found->length));
                    s->in_container = 1;
                    s->container_status =
                        lmc__decode_found(r, f->outer_run, outer, s->container.data);
                    s->in_container = 0;
                    if (s->container_status == LMC_ERR_MEMORY) return LMC_ERR_MEMORY;
                }
                s->container_run = f->outer_run;
                s->container_block = f->outer_block;
            }
            if (s->container_status == LMC_OK) continue;
        }
        status = lmc__decode_copy(r, number, f, dst);
        if (status == LMC_OK || status == LMC_ERR_MEMORY) return status;
    }
    return status;
}

/* As lmc__read_run. */
static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                          uint8_t *dst, size_t size)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__buffer *const part = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (size != 0) {
        const uint64_t block = offset / run->block_size;
        const size_t skip = (size_t)(offset - block * run->block_size),
                     length = lmc__block_size_at(run, block), n = lmc__min(length - skip, size);
        const size_t i = lmc__find_found(r, number, block);
        uint8_t *to = dst;
        LMC__CHECK(i < r->salvage.n_blocks && lmc__found_at(r, i)->run == number &&
                       lmc__found_at(r, i)->block == block,
                   LMC_ERR_NOT_FOUND);
        LMC__CHECK(lmc__found_at(r, i)->length == length,
                   LMC_ERR_NOT_FOUND); /* of an unknown run */
        if (n < length) {
            part->size = 0;
            LMC__TRY(lmc__reserve(part, length));
            to = part->data;
        }
        LMC__TRY(lmc__decode_found(r, number, i, to));
        if (n < length) memcpy(dst, to + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* -- ranges -- */

static int8_t *lmc__confirmed_at(const lmc_reader *r, size_t file_number)
{
    return (int8_t *)(void *)r->salvage.confirmed.data + lmc__file_at(r, file_number)->confirmed_at;
}

/* Tensors that end at or before `end` are complete, or never will be. */
static void lmc__confirm_tensors(lmc_reader *r, const lmc_file *file, int8_t *confirmed,
                                 uint64_t end)
{
    lmc__digester *const d = &r->salvage.digester;
    while (d->tensor < file->n_tensors &&
           file->tensors[d->tensor].offset + file->tensors[d->tensor].size <= end) {
        const lmc_tensor *const t = &file->tensors[d->tensor];
        const int is_whole = d->tensor_done == t->size;
        const size_t tensor = d->tensor;
        uint8_t identity[LMC_IDENTITY_SIZE];
        lmc__finish_identity_to(d, identity); /* goes on to the next */
        if (is_whole)
            confirmed[1 + tensor] =
                (int8_t)(memcmp(identity, t->identity, LMC_IDENTITY_SIZE) == 0 ? 1 : -1);
    }
}

/* The next bytes of the file at hand; data NULL: they are lost. */
static void lmc__digest_range(lmc_reader *r, size_t number, uint64_t offset, const uint8_t *data,
                              uint64_t size)
{
    const lmc__kernels *const k = r->coder->wave.k;
    lmc__salvage *const s = &r->salvage;
    lmc__digester *const d = &s->digester;
    const lmc_file *const file = &lmc__file_at(r, number)->file;
    int8_t *const confirmed = lmc__confirmed_at(r, number);
    const uint64_t end = offset + size;
    if (!s->damage.has_index) return;
    if (offset == 0) {
        lmc__begin_digester(d, file);
        s->is_whole = 1;
    }
    s->is_whole &= data != NULL;
    if (data) d->file_crc = k->crc32c(d->file_crc, data, (size_t)size);
    for (; offset < end && d->tensor < file->n_tensors;) {
        const lmc_tensor *const t = &file->tensors[d->tensor];
        uint64_t part;
        lmc__confirm_tensors(r, file, confirmed, offset);
        if (d->tensor == file->n_tensors || file->tensors[d->tensor].offset >= end) break;
        if (t != &file->tensors[d->tensor]) continue;
        part = lmc__min64(end, t->offset + t->size);
        if (offset < t->offset) {
            if (data) data += t->offset - offset;
            offset = t->offset;
        }
        part -= offset;
        if (data && offset - t->offset == d->tensor_done) {
            lmc__piece piece;
            part = lmc__min64(part, LMC__LEAF_SIZE - d->leaf_size);
            piece.size = (uint32_t)part;
            piece.in_tensor = 1;
            piece.crc = k->crc32c(0, data, (size_t)part);
            d->leaf_crc = lmc__crc_combine(d->leaf_crc, piece.crc, piece.size);
            d->leaf_size += piece.size;
            d->tensor_done += part;
            if (d->leaf_size == LMC__LEAF_SIZE) {
                uint8_t field[4];
                lmc__store32(field, d->leaf_crc);
                lmc__sha256_update(&d->sha, field, 4);
                d->leaf_size = d->leaf_crc = 0;
            }
        }
        offset += part;
        if (data) data += part;
    }
    lmc__confirm_tensors(r, file, confirmed, end);
    if (end == file->size && s->is_whole)
        confirmed[0] = (int8_t)(d->file_crc == file->crc ? 1 : -1);
}

static enum lmc_status lmc__lose(lmc_reader *r, lmc_range *range, uint64_t end)
{
    lmc__salvage *const s = &r->salvage;
    range->size = end - s->offset;
    range->status = LMC_ERR_NOT_FOUND;
    lmc__digest_range(r, s->file, s->offset, NULL, range->size);
    s->offset = end;
    return LMC_OK;
}

/* Number i of those found, to range. */
static enum lmc_status lmc__deliver(lmc_reader *r, size_t number, size_t i, lmc_range *range)
{
    lmc__salvage *const s = &r->salvage;
    const uint64_t most =
        r->options.limits.max_total_size ? r->options.limits.max_total_size : UINT64_MAX;
    const lmc__found_block *const f = lmc__found_at(r, i);
    enum lmc_status status;
    if (f->length > most - lmc__min64(most, s->delivered)) return LMC_ERR_LIMIT;
    s->range.size = 0;
    LMC__TRY(lmc__reserve(&s->range, f->length));
    range->size = f->length;
    range->position.run = f->run;
    range->position.block = f->block;
    status = lmc__decode_found(r, number, i, s->range.data);
    if (status == LMC_ERR_MEMORY) return status;
    range->status = status;
    if (status == LMC_OK) range->data = s->range.data;
    s->delivered += f->length;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_next_range(lmc_reader *r, lmc_range *range)
{
    lmc__salvage *const s = r ? &r->salvage : NULL;
    if (!r || !range || !r->options.salvage) return LMC_ERR_ARGUMENT;
    memset(range, 0, sizeof *range);
    range->position.run = range->position.block = UINT32_MAX;
    for (; s->file < r->n_files;
         s->file++, s->offset = 0,
                    s->run = s->file < r->n_files ? lmc__file_at(r, s->file)->first_run : 0) {
        const lmc__reader_file *const f = lmc__file_at(r, s->file);
        range->file_number = s->file;
        range->offset = s->offset;
        for (; s->run < f->first_run + f->n_runs; s->run++) {
            const lmc__run *const run = &lmc__run_at(r, s->run)->run;
            uint64_t at;
            size_t i;
            if (s->offset < run->start) return lmc__lose(r, range, run->start);
            at = s->offset - run->start;
            if (at >= run->size) continue;
            if (at % run->block_size !=
                0) /* behind a run that reached into this one: only of a hostile file */
                return lmc__lose(
                    r, range,
                    run->start +
                        lmc__min64(at - at % run->block_size + run->block_size, run->size));
            i = lmc__find_found(r, s->run, at / run->block_size);
            range->position.run = (uint32_t)s->run;
            range->position.block = (uint32_t)(at / run->block_size);
            if (i == s->n_blocks || lmc__found_at(r, i)->run != s->run)
                return lmc__lose(r, range, run->start + run->size);
            if (lmc__found_at(r, i)->block != range->position.block)
                return lmc__lose(
                    r, range, run->start + lmc__found_at(r, i)->block * (uint64_t)run->block_size);
            LMC__TRY(lmc__deliver(r, s->run, i, range));
            lmc__digest_range(r, s->file, s->offset, (const uint8_t *)range->data, range->size);
            s->offset += range->size;
            return LMC_OK;
        }
        if (f->file.size != LMC_UNKNOWN_SIZE && s->offset < f->file.size)
            return lmc__lose(r, range, f->file.size);
        if (f->file.size == 0) lmc__digest_range(r, s->file, 0, (const uint8_t *)"", 0);
    }
    if (s->unplaced == 0) s->unplaced = s->n_blocks;
    if (s->unplaced == s->blocks.size / sizeof(lmc__found_block)) return LMC_ERR_NOT_FOUND;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    LMC__TRY(lmc__deliver(r, SIZE_MAX, s->unplaced, range));
    for (s->unplaced++; s->unplaced < s->blocks.size / sizeof(lmc__found_block);
         s->unplaced++) { /* its copies */
        const lmc__found_block *const f = lmc__found_at(r, s->unplaced);
        if (f->run != range->position.run || f->block != range->position.block) break;
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_get_damage(const lmc_reader *r, lmc_damage *damage)
{
    if (!r || !damage || !r->options.salvage) return LMC_ERR_ARGUMENT;
    *damage = r->salvage.damage;
    return LMC_OK;
}

LMC_API int lmc_is_described(const lmc_reader *r, size_t file_number)
{
    return r && file_number < r->n_files && lmc__file_at(r, file_number)->is_described;
}

LMC_API int lmc_confirm(const lmc_reader *r, size_t file_number, const lmc_tensor *tensor)
{
    const lmc_file *const file = lmc_get_file(r, file_number);
    if (!file || !r->options.salvage) return 0;
    return lmc__confirmed_at(r, file_number)[tensor ? 1 + (size_t)(tensor - file->tensors) : 0];
}

/* == snapshot/open.h ============================================================================== */

LMC_API enum lmc_status lmc_open_reader(lmc_reader **reader, const lmc_source *source,
                                        const lmc_reader_options *options)
{
    lmc_reader_options defaults;
    enum lmc_status status;
    lmc_reader *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!reader || !source || !source->read_at || !lmc__is_parallel(options->parallel))
        return LMC_ERR_ARGUMENT;
    r = (lmc_reader *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->source = *source;
    r->options = *options;
    lmc__open_coder(&r->own_coder, options->parallel, options->alloc_user);
    r->coder = options->lender ? options->lender->coder : &r->own_coder;
    r->index.alloc_user = r->files.alloc_user = r->runs.alloc_user = r->block_at.alloc_user =
        options->alloc_user;
    r->keys.alloc_user = r->metadata.alloc_user = r->paths.alloc_user = options->alloc_user;
    r->base[0].alloc_user = r->base[1].alloc_user = r->window.alloc_user = options->alloc_user;
    status = lmc__open_origin(&r->origin, options->base, options->alloc_user);
    r->origin.read_back = lmc__read_reader_back;
    r->origin.user = r;
    if (status == LMC_OK) status = options->salvage ? lmc__open_salvage(r) : lmc__open_reader(r);
    if (status != LMC_OK) {
        lmc_free_reader(r);
        return status;
    }
    *reader = r;
    return LMC_OK;
}

LMC_API void lmc_free_reader(lmc_reader *r)
{
    size_t i;
    if (!r) return;
    for (i = 0; i < r->n_files; i++) lmc__free_buffer(&lmc__file_at(r, i)->memory);
    lmc__free_coder(&r->own_coder);
    lmc__free_buffer(&r->index);
    lmc__free_buffer(&r->files);
    lmc__free_buffer(&r->runs);
    lmc__free_buffer(&r->block_at);
    lmc__free_buffer(&r->keys);
    lmc__free_buffer(&r->metadata);
    lmc__free_buffer(&r->paths);
    lmc__free_buffer(&r->window);
    lmc__free_buffer(&r->base[0]);
    lmc__free_buffer(&r->base[1]);
    lmc__free_salvage(r);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(r->options.alloc_user, r, sizeof *r, 0);
}

/* == snapshot/identify.h ========================================================================== */

static void lmc__identify_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    lmc__job *job = &wave->jobs[index];
    (void)worker;
    lmc__set_piece_crcs(wave, job, job->src,
                        job->n_pieces == 1 ? wave->k->crc32c(0, job->src, job->src_size) : 0);
    job->status = LMC_OK;
}

/* Bytes that one task sums up. */
#define LMC__IDENTIFY_SIZE LMC__WAVE_SIZE

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
            lmc__job *job;
            LMC__TRY(lmc__add_job(c, &job));
            job->src = c->in[0].data + at;
            job->src_size = lmc__min(LMC__IDENTIFY_SIZE, c->read_got - at);
            LMC__TRY(lmc__plan_job(c, d, job, job->src_size));
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
    memset(&body, 0, sizeof body);
    body.alloc_user = alloc_user;
    memory = body;
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

static int lmc__read_memory_at(void *user, uint64_t offset, void *dst, size_t size)
{
    const lmc_memory *m = (const lmc_memory *)user;
    if (offset > m->size || size > m->size - offset) return 1;
    memcpy(dst, m->data + offset, size);
    return 0;
}

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

/* == snapshot/status.h ============================================================================ */

LMC_API const char *lmc_version(void) { return LMC_VERSION; }

static const struct {
    enum lmc_status status;
    const char *name, *text;
} lmc__statuses[] = {
    {LMC_OK, "LMC_OK", "success"},
    {LMC_ERR_ARGUMENT, "LMC_ERR_ARGUMENT",
     "the library was called in a wrong way: see the comment of the function in lmc.h"},
    {LMC_ERR_DST_TOO_SMALL, "LMC_ERR_DST_TOO_SMALL",
     "the output buffer is too small: ask lmc_bound_block, lmc_bound_tensor or lmc_read_block_info "
     "for its size"},
    {LMC_ERR_WORKSPACE, "LMC_ERR_WORKSPACE",
     "the workspace is too small: ask lmc_workspace_size or lmc_tensor_workspace_size for its "
     "size"},
    {LMC_ERR_MEMORY, "LMC_ERR_MEMORY", "out of memory: use fewer workers or smaller blocks"},
    {LMC_ERR_READ, "LMC_ERR_READ", "reading failed"},
    {LMC_ERR_WRITE, "LMC_ERR_WRITE", "writing failed"},
    {LMC_ERR_NOT_FOUND, "LMC_ERR_NOT_FOUND",
     "there is nothing of that name in the snapshot: list it to see what there is"},
    {LMC_ERR_LIMIT, "LMC_ERR_LIMIT",
     "the data exceeds a limit of the format or of the caller: raise the limit if you trust the "
     "data"},
    {LMC_ERR_SIZE, "LMC_ERR_SIZE", "too large for a program of this word size: use a 64-bit build"},
    {LMC_ERR_READ_BACK, "LMC_ERR_READ_BACK",
     "the snapshot refers to itself: restore it from a file or to files, not from a pipe to a "
     "pipe"},
    {LMC_ERR_NOT_LMC, "LMC_ERR_NOT_LMC", "not an LMC file"},
    {LMC_ERR_VERSION, "LMC_ERR_VERSION",
     "another version of the LMC format: use the version of lmc that wrote it, or a newer one"},
    {LMC_ERR_UNSUPPORTED, "LMC_ERR_UNSUPPORTED",
     "uses a feature that this version does not know: use a newer lmc"},
    {LMC_ERR_TRUNCATED, "LMC_ERR_TRUNCATED", "the data ends early: fetch or write the file again"},
    {LMC_ERR_CORRUPT, "LMC_ERR_CORRUPT",
     "the data is damaged or was made wrongly: it breaks a rule of the format; use another copy"},
    {LMC_ERR_CHECKSUM, "LMC_ERR_CHECKSUM",
     "the data is damaged: a checksum does not match; use another copy"},
    {LMC_ERR_BASE_MISSING, "LMC_ERR_BASE_MISSING",
     "this is a delta: give the snapshot that it was made against"},
    {LMC_ERR_BASE_WRONG, "LMC_ERR_BASE_WRONG",
     "this is not the snapshot that the delta was made against"}};

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

#if (LMC__X86 && !defined(__clang__)) || LMC__SIMDE
#pragma GCC diagnostic pop
#endif
#endif /* LMC_IMPLEMENTATION */
