/* lmc_cuda.h - v0.6.0 - LMC files decoded on a GPU of NVIDIA (experimental)
 * SPDX-License-Identifier: MIT
 *
 * SYNOPSIS
 *       #include "lmc.h"
 *       #include "lmc_cuda.h"
 *
 *   wherever it is used; and in the file that defines LMC_IMPLEMENTATION, behind lmc.h. It must be
 *   of the same version as lmc.h. Nothing of CUDA is needed to build: libcuda and NVRTC are opened
 *   at run time. Linux, and Windows. Where dlopen is not in the C library (glibc before 2.34), link
 *   with -ldl.
 *
 *   Experimental: no GPU has run it. Its tests run the text of the kernels on CPUs.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file of those of src/, each below a line with its name. Do not
 *   change it; change those. The kernels, in CUDA C++, are in it as text.
 *   gpu        cuda_api kernels cuda_driver cuda_text cuda_open cuda_plan cuda_wave cuda_read
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
 * The same files and bytes, decoded where weights are wanted: packed bytes cross the link to the
 * GPU. libcuda (the driver) and NVRTC (CUDA's compiler, 11.2 or later) are opened at run time;
 * nothing of CUDA is needed to build. Experimental: it was tested on CPUs alone, which ran the text
 * of the kernels.
 *
 * What is checked: all that lmc_reader checks. Of each block the header (on the CPU, against the
 * index) and the CRC-32C of its content; of a delta also that of its payload. Of a tensor that is
 * one whole part the fingerprint, too, unless the reader skips them. What the GPU cannot decode, or
 * refuses, the CPU decodes again: its word is the status, and the message.
 *
 * Pointers `dst` and `base` are of device memory, in the primary context of the device: the one of
 * PyTorch and of the CUDA runtime. `stream` is a CUstream (cudaStream_t) of it; NULL: the default
 * one. What was put into it before is waited for. The context that is current in the calling
 * thread stays what it is.
 *
 * Threads: one lmc_cuda, and the reader that it is given, by one thread at a time. Several of them,
 * also on one device, may be used at the same time. */

typedef struct lmc_cuda lmc_cuda;

/* All zero: the defaults. */
typedef struct lmc_cuda_options {
    size_t struct_size; /* as of a block's */
    uint64_t device;    /* its ordinal */
    /* Or NULL: an existing directory for compiled kernels (some 100 KB for each architecture), so
     * that they are compiled once on a machine, in some seconds, and not once in each process. Who
     * can write there can run code on the GPU: it must be the user's own. What is damaged there is
     * compiled anew; what cannot be written is no error. */
    const char *cache_dir;
    /* Or NULL: paths of libcuda and of NVRTC. By default what the system's loader finds: libcuda.so.1
     * and libnvrtc.so.13, .12 or .11.2; nvcuda.dll and nvrtc64_130_0.dll, _120_0 or _112_0. */
    const char *driver_path, *nvrtc_path;
    /* Bytes of decoded blocks on the way at once; 0: 64 MiB; at least 8 MiB. Memory of the device:
     * at most four times that, and the scratch of the kernels; pinned memory of the host: twice
     * that. */
    uint64_t staging_size;
    void *alloc_user;
} lmc_cuda_options;

/* Opens the libraries and the device, and compiles the kernels or takes them from the cache.
 * *cuda is NULL after ARGUMENT and MEMORY. After DEVICE (a library is missing, there is no GPU, the
 * GPU is too old, CUDA fails) it is an object that has the message, and is to be closed. */
LMC_STATUS lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options);
/* NULL allowed. */
LMC_API void lmc_cuda_close(lmc_cuda *cuda);
/* What failed in the last call: one line for a user, which names the file, tensor and block, or the
 * library or function of CUDA, and says what to do. "" after LMC_OK. Valid until the next call. */
LMC_API const char *lmc_cuda_message(const lmc_cuda *cuda);

/* Bytes [offset, offset + size) of a file of the snapshot, to device memory. */
typedef struct lmc_cuda_part {
    uint64_t file_number, offset, size;
    /* On the device, size bytes; NULL: they are only decoded and checked. Where it is not a multiple
     * of the element's width, or blocks cross into another part, bytes are copied once more there. */
    void *dst;
    /* Or NULL. Of a delta: those bytes of the base, on the device: those at the same place of the
     * file, as where a delta is restored in place (lmc_reader_can_restore_in_place). It may be dst:
     * then no byte of it is overwritten before the block that it is of was decoded and checked.
     * A wrong base is found by the CRC of each block. Without it, blocks that were coded against
     * the base are decoded on the CPU, by the base of the reader. */
    const void *base;
} lmc_cuda_part;

/* Reads n parts, which must not overlap, in any order. Best all that is wanted in one call: blocks
 * that cross from one part to the next are decoded once, and everything overlaps: reading,
 * copying, decoding. It returns when all is there and checked. After an error, what the parts have
 * is undefined; where base is dst, each block is the old or the new one: decode such a delta first
 * with dst NULL if it may be damaged. Errors: ARGUMENT, LIMIT, MEMORY (of the device, too), DEVICE,
 * those of lmc_reader_read_file. After DEVICE the GPU may be of no use to this process any more,
 * as CUDA has it. */
LMC_STATUS lmc_cuda_read(lmc_cuda *cuda, lmc_reader *reader, const lmc_cuda_part *parts, size_t n,
                         void *stream);

/* What was done so far, for measurements and tests. */
typedef struct lmc_cuda_counts {
    uint64_t gpu_blocks, cpu_blocks; /* blocks that were decoded there */
    uint64_t gpu_bytes, cpu_bytes;   /* their decoded bytes */
    uint64_t staged_bytes;           /* that were copied once more on the device */
    uint64_t compiled;               /* 1: the kernels were compiled; 0: they came from the cache */
    uint64_t reserved[4];            /* zero; see "What grows in 1.x" in lmc.h */
} lmc_cuda_counts;
LMC_API void lmc_cuda_get_counts(const lmc_cuda *cuda, lmc_cuda_counts *counts);

#ifdef __cplusplus
}
#endif

#endif /* LMC_CUDA_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__CUDA_IMPLEMENTED)
#define LMC__CUDA_IMPLEMENTED

/* == gpu/kernels.h ============================================================================= */

/* What a host must know of the kernels of decode.cu (experimental: they have not run on a GPU).
 *
 *     lmc_decode_N(blocks, n, status, tables, scratch, scratch_size)
 *
 * decodes n blocks, one group of LMC__GPU_THREADS threads each at a time: any number of groups
 * will do, the best is lmc__gpu_kernel.groups for each multiprocessor, as far as its shared memory
 * goes. All pointers are addresses of the device. status[i] becomes a number of enum lmc_status, or
 * LMC__GPU_NOT_HERE: the kernel does not do this block. Then that one does which is its `next`,
 * and in the end the CPU. A block of any other status but LMC_OK is for the CPU, too: it finds out
 * what is wrong with it. Whatever the bytes are, a kernel ends, and accesses what is said here.
 *
 * scratch: scratch_size bytes for each group, a multiple of 256, aligned to 256; what they hold
 * does not matter. More of it than lmc__gpu_scratch_size() is of no use; less, and more blocks are
 * NOT_HERE. It may be NULL where that is 0. */

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
    LMC__GPU_MAY_QUANTIZE = 4   /* and Layout 2 (R3-12) */
};

typedef struct lmc__gpu_block {
    /* Addresses. in: the header and the payload, at any byte; out: aligned as an element is; base:
     * as many bytes, aligned like out, or 0. A kernel for deltas takes base == out, and then leaves
     * anything there where the status is not LMC_OK. */
    uint64_t in, out, base;
    uint32_t in_size, out_size; /* out_size: that of the run's block */
    uint32_t number;            /* of the block in its run */
    uint32_t flags;
} lmc__gpu_block;

/* What the kernels read; the host makes it once. decode.cu has the same struct by the name Tables.
 *
 * CRC-32C, reflected: bit 31 of a number is x^0, and x^32 is the number POLY. */
typedef struct lmc__gpu_tables {
    uint32_t advance[4][4][256]; /* [log2 width]: times x^(8 * 256 * width), for each byte */
    uint32_t word[4][256];       /* times x^32, for each byte of the number */
    uint32_t power[3][256];      /* [k][i]: x^(64 * 256^k * i) */
    uint16_t frozen_start[LMC__FROZEN_LEVELS][258]; /* of each leaf (spec 6.4); [256] is 2^15 */
    uint8_t frozen_symbol[256];
} lmc__gpu_tables;

/* a * b modulo the polynomial. */
static uint32_t lmc__gpu_times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    unsigned i;
    for (i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (0x82F63B78u & (0u - (b & 1)));
    }
    return product;
}

/* table[b][v]: (v << 8 b) * factor, so that four look-ups multiply a number. */
static void lmc__gpu_set_product(uint32_t table[4][256], uint32_t factor)
{
    uint32_t b, v;
    for (b = 0; b < 4; b++)
        for (v = 0; v < 256; v++) table[b][v] = lmc__gpu_times(v << 8 * b, factor);
}

/* powers[i] = step^i; returns step^256. */
static uint32_t lmc__gpu_set_powers(uint32_t powers[256], uint32_t step)
{
    uint32_t v = 0x80000000u;
    unsigned i;
    for (i = 0; i < 256; i++) {
        powers[i] = v;
        v = lmc__gpu_times(v, step);
    }
    return v;
}

static void lmc__gpu_make_tables(lmc__gpu_tables *t)
{
    uint32_t power = 0x00800000u /* x^8 */, step = 0;
    unsigned level, i, k;
    memset(t, 0, sizeof *t);
    lmc__gpu_set_product(t->word, 0x82F63B78u);
    for (i = 1; i <= 11; i++) {
        power = lmc__gpu_times(power, power); /* x^(8 * 2^i) */
        if (i == 3) step = power;
        if (i >= 8) lmc__gpu_set_product(t->advance[i - 8], power);
    }
    for (i = 0; i < 3; i++) step = lmc__gpu_set_powers(t->power[i], step);
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

/* A kernel: its name in decode.cu, the dynamic shared memory of a group in bytes, and how many
 * groups are meant to share a multiprocessor (their registers allow it). next: the number of the
 * kernel that does what this one leaves, or LMC__GPU_CPU. */
typedef struct lmc__gpu_kernel {
    const char *name;
    uint32_t shared_size;
    uint32_t groups;
    int next;
} lmc__gpu_kernel;

/* The sizes are those of struct Shared in decode.cu, which the tests compare. */
static const lmc__gpu_kernel lmc__gpu_kernels[] = {
    {"lmc_decode_2", 75240, 3, LMC__GPU_CPU},
    {"lmc_decode_4", 83560, 2, LMC__GPU_CPU},
};
enum { LMC__GPU_KERNELS = (int)(sizeof lmc__gpu_kernels / sizeof *lmc__gpu_kernels) };

/* Bytes of scratch for a group of a kernel that does blocks of up to block_size bytes. */
static size_t lmc__gpu_scratch_size(int kernel, size_t block_size)
{
    (void)kernel;
    (void)block_size;
    return 0;
}

/* The kernel that decodes a block with this header of 24 bytes, or LMC__GPU_CPU. The header need
 * not be right: the kernel finds out. in_place: out is base. */
static int lmc__gpu_kernel_of(const uint8_t *header, int in_place)
{
    const unsigned width = header[1], coding = header[2];
    const uint64_t n = lmc__load32(header + 4);
    (void)in_place;
    if (coding & LMC__PREDICTED || coding >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_QUANTIZED)
        return LMC__GPU_CPU;
    if (n == 0 || n > 65536) return LMC__GPU_CPU;
    return width == 2 ? 0 : width == 4 ? 1 : LMC__GPU_CPU;
}

/* == gpu/cuda_driver.h ========================================================================= */

/* What is used of libcuda and NVRTC, declared as their headers do; no header of CUDA is needed. All
 * of these functions are there since CUDA 11.2. */

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
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      (int *n, lmc__cu_function function, int n_threads, size_t shared_size))                      \
    X(cuLaunchKernel,                                                                              \
      (lmc__cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,                 \
       lmc__cu_stream stream, void **arguments, void **extra))                                     \
    X(cuMemAlloc_v2, (lmc__cu_address * address, size_t size))                                     \
    X(cuMemFree_v2, (lmc__cu_address address))                                                     \
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

