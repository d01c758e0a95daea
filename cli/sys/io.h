/* io.h - bytes in and out of descriptors
 * SPDX-License-Identifier: MIT
 *
 * All functions return 0 or errno, and report nothing. Interrupted calls are repeated; descriptors
 * that do not block are waited for.
 */
#ifndef LMC_CLI_IO_H
#define LMC_CLI_IO_H

#include "platform.h"

#include <stddef.h>
#include <stdint.h>

/* At least one byte, but at the end. */
int read_some(int fd, void *data, size_t size, size_t *got);

/* All of size, but at the end. */
int read_full(int fd, void *data, size_t size, size_t *got);

/* All of size. */
int write_full(int fd, const void *data, size_t size);

/* Where bytes go one after another. */
struct outlet {
    int fd;
    int sparse;    /* what is all zero becomes a hole; for a new file only */
    uint64_t size; /* so far */
    int error;     /* the first one */
};

/* Returns out->error, at once if there has been one. */
int outlet_write(struct outlet *out, const void *data, size_t size);

/* At that place, in any order, beside other calls. `size` and `error` stay as they are. */
int outlet_write_at(const struct outlet *out, uint64_t offset, const void *data, size_t size);

/* A hole at the end counts only when the file gets its size. */
int outlet_finish(struct outlet *out);

/* Brings the entry of path in its directory to the disk, in one step or two; *fd is -1 for a
 * directory that may be searched, but not read: then nothing can be done. */
int sync_directory_of(const char *path);
int open_directory_of(const char *path, int *fd);
int sync_directory(int fd); /* and closes it */

/* All of size bytes; 0 or errno, -1 where the file ends before. */
int read_at(int fd, uint64_t offset, void *dst, size_t size);

#define BUFFER_SIZE ((size_t)4 << 20)

/* 0 or errno. What the system cannot sync needs none. */
int sync_data(int fd);

/* All of size. */
int write_at(int fd, uint64_t offset, const void *data, size_t size);

/* Opens a file below a directory, or root itself if path is empty, and follows no link on the way:
 * a descriptor, or -1 and errno. */
int open_below(const char *root, const char *path, int flags);

/* Brings all of the file system of the descriptor to the disk, if the system can. */
int can_sync_all(void);
int sync_all(int fd);

#endif
