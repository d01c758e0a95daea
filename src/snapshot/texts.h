#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/files.h"

/* The header text of a file (spec 4.3): its tensor entries, in the form in which safetensors writes
 * them into a file's header. It predicts runs of Prediction 2.
 *
 *     "NAME":{"dtype":"DTYPE","shape":[2,3],"data_offsets":[0,12]},"NAME":...
 *
 * The text is made when it is needed, tensor by tensor, and of a name only the needed bytes are
 * copied. So making n bytes takes time O(n), plus the time for at most 34 numbers, even if a
 * segment is one byte of a tensor's text of 66,322 bytes (R9-7). */

/* A tensor's text without its name: at most 787 bytes, with 34 numbers and a dtype of 32 bytes. */
#define LMC__MAX_ENTRY_TEXT 1024u

/* Output of a text: its bytes [from, to) are copied to dst. at: bytes that were made so far. */
typedef struct lmc__text {
    uint64_t at, from, to;
    uint8_t *dst;
} lmc__text;

LMC__COLD static void lmc__make_text(lmc__text *x, const void *p, size_t size)
{
    const uint64_t from = x->from > x->at ? x->from : x->at, to = lmc__min64(x->to, x->at + size);
    if (from < to)
        memcpy(x->dst + (size_t)(from - x->from), (const uint8_t *)p + (size_t)(from - x->at),
               (size_t)(to - from));
    x->at += size;
}

LMC__COLD static void lmc__make_string(lmc__text *x, const char *string)
{
    lmc__make_text(x, string, strlen(string));
}

static void lmc__make_number(lmc__text *x, uint64_t v)
{
    char digits[20];
    size_t n = 0;
    do digits[sizeof digits - ++n] = (char)('0' + (char)(v % 10));
    while ((v /= 10) != 0);
    lmc__make_text(x, digits + sizeof digits - n, n);
}

/* Makes the text of one tensor. It begins with a comma, except for the first tensor. name: the
 * bytes for NAME. */
LMC__COLD static void lmc__make_entry(lmc__text *x, const lmc_file *file, size_t i,
                                      const void *name, size_t name_size)
{
    const lmc_tensor *const t = &file->tensors[i];
    const uint64_t data = file->tensors[0].offset;
    unsigned j;
    lmc__make_string(x, i ? ",\"" : "\"");
    lmc__make_text(x, name, name_size);
    lmc__make_string(x, "\":{\"dtype\":\"");
    lmc__make_string(x, t->dtype);
    lmc__make_string(x, "\",\"shape\":[");
    for (j = 0; j < t->rank; j++) {
        if (j) lmc__make_text(x, ",", 1);
        lmc__make_number(x, t->shape[j]);
    }
    lmc__make_string(x, "],\"data_offsets\":[");
    lmc__make_number(x, t->offset - data);
    lmc__make_text(x, ",", 1);
    lmc__make_number(x, t->offset - data + t->size);
    lmc__make_string(x, "]}");
}

/* For one tensor. name_size is stored because names may be long and are read in small pieces. */
typedef struct lmc__text_entry {
    uint64_t start; /* of the tensor's text */
    size_t name_size;
} lmc__text_entry;

static const lmc__text_entry *lmc__text_entries(const lmc__listed_file *f)
{
    return (const lmc__text_entry *)(const void *)f->text_at.data;
}

/* Finds where the text of each tensor begins. The last entry says where the whole text ends. */
LMC__COLD static enum lmc_status lmc__measure_text(lmc__listed_file *f)
{
    lmc__text_entry entry;
    lmc__text x;
    size_t i;
    memset(&x, 0, sizeof x);
    LMC__TRY(lmc__reserve(&f->text_at, ((uint64_t)f->file.n_tensors + 1) * sizeof entry));
    for (i = 0; i <= f->file.n_tensors; i++) {
        memset(&entry, 0, sizeof entry);
        entry.start = x.at;
        if (i < f->file.n_tensors) {
            const char *const name = f->file.tensors[i].name;
            entry.name_size = strlen(name);
            lmc__make_entry(&x, &f->file, i, name, entry.name_size);
        }
        LMC__TRY(lmc__append(&f->text_at, &entry, sizeof entry));
    }
    return LMC_OK;
}

/* *size: bytes of the file's header text. */
static enum lmc_status lmc__get_text_size(lmc__listed_file *f, uint64_t *size)
{
    if (f->text_at.size == 0) LMC__TRY(lmc__measure_text(f));
    *size = lmc__text_entries(f)[f->file.n_tensors].start;
    return LMC_OK;
}

/* Copies bytes [offset, offset + size) of the file's header text, which must have them. Call
 * lmc__get_text_size first. */
LMC__COLD static void lmc__read_text(const lmc__listed_file *f, uint64_t offset, uint8_t *dst,
                                     size_t size)
{
    const lmc__text_entry *const entries = lmc__text_entries(f);
    lmc__text x;
    size_t i;
    if (size == 0) return;
    LMC__FIND_FIRST(i, 0, f->file.n_tensors, entries[i + 1].start <= offset);
    x.at = entries[i].start;
    x.from = offset;
    x.to = offset + size;
    x.dst = dst;
    for (; x.at < x.to; i++)
        lmc__make_entry(&x, &f->file, i, f->file.tensors[i].name, entries[i].name_size);
}
