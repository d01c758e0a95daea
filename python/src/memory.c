/* memory.c - a range of addresses as a buffer; DLPack
 * SPDX-License-Identifier: MIT
 */
#ifdef __linux__
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "common.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

/* -- new memory --
 * The system allocates and clears a page when it is first touched. With pages of 4 KiB this takes
 * longer than coding their content; with pages of 2 MiB much less. numpy also asks for large
 * pages. */
#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE_PAGES_FROM (2 * LARGE_PAGE)

/* Rounds outwards: a large page must be within the advised range, and the range may begin behind a
 * header of malloc. */
void expect_use(void *p, size_t size)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 4095, first = (uintptr_t)p & ~page;
    if (size >= LARGE_PAGES_FROM) /* errors are ignored: the system may have no large pages */
        (void)madvise((void *)first, (((uintptr_t)p + size + page) & ~page) - first, MADV_HUGEPAGE);
#else
    (void)p;
    (void)size;
#endif
}

/* A bytearray that is not initialised. */
PyObject *make_bytes(Py_ssize_t size)
{
    PyObject *const bytes = PyByteArray_FromStringAndSize(NULL, size);
    if (bytes) expect_use(PyByteArray_AsString(bytes), (size_t)size);
    return bytes;
}

/* (size) -> bytearray, not cleared: the caller must write all of it at once. */
PyObject *new_bytes(PyObject *module, PyObject *args)
{
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "n:new_bytes", &size)) return NULL;
    if (size >= 0) return make_bytes(size);
    PyErr_SetString(PyExc_ValueError, "a size below zero");
    return NULL;
}

/* (buffer): new memory, all of which will be written. */
PyObject *prepare(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*:prepare", &buffer)) return NULL;
    expect_use(buffer.buf, (size_t)buffer.len);
    PyBuffer_Release(&buffer);
    Py_RETURN_NONE;
}

/* Memory(address, size, readonly, owner): a range of memory that owner keeps alive. */
typedef struct memory_object {
    PyObject_HEAD void *address;
    Py_ssize_t size;
    int is_readonly;
    PyObject *owner;
} memory_object;

static PyObject *memory_make(PyTypeObject *type, void *address, Py_ssize_t size, int is_readonly,
                             PyObject *owner)
{
    memory_object *const m = (memory_object *)PyType_GenericAlloc(type, 0);
    static char nothing[1];
    if (!m) return NULL;
    m->address = address ? address : nothing;
    m->size = size;
    m->is_readonly = is_readonly;
    Py_INCREF(owner);
    m->owner = owner;
    return (PyObject *)m;
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "size", "readonly", "owner", NULL};
    unsigned long long address;
    Py_ssize_t size;
    int is_readonly;
    PyObject *owner;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KnpO:Memory", names, &address, &size,
                                     &is_readonly, &owner))
        return NULL;
    if (size < 0 || address > UINTPTR_MAX || (address == 0 && size != 0)) {
        PyErr_SetString(PyExc_ValueError, "no range of addresses");
        return NULL;
    }
    return memory_make(type, (void *)(uintptr_t)address, size, is_readonly, owner);
}

static int memory_get_buffer(PyObject *self, Py_buffer *buffer, int flags)
{
    memory_object *const m = (memory_object *)self;
    return PyBuffer_FillInfo(buffer, self, m->address, m->size, m->is_readonly, flags);
}

static void memory_dealloc(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    Py_XDECREF(((memory_object *)self)->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {{Py_tp_new, (void *)memory_new},
                                     {Py_tp_dealloc, (void *)memory_dealloc},
                                     {Py_bf_getbuffer, (void *)memory_get_buffer},
                                     {0, NULL}};
PyType_Spec memory_spec = {"lmc_codec._lmc.Memory", sizeof(memory_object), 0, Py_TPFLAGS_DEFAULT,
                           memory_slots};

/* -- memory for many arrays -- */

static void free_pages(PyObject *capsule)
{
    void *const p = PyCapsule_GetPointer(capsule, NULL);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const size_t size = (size_t)(uintptr_t)PyCapsule_GetContext(capsule);
    if (size) {
        (void)munmap(p, size);
        return;
    }
#endif
    free(p);
}

/* The capsule frees the memory. *at: its first byte that is at a multiple of 64. */
static PyObject *make_pages(size_t size, void **at)
{
    PyObject *capsule;
    void *p;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= LARGE_PAGE && size <= SIZE_MAX - 2 * LARGE_PAGE) {
        const size_t whole = (size + 65535) & ~(size_t)65535; /* pages are not larger */
        uintptr_t first;
        p = mmap(NULL, whole + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
        if (p == MAP_FAILED) return PyErr_NoMemory();
        first = ((uintptr_t)p + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1);
        if (first > (uintptr_t)p) (void)munmap(p, first - (uintptr_t)p);
        (void)munmap((void *)(first + whole), (uintptr_t)p + LARGE_PAGE - first);
        *at = p = (void *)first;
        (void)madvise(p, whole, MADV_HUGEPAGE);
        capsule = PyCapsule_New(p, NULL, free_pages);
        if (capsule) (void)PyCapsule_SetContext(capsule, (void *)(uintptr_t)whole);
        else (void)munmap(p, whole);
        return capsule;
    }
#endif
    p = size <= PY_SSIZE_T_MAX - 64 ? malloc(size + 64) : NULL;
    if (!p) return PyErr_NoMemory();
    *at = (void *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
    capsule = PyCapsule_New(p, NULL, free_pages);
    if (!capsule) free(p);
    return capsule;
}

/* (size) -> Memory, not cleared: the caller must write all of it at once. */
PyObject *new_memory(PyObject *module, PyObject *args)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *capsule, *memory;
    void *at = NULL;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "n:new_memory", &size)) return NULL;
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a size below zero");
        return NULL;
    }
    capsule = make_pages((size_t)size, &at);
    if (!capsule) return NULL;
    memory = memory_make(state->memory_type, at, size, 0, capsule);
    Py_DECREF(capsule);
    return memory;
}

