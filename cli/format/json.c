/* SPDX-License-Identifier: MIT */
#include "json.h"

#include "../../formats/printable.h"
#include "print.h"

static void *allocate_json(size_t size) { return resize(NULL, size, 1); }

void init_json(void) { json_set_alloc_funcs(allocate_json, free); }

void init_json_writer(struct json_writer *w, FILE *f, size_t flags)
{
    w->f = f;
    w->flags = flags;
    w->depth = 0;
    w->is_first = 1;
}

/* Writes JSON as it is, but characters of strings that a terminal would execute or hide in the form
 * \uXXXX, which means the same in JSON. (jansson itself escapes only those below 32.) */
static int write_shown(const char *text, size_t size, void *file)
{
    FILE *const f = (FILE *)file;
    size_t start = 0, used;
    for (size_t at = 0; at < size; at += used) {
        const uint32_t c = read_character(text + at, size - at, &used);
        if (used == 0) used = 1; /* jansson writes no invalid UTF-8 */
        if (!is_hidden_character(c)) continue;
        fwrite(text + start, 1, at - start, f);
        start = at + used;
        if (c >= 0x10000)
            fprintf(f, "\\u%04x\\u%04x", 0xD7C0 + (unsigned)(c >> 10),
                    0xDC00 + (unsigned)(c & 0x3FF));
        else fprintf(f, "\\u%04x", (unsigned)c);
    }
    fwrite(text + start, 1, size - start, f);
    return 0;
}

/* Takes ownership of value. A write error shows when the FILE is flushed or closed. */
static void write_value(const struct json_writer *w, json_t *value)
{
    check_memory(value);
    (void)json_dump_callback(value, write_shown, w->f, w->flags | JSON_ENCODE_ANY);
    json_decref(value);
}

static json_t *make_string(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);
    if (string) return string;
    char *copy = copy_string(text, size);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)copy[i] > 126) copy[i] = '?';
    string = json_stringn(copy, size);
    free(copy);
    return string;
}

/* Begins a line as jansson does. */
static void start_line(const struct json_writer *w)
{
    if (w->flags & JSON_INDENT(JSON_MAX_INDENT)) fprintf(w->f, "\n%*s", (int)w->depth, "");
}

static void start_entry(struct json_writer *w, const char *key)
{
    const int is_one_line = !(w->flags & (JSON_COMPACT | JSON_INDENT(JSON_MAX_INDENT)));
    if (!w->is_first) fputs(is_one_line ? ", " : ",", w->f);
    if (w->depth) start_line(w);
    w->is_first = 0;
    if (!key) return;
    write_value(w, make_string(key, strlen(key)));
    fputs(w->flags & JSON_COMPACT ? ":" : ": ", w->f);
}

void begin_json(struct json_writer *w, const char *key, char bracket)
{
    start_entry(w, key);
    putc(bracket, w->f);
    w->depth++;
    w->is_first = 1;
}

void end_json(struct json_writer *w, char bracket)
{
    w->depth--;
    if (!w->is_first) start_line(w);
    putc(bracket, w->f);
    w->is_first = 0;
}

void end_json_line(struct json_writer *w)
{
    end_json(w, '}');
    putc('\n', w->f);
}

void put_json(struct json_writer *w, const char *key, json_t *value)
{
    start_entry(w, key);
    write_value(w, value);
}

void put_json_bytes(struct json_writer *w, const char *key, const char *text, size_t size)
{
    put_json(w, key, make_string(text, size));
}

void put_json_text(struct json_writer *w, const char *key, const char *text)
{
    const size_t size = strlen(text);
    json_t *exact = json_stringn(text, size);
    put_json_bytes(w, key, text, size);
    if (!exact) {
        char *name = format_text("%s_hex", key), *hex = (char *)resize(NULL, 2 * size + 1, 1);
        put_json(w, name, json_string(format_hex(hex, text, size)));
        free(name);
        free(hex);
    }
    json_decref(exact);
}

void put_json_number(struct json_writer *w, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put_json(w, key, value <= INT64_MAX ? json_integer((json_int_t)value) : json_string(text));
}

void put_json_numbers(struct json_writer *w, const char *key, const uint64_t *values, unsigned n)
{
    begin_json(w, key, '[');
    for (unsigned i = 0; i < n; i++) put_json_number(w, NULL, values[i]);
    end_json(w, ']');
}

void put_json_hex(struct json_writer *w, const char *key, const uint8_t *bytes, size_t size)
{
    char text[128];
    put_json(w, key, json_string(format_hex(text, bytes, size)));
}

void put_json_real(struct json_writer *w, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    put_json(w, key, json_real(strtod(text, NULL)));
}

void put_json_layout(struct json_writer *w, const char *name, const char *dtype, unsigned rank,
                     const uint64_t *shape, const uint64_t *strides, uint64_t offset)
{
    put_json_text(w, "name", name);
    put_json_text(w, "dtype", dtype);
    put_json_numbers(w, "shape", shape, rank);
    if (strides) put_json_numbers(w, "strides", strides, rank);
    put_json_number(w, "offset", offset);
}

void print_verdict(const char *name, int code, int is_payload)
{
    static const char *const results[] = {"ok", "error", "error", "damaged", "base missing"};
    struct json_writer w;
    const char *const message = take_error();
    init_json_writer(&w, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    put_json_text(&w, "name", name);
    put_json(&w, "result", json_string(is_payload ? "payload intact" : results[code]));
    put_json(&w, "exit", json_integer(code));
    if (code != CODE_OK) put_json_text(&w, "message", message);
    end_json_line(&w);
}
