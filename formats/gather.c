/* gather.c - elements of a view, in the order of its shape (container.h)
 * SPDX-License-Identifier: MIT */
#include "container.h"

#include <string.h>

/* Copies n elements of a row. width is a constant in most calls. */
static inline void gather_row(unsigned char *dst, const unsigned char *from, size_t n, size_t step,
                              size_t width)
{
    for (size_t i = 0; i < n; i++) memcpy(dst + i * width, from + i * step, width);
}

size_t gather_elements(struct gathering *g, void *dst, size_t cap)
{
    const unsigned inner = g->rank ? g->rank - 1 : 0; /* rows are along this dimension */
    const size_t step = g->rank ? (size_t)g->strides[inner] * g->width : 0;
    unsigned char *out = (unsigned char *)dst;
    while (!g->is_end && cap >= g->width) {
        const uint64_t left = g->rank ? g->counts[inner] - g->at[inner] : 1;
        const size_t n = left < cap / g->width ? (size_t)left : cap / g->width;
        const unsigned char *from = g->span;
        unsigned i = g->rank;
        for (unsigned k = 0; k < g->rank; k++)
            from += (size_t)(g->at[k] * g->strides[k]) * g->width;
        switch (step == g->width ? 0 : g->width) {
        case 0: memcpy(out, from, n * step); break; /* contiguous */
        case 1: gather_row(out, from, n, step, 1); break;
        case 2: gather_row(out, from, n, step, 2); break;
        case 4: gather_row(out, from, n, step, 4); break;
        case 8: gather_row(out, from, n, step, 8); break;
        default: gather_row(out, from, n, step, g->width);
        }
        out += n * g->width;
        cap -= n * g->width;
        if (i > 0) g->at[inner] += n;
        while (i > 0 && g->at[i - 1] == g->counts[i - 1]) {
            g->at[--i] = 0;
            if (i > 0) g->at[i - 1]++;
        }
        g->is_end = i == 0;
    }
    return (size_t)(out - (unsigned char *)dst);
}

int resolve_flags(void *elements, size_t size, const char *dtype, unsigned flags)
{
    static const struct {
        const char *name;
        unsigned char width, is_complex;
    } known[] = {{"F16", 2, 0}, {"BF16", 2, 0}, {"F32", 4, 0},
                 {"F64", 8, 0}, {"C64", 8, 1},  {"C128", 16, 1}};
    unsigned char *const bytes = (unsigned char *)elements;
    const int is_negated = (flags & VIEW_NEGATED) != 0;
    if (!flags) return 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i].name) == 0) {
            /* the sign is the top bit of the last byte: of the element; if complex, of each half */
            const size_t width = known[i].width;
            const int is_conjugated = known[i].is_complex && (flags & VIEW_CONJUGATED);
            for (size_t k = 0; k + width <= size; k += width) {
                if (known[i].is_complex && is_negated) bytes[k + width / 2 - 1] ^= 0x80;
                if (is_negated != is_conjugated) bytes[k + width - 1] ^= 0x80;
            }
            return 1;
        }
    return 0;
}
