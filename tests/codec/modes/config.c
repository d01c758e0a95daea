/* config.c - whatever LMC_NO_ENCODER, LMC_NO_QUANTIZE and LMC_NO_SNAPSHOT have left of lmc.h works.
 * What they take away is neither declared nor called here. Known bytes stand in for an encoder that
 * may not be there. HEADER: one that was made so (include/). ALONE: without lmc_extra.h
 * behind it. config VECTOR    a snapshot with
 * quantised blocks (spec/vectors/valid/example_quantised.lmc) */
#define LMC_IMPLEMENTATION
#ifdef HEADER
#include HEADER
#else
#include "../../../lmc.h"
#ifndef LMC_NO_SNAPSHOT
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_cuda.h"
#endif
#endif
#ifndef ALONE
#include "../../../include/lmc_extra.h"
#endif

#include <stdio.h>

#include "config.h"

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static unsigned char g_src[KNOWN_SIZE], g_dst[KNOWN_SIZE], g_ws[1 << 18];

static int is_known(void)
{
    const int same = memcmp(g_src, g_dst, KNOWN_SIZE) == 0;
    memset(g_dst, 0, KNOWN_SIZE);
    return same;
}

/* Layers 1 and 2. */
static int decode(void)
{
    lmc_tensor_options options;
    lmc_block_info info;
    size_t size = 0;
    memset(&options, 0, sizeof options);
    options.dtype = LMC_BF16;
    options.log2_block = 14;
    MUST(lmc_block_parse(known_block, sizeof known_block, 0, &info) == LMC_OK);
    MUST(info.size == KNOWN_SIZE && info.width == 2 && !info.is_stored);
    MUST(lmc_block_workspace_size(info.n, info.width) <= sizeof g_ws);
    MUST(lmc_block_decode(g_dst, sizeof g_dst, &size, known_block, sizeof known_block, NULL, g_ws,
                          sizeof g_ws) == LMC_OK);
    MUST(size == KNOWN_SIZE && is_known());
    MUST(lmc_block_decode(g_dst, sizeof g_dst, &size, known_block, sizeof known_block - 1, NULL,
                          g_ws, sizeof g_ws) == LMC_ERR_TRUNCATED);
    {
        const size_t ws_size = lmc_tensor_workspace_size(&options);
        void *const ws = malloc(ws_size);
        MUST(ws != NULL);
        MUST(lmc_tensor_decode(g_dst, KNOWN_SIZE, known_block, sizeof known_block, &options, ws,
                               ws_size) == LMC_OK);
        free(ws);
    }
    MUST(is_known());
    return 0;
}

#ifndef LMC_NO_ENCODER
static int encode(void)
{
    const lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_BF16);
    unsigned char enc[KNOWN_SIZE + LMC_BLOCK_HEADER_SIZE];
    size_t size = 0;
    MUST(lmc_block_encode(enc, sizeof enc, &size, g_src, KNOWN_SIZE, &options, g_ws, sizeof g_ws) ==
         LMC_OK);
    MUST(size == sizeof known_block && memcmp(enc, known_block, size) == 0);
    return 0;
}
#endif

#if defined(LMC_EXTRA_H) && !defined(LMC_NO_ENCODER) && !defined(LMC_NO_QUANTIZE)
static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    memcpy(dst, (const unsigned char *)user + offset, size);
    return LMC_OK;
}

/* 16,384 second moments, the fewest that are quantised: with each code smaller, and what
 * lmc_quantizer_apply() says that they become. */
