/* Snapshots of all kinds, written and read again: files, directories, tensors of every dtype,
 * twins, quantisers, metadata, a base; in pieces and by streams, by several workers, with calls
 * that fail. Input: bytes from which data is made; then, drawn from the end, 16 bytes of
 * parameters, 8 for each file and for each tensor. */
#include "io.h"

#define MOST_FILES 4
#define MOST_TENSORS 6
#define MOST_BYTES ((size_t)1 << 18)

typedef struct made_tensor {
    uint64_t shape[3];
    char name[8];
    lmc_twin twin;
    lmc_quantizer *quantizer;
    const uint8_t *second; /* the quantiser was fitted with it */
} made_tensor;

typedef struct made_file {
    lmc_file file; /* of unknown size, perhaps */
    size_t size;
    uint8_t *data, *expected;
    enum lmc_dtype default_dtype;
    char path[16];
    lmc_tensor tensors[MOST_TENSORS];
    lmc_tensor_hints hints[MOST_TENSORS];
    made_tensor made[MOST_TENSORS];
} made_file;

typedef struct made_snapshot {
    made_file files[MOST_FILES];
    size_t n_files, n_bytes;
} made_snapshot;

static made_snapshot now, before;
static uint8_t now_bytes[MOST_BYTES], before_bytes[MOST_BYTES], expected_bytes[MOST_BYTES];

static const uint16_t widths[] = {1, 1, 2, 3, 4, 7, 8, 16, 33, 64, 100, 257, 300, 512, 1000, 1030};

/* Reads elements of a tensor, or of its second moment. */
static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    memcpy(dst, (const uint8_t *)user + offset, size);
    return LMC_OK;
}

static enum lmc_status read_written(void *user, size_t number, uint64_t offset, void *dst,
                                    size_t size)
{
    const made_snapshot *const s = (const made_snapshot *)user;
    FUZZ_CHECK(number < s->n_files && offset <= s->files[number].size &&
               size <= s->files[number].size - offset);
    memcpy(dst, s->files[number].data + offset, size);
    return LMC_OK;
}

static const lmc_file *get_made_file(void *user, size_t number)
{
    return &((made_snapshot *)user)->files[number].file;
}

static void make_bytes(uint8_t *dst, size_t size, const fuzz_input *in, unsigned how, unsigned seed)
{
    size_t i;
    if (how & 1 && in->size) {
        for (i = 0; i < size; i++) dst[i] = in->data[(i + seed) % in->size];
        if (how & 2)
            for (i = seed % 61; i < size; i += 61) dst[i] = (uint8_t)(dst[i] + (i >> 6));
    } else fuzz_fill(dst, size, seed);
}

/* The second of two tensors may be a rounding of the first, or falsely claim to be one. */
static void make_twin(made_snapshot *s, made_file *f, size_t number, uint64_t p,
                      const lmc_tensor *of)
{
    const lmc_tensor *const t = &f->tensors[number];
    lmc_twin *const twin = &f->made[number].twin;
    const unsigned how = fuzz_bits(&p, 2);
    if (!of || f->hints[number - 1].twin || how == 0) return;
    twin->file_number = s->n_files;
    twin->offset = of->offset;
    twin->conversion = LMC_CONVERT_NONE;
    if (t->size == 0) return;
    if (of->size == 2 * t->size && t->size % 2 == 0 && how != 3) {
        twin->conversion = how == 1 ? LMC_CONVERT_F32_TO_BF16 : LMC_CONVERT_F32_TO_F16;
        if (fuzz_bits(&p, 1))
            if (lmc_conversion_apply(f->data + t->offset, f->data + of->offset, (size_t)t->size / 2,
                                     twin->conversion) != LMC_OK)
                abort();
    } else if (of->size == t->size) {
        if (fuzz_bits(&p, 1)) memcpy(f->data + t->offset, f->data + of->offset, (size_t)t->size);
    } else return;
    f->hints[number].twin = twin;
}

