/* list.c - lmc -l: what is in a snapshot, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../choose/quantize.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../input/archive.h"

/* What the rules of --quant did, from the metadata; NULL: not stored. To be released. */
static json_t *load_record(const struct archive *a)
{
    char *text = copy_metadata(a, POLICY_KEY);
    json_t *record = NULL;
    /* parsing takes up to 80 times its size in memory, so its size is limited by the file's */
    if (text && strlen(text) > ((size_t)1 << 20) + (size_t)(archive_size(a) / 16))
        say(a->name, "its record of what rules did to tensors is too large for a file of its "
                     "size, and is not listed");
    else if (text) record = json_loads(text, 0, NULL);
    free(text);
    return record;
}

/* Prints what the rules did to each tensor. */
static void print_choices(const json_t *record)
{
    static const char *const keys[] = {"path", "name", "role", "rule", "choice", "reason"};
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(record, "tensors"), i, item)
    {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const char *const text = json_string_value(json_object_get(item, keys[k]));
            if (k < 2) print("%s%s", k ? " " : "  ", text ? text : "?");
            else print("%s%s %s", k == 2 ? ": " : ", ", keys[k], text ? text : "?");
        }
        putchar('\n');
    }
}

/* What is listed: a snapshot, or files that are not compressed and have no packed sizes. */
struct shown {
    struct archive *a;
    const struct base *plain; /* files that are not compressed; NULL: a snapshot */
    lmc_base files;
    struct archive base; /* -v: of a delta, if it was found; only its index is read */
    lmc_base base_files;
    int is_narrow;
};

/* A narrow table has fewer columns for the shape, by this number. */
#define NARROWER 9

/* Prints text, which has `width` columns in a wide table, and the sizes behind it. */
static void print_sizes(const struct shown *s, const char *text, int width, uint64_t size,
                        uint64_t packed)
{
    char short_size[SIZE_TEXT];
    format_size(short_size, sizeof short_size, size);
    if (s->is_narrow) printf("%-*s %9s", width - NARROWER, text, short_size);
    else printf("%-*s %14llu", width, text, (unsigned long long)size);
    if (!s->is_narrow && !s->plain) printf(" %14llu", (unsigned long long)packed);
    if (!s->plain) printf(" %6.2f %%", percent(packed, size));
    printf("  ");
}

/* Prints text, and spaces instead of sizes. */
static void print_without_sizes(const struct shown *s, const char *text, int width)
{
    printf("%-*s", width + (s->is_narrow ? 20 - NARROWER : s->plain ? 17 : 40), text);
}

static uint64_t packed_size(const struct shown *s, size_t file, uint64_t offset, uint64_t size)
{
    return s->plain ? 0 : snapshot_encoded_size(s->a->reader, file, offset, size);
}

/* The tensor that has that byte of the file; NULL: none. */
static const lmc_tensor *find_tensor_at(const lmc_file *f, uint64_t offset)
{
    size_t low;
    FIND_FIRST(low, f->n_tensors, f->tensors[low].offset <= offset);
    if (low == 0 || offset - f->tensors[low - 1].offset >= f->tensors[low - 1].size) return NULL;
    return &f->tensors[low - 1];
}

/* With -v: names what predicts the bytes of a file from offset on. *path: of its file. Returns NULL
 * if nothing does, or it is not known. */
static const char *find_prediction(const struct shown *s, size_t file, uint64_t offset,
                                   const char **path, int *is_own)
{
    lmc_match match;
    if (s->a->o->verbosity < 2 || s->plain ||
        lmc_reader_find_match(s->a->reader, file, offset, &match) != LMC_OK ||
        match.file_number == SIZE_MAX)
        return NULL;
    const lmc_base *const in = match.is_own ? &s->files : &s->base_files;
    const lmc_file *const f = in->get_file(in->user, match.file_number);
    const lmc_tensor *const t = match.is_own ? find_tensor_at(f, match.offset) : match.tensor;
    *path = f->path;
    *is_own = match.is_own;
    return t ? t->name : f->path;
}

static void print_prediction(const struct shown *s, size_t file, uint64_t offset)
{
    const char *path;
    int is_own;
    const char *const name = find_prediction(s, file, offset, &path, &is_own);
    if (name)
        print("  %s '%s'%s%s", is_own ? "twin of" : "base", name,
              *path && strcmp(name, path) != 0 ? " in " : "", strcmp(name, path) != 0 ? path : "");
}

