/* reader.c - Reader: random access to an LMC file
 * SPDX-License-Identifier: MIT
 */
#include "reader.h"

#include "formats/links.h"
#include "lmc_cuda.h"

/* -- opening and closing -- */

static uint64_t next_serial(void)
{
    static uint64_t last;
#ifdef __GNUC__
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
#else
    return ++last; /* with the GIL */
#endif
}

static int open_reader(reader_object *r, module_state *state, uint64_t max_index_size,
                       uint64_t max_total_size)
{
    lmc_reader_options options = LMC_READER_OPTIONS();
    const reader_object *lender;
    enum lmc_status status;
    PyObject *result;
    call c;
    int has_base;
    mark_base(state, r->base);
    if (lock_chain(state, (PyObject *)r, &c) < 0) return -1;
    if (get_base(state, r->base ? r->base : Py_None, &r->own_base, &r->source.call, &has_base) <
        0) {
        unlock_chain(state, (PyObject *)r);
        return -1;
    }
    options.max_index_size = r->max_index_size = max_index_size;
    options.max_total_size = max_total_size;
    options.parallel = pool_parallel(&r->pool);
    options.base = has_base ? &r->own_base.base : NULL;
    /* The library cannot see that a named base is a reader, but bounds the work of the whole chain:
     * the lender tells it. A lender must not be used meanwhile: the whole chain is locked. Of
     * shards each has lent to the next one, so the newest tells it for all. */
    lender = find_newest(state, r->base, UINT64_MAX);
    if (!lender) lender = (reader_object *)r->lender;
    if (lender) options.lender = lender->reader;
    options.parallel_reads = !r->source.read; /* only one thread calls a callable, with the GIL */
    memset(&r->callbacks, 0, sizeof r->callbacks);
    r->callbacks.read_at = source_read_at;
    r->callbacks.user = &r->source;
    r->callbacks.size = r->source.size;
    call_begin(&c, NULL);
    status = lmc_reader_open(&r->reader, &r->callbacks, &options);
    result = call_end(&c, state, status, r->where, NULL);
    unlock_chain(state, (PyObject *)r);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* A reference to object; NULL for None. */
static PyObject *keep(PyObject *object)
{
    if (object == Py_None) return NULL;
    Py_INCREF(object);
    return object;
}

static PyObject *make_reader(PyTypeObject *type, PyObject *object, uint64_t size, PyObject *base,
                             PyObject *lender, int n_threads, PyObject *where,
                             uint64_t max_index_size, uint64_t max_total_size)
{
    module_state *const state = state_of(type);
    reader_object *const r = (reader_object *)PyType_GenericAlloc(type, 0);
    if (!r) return NULL;
    source_init(&r->source);
    Py_INCREF(where);
    r->where = where;
    r->serial = next_serial();
    r->base = keep(base);
    r->lender = keep(lender);
    if (lock_init(&r->lock) < 0 || pool_init(&r->pool, n_threads) < 0 ||
        source_open(&r->source, state, object, size) < 0 ||
        open_reader(r, state, max_index_size, max_total_size) < 0) {
        Py_DECREF(r);
        return NULL;
    }
    return (PyObject *)r;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "size",           "base",           "threads",
                            "where",  "max_index_size", "max_total_size", NULL};
    PyObject *object, *base = Py_None, *where = Py_None;
    unsigned long long size = 0, max_index = 0, max_total = 0;
    int n_threads = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|KOiOKK:Reader", names, &object, &size, &base,
                                     &n_threads, &where, &max_index, &max_total))
        return NULL;
    return make_reader(type, object, size, base, Py_None, n_threads, where, max_index, max_total);
}

/* (base, lender) -> another Reader of the same file with that base. It shares the buffers and the
 * limit of work of the lender, another Reader, unless its base has them. Whoever uses one of both
 * must lock both, so they must be bases of the same readers. */
