/* source.h - what is read from front to back: a file or a pipe
 * SPDX-License-Identifier: MIT
 *
 *     open_source -> identify_source -> read_stream ... -> close_source
 *
 * close_source() may and must be called after open_source() in any case. Errors are reported, but
 * those of read_stream(), which stand in `error`.
 */
#ifndef LMC_CLI_SOURCE_H
#define LMC_CLI_SOURCE_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../../formats/container.h"

struct entry;
struct listing;
struct common;

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
int identify_source(struct source *s, const struct common *o);

/* As lmc_stream asks; user: a source. */
enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got);

/* All that a snapshot of the directory may hold, in the order of the paths. What it cannot hold is
 * named. is_removed: the directory will be, so what a snapshot changes is told, too. */
int list_sources(struct listing *l, const char *root, int is_removed, const struct common *o);

/* Names the files that cannot be opened, from that entry of the listing on; n: those that were
 * named already. Whoever gives up for one of them tells of all. */
void say_unreadable(const struct listing *l, size_t from, size_t n, const char *root);

/* Whether an entry of a tree is a file of the snapshot: all are but links, and the root only if
 * there is nothing else. */
int is_stored(const struct entry *e, const struct listing *l);

#endif
