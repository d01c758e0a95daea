/* reader.h - a Reader, for the files of the extension that use one
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CODEC_READER_H
#define LMC_CODEC_READER_H

#include "common.h"

#include "formats/torch.h"

struct reader_object {
    PyObject_HEAD lmc_reader *reader; /* NULL: closed */
    file_source source;
    lmc_source callbacks;
    named_base own_base; /* the base of this delta */
    PyObject *base;      /* the object of the base, or NULL */
    PyObject *lender;    /* another Reader of the same base, or NULL */
    PyObject *where;     /* its name in messages */
    thread_pool pool;
    object_lock lock;
    uint64_t max_index_size;
    uint64_t serial; /* higher than that of each older reader */
    volatile int
        is_base; /* other readers or writers use it: its memory stays until they are freed */
    int is_closed;
    /* for views.c: bytes read and found in all files, and what was read of .metadata */
    uint64_t n_read_inside, n_found_inside;
    struct dcp_memo metadata;
};

int is_reader(module_state *state, PyObject *object);
/* The newest reader that is older than `limit` among an object and its bases, or NULL. A base is
 * older than its users. */
reader_object *find_newest(module_state *state, PyObject *object, uint64_t limit);

/* Takes the lock to read the tables; NULL and an exception if the reader is closed. */
lmc_reader *begin_use(reader_object *r);
PyObject *end_use(reader_object *r, PyObject *result);
/* Locks the reader and its bases, and releases the GIL. NULL and an exception: it is closed.
 */
lmc_reader *begin_reading(reader_object *r, call *c);
/* Returns None, or NULL and an exception. what: names the tensor or file in messages. */
PyObject *end_reading(reader_object *r, call *c, enum lmc_status status, PyObject *what);

/* None, or (generation, measure, error) */
PyObject *make_loss(const lmc_tensor *t);
PyObject *reader_archives(PyObject *self, PyObject *unused);
PyObject *reader_views(PyObject *self, PyObject *args);
void free_views(reader_object *r);

#endif
