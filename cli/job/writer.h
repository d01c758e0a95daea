/* writer.h - a snapshot that is being written to an output, from files or from another snapshot
 * SPDX-License-Identifier: MIT
 *
 *   open_output -> open_snapshot -> lmc_writer_begin_file, ..._write, ..._end_file -> more files
 *               -> finish_snapshot -> commit_snapshot
 */
#pragma once

#include "../sys/platform.h"

#include "../input/archive.h"

struct attributes;
struct base;
struct members;
struct options;
struct output;

/* Reports an error that the writer has returned. name: of the source. */
int fail_writer(enum lmc_status status, const struct output *out, const char *name);

/* base: what the snapshot is coded against; NULL: nothing. If the base has no tensor or file of the
 * members, nor parts of any, the snapshot does not need it, and m->base is NULL. */
int open_snapshot(lmc_writer **writer, struct output *out, struct members *m,
                  const struct base *base);

/* Ends the snapshot. If code is an error, or ending fails, the output is discarded; otherwise it is
 * still to be committed. *info: of the writer; all zero after an error */
int finish_snapshot(int code, lmc_writer *writer, struct output *out, struct members *m,
                    lmc_writer_info *info);

/* Completes the finished output, as commit_output() does. *is_useless: nothing was coded against
 * the base, if there is one, which is reported; then a file is coded again without the base. */
int commit_snapshot(struct output *out, const struct members *m, const struct base *base,
                    const lmc_writer_info *info, const struct attributes *attributes,
                    const char *source, int *is_useless);

/* Whether the snapshot has SHA-256 hashes, right or wrong. a NULL: no. */
int has_hashes(const struct archive *a);

/* Codes the open snapshot, whose index was read, to the open output, which is closed on return.
 * base: what it is coded against; NULL: nothing. known: the members that it was written from, which
 * tell its twins; NULL: they are looked for. */
int recode_archive(struct archive *a, const struct base *base, struct output *out,
                   const struct attributes *attributes, const struct members *known,
                   const struct options *o);
