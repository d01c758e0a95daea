#pragma once
#include "api.h"

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
    /* Or NULL: paths of libcuda and of NVRTC. By default what the system's loader finds:
     * libcuda.so.1 and libnvrtc.so.13, .12 or .11.2; nvcuda.dll and nvrtc64_130_0.dll, _120_0 or
     * _112_0. */
    const char *driver_path, *nvrtc_path;
    /* Bytes of decoded blocks on the way at once: 8 MiB to 4 GiB; 0: chosen in each call, so that
     * each group of threads that the GPU can run has a block of the largest size in the parts, but
     * mostly no more than a quarter of the memory that is free on the device is taken. Memory of
     * the device: at most three times that, and what kernels need beside, at most four times that;
     * of full tensors mostly a third of it. Pinned memory of the host: some 2 MiB more than that,
     * and at most 132 MiB. */
    uint64_t staging_size;
    void *alloc_user;
} lmc_cuda_options;

/* Opens the libraries and the device, and compiles the kernels or takes them from the cache.
 * *cuda is NULL after ARGUMENT and MEMORY. After DEVICE (a library is missing, there is no GPU, the
 * GPU is too old, CUDA fails) it is an object that has the message, and is to be closed. */
LMC_STATUS lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options);
/* NULL allowed. */
LMC_API void lmc_cuda_close(lmc_cuda *cuda);
/* Frees the memory of the device that calls have left for the next ones. The kernels stay, and so
 * does pinned memory, which takes long to get. */
LMC_API void lmc_cuda_trim(lmc_cuda *cuda);
/* What failed in the last call: one line for a user, which names the file, tensor and block, or the
 * library or function of CUDA, and says what to do. "" after LMC_OK. Valid until the next call. */
LMC_API const char *lmc_cuda_message(const lmc_cuda *cuda);

/* -- a base on the device -- */

/* Tensors in device memory, as what a delta was made against. */
typedef struct lmc_cuda_base lmc_cuda_base;

/* data[i]: the bytes of tensors[i], which needs name, dtype, rank, shape and size; offsets and
 * fingerprints are not looked at: these are computed on the GPU, after what was put into `stream`
 * before. So when tensors have changed, as in place, another base is to be opened for the next
 * delta. Strings, shapes and bytes stay the caller's, and so does `cuda`, which must be closed
 * last; the array of tensors is copied. *base is NULL on errors: ARGUMENT, MEMORY, DEVICE. */
LMC_STATUS lmc_cuda_base_open(lmc_cuda_base **base, lmc_cuda *cuda, const lmc_tensor *tensors,
                              const void *const *data, size_t n, void *stream);
/* NULL allowed. No reader may have it any more. */
LMC_API void lmc_cuda_base_close(lmc_cuda_base *base);
/* For lmc_reader_options.base: lmc_reader_open() says BASE_WRONG of another one. lmc_cuda_read then
 * predicts blocks on the GPU; what it cannot do, and every other call, gets its bytes from there.
 * Valid until `base` is closed. */
LMC_API const lmc_base *lmc_cuda_base_get(const lmc_cuda_base *base);

/* *can: 1 if bytes [offset, offset + size) of a file may be read to where the base has the tensors
 * of their names, while other parts are, too: nothing else predicts them, or what is in one block
 * with them. Others (twins, for example) are to be read before that, to another place. reader: with
 * a base. ARGUMENT: it has none, or the file fewer bytes. */
LMC_STATUS lmc_cuda_can_read_in_place(const lmc_reader *reader, uint64_t file_number,
                                      uint64_t offset, uint64_t size, int *can);

/* -- reading -- */

/* Bytes [offset, offset + size) of a file of the snapshot, to device memory. */
typedef struct lmc_cuda_part {
    uint64_t file_number, offset, size;
    /* On the device, size bytes; NULL: they are only decoded and checked, but for fingerprints.
     * Where it is not a multiple of the element's width, or blocks cross into another part, bytes
     * are copied once more there. */
    void *dst;
    /* Or NULL. Of a delta: those bytes of the base, on the device: those at the same place of the
     * file, as where a delta is restored in place (lmc_reader_can_restore_in_place). It may be dst:
     * then no byte of it is overwritten before the block that it is of was decoded and checked.
     * Otherwise nothing may write to it meanwhile: it may not overlap the dst of another part.
     * A wrong base is found by the CRC of each block. Without it, blocks are predicted by the base
     * of the reader: on the GPU if it is a lmc_cuda_base, which dst may then be a part of as it may
     * of this one (lmc_cuda_can_read_in_place); else on the CPU. If the reader has a lmc_cuda_base
     * and a part has this, the lmc_cuda_base predicts. */
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

/* The same, of packed bytes that are on the device already, as GPUDirect Storage puts them there:
 * `packed` has bytes [at, at + size) of the LMC file. They must hold all blocks of the parts
 * (lmc_reader_encoded_range of lmc_extra.h tells where those are) and 16 bytes behind the last one,
 * and stay as they are. Only the headers of blocks are copied to the host, and what the CPU
 * decodes; what other tensors of the snapshot predict is read by the reader. Errors are those of
 * lmc_cuda_read; ARGUMENT, too, if a block is not in these bytes. */
LMC_STATUS lmc_cuda_read_packed(lmc_cuda *cuda, lmc_reader *reader, const lmc_cuda_part *parts,
                                size_t n, const void *packed, uint64_t at, uint64_t size,
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
