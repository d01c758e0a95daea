/* second_look.h - what a snapshot repeats, where there is no restored file to read it from
 * SPDX-License-Identifier: MIT
 *
 * Twins are tensors and files that the snapshot stores once. When restoring to a pipe, or only
 * checking, the first one is read again through the index. So a snapshot from a pipe is kept in a
 * scratch file.
 */
#pragma once

#include "../sys/platform.h"

#include "archive.h"

struct listing;
struct options;
struct source;

struct second_look {
    struct source *source; /* a regular file, or there is no second look */
    const lmc_base *base;
    const struct options *o;
    struct archive archive;
    int is_open;
    int lacks_base; /* it is only checked, as far as that goes without the base that it needs */
};

/* The source, which has been opened, and what it is coded against (NULL: nothing). */
void init_second_look(struct second_look *l, struct source *s, const lmc_base *base,
                      const struct options *o);

/* A pipe becomes a scratch file (see open_scratch). Errors are reported. */
int spool_source(struct source *s, const char *beside);

/* A pipe that may repeat something, by its header, becomes a scratch file. Errors are reported. */
int keep_source(struct second_look *l);

/* Restores the source from front to back. options: the caller's callbacks, read_second_look() if
 * read_back is none of them; the rest is filled in. `user` is the second look, with which the
 * caller's own struct begins. fingerprint: of the snapshot; or NULL. Where the base is lacking,
 * LMC_OK says that no payload is damaged. */
enum lmc_status restore_source(struct second_look *l, lmc_restore_options *options,
                               uint8_t *fingerprint);

/* What a read_back of lmc_restore_options returns. */
enum lmc_status read_second_look(struct second_look *l, size_t number, uint64_t offset, void *dst,
                                 size_t size);

void close_second_look(struct second_look *l);

/* Reports why restore_source() has failed, if no callback for writing has failed: of damage, in
 * which file and tensor it is. Before close_second_look(). */
int fail_restore(const struct second_look *l, enum lmc_status status);

/* That nothing of a delta, a regular file, is damaged, as far as that shows without its base: all
 * but what its payloads mean together with it. Reports what is damaged, and where. */
int check_payload(const char *path, const struct options *o);

/* Restores the snapshot at path and compares it with the files at root: all that were listed, or one
 * file (l NULL). may_lack: files that are gone are passed over; may_lose: what is quantised need not
 * be equal: never before the files are removed. */
int verify_snapshot(const char *path, const char *root, const struct listing *l, int may_lack,
                    int may_lose, const struct options *o);
