/* series_manifest.h - what the commands of a series share: its list, chains, locks, sources
 * SPDX-License-Identifier: MIT
 *
 * The directory of a series holds a file NAME.lmc for each snapshot, series.json and .lock.
 * series.json tells which names count, in the order of adding. A name is reserved there before its
 * file exists, and confirmed when the file is complete. What a delta is based on stands only in its
 * own header: gc may replace a file by another one of the same content.
 *
 * Nothing goes before what replaces it is on the disk: a source is removed after its snapshot has
 * been compared with it and is confirmed in the list; a snapshot that was forgotten, after all kept
 * ones do without it. The states of a snapshot, each on the disk (series.json) before what it
 * allows:
 *
 *   none --1--> adding --2--> kept --3--> forgotten --5--> gone
 *     ^           |             ^              |
 *     +-----6-----+             +------4-------+
 *
 *   1  add reserves the name. Until 2, a file of that name is worth nothing, and the source is
 *      there
 *   2  the file is whole and on the disk; if the source is to go, it was compared with it
 *   3  prune. The file stays, for kept ones may still need it
 *   4  keep
 *   5  gc. Kept ones that needed it are coded again, without it; then its file goes. The name
 *      stays, so that watch does not add it once more; add may take it
 *   6  an add failed or was killed: it, or who changes the series next, removes file and entry
 *
 * A kill leaves one of these states, and what comes next goes on from there.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/options.h"

#define MANIFEST_NAME "series.json"
#define LOCK_NAME ".lock"
#define DEFAULT_EVERY 16

/* The name of one that is gone stays: or a watch that does not remove its sources would add it
 * again. */
enum snapshot_state { STATE_KEPT, STATE_ADDING, STATE_FORGOTTEN, STATE_GONE };

extern const char *const state_names[];

struct snapshot {
    char *name, *path;
    char *source;    /* its name without directory; NULL: not known */
    uint64_t number; /* in the name, see find_number() */
    int has_number;
    enum snapshot_state state;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* zero while adding */
    uint64_t size;                             /* of what it restores */
    int64_t time;                              /* when it was added */
    /* see look_at_file() */
    enum { FILE_MISSING, FILE_DAMAGED, FILE_THERE } file;
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* its base */
    int is_delta;
    uint32_t depth; /* see measure_depths(): the deltas of its chain; from DEPTH_LOOSE on: broken */
    uint64_t packed_size;
};

/* Orders of the list, which are sorted when they are first needed. */
enum series_order {
    BY_FINGERPRINT, /* of one content, the shortest chain first */
    BY_DEPTH,       /* the longest chains first */
    BY_NAME,
    SERIES_ORDERS
};

struct series {
    const struct options *o;
    const char *directory; /* of o */
    char *manifest_path;
    int lock_fd;     /* -1: none; a file system for reading only */
    int is_replaced; /* by a new list: then it may be damaged, which is not told */
    uint64_t every;  /* the longest chain has so many files */
    struct snapshot *list;
    size_t n, room;
    struct series_index {
        struct snapshot **by[SERIES_ORDERS]; /* NULL: not sorted */
    } *index;
};

/* -- the list -- */

/* What is wrong with the name of a snapshot; NULL: nothing. */
const char *find_fault_of_name(const char *name);

/* The number in a name: the last one that follows "step" or "iter", as in llama-3-8b-step1000; if
 * none does, that follows no letter, as that of bf16 does; if all do, the last one. 0: none */
int find_number(const char *name, uint64_t *number);

/* "DIRECTORY/NAMESUFFIX". To be freed. */
char *path_in_series(const char *directory, const char *name, const char *suffix);

/* An empty series, not opened; to be freed. */
void init_series(struct series *s, const struct options *o);

/* Unlocks it, too. */
void close_series(struct series *s);

/* Adds a snapshot at the end, with state STATE_KEPT and nothing known; the pointer is valid until
 * the next one is added. source: NULL or its name. */
struct snapshot *add_entry_to_series(struct series *s, const char *name, const char *source);

/* Drops the entries of that state, of all names or of that one. */
void drop_entries(struct series *s, enum snapshot_state state, const char *name);

/* The snapshot of that name; NULL: there is none. */
struct snapshot *find_name(const struct series *s, const char *name);

/* The last one of that state; NULL: there is none. */
struct snapshot *find_latest(const struct series *s, enum snapshot_state state);

/* The one of that name; or, among those of that state, the last one ("latest"), or the one with
 * that number in its name. */
int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found);

/* All entries in that order; until any changes. */
struct snapshot **sort_series(const struct series *s, enum series_order order);

/* Entries have changed: all orders are sorted anew. */
void forget_order(const struct series *s);

/* Reads the header of its file. */
void look_at_file(struct snapshot *e);

/* -- on the disk -- */

/* Reads series.json, and looks at the files. */
int load_manifest(struct series *s);

/* When it returns CODE_OK, the disk has it. After an error it is there or not, as if lmc had been
 * killed here. */
int save_manifest(const struct series *s);

/* -- opening and locks -- */

enum purpose { TO_READ, TO_CHANGE, TO_CREATE, TO_REBUILD };

/* To be closed in any case. */
int open_series(struct series *s, enum purpose purpose, const struct options *o);

/* Outputs that were never completed. */
int remove_temporaries(const struct series *s);

/* 0 or errno; they wait. Readers are locked out while files change that count. */
int lock_out_readers(const struct series *s);
int let_in_readers(const struct series *s);

/* -- which snapshots need which (series_chain.c) -- */

/* Sets the depths of all entries, whose files were looked at. To be called after each change. */
void measure_series(struct series *s);

/* Of the snapshots that have that content, the one with the shortest chain, shorter than below;
 * NULL: there is none. Since every base has a shorter chain than what needs it, there are no
 * loops. */
const struct snapshot *find_shallowest(const struct series *s, const uint8_t *fingerprint,
                                       uint64_t below, int only_kept);

/* NULL: it has none, or none is there. */
const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e,
                                    int only_kept);

/* That the file and all that it needs are there; only_kept: even when what is forgotten goes.
 * known: a mark for each entry whose chain was checked and is right, which is updated; NULL. */
int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept,
                   unsigned char *known);

/* Options of their own, with the bases that a snapshot needs. */
struct chain {
    struct options o;
    struct bases bases;
};

/* The options of the series, without output and force, and the bases that e needs (NULL: none),
 * the nearest first. The bases are to be freed. */
void begin_chain(struct chain *c, const struct series *s, const struct snapshot *e);

/* Adds e (NULL: nothing), and what it needs. */
void add_to_chain(struct chain *c, const struct series *s, const struct snapshot *e);

/* Fingerprint of the snapshot at path, and bytes that it restores. */
int read_fingerprint(const char *path, uint8_t *fingerprint, uint64_t *size,
                     const struct options *o);

/* That the file is what was added. */
int check_entry(const struct series *s, const struct snapshot *e);

/* Whether everything that is kept can be restored, as far as can be seen without reading it all.
 * known: NULL, or zeros, then a mark for each entry that is needed. */
int check_kept(const struct series *s, int only_kept, unsigned char *known);

/* Tells what is done to the snapshot called name, or would be. */
void tell(const struct options *o, const char *what, const char *name, const char *link,
          const char *other);
