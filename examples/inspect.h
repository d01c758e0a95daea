/* inspect.h - lists of snapshots, and single tensors out of them
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_INSPECT_H
#define LMC_INSPECT_H

#include "restore.h"

/* -- list -- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

static void format_shape(char *text, size_t cap, const lmc_tensor *t)
{
    size_t size = (size_t)snprintf(text, cap, "[");
    for (unsigned i = 0; i < t->rank && size < cap; i++)
        size += (size_t)snprintf(text + size, cap - size, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    if (size < cap)
        snprintf(text + size, cap - size, "]");
}

static void print_name(const char *name)
{
    for (; *name; name++)
        putchar((unsigned char)*name < 32 || *name == 127 ? '?' : *name);
}

/* The first column of a line: a dtype, which is a string from the file, too, or another word. */
static void print_dtype(const char *dtype)
{
    const size_t size = strlen(dtype);
    print_name(dtype);
    printf("%*s ", size < 8 ? (int)(8 - size) : 0, "");
}

/* What the rules did, from the metadata; NULL: nothing is known. To be released. */
static json_t *load_record(const struct archive *a)
{
    char *text = copy_metadata(a, POLICY_KEY);
    json_t *record = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return record;
}

static char *make_choice_key(const char *path, const char *name)
{
    size_t size = strlen(path) + strlen(name) + 2;
    char *key = (char *)resize(NULL, size, 1);
    snprintf(key, size, "%s\n%s", path, name);
    return key;
}

/* The record's entries by path and name. */
static json_t *index_choices(const json_t *record)
{
    json_t *choices = (json_t *)check_memory(json_object()), *item;
    size_t i;
    json_array_foreach(json_object_get(record, "tensors"), i, item) {
        const char *path = json_string_value(json_object_get(item, "path")), *name = json_string_value(json_object_get(item, "name"));
        char *key = path && name ? make_choice_key(path, name) : NULL;
        if (key)
            set_json(choices, key, json_incref(item));
        free(key);
    }
    return choices;
}

static void print_choice(const json_t *choices, const char *path, const char *name)
{
    static const char *const keys[] = {"role", "rule", "choice", "reason"};
    char *key = make_choice_key(path, name);
    const json_t *choice = json_object_get(choices, key);
    for (size_t i = 0; choice && i < sizeof keys / sizeof *keys; i++) {
        const char *text = json_string_value(json_object_get(choice, keys[i]));
        printf(i ? ", %s " : "        %s ", keys[i]);
        print_name(text ? text : "?");
    }
    if (choice)
        putchar('\n');
    free(key);
}

static void print_tensor(const struct archive *a, size_t file, const lmc_tensor *t, const json_t *choices, const struct options *o)
{
    char shape[LMC_MAX_RANK * 21 + 3], identity[2 * LMC_IDENTITY_SIZE + 1];
    uint64_t packed = lmc_count_encoded(a->reader, file, t->offset, t->size);
    format_shape(shape, sizeof shape, t);
    printf("    ");
    print_dtype(t->dtype);
    printf("%-18s %14llu %14llu %6.2f %%  ", shape, (unsigned long long)t->size, (unsigned long long)packed, percent(packed, t->size));
    print_name(t->name);
    if (t->loss.generation)
        printf("  LOSSY %s %.3g", name_measure(&t->loss), t->loss.error);
    if (t->loss.generation > 1)
        printf(" (generation %u)", t->loss.generation);
    if (o->verbosity >= 2) {
        format_identity(identity, t->identity);
        printf("  offset %llu  %s", (unsigned long long)t->offset, identity);
    }
    putchar('\n');
    if (o->verbosity >= 2)
        print_choice(choices, lmc_get_file(a->reader, file)->path, t->name);
}

static void print_file(const struct archive *a, size_t number, const json_t *choices, const struct options *o)
{
    const lmc_file *f = lmc_get_file(a->reader, number);
    uint64_t packed = lmc_count_encoded(a->reader, number, 0, f->size);
    int is_directory = f->kind == LMC_FILE_DIRECTORY;
    if (is_directory)
        printf("  %-68s", "directory");
    else
        printf("  %-27s %14llu %14llu %6.2f %%  ", "file", (unsigned long long)f->size, (unsigned long long)packed,
               percent(packed, f->size));
    print_name(*f->path ? f->path : is_directory ? "(the directory itself)" : "(the file itself)");
    if (o->verbosity >= 2) {
        if (f->has_mode)
            printf("  mode %04o", (unsigned)f->mode);
        if (f->has_mtime)
            printf("  mtime %lld", (long long)f->mtime_s);
        if (!is_directory)
            printf("  crc %08x", (unsigned)f->crc);
    }
    putchar('\n');
    for (size_t i = 0; i < f->n_tensors; i++)
        print_tensor(a, number, &f->tensors[i], choices, o);
}

