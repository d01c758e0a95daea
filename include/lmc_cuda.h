/* lmc_cuda.h - v1.0.0 - LMC files decoded on a GPU of NVIDIA (experimental)
 * SPDX-License-Identifier: MIT
 *
 * SYNOPSIS
 *       #include "lmc.h"
 *       #include "lmc_cuda.h"
 *
 *   wherever it is used; and in the file that defines LMC_IMPLEMENTATION, after lmc.h. It must have
 *   the same version as lmc.h. To build it, nothing of CUDA is needed: libcuda and NVRTC are opened
 *   at run time. For Linux and Windows. If the C library has no dlopen (glibc before 2.34), link
 *   with -ldl.
 *
 *   Experimental: no GPU has run it. Its tests run the text of the kernels on CPUs.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file from the files of src/. Change those, not this one. The
 *   kernels, in CUDA C++, are in it as text.
 *   gpu        cuda_api kernels cuda_driver cuda_text cuda_open cuda_plan cuda_base cuda_wave
 *              cuda_read
 */
#ifndef LMC_CUDA_H
#define LMC_CUDA_H
#ifndef LMC_H
#include "lmc.h"
#endif
#ifdef LMC_NO_SNAPSHOT
#error "lmc_cuda.h needs what LMC_NO_SNAPSHOT leaves out"
#endif

/* == gpu/cuda_api.h ============================================================================ */

#ifdef __cplusplus
extern "C" {
#endif

/* -- decoding on a GPU of NVIDIA (experimental) --
 * The same files and bytes, decoded on the GPU itself: only packed bytes cross the link to it.
 * libcuda (the driver) and NVRTC (CUDA's compiler, 11.2 or later) are opened at run time; no part
 * of CUDA is needed to build. Experimental: tests ran the kernels' text on CPUs only.
 *
 * All that lmc_reader checks is checked: the header of each block (on the CPU, against the index)
 * and the CRC-32C of its content; in a delta also the CRC-32C of its payload. For tensors that lie
 * whole in a part the fingerprint is checked, unless the reader skips fingerprints. Blocks that the
 * GPU cannot decode, or refuses, are decoded by the CPU, which gives the status and the message.
 *
 * Pointers `dst` and `base` are addresses in device memory, in the primary context of the device,
 * which PyTorch and the CUDA runtime use. `stream` is a CUstream (cudaStream_t) of this context;
 * NULL: the default stream. Calls wait for the work that was put into the stream before. The
 * current context of the calling thread stays the same.
 *
 * Threads: only one thread at a time may use an lmc_cuda, and the reader that it is given. Several
 * lmc_cuda, also of one device, may be used at the same time. */

typedef struct lmc_cuda lmc_cuda;

/* LMC_CUDA_OPTIONS(): the defaults. */
typedef struct lmc_cuda_options {
    size_t struct_size; /* as in lmc_block_options */
    uint64_t device;    /* its ordinal */
    /* NULL, or an existing directory for compiled kernels (some 100 KB for each architecture). So
     * they are compiled once on a machine, in some seconds, and not in each process. Whoever can
     * write there can run code on the GPU: the directory must be the user's own. A damaged file is
     * made again. If a file cannot be written, that is no error. */
    const char *cache_dir;
    /* NULL, or paths of libcuda and of NVRTC. By default the system's loader finds them:
     * libcuda.so.1 and libnvrtc.so.13, .12 or .11.2; nvcuda.dll and nvrtc64_130_0.dll, _120_0 or
     * _112_0. */
    const char *driver_path, *nvrtc_path;
    /* Bytes of decoded blocks in work at once: 8 MiB to 4 GiB. 0: each call chooses it, so that
     * each group of threads that the GPU can run has a block of the largest size in the parts. But
     * usually at most a quarter of the device's free memory is used. Device memory: at most three
     * times this, and for kernels at most four times this more; for full tensors usually a third of
     * that. Pinned memory of the host: some 2 MiB more than this, and at most 132 MiB. */
    uint64_t staging_size;
    const lmc_allocator *allocator; /* or NULL */
} lmc_cuda_options;
LMC__INITIALIZER(lmc_cuda_options, LMC_CUDA_OPTIONS, (void), )

/* Opens the libraries and the device, and compiles the kernels or takes them from the cache. *cuda
 * is NULL after ARGUMENT and MEMORY. After DEVICE (a library is missing, there is no GPU, the GPU
 * is too old, CUDA fails) *cuda is an object that has the message, and must be freed. */
LMC_STATUS lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options);
/* NULL allowed. */
LMC_API void lmc_cuda_free(lmc_cuda *cuda);
/* Frees device memory that calls keep for later calls. The kernels stay, and so does pinned memory,
 * which takes long to allocate. */
LMC_API void lmc_cuda_trim(lmc_cuda *cuda);
/* What failed in the last call: one line for a user, which names the file, tensor and block, or the
 * library or function of CUDA, and says what to do. "" after LMC_OK. Valid until the next call. */
LMC_API const char *lmc_cuda_message(const lmc_cuda *cuda);

/* -- a base on the device -- */

/* Tensors in device memory that are the base of a delta. */
typedef struct lmc_cuda_base lmc_cuda_base;

/* data[i]: the bytes of tensors[i], of which name, dtype, rank, shape and size must be set. Offsets
 * and fingerprints are ignored: the GPU computes fingerprints, after the work that was put into
 * `stream` before. So when tensors have changed, for example in place, open another base for the
 * next delta. Strings, shapes and bytes stay the caller's and must stay valid; free `cuda` after
 * the base. The array of tensors is copied. *base is NULL on errors: ARGUMENT, MEMORY, DEVICE. */
LMC_STATUS lmc_cuda_base_open(lmc_cuda_base **base, lmc_cuda *cuda, const lmc_tensor *tensors,
                              const void *const *data, size_t n, void *stream);
/* NULL allowed. No reader may use it any more. */
LMC_API void lmc_cuda_base_free(lmc_cuda_base *base);
/* For lmc_reader_options.base: lmc_reader_open() returns BASE_WRONG if the delta needs another
 * base. lmc_cuda_read then predicts on the GPU. For blocks that the GPU cannot decode, and for
 * other calls, the bytes are copied to the host. Valid until `base` is freed. */
LMC_API const lmc_base *lmc_cuda_base_get(const lmc_cuda_base *base);

/* *can: 1 if bytes [offset, offset + size) of a file may be read to the place where the base has
 * the tensors of the same names, together with other such parts: the blocks of these bytes are
 * predicted by the bytes that they replace, or not at all. Other bytes (twins, for example) must be
 * read before, to another place. ARGUMENT: the reader has no base, or the file has fewer bytes. */
LMC_STATUS lmc_cuda_can_read_in_place(const lmc_reader *reader, uint64_t file_number,
                                      uint64_t offset, uint64_t size, int *can);

/* -- reading -- */

/* Bytes [offset, offset + size) of a file of the snapshot, to device memory. */
typedef struct lmc_cuda_part {
    uint64_t file_number, offset, size;
    /* On the device, size bytes. NULL: the bytes are only decoded and checked, without
     * fingerprints. If dst is not a multiple of the element's width, or if a block crosses into
     * another part, bytes are copied once more. */
    void *dst;
    /* NULL or, for a delta, the base's bytes at the same place of the file, on the device (as when
     * a delta is restored in place: lmc_reader_can_restore_in_place). `base` may be dst: then a
     * byte is overwritten only after its block was decoded and checked. Otherwise nothing may write
     * to `base` meanwhile, so it must not overlap the dst of another part. The CRC of each block
     * finds a wrong base. If the reader has a lmc_cuda_base, that base predicts instead, on the
     * GPU, and dst may be a part of it (lmc_cuda_can_read_in_place). Else, if `base` is NULL, the
     * reader's base predicts on the CPU. */
    const void *base;
} lmc_cuda_part;

/* Reads n parts, in any order, which must not overlap. One call for all parts is best: blocks that
 * cross from one part to the next are decoded once, and reading, copying and decoding overlap in
 * time. The call returns when all bytes are there and checked. After an error the content of the
 * parts is undefined. Where base is dst, each block then has its old or its new bytes: if such a
 * delta may be damaged, decode it first with dst NULL. Errors: ARGUMENT, LIMIT, MEMORY (of the
 * device, too), DEVICE, and those of lmc_reader_read_file. After DEVICE this process may be unable
 * to use the GPU any more: that is how CUDA works. */
LMC_STATUS lmc_cuda_read(lmc_cuda *cuda, lmc_reader *reader, const lmc_cuda_part *parts, size_t n,
                         void *stream);

/* Does the same with packed bytes that are on the device already, for example by GPUDirect Storage:
 * `packed` has bytes [at, at + size) of the LMC file. They must contain all blocks of the parts
 * (lmc_reader_encoded_range of lmc_extra.h says where these are) and 16 bytes behind the last
 * block, and must not change. Only headers of blocks, and blocks that the CPU decodes, are copied
 * to the host. Blocks that other tensors of the snapshot predict are read by the reader. Errors are
 * those of lmc_cuda_read; ARGUMENT, too, if a block is not in these bytes. */
LMC_STATUS lmc_cuda_read_packed(lmc_cuda *cuda, lmc_reader *reader, const lmc_cuda_part *parts,
                                size_t n, const void *packed, uint64_t at, uint64_t size,
                                void *stream);

/* What was done so far, for measurements and tests. */
typedef struct lmc_cuda_counts {
    uint64_t gpu_blocks, cpu_blocks; /* blocks that were decoded there */
    uint64_t gpu_bytes, cpu_bytes;   /* their decoded bytes */
    uint64_t staged_bytes;           /* that were copied once more on the device */
    uint64_t compiled;               /* 1: the kernels were compiled; 0: they came from the cache */
    uint64_t reserved[4];            /* zero; see "What changes within 1.x" in lmc.h */
} lmc_cuda_counts;
LMC_API void lmc_cuda_get_counts(const lmc_cuda *cuda, lmc_cuda_counts *counts);

#ifdef __cplusplus
}
#endif

#endif /* LMC_CUDA_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__CUDA_IMPLEMENTED)
#define LMC__CUDA_IMPLEMENTED

/* == gpu/kernels.h ============================================================================= */

/* What a host must know about the kernels of decode.cu (experimental: they have not run on a GPU).
 *
 *     kernel(blocks, n, status, tables, scratch, scratch_size)
 *
 * decodes n blocks. A group of LMC__GPU_THREADS threads (a thread block of CUDA) decodes one at a
 * time. Any number of groups works. The best is lmc__gpu_kernel.groups for each multiprocessor, if
 * there are as many blocks. All pointers are addresses of the device. status[i] becomes a number of
 * enum lmc_status, or LMC__GPU_NOT_HERE: then the kernel `next` tries the block, and in the end the
 * CPU. The CPU also decodes blocks of any other status than LMC_OK, to find out what is wrong.
 * Whatever the bytes are, a kernel ends, and accesses only what is said here.
 *
 * scratch: scratch_size bytes for each group, a multiple of 256, aligned to 256; their values do
 * not matter. More than lmc__gpu_scratch_size() has no use; with less, more blocks are NOT_HERE.
 * scratch may be NULL if scratch_size is 0. */

enum {
    LMC__GPU_THREADS = 256, /* of a group */
    LMC__GPU_PAD = 16,      /* bytes behind a block that may be read; their values do not matter */
    LMC__GPU_NOT_HERE = 0xFF, /* a status: not decoded */
    LMC__GPU_CPU = -1         /* in place of the number of a kernel */
};

/* Bits of lmc__gpu_block.flags. */
enum {
    LMC__GPU_RUN_PREDICTED = 1, /* the run has a prediction (R5-6) */
    LMC__GPU_MAY_GROUP = 2,     /* the file may use Grouping (R3-13) */
    LMC__GPU_MAY_QUANTIZE = 4,  /* and Layout 2 (R3-12) */
    LMC__GPU_MAY_PART = 8,      /* and Layout 3 */
    LMC__GPU_MAY_MATRIX = 16,   /* and Layout 4 */
    LMC__GPU_MAY_CODES = 32     /* and Layout 5 */
};

typedef struct lmc__gpu_block {
    /* Addresses. in: the header and the payload, not aligned; out: aligned to the element's width;
     * base: the prediction, as large and aligned as out, or 0. A kernel for deltas allows base ==
     * out; then out has any content if the status is not LMC_OK. */
    uint64_t in, out, base;
    uint32_t in_size, out_size; /* out_size: as the run says */
    uint32_t number;            /* of the block in its run */
    uint32_t flags;
} lmc__gpu_block;

/* Tables that the kernels read; the host makes them once. In decode.cu the struct is named Tables.
 *
 * CRC-32C, reflected: bit 31 of a number is x^0, and x^32 is the number POLY. */
typedef struct lmc__gpu_tables {
    uint32_t advance[7][4][256]; /* [k]: times x^(8 * 32 * 2^k), for each byte of a number */
    uint32_t word[4][256];       /* times x^32 */
    uint32_t power[3][256];      /* [k][i]: x^(8 * 256^k * i) */
    uint16_t frozen_start[LMC__FROZEN_LEVELS][258]; /* of each leaf (spec 6.4); [256] is 2^15 */
    uint8_t frozen_symbol[256];
} lmc__gpu_tables;

/* table[b][v]: (v << 8 b) * factor, so that four look-ups multiply a number. */
static void lmc__gpu_set_product(uint32_t table[4][256], uint32_t factor)
{
    uint32_t b, v;
    for (b = 0; b < 4; b++)
        for (v = 0; v < 256; v++) table[b][v] = lmc__crc_multiply(v << 8 * b, factor);
}

/* powers[i] = step^i; returns step^256. */
static uint32_t lmc__gpu_set_powers(uint32_t powers[256], uint32_t step)
{
    uint32_t v = 0x80000000u;
    unsigned i;
    for (i = 0; i < 256; i++) {
        powers[i] = v;
        v = lmc__crc_multiply(v, step);
    }
    return v;
}

static void lmc__gpu_make_tables(lmc__gpu_tables *t)
{
    uint32_t power = 0x00800000u; /* x^8 */
    unsigned level, i, k;
    memset(t, 0, sizeof *t);
    lmc__gpu_set_product(t->word, 0x82F63B78u);
    for (i = 0; i < 3; i++)
        power = lmc__gpu_set_powers(t->power[i], power); /* in the end x^(8 * 256^3) */
    power = t->power[0][32];
    for (i = 0; i < 7; i++) {
        lmc__gpu_set_product(t->advance[i], power);
        power = lmc__crc_multiply(power, power);
    }
    for (level = 0; level < LMC__FROZEN_LEVELS; level++) {
        unsigned leaf = 0, start = 0;
        for (i = 0; i < LMC__MAX_LENGTH; i++)
            for (k = 0; k < lmc__frozen_counts[level][i]; k++) {
                t->frozen_start[level][leaf++] = (uint16_t)start;
                start += 1u << (LMC__MAX_LENGTH - 1 - i);
            }
        t->frozen_start[level][leaf] = (uint16_t)start;
    }
    memcpy(t->frozen_symbol, lmc__frozen_order, sizeof t->frozen_symbol);
}

/* A way to run a kernel of decode.cu. */
typedef struct lmc__gpu_kernel {
    const char *name;
    /* Dynamic shared memory of a group, in bytes: so much that `groups` groups, as many as their
     * registers allow, fit into a multiprocessor of 228 KiB. More has no use. Less, but not less
     * than shared_least, makes more blocks NOT_HERE: so a device with less gives all it has. */
    uint32_t shared_size, shared_least;
    uint32_t groups;
    int next; /* the kernel for blocks that this one leaves, or LMC__GPU_CPU */
} lmc__gpu_kernel;

enum { LMC__GPU_PLANES, LMC__GPU_MORE_PLANES, LMC__GPU_ANY, LMC__GPU_KERNELS };

/* shared_least is the size of struct Shared in decode.cu, and for planes some bytes for masks. */
static const lmc__gpu_kernel lmc__gpu_kernels[LMC__GPU_KERNELS] = {
    {"lmc_decode_planes", 76800, 49152, 3, LMC__GPU_MORE_PLANES},
    {"lmc_decode_planes", 115712, 76800, 2, LMC__GPU_ANY},
    {"lmc_decode_any", 43952, 43952, 3, LMC__GPU_CPU},
};

/* Bytes of scratch for a group that decodes blocks of up to block_size bytes; 0 if the kernel needs
 * none. It holds the decoded bytes of lists that are trees, the masks of the list in work, and a
 * sparse block's masks. It is enough for what encoders make. */
static size_t lmc__gpu_scratch_size(int kernel, size_t block_size)
{
    return kernel == LMC__GPU_ANY ? (3 * block_size + (256u << 10) + 255) & ~(size_t)255 : 0;
}

/* The number of the kernel that decodes a block with this header of 24 bytes, or LMC__GPU_CPU. The
 * header need not be right: the kernel checks it. in_place: out is base. */
static int lmc__gpu_kernel_of(const uint8_t *header, int in_place)
{
    const unsigned coding = header[2];
    (void)in_place; /* lmc_decode_any reads an element of the base before it writes there */
    if (coding >> LMC__LAYOUT_SHIFT > LMC__LAYOUT_PLANES) return LMC__GPU_CPU;
    return coding & LMC__PREDICTED || header[1] == 8 || lmc__load32(header + 4) > 65536
               ? LMC__GPU_ANY
               : LMC__GPU_PLANES;
}

/* == gpu/cuda_driver.h ========================================================================= */

/* The functions of libcuda and NVRTC that are used, declared as in their headers, so no header of
 * CUDA is needed. CUDA has all of them since 11.2. */

#ifdef _WIN32
#define LMC__CUDA_CALL __stdcall
#else
#define LMC__CUDA_CALL
#endif

typedef int lmc__cu_device;
typedef unsigned long long lmc__cu_address; /* CUdeviceptr */
typedef struct lmc__cu_context_ *lmc__cu_context;
typedef struct lmc__cu_module_ *lmc__cu_module;
typedef struct lmc__cu_function_ *lmc__cu_function;
typedef struct lmc__cu_stream_ *lmc__cu_stream;
typedef struct lmc__cu_event_ *lmc__cu_event;
typedef struct lmc__nvrtc_program_ *lmc__nvrtc_program;

/* X(name, arguments): functions of the driver, by the names that libcuda exports; all return a
 * CUresult, 0 on success. */
#define LMC__CUDA_FUNCTIONS(X)                                                                     \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuGetErrorName, (int error, const char **name))                                              \
    X(cuGetErrorString, (int error, const char **text))                                            \
    X(cuDeviceGet, (lmc__cu_device * device, int ordinal))                                         \
    X(cuDeviceGetAttribute, (int *value, int attribute, lmc__cu_device device))                    \
    X(cuDevicePrimaryCtxRetain, (lmc__cu_context * context, lmc__cu_device device))                \
    X(cuDevicePrimaryCtxRelease_v2, (lmc__cu_device device))                                       \
    X(cuCtxPushCurrent_v2, (lmc__cu_context context))                                              \
    X(cuCtxPopCurrent_v2, (lmc__cu_context * context))                                             \
    X(cuModuleLoadData, (lmc__cu_module * module, const void *image))                              \
    X(cuModuleUnload, (lmc__cu_module module))                                                     \
    X(cuModuleGetFunction, (lmc__cu_function * function, lmc__cu_module module, const char *name)) \
    X(cuFuncSetAttribute, (lmc__cu_function function, int attribute, int value))                   \
    X(cuLaunchKernel,                                                                              \
      (lmc__cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,                 \
       lmc__cu_stream stream, void **arguments, void **extra))                                     \
    X(cuMemAlloc_v2, (lmc__cu_address * address, size_t size))                                     \
    X(cuMemFree_v2, (lmc__cu_address address))                                                     \
    X(cuMemGetInfo_v2, (size_t *available, size_t *total))                                         \
    X(cuMemHostAlloc, (void **data, size_t size, unsigned flags))                                  \
    X(cuMemFreeHost, (void *data))                                                                 \
    X(cuMemcpyHtoDAsync_v2,                                                                        \
      (lmc__cu_address dst, const void *src, size_t size, lmc__cu_stream stream))                  \
    X(cuMemcpyDtoHAsync_v2, (void *dst, lmc__cu_address src, size_t size, lmc__cu_stream stream))  \
    X(cuMemcpyDtoDAsync_v2,                                                                        \
      (lmc__cu_address dst, lmc__cu_address src, size_t size, lmc__cu_stream stream))              \
    X(cuMemsetD8Async,                                                                             \
      (lmc__cu_address dst, unsigned char value, size_t size, lmc__cu_stream stream))              \
    X(cuStreamCreate, (lmc__cu_stream * stream, unsigned flags))                                   \
    X(cuStreamDestroy_v2, (lmc__cu_stream stream))                                                 \
    X(cuStreamSynchronize, (lmc__cu_stream stream))                                                \
    X(cuStreamWaitEvent, (lmc__cu_stream stream, lmc__cu_event event, unsigned flags))             \
    X(cuEventCreate, (lmc__cu_event * event, unsigned flags))                                      \
    X(cuEventDestroy_v2, (lmc__cu_event event))                                                    \
    X(cuEventRecord, (lmc__cu_event event, lmc__cu_stream stream))                                 \
    X(cuEventSynchronize, (lmc__cu_event event))

/* The same for NVRTC; all return an nvrtcResult, 0 on success. */
#define LMC__NVRTC_FUNCTIONS(X)                                                                    \
    X(nvrtcVersion, (int *major, int *minor))                                                      \
    X(nvrtcCreateProgram, (lmc__nvrtc_program * program, const char *source, const char *name,     \
                           int n_headers, const char *const *headers, const char *const *names))   \
    X(nvrtcDestroyProgram, (lmc__nvrtc_program * program))                                         \
    X(nvrtcCompileProgram,                                                                         \
      (lmc__nvrtc_program program, int n_options, const char *const *options))                     \
    X(nvrtcGetProgramLogSize, (lmc__nvrtc_program program, size_t *size))                          \
    X(nvrtcGetProgramLog, (lmc__nvrtc_program program, char *log))                                 \
    X(nvrtcGetCUBINSize, (lmc__nvrtc_program program, size_t *size))                               \
    X(nvrtcGetCUBIN, (lmc__nvrtc_program program, char *cubin))

/* Numbers of CUresult, CUdevice_attribute and CUfunction_attribute; flags of events (no timing) and
 * of streams (not waiting for the default stream). */
enum {
    LMC__CU_OUT_OF_MEMORY = 2,
    LMC__CU_MULTIPROCESSORS = 16,
    LMC__CU_MAJOR = 75,
    LMC__CU_MINOR = 76,
    LMC__CU_MAX_SHARED = 97,
    LMC__CU_SET_SHARED = 8,
    LMC__CU_NO_TIMING = 2,
    LMC__CU_NON_BLOCKING = 1
};

typedef struct lmc__cuda_functions {
#define LMC__MEMBER(name, arguments) int(LMC__CUDA_CALL * name) arguments;
    LMC__CUDA_FUNCTIONS(LMC__MEMBER)
    LMC__NVRTC_FUNCTIONS(LMC__MEMBER)
#undef LMC__MEMBER
} lmc__cuda_functions;

/* == gpu/cuda_text.h =========================================================================== */

/* The text that NVRTC compiles. tools/amalgamate.py puts the lines of the files here, each as a
 * literal: C99 allows literals of at most 4,095 characters. */
