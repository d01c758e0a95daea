#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"

/* Sections (spec 4): a header of 20 bytes, then the body of a FILE (files.h), a RUN (runs.h), BLKS,
 * INDX (index_entries.h) or an ancillary section. This file handles the header, and the fields of
 * bodies. Each field is checked before it is used. */

#ifndef LMC_NO_ENCODER
/* Writes the header of a section, LMC__SECTION_HEADER_SIZE bytes:
 *     0  kind        "FILE", "RUN ", "BLKS", "INDX"; ancillary kinds begin with a lower-case letter
 *     4  size        of the body
 *    12  Head_CRC    of the bytes before
 *    16  Body_CRC    of the body
 *
 * Head_CRC is before the body, so the size is checked before the body is read. */
static void lmc__put_section_header(uint8_t *dst, const char *kind, const uint8_t *body,
                                    uint64_t size, const lmc__kernels *k)
{
    memcpy(dst, kind, 4);
    lmc__store64(dst + 4, size);
    lmc__store32(dst + 12, k->crc32c(0, dst, 12));
    lmc__store32(dst + 16, k->crc32c(0, body, (size_t)size));
}
#endif

/* The header of a section; the function that reads the body compares body_crc. */
typedef struct lmc__section {
    char kind[4];
    uint64_t size;
    uint32_t body_crc;
} lmc__section;

/* Whether c is an ASCII letter of that case. */
static int lmc__is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static int lmc__is_lower(char c) { return c >= 'a' && c <= 'z'; }

/* A kind is four letters, digits or spaces, and begins with a letter. */
static int lmc__is_kind_valid(const char *kind)
{
    unsigned i;
    for (i = 0; i < 4; i++)
        if (!lmc__is_upper(kind[i]) && !lmc__is_lower(kind[i]) &&
            (i == 0 || ((kind[i] < '0' || kind[i] > '9') && kind[i] != ' ')))
            return 0;
    return 1;
}

/* A reader may ignore an ancillary section that it does not know. */
static int lmc__is_ancillary(const lmc__section *section)
{
    return lmc__is_lower(section->kind[0]);
}

static int lmc__is_kind(const lmc__section *section, const char *kind)
{
    return memcmp(section->kind, kind, 4) == 0;
}

static int lmc__is_known_kind(const lmc__section *section)
{
    return lmc__is_kind(section, "FILE") || lmc__is_kind(section, "RUN ") ||
           lmc__is_kind(section, "BLKS") || lmc__is_kind(section, "INDX");
}

/* Reads and checks a section's header at p. */
LMC__COLD static enum lmc_status lmc__get_section(lmc__section *section, const uint8_t *p,
                                                  const lmc__kernels *k)
{
    LMC__CHECK(k->crc32c(0, p, 12) == lmc__load32(p + 12), LMC_ERR_CHECKSUM); /* R4-1 */
    memcpy(section->kind, p, 4);
    section->size = lmc__load64(p + 4);
    section->body_crc = lmc__load32(p + 16);
    LMC__VALID(lmc__is_kind_valid(section->kind));
    LMC__CHECK(lmc__is_ancillary(section) || lmc__is_known_kind(section),
               LMC_ERR_UNSUPPORTED);                 /* R4-3 */
    LMC__VALID(section->size <= LMC__MAX_BODY_SIZE); /* R4-5 */
    return LMC_OK;
}

/* -- bodies -- */

/* Bytes that are read from front to back. lmc__take functions check nothing, so compare lmc__left
 * first. lmc__get functions check that the bytes are there. */
typedef struct lmc__cursor {
    const uint8_t *p, *end;
} lmc__cursor;

static size_t lmc__left(const lmc__cursor *c) { return (size_t)(c->end - c->p); }