static void put_json_prediction(struct json_writer *w, const struct shown *s, size_t file,
                                uint64_t offset)
{
    const char *path;
    int is_own;
    const char *const name = find_prediction(s, file, offset, &path, &is_own);
    if (!name) return;
    begin_json(w, is_own ? "twin" : "base", '{');
    put_json_text(w, "name", name);
    put_json_text(w, "path", path);
    end_json(w, '}');
}

static void print_tensor(const struct shown *s, size_t file, const lmc_tensor *t)
{
    char shape[LMC_MAX_RANK * 21 + 3], fingerprint[2 * LMC_FINGERPRINT_SIZE + 1];
    const int is_long = s->a->o->verbosity >= 2;
    format_shape(shape, sizeof shape, t);
    print("    %-8s ", t->dtype);
    print_sizes(s, shape, 18, t->size, packed_size(s, file, t->offset, t->size));
    print("%s", t->name);
    if (t->loss.generation) printf("  LOSSY %s %.3g", name_measure(&t->loss), t->loss.error);
    if (t->loss.generation > 1) printf(" (generation %u)", t->loss.generation);
    if (is_long) printf("  offset %llu", (unsigned long long)t->offset);
    if (is_long && !s->plain)
        printf("  %s", format_hex(fingerprint, t->fingerprint, LMC_FINGERPRINT_SIZE));
    print_prediction(s, file, t->offset);
    putchar('\n');
}

/* Prints the views, which share bytes with the tensors of the file. The name of the tensor may be
 * long, so only the first of several views of one tensor is printed with it. */
static void print_views(const struct shown *s, const struct container *c, const lmc_file *f)
{
    const lmc_tensor *last = NULL;
    for (size_t i = 0; i < c->n_views; i++) {
        const struct container_view *const v = &c->views[i];
        const lmc_tensor *const whole = s->plain ? NULL : find_tensor_at(f, v->offset);
        char shape[LMC_MAX_RANK * 21 + 3];
        lmc_tensor t = {0};
        t.rank = v->rank;
        t.shape = v->shape;
        format_shape(shape, sizeof shape, &t);
        print("    %-8s ", v->dtype);
        if (s->is_narrow) printf("%-*s %9s %8s  ", 18 - NARROWER, shape, "view", "");
        else if (s->plain) printf("%-18s %14s  ", shape, "view");
        else printf("%-18s %14s %14s %8s  ", shape, "view", "", "");
        if (s->plain) print("%s\n", v->name);
        else
            print("%s of %s\n", v->name,
                  !whole          ? "the file"
                  : whole == last ? "the same"
                                  : whole->name);
        last = whole;
    }
}

/* What parsing the file has found: either in *read, which is to be freed, or owned by the base. */
static const struct container *inside_of(const struct shown *s, size_t number,
                                         struct container *read)
{
    memset(read, 0, sizeof *read);
    if (s->plain) return container_of(&s->plain->files[number]);
    if (!look_inside(read, s->a, number)) memset(read, 0, sizeof *read);
    return read;
}

static void print_file(const struct shown *s, size_t number)
{
    const lmc_file *f = s->files.get_file(s->files.user, number);
    const int is_directory = f->kind == LMC_FILE_DIRECTORY;
    struct container inside;
    const enum container_kind kind =
        s->plain ? container_of(&s->plain->files[number])->kind : CONTAINER_NONE;
    printf("  ");
    if (is_directory) print_without_sizes(s, "directory", 28);
    else
        print_sizes(s, kind == CONTAINER_NONE ? "file" : container_name(kind), s->plain ? 28 : 27,
                    f->size, packed_size(s, number, 0, f->size));
    print("%s", *f->path ? f->path : is_directory ? "(the directory itself)" : "(the file itself)");
    if (s->a->o->verbosity >= 2 && !s->plain) {
        if (f->has_mode) printf("  mode %04o", (unsigned)f->mode);
        if (f->has_mtime) printf("  mtime %lld", (long long)f->mtime_s);
        if (!is_directory) printf("  crc %08x", (unsigned)f->crc);
        if (!f->n_tensors) print_prediction(s, number, 0);
    }
    putchar('\n');
    for (size_t i = 0; i < f->n_tensors; i++) print_tensor(s, number, &f->tensors[i]);
    const struct container *c = inside_of(s, number, &inside);
    print_views(s, c, f);
    container_free(&inside);
}

