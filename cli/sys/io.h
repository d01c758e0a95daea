/* io.h - bytes in and out of descriptors
 * SPDX-License-Identifier: MIT
 *
 * All functions return 0 or errno, and report nothing. Interrupted calls are repeated; descriptors
 * that do not block are waited for.
 */
#pragma once

#include "platform.h"

/* At least one byte, but at the end. */
int read_some(int fd, void *data, size_t size, size_t *got);

/* All of size, but at the end. */
int read_full(int fd, void *data, size_t size, size_t *got);

/* All of size. */
int write_full(int fd, const void *data, size_t size);

/* Where bytes go one after another. A new file gets them in windows, which begin and end at
 * multiples of their size: the system keeps such writes in large pages, which takes half the time.
 * What is all zero becomes a hole. After an error nothing more is written; all functions return it.
 */
struct outlet {
    int fd;
    int is_file; /* a new one */
    int is_kept; /* it is synced in the end */
    int error;
    uint64_t size;         /* so far, with what waits */
    unsigned char *window; /* or NULL */
    size_t n_waiting;      /* bytes in it, which are not in the file yet */
};

int outlet_write(struct outlet *out, const void *data, size_t size);

/* Leaves a hole in a new file. */
int outlet_skip(struct outlet *out, uint64_t size);

/* The first `end` bytes are in the file, but for a hole at their end. */
int outlet_flush(struct outlet *out, uint64_t end);

/* All of them are, and the window is freed. */
int outlet_finish(struct outlet *out);

/* Frees the window in place of that. */
void outlet_drop(struct outlet *out);

/* Brings the entry of path in its directory to the disk; in one that may be searched, but not read,
 * nothing can be done. */
int sync_directory_of(const char *path);

/* All of size bytes; 0 or errno, -1 where the file ends before. */
int read_at(int fd, uint64_t offset, void *dst, size_t size);

#define BUFFER_SIZE ((size_t)4 << 20)

/* 0 or errno. What the system cannot sync needs none. */
int sync_data(int fd);

/* Lets the disk begin with that range, so that syncing takes less time. size 0: all behind. */
void begin_to_sync(int fd, uint64_t offset, uint64_t size);

/* All of size. */
int write_at(int fd, uint64_t offset, const void *data, size_t size);

/* Opens a file below a directory, or root itself if path is empty, and follows no link on the way:
 * a descriptor, or -1 and errno. */
int open_below(const char *root, const char *path, int flags);

/* Brings all of the file system of the descriptor to the disk, if the system can. */
int can_sync_all(void);
int sync_all(int fd);