/* Advances over size bytes, and returns where they begin. */
static const uint8_t *lmc__take_bytes(lmc__cursor *c, size_t size)
{
    c->p += size;
    return c->p - size;
}
static uint8_t lmc__take8(lmc__cursor *c) { return *lmc__take_bytes(c, 1); }
static uint32_t lmc__take32(lmc__cursor *c) { return lmc__load32(lmc__take_bytes(c, 4)); }
static uint64_t lmc__take64(lmc__cursor *c) { return lmc__load64(lmc__take_bytes(c, 8)); }

/* Reads a byte, which may be missing. */
static enum lmc_status lmc__get8(lmc__cursor *c, unsigned *v)
{
    LMC__VALID(lmc__left(c) != 0);
    *v = lmc__take8(c);
    return LMC_OK;
}

/* Reads a varint (spec 2): 7 bits in each byte, low bits first; bit 7 is set in all bytes but the
 * last. Each number has one form: the last of several bytes is not 0. Byte 10 has only bit 63. */
static enum lmc_status lmc__get_varint(lmc__cursor *c, uint64_t *v)
{
    unsigned shift = 0;
    uint8_t byte;
    *v = 0;
    do {
        LMC__VALID(lmc__left(c) != 0);
        byte = lmc__take8(c);
        LMC__VALID(shift < 63 || byte <= 1); /* R2-1 */
        *v |= (uint64_t)(byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    LMC__VALID(byte != 0 || shift == 7); /* R2-1 */
    return LMC_OK;
}

static enum lmc_status lmc__get_limited(lmc__cursor *c, uint64_t *v, uint64_t max)
{
    LMC__TRY(lmc__get_varint(c, v));
    LMC__VALID(*v <= max);
    return LMC_OK;
}

/* Reads a size of at most max, and a string of that size. */
static enum lmc_status lmc__get_string(lmc__cursor *c, const uint8_t **p, uint32_t *size,
                                       uint32_t max)
{
    uint64_t v;
    LMC__TRY(lmc__get_limited(c, &v, max));
    LMC__VALID(v <= lmc__left(c));
    *size = (uint32_t)v;
    *p = lmc__take_bytes(c, (size_t)v);
    return LMC_OK;
}

/* Skips the rest of a body: extension records { varint tag, varint size, bytes }, sorted by tag.
 * This version knows no tag, and must refuse records with an odd tag. Counts them in *n. */
LMC__COLD static enum lmc_status lmc__skip_records(lmc__cursor *c, uint64_t *n)
{
    uint64_t last = 0, tag, size;
    int is_first = 1;
    while (lmc__left(c) != 0) {
        LMC__TRY(lmc__get_varint(c, &tag));
        LMC__TRY(lmc__get_varint(c, &size));
        LMC__VALID(size <= lmc__left(c) && (is_first || tag > last)); /* R4-54 */
        LMC__CHECK((tag & 1) == 0, LMC_ERR_UNSUPPORTED);              /* R4-55 */
        (void)lmc__take_bytes(c, (size_t)size);
        last = tag;
        is_first = 0;
        ++*n;
    }
    return LMC_OK;
}

static unsigned lmc__varint_size(uint64_t v)
{
    unsigned n = 1;
    for (; v >= 128; v >>= 7) n++;
    return n;
}

static enum lmc_status lmc__append8(lmc__buffer *b, unsigned v)
{
    const uint8_t byte = (uint8_t)v;
    return lmc__append(b, &byte, 1);
}

static enum lmc_status lmc__append_varint(lmc__buffer *b, uint64_t v)
{
    uint8_t bytes[10];
    unsigned n = 0;
    for (; v >= 128; v >>= 7) bytes[n++] = (uint8_t)(v | 128);
    bytes[n++] = (uint8_t)v;
    return lmc__append(b, bytes, n);
}

/* Signed numbers as varints: 0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ... */
static int64_t lmc__unzigzag(uint64_t v)
{
    return v & 1 ? -(int64_t)(v >> 1) - 1 : (int64_t)(v >> 1);
}
#ifndef LMC_NO_ENCODER
static uint64_t lmc__zigzag(int64_t d)
{
    return d < 0 ? 2 * (uint64_t)(-(d + 1)) + 1 : 2 * (uint64_t)d;
}
#endif
