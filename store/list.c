/* list.c - series.json: reading, checking and writing it (series.h)
 * SPDX-License-Identifier: MIT */
#include "series.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "../formats/container_check.h"
#include "../formats/printable.h"
#include "../formats/sorted.h"

#define LIST_VERSION 1

const char *const state_names[] = {"kept", "adding", "forgotten", "gone"};

const char *find_fault_of_name(const char *name)
{
    const size_t size = strlen(name);
    size_t used;
    if (size == 0 || size > MAX_SNAPSHOT_NAME) return "is empty or longer than 200 bytes";
    if (name[0] == '.' || name[0] == '-') return "begins with '.' or '-'";
    for (size_t i = 0; i < size; i++)
        if (name[i] == '/' || name[i] == '\\' || (unsigned char)name[i] < 32 || name[i] == 127)
            return "holds a slash, a backslash or a control character";
    for (size_t i = 0; i < size; i += used) {
        (void)read_character(name + i, size - i, &used);
        if (used == 0) return "is not UTF-8";
    }
    return NULL;
}

#define CHECK_SIZE (sizeof "\"crc32c\": \"00000000\"}\n" - 1)

static void format_check(char text[CHECK_SIZE + 1], const void *data, size_t size)
{
    (void)snprintf(text, CHECK_SIZE + 1, "\"crc32c\": \"%08" PRIx32 "\"}\n",
                   lmc_crc32c(0, data, size));
}

/* -- reading: JSON with known members only -- */

struct list_reader {
    struct list_of_series *l;
    char *at, *end;
    int is_broken; /* the checksum is wrong */
    enum list_result result;
};

/* Both return 0, as do all functions that read something if it is wrong. */
static int list_wrong(struct list_reader *r, const char *what)
{
    if (r->result == LIST_OK) {
        r->result = LIST_DAMAGED;
        r->l->fault = what;
    }
    return 0;
}

static int not_as_written(struct list_reader *r)
{
    return list_wrong(r, "it is not what lmc has written");
}

static void skip_blanks(struct list_reader *r) { r->at += strspn(r->at, " \t\r\n"); }

/* Takes the byte if it is the next one behind blanks. */
static int take_mark(struct list_reader *r, char byte)
{
    skip_blanks(r);
    if (*r->at != byte) return 0;
    r->at++;
    return 1;
}

/* Reads what follows a backslash. No name has any of the escapes that are missing here. */
static int read_list_escape(struct list_reader *r, char **out)
{
    size_t used;
    if (*r->at == '"' || *r->at == '/' || *r->at == '\\') {
        *(*out)++ = *r->at++;
        return 1;
    }
    const size_t size = read_escaped_character(*out, r->at, (size_t)(r->end - r->at), &used);
    const int is_right = size && **out != 0; /* a zero would end the text */
    *out += size;
    r->at += used;
    return is_right;
}

static int read_list_text(struct list_reader *r, char **text)
{
    char *out;
    if (!take_mark(r, '"')) return not_as_written(r);
    for (out = *text = r->at; *r->at != '"';) {
        size_t used;
        if (*r->at == '\\') {
            r->at++;
            if (!read_list_escape(r, &out)) return not_as_written(r);
            continue;
        }
        (void)read_character(r->at, (size_t)(r->end - r->at), &used);
        if (used == 0 || (unsigned char)*r->at < 32) return not_as_written(r);
        memmove(out, r->at, used);
        r->at += used;
        out += used;
    }
    r->at++;
    *out = 0;
    return 1;
}

static int read_list_number(struct list_reader *r, int64_t *number)
{
    skip_blanks(r);
    char *const digits = r->at + (*r->at == '-');
    if (!is_digit(*digits) || (*digits == '0' && is_digit(digits[1]))) return not_as_written(r);
    errno = 0;
    *number = strtoll(r->at, &r->at, 10);
    return errno || strchr(".eE", *r->at) ? not_as_written(r) : 1;
}

/* A member of an object: a text, a number, or (if both are NULL) the list of snapshots. */
struct list_member {
    const char *key;
    char **text;
    int64_t *number;
    int is_there;
};

static int read_snapshots(struct list_reader *r);

