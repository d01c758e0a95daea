/* io.h - snapshots in memory for the harnesses: callbacks that fail by the parameters, a target
 * that collects restored files, and calls of all functions of a reader, compared with the restored
 * files. */
#ifndef FUZZ_IO_H
#define FUZZ_IO_H

#include "fuzz.h"

#define IO_MOST_FILES 64
#define IO_USUAL_SIZE ((size_t)64 << 10) /* of all files; more takes long, so it is rare */
#define IO_MOST_SIZE ((size_t)4 << 20)

/* -- parameters -- */

typedef struct io_parameters {
    unsigned fail_alloc, fail_read, fail_write; /* which call fails, from 1; 0: none */
    unsigned piece, workers, seed;
    int at_start, any_size;
} io_parameters;

static inline io_parameters io_draw(fuzz_input *in, unsigned *tier)
{
    uint64_t p = fuzz_draw(in, 8);
    io_parameters io;
    io.fail_alloc = fuzz_bits(&p, 8);
    io.fail_read = fuzz_bits(&p, 4);
    *tier = fuzz_bits(&p, 4);
    io.fail_write = fuzz_bits(&p, 4);
    io.piece = fuzz_bits(&p, 6);
    io.workers = fuzz_bits(&p, 2);
    io.at_start = (int)fuzz_bits(&p, 1);
    io.any_size = fuzz_bits(&p, 8) == 255;
    io.seed = fuzz_bits(&p, 16);
    return io;
}

/* -- threads: none, but more than one worker -- */

static inline void io_run(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n)
{
    (void)user;
    /* backwards: no order is promised */
    while (n_tasks-- != 0) task(arg, n_tasks, (unsigned)(n_tasks % n));
}

/* -- sources and streams -- */

typedef struct io_file {
    const uint8_t *data;
    size_t size, at, piece;  /* a stream: what was read, the most at a time (0: any) */
    unsigned calls, fail_at; /* from 1; 0: none */
    int failed;
} io_file;

static inline int io_fails(io_file *f)
{
    const int fails = ++f->calls == f->fail_at;
    f->failed |= fails;
    return fails;
}

static inline enum lmc_status io_read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    io_file *const f = (io_file *)user;
    if (io_fails(f)) return LMC_ERR_READ;
    FUZZ_CHECK(offset <= f->size && size <= f->size - offset);
    if (size) memcpy(dst, f->data + offset, size);
    return LMC_OK;
}

static inline enum lmc_status io_read(void *user, void *dst, size_t size, size_t *got)
{
    io_file *const f = (io_file *)user;
    size_t n = f->size - f->at;
    if (io_fails(f)) return LMC_ERR_READ;
    if (n > size) n = size;
    if (f->piece && n > f->piece) n = f->piece;
    if (n) memcpy(dst, f->data + f->at, n);
    f->at += n;
    *got = n;
    return LMC_OK;
}

static inline io_file io_open(const uint8_t *data, size_t size, unsigned piece, unsigned fail_at)
{
    io_file f;
    memset(&f, 0, sizeof f);
    f.data = data;
    f.size = size;
    f.piece = piece;
    f.fail_at = fail_at;
    return f;
}

static inline lmc_source io_source(io_file *f)
{
    lmc_source source = LMC_DEFAULTS;
    source.read_at = io_read_at;
    source.user = f;
    source.size = f->size;
    return source;
}

/* -- targets -- */

typedef struct io_target {
    uint8_t *data; /* all files, one after another */
    size_t cap, size, n_files, starts[IO_MOST_FILES + 1];
    int in_file;
    unsigned calls, fail_at;
    int failed;
    /* in place: data has the old files, and write() overwrites them */
    int in_place;
    size_t position, skip; /* of skip bytes, which write() does not get */
    uint64_t n_written;
} io_target;