static void make_quantizer(made_file *f, size_t number, uint64_t p, const lmc_tensor *of)
{
    const lmc_tensor *const t = &f->tensors[number];
    lmc_tensor_hints *const hints = &f->hints[number];
    made_tensor *const made = &f->made[number];
    lmc_quantizer_options options;
    lmc_source elements = LMC_DEFAULTS, seconds;
    options = LMC_QUANTIZER_OPTIONS();
    elements.read_at = read_elements;
    elements.user = f->data + t->offset;
    elements.size = t->size;
    options.dtype = lmc_dtype_find(t->dtype);
    options.role = (enum lmc_role)(fuzz_bits(&p, 2) % 3);
    options.bits = fuzz_bits(&p, 3);
    if (options.bits < 4) { /* 0: a bound */
        options.n_codes = options.bits ? 1u << (3 * options.bits - 1) : 0;
        options.bits = 0;
    }
    options.measure = (enum lmc_measure)(1 + fuzz_bits(&p, 2) % 3);
    options.bound = 0.75 / (1 << fuzz_bits(&p, 4));
    options.group = widths[fuzz_bits(&p, 4)] - 1u;
    if (of && of->size == t->size && !hints[-1].quantizer && !hints[-1].twin && fuzz_bits(&p, 1) &&
        options.role == LMC_ROLE_FIRST_MOMENT) {
        seconds = elements;
        seconds.user = f->data + of->offset;
        options.second_elements = &seconds;
    }
    if (lmc_quantizer_fit(&made->quantizer, &elements, &options) != LMC_OK) return;
    hints->quantizer = made->quantizer;
    if (options.second_elements) {
        made->second = f->data + of->offset;
        made->twin.file_number = 0; /* set by the caller */
        made->twin.offset = of->offset;
        made->twin.conversion = LMC_CONVERT_NONE;
        hints->twin = &made->twin;
    }
}