static PyObject *reader_open_again(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    const file_source *const s = &r->source;
    PyObject *base, *lender, *from;
    if (!PyArg_ParseTuple(args, "OO:open_again", &base, &lender)) return NULL;
    if (lender != Py_None && !is_reader(state_of(Py_TYPE(self)), lender)) {
        PyErr_SetString(PyExc_TypeError, "the lender must be a Reader");
        return NULL;
    }
    if (!reader_of(self)) {
        PyErr_SetString(PyExc_ValueError, "the base is closed");
        return NULL;
    }
    from = s->file ? (PyObject *)s->file : s->read ? s->read : s->buffer.obj;
    return make_reader(Py_TYPE(self), from, s->size, base, lender, (int)r->pool.parallel.n_workers,
                       r->where, r->max_index_size, 0);
}

/* In a forked child, a reader that a call has left half changed is not freed. */
static void free_reader(reader_object *r)
{
    if (!lock_is_lost(&r->lock)) lmc_reader_free(r->reader);
    r->reader = NULL;
    free_views(r);
    pool_free(&r->pool);
    source_free(&r->source);
    free_base(&r->own_base);
}

static int reader_traverse(PyObject *self, visitproc visit, void *arg)
{
    reader_object *const r = (reader_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->base);
    Py_VISIT(r->lender);
    Py_VISIT(r->source.read);
    return 0;
}

static int reader_clear(PyObject *self)
{
    (void)self; /* a callable is freed with the reader, not before */
    return 0;
}

static void reader_dealloc(PyObject *self)
{
    reader_object *const r = (reader_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_reader(r);
    Py_CLEAR(r->base);
    Py_CLEAR(r->lender);
    Py_CLEAR(r->where);
    lock_free(&r->lock);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *reader_close(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    (void)unused;
    if (lock_is_lost(&r->lock)) {
        r->is_closed = 1;
        Py_RETURN_NONE;
    }
    if (lock_acquire(&r->lock) < 0) return NULL;
    r->is_closed = 1;
    if (!LOOK_AT(&r->is_base)) free_reader(r);
    lock_release(&r->lock);
    Py_RETURN_NONE;
}

/* -- files and tensors; the lock is needed only to keep the reader open -- */

static PyObject *make_fingerprint(const uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    return PyBytes_FromStringAndSize((const char *)fingerprint, LMC_FINGERPRINT_SIZE);
}

static PyObject *reader_info(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    lmc_reader *const reader = begin_use(r);
    lmc_snapshot_info info;
    enum lmc_status status;
    const lmc_file *file;
    uint64_t total = 0; /* opening has checked that it fits */
    size_t i;
    (void)unused;
    if (!reader) return NULL;
    for (i = 0; (file = lmc_reader_get_file(reader, i)) != NULL; i++) total += file->size;
    status = lmc_reader_get_info(reader, &info);
    if (status != LMC_OK)
        return end_use(r, raise_status(state_of(Py_TYPE(self)), status, r->where, NULL));
    return end_use(r, Py_BuildValue("nNNKiK", (Py_ssize_t)info.n_files,
                                    make_fingerprint(info.fingerprint),
                                    info.has_base ? make_fingerprint(info.base_fingerprint)
                                                  : PyBytes_FromStringAndSize("", 0),
                                    (unsigned long long)info.features, (int)info.format_minor,
                                    (unsigned long long)total));
}

static PyObject *make_tensor(const lmc_tensor *t)
{
    return Py_BuildValue("NNNKKNN", make_text(t->name), make_text(t->dtype),
                         make_shape(t->shape, t->rank), (unsigned long long)t->offset,
                         (unsigned long long)t->size, make_fingerprint(t->fingerprint),
                         make_loss(t));
}

static PyObject *make_file(const lmc_file *f)
{
    PyObject *const tensors = PyTuple_New((Py_ssize_t)f->n_tensors);
    PyObject *mode, *mtime;
    size_t i;
    if (!tensors) return NULL;
    for (i = 0; i < f->n_tensors; i++) {
        PyObject *const tensor = make_tensor(&f->tensors[i]);
        if (!tensor || PyTuple_SetItem(tensors, (Py_ssize_t)i, tensor) < 0) {
            Py_DECREF(tensors);
            return NULL;
        }
    }
    mode = f->has_mode ? PyLong_FromUnsignedLong(f->mode) : Py_BuildValue("");
    mtime =
        f->has_mtime ? Py_BuildValue("LI", (long long)f->mtime_s, f->mtime_ns) : Py_BuildValue("");
    return Py_BuildValue("NiKNNINN", make_text(f->path), (int)f->kind, (unsigned long long)f->size,
                         mode, mtime, f->crc, make_fingerprint(f->fingerprint), tensors);
}

static PyObject *reader_file(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    lmc_reader *reader;
    const lmc_file *file;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "n:file", &number)) return NULL;
    reader = begin_use(r);
    if (!reader) return NULL;
    file = number < 0 ? NULL : lmc_reader_get_file(reader, (size_t)number);
    if (!file) {
        PyErr_SetString(PyExc_IndexError, "no such file");
        return end_use(r, NULL);
    }
    return end_use(r, make_file(file));
}