static inline enum lmc_status io_begin_file(void *user, const lmc_file *file, size_t number)
{
    io_target *const t = (io_target *)user;
    FUZZ_CHECK(!t->in_file && (t->in_place || number == t->n_files) && file->path[0] != '/' &&
               strstr(file->path, "/../") == NULL);
    if (t->in_place) {
        const size_t size = number < t->n_files ? t->starts[number + 1] - t->starts[number] : 0;
        /* unknown: io_end_file will check */
        if (number >= t->n_files || (file->size != LMC_UNKNOWN_SIZE && file->size != size))
            return LMC_ERR_WRITE;
        t->position = size < t->skip ? size : t->skip;
        t->skip -= t->position;
        t->position += t->starts[number];
    } else {
        if (t->n_files == IO_MOST_FILES) return LMC_ERR_WRITE;
        t->starts[t->n_files++] = t->size;
        t->starts[t->n_files] = t->size;
    }
    t->in_file = 1;
    return LMC_OK;
}

static inline enum lmc_status io_write(void *user, const void *data, size_t size)
{
    io_target *const t = (io_target *)user;
    size_t *const at = t->in_place ? &t->position : &t->size;
    FUZZ_CHECK(t->in_file && size != 0);
    if (++t->calls == t->fail_at) {
        t->failed = 1;
        return LMC_ERR_WRITE;
    }
    if (size > t->cap - *at) return LMC_ERR_WRITE;
    memcpy(t->data + *at, data, size);
    *at += size;
    t->n_written += size;
    if (!t->in_place) t->starts[t->n_files] = t->size;
    return LMC_OK;
}

static inline enum lmc_status io_end_file(void *user, const lmc_file *file, size_t number)
{
    io_target *const t = (io_target *)user;
    FUZZ_CHECK(t->in_file);
    if (t->in_place && file->size != t->starts[number + 1] - t->starts[number])
        return LMC_ERR_WRITE;
    if (!t->in_place)
        FUZZ_CHECK(number + 1 == t->n_files && file->size == t->size - t->starts[number] &&
                   file->crc == lmc_crc32c(0, t->data + t->starts[number], file->size));
    t->in_file = 0;
    return LMC_OK;
}

static inline enum lmc_status io_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                           size_t size)
{
    const io_target *const t = (const io_target *)user;
    const size_t n = number < t->n_files ? t->starts[number + 1] - t->starts[number] : 0;
    /* only bytes that have been written */
    if (!t->in_place) FUZZ_CHECK(number < t->n_files && offset <= n && size <= n - offset);
    if (offset > n || size > n - offset) return LMC_ERR_READ;
    memcpy(dst, t->data + t->starts[number] + offset, size);
    return LMC_OK;
}

/* -- reading -- */

static fuzz_guard io_read_guard, io_part_guard, io_target_guard;

static inline void io_reserve(void)
{
    fuzz_reserve(&io_read_guard, IO_MOST_SIZE);
    fuzz_reserve(&io_part_guard, IO_MOST_SIZE);
    fuzz_reserve(&io_target_guard, IO_MOST_SIZE);
}

/* The SHA-256 that the snapshot has of a tensor, or of a file without tensors, does not change. */
static inline void io_check_hash(lmc_reader *reader, size_t i, const lmc_tensor *t,
                                 const io_parameters *io)
{
    uint8_t hash[32], again[32];
    if (io->fail_alloc || io->fail_read) {
        (void)lmc_reader_read_content_hash(reader, i, t, hash);
    } else if (lmc_reader_read_content_hash(reader, i, t, hash) == LMC_OK)
        FUZZ_CHECK(lmc_reader_read_content_hash(reader, i, t, again) == LMC_OK &&
                   memcmp(hash, again, sizeof hash) == 0);
}

/* Reads all that the reader has, and compares it with `restored`, if that is not NULL. Returns the
 * first error. */
