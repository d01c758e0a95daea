/* writer.h - a snapshot that is being written to an output
 * SPDX-License-Identifier: MIT
 *
 *   open_output -> open_snapshot -> lmc_writer_begin_file, ..._write, ..._end_file -> more files
 *               -> complete_snapshot
 */
#ifndef LMC_CLI_WRITER_H
#define LMC_CLI_WRITER_H

#include "../sys/platform.h"

#include "../../lmc.h"

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

/* Ends the snapshot and gives the output its name. The output is open on entry and closed on
 * return. */
int complete_snapshot(int code, lmc_writer *writer, struct output *out,
                      const struct attributes *attributes, const struct members *m,
                      const struct common *o);

#endif
