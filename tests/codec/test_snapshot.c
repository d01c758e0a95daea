/* Layer 3: whole snapshots through writer, restore and reader; fingerprints, limits, faults of
 * every callback and allocation. */
#include "t_io.h"
#include "t_chunks.h"
#include "t_wire.h"

#include <time.h>

/* Bytes of that kind, which look random, but are always the same. */
static uint8_t *make(size_t size, enum t_kind kind, enum lmc_dtype dtype)
{
    uint8_t *data = (uint8_t *)malloc(size ? size : 1);
    if (data == NULL) abort();
    t_fill(data, size, kind, dtype, size + 1);
    return data;
}

/* A file like a safetensors shard: a text header, one tensor of every dtype, and of some unknown
 * ones, gaps and a tail. */
static void add_shard(t_model *model, const char *path, size_t n)
{
    static const char *const odd[] = {"F8_E4M3FN", "Q4_K", "x", "a dtype with a name of 32 bytes."};
    static char names[LMC__DTYPE_COUNT + 8][24];
    static uint64_t shapes[LMC__DTYPE_COUNT + 8][4];
    size_t count = LMC__DTYPE_COUNT - 1 + 4 + 3, i, size = 1111;
    lmc_tensor *tensors = (lmc_tensor *)calloc(count, sizeof *tensors);
    uint8_t *data;
    t_file *f;
    if (tensors == NULL) abort();
    for (i = 0; i < count; i++) {
        enum lmc_dtype dtype = i + 1 < LMC__DTYPE_COUNT ? (enum lmc_dtype)(i + 1) : LMC_AUTO;
        const char *dtype_name = dtype                      ? lmc_dtype_name(dtype)
                                 : i < LMC__DTYPE_COUNT + 3 ? odd[i - LMC__DTYPE_COUNT + 1]
                                                            : "BF16";
        unsigned rank = 3;
        uint64_t bytes;
        snprintf(names[i], sizeof names[i], "layer.%lu.weight", (unsigned long)(i * 7 % 40));
        shapes[i][0] = 2;
        shapes[i][1] = n + i;
        shapes[i][2] = 4; /* so that F4 and F6 fill whole bytes */
        bytes = 8 * (n + i) * lmc_dtype_bits(dtype) / 8;
        if (i == count - 1) rank = 0, bytes = 2;         /* a scalar */
        if (i == count - 2) shapes[i][1] = 0, bytes = 0; /* an empty tensor */
        if (i == count - 3) shapes[i][1] = 5 * n, bytes = 40 * n * 2;
        tensors[i] = t_tensor(names[i], dtype_name, rank, shapes[i], size, bytes);
        size += (size_t)bytes + (i % 5 == 2 ? 3 + i : 0); /* some gaps */
    }
    size += 77;
    data = (uint8_t *)malloc(size);
    if (data == NULL) abort();
    t_fill(data, size, T_TEXT, LMC_U8, n);
    for (i = 0; i < count; i++)
        t_fill(data + tensors[i].offset, (size_t)tensors[i].size,
               (enum t_kind)(i % 3 ? T_GAUSS : T_SPARSE), lmc_dtype_find(tensors[i].dtype), i);
    f = t_add_file(model, path, data, size);
    f->file.tensors = tensors;
    f->file.n_tensors = count;
}

static void everything(t_model *model, size_t n)
{
    t_file *f;
    uint8_t *data;
    memset(model, 0, sizeof *model);
    f = t_add_file(model, "checkpoint/empty directory", NULL, 0);
    f->file.kind = LMC_FILE_DIRECTORY;
    f->file.has_mode = 1;
    f->file.mode = 0755;
    add_shard(model, "checkpoint/model-00001-of-00001.safetensors", n);
    model->files[1].file.has_mode = model->files[1].file.has_mtime = 1;
    model->files[1].file.mode = 07777;
    model->files[1].file.mtime_s = -1;
    model->files[1].file.mtime_ns = 999999999;
    t_add_file(model, "checkpoint/config.json", make(900, T_TEXT, LMC_U8), 900);
    t_add_file(model, "checkpoint/optimizer.pt", make(20 * n + 1, T_PICKLE, LMC_U8), 20 * n + 1);
    /* an odd byte at the end */
    f = t_add_file(model, "raw.bf16", make(8 * n + 1, T_GAUSS, LMC_BF16), 8 * n + 1);
    f->default_dtype = LMC_BF16;
    f = t_add_file(model, "raw.f32", make(16 * n, T_GAUSS, LMC_F32), 16 * n);
    f->default_dtype = LMC_F32;
    f->file.size = LMC_UNKNOWN_SIZE;
    f = t_add_file(model, "of unknown size", make(30 * n + 5, T_GAUSS, LMC_F16), 30 * n + 5);
    f->file.size = LMC_UNKNOWN_SIZE;
    f = t_add_file(model, "empty, of unknown size", NULL, 0);
    f->file.size = LMC_UNKNOWN_SIZE;
    t_add_file(model, "empty", NULL, 0);
    f = t_add_file(model, "\xC3\xA4/\xE6\xA8\xA1\xE5\x9E\x8B", make(1, T_RANDOM, LMC_U8), 1);
    f->file.has_mtime = 1;
    f->file.mtime_s = INT64_MAX;
    data = make(5 * n, T_RANDOM, LMC_U8);
    t_add_file(model, "z\\z", data, 5 * n); /* restoring must take care with this path */
    model->n_metadata = 3;
    model->keys[0] = "zeta";
    model->values[0] = "";
    model->keys[1] = "alpha";
    model->values[1] = "any\0bytes";
    model->value_sizes[1] = 9;
    model->keys[2] = "alpha.2";
    model->values[2] = "x";
    model->value_sizes[2] = 1;
}

/* A source that notes the bytes that were read. */
typedef struct t_spy {
    t_memory *in;
    uint64_t start, end;
} t_spy;

static enum lmc_status t_spy_read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    t_spy *const spy = (t_spy *)user;
    if (offset < spy->start) spy->start = offset;
    if (offset + size > spy->end) spy->end = offset + size;
    return t_read_at(spy->in, offset, dst, size);
}

/* The range of lmc_reader_encoded_range is exactly what reading then takes from the source. */
static void check_encoded_ranges(const t_model *model, t_memory *in)
{
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    t_spy spy;
    uint64_t state = 11, at = 1, size = 1;
    size_t i, round;
    memset(&spy, 0, sizeof spy);
    spy.in = in;
    source.read_at = t_spy_read_at;
    source.user = &spy;
    source.size = in->size;
    if (!CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) return;
    for (i = 0; i < model->n_files; i++) {
        const size_t all = model->files[i].size;
        uint8_t *const data = (uint8_t *)malloc(all + 1);
        if (data == NULL) abort();
        for (round = 0; round < 10; round++) {
            const size_t from = round ? t_below(&state, all + 1) : 0,
                         part = round ? t_below(&state, all - from + 1) : all;
            CHECK_STATUS(lmc_reader_encoded_range(reader, i, from, part, &at, &size), LMC_OK);
            spy.start = UINT64_MAX;
            spy.end = 0;
            CHECK_STATUS(lmc_reader_read_file(reader, i, from, data, part), LMC_OK);
            if (part == 0) CHECK(at == 0 && size == 0 && spy.end == 0);
            else CHECK(at == spy.start && at + size == spy.end);
        }
        CHECK_STATUS(lmc_reader_encoded_range(reader, i, all, 1, &at, &size), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_encoded_range(reader, i, 0, 0, NULL, &size), LMC_ERR_ARGUMENT);
        free(data);
    }
    CHECK_STATUS(lmc_reader_encoded_range(reader, i, 0, 0, &at, &size), LMC_ERR_ARGUMENT);
    lmc_reader_free(reader);
}

/* Everything that the reader says, apart from the data. */
static void check_reader(const t_model *model, t_memory *in)
{
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
    uint64_t state = 5, sum = 0;
    size_t i, k, round;
    source.read_at = t_read_at;
    source.user = in;
    source.size = in->size;
    in->reads = 0;
    if (!CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) return;
    CHECK(in->reads <= 3);
    t_fingerprint(reader, id);
    t_model_fingerprint(model, want);
    CHECK(memcmp(id, want, sizeof id) == 0);
    CHECK(t_info(reader).n_files == model->n_files);
    CHECK(lmc_reader_get_file(reader, model->n_files) == NULL &&
          lmc_reader_get_file(reader, SIZE_MAX) == NULL);
    for (i = 0; i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        const lmc_file *file = lmc_reader_get_file(reader, i);
        uint8_t *data = (uint8_t *)malloc(f->size + 1);
        uint64_t encoded = t_encoded_size(reader, i, 0, f->size), half;
        if (data == NULL) abort();
        CHECK(file != NULL && (encoded > 0) == (f->size > 0) &&
              encoded <= f->size + LMC_BLOCK_HEADER_SIZE * (f->size / 16384 + 40));
        sum += encoded;
        half = t_encoded_size(reader, i, 0, f->size / 2) +
               t_encoded_size(reader, i, f->size / 2, f->size - f->size / 2);
        t_note("encoded size of file %lu: %lu, in halves %lu", (unsigned long)i,
               (unsigned long)encoded, (unsigned long)half);
        /* approximately, for listings */
        CHECK(half + 64 + encoded / 100 >= encoded && half <= encoded + 64 + encoded / 100);
        for (k = 0; k < f->file.n_tensors; k++) {
            const lmc_tensor *tensor = &f->file.tensors[k];
            t_tensor_fingerprint(f->data + tensor->offset, 0, tensor->size, tensor->dtype,
                                 tensor->rank, tensor->shape, want);
            CHECK(memcmp(file->tensors[k].fingerprint, want, sizeof want) == 0);
            CHECK_STATUS(
                lmc_reader_read_tensor(reader, i, &file->tensors[k], 0, data, (size_t)tensor->size),
                LMC_OK);
            CHECK(memcmp(data, f->data + tensor->offset, (size_t)tensor->size) == 0);
            CHECK_STATUS(
                lmc_reader_read_tensor(reader, i, &file->tensors[k], tensor->size, data, 1),
                LMC_ERR_ARGUMENT);
        }
        if (k == 0) {
            t_file_fingerprint(f, want);
            CHECK(memcmp(file->fingerprint, want, sizeof want) == 0);
        }
        for (round = 0; round < 20; round++) {
            size_t from = t_below(&state, f->size + 1), part = t_below(&state, f->size - from + 1);
            memset(data, 0x77, part + 1);
            CHECK_STATUS(lmc_reader_read_file(reader, i, from, data, part), LMC_OK);
            CHECK((part == 0 || memcmp(data, f->data + from, part) == 0) && data[part] == 0x77);
        }
        CHECK_STATUS(lmc_reader_read_file(reader, i, f->size, data, 1), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_read_file(reader, i, UINT64_MAX, data, 2), LMC_ERR_ARGUMENT);
        free(data);
    }
    CHECK(sum < in->size);
    check_encoded_ranges(model, in);
    {
        const char *key = NULL, *last = NULL;
        const void *value = NULL;
        size_t size = 99;
        uint8_t byte;
        const lmc_tensor *tensor = NULL;
        for (i = 0; i < model->n_metadata; i++) {
            CHECK_STATUS(lmc_reader_get_metadata(reader, i, &key, &value, &size), LMC_OK);
            CHECK(last == NULL || strcmp(last, key) < 0);
            for (k = 0; k < model->n_metadata && strcmp(model->keys[k], key) != 0; k++) {}
            CHECK(k < model->n_metadata && size == model->value_sizes[k] &&
                  memcmp(value, model->values[k], size) == 0);
            last = key;
        }
        CHECK_STATUS(lmc_reader_get_metadata(reader, model->n_metadata, &key, &value, &size),
                     LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_read_file(reader, model->n_files, 0, &byte, 1), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "no such tensor", &i, &tensor),
                     LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_find_tensor(reader, "no such file", "layer.0.weight", &i, &tensor),
                     LMC_ERR_NOT_FOUND);
        CHECK(tensor == NULL);
    }
    lmc_reader_free(reader);
}

/* Writing in many ways gives the same bytes; restoring and reading in many ways gives the model. */
static enum lmc_grouping g_group_files;

static void check_model(const t_model *model, unsigned log2_block, const char *name)
{
    static const size_t pieces[] = {0, 1, 7, 4097, 100001, T_STREAM};
    static const unsigned workers[] = {0, 1, 2, 5}; /* 0: no lmc_parallel */
    t_memory first, out;
    uint8_t id[LMC_FINGERPRINT_SIZE], id2[LMC_FINGERPRINT_SIZE];
    size_t i, k, total = 0;
    t_heap heap;
    for (i = 0; i < model->n_files; i++) total += model->files[i].size;
    memset(&first, 0, sizeof first);
    for (i = 0; i < 6; i++)
        for (k = 0; k < 4; k++) {
            unsigned n = workers[k];
            lmc_parallel parallel = t_parallel(&n);
            lmc_writer_options options;
            if (pieces[i] == 1 && total > 300000) continue;
            if (i != 0 && i != 5 && k == 1) continue;
            if (t_quick && (i + k) % 3 != 0) continue;
            t_note("%s: write, log2_block %u, pieces of %lu, %u workers", name, log2_block,
                   (unsigned long)pieces[i], n);
            memset(&heap, 0, sizeof heap);
            heap.fail_at = -1;
            memset(&out, 0, sizeof out);
            memset(&options, 0, sizeof options);
            options.log2_block = log2_block;
            options.group_files = g_group_files;
            options.parallel = n ? &parallel : NULL;
            options.allocator = t_allocator(&heap);
            CHECK_STATUS(t_write_model(model, &out, &options, pieces[i], id2), LMC_OK);
            CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0 && heap.calls > 0);
            if (first.data == NULL) {
                first = out;
                memcpy(id, id2, sizeof id);
                t_model_fingerprint(model, id2);
                CHECK(memcmp(id, id2, sizeof id) == 0);
                continue;
            }
            CHECK(out.size == first.size && memcmp(out.data, first.data, out.size) == 0);
            CHECK(memcmp(id, id2, sizeof id) == 0);
            free(out.data);
        }
    for (i = 0; i < 5; i++)
        for (k = 0; k < 4; k++) {
            unsigned n = workers[k];
            int wrong = 1;
            lmc_parallel parallel = t_parallel(&n);
            lmc_restore_options options;
            lmc_reader_options read_options;
            if (t_quick && (i + k) % 3 != 0) continue;
            t_note("%s: restore, log2_block %u, pieces of %lu, %u workers", name, log2_block,
                   (unsigned long)pieces[i], n);
            memset(&heap, 0, sizeof heap);
            heap.fail_at = -1;
            memset(&options, 0, sizeof options);
            memset(&read_options, 0, sizeof read_options);
            options.parallel = read_options.parallel = n ? &parallel : NULL;
            options.allocator = read_options.allocator = t_allocator(&heap);
            first.piece = pieces[i];
            memset(id2, 0, sizeof id2);
            CHECK_STATUS(t_restore_model(model, &first, &options, id2, &wrong), LMC_OK);
            CHECK(!wrong && memcmp(id, id2, sizeof id) == 0 && heap.live == 0 && heap.bytes == 0 &&
                  heap.wrong_size == 0);
            options.write_at = t_on_write_at;
            CHECK_STATUS(t_restore_model(model, &first, &options, id2, &wrong), LMC_OK);
            CHECK(!wrong && memcmp(id, id2, sizeof id) == 0 && heap.live == 0 && heap.bytes == 0);
            if (i != 0) continue;
            t_note("%s: read, log2_block %u, %u workers", name, log2_block, n);
            CHECK_STATUS(t_read_model(model, &first, &read_options, &wrong), LMC_OK);
            CHECK(!wrong && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            read_options.parallel_reads = 1;
            CHECK_STATUS(t_read_model(model, &first, &read_options, &wrong), LMC_OK);
            CHECK(!wrong && heap.live == 0 && heap.bytes == 0);
        }
    t_note("%s: reader, log2_block %u", name, log2_block);
    check_reader(model, &first);
    free(first.data);
}

static void test_models(void)
{
    static t_model model;
    static const size_t sizes[] = {1, 100, 3000, 20000};
    lmc_tensor *tensors;
    size_t i, n;
    t_file *f;

    for (i = 0; i < (t_quick ? 2u : 4u); i++) {
        everything(&model, sizes[i]);
        check_model(&model, i == 1 ? 14 : i == 2 ? 17 : 0, "everything");
        t_free_model(&model);
    }
    CHECK(t_n_write_at > 0);
    /* from a pipe: no name, no size, one file */
    t_add_file(&model, "", make(70000, T_GAUSS, LMC_F32), 70000);
    model.files[0].file.size = LMC_UNKNOWN_SIZE;
    check_model(&model, 14, "pipe");
    t_free_model(&model);

    t_add_file(&model, "empty", NULL, 0);
    check_model(&model, 0, "empty file");
    t_free_model(&model);
    t_add_file(&model, "d", NULL, 0)->file.kind = LMC_FILE_DIRECTORY;
    check_model(&model, 0, "directory");
    t_free_model(&model);

    /* many small tensors of two dtypes in turn, and as many small files */
    n = t_quick ? 200 : 1500;
    tensors = (lmc_tensor *)calloc(n, sizeof *tensors);
    {
        static char names[1500][12];
        static const uint64_t shape[1] = {37};
        size_t at = 0;
        if (tensors == NULL) abort();
        for (i = 0; i < n; i++) {
            int wide = i % 3 == 0;
            snprintf(names[i], sizeof names[i], "t%lu", (unsigned long)(i * 7919 % 100003));
            tensors[i] = t_tensor(names[i], wide ? "F32" : "BF16", 1, shape, at, wide ? 148 : 74);
            at += wide ? 148 : 74;
        }
        f = t_add_file(&model, "small/tensors", make(at, T_GAUSS, LMC_BF16), at);
    }
    f->file.tensors = tensors;
    f->file.n_tensors = n;
    for (i = 0; i < T_MAX_FILES - 10; i++) {
        static char paths[T_MAX_FILES][16];
        snprintf(paths[i], sizeof paths[i], "small/%lu", (unsigned long)(i * 31 % 1009));
        t_add_file(&model, paths[i], make(i % 50, T_TEXT, LMC_U8), i % 50);
    }
    check_model(&model, 0, "small ones");
    t_free_model(&model);

    /* more than the largest look-ahead: several megabytes of each kind, not all multiples of a
     * block */
    if (!t_quick) {
        f = t_add_file(&model, "unknown", make(18000001, T_GAUSS, LMC_BF16), 18000001);
        f->file.size = LMC_UNKNOWN_SIZE;
        f->default_dtype = LMC_BF16;
        t_add_file(&model, "known", make(5000000, T_GAUSS, LMC_F32), 5000000);
        check_model(&model, 0, "large");
        t_free_model(&model);
    }
}

