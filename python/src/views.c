/* views.c - tensors of torch.save() in a snapshot, as PyTorch sees them
 * SPDX-License-Identifier: MIT
 *
 * The index of an LMC file lists their bytes in the order of memory, and each byte once. Whether a
 * tensor is transposed, tied to another, or a part of one is in the file's pickle. formats/ parses
 * it.
 */
#include "reader.h"

#include "formats/container_check.h"
#include "formats/container.h"
#include "formats/torch.h"

/* -- reading the files -- */

/* A file of torch.save() ends with the directory of a ZIP archive, so its last bytes are no tensor,
 * unless the directory is listed as a tensor. For files without tensors only the name tells. A
 * .distcp file is several such archives. */
static int may_be_archive(const lmc_file *f)
{
    size_t i;
    if (f->size < 64) return 0;
    for (i = 0; i < f->n_tensors; i++) {
        const lmc_tensor *const t = &f->tensors[i];
        if (t->size && t->offset + t->size == f->size && strcmp(t->name, "@directory") != 0)
            return 0;
    }
    return f->n_tensors || !*f->path ||
           (*container_suffix(f->path) && container_kind_of_name(f->path) == CONTAINER_NONE);
}

/* -> numbers of the files that may be archives of torch.save() */
PyObject *reader_archives(PyObject *self, PyObject *unused)
{
    reader_object *const r = (reader_object *)self;
    lmc_reader *const reader = begin_use(r);
    PyObject *list = reader ? PyList_New(0) : NULL;
    const lmc_file *file;
    size_t i;
    (void)unused;
    if (!reader) return NULL;
    for (i = 0; list && (file = lmc_reader_get_file(reader, i)) != NULL; i++)
        if (may_be_archive(file)) append_new(&list, PyLong_FromSize_t(i));
    return end_use(r, list);
}

/* A file of the snapshot, for the parsers in formats/. */
typedef struct inside {
    reader_object *reader;
    lmc_base content;
    const lmc_file *file;
    size_t number;
    enum lmc_status status; /* the first error of reading */
} inside;

static int read_inside(void *user, uint64_t offset, void *dst, size_t size)
{
    inside *const in = (inside *)user;
    in->reader->n_read_inside += size;
    in->status = in->content.read(in->content.user, in->number, offset, dst, size);
    return in->status != LMC_OK;
}

/* The .metadata in the directory of a file; NULL: there is none, or it cannot be parsed. It is
 * kept, because all files of a checkpoint need it. */
static const struct dcp *find_metadata(inside *in, int is_delta)
{
    reader_object *const r = in->reader;
    const char *const slash = strrchr(in->file->path, '/');
    const size_t size = slash ? (size_t)(slash + 1 - in->file->path) : 0;
    char *const path = (char *)malloc(size + sizeof ".metadata");
    inside metadata = *in;
    const struct dcp *d = NULL;
    int is_there;
    if (!path) return NULL;
    memcpy(path, in->file->path, size);
    memcpy(path + size, ".metadata", sizeof ".metadata");
    is_there = lmc_reader_find_file(r->reader, path, &metadata.number) == LMC_OK;
    free(path);
    if (!is_there) return NULL;
    if (!dcp_recall(&r->metadata, &d, metadata.number)) {
        const lmc_file *const f = lmc_reader_get_file(r->reader, metadata.number);
        const uint64_t weight = is_delta ? f->size : r->source.size;
        void *data = NULL;
        if (f->size <= pickle_max_size(weight)) data = malloc((size_t)f->size + 1);
        if (!data) return NULL;
        if (read_inside(&metadata, 0, data, (size_t)f->size) == 0) {
            if (dcp_remember(&r->metadata, &d, metadata.number, data, (size_t)f->size, weight) !=
                CONTAINER_OK)
                metadata.status = LMC_ERR_MEMORY;
            if (d) r->n_found_inside += dcp_weigh(d);
        }
        free(data);
        in->status = metadata.status;
    }
    return d;
}

void free_views(reader_object *r) { dcp_forget(&r->metadata); }

