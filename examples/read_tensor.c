/* read_tensor.c - reads one tensor from a snapshot by its name, without restoring the rest
 * SPDX-License-Identifier: MIT
 *
 *   cc -O2 read_tensor.c -o read_tensor
 *   ./read_tensor model.safetensors.lmc transformer.wte.weight > wte.bin
 */
#define _FILE_OFFSET_BITS 64
#define _XOPEN_SOURCE 700
#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* The library calls this for bytes at an offset. They may come from anywhere: a file, an object
 * store, memory. */
static enum lmc_status read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    FILE *file = (FILE *)user;
    return fseeko(file, (off_t)offset, SEEK_SET) == 0 && fread(dst, 1, size, file) == size
               ? LMC_OK
               : LMC_ERR_READ;
}

static int open_source(lmc_source *source, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseeko(file, 0, SEEK_END) != 0) return 0;
    memset(source, 0, sizeof *source); /* members of later versions */
    source->read_at = read_at;
    source->user = file;
    source->size = (uint64_t)ftello(file);
    return 1;
}

/* Finds the tensor, decodes the blocks that hold it, and writes its bytes to standard output. */
static enum lmc_status copy_tensor(lmc_reader *reader, const char *name)
{
    const lmc_tensor *tensor;
    size_t file_number;
    unsigned char *data;
    enum lmc_status status = lmc_reader_find_tensor(reader, NULL, name, &file_number, &tensor);
    if (status != LMC_OK) return status;
    if (tensor->size > SIZE_MAX - 1) return LMC_ERR_SIZE;
    data = (unsigned char *)malloc((size_t)tensor->size + 1);
    if (!data) return LMC_ERR_MEMORY;
    fprintf(stderr, "%s: %s, rank %u, %llu bytes\n", name, tensor->dtype, tensor->rank,
            (unsigned long long)tensor->size);
    status = lmc_reader_read_tensor(reader, file_number, tensor, 0, data, (size_t)tensor->size);
    if (status == LMC_OK && fwrite(data, 1, (size_t)tensor->size, stdout) != tensor->size)
        status = LMC_ERR_WRITE;
    free(data);
    return status;
}

int main(int argc, char **argv)
{
    lmc_source source;
    lmc_reader *reader = NULL;
    enum lmc_status status;
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE.lmc TENSOR\n", argv[0]);
        return 2;
    }
    if (!open_source(&source, argv[1])) {
        perror(argv[1]);
        return 1;
    }
    status = lmc_reader_open(&reader, &source, NULL);
    if (status == LMC_OK) status = copy_tensor(reader, argv[2]);
    if (status != LMC_OK) fprintf(stderr, "%s: %s\n", argv[1], lmc_status_text(status));
    lmc_reader_free(reader);
    fclose((FILE *)source.user);
    return status == LMC_OK && fflush(stdout) == 0 ? 0 : 1;
}
