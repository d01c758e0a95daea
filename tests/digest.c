/* Prints one line for each of many encodings of fixed data: its size and SHA-256. tests/run compares the output across
 * compilers, word sizes, byte orders, tiers and thread counts. Not kept: compressed bytes may change with the version.
 *   digest [WORKERS]   encode with that many threads (default: none)
 *   digest --tiers     the tiers of this build on this machine, one per line */
#include "t_io.h"

static void show(const char *what, const uint8_t *data, size_t size)
{
    t_sha sha;
    uint8_t digest[32];
    int i;
    t_sha_begin(&sha);
    t_sha_add(&sha, data, size);
    t_sha_end(&sha, digest);
    printf("%-32s %8lu ", what, (unsigned long)size);
    for (i = 0; i < 32; i++) printf("%02x", digest[i]);
    printf("\n");
}

/* Tensors against a prediction: of every dtype, near it and far from it. */
static int show_deltas(const lmc_parallel *parallel)
{
    static const size_t counts[] = {5, 300, 6000, 20000, 70001};
    uint8_t *src = (uint8_t *)malloc(600000), *base = (uint8_t *)malloc(600000), *enc = (uint8_t *)malloc(700000);
    int dtype, how, level;
    size_t i;
    if (src == NULL || base == NULL || enc == NULL) return 0;
    for (level = LMC_LEVEL_DEFAULT; level <= LMC_LEVEL_MAX; level++)
        for (dtype = 0; dtype < LMC_DTYPE_COUNT; dtype++)
            for (how = 0; how < T_BASES; how++)
                for (i = 0; i < sizeof counts / sizeof *counts; i++) {
                    static const enum t_kind kinds[] = {T_GAUSS, T_SPECIAL, T_SPARSE};
                    const enum t_kind kind = kinds[(i + (size_t)how + (size_t)level) % 3];
                    const size_t size = counts[i] * lmc_dtype_width((enum lmc_dtype)dtype);
                    lmc_tensor_options options;
                    size_t enc_size = 0, ws_size;
                    uint8_t *ws;
                    char name[80];
                    if (counts[i] > 300 && dtype != LMC_AUTO && dtype != LMC_BF16 && dtype != LMC_F32 && dtype != LMC_F64 && dtype != LMC_U8) continue;
                    memset(&options, 0, sizeof options);
                    options.dtype = (enum lmc_dtype)dtype;
                    options.level = (enum lmc_level)level;
                    options.log2_block = i == 3 ? 14 : 17;
                    options.parallel = parallel;
                    options.prediction = base;
                    options.prediction_size = size;
                    t_fill(src, size, kind, options.dtype, i);
                    t_fill_base(base, src, size, (enum t_base)how, kind, options.dtype, i);
                    ws_size = lmc_tensor_workspace_size(&options);
                    if ((ws = (uint8_t *)malloc(ws_size)) == NULL) return 0;
                    if (lmc_encode_tensor(enc, 700000, &enc_size, src, size, &options, ws, ws_size) != LMC_OK) return 0;
                    sprintf(name, "%s%s %s %s %lu", level ? "max " : "", lmc_dtype_name(options.dtype), t_kind_names[kind], t_base_names[how], (unsigned long)counts[i]);
                    show(name, enc, enc_size);
                    free(ws);
                }
    free(src);
    free(base);
    free(enc);
    return 1;
}

int main(int argc, char **argv)
{
    static const size_t counts[] = {1, 3, 100, 257, 4096, 16385, 65536, 150000};
    static t_model model;
    static const uint64_t shape[2] = {300, 100};
    unsigned workers = 0;
    lmc_parallel parallel;
    lmc_writer_options options;
    lmc_tensor tensors[2];
    t_memory out;
    int dtype, kind, level;
    size_t k, size = 1200000;
    uint8_t *src = (uint8_t *)malloc(size), *enc = (uint8_t *)malloc(2 * size), *ws;

    t_begin(argc, argv);
    if (argc > 1) workers = (unsigned)atoi(argv[1]);
    if (src == NULL || enc == NULL || workers > 16) return 1;
    parallel = t_parallel(&workers);
    for (level = LMC_LEVEL_DEFAULT; level <= LMC_LEVEL_MAX; level++)
        for (dtype = 0; dtype < LMC_DTYPE_COUNT; dtype++)
            for (k = 0; k < T_KINDS * sizeof counts / sizeof *counts; k++) {
                char name[80];
                const size_t i = k % (sizeof counts / sizeof *counts);
                size_t enc_size = 0, ws_size;
                lmc_tensor_options tensor_options;
                memset(&tensor_options, 0, sizeof tensor_options);
                kind = (int)(k / (sizeof counts / sizeof *counts));
                tensor_options.dtype = (enum lmc_dtype)dtype;
                tensor_options.level = (enum lmc_level)level;
                tensor_options.log2_block = i % 2 ? 14 : 0;
                tensor_options.parallel = workers ? &parallel : NULL;
                ws_size = lmc_tensor_workspace_size(&tensor_options);
                if (counts[i] > 4096 && dtype != LMC_AUTO && dtype != LMC_BF16 && dtype != LMC_F32 && dtype != LMC_F64 && dtype != LMC_U8) continue;
                if (counts[i] > 16385 && (kind + dtype) % 3 != 0) continue;
                ws = (uint8_t *)malloc(ws_size);
                if (ws == NULL) return 1;
                size = counts[i] * lmc_dtype_width(tensor_options.dtype);
                t_fill(src, size, (enum t_kind)kind, tensor_options.dtype, i);
                if (lmc_encode_tensor(enc, 2 * size + 100, &enc_size, src, size, &tensor_options, ws, ws_size) != LMC_OK) return 1;
                sprintf(name, "%s%s %s %lu", level ? "max " : "", lmc_dtype_name(tensor_options.dtype), t_kind_names[kind], (unsigned long)counts[i]);
                show(name, enc, enc_size);
                free(ws);
            }
    if (!show_deltas(workers ? &parallel : NULL)) return 1;
    memset(&options, 0, sizeof options);
    options.parallel = workers ? &parallel : NULL;
    t_fill(src, 300000, T_PICKLE, LMC_U8, 3);
    t_fill(src + 1000, 60000, T_GAUSS, LMC_BF16, 3);
    t_fill(src + 70000, 120000, T_GAUSS, LMC_F32, 3);
    tensors[0] = t_tensor("bf16", "BF16", 2, shape, 1000, 60000);
    tensors[1] = t_tensor("f32", "F32", 2, shape, 70000, 120000);
    t_add_file(&model, "tensors", src, 300000)->file.tensors = tensors;
    model.files[0].file.n_tensors = 2;
    t_add_file(&model, "pipe", src, 250000)->file.size = LMC_UNKNOWN_SIZE;
    for (level = LMC_LEVEL_DEFAULT; level <= LMC_LEVEL_MAX; level++) {
        memset(&out, 0, sizeof out);
        options.level = (enum lmc_level)level;
        if (t_write_model(&model, &out, &options, 999, NULL) != LMC_OK) return 1;
        show(level ? "max snapshot" : "snapshot", out.data, out.size);
        free(out.data);
    }
    free(src);
    free(enc);
    return 0;
}
