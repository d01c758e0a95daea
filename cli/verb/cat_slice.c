/* SPDX-License-Identifier: MIT */
#include "cat_slice.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../sys/report.h"

/* An integer; 0 if there is none. */
static int parse_index(const char **text, long long *value)
{
    char *end;
    if (**text != '-' && (**text < '0' || **text > '9')) return 0;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    if (end == *text || errno == ERANGE) return 0;
    *text = end;
    return 1;
}

/* A bound of a range in 0 .. n, negative ones counted from the end, clamped as in NumPy. */
static uint64_t clamp_bound(long long bound, uint64_t n)
{
    if (bound < 0) {
        uint64_t back = (uint64_t)-(bound + 1) + 1;
        return back > n ? 0 : n - back;
    }
    return (uint64_t)bound > n ? n : (uint64_t)bound;
}

/* One dimension of n elements: ":", "3", "-1", "2:", ":5", "2:5", "2:5:1". Returns 0 if it is none
 * of them, -1 if the index is out of range. */
static int parse_dimension(const char **text, uint64_t n, uint64_t *start, uint64_t *count,
                           int *dropped)
{
    long long value, step;
    int has_start = parse_index(text, &value);
    uint64_t stop = n;
    *dropped = has_start && **text != ':';
    if (*dropped) {
        uint64_t back = value < 0 ? (uint64_t)-(value + 1) + 1 : 0;
        if (value < 0 ? back > n : (uint64_t)value >= n) return -1;
        *start = value < 0 ? n - back : (uint64_t)value;
        *count = 1;
        return 1;
    }
    if (**text != ':') return 0;
    ++*text;
    *start = has_start ? clamp_bound(value, n) : 0;
    if (parse_index(text, &value)) stop = clamp_bound(value, n);
    if (**text == ':') {
        ++*text;
        if (**text != ',' && **text != ']' && (!parse_index(text, &step) || step != 1)) return 0;
    }
    *count = stop > *start ? stop - *start : 0;
    return 1;
}

int parse_slice(struct slice *s, const char *text, const lmc_tensor *t)
{
    unsigned i = 0;
    while (*text != ']') {
        const size_t size = strcspn(text, ",]");
        const char *part = text;
        int result;
        if (i == t->rank)
            return fail(CODE_USAGE, t->name, "has %u dimensions, the slice has more", t->rank);
        result = parse_dimension(&text, t->shape[i], &s->start[i], &s->count[i], &s->dropped[i]);
        if (result < 0)
            return fail(CODE_USAGE, t->name,
                        "has %llu elements in dimension %u, and the slice asks for number %.*s",
                        (unsigned long long)t->shape[i], i + 1, (int)(size < 30 ? size : 30), part);
        if (result == 0 || (*text != ',' && *text != ']'))
            return fail(CODE_USAGE, t->name,
                        "a slice looks like [0:128,:,3]; steps other than 1 are not supported");
        if (*text == ',') text++;
        i++;
    }
    if (text[1]) return fail(CODE_USAGE, t->name, "a slice ends with its first ']'");
    for (; i < t->rank; i++) {
        s->start[i] = 0;
        s->count[i] = t->shape[i];
        s->dropped[i] = 0;
    }
    return CODE_OK;
}
