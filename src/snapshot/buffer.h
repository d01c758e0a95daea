#pragma once
#include "base/platform.h"
#include "base/bytes.h"

/* Memory that grows. All code above the codec allocates with it, so overflows are checked in one
 * place: a buffer has at most SIZE_MAX / 2 bytes. When the buffer grows, `data` may move. `data` is
 * aligned as malloc aligns. */
typedef struct lmc__buffer {
    uint8_t *data; /* NULL: no memory yet */
    size_t size, cap;
    const lmc_allocator *allocator; /* or NULL */
} lmc__buffer;

static void lmc__init_buffer(lmc__buffer *b, const lmc_allocator *allocator)
{
    memset(b, 0, sizeof *b);
    b->allocator = allocator;
}

/* Frees the memory. The buffer can be used again. */
static void lmc__free_buffer(lmc__buffer *b)
{
    if (b->data) (void)lmc__realloc(b->allocator, b->data, b->cap, 0);
    b->data = NULL;
    b->size = b->cap = 0;
}

/* The buffers of a struct are neighbouring members. One call sets up or frees all buffers from the
 * member `first` up to the member before `next`. */
#define LMC__ROW(type, first, next) offsetof(type, first), offsetof(type, next)

static void lmc__init_buffers(void *object, size_t from, size_t to, const lmc_allocator *allocator)
{
    for (; from < to; from += sizeof(lmc__buffer))
        lmc__init_buffer((lmc__buffer *)(void *)((uint8_t *)object + from), allocator);
}

static void lmc__free_buffers(void *object, size_t from, size_t to)
{
    for (; from < to; from += sizeof(lmc__buffer))
        lmc__free_buffer((lmc__buffer *)(void *)((uint8_t *)object + from));
}

/* Makes room for `more` bytes after the bytes in use. Capacity grows by half at least, so appending
 * n bytes one by one takes time O(n). On errors nothing changes. */
static enum lmc_status lmc__reserve(lmc__buffer *b, uint64_t more)
{
    uint64_t needed, cap;
    void *data;
    if (more <= b->cap - b->size) return LMC_OK;
    if (more > SIZE_MAX / 2 - b->size) return LMC_ERR_SIZE;
    needed = b->size + more;
    cap = (uint64_t)b->cap + b->cap / 2;
    cap = cap < needed || cap > SIZE_MAX / 2 ? needed : cap;
    data = lmc__realloc(b->allocator, b->data, b->cap, (size_t)cap);
    if (!data) return LMC_ERR_MEMORY;
    b->data = (uint8_t *)data;
    b->cap = (size_t)cap;
    return LMC_OK;
}

/* Appends `more` bytes: data, or zeros if data is NULL. */
static enum lmc_status lmc__append(lmc__buffer *b, const void *data, size_t more)
{
    LMC__TRY(lmc__reserve(b, more));
    if (data && more) memcpy(b->data + b->size, data, more);
    else if (more) memset(b->data + b->size, 0, more);
    b->size += more;
    return LMC_OK;
}

static enum lmc_status lmc__append32(lmc__buffer *b, uint32_t v)
{
    uint8_t field[4];
    lmc__store32(field, v);
    return lmc__append(b, field, 4);
}