/* The spec's example: two files with a tensor of the same name. */
static void test_find(void)
{
    static t_model model;
    static const uint64_t shape[2] = {10, 5};
    lmc_tensor tensors[2];
    uint8_t data[300];
    t_memory out;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    const lmc_tensor *tensor = NULL;
    const void *value = NULL;
    size_t number = 9, size = 0;
    t_note("find");
    memset(&model, 0, sizeof model);
    memset(&out, 0, sizeof out);
    t_fill(data, sizeof data, T_GAUSS, LMC_BF16, 1);
    tensors[0] = t_tensor("both", "BF16", 2, shape, 0, 100);
    tensors[1] = t_tensor("", "F16", 2, shape, 200, 100);
    t_add_file(&model, "a", data, 300)->file.tensors = tensors;
    t_add_file(&model, "b", data, 300)->file.tensors = tensors;
    model.files[0].file.n_tensors = 2;
    model.files[1].file.n_tensors = 1;
    CHECK_STATUS(t_write_model(&model, &out, NULL, 0, NULL), LMC_OK);
    source.read_at = t_read_at;
    source.user = &out;
    source.size = out.size;
    if (CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) {
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "both", &number, &tensor),
                     LMC_ERR_AMBIGUOUS);
        CHECK_STATUS(lmc_reader_find_tensor(reader, "b", "both", &number, &tensor), LMC_OK);
        CHECK(number == 1 && tensor == &lmc_reader_get_file(reader, 1)->tensors[0]);
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "", &number, &tensor), LMC_OK);
        CHECK(number == 0 && tensor->offset == 200);
        CHECK_STATUS(lmc_reader_find_tensor(reader, "b", "", &number, &tensor), LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_find_file(reader, "no such file", &number), LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_find_file(reader, NULL, &number), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_find_metadata(reader, "", &value, &size), LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_find_metadata(reader, "\x7f", &value, &size), LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_find_metadata(reader, NULL, &value, &size), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_find_tensor(reader, "a", NULL, &number, &tensor), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_find_tensor(NULL, "a", "both", &number, &tensor), LMC_ERR_ARGUMENT);
    }
    lmc_reader_free(reader);
    free(out.data);
}

/* Every callback and every allocation fails once: the status is right, nothing leaks, no wrong data
 * is delivered. */
static void test_faults(void)
{
    static t_model model;
    t_memory good, out;
    t_calls calls;
    t_heap heap;
    unsigned n = 2;
    lmc_parallel parallel = t_parallel(&n);
    int mode;
    everything(&model, 600);
    memset(&good, 0, sizeof good);
    CHECK_STATUS(t_write_model(&model, &good, NULL, 0, NULL), LMC_OK);
    for (mode = 0; mode < 16; mode++) {
        /* write, restore, read, write by stream; serial, threads; calls, allocations */
        int what = mode % 4, threads = mode / 4 % 2, memory = mode / 8;
        long k, step = t_quick ? 7 : 1;
        for (k = 0;; k += step) {
            lmc_writer_options write_options;
            lmc_restore_options restore_options;
            lmc_reader_options read_options;
            enum lmc_status status;
            int wrong = 0, failed;
            memset(&calls, 0, sizeof calls);
            memset(&heap, 0, sizeof heap);
            calls.fail_at = memory ? -1 : k;
            heap.fail_at = memory ? k : -1;
            memset(&write_options, 0, sizeof write_options);
            memset(&restore_options, 0, sizeof restore_options);
            memset(&read_options, 0, sizeof read_options);
            write_options.allocator = restore_options.allocator = read_options.allocator =
                t_allocator(&heap);
            write_options.log2_block = 14;
            write_options.group_files = k / step % 2 ? LMC_GROUP_NEW : LMC_GROUP_NONE;
            restore_options.write_at = k / step % 4 < 2 ? t_on_write_at : NULL;
            if (threads)
                write_options.parallel = restore_options.parallel = read_options.parallel =
                    &parallel;
            t_note("%s, %s, %s %ld fails",
                   what == 0   ? "write"
                   : what == 1 ? "restore"
                   : what == 2 ? "read"
                               : "stream",
                   threads ? "threads" : "serial", memory ? "allocation" : "callback", k);
            if (what == 0 || what == 3) {
                memset(&out, 0, sizeof out);
                out.calls = &calls;
                status = t_write_model(&model, &out, &write_options, what ? T_STREAM : 1000, NULL);
                free(out.data);
            } else {
                good.calls = &calls;
                good.piece = 50000;
                status = what == 1 ? t_restore_model(&model, &good, &restore_options, NULL, &wrong)
                                   : t_read_model(&model, &good, &read_options, &wrong);
                good.calls = NULL;
            }
            failed = memory ? heap.calls > k : calls.calls > k;
            CHECK_STATUS(status, !failed ? LMC_OK : memory ? LMC_ERR_MEMORY : calls.expect);
            CHECK(!wrong && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            if (!failed) break;
        }
        CHECK(k > 2);
    }
    free(good.data);
    t_free_model(&model);
}

static void test_limits(void)
{
    static t_model model;
    t_memory good;
    lmc_restore_options options;
    lmc_reader_options read_options;
    uint64_t total = 0;
    size_t i;
    int wrong;
    everything(&model, 300);
    for (i = 0; i < model.n_files; i++) total += model.files[i].size;
    memset(&good, 0, sizeof good);
    memset(&options, 0, sizeof options);
    memset(&read_options, 0, sizeof read_options);
    CHECK_STATUS(t_write_model(&model, &good, NULL, 0, NULL), LMC_OK);
    t_note("max_total_size");
    options.max_total_size = total;
    CHECK_STATUS(t_restore_model(&model, &good, &options, NULL, &wrong), LMC_OK);
    CHECK(!wrong);
    read_options.max_total_size = total;
    CHECK_STATUS(t_read_model(&model, &good, &read_options, &wrong), LMC_OK);
    options.max_total_size = read_options.max_total_size = total - 1;
    CHECK_STATUS(t_restore_model(&model, &good, &options, NULL, &wrong), LMC_ERR_LIMIT);
    CHECK(!wrong);
    CHECK_STATUS(t_read_model(&model, &good, &read_options, &wrong), LMC_ERR_LIMIT);
    read_options.max_total_size = 0;
    t_note("max_index_size");
    options.max_total_size = 0;
    options.max_index_size = read_options.max_index_size = 500;
    CHECK_STATUS(t_restore_model(&model, &good, &options, NULL, &wrong), LMC_ERR_LIMIT);
    CHECK_STATUS(t_read_model(&model, &good, &read_options, &wrong), LMC_ERR_LIMIT);
    options.max_index_size = read_options.max_index_size = good.size;
    CHECK_STATUS(t_restore_model(&model, &good, &options, NULL, &wrong), LMC_OK);
    CHECK_STATUS(t_read_model(&model, &good, &read_options, &wrong), LMC_OK);
    free(good.data);
    t_free_model(&model);
}

/* lmc_memory in place of callbacks; an allocation that fails is a write that fails. */
static void test_memory_callbacks(void)
{
    uint8_t data[5000];
    long k;
    t_fill(data, sizeof data, T_GAUSS, LMC_BF16, 4);
    for (k = 0; k < 100; k++) {
        lmc_memory memory;
        lmc_writer *writer = NULL;
        lmc_reader *reader = NULL;
        lmc_sink sink;
        lmc_source source = LMC_DEFAULTS;
        lmc_stream stream;
        lmc_file file;
        t_heap heap;
        enum lmc_status status;
        t_note("memory callbacks, allocation %ld fails", k);
        memset(&memory, 0, sizeof memory);
        memset(&file, 0, sizeof file);
        memset(&heap, 0, sizeof heap);
        heap.fail_at = k;
        memory.allocator = t_allocator(&heap);
        file.path = "f";
        file.size = sizeof data;
        sink = lmc_memory_sink(&memory);
        status = lmc_writer_open(&writer, &sink, NULL);
        if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_BF16);
        if (status == LMC_OK) status = lmc_writer_write(writer, data, sizeof data);
        if (status == LMC_OK) status = lmc_writer_end_file(writer);
        if (status == LMC_OK) status = lmc_writer_finish(writer);
        CHECK_STATUS(status, heap.calls > k ? LMC_ERR_MEMORY : LMC_OK);
        if (status == LMC_OK) {
            CHECK(memory.size == t_written(writer) && memory.size <= memory.cap);
            source = lmc_memory_source(&memory);
            stream = lmc_memory_stream(&memory);
            CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, NULL), LMC_OK);
            CHECK(memory.position == memory.size);
            CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
            memset(data, 0, 100);
            CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, data, 100), LMC_OK);
            CHECK(t_crc32c(0, data, sizeof data) == lmc_reader_get_file(reader, 0)->crc);
        }
        lmc_reader_free(reader);
        lmc_writer_free(writer);
        lmc_memory_free(&memory);
        CHECK(memory.data == NULL && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
        lmc_memory_free(&memory); /* once more does no harm */
        if (status == LMC_OK) break;
    }
    CHECK(k > 0 && k < 100);
}

/* Memory does not grow with the data: a file eight times as long needs only a few more bytes for
 * each block. */
static void test_memory(void)
{
    static t_model model;
    size_t peaks[4][2], k, size = (size_t)(t_quick ? 2 : 6) << 20;
    for (k = 0; k < 2; k++) {
        size_t n = k ? 8 * size : size;
        lmc_writer_options write_options;
        lmc_restore_options restore_options;
        lmc_reader_options read_options;
        lmc_reader *reader = NULL;
        lmc_source source = LMC_DEFAULTS;
        t_memory out;
        t_heap heap;
        int wrong;
        uint8_t byte[16];
        memset(&heap, 0, sizeof heap);
        memset(&out, 0, sizeof out);
        memset(&write_options, 0, sizeof write_options);
        memset(&restore_options, 0, sizeof restore_options);
        memset(&read_options, 0, sizeof read_options);
        heap.fail_at = -1;
        write_options.allocator = restore_options.allocator = read_options.allocator =
            t_allocator(&heap);
        t_add_file(&model, "raw", make(n, T_RAMP, LMC_U16), n)->default_dtype = LMC_U16;
        t_note("memory, %lu bytes", (unsigned long)n);
        CHECK_STATUS(t_write_model(&model, &out, &write_options, 1 << 20, NULL), LMC_OK);
        peaks[0][k] = heap.peak;
        heap.peak = 0;
        CHECK_STATUS(t_restore_model(&model, &out, &restore_options, NULL, &wrong), LMC_OK);
        peaks[1][k] = heap.peak;
        heap.peak = 0;
        source.read_at = t_read_at;
        source.user = &out;
        source.size = out.size;
        CHECK_STATUS(lmc_reader_open(&reader, &source, &read_options), LMC_OK);
        out.reads = 0;
        CHECK_STATUS(lmc_reader_read_file(reader, 0, n / 2, byte, 16), LMC_OK);
        CHECK(memcmp(byte, model.files[0].data + n / 2, 16) == 0 && out.reads <= 2);
        lmc_reader_free(reader);
        peaks[2][k] = heap.peak;
        heap.peak = 0;
        out.size = 0;
        CHECK_STATUS(t_write_model(&model, &out, &write_options, T_STREAM, NULL), LMC_OK);
        peaks[3][k] = heap.peak;
        CHECK(heap.live == 0);
        free(out.data);
        t_free_model(&model);
    }
    for (k = 0; k < 4; k++) {
        t_note("memory of %s: %lu and %lu bytes",
               k == 0   ? "writer"
               : k == 1 ? "restore"
               : k == 2 ? "reader"
                        : "stream",
               (unsigned long)peaks[k][0], (unsigned long)peaks[k][1]);
        CHECK(peaks[k][0] > 0 && peaks[k][0] < ((size_t)13 << 19));
        CHECK(peaks[k][1] < peaks[k][0] + 7 * (size >> 17) * 64 + 4096);
    }
}

/* A file whose description must be refused with ARGUMENT; the writer then repeats this status. */
static void refuse(const lmc_file *file, const char *what)
{
    lmc_writer *writer = NULL;
    lmc_sink sink = LMC_DEFAULTS;
    t_memory out;
    memset(&out, 0, sizeof out);
    sink.write = t_append;
    sink.user = &out;
    t_note("refused: %s", what);
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, file, LMC_AUTO), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_ERR_ARGUMENT);
    lmc_writer_free(writer);
    free(out.data);
}