static const char *const lmc__cuda_text[] = {
    "/* SPDX-License-Identifier: MIT\n",
    " * Decodes blocks of LMC on a GPU. Experimental: it has run on a CPU only, with the shim of\n",
    " * tests/gpu. Sections and rules are those of spec/lmc-format.md. It is CUDA C++ without includes,\n",
    " * as NVRTC needs. kernels.h says what a host must know.\n",
    " *\n",
    " *     lmc_decode_planes   blocks of up to 65,536 elements of 1, 2 or 4 bytes without a prediction;\n",
    " *                         the masks of their trees are in shared memory\n",
    " *     lmc_decode_any      all others of Layout 1: any size, classes, sparse blocks; masks\n",
    " *                         and lists are in scratch memory. The template parameter WIDE is true\n",
    " *\n",
    " * A group of threads (a thread block of CUDA) decodes a block:\n",
    " *\n",
    " *   1  The first warp reads the payload. It walks each tree in pre-order, because the place of a\n",
    " *      node depends on the ones of all masks before it. Masks become aligned words, with a rank\n",
    " *      for each 64 bits: how many ones are before them. All warps help with large masks.\n",
    " *   2  A list is cut into chunks of neighbouring elements. Ranks are monotone, so a chunk is a\n",
    " *      range of each node. For each border between chunks a thread follows the border down.\n",
    " *   3  One warp makes all bytes of a chunk, from the deepest nodes up: a lane merges 8 bytes of a\n",
    " *      node at a time. Rare subtrees are not merged: each element is followed to its leaf.\n",
    " *   4  Planes become elements. Their CRC is computed at the same time: each lane has a state,\n",
    " *      which steps from one row of the warp to the next.\n",
    " *\n",
    " * Safety. Nothing of a payload becomes an address or a count before it was checked, as in\n",
    " * src/codec/get_list.h: the number of ones of a mask is at most its n, because bits behind n are\n",
    " * zero, and a tree of code lengths fills its space exactly. Every loop over the payload consumes a\n",
    " * part of it, or ends at a bound that was checked. After an error the first warp sets a status, and\n",
    " * all threads still reach the same barriers. */\n",
    "#ifdef LMC_ON_CPU\n",
    "#include \"cuda_on_cpu.h\"\n",
    "#define SHARED_MEMORY() (cpu::shared_memory)\n",
    "#define SHARED_SIZE() ((u32)cpu::shared_size)\n",
    "#define BARRIER() __syncthreads()\n",
    "#define WHY(text) (cpu::why = text)\n",
    "#define ROLLED\n",
    "#define UNROLLED\n",
    "#else\n",
    "typedef unsigned char u8;\n",
    "typedef unsigned short u16;\n",
    "typedef unsigned int u32;\n",
    "typedef unsigned long long u64;\n",
    "extern __shared__ uint4 lmc_shared_memory[];\n",
    "#define SHARED_MEMORY() ((u8 *)lmc_shared_memory)\n",
    "#define SHARED_SIZE() dynamic_shared_size()\n",
    "#define BARRIER() asm volatile(\"bar.sync 0;\" ::: \"memory\")\n",
    "#define LMC_COUNT(i, n) ((void)0)\n",
    "#define WHY(text) ((void)0)\n",
    "#define ROLLED _Pragma(\"unroll 1\") /* unrolled code costs more than it gains */\n",
    "#define UNROLLED _Pragma(\"unroll\")\n",
    "static __device__ __forceinline__ u32 dynamic_shared_size()\n",
    "{\n",
    "    u32 size;\n",
    "    asm(\"mov.u32 %0, %%dynamic_smem_size;\" : \"=r\"(size));\n",
    "    return size;\n",
    "}\n",
    "#endif\n",
    "#define DEV static __device__ __forceinline__\n",
    "#define COLD static __device__ __noinline__\n",
    "\n",
    "const u32 FULL = 0xFFFFFFFF; /* all lanes, all bits */\n",
    "enum : u32 {\n",
    "    WARPS = 8,\n",
    "    THREADS = 32 * WARPS,\n",
    "    GROUPS = 3,        /* at a time on a multiprocessor: bounds the registers */\n",
    "    POLY = 0x82F63B78, /* CRC-32C, reflected: bit 31 of a number is x^0 */\n",
    "    HEADER = 24,\n",
    "    MAX_SIZE = 1u << 22, /* of a block (section 9) */\n",
    "    MAX_NARROW = 65536,  /* elements of a block of lmc_decode_planes: ranks have 16 bits */\n",
    "    MAX_CLASSES = 16,\n",
    "    MAX_ACTIVE = 96, /* nodes whose bytes are made; others are walked */\n",
    "    POOL = 2560,     /* bytes of a warp's buffer for the nodes of a chunk */\n",
    "    LOG2_CHUNK = 10,\n",
    "    RARE = 48,         /* a node of fewer bytes in 2^LOG2_CHUNK is walked */\n",
    "    NESTED_NODES = 80, /* no frozen tree has more: that of level 5 has 79 */\n",
    "    NONE = 0xFFFF,\n",
    "    INACTIVE = 255\n",
    "};\n",
    "/* The same numbers as in enum lmc_status; NOT_HERE is no status of the format. */\n",
    "enum : u32 {\n",
    "    OK = 0,\n",
    "    UNSUPPORTED = 22,\n",
    "    TRUNCATED = 23,\n",
    "    CORRUPT = 24,\n",
    "    CHECKSUM = 25,\n",
    "    BASE_MISSING = 30,\n",
    "    BASE_WRONG = 31,\n",
    "    NOT_HERE = 255\n",
    "};\n",
    "/* Of Block.flags. */\n",
    "enum : u32 {\n",
    "    RUN_PREDICTED = 1,\n",
    "    MAY_GROUP = 2,\n",
    "    MAY_QUANTIZE = 4,\n",
    "    MAY_PART = 8,\n",
    "    MAY_MATRIX = 16,\n",
    "    MAY_CODES = 32\n",
    "};\n",
    "\n",
    "/* As in kernels.h. */\n",
    "struct Block {\n",
    "    u64 in, out, base;\n",
    "    u32 in_size, out_size, number, flags;\n",
    "};\n",
    "struct Tables {\n",
    "    u32 advance[7][4][256]; /* [k]: times x^(8 * 32 * 2^k), for each byte of a number */\n",
    "    u32 word[4][256];       /* times x^32 */\n",
    "    u32 power[3][256];      /* [k][i]: x^(8 * 256^k * i) */\n",
    "    u16 frozen_start[10][258];\n",
    "    u8 frozen_symbol[256];\n",
    "};\n",
    "\n",
    "/* A node of a tree (section 6.2). Kinds are ordered: from MASK on there are children. */\n",
    "enum : u32 { CONSTANT, ESCAPED, FLAT, MASK, WALKED };\n",
    "struct Node {\n",
    "    u32 n;                        /* bytes of the list that pass through it */\n",
    "    u32 bits;                     /* its mask, in the arena */\n",
    "    u32 src;                      /* its bytes, or lists of bits, in the payload */\n",
    "    u16 left, right;              /* children, NONE if they have no bytes */\n",
    "    u16 parent, first;            /* first: of its leaves */\n",
    "    u8 kind, depth, flat, active; /* active: its number among active nodes, or INACTIVE */\n",
    "};\n",
    "/* A node that is still to be read. */\n",
    "struct Pending {\n",
    "    u32 start, n;\n",
    "    u16 depth, first, end, parent; /* leaves first .. end - 1 */\n",
    "    u32 is_right;\n",
    "};\n",
    "/* A list (section 6): ESCAPED is raw, with src in the payload; CONSTANT has its byte at src. MASK\n",
    " * is a tree, whose active nodes are first .. end - 1. */\n",
    "struct List {\n",
    "    u32 kind, src, first, end;\n",
    "    u32 level_nodes; /* the most active nodes of one depth */\n",
    "    u32 stage;       /* where in the pool of a warp its bytes of a chunk are made */\n",
    "    u32 value;       /* of a constant */\n",
    "};\n",
    "/* Where a list's bytes are: byte i at p[i * stride]. */\n",
    "struct Side {\n",
    "    const u8 *p;\n",
    "    u64 stride;\n",
    "};\n",
    "\n",
    "enum Job : u32 { COPY_MASK, EXPAND_MASK, CHECK_PAYLOAD, COUNT_CLASSES, MAKE_ROW, END };\n",
    "\n",
    "template <bool WIDE> struct Kind; /* what differs between the two kernels */\n",
    "template <> struct Kind<false> {\n",
    "    typedef u16 Rank;\n",
    "    enum : u32 { MAX_NODES = 192, MAX_LISTS = 4 };\n",
    "    struct More {\n",
    "    };\n",
    "};\n",
    "template <> struct Kind<true> {\n",
    "    typedef u32 Rank;\n",
    "    enum : u32 { MAX_NODES = 511, MAX_LISTS = 1 };\n",
    "    struct More {\n",
    "        u8 *scratch;\n",
    "        Side side[MAX_CLASSES][8];\n",
    "        u32 mask[MAX_CLASSES], mask_n[MAX_CLASSES]; /* of a sparse block's class, in the arena */\n",
    "        u32 count[WARPS][MAX_CLASSES]; /* elements of each class in each warp's part */\n",
    "        u8 class_of[256];              /* of a key */\n",
    "        const u8 *base;\n",
    "        u8 *row;\n",
    "        u32 n_classes, class_bits, sparse, natural, is_payload_right;\n",
    "    };\n",
    "};\n",
    "\n",
    "template <bool WIDE> struct alignas(16) Shared : Kind<WIDE>::More {\n",
    "    uint2 pool[WARPS][POOL / 8];\n",
    "    u32 advance[4][256], selector[16];\n",
    "    Node node[Kind<WIDE>::MAX_NODES];\n",
    "    Pending stack[3][18];\n",
    "    List list[Kind<WIDE>::MAX_LISTS];\n",
    "    u16 start[258]; /* of the leaves of the tree that is read */\n",
    "    u16 active[MAX_ACTIVE], offset[WARPS][MAX_ACTIVE];\n",
    "    u8 level[MAX_ACTIVE]; /* the first active node of the same depth */\n",
    "    u8 symbol[Kind<WIDE>::MAX_LISTS][256], frozen[256];\n",
    "    u32 part[WARPS], crc, bad;\n",
    "    u32 job, job_src, job_n, job_bits, job_nodes, job_flip;\n",
    "    u32 status, n, log2_chunk, pos, work_buffer, order, stored, width;\n",
    "};\n",
    "template <bool WIDE> DEV Shared<WIDE> &shared() { return *(Shared<WIDE> *)SHARED_MEMORY(); }\n",
    "\n",
    "/* The arena: masks, ranks, and what is made from them. Places in it are counted in words. */\n",
    "template <bool WIDE> DEV u32 *arena()\n",
    "{\n",
    "    if (WIDE) return (u32 *)((Shared<true> *)SHARED_MEMORY())->scratch;\n",
    "    return (u32 *)(SHARED_MEMORY() + sizeof(Shared<false>));\n",
    "}\n",
    "\n",
    "/* The first warp's position in the payload, the same in all lanes. Undefined after an error. */\n",
    "struct Reader {\n",
    "    const u8 *in;\n",
    "    u32 size, at;\n",
    "    u32 used, room; /* words of the arena */\n",
    "    u32 error;\n",
    "    const Tables *tables;\n",
    "};\n",
    "\n",
    "DEV u32 lane_id() { return threadIdx.x & 31; }\n",
    "DEV u32 warp_id() { return threadIdx.x >> 5; }\n",
    "DEV u32 log2_width(u32 width) { return width == 8 ? 3 : width == 4 ? 2 : width == 2 ? 1 : 0; }\n",
    "DEV u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }\n",
    "DEV u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }\n",
    "DEV u32 below(u32 lane) { return (1u << lane) - 1; } /* the lanes before */\n",
    "DEV u32 get32(const u8 *p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }\n",
    "\n",
    "/* load32, load64: 4 or 8 bytes at any address. Up to 7 or 11 are read: 16 behind a block may be. */\n",
    "DEV u32 load32(const u8 *p)\n",
    "{\n",
    "    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);\n",
    "    return __funnelshift_r(q[0], q[1], 8 * (u32)((u64)p & 3));\n",
    "}\n",
    "DEV uint2 load64(const u8 *p)\n",
    "{\n",
    "    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);\n",
    "    const u32 a = q[0], b = q[1], c = q[2], shift = 8 * (u32)((u64)p & 3);\n",
    "    return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));\n",
    "}\n",
    "\n",
    "/* The sum of v of this lane and all lanes before it. */\n",
    "DEV u32 scan(u32 v)\n",
    "{\n",
    "    UNROLLED for (u32 d = 1; d < 32; d <<= 1)\n",
    "    {\n",
    "        const u32 other = __shfl_up_sync(FULL, v, d);\n",
    "        if (lane_id() >= d) v += other;\n",
    "    }\n",
    "    return v;\n",
    "}\n",
    "\n",
    "/* ---- Masks in the arena: ceil(n / 64) pairs of words; a word more, which loads of two words may\n",
    " * reach; a rank for each pair, and one for the end. Bits from n on are zero. */\n",
    "\n",
    "DEV u32 words_of(u32 n) { return (n + 31) >> 5; }\n",
    "DEV u32 pairs_of(u32 n) { return (n + 63) >> 6; }\n",
    "DEV u32 ranks_at(u32 bits, u32 n) { return bits + 2 * pairs_of(n) + 1; }\n",
    "template <bool WIDE> DEV u32 mask_size(u32 n) /* in words */\n",
    "{\n",
    "    const u32 ranks = pairs_of(n) + 1;\n",
    "    return 2 * pairs_of(n) + 1 + (WIDE ? ranks : (ranks + 1) >> 1);\n",
    "}\n",
    "template <bool WIDE> DEV typename Kind<WIDE>::Rank *ranks_of(u32 at)\n",
    "{\n",
    "    return (typename Kind<WIDE>::Rank *)(arena<WIDE>() + at);\n",
    "}\n",
    "\n",
    "/* How many ones are before bit `at` <= n; w: the word of that bit. */\n",
    "template <bool WIDE> DEV u32 ones_before(u32 bits, u32 ranks, u32 at, u32 w)\n",
    "{\n",
    "    const u32 even = at & 32 ? arena<WIDE>()[bits + (at >> 6 << 1)] : 0;\n",
    "    return ranks_of<WIDE>(ranks)[at >> 6] + __popc(even) + __popc(w & below(at & 31));\n",
    "}\n",
    "\n",
    "/* Makes a mask of n bits and its ranks; n_warps warps call this. src: the place of its bytes in the\n",
    " * payload; FULL: its words are in the arena already. part[w] becomes the ones that warp w has\n",
    " * counted. With more than one warp there is a barrier inside. */\n",
    "template <bool WIDE> COLD void copy_mask(const u8 *in, u32 src, u32 n, u32 bits, u32 n_warps)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 words = words_of(n), lane = lane_id(), warp = warp_id(),\n",
    "              share = (words + 32 * n_warps - 1) / (32 * n_warps) * 32, from = warp * share,\n",
    "              end = min_u32(from + share, words);\n",
    "    u32 *const word = arena<WIDE>() + bits;\n",
    "    typename Kind<WIDE>::Rank *const rank = ranks_of<WIDE>(ranks_at(bits, n));\n",
    "    u32 total = 0;\n",
    "    ROLLED for (u32 i = from; i < end; i += 32)\n",
    "    {\n",
    "        const u32 k = i + lane;\n",
    "        u32 v = 0;\n",
    "        if (k < end) {\n",
    "            v = src == FULL ? word[k] : load32(in + src + 4 * k);\n",
    "            if (n - 32 * k < 32) v &= below(n & 31);\n",
    "            word[k] = v;\n",
    "        }\n",
    "        LMC_COUNT(0, lane == 0);\n",
    "        const u32 ones = __popc(v), up = scan(ones);\n",
    "        if (k < end && !(k & 1)) rank[k >> 1] = (typename Kind<WIDE>::Rank)(total + up - ones);\n",
    "        total += __shfl_sync(FULL, up, 31);\n",
    "    }\n",
    "    if (warp == 0 && lane < 2 && words + lane <= 2 * pairs_of(n)) word[words + lane] = 0;\n",
    "    if (lane == 0) s.part[warp] = total;\n",
    "    if (n_warps > 1) {\n",
    "        u32 before = 0;\n",
    "        BARRIER();\n",
    "        ROLLED for (u32 w = 0; w < warp; w++) before += s.part[w];\n",
    "        ROLLED for (u32 k = (from >> 1) + lane; 2 * k < end; k += 32) rank[k] =\n",
    "            (typename Kind<WIDE>::Rank)(rank[k] + before);\n",
    "        total += before;\n",
    "    }\n",
    "    if (warp == n_warps - 1 && lane == 0) rank[pairs_of(n)] = (typename Kind<WIDE>::Rank)total;\n",
    "}\n",
    "\n",
    "/* Byte `at` of node k: follows it to its leaf. nodes and symbol may be in any memory. */\n",
    "template <bool WIDE> COLD u32 walk(const u8 *in, const Node *nodes, const u8 *symbol, u32 k, u32 at)\n",
    "{\n",
    "    while (nodes[k].kind >= MASK) {\n",
    "        const u32 bits = nodes[k].bits, w = arena<WIDE>()[bits + (at >> 5)],\n",
    "                  ones = ones_before<WIDE>(bits, ranks_at(bits, nodes[k].n), at, w);\n",
    "        const bool is_right = w >> (at & 31) & 1;\n",
    "        at = is_right ? ones : at - ones;\n",
    "        k = is_right ? nodes[k].right : nodes[k].left;\n",
    "        LMC_COUNT(1, 1);\n",
    "    }\n",
    "    if (nodes[k].kind == CONSTANT) return symbol[nodes[k].first];\n",
    "    if (nodes[k].kind == ESCAPED) return in[nodes[k].src + at];\n",
    "    const u8 *row = in + nodes[k].src + (at >> 3);\n",
    "    const u32 flat = nodes[k].flat, size = (nodes[k].n + 7) >> 3;\n",
    "    u32 index = 0;\n",
    "    ROLLED for (u32 d = 0; d < flat; d++, row += size) index = index << 1 | (*row >> (at & 7) & 1);\n",
    "    return symbol[nodes[k].first + index];\n",
    "}\n",
    "\n",
    "/* Writes the bytes of a nested mask of n bits (section 6.3), from the nodes of its frozen tree, to\n",
    " * the arena; n_warps warps call this. bad is set if a byte breaks R6-9. */\n",
    "DEV Node *nested_nodes(u8 *pool, u32 nesting) { return (Node *)pool + nesting * NESTED_NODES; }\n",
    "template <bool WIDE>\n",
    "COLD void expand_mask(const u8 *in, u32 nesting, u32 n, u32 bits, u32 flip, u32 n_warps)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const Node *const nodes = nested_nodes((u8 *)s.pool, nesting); /* no chunks are made yet */\n",
    "    const u32 bytes = (n + 7) >> 3;\n",
    "    u8 *const out = (u8 *)(arena<WIDE>() + bits);\n",
    "    ROLLED for (u32 i = 32 * warp_id() + lane_id(); i < 4 * words_of(n); i += 32 * n_warps)\n",
    "    {\n",
    "        const u32 v = i < bytes ? walk<WIDE>(in, nodes, s.frozen, 0, i) ^ flip : 0;\n",
    "        if (i == bytes - 1 && n & 7 && v >> (n & 7)) atomicOr(&s.bad, 1u);\n",
    "        out[i] = (u8)v;\n",
    "    }\n",
    "}\n",
    "\n",
    "/* ---- CRC-32C. A lane's state is a number v. The lane's next word is one row of the warp, `row`\n",
    " * bytes, further. So v becomes v * x^(8 * row) + word. In the end each state is moved by the bytes\n",
    " * behind the lane's last word, and the sum over all lanes is the CRC. */\n",
    "\n",
    "template <bool WIDE> DEV u32 advance(u32 v)\n",
    "{\n",
    "    const u32(*const table)[256] = shared<WIDE>().advance;\n",
    "    return table[0][v & 255] ^ table[1][v >> 8 & 255] ^ table[2][v >> 16 & 255] ^ table[3][v >> 24];\n",
    "}\n",
    "DEV u32 times_word(const Tables *t, u32 v) /* times x^32 */\n",
    "{\n",
    "    return t->word[0][v & 255] ^ t->word[1][v >> 8 & 255] ^ t->word[2][v >> 16 & 255] ^\n",
    "           t->word[3][v >> 24];\n",
    "}\n",
    "COLD u32 multiply(u32 a, u32 b)\n",
    "{\n",
    "    u32 product = 0;\n",
    "    ROLLED for (u32 i = 0; i < 32; i++)\n",
    "    {\n",
    "        product ^= b & (0u - (a >> 31));\n",
    "        a <<= 1;\n",
    "        b = b >> 1 ^ (POLY & (0u - (b & 1)));\n",
    "    }\n",
    "    return product;\n",
    "}\n",
    "COLD u32 move_crc(const Tables *t, u32 v, u32 bytes) /* less than 2^24 */\n",
    "{\n",
    "    if (bytes & 255) v = multiply(v, t->power[0][bytes & 255]);\n",
    "    if (bytes >> 8 & 255) v = multiply(v, t->power[1][bytes >> 8 & 255]);\n",
    "    if (bytes >> 16) v = multiply(v, t->power[2][bytes >> 16]);\n",
    "    return v;\n",
    "}\n",
    "DEV u32 crc_byte(u32 crc, u32 byte)\n",
    "{\n",
    "    crc ^= byte;\n",
    "    ROLLED for (u32 i = 0; i < 8; i++) crc = crc >> 1 ^ (POLY & (0u - (crc & 1)));\n",
    "    return crc;\n",
    "}\n",
    "template <bool WIDE> DEV void add_crc(u32 v) /* adds the sum over all lanes to s.crc */\n",
    "{\n",
    "    for (u32 d = 16; d; d >>= 1) v ^= __shfl_xor_sync(FULL, v, d);\n",
    "    if (lane_id() == 0) atomicXor(&shared<WIDE>().crc, v);\n",
    "}\n",
    "template <bool WIDE> DEV void load_advance(const Tables *t, u32 k)\n",
    "{\n",
    "    for (u32 i = threadIdx.x; i < 1024; i += THREADS)\n",
    "        shared<WIDE>().advance[i >> 8][i & 255] = t->advance[k][i >> 8][i & 255];\n",
    "}\n",
    "\n",
    "/* ---- Chunks of a list. */\n",
    "\n",
    "/* For each active node of the list, and each border of chunks, how many of the node's bytes are\n",
    " * before the border: pos[node * borders + border]. 16 bits wrap around only at the last border of\n",
    " * 65,536 elements: there only the difference from the border before is used. */\n",
    "template <bool WIDE> COLD void set_borders(const List &list, u32 n, u32 log2_chunk)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    typedef typename Kind<WIDE>::Rank Rank;\n",
    "    const u32 chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk, borders = chunks + 1;\n",
    "    Rank *const pos = ranks_of<WIDE>(s.pos);\n",
    "    ROLLED for (u32 c = threadIdx.x; c < borders; c += THREADS)\n",
    "    {\n",
    "        pos[list.first * borders + c] = (Rank)(c < chunks ? c << log2_chunk : n);\n",
    "        ROLLED for (u32 a = list.first; a < list.end; a++)\n",
    "        {\n",
    "            const Node v = s.node[s.active[a]];\n",
    "            if (v.kind != MASK) continue;\n",
    "            const bool is_last = c == chunks, has_right = v.right != NONE,\n",
    "                       has_left = v.left != NONE;\n",
    "            const u32 at = is_last ? v.n : pos[a * borders + c],\n",
    "                      ones = !is_last    ? ones_before<WIDE>(v.bits, ranks_at(v.bits, v.n), at,\n",
    "                                                             arena<WIDE>()[v.bits + (at >> 5)])\n",
    "                             : has_right ? s.node[v.right].n\n",
    "                                         : 0;\n",
    "            if (has_right && s.node[v.right].active != INACTIVE)\n",
    "                pos[s.node[v.right].active * borders + c] = (Rank)ones;\n",
    "            if (has_left && s.node[v.left].active != INACTIVE)\n",
    "                pos[s.node[v.left].active * borders + c] = (Rank)(at - ones);\n",
    "            LMC_COUNT(7, 1);\n",
    "        }\n",
    "    }\n",
    "}\n",
    "\n",
    "/* 8 bytes of shared memory from byte `at` on. */\n",
    "DEV uint2 window(const u32 *words, u32 at)\n",
    "{\n",
    "    const u32 *const q = words + (at >> 2);\n",
    "    const u32 a = q[0], b = q[1], c = q[2], shift = 8 * (at & 3);\n",
    "    return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));\n",
    "}\n",
    "DEV u32 spread(u32 x) /* 8 bits to 8 nibbles */\n",
    "{\n",
    "    x = (x | x << 12) & 0x000F000F;\n",
    "    x = (x | x << 6) & 0x03030303;\n",
    "    return (x | x << 3) & 0x11111111;\n",
    "}\n",
    "\n",
    "/* 8 bytes of a flat node from its byte `at` on: its lists of bits, side by side, are indices of\n",
    " * leaves. Up to 8 leaves are looked up by byte permutations. */\n",
    "DEV uint2 flat_bytes(const u8 *in, const Node &v, const u8 *symbol, u32 at)\n",
    "{\n",
    "    const u8 *row = in + v.src + (at >> 3);\n",
    "    const u32 size = (v.n + 7) >> 3, shift = at & 7;\n",
    "    u32 low = 0, high = 0;\n",
    "    if (v.flat <= 3) {\n",
    "        const uint2 leaves = window((const u32 *)symbol, v.first);\n",
    "        ROLLED for (u32 d = 0; d < v.flat; d++, row += size) low =\n",
    "            low << 1 | spread(load32(row) >> shift & 255);\n",
    "        return make_uint2(__byte_perm(leaves.x, leaves.y, low & 0xFFFF),\n",
    "                          __byte_perm(leaves.x, leaves.y, low >> 16));\n",
    "    }\n",
    "    u32 even = 0, odd = 0; /* indices of up to 6 bits, each in a byte */\n",
    "    ROLLED for (u32 d = 0; d < v.flat; d++, row += size)\n",
    "    {\n",
    "        const u32 bits = spread(load32(row) >> shift & 255);\n",
    "        even = even << 1 | (bits & 0x01010101);\n",
    "        odd = odd << 1 | (bits >> 4 & 0x01010101);\n",
    "    }\n",
    "    symbol += v.first;\n",
    "    low = high = 0;\n",
    "    UNROLLED for (u32 i = 0; i < 2; i++)\n",
    "    {\n",
    "        low |= (symbol[even >> 8 * i & 255] | symbol[odd >> 8 * i & 255] << 8) << 16 * i;\n",
    "        high |= (symbol[even >> (8 * i + 16) & 255] | symbol[odd >> (8 * i + 16) & 255] << 8)\n",
    "                << 16 * i;\n",
    "    }\n",
    "    return make_uint2(low, high);\n",
    "}\n",
    "\n",
    "/* A node of a chunk, as a lane prepares it for its warp. A side is the place of the child's bytes\n",
    " * in the pool or, if all are equal, their value in each byte. */\n",
    "struct Step {\n",
    "    u32 what;       /* number of the node | kind << 16 | left is a value << 20 | right is << 21 */\n",
    "    u32 range;      /* bytes | where they go in the pool << 16 */\n",
    "    u32 from, ones; /* bytes of the node, and ones of its mask, before the chunk */\n",
    "    u32 bits, ranks, left, right;\n",
    "};\n",
    "DEV Step step_of(const Step &mine, u32 lane)\n",
    "{\n",
    "    Step v;\n",
    "    v.what = __shfl_sync(FULL, mine.what, lane);\n",
    "    v.range = __shfl_sync(FULL, mine.range, lane);\n",
    "    v.from = __shfl_sync(FULL, mine.from, lane);\n",
    "    v.ones = __shfl_sync(FULL, mine.ones, lane);\n",
    "    v.bits = __shfl_sync(FULL, mine.bits, lane);\n",
    "    v.ranks = __shfl_sync(FULL, mine.ranks, lane);\n",
    "    v.left = __shfl_sync(FULL, mine.left, lane);\n",
    "    v.right = __shfl_sync(FULL, mine.right, lane);\n",
    "    return v;\n",
    "}\n",
    "\n",
    "template <bool WIDE> DEV u32 padded_count(u32 a, u32 chunk, u32 borders)\n",
    "{\n",
    "    typedef typename Kind<WIDE>::Rank Rank;\n",
    "    const Rank *const pos = ranks_of<WIDE>(shared<WIDE>().pos) + a * borders + chunk;\n",
    "    return ((u32)(Rank)(pos[1] - pos[0]) + 7) & ~7u;\n",
    "}\n",
    "\n",
    "/* The side of a child, and whether it is a value. */\n",
    "template <bool WIDE> DEV u32 side_of(const u8 *symbol, u32 child, bool *is_value)\n",
    "{\n",
    "    const Shared<WIDE> &s = shared<WIDE>();\n",
    "    *is_value = child == NONE || s.node[child].kind == CONSTANT;\n",
    "    if (child == NONE) return 0;\n",
    "    return *is_value ? symbol[s.node[child].first] * 0x01010101u\n",
    "                     : s.offset[warp_id()][s.node[child].active];\n",
    "}\n",
    "\n",
    "template <bool WIDE> DEV Step make_step(const u8 *symbol, u32 a, u32 chunk, u32 borders)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    typedef typename Kind<WIDE>::Rank Rank;\n",
    "    const Rank *const pos = ranks_of<WIDE>(s.pos);\n",
    "    const u32 k = s.active[a];\n",
    "    const Node v = s.node[k];\n",
    "    Step step;\n",
    "    bool left_is_value = false, right_is_value = false;\n",
    "    step.from = pos[a * borders + chunk];\n",
    "    step.range = (u32)(Rank)(pos[a * borders + chunk + 1] - step.from) | (u32)s.offset[warp_id()][a]\n",
    "                                                                             << 16;\n",
    "    step.ones = step.left = step.right = 0;\n",
    "    step.bits = v.bits;\n",
    "    step.ranks = ranks_at(v.bits, v.n);\n",
    "    if (v.kind == MASK) {\n",
    "        step.left = side_of<WIDE>(symbol, v.left, &left_is_value);\n",
    "        step.right = side_of<WIDE>(symbol, v.right, &right_is_value);\n",
    "        if (v.right != NONE && !right_is_value)\n",
    "            step.ones = pos[s.node[v.right].active * borders + chunk];\n",
    "        else if (v.right != NONE)\n",
    "            step.ones = ones_before<WIDE>(v.bits, step.ranks, step.from,\n",
    "                                          arena<WIDE>()[v.bits + (step.from >> 5)]);\n",
    "    }\n",
    "    step.what = k | v.kind << 16 | (u32)left_is_value << 20 | (u32)right_is_value << 21;\n",
    "    return step;\n",
    "}\n",
    "\n",
    "/* Merges the sides by the mask (section 6.2, case 5); a lane makes 8 bytes at a time. The bytes\n",
    " * that a byte of the mask takes from a side are neighbours there. */\n",
    "template <bool WIDE> DEV void merge(u32 *pool, const Step &v)\n",
    "{\n",
    "    const Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 *const word = arena<WIDE>() + v.bits;\n",
    "    const bool left_is_value = v.what >> 20 & 1, right_is_value = v.what >> 21 & 1;\n",
    "    const u32 count = v.range & 0xFFFF;\n",
    "    uint2 *const out = (uint2 *)(pool + (v.range >> 18));\n",
    "    ROLLED for (u32 g = lane_id(); 8 * g < count; g += 32)\n",
    "    {\n",
    "        const u32 at = v.from + 8 * g, w = word[at >> 5],\n",
    "                  mask = __funnelshift_r(w, word[(at >> 5) + 1], at & 31);\n",
    "        const u32 right_at =\n",
    "                      (ones_before<WIDE>(v.bits, v.ranks, at, w) - v.ones) & (WIDE ? FULL : 0xFFFF),\n",
    "                  left_at = 8 * g - right_at;\n",
    "        uint2 left = make_uint2(v.left, v.left), right = make_uint2(v.right, v.right);\n",
    "        LMC_COUNT(3, 1);\n",
    "        LMC_COUNT(4, !left_is_value);\n",
    "        LMC_COUNT(4, !right_is_value);\n",
    "        LMC_COUNT(12, lane_id() == 0);\n",
    "        if (!left_is_value) left = window(pool, v.left + left_at);\n",
    "        if (!right_is_value) right = window(pool, v.right + right_at);\n",
    "        const u32 shift = 8 * __popc(mask & 15);\n",
    "        out[g] = make_uint2(__byte_perm(left.x, right.x, s.selector[mask & 15]),\n",
    "                            __byte_perm(__funnelshift_rc(left.x, left.y, 32 - shift),\n",
    "                                        __funnelshift_rc(right.x, right.y, shift),\n",
    "                                        s.selector[mask >> 4 & 15]));\n",
    "    }\n",
    "}\n",
    "\n",
    "/* A warp makes the bytes of one chunk of a tree, at byte `even` of its pool. Nodes of even depth\n",
    " * are made there, nodes of odd depth at `odd`: so each depth reads one buffer and writes to the\n",
    " * other. Nodes of one depth are side by side. Buffers have room for a chunk and the padding. */\n",
    "template <bool WIDE>\n",
    "COLD void make_chunk(const u8 *in, const u8 *symbol, const List &list, u32 chunk, u32 borders,\n",
    "                     u32 even, u32 odd)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 lane = lane_id(), warp = warp_id();\n",
    "    u32 *const pool = (u32 *)s.pool[warp];\n",
    "    u32 before = 0, level_start = 0;\n",
    "    ROLLED for (u32 i = list.first; i < list.end; i += 32)\n",
    "    {\n",
    "        const u32 a = i + lane, size = a < list.end ? padded_count<WIDE>(a, chunk, borders) : 0,\n",
    "                  here = before + scan(size) - size, level = a < list.end ? s.level[a] : i + 31;\n",
    "        const u32 other = __shfl_sync(FULL, here, level - i),\n",
    "                  start = level >= i ? other : level_start;\n",
    "        if (a < list.end)\n",
    "            s.offset[warp][a] = (u16)((s.node[s.active[a]].depth & 1 ? odd : even) + here - start);\n",
    "        level_start = __shfl_sync(FULL, start, 31);\n",
    "        before = __shfl_sync(FULL, here + size, 31);\n",
    "    }\n",
    "    LMC_COUNT(9, lane == 0);\n",
    "    __syncwarp();\n",
    "    ROLLED for (u32 end = list.end; end > list.first;)\n",
    "    {\n",
    "        const u32 size = min_u32(end - list.first, 32);\n",
    "        Step mine = {};\n",
    "        end -= size;\n",
    "        if (lane < size) mine = make_step<WIDE>(symbol, end + lane, chunk, borders);\n",
    "        ROLLED for (u32 i = size; i-- > 0;)\n",
    "        {\n",
    "            const Step v = step_of(mine, i);\n",
    "            const u32 k = v.what & 0xFFFF, kind = v.what >> 16 & 15, count = v.range & 0xFFFF;\n",
    "            uint2 *const out = (uint2 *)(pool + (v.range >> 18));\n",
    "            LMC_COUNT(5, lane == 0);\n",
    "            LMC_COUNT(6, lane == 0 ? (count + 255) / 256 : 0);\n",
    "            if (kind == MASK) merge<WIDE>(pool, v);\n",
    "            else if (kind == WALKED) {\n",
    "                ROLLED for (u32 j = lane; j < count; j += 32)\n",
    "                {\n",
    "                    LMC_COUNT(13, lane == 0);\n",
    "                    ((u8 *)out)[j] = (u8)walk<WIDE>(in, s.node, symbol, k, v.from + j);\n",
    "                }\n",
    "            } else {\n",
    "                const Node node = s.node[k];\n",
    "                ROLLED for (u32 g = lane; 8 * g < count; g += 32)\n",
    "                {\n",
    "                    LMC_COUNT(2, 1);\n",
    "                    LMC_COUNT(14, lane == 0);\n",
    "                    out[g] = kind == FLAT ? flat_bytes(in, node, symbol, v.from + 8 * g)\n",
    "                                          : load64(in + node.src + v.from + 8 * g);\n",
    "                }\n",
    "            }\n",
    "            __syncwarp();\n",
    "        }\n",
    "    }\n",
    "}\n",
    "\n",
    "/* WIDE: makes the bytes of a list that is a tree, at s.row. */\n",
    "DEV void make_row(const u8 *in)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const List list = s.list[0];\n",
    "    const u32 n = s.job_n, log2_chunk = s.log2_chunk,\n",
    "              chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk;\n",
    "    u8 *const row = s.row;\n",
    "    set_borders<true>(list, n, log2_chunk);\n",
    "    BARRIER();\n",
    "    ROLLED for (u32 chunk = warp_id(); chunk < chunks; chunk += WARPS)\n",
    "    {\n",
    "        const u32 from = chunk << log2_chunk, count = min_u32(n - from, 1u << log2_chunk);\n",
    "        make_chunk<true>(in, s.symbol[0], list, chunk, chunks + 1, 0, POOL / 2);\n",
    "        ROLLED for (u32 g = lane_id(); 8 * g < count; g += 32)((uint2 *)(row + from))[g] =\n",
    "            s.pool[warp_id()][g];\n",
    "    } /* make_chunk has a barrier before it writes to the pool again */\n",
    "}\n",
    "\n",
    "/* ---- What the first warp reads. The other warps wait for jobs. */\n",
    "\n",
    "template <bool WIDE> COLD void work(const Reader &r);\n",
    "\n",
    "/* A job for all warps. The first lane has written to s what the job needs. */\n",
    "template <bool WIDE> DEV void together(const Reader &r, u32 job)\n",
    "{\n",
    "    if (lane_id() == 0) shared<WIDE>().job = job;\n",
    "    BARRIER();\n",
    "    work<WIDE>(r);\n",
    "}\n",
    "\n",
    "DEV bool has(Reader &r, u32 bytes)\n",
    "{\n",
    "    if (bytes > r.size - r.at) r.error = CORRUPT;\n",
    "    return !r.error;\n",
    "}\n",
    "/* Checks R2-2 for n bits at `at`, within the payload. */\n",
    "DEV void check_unused_bits(Reader &r, u32 at, u32 n)\n",
    "{\n",
    "    if (n & 7 && r.in[at + (n >> 3)] >> (n & 7)) r.error = CORRUPT;\n",
    "}\n",
    "/* Allocates an even number of words, so that all places are aligned to 8 bytes. */\n",
    "DEV u32 alloc(Reader &r, u32 words)\n",
    "{\n",
    "    const u32 at = r.used;\n",
    "    words = (words + 1) & ~1u;\n",
    "    if (words > r.room - r.used) {\n",
    "        WHY(\"arena\");\n",
    "        r.error = NOT_HERE;\n",
    "        return 0;\n",
    "    }\n",
    "    r.used += words;\n",
    "    return at;\n",
    "}\n",
    "\n",
    "template <bool WIDE> DEV void copy_bits(Reader &r, u32 src, u32 n, u32 bits)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    if (n < 4096) {\n",
    "        copy_mask<WIDE>(r.in, src, n, bits, 1);\n",
    "        if (lane_id() > 0 && lane_id() < WARPS) s.part[lane_id()] = 0;\n",
    "        __syncwarp();\n",
    "        return;\n",
    "    }\n",
    "    if (lane_id() == 0) {\n",
    "        s.job_src = src;\n",
    "        s.job_n = n;\n",
    "        s.job_bits = bits;\n",
    "    }\n",
    "    together<WIDE>(r, COPY_MASK);\n",
    "}\n",
    "\n",
    "/* Reads a mask that is coded as gaps (section 6.3) to the words at bits. A lane takes a word of the\n",
    " * Quotients: it adds up the gaps that end in the word, a scan says where the first gap starts, and\n",
    " * a second pass over the word sets the bits. */\n",
    "COLD void read_gaps(Reader &r, u32 n, u32 bits, u32 shift, u32 polarity)\n",
    "{\n",
    "    u32 *const word = arena<true>() + bits;\n",
    "    const u32 lane = lane_id();\n",
    "    if (!has(r, 3)) return;\n",
    "    const u32 K = r.in[r.at] | r.in[r.at + 1] << 8 | r.in[r.at + 2] << 16;\n",
    "    const u8 *const low = r.in + r.at + 3;\n",
    "    r.at += 3;\n",
    "    if (K < 1 || K > n) r.error = CORRUPT;\n",
    "    if (r.error || !has(r, (K * shift + 7) >> 3)) return;\n",
    "    check_unused_bits(r, r.at, K * shift);\n",
    "    r.at += (K * shift + 7) >> 3;\n",
    "    if (r.error) return;\n",
    "    ROLLED for (u32 i = lane; i < words_of(n); i += 32) word[i] = polarity ? FULL : 0;\n",
    "    __syncwarp();\n",
    "    const u32 from = r.at, left = r.size - r.at;\n",
    "    /* Ones so far; the next position; the bit behind the last one; bytes up to the K-th one. */\n",
    "    u32 done = 0, position = 0, behind = 0, size = 0;\n",
    "    ROLLED for (u32 base = 0; done < K; base += 32)\n",
    "    {\n",
    "        if (4 * base >= left) {\n",
    "            r.error = CORRUPT;\n",
    "            return;\n",
    "        }\n",
    "        const u32 here = 4 * (base + lane), first_bit = 8 * here;\n",
    "        u32 w = 0;\n",
    "        if (here < left) {\n",
    "            w = load32(r.in + from + here);\n",
    "            if (left - here < 4) w &= below(8 * (left - here));\n",
    "        }\n",
    "        const u32 ones = __popc(w), up = scan(ones), number = done + up - ones;\n",
    "        /* The bit behind the last one of all earlier lanes. */\n",
    "        const u32 some = __ballot_sync(FULL, w != 0), earlier = some & below(lane),\n",
    "                  last = first_bit + 32 - __clz(w),\n",
    "                  other = __shfl_sync(FULL, last, earlier ? 31 - __clz(earlier) : 0),\n",
    "                  start = earlier ? other : behind;\n",
    "        u32 total = 0, prev = start, x = w;\n",
    "        ROLLED for (u32 j = number; x && j < K; j++, x &= x - 1)\n",
    "        {\n",
    "            const u32 bit = first_bit + __ffs(x) - 1, at = j * shift, quotient = bit - prev,\n",
    "                      rest = load32(low + (at >> 3)) >> (at & 7) & below(shift);\n",
    "            total += quotient > n >> shift ? n + 1 : (quotient << shift) + rest + 1;\n",
    "            if (total > n) total = n + 1; /* refused below */\n",
    "            prev = bit + 1;\n",
    "        }\n",
    "        const u32 sum = scan(total);\n",
    "        u32 at = position + sum - total, bad = sum - total > n - position || at + total > n,\n",
    "            stop = 0;\n",
    "        prev = start;\n",
    "        x = w;\n",
    "        ROLLED for (u32 j = number; x && j < K && !bad; j++, x &= x - 1)\n",
    "        {\n",
    "            const u32 bit = first_bit + __ffs(x) - 1, low_at = j * shift;\n",
    "            at += ((bit - prev) << shift) +\n",
    "                  (load32(low + (low_at >> 3)) >> (low_at & 7) & below(shift));\n",
    "            if (polarity) atomicXor(&word[at >> 5], 1u << (at & 31));\n",
    "            else atomicOr(&word[at >> 5], 1u << (at & 31));\n",
    "            at++;\n",
    "            prev = bit + 1;\n",
    "            if (j == K - 1) {\n",
    "                /* no more ones may be in the last one's byte */\n",
    "                stop = (bit >> 3) + 1;\n",
    "                x &= x - 1;\n",
    "                if (x && (first_bit + __ffs(x) - 1) >> 3 < stop) bad = 1;\n",
    "                break;\n",
    "            }\n",
    "        }\n",
    "        if (__ballot_sync(FULL, bad)) {\n",
    "            r.error = CORRUPT;\n",
    "            return;\n",
    "        }\n",
    "        const u32 who = __ballot_sync(FULL, stop != 0);\n",
    "        size = __shfl_sync(FULL, stop, who ? __ffs(who) - 1 : 0);\n",
    "        position += __shfl_sync(FULL, sum, 31);\n",
    "        if (some) behind = __shfl_sync(FULL, last, 31 - __clz(some));\n",
    "        done += __shfl_sync(FULL, up, 31);\n",
    "    }\n",
    "    r.at += size;\n",
    "    __syncwarp();\n",
    "}\n",
    "\n",
    "/* Masks and trees at nesting NEST, 0 .. 2 (section 6.3). */\n",
    "template <bool WIDE, u32 NEST> struct Nested {\n",
    "    /* Reads a mask of n bits. Returns its place in the arena; part has its ones. */\n",
    "    static __device__ __noinline__ u32 mask(Reader &r, u32 n, bool is_of_class)\n",
    "    {\n",
    "        const u32 bytes = (n + 7) >> 3, bits = alloc(r, mask_size<WIDE>(n));\n",
    "        u32 mode = 0;\n",
    "        if (r.error) return 0;\n",
    "        if (n >= 256 && NEST < 2) {\n",
    "            if (!has(r, 1)) return 0;\n",
    "            mode = r.in[r.at++];\n",
    "        }\n",
    "        if (mode == 0) {\n",
    "            if (!has(r, bytes)) return 0;\n",
    "            check_unused_bits(r, r.at, n);\n",
    "            if (r.error) return 0;\n",
    "            copy_bits<WIDE>(r, r.at, n, bits);\n",
    "            r.at += bytes;\n",
    "            return bits;\n",
    "        }\n",
    "        if (mode <= 20) nested_mask(r, n, bits, (mode - 1) >> 1, (mode - 1) & 1 ? 255 : 0);\n",
    "        else if (!WIDE || !is_of_class || mode > 64) r.error = CORRUPT;\n",
    "        else read_gaps(r, n, bits, (mode - 21) >> 1, (mode - 21) & 1);\n",
    "        if (r.error) return 0;\n",
    "        copy_bits<WIDE>(r, FULL, n, bits);\n",
    "        return bits;\n",
    "    }\n",
    "\n",
    "    static __device__ __noinline__ void nested_mask(Reader &r, u32 n, u32 bits, u32 level, u32 flip)\n",
    "    {\n",
    "        Shared<WIDE> &s = shared<WIDE>();\n",
    "        const u32 used = r.used;\n",
    "        Nested<WIDE, NEST + 1>::tree(r, r.tables->frozen_start[level], 256, false, (n + 7) >> 3,\n",
    "                                     nested_nodes((u8 *)s.pool, NEST), NESTED_NODES);\n",
    "        if (r.error) return;\n",
    "        if (lane_id() == 0) s.bad = 0;\n",
    "        __syncwarp();\n",
    "        if (n < 4096) expand_mask<WIDE>(r.in, NEST, n, bits, flip, 1);\n",
    "        else {\n",
    "            if (lane_id() == 0) {\n",
    "                s.job_nodes = NEST;\n",
    "                s.job_n = n;\n",
    "                s.job_bits = bits;\n",
    "                s.job_flip = flip;\n",
    "            }\n",
    "            together<WIDE>(r, EXPAND_MASK);\n",
    "        }\n",
    "        __syncwarp();\n",
    "        if (s.bad) r.error = CORRUPT; /* written again only behind copy_bits's barrier */\n",
    "        r.used = used;                /* its masks are not needed any more */\n",
    "    }\n",
    "\n",
    "    /* Reads the tree of n_leaves leaves over n bytes to nodes (section 6.2), in pre-order.\n",
    "     * start[n_leaves] is 2^15. The stack has at most one entry for each depth, and the entry that\n",
    "     * is taken next. Returns how many nodes have bytes. */\n",
    "    static __device__ __noinline__ u32 tree(Reader &r, const u16 *start, u32 n_leaves, bool escape,\n",
    "                                            u32 n, Node *nodes, u32 max_nodes)\n",
    "    {\n",
    "        Shared<WIDE> &s = shared<WIDE>();\n",
    "        Pending *const stack = s.stack[NEST];\n",
    "        const u32 lane = lane_id();\n",
    "        u32 top = 1, count = 0;\n",
    "        if (lane == 0) {\n",
    "            const Pending root = {0, n, 0, 0, (u16)n_leaves, NONE, 0};\n",
    "            stack[0] = root;\n",
    "        }\n",
    "        __syncwarp();\n",
    "        while (top) {\n",
    "            const Pending v = stack[--top];\n",
    "            const u32 half = v.start + (1u << 14 >> v.depth),\n",
    "                      first_size = start[v.first + 1] - start[v.first],\n",
    "                      last_size = start[v.end] - start[v.end - 1],\n",
    "                      /* a leaf of length L has 2^(15 - L) of the code space */\n",
    "                flat = (u32)__clz(first_size) - 16 - v.depth;\n",
    "            const bool has_escape = escape && v.end == n_leaves;\n",
    "            u32 kind = MASK, bits = 0, src = 0, ones = 0, middle = 0;\n",
    "            if (count == max_nodes) {\n",
    "                WHY(\"nodes\");\n",
    "                r.error = NOT_HERE;\n",
    "                return 0;\n",
    "            }\n",
    "            if (v.end - v.first == 1) {\n",
    "                kind = has_escape ? ESCAPED : CONSTANT;\n",
    "                src = r.at;\n",
    "                if (has_escape && has(r, v.n)) r.at += v.n;\n",
    "            } else if (!has_escape && first_size == last_size && flat >= 2 && flat <= 6) {\n",
    "                const u32 size = (v.n + 7) >> 3;\n",
    "                kind = FLAT;\n",
    "                src = r.at; /* read where they are: each bit is needed once */\n",
    "                if (has(r, flat * size)) {\n",
    "                    ROLLED for (u32 d = 0; d < flat; d++) check_unused_bits(r, src + d * size, v.n);\n",
    "                    r.at += flat * size;\n",
    "                }\n",
    "            } else {\n",
    "                bits = Nested<WIDE, NEST>::mask(r, v.n, false);\n",
    "                if (!r.error) ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.part[w];\n",
    "                u32 low = v.first + 1, high = v.end; /* the first leaf of the right child */\n",
    "                while (low < high) {\n",
    "                    const u32 m = (low + high) >> 1;\n",
    "                    if (start[m] < half) low = m + 1;\n",
    "                    else high = m;\n",
    "                }\n",
    "                middle = low;\n",
    "            }\n",
    "            if (r.error) return 0;\n",
    "            /* A mask ends with a barrier, after the reads of the stack; other kinds push nothing\n",
    "             * onto it. */\n",
    "            const bool has_left = kind == MASK && ones < v.n, has_right = kind == MASK && ones != 0;\n",
    "            if (lane == 0) {\n",
    "                const Node node = {v.n,     bits,     src,         NONE,     NONE,        v.parent,\n",
    "                                   v.first, (u8)kind, (u8)v.depth, (u8)flat, (u8)INACTIVE};\n",
    "                nodes[count] = node;\n",
    "                if (v.parent != NONE) {\n",
    "                    if (v.is_right) nodes[v.parent].right = (u16)count;\n",
    "                    else nodes[v.parent].left = (u16)count;\n",
    "                }\n",
    "                if (has_right) {\n",
    "                    const Pending right = {half,       ones, (u16)(v.depth + 1), (u16)middle, v.end,\n",
    "                                           (u16)count, 1};\n",
    "                    stack[top] = right;\n",
    "                }\n",
    "                if (has_left) {\n",
    "                    const Pending left = {v.start, v.n - ones,  (u16)(v.depth + 1),\n",
    "                                          v.first, (u16)middle, (u16)count,\n",
    "                                          0};\n",
    "                    stack[top + has_right] = left;\n",
    "                }\n",
    "            }\n",
    "            top += has_left + has_right;\n",
    "            count++;\n",
    "            __syncwarp();\n",
    "        }\n",
    "        return count;\n",
    "    }\n",
    "};\n",
    "template <bool WIDE> struct Nested<WIDE, 3> { /* masks of nesting 2 are plain */\n",
    "    static __device__ u32 tree(Reader &, const u16 *, u32, bool, u32, Node *, u32) { return 0; }\n",
    "};\n",
    "\n",
    "/* Reads a Tree_Header (section 6.1) to s.symbol[number] and s.start, which other lanes may read\n",
    " * after the next barrier. Returns the number of leaves, 0 after an error. */\n",
    "template <bool WIDE> COLD u32 read_tree_header(Reader &r, u32 number, bool escape)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 lane = lane_id();\n",
    "    if (!has(r, 2)) return 0;\n",
    "    const u32 first = r.in[r.at], count = r.in[r.at + 1] + 1u, fields = count + escape,\n",
    "              bytes = (fields + 1) >> 1;\n",
    "    const u8 *const length = r.in + r.at + 2;\n",
    "    r.at += 2;\n",
    "    if (first + count > 256) r.error = CORRUPT;\n",
    "    if (r.error || !has(r, bytes)) return 0;\n",
    "    r.at += bytes;\n",
    "    if (fields & 1 && length[bytes - 1] >> 4) r.error = CORRUPT;\n",
    "    if (!(length[0] & 15) || !(length[(count - 1) >> 1] >> 4 * ((count - 1) & 1) & 15))\n",
    "        r.error = CORRUPT;\n",
    "    u32 leaves = 0, start = 0, longest = 0;\n",
    "    ROLLED for (u32 bits = 1; bits <= 15; bits++) ROLLED for (u32 i = 0; i < count; i += 32)\n",
    "    {\n",
    "        const u32 k = i + lane,\n",
    "                  is_here = k < count && (u32)(length[k >> 1] >> 4 * (k & 1) & 15) == bits,\n",
    "                  who = __ballot_sync(FULL, is_here), before = __popc(who & below(lane));\n",
    "        if (is_here && start + (before << (15 - bits)) < 32768) {\n",
    "            s.symbol[number][leaves + before] = (u8)(first + k);\n",
    "            s.start[leaves + before] = (u16)(start + (before << (15 - bits)));\n",
    "        }\n",
    "        if (who) longest = bits;\n",
    "        leaves += __popc(who);\n",
    "        start += __popc(who) << (15 - bits);\n",
    "    }\n",
    "    if (escape) {\n",
    "        const u32 bits = length[count >> 1] >> 4 * (count & 1) & 15;\n",
    "        if (bits < longest || bits == 0) r.error = CORRUPT;\n",
    "        if (lane == 0 && leaves < 257) s.start[leaves] = (u16)start;\n",
    "        leaves++;\n",
    "        start += 1u << (15 - bits);\n",
    "    }\n",
    "    if (leaves < 2 || leaves > 256 || start != 32768) r.error = CORRUPT;\n",
    "    if (r.error) return 0;\n",
    "    if (lane == 0) s.start[leaves] = 32768;\n",
    "    return leaves;\n",
    "}\n",
    "\n",
    "/* Chooses the nodes of [first_node, end_node) that are made, in order of depth: all except\n",
    " * constants and nodes below a rare one. If these are too many, more nodes count as rare. */\n",
    "template <bool WIDE> COLD void choose_active(Reader &r, List &list, u32 first_node, u32 end_node)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 lane = lane_id(), n = s.node[first_node].n;\n",
    "    if (list.first == MAX_ACTIVE) {\n",
    "        WHY(\"active nodes\");\n",
    "        r.error = NOT_HERE;\n",
    "        return;\n",
    "    }\n",
    "    for (u32 rare = (u32)((u64)n * RARE >> LOG2_CHUNK);; rare = 2 * rare + 1) {\n",
    "        u32 end = list.first, most = 0;\n",
    "        ROLLED for (u32 depth = 0; depth <= 15; depth++)\n",
    "        {\n",
    "            const u32 level = end;\n",
    "            ROLLED for (u32 i = first_node; i < end_node; i += 32)\n",
    "            {\n",
    "                const u32 k = i + lane;\n",
    "                bool is_active = false;\n",
    "                if (k < end_node && s.node[k].depth == depth && s.node[k].kind != CONSTANT)\n",
    "                    is_active = depth == 0 || s.node[s.node[k].parent].n > rare;\n",
    "                const u32 who = __ballot_sync(FULL, is_active), a = end + __popc(who & below(lane));\n",
    "                if (is_active && a < MAX_ACTIVE) {\n",
    "                    s.active[a] = (u16)k;\n",
    "                    s.level[a] = (u8)level;\n",
    "                    s.node[k].active = (u8)a;\n",
    "                    if (s.node[k].kind == MASK && s.node[k].n <= rare) s.node[k].kind = WALKED;\n",
    "                }\n",
    "                end += __popc(who);\n",
    "            }\n",
    "            if (end - level > most) most = end - level;\n",
    "        }\n",
    "        if (lane == 0) {\n",
    "            list.end = end;\n",
    "            list.level_nodes = most;\n",
    "        }\n",
    "        __syncwarp();\n",
    "        if (end <= MAX_ACTIVE) return;\n",
    "        LMC_COUNT(10, lane == 0);\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Reads list `number`, of n > 0 bytes (section 6). Its nodes are node[first_node ..]; returns the\n",
    " * end of these. */\n",
    "template <bool WIDE>\n",
    "COLD u32 read_list(Reader &r, u32 number, u32 n, u32 first_node, u32 first_active)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    List &list = s.list[number];\n",
    "    u32 end = first_node;\n",
    "    if (!has(r, 1)) return 0;\n",
    "    const u32 mode = r.in[r.at++];\n",
    "    if (mode > 3) r.error = CORRUPT;\n",
    "    if (r.error) return 0;\n",
    "    if (lane_id() == 0) {\n",
    "        list.kind = mode == 0 ? ESCAPED : mode == 1 ? CONSTANT : MASK;\n",
    "        list.src = r.at;\n",
    "        list.first = list.end = first_active;\n",
    "        list.level_nodes = 0;\n",
    "        list.value = mode == 1 && r.at < r.size ? r.in[r.at] : 0;\n",
    "    }\n",
    "    __syncwarp();\n",
    "    if (mode < 2) {\n",
    "        const u32 size = mode == 0 ? n : 1;\n",
    "        if (has(r, size)) r.at += size;\n",
    "        return end;\n",
    "    }\n",
    "    const u32 leaves = read_tree_header<WIDE>(r, number, mode == 3);\n",
    "    if (r.error) return 0;\n",
    "    const u32 nodes = Nested<WIDE, 0>::tree(r, s.start, leaves, mode == 3, n, s.node + first_node,\n",
    "                                            Kind<WIDE>::MAX_NODES - first_node);\n",
    "    if (r.error) return 0;\n",
    "    end += nodes;\n",
    "    /* tree() numbers children and parents from the root. choose_active takes each node in the same\n",
    "     * lane as this loop, so no barrier is needed. */\n",
    "    if (first_node) {\n",
    "        ROLLED for (u32 k = first_node + lane_id(); k < end; k += 32)\n",
    "        {\n",
    "            Node &v = s.node[k];\n",
    "            if (v.parent != NONE) v.parent = (u16)(v.parent + first_node);\n",
    "            if (v.left != NONE) v.left = (u16)(v.left + first_node);\n",
    "            if (v.right != NONE) v.right = (u16)(v.right + first_node);\n",
    "        }\n",
    "    }\n",
    "    choose_active<WIDE>(r, list, first_node, end);\n",
    "    return end;\n",
    "}\n",
    "\n",
    "/* ---- Elements without a prediction, from planes whose bytes are in the pool or in the payload. 8\n",
    " * elements are a piece: a lane joins it, stores it, and computes its CRC. */\n",
    "\n",
    "template <int W> DEV void join_piece(u32 *v, const uint2 *plane)\n",
    "{\n",
    "    const uint2 a = plane[0], b = plane[1 % W], c = plane[2 % W], d = plane[3 % W];\n",
    "    if constexpr (W == 1) {\n",
    "        v[0] = a.x;\n",
    "        v[1] = a.y;\n",
    "    } else if constexpr (W == 2) {\n",
    "        v[0] = __byte_perm(a.x, b.x, 0x5140);\n",
    "        v[1] = __byte_perm(a.x, b.x, 0x7362);\n",
    "        v[2] = __byte_perm(a.y, b.y, 0x5140);\n",
    "        v[3] = __byte_perm(a.y, b.y, 0x7362);\n",
    "    } else {\n",
    "        UNROLLED for (u32 h = 0; h < 2; h++)\n",
    "        {\n",
    "            const u32 A = h ? a.y : a.x, B = h ? b.y : b.x, C = h ? c.y : c.x, D = h ? d.y : d.x,\n",
    "                      ab = __byte_perm(A, B, 0x5140), cd = __byte_perm(C, D, 0x5140);\n",
    "            const u32 more_ab = __byte_perm(A, B, 0x7362), more_cd = __byte_perm(C, D, 0x7362);\n",
    "            v[4 * h] = __byte_perm(ab, cd, 0x5410);\n",
    "            v[4 * h + 1] = __byte_perm(ab, cd, 0x7632);\n",
    "            v[4 * h + 2] = __byte_perm(more_ab, more_cd, 0x5410);\n",
    "            v[4 * h + 3] = __byte_perm(more_ab, more_cd, 0x7632);\n",
    "        }\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Residuals to elements where the prediction is 0 (section 5.1). Then order 2 is a rotation. */\n",
    "template <int W> DEV void restore_piece(u32 *v, u32 order)\n",
    "{\n",
    "    const u32 low = W == 1 ? 0x01010101 : W == 2 ? 0x00010001 : 1;\n",
    "    if (order == 0) return;\n",
    "    UNROLLED for (u32 i = 0; i < 2 * W; i++)\n",
    "    {\n",
    "        const u32 odd = v[i] & low, half = (v[i] ^ odd) >> 1;\n",
    "        v[i] = order == 1 ? half ^ odd * (W == 1   ? 0xFF\n",
    "                                          : W == 2 ? 0xFFFF\n",
    "                                                   : FULL)\n",
    "                          : half | odd << (8 * W - 1) % 32;\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Stores count elements, at most 8. out is aligned to the element's width. */\n",
    "template <int W> DEV void store_piece(u8 *out, const u32 *v, u32 count)\n",
    "{\n",
    "    const u32 low = (u32)(u64)out;\n",
    "    if (count == 8 && low % (W == 1 ? 8 : 16) == 0) {\n",
    "        if constexpr (W == 1) *(uint2 *)out = make_uint2(v[0], v[1]);\n",
    "        else\n",
    "            UNROLLED for (u32 i = 0; i < 2 * W; i += 4) * (uint4 *)(out + 4 * i) =\n",
    "                make_uint4(v[i], v[i + 1], v[i + 2], v[i + 3]);\n",
    "        return;\n",
    "    }\n",
    "    UNROLLED for (u32 i = 0; i < 8; i++)\n",
    "    {\n",
    "        if (i >= count) break;\n",
    "        if (W == 1) out[i] = (u8)(v[i / 4] >> 8 * (i % 4));\n",
    "        else if (W == 2) ((u16 *)out)[i] = (u16)(v[i / 2] >> 16 * (i % 2));\n",
    "        else ((u32 *)out)[i] = v[i % (2 * W)];\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Loads count elements of the payload, from any address. */\n",
    "template <int W> DEV void load_stored(u32 *v, const u8 *in, u32 count)\n",
    "{\n",
    "    UNROLLED for (u32 j = 0; j < 2 * W; j += 2)\n",
    "    {\n",
    "        if (4 * j >= count * W) break; /* the payload has no more */\n",
    "        const uint2 two = load64(in + 4 * j);\n",
    "        v[j] = two.x;\n",
    "        v[j + 1] = two.y;\n",
    "    }\n",
    "}\n",
    "\n",
    "/* The CRC of pieces: a lane's pieces are 32 apart, and each word of a piece has its own state.\n",
    " * sum_pieces adds up a lane's states. behind: the end of the lane's last piece, or 0; size: of all\n",
    " * pieces. */\n",
    "template <bool WIDE, int W> DEV void add_piece(u32 *state, const u32 *v, bool is_first)\n",
    "{\n",
    "    UNROLLED for (u32 j = 0; j < 2 * W; j++) state[j] =\n",
    "        advance<WIDE>(state[j]) ^ v[j] ^ (j == 0 && is_first ? FULL : 0);\n",
    "}\n",
    "template <int W> DEV u32 sum_pieces(const Tables *t, const u32 *state, u32 behind, u32 size)\n",
    "{\n",
    "    u32 sum = 0;\n",
    "    if (!behind) return 0;\n",
    "    UNROLLED for (u32 j = 0; j < 2 * W; j++) sum = times_word(t, sum ^ state[j]);\n",
    "    return move_crc(t, sum, size - behind);\n",
    "}\n",
    "/* Checks the CRC of all bytes; s.crc already covers whole pieces. */\n",
    "template <bool WIDE> DEV bool is_content_right(const u8 *out, u32 whole, u32 size, u32 content_crc)\n",
    "{\n",
    "    u32 crc = whole ? shared<WIDE>().crc : FULL;\n",
    "    ROLLED for (u32 i = whole; i < size; i++) crc = crc_byte(crc, out[i]);\n",
    "    return ~crc == content_crc;\n",
    "}\n",
    "\n",
    "/* Gives the lists of lmc_decode_planes their memory in the arena and the pools: takes the largest\n",
    " * chunks whose buffers fit, one for each tree and one for work. */\n",
    "DEV void choose_chunks(Reader &r, u32 n, u32 trees, u32 n_active, u32 level_nodes)\n",
    "{\n",
    "    Shared<false> &s = shared<false>();\n",
    "    const u32 extra = 8 * level_nodes + 16; /* nodes are padded to 8, loads reach a bit further */\n",
    "    u32 log2_chunk = LOG2_CHUNK;\n",
    "    while (log2_chunk > 8 && (trees + 1) * ((1u << log2_chunk) + extra) > POOL) log2_chunk--;\n",
    "    if ((trees + 1) * ((1u << log2_chunk) + extra) > POOL) {\n",
    "        WHY(\"trees\");\n",
    "        r.error = NOT_HERE;\n",
    "        return;\n",
    "    }\n",
    "    const u32 borders = ((n + (1u << log2_chunk) - 1) >> log2_chunk) + 1,\n",
    "              pos = alloc(r, (n_active * borders + 1) >> 1);\n",
    "    if (lane_id() == 0) {\n",
    "        s.log2_chunk = log2_chunk;\n",
    "        s.work_buffer = trees * ((1u << log2_chunk) + extra);\n",
    "        s.pos = pos;\n",
    "        u32 stage = 0;\n",
    "        ROLLED for (u32 j = 0; j < 4; j++) if (s.list[j].kind == MASK)\n",
    "        {\n",
    "            s.list[j].stage = stage;\n",
    "            stage += (1u << log2_chunk) + extra;\n",
    "        }\n",
    "    }\n",
    "}\n",
    "\n",
    "/* The bytes of a plane for piece g of a chunk, elements i .. i + 7. */\n",
    "DEV uint2 plane_piece(const u8 *in, u32 j, u32 i, u32 g)\n",
    "{\n",
    "    const Shared<false> &s = shared<false>();\n",
    "    const List &list = s.list[j];\n",
    "    if (list.kind == MASK) return s.pool[warp_id()][(list.stage >> 3) + g];\n",
    "    if (list.kind == CONSTANT)\n",
    "        return make_uint2(list.value * 0x01010101u, list.value * 0x01010101u);\n",
    "    return load64(in + list.src + i);\n",
    "}\n",
    "\n",
    "/* Makes all elements of the block whose lists the first warp has read; then sets s.status. */\n",
    "template <int W> COLD void make_elements(const u8 *in, u8 *out, u32 content_crc, const Tables *t)\n",
    "{\n",
    "    enum : u32 { PIECE = 8 * W, WORDS = 2 * W };\n",
    "    Shared<false> &s = shared<false>();\n",
    "    const u32 lane = lane_id(), warp = warp_id(), n = s.n, log2_chunk = s.log2_chunk,\n",
    "              chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk,\n",
    "              share = (chunks + WARPS - 1) / WARPS, first = warp * share,\n",
    "              end = min_u32(first + share, chunks);\n",
    "    if (!s.stored) {\n",
    "        ROLLED for (u32 j = 0; j < W; j++) if (s.list[j].kind == MASK)\n",
    "            set_borders<false>(s.list[j], n, log2_chunk);\n",
    "        BARRIER();\n",
    "    }\n",
    "    u32 state[WORDS] = {}, behind = 0; /* behind: byte behind the lane's last whole piece */\n",
    "    ROLLED for (u32 chunk = first; chunk < end; chunk++)\n",
    "    {\n",
    "        if (!s.stored) {\n",
    "            ROLLED for (u32 j = 0; j < W; j++) if (s.list[j].kind == MASK) make_chunk<false>(\n",
    "                in, s.symbol[j], s.list[j], chunk, chunks + 1, s.list[j].stage, s.work_buffer);\n",
    "        }\n",
    "        const u32 from = chunk << log2_chunk, count = min_u32(n - from, 1u << log2_chunk);\n",
    "        ROLLED for (u32 g = lane; 8 * g < count; g += 32)\n",
    "        {\n",
    "            const u32 i = from + 8 * g, here = min_u32(n - i, 8);\n",
    "            u32 v[WORDS];\n",
    "            LMC_COUNT(8, 1);\n",
    "            LMC_COUNT(15, lane == 0);\n",
    "            if (s.stored) load_stored<W>(v, in + i * W, here);\n",
    "            else {\n",
    "                uint2 plane[W];\n",
    "                UNROLLED for (u32 j = 0; j < W; j++) plane[j] = plane_piece(in, j, i, g);\n",
    "                join_piece<W>(v, plane);\n",
    "                restore_piece<W>(v, s.order);\n",
    "            }\n",
    "            store_piece<W>(out + (u64)i * W, v, here);\n",
    "            if (here < 8) continue;\n",
    "            add_piece<false, W>(state, v, i == 0);\n",
    "            behind = (i + 8) * W;\n",
    "        }\n",
    "    } /* make_chunk has a barrier before it writes to the pool again */\n",
    "    const u32 whole = n / 8 * PIECE;\n",
    "    add_crc<false>(sum_pieces<W>(t, state, behind, whole));\n",
    "    BARRIER();\n",
    "    if (threadIdx.x == 0 && !is_content_right<false>(out, whole, n * W, content_crc))\n",
    "        s.status = CHECKSUM;\n",
    "}\n",
    "\n",
    "/* ---- Elements of lmc_decode_any of several classes, or of 8 bytes: one in each lane. Each warp\n",
    " * goes through its part row by row, so that running counts give the number of an element in its\n",
    " * class. */\n",
    "\n",
    "template <int W> struct Element {\n",
    "    typedef u32 T;\n",
    "};\n",
    "template <> struct Element<8> {\n",
    "    typedef u64 T;\n",
    "};\n",
    "template <int W> DEV typename Element<W>::T load_element(const u8 *p, u32 i)\n",
    "{\n",
    "    if (W == 1) return p[i];\n",
    "    if (W == 2) return ((const u16 *)p)[i];\n",
    "    if (W == 4) return ((const u32 *)p)[i];\n",
    "    return (typename Element<W>::T)((const u64 *)p)[i];\n",
    "}\n",
    "template <int W> DEV void store_element(u8 *p, u32 i, typename Element<W>::T v)\n",
    "{\n",
    "    if (W == 1) p[i] = (u8)v;\n",
    "    else if (W == 2) ((u16 *)p)[i] = (u16)v;\n",
    "    else if (W == 4) ((u32 *)p)[i] = (u32)v;\n",
    "    else ((u64 *)p)[i] = v;\n",
    "}\n",
    "\n",
    "struct Part {\n",
    "    u32 from, end;\n",
    "};\n",
    "DEV Part part_of(u32 n, u32 row) /* row: elements of a warp's row */\n",
    "{\n",
    "    const u32 share = (n + WARPS * row - 1) / (WARPS * row) * row;\n",
    "    Part part;\n",
    "    part.from = min_u32(warp_id() * share, n);\n",
    "    part.end = min_u32(part.from + share, n);\n",
    "    return part;\n",
    "}\n",
    "\n",
    "/* The class of prediction b (section 5.2). */\n",
    "template <int W> DEV u32 class_of(typename Element<W>::T b)\n",
    "{\n",
    "    const u32 key = W == 1 ? (u32)(b << 1 | b >> 7) : (u32)(b >> (W == 1 ? 0 : 8 * W - 9));\n",
    "    return shared<true>().class_of[key & 255];\n",
    "}\n",
    "\n",
    "/* Of a row: the lanes of the same class as this lane; and, in lane c, the lanes of class c. */\n",
    "struct Peers {\n",
    "    u32 mine, of_class;\n",
    "};\n",
    "DEV Peers peers_of(u32 valid, u32 c, u32 class_bits)\n",
    "{\n",
    "    Peers peers = {valid, valid};\n",
    "    ROLLED for (u32 k = 0; k < class_bits; k++)\n",
    "    {\n",
    "        const u32 bit = __ballot_sync(FULL, c >> k & 1);\n",
    "        peers.mine &= c >> k & 1 ? bit : ~bit;\n",
    "        peers.of_class &= lane_id() >> k & 1 ? bit : ~bit;\n",
    "    }\n",
    "    return peers;\n",
    "}\n",
    "\n",
    "template <int W> DEV void count_classes()\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const u32 lane = lane_id();\n",
    "    const Part part = part_of(s.n, 32);\n",
    "    u32 count = 0;\n",
    "    ROLLED for (u32 row = part.from; row < part.end; row += 32)\n",
    "    {\n",
    "        const bool is_here = row + lane < part.end;\n",
    "        const u32 c = is_here ? class_of<W>(load_element<W>(s.base, row + lane)) : 0;\n",
    "        count += __popc(peers_of(__ballot_sync(FULL, is_here), c, s.class_bits).of_class);\n",
    "    }\n",
    "    if (lane < s.n_classes) s.count[warp_id()][lane] = count;\n",
    "}\n",
    "\n",
    "/* From residual r and prediction b (section 5.1). */\n",
    "template <int W>\n",
    "DEV typename Element<W>::T restore(typename Element<W>::T r, typename Element<W>::T b, u32 order)\n",
    "{\n",
    "    typedef typename Element<W>::T T;\n",
    "    const T sign = (T)1 << (8 * W - 1), below_sign = sign - 1, all = sign | below_sign;\n",
    "    if (order == 0) return r;\n",
    "    const T difference = (r >> 1) ^ (0 - (r & 1));\n",
    "    if (order == 1) return (b + difference) & all;\n",
    "    const T total = ((b & below_sign) + difference) & all;\n",
    "    return (b & sign) ^ (total & sign ? total ^ below_sign : total);\n",
    "}\n",
    "\n",
    "/* The residual of element i of class c; number: its number among coded elements. */\n",
    "template <int W> DEV typename Element<W>::T residual_of(u32 c, u32 number, u32 i, u32 natural)\n",
    "{\n",
    "    typedef typename Element<W>::T T;\n",
    "    T residual = 0;\n",
    "    UNROLLED for (u32 p = 0; p < W; p++)\n",
    "    {\n",
    "        const bool is_natural = p < natural;\n",
    "        const Side side = shared<true>().side[is_natural ? 0 : c][p];\n",
    "        residual |= (T)side.p[(is_natural ? i : number) * side.stride] << 8 * p;\n",
    "    }\n",
    "    return residual;\n",
    "}\n",
    "\n",
    "template <int W> COLD void make_delta_elements(u8 *out, const Tables *t)\n",
    "{\n",
    "    typedef typename Element<W>::T T;\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const u32 lane = lane_id(), n = s.n, n_classes = s.n_classes, class_bits = s.class_bits,\n",
    "              order = s.order, natural = s.natural;\n",
    "    const bool sparse = s.sparse;\n",
    "    const u8 *const base = s.base;\n",
    "    const Part part = part_of(n, 32);\n",
    "    /* In lane c: elements of class c up to here, and how many are coded. */\n",
    "    u32 seen = part.from, coded_seen = 0, state = 0, high_state = 0, behind = 0;\n",
    "    if (n_classes > 1) {\n",
    "        seen = 0;\n",
    "        if (lane < n_classes) ROLLED for (u32 w = 0; w < warp_id(); w++) seen += s.count[w][lane];\n",
    "    }\n",
    "    if (sparse && lane < n_classes && s.mask_n[lane])\n",
    "        coded_seen = ones_before<true>(s.mask[lane], ranks_at(s.mask[lane], s.mask_n[lane]), seen,\n",
    "                                       arena<true>()[s.mask[lane] + (seen >> 5)]);\n",
    "    ROLLED for (u32 row = part.from; row < part.end; row += 32)\n",
    "    {\n",
    "        const u32 i = row + lane;\n",
    "        const bool is_here = i < part.end;\n",
    "        const T b = is_here && base ? load_element<W>(base, i) : 0;\n",
    "        const u32 c = n_classes > 1 && is_here ? class_of<W>(b) : 0;\n",
    "        const Peers peers = peers_of(__ballot_sync(FULL, is_here), c, class_bits);\n",
    "        u32 number = __shfl_sync(FULL, seen, c) + __popc(peers.mine & below(lane));\n",
    "        bool is_coded = is_here;\n",
    "        seen += __popc(peers.of_class);\n",
    "        if (sparse) {\n",
    "            if (is_here) is_coded = arena<true>()[s.mask[c] + (number >> 5)] >> (number & 31) & 1;\n",
    "            const u32 coded = __ballot_sync(FULL, is_coded);\n",
    "            number = __shfl_sync(FULL, coded_seen, c) + __popc(peers.mine & coded & below(lane));\n",
    "            coded_seen += __popc(peers.of_class & coded);\n",
    "        }\n",
    "        T v = b;\n",
    "        if (is_coded) v = restore<W>(residual_of<W>(c, number, i, natural), b, order);\n",
    "        LMC_COUNT(16, lane == 0);\n",
    "        if (is_here) {\n",
    "            store_element<W>(out, i, v);\n",
    "            if (i * W < 4) v ^= W < 4 ? (1u << 8 * W % 32) - 1 : FULL;\n",
    "            state = advance<true>(state) ^ (u32)v << (W < 4 ? 32 - 8 * W : 0);\n",
    "            if (W == 8) high_state = advance<true>(high_state) ^ (u32)((u64)v >> 32);\n",
    "            behind = (i + 1) * W;\n",
    "        }\n",
    "    }\n",
    "    u32 sum = 0;\n",
    "    if (behind) {\n",
    "        sum = times_word(t, state);\n",
    "        if (W == 8) sum = times_word(t, sum ^ high_state);\n",
    "        sum = move_crc(t, sum, n * W - behind);\n",
    "    }\n",
    "    add_crc<true>(sum);\n",
    "}\n",
    "\n",
    "/* ---- Elements of lmc_decode_any of one class, in pieces: ranks of the mask say which of the coded\n",
    " * elements is the first of a piece, so no lane waits for another. */\n",
    "\n",
    "/* Puts element i into a piece, where it was 0. v stays in registers: no index of it is computed. */\n",
    "template <int W> DEV void put_element(u32 *v, u32 i, u32 element)\n",
    "{\n",
    "    UNROLLED for (u32 j = 0; j < 2 * W; j++) if (j == i * W / 4) v[j] |= element << 8 * (i * W % 4);\n",
    "}\n",
    "\n",
    "/* Section 5.1 for the elements of a word, side by side: residuals r, predictions b, Order 1 or 2.\n",
    " * Where a residual is 0, the prediction stays. */\n",
    "template <int W> DEV u32 restore_word(u32 r, u32 b, u32 order)\n",
    "{\n",
    "    const u32 low = W == 1 ? 0x01010101 : W == 2 ? 0x00010001 : 1, sign = low << (8 * W - 1),\n",
    "              all = W == 1 ? 0xFF : W == 2 ? 0xFFFF : FULL, odd = r & low,\n",
    "              difference = ((r ^ odd) >> 1) ^ odd * all,\n",
    "              kept = order == 2 ? b & sign : 0, from = b ^ kept,\n",
    "              total = ((from & ~sign) + (difference & ~sign)) ^ ((from ^ difference) & sign),\n",
    "              negative = order == 2 ? total & sign : 0;\n",
    "    return total ^ kept ^ (negative - (negative >> (8 * W - 1)));\n",
    "}\n",
    "\n",
    "/* Loads count elements, as store_piece stores them; the rest is 0. */\n",
    "template <int W> DEV void load_piece(u32 *v, const u8 *p, u32 count)\n",
    "{\n",
    "    if (count == 8 && (u32)(u64)p % (W == 1 ? 8 : 16) == 0) {\n",
    "        if constexpr (W == 1) {\n",
    "            const uint2 two = *(const uint2 *)p;\n",
    "            v[0] = two.x;\n",
    "            v[1] = two.y;\n",
    "        } else\n",
    "            UNROLLED for (u32 i = 0; i < 2 * W; i += 4)\n",
    "            {\n",
    "                const uint4 four = *(const uint4 *)(p + 4 * i);\n",
    "                v[i] = four.x;\n",
    "                v[i + 1] = four.y;\n",
    "                v[i + 2] = four.z;\n",
    "                v[i + 3] = four.w;\n",
    "            }\n",
    "        return;\n",
    "    }\n",
    "    UNROLLED for (u32 j = 0; j < 2 * W; j++) v[j] = 0;\n",
    "    ROLLED for (u32 i = 0; i < count; i++) put_element<W>(v, i, load_element<W>(p, i));\n",
    "}\n",
    "\n",
    "/* The residuals of 8 coded neighbours, from `number` on. */\n",
    "template <int W> DEV void join_sides(u32 *v, u32 number)\n",
    "{\n",
    "    const Shared<true> &s = shared<true>();\n",
    "    uint2 plane[W];\n",
    "    if (s.stored) {\n",
    "        load_stored<W>(v, s.side[0][0].p + (u64)number * W, 8);\n",
    "        return;\n",
    "    }\n",
    "    UNROLLED for (u32 p = 0; p < W; p++)\n",
    "    {\n",
    "        const Side side = s.side[0][p];\n",
    "        const u32 value = side.stride ? 0 : *side.p * 0x01010101u;\n",
    "        /* behind a row of the arena are its chunks' borders, behind a payload its pad */\n",
    "        plane[p] = side.stride ? load64(side.p + number) : make_uint2(value, value);\n",
    "    }\n",
    "    join_piece<W>(v, plane);\n",
    "}\n",
    "\n",
    "template <int W> COLD void make_delta_pieces(u8 *out, const Tables *t)\n",
    "{\n",
    "    const Shared<true> &s = shared<true>();\n",
    "    const u8 *const base = s.base;\n",
    "    const u32 n = s.n, order = s.order, ranks = ranks_at(s.mask[0], n);\n",
    "    const Part part = part_of(n, 256);\n",
    "    u32 state[2 * W] = {}, behind = 0;\n",
    "    ROLLED for (u32 i = part.from + 8 * lane_id(); i < part.end; i += 256)\n",
    "    {\n",
    "        const u32 here = min_u32(n - i, 8);\n",
    "        u32 v[2 * W], coded = (1u << here) - 1, number = i;\n",
    "        LMC_COUNT(15, lane_id() == 0);\n",
    "        if (s.sparse) {\n",
    "            const u32 w = arena<true>()[s.mask[0] + (i >> 5)];\n",
    "            coded = w >> (i & 31) & 255;\n",
    "            if (coded) number = ones_before<true>(s.mask[0], ranks, i, w);\n",
    "        }\n",
    "        load_piece<W>(v, (base ? base : out) + (u64)i * W, base ? here : 0);\n",
    "        if (coded) {\n",
    "            u32 r[2 * W] = {};\n",
    "            if (coded == 255) join_sides<W>(r, number);\n",
    "            else\n",
    "                ROLLED for (; coded; coded &= coded - 1, number++)\n",
    "                {\n",
    "                    put_element<W>(r, __ffs(coded) - 1, residual_of<W>(0, number, i, 0));\n",
    "                    LMC_COUNT(17, 1);\n",
    "                }\n",
    "            UNROLLED for (u32 j = 0; j < 2 * W; j++) v[j] =\n",
    "                order ? restore_word<W>(r[j], v[j], order) : r[j];\n",
    "        }\n",
    "        store_piece<W>(out + (u64)i * W, v, here);\n",
    "        if (here < 8) continue;\n",
    "        add_piece<true, W>(state, v, i == 0);\n",
    "        behind = (i + 8) * W;\n",
    "    }\n",
    "    add_crc<true>(sum_pieces<W>(t, state, behind, n / 8 * 8 * W));\n",
    "}\n",
    "\n",
    "/* Adds the CRC of the payload's whole words to s.crc; the first word is xored with FULL. */\n",
    "DEV void add_payload_crc(const Reader &r)\n",
    "{\n",
    "    const u32 words = r.size >> 2, share = (words + THREADS - 1) / THREADS * 32,\n",
    "              from = warp_id() * share, end = min_u32(from + share, words);\n",
    "    u32 state = 0, behind = 0;\n",
    "    load_advance<true>(r.tables, 2);\n",
    "    BARRIER();\n",
    "    ROLLED for (u32 k = from + lane_id(); k < end; k += 32)\n",
    "    {\n",
    "        state = advance<true>(state) ^ load32(r.in + 4 * k) ^ (k ? 0 : FULL);\n",
    "        behind = k + 1;\n",
    "    }\n",
    "    if (behind) state = move_crc(r.tables, times_word(r.tables, state), 4 * (words - behind));\n",
    "    add_crc<true>(state);\n",
    "}\n",
    "\n",
    "/* f<W> for width 1, 2 or 4; FOR_WIDTH: 8, too. */\n",
    "#define FOR_NARROW_WIDTH(width, f, arguments)                                                      \\\n",
    "    do {                                                                                           \\\n",
    "        if ((width) == 2) f<2> arguments;                                                          \\\n",
    "        else if ((width) == 4) f<4> arguments;                                                     \\\n",
    "        else f<1> arguments;                                                                       \\\n",
    "    } while (0)\n",
    "#define FOR_WIDTH(width, f, arguments)                                                             \\\n",
    "    do {                                                                                           \\\n",
    "        if ((width) == 8) f<8> arguments;                                                          \\\n",
    "        else FOR_NARROW_WIDTH(width, f, arguments);                                                \\\n",
    "    } while (0)\n",
    "\n",
    "/* Each warp does its part of a job; then there is a barrier. */\n",
    "DEV void work_wide(const Reader &r, u32 job)\n",
    "{\n",
    "    if (job == CHECK_PAYLOAD) add_payload_crc(r);\n",
    "    else if (job == COUNT_CLASSES) FOR_WIDTH(shared<true>().width, count_classes, ());\n",
    "    else if (job == MAKE_ROW) make_row(r.in);\n",
    "}\n",
    "template <bool WIDE> COLD void work(const Reader &r)\n",
    "{\n",
    "    const Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 job = s.job;\n",
    "    if (job == COPY_MASK) copy_mask<WIDE>(r.in, s.job_src, s.job_n, s.job_bits, WARPS);\n",
    "    else if (job == EXPAND_MASK)\n",
    "        expand_mask<WIDE>(r.in, s.job_nodes, s.job_n, s.job_bits, s.job_flip, WARPS);\n",
    "    else if (WIDE) work_wide(r, job);\n",
    "    BARRIER();\n",
    "}\n",
    "\n",
    "/* ---- A block. */\n",
    "\n",
    "/* Checks the header in the order of section 5. Returns a status; NOT_HERE comes last. */\n",
    "template <bool WIDE> COLD u32 check_header(const Block &job, const Tables *t)\n",
    "{\n",
    "    const u8 *const h = (const u8 *)job.in;\n",
    "    const u32 width = h[1], order = h[2] & 3, layout = h[2] >> 5, predicted = h[2] >> 2 & 1,\n",
    "              n_classes = (h[3] & 15) + 1, sparse = h[3] >> 4 & 1, natural = h[3] >> 5;\n",
    "    const u64 size = (u64)get32(h + 4) * width, payload = get32(h + 8);\n",
    "    u32 crc = times_word(t, FULL ^ job.number);\n",
    "    if (h[0] != 0xB2) return CORRUPT;\n",
    "    ROLLED for (u32 i = 0; i < 20; i += 4) crc = times_word(t, crc ^ get32(h + i));\n",
    "    if (~crc != get32(h + 20)) return CHECKSUM;\n",
    "    if ((width != 1 && width != 2 && width != 4 && width != 8) || order == 3 || h[2] & 0x18 ||\n",
    "        layout > 5)\n",
    "        return UNSUPPORTED;\n",
    "    if (size == 0 || size > MAX_SIZE || size != job.out_size) return CORRUPT;\n",
    "    if (predicted ? !(job.flags & RUN_PREDICTED) : h[3] || get32(h + 16))\n",
    "        return CORRUPT;\n",
    "    if (layout == 0 ? payload != size || order || predicted || h[3] : payload >= size)\n",
    "        return CORRUPT;\n",
    "    if (layout == 1 && predicted && !order) return CORRUPT;\n",
    "    if (layout == 4 && !order) return CORRUPT;\n",
    "    if (layout >= 3 && predicted) return CORRUPT;\n",
    "    if ((layout == 2 || layout == 5) && (width == 1 || width == 8 || order || h[3]))\n",
    "        return CORRUPT;\n",
    "    if (natural && (natural >= width || n_classes == 1 || sparse)) return CORRUPT;\n",
    "    if (h[3] && !(job.flags & MAY_GROUP)) return CORRUPT;\n",
    "    if (layout == 2 && !(job.flags & MAY_QUANTIZE)) return CORRUPT;\n",
    "    if (layout == 3 && !(job.flags & MAY_PART)) return CORRUPT;\n",
    "    if (layout == 4 && !(job.flags & MAY_MATRIX)) return CORRUPT;\n",
    "    if (layout == 5 && !(job.flags & MAY_CODES)) return CORRUPT;\n",
    "    if (payload != job.in_size - HEADER)\n",
    "        return payload > job.in_size - HEADER ? TRUNCATED : CORRUPT;\n",
    "    if (layout >= 2 || ((job.out | (predicted ? job.base : 0)) & (width - 1))) return NOT_HERE;\n",
    "    if (!WIDE && (predicted || width == 8 || size > MAX_NARROW * width)) return NOT_HERE;\n",
    "    return OK;\n",
    "}\n",
    "\n",
    "/* Reads the lists of a block of lmc_decode_planes. */\n",
    "DEV void read_planes(Reader &r, u32 width)\n",
    "{\n",
    "    Shared<false> &s = shared<false>();\n",
    "    u32 nodes = 0, trees = 0, active = 0, level_nodes = 0;\n",
    "    if (s.stored) {\n",
    "        r.at = r.size;\n",
    "        return;\n",
    "    }\n",
    "    if (lane_id() < 4) s.list[lane_id()].kind = CONSTANT; /* list 0's barrier is before list 1 */\n",
    "    ROLLED for (u32 j = 0; j < width && !r.error; j++)\n",
    "    {\n",
    "        nodes = read_list<false>(r, j, s.n, nodes, active);\n",
    "        if (r.error) return;\n",
    "        const List &list = s.list[j];\n",
    "        trees += list.kind == MASK;\n",
    "        active = list.end;\n",
    "        if (list.level_nodes > level_nodes) level_nodes = list.level_nodes;\n",
    "    }\n",
    "    if (r.at != r.size) r.error = CORRUPT;\n",
    "    else choose_chunks(r, s.n, trees, active, level_nodes);\n",
    "}\n",
    "\n",
    "/* Reads a list of m > 0 bytes; s.side[c][p] gets the place of its bytes. The bytes of a tree are\n",
    " * made in a row of the arena. */\n",
    "DEV void read_side(Reader &r, u32 c, u32 p, u32 m)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const bool is_tree = r.at < r.size && r.in[r.at] >= 2;\n",
    "    const u32 row = is_tree ? alloc(r, (m + 7) / 8 * 2) : 0, used = r.used;\n",
    "    if (r.error) return;\n",
    "    read_list<true>(r, 0, m, 0, 0);\n",
    "    if (r.error) return;\n",
    "    const List &list = s.list[0];\n",
    "    Side side = {r.in + list.src, list.kind == ESCAPED};\n",
    "    if (is_tree) {\n",
    "        const u32 extra = 8 * list.level_nodes + 16;\n",
    "        u32 log2_chunk = LOG2_CHUNK;\n",
    "        while ((1u << log2_chunk) + extra > POOL / 2) log2_chunk--;\n",
    "        const u32 borders = ((m + (1u << log2_chunk) - 1) >> log2_chunk) + 1,\n",
    "                  pos = alloc(r, (list.end - list.first) * borders);\n",
    "        if (r.error) return;\n",
    "        side.p = (const u8 *)(arena<true>() + row);\n",
    "        side.stride = 1;\n",
    "        if (lane_id() == 0) {\n",
    "            s.log2_chunk = log2_chunk;\n",
    "            s.pos = pos;\n",
    "            s.row = (u8 *)(arena<true>() + row);\n",
    "            s.job_n = m;\n",
    "        }\n",
    "        together<true>(r, MAKE_ROW);\n",
    "        r.used = used;\n",
    "    }\n",
    "    if (lane_id() == 0) s.side[c][p] = side;\n",
    "    __syncwarp();\n",
    "}\n",
    "\n",
    "/* Reads thresholds, and counts the elements of each class (section 5.2): of class c in lane c. */\n",
    "DEV u32 read_classes(Reader &r)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const u32 lane = lane_id(), n_classes = s.n_classes;\n",
    "    const u8 *const threshold = r.in + r.at;\n",
    "    if (n_classes == 1) return lane == 0 ? s.n : 0;\n",
    "    if (!has(r, n_classes - 1)) return 0;\n",
    "    r.at += n_classes - 1;\n",
    "    ROLLED for (u32 c = 0; c + 1 < n_classes; c++) if (threshold[c] <= (c ? threshold[c - 1] : 0))\n",
    "        r.error = CORRUPT;\n",
    "    if (r.error) return 0;\n",
    "    ROLLED for (u32 key = lane; key < 256; key += 32)\n",
    "    {\n",
    "        u32 c = 0;\n",
    "        while (c + 1 < n_classes && key >= threshold[c]) c++;\n",
    "        s.class_of[key] = (u8)c;\n",
    "    }\n",
    "    together<true>(r, COUNT_CLASSES);\n",
    "    u32 count = 0;\n",
    "    if (lane < n_classes) ROLLED for (u32 w = 0; w < WARPS; w++) count += s.count[w][lane];\n",
    "    return count;\n",
    "}\n",
    "\n",
    "/* Reads the payload of a block of lmc_decode_any: all its sides. */\n",
    "DEV void read_payload(Reader &r, const Block &job, u32 width)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const u8 *const h = (const u8 *)job.in;\n",
    "    const u32 lane = lane_id();\n",
    "    if (s.stored) {\n",
    "        if (lane < width) {\n",
    "            const Side side = {r.in + lane, width};\n",
    "            s.side[0][lane] = side;\n",
    "        }\n",
    "        r.at = r.size;\n",
    "        return;\n",
    "    }\n",
    "    if (h[2] >> 2 & 1) {\n",
    "        together<true>(r, CHECK_PAYLOAD);\n",
    "        u32 crc = r.size < 4 ? FULL : s.crc;\n",
    "        ROLLED for (u32 i = r.size & ~3u; i < r.size; i++) crc = crc_byte(crc, r.in[i]);\n",
    "        if (~crc != get32(h + 16)) r.error = CHECKSUM;\n",
    "        else if (!job.base) r.error = BASE_MISSING;\n",
    "        __syncwarp();\n",
    "        if (lane == 0) {\n",
    "            s.crc = 0;\n",
    "            s.is_payload_right = !r.error;\n",
    "        }\n",
    "        if (r.error) return;\n",
    "    }\n",
    "    u32 count = read_classes(r);\n",
    "    if (r.error) return;\n",
    "    if (s.sparse) {\n",
    "        u32 coded = 0;\n",
    "        ROLLED for (u32 c = 0; c < s.n_classes; c++)\n",
    "        {\n",
    "            const u32 n = __shfl_sync(FULL, count, c);\n",
    "            u32 bits = 0, ones = 0;\n",
    "            if (n) {\n",
    "                bits = Nested<true, 0>::mask(r, n, true);\n",
    "                if (r.error) return;\n",
    "                ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.part[w];\n",
    "            }\n",
    "            if (lane == c) coded = ones;\n",
    "            __syncwarp();\n",
    "            if (lane == 0) {\n",
    "                s.mask[c] = bits;\n",
    "                s.mask_n[c] = n;\n",
    "            }\n",
    "        }\n",
    "        count = coded;\n",
    "    }\n",
    "    ROLLED for (u32 p = 0; p < s.natural; p++)\n",
    "    {\n",
    "        const Side side = {r.in + r.at, 1};\n",
    "        if (!has(r, s.n)) return;\n",
    "        r.at += s.n;\n",
    "        if (lane == 0) s.side[0][p] = side;\n",
    "    }\n",
    "    ROLLED for (u32 c = 0; c < s.n_classes; c++)\n",
    "    {\n",
    "        const u32 m = __shfl_sync(FULL, count, c);\n",
    "        ROLLED for (u32 p = s.natural; p < width && m; p++)\n",
    "        {\n",
    "            read_side(r, c, p, m);\n",
    "            if (r.error) return;\n",
    "        }\n",
    "    }\n",
    "    if (r.at != r.size) r.error = CORRUPT;\n",
    "}\n",
    "\n",
    "/* What the threads must know of the header before the first warp has checked it: nothing of it\n",
    " * becomes an address. */\n",
    "template <bool WIDE> DEV void begin(const u8 *h, u32 width, const Tables *t)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    if (!WIDE) load_advance<WIDE>(t, log2_width(width) + 3);\n",
    "    if (threadIdx.x == 0) {\n",
    "        s.status = OK;\n",
    "        s.crc = 0;\n",
    "        s.n = get32(h + 4);\n",
    "        s.width = width;\n",
    "        s.order = h[2] & 3;\n",
    "        s.stored = h[2] >> 5 == 0;\n",
    "        s.log2_chunk = LOG2_CHUNK;\n",
    "    }\n",
    "}\n",
    "DEV void begin_delta(const Block &job, const u8 *h, u8 *scratch)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    if (threadIdx.x == 0) {\n",
    "        s.scratch = scratch;\n",
    "        s.base = h[2] >> 2 & 1 ? (const u8 *)job.base : 0;\n",
    "        s.n_classes = (h[3] & 15) + 1;\n",
    "        s.class_bits = 32 - __clz(h[3] & 15);\n",
    "        s.sparse = h[3] >> 4 & 1;\n",
    "        s.natural = h[3] >> 5;\n",
    "        s.is_payload_right = 0;\n",
    "    }\n",
    "}\n",
    "\n",
    "DEV void finish_delta(const Block &job, const u8 *h, const Tables *t)\n",
    "{\n",
    "    Shared<true> &s = shared<true>();\n",
    "    const u8 *const out = (const u8 *)job.out;\n",
    "    const bool is_in_pieces = s.n_classes == 1 && s.width < 8;\n",
    "    const u32 whole = is_in_pieces       ? s.n / 8 * 8 * s.width\n",
    "                      : job.out_size < 4 ? 0\n",
    "                                         : job.out_size;\n",
    "    load_advance<true>(t, log2_width(s.width) + (is_in_pieces ? 3 : 0));\n",
    "    BARRIER();\n",
    "    if (is_in_pieces) FOR_NARROW_WIDTH(s.width, make_delta_pieces, ((u8 *)job.out, t));\n",
    "    else FOR_WIDTH(s.width, make_delta_elements, ((u8 *)job.out, t));\n",
    "    BARRIER();\n",
    "    if (threadIdx.x == 0 && !is_content_right<true>(out, whole, job.out_size, get32(h + 12)))\n",
    "        s.status = CHECKSUM;\n",
    "}\n",
    "\n",
    "/* All threads of the group call this; groups share nothing. */\n",
    "template <bool WIDE>\n",
    "DEV void decode_block(const Block &job, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u8 *const h = (const u8 *)job.in;\n",
    "    if (job.in_size < HEADER) {\n",
    "        if (threadIdx.x == 0) *status = TRUNCATED;\n",
    "        return;\n",
    "    }\n",
    "    const u32 width = h[1];\n",
    "    begin<WIDE>(h, width, t);\n",
    "    if constexpr (WIDE) begin_delta(job, h, scratch);\n",
    "    BARRIER();\n",
    "    Reader r = {h + HEADER, job.in_size - HEADER, 0, 0, 0, 0, t};\n",
    "    r.room = WIDE ? (u32)(min_u64(scratch_size, 1u << 30) >> 2)\n",
    "                  : (SHARED_SIZE() - (u32)sizeof(Shared<false>)) >> 2;\n",
    "    if (warp_id() == 0) {\n",
    "        r.error = check_header<WIDE>(job, t);\n",
    "        if constexpr (WIDE) {\n",
    "            if (!r.error) read_payload(r, job, width);\n",
    "        } else if (!r.error) read_planes(r, width);\n",
    "        if (lane_id() == 0) {\n",
    "            s.job = END;\n",
    "            s.status = r.error;\n",
    "        }\n",
    "        BARRIER();\n",
    "    } else {\n",
    "        for (;;) {\n",
    "            BARRIER();\n",
    "            if (s.job == END) break;\n",
    "            work<WIDE>(r);\n",
    "        }\n",
    "    }\n",
    "    if (s.status == OK) {\n",
    "        if constexpr (WIDE) finish_delta(job, h, t);\n",
    "        else\n",
    "            FOR_NARROW_WIDTH(s.width, make_elements, (h + HEADER, (u8 *)job.out, get32(h + 12), t));\n",
    "    }\n",
    "    if (threadIdx.x == 0) {\n",
    "        *status = s.status;\n",
    "        if constexpr (WIDE) /* the payload is right, so the base is not (R5-13) */\n",
    "            if (s.is_payload_right && (s.status == CORRUPT || s.status == CHECKSUM))\n",
    "                *status = BASE_WRONG;\n",
    "    }\n",
    "    BARRIER();\n",
    "}\n",
    "\n",
    "template <bool WIDE>\n",
    "DEV void decode_blocks(const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch,\n",
    "                       u64 scratch_size)\n",
    "{\n",
    "    Shared<WIDE> &s = shared<WIDE>();\n",
    "    const u32 lane = threadIdx.x;\n",
    "    if (lane < 16) {\n",
    "        u32 selector = 0, left = 0, right = 4;\n",
    "        ROLLED for (u32 i = 0; i < 4; i++) selector |= (lane >> i & 1 ? right++ : left++) << 4 * i;\n",
    "        s.selector[lane] = selector;\n",
    "    }\n",
    "    s.frozen[lane] = t->frozen_symbol[lane];\n",
    "    ROLLED for (u32 i = blockIdx.x; i < n; i += gridDim.x)\n",
    "    {\n",
    "        const Block job = blocks[i];\n",
    "        decode_block<WIDE>(job, status + i, t, scratch + blockIdx.x * scratch_size, scratch_size);\n",
    "    }\n",
    "}\n",
    "\n",
    "#define KERNEL(name, wide)                                                                         \\\n",
    "    extern \"C\" __global__ void __launch_bounds__(THREADS, GROUPS) name(                            \\\n",
    "        const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size)   \\\n",
    "    {                                                                                              \\\n",
    "        decode_blocks<wide>(blocks, n, status, t, scratch, scratch_size);                          \\\n",
    "    }\n",
    "KERNEL(lmc_decode_planes, false)\n",
    "KERNEL(lmc_decode_any, true)\n",
    "/* SPDX-License-Identifier: MIT\n",
    " * NVRTC compiles this behind decode.cu, whose names it uses. Experimental, too. Sums of decoded\n",
    " * bytes, for fingerprints (spec 7.1):\n",
    " *\n",
    " *     lmc_sums(pieces, n, sums, tables)        any number of groups, of 256 threads each\n",
    " *\n",
    " * A piece is a leaf of a tensor, at most 2^18 bytes at any address; its sums:\n",
    " *\n",
    " *     words   its u64 words, added up; zero bytes complete the last one\n",
    " *     crc     the remainder of its polynomial times x^32. That is a CRC-32C without the inversions;\n",
    " *             the host adds them, because it knows the size\n",
    " *\n",
    " * Leading zeros do not change a remainder: so the piece is filled up with zeros in front to whole\n",
    " * rows of 256 words of 4 bytes. Thread j has word j of each row: the factor between two of its\n",
    " * words is x^8192, and 255 - j words follow its last word.\n",
    " *\n",
    " *     piece         |.......xxxxxxxx|xxxxxxxxxxxxxxx|xxxxxxxxxxxxxxx|       3 rows\n",
    " *     thread j           ^               ^               ^ */\n",
    "struct SumPiece { u64 at; u32 size, reserved; };\n",
    "struct Sums { u64 words; u32 crc, reserved; };\n",
    "struct SumShared { u64 words[256]; u32 advance[4][256], crc[256]; };\n",
    "\n",
    "/* Bytes [at, at + size) as a number; bytes outside [begin, end) are 0. */\n",
    "DEV u64 sum_bytes(u64 begin, u64 end, u64 at, u32 size)\n",
    "{\n",
    "    u64 v = 0;\n",
    "    if (at >= begin && at + size <= end && at % size == 0)\n",
    "        return size == 8 ? *(const u64 *)at : (u64) * (const u32 *)at;\n",
    "    for (u32 i = 0; i < size; i++)\n",
    "        if (at + i >= begin && at + i < end) v |= (u64) * (const u8 *)(at + i) << 8 * i;\n",
    "    return v;\n",
    "}\n",
    "\n",
    "DEV u32 sum_product(const u32 table[4][256], u32 v)\n",
    "{\n",
    "    return table[0][v & 255] ^ table[1][v >> 8 & 255] ^ table[2][v >> 16 & 255] ^ table[3][v >> 24];\n",
    "}\n",
    "\n",
    "extern \"C\" __global__ void __launch_bounds__(256) lmc_sums(const SumPiece *pieces, u32 n,\n",
    "                                                           Sums *sums, const Tables *t)\n",
    "{\n",
    "    SumShared &s = *(SumShared *)SHARED_MEMORY();\n",
    "    const u32 tid = threadIdx.x;\n",
    "    for (u32 i = tid; i < 1024; i += 256)\n",
    "        s.advance[i >> 8][i & 255] = t->advance[5][i >> 8][i & 255];\n",
    "    BARRIER();\n",
    "    for (u32 k = blockIdx.x; k < n; k += gridDim.x) {\n",
    "        const u64 begin = pieces[k].at, end = begin + pieces[k].size;\n",
    "        const u32 rows = (pieces[k].size + 1023) / 1024;\n",
    "        u64 words = 0;\n",
    "        u32 crc = 0;\n",
    "        for (u32 i = 0; i < rows; i++)\n",
    "            crc = sum_product(s.advance, crc) ^\n",
    "                  (u32)sum_bytes(begin, end, end - (u64)(rows - i) * 1024 + 4 * tid, 4);\n",
    "        s.crc[tid] = move_crc(t, crc, 4 * (256 - tid)); /* the words behind it, and x^32 */\n",
    "        for (u64 at = begin + 8 * tid; at < end; at += 8 * 256)\n",
    "            words += sum_bytes(begin, end, at, 8);\n",
    "        s.words[tid] = words;\n",
    "        BARRIER();\n",
    "        for (u32 half = 128; half; half >>= 1) {\n",
    "            if (tid < half) {\n",
    "                s.words[tid] += s.words[tid + half];\n",
    "                s.crc[tid] ^= s.crc[tid + half];\n",
    "            }\n",
    "            BARRIER();\n",
    "        }\n",
    "        if (tid == 0) {\n",
    "            sums[k].words = s.words[0];\n",
    "            sums[k].crc = s.crc[0];\n",
    "        }\n",
    "        BARRIER();\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Copies the headers of n blocks, at any addresses, side by side. */\n",
    "extern \"C\" __global__ void __launch_bounds__(256) lmc_headers(const u64 *blocks, u32 n, u8 *headers)\n",
    "{\n",
    "    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < HEADER * n; i += gridDim.x * 256)\n",
    "        headers[i] = *(const u8 *)(blocks[i / HEADER] + i % HEADER);\n",
    "}\n",
    NULL,
};

