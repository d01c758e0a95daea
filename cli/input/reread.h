/* reread.h - reading a snapshot from front to back: for restoring it, or only checking it
 * SPDX-License-Identifier: MIT
 *
 * Whatever restores, tests, verifies or compares a whole snapshot does it by restore_source(). So
 * what one of them refuses, all refuse.
 *
 * Twins are equal tensors or files, which the snapshot stores once. When restoring to a pipe, or
 * only checking, the first of two twins is read again, through the index. So a snapshot that comes
 * from a pipe is kept in a scratch file.
 */
#pragma once

#include "../sys/platform.h"

#include "archive.h"
#include "links.h"

struct listing;
struct options;
struct source;

struct reread {
    struct source *source; /* must be a regular file to be read again */
    const lmc_base *base;
    const struct options *o;
    struct archive archive;
    int is_open;
    int lacks_base; /* it is only checked, as far as possible without its base */

    /* -- set by restore_source() -- */
    lmc_restore_options theirs; /* the caller's callbacks */
    struct seen_files seen;     /* all files so far */
    struct links links;         /* at the end; checked */
    int is_tree;                /* it restores a directory */
    uint64_t n_names, deepest;  /* names in all paths; directories on the way to a file */
    int has_hashes;             /* with --hash: there were some, and they were right */
    int code;                   /* exit code of what it has reported itself */
};

/* s: open; base: what it is coded against (NULL: nothing). */
void init_reread(struct reread *l, struct source *s, const lmc_base *base, const struct options *o);

/* Copies a pipe to a scratch file, which replaces it (see open_scratch). Errors are reported. */
int spool_source(struct source *s, const char *beside);

/* The same, but only for a pipe whose header tells that the snapshot may repeat something. */
int keep_source(struct reread *l);

/* Restores the source from front to back, and checks all that makes a snapshot of a directory
 * restorable: its links, --max-files and --max-depth; with --hash also the SHA-256. options has the
 * caller's callbacks; the rest is filled in, also read_back if that is NULL. `user` will be l, so
 * the caller's own struct must begin with it. fingerprint: of the snapshot; or NULL. With
 * lacks_base, LMC_OK means that no payload is damaged. */
enum lmc_status restore_source(struct reread *l, lmc_restore_options *options,
                               uint8_t *fingerprint);

/* Applies the limits of files to links: a small hostile snapshot may hold many links, deep down. */
int check_links_of_tree(const struct links *l, const char *name, const struct options *o);

/* Implements the read_back of lmc_restore_options. */
enum lmc_status read_again(struct reread *l, size_t number, uint64_t offset, void *dst,
                           size_t size);

void close_reread(struct reread *l);

/* Reports why restore_source() has failed, unless a callback for writing has: for damage, also in
 * which file and tensor it is. To be called before close_reread(). */
int fail_restore(const struct reread *l, enum lmc_status status);

/* With --hash: reports that an intact snapshot has no hashes. */
int check_has_hashes(const struct reread *l);

/* Checks a delta, a regular file, as far as possible without its base: all but the decoded bytes.
 * Reports what is damaged, and where. */
int check_payload(const char *path, const struct options *o);

/* Checks a snapshot, a regular file, as a whole, and by its SHA-256 hashes, if it has some. */
int check_hashes(const char *path, const lmc_base *base, const struct options *o);

/* Restores the snapshot at path and compares it with the files at root: those in the listing, or
 * one file (l NULL). may_lose: quantised tensors may differ; must
 * be 0 if the files are removed afterwards. A difference is CODE_ERROR, and is reported; or, with
 * `differs`, only sets that. */
int verify_snapshot(const char *path, const char *root, const struct listing *l, int may_lose,
                    int *differs, const struct options *o);
