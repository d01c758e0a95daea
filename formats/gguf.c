/* GGUF: magic, version, counts, metadata, tensor infos, padding, data
 * SPDX-License-Identifier: MIT
 */
#include "container_check.h"

/* A position in the header. After a read beyond the end, missing is set, and all reads return 0. */
struct gguf_cursor {
    const unsigned char *data;
    size_t size, at;
    uint64_t missing; /* bytes that the first failed read needs; 0: none has failed */
};

/* Takes size bytes; NULL: there are fewer. */
static const unsigned char *gguf_take(struct gguf_cursor *g, uint64_t size)
{
    const unsigned char *p = g->data + g->at;
    if (g->missing || size > g->size - g->at) {
        if (!g->missing) g->missing = size > UINT64_MAX - g->at ? UINT64_MAX : g->at + size;
        return NULL;
    }
    g->at += (size_t)size;
    return p;
}

static uint64_t gguf_take_number(struct gguf_cursor *g, unsigned size)
{
    const unsigned char *p = gguf_take(g, size);
    return p ? container_number(p, size) : 0;
}

struct gguf_type {
    const char *name;
    unsigned n;    /* elements of a block */
    unsigned size; /* bytes of a block */
};

/* Finds a type by its number. NULL: GGML has removed the type, or lmc does not know it. */
static const struct gguf_type *gguf_find_type(uint64_t number)
{
    static const struct gguf_type types[] = {
        {"F32", 1, 4},        {"F16", 1, 2},       {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
        {NULL, 0, 0},         {NULL, 0, 0},        {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
        {"Q8_0", 32, 34},     {"Q8_1", 32, 36},    {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
        {"Q4_K", 256, 144},   {"Q5_K", 256, 176},  {"Q6_K", 256, 210},   {"Q8_K", 256, 292},
        {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74}, {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
        {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110}, {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136},
        {"I8", 1, 1},         {"I16", 1, 2},       {"I32", 1, 4},        {"I64", 1, 8},
        {"F64", 1, 8},        {"IQ1_M", 256, 56},  {"BF16", 1, 2},       {NULL, 0, 0},
        {NULL, 0, 0},         {NULL, 0, 0},        {"TQ1_0", 256, 54},   {"TQ2_0", 256, 66},
        {NULL, 0, 0},         {NULL, 0, 0},        {NULL, 0, 0},         {"MXFP4", 32, 17},
        {"NVFP4", 64, 36},
    };
    if (number >= sizeof types / sizeof *types || !types[number].name) return NULL;
    return &types[number];
}

enum { GGUF_UINT32 = 4, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_MAX_NESTING = 8 };

/* Bytes of a metadata value of fixed size; 0 for strings, arrays and unknown types. */
static unsigned gguf_value_size(uint64_t type)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* Returns 0 for an unknown type: then the length of the value is unknown, too. */
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
            if (!gguf_skip_value(g, item, nesting + 1)) return 0;
    } else {
        return g->missing != 0; /* the type itself may be missing */
    }
    return 1;
}

/* Skips the metadata, except the alignment of the data. */
static enum container_result gguf_read_metadata(struct container *c, struct gguf_cursor *g,
                                                uint64_t n, uint64_t *alignment)
{
    static const char key_of_alignment[] = "general.alignment";
    *alignment = 32;
    for (uint64_t i = 0; i < n && !g->missing; i++) {
        uint64_t key_size = gguf_take_number(g, 8);
        const unsigned char *key = gguf_take(g, key_size);
        uint64_t type = gguf_take_number(g, 4);
        if (key && key_size == sizeof key_of_alignment - 1 &&
            memcmp(key, key_of_alignment, (size_t)key_size) == 0) {
            *alignment = gguf_take_number(g, 4);
            if (!g->missing &&
                (type != GGUF_UINT32 || *alignment == 0 || (*alignment & (*alignment - 1))))
                return container_bad(c, "its general.alignment is not a power of two");
        } else if (!gguf_skip_value(g, type, 0)) {
            return container_bad(c, "its GGUF metadata hold a value of the unknown type %llu",
                                 (unsigned long long)type);
        }
    }
    return CONTAINER_OK;
}

/* Reads all tensor infos to find out how much memory to allocate. */
static enum container_result gguf_measure_infos(struct container *c, struct gguf_cursor *g,
                                                uint64_t n, size_t *n_numbers, size_t *n_characters)
{
    *n_numbers = *n_characters = 0;
    for (uint64_t i = 0; i < n && !g->missing; i++) {
        uint64_t name_size = gguf_take_number(g, 8), rank;
        const unsigned char *name = gguf_take(g, name_size);
        rank = gguf_take_number(g, 4);
        if (name && (name_size > CONTAINER_MAX_NAME || memchr(name, 0, (size_t)name_size)))
            return container_bad(c, "the name of tensor number %llu has a zero byte or is too long",
                                 (unsigned long long)i);
        if (rank > LMC_MAX_RANK)
            return container_bad(c, "tensor number %llu has more than %d dimensions",
                                 (unsigned long long)i, LMC_MAX_RANK);
        gguf_take(g, rank * 8 + 4 + 8);
        if (g->missing) break;
        *n_numbers += (size_t)rank;
        *n_characters += (size_t)name_size + 1 + sizeof "GGML_4294967295";
    }
    return CONTAINER_OK;
}

/* Sets a tensor's size; UINT64_MAX if its type is unknown: gguf_guess_sizes() replaces that. */
static enum container_result gguf_read_size(struct container *c, lmc_tensor *t,
                                            const struct gguf_type *type)
{
    uint64_t shape[LMC_MAX_RANK] = {1}; /* in blocks, which divide the innermost dimension */
    const unsigned last = t->rank ? t->rank - 1 : 0;
    t->size = UINT64_MAX;
    if (!type) return CONTAINER_OK;
    memcpy(shape, t->shape, t->rank * sizeof *shape);
    if (shape[last] % type->n != 0)
        return container_bad(c, "tensor '%.100s' has a row that is not a multiple of %u elements",
                             t->name, type->n);
    shape[last] /= type->n;
    return container_count_bytes(shape, t->rank, type->size * 8, &t->size)
               ? CONTAINER_OK
               : container_bad(c, "tensor '%.100s' is too large", t->name);
}

/* Reads a tensor info, which is complete. Strings go to *text. The offset is within the data. */
static enum container_result gguf_read_info(struct container *c, struct gguf_cursor *g,
                                            lmc_tensor *t, uint64_t *room, char **text)
{
    size_t name_size = (size_t)gguf_take_number(g, 8);
    memset(t, 0, sizeof *t);
    t->name = *text;
    memcpy(*text, gguf_take(g, name_size), name_size);
    (*text)[name_size] = 0;
    *text += name_size + 1;
    t->rank = (unsigned)gguf_take_number(g, 4);
    t->shape = room;
    for (unsigned i = t->rank; i > 0; i--) /* GGUF has the innermost dimension first */
        room[i - 1] = gguf_take_number(g, 8);
    uint64_t number = gguf_take_number(g, 4);
    t->offset = gguf_take_number(g, 8);
    const struct gguf_type *type = gguf_find_type(number);
    t->dtype = type ? type->name : *text;
    if (!type) *text += sprintf(*text, "GGML_%u", (unsigned)number) + 1;
    return gguf_read_size(c, t, type);
}

/* Sets the size of tensors of unknown type: up to the next tensor or the end of the file. If the
 * end of the file is needed and unknown, no tensors are listed. */
static enum container_result gguf_guess_sizes(struct container *c, uint64_t file_size)
{
    qsort(c->tensors, c->n_tensors, sizeof *c->tensors, container_compare_offsets);
    for (size_t i = 0; i < c->n_tensors; i++) {
        lmc_tensor *t = &c->tensors[i];
        uint64_t end = i + 1 < c->n_tensors ? c->tensors[i + 1].offset : file_size;
        if (t->size != UINT64_MAX) continue;
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

static enum container_result gguf_read_infos(struct container *c, struct gguf_cursor *g, size_t n,
                                             size_t n_numbers, size_t n_characters)
{
    char *text;
    uint64_t *room;
    c->tensors = (lmc_tensor *)malloc((n + 1) * sizeof *c->tensors);
    room = c->shapes = (uint64_t *)malloc((n_numbers + 1) * sizeof *c->shapes);
    text = c->strings = (char *)malloc(n_characters + 1);
    if (!c->tensors || !c->shapes || !c->strings) return CONTAINER_MEMORY;
    for (size_t i = 0; i < n; i++) {
        TRY(gguf_read_info(c, g, &c->tensors[i], room, &text));
        room += c->tensors[i].rank;
    }
    c->n_tensors = n;
    return CONTAINER_OK;
}

enum container_result container_parse_gguf(struct container *c, const unsigned char *data,
                                           size_t size, uint64_t file_size)
{
    struct gguf_cursor g = {0};
    uint64_t alignment;
    size_t n_numbers, n_characters;
    c->kind = CONTAINER_GGUF;
    g.data = data;
    g.size = size;
    if (size >= 4 && memcmp(data, "GGUF", 4) != 0)
        return container_bad(c, "it does not begin with GGUF");
    gguf_take(&g, 4);
    uint64_t version = gguf_take_number(&g, 4);
    uint64_t n_tensors = gguf_take_number(&g, 8);
    uint64_t n_values = gguf_take_number(&g, 8);
    if (!g.missing && version != 2 && version != 3)
        return container_bad(c, "it has the GGUF version %u; 2 and 3 are known", (unsigned)version);
    if (n_tensors > CONTAINER_MAX_TENSORS)
        return container_bad(c, "it claims more than 2^28 tensors");
    TRY(gguf_read_metadata(c, &g, n_values, &alignment));
    size_t infos = g.at;
    TRY(gguf_measure_infos(c, &g, n_tensors, &n_numbers, &n_characters));
    if (g.missing) return container_more(c, g.missing, file_size);
    uint64_t start = (g.at + alignment - 1) / alignment * alignment;
    g.at = infos;
    TRY(gguf_read_infos(c, &g, (size_t)n_tensors, n_numbers, n_characters));
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (c->tensors[i].offset > CONTAINER_MAX_SIZE - start)
            return container_bad(c, "tensor '%.100s' lies beyond the end of the file",
                                 c->tensors[i].name);
        c->tensors[i].offset += start;
    }
    TRY(gguf_guess_sizes(c, file_size));
    TRY(container_check_tensors(c, start, file_size, 1));
    if (c->end != LMC_UNKNOWN_SIZE) /* writers also pad the last tensor */
        c->end =
            c->n_tensors ? start + (c->end - start + alignment - 1) / alignment * alignment : g.at;
    if (c->end != LMC_UNKNOWN_SIZE && c->end > CONTAINER_MAX_SIZE)
        return container_bad(c, "its data end beyond any file");
    return CONTAINER_OK;
}
