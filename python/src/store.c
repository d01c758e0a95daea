/* store.c - series and chains of snapshots, by the command's code (store/)
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "store/chains.h"
#include "store/series.h"

/* (text, is_sealed) -> the text of series.json, in the form in which it is written. is_sealed:
 * `text` has the last line, with the checksum. ValueError: what is wrong with it. */
PyObject *series_text(PyObject *module, PyObject *args)
{
    static const char newer[] = "it is of a newer version";
    PyObject *result = NULL;
    char *text = NULL, *copy;
    struct list_of_series l;
    const char *given;
    Py_ssize_t size;
    size_t new_size;
    int is_sealed;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#p:series_text", &given, &size, &is_sealed)) return NULL;
    copy = (char *)malloc((size_t)size + 1);
    if (!copy) return PyErr_NoMemory();
    memcpy(copy, given, (size_t)size);
    copy[size] = 0;
    switch (parse_series(&l, copy, (size_t)size, is_sealed)) {
    case LIST_OK: text = format_series((uint64_t)l.every, l.list, l.n, &new_size); break;
    case LIST_DAMAGED: PyErr_SetString(PyExc_ValueError, l.fault); break;
    case LIST_NEWER: PyErr_SetString(PyExc_ValueError, newer); break;
    case LIST_MEMORY: break;
    }
    if (text) result = PyBytes_FromStringAndSize(text, (Py_ssize_t)new_size);
    else if (!PyErr_Occurred()) (void)PyErr_NoMemory();
    free(text);
    free(copy);
    free(l.list);
    return result;
}

/* (name, a str) -> whether a snapshot of a series can have it */
PyObject *is_snapshot_name(PyObject *module, PyObject *name)
{
    PyObject *const bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    char *text;
    int is_name;
    (void)module;
    if (!bytes) return NULL;
    is_name = PyBytes_AsStringAndSize(bytes, &text, NULL) == 0 && !find_fault_of_name(text);
    PyErr_Clear(); /* a zero byte */
    Py_DECREF(bytes);
    return PyBool_FromLong(is_name);
}

/* (names, with line feeds between them; a byte for each: 0 if it is not kept, 1 if it is, 3 if it
 * must stay; at least how many of the kept ones stay) -> (number of the name, whether it stays) of
 * each kept one, sorted by steps */
PyObject *sort_series(PyObject *module, PyObject *args)
{
    struct keep_rules rules = {0, 0, 0};
    PyObject *result = NULL;
    struct snapshot *list, **sorted;
    unsigned long long least;
    Py_ssize_t size, n;
    char *names, *copy;
    const char *marks;
    (void)module;
    if (!PyArg_ParseTuple(args, "s#y#K:sort_series", &names, &size, &marks, &n, &least))
        return NULL;
    copy = (char *)malloc((size_t)size + 1);
    list = (struct snapshot *)calloc((size_t)n + 1, sizeof *list);
    sorted = (struct snapshot **)malloc(((size_t)n + 1) * sizeof *sorted);
    if (copy && list && sorted && (result = PyList_New(0)) != NULL) {
        char *name = memcpy(copy, names, (size_t)size), *end;
        name[size] = 0;
        for (Py_ssize_t i = 0; i < n; i++, name = end ? end + 1 : name) {
            end = strchr(list[i].name = name, '\n');
            if (end) *end = 0;
            list[i].state = marks[i] ? STATE_KEPT : STATE_GONE;
            list[i].stays = marks[i] >> 1;
            sorted[i] = &list[i];
        }
        rules.least = least;
        sort_by_steps(sorted, (size_t)n);
        (void)choose_kept(sorted, (size_t)n, &rules);
    } else (void)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && result; i++)
        if (sorted[i]->state == STATE_KEPT)
            append_new(&result, Py_BuildValue("nN", (Py_ssize_t)(sorted[i] - list),
                                              PyBool_FromLong(sorted[i]->stays)));
    free((void *)sorted);
    free(list);
    free(copy);
    return result;
}

/* (fingerprints, those of the bases) of some snapshots, 16 bytes each, zeros: no base -> (depth,
 * number of the base or -1) of each */
PyObject *measure_chains(PyObject *module, PyObject *args)
{
    static const uint8_t none[LMC_FINGERPRINT_SIZE];
    const char *fingerprints, *bases;
    PyObject *result = NULL;
    struct link_of_chain *list;
    Py_ssize_t size, n;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y#:measure_chains", &fingerprints, &size, &bases, &n))
        return NULL;
    n = (n < size ? n : size) / LMC_FINGERPRINT_SIZE;
    list = (struct link_of_chain *)calloc((size_t)n + 1, sizeof *list);
    for (Py_ssize_t i = 0; i < n && list; i++) {
        list[i].fingerprint = (const uint8_t *)fingerprints + i * LMC_FINGERPRINT_SIZE;
        list[i].wanted = (const uint8_t *)bases + i * LMC_FINGERPRINT_SIZE;
        if (memcmp(list[i].wanted, none, sizeof none) == 0) list[i].wanted = NULL;
    }
    if (list && measure_depths(list, (size_t)n)) result = PyList_New(0);
    else (void)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && result; i++)
        append_new(&result, Py_BuildValue("kn", (unsigned long)list[i].depth,
                                          list[i].below ? (Py_ssize_t)(list[i].below - list) : -1));
    free(list);
    return result;
}
