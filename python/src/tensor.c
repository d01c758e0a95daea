/* tensor.c - tensors without a file (layer 2 of lmc.h): encoding, decoding, adding changes
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

typedef struct coding {
    lmc_tensor_options options;
    thread_pool pool;
    Py_buffer data, out, base;
} coding;

static void end_coding(coding *x)
{
    if (x->data.obj) PyBuffer_Release(&x->data);
    if (x->out.obj) PyBuffer_Release(&x->out);
    if (x->base.obj) PyBuffer_Release(&x->base);
    pool_free(&x->pool);
}

static int begin_coding(coding *x, PyObject *data, PyObject *base, PyObject *out, int n_threads)
{
    if (pool_init(&x->pool, n_threads) < 0) return -1;
    x->options.parallel = pool_parallel(&x->pool);
    if (PyObject_GetBuffer(data, &x->data, PyBUF_SIMPLE) < 0 ||
        (out != Py_None && PyObject_GetBuffer(out, &x->out, PyBUF_WRITABLE) < 0) ||
        (base != Py_None && PyObject_GetBuffer(base, &x->base, PyBUF_SIMPLE) < 0))
        return -1;
    if (x->base.obj) {
        x->options.prediction = x->base.buf;
        x->options.prediction_size = (uint64_t)x->base.len;
    }
    if (!is_overlap(x->data.buf, (size_t)x->data.len, x->out.buf, (size_t)x->out.len)) return 0;
    PyErr_SetString(PyExc_ValueError, "out overlaps the input");
    return -1;
}

/* (data, dtype, base, out, level, threads, log2_block) -> bytearray; with out, the number of
 * bytes */
PyObject *tensor_encode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "dtype", "base", "out", "level", "threads", "log2_block", NULL};
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *data, *base = Py_None, *out = Py_None, *bytes = NULL, *result = NULL;
    int level = 0, n_threads = 1, log2_block = 0;
    const char *dtype;
    uint64_t bound;
    size_t size = 0;
    coding x;
    call c;
    memset(&x, 0, sizeof x);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os|OOiii:tensor_encode", names, &data, &dtype,
                                     &base, &out, &level, &n_threads, &log2_block))
        return NULL;
    x.options.dtype = parse_dtype(dtype);
    if (PyErr_Occurred()) return NULL;
    if (level < LMC_LEVEL_FAST || level > LMC_LEVEL_ARCHIVE || log2_block < 0 || log2_block > 22) {
        PyErr_SetString(PyExc_ValueError, "no such level or size of blocks");
        return NULL;
    }
    x.options.level = (enum lmc_level)level;
    x.options.log2_block = (unsigned)log2_block;
    if (begin_coding(&x, data, base, out, n_threads) < 0) goto end;
    if (is_overlap(x.base.buf, (size_t)x.base.len, x.out.buf, (size_t)x.out.len)) {
        PyErr_SetString(PyExc_ValueError, "out overlaps the base");
        goto end;
    }
    bound = lmc_tensor_bound((size_t)x.data.len, &x.options);
    if (bound > (uint64_t)PY_SSIZE_T_MAX) {
        raise_status(state, LMC_ERR_ARGUMENT, NULL, NULL);
        goto end;
    }
    if (out == Py_None) bytes = make_bytes((Py_ssize_t)bound);
    if (out == Py_None && !bytes) goto end;
    call_begin(&c, NULL);
    {
        const enum lmc_status status =
            lmc_tensor_encode(bytes ? PyByteArray_AsString(bytes) : x.out.buf,
                              bytes ? (size_t)bound : (size_t)x.out.len, &size, x.data.buf,
                              (size_t)x.data.len, &x.options, NULL, 0);
        result = call_end(&c, state, status, NULL, NULL);
    }
    if (result && bytes) {
        Py_DECREF(result);
        result = PyByteArray_Resize(bytes, (Py_ssize_t)size) < 0 ? NULL : bytes;
        if (result) bytes = NULL;
    } else if (result) {
        Py_DECREF(result);
        result = PyLong_FromSize_t(size);
    }
end:
    Py_XDECREF(bytes);
    end_coding(&x);
    return result;
}

/* *total: decoded bytes of the blocks at data, up to the first wrong header. Sets log2_block so
 * that a worker has room for the largest block: as if its elements were bytes, which takes the
 * most. */
static enum lmc_status measure(const Py_buffer *data, lmc_tensor_options *options, uint64_t *total)
{
    enum lmc_status status = LMC_OK;
    uint32_t number = 0;
    Py_ssize_t at = 0;
    *total = 0;
    options->log2_block = 14;
    for (; at < data->len && status == LMC_OK; number++) {
        const size_t left = (size_t)(data->len - at);
        lmc_block_info info;
        status = lmc_block_parse((const char *)data->buf + at, left, number, &info);
        if (status == LMC_OK && info.encoded_size > left) status = LMC_ERR_TRUNCATED;
        if (status != LMC_OK) break;
        at += (Py_ssize_t)info.encoded_size;
        *total += info.size; /* at most 2^22 for each 25 bytes: does not overflow */
        while (((size_t)1 << options->log2_block) < info.size) options->log2_block++;
    }
    return status;
}

