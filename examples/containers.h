/* containers.h - find the tensors in safetensors, GGUF and NumPy files
 * SPDX-License-Identifier: MIT
 *
 * Memory in, a list of lmc_tensor out: no I/O, so that it can be fuzzed. The caller hands over the beginning of a file;
 * if the header is not complete there, CONTAINER_MORE says how many bytes are needed. Nothing is believed: every tensor
 * that is handed out lies within the file, has a name of its own, overlaps no other, and has the size that dtype and
 * shape ask for. Depends on lmc.h for the dtypes and on jansson for JSON.
 */
#ifndef LMC_CONTAINERS_H
#define LMC_CONTAINERS_H

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* safetensors allows 100,000,000 bytes of JSON; the other formats are held to the same. */
#define CONTAINER_MAX_HEADER 100000008u
#define CONTAINER_MAX_TENSORS (1u << 28) /* of an LMC file */
#define CONTAINER_MAX_NAME 65535u
#define CONTAINER_MAX_DTYPE 32u
#define CONTAINER_MAX_SIZE ((uint64_t)INT64_MAX)

enum container_kind { CONTAINER_NONE, CONTAINER_SAFETENSORS, CONTAINER_GGUF, CONTAINER_NPY };

enum container_result {
    CONTAINER_OK,     /* the tensors are known */
    CONTAINER_OTHER,  /* does not look like one of the formats */
    CONTAINER_MORE,   /* looks like one, but at least need bytes from its beginning are wanted */
    CONTAINER_BAD,    /* looks like one, and is broken: see error */
    CONTAINER_MEMORY  /* out of memory */
};

struct container {
    enum container_kind kind;
    lmc_tensor *tensors; /* sorted by offset */
    size_t n_tensors;
    uint64_t end;        /* where the data ends, padding included, as far as the header says */
    size_t need;         /* for CONTAINER_MORE */
    char error[256];     /* for CONTAINER_BAD */
    /* storage behind the tensors */
    uint64_t *shapes;
    char *strings;
    json_t *json;
};

static const char *container_name(enum container_kind kind)
{
    switch (kind) {
    case CONTAINER_SAFETENSORS: return "safetensors";
    case CONTAINER_GGUF: return "GGUF";
    case CONTAINER_NPY: return "NumPy";
    case CONTAINER_NONE: break;
    }
    return "plain";
}

static void container_free(struct container *c)
{
    free(c->tensors);
    free(c->shapes);
    free(c->strings);
    json_decref(c->json);
    memset(c, 0, sizeof *c);
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static enum container_result container_bad(struct container *c, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(c->error, sizeof c->error, format, list);
    va_end(list);
    return CONTAINER_BAD;
}

/* need bytes of the header are wanted: an error if the file has no more than that, or no header is that long. */
static enum container_result container_more(struct container *c, uint64_t need, uint64_t file_size)
{
    if (need > CONTAINER_MAX_HEADER)
        return container_bad(c, "its header is longer than %u bytes", CONTAINER_MAX_HEADER);
    if (need > file_size)
        return container_bad(c, "the file ends within its header");
    c->need = (size_t)need;
    return CONTAINER_MORE;
}

/* *bytes = n elements of bits bits, the elements being the product of shape; 0 if that is no whole number of bytes or
 * over the limit. */
static int container_count_bytes(const uint64_t *shape, unsigned rank, unsigned bits, uint64_t *bytes)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0) {
            *bytes = 0;
            return 1;
        }
    for (unsigned i = 0; i < rank; i++) {
        if (n > CONTAINER_MAX_SIZE / shape[i])
            return 0;
        n *= shape[i];
    }
    /* n * bits may exceed 64 bits though n * bits / 8 does not: divide first. */
    if (n % 8 * bits % 8 != 0 || n / 8 > CONTAINER_MAX_SIZE / bits)
        return 0;
    *bytes = n / 8 * bits + n % 8 * bits / 8;
    return *bytes <= CONTAINER_MAX_SIZE;
}

