/* common.h - what the files of the extension share
 * SPDX-License-Identifier: MIT
 *
 *     module.c   the module, small functions
 *     tensor.c   tensors without a file     arguments.c  what describes a tensor
 *     policy.c   Policy: rules of quantisation
 *     reader.c   Reader          writer.c  Writer          quantizer.c  Quantizer
 *     reader_use.c  using a Reader: locks of the chain, calls, their errors
 *     found.c    finds tensors in files that are to be compressed
 *     views.c    finds tensors in files of torch.save() in a snapshot
 *     store.c    series and chains of snapshots
 *     base.c     Base: arrays in memory as a base; readers as a base
 *     source.c   sources of files: descriptors, memory, callables of Python
 *     descriptor.c  Descriptor: the one owner of a file descriptor
 *     caught.c   Caught: a callable that remembers the exceptions of another
 *     memory.c   new memory; Memory: a range of addresses as a buffer; DLPack
 *     cuda.c     Cuda: decoding on a GPU
 *     call.c     calls without the GIL, their errors and interruptions; locks; threads
 *
 * Everything here is private to the package: types and functions take exactly what the Python
 * modules above pass. They still check all of it, because a wrong argument must not crash the
 * process. */
#ifndef LMC_CODEC_COMMON_H
#define LMC_CODEC_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "lmc.h"
#include "include/lmc_extra.h"

typedef struct module_state {
    PyObject *make_error; /* a callable: (status, name, text, where, what) -> an exception */
    PyTypeObject *memory_type, *base_type, *reader_type, *writer_type, *quantizer_type,
        *policy_type, *cuda_type, *descriptor_type, *caught_type;
} module_state;

module_state *state_of(PyTypeObject *type);

/* Sets the exception of that status. where: the file, what: the tensor; each may be NULL or None.
 * Returns NULL. */
PyObject *raise_status(module_state *state, enum lmc_status status, PyObject *where,
                       PyObject *what);

/* The same, with another text, a str. */
PyObject *raise_explained(module_state *state, enum lmc_status status, PyObject *text,
                          PyObject *where, PyObject *what);

/* -- names in files: they may have any bytes, even control characters of terminals -- */

/* A str. Bytes that are no UTF-8 become surrogates, as in os.fsdecode(). */
PyObject *make_text(const char *text);
/* The bytes of such a str. NULL and an exception: it is not a str, or has a zero byte. */
PyObject *encode_text(PyObject *text);
/* A str for messages, escaped as in the command. */
PyObject *make_printable(const char *text);

/* -- calls --
 * One call of the library, without the GIL. Callbacks take the GIL where they need Python. An
 * exception in a callback is kept, ends the call, and is raised after the call. */
typedef struct call {
    PyThreadState *thread;
    PyObject *type, *value, *traceback;
    double next_look;      /* time of the next check for signals */
    PyObject *progress;    /* called with the bytes done; or NULL */
    volatile int os_error; /* errno of a failed system call; or 0 */
    PyObject *base;        /* the name of the base that could not be read; or NULL */
    /* if the file has become shorter: its size now, and when it was opened; else 0 */
    volatile uint64_t file_end, file_size;
#ifdef Py_GIL_DISABLED
    PyMutex keeping; /* for type, value, traceback, which several workers may set */
#endif
} call;

void call_begin(call *c, PyObject *progress);
/* Takes the GIL again. NULL and an exception if one was kept, or status is not LMC_OK; else
 * None. */
PyObject *call_end(call *c, module_state *state, enum lmc_status status, PyObject *where,
                   PyObject *what);
/* With the GIL: keeps the current exception. Always returns LMC_ERR_CANCELLED. */
enum lmc_status call_keep_exception(call *c);
/* Without the GIL. Call it often: every 50 ms it lets Python handle Ctrl-C. */
enum lmc_status call_poll(call *c);
/* The same, and calls the progress callback. */
enum lmc_status call_report(call *c, uint64_t done);

/* -- volatile integers that one thread sets and others read, without an order -- */
#ifdef __GNUC__
#define LOOK_AT(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define SET(p, value) __atomic_store_n(p, value, __ATOMIC_RELAXED)
#else
#define LOOK_AT(p) (*(p))
#define SET(p, value) ((void)(*(p) = (value)))
#endif

/* -- locks: one thread at a time uses an object of the library --
 * If another thread holds it during a fork, nobody unlocks it in the child, and the object may be
 * half changed there: the lock is lost. */
typedef struct object_lock {
    PyThread_type_lock lock;
    volatile unsigned long owner;
    volatile long pid; /* the process that used it last */
} object_lock;

int lock_init(object_lock *l); /* -1 and an exception */
void lock_free(object_lock *l);
/* Waits without the GIL. -1 and an exception: this thread holds it already (it is in a callback),
 * or the lock is lost. */
int lock_acquire(object_lock *l);
int lock_is_lost(object_lock *l);
void lock_release(object_lock *l);
int lock_is_mine(const object_lock *l); /* this thread holds it */

long process_id(void); /* other in a forked child */

/* -- threads: started when first needed, and again after a fork -- */
typedef struct thread_pool {
    lmc_parallel parallel;
    lmc_pool *pool;
    long pid;
} thread_pool;

/* -1 and an exception if n_threads is not 1 .. 1024. */
int pool_init(thread_pool *p, int n_threads);
const lmc_parallel *pool_parallel(thread_pool *p); /* NULL for one thread */
void pool_free(thread_pool *p);