/* The same of NVRTC; all return an nvrtcResult, 0 on success. */
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

/* CUresult; CUdevice_attribute; CUfunction_attribute; flags of events: no timing; of streams: it
 * does not wait for the default stream. */
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

/* The text that NVRTC compiles. tools/amalgamate.py puts the lines of the files here, one literal
 * each: a literal has at most 4,095 characters in C99. */
static const char *const lmc__cuda_text[] = {
    "/* SPDX-License-Identifier: MIT\n",
    " * Decodes blocks of LMC 1.0 on a GPU: one group of 256 threads a block. A prototype: widths 2 and 4, stored or planes, no prediction\n",
    " * (so no classes), Joint 0, at most 65,536 elements; all lists, trees and masks. What it does not know gets the status NOT_HERE, and a\n",
    " * CPU decodes it. CUDA C++ without headers, so NVRTC takes it; with LMC_ON_CPU the same text runs as fibers (cuda_on_cpu.h).\n",
    " *\n",
    " *   1 parse   The first warp walks the tree of each list in pre-order; masks are copied to shared memory as aligned\n",
    " *             words, with the number of ones before each word. All warps help with the large ones: that is the only serial chain.\n",
    " *   2 bounds  A chunk of 2,048 neighbouring elements is a range at every node. One thread per border of chunks follows it down.\n",
    " *   3 decode  A warp takes a chunk, and all of the rest needs no barrier of the group: nodes from the last to the root, 8 outputs a\n",
    " *             lane: two windows of the children and two byte permutations. Rare subtrees are walked element by element instead.\n",
    " *   4 join    Planes to elements, 16 bytes a lane; CRC-32C on the way.\n",
    " */\n",
    "#ifdef LMC_ON_CPU\n",
    "#include \"cuda_on_cpu.h\"\n",
    "#define LMC_SHARED(T, s) T &s = *(T *)cpu::shared_memory\n",
    "#define BARRIER() __syncthreads()\n",
    "#define WHY(x) (cpu::why = x)\n",
    "#else\n",
    "typedef unsigned char u8;\n",
    "typedef unsigned short u16;\n",
    "typedef unsigned int u32;\n",
    "typedef unsigned long long u64;\n",
    "#define LMC_SHARED(T, s) extern __shared__ uint4 lmc_shared_memory[]; T &s = *(T *)lmc_shared_memory\n",
    "#define BARRIER() asm volatile(\"bar.sync 0;\" ::: \"memory\")\n",
    "#define LMC_COUNT(i, n) ((void)0)\n",
    "#define WHY(x) ((void)0)\n",
    "#endif\n",
    "#define DEV __device__ __forceinline__\n",
    "#define COLD static __device__ __noinline__\n",
    "#ifdef LMC_ON_CPU\n",
    "#define ROLLED\n",
    "#define UNROLLED\n",
    "#else\n",
    "#define ROLLED _Pragma(\"unroll 1\")\n",
    "#define UNROLLED _Pragma(\"unroll\")\n",
    "#endif\n",
    "#define FULL 0xFFFFFFFFu\n",
    "#ifndef CHUNK\n",
    "#define CHUNK 1024\n",
    "#endif\n",
    "#ifndef ARENA /* words of shared memory for masks; the rare blocks that need more, or more trees, are done by a second variant: ARENA 36000 on an H100, GROUPS 1 */\n",
    "#define ARENA 9344\n",
    "#define SLOTS(W) ((W) / 2)\n",
    "#define TEMP_CHUNKS 2\n",
    "#else\n",
    "#define TEMP_CHUNKS 5\n",
    "#define SLOTS(W) (W)\n",
    "#endif\n",
    "#ifndef RARE\n",
    "#define RARE 48 /* elements of a chunk below which a subtree is walked */\n",
    "#endif\n",
    "#ifndef GROUPS\n",
    "#define GROUPS 3 /* at a time on a multiprocessor: bounds the registers */\n",
    "#endif\n",
    "#ifndef WARPS\n",
    "#define WARPS 8\n",
    "#endif\n",
    "enum { THREADS = 32 * WARPS, MAX_N = 65536, MAX_NODES = 192, MAX_ACTIVE = 64, TEMP = TEMP_CHUNKS * CHUNK,  NONE = 0xFFFF, INACTIVE = 255,\n",
    "       NESTED_NODES = (TEMP + 16) * WARPS / 3 / 28 };\n",
    "enum { CONSTANT, ESCAPED, FLAT, MASK };\n",
    "enum { OK = 0, UNSUPPORTED = 22, CORRUPT = 24, CHECKSUM = 25, NOT_HERE = 255 };\n",
    "enum { POLY = 0x82F63B78u };\n",
    "\n",
    "struct Block { u64 in, out, base; u32 in_size, out_size, number, flags; }; /* where it is, where it goes, its position */\n",
    "struct Tables {            /* made once by the host */\n",
    "    u32 advance[4][4][256]; /* [log2 W]: times x^(8 * 256 * W) */\n",
    "    u32 word[4][256];      /* times x^32 */\n",
    "    u32 power[3][256]; /* [k]: x^(64 * 256^k * i) */\n",
    "    u16 frozen_start[10][258];\n",
    "    u8 frozen_symbol[256];\n",
    "};\n",
    "struct Node { u32 n, bits, src; u16 left, right, first, end; u8 kind, flat, walk, active; };\n",
    "struct Pending { u16 depth, a, b, parent; u32 x, n; u32 right; };\n",
    "struct Shared {\n",
    "    u32 arena[ARENA];\n",
    "    Node node[MAX_NODES];\n",
    "    Pending stack[4][18];\n",
    "    u16 start[258];\n",
    "    u8 symbol[4][256];\n",
    "    u32 selector[16], advance[4][256], seg[WARPS], crc;\n",
    "    u32 job_src, job_n, job_dst, job;\n",
    "    u32 status, n_nodes, n_active, n, kind[4], where[4], used, residual, stored;\n",
    "    u32 pos, active_end[4];\n",
    "    u16 off[WARPS][MAX_ACTIVE], active[MAX_ACTIVE]; /* nodes whose bytes are made: neither constant nor below a walked one */\n",
    "    uint2 temp[WARPS][TEMP / 8 + 2];\n",
    "    uint2 stage[SLOTS(4)][WARPS][CHUNK / 8 + 2]; /* roots of trees; with W = 2 only the first SLOTS(2) are there */\n",
    "};\n",
    "struct Reader { const u8 *p; u32 size, at, used, error; };\n",
    "\n",
    "DEV u32 lane_id() { return threadIdx.x & 31; }\n",
    "DEV u32 load32(const u8 *p) /* any address; up to 7 bytes behind p + 4 are read */\n",
    "{\n",
    "    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);\n",
    "    return __funnelshift_r(q[0], q[1], 8 * (u32)((u64)p & 3));\n",
    "}\n",
    "DEV u32 scan(u32 v) /* inclusive */\n",
    "{\n",
    "UNROLLED\n",
    "    for (int d = 1; d < 32; d <<= 1) { const u32 o = __shfl_up_sync(FULL, v, d); if (lane_id() >= (u32)d) v += o; }\n",
    "    return v;\n",
    "}\n",
    "DEV u32 words_of(u32 n) { return (n + 31) >> 5; }\n",
    "/* Of a mask: its words, one more, and for each two words the ones before them. */\n",
    "DEV u32 mask_words(u32 n) { return ((n + 63) >> 6 << 1) + 1; }\n",
    "DEV u16 *ranks(const Shared &s, u32 bits, u32 n) { return (u16 *)(s.arena + bits + mask_words(n)); }\n",
    "DEV u32 ones_before(const u32 *words, const u16 *rank, u32 at, u32 w) /* w: words[at >> 5] */\n",
    "{\n",
    "    const u32 even = at & 32 ? words[at >> 6 << 1] : 0;\n",
    "    return rank[at >> 6] + __popc(even) + __popc(w & ((1u << (at & 31)) - 1));\n",
    "}\n",
    "\n",
    "/* Copies n bits to the arena and counts ones; src NONE: they are there. By n_warps warps, of which this is one. */\n",
    "COLD void copy_mask(Shared &s, const u8 *p, u32 src, u32 n, u32 dst, u32 warp, u32 n_warps)\n",
    "{\n",
    "    const u32 words = words_of(n), lane = lane_id(), seg = (words + 32 * n_warps - 1) / (32 * n_warps) * 32;\n",
    "    const u32 lo = warp * seg, hi = lo + seg < words ? lo + seg : words;\n",
    "    u16 *const rank = ranks(s, dst, n);\n",
    "    u32 total = 0;\n",
    "    ROLLED for (u32 i = lo; i < hi; i += 32) {\n",
    "        const u32 k = i + lane;\n",
    "        u32 v = 0;\n",
    "        if (k < hi) {\n",
    "            v = src == FULL ? s.arena[dst + k] : load32(p + src + 4 * k);\n",
    "            if (n - 32 * k < 32) v &= (1u << (n & 31)) - 1;\n",
    "            s.arena[dst + k] = v;\n",
    "        }\n",
    "        LMC_COUNT(0, lane == 0);\n",
    "        const u32 c = __popc(v), up = scan(c);\n",
    "        if (k < hi && !(k & 1)) rank[k >> 1] = (u16)(total + up - c);\n",
    "        total += __shfl_sync(FULL, up, 31);\n",
    "    }\n",
    "    if (warp == 0 && lane == 0) { s.arena[dst + words] = 0; if (words & 1) s.arena[dst + words + 1] = 0; }\n",
    "    if (lane == 0) s.seg[warp] = total;\n",
    "    if (n_warps > 1) {\n",
    "        u32 base = 0;\n",
    "        BARRIER();\n",
    "        ROLLED for (u32 w = 0; w < warp; w++) base += s.seg[w];\n",
    "        ROLLED for (u32 k = (lo >> 1) + lane; 2 * k < hi; k += 32) rank[k] = (u16)(rank[k] + base);\n",
    "    }\n",
    "}\n",
    "COLD void work(Shared &s, const u8 *p) /* all warps, the same job */\n",
    "{\n",
    "    copy_mask(s, p, s.job_src, s.job_n, s.job_dst, threadIdx.x >> 5, WARPS);\n",
    "    BARRIER();\n",
    "}\n",
    "/* By the first warp. */\n",
    "COLD void copy_bits(Shared &s, const u8 *p, u32 src, u32 n, u32 dst)\n",
    "{\n",
    "    if (n < 4096) {\n",
    "        copy_mask(s, p, src, n, dst, 0, 1);\n",
    "        if (lane_id() == 0) for (u32 w = 1; w < WARPS; w++) s.seg[w] = 0;\n",
    "        __syncwarp();\n",
    "        return;\n",
    "    }\n",
    "    if (lane_id() == 0) { s.job_src = src; s.job_n = n; s.job_dst = dst; s.job = 1; }\n",
    "    BARRIER();\n",
    "    work(s, p);\n",
    "}\n",
    "COLD u32 sum_seg(Shared &s)\n",
    "{\n",
    "    u32 ones = 0;\n",
    "    ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.seg[w];\n",
    "    return ones;\n",
    "}\n",
    "DEV u32 alloc(Reader &r, u32 words)\n",
    "{\n",
    "    const u32 at = r.used;\n",
    "    if (words > ARENA - r.used) { WHY(\"arena\"); r.error = NOT_HERE; return 0; }\n",
    "    r.used += words;\n",
    "    return at;\n",
    "}\n",
    "DEV bool has(Reader &r, u32 bytes) { if (bytes > r.size - r.at) r.error = CORRUPT; return !r.error; }\n",
    "DEV void unused_bits(Reader &r, u32 at, u32 n) { if (n & 7 && r.p[at + (n >> 3)] >> (n & 7)) r.error = CORRUPT; }\n",
    "\n",
    "template <class T> static __device__ __noinline__ u8 walk(const Shared &s, const u8 *p, const Node *nodes, const T *symbol, u32 k, u32 at)\n",
    "{\n",
    "    while (nodes[k].kind == MASK) {\n",
    "        const u32 bits = nodes[k].bits, w = s.arena[bits + (at >> 5)];\n",
    "        const u32 ones = ones_before(s.arena + bits, ranks(s, bits, nodes[k].n), at, w);\n",
    "        if (w >> (at & 31) & 1) { at = ones; k = nodes[k].right; }\n",
    "        else { at -= ones; k = nodes[k].left; }\n",
    "        LMC_COUNT(1, 1);\n",
    "    }\n",
    "    if (nodes[k].kind == CONSTANT) return symbol[nodes[k].first];\n",
    "    if (nodes[k].kind == ESCAPED) return p[nodes[k].src + at];\n",
    "    u32 index = 0;\n",
    "    const u8 *q = p + nodes[k].src + (at >> 3);\n",
    "    ROLLED for (u32 d = 0; d < nodes[k].flat; d++, q += (nodes[k].n + 7) >> 3) index = index << 1 | (*q >> (at & 7) & 1);\n",
    "    return symbol[nodes[k].first + index];\n",
    "}\n",
    "\n",
    "template <int NEST> struct Parse {\n",
    "    /* The tree of leaves [0, n_leaves) over n elements; start[n_leaves] is 2^15. Returns the number of nodes. */\n",
    "    static __device__ __noinline__ u32 tree(Shared &s, Reader &r, const Tables *t, const u16 *start, u32 n_leaves, bool escape, u32 n, Node *nodes, u32 base, u32 limit)\n",
    "    {\n",
    "        Pending *const stack = s.stack[NEST];\n",
    "        const u32 lane = lane_id();\n",
    "        u32 top = 1, count = base;\n",
    "        if (lane == 0) { stack[0].depth = 0; stack[0].a = 0; stack[0].b = (u16)n_leaves; stack[0].parent = NONE; stack[0].x = 0; stack[0].n = n; stack[0].right = 0; }\n",
    "        __syncwarp();\n",
    "        while (top && !r.error) {\n",
    "            const Pending v = stack[--top];\n",
    "            const u32 me = count++;\n",
    "            if (me >= limit) { WHY(NEST ? \"nodes of a nested mask\" : \"nodes\"); r.error = NOT_HERE; break; }\n",
    "            const u32 one = v.b - v.a == 1, length_a = __clz(start[v.a + 1] - start[v.a]) - 16, length_b = __clz(start[v.b] - start[v.b - 1]) - 16;\n",
    "            const bool has_escape = escape && v.b == n_leaves;\n",
    "            u32 kind = MASK, bits = 0, src = 0, flat = 0, ones = 0, middle = 0;\n",
    "            if (one) {\n",
    "                kind = has_escape ? ESCAPED : CONSTANT;\n",
    "                if (has_escape) { src = r.at; if (has(r, v.n)) r.at += v.n; }\n",
    "            } else if (!has_escape && length_a == length_b && length_a - v.depth >= 2 && length_a - v.depth <= 6) {\n",
    "                kind = FLAT;\n",
    "                flat = length_a - v.depth;\n",
    "                const u32 bytes = (v.n + 7) >> 3;\n",
    "                src = r.at; /* read where they are: each bit is needed once */\n",
    "                if (!has(r, flat * bytes)) break;\n",
    "                ROLLED for (u32 d = 0; d < flat; d++) unused_bits(r, r.at + d * bytes, v.n);\n",
    "                r.at += flat * bytes;\n",
    "            } else {\n",
    "                bits = mask(s, r, t, v.n);\n",
    "                if (r.error) break;\n",
    "                ones = sum_seg(s);\n",
    "                u32 lo = v.a + 1, hi = v.b; /* first leaf of the right child */\n",
    "                while (lo < hi) { const u32 m = (lo + hi) >> 1; if (start[m] < v.x + (1u << (14 - v.depth))) lo = m + 1; else hi = m; }\n",
    "                middle = lo;\n",
    "            }\n",
    "            __syncwarp();\n",
    "            if (lane == 0) {\n",
    "                Node &w = nodes[me];\n",
    "                w.n = v.n; w.bits = bits; w.src = src; w.left = w.right = NONE; w.first = v.a; w.kind = (u8)kind; w.flat = (u8)flat; w.walk = 0;\n",
    "                if (v.parent != NONE) { if (v.right) nodes[v.parent].right = (u16)me; else nodes[v.parent].left = (u16)me; }\n",
    "                if (kind == MASK) {\n",
    "                    u32 at = top;\n",
    "                    if (ones) { Pending &q = stack[at++]; q.depth = v.depth + 1; q.a = (u16)middle; q.b = v.b; q.parent = (u16)me; q.x = v.x + (1u << (14 - v.depth)); q.n = ones; q.right = 1; }\n",
    "                    if (ones < v.n) { Pending &q = stack[at++]; q.depth = v.depth + 1; q.a = v.a; q.b = (u16)middle; q.parent = (u16)me; q.x = v.x; q.n = v.n - ones; q.right = 0; }\n",
    "                }\n",
    "            }\n",
    "            if (kind == MASK) top += (ones != 0) + (ones < v.n);\n",
    "            __syncwarp();\n",
    "        }\n",
    "        return count;\n",
    "    }\n",
    "    /* A mask of n bits at r.at: to the arena, with ranks; its ones are the sum of s.seg. */\n",
    "    static __device__ __noinline__ u32 mask(Shared &s, Reader &r, const Tables *t, u32 n)\n",
    "    {\n",
    "        const u32 words = words_of(n), bytes = (n + 7) >> 3, bits = alloc(r, mask_words(n) + ((mask_words(n) + 3) >> 2)), lane = lane_id();\n",
    "        u32 mode = 0;\n",
    "        if (r.error) return 0;\n",
    "        if (n >= 256 && NEST < 2) { if (!has(r, 1)) return 0; mode = r.p[r.at++]; }\n",
    "        if (mode == 0) {\n",
    "            if (!has(r, bytes)) return 0;\n",
    "            unused_bits(r, r.at, n);\n",
    "            copy_bits(s, r.p, r.at, n, bits);\n",
    "            r.at += bytes;\n",
    "            return bits;\n",
    "        }\n",
    "        if (mode <= 20) { nested(s, r, t, n, bits, mode); }\n",
    "        else r.error = CORRUPT;\n",
    "        if (r.error) return 0;\n",
    "        __syncwarp();\n",
    "        copy_bits(s, r.p, FULL, n, bits);\n",
    "        return bits;\n",
    "    }\n",
    "    static __device__ __noinline__ void nested(Shared &s, Reader &r, const Tables *t, u32 n, u32 bits, u32 mode)\n",
    "    {\n",
    "        const u32 bytes = (n + 7) >> 3, used = r.used, level = (mode - 1) >> 1, flip = (mode - 1) & 1 ? 255 : 0;\n",
    "        const u32 limit = NESTED_NODES;\n",
    "        Node *const nodes = (Node *)s.temp + NEST * NESTED_NODES; /* not in use before the chunks are */\n",
    "        Parse<NEST + 1>::tree(s, r, t, t->frozen_start[level], 256, false, bytes, nodes, 0, limit);\n",
    "        if (r.error) return;\n",
    "        u32 bad = 0;\n",
    "        ROLLED for (u32 i = lane_id(); i < 4 * words_of(n); i += 32) {\n",
    "            const u32 v = i < bytes ? walk(s, r.p, nodes, t->frozen_symbol, 0, i) ^ flip : 0;\n",
    "            if (i == bytes - 1 && n & 7 && v >> (n & 7)) bad = 1;\n",
    "            ((u8 *)(s.arena + bits))[i] = (u8)v;\n",
    "        }\n",
    "        if (__ballot_sync(FULL, bad)) r.error = CORRUPT;\n",
    "        r.used = used;\n",
    "    }\n",
    "};\n",
    "template <> struct Parse<3> { /* nesting 2 has plain masks only */\n",
    "    static DEV u32 tree(Shared &, Reader &r, const Tables *, const u16 *, u32, bool, u32, Node *, u32, u32) { r.error = CORRUPT; return 0; }\n",
    "};\n",
    "\n",
    "/* A list of n bytes: s.kind, s.where (offset, value, or number of its root). First warp. */\n",
    "COLD void list(Shared &s, Reader &r, const Tables *t, u32 plane, u32 n)\n",
    "{\n",
    "    const u32 lane = lane_id();\n",
    "    if (!has(r, 1)) return;\n",
    "    const u32 mode = r.p[r.at++];\n",
    "    if (mode > 3) { r.error = CORRUPT; return; }\n",
    "    if (mode == 0) { if (lane == 0) { s.kind[plane] = ESCAPED; s.where[plane] = r.at; } if (has(r, n)) r.at += n; return; }\n",
    "    if (mode == 1) { if (has(r, 1)) { if (lane == 0) { s.kind[plane] = CONSTANT; s.where[plane] = r.p[r.at]; } r.at++; } return; }\n",
    "    if (!has(r, 2)) return;\n",
    "    const u32 first = r.p[r.at], count = r.p[r.at + 1] + 1u, escape = mode == 3, bytes = (count + escape + 1) >> 1;\n",
    "    r.at += 2;\n",
    "    if (first + count > 256) r.error = CORRUPT;\n",
    "    if (r.error || !has(r, bytes)) return;\n",
    "    const u8 *const q = r.p + r.at;\n",
    "    r.at += bytes;\n",
    "    if ((count + escape) & 1 && q[bytes - 1] >> 4) r.error = CORRUPT;\n",
    "    if (!(q[0] & 15) || !(q[(count - 1) >> 1] >> (4 * ((count - 1) & 1)) & 15)) r.error = CORRUPT;\n",
    "    u32 leaves = 0, at = 0, longest = 0;\n",
    "    ROLLED for (u32 length = 1; length <= 15; length++)\n",
    "        ROLLED for (u32 i = 0; i < count; i += 32) {\n",
    "            const u32 k = i + lane, mine = k < count && (u32)(q[k >> 1] >> (4 * (k & 1)) & 15) == length;\n",
    "            const u32 who = __ballot_sync(FULL, mine), before = __popc(who & ((1u << lane) - 1));\n",
    "            if (mine) { s.symbol[plane][leaves + before] = (u8)(first + k); s.start[leaves + before] = (u16)(at + (before << (15 - length))); }\n",
    "            if (who) longest = length;\n",
    "            leaves += __popc(who);\n",
    "            at += __popc(who) << (15 - length);\n",
    "            if (at > 32768) { r.error = CORRUPT; return; }\n",
    "        }\n",
    "    if (escape) {\n",
    "        const u32 length = q[count >> 1] >> (4 * (count & 1)) & 15;\n",
    "        if (length < longest || length == 0) { r.error = CORRUPT; return; }\n",
    "        if (lane == 0) s.start[leaves] = (u16)at;\n",
    "        leaves++;\n",
    "        at += 1u << (15 - length);\n",
    "    }\n",
    "    if (leaves < 2 || at != 32768) { r.error = CORRUPT; return; }\n",
    "    if (lane == 0) { s.start[leaves] = 32768; s.kind[plane] = MASK; s.where[plane] = s.n_nodes; }\n",
    "    __syncwarp();\n",
    "    const u32 base = s.n_nodes, end = Parse<0>::tree(s, r, t, s.start, leaves, escape, n, s.node, base, MAX_NODES);\n",
    "    if (r.error) return;\n",
    "    __syncwarp();\n",
    "    if (lane == 0) { /* where subtrees end; which of them are rare, so that walking is cheaper */\n",
    "        s.n_nodes = end;\n",
    "        ROLLED for (u32 k = end; k-- > base;) {\n",
    "            Node &v = s.node[k];\n",
    "            v.end = (u16)(k + 1);\n",
    "            if (v.kind == MASK) { const u32 child = v.right != NONE ? v.right : v.left; v.end = s.node[child].end; }\n",
    "            v.walk = v.kind == MASK && (u64)v.n * CHUNK <= (u64)RARE * n;\n",
    "        }\n",
    "        u32 a = s.n_active;\n",
    "        ROLLED for (u32 k = base; k < end;) {\n",
    "            Node &v = s.node[k];\n",
    "            v.active = INACTIVE;\n",
    "            if (v.kind != CONSTANT) { if (a < MAX_ACTIVE) { s.active[a] = (u16)k; v.active = (u8)a; } a++; }\n",
    "            if (v.walk) { ROLLED for (k++; k < v.end; k++) s.node[k].active = INACTIVE; } else k++;\n",
    "        }\n",
    "        s.n_active = s.active_end[plane] = a;\n",
    "    }\n",
    "    __syncwarp();\n",
    "    if (s.n_active > MAX_ACTIVE) { WHY(\"active nodes\"); r.error = NOT_HERE; }\n",
    "}\n",
    "\n",
    "/* a * b modulo the polynomial, reflected: x^0 is bit 31 */\n",
    "COLD u32 multiply(u32 a, u32 b)\n",
    "{\n",
    "    u32 r = 0;\n",
    "ROLLED\n",
    "    for (int i = 0; i < 32; i++) { r ^= b & (0u - (a >> 31)); a <<= 1; b = b >> 1 ^ (POLY & (0u - (b & 1))); }\n",
    "    return r;\n",
    "}\n",
    "COLD u32 crc_byte(u32 crc, u32 byte)\n",
    "{\n",
    "    crc ^= byte;\n",
    "    ROLLED for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (POLY & (0u - (crc & 1)));\n",
    "    return crc;\n",
    "}\n",
    "DEV u32 advance(const Shared &s, u32 v) { return s.advance[0][v & 255] ^ s.advance[1][v >> 8 & 255] ^ s.advance[2][v >> 16 & 255] ^ s.advance[3][v >> 24]; }\n",
    "DEV uint2 window(const u32 *words, u32 at) /* 8 bytes at byte `at` of shared memory */\n",
    "{\n",
    "    const u32 *const q = words + (at >> 2);\n",
    "    const u32 a = q[0], b = q[1], c = q[2], sh = 8 * (at & 3);\n",
    "    return make_uint2(__funnelshift_r(a, b, sh), __funnelshift_r(b, c, sh));\n",
    "}\n",
    "DEV u32 spread(u32 x) /* 8 bits to 8 nibbles */\n",
    "{\n",
    "    x = (x | x << 12) & 0x000F000F;\n",
    "    x = (x | x << 6) & 0x03030303;\n",
    "    return (x | x << 3) & 0x11111111;\n",
    "}\n",
    "\n",
    "/* The bytes of one chunk of one tree, by a warp. */\n",
    "DEV void chunk_of_tree(Shared &s, const u8 *p, u32 plane, u32 root, u32 chunk, u32 borders, uint2 *stage)\n",
    "{\n",
    "    const u32 lane = lane_id(), warp = threadIdx.x >> 5;\n",
    "    const u16 *const pos = (const u16 *)(s.arena + s.pos);\n",
    "    const u8 *const symbol = s.symbol[plane];\n",
    "    u32 *const temp = (u32 *)s.temp[warp];\n",
    "    u32 used = 0;\n",
    "    const u32 first = s.node[root].active, last = s.active_end[plane];\n",
    "    ROLLED for (u32 a0 = first + 1; a0 < last; a0 += 32) { /* room for the nodes */\n",
    "        const u32 a = a0 + lane, size = a < last ? ((u16)(pos[a * borders + chunk + 1] - pos[a * borders + chunk]) + 15) & ~7u : 0, up = scan(size);\n",
    "        if (a < last) s.off[warp][a] = (u16)(used + up - size);\n",
    "        used += __shfl_sync(FULL, up, 31);\n",
    "    }\n",
    "    LMC_COUNT(9, lane == 0); LMC_COUNT(10, lane == 0 ? used : 0); LMC_COUNT(11, lane == 0 && used > TEMP);\n",
    "    __syncwarp();\n",
    "    const bool full = used > TEMP; /* strange trees: walk all */\n",
    "    ROLLED for (u32 a = full ? first + 1 : last; a-- > first;) {\n",
    "        const u32 k = s.active[a];\n",
    "        const Node v = s.node[k];\n",
    "        const u32 from = pos[a * borders + chunk], count = (u16)(pos[a * borders + chunk + 1] - from);\n",
    "        uint2 *const out = k == root ? stage : (uint2 *)(temp + (s.off[warp][a] >> 2));\n",
    "        if (v.walk || full) {\n",
    "            ROLLED for (u32 i = lane; i < count; i += 32) { LMC_COUNT(13, lane == 0); ((u8 *)out)[i] = walk(s, p, s.node, symbol, k, from + i); }\n",
    "        } else if (v.kind == ESCAPED) {\n",
    "            ROLLED for (u32 i = lane; i < count; i += 32) ((u8 *)out)[i] = p[v.src + from + i];\n",
    "        } else if (v.kind == FLAT) {\n",
    "            const u32 step = (v.n + 7) >> 3;\n",
    "            const uint2 all = window((const u32 *)symbol, v.first);\n",
    "            ROLLED for (u32 g = lane; 8 * g < count; g += 32) {\n",
    "                const u32 b = from + 8 * g, sh = b & 7;\n",
    "                const u8 *w = p + v.src + (b >> 3);\n",
    "                u32 lo = 0, hi = 0;\n",
    "                LMC_COUNT(2, 1); LMC_COUNT(14, lane == 0);\n",
    "                if (v.flat <= 3) {\n",
    "                    ROLLED for (u32 d = 0; d < v.flat; d++, w += step) lo = lo << 1 | spread(load32(w) >> sh & 255);\n",
    "                    hi = __byte_perm(all.x, all.y, lo >> 16);\n",
    "                    lo = __byte_perm(all.x, all.y, lo & 0xFFFF);\n",
    "                } else {\n",
    "                    u32 even = 0, odd = 0; /* 6-bit numbers, as nibbles and their upper bits */\n",
    "                    ROLLED for (u32 d = 0; d < v.flat; d++, w += step) {\n",
    "                        const u32 y = spread(load32(w) >> sh & 255);\n",
    "                        even = even << 1 | (y & 0x01010101); odd = odd << 1 | (y >> 4 & 0x01010101);\n",
    "                    }\n",
    "                    for (u32 i = 0; i < 4; i++) {\n",
    "                        const u32 pair = symbol[v.first + (even >> (8 * i) & 255)] | symbol[v.first + (odd >> (8 * i) & 255)] << 8;\n",
    "                        if (i < 2) lo |= pair << (16 * i); else hi |= pair << (16 * i - 32);\n",
    "                    }\n",
    "                }\n",
    "                out[g] = make_uint2(lo, hi);\n",
    "            }\n",
    "        } else {\n",
    "            const bool l_const = v.left == NONE || s.node[v.left].kind == CONSTANT, r_const = v.right == NONE || s.node[v.right].kind == CONSTANT;\n",
    "            const u32 l_at = l_const ? 0 : s.off[warp][s.node[v.left].active], r_at = r_const ? 0 : s.off[warp][s.node[v.right].active];\n",
    "            const u32 l_value = v.left == NONE ? 0 : symbol[s.node[v.left].first] * 0x01010101u, r_value = v.right == NONE ? 0 : symbol[s.node[v.right].first] * 0x01010101u;\n",
    "            const u32 known = v.right == NONE ? 0 : r_const ? (l_const ? ones_before(s.arena + v.bits, ranks(s, v.bits, v.n), from, s.arena[v.bits + (from >> 5)]) : from - pos[s.node[v.left].active * borders + chunk]) : pos[s.node[v.right].active * borders + chunk];\n",
    "            const u32 from1 = known;\n",
    "            const u32 *const words = s.arena + v.bits;\n",
    "            const u16 *const rank = ranks(s, v.bits, v.n);\n",
    "            ROLLED for (u32 g = lane; 8 * g < count; g += 32) {\n",
    "                const u32 b = from + 8 * g, w = words[b >> 5], sh = b & 31;\n",
    "                const u32 m = __funnelshift_r(w, words[(b >> 5) + 1], sh);\n",
    "                const u32 r1 = (ones_before(words, rank, b, w) - from1) & 0xFFFF, r0 = 8 * g - r1;\n",
    "                uint2 L = make_uint2(l_value, l_value), R = make_uint2(r_value, r_value);\n",
    "                LMC_COUNT(3, 1); LMC_COUNT(4, !l_const); LMC_COUNT(4, !r_const); LMC_COUNT(12, lane == 0);\n",
    "                if (!l_const) L = window(temp, l_at + r0);\n",
    "                if (!r_const) R = window(temp, r_at + r1);\n",
    "                const u32 ones = 8 * __popc(m & 15);\n",
    "                const u32 lo = __byte_perm(L.x, R.x, s.selector[m & 15]);\n",
    "                const u32 hi = __byte_perm(__funnelshift_rc(L.x, L.y, 32 - ones), __funnelshift_rc(R.x, R.y, ones), s.selector[m >> 4 & 15]);\n",
    "                out[g] = make_uint2(lo, hi);\n",
    "            }\n",
    "        }\n",
    "        LMC_COUNT(5, lane == 0); LMC_COUNT(6, lane == 0 ? (count + 255) / 256 : 0);\n",
    "        __syncwarp();\n",
    "    }\n",
    "}\n",
    "\n",
    "/* Eight bytes of plane `plane` for elements i .. i + 7; those of trees are in the warp's stage. */\n",
    "DEV uint2 plane8(const Shared &s, const u8 *p, u32 plane, u32 slot, u32 i, u32 g)\n",
    "{\n",
    "    if (s.kind[plane] == MASK) return s.stage[slot][threadIdx.x >> 5][g];\n",
    "    if (s.kind[plane] == CONSTANT) return make_uint2(s.where[plane] * 0x01010101u, s.where[plane] * 0x01010101u);\n",
    "    const u8 *const q = p + s.where[plane] + i;\n",
    "    const u32 *const w = (const u32 *)((u64)q & ~(u64)3);\n",
    "    const u32 a = w[0], b = w[1], c = w[2], sh = 8 * (u32)((u64)q & 3);\n",
    "    return make_uint2(__funnelshift_r(a, b, sh), __funnelshift_r(b, c, sh));\n",
    "}\n",
    "\n",
    "template <int W> DEV void decode(Shared &s, const u8 *block, u8 *out, const Tables *t)\n",
    "{\n",
    "    enum { PIECE = 8 * W, K = PIECE / 4, ROW = 32 * PIECE };\n",
    "    const u32 tid = threadIdx.x, lane = lane_id(), warp = tid >> 5, n = s.n;\n",
    "    const u32 chunks = (n + CHUNK - 1) / CHUNK, borders = chunks + 1;\n",
    "    const u8 *const p = block + 24;\n",
    "    u32 slot_of[4], slots = 0;\n",
    "    for (u32 j = 0; j < W; j++) slot_of[j] = s.stored || s.kind[j] != MASK ? 0 : slots++;\n",
    "    u16 *const pos = (u16 *)(s.arena + s.pos);\n",
    "    for (u32 c = tid; c < borders; c += THREADS) {\n",
    "        for (u32 j = 0; j < W; j++) if (!s.stored && s.kind[j] == MASK) pos[s.node[s.where[j]].active * borders + c] = (u16)(c * CHUNK < n ? c * CHUNK : n);\n",
    "        ROLLED for (u32 a = 0; a < s.n_active; a++) {\n",
    "            const Node &v = s.node[s.active[a]];\n",
    "            if (v.kind != MASK || v.walk) continue;\n",
    "            u32 at = pos[a * borders + c], ones;\n",
    "            if (c && at == 0 && v.n == 65536) at = 65536; /* the last border; 16 bits suffice for differences */\n",
    "            if (at < v.n) ones = ones_before(s.arena + v.bits, ranks(s, v.bits, v.n), at, s.arena[v.bits + (at >> 5)]);\n",
    "            else ones = v.right == NONE ? 0 : s.node[v.right].n;\n",
    "            if (v.right != NONE && s.node[v.right].active != INACTIVE) pos[s.node[v.right].active * borders + c] = (u16)ones;\n",
    "            if (v.left != NONE && s.node[v.left].active != INACTIVE) pos[s.node[v.left].active * borders + c] = (u16)(at - ones);\n",
    "            LMC_COUNT(7, 1);\n",
    "        }\n",
    "    }\n",
    "    BARRIER();\n",
    "    const u32 per = (chunks + WARPS - 1) / WARPS, first = warp * per, last = first + per < chunks ? first + per : chunks;\n",
    "    u32 acc[K], seen = 0, place = 0;\n",
    "    for (u32 j = 0; j < K; j++) acc[j] = 0;\n",
    "    ROLLED for (u32 chunk = first; chunk < last; chunk++) {\n",
    "        for (u32 j = 0; j < W; j++)\n",
    "            if (!s.stored && s.kind[j] == MASK) chunk_of_tree(s, p, j, s.where[j], chunk, borders, s.stage[slot_of[j]][warp]);\n",
    "        const u32 left = n - chunk * CHUNK, count = left < CHUNK ? left : CHUNK;\n",
    "        ROLLED for (u32 g = lane; 8 * g < count; g += 32) {\n",
    "            const u32 i = chunk * CHUNK + 8 * g;\n",
    "            u32 v[K];\n",
    "            LMC_COUNT(8, 1); LMC_COUNT(15, lane == 0);\n",
    "            if (s.stored) {\n",
    "                for (u32 j = 0; j < K; j++) v[j] = load32(p + i * W + 4 * j);\n",
    "            } else if (W == 2) {\n",
    "                const uint2 lo = plane8(s, p, 0, slot_of[0], i, g), hi = plane8(s, p, 1, slot_of[1], i, g);\n",
    "                v[0] = __byte_perm(lo.x, hi.x, 0x5140); v[1] = __byte_perm(lo.x, hi.x, 0x7362);\n",
    "                v[2] = __byte_perm(lo.y, hi.y, 0x5140); v[3] = __byte_perm(lo.y, hi.y, 0x7362);\n",
    "                if (s.residual) for (u32 j = 0; j < K; j++) v[j] = (v[j] >> 1 & 0x7FFF7FFF) | (v[j] & 0x00010001) << 15;\n",
    "            } else {\n",
    "                const uint2 a = plane8(s, p, 0, slot_of[0], i, g), b = plane8(s, p, 1, slot_of[1], i, g), c = plane8(s, p, 2 % W, slot_of[2 % W], i, g), d = plane8(s, p, 3 % W, slot_of[3 % W], i, g);\n",
    "                for (u32 h = 0; h < 2; h++) {\n",
    "                    const u32 A = h ? a.y : a.x, B = h ? b.y : b.x, C = h ? c.y : c.x, D = h ? d.y : d.x;\n",
    "                    const u32 ab0 = __byte_perm(A, B, 0x5140), ab1 = __byte_perm(A, B, 0x7362), cd0 = __byte_perm(C, D, 0x5140), cd1 = __byte_perm(C, D, 0x7362);\n",
    "                    v[(4 * h + 0) % K] = __byte_perm(ab0, cd0, 0x5410); v[(4 * h + 1) % K] = __byte_perm(ab0, cd0, 0x7632);\n",
    "                    v[(4 * h + 2) % K] = __byte_perm(ab1, cd1, 0x5410); v[(4 * h + 3) % K] = __byte_perm(ab1, cd1, 0x7632);\n",
    "                }\n",
    "                if (s.residual) for (u32 j = 0; j < K; j++) v[j] = __funnelshift_r(v[j], v[j], 1);\n",
    "            }\n",
    "            if (8 * g + 8 <= count && ((u64)out & 15) == 0) {\n",
    "                for (u32 j = 0; j < K; j += 4) *(uint4 *)(out + (u64)i * W + 4 * j) = make_uint4(v[j], v[j + 1], v[j + 2], v[j + 3]);\n",
    "            } else {\n",
    "                ROLLED for (u32 j = 0; j < PIECE && (u32)(8 * g * W + j) < count * W; j++) out[(u64)i * W + j] = (u8)(v[j >> 2] >> (8 * (j & 3)));\n",
    "            }\n",
    "            if (8 * g + 8 <= count) {\n",
    "                if (i == 0) v[0] ^= FULL;\n",
    "                for (u32 j = 0; j < K; j++) acc[j] = advance(s, acc[j]) ^ v[j];\n",
    "                seen = 1;\n",
    "                place = i * W;\n",
    "            }\n",
    "        }\n",
    "        __syncwarp();\n",
    "    }\n",
    "    const u32 whole = n / 8 * PIECE; /* bytes of full pieces */\n",
    "    u32 sum = 0;\n",
    "    if (seen) {\n",
    "        const u32 rest = (whole - place - PIECE) >> 3; /* 8-byte steps behind the last piece */\n",
    "        sum = acc[0];\n",
    "        for (u32 j = 1; j <= K; j++) /* times x^32, and the next word */\n",
    "            sum = t->word[0][sum & 255] ^ t->word[1][sum >> 8 & 255] ^ t->word[2][sum >> 16 & 255] ^ t->word[3][sum >> 24] ^ (j < K ? acc[j % K] : 0);\n",
    "        if (rest & 255) sum = multiply(sum, t->power[0][rest & 255]);\n",
    "        if (rest >> 8) sum = multiply(sum, t->power[1][rest >> 8]);\n",
    "    }\n",
    "    for (int d = 16; d; d >>= 1) sum ^= __shfl_xor_sync(FULL, sum, d);\n",
    "    if (lane == 0) atomicXor(&s.crc, sum);\n",
    "    BARRIER();\n",
    "    if (tid == 0) {\n",
    "        u32 crc = whole ? s.crc : FULL;\n",
    "        ROLLED for (u32 i = whole; i < n * W; i++) crc = crc_byte(crc, out[i]);\n",
    "        if (~crc != (block[12] | block[13] << 8 | block[14] << 16 | (u32)block[15] << 24)) s.status = CHECKSUM;\n",
    "    }\n",
    "}\n",
    "\n",
    "template <int W> DEV void lmc_decode_block(Shared &s, const Block &job, u32 *status, const Tables *t)\n",
    "{\n",
    "    const u8 *const b = (const u8 *)job.in;\n",
    "    u8 *const out = (u8 *)job.out;\n",
    "    const u32 tid = threadIdx.x, lane = lane_id();\n",
    "    const u32 width = b[1], layout = b[2] >> 5, n = b[4] | b[5] << 8 | b[6] << 16 | (u32)b[7] << 24;\n",
    "    if (tid < 16) {\n",
    "        u32 sel = 0, l = 0, r = 4;\n",
    "        for (int i = 0; i < 4; i++) sel |= (tid >> i & 1 ? r++ : l++) << (4 * i);\n",
    "        s.selector[tid] = sel;\n",
    "    }\n",
    "    for (u32 i = tid; i < 1024; i += THREADS) s.advance[i >> 8][i & 255] = t->advance[W == 4 ? 2 : 1][i >> 8][i & 255];\n",
    "    if (tid == 0) { s.status = OK; s.crc = 0; s.n = n; s.n_nodes = 0; s.n_active = 0; s.job = 0; s.residual = b[2] & 3; s.stored = layout == 0; s.pos = 0; }\n",
    "    BARRIER();\n",
    "    if (tid < 32) { /* the first warp reads, the others help */\n",
    "        Reader r = {b + 24, job.in_size - 24, 0, 0, 0};\n",
    "        u32 crc = FULL;\n",
    "        ROLLED for (u32 i = 0; i < 4; i++) crc = crc_byte(crc, job.number >> (8 * i) & 255);\n",
    "        ROLLED for (u32 i = 0; i < 20; i++) crc = crc_byte(crc, b[i]);\n",
    "        const u32 payload = b[8] | b[9] << 8 | b[10] << 16 | (u32)b[11] << 24;\n",
    "        if (b[0] != 0xB2) r.error = CORRUPT;\n",
    "        else if (~crc != (b[20] | b[21] << 8 | b[22] << 16 | (u32)b[23] << 24)) r.error = CHECKSUM;\n",
    "        else if (width != W || layout != 0 && layout != 1 || b[2] & 0x1C || n > MAX_N) r.error = NOT_HERE;\n",
    "        else if ((b[2] & 3) == 3 || b[2] & 0x18) r.error = UNSUPPORTED;\n",
    "        else if ((u64)n * width != job.out_size || n == 0 || b[3] || b[16] | b[17] | b[18] | b[19]) r.error = CORRUPT;\n",
    "        else if (payload != job.in_size - 24 || layout == 0 && b[2] & 3 || layout && payload >= n * width) r.error = CORRUPT;\n",
    "        else if ((b[2] & 3) == 1) r.error = NOT_HERE;\n",
    "        else if (layout == 0) { if (payload != n * width) r.error = CORRUPT; }\n",
    "        else {\n",
    "            u32 trees = 0;\n",
    "            ROLLED for (u32 j = 0; j < width && !r.error; j++) { list(s, r, t, j, n); __syncwarp(); trees += !r.error && s.kind[j] == MASK; }\n",
    "            if (!r.error && r.at != r.size) r.error = CORRUPT;\n",
    "            if (!r.error && trees > SLOTS(W)) { WHY(\"trees\"); r.error = NOT_HERE; }\n",
    "            const u32 at = r.error ? 0 : alloc(r, (s.n_active * ((n + CHUNK - 1) / CHUNK + 1) + 1) >> 1);\n",
    "            if (lane == 0) { s.pos = at; s.used = r.used; }\n",
    "        }\n",
    "        if (lane == 0) { s.job = 2; s.status = r.error; }\n",
    "        BARRIER();\n",
    "    } else {\n",
    "        for (;;) { BARRIER(); if (s.job == 2) break; work(s, b + 24); }\n",
    "    }\n",
    "    BARRIER();\n",
    "    if (s.status == OK) decode<W>(s, b, out, t);\n",
    "    if (tid == 0) *status = s.status;\n",
    "    BARRIER();\n",
    "}\n",
    "#define SHARED_SIZE(W) (sizeof(Shared) - (SLOTS(4) - SLOTS(W)) * WARPS * (CHUNK / 8 + 2) * 8)\n",
    "#define KERNEL(W) \\\n",
    "extern \"C\" __global__ void __launch_bounds__(THREADS, GROUPS) lmc_decode_##W(const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size) \\\n",
    "{ \\\n",
    "    LMC_SHARED(Shared, s); \\\n",
    "    for (u32 i = blockIdx.x; i < n; i += gridDim.x) { const Block job = blocks[i]; lmc_decode_block<W>(s, job, status + i, t); } \\\n",
    "}\n",
    "KERNEL(2)\n",
    "KERNEL(4)\n",
    "/* SPDX-License-Identifier: MIT\n",
    " * Sums of bytes that were decoded, for fingerprints (spec 7.1): what NVRTC compiles behind\n",
    " * decode.cu, whose names it uses.\n",
    " *\n",
    " *     lmc_sums(pieces, n, sums, tables)        any number of groups, of 256 threads each\n",
    " *\n",
    " * A piece is a leaf of a tensor, at most 2^18 bytes at any address; its sums:\n",
    " *\n",
    " *     words   its u64 words, added up; zero bytes complete the last one\n",
    " *     crc     the remainder of its polynomial times x^32. That is a CRC-32C without the inversions;\n",
    " *             the host makes them, as it knows the size\n",
    " *\n",
    " * Leading zeros do not change a remainder: so zeros in front fill the piece up to whole rows of 256\n",
    " * words of 4 bytes. Thread j has word j of each row: x^8192 lies between two of them, and behind\n",
    " * the last one 255 - j words are left.\n",
    " *\n",
    " *     piece         |.......xxxxxxxx|xxxxxxxxxxxxxxx|xxxxxxxxxxxxxxx|       3 rows\n",
    " *     thread j           ^               ^               ^ */\n",
    "struct SumPiece { u64 at; u32 size, reserved; };\n",
    "struct Sums { u64 words; u32 crc, reserved; };\n",
    "struct SumShared { u64 words[256]; u32 advance[4][256], crc[256]; };\n",
    "\n",
    "/* Bytes [at, at + size) of those from begin to end; bytes outside are 0. */\n",
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
    "/* a * b modulo the polynomial. */\n",
    "DEV u32 sum_times(u32 a, u32 b)\n",
    "{\n",
    "    u32 product = 0;\n",
    "    for (u32 i = 0; i < 32; i++) {\n",
    "        product ^= b & (0u - (a >> 31));\n",
    "        a <<= 1;\n",
    "        b = b >> 1 ^ (0x82F63B78u & (0u - (b & 1)));\n",
    "    }\n",
    "    return product;\n",
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
    "    LMC_SHARED(SumShared, s);\n",
    "    const u32 tid = threadIdx.x;\n",
    "    for (u32 i = tid; i < 1024; i += 256) s.advance[i >> 8][i & 255] = t->advance[2][i >> 8][i & 255];\n",
    "    BARRIER();\n",
    "    for (u32 k = blockIdx.x; k < n; k += gridDim.x) {\n",
    "        const u64 begin = pieces[k].at, end = begin + pieces[k].size;\n",
    "        const u32 rows = (pieces[k].size + 1023) / 1024;\n",
    "        u64 words = 0;\n",
    "        u32 crc = 0;\n",
    "        for (u32 i = 0; i < rows; i++)\n",
    "            crc = sum_product(s.advance, crc) ^\n",
    "                  (u32)sum_bytes(begin, end, end - (u64)(rows - i) * 1024 + 4 * tid, 4);\n",
    "        /* 256 - tid words: those behind it, and x^32 */\n",
    "        if (tid & 1) crc = sum_product(t->word, crc);\n",
    "        s.crc[tid] = sum_times(crc, t->power[0][(256 - tid) >> 1]);\n",
    "        for (u64 at = begin + 8 * tid; at < end; at += 8 * 256) words += sum_bytes(begin, end, at, 8);\n",
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
 *
 *     lmc_cuda_open -> libraries -> device, its primary context
 *                   -> the text of the kernels -> cache, or NVRTC -> cubin -> module
 *
 * Everything that is made is in struct lmc_cuda, zero until then; lmc_cuda_close frees what is not
 * zero. So a failed open is closed like any other. */

/* Half of the memory that waves of blocks take turns with (cuda_wave.h). */
typedef struct lmc__cuda_half {
    lmc__buffer jobs, pieces, ranges; /* lmc__cuda_job, ..._piece, ..._range */
    /* pinned: packed bytes as they are read; the table of the kernels, and their statuses */
    uint8_t *packed;
    lmc__gpu_block *table;
    uint32_t *status;
    /* the same on the device, statuses behind the table; decoded blocks and gathered predictions,
     * once some are needed */
    lmc__cu_address gpu_packed, gpu_table, gpu_out, gpu_base;
    lmc__cu_event copied, decoded;
    size_t packed_size, out_size;
} lmc__cuda_half;
#define LMC__CUDA_HALF_BUFFERS LMC__ROW(lmc__cuda_half, jobs, packed)

struct lmc_cuda {
    lmc_cuda_options options;
    lmc__cuda_functions f;
    void *driver, *nvrtc;
    lmc__cu_device device;
    lmc__cu_context context;
    lmc__cu_module module;
    lmc__cu_function kernels[LMC__GPU_KERNELS]; /* NULL: the device has not its shared memory */
    lmc__cu_function sums;
    unsigned n_multiprocessors;
    lmc__cu_stream own;     /* copies to the device, and of pieces on it */
    lmc__cu_event started;  /* in the caller's stream: what was there before */
    lmc__cu_address tables; /* lmc__gpu_tables */
    lmc__cu_address scratch;
    uint64_t scratch_size;
    size_t half_size; /* decoded bytes of a wave */
    lmc__cuda_half halves[2];
    /* lmc__cuda_span, of the call at hand; for blocks that the reader decodes; sizes and sums */
    lmc__buffer spans, host;
    size_t next_span; /* what is planned next: in that span, from that byte of its stream on */
    uint64_t next_at;
    lmc__cu_stream stream;               /* the caller's, of the call at hand */
    uint8_t is_passed[LMC__GPU_KERNELS]; /* leaves most blocks, in this call: it is not tried */
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
    va_start(arguments, format);
    (void)vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
    return status;
}

/* Memory of the host, and wrong arguments, where the status says it all. */
static enum lmc_status lmc__cuda_note(lmc_cuda *c, enum lmc_status status)
{
    return status == LMC_OK || c->message[0]
               ? status
               : lmc__cuda_fail(c, status, "%s", lmc_status_text(status));
}

/* error: what that function of the driver has returned. */
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

/* Calls a function of the driver, and returns from the caller's if it fails. */
#define LMC__CUDA(c, name, arguments) LMC__TRY(lmc__cuda_check(c, (c)->f.name arguments, #name))

/* Around whatever uses the device: the caller's context stays what it was. */
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
 * They stay open: the driver has threads, and things to do when the process ends. */

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

/* The first of the names that the system finds, or path, if there is one. what: its name, and where
 * to get it. */
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

/* What a file of the cache begins with: a mark, and the SHA-256 of the key and the cubin, which is
 * the rest. So neither a damaged file nor another one is taken for it. */
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

/* DIR/lmc-KEY.cubin, followed by that end. */
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

/* The cubin of the cache, if it is there and right. code->cubin has the head in front of it. */
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

/* The file appears whole or not at all. That it cannot be written is no error. */
LMC__COLD static void lmc__write_cache(const lmc_cuda *c, const lmc__cuda_code *code,
                                       const char *path)
{
    char end[64];
    lmc__buffer part;
    FILE *file;
    int is_whole;
    lmc__init_buffer(&part, c->options.alloc_user);
    (void)snprintf(end, sizeof end, ".%lu.%lx", lmc__process_number(),
                   (unsigned long)((uintptr_t)c >> 4 & 0xFFFFFF));
    if (lmc__cache_path(c, code, end, &part) == LMC_OK) {
        file = fopen((const char *)part.data, "wb");
        if (file) {
            is_whole = fwrite(code->cubin.data, 1, code->cubin.size, file) == code->cubin.size;
            is_whole &= fclose(file) == 0;
#ifdef _WIN32
            if (is_whole) (void)remove(path); /* rename() replaces nothing there */
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
        lmc__init_buffer(&text, c->options.alloc_user);
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

/* A cubin of the cache that the driver refuses is made anew, too. */
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

/* The kernels that this device can run. */
LMC__COLD static enum lmc_status lmc__find_gpu_kernels(lmc_cuda *c)
{
    int max_shared = 0, i;
    LMC__CUDA(c, cuDeviceGetAttribute, (&max_shared, LMC__CU_MAX_SHARED, c->device));
    LMC__CUDA(c, cuModuleGetFunction, (&c->sums, c->module, "lmc_sums"));
    for (i = 0; i < LMC__GPU_KERNELS; i++) {
        const lmc__gpu_kernel *const kernel = &lmc__gpu_kernels[i];
        lmc__cu_function function = NULL;
        if (kernel->shared_size > (uint32_t)max_shared) continue;
        LMC__CUDA(c, cuModuleGetFunction, (&function, c->module, kernel->name));
        LMC__CUDA(c, cuFuncSetAttribute, (function, LMC__CU_SET_SHARED, (int)kernel->shared_size));
        c->kernels[i] = function;
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__copy_tables(lmc_cuda *c)
{
    lmc__buffer buffer;
    enum lmc_status status;
    lmc__init_buffer(&buffer, c->options.alloc_user);
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
    c->n_multiprocessors = (unsigned)n;
    LMC__CUDA(c, cuStreamCreate, (&c->own, LMC__CU_NON_BLOCKING));
    LMC__CUDA(c, cuEventCreate, (&c->started, LMC__CU_NO_TIMING));
    for (i = 0; i < 2; i++) {
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].copied, LMC__CU_NO_TIMING));
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].decoded, LMC__CU_NO_TIMING));
    }
    memset(&code, 0, sizeof code);
    lmc__init_buffers(&code, LMC__CUDA_CODE_BUFFERS, c->options.alloc_user);
    lmc__init_buffer(&path, c->options.alloc_user);
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

#define LMC__DEFAULT_STAGING ((uint64_t)64 << 20)
#define LMC__MIN_STAGING ((uint64_t)2 * LMC_MAX_BLOCK_SIZE)
#define LMC__MAX_STAGING ((uint64_t)4 << 30)

LMC__COLD LMC_API enum lmc_status lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options)
{
    lmc_cuda_options o;
    lmc_cuda *c;
    unsigned i;
    if (!cuda) return LMC_ERR_ARGUMENT;
    *cuda = NULL;
    LMC__TRY(lmc__take_options(&o, sizeof o, options));
    if (o.staging_size == 0) o.staging_size = LMC__DEFAULT_STAGING;
    if (o.staging_size < LMC__MIN_STAGING || o.staging_size > LMC__MAX_STAGING ||
        o.device > INT_MAX)
        return LMC_ERR_ARGUMENT;
    c = (lmc_cuda *)LMC_REALLOC(o.alloc_user, NULL, 0, sizeof *c);
    if (!c) return LMC_ERR_MEMORY;
    memset(c, 0, sizeof *c);
    c->options = o;
    c->half_size = (size_t)(o.staging_size / 2) & ~(size_t)4095;
    lmc__init_buffers(c, LMC__CUDA_BUFFERS, o.alloc_user);
    for (i = 0; i < 2; i++) lmc__init_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS, o.alloc_user);
    *cuda = c;
    return lmc__cuda_note(c, lmc__open_device(c));
}

