/* t_parts.h - snapshots made of tensors that change, for the tests of deltas, and files as a base.
 * Include it after t_io.h. */
#ifndef T_PARTS_H
#define T_PARTS_H

#include "t_io.h"

/* A tensor with its data. */
typedef struct part {
    const char *name, *dtype;
    unsigned rank;
    uint64_t shape[2];
    uint8_t *data;
    size_t size;
    const lmc_twin *twin;
} part;

static inline uint8_t *allocate(size_t size)
{
    uint8_t *data = (uint8_t *)malloc(size ? size : 1);
    if (data == NULL) abort();
    return data;
}

static inline part make_part(const char *name, const char *dtype, unsigned rank, uint64_t rows,
                             uint64_t columns, enum t_kind kind, uint64_t seed)
{
    part p;
    memset(&p, 0, sizeof p);
    p.name = name;
    p.dtype = dtype;
    p.rank = rank;
    p.shape[0] = rows;
    p.shape[1] = columns;
    p.size = (size_t)((rank > 0 ? rows : 1) * (rank > 1 ? columns : 1)) *
             lmc_dtype_bits(lmc_dtype_find(dtype)) / 8;
    p.data = allocate(p.size);
    t_fill(p.data, p.size, kind, lmc_dtype_find(dtype), seed);
    return p;
}

/* The same tensor at another time. */
static inline part change(const part *old, enum t_base how, uint64_t seed)
{
    part p = *old;
    p.data = allocate(p.size);
    t_fill_base(p.data, old->data, p.size, how, T_GAUSS, lmc_dtype_find(p.dtype), seed);
    return p;
}

static inline void free_parts(part *parts, size_t n)
{
    while (n-- > 0) free(parts[n].data);
}

/* A file of these parts, with a text in front and some gaps. Part order[i] (NULL: i) is the i-th.
 * Shapes and twins are those of the parts. */
static inline t_file *add_shard(t_model *model, const char *path, const part *parts,
                                const size_t *order, size_t n)
{
    lmc_tensor *tensors =
        (lmc_tensor *)calloc(n + 1, sizeof(lmc_tensor) + sizeof(lmc_tensor_hints));
    lmc_tensor_hints *hints = (lmc_tensor_hints *)(void *)(tensors + n + 1);
    size_t size = 301, i;
    uint8_t *data;
    t_file *f;
    if (tensors == NULL) abort();
    for (i = 0; i < n; i++) {
        const part *p = &parts[order ? order[i] : i];
        tensors[i] = t_tensor(p->name, p->dtype, p->rank, p->shape, size, p->size);
        hints[i].twin = p->twin;
        size += p->size + (i % 4 == 2 ? 5 : 0);
    }
    data = allocate(size += 9);
    t_fill(data, size, T_TEXT, LMC_U8, n);
    for (i = 0; i < n; i++)
        memcpy(data + tensors[i].offset, parts[order ? order[i] : i].data, (size_t)tensors[i].size);
    f = t_add_file(model, path, data, size);
    f->file.tensors = tensors;
    f->file.n_tensors = n;
    f->hints = hints;
    return f;
}

static inline t_file *add_text(t_model *model, const char *path, size_t size, uint64_t seed,
                               size_t change_at)
{
    uint8_t *data = allocate(size);
    t_fill(data, size, T_TEXT, LMC_U8, seed);
    if (change_at < size) data[change_at] ^= 1;
    return t_add_file(model, path, data, size);
}

/* -- bases -- */

/* Files as on a disk, with their fingerprints. */
typedef struct loose {
    const t_model *model;
    lmc_file files[16];
    lmc_tensor *tensors[16];
    t_calls *calls;
    long reads;
} loose;

static const lmc_file *get_loose(void *user, size_t number)
{
    return number < 16 ? &((loose *)user)->files[number] : NULL;
}