static inline enum lmc_status io_check_reader(lmc_reader *reader, const io_target *restored,
                                              const io_parameters *io)
{
    enum lmc_status first = LMC_OK;
    size_t i, j;
    uint32_t random = io->seed | 1;
    const int fails = io->fail_alloc || io->fail_read;
    for (i = 0; i < fuzz_info(reader).n_files && i < IO_MOST_FILES; i++) {
        const lmc_file *const file = lmc_reader_get_file(reader, i);
        uint8_t *all, *part;
        enum lmc_status status;
        if (file->size > (io->any_size ? IO_MOST_SIZE : IO_USUAL_SIZE)) continue;
        all = fuzz_place(&io_read_guard, (size_t)file->size, io->at_start);
        status = lmc_reader_read_file(reader, i, 0, all, (size_t)file->size);
        if (first == LMC_OK) first = status;
        if (restored && status == LMC_OK) {
            FUZZ_CHECK(i < restored->n_files &&
                       file->size == restored->starts[i + 1] - restored->starts[i]);
            FUZZ_CHECK(memcmp(all, restored->data + restored->starts[i], (size_t)file->size) == 0);
        }
        for (j = 0; j < 4 && file->size; j++) {
            const uint64_t offset = (random = random * 1664525 + 1013904223) % file->size;
            const size_t size =
                (size_t)((random = random * 1664525 + 1013904223) % (file->size - offset) + 1);
            enum lmc_status part_status;
            part = fuzz_place(&io_part_guard, size, !io->at_start);
            part_status = lmc_reader_read_file(reader, i, offset, part, size);
            /* salvage: guessed runs may overlap; and for a whole tensor the fingerprint is enough,
             * so a block may have any Content_CRC (spec R5-14) */
            if (status == LMC_OK)
                FUZZ_CHECK(part_status == LMC_OK
                               ? memcmp(part, all + offset, size) == 0
                               : fails || (!restored && (part_status == LMC_ERR_NOT_FOUND ||
                                                         part_status == LMC_ERR_CHECKSUM)));
        }
        FUZZ_CHECK(lmc_reader_read_file(reader, i, file->size, all, 1) == LMC_ERR_ARGUMENT);
        if (file->n_tensors == 0) io_check_hash(reader, i, NULL, io);
        for (j = 0; j < file->n_tensors && j < 32; j++) {
            const lmc_tensor *const t = &file->tensors[j];
            part = fuzz_place(&io_part_guard, (size_t)t->size, io->at_start);
            if (lmc_reader_read_tensor(reader, i, t, 0, part, (size_t)t->size) == LMC_OK &&
                status == LMC_OK)
                FUZZ_CHECK(memcmp(part, all + t->offset, (size_t)t->size) == 0);
            if (j < 4) io_check_hash(reader, i, t, io);
            if (t->loss.generation) {
                lmc_quantizer *quantizer = NULL;
                lmc_quantizer_info info;
                lmc_twin twin;
                enum lmc_status got = lmc_quantizer_recover(&quantizer, reader, i, t,
                                                            io->seed & 1 ? &twin : NULL, NULL);
                FUZZ_CHECK((got == LMC_OK) == (quantizer != NULL));
                if (got == LMC_OK) {
                    FUZZ_CHECK(lmc_quantizer_get_info(quantizer, &info) == LMC_OK && info.reason &&
                               info.loss.generation == t->loss.generation);
                    if (!info.is_lossless && t->size <= IO_USUAL_SIZE)
                        if (lmc_quantizer_apply(quantizer, 0, part, (size_t)t->size,
                                                io->seed & 2 ? all : NULL) == LMC_ERR_CORRUPT)
                            abort(); /* any other */
                    lmc_quantizer_free(quantizer);
                }
            }
        }
    }
    return first;
}

/* Whether all bytes of a base can be read. */
static inline int io_is_sound(const lmc_base *base)
{
    size_t i;
    for (i = 0; i < base->n_files; i++) {
        const size_t size = (size_t)base->get_file(base->user, i)->size;
        if (size > io_part_guard.cap ||
            base->read(base->user, i, 0, fuzz_place(&io_part_guard, size, 0), size) != LMC_OK)
            return 0;
    }
    return 1;
}

/* Checks a file alone: without its base, without output, without reading back. Every file that can
 * be restored passes. */
static inline void io_check_alone(const uint8_t *data, size_t size, const lmc_parallel *parallel,
                                  enum lmc_status restored_as)
{
    io_file file = io_open(data, size, 0, 0);
    lmc_restore_options options;
    lmc_stream stream = LMC_DEFAULTS;
    enum lmc_status status;
    options = LMC_RESTORE_OPTIONS();
    options.parallel = parallel;
    options.max_total_size = IO_MOST_SIZE;
    stream.read = io_read;
    stream.user = &file;
    status = lmc_snapshot_restore(&stream, NULL, &options);
    if (restored_as == LMC_OK)
        FUZZ_CHECK(status == LMC_OK || status == LMC_ERR_BASE_MISSING ||
                   status == LMC_ERR_READ_BACK);
}

