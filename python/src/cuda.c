/* cuda.c - Cuda: decoding on a GPU (experimental)
 * SPDX-License-Identifier: MIT
 */
#include "reader.h"

#include "lmc_cuda.h"

#ifndef _WIN32
#include <sys/stat.h>
#include <unistd.h>
#endif

typedef struct cuda_object {
    PyObject_HEAD lmc_cuda *cuda;
    object_lock lock;
    long pid; /* of the process that opened it: CUDA does not work in a forked child */
} cuda_object;

/* Whether only this user can write there, because its files are run on the GPU. Makes the directory
 * if it is missing. */
#ifdef _WIN32
static int is_own_directory(const char *path)
{
    return path[0] != 0; /* a directory that cannot be used is no error */
}
#else
static int is_own_directory(const char *path)
{
    struct stat s;
    (void)mkdir(path, 0700);
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
           (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}
#endif

/* Raises an error with the library's message. Returns NULL. */
static PyObject *raise_message(module_state *state, enum lmc_status status, const lmc_cuda *cuda,
                               PyObject *where)
{
    const char *const message = cuda ? lmc_cuda_message(cuda) : "";
    PyObject *text;
    if (!message[0]) return raise_status(state, status, where, NULL);
    text = make_printable(message); /* it may have names from the file */
    if (!text) return NULL;
    if (status == LMC_ERR_MEMORY) PyErr_SetObject(PyExc_MemoryError, text);
    else (void)raise_explained(state, status, text, where, NULL);
    Py_DECREF(text);
    return NULL;
}

/* (device, cache_dir, nvrtc_path, staging_size): see lmc_cuda_options */
static PyObject *cuda_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "cache_dir", "nvrtc_path", "staging_size", NULL};
    module_state *const state = state_of(type);
    lmc_cuda_options options = LMC_CUDA_OPTIONS();
    unsigned long long device = 0, staging_size = 0;
    enum lmc_status status;
    cuda_object *c;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|zzK:Cuda", names, &device, &options.cache_dir,
                                     &options.nvrtc_path, &staging_size))
        return NULL;
    if (options.cache_dir && !is_own_directory(options.cache_dir)) options.cache_dir = NULL;
    options.device = device;
    options.staging_size = staging_size;
    c = (cuda_object *)PyType_GenericAlloc(type, 0);
    if (!c) return NULL;
    c->pid = process_id();
    if (lock_init(&c->lock) == 0) {
        Py_BEGIN_ALLOW_THREADS status = lmc_cuda_open(&c->cuda, &options);
        Py_END_ALLOW_THREADS if (status == LMC_OK) return (PyObject *)c;
        (void)raise_message(state, status, c->cuda, NULL);
    }
    Py_DECREF(c);
    return NULL;
}

