/* verbs.h - a function for each verb of lmc, which returns the exit code
 * SPDX-License-Identifier: MIT
 *
 * Verb NAME is in verb/NAME.c. It takes its arguments from o->names, its options from o. Only the
 * verbs of series call other verbs; mount uses the lists of series.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/options.h"

/* -- compress, restore, test, list: called for each name -- */

/* is_named: see struct source */
int compress_file(const char *path, int is_named, const struct options *o);

/* One snapshot of everything below path. */
int compress_directory(const char *path, const struct options *o);

/* The same for a listing of `root`. */
int compress_listing(const struct listing *l, const char *root, const char *snapshot,
                     const struct options *o);

/* Restores the snapshot at path ("-": standard input) to the path that -o or its own name gives. */
int restore_file(const char *path, const struct options *o);

/* Restores a part of the snapshot at the first name: what the other names match, what is below
 * matching directories, and what matching links lead to. The files go to a directory, which may
 * exist, or to standard output, one after another. Only their blocks are read. */
int restore_parts(const struct options *o);

/* Decodes and checks the snapshot at path ("-": standard input). CODE_OK: it is intact. */
int test_file(const char *path, const struct options *o);

/* Prints what is in the snapshot at path ("-": standard input, a file), as a table or JSON. */
int list_file(const char *path, const struct options *o);

/* -- the other verbs -- */

/* Writes a tensor of the snapshot at the first name: the tensor of the second name (a slice may
 * follow the name), or else the only tensor. With --file and no second name, writes that file. With
 * --safetensors, the other names are patterns, and all matching tensors are written. */
int cat_tensors(const struct options *o);

/* Prints what has changed between two snapshots, files or directories. */
int diff_snapshots(const struct options *o);

/* Prints what the snapshots consist of, each compared with the one before it. */
int show_stats(const struct options *o);

/* Codes the snapshot at path tip again, against the base named onto (NULL: none), and writes it to
 * -o. o->bases must have all that its chain needs, and onto. */
int recode_snapshot(const char *tip, const char *onto, const struct options *o);

/* Makes one delta out of the named ones, which may be in any order, against the first --base that
 * is not one of them. */
int fold_deltas(const struct options *o);

int rebase_snapshot(const struct options *o);

/* Checks all files, and reports those that it could not check. CODE_OK: all are intact. */
int verify_files(const struct options *o);

/* The last name is the target, the others are deltas. After an error the target is unchanged or
 * half applied; if half applied, the same command completes it. */
int apply_deltas(const struct options *o);

/* Recovers what is intact of the snapshot to a directory: -o, or NAME.salvaged. CODE_OK: all of it;
 * CODE_BASE: more could be recovered with the base; CODE_CORRUPT: something is lost. With --json,
 * prints salvage.json instead of a table. */
int salvage_file(const struct options *o);

/* Shows the snapshot, directory or series of the first name as files below the second name, until
 * that is unmounted or a signal comes. In the background, if the caller has gone there. */
int mount_snapshot(const struct options *o);

/* -- series: each opens the series, which locks it, and closes it -- */

int series_add(const struct options *o);
int series_list(const struct options *o);
int series_restore(const struct options *o);
int series_cat(const struct options *o);
int series_prune(const struct options *o);
int series_keep(const struct options *o);
int series_gc(const struct options *o);
int series_verify(const struct options *o);
int series_watch(const struct options *o);
int series_rebuild(const struct options *o);