static void test_descriptions(void)
{
    static const char *const paths[] = {"../x",  "a/../b", "a/..", "..", ".", "./a", "a/.",
                                        "a/./b", "a//b",   "/a",   "a/", "/", NULL};
    static const uint64_t shape[33] = {2, 3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint64_t huge[2] = {UINT64_C(1) << 33, UINT64_C(1) << 31},
                          wraps[2] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
    static const uint64_t three[1] = {3};
    static char long_name[65537];
    lmc_tensor pair[2], t;
    lmc_file file, good;
    size_t i;
    memset(&good, 0, sizeof good);
    good.path = "f";
    good.size = 1000;
    good.tensors = pair;

    for (i = 0; i < sizeof paths / sizeof *paths; i++) {
        file = good;
        file.path = paths[i];
        refuse(&file, paths[i] ? paths[i] : "path NULL");
    }
    memset(long_name, 'n', sizeof long_name - 1);
    file = good;
    file.path = long_name;
    refuse(&file, "path of 65,536 bytes");
    file = good;
    file.kind = (enum lmc_file_kind)2;
    refuse(&file, "kind 2");
    file = good;
    file.kind = LMC_FILE_DIRECTORY;
    refuse(&file, "directory with a size");
    file = good;
    file.size = UINT64_C(1) << 63;
    refuse(&file, "size 2^63");
    file = good;
    file.has_mode = 1;
    file.mode = 010000;
    refuse(&file, "mode 010000");
    file = good;
    file.has_mtime = 1;
    file.mtime_ns = 1000000000;
    refuse(&file, "a second of nanoseconds");
    refuse(NULL, "NULL");

    file = good;
    file.n_tensors = 1;
    t = t_tensor("t", "BF16", 3, shape, 100, 48);
#define REFUSE(change, what) (pair[0] = t, change, refuse(&file, what))
    REFUSE(pair[0].size = 47, "size 47 of 48");
    REFUSE(pair[0].size = 50, "size 50 of 48");
    REFUSE(pair[0].dtype = "F32", "size of another dtype");
    REFUSE(pair[0].rank = 33, "rank 33");
    REFUSE(pair[0].shape = NULL, "shape NULL");
    REFUSE(pair[0].name = NULL, "name NULL");
    REFUSE(pair[0].name = long_name, "name of 65,536 bytes");
    REFUSE(pair[0].dtype = NULL, "dtype NULL");
    REFUSE(pair[0].dtype = "", "dtype empty");
    REFUSE(pair[0].dtype = "a dtype of 33 bytes, one too many", "dtype of 33 bytes");
    REFUSE(pair[0].offset = 953, "end beyond the file");
    REFUSE(pair[0].offset = UINT64_MAX - 10, "end overflows");
    REFUSE((pair[0].shape = huge, pair[0].rank = 2, pair[0].size = 0), "2^64 elements");
    REFUSE((pair[0].shape = wraps, pair[0].rank = 2, pair[0].size = 0), "product wraps to 0");
    REFUSE((pair[0].shape = three, pair[0].rank = 1, pair[0].dtype = "F4", pair[0].size = 1),
           "12 bits, 1 byte");
    REFUSE((pair[0].shape = three, pair[0].rank = 1, pair[0].dtype = "F4", pair[0].size = 2),
           "12 bits, 2 bytes");
    REFUSE((pair[0].rank = 0), "scalar of 48 bytes");
    file.tensors = NULL;
    refuse(&file, "tensors NULL");
    file.tensors = pair;
    file.size = LMC_UNKNOWN_SIZE;
    REFUSE(pair[0] = t, "tensors in a file of unknown size");
    file.size = 0;
    file.kind = LMC_FILE_DIRECTORY;
    REFUSE(pair[0].size = 0, "tensors in a directory");
    file = good;
    file.n_tensors = 2;
    pair[1] = t;
    pair[1].name = "u";
    REFUSE(pair[1].offset = 147, "overlap by one byte");
    REFUSE(pair[1].offset = 50, "not sorted");
    REFUSE((pair[1].offset = 148, pair[1].name = "t"), "a name twice");
#undef REFUSE
}

/* Calls in a wrong order, and their effects. */
static void test_order(void)
{
    t_memory out;
    lmc_sink sink = LMC_DEFAULTS;
    lmc_writer *writer;
    lmc_writer_options options;
    lmc_file file, other;
    lmc_stream stream = LMC_DEFAULTS;
    t_memory in;
    uint8_t text[] = "0123456789abc";
    int step;
    memset(&in, 0, sizeof in);
    in.data = text;
    in.size = 13;
    stream.read = t_read;
    stream.user = &in;
    memset(&file, 0, sizeof file);
    file.path = "f";
    file.size = 10;
    other = file;
    other.path = "g";
    sink.write = t_append;
    sink.user = &out;
    for (step = 0; step < 20; step++) {
        enum lmc_status status = LMC_OK;
        memset(&out, 0, sizeof out);
        writer = NULL;
        t_note("order, case %d", step);
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        switch (step) {
        case 0: status = lmc_writer_write(writer, "x", 1); break;
        case 1: status = lmc_writer_end_file(writer); break;
        case 2: status = lmc_writer_finish(writer); break; /* without a file */
        case 3:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            status = lmc_writer_begin_file(writer, &other, LMC_AUTO);
            break;
        case 4:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            status = lmc_writer_finish(writer);
            break;
        case 5:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            status = lmc_writer_write(writer, "0123456789A", 11);
            break;
        case 6:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_write(writer, "012345678", 9), LMC_OK);
            status = lmc_writer_end_file(writer);
            break;
        case 7:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            status = lmc_writer_write(writer, NULL, 1);
            break;
        case 17: status = lmc_writer_write_stream(writer, &stream); break;
        case 18:
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            status = lmc_writer_write_stream(writer, NULL);
            break;
        case 19: /* a file takes no more than its bytes from the stream */
            file.size = other.size = 10;
            other.path = "g";
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
            CHECK(in.at == 10);
            CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
            CHECK(in.at == 10);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            CHECK_STATUS(lmc_writer_begin_file(writer, &other, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
            CHECK(in.at == 13); /* no byte more */
            status = lmc_writer_end_file(writer);
            file.size = other.size = 0;
            break;
        case 8: status = lmc_writer_add_metadata(writer, "", "v", 1); break;
        case 9: status = lmc_writer_add_metadata(writer, NULL, "v", 1); break;
        case 10: /* the same key twice: found when it is added, or at the end */
            file.size = 0;
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            CHECK_STATUS(lmc_writer_add_metadata(writer, "k", "v", 1), LMC_OK);
            status = lmc_writer_add_metadata(writer, "k", "w", 1);
            if (status == LMC_OK) status = lmc_writer_finish(writer);
            file.size = 10;
            break;
        case 11: status = lmc_writer_add_metadata(writer, "k", NULL, 1); break;
        case 12: status = lmc_writer_get_info(writer, NULL); break;
        case 13:
            status = lmc_writer_begin_file(writer, &file, (enum lmc_dtype)LMC__DTYPE_COUNT);
            break;
        case 14: /* the same path twice */
            other.path = "f";
            other.size = file.size = 0;
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            /* refused at once, before its data comes */
            status = lmc_writer_begin_file(writer, &other, LMC_AUTO);
            break;
        case 15: /* no name beside another file */
            other.path = "";
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            status = lmc_writer_begin_file(writer, &other, LMC_AUTO);
            break;
        default: /* in the other order */
            CHECK_STATUS(lmc_writer_begin_file(writer, &other, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
            break;
        }
        CHECK_STATUS(status, LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_writer_finish(writer), LMC_ERR_ARGUMENT);
        lmc_writer_free(writer);
        free(out.data);
    }
    t_note("order, after finishing");
    memset(&out, 0, sizeof out);
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_write(writer, "", 0) == LMC_OK ? LMC_OK : LMC_ERR_ARGUMENT,
                 LMC_ERR_ARGUMENT);
    lmc_writer_free(writer);
    free(out.data);
    t_note("order, options");
    memset(&options, 0, sizeof options);
    writer = NULL;
    options.log2_block = 13;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_ERR_ARGUMENT);
    options.log2_block = 23;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_open(NULL, &sink, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_open(&writer, NULL, NULL), LMC_ERR_ARGUMENT);
    CHECK(writer == NULL);
    CHECK_STATUS(lmc_snapshot_restore(NULL, NULL, NULL), LMC_ERR_ARGUMENT);
    for (step = 0; step < 2; step++) { /* write_at without write, and in place */
        lmc_restore_options restore_options;
        lmc_memory nothing;
        lmc_stream stream = lmc_memory_stream(&nothing);
        memset(&nothing, 0, sizeof nothing);
        memset(&restore_options, 0, sizeof restore_options);
        restore_options.write = step ? t_on_write : NULL;
        restore_options.write_at = t_on_write_at;
        restore_options.in_place = step == 1;
        restore_options.read_back = t_on_read_back;
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &restore_options), LMC_ERR_ARGUMENT);
    }
    CHECK_STATUS(lmc_reader_open(NULL, NULL, NULL), LMC_ERR_ARGUMENT);
    lmc_writer_free(NULL);
    lmc_reader_free(NULL);
}

/* -- the stack: docs/api.md promises to need less than 32 KiB, 64 KiB for deltas -- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define T_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define T_INSTRUMENTED 1
#endif
#endif

#if defined(__wasi__) || defined(_WIN32) /* no thread with a stack of our own */
#define T_INSTRUMENTED 1
#endif

#ifndef T_INSTRUMENTED
static t_model stack_model;
static t_memory stack_out;

static void *do_nothing(void *arg) { return arg; }

static void *do_everything(void *arg)
{
    lmc_restore_options restore_options;
    lmc_tensor_options options;
    /* large enough for streaming stores */
    size_t size = (size_t)9 << 20, cap, encoded, ws_size;
    uint8_t *plain, *packed, *ws;
    int wrong = 1;
    memset(&options, 0, sizeof options);
    options.dtype = LMC_BF16;
    cap = lmc_tensor_bound(size, &options);
    ws_size = lmc_tensor_workspace_size(&options);
    plain = (uint8_t *)malloc(size);
    packed = (uint8_t *)malloc(cap);
    ws = (uint8_t *)malloc(ws_size);
    if (plain == NULL || packed == NULL || ws == NULL) abort();
    t_fill(plain, size, T_GAUSS, LMC_BF16, 3);
    CHECK_STATUS(lmc_tensor_encode(packed, cap, &encoded, plain, size, &options, ws, ws_size),
                 LMC_OK);
    CHECK_STATUS(lmc_tensor_decode(plain, size, packed, encoded, &options, ws, ws_size), LMC_OK);
    free(plain);
    free(packed);
    free(ws);
    memset(&restore_options, 0, sizeof restore_options);
    CHECK_STATUS(t_write_model(&stack_model, &stack_out, NULL, 0, NULL), LMC_OK);
    CHECK_STATUS(t_restore_model(&stack_model, &stack_out, &restore_options, NULL, &wrong), LMC_OK);
    CHECK(!wrong);
    CHECK_STATUS(t_read_model(&stack_model, &stack_out, NULL, &wrong), LMC_OK);
    CHECK(!wrong);
    return arg;
}

/* Sparse and dense deltas of all widths, on all tiers; large enough for streaming stores. */
static void *do_deltas(void *arg)
{
    static const enum lmc_dtype dtypes[] = {LMC_U8, LMC_BF16, LMC_F32, LMC_F64};
    static const enum t_base kinds[] = {T_FEW, T_STEPS};
    const size_t size = (size_t)(t_brief ? 1 : 9) << 20;
    const enum lmc_tier best = lmc_tier_current();
    uint8_t *plain = make(size, T_GAUSS, LMC_BF16), *base = make(size, T_ZERO, LMC_U8);
    lmc_tensor_options options;
    size_t i, k;
    int tier;
    memset(&options, 0, sizeof options);
    for (tier = 0; tier <= (int)best; tier++) /* one that is not there: the one below */
        for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            for (k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                size_t cap, encoded, ws_size;
                uint8_t *packed, *ws;
                lmc_tier_limit((enum lmc_tier)tier);
                options.dtype = dtypes[i];
                options.prediction = base;
                options.prediction_size = size;
                t_fill(plain, size, T_GAUSS, dtypes[i], i);
                t_fill_base(base, plain, size, kinds[k], T_GAUSS, dtypes[i], i);
                cap = lmc_tensor_bound(size, &options);
                ws_size = lmc_tensor_workspace_size(&options);
                packed = (uint8_t *)malloc(cap);
                ws = (uint8_t *)malloc(ws_size);
                if (packed == NULL || ws == NULL) abort();
                CHECK_STATUS(
                    lmc_tensor_encode(packed, cap, &encoded, plain, size, &options, ws, ws_size),
                    LMC_OK);
                CHECK(encoded < size);
                CHECK_STATUS(lmc_tensor_decode(plain, size, packed, encoded, &options, ws, ws_size),
                             LMC_OK);
                CHECK_STATUS(lmc_tensor_decode(base, size, packed, encoded, &options, ws, ws_size),
                             LMC_OK);
                CHECK(memcmp(plain, base, size) == 0);
                free(packed);
                free(ws);
            }
    lmc_tier_limit(best);
    free(plain);
    free(base);
    return arg;
}

/* How much stack the work uses, in a thread with a painted stack. */
static size_t stack_depth(void *(*work)(void *))
{
    size_t size = 256 << 10, i;
    uint8_t *stack =
        (uint8_t *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    if (stack == MAP_FAILED) abort();
    memset(stack, 0xC5, size);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, size) != 0 ||
        pthread_create(&thread, &attributes, work, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    for (i = 0; i < size && stack[i] == 0xC5; i++) {}
    munmap(stack, size);
    return size - i;
}

static void test_stack(void)
{
    size_t base, all, deltas;
    everything(&stack_model, 3000);
    base = stack_depth(do_nothing);
    all = stack_depth(do_everything);
    deltas = stack_depth(do_deltas);
    t_note("stack: %lu bytes, with deltas %lu, of which %lu are the thread's own",
           (unsigned long)all, (unsigned long)deltas, (unsigned long)base);
    CHECK(all > base && all - base < 32768);
    CHECK(deltas > all && deltas - base < 65536);
    free(stack_out.data);
    t_free_model(&stack_model);
}
#endif

/* A tensor of 1 MB out of 10 GB of zeros: three reads to open, few to read, milliseconds. */
static void test_large(void)
{
    static const uint64_t shape[2] = {512, 1024};
    uint64_t before = UINT64_C(7) << 30, total = UINT64_C(10) << 30, at;
    size_t piece = 1 << 20;
    uint8_t *zeros = (uint8_t *)calloc(1, piece), *data = make(piece, T_GAUSS, LMC_BF16),
            *got = (uint8_t *)malloc(piece);
    lmc_tensor tensor = t_tensor("middle", "BF16", 2, shape, before, piece);
    const lmc_tensor *found = NULL;
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    lmc_sink sink = LMC_DEFAULTS;
    lmc_file file;
    t_memory out;
    size_t number = 1;
    clock_t start;
    double ms;
    memset(&out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    file.path = "ten gigabytes";
    file.size = total;
    file.n_tensors = 1;
    file.tensors = &tensor;
    sink.write = t_append;
    sink.user = source.user = &out;
    t_note("10 GB");
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
    for (at = 0; at < total; at += piece)
        if (lmc_writer_write(writer, at == before ? data : zeros, piece) != LMC_OK) break;
    CHECK(at == total);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    CHECK(out.size < (size_t)(total / 1000)); /* zeros shrink at least 1000 times */
    source.read_at = t_read_at;
    source.size = out.size;
    start = clock();
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "middle", &number, &found), LMC_OK);
    CHECK_STATUS(lmc_reader_read_tensor(reader, number, found, 0, got, piece), LMC_OK);
    ms = (double)(clock() - start) * 1000 / CLOCKS_PER_SEC;
    CHECK(memcmp(got, data, piece) == 0);
    CHECK(out.reads <= 5);
    printf("1 MB of 10 GB: %ld reads, %.1f ms of CPU time, file of %lu bytes\n", out.reads, ms,
           (unsigned long)out.size);
    lmc_reader_free(reader);
    free(out.data);
    free(zeros);
    free(data);
    free(got);
}

/* A path that is already there is refused, with any number of paths, and for each of them. */
static void test_many_paths(void)
{
    enum { N = 300 };
    char path[20];
    size_t i, again;
    for (again = 0; again < N; again += t_quick ? 23 : 1) {
        lmc_memory memory;
        lmc_sink sink = lmc_memory_sink(&memory);
        lmc_writer *writer = NULL;
        lmc_file file;
        memset(&memory, 0, sizeof memory);
        memset(&file, 0, sizeof file);
        file.path = path;
        t_note("path %lu again", (unsigned long)again);
        if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK)) return;
        for (i = 0; i <= N; i++) {
            snprintf(path, sizeof path, "%lu", (unsigned long)(i < N ? i : again));
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO),
                         i < N ? LMC_OK : LMC_ERR_ARGUMENT);
            if (i < N) CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
        }
        lmc_writer_free(writer);
        lmc_memory_free(&memory);
    }
}

static enum lmc_status count_file(void *user, const lmc_file *file, size_t number)
{
    (void)file;
    *(size_t *)user = number + 1;
    return LMC_OK;
}

/* The limit of the index also applies while it is rebuilt: no longer body is read, and no more
 * files than fit. */
static void test_index_limit(void)
{
    enum { FILES = 300, NAME = 60000, NAMES = 60 };
    char *const name = (char *)malloc(NAME + 1), path[20];
    lmc_tensor *const tensors = (lmc_tensor *)calloc(NAMES, sizeof *tensors);
    int many;
    size_t i;
    if (!name || !tensors) abort();
    for (many = 0; many < 2; many++) { /* one file of long names; many files */
        lmc_restore_options options;
        lmc_memory memory;
        lmc_sink sink = lmc_memory_sink(&memory);
        lmc_stream stream = LMC_DEFAULTS;
        lmc_writer *writer = NULL;
        size_t n_begun = 0;
        lmc_file file;
        t_heap heap;
        memset(&memory, 0, sizeof memory);
        memset(&file, 0, sizeof file);
        memset(&options, 0, sizeof options);
        memset(&heap, 0, sizeof heap);
        heap.fail_at = -1;
        file.path = path;
        t_note("the limit to the index, %s", many ? "many files" : "long names");
        if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK)) break;
        memset(name, 'n', NAME);
        name[NAME] = 0;
        for (i = 0; i < NAMES; i++) {
            tensors[i].name = name + i;
            tensors[i].dtype = "?";
        }
        for (i = 0; i < (many ? FILES : 1); i++) {
            snprintf(path, sizeof path, "%lu", (unsigned long)i);
            file.n_tensors = many ? 0 : NAMES;
            file.tensors = many ? NULL : tensors;
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
        }
        CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
        CHECK_STATUS(lmc_writer_finish(writer), LMC_ERR_ARGUMENT);
        lmc_writer_free(writer);
        options.allocator = t_allocator(&heap);
        options.max_index_size = 5000;
        options.user = &n_begun;
        options.begin_file = count_file;
        stream = lmc_memory_stream(&memory);
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_LIMIT);
        CHECK(n_begun < (many ? 150u : 1u) && heap.peak < (size_t)NAME * NAMES / 2 &&
              heap.live == 0);
        lmc_memory_free(&memory);
    }
    free(name);
    free(tensors);
}

typedef struct t_endless {
    uint64_t read;
    long until_wrong; /* calls; then one returns more than was requested */
} t_endless;

static enum lmc_status read_endless(void *user, void *dst, size_t size, size_t *got)
{
    t_endless *endless = (t_endless *)user;
    if (endless->read > (uint64_t)200 << 20) return LMC_ERR_READ; /* reading does not stop */
    memset(dst, 'x', size);
    endless->read += size;
    *got = endless->until_wrong-- == 0 ? size + 1 : size;
    return LMC_OK;
}

static enum lmc_status refuse_writing(void *user, const void *data, size_t size)
{
    (void)data;
    return *(long *)user -= (long)size, *(long *)user < 0 ? LMC_ERR_WRITE : LMC_OK;
}

/* Streams that lie; and an endless stream, of which little is read after writing fails. */
static void test_streams(void)
{
    const uint64_t size = (uint64_t)1 << 40;
    lmc_file file;
    t_endless endless;
    lmc_stream stream = LMC_DEFAULTS;
    long i;
    stream.read = read_endless;
    stream.user = &endless;
    for (i = 0; i < 4; i++) {
        long room = i == 0 ? 5000 : 1L << 30;
        lmc_sink sink = LMC_DEFAULTS;
        lmc_writer *writer = NULL;
        sink.write = refuse_writing;
        sink.user = &room;
        memset(&file, 0, sizeof file);
        file.path = "endless";
        file.size = size;
        endless.read = 0;
        endless.until_wrong = i - 1;
        t_note("streams: %ld", i);
        if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK)) return;
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_F32), LMC_OK);
        CHECK_STATUS(lmc_writer_write_stream(writer, &stream),
                     i == 0 ? LMC_ERR_WRITE : LMC_ERR_READ);
        CHECK(endless.read < (uint64_t)100 << 20);
        lmc_writer_free(writer);
        if (i == 0) continue;
        endless.until_wrong = i - 1;
        CHECK_STATUS(lmc_file_identify(&file, NULL, &stream, NULL, NULL), LMC_ERR_READ);
        if (i == 1) {
            endless.until_wrong = 0;
            CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, NULL), LMC_ERR_READ);
        }
    }
}