LMC__COLD static void lmc__free_half(lmc_cuda *c, lmc__cuda_half *h)
{
    const lmc__cu_address memory[] = {h->gpu_packed, h->gpu_table, h->gpu_out, h->gpu_base};
    unsigned i;
    for (i = 0; i < 4; i++)
        if (memory[i]) (void)c->f.cuMemFree_v2(memory[i]);
    if (h->packed) (void)c->f.cuMemFreeHost(h->packed);
    if (h->table) (void)c->f.cuMemFreeHost(h->table);
    if (h->copied) (void)c->f.cuEventDestroy_v2(h->copied);
    if (h->decoded) (void)c->f.cuEventDestroy_v2(h->decoded);
}

/* What CUDA says on the way out helps nobody. */
LMC__COLD LMC_API void lmc_cuda_close(lmc_cuda *c)
{
    unsigned i;
    if (!c) return;
    if (c->context && lmc__cuda_enter(c) == LMC_OK) {
        if (c->own) (void)c->f.cuStreamSynchronize(c->own);
        for (i = 0; i < 2; i++) lmc__free_half(c, &c->halves[i]);
        if (c->scratch) (void)c->f.cuMemFree_v2(c->scratch);
        if (c->tables) (void)c->f.cuMemFree_v2(c->tables);
        if (c->started) (void)c->f.cuEventDestroy_v2(c->started);
        if (c->own) (void)c->f.cuStreamDestroy_v2(c->own);
        if (c->module) (void)c->f.cuModuleUnload(c->module);
        lmc__cuda_leave(c);
    }
    if (c->context) (void)c->f.cuDevicePrimaryCtxRelease_v2(c->device);
    for (i = 0; i < 2; i++) lmc__free_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS);
    lmc__free_buffers(c, LMC__CUDA_BUFFERS);
    (void)LMC_REALLOC(c->options.alloc_user, c, sizeof *c, 0);
}

