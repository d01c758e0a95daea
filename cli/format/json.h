/* json.h - JSON, written so that names that are not UTF-8, and large numbers, survive
 * SPDX-License-Identifier: MIT
 *
 * It is written entry by entry: a tree of all that a snapshot lists would take tens of times the
 * file.
 *
 *   init_json_writer -> begin_json '{' -> put_json..., begin_json, end_json ... -> end_json '}'
 *
 * After init_json() jansson does not fail for lack of memory: the process ends instead. What cannot
 * be written shows at the end of the FILE.
 */
#pragma once

#include "../sys/platform.h"

#include <jansson.h>

/* From now on jansson does not fail for lack of memory, which it tells from no other failure and
 * which its callers overlook. */
void init_json(void);

/* A document that is being written. */
struct json_writer {
    FILE *f;
    size_t flags;   /* of jansson: JSON_COMPACT or JSON_INDENT(1), JSON_ENSURE_ASCII... */
    unsigned depth; /* objects and lists that are open */
    int is_first;   /* nothing is in the innermost one yet */
};

void init_json_writer(struct json_writer *w, FILE *f, size_t flags);

/* What is put from now on lies in an object or a list, by bracket, which end_json() closes. key, of
 * all functions: NULL in a list, and for the document itself. */
void begin_json(struct json_writer *w, const char *key, char bracket);
void end_json(struct json_writer *w, char bracket);

/* Closes the document, an object, and ends its line. */
void end_json_line(struct json_writer *w);

/* A value, which is taken over; with an indent no object and no list. NULL is out of memory. */
void put_json(struct json_writer *w, const char *key, json_t *value);

/* Names are bytes, JSON is UTF-8: bytes that are no UTF-8 become '?'. */
void put_json_bytes(struct json_writer *w, const char *key, const char *text, size_t size);

/* text under key; the bytes under key_hex, if they are no UTF-8 */
void put_json_text(struct json_writer *w, const char *key, const char *text);

/* A string above 2^63 - 1, as jansson has no such integers: only an empty tensor has such a shape.
 */
void put_json_number(struct json_writer *w, const char *key, uint64_t value);

/* A list of them. */
void put_json_numbers(struct json_writer *w, const char *key, const uint64_t *values, unsigned n);

/* A fingerprint or a hash, of less than 64 bytes, in digits. */
void put_json_hex(struct json_writer *w, const char *key, const uint8_t *bytes, size_t size);

/* With the digits that mean something. */
void put_json_real(struct json_writer *w, const char *key, double value);

/* How a tensor lies in its file, as all listings say it: members of the open object. strides: of a
 * view; else NULL */
void put_json_layout(struct json_writer *w, const char *name, const char *dtype, unsigned rank,
                     const uint64_t *shape, const uint64_t *strides, uint64_t offset);
