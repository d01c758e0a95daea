/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "hex.h"
#include "../sys/memory.h"

static void *allocate_json(size_t size) { return resize(NULL, size, 1); }

void init_json(void) { json_set_alloc_funcs(allocate_json, free); }

json_t *make_json_string(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);
    if (!string) {
        char *copy = copy_string(text, size);
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)copy[i] > 126) copy[i] = '?';
        string = json_stringn(copy, size);
        free(copy);
    }
    return (json_t *)check_memory(string);
}

void set_json(json_t *object, const char *key, json_t *value)
{
    check_memory(value);
    if (json_object_set_new(object, key, value) != 0) check_memory(NULL);
}

void set_json_text(json_t *object, const char *key, const char *text)
{
    size_t size = strlen(text);
    json_t *exact = json_stringn(text, size);
    set_json(object, key, make_json_string(text, size));
    if (!exact) {
        char name[32], *hex = (char *)resize(NULL, 2 * size + 1, 1);
        snprintf(name, sizeof name, "%s_hex", key);
        format_hex(hex, text, size);
        set_json(object, name, json_string(hex));
        free(hex);
    }
    json_decref(exact);
}

json_t *make_json_number(uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX) return (json_t *)check_memory(json_integer((json_int_t)value));
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return (json_t *)check_memory(json_string(text));
}

void set_json_number(json_t *object, const char *key, uint64_t value)
{
    set_json(object, key, make_json_number(value));
}

void set_json_identity(json_t *object, const char *key, const uint8_t *bytes)
{
    char identity[2 * LMC_IDENTITY_SIZE + 1];
    format_identity(identity, bytes);
    set_json(object, key, json_string(identity));
}

void set_json_real(json_t *object, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    set_json(object, key, json_real(strtod(text, NULL)));
}
