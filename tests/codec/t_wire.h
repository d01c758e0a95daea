/* t_wire.h - takes LMC files apart and puts them together again (spec 3, 4, 8), without lmc.h, for
 * tests that need files that no encoder writes. Include it after t_io.h. */
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

/* Sizes in bytes of the parts of a file other than bodies and payloads. */
enum { W_HEADER = 64, W_SECTION = 20, W_BLOCK = 24, W_INDEX = 88, W_TRAILER = 40 };

/* A section: its body in the file, and what the index has in addition. */
typedef struct w_section {
    char kind[5];
    t_memory body;
    t_memory facts;  /* of a FILE */
    t_memory blocks; /* of a RUN */
} w_section;

#define W_SECTIONS 64

typedef struct w_file {
    uint8_t header[W_HEADER], fingerprint[16];
    w_section sections[W_SECTIONS]; /* all except BLKS and INDX */
    size_t n;
    t_memory metadata; /* entries, and extension records */
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
    const uint64_t size = w_get_varint(&body), block_size = w_get_varint(&body);
    return (size + block_size - 1) / block_size;
}

/* Size of a block, with its header. */
static inline size_t w_block_size(const uint8_t *block)
{
    return W_BLOCK + (size_t)w_get(block + 8, 4);
}

/* Size of what the index has about the files of a FILE body. */
static inline size_t w_facts_size(const uint8_t *p)
{
    uint64_t n_files = w_get_varint(&p), n_tensors, rank;
    size_t size = 0;
    for (; n_files > 0; n_files--) {
        const unsigned form = *p++; /* 1 a directory, 2 mode, 4 mtime, 8 of unknown size */
        uint64_t rest;
        p++;
        rest = w_get_varint(&p);
        p += rest;
        if (!(form & 9)) (void)w_get_varint(&p);
        if (form & 2) (void)w_get_varint(&p);
        if (form & 4) p += 12;
        n_tensors = form & 9 ? 0 : w_get_varint(&p);
        size += (form & 8 ? 12 : 4) + 16 * (size_t)(n_tensors ? n_tensors : 1);
        for (; n_tensors > 0; n_tensors--) {
            const unsigned tensor = *p++; /* 1 like, 2 gap, 4 loss */
            if (w_get_varint(&p)) p += 2;
            rest = w_get_varint(&p);
            p += rest;
            if (tensor & 2) (void)w_get_varint(&p);
            if (!(tensor & 1)) {
                const unsigned is_named = *p++ == 0;
                if (is_named) p += 1 + *p;
                for (rank = *p++; rank > 0; rank--) (void)w_get_varint(&p);
                if (is_named) (void)w_get_varint(&p);
            }
            if (tensor & 4) p += 6;
        }
    }
    return size;
}

/* Takes apart a correct file. */
static inline void w_parse(w_file *w, const uint8_t *p)
{
    size_t at = W_HEADER, i;
    const uint8_t *entry, *end;
    memset(w, 0, sizeof *w);
    memcpy(w->header, p, W_HEADER);
    while (p[at] != 'B') {
        w_section *const s = &w->sections[w->n++];
        const size_t size = (size_t)w_get(p + at + 4, 8);
        if (w->n > W_SECTIONS) abort();
        memcpy(s->kind, p + at, 4);
        w_put(&s->body, p + at + W_SECTION, size);
        at += W_SECTION + size;
        if (s->kind[0] == 'R') {
            uint64_t blocks = w_count_blocks(s->body.data);
            for (; blocks > 0; blocks--) {
                const size_t block = w_block_size(p + at);
                w_put(&s->blocks, p + at, block);
                at += block;
            }
        }
    }
    at += W_SECTION + (size_t)w_get(p + at + 4, 8);
    entry = p + at + W_SECTION;
    end = entry + (size_t)w_get(p + at + 4, 8);
    memcpy(w->fingerprint, entry + 64, 16);
    w->n_metadata = (uint32_t)w_get(entry + 84, 4);
    entry += W_INDEX;
    for (i = 0; i < w->n; i++) {
        w_section *const s = &w->sections[i];
        entry += 4;
        (void)w_get_varint(&entry);
        if (s->kind[0] >= 'a') continue;
        (void)w_get_varint(&entry);
        entry += s->body.size;
        if (s->kind[0] == 'F') {
            const size_t size = w_facts_size(s->body.data);
            w_put(&s->facts, entry, size);
            entry += size;
        }
    }
    w_put(&w->metadata, entry, (size_t)(end - entry));
}

