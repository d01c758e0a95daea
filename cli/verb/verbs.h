/* verbs.h - all that lmc does: a function for each verb, which returns the exit code
 * SPDX-License-Identifier: MIT
 *
 * verb/NAME.c says what NAME does. No verb calls another, but for series.
 */
#pragma once

#include "../sys/platform.h"

#include "../choose/members.h"
#include "../input/common.h"

struct listing;

/* -- compress, fold, rebase -- */

struct compress_options {
    struct common common;
    struct coding coding; /* fold, rebase: its policy has no rules: what is quantised stays so */
    int remove_source;    /* --rm: when the snapshot on the disk has been compared with it */
};

/* Removes what was listed and no more: a file that came later keeps its directories. */
int remove_listing(const struct listing *l, const char *root);

/* is_named: see struct source */
int compress_file(const char *path, int is_named, const struct compress_options *o);

/* The listing must outlive the members. */
int compress_listing(const struct listing *l, const char *root, const char *snapshot,
                     const struct compress_options *o);

/* One snapshot of everything below path. */
int compress_directory(const char *path, const struct compress_options *o);

/* Writes the snapshot at path tip, of whatever chain, against the base called onto (NULL: none) to
 * output (NULL: standard output). The bases hold all that the chain needs, and onto. */
int recode_snapshot(const char *tip, const char *onto, const char *output,
                    const struct compress_options *o);

/* One delta out of those at paths, in whatever order, against the first base that is none of
 * them. */
int fold_deltas(char **paths, size_t n, const char *output, const struct compress_options *o);

/* onto: the new base, or "none" */
int rebase_snapshot(const char *path, const char *onto, const char *output,
                    const struct compress_options *o);

/* -- restore, apply, salvage -- */

/* Restores the snapshot at path ("-": standard input) to what -o or its own name says.
 * remove_source: --rm, when what was restored has been read again */
int restore_file(const char *path, int remove_source, const struct common *o);

/* The same of the files and links that the patterns match, what is below the directories that they
 * match, and what the links lead to: into a directory that may be there; or their bytes one after
 * another to standard output. Only the blocks that hold them are read. */
int restore_parts(const char *path, char *const *patterns, size_t n, const struct common *o);

/* What restore_parts() does; target: NULL for standard output. */
int extract_files(const char *path, const char *target, char *const *patterns, size_t n,
                  const struct common *o);

/* Whether an argument of lmc -d that is not the first is a snapshot: it is named so, or is one. */
int is_named_snapshot(const char *path);

/* names: of the deltas and, at the end, of the target, n in all, 2 or more. trust_base
 * (--trust-base): the target is not read first to know that it is the base. o: without bases, for
 * the base is the target. After an error the target is what it was, or half applied, and then the
 * same command goes on. */
int apply_deltas(char **names, size_t n, int trust_base, const struct common *o);

/* Recovers what is intact of the snapshot at path, to a directory: -o, or PATH.salvaged. CODE_OK:
 * all is; CODE_BASE: the base would bring back more; CODE_CORRUPT: something is lost. is_json:
 * salvage.json to standard output, and no table */
int salvage_file(const char *path, int is_json, const struct common *o);

/* -- what only reads -- */

/* Restores the snapshot at path ("-": standard input) to nowhere. CODE_OK: it is whole. */
int test_file(const char *path, const struct common *o);

/* Checks all n files, and says which it could not check. CODE_OK: all are whole. */
int verify_files(char **paths, size_t n, const struct common *o);

/* Prints what is in the snapshot at path ("-": standard input, a file), as a table or JSON. */
int list_file(const char *path, int is_json, const struct common *o);

/* Prints every field of the snapshot at path ("-": standard input). */
int dump_file(const char *path);

/* Prints what has changed between two snapshots, files or directories. level: what the deltas would
 * be coded with */
int diff_snapshots(char *const sides[2], enum lmc_level level, int is_json, const struct common *o);

/* Shows what the snapshots are made of, each compared with the one before. level: what the sizes
 * are measured with */
int show_stats(char *const *names, size_t n, enum lmc_level level, int is_json,
               const struct common *o);

struct cat_options {
    struct common common;
    int npy;          /* --npy: with a header of NumPy before it */
    int f32;          /* --f32: floats of 8 and 16 bits become floats of 32 */
    int safetensors;  /* --safetensors: a file of whole tensors */
    const char *file; /* --file: the file that has the tensor; NULL: whichever has it */
};

/* Writes the tensor called name, which may have a slice behind it, of the snapshot at path. name
 * NULL: the only tensor; with --file, that file as it is. With --safetensors the names are
 * patterns, and all tensors that one of them matches are written. */
int cat_tensors(const char *path, char *const *names, size_t n, const struct cat_options *options);

/* -- series: each opens the series, which locks it, and closes it -- */

struct series_options {
    struct common common; /* which has no bases */
    struct coding coding; /* add, watch, gc */
    int remove_source;    /* add, watch: --rm */
    int json;             /* list */
    int npy;              /* cat */
    const char *file;     /* cat */
    const char *name;     /* add; NULL: that of the source */
    int anchor, verify;   /* add: not against another one; compare with the source */
    uint64_t every;       /* add, watch, rebuild: files of the longest chain; 0: as before */
    int dry_run;          /* prune, gc: tell what would be done */
    uint64_t keep_last, keep_every; /* prune; 0: no such rule */
    const char **keep;              /* prune */
    size_t n_keep;
    uint64_t settle, interval; /* watch: seconds */
    int once;                  /* watch */
    const char *match;         /* watch: a pattern for names; NULL: all */
};

int series_add(const char *directory, const char *path, const struct series_options *o);
int series_list(const char *directory, const struct series_options *o);
int series_restore(const char *directory, const char *name, const struct series_options *o);
int series_cat(const char *directory, const char *name, char *tensor,
               const struct series_options *o);
int series_prune(const char *directory, char **names, int n, const struct series_options *o);
int series_keep(const char *directory, char **names, int n, const struct series_options *o);
int series_gc(const char *directory, const struct series_options *o);
int series_verify(const char *directory, char **names, int n, const struct series_options *o);
int series_watch(const char *directory, const char *source, const struct series_options *o);
int series_rebuild(const char *directory, const struct series_options *o);