static PyObject *reader_file_path(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    lmc_reader *reader;
    const lmc_file *file;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "n:file_path", &number)) return NULL;
    reader = begin_use(r);
    if (!reader) return NULL;
    file = number < 0 ? NULL : lmc_reader_get_file(reader, (size_t)number);
    if (!file) {
        PyErr_SetString(PyExc_IndexError, "no such file");
        return end_use(r, NULL);
    }
    return end_use(r, make_text(file->path));
}

static PyObject *find_tensor(reader_object *r, PyObject *name, const char *name_bytes,
                             const char *path)
{
    lmc_reader *const reader = begin_use(r);
    const lmc_tensor *tensor;
    size_t number;
    enum lmc_status status;
    if (!reader) return NULL;
    status = lmc_reader_find_tensor(reader, path, name_bytes, &number, &tensor);
    if (status != LMC_OK) {
        PyObject *const what = PyUnicode_FromFormat("tensor '%U'", name);
        raise_status(state_of(Py_TYPE((PyObject *)r)), status, r->where, what);
        Py_XDECREF(what);
        return end_use(r, NULL);
    }
    return end_use(r, Py_BuildValue("nN", (Py_ssize_t)number, make_tensor(tensor)));
}

/* (name, path or None) -> (file number, tensor) */
static PyObject *reader_find(PyObject *self, PyObject *args)
{
    PyObject *name, *path, *name_bytes, *path_bytes = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:find", &name, &path)) return NULL;
    name_bytes = encode_text(name);
    if (name_bytes && path != Py_None) path_bytes = encode_text(path);
    if (name_bytes && (path_bytes || path == Py_None))
        result = find_tensor((reader_object *)self, name, PyBytes_AsString(name_bytes),
                             path_bytes ? PyBytes_AsString(path_bytes) : NULL);
    Py_XDECREF(name_bytes);
    Py_XDECREF(path_bytes);
    return result;
}

static PyObject *reader_metadata(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    lmc_reader *const reader = begin_use(r);
    PyObject *result;
    const char *key;
    const void *value;
    size_t i, size;
    (void)unused;
    if (!reader) return NULL;
    result = PyDict_New();
    for (i = 0; result && lmc_reader_get_metadata(reader, i, &key, &value, &size) == LMC_OK; i++) {
        PyObject *const name = make_text(key);
        PyObject *const bytes = PyBytes_FromStringAndSize((const char *)value, (Py_ssize_t)size);
        if (!name || !bytes || PyDict_SetItem(result, name, bytes) < 0) Py_CLEAR(result);
        Py_XDECREF(name);
        Py_XDECREF(bytes);
    }
    return end_use(r, result);
}

static PyObject *reader_encoded_size(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    unsigned long long offset, size;
    uint64_t encoded;
    lmc_reader *reader;
    Py_ssize_t number;
    enum lmc_status status;
    if (!PyArg_ParseTuple(args, "nKK:encoded_size", &number, &offset, &size)) return NULL;
    reader = begin_use(r);
    if (!reader) return NULL;
    status = lmc_reader_encoded_size(reader, (size_t)number, offset, size, &encoded);
    if (status != LMC_OK)
        return end_use(r, raise_status(state_of(Py_TYPE(self)), status, r->where, NULL));
    return end_use(r, PyLong_FromUnsignedLongLong(encoded));
}