/* Reads an object that has only these members, each at most once. */
static int read_members(struct list_reader *r, struct list_member *members, size_t n)
{
    if (!take_mark(r, '{')) return not_as_written(r);
    do {
        struct list_member *m = members;
        char *key;
        if (!read_list_text(r, &key)) return 0;
        if (!take_mark(r, ':')) return not_as_written(r);
        while (m < members + n && strcmp(m->key, key) != 0) m++;
        if (m == members + n || m->is_there++) return list_wrong(r, "it holds something unknown");
        if (!(m->text     ? read_list_text(r, m->text)
              : m->number ? read_list_number(r, m->number)
                          : read_snapshots(r)))
            return 0;
        if (r->l->version > LIST_VERSION) { /* no rule here holds for what follows */
            r->result = LIST_NEWER;
            return 0;
        }
    } while (take_mark(r, ','));
    return take_mark(r, '}') ? 1 : not_as_written(r);
}

/* Reads a fingerprint: digits and small letters. Returns 0 if it is none. */
static int parse_fingerprint(uint8_t fingerprint[LMC_FINGERPRINT_SIZE], const char *text)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * LMC_FINGERPRINT_SIZE) return 0;
    memset(fingerprint, 0, LMC_FINGERPRINT_SIZE);
    for (size_t i = 0; text[i]; i++) {
        const char *const digit = strchr(digits, text[i]);
        if (!digit) return 0;
        fingerprint[i / 2] = (uint8_t)(fingerprint[i / 2] << 4 | (digit - digits));
    }
    return 1;
}

static int read_snapshot(struct list_reader *r, struct snapshot *e)
{
    char *state = NULL, *fingerprint = NULL, *next = NULL;
    int64_t size = 0, seen = 0;
    struct list_member members[] = {
        {"name", &e->name, NULL, 0},     {"state", &state, NULL, 0},
        {"time", NULL, &e->time, 0},     {"fingerprint", &fingerprint, NULL, 0},
        {"size", NULL, &size, 0},        {"seen", NULL, &seen, 0},
        {"source", &e->source, NULL, 0}, {"next", &next, NULL, 0}};
    if (!read_members(r, members, sizeof members / sizeof *members)) return 0;
    if (!members[0].is_there || !members[1].is_there || !members[2].is_there)
        return list_wrong(r, "an entry lacks something");
    if (find_fault_of_name(e->name) || (e->source && find_fault_of_name(e->source)))
        return list_wrong(r, "it holds a name that no snapshot can have");
    for (; strcmp(state, state_names[e->state]) != 0;
         e->state = (enum snapshot_state)(e->state + 1))
        if (e->state == STATE_GONE) return list_wrong(r, "it holds an unknown state");
    if (size < 0 || (e->state == STATE_ADDING) != !fingerprint ||
        (fingerprint && !parse_fingerprint(e->fingerprint, fingerprint)) ||
        (next && !parse_fingerprint(e->next, next)))
        return list_wrong(r, "it holds an invalid size or fingerprint");
    e->size = (uint64_t)size;
    e->seen = (uint64_t)seen;
    e->has_seen = members[5].is_there;
    e->has_next = next != NULL;
    return 1;
}

static int read_snapshots(struct list_reader *r)
{
    struct list_of_series *const l = r->l;
    if (r->is_broken) return list_wrong(r, "its checksum does not match");
    if (!take_mark(r, '[')) return not_as_written(r);
    if (take_mark(r, ']')) return 1;
    do {
        struct snapshot e;
        memset(&e, 0, sizeof e);
        if (!read_snapshot(r, &e)) return 0;
        if (container_append(&l->list, &l->n, &l->cap, &e, 1, sizeof e) != CONTAINER_OK) {
            r->result = LIST_MEMORY;
            return 0;
        }
    } while (take_mark(r, ','));
    return take_mark(r, ']') ? 1 : not_as_written(r);
}

static int check_names_differ(struct list_reader *r)
{
    const size_t n = r->l->n;
    char **const names = (char **)calloc(n + 1, sizeof *names);
    int is_twice = 0;
    if (!names) {
        r->result = LIST_MEMORY;
        return 0;
    }
    for (size_t i = 0; i < n; i++) names[i] = r->l->list[i].name;
    qsort((void *)names, n, sizeof *names, compare_texts);
    for (size_t i = 1; i < n; i++) is_twice |= strcmp(names[i - 1], names[i]) == 0;
    free((void *)names);
    return is_twice ? list_wrong(r, "it holds a name twice") : 1;
}

