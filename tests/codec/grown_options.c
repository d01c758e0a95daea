/* grown_options.c - a program and a shared library of different 1.x, whose structs of options
 * differ in size.
 *
 * Compiled with lmc.h, or with the "1.1" of grown_options.py (-DGROWN), and linked with the shared
 * library of either. What lies behind each struct is not zero, as on a stack.
 *
 *     program 1.0, library 1.1    | members of 1.0 | A5 A5 A5 ...     must not be taken for `added`
 *     program 1.1, library 1.0    | members of 1.0 | added |          refused if it is set
 */
#include "lmc.h"
#include "lmc_extra.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long passed, failed;

static void check(int is_right, const char *type, const char *way, const char *call)
{
    passed += is_right;
    failed += !is_right;
    if (!is_right) printf("FAILED %s, %s: %s\n", type, way, call);
}

/* A struct of options, and what an old program has behind it. */
static unsigned char place[1024];

/* -- every function that takes options; each returns 1 if it worked -- */

#define N 4096
static uint16_t elements[N];
static unsigned char packed[4 * N], again[2 * N];
static size_t packed_size;

static enum lmc_status call_block(const void *options)
{
    const lmc_block_options *const o = (const lmc_block_options *)options;
    const size_t ws_size = lmc_block_workspace_size(N, 2);
    void *const ws = malloc(ws_size);
    size_t size;
    enum lmc_status status = lmc_block_encode(packed, sizeof packed, &packed_size, elements,
                                              sizeof elements, o, ws, ws_size);
    if (status == LMC_OK)
        status = lmc_block_decode(again, sizeof again, &size, packed, packed_size, o, ws, ws_size);
    free(ws);
    return status;
}

static enum lmc_status call_tensor(const void *options)
{
    const lmc_tensor_options *const o = (const lmc_tensor_options *)options;
    enum lmc_status status = lmc_tensor_encode(packed, sizeof packed, &packed_size, elements,
                                               sizeof elements, o, NULL, 0);
    if (status == LMC_OK)
        status = lmc_tensor_decode(again, sizeof again, packed, packed_size, o, NULL, 0);
    if (status == LMC_OK)
        status = lmc_tensor_decode_range(again, 16, packed, packed_size, 32, sizeof elements, o,
                                         NULL, 0);
    if (status == LMC_OK &&
        (lmc_tensor_workspace_size(o) == 0 || lmc_tensor_bound(sizeof elements, o) < packed_size))
        status = LMC_ERR_SIZE;
    return status;
}

static enum lmc_status call_quantizer(const void *options)
{
    lmc_memory memory = LMC_DEFAULTS;
    lmc_quantizer *quantizer = NULL;
    lmc_source source;
    enum lmc_status status;
    memory.data = (uint8_t *)elements;
    memory.size = sizeof elements;
    source = lmc_memory_source(&memory);
    status = lmc_quantizer_fit(&quantizer, &source, (const lmc_quantizer_options *)options);
    lmc_quantizer_free(quantizer);
    return status;
}

static enum lmc_status write_snapshot(lmc_memory *memory, const lmc_writer_options *options)
{
    static const uint64_t shape[1] = {N};
    lmc_array array = LMC_DEFAULTS;
    lmc_sink sink = lmc_memory_sink(memory);
    lmc_writer *writer;
    enum lmc_status status = lmc_writer_open(&writer, &sink, options);
    if (status != LMC_OK) return status;
    array.name = "w";
    array.dtype = LMC_BF16;
    array.rank = 1;
    array.shape = shape;
    array.data = elements;
    status = lmc_writer_add_arrays(writer, "w.safetensors", &array, 1, NULL, 0);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

static enum lmc_status call_writer(const void *options)
{
    lmc_memory memory = LMC_DEFAULTS;
    const enum lmc_status status = write_snapshot(&memory, (const lmc_writer_options *)options);
    lmc_memory_free(&memory);
    return status;
}

static enum lmc_status call_hints(const void *hints)
{
    lmc_memory memory = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&memory);
    lmc_writer *writer;
    enum lmc_status status = lmc_writer_open(&writer, &sink, NULL);
    if (status != LMC_OK) return status;
    status = lmc_writer_add_hints(writer, 0, (const lmc_tensor_hints *)hints);
    lmc_writer_free(writer);
    lmc_memory_free(&memory);
    return status;
}

static enum lmc_status call_reader(const void *options)
{
    lmc_memory memory = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_source source;
    enum lmc_status status = write_snapshot(&memory, NULL);
    source = lmc_memory_source(&memory);
    if (status == LMC_OK)
        status = lmc_reader_open(&reader, &source, (const lmc_reader_options *)options);
    lmc_reader_free(reader);
    lmc_memory_free(&memory);
    return status;
}

