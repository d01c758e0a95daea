/* Data that changes while it is encoded, like that of a training loop: the result must decode, to a
 * mixture of old and new bytes. The data changes between any two steps of the encoder, in the same
 * way in each run (private_changing.h); and all the time, by a thread. A base must not change: if
 * it does, decoding may refuse the result, but never gives other bytes. */
#include "t_io.h"

enum change {
    CHANGE_ONE,    /* an element */
    CHANGE_RANGE,  /* a range becomes something else */
    CHANGE_TOGGLE, /* all, to another tensor and back */
    CHANGE_SIGNS,  /* of all */
    CHANGE_STEP,   /* all change by a step, as in a training loop */
    CHANGES
};
static const char *const change_names[CHANGES] = {"one", "range", "toggle", "signs", "step"};

/* What changes, between two sets of bytes. */
typedef struct changing {
    uint8_t *data;
    const uint8_t *two[2];
    size_t size;
    unsigned width;
    enum change how;
    uint64_t state;
    unsigned one_in; /* steps */
    unsigned turn;
} changing;

static void change_now(changing *c)
{
    size_t i, n = c->size / c->width;
    if (n == 0) return;
    switch (c->how) {
    case CHANGE_ONE: {
        const size_t at = t_below(&c->state, n) * c->width;
        memcpy(c->data + at, c->two[t_random(&c->state) & 1] + at, c->width);
        break;
    }
    case CHANGE_RANGE: {
        const size_t at = t_below(&c->state, n), end = at + 1 + t_below(&c->state, n - at);
        memcpy(c->data + at * c->width, c->two[t_random(&c->state) & 1] + at * c->width,
               (end - at) * c->width);
        break;
    }
    case CHANGE_TOGGLE: memcpy(c->data, c->two[++c->turn & 1], c->size); break;
    case CHANGE_SIGNS:
        for (i = c->width - 1; i < c->size; i += c->width) c->data[i] ^= 0x80;
        break;
    default:
        for (i = 0; i < c->size; i += c->width) c->data[i]++;
    }
}

static void on_kernel(void *user)
{
    changing *const c = (changing *)user;
    if (t_below(&c->state, c->one_in) == 0) change_now(c);
}

/* -- one case -- */

enum form { FORM_BLOCK, FORM_TENSOR, FORM_FILE, FORM_ARRAYS, FORMS };
static const char *const form_names[FORMS] = {"block", "tensor", "file", "arrays"};
enum { MAX_SIZE = 1 << 20 };

static uint8_t *g_src, *g_base, *g_two[2], *g_dst, *g_enc, *g_ws;
static long g_cases, g_changed, g_base_wrong,
    g_wrong[FORMS][4]; /* by form, and whether base, quantiser */

/* The base of files: a tensor "w". */
typedef struct base_file {
    lmc_file file;
    lmc_tensor tensor;
    uint64_t shape;
} base_file;
static base_file g_base_file;

static const lmc_file *get_base_file(void *user, size_t number)
{
    (void)user;
    return number == 0 ? &g_base_file.file : NULL;
}

static enum lmc_status read_base(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    (void)user, (void)number;
    memcpy(dst, g_base + offset, size);
    return LMC_OK;
}

static lmc_base make_base(enum lmc_dtype dtype, size_t size)
{
    lmc_base base = LMC_DEFAULTS;
    memset(&base, 0, sizeof base);
    memset(&g_base_file, 0, sizeof g_base_file);
    g_base_file.shape = size / (lmc_dtype_bits(dtype) / 8);
    g_base_file.tensor = t_tensor("w", lmc_dtype_name(dtype), 1, &g_base_file.shape, 0, size);
    g_base_file.file.path = "";
    g_base_file.file.size = size;
    g_base_file.file.n_tensors = 1;
    g_base_file.file.tensors = &g_base_file.tensor;
    base.n_files = 1;
    base.get_file = get_base_file;
    base.read = read_base;
    return base;
}

static enum lmc_status read_src(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    (void)number;
    memcpy(dst, (const uint8_t *)user + offset, size);
    return LMC_OK;
}

typedef struct one_case {
    enum form form;
    enum lmc_dtype dtype;
    enum lmc_level level;
    size_t size;
    int has_base, is_base; /* there is one; it changes */
    const lmc_quantizer *quantizer;
    unsigned options;
} one_case;

