/* series.h - the list of a series: series.json, the order of steps, and what rules keep
 * SPDX-License-Identifier: MIT
 *
 * The directory of a series holds a file NAME.lmc for each snapshot, series.json and .lock.
 * series.json lists the valid names, in the order of adding. A name is reserved there before its
 * file exists, and confirmed when the file is complete. Only the header of a delta names its base,
 * as gc may replace a file by a file with the same content and another base.
 *
 * A name only finds a snapshot: what it is, its fingerprint in the list says. A file that has
 * another one counts as no snapshot of the series.
 *
 * 'latest' and --keep-last follow the steps, not the order of adding: a run that was resumed adds
 * lower steps later.
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
 * A kill leaves one of these states, and the next command goes on from there. (The Python package
 * writes a file under another name, so it has no use for "adding".)
 */
#pragma once

#include "../lmc.h"

#define MAX_SNAPSHOT_NAME 200 /* bytes; file systems allow 255 */

/* STATE_GONE keeps the name in the list: else a watch that does not remove its sources would add
 * the snapshot again. */
enum snapshot_state { STATE_KEPT, STATE_ADDING, STATE_FORGOTTEN, STATE_GONE };

extern const char *const state_names[];

struct snapshot {
    char *name;
    char *source; /* the source's name, without directory; NULL: unknown */
    enum snapshot_state state;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* zero while adding */
    /* The Python package is replacing the file, by one with this fingerprint: it may be either. */
    uint8_t next[LMC_FINGERPRINT_SIZE];
    int has_next;
    uint64_t size; /* of what it restores; below 2^63 */
    int64_t time;  /* when it was added, in seconds */
    uint64_t seen; /* the state of its source when that had this content */
    int has_seen;
    const char *step; /* set by sort_by_steps() */
    int stays;        /* see choose_kept() */

    /* -- of the file: members for the caller, which the functions here neither read nor set -- */
    char *path;
    /* FILE_OTHER: a snapshot, but not the one that was added */
    enum { FILE_MISSING, FILE_DAMAGED, FILE_OTHER, FILE_THERE } file;
    uint8_t found[LMC_FINGERPRINT_SIZE];
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* of its base */
    int is_delta;
    uint32_t depth; /* deltas in its chain, see measure_depths(); from DEPTH_LOOSE on: broken */
    uint64_t packed_size;
};

/* What is wrong with the name of a snapshot; NULL: nothing. */
const char *find_fault_of_name(const char *name);

/* -- series.json: a line for each snapshot; the last is the CRC-32C of the others (list.c) -- */

struct list_of_series {
    int64_t version;
    int64_t every; /* largest number of files in a chain, 1 or more */
    struct snapshot *list;
    size_t n, cap;
    const char *fault; /* LIST_DAMAGED: what is wrong */
};

enum list_result { LIST_OK, LIST_DAMAGED, LIST_NEWER, LIST_MEMORY };

/* Reads the text, behind whose size bytes there must be a zero. Changes it: names are unescaped in
 * their places, so they are valid as long as the text is. is_sealed: its last line is the checksum;
 * else it has none. Even after an error l->list is to be freed. */
enum list_result parse_series(struct list_of_series *l, char *text, size_t size, int is_sealed);

/* The text of series.json; to be freed. NULL: out of memory. */
char *format_series(uint64_t every, const struct snapshot *list, size_t n, size_t *size);

/* -- the numbers in names, and what rules keep (steps.c) -- */

/* The number in a name: the last one that follows "step" or "iter", as in llama-3-8b-step1000; else
 * the last one that follows no letter (the 16 of bf16 does); else the last one. The 2 of step-30@2
 * does not count: it is what watch names a source that was changed and added again. It may have any
 * number of digits: *size, from the first that is not zero. NULL: there is none. */
const char *find_number(const char *name, size_t *size);

/* Below, at or above 0: the number in the name is less than, equal to or greater than that of
 * digits, in which nothing else is, or that in another name. No number is less than any. */
int compare_number(const char *name, const char *digits);
int compare_numbers(const char *a, const char *b);

/* Sorts pointers into a list by the numbers in the names: by the last one's kind as above, but all
 * of that kind, the first one first (as in 2026-11-28, or epoch-2-batch-10). A name without a
 * number stands behind the highest number of a kept one that was added before it. Equal numbers: in
 * the order of adding, in which all are at first. */
void sort_by_steps(struct snapshot **list, size_t n);

struct keep_rules {
    uint64_t last;  /* keep that many with the highest steps; */
    uint64_t every; /* those whose number is a multiple of this, and all without a number; */
    uint64_t least; /* and the next highest, until at least that many are kept. 0: no such rule */
};

/* Sets `stays` of each kept snapshot that the rules keep; those that have it already are named by a
 * rule. list: sorted by steps; what is not kept is passed over. Returns how many stay. */
size_t choose_kept(struct snapshot *const *list, size_t n, const struct keep_rules *rules);
