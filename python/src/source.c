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
static void close_fd(int fd) { (void)_close(fd); }
static long long find_size(int fd) { return _filelengthi64(fd); }
#else
static long long read_some(int fd, void *dst, size_t size, uint64_t offset)
{
    ssize_t n;
    do n = pread(fd, dst, size > ((size_t)1 << 30) ? (size_t)1 << 30 : size, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n;
}
static void close_fd(int fd) { (void)close(fd); }
static long long find_size(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? (long long)found.st_size : -1;
}
#endif

void source_init(file_source *s)
{
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

int source_open(file_source *s, PyObject *object, unsigned long long size)
{
    s->size = size;
    if (PyLong_Check(object)) {
        const long fd = PyLong_AsLong(object);
        if (PyErr_Occurred()) return -1;
        if (fd < 0 || fd > INT_MAX) {
            PyErr_SetString(PyExc_ValueError, "not a file descriptor");
            return -1;
        }
        s->fd = (int)fd;
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
    if (s->fd >= 0) close_fd(s->fd);
    s->fd = -1;
}

/* Several workers may set this; all set the same values. */
static enum lmc_status note_end(file_source *s)
{
    const long long size = find_size(s->fd);
    if (size < 0) return LMC_ERR_READ;
    SET(&s->call->file_end, (uint64_t)size);
    SET(&s->call->file_size, s->size);
    return LMC_ERR_READ;
}

/* Without the GIL. */
static enum lmc_status read_fd(file_source *s, uint64_t offset, uint8_t *dst, size_t size)
{
    while (size != 0) {
        const long long n = read_some(s->fd, dst, size, offset);
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

enum lmc_status source_read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    file_source *const s = (file_source *)user;
    const enum lmc_status status = call_poll(s->call);
    if (status != LMC_OK) return status;
    if (offset > s->size || size > s->size - offset) return LMC_ERR_READ;
    if (s->buffer.obj) memcpy(dst, (const uint8_t *)s->buffer.buf + (size_t)offset, size);
    else
        return s->read ? read_python(s, offset, dst, size)
                       : read_fd(s, offset, (uint8_t *)dst, size);
    return LMC_OK;
}
