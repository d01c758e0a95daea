/* memory.c - allocating, lists that grow, texts; without memory the program ends (platform.h)
 * SPDX-License-Identifier: MIT */
#include "platform.h"

static void (*clean_up)(void); /* NULL: nothing to do before the process ends */

void on_out_of_memory(void (*hook)(void)) { clean_up = hook; }

void *check_memory(void *p)
{
    if (!p) {
        say(NULL, "out of memory");
        if (clean_up) clean_up();
        exit(CODE_ERROR);
    }
    return p;
}

/* glibc's fclose() returns 0 when it cannot shrink the text, and sets it to NULL:
 * https://sourceware.org/git/?p=glibc.git;a=blob;f=libio/memstream.c (_IO_mem_finish) */
void close_text(FILE *f, char *const *text)
{
    if (fclose(f) != 0 || *text == NULL) check_memory(NULL);
}

void *resize(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) check_memory(NULL);
    size *= n;
    return check_memory(realloc(p, size ? size : 1));
}

void *zeroed(size_t n, size_t size) { return check_memory(calloc(n ? n : 1, size ? size : 1)); }

void *grow(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return list;
    *cap = *cap * 2 + 16;
    return resize(list, *cap, size);
}

void *append(void *list, size_t *n, size_t *cap, size_t size)
{
    void *things;
    memcpy(&things, list, sizeof things);
    things = grow(things, *n, cap, size);
    memcpy(list, &things, sizeof things);
    return memset((char *)things + (*n)++ * size, 0, size);
}

char *format_list(const char *format, va_list list)
{
    char *text = NULL;
    const int size = vasprintf(&text, format, list);
    return (char *)check_memory(size < 0 ? NULL : text);
}

char *format_text(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char *text = format_list(format, list);
    va_end(list);
    return text;
}

void append_text(char **text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char *more = format_list(format, list), *all = format_text("%s%s", *text, more);
    va_end(list);
    free(more);
    free(*text);
    *text = all;
}

char *copy_string(const char *text, size_t size)
{
    char *copy = (char *)resize(NULL, size + 1, 1);
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

char *copy_text(const char *text) { return copy_string(text, strlen(text)); }
