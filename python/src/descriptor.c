/* descriptor.c - Descriptor: the one owner of a file descriptor
 * SPDX-License-Identifier: MIT
 *
 * A signal handler may raise an exception between any two bytecodes of Python. If a descriptor were
 * a number there, the exception would lose it, or two cleanups would close it; the second close may
 * hit a file that another thread has opened meanwhile. So it is never a number in a variable: this
 * object calls os.open() itself and has its result before the next bytecode, and all users of the
 * descriptor refer to the object. It is closed by close(), or when nobody refers to it any more.
 *
 * The same holds for the name of a temporary file: the file is removed with its descriptor, unless
 * the name was taken away before. */
#include "common.h"

#include <errno.h>
#ifdef _WIN32
#include <io.h>
#define close _close
#else
#include <unistd.h>
#endif

struct descriptor_object {
    PyObject_HEAD int fd; /* -1: closed */
    long pid;             /* the process that made it: a forked child removes nothing */
    PyObject *temporary;  /* a path, as str; or NULL */
};

int descriptor_fd(const descriptor_object *d) { return d->fd; }

static int close_now(descriptor_object *d)
{
    const int fd = d->fd;
    int result = 0;
    d->fd = -1;
    if (fd >= 0) {
        Py_BEGIN_ALLOW_THREADS result = close(fd) < 0 && errno != EINTR ? errno : 0;
        Py_END_ALLOW_THREADS
    }
    return result;
}

/* Removes the temporary file. It is no error if it does not exist: its name may have been given
 * before the file, and taken away after it was renamed. */
static void remove_temporary(descriptor_object *d)
{
    PyObject *const path = d->temporary;
    d->temporary = NULL;
    if (!path) return;
    if (d->pid == process_id()) {
#ifdef _WIN32
        wchar_t *const name = PyUnicode_AsWideCharString(path, NULL);
        if (name) (void)_wunlink(name);
        PyMem_Free(name);
#else
        PyObject *const name = PyUnicode_EncodeFSDefault(path);
        if (name) (void)unlink(PyBytes_AsString(name));
        Py_XDECREF(name);
#endif
        PyErr_Clear();
    }
    Py_DECREF(path);
}

static int set_temporary(PyObject *self, PyObject *value, void *unused)
{
    descriptor_object *const d = (descriptor_object *)self;
    PyObject *const old = d->temporary;
    (void)unused;
    if (value && value != Py_None && !PyUnicode_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "the path is a str, or None");
        return -1;
    }
    d->temporary = NULL;
    if (value && value != Py_None) {
        Py_INCREF(value);
        d->temporary = value;
    }
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_temporary(PyObject *self, void *unused)
{
    PyObject *const path = ((const descriptor_object *)self)->temporary;
    PyObject *const result = path ? path : Py_None;
    (void)unused;
    Py_INCREF(result);
    return result;
}

/* (function, *arguments, temporary=None) */
static PyObject *descriptor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const Py_ssize_t n = PyTuple_Size(args);
    PyObject *rest, *number;
    descriptor_object *d;
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "the function that returns a descriptor is missing");
        return NULL;
    }
    d = (descriptor_object *)PyType_GenericAlloc(type, 0);
    if (!d) return NULL;
    d->fd = -1;
    d->pid = process_id();
    rest = PyTuple_GetSlice(args, 1, n);
    number = rest ? PyObject_CallObject(PyTuple_GetItem(args, 0), rest) : NULL;
    Py_XDECREF(rest);
    if (number) {
        const long fd = PyLong_AsLong(number);
        if (!PyErr_Occurred() && (fd < 0 || fd > INT_MAX))
            PyErr_SetString(PyExc_ValueError, "not a file descriptor");
        if (!PyErr_Occurred()) d->fd = (int)fd;
        Py_DECREF(number);
    }
    if (!PyErr_Occurred() && kwargs)
        (void)set_temporary((PyObject *)d, PyDict_GetItemString(kwargs, "temporary"), NULL);
    if (PyErr_Occurred()) {
        Py_DECREF(d);
        return NULL;
    }
    return (PyObject *)d;
}

static void descriptor_dealloc(PyObject *self)
{
    descriptor_object *const d = (descriptor_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    PyObject *error, *value, *traceback;
    PyErr_Fetch(&error, &value, &traceback); /* it is often freed because of an exception */
    (void)close_now(d);
    remove_temporary(d);
    PyErr_Restore(error, value, traceback);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *descriptor_fileno(PyObject *self, PyObject *unused)
{
    const int fd = ((const descriptor_object *)self)->fd;
    (void)unused;
    if (fd >= 0) return PyLong_FromLong(fd);
    PyErr_SetString(PyExc_ValueError, "the file is closed");
    return NULL;
}

static PyObject *descriptor_close(PyObject *self, PyObject *unused)
{
    const int error = close_now((descriptor_object *)self);
    (void)unused;
    if (!error) Py_RETURN_NONE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Closes it, and removes its temporary file. */
static PyObject *descriptor_remove(PyObject *self, PyObject *unused)
{
    (void)unused;
    (void)close_now((descriptor_object *)self);
    remove_temporary((descriptor_object *)self);
    Py_RETURN_NONE;
}

static PyMethodDef descriptor_methods[] = {{"fileno", descriptor_fileno, METH_NOARGS, NULL},
                                           {"close", descriptor_close, METH_NOARGS, NULL},
                                           {"remove", descriptor_remove, METH_NOARGS, NULL},
                                           {NULL, NULL, 0, NULL}};
static PyGetSetDef descriptor_members[] = {{"temporary", get_temporary, set_temporary, NULL, NULL},
                                           {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot descriptor_slots[] = {{Py_tp_new, (void *)descriptor_new},
                                         {Py_tp_dealloc, (void *)descriptor_dealloc},
                                         {Py_tp_methods, descriptor_methods},
                                         {Py_tp_getset, descriptor_members},
                                         {0, NULL}};
PyType_Spec descriptor_spec = {"lmc_codec._lmc.Descriptor", sizeof(descriptor_object), 0,
                               Py_TPFLAGS_DEFAULT, descriptor_slots};
