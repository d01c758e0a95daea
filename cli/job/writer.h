/* writer.h - a snapshot that is being written to an output
 * SPDX-License-Identifier: MIT
 *
 *   open_output -> open_snapshot -> lmc_writer_begin_file, ..._write, ..._end_file -> more files
 *               -> finish_snapshot -> commit_output
 */
#ifndef LMC_CLI_WRITER_H
#define LMC_CLI_WRITER_H

#include "../sys/platform.h"

#include "../../lmc.h"
#include "../input/walk.h"

struct attributes;
struct base;
struct members;
struct common;
struct output;

/* Reports what the writer has returned; name: of the source. */
int fail_writer(enum lmc_status status, const struct output *out, const char *name);

/* base: NULL or what the snapshot is coded against */
int open_snapshot(lmc_writer **writer, struct output *out, struct members *m,
                  const struct base *base, const struct common *o);

/* Ends the snapshot, or, if code or what comes of it is an error, discards the output. Otherwise
 * that is still to be committed. *use: what the base was good for, if that is measured. */
int finish_snapshot(int code, lmc_writer *writer, struct output *out, const struct members *m,
                    struct base_use *use, const struct common *o);

#endif
