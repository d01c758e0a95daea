/* SPDX-License-Identifier: MIT */
#include "container_check.h"

#include <stdarg.h>

#include "sorted.h"

void container_say(char *error, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, size, format, list);
    va_end(list);
}

void container_free(struct container *c)
{
    free(c->tensors);
    free(c->views);
    free(c->shapes);
    free(c->strings);
    memset(c, 0, sizeof *c);
}

uint64_t container_number(const unsigned char *p, unsigned size)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < size; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

#ifndef MIN_BUDGET /* of any file; fuzzers set less */
#define MIN_BUDGET ((uint64_t)16 << 20)
#endif

uint64_t container_budget(const struct view *v)
{
    return MIN_BUDGET +
           4 * (v->weight < CONTAINER_MAX_SIZE / 4 ? v->weight : CONTAINER_MAX_SIZE / 4);
}

enum container_result container_grow(void *array, uint64_t n, size_t *room, size_t size)
{
    uint64_t more = (uint64_t)*room * 2 + 64;
    void *memory;
    if (n <= *room) return CONTAINER_OK;
    if (more < n) more = n;
    if (more > SIZE_MAX / 2 / size) return CONTAINER_MEMORY;
    memcpy(&memory, array, sizeof memory);
    memory = realloc(memory, (size_t)more * size);
    if (!memory) return CONTAINER_MEMORY;
    memcpy(array, &memory, sizeof memory);
    *room = (size_t)more;
    return CONTAINER_OK;
}

enum container_result container_append(void *array, size_t *used, size_t *room, const void *things,
                                       size_t n, size_t size)
{
    char *memory;
    TRY(container_grow(array, (uint64_t)*used + n, room, size));
    memcpy(&memory, array, sizeof memory);
    if (n) memcpy(memory + *used * size, things, n * size);
    *used += n;
    return CONTAINER_OK;
}

enum container_result container_more(struct container *c, uint64_t need, uint64_t file_size)
{
    if (need > CONTAINER_MAX_HEADER)
        return container_bad(c, "its header is longer than %u bytes", CONTAINER_MAX_HEADER);
    if (need > file_size) return container_bad(c, "the file ends within its header");
    c->need = (size_t)need;
    return CONTAINER_MORE;
}

int container_count_bytes(const uint64_t *shape, unsigned rank, unsigned bits, uint64_t *bytes)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0) {
            *bytes = 0;
            return 1;
        }
    for (unsigned i = 0; i < rank; i++) {
        if (n > CONTAINER_MAX_SIZE / shape[i]) return 0;
        n *= shape[i];
    }
    /* divides first, as n * bits may overflow though n * bits / 8 does not */
    if (n % 8 * bits % 8 != 0 || n / 8 > CONTAINER_MAX_SIZE / bits) return 0;
    *bytes = n / 8 * bits + n % 8 * bits / 8;
    return *bytes <= CONTAINER_MAX_SIZE;
}

int container_compare_offsets(const void *a, const void *b)
{
    const lmc_tensor *x = (const lmc_tensor *)a, *y = (const lmc_tensor *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size) /* an empty tensor first, so that it does not overlap the next */
        return x->size < y->size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum container_result container_check_names(struct container *c)
{
    const char **names = (const char **)malloc((c->n_tensors + 1) * sizeof *names);
    enum container_result result = CONTAINER_OK;
    if (!names) return CONTAINER_MEMORY;
    for (size_t i = 0; i < c->n_tensors; i++) names[i] = c->tensors[i].name;
    qsort((void *)names, c->n_tensors, sizeof *names, compare_texts);
    for (size_t i = 1; i < c->n_tensors && result == CONTAINER_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            result = container_bad(c, "two tensors have the name '%.100s'", names[i]);
    free((void *)names);
    return result;
}

int container_fits(const lmc_tensor *t, uint64_t file_size)
{
    const uint64_t most = file_size < CONTAINER_MAX_SIZE ? file_size : CONTAINER_MAX_SIZE;
    return t->size <= most && t->offset <= most - t->size;
}

enum container_result container_check_tensors(struct container *c, uint64_t start,
                                              uint64_t file_size, int holes)
{
    uint64_t end = start;
    if (c->n_tensors)
        qsort(c->tensors, c->n_tensors, sizeof *c->tensors, container_compare_offsets);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        if (t->offset < end)
            return container_bad(c, "tensor '%.100s' overlaps %s%.100s%s", t->name,
                                 i ? "tensor '" : "the header", i ? c->tensors[i - 1].name : "",
                                 i ? "'" : "");
        if (t->offset > end && !holes)
            return container_bad(c, "no tensor covers the bytes before tensor '%.100s'", t->name);
        if (!container_fits(t, file_size))
            return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
        end = t->offset + t->size;
    }
    if (c->end < end) c->end = end;
    return container_check_names(c);
}
