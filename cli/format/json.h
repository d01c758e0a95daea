/* json.h - values of JSON, made so that names that are not UTF-8, and large numbers, survive
 * SPDX-License-Identifier: MIT
 *
 * After init_json() jansson does not fail for lack of memory: the process ends instead. Values that
 * are made here are the caller's; set_ functions take over the value.
 */
#ifndef LMC_CLI_JSON_H
#define LMC_CLI_JSON_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
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

/* Above 2^63 - 1, which only the dimension of an empty tensor can be, a string: jansson has no
 * larger integers. */
json_t *make_json_number(uint64_t value);

/* See make_json_number(). */
void set_json_number(json_t *object, const char *key, uint64_t value);

/* As format_identity() has it. */
void set_json_identity(json_t *object, const char *key, const uint8_t *bytes);

/* With the digits that mean something. */
void set_json_real(json_t *object, const char *key, double value);

#endif