static void print_archive(const struct archive *a, const struct options *o)
{
    size_t n = lmc_count_files(a->reader), n_directories = 0, n_tensors = 0, n_lossy = 0;
    json_t *record = load_record(a), *choices = index_choices(record);
    uint64_t size = 0, packed = archive_size(a);
    uint8_t bytes[LMC_IDENTITY_SIZE];
    char identity[2 * LMC_IDENTITY_SIZE + 1];
    for (size_t i = 0; i < n; i++) {
        size += lmc_get_file(a->reader, i)->size;
        n_directories += lmc_get_file(a->reader, i)->kind == LMC_FILE_DIRECTORY;
        n_tensors += lmc_get_file(a->reader, i)->n_tensors;
        n_lossy += count_lossy(lmc_get_file(a->reader, i));
    }
    lmc_get_identity(a->reader, bytes);
    format_identity(identity, bytes);
    print_name(a->name);
    printf(": %llu file%s, ", (unsigned long long)(n - n_directories), n - n_directories == 1 ? "" : "s");
    if (n_directories)
        printf("%llu director%s, ", (unsigned long long)n_directories, n_directories == 1 ? "y" : "ies");
    printf("%llu tensor%s, %llu -> %llu bytes (%.2f %%)", (unsigned long long)n_tensors, n_tensors == 1 ? "" : "s", (unsigned long long)size,
           (unsigned long long)packed, percent(packed, size));
    if (n_lossy)
        printf(", LOSSY: %llu tensor%s quantised", (unsigned long long)n_lossy, n_lossy == 1 ? "" : "s");
    printf("\n  identity %s\n", identity);
    if (a->chain_depth) {
        char *name = copy_metadata(a, BASE_KEY);
        format_identity(identity, a->wanted);
        printf("  base     %s, %u delta%s deep%s", identity, (unsigned)a->chain_depth, a->chain_depth == 1 ? "" : "s", name ? ", then called " : "");
        print_name(name ? name : "");
        putchar('\n');
        free(name);
    }
    printf("    dtype    shape                        size         packed   ratio  name\n");
    for (size_t i = 0; i < n; i++)
        print_file(a, i, choices, o);
    json_decref(choices);
    json_decref(record);
}

static json_t *make_json_tensor(const struct archive *a, size_t file, const lmc_tensor *t)
{
    json_t *object = (json_t *)check_memory(json_object()), *shape = (json_t *)check_memory(json_array());
    for (unsigned i = 0; i < t->rank; i++)
        json_array_append_new(shape, make_json_number(t->shape[i]));
    set_json_text(object, "name", t->name);
    set_json_text(object, "dtype", t->dtype);
    set_json(object, "shape", shape);
    set_json_number(object, "offset", t->offset);
    set_json_number(object, "size", t->size);
    set_json_number(object, "packed_size", lmc_count_encoded(a->reader, file, t->offset, t->size));
    set_json_identity(object, "identity", t->identity);
    if (t->loss.generation) {
        json_t *loss = (json_t *)check_memory(json_object());
        set_json_number(loss, "generation", t->loss.generation);
        set_json(loss, "measure", json_string(name_measure(&t->loss)));
        set_json_real(loss, "error", t->loss.error);
        set_json(object, "loss", loss);
    }
    return object;
}

