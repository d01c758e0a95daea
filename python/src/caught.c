/* caught.c - Caught: a callable that remembers the exceptions of another
 * SPDX-License-Identifier: MIT
 *
 * For callbacks of programs that hide exceptions. A try statement in the callback would come too
 * late: an exception of a signal handler may be raised before its first bytecode. After the first
 * exception a call does nothing: it may come from a destructor of C++, where another exception
 * would end the process. */
#include "common.h"

typedef struct caught_object {
    PyObject_HEAD PyObject *function, *errors;
} caught_object;

/* (function, a list that gets the exceptions) */
static PyObject *caught_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function, *errors;
    caught_object *c;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Caught takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO!:Caught", &function, &PyList_Type, &errors)) return NULL;
    c = (caught_object *)PyType_GenericAlloc(type, 0);
    if (!c) return NULL;
    Py_INCREF(function);
    Py_INCREF(errors);
    c->function = function;
    c->errors = errors;
    return (PyObject *)c;
}

static PyObject *caught_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const caught_object *const c = (const caught_object *)self;
    PyObject *type, *value, *traceback, *result;
    if (PyList_Size(c->errors) > 0) Py_RETURN_NONE;
    result = PyObject_Call(c->function, args, kwargs);
    if (result) return result;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) (void)PyException_SetTraceback(value, traceback);
    if (PyList_Append(c->errors, value) < 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static int caught_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((caught_object *)self)->function);
    Py_VISIT(((caught_object *)self)->errors);
    return 0;
}

static int caught_clear(PyObject *self)
{
    Py_CLEAR(((caught_object *)self)->function);
    Py_CLEAR(((caught_object *)self)->errors);
    return 0;
}

static void caught_dealloc(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)caught_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot caught_slots[] = {
    {Py_tp_new, (void *)caught_new},         {Py_tp_call, (void *)caught_call},
    {Py_tp_dealloc, (void *)caught_dealloc}, {Py_tp_traverse, (void *)caught_traverse},
    {Py_tp_clear, (void *)caught_clear},     {0, NULL}};
PyType_Spec caught_spec = {"lmc_codec._lmc.Caught", sizeof(caught_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, caught_slots};