/* (data, out, base, offset, total_size, threads): fills out with bytes of the tensor from offset
 * on. A whole tensor may be decoded over its base. */
PyObject *tensor_decode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "out", "base", "offset", "total_size", "threads", NULL};
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *data, *out, *base = Py_None, *result = NULL;
    long long offset = 0, total = -1;
    uint64_t found;
    int n_threads = 1;
    coding x;
    call c;
    memset(&x, 0, sizeof x);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OLLi:tensor_decode", names, &data, &out,
                                     &base, &offset, &total, &n_threads))
        return NULL;
    if (begin_coding(&x, data, base, out, n_threads) < 0) goto end;
    if (!x.out.obj || offset < 0) {
        PyErr_SetString(PyExc_ValueError, "out is missing, or offset is below zero");
        goto end;
    }
    if (total < 0) total = x.out.len;
    if (is_overlap(x.base.buf, (size_t)x.base.len, x.out.buf, (size_t)x.out.len) &&
        (x.base.buf != x.out.buf || offset != 0 || total != x.out.len)) {
        PyErr_SetString(PyExc_ValueError, "out is a part of the base, not all of it");
        goto end;
    }
    call_begin(&c, NULL);
    {
        enum lmc_status status;
        (void)measure(&x.data, &x.options, &found); /* decoding finds a wrong header again */
        status =
            lmc_tensor_decode_range(x.out.buf, (size_t)x.out.len, x.data.buf, (size_t)x.data.len,
                                    (uint64_t)offset, (uint64_t)total, &x.options, NULL, 0);
        result = call_end(&c, state, status, NULL, NULL);
    }
end:
    end_coding(&x);
    return result;
}

/* (data) -> decoded bytes of its blocks */
PyObject *tensor_size(PyObject *module, PyObject *args)
{
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(LMC_AUTO);
    enum lmc_status status;
    uint64_t total;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*:tensor_size", &data)) return NULL;
    status = measure(&data, &options, &total);
    PyBuffer_Release(&data);
    if (status != LMC_OK)
        return raise_status((module_state *)PyModule_GetState(module), status, NULL, NULL);
    return PyLong_FromUnsignedLongLong(total);
}

/* Calls lmc_changes_add for elements that are numbered from `first` on. is_wide: widens the indices
 * to 8 bytes each, in place. */
static void number_changes(enum lmc_status *status, lmc_changes *changes, const Py_buffer *now,
                           const Py_buffer *before, unsigned width, uint64_t first, int is_wide,
                           size_t *n_compared)
{
    uint8_t *const at = (uint8_t *)changes->indices;
    size_t i;
    *status = lmc_changes_add(changes, now->buf, before->buf, (size_t)now->len / width, width,
                              is_wide ? 0 : (uint32_t)first, n_compared);
    for (i = changes->n;
         is_wide &&
         i-- > 0;) { /* from the last to the first, so none is overwritten before it is read */
        uint32_t number;
        int64_t index;
        memcpy(&number, at + 4 * i, 4);
        index = (int64_t)(first + number);
        memcpy(at + 8 * i, &index, 8);
    }
}

/* (now, before, width, first, indices, is_wide, values, n) -> (n_compared, n): appends the indices
 * of elements that differ, of 4 or (is_wide) 8 bytes, and their new values, after n others. Ends
 * early if there is no room. */
PyObject *add_changes(PyObject *module, PyObject *args)
{
    lmc_changes changes;
    Py_buffer now, before, indices, values;
    unsigned long long first;
    unsigned width;
    Py_ssize_t n, cap = 0;
    size_t n_compared = 0;
    int is_wide;
    enum lmc_status status = LMC_ERR_ARGUMENT;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*IKw*pw*n:add_changes", &now, &before, &width, &first, &indices,
                          &is_wide, &values, &n))
        return NULL;
    if (width > 0) cap = values.len / (Py_ssize_t)width;
    if (cap > indices.len / (is_wide ? 8 : 4)) cap = indices.len / (is_wide ? 8 : 4);
    if (now.len == before.len && (uintptr_t)indices.buf % 4 == 0 && cap > 0 && n >= 0 && n <= cap &&
        (is_wide || first <= INT32_MAX)) {
        changes.indices = (uint32_t *)(void *)((uint8_t *)indices.buf + n * (is_wide ? 8 : 4));
        changes.values = (uint8_t *)values.buf + n * (Py_ssize_t)width;
        changes.cap = (size_t)(cap - n);
        changes.n = 0;
        status = LMC_OK;
        if (n < cap) {
            Py_BEGIN_ALLOW_THREADS(void) number_changes(&status, &changes, &now, &before, width,
                                                        first, is_wide, &n_compared);
            Py_END_ALLOW_THREADS
        }
        n += (Py_ssize_t)changes.n;
    }
    PyBuffer_Release(&now);
    PyBuffer_Release(&before);
    PyBuffer_Release(&indices);
    PyBuffer_Release(&values);
    if (status == LMC_OK) return Py_BuildValue("nn", (Py_ssize_t)n_compared, n);
    PyErr_SetString(PyExc_ValueError, "no such elements, or no room for them");
    return NULL;
}
