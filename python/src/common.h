/* common.h - what the files of the extension share
 * SPDX-License-Identifier: MIT
 *
 *     module.c   the module, small functions, tensors without a header
 *     policy.c   Policy: rules of quantisation
 *     reader.c   Reader          writer.c  Writer          quantizer.c  Quantizer
 *     found.c    tensors in files of others that are to be compressed
 *     views.c    tensors in files of torch.save()
 *     base.c     Base: arrays in memory that a delta is coded against; what else is a base
 *     source.c   where files are read from: descriptors, memory, Python
 *     memory.c   new memory; Memory: a range of addresses as a buffer; DLPack
 *     cuda.c     Cuda: decoding on a GPU
 *     call.c     calls without the GIL, their errors and interruptions; locks; threads
 *
 * Everything here is private to the package: types and functions take exactly what the Python
 * modules above give them. They still check all of it, for a wrong argument must not end the
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
    PyObject *make_error; /* of Python: (status, name, text, where, what) -> an exception */
    PyTypeObject *memory_type, *base_type, *reader_type, *writer_type, *quantizer_type,
        *policy_type, *cuda_type;
} module_state;

module_state *state_of(PyTypeObject *type);

/* Sets the exception of that status. where: the file that it happened to, what: its tensor, either
 * may be NULL or None. Returns NULL. */
PyObject *raise_status(module_state *state, enum lmc_status status, PyObject *where,
                       PyObject *what);

/* The same, with another text, a str. */
PyObject *raise_explained(module_state *state, enum lmc_status status, PyObject *text,
                          PyObject *where, PyObject *what);

/* -- what files call things: of any bytes, which terminals might obey -- */

/* A str; what is no UTF-8 in it as os.fsdecode() has it. */
PyObject *make_text(const char *text);
/* The bytes of such a str. NULL and an exception: it is none, or has a zero byte. */
PyObject *encode_text(PyObject *text);
/* A str for messages: escaped, as the command shows it. */
PyObject *make_printable(const char *text);

/* -- calls --
 * One call of the library, made without the GIL. Callbacks take the GIL where they need Python;
 * what they raise is kept, ends the call, and is raised when it returns. */
typedef struct call {
    PyThreadState *thread;
    PyObject *type, *value, *traceback;
    double next_look;      /* when signals are looked for again */
    PyObject *progress;    /* called with the bytes done; or NULL */
    volatile int os_error; /* errno of what failed; or 0 */
    PyObject *base;        /* the name of the base that could not be read; or NULL */
    /* of a file that has become shorter since it was opened, and what it had; or 0 */
    volatile uint64_t file_end, file_size;
#ifdef Py_GIL_DISABLED
    PyMutex keeping; /* of type, value, traceback, which several workers may want to set */
#endif
} call;

void call_begin(call *c, PyObject *progress);
/* The GIL is held again: NULL and an exception if one was raised, or status is not LMC_OK; else
 * None. */
PyObject *call_end(call *c, module_state *state, enum lmc_status status, PyObject *where,
                   PyObject *what);
/* With the GIL: keeps the exception that is set. Always LMC_ERR_CANCELLED. */
enum lmc_status call_keep_exception(call *c);
/* Without the GIL, and often: hands Ctrl-C to Python every 50 ms. */
enum lmc_status call_poll(call *c);
/* The same, and the progress callback. */
enum lmc_status call_report(call *c, uint64_t done);

/* -- what one thread sets while others look, in any order: an integer that is volatile -- */
#ifdef __GNUC__
#define LOOK_AT(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define SET(p, value) __atomic_store_n(p, value, __ATOMIC_RELAXED)
#else
#define LOOK_AT(p) (*(p))
#define SET(p, value) ((void)(*(p) = (value)))
#endif

/* -- locks: one thread at a time uses an object of the library --
 * If another thread is inside at a fork, nobody will ever unlock it in the child, and what it
 * guards may be half changed there: the lock is lost. */
typedef struct object_lock {
    PyThread_type_lock lock;
    volatile unsigned long owner;
    volatile long pid; /* the process that it was last used in */
} object_lock;

int lock_init(object_lock *l); /* -1 and an exception */
void lock_free(object_lock *l);
/* Waits without the GIL. -1 and an exception: this thread has it already, as a callback would; or
 * it is lost. */
int lock_acquire(object_lock *l);
int lock_is_lost(object_lock *l);
void lock_release(object_lock *l);
int lock_is_mine(const object_lock *l); /* this thread has it */

long process_id(void); /* changes with a fork */

/* -- threads: started when first needed, and anew after a fork -- */
typedef struct thread_pool {
    lmc_parallel parallel;
    lmc_pool *pool;
    long pid;
} thread_pool;

