/* places.h - where bases are looked for: directories of snapshots, known by their fingerprints
 * SPDX-License-Identifier: MIT
 *
 * To find the base of a delta among thousands of snapshots, no more is read of each than header,
 * trailer and the head of the index: what they say is a hint. Who takes a snapshot for a base reads
 * and checks its index first.
 */
#ifndef LMC_CLI_PLACES_H
#define LMC_CLI_PLACES_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

struct base;

struct place_entry {
    char *path;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], wanted[LMC_FINGERPRINT_SIZE];
    int is_delta;
    uint32_t depth;    /* among the snapshots in the places: see depths.h */
    size_t number;     /* in the order in which they were added */
    struct base *base; /* the user's; NULL before */
};

/* By fingerprint, then by depth, then in the order in which they were added. */
struct places {
    struct place_entry *list;
    size_t n, room;
    int is_sorted;
    char **directories; /* that were looked through */
    size_t n_directories;
};

/* What the file says that it is; 0, or -1: it is no snapshot, or is damaged. */
int probe_snapshot(struct place_entry *e, const char *path);

/* Adds all .lmc files of the directory, not those below it; once. What cannot be read is left
 * out. */
void add_places(struct places *p, const char *directory);

/* Adds one file, with a number of the caller's; 0, or -1: it is no snapshot. */
int add_place(struct places *p, const char *path, size_t number);

/* The entry with that number; NULL: there is none, or p is NULL. */
const struct place_entry *find_place_numbered(const struct places *p, size_t number);

/* Whether it is a directory that holds .lmc files; and whether these are all that it holds, but for
 * the list of a series and hidden files. */
int contains_snapshots(const char *directory);
int contains_only_snapshots(const char *directory);

/* The first entry with that fingerprint, and how many there are; until places are added. */
struct place_entry *find_places(struct places *p, const uint8_t *fingerprint, size_t *n);

void free_places(struct places *p);

#endif
