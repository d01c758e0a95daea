/* json.h - JSON output that keeps large numbers, and names that are not UTF-8
 * SPDX-License-Identifier: MIT
 *
 * JSON is written entry by entry: a tree of all that a snapshot lists would be tens of times larger
 * than the snapshot.
 *
 *   init_json_writer -> begin_json '{' -> put_json..., begin_json, end_json ... -> end_json '}'
 *
 * After init_json(), lack of memory in jansson ends the process. Write errors show when the FILE is
 * flushed or closed.
 */
#pragma once

#include "../sys/platform.h"

#include <jansson.h>

/* From now on, lack of memory in jansson ends the process. Else jansson would return an error like
 * any other, which callers do not check. */
void init_json(void);

/* Prints what a check of a file has found as a line of JSON, with the last error as its message.
 * is_payload: that is intact, but its base was missing, or not read, or is damaged. */
void print_verdict(const char *name, int code, int is_payload);

/* A document that is being written. */
struct json_writer {
    FILE *f;
    size_t flags;   /* jansson's: JSON_COMPACT or JSON_INDENT(1), JSON_ENSURE_ASCII... */
    unsigned depth; /* objects and lists that are open */
    int is_first;   /* the innermost of them is still empty */
};

void init_json_writer(struct json_writer *w, FILE *f, size_t flags);

/* Begins an object ('{') or a list ('['), which has all that is written until end_json() closes it.
 * key, for all functions: NULL in a list, and for the document itself. */
void begin_json(struct json_writer *w, const char *key, char bracket);
void end_json(struct json_writer *w, char bracket);

/* Closes the document, which is an object, and ends its line. */
void end_json_line(struct json_writer *w);

/* Writes and frees a value: with an indent, no object or list. NULL: out of memory. */
void put_json(struct json_writer *w, const char *key, json_t *value);

/* Writes text as a string. JSON is UTF-8: bytes that are no UTF-8 become '?'. */
void put_json_bytes(struct json_writer *w, const char *key, const char *text, size_t size);

/* Writes text as `key` and, if it is no UTF-8, its bytes in hexadecimal as `key`_hex. */
void put_json_text(struct json_writer *w, const char *key, const char *text);

/* Numbers above 2^63 - 1 (in shapes of empty tensors) are strings: jansson has no such integers. */
void put_json_number(struct json_writer *w, const char *key, uint64_t value);

/* Writes a list of numbers. */
void put_json_numbers(struct json_writer *w, const char *key, const uint64_t *values, unsigned n);

/* Writes a fingerprint or hash of less than 64 bytes as hexadecimal digits. */
void put_json_hex(struct json_writer *w, const char *key, const uint8_t *bytes, size_t size);

/* Writes a number with its significant digits. */
void put_json_real(struct json_writer *w, const char *key, double value);

/* Writes name, dtype, shape and place of a tensor, in the same form for all listings, as members of
 * the open object. strides: of a view; else NULL */
void put_json_layout(struct json_writer *w, const char *name, const char *dtype, unsigned rank,
                     const uint64_t *shape, const uint64_t *strides, uint64_t offset);
