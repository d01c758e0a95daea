/* make.h - makes files from an input, each byte of which is a decision
 *
 * A mutator of whole files hardly ever makes a long key above many levels, because sizes and depths
 * are in several places that must agree. Here they agree by construction, and are drawn near limits
 * of the code: at a limit, one below, one above, and far beyond. The limits are those of
 * tests/limits.txt, from which fuzz/build makes drawn_limits.h. After its end an input is zeros, by
 * which everything ends.
 */
#ifndef FUZZ_MAKE_H
#define FUZZ_MAKE_H

#include "fuzz.h"

static const uint64_t make_limits[] = {
#define LIMIT(value) (uint64_t)(value),
#include "drawn_limits.h"
#undef LIMIT
};

struct maker {
    fuzz_input in; /* decisions that are left */
    uint8_t *data;
    size_t size, cap; /* bytes beyond are left out */
};

static unsigned make_choice(struct maker *m)
{
    if (m->in.size == 0) return 0;
    m->in.size--;
    return *m->in.data++;
}

/* One of n. */
static unsigned make_one_of(struct maker *m, size_t n) { return make_choice(m) % (unsigned)n; }

/* 1 once in n times, and never after the end of the input. */
static int make_rarely(struct maker *m, unsigned n) { return make_choice(m) % n == n - 1; }

static uint64_t make_bytes_of_number(struct maker *m, unsigned n_bytes)
{
    uint64_t x = 0;
    while (n_bytes--) x = x << 8 | make_choice(m);
    return x;
}

/* A number near a limit; also one that two parts reach together. */
static uint64_t make_near_limit(struct maker *m)
{
    const uint64_t limit = make_limits[make_one_of(m, sizeof make_limits / sizeof *make_limits)];
    switch (make_one_of(m, 8)) {
    case 0: return limit;
    case 1: return limit - 1;
    case 2: return limit + 1;
    case 3: return limit - make_choice(m);
    case 4: return limit * 2 + 1;
    case 5: return limit / 2 + make_choice(m) % 3 - 1;
    case 6: return limit * 17;
    default: return limit + make_choice(m);
    }
}

static uint64_t make_number(struct maker *m)
{
    const unsigned kind = make_choice(m);
    if (kind < 160) return kind % 16;
    if (kind < 232) return make_near_limit(m);
    if (kind < 240) return make_bytes_of_number(m, 2);
    if (kind < 250) return ((uint64_t)1 << make_choice(m) % 64) + make_choice(m) % 3 - 1;
    return make_bytes_of_number(m, 8);
}

/* A size or a count: no more than fits. */
static size_t make_count(struct maker *m, size_t size_of_one)
{
    const uint64_t n = make_number(m);
    const size_t most = (m->cap - m->size) / size_of_one;
    return n < most ? (size_t)n : most;
}

/* -- what is written -- */

static void make_put(struct maker *m, const void *data, size_t size)
{
    if (size > m->cap - m->size) size = m->cap - m->size;
    if (size) memcpy(m->data + m->size, data, size);
    m->size += size;
}

static void make_chars(struct maker *m, const char *text) { make_put(m, text, strlen(text)); }

static void make_byte(struct maker *m, unsigned byte)
{
    if (m->size < m->cap) m->data[m->size++] = (uint8_t)byte;
}

static void make_fill(struct maker *m, unsigned byte, size_t size)
{
    if (size > m->cap - m->size) size = m->cap - m->size;
    memset(m->data + m->size, (int)byte, size);
    m->size += size;
}

static void put_le(uint8_t *dst, uint64_t x, unsigned size)
{
    for (unsigned i = 0; i < size; i++) dst[i] = (uint8_t)(x >> 8 * i);
}

static void make_le(struct maker *m, uint64_t x, unsigned size)
{
    uint8_t bytes[8];
    put_le(bytes, x, size);
    make_put(m, bytes, size);
}

static void make_decimal(struct maker *m, uint64_t x)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)x);
    make_chars(m, digits);
}

/* Letters, also those with a meaning in some format; the first ones differ from text to text. */
static void make_name(struct maker *m, size_t size)
{
    static const char letters[] = "abcdefghijklmnop./[:]@\n\x80\xC3\xA4\"\\ 01*?";
    const unsigned first = make_choice(m), rest = make_one_of(m, sizeof letters);
    if (size) make_byte(m, (unsigned char)letters[first % (sizeof letters - 1)]);
    if (size > 1) make_byte(m, 'a' + first % 25);
    /* mostly one letter; the zero byte is the last of the list */
    if (size > 2) make_fill(m, (unsigned char)letters[rest], size - 2);
}

/* Sometimes changes a few bytes, so that fields no longer agree. */
static void make_damage(struct maker *m, size_t from)
{
    const unsigned chance = make_choice(m);
    for (unsigned n = chance < 208 ? 0 : 1 + chance % 4; n-- && m->size > from;) {
        const size_t at = from + (size_t)(make_bytes_of_number(m, 3) % (m->size - from));
        const unsigned how = make_choice(m);
        if (how < 200) m->data[at] = (uint8_t)make_choice(m);
        else if (how < 240) put_le(m->data + at, make_number(m), m->size - at < 4 ? 1 : 4);
        else m->size = at;
    }
}

/* -- texts -- */

struct make_grammar {
    const char *const *words;
    size_t n_words;
    void (*entry)(struct maker *m, void *user); /* a complete, correct part of the format */
    void *user;
};

/* Closes open brackets, the last first; not in a long text, which would take time. */
#define MAKE_MOST_CLOSED ((size_t)1 << 14)
static void make_closed(struct maker *m, size_t from)
{
    const size_t end = m->size;
    size_t n_closed = 0;
    if (end - from > MAKE_MOST_CLOSED) return;
    for (size_t i = end; i-- > from;) {
        const int c = m->data[i];
        if (c == '}' || c == ']' || c == ')') n_closed++;
        if (c != '{' && c != '[' && c != '(') continue;
        if (n_closed) n_closed--;
        else make_byte(m, c == '{' ? '}' : c == '[' ? ']' : ')');
    }
}

/* The rest of the input becomes a text: ASCII bytes are copied, other bytes become words, numbers,
 * repetitions. */
static void make_words(struct maker *m, const struct make_grammar *g)
{
    const size_t from = m->size;
    size_t mark = from;
    while (m->in.size && m->size < m->cap) {
        const unsigned b = make_choice(m);
        if (b < 0x80) make_byte(m, b);
        else if (b < 0xB8) make_chars(m, g->words[(b - 0x80) % g->n_words]);
        else if (b < 0xC0) mark = m->size;
        else if (b < 0xD0) make_decimal(m, make_number(m));
        else if (b < 0xE0) make_name(m, make_count(m, 1));
        else if (b < 0xE8) { /* the text behind the mark, or one byte, repeated */
            const size_t start = mark < m->size ? mark
                                 : m->size      ? m->size - 1
                                                : 0,
                         size = m->size - start;
            for (size_t n = size ? make_count(m, size) : 0; n--;)
                make_put(m, m->data + start, size);
            mark = m->size;
        } else if (b < 0xEC) make_closed(m, from);
        else if (b < 0xF8) g->entry(m, g->user);
        else make_byte(m, make_choice(m));
    }
}

#endif
