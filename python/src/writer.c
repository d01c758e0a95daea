/* writer.c - Writer: writes an LMC file
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include <errno.h>
#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

/* The output:
 *
 *     file      the library's workers write to the descriptor
 *     bytes     a bytearray of the caller's capacity, which finish() shortens
 *     buffer    the caller's memory
 *     callable  bytes of workers are kept until the next step; then the calling thread passes them
 *               on, so that Python code runs only in this thread */
typedef struct sink {
    descriptor_object *file;
    PyObject *write, *bytes;
    Py_buffer buffer;
    uint8_t *data; /* of bytes and buffer; or the bytes kept for the callable */
    size_t size, cap;
    PyThread_type_lock lock; /* for the kept bytes */
} sink;

typedef struct writer_object {
    PyObject_HEAD lmc_writer *writer;
    sink sink;
    named_base own_base;
    PyObject *base, *progress, *read_back, *where;
    PyObject *input;     /* the reader from which the current call copies, borrowed; or NULL */
    PyObject *kept;      /* a list: quantizers, which must outlive the writer */
    lmc_tensor *tensors; /* of the current file, with the objects to which they point */
    uint64_t *shapes;
    lmc_tensor_hints *hints;
    lmc_twin *twins;
    thread_pool pool;
    object_lock lock;
    call *call;
    long pid;                /* the process that made it */
    volatile int is_aborted; /* set without the lock: then the sink gets nothing more */
} writer_object;

static int raise_forked(const writer_object *w)
{
    PyErr_Format(PyExc_RuntimeError,
                 "the writer belongs to process %ld, which this one was forked from", w->pid);
    return -1;
}

/* Call this after each callback, with or without the GIL. The callback may have aborted the writer,
 * or have forked and returned in the child, where the file belongs to the parent. */
static enum lmc_status may_go_on(writer_object *w)
{
    PyGILState_STATE gil;
    if (LOOK_AT(&w->is_aborted)) return LMC_ERR_CANCELLED;
    if (w->pid == process_id()) return LMC_OK;
    gil = PyGILState_Ensure();
    (void)raise_forked(w);
    (void)call_keep_exception(w->call);
    PyGILState_Release(gil);
    return LMC_ERR_CANCELLED;
}

/* -- the sink -- */