/* A snapshot of several tensors, and of copies of them, which are read once more. */
static enum lmc_status write_arrays(const one_case *t, t_memory *out)
{
    const unsigned bytes = lmc_dtype_bits(t->dtype) / 8;
    const int has_twins = (t->options & 1) != 0;
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_tensor tensors[9];
    lmc_twin twins[4];
    uint64_t shapes[9];
    lmc_writer *writer;
    lmc_file file;
    lmc_base base;
    lmc_sink sink = LMC_DEFAULTS;
    enum lmc_status status;
    char names[9][2];
    size_t at = 0, i, n = 0;
    const size_t whole = t->size / bytes;
    memset(&file, 0, sizeof file);
    memset(tensors, 0, sizeof tensors);
    for (i = 0; i < 4; i++) { /* small ones, then all that is left */
        const size_t size = (i < 3 ? whole / 9 : whole - 3 * (whole / 9)) * bytes;
        names[i][0] = (char)(i < 3 ? 'a' + (char)i : 'w');
        names[i][1] = 0;
        shapes[i] = size / bytes;
        tensors[i] = t_tensor(names[i], lmc_dtype_name(t->dtype), 1, &shapes[i], at, size);
        at += size;
    }
    file.n_tensors = 4;
    file.path = "";
    file.size = at;
    file.tensors = tensors;
    options.level = t->level;
    options.content_hashes = (t->options & 2) != 0;
    if (has_twins) { /* the file is its own twin */
        for (i = 0; i < 4; i++) {
            tensors[4 + i] = tensors[i];
            names[4 + i][0] = (char)('A' + (char)i);
            names[4 + i][1] = 0;
            tensors[4 + i].name = names[4 + i];
            tensors[4 + i].offset += at;
            memset(&twins[i], 0, sizeof twins[i]);
            twins[i].offset = tensors[i].offset;
        }
        file.n_tensors = 8;
        file.size = 2 * at;
        options.read_back = read_src;
        options.user = g_src;
    }
    if (t->has_base) {
        base = make_base(t->dtype, t->size / bytes * bytes);
        g_base_file.tensor.size = tensors[3].size;
        g_base_file.shape = tensors[3].shape[0];
        options.base = &base;
    }
    sink.write = t_append;
    sink.user = out;
    status = lmc_writer_open(&writer, &sink, &options);
    if (status != LMC_OK) return status;
    for (i = 0; has_twins && i < 4 && status == LMC_OK; i++) {
        lmc_tensor_hints hints = LMC_TENSOR_HINTS();
        hints.twin = &twins[i];
        status = lmc_writer_add_hints(writer, 4 + i, &hints);
    }
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    for (n = 0; n < (has_twins ? 2u : 1u) && status == LMC_OK; n++) {
        if (t->options & 4) { /* in pieces */
            const size_t cut = at / 3;
            status = lmc_writer_write(writer, g_src, cut);
            if (status == LMC_OK) status = lmc_writer_write(writer, g_src + cut, at - cut);
        } else status = lmc_writer_write(writer, g_src, at);
    }
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

static uint8_t *g_restored;
static size_t g_restored_size;

static enum lmc_status take_restored(void *user, const void *data, size_t size)
{
    (void)user;
    memcpy(g_restored + g_restored_size, data, size);
    g_restored_size += size;
    return LMC_OK;
}

/* Restores and reads with all checks, also of hashes. */
static enum lmc_status read_arrays(const one_case *t, t_memory *in)
{
    lmc_restore_options options = LMC_DEFAULTS;
    lmc_reader_options reader_options = LMC_DEFAULTS;
    const size_t bytes = lmc_dtype_bits(t->dtype) / 8, whole = t->size / bytes;
    lmc_reader *reader;
    lmc_stream stream = LMC_DEFAULTS;
    lmc_source source = LMC_DEFAULTS;
    lmc_base base;
    enum lmc_status status;
    if (t->has_base) {
        base = make_base(t->dtype, (whole - 3 * (whole / 9)) * bytes);
        options.base = &base;
        reader_options.base = &base;
    }
    in->at = 0;
    stream.read = t_read;
    stream.user = in;
    options.check_hashes = 1;
    options.write = take_restored;
    options.read_back = read_src;
    options.user = g_restored;
    g_restored_size = 0;
    status = lmc_snapshot_restore(&stream, NULL, &options);
    if (status != LMC_OK) return status;
    source.read_at = t_read_at;
    source.user = in;
    source.size = in->size;
    status = lmc_reader_open(&reader, &source, &reader_options);
    if (status != LMC_OK) return status;
    /* which compares the fingerprints */
    status = lmc_reader_read_file(reader, 0, 0, g_dst, g_restored_size);
    if (status == LMC_OK) CHECK(memcmp(g_dst, g_restored, g_restored_size) == 0);
    lmc_reader_free(reader);
    return status;
}

static enum lmc_status encode(const one_case *t, t_memory *out, size_t *size)
{
    const unsigned width = lmc_dtype_width(t->dtype);
    const void *const base = t->has_base ? g_base : NULL;
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(t->dtype);
    lmc_compress_options compress_options = LMC_DEFAULTS;
    switch (t->form) {
    case FORM_BLOCK:
        return t_block_encode(g_enc, lmc_block_bound(t->size), size, g_src, t->size, base, t->dtype,
                              t->level, 0, g_ws, lmc_block_workspace_size(t->size / width, width));
    case FORM_TENSOR:
        options.level = t->level;
        options.log2_block = t->options & 1 ? 14 : 0;
        options.quantizer = t->quantizer;
        options.prediction = base;
        options.prediction_size = base ? t->size : 0;
        return lmc_tensor_encode(g_enc, lmc_tensor_bound(t->size, &options), size, g_src, t->size,
                                 &options, NULL, 0);
    case FORM_FILE:
        compress_options.level = t->level;
        return lmc_compress(g_enc, lmc_compress_bound(t->size), size, g_src, t->size, t->dtype,
                            &compress_options);
    default: return write_arrays(t, out);
    }
}

static enum lmc_status decode(const one_case *t, t_memory *in, size_t size)
{
    const unsigned width = lmc_dtype_width(t->dtype);
    const void *const base = t->has_base ? g_base : NULL;
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(t->dtype);
    size_t got;
    switch (t->form) {
    case FORM_BLOCK:
        return t_block_decode(g_dst, t->size, &got, g_enc, size, base, base ? t->size : 0, 0, g_ws,
                              lmc_block_workspace_size(t->size / width, width));
    case FORM_TENSOR:
        options.log2_block = t->options & 1 ? 14 : 0;
        options.quantizer = t->quantizer; /* for the size of blocks */
        options.prediction = base;
        options.prediction_size = base ? t->size : 0;
        return lmc_tensor_decode(g_dst, t->size, g_enc, size, &options, NULL, 0);
    case FORM_FILE: return lmc_decompress(g_dst, t->size, &got, g_enc, size, NULL);
    default: return read_arrays(t, in);
    }
}

/* Whether each byte has the value that it had at some time. */
static int is_mixture(const changing *c, const uint8_t *data, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++)
        if (data[i] != c->two[0][i] && data[i] != c->two[1][i]) return 0;
    return 1;
}

