#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"

/* Memory in place of files, as sinks, sources and streams. They only point to the lmc_memory, which
 * the caller owns. A write to the sink may move the data, so no other thread may read the data
 * meanwhile. */

/* An lmc_memory is the public form of an lmc__buffer, and grows in the same way. After
 * LMC_ERR_MEMORY the bytes that were written before are still there. */
static enum lmc_status lmc__write_memory(void *user, const void *data, size_t size)
{
    lmc_memory *m = (lmc_memory *)user;
    lmc__buffer b = {m->data, m->size, m->cap, m->allocator};
    const enum lmc_status status =
        m->size <= m->cap ? lmc__append(&b, data, size) : LMC_ERR_ARGUMENT;
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

/* Reads from position on. A position beyond the end is an error of the caller: LMC_ERR_READ. */
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
    const lmc_sink sink = {memory ? lmc__write_memory : NULL, memory, {0, 0}};
    return sink;
}

/* A source of the bytes that are there now. Bytes that are appended later are not in it. */
LMC_API lmc_source lmc_memory_source(const lmc_memory *memory)
{
    const lmc_source source = {memory ? lmc__read_memory_at : NULL,
                               (void *)(uintptr_t)memory, /* it only reads */
                               memory ? memory->size : 0,
                               {0, 0}};
    return source;
}

/* A stream of the bytes from position, which the caller may set, to size. */
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory)
{
    const lmc_stream stream = {memory ? lmc__read_memory : NULL, memory, {0, 0}};
    return stream;
}

/* Frees the data, unless cap is 0: then it is the caller's. The lmc_memory can be used again, with
 * the same allocator. */
LMC_API void lmc_memory_free(lmc_memory *memory)
{
    if (!memory) return;
    if (memory->cap) (void)lmc__realloc(memory->allocator, memory->data, memory->cap, 0);
    memory->data = NULL;
    memory->size = memory->cap = memory->position = 0;
}