/* (file number, offset, size) -> bool: see lmc_cuda_can_read_in_place; not only for GPUs. */
static PyObject *reader_can_read_in_place(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    unsigned long long number, offset, size;
    lmc_reader *reader;
    enum lmc_status status;
    int can = 0;
    if (!PyArg_ParseTuple(args, "KKK:can_read_in_place", &number, &offset, &size)) return NULL;
    reader = begin_use(r);
    if (!reader) return NULL;
    status = lmc_cuda_can_read_in_place(reader, number, offset, size, &can);
    if (status != LMC_OK)
        return end_use(r, raise_status(state_of(Py_TYPE(self)), status, r->where, NULL));
    return end_use(r, PyBool_FromLong(can));
}

/* -- reading -- */

/* -> (first byte in the LMC file, size) of the blocks that have a range */
static PyObject *reader_encoded_range(PyObject *self, PyObject *args)
{
    unsigned long long offset, size;
    uint64_t encoded_offset = 0, encoded_size = 0;
    lmc_reader *reader;
    PyObject *result;
    Py_ssize_t number;
    enum lmc_status status;
    call c;
    if (!PyArg_ParseTuple(args, "nKK:encoded_range", &number, &offset, &size)) return NULL;
    reader = begin_reading((reader_object *)self, &c);
    if (!reader) return NULL;
    status = lmc_reader_encoded_range(reader, (size_t)number, offset, size, &encoded_offset,
                                      &encoded_size);
    result = end_reading((reader_object *)self, &c, status, NULL);
    if (!result) return NULL;
    Py_DECREF(result);
    return Py_BuildValue("KK", (unsigned long long)encoded_offset,
                         (unsigned long long)encoded_size);
}

/* A box of a tensor: elements [start, start + count) of each dimension. */
typedef struct box {
    uint64_t shape[LMC_MAX_RANK], start[LMC_MAX_RANK], count[LMC_MAX_RANK];
    unsigned rank;
    uint64_t width;  /* bytes of an element */
    uint64_t offset; /* of the tensor in its file */
} box;

/* Walks over the contiguous spans of a box: the inner dimensions that are whole, and one more. */
typedef struct box_walk {
    uint64_t step[LMC_MAX_RANK], index[LMC_MAX_RANK];
    unsigned n_outer; /* dimensions over which it walks */
    uint64_t span;    /* bytes */
    int is_end;
} box_walk;

static void begin_walk(box_walk *w, const box *b)
{
    uint64_t step = b->width;
    unsigned i;
    memset(w, 0, sizeof *w);
    w->span = b->width;
    for (i = b->rank; i-- > 0; step *= b->shape[i]) {
        w->step[i] = step;
        if (b->count[i] == 0) w->is_end = 1;
    }
    for (w->n_outer = b->rank; w->n_outer > 0; w->n_outer--) {
        w->span *= b->count[w->n_outer - 1];
        if (b->count[w->n_outer - 1] != b->shape[w->n_outer - 1]) {
            w->n_outer--;
            break;
        }
    }
}

static uint64_t walk_offset(const box_walk *w, const box *b)
{
    uint64_t offset = b->offset;
    unsigned i;
    for (i = 0; i < b->rank; i++) offset += (b->start[i] + w->index[i]) * w->step[i];
    return offset;
}

static void walk_on(box_walk *w, const box *b)
{
    unsigned i;
    for (i = w->n_outer; i-- > 0;) {
        if (++w->index[i] < b->count[i]) return;
        w->index[i] = 0;
    }
    w->is_end = 1;
}

/* Spans with gaps smaller than a block are read at once, because the block is decoded anyway.
 * MAX_GROUP limits the memory of such a group. */
#define MAX_GAP ((uint64_t)1 << 17)
#define MAX_GROUP ((uint64_t)32 << 20)

