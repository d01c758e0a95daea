/* make_gguf.h - files of GGUF, safetensors and NumPy: see make.h */
#ifndef FUZZ_MAKE_GGUF_H
#define FUZZ_MAKE_GGUF_H

#include "make.h"

/* -- GGUF -- */

static void make_gguf_string(struct maker *m, size_t size)
{
    make_le(m, make_rarely(m, 64) ? make_number(m) : size, 8);
    make_name(m, size);
}

static void make_gguf_value(struct maker *m, unsigned type, unsigned depth)
{
    const unsigned size = gguf_value_size(type);
    if (size) make_fill(m, make_choice(m), size);
    else if (type == GGUF_STRING) make_gguf_string(m, make_count(m, 1));
    else if (type == GGUF_ARRAY) {
        const size_t levels = make_count(m, 12); /* of one item each */
        const unsigned item = depth ? make_one_of(m, 14) : 0;
        const uint64_t n = make_rarely(m, 16) ? make_number(m) : make_one_of(m, 4);
        for (size_t i = 0; i < levels; i++) make_le(m, GGUF_ARRAY, 4), make_le(m, 1, 8);
        make_le(m, item, 4);
        make_le(m, n, 8);
        for (uint64_t i = 0; i < n && i < 4; i++) make_gguf_value(m, item, depth ? depth - 1 : 0);
        if (n > 4 && gguf_value_size(item))
            make_fill(m, 0, n < m->cap ? (size_t)(n - 4) * gguf_value_size(item) : 4);
    }
}

static void make_gguf(struct maker *m)
{
    const unsigned n_values = make_one_of(m, 4), n_tensors = make_one_of(m, 5),
                   how = make_choice(m);
    uint64_t alignment = 32, at = 0;
    make_chars(m, "GGUF");
    make_le(m, make_rarely(m, 32) ? make_number(m) : 2 + (how & 1), 4);
    make_le(m, make_rarely(m, 32) ? make_number(m) : n_tensors, 8);
    make_le(m, make_rarely(m, 32) ? make_number(m) : n_values + (how >> 7), 8);
    for (unsigned i = 0; i < n_values; i++) {
        const unsigned type = make_one_of(m, 14);
        make_gguf_string(m, make_count(m, 1));
        make_le(m, type, 4);
        make_gguf_value(m, type, 3);
    }
    if (how & 0x80) {
        alignment = (how & 0x40) ? make_number(m) : (uint64_t)1 << make_choice(m) % 8;
        make_le(m, 17, 8);
        make_chars(m, "general.alignment");
        make_le(m, GGUF_UINT32, 4);
        make_le(m, alignment, 4);
    }
    if (alignment == 0 || alignment > 4096) alignment = 4096;
    for (unsigned i = 0; i < n_tensors; i++) {
        const unsigned type = make_one_of(m, 44), kind = make_choice(m);
        const struct gguf_type *const known = gguf_find_type(type);
        uint64_t n = 1 + make_choice(m) % 8, rank = kind & 3;
        if (kind >= 224) rank = make_number(m);
        make_gguf_string(m, kind & 8 ? make_count(m, 1) : 2 + i);
        make_le(m, rank, 4);
        for (uint64_t k = 0; k < rank && k < 4 * LMC_MAX_RANK; k++)
            make_le(m,
                    make_rarely(m, 32) ? make_number(m)
                    : k == 0           ? n * (known ? known->n : 1)
                                       : 1,
                    8);
        make_le(m, type, 4);
        make_le(m, make_rarely(m, 32) ? make_number(m) : at, 8);
        if (known && rank) at += (n * known->size + alignment - 1) / alignment * alignment;
        else at += alignment;
    }
    if (m->size % alignment) make_fill(m, 0, alignment - m->size % alignment);
    make_fill(m, 3, at < m->cap ? (size_t)at : m->cap);
    make_damage(m, 0);
}

/* -- safetensors -- */

/* A tensor behind the earlier ones: its data begin at *user. */
static void make_safetensors_entry(struct maker *m, void *user)
{
    static const char *const dtypes[] = {"U8", "F32", "BF16", "F4", "F64", "BOOL", "F6_E2M3"};
    static const char *const escapes[] = {
        "\\ud834\\udd1e",   "\\u0000", "\\ud800",        "\\ud834x", "\\n",
        "\\u00e4",          "\\udd1e", "\\ud834\\u0041", "\xC3\xA4", "\xED\xA0\x80",
        "\xF0\x9D\x84\x9E", "\\x"};
    uint64_t *const at = (uint64_t *)user, n = make_one_of(m, 8);
    const unsigned how = make_choice(m), number = make_one_of(m, sizeof dtypes / sizeof *dtypes);
    const enum lmc_dtype dtype = lmc_dtype_find(dtypes[number]);
    const size_t rank = how >= 224 ? make_count(m, 2) : 1;
    uint64_t size = n * (lmc_dtype_bits(dtype) ? lmc_dtype_bits(dtype) : 8) / 8;
    if (m->size && m->data[m->size - 1] == '}') make_byte(m, ',');
    make_byte(m, '"');
    make_byte(m, 'a' + make_choice(m) % 16); /* mostly a new name */
    make_fill(m, 'n', how & 1 ? make_count(m, 1) : 0);
    if (how & 64) make_chars(m, escapes[make_one_of(m, sizeof escapes / sizeof *escapes)]);
    make_chars(m, "\":{\"dtype\":\"");
    if (how & 32) make_fill(m, 'D', make_count(m, 1));
    else make_chars(m, dtypes[number]);
    make_chars(m, "\",\"shape\":[");
    make_decimal(m, make_rarely(m, 32) ? make_number(m) : n);
    for (size_t i = 1; i < rank; i++) make_chars(m, ",1");
    make_chars(m, "],\"data_offsets\":[");
    make_decimal(m, *at);
    make_byte(m, ',');
    make_decimal(m, *at += make_rarely(m, 32) ? make_number(m) : size);
    make_chars(m, "]}");
}