static void check_case(const one_case *t, changing *c, enum lmc_status status, t_memory *out,
                       size_t size)
{
    g_cases++;
    t_note("%s of %s, %lu bytes, level %d%s%s%s, options %u, %s", form_names[t->form],
           lmc_dtype_name(t->dtype), (unsigned long)t->size, t->level, t->has_base ? ", base" : "",
           t->is_base ? " that changes" : "", t->quantizer ? ", quantised" : "", t->options,
           change_names[c->how]);
    if (status != LMC_OK) {
        g_changed++;
        CHECK_STATUS(status, LMC_ERR_CHANGED);
        return;
    }
    if (t->is_base) { /* restored with the base of the start, and that of the end */
        uint8_t *const became = (uint8_t *)t_copy(g_base, t->size);
        for (int i = 0; i < 2; i++) {
            memcpy(g_base, i ? became : c->two[0], t->size);
            status = decode(t, out, size);
            if (status == LMC_OK)
                CHECK(memcmp(t->form == FORM_ARRAYS ? g_restored : g_dst, g_src,
                             t->form == FORM_ARRAYS ? g_restored_size / (1 + (t->options & 1))
                                                    : t->size) == 0);
            else if (status == LMC_ERR_BASE_WRONG) g_base_wrong++;
            else CHECK(status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT);
        }
        free(became);
        return;
    }
    status = decode(t, out, size);
    if (!CHECK_STATUS(status, LMC_OK)) g_wrong[t->form][t->has_base + 2 * (t->quantizer != NULL)]++;
    else if (c->how <= CHANGE_TOGGLE && !t->quantizer && t->form != FORM_ARRAYS)
        CHECK(is_mixture(c, g_dst, t->size));
}

