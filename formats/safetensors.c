/* safetensors: u64 size of the JSON, the JSON, the data
 * SPDX-License-Identifier: MIT
 *
 * This follows the rules of spec/foreign-bases.md exactly: the header decides what the items of a
 * base are, so every decoder must get the same result. That is why the JSON is parsed here:
 * libraries differ in what they accept, above all in numbers, depths and zero characters. Parsing
 * takes one pass and makes no tree. Members that are not needed are only checked.
 */
#include "container_check.h"
#include "printable.h"

#define SAFETENSORS_MAX_DEPTH 64u

/* An unescaped string. A zero byte follows it, and it may contain others. */
struct header_string {
    const char *text;
    size_t size;
};

struct header {
    struct container *c;
    const unsigned char *begin, *at, *end;
    /* The place for the next string in c->strings, which has room for all strings: unescaping makes
     * none longer, and the two quotes of each leave room for its zero byte. */
    char *strings;
    /* The keys of all open objects, to find keys that occur twice. */
    struct header_string *keys;
    size_t n_keys, keys_room;
    size_t tensors_room, n_shapes, shapes_room;
    enum container_result result; /* CONTAINER_OK until something is wrong */
};

/* All functions that read something return 1 if the JSON is valid, else 0. */

static int header_wrong(struct header *h, const char *what)
{
    if (h->result == CONTAINER_OK)
        h->result =
            container_bad(h->c, "its safetensors header is not valid JSON (%s, at byte %llu)", what,
                          (unsigned long long)(h->at - h->begin));
    return 0;
}

/* See container_append(). */
static int header_append(struct header *h, void *array, size_t *n, size_t *room, const void *thing,
                         size_t size)
{
    const enum container_result result = container_append(array, n, room, thing, 1, size);
    if (result != CONTAINER_OK) h->result = result;
    return result == CONTAINER_OK;
}

static void skip_space(struct header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\t' || *h->at == '\n' || *h->at == '\r'))
        h->at++;
}

/* Takes the byte if it is the next one. */
static int take_byte(struct header *h, int byte)
{
    if (h->at == h->end || *h->at != byte) return 0;
    h->at++;
    return 1;
}

/* -- strings -- */

/* Reads what follows a backslash. */
static int read_escape(struct header *h)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t used, size;
    if (h->at == h->end) return header_wrong(h, "a string does not end");
    const char *letter = *h->at ? strchr(letters, *h->at) : NULL;
    if (letter) {
        h->at++;
        *h->strings++ = meanings[letter - letters];
        return 1;
    }
    size = read_escaped_character(h->strings, (const char *)h->at, (size_t)(h->end - h->at), &used);
    if (size == 0) return header_wrong(h, used ? "a lone surrogate" : "an unknown escape");
    h->strings += size;
    h->at += used;
    return 1;
}

/* Reads a character that is not escaped. */
static int read_plain(struct header *h)
{
    size_t size = 1;
    if (*h->at < 0x20) return header_wrong(h, "a control character in a string");
    if (*h->at >= 0x80) (void)read_character((const char *)h->at, (size_t)(h->end - h->at), &size);
    if (size == 0) return header_wrong(h, "no UTF-8");
    while (size && size--) *h->strings++ = (char)*h->at++;
    return 1;
}

static int read_string(struct header *h, struct header_string *string)
{
    string->text = h->strings;
    if (!take_byte(h, '"')) return header_wrong(h, "a string is missing");
    while (!take_byte(h, '"')) {
        if (h->at == h->end) return header_wrong(h, "a string does not end");
        if (!(take_byte(h, '\\') ? read_escape(h) : read_plain(h))) return 0;
    }
    string->size = (size_t)(h->strings - string->text);
    *h->strings++ = 0;
    return 1;
}

/* -- other values -- */

static size_t skip_digits(struct header *h)
{
    const unsigned char *start = h->at;
    while (h->at < h->end && *h->at >= '0' && *h->at <= '9') h->at++;
    return (size_t)(h->at - start);
}

static int skip_number(struct header *h)
{
    take_byte(h, '-');
    int zero = h->at < h->end && *h->at == '0';
    size_t n = skip_digits(h);
    if (n == 0 || (zero && n > 1)) return header_wrong(h, "no valid number");
    if (take_byte(h, '.') && skip_digits(h) == 0) return header_wrong(h, "no valid number");
    if (h->at < h->end && (*h->at | 32) == 'e') {
        h->at++;
        if (!take_byte(h, '+')) take_byte(h, '-');
        if (skip_digits(h) == 0) return header_wrong(h, "no valid number");
    }
    return 1;
}

static int skip_word(struct header *h, const char *word)
{
    const size_t size = strlen(word);
    if ((size_t)(h->end - h->at) < size || memcmp(h->at, word, size) != 0)
        return header_wrong(h, "no valid value");
    h->at += size;
    return 1;
}

/* Reads the value of a member of an object, or an element of an array (key NULL). */
typedef int read_value(struct header *h, const struct header_string *key, unsigned depth,
                       void *user);

