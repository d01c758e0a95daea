/* dump_field.h - the lines of lmc dump: offset, bytes, field, value
 * SPDX-License-Identifier: MIT
 *
 *     0054  00 00 00 00                                      Number 0
 *
 * They are those of the worked examples in the specification of the format (spec 14).
 */
#ifndef LMC_CLI_DUMP_FIELD_H
#define LMC_CLI_DUMP_FIELD_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

/* What is printed behind the name of a field. */
enum field_kind {
    FIELD_BYTES,  /* nothing */
    FIELD_NUMBER, /* its value, if it has 1, 2, 4 or 8 bytes */
    FIELD_SIGNED,
    FIELD_VARINT,
    FIELD_TEXT /* its characters */
};

/* More bytes than this are only counted. */
#define FIELD_MAX_BYTES 1024u

uint64_t field_number(const unsigned char *bytes, size_t size);

/* bytes: size of them, at offset of the file; may be NULL if they are only counted */
void print_field(uint64_t offset, const char *name, const unsigned char *bytes, uint64_t size,
                 enum field_kind kind);

/* "(80 bytes)" in place of the bytes */
void print_counted(uint64_t offset, const char *name, uint64_t size);

void print_heading(const char *text);

/* What is wrong, and where. */
void print_fault(uint64_t offset, const char *text);

#endif