/* -- cases -- */

static const enum lmc_dtype dtypes[] = {LMC_U8,  LMC_I8,  LMC_BF16, LMC_F16,     LMC_F32,
                                        LMC_I32, LMC_F64, LMC_AUTO, LMC_F8_E4M3, LMC_I16};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* A quantiser that was fitted to other bytes of the same kind. */
static lmc_quantizer *fit(enum lmc_dtype dtype, size_t size, uint64_t *state)
{
    lmc_quantizer_options options = LMC_DEFAULTS;
    lmc_quantizer *quantizer = NULL;
    t_memory memory;
    lmc_source source = LMC_DEFAULTS;
    memset(&memory, 0, sizeof memory);
    memory.data = g_two[0];
    memory.size = size;
    source.read_at = t_read_at;
    source.user = &memory;
    source.size = size;
    options.dtype = dtype;
    if (t_random(state) & 1) options.bits = 4 + (unsigned)t_below(state, 5);
    else {
        options.measure = LMC_MEASURE_NMSE;
        options.bound = .01;
    }
    if (lmc_quantizer_fit(&quantizer, &source, &options) != LMC_OK) return NULL;
    return quantizer;
}

static void draw_case(one_case *t, changing *c, uint64_t *state, size_t max_size)
{
    static const enum t_kind kinds[] = {T_GAUSS, T_SPARSE, T_SKEWED,  T_CONSTANT,
                                        T_ZERO,  T_RAMP,   T_SPECIAL, T_RANDOM};
    unsigned width;
    memset(t, 0, sizeof *t);
    t->form = (enum form)t_below(state, FORMS);
    t->dtype = dtypes[t_below(state, N_DTYPES)];
    if (t->form == FORM_ARRAYS && t->dtype == LMC_AUTO) t->dtype = LMC_BF16;
    t->level = (enum lmc_level)((int)t_below(state, 4) - 1);
    width = lmc_dtype_width(t->dtype);
    t->size = 1 + t_below(state, t_random(state) % 3 ? 30000 : max_size);
    t->size = t->size < width ? width : t->size / width * width;
    t->has_base = t->form != FORM_FILE && t_random(state) % 3 == 0;
    t->options = (unsigned)t_below(state, 8);
    c->data = g_src;
    c->two[0] = g_two[0];
    c->two[1] = g_two[1];
    c->size = t->size;
    c->width = width;
    c->how = (enum change)t_below(state, CHANGES);
    c->state = t_random(state);
    c->one_in = t_random(state) & 1 ? 1 : 2 + (unsigned)t_below(state, 20);
    c->turn = 0;
    t_fill(g_two[0], t->size, kinds[t_below(state, 8)], t->dtype, t_random(state));
    if (t_random(state) & 1)
        t_fill_base(g_two[1], g_two[0], t->size, (enum t_base)t_below(state, T_UNRELATED), T_GAUSS,
                    t->dtype, t_random(state));
    else t_fill(g_two[1], t->size, kinds[t_below(state, 8)], t->dtype, t_random(state));
    t_fill_base(g_base, g_two[0], t->size, (enum t_base)t_below(state, T_BASES), T_GAUSS, t->dtype,
                t_random(state));
    memcpy(g_src, g_two[0], t->size);
    if (t->form == FORM_TENSOR && !t->has_base && t_random(state) % 3 == 0 &&
        (t->dtype == LMC_F32 || t->dtype == LMC_BF16))
        t->quantizer = fit(t->dtype, t->size, state);
    t->is_base = t->has_base && t_random(state) % 3 == 0;
    if (t->is_base) { /* between two bases */
        c->data = g_base;
        memcpy(g_two[0], g_base, t->size);
    }
}

