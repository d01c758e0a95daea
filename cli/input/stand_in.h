/* stand_in.h - what is read in place of a base that is a snapshot
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../lmc.h"

struct archive;
struct base;
struct common;

/* -- of a damaged one: a copy, the files that it was made from, or what is intact -- */

/* Of the same kind, size and tensors. */
int have_same_tensors(const lmc_file *a, const lmc_file *b);

/* Whether c, which is made ready, can be read for the damaged snapshot b. */
int can_stand_in(struct base *c, const struct base *b, const struct common *o);

/* Where damage was found and there is no copy: reads what is intact all the same, block by block.
 */
enum lmc_status read_intact(struct base *b, enum lmc_status damage, size_t number, uint64_t offset,
                            void *dst, size_t size);
void forget_intact(struct base *b);

/* Reads of b->instead, or of what is intact, what stands in that file of b. */
enum lmc_status read_instead(const struct base *b, size_t number, uint64_t offset, void *dst,
                             size_t size);

/* -- of one whose chain is long: what it restores, in a scratch file --
 *
 * Whoever reads of a delta reads of its base, and so on down: a descriptor, a reader and a frame of
 * the stack for each link. Beyond MAX_LINKS of them a link is restored, by reading through those
 * below, which are put away then. So a chain may have any length, and takes room for two restored
 * snapshots on the disk.
 *
 *   links   0 1 2 ... 63 | 64 ... 127 | 128        each | is a replica
 */

/* What is read through at most. */
#define MAX_LINKS 64

struct replica {
    int is_made;
    int fd;           /* of a file without a name */
    uint64_t *starts; /* of the snapshot's files in it */
};

/* Restores the snapshot, whose reader has its base. Errors are reported. */
int make_replica(struct replica *r, const struct archive *a);

/* Bytes of a file; 0 or errno. */
int read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst, size_t size);

int fail_replica(int error);

void free_replica(struct replica *r);
