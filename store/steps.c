/* steps.c - the numbers in names, and what rules keep (series.h)
 * SPDX-License-Identifier: MIT */
#include "series.h"

#include <stdlib.h>
#include <string.h>

#include "../formats/printable.h"

/* Which numbers of a name count: those of the highest rank that it has. */
enum { NO_NUMBER, BEHIND_LETTER, ALONE, BEHIND_STEP };

/* Whether the number at `at` follows a word, as in step1000, iter_1000, Step=1000. */
static int follows_step(const char *name, const char *at)
{
    char word[4];
    size_t n = (size_t)(at - name);
    n -= n > 4 && strchr("-_=", at[-1]);
    if (n < 4) return 0;
    for (size_t i = 0; i < 4; i++) word[i] = (char)(name[n - 4 + i] | 32);
    return memcmp(word, "step", 4) == 0 || memcmp(word, "iter", 4) == 0;
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

int compare_number(const char *name, const char *digits)
{
    size_t size;
    const char *number = find_number(name, &size);
    digits += strspn(digits, "0");
    return number ? compare_digits(number, size, digits, strlen(digits)) : -1;
}

int compare_numbers(const char *a, const char *b)
{
    size_t n_a, n_b;
    const char *p = find_number(a, &n_a), *q = find_number(b, &n_b);
    return p && q ? compare_digits(p, n_a, q, n_b) : (p != NULL) - (q != NULL);
}

/* Whether the number in the name is a multiple of `divisor`, 1 to INT64_MAX. */
static int has_multiple(const char *name, uint64_t divisor)
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

/* Compares names by their numbers. */
static int compare_steps(const char *a, const char *b)
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

static int compare_by_step(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    const int order = x->step && y->step ? compare_steps(x->step, y->step) : !!x->step - !!y->step;
    return order ? order : x < y ? -1 : x > y;
}

void sort_by_steps(struct snapshot **list, size_t n)
{
    const char *highest = NULL;
    size_t unused;
    for (size_t i = 0; i < n; i++) {
        struct snapshot *const e = list[i];
        e->step = find_number(e->name, &unused) ? e->name : highest;
        if (e->state == STATE_KEPT && e->step && (!highest || compare_steps(e->step, highest) > 0))
            highest = e->step;
    }
    if (n) qsort((void *)list, n, sizeof *list, compare_by_step);
}

/* -- rules -- */

/* n_later: how many kept snapshots have higher steps. */
static int is_kept_by(const struct keep_rules *r, const char *name, size_t n_later)
{
    size_t unused;
    return n_later < r->last ||
           (r->every && (!find_number(name, &unused) || has_multiple(name, r->every)));
}

size_t choose_kept(struct snapshot *const *list, size_t n, const struct keep_rules *rules)
{
    size_t n_later = 0, n_stay = 0;
    for (size_t i = n; i && i--;)
        if (list[i]->state == STATE_KEPT) {
            list[i]->stays |= is_kept_by(rules, list[i]->name, n_later++);
            n_stay += list[i]->stays != 0;
        }
    for (size_t i = n; i && i-- && n_stay < rules->least;)
        if (list[i]->state == STATE_KEPT && !list[i]->stays) {
            list[i]->stays = 1;
            n_stay++;
        }
    return n_stay;
}