typedef struct t_asked {
    uint64_t size;
    size_t n; /* how often */
} t_asked;

static enum lmc_status count_reads(void *user, void *dst, size_t cap, size_t *size)
{
    t_asked *const asked = (t_asked *)user;
    memset(dst, 0, cap);
    *size = cap;
    asked->size += cap;
    asked->n++;
    return LMC_OK;
}

static enum lmc_status drop(void *user, const void *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return LMC_OK;
}

/* Requests to a stream are large, also if the last wave of a span is small: here that wave has `b`,
 * for which the first one had no room, and no whole block of `c`. */
static void test_large_requests(void)
{
    const uint64_t size_b = 304, size_c = (uint64_t)7 << 20;
    unsigned more;
    for (more = 32000; more < 32700; more += 100) {
        const uint64_t size_a = (4u << 17) + more;
        lmc_writer_options options = LMC_DEFAULTS;
        t_asked asked = {0, 0};
        const lmc_stream stream = {count_reads, &asked, {0, 0}};
        const lmc_sink sink = {drop, NULL, {0, 0}};
        lmc_writer *writer = NULL;
        lmc_tensor tensors[3];
        lmc_file file;
        const uint64_t shape_b = size_b / 4, shape_c = size_c / 8;
        memset(tensors, 0, sizeof tensors);
        memset(&file, 0, sizeof file);
        tensors[0].name = "a";
        tensors[0].dtype = "U8";
        tensors[0].shape = &size_a;
        tensors[0].size = size_a;
        tensors[1].name = "b";
        tensors[1].dtype = "F32";
        tensors[1].shape = &shape_b;
        tensors[1].size = size_b;
        tensors[1].offset = size_a;
        tensors[2].name = "c";
        tensors[2].dtype = "F64";
        tensors[2].shape = &shape_c;
        tensors[2].size = size_c;
        tensors[2].offset = size_a + size_b;
        tensors[0].rank = tensors[1].rank = tensors[2].rank = 1;
        file.path = "f";
        file.size = size_a + size_b + size_c;
        file.n_tensors = 3;
        file.tensors = tensors;
        options.log2_block = 17;
        t_note("large requests, %u", more);
        if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK)) return;
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
        CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
        CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
        CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
        CHECK(asked.size == file.size && asked.n < 20);
        lmc_writer_free(writer);
    }
}

/* A file "f" of one tensor "t", behind `front` bytes of no tensor. */
typedef struct t_one {
    uint64_t shape;
    lmc_tensor tensor;
    lmc_file file;
} t_one;

static void describe_one(t_one *one, const char *dtype, size_t width, size_t front, size_t size)
{
    memset(one, 0, sizeof *one);
    one->shape = (size - front) / width;
    one->tensor.name = "t";
    one->tensor.dtype = dtype;
    one->tensor.rank = 1;
    one->tensor.shape = &one->shape;
    one->tensor.offset = front;
    one->tensor.size = size - front;
    one->file.path = "f";
    one->file.size = size;
    one->file.n_tensors = 1;
    one->file.tensors = &one->tensor;
}

/* A block that a read cuts is copied in front of the next read, if at most 512 KiB; else it waits
 * elsewhere. Streams give the same file as one call with all bytes, for all rests: none, a byte
 * less than 512 KiB, 512 KiB, a byte more; also if another stream follows. */
static void test_rests_of_streams(void)
{
    static const unsigned log2_blocks[] = {16, 19, 20, 22};
    /* bytes in front of the tensor. Reads end at 64, 320, 1344 and 2880 KiB. So 64, 320, 320 and
     * 832 KiB of blocks of 1 MiB are left there, minus these bytes */
    static const size_t fronts[] = {0, 1000, (320u << 10) - 1, 320u << 10, (320u << 10) + 1};
    const size_t size = ((size_t)9 << 20) + 12345;
    uint8_t *const data = make(size, T_GAUSS, LMC_U8);
    unsigned workers = 2, i, k, how;
    lmc_parallel parallel = t_parallel(&workers);
    for (i = 0; i < 4; i++)
        for (k = 0; k < 5; k++) {
            t_memory out[5];
            memset(out, 0, sizeof out);
            for (how = 0; how < 5; how++) { /* one call; streams, serial, threads; two of each */
                const size_t cut = how > 2 ? ((size_t)2880 << 10) + 5 : size;
                const lmc_sink sink = {t_append, &out[how], {0, 0}};
                lmc_writer_options options = LMC_DEFAULTS;
                t_memory in;
                lmc_writer *writer = NULL;
                t_one one;
                const lmc_stream stream = {t_read, &in, {0, 0}};
                describe_one(&one, "U8", 1, fronts[k], size);
                options.log2_block = log2_blocks[i];
                if (how % 2 == 0 && how) options.parallel = &parallel;
                memset(&in, 0, sizeof in);
                in.data = data;
                in.size = cut;
                in.piece = how == 1 ? 0 : 100003;
                t_note("rests of streams, blocks of 2^%u, %u bytes in front, way %u",
                       log2_blocks[i], (unsigned)fronts[k], how);
                if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK)) break;
                CHECK_STATUS(lmc_writer_begin_file(writer, &one.file, LMC_AUTO), LMC_OK);
                if (how == 0) CHECK_STATUS(lmc_writer_write(writer, data, size), LMC_OK);
                else CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
                if (how > 2) {
                    CHECK(in.at == cut);
                    in.size = size;
                    CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
                }
                CHECK(how == 0 || in.at == size);
                CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
                CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
                lmc_writer_free(writer);
                CHECK(out[how].size == out[0].size &&
                      memcmp(out[how].data, out[0].data, out[0].size) == 0);
            }
            for (how = 0; how < 5; how++) free(out[how].data);
        }
    free(data);
}

/* The sink has got as many bytes as the writer says. */
static void test_count_written(void)
{
    const size_t size = (size_t)5 << 20, piece = 700001;
    uint8_t *const data = make(size, T_GAUSS, LMC_F32);
    unsigned workers = 2;
    lmc_parallel parallel = t_parallel(&workers);
    int by_stream, threads;
    for (by_stream = 0; by_stream < 2; by_stream++)
        for (threads = 0; threads < 2; threads++) {
            lmc_writer_options options;
            lmc_memory out, in;
            lmc_sink sink = lmc_memory_sink(&out);
            lmc_stream stream = lmc_memory_stream(&in);
            lmc_writer *writer = NULL;
            lmc_writer_info info;
            lmc_reader *reader = NULL;
            lmc_source source;
            t_one one;
            size_t at;
            memset(&options, 0, sizeof options);
            memset(&out, 0, sizeof out);
            memset(&in, 0, sizeof in);
            /* blocks end at any place of a read */
            describe_one(&one, "F32", 4, 1000, size);
            if (threads) options.parallel = &parallel;
            t_note("count written, %s, %s", by_stream ? "by stream" : "by pieces",
                   threads ? "threads" : "serial");
            CHECK_STATUS(lmc_writer_get_info(NULL, &info), LMC_ERR_ARGUMENT);
            if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK)) return;
            CHECK(t_written(writer) == out.size && out.size == LMC_HEADER_SIZE);
            CHECK_STATUS(lmc_writer_begin_file(writer, &one.file, LMC_F32), LMC_OK);
            for (at = 0; at < size && !by_stream; at += piece) {
                CHECK_STATUS(
                    lmc_writer_write(writer, data + at, size - at < piece ? size - at : piece),
                    LMC_OK);
                CHECK(t_written(writer) == out.size);
            }
            in.data = data;
            in.size = size;
            if (by_stream) CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_OK);
            CHECK(t_written(writer) == out.size);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
            CHECK(t_written(writer) == out.size && out.size > size / 2);
            lmc_writer_free(writer);
            source = lmc_memory_source(&out);
            if (CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) {
                uint8_t *const got = (uint8_t *)malloc(size);
                if (got == NULL) abort();
                CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, size), LMC_OK);
                CHECK(memcmp(got, data, size) == 0);
                free(got);
                lmc_reader_free(reader);
            }
            lmc_memory_free(&out);
        }
    free(data);
}

/* A snapshot of one file of file->size bytes. */
static int write_hinted(lmc_memory *out, const lmc_writer_options *options, const lmc_file *file,
                        enum lmc_dtype dtype, const uint8_t *data, size_t hinted,
                        const lmc_tensor_hints *hints)
{
    const lmc_sink sink = lmc_memory_sink(out);
    lmc_writer *writer = NULL;
    if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, options), LMC_OK)) return 0;
    if (hints) CHECK_STATUS(lmc_writer_add_hints(writer, hinted, hints), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, file, dtype), LMC_OK);
    CHECK_STATUS(lmc_writer_write(writer, data, (size_t)file->size), LMC_OK);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    return 1;
}

static int write_file(lmc_memory *out, const lmc_writer_options *options, const lmc_file *file,
                      enum lmc_dtype dtype, const uint8_t *data)
{
    return write_hinted(out, options, file, dtype, data, 0, NULL);
}

/* Small neighbours are coded by their dtypes: together in a file they take about as much as
 * alone. */
static void test_neighbours(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F32, LMC_F64, LMC_U8, LMC_F16};
    enum { N = sizeof dtypes / sizeof *dtypes, ELEMENTS = 9000 };
    uint8_t *const data = (uint8_t *)malloc(8 * ELEMENTS * N);
    lmc_tensor tensors[N];
    uint64_t alone = 0, offset = 0, shape = ELEMENTS;
    size_t i;
    if (data == NULL) abort();
    memset(tensors, 0, sizeof tensors);
    t_note("neighbours");
    for (i = 0; i <= N; i++) { /* each, then all */
        lmc_memory out;
        lmc_tensor one;
        lmc_file file;
        memset(&out, 0, sizeof out);
        memset(&file, 0, sizeof file);
        file.path = "f";
        if (i < N) {
            lmc_tensor *const t = &tensors[i];
            t->name = t->dtype = lmc_dtype_name(dtypes[i]);
            t->rank = 1;
            t->shape = &shape;
            t->offset = offset;
            t->size = ELEMENTS * lmc_dtype_width(dtypes[i]);
            t_fill(data + offset, (size_t)t->size, T_GAUSS, dtypes[i], i);
            one = *t;
            one.offset = 0;
            file.n_tensors = 1;
            file.tensors = &one;
            file.size = t->size;
        } else {
            file.n_tensors = N;
            file.tensors = tensors;
            file.size = offset;
        }
        if (!write_file(&out, NULL, &file, LMC_AUTO, i < N ? data + offset : data)) break;
        if (i < N) {
            alone += out.size;
            offset += file.size;
        } else CHECK(out.size < alone);
        lmc_memory_free(&out);
    }
    free(data);
}

/* Bytes between the last block and its row that belong to nothing: as a gap, and as a part of the
 * block. */
static void test_gap(void)
{
    static const uint8_t content[4096] = {0};
    lmc_memory good, bad;
    lmc_file file;
    int what;
    memset(&good, 0, sizeof good);
    memset(&file, 0, sizeof file);
    file.path = "f";
    file.size = sizeof content;
    if (!write_file(&good, NULL, &file, LMC_AUTO, content)) return;
    /* unchanged; with a gap; with an index that includes the gap in the block */
    for (what = 0; what < 3; what++) {
        const size_t gap = what ? 8 : 0, index_end = good.size - 40 + gap,
                     index_at = (size_t)w_get(good.data + good.size - 40, 8),
                     rows_at = index_at - W_SECTION - 8;
        uint8_t got[sizeof content] = {0}, *p;
        lmc_reader *reader = NULL;
        lmc_source source;
        enum lmc_status status;
        t_note("gap %d", what);
        memset(&bad, 0, sizeof bad);
        bad.size = good.size + gap;
        p = bad.data = (uint8_t *)calloc(1, bad.size);
        if (!p) abort();
        memcpy(p, good.data, rows_at);
        memcpy(p + rows_at + gap, good.data + rows_at, good.size - rows_at);
        if (what == 2) { /* the row, and Stored_Size of the run, the index's last entry */
            uint8_t *const row = p + rows_at + gap + W_SECTION, *const index = p + index_at + gap;
            uint8_t *entry = p + index_end - 4;
            while (memcmp(entry, "RUN ", 4) != 0) entry--;
            t_store32(row, t_load32(row) + (uint32_t)gap);
            t_store32(row - 4, t_crc32c(0, row, 8));
            entry[4] = (uint8_t)(entry[4] + gap);
            t_store32(index + 16,
                      t_crc32c(0, index + W_SECTION, index_end - index_at - gap - W_SECTION));
        }
        t_store32(p + index_end, (uint32_t)(index_at + gap));
        t_store32(p + index_end + 16, (uint32_t)bad.size);
        t_store32(p + index_end + 28, t_crc32c(0, p + index_end, 28));
        source = lmc_memory_source(&bad);
        status = lmc_reader_open(&reader, &source, NULL);
        CHECK_STATUS(status, what == 1 ? LMC_ERR_CORRUPT : LMC_OK);
        if (status == LMC_OK)
            CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, sizeof got),
                         what ? LMC_ERR_CORRUPT : LMC_OK);
        lmc_reader_free(reader);
        CHECK(source.read_at(source.user, bad.size - 4, got, 4) == 0 &&
              source.read_at(source.user, bad.size - 4, got, 5) != 0);
        CHECK(source.read_at(source.user, UINT64_MAX, got, 5) != 0);
        free(p);
    }
    { /* a file that is larger than the limit is not begun */
        lmc_stream stream = lmc_memory_stream(&good);
        lmc_restore_options options;
        size_t n_begun = 0;
        memset(&options, 0, sizeof options);
        options.user = &n_begun;
        options.begin_file = count_file;
        options.max_total_size = sizeof content - 1;
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_LIMIT);
        CHECK(n_begun == 0);
    }
    lmc_memory_free(&good);
}

/* A FILE of the index that is refused because of its tensor leaks nothing; nor does one that claims
 * more bytes than there are. */
static void test_refused_file(void)
{
    static const uint8_t content[64] = {0};
    const uint64_t shape = sizeof content;
    lmc_memory out;
    lmc_reader *reader = NULL;
    lmc_reader_options options;
    lmc_source source;
    lmc_tensor tensor;
    lmc_file file;
    t_heap heap;
    uint8_t *index, *entry;
    memset(&out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    memset(&heap, 0, sizeof heap);
    memset(&tensor, 0, sizeof tensor);
    memset(&options, 0, sizeof options);
    heap.fail_at = -1;
    options.allocator = t_allocator(&heap);
    tensor.name = "t";
    tensor.dtype = "U8";
    tensor.rank = 1;
    tensor.shape = &shape;
    tensor.size = sizeof content;
    file.path = "f";
    file.size = sizeof content;
    file.n_tensors = 1;
    file.tensors = &tensor;
    t_note("a refused file");
    if (!write_file(&out, NULL, &file, LMC_AUTO, content)) return;
    index = out.data + t_load32(out.data + out.size - 40);
    entry = index + W_SECTION + W_INDEX; /* Kind, Stored_Size, Body_Size, Body */
    entry[6 + 5]--;                      /* the size of the file: the tensor would end behind it */
    t_store32(index + 16, t_crc32c(0, index + W_SECTION, t_load32(index + 4)));
    source = lmc_memory_source(&out);
    CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_CORRUPT);
    CHECK(heap.calls > 3 && heap.live == 0 && heap.bytes == 0);
    t_note("a body of more than there is");
    entry[6 + 5]++;
    entry[4] = 127;
    entry[5] = 107;
    t_store32(index + 16, t_crc32c(0, index + W_SECTION, t_load32(index + 4)));
    CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_CORRUPT);
    CHECK(heap.live == 0);
    lmc_memory_free(&out);
}

/* Runs of one incompressible block each, which fill a wave's buffer (512 KiB, a sixteenth more, and
 * a head) so far that less than the next head is left. */
static void test_full_wave(void)
{
    const size_t head = W_SECTION + 6, room = ((size_t)17 << 15) + head; /* of a RUN section */
    size_t size, n, i;
    for (size = 1000; room % (head + 24 + size) < 24 + size; size++) {}
    for (n = room / (head + 24 + size) + 3, i = 0; i < 2; i++) {
        uint8_t *const data = make(n * size, T_RANDOM, LMC_U8);
        lmc_tensor *const tensors = (lmc_tensor *)calloc(n, sizeof *tensors);
        char *const names = (char *)malloc(8 * n);
        const uint64_t shape = size;
        lmc_writer_options options;
        lmc_memory out;
        lmc_file file;
        size_t k;
        if (!tensors || !names) abort();
        t_note("a full wave, tensors of %lu bytes", (unsigned long)size);
        memset(&options, 0, sizeof options);
        memset(&out, 0, sizeof out);
        memset(&file, 0, sizeof file);
        file.path = "f";
        file.size = n * size;
        file.n_tensors = n;
        file.tensors = tensors;
        for (k = 0; k < n; k++) {
            snprintf(names + 8 * k, 8, "%lu", (unsigned long)k);
            tensors[k].name = names + 8 * k;
            tensors[k].dtype = k % 2 ? "U8" : "I8";
            tensors[k].rank = 1;
            tensors[k].shape = &shape;
            tensors[k].offset = k * size;
            tensors[k].size = size;
        }
        write_file(&out, &options, &file, LMC_AUTO, data);
        lmc_memory_free(&out);
        free(data);
        free(tensors);
        free(names);
        size++; /* and the next one */
    }
}

static enum lmc_status read_data(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size)
{
    memcpy(dst, (const uint8_t *)user + (size_t)offset, size);
    return file_number == 0 ? LMC_OK : LMC_ERR_READ;
}

