/* base.c - bases: arrays in memory, also of a GPU, or in a file; readers
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "lmc_cuda.h"

/* For the library this is one file with all arrays, one after another. A base depends only on
 * names, dtypes, shapes and contents, not on the files in which they are (spec 7.2). */
struct base_object {
    PyObject_HEAD PyObject *owner; /* the tuples: tensors point to their strings */
    lmc_tensor *tensors;
    uint64_t *shapes;   /* LMC_MAX_RANK for each */
    Py_buffer *buffers; /* of arrays in memory */
    uint64_t *places;   /* of arrays in the file: their first bytes */
    file_source source; /* the file, or nothing */
    PyObject *where;    /* its name in messages, or None */
    size_t n, n_buffers;
    lmc_file file;
    lmc_base base;
    PyObject *cuda; /* or NULL; if not, the arrays are on its device, and on_gpu reads them */
    lmc_cuda_base *on_gpu;
};

static const lmc_file *get_file(void *user, size_t file_number)
{
    (void)file_number;
    return &((const base_object *)user)->file;
}

/* The last tensor that begins at offset or before it. */
static size_t find_tensor(const base_object *b, uint64_t offset)
{
    size_t low = 0, high = b->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (b->tensors[middle].offset <= offset) low = middle;
        else high = middle;
    }
    return low;
}

/* dst may be the array itself, because a delta may be applied in place. A file is read, not mapped:
 * if another process cuts it, this is an error, and a signal would end the process. Several calls
 * may read at once, so each has its own copy of the source. */
static enum lmc_status read_arrays(const base_object *b, call *c, size_t file_number,
                                   uint64_t offset, void *dst, size_t size)
{
    file_source source = b->source;
    enum lmc_status status = LMC_OK;
    uint8_t *out = (uint8_t *)dst;
    size_t i;
    source.call = c;
    if (file_number != 0 || offset > b->file.size || size > b->file.size - offset)
        return LMC_ERR_READ;
    for (i = find_tensor(b, offset); size != 0 && status == LMC_OK; i++) {
        const lmc_tensor *const t = &b->tensors[i];
        const uint64_t at = offset - t->offset;
        const size_t n = (size_t)(t->size - at < size ? t->size - at : size);
        if (source.file) {
            if (n != 0) status = source_read_at(&source, b->places[i] + at, out, n);
        } else {
            const uint8_t *const src = (const uint8_t *)b->buffers[i].buf + (size_t)at;
            if (n != 0 && out != src) memmove(out, src, n);
        }
        out += n;
        offset += n;
        size -= n;
    }
    return status;
}

/* Without a call, only memory can be read: get_base() gives the library read_named(). */
static enum lmc_status read_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size)
{
    const base_object *const b = (const base_object *)user;
    return b->source.file ? LMC_ERR_READ : read_arrays(b, NULL, file_number, offset, dst, size);
}

typedef struct base_stream {
    const base_object *base;
    uint64_t position;
    call *call;
} base_stream;

static enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got)
{
    base_stream *const s = (base_stream *)user;
    const uint64_t left = s->base->file.size - s->position;
    const size_t n = (size_t)(left < size ? left : size);
    enum lmc_status status = call_poll(s->call);
    if (status != LMC_OK) return status;
    status = read_arrays(s->base, s->call, 0, s->position, dst, n);
    s->position += n;
    *got = n;
    return status;
}

static int add_array(base_object *b, PyObject *tuple)
{
    lmc_tensor *const t = &b->tensors[b->n];
    Py_buffer *const buffer = &b->buffers[b->n];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4) {
        PyErr_SetString(PyExc_TypeError, "an array is (name, dtype, shape, buffer or place)");
        return -1;
    }
    if (parse_tensor(tuple, t, b->shapes + LMC_MAX_RANK * b->n) < 0) return -1;
    t->offset = b->file.size;
    if (b->source.file) {
        unsigned long long at, size;
        PyObject *const place = PyTuple_GetItem(tuple, 3);
        if (!PyTuple_Check(place)) PyErr_SetString(PyExc_TypeError, "a place is a tuple of 2");
        if (PyErr_Occurred() || !PyArg_ParseTuple(place, "KK:place", &at, &size)) return -1;
        b->places[b->n] = at;
        t->size = size;
    } else {
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, 3), buffer, PyBUF_SIMPLE) < 0) return -1;
        b->n_buffers++;
        t->size = (uint64_t)buffer->len;
    }
    b->file.size += t->size;
    if (check_tensor_size(t->name, t->dtype, t->shape, t->rank, t->size) < 0) return -1;
    b->n++;
    return 0;
}