static inline enum lmc_status read_loose(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    loose *l = (loose *)user;
    l->reads++;
    if (t_fails(l->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (number >= l->model->n_files || offset > l->model->files[number].size ||
        size > l->model->files[number].size - offset)
        return LMC_ERR_READ;
    memcpy(dst, l->model->files[number].data + offset, size);
    return LMC_OK;
}

static inline lmc_base make_loose(loose *l, const t_model *model, const lmc_parallel *parallel,
                                  size_t piece)
{
    lmc_base base = LMC_DEFAULTS;
    size_t i, k;
    memset(l, 0, sizeof *l);
    l->model = model;
    for (i = 0; i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        lmc_file *const file = &l->files[i];
        uint8_t want[LMC_FINGERPRINT_SIZE];
        lmc_stream stream = LMC_DEFAULTS;
        t_memory in;
        memset(&in, 0, sizeof in);
        in.data = (uint8_t *)(uintptr_t)f->data;
        in.size = f->size;
        in.piece = piece;
        stream.read = t_read;
        stream.user = &in;
        *file = f->file;
        file->size = f->size;
        if (file->n_tensors)
            file->tensors = l->tensors[i] =
                (lmc_tensor *)t_copy(f->file.tensors, f->file.n_tensors * sizeof(lmc_tensor));
        CHECK_STATUS(lmc_file_identify(file, l->tensors[i], &stream, parallel, NULL), LMC_OK);
        CHECK(file->crc == t_crc32c(0, f->data, f->size));
        for (k = 0; k < file->n_tensors; k++) {
            const lmc_tensor *t = &file->tensors[k];
            t_tensor_fingerprint(f->data + t->offset, 0, t->size, t->dtype, t->rank, t->shape,
                                 want);
            CHECK(memcmp(t->fingerprint, want, LMC_FINGERPRINT_SIZE) == 0);
        }
        if (k == 0) {
            t_file_fingerprint(f, want);
            CHECK(memcmp(file->fingerprint, want, LMC_FINGERPRINT_SIZE) == 0);
        }
    }
    base.n_files = model->n_files;
    base.get_file = get_loose;
    base.read = read_loose;
    base.user = l;
    return base;
}

static inline void free_loose(loose *l)
{
    size_t i;
    for (i = 0; i < 16; i++) free(l->tensors[i]);
}

static inline lmc_reader *open_with(t_memory *memory, const lmc_reader_options *options)
{
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    source.read_at = t_read_at;
    source.user = memory;
    source.size = memory->size;
    CHECK_STATUS(lmc_reader_open(&reader, &source, options), LMC_OK);
    return reader;
}

static inline lmc_reader *open_memory(t_memory *memory, const lmc_base *base,
                                      const lmc_parallel *parallel)
{
    lmc_reader_options options;
    memset(&options, 0, sizeof options);
    options.base = base;
    options.parallel = parallel;
    return open_with(memory, &options);
}

/* -- the writer's and the restorer's own snapshot -- */

typedef struct own {
    const t_model *model;
    t_calls *calls;
} own;

static inline enum lmc_status read_own(void *user, size_t number, uint64_t offset, void *dst,
                                       size_t size)
{
    const own *o = (const own *)user;
    if (t_fails(o->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (number >= o->model->n_files || offset > o->model->files[number].size ||
        size > o->model->files[number].size - offset)
        return LMC_ERR_READ;
    if (size) memcpy(dst, o->model->files[number].data + offset, size);
    return LMC_OK;
}

/* -- a snapshot -- */

#define OLD_PARTS 16u

static inline void make_old_parts(part *p, size_t n)
{
    p[0] = make_part("embed", "BF16", 2, n, 30, T_GAUSS, 1);
    p[1] = make_part("layer.0.w", "BF16", 2, 3 * n, 100, T_GAUSS, 2);
    p[2] = make_part("layer.0.b", "BF16", 1, 99, 0, T_GAUSS, 3);
    p[3] = make_part("layer.1.w", "F32", 2, n, 40, T_GAUSS, 4);
    p[4] = make_part("layer.1.b", "F32", 1, 7, 0, T_GAUSS, 5);
    p[5] = make_part("moment", "F32", 1, 90 * n, 0, T_SPARSE, 6);
    p[6] = make_part("ids", "I64", 1, n, 0, T_RAMP, 7);
    p[7] = make_part("scale", "F8_E4M3", 1, 5 * n + 3, 0, T_GAUSS, 8);
    p[8] = make_part("mask", "BOOL", 1, 333, 0, T_ZERO, 9);
    p[9] = make_part("quantised", "Q4_K", 1, 4601, 0, T_RANDOM, 10);
    p[10] = make_part("scalar", "F32", 0, 0, 0, T_GAUSS, 11);
    p[11] = make_part("empty", "BF16", 2, 0, 4, T_GAUSS, 12);
    p[12] = make_part("gone", "F16", 2, n, 10, T_GAUSS, 13);
    p[13] = make_part("reshaped", "F16", 2, 40, 50, T_GAUSS, 14);
    p[14] = make_part("retyped", "F16", 2, 40, 50, T_GAUSS, 15);
    p[15] = make_part("double", "F64", 1, 8 * n, 0, T_SPECIAL, 16);
}

static inline void make_old_model(t_model *model, const part *parts)
{
    t_file *f;
    memset(model, 0, sizeof *model);
    add_shard(model, "model-1.safetensors", parts, NULL, 9);
    add_shard(model, "model-2.safetensors", parts + 9, NULL, OLD_PARTS - 9);
    add_text(model, "config.json", 2000, 1, SIZE_MAX);
    add_text(model, "notes.txt", 700, 2, SIZE_MAX);
    f = t_add_file(model, "logs", NULL, 0);
    f->file.kind = LMC_FILE_DIRECTORY;
    t_add_file(model, "nothing", NULL, 0);
}

#endif
