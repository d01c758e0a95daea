/* restorer.h - a snapshot that is being restored, to a file, a tree or standard output
 * SPDX-License-Identifier: MIT
 *
 *   init_restore -> run_restore -> finish_restore, or discard_restore -> free_restore
 *
 * A snapshot of one file without a path becomes a file (sys/output.h), any other a tree
 * (restored_tree.h). Which one is known when the first file begins; until then `started` is 0 and
 * there is nothing to undo. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/reread.h"
#include "../sys/output.h"
#include "restored_tree.h"

struct options;
struct source;

/* A file with several names. */
struct one_file {
    const char *target;  /* the target of its hard links */
    const char *written; /* its name in the tar stream; NULL: not written yet */
};

struct restore {
    struct reread again; /* with the files so far, and the links; must be first */
    const struct options *o;
    const char *input;             /* its name */
    const struct stat *input_stat; /* if it is a regular file; or NULL */
    int is_tree, started;
    int is_tar;        /* a tree that goes to standard output, as a stream for tar */
    struct output out; /* unless is_tree */
    struct attributes attributes;
    struct restored_tree tree; /* its target is also used for a file */
    int fd_again;              /* a restored file that is read again; -1: none */
    size_t again_number;
    struct links ahead; /* for tar output: the links, read from the index before the files */
    struct one_file *one_files; /* sorted by target; one for each hard link */
    size_t n_one_files;
    int is_skipped;        /* the present file was written before, by another name */
    lmc_file *directories; /* for tar output, where they come last; own copies of the paths */
    size_t n_directories, directories_cap;
    uint64_t total;       /* bytes */
    uint64_t n_quantized; /* tensors */
    int code;             /* exit code of an error that a callback has reported */
    int is_checked;       /* lmc -t: all is checked, nothing is written */
    uint64_t n_files;
    char *made_with; /* the base's name when the delta was made; NULL: unknown */
};

/* target: NULL for standard output. All arguments must outlive the restore. */
void init_restore(struct restore *r, const char *input, const char *target,
                  const struct options *o);

/* Restores the stream. Then call finish_restore() or discard_restore(). */
int run_restore(struct restore *r, struct source *s, const lmc_base *base);

/* code: the result of run_restore(). Commits if it is CODE_OK, else discards and returns it. */
int finish_restore(struct restore *r, int code);

/* Removes all that run_restore() has written. */
void discard_restore(struct restore *r);

void free_restore(struct restore *r);

/* Opens the snapshot at path ("-": standard input). To be closed even after an error. */
int open_snapshot_source(struct source *s, const char *path, const struct options *o);

/* -- a directory as a stream for tar, POSIX.1-2001, pax (tar_stream.c) --
 *
 *   tar_begin -> write_output ... -> tar_end, for each file; tar_link for each link -> tar_finish
 *
 * The old header of 512 bytes has no room for long names, sizes from 8 GiB on, times before 1970,
 * or fractions of seconds. An extended header before it has them. Functions return 0 or errno.
 */

/* Writes the header. The file's size must be known. */
int tar_begin(struct output *out, const lmc_file *file);

/* Fills the rest of the file's last record with zeros. */
int tar_end(struct output *out, const lmc_file *file);

/* Writes a link. target: of a symbolic link, its text; of a hard link, an earlier file's path. */
int tar_link(struct output *out, enum link_type type, const char *path, const char *target);

int tar_finish(struct output *out);
