/* t_io.h - what the tests of layers 2 and 3 share: thread pools, callbacks on memory that fail on
 * request, and a model of a snapshot, which is written, restored, read, and compared at every step.
 * Include it after t.h. */
#ifndef T_IO_H
#define T_IO_H

#include "t.h"
#include "t_hash.h"

/* -- parallel_for -- */

#ifdef __wasi__ /* no threads: each task as the next worker */
static inline void t_run_threads(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n)
{
    (void)user;
    while (n_tasks-- != 0) task(arg, n_tasks, (unsigned)(n_tasks % n));
}
static inline void t_lock(void) {}
static inline void t_unlock(void) {}
#else
#include <pthread.h>

static pthread_mutex_t t_mutex = PTHREAD_MUTEX_INITIALIZER;
static inline void t_lock(void) { pthread_mutex_lock(&t_mutex); }
static inline void t_unlock(void) { pthread_mutex_unlock(&t_mutex); }

typedef struct t_pool {
    lmc_task task;
    void *arg;
    size_t next, n_tasks;
    unsigned n_workers;
    pthread_mutex_t lock;
    uint8_t *ran; /* how often each task ran */
} t_pool;

typedef struct t_worker {
    t_pool *pool;
    unsigned number;
} t_worker;

static void *t_work(void *arg)
{
    const t_worker *worker = (const t_worker *)arg;
    t_pool *pool = worker->pool;
    for (;;) {
        size_t index;
        pthread_mutex_lock(&pool->lock);
        index = pool->next++;
        pthread_mutex_unlock(&pool->lock);
        if (index >= pool->n_tasks) return NULL;
        /* backwards: no order is promised */
        pool->task(pool->arg, pool->n_tasks - 1 - index, worker->number);
    }
}

/* New threads for each call, as simply as possible. */
static inline void t_run_threads(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n)
{
    t_pool pool;
    t_worker workers[16];
    pthread_t threads[16];
    unsigned i;
    (void)user;
    memset(&pool, 0, sizeof pool);
    pool.task = task;
    pool.arg = arg;
    pool.n_tasks = n_tasks;
    pthread_mutex_init(&pool.lock, NULL);
    for (i = 0; i < n; i++) {
        workers[i].pool = &pool;
        workers[i].number = i;
        if (pthread_create(&threads[i], NULL, t_work, &workers[i]) != 0) abort();
    }
    for (i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&pool.lock);
}
#endif

static inline lmc_parallel t_parallel(unsigned *n_workers)
{
    lmc_parallel parallel = LMC_DEFAULTS;
    parallel.run = t_run_threads;
    parallel.user = n_workers;
    parallel.n_workers = *n_workers;
    return parallel;
}

/* -- memory as sink, source and stream; call number fail_at of all callbacks together fails -- */

typedef struct t_calls {
    long calls, fail_at;    /* with a pool, reading and writing are counted at the same time */
    enum lmc_status expect; /* after the failing call: what the library should return */
} t_calls;

typedef struct t_memory {
    uint8_t *data;
    size_t size, cap, at; /* at: read position of a stream */
    /* the stream gives at most so many bytes at a time; 0: all that were requested */
    size_t piece;
    long reads;
    t_calls *calls; /* or NULL */
} t_memory;

static inline int t_fails(t_calls *calls, enum lmc_status expect)
{
    int fails;
    if (calls == NULL) return 0;
    t_lock();
    fails = calls->calls++ == calls->fail_at;
    if (fails) calls->expect = expect;
    t_unlock();
    return fails;
}

static inline enum lmc_status t_append(void *user, const void *data, size_t size)
{
    t_memory *memory = (t_memory *)user;
    if (t_fails(memory->calls, LMC_ERR_WRITE)) return LMC_ERR_WRITE;
    if (memory->size + size > memory->cap) {
        memory->cap = 2 * memory->cap + size;
        memory->data = (uint8_t *)realloc(memory->data, memory->cap);
        if (memory->data == NULL) abort();
    }
    if (size) memcpy(memory->data + memory->size, data, size);
    memory->size += size;
    return LMC_OK;
}

