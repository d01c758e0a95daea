/* quantizer.c - Quantizer: how a tensor is quantised
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

typedef struct quantizer_object {
    PyObject_HEAD lmc_quantizer *quantizer;
    PyObject *second; /* the quantizer of the second moment, or NULL */
} quantizer_object;

const lmc_quantizer *quantizer_of(PyObject *quantizer)
{
    return ((const quantizer_object *)quantizer)->quantizer;
}

static void set_elements(file_source *s, call *c, Py_buffer *buffer, lmc_source *elements)
{
    source_init(s);
    s->buffer = *buffer;
    s->size = (uint64_t)buffer->len;
    s->call = c;
    memset(elements, 0, sizeof *elements);
    elements->read_at = source_read_at;
    elements->user = s;
    elements->size = s->size;
}

static int fit(quantizer_object *q, module_state *state, lmc_quantizer_options *options,
               Py_buffer *elements, Py_buffer *second)
{
    file_source first_source, second_source;
    lmc_source source, seconds;
    enum lmc_status status;
    PyObject *result;
    call c;
    set_elements(&first_source, &c, elements, &source);
    if (second->obj) {
        set_elements(&second_source, &c, second, &seconds);
        options->second_elements = &seconds;
    }
    call_begin(&c, NULL);
    status = lmc_quantizer_fit(&q->quantizer, &source, options);
    result = call_end(&c, state, status, NULL, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* (elements, dtype, role, bits, n_codes, measure, bound, group, eps, second, second_quantizer) */
static PyObject *quantizer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"elements", "dtype", "role", "bits",   "n_codes",          "measure",
                            "bound",    "group", "eps",  "second", "second_quantizer", NULL};
    module_state *const state = state_of(type);
    lmc_quantizer_options options = LMC_QUANTIZER_OPTIONS();
    PyObject *object, *second = Py_None, *second_quantizer = Py_None;
    Py_buffer elements, second_buffer;
    quantizer_object *q;
    const char *dtype;
    int role, bits, n_codes, measure, result = -1;
    unsigned long long group = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Osiiiid|KdOO:Quantizer", names, &object, &dtype,
                                     &role, &bits, &n_codes, &measure, &options.bound, &group,
                                     &options.eps, &second, &second_quantizer))
        return NULL;
    memset(&second_buffer, 0, sizeof second_buffer);
    options.dtype = parse_dtype(dtype);
    if (PyErr_Occurred()) return NULL;
    if (role < 0 || role > 2 || measure < 0 || measure > 3 || bits < 0 || bits > 8 || n_codes < 0 ||
        n_codes > 256 ||
        (second_quantizer != Py_None && !PyObject_TypeCheck(second_quantizer, type)))
        return raise_status(state, LMC_ERR_ARGUMENT, NULL, NULL);
    options.role = (enum lmc_role)role;
    options.bits = (unsigned)bits;
    options.n_codes = (unsigned)n_codes;
    options.measure = (enum lmc_measure)measure;
    options.group = group;
    if (second_quantizer != Py_None) options.second = quantizer_of(second_quantizer);
    if (PyObject_GetBuffer(object, &elements, PyBUF_SIMPLE) < 0) return NULL;
    q = (quantizer_object *)PyType_GenericAlloc(type, 0);
    if (q && (second == Py_None || PyObject_GetBuffer(second, &second_buffer, PyBUF_SIMPLE) == 0)) {
        if (second_quantizer != Py_None) {
            Py_INCREF(second_quantizer);
            q->second = second_quantizer;
        }
        result = fit(q, state, &options, &elements, &second_buffer);
    }
    PyBuffer_Release(&elements);
    if (second_buffer.obj) PyBuffer_Release(&second_buffer);
    if (result < 0) Py_CLEAR(q);
    return (PyObject *)q;
}

static void quantizer_dealloc(PyObject *self)
{
    quantizer_object *const q = (quantizer_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    lmc_quantizer_free(q->quantizer);
    Py_CLEAR(q->second);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* -> (lossless, reason, bits for each element, measure, error) */
static PyObject *quantizer_info(PyObject *self, PyObject *unused)
{
    lmc_quantizer_info info;
    const enum lmc_status status = lmc_quantizer_get_info(quantizer_of(self), &info);
    (void)unused;
    if (status != LMC_OK) return raise_status(state_of(Py_TYPE(self)), status, NULL, NULL);
    return Py_BuildValue("Nsdid", PyBool_FromLong(info.is_lossless), info.reason, info.bits,
                         (int)info.loss.measure, info.loss.error);
}

static PyMethodDef quantizer_methods[] = {{"info", quantizer_info, METH_NOARGS, NULL},
                                          {NULL, NULL, 0, NULL}};
static PyType_Slot quantizer_slots[] = {{Py_tp_new, (void *)quantizer_new},
                                        {Py_tp_dealloc, (void *)quantizer_dealloc},
                                        {Py_tp_methods, quantizer_methods},
                                        {0, NULL}};
PyType_Spec quantizer_spec = {"lmc_codec._lmc.Quantizer", sizeof(quantizer_object), 0,
                              Py_TPFLAGS_DEFAULT, quantizer_slots};
