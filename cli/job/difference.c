/* SPDX-License-Identifier: MIT */
#include "difference.h"

#include "../choose/members.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../format/scan.h"
#include "../input/base.h"
#include "../input/options.h"

/* Bytes that are compared and coded by one call. They are few, to stay in the cache between these,
 * but whole blocks of deltas for elements of up to 8 bytes. */
#define DIFF_PIECE ((size_t)2 << 20)

/* Of so many pieces of a tensor one is coded alone, too. */
#define DIFF_DIRECT 4

/* Tensors of at most so many bytes are coded together, as in a snapshot. */
#define DIFF_SMALL (DIFF_PIECE / 8)

const char *const diff_names[DIFF_KINDS] = {"same",    "changed", "reshaped",
                                            "retyped", "added",   "removed"};

/* -- items -- */

static int compare_diff_items(const void *a, const void *b)
{
    const struct diff_item *x = (const struct diff_item *)a, *y = (const struct diff_item *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

static void add_diff_item(struct diff_items *items, const lmc_file *f, size_t file_number,
                          const lmc_tensor *t, size_t number)
{
    struct diff_item *item =
        (struct diff_item *)append(&items->list, &items->n, &items->cap, sizeof *item);
    item->name = t ? t->name : f->path;
    item->path = f->path;
    item->tensor = t;
    item->dtype = t ? t->dtype : "";
    item->size = t ? t->size : f->size;
    item->offset = t ? t->offset : 0;
    item->file_number = file_number;
    item->number = number;
    item->fingerprint = t ? t->fingerprint : f->fingerprint;
}

void collect_diff_items(struct diff_items *items, const struct base *b)
{
    for (size_t i = 0; i < b->source.n_files; i++) {
        const lmc_file *f = b->source.get_file(b->source.user, i);
        const size_t n = items->n_numbers;
        for (size_t k = 0; k < f->n_tensors; k++) add_diff_item(items, f, i, &f->tensors[k], n + k);
        if (f->n_tensors == 0 && f->kind == LMC_FILE_REGULAR) add_diff_item(items, f, i, NULL, n);
        items->n_numbers += f->n_tensors ? f->n_tensors : 1;
    }
    if (items->n) qsort(items->list, items->n, sizeof *items->list, compare_diff_items);
}

/* The item of that name; path NULL: in any file. NULL: there is none. */
static struct diff_item *find_item(const struct diff_items *items, const char *path,
                                   const char *name)
{
    const struct diff_item wanted = {.name = name, .path = path ? path : ""};
    size_t i;
    FIND_FIRST(i, items->n, compare_diff_items(&items->list[i], &wanted) < 0);
    return i < items->n && strcmp(items->list[i].name, name) == 0 &&
                   (!path || strcmp(items->list[i].path, path) == 0)
               ? &items->list[i]
               : NULL;
}

static int has_same_type(const struct diff_item *a, const struct diff_item *b)
{
    return !a->tensor == !b->tensor && strcmp(a->dtype, b->dtype) == 0;
}

/* The old item of the same name; of several, the most similar one. NULL: none. */
static struct diff_item *find_old_item(const struct diff *d, const struct diff_item *item)
{
    struct diff_item *found = NULL;
    size_t low;
    int best = -1;
    FIND_FIRST(low, d->old_items.n, strcmp(d->old_items.list[low].name, item->name) < 0);
    for (; low < d->old_items.n && strcmp(d->old_items.list[low].name, item->name) == 0; low++) {
        struct diff_item *old = &d->old_items.list[low];
        int likeness = 4 * has_same_type(old, item) + 2 * (old->size == item->size) +
                       (strcmp(old->path, item->path) == 0);
        if (likeness > best) {
            best = likeness;
            found = old;
        }
    }
    return found;
}

/* -- measuring -- */

static enum diff_kind compare_items(const struct diff_item *old, const struct diff_item *item)
{
    if (!old) return DIFF_ADDED;
    if (!has_same_type(old, item)) return DIFF_RETYPED;
    if (item->tensor && !is_same_kind(old->tensor, item->tensor)) return DIFF_RESHAPED;
    return same_fingerprint(old->fingerprint, item->fingerprint) ? DIFF_SAME : DIFF_CHANGED;
}

static int code_piece(struct diff *d, lmc_tensor_options *options, const void *prediction,
                      size_t size, uint64_t *total)
{
    size_t coded, workspace_size, cap;
    options->prediction = prediction;
    options->prediction_size = prediction ? size : 0;
    workspace_size = lmc_tensor_workspace_size(options);
    cap = lmc_tensor_bound(size, options);
    if (workspace_size > d->workspace_size)
        d->workspace = (unsigned char *)resize(d->workspace, d->workspace_size = workspace_size, 1);
    if (cap > d->coded_size) d->coded = (unsigned char *)resize(d->coded, d->coded_size = cap, 1);
    enum lmc_status status = lmc_tensor_encode(d->coded, d->coded_size, &coded, d->new_piece, size,
                                               options, d->workspace, d->workspace_size);
    *total += coded;
    return status == LMC_OK ? CODE_OK : fail_status(d->b->name, status);
}

/* The number of elements that differ in any bit. Each width has its own loop: a call of memcmp for
 * each element would take longer than coding. A run of constant length, whose count is as wide as
 * an element, becomes vector instructions. */
#define COUNT_CHANGED(type)                                                                        \
    COUNT_RUNS(type, 128)                                                                          \
    COUNT_RUNS(type, 1)
#define COUNT_RUNS(type, length)                                                                   \
    for (; size - at >= (length) * sizeof(type); at += (length) * sizeof(type)) {                  \
        type x, y, changed = 0;                                                                    \
        for (size_t i = 0; i < (length); i++) {                                                    \
            memcpy(&x, a + at + i * sizeof x, sizeof x);                                           \
            memcpy(&y, b + at + i * sizeof y, sizeof y);                                           \
            changed = (type)(changed + (x != y));                                                  \
        }                                                                                          \
        n += changed;                                                                              \
    }
static uint64_t count_changed(const unsigned char *a, const unsigned char *b, size_t size,
                              unsigned width)
{
    uint64_t n = 0;
    size_t at = 0;
    switch (width) {
    case 1: COUNT_CHANGED(uint8_t) break;
    case 2: COUNT_CHANGED(uint16_t) break;
    case 4: COUNT_CHANGED(uint32_t) break;
    default: COUNT_CHANGED(uint64_t) break;
    }
    return n;
}
#undef COUNT_CHANGED
#undef COUNT_RUNS

static int read_item(const struct base *b, const struct diff_item *item, uint64_t at, void *dst,
                     size_t size)
{
    return b->source.read(b->source.user, item->file_number, item->offset + at, dst, size) == 0;
}

/* Whether A has something that predicts it. */
static int has_old(const struct diff_row *row) { return row->old || row->n_parts; }

/* Reads what predicts bytes of the row: of A. What no part has is predicted by zeros. */
static int read_old(struct diff *d, const struct diff_row *row, uint64_t at, unsigned char *dst,
                    size_t size)
{
    uint64_t start = 0, end;
    if (row->old) return read_item(d->a, row->old, at, dst, size);
    memset(dst, 0, size);
    for (const lmc_base_part *p = row->parts; p < row->parts + row->n_parts; p++, start = end) {
        const uint64_t from = start > at ? start : at,
                       to = start + p->size < at + size ? start + p->size : at + size;
        end = start + p->size;
        if (p->name && from < to &&
            !read_item(d->a, find_item(&d->old_items, p->path, p->name), p->offset + from - start,
                       dst + (from - at), (size_t)(to - from)))
            return 0;
    }
    return 1;
}

/* Reads what its twin predicts of bytes of the row. */
static int read_twin(struct diff *d, const struct diff_row *row, uint64_t at, size_t size)
{
    const size_t scale = row->conversion ? 2 : 1;
    if (!read_item(d->b, row->twin, scale * at, d->old_piece, scale * size)) return 0;
    return !row->conversion ||
           lmc_conversion_apply(d->old_piece, d->old_piece, size / 2, row->conversion) == LMC_OK;
}

static lmc_tensor_options options_of(const struct diff *d, const struct diff_item *item)
{
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(lmc_dtype_find(item->dtype));
    options.level = d->o->level;
    options.parallel = &d->o->parallel;
    return options;
}

static void begin_row(struct diff_row *row, unsigned width)
{
    row->n = row->item->size / width;
    row->n_changed = has_old(row) ? 0 : row->n;
}

/* scan: NULL, or gets the counts of this item's elements; then all of it is coded alone. */
static int measure_item(struct diff *d, struct diff_row *row, struct scan *scan)
{
    const struct diff_item *item = row->item;
    const int is_delta = has_old(row) || row->twin;
    lmc_tensor_options options = options_of(d, item);
    unsigned width = lmc_dtype_width(options.dtype);
    uint64_t n_direct = 0; /* bytes that were coded alone */
    begin_row(row, width);
    if (scan) scan_begin(scan, options.dtype);
    for (uint64_t at = 0, i = 0; at < item->size; at += DIFF_PIECE, i++) {
        size_t size = (size_t)(item->size - at < DIFF_PIECE ? item->size - at : DIFF_PIECE);
        int code = CODE_OK;
        if (!read_item(d->b, item, at, d->new_piece, size) ||
            (has_old(row) && !read_old(d, row, at, d->old_piece, size)))
            return d->o->bases->code;
        if (scan) scan_piece(scan, d->new_piece, size);
        if (has_old(row) && row->kind != DIFF_SAME) {
            row->n_changed += count_changed(d->old_piece, d->new_piece, size, width);
            if (scan) scan_signs(scan, d->old_piece, d->new_piece, size);
        }
        if (row->twin && !read_twin(d, row, at, size)) return d->o->bases->code;
        if (!is_delta || scan || i % DIFF_DIRECT == 0) {
            code = code_piece(d, &options, NULL, size, &row->direct);
            n_direct += size;
        }
        if (code == CODE_OK && is_delta)
            code = code_piece(d, &options, d->old_piece, size, &row->delta);
        if (code != CODE_OK) return code;
        progress_add(size);
    }
    if (n_direct < item->size)
        row->direct = (uint64_t)((double)row->direct * (double)item->size / (double)n_direct);
    if (!is_delta) row->delta = row->direct;
    return CODE_OK;
}

/* Whether it can be coded together with its neighbours. */
static int is_small(const struct diff_row *row)
{
    return has_old(row) && !row->twin && row->item->size <= DIFF_SMALL;
}

/* The number of rows, of n, that are coded together with the first one. */
static size_t count_together(struct diff_row *const *rows, size_t n)
{
    const enum lmc_dtype dtype = lmc_dtype_find(rows[0]->item->dtype);
    uint64_t size = 0;
    size_t i = 0;
    while (i < n && is_small(rows[i]) && lmc_dtype_find(rows[i]->item->dtype) == dtype &&
           (size += rows[i]->item->size) <= DIFF_PIECE)
        i++;
    return i;
}

/* Takes a part of what is left: `weight` of all weights that are left. */
static uint64_t take_share(uint64_t *left, uint64_t weight, uint64_t *weights)
{
    const uint64_t part = *weights ? *left * weight / *weights : 0;
    *left -= part;
    *weights -= weight;
    return part;
}

/* Measures small rows of one dtype as one array. Each gets a part of what the array takes: by its
 * size alone, and of the delta by what has changed in it. */
static int measure_together(struct diff *d, struct diff_row *const *rows, size_t n)
{
    lmc_tensor_options options = options_of(d, rows[0]->item);
    const unsigned width = lmc_dtype_width(options.dtype);
    uint64_t size = 0, n_changed = 0, direct = 0, delta = 0;
    for (size_t i = 0; i < n; i++) {
        struct diff_row *const row = rows[i];
        unsigned char *const from = d->old_piece + size, *const to = d->new_piece + size;
        const size_t row_size = (size_t)row->item->size;
        begin_row(row, width);
        if (!read_item(d->b, row->item, 0, to, row_size) || !read_old(d, row, 0, from, row_size))
            return d->o->bases->code;
        if (row->kind != DIFF_SAME) row->n_changed = count_changed(from, to, row_size, width);
        size += row_size;
        n_changed += row->n_changed;
    }
    if (size == 0) return CODE_OK;
    int code = code_piece(d, &options, NULL, (size_t)size, &direct);
    if (code == CODE_OK) code = code_piece(d, &options, d->old_piece, (size_t)size, &delta);
    progress_add(size);
    const int by_size = n_changed == 0;
    for (size_t i = 0; i < n; i++) {
        struct diff_row *const row = rows[i];
        uint64_t left = size;
        row->delta = by_size ? take_share(&delta, row->item->size, &left)
                             : take_share(&delta, row->n_changed, &n_changed);
        row->direct = take_share(&direct, row->item->size, &size);
    }
    return code;
}

/* -- matching -- */

/* The files of B as members of a new snapshot, for what chooses twins and parts. */
static struct members *describe_members(const struct diff *d)
{
    struct members *m = (struct members *)zeroed(1, sizeof *m);
    m->o = d->o;
    m->n = d->b->source.n_files;
    m->list = (struct member *)zeroed(m->n, sizeof *m->list);
    if (is_snapshot(d->b)) m->archive = &d->b->archive;
    for (size_t i = 0; i < m->n; i++) {
        const lmc_file *f = d->b->source.get_file(d->b->source.user, i);
        m->list[i].path = f->path;
        m->list[i].number = i;
        set_tensors(&m->list[i], f->tensors, f->n_tensors);
        if (m->archive) continue;
        m->list[i].full = copy_text(d->b->files[i].full);
        m->list[i].st = d->b->files[i].st;
    }
    return m;
}

/* Takes the hints for a tensor of a member, or for the member, for its row. */
static void take_hints(struct diff *d, const struct member *member, size_t k)
{
    const struct members *const m = d->members;
    const lmc_tensor_hints *const h = &member->hints[k];
    const char *const name = member->n_tensors ? member->tensors[k].name : member->path;
    const struct diff_item *const item = find_item(&d->new_items, member->path, name);
    struct diff_row *row = item ? &d->rows[item - d->new_items.list] : NULL;
    if (!row) return; /* a directory */
    row->parts = h->base_parts;
    row->n_parts = h->n_base_parts;
    for (size_t i = 0; i < row->n_parts; i++)
        if (row->parts[i].name) {
            find_item(&d->old_items, row->parts[i].path, row->parts[i].name)->is_matched = 1;
            if (row->kind == DIFF_ADDED) row->kind = DIFF_RESHAPED;
        }
    if (!h->twin) return;
    const struct member *const other = &m->list[h->twin->file_number];
    const lmc_tensor *const original = tensor_at(other, h->twin->offset);
    row->twin =
        find_item(&d->new_items, other->path, other->n_tensors ? original->name : other->path);
    row->conversion = h->twin->conversion;
}

/* Finds what predicts the items of B other than by their names: twins, and parts of A. */
static int find_hints(struct diff *d)
{
    struct members *const m = d->members = describe_members(d);
    const int code = find_twins(m);
    (void)find_parts(m, &d->a->source);
    for (size_t i = 0; i < m->n && code == CODE_OK; i++)
        for (size_t k = 0; k < count_hints(&m->list[i]); k++) take_hints(d, &m->list[i], k);
    return code;
}

int match_items(struct diff *d)
{
    lmc_match *matches = (lmc_match *)zeroed(d->new_items.n_numbers + 1, sizeof *matches);
    int code = CODE_OK;
    if (d->a && lmc_base_match(&d->a->source, &d->b->source, matches, NULL) != LMC_OK)
        check_memory(NULL);
    d->rows = (struct diff_row *)zeroed(d->old_items.n + d->new_items.n, sizeof *d->rows);
    for (size_t i = 0; i < d->new_items.n; i++) {
        struct diff_item *const item = &d->new_items.list[i], *named = find_old_item(d, item);
        const lmc_match *const match = &matches[item->number];
        struct diff_row *row = &d->rows[d->n_rows++];
        row->item = item;
        if (d->a && match->file_number != SIZE_MAX) {
            const char *path = d->a->source.get_file(d->a->source.user, match->file_number)->path;
            named = find_item(&d->old_items, path, match->tensor ? match->tensor->name : path);
            row->old = named;
        }
        row->kind = compare_items(named, item);
        if (named) named->is_matched = 1;
    }
    free(matches);
    if (d->a) code = find_hints(d);
    for (size_t i = 0; i < d->old_items.n; i++)
        if (!d->old_items.list[i].is_matched) {
            struct diff_row *row = &d->rows[d->n_rows++];
            row->item = &d->old_items.list[i];
            row->kind = DIFF_REMOVED;
        }
    return code;
}

void free_diff(struct diff *d)
{
    if (d->members) free_members(d->members);
    free(d->members);
    free(d->new_items.list);
    free(d->rows);
}

static int compare_places(const void *a, const void *b)
{
    const struct diff_item *x = (*(struct diff_row *const *)a)->item,
                           *y = (*(struct diff_row *const *)b)->item;
    if (x->file_number != y->file_number) return x->file_number < y->file_number ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int measure_all(struct diff *d, struct scan *scan,
                void (*measured)(void *user, size_t row, const struct scan *scan), void *user)
{
    const size_t n = d->new_items.n;
    struct diff_row **rows = (struct diff_row **)resize(NULL, n + 1, sizeof *rows);
    int code = CODE_OK;
    for (size_t i = 0; i < n; i++) rows[i] = &d->rows[i];
    qsort((void *)rows, n, sizeof *rows, compare_places);
    d->old_piece = (unsigned char *)resize(NULL, DIFF_PIECE, 2); /* a conversion reads twice */
    d->new_piece = (unsigned char *)resize(NULL, DIFF_PIECE, 1);
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        const size_t together = scan ? 0 : count_together(rows + i, n - i);
        if (together > 1) {
            code = measure_together(d, rows + i, together);
            i += together - 1;
        } else code = measure_item(d, rows[i], scan);
        if (measured) measured(user, (size_t)(rows[i] - d->rows), scan);
    }
    free(d->old_piece);
    free(d->new_piece);
    free(d->coded);
    free(d->workspace);
    d->old_piece = d->new_piece = d->coded = d->workspace = NULL;
    d->coded_size = d->workspace_size = 0;
    free((void *)rows);
    return code;
}

void print_row_start(const struct diff_row *row, int is_narrow)
{
    const struct diff_item *const item = row->item;
    char text[LMC_MAX_RANK * 21 + 3] = "";
    if (item->tensor) format_shape(text, sizeof text, item->tensor);
    print("%-8s ", item->tensor ? item->dtype : "file");
    if (!is_narrow) printf("%-18s ", text);
    if (row->kind != DIFF_REMOVED) return;
    format_size(text, sizeof text, item->size);
    if (is_narrow) printf("%9s", text);
    else printf("%14llu", (unsigned long long)item->size);
}

enum role find_item_role(const struct diff_item *item)
{
    static const struct policy none = {0};
    return item->tensor ? find_meaning(&none, item->path, item->tensor).role : ROLE_OTHER;
}

/* A row, and what it takes. */
struct weight {
    uint64_t size;
    size_t row;
};

static int compare_weights(const void *a, const void *b)
{
    const struct weight *x = (const struct weight *)a, *y = (const struct weight *)b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

size_t *choose_rows(const struct diff *d, size_t *n)
{
    const uint64_t top = d->o->top;
    struct weight *all = (struct weight *)resize(NULL, d->n_rows + 1, sizeof *all);
    size_t *chosen = (size_t *)resize(NULL, d->n_rows + 1, sizeof *chosen);
    for (size_t i = 0; i < d->n_rows; i++)
        all[i] = (struct weight){d->a ? d->rows[i].delta : d->rows[i].direct, i};
    if (top) qsort(all, d->n_rows, sizeof *all, compare_weights);
    *n = top && top < d->n_rows ? (size_t)top : d->n_rows;
    for (size_t i = 0; i < *n; i++) chosen[i] = all[i].row;
    free(all);
    return chosen;
}

void print_left_out(const struct diff *d, size_t n)
{
    if (n < d->n_rows)
        printf("  and %llu more, without --top\n", (unsigned long long)(d->n_rows - n));
}

/* What predicts the row, if it is not the item of the same name; NULL: nothing else. */
static const struct diff_item *find_other(const struct diff_row *row)
{
    if (row->twin) return row->twin;
    return row->old && strcmp(row->old->name, row->item->name) != 0 ? row->old : NULL;
}

void print_row_name(const struct diff_row *row)
{
    const struct diff_item *const item = row->item, *const other = find_other(row);
    const int has_path = item->tensor && *item->path;
    size_t i = 0;
    print("%s%s%s",
          *item->name    ? item->name
          : item->tensor ? "(the array)"
                         : "(the file itself)",
          has_path ? "  in " : "", has_path ? item->path : "");
    while (i < row->n_parts && !row->parts[i].name) i++;
    if (other) print("  %s %s", row->twin ? "twin of" : "was", other->name);
    else if (row->n_parts) print("  part of %s", row->parts[i].name);
    putchar('\n');
}

void put_json_rows(struct json_writer *w, const struct diff *d, int of_tensors, int has_status,
                   void (*complete)(struct json_writer *w, void *user, size_t number), void *user)
{
    begin_json(w, of_tensors ? "tensors" : "files", '[');
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct diff_row *const row = &d->rows[i];
        const struct diff_item *const item = row->item;
        if (!item->tensor != !of_tensors) continue;
        begin_json(w, NULL, '{');
        put_json_text(w, "name", item->name);
        put_json_text(w, "path", item->path);
        if (of_tensors) {
            put_json_text(w, "dtype", item->dtype);
            put_json_numbers(w, "shape", item->tensor->shape, item->tensor->rank);
        }
        put_json_number(w, "size", item->size);
        if (has_status) put_json(w, "status", json_string(diff_names[row->kind]));
        if (find_other(row)) {
            begin_json(w, row->twin ? "twin" : "old", '{');
            put_json_text(w, "name", find_other(row)->name);
            put_json_text(w, "path", find_other(row)->path);
            end_json(w, '}');
        }
        if (row->kind != DIFF_REMOVED) complete(w, user, i);
        end_json(w, '}');
    }
    end_json(w, ']');
}

void put_json_side(struct json_writer *w, const struct base *b)
{
    put_json_text(w, "snapshot", b->name);
    put_json_hex(w, "fingerprint", b->fingerprint, LMC_FINGERPRINT_SIZE);
}

int add_snapshots(const char *verb, const struct options *o)
{
    struct stat st;
    for (size_t i = 0; i < o->n_names; i++) {
        if (is_dash(o->names[i]))
            return fail(CODE_USAGE, NULL,
                        "'lmc %s' needs files and directories, not standard input", verb);
        if (stat(o->names[i], &st) != 0) return fail_errno(o->names[i], errno, "cannot open it");
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
            return fail(CODE_ERROR, o->names[i], "is neither a file nor a directory");
    }
    for (size_t i = 0; i < o->n_names; i++) add_base(o->bases, o->names[i]);
    return CODE_OK;
}
