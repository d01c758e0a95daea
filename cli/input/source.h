/* source.h - what is read from front to back: a file or a pipe
 * SPDX-License-Identifier: MIT
 *
 *     open_source -> identify_source -> read_stream ... -> close_source
 *
 * close_source() may and must be called after open_source() in any case. Errors are reported, but
 * those of read_stream(), which stand in `error`.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"

struct options;

#define FIRST_LOOK ((size_t)64 << 10)

struct source {
    const char *name;
    int is_named; /* on the command line, not found in a directory: must be what its name says */
    int fd;
    struct stat st;
    uint64_t start;      /* in a regular file: standard input may be somewhere in it */
    uint64_t size;       /* LMC_UNKNOWN_SIZE: it comes from a pipe and has no header that tells */
    int promised;        /* the size is what a header in the pipe said */
    unsigned char *head; /* the beginning, already read */
    size_t head_size, head_taken;
    int head_ended;                             /* and there is no more */
    unsigned char header[LMC_FILE_HEADER_SIZE]; /* of a snapshot that is restored */
    struct container container;
    uint64_t taken; /* bytes handed over by read_stream */
    int error;      /* errno of read_stream */
};

/* Refuses what has a name but is neither a file nor a directory, unless is_wanted: a FIFO may
 * block, a device never end. */
int check_regular(const char *path, int is_wanted);

/* path "-": standard input. */
int open_source(struct source *s, const char *path);

void close_source(struct source *s);

/* Reads until size bytes of the beginning are there or the source ends. */
int read_head(struct source *s, size_t size);

/* Finds the tensors of the source. */
int identify_source(struct source *s, const struct options *o);

/* As lmc_stream asks; user: a source. */
enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got);

/* Reports that the file was changed under our hands; CODE_ERROR. */
int fail_changed(const char *path);

/* Random access to many files, of which one is open at a time: that one. */
struct opened {
    int fd;
    const char *path; /* NULL: none */
};

void close_opened(struct opened *f);

/* st: when it was looked at; nobody may have written to it since then. */
int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset,
                void *dst, size_t size);