/* Restores and reads a file, and compares. Returns the status of restoring; *restored is what was
 * restored. */
static inline enum lmc_status io_check_file(const uint8_t *data, size_t size, const lmc_base *base,
                                            const io_parameters *io, io_target *restored,
                                            lmc_reader *lender)
{
    unsigned n_workers = io->workers;
    lmc_parallel parallel = LMC_DEFAULTS;
    lmc_restore_options restore;
    lmc_reader_options options;
    lmc_reader *reader = NULL;
    lmc_source source;
    lmc_stream stream = LMC_DEFAULTS;
    io_file file = io_open(data, size, io->piece, io->fail_read);
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], other[LMC_FINGERPRINT_SIZE];
    lmc_snapshot_info found;
    enum lmc_status restored_as, opened_as, read_as = LMC_OK;
    const long fail_at = io->fail_alloc ? (long)io->fail_alloc - 1 : -1;
    const int fails = io->fail_alloc || io->fail_read || io->fail_write;

    parallel.run = io_run;
    parallel.user = &n_workers;
    parallel.n_workers = n_workers;
    io_reserve();
    memset(restored, 0, sizeof *restored);
    restore = LMC_RESTORE_OPTIONS();
    options = LMC_READER_OPTIONS();
    restored->data = io_target_guard.data;
    restored->cap = io->any_size ? IO_MOST_SIZE : IO_USUAL_SIZE;
    restored->fail_at = io->fail_write;
    restore.parallel = options.parallel = n_workers ? &parallel : NULL;
    restore.max_total_size = options.max_total_size = restored->cap;
    restore.base = options.base = base;
    restore.user = restored;
    restore.begin_file = io_begin_file;
    restore.write = io_write;
    restore.end_file = io_end_file;
    restore.read_back = io_read_back;
    restore.check_hashes = (int)(io->seed >> 2 & 1);
    stream.read = io_read;
    stream.user = &file;
    fuzz_memory.calls = 0;
    fuzz_memory.fail_at = fail_at;
    restored_as = lmc_snapshot_restore(&stream, &found, &restore);
    if (restored_as == LMC_OK) memcpy(fingerprint, found.fingerprint, LMC_FINGERPRINT_SIZE);
    if (fail_at >= 0 && fuzz_memory.calls > fail_at) FUZZ_CHECK(restored_as == LMC_ERR_MEMORY);
    else FUZZ_CHECK(restored_as != LMC_ERR_MEMORY);
    if (file.failed) FUZZ_CHECK(restored_as != LMC_OK);
    if (restored->failed) FUZZ_CHECK(restored_as == LMC_ERR_WRITE);
    if (restored_as == LMC_OK) FUZZ_CHECK(!restored->in_file && file.at == file.size);
    if (!fails) io_check_alone(data, size, restore.parallel, restored_as);

    file = io_open(data, size, 0, io->fail_read);
    source = io_source(&file);
    options.lender = lender;
    options.skip_fingerprints = (int)(io->seed >> 3 & 1);
    fuzz_memory.calls = 0;
    fuzz_memory.fail_at = fail_at;
    opened_as = lmc_reader_open(&reader, &source, &options);
    if (opened_as == LMC_OK) {
        read_as = io_check_reader(reader, restored_as == LMC_OK ? restored : NULL, io);
        fuzz_fingerprint(reader, other);
        if (restored_as == LMC_OK)
            FUZZ_CHECK(memcmp(fingerprint, other, LMC_FINGERPRINT_SIZE) == 0);
        (void)fuzz_can_restore_in_place(reader);
    }
    /* a reader also reads parts of a damaged base that no block uses */
    if (!fails && restored_as == LMC_OK) {
        FUZZ_CHECK(opened_as == LMC_OK);
        if (read_as != LMC_OK) FUZZ_CHECK(base && !io_is_sound(base));
    }
    if (!fails) FUZZ_CHECK(opened_as != LMC_ERR_MEMORY && read_as != LMC_ERR_MEMORY);
    lmc_reader_free(reader);
    fuzz_memory.fail_at = -1;
    return restored_as;
}