static inline void w_put_section(t_memory *out, const char *kind, const t_memory *body)
{
    const size_t at = out->size;
    w_put(out, kind, 4);
    w_number(out, body->size, 8);
    w_number(out, t_crc32c(0, out->data + at, 12), 4);
    w_number(out, t_crc32c(0, body->data, body->size), 4);
    w_put(out, body->data, body->size);
}

/* Header_CRC of a block that has this number in its run. */
static inline void w_seal_block(uint8_t *block, uint32_t number)
{
    uint8_t place[4];
    uint32_t crc;
    unsigned i;
    for (i = 0; i < 4; i++) place[i] = (uint8_t)(number >> 8 * i);
    crc = t_crc32c(t_crc32c(0, place, 4), block, 20);
    for (i = 0; i < 4; i++) block[20 + i] = (uint8_t)(crc >> 8 * i);
}

/* Puts it together again: sizes, CRCs of sections, BLKS, index and trailer. Blocks stay. */
static inline void w_build(const w_file *w, t_memory *out)
{
    t_memory index, rows;
    size_t i, index_at;
    memset(&index, 0, sizeof index);
    memset(&rows, 0, sizeof rows);
    out->size = 0;
    w_put(out, w->header, W_HEADER - 4);
    w_number(out, t_crc32c(0, out->data, W_HEADER - 4), 4);
    w_put(&index, out->data, W_HEADER);
    w_put(&index, w->fingerprint, 16);
    w_number(&index, w->n, 4);
    w_number(&index, w->n_metadata, 4);
    for (i = 0; i < w->n; i++) {
        const w_section *const s = &w->sections[i];
        size_t done;
        w_put_section(out, s->kind, &s->body);
        w_put(out, s->blocks.data, s->blocks.size);
        w_put(&index, s->kind, 4);
        w_varint(&index, W_SECTION + s->body.size + s->blocks.size);
        if (s->kind[0] < 'a') {
            w_varint(&index, s->body.size);
            w_put(&index, s->body.data, s->body.size);
        }
        w_put(&index, s->facts.data, s->facts.size);
        for (done = 0; done < s->blocks.size; done += w_block_size(s->blocks.data + done)) {
            w_number(&rows, w_block_size(s->blocks.data + done), 4);
            w_put(&rows, s->blocks.data + done + 20, 4);
        }
    }
    w_put(&index, w->metadata.data, w->metadata.size);
    w_put_section(out, "BLKS", &rows);
    index_at = out->size;
    w_put_section(out, "INDX", &index);
    i = out->size - index_at;
    w_number(out, index_at, 8);
    w_number(out, i, 8);
    w_number(out, index_at + i + W_TRAILER, 8);
    w_number(out, 1, 4); /* the version */
    w_number(out, t_crc32c(0, out->data + out->size - 28, 28), 4);
    w_put(out, "\x94LMC\r\n\x1A\n", 8);
    free(index.data);
    free(rows.data);
}

/* A RUN body. */
typedef struct w_run {
    uint64_t size, block_size;
    unsigned prediction; /* 4 and 5: its own, converted */
    size_t n;
    struct {
        uint64_t size;
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
    r->block_size = w_get_varint(&p);
    r->prediction = *p++;
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
    w_varint(body, r->block_size);
    w_number(body, r->prediction, 1);
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
