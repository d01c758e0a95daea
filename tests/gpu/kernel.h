/* SPDX-License-Identifier: MIT
 * The kernels of src/gpu/decode.cu, run on the CPU (kernel.cpp), or by the driver
 * (kernel_on_gpu.cpp): for tests and harnesses. */
#ifndef KERNEL_H
#define KERNEL_H
#include <stddef.h>
#include <stdint.h>

/* A block that a kernel is to decode; as lmc__gpu_block, with addresses as pointers. */
struct gpu_job {
    const uint8_t *in; /* KERNEL_PAD bytes behind in_size can be read */
    uint8_t *out;
    const uint8_t *base;
    uint32_t in_size, out_size, number, flags;
};

enum { KERNEL_CPU = -1, KERNEL_NOT_HERE = 0xFF, KERNEL_PAD = 16 };
enum {
    KERNEL_RUN_PREDICTED = 1,
    KERNEL_MAY_GROUP = 2,
    KERNEL_MAY_QUANTIZE = 4,
    KERNEL_MAY_PART = 8,
    KERNEL_MAY_MATRIX = 16,
    KERNEL_MAY_CODES = 32,
    KERNEL_ALL_FLAGS = 63
};

extern const bool gpu_is_simulated; /* on the CPU, whose shim says what a kernel does */
int gpu_kernel_of(const uint8_t *header, int in_place);
int gpu_next_kernel(int kernel);
int gpu_count_kernels(void);
const char *gpu_kernel_name(int kernel);

/* One launch of a kernel, with so many groups. The order of threads is drawn from cpu::seed. */
void gpu_run(int kernel, const gpu_job *jobs, uint32_t n, uint32_t groups, uint32_t *status);

#endif
