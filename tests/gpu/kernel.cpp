/* SPDX-License-Identifier: MIT
 * src/gpu/decode.cu under the shim, with what the host knows of it. Compiled with -Isrc and, for
 * the check of races, -fsanitize=thread. */
#include <stdio.h>
#include <stdlib.h>
#define LMC_IMPLEMENTATION
#include "objects/object.h"
#include "gpu/kernels.h"
#include "kernel.h"
#include "cuda_on_cpu.h"
#include "gpu/decode.cu"

static_assert(sizeof(Block) == sizeof(lmc__gpu_block) && sizeof(Tables) == sizeof(lmc__gpu_tables),
              "host and kernel have the same structs");
static_assert((int)KERNEL_PAD == (int)LMC__GPU_PAD && (int)KERNEL_CPU == (int)LMC__GPU_CPU &&
                  (int)KERNEL_NOT_HERE == (int)LMC__GPU_NOT_HERE &&
                  (int)KERNEL_RUN_PREDICTED == (int)LMC__GPU_RUN_PREDICTED &&
                  (int)KERNEL_MAY_GROUP == (int)LMC__GPU_MAY_GROUP &&
                  (int)KERNEL_MAY_QUANTIZE == (int)LMC__GPU_MAY_QUANTIZE &&
                  (int)KERNEL_MAY_PART == (int)LMC__GPU_MAY_PART &&
                  (int)KERNEL_MAY_MATRIX == (int)LMC__GPU_MAY_MATRIX &&
                  (int)KERNEL_MAY_CODES == (int)LMC__GPU_MAY_CODES,
              "the same numbers");

const bool gpu_is_simulated = true;

int gpu_kernel_of(const uint8_t *header, int in_place)
{
    return lmc__gpu_kernel_of(header, in_place);
}
int gpu_next_kernel(int kernel) { return lmc__gpu_kernels[kernel].next; }
int gpu_count_kernels(void) { return LMC__GPU_KERNELS; }
const char *gpu_kernel_name(int kernel) { return lmc__gpu_kernels[kernel].name; }

typedef void kernel_function(const Block *, u32, u32 *, const Tables *, u8 *, u64);

/* By its name, as the driver finds it. */
static kernel_function *find(const char *name)
{
    static const struct {
        const char *name;
        kernel_function *function;
    } functions[] = {{"lmc_decode_planes", lmc_decode_planes}, {"lmc_decode_any", lmc_decode_any}};
    for (const auto &f : functions)
        if (strcmp(f.name, name) == 0) return f.function;
    cpu::stop("there is no kernel %s", name);
}

void gpu_run(int kernel, const gpu_job *jobs, uint32_t n, uint32_t groups, uint32_t *status)
{
    static lmc__gpu_tables *tables;
    const lmc__gpu_kernel &k = lmc__gpu_kernels[kernel];
    Block *const blocks = (Block *)malloc(n * sizeof *blocks);
    u32 *const statuses = (u32 *)malloc(n * sizeof *statuses), i, largest = 0;
    size_t scratch_size;
    void *scratch = NULL;
    if (!tables) {
        tables = (lmc__gpu_tables *)malloc(sizeof *tables);
        if (tables) lmc__gpu_make_tables(tables);
    }
    if (!blocks || !statuses || !tables) cpu::stop("no memory");
    for (i = 0; i < n; i++) {
        const lmc__gpu_block b = {
            (uint64_t)jobs[i].in, (uint64_t)jobs[i].out, (uint64_t)jobs[i].base, jobs[i].in_size,
            jobs[i].out_size,     jobs[i].number,        jobs[i].flags};
        memcpy(&blocks[i], &b, sizeof b);
        if (jobs[i].out_size > largest) largest = jobs[i].out_size;
        statuses[i] = 12345;
    }
    scratch_size = lmc__gpu_scratch_size(kernel, largest);
    if (scratch_size && posix_memalign(&scratch, 256, groups * scratch_size))
        cpu::stop("no memory");
    kernel_function *const function = find(k.name);
    cpu::launch(groups, LMC__GPU_THREADS, k.shared_size, [&] {
        function(blocks, n, statuses, (const Tables *)tables, (u8 *)scratch, scratch_size);
    });
    memcpy(status, statuses, n * sizeof *status);
    free(scratch);
    free(statuses);
    free(blocks);
}