static void make_file(made_snapshot *s, fuzz_input *in, int alone)
{
    made_file *const f = &s->files[s->n_files];
    uint64_t p = fuzz_draw(in, 8);
    const unsigned n_tensors = fuzz_bits(&p, 3), seed = fuzz_bits(&p, 16), how = fuzz_bits(&p, 2),
                   unknown = fuzz_bits(&p, 3), directory = fuzz_bits(&p, 4);
    const size_t size = fuzz_bits(&p, 14) >> fuzz_bits(&p, 3);
    size_t i, at = 0;
    memset(f, 0, sizeof *f);
    f->default_dtype = (enum lmc_dtype)(fuzz_bits(&p, 5) % LMC__DTYPE_COUNT);
    f->file.has_mode = (int)fuzz_bits(&p, 1);
    f->file.mode = f->file.has_mode ? 0644 : 0;
    f->file.has_mtime = f->file.has_mode;
    f->file.mtime_s = f->file.has_mtime ? -(int64_t)seed : 0;
    if (!alone || seed & 1)
        snprintf(f->path, sizeof f->path, "d%u/f%u", seed & 1, (unsigned)s->n_files);
    f->file.path = f->path;
    f->data = now_bytes + s->n_bytes;
    f->expected = expected_bytes + s->n_bytes;
    if (directory == 15) f->file.kind = LMC_FILE_DIRECTORY;
    else if (unknown == 7) {
        f->size = size;
        f->file.size = LMC_UNKNOWN_SIZE;
    } else {
        size_t last = 0;
        for (i = 0; i < n_tensors && i < MOST_TENSORS; i++) {
            lmc_tensor *const t = &f->tensors[i];
            uint64_t q = fuzz_draw(in, 8);
            const enum lmc_dtype dtype = (enum lmc_dtype)(fuzz_bits(&q, 5) % LMC__DTYPE_COUNT);
            unsigned long long bits;
            at += (size_t)fuzz_bits(&q, 3) * fuzz_bits(&q, 3);
            snprintf(f->made[i].name, sizeof f->made[i].name, "t%u",
                     (unsigned)i + (unsigned)(s->n_files * 8 * (seed >> 1 & 1)));
            t->name = f->made[i].name;
            t->dtype = dtype == LMC_AUTO ? "X7" : lmc_dtype_name(dtype);
            t->rank = 1 + fuzz_bits(&q, 1);
            t->shape = f->made[i].shape;
            f->made[i].shape[0] = widths[fuzz_bits(&q, 4)] - (fuzz_bits(&q, 4) == 15);
            f->made[i].shape[t->rank - 1] *= 8;
            if (t->rank == 2)
                f->made[i].shape[0] = fuzz_bits(&q, 3),
                f->made[i].shape[1] = 8 * widths[fuzz_bits(&q, 3)];
            bits = f->made[i].shape[0] * (t->rank == 2 ? f->made[i].shape[1] : 1) *
                   (dtype == LMC_AUTO ? 8 : lmc_dtype_bits(dtype));
            t->offset = at;
            t->size = bits / 8;
            if (t->size > ((size_t)16 << 10)) {
                t->size = 0;
                f->made[i].shape[0] = 0;
            }
            at += (size_t)t->size;
            f->file.n_tensors++;
            make_bytes(f->data + last, at - last, in, how, seed + (unsigned)i * 8);
            last = at;
            make_twin(s, f, i, q, i ? &f->tensors[i - 1] : NULL);
            if ((q >> 12 & 7) == 7 && !f->hints[i].twin && t->size) {
                make_quantizer(f, i, q >> 15, i ? &f->tensors[i - 1] : NULL);
                f->made[i].twin.file_number = s->n_files;
            }
        }
        f->size = at + size / 16;
        make_bytes(f->data + at, f->size - at, in, how, seed);
        f->file.size = f->size;
        f->file.tensors = f->file.n_tensors ? f->tensors : NULL;
    }
    if (unknown == 7) make_bytes(f->data, f->size, in, how, seed);
    memcpy(f->expected, f->data, f->size);
    /* in this order, because a second moment is before the first one that needs it */
    for (i = 0; i < f->file.n_tensors; i++)
        if (f->made[i].quantizer)
            FUZZ_CHECK(
                lmc_quantizer_apply(f->made[i].quantizer, 0, f->expected + f->tensors[i].offset,
                                    (size_t)f->tensors[i].size, f->made[i].second) == LMC_OK);
    s->n_bytes += f->size;
    s->n_files++;
}

/* The same files a step earlier, exact. */
static void make_before(unsigned seed, unsigned how)
{
    size_t i, j;
    uint32_t x = seed | 1;
    before = now;
    for (i = 0; i < now.n_bytes; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        before_bytes[i] = (uint8_t)(now_bytes[i] ^ ((x & 31) < how ? x >> 8 & x >> 16 & 3 : 0));
    }
    for (i = 0; i < before.n_files; i++) {
        made_file *const f = &before.files[i];
        f->data = before_bytes + (now.files[i].data - now_bytes);
        f->file.path = f->path;
        f->file.size = f->size;
        f->file.tensors = f->file.n_tensors ? f->tensors : NULL;
        for (j = 0; j < f->file.n_tensors; j++) {
            memset(&f->hints[j], 0, sizeof f->hints[j]);
            f->tensors[j].shape = f->made[j].shape;
            f->tensors[j].name = f->made[j].name;
        }
    }
    if (how == 3 && before.n_files > 1) before.n_files--; /* fewer than in the later one */
}

typedef struct failing_sink {
    lmc_sink sink;
    unsigned calls, fail_at;
    int failed;
} failing_sink;

static enum lmc_status write_sink(void *user, const void *data, size_t size)
{
    failing_sink *const s = (failing_sink *)user;
    if (++s->calls == s->fail_at) {
        s->failed = 1;
        return LMC_ERR_WRITE;
    }
    return s->sink.write(s->sink.user, data, size);
}

