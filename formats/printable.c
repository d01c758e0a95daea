/* SPDX-License-Identifier: MIT */
#include "printable.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t read_character(const char *text, size_t size, size_t *used)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *const p = (const unsigned char *)text;
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    uint32_t c = n == 1 ? p[0] : n == 2 ? p[0] & 31u : n == 3 ? p[0] & 15u : p[0] & 7u;
    *used = 0;
    if (n == 0 || n > size || p[0] > 0xF4) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 63u);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *used = n;
    return c;
}

static int read_unit(const char *text, size_t size, uint32_t *unit)
{
    *unit = 0;
    if (size < 5 || text[0] != 'u') return 0;
    for (unsigned i = 1; i < 5; i++) {
        const char small = (char)(text[i] | 32);
        if (is_digit(text[i])) *unit = *unit << 4 | (uint32_t)(text[i] - '0');
        else if (small >= 'a' && small <= 'f') *unit = *unit << 4 | (uint32_t)(small - 'a' + 10);
        else return 0;
    }
    return 1;
}

static size_t put_utf8(char *out, uint32_t c)
{
    static const unsigned char marks[4] = {0, 0xC0, 0xE0, 0xF0};
    const unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)(marks[more] | c >> 6 * more);
    for (unsigned i = more; i > 0; i--) *out++ = (char)(0x80 | (c >> 6 * (i - 1) & 0x3F));
    return more + 1;
}

size_t read_escaped_character(char *out, const char *text, size_t size, size_t *used)
{
    uint32_t c, second;
    *used = 0;
    if (!read_unit(text, size, &c)) return 0;
    *used = 5;
    if (c < 0xD800 || c > 0xDFFF) return put_utf8(out, c);
    if (c >= 0xDC00 || size < 6 || text[5] != '\\' || !read_unit(text + 6, size - 6, &second) ||
        second < 0xDC00 || second > 0xDFFF)
        return 0;
    *used = 11;
    return put_utf8(out, 0x10000 + ((c - 0xD800) << 10) + (second - 0xDC00));
}

/* Whether c is a control character, changes format or direction, ends a line, has no width, or is a
 * tag or no character (Unicode 15: Cc, Cf, Zl, Zp, and invisible fillers). */
int is_hidden_character(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1F},          {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},
                  {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},
                  {0x890, 0x891},     {0x8E2, 0x8E2},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
                  {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
                  {0x3164, 0x3164},   {0xFDD0, 0xFDEF},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
                  {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},
                  {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
    if ((c & 0xFFFE) == 0xFFFE) return 1;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return 1;
    return 0;
}

size_t print_character(char out[MAX_PRINTABLE], const char *text, size_t size, size_t *used)
{
    char escaped[MAX_PRINTABLE + 1];
    const uint32_t c = read_character(text, size, used);
    size_t n;
    if (*used && !is_hidden_character(c)) {
        memcpy(out, text, *used);
        return *used;
    }
    if (*used == 0 || c < 0x80) {
        *used = 1;
        n = (size_t)snprintf(escaped, sizeof escaped, "\\x%02X", (unsigned char)*text);
    } else {
        n = (size_t)snprintf(escaped, sizeof escaped, "\\u{%04lX}", (unsigned long)c);
    }
    memcpy(out, escaped, n);
    return n;
}

static size_t format_part(char *out, size_t cap, const char *text, size_t left)
{
    size_t n = 0;
    while (left) {
        char one[MAX_PRINTABLE];
        size_t used;
        const size_t size = print_character(one, text, left, &used);
        if (size + 1 > cap - n) break;
        memcpy(out + n, one, size);
        n += size;
        text += used;
        left -= used;
    }
    out[n] = 0;
    return n;
}

size_t format_printable(char *out, size_t cap, const char *text)
{
    return format_part(out, cap, text, strlen(text));
}

char *copy_printable(const char *text, size_t size)
{
    const size_t cap = size * MAX_PRINTABLE + 1;
    char *copy = (char *)malloc(cap);
    if (copy) format_part(copy, cap, text, size);
    return copy;
}