/* Reads spans to dst, one after another. Near spans are read at once. */
static enum lmc_status read_box(lmc_reader *reader, size_t number, const box *b, uint8_t *dst)
{
    enum lmc_status status = LMC_OK;
    uint8_t *group = NULL;
    box_walk w;
    for (begin_walk(&w, b); !w.is_end && status == LMC_OK;) {
        const uint64_t start = walk_offset(&w, b);
        box_walk ahead = w;
        uint64_t end = start + w.span;
        for (walk_on(&ahead, b); !ahead.is_end; walk_on(&ahead, b)) {
            const uint64_t next = walk_offset(&ahead, b);
            if (next - end >= MAX_GAP || next + w.span - start > MAX_GROUP) break;
            end = next + w.span;
        }
        if (end == start + w.span) {
            status = lmc_reader_read_file(reader, number, start, dst, (size_t)w.span);
            dst += w.span;
            walk_on(&w, b);
            continue;
        }
        if (!group) group = (uint8_t *)malloc((size_t)MAX_GROUP);
        if (!group) return LMC_ERR_MEMORY;
        status = lmc_reader_read_file(reader, number, start, group, (size_t)(end - start));
        for (; status == LMC_OK && !w.is_end && walk_offset(&w, b) < end; walk_on(&w, b)) {
            memcpy(dst, group + (size_t)(walk_offset(&w, b) - start), (size_t)w.span);
            dst += w.span;
        }
    }
    free(group);
    return status;
}

static PyObject *read_locked(reader_object *r, Py_ssize_t number, const box *b, void *dst,
                             PyObject *what)
{
    enum lmc_status status;
    call c;
    if (!begin_reading(r, &c)) return NULL;
    status = number < 0 ? LMC_ERR_ARGUMENT : read_box(r->reader, (size_t)number, b, (uint8_t *)dst);
    return end_reading(r, &c, status, what);
}

/* (file number, offset, out, what): out.nbytes bytes of a file. */
static PyObject *reader_read(PyObject *self, PyObject *args)
{
    unsigned long long offset;
    Py_ssize_t number;
    Py_buffer out;
    PyObject *what, *result;
    box b;
    if (!PyArg_ParseTuple(args, "nKw*O:read", &number, &offset, &out, &what)) return NULL;
    memset(&b, 0, sizeof b);
    b.rank = 1;
    b.width = 1;
    b.offset = offset;
    b.shape[0] = b.count[0] = (uint64_t)out.len;
    result = read_locked((reader_object *)self, number, &b, out.buf, what);
    PyBuffer_Release(&out);
    return result;
}

/* -> [(file number, tensor)] of its base; empty without a base. */
static PyObject *reader_base_tensors(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    const lmc_base *const b = &r->own_base.base;
    PyObject *list;
    size_t i, j;
    (void)unused;
    if (!begin_use(r)) return NULL;
    list = PyList_New(0);
    for (i = 0; list && i < b->n_files; i++) {
        const lmc_file *const f = b->get_file(b->user, i);
        for (j = 0; list && f && j < f->n_tensors; j++)
            append_new(&list, Py_BuildValue("nN", (Py_ssize_t)i, make_tensor(&f->tensors[j])));
    }
    return end_use(r, list);
}

/* (file number, offset, out, what): out.nbytes bytes of a file of its base. */
static PyObject *reader_read_base(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    const lmc_base *const b = &r->own_base.base;
    unsigned long long offset;
    enum lmc_status status = LMC_ERR_ARGUMENT;
    Py_ssize_t number;
    Py_buffer out;
    PyObject *what, *result = NULL;
    call c;
    if (!PyArg_ParseTuple(args, "nKw*O:read_base", &number, &offset, &out, &what)) return NULL;
    if (begin_reading(r, &c)) {
        if (r->base && number >= 0)
            status = b->read(b->user, (size_t)number, offset, out.buf, (size_t)out.len);
        result = end_reading(r, &c, status, what);
    }
    PyBuffer_Release(&out);
    return result;
}

/* Checks that the box is within the shape, and has exactly out_size bytes, without overflow. */
static int check_box(const box *b, unsigned start_rank, unsigned count_rank, Py_ssize_t out_size)
{
    uint64_t n = b->width, all = b->width;
    unsigned i;
    int is_right =
        start_rank == b->rank && count_rank == b->rank && b->width >= 1 && b->width <= 16;
    for (i = 0; i < b->rank && is_right; i++) {
        is_right = b->count[i] <= b->shape[i] && b->start[i] <= b->shape[i] - b->count[i] &&
                   (b->shape[i] == 0 || all <= (uint64_t)INT64_MAX / b->shape[i]);
        all *= b->shape[i] ? b->shape[i] : 1;
        n *= b->count[i];
    }
    if (is_right && n == (uint64_t)out_size && b->offset <= (uint64_t)INT64_MAX) return 0;
    PyErr_SetString(PyExc_ValueError, "no such part of the tensor, or out has not its size");
    return -1;
}