/* == gpu/cuda_open.h =========================================================================== */

#include <stdarg.h>
#include <stdio.h>
#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#endif

/* Opens libcuda, NVRTC, a device, and the kernels:
 *     lmc_cuda_open -> libraries -> device, its primary context
 *                   -> the text of the kernels -> cache, or NVRTC -> cubin -> module
 *
 * Each member of struct lmc_cuda is zero until it is made; lmc_cuda_free frees members that are
 * not zero. So it can close an object whose open has failed. */

/* One of the two halves of memory that waves of blocks use in turn (cuda_wave.h). */
typedef struct lmc__cuda_half {
    lmc__buffer jobs, pieces, ranges; /* lmc__cuda_job, ..._piece, ..._range */
    /* pinned: packed bytes as they are read; the table of the kernels, and their statuses */
    uint8_t *packed;
    lmc__gpu_block *table;
    uint32_t *status;
    /* the same on the device, statuses behind the table; decoded blocks and gathered predictions,
     * allocated when needed */
    lmc__cu_address gpu_packed, gpu_table, gpu_out, gpu_base;
    lmc__cu_event copied, decoded;
    size_t packed_cap;            /* of packed, without LMC__GPU_PAD */
    size_t packed_size, out_size; /* of the wave */
} lmc__cuda_half;
#define LMC__CUDA_HALF_BUFFERS LMC__ROW(lmc__cuda_half, jobs, packed)