typedef struct t_target {
    uint8_t *data;
    size_t size;
} t_target;

static enum lmc_status write_target(void *user, const void *data, size_t size)
{
    t_target *target = (t_target *)user;
    memcpy(target->data + target->size, data, size);
    target->size += size;
    return LMC_OK;
}

static enum lmc_status read_target(void *user, size_t file_number, uint64_t offset, void *dst,
                                   size_t size)
{
    const t_target *target = (const t_target *)user;
    if (file_number != 0 || !CHECK(offset <= target->size && size <= target->size - offset))
        return LMC_ERR_READ;
    memcpy(dst, target->data + (size_t)offset, size);
    return LMC_OK;
}

/* A small tensor and its twin directly behind it. They would share a run, but then the twin could
 * not refer to the tensor. */
static void test_close_twins(void)
{
    const size_t size = 4 * 9000;
    const uint64_t shape = 9000;
    uint8_t *const data = (uint8_t *)malloc(2 * size);
    uint64_t written[2] = {0, 0};
    lmc_tensor tensors[2];
    lmc_tensor_hints hints = LMC_TENSOR_HINTS();
    lmc_twin twin;
    int i;
    if (data == NULL) abort();
    t_note("close twins");
    t_fill(data, size, T_GAUSS, LMC_F32, 9);
    memcpy(data + size, data, size);
    memset(tensors, 0, sizeof tensors);
    memset(&twin, 0, sizeof twin);
    for (i = 0; i < 2; i++) {
        tensors[i].name = i ? "b" : "a";
        tensors[i].dtype = "F32";
        tensors[i].rank = 1;
        tensors[i].shape = &shape;
        tensors[i].offset = (uint64_t)i * size;
        tensors[i].size = size;
    }
    for (i = 0; i < 2; i++) { /* without the claim of a twin, and with it */
        lmc_writer_options options;
        lmc_memory out;
        lmc_file file;
        memset(&out, 0, sizeof out);
        memset(&file, 0, sizeof file);
        memset(&options, 0, sizeof options);
        hints.twin = i ? &twin : NULL;
        options.read_back = read_data;
        options.user = data;
        file.path = "f";
        file.size = 2 * size;
        file.n_tensors = 2;
        file.tensors = tensors;
        if (!write_hinted(&out, &options, &file, LMC_AUTO, data, 1, &hints)) break;
        written[i] = out.size;
        { /* only written bytes are read back */
            lmc_stream stream = lmc_memory_stream(&out);
            lmc_restore_options restore;
            t_target target;
            memset(&restore, 0, sizeof restore);
            target.data = (uint8_t *)calloc(2, size);
            target.size = 0;
            if (target.data == NULL) abort();
            restore.user = &target;
            restore.write = write_target;
            restore.read_back = read_target;
            CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &restore), LMC_OK);
            CHECK(target.size == 2 * size && memcmp(target.data, data, 2 * size) == 0);
            free(target.data);
        }
        lmc_memory_free(&out);
    }
    CHECK(written[1] < written[0] * 6 / 10);
    free(data);
}

/* Both files of a snapshot have the same bytes, here and where they are restored. */
static enum lmc_status read_either(void *user, size_t file_number, uint64_t offset, void *dst,
                                   size_t size)
{
    memcpy(dst, (const uint8_t *)user + (size_t)offset, size);
    return file_number < 2 ? LMC_OK : LMC_ERR_READ;
}

/* A file without tensors that equals the one before, among small files that share blocks: as a twin
 * it takes almost nothing. A wrong claim only costs size. */
static void test_twin_of_file(void)
{
    const size_t size = 50003;
    uint8_t *const data = make(size, T_RANDOM, LMC_U8);
    size_t i, k;
    for (i = 0; i < 5; i++) { /* none, right, no such file, beyond its end, of another width */
        static const char *const paths[2] = {"a", "b"};
        lmc_tensor_hints hints = LMC_TENSOR_HINTS();
        lmc_twin twin;
        lmc_writer_options options;
        lmc_restore_options restore;
        lmc_memory out;
        lmc_sink sink = lmc_memory_sink(&out);
        lmc_stream stream;
        lmc_writer *w;
        t_target target;
        t_note("a twin of a file, %lu", (unsigned long)i);
        memset(&twin, 0, sizeof twin);
        memset(&options, 0, sizeof options);
        memset(&restore, 0, sizeof restore);
        memset(&out, 0, sizeof out);
        twin.file_number = i == 2 ? 7 : 0;
        twin.offset = i == 3;
        twin.conversion = i == 4 ? LMC_CONVERT_F32_TO_BF16 : LMC_CONVERT_NONE;
        options.group_files = LMC_GROUP_NEW;
        options.read_back = read_either;
        options.user = data;
        CHECK_STATUS(lmc_writer_open(&w, &sink, &options), LMC_OK);
        for (k = 0; k < 2; k++) {
            lmc_file file;
            memset(&file, 0, sizeof file);
            file.path = paths[k];
            file.size = size;
            hints.twin = &twin;
            if (k && i) CHECK_STATUS(lmc_writer_add_hints(w, 0, &hints), LMC_OK);
            CHECK_STATUS(lmc_writer_begin_file(w, &file, LMC_AUTO), LMC_OK);
            CHECK_STATUS(lmc_writer_write(w, data, size), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(w), LMC_OK);
        }
        CHECK_STATUS(lmc_writer_finish(w), LMC_OK);
        lmc_writer_free(w);
        CHECK(i == 1 ? out.size < size + 1000 : out.size > 2 * size);
        target.data = (uint8_t *)calloc(2, size);
        target.size = 0;
        if (!target.data) abort();
        restore.user = &target;
        restore.write = write_target;
        restore.read_back = read_target;
        stream = lmc_memory_stream(&out);
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &restore), LMC_OK);
        CHECK(target.size == 2 * size && memcmp(target.data, data, size) == 0 &&
              memcmp(target.data + size, data, size) == 0);
        free(target.data);
        lmc_memory_free(&out);
    }
    free(data);
}

/* If several workers may read the source at once, each block is read by the worker that decodes it:
 * as many calls as blocks. Results, and the status of damage and of failing reads, are the same.
 */
static void test_parallel_reads(void)
{
    enum { BLOCK = 2 << 14, N_BLOCKS = 24, SIZE = BLOCK * N_BLOCKS - 100 };
    uint8_t *const data = make(SIZE, T_GAUSS, LMC_BF16), *const got = (uint8_t *)malloc(SIZE);
    unsigned n = 3;
    int i;
    lmc_parallel parallel = t_parallel(&n);
    lmc_writer_options options;
    lmc_memory out;
    lmc_file file;
    t_note("parallel reads");
    memset(&options, 0, sizeof options);
    memset(&out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    options.log2_block = 14;
    file.path = "f";
    file.size = SIZE;
    if (!got || !write_file(&out, &options, &file, LMC_BF16, data)) abort();
    for (i = 0; i < 4; i++) {
        lmc_reader_options reader_options;
        lmc_reader *reader = NULL;
        lmc_source source = LMC_DEFAULTS;
        t_memory in;
        t_calls calls;
        long whole;
        memset(&reader_options, 0, sizeof reader_options);
        memset(&in, 0, sizeof in);
        memset(&calls, 0, sizeof calls);
        calls.fail_at = -1;
        in.data = out.data;
        in.size = out.size;
        in.calls = &calls;
        source.read_at = t_read_at;
        source.user = &in;
        source.size = out.size;
        reader_options.parallel_reads = i % 2;
        reader_options.parallel = i < 2 ? &parallel : NULL;
        if (!CHECK_STATUS(lmc_reader_open(&reader, &source, &reader_options), LMC_OK)) break;
        in.reads = 0;
        memset(got, 0, SIZE);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, SIZE), LMC_OK);
        CHECK(memcmp(got, data, SIZE) == 0);
        whole = in.reads;
        CHECK(i % 2 ? whole >= N_BLOCKS && whole < N_BLOCKS + 4 : whole <= N_BLOCKS / 4);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 77, got, 5 * BLOCK), LMC_OK);
        CHECK(memcmp(got, data + 77, 5 * BLOCK) == 0);
        for (calls.fail_at = 0; calls.fail_at < whole; calls.fail_at++) {
            calls.calls = 0;
            CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, SIZE), LMC_ERR_READ);
        }
        calls.fail_at = -1;
        out.data[out.size / 2] ^= 1; /* of a block in the middle */
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, SIZE), LMC_ERR_CHECKSUM);
        CHECK(memcmp(got, data, SIZE / 4) == 0);
        out.data[out.size / 2] ^= 1;
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, SIZE), LMC_OK);
        lmc_reader_free(reader);
    }
    lmc_memory_free(&out);
    free(data);
    free(got);
}

static enum lmc_status ignore_progress(void *user, uint64_t done)
{
    (void)user;
    (void)done;
    return LMC_OK;
}

/* Two snapshots of one layout. One gets the fingerprints of the other, and the CRCs for that. Each
 * block is right, but all together are not what the index says. Reading the whole tensor or file
 * finds this, unless fingerprints are skipped. */
static void test_fingerprint_of_tensor(void)
{
    /* lmc_decompress with progress once read by 16 MiB, and checked none of them */
    const size_t size = (size_t)(t_quick ? 1 : 20) << 20, inner = size - 400;
    const uint64_t shape[1] = {inner / 4};
    uint8_t *data[2], *const got = (uint8_t *)malloc(size);
    lmc_writer_options options;
    lmc_reader_options unchecked;
    lmc_compress_options compress_options;
    lmc_memory out[2];
    lmc_tensor tensor = t_tensor("t", "F32", 1, shape, 200, inner);
    lmc_file file;
    size_t i, index, at, got_size;
    if (!got) abort();
    memset(&options, 0, sizeof options);
    memset(&compress_options, 0, sizeof compress_options);
    memset(&unchecked, 0, sizeof unchecked);
    memset(out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    options.log2_block = 14;
    unchecked.skip_fingerprints = 1;
    file.path = "f";
    file.size = size;
    file.tensors = &tensor;
    file.n_tensors = 1;
    t_note("fingerprint of a tensor");
    for (i = 0; i < 2; i++) { /* noise is stored, so that all blocks have one size */
        data[i] = make(size, T_RANDOM, LMC_F32);
        data[i][300 + i] ^= 1;
        if (!write_file(&out[i], &options, &file, LMC_AUTO, data[i])) return;
    }
    if (!CHECK(out[0].size == out[1].size)) return;
    index = (size_t)w_get(out[0].data + out[0].size - 40, 8) + W_SECTION;
    for (i = 0; i < 2; i++) {
        const lmc_source source = lmc_memory_source(&out[1]);
        lmc_reader *reader = NULL;
        const lmc_tensor *t;
        if (!CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) return;
        t = &lmc_reader_get_file(reader, 0)->tensors[0];
        CHECK_STATUS(lmc_reader_read_tensor(reader, 0, t, 0, got, inner),
                     i ? LMC_ERR_CORRUPT : LMC_OK);
        if (!i) CHECK(memcmp(got, data[1] + 200, inner) == 0);
        CHECK_STATUS(lmc_reader_read_tensor(reader, 0, t, 4, got, inner - 4), LMC_OK);
        CHECK(memcmp(got, data[1] + 204, inner - 4) == 0);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, size), i ? LMC_ERR_CORRUPT : LMC_OK);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 1, got, size - 1),
                     i ? LMC_ERR_CORRUPT : LMC_OK);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 200, got, inner),
                     i ? LMC_ERR_CORRUPT : LMC_OK);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 201, got, size - 201), LMC_OK);
        CHECK(memcmp(got, data[1] + 201, size - 201) == 0);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, 200 + inner - 1), LMC_OK);
        CHECK(memcmp(got, data[1], 200 + inner - 1) == 0);
        compress_options.progress = i ? ignore_progress : NULL;
        CHECK_STATUS(
            lmc_decompress(got, size, &got_size, out[1].data, out[1].size, &compress_options),
            i ? LMC_ERR_CORRUPT : LMC_OK);
        for (at = index; memcmp(out[1].data + at, t->fingerprint, sizeof t->fingerprint) != 0;)
            at++;
        lmc_reader_free(reader);
        if (!CHECK_STATUS(lmc_reader_open(&reader, &source, &unchecked), LMC_OK)) return;
        t = &lmc_reader_get_file(reader, 0)->tensors[0];
        CHECK_STATUS(lmc_reader_read_tensor(reader, 0, t, 0, got, inner), LMC_OK);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, size), LMC_OK);
        lmc_reader_free(reader);
        memcpy(out[1].data + index + 64, out[0].data + index + 64, 16); /* the snapshot's */
        memcpy(out[1].data + at, out[0].data + at, 16);
        t_store32(out[1].data + index - 4,
                  t_crc32c(0, out[1].data + index, out[1].size - 40 - index));
    }
    for (i = 0; i < 2; i++) {
        lmc_memory_free(&out[i]);
        free(data[i]);
    }
    free(got);
}

/* Small tensors in another order than in the base. If each were predicted, a reader would have to
 * decode a block for each, and would refuse. */
static void test_reach(void)
{
    enum { N = 12000, SIZE = 64 };
    static const uint64_t shape[1] = {SIZE / 4};
    static char names[N][8];
    const size_t size = (size_t)N * SIZE;
    uint8_t *const data = make(size, T_RANDOM, LMC_F32), *const mixed = (uint8_t *)malloc(size);
    uint8_t *const got = (uint8_t *)malloc(size);
    lmc_tensor *const tensors = (lmc_tensor *)calloc(N, sizeof *tensors);
    lmc_writer_options options;
    lmc_reader_options with_base;
    lmc_reader *base_reader = NULL, *reader = NULL;
    lmc_memory out[2];
    lmc_source source;
    lmc_base base;
    lmc_file file;
    size_t i, k;
    if (!mixed || !got || !tensors) abort();
    memset(&options, 0, sizeof options);
    memset(&with_base, 0, sizeof with_base);
    memset(out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    t_note("predictions within reach");
    options.log2_block = 14;
    file.path = "f";
    file.size = size;
    file.tensors = tensors;
    file.n_tensors = N;
    for (k = 0; k < 2; k++) {
        for (i = 0; i < N; i++) {
            const size_t number = k ? i * 7919 % N : i;
            (void)snprintf(names[number], sizeof names[number], "t%05u", (unsigned)number);
            tensors[i] = t_tensor(names[number], "F32", 1, shape, i * SIZE, SIZE);
            memcpy(mixed + i * SIZE, data + number * SIZE, SIZE);
        }
        if (!write_file(&out[k], &options, &file, LMC_AUTO, k ? mixed : data)) return;
        source = lmc_memory_source(&out[k]);
        if (!CHECK_STATUS(lmc_reader_open(k ? &reader : &base_reader, &source, &with_base), LMC_OK))
            return;
        base = lmc_reader_base(base_reader);
        options.base = with_base.base = &base;
    }
    CHECK(out[1].size < out[0].size); /* many are still predicted */
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, size), LMC_OK);
    CHECK(memcmp(got, mixed, size) == 0);
    for (i = 0; i < N; i += N / 16) /* one request for what predicts a block */
        CHECK_STATUS(lmc_reader_read_file(reader, 0, i * SIZE, got, SIZE), LMC_OK);
    lmc_reader_free(reader);
    lmc_reader_free(base_reader);
    lmc_memory_free(&out[0]);
    lmc_memory_free(&out[1]);
    free(tensors);
    free(mixed);
    free(got);
    free(data);
}

/* A reader as a base keeps the bytes that it has decoded around a small piece; not if reading
 * another place has failed meanwhile. */
static void test_window(void)
{
    const size_t size = (size_t)5 << 20, block = (size_t)1 << 14;
    uint8_t *const data = make(size, T_GAUSS, LMC_F32), got[100];
    lmc_writer_options options;
    lmc_memory out;
    lmc_reader *reader = NULL;
    lmc_source source;
    lmc_base base;
    lmc_file file;
    int i;
    memset(&options, 0, sizeof options);
    memset(&out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    options.log2_block = 14;
    file.path = "f";
    file.size = size;
    t_note("window");
    if (!write_file(&out, &options, &file, LMC_F32, data)) return;
    out.data[out.size / 5 * 3] ^= 1; /* of one block */
    source = lmc_memory_source(&out);
    if (CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) {
        base = lmc_reader_base(reader);
        for (i = 0; i < 2; i++) {
            size_t at, n_wrong = 0;
            for (at = 7; at < size; at += block) {
                const enum lmc_status status = base.read(base.user, 0, at, got, sizeof got);
                n_wrong += status != LMC_OK;
                if (status == LMC_OK) CHECK(memcmp(got, data + at, sizeof got) == 0);
                else CHECK(status >= LMC_ERR_CORRUPT);
            }
            CHECK(n_wrong >= 1 && n_wrong <= 128); /* a window at most */
        }
        lmc_reader_free(reader);
    }
    lmc_memory_free(&out);
    free(data);
}

#define LONG_TOTAL (((uint64_t)5 << 30) + W_HEADER + W_TRAILER)
static enum lmc_status read_long(void *user, uint64_t offset, void *dst, size_t size)
{
    const uint8_t *const ends = (const uint8_t *)user; /* header, trailer */
    uint8_t *const to = (uint8_t *)dst;
    if (offset != 0 && offset + size != LONG_TOTAL) return LMC_ERR_READ;
    memset(dst, 0, size);
    if (offset == 0) memcpy(dst, ends, size < W_HEADER ? size : W_HEADER);
    else memcpy(to + size - W_TRAILER, ends + W_HEADER, W_TRAILER);
    return LMC_OK;
}

/* A section of more than 2^40 bytes breaks a rule, with any limits. */
static void test_long_section(void)
{
    const uint64_t size = ((uint64_t)1 << 40) + 1;
    lmc_restore_options options;
    lmc_memory memory;
    lmc_sink sink = lmc_memory_sink(&memory);
    lmc_stream stream = lmc_memory_stream(&memory);
    lmc_writer *writer = NULL;
    lmc_file file;
    t_note("a section of more than 2^40 bytes");
    memset(&options, 0, sizeof options);
    memset(&memory, 0, sizeof memory);
    memset(&file, 0, sizeof file);
    file.path = "";
    if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK)) return;
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
    lmc_writer_free(writer);
    t_store32(memory.data + W_HEADER + 4, (uint32_t)size);
    t_store32(memory.data + W_HEADER + 8, (uint32_t)(size >> 32));
    t_store32(memory.data + W_HEADER + 12, t_crc32c(0, memory.data + W_HEADER, 12));
    CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_CORRUPT);
    memory.position = 0;
    options.max_index_size = UINT64_MAX;
    CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_CORRUPT);
    lmc_memory_free(&memory);
}