/* (file number, offset of the tensor, width, shape, start, count, out, what) */
static PyObject *reader_read_box(PyObject *self, PyObject *args)
{
    unsigned long long offset, width;
    PyObject *shape, *start, *count, *what, *result = NULL;
    unsigned start_rank, count_rank;
    Py_ssize_t number;
    Py_buffer out;
    box b;
    if (!PyArg_ParseTuple(args, "nKKOOOw*O:read_box", &number, &offset, &width, &shape, &start,
                          &count, &out, &what))
        return NULL;
    memset(&b, 0, sizeof b);
    b.offset = offset;
    b.width = width;
    if (parse_shape(shape, b.shape, &b.rank) == 0 &&
        parse_shape(start, b.start, &start_rank) == 0 &&
        parse_shape(count, b.count, &count_rank) == 0 &&
        check_box(&b, start_rank, count_rank, out.len) == 0)
        result = read_locked((reader_object *)self, number, &b, out.buf, what);
    PyBuffer_Release(&out);
    return result;
}

/* The stored SHA-256 of the snapshot (is_whole), of a tensor, or (tensor < 0) of the rest of a
 * file. */
static enum lmc_status read_hash(lmc_reader *reader, int is_whole, Py_ssize_t number,
                                 Py_ssize_t tensor, uint8_t hash[32])
{
    const lmc_file *file;
    if (is_whole) return lmc_reader_read_snapshot_hash(reader, hash);
    file = number < 0 ? NULL : lmc_reader_get_file(reader, (size_t)number);
    if (!file || (tensor >= 0 && (size_t)tensor >= file->n_tensors)) return LMC_ERR_ARGUMENT;
    return lmc_reader_read_content_hash(reader, (size_t)number,
                                        tensor < 0 ? NULL : &file->tensors[tensor], hash);
}

static PyObject *make_hash(reader_object *r, int is_whole, Py_ssize_t number, Py_ssize_t tensor)
{
    enum lmc_status status;
    uint8_t hash[32];
    PyObject *const what =
        PyUnicode_FromString("the SHA-256 that Writer(content_hashes=True) stores");
    PyObject *result = NULL;
    call c;
    if (what && begin_reading(r, &c)) {
        status = read_hash(r->reader, is_whole, number, tensor, hash);
        result = end_reading(r, &c, status, what);
    }
    Py_XDECREF(what);
    if (!result) return NULL;
    Py_DECREF(result);
    return PyBytes_FromStringAndSize((const char *)hash, 32);
}

/* (file number, tensor number or -1) -> 32 bytes */
static PyObject *reader_content_hash(PyObject *self, PyObject *args)
{
    Py_ssize_t number, tensor;
    if (!PyArg_ParseTuple(args, "nn:content_hash", &number, &tensor)) return NULL;
    return make_hash((reader_object *)self, 0, number, tensor);
}

/* -> 32 bytes */
static PyObject *reader_snapshot_hash(PyObject *self, PyObject *unused)
{
    (void)unused;
    return make_hash((reader_object *)self, 1, 0, 0);
}

/* -- checking all of a file, from front to back -- */

typedef struct whole_stream {
    reader_object *reader;
    uint64_t position;
    lmc_base itself; /* own predictions are decoded again, because no output is kept */
} whole_stream;

static enum lmc_status read_whole(void *user, void *dst, size_t size, size_t *got)
{
    whole_stream *const s = (whole_stream *)user;
    const uint64_t left = s->reader->source.size - s->position;
    enum lmc_status status;
    *got = (size_t)(left < size ? left : size);
    if (*got == 0) return LMC_OK;
    status = source_read_at(&s->reader->source, s->position, dst, *got);
    s->position += *got;
    return status;
}

static enum lmc_status read_again(void *user, size_t file_number, uint64_t offset, void *dst,
                                  size_t size)
{
    const lmc_base *const itself = &((whole_stream *)user)->itself;
    return itself->read(itself->user, file_number, offset, dst, size);
}

