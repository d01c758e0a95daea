/* series_manifest.h - what the commands of a series share: its list, chains, locks, sources
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../store/series.h"
#include "../input/options.h"

#define MANIFEST_NAME "series.json"
#define LOCK_NAME ".lock"
#define DEFAULT_EVERY 16

/* Orders of the list, which are sorted when they are first needed. */
enum series_order {
    BY_FINGERPRINT, /* of equal ones, the shortest chain first */
    BY_DEPTH,       /* the longest chains first */
    BY_NAME,
    BY_NUMBER, /* that in the name, which find_number() finds */
    BY_STEP,   /* see sort_by_steps() */
    SERIES_ORDERS
};

struct series {
    const struct options *o;
    const char *directory; /* of o */
    char *manifest_path;
    int dir;         /* the directory, open; -1: not yet */
    int lock_fd;     /* -1: none, as on a read-only file system */
    int is_replaced; /* a new list will replace it: damage is not reported */
    uint64_t every;  /* largest number of files in a chain */
    struct snapshot *list;
    size_t n, cap;
    struct series_index {
        struct snapshot **by[SERIES_ORDERS]; /* NULL: not sorted */
    } *index;
};

/* -- the list -- */

/* "DIRECTORY/NAMESUFFIX". To be freed. */
char *path_in_series(const char *directory, const char *name, const char *suffix);

/* Makes an empty series, not opened; to be closed. */
void init_series(struct series *s, const struct options *o);

/* Closes and unlocks the series. */
void close_series(struct series *s);

/* Adds a snapshot at the end, with STATE_KEPT and all else zero. The pointer is valid until the
 * next one is added. source: NULL or its name. */
struct snapshot *add_entry_to_series(struct series *s, const char *name, const char *source);

/* Removes the entries of that state: all (name NULL), or the one of that name. */
void drop_entries(struct series *s, enum snapshot_state state, const char *name);

/* The snapshot of that name; NULL: there is none. */
struct snapshot *find_name(const struct series *s, const char *name);

/* The newest snapshot of the source of that name: `name`, or name@2, name@3, ... if the source was
 * changed and added again. NULL: there is none. *next: the number of the next one. If `name` has
 * another source, it is found, too. */
struct snapshot *find_newest_of(const struct series *s, const char *name, const char *source,
                                unsigned *next);

/* The last snapshot of that state in the order of adding; NULL: there is none. */
struct snapshot *find_last_added(const struct series *s, enum snapshot_state state);

/* The last one in the order of steps: 'latest'. */
struct snapshot *find_latest(const struct series *s, enum snapshot_state state);

/* Finds the snapshot of that name; or, among the snapshots of that state, the latest one (for
 * "latest") or the one with that number in its name. */
int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found);

/* Reads the header and the fingerprint of the snapshot's file, and compares it with the list. */
void look_at_file(struct snapshot *e);

/* -- on the disk -- */

/* Reads series.json, and looks at the files. */
int load_manifest(struct series *s);

/* Writes series.json. CODE_OK: it is on the disk. After an error, as after a kill, the old or the
 * new list is there. */
int save_manifest(const struct series *s);

/* Syncs all of a snapshot that was added before, perhaps by another command, which was told that
 * this is not possible. Needed before a source is removed. */
int sync_snapshot(const struct series *s, const struct snapshot *e);

/* -- opening and locks -- */

enum purpose { TO_READ, TO_CHANGE, TO_CREATE, TO_REBUILD };

/* To be closed even after an error. */
int open_series(struct series *s, enum purpose purpose, const struct options *o);

/* Removes outputs that were not completed. */
int remove_temporaries(const struct series *s);

/* Lock readers out while listed files change, and let them in again. Both wait. 0 or errno. */
int lock_out_readers(const struct series *s);
int let_in_readers(const struct series *s);

/* -- orders, and which snapshots need which (series_chain.c) -- */

/* All entries in that order; valid until an entry changes. */
struct snapshot **sort_series(const struct series *s, enum series_order order);

/* To be called when entries have changed: all orders are sorted again when they are needed. */
void forget_order(const struct series *s);

/* Sets the depths of all entries, after look_at_file(). To be called after each change. */
void measure_series(struct series *s);

/* Of the snapshots with that fingerprint, the one with the shortest chain; it must be shorter than
 * `below`. NULL: none. As each base has a shorter chain than its deltas, there are no loops. */
const struct snapshot *find_shallowest(const struct series *s, const uint8_t *fingerprint,
                                       uint64_t below, int only_kept);

/* The base of e; NULL: e needs none, or it is missing. */
const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e,
                                    int only_kept);

/* Reports why the file of e, which is not FILE_THERE, is not a snapshot of the series. */
int fail_entry(const struct series *s, const struct snapshot *e);

/* The snapshot that the list has with the fingerprint that e needs, but whose file is not there;
 * NULL: none. */
const struct snapshot *find_broken_base(const struct series *s, const struct snapshot *e);

/* Checks that the file of e and those of its bases are there, and are the snapshots that were
 * added; only_kept: among kept snapshots. known: NULL, or a mark for each entry whose chain was
 * found complete, which is updated. */
int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept,
                   unsigned char *known);

/* A copy of the options, with the bases that a snapshot needs. */
struct chain {
    struct options o;
    struct bases bases;
};

/* Opens a snapshot of the series: check_chain_of(), then begin_chain(). */
int open_chain(struct chain *c, const struct series *s, const struct snapshot *e);

/* Copies the options of the series, without output and force, and adds the bases that e needs
 * (NULL: none), the nearest first. The bases are to be freed. */
void begin_chain(struct chain *c, const struct series *s, const struct snapshot *e);

/* Adds e (NULL: nothing), and what it needs. */
void add_to_chain(struct chain *c, const struct series *s, const struct snapshot *e);

/* Reads the fingerprint of the snapshot at path, and the number of bytes that it restores. */
int read_fingerprint(const char *path, uint8_t *fingerprint, uint64_t *size,
                     const struct options *o);

/* Checks that the file is the snapshot that was added. */
int check_entry(const struct series *s, const struct snapshot *e);

/* Checks that all kept snapshots can be restored, as far as possible without reading all data.
 * known: NULL, or zeros, which become a mark for each entry that is needed. */
int check_kept(const struct series *s, int only_kept, unsigned char *known);

/* Reports what is done to the snapshot of that name, or with --dry-run would be done. */
void tell(const struct options *o, const char *what, const char *name, const char *link,
          const char *other);