static int container_compare_offsets(const void *a, const void *b)
{
    const lmc_tensor *x = (const lmc_tensor *)a, *y = (const lmc_tensor *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size) /* an empty tensor first: then it does not overlap its neighbour */
        return x->size < y->size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int container_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum container_result container_check_names(struct container *c)
{
    const char **names = (const char **)malloc((c->n_tensors + 1) * sizeof *names);
    enum container_result result = CONTAINER_OK;
    if (!names)
        return CONTAINER_MEMORY;
    for (size_t i = 0; i < c->n_tensors; i++)
        names[i] = c->tensors[i].name;
    qsort((void *)names, c->n_tensors, sizeof *names, container_compare_names);
    for (size_t i = 1; i < c->n_tensors && result == CONTAINER_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            result = container_bad(c, "two tensors have the name '%.100s'", names[i]);
    free((void *)names);
    return result;
}

/* Whether the tensor lies within a file of that size, or LMC_UNKNOWN_SIZE: then of any size that a file can have. */
static int container_fits(const lmc_tensor *t, uint64_t file_size)
{
    const uint64_t most = file_size < CONTAINER_MAX_SIZE ? file_size : CONTAINER_MAX_SIZE;
    return t->size <= most && t->offset <= most - t->size;
}

/* Sorts the tensors; offsets are from the start of the file. holes: whether bytes between tensors are allowed. */
static enum container_result container_check_tensors(struct container *c, uint64_t start, uint64_t file_size, int holes)
{
    uint64_t end = start;
    qsort(c->tensors, c->n_tensors, sizeof *c->tensors, container_compare_offsets);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        if (t->offset < end)
            return container_bad(c, "tensor '%.100s' overlaps %s%.100s%s", t->name, i ? "tensor '" : "the header",
                                 i ? c->tensors[i - 1].name : "", i ? "'" : "");
        if (t->offset > end && !holes)
            return container_bad(c, "no tensor covers the bytes before tensor '%.100s'", t->name);
        if (!container_fits(t, file_size))
            return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
        end = t->offset + t->size;
    }
    if (c->end < end)
        c->end = end;
    return container_check_names(c);
}

/* -- safetensors: u64 size of the JSON, the JSON, the data -- */

static enum container_result safetensors_read_shape(struct container *c, lmc_tensor *t, const json_t *shape, uint64_t *room)
{
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape))
        return container_bad(c, "tensor '%.100s' has no shape", t->name);
    if (rank > LMC_MAX_RANK)
        return container_bad(c, "tensor '%.100s' has more than %d dimensions", t->name, LMC_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *n = json_array_get(shape, i);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return container_bad(c, "tensor '%.100s' has a shape that is not made of counts", t->name);
        room[i] = (uint64_t)json_integer_value(n);
    }
    t->rank = (unsigned)rank;
    t->shape = room;
    return CONTAINER_OK;
}

/* data_offsets are relative to the end of the header, at start. */
static enum container_result safetensors_read_offsets(struct container *c, lmc_tensor *t, const json_t *offsets, uint64_t start)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin))
        return container_bad(c, "tensor '%.100s' has no valid data_offsets", t->name);
    if ((uint64_t)json_integer_value(end) > CONTAINER_MAX_SIZE - start)
        return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
    t->offset = start + (uint64_t)json_integer_value(begin);
    t->size = (uint64_t)(json_integer_value(end) - json_integer_value(begin));
    return CONTAINER_OK;
}

static enum container_result safetensors_read_tensor(struct container *c, lmc_tensor *t, const char *name, const json_t *entry,
                                                     uint64_t start, uint64_t *room)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    enum container_result result;
    uint64_t bytes;
    memset(t, 0, sizeof *t);
    t->name = name;
    if (strlen(name) > CONTAINER_MAX_NAME)
        return container_bad(c, "a tensor has a name of more than %u bytes", CONTAINER_MAX_NAME);
    if (!dtype || strlen(dtype) < 1 || strlen(dtype) > CONTAINER_MAX_DTYPE)
        return container_bad(c, "tensor '%.100s' has no dtype of 1 to %u characters", name, CONTAINER_MAX_DTYPE);
    t->dtype = dtype;
    result = safetensors_read_shape(c, t, json_object_get(entry, "shape"), room);
    if (result == CONTAINER_OK)
        result = safetensors_read_offsets(c, t, json_object_get(entry, "data_offsets"), start);
    if (result == CONTAINER_OK && lmc_find_dtype(dtype) != LMC_AUTO &&
        (!container_count_bytes(t->shape, t->rank, lmc_dtype_bits(lmc_find_dtype(dtype)), &bytes) || bytes != t->size))
        result = container_bad(c, "tensor '%.100s' has a size that its dtype %s and its shape do not give", name, dtype);
    return result;
}