/* An index of 5 GiB: more than a size_t of 32 bits can count. With 64 bits the allocation fails, or
 * reading does. */
static void test_long_index(void)
{
    const uint64_t index_size = (uint64_t)5 << 30, total = LONG_TOTAL;
    static uint8_t ends[W_HEADER + W_TRAILER];
    t_heap heap;
    lmc_reader_options options;
    lmc_source source = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_memory memory;
    lmc_sink sink = lmc_memory_sink(&memory);
    lmc_writer *writer = NULL;
    uint8_t *const trailer = ends + W_HEADER;
    enum lmc_status status;
    t_note("an index of 5 GiB");
    memset(&memory, 0, sizeof memory);
    memset(&options, 0, sizeof options);
    memset(&heap, 0, sizeof heap);
    heap.fail_at = sizeof(size_t) > 4 ? 2 : -1; /* the index, after the reader and the file's end */
    if (!CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK)) return;
    memcpy(ends, memory.data, W_HEADER);
    lmc_writer_free(writer);
    lmc_memory_free(&memory);
    t_store32(trailer, W_HEADER);
    t_store32(trailer + 8, (uint32_t)index_size);
    t_store32(trailer + 12, (uint32_t)(index_size >> 32));
    t_store32(trailer + 16, (uint32_t)total);
    t_store32(trailer + 20, (uint32_t)(total >> 32));
    trailer[24] = 1; /* Format_Major */
    t_store32(trailer + 28, t_crc32c(0, trailer, 28));
    memcpy(trailer + 32, "\x94LMC\r\n\x1A\n", 8);
    source.read_at = read_long;
    source.user = ends;
    source.size = total;
    options.max_index_size = UINT64_MAX;
    options.allocator = t_allocator(&heap);
    status = lmc_reader_open(&reader, &source, &options);
    CHECK_STATUS(status, sizeof(size_t) > 4 ? LMC_ERR_MEMORY : LMC_ERR_SIZE);
    CHECK(heap.live == 0);
    options.max_index_size = 0;
    CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_LIMIT);
}

/* -- FILE sections of several files, which no writer makes -- */

/* All files of the model in one section, whose blocks and runs cross from one file to the next.
 * Entries and facts come from a snapshot of each file alone, runs from one of all bytes
 * together. */
static void make_group(const t_model *model, unsigned log2_block, t_memory *out)
{
    static t_model one;
    static w_file w, part;
    lmc_writer_options options;
    t_memory all, body, facts, memory;
    size_t i;
    memset(&all, 0, sizeof all);
    memset(&body, 0, sizeof body);
    memset(&facts, 0, sizeof facts);
    memset(&memory, 0, sizeof memory);
    memset(&options, 0, sizeof options);
    options.log2_block = log2_block;
    w_varint(&body, model->n_files);
    for (i = 0; i < model->n_files; i++) {
        memset(&one, 0, sizeof one);
        one.files[0] = model->files[i];
        one.n_files = 1;
        memory.size = 0;
        CHECK_STATUS(t_write_model(&one, &memory, NULL, 0, NULL), LMC_OK);
        w_parse(&part, memory.data);
        w_put(&body, part.sections[0].body.data + 1, part.sections[0].body.size - 1);
        w_put(&facts, part.sections[0].facts.data, part.sections[0].facts.size);
        w_free(&part);
        w_put(&all, model->files[i].data, model->files[i].size);
    }
    memset(&one, 0, sizeof one);
    t_add_file(&one, "all", all.data, all.size);
    memory.size = 0;
    CHECK_STATUS(t_write_model(&one, &memory, &options, 0, NULL), LMC_OK);
    w_parse(&w, memory.data);
    free(w.sections[0].body.data);
    free(w.sections[0].facts.data);
    w.sections[0].body = body;
    w.sections[0].facts = facts;
    t_model_fingerprint(model, w.fingerprint);
    memset(out, 0, sizeof *out);
    w_build(&w, out);
    w_free(&w);
    free(memory.data);
    free(all.data);
}

static void make_group_model(t_model *model)
{
    static const size_t sizes[] = {0, 1, 40000, 0, 0, 16384, 100, 70000, 7, 0};
    static const char *const paths[] = {"a",       "b",    "shard/1", "d", "shard/2",
                                        "shard/3", "side", "last",    "x", "z"};
    static const uint64_t shape[2] = {100, 50};
    static lmc_tensor tensors[3];
    size_t i;
    memset(model, 0, sizeof *model);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        t_file *const f = t_add_file(model, paths[i],
                                     make(sizes[i], i % 2 ? T_GAUSS : T_TEXT, LMC_BF16), sizes[i]);
        f->file.has_mode = i % 3 == 0;
        f->file.mode = i % 3 == 0 ? 0640 : 0;
    }
    model->files[3].file.kind = LMC_FILE_DIRECTORY;
    tensors[0] = t_tensor("x.weight", "BF16", 2, shape, 300, 10000);
    tensors[1] = t_tensor("y.weight", "BF16", 2, shape, 10300, 10000);
    tensors[2] = t_tensor("z.weight", "F32", 2, shape, 30000, 20000);
    model->files[2].file.tensors = tensors;
    model->files[2].file.n_tensors = 2;
    model->files[7].file.tensors = tensors;
    model->files[7].file.n_tensors = 3;
}

static void test_grouped(void)
{
    static t_model model;
    unsigned workers = 3;
    lmc_parallel parallel = t_parallel(&workers);
    size_t i;
    make_group_model(&model);
    for (i = 0; i < 6; i++) {
        lmc_restore_options restore_options;
        lmc_reader_options read_options;
        uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
        t_memory in;
        t_calls calls;
        t_heap heap;
        int wrong;
        memset(&restore_options, 0, sizeof restore_options);
        memset(&read_options, 0, sizeof read_options);
        memset(&heap, 0, sizeof heap);
        heap.fail_at = -1;
        restore_options.allocator = read_options.allocator = t_allocator(&heap);
        restore_options.parallel = read_options.parallel = i % 2 ? &parallel : NULL;
        t_note("grouped files, %lu", (unsigned long)i);
        make_group(&model, i < 4 ? 14 : 20, &in);
        in.piece = i < 2 ? 0 : 777;
        t_model_fingerprint(&model, want);
        CHECK_STATUS(t_restore_model(&model, &in, &restore_options, id, &wrong), LMC_OK);
        CHECK(!wrong && memcmp(id, want, sizeof id) == 0);
        CHECK_STATUS(t_read_model(&model, &in, &read_options, &wrong), LMC_OK);
        CHECK(!wrong);
        restore_options.max_total_size = read_options.max_total_size = 100000;
        CHECK_STATUS(t_restore_model(&model, &in, &restore_options, NULL, &wrong), LMC_ERR_LIMIT);
        CHECK_STATUS(t_read_model(&model, &in, &read_options, &wrong), LMC_ERR_LIMIT);
        restore_options.max_total_size = 0;
        restore_options.in_place = 1;
        restore_options.read_back = t_on_read_back;
        CHECK_STATUS(t_restore_model(&model, &in, &restore_options, NULL, &wrong),
                     LMC_ERR_ARGUMENT);
        restore_options.in_place = 0;
        restore_options.write_at = t_on_write_at; /* small files are still delivered by write() */
        CHECK_STATUS(t_restore_model(&model, &in, &restore_options, id, &wrong), LMC_OK);
        CHECK(!wrong && memcmp(id, want, sizeof id) == 0);
        memset(&calls, 0, sizeof calls);
        for (in.calls = &calls; !t_quick || i == 3;
             calls.fail_at++) { /* each callback fails once */
            enum lmc_status status;
            calls.calls = 0;
            calls.expect = LMC_OK;
            status = t_restore_model(&model, &in, &restore_options, NULL, &wrong);
            CHECK(!wrong && status == calls.expect);
            if (status == LMC_OK) break;
        }
        CHECK(heap.live == 0 && heap.bytes == 0);
        free(in.data);
    }
    for (i = 0; i < model.n_files; i++) free((void *)(uintptr_t)model.files[i].data);
}

/* -- groups that the writer makes -- */

/* In a snapshot whose files do not have these bytes; the index has a copy of each section. */
static size_t count_file_sections(const t_memory *snapshot)
{
    size_t i, n = 0;
    for (i = 0; i + 4 <= snapshot->size; i++) n += memcmp(snapshot->data + i, "FILE", 4) == 0;
    return n / 2;
}

enum { N_SMALL = 120 };

/* Small files of text, empty files and directories; among them a large file, which ends a group,
 * and one with a tensor. */
static void make_small_files(t_model *model, size_t size)
{
    static char paths[N_SMALL][40];
    size_t i;
    memset(model, 0, sizeof *model);
    for (i = 0; i < N_SMALL; i++) {
        const size_t n = i % 10 == 3 ? 0 : size + i % 3;
        t_file *f;
        sprintf(paths[i], "directory %lu/file-%03lu", (unsigned long)(i / 40), (unsigned long)i);
        f = t_add_file(model, paths[i], n ? make(n, T_TEXT, LMC_U8) : NULL, n);
        if (i % 20 == 3) f->file.kind = LMC_FILE_DIRECTORY;
        f->file.has_mode = f->file.has_mtime = 1;
        f->file.mode = 0644;
        f->file.mtime_s = (int64_t)(1700000000 + i);
        if (i == 60) t_add_file(model, "large", make(200000, T_TEXT, LMC_U8), 200000);
        if (i == 90) add_shard(model, "model.safetensors", 100);
    }
}

static void write_small_files(const t_model *model, t_memory *out, enum lmc_grouping group_files,
                              const lmc_base *base)
{
    lmc_writer_options options = LMC_DEFAULTS;
    memset(out, 0, sizeof *out);
    options.group_files = group_files;
    options.base = base;
    CHECK_STATUS(t_write_model(model, out, &options, 0, NULL), LMC_OK);
}

static lmc_reader *open_memory(t_memory *in, const lmc_base *base)
{
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    source.size = in->size;
    source.read_at = t_read_at;
    source.user = in;
    options.base = base;
    CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_OK);
    return reader;
}

/* How many sections the delta of `model` against base has for its files, and whether it can be
 * restored over the base. It must restore the model. */
static void check_grouped_delta(const t_model *model, const lmc_base *base, int *n_sections,
                                int *in_place)
{
    lmc_restore_options options = LMC_DEFAULTS;
    t_memory delta;
    lmc_reader *reader;
    int wrong = 1;
    write_small_files(model, &delta, LMC_GROUP_NEW, base);
    *n_sections = (int)count_file_sections(&delta);
    options.base = base;
    CHECK_STATUS(t_restore_model(model, &delta, &options, NULL, &wrong), LMC_OK);
    CHECK(!wrong);
    reader = open_memory(&delta, base);
    CHECK_STATUS(lmc_reader_can_restore_in_place(reader, in_place), LMC_OK);
    lmc_reader_free(reader);
    free(delta.data);
}

/* Copied files keep their groups, unless the writer makes none. */
static void check_grouped_copy(t_memory *in, enum lmc_grouping group_files)
{
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_reader *const reader = open_memory(in, NULL);
    lmc_writer *writer = NULL;
    t_memory out;
    lmc_sink sink = LMC_DEFAULTS;
    size_t i;
    memset(&out, 0, sizeof out);
    sink.write = t_append;
    sink.user = &out;
    options.group_files = group_files;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
    for (i = 0; i < t_info(reader).n_files; i++)
        CHECK_STATUS(lmc_writer_copy_file(writer, reader, i), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    if (group_files) CHECK(out.size == in->size && memcmp(out.data, in->data, in->size) == 0);
    else CHECK(count_file_sections(&out) == t_info(reader).n_files);
    lmc_reader_free(reader);
    free(out.data);
}

/* A file with a wrong File_CRC is not copied, though all its blocks are right, even by a reader
 * that skips fingerprints. */
static void check_copied_crc(void)
{
    static t_model model;
    uint8_t *const data = make(40000, T_GAUSS, LMC_BF16);
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    lmc_sink sink = LMC_DEFAULTS;
    t_memory good, bad, out;
    w_file w;
    int flip;
    t_note("a copied file's File_CRC");
    memset(&model, 0, sizeof model);
    memset(&good, 0, sizeof good);
    memset(&bad, 0, sizeof bad);
    memset(&out, 0, sizeof out);
    sink.write = t_append;
    sink.user = &out;
    source.read_at = t_read_at;
    source.user = &bad;
    options.skip_fingerprints = 1;
    t_add_file(&model, "a", data, 40000);
    CHECK_STATUS(t_write_model(&model, &good, NULL, 0, NULL), LMC_OK);
    w_parse(&w, good.data);
    for (flip = 0; flip < 2; flip++) {
        w.sections[0].facts.data[0] ^= (uint8_t)flip; /* the index begins a file with it */
        w_build(&w, &bad);
        source.size = bad.size;
        CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_OK);
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), flip ? LMC_ERR_CORRUPT : LMC_OK);
        lmc_writer_free(writer);
        lmc_reader_free(reader);
    }
    w_free(&w);
    free(data);
    free(good.data);
    free(bad.data);
    free(out.data);
}

/* A writer refuses at once, also for a file that waits. */
static void check_refused_small(void)
{
    lmc_writer_options options = LMC_DEFAULTS;
    int what;
    options.group_files = LMC_GROUP_NEW;
    for (what = 0; what < 4; what++) {
        lmc_writer *writer = NULL;
        lmc_file file;
        t_memory out;
        lmc_sink sink = LMC_DEFAULTS;
        memset(&out, 0, sizeof out);
        memset(&file, 0, sizeof file);
        sink.write = t_append;
        sink.user = &out;
        file.path = "a";
        file.size = 3;
        t_note("a small file that is refused, %d", what);
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
        CHECK_STATUS(lmc_writer_write(writer, "ab", 2), LMC_OK);
        if (what == 0) CHECK_STATUS(lmc_writer_end_file(writer), LMC_ERR_ARGUMENT);
        if (what == 1) CHECK_STATUS(lmc_writer_write(writer, "cd", 2), LMC_ERR_ARGUMENT);
        if (what == 2) CHECK_STATUS(lmc_writer_finish(writer), LMC_ERR_ARGUMENT);
        if (what == 3) {
            CHECK_STATUS(lmc_writer_write(writer, "c", 1), LMC_OK);
            CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
            CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_ERR_ARGUMENT);
        }
        lmc_writer_free(writer);
        free(out.data);
    }
}

static void test_written_groups(void)
{
    static t_model model;
    t_memory grouped, single;
    lmc_reader *reader;
    lmc_base base;
    int n_sections, in_place;
    make_small_files(&model, 900);
    g_group_files = LMC_GROUP_NEW;
    check_model(&model, 0, "small files");
    check_model(&model, 14, "small files");
    g_group_files = LMC_GROUP_NONE;
    write_small_files(&model, &grouped, LMC_GROUP_NEW, NULL);
    write_small_files(&model, &single, LMC_GROUP_NONE, NULL);
    t_note("sections of %d small files", N_SMALL);
    CHECK(count_file_sections(&single) == model.n_files);
    CHECK(count_file_sections(&grouped) == 5); /* three groups, two files */
    CHECK(grouped.size + 120 * (size_t)N_SMALL < single.size);
    check_grouped_copy(&grouped, LMC_GROUP_NEW);
    check_grouped_copy(&grouped, LMC_GROUP_NONE);
    free(grouped.data);
    reader = open_memory(&single, NULL);
    base = lmc_reader_base(reader);
    check_grouped_delta(&model, &base, &n_sections, &in_place);
    CHECK(in_place && n_sections == (int)model.n_files);
    model.files[10].size--; /* the file differs from the base's, so files behind it may wait */
    model.files[10].file.size--;
    check_grouped_delta(&model, &base, &n_sections, &in_place);
    CHECK(!in_place && n_sections == 10 + 5);
    lmc_reader_free(reader);
    free(single.data);
    t_free_model(&model);
    check_refused_small();
    check_copied_crc();
}

/* What a snapshot of 32 tensors of this size takes beyond the random ones. Every second one is
 * constant, so trees that both kinds share take a bit for each constant element. */
