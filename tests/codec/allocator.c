/* allocator.c - memory from a program's own allocator, through the header and through liblmc.so.
 *
 * Everything in the library that takes an lmc_allocator is called with one that counts, and that
 * fails at the first allocation, at the second, and so on. malloc itself is counted, too: the
 * library must not call it. (glibc: a program's malloc serves shared libraries as well.)
 */
#include "lmc.h"
#include "lmc_salvage.h"
#include "lmc_extra.h"

#include <stdio.h>
#include <string.h>

/* -- the C library's allocator, counted -- */

#ifdef __cplusplus
extern "C" {
#endif
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void __libc_free(void *ptr);

static long n_mallocs;

void *malloc(size_t size)
{
    n_mallocs++;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    n_mallocs++;
    return __libc_calloc(n, size);
}
void *realloc(void *ptr, size_t size)
{
    n_mallocs++;
    return __libc_realloc(ptr, size);
}
void free(void *ptr)
{
    n_mallocs += ptr != NULL;
    __libc_free(ptr);
}
#ifdef __cplusplus
}
#endif

/* -- the program's own -- */

typedef struct heap {
    long calls;      /* that allocate or grow */
    long fail_at;    /* the call that fails; -1: none */
    long live;       /* blocks that were not freed */
    long wrong_size; /* calls whose old_size is not the block's */
} heap;

/* Before each block are 16 bytes with its size. A block that grows always moves. */
static void *reallocate(void *user, void *ptr, size_t old_size, size_t new_size)
{
    heap *const h = (heap *)user;
    unsigned char *const old = ptr ? (unsigned char *)ptr - 16 : NULL;
    unsigned char *block = NULL;
    size_t size = 0;
    if (old) memcpy(&size, old, sizeof size);
    h->wrong_size += size != old_size;
    if (new_size) {
        if (h->calls++ == h->fail_at) return NULL;
        block = (unsigned char *)__libc_malloc(16 + new_size);
        if (!block) return NULL;
        memcpy(block, &new_size, sizeof new_size);
        if (old) memcpy(block + 16, old + 16, size < new_size ? size : new_size);
    }
    h->live += (block != NULL) - (old != NULL);
    __libc_free(old);
    return block ? block + 16 : NULL;
}

/* -- everything that allocates -- */

#define N 5000
#define N_MOMENTS 20000 /* fewer would not be quantised */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != LMC_OK) goto done;                                                           \
    } while (0)

static float weights[N], moments[N_MOMENTS], again[N];
static unsigned char packed[8 * N];

static enum lmc_status write_nothing(void *user, const void *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return LMC_OK;
}

/* A snapshot with arrays, a file of unknown size, small files, metadata, hashes and a section. */
static enum lmc_status write_snapshot(lmc_memory *out, const lmc_base *base, const float *values,
                                      const lmc_allocator *allocator)
{
    const uint64_t shape[1] = {N};
    const lmc_array arrays[2] = {LMC_ARRAY("w", LMC_F32, 1, shape, values),
                                 LMC_ARRAY("m", LMC_F32, 1, shape, moments)};
    const lmc_text text = {"format", "pt"};
    const lmc_sink sink = lmc_memory_sink(out);
    lmc_memory bytes = LMC_DEFAULTS;
    const lmc_stream stream = lmc_memory_stream(&bytes);
    lmc_writer_options options = LMC_WRITER_OPTIONS();
    lmc_file file = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    enum lmc_status status;
    unsigned i;
    options.allocator = allocator;
    options.base = base;
    options.content_hashes = 1;
    options.group_files = LMC_GROUP_NEW;
    bytes.data = (uint8_t *)(uintptr_t)values; /* only read */
    bytes.size = 3000;
    TRY(lmc_writer_open(&writer, &sink, &options));
    TRY(lmc_writer_add_arrays(writer, "model.safetensors", arrays, 2, &text, 1));
    for (i = 0; i < 3; i++) {
        file.path = i == 0 ? "a" : i == 1 ? "b" : "unknown";
        file.size = i == 2 ? LMC_UNKNOWN_SIZE : 1000;
        TRY(lmc_writer_begin_file(writer, &file, LMC_AUTO));
        if (i == 2) TRY(lmc_writer_write_stream(writer, &stream));
        else TRY(lmc_writer_write(writer, values, 1000));
        TRY(lmc_writer_end_file(writer));
    }
    TRY(lmc_writer_add_metadata(writer, "step", "1000", 4));
    TRY(lmc_writer_add_section(writer, "note", "text", 4));
    TRY(lmc_writer_finish(writer));
done:
    lmc_writer_free(writer);
    return status;
}

