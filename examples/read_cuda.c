/* read_cuda.c - reads one tensor to the memory of a GPU, which decodes it (experimental)
 * SPDX-License-Identifier: MIT
 *
 *   cc -O2 read_cuda.c -o read_cuda -lcuda
 *   ./read_cuda model.safetensors.lmc transformer.wte.weight > wte.bin
 *
 * With the CUDA Toolkit, include <cuda.h> or use cudaMalloc. This program needs neither.
 */
#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_cuda.h"

#include <stdlib.h>

/* Declarations of <cuda.h>. */
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuMemAlloc_v2(CUdeviceptr *address, size_t size);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size);

/* Reads the tensor to the device, and copies it from there to standard output. */
static enum lmc_status copy_tensor(lmc_cuda *cuda, lmc_reader *reader, const char *name)
{
    lmc_cuda_part part = LMC_DEFAULTS;
    const lmc_tensor *tensor;
    size_t file_number, size;
    CUdeviceptr memory;
    enum lmc_status status = lmc_reader_find_tensor(reader, NULL, name, &file_number, &tensor);
    void *data;
    if (status != LMC_OK) return status;
    if (tensor->size > SIZE_MAX - 1) return LMC_ERR_SIZE;
    size = (size_t)tensor->size;
    if (cuMemAlloc_v2(&memory, size + 1) != 0) return LMC_ERR_MEMORY;
    part.file_number = file_number;
    part.offset = tensor->offset;
    part.size = size;
    part.dst = (void *)(uintptr_t)memory;
    status = lmc_cuda_read(cuda, reader, &part, 1, NULL); /* for several tensors, use one call */
    data = malloc(size + 1);
    if (!data) status = LMC_ERR_MEMORY;
    if (status == LMC_OK && cuMemcpyDtoH_v2(data, memory, size) != 0) status = LMC_ERR_DEVICE;
    if (status == LMC_OK && fwrite(data, 1, size, stdout) != size) status = LMC_ERR_WRITE;
    free(data);
    (void)cuMemFree_v2(memory);
    return status;
}

int main(int argc, char **argv)
{
    lmc_reader *reader = NULL;
    lmc_cuda *cuda = NULL;
    CUcontext context;
    lmc_source source;
    FILE *file;
    enum lmc_status status;
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE.lmc TENSOR\n", argv[0]);
        return 2;
    }
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
        cuCtxSetCurrent(context) != 0) {
        fprintf(stderr, "%s: no GPU\n", argv[0]);
        return 1;
    }
    file = fopen(argv[1], "rb");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    status = lmc_stdio_source(&source, file);
    if (status == LMC_OK) status = lmc_reader_open(&reader, &source, NULL);
    if (status == LMC_OK) status = lmc_cuda_open(&cuda, NULL);
    if (status == LMC_OK) status = copy_tensor(cuda, reader, argv[2]);
    if (status != LMC_OK)
        fprintf(stderr, "%s: %s\n", argv[1],
                *lmc_cuda_message(cuda) ? lmc_cuda_message(cuda) : lmc_status_text(status));
    lmc_cuda_free(cuda);
    lmc_reader_free(reader);
    fclose(file);
    return status == LMC_OK && fflush(stdout) == 0 ? 0 : 1;
}
