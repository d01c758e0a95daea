/* writer.h - a snapshot that is being written to an output, from files or from another snapshot
 * SPDX-License-Identifier: MIT
 *
 *   open_output -> open_snapshot -> lmc_writer_begin_file, ..._write, ..._end_file -> more files
 *               -> finish_snapshot -> commit_output
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

/* base: what the snapshot is coded against; NULL: nothing */
int open_snapshot(lmc_writer **writer, struct output *out, struct members *m,
                  const struct base *base);

/* Ends the snapshot. If code is an error, or ending fails, the output is discarded; otherwise it is
 * still to be committed. *info: of the writer; all zero after an error */
int finish_snapshot(int code, lmc_writer *writer, struct output *out, struct members *m,
                    lmc_writer_info *info);

/* Whether the snapshot has SHA-256 hashes, right or wrong. a NULL: no. */
int has_hashes(const struct archive *a);

/* Codes the open snapshot, whose index was read, to the open output, which is closed on return.
 * base: what it is coded against; NULL: nothing. name: for messages; NULL: that of the output.
 * *is_useless: nothing was coded against the base, so nothing was written; an output that is held
 * (hold_output) is still open, and empty again. is_useless NULL: write in any case. */
int recode_archive(struct archive *a, const struct base *base, struct output *out,
                   const struct attributes *attributes, const char *name, const struct options *o,
                   int *is_useless);