/* In addition to tensors, or instead of one: nested objects or arrays of some word. */
static void make_levels_of_json(struct maker *m, unsigned number)
{
    static const char *const words[] = {"1",       "true", "false", "null",
                                        "-0.5e+1", "\"\"", "tru",   "01"};
    const unsigned how = make_choice(m);
    const size_t levels = make_count(m, 8);
    if (m->size && m->data[m->size - 1] == '}') make_byte(m, ',');
    if (how & 1) make_chars(m, "\"__metadata__\":");
    else make_byte(m, '"'), make_decimal(m, number), make_chars(m, "\":");
    for (size_t i = 0; i < levels; i++) make_chars(m, how & 2 ? "{\"a\":" : "[");
    make_chars(m, words[make_one_of(m, sizeof words / sizeof *words)]);
    make_fill(m, how & 2 ? '}' : ']', levels);
    if (how & 1 && levels == 0) make_chars(m, ",\"m\":{}");
}

static void make_safetensors(struct maker *m)
{
    static const char *const words[] = {"\"__metadata__\":{",
                                        "\"a\":",
                                        "\"dtype\":",
                                        "\"shape\":[",
                                        "\"data_offsets\":[",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "\\ud834\\udd1e",
                                        "\\u0000",
                                        "\\ud800",
                                        "\\n",
                                        "true",
                                        "false",
                                        "null",
                                        "-0",
                                        "1e",
                                        "\"F32\"",
                                        ".5",
                                        "\xC3\xA4",
                                        "\xED\xA0\x80",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551616"};
    uint64_t at = 0;
    const struct make_grammar g = {words, sizeof words / sizeof *words, make_safetensors_entry,
                                   &at};
    const unsigned how = make_choice(m), data = make_choice(m);
    const uint64_t claimed = how >= 240 ? make_number(m) : 0;
    make_le(m, 0, 8);
    make_byte(m, '{');
    for (unsigned n = make_one_of(m, 6); n--;)
        if (make_rarely(m, 4)) make_levels_of_json(m, n);
        else make_safetensors_entry(m, &at);
    if (how & 4) make_words(m, &g);
    if (how & 3) make_closed(m, 8);
    put_le(m->data, claimed ? claimed : m->size - 8 + (how >= 232) - (how >= 236) * 2u, 8);
    make_fill(m, 5, how & 2 && at < m->cap ? (size_t)at : data);
}

/* -- NumPy -- */

static void make_npy_entry(struct maker *m, void *user)
{
    const unsigned how = make_choice(m);
    const size_t rank = how >= 224 ? make_count(m, 2) : how & 3;
    (void)user;
    make_chars(m, "'descr': '");
    if (how & 32) make_fill(m, '<', make_count(m, 1));
    else make_chars(m, npy_dtypes[make_one_of(m, sizeof npy_dtypes / sizeof *npy_dtypes)].descr);
    make_chars(m, how & 4 ? "', 'fortran_order': True, 'shape': ("
                          : "', 'fortran_order': False, 'shape': (");
    for (size_t i = 0; i < rank; i++) {
        make_decimal(m, rank > 3 ? 1 : make_number(m));
        make_chars(m, how & 8 ? "L, " : ",");
    }
    make_chars(m, "), ");
}

static void make_npy(struct maker *m)
{
    static const char *const words[] = {"'descr': ",
                                        "'<f4'",
                                        "'fortran_order': ",
                                        "True, ",
                                        "False, ",
                                        "'shape': ",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        ", ",
                                        "\"|u1\"",
                                        "('x', '<f4')",
                                        "L",
                                        "{",
                                        "}",
                                        "\\",
                                        "9223372036854775807"};
    const struct make_grammar g = {words, sizeof words / sizeof *words, make_npy_entry, NULL};
    const unsigned how = make_choice(m), major = 1 + how % 3, field = major == 1 ? 2 : 4;
    size_t length;
    make_chars(m, "\x93NUMPY");
    make_byte(m, how >= 248 ? make_choice(m) : major);
    make_byte(m, 0);
    make_le(m, 0, field);
    make_byte(m, '{');
    make_words(m, &g);
    if (how & 64) make_closed(m, 8 + field);
    length = m->size - 8 - field;
    put_le(m->data + 8, length + (how >= 240), field);
    make_fill(m, 1, how & 128 ? 0 : 4096);
}

#endif