LMC_API const char *lmc_cuda_message(const lmc_cuda *c) { return c ? c->message : ""; }

LMC_API void lmc_cuda_get_counts(const lmc_cuda *c, lmc_cuda_counts *counts)
{
    if (c && counts) *counts = c->counts;
}

/* == gpu/cuda_plan.h =========================================================================== */

/* From parts to waves of blocks:
 *
 *     parts      |--- A -------------|         |- B -||--- C ----|
 *     spans      |--- 0 -------------|         |- 1 -||--- 2 ----|      sorted, by streams
 *     blocks     |.....|.....|.....|.....|   |.....|.....|.....|..      those that have bytes of them
 *     pieces     |  0  |  1  |  2  |3|         | 4 | 5||6|  7  |8 |     of a block that go to one part
 *     ranges     |----------- 0 ---------|   |--------- 1 ----------|   that are read at once
 *
 * A wave has as many blocks as fit in one half of the memory. Each block is in one wave. */

typedef struct lmc__cuda_span {
    size_t stream;
    uint64_t start, end; /* within the stream */
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
    uint32_t status;  /* as kernels say it */
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

/* Blocks of a wave, and so the size of its table. */
#define LMC__CUDA_MAX_JOBS ((size_t)16384)
/* Packed bytes of a wave may be more than its decoded ones: by headers, and gaps. */
#define LMC__CUDA_PACKED_MORE ((size_t)1 << 20)
/* What lies between two runs is read with them, if it is so short. */
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

/* What happened to bytes of a file, from `offset` on; job: their block, or NULL. */
LMC__COLD static enum lmc_status lmc__cuda_fail_at(lmc_cuda *c, const lmc_reader *r,
                                                   uint64_t file_number, uint64_t offset,
                                                   const lmc__cuda_job *job, enum lmc_status status)
{
    const lmc_file *const f = lmc_reader_get_file(r, (size_t)file_number);
    const char *tensor = NULL;
    char place[96] = "";
    size_t i;
    for (i = 0; f && i < f->n_tensors && !tensor; i++)
        if (offset >= f->tensors[i].offset && offset - f->tensors[i].offset < f->tensors[i].size)
            tensor = f->tensors[i].name;
    if (job)
        (void)snprintf(place, sizeof place, ", block %lu of run %lu (byte %llu of the LMC file)",
                       (unsigned long)job->number, (unsigned long)job->run,
                       (unsigned long long)lmc__block_at(r, job->run, job->number)->at);
    return lmc__cuda_fail(c, status, "%s: %s%s%s: %s", f && f->path ? f->path : "",
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

/* Begins a call. */
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

/* Packed bytes of a block go behind the others of the wave. */
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

/* The parts that want bytes of the block, which ends at `end` of its stream. Goes on to what is
 * wanted behind it. */
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
        if (c->next_at < span->end) break; /* it goes on behind the block */
        if (++c->next_span == lmc__count_spans(c)) break;
        c->next_at = span[1].start;
        if (span[1].stream != stream) break;
    }
    return LMC_OK;
}

/* The block that is wanted next, if the wave has room for it; *is_full: 1 if not. */
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
         h->packed_size + LMC__CUDA_MAX_GAP + place->size > c->half_size + LMC__CUDA_PACKED_MORE);
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

