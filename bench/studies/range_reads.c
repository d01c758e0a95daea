/* Counts requests and bytes to open LMC files and to read one tensor of the first, for
 * bench/studies/format.py.
 *
 *   cc -O2 -I. bench/studies/range_reads.c -o build/range_reads
 *   build/range_reads TENSOR FILE [BASE...]
 *
 * Each BASE is the base of the file before it. Prints for opening and for reading the tensor:
 * requests / bytes, over all files.
 * SPDX-License-Identifier: MIT
 */
#define LMC_IMPLEMENTATION
#include "lmc.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_FILES = 16 };

typedef struct counted {
    FILE *file;
    unsigned long n_requests, n_bytes;
} counted;

static enum lmc_status read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    counted *c = (counted *)user;
    c->n_requests++;
    c->n_bytes += size;
    if (fseek(c->file, (long)offset, SEEK_SET) != 0) return LMC_ERR_READ;
    return fread(dst, 1, size, c->file) == size ? LMC_OK : LMC_ERR_READ;
}

static int say(counted *files, int n, const char *end)
{
    unsigned long n_requests = 0, n_bytes = 0;
    for (int i = 0; i < n; i++) {
        n_requests += files[i].n_requests;
        n_bytes += files[i].n_bytes;
        files[i].n_requests = files[i].n_bytes = 0;
    }
    return printf("%lu / %lu%s", n_requests, n_bytes, end);
}

int main(int argc, char **argv)
{
    int n = argc - 2;
    counted files[MAX_FILES] = {{NULL, 0, 0}};
    lmc_reader *readers[MAX_FILES] = {NULL};
    lmc_base base;
    const lmc_tensor *tensor;
    size_t file_number;
    enum lmc_status status = LMC_OK;
    if (n < 1 || n > MAX_FILES) return fprintf(stderr, "range_reads TENSOR FILE [BASE...]\n"), 2;
    for (int i = n - 1; i >= 0 && status == LMC_OK; i--) {
        lmc_source source = {read_at, &files[i], 0, {0, 0}};
        lmc_reader_options options;
        options = LMC_READER_OPTIONS();
        files[i].file = fopen(argv[2 + i], "rb");
        if (!files[i].file) return perror(argv[2 + i]), 1;
        fseek(files[i].file, 0, SEEK_END);
        source.size = (uint64_t)ftell(files[i].file);
        if (i < n - 1) {
            base = lmc_reader_base(readers[i + 1]);
            options.base = (lmc_base *)malloc(sizeof base); /* it must outlive the reader */
            if (!options.base) return 1;
            memcpy((void *)(uintptr_t)options.base, &base, sizeof base);
        }
        status = lmc_reader_open(&readers[i], &source, &options);
    }
    if (status == LMC_OK) {
        say(files, n, " | ");
        status = lmc_reader_find_tensor(readers[0], NULL, argv[1], &file_number, &tensor);
    }
    if (status == LMC_OK) {
        void *data = malloc((size_t)tensor->size + 1);
        if (!data) return 1;
        status =
            lmc_reader_read_tensor(readers[0], file_number, tensor, 0, data, (size_t)tensor->size);
        say(files, n, "\n");
        free(data);
    }
    for (int i = 0; i < n; i++) {
        lmc_reader_free(readers[i]);
        if (files[i].file) fclose(files[i].file);
    }
    if (status != LMC_OK) fprintf(stderr, "%s\n", lmc_status_text(status));
    return status != LMC_OK;
}