static int identify(base_object *b, module_state *state, int n_threads)
{
    base_stream s;
    lmc_stream stream = LMC_DEFAULTS;
    thread_pool pool;
    enum lmc_status status;
    PyObject *result;
    call c;
    if (pool_init(&pool, n_threads) < 0) return -1;
    s.base = b;
    s.position = 0;
    s.call = &c;
    stream.read = read_stream;
    stream.user = &s;
    call_begin(&c, NULL);
    status = lmc_file_identify(&b->file, b->tensors, &stream, pool_parallel(&pool), NULL);
    pool_free(&pool);
    result = call_end(&c, state, status, b->where, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int identify_on_gpu(base_object *b, void *stream)
{
    const void **const data = (const void **)PyMem_Calloc(b->n + 1, sizeof *data);
    size_t i;
    if (!data) PyErr_NoMemory();
    for (i = 0; data && i < b->n; i++) data[i] = b->buffers[i].buf;
    if (data) b->on_gpu = open_cuda_base(b->cuda, b->tensors, data, b->n, stream);
    PyMem_Free((void *)(uintptr_t)data);
    if (!b->on_gpu) return -1;
    b->base = *lmc_cuda_base_get(b->on_gpu);
    return 0;
}

/* (arrays, threads, cuda, stream, file, size, where): with a Cuda the buffers are addresses on its
 * device; with a file, a Descriptor, there are (first byte, size) in place of buffers. */
static PyObject *base_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrays", "threads", "cuda", "stream", "file", "size", "where", NULL};
    module_state *const state = state_of(type);
    PyObject *arrays, *cuda = Py_None, *file = Py_None, *where = Py_None;
    unsigned long long stream = 0, size = 0;
    base_object *b;
    size_t i, n;
    int n_threads = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|iOKOKO:Base", names, &arrays, &n_threads,
                                     &cuda, &stream, &file, &size, &where))
        return NULL;
    if ((cuda != Py_None && !PyObject_TypeCheck(cuda, state->cuda_type)) ||
        (file != Py_None && !PyObject_TypeCheck(file, state->descriptor_type))) {
        PyErr_SetString(PyExc_TypeError, "not a Cuda, or not a Descriptor");
        return NULL;
    }
    b = (base_object *)PyType_GenericAlloc(type, 0);
    if (!b) return NULL;
    source_init(&b->source);
    Py_INCREF(where);
    b->where = where;
    if (cuda != Py_None) {
        Py_INCREF(cuda);
        b->cuda = cuda;
    }
    if (file != Py_None && source_open(&b->source, state, file, size) < 0) goto fail;
    b->owner = PySequence_Tuple(arrays);
    if (!b->owner) goto fail;
    n = (size_t)PyTuple_Size(b->owner);
    b->tensors = (lmc_tensor *)PyMem_Calloc(n + 1, sizeof *b->tensors);
    b->shapes = (uint64_t *)PyMem_Calloc(n + 1, LMC_MAX_RANK * sizeof *b->shapes);
    b->buffers = (Py_buffer *)PyMem_Calloc(n + 1, sizeof *b->buffers);
    b->places = (uint64_t *)PyMem_Calloc(n + 1, sizeof *b->places);
    if (!b->tensors || !b->shapes || !b->buffers || !b->places) {
        PyErr_NoMemory();
        goto fail;
    }
    for (i = 0; i < n; i++)
        if (add_array(b, PyTuple_GetItem(b->owner, (Py_ssize_t)i)) < 0) goto fail;
    b->file.path = "";
    b->file.n_tensors = n;
    b->file.tensors = b->tensors;
    b->base.n_files = 1;
    b->base.get_file = get_file;
    b->base.read = read_base;
    b->base.user = b;
    if ((b->cuda ? identify_on_gpu(b, (void *)(uintptr_t)stream) : identify(b, state, n_threads)) <
        0)
        goto fail;
    return (PyObject *)b;
fail:
    Py_DECREF(b);
    return NULL;
}

