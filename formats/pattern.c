/* SPDX-License-Identifier: MIT */
#include "pattern.h"

#include <stdint.h>
#include <string.h>

#include "printable.h"

/* What is left of a text that has several parts, one after another. */
struct text {
    const char *at;
    size_t size;
    const char *rest[2]; /* the parts that follow; or NULL */
};

/* Takes the next character. 0: the end, as no name and no pattern has a zero byte. */
static uint32_t next_character(struct text *t)
{
    size_t used;
    while (t->size == 0 && t->rest[0]) {
        t->at = t->rest[0];
        t->size = strlen(t->at);
        t->rest[0] = t->rest[1];
        t->rest[1] = NULL;
    }
    if (t->size == 0) return 0;
    uint32_t c = read_character(t->at, t->size, &used);
    if (used == 0) {
        c = 0xDC00u + (unsigned char)*t->at;
        used = 1;
    }
    t->at += used;
    t->size -= used;
    return c;
}

static int starts_with(const struct text *t, char c) { return t->size != 0 && *t->at == c; }

static struct text make_text(const char *at, size_t size)
{
    struct text t = {0};
    t.at = at;
    t.size = size;
    return t;
}

/* Reads a set, from behind its '[' to behind its ']'. *is_in: whether the set matches c. Returns
 * the fault of the set, or NULL. */
static const char *read_set(struct text *p, uint32_t c, int *is_in)
{
    int is_found = 0, is_first = 1;
    const int is_inverse = starts_with(p, '!');
    if (starts_with(p, '^')) return "'[^' is not known: a set of what is excluded begins with '[!'";
    if (is_inverse) (void)next_character(p);
    for (;; is_first = 0) {
        const uint32_t first = next_character(p);
        uint32_t last = first;
        if (first == 0) return "a '[' has no ']' behind the set; '[[]' stands for a '['";
        if (first == ']' && !is_first) break;
        if (first == '\\') return "'\\' is not known: '[*]' stands for a '*'";
        if (first == '[' && (starts_with(p, ':') || starts_with(p, '.') || starts_with(p, '=')))
            return "'[:', '[.' and '[=' are not known in a set: write '[a-z]'";
        if (first == '-' && !is_first && !starts_with(p, ']'))
            return "a '-' in a set stands between the ends of a range, or first, or last";
        if (first != '-' && starts_with(p, '-') && p->size > 1 && p->at[1] != ']') {
            (void)next_character(p);
            last = next_character(p);
            if (last == '\\' || last == '-' || last == '[')
                return "a range in a set ends with a character other than '\\', '-' and '['";
            if (last < first) return "a range in a set goes backwards";
        }
        is_found |= first <= c && c <= last;
    }
    *is_in = is_found != is_inverse;
    return NULL;
}

const char *find_pattern_fault(const char *pattern, size_t size)
{
    struct text p = make_text(pattern, size);
    const char *fault = NULL;
    uint32_t c;
    int is_in;
    while (!fault && (c = next_character(&p)) != 0) {
        if (c == '\\') fault = "'\\' is not known in a pattern: '[*]' stands for a '*'";
        if (c == '{')
            fault =
                "'{' is not known in a pattern: give a pattern for each; '[{]' stands for a '{'";
        if (c == '[') fault = read_set(&p, 0, &is_in);
    }
    return fault;
}

/* Matches one element of the pattern, which is not '*', with one character. */
static int match_one(struct text *pattern, struct text *name)
{
    const uint32_t wanted = next_character(pattern), c = next_character(name);
    int is_in = wanted == c || wanted == '?';
    if (wanted == '[' && read_set(pattern, c, &is_in)) is_in = 0;
    return is_in && wanted != 0;
}

/* If something does not match, the last '*' takes one more character. Trying an earlier '*' is not
 * needed: the last '*' can take any characters that the earlier one would take. */
int match_pattern(const char *pattern, size_t size, const char *directory, const char *name)
{
    struct text p = make_text(pattern, size), t = make_text(name, strlen(name)), p_star = p,
                t_star = t;
    int has_star = 0;
    if (find_pattern_fault(pattern, size)) return 0;
    if (directory && *directory) {
        t = make_text(directory, strlen(directory));
        t.rest[0] = "/";
        t.rest[1] = name;
    }
    for (;;) {
        struct text after = t;
        if (starts_with(&p, '*')) {
            (void)next_character(&p);
            p_star = p;
            t_star = t;
            has_star = 1;
            continue;
        }
        if (next_character(&after) == 0) return p.size == 0;
        if (match_one(&p, &t)) continue;
        if (!has_star) return 0;
        (void)next_character(&t_star);
        p = p_star;
        t = t_star;
    }
}
