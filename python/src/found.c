/* found.c - finds tensors in files that are to be compressed
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "formats/container_check.h"
#include "formats/torch.h"

static int read_found(void *user, uint64_t offset, void *dst, size_t size)
{
    return source_read_at(user, offset, dst, size) != LMC_OK;
}

/* A list of (name, dtype, shape, offset, size). */
static PyObject *make_rows(const struct container *c, int is_short)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < c->n_tensors; i++) {
        const lmc_tensor *const t = &c->tensors[i];
        PyObject *name;
        if (is_short && torch_is_description(t) && t->size < TORCH_DESCRIPTION_SIZE) continue;
        name = PyUnicode_FromString(t->name);
        if (!name && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear(); /* a name that is no UTF-8: the tensor is coded as plain bytes */
            continue;
        }
        append_new(&list, !name ? NULL
                                : Py_BuildValue(
                                      "NsNKK", name, t->dtype, make_shape(t->shape, t->rank),
                                      (unsigned long long)t->offset, (unsigned long long)t->size));
    }
    return list;
}

/* (source, size, name, is_short=False) -> (rows, why there are none, or None): the tensors of a
 * safetensors file whose header is in memory, or of a file of torch.save() with this name (without
 * directory). source: as of a Reader; size: of the file. is_short: without the bytes between
 * tensors, unless they are many. */
PyObject *find_tensors(PyObject *module, PyObject *args)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *object, *done, *rows = NULL;
    enum container_result result;
    unsigned long long size;
    struct container c;
    const unsigned char *memory;
    const char *name;
    int is_short = 0;
    file_source source;
    struct view v;
    call read;
    if (!PyArg_ParseTuple(args, "OKs|p:find_tensors", &object, &size, &name, &is_short))
        return NULL;
    memset(&c, 0, sizeof c);
    source_init(&source);
    if (source_open(&source, state, object, size) < 0) return NULL;
    v.size = v.weight = size;
    v.read = read_found;
    v.user = &source;
    source.call = &read;
    call_begin(&read, NULL);
    memory = (const unsigned char *)source.buffer.buf;
    if (source.buffer.obj && source.size > 8 && memory[8] == '{')
        result = container_parse_safetensors(&c, memory, (size_t)source.size, size);
    else result = container_parse_view(&c, &v, name, NULL);
    done = call_end(&read, state, result == CONTAINER_MEMORY ? LMC_ERR_MEMORY : LMC_OK, NULL, NULL);
    if (done) rows = result == CONTAINER_OK ? make_rows(&c, is_short) : PyList_New(0);
    if (rows)
        rows =
            result == CONTAINER_OK
                ? Py_BuildValue("NO", rows, Py_None)
                : Py_BuildValue("NN", rows,
                                make_text(*c.error ? c.error : "it is not a file of torch.save()"));
    Py_XDECREF(done);
    container_free(&c);
    source_free(&source);
    return rows;
}