static enum lmc_status write_fd(writer_object *w, const uint8_t *p, size_t size)
{
    while (size != 0) {
        const size_t part = size < ((size_t)1 << 30) ? size : (size_t)1 << 30;
        const enum lmc_status status = may_go_on(w);
        if (status != LMC_OK) return status;
#ifdef _WIN32
        const int n = _write(descriptor_fd(w->sink.file), p, (unsigned)part);
#else
        const ssize_t n = write(descriptor_fd(w->sink.file), p, part);
#endif
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            w->call->os_error = n < 0 ? errno : ENOSPC;
            return LMC_ERR_WRITE;
        }
        p += n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

static enum lmc_status keep(sink *s, const void *data, size_t size)
{
    enum lmc_status status = LMC_OK;
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    if (size > s->cap - s->size) {
        const size_t cap = s->size + size + (s->size + size) / 2;
        uint8_t *const grown = (uint8_t *)realloc(s->data, cap);
        if (grown) {
            s->data = grown;
            s->cap = cap;
        } else status = LMC_ERR_MEMORY;
    }
    if (status == LMC_OK) {
        memcpy(s->data + s->size, data, size);
        s->size += size;
    }
    PyThread_release_lock(s->lock);
    return status;
}

static enum lmc_status sink_write(void *user, const void *data, size_t size)
{
    writer_object *const w = (writer_object *)user;
    sink *const s = &w->sink;
    if (LOOK_AT(&w->is_aborted)) return LMC_ERR_CANCELLED;
    if (size == 0) return LMC_OK;
    if (s->file) return write_fd(w, (const uint8_t *)data, size);
    if (s->write) return keep(s, data, size);
    if (size > s->cap - s->size) return LMC_ERR_DST_TOO_SMALL;
    memcpy(s->data + s->size, data, size);
    s->size += size;
    return LMC_OK;
}

/* With the GIL: passes the kept bytes to the callable. */
static enum lmc_status hand_over(writer_object *w)
{
    sink *const s = &w->sink;
    PyObject *bytes, *result = NULL;
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    bytes = s->size ? PyBytes_FromStringAndSize((const char *)s->data, (Py_ssize_t)s->size) : NULL;
    if (s->size == 0) {
        PyThread_release_lock(s->lock);
        return LMC_OK;
    }
    s->size = 0;
    PyThread_release_lock(s->lock);
    if (bytes) result = PyObject_CallFunctionObjArgs(s->write, bytes, NULL);
    Py_XDECREF(bytes);
    if (!result) return call_keep_exception(w->call);
    Py_DECREF(result);
    return LMC_OK;
}

static enum lmc_status report(void *user, uint64_t done)
{
    writer_object *const w = (writer_object *)user;
    enum lmc_status status = may_go_on(w);
    if (status == LMC_OK && w->sink.write) {
        const PyGILState_STATE gil = PyGILState_Ensure();
        status = hand_over(w);
        PyGILState_Release(gil);
    }
    if (status == LMC_OK) status = call_report(w->call, done);
    return status == LMC_OK ? may_go_on(w) : status;
}

static int sink_open(sink *s, module_state *state, PyObject *object, unsigned long long capacity)
{
    if (object == Py_None) {
        s->bytes = capacity <= (unsigned long long)PY_SSIZE_T_MAX ? make_bytes((Py_ssize_t)capacity)
                                                                  : PyErr_NoMemory();
        if (!s->bytes) return -1;
        s->data = (uint8_t *)PyByteArray_AsString(s->bytes);
        s->cap = (size_t)capacity;
    } else if (PyObject_TypeCheck(object, state->descriptor_type)) {
        Py_INCREF(object);
        s->file = (descriptor_object *)object;
    } else if (PyCallable_Check(object)) {
        s->lock = PyThread_allocate_lock();
        if (!s->lock) {
            PyErr_NoMemory();
            return -1;
        }
        Py_INCREF(object);
        s->write = object;
    } else {
        if (PyObject_GetBuffer(object, &s->buffer, PyBUF_WRITABLE) < 0) return -1;
        s->data = (uint8_t *)s->buffer.buf;
        s->cap = (size_t)s->buffer.len;
    }
    return 0;
}

static void sink_free(sink *s, int is_lost)
{
    if (s->write && !is_lost) free(s->data);
    if (s->buffer.obj) PyBuffer_Release(&s->buffer);
    if (s->lock) PyThread_free_lock(s->lock);
    Py_CLEAR(s->bytes);
    Py_CLEAR(s->write);
    Py_CLEAR(s->file);
}

/* -- steps: each call of the library -- */

/* input: a reader to copy from, or NULL. The writer's lock is taken before those of readers. */
static int begin_step_of(writer_object *w, PyObject *input, call *c)
{
    module_state *const state = state_of(Py_TYPE((PyObject *)w));
    if (lock_acquire(&w->lock) < 0) return -1;
    if (LOOK_AT(&w->is_aborted)) {
        lock_release(&w->lock);
        (void)raise_status(state, LMC_ERR_CANCELLED, w->where, NULL);
        return -1;
    }
    if ((w->pid != process_id() && raise_forked(w) < 0) ||
        lock_chains(state, input, w->base, c) < 0) {
        lock_release(&w->lock);
        return -1;
    }
    w->input = input;
    w->call = c;
    call_begin(c, w->progress);
    return 0;
}

static int begin_step(writer_object *w, call *c) { return begin_step_of(w, NULL, c); }

/* where: the file that an error names */
static PyObject *end_step_at(writer_object *w, call *c, enum lmc_status status, PyObject *where,
                             PyObject *what)
{
    module_state *const state = state_of(Py_TYPE((PyObject *)w));
    PyObject *result;
    if (status == LMC_OK) status = may_go_on(w);
    if (status == LMC_OK && w->sink.write) {
        const PyGILState_STATE gil = PyGILState_Ensure();
        status = hand_over(w);
        PyGILState_Release(gil);
    }
    result = call_end(c, state, status, where, what);
    w->call = NULL;
    unlock_chains(state, w->input, w->base);
    w->input = NULL;
    lock_release(&w->lock);
    return result;
}

static PyObject *end_step(writer_object *w, call *c, enum lmc_status status, PyObject *what)
{
    return end_step_at(w, c, status, w->where, what);
}

static enum lmc_status read_back(void *user, size_t file_number, uint64_t offset, void *dst,
                                 size_t size)
{
    writer_object *const w = (writer_object *)user;
    const PyGILState_STATE gil = PyGILState_Ensure();
    enum lmc_status status = LMC_ERR_READ;
    Py_buffer buffer;
    PyObject *const bytes = PyObject_CallFunction(w->read_back, "nKn", (Py_ssize_t)file_number,
                                                  (unsigned long long)offset, (Py_ssize_t)size);
    if (bytes && PyObject_GetBuffer(bytes, &buffer, PyBUF_SIMPLE) == 0) {
        if ((size_t)buffer.len == size) {
            memcpy(dst, buffer.buf, size);
            status = LMC_OK;
        } else PyErr_SetString(PyExc_OSError, "what was read back has another size");
        PyBuffer_Release(&buffer);
    }
    if (status != LMC_OK) (void)call_keep_exception(w->call);
    Py_XDECREF(bytes);
    PyGILState_Release(gil);
    return status;
}

static int open_writer(writer_object *w, module_state *state, lmc_writer_options *options)
{
    lmc_sink to = LMC_DEFAULTS;
    enum lmc_status status;
    PyObject *result;
    call c;
    int has_base;
    mark_base(state, w->base);
    if (begin_step(w, &c) < 0) return -1;
    PyEval_RestoreThread(c.thread);
    has_base = w->base != NULL;
    if (has_base && get_base(state, w->base, &w->own_base, &w->call, &has_base) < 0) {
        (void)call_keep_exception(&c);
        has_base = -1;
    }
    c.thread = PyEval_SaveThread();
    options->base = has_base == 1 ? &w->own_base.base : NULL;
    options->read_back = w->read_back ? read_back : NULL;
    options->progress = report;
    options->user = w;
    options->parallel = pool_parallel(&w->pool);
    to.write = sink_write;
    to.user = w;
    status = has_base < 0 ? LMC_ERR_CANCELLED : lmc_writer_open(&w->writer, &to, options);
    result = end_step(w, &c, status, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *or_null(PyObject *object)
{
    if (object == Py_None) return NULL;
    Py_INCREF(object);
    return object;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "sink",           "capacity", "base",      "level", "threads", "log2_block", "may_quantize",
        "content_hashes", "progress", "read_back", "where", "without", NULL};
    PyObject *object, *base = Py_None, *progress = Py_None, *back = Py_None, *where = Py_None;
    lmc_writer_options options = LMC_WRITER_OPTIONS();
    unsigned long long capacity = 0, without = 0;
    int level = 0, n_threads = 1, log2_block = 0;
    writer_object *w;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|KOiiippOOOK:Writer", names, &object,
                                     &capacity, &base, &level, &n_threads, &log2_block,
                                     &options.may_quantize, &options.content_hashes, &progress,
                                     &back, &where, &without))
        return NULL;
    options.without = without;
    if (level < LMC_LEVEL_FAST || level > LMC_LEVEL_ARCHIVE || log2_block < 0 || log2_block > 22) {
        PyErr_SetString(PyExc_ValueError, "no such level or size of blocks");
        return NULL;
    }
    w = (writer_object *)PyType_GenericAlloc(type, 0);
    if (!w) return NULL;
    w->pid = process_id();
    w->base = or_null(base);
    w->progress = or_null(progress);
    w->read_back = or_null(back);
    w->where = or_null(where);
    w->kept = PyList_New(0);
    options.level = (enum lmc_level)level;
    options.log2_block = (unsigned)log2_block;
    if (!w->kept || lock_init(&w->lock) < 0 || pool_init(&w->pool, n_threads) < 0 ||
        sink_open(&w->sink, state_of(type), object, capacity) < 0 ||
        open_writer(w, state_of(type), &options) < 0) {
        Py_DECREF(w);
        return NULL;
    }
    return (PyObject *)w;
}