/* Changes between any two steps. */
static void test_between_steps(long n)
{
    uint64_t state = 1;
    for (; n > 0; n--) {
        one_case t;
        changing c;
        t_memory out;
        enum lmc_status status;
        size_t size = 0;
        memset(&out, 0, sizeof out);
        draw_case(&t, &c, &state, n % 64 ? 200000 : MAX_SIZE);
        t_call_in_kernels(on_kernel, &c);
        status = encode(&t, &out, &size);
        t_call_in_kernels(NULL, NULL);
        check_case(&t, &c, status, &out, size);
        lmc_quantizer_free((lmc_quantizer *)(uintptr_t)t.quantizer);
        free(out.data);
    }
}

#ifndef __wasi__
static volatile int g_stop;
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Changes the data as long as the encoder runs. */
static void *change_always(void *arg)
{
    changing *const c = (changing *)arg;
    for (;;) {
        int stop;
        pthread_mutex_lock(&g_mutex);
        stop = g_stop;
        pthread_mutex_unlock(&g_mutex);
        if (stop) return NULL;
        change_now(c);
    }
}

static void test_with_a_thread(long n)
{
    uint64_t state = 2;
    for (; n > 0; n--) {
        one_case t;
        changing c;
        t_memory out;
        enum lmc_status status = LMC_OK;
        pthread_t thread;
        size_t size = 0;
        int i;
        memset(&out, 0, sizeof out);
        draw_case(&t, &c, &state, MAX_SIZE);
        g_stop = 0;
        if (pthread_create(&thread, NULL, change_always, &c) != 0) abort();
        for (i = 0; i < 8; i++) { /* until it has begun, too */
            out.size = 0;
            status = encode(&t, &out, &size);
            check_case(&t, &c, status, &out, size);
        }
        pthread_mutex_lock(&g_mutex);
        g_stop = 1;
        pthread_mutex_unlock(&g_mutex);
        pthread_join(thread, NULL);
        lmc_quantizer_free((lmc_quantizer *)(uintptr_t)t.quantizer);
        free(out.data);
    }
}
#endif

/* -- a second moment that changes: the only case that is refused -- */

typedef struct moments {
    uint8_t *bytes; /* the second moments, then the first ones */
    size_t half;
    size_t n_read; /* bytes that were read back */
    int do_change;
} moments;

static enum lmc_status read_moments(void *user, size_t number, uint64_t offset, void *dst,
                                    size_t size)
{
    moments *const m = (moments *)user;
    (void)number;
    memcpy(dst, m->bytes + offset, size);
    if (m->do_change) ((uint8_t *)dst)[m->n_read % size] ^= 1;
    m->n_read += size;
    return LMC_OK;
}