struct lmc_cuda {
    lmc_cuda_options options;
    lmc__cuda_functions f;
    void *driver, *nvrtc;
    lmc__cu_device device;
    lmc__cu_context context;
    lmc__cu_module module;
    lmc__cu_function kernels[LMC__GPU_KERNELS]; /* NULL: the device has too little shared memory */
    uint32_t shared[LMC__GPU_KERNELS];          /* bytes of it for a group */
    lmc__cu_function sums, headers;             /* of sums.cu */
    unsigned n_multiprocessors;
    lmc__cu_stream own;     /* for copies to the device, and of pieces within it */
    lmc__cu_event started;  /* in the caller's stream, behind its earlier work */
    lmc__cu_address tables; /* lmc__gpu_tables */
    lmc__cu_address scratch;
    uint64_t scratch_size;
    /* The most decoded and packed bytes of a wave, for which device memory is allocated. 0: none
     * is. */
    size_t half_size, packed_cap;
    lmc__cuda_half halves[2];
    /* spans: lmc__cuda_span of the current call; host: bytes that the reader decodes */
    lmc__buffer spans, host;
    size_t next_span; /* the next to be planned: in that span, from that byte of its stream on */
    uint64_t next_at;
    lmc__cu_stream stream; /* the caller's, in the current call */
    lmc__cu_address given; /* 0, or the address of a part of the LMC file */
    uint64_t given_at, given_size;
    uint8_t is_passed[LMC__GPU_KERNELS]; /* 1: not tried again in this call (cuda_wave.h) */
    lmc_cuda_counts counts;
    char message[768];
};
#define LMC__CUDA_BUFFERS LMC__ROW(lmc_cuda, spans, next_span)