/* == gpu/cuda_wave.h =========================================================================== */

/* A wave of blocks: what the host, the link and the GPU do with it. Two waves are on the way, each
 * in its half of the memory:
 *
 *     host       | read 0 |          | read 1 |       | look at 0 | read 2 |     | look at 1 | ...
 *     own                  | copy 0 |          | copy 1 |    pieces of 0 | copy 2 |
 *     stream                         | decode 0         | decode 1      |         | decode 2 ...
 *
 * The host waits for `decoded` of a half before it looks at its statuses, and looks at them before
 * it fills the half again. `own` copies pieces of a wave before it copies the next one into that
 * half, and `stream` waits for `copied` before it decodes. So nothing is overwritten that somebody
 * still reads.
 *
 *     status of a block     OK         its pieces may be copied
 *                           NOT_HERE   kernel.next tries it; behind the last, the CPU
 *                           others     the CPU, whose word it is */

/* -- memory, once it is needed -- */

static enum lmc_status lmc__cuda_reserve(lmc_cuda *c, lmc__cu_address *address, size_t size)
{
    if (!*address) LMC__CUDA(c, cuMemAlloc_v2, (address, size));
    return LMC_OK;
}

static enum lmc_status lmc__reserve_half(lmc_cuda *c, lmc__cuda_half *h)
{
    const size_t packed_size = c->half_size + LMC__CUDA_PACKED_MORE + LMC__GPU_PAD;
    void *memory = NULL;
    if (!h->packed) {
        LMC__CUDA(c, cuMemHostAlloc, (&memory, packed_size, 0));
        h->packed = (uint8_t *)memory;
        memset(h->packed, 0, packed_size); /* the GPU may read behind a block */
    }
    if (!h->table) {
        const size_t size = LMC__CUDA_MAX_JOBS * (sizeof *h->table + sizeof *h->status);
        LMC__CUDA(c, cuMemHostAlloc, (&memory, size, 0));
        h->table = (lmc__gpu_block *)memory;
        h->status = (uint32_t *)(void *)(h->table + LMC__CUDA_MAX_JOBS);
        memset(memory, 0, size);
    }
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_packed, packed_size));
    return lmc__cuda_reserve(c, &h->gpu_table,
                             LMC__CUDA_MAX_JOBS * (sizeof *h->table + sizeof *h->status));
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