static void base_dealloc(PyObject *self)
{
    base_object *const b = (base_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    size_t i;
    lmc_cuda_base_free(b->on_gpu);
    Py_XDECREF(b->cuda);
    for (i = 0; i < b->n_buffers; i++) PyBuffer_Release(&b->buffers[i]);
    PyMem_Free(b->tensors);
    PyMem_Free(b->shapes);
    PyMem_Free(b->buffers);
    PyMem_Free(b->places);
    source_free(&b->source);
    Py_XDECREF(b->where);
    Py_XDECREF(b->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *base_fingerprint(PyObject *self, void *closure)
{
    const base_object *const b = (const base_object *)self;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    const enum lmc_status status = lmc_base_identify(&b->base, fingerprint, NULL);
    (void)closure;
    if (status != LMC_OK) return raise_status(state_of(Py_TYPE(self)), status, NULL, NULL);
    return PyBytes_FromStringAndSize((const char *)fingerprint, LMC_FINGERPRINT_SIZE);
}

const lmc_base *base_of(PyObject *base) { return &((const base_object *)base)->base; }

/* -- an arrays' base or a reader, for the library -- */

static const lmc_file *get_named_file(void *user, size_t file_number)
{
    const named_base *const b = (const named_base *)user;
    return b->inner.get_file(b->inner.user, file_number);
}

/* In a chain, the oldest reader that failed is named: it failed first. */
static enum lmc_status read_named(void *user, size_t file_number, uint64_t offset, void *dst,
                                  size_t size)
{
    named_base *const b = (named_base *)user;
    const enum lmc_status status =
        b->arrays ? read_arrays(b->arrays, *b->call, file_number, offset, dst, size)
                  : b->inner.read(b->inner.user, file_number, offset, dst, size);
    if (status == LMC_OK || status == LMC_ERR_MEMORY) return status;
    SET(&b->has_failed, 1);
#ifdef __GNUC__ /* several workers may fail at once */
    {
        PyObject *none = NULL;
        (void)__atomic_compare_exchange_n(&(*b->call)->base, &none, b->name, 0, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
    }
#else
    if (!(*b->call)->base) (*b->call)->base = b->name;
#endif
    return status;
}

static named_base *find_shard(named_base *shard, size_t *number)
{
    for (; *number >= shard->base.n_files; shard++) *number -= shard->base.n_files;
    return shard;
}

static const lmc_file *get_shard_file(void *user, size_t number)
{
    const lmc_base *const b = &find_shard(((named_base *)user)->shards, &number)->base;
    return b->get_file(b->user, number);
}

static enum lmc_status read_shard_file(void *user, size_t number, uint64_t offset, void *dst,
                                       size_t size)
{
    named_base *const all = (named_base *)user;
    const lmc_base *const b = &find_shard(all->shards, &number)->base;
    const enum lmc_status status = b->read(b->user, number, offset, dst, size);
    if (status != LMC_OK && status != LMC_ERR_MEMORY) SET(&all->has_failed, 1);
    return status;
}

static int join_shards(module_state *state, PyObject *tuple, named_base *b, call **c)
{
    const size_t n = (size_t)PyTuple_Size(tuple);
    size_t i;
    int has_base;
    b->shards = (named_base *)PyMem_Calloc(n + 1, sizeof *b->shards);
    if (!b->shards) PyErr_NoMemory();
    for (i = 0; b->shards && i < n; i++) {
        PyObject *const shard = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        if (get_base(state, shard, &b->shards[i], c, &has_base) < 0) return -1;
        b->base.n_files += b->shards[i].base.n_files;
    }
    b->base.get_file = get_shard_file;
    b->base.read = read_shard_file;
    b->base.user = b;
    return b->shards ? 0 : -1;
}

void free_base(named_base *b)
{
    PyMem_Free(b->shards);
    b->shards = NULL;
}

int get_base(module_state *state, PyObject *object, named_base *b, call **c, int *has_base)
{
    *has_base = object != Py_None;
    if (object == Py_None) return 0;
    if (PyTuple_Check(object)) return join_shards(state, object, b, c);
    if (PyObject_TypeCheck(object, state->reader_type)) {
        if (!reader_of(object)) {
            PyErr_SetString(PyExc_ValueError, "the base is closed");
            return -1;
        }
        b->inner = b->base = lmc_reader_base(reader_of(object));
        b->base.get_file = get_named_file;
        b->base.read = read_named;
        b->base.user = b;
        b->name = reader_where(object);
        b->call = c;
        return 0;
    }
    if (PyObject_TypeCheck(object, state->base_type)) {
        const base_object *const arrays = (const base_object *)object;
        b->inner = b->base = arrays->base;
        if (arrays->on_gpu) return 0;
        b->arrays = arrays;
        b->base.get_file = get_named_file;
        b->base.read = read_named;
        b->base.user = b;
        b->name = arrays->where;
        b->call = c;
        return 0;
    }
    PyErr_SetString(PyExc_TypeError, "base must be a Reader or a Base");
    return -1;
}

static PyGetSetDef base_getset[] = {
    {"fingerprint", base_fingerprint, NULL, "16 bytes, the fingerprint of its snapshot.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot base_slots[] = {{Py_tp_new, (void *)base_new},
                                   {Py_tp_dealloc, (void *)base_dealloc},
                                   {Py_tp_getset, base_getset},
                                   {0, NULL}};
PyType_Spec base_spec = {"lmc_codec._lmc.Base", sizeof(base_object), 0, Py_TPFLAGS_DEFAULT,
                         base_slots};
