/* diff.c - lmc diff: what has changed, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../input/source_tree.h"
#include "../job/difference.h"

/* -- what rows do not show: bytes outside of tensors, and where links lead -- */

/* Bytes that are compared by one call. */
#define PART_SIZE ((size_t)64 << 10)

/* The bytes of a file that are outside of its tensors; or a symbolic link. */
struct rest_row {
    enum diff_kind kind;
    const char *path;
    uint64_t size, old_size, n_changed; /* n_changed: only if the sizes are equal */
    const char *target, *old_target;    /* of a link; NULL: there is none */
};

struct rest_rows {
    struct rest_row *list;
    size_t n, cap, n_files; /* files come before links */
    struct links links[2];  /* of both sides; the rows point to their texts */
};

static struct rest_row *add_rest(struct rest_rows *rest, enum diff_kind kind, const char *path)
{
    struct rest_row *row =
        (struct rest_row *)append(&rest->list, &rest->n, &rest->cap, sizeof *row);
    row->kind = kind;
    row->path = path;
    return row;
}

struct numbered {
    const lmc_file *file;
    size_t number;
};

/* The files of one side that have tensors, by their paths. To be freed. */
static struct numbered *sort_numbered(const struct base *b, size_t *n)
{
    struct numbered *list = (struct numbered *)resize(NULL, b->source.n_files + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < b->source.n_files; i++) {
        const lmc_file *f = b->source.get_file(b->source.user, i);
        if (f->n_tensors == 0) continue;
        list[*n].file = f;
        list[(*n)++].number = i;
    }
    if (*n) qsort(list, *n, sizeof *list, compare_named);
    return list;
}

static uint64_t size_of_rest(const lmc_file *f)
{
    uint64_t size = f->size;
    for (size_t i = 0; i < f->n_tensors; i++) size -= f->tensors[i].size;
    return size;
}

/* The bytes of a file that belong to no tensor, one piece after another. */
struct rest_reader {
    const struct base *b;
    const struct numbered *file;
    size_t tensor;    /* the first tensor that ends behind `at` */
    uint64_t at, end; /* what is left of a piece */
};

/* Goes to the next piece if the present one is at its end. 0: there are no more. */
static int find_piece(struct rest_reader *r)
{
    const lmc_file *f = r->file->file;
    while (r->at == r->end && r->tensor <= f->n_tensors) {
        const lmc_tensor *before = r->tensor ? &f->tensors[r->tensor - 1] : NULL;
        r->at = before ? before->offset + before->size : 0;
        r->end = r->tensor < f->n_tensors ? f->tensors[r->tensor].offset : f->size;
        r->tensor++;
    }
    return r->at < r->end;
}

static int read_rest(struct rest_reader *r, unsigned char *dst, size_t size)
{
    const int failed = r->b->source.read(r->b->source.user, r->file->number, r->at, dst, size) != 0;
    r->at += size;
    return failed;
}

static int count_changed_rest(uint64_t *n_changed, const struct diff *d, const struct numbered *old,
                              const struct numbered *file)
{
    unsigned char *a = (unsigned char *)resize(NULL, PART_SIZE, 2), *b = a + PART_SIZE;
    struct rest_reader from = {d->a, old, 0, 0, 0}, to = {d->b, file, 0, 0, 0};
    int code = CODE_OK;
    *n_changed = 0;
    while (code == CODE_OK && find_piece(&from) && find_piece(&to)) {
        uint64_t left = from.end - from.at < to.end - to.at ? from.end - from.at : to.end - to.at;
        const size_t size = left < PART_SIZE ? (size_t)left : PART_SIZE;
        if (read_rest(&from, a, size) || read_rest(&to, b, size)) code = d->o->bases->code;
        for (size_t i = 0; i < size && code == CODE_OK; i++) *n_changed += a[i] != b[i];
    }
    free(a);
    return code;
}