static enum lmc_status write_snapshot(const made_snapshot *s, failing_sink *to,
                                      const lmc_writer_options *options, unsigned piece,
                                      unsigned n_metadata, uint8_t *fingerprint)
{
    static const char *const keys[] = {"a", "aa", "b"};
    lmc_writer *writer = NULL;
    lmc_writer_info info;
    lmc_sink sink = LMC_DEFAULTS;
    enum lmc_status status;
    size_t i, j, at, n;
    sink.write = write_sink;
    sink.user = to;
    status = lmc_writer_open(&writer, &sink, options);
    for (i = 0; i < s->n_files && status == LMC_OK; i++) {
        const made_file *const f = &s->files[i];
        for (j = 0; j < f->file.n_tensors && status == LMC_OK; j++)
            status = lmc_writer_add_hints(writer, j, &f->hints[j]);
        if (status == LMC_OK) status = lmc_writer_begin_file(writer, &f->file, f->default_dtype);
        for (at = 0; at < f->size && status == LMC_OK; at += n) {
            n = piece && f->size - at > piece * 16 ? piece * 16 : f->size - at;
            if (piece & 1) {
                io_file from = io_open(f->data + at, f->size - at, piece * 13, 0);
                lmc_stream stream = LMC_DEFAULTS;
                stream.read = io_read;
                stream.user = &from;
                n = f->size - at;
                status = lmc_writer_write_stream(writer, &stream);
            } else status = lmc_writer_write(writer, f->data + at, n);
        }
        if (status == LMC_OK) status = lmc_writer_end_file(writer);
    }
    for (i = 0; i < n_metadata && status == LMC_OK; i++)
        status =
            lmc_writer_add_metadata(writer, keys[2 - i], s->files[0].data, s->files[0].size / 2);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    if (status == LMC_OK) status = lmc_writer_get_info(writer, &info);
    if (status == LMC_OK) memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    if (status != LMC_OK && writer)
        FUZZ_CHECK(lmc_writer_finish(writer) == status || status == LMC_ERR_ARGUMENT);
    lmc_writer_free(writer);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    io_parameters io;
    unsigned tier, n_workers = fuzz_bits(&p, 2);
    const unsigned n_files = 1 + fuzz_bits(&p, 2), piece = fuzz_bits(&p, 8),
                   log2_block = fuzz_bits(&p, 3), how_base = fuzz_bits(&p, 3),
                   n_metadata = fuzz_bits(&p, 2);
    const unsigned fail_alloc = fuzz_bits(&p, 8), fail_write = fuzz_bits(&p, 6),
                   seed = fuzz_bits(&p, 16), own = fuzz_bits(&p, 1), level = fuzz_bits(&p, 1),
                   hashes = fuzz_bits(&p, 1);
    lmc_memory base_memory, memory;
    failing_sink to;
    lmc_parallel parallel = LMC_DEFAULTS;
    lmc_writer_options options;
    lmc_reader *base_reader = NULL;
    lmc_source source;
    lmc_base base;
    io_target restored;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], base_fingerprint[LMC_FINGERPRINT_SIZE];
    enum lmc_status status;
    size_t i, j;

    io = io_draw(&in, &tier);
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    memset(&base_memory, 0, sizeof base_memory);
    memset(&memory, 0, sizeof memory);
    options = LMC_WRITER_OPTIONS();
    memset(&to, 0, sizeof to);
    parallel.run = io_run;
    parallel.user = &n_workers;
    parallel.n_workers = n_workers;
    now.n_files = now.n_bytes = 0;
    for (i = 0; i < n_files; i++) make_file(&now, &in, n_files == 1);

    options.parallel = n_workers ? &parallel : NULL;
    options.log2_block = log2_block ? 13 + log2_block : 0;
    options.level = level ? LMC_LEVEL_ARCHIVE : LMC_LEVEL_DEFAULT;
    options.may_quantize = 1;
    options.content_hashes = (int)hashes;
    options.group_files = seed >> 3 & 1 ? LMC_GROUP_NEW : LMC_GROUP_NONE;
    if (how_base) {
        lmc_reader_options reader_options;
        reader_options = LMC_READER_OPTIONS();
        make_before(seed, how_base);
        to.sink = lmc_memory_sink(&base_memory);
        FUZZ_CHECK(write_snapshot(&before, &to, &options, piece, 0, base_fingerprint) == LMC_OK);
        source = lmc_memory_source(&base_memory);
        FUZZ_CHECK(lmc_reader_open(&base_reader, &source, &reader_options) == LMC_OK);
        base = lmc_reader_base(base_reader);
        options.base = &base;
    }
    if (own) {
        options.read_back = read_written;
        options.user = &now;
    }
    to.sink = lmc_memory_sink(&memory);
    to.calls = 0;
    to.fail_at = fail_write;
    fuzz_memory.calls = 0;
    fuzz_memory.fail_at = fail_alloc ? (long)fail_alloc - 1 : -1;
    status =
        write_snapshot(&now, &to, &options, piece, n_metadata < 3 ? n_metadata : 3, fingerprint);
    /* the sink allocates, too */
    if (fail_alloc && fuzz_memory.calls > (long)fail_alloc - 1)
        FUZZ_CHECK(status == LMC_ERR_MEMORY || status == LMC_ERR_WRITE);
    else if (to.failed) FUZZ_CHECK(status == LMC_ERR_WRITE);
    else if (status == LMC_ERR_ARGUMENT) { /* a quantiser needs its second moment read back */
        int wants = 0;
        for (i = 0; i < now.n_files; i++)
            for (j = 0; j < now.files[i].file.n_tensors; j++)
                wants |= now.files[i].made[j].second != NULL;
        FUZZ_CHECK(wants && !own);
    } else FUZZ_CHECK(status == LMC_OK);
    fuzz_memory.fail_at = -1;

    if (status == LMC_OK) {
        const int fails = io.fail_alloc || io.fail_read || io.fail_write;
        const enum lmc_status got = io_check_file(memory.data, memory.size, how_base ? &base : NULL,
                                                  &io, &restored, base_reader);
        if (!fails && (now.n_bytes <= IO_USUAL_SIZE || io.any_size)) {
            FUZZ_CHECK(got == LMC_OK && restored.n_files == now.n_files &&
                       restored.size == now.n_bytes);
            FUZZ_CHECK(memcmp(restored.data, expected_bytes, now.n_bytes) == 0);
        }
        /* compares lmc_file_identify of the restored files */
        for (i = 0; i < now.n_files && got == LMC_OK; i++) {
            made_file *const f = &now.files[i];
            io_file from = io_open(f->expected, f->size, io.piece, 0);
            lmc_stream stream = LMC_DEFAULTS;
            stream.read = io_read;
            stream.user = &from;
            f->file.size = f->size;
            FUZZ_CHECK(lmc_file_identify(&f->file, f->file.n_tensors ? f->tensors : NULL, &stream,
                                         options.parallel, NULL) == LMC_OK);
            FUZZ_CHECK(f->file.crc == lmc_crc32c(0, f->expected, f->size));
        }
        if (got == LMC_OK) {
            lmc_base all = LMC_DEFAULTS;
            uint8_t other[LMC_FINGERPRINT_SIZE];
            memset(&all, 0, sizeof all);
            all.n_files = now.n_files;
            all.get_file = get_made_file;
            all.read = read_written;
            all.user = &now;
            FUZZ_CHECK(lmc_base_identify(&all, other, NULL) == LMC_OK &&
                       memcmp(other, fingerprint, LMC_FINGERPRINT_SIZE) == 0);
        }
    }
    lmc_reader_free(base_reader);
    lmc_memory_free(&base_memory);
    lmc_memory_free(&memory);
    for (i = 0; i < now.n_files; i++)
        for (j = 0; j < now.files[i].file.n_tensors; j++)
            lmc_quantizer_free(now.files[i].made[j].quantizer);
    FUZZ_END();
    return 0;
}
