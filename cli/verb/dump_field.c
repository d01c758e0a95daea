/* SPDX-License-Identifier: MIT */
#include "dump_field.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../../lmc.h"
#include "../format/print.h"
#include "../sys/memory.h"

#define BYTES_IN_A_LINE 16u
#define MOST_BYTES 1024u /* more are only counted */

void print_heading(const char *text) { printf("      -- %s --\n", text); }

/* value: what stands behind the name; NULL: the bytes as text, if they are. */
static void print_field(uint64_t offset, const char *name, const unsigned char *bytes, size_t size,
                        const char *value)
{
    size_t n_text = 0;
    while (n_text < size && bytes[n_text] >= 32 && bytes[n_text] != 127) n_text++;
    for (size_t at = 0; at < size; at += BYTES_IN_A_LINE) {
        const size_t n = size - at < BYTES_IN_A_LINE ? size - at : BYTES_IN_A_LINE;
        char text[3 * BYTES_IN_A_LINE + 1];
        for (size_t i = 0; i < n; i++) snprintf(text + 3 * i, 4, "%02X ", bytes[at + i]);
        text[3 * n - 1] = 0;
        printf("%04llX  ", (unsigned long long)(offset + at));
        if (at == 0) printf("%-47s  %s", text, name);
        else fputs(text, stdout);
        if (at == 0 && value && *value) printf(" %s", value);
        if (at == 0 && !value && n_text == size) {
            fputs(" \"", stdout);
            print_text(bytes, size);
            putchar('"');
        }
        putchar('\n');
    }
}

void print_counted(uint64_t offset, const char *name, uint64_t size)
{
    char count[48];
    snprintf(count, sizeof count, "(%llu bytes)", (unsigned long long)size);
    printf("%04llX  %-47s  %s\n", (unsigned long long)offset, count, name);
}

void fault(struct dump *d, enum outcome outcome, uint64_t at, const char *format, ...)
{
    char text[sizeof d->fault];
    va_list list;
    if (d->is_quiet && !d->stops) return; /* a copy: it was said where the original stands */
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%04llX  !! %s\n", (unsigned long long)at, text);
    if (d->outcome != DUMP_GOOD) return; /* the first may be why others follow */
    d->outcome = outcome;
    d->fault_at = at;
    memcpy(d->fault, text, sizeof text);
}

void check_crc(struct dump *d, uint64_t at, const char *name, uint64_t stored, uint32_t crc)
{
    if (stored == crc) return;
    if (d->outcome == DUMP_NEWER) d->outcome = DUMP_GOOD; /* no newer version: the CRC proves it */
    fault(d, DUMP_DAMAGED, at, "%s should be %02X %02X %02X %02X", name, crc & 255u,
          crc >> 8 & 255u, crc >> 16 & 255u, crc >> 24);
}

/* -- taking bytes -- */

static size_t read_bytes(struct dump *d, unsigned char *to, size_t size)
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
    while (d->at - start < size && !d->stops) {
        const uint64_t rest = size - (d->at - start);
        const size_t n = rest < sizeof chunk ? (size_t)rest : sizeof chunk;
        d->stops = read_bytes(d, chunk, n) < n;
        if (d->stops) fault(d, DUMP_DAMAGED, d->at, "the file ends here, within %s", name);
    }
    if (!d->is_quiet && d->at > start) print_counted(start, name, d->at - start);
}

/* In the buffer, not printed; NULL: they are not there. */
static const unsigned char *get_bytes(struct dump *d, const char *name, size_t size)
{
    const uint64_t start = d->at;
    const int is_short = d->left < size;
    size_t got;
    if (d->stops) return NULL;
    if (d->room < size) d->buffer = (unsigned char *)resize(d->buffer, d->room = size, 1);
    got = read_bytes(d, d->buffer, is_short ? (size_t)d->left : size);
    if (got == size) return d->buffer;
    if (!d->is_quiet) print_field(start, name, d->buffer, got, NULL);
    if (is_short && d->left == 0) fault(d, DUMP_DAMAGED, start, "the body ends within %s", name);
    else {
        d->stops = 1;
        fault(d, DUMP_DAMAGED, d->at, "the file ends here");
    }
    return NULL;
}

int take_bytes(struct dump *d, const char *name, uint64_t size)
{
    const uint64_t start = d->at;
    if (size > MOST_BYTES && size <= d->left) {
        skip_bytes(d, name, size);
        return !d->stops;
    }
    if (!get_bytes(d, name, size > MOST_BYTES ? MOST_BYTES + 1 : (size_t)size)) return 0;
    if (!d->is_quiet) print_field(start, name, d->buffer, (size_t)size, NULL);
    return 1;
}

/* A varint into the buffer; its size, or 0. */
static size_t get_varint(struct dump *d, const char *name, uint64_t *value)
{
    unsigned char bytes[10];
    const uint64_t start = d->at;
    size_t n = 0;
    do {
        const unsigned char *byte = get_bytes(d, name, 1);
        if (!byte) return 0;
        bytes[n] = *byte;
        *value |= (uint64_t)(*byte & 127) << 7 * n;
    } while (bytes[n++] & 128 && n < sizeof bytes);
    memcpy(d->buffer, bytes, n);
    if ((n == sizeof bytes && bytes[9] > 1) || (n > 1 && bytes[n - 1] == 0))
        fault(d, DUMP_DAMAGED, start, "%s is no varint in the shortest form below 2^64", name);
    return n;
}

/* One field, of which `kind` begins with the character of take_fields(). */
static int take_field(struct dump *d, const char *name, const char *kind, uint64_t *value)
{
    const uint64_t start = d->at;
    const int is_number = *kind != 'x';
    size_t size = *kind == 's'   ? 8
                  : *kind == 'c' ? 4
                  : *kind == 'd' ? 1
                                 : strtoul(kind + !is_number, NULL, 10);
    char text[32];
    *value = 0;
    if (*kind == 'v') size = get_varint(d, name, value);
    else if (!get_bytes(d, name, size)) return 0;
    if (size == 0) return 0;
    for (size_t i = size; *kind != 'v' && i-- > 0;)
        *value = is_number ? *value << 8 | d->buffer[i] : (*value || d->buffer[i]);
    if (*kind == 's') snprintf(text, sizeof text, "%lld", (long long)(int64_t)*value);
    else if (*kind == 'd' && *value && *value <= LAST_DTYPE)
        snprintf(text, sizeof text, "%u (%s)", (unsigned)*value,
                 lmc_dtype_name((enum lmc_dtype) * value));
    else snprintf(text, sizeof text, "%llu", (unsigned long long)*value);
    if (!d->is_quiet)
        print_field(start, name, d->buffer, size, is_number && *kind != 'c' ? text : "");
    return 1;
}

int take_fields(struct dump *d, const char *fields, uint64_t *values)
{
    while (*fields) {
        char name[40];
        const size_t size = strcspn(fields, ":");
        snprintf(name, sizeof name, "%.*s", (int)size, fields);
        if (!take_field(d, name, fields + size + 1, values++)) return 0;
        fields += strcspn(fields, " ");
        fields += *fields == ' ';
    }
    return 1;
}