static int quantize(void)
{
    enum { N = 16384 };
    lmc_quantizer_options options;
    lmc_tensor_options tensor_options;
    lmc_quantizer_info info;
    lmc_quantizer *quantizer = NULL;
    lmc_source elements = LMC_DEFAULTS;
    uint32_t state = 1;
    size_t i, size = 0, ws_size;
    unsigned char *const src = (unsigned char *)malloc(4 * N),
                         *const enc = (unsigned char *)malloc(5 * N),
                         *const dst = (unsigned char *)malloc(4 * N);
    void *ws;
    MUST(src != NULL && enc != NULL && dst != NULL);
    for (i = 0; i < N; i++) {
        const uint32_t v = 0x30000000 + ((state = state * 1664525 + 1013904223) >> 7);
        src[4 * i] = (unsigned char)v;
        src[4 * i + 1] = (unsigned char)(v >> 8);
        src[4 * i + 2] = (unsigned char)(v >> 16);
        src[4 * i + 3] = (unsigned char)(v >> 24);
    }
    memset(&options, 0, sizeof options);
    memset(&tensor_options, 0, sizeof tensor_options);
    elements.read_at = read_elements;
    elements.user = src;
    elements.size = 4 * N;
    options.dtype = tensor_options.dtype = LMC_F32;
    options.role = LMC_ROLE_SECOND_MOMENT;
    options.bits = 4;
    MUST(lmc_quantizer_fit(&quantizer, &elements, &options) == LMC_OK);
    MUST(lmc_quantizer_get_info(quantizer, &info) == LMC_OK && !info.is_lossless);
    tensor_options.quantizer = quantizer;
    ws_size = lmc_tensor_workspace_size(&tensor_options);
    ws = malloc(ws_size);
    MUST(ws != NULL);
    MUST(lmc_tensor_encode(enc, 5 * N, &size, src, 4 * N, &tensor_options, ws, ws_size) == LMC_OK);
    MUST(size < N && lmc_quantizer_apply(quantizer, 0, src, 4 * N, NULL) == LMC_OK);
    MUST(lmc_tensor_decode(dst, 4 * N, enc, size, &tensor_options, ws, ws_size) == LMC_OK);
    MUST(memcmp(src, dst, 4 * N) == 0);
    lmc_quantizer_free(quantizer);
    free(src);
    free(enc);
    free(dst);
    free(ws);
    return 0;
}
#endif

#ifndef LMC_NO_SNAPSHOT
static lmc_memory in_memory(const unsigned char *data, size_t size)
{
    lmc_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.data = (uint8_t *)malloc(size);
    if (memory.data == NULL) abort();
    memcpy(memory.data, data, size);
    memory.size = size;
    return memory;
}

static int read_snapshot(void)
{
    lmc_memory memory = in_memory(known_snapshot, sizeof known_snapshot);
    lmc_source source = lmc_memory_source(&memory);
    lmc_stream stream = lmc_memory_stream(&memory);
    lmc_reader *reader = NULL;
    const lmc_tensor *tensor = NULL;
    size_t number = 9;
    lmc_snapshot_info info, restored;
    MUST(lmc_snapshot_restore(&stream, &restored, NULL) == LMC_OK);
    MUST(lmc_reader_open(&reader, &source, NULL) == LMC_OK);
    MUST(lmc_reader_get_info(reader, &info) == LMC_OK && info.n_files == 1 &&
         memcmp(restored.fingerprint, info.fingerprint, sizeof info.fingerprint) == 0);
    MUST(lmc_reader_find_tensor(reader, NULL, "w", &number, &tensor) == LMC_OK && number == 0);
    MUST(lmc_reader_read_tensor(reader, 0, tensor, 0, g_dst, KNOWN_SIZE) == LMC_OK && is_known());
#ifdef LMC_EXTRA_H
    {
        uint64_t encoded_size = 0;
        MUST(lmc_reader_encoded_size(reader, 0, 0, KNOWN_SIZE, &encoded_size) == LMC_OK &&
             encoded_size > 0 && encoded_size < KNOWN_SIZE);
    }
#endif
    lmc_reader_free(reader);
    memory.data[100] ^= 1;
    memory.position = 0;
    MUST(lmc_snapshot_restore(&stream, NULL, NULL) != LMC_OK);
    lmc_memory_free(&memory);
    return 0;
}