#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
LMC__COLD static enum lmc_status
lmc__cuda_fail(lmc_cuda *c, enum lmc_status status, const char *format, ...)
{
    va_list arguments;
    char *p;
    va_start(arguments, format);
    (void)vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
    /* one line, though names of a file may have line ends, and NVRTC's log has many lines */
    for (p = c->message; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7F) *p = ' ';
    return status;
}

/* For errors without a message, for example of host memory and arguments: the status's text. */
static enum lmc_status lmc__cuda_note(lmc_cuda *c, enum lmc_status status)
{
    return status == LMC_OK || c->message[0]
               ? status
               : lmc__cuda_fail(c, status, "%s", lmc_status_text(status));
}

/* error: what `function`, a function of the driver, has returned. */
static enum lmc_status lmc__cuda_check(lmc_cuda *c, int error, const char *function)
{
    const char *name = NULL, *text = NULL;
    if (error == 0) return LMC_OK;
    if (c->f.cuGetErrorName(error, &name) != 0 || !name) name = "an unknown error";
    if (c->f.cuGetErrorString(error, &text) != 0 || !text) text = "no description";
    if (error == LMC__CU_OUT_OF_MEMORY)
        return lmc__cuda_fail(c, LMC_ERR_MEMORY,
                              "CUDA: %s failed: %s (%s): free memory of the GPU, or take a smaller "
                              "staging_size",
                              function, name, text);
    return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                          "CUDA: %s failed on device %u: %s (%s): decode on the CPU; if it happens "
                          "again, check the driver (nvidia-smi)",
                          function, (unsigned)c->options.device, name, text);
}

/* Calls a function of the driver, and returns from the calling function if it fails. */
#define LMC__CUDA(c, name, arguments) LMC__TRY(lmc__cuda_check(c, (c)->f.name arguments, #name))

/* Called around all use of the device, so that the caller's context stays the same. */
static enum lmc_status lmc__cuda_enter(lmc_cuda *c)
{
    LMC__CUDA(c, cuCtxPushCurrent_v2, (c->context));
    return LMC_OK;
}
static void lmc__cuda_leave(lmc_cuda *c)
{
    lmc__cu_context context;
    (void)c->f.cuCtxPopCurrent_v2(&context);
}

/* -- libraries --
 * These are never closed: the driver has threads, and work to do when the process ends. */

#ifdef _WIN32
static void *lmc__open_library(const char *path) { return (void *)LoadLibraryA(path); }
static unsigned long lmc__process_number(void) { return GetCurrentProcessId(); }
#else
static void *lmc__open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static unsigned long lmc__process_number(void) { return (unsigned long)getpid(); }
#endif

/* Sets a pointer to a function, or to NULL: ISO C has no cast from a pointer to an object. */
static void lmc__find_symbol(void *library, const char *name, void *pointer)
{
#ifdef _WIN32
    const FARPROC found = GetProcAddress((HMODULE)library, name);
#else
    void *const found = dlsym(library, name);
#endif
    memcpy(pointer, &found, sizeof found);
}

/* Opens `path` if it is not NULL, else the first of `names` that the system finds. what: text for
 * the message that tells how to get the library. */
LMC__COLD static enum lmc_status lmc__find_library(lmc_cuda *c, void **library, const char *path,
                                                   const char *const *names, const char *what)
{
    size_t i;
    if (path) *library = lmc__open_library(path);
    for (i = 0; !path && names[i] && !*library; i++) *library = lmc__open_library(names[i]);
    if (*library) return LMC_OK;
    return lmc__cuda_fail(c, LMC_ERR_DEVICE, "CUDA: %s cannot be opened: %s",
                          path ? path : names[0], what);
}