static size_t cost_of_unlike(enum lmc_dtype dtype, size_t size, unsigned log2_block)
{
    enum { N_TENSORS = 32 };
    static lmc_tensor tensors[N_TENSORS];
    static char names[N_TENSORS][4];
    static t_model model;
    const uint64_t shape[1] = {size / lmc_dtype_width(dtype)};
    uint8_t *const data = make(N_TENSORS * size, T_RANDOM, LMC_U8);
    lmc_writer_options options = LMC_DEFAULTS;
    t_memory out;
    size_t i;
    options.log2_block = log2_block;
    memset(&model, 0, sizeof model);
    memset(&out, 0, sizeof out);
    for (i = 0; i < N_TENSORS; i++) {
        sprintf(names[i], "%u", (unsigned)i);
        tensors[i] = t_tensor(names[i], lmc_dtype_name(dtype), 1, shape, i * size, size);
        if (i % 2 == 0) memset(data + i * size, 0x3C, size);
    }
    t_add_file(&model, "model.safetensors", data, N_TENSORS * size)->file.tensors = tensors;
    model.files[0].file.n_tensors = N_TENSORS;
    CHECK_STATUS(t_write_model(&model, &out, &options, 0, NULL), LMC_OK);
    model.files[0].file.tensors = NULL; /* they are not on the heap */
    model.files[0].file.n_tensors = 0;
    t_free_model(&model);
    free(out.data);
    return out.size - N_TENSORS / 2 * size;
}

/* Tensors of 32 KiB or more have trees of their own. Smaller neighbours share them, as do all that
 * are smaller than blocks of the size that the caller asks for. */
static void test_large_tensors(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_F8_E4M3, LMC_BF16, LMC_F32};
    const size_t large = (size_t)32 << 10;
    size_t i;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const enum lmc_dtype dtype = dtypes[i];
        /* shared blocks of bytes have 32 KiB, so tensors of nearly that size hardly share any */
        const size_t below = i == 0 ? large / 4 * 3 : large - lmc_dtype_width(dtype);
        t_note("unlike neighbours of dtype %d", (int)dtype);
        CHECK(cost_of_unlike(dtype, large, 0) < 5000);
        CHECK(cost_of_unlike(dtype, below, 0) > 10000);
        CHECK(cost_of_unlike(dtype, large, 17) > 10000);
    }
}

/* -- requests to a source that is far away -- */

enum { BIG = 1 << 20 };

/* Snapshots of many small tensors: opening reads their names, and each tensor takes one request. */
static void test_requests_of_small_tensors(void)
{
    static const size_t numbers[] = {1, 300, 18867, 92000};
    size_t round;
    for (round = 0; round < (t_quick ? 2u : 4u); round++) {
        const size_t n = numbers[round], bytes = n > 300 ? 256 : 40000;
        const uint64_t shape[1] = {bytes / 2};
        char(*const names)[64] = (char(*)[64])calloc(n, 64);
        lmc_tensor *const tensors = (lmc_tensor *)calloc(n, sizeof *tensors);
        uint8_t *const data = make(n * bytes, T_GAUSS, LMC_BF16), got[40000];
        const lmc_tensor *found = NULL;
        static t_model model;
        lmc_reader *reader;
        t_memory out;
        size_t i, number;
        if (!names || !tensors) abort();
        t_note("requests, %lu tensors", (unsigned long)n);
        for (i = 0; i < n; i++) {
            sprintf(names[i], "model.layers.%lu.mlp.experts.%lu.%s.weight", (unsigned long)(i / 96),
                    (unsigned long)(i / 3 % 32),
                    i % 3 == 0   ? "up"
                    : i % 3 == 1 ? "gate"
                                 : "down");
            tensors[i] = t_tensor(names[i], "BF16", 1, shape, i * bytes, bytes);
        }
        memset(&model, 0, sizeof model);
        memset(&out, 0, sizeof out);
        t_add_file(&model, "model.safetensors", data, n * bytes)->file.tensors = tensors;
        model.files[0].file.n_tensors = n;
        CHECK_STATUS(t_write_model(&model, &out, NULL, 0, NULL), LMC_OK);
        reader = open_memory(&out, NULL);
        CHECK(out.reads == (n > 300 ? 2 : 1));
        for (i = 0; i < n; i += 1 + n / 3) {
            out.reads = 0;
            CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, names[i], &number, &found), LMC_OK);
            CHECK_STATUS(lmc_reader_read_tensor(reader, number, found, 0, got, bytes), LMC_OK);
            CHECK(memcmp(got, data + i * bytes, bytes) == 0 && out.reads == 1);
        }
        lmc_reader_free(reader);
        t_free_model(&model);
        free(names);
        free(out.data);
    }
}

/* A chain: one request for each link. */
static void test_requests_of_chains(void)
{
    enum { LINKS = 9, N = 60, BYTES = 40000 };
    static const uint64_t shape[1] = {BYTES / 2};
    uint8_t *const data = make(N * BYTES, T_GAUSS, LMC_BF16), got[BYTES];
    static lmc_tensor tensors[N];
    static char names[N][8];
    static t_model model;
    t_memory out[LINKS];
    lmc_reader *readers[LINKS];
    lmc_base bases[LINKS];
    uint64_t state = 1;
    size_t i, link;
    memset(&model, 0, sizeof model);
    memset(out, 0, sizeof out);
    for (i = 0; i < N; i++) {
        sprintf(names[i], "%lu", (unsigned long)i);
        tensors[i] = t_tensor(names[i], "BF16", 1, shape, i * BYTES, BYTES);
    }
    t_add_file(&model, "f", data, N * BYTES)->file.tensors = tensors;
    model.files[0].file.n_tensors = N;
    for (link = 0; link < LINKS; link++) {
        lmc_writer_options options = LMC_DEFAULTS;
        t_note("requests, link %lu of a chain", (unsigned long)link);
        for (i = 0; i < N * BYTES / 300 && link; i++) data[t_below(&state, N * BYTES)] ^= 1;
        options.base = link ? &bases[link - 1] : NULL;
        CHECK_STATUS(t_write_model(&model, &out[link], &options, 0, NULL), LMC_OK);
        readers[link] = open_memory(&out[link], options.base);
        bases[link] = lmc_reader_base(readers[link]);
    }
    while (link-- > 0) lmc_reader_free(readers[link]); /* after the readers that use them */
    for (link = 0; link < LINKS; link++) {
        readers[link] = open_memory(&out[link], link ? &bases[link - 1] : NULL);
        bases[link] = lmc_reader_base(readers[link]);
    }
    for (i = 0; i < N; i += N / 3) {
        for (link = 0; link < LINKS; link++) out[link].reads = 0;
        CHECK_STATUS(lmc_reader_read_tensor(readers[LINKS - 1], 0,
                                            &lmc_reader_get_file(readers[LINKS - 1], 0)->tensors[i],
                                            0, got, BYTES),
                     LMC_OK);
        CHECK(memcmp(got, data + i * BYTES, BYTES) == 0);
        for (link = 0; link < LINKS; link++) CHECK(out[link].reads == 1);
    }
    while (link-- > 0) {
        lmc_reader_free(readers[link]);
        free(out[link].data);
    }
    free(data);
}

static enum lmc_status read_tensor_of(lmc_reader *reader, t_memory *out, size_t i, uint8_t *got)
{
    const lmc_tensor *const t = &lmc_reader_get_file(reader, 0)->tensors[i];
    out->reads = 0;
    return lmc_reader_read_tensor(reader, 0, t, 0, got, (size_t)t->size);
}

/* More blocks than the rows that are read with the index. A whole run is read without its rows;
 * after damage the facts of its headers are dropped. For a part of a run, and for a run with more
 * code than is fetched at once, the rows are read. */
static void test_requests_without_rows(void)
{
    enum { BLOCK = 1 << 14 };
    static const uint64_t shapes[2][1] = {{BIG}, {150 * BIG}};
    uint8_t *const zeros = (uint8_t *)calloc(1, BIG), *const data = make(BIG, T_GAUSS, LMC_BF16),
                   *const got = (uint8_t *)malloc(150 * BIG);
    lmc_tensor tensors[3];
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    lmc_reader *reader;
    lmc_file file;
    lmc_sink sink = LMC_DEFAULTS;
    t_memory out;
    size_t i, at, block_at;
    t_note("requests, without rows");
    if (!zeros || !got) abort();
    memset(&out, 0, sizeof out);
    memset(&file, 0, sizeof file);
    tensors[0] = t_tensor("a", "U8", 1, shapes[0], 0, BIG);
    tensors[1] = t_tensor("b", "I8", 1, shapes[1], BIG, 150 * BIG);
    tensors[2] = t_tensor("c", "U8", 1, shapes[0], 151 * BIG, BIG);
    file.path = "f";
    file.size = 152 * BIG;
    file.tensors = tensors;
    file.n_tensors = 3;
    options.log2_block = 14;
    sink.write = t_append;
    sink.user = &out;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
    for (i = 0; i < 152; i++) /* 20 MiB of noise, and zeros */
        CHECK_STATUS(lmc_writer_write(writer, i < 21 || i == 151 ? data : zeros, BIG), LMC_OK);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    for (at = 0; at < 2; at++) { /* a block's header is damaged, and repaired while the file is
                                    open */
        reader = open_memory(&out, NULL);
        for (block_at = W_HEADER, i = 0; i < 2; i++) /* behind FILE and RUN */
            block_at += W_SECTION + (size_t)w_get(out.data + block_at + 4, 8);
        if (at == 0) {
            out.data[block_at + 8] ^= 1;
            CHECK_STATUS(read_tensor_of(reader, &out, 0, got), LMC_ERR_CHECKSUM);
            out.data[block_at + 8] ^= 1;
            out.data[block_at + 999] ^= 1;
            CHECK(read_tensor_of(reader, &out, 0, got) >= LMC_ERR_CORRUPT);
            out.data[block_at + 999] ^= 1;
        } else { /* a part: its rows, then its block */
            out.reads = 0;
            CHECK_STATUS(lmc_reader_read_file(reader, 0, 5 * BLOCK, got, 100), LMC_OK);
            CHECK(memcmp(got, data + 5 * BLOCK, 100) == 0 && out.reads == 2);
        }
        CHECK_STATUS(read_tensor_of(reader, &out, 0, got), LMC_OK);
        CHECK(memcmp(got, data, BIG) == 0 && out.reads == 1);
        CHECK_STATUS(read_tensor_of(reader, &out, 2, got), LMC_OK);
        CHECK(memcmp(got, data, BIG) == 0 && out.reads == 1);
        CHECK_STATUS(read_tensor_of(reader, &out, 1, got), LMC_OK);
        CHECK(memcmp(got + 19 * BIG, data, BIG) == 0 && out.reads == 3);
        lmc_reader_free(reader);
    }
    free(out.data);
    free(zeros);
    free(data);
    free(got);
}

/* -- a delta without its base: all is checked except the meaning of its payloads -- */

/* Only descriptions are delivered; end_file gets no CRC of what was not decoded. */
static enum lmc_status end_unread(void *user, const lmc_file *file, size_t number)
{
    static const uint8_t zero[LMC_FINGERPRINT_SIZE] = {0};
    (void)number;
    *(size_t *)user += file->crc == 0 && (file->n_tensors == 0 ||
                                          memcmp(file->tensors[0].fingerprint, zero, 16) == 0);
    return LMC_OK;
}

/* info has all that a reader knows, or nothing. */
static enum lmc_status check_alone(const t_memory *in, unsigned n_workers, size_t *n_unread)
{
    static const lmc_snapshot_info nothing = LMC_DEFAULTS;
    lmc_snapshot_info info, known;
    lmc_reader *reader;
    enum lmc_status status;
    lmc_restore_options options = LMC_DEFAULTS;
    const lmc_parallel parallel = t_parallel(&n_workers);
    t_memory copy = *in;
    lmc_stream stream = LMC_DEFAULTS;
    copy.at = *n_unread = 0;
    stream.read = t_read;
    stream.user = &copy;
    options.parallel = n_workers > 1 ? &parallel : NULL;
    options.end_file = end_unread;
    options.user = n_unread;
    memset(&info, 0xFF, sizeof info);
    status = lmc_snapshot_restore(&stream, &info, &options);
    if (status != LMC_OK && status != LMC_ERR_BASE_MISSING) {
        CHECK(memcmp(&info, &nothing, sizeof info) == 0);
        return status;
    }
    reader = open_memory(&copy, NULL);
    CHECK(reader && lmc_reader_get_info(reader, &known) == LMC_OK &&
          memcmp(&info, &known, sizeof info) == 0);
    lmc_reader_free(reader);
    return status;
}

static void test_check_without_base(void)
{
    enum { BLOCK = 1 << 14, N = 1000, SIZE = N * BLOCK };
    uint8_t *const data = make(SIZE, T_TEXT, LMC_U8);
    const uint64_t shape[1] = {SIZE};
    lmc_tensor tensor = t_tensor("t", "U8", 1, shape, 0, SIZE);
    static t_model model;
    static w_file w;
    lmc_writer_options options = LMC_DEFAULTS;
    t_memory base_file, delta, bad;
    lmc_reader *reader;
    lmc_base base;
    uint8_t *block;
    size_t i, k, n_unread;
    uint64_t state = 3;
    memset(&model, 0, sizeof model);
    memset(&base_file, 0, sizeof base_file);
    memset(&delta, 0, sizeof delta);
    memset(&bad, 0, sizeof bad);
    t_note("a delta without its base");
    t_add_file(&model, "a", data, SIZE)->file.tensors = &tensor;
    model.files[0].file.n_tensors = 1;
    t_add_file(&model, "new", make(5000, T_GAUSS, LMC_BF16), 5000);
    t_add_file(&model, "of unknown size", make(700, T_TEXT, LMC_U8), 700)->file.size =
        LMC_UNKNOWN_SIZE;
    model.n_files = 1;
    CHECK_STATUS(t_write_model(&model, &base_file, NULL, 0, NULL), LMC_OK);
    model.n_files = 3;
    for (i = 0; i < N; i++) /* a few changes in each block */
        for (k = 0; k < 40; k++) data[BLOCK * i + t_below(&state, BLOCK)] ^= 1;
    reader = open_memory(&base_file, NULL);
    base = lmc_reader_base(reader);
    options.base = &base;
    options.log2_block = 14;
    CHECK_STATUS(t_write_model(&model, &delta, &options, 0, NULL), LMC_OK);
    for (i = 1; i < 4; i += 2) {
        CHECK_STATUS(check_alone(&delta, (unsigned)i, &n_unread), LMC_ERR_BASE_MISSING);
        CHECK(n_unread == 1); /* of the file that is predicted */
    }
    w_parse(&w, delta.data);
    CHECK(w.n == 6 && w_count_blocks(w.sections[1].body.data) == N);
    for (i = 0, block = w.sections[1].blocks.data; i < N; i++, block += w_block_size(block)) {
        const size_t bit = t_below(&state, 8 * (w_block_size(block) - W_BLOCK));
        if (!CHECK(block[2] & 4 && w_block_size(block) > W_BLOCK)) break;
        if (t_quick && i % 13 != 0) continue;
        t_note("a delta without its base, a bit of payload %lu", (unsigned long)i);
        block[W_BLOCK + bit / 8] ^= (uint8_t)(1u << bit % 8);
        w_build(&w, &bad);
        block[W_BLOCK + bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_STATUS(check_alone(&bad, 1, &n_unread), LMC_ERR_CHECKSUM);
    }
    t_note("a delta without its base, anywhere");
    for (i = 0; i < (t_quick ? 50u : 1000u); i++) { /* headers, sections, what is not predicted */
        const size_t at = i < 100   ? i
                          : i < 300 ? delta.size - 1 - (i - 100)
                                    : t_below(&state, delta.size);
        delta.data[at] ^= (uint8_t)(1u << i % 8);
        CHECK(check_alone(&delta, 1, &n_unread) != LMC_ERR_BASE_MISSING);
        delta.data[at] ^= (uint8_t)(1u << i % 8);
    }
    /* facts of a predicted file are believed, unless they contradict the snapshot's fingerprint
     */
    w.sections[0].facts.data[0] ^= 1; /* File_CRC */
    w_build(&w, &bad);
    CHECK_STATUS(check_alone(&bad, 1, &n_unread), LMC_ERR_BASE_MISSING);
    w.sections[0].facts.data[0] ^= 1;
    w.sections[0].facts.data[4] ^= 1;
    w_build(&w, &bad);
    CHECK_STATUS(check_alone(&bad, 1, &n_unread), LMC_ERR_CORRUPT);
    w.sections[0].facts.data[4] ^= 1;
    w.sections[4].facts.data[0] ^= 1; /* the size of the file of unknown size */
    w_build(&w, &bad);
    CHECK_STATUS(check_alone(&bad, 1, &n_unread), LMC_ERR_CORRUPT);
    w_free(&w);
    lmc_reader_free(reader);
    free(base_file.data);
    free(delta.data);
    free(bad.data);
    for (i = 0; i < model.n_files; i++) free((void *)(uintptr_t)model.files[i].data);
}

/* -- headers as safetensors writes them: predicted from the index -- */

/* The whole header of the file, with text before the entries and behind them. */
static size_t make_header(t_memory *out, const lmc_tensor *tensors, size_t n, const char *before,
                          const char *behind)
{
    char text[400];
    size_t i, k, header_size;
    uint64_t end = 0;
    out->size = 0;
    w_number(out, 0, 8);
    w_put(out, before, strlen(before));
    for (i = 0; i < n; i++) {
        const lmc_tensor *const t = &tensors[i];
        int at = snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "",
                          t->name, t->dtype);
        for (k = 0; k < t->rank; k++)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s%lu", k ? "," : "",
                           (unsigned long)t->shape[k]);
        at += snprintf(text + at, sizeof text - (size_t)at, "],\"data_offsets\":[%lu,%lu]}",
                       (unsigned long)end, (unsigned long)(end + t->size));
        w_put(out, text, (size_t)at);
        end += t->size;
    }
    w_put(out, behind, strlen(behind));
    header_size = out->size;
    for (i = 0; i < 8; i++) out->data[i] = (uint8_t)((header_size - 8) >> 8 * i);
    return header_size;
}

