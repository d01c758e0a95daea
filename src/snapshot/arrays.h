#pragma once
#include "api.h"
#include "base/platform.h"
#include "codec/dtypes.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/files.h"
#include "snapshot/texts.h"
#include "snapshot/writer_plan.h"
#include "snapshot/writer.h"

/* Makes a safetensors file from arrays in memory: the header that the safetensors library makes,
 * then the data. So every loader of safetensors opens the restored file.
 *
 *     u64 N | {"__metadata__":{...},"a":{...},"b":{...}} and spaces
 *     data of a | data of b ...
 *
 * Tensors are sorted by falling width of the dtype, then by name, so all data is aligned. */
#ifndef LMC_NO_ENCODER
/* No loader takes a larger header (spec/foreign-bases.md). The number of texts is limited, because
 * each key is compared with all others. */
#define LMC__MAX_SAFETENSORS_HEADER 100000000u
#define LMC__MAX_TEXTS 1024u

/* Whether s is valid UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing above U+10FFFF.
 * The range low .. high of the second byte excludes all of these. A zero byte ends the string, and
 * is never in that range. */
static int lmc__is_utf8(const char *s)
{
    const uint8_t *p = (const uint8_t *)s;
    while (*p) {
        const unsigned c = *p++,
                       low = c == 0xE0   ? 0xA0
                             : c == 0xF0 ? 0x90
                                         : 0x80,
                       high = c == 0xED   ? 0x9F
                              : c == 0xF4 ? 0x8F
                                          : 0xBF;
        unsigned more;
        if (c < 0x80) continue;
        if (c < 0xC2 || c > 0xF4 || *p < low || *p > high) return 0;
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

/* Appends a string as JSON, without its quotes: control characters, '"' and '\' are escaped, the
 * rest is UTF-8. If a header has other bytes, loaders refuse it, and the command finds no tensors
 * in the file (spec/foreign-bases.md). */
LMC__COLD static enum lmc_status lmc__append_escaped(lmc__buffer *b, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    if (!s || !lmc__is_utf8(s)) return LMC_ERR_ARGUMENT;
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const char escaped[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (c < 0x20) {
            LMC__TRY(lmc__append(b, escaped, 6));
            continue;
        }
        if (c == '"' || c == '\\') LMC__TRY(lmc__append(b, escaped, 1));
        LMC__TRY(lmc__append(b, s, 1));
    }
    return LMC_OK;
}

typedef struct lmc__array_file {
    lmc__buffer sorted;  /* of lmc_array */
    lmc__buffer tensors; /* of lmc_tensor, in the order of `sorted` */
    lmc__buffer json;    /* the header: its size in 8 bytes, the JSON text, spaces */
    lmc__buffer name;    /* the escaped name of the last tensor */
    lmc_file file;
} lmc__array_file;

/* Whether the description is complete, and the size is a whole number of bytes. */
static int lmc__is_array(const lmc_array *a)
{
    uint64_t size;
    if (!a->name || strcmp(a->name, "__metadata__") == 0 || a->dtype == LMC_AUTO ||
        (unsigned)a->dtype >= LMC__DTYPE_COUNT || a->rank > LMC_MAX_RANK || (a->rank && !a->shape))
        return 0;
    size = lmc__tensor_size(lmc_dtype_bits(a->dtype), a->rank, a->shape);
    return size != UINT64_MAX && (a->data || size == 0);
}

/* The order of safetensors: wide dtypes first, then by name. Duplicate names of different dtypes
 * need not be neighbours in this order; the writer finds and refuses them. */
static int lmc__compare_arrays(const void *a, const void *b)
{
    const lmc_array *const x = (const lmc_array *)a, *const y = (const lmc_array *)b;
    const unsigned x_bits = lmc_dtype_bits(x->dtype), y_bits = lmc_dtype_bits(y->dtype);
    return x_bits != y_bits ? (x_bits > y_bits ? -1 : 1) : strcmp(x->name, y->name);
}

static enum lmc_status lmc__sort_arrays(lmc__array_file *f, const lmc_array *arrays, size_t n)
{
    lmc_array spare;
    size_t i;
    for (i = 0; i < n; i++) {
        if (!lmc__is_array(&arrays[i])) return LMC_ERR_ARGUMENT;
        LMC__CHECK_RESERVED(&arrays[i]);
    }
    LMC__TRY(lmc__append(&f->sorted, arrays, n * sizeof spare));
    lmc__heap_sort(f->sorted.data, n, sizeof spare, lmc__compare_arrays, &spare);
    return LMC_OK;
}

/* Appends __metadata__, if it has entries. Comparing all pairs of keys is fast enough, as there are
 * at most LMC__MAX_TEXTS. */
static enum lmc_status lmc__put_texts(lmc__buffer *json, const lmc_text *texts, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++) {
        if (!texts[i].key) return LMC_ERR_ARGUMENT;
        for (k = 0; k < i; k++)
            if (strcmp(texts[i].key, texts[k].key) == 0) return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_text(json, i ? ",\"" : "\"__metadata__\":{\""));
        LMC__TRY(lmc__append_escaped(json, texts[i].key));
        LMC__TRY(lmc__append_text(json, "\":\""));
        LMC__TRY(lmc__append_escaped(json, texts[i].value));
        LMC__TRY(lmc__append_text(json, "\""));
    }
    return n ? lmc__append_text(json, "}") : LMC_OK;
}

