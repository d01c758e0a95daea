/* cat.c - lmc cat: tensors of a snapshot, or a slice of one
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../../formats/container.h"
#include "../format/scan.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../sys/output.h"
#include "cat_choice.h"

#define WINDOW_SIZE ((uint64_t)4 << 20)
#define WINDOW_GAP ((uint64_t)256 << 10) /* most bytes between two pieces of a window */

/* Bytes of a view that are gathered before they are written. */
#define CHUNK_SIZE ((size_t)1 << 20)

/* What is written of a tensor: pieces of equal size. An odometer over the outer dimensions, with
 * one digit for each, leads to their places. */
struct extract {
    struct archive *archive;
    struct output *out;
    size_t file;
    const lmc_tensor *tensor;
    const struct container_view *view; /* where its elements are; NULL: in order */
    struct slice slice;
    uint64_t piece;   /* contiguous bytes; in a view, one element */
    unsigned n_outer; /* dimensions of the odometer */
    uint64_t digits[LMC_MAX_RANK];
    uint64_t stride[LMC_MAX_RANK]; /* bytes */
    uint64_t left;                 /* pieces */
    enum lmc_dtype widened;        /* dtype to widen to F32; LMC_AUTO: none */
    unsigned char *window;         /* WINDOW_SIZE */
    unsigned char *wide;           /* for the widened elements of a window */
};

static uint64_t place_of_piece(const struct extract *e)
{
    uint64_t place = 0;
    for (unsigned i = 0; i < e->tensor->rank; i++)
        place += (e->slice.start[i] + (i < e->n_outer ? e->digits[i] : 0)) * e->stride[i];
    return place;
}

static void next_piece(struct extract *e)
{
    e->left--;
    for (unsigned i = e->n_outer; i && i--;) {
        if (++e->digits[i] < e->slice.count[i]) return;
        e->digits[i] = 0;
    }
}

/* A piece is contiguous: the inner dimensions that are taken whole, and the wanted range of the
 * next outer dimension. In a view, a piece is one element. */
static void plan_extract(struct extract *e, uint64_t element)
{
    const lmc_tensor *t = e->tensor;
    unsigned i = t->rank;
    uint64_t stride = element;
    for (unsigned k = t->rank; k && k--;) {
        e->stride[k] = e->view ? e->view->strides[k] * element : stride;
        stride *= t->shape[k];
    }
    e->piece = element;
    if (e->view) i = 0;
    else {
        while (i > 0 && e->slice.count[i - 1] == t->shape[i - 1]) e->piece *= t->shape[--i];
        if (i > 0) e->piece *= e->slice.count[--i];
    }
    e->n_outer = i;
    e->left = e->piece != 0;
    for (unsigned k = 0; k < i; k++) e->left *= e->slice.count[k];
    memset(e->digits, 0, sizeof e->digits);
}

static uint64_t planned_bytes(const struct extract *e)
{
    uint64_t size = e->piece * e->left;
    for (unsigned i = 0; e->view && i < e->view->rank; i++)
        size *= e->slice.count[i]; /* no overflow: the parser checked the whole shape */
    return size;
}

static int write_part(struct output *out, const void *data, size_t size)
{
    int error = write_output(out, data, size);
    return error ? fail_output(out, error) : CODE_OK;
}

/* Writes elements, widened if that is wanted. */
static int write_elements(const struct extract *e, const void *data, size_t size)
{
    const size_t n = e->widened == LMC_AUTO ? 0 : size / widen_width(e->widened);
    progress_add(size);
    if (n == 0) return write_part(e->out, data, size);
    widen_elements(e->widened, e->wide, data, n);
    return write_part(e->out, e->wide, 4 * n);
}

/* at: offset in the tensor */
static int fail_tensor(const struct extract *e, enum lmc_status status, uint64_t at)
{
    return fail_damage(e->archive, status, e->file, e->tensor->offset + at);
}