static void test_header_text(void)
{
    enum { N = 300 };
    static const char *const before[] = {"{", "{\"__metadata__\":{\"format\":\"pt\"},", "", "{ "};
    static const char *const behind[] = {"}", "}       ", "", ",\"__metadata__\":{}}"};
    static const uint64_t shapes[2][2] = {{3, 4}, {7, 0}};
    static const size_t pieces[] = {0, 1, 5000, T_STREAM};
    static char names[N][60];
    static lmc_tensor tensors[N];
    static t_model model;
    size_t i, k, plain = 0;
    for (i = 0; i < N; i++)
        snprintf(names[i], sizeof names[i], "model.layers.%lu.mlp.%s_proj.weight",
                 (unsigned long)(i / 3),
                 i % 3 == 0   ? "up"
                 : i % 3 == 1 ? "gate"
                              : "down");
    for (k = 0; k < 6; k++) { /* 4: a byte of the entries differs; 5: no tensors are described */
        t_memory data, out, again;
        lmc_restore_options restore_options;
        lmc_reader_options read_options;
        uint64_t at;
        int wrong;
        memset(&data, 0, sizeof data);
        memset(&out, 0, sizeof out);
        memset(&again, 0, sizeof again);
        memset(&model, 0, sizeof model);
        memset(&restore_options, 0, sizeof restore_options);
        memset(&read_options, 0, sizeof read_options);
        for (i = 0; i < N; i++)
            tensors[i] = t_tensor(names[i], i % 50 == 9 ? "new" : "BF16", 2, shapes[i % 50 == 8], 0,
                                  i % 50 == 8 ? 0 : 24);
        at = make_header(&data, tensors, N, before[k % 4], behind[k % 4]);
        if (k == 4) data.data[at / 2] ^= 1;
        for (i = 0; i < N; at += tensors[i++].size) {
            tensors[i].offset = at;
            w_put(&data, "0123456789abcdef0123456789", (size_t)tensors[i].size);
        }
        t_note("header text %lu", (unsigned long)k);
        t_add_file(&model, "before", data.data, 100); /* so that its number is not 0 */
        t_add_file(&model, "model.safetensors", data.data, data.size);
        if (k != 5) {
            model.files[1].file.tensors = tensors;
            model.files[1].file.n_tensors = N;
        }
        for (i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            again.size = 0;
            CHECK_STATUS(t_write_model(&model, i ? &again : &out, NULL, pieces[i], NULL), LMC_OK);
            if (i) CHECK(again.size == out.size && memcmp(again.data, out.data, out.size) == 0);
        }
        if (k == 0) plain = out.size;
        t_note("header text %lu: %lu bytes", (unsigned long)k, (unsigned long)out.size);
        CHECK(k < 4 ? out.size < plain + 200 : out.size > plain + 400);
        CHECK_STATUS(t_restore_model(&model, &out, &restore_options, NULL, &wrong), LMC_OK);
        CHECK(!wrong);
        CHECK_STATUS(t_read_model(&model, &out, &read_options, &wrong), LMC_OK);
        CHECK(!wrong);
        free(data.data);
        free(out.data);
        free(again.data);
    }
}

/* -- chunks that content-defined chunking finds in two snapshots -- */

enum { N_NETWORK = 45 };

/* A network of some 17 MB, as a safetensors file. what: 0: unchanged, 1: a tensor is added in
 * front, 2: three are removed, 3: one in the middle has other values. */
static void make_network(t_memory *file, lmc_tensor tensors[N_NETWORK], size_t *n, int what)
{
    static char names[N_NETWORK][40];
    static uint64_t shapes[N_NETWORK][2];
    uint64_t at;
    size_t i;
    *n = 0;
    for (i = 0; i < N_NETWORK; i++) {
        static const char *const parts[11] = {"attn.k",    "attn.o",   "attn.q",   "attn.v",
                                              "attn_norm", "mlp.down", "mlp.gate", "mlp.up",
                                              "mlp_norm",  "rope",     "x"};
        const size_t part = (i - 1) % 11;
        lmc_tensor *const t = &tensors[*n];
        uint64_t rows = 384, columns = 384;
        if (i == 0 && what != 1) continue;
        if (what == 2 && (i == 3 || i == 18 || i == 31)) continue;
        if (i == 0) columns = 64, sprintf(names[i], "adapter");
        else sprintf(names[i], "layers.%lu.%s", (unsigned long)(i / 11), parts[part]);
        if (i && part >= 5 && part <= 7) columns = 1024;
        if (i && (part == 4 || part == 8)) columns = 1;
        if (i && part == 9) rows = 1024;
        if (i && part == 10) rows = 16;
        shapes[i][0] = rows;
        shapes[i][1] = columns;
        *t = t_tensor(names[i], "BF16", 2, shapes[i], i, 2 * rows * columns);
        ++*n;
    }
    at = make_header(file, tensors, *n, "{\"__metadata__\":{\"format\":\"pt\"},", "}");
    for (i = 0; i < *n; i++) {
        const size_t size = (size_t)tensors[i].size;
        uint8_t *const data = (uint8_t *)malloc(size);
        if (!data) abort();
        t_fill(data, size, T_GAUSS, LMC_BF16,
               tensors[i].offset + (what == 3 && tensors[i].offset == 23 ? 1000 : 0));
        w_put(file, data, size);
        free(data);
        tensors[i].offset = at;
        at += size;
    }
}

/* Nothing in a run or its blocks depends on bytes before it: where plain files share 99 %,
 * snapshots share at least 85 %. */
static void test_shared_chunks(void)
{
    static lmc_tensor tensors[N_NETWORK];
    static t_model model;
    t_memory files[4], snapshots[4];
    size_t i, n;
    memset(files, 0, sizeof files);
    memset(snapshots, 0, sizeof snapshots);
    for (i = 0; i < 4; i++) {
        double plain, shared;
        make_network(&files[i], tensors, &n, (int)i);
        memset(&model, 0, sizeof model);
        t_add_file(&model, "", files[i].data, files[i].size)->file.tensors = tensors;
        model.files[0].file.n_tensors = n;
        CHECK_STATUS(t_write_model(&model, &snapshots[i], NULL, 0, NULL), LMC_OK);
        plain = t_shared(files[0].data, files[0].size, files[i].data, files[i].size);
        shared =
            t_shared(snapshots[0].data, snapshots[0].size, snapshots[i].data, snapshots[i].size);
        t_note("chunks, change %lu: %lu bytes, %.3f shared, of the snapshot %.3f", (unsigned long)i,
               (unsigned long)files[i].size, plain, shared);
        CHECK(plain > 0.9 && shared > 0.85 && shared < (i ? 1.0 : 1.1));
        if (t_long) printf("%s\n", t_about);
    }
    for (i = 0; i < 4; i++) {
        free(files[i].data);
        free(snapshots[i].data);
    }
}

/* The section of hashes: its content, and which calls compare it. */
static void test_hashes(void)
{
    static t_model model;
    lmc_writer_options options;
    lmc_restore_options restore;
    lmc_reader_options no_options;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    t_memory out;
    t_sha sha;
    static w_file w;
    uint8_t id[LMC_FINGERPRINT_SIZE], plain_id[LMC_FINGERPRINT_SIZE], hash[32], want[32], *section;
    size_t i, k, n_items = 0;
    int wrong, round;
    uint8_t whole[32], again[32];
    t_note("hashes");
    memset(&model, 0, sizeof model);
    memset(&options, 0, sizeof options);
    memset(&no_options, 0, sizeof no_options);
    memset(&restore, 0, sizeof restore);
    memset(&out, 0, sizeof out);
    add_shard(&model, "b", 700);
    t_add_file(&model, "a", make(300001, T_GAUSS, LMC_BF16), 300001);
    t_add_file(&model, "empty", NULL, 0);
    t_add_file(&model, "void", NULL, 0)->file.kind = LMC_FILE_DIRECTORY;
    for (round = 0; round < 2; round++) { /* without, with */
        options.content_hashes = round;
        out.size = 0;
        CHECK_STATUS(t_write_model(&model, &out, &options, 7777, round ? id : plain_id), LMC_OK);
        restore.check_hashes = 1;
        CHECK_STATUS(t_restore_model(&model, &out, &restore, hash, &wrong), LMC_OK);
        CHECK(!wrong && memcmp(hash, round ? id : plain_id, sizeof id) == 0);
        CHECK_STATUS(t_read_model(&model, &out, &no_options, &wrong), LMC_OK);
        CHECK(!wrong);
        source.read_at = t_read_at;
        source.user = &out;
        source.size = out.size;
        CHECK_STATUS(lmc_reader_open(&reader, &source, &no_options), LMC_OK);
        for (i = 0; i < model.n_files; i++) {
            const t_file *const f = &model.files[i];
            for (k = 0; k <= f->file.n_tensors; k++) {
                const lmc_tensor *const own = lmc_reader_get_file(reader, i)->tensors;
                const lmc_tensor *const t = k < f->file.n_tensors ? &own[k] : NULL;
                n_items += (size_t)round;
                t_sha_begin(&sha);
                if (t && t->size) t_sha_add(&sha, f->data + t->offset, (size_t)t->size);
                if (!t) { /* the bytes between tensors, and around them */
                    size_t at = 0, n;
                    for (n = 0; n < f->file.n_tensors; n++) {
                        if (own[n].offset > at)
                            t_sha_add(&sha, f->data + at, (size_t)own[n].offset - at);
                        at = (size_t)(own[n].offset + own[n].size);
                    }
                    if (f->size > at) t_sha_add(&sha, f->data + at, f->size - at);
                }
                t_sha_end(&sha, want);
                CHECK_STATUS(lmc_reader_read_content_hash(reader, i, t, hash),
                             round ? LMC_OK : LMC_ERR_NOT_FOUND);
                CHECK(!round || memcmp(hash, want, 32) == 0);
            }
        }
        CHECK_STATUS(lmc_reader_read_snapshot_hash(reader, round ? whole : again),
                     round ? LMC_OK : LMC_ERR_NOT_FOUND);
        CHECK_STATUS(lmc_reader_read_snapshot_hash(reader, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_read_snapshot_hash(NULL, again), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_read_content_hash(reader, 99, NULL, hash), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_reader_read_content_hash(NULL, 0, NULL, hash), LMC_ERR_ARGUMENT);
        lmc_reader_free(reader);
    }
    CHECK(memcmp(id, plain_id, sizeof id) == 0);
    /* a wrong hash, while every CRC is right: found only if hashes are checked */
    w_parse(&w, out.data);
    section = w.sections[w.n - 1].body.data;
    CHECK(memcmp(w.sections[w.n - 1].kind, "hash", 4) == 0 && section[0] == 1);
    CHECK(w.sections[w.n - 1].body.size == 40 + 32 * n_items &&
          memcmp(section + 8, whole, 32) == 0);
    for (round = 0; round < 4; round++) {
        if (round == 0) section[40 + 32 * (n_items - 1)] ^= 1; /* of the last file */
        else if (round == 1) section[0] = 2;                   /* an unknown algorithm */
        else if (round == 2) section[0] = 1;
        else { /* of all */ section[40 + 32 * (n_items - 1)] ^= 1;
            section[8] ^= 1;
        }
        w_build(&w, &out);
        restore.check_hashes = 0;
        CHECK_STATUS(t_restore_model(&model, &out, &restore, hash, &wrong), LMC_OK);
        restore.check_hashes = 1;
        CHECK_STATUS(t_restore_model(&model, &out, &restore, hash, &wrong),
                     round == 1 ? LMC_OK : LMC_ERR_CORRUPT);
        CHECK_STATUS(lmc_reader_open(&reader, &source, &no_options), LMC_OK);
        CHECK_STATUS(lmc_reader_read_snapshot_hash(reader, again),
                     round == 1 ? LMC_ERR_NOT_FOUND : LMC_ERR_CORRUPT);
        lmc_reader_free(reader);
    }
    w_free(&w);
    t_free_model(&model);
    free(out.data);
}

enum { REPEATED_SIZE = 40000 + 64 + 200 + 100000 };
static uint8_t repeated[REPEATED_SIZE];

static enum lmc_status read_repeated(void *user, size_t file_number, uint64_t offset, void *dst,
                                     size_t size)
{
    (void)user;
    (void)file_number;
    memcpy(dst, repeated + offset, size);
    return LMC_OK;
}

/* Two equal files whose first bytes, longer than a block, belong to a run that continues behind a
 * tiny tensor; written in pieces of `piece` bytes. Returns the size of the snapshot. */
static size_t write_repeated(size_t piece)
{
    static const uint64_t shapes[2] = {64, 100000}, offsets[2] = {40000, 40264};
    lmc_memory memory = {0};
    const lmc_sink sink = lmc_memory_sink(&memory);
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_tensor tensors[2];
    lmc_writer *w;
    size_t size;
    unsigned i;
    memset(tensors, 0, sizeof tensors);
    for (i = 0; i < 2; i++) {
        tensors[i].name = i ? "b" : "a";
        tensors[i].dtype = "U8";
        tensors[i].rank = 1;
        tensors[i].shape = &shapes[i];
        tensors[i].offset = offsets[i];
        tensors[i].size = shapes[i];
    }
    options.log2_block = 14;
    options.read_back = read_repeated;
    CHECK_STATUS(lmc_writer_open(&w, &sink, &options), LMC_OK);
    for (i = 0; i < 2; i++) {
        lmc_file file;
        size_t at;
        memset(&file, 0, sizeof file);
        file.path = i ? "y" : "x";
        file.size = REPEATED_SIZE;
        file.n_tensors = 2;
        file.tensors = tensors;
        CHECK_STATUS(lmc_writer_begin_file(w, &file, LMC_AUTO), LMC_OK);
        for (at = 0; at < REPEATED_SIZE; at += piece) {
            const size_t n = REPEATED_SIZE - at < piece ? REPEATED_SIZE - at : piece;
            CHECK_STATUS(lmc_writer_write(w, repeated + at, n), LMC_OK);
        }
        CHECK_STATUS(lmc_writer_end_file(w), LMC_OK);
    }
    CHECK_STATUS(lmc_writer_finish(w), LMC_OK);
    lmc_writer_free(w);
    size = memory.size;
    lmc_memory_free(&memory);
    return size;
}

/* An earlier writer failed if a header came in pieces, but not if it came at once. */
static void test_header_in_pieces(void)
{
    size_t whole;
    t_fill(repeated, sizeof repeated, T_RANDOM, LMC_U8, 3);
    whole = write_repeated(REPEATED_SIZE);
    CHECK(write_repeated(1000) == whole);
    CHECK(write_repeated(39999) == whole);
    CHECK(write_repeated(77777) == whole);
}

/* A file whose row contradicts its block can still be opened. For a part of a run the rows are read
 * again: if that fails, that is the error, and no block is searched. */
static void test_rows_that_are_not_read(void)
{
    static const uint8_t content[4096] = {0};
    uint8_t got[100], *row;
    t_memory out;
    t_calls calls;
    lmc_writer *writer = NULL;
    lmc_reader_options options;
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    lmc_sink sink = LMC_DEFAULTS;
    lmc_file file;
    t_note("rows that are not read");
    memset(&out, 0, sizeof out);
    memset(&calls, 0, sizeof calls);
    memset(&options, 0, sizeof options);
    memset(&file, 0, sizeof file);
    file.path = "f";
    file.size = sizeof content;
    sink.write = t_append;
    sink.user = &out;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
    CHECK_STATUS(lmc_writer_write(writer, content, sizeof content), LMC_OK);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    /* it ends where the index begins */
    row = out.data + (size_t)w_get(out.data + out.size - W_TRAILER, 8) - 8;
    row[0] ^= 1;
    calls.fail_at = -1;
    out.calls = &calls;
    source.read_at = t_read_at;
    source.user = &out;
    source.size = out.size;
    options.parallel_reads = 1; /* uses the rows */
    if (!CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_OK)) return;
    calls.fail_at = calls.calls;
    out.reads = 0;
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, sizeof got), LMC_ERR_READ);
    CHECK(out.reads == 1);
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, sizeof got), LMC_ERR_CORRUPT);
    row[0] ^= 1;
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, got, sizeof got), LMC_OK);
    CHECK(memcmp(got, content, sizeof got) == 0);
    lmc_reader_free(reader);
    free(out.data);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    test_find();
    test_grouped();
    test_written_groups();
    test_check_without_base();
    test_large_tensors();
    test_requests_of_small_tensors();
    test_requests_of_chains();
    if (!t_quick) test_requests_without_rows();
    test_header_text();
    test_shared_chunks();
    test_descriptions();
    test_order();
    test_limits();
    test_many_paths();
    test_index_limit();
    test_streams();
    test_rests_of_streams();
    test_large_requests();
    test_count_written();
    test_neighbours();
    test_close_twins();
    test_twin_of_file();
    test_window();
    test_parallel_reads();
    test_fingerprint_of_tensor();
    test_reach();
    test_gap();
    test_rows_that_are_not_read();
    test_refused_file();
    test_full_wave();
    test_long_section();
    test_long_index();
    test_models();
    test_hashes();
    test_memory_callbacks();
    test_header_in_pieces();
    test_memory();
#ifndef T_INSTRUMENTED
    test_stack();
#endif
    test_faults();
    if (t_long) test_large();
    return t_end();
}