static void cuda_dealloc(PyObject *self)
{
    cuda_object *const c = (cuda_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    lmc_cuda *const cuda = c->pid == process_id() ? c->cuda : NULL;
    Py_BEGIN_ALLOW_THREADS lmc_cuda_free(cuda);
    Py_END_ALLOW_THREADS lock_free(&c->lock);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Frees memory of the device for others. The kernels stay loaded, so the next call starts
 * quickly. */
static PyObject *cuda_trim(PyObject *self, PyObject *unused)
{
    cuda_object *const c = (cuda_object *)self;
    (void)unused;
    if (lock_acquire(&c->lock) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS lmc_cuda_trim(c->cuda);
    Py_END_ALLOW_THREADS lock_release(&c->lock);
    Py_RETURN_NONE;
}

lmc_cuda_base *open_cuda_base(PyObject *cuda, const lmc_tensor *tensors, const void *const *data,
                              size_t n, void *stream)
{
    cuda_object *const c = (cuda_object *)cuda;
    lmc_cuda_base *base = NULL;
    enum lmc_status status;
    if (lock_acquire(&c->lock) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS status = lmc_cuda_base_open(&base, c->cuda, tensors, data, n, stream);
    Py_END_ALLOW_THREADS if (status != LMC_OK)(void)
        raise_message(state_of(Py_TYPE(cuda)), status, c->cuda, NULL);
    lock_release(&c->lock);
    return base;
}

/* rows: a list of (file number, offset, size, address). NULL and an exception. */
static lmc_cuda_part *make_parts(PyObject *rows, Py_ssize_t *n)
{
    lmc_cuda_part *parts;
    Py_ssize_t i;
    *n = PyList_Size(rows);
    if (*n < 0) return NULL;
    parts = (lmc_cuda_part *)calloc((size_t)*n + 1, sizeof *parts);
    if (!parts) (void)PyErr_NoMemory();
    for (i = 0; parts && i < *n; i++) {
        unsigned long long number, offset, size, dst;
        PyObject *const row = PyList_GetItem(rows, i);
        if (!row || !PyArg_ParseTuple(row, "KKKK", &number, &offset, &size, &dst)) {
            free(parts);
            return NULL;
        }
        parts[i].file_number = number;
        parts[i].offset = offset;
        parts[i].size = size;
        parts[i].dst = (void *)(uintptr_t)dst;
    }
    return parts;
}

static PyObject *read_parts(cuda_object *cuda, reader_object *r, const lmc_cuda_part *parts,
                            size_t n, void *stream)
{
    module_state *const state = state_of(Py_TYPE((PyObject *)cuda));
    enum lmc_status status;
    PyObject *result;
    call c;
    lmc_reader *const reader = begin_reading(r, &c);
    if (!reader) return NULL;
    status = lmc_cuda_read(cuda->cuda, reader, parts, n, stream);
    /* errors of the source, of the system and of the base come first */
    if (status != LMC_OK && !c.type && !c.os_error && !c.base && !c.file_size &&
        status != LMC_ERR_BASE_MISSING) {
        result = end_reading(r, &c, LMC_OK, NULL);
        Py_XDECREF(result);
        return result ? raise_message(state, status, cuda->cuda, r->where) : NULL;
    }
    return end_reading(r, &c, status, NULL);
}

/* (reader, parts, stream): see make_parts, and lmc_cuda_read. */
static PyObject *cuda_read(PyObject *self, PyObject *args)
{
    cuda_object *const c = (cuda_object *)self;
    module_state *const state = state_of(Py_TYPE(self));
    PyObject *reader, *rows, *result = NULL;
    unsigned long long stream;
    lmc_cuda_part *parts;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "O!OK:read", state->reader_type, &reader, &rows, &stream))
        return NULL;
    parts = make_parts(rows, &n);
    if (!parts) return NULL;
    if (lock_acquire(&c->lock) == 0) {
        result =
            read_parts(c, (reader_object *)reader, parts, (size_t)n, (void *)(uintptr_t)stream);
        lock_release(&c->lock);
    }
    free(parts);
    return result;
}

/* -> (blocks, bytes) decoded by the GPU; the same for the CPU; bytes that were staged; whether the
 * kernels were compiled */
static PyObject *cuda_counts(PyObject *self, PyObject *unused)
{
    cuda_object *const c = (cuda_object *)self;
    lmc_cuda_counts n;
    (void)unused;
    if (lock_acquire(&c->lock) < 0) return NULL;
    lmc_cuda_get_counts(c->cuda, &n);
    lock_release(&c->lock);
    return Py_BuildValue("(KK)(KK)KN", (unsigned long long)n.gpu_blocks,
                         (unsigned long long)n.gpu_bytes, (unsigned long long)n.cpu_blocks,
                         (unsigned long long)n.cpu_bytes, (unsigned long long)n.staged_bytes,
                         PyBool_FromLong(n.compiled != 0));
}

static PyMethodDef cuda_methods[] = {{"trim", cuda_trim, METH_NOARGS, NULL},
                                     {"read", cuda_read, METH_VARARGS, NULL},
                                     {"counts", cuda_counts, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot cuda_slots[] = {{Py_tp_new, (void *)cuda_new},
                                   {Py_tp_dealloc, (void *)cuda_dealloc},
                                   {Py_tp_methods, cuda_methods},
                                   {0, NULL}};
PyType_Spec cuda_spec = {"lmc_codec._lmc.Cuda", sizeof(cuda_object), 0, Py_TPFLAGS_DEFAULT,
                         cuda_slots};
