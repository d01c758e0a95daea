#pragma once
#include "base/platform.h"
#include "codec/dtypes.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/writer_plan.h"
#include "snapshot/writer.h"

/* A safetensors file from arrays in memory: the header that safetensors' own writer makes, then the
 * data. So restoring gives a file that every loader of safetensors opens.
 *
 *     u64 N | {"__metadata__":{...},"a":{...},"b":{...}} and spaces
 *     data of a | data of b ...
 *
 * by falling width of the dtype, then by name: so all data is aligned. */
#ifndef LMC_NO_ENCODER
/* Over this no loader takes the file (spec/foreign-bases.md); and the entries are compared each
 * with each. */
#define LMC__MAX_SAFETENSORS_HEADER 100000000u
#define LMC__MAX_TEXTS 1024u

/* Valid UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF. low,
 * high: what the second byte may be, which is where all of that shows. A zero byte ends the string,
 * and is no second byte. */
static int lmc__is_utf8(const char *s)
{
    const uint8_t *p = (const uint8_t *)s;
    while (*p) {
        const uint8_t c = *p++;
        const uint8_t low = c == 0xE0   ? 0xA0
                            : c == 0xF0 ? 0x90
                                        : 0x80,
                      high = c == 0xED   ? 0x9F
                             : c == 0xF4 ? 0x8F
                                         : 0xBF;
        unsigned more;
        if (c < 0x80) continue;
        if (c < 0xC2 || c > 0xF4) return 0;
        if (*p < low || *p > high) return 0;
        p++;
        for (more = c >= 0xF0 ? 2 : c >= 0xE0 ? 1 : 0; more; more--)
            if ((*p++ & 0xC0) != 0x80) return 0;
    }
    return 1;
}

static enum lmc_status lmc__append_text(lmc__buffer *b, const char *text)
{
    return lmc__append(b, text, strlen(text));
}

static enum lmc_status lmc__append_decimal(lmc__buffer *b, uint64_t v)
{
    char digits[20];
    size_t i = sizeof digits;
    do digits[--i] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    return lmc__append(b, digits + i, sizeof digits - i);
}

/* In quotes. JSON wants control characters, '"' and '\' escaped; the rest is the caller's UTF-8. A
 * header with anything else no loader takes, nor is such a file one of tensors
 * (spec/foreign-bases.md). */
static enum lmc_status lmc__append_json_string(lmc__buffer *b, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    if (!s || !lmc__is_utf8(s)) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__append_text(b, "\""));
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        char escaped[6] = {'\\', 'u', '0', '0', 0, 0};
        if (c == '"' || c == '\\') {
            escaped[1] = (char)c;
            LMC__TRY(lmc__append(b, escaped, 2));
        } else if (c < 0x20) {
            escaped[4] = hex[c >> 4];
            escaped[5] = hex[c & 15];
            LMC__TRY(lmc__append(b, escaped, 6));
        } else LMC__TRY(lmc__append(b, s, 1));
    }
    return lmc__append_text(b, "\"");
}

/* Bytes of the array's data; LMC_ERR_ARGUMENT if its shape makes no whole number of bytes that a
 * file can hold, or something is missing. */
static enum lmc_status lmc__get_array_size(const lmc_array *a, uint64_t *size)
{
    uint64_t n = 1;
    unsigned i, is_empty = 0;
    if (!a->name || strcmp(a->name, "__metadata__") == 0 || a->dtype == LMC_AUTO ||
        (unsigned)a->dtype >= LMC_DTYPE_COUNT || a->rank > LMC_MAX_RANK ||
        (a->rank != 0 && !a->shape))
        return LMC_ERR_ARGUMENT;
    for (i = 0; i < a->rank; i++) is_empty |= a->shape[i] == 0;
    for (i = 0; i < a->rank && !is_empty; i++) {
        if (a->shape[i] > ((uint64_t)1 << 56) / n) return LMC_ERR_ARGUMENT;
        n *= a->shape[i];
    }
    if (is_empty) n = 0;
    if (n * lmc_dtype_bits(a->dtype) % 8) return LMC_ERR_ARGUMENT;
    *size = n * lmc_dtype_bits(a->dtype) / 8;
    return !a->data && *size != 0 ? LMC_ERR_ARGUMENT : LMC_OK;
}

