/* archive.h - a snapshot that is read by its index
 * SPDX-License-Identifier: MIT
 *
 *
 *   open_archive_file or open_archive_of_source -> read_archive_index -> the reader
 *   -> close_archive
 *
 * close_archive() may and must be called after the first step in any case. Errors are reported.
 */
#ifndef LMC_CLI_ARCHIVE_H
#define LMC_CLI_ARCHIVE_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../../lmc.h"

struct options;
struct source;

struct archive {
    const char *name;
    const struct options *o;
    int fd;
    uint64_t start; /* of the snapshot in the file */
    struct stat st;
    lmc_reader *reader;
    lmc_reader *lender; /* or NULL: shares its buffers; of the base, if that is a snapshot */
    uint8_t wanted[LMC_IDENTITY_SIZE]; /* the base, of a delta */
    uint32_t chain_depth;
    uint64_t n_reads, n_bytes;
    int error; /* errno of a failed read; -1: the file ended */
};

int read_archive(void *user, uint64_t offset, void *dst, size_t size);

int fail_archive(const struct archive *a, enum lmc_status status);

void close_archive(struct archive *a);

uint64_t archive_size(const struct archive *a);

/* Opens the file and looks whether it is a delta. */
int open_archive_file(struct archive *a, const char *path, const struct options *o);

/* The snapshot that is being read from a regular file from front to back, to read in it anywhere.
 */
int open_archive_of_source(struct archive *a, struct source *s, const struct options *o);

/* base: NULL for one that is no delta, or that is only listed. */
int read_archive_index(struct archive *a, const lmc_base *base);

uint64_t total_of_files(const lmc_reader *reader);

/* An entry of the metadata; NULL: there is none. To be freed. */
char *copy_metadata(const struct archive *a, const char *wanted);

const lmc_file *get_delta_file(void *user, size_t number);

int is_tree_of_files(const lmc_reader *reader);

#endif
