/* SPDX-License-Identifier: MIT */
#include "series_manifest.h"

#include <strings.h>

/* Which numbers of a name count: those of the highest rank that it has. */
enum { NO_NUMBER, BEHIND_LETTER, ALONE, BEHIND_STEP };

/* Whether the number at `at` follows a word, as in step1000, iter_1000, Step=1000. */
static int follows_step(const char *name, const char *at)
{
    static const char *const words[] = {"step", "iter"};
    size_t n = (size_t)(at - name);
    n -= n > 4 && strchr("-_=", at[-1]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= 4 && strncasecmp(name + n - 4, words[i], 4) == 0) return 1;
    return 0;
}

/* The end of what may have numbers that count: behind it is at most "@2", "@3", ... */
static const char *find_end(const char *name)
{
    const char *const at = strrchr(name, '@');
    return at && at[1] && at[1 + strspn(at + 1, DIGITS)] == 0 ? at : name + strlen(name);
}

/* NO_NUMBER: none begins at p. */
static int rank_of_number(const char *name, const char *p)
{
    if (!is_digit(*p) || (p > name && is_digit(p[-1]))) return NO_NUMBER;
    if (follows_step(name, p)) return BEHIND_STEP;
    return p > name && (p[-1] | 32) >= 'a' && (p[-1] | 32) <= 'z' ? BEHIND_LETTER : ALONE;
}

static int best_rank(const char *name)
{
    const char *const end = find_end(name);
    int best = NO_NUMBER;
    for (const char *p = name; p < end; p++)
        if (rank_of_number(name, p) > best) best = rank_of_number(name, p);
    return best;
}

/* The first number of that rank at p or later, without zeros before it; NULL: there is none. */
static const char *next_number(const char *name, const char *p, int rank, size_t *size)
{
    const char *const end = find_end(name);
    while (p < end && (rank == NO_NUMBER || rank_of_number(name, p) != rank)) p++;
    if (p >= end) return NULL;
    while (*p == '0') p++;
    *size = strspn(p, DIGITS);
    return p;
}

const char *find_number(const char *name, size_t *size)
{
    const int rank = best_rank(name);
    const char *found = NULL, *p = name;
    size_t n = 0;
    while (rank != NO_NUMBER && (p = next_number(name, p, rank, &n)) != NULL) {
        found = p;
        *size = n;
        p += n;
    }
    return found;
}

static int compare_digits(const char *a, size_t n_a, const char *b, size_t n_b)
{
    if (n_a != n_b) return n_a < n_b ? -1 : 1;
    return memcmp(a, b, n_a);
}

int has_that_number(const char *name, const char *digits)
{
    size_t size;
    const char *number = find_number(name, &size);
    digits += strspn(digits, "0");
    return number && compare_digits(number, size, digits, strlen(digits)) == 0;
}

int has_multiple(const char *name, uint64_t divisor)
{
    size_t size;
    const char *number = find_number(name, &size);
    uint64_t rest = 0;
    for (size_t i = 0; number && i < size; i++) {
        /* ten times the rest, in sums of two numbers below 2^63 */
        const uint64_t twice = (rest + rest) % divisor, four = (twice + twice) % divisor;
        rest = ((four + four) % divisor + twice) % divisor;
        rest = (rest + (uint64_t)(number[i] - '0')) % divisor;
    }
    return number && rest == 0;
}

int compare_steps(const char *a, const char *b)
{
    const int rank_a = best_rank(a), rank_b = best_rank(b);
    const char *p = a, *q = b;
    for (;;) {
        size_t n_a = 0, n_b = 0;
        p = next_number(a, p, rank_a, &n_a);
        q = next_number(b, q, rank_b, &n_b);
        if (!p || !q) return p ? 1 : q ? -1 : 0;
        const int order = compare_digits(p, n_a, q, n_b);
        if (order) return order;
        p += n_a;
        q += n_b;
    }
}