static int compare_rest(struct rest_rows *rest, const struct diff *d, const struct numbered *old,
                        const struct numbered *file)
{
    const lmc_file *f = old->file, *g = file->file;
    const uint64_t old_size = size_of_rest(f), size = size_of_rest(g);
    uint64_t n_changed = 0;
    int code = CODE_OK;
    if (f->size == g->size && f->crc == g->crc) return CODE_OK;
    if (size == old_size) code = count_changed_rest(&n_changed, d, old, file);
    if (code != CODE_OK || (size == old_size && n_changed == 0)) return code;
    struct rest_row *row = add_rest(rest, DIFF_CHANGED, g->path);
    row->size = size;
    row->old_size = old_size;
    row->n_changed = n_changed;
    return CODE_OK;
}

static int compare_files(struct rest_rows *rest, const struct diff *d)
{
    size_t n_a, n_b, i = 0, k = 0;
    struct numbered *a = sort_numbered(d->a, &n_a), *b = sort_numbered(d->b, &n_b);
    int code = CODE_OK;
    while (code == CODE_OK && (i < n_a || k < n_b)) {
        const int order = i == n_a ? 1 : k == n_b ? -1 : compare_named(&a[i], &b[k]);
        if (order == 0) code = compare_rest(rest, d, &a[i], &b[k]);
        else if (order < 0) add_rest(rest, DIFF_REMOVED, a[i].file->path);
        else add_rest(rest, DIFF_ADDED, b[k].file->path);
        i += order <= 0;
        k += order >= 0;
    }
    free(a);
    free(b);
    return code;
}

static int read_links_of(struct links *l, const struct base *b, const struct options *o)
{
    struct listing listing;
    struct options quiet = *o; /* the first reading reported what is not stored */
    struct stat st;
    quiet.verbosity = 0;
    if (is_snapshot(b))
        return read_links(l, b->archive.reader) == 0 ? CODE_OK : fail_bad_links(b->name);
    if (stat(b->name, &st) != 0) return fail_errno(b->name, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode)) return CODE_OK;
    int code = list_sources(&listing, b->name, 0, &quiet);
    if (code == CODE_OK) collect_links(l, &listing, b->name);
    free_listing(&listing);
    return code;
}

static void add_link(struct rest_rows *rest, const struct link *old, const struct link *link)
{
    struct rest_row *row = add_rest(rest,
                                    !old    ? DIFF_ADDED
                                    : !link ? DIFF_REMOVED
                                            : DIFF_CHANGED,
                                    link ? link->path : old->path);
    row->target = link ? link->target : NULL;
    row->old_target = old ? old->target : NULL;
}

/* The symbolic link of that path; NULL: there is none. */
static const struct link *find_symbolic(const struct links *links, const char *path)
{
    const struct link *l = find_link_record(links, path);
    return l && l->type == LINK_SYMBOLIC ? l : NULL;
}

static int compare_links(struct rest_rows *rest, const struct diff *d)
{
    const struct links *const a = &rest->links[0], *const b = &rest->links[1];
    int code = read_links_of(&rest->links[0], d->a, d->o);
    if (code == CODE_OK) code = read_links_of(&rest->links[1], d->b, d->o);
    for (size_t i = 0; i < b->n && code == CODE_OK; i++) {
        const struct link *link = &b->list[i], *old = find_symbolic(a, link->path);
        if (link->type == LINK_SYMBOLIC && (!old || strcmp(old->target, link->target) != 0))
            add_link(rest, old, link);
    }
    for (size_t i = 0; i < a->n && code == CODE_OK; i++)
        if (a->list[i].type == LINK_SYMBOLIC && !find_symbolic(b, a->list[i].path))
            add_link(rest, &a->list[i], NULL);
    return code;
}

static void print_rest(const struct rest_row *row)
{
    const unsigned long long size = row->size, old_size = row->old_size;
    const char *const path = *row->path ? row->path : "(the file itself)";
    printf("  %-8s ", diff_names[row->kind]);
    if (row->target && row->old_target)
        print("link %s to %s, before to %s\n", row->path, row->target, row->old_target);
    else if (row->target || row->old_target)
        print("link %s to %s\n", row->path, row->target ? row->target : row->old_target);
    else if (row->kind != DIFF_CHANGED) print("file of tensors  in %s\n", path);
    else if (size == old_size)
        print("%llu of %llu bytes of headers, pickles and metadata  in %s\n",
              (unsigned long long)row->n_changed, size, path);
    else
        print("headers, pickles and metadata: %llu bytes, before %llu  in %s\n", size, old_size,
              path);
}