static void print_links(const struct shown *s)
{
    struct links links;
    if (read_links(&links, s->a->reader) != 0)
        say(s->a->name, "has a list of links that breaks the rules of the format");
    for (size_t i = 0; i < links.n; i++) {
        printf("  ");
        print_without_sizes(s, links.list[i].type == LINK_HARD ? "hard link" : "link", 28);
        print("%s -> %s\n", links.list[i].path, links.list[i].target);
    }
    free_links(&links);
}

/* Sums over all files; `files` and `size` do not count directories. */
struct totals {
    uint64_t files, directories, tensors, lossy, size;
};

static struct totals count_all(const lmc_base *files)
{
    struct totals n = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < files->n_files; i++) {
        const lmc_file *f = files->get_file(files->user, i);
        if (f->kind == LMC_FILE_DIRECTORY) n.directories++;
        else n.files++;
        n.tensors += f->n_tensors;
        n.lossy += count_lossy(f);
        n.size += f->size;
    }
    return n;
}

/* "2 files, " */
static void print_count(uint64_t n, const char *one, const char *many, const char *end)
{
    printf("%llu %s%s", (unsigned long long)n, n == 1 ? one : many, end);
}

/* Prints what comes before the table of a snapshot. */
static void print_head(const struct shown *s)
{
    struct archive *const a = s->a;
    const lmc_snapshot_info info = snapshot_info(a->reader);
    const struct totals n = count_all(&s->files);
    const uint64_t packed = archive_size(a);
    char fingerprint[2 * LMC_FINGERPRINT_SIZE + 1];
    print_count(n.files, "file", "files", ", ");
    if (n.directories) print_count(n.directories, "directory", "directories", ", ");
    print_count(n.tensors, "tensor", "tensors", ", ");
    printf("%llu -> %llu bytes (%.2f %%)", (unsigned long long)n.size, (unsigned long long)packed,
           percent(packed, n.size));
    if (n.lossy) {
        printf(", LOSSY: ");
        print_count(n.lossy, "tensor", "tensors", " quantised");
    }
    printf("\n  fingerprint %s\n", format_hex(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE));
    if (a->o->verbosity >= 2) {
        int n_features = 0;
        printf("  format   %d.%u", LMC_FORMAT_MAJOR, info.format_minor);
        for (unsigned bit = 0; bit < 64; bit++)
            if (info.features >> bit & 1)
                printf("%s%s", n_features++ ? ", " : ", for decoders that have ",
                       name_feature(bit));
        putchar('\n');
    }
    if (info.has_base) {
        char *name = copy_metadata(a, BASE_KEY);
        print("  base     %s%s%s%s\n",
              format_hex(fingerprint, info.base_fingerprint, LMC_FINGERPRINT_SIZE),
              name ? " (named " : "", name ? name : "", name ? " when this delta was made)" : "");
        free(name);
        print_chain(a, a->o);
    }
}

static void print_table(const struct shown *s, const json_t *record)
{
    print("%s: ", s->a->name);
    if (s->plain) {
        const struct totals n = count_all(&s->files);
        printf("not compressed: ");
        print_count(n.tensors, "tensor", "tensors", ", ");
        printf("%llu bytes\n", (unsigned long long)n.size);
    } else print_head(s);
    printf("    dtype    shape%s  name\n", s->is_narrow ? "          size    ratio"
                                           : s->plain   ? "                        size"
                                                        : "                        size"
                                                          "         packed   ratio");
    for (size_t i = 0; i < s->files.n_files; i++) print_file(s, i);
    if (!s->plain) print_links(s);
    if (s->a->o->verbosity >= 2) print_choices(record);
}

/* Writes the SHA-256 that the snapshot has, if any. t NULL: of a file without tensors */
static void put_json_hash(struct json_writer *w, const struct archive *a, size_t file,
                          const lmc_tensor *t)
{
    uint8_t hash[32];
    if (lmc_reader_read_content_hash(a->reader, file, t, hash) == LMC_OK)
        put_json_hex(w, "sha256", hash, sizeof hash);
}

