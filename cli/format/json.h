/* json.h - JSON, made so that names that are not UTF-8, and large numbers, survive
 * SPDX-License-Identifier: MIT
 *
 * Lists that are as long as a snapshot wants are written entry by entry: a tree of all of them
 * would take tens of times the file. Only a single entry is ever a tree:
 *
 *   init_json_writer -> begin_json '{', put_json..., end_json '}' -> finish_json
 *
 * After init_json() jansson does not fail for lack of memory: the process ends instead. Values that
 * are made here are the caller's; set_ and put_ functions take over the value.
 */
#pragma once

#include "../sys/platform.h"

#include <jansson.h>

/* From now on jansson does not fail for lack of memory, which it tells from no other failure and
 * which its callers overlook. */
void init_json(void);

/* Names are bytes, JSON is UTF-8: bytes that are no UTF-8 become '?'. */
json_t *make_json_string(const char *text, size_t size);

/* Puts value, which belongs to the object from now on, under key. NULL is out of memory. */
void set_json(json_t *object, const char *key, json_t *value);

/* text under key; the bytes under key_hex, if they are no UTF-8 */
void set_json_text(json_t *object, const char *key, const char *text);

/* A string above 2^63 - 1, as jansson has no such integers: only an empty tensor has such a shape.
 */
json_t *make_json_number(uint64_t value);

/* See make_json_number(). */
void set_json_number(json_t *object, const char *key, uint64_t value);

/* As format_fingerprint() has it. */
void set_json_fingerprint(json_t *object, const char *key, const uint8_t *bytes);

/* Of 32 bytes. */
void set_json_sha256(json_t *object, const char *key, const uint8_t *bytes);

/* With the digits that mean something. */
void set_json_real(json_t *object, const char *key, double value);

/* A list of them. */
json_t *make_json_numbers(const uint64_t *values, unsigned n);

/* How a tensor lies in its file, as all listings say it. strides: of a view; else NULL */
json_t *make_json_layout(const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
                         const uint64_t *strides, uint64_t offset);

/* A document that is being written. */
struct json_writer {
    int (*write)(void *user, const void *data, size_t size); /* 0 or errno */
    void *user;
    size_t flags;   /* of jansson: JSON_COMPACT or JSON_INDENT(1), JSON_ENSURE_ASCII... */
    unsigned depth; /* objects and lists that are open */
    int is_first;   /* nothing is in the innermost one yet */
    int error;      /* the first one of write; from then on nothing is written */
    size_t n;       /* bytes in the buffer */
    char buffer[4096];
};

/* write NULL: to the FILE that user is, or standard output, whose errors are found at its end. */
void init_json_writer(struct json_writer *w, int (*write)(void *, const void *, size_t), void *user,
                      size_t flags);

/* What is put from now on lies in an object or a list, by bracket, which end_json() closes. key:
 * NULL in a list, and for the document itself. */
void begin_json(struct json_writer *w, const char *key, char bracket);
void end_json(struct json_writer *w, char bracket);

/* An entry, or what an object holds as members of the open one. */
void put_json(struct json_writer *w, const char *key, json_t *value);
void put_json_members(struct json_writer *w, json_t *object);

/* Writes what is in the buffer; returns w->error. */
int finish_json(struct json_writer *w);

/* Closes the document, an object on standard output, and ends its line. */
void end_json_line(struct json_writer *w);
