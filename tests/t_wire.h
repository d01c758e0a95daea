/* t_wire.h - LMC files taken apart and put together again (spec 3 to 6, 10), by code of its own,
 * for tests that edit what no encoder writes. Include it after t_io.h. */
#ifndef T_WIRE_H
#define T_WIRE_H

#include "t_io.h"

/* Bytes that grow; also a sink's memory. */
static inline void w_put(t_memory *b, const void *data, size_t size)
{
    if (t_append(b, data, size) != 0) abort();
}
static inline void w_number(t_memory *b, uint64_t v, unsigned size)
{
    uint8_t bytes[8];
    unsigned i;
    for (i = 0; i < size; i++, v >>= 8) bytes[i] = (uint8_t)v;
    w_put(b, bytes, size);
}
static inline void w_varint(t_memory *b, uint64_t v)
{
    for (; v >= 128; v >>= 7) w_number(b, v | 128, 1);
    w_number(b, v, 1);
}
static inline uint64_t w_get(const uint8_t *p, unsigned size)
{
    uint64_t v = 0;
    while (size-- > 0) v = v << 8 | p[size];
    return v;
}
static inline uint64_t w_get_varint(const uint8_t **p)
{
    uint64_t v = 0;
    unsigned shift = 0;
    for (; **p & 128; shift += 7) v |= (uint64_t)(*(*p)++ & 127) << shift;
    return v | (uint64_t)*(*p)++ << shift;
}

/* A section: what stands in the file, and what the index has beside. */
typedef struct w_section {
    char kind[5];
    t_memory body;
    t_memory facts;  /* of a FILE */
    t_memory blocks; /* of a RUN */
} w_section;

#define W_SECTIONS 64

typedef struct w_file {
    uint8_t header[80], fingerprint[32];
    w_section sections[W_SECTIONS];
    size_t n;
    t_memory metadata; /* entries */
    uint32_t n_metadata;
} w_file;

static inline void w_free(w_file *w)
{
    size_t i;
    for (i = 0; i < w->n; i++) {
        free(w->sections[i].body.data);
        free(w->sections[i].facts.data);
        free(w->sections[i].blocks.data);
    }
    free(w->metadata.data);
    memset(w, 0, sizeof *w);
}

static inline uint64_t w_count_blocks(const uint8_t *body)
{
    const uint8_t *p = body;
    const uint64_t size = w_get_varint(&p);
    return (size + (UINT64_C(1) << *p) - 1) >> *p;
}

/* Takes apart a file that is right. Each entry of its index begins with the offset of a section, by
 * which the facts of a FILE end. */
static inline void w_parse(w_file *w, const uint8_t *p)
{
    size_t at = 80, i;
    const uint8_t *entry, *end;
    memset(w, 0, sizeof *w);
    memcpy(w->header, p, 80);
    while (p[at] != 'I') {
        w_section *const s = &w->sections[w->n++];
        const size_t size = (size_t)w_get(p + at + 8, 8);
        if (w->n > W_SECTIONS) abort();
        memcpy(s->kind, p + at, 4);
        w_put(&s->body, p + at + 24, size);
        at += 24 + size;
        if (s->kind[0] == 'R') {
            uint64_t blocks = w_count_blocks(s->body.data);
            for (; blocks > 0; blocks--) {
                const size_t block = 24 + (size_t)w_get(p + at + 8, 4);
                w_put(&s->blocks, p + at, block);
                at += block;
            }
        }
    }
    entry = p + at + 24 + 120;
    end = p + at + 24 + (size_t)w_get(p + at + 8, 8);
    memcpy(w->fingerprint, p + at + 24 + 88, 32);
    w->n_metadata = (uint32_t)w_get(p + at + 24 + 84, 4);
    for (i = 0, at = 80; i < w->n; i++) {
        w_section *const s = &w->sections[i];
        const uint8_t *facts = entry += 32 + s->body.size;
        at += 24 + s->body.size + s->blocks.size;
        if (s->kind[0] == 'R') entry += 8 * (size_t)w_count_blocks(s->body.data);
        if (s->kind[0] != 'F') continue;
        /* the next entry, or the metadata, which these tests do not have then */
        while (entry < end && (i + 1 == w->n || w_get(entry, 8) != at)) entry++;
        w_put(&s->facts, facts, (size_t)(entry - facts));
    }
    w_put(&w->metadata, entry, (size_t)(end - entry));
}

