/* Encodes some 8,000 inputs and prints a digest for each group, which has one level and one dtype:
 * how many inputs, their bytes, and 8 bytes of the SHA-256 of their own digests. It must print
 * tests/digests.txt for every compiler, word size, byte order, tier and number of threads: see
 * suite_determinism of tests/run. A commit that changes bytes on purpose renews it (tests/run
 * --digests).
 *
 *   digest [WORKERS]           encode with that many threads (default: none)
 *   digest [WORKERS] --each    a line for each input instead: to compare tiers or commits
 *   digest --tiers             the tiers of this build on this machine, one per line
 *
 * With LMC_TEST_BRIEF only one input in 17 is encoded, and only lines of samples are printed. */
#include "t_io.h"

static const char *const level_names[] = {"fast ", "", "max ", "archive "};

static struct group {
    char name[40];
    unsigned n;
    unsigned long size;
    t_sha sha;
} groups[160];
static size_t n_groups;
static int is_each, is_sample;

static int is_left_out(void)
{
    static unsigned n;
    is_sample = n++ % 17 == 0;
    return t_brief && !is_sample;
}

static void digest_16(char text[17], t_sha *sha)
{
    uint8_t digest[32];
    int i;
    t_sha_end(sha, digest);
    for (i = 0; i < 8; i++) sprintf(text + 2 * i, "%02x", digest[i]);
}

static void add_to_group(const char *level, const char *name, const char *line, size_t size)
{
    struct group *g;
    char group[40];
    size_t i = 0;
    sprintf(group, "%s%s", level, name);
    while (i < n_groups && strcmp(groups[i].name, group) != 0) i++;
    if (i == sizeof groups / sizeof *groups) abort();
    g = &groups[i];
    if (i == n_groups) {
        n_groups++;
        strcpy(g->name, group);
        t_sha_begin(&g->sha);
    }
    g->n++;
    g->size += (unsigned long)size;
    t_sha_add(&g->sha, line, strlen(line));
}

static void show(const char *level, const char *group, const char *what, const uint8_t *data,
                 size_t size)
{
    t_sha sha;
    char text[17], line[200];
    t_sha_begin(&sha);
    t_sha_add(&sha, data, size);
    digest_16(text, &sha);
    sprintf(line, "%s%s: %lu %s\n", level, what, (unsigned long)size, text);
    if (is_each) fputs(line, stdout);
    add_to_group(level, group, line, size);
    if (is_sample) add_to_group(level, "sample", line, size);
}

static void show_groups(void)
{
    char text[17];
    size_t i;
    for (i = 0; i < n_groups && !is_each; i++) {
        struct group *g = &groups[i];
        if (t_brief && strstr(g->name, "sample") == NULL) continue;
        digest_16(text, &g->sha);
        printf("%s: %u, %lu bytes, %s\n", g->name, g->n, g->size, text);
    }
}

/* Tensors against a prediction: of every dtype, similar to it and unlike it. */
static int show_deltas(const lmc_parallel *parallel)
{
    static const size_t counts[] = {5, 300, 6000, 20000, 70001};
    uint8_t *src = (uint8_t *)malloc(600000), *base = (uint8_t *)malloc(600000),
            *enc = (uint8_t *)malloc(700000);
    int dtype, how, level;
    size_t i;
    if (src == NULL || base == NULL || enc == NULL) return 0;
    for (level = LMC_LEVEL_FAST; level <= LMC_LEVEL_ARCHIVE; level++)
        for (dtype = 0; dtype < LMC__DTYPE_COUNT; dtype++)
            for (how = 0; how < T_BASES; how++)
                for (i = 0; i < sizeof counts / sizeof *counts; i++) {
                    static const enum t_kind kinds[] = {T_GAUSS, T_SPECIAL, T_SPARSE};
                    const enum t_kind kind = kinds[(i + (size_t)how + (size_t)(level & 1)) % 3];
                    const size_t size = counts[i] * lmc_dtype_width((enum lmc_dtype)dtype);
                    lmc_tensor_options options;
                    size_t enc_size = 0, ws_size;
                    uint8_t *ws;
                    char name[80];
                    if (counts[i] > 300 && dtype != LMC_AUTO && dtype != LMC_BF16 &&
                        dtype != LMC_F32 && dtype != LMC_F64 && dtype != LMC_U8)
                        continue;
                    if (is_left_out()) continue;
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
                    if (lmc_tensor_encode(enc, 700000, &enc_size, src, size, &options, ws,
                                          ws_size) != LMC_OK)
                        return 0;
                    sprintf(name, "%s %s %s %lu", lmc_dtype_name(options.dtype), t_kind_names[kind],
                            t_base_names[how], (unsigned long)counts[i]);
                    show(level_names[level + 1], lmc_dtype_name(options.dtype), name, enc,
                         enc_size);
                    free(ws);
                }
    free(src);
    free(base);
    free(enc);
    return 1;
}

