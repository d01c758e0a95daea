#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"

/* Memory in place of files: callbacks for writers, readers and whoever takes a stream.
 *
 *     data |----- written ---------------|- room -|
 *          0             ^ position      ^ size   ^ cap
 *                          of the stream   sink: appends here; source: ends here
 *
 * One lmc_memory may be all three, one after the other: a snapshot is written to a sink, and read
 * by a source. The caller owns it and frees it by lmc_memory_free; sink, source and stream only
 * point to it. While a sink writes, data may move, so it must not be read by another thread.
 *
 * A sink that cannot grow is LMC_ERR_MEMORY. */

/* A lmc_memory is a lmc__buffer that the caller can look into; it is made one for the time of a
 * call, so that both grow by the same rule. If there is no memory, what was written before is still
 * there. */
static enum lmc_status lmc__write_memory(void *user, const void *data, size_t size)
{
    lmc_memory *m = (lmc_memory *)user;
    lmc__buffer b;
    enum lmc_status status;
    b.data = m->data;
    b.size = m->size;
    b.cap = m->cap;
    b.alloc_user = m->alloc_user;
    status = lmc__append(&b, data, size);
    m->data = b.data;
    m->size = b.size;
    m->cap = b.cap;
    return status;
}

/* All of it, or it fails. */
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
    lmc_sink sink;
    sink.write = lmc__write_memory;
    sink.user = memory;
    return sink;
}

/* Of what is there now: a source has a size from the start, and does not see what is appended. */
LMC_API lmc_source lmc_memory_source(lmc_memory *memory)
{
    lmc_source source;
    source.read_at = lmc__read_memory_at;
    source.user = memory;
    source.size = memory->size;
    return source;
}

/* From position on, which the caller may set; it ends, with 0 bytes and no error, at size. */
LMC_API lmc_stream lmc_memory_stream(lmc_memory *memory)
{
    lmc_stream stream;
    stream.read = lmc__read_memory;
    stream.user = memory;
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