/* Several workers may read at once if the caller says so: then long ranges are cut. */
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

/* -- what is known of a block now that its header is there -- */

static lmc__cu_address lmc__address_of(const void *p, uint64_t offset)
{
    return (lmc__cu_address)(uintptr_t)p + offset;
}

/* Copies bytes [from, to) of the stream, as the parts of the block's pieces have them as their
 * base, to gpu_base; *left: how many of them no part has. */
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

/* Where the prediction of a block is, on the device: where its part has it, or gathered of several
 * parts, and zeros where a segment has none. Not all of it is there: is_by_reader. */
static enum lmc_status lmc__cuda_find_prediction(lmc_cuda *c, const lmc__run *run,
                                                 lmc__cuda_half *h, lmc__cuda_job *job)
{
    const lmc__cuda_piece *const piece = lmc__cuda_piece_at(h, job, 0);
    const lmc_cuda_part *const part = &lmc__span_at(c, piece->span)->part;
    const uint64_t end = job->at + job->info.size;
    uint32_t i = lmc__find_segment(run, job->at);
    const lmc__segment *const s = &run->segments[i];
    uint64_t at, next;
    if (run->prediction != LMC__PREDICT_BASE) {
        job->is_by_reader = 1;
        return LMC_OK;
    }
    job->base = part->base ? lmc__address_of(part->base, piece->offset) : 0;
    if (job->base && piece->size == job->info.size && job->base % job->info.width == 0 &&
        s->base != 0 && end <= s->start + s->size)
        return LMC_OK;
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_base, c->half_size));
    job->base = h->gpu_base + job->out_at;
    for (at = job->at; at < end && !job->is_by_reader; at = next, i++) {
        uint64_t left = 0;
        next = lmc__min64(end, run->segments[i].start + run->segments[i].size);
        if (run->segments[i].base == 0)
            LMC__CUDA(c, cuMemsetD8Async,
                      (job->base + (at - job->at), 0, (size_t)(next - at), c->own));
        else LMC__TRY(lmc__gather_pieces(c, h, job, at, next, &left));
        job->is_by_reader = left != 0;
    }
    return LMC_OK;
}