static inline void w_put_section(t_memory *out, const char *kind, uint32_t number,
                                 const t_memory *body)
{
    const size_t at = out->size;
    w_put(out, kind, 4);
    w_number(out, number, 4);
    w_number(out, body->size, 8);
    w_number(out, t_crc32c(0, out->data + at, 16), 4);
    w_number(out, t_crc32c(0, body->data, body->size), 4);
    w_put(out, body->data, body->size);
}

/* Puts it together again: numbers, offsets, CRCs, index and trailer. */
static inline void w_build(const w_file *w, t_memory *out)
{
    t_memory index;
    uint32_t n_files = 0, n_runs = 0;
    size_t i, index_at;
    memset(&index, 0, sizeof index);
    out->size = 0;
    w_put(out, w->header, 76);
    w_number(out, t_crc32c(0, out->data, 76), 4);
    w_put(&index, out->data, 80);
    w_number(&index, w->n, 4);
    w_number(&index, w->n_metadata, 4);
    w_put(&index, w->fingerprint, 32);
    for (i = 0; i < w->n; i++) {
        const w_section *const s = &w->sections[i];
        const size_t at = out->size;
        size_t done;
        w_put_section(out, s->kind, s->kind[0] == 'R' ? n_runs++ : n_files++, &s->body);
        w_number(&index, at, 8);
        w_put(&index, out->data + at, 24 + s->body.size);
        w_put(&index, s->facts.data, s->facts.size);
        w_put(out, s->blocks.data, s->blocks.size);
        for (done = 0; done < s->blocks.size;) {
            const uint8_t *const block = s->blocks.data + done;
            const size_t size = 24 + (size_t)w_get(block + 8, 4);
            w_number(&index, size, 4);
            w_put(&index, block + 20, 4);
            done += size;
        }
    }
    w_put(&index, w->metadata.data, w->metadata.size);
    index_at = out->size;
    w_put_section(out, "INDX", 0, &index);
    i = out->size - index_at;
    w_number(out, index_at, 8);
    w_number(out, i, 8);
    w_number(out, index_at + i + 40, 8);
    w_number(out, 1, 4); /* the version */
    w_number(out, t_crc32c(0, out->data + out->size - 28, 28), 4);
    w_put(out, "\x82LMC\r\n\x1A\n", 8);
    free(index.data);
}

/* A RUN body. */
typedef struct w_run {
    uint64_t size;
    unsigned log2_block, prediction, conversion;
    size_t n;
    struct {
        uint64_t size;   /* 0: the rest of the piece */
        uint64_t base;   /* number of the item or file, plus 1; 0: none */
        uint64_t offset; /* only if base is not 0 */
    } segments[64];
} w_run;

static inline void w_parse_run(w_run *r, const t_memory *body)
{
    const uint8_t *p = body->data;
    uint64_t last = 0; /* number, plus 1 */
    size_t i;
    memset(r, 0, sizeof *r);
    r->size = w_get_varint(&p);
    r->log2_block = *p++;
    r->prediction = *p++;
    r->conversion = *p++;
    if (r->prediction == 0) return;
    r->n = (size_t)w_get_varint(&p);
    if (r->n > 64) abort();
    for (i = 0; i < r->n; i++) {
        uint64_t reference, d;
        r->segments[i].size = w_get_varint(&p);
        reference = w_get_varint(&p);
        if (reference-- == 0) continue;
        d = reference >> 1;
        last += 1 + (d & 1 ? ~(d >> 1) : d >> 1); /* modulo 2^64 */
        r->segments[i].base = last;
        if (reference & 1) r->segments[i].offset = w_get_varint(&p);
    }
}

static inline void w_put_run(t_memory *body, const w_run *r)
{
    uint64_t last = 0;
    size_t i;
    body->size = 0;
    w_varint(body, r->size);
    w_number(body, r->log2_block, 1);
    w_number(body, r->prediction, 1);
    w_number(body, r->conversion, 1);
    if (r->prediction == 0) return;
    w_varint(body, r->n);
    for (i = 0; i < r->n; i++) {
        const uint64_t base = r->segments[i].base, d = base - (last + 1);
        w_varint(body, r->segments[i].size);
        if (base == 0) {
            w_varint(body, 0);
            continue;
        }
        w_varint(body, 1 + (2 * (d >> 63 ? 2 * ~d + 1 : 2 * d) | (r->segments[i].offset != 0)));
        if (r->segments[i].offset) w_varint(body, r->segments[i].offset);
        last = base;
    }
}

#endif
