/* SPDX-License-Identifier: MIT */
#include "dump_take.h"

#include <stdarg.h>

#include "../../lmc.h"
#include "../sys/memory.h"

/* -- what is wrong -- */

void note_fault(struct dump *d, enum outcome outcome, uint64_t at, const char *text)
{
    print_fault(at, text);
    if (d->outcome != DUMP_GOOD) return; /* the first may be why others follow */
    d->outcome = outcome;
    d->fault_at = at;
    snprintf(d->fault, sizeof d->fault, "%s", text);
}

void fault(struct dump *d, enum outcome outcome, uint64_t at, const char *format, ...)
{
    char text[200];
    va_list list;
    if (d->is_quiet) return; /* a copy in the index: it was said where the original stands */
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    note_fault(d, outcome, at, text);
}

/* -- taking bytes -- */

size_t read_bytes(struct dump *d, unsigned char *to, size_t size)
{
    const size_t got = fread(to, 1, size, d->in);
    d->crc = lmc_crc32c(d->crc, to, got);
    d->at += got;
    if (d->left != NO_LIMIT) d->left -= got;
    return got;
}

int peek_byte(struct dump *d)
{
    const int byte = d->stops ? EOF : getc(d->in);
    if (byte != EOF) ungetc(byte, d->in);
    return byte;
}

void skip_bytes(struct dump *d, const char *name, uint64_t size)
{
    unsigned char chunk[4096];
    const uint64_t start = d->at;
    uint64_t skipped = 0;
    while (skipped < size && !d->stops) {
        const size_t n = size - skipped < sizeof chunk ? (size_t)(size - skipped) : sizeof chunk;
        const size_t got = read_bytes(d, chunk, n);
        skipped += got;
        if (got < n) d->stops = 1;
    }
    if (!d->is_quiet && skipped) print_counted(start, name, skipped);
    if (skipped < size && d->stops)
        note_fault(d, DUMP_DAMAGED, d->at, "the file ends here, within this field");
}

const unsigned char *get_bytes(struct dump *d, const char *name, size_t size)
{
    size_t got;
    const uint64_t start = d->at;
    int is_body;
    if (d->stops) return NULL;
    if (d->room < size) d->buffer = (unsigned char *)resize(d->buffer, d->room = size, 1);
    is_body = d->left < size;
    got = read_bytes(d, d->buffer, is_body ? (size_t)d->left : size);
    if (got == size) return d->buffer;
    if (!d->is_quiet && got) print_field(start, name, d->buffer, got, FIELD_BYTES);
    if (d->left == 0 && is_body) fault(d, DUMP_DAMAGED, start, "the body ends within %s", name);
    else {
        d->stops = 1;
        note_fault(d, DUMP_DAMAGED, d->at, "the file ends here");
    }
    return NULL;
}

const unsigned char *take(struct dump *d, const char *name, size_t size, enum field_kind kind)
{
    const uint64_t start = d->at;
    const unsigned char *bytes = get_bytes(d, name, size);
    if (bytes && !d->is_quiet && size) print_field(start, name, bytes, size, kind);
    return bytes;
}

int take_number(struct dump *d, const char *name, size_t size, uint64_t *value)
{
    const unsigned char *bytes = take(d, name, size, FIELD_NUMBER);
    *value = bytes ? field_number(bytes, size) : 0;
    return bytes != NULL;
}

int take_varint(struct dump *d, const char *name, uint64_t *value)
{
    unsigned char bytes[10];
    const uint64_t start = d->at;
    size_t n = 0;
    *value = 0;
    do {
        const unsigned char *byte = get_bytes(d, name, 1);
        if (!byte) return 0;
        bytes[n] = *byte;
        *value |= (uint64_t)(bytes[n] & 127) << 7 * n;
    } while (bytes[n++] & 128 && n < sizeof bytes);
    if (!d->is_quiet) print_field(start, name, bytes, n, FIELD_VARINT);
    if ((n == sizeof bytes && bytes[9] > 1) || (n > 1 && bytes[n - 1] == 0)) {
        fault(d, DUMP_DAMAGED, start, "%s is no varint in the shortest form below 2^64", name);
        return 0;
    }
    return 1;
}

int take_text(struct dump *d, const char *name, uint64_t size)
{
    if (size <= FIELD_MAX_BYTES) return take(d, name, (size_t)size, FIELD_TEXT) != NULL;
    if (size > d->left) return take(d, name, FIELD_MAX_BYTES, FIELD_BYTES) && 0;
    skip_bytes(d, name, size);
    return !d->stops;
}