static enum lmc_status call_restore(const void *options)
{
    lmc_memory memory = LMC_DEFAULTS;
    lmc_stream stream;
    enum lmc_status status = write_snapshot(&memory, NULL);
    stream = lmc_memory_stream(&memory);
    if (status == LMC_OK)
        status = lmc_snapshot_restore(&stream, NULL, (const lmc_restore_options *)options);
    lmc_memory_free(&memory);
    return status;
}

static enum lmc_status call_compress(const void *options)
{
    const lmc_compress_options *const o = (const lmc_compress_options *)options;
    uint64_t size;
    size_t done;
    /* scratch files in the working directory */
    static const char *const from = "t_grown", *const to = "t_grown.lmc",
                             *const back = "t_grown.back";
    FILE *f;
    enum lmc_status status =
        lmc_compress(packed, sizeof packed, &packed_size, elements, sizeof elements, LMC_BF16, o);
    if (status == LMC_OK) status = lmc_decompressed_size(packed, packed_size, &size, NULL, o);
    if (status == LMC_OK)
        status = lmc_decompress(again, sizeof again, &done, packed, packed_size, o);
    if (status != LMC_OK) return status;
    f = fopen(from, "wb");
    if (!f || fwrite(elements, 1, sizeof elements, f) != sizeof elements || fclose(f) != 0)
        return LMC_ERR_WRITE;
    status = lmc_compress_file(to, from, LMC_BF16, o);
    if (status == LMC_OK) status = lmc_decompress_file(back, to, o);
    remove(from);
    remove(to);
    remove(back);
    return status;
}

/* -- structs of facts and of callbacks keep their size: a reserved word becomes a member -- */

#ifdef GROWN
#define MORE(s) ((s).more)
#else
#define MORE(s) ((s).reserved[0])
#endif

/* A reader returns an array of lmc_tensor. Its elements are where the program expects them, in
 * whichever version; and what it says of a file can be written again by the same library. */
static void try_facts(void)
{
    const int is_new = strcmp(lmc_version(), "1.1.0") == 0;
    static const char *const names[3] = {"a", "b", "c"};
    static const uint64_t shape[1] = {N / 4};
    lmc_memory memory = LMC_DEFAULTS, again_memory = LMC_DEFAULTS;
    lmc_sink sink = lmc_memory_sink(&memory);
    lmc_source source, newer;
    lmc_array arrays[3];
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    const lmc_file *file;
    lmc_file changed;
    unsigned i;
    memset(arrays, 0, sizeof arrays);
    for (i = 0; i < 3; i++) {
        arrays[i].name = names[i];
        arrays[i].dtype = LMC_BF16;
        arrays[i].rank = 1;
        arrays[i].shape = shape;
        arrays[i].data = elements;
    }
    check(lmc_writer_open(&writer, &sink, NULL) == LMC_OK &&
              lmc_writer_add_arrays(writer, "f", arrays, 3, NULL, 0) == LMC_OK &&
              lmc_writer_finish(writer) == LMC_OK,
          "lmc_sink", "lmc_memory_sink", "writes");
    lmc_writer_free(writer);
    source = newer = lmc_memory_source(&memory);
    check(MORE(source) == 0, "lmc_source", "lmc_memory_source", "has no new member");
    MORE(newer) = 1;
    check(lmc_reader_open(&reader, &newer, NULL) == (is_new ? LMC_OK : LMC_ERR_UNSUPPORTED),
          "lmc_source", "a new member", "is known or refused");
    lmc_reader_free(reader);
    if (lmc_reader_open(&reader, &source, NULL) != LMC_OK) abort();
    file = lmc_reader_get_file(reader, 0);
    check(file && file->n_tensors == 3, "lmc_file", "get_file", "n_tensors");
    for (i = 0; i < 3; i++) {
        check(strcmp(file->tensors[i].name, names[i]) == 0 && file->tensors[i].size == N / 2,
              "lmc_tensor", "array", "its elements are where they are expected");
        check(MORE(file->tensors[i]) == (is_new ? 7u : 0u), "lmc_tensor", "array", "new member");
    }
    sink = lmc_memory_sink(&again_memory);
    if (lmc_writer_open(&writer, &sink, NULL) != LMC_OK) abort();
    check(lmc_writer_begin_file(writer, file, LMC_AUTO) == LMC_OK, "lmc_file", "of a reader",
          "can be written");
    lmc_writer_free(writer);
    changed = *file;
    MORE(changed) = 1;
    if (lmc_writer_open(&writer, &sink, NULL) != LMC_OK) abort();
    check(lmc_writer_begin_file(writer, &changed, LMC_AUTO) ==
              (is_new ? LMC_OK : LMC_ERR_UNSUPPORTED),
          "lmc_file", "a new member", "is known or refused");
    lmc_writer_free(writer);
    lmc_reader_free(reader);
    lmc_memory_free(&memory);
    lmc_memory_free(&again_memory);
}

/* -- every way to initialise them -- */

