/* memory.h - memory that is always there, and lists in it
 * SPDX-License-Identifier: MIT
 *
 * What cannot be had ends the process: a command that has run out of memory has nothing better to
 * do. All results are to be freed with free().
 */
#pragma once

#include "platform.h"

#include <stdarg.h>

#include "../../formats/sorted.h"

/* hook is called, once, when memory has run out, before the process ends. It must not allocate. */
void on_out_of_memory(void (*hook)(void));

/* p; if that is NULL, says so and ends the process. */
void *check_memory(void *p);

/* realloc() for n things of that size, which never fails and never returns NULL. To be freed. */
void *resize(void *p, size_t n, size_t size);

/* Room for n things of that size, all of it zero. */
void *zeroed(size_t n, size_t size);

/* A list of n things of that size, with room for *room, gets room for one more. */
void *grow(void *list, size_t n, size_t *room, size_t size);

/* A list of *n things gets one more, all of it zero, which is returned. list: of the pointer to it,
 * which may move. */
void *append(void *list, size_t *n, size_t *room, size_t size);

/* What printf() would print. To be freed. */
#ifdef __GNUC__
__attribute__((format(printf, 1, 2)))
#endif
char *
format_text(const char *format, ...);
char *format_list(const char *format, va_list list);

/* Puts it at the end of *text, which may move. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
void
append_text(char **text, const char *format, ...);

/* The first size bytes of text with a zero behind them, or all of it. To be freed. */
char *copy_string(const char *text, size_t size);
char *copy_text(const char *text);