/* Without the GIL. CONTAINER_OTHER: it is not a file of torch.save(). */
static enum container_result find_views(inside *in, struct container *c)
{
    reader_object *const r = in->reader;
    const struct dcp *d = NULL;
    lmc_snapshot_info info;
    struct view v;
    unsigned char head[4];
    enum container_result result;
    memset(c, 0, sizeof *c);
    in->status = lmc_reader_get_info(r->reader, &info);
    if (in->status != LMC_OK || in->file->size < sizeof head ||
        container_kind_of_name(in->file->path) != CONTAINER_NONE ||
        read_inside(in, 0, head, sizeof head) != 0 ||
        !container_wants_view(head, sizeof head, in->file->path))
        return CONTAINER_OTHER;
    v.size = in->file->size;
    v.weight =
        info.has_base ? v.size : r->source.size; /* a delta may be much smaller than its tensors */
    v.read = read_inside;
    v.user = in;
    if (container_is_distcp(in->file->path)) d = find_metadata(in, info.has_base);
    if (in->status != LMC_OK) return CONTAINER_OTHER;
    result = container_find_views(c, &v, in->file, d);
    if (result == CONTAINER_OK) r->n_found_inside += container_weigh_views(c);
    if (result == CONTAINER_MEMORY) in->status = LMC_ERR_MEMORY;
    if (result != CONTAINER_OK || info.has_base ||
        !container_has_said_all(r->n_read_inside, r->n_found_inside, r->source.size))
        return result;
    container_free(c);
    return container_bad(c, "with those of other files they say more than the size of the LMC file "
                            "allows");
}

/* As the command does: listed tensors may be transposed, so they are refused. If no tensor is
 * listed, nothing could be parsed before, either, and there is no error. */
static PyObject *refuse_file(const inside *in, const char *why)
{
    const lmc_file *const f = in->file;
    PyObject *text, *path;
    size_t i;
    for (i = 0; i < f->n_tensors && strcmp(f->tensors[i].dtype, "BYTES") == 0; i++) continue;
    if (i == f->n_tensors) return PyList_New(0);
    path = *f->path ? make_text(f->path) : NULL;
    text = PyUnicode_FromFormat("its pickle is not understood, so its tensors are not known (%s)",
                                why);
    if (text)
        (void)raise_explained(state_of(Py_TYPE((PyObject *)in->reader)), LMC_ERR_UNSUPPORTED, text,
                              path ? path : in->reader->where, NULL);
    Py_XDECREF(text);
    Py_XDECREF(path);
    return NULL;
}

/* The listed tensor that has that byte, or NULL. */
static const lmc_tensor *find_listed(const lmc_file *f, uint64_t offset)
{
    size_t low = 0, high = f->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (f->tensors[middle].offset <= offset) low = middle + 1;
        else high = middle;
    }
    if (!low || offset - f->tensors[low - 1].offset >= f->tensors[low - 1].size) return NULL;
    return &f->tensors[low - 1];
}

/* -> (as make_tensor(), without a fingerprint; (strides or None, bytes from the first to the last
 * element, flags); whether several tensors have this name) */
static PyObject *make_view(const lmc_file *f, const struct container_view *v)
{
    uint64_t n = 1, extent = 1;
    int is_contiguous = 1;
    unsigned i;
    for (i = v->rank; i-- > 0;) {
        if (v->shape[i] != 1 && v->strides[i] != n) is_contiguous = 0;
        if (v->shape[i]) extent += (v->shape[i] - 1) * v->strides[i];
        n *= v->shape[i];
    }
    if (n == 0) is_contiguous = 1;
    return Py_BuildValue(
        "(NNNKKyN)(NKI)i", make_text(v->name), make_text(v->dtype), make_shape(v->shape, v->rank),
        (unsigned long long)v->offset, (unsigned long long)(n * (v->bits / 8)), "",
        make_loss(find_listed(f, v->offset)),
        is_contiguous ? Py_BuildValue("") : make_shape(v->strides, v->rank),
        (unsigned long long)(n ? extent * (v->bits / 8) : 0), v->flags, v->is_ambiguous);
}

