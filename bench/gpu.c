/* gpu.c - what bench/gpu.py needs to know about an LMC file, and about the kernels
 * SPDX-License-Identifier: MIT
 *
 *     gpu FILE.lmc DIR   writes to DIR: decode.cu, tables.bin, blocks.bin; and prints the kernels
 *
 * blocks.bin has a row for each block: where it is in the LMC file, and in the file that this
 * restores, its kernel (u64); stored size, size, number, flags (u32). For each kernel: name, shared
 * memory, the least of it, groups per multiprocessor, next kernel, scratch of the largest block. */
#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_cuda.h"

static int write_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[1024];
    FILE *file;
    int is_written;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "wb");
    is_written = file && fwrite(data, 1, size, file) == size;
    return file && fclose(file) == 0 && is_written;
}

static int write_text(const char *dir)
{
    static char text[1 << 20];
    size_t i, n = 0;
    for (i = 0; lmc__cuda_text[i]; i++) {
        const size_t size = strlen(lmc__cuda_text[i]);
        if (size > sizeof text - n) return 0;
        memcpy(text + n, lmc__cuda_text[i], size);
        n += size;
    }
    return write_file(dir, "decode.cu", text, n);
}

struct row {
    uint64_t at, out, kernel;
    uint32_t in_size, size, number, flags;
};

/* Lists the blocks of runs without a prediction; NULL: the file is damaged, or there is no
 * memory. */
static struct row *list_blocks(lmc_reader *r, FILE *file, size_t *n, uint64_t *largest)
{
    const size_t n_runs = lmc__count_runs(&r->tables);
    struct row *rows = NULL;
    uint64_t k;
    size_t i;
    *n = 0;
    *largest = 0;
    for (i = 0; i < n_runs; i++) {
        const lmc__run run = lmc__run_at(r, i)->run;
        struct row *const more =
            (struct row *)realloc(rows, (*n + (size_t)run.n_blocks + 1) * sizeof *rows);
        if (!more || lmc__load_rows(r, i, NULL) != LMC_OK) return NULL;
        rows = more;
        if (run.prediction != LMC__PREDICT_ZERO) continue;
        for (k = 0; k < run.n_blocks; k++) {
            const lmc__block_place *const place = lmc__block_at(r, i, k);
            struct row *const row = &rows[(*n)++];
            uint8_t header[LMC_BLOCK_HEADER_SIZE];
            if (fseek(file, (long)place->at, SEEK_SET) != 0 ||
                fread(header, 1, sizeof header, file) != sizeof header)
                return NULL;
            row->at = place->at;
            row->in_size = place->size;
            row->size = (uint32_t)lmc__block_size_at(&run, k);
            row->number = (uint32_t)k;
            row->flags = r->info.features & LMC_FEATURE_QUANTIZED ? LMC__GPU_MAY_QUANTIZE : 0;
            row->kernel = (uint64_t)(int64_t)lmc__gpu_kernel_of(header, 0);
            row->out = run.start + k * run.block_size;
            if (row->size > *largest) *largest = row->size;
        }
    }
    return rows;
}

int main(int argc, char **argv)
{
    static lmc__gpu_tables tables;
    lmc_reader *reader = NULL;
    lmc_source source;
    uint64_t largest;
    struct row *rows;
    FILE *file;
    size_t n;
    int i;
    if (argc != 3) {
        fprintf(stderr, "usage: gpu FILE.lmc DIR\n");
        return 2;
    }
    file = fopen(argv[1], "rb");
    if (!file || lmc_stdio_source(&source, file) != LMC_OK ||
        lmc_reader_open(&reader, &source, NULL) != LMC_OK) {
        fprintf(stderr, "%s: cannot be read\n", argv[1]);
        return 1;
    }
    lmc__gpu_make_tables(&tables);
    rows = list_blocks(reader, file, &n, &largest);
    if (!rows || !write_file(argv[2], "blocks.bin", rows, n * sizeof *rows) ||
        !write_file(argv[2], "tables.bin", &tables, sizeof tables) || !write_text(argv[2])) {
        fprintf(stderr, "%s: it is damaged, or %s cannot be written\n", argv[1], argv[2]);
        return 1;
    }
    for (i = 0; i < LMC__GPU_KERNELS; i++)
        printf("%s %u %u %u %d %llu\n", lmc__gpu_kernels[i].name,
               (unsigned)lmc__gpu_kernels[i].shared_size,
               (unsigned)lmc__gpu_kernels[i].shared_least, (unsigned)lmc__gpu_kernels[i].groups,
               lmc__gpu_kernels[i].next,
               (unsigned long long)lmc__gpu_scratch_size(i, (size_t)largest));
    free(rows);
    lmc_reader_free(reader);
    (void)fclose(file);
    return 0;
}