/* What makes links of a snapshot refuses it if their list breaks a rule. */
static enum lmc_status check_links(const lmc_reader *reader)
{
    struct link *links;
    size_t n;
    const enum container_result result = find_links(reader, &links, &n);
    free(links);
    return result == CONTAINER_OK       ? LMC_OK
           : result == CONTAINER_MEMORY ? LMC_ERR_MEMORY
                                        : LMC_ERR_CORRUPT;
}

/* -> whether all content was checked, and whether stored SHA-256 were compared. Both are False for
 * a delta without its base: only payloads were checked. Without stored hashes none are computed,
 * because SHA-256 is slow. */
static PyObject *reader_verify(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    lmc_snapshot_info info;
    enum lmc_status status;
    whole_stream whole;
    lmc_stream stream = LMC_DEFAULTS;
    PyObject *result;
    call c;
    uint8_t hash[32];
    int is_alone = 0, has_hashes = 0;
    (void)unused;
    if (!begin_reading(r, &c)) return NULL;
    status = lmc_reader_get_info(r->reader, &info);
    if (status == LMC_OK) {
        is_alone = info.has_base && !r->base;
        if (!is_alone) status = lmc_reader_read_snapshot_hash(r->reader, hash);
        has_hashes = !is_alone && status == LMC_OK;
        if (status == LMC_ERR_NOT_FOUND) status = LMC_OK;
    }
    if (status == LMC_OK) {
        whole.reader = r;
        whole.position = 0;
        whole.itself = lmc_reader_base(r->reader);
        stream.read = read_whole;
        stream.user = options.user = &whole;
        options.base = r->base ? &r->own_base.base : NULL;
        options.read_back = is_alone ? NULL : read_again;
        options.check_hashes = has_hashes;
        options.max_index_size = r->max_index_size;
        options.parallel = r->source.read ? NULL : pool_parallel(&r->pool);
        status = lmc_snapshot_restore(&stream, NULL, &options);
    }
    if (is_alone && (status == LMC_ERR_BASE_MISSING || status == LMC_ERR_READ_BACK))
        status = LMC_OK;
    if (status == LMC_OK) status = check_links(r->reader);
    result = end_reading(r, &c, status, NULL);
    if (!result) return NULL;
    Py_DECREF(result);
    return Py_BuildValue("(NN)", PyBool_FromLong(!is_alone), PyBool_FromLong(has_hashes));
}

static PyMethodDef reader_methods[] = {
    {"open_again", reader_open_again, METH_VARARGS, NULL},
    {"close", reader_close, METH_NOARGS, NULL},
    {"info", reader_info, METH_NOARGS, NULL},
    {"file", reader_file, METH_VARARGS, NULL},
    {"archives", reader_archives, METH_NOARGS, NULL},
    {"views", reader_views, METH_VARARGS, NULL},
    {"find", reader_find, METH_VARARGS, NULL},
    {"metadata", reader_metadata, METH_NOARGS, NULL},
    {"encoded_size", reader_encoded_size, METH_VARARGS, NULL},
    {"encoded_range", reader_encoded_range, METH_VARARGS, NULL},
    {"file_path", reader_file_path, METH_VARARGS, NULL},
    {"content_hash", reader_content_hash, METH_VARARGS, NULL},
    {"snapshot_hash", reader_snapshot_hash, METH_NOARGS, NULL},
    {"read", reader_read, METH_VARARGS, NULL},
    {"read_box", reader_read_box, METH_VARARGS, NULL},
    {"base_tensors", reader_base_tensors, METH_NOARGS, NULL},
    {"read_base", reader_read_base, METH_VARARGS, NULL},
    {"can_read_in_place", reader_can_read_in_place, METH_VARARGS, NULL},
    {"verify", reader_verify, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot reader_slots[] = {
    {Py_tp_new, (void *)reader_new},           {Py_tp_dealloc, (void *)reader_dealloc},
    {Py_tp_traverse, (void *)reader_traverse}, {Py_tp_clear, (void *)reader_clear},
    {Py_tp_methods, reader_methods},           {0, NULL}};
PyType_Spec reader_spec = {"lmc_codec._lmc.Reader", sizeof(reader_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, reader_slots};