static int compare_keys(const void *a, const void *b)
{
    const struct header_string *x = (const struct header_string *)a;
    const struct header_string *y = (const struct header_string *)b;
    const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* Checks the keys of an object that ends here. They are the keys from number `from` on. */
static int check_keys(struct header *h, size_t from)
{
    const size_t n = h->n_keys - from;
    h->n_keys = from;
    if (n < 2) return 1;
    qsort(h->keys + from, n, sizeof *h->keys, compare_keys);
    for (size_t i = from + 1; i < from + n; i++)
        if (compare_keys(&h->keys[i - 1], &h->keys[i]) == 0)
            return header_wrong(h, "duplicate object key");
    return 1;
}

static int read_header_member(struct header *h, unsigned depth, read_value *read, void *user)
{
    struct header_string key;
    if (!read_string(h, &key) ||
        !header_append(h, &h->keys, &h->n_keys, &h->keys_room, &key, sizeof key))
        return 0;
    skip_space(h);
    if (!take_byte(h, ':')) return header_wrong(h, "':' is missing");
    skip_space(h);
    return read(h, &key, depth, user);
}

/* Reads an array or an object from its bracket on. depth: 1 for the outer object. */
static int read_items(struct header *h, unsigned depth, read_value *read, void *user)
{
    const int is_object = *h->at++ == '{', closes = is_object ? '}' : ']';
    const size_t first_key = h->n_keys;
    if (depth > SAFETENSORS_MAX_DEPTH) return header_wrong(h, "nested more than 64 deep");
    skip_space(h);
    if (take_byte(h, closes)) return 1;
    for (;;) {
        skip_space(h);
        if (!(is_object ? read_header_member(h, depth, read, user) : read(h, NULL, depth, user)))
            return 0;
        skip_space(h);
        if (take_byte(h, closes)) return check_keys(h, first_key);
        if (!take_byte(h, ',')) return header_wrong(h, "',' or the closing bracket is missing");
    }
}

static int skip_value(struct header *h, const struct header_string *key, unsigned depth, void *user)
{
    struct header_string string;
    (void)key;
    if (h->at == h->end) return header_wrong(h, "a value is missing");
    switch (*h->at) {
    case '{':
    case '[': return read_items(h, depth + 1, skip_value, user);
    case '"': return read_string(h, &string);
    case 't': return skip_word(h, "true");
    case 'f': return skip_word(h, "false");
    case 'n': return skip_word(h, "null");
    default: return skip_number(h);
    }
}

/* -- tensors -- */

/* A list of numbers. The first ones, up to LMC_MAX_RANK, are in the container's shapes. */
struct counts {
    size_t n;
    int is_wrong; /* an element is not a valid number */
};

/* What was read from the entry of a tensor. */
struct entry_of_tensor {
    lmc_tensor t;
    size_t dtype_size;
    int has_shape;
    struct counts extents, offsets;
    uint64_t start, end; /* the two offsets, if there are two */
};

/* Reads a number of a list: 0 or [1-9][0-9]*, below 2^63. */
static int read_count(struct header *h, const struct header_string *key, unsigned depth, void *user)
{
    struct counts *c = (struct counts *)user;
    const unsigned char *at = h->at;
    uint64_t count = 0;
    if (!skip_value(h, key, depth, NULL)) return 0;
    for (; at < h->at && !c->is_wrong; at++) {
        const unsigned digit = *at < '0' ? 10 : *at - (unsigned)'0';
        c->is_wrong = digit > 9 || count > (CONTAINER_MAX_SIZE - digit) / 10;
        if (!c->is_wrong) count = count * 10 + digit;
    }
    if (c->n++ >= LMC_MAX_RANK) return 1; /* refused at the end of the entry */
    return header_append(h, &h->c->shapes, &h->n_shapes, &h->shapes_room, &count, sizeof count);
}

static int is_key(const struct header_string *key, const char *text)
{
    return key->size == strlen(text) && memcmp(key->text, text, key->size) == 0;
}

static int read_field(struct header *h, const struct header_string *key, unsigned depth, void *user)
{
    struct entry_of_tensor *e = (struct entry_of_tensor *)user;
    const int first = h->at < h->end ? *h->at : 0;
    if (first == '"' && is_key(key, "dtype")) {
        struct header_string dtype;
        if (!read_string(h, &dtype)) return 0;
        e->t.dtype = dtype.text;
        e->dtype_size = dtype.size;
        return 1;
    }
    if (first == '[' && is_key(key, "shape")) {
        e->has_shape = 1;
        return read_items(h, depth + 1, read_count, &e->extents);
    }
    if (first == '[' && is_key(key, "data_offsets")) {
        const size_t place = h->n_shapes;
        if (!read_items(h, depth + 1, read_count, &e->offsets)) return 0;
        if (h->n_shapes - place == 2) { /* e->offsets.n also counts what a repeated key gave */
            e->start = h->c->shapes[place];
            e->end = h->c->shapes[place + 1];
        }
        h->n_shapes = place; /* offsets are not kept in shapes */
        return 1;
    }
    return skip_value(h, key, depth, NULL);
}

/* start: where the data begins; offsets are relative to it */
static enum container_result check_described(struct container *c, struct entry_of_tensor *e,
                                             size_t name_size, uint64_t start)
{
    lmc_tensor *t = &e->t;
    uint64_t bytes;
    if (strlen(t->name) != name_size)
        return container_bad(c, "tensor '%.100s...' has a zero byte in its name", t->name);
    if (name_size > CONTAINER_MAX_NAME)
        return container_bad(c, "a tensor has a name of more than %u bytes", CONTAINER_MAX_NAME);
    if (!t->dtype || e->dtype_size < 1 || e->dtype_size > CONTAINER_MAX_DTYPE ||
        strlen(t->dtype) != e->dtype_size)
        return container_bad(c, "tensor '%.100s' has no dtype of 1 to %u characters", t->name,
                             CONTAINER_MAX_DTYPE);
    if (!e->has_shape) return container_bad(c, "tensor '%.100s' has no shape", t->name);
    if (t->rank > LMC_MAX_RANK)
        return container_bad(c, "tensor '%.100s' has more than %d dimensions", t->name,
                             LMC_MAX_RANK);
    if (e->extents.is_wrong)
        return container_bad(
            c, "tensor '%.100s' has a shape with an element that is not a valid number", t->name);
    if (e->offsets.n != 2 || e->offsets.is_wrong || e->end < e->start)
        return container_bad(c, "tensor '%.100s' has no valid data_offsets", t->name);
    if (e->end > CONTAINER_MAX_SIZE - start)
        return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
    t->offset = start + e->start;
    t->size = e->end - e->start;
    if (lmc_dtype_find(t->dtype) != LMC_AUTO &&
        (!container_count_bytes(t->shape, t->rank, lmc_dtype_bits(lmc_dtype_find(t->dtype)),
                                &bytes) ||
         bytes != t->size))
        return container_bad(c, "tensor '%.100s' has another size than its dtype %s and shape give",
                             t->name, t->dtype);
    return CONTAINER_OK;
}

static int read_tensor(struct header *h, const struct header_string *key, unsigned depth,
                       void *user)
{
    struct container *c = h->c;
    struct entry_of_tensor e = {0};
    const size_t first_extent = h->n_shapes;
    if (is_key(key, "__metadata__")) return skip_value(h, key, depth, user);
    e.t.name = key->text;
    if (h->at < h->end && *h->at == '{') {
        if (!read_items(h, depth + 1, read_field, &e)) return 0;
    } else if (!skip_value(h, key, depth, user)) return 0;
    e.t.rank = (unsigned)e.extents.n;
    e.t.shape = c->shapes ? c->shapes + first_extent : NULL; /* for now: the array may still move */
    h->result = check_described(c, &e, key->size, (uint64_t)(h->end - h->begin) + 8);
    return h->result == CONTAINER_OK &&
           header_append(h, &c->tensors, &c->n_tensors, &h->tensors_room, &e.t, sizeof e.t);
}

/* json: the header, which begins with '{' */
static enum container_result read_header(struct container *c, const unsigned char *json,
                                         size_t size)
{
    struct header h = {0};
    size_t n_extents = 0;
    h.c = c;
    h.begin = h.at = json;
    h.end = json + size;
    h.strings = c->strings = (char *)malloc(size);
    if (!c->strings) return CONTAINER_MEMORY;
    if (read_items(&h, 1, read_tensor, NULL)) {
        skip_space(&h);
        if (h.at < h.end) header_wrong(&h, "something follows the object");
    }
    free(h.keys);
    for (size_t i = 0; i < c->n_tensors; i++) {
        c->tensors[i].shape = c->shapes ? c->shapes + n_extents : NULL;
        n_extents += c->tensors[i].rank;
    }
    return h.result;
}

enum container_result container_parse_safetensors(struct container *c, const unsigned char *data,
                                                  size_t size, uint64_t file_size)
{
    c->kind = CONTAINER_SAFETENSORS;
    if (size < 8) return container_more(c, 8, file_size);
    uint64_t json_size = container_number(data, 8);
    if (json_size > CONTAINER_MAX_HEADER - 8)
        return container_bad(
            c, "its safetensors header claims %llu bytes, more than the allowed 100000000",
            (unsigned long long)json_size);
    if (size > 8 && (json_size == 0 || data[8] != '{'))
        return container_bad(c, "its safetensors header does not begin with '{'");
    if (size < 8 + json_size) return container_more(c, 8 + json_size, file_size);
    if (json_size == 0) return container_bad(c, "its safetensors header is empty");
    c->end = 8 + json_size;
    TRY(read_header(c, data + 8, (size_t)json_size));
    return container_check_tensors(c, 8 + json_size, file_size, 0);
}
