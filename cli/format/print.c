/* SPDX-License-Identifier: MIT */
#include "print.h"

#include "../../formats/printable.h"

double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

void format_size(char *text, size_t cap, uint64_t size)
{
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    double value = (double)size / 1000;
    unsigned unit = 0;
    for (; value >= 999.95 && unit < 3; unit++) value /= 1000;
    if (size < 1000) snprintf(text, cap, "%u B", (unsigned)size);
    else snprintf(text, cap, "%.1f %s", value, units[unit]);
}

void format_shape(char *text, size_t cap, const lmc_tensor *t)
{
    size_t size = (size_t)snprintf(text, cap, "[");
    for (unsigned i = 0; i < t->rank && size < cap; i++)
        size += (size_t)snprintf(text + size, cap - size, "%s%llu", i ? "," : "",
                                 (unsigned long long)t->shape[i]);
    if (size < cap) snprintf(text + size, cap - size, "]");
}

static void print_text(const void *text, size_t size)
{
    const char *p = (const char *)text;
    while (size) {
        char one[MAX_PRINTABLE];
        size_t used;
        fwrite(one, 1, print_character(one, p, size, &used), stdout);
        p += used;
        size -= used;
    }
}

void print(const char *format, ...)
{
    const size_t size = strlen(format), is_line = size && format[size - 1] == '\n';
    va_list list;
    va_start(list, format);
    char *text = format_list(format, list);
    va_end(list);
    print_text(text, strlen(text) - is_line);
    if (is_line) putchar('\n');
    free(text);
}

char *format_hex(char *text, const void *data, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
    return text;
}