/* -- sources -- */
typedef struct descriptor_object descriptor_object;
int descriptor_fd(const descriptor_object *d); /* -1: it is closed */

typedef struct file_source {
    Py_buffer buffer;        /* buffer.obj NULL: not of memory */
    PyObject *read;          /* (offset, size) -> bytes; or NULL */
    descriptor_object *file; /* or NULL */
    call *call;              /* the current call */
    uint64_t size;
} file_source;

void source_init(file_source *s);
/* object: a Descriptor, a callable, or a buffer. size: of the file, unless it is a buffer. */
int source_open(file_source *s, module_state *state, PyObject *object, unsigned long long size);
void source_free(file_source *s);
enum lmc_status source_read_at(void *user, uint64_t offset, void *dst, size_t size);

/* -- arguments -- */
enum lmc_dtype parse_dtype(
    const char *name); /* -1 and an exception if there is none of that name */
/* A tuple of non-negative numbers; -1 and an exception. */
int parse_shape(PyObject *object, uint64_t shape[LMC_MAX_RANK], unsigned *rank);
PyObject *make_shape(const uint64_t *shape, unsigned rank);
/* Appends item, and takes its reference. If *list or item is NULL, or on errors, *list becomes
 * NULL. */
void append_new(PyObject **list, PyObject *item);
/* Checks that size is that of this shape and dtype; else -1 and an exception. */
int check_tensor_size(const char *name, const char *dtype, const uint64_t *shape, unsigned rank,
                      uint64_t size);
int is_overlap(const void *a, size_t a_size, const void *b, size_t b_size);
/* name, dtype and shape: the first three items of a tuple, which must live as long as they are
 * used. */
int parse_tensor(PyObject *tuple, lmc_tensor *tensor, uint64_t shape[LMC_MAX_RANK]);

/* -- memory -- */
/* Tells the system that all of this new memory will be written. */
void expect_use(void *p, size_t size);
/* A bytearray with undefined content. */
PyObject *make_bytes(Py_ssize_t size);

/* -- objects -- */
typedef struct reader_object reader_object;
typedef struct base_object base_object;
struct quantizer_object;

/* A base with its name, because an error in the base's file must name that file. Or several, which
 * are one base together: the files of the first, then those of the second, and so on. */
typedef struct named_base {
    lmc_base base;             /* what the library gets */
    struct named_base *shards; /* or NULL; see free_base() */
    lmc_base inner;
    const base_object *arrays; /* of a Base; NULL: of a Reader */
    PyObject *name; /* of the file, owned by the Reader or Base; None or NULL: it has none */
    call **call;    /* the current call */
    volatile int has_failed;
} named_base;

/* A base of tensors at these addresses of the Cuda's device; NULL and an exception. */
struct lmc_cuda_base *open_cuda_base(PyObject *cuda, const lmc_tensor *tensors,
                                     const void *const *data, size_t n, void *stream);
/* Makes a base of a Reader or Base, or of a tuple of them. b->base is valid as long as the object
 * and *b. None: 0, and *has_base is 0. */
int get_base(module_state *state, PyObject *object, named_base *b, call **c, int *has_base);
void free_base(named_base *b);
/* Locks both readers, or tuples of them, and all of their bases for the call; -1 and an exception.
 * Ignores NULL and other objects. A call that needs two chains must lock both with one call of
 * this. */
int lock_chains(module_state *state, PyObject *a, PyObject *b, call *c);
void unlock_chains(module_state *state, PyObject *a, PyObject *b);
int lock_chain(module_state *state, PyObject *object, call *c);
void unlock_chain(module_state *state, PyObject *object);
/* Marks object as a base: closing it then frees nothing that its users need. Call it before
 * locking. */
void mark_base(module_state *state, PyObject *object);

const lmc_base *base_of(PyObject *base);
lmc_reader *reader_of(PyObject *reader);  /* NULL if it is closed */
PyObject *reader_where(PyObject *reader); /* its name in messages; borrowed */
const lmc_quantizer *quantizer_of(PyObject *quantizer);

PyObject *new_bytes(PyObject *module, PyObject *args);
PyObject *prepare(PyObject *module, PyObject *args);
PyObject *new_memory(PyObject *module, PyObject *args);
PyObject *tensor_encode(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *tensor_decode(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *tensor_size(PyObject *module, PyObject *args);
PyObject *add_changes(PyObject *module, PyObject *args);
PyObject *from_dlpack(PyObject *module, PyObject *args);
PyObject *find_tensors(PyObject *module, PyObject *args);
PyObject *probe(PyObject *module, PyObject *args);
PyObject *read_at(PyObject *module, PyObject *args);
PyObject *gather(PyObject *module, PyObject *args);
PyObject *resolve(PyObject *module, PyObject *args);
PyObject *torch_dtype(PyObject *module, PyObject *args);
PyObject *suffix(PyObject *module, PyObject *args);
PyObject *printable(PyObject *module, PyObject *object);

/* -- store.c -- */
PyObject *series_text(PyObject *module, PyObject *args);
PyObject *is_snapshot_name(PyObject *module, PyObject *name);
PyObject *sort_series(PyObject *module, PyObject *args);
PyObject *measure_chains(PyObject *module, PyObject *args);

extern PyType_Spec memory_spec, base_spec, reader_spec, writer_spec, quantizer_spec, policy_spec,
    cuda_spec, descriptor_spec, caught_spec;

#endif
