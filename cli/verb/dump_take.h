/* dump_take.h - reading what lmc dump prints: bytes, numbers, varints, texts; and what is wrong
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_DUMP_TAKE_H
#define LMC_CLI_DUMP_TAKE_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "dump_field.h"

#define NO_LIMIT UINT64_MAX

enum outcome { DUMP_GOOD, DUMP_NEWER, DUMP_DAMAGED };

struct dump {
    FILE *in;
    const char *name;
    uint64_t at;   /* bytes taken so far */
    uint64_t left; /* of the body that is being read */
    uint32_t crc;  /* of what was taken since it was set to 0 */
    int is_quiet;  /* fields are read, but not printed */
    int stops;     /* what comes cannot be told; all functions do nothing any more */
    unsigned char *buffer;
    size_t room;
    int is_verbose;
    enum outcome outcome;
    uint64_t fault_at; /* the first one */
    char fault[200];
    /* What the index has of each file: two bits of flags, and the tensors. */
    uint32_t *files;
    size_t n_files, files_room;
    uint64_t n_blocks; /* of the last RUN body */
    uint64_t incompatible;
    int reached_index;
};

/* A line with !!; the first one decides the outcome. */
void note_fault(struct dump *d, enum outcome outcome, uint64_t at, const char *text);

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void
fault(struct dump *d, enum outcome outcome, uint64_t at, const char *format, ...);

/* Reads up to size bytes, fewer only at the end of the input. */
size_t read_bytes(struct dump *d, unsigned char *to, size_t size);

/* The next byte, which stays; or EOF. */
int peek_byte(struct dump *d);

/* Takes bytes that are not looked at. */
void skip_bytes(struct dump *d, const char *name, uint64_t size);

/* The next size bytes, without printing them; NULL: they are not there, which is said. */
const unsigned char *get_bytes(struct dump *d, const char *name, size_t size);

/* A field of that many bytes, printed; NULL: it is not there. */
const unsigned char *take(struct dump *d, const char *name, size_t size, enum field_kind kind);

/* 1, or 0: it is not there, or no such number. */
int take_number(struct dump *d, const char *name, size_t size, uint64_t *value);
int take_varint(struct dump *d, const char *name, uint64_t *value);

/* Characters, or other bytes if they are too many to be printed. */
int take_text(struct dump *d, const char *name, uint64_t size);

#endif