static inline enum lmc_status t_read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    t_memory *memory = (t_memory *)user;
    t_lock(); /* parallel_reads */
    memory->reads++;
    t_unlock();
    if (t_fails(memory->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (offset > memory->size || size > memory->size - offset) return LMC_ERR_READ;
    if (size) memcpy(dst, memory->data + offset, size);
    return LMC_OK;
}

static inline enum lmc_status t_read(void *user, void *dst, size_t size, size_t *got)
{
    t_memory *memory = (t_memory *)user;
    size_t n = memory->size - memory->at;
    if (t_fails(memory->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (n > size) n = size;
    if (memory->piece && n > memory->piece) n = memory->piece;
    if (n) memcpy(dst, memory->data + memory->at, n);
    memory->at += n;
    *got = n;
    return LMC_OK;
}

/* -- a model: what a snapshot should hold -- */

#define T_MAX_FILES 320

typedef struct t_file {
    lmc_file file;
    const uint8_t *data;
    size_t size; /* file.size, known even where that says LMC_UNKNOWN_SIZE */
    enum lmc_dtype default_dtype;
    lmc_tensor_hints *hints; /* for each tensor; NULL: none. In the memory of the tensors */
} t_file;

typedef struct t_model {
    t_file files[T_MAX_FILES];
    size_t n_files, n_metadata;
    const char *keys[8], *values[8];
    size_t value_sizes[8];
} t_model;

/* Frees a model whose data and tensors were allocated. */
static inline void t_free_model(t_model *model)
{
    size_t i;
    for (i = 0; i < model->n_files; i++) {
        free((void *)(uintptr_t)model->files[i].data);
        free((void *)(uintptr_t)model->files[i].file.tensors);
    }
    memset(model, 0, sizeof *model);
}

static inline t_file *t_add_file(t_model *model, const char *path, const uint8_t *data, size_t size)
{
    t_file *f = &model->files[model->n_files++];
    if (model->n_files > T_MAX_FILES) abort();
    memset(f, 0, sizeof *f);
    f->file.path = path;
    f->file.size = size;
    f->data = data;
    f->size = size;
    return f;
}

/* What a reader says about its snapshot: all zero if there is none. */
static inline lmc_snapshot_info t_info(const lmc_reader *reader)
{
    lmc_snapshot_info info;
    memset(&info, 0, sizeof info);
    if (reader && lmc_reader_get_info(reader, &info) != LMC_OK) abort();
    return info;
}
static inline void t_fingerprint(const lmc_reader *reader,
                                 uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    const lmc_snapshot_info info = t_info(reader);
    memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
}
static inline uint64_t t_encoded_size(const lmc_reader *reader, size_t file_number, uint64_t offset,
                                      uint64_t size)
{
    uint64_t encoded = 0;
    const enum lmc_status status =
        lmc_reader_encoded_size(reader, file_number, offset, size, &encoded);
    if (status != LMC_OK && status != LMC_ERR_LOST && status != LMC_ERR_ARGUMENT) abort();
    return encoded;
}
static inline uint64_t t_written(const lmc_writer *writer)
{
    lmc_writer_info info;
    return lmc_writer_get_info(writer, &info) == LMC_OK ? info.size : 0;
}

/* A tensor whose strings and shape are the caller's. */
static inline lmc_tensor t_tensor(const char *name, const char *dtype, unsigned rank,
                                  const uint64_t *shape, uint64_t offset, uint64_t size)
{
    lmc_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.shape = shape;
    tensor.offset = offset;
    tensor.size = size;
    return tensor;
}

/* In place of a size of pieces: by lmc_writer_write_stream, with a beginning and an end by
 * lmc_writer_write. */
#define T_STREAM ((size_t)-1)

/* Writes one piece of the file from `at` on, from a copy that is freed at once: the writer must not
 * keep the pointer. */
static inline enum lmc_status t_write_piece(lmc_writer *writer, const t_file *f, size_t *at,
                                            size_t n)
{
    uint8_t *copy = (uint8_t *)t_copy(n ? f->data + *at : NULL, n);
    enum lmc_status status = lmc_writer_write(writer, copy, n);
    free(copy);
    *at += n;
    return status;
}

static inline enum lmc_status t_write_by_stream(lmc_writer *writer, const t_file *f, t_calls *calls)
{
    size_t at = 0;
    enum lmc_status status = t_write_piece(writer, f, &at, f->size / 8);
    lmc_stream stream = LMC_DEFAULTS;
    t_memory memory;
    if (status != LMC_OK) return status;
    memset(&memory, 0, sizeof memory);
    memory.size = f->size - f->size / 16 - at;
    memory.data = (uint8_t *)t_copy(memory.size ? f->data + at : NULL, memory.size);
    memory.piece = 77777;
    memory.calls = calls;
    stream.read = t_read;
    stream.user = &memory;
    status = lmc_writer_write_stream(writer, &stream);
    free(memory.data);
    if (status != LMC_OK) return status;
    CHECK(memory.at == memory.size);
    at += memory.size;
    return t_write_piece(writer, f, &at, f->size - at);
}

/* Whether a tensor has a quantiser: the writer must know that before. */
static inline int t_has_quantizer(const t_model *model)
{
    size_t i, k;
    for (i = 0; i < model->n_files; i++)
        for (k = 0; k < model->files[i].file.n_tensors && model->files[i].hints; k++)
            if (model->files[i].hints[k].quantizer) return 1;
    return 0;
}

/* Write the model in pieces of the given size (0: each file at once); the first error ends it. */
static inline enum lmc_status t_write_model(const t_model *model, t_memory *out,
                                            const lmc_writer_options *options, size_t piece,
                                            uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    lmc_writer *writer = NULL;
    lmc_sink sink = LMC_DEFAULTS;
    enum lmc_status status;
    size_t i, k, at;
    lmc_writer_options quantizing;
    sink.write = t_append;
    sink.user = out;
    if (t_has_quantizer(model)) {
        memset(&quantizing, 0, sizeof quantizing);
        if (options) quantizing = *options;
        quantizing.may_quantize = 1;
        options = &quantizing;
    }
    status = lmc_writer_open(&writer, &sink, options);
    for (i = 0; status == LMC_OK && i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        for (k = 0; f->hints && k < f->file.n_tensors && status == LMC_OK; k++)
            status = lmc_writer_add_hints(writer, k, &f->hints[k]);
        if (status == LMC_OK) status = lmc_writer_begin_file(writer, &f->file, f->default_dtype);
        if (status == LMC_OK && piece == T_STREAM)
            status = t_write_by_stream(writer, f, out->calls);
        else
            for (at = 0; status == LMC_OK && at < f->size;)
                status = t_write_piece(writer, f, &at,
                                       piece && piece < f->size - at ? piece : f->size - at);
        if (status == LMC_OK) status = lmc_writer_end_file(writer);
    }
    for (i = 0; status == LMC_OK && i < model->n_metadata; i++)
        status = lmc_writer_add_metadata(writer, model->keys[i], model->values[i],
                                         model->value_sizes[i]);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    if (status == LMC_OK) {
        lmc_writer_info info;
        CHECK_STATUS(lmc_writer_get_info(writer, &info), LMC_OK);
        CHECK(info.size == out->size && info.is_finished);
        if (fingerprint != NULL) memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    }
    lmc_writer_free(writer);
    return status;
}

/* -- fingerprints from the spec (7.1, 7.2) -- */

/* The sum of the words of size bytes; zero bytes complete the last one. */
static inline uint64_t t_sum_words(const uint8_t *data, size_t size)
{
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < size; i++) sum += (uint64_t)data[i] << 8 * (i % 8);
    return sum;
}

/* The first half of a SHA-256. */
static inline void t_sha_fingerprint(t_sha *sha, uint8_t id[LMC_FINGERPRINT_SIZE])
{
    uint8_t digest[32];
    t_sha_end(sha, digest);
    memcpy(id, digest, LMC_FINGERPRINT_SIZE);
}

/* type: 0 a tensor, 1 a file without tensors, 2 a directory */
static inline void t_tensor_fingerprint(const uint8_t *data, unsigned type, uint64_t size,
                                        const char *dtype, unsigned rank, const uint64_t *shape,
                                        uint8_t id[LMC_FINGERPRINT_SIZE])
{
    t_sha sha;
    uint64_t at;
    unsigned i;
    t_sha_begin(&sha);
    t_sha_add(&sha, "LMC tensor 3", 13);
    t_sha_number(&sha, type, 1);
    for (at = 0; at < size; at += 262144) {
        const size_t n = size - at < 262144 ? (size_t)(size - at) : 262144;
        t_sha_number(&sha, t_crc32c(0, data + at, n), 4);
        t_sha_number(&sha, t_sum_words(data + at, n), 8);
    }
    t_sha_number(&sha, strlen(dtype), 1);
    t_sha_add(&sha, dtype, strlen(dtype));
    t_sha_number(&sha, rank, 1);
    for (i = 0; i < rank; i++) t_sha_number(&sha, shape[i], 8);
    t_sha_number(&sha, size, 8);
    t_sha_fingerprint(&sha, id);
}

typedef struct t_item {
    const char *name;
    uint8_t id[LMC_FINGERPRINT_SIZE];
} t_item;

static int t_compare_items(const void *a, const void *b)
{
    const t_item *x = (const t_item *)a, *y = (const t_item *)b;
    size_t nx = strlen(x->name), ny = strlen(y->name);
    int order = memcmp(x->name, y->name, nx < ny ? nx : ny);
    if (order == 0 && nx != ny) order = nx < ny ? -1 : 1;
    return order ? order : memcmp(x->id, y->id, LMC_FINGERPRINT_SIZE);
}

static inline void t_file_fingerprint(const t_file *f, uint8_t id[LMC_FINGERPRINT_SIZE])
{
    uint64_t shape = f->size;
    t_tensor_fingerprint(f->data, f->file.kind == LMC_FILE_DIRECTORY ? 2 : 1, f->size, "U8", 1,
                         &shape, id);
}

static inline void t_model_fingerprint(const t_model *model, uint8_t id[LMC_FINGERPRINT_SIZE])
{
    size_t i, k, n = 0;
    t_item *items;
    t_sha sha;
    for (i = 0; i < model->n_files; i++) n += model->files[i].file.n_tensors + 1;
    items = (t_item *)calloc(n ? n : 1, sizeof *items);
    if (items == NULL) abort();
    for (n = i = 0; i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        for (k = 0; k < f->file.n_tensors; k++) {
            const lmc_tensor *tensor = &f->file.tensors[k];
            items[n].name = tensor->name;
            t_tensor_fingerprint(f->data + tensor->offset, 0, tensor->size, tensor->dtype,
                                 tensor->rank, tensor->shape, items[n++].id);
        }
        if (k == 0) {
            items[n].name = f->file.path;
            t_file_fingerprint(f, items[n++].id);
        }
    }
    qsort(items, n, sizeof *items, t_compare_items);
    t_sha_begin(&sha);
    t_sha_add(&sha, "LMC snapshot 3", 15);
    for (i = 0; i < n; i++) {
        t_sha_number(&sha, strlen(items[i].name), 4);
        t_sha_add(&sha, items[i].name, strlen(items[i].name));
        t_sha_add(&sha, items[i].id, LMC_FINGERPRINT_SIZE);
    }
    t_sha_fingerprint(&sha, id);
    free(items);
}

/* -- restore against a model -- */

typedef struct t_restore {
    const t_model *model;
    size_t file, at; /* the file being restored, bytes of it so far */
    int open;
    int wrong; /* something other than the model was delivered */
    t_calls *calls;
} t_restore;

static inline int t_same_file(const lmc_file *got, const t_file *want, int size_known)
{
    size_t i;
    int same = strcmp(got->path, want->file.path) == 0 && got->kind == want->file.kind &&
               got->has_mode == want->file.has_mode && got->has_mtime == want->file.has_mtime &&
               got->n_tensors == want->file.n_tensors &&
               got->size == (size_known ? (uint64_t)want->size : want->file.size);
    if (same && got->has_mode) same = got->mode == want->file.mode;
    if (same && got->has_mtime)
        same = got->mtime_s == want->file.mtime_s && got->mtime_ns == want->file.mtime_ns;
    for (i = 0; same && i < got->n_tensors; i++) {
        const lmc_tensor *a = &got->tensors[i], *b = &want->file.tensors[i];
        same = strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
               a->rank == b->rank && a->offset == b->offset && a->size == b->size &&
               (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
    }
    return same;
}

static inline enum lmc_status t_on_begin(void *user, const lmc_file *file, size_t number)
{
    t_restore *r = (t_restore *)user;
    if (t_fails(r->calls, LMC_ERR_WRITE)) return LMC_ERR_WRITE;
    r->wrong |= r->open || number != r->file || number >= r->model->n_files;
    if (!r->wrong) r->wrong |= !t_same_file(file, &r->model->files[number], 0);
    r->open = 1;
    r->at = 0;
    return LMC_OK;
}

static inline enum lmc_status t_on_write(void *user, const void *data, size_t size)
{
    t_restore *r = (t_restore *)user;
    const t_file *f = &r->model->files[r->file];
    if (t_fails(r->calls, LMC_ERR_WRITE)) return LMC_ERR_WRITE;
    r->wrong |= !r->open || r->at > f->size || size > f->size - r->at;
    if (!r->wrong) r->wrong |= memcmp(f->data + r->at, data, size) != 0;
    r->at += size;
    return LMC_OK;
}

/* For restore's write_at: blocks of the open file, in any order, from several threads. At the end
 * `at` shows bytes that were delivered twice or not at all. */
static long t_n_write_at;
static inline enum lmc_status t_on_write_at(void *user, size_t file_number, uint64_t offset,
                                            const void *data, size_t size)
{
    t_restore *r = (t_restore *)user;
    const t_file *f = &r->model->files[r->file];
    const int wrong = !r->open || file_number != r->file || offset > f->size ||
                      size > f->size - offset || memcmp(f->data + offset, data, size) != 0;
    if (t_fails(r->calls, LMC_ERR_WRITE)) return LMC_ERR_WRITE;
    t_lock();
    r->wrong |= wrong;
    r->at += size;
    t_n_write_at++;
    t_unlock();
    return LMC_OK;
}

static inline enum lmc_status t_on_end(void *user, const lmc_file *file, size_t number)
{
    t_restore *r = (t_restore *)user;
    if (t_fails(r->calls, LMC_ERR_WRITE)) return LMC_ERR_WRITE;
    r->wrong |= !r->open || number != r->file || r->at != r->model->files[r->file].size ||
                file->size != r->at;
    if (!r->wrong) {
        r->wrong |= !t_same_file(file, &r->model->files[number], 1);
        r->wrong |= file->crc != t_crc32c(0, r->model->files[number].data, r->at);
    }
    r->open = 0;
    r->file++;
    return LMC_OK;
}

/* Reads back what was delivered before. */
static inline enum lmc_status t_on_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                             size_t size)
{
    t_restore *r = (t_restore *)user;
    uint64_t there;
    if (t_fails(r->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (number > r->file || (number == r->file && !r->open)) there = 0;
    else there = number < r->file ? r->model->files[number].size : r->at;
    r->wrong |= offset > there || size > there - offset;
    if (r->wrong) return LMC_ERR_READ;
    if (size) memcpy(dst, r->model->files[number].data + offset, size);
    return LMC_OK;
}

/* Restoring tells of a snapshot what its reader tells; and hashes_checked. */
static inline void t_compare_info(t_memory *in, const lmc_snapshot_info *restored, int check_hashes)
{
    lmc_source source = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_snapshot_info info = *restored;
    t_memory again;
    memset(&again, 0, sizeof again);
    again.data = in->data;
    again.size = in->size;
    source.read_at = t_read_at;
    source.user = &again;
    source.size = in->size;
    if (!CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) return;
    CHECK(check_hashes || !info.hashes_checked);
    info.hashes_checked = 0;
    {
        const lmc_snapshot_info read = t_info(reader);
        CHECK(info.n_files == read.n_files && info.n_metadata == read.n_metadata &&
              info.size == read.size && info.index_offset == read.index_offset &&
              info.index_size == read.index_size && info.format_major == read.format_major &&
              info.has_base == read.has_base && info.features == read.features &&
              info.format_minor == read.format_minor && info.n_sections == read.n_sections &&
              info.n_records == read.n_records &&
              memcmp(info.fingerprint, read.fingerprint, LMC_FINGERPRINT_SIZE) == 0 &&
              memcmp(info.base_fingerprint, read.base_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    }
    lmc_reader_free(reader);
}

/* Restore from memory; *wrong: delivered bytes differ from the model's, or a wrong result was
 * reported as success. */
static inline enum lmc_status t_restore_model(const t_model *model, t_memory *in,
                                              lmc_restore_options *options,
                                              uint8_t fingerprint[LMC_FINGERPRINT_SIZE], int *wrong)
{
    t_restore r;
    lmc_stream stream = LMC_DEFAULTS;
    lmc_snapshot_info info;
    enum lmc_status status;
    memset(&r, 0, sizeof r);
    r.model = model;
    r.calls = in->calls;
    in->at = 0;
    stream.read = t_read;
    stream.user = in;
    options->user = &r;
    options->begin_file = t_on_begin;
    options->write = t_on_write;
    options->end_file = t_on_end;
    status = lmc_snapshot_restore(&stream, &info, options);
    if (status == LMC_OK && fingerprint)
        memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    if (status == LMC_OK) t_compare_info(in, &info, options->check_hashes);
    *wrong = r.wrong || (status == LMC_OK && (r.open || r.file != model->n_files));
    return status;
}

/* Opens a reader, compares everything that it says with the model, and reads all bytes of all
 * files, some tensors and some ranges. *wrong as above. Ends at the first error. */
static inline enum lmc_status t_read_model(const t_model *model, t_memory *in,
                                           const lmc_reader_options *options, int *wrong)
{
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    enum lmc_status status;
    size_t i, k;
    source.read_at = t_read_at;
    source.user = in;
    source.size = in->size;
    *wrong = 0;
    status = lmc_reader_open(&reader, &source, options);
    if (status == LMC_OK)
        *wrong |= t_info(reader).n_files != model->n_files ||
                  t_info(reader).n_metadata != model->n_metadata;
    for (i = 0; status == LMC_OK && i < model->n_metadata; i++) {
        const void *value = NULL;
        size_t size = 0;
        *wrong |= lmc_reader_find_metadata(reader, model->keys[i], &value, &size) != LMC_OK ||
                  size != model->value_sizes[i] || memcmp(value, model->values[i], size) != 0;
    }
    for (i = 0; status == LMC_OK && !*wrong && i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        const lmc_file *file = lmc_reader_get_file(reader, i);
        uint8_t *data = (uint8_t *)malloc(f->size ? f->size : 1);
        if (data == NULL) abort();
        *wrong |= file == NULL;
        if (file != NULL) {
            size_t place = SIZE_MAX;
            status = lmc_reader_find_file(reader, f->file.path, &place);
            *wrong |= status == LMC_OK && place != i;
            *wrong |= !t_same_file(file, f, 1) || file->crc != t_crc32c(0, f->data, f->size);
            if (status == LMC_OK) status = lmc_reader_read_file(reader, i, 0, data, f->size);
            if (status == LMC_OK && f->size) *wrong |= memcmp(data, f->data, f->size) != 0;
        }
        for (k = 0; status == LMC_OK && !*wrong && k < f->file.n_tensors; k++) {
            const lmc_tensor *want = &f->file.tensors[k], *tensor = NULL;
            uint64_t from = want->size / 3, part = want->size - from - want->size / 5;
            size_t number = 99999;
            status = lmc_reader_find_tensor(reader, f->file.path, want->name, &number, &tensor);
            if (status != LMC_OK) break;
            *wrong |= number != i || tensor != &file->tensors[k];
            status = lmc_reader_read_tensor(reader, number, tensor, from, data, (size_t)part);
            if (status == LMC_OK && part)
                *wrong |= memcmp(data, f->data + want->offset + from, (size_t)part) != 0;
        }
        free(data);
    }
    lmc_reader_free(reader);
    return status;
}

#endif