static void free_tensors(writer_object *w)
{
    PyMem_Free(w->tensors);
    PyMem_Free(w->shapes);
    PyMem_Free(w->hints);
    PyMem_Free(w->twins);
    w->tensors = NULL;
    w->shapes = NULL;
    w->hints = NULL;
    w->twins = NULL;
}

static int writer_traverse(PyObject *self, visitproc visit, void *arg)
{
    writer_object *const w = (writer_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(w->base);
    Py_VISIT(w->progress);
    Py_VISIT(w->read_back);
    Py_VISIT(w->sink.write);
    return 0;
}

/* If only a cycle refers to the writer, its callables are not called any more. */
static int writer_clear(PyObject *self)
{
    writer_object *const w = (writer_object *)self;
    Py_CLEAR(w->progress);
    return 0;
}

static void writer_dealloc(PyObject *self)
{
    writer_object *const w = (writer_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    int is_lost;
    PyObject_GC_UnTrack(self);
    is_lost = lock_is_lost(&w->lock); /* half changed, in a forked child: it is not freed */
    if (!is_lost) lmc_writer_free(w->writer);
    pool_free(&w->pool);
    free_tensors(w);
    sink_free(&w->sink, is_lost);
    free_base(&w->own_base);
    Py_CLEAR(w->base);
    Py_CLEAR(w->progress);
    Py_CLEAR(w->read_back);
    Py_CLEAR(w->where);
    Py_CLEAR(w->kept);
    lock_free(&w->lock);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* -- files -- */

/* (name, dtype, shape, offset, size, Quantizer or None, twin or None); a twin is (file number,
 * offset, conversion). */
static int take_tensor(writer_object *w, size_t i, PyObject *tuple)
{
    lmc_tensor *const t = &w->tensors[i];
    module_state *const state = state_of(Py_TYPE((PyObject *)w));
    PyObject *quantizer, *twin;
    unsigned long long offset, size;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 7 ||
        parse_tensor(tuple, t, w->shapes + LMC_MAX_RANK * i) < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a tensor is a tuple of 7");
        return -1;
    }
    offset = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, 3));
    if (PyErr_Occurred()) return -1;
    size = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, 4));
    if (PyErr_Occurred()) return -1;
    t->offset = offset;
    t->size = size;
    quantizer = PyTuple_GetItem(tuple, 5);
    if (quantizer != Py_None) {
        if (!PyObject_TypeCheck(quantizer, state->quantizer_type)) {
            PyErr_SetString(PyExc_TypeError, "not a Quantizer");
            return -1;
        }
        w->hints[i].quantizer = quantizer_of(quantizer);
        if (PyList_Append(w->kept, quantizer) < 0) return -1;
    }
    twin = PyTuple_GetItem(tuple, 6);
    if (twin != Py_None) {
        Py_ssize_t number;
        int conversion;
        if (!PyTuple_Check(twin)) {
            PyErr_SetString(PyExc_TypeError, "a twin is a tuple of 3");
            return -1;
        }
        if (!PyArg_ParseTuple(twin, "nKi:twin", &number, &offset, &conversion)) return -1;
        w->twins[i].file_number = (size_t)number;
        w->twins[i].offset = offset;
        w->twins[i].conversion = (enum lmc_conversion)conversion;
        w->hints[i].twin = &w->twins[i];
    }
    return check_tensor_size(t->name, t->dtype, t->shape, t->rank, t->size);
}