/* The kernel to try first: one that the device can run. */
static int lmc__usable_kernel(const lmc_cuda *c, int kernel)
{
    while (kernel != LMC__GPU_CPU && (!c->kernels[kernel] || c->is_passed[kernel]))
        kernel = lmc__gpu_kernels[kernel].next;
    return kernel;
}

/* Checks the header as the reader does, and decides who decodes the block, and where to. A block
 * that is one piece goes straight to its part, unless that has the base there. */
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
    if (job->info.has_prediction) LMC__TRY(lmc__cuda_find_prediction(c, run, h, job));
    job->kernel =
        job->is_by_reader ? LMC__GPU_CPU : lmc__usable_kernel(c, lmc__gpu_kernel_of(header, 0));
    job->out = lmc__address_of(part->dst, piece->offset);
    job->is_staged = piece->size != job->info.size || !part->dst || part->dst == part->base ||
                     job->out % job->info.width != 0;
    if (job->is_by_reader || !job->is_staged) return LMC_OK;
    LMC__TRY(lmc__cuda_reserve(c, &h->gpu_out, c->half_size));
    job->out = h->gpu_out + job->out_at;
    return LMC_OK;
}

/* -- decoding -- */

/* Scratch for n groups; less, if it would be more than the caller's staging_size. */
static enum lmc_status lmc__reserve_scratch(lmc_cuda *c, uint64_t size_of_group, unsigned *n)
{
    const uint64_t most = c->options.staging_size / (size_of_group ? size_of_group : 1);
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
              (c->kernels[kernel], n_groups, 1, 1, LMC__GPU_THREADS, 1, 1, k->shared_size,
               c->stream, arguments, NULL));
    return LMC_OK;
}