static enum container_result safetensors_read_tensors(struct container *c, uint64_t start)
{
    size_t n_numbers = 0, n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(c->json, name, entry)
        n_numbers += json_array_size(json_object_get(entry, "shape"));
    if (json_object_size(c->json) > CONTAINER_MAX_TENSORS)
        return container_bad(c, "it has more than 2^28 tensors");
    c->tensors = (lmc_tensor *)malloc((json_object_size(c->json) + 1) * sizeof *c->tensors);
    c->shapes = (uint64_t *)malloc((n_numbers + 1) * sizeof *c->shapes);
    if (!c->tensors || !c->shapes)
        return CONTAINER_MEMORY;
    n_numbers = 0;
    json_object_foreach(c->json, name, entry) {
        enum container_result result;
        if (strcmp(name, "__metadata__") == 0)
            continue;
        result = safetensors_read_tensor(c, &c->tensors[n], name, entry, start, c->shapes + n_numbers);
        if (result != CONTAINER_OK)
            return result;
        n_numbers += c->tensors[n++].rank;
    }
    c->n_tensors = n;
    return CONTAINER_OK;
}

static enum container_result container_parse_safetensors(struct container *c, const unsigned char *data, size_t size,
                                                         uint64_t file_size)
{
    uint64_t json_size = 0;
    enum container_result result;
    json_error_t error;
    c->kind = CONTAINER_SAFETENSORS;
    if (size < 8)
        return container_more(c, 8, file_size);
    for (unsigned i = 0; i < 8; i++)
        json_size |= (uint64_t)data[i] << 8 * i;
    if (json_size > CONTAINER_MAX_HEADER - 8)
        return container_bad(c, "its safetensors header claims %llu bytes, more than the allowed 100000000",
                             (unsigned long long)json_size);
    if (size > 8 && data[8] != '{')
        return container_bad(c, "its safetensors header does not begin with '{'");
    if (size < 8 + json_size)
        return container_more(c, 8 + json_size, file_size);
    c->json = json_loadb((const char *)data + 8, (size_t)json_size, JSON_REJECT_DUPLICATES, &error);
    if (!c->json)
        return json_error_code(&error) == json_error_out_of_memory
                   ? CONTAINER_MEMORY
                   : container_bad(c, "its safetensors header is no valid JSON (%.120s, at byte %d)", error.text, error.position);
    if (!json_is_object(c->json))
        return container_bad(c, "its safetensors header is no JSON object");
    c->end = 8 + json_size;
    result = safetensors_read_tensors(c, 8 + json_size);
    return result == CONTAINER_OK ? container_check_tensors(c, 8 + json_size, file_size, 0) : result;
}

/* -- GGUF: magic, version, counts, metadata, tensor infos, padding, data -- */

/* A place in the header. Once a read went past the end, missing is set and every further read gives zeros. */
struct gguf_cursor {
    const unsigned char *data;
    size_t size, at;
    uint64_t missing; /* bytes of the file that the first failed read asked for; 0: none failed */
};

/* size bytes; NULL if they are not there. */
static const unsigned char *gguf_take(struct gguf_cursor *g, uint64_t size)
{
    const unsigned char *p = g->data + g->at;
    if (g->missing || size > g->size - g->at) {
        if (!g->missing)
            g->missing = size > UINT64_MAX - g->at ? UINT64_MAX : g->at + size;
        return NULL;
    }
    g->at += (size_t)size;
    return p;
}

