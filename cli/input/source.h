/* source.h - a file or pipe that is read from front to back
 * SPDX-License-Identifier: MIT
 *
 *     open_source -> identify_source -> read_stream ... -> close_source
 *
 * close_source() must be called after open_source(), even after an error. Errors are reported, but
 * those of read_stream() are only set in `error`.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"

struct options;

#define FIRST_LOOK ((size_t)64 << 10)

struct source {
    const char *name;
    int is_named; /* on the command line: it must have the format of its name */
    int fd;
    struct stat st;
    uint64_t start;      /* in a regular file: standard input may begin anywhere */
    uint64_t size;       /* LMC_UNKNOWN_SIZE: a pipe whose header does not tell */
    int promised;        /* the size is from a header in the pipe */
    unsigned char *head; /* the beginning, which was read already */
    size_t head_size, head_taken;
    int head_ended;                        /* the source has no more */
    unsigned char header[LMC_HEADER_SIZE]; /* of a snapshot that is restored */
    struct container container;
    uint64_t taken; /* bytes handed over by read_stream */
    uint32_t *crc;  /* of these; NULL: not wanted */
    int error;      /* errno of read_stream */
};

/* Refuses a path that is neither a file nor a directory, unless is_wanted: a FIFO may block, and a
 * device may never end. */
int check_regular(const char *path, int is_wanted);

/* path "-": standard input. */
int open_source(struct source *s, const char *path);

/* The same of a path that was a file or a directory when it was looked at. It does not wait if that
 * was exchanged for a FIFO meanwhile: the caller sees it by s->st. */
int open_listed(struct source *s, const char *path);

/* As check_regular and open_source together, where the first was called before: what is exchanged
 * for a FIFO between the two is not waited for. */
int open_checked(struct source *s, const char *path, int is_wanted);

void close_source(struct source *s);

/* Reads until size bytes of the beginning are there or the source ends. */
int read_head(struct source *s, size_t size);

/* Finds the tensors of the source. */
int identify_source(struct source *s, const struct options *o);

/* The read of an lmc_stream. user: a source. */
enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got);

/* Reports that the file was changed while it was read; CODE_ERROR. */
int fail_changed(const char *path);

/* For random access to many files, of which at most one is open: the open file. */
struct opened {
    int fd;
    const char *path; /* NULL: none */
};

void close_opened(struct opened *f);

/* Opens path if it is not the open file, and reads. Fails if the file has changed since st. */
int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset,
                void *dst, size_t size);