/* Whether a kernel is to do the block in this turn. */
static int lmc__is_for(const lmc__cuda_job *job, int kernel)
{
    return job->kernel == kernel && job->status == LMC__GPU_NOT_HERE;
}

static uint32_t lmc__block_flags(const lmc_reader *r, const lmc__cuda_job *job)
{
    uint32_t flags = 0;
    if (lmc__run_at(r, job->run)->run.prediction != LMC__PREDICT_ZERO)
        flags |= LMC__GPU_RUN_PREDICTED;
    if (r->info.features & (LMC__FEATURE_BASE | LMC__FEATURE_OWN)) flags |= LMC__GPU_MAY_GROUP;
    if (r->info.features & LMC__FEATURE_QUANTIZED) flags |= LMC__GPU_MAY_QUANTIZE;
    return flags;
}

/* Starts the kernels of all blocks that are not decoded yet and have one: a table, sorted by
 * kernels; when `decoded` has come, statuses are there. *n: how many blocks. */
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
            row->in = h->gpu_packed + job->packed_at;
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

/* Reads a planned wave, and starts its way through the GPU. */
static enum lmc_status lmc__start_wave(lmc_cuda *c, lmc_reader *r, lmc__cuda_half *h)
{
    size_t i, n;
    LMC__TRY(lmc__reserve_half(c, h));
    LMC__TRY(lmc__read_ranges(c, r, h));
    for (i = 0; i < lmc__count_cuda_jobs(h); i++) {
        lmc__cuda_job *const job = lmc__cuda_job_at(h, i);
        job->status = LMC__GPU_NOT_HERE;
        LMC__TRY(lmc__prepare_job(c, r, h, job));
    }
    LMC__CUDA(c, cuMemcpyHtoDAsync_v2,
              (h->gpu_packed, h->packed, h->packed_size + LMC__GPU_PAD, c->own));
    return lmc__decode_wave_on_gpu(c, r, h, &n);
}

/* -- the CPU -- */

/* Copies of the host's pageable memory, or to it, done when this returns. */
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

/* Blocks whose prediction only the reader has: neighbours are read at once, as far as they are of
 * one part. *i: the first; then the first behind them. */
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
        job[k].n_pieces = 0; /* they are copied */
        c->counts.cpu_blocks++;
        c->counts.cpu_bytes += job[k].info.size;
    }
    ++*i;
    return LMC_OK;
}

/* Blocks of the wave from number *i on that the CPU decodes, as many as make a wave of the CPU; *i:
 * the first behind them. */
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

/* Waits for the kernels, and takes their word for blocks that they have decoded; those that a
 * kernel leaves go to its next one. *n: how many there are for it. A kernel that leaves most of its
 * blocks is not tried again in this call. */
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

/* Ends a wave that was started: whatever its blocks take, and then their pieces. */
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

/* lmc_cuda_read: waves in turns, then the fingerprints of what is whole. */

/* -- fingerprints -- */

/* What sums.cu knows as SumPiece and Sums. */
typedef struct lmc__gpu_piece {
    uint64_t at;
    uint32_t size, reserved;
} lmc__gpu_piece;
typedef struct lmc__gpu_sums {
    uint64_t words;
    uint32_t crc, reserved;
} lmc__gpu_sums;
#define LMC__GPU_SUMS_SHARED (256 * 8 + 5 * 256 * 4)

/* Goes through the leaves of all tensors that lie whole in a part, and of whole files, span by
 * span. Two of these make the same pieces: one plans a batch of sums, the other one takes them. */
typedef struct lmc__cuda_walk {
    size_t next_span;
    uint64_t at, end; /* of the file of the span at hand */
    const lmc__cuda_span *span;
    int is_file;   /* all of the file: it has a CRC, too */
    lmc_file file; /* only those tensors */
    lmc__digester digester;
} lmc__cuda_walk;

/* Where nothing is to be checked, at is end. */
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

/* The next piece, at most a leaf; 0: there is none. */
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

/* All pieces of a span were absorbed. */
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

/* Sums of n pieces, whose places are in the table of the first half, to its place behind them. */
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

/* The next piece, whose sums are known. */
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
    piece.sum = sums->words;
    piece.crc = piece.part_crc = ~lmc__crc32c_combine(UINT32_MAX, sums->crc, piece.size);
    piece.part_size = piece.size;
    lmc__absorb_piece(&w->digester, &piece, NULL);
    return w->at == w->end ? lmc__confirm_span(c, r, w) : LMC_OK;
}

static enum lmc_status lmc__check_whole(lmc_cuda *c, lmc_reader *r)
{
    lmc__gpu_piece *const rows = (lmc__gpu_piece *)(void *)c->halves[0].table;
    lmc__gpu_sums *const sums = (lmc__gpu_sums *)(void *)(rows + LMC__CUDA_MAX_JOBS);
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

LMC__COLD LMC_API enum lmc_status lmc_cuda_read(lmc_cuda *c, lmc_reader *r,
                                                const lmc_cuda_part *parts, size_t n, void *stream)
{
    enum lmc_status status;
    if (!c) return LMC_ERR_ARGUMENT;
    c->message[0] = 0;
    if (!c->tables || !r || (n && !parts) || r->is_salvage)
        return lmc__cuda_note(c, LMC_ERR_ARGUMENT);
    c->stream = (lmc__cu_stream)stream;
    memset(c->is_passed, 0, sizeof c->is_passed);
    LMC__TRY(lmc__take_parts(c, r, parts, n));
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__cuda_note(c, lmc__read_waves(c, r));
    /* after an error nothing may be on its way to memory that the caller frees */
    if (status != LMC_OK) {
        (void)c->f.cuStreamSynchronize(c->own);
        (void)c->f.cuStreamSynchronize(c->stream);
    }
    lmc__cuda_leave(c);
    return status;
}

#endif /* LMC_IMPLEMENTATION */