static enum lmc_status write_moments(moments *m, const lmc_quantizer *first, t_memory *out)
{
    const uint64_t shape = m->half / 4;
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_tensor tensors[2];
    lmc_tensor_hints hints = LMC_TENSOR_HINTS();
    lmc_writer *writer;
    lmc_twin twin;
    lmc_file file;
    lmc_sink sink = LMC_DEFAULTS;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    memset(&twin, 0, sizeof twin);
    tensors[0] = t_tensor("exp_avg_sq", "F32", 1, &shape, 0, m->half);
    tensors[1] = t_tensor("exp_avg", "F32", 1, &shape, m->half, m->half);
    hints.quantizer = first;
    hints.twin = &twin;
    file.path = "";
    file.size = 2 * m->half;
    file.n_tensors = 2;
    file.tensors = tensors;
    options.may_quantize = 1;
    options.read_back = read_moments;
    options.user = m;
    sink.write = t_append;
    sink.user = out;
    status = lmc_writer_open(&writer, &sink, &options);
    if (status != LMC_OK) return status;
    status = lmc_writer_add_hints(writer, 1, &hints);
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    if (status == LMC_OK) status = lmc_writer_write(writer, m->bytes, file.size);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

/* First moments are quantised as updates, by the second ones, which the writer reads back. If these
 * differ from what it has written, updates would differ, too. */
static void test_second_moments(void)
{
    static const size_t counts[] = {30000, 100000};
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t n = counts[i];
        lmc_quantizer_options options = LMC_DEFAULTS;
        lmc_quantizer *first = NULL;
        t_memory out, elements, seconds;
        lmc_source source = LMC_DEFAULTS, second_source;
        uint64_t state = i;
        moments m;
        memset(&m, 0, sizeof m);
        memset(&out, 0, sizeof out);
        memset(&elements, 0, sizeof elements);
        memset(&seconds, 0, sizeof seconds);
        m.half = 4 * n;
        m.bytes = g_src;
        for (size_t k = 0; k < n; k++) {
            const float v = 1e-8f * (float)(1 + t_below(&state, 1000)),
                        u = (float)t_below(&state, 2000) / 1000 - 1, x = u * 3e-5f;
            memcpy(m.bytes + 4 * k, &v, 4);
            memcpy(m.bytes + m.half + 4 * k, &x, 4);
        }
        elements.data = m.bytes + m.half;
        seconds.data = m.bytes;
        elements.size = seconds.size = m.half;
        source.read_at = t_read_at;
        source.user = &elements;
        source.size = m.half;
        options.dtype = LMC_F32;
        options.role = LMC_ROLE_FIRST_MOMENT;
        options.bits = 6;
        second_source = source;
        second_source.user = &seconds;
        options.second_elements = &second_source;
        if (!CHECK_STATUS(lmc_quantizer_fit(&first, &source, &options), LMC_OK)) continue;
        CHECK_STATUS(write_moments(&m, first, &out), LMC_OK);
        CHECK(m.n_read != 0);
        free(out.data);
        memset(&out, 0, sizeof out);
        m.do_change = 1;
        CHECK_STATUS(write_moments(&m, first, &out), LMC_ERR_CHANGED);
        free(out.data);
        lmc_quantizer_free(first);
    }
}

int main(int argc, char **argv)
{
    const size_t room = 2 * MAX_SIZE + 65536;
    unsigned i, k;
    long n;
    t_begin(argc, argv);
    n = t_long ? 10000 : t_brief ? 100 : t_quick ? 200 : 1500;
    g_src = (uint8_t *)malloc(room);
    g_base = (uint8_t *)malloc(room);
    g_two[0] = (uint8_t *)malloc(room);
    g_two[1] = (uint8_t *)malloc(room);
    g_dst = (uint8_t *)malloc(room);
    g_enc = (uint8_t *)malloc(2 * room);
    g_restored = (uint8_t *)malloc(room);
    g_ws = (uint8_t *)malloc(lmc_block_workspace_size(MAX_SIZE, 1));
    if (!g_src || !g_base || !g_two[0] || !g_two[1] || !g_dst || !g_enc || !g_restored || !g_ws)
        abort();
    for (i = 0; lmc_tier_name((enum lmc_tier)i); i++) {
        if (!lmc_tier_is_available((enum lmc_tier)i)) continue;
        if (t_is_set("LMC_TEST_TIER") && i != (unsigned)lmc_tier_current()) continue;
        lmc_tier_limit((enum lmc_tier)i);
        test_second_moments();
        memset(g_wrong, 0, sizeof g_wrong);
        g_cases = g_changed = g_base_wrong = 0;
        test_between_steps(n);
        printf("%s, between steps: %ld cases, %ld refused, %ld of another base",
               lmc_tier_name((enum lmc_tier)i), g_cases, g_changed, g_base_wrong);
        for (k = 0; k < 4 * FORMS; k++)
            if (g_wrong[k / 4][k % 4])
                printf(", %ld of %s%s%s", g_wrong[k / 4][k % 4], form_names[k / 4],
                       k & 1 ? " with base" : "", k & 2 ? " quantised" : "");
        printf("\n");
#ifndef __wasi__
        memset(g_wrong, 0, sizeof g_wrong);
        g_cases = g_changed = g_base_wrong = 0;
        test_with_a_thread(n / 8);
        printf("%s, a thread: %ld cases, %ld refused, %ld of another base",
               lmc_tier_name((enum lmc_tier)i), g_cases, g_changed, g_base_wrong);
        for (k = 0; k < 4 * FORMS; k++)
            if (g_wrong[k / 4][k % 4])
                printf(", %ld of %s%s%s", g_wrong[k / 4][k % 4], form_names[k / 4],
                       k & 1 ? " with base" : "", k & 2 ? " quantised" : "");
        printf("\n");
#endif
    }
    return t_end();
}