LMC__COLD static enum lmc_status lmc__open_libraries(lmc_cuda *c)
{
#ifdef _WIN32
    static const char *const drivers[] = {"nvcuda.dll", NULL};
    static const char *const compilers[] = {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll",
                                            "nvrtc64_112_0.dll", NULL};
#else
    static const char *const drivers[] = {"libcuda.so.1", NULL};
    static const char *const compilers[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                            NULL};
#endif
    const char *missing = NULL;
    LMC__TRY(lmc__find_library(c, &c->driver, c->options.driver_path, drivers,
                               "is there a GPU of NVIDIA, and its driver?"));
    LMC__TRY(lmc__find_library(c, &c->nvrtc, c->options.nvrtc_path, compilers,
                               "install NVRTC (it comes with the CUDA Toolkit and with PyTorch; "
                               "pip: nvidia-cuda-nvrtc-cu12), or set nvrtc_path"));
#define LMC__FIND(name, arguments)                                                                 \
    lmc__find_symbol(library, #name, &c->f.name);                                                  \
    if (!c->f.name) missing = #name;
    {
        void *const library = c->driver;
        LMC__CUDA_FUNCTIONS(LMC__FIND)
    }
    {
        void *const library = c->nvrtc;
        LMC__NVRTC_FUNCTIONS(LMC__FIND)
    }
#undef LMC__FIND
    if (!missing) return LMC_OK;
    return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                          "CUDA: %s has no function %s: it is older than CUDA 11.2; update it",
                          strncmp(missing, "nvrtc", 5) == 0 ? "NVRTC" : "the driver", missing);
}

/* -- kernels -- */

typedef struct lmc__cuda_code {
    lmc__buffer text, cubin;
    char arch[48];    /* the option */
    int major, minor; /* of NVRTC */
    uint8_t key[32];  /* SHA-256 of all that the cubin depends on */
} lmc__cuda_code;
#define LMC__CUDA_CODE_BUFFERS LMC__ROW(lmc__cuda_code, text, arch)

static const char *const lmc__cuda_options_of_nvrtc[] = {"--std=c++17", "-default-device"};

static enum lmc_status lmc__join_text(lmc__cuda_code *code)
{
    size_t i;
    for (i = 0; lmc__cuda_text[i]; i++)
        LMC__TRY(lmc__append(&code->text, lmc__cuda_text[i], strlen(lmc__cuda_text[i])));
    return lmc__append(&code->text, NULL, 1);
}

static void lmc__make_key(lmc__cuda_code *code)
{
    lmc__sha256 sha;
    size_t i;
    lmc__sha256_init(&sha);
    lmc__sha256_number(&sha, (uint64_t)code->major, 4);
    lmc__sha256_number(&sha, (uint64_t)code->minor, 4);
    lmc__sha256_update(&sha, code->arch, strlen(code->arch) + 1);
    for (i = 0; i < sizeof lmc__cuda_options_of_nvrtc / sizeof *lmc__cuda_options_of_nvrtc; i++)
        lmc__sha256_update(&sha, lmc__cuda_options_of_nvrtc[i],
                           strlen(lmc__cuda_options_of_nvrtc[i]) + 1);
    lmc__sha256_update(&sha, code->text.data, code->text.size);
    lmc__sha256_finish(&sha, code->key);
}

/* A file of the cache begins with a mark and the SHA-256 of the key and the cubin; the cubin
 * follows. So no damaged file is used, and no file of another key. */
#define LMC__CUBIN_MARK "LMC cubin 1\n\0\0\0\0"
#define LMC__CUBIN_HEAD (16 + 32)

static void lmc__hash_cubin(const lmc__cuda_code *code, const uint8_t *cubin, size_t size,
                            uint8_t hash[32])
{
    lmc__sha256 sha;
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, code->key, sizeof code->key);
    lmc__sha256_update(&sha, cubin, size);
    lmc__sha256_finish(&sha, hash);
}

/* DIR/lmc-KEY.cubin, followed by `end`. */
static enum lmc_status lmc__cache_path(const lmc_cuda *c, const lmc__cuda_code *code,
                                       const char *end, lmc__buffer *path)
{
    char name[64];
    size_t i;
    memcpy(name, "/lmc-", 5);
    for (i = 0; i < 16; i++) (void)snprintf(name + 5 + 2 * i, 3, "%02x", code->key[i]);
    memcpy(name + 37, ".cubin", 7);
    LMC__TRY(lmc__append(path, c->options.cache_dir, strlen(c->options.cache_dir)));
    LMC__TRY(lmc__append(path, name, strlen(name)));
    return lmc__append(path, end, strlen(end) + 1);
}

/* A cubin has a few hundred KB. */
#define LMC__MAX_CUBIN ((size_t)64 << 20)

/* Reads the cubin from the cache, if it is there and right. code->cubin begins with the head. */
LMC__COLD static enum lmc_status lmc__read_cache(lmc__cuda_code *code, const char *path)
{
    uint8_t hash[32];
    FILE *const file = fopen(path, "rb");
    size_t n = 1;
    enum lmc_status status = LMC_OK;
    if (!file) return LMC_ERR_NOT_FOUND;
    while (n && status == LMC_OK && code->cubin.size < LMC__MAX_CUBIN) {
        status = lmc__reserve(&code->cubin, (uint64_t)64 << 10);
        if (status != LMC_OK) break;
        n = fread(code->cubin.data + code->cubin.size, 1, (size_t)64 << 10, file);
        code->cubin.size += n;
    }
    (void)fclose(file);
    LMC__TRY(status);
    if (code->cubin.size <= LMC__CUBIN_HEAD || memcmp(code->cubin.data, LMC__CUBIN_MARK, 16) != 0)
        return LMC_ERR_NOT_FOUND;
    lmc__hash_cubin(code, code->cubin.data + LMC__CUBIN_HEAD, code->cubin.size - LMC__CUBIN_HEAD,
                    hash);
    return memcmp(hash, code->cubin.data + 16, 32) == 0 ? LMC_OK : LMC_ERR_NOT_FOUND;
}

/* The file appears whole or not at all. If it cannot be written, that is no error. */
LMC__COLD static void lmc__write_cache(const lmc_cuda *c, const lmc__cuda_code *code,
                                       const char *path)
{
    char end[64];
    lmc__buffer part;
    FILE *file;
    int is_whole;
    lmc__init_buffer(&part, c->options.allocator);
    (void)snprintf(end, sizeof end, ".%lu.%lx", lmc__process_number(),
                   (unsigned long)((uintptr_t)c >> 4 & 0xFFFFFF));
    if (lmc__cache_path(c, code, end, &part) == LMC_OK) {
        file = fopen((const char *)part.data, "wb");
        if (file) {
            is_whole = fwrite(code->cubin.data, 1, code->cubin.size, file) == code->cubin.size;
            is_whole &= fclose(file) == 0;
#ifdef _WIN32
            if (is_whole) (void)remove(path); /* rename() does not replace files there */
#endif
            if (!is_whole || rename((const char *)part.data, path) != 0)
                (void)remove((const char *)part.data);
        }
    }
    lmc__free_buffer(&part);
}

/* Compiles the text; code->cubin gets the head of a file, too. */
LMC__COLD static enum lmc_status lmc__compile_cubin(lmc_cuda *c, lmc__cuda_code *code)
{
    enum { N_FIXED = (int)(sizeof lmc__cuda_options_of_nvrtc / sizeof(char *)) };
    const char *options[N_FIXED + 1];
    lmc__nvrtc_program program = NULL;
    enum lmc_status status = LMC_OK;
    size_t size = 0;
    int error;
    memcpy(options, lmc__cuda_options_of_nvrtc, sizeof lmc__cuda_options_of_nvrtc);
    options[N_FIXED] = code->arch;
    if (c->f.nvrtcCreateProgram(&program, (const char *)code->text.data, "lmc_decode.cu", 0, NULL,
                                NULL) != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC %d.%d: nvrtcCreateProgram failed",
                              code->major, code->minor);
    error = c->f.nvrtcCompileProgram(program, N_FIXED + 1, options);
    code->cubin.size = 0;
    if (error == 0 && c->f.nvrtcGetCUBINSize(program, &size) == 0 && size != 0 &&
        size < LMC__MAX_CUBIN) {
        status = lmc__append(&code->cubin, NULL, LMC__CUBIN_HEAD + size);
        if (status == LMC_OK)
            error = c->f.nvrtcGetCUBIN(program, (char *)code->cubin.data + LMC__CUBIN_HEAD);
    } else {
        char log[400] = "";
        lmc__buffer text;
        lmc__init_buffer(&text, c->options.allocator);
        if (c->f.nvrtcGetProgramLogSize(program, &size) == 0 && size != 0 &&
            lmc__append(&text, NULL, size + 1) == LMC_OK &&
            c->f.nvrtcGetProgramLog(program, (char *)text.data) == 0)
            (void)snprintf(log, sizeof log, "%s", (const char *)text.data);
        lmc__free_buffer(&text);
        status = lmc__cuda_fail(c, LMC_ERR_DEVICE,
                                "NVRTC %d.%d cannot compile the kernels (%s): an NVRTC that knows "
                                "this GPU is needed: %s",
                                code->major, code->minor, code->arch, log);
    }
    (void)c->f.nvrtcDestroyProgram(&program);
    LMC__TRY(status);
    if (error != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC %d.%d: nvrtcGetCUBIN failed: %d",
                              code->major, code->minor, error);
    memcpy(code->cubin.data, LMC__CUBIN_MARK, 16);
    lmc__hash_cubin(code, code->cubin.data + LMC__CUBIN_HEAD, size, code->cubin.data + 16);
    c->counts.compiled = 1;
    return LMC_OK;
}

/* If the driver refuses a cubin of the cache, it is compiled again, too. */
LMC__COLD static enum lmc_status lmc__load_kernels(lmc_cuda *c, lmc__cuda_code *code,
                                                   lmc__buffer *path)
{
    LMC__TRY(lmc__join_text(code));
    if (c->f.nvrtcVersion(&code->major, &code->minor) != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC: nvrtcVersion failed");
    lmc__make_key(code);
    if (c->options.cache_dir) {
        enum lmc_status status;
        LMC__TRY(lmc__cache_path(c, code, "", path));
        status = lmc__read_cache(code, (const char *)path->data);
        if (status == LMC_OK &&
            c->f.cuModuleLoadData(&c->module, code->cubin.data + LMC__CUBIN_HEAD) == 0)
            return LMC_OK;
        if (status == LMC_ERR_MEMORY) return status;
    }
    c->module = NULL;
    LMC__TRY(lmc__compile_cubin(c, code));
    LMC__CUDA(c, cuModuleLoadData, (&c->module, code->cubin.data + LMC__CUBIN_HEAD));
    if (c->options.cache_dir) lmc__write_cache(c, code, (const char *)path->data);
    return LMC_OK;
}

/* Finds the kernels that this device can run. Several kernels may use one function, which is then
 * allowed the largest shared memory that one of these kernels needs. */
LMC__COLD static enum lmc_status lmc__find_gpu_kernels(lmc_cuda *c)
{
    int most = 0, i, k;
    LMC__CUDA(c, cuDeviceGetAttribute, (&most, LMC__CU_MAX_SHARED, c->device));
    LMC__CUDA(c, cuModuleGetFunction, (&c->sums, c->module, "lmc_sums"));
    LMC__CUDA(c, cuModuleGetFunction, (&c->headers, c->module, "lmc_headers"));
    for (i = 0; i < LMC__GPU_KERNELS; i++) {
        const lmc__gpu_kernel *const kernel = &lmc__gpu_kernels[i];
        uint32_t allowed;
        c->shared[i] = (uint32_t)lmc__min64(kernel->shared_size, (uint64_t)most);
        if (c->shared[i] < kernel->shared_least) continue;
        LMC__CUDA(c, cuModuleGetFunction, (&c->kernels[i], c->module, kernel->name));
        allowed = c->shared[i];
        for (k = 0; k < i; k++)
            if (strcmp(lmc__gpu_kernels[k].name, kernel->name) == 0 && allowed < c->shared[k])
                allowed = c->shared[k];
        LMC__CUDA(c, cuFuncSetAttribute, (c->kernels[i], LMC__CU_SET_SHARED, (int)allowed));
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__copy_tables(lmc_cuda *c)
{
    lmc__buffer buffer;
    enum lmc_status status;
    lmc__init_buffer(&buffer, c->options.allocator);
    status = lmc__append(&buffer, NULL, sizeof(lmc__gpu_tables));
    if (status == LMC_OK) {
        lmc__gpu_make_tables((lmc__gpu_tables *)(void *)buffer.data);
        status = lmc__cuda_check(c, c->f.cuMemAlloc_v2(&c->tables, buffer.size), "cuMemAlloc");
    }
    if (status == LMC_OK)
        status = lmc__cuda_check(
            c, c->f.cuMemcpyHtoDAsync_v2(c->tables, buffer.data, buffer.size, c->own),
            "cuMemcpyHtoDAsync");
    if (status == LMC_OK)
        status = lmc__cuda_check(c, c->f.cuStreamSynchronize(c->own), "cuStreamSynchronize");
    lmc__free_buffer(&buffer);
    return status;
}

/* Within the context. */
LMC__COLD static enum lmc_status lmc__open_context(lmc_cuda *c)
{
    lmc__cuda_code code;
    lmc__buffer path;
    enum lmc_status status;
    int major = 0, minor = 0, n = 0;
    unsigned i;
    LMC__CUDA(c, cuDeviceGetAttribute, (&n, LMC__CU_MULTIPROCESSORS, c->device));
    LMC__CUDA(c, cuDeviceGetAttribute, (&major, LMC__CU_MAJOR, c->device));
    LMC__CUDA(c, cuDeviceGetAttribute, (&minor, LMC__CU_MINOR, c->device));
    if (10 * major + minor < 75)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                              "CUDA: device %u has compute capability %d.%d; 7.5 (Turing) or later "
                              "is needed: decode on the CPU",
                              (unsigned)c->options.device, major, minor);
    c->n_multiprocessors = n > 0 ? (unsigned)n : 1;
    LMC__CUDA(c, cuStreamCreate, (&c->own, LMC__CU_NON_BLOCKING));
    LMC__CUDA(c, cuEventCreate, (&c->started, LMC__CU_NO_TIMING));
    for (i = 0; i < 2; i++) {
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].copied, LMC__CU_NO_TIMING));
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].decoded, LMC__CU_NO_TIMING));
    }
    memset(&code, 0, sizeof code);
    lmc__init_buffers(&code, LMC__CUDA_CODE_BUFFERS, c->options.allocator);
    lmc__init_buffer(&path, c->options.allocator);
    (void)snprintf(code.arch, sizeof code.arch, "--gpu-architecture=sm_%d%d", major, minor);
    status = lmc__load_kernels(c, &code, &path);
    lmc__free_buffers(&code, LMC__CUDA_CODE_BUFFERS);
    lmc__free_buffer(&path);
    LMC__TRY(status);
    LMC__TRY(lmc__find_gpu_kernels(c));
    return lmc__copy_tables(c);
}

LMC__COLD static enum lmc_status lmc__open_device(lmc_cuda *c)
{
    enum lmc_status status;
    LMC__TRY(lmc__open_libraries(c));
    LMC__CUDA(c, cuInit, (0));
    LMC__CUDA(c, cuDeviceGet, (&c->device, (int)c->options.device));
    LMC__CUDA(c, cuDevicePrimaryCtxRetain, (&c->context, c->device));
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__open_context(c);
    lmc__cuda_leave(c);
    return status;
}

#define LMC__MIN_STAGING ((uint64_t)2 * LMC_MAX_BLOCK_SIZE)
#define LMC__MAX_STAGING ((uint64_t)4 << 30)

LMC__COLD LMC_API enum lmc_status lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options)
{
    lmc_cuda_options o;
    lmc_cuda *c;
    unsigned i;
    if (!cuda) return LMC_ERR_ARGUMENT;
    *cuda = NULL;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    if ((o.staging_size != 0 && o.staging_size < LMC__MIN_STAGING) ||
        o.staging_size > LMC__MAX_STAGING || o.device > INT_MAX)
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(o.allocator));
    c = (lmc_cuda *)lmc__realloc(o.allocator, NULL, 0, sizeof *c);
    if (!c) return LMC_ERR_MEMORY;
    memset(c, 0, sizeof *c);
    c->options = o;
    lmc__init_buffers(c, LMC__CUDA_BUFFERS, o.allocator);
    for (i = 0; i < 2; i++) lmc__init_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS, o.allocator);
    *cuda = c;
    return lmc__cuda_note(c, lmc__open_device(c));
}

static void lmc__free_on_gpu(lmc_cuda *c, lmc__cu_address *address)
{
    if (*address) (void)c->f.cuMemFree_v2(*address);
    *address = 0;
}

/* Within the context, while no work is pending. */
static void lmc__free_staging(lmc_cuda *c)
{
    unsigned i;
    for (i = 0; i < 2; i++) {
        lmc__free_on_gpu(c, &c->halves[i].gpu_packed);
        lmc__free_on_gpu(c, &c->halves[i].gpu_table);
        lmc__free_on_gpu(c, &c->halves[i].gpu_out);
        lmc__free_on_gpu(c, &c->halves[i].gpu_base);
    }
    lmc__free_on_gpu(c, &c->scratch);
    c->scratch_size = 0;
    c->half_size = 0;
}

LMC__COLD LMC_API void lmc_cuda_trim(lmc_cuda *c)
{
    if (!c || !c->tables) return;
    if (c->f.cuCtxPushCurrent_v2(c->context) != 0) return;
    lmc__free_staging(c);
    lmc__cuda_leave(c);
}

LMC__COLD static void lmc__free_half(lmc_cuda *c, lmc__cuda_half *h)
{
    if (h->packed) (void)c->f.cuMemFreeHost(h->packed);
    if (h->table) (void)c->f.cuMemFreeHost(h->table);
    if (h->copied) (void)c->f.cuEventDestroy_v2(h->copied);
    if (h->decoded) (void)c->f.cuEventDestroy_v2(h->decoded);
}

/* Errors of CUDA are ignored here: the caller could do nothing about them. */
LMC__COLD LMC_API void lmc_cuda_free(lmc_cuda *c)
{
    unsigned i;
    if (!c) return;
    if (c->context && lmc__cuda_enter(c) == LMC_OK) {
        if (c->own) (void)c->f.cuStreamSynchronize(c->own);
        lmc__free_staging(c);
        for (i = 0; i < 2; i++) lmc__free_half(c, &c->halves[i]);
        lmc__free_on_gpu(c, &c->tables);
        if (c->started) (void)c->f.cuEventDestroy_v2(c->started);
        if (c->own) (void)c->f.cuStreamDestroy_v2(c->own);
        if (c->module) (void)c->f.cuModuleUnload(c->module);
        lmc__cuda_leave(c);
    }
    if (c->context) (void)c->f.cuDevicePrimaryCtxRelease_v2(c->device);
    for (i = 0; i < 2; i++) lmc__free_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS);
    lmc__free_buffers(c, LMC__CUDA_BUFFERS);
    (void)lmc__realloc(c->options.allocator, c, sizeof *c, 0);
}

LMC_API const char *lmc_cuda_message(const lmc_cuda *c) { return c ? c->message : ""; }

LMC_API void lmc_cuda_get_counts(const lmc_cuda *c, lmc_cuda_counts *counts)
{
    if (c && counts) *counts = c->counts;
}

/* == gpu/cuda_plan.h =========================================================================== */

/* From parts to waves of blocks:
 *     parts      |--- A -------------|         |- B -||--- C ----|
 *     spans      |--- 0 -------------|         |- 1 -||--- 2 ----|      sorted, by streams
 *     blocks     |.....|.....|.....|.....|   |.....|.....|.....|..      that have bytes of them
 *     pieces     |  0  |  1  |  2  |3|         | 4 | 5||6|  7  |8 |     of a block, for one part
 *     ranges     |----------- 0 ---------|   |--------- 1 ----------|   that are read at once
 *
 * A wave has as many blocks as fit in one half of the memory. Each block is in one wave. */

typedef struct lmc__cuda_span {
    size_t stream;
    uint64_t start, end; /* within the stream */
    int is_in_place;     /* the base may be at dst: no block is decoded to dst */
    lmc_cuda_part part;
} lmc__cuda_span;

typedef struct lmc__cuda_job {
    size_t run;
    uint32_t number;  /* of the block in its run */
    uint64_t at;      /* where it begins in its stream */
    size_t packed_at; /* in the half's packed bytes; the block has info.encoded_size */
    size_t out_at;    /* its place in gpu_out and gpu_base, if it needs one */
    lmc__cu_address out, base;
    size_t first_piece, n_pieces;
    lmc_block_info info;
    size_t slot;      /* in the table */
    int kernel;       /* its number, or LMC__GPU_CPU */
    int is_staged;    /* out is in gpu_out: pieces are copied from there */
    int is_by_reader; /* its prediction is not on the device: the reader decodes it */
    uint32_t status;  /* as kernels set it */
} lmc__cuda_job;

typedef struct lmc__cuda_piece {
    size_t span, skip, size; /* bytes of the block before it, and its own */
    uint64_t offset;         /* within the part */
} lmc__cuda_piece;

typedef struct lmc__cuda_range {
    uint64_t at; /* of the LMC file */
    size_t packed_at, size;
    enum lmc_status status;
} lmc__cuda_range;

/* The most blocks of a wave, and so the size of its table. */
#define LMC__CUDA_MAX_JOBS ((size_t)16384)
/* Packed bytes of a wave may be more than its decoded ones, because of headers and gaps. In deltas
 * they are far fewer. */
#define LMC__CUDA_MAX_PACKED ((size_t)64 << 20)
#define LMC__CUDA_PACKED_MORE ((size_t)1 << 20)
/* A smaller wave takes as long to start as to decode. */
#define LMC__CUDA_MIN_WAVE ((uint64_t)64 << 20)
/* At most a quarter of the free device memory is used. Each byte of a wave needs a packed, a
 * decoded and a predicted byte in two halves, and 3 bytes of scratch (lmc__gpu_scratch_size). */
#define LMC__CUDA_FREE_SHARE ((uint64_t)(4 * (2 + 2 + 2 + 3)))
/* A gap between two blocks is read with them if it is at most this long. */
#define LMC__CUDA_MAX_GAP 4096u
/* Outputs of a wave begin at multiples of this. */
#define LMC__CUDA_ALIGN ((size_t)256)

static lmc__cuda_span *lmc__span_at(const lmc_cuda *c, size_t i)
{
    return (lmc__cuda_span *)(void *)c->spans.data + i;
}
static size_t lmc__count_spans(const lmc_cuda *c) { return c->spans.size / sizeof(lmc__cuda_span); }
static lmc__cuda_job *lmc__cuda_job_at(const lmc__cuda_half *h, size_t i)
{
    return (lmc__cuda_job *)(void *)h->jobs.data + i;
}
static size_t lmc__count_cuda_jobs(const lmc__cuda_half *h)
{
    return h->jobs.size / sizeof(lmc__cuda_job);
}
static lmc__cuda_piece *lmc__cuda_piece_at(const lmc__cuda_half *h, const lmc__cuda_job *job,
                                           size_t i)
{
    return (lmc__cuda_piece *)(void *)h->pieces.data + job->first_piece + i;
}
static lmc__cuda_range *lmc__cuda_range_at(const lmc__cuda_half *h, size_t i)
{
    return (lmc__cuda_range *)(void *)h->ranges.data + i;
}

/* -- messages -- */

/* Makes the message for bytes of a file, from `offset` on; job: their block, or NULL. */
LMC__COLD static enum lmc_status lmc__cuda_fail_at(lmc_cuda *c, const lmc_reader *r,
                                                   uint64_t file_number, uint64_t offset,
                                                   const lmc__cuda_job *job, enum lmc_status status)
{
    const lmc_file *const f = lmc_reader_get_file(r, (size_t)file_number);
    const char *const path = f && f->path ? f->path : "", *tensor = NULL;
    char place[96] = "";
    size_t i;
    for (i = 0; f && i < f->n_tensors && !tensor; i++)
        if (offset >= f->tensors[i].offset && offset - f->tensors[i].offset < f->tensors[i].size)
            tensor = f->tensors[i].name;
    if (job)
        (void)snprintf(place, sizeof place, ", block %lu of run %lu (byte %llu of the LMC file)",
                       (unsigned long)job->number, (unsigned long)job->run,
                       (unsigned long long)lmc__block_at(r, job->run, job->number)->at);
    return lmc__cuda_fail(c, status, "%s%s%s%s%s: %s", path, path[0] ? ": " : "",
                          tensor ? "tensor " : "bytes of no tensor", tensor ? tensor : "", place,
                          lmc_status_text(status));
}

static enum lmc_status lmc__cuda_fail_job(lmc_cuda *c, const lmc_reader *r, const lmc__cuda_half *h,
                                          const lmc__cuda_job *job, enum lmc_status status)
{
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    return lmc__cuda_fail_at(c, r, part->file_number, part->offset + piece->offset, job, status);
}

/* -- spans -- */

static int lmc__compare_spans(const void *a, const void *b)
{
    const lmc__cuda_span *const x = (const lmc__cuda_span *)a, *const y = (const lmc__cuda_span *)b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int lmc__overlap(uint64_t a, uint64_t b, uint64_t size)
{
    return a < b ? b - a < size : a - b < size;
}

/* Begins a call: makes spans of the parts. */
static enum lmc_status lmc__take_parts(lmc_cuda *c, const lmc_reader *r, const lmc_cuda_part *parts,
                                       size_t n)
{
    lmc__cuda_span span;
    size_t i;
    c->spans.size = 0;
    for (i = 0; i < n; i++) {
        const lmc_cuda_part *const p = &parts[i];
        uint64_t start = p->offset;
        const lmc__stream *stream;
        if (p->file_number >= r->tables.listing.n_files ||
            !(stream = lmc__stream_range(r, (size_t)p->file_number, &start, p->size)))
            return lmc__cuda_fail(c, LMC_ERR_ARGUMENT,
                                  "part %lu: the snapshot has no such file, or fewer bytes of it",
                                  (unsigned long)i);
        if (p->size == 0) continue;
        if (p->dst && p->base && p->dst != p->base &&
            lmc__overlap((uintptr_t)p->dst, (uintptr_t)p->base, p->size))
            return lmc__cuda_fail(c, LMC_ERR_ARGUMENT,
                                  "part %lu: base overlaps dst, but is not the same",
                                  (unsigned long)i);
        memset(&span, 0, sizeof span);
        span.stream = lmc__file_at(r, (size_t)p->file_number)->stream;
        span.start = start;
        span.end = start + p->size;
        span.part = *p;
        LMC__TRY(lmc__append(&c->spans, &span, sizeof span));
        (void)stream;
    }
    n = lmc__count_spans(c);
    lmc__heap_sort(c->spans.data, n, sizeof span, lmc__compare_spans, &span);
    for (i = 1; i < n; i++)
        if (lmc__span_at(c, i)->stream == lmc__span_at(c, i - 1)->stream &&
            lmc__span_at(c, i)->start < lmc__span_at(c, i - 1)->end)
            return lmc__cuda_fail(
                c, LMC_ERR_ARGUMENT, "two parts have the same bytes of %s: ask for them once",
                lmc__file_at(r, (size_t)lmc__span_at(c, i)->part.file_number)->file.path);
    c->next_span = 0;
    c->next_at = n ? lmc__span_at(c, 0)->start : 0;
    return LMC_OK;
}

/* -- waves -- */

/* *largest: the largest block with wanted bytes; *total: wanted bytes and the rest of their
 * blocks. */
static void lmc__measure_spans(const lmc_cuda *c, const lmc_reader *r, size_t *largest,
                               uint64_t *total)
{
    size_t i;
    *largest = 1;
    *total = 0;
    for (i = 0; i < lmc__count_spans(c); i++) {
        const lmc__cuda_span *const span = lmc__span_at(c, i);
        const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, span->stream);
        uint64_t at = span->start;
        while (at < span->end) {
            const lmc__run *const run = &lmc__run_at(r, lmc__find_run(r, stream, at))->run;
            const size_t size = (size_t)lmc__min64(run->block_size, run->size);
            if (*largest < size) *largest = size;
            at = run->start + run->size;
        }
        *total += span->end - span->start + 2 * (uint64_t)*largest;
    }
}