static enum lmc_status read_snapshot(lmc_reader *reader, const float *values)
{
    const lmc_tensor *tensor;
    enum lmc_status status;
    size_t number, size;
    const void *value;
    uint8_t hash[32];
    int can;
    TRY(lmc_reader_find_tensor(reader, NULL, "w", &number, &tensor));
    TRY(lmc_reader_read_tensor(reader, number, tensor, 0, again, sizeof again));
    if (memcmp(again, values, sizeof again)) status = LMC_ERR_CORRUPT;
    if (status == LMC_OK) status = lmc_reader_find_file(reader, "b", &number);
    if (status == LMC_OK) status = lmc_reader_read_file(reader, number, 10, again, 100);
    if (status == LMC_OK) status = lmc_reader_find_metadata(reader, "step", &value, &size);
    if (status == LMC_OK) status = lmc_reader_read_snapshot_hash(reader, hash);
    if (status == LMC_OK) status = lmc_reader_read_section(reader, 0, again, sizeof again);
    if (status == LMC_OK) status = lmc_reader_can_restore_in_place(reader, &can);
done:
    return status;
}

static enum lmc_status read_damaged(lmc_memory *snapshot, const lmc_allocator *allocator)
{
    const lmc_source source = lmc_memory_source(snapshot);
    lmc_reader_options options = LMC_READER_OPTIONS();
    lmc_salvage *salvage = NULL;
    lmc_salvage_range range;
    enum lmc_status status;
    options.allocator = allocator;
    TRY(lmc_salvage_open(&salvage, &source, &options));
    do TRY(lmc_salvage_next(salvage, &range));
    while (!range.is_end);
done:
    lmc_salvage_free(salvage);
    return status;
}

static enum lmc_status use_snapshots(const lmc_allocator *allocator)
{
    static float next[N];
    lmc_memory first = LMC_DEFAULTS, delta = LMC_DEFAULTS;
    lmc_source source;
    lmc_stream stream;
    lmc_reader_options options = LMC_READER_OPTIONS();
    lmc_restore_options restore = LMC_RESTORE_OPTIONS();
    lmc_reader *base_reader = NULL, *reader = NULL, *shared = NULL;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    lmc_snapshot_info info;
    enum lmc_status status;
    lmc_base base;
    lmc_match matches[5];
    unsigned i;
    memcpy(next, weights, sizeof next);
    for (i = 0; i < N; i += 7) next[i] += 1;
    first.allocator = delta.allocator = options.allocator = restore.allocator = allocator;
    TRY(write_snapshot(&first, NULL, weights, allocator));
    source = lmc_memory_source(&first);
    TRY(lmc_reader_open(&base_reader, &source, &options));
    TRY(read_snapshot(base_reader, weights));
    base = lmc_reader_base(base_reader);
    TRY(lmc_base_identify(&base, fingerprint, allocator));
    TRY(write_snapshot(&delta, &base, next, allocator));
    source = lmc_memory_source(&delta);
    options.base = &base;
    options.lender = base_reader;
    TRY(lmc_reader_open(&reader, &source, &options));
    TRY(read_snapshot(reader, next));
    TRY(lmc_base_match(&base, &base, matches, allocator));
    TRY(lmc_reader_open_shared(&shared, reader));
    TRY(read_snapshot(shared, next));
    stream = lmc_memory_stream(&delta);
    restore.base = &base;
    restore.check_hashes = 1;
    restore.write = write_nothing;
    TRY(lmc_snapshot_restore(&stream, &info, &restore));
    TRY(read_damaged(&first, allocator));
done:
    lmc_reader_free(shared);
    lmc_reader_free(reader);
    lmc_reader_free(base_reader);
    lmc_memory_free(&first);
    lmc_memory_free(&delta);
    return status;
}

