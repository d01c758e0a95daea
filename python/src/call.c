/* call.c - calls without the GIL, their errors and interruptions; locks; threads
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "formats/printable.h"

#include <errno.h>

#ifdef _WIN32
#include <windows.h>
static double now(void) { return (double)GetTickCount64() * 1e-3; }
long process_id(void) { return 1; } /* Windows has no fork */
#else
#include <time.h>
#include <unistd.h>
static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
long process_id(void) { return (long)getpid(); }
#endif

/* Seconds. Often enough that Ctrl-C feels immediate. A busy GIL is released after 5 ms, so waiting
 * for it takes less than a tenth of the time. */
#define LOOK_EVERY 0.05

module_state *state_of(PyTypeObject *type) { return (module_state *)PyType_GetModuleState(type); }

PyObject *raise_explained(module_state *state, enum lmc_status status, PyObject *text,
                          PyObject *where, PyObject *what)
{
    PyObject *error;
    if (!state->make_error) {
        PyErr_SetObject(PyExc_RuntimeError, text);
        return NULL;
    }
    error = PyObject_CallFunction(state->make_error, "isOOO", (int)status, lmc_status_name(status),
                                  text, where ? where : Py_None, what ? what : Py_None);
    if (error) {
        if (PyExceptionInstance_Check(error)) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        else PyErr_SetObject(PyExc_RuntimeError, text);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *raise_text(module_state *state, enum lmc_status status, const char *text,
                            PyObject *where, PyObject *what)
{
    PyObject *said;
    if (status == LMC_ERR_MEMORY) return PyErr_NoMemory();
    said = PyUnicode_FromString(text);
    if (said) (void)raise_explained(state, status, said, where, what);
    Py_XDECREF(said);
    return NULL;
}

PyObject *raise_status(module_state *state, enum lmc_status status, PyObject *where, PyObject *what)
{
    return raise_text(state, status, lmc_status_text(status), where, what);
}

/* -- names -- */

PyObject *make_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

PyObject *encode_text(PyObject *text)
{
    PyObject *bytes;
    char *unused;
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "names and paths in a snapshot are strings");
        return NULL;
    }
    bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
    if (bytes && PyBytes_AsStringAndSize(bytes, &unused, NULL) < 0) Py_CLEAR(bytes);
    return bytes;
}

static PyObject *escape(const char *text, size_t size)
{
    char *const copy = copy_printable(text, size);
    PyObject *const shown = copy ? PyUnicode_FromString(copy) : PyErr_NoMemory();
    free(copy);
    return shown;
}

PyObject *make_printable(const char *text) { return escape(text, strlen(text)); }

/* (object) -> str(object), escaped. Escaped text does not change, so whole messages may be
 * passed. */
PyObject *printable(PyObject *module, PyObject *object)
{
    PyObject *const text = PyObject_Str(object);
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape") : NULL;
    PyObject *shown;
    (void)module;
    if (text && !bytes) { /* surrogates that do not come from a file name */
        PyErr_Clear();
        bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    }
    shown = bytes ? escape(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    return shown;
}

/* -- calls -- */

void call_begin(call *c, PyObject *progress)
{
    memset(c, 0, sizeof *c);
    c->progress = progress == Py_None ? NULL : progress;
    c->next_look = now() + LOOK_EVERY;
    c->thread = PyEval_SaveThread();
}

static PyObject *raise_failure(const call *c, module_state *state, enum lmc_status status,
                               PyObject *where, PyObject *what)
{
    char text[120];
    if (c->os_error) {
        errno = c->os_error;
        return where && where != Py_None
                   ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, where)
                   : PyErr_SetFromErrno(PyExc_OSError);
    }
    if (status != LMC_ERR_READ || !c->file_size) return raise_status(state, status, where, what);
    (void)PyOS_snprintf(text, sizeof text,
                        "it had %llu bytes when it was opened, and now has %llu: another process "
                        "has changed it",
                        (unsigned long long)c->file_size, (unsigned long long)c->file_end);
    return raise_text(state, status, text, where, what);
}

/* "b0.lmc: read as the base of b1.lmc, tensor 'w'" */
static PyObject *raise_of_base(const call *c, module_state *state, enum lmc_status status,
                               PyObject *where, PyObject *what)
{
    PyObject *const base = c->base == Py_None ? PyUnicode_FromString("the base") : c->base;
    PyObject *read_for = NULL;
    if (c->base != Py_None) Py_INCREF(base);
    if (where && where != Py_None)
        read_for = what && what != Py_None
                       ? PyUnicode_FromFormat("read as the base of %S, %S", where, what)
                       : PyUnicode_FromFormat("read as the base of %S", where);
    if (base && !PyErr_Occurred())
        (void)raise_failure(c, state, status, base, read_for ? read_for : what);
    Py_XDECREF(base);
    Py_XDECREF(read_for);
    return NULL;
}

PyObject *call_end(call *c, module_state *state, enum lmc_status status, PyObject *where,
                   PyObject *what)
{
    PyEval_RestoreThread(c->thread);
    if (c->type) {
        PyErr_Restore(c->type, c->value, c->traceback);
        return NULL;
    }
    if (status == LMC_OK) Py_RETURN_NONE;
    return c->base ? raise_of_base(c, state, status, where, what)
                   : raise_failure(c, state, status, where, what);
}