/* Chooses the size of waves. One group of threads decodes a block, so a wave should have a block
 * for each group that runs at the same time, or a multiple of that. No work may be pending. */
static enum lmc_status lmc__choose_wave_size(lmc_cuda *c, const lmc_reader *r)
{
    const unsigned n_groups = c->n_multiprocessors * lmc__gpu_kernels[LMC__GPU_ANY].groups;
    size_t largest, available = 0, all = 0;
    uint64_t total, size = c->options.staging_size / 2;
    lmc__measure_spans(c, r, &largest, &total);
    if (size == 0) {
        LMC__CUDA(c, cuMemGetInfo_v2, (&available, &all));
        size = (uint64_t)n_groups * largest;
        while (size < LMC__CUDA_MIN_WAVE) size *= 2;
        size = lmc__min64(size, available / LMC__CUDA_FREE_SHARE);
        size = lmc__min64(size, LMC__MAX_STAGING / 2);
    }
    size = lmc__min64(size, total);
    if (size < LMC__MIN_STAGING / 2) size = LMC__MIN_STAGING / 2;
    size = (size + 4095) & ~(uint64_t)4095;
    if (size <= c->half_size) return LMC_OK; /* the memory is large enough */
    lmc__free_staging(c);
    c->half_size = (size_t)size;
    c->packed_cap = lmc__min(c->half_size, LMC__CUDA_MAX_PACKED) + LMC__CUDA_PACKED_MORE;
    return LMC_OK;
}

/* Adds a block's packed bytes behind the others of the wave. */
static enum lmc_status lmc__add_range(lmc__cuda_half *h, const lmc__block_place *place, size_t *at)
{
    const size_t n = h->ranges.size / sizeof(lmc__cuda_range);
    lmc__cuda_range *const last = n ? lmc__cuda_range_at(h, n - 1) : NULL;
    lmc__cuda_range range;
    if (last && place->at >= last->at + last->size &&
        place->at - (last->at + last->size) <= LMC__CUDA_MAX_GAP) {
        *at = last->packed_at + (size_t)(place->at - last->at);
        last->size = (size_t)(place->at - last->at) + place->size;
        h->packed_size = *at + place->size;
        return LMC_OK;
    }
    memset(&range, 0, sizeof range);
    range.at = place->at;
    range.packed_at = *at = h->packed_size;
    range.size = place->size;
    h->packed_size += place->size;
    return lmc__append(&h->ranges, &range, sizeof range);
}

/* Adds a piece for each part that needs bytes of the block, which ends at `end` of its stream;
 * next_span and next_at move behind the block. */
static enum lmc_status lmc__add_pieces(lmc_cuda *c, lmc__cuda_half *h, lmc__cuda_job *job,
                                       uint64_t end)
{
    const size_t stream = lmc__span_at(c, c->next_span)->stream;
    job->first_piece = h->pieces.size / sizeof(lmc__cuda_piece);
    while (c->next_at < end) {
        const lmc__cuda_span *const span = lmc__span_at(c, c->next_span);
        lmc__cuda_piece piece;
        piece.span = c->next_span;
        piece.skip = (size_t)(c->next_at - job->at);
        piece.size = (size_t)(lmc__min64(span->end, end) - c->next_at);
        piece.offset = c->next_at - span->start;
        LMC__TRY(lmc__append(&h->pieces, &piece, sizeof piece));
        job->n_pieces++;
        c->next_at += piece.size;
        if (c->next_at < span->end) break; /* the span continues behind the block */
        if (++c->next_span == lmc__count_spans(c)) break;
        c->next_at = span[1].start;
        if (span[1].stream != stream) break;
    }
    return LMC_OK;
}

/* Adds the block that is wanted next, if the wave has room for it; *is_full: 1 if not. */
static enum lmc_status lmc__cuda_plan_block(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                            int *is_full)
{
    const lmc__cuda_span *const span = lmc__span_at(c, c->next_span);
    const size_t number =
        lmc__find_run(r, lmc__stream_at(&r->tables.listing, span->stream), c->next_at);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t block = (c->next_at - run->start) / run->block_size;
    const size_t size = lmc__block_size_at(run, block),
                 room = (size + LMC__CUDA_ALIGN - 1) & ~(LMC__CUDA_ALIGN - 1);
    const lmc__block_place *place;
    lmc__cuda_job job;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    place = lmc__block_at(r, number, block);
    *is_full =
        h->jobs.size != 0 &&
        (lmc__count_cuda_jobs(h) == LMC__CUDA_MAX_JOBS || room > c->half_size - h->out_size ||
         h->packed_size + LMC__CUDA_MAX_GAP + place->size > c->packed_cap);
    if (*is_full) return LMC_OK;
    memset(&job, 0, sizeof job);
    job.run = number;
    job.number = (uint32_t)block;
    job.at = run->start + block * run->block_size;
    job.out_at = h->out_size;
    h->out_size += room;
    LMC__TRY(lmc__add_range(h, place, &job.packed_at));
    LMC__TRY(lmc__add_pieces(c, h, &job, job.at + size));
    return lmc__append(&h->jobs, &job, sizeof job);
}

static enum lmc_status lmc__cuda_plan_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    int is_full = 0;
    h->jobs.size = h->pieces.size = h->ranges.size = 0;
    h->packed_size = h->out_size = 0;
    while (!is_full && c->next_span < lmc__count_spans(c))
        LMC__TRY(lmc__cuda_plan_block(c, r, h, &is_full));
    return LMC_OK;
}

/* == gpu/cuda_base.h =========================================================================== */

/* Fingerprints of tensors on the device; and a base on the device. The reader sees such a base as
 * one file whose tensors are side by side. The GPU uses the addresses of the tensors. */

/* -- memory, once it is needed -- */

static enum lmc_status lmc__cuda_reserve(lmc_cuda *c, lmc__cu_address *address, size_t size)
{
    if (!*address) LMC__CUDA(c, cuMemAlloc_v2, (address, size));
    return LMC_OK;
}

/* The table is used for sums, too. */
static enum lmc_status lmc__reserve_table(lmc_cuda *c, lmc__cuda_half *h)
{
    const size_t size = LMC__CUDA_MAX_JOBS * (sizeof *h->table + sizeof *h->status);
    void *memory = NULL;
    if (!h->table) {
        LMC__CUDA(c, cuMemHostAlloc, (&memory, size, 0));
        h->table = (lmc__gpu_block *)memory;
        h->status = (uint32_t *)(void *)(h->table + LMC__CUDA_MAX_JOBS);
        memset(memory, 0, size);
    }
    return lmc__cuda_reserve(c, &h->gpu_table, size);
}

static lmc__cu_address lmc__address_of(const void *p, uint64_t offset)
{
    return (lmc__cu_address)(uintptr_t)p + offset;
}

/* -- sums -- */

/* These are SumPiece and Sums in sums.cu. */
typedef struct lmc__gpu_piece {
    uint64_t at;
    uint32_t size, reserved;
} lmc__gpu_piece;
typedef struct lmc__gpu_sums {
    uint64_t words;
    uint32_t crc, reserved;
} lmc__gpu_sums;
#define LMC__GPU_SUMS_SHARED (256 * 8 + 5 * 256 * 4)

/* The pieces, and behind them their sums, are in the memory of the first half's table. */
static lmc__gpu_piece *lmc__gpu_pieces(const lmc_cuda *c)
{
    return (lmc__gpu_piece *)(void *)c->halves[0].table;
}
static lmc__gpu_sums *lmc__gpu_sums_of(lmc__gpu_piece *rows)
{
    return (lmc__gpu_sums *)(void *)(rows + LMC__CUDA_MAX_JOBS);
}

/* Computes the sums of the n pieces at `rows` on the GPU, and stores them at `sums`. */
static enum lmc_status lmc__sum_on_gpu(lmc_cuda *c, const lmc__gpu_piece *rows, lmc__gpu_sums *sums,
                                       uint32_t n)
{
    const lmc__cu_address gpu_rows = c->halves[0].gpu_table,
                          gpu_sums = gpu_rows + LMC__CUDA_MAX_JOBS * sizeof *rows;
    void *arguments[4];
    arguments[0] = (void *)(uintptr_t)&gpu_rows;
    arguments[1] = &n;
    arguments[2] = (void *)(uintptr_t)&gpu_sums;
    arguments[3] = &c->tables;
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (gpu_rows, rows, n * sizeof *rows, c->stream));
    LMC__CUDA(c, cuLaunchKernel,
              (c->sums, (unsigned)lmc__min64(n, (uint64_t)c->n_multiprocessors * 8), 1, 1,
               LMC__GPU_THREADS, 1, 1, LMC__GPU_SUMS_SHARED, c->stream, arguments, NULL));
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (sums, gpu_sums, n * sizeof *sums, c->stream));
    LMC__CUDA(c, cuStreamSynchronize, (c->stream));
    return LMC_OK;
}

static void lmc__absorb_gpu_sums(lmc__digester *d, lmc__piece *piece, const lmc__gpu_sums *sums)
{
    piece->sum = sums->words;
    piece->crc = piece->part_crc = ~lmc__crc32c_combine(UINT32_MAX, sums->crc, piece->size);
    piece->part_size = piece->size;
    lmc__absorb_piece(d, piece, NULL);
}

/* -- a base -- */

typedef struct lmc__cuda_place {
    uint64_t start, end; /* addresses */
} lmc__cuda_place;

struct lmc_cuda_base {
    lmc_cuda *cuda;
    /* tensors: lmc_tensor, side by side; data: the lmc__cuda_place of each; sorted: these places by
     * start, each with the greatest end of all places up to it */
    lmc__buffer tensors, data, sorted, fingerprints;
    lmc_file file;
    lmc_base base;
};
#define LMC__CUDA_BASE_BUFFERS LMC__ROW(lmc_cuda_base, tensors, file)

static lmc__cuda_place *lmc__cuda_places(const lmc__buffer *places)
{
    return (lmc__cuda_place *)(void *)places->data;
}

static const lmc_file *lmc__get_cuda_file(void *user, size_t file_number)
{
    (void)file_number;
    return &((const lmc_cuda_base *)user)->file;
}

/* The number of the tensor that has byte `offset` of the file; there must be one. */
static size_t lmc__find_cuda_tensor(const lmc_cuda_base *b, uint64_t offset)
{
    const lmc_tensor *const tensors = b->file.tensors;
    size_t i;
    LMC__FIND_FIRST(i, 0, b->file.n_tensors, tensors[i].offset + tensors[i].size <= offset);
    return i;
}
static lmc__cu_address lmc__base_address(const lmc_cuda_base *b, uint64_t offset)
{
    const size_t i = lmc__find_cuda_tensor(b, offset);
    return lmc__cuda_places(&b->data)[i].start + (offset - b->file.tensors[i].offset);
}

/* lmc_base.read. It may run in any thread, so it writes no message. */
static enum lmc_status lmc__read_cuda_base(void *user, size_t file_number, uint64_t offset,
                                           void *dst, size_t size)
{
    const lmc_cuda_base *const b = (const lmc_cuda_base *)user;
    lmc_cuda *const c = b->cuda;
    uint8_t *out = (uint8_t *)dst;
    int error = 0;
    if (file_number != 0 || offset > b->file.size || size > b->file.size - offset)
        return LMC_ERR_READ;
    if (c->f.cuCtxPushCurrent_v2(c->context) != 0) return LMC_ERR_DEVICE;
    while (size != 0 && error == 0) {
        const lmc_tensor *const t = &b->file.tensors[lmc__find_cuda_tensor(b, offset)];
        const size_t n = (size_t)lmc__min64(size, t->size - (offset - t->offset));
        error = c->f.cuMemcpyDtoHAsync_v2(out, lmc__base_address(b, offset), n, c->own);
        out += n;
        offset += n;
        size -= n;
    }
    if (c->f.cuStreamSynchronize(c->own) != 0 || error != 0) error = 1;
    lmc__cuda_leave(c);
    return error ? LMC_ERR_DEVICE : LMC_OK;
}

/* The base of the reader, if it is on the device; or NULL. */
static const lmc_cuda_base *lmc__cuda_base_of(const lmc_cuda *c, const lmc_reader *r)
{
    const lmc_base *const base = r->origin.base;
    const lmc_cuda_base *b;
    if (!base || base->read != lmc__read_cuda_base) return NULL;
    b = (const lmc_cuda_base *)base->user;
    return b->cuda->device == c->device ? b : NULL;
}

/* Whether a tensor of the base overlaps these bytes. */
static int lmc__has_address(const lmc_cuda_base *b, uint64_t start, uint64_t size)
{
    const lmc__cuda_place *const places = lmc__cuda_places(&b->sorted);
    size_t i;
    LMC__FIND_FIRST(i, 0, b->file.n_tensors, places[i].start < start + size);
    return i != 0 && places[i - 1].end > start;
}

static int lmc__compare_places(const void *a, const void *b)
{
    const lmc__cuda_place *const x = (const lmc__cuda_place *)a, *const y =
                                                                     (const lmc__cuda_place *)b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static enum lmc_status lmc__take_cuda_tensors(lmc_cuda_base *b, const lmc_tensor *tensors,
                                              const void *const *data, size_t n)
{
    lmc__cuda_place place;
    size_t i;
    for (i = 0; i < n; i++) {
        lmc_tensor t = tensors[i];
        LMC__CHECK(t.name && t.dtype && (t.rank == 0 || t.shape) && (t.size == 0 || data[i]) &&
                       t.size <= (uint64_t)INT64_MAX - b->file.size,
                   LMC_ERR_ARGUMENT);
        t.offset = b->file.size;
        b->file.size += t.size;
        place.start = (uintptr_t)data[i];
        place.end = place.start + t.size;
        LMC__TRY(lmc__append(&b->tensors, &t, sizeof t));
        LMC__TRY(lmc__append(&b->data, &place, sizeof place));
        LMC__TRY(lmc__append(&b->sorted, &place, sizeof place));
    }
    lmc__heap_sort(b->sorted.data, n, sizeof place, lmc__compare_places, &place);
    for (i = 1; i < n; i++) {
        lmc__cuda_place *const places = lmc__cuda_places(&b->sorted);
        if (places[i].end < places[i - 1].end) places[i].end = places[i - 1].end;
    }
    b->file.path = "";
    b->file.n_tensors = n;
    b->file.tensors = (const lmc_tensor *)(const void *)b->tensors.data;
    return LMC_OK;
}

/* Computes the fingerprints of the base, within the context. */
static enum lmc_status lmc__identify_on_gpu(lmc_cuda *c, lmc_cuda_base *b)
{
    lmc__digester planner, taker; /* one plans the pieces, the other takes their sums */
    lmc__piece piece;
    lmc__gpu_piece *rows;
    uint32_t i, n;
    LMC__TRY(lmc__reserve_table(c, &c->halves[0]));
    rows = lmc__gpu_pieces(c);
    lmc__begin_digester(&planner, &b->file);
    lmc__begin_digester(&taker, &b->file);
    LMC__TRY(lmc__append(&b->fingerprints, NULL,
                         LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(&b->file)));
    taker.fingerprints = b->fingerprints.data;
    do {
        for (n = 0; n < LMC__CUDA_MAX_JOBS && planner.planned < b->file.size; n++) {
            const uint64_t at = planner.planned;
            piece = lmc__plan_piece(&planner, LMC__LEAF_SIZE);
            rows[n].at = lmc__base_address(b, at);
            rows[n].size = piece.size;
        }
        if (n) LMC__TRY(lmc__sum_on_gpu(c, rows, lmc__gpu_sums_of(rows), n));
        for (i = 0; i < n; i++) {
            piece = lmc__plan_piece(&taker, LMC__LEAF_SIZE);
            lmc__absorb_gpu_sums(&taker, &piece, &lmc__gpu_sums_of(rows)[i]);
        }
    } while (n != 0);
    lmc__finish_digester(&taker);
    for (i = 0; i < b->file.n_tensors; i++)
        memcpy(((lmc_tensor *)(void *)b->tensors.data)[i].fingerprint,
               taker.fingerprints + LMC_FINGERPRINT_SIZE * (size_t)i, LMC_FINGERPRINT_SIZE);
    if (b->file.n_tensors == 0)
        memcpy(b->file.fingerprint, taker.fingerprints, LMC_FINGERPRINT_SIZE);
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_base_open(lmc_cuda_base **base, lmc_cuda *c,
                                                     const lmc_tensor *tensors,
                                                     const void *const *data, size_t n,
                                                     void *stream)
{
    lmc_cuda_base *b;
    enum lmc_status status;
    if (base) *base = NULL;
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!base || !c->tables || (n && (!tensors || !data)))
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    b = (lmc_cuda_base *)lmc__realloc(c->options.allocator, NULL, 0, sizeof *b);
    if (!b) return lmc__cuda_note(c, LMC_ERR_MEMORY);
    memset(b, 0, sizeof *b);
    b->cuda = c;
    lmc__init_buffers(b, LMC__CUDA_BASE_BUFFERS, c->options.allocator);
    b->base.n_files = 1;
    b->base.get_file = lmc__get_cuda_file;
    b->base.read = lmc__read_cuda_base;
    b->base.user = b;
    c->stream = (lmc__cu_stream)stream;
    status = lmc__take_cuda_tensors(b, tensors, data, n);
    if (status == LMC_OK) status = lmc__cuda_enter(c);
    if (status == LMC_OK) {
        status = lmc__identify_on_gpu(c, b);
        if (status != LMC_OK) (void)c->f.cuStreamSynchronize(c->stream);
        lmc__cuda_leave(c);
    }
    if (status == LMC_OK) *base = b;
    else lmc_cuda_base_free(b);
    return lmc__cuda_note(c, status);
}

LMC__COLD LMC_API void lmc_cuda_base_free(lmc_cuda_base *b)
{
    if (!b) return;
    lmc__free_buffers(b, LMC__CUDA_BASE_BUFFERS);
    (void)lmc__realloc(b->cuda->options.allocator, b, sizeof *b, 0);
}

LMC_API const lmc_base *lmc_cuda_base_get(const lmc_cuda_base *b) { return b ? &b->base : NULL; }

/* -- in place -- */

/* The tensor of the snapshot that has byte `at` of a stream; NULL: no tensor has it. *start: where
 * the tensor begins in the stream. */
static const lmc_tensor *lmc__find_streamed(const lmc_reader *r, const lmc__stream *stream,
                                            uint64_t at, uint64_t *start)
{
    const lmc__listed_file *f;
    const lmc_tensor *t;
    size_t i;
    LMC__FIND_FIRST(i, stream->first_file, stream->first_file + stream->n_files,
                    lmc__file_at(r, i)->start + lmc__file_at(r, i)->file.size <= at);
    if (i == stream->first_file + stream->n_files) return NULL;
    f = lmc__file_at(r, i);
    t = f->file.tensors;
    LMC__FIND_FIRST(i, 0, f->file.n_tensors, f->start + t[i].offset + t[i].size <= at);
    if (i == f->file.n_tensors || f->start + t[i].offset > at) return NULL;
    *start = f->start + t[i].offset;
    return &t[i];
}

/* Suppose each tensor is decoded over the base's tensor of its name. Returns whether the blocks at
 * bytes [from, end) of the run's stream then replace exactly the bytes that predict them. */
static int lmc__are_blocks_in_place(const lmc_reader *r, const lmc__run *run, uint64_t from,
                                    uint64_t end)
{
    const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, run->stream);
    uint32_t i;
    if (run->prediction != LMC__PREDICT_BASE) return run->prediction == LMC__PREDICT_ZERO;
    for (i = lmc__find_segment(run, from); i < run->n_segments; i++) {
        const lmc__segment *const s = &run->segments[i];
        const lmc_tensor *t, *predicted_by;
        uint64_t start = 0;
        if (s->start >= end) break;
        if (s->base == 0) continue;
        t = lmc__find_streamed(r, stream, s->start, &start);
        predicted_by = lmc__get_item(&r->origin, s->base - 1)->tensor;
        if (!t || !predicted_by || strcmp(t->name, predicted_by->name) != 0 ||
            t->size != predicted_by->size || s->base_offset != s->start - start)
            return 0;
    }
    return 1;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_can_read_in_place(const lmc_reader *r,
                                                             uint64_t file_number, uint64_t offset,
                                                             uint64_t size, int *can)
{
    const lmc__stream *stream;
    uint64_t at = offset;
    if (!r || !can || !r->origin.base || r->is_salvage ||
        file_number >= r->tables.listing.n_files ||
        !(stream = lmc__stream_range(r, (size_t)file_number, &at, size)))
        return LMC_ERR_ARGUMENT;
    size += at;
    for (*can = 1; *can && at < size;) {
        const lmc__run *const run = &lmc__run_at(r, lmc__find_run(r, stream, at))->run;
        const uint64_t end = lmc__min64(run->start + run->size, size),
                       first = (at - run->start) / run->block_size,
                       last = (end - run->start - 1) / run->block_size;
        *can = lmc__are_blocks_in_place(r, run, run->start + first * run->block_size,
                                        run->start + (last + 1) * run->block_size);
        at = end;
    }
    return LMC_OK;
}

/* == gpu/cuda_wave.h =========================================================================== */

/* What the host, the link and the GPU do with a wave of blocks. Two waves are in work at a time,
 * each in its half of the memory:
 *     host       | read 0 |          | read 1 |       | look at 0 | read 2 |     | look at 1 | ...
 *     own                  | copy 0 |          | copy 1 |    pieces of 0 | copy 2 |
 *     stream                         | decode 0         | decode 1      |         | decode 2 ...
 *
 * The host waits for a half's event `decoded`, then looks at its statuses, and only then fills the
 * half again. The stream `own` copies a wave's pieces before it copies the next wave into that
 * half; `stream` waits for the event `copied` before it decodes. So nothing is overwritten while it
 * is still read.
 *
 *     status of a block     OK         its pieces may be copied
 *                           NOT_HERE   kernel.next tries it; after the last kernel, the CPU
 *                           others     the CPU decodes it, and gives the status */

/* -- memory, once it is needed -- */

static enum lmc_status lmc__reserve_half(lmc_cuda *c, lmc__cuda_half *h)
{
    const size_t packed_size = c->packed_cap + LMC__GPU_PAD;
    void *memory = NULL;
    if (h->packed_cap < c->packed_cap) {
        memory = h->packed;
        h->packed = NULL;
        h->packed_cap = 0;
        if (memory) LMC__CUDA(c, cuMemFreeHost, (memory));
        LMC__CUDA(c, cuMemHostAlloc, (&memory, packed_size, 0));
        h->packed = (uint8_t *)memory;
        h->packed_cap = c->packed_cap;
        memset(h->packed, 0, packed_size); /* the GPU may read behind a block */
    }
    if (!c->given) LMC__TRY(lmc__cuda_reserve(c, &h->gpu_packed, packed_size));
    return lmc__reserve_table(c, h);
}

/* -- reading -- */

typedef struct lmc__cuda_reading {
    lmc_reader *r;
    lmc__cuda_half *h;
} lmc__cuda_reading;

static void lmc__read_range_task(void *arg, size_t index, unsigned worker)
{
    const lmc__cuda_reading *const x = (const lmc__cuda_reading *)arg;
    lmc__cuda_range *const range = lmc__cuda_range_at(x->h, index);
    (void)worker;
    range->status = lmc__read_at(x->r, range->at, x->h->packed + range->packed_at, range->size);
}

/* If the caller allows it, several workers read at once: then ranges longer than this are cut. */
#define LMC__CUDA_READ_SIZE ((size_t)1 << 20)

static enum lmc_status lmc__read_ranges(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    const int in_parallel = r->options.parallel_reads != 0 && r->coder->parallel;
    lmc__cuda_reading reading;
    size_t i, n = h->ranges.size / sizeof(lmc__cuda_range);
    for (i = 0; in_parallel && i < n; i++) { /* what is appended is cut, too */
        lmc__cuda_range rest = *lmc__cuda_range_at(h, i);
        if (rest.size <= LMC__CUDA_READ_SIZE) continue;
        lmc__cuda_range_at(h, i)->size = LMC__CUDA_READ_SIZE;
        rest.at += LMC__CUDA_READ_SIZE;
        rest.packed_at += LMC__CUDA_READ_SIZE;
        rest.size -= LMC__CUDA_READ_SIZE;
        LMC__TRY(lmc__append(&h->ranges, &rest, sizeof rest));
        n++;
    }
    reading.r = r;
    reading.h = h;
    lmc__run_tasks(in_parallel ? r->coder->parallel : NULL, lmc__read_range_task, &reading, n);
    for (i = 0; i < n; i++)
        if (lmc__cuda_range_at(h, i)->status != LMC_OK)
            return lmc__cuda_fail(c, lmc__cuda_range_at(h, i)->status,
                                  "bytes %llu to %llu of the LMC file: %s",
                                  (unsigned long long)lmc__cuda_range_at(h, i)->at,
                                  (unsigned long long)(lmc__cuda_range_at(h, i)->at +
                                                       lmc__cuda_range_at(h, i)->size - 1),
                                  lmc_status_text(lmc__cuda_range_at(h, i)->status));
    return LMC_OK;
}

/* The device address of a block's packed bytes. */
static lmc__cu_address lmc__packed_address(const lmc_cuda *c, const lmc_reader *r,
                                           const lmc__cuda_half *h, const lmc__cuda_job *job)
{
    return c->given ? c->given + (lmc__block_at(r, job->run, job->number)->at - c->given_at)
                    : h->gpu_packed + job->packed_at;
}

/* Gets the headers of blocks whose packed bytes are on the device already: a kernel gathers them in
 * the memory of the half's table, which is not used yet. There the addresses come first, and the
 * headers follow them. */
static enum lmc_status lmc__fetch_headers(lmc_cuda *c, const lmc_reader *r, lmc__cuda_half *h)
{
    const size_t n = lmc__count_cuda_jobs(h), size = n * LMC_BLOCK_HEADER_SIZE;
    lmc__cu_address *const rows = (lmc__cu_address *)(void *)h->table;
    const lmc__cu_address gpu_headers = h->gpu_table + n * sizeof *rows;
    const uint8_t *const headers = (const uint8_t *)(rows + n);
    uint32_t n_rows = (uint32_t)n;
    void *arguments[3];
    size_t i;
    for (i = 0; i < n; i++) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        const lmc__block_place *const place = lmc__block_at(r, job->run, job->number);
        if (place->at < c->given_at || place->at - c->given_at > c->given_size ||
            c->given_size - (place->at - c->given_at) < (uint64_t)place->size + LMC__GPU_PAD)
            return lmc__cuda_fail_job(c, r, h, job, LMC_ERR_ARGUMENT);
        rows[i] = lmc__packed_address(c, r, h, job);
    }
    arguments[0] = &h->gpu_table;
    arguments[1] = &n_rows;
    arguments[2] = (void *)(uintptr_t)&gpu_headers;
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (h->gpu_table, rows, n * sizeof *rows, c->own));
    LMC__CUDA(c, cuLaunchKernel,
              (c->headers, (unsigned)(size / LMC__GPU_THREADS + 1), 1, 1, LMC__GPU_THREADS, 1, 1, 0,
               c->own, arguments, NULL));
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (rows + n, gpu_headers, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    for (i = 0; i < n; i++)
        memcpy(h->packed + lmc__cuda_job_at(h, i)->packed_at, headers + i * LMC_BLOCK_HEADER_SIZE,
               LMC_BLOCK_HEADER_SIZE);
    return LMC_OK;
}