/* As safetensors sorts: wide dtypes first, then by name. Of pointers to arrays. */
static int lmc__compare_arrays(const void *a, const void *b)
{
    const lmc_array *const x = *(const lmc_array *const *)a, *const y =
                                                                 *(const lmc_array *const *)b;
    const unsigned x_bits = lmc_dtype_bits(x->dtype), y_bits = lmc_dtype_bits(y->dtype);
    return x_bits != y_bits ? (x_bits > y_bits ? -1 : 1) : strcmp(x->name, y->name);
}

typedef struct lmc__array_file {
    lmc__buffer sorted;  /* const lmc_array * each */
    lmc__buffer tensors; /* lmc_tensor each, in that order */
    lmc__buffer json;    /* with the 8 bytes before it and the spaces behind it */
} lmc__array_file;

static enum lmc_status lmc__put_member(lmc__buffer *json, const lmc_tensor *tensor)
{
    unsigned i;
    LMC__TRY(lmc__append_json_string(json, tensor->name));
    LMC__TRY(lmc__append_text(json, ":{\"dtype\":\""));
    LMC__TRY(lmc__append_text(json, tensor->dtype));
    LMC__TRY(lmc__append_text(json, "\",\"shape\":["));
    for (i = 0; i < tensor->rank; i++) {
        if (i) LMC__TRY(lmc__append_text(json, ","));
        LMC__TRY(lmc__append_decimal(json, tensor->shape[i]));
    }
    LMC__TRY(lmc__append_text(json, "],\"data_offsets\":["));
    LMC__TRY(lmc__append_decimal(json, tensor->offset));
    LMC__TRY(lmc__append_text(json, ","));
    LMC__TRY(lmc__append_decimal(json, tensor->offset + tensor->size));
    return lmc__append_text(json, "]}");
}

/* __metadata__, if there are any entries. They are few: format, and who wrote it. */
static enum lmc_status lmc__put_texts(lmc__buffer *json, const lmc_text *texts, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++) {
        if (!texts[i].key) return LMC_ERR_ARGUMENT;
        for (k = 0; k < i; k++)
            if (strcmp(texts[i].key, texts[k].key) == 0) return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_text(json, i ? "," : "\"__metadata__\":{"));
        LMC__TRY(lmc__append_json_string(json, texts[i].key));
        LMC__TRY(lmc__append_text(json, ":"));
        LMC__TRY(lmc__append_json_string(json, texts[i].value));
    }
    return n ? lmc__append_text(json, "}") : LMC_OK;
}

/* Arrays in their order; two of one name need not be neighbours, which the writer finds. */
static enum lmc_status lmc__sort_arrays(lmc__buffer *sorted, const lmc_array *arrays, size_t n)
{
    const lmc_array *spare;
    size_t i;
    for (i = 0; i < n; i++) { /* before they are compared */
        uint64_t size;
        spare = &arrays[i];
        LMC__TRY(lmc__get_array_size(spare, &size));
        LMC__TRY(lmc__append(sorted, &spare, sizeof spare));
    }
    lmc__heap_sort(sorted->data, n, sizeof spare, lmc__compare_arrays, &spare);
    return LMC_OK;
}