static void put_json_rest(struct json_writer *w, const char *key, const struct rest_row *row,
                          size_t n)
{
    begin_json(w, key, '[');
    for (; n > 0; n--, row++) {
        begin_json(w, NULL, '{');
        put_json_text(w, "path", row->path);
        put_json(w, "status", json_string(diff_names[row->kind]));
        if (row->target) put_json_text(w, "target", row->target);
        if (row->old_target) put_json_text(w, "old_target", row->old_target);
        if (row->kind == DIFF_CHANGED && !row->target) {
            put_json_number(w, "size", row->size);
            put_json_number(w, "old_size", row->old_size);
            if (row->size == row->old_size) put_json_number(w, "changed_bytes", row->n_changed);
        }
        end_json(w, '}');
    }
    end_json(w, ']');
}

/* -- rows -- */

static double bits_per_element(uint64_t size, uint64_t n)
{
    return n ? 8.0 * (double)size / (double)n : 0.0;
}

/* Adds a row to a sum, and its size to *size. What was removed takes nothing. */
static void add_row(struct diff_row *sum, uint64_t *size, const struct diff_row *row)
{
    if (row->kind == DIFF_REMOVED) return;
    sum->n += row->n;
    sum->n_changed += row->n_changed;
    sum->delta += row->delta;
    sum->direct += row->direct;
    *size += row->item->size;
}

static struct diff_row sum_rows(const struct diff *d, uint64_t *size)
{
    struct diff_row sum = {0};
    *size = 0;
    for (size_t i = 0; i < d->n_rows; i++) add_row(&sum, size, &d->rows[i]);
    return sum;
}

static void print_diff_numbers(const struct diff_row *row, uint64_t size, int is_narrow)
{
    char sizes[2][SIZE_TEXT];
    format_size(sizes[0], SIZE_TEXT, size);
    format_size(sizes[1], SIZE_TEXT, row->delta);
    if (is_narrow)
        printf("%9s %9.4f %% %9s  ", sizes[0], row->n ? percent(row->n_changed, row->n) : 0.0,
               sizes[1]);
    else
        printf("%14llu %9.4f %% %14llu %8.3f %14llu %8.3f  ", (unsigned long long)size,
               row->n ? percent(row->n_changed, row->n) : 0.0, (unsigned long long)row->delta,
               bits_per_element(row->delta, row->n), (unsigned long long)row->direct,
               bits_per_element(row->direct, row->n));
}

/* A line for each role, if there are several. */
static void print_roles(const struct diff *d, int is_narrow)
{
    struct diff_row sums[N_ROLES] = {0};
    uint64_t sizes[N_ROLES] = {0};
    size_t n = 0;
    for (size_t i = 0; i < d->n_rows; i++) {
        const enum role role = find_item_role(d->rows[i].item);
        add_row(&sums[role], &sizes[role], &d->rows[i]);
    }
    for (int role = 0; role < N_ROLES; role++) n += sizes[role] != 0;
    for (int role = 0; role < N_ROLES && n > 1; role++) {
        if (!sizes[role]) continue;
        printf("  %-*s ", is_narrow ? 17 : 36, "all");
        print_diff_numbers(&sums[role], sizes[role], is_narrow);
        puts(role_names[role]);
    }
}