/* -- blocks, when their headers are there -- */

/* Copies the prediction of bytes [from, to) of the file stream from the parts' bases to gpu_base;
 * *left: how many bytes no base has. */
static enum lmc_status lmc__gather_pieces(lmc_cuda *c, lmc__cuda_half *h, const lmc__cuda_job *job,
                                          uint64_t from, uint64_t to, uint64_t *left)
{
    size_t i;
    *left = to - from;
    for (i = 0; i < job->n_pieces; i++) {
        const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, i);
        const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
        const uint64_t start = job->at + piece->skip, a = from > start ? from : start,
                       b = lmc__min64(to, start + piece->size);
        if (a >= b || !part->base) continue;
        LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                  (h->gpu_base + job->out_at + (a - job->at),
                   lmc__address_of(part->base, piece->offset + (a - start)), (size_t)(b - a),
                   c->own));
        *left -= b - a;
    }
    return LMC_OK;
}

/* The device address of the base's byte that predicts byte `at` of the stream, in segment s. */
static lmc__cu_address lmc__segment_address(const lmc_cuda *c, const lmc_reader *r,
                                            const lmc__run *run, const lmc__segment *s, uint64_t at)
{
    return lmc__base_address(lmc__cuda_base_of(c, r),
                             lmc__locate(&r->origin, run, s, at - s->start).start);
}

/* Finds the prediction of a block on the device: in the base of its part or of the reader; or
 * gathered from several places, with zeros for segments without a base. If some of it is not on the
 * device, is_by_reader is set. */
static enum lmc_status lmc__cuda_find_prediction(lmc_cuda *c, const lmc_reader *r,
                                                 const lmc__run *run, lmc__cuda_half *h,
                                                 lmc__cuda_job *job)
{
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    const int is_on_gpu = lmc__cuda_base_of(c, r) != NULL;
    const uint64_t end = job->at + job->info.size;
    uint32_t i = lmc__find_segment(run, job->at);
    const lmc__segment *const s = &run->segments[i];
    uint64_t at, next;
    if (run->prediction != LMC__PREDICT_BASE) {
        job->is_by_reader = 1;
        return LMC_OK;
    }
    if (s->base != 0 && end <= s->start + s->size) {
        if (is_on_gpu) job->base = lmc__segment_address(c, r, run, s, job->at);
        else if (part->base && piece->size == job->info.size)
            job->base = lmc__address_of(part->base, piece->offset);
        if (job->base && job->base % job->info.width == 0) return LMC_OK;
    }
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_base, c->half_size));
    job->base = h->gpu_base + job->out_at;
    for (at = job->at; at < end && !job->is_by_reader; at = next, i++) {
        uint64_t left = 0;
        next = lmc__min64(end, run->segments[i].start + run->segments[i].size);
        if (run->segments[i].base == 0)
            LMC__CUDA(c, cuMemsetD8Async,
                      (job->base + (at - job->at), 0, (size_t)(next - at), c->own));
        else if (is_on_gpu)
            LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                      (job->base + (at - job->at),
                       lmc__segment_address(c, r, run, &run->segments[i], at), (size_t)(next - at),
                       c->own));
        else LMC__TRY(lmc__gather_pieces(c, h, job, at, next, &left));
        job->is_by_reader = left != 0;
    }
    return LMC_OK;
}

/* The first kernel, from this one on, that the device can run and that is not passed over. */
static int lmc__usable_kernel(const lmc_cuda *c, int kernel)
{
    while (kernel != LMC__GPU_CPU && (!c->kernels[kernel] || c->is_passed[kernel]))
        kernel = lmc__gpu_kernels[kernel].next;
    return kernel;
}

/* Checks the header as the reader does, decides what decodes the block, and to where. A block of
 * one piece is decoded to its part's dst, if that is aligned and cannot be the base, too. */
static enum lmc_status lmc__prepare_job(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                        lmc__cuda_job *job)
{
    const lmc__run *const run = &lmc__run_at(r, job->run)->run;
    const uint8_t *const header = h->packed + job->packed_at;
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    enum lmc_status status = lmc__read_known_block(r, job->run, job->number, header, &job->info);
    if (status == LMC_OK && job->info.has_prediction && run->prediction == LMC__PREDICT_ZERO)
        status = LMC_ERR_CORRUPT;
    if (status != LMC_OK) return lmc__cuda_fail_job(c, r, h, job, status);
    if (job->info.has_prediction) LMC__TRY(lmc__cuda_find_prediction(c, r, run, h, job));
    job->kernel =
        job->is_by_reader ? LMC__GPU_CPU : lmc__usable_kernel(c, lmc__gpu_kernel_of(header, 0));
    job->out = lmc__address_of(part->dst, piece->offset);
    job->is_staged = piece->size != job->info.size || !part->dst ||
                     lmc__span_at(c, piece->span)->is_in_place || job->out % job->info.width != 0;
    if (job->is_by_reader || !job->is_staged) return LMC_OK;
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_out, c->half_size));
    job->out = h->gpu_out + job->out_at;
    return LMC_OK;
}

/* -- decoding -- */

/* Scratch for *n groups. If that exceeds LMC__CUDA_MAX_SCRATCH, *n becomes smaller. */
#define LMC__CUDA_MAX_SCRATCH(c) (8 * (uint64_t)(c)->half_size)

static enum lmc_status lmc__reserve_scratch(lmc_cuda *c, uint64_t size_of_group, unsigned *n)
{
    const uint64_t most = LMC__CUDA_MAX_SCRATCH(c) / (size_of_group ? size_of_group : 1);
    if (size_of_group == 0) return LMC_OK;
    *n = (unsigned)lmc__min64(*n, most ? most : 1);
    if (c->scratch_size >= *n * size_of_group) return LMC_OK;
    if (c->scratch) {
        const lmc__cu_address old = c->scratch;
        LMC__CUDA(c, cuStreamSynchronize, (c->stream));
        c->scratch = 0;
        c->scratch_size = 0;
        LMC__CUDA(c, cuMemFree_v2, (old));
    }
    LMC__TRY(lmc__cuda_reserve(c, &c->scratch, (size_t)(*n * size_of_group)));
    c->scratch_size = *n * size_of_group;
    return LMC_OK;
}

/* Starts a kernel for n rows of the table, from `first` on. */
static enum lmc_status lmc__launch(lmc_cuda *c, lmc__cuda_half *h, int kernel, size_t first,
                                   size_t n, size_t largest)
{
    const lmc__gpu_kernel *const k = &lmc__gpu_kernels[kernel];
    lmc__cu_address blocks = h->gpu_table + first * sizeof *h->table,
                    status = h->gpu_table + LMC__CUDA_MAX_JOBS * sizeof *h->table +
                             first * sizeof *h->status;
    uint64_t scratch_size = lmc__gpu_scratch_size(kernel, largest);
    uint32_t n_blocks = (uint32_t)n;
    unsigned n_groups = (unsigned)lmc__min64(n, (uint64_t)c->n_multiprocessors * k->groups);
    void *arguments[6];
    LMC__TRY(lmc__reserve_scratch(c, scratch_size, &n_groups));
    arguments[0] = &blocks;
    arguments[1] = &n_blocks;
    arguments[2] = &status;
    arguments[3] = &c->tables;
    arguments[4] = &c->scratch;
    arguments[5] = &scratch_size;
    LMC__CUDA(c, cuLaunchKernel,
              (c->kernels[kernel], n_groups, 1, 1, LMC__GPU_THREADS, 1, 1, c->shared[kernel],
               c->stream, arguments, NULL));
    return LMC_OK;
}

/* Whether the block waits for this kernel. */
static int lmc__is_for(const lmc__cuda_job *job, int kernel)
{
    return job->kernel == kernel && job->status == LMC__GPU_NOT_HERE;
}

static uint32_t lmc__block_flags(const lmc_reader *r, const lmc__cuda_job *job)
{
    uint32_t flags = 0;
    if (lmc__run_at(r, job->run)->run.prediction != LMC__PREDICT_ZERO)
        flags |= LMC__GPU_RUN_PREDICTED;
    if (r->info.features & (LMC_FEATURE_BASE | LMC_FEATURE_OWN)) flags |= LMC__GPU_MAY_GROUP;
    if (r->info.features & LMC_FEATURE_QUANTIZED) flags |= LMC__GPU_MAY_QUANTIZE;
    if (r->info.features & LMC_FEATURE_ZEROS) flags |= LMC__GPU_MAY_PART;
    if (r->info.features & LMC_FEATURE_MATRIX) flags |= LMC__GPU_MAY_MATRIX;
    if (r->info.features & LMC_FEATURE_CODES) flags |= LMC__GPU_MAY_CODES;
    return flags;
}

/* Starts the kernels for all blocks that are not decoded yet and have a kernel; the table is sorted
 * by kernels. After the event `decoded` h->status is set. *n: how many blocks were started. */
static enum lmc_status lmc__decode_wave_on_gpu(lmc_cuda *c, const lmc_reader *r, lmc__cuda_half *h,
                                               size_t *n)
{
    size_t first[LMC__GPU_KERNELS + 1], largest[LMC__GPU_KERNELS], i;
    const lmc__cu_address status = h->gpu_table + LMC__CUDA_MAX_JOBS * sizeof *h->table;
    int k;
    *n = 0;
    for (k = 0; k < LMC__GPU_KERNELS; k++) {
        first[k] = *n;
        largest[k] = 0;
        for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
            lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
            lmc__gpu_block *const row = &h->table[*n];
            if (!lmc__is_for(job, k)) continue;
            row->in = lmc__packed_address(c, r, h, job);
            row->out = job->out;
            row->base = job->info.has_prediction ? job->base : 0;
            row->in_size = (uint32_t)job->info.encoded_size;
            row->out_size = (uint32_t)job->info.size;
            row->number = job->number;
            row->flags = lmc__block_flags(r, job);
            if (largest[k] < job->info.size) largest[k] = job->info.size;
            job->slot = (*n)++;
            h->status[job->slot] = LMC__GPU_NOT_HERE;
        }
    }
    first[k] = *n;
    if (*n != 0) {
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (h->gpu_table, h->table, *n * sizeof *h->table, c->own));
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (status, h->status, *n * sizeof *h->status, c->own));
    }
    LMC__CUDA(c, cuEventRecord, (h->copied, c->own));
    LMC__CUDA(c, cuStreamWaitEvent, (c->stream, h->copied, 0));
    for (k = 0; k < LMC__GPU_KERNELS; k++)
        if (first[k + 1] != first[k])
            LMC__TRY(lmc__launch(c, h, k, first[k], first[k + 1] - first[k], largest[k]));
    if (*n != 0)
        LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (h->status, status, *n * sizeof *h->status, c->stream));
    LMC__CUDA(c, cuEventRecord, (h->decoded, c->stream));
    return LMC_OK;
}

/* Reads a planned wave, and starts decoding it on the GPU. */
static enum lmc_status lmc__start_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    size_t i, n;
    LMC__TRY(lmc__reserve_half(c, h));
    LMC__TRY(c->given ? lmc__fetch_headers(c, r, h) : lmc__read_ranges(c, r, h));
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        job->status = LMC__GPU_NOT_HERE;
        LMC__TRY(lmc__prepare_job(c, r, h, job));
    }
    if (!c->given)
        LMC__CUDA(c, cuMemcpyHtoDAsync_v2,
                  (h->gpu_packed, h->packed, h->packed_size + LMC__GPU_PAD, c->own));
    return lmc__decode_wave_on_gpu(c, r, h, &n);
}

/* -- the CPU -- */

/* Copy from or to pageable memory of the host; the copy is complete on return. */
static enum lmc_status lmc__copy_out(lmc_cuda *c, lmc__cu_address dst, const void *src, size_t size)
{
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2, (dst, src, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return LMC_OK;
}
static enum lmc_status lmc__copy_back(lmc_cuda *c, void *dst, lmc__cu_address src, size_t size)
{
    LMC__CUDA(c, cuMemcpyDtoHAsync_v2, (dst, src, size, c->own));
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return LMC_OK;
}

/* Decodes blocks whose prediction only the reader has; neighbours of one part are read at once. *i:
 * the first of them; on return, the first block behind them. */
static enum lmc_status lmc__decode_by_reader(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h,
                                             size_t *i)
{
    lmc__cuda_job *const job = lmc__cuda_job_at(h, *i), *last = job;
    const size_t most = lmc__min(c->half_size, LMC__WINDOW_SIZE * 4);
    size_t k;
    for (k = 0; k < job->n_pieces; k++) {
        const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, k);
        const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
        const uint64_t offset = part->offset + piece->offset;
        size_t size = piece->size;
        enum lmc_status status;
        for (; k + 1 == job->n_pieces && *i + 1 < lmc__count_cuda_jobs(h); last++, ++*i) {
            const lmc__cuda_piece *const next = lmc__cuda_piece_at(h, last + 1, 0);
            if (!last[1].is_by_reader || last[1].n_pieces != 1 || next->span != piece->span ||
                next->offset != piece->offset + size || next->size > most - lmc__min(size, most))
                break;
            size += next->size;
        }
        c->host.size = 0;
        LMC__TRY(lmc__reserve(&c->host, size));
        status = lmc__read_range(r, NULL, (size_t)part->file_number, offset, c->host.data, size);
        if (status != LMC_OK)
            return lmc__cuda_fail_at(c, r, part->file_number, offset, NULL, status);
        if (part->dst)
            LMC__TRY(
                lmc__copy_out(c, lmc__address_of(part->dst, piece->offset), c->host.data, size));
    }
    for (k = 0; job + k <= last; k++) {
        job[k].status = LMC_OK;
        job[k].n_pieces = 0; /* the pieces are copied already */
        c->counts.cpu_blocks++;
        c->counts.cpu_bytes += job[k].info.size;
    }
    ++*i;
    return LMC_OK;
}

/* Decodes blocks of the wave, from number *i on, on the CPU, as many as fit in a wave of the CPU.
 * *i becomes the first block behind them. */
static enum lmc_status lmc__decode_on_cpu(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h, size_t *i)
{
    lmc__coder *const coder = r->coder;
    const uint64_t most = lmc__get_wave_size(coder, LMC_MAX_BLOCK_SIZE);
    const size_t n_jobs = lmc__count_cuda_jobs(h), first = *i;
    lmc__buffer *const out = &coder->out[0], *const base = &coder->base;
    size_t largest = 0, size = 0, at = 0, k, n = 0;
    enum lmc_status status = LMC_OK;
    for (; *i < n_jobs; ++*i) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, *i);
        if (job->status == LMC_OK) continue;
        if (job->is_by_reader || (n && size + job->info.size > most)) break;
        size += job->info.size;
        if (largest < job->info.size) largest = job->info.size;
        n++;
    }
    LMC__TRY(lmc__set_coder(coder, largest, 1, 0));
    out->size = base->size = 0;
    coder->n_jobs = 0;
    LMC__TRY(lmc__reserve(out, size));
    LMC__TRY(lmc__reserve(base, size));
    for (k = first; k < *i; k++) {
        const lmc__cuda_job *const from = lmc__cuda_job_at(h, k);
        lmc__snapshot_job *block_job;
        if (from->status == LMC_OK) continue;
        if (c->given)
            LMC__TRY(lmc__copy_back(c, h->packed + from->packed_at,
                                    lmc__packed_address(c, r, h, from), from->info.encoded_size));
        LMC__TRY(lmc__add_job(coder, &block_job));
        block_job->job.number = from->number;
        block_job->job.src = h->packed + from->packed_at;
        block_job->job.dst = out->data + at;
        block_job->job.keep = from->info.size;
        block_job->job.info = from->info;
        block_job->job.streaming = lmc__no_streaming;
        if (from->info.has_prediction) {
            block_job->job.base = base->data + at;
            LMC__TRY(lmc__copy_back(c, base->data + at, from->base, from->info.size));
        }
        at += from->info.size;
    }
    lmc__run_tasks(coder->parallel, lmc__decode_snapshot_task, coder, n);
    for (k = first, n = at = 0; k < *i; k++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, k);
        if (job->status == LMC_OK) continue;
        status = lmc__job_at(coder, n++)->job.status;
        if (status != LMC_OK) return lmc__cuda_fail_job(c, r, h, job, status);
        LMC__TRY(lmc__copy_out(c, job->out, out->data + at, job->info.size));
        at += job->info.size;
        job->status = LMC_OK;
        c->counts.cpu_blocks++;
        c->counts.cpu_bytes += job->info.size;
    }
    coder->n_jobs = 0;
    return LMC_OK;
}

/* -- statuses -- */

/* Waits for the kernels, and takes the statuses of their blocks. Blocks that a kernel did not
 * decode get its next kernel; *n: how many then have a kernel. A kernel that left most of its
 * blocks is not tried again in this call if another one can follow it. */
static enum lmc_status lmc__take_statuses(lmc_cuda *c, lmc__cuda_half *h, size_t *n)
{
    size_t n_done[LMC__GPU_KERNELS], n_left[LMC__GPU_KERNELS], i;
    int k;
    memset(n_done, 0, sizeof n_done);
    memset(n_left, 0, sizeof n_left);
    *n = 0;
    LMC__CUDA(c, cuEventSynchronize, (h->decoded));
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        const int kernel = job->kernel;
        if (kernel == LMC__GPU_CPU || job->status != LMC__GPU_NOT_HERE) continue;
        job->status = h->status[job->slot];
        if (job->status == LMC_OK) {
            c->counts.gpu_blocks++;
            c->counts.gpu_bytes += job->info.size;
            n_done[kernel]++;
        }
        if (job->status != LMC__GPU_NOT_HERE) continue;
        n_left[kernel]++;
        job->kernel = lmc__usable_kernel(c, lmc__gpu_kernels[kernel].next);
        *n += job->kernel != LMC__GPU_CPU;
    }
    for (k = 0; k < LMC__GPU_KERNELS; k++)
        if (n_left[k] > n_done[k] &&
            lmc__usable_kernel(c, lmc__gpu_kernels[k].next) != LMC__GPU_CPU)
            c->is_passed[k] = 1;
    return LMC_OK;
}

/* Ends a wave that was started: decodes the blocks that are left, then copies the pieces. */
static enum lmc_status lmc__finish_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    size_t i, k, n;
    LMC__TRY(lmc__take_statuses(c, h, &n));
    while (n != 0) {
        LMC__TRY(lmc__decode_wave_on_gpu(c, r, h, &n));
        LMC__TRY(lmc__take_statuses(c, h, &n));
    }
    for (i = 0; i < lmc__count_cuda_jobs(h);) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        if (job->status == LMC_OK) i++;
        else if (job->is_by_reader) LMC__TRY(lmc__decode_by_reader(c, r, h, &i));
        else LMC__TRY(lmc__decode_on_cpu(c, r, h, &i));
    }
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        const lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        for (k = 0; k < job->n_pieces && job->is_staged; k++) {
            const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, k);
            const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
            if (!part->dst) continue;
            LMC__CUDA(c, cuMemcpyDtoDAsync_v2,
                      (lmc__address_of(part->dst, piece->offset), job->out + piece->skip,
                       piece->size, c->own));
            c->counts.staged_bytes += piece->size;
        }
    }
    return LMC_OK;
}

/* == gpu/cuda_read.h =========================================================================== */

/* lmc_cuda_read reads waves, in each half in turn, then checks fingerprints and whole files. */

/* -- fingerprints -- */

/* Goes through the leaves of all tensors that lie whole in a part, and of whole files, span by
 * span. Two walks make the same pieces: one plans a batch of sums, the other takes the results. */
typedef struct lmc__cuda_walk {
    size_t next_span;
    uint64_t at, end; /* in the file of the current span */
    const lmc__cuda_span *span;
    int is_file;   /* the span is a whole file, which has a CRC, too */
    lmc_file file; /* with only the tensors that lie whole in the span */
    lmc__digester digester;
} lmc__cuda_walk;

/* If nothing is to be checked, sets w->at = w->end. */
static void lmc__begin_walk(const lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w)
{
    const lmc__cuda_span *const span = lmc__span_at(c, w->next_span++);
    const lmc_cuda_part *const part = &span->part;
    const lmc_file *const f = &lmc__file_at(r, (size_t)part->file_number)->file;
    const uint64_t end = part->offset + part->size;
    size_t first;
    w->span = span;
    w->file = *f;
    w->at = w->end = part->offset;
    w->is_file = part->size == f->size;
    LMC__FIND_FIRST(first, 0, f->n_tensors, f->tensors[first].offset < part->offset);
    if (first) w->file.tensors += first;
    for (w->file.n_tensors = 0; first + w->file.n_tensors < f->n_tensors; w->file.n_tensors++) {
        const lmc_tensor *const t = &w->file.tensors[w->file.n_tensors];
        if (t->offset > end || t->size > end - t->offset) break;
        w->end = t->offset + t->size;
    }
    if (w->is_file) w->end = end;
    if (!part->dst) w->end = w->at;
    lmc__begin_digester(&w->digester, &w->file);
    w->digester.planned = w->at;
}

/* Takes the next piece, at most a leaf. Returns 0 if there is none. */
static int lmc__walk_on(const lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w,
                        lmc__piece *piece)
{
    while (w->at == w->end) {
        if (w->next_span == lmc__count_spans(c)) return 0;
        lmc__begin_walk(c, r, w);
    }
    *piece = lmc__plan_piece(&w->digester, (size_t)lmc__min64(w->end - w->at, LMC__LEAF_SIZE));
    w->at += piece->size;
    return 1;
}

/* Compares fingerprints, after all pieces of a span have been absorbed. */
static enum lmc_status lmc__confirm_span(lmc_cuda *c, const lmc_reader *r, lmc__cuda_walk *w)
{
    const lmc_cuda_part *const part = &w->span->part;
    const size_t n = lmc__count_fingerprints(&w->file);
    size_t i;
    lmc__finish_digester(&w->digester);
    for (i = 0; i < n; i++) {
        const lmc_tensor *const t = w->file.n_tensors ? &w->file.tensors[i] : NULL;
        if (memcmp(w->digester.fingerprints + LMC_FINGERPRINT_SIZE * i,
                   t ? t->fingerprint : w->file.fingerprint, LMC_FINGERPRINT_SIZE) != 0)
            return lmc__cuda_fail_at(c, r, part->file_number, t ? t->offset : 0, NULL,
                                     LMC_ERR_CORRUPT); /* R8-11 */
    }
    if (w->is_file && w->digester.file_crc != w->file.crc)
        return lmc__cuda_fail_at(c, r, part->file_number, 0, NULL, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Absorbs the sums of the next piece. */
static enum lmc_status lmc__absorb_sums(lmc_cuda *c, lmc_reader *r, lmc__cuda_walk *w,
                                        const lmc__gpu_sums *sums)
{
    const int is_new = w->at == w->end;
    lmc__piece piece;
    (void)lmc__walk_on(c, r, w, &piece);
    if (is_new) {
        r->fingerprints.size = 0;
        LMC__TRY(lmc__reserve(&r->fingerprints,
                              LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(&w->file)));
        w->digester.fingerprints = r->fingerprints.data;
    }
    lmc__absorb_gpu_sums(&w->digester, &piece, sums);
    return w->at == w->end ? lmc__confirm_span(c, r, w) : LMC_OK;
}

static enum lmc_status lmc__check_whole(lmc_cuda *c, lmc_reader *r)
{
    lmc__gpu_piece *const rows = lmc__gpu_pieces(c);
    lmc__gpu_sums *const sums = lmc__gpu_sums_of(rows);
    lmc__cuda_walk planner, taker;
    uint32_t i, n;
    memset(&planner, 0, sizeof planner);
    memset(&taker, 0, sizeof taker);
    do {
        lmc__piece piece;
        for (n = 0; n < LMC__CUDA_MAX_JOBS && lmc__walk_on(c, r, &planner, &piece); n++) {
            const lmc_cuda_part *const part = &planner.span->part;
            rows[n].at = lmc__address_of(part->dst, planner.at - piece.size - part->offset);
            rows[n].size = piece.size;
        }
        if (n) LMC__TRY(lmc__sum_on_gpu(c, rows, sums, n));
        for (i = 0; i < n; i++) LMC__TRY(lmc__absorb_sums(c, r, &taker, &sums[i]));
    } while (n != 0);
    return LMC_OK;
}

/* -- waves -- */

static enum lmc_status lmc__read_waves(lmc_cuda *c, lmc_reader *r)
{
    lmc__cuda_half *last = NULL;
    unsigned i;
    LMC__TRY(lmc__choose_wave_size(c, r));
    LMC__CUDA(c, cuEventRecord, (c->started, c->stream));
    LMC__CUDA(c, cuStreamWaitEvent, (c->own, c->started, 0));
    for (i = 0;; i = !i) {
        lmc__cuda_half *const h = &c->halves[i];
        LMC__TRY(lmc__cuda_plan_wave(c, r, h));
        if (h->jobs.size) LMC__TRY(lmc__start_wave(c, r, h));
        if (last) LMC__TRY(lmc__finish_wave(c, r, last));
        if (h->jobs.size == 0) break;
        last = h;
    }
    LMC__CUDA(c, cuStreamSynchronize, (c->own));
    return r->options.skip_fingerprints || !last ? LMC_OK : lmc__check_whole(c, r);
}

/* The caller has set c->given; 0 if the packed bytes are not on the device. */
LMC__COLD static enum lmc_status lmc__read_parts(lmc_cuda *c, lmc_reader *r,
                                                 const lmc_cuda_part *parts, size_t n, void *stream)
{
    const lmc_cuda_base *base;
    enum lmc_status status;
    size_t i;
    c->message[0] = 0;
    if (!c->tables || !r || (n && !parts) || r->is_salvage)
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->stream = (lmc__cu_stream)stream;
    memset(c->is_passed, 0, sizeof c->is_passed);
    LMC__TRY(lmc__cuda_note(c, lmc__take_parts(c, r, parts, n)));
    base = lmc__cuda_base_of(c, r);
    for (i = 0; i < lmc__count_spans(c); i++) {
        lmc__cuda_span *const span = lmc__span_at(c, i);
        const lmc_cuda_part *const part = &span->part;
        span->is_in_place = part->dst == part->base ||
                            (base && lmc__has_address(base, (uintptr_t)part->dst, part->size));
    }
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__cuda_note(c, lmc__read_waves(c, r));
    /* after an error no copy may still write to memory that the caller frees */
    if (status != LMC_OK) {
        (void)c->f.cuStreamSynchronize(c->own);
        (void)c->f.cuStreamSynchronize(c->stream);
    }
    if (status == LMC_ERR_MEMORY) lmc__free_staging(c); /* the next call may need less */
    lmc__cuda_leave(c);
    return status;
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_read(lmc_cuda *c, lmc_reader *r,
                                                const lmc_cuda_part *parts, size_t n, void *stream)
{
    if (!c) return LMC_ERR_ARGUMENT;
    c->given = 0;
    return lmc__read_parts(c, r, parts, n, stream);
}

LMC__COLD LMC_API enum lmc_status lmc_cuda_read_packed(lmc_cuda *c, lmc_reader *r,
                                                       const lmc_cuda_part *parts, size_t n,
                                                       const void *packed, uint64_t at,
                                                       uint64_t size, void *stream)
{
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!packed) return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->given = (uintptr_t)packed;
    c->given_at = at;
    c->given_size = size;
    return lmc__read_parts(c, r, parts, n, stream);
}

#endif /* LMC_IMPLEMENTATION */
