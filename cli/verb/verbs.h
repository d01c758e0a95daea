/* verbs.h - all that lmc does: a function for each verb, which returns the exit code
 * SPDX-License-Identifier: MIT
 *
 * verb/NAME.c says what NAME does, to o->names and as o says. No verb calls another, but for
 * series.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/options.h"

/* -- compress, restore, test, list: a name after another -- */

/* is_named: see struct source */
int compress_file(const char *path, int is_named, const struct options *o);

/* One snapshot of everything below path. */
int compress_directory(const char *path, const struct options *o);

/* The same of what was listed. The listing must outlive the members. */
int compress_listing(const struct listing *l, const char *root, const char *snapshot,
                     const struct options *o);

/* Restores the snapshot at path ("-": standard input) to what -o or its own name says. */
int restore_file(const char *path, const struct options *o);

/* The same of the files and links of the first name that the other names match, what is below the
 * directories that they match, and what the links lead to: into a directory that may be there; or
 * their bytes one after another to standard output. Only the blocks that hold them are read. */
int restore_parts(const struct options *o);

/* Where the snapshot at path is restored to; NULL: to standard output. is_part: a part of it, to
 * below what -o names. *code: what was reported. To be freed. */
char *name_target(const char *path, int is_part, const struct options *o, int *code);

/* Whether an argument of lmc -d that is not the first is a snapshot: it is named so, or is one. */
int is_named_snapshot(const char *path);

/* Restores the snapshot at path ("-": standard input) to nowhere. CODE_OK: it is whole. */
int test_file(const char *path, const struct options *o);

/* Prints what is in the snapshot at path ("-": standard input, a file), as a table or JSON. */
int list_file(const char *path, const struct options *o);

/* -- the other verbs -- */

/* Writes the tensor called by the second name, which may have a slice behind it, of the snapshot
 * called by the first. Without it, the only tensor; with --file, that file as it is. With
 * --safetensors the names are patterns, and all tensors that one of them matches are written. */
int cat_tensors(const struct options *o);

/* Prints what has changed between two snapshots, files or directories. */
int diff_snapshots(const struct options *o);

/* Shows what the snapshots are made of, each compared with the one before. */
int show_stats(const struct options *o);

/* Writes the snapshot at path tip, of whatever chain, against the base called onto (NULL: none) to
 * -o. The bases hold all that the chain needs, and onto. */
int recode_snapshot(const char *tip, const char *onto, const struct options *o);

/* One delta out of those that are named, in whatever order, against the first base that is none of
 * them. */
int fold_deltas(const struct options *o);

int rebase_snapshot(const struct options *o);

/* Checks all files, and says which it could not check. CODE_OK: all are whole. */
int verify_files(const struct options *o);

/* The last name is the target, the others are deltas. After an error the target is what it was, or
 * half applied, and then the same command goes on. */
int apply_deltas(const struct options *o);

/* Recovers what is intact of the snapshot, to a directory: -o, or NAME.salvaged. CODE_OK: all is;
 * CODE_BASE: the base would bring back more; CODE_CORRUPT: something is lost. With --json,
 * salvage.json goes to standard output, and no table. */
int salvage_file(const struct options *o);

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
