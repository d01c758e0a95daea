/* reader.h - what reader.c and views.c share
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
    named_base own_base; /* what it is coded against */
    PyObject *base;      /* that one's object, or NULL */
    PyObject *where;     /* its name in messages */
    thread_pool pool;
    object_lock lock;
    uint64_t max_index_size;
    uint64_t serial;      /* higher than those of all readers that were made before */
    volatile int is_base; /* of other readers or writers: its memory stays until they are gone */
    int is_closed;
    /* of views.c: what all files have said, and the .metadata that was read last */
    uint64_t n_read_inside, n_found_inside;
    size_t metadata; /* its file number, and 1; 0: none */
    struct dcp dcp;
    int has_dcp; /* it is understood */
};

/* Holds the lock for what reads the tables; NULL and an exception if it is closed. */
lmc_reader *begin_use(reader_object *r);
PyObject *end_use(reader_object *r, PyObject *result);
/* Takes the lock of it and its bases, and lets go of the GIL. NULL and an exception: it is closed.
 */
lmc_reader *begin_reading(reader_object *r, call *c);
/* None, or NULL and an exception; what: was read, for messages. */
PyObject *end_reading(reader_object *r, call *c, enum lmc_status status, PyObject *what);
/* All of a tensor by its name, if it is these bytes: then the library compares its fingerprint. */
enum lmc_status read_span(lmc_reader *reader, size_t number, uint64_t offset, uint8_t *dst,
                          size_t size);

PyObject *make_loss(const lmc_tensor *t);
PyObject *reader_archives(PyObject *self, PyObject *unused);
PyObject *reader_views(PyObject *self, PyObject *args);
void free_views(reader_object *r);

#endif