static int take_tensors(writer_object *w, PyObject *tuples)
{
    const size_t n = (size_t)PyTuple_Size(tuples);
    size_t i;
    free_tensors(w);
    w->tensors = (lmc_tensor *)PyMem_Calloc(n + 1, sizeof *w->tensors);
    w->shapes = (uint64_t *)PyMem_Calloc(n + 1, LMC_MAX_RANK * sizeof *w->shapes);
    w->hints = (lmc_tensor_hints *)PyMem_Calloc(n + 1, sizeof *w->hints);
    w->twins = (lmc_twin *)PyMem_Calloc(n + 1, sizeof *w->twins);
    if (!w->tensors || !w->shapes || !w->hints || !w->twins) {
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; i < n; i++)
        if (take_tensor(w, i, PyTuple_GetItem(tuples, (Py_ssize_t)i)) < 0) return -1;
    return 0;
}

/* mode: -1 if there is none; mtime: nanoseconds, or None. */
static void set_attributes(lmc_file *file, long mode, PyObject *mtime)
{
    if (mode >= 0) {
        file->has_mode = 1;
        file->mode = (uint32_t)mode & 07777;
    }
    if (mtime != Py_None) {
        const long long ns = PyLong_AsLongLong(mtime);
        file->has_mtime = 1;
        file->mtime_ns = (uint32_t)((ns % 1000000000 + 1000000000) % 1000000000);
        file->mtime_s = (ns - (long long)file->mtime_ns) / 1000000000;
    }
}

