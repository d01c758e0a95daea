/* container_check.h - the parsers, and checks that they share
 * SPDX-License-Identifier: MIT
 *
 * The functions that return a result also set c->error or c->need.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "printable.h"

/* See container_parse(): data is the beginning of the file, size bytes of file_size. The storage is
 * to be freed even after an error. */
enum container_result container_parse_safetensors(struct container *c, const unsigned char *data,
                                                  size_t size, uint64_t file_size);
enum container_result container_parse_gguf(struct container *c, const unsigned char *data,
                                           size_t size, uint64_t file_size);
enum container_result container_parse_npy(struct container *c, const unsigned char *data,
                                          size_t size, uint64_t file_size);

#define CONTAINER_MAX_TENSORS (1u << 28) /* limit of an LMC file */
#define CONTAINER_MAX_NAME 65535u
#define CONTAINER_MAX_DTYPE 32u
#define CONTAINER_MAX_SIZE ((uint64_t)INT64_MAX)

/* Writes what is wrong to x->error. x: a container, or another struct with `error`. It is a macro,
 * so that compilers see the result BAD, and do not warn of uninitialised values. */
#define container_bad(x, ...)                                                                      \
    (container_say((x)->error, sizeof(x)->error, __VA_ARGS__), CONTAINER_BAD)
LIKE_PRINTF(3, 4) void container_say(char *error, size_t size, const char *format, ...);

/* Returns the call's result from the function, unless it is CONTAINER_OK. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const enum container_result tried = (call);                                                \
        if (tried != CONTAINER_OK) return tried;                                                   \
    } while (0)

/* A little-endian number of size bytes. */
uint64_t container_number(const unsigned char *p, unsigned size);

/* The limit for bytes of the list of a file's content: a few stored bytes can repeat long names. */
uint64_t container_budget(const struct view *v);

/* Grows *(T **)array, which has room for *room items of that size, to at least n. OK or MEMORY. */
enum container_result container_grow(void *array, uint64_t n, size_t *room, size_t size);

/* Appends n items of that size to *(T **)array, which has *used of them. OK or MEMORY. */
enum container_result container_append(void *array, size_t *used, size_t *room, const void *things,
                                       size_t n, size_t size);

/* For a header of `need` bytes: MORE; BAD if the file has fewer, or `need` is over the limit. */
enum container_result container_more(struct container *c, uint64_t need, uint64_t file_size);

/* *bytes: size of all elements of the shape, of `bits` bits each. Returns 0 if the size is not a
 * whole number of bytes, or over the limit. */
int container_count_bytes(const uint64_t *shape, unsigned rank, unsigned bits, uint64_t *bytes);

/* For qsort() of tensors. */
int container_compare_offsets(const void *a, const void *b);

/* Whether the tensor is within a file of that size; LMC_UNKNOWN_SIZE: of any possible size. */
int container_fits(const lmc_tensor *t, uint64_t file_size);

/* Sorts and checks the tensors. Offsets are those in the file. holes: allows gaps between them. */
enum container_result container_check_tensors(struct container *c, uint64_t start,
                                              uint64_t file_size, int holes);