static int read_part(const struct extract *e, uint64_t at, void *dst, size_t size)
{
    const enum lmc_status status =
        read_counted_tensor(e->archive, e->file, e->tensor, at, dst, size);
    return status == LMC_OK ? CODE_OK : fail_tensor(e, status, at);
}

/* A piece that is larger than the window, as a stream. Reading the stream also writes the bytes. */
struct passing {
    struct extract *e;
    uint64_t next, end; /* bytes of the tensor: what is read next, and where the piece ends */
    int code;
};

static enum lmc_status pass_on(void *user, void *dst, size_t size, size_t *got)
{
    struct passing *const p = (struct passing *)user;
    size = size < WINDOW_SIZE ? size : (size_t)WINDOW_SIZE;
    *got = p->end - p->next < size ? (size_t)(p->end - p->next) : size;
    p->code = read_part(p->e, p->next, dst, *got);
    if (p->code == CODE_OK) p->code = write_elements(p->e, dst, *got);
    p->next += *got;
    return p->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

/* If the piece is a whole tensor, also checks its fingerprint: the reader sees only parts of it. */
static int copy_large_piece(struct extract *e)
{
    struct passing p = {e, place_of_piece(e), place_of_piece(e) + e->piece, CODE_OK};
    const lmc_stream stream = {pass_on, &p, {0, 0}};
    lmc_tensor tensor = *e->tensor;
    enum lmc_status status = LMC_OK;
    size_t got;
    if (e->piece == tensor.size && !e->archive->plain)
        status = identify_alone(&tensor, &stream, &e->archive->o->parallel);
    while (p.code == CODE_OK && p.next < p.end) (void)pass_on(&p, e->window, WINDOW_SIZE, &got);
    if (p.code != CODE_OK) return p.code;
    if (status == LMC_OK && !same_fingerprint(tensor.fingerprint, e->tensor->fingerprint))
        status = LMC_ERR_CORRUPT;
    next_piece(e);
    return status == LMC_OK ? CODE_OK : fail_tensor(e, status, 0);
}

/* Reads the pieces of a window by one call: a call for each would decode their block every time. */
static int copy_window(struct extract *e)
{
    struct extract ahead = *e;
    uint64_t place = place_of_piece(e), end = place;
    while (ahead.left) {
        uint64_t next = place_of_piece(&ahead);
        if (next + e->piece - place > WINDOW_SIZE || next - end > WINDOW_GAP) break;
        end = next + e->piece;
        next_piece(&ahead);
    }
    int code = read_part(e, place, e->window, (size_t)(end - place));
    for (; e->left > ahead.left && code == CODE_OK; next_piece(e))
        code = write_elements(e, e->window + (place_of_piece(e) - place), (size_t)e->piece);
    return code;
}

/* Reads all bytes from a view's first to its last element, as elements may be in any order. */
static int copy_view(struct extract *e)
{
    const struct container_view *const view = e->view;
    const uint64_t start = place_of_piece(e);
    uint64_t extent = e->piece;
    struct gathering g = {0};
    enum lmc_status status;
    size_t n;
    int code;
    for (unsigned i = 0; i < view->rank; i++) {
        if (e->slice.count[i] == 0) return CODE_OK;
        extent += (e->slice.count[i] - 1) * e->stride[i]; /* no overflow: the parser checked it */
    }
    if (extent > SIZE_MAX) return fail(CODE_ERROR, view->name, "is too large for this machine");
    unsigned char *span = (unsigned char *)resize(NULL, (size_t)extent, 1);
    g.span = span;
    g.width = (size_t)e->piece;
    g.rank = view->rank;
    g.counts = e->slice.count;
    g.strides = view->strides;
    status = read_counted(e->archive, e->file, view->offset + start, span, (size_t)extent);
    code =
        status == LMC_OK ? CODE_OK : fail_damage(e->archive, status, e->file, view->offset + start);
    while (code == CODE_OK && (n = gather_elements(&g, e->window, CHUNK_SIZE)) > 0) {
        (void)resolve_flags(e->window, n, view->dtype, view->flags);
        code = write_elements(e, e->window, n);
    }
    free(span);
    return code;
}

static int copy_pieces(struct extract *e)
{
    int code = CODE_OK;
    e->window = (unsigned char *)resize(NULL, (size_t)WINDOW_SIZE, 1);
    if (e->widened != LMC_AUTO) e->wide = (unsigned char *)resize(NULL, (size_t)WINDOW_SIZE, 4);
    if (e->view) code = copy_view(e);
    while (!e->view && e->left && code == CODE_OK)
        code = e->piece <= WINDOW_SIZE ? copy_window(e) : copy_large_piece(e);
    free(e->wide);
    free(e->window);
    e->wide = e->window = NULL;
    return code;
}

static int write_npy_header(const struct extract *e)
{
    char text[128 + LMC_MAX_RANK * 22];
    const char *descr = e->widened != LMC_AUTO ? "<f4" : npy_descr(e->tensor->dtype);
    size_t size = 10, end;
    unsigned n = 0;
    if (!descr)
        return fail(CODE_ERROR, e->tensor->name,
                    "has the dtype %s, which NumPy does not know; leave out --npy",
                    e->tensor->dtype);
    memcpy(text, "\x93NUMPY\1\0", 8);
    size += (size_t)snprintf(text + size, sizeof text - size,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (unsigned i = 0; i < e->tensor->rank; i++)
        if (!e->slice.dropped[i])
            size += (size_t)snprintf(text + size, sizeof text - size, "%s%llu", n++ ? ", " : "",
                                     (unsigned long long)e->slice.count[i]);
    size += (size_t)snprintf(text + size, sizeof text - size, "%s), }", n == 1 ? "," : "");
    end = (size + 1 + 63) / 64 * 64;
    memset(text + size, ' ', end - size);
    text[end - 1] = '\n';
    text[8] = (char)((end - 10) & 255);
    text[9] = (char)((end - 10) >> 8);
    progress_add(end);
    return write_part(e->out, text, end);
}

static void take_chosen(struct extract *e, const struct chosen *c)
{
    e->file = c->file;
    e->tensor = &c->tensor;
    e->view = c->view;
}

/* Finds the tensor and its slice. Names may contain brackets: the longest one is taken. */
static int find_tensor(struct extract *e, struct selection *c, const char *text, const char *file,
                       int *has_slice)
{
    const size_t size = strlen(text);
    const char *bracket = strrchr(text, '['), *slice = "]";
    char *name = copy_string(text, size);
    enum lmc_status status = choose_tensor(c, e->archive, name, file);
    *has_slice = status == LMC_ERR_NOT_FOUND && bracket && text[size - 1] == ']';
    if (*has_slice) {
        slice = bracket + 1;
        name[bracket - text] = 0;
        status = choose_tensor(c, e->archive, name, file);
    }
    if (status == LMC_OK) take_chosen(e, c->list);
    int code = status == LMC_OK ? parse_slice(&e->slice, slice, e->tensor)
                                : fail_lookup(e->archive, status, name, file);
    free(name);
    return code;
}

/* Finds the tensor if no name was given: it must be the only one. */
static int find_only_tensor(struct extract *e, struct selection *c)
{
    switch (choose_tensor(c, e->archive, NULL, NULL)) {
    case LMC_OK: take_chosen(e, c->list); return parse_slice(&e->slice, "]", e->tensor);
    case LMC_ERR_AMBIGUOUS:
        return fail(CODE_USAGE, e->archive->name,
                    "has several tensors; name one ('lmc -l' lists them)");
    default: return fail(CODE_ERROR, e->archive->name, "has no tensors; restore it with -d");
    }
}

static int plan_cat(struct extract *e, int has_slice)
{
    const lmc_tensor *t = e->tensor;
    enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
    unsigned bits = lmc_dtype_bits(dtype);
    if (e->view) {
        if (e->view->is_ambiguous)
            return fail(
                CODE_ERROR, e->view->name,
                "is the name of several tensors of the file; restore it with -d, and read it "
                "with PyTorch");
        if (!resolve_flags(NULL, 0, e->view->dtype, e->view->flags))
            return fail(CODE_ERROR, e->view->name,
                        "PyTorch marks it as conjugated or negated, which lmc cannot undo for %s; "
                        "restore the file with -d, and read it with PyTorch",
                        e->view->dtype);
        plan_extract(e, e->view->bits / 8);
        return CODE_OK;
    }
    if (has_slice && dtype == LMC_AUTO)
        return fail(CODE_ERROR, t->name,
                    "has the dtype %s, whose element size is unknown; read it without a slice",
                    t->dtype);
    if (has_slice && bits % 8 != 0)
        return fail(CODE_ERROR, t->name,
                    "has the dtype %s, whose elements are not whole bytes; read it without a slice",
                    t->dtype);
    if (has_slice) {
        plan_extract(e, bits / 8);
        return CODE_OK;
    }
    memset(e->stride, 0, sizeof e->stride);
    e->n_outer = 0;
    e->piece = t->size;
    e->left = t->size != 0;
    return CODE_OK;
}

/* Plans what --f32 does. With --safetensors, tensors that cannot be widened stay as they are. */
static int plan_widening(struct extract *e, const struct options *options)
{
    const enum lmc_dtype dtype = lmc_dtype_find(e->tensor->dtype);
    e->widened = LMC_AUTO;
    if (!options->f32 || dtype == LMC_F32) return CODE_OK;
    if (!widen_width(dtype) && !options->safetensors)
        return fail(CODE_ERROR, e->tensor->name,
                    "has the dtype %s, and --f32 is for BF16, F16, F8_E4M3 and F8_E5M2",
                    e->tensor->dtype);
    if (widen_width(dtype)) e->widened = dtype;
    return CODE_OK;
}

/* If --file is a symbolic link or below one, replaces it by its target. *led is to be freed. */
static int follow_file(const struct archive *a, struct options *options, char **led)
{
    const struct link *first;
    struct links links;
    size_t number;
    int code = CODE_OK;
    if (!options->file || a->plain ||
        lmc_reader_find_file(a->reader, options->file, &number) == LMC_OK)
        return CODE_OK;
    if (read_links(&links, a->reader) != 0) return fail_bad_links(a->name);
    *led = resolve_links(&links, options->file, &first, NULL);
    if (first && (!*led || lmc_reader_find_file(a->reader, *led, &number) != LMC_OK ||
                  lmc_reader_get_file(a->reader, number)->kind != LMC_FILE_REGULAR))
        code = fail(CODE_ERROR, a->name,
                    "'%.300s' is a link to '%.300s', which is not a file of the snapshot",
                    first->path, first->target);
    else if (first) options->file = *led;
    free_links(&links);
    return code;
}

/* Elements of a view may share bytes, as those of torch.Tensor.expand() do: 1 KB of a hostile file
 * can say 2^62 bytes. No honest view is much larger than all files together, which themselves have
 * at most MAX_RATIO bytes for each byte of a snapshot (spec, section 9). */
#define VIEWS_ROOM ((uint64_t)64 << 20)
enum { VIEWS_RATIO = 64, MAX_RATIO = 123362 };

static uint64_t times(uint64_t a, uint64_t b) { return b > UINT64_MAX / a ? UINT64_MAX : a * b; }

static uint64_t most_bytes(const struct archive *a)
{
    const lmc_base files = files_of_archive(a);
    uint64_t total = 0, most, most_of_snapshot = UINT64_MAX;
    for (size_t i = 0; i < files.n_files; i++) total += files.get_file(files.user, i)->size;
    most = times(VIEWS_RATIO, total);
    if (!a->plain && !a->is_delta) most_of_snapshot = times(MAX_RATIO, archive_size(a));
    if (most > most_of_snapshot) most = most_of_snapshot;
    return most < UINT64_MAX - VIEWS_ROOM ? most + VIEWS_ROOM : UINT64_MAX;
}

/* total: of the bytes that are asked for; UINT64_MAX: or more. */
static int check_total(const struct extract *e, uint64_t total, const struct options *o)
{
    const uint64_t most = most_bytes(e->archive);
    char asked[SIZE_TEXT], allowed[SIZE_TEXT];
    if (total <= most || o->force) return CODE_OK;
    format_size(asked, sizeof asked, total);
    format_size(allowed, sizeof allowed, most);
    return fail(CODE_ERROR, e->archive->name,
                "the tensors would take %s, far more than their file: elements share its bytes "
                "(expand() of PyTorch); without -f at most %s are written",
                asked, allowed);
}

static int open_cat_output(const struct extract *e, const struct options *o)
{
    return open_output(e->out, file_of_output(o), &e->archive->st, o->force);
}

/* -- a safetensors file of some tensors -- */

/* Bytes of an element of the tensor before --f32 widens it; 0: it is not widened. */
static unsigned widened_width(const lmc_tensor *t, const struct options *options)
{
    return options->f32 ? widen_width(lmc_dtype_find(t->dtype)) : 0;
}

/* Checks that a safetensors file can hold the chosen tensors. */
static int check_chosen(const struct archive *a, const struct chosen *list, size_t n)
{
    const char **names = (const char **)resize(NULL, n, sizeof *names);
    int code = CODE_OK;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        const lmc_tensor *const t = &list[i].tensor;
        json_t *const text = json_string(t->name);
        names[i] = t->name;
        if (!text) code = fail(CODE_ERROR, t->name, "is no UTF-8, which safetensors needs");
        else if (lmc_dtype_find(t->dtype) == LMC_AUTO || lmc_dtype_find(t->dtype) > LMC_U64)
            code = fail(CODE_ERROR, t->name,
                        "has the dtype %s, which safetensors does not have; name only the "
                        "tensors that you want",
                        t->dtype);
        json_decref(text);
    }
    if (code == CODE_OK) qsort((void *)names, n, sizeof *names, compare_texts);
    for (size_t i = 1; i < n && code == CODE_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            code = fail_lookup(a, LMC_ERR_AMBIGUOUS, names[i], NULL);
    free((void *)names);
    return code;
}

/* Writes the header: its size in eight bytes, JSON, and spaces that align the data. */
static int write_safetensors_header(struct output *out, const struct chosen *list, size_t n,
                                    const struct options *options)
{
    char *text = NULL;
    size_t size;
    FILE *f = (FILE *)check_memory(open_memstream(&text, &size));
    uint64_t offsets[2] = {0, 0}; /* where a tensor begins and ends */
    struct json_writer w;
    init_json_writer(&w, f, JSON_COMPACT);
    fprintf(f, "%8s", "");
    begin_json(&w, NULL, '{');
    begin_json(&w, "__metadata__", '{');
    put_json(&w, "format", json_string("pt"));
    end_json(&w, '}');
    for (size_t i = 0; i < n; i++, offsets[0] = offsets[1]) {
        const lmc_tensor *const t = &list[i].tensor;
        const unsigned width = widened_width(t, options);
        offsets[1] += width ? t->size / width * 4 : t->size;
        begin_json(&w, t->name, '{');
        put_json(&w, "dtype", json_string(width ? "F32" : t->dtype));
        put_json_numbers(&w, "shape", t->shape, t->rank);
        put_json_numbers(&w, "data_offsets", offsets, 2);
        end_json(&w, '}');
    }
    end_json(&w, '}');
    if (fflush(f) != 0) check_memory(NULL);
    fprintf(f, "%*s", (int)(7 - (size + 7) % 8), "");
    close_text(f, &text);
    for (unsigned i = 0; i < 8; i++) text[i] = (char)((uint64_t)(size - 8) >> 8 * i & 255);
    int code = write_part(out, text, size);
    progress_add(size);
    free(text);
    return code;
}

static int cat_safetensors(struct extract *e, struct selection *c, char *const *names, size_t n,
                           const struct options *options)
{
    uint64_t total = 0;
    int code = choose_tensors(c, e->archive, names, n, options->file);
    if (code == CODE_OK) code = check_chosen(e->archive, c->list, c->n);
    for (size_t i = 0; i < c->n; i++)
        total += c->list[i].tensor.size < UINT64_MAX - total ? c->list[i].tensor.size
                                                             : UINT64_MAX - total;
    if (code == CODE_OK) code = check_total(e, total, options);
    if (code == CODE_OK) code = open_cat_output(e, options);
    progress_start(e->archive->name, total);
    if (code == CODE_OK) code = write_safetensors_header(e->out, c->list, c->n, options);
    for (size_t i = 0; i < c->n && code == CODE_OK; i++) {
        take_chosen(e, &c->list[i]);
        code = plan_widening(e, options);
        if (code == CODE_OK) code = parse_slice(&e->slice, "]", e->tensor);
        if (code == CODE_OK) code = plan_cat(e, 0);
        if (code == CODE_OK) code = copy_pieces(e);
    }
    return code;
}

/* Writes one tensor, or a slice of it. */
static int cat_one(struct extract *e, struct selection *c, const char *name,
                   const struct options *options)
{
    int has_slice = 0;
    int code = name ? find_tensor(e, c, name, options->file, &has_slice) : find_only_tensor(e, c);
    if (code == CODE_OK) code = plan_widening(e, options);
    if (code == CODE_OK) code = plan_cat(e, has_slice);
    if (code == CODE_OK) code = check_total(e, planned_bytes(e), options);
    if (code == CODE_OK) code = open_cat_output(e, options);
    if (code != CODE_OK) return code;
    progress_start(e->archive->name, planned_bytes(e));
    if (options->npy) code = write_npy_header(e);
    return code == CODE_OK ? copy_pieces(e) : code;
}

int cat_tensors(const struct options *given)
{
    struct options followed = *given;
    const struct options *const o = &followed;
    char *const *const names = o->names + 1;
    const size_t n = o->n_names - 1;
    char *led = NULL;
    struct archive a;
    struct base plain;
    struct extract e = {0};
    struct selection c = {0};
    struct output out = {0};
    const lmc_base *base;
    double start = now();
    int code = open_archive_or_plain(&a, &plain, o->names[0], o);
    if (code == CODE_OK && !a.plain) code = find_base_of_archive(&a, &base, o);
    if (code == CODE_OK) code = protect_bases(NULL, file_of_output(o), 0, o);
    if (code == CODE_OK && !a.plain) code = read_archive_index(&a, base);
    if (code == CODE_OK) code = protect_plain(&plain, file_of_output(o));
    if (code == CODE_OK) code = follow_file(&a, &followed, &led);
    e.archive = &a;
    e.out = &out;
    if (code == CODE_OK)
        code = o->safetensors ? cat_safetensors(&e, &c, names, n, o)
                              : cat_one(&e, &c, n ? names[0] : NULL, o);
    progress_clear();
    /* again, as copies may have been read in place of damaged bases */
    if (code == CODE_OK) code = protect_bases(NULL, file_of_output(o), 0, o);
    if (code == CODE_OK) code = commit_output(&out, NULL);
    else discard_output(&out);
    if (code == CODE_OK && o->verbosity >= 2) {
        for (size_t i = 0; i < o->bases->n; i++) {
            a.n_reads += o->bases->list[i].archive.n_reads;
            a.n_bytes += o->bases->list[i].archive.n_bytes;
        }
        say(a.name, "%llu bytes out of %llu reads of %llu bytes, %.1f ms",
            (unsigned long long)out.outlet.size, (unsigned long long)a.n_reads,
            (unsigned long long)a.n_bytes, (now() - start) * 1e3);
    }
    free_selection(&c);
    close_archive(&a);
    close_base(&plain);
    free(led);
    return code;
}