/* Writes whether there are hashes. All are read together, so the first one tells it for all. */
static void put_json_hash_state(struct json_writer *w, const struct archive *a)
{
    const lmc_file *f = lmc_reader_get_file(a->reader, 0);
    uint8_t hash[32];
    const enum lmc_status status =
        lmc_reader_read_content_hash(a->reader, 0, f->n_tensors ? f->tensors : NULL, hash);
    if (status == LMC_OK) {
        put_json(w, "hashes", json_string("sha256"));
        if (lmc_reader_read_snapshot_hash(a->reader, hash) == LMC_OK)
            put_json_hex(w, "sha256", hash, sizeof hash);
    } else if (status != LMC_ERR_NOT_FOUND) {
        put_json(w, "hashes", json_string("damaged"));
        say(a->name, "its SHA-256 hashes are damaged and not listed: %s", lmc_status_text(status));
    }
}

static void put_json_tensor(struct json_writer *w, const struct shown *s, size_t file,
                            const lmc_tensor *t)
{
    begin_json(w, NULL, '{');
    put_json_layout(w, t->name, t->dtype, t->rank, t->shape, NULL, t->offset);
    put_json_number(w, "size", t->size);
    if (!s->plain) {
        put_json_number(w, "packed_size", packed_size(s, file, t->offset, t->size));
        put_json_hex(w, "fingerprint", t->fingerprint, LMC_FINGERPRINT_SIZE);
        put_json_hash(w, s->a, file, t);
        put_json_prediction(w, s, file, t->offset);
    }
    if (!s->plain && t->loss.generation) {
        begin_json(w, "loss", '{');
        put_json_number(w, "generation", t->loss.generation);
        put_json(w, "measure", json_string(name_measure(&t->loss)));
        put_json_real(w, "error", t->loss.error);
        end_json(w, '}');
    }
    end_json(w, '}');
}

