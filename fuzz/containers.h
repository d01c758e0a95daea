/* containers.h - the command's parsers of files with tensors, with their private names, and checks
 * of what all of them promise */
#ifndef FUZZ_CONTAINERS_H
#define FUZZ_CONTAINERS_H

#include "fuzz.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "../formats/container.h"
#include "../formats/torch.h"
/* Smaller limits than the command's: inputs of kilobytes reach them. */
#undef CONTAINER_MAX_HEADER
#define CONTAINER_MAX_HEADER (100000u + 8)
#define MIN_SIZE ((size_t)1 << 13)
#define MAX_SIZE ((size_t)1 << 16)
#define MIN_NODES ((uint32_t)1 << 10)
#define MAX_NODES ((uint32_t)1 << 12)
#define MIN_BUDGET ((uint64_t)1 << 14)
#include "../formats/container.c"
#include "../formats/container_check.c"
#include "../formats/dcp.c"
#include "../formats/gguf.c"
#include "../formats/npy.c"
#include "../formats/pickle.c"
#include "../formats/printable.c"
#include "../formats/safetensors.c"
#include "../formats/torch_save.c"
#include "../formats/torch_views.c"
#include "../formats/zip.c"

static enum lmc_status discard(void *user, const void *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return LMC_OK;
}

/* A writer of snapshots must accept the file with its tensors. */
static void check_acceptable(const struct container *c, uint64_t file_size)
{
    const lmc_sink sink = {discard, NULL, {0, 0}};
    lmc_writer *writer = NULL;
    lmc_file file;
    memset(&file, 0, sizeof file);
    file.path = "file";
    file.size = file_size;
    file.n_tensors = c->n_tensors;
    file.tensors = c->tensors;
    FUZZ_CHECK(lmc_writer_open(&writer, &sink, NULL) == LMC_OK);
    FUZZ_CHECK(lmc_writer_begin_file(writer, &file, LMC_AUTO) == LMC_OK);
    lmc_writer_free(writer);
}

/* A view is within the file, too, from its first to its last element. */
static void check_view(const struct container_view *v, uint64_t file_size)
{
    uint64_t last = 0;
    FUZZ_CHECK(strlen(v->name) <= CONTAINER_MAX_NAME && *v->dtype && v->rank <= LMC_MAX_RANK);
    FUZZ_CHECK(v->offset <= file_size && v->bits >= 8);
    for (unsigned i = 0; i < v->rank; i++)
        if (v->shape[i] == 0) return;
    for (unsigned i = 0; i < v->rank; i++) {
        const uint64_t steps = v->shape[i] - 1, stride = v->strides[i];
        if (steps == 0 || stride == 0) continue;
        FUZZ_CHECK(stride <= file_size && steps <= file_size / stride);
        last += steps * stride;
        FUZZ_CHECK(last <= file_size);
    }
    FUZZ_CHECK((last + 1) * (v->bits / 8) <= file_size - v->offset);
}

static void check_container(const struct container *c, uint64_t file_size)
{
    uint64_t end = 0;
    FUZZ_CHECK(strcmp(container_name(c->kind), "plain") != 0 && (c->n_tensors == 0 || c->tensors));
    FUZZ_CHECK(c->end == LMC_UNKNOWN_SIZE || c->end <= CONTAINER_MAX_SIZE);
    FUZZ_CHECK(c->end != LMC_UNKNOWN_SIZE || c->n_tensors == 0);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        uint64_t first, last;
        const size_t part = torch_parse_part(t->name, &first, &last);
        const char *const descr = npy_descr(t->dtype);
        FUZZ_CHECK(!descr || strlen(descr) < 5);
        FUZZ_CHECK(part == 0 || (part < strlen(t->name) && first < last));
        FUZZ_CHECK(t->offset >= end && t->size <= c->end && t->offset <= c->end - t->size);
        FUZZ_CHECK(strlen(t->name) <= CONTAINER_MAX_NAME && t->rank <= LMC_MAX_RANK);
        FUZZ_CHECK(strlen(t->dtype) >= 1 && strlen(t->dtype) <= CONTAINER_MAX_DTYPE);
        end = t->offset + t->size;
    }
    if (file_size != LMC_UNKNOWN_SIZE) FUZZ_CHECK(end <= file_size);
    for (size_t i = 0; i < c->n_views; i++) check_view(&c->views[i], file_size);
    if (file_size == LMC_UNKNOWN_SIZE) file_size = c->end;
    if (file_size != LMC_UNKNOWN_SIZE) check_acceptable(c, file_size);
}

#endif
