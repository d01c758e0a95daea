/* reader_use.c - using a Reader: its lock, those of its bases, and the errors of a call that reads
 * SPDX-License-Identifier: MIT
 *
 * A reader that decodes a delta calls its base, that one its own base, and so on: whoever reads one
 * holds the locks of all. reader.c has the type and its methods, base.c, cuda.c, views.c and
 * writer.c use readers; all of them stand on this file. */
#include "reader.h"

lmc_reader *reader_of(PyObject *reader)
{
    const reader_object *const r = (const reader_object *)reader;
    return r->is_closed ? NULL : r->reader;
}

PyObject *reader_where(PyObject *reader) { return ((const reader_object *)reader)->where; }

/* -- chains of bases -- */

int is_reader(module_state *state, PyObject *object)
{
    return object && PyObject_TypeCheck(object, state->reader_type);
}

reader_object *find_newest(module_state *state, PyObject *object, uint64_t limit)
{
    reader_object *found = NULL;
    Py_ssize_t i;
    for (; is_reader(state, object); object = ((reader_object *)object)->base)
        if (((reader_object *)object)->serial < limit) return (reader_object *)object;
    for (i = 0; object && PyTuple_Check(object) && i < PyTuple_Size(object); i++) {
        reader_object *const r = find_newest(state, PyTuple_GetItem(object, i), limit);
        if (r && (!found || r->serial > found->serial)) found = r;
    }
    return found;
}

static reader_object *newest_of(module_state *state, PyObject *a, PyObject *b, uint64_t limit)
{
    reader_object *const x = find_newest(state, a, limit), *const y = find_newest(state, b, limit);
    return !y || (x && x->serial >= y->serial) ? x : y;
}

/* All threads lock from new to old, so there is no deadlock. */
static int lock_older(module_state *state, PyObject *a, PyObject *b, call *c, uint64_t limit)
{
    reader_object *const r = newest_of(state, a, b, limit);
    if (!r) return 0;
    if (lock_acquire(&r->lock) < 0) return -1;
    r->source.call = c;
    if (lock_older(state, a, b, c, r->serial) == 0) return 0;
    r->source.call = NULL;
    lock_release(&r->lock);
    return -1;
}

static void unlock_older(module_state *state, PyObject *a, PyObject *b, uint64_t limit)
{
    reader_object *const r = newest_of(state, a, b, limit);
    if (!r) return;
    unlock_older(state, a, b, r->serial);
    r->source.call = NULL;
    lock_release(&r->lock);
}

int lock_chains(module_state *state, PyObject *a, PyObject *b, call *c)
{
    return lock_older(state, a, b, c, UINT64_MAX);
}

void unlock_chains(module_state *state, PyObject *a, PyObject *b)
{
    unlock_older(state, a, b, UINT64_MAX);
}

int lock_chain(module_state *state, PyObject *object, call *c)
{
    return lock_chains(state, object, NULL, c);
}

void unlock_chain(module_state *state, PyObject *object) { unlock_chains(state, object, NULL); }

void mark_base(module_state *state, PyObject *object)
{
    Py_ssize_t i;
    if (is_reader(state, object)) SET(&((reader_object *)object)->is_base, 1);
    for (i = 0; object && PyTuple_Check(object) && i < PyTuple_Size(object); i++)
        mark_base(state, PyTuple_GetItem(object, i));
}

/* -- calls -- */

lmc_reader *begin_use(reader_object *r)
{
    if (lock_acquire(&r->lock) < 0) return NULL;
    if (reader_of((PyObject *)r)) return r->reader;
    lock_release(&r->lock);
    PyErr_SetString(PyExc_ValueError, "the file is closed");
    return NULL;
}
PyObject *end_use(reader_object *r, PyObject *result)
{
    lock_release(&r->lock);
    return result;
}

lmc_reader *begin_reading(reader_object *r, call *c)
{
    module_state *const state = state_of(Py_TYPE((PyObject *)r));
    if (lock_chain(state, (PyObject *)r, c) < 0) return NULL;
    if (reader_of((PyObject *)r)) {
        call_begin(c, NULL);
        return r->reader;
    }
    unlock_chain(state, (PyObject *)r);
    PyErr_SetString(PyExc_ValueError, "the file is closed");
    return NULL;
}

/* The message has the fingerprint of the base, and its name when the delta was made, if known.
 */
static PyObject *raise_missing_base(reader_object *r, PyObject *what)
{
    static const char digits[] = "0123456789abcdef";
    module_state *const state = state_of(Py_TYPE((PyObject *)r));
    PyObject *metadata, *hint, *text = NULL, *shown = NULL;
    char fingerprint[17] = "";
    lmc_snapshot_info info;
    PyErr_Clear();
    if (lmc_reader_get_info(r->reader, &info) == LMC_OK)
        for (unsigned i = 0; i < 8; i++) {
            fingerprint[2 * i] = digits[info.base_fingerprint[i] >> 4];
            fingerprint[2 * i + 1] = digits[info.base_fingerprint[i] & 15];
        }
    metadata = PyObject_CallMethod((PyObject *)r, "metadata", NULL);
    hint = metadata ? PyDict_GetItemString(metadata, "lmc.base") : NULL;
    if (hint) shown = make_printable(PyBytes_AsString(hint));
    if (shown)
        text = PyUnicode_FromFormat("this is a delta: its base, the snapshot %s... (once called "
                                    "%S), is needed: give base=",
                                    fingerprint, shown);
    else if (metadata && !hint)
        text = PyUnicode_FromFormat("this is a delta: its base, the snapshot %s..., is needed: "
                                    "give base=",
                                    fingerprint);
    if (text) (void)raise_explained(state, LMC_ERR_BASE_MISSING, text, r->where, what);
    Py_XDECREF(metadata);
    Py_XDECREF(shown);
    Py_XDECREF(text);
    return NULL;
}

PyObject *end_reading(reader_object *r, call *c, enum lmc_status status, PyObject *what)
{
    module_state *const state = state_of(Py_TYPE((PyObject *)r));
    const int is_missing = status == LMC_ERR_BASE_MISSING && !c->base;
    PyObject *const result = call_end(c, state, status, r->where, what);
    unlock_chain(state, (PyObject *)r);
    return is_missing && !c->type && reader_of((PyObject *)r) ? raise_missing_base(r, what)
                                                              : result;
}

PyObject *make_loss(const lmc_tensor *t)
{
    static const char *const measures[] = {"", "update", "relative", "nmse"};
    if (!t || !t->loss.generation) return Py_BuildValue("");
    return Py_BuildValue("Isd", t->loss.generation,
                         (unsigned)t->loss.measure < 4 ? measures[t->loss.measure] : "unknown",
                         t->loss.error);
}
