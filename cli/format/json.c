/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <jansson.h>

#include "print.h"

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

json_t *make_json_numbers(const uint64_t *values, unsigned n)
{
    json_t *list = (json_t *)check_memory(json_array());
    for (unsigned i = 0; i < n; i++)
        if (json_array_append_new(list, make_json_number(values[i])) != 0) check_memory(NULL);
    return list;
}

json_t *make_json_layout(const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
                         const uint64_t *strides, uint64_t offset)
{
    json_t *object = (json_t *)check_memory(json_object());
    set_json_text(object, "name", name);
    set_json_text(object, "dtype", dtype);
    set_json(object, "shape", make_json_numbers(shape, rank));
    if (strides) set_json(object, "strides", make_json_numbers(strides, rank));
    set_json_number(object, "offset", offset);
    return object;
}

void set_json_number(json_t *object, const char *key, uint64_t value)
{
    set_json(object, key, make_json_number(value));
}

void set_json_fingerprint(json_t *object, const char *key, const uint8_t *bytes)
{
    char fingerprint[2 * LMC_FINGERPRINT_SIZE + 1];
    format_fingerprint(fingerprint, bytes);
    set_json(object, key, json_string(fingerprint));
}

void set_json_sha256(json_t *object, const char *key, const uint8_t *bytes)
{
    char hash[2 * 32 + 1];
    format_hex(hash, bytes, 32);
    set_json(object, key, json_string(hash));
}

void set_json_real(json_t *object, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    set_json(object, key, json_real(strtod(text, NULL)));
}

/* -- writing -- */

static int write_to_stream(void *user, const void *data, size_t size)
{
    fwrite(data, 1, size, (FILE *)user);
    return 0;
}

void init_json_writer(struct json_writer *w, int (*write)(void *, const void *, size_t), void *user,
                      size_t flags)
{
    w->write = write ? write : write_to_stream;
    w->user = write || user ? user : stdout;
    w->flags = flags;
    w->depth = 0;
    w->is_first = 1;
    w->error = 0;
    w->n = 0;
}

int finish_json(struct json_writer *w)
{
    if (w->n && !w->error) w->error = w->write(w->user, w->buffer, w->n);
    w->n = 0;
    return w->error;
}

/* As jansson calls it. */
static int add_to_buffer(const char *text, size_t size, void *user)
{
    struct json_writer *const w = (struct json_writer *)user;
    while (size) {
        const size_t room = sizeof w->buffer - w->n, part = size < room ? size : room;
        memcpy(w->buffer + w->n, text, part);
        w->n += part;
        text += part;
        size -= part;
        if (w->n == sizeof w->buffer) (void)finish_json(w);
    }
    return 0;
}

static void write_value(struct json_writer *w, const json_t *value)
{
    if (json_dump_callback(value, add_to_buffer, w, w->flags | JSON_ENCODE_ANY) != 0)
        check_memory(NULL);
}

/* The layout is jansson's. */
static void start_line(struct json_writer *w)
{
    if (!(w->flags & JSON_INDENT(JSON_MAX_INDENT))) return;
    (void)add_to_buffer("\n", 1, w);
    for (unsigned i = 0; i < w->depth; i++) (void)add_to_buffer(" ", 1, w);
}

static void start_entry(struct json_writer *w, const char *key)
{
    if (!w->is_first) (void)add_to_buffer(",", 1, w);
    if (w->depth) start_line(w);
    w->is_first = 0;
    if (!key) return;
    json_t *const text = make_json_string(key, strlen(key));
    write_value(w, text);
    json_decref(text);
    (void)add_to_buffer(": ", w->flags & JSON_COMPACT ? 1 : 2, w);
}

void begin_json(struct json_writer *w, const char *key, char bracket)
{
    start_entry(w, key);
    (void)add_to_buffer(&bracket, 1, w);
    w->depth++;
    w->is_first = 1;
}

void end_json(struct json_writer *w, char bracket)
{
    w->depth--;
    if (!w->is_first) start_line(w);
    (void)add_to_buffer(&bracket, 1, w);
    w->is_first = 0;
}

void put_json(struct json_writer *w, const char *key, json_t *value)
{
    check_memory(value);
    if (json_is_object(value) && !(w->flags & JSON_COMPACT)) { /* jansson would indent from 0 on */
        begin_json(w, key, '{');
        put_json_members(w, json_incref(value));
        end_json(w, '}');
    } else if (json_is_array(value) && !(w->flags & JSON_COMPACT)) {
        size_t i;
        json_t *item;
        begin_json(w, key, '[');
        json_array_foreach(value, i, item) put_json(w, NULL, json_incref(item));
        end_json(w, ']');
    } else {
        start_entry(w, key);
        write_value(w, value);
    }
    json_decref(value);
}

void put_json_members(struct json_writer *w, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) put_json(w, key, json_incref(value));
    json_decref(object);
}

void end_json_line(struct json_writer *w)
{
    end_json(w, '}');
    (void)finish_json(w);
    putchar('\n');
}