static long passed, failed;

static void check(int is_right, const char *what, const char *about, long at)
{
    passed += is_right;
    failed += !is_right;
    if (!is_right) printf("FAILED %s, failing at %ld: %s\n", about, at, what);
}

static enum lmc_status write_moments(lmc_memory *out, const lmc_allocator *allocator)
{
    const uint64_t shape[1] = {N_MOMENTS};
    lmc_memory elements = LMC_DEFAULTS;
    lmc_quantizer_options options = LMC_QUANTIZER_OPTIONS();
    lmc_writer_options writing = LMC_WRITER_OPTIONS();
    const lmc_sink sink = lmc_memory_sink(out);
    lmc_quantizer *quantizer = NULL;
    lmc_tensor_hints hints = LMC_TENSOR_HINTS();
    lmc_tensor tensor = LMC_DEFAULTS;
    lmc_file file = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    lmc_source source;
    enum lmc_status status;
    elements.data = (uint8_t *)moments;
    elements.size = sizeof moments;
    source = lmc_memory_source(&elements);
    options.allocator = writing.allocator = allocator;
    options.dtype = LMC_F32;
    options.role = LMC_ROLE_SECOND_MOMENT;
    options.bits = 8;
    TRY(lmc_quantizer_fit(&quantizer, &source, &options));
    tensor.name = "v";
    tensor.dtype = "F32";
    tensor.rank = 1;
    tensor.shape = shape;
    tensor.size = file.size = sizeof moments;
    hints.quantizer = quantizer;
    file.path = "state";
    file.tensors = &tensor;
    file.n_tensors = 1;
    writing.may_quantize = 1;
    TRY(lmc_writer_open(&writer, &sink, &writing));
    TRY(lmc_writer_add_hints(writer, 0, &hints));
    TRY(lmc_writer_begin_file(writer, &file, LMC_F32));
    TRY(lmc_writer_write(writer, moments, sizeof moments));
    TRY(lmc_writer_end_file(writer));
    TRY(lmc_writer_finish(writer));
done:
    lmc_writer_free(writer);
    lmc_quantizer_free(quantizer);
    return status;
}

/* A quantised tensor, and a copy of it, for which the quantiser is found again. The copy is the
 * writer's alone: the reader, and its allocator, may go before it. */
static enum lmc_status copy_moments(const lmc_allocator *allocator, const lmc_allocator *of_reader)
{
    lmc_memory out = LMC_DEFAULTS, copy = LMC_DEFAULTS;
    lmc_writer_options writing = LMC_WRITER_OPTIONS();
    lmc_reader_options reading = LMC_READER_OPTIONS();
    const lmc_sink sink = lmc_memory_sink(&copy);
    lmc_quantizer *quantizer = NULL;
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    lmc_source source;
    lmc_twin twin;
    enum lmc_status status;
    out.allocator = copy.allocator = writing.allocator = allocator;
    reading.allocator = of_reader;
    writing.may_quantize = 1;
    TRY(write_moments(&out, allocator));
    source = lmc_memory_source(&out);
    TRY(lmc_reader_open(&reader, &source, &reading));
    TRY(lmc_quantizer_recover(&quantizer, reader, 0, lmc_reader_get_file(reader, 0)->tensors, &twin,
                              allocator));
    TRY(lmc_writer_open(&writer, &sink, &writing));
    TRY(lmc_writer_copy_file(writer, reader, 0));
    lmc_reader_free(reader);
    reader = NULL;
    if (of_reader != allocator)
        check(((heap *)of_reader->user)->live == 0, "something of the reader stays", "copy", -1);
    TRY(lmc_writer_finish(writer));
done:
    lmc_writer_free(writer);
    lmc_reader_free(reader);
    lmc_quantizer_free(quantizer);
    lmc_memory_free(&copy);
    lmc_memory_free(&out);
    return status;
}