/* Elements that were quantised before they came: codes with scales. */
static int show_codes(const lmc_parallel *parallel)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F16, LMC_F32};
    const size_t n = 40000, cap = 4 * n + 1000;
    uint8_t *src = (uint8_t *)malloc(4 * n), *enc = (uint8_t *)malloc(cap);
    int kind, level, d;
    if (src == NULL || enc == NULL) return 0;
    for (level = LMC_LEVEL_FAST; level <= LMC_LEVEL_ARCHIVE; level++)
        for (kind = 0; kind < T_CODED_KINDS; kind++)
            for (d = 0; d < 3; d++) {
                lmc_tensor_options options;
                size_t enc_size = 0, ws_size;
                uint8_t *ws;
                char name[80];
                if (is_left_out()) continue;
                memset(&options, 0, sizeof options);
                options.dtype = dtypes[d];
                options.level = (enum lmc_level)level;
                options.log2_block = 14;
                options.row_size = kind % 2 || kind < 3 ? 640 : 0;
                options.parallel = parallel;
                t_fill_coded(src, n, 640, dtypes[d], kind);
                ws_size = lmc_tensor_workspace_size(&options);
                if ((ws = (uint8_t *)malloc(ws_size)) == NULL) return 0;
                if (lmc_tensor_encode(enc, cap, &enc_size, src, n * lmc_dtype_width(dtypes[d]),
                                      &options, ws, ws_size) != LMC_OK)
                    return 0;
                sprintf(name, "codes %s %d", lmc_dtype_name(dtypes[d]), kind);
                show(level_names[level + 1], "codes", name, enc, enc_size);
                free(ws);
            }
    free(src);
    free(enc);
    return 1;
}

/* Moments from integers: second ones over some octaves, first ones as large as their roots; some
 * are not normal numbers. */
static void fill_moments(uint8_t *first, uint8_t *second, size_t n, unsigned width, uint64_t seed)
{
    size_t i;
    unsigned k;
    for (i = 0; i < n; i++) {
        const uint32_t v = (uint32_t)(0x31000000 + t_gauss(&seed) / 256),
                       w = (uint32_t)t_weight(&seed, LMC_F32),
                       m = (w & 0x7FFFFFFF) + v / 2 - 0x1FC00000;
        uint32_t a = (m < 0x7F800000 ? m : 0) | (w & 0x80000000), b = v;
        if (t_below(&seed, 500) == 0) { /* zeros, NaNs, infinities, denormals */
            const uint32_t special = (uint32_t)t_special(&seed, LMC_F32);
            if ((special & 0x7F800000) == 0 || (special & 0x7F800000) == 0x7F800000)
                a = b = special;
        }
        if (width == 2) {
            a >>= 16;
            b >>= 16;
        }
        for (k = 0; k < width; k++) {
            first[i * width + k] = (uint8_t)(a >> 8 * k);
            second[i * width + k] = (uint8_t)(b >> 8 * k);
        }
    }
}

