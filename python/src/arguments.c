/* arguments.c - arguments that describe tensors: names, dtypes, shapes, sizes; results of them
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

enum lmc_dtype parse_dtype(const char *name)
{
    const enum lmc_dtype dtype = lmc_dtype_find(name);
    if (dtype == LMC_AUTO && strcmp(name, "AUTO") != 0) {
        PyObject *const shown = make_printable(name);
        if (shown) PyErr_Format(PyExc_ValueError, "no dtype is called '%U'", shown);
        Py_XDECREF(shown);
    }
    return dtype;
}

int parse_shape(PyObject *object, uint64_t shape[LMC_MAX_RANK], unsigned *rank)
{
    PyObject *const tuple = PySequence_Tuple(object);
    Py_ssize_t i, n;
    if (!tuple) return -1;
    n = PyTuple_Size(tuple);
    if (n > LMC_MAX_RANK) PyErr_SetString(PyExc_ValueError, "more than 32 dimensions");
    for (i = 0; i < n && !PyErr_Occurred(); i++)
        shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    *rank = (unsigned)n;
    Py_DECREF(tuple);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *make_shape(const uint64_t *shape, unsigned rank)
{
    PyObject *const tuple = PyTuple_New((Py_ssize_t)rank);
    unsigned i;
    for (i = 0; tuple && i < rank; i++) {
        PyObject *const n = PyLong_FromUnsignedLongLong(shape[i]);
        if (!n || PyTuple_SetItem(tuple, (Py_ssize_t)i, n) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

void append_new(PyObject **list, PyObject *item)
{
    if (!*list || !item || PyList_Append(*list, item) < 0) Py_CLEAR(*list);
    Py_XDECREF(item);
}

static const char *get_text(PyObject *object)
{
    Py_ssize_t size;
    const char *const text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text && strlen(text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "a name with a NUL in it");
        return NULL;
    }
    return text;
}

int parse_tensor(PyObject *tuple, lmc_tensor *tensor, uint64_t shape[LMC_MAX_RANK])
{
    tensor->name = get_text(PyTuple_GetItem(tuple, 0));
    tensor->dtype = tensor->name ? get_text(PyTuple_GetItem(tuple, 1)) : NULL;
    if (!tensor->dtype) return -1;
    tensor->shape = shape;
    return parse_shape(PyTuple_GetItem(tuple, 2), shape, &tensor->rank);
}

int check_tensor_size(const char *name, const char *dtype, const uint64_t *shape, unsigned rank,
                      uint64_t size)
{
    const enum lmc_dtype number = lmc_dtype_find(dtype);
    const uint64_t bits = lmc_dtype_bits(number);
    PyObject *shown;
    uint64_t n = 1;
    unsigned i;
    int is_empty = 0;
    if (number == LMC_AUTO) return 0;
    for (i = 0; i < rank; i++) is_empty |= shape[i] == 0;
    for (i = 0; i < rank && !is_empty; i++) {
        if (shape[i] > ((uint64_t)1 << 56) / n) break;
        n *= shape[i];
    }
    if (is_empty) n = 0;
    else if (i < rank || n * bits % 8 != 0) n = UINT64_MAX / bits;
    if (n * bits / 8 == size) return 0;
    shown = make_printable(name);
    if (shown)
        PyErr_Format(PyExc_ValueError, "tensor '%U': %llu bytes are not what its shape and %s make",
                     shown, (unsigned long long)size, dtype); /* the dtype is a known one */
    Py_XDECREF(shown);
    return -1;
}

int is_overlap(const void *a, size_t a_size, const void *b, size_t b_size)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_size && b_size && x < y + b_size && y < x + a_size;
}
