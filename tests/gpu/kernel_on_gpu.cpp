/* SPDX-License-Identifier: MIT
 * kernel.h by the driver: the kernels that lmc_cuda.h has compiled, on a GPU, or on the stand-ins
 * of fake_cuda.cpp. So test_kernel asks the hardware what it asks the shim.
 *
 *     LMC_CUDA_CACHE   a directory for compiled kernels     LMC_NVRTC   the path of NVRTC
 *
 * Every block has memory of its own, as large as it may be, at the place within 16 bytes that the
 * test has chosen: compute-sanitizer's memcheck finds what is accessed beside it. */
#include <vector>
#define LMC_STATIC
#define LMC_IMPLEMENTATION
#include "../../lmc.h"
#include "../../include/lmc_cuda.h"
#include "kernel.h"

const bool gpu_is_simulated = false;

int gpu_kernel_of(const uint8_t *header, int in_place)
{
    return lmc__gpu_kernel_of(header, in_place);
}
int gpu_next_kernel(int kernel) { return lmc__gpu_kernels[kernel].next; }
int gpu_count_kernels(void) { return LMC__GPU_KERNELS; }
const char *gpu_kernel_name(int kernel) { return lmc__gpu_kernels[kernel].name; }

namespace
{
lmc_cuda *cuda;

[[noreturn]] void stop(const char *what, int error)
{
    fprintf(stderr, "%s: error %d of CUDA: %s\n", what, error, lmc_cuda_message(cuda));
    exit(1);
}
#define CALL(name, ...)                                                                            \
    if (const int error = cuda->f.name(__VA_ARGS__)) stop(#name, error)

void open()
{
    lmc_cuda_options options = LMC_DEFAULTS;
    options.cache_dir = getenv("LMC_CUDA_CACHE");
    options.nvrtc_path = getenv("LMC_NVRTC");
    const lmc_status status = lmc_cuda_open(&cuda, &options);
    if (status != LMC_OK) stop("lmc_cuda_open", status);
    CALL(cuCtxPushCurrent_v2, cuda->context);
}

/* Memory of the device, with what the host has there. */
struct copy {
    lmc__cu_address memory, at;
    copy(const void *data, size_t size, size_t pad = 0) : memory(0)
    {
        const size_t offset = (uintptr_t)data % 16;
        CALL(cuMemAlloc_v2, &memory, offset + size + pad + (offset + size + pad == 0));
        at = memory + offset;
        if (size) CALL(cuMemcpyHtoDAsync_v2, at, data, size + pad, NULL);
    }
    ~copy() { (void)cuda->f.cuMemFree_v2(memory); }
    copy(const copy &) = delete;
    void back(void *data, size_t size) const
    {
        if (size) CALL(cuMemcpyDtoHAsync_v2, data, at, size, NULL);
    }
};
} // namespace

void gpu_run(int kernel, const gpu_job *jobs, uint32_t n, uint32_t groups, uint32_t *status)
{
    if (!cuda) open();
    std::vector<lmc__gpu_block> blocks(n);
    std::vector<copy *> kept;
    std::vector<const copy *> outs;
    size_t largest = 0;
    if (!cuda->kernels[kernel]) { /* this device has not its shared memory */
        for (uint32_t i = 0; i < n; i++) status[i] = KERNEL_NOT_HERE;
        return;
    }
    const auto keep = [&](copy *c) {
        kept.push_back(c);
        return c;
    };
    for (uint32_t i = 0; i < n; i++) {
        const gpu_job &j = jobs[i];
        const copy *const out = keep(new copy(j.out, j.out_size));
        outs.push_back(out);
        blocks[i].in = keep(new copy(j.in, j.in_size, KERNEL_PAD))->at;
        blocks[i].out = out->at;
        blocks[i].base = j.base == j.out ? out->at
                         : j.base        ? keep(new copy(j.base, j.out_size))->at
                                         : 0;
        blocks[i].in_size = j.in_size;
        blocks[i].out_size = j.out_size;
        blocks[i].number = j.number;
        blocks[i].flags = j.flags;
        status[i] = 12345;
        if (j.out_size > largest) largest = j.out_size;
    }
    uint64_t scratch_size = lmc__gpu_scratch_size(kernel, largest);
    std::vector<uint8_t> garbage((size_t)(groups * scratch_size), 0xA5);
    const copy table(blocks.data(), n * sizeof blocks[0]), statuses(status, n * sizeof *status),
        scratch(garbage.data(), garbage.size());
    lmc__cu_address arguments[] = {table.at,       n,           statuses.at, cuda->tables,
                                   scratch.memory, scratch_size};
    void *pointers[6];
    for (size_t i = 0; i < 6; i++) pointers[i] = &arguments[i];
    CALL(cuLaunchKernel, cuda->kernels[kernel], groups, 1, 1, LMC__GPU_THREADS, 1, 1,
         cuda->shared[kernel], NULL, pointers, NULL);
    CALL(cuStreamSynchronize, NULL);
    statuses.back(status, n * sizeof *status);
    for (uint32_t i = 0; i < n; i++) outs[i]->back(jobs[i].out, jobs[i].out_size);
    CALL(cuStreamSynchronize, NULL);
    for (copy *c : kept) delete c;
}