/* 1 .. 1024 threads: -1 and an exception if not. */
int pool_init(thread_pool *p, int n_threads);
const lmc_parallel *pool_parallel(thread_pool *p); /* NULL for one thread */
void pool_free(thread_pool *p);

/* -- sources -- */
typedef struct file_source {
    Py_buffer buffer; /* buffer.obj NULL: not of memory */
    PyObject *read;   /* (offset, size) -> bytes; or NULL */
    int fd;           /* owned; or -1 */
    call *call;       /* the call at hand */
    uint64_t size;
} file_source;

void source_init(file_source *s);
/* object: a descriptor (int), which the source owns from now on; a callable; else a buffer. size:
 * of the first two. */
int source_open(file_source *s, PyObject *object, unsigned long long size);
void source_free(file_source *s);
enum lmc_status source_read_at(void *user, uint64_t offset, void *dst, size_t size);

/* -- arguments -- */
enum lmc_dtype parse_dtype(
    const char *name); /* -1 and an exception if there is none of that name */
/* A tuple of non-negative numbers; -1 and an exception. */
int parse_shape(PyObject *object, uint64_t shape[LMC_MAX_RANK], unsigned *rank);
PyObject *make_shape(const uint64_t *shape, unsigned rank);
/* Appends item, and takes it; NULL in any of both: frees them, and there is no list any more. */
void append_new(PyObject **list, PyObject *item);
/* Exactly what a shape and a dtype make, and no more than a buffer has; -1 and an exception. */
int check_tensor_size(const char *name, const char *dtype, const uint64_t *shape, unsigned rank,
                      uint64_t size);
int is_overlap(const void *a, size_t a_size, const void *b, size_t b_size);
/* name, dtype and shape, the first three of a tuple, which must stay as long as they are used. */
int parse_tensor(PyObject *tuple, lmc_tensor *tensor, uint64_t shape[LMC_MAX_RANK]);

/* -- memory -- */
/* All of this new memory will be written. */
void expect_use(void *p, size_t size);
/* A bytearray; what is in it may be anything. */
PyObject *make_bytes(Py_ssize_t size);

/* -- objects -- */
typedef struct reader_object reader_object;
typedef struct base_object base_object;
struct quantizer_object;

/* A base, and its name: its reader may be damaged itself, and then an error must name that file. */
typedef struct named_base {
    lmc_base base; /* what the library gets */
    lmc_base inner;
    PyObject *name; /* of a Reader's file, which keeps it; or NULL */
    call **call;    /* the one at hand */
    volatile int has_failed;
} named_base;

/* Of tensors at these addresses of the Cuda's device; NULL and an exception. */
struct lmc_cuda_base *open_cuda_base(PyObject *cuda, const lmc_tensor *tensors,
                                     const void *const *data, size_t n, void *stream);
/* What object, a Reader or a Base, gives; b->base is valid as long as the object and *b. 0 and no
 * base for None. */
int get_base(module_state *state, PyObject *object, named_base *b, call **c, int *has_base);
/* Locks both readers and their bases (NULL, or any other object: none) for the call; -1 and an
 * exception. A call that needs two chains locks both at once. */
int lock_chains(module_state *state, PyObject *a, PyObject *b, call *c);
void unlock_chains(module_state *state, PyObject *a, PyObject *b);
int lock_chain(module_state *state, PyObject *object, call *c);
void unlock_chain(module_state *state, PyObject *object);
/* It is a base now: closing it does not free what its users read from. Before its lock. */
void mark_base(module_state *state, PyObject *object);

const lmc_base *base_of(PyObject *base);
lmc_reader *reader_of(PyObject *reader);  /* NULL if it is closed */
PyObject *reader_where(PyObject *reader); /* its name in messages, borrowed */
const lmc_quantizer *quantizer_of(PyObject *quantizer);

PyObject *new_bytes(PyObject *module, PyObject *args);
PyObject *prepare(PyObject *module, PyObject *args);
PyObject *tensor_encode(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *tensor_decode(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *tensor_size(PyObject *module, PyObject *args);
PyObject *add_changes(PyObject *module, PyObject *args);
PyObject *from_dlpack(PyObject *module, PyObject *args);
PyObject *find_tensors(PyObject *module, PyObject *args);
PyObject *gather(PyObject *module, PyObject *args);
PyObject *resolve(PyObject *module, PyObject *args);
PyObject *torch_dtype(PyObject *module, PyObject *args);
PyObject *suffix(PyObject *module, PyObject *args);
PyObject *printable(PyObject *module, PyObject *object);

extern PyType_Spec memory_spec, base_spec, reader_spec, writer_spec, quantizer_spec, policy_spec,
    cuda_spec;

#endif