/* Keeps the first exception: later ones are consequences. */
enum lmc_status call_keep_exception(call *c)
{
#ifdef Py_GIL_DISABLED
    PyMutex_Lock(&c->keeping);
#endif
    if (c->type) PyErr_Clear();
    else PyErr_Fetch(&c->type, &c->value, &c->traceback);
#ifdef Py_GIL_DISABLED
    PyMutex_Unlock(&c->keeping);
#endif
    return LMC_ERR_CANCELLED;
}

static enum lmc_status look_for_signals(call *c)
{
    double next_look = now() + LOOK_EVERY;
#ifdef __GNUC__
    __atomic_store(&c->next_look, &next_look, __ATOMIC_RELAXED);
#else
    *(volatile double *)&c->next_look = next_look;
#endif
    return PyErr_CheckSignals() < 0 ? call_keep_exception(c) : LMC_OK;
}

/* Several workers may poll at the same time. It does not matter which of them checks: only Python's
 * main thread finds signals, and the next check is soon. */
enum lmc_status call_poll(call *c)
{
    enum lmc_status status;
    PyGILState_STATE gil;
    double next_look;
#ifdef __GNUC__
    __atomic_load(&c->next_look, &next_look, __ATOMIC_RELAXED);
#else
    next_look = *(volatile double *)&c->next_look;
#endif
    if (now() < next_look) return LMC_OK;
    gil = PyGILState_Ensure();
    status = look_for_signals(c);
    PyGILState_Release(gil);
    return status;
}

enum lmc_status call_report(call *c, uint64_t done)
{
    enum lmc_status status = LMC_OK;
    PyGILState_STATE gil;
    PyObject *result;
    if (!c->progress) return call_poll(c);
    gil = PyGILState_Ensure();
    result = PyObject_CallFunction(c->progress, "K", (unsigned long long)done);
    if (!result) status = call_keep_exception(c);
    Py_XDECREF(result);
    if (status == LMC_OK) status = look_for_signals(c);
    PyGILState_Release(gil);
    return status;
}

/* -- locks -- */

int lock_init(object_lock *l)
{
    l->owner = 0;
    l->pid = process_id();
    l->lock = PyThread_allocate_lock();
    if (l->lock) return 0;
    PyErr_NoMemory();
    return -1;
}

void lock_free(object_lock *l)
{
    if (l->lock) PyThread_free_lock(l->lock);
    l->lock = NULL;
}

/* After a fork: makes this process the owner of the lock. Without the GIL several threads may try
 * at once. If another thread was faster, l->pid is the pid of this process. */
static int adopt(object_lock *l)
{
    PyThreadState *thread;
    PyLockStatus got;
    if (LOOK_AT(&l->pid) == process_id()) return 0;
    thread = PyEval_SaveThread();
    got = PyThread_acquire_lock_timed(l->lock, 10000, 0);
    PyEval_RestoreThread(thread);
    if (got != PY_LOCK_ACQUIRED) return LOOK_AT(&l->pid) == process_id() ? 0 : -1;
    SET(&l->owner, 0);
    SET(&l->pid, process_id());
    PyThread_release_lock(l->lock);
    return 0;
}

int lock_is_lost(object_lock *l) { return l->lock && adopt(l) < 0; }

/* Only this thread sets owner to itself, so the result is right even if others write owner
 * meanwhile.
 */
int lock_is_mine(const object_lock *l) { return LOOK_AT(&l->owner) == PyThread_get_thread_ident(); }

int lock_acquire(object_lock *l)
{
    if (adopt(l) < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this process was forked while another thread was in a call of this object "
                        "(or of its base), so it cannot be used here: open it again");
        return -1;
    }
    if (lock_is_mine(l)) {
        PyErr_SetString(PyExc_RuntimeError, "a callback uses the reader or writer that called it");
        return -1;
    }
    if (!PyThread_acquire_lock(l->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS(void) PyThread_acquire_lock(l->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    SET(&l->owner, PyThread_get_thread_ident());
    return 0;
}

void lock_release(object_lock *l)
{
    SET(&l->owner, 0);
    PyThread_release_lock(l->lock);
}

/* -- threads --
 * Threads do not survive a fork, and a lost thread may hold a lock of the pool. So the child does
 * not touch the old pool: it makes its own. */

static void run_tasks(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    thread_pool *const p = (thread_pool *)user;
    const lmc_parallel *parallel;
    size_t i;
    if (p->pid != process_id()) {
        p->pool = NULL;
        p->pid = process_id();
        if (lmc_pool_open(&p->pool, n_workers, NULL) != LMC_OK) p->pool = NULL;
    }
    parallel = lmc_pool_parallel(p->pool);
    if (parallel) parallel->run(parallel->user, task, arg, n_tasks, n_workers);
    else
        for (i = 0; i < n_tasks; i++) task(arg, i, 0);
}

int pool_init(thread_pool *p, int n_threads)
{
    memset(p, 0, sizeof *p);
    if (n_threads < 1 || n_threads > 1024) {
        PyErr_Format(PyExc_ValueError, "threads is %d, not 1 to 1024", n_threads);
        return -1;
    }
    p->parallel.run = run_tasks;
    p->parallel.user = p;
    p->parallel.n_workers = (unsigned)n_threads;
    return 0;
}

const lmc_parallel *pool_parallel(thread_pool *p)
{
    return p->parallel.n_workers > 1 ? &p->parallel : NULL;
}

void pool_free(thread_pool *p)
{
    if (p->pid == process_id()) lmc_pool_free(p->pool);
    p->pool = NULL;
    p->pid = 0;
}