static PyObject *writer_begin_file(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "size", "tensors", "dtype", "kind", "mode", "mtime_ns", NULL};
    writer_object *const w = (writer_object *)self;
    const char *path, *dtype = "AUTO";
    PyObject *tensors, *tuples, *what, *mtime = Py_None, *result = NULL;
    long long size;
    long mode = -1;
    int kind = 0, number;
    lmc_file file;
    size_t i;
    call c;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sLO|silO:begin_file", names, &path, &size,
                                     &tensors, &dtype, &kind, &mode, &mtime))
        return NULL;
    memset(&file, 0, sizeof file);
    file.path = path;
    file.kind = (enum lmc_file_kind)kind;
    file.size = size < 0 ? LMC_UNKNOWN_SIZE : (uint64_t)size;
    set_attributes(&file, mode, mtime);
    number = (int)parse_dtype(dtype);
    if (PyErr_Occurred()) return NULL;
    tuples = PySequence_Tuple(tensors);
    if (!tuples) return NULL;
    what = PyUnicode_FromString(path);
    if (what && begin_step(w, &c) == 0) {
        enum lmc_status status = LMC_ERR_CANCELLED;
        PyEval_RestoreThread(c.thread);
        if (take_tensors(w, tuples) == 0) status = LMC_OK;
        else (void)call_keep_exception(&c);
        c.thread = PyEval_SaveThread();
        file.n_tensors = (size_t)PyTuple_Size(tuples);
        file.tensors = w->tensors;
        for (i = 0; i < file.n_tensors && status == LMC_OK; i++)
            if (w->hints[i].twin || w->hints[i].quantizer)
                status = lmc_writer_add_hints(w->writer, i, &w->hints[i]);
        if (status == LMC_OK)
            status = lmc_writer_begin_file(w->writer, &file, (enum lmc_dtype)number);
        result = end_step(w, &c, status, what);
    }
    Py_XDECREF(what);
    Py_DECREF(tuples);
    return result;
}