/* Writes what comes before the lists of a file. */
static void put_json_file_head(struct json_writer *w, const struct shown *s, size_t number,
                               const lmc_file *f)
{
    char crc[9];
    put_json_text(w, "path", f->path);
    put_json(w, "kind", json_string(f->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    if (s->plain)
        put_json(w, "container",
                 json_string(container_name(container_of(&s->plain->files[number])->kind)));
    put_json_number(w, "size", f->size);
    if (s->plain) return;
    snprintf(crc, sizeof crc, "%08x", (unsigned)f->crc);
    put_json_number(w, "packed_size", packed_size(s, number, 0, f->size));
    put_json(w, "crc32c", json_string(crc));
    if (f->has_mode) put_json_number(w, "mode", f->mode);
    if (f->has_mtime) put_json(w, "mtime", json_integer(f->mtime_s));
    if (f->n_tensors) return;
    put_json_hex(w, "fingerprint", f->fingerprint, LMC_FINGERPRINT_SIZE);
    put_json_hash(w, s->a, number, NULL);
}

/* Views are written like tensors, with strides in elements. */
static void put_json_file(struct json_writer *w, const struct shown *s, size_t number)
{
    const lmc_file *f = s->files.get_file(s->files.user, number);
    struct container inside;
    begin_json(w, NULL, '{');
    put_json_file_head(w, s, number, f);
    begin_json(w, "tensors", '[');
    for (size_t i = 0; i < f->n_tensors; i++) put_json_tensor(w, s, number, &f->tensors[i]);
    end_json(w, ']');
    const struct container *c = inside_of(s, number, &inside);
    begin_json(w, "views", '[');
    for (size_t i = 0; i < c->n_views; i++) {
        const struct container_view *const v = &c->views[i];
        begin_json(w, NULL, '{');
        put_json_layout(w, v->name, v->dtype, v->rank, v->shape, v->strides, v->offset);
        end_json(w, '}');
    }
    end_json(w, ']');
    container_free(&inside);
    end_json(w, '}');
}

static void put_json_metadata(struct json_writer *w, const struct archive *a)
{
    const char *key;
    const void *value;
    size_t size;
    begin_json(w, "metadata", '{');
    for (size_t i = 0; lmc_reader_get_metadata(a->reader, i, &key, &value, &size) == LMC_OK; i++) {
        size_t length = strlen(key);
        json_t *name = json_stringn(key, length);
        char *hex = (char *)resize(NULL, 2 * length + 5, 1);
        memcpy(hex, "hex:", 4);
        format_hex(hex + 4, key, length); /* so different keys stay different */
        put_json_bytes(w, name ? key : hex, (const char *)value, size);
        json_decref(name);
        free(hex);
    }
    end_json(w, '}');
}

static void put_json_links(struct json_writer *w, const struct archive *a)
{
    struct links links;
    (void)read_links(&links, a->reader);
    begin_json(w, "links", '[');
    for (size_t i = 0; i < links.n; i++) {
        begin_json(w, NULL, '{');
        put_json_text(w, "path", links.list[i].path);
        put_json(w, "type", json_string(links.list[i].type == LINK_HARD ? "hard" : "symbolic"));
        put_json_text(w, "target", links.list[i].target);
        end_json(w, '}');
    }
    end_json(w, ']');
    free_links(&links);
}

/* Writes what comes before the lists. */
static void put_json_head(struct json_writer *w, const struct shown *s, json_t *record)
{
    const struct archive *const a = s->a;
    const struct totals n = count_all(&s->files);
    char format[16];
    if (s->plain) {
        put_json(w, "snapshot", json_null());
        put_json_text(w, "name", a->name);
        put_json_number(w, "size", n.size);
        return;
    }
    lmc_snapshot_info info = snapshot_info(a->reader);
    put_json_text(w, "snapshot", a->name);
    put_json_hex(w, "fingerprint", info.fingerprint, LMC_FINGERPRINT_SIZE);
    if (info.has_base)
        put_json_hex(w, "base_fingerprint", info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    snprintf(format, sizeof format, "%d.%u", LMC_FORMAT_MAJOR, info.format_minor);
    put_json_text(w, "format", format);
    begin_json(w, "features", '['); /* the bits that are set in the file's Incompatible */
    for (unsigned bit = 0; bit < 64; bit++)
        if (info.features >> bit & 1) put_json(w, NULL, json_string(name_feature(bit)));
    end_json(w, ']');
    put_json_number(w, "size", n.size);
    put_json_number(w, "packed_size", archive_size(a));
    put_json_number(w, "lossy_tensors", n.lossy);
    put_json_hash_state(w, a);
    if (record) put_json(w, "policy", json_incref(record));
}

/* Prints the snapshot as one line of JSON. */
static void print_json(const struct shown *s, json_t *record)
{
    struct json_writer w;
    init_json_writer(&w, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    put_json_head(&w, s, record);
    begin_json(&w, "files", '[');
    for (size_t i = 0; i < s->files.n_files; i++) put_json_file(&w, s, i);
    end_json(&w, ']');
    if (!s->plain) put_json_links(&w, s->a);
    if (!s->plain) put_json_metadata(&w, s->a);
    end_json_line(&w);
}

/* Opens the index of a delta's base, if it is found, and the delta's index with this base. */
static int open_base_of_listing(struct shown *s)
{
    struct archive *const a = s->a;
    const char *const path = a->is_delta && a->o->verbosity >= 2 && !a->o->bases->is_off
                                 ? find_base_path(a, a->o)
                                 : NULL;
    if (!path || open_archive_file(&s->base, path, a->o) != CODE_OK ||
        try_archive_index(&s->base, NULL) != LMC_OK)
        return CODE_OK;
    s->base_files = lmc_reader_base(s->base.reader);
    const enum lmc_status status = try_archive_index(a, &s->base_files);
    return status == LMC_OK ? CODE_OK : read_archive_index(a, NULL);
}

int list_file(const char *path, const struct options *o)
{
    struct archive a;
    struct base plain;
    struct shown s = {.a = &a};
    int code = open_archive_or_plain(&a, &plain, path, o);
    if (code == CODE_OK && !a.plain) code = read_archive_index(&a, NULL);
    if (code == CODE_OK) {
        json_t *record = a.plain ? NULL : load_record(&a);
        s.plain = a.plain ? &plain : NULL;
        s.is_narrow = !a.plain && wants_narrow_tables(o);
        if (!a.plain) code = open_base_of_listing(&s);
        if (code == CODE_OK) s.files = files_of_archive(&a);
        if (code == CODE_OK && o->json) print_json(&s, record);
        else if (code == CODE_OK) print_table(&s, record);
        json_decref(record);
    }
    close_archive(&a);
    close_archive(&s.base);
    close_base(&plain);
    return code;
}
