/* module.c - the module lmc_codec._lmc
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "formats/refused.h"

/* (callable): it makes exceptions, see lmc_codec._errors. */
static PyObject *set_make_error(PyObject *module, PyObject *callable)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *const old = state->make_error;
    Py_INCREF(callable);
    state->make_error = callable;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* -> {"BF16": (16, 15), ...}: bits of an element, and the dtype's number, by which safetensors
 * sorts. */
static PyObject *dtypes(PyObject *module, PyObject *unused)
{
    PyObject *const result = PyDict_New();
    int i;
    (void)module;
    (void)unused;
    for (i = 1; result && lmc_dtype_name((enum lmc_dtype)i); i++) {
        PyObject *const value = Py_BuildValue("Ii", lmc_dtype_bits((enum lmc_dtype)i), i);
        const int failed =
            !value || PyDict_SetItemString(result, lmc_dtype_name((enum lmc_dtype)i), value) < 0;
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

/* (buffer, buffer) -> 0: no, 1: they overlap, 2: they are the same */
static PyObject *overlaps(PyObject *module, PyObject *args)
{
    Py_buffer a, b;
    int result;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:overlaps", &a, &b)) return NULL;
    result = is_overlap(a.buf, (size_t)a.len, b.buf, (size_t)b.len);
    if (result && a.buf == b.buf && a.len == b.len) result = 2;
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return PyLong_FromLong(result);
}

/* (buffer) -> CRC-32C */
static PyObject *crc32c(PyObject *module, PyObject *data)
{
    Py_buffer view;
    uint32_t crc;
    (void)module;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    crc = lmc_crc32c(0, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* -> lmc_default_workers() */
static PyObject *default_workers(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLong(lmc_default_workers());
}

/* -> (version of lmc.h, of the format, instruction set in use) */
static PyObject *versions(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("sss", lmc_version(), "1.0", lmc_tier_name(lmc_tier_current()));
}

/* (number of a status) -> its name in C */
static PyObject *status_name(PyObject *module, PyObject *number)
{
    const long status = PyLong_AsLong(number);
    (void)module;
    if (PyErr_Occurred()) return NULL;
    return PyUnicode_FromString(lmc_status_name((enum lmc_status)status));
}

/* (name of a call, errno) -> whether the file system lacks the call */
static PyObject *refused(PyObject *module, PyObject *args)
{
    const char *name;
    enum file_call call;
    int error;
    (void)module;
    if (!PyArg_ParseTuple(args, "si:is_refused", &name, &error)) return NULL;
    call = find_file_call(name);
    if (call != CALL_COUNT) return PyBool_FromLong(is_refused(call, error));
    return PyErr_Format(PyExc_ValueError, "no call '%s'", name);
}

static PyMethodDef functions[] = {{"set_make_error", set_make_error, METH_O, NULL},
                                  {"status_name", status_name, METH_O, NULL},
                                  {"dtypes", dtypes, METH_NOARGS, NULL},
                                  {"probe", probe, METH_VARARGS, NULL},
                                  {"find_tensors", find_tensors, METH_VARARGS, NULL},
                                  {"read_at", read_at, METH_VARARGS, NULL},
                                  {"overlaps", overlaps, METH_VARARGS, NULL},
                                  {"crc32c", crc32c, METH_O, NULL},
                                  {"default_workers", default_workers, METH_NOARGS, NULL},
                                  {"versions", versions, METH_NOARGS, NULL},
                                  {"new_bytes", new_bytes, METH_VARARGS, NULL},
                                  {"prepare", prepare, METH_VARARGS, NULL},
                                  {"new_memory", new_memory, METH_VARARGS, NULL},
                                  {"from_dlpack", from_dlpack, METH_VARARGS, NULL},
                                  {"gather", gather, METH_VARARGS, NULL},
                                  {"resolve", resolve, METH_VARARGS, NULL},
                                  {"torch_dtype", torch_dtype, METH_VARARGS, NULL},
                                  {"suffix", suffix, METH_VARARGS, NULL},
                                  {"printable", printable, METH_O, NULL},
                                  {"series_text", series_text, METH_VARARGS, NULL},
                                  {"is_snapshot_name", is_snapshot_name, METH_O, NULL},
                                  {"sort_series", sort_series, METH_VARARGS, NULL},
                                  {"measure_chains", measure_chains, METH_VARARGS, NULL},
                                  {"is_refused", refused, METH_VARARGS, NULL},
                                  {"tensor_encode", (PyCFunction)(void (*)(void))tensor_encode,
                                   METH_VARARGS | METH_KEYWORDS, NULL},
                                  {"tensor_decode", (PyCFunction)(void (*)(void))tensor_decode,
                                   METH_VARARGS | METH_KEYWORDS, NULL},
                                  {"tensor_size", tensor_size, METH_VARARGS, NULL},
                                  {"add_changes", add_changes, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *const type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, (PyTypeObject *)type) == 0) return (PyTypeObject *)type;
    Py_XDECREF(type);
    return NULL;
}

static int module_exec(PyObject *module)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    state->memory_type = add_type(module, &memory_spec);
    state->base_type = add_type(module, &base_spec);
    state->reader_type = add_type(module, &reader_spec);
    state->writer_type = add_type(module, &writer_spec);
    state->quantizer_type = add_type(module, &quantizer_spec);
    state->policy_type = add_type(module, &policy_spec);
    state->cuda_type = add_type(module, &cuda_spec);
    state->descriptor_type = add_type(module, &descriptor_spec);
    state->caught_type = add_type(module, &caught_spec);
    return state->memory_type && state->base_type && state->reader_type && state->writer_type &&
                   state->quantizer_type && state->policy_type && state->cuda_type &&
                   state->descriptor_type && state->caught_type
               ? 0
               : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    if (!state) return 0;
    Py_VISIT(state->make_error);
    Py_VISIT(state->memory_type);
    Py_VISIT(state->base_type);
    Py_VISIT(state->reader_type);
    Py_VISIT(state->writer_type);
    Py_VISIT(state->quantizer_type);
    Py_VISIT(state->policy_type);
    Py_VISIT(state->cuda_type);
    Py_VISIT(state->descriptor_type);
    Py_VISIT(state->caught_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    if (!state) return 0;
    Py_CLEAR(state->make_error);
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->base_type);
    Py_CLEAR(state->reader_type);
    Py_CLEAR(state->writer_type);
    Py_CLEAR(state->quantizer_type);
    Py_CLEAR(state->policy_type);
    Py_CLEAR(state->cuda_type);
    Py_CLEAR(state->descriptor_type);
    Py_CLEAR(state->caught_type);
    return 0;
}

static void module_free(void *module) { (void)module_clear((PyObject *)module); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_lmc",       NULL,
                                        sizeof(module_state),  functions,    slots,
                                        module_traverse,       module_clear, module_free};

PyMODINIT_FUNC PyInit__lmc(void) { return PyModuleDef_Init(&definition); }