/* 1.0: works, whatever is behind. 1.1: `added` is refused by an older library, seen by a newer one,
 * and not looked at if struct_size is zero, for then the program says that it is one of 1.0. */
static void try_options(const char *type, const char *way, const void *options, size_t size,
                        enum lmc_status (*call)(const void *))
{
    memset(place, 0xA5, sizeof place);
    memcpy(place, options, size);
    check(call(place) == LMC_OK, type, way, "works");
#ifdef GROWN
    {
        const char *const added = "added";
        size_t struct_size;
        enum lmc_status wanted =
            strcmp(lmc_version(), "1.1.0") == 0 ? LMC_ERR_LIMIT : LMC_ERR_UNSUPPORTED;
        memcpy(place + size - sizeof added, &added, sizeof added);
        memcpy(&struct_size, place, sizeof struct_size);
        if (struct_size == 0) wanted = LMC_OK;
        check(call(place) == wanted, type, way, "with a new member");
    }
#endif
}

/* set: what has no default */
#define TRY(type, by_function, set, call)                                                          \
    do {                                                                                           \
        {                                                                                          \
            type o = LMC_DEFAULTS;                                                                 \
            set try_options(#type, "LMC_DEFAULTS", &o, sizeof o, call);                            \
            o.struct_size = sizeof o;                                                              \
            try_options(#type, "struct_size", &o, sizeof o, call);                                 \
        }                                                                                          \
        {                                                                                          \
            type o = by_function;                                                                  \
            set try_options(#type, #by_function, &o, sizeof o, call);                              \
            check(o.struct_size == sizeof o, #type, #by_function, "sets struct_size");             \
        }                                                                                          \
        {                                                                                          \
            type o;                                                                                \
            memset(&o, 0, sizeof o);                                                               \
            set try_options(#type, "memset", &o, sizeof o, call);                                  \
        }                                                                                          \
        {                                                                                          \
            type *const o_of_heap = (type *)calloc(1, sizeof *o_of_heap);                          \
            type o = *o_of_heap;                                                                   \
            set try_options(#type, "calloc", &o, sizeof o, call);                                  \
            free(o_of_heap);                                                                       \
        }                                                                                          \
        DESIGNATED(type, set, call);                                                               \
    } while (0)

#ifdef __cplusplus
#define DESIGNATED(type, set, call)
#else
#define DESIGNATED(type, set, call)                                                                \
    {                                                                                              \
        type o = {.struct_size = sizeof(type)}, z = {.struct_size = 0};                            \
        set try_options(#type, "designated", &o, sizeof o, call);                                  \
        o = z;                                                                                     \
        set try_options(#type, "designated, zero", &o, sizeof o, call);                            \
    }
#endif

/* Each struct of options ends with its last member, also where pointers have 4 bytes and uint64_t
 * is aligned to 8 (gcc -m32 -malign-double lays them out so): a program leaves padding as it was,
 * and struct_size counts it, so a member that a later version puts there would have any value. */
#define ENDS_WITH(type, member)                                                                    \
    typedef char type##_ends_with_its_last_member                                                  \
        [offsetof(type, member) + sizeof(((type *)0)->member) == sizeof(type) ? 1 : -1];
#ifndef GROWN
ENDS_WITH(lmc_block_options, prediction_size)
ENDS_WITH(lmc_tensor_options, row_size)
ENDS_WITH(lmc_quantizer_options, allocator)
ENDS_WITH(lmc_writer_options, allocator)
ENDS_WITH(lmc_tensor_hints, quantizer)
ENDS_WITH(lmc_reader_options, allocator)
ENDS_WITH(lmc_restore_options, allocator)
ENDS_WITH(lmc_compress_options, allocator)
#endif

int main(void)
{
    unsigned i;
    for (i = 0; i < N; i++) elements[i] = (uint16_t)(0x3C00 + i * i % 251);
    TRY(lmc_block_options, LMC_BLOCK_OPTIONS(LMC_BF16), o.dtype = LMC_BF16;, call_block);
    TRY(lmc_tensor_options, LMC_TENSOR_OPTIONS(LMC_BF16), o.dtype = LMC_BF16;, call_tensor);
    TRY(lmc_quantizer_options, LMC_QUANTIZER_OPTIONS(), o.dtype = LMC_BF16;
        o.measure = LMC_MEASURE_NMSE; o.bound = 0.1;, call_quantizer);
    TRY(lmc_writer_options, LMC_WRITER_OPTIONS(), , call_writer);
    TRY(lmc_tensor_hints, LMC_TENSOR_HINTS(), , call_hints);
    TRY(lmc_reader_options, LMC_READER_OPTIONS(), , call_reader);
    TRY(lmc_restore_options, LMC_RESTORE_OPTIONS(), , call_restore);
    TRY(lmc_compress_options, LMC_COMPRESS_OPTIONS(), , call_compress);
    try_facts();
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