static uint64_t gguf_take_number(struct gguf_cursor *g, unsigned size)
{
    const unsigned char *p = gguf_take(g, size);
    uint64_t x = 0;
    for (unsigned i = 0; p && i < size; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

struct gguf_type {
    const char *name;
    unsigned n;    /* elements of a block */
    unsigned size; /* bytes of a block */
};

/* By number; a type without name was removed or is not known. */
static const struct gguf_type *gguf_find_type(uint64_t number)
{
    static const struct gguf_type types[] = {
        {"F32", 1, 4},       {"F16", 1, 2},        {"Q4_0", 32, 18},     {"Q4_1", 32, 20},    {NULL, 0, 0},
        {NULL, 0, 0},        {"Q5_0", 32, 22},     {"Q5_1", 32, 24},     {"Q8_0", 32, 34},    {"Q8_1", 32, 36},
        {"Q2_K", 256, 84},   {"Q3_K", 256, 110},   {"Q4_K", 256, 144},   {"Q5_K", 256, 176},  {"Q6_K", 256, 210},
        {"Q8_K", 256, 292},  {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},  {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
        {"IQ4_NL", 32, 18},  {"IQ3_S", 256, 110},  {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136}, {"I8", 1, 1},
        {"I16", 1, 2},       {"I32", 1, 4},        {"I64", 1, 8},        {"F64", 1, 8},       {"IQ1_M", 256, 56},
        {"BF16", 1, 2},      {NULL, 0, 0},         {NULL, 0, 0},         {NULL, 0, 0},        {"TQ1_0", 256, 54},
        {"TQ2_0", 256, 66},  {NULL, 0, 0},         {NULL, 0, 0},         {NULL, 0, 0},        {"MXFP4", 32, 17},
        {"NVFP4", 64, 36},
    };
    if (number >= sizeof types / sizeof *types || !types[number].name)
        return NULL;
    return &types[number];
}

enum { GGUF_UINT32 = 4, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_MAX_NESTING = 8 };

/* Bytes of a metadata value of fixed size; 0 for strings, arrays and unknown types. */
static unsigned gguf_value_size(uint64_t type)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* Returns 0 for a type that is not known: the length of the value cannot be known either. */
static int gguf_skip_value(struct gguf_cursor *g, uint64_t type, unsigned nesting)
{
    unsigned size = gguf_value_size(type);
    if (size) {
        gguf_take(g, size);
    } else if (type == GGUF_STRING) {
        gguf_take(g, gguf_take_number(g, 8));
    } else if (type == GGUF_ARRAY && nesting < GGUF_MAX_NESTING) {
        uint64_t item = gguf_take_number(g, 4), n = gguf_take_number(g, 8);
        size = gguf_value_size(item);
        if (size) {
            gguf_take(g, n > UINT64_MAX / size ? UINT64_MAX : n * size);
            return 1;
        }
        for (uint64_t i = 0; i < n && !g->missing; i++)
            if (!gguf_skip_value(g, item, nesting + 1))
                return 0;
    } else {
        return g->missing != 0; /* the type itself may be what is missing */
    }
    return 1;
}

/* Skips the metadata, but for the alignment of the data. */
static enum container_result gguf_read_metadata(struct container *c, struct gguf_cursor *g, uint64_t n, uint64_t *alignment)
{
    static const char key_of_alignment[] = "general.alignment";
    *alignment = 32;
    for (uint64_t i = 0; i < n && !g->missing; i++) {
        uint64_t key_size = gguf_take_number(g, 8);
        const unsigned char *key = gguf_take(g, key_size);
        uint64_t type = gguf_take_number(g, 4);
        if (key && key_size == sizeof key_of_alignment - 1 && memcmp(key, key_of_alignment, (size_t)key_size) == 0) {
            *alignment = gguf_take_number(g, 4);
            if (!g->missing && (type != GGUF_UINT32 || *alignment == 0 || (*alignment & (*alignment - 1))))
                return container_bad(c, "its general.alignment is no power of two");
        } else if (!gguf_skip_value(g, type, 0)) {
            return container_bad(c, "its GGUF metadata hold a value of the unknown type %llu", (unsigned long long)type);
        }
    }
    return CONTAINER_OK;
}

/* Walks over the tensor infos to learn what is to be allocated. */
static enum container_result gguf_measure_infos(struct container *c, struct gguf_cursor *g, uint64_t n, size_t *n_numbers,
                                                size_t *n_characters)
{
    *n_numbers = *n_characters = 0;
    for (uint64_t i = 0; i < n && !g->missing; i++) {
        uint64_t name_size = gguf_take_number(g, 8), rank;
        const unsigned char *name = gguf_take(g, name_size);
        rank = gguf_take_number(g, 4);
        if (name && (name_size > CONTAINER_MAX_NAME || memchr(name, 0, (size_t)name_size)))
            return container_bad(c, "the name of tensor number %llu has a zero byte or is too long", (unsigned long long)i);
        if (rank > LMC_MAX_RANK)
            return container_bad(c, "tensor number %llu has more than %d dimensions", (unsigned long long)i, LMC_MAX_RANK);
        gguf_take(g, rank * 8 + 4 + 8);
        if (g->missing)
            break;
        *n_numbers += (size_t)rank;
        *n_characters += (size_t)name_size + 1 + sizeof "GGML_4294967295";
    }
    return CONTAINER_OK;
}

/* The size of a tensor of known type; UINT64_MAX: unknown, to be seen from what comes after it. */
static enum container_result gguf_read_size(struct container *c, lmc_tensor *t, const struct gguf_type *type)
{
    t->size = UINT64_MAX;
    if (!type)
        return CONTAINER_OK;
    if (type->n > 1) { /* blocks lie along the innermost dimension */
        uint64_t shape[LMC_MAX_RANK];
        if (t->rank == 0 || t->shape[t->rank - 1] % type->n != 0)
            return container_bad(c, "tensor '%.100s' has a row that is no multiple of %u elements", t->name, type->n);
        memcpy(shape, t->shape, t->rank * sizeof *shape);
        shape[t->rank - 1] /= type->n;
        if (!container_count_bytes(shape, t->rank, type->size * 8, &t->size))
            return container_bad(c, "tensor '%.100s' is too large", t->name);
    } else if (!container_count_bytes(t->shape, t->rank, type->size * 8, &t->size)) {
        return container_bad(c, "tensor '%.100s' is too large", t->name);
    }
    return CONTAINER_OK;
}

/* One tensor info; measured before, so everything is there. Strings go to *text. Its offset: relative to the data. */
static enum container_result gguf_read_info(struct container *c, struct gguf_cursor *g, lmc_tensor *t, uint64_t *room, char **text)
{
    size_t name_size = (size_t)gguf_take_number(g, 8);
    const struct gguf_type *type;
    uint64_t number;
    memset(t, 0, sizeof *t);
    t->name = *text;
    memcpy(*text, gguf_take(g, name_size), name_size);
    (*text)[name_size] = 0;
    *text += name_size + 1;
    t->rank = (unsigned)gguf_take_number(g, 4);
    t->shape = room;
    for (unsigned i = t->rank; i-- > 0;) /* GGUF begins with the innermost dimension */
        room[i] = gguf_take_number(g, 8);
    number = gguf_take_number(g, 4);
    t->offset = gguf_take_number(g, 8);
    type = gguf_find_type(number);
    t->dtype = type ? type->name : *text;
    if (!type)
        *text += sprintf(*text, "GGML_%u", (unsigned)number) + 1;
    return gguf_read_size(c, t, type);
}

/* Gives tensors of unknown type the bytes up to the next tensor or to the end of the file. If that is not known either,
 * no tensor can be told. */
static enum container_result gguf_guess_sizes(struct container *c, uint64_t file_size)
{
    qsort(c->tensors, c->n_tensors, sizeof *c->tensors, container_compare_offsets);
    for (size_t i = 0; i < c->n_tensors; i++) {
        lmc_tensor *t = &c->tensors[i];
        uint64_t end = i + 1 < c->n_tensors ? c->tensors[i + 1].offset : file_size;
        if (t->size != UINT64_MAX)
            continue;
        if (end == LMC_UNKNOWN_SIZE) { /* a pipe */
            c->end = LMC_UNKNOWN_SIZE;
            c->n_tensors = 0;
            return CONTAINER_OK;
        }
        if (t->offset > end)
            return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
        t->size = end - t->offset;
    }
    return CONTAINER_OK;
}

static enum container_result gguf_read_infos(struct container *c, struct gguf_cursor *g, size_t n, size_t n_numbers,
                                             size_t n_characters)
{
    char *text;
    uint64_t *room;
    c->tensors = (lmc_tensor *)malloc((n + 1) * sizeof *c->tensors);
    room = c->shapes = (uint64_t *)malloc((n_numbers + 1) * sizeof *c->shapes);
    text = c->strings = (char *)malloc(n_characters + 1);
    if (!c->tensors || !c->shapes || !c->strings)
        return CONTAINER_MEMORY;
    for (size_t i = 0; i < n; i++) {
        enum container_result result = gguf_read_info(c, g, &c->tensors[i], room, &text);
        if (result != CONTAINER_OK)
            return result;
        room += c->tensors[i].rank;
    }
    c->n_tensors = n;
    return CONTAINER_OK;
}

static enum container_result container_parse_gguf(struct container *c, const unsigned char *data, size_t size, uint64_t file_size)
{
    struct gguf_cursor g;
    uint64_t version, n_tensors, n_values, alignment, start;
    size_t infos, n_numbers, n_characters;
    enum container_result result;
    c->kind = CONTAINER_GGUF;
    memset(&g, 0, sizeof g);
    g.data = data;
    g.size = size;
    if (size >= 4 && memcmp(data, "GGUF", 4) != 0)
        return container_bad(c, "it does not begin with GGUF");
    gguf_take(&g, 4);
    version = gguf_take_number(&g, 4);
    n_tensors = gguf_take_number(&g, 8);
    n_values = gguf_take_number(&g, 8);
    if (!g.missing && version != 2 && version != 3)
        return container_bad(c, "it has the GGUF version %u; 2 and 3 are known", (unsigned)version);
    if (n_tensors > CONTAINER_MAX_TENSORS)
        return container_bad(c, "it claims more than 2^28 tensors");
    result = gguf_read_metadata(c, &g, n_values, &alignment);
    infos = g.at;
    if (result == CONTAINER_OK)
        result = gguf_measure_infos(c, &g, n_tensors, &n_numbers, &n_characters);
    if (result != CONTAINER_OK)
        return result;
    if (g.missing)
        return container_more(c, g.missing, file_size);
    start = (g.at + alignment - 1) / alignment * alignment;
    g.at = infos;
    result = gguf_read_infos(c, &g, (size_t)n_tensors, n_numbers, n_characters);
    if (result != CONTAINER_OK)
        return result;
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (c->tensors[i].offset > CONTAINER_MAX_SIZE - start)
            return container_bad(c, "tensor '%.100s' lies beyond the end of the file", c->tensors[i].name);
        c->tensors[i].offset += start;
    }
    result = gguf_guess_sizes(c, file_size);
    if (result == CONTAINER_OK)
        result = container_check_tensors(c, start, file_size, 1);
    if (result == CONTAINER_OK && c->end != LMC_UNKNOWN_SIZE) /* writers pad the last tensor, too */
        c->end = c->n_tensors ? start + (c->end - start + alignment - 1) / alignment * alignment : g.at;
    if (result == CONTAINER_OK && c->end != LMC_UNKNOWN_SIZE && c->end > CONTAINER_MAX_SIZE)
        return container_bad(c, "its data end beyond any file");
    return result;
}

/* -- NumPy: magic, version, size of the header, a Python dictionary, the data -- */

/* The text of the dictionary; at runs through it. */
struct npy_text {
    const char *text;
    size_t size, at;
};

static char npy_peek(struct npy_text *n)
{
    while (n->at < n->size && strchr(" \t\r\n", n->text[n->at]) && n->text[n->at])
        n->at++;
    return n->at < n->size ? n->text[n->at] : 0;
}

static int npy_accept(struct npy_text *n, char character)
{
    if (npy_peek(n) != character || !character)
        return 0;
    n->at++;
    return 1;
}

static int npy_accept_word(struct npy_text *n, const char *word)
{
    size_t size = strlen(word);
    npy_peek(n);
    if (size > n->size - n->at || memcmp(n->text + n->at, word, size) != 0)
        return 0;
    n->at += size;
    return 1;
}

/* A quoted string without escapes, cut to fit into out. */
static int npy_take_string(struct npy_text *n, char *out, size_t cap)
{
    char quote = npy_peek(n);
    size_t size = 0;
    if (quote != '\'' && quote != '"')
        return 0;
    for (n->at++; n->at < n->size && n->text[n->at] != quote; n->at++) {
        if (n->text[n->at] == '\\')
            return 0;
        if (size + 1 < cap)
            out[size++] = n->text[n->at];
    }
    out[size] = 0;
    return npy_accept(n, quote);
}

/* Skips a list as a structured dtype has one: brackets and strings. Only the outer end matters. */
static int npy_skip_list(struct npy_text *n)
{
    size_t depth = 0;
    char word[4];
    do {
        char c = npy_peek(n);
        if (c == '\'' || c == '"') {
            if (!npy_take_string(n, word, sizeof word))
                return 0;
            continue;
        }
        if (c == 0)
            return 0;
        if (c == '[' || c == '(')
            depth++;
        if (c == ']' || c == ')')
            depth--;
        n->at++;
    } while (depth);
    return 1;
}

static int npy_take_shape(struct npy_text *n, uint64_t *shape, unsigned *rank)
{
    *rank = 0;
    if (!npy_accept(n, '('))
        return 0;
    while (!npy_accept(n, ')')) {
        uint64_t x = 0;
        char c = npy_peek(n);
        if (c < '0' || c > '9' || *rank == LMC_MAX_RANK)
            return 0;
        for (; n->at < n->size && n->text[n->at] >= '0' && n->text[n->at] <= '9'; n->at++) {
            if (x > CONTAINER_MAX_SIZE / 10)
                return 0;
            x = x * 10 + (uint64_t)(n->text[n->at] - '0');
        }
        npy_accept(n, 'L'); /* written by Python 2 */
        shape[(*rank)++] = x;
        if (!npy_accept(n, ',') && npy_peek(n) != ')')
            return 0;
    }
    return 1;
}

struct npy_header {
    char descr[16]; /* "" for a structured dtype */
    int fortran;
    uint64_t shape[LMC_MAX_RANK];
    unsigned rank;
};

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, keys in any order. */
static int npy_read_header(struct npy_text *n, struct npy_header *header)
{
    unsigned seen = 0;
    if (!npy_accept(n, '{'))
        return 0;
    while (!npy_accept(n, '}')) {
        char key[16];
        unsigned bit;
        if (!npy_take_string(n, key, sizeof key) || !npy_accept(n, ':'))
            return 0;
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            header->descr[0] = 0;
            if (npy_peek(n) == '[' ? !npy_skip_list(n) : !npy_take_string(n, header->descr, sizeof header->descr))
                return 0;
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            header->fortran = npy_accept_word(n, "True");
            if (!header->fortran && !npy_accept_word(n, "False"))
                return 0;
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            if (!npy_take_shape(n, header->shape, &header->rank))
                return 0;
        } else {
            return 0;
        }
        if (seen & bit)
            return 0;
        seen |= bit;
        if (!npy_accept(n, ',') && npy_peek(n) != '}')
            return 0;
    }
    return seen == 7;
}

struct npy_dtype {
    const char *descr, *name;
    unsigned size;
};

/* C128 is no dtype of LMC: its bytes are coded as any others. */
static const struct npy_dtype npy_dtypes[] = {
    {"|b1", "BOOL", 1}, {"|u1", "U8", 1},  {"|i1", "I8", 1},  {"<u2", "U16", 2}, {"<i2", "I16", 2},
    {"<f2", "F16", 2},  {"<u4", "U32", 4}, {"<i4", "I32", 4}, {"<f4", "F32", 4}, {"<u8", "U64", 8},
    {"<i8", "I64", 8},  {"<f8", "F64", 8}, {"<c8", "C64", 8}, {"<c16", "C128", 16},
};

static const struct npy_dtype *npy_find_dtype(const char *descr)
{
    for (size_t i = 0; i < sizeof npy_dtypes / sizeof *npy_dtypes; i++)
        if (strcmp(descr, npy_dtypes[i].descr) == 0)
            return &npy_dtypes[i];
    return NULL;
}

/* The array as a tensor without name. The bytes of a Fortran-order array are those of its transposed array: shape reversed. */
static enum container_result npy_make_tensor(struct container *c, const struct npy_header *header, uint64_t start,
                                             uint64_t file_size)
{
    const struct npy_dtype *dtype = npy_find_dtype(header->descr);
    lmc_tensor *t;
    if (!dtype) { /* big-endian, structured, text: bytes, but where they end is not known */
        c->end = LMC_UNKNOWN_SIZE;
        return CONTAINER_OK;
    }
    t = c->tensors = (lmc_tensor *)calloc(1, sizeof *c->tensors);
    c->shapes = (uint64_t *)calloc(LMC_MAX_RANK, sizeof *c->shapes);
    if (!t || !c->shapes)
        return CONTAINER_MEMORY;
    for (unsigned i = 0; i < header->rank; i++)
        c->shapes[i] = header->shape[header->fortran ? header->rank - 1 - i : i];
    t->name = "";
    t->dtype = dtype->name;
    t->rank = header->rank;
    t->shape = c->shapes;
    t->offset = start;
    if (!container_count_bytes(t->shape, t->rank, dtype->size * 8, &t->size))
        return container_bad(c, "its array is too large");
    c->n_tensors = 1;
    if (!container_fits(t, file_size))
        return container_bad(c, "its array lies beyond the end of the file");
    c->end = start + t->size;
    return CONTAINER_OK;
}

static enum container_result container_parse_npy(struct container *c, const unsigned char *data, size_t size, uint64_t file_size)
{
    unsigned field, major;
    uint64_t start, length = 0;
    struct npy_header header;
    struct npy_text text;
    c->kind = CONTAINER_NPY;
    if (size < 8)
        return container_more(c, 8, file_size);
    if (memcmp(data, "\x93NUMPY", 6) != 0)
        return container_bad(c, "it does not begin with \\x93NUMPY");
    major = data[6];
    if (major < 1 || major > 3)
        return container_bad(c, "it has the .npy version %u; 1 to 3 are known", major);
    field = major == 1 ? 2 : 4;
    if (size < 8 + field)
        return container_more(c, 8 + field, file_size);
    for (unsigned i = 0; i < field; i++)
        length |= (uint64_t)data[8 + i] << 8 * i;
    start = 8 + field + length;
    if (size < start)
        return container_more(c, start, file_size);
    memset(&header, 0, sizeof header);
    text.text = (const char *)data + 8 + field;
    text.size = (size_t)length;
    text.at = 0;
    if (!npy_read_header(&text, &header))
        return container_bad(c, "its .npy header is not understood");
    return npy_make_tensor(c, &header, start, file_size);
}

/* -- all of them -- */

/* The format that a file of this name should have. */
static enum container_kind container_kind_of_name(const char *name)
{
    static const struct { const char *suffix; enum container_kind kind; } kinds[] = {
        {".safetensors", CONTAINER_SAFETENSORS}, {".gguf", CONTAINER_GGUF}, {".npy", CONTAINER_NPY}};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].suffix);
        if (size >= length && strcmp(name + size - length, kinds[i].suffix) == 0)
            return kinds[i].kind;
    }
    return CONTAINER_NONE;
}