/* Wrong calls are refused: null pointers, invalid numbers, contradictory options. */
static inline void io_check_arguments(const uint8_t *data, size_t size)
{
    io_file file = io_open(data, size, 0, 0);
    lmc_source source = io_source(&file), no_source = source;
    lmc_stream stream = LMC_DEFAULTS, no_stream;
    lmc_restore_options restore;
    lmc_reader_options options;
    lmc_parallel parallel = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_quantizer *quantizer;
    lmc_base base = LMC_DEFAULTS;
    lmc_tensor tensor;
    const lmc_tensor *found;
    const char *key;
    const void *value;
    uint8_t byte;
    lmc_snapshot_info info;
    uint64_t encoded;
    int can;
    size_t n;
    unsigned i;
    restore = LMC_RESTORE_OPTIONS();
    options = LMC_READER_OPTIONS();
    memset(&base, 0, sizeof base);
    memset(&tensor, 0, sizeof tensor);
    memset(&no_stream, 0, sizeof no_stream);
    no_source.read_at = NULL;
    stream.read = io_read;
    stream.user = &file;
    FUZZ_CHECK(lmc_snapshot_restore(NULL, NULL, NULL) == LMC_ERR_ARGUMENT &&
               lmc_snapshot_restore(&no_stream, NULL, NULL) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_reader_open(NULL, &source, NULL) == LMC_ERR_ARGUMENT &&
               lmc_reader_open(&reader, NULL, NULL) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_reader_open(&reader, &no_source, NULL) == LMC_ERR_ARGUMENT);
    for (i = 0; i < 3; i++) {
        parallel.run = i == 0 ? NULL : io_run;
        parallel.user = NULL;
        parallel.n_workers = i == 0 ? 1 : i == 1 ? 0 : 1025;
        restore.parallel = options.parallel = &parallel;
        FUZZ_CHECK(lmc_snapshot_restore(&stream, NULL, &restore) == LMC_ERR_ARGUMENT &&
                   lmc_reader_open(&reader, &source, &options) == LMC_ERR_ARGUMENT);
    }
    restore.parallel = options.parallel = NULL;
    restore.done_size = 1;
    FUZZ_CHECK(lmc_snapshot_restore(&stream, NULL, &restore) == LMC_ERR_ARGUMENT);
    restore.in_place = 1;
    FUZZ_CHECK(lmc_snapshot_restore(&stream, NULL, &restore) == LMC_ERR_ARGUMENT);
    options.base = &base;
    FUZZ_CHECK(lmc_reader_open(&reader, &source, &options) == LMC_ERR_ARGUMENT);
    base.get_file = lmc_reader_base(NULL).get_file;
    FUZZ_CHECK(lmc_reader_open(&reader, &source, &options) == LMC_ERR_ARGUMENT);
    base = lmc_reader_base(NULL);
    base.n_files = 1; /* which does not exist */
    FUZZ_CHECK(lmc_reader_open(&reader, &source, &options) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_header_parse(NULL, 1, &info) == LMC_ERR_ARGUMENT &&
               lmc_header_parse(NULL, 0, &info) == LMC_ERR_NOT_LMC &&
               lmc_header_parse(data, size, NULL) == LMC_ERR_ARGUMENT &&
               lmc_reader_get_info(NULL, &info) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_reader_get_file(NULL, 0) == NULL &&
               lmc_reader_encoded_size(NULL, 0, 0, 1, &encoded) == LMC_ERR_ARGUMENT &&
               lmc_reader_can_restore_in_place(NULL, &can) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_dtype_name((enum lmc_dtype)LMC__DTYPE_COUNT) == NULL &&
               lmc_dtype_find(NULL) == LMC_AUTO && lmc_dtype_bits((enum lmc_dtype)99) == 8 &&
               lmc_dtype_width((enum lmc_dtype)99) == 1 && lmc_block_workspace_size(0, 1) == 0 &&
               lmc_block_workspace_size(LMC_MAX_BLOCK_SIZE + 1, 1) == 0);
    file = io_open(data, size, 0, 0);
    if (lmc_reader_open(&reader, &source, NULL) == LMC_OK) {
        const size_t n_files = fuzz_info(reader).n_files;
        FUZZ_CHECK(lmc_reader_find_tensor(NULL, NULL, "", &n, &found) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_tensor(reader, NULL, NULL, &n, &found) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_tensor(reader, NULL, "", NULL, &found) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_tensor(reader, NULL, "", &n, NULL) == LMC_ERR_ARGUMENT);
        FUZZ_CHECK(lmc_reader_read_file(NULL, 0, 0, &byte, 1) == LMC_ERR_ARGUMENT &&
                   lmc_reader_read_file(reader, n_files, 0, &byte, 1) == LMC_ERR_ARGUMENT &&
                   lmc_reader_read_file(reader, 0, 0, NULL, 1) == LMC_ERR_ARGUMENT &&
                   lmc_reader_read_file(reader, 0, UINT64_MAX, &byte, 1) == LMC_ERR_ARGUMENT);
        FUZZ_CHECK(lmc_reader_read_tensor(reader, 0, NULL, 0, &byte, 1) == LMC_ERR_ARGUMENT &&
                   lmc_reader_read_tensor(reader, 0, &tensor, 1, &byte, 1) == LMC_ERR_ARGUMENT &&
                   lmc_reader_read_tensor(reader, 0, &tensor, 0, &byte, 1) == LMC_ERR_ARGUMENT);
        FUZZ_CHECK(
            lmc_quantizer_recover(NULL, reader, 0, &tensor, NULL, NULL) == LMC_ERR_ARGUMENT &&
            lmc_quantizer_recover(&quantizer, NULL, 0, &tensor, NULL, NULL) == LMC_ERR_ARGUMENT);
        FUZZ_CHECK(lmc_quantizer_recover(&quantizer, reader, n_files, &tensor, NULL, NULL) ==
                       LMC_ERR_ARGUMENT &&
                   lmc_quantizer_recover(&quantizer, reader, 0, NULL, NULL, NULL) ==
                       LMC_ERR_ARGUMENT);
        tensor.offset = UINT64_MAX;
        FUZZ_CHECK(lmc_quantizer_recover(&quantizer, reader, 0, &tensor, NULL, NULL) ==
                   LMC_ERR_ARGUMENT);
        tensor.offset = 0;
        tensor.size = UINT64_MAX;
        FUZZ_CHECK(lmc_quantizer_recover(&quantizer, reader, 0, &tensor, NULL, NULL) ==
                   LMC_ERR_ARGUMENT);
        FUZZ_CHECK(lmc_reader_get_metadata(NULL, 0, &key, &value, &n) == LMC_ERR_ARGUMENT &&
                   lmc_reader_get_metadata(reader, 0, NULL, &value, &n) == LMC_ERR_ARGUMENT &&
                   lmc_reader_get_metadata(reader, 0, &key, NULL, &n) == LMC_ERR_ARGUMENT &&
                   lmc_reader_get_metadata(reader, 0, &key, &value, NULL) == LMC_ERR_ARGUMENT);
        base = lmc_reader_base(reader);
        FUZZ_CHECK(base.read(base.user, n_files, 0, &byte, 1) == LMC_ERR_ARGUMENT &&
                   base.read(base.user, 0, UINT64_MAX, &byte, 1) == LMC_ERR_ARGUMENT &&
                   base.read(base.user, 0, lmc_reader_get_file(reader, 0)->size, &byte, 1) ==
                       LMC_ERR_ARGUMENT);
        FUZZ_CHECK(lmc_reader_encoded_size(reader, n_files, 0, 1, &encoded) == LMC_ERR_ARGUMENT &&
                   lmc_reader_get_info(reader, NULL) == LMC_ERR_ARGUMENT &&
                   lmc_reader_can_restore_in_place(reader, NULL) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_file(reader, NULL, &n) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_file(reader, "", NULL) == LMC_ERR_ARGUMENT &&
                   lmc_reader_find_metadata(reader, NULL, &value, &n) == LMC_ERR_ARGUMENT);
        lmc_reader_free(reader);
    }
}

#endif
