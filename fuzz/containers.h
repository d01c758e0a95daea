/* containers.h - the command's parsers of files with tensors, with what is private in them, and
 * what all of them promise */
#ifndef FUZZ_CONTAINERS_H
#define FUZZ_CONTAINERS_H

#include "fuzz.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "../cli/format/container.c"
#include "../cli/format/container_check.c"
#include "../cli/format/dcp.c"
#include "../cli/format/gguf.c"
#include "../cli/format/npy.c"
#include "../cli/format/pickle.c"
#include "../cli/format/safetensors.c"
#include "../cli/format/torch_save.c"
#include "../cli/format/torch_views.c"
#include "../cli/format/zip.c"

static enum lmc_status discard(void *user, const void *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return LMC_OK;
}

/* The file with its tensors, as a snapshot would have it. */
static void check_acceptable(const struct container *c, uint64_t file_size)
{
    const lmc_sink sink = {discard, NULL};
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

static void check_container(const struct container *c, uint64_t file_size)
{
    uint64_t end = 0;
    FUZZ_CHECK(c->kind != CONTAINER_NONE && (c->n_tensors == 0 || c->tensors));
    FUZZ_CHECK(c->end == LMC_UNKNOWN_SIZE || c->end <= CONTAINER_MAX_SIZE);
    FUZZ_CHECK(c->end != LMC_UNKNOWN_SIZE || c->n_tensors == 0);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const lmc_tensor *t = &c->tensors[i];
        FUZZ_CHECK(t->offset >= end && t->size <= c->end && t->offset <= c->end - t->size);
        FUZZ_CHECK(strlen(t->name) <= CONTAINER_MAX_NAME && t->rank <= LMC_MAX_RANK);
        FUZZ_CHECK(strlen(t->dtype) >= 1 && strlen(t->dtype) <= CONTAINER_MAX_DTYPE);
        end = t->offset + t->size;
    }
    if (file_size != LMC_UNKNOWN_SIZE) FUZZ_CHECK(end <= file_size);
    if (file_size == LMC_UNKNOWN_SIZE) file_size = c->end;
    if (file_size != LMC_UNKNOWN_SIZE) check_acceptable(c, file_size);
}

#endif
