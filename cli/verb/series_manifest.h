/* series_manifest.h - the list of the snapshots of a series, which survives a kill at any moment
 * SPDX-License-Identifier: MIT
 *
 * The directory of a series holds a file NAME.lmc for each snapshot, series.json and .lock.
 * series.json tells which names count, in the order of adding; a name is reserved there before its
 * file exists, and confirmed when the file is complete. What a delta is based on stands in its own
 * header only: gc may replace a file by another one of the same content.
 */
#ifndef LMC_CLI_SERIES_MANIFEST_H
#define LMC_CLI_SERIES_MANIFEST_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

struct series_options;

#define MANIFEST_NAME "series.json"
#define LOCK_NAME ".lock"
#define DEFAULT_EVERY 16

/* Of one that is gone, the name stays: or a watch that does not remove its sources would add it
 * again, as the newest one. */
enum snapshot_state { STATE_KEPT, STATE_ADDING, STATE_FORGOTTEN, STATE_GONE };

extern const char *const state_names[];

struct snapshot {
    char *name, *path;
    char *source; /* its name without directory; NULL: not known */
    enum snapshot_state state;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* zero while adding */
    uint64_t size;                             /* of what it restores */
    int64_t time;                              /* when it was added */
    /* see look_at_file() */
    enum { FILE_MISSING, FILE_DAMAGED, FILE_THERE } file;
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* its base */
    int is_delta;
    uint32_t depth; /* see measure_depths(); no less than the deltas below it */
    uint64_t packed_size;
};

struct series {
    const char *directory;
    char *manifest_path;
    const struct series_options *o;
    int lock_fd;     /* -1: none; a file system for reading only */
    int is_replaced; /* by a new list: then it may be damaged, which is not told */
    uint64_t every;  /* the longest chain has so many files */
    struct snapshot *list;
    size_t n, room;
    size_t *by_fingerprint, *by_name; /* see index_series(); NULL: not sorted */
    size_t *by_number, n_numbers;     /* of those whose names have a number */
};

/* What is wrong with the name of a snapshot; NULL: nothing. */
const char *find_fault_of_name(const char *name);

/* The number in a name: the last one that follows "step" or "iter", as in llama-3-8b-step1000; if
 * none does, that follows no letter, as that of bf16 does; if all do, the last one. 0: none */
int find_number(const char *name, uint64_t *number);

/* "DIRECTORY/NAMESUFFIX". To be freed. */
char *path_in_series(const char *directory, const char *name, const char *suffix);

/* Adds a snapshot at the end, with state STATE_KEPT and nothing known; the pointer is valid until
 * the next one is added. source: NULL or its name. */
struct snapshot *add_entry_to_series(struct series *s, const char *name, const char *source);

/* Frees what the snapshot holds. */
void free_entry(struct snapshot *e);

/* Drops all entries of that state. */
void drop_entries(struct series *s, enum snapshot_state state);

/* Empties the list. */
void free_list(struct series *s);

/* The snapshot of that name; NULL: there is none. */
struct snapshot *find_name(const struct series *s, const char *name);

/* Sets the depths of all entries, whose files were looked at. */
void measure_series(struct series *s);

/* Sorts the entries by fingerprint, for find_shallowest(), by name, for find_name(), and by number,
 * for choose_entry(), which without that look at all of them. To be called again when fingerprints
 * or depths have changed. */
void index_series(struct series *s);

/* The same, where nothing has changed but the depth of one entry. */
void reindex_entry(struct series *s, const struct snapshot *e);

/* All entries, the longest chains first, else in order. To be freed. */
struct snapshot **list_deepest_first(struct series *s);

/* Reads the header of its file. */
void look_at_file(struct snapshot *e);

/* Whether the directory holds files that are named like snapshots. */
int holds_snapshots(const char *directory);

/* Reports that there is no series.json, and what can be done. */
int fail_no_manifest(const struct series *s);

/* Reads series.json, and looks at the files. */
int load_manifest(struct series *s);

/* When it returns CODE_OK, the disk has it. After an error it is there or not, as if lmc had been
 * killed here. */
int save_manifest(const struct series *s);

#endif