static json_t *make_json_file(const struct archive *a, size_t number)
{
    const lmc_file *f = lmc_get_file(a->reader, number);
    json_t *object = (json_t *)check_memory(json_object()), *tensors = (json_t *)check_memory(json_array());
    char crc[9];
    snprintf(crc, sizeof crc, "%08x", (unsigned)f->crc);
    set_json_text(object, "path", f->path);
    set_json(object, "kind", json_string(f->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    set_json_number(object, "size", f->size);
    set_json_number(object, "packed_size", lmc_count_encoded(a->reader, number, 0, f->size));
    set_json(object, "crc32c", json_string(crc));
    if (f->has_mode)
        set_json_number(object, "mode", f->mode);
    if (f->has_mtime)
        set_json(object, "mtime", json_integer(f->mtime_s));
    if (f->n_tensors == 0)
        set_json_identity(object, "identity", f->identity);
    for (size_t i = 0; i < f->n_tensors; i++)
        json_array_append_new(tensors, make_json_tensor(a, number, &f->tensors[i]));
    set_json(object, "tensors", tensors);
    return object;
}

static json_t *make_json_metadata(const struct archive *a)
{
    json_t *object = (json_t *)check_memory(json_object());
    const char *key;
    const void *value;
    size_t size;
    for (size_t i = 0; lmc_get_metadata(a->reader, i, &key, &value, &size) == LMC_OK; i++) {
        size_t length = strlen(key);
        json_t *name = json_stringn(key, length);
        char *hex = (char *)resize(NULL, 2 * length + 5, 1);
        memcpy(hex, "hex:", 4);
        format_hex(hex + 4, key, length);
        set_json(object, name ? key : hex, make_json_string((const char *)value, size)); /* two keys never become one */
        json_decref(name);
        free(hex);
    }
    return object;
}

/* One line for each snapshot. */
static void print_json(const struct archive *a)
{
    json_t *object = (json_t *)check_memory(json_object()), *files = (json_t *)check_memory(json_array());
    uint8_t bytes[LMC_IDENTITY_SIZE];
    uint64_t size = 0, n_lossy = 0;
    json_t *record = load_record(a);
    lmc_get_identity(a->reader, bytes);
    for (size_t i = 0; i < lmc_count_files(a->reader); i++) {
        n_lossy += count_lossy(lmc_get_file(a->reader, i));
        size += lmc_get_file(a->reader, i)->size;
        json_array_append_new(files, make_json_file(a, i));
    }
    set_json_text(object, "snapshot", a->name);
    set_json_identity(object, "identity", bytes);
    if (a->chain_depth)
        set_json_identity(object, "base_identity", a->wanted);
    set_json_number(object, "chain_depth", a->chain_depth);
    set_json_number(object, "size", size);
    set_json_number(object, "packed_size", archive_size(a));
    set_json_number(object, "lossy_tensors", n_lossy);
    if (record)
        set_json(object, "policy", record);
    set_json(object, "files", files);
    set_json(object, "metadata", make_json_metadata(a));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

static int list_file(const char *path, const struct options *o)
{
    struct archive a;
    int code = open_archive_file(&a, path, o);
    if (code == CODE_OK)
        code = read_archive_index(&a, NULL);
    if (code == CODE_OK && o->json)
        print_json(&a);
    else if (code == CODE_OK)
        print_archive(&a, o);
    close_archive(&a);
    return code;
}

/* -- slices: NAME[start:stop,index,:], as in NumPy, without steps -- */

struct slice {
    uint64_t start[LMC_MAX_RANK], count[LMC_MAX_RANK];
    int dropped[LMC_MAX_RANK]; /* the dimension was given as one index */
};

/* An integer; 0 if there is none. */
static int parse_index(const char **text, long long *value)
{
    char *end;
    if (**text != '-' && (**text < '0' || **text > '9'))
        return 0;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    if (end == *text || errno == ERANGE)
        return 0;
    *text = end;
    return 1;
}

/* A bound of a range in 0 .. n, negative ones counted from the end, clamped as in NumPy. */
static uint64_t clamp_bound(long long bound, uint64_t n)
{
    if (bound < 0) {
        uint64_t back = (uint64_t) - (bound + 1) + 1;
        return back > n ? 0 : n - back;
    }
    return (uint64_t)bound > n ? n : (uint64_t)bound;
}

/* One dimension of n elements: ":", "3", "-1", "2:", ":5", "2:5", "2:5:1". Returns 0 if it is none of them, -1 if the
 * index is out of range. */
static int parse_dimension(const char **text, uint64_t n, uint64_t *start, uint64_t *count, int *dropped)
{
    long long value, step;
    int has_start = parse_index(text, &value);
    uint64_t stop = n;
    *dropped = has_start && **text != ':';
    if (*dropped) {
        uint64_t back = value < 0 ? (uint64_t) - (value + 1) + 1 : 0;
        if (value < 0 ? back > n : (uint64_t)value >= n)
            return -1;
        *start = value < 0 ? n - back : (uint64_t)value;
        *count = 1;
        return 1;
    }
    if (**text != ':')
        return 0;
    ++*text;
    *start = has_start ? clamp_bound(value, n) : 0;
    if (parse_index(text, &value))
        stop = clamp_bound(value, n);
    if (**text == ':') {
        ++*text;
        if (**text != ',' && **text != ']' && (!parse_index(text, &step) || step != 1))
            return 0;
    }
    *count = stop > *start ? stop - *start : 0;
    return 1;
}

/* text: from behind the '[' to the end. */
static int parse_slice(struct slice *s, const char *text, const lmc_tensor *t)
{
    unsigned i = 0;
    while (*text != ']') {
        int result;
        if (i == t->rank)
            return fail(CODE_USAGE, t->name, "has %u dimensions, the slice has more", t->rank);
        result = parse_dimension(&text, t->shape[i], &s->start[i], &s->count[i], &s->dropped[i]);
        if (result < 0)
            return fail(CODE_USAGE, t->name, "index %u of the slice is not below %llu", i + 1, (unsigned long long)t->shape[i]);
        if (result == 0 || (*text != ',' && *text != ']'))
            return fail(CODE_USAGE, t->name, "a slice looks like [0:128,:,3]; steps other than 1 are not supported");
        if (*text == ',')
            text++;
        i++;
    }
    if (text[1])
        return fail(CODE_USAGE, t->name, "a slice ends with its first ']'");
    for (; i < t->rank; i++) {
        s->start[i] = 0;
        s->count[i] = t->shape[i];
        s->dropped[i] = 0;
    }
    return CODE_OK;
}

/* -- cat -- */

#define WINDOW_SIZE ((uint64_t)4 << 20)
#define WINDOW_GAP ((uint64_t)256 << 10)

/* What is to be written of a tensor: pieces of equal size, at places that an odometer over the outer dimensions gives. */
struct extract {
    struct archive *archive;
    size_t file;
    const lmc_tensor *tensor;
    struct slice slice;
    uint64_t piece;                 /* bytes that lie together */
    unsigned n_outer;               /* dimensions of the odometer */
    uint64_t digits[LMC_MAX_RANK];
    uint64_t stride[LMC_MAX_RANK];  /* bytes */
    uint64_t left;                  /* pieces */
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
    for (unsigned i = e->n_outer; i-- > 0;) {
        if (++e->digits[i] < e->slice.count[i])
            return;
        e->digits[i] = 0;
    }
}

/* Inner dimensions that are taken whole, and the one outside of them, make a piece. */
static void plan_extract(struct extract *e, uint64_t element)
{
    const lmc_tensor *t = e->tensor;
    unsigned i = t->rank;
    uint64_t stride = element;
    for (unsigned k = t->rank; k-- > 0;) {
        e->stride[k] = stride;
        stride *= t->shape[k];
    }
    e->piece = element;
    while (i > 0 && e->slice.count[i - 1] == t->shape[i - 1])
        e->piece *= t->shape[--i];
    if (i > 0)
        e->piece *= e->slice.count[--i];
    e->n_outer = i;
    e->left = 1;
    for (unsigned k = 0; k < i; k++)
        e->left *= e->slice.count[k];
    if (e->piece == 0)
        e->left = 0;
}

static int write_part(struct output *out, const void *data, size_t size)
{
    int error = write_output(out, data, size);
    progress_add(size);
    return error ? fail_output(out, error) : CODE_OK;
}

/* A piece that is larger than the window, part by part. */
static int copy_large_piece(struct extract *e, unsigned char *window, struct output *out)
{
    uint64_t place = place_of_piece(e);
    for (uint64_t done = 0; done < e->piece;) {
        size_t part = (size_t)(e->piece - done < WINDOW_SIZE ? e->piece - done : WINDOW_SIZE);
        enum lmc_status status = lmc_read_tensor(e->archive->reader, e->file, e->tensor, place + done, window, part);
        int code = status == LMC_OK ? write_part(out, window, part) : fail_archive(e->archive, status);
        if (code != CODE_OK)
            return code;
        done += part;
    }
    next_piece(e);
    return CODE_OK;
}

/* The pieces that fit into one window, with one read: else a block would be decoded for each of its pieces. */
static int copy_window(struct extract *e, unsigned char *window, struct output *out)
{
    struct extract ahead = *e;
    uint64_t place = place_of_piece(e), end = place;
    enum lmc_status status;
    while (ahead.left) {
        uint64_t next = place_of_piece(&ahead);
        if (next + e->piece - place > WINDOW_SIZE || next - end > WINDOW_GAP)
            break;
        end = next + e->piece;
        next_piece(&ahead);
    }
    status = lmc_read_tensor(e->archive->reader, e->file, e->tensor, place, window, (size_t)(end - place));
    if (status != LMC_OK)
        return fail_archive(e->archive, status);
    while (e->left > ahead.left) {
        int code = write_part(out, window + (place_of_piece(e) - place), (size_t)e->piece);
        if (code != CODE_OK)
            return code;
        next_piece(e);
    }
    return CODE_OK;
}

static int copy_pieces(struct extract *e, struct output *out)
{
    unsigned char *window = (unsigned char *)resize(NULL, (size_t)WINDOW_SIZE, 1);
    int code = CODE_OK;
    while (e->left && code == CODE_OK)
        code = e->piece > WINDOW_SIZE ? copy_large_piece(e, window, out) : copy_window(e, window, out);
    free(window);
    return code;
}

/* bf16 and the 8-bit floats have no type in NumPy; it saves them as raw bytes of that width, and so do we. */
static const char *npy_descr(const char *dtype)
{
    enum lmc_dtype number = lmc_find_dtype(dtype);
    for (size_t i = 0; i < sizeof npy_dtypes / sizeof *npy_dtypes; i++)
        if (strcmp(npy_dtypes[i].name, dtype) == 0)
            return npy_dtypes[i].descr;
    if (number == LMC_AUTO || lmc_dtype_bits(number) % 8 != 0)
        return NULL;
    return lmc_dtype_bits(number) == 8 ? "|V1" : "|V2";
}

static int write_npy_header(const struct extract *e, struct output *out)
{
    char text[128 + LMC_MAX_RANK * 22];
    const char *descr = npy_descr(e->tensor->dtype);
    size_t size = 10, end;
    unsigned n = 0;
    if (!descr)
        return fail(CODE_ERROR, e->tensor->name, "has the dtype %s, which NumPy does not know; leave out --npy", e->tensor->dtype);
    memcpy(text, "\x93NUMPY\1\0", 8);
    size += (size_t)snprintf(text + size, sizeof text - size, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (unsigned i = 0; i < e->tensor->rank; i++)
        if (!e->slice.dropped[i])
            size += (size_t)snprintf(text + size, sizeof text - size, "%s%llu", n++ ? ", " : "", (unsigned long long)e->slice.count[i]);
    size += (size_t)snprintf(text + size, sizeof text - size, "%s), }", n == 1 ? "," : "");
    end = (size + 1 + 63) / 64 * 64;
    memset(text + size, ' ', end - size);
    text[end - 1] = '\n';
    text[8] = (char)((end - 10) & 255);
    text[9] = (char)((end - 10) >> 8);
    return write_part(out, text, end);
}

static int fail_lookup(const struct archive *a, enum lmc_status status, const char *name, const struct options *o)
{
    if (status == LMC_ERR_NOT_FOUND && o->file)
        return fail(CODE_ERROR, a->name, "has no tensor '%.200s' in the file '%.200s'; 'lmc -l' lists them", name, o->file);
    if (status == LMC_ERR_NOT_FOUND)
        return fail(CODE_ERROR, a->name, "has no tensor '%.200s'; 'lmc -l' lists them", name);
    if (status == LMC_ERR_ARGUMENT)
        return fail(CODE_ERROR, a->name, "has a tensor '%.200s' in several files; choose one with --file", name);
    return fail_archive(a, status);
}

/* Finds the tensor and the slice of it. A name may hold brackets itself: the longest name wins. */
static int find_tensor(struct extract *e, const char *text, const struct options *o, int *has_slice)
{
    enum lmc_status status = lmc_find_tensor(e->archive->reader, o->file, text, &e->file, &e->tensor);
    const char *bracket = strrchr(text, '[');
    size_t size = strlen(text);
    int code;
    *has_slice = 0;
    if (status == LMC_ERR_NOT_FOUND && bracket && text[size - 1] == ']') {
        char *name = copy_string(text, (size_t)(bracket - text));
        status = lmc_find_tensor(e->archive->reader, o->file, name, &e->file, &e->tensor);
        code = status == LMC_OK ? parse_slice(&e->slice, bracket + 1, e->tensor) : fail_lookup(e->archive, status, name, o);
        free(name);
        *has_slice = 1;
        return code;
    }
    if (status != LMC_OK)
        return fail_lookup(e->archive, status, text, o);
    return parse_slice(&e->slice, "]", e->tensor);
}

/* Without a name: the only tensor there is. */
static int find_only_tensor(struct extract *e)
{
    for (size_t i = 0; i < lmc_count_files(e->archive->reader); i++) {
        const lmc_file *f = lmc_get_file(e->archive->reader, i);
        if (f->n_tensors > 1 || (f->n_tensors == 1 && e->tensor))
            return fail(CODE_USAGE, e->archive->name, "has several tensors; name one ('lmc -l' lists them)");
        if (f->n_tensors == 1) {
            e->file = i;
            e->tensor = f->tensors;
        }
    }
    if (!e->tensor)
        return fail(CODE_ERROR, e->archive->name, "has no tensors; restore it with -d");
    return parse_slice(&e->slice, "]", e->tensor);
}

static int plan_cat(struct extract *e, int has_slice)
{
    const lmc_tensor *t = e->tensor;
    enum lmc_dtype dtype = lmc_find_dtype(t->dtype);
    unsigned bits = lmc_dtype_bits(dtype);
    if (has_slice && dtype == LMC_AUTO)
        return fail(CODE_ERROR, t->name, "has the dtype %s, of which the size of an element is not known; only all of it can be read",
                    t->dtype);
    if (has_slice && bits % 8 != 0)
        return fail(CODE_ERROR, t->name, "has the dtype %s, whose elements are no whole bytes; only all of it can be read", t->dtype);
    if (has_slice) {
        plan_extract(e, bits / 8);
    } else {
        e->piece = t->size;
        e->left = t->size != 0;
    }
    return CODE_OK;
}

/* name NULL: the only tensor. */
static int cat_tensor(const char *path, const char *name, const struct options *o)
{
    struct archive a;
    struct extract e;
    struct output out;
    struct attributes attributes;
    const lmc_base *base;
    double start = now();
    int has_slice = 0, code = open_archive_file(&a, path, o);
    if (code == CODE_OK)
        code = protect_bases(NULL, o->output && !is_dash(o->output) ? o->output : NULL, 0, o);
    if (code == CODE_OK)
        code = find_base_of_archive(&a, &base, o);
    if (code == CODE_OK)
        code = read_archive_index(&a, base);
    memset(&e, 0, sizeof e);
    memset(&attributes, 0, sizeof attributes);
    e.archive = &a;
    if (code == CODE_OK)
        code = name ? find_tensor(&e, name, o, &has_slice) : find_only_tensor(&e);
    if (code == CODE_OK)
        code = plan_cat(&e, has_slice);
    if (code == CODE_OK)
        code = open_output(&out, o->output && !is_dash(o->output) ? o->output : NULL, &a.st, o->force);
    if (code == CODE_OK) {
        progress_start(a.name, e.piece * e.left);
        if (o->npy)
            code = write_npy_header(&e, &out);
        if (code == CODE_OK)
            code = copy_pieces(&e, &out);
        progress_clear();
        if (code == CODE_OK)
            code = commit_output(&out, &attributes);
        else
            discard_output(&out);
    }
    if (code == CODE_OK && o->verbosity >= 2) {
        for (size_t i = 0; i < o->bases->n; i++) {
            a.n_reads += o->bases->list[i].archive.n_reads;
            a.n_bytes += o->bases->list[i].archive.n_bytes;
        }
        say(a.name, "%llu bytes out of %llu reads of %llu bytes, %.1f ms", (unsigned long long)out.outlet.size,
            (unsigned long long)a.n_reads, (unsigned long long)a.n_bytes, (now() - start) * 1e3);
    }
    close_archive(&a);
    return code;
}

#endif