/* -- DLPack (dmlc.github.io/dlpack): the structs of versions 0 and 1 -- */

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides: in elements, or NULL */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor tensor;
} dl_versioned;

enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };

static void free_managed(PyObject *capsule)
{
    dl_managed *const m = (dl_managed *)PyCapsule_GetPointer(capsule, "used_dltensor");
    if (m && m->deleter) m->deleter(m);
}
static void free_versioned(PyObject *capsule)
{
    dl_versioned *const m =
        (dl_versioned *)PyCapsule_GetPointer(capsule, "used_dltensor_versioned");
    if (m && m->deleter) m->deleter(m);
}

static const char *dl_dtype_name(const dl_tensor *t)
{
    static const struct {
        uint8_t code, bits;
        const char *name;
    } names[] = {
        {0, 8, "I8"},           {0, 16, "I16"},     {0, 32, "I32"},         {0, 64, "I64"},
        {1, 8, "U8"},           {1, 16, "U16"},     {1, 32, "U32"},         {1, 64, "U64"},
        {2, 16, "F16"},         {2, 32, "F32"},     {2, 64, "F64"},         {4, 16, "BF16"},
        {5, 64, "C64"},         {5, 128, "C128"},   {6, 8, "BOOL"},         {10, 8, "F8_E4M3"},
        {11, 8, "F8_E4M3FNUZ"}, {12, 8, "F8_E5M2"}, {13, 8, "F8_E5M2FNUZ"}, {14, 8, "F8_E8M0"}};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == t->code && names[i].bits == t->bits && t->lanes == 1)
            return names[i].name;
    return NULL;
}

/* Size in bytes of a contiguous tensor in memory of the CPU; -1 and an exception for any other. */
static int measure_dl(const dl_tensor *t, uint64_t shape[LMC_MAX_RANK], uint64_t *size)
{
    uint64_t n = t->bits / 8u;
    int64_t step = 1;
    int i;
    if (t->device_type != DL_CPU && t->device_type != DL_CUDA_HOST &&
        t->device_type != DL_ROCM_HOST) {
        PyErr_SetString(PyExc_TypeError, "the tensor is not in memory of the CPU: copy it there");
        return -1;
    }
    if (t->ndim < 0 || t->ndim > LMC_MAX_RANK || (t->ndim && !t->shape)) {
        PyErr_SetString(PyExc_ValueError, "the tensor has more than 32 dimensions");
        return -1;
    }
    for (i = t->ndim; i-- > 0;) {
        if (t->shape[i] < 0 || (t->shape[i] && n > INT64_MAX / (uint64_t)t->shape[i])) {
            PyErr_SetString(PyExc_ValueError, "the tensor's shape is invalid");
            return -1;
        }
        shape[i] = (uint64_t)t->shape[i];
        n *= shape[i];
    }
    for (i = t->ndim; i-- > 0 && n != 0;) {
        if (t->strides && t->shape[i] != 1 && t->strides[i] != step) {
            PyErr_SetString(PyExc_ValueError, "the tensor is not contiguous: make it so first");
            return -1;
        }
        step *= t->shape[i];
    }
    *size = n;
    return 0;
}

/* (capsule) -> (Memory, dtype, shape). The capsule is consumed, as the protocol says. */
PyObject *from_dlpack(PyObject *module, PyObject *args)
{
    module_state *const state = (module_state *)PyModule_GetState(module);
    PyObject *capsule, *memory, *result;
    uint64_t shape[LMC_MAX_RANK], size;
    const dl_tensor *t;
    const char *name;
    int is_versioned, is_readonly = 0;
    if (!PyArg_ParseTuple(args, "O:from_dlpack", &capsule)) return NULL;
    is_versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
    if (is_versioned) {
        const dl_versioned *const m =
            (const dl_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (m->major > 1) {
            PyErr_SetString(PyExc_BufferError, "DLPack 2 and later are not known");
            return NULL;
        }
        t = &m->tensor;
        is_readonly = (int)(m->flags & 1);
    } else {
        const dl_managed *const m = (const dl_managed *)PyCapsule_GetPointer(capsule, "dltensor");
        if (!m) return NULL;
        t = &m->tensor;
    }
    name = dl_dtype_name(t);
    if (!name)
        return PyErr_Format(PyExc_TypeError, "DLPack's dtype of code %d, %d bits is not known",
                            t->code, t->bits);
    if (measure_dl(t, shape, &size) < 0) return NULL;
    if (PyCapsule_SetName(capsule, is_versioned ? "used_dltensor_versioned" : "used_dltensor") <
            0 ||
        PyCapsule_SetDestructor(capsule, is_versioned ? free_versioned : free_managed) < 0)
        return NULL;
    memory = memory_make(state->memory_type, t->data ? (uint8_t *)t->data + t->byte_offset : NULL,
                         (Py_ssize_t)size, is_readonly, capsule);
    if (!memory) return NULL;
    result = Py_BuildValue("NsN", memory, name, make_shape(shape, (unsigned)t->ndim));
    return result;
}