/* (file number) -> the tensors that the index does not list as PyTorch sees them */
PyObject *reader_views(PyObject *self, PyObject *args)
{
    reader_object *const r = (reader_object *)self;
    PyObject *list = NULL, *done;
    enum container_result result = CONTAINER_OTHER;
    struct container c;
    Py_ssize_t number;
    inside in;
    call read;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTuple(args, "n:views", &number)) return NULL;
    memset(&in, 0, sizeof in);
    in.reader = r;
    in.number = (size_t)number;
    if (!begin_reading(r, &read)) return NULL;
    in.content = lmc_reader_base(r->reader);
    in.file = number < 0 ? NULL : lmc_reader_get_file(r->reader, in.number);
    if (in.file) result = find_views(&in, &c);
    done = end_reading(r, &read, in.file ? in.status : LMC_ERR_ARGUMENT, NULL);
    if (done && result == CONTAINER_BAD) {
        Py_DECREF(done);
        return refuse_file(&in, c.error);
    }
    if (done && begin_use(r)) {
        list = PyList_New(0);
        for (size_t i = 0; list && i < c.n_views; i++)
            append_new(&list, make_view(in.file, &c.views[i]));
        (void)end_use(r, NULL);
    }
    Py_XDECREF(done);
    container_free(&c);
    return list;
}

/* (PyTorch's name of a dtype or of its storage) -> LMC's name, or None */
PyObject *torch_dtype(PyObject *module, PyObject *args)
{
    const char *global;
    (void)module;
    return PyArg_ParseTuple(args, "s:torch_dtype", &global)
               ? Py_BuildValue("z", torch_dtype_name(global))
               : NULL;
}

/* (bytes of a name) -> its suffix, if it is that of a known format: ".pt"; else "" */
PyObject *suffix(PyObject *module, PyObject *args)
{
    const char *name;
    (void)module;
    return PyArg_ParseTuple(args, "y:suffix", &name) ? PyUnicode_FromString(container_suffix(name))
                                                     : NULL;
}

/* -- elements of views -- */

/* Sets the width of an element so that all elements take out_size bytes. Returns whether a span of
 * `size` bytes has them all. No count is 0. */
static int lies_within(struct gathering *g, uint64_t size, uint64_t out_size)
{
    uint64_t n = 1, last = 0;
    for (unsigned i = 0; i < g->rank; i++) {
        if (g->counts[i] > out_size / n) return 0;
        n *= g->counts[i];
        if (g->strides[i] && g->counts[i] - 1 > (size - last) / g->strides[i]) return 0;
        last += (g->counts[i] - 1) * g->strides[i];
    }
    g->width = (size_t)(out_size / n);
    return g->width && n * g->width == out_size && last < size / g->width;
}

/* (span, out, shape, strides): copies all elements to out, in the order of the shape. span: the
 * bytes from the first to the last element. */
PyObject *gather(PyObject *module, PyObject *args)
{
    uint64_t counts[LMC_MAX_RANK], strides[LMC_MAX_RANK];
    PyObject *shape, *steps;
    Py_buffer span, out;
    struct gathering g;
    unsigned rank;
    int is_right = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*OO:gather", &span, &out, &shape, &steps)) return NULL;
    memset(&g, 0, sizeof g);
    g.span = (const unsigned char *)span.buf;
    g.counts = counts;
    g.strides = strides;
    if (parse_shape(shape, counts, &g.rank) == 0 && parse_shape(steps, strides, &rank) == 0) {
        for (unsigned i = 0; i < g.rank; i++) g.is_end |= counts[i] == 0;
        is_right =
            rank == g.rank &&
            (g.is_end ? out.len == 0 : lies_within(&g, (uint64_t)span.len, (uint64_t)out.len));
        if (!is_right) PyErr_SetString(PyExc_ValueError, "the elements do not lie in the span");
    }
    if (is_right) {
        Py_BEGIN_ALLOW_THREADS(void) gather_elements(&g, out.buf, (size_t)out.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&span);
    PyBuffer_Release(&out);
    return is_right ? Py_BuildValue("") : NULL;
}

/* (elements, dtype, flags): conjugates and negates them, if this is known for the dtype. Returns
 * whether it is; elements may be empty. */
PyObject *resolve(PyObject *module, PyObject *args)
{
    const char *dtype;
    Py_buffer elements;
    unsigned flags;
    int is_known;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*sI:resolve", &elements, &dtype, &flags)) return NULL;
    is_known = resolve_flags(elements.buf, (size_t)elements.len, dtype, flags);
    PyBuffer_Release(&elements);
    return PyBool_FromLong(is_known);
}