/* Fills f; offsets of tensors count from the start of the file in the end. */
static enum lmc_status lmc__plan_array_file(lmc__array_file *f, size_t n, const lmc_text *texts,
                                            size_t n_texts, uint64_t *file_size)
{
    const lmc_array *const *const sorted = (const lmc_array *const *)(const void *)f->sorted.data;
    uint64_t at = 0;
    size_t i;
    LMC__TRY(lmc__append(&f->json, NULL, 8));
    LMC__TRY(lmc__append_text(&f->json, "{"));
    LMC__TRY(lmc__put_texts(&f->json, texts, n_texts));
    for (i = 0; i < n; i++) {
        const lmc_array *const a = sorted[i];
        lmc_tensor tensor;
        memset(&tensor, 0, sizeof tensor);
        tensor.name = a->name;
        tensor.dtype = lmc_dtype_name(a->dtype);
        tensor.rank = a->rank;
        tensor.shape = a->shape;
        tensor.offset = at;
        LMC__TRY(lmc__get_array_size(a, &tensor.size));
        if (tensor.size > (uint64_t)INT64_MAX / 2 - at) return LMC_ERR_ARGUMENT;
        at += tensor.size;
        if (i || n_texts) LMC__TRY(lmc__append_text(&f->json, ","));
        LMC__TRY(lmc__put_member(&f->json, &tensor));
        LMC__TRY(lmc__append(&f->tensors, &tensor, sizeof tensor));
    }
    LMC__TRY(lmc__append_text(&f->json, "}"));
    while (f->json.size % 8) LMC__TRY(lmc__append_text(&f->json, " "));
    if (f->json.size - 8 > LMC__MAX_SAFETENSORS_HEADER) return LMC_ERR_LIMIT;
    lmc__store64(f->json.data, f->json.size - 8);
    for (i = 0; i < n; i++) ((lmc_tensor *)(void *)f->tensors.data)[i].offset += f->json.size;
    *file_size = f->json.size + at;
    return LMC_OK;
}

static enum lmc_status lmc__write_array_file(lmc_writer *writer, const lmc__array_file *f,
                                             const char *path, size_t n, uint64_t file_size)
{
    const lmc_array *const *const sorted = (const lmc_array *const *)(const void *)f->sorted.data;
    const lmc_tensor *const tensors = (const lmc_tensor *)(const void *)f->tensors.data;
    lmc_file file;
    size_t i;
    memset(&file, 0, sizeof file);
    file.path = path;
    file.size = file_size;
    file.n_tensors = n;
    file.tensors = tensors;
    LMC__TRY(lmc_writer_begin_file(writer, &file, LMC_AUTO));
    LMC__TRY(lmc_writer_write(writer, f->json.data, f->json.size));
    for (i = 0; i < n; i++) {
        if (tensors[i].size > SIZE_MAX) return LMC_ERR_SIZE;
        LMC__TRY(lmc_writer_write(writer, sorted[i]->data, (size_t)tensors[i].size));
    }
    return lmc_writer_end_file(writer);
}

LMC_API enum lmc_status lmc_writer_add_arrays(lmc_writer *writer, const char *path,
                                              const lmc_array *arrays, size_t n_arrays,
                                              const lmc_text *texts, size_t n_texts)
{
    lmc__array_file f;
    uint64_t file_size = 0;
    enum lmc_status status;
    void *const alloc_user = writer ? writer->options.alloc_user : NULL;
    if (!writer || !path || (!arrays && n_arrays) || (!texts && n_texts) || n_arrays > (1u << 28) ||
        n_texts > LMC__MAX_TEXTS)
        return LMC_ERR_ARGUMENT;
    lmc__init_buffer(&f.sorted, alloc_user);
    lmc__init_buffer(&f.tensors, alloc_user);
    lmc__init_buffer(&f.json, alloc_user);
    status = lmc__sort_arrays(&f.sorted, arrays, n_arrays);
    if (status == LMC_OK) status = lmc__plan_array_file(&f, n_arrays, texts, n_texts, &file_size);
    if (status == LMC_OK) status = lmc__write_array_file(writer, &f, path, n_arrays, file_size);
    lmc__free_buffer(&f.sorted);
    lmc__free_buffer(&f.tensors);
    lmc__free_buffer(&f.json);
    return status;
}
#endif
