#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"

/* Memory in place of files: callbacks for writers, readers and whatever takes a stream.
 *
 *     data |----- written ---------------|- room -|
 *          0             ^ position      ^ size   ^ cap
 *                          of the stream   sink: appends here; source: ends here
 *
 * The caller owns the lmc_memory; sink, source and stream only point to it. While a sink writes,
 * data may move, so it must not be read by another thread. */

/* A lmc_memory is a lmc__buffer that the caller can look into, and grows by the same rule. If there
 * is no memory (LMC_ERR_MEMORY), what was written before is still there. */
static enum lmc_status lmc__write_memory(void *user, const void *data, size_t size)
{
    lmc_memory *m = (lmc_memory *)user;
    lmc__buffer b = {m->data, m->size, m->cap, m->alloc_user};
    const enum lmc_status status = lmc__append(&b, data, size);
    m->data = b.data;
    m->size = b.size;
    m->cap = b.cap;
    return status;
}

static enum lmc_status lmc__read_memory_at(void *user, uint64_t offset, void *dst, size_t size)
{
    const lmc_memory *m = (const lmc_memory *)user;
    if (offset > m->size || size > m->size - offset) return LMC_ERR_READ;
    memcpy(dst, m->data + offset, size);
    return LMC_OK;
}

/* What is left from position on; a position beyond the end is the caller's mistake, and an
 * error. */
static enum lmc_status lmc__read_memory(void *user, void *dst, size_t size, size_t *got)
{
    lmc_memory *m = (lmc_memory *)user;
    if (m->position > m->size) return LMC_ERR_READ;
    *got = lmc__min(size, m->size - m->position);
    if (*got) memcpy(dst, m->data + m->position, *got);
    m->position += *got;
    return LMC_OK;
}

LMC_API lmc_sink lmc_memory_sink(lmc_memory *memory)
{
    const lmc_sink sink = {lmc__write_memory, memory};
    return sink;
}

/* Of what is there now: a source has a size from the start, and does not see what is appended. */
LMC_API lmc_source lmc_memory_source(lmc_memory *memory)
{
    const lmc_source source = {lmc__read_memory_at, memory, memory->size};
    return source;
}

/* From position on, which the caller may set; it ends, with 0 bytes and no error, at size. */
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory)
{
    const lmc_stream stream = {lmc__read_memory, memory};
    return stream;
}

/* It can be used again. alloc_user stays, as the caller has set it. */
LMC_API void lmc_memory_free(lmc_memory *memory)
{
    if (!memory) return;
    if (memory->data) (void)LMC_REALLOC(memory->alloc_user, memory->data, memory->cap, 0);
    memory->data = NULL;
    memory->size = memory->cap = memory->position = 0;
}
