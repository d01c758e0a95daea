/* SPDX-License-Identifier: MIT */
#include "dump_field.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../format/print.h"

#define BYTES_IN_A_LINE 16u

uint64_t field_number(const unsigned char *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

static uint64_t varint_value(const unsigned char *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && i < 10; i++) value |= (uint64_t)(bytes[i] & 127) << 7 * i;
    return value;
}

static void print_value(const unsigned char *bytes, size_t size, enum field_kind kind)
{
    if (kind == FIELD_VARINT) printf(" %llu", (unsigned long long)varint_value(bytes, size));
    else if (kind == FIELD_TEXT) {
        fputs(" \"", stdout);
        print_text(bytes, size);
        putchar('"');
    } else if (kind != FIELD_BYTES && (size == 1 || size == 2 || size == 4 || size == 8)) {
        const uint64_t value = field_number(bytes, size);
        const uint64_t sign = (uint64_t)1 << (8 * size - 1);
        if (kind == FIELD_SIGNED && (value & sign))
            printf(" -%llu", (unsigned long long)((sign << 1) - value));
        else printf(" %llu", (unsigned long long)value);
    }
}

void print_counted(uint64_t offset, const char *name, uint64_t size)
{
    char count[48];
    snprintf(count, sizeof count, "(%llu bytes)", (unsigned long long)size);
    printf("%04llX  %-47s  %s\n", (unsigned long long)offset, count, name);
}

void print_field(uint64_t offset, const char *name, const unsigned char *bytes, uint64_t size,
                 enum field_kind kind)
{
    static const char digits[] = "0123456789ABCDEF";
    if (size > FIELD_MAX_BYTES || !bytes) {
        print_counted(offset, name, size);
        return;
    }
    for (size_t at = 0; at < size; at += BYTES_IN_A_LINE) {
        const size_t n = size - at < BYTES_IN_A_LINE ? (size_t)size - at : BYTES_IN_A_LINE;
        char text[3 * BYTES_IN_A_LINE];
        for (size_t i = 0; i < n; i++) {
            text[3 * i] = digits[bytes[at + i] >> 4];
            text[3 * i + 1] = digits[bytes[at + i] & 15];
            text[3 * i + 2] = ' ';
        }
        text[3 * n - 1] = 0;
        if (at) {
            printf("%04llX  %s\n", (unsigned long long)(offset + at), text);
            continue;
        }
        printf("%04llX  %-47s  %s", (unsigned long long)offset, text, name);
        print_value(bytes, (size_t)size, kind);
        putchar('\n');
    }
}

void print_heading(const char *text) { printf("      -- %s --\n", text); }

void print_fault(uint64_t offset, const char *text)
{
    printf("%04llX  !! %s\n", (unsigned long long)offset, text);
}
