#pragma once
#include "api.h"

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
