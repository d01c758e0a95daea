/* source.c - sources of files: descriptors, memory, callables of Python
 * SPDX-License-Identifier: MIT
 */
#define _FILE_OFFSET_BITS 64
#include "common.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <io.h>
#else
#include <sys/stat.h>
#include <unistd.h>
#endif
#include <errno.h>

#ifdef _WIN32
/* Bytes read, 0 at the end, -1 for an error. Does not use the descriptor's position. */
static long long read_some(int fd, void *dst, size_t size, uint64_t offset)
{
    OVERLAPPED at;
    DWORD got = 0;
    const HANDLE file = (HANDLE)_get_osfhandle(fd);
    memset(&at, 0, sizeof at);
    at.Offset = (DWORD)offset;
    at.OffsetHigh = (DWORD)(offset >> 32);
    if (!ReadFile(file, dst, size > (1u << 30) ? 1u << 30 : (DWORD)size, &got, &at)) {
        errno = EIO;
        return GetLastError() == ERROR_HANDLE_EOF ? 0 : -1;
    }
    return got;
}
static long long find_size(int fd) { return _filelengthi64(fd); }
#else
static long long read_some(int fd, void *dst, size_t size, uint64_t offset)
{
    ssize_t n;
    do n = pread(fd, dst, size > ((size_t)1 << 30) ? (size_t)1 << 30 : size, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n;
}
static long long find_size(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? (long long)found.st_size : -1;
}
#endif

#define PIECE ((size_t)8 << 20)

void source_init(file_source *s) { memset(s, 0, sizeof *s); }

int source_open(file_source *s, module_state *state, PyObject *object, unsigned long long size)
{
    s->size = size;
    if (PyObject_TypeCheck(object, state->descriptor_type)) {
        Py_INCREF(object);
        s->file = (descriptor_object *)object;
        return 0;
    }
    if (PyCallable_Check(object)) {
        Py_INCREF(object);
        s->read = object;
        return 0;
    }
    if (PyObject_GetBuffer(object, &s->buffer, PyBUF_SIMPLE) < 0) return -1;
    s->size = (uint64_t)s->buffer.len;
    return 0;
}

void source_free(file_source *s)
{
    if (s->buffer.obj) PyBuffer_Release(&s->buffer);
    Py_CLEAR(s->read);
    Py_CLEAR(s->file);
}

/* Several workers may set this; all set the same values. */
static enum lmc_status note_end(file_source *s)
{
    const long long size = find_size(descriptor_fd(s->file));
    if (size < 0) return LMC_ERR_READ;
    SET(&s->call->file_end, (uint64_t)size);
    SET(&s->call->file_size, s->size);
    return LMC_ERR_READ;
}

/* Without the GIL. */
static enum lmc_status read_fd(file_source *s, uint64_t offset, uint8_t *dst, size_t size)
{
    while (size != 0) {
        const long long n = read_some(descriptor_fd(s->file), dst, size, offset);
        if (n == 0) return note_end(s); /* the file has become shorter */
        if (n < 0) {
            SET(&s->call->os_error, errno); /* several workers may fail at once */
            return LMC_ERR_READ;
        }
        dst += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

/* The callable returns bytes, which are copied. It gets no memory of the library, because it could
 * keep it, and the library would write to it later. */
static enum lmc_status read_python(file_source *s, uint64_t offset, void *dst, size_t size)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    enum lmc_status status = LMC_OK;
    Py_buffer buffer;
    PyObject *const bytes =
        PyObject_CallFunction(s->read, "Kn", (unsigned long long)offset, (Py_ssize_t)size);
    if (!bytes || PyObject_GetBuffer(bytes, &buffer, PyBUF_SIMPLE) < 0) {
        (void)call_keep_exception(s->call);
        status = LMC_ERR_READ;
    } else {
        if ((size_t)buffer.len == size) memcpy(dst, buffer.buf, size);
        else {
            PyErr_Format(PyExc_OSError, "%zd bytes at %llu were asked for, and %zd came",
                         (Py_ssize_t)size, (unsigned long long)offset, buffer.len);
            (void)call_keep_exception(s->call);
            status = LMC_ERR_READ;
        }
        PyBuffer_Release(&buffer);
    }
    Py_XDECREF(bytes);
    PyGILState_Release(gil);
    return status;
}

/* (source, size, offset, out, where): fills out. source, size: as of a Reader; where: its name in
 * messages. */
PyObject *read_at(PyObject *module, PyObject *args)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *object, *where, *result = NULL;
    unsigned long long size, offset;
    file_source source;
    Py_buffer out;
    call c;
    if (!PyArg_ParseTuple(args, "OKKw*O:read_at", &object, &size, &offset, &out, &where))
        return NULL;
    source_init(&source);
    if (source_open(&source, state, object, size) == 0) {
        uint8_t *dst = (uint8_t *)out.buf;
        size_t left = (size_t)out.len;
        enum lmc_status status = LMC_OK;
        source.call = &c;
        call_begin(&c, NULL);
        while (left != 0 && status == LMC_OK) { /* in pieces, so that Ctrl-C is seen */
            const size_t n = left < PIECE ? left : PIECE;
            status = source_read_at(&source, offset, dst, n);
            dst += n;
            offset += n;
            left -= n;
        }
        result = call_end(&c, state, status, where, NULL);
    }
    source_free(&source);
    PyBuffer_Release(&out);
    return result;
}

/* (source, size, where) -> (fingerprint, base fingerprint or b"", features, (format major, minor),
 * size, size of the index): what lmc_snapshot_probe finds. */
PyObject *probe(PyObject *module, PyObject *args)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *object, *where, *result = NULL;
    unsigned long long size;
    file_source source;
    call c;
    if (!PyArg_ParseTuple(args, "OKO:probe", &object, &size, &where)) return NULL;
    source_init(&source);
    if (source_open(&source, state, object, size) == 0) {
        const lmc_source from = {source_read_at, &source, source.size, {0, 0}};
        lmc_snapshot_info info;
        source.call = &c;
        call_begin(&c, NULL);
        result = call_end(&c, state, lmc_snapshot_probe(&from, &info), where, NULL);
        if (result) {
            Py_DECREF(result);
            result = Py_BuildValue(
                "y#y#K(II)KK", (const char *)info.fingerprint, (Py_ssize_t)LMC_FINGERPRINT_SIZE,
                (const char *)info.base_fingerprint,
                (Py_ssize_t)(info.has_base ? LMC_FINGERPRINT_SIZE : 0),
                (unsigned long long)info.features, info.format_major, info.format_minor,
                (unsigned long long)info.size, (unsigned long long)info.index_size);
        }
    }
    source_free(&source);
    return result;
}

enum lmc_status source_read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    file_source *const s = (file_source *)user;
    const enum lmc_status status = call_poll(s->call);
    if (status != LMC_OK) return status;
    if (offset > s->size || size > s->size - offset) return LMC_ERR_READ;
    if (s->buffer.obj) memcpy(dst, (const uint8_t *)s->buffer.buf + (size_t)offset, size);
    else if (!s->read && !s->file) return LMC_ERR_READ; /* nothing is open */
    else
        return s->read ? read_python(s, offset, dst, size)
                       : read_fd(s, offset, (uint8_t *)dst, size);
    return LMC_OK;
}
