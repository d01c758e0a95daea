/* SPDX-License-Identifier: MIT */
#include "safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "container.h"
#include "container_check.h"

static enum container_result safetensors_read_shape(struct container *c, lmc_tensor *t,
                                                    const json_t *shape, uint64_t *room)
{
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape)) return container_bad(c, "tensor '%.100s' has no shape", t->name);
    if (rank > LMC_MAX_RANK)
        return container_bad(c, "tensor '%.100s' has more than %d dimensions", t->name,
                             LMC_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *n = json_array_get(shape, i);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return container_bad(c, "tensor '%.100s' has a shape that is not made of counts",
                                 t->name);
        room[i] = (uint64_t)json_integer_value(n);
    }
    t->rank = (unsigned)rank;
    t->shape = room;
    return CONTAINER_OK;
}

/* data_offsets are relative to the end of the header, at start. */
static enum container_result safetensors_read_offsets(struct container *c, lmc_tensor *t,
                                                      const json_t *offsets, uint64_t start)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return container_bad(c, "tensor '%.100s' has no valid data_offsets", t->name);
    if ((uint64_t)json_integer_value(end) > CONTAINER_MAX_SIZE - start)
        return container_bad(c, "tensor '%.100s' lies beyond the end of the file", t->name);
    t->offset = start + (uint64_t)json_integer_value(begin);
    t->size = (uint64_t)(json_integer_value(end) - json_integer_value(begin));
    return CONTAINER_OK;
}

static enum container_result safetensors_read_tensor(struct container *c, lmc_tensor *t,
                                                     const char *name, const json_t *entry,
                                                     uint64_t start, uint64_t *room)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    enum container_result result;
    uint64_t bytes;
    memset(t, 0, sizeof *t);
    t->name = name;
    if (strlen(name) > CONTAINER_MAX_NAME)
        return container_bad(c, "a tensor has a name of more than %u bytes", CONTAINER_MAX_NAME);
    if (!dtype || strlen(dtype) < 1 || strlen(dtype) > CONTAINER_MAX_DTYPE)
        return container_bad(c, "tensor '%.100s' has no dtype of 1 to %u characters", name,
                             CONTAINER_MAX_DTYPE);
    t->dtype = dtype;
    result = safetensors_read_shape(c, t, json_object_get(entry, "shape"), room);
    if (result == CONTAINER_OK)
        result = safetensors_read_offsets(c, t, json_object_get(entry, "data_offsets"), start);
    if (result == CONTAINER_OK && lmc_find_dtype(dtype) != LMC_AUTO &&
        (!container_count_bytes(t->shape, t->rank, lmc_dtype_bits(lmc_find_dtype(dtype)), &bytes) ||
         bytes != t->size))
        result = container_bad(
            c, "tensor '%.100s' has a size that its dtype %s and its shape do not give", name,
            dtype);
    return result;
}

static enum container_result safetensors_read_tensors(struct container *c, uint64_t start)
{
    size_t n_numbers = 0, n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(c->json, name, entry) n_numbers +=
        json_array_size(json_object_get(entry, "shape"));
    if (json_object_size(c->json) > CONTAINER_MAX_TENSORS)
        return container_bad(c, "it has more than 2^28 tensors");
    c->tensors = (lmc_tensor *)malloc((json_object_size(c->json) + 1) * sizeof *c->tensors);
    c->shapes = (uint64_t *)malloc((n_numbers + 1) * sizeof *c->shapes);
    if (!c->tensors || !c->shapes) return CONTAINER_MEMORY;
    n_numbers = 0;
    json_object_foreach(c->json, name, entry)
    {
        enum container_result result;
        if (strcmp(name, "__metadata__") == 0) continue;
        result =
            safetensors_read_tensor(c, &c->tensors[n], name, entry, start, c->shapes + n_numbers);
        if (result != CONTAINER_OK) return result;
        n_numbers += c->tensors[n++].rank;
    }
    c->n_tensors = n;
    return CONTAINER_OK;
}

enum container_result container_parse_safetensors(struct container *c, const unsigned char *data,
                                                  size_t size, uint64_t file_size)
{
    uint64_t json_size = 0;
    enum container_result result;
    json_error_t error;
    c->kind = CONTAINER_SAFETENSORS;
    if (size < 8) return container_more(c, 8, file_size);
    for (unsigned i = 0; i < 8; i++) json_size |= (uint64_t)data[i] << 8 * i;
    if (json_size > CONTAINER_MAX_HEADER - 8)
        return container_bad(
            c, "its safetensors header claims %llu bytes, more than the allowed 100000000",
            (unsigned long long)json_size);
    if (size > 8 && data[8] != '{')
        return container_bad(c, "its safetensors header does not begin with '{'");
    if (size < 8 + json_size) return container_more(c, 8 + json_size, file_size);
    c->json = json_loadb((const char *)data + 8, (size_t)json_size, JSON_REJECT_DUPLICATES, &error);
    if (!c->json)
        return json_error_code(&error) == json_error_out_of_memory
                   ? CONTAINER_MEMORY
                   : container_bad(c,
                                   "its safetensors header is no valid JSON (%.120s, at byte %d)",
                                   error.text, error.position);
    if (!json_is_object(c->json))
        return container_bad(c, "its safetensors header is no JSON object");
    c->end = 8 + json_size;
    result = safetensors_read_tensors(c, 8 + json_size);
    return result == CONTAINER_OK ? container_check_tensors(c, 8 + json_size, file_size, 0)
                                  : result;
}
