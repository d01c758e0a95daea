/* dump_field.h - reading the fields of a snapshot, and the lines of lmc dump
 * SPDX-License-Identifier: MIT
 *
 *     0067  05                                               N_Files 5
 *
 * Offset, bytes, name and value: the names are those of the specification.
 */
#ifndef LMC_CLI_DUMP_FIELD_H
#define LMC_CLI_DUMP_FIELD_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NO_LIMIT UINT64_MAX
#define LAST_DTYPE 27u /* of the table, whatever the library adds to its own */

enum outcome { DUMP_GOOD, DUMP_NEWER, DUMP_DAMAGED };

struct dump {
    FILE *in;
    uint64_t at;   /* bytes taken so far */
    uint64_t left; /* of the body that is being read */
    uint32_t crc;  /* of what was taken since it was set to 0 */
    int is_quiet;  /* fields are read, but not printed */
    int stops;     /* what comes cannot be told; all functions do nothing any more */
    unsigned char *buffer;
    size_t room;
    enum outcome outcome;
    uint64_t fault_at; /* the first one */
    char fault[200];
    /* What the index has of each file of a FILE body: its tensors, and whether its size. */
    struct dumped_file {
        uint64_t n_tensors;
        int is_unknown;
    } *files;
    size_t n_files, files_room;
    uint64_t n_blocks; /* of the last RUN body */
};

void print_heading(const char *text);

/* "(64 bytes)" in place of them. */
void print_counted(uint64_t offset, const char *name, uint64_t size);

/* A line with !!; the first one decides the outcome. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void
fault(struct dump *d, enum outcome outcome, uint64_t at, const char *format, ...);

/* The next byte, which stays; or EOF. */
int peek_byte(struct dump *d);

/* Takes bytes that are only counted. */
void skip_bytes(struct dump *d, const char *name, uint64_t size);

/* The next size bytes, which are then in the buffer, unless they are many; 0: they are not there,
 * which is said. */
int take_bytes(struct dump *d, const char *name, uint64_t size);

/* Takes fields as "Name:kind Name:kind", where kind is 1, 2, 4 or 8: a number of so many bytes; v:
 * a varint; s: a signed number of 8 bytes; d: a Dtype, c: a CRC; x and a number: so many bytes, of
 * which values gets only whether they are not zero. values: one for each field. Returns whether all
 * are there. */
int take_fields(struct dump *d, const char *fields, uint64_t *values);

/* Compares a CRC, which stands at that offset. */
void check_crc(struct dump *d, uint64_t at, const char *name, uint64_t stored, uint32_t crc);

#endif
