/* SPDX-License-Identifier: MIT */
#include "container.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "npy.h"
#include "safetensors.h"

const char *container_name(enum container_kind kind)
{
    switch (kind) {
    case CONTAINER_SAFETENSORS: return "safetensors";
    case CONTAINER_GGUF: return "GGUF";
    case CONTAINER_NPY: return "NumPy";
    case CONTAINER_NONE: break;
    }
    return "plain";
}

void container_free(struct container *c)
{
    free(c->tensors);
    free(c->shapes);
    free(c->strings);
    memset(c, 0, sizeof *c);
}

enum container_kind container_kind_of_name(const char *name)
{
    static const struct {
        const char *suffix;
        enum container_kind kind;
    } kinds[] = {{".safetensors", CONTAINER_SAFETENSORS},
                 {".gguf", CONTAINER_GGUF},
                 {".npy", CONTAINER_NPY}};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].suffix);
        if (size >= length && strcmp(name + size - length, kinds[i].suffix) == 0)
            return kinds[i].kind;
    }
    return CONTAINER_NONE;
}

static enum container_kind container_kind_of_content(const unsigned char *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) return CONTAINER_GGUF;
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) return CONTAINER_NPY;
    if (size >= 9 && data[8] == '{' && data[4] == 0 && data[5] == 0 && data[6] == 0 && data[7] == 0)
        return CONTAINER_SAFETENSORS;
    return CONTAINER_NONE;
}

static enum container_result parse_as(struct container *c, enum container_kind kind,
                                      const unsigned char *data, size_t size, uint64_t file_size)
{
    enum container_result result = CONTAINER_OTHER;
    struct container keep;
    memset(c, 0, sizeof *c);
    switch (kind) {
    case CONTAINER_SAFETENSORS:
        result = container_parse_safetensors(c, data, size, file_size);
        break;
    case CONTAINER_GGUF: result = container_parse_gguf(c, data, size, file_size); break;
    case CONTAINER_NPY: result = container_parse_npy(c, data, size, file_size); break;
    case CONTAINER_NONE: break;
    }
    if (result == CONTAINER_OK) return result;
    keep = *c; /* what the caller is told, without the storage */
    container_free(c);
    c->kind = keep.kind;
    c->need = keep.need;
    memcpy(c->error, keep.error, sizeof c->error);
    return result;
}

enum container_result container_parse(struct container *c, const void *data, size_t size,
                                      uint64_t file_size, enum container_kind expected)
{
    const unsigned char *bytes = (const unsigned char *)data;
    const enum container_kind kind = container_kind_of_content(bytes, size);
    enum container_result result = parse_as(c, kind, bytes, size, file_size);
    if (result == CONTAINER_OK || result == CONTAINER_MORE || result == CONTAINER_MEMORY ||
        expected == CONTAINER_NONE || expected == kind)
        return result;
    return parse_as(c, expected, bytes, size, file_size);
}