/* Without quantisers the blocks that they have made are what this library does not know. */
static int read_quantized(const char *path)
{
    unsigned char *const data = (unsigned char *)malloc(1 << 20);
    FILE *const file = fopen(path, "rb");
    lmc_memory memory;
    lmc_stream stream;
    enum lmc_status status;
    MUST(data != NULL && file != NULL);
    memory = in_memory(data, fread(data, 1, 1 << 20, file));
    memcpy(memory.data, data, memory.size);
    fclose(file);
    free(data);
    stream = lmc_memory_stream(&memory);
    status = lmc_snapshot_restore(&stream, NULL, NULL);
#ifdef LMC_NO_QUANTIZE
    MUST(status == LMC_ERR_UNSUPPORTED);
#else
    MUST(status == LMC_OK);
#endif
    lmc_memory_free(&memory);
    return 0;
}

#ifndef LMC_NO_ENCODER
static int write_snapshot(void)
{
    const uint64_t shape = KNOWN_SIZE / 2;
    lmc_memory memory;
    lmc_sink sink;
    lmc_writer *writer = NULL;
    lmc_tensor tensor;
    lmc_file file;
    memset(&memory, 0, sizeof memory);
    memset(&tensor, 0, sizeof tensor);
    memset(&file, 0, sizeof file);
    sink = lmc_memory_sink(&memory);
    tensor.name = "w";
    tensor.dtype = "BF16";
    tensor.rank = 1;
    tensor.shape = &shape;
    tensor.size = file.size = KNOWN_SIZE;
    file.path = "f";
    file.n_tensors = 1;
    file.tensors = &tensor;
    MUST(lmc_writer_open(&writer, &sink, NULL) == LMC_OK);
    MUST(lmc_writer_begin_file(writer, &file, LMC_AUTO) == LMC_OK);
    MUST(lmc_writer_write(writer, g_src, KNOWN_SIZE) == LMC_OK &&
         lmc_writer_end_file(writer) == LMC_OK);
    MUST(lmc_writer_finish(writer) == LMC_OK);
    lmc_writer_free(writer);
    MUST(memory.size == sizeof known_snapshot &&
         memcmp(memory.data, known_snapshot, memory.size) == 0);
    lmc_memory_free(&memory);
    return 0;
}
#endif

/* The index and half of the trailer are gone. */
static int salvage(void)
{
    lmc_memory memory = in_memory(known_snapshot, sizeof known_snapshot - 100);
    lmc_source source = lmc_memory_source(&memory);
    lmc_reader *reader = NULL;
#ifdef LMC_SALVAGE_H
    lmc_salvage *salvage = NULL;
#endif
    MUST(lmc_reader_open(&reader, &source, NULL) != LMC_OK);
#ifdef LMC_SALVAGE_H
    MUST(lmc_salvage_open(&salvage, &source, NULL) == LMC_OK);
    reader = lmc_salvage_reader(salvage);
    MUST(lmc_reader_get_file(reader, 0) && !lmc_reader_get_file(reader, 1));
    MUST(lmc_reader_read_file(reader, 0, 0, g_dst, KNOWN_SIZE) == LMC_OK && is_known());
    lmc_salvage_free(salvage);
#endif
    lmc_memory_free(&memory);
    return 0;
}
#endif

int main(int argc, char **argv)
{
    size_t i;
    for (i = 0; i < KNOWN_SIZE; i++) g_src[i] = (unsigned char)(i % 2 ? 60 : i * i >> 2);
    if (argc < 2 || decode()) return 1;
#ifndef LMC_NO_ENCODER
    if (encode()) return 2;
#if defined(LMC_EXTRA_H) && !defined(LMC_NO_QUANTIZE)
    if (quantize()) return 3;
#endif
#endif
#ifndef LMC_NO_SNAPSHOT
    if (read_snapshot() || read_quantized(argv[1])) return 4;
#ifndef LMC_NO_ENCODER
    if (write_snapshot()) return 5;
#endif
    if (salvage()) return 6;
#else
    (void)argv;
#endif
    return 0;
}