enum list_result parse_series(struct list_of_series *l, char *text, size_t size, int is_sealed)
{
    struct list_reader r = {l, text, text + size, 0, LIST_OK};
    char check[CHECK_SIZE + 1], *crc = NULL;
    struct list_member members[] = {{"lmc_series", NULL, &l->version, 0},
                                    {"every", NULL, &l->every, 0},
                                    {"snapshots", NULL, NULL, 0},
                                    {"crc32c", &crc, NULL, 0}};
    memset(l, 0, sizeof *l);
    if (is_sealed) {
        const size_t rest = size < CHECK_SIZE ? 0 : size - CHECK_SIZE;
        format_check(check, text, rest);
        r.is_broken = size < CHECK_SIZE || memcmp(check, text + rest, CHECK_SIZE) != 0;
    }
    if (!read_members(&r, members, sizeof members / sizeof *members)) return r.result;
    skip_blanks(&r);
    if (r.at != r.end || l->version != LIST_VERSION || !members[1].is_there ||
        !members[2].is_there || is_sealed != (crc != NULL))
        (void)not_as_written(&r);
    else if (l->every < 1) (void)list_wrong(&r, "the distance of anchors is invalid");
    else (void)check_names_differ(&r);
    return r.result;
}

/* -- writing -- */

enum { MOST_PUT = 200, MOST_ESCAPED = 6 }; /* bytes by one call of put(); for a byte of a name */

static LIKE_PRINTF(2, 3) char *put(char *out, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(out, MOST_PUT, format, values);
    va_end(values);
    return out + n;
}

/* Writes a string of JSON, with characters that a terminal would execute or hide as \uXXXX. */
static char *put_text(char *out, const char *key, const char *text)
{
    size_t used;
    out = put(out, "%s\"", key);
    for (size_t left = strlen(text); left; left -= used, text += used) {
        const uint32_t c = read_character(text, left, &used);
        const unsigned high = (unsigned)(0xD7C0 + (c >> 10)),
                       low = (unsigned)(0xDC00 + (c & 0x3FF));
        if (used == 0) used = 1; /* names are UTF-8 */
        if (c == '"' || c == '\\') *out++ = '\\';
        if (is_hidden_character(c) && c < 0x10000) out = put(out, "\\u%04x", (unsigned)c);
        else if (is_hidden_character(c)) out = put(out, "\\u%04x\\u%04x", high, low);
        else {
            memcpy(out, text, used);
            out += used;
        }
    }
    *out++ = '"';
    return out;
}

static char *put_fingerprint(char *out, const char *key, const uint8_t *fingerprint)
{
    out = put(out, "%s\"", key);
    for (size_t i = 0; i < LMC_FINGERPRINT_SIZE; i++) out = put(out, "%02x", fingerprint[i]);
    *out++ = '"';
    return out;
}

static char *put_snapshot(char *out, const struct snapshot *e)
{
    out = put_text(out, "{\"name\": ", e->name);
    out = put(out, ", \"state\": \"%s\"", state_names[e->state]);
    if (e->state != STATE_ADDING) {
        out = put_fingerprint(out, ", \"fingerprint\": ", e->fingerprint);
        out = put(out, ", \"size\": %" PRIu64, e->size);
    }
    out = put(out, ", \"time\": %" PRId64, e->time);
    if (e->has_seen) out = put(out, ", \"seen\": %" PRId64, (int64_t)e->seen);
    if (e->source) out = put_text(out, ", \"source\": ", e->source);
    if (e->has_next) out = put_fingerprint(out, ", \"next\": ", e->next);
    *out++ = '}';
    return out;
}

char *format_series(uint64_t every, const struct snapshot *list, size_t n, size_t *size)
{
    size_t room = 2 * MOST_PUT;
    for (size_t i = 0; i < n; i++)
        room += 2 * MOST_PUT + MOST_ESCAPED * strlen(list[i].name) +
                (list[i].source ? MOST_ESCAPED * strlen(list[i].source) : 0);
    char *const text = (char *)malloc(room), *out = text;
    if (!text) return NULL;
    out = put(out, "{\"lmc_series\": %d, \"every\": %" PRIu64 ", \"snapshots\": [\n", LIST_VERSION,
              every);
    for (size_t i = 0; i < n; i++) out = put(put_snapshot(out, &list[i]), i + 1 < n ? ",\n" : "\n");
    out = put(out, "],\n");
    format_check(out, text, (size_t)(out - text));
    *size = (size_t)(out - text) + CHECK_SIZE;
    return text;
}