static PyObject *writer_write(PyObject *self, PyObject *args)
{
    writer_object *const w = (writer_object *)self;
    PyObject *what = NULL, *result = NULL;
    Py_buffer data;
    call c;
    if (!PyArg_ParseTuple(args, "y*|O:write", &data, &what)) return NULL;
    if (w->sink.buffer.obj &&
        is_overlap(data.buf, (size_t)data.len, w->sink.buffer.buf, (size_t)w->sink.buffer.len))
        PyErr_SetString(PyExc_ValueError, "out overlaps the input");
    else if (begin_step(w, &c) == 0)
        result = end_step(w, &c, lmc_writer_write(w->writer, data.buf, (size_t)data.len), what);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *writer_end_file(PyObject *self, PyObject *unused)
{
    writer_object *const w = (writer_object *)self;
    call c;
    (void)unused;
    if (begin_step(w, &c) < 0) return NULL;
    return end_step(w, &c, lmc_writer_end_file(w->writer), NULL);
}

static PyObject *writer_add_metadata(PyObject *self, PyObject *args)
{
    writer_object *const w = (writer_object *)self;
    const char *key;
    Py_buffer value;
    PyObject *result = NULL;
    call c;
    if (!PyArg_ParseTuple(args, "sy*:add_metadata", &key, &value)) return NULL;
    if (begin_step(w, &c) == 0)
        result = end_step(
            w, &c, lmc_writer_add_metadata(w->writer, key, value.buf, (size_t)value.len), NULL);
    PyBuffer_Release(&value);
    return result;
}

/* Whether an error of copying comes from the reader, not from the writer or its base. */
static int is_of_input(const writer_object *w, enum lmc_status status)
{
    return (status == LMC_ERR_READ || status >= LMC_ERR_NOT_LMC) &&
           !LOOK_AT(&w->own_base.has_failed);
}

/* (Reader, file number) */
static PyObject *writer_copy_file(PyObject *self, PyObject *args)
{
    writer_object *const w = (writer_object *)self;
    module_state *const state = state_of(Py_TYPE(self));
    PyObject *reader, *result = NULL;
    Py_ssize_t number;
    call c;
    if (!PyArg_ParseTuple(args, "O!n:copy_file", state->reader_type, &reader, &number)) return NULL;
    if (reader == w->base) {
        PyErr_SetString(PyExc_ValueError, "the base itself cannot be copied from: open it again");
        return NULL;
    }
    if (begin_step_of(w, reader, &c) == 0) {
        const enum lmc_status status =
            number < 0 || !reader_of(reader)
                ? LMC_ERR_ARGUMENT
                : lmc_writer_copy_file(w->writer, reader_of(reader), (size_t)number);
        result = end_step_at(w, &c, status,
                             is_of_input(w, status) ? reader_where(reader) : w->where, NULL);
    }
    return result;
}

/* -> (bytearray or the number of bytes, fingerprint). The bytearray is shortened; the rest was
 * never written, so the system has allocated no memory for it. */
static PyObject *writer_finish(PyObject *self, PyObject *unused)
{
    writer_object *const w = (writer_object *)self;
    lmc_writer_info info;
    PyObject *result, *bytes;
    call c;
    (void)unused;
    memset(&info, 0, sizeof info);
    if (begin_step(w, &c) < 0) return NULL;
    {
        enum lmc_status status = lmc_writer_finish(w->writer);
        if (status == LMC_OK) status = lmc_writer_get_info(w->writer, &info);
        result = end_step(w, &c, status, NULL);
    }
    if (!result) return NULL;
    Py_DECREF(result);
    bytes = w->sink.bytes;
    w->sink.bytes = NULL;
    if (bytes) {
        const size_t size = w->sink.size;
        w->sink.cap = w->sink.size = 0;
        if (PyByteArray_Resize(bytes, (Py_ssize_t)size) < 0) {
            Py_DECREF(bytes);
            return NULL;
        }
    } else bytes = PyLong_FromUnsignedLongLong(info.size);
    return Py_BuildValue(
        "NN", bytes,
        PyBytes_FromStringAndSize((const char *)info.fingerprint, LMC_FINGERPRINT_SIZE));
}

/* May be called by any thread and any callback. The current call then ends with
 * LMC_ERR_CANCELLED. */
static PyObject *writer_abort(PyObject *self, PyObject *unused)
{
    (void)unused;
    SET(&((writer_object *)self)->is_aborted, 1);
    Py_RETURN_NONE;
}

static PyMethodDef writer_methods[] = {{"begin_file",
                                        (PyCFunction)(void (*)(void))writer_begin_file,
                                        METH_VARARGS | METH_KEYWORDS, NULL},
                                       {"write", writer_write, METH_VARARGS, NULL},
                                       {"end_file", writer_end_file, METH_NOARGS, NULL},
                                       {"add_metadata", writer_add_metadata, METH_VARARGS, NULL},
                                       {"copy_file", writer_copy_file, METH_VARARGS, NULL},
                                       {"finish", writer_finish, METH_NOARGS, NULL},
                                       {"abort", writer_abort, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot writer_slots[] = {
    {Py_tp_new, (void *)writer_new},           {Py_tp_dealloc, (void *)writer_dealloc},
    {Py_tp_traverse, (void *)writer_traverse}, {Py_tp_clear, (void *)writer_clear},
    {Py_tp_methods, writer_methods},           {0, NULL}};
PyType_Spec writer_spec = {"lmc_codec._lmc.Writer", sizeof(writer_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, writer_slots};
