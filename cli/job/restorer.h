/* restorer.h - a snapshot that is being restored, to a file, a tree or standard output
 * SPDX-License-Identifier: MIT
 *
 *
 *     run_restore -> finish_restore, which commits or discards
 *
 * A snapshot of one file without a path becomes a file (sys/output.h), any other a tree
 * (restored_tree.h). Which of them it is shows when the first file begins; until then `started` is
 * 0 and there is nothing to undo.
 */
#ifndef LMC_CLI_RESTORER_H
#define LMC_CLI_RESTORER_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../../lmc.h"
#include "../input/second_look.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/output.h"
#include "../sys/tree.h"

struct options;
struct source;

/* A directory gets its mode and time when everything in it is there. */
struct directory {
    char *path;
    struct attributes attributes;
};

/* What was restored, for --rm to read it again. */
struct record {
    char *path;
    uint64_t size;
    uint32_t crc;
};

struct restore {
    const struct options *o;
    const char *input;
    const struct stat *input_stat;
    char *target; /* NULL: standard output */
    int is_tree, started;
    struct output out; /* not of a tree */
    struct attributes attributes;
    /* of a tree */
    const char *root;        /* temporary directory, registered until it gets its name */
    struct listing replaced; /* with -f: what was at the target; empty: nothing */
    int is_empty;            /* the root itself is all there is */
    char *path;              /* of the file in work */
    struct outlet outlet;    /* fd -1: closed */
    struct directory *directories;
    size_t n_directories, room_for_directories;
    struct record *records;
    size_t n_records, room;
    char **paths; /* of the files so far, to read them again */
    size_t n_paths, room_for_paths;
    int fd_again; /* one of them; -1 */
    size_t again_number;
    struct second_look again; /* not of a tree */
    uint64_t total;
    uint64_t n_quantised; /* tensors */
    int code;             /* what a callback has reported */
};

/* What the snapshot does not say, because its source was a pipe, is taken from the snapshot's own
 * file. */
void complete_attributes(struct attributes *a, const struct stat *input);

/* Restores the stream; what is open afterwards is to be committed or discarded. */
int run_restore(struct restore *r, struct source *s, const lmc_base *base);

int finish_restore(struct restore *r, int code);

int open_snapshot_source(struct source *s, const char *path, const struct options *o);

void free_restore(struct restore *r);

#endif