static enum container_kind container_kind_of_content(const unsigned char *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        return CONTAINER_GGUF;
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0)
        return CONTAINER_NPY;
    if (size >= 9 && data[8] == '{' && data[4] == 0 && data[5] == 0 && data[6] == 0 && data[7] == 0)
        return CONTAINER_SAFETENSORS;
    return CONTAINER_NONE;
}

/* data: the first size bytes of a file of file_size bytes, or LMC_UNKNOWN_SIZE. expected: the format that its name
 * promises; with CONTAINER_NONE the content decides. c is to be freed after CONTAINER_OK only. */
static enum container_result container_parse(struct container *c, const void *data, size_t size, uint64_t file_size,
                                             enum container_kind expected)
{
    const unsigned char *bytes = (const unsigned char *)data;
    enum container_result result = CONTAINER_OTHER;
    struct container keep;
    memset(c, 0, sizeof *c);
    switch (expected != CONTAINER_NONE ? expected : container_kind_of_content(bytes, size)) {
    case CONTAINER_SAFETENSORS: result = container_parse_safetensors(c, bytes, size, file_size); break;
    case CONTAINER_GGUF: result = container_parse_gguf(c, bytes, size, file_size); break;
    case CONTAINER_NPY: result = container_parse_npy(c, bytes, size, file_size); break;
    case CONTAINER_NONE: break;
    }
    if (result == CONTAINER_OK)
        return result;
    keep = *c; /* what the caller is told, without the storage */
    container_free(c);
    c->kind = keep.kind;
    c->need = keep.need;
    memcpy(c->error, keep.error, sizeof c->error);
    return result;
}

#endif