/* Makes the header. While its entries are made, tensors' offsets count from the start of the data;
 * in the end, from the start of the file. */
static enum lmc_status lmc__plan_array_file(lmc__array_file *f, const lmc_text *texts,
                                            size_t n_texts)
{
    const lmc_array *const sorted = (const lmc_array *)(const void *)f->sorted.data;
    const size_t n = f->sorted.size / sizeof *sorted;
    lmc_file *const file = &f->file;
    size_t i;
    LMC__TRY(lmc__append(&f->json, NULL, 8));
    LMC__TRY(lmc__append_text(&f->json, "{"));
    LMC__TRY(lmc__put_texts(&f->json, texts, n_texts));
    if (n && n_texts) LMC__TRY(lmc__append_text(&f->json, ","));
    for (i = 0; i < n; i++) {
        lmc__text x = {0, 0, UINT64_MAX, NULL};
        lmc_tensor tensor;
        memset(&tensor, 0, sizeof tensor);
        tensor.name = sorted[i].name;
        tensor.dtype = lmc_dtype_name(sorted[i].dtype);
        tensor.rank = sorted[i].rank;
        tensor.shape = sorted[i].shape;
        tensor.offset = file->size;
        tensor.size = lmc__tensor_size(lmc_dtype_bits(sorted[i].dtype), tensor.rank, tensor.shape);
        if (tensor.size > (uint64_t)INT64_MAX / 2 - file->size) return LMC_ERR_ARGUMENT;
        file->size += tensor.size;
        LMC__TRY(lmc__append(&f->tensors, &tensor, sizeof tensor));
        file->tensors = (const lmc_tensor *)(const void *)f->tensors.data;
        file->n_tensors++;
        f->name.size = 0;
        LMC__TRY(lmc__append_escaped(&f->name, tensor.name));
        LMC__TRY(lmc__reserve(&f->json, f->name.size + (uint64_t)LMC__MAX_ENTRY_TEXT));
        x.dst = f->json.data + f->json.size;
        lmc__make_entry(&x, file, i, f->name.data, f->name.size);
        f->json.size += (size_t)x.at;
    }
    LMC__TRY(lmc__append_text(&f->json, "}"));
    while (f->json.size % 8) LMC__TRY(lmc__append_text(&f->json, " "));
    if (f->json.size - 8 > LMC__MAX_SAFETENSORS_HEADER) return LMC_ERR_LIMIT;
    lmc__store64(f->json.data, f->json.size - 8);
    for (i = 0; i < n; i++) ((lmc_tensor *)(void *)f->tensors.data)[i].offset += f->json.size;
    file->size += f->json.size;
    return LMC_OK;
}

static enum lmc_status lmc__write_array_file(lmc_writer *writer, const lmc__array_file *f)
{
    const lmc_array *const sorted = (const lmc_array *)(const void *)f->sorted.data;
    size_t i;
    LMC__TRY(lmc_writer_begin_file(writer, &f->file, LMC_AUTO));
    LMC__TRY(lmc_writer_write(writer, f->json.data, f->json.size));
    for (i = 0; i < f->file.n_tensors; i++) {
        const uint64_t size = f->file.tensors[i].size;
        if (size > SIZE_MAX) return LMC_ERR_SIZE;
        LMC__TRY(lmc_writer_write(writer, sorted[i].data, (size_t)size));
    }
    return lmc_writer_end_file(writer);
}

LMC__COLD LMC_API enum lmc_status lmc_writer_add_arrays(lmc_writer *writer, const char *path,
                                                        const lmc_array *arrays, size_t n_arrays,
                                                        const lmc_text *texts, size_t n_texts)
{
    lmc__array_file f;
    enum lmc_status status;
    if (!writer || !path || (!arrays && n_arrays) || (!texts && n_texts) || n_arrays > (1u << 28) ||
        n_texts > LMC__MAX_TEXTS || writer->hints.size)
        return LMC_ERR_ARGUMENT;
    memset(&f, 0, sizeof f);
    f.file.path = path;
    lmc__init_buffers(&f, LMC__ROW(lmc__array_file, sorted, file), writer->options.allocator);
    status = lmc__sort_arrays(&f, arrays, n_arrays);
    if (status == LMC_OK) status = lmc__plan_array_file(&f, texts, n_texts);
    if (status == LMC_OK) status = lmc__write_array_file(writer, &f);
    lmc__free_buffers(&f, LMC__ROW(lmc__array_file, sorted, file));
    return status;
}
#endif
