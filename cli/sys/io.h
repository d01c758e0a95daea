/* io.h - reading from and writing to descriptors
 * SPDX-License-Identifier: MIT
 *
 * All functions return 0 or errno, and report nothing. They repeat interrupted calls, and wait for
 * non-blocking descriptors.
 */
#pragma once

#include "platform.h"

/* Reads at least one byte, except at the end. */
int read_some(int fd, void *data, size_t size, size_t *got);

/* Reads all `size` bytes, except at the end. */
int read_full(int fd, void *data, size_t size, size_t *got);

/* Writes bytes one after another. A new file is written in windows, which begin and end at
 * multiples of their size: the system keeps such writes in large pages, which is faster. Zeros
 * become holes. After an error nothing more is written, and all functions return the error.
 */
struct outlet {
    int fd;
    int is_file; /* a new file */
    int is_kept; /* it will be synced at the end */
    int error;
    uint64_t size;         /* so far, with the waiting bytes */
    uint64_t end;          /* of what was written to a new file; behind it are holes */
    unsigned char *window; /* or NULL */
    size_t n_waiting;      /* bytes in the window, not yet written */
};

int outlet_write(struct outlet *out, const void *data, size_t size);

/* Leaves a hole in a new file. */
int outlet_skip(struct outlet *out, uint64_t size);

/* Writes the first `end` bytes to the file; only a hole at their end may be missing. */
int outlet_flush(struct outlet *out, uint64_t end);

/* Writes all bytes, and frees the window. */
int outlet_finish(struct outlet *out);

/* Frees the window without writing. */
void outlet_drop(struct outlet *out);

/* -- syncing: what was written gets to the disk --
 *
 * A file system that cannot do that (formats/refused.h) is no error, but find_refused_sync() tells
 * it: whoever removes what the output stands for, such as a source, must look there first. */

int sync_file(int fd);
int sync_directory(int fd);

/* The same for a directory that may be open only as a place (PARENT_FLAGS). */
int sync_directory_at(int dir);

/* Syncs the data of a file, and its size, but no mode or time. */
int sync_data(int fd);

/* Whether sync_all() can sync the whole file system of a descriptor. */
int can_sync_all(void);
int sync_all(int fd);

/* The error by which a sync was refused since forget_refused_sync(); 0: all were done. */
int find_refused_sync(void);
void forget_refused_sync(void);

/* Starts to write that range to the disk, so that syncing takes less time. size 0: to the end. */
void begin_to_sync(int fd, uint64_t offset, uint64_t size);

/* Reads all `size` bytes. Returns 0, errno, or -1 if the file ends earlier. */
int read_at(int fd, uint64_t offset, void *dst, size_t size);

#define BUFFER_SIZE ((size_t)4 << 20)

/* Writes all `size` bytes. */
int write_at(int fd, uint64_t offset, const void *data, size_t size);
