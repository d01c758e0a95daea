/* apply_place.h - the files of a snapshot where they are on the disk, one of them open
 * SPDX-License-Identifier: MIT
 *
 * Errors are reported and stand in `code`. Data that was written is synced before another file is
 * opened, so that only the open file may need it.
 */
#ifndef LMC_CLI_APPLY_PLACE_H
#define LMC_CLI_APPLY_PLACE_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

struct place {
    const char *root; /* a directory, or the file of a snapshot of one file */
    const lmc_file *(*get_file)(void *user, size_t number);
    void *user;
    int may_write;
    int is_strict;  /* to write: not through links, nor to a file that has other names */
    int fd;         /* -1 */
    size_t number;  /* of the file that is open */
    int is_written; /* and not synced since */
    int code;       /* what was reported */
};

/* Opens no file yet. root and user must outlive the place; get_file: as lmc_base has it. */
void open_place(struct place *p, const char *root, const lmc_file *(*get_file)(void *, size_t),
                void *user, int may_write);

/* Brings what was written to the disk. */
int sync_place(struct place *p);

/* Data that was written is synced on the way, so that only the open file may need it. */
int close_place(struct place *p);

/* All of size bytes of that file of the snapshot, from offset. */
int read_place(struct place *p, size_t number, uint64_t offset, void *dst, size_t size);

/* All of size bytes, to that file of the snapshot, from offset. */
int write_place(struct place *p, size_t number, uint64_t offset, const void *data, size_t size);

#endif