static void print_diff(const struct diff *d, int is_narrow)
{
    char fingerprint[2 * LMC_FINGERPRINT_SIZE + 1];
    uint64_t size;
    struct diff_row sum = sum_rows(d, &size);
    size_t counts[DIFF_KINDS] = {0}, n;
    const char *separator = "";
    for (int i = 0; i < 2; i++) {
        const struct base *b = i ? d->b : d->a;
        print("%s fingerprint %s  %s\n", i ? "to  " : "from",
              format_hex(fingerprint, b->fingerprint, LMC_FINGERPRINT_SIZE), b->name);
    }
    if (is_narrow)
        printf("  %-8s %-8s %9s %11s %9s  name\n", "", "dtype", "size", "changed", "delta");
    else
        printf("  %-8s %-8s %-18s %14s %11s %14s %8s %14s %8s  name\n", "", "dtype", "shape",
               "size", "changed", "delta", "bits", "direct", "bits");
    size_t *const chosen = choose_rows(d, &n);
    for (size_t i = 0; i < d->n_rows; i++) counts[d->rows[i].kind]++;
    for (size_t i = 0; i < n; i++) {
        const struct diff_row *row = &d->rows[chosen[i]];
        printf("  %-8s ", diff_names[row->kind]);
        print_row_start(row, is_narrow);
        if (row->kind == DIFF_REMOVED) printf("%*s", is_narrow ? 23 : 74, "");
        else print_diff_numbers(row, row->item->size, is_narrow);
        print_row_name(row);
    }
    free(chosen);
    print_left_out(d, n);
    print_roles(d, is_narrow);
    printf("  %-*s ", is_narrow ? 17 : 36, "all");
    print_diff_numbers(&sum, size, is_narrow);
    for (int kind = 0; kind < DIFF_KINDS; kind++)
        if (counts[kind]) {
            printf("%s%llu %s", separator, (unsigned long long)counts[kind], diff_names[kind]);
            separator = ", ";
        }
    putchar('\n');
}

static void put_json_sizes(struct json_writer *w, const struct diff_row *row)
{
    put_json_number(w, "elements", row->n);
    put_json_number(w, "changed_elements", row->n_changed);
    put_json_number(w, "delta_size", row->delta);
    put_json_number(w, "direct_size", row->direct);
}

/* user: the diff */
static void complete_row(struct json_writer *w, void *user, size_t number)
{
    put_json_sizes(w, &((struct diff *)user)->rows[number]);
}

static void print_json_diff(struct diff *d, const struct rest_rows *rest)
{
    struct json_writer w;
    uint64_t size;
    const struct diff_row sum = sum_rows(d, &size);
    init_json_writer(&w, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    begin_json(&w, "from", '{');
    put_json_side(&w, d->a);
    end_json(&w, '}');
    begin_json(&w, "to", '{');
    put_json_side(&w, d->b);
    end_json(&w, '}');
    put_json_rows(&w, d, 1, 1, complete_row, d);
    put_json_rows(&w, d, 0, 1, complete_row, d);
    put_json_number(&w, "size", size);
    put_json_sizes(&w, &sum);
    put_json_rest(&w, "outside_tensors", rest->list, rest->n_files);
    put_json_rest(&w, "links", rest->n ? rest->list + rest->n_files : NULL,
                  rest->n - rest->n_files);
    end_json_line(&w);
}

int diff_snapshots(const struct options *o)
{
    struct diff d = {0};
    struct rest_rows rest = {0};
    size_t n = o->bases->n;
    int code = add_snapshots("diff", o);
    if (code != CODE_OK) return code;
    d.o = o;
    d.a = &o->bases->list[n];
    d.b = &o->bases->list[n + 1];
    code = prepare_base(d.a, o);
    if (code == CODE_OK) code = prepare_base(d.b, o);
    if (code == CODE_OK) {
        collect_diff_items(&d.old_items, d.a);
        collect_diff_items(&d.new_items, d.b);
        progress_start(o->names[1], LMC_UNKNOWN_SIZE);
        code = match_items(&d);
        if (code == CODE_OK) code = measure_all(&d, NULL, NULL, NULL);
        if (code == CODE_OK) code = compare_files(&rest, &d);
        rest.n_files = rest.n;
        if (code == CODE_OK) code = compare_links(&rest, &d);
        progress_clear();
    }
    if (code == CODE_OK) code = check_bases(o);
    if (code == CODE_OK && o->json) print_json_diff(&d, &rest);
    else if (code == CODE_OK) {
        print_diff(&d, wants_narrow_tables(o));
        for (size_t i = 0; i < rest.n; i++) print_rest(&rest.list[i]);
    }
    for (int i = 0; i < 2; i++) free_links(&rest.links[i]);
    free(rest.list);
    free(d.old_items.list);
    free_diff(&d);
    return code;
}