static enum lmc_status use_quantizer(const lmc_allocator *allocator)
{
    return copy_moments(allocator, allocator);
}

static enum lmc_status use_one_call(const lmc_allocator *allocator)
{
    lmc_compress_options options = LMC_COMPRESS_OPTIONS();
    lmc_memory bytes = LMC_DEFAULTS;
    const lmc_stream stream = lmc_memory_stream(&bytes);
    lmc_file file = LMC_DEFAULTS;
    enum lmc_status status;
    enum lmc_dtype dtype;
    uint64_t total;
    size_t size;
    options.allocator = allocator;
    TRY(lmc_compress(packed, sizeof packed, &size, weights, sizeof weights, LMC_F32, &options));
    TRY(lmc_decompressed_size(packed, size, &total, &dtype, &options));
    TRY(lmc_decompress(again, sizeof again, &size, packed, size, &options));
    bytes.data = (uint8_t *)weights;
    file.path = "";
    file.size = bytes.size = sizeof weights;
    TRY(lmc_file_identify(&file, NULL, &stream, NULL, allocator));
done:
    return status;
}

#ifdef LMC_PTHREADS
/* One worker: the C library allocates the stack of a thread by itself. */
static enum lmc_status use_pool(const lmc_allocator *allocator)
{
    lmc_pool *pool = NULL;
    const enum lmc_status status = lmc_pool_open(&pool, 1, allocator);
    lmc_pool_free(pool);
    return status;
}
#endif

static void try_all(enum lmc_status (*use)(const lmc_allocator *), const char *about)
{
    heap h = {0, 0, 0, 0};
    lmc_allocator allocator = LMC_DEFAULTS;
    enum lmc_status status;
    long mallocs;
    allocator.reallocate = reallocate;
    allocator.user = &h;
    do {
        mallocs = n_mallocs;
        h.calls = 0;
        status = use(&allocator);
        if (n_mallocs != mallocs) check(0, "the library called malloc", about, h.fail_at);
        if (h.live) check(0, "blocks were not freed", about, h.fail_at);
        if (h.wrong_size) check(0, "a wrong old_size", about, h.fail_at);
        if (status != (h.fail_at < h.calls ? LMC_ERR_MEMORY : LMC_OK))
            check(0, lmc_status_name(status), about, h.fail_at);
        check(status == LMC_OK || status == LMC_ERR_MEMORY, lmc_status_name(status), about,
              h.fail_at);
    } while (failed < 10 && h.fail_at++ < h.calls);
    check(h.calls > 0, "nothing was allocated", about, -1);
    /* without one: by LMC_REALLOC, here the C library */
    mallocs = n_mallocs;
    check(use(NULL) == LMC_OK && n_mallocs > mallocs, "LMC_REALLOC", about, -1);
}

int main(void)
{
    unsigned i;
    for (i = 0; i < N; i++) weights[i] = (float)(i * i % 1009) / 512 - 1;
    for (i = 0; i < N_MOMENTS; i++) moments[i] = (float)(i * 7 % 509 + 1) / 65536;
    try_all(use_snapshots, "snapshots");
    try_all(use_quantizer, "quantisers");
    {
        heap mine = {0, -1, 0, 0}, of_reader = {0, -1, 0, 0};
        lmc_allocator one = LMC_DEFAULTS, other = LMC_DEFAULTS;
        one.reallocate = other.reallocate = reallocate;
        one.user = &mine;
        other.user = &of_reader;
        check(copy_moments(&one, &other) == LMC_OK, "two allocators", "copy", -1);
        check(of_reader.calls > 0 && mine.live == 0, "two allocators: blocks", "copy", -1);
    }
    try_all(use_one_call, "one call");
#ifdef LMC_PTHREADS
    try_all(use_pool, "a pool");
#endif
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
