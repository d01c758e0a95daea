/* series_manifest.h - what the commands of a series share: its list, chains, locks, sources
 * SPDX-License-Identifier: MIT
 *
 * The directory of a series holds a file NAME.lmc for each snapshot, series.json and .lock.
 * series.json lists the valid names, in the order of adding. A name is reserved there before its
 * file exists, and confirmed when the file is complete. Only the header of a delta names its base,
 * as gc may replace a file by a file with the same content and another base.
 *
 * A name only finds a snapshot: what it is, its fingerprint in the list says. look_at_file() reads
 * that of the file, and a file that has another one counts as no snapshot of the series.
 *
 * 'latest' and --keep-last follow the steps (BY_STEP), not the order of adding: a run that was
 * resumed adds lower steps later.
 *
 * Nothing is removed before its replacement is on the disk. A source is removed after its snapshot
 * was compared with it and confirmed in the list. A forgotten snapshot is removed when no kept
 * snapshot needs it. Each state is in series.json on the disk before the next step:
 *
 *   none --1--> adding --2--> kept --3--> forgotten --5--> gone
 *     ^           |             ^              |
 *     +-----6-----+             +------4-------+
 *
 *   1  add reserves the name. Until step 2, a file of that name does not count, and the
 *      source stays
 *   2  the file is whole and on the disk; before --rm, it was compared with the source
 *   3  prune. The file stays, as kept snapshots may still need it
 *   4  keep
 *   5  gc. Kept snapshots that needed it are coded again, without it; its file is removed. The
 *      name stays, so that watch does not add it again; add may use the name
 *   6  add failed or was killed: add, or the next command that locks, removes file and entry
 *
 * A kill leaves one of these states, and the next command goes on from there.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/options.h"

#define MANIFEST_NAME "series.json"
#define LOCK_NAME ".lock"
#define DEFAULT_EVERY 16

/* STATE_GONE keeps the name in the list: else a watch that does not remove its sources would add
 * the snapshot again. */
enum snapshot_state { STATE_KEPT, STATE_ADDING, STATE_FORGOTTEN, STATE_GONE };

extern const char *const state_names[];

struct snapshot {
    char *name, *path;
    char *source;     /* the source's name, without directory; NULL: unknown */
    const char *step; /* the name whose numbers say where it stands, see sort_series(); or NULL */
    enum snapshot_state state;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* zero while adding */
    uint64_t size;                             /* of what it restores */
    int64_t time;                              /* when it was added */
    uint64_t seen; /* the state of its source when that had this content, by struct look */
    int has_seen;
    /* see look_at_file(). FILE_OTHER: a snapshot, but not the one that was added */
    enum { FILE_MISSING, FILE_DAMAGED, FILE_OTHER, FILE_THERE } file;
    uint8_t found[LMC_FINGERPRINT_SIZE]; /* of the file */
    /* The Python package is replacing the file, by one with this fingerprint: it may be either. */
    uint8_t next[LMC_FINGERPRINT_SIZE];
    int has_next;
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* of its base */
    int is_delta;
    uint32_t depth; /* deltas in its chain, see measure_depths(); from DEPTH_LOOSE on: broken */
    uint64_t packed_size;
};

/* Orders of the list, which are sorted when they are first needed. */
enum series_order {
    BY_FINGERPRINT, /* of equal ones, the shortest chain first */
    BY_DEPTH,       /* the longest chains first */
    BY_NAME,
    /* By the numbers in the names. A name without a number stands behind the highest number of a
     * kept one that was added before it. Equal numbers: in the order of adding. */
    BY_STEP,
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
    size_t n, room;
    struct series_index {
        struct snapshot **by[SERIES_ORDERS]; /* NULL: not sorted */
    } *index;
};

/* -- the list -- */

/* What is wrong with the name of a snapshot; NULL: nothing. */
const char *find_fault_of_name(const char *name);

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

/* -- the numbers in a name (series_steps.c) -- */

/* The number in a name: the last one that follows "step" or "iter", as in llama-3-8b-step1000; else
 * the last one that follows no letter (the 16 of bf16 does); else the last one. The 2 of step-30@2
 * does not count: see find_newest_of(). It may have any number of digits: *size, from the first
 * that is not zero. NULL: there is none. */
const char *find_number(const char *name, size_t *size);

/* Whether that is the number in the name. digits: nothing else is in it. */
int has_that_number(const char *name, const char *digits);

/* Whether the number in the name is a multiple of `divisor`, 1 to INT64_MAX. */
int has_multiple(const char *name, uint64_t divisor);

/* Compares names by their numbers: by the last one's kind as above, but all of that kind, the first
 * one first (as in 2026-11-28, or epoch-2-batch-10). */
int compare_steps(const char *a, const char *b);

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

/* Reports why the file of e, which is not FILE_THERE, is no snapshot of the series. */
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