/* Fitted quantisers, and what is encoded with them: here arithmetic on floats might differ. */
static int show_quantized(const lmc_parallel *parallel)
{
    static const struct {
        unsigned bits;
        enum lmc_measure measure;
        double bound;
    } modes[] = {{4, LMC_MEASURE_NONE, 0},          {6, LMC_MEASURE_NONE, 0},
                 {8, LMC_MEASURE_NONE, 0},          {0, LMC_MEASURE_UPDATE, 0.01},
                 {0, LMC_MEASURE_UPDATE, 0.15},     {0, LMC_MEASURE_RELATIVE, 0.01},
                 {0, LMC_MEASURE_RELATIVE, 0.0001}, {0, LMC_MEASURE_NMSE, 0.0001}};
    static const size_t counts[] = {16384, 70001, 1100000};
    uint8_t *first = (uint8_t *)malloc(4400000), *second = (uint8_t *)malloc(4400000),
            *enc = (uint8_t *)malloc(4500000), *ws;
    size_t i, mode, ws_size, enc_size;
    int width, what;
    if (first == NULL || second == NULL || enc == NULL) return 0;
    for (i = 0; i < sizeof counts / sizeof *counts; i++)
        for (width = 2; width <= 4; width += 2)
            for (mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
                static const char *const names[] = {"other", "second", "first", "update"};
                const size_t n = counts[i], size = n * (size_t)width;
                lmc_quantizer *quantizers[4] = {NULL, NULL, NULL, NULL};
                if (n > 1000000 && mode != 2) continue;
                if (is_left_out()) continue;
                fill_moments(first, second, n, (unsigned)width, i);
                for (what = 0; what < 4; what++) {
                    lmc_quantizer_options options;
                    lmc_tensor_options tensor_options;
                    lmc_quantizer_info info;
                    lmc_source elements, seconds;
                    char name[120];
                    memset(&info, 0, sizeof info);
                    memset(&options, 0, sizeof options);
                    options.dtype = width == 2 ? LMC_BF16 : LMC_F32;
                    options.role = what == 0   ? LMC_ROLE_OTHER
                                   : what == 1 ? LMC_ROLE_SECOND_MOMENT
                                               : LMC_ROLE_FIRST_MOMENT;
                    options.bits = modes[mode].bits;
                    options.measure = modes[mode].measure;
                    options.bound = modes[mode].bound;
                    options.group = mode % 2 ? 1000 : 0;
                    elements = t_elements(what == 1 ? second : first, size);
                    if (what == 3) {
                        seconds = t_elements(second, size);
                        options.second_elements = &seconds;
                        options.second = quantizers[1];
                    }
                    if (lmc_quantizer_fit(&quantizers[what], &elements, &options) != LMC_OK)
                        return 0;
                    if (lmc_quantizer_get_info(quantizers[what], &info) != LMC_OK) abort();
                    memset(&tensor_options, 0, sizeof tensor_options);
                    tensor_options.dtype = options.dtype;
                    tensor_options.parallel = parallel;
                    tensor_options.log2_block = i == 1 ? 14 : 17;
                    tensor_options.quantizer = quantizers[what];
                    sprintf(name, "%s %s %u %d %.12s %u %lu", width == 2 ? "BF16" : "F32",
                            names[what], options.bits, (int)options.measure, info.reason,
                            info.n_codes, (unsigned long)(info.loss.error * 4294967296.0));
                    if (what == 3) { /* over its own elements, which are not needed any more */
                        if (lmc_quantizer_apply(quantizers[1], 0, second, size, NULL) != LMC_OK)
                            return 0;
                        /* whose logarithms need no scale */
                        if (options.measure != LMC_MEASURE_RELATIVE) {
                            tensor_options.prediction = second;
                            tensor_options.prediction_size = size;
                        }
                    }
                    ws_size = lmc_tensor_workspace_size(&tensor_options);
                    if ((ws = (uint8_t *)malloc(ws_size)) == NULL) return 0;
                    if (!info.is_lossless || what == 3) {
                        const enum lmc_status status =
                            lmc_tensor_encode(enc, 4500000, &enc_size, what == 1 ? second : first,
                                              size, &tensor_options, ws, ws_size);
                        if (status != LMC_OK) return 0;
                        show("quantised ", names[what], name, enc, enc_size);
                    } else show("quantised ", names[what], name, NULL, 0);
                    free(ws);
                }
                for (what = 0; what < 4; what++) lmc_quantizer_free(quantizers[what]);
            }
    free(first);
    free(second);
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
    is_each = argc > 1 && strcmp(argv[argc - 1], "--each") == 0;
    if (argc - is_each > 1) workers = (unsigned)atoi(argv[1]);
    if (src == NULL || enc == NULL || workers > 16) return 1;
    parallel = t_parallel(&workers);
    for (level = LMC_LEVEL_FAST; level <= LMC_LEVEL_ARCHIVE; level++)
        for (dtype = 0; dtype < LMC__DTYPE_COUNT; dtype++)
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
                if (counts[i] > 4096 && dtype != LMC_AUTO && dtype != LMC_BF16 &&
                    dtype != LMC_F32 && dtype != LMC_F64 && dtype != LMC_U8)
                    continue;
                if (counts[i] > 16385 && (kind + dtype) % 3 != 0) continue;
                if (is_left_out()) continue;
                ws = (uint8_t *)malloc(ws_size);
                if (ws == NULL) return 1;
                size = counts[i] * lmc_dtype_width(tensor_options.dtype);
                t_fill(src, size, (enum t_kind)kind, tensor_options.dtype, i);
                if (lmc_tensor_encode(enc, 2 * size + 100, &enc_size, src, size, &tensor_options,
                                      ws, ws_size) != LMC_OK)
                    return 1;
                sprintf(name, "%s %s %lu", lmc_dtype_name(tensor_options.dtype), t_kind_names[kind],
                        (unsigned long)counts[i]);
                show(level_names[level + 1], lmc_dtype_name(tensor_options.dtype), name, enc,
                     enc_size);
                free(ws);
            }
    if (!show_deltas(workers ? &parallel : NULL) || !show_codes(workers ? &parallel : NULL) ||
        !show_quantized(workers ? &parallel : NULL))
        return 1;
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
    for (level = LMC_LEVEL_FAST; level <= LMC_LEVEL_ARCHIVE; level++) {
        memset(&out, 0, sizeof out);
        options.level = (enum lmc_level)level;
        if (t_write_model(&model, &out, &options, 999, NULL) != LMC_OK) return 1;
        is_sample = 1;
        show(level_names[level + 1], "snapshot", "snapshot", out.data, out.size);
        free(out.data);
    }
    show_groups();
    free(src);
    free(enc);
    return 0;
}
