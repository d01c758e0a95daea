/* SPDX-License-Identifier: MIT */
#include "print.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

void format_shape(char *text, size_t cap, const lmc_tensor *t)
{
    size_t size = (size_t)snprintf(text, cap, "[");
    for (unsigned i = 0; i < t->rank && size < cap; i++)
        size += (size_t)snprintf(text + size, cap - size, "%s%llu", i ? "," : "",
                                 (unsigned long long)t->shape[i]);
    if (size < cap) snprintf(text + size, cap - size, "]");
}

void print_name(const char *name)
{
    for (; *name; name++) putchar((unsigned char)*name < 32 || *name == 127 ? '?' : *name);
}

void print_dtype(const char *dtype)
{
    const size_t size = strlen(dtype);
    print_name(dtype);
    printf("%*s ", size < 8 ? (int)(8 - size) : 0, "");
}
