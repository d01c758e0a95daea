/* second_look.h - reading what a snapshot repeats, if there is no restored file to read it from
 * SPDX-License-Identifier: MIT
 *
 * Twins are equal tensors or files, which the snapshot stores once. When restoring to a pipe, or
 * only checking, the first of two twins is read again, through the index. So a snapshot that comes
 * from a pipe is kept in a scratch file.
 */
#pragma once

#include "../sys/platform.h"

#include "archive.h"

struct listing;
struct options;
struct source;

struct second_look {
    struct source *source; /* must be a regular file to be read again */
    const lmc_base *base;
    const struct options *o;
    struct archive archive;
    int is_open;
    int lacks_base; /* it is only checked, as far as possible without its base */
};

/* s: open; base: what it is coded against (NULL: nothing). */
void init_second_look(struct second_look *l, struct source *s, const lmc_base *base,
                      const struct options *o);

/* Copies a pipe to a scratch file, which replaces it (see open_scratch). Errors are reported. */
int spool_source(struct source *s, const char *beside);

/* The same, but only for a pipe whose header tells that the snapshot may repeat something. */
int keep_source(struct second_look *l);

/* Restores the source from front to back. options has the caller's callbacks; the rest is filled
 * in, also read_back if that is NULL. `user` will be l, so the caller's own struct must begin with
 * it. fingerprint: of the snapshot; or NULL. With lacks_base, LMC_OK means that no payload is
 * damaged. */
enum lmc_status restore_source(struct second_look *l, lmc_restore_options *options,
                               uint8_t *fingerprint);

/* Implements the read_back of lmc_restore_options. */
enum lmc_status read_second_look(struct second_look *l, size_t number, uint64_t offset, void *dst,
                                 size_t size);

void close_second_look(struct second_look *l);

/* Reports why restore_source() has failed, unless a callback for writing has: for damage, also in
 * which file and tensor it is. To be called before close_second_look(). */
int fail_restore(const struct second_look *l, enum lmc_status status);

/* Checks a delta, a regular file, as far as possible without its base: all but the decoded bytes.
 * Reports what is damaged, and where. */
int check_payload(const char *path, const struct options *o);

/* Restores the snapshot at path and compares it with the files at root: those in the listing, or
 * one file (l NULL). may_lack: files may be missing. may_lose: quantised tensors may differ; must
 * be 0 if the files are removed afterwards. */
int verify_snapshot(const char *path, const char *root, const struct listing *l, int may_lack,
                    int may_lose, const struct options *o);
