/* NumPy: magic, version, size of the header, a Python dictionary, the data
 * SPDX-License-Identifier: MIT
 */
#include "container_check.h"

/* The text of the dictionary. at: the current position in it. */
struct npy_text {
    const char *text;
    size_t size, at;
};

static char npy_peek(struct npy_text *n)
{
    while (n->at < n->size && strchr(" \t\r\n", n->text[n->at]) && n->text[n->at]) n->at++;
    return n->at < n->size ? n->text[n->at] : 0;
}

static int npy_accept(struct npy_text *n, char character)
{
    if (npy_peek(n) != character || !character) return 0;
    n->at++;
    return 1;
}

static int npy_accept_word(struct npy_text *n, const char *word)
{
    size_t size = strlen(word);
    npy_peek(n);
    if (size > n->size - n->at || memcmp(n->text + n->at, word, size) != 0) return 0;
    n->at += size;
    return 1;
}

/* Takes a quoted string without escapes. out gets as much of it as fits. */
static int npy_take_string(struct npy_text *n, char *out, size_t cap)
{
    char quote = npy_peek(n);
    size_t size = 0;
    if (quote != '\'' && quote != '"') return 0;
    for (n->at++; n->at < n->size && n->text[n->at] != quote; n->at++) {
        if (n->text[n->at] == '\\') return 0;
        if (size + 1 < cap) out[size++] = n->text[n->at];
    }
    out[size] = 0;
    return npy_accept(n, quote);
}

/* Skips the list of a structured dtype: brackets and strings. Only its end is needed. */
static int npy_skip_list(struct npy_text *n)
{
    size_t depth = 0;
    char word[4];
    do {
        char c = npy_peek(n);
        if (c == '\'' || c == '"') {
            if (!npy_take_string(n, word, sizeof word)) return 0;
            continue;
        }
        if (c == 0) return 0;
        if (c == '[' || c == '(') depth++;
        if (c == ']' || c == ')') depth--;
        n->at++;
    } while (depth);
    return 1;
}

static int npy_take_shape(struct npy_text *n, uint64_t *shape, unsigned *rank)
{
    *rank = 0;
    if (!npy_accept(n, '(')) return 0;
    while (!npy_accept(n, ')')) {
        uint64_t x = 0;
        char c = npy_peek(n);
        if (c < '0' || c > '9' || *rank == LMC_MAX_RANK) return 0;
        for (; n->at < n->size && n->text[n->at] >= '0' && n->text[n->at] <= '9'; n->at++) {
            if (x > CONTAINER_MAX_SIZE / 10) return 0;
            x = x * 10 + (uint64_t)(n->text[n->at] - '0');
        }
        npy_accept(n, 'L'); /* written by Python 2 */
        shape[(*rank)++] = x;
        if (!npy_accept(n, ',') && npy_peek(n) != ')') return 0;
    }
    return 1;
}

struct npy_header {
    char descr[16]; /* "" for a structured dtype */
    int fortran;
    uint64_t shape[LMC_MAX_RANK];
    unsigned rank;
};

/* Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, with keys in any order. */
static int npy_read_header(struct npy_text *n, struct npy_header *header)
{
    unsigned seen = 0;
    if (!npy_accept(n, '{')) return 0;
    while (!npy_accept(n, '}')) {
        char key[16];
        unsigned bit;
        if (!npy_take_string(n, key, sizeof key) || !npy_accept(n, ':')) return 0;
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            header->descr[0] = 0;
            if (npy_peek(n) == '[' ? !npy_skip_list(n)
                                   : !npy_take_string(n, header->descr, sizeof header->descr))
                return 0;
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            header->fortran = npy_accept_word(n, "True");
            if (!header->fortran && !npy_accept_word(n, "False")) return 0;
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            if (!npy_take_shape(n, header->shape, &header->rank)) return 0;
        } else {
            return 0;
        }
        if (seen & bit) return 0;
        seen |= bit;
        if (!npy_accept(n, ',') && npy_peek(n) != '}') return 0;
    }
    return seen == 7;
}

struct npy_dtype {
    const char *descr, *name;
    unsigned size;
};

static const struct npy_dtype npy_dtypes[] = {
    {"|b1", "BOOL", 1}, {"|u1", "U8", 1},     {"|i1", "I8", 1},  {"<u2", "U16", 2},
    {"<i2", "I16", 2},  {"<f2", "F16", 2},    {"<u4", "U32", 4}, {"<i4", "I32", 4},
    {"<f4", "F32", 4},  {"<u8", "U64", 8},    {"<i8", "I64", 8}, {"<f8", "F64", 8},
    {"<c8", "C64", 8},  {"<c16", "C128", 16},
};

static const struct npy_dtype *npy_find_dtype(const char *descr)
{
    for (size_t i = 0; i < sizeof npy_dtypes / sizeof *npy_dtypes; i++)
        if (strcmp(descr, npy_dtypes[i].descr) == 0) return &npy_dtypes[i];
    return NULL;
}

/* Makes a tensor without name of the array. The bytes of a Fortran-order array are those of its
 * transposed array, so its shape is reversed. */
static enum container_result npy_make_tensor(struct container *c, const struct npy_header *header,
                                             uint64_t start, uint64_t file_size)
{
    const struct npy_dtype *dtype = npy_find_dtype(header->descr);
    lmc_tensor *t;
    if (!dtype) { /* big-endian, structured, text: plain bytes; their end is unknown */
        c->end = LMC_UNKNOWN_SIZE;
        return CONTAINER_OK;
    }
    t = c->tensors = (lmc_tensor *)calloc(1, sizeof *c->tensors);
    c->shapes = (uint64_t *)calloc(LMC_MAX_RANK, sizeof *c->shapes);
    if (!t || !c->shapes) return CONTAINER_MEMORY;
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

enum container_result container_parse_npy(struct container *c, const unsigned char *data,
                                          size_t size, uint64_t file_size)
{
    struct npy_header header = {0};
    struct npy_text text;
    c->kind = CONTAINER_NPY;
    if (size < 8) return container_more(c, 8, file_size);
    if (memcmp(data, "\x93NUMPY", 6) != 0)
        return container_bad(c, "it does not begin with \\x93NUMPY");
    unsigned major = data[6];
    if (major < 1 || major > 3)
        return container_bad(c, "it has the .npy version %u; 1 to 3 are known", major);
    unsigned field = major == 1 ? 2 : 4;
    if (size < 8 + field) return container_more(c, 8 + field, file_size);
    uint64_t length = container_number(data + 8, field);
    uint64_t start = 8 + field + length;
    if (size < start) return container_more(c, start, file_size);
    text.text = (const char *)data + 8 + field;
    text.size = (size_t)length;
    text.at = 0;
    if (!npy_read_header(&text, &header))
        return container_bad(c, "its .npy header is not understood");
    return npy_make_tensor(c, &header, start, file_size);
}

const char *npy_descr(const char *dtype)
{
    enum lmc_dtype number = lmc_dtype_find(dtype);
    for (size_t i = 0; i < sizeof npy_dtypes / sizeof *npy_dtypes; i++)
        if (strcmp(npy_dtypes[i].name, dtype) == 0) return npy_dtypes[i].descr;
    if (number == LMC_AUTO || lmc_dtype_bits(number) % 8 != 0) return NULL;
    return lmc_dtype_bits(number) == 8 ? "<V1" : "<V2";
}
