/* catalog.h - snapshots that may be a base, known by their fingerprints before they are opened
 * SPDX-License-Identifier: MIT
 *
 * The catalog has the snapshots that are arguments, or are in a directory that is searched for
 * bases. As there may be thousands, only header, trailer and the start of the index are read,
 * unchecked. Before a snapshot is used as a base, its index is read and checked.
 */
#pragma once

#include "../sys/platform.h"

#include "../../store/chains.h"

struct base;

struct catalog_entry {
    char *path;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], wanted[LMC_FINGERPRINT_SIZE];
    int is_delta;
    int is_given;      /* an argument; else it is in one of the directories */
    uint32_t depth;    /* among all entries, see measure_depths() */
    size_t number;     /* of the argument; else in the order of adding */
    struct base *base; /* made from this entry, if not given but used; else NULL */
};

/* Sorted by fingerprint, then depth, then given snapshots first, then number. */
struct catalog {
    struct catalog_entry *list;
    size_t n, cap, n_sorted;
    char **directories; /* directories that were added */
    size_t n_directories;
};

/* Adds all readable .lmc files in the directory, but not below it. A second call does nothing. */
void enter_snapshots(struct catalog *p, const char *directory);

/* Adds a snapshot, as its file describes it. Valid until more is added; NULL: it is not
 * a snapshot. */
const struct catalog_entry *enter_snapshot(struct catalog *p, const char *path, int is_given,
                                           size_t number);

/* Whether it is a directory that has .lmc files; if is_all, with nothing else but series.json.
 * Hidden files do not count. Sets errno: 0, or the error of reading the names. */
int contains_snapshots(const char *directory, int is_all);

/* The first entry with that fingerprint, and how many there are. Valid until more is added. */
struct catalog_entry *find_entries(struct catalog *p, const uint8_t *fingerprint, size_t *n);

/* Whether e is a delta that changes nothing: its base has the same content and a shorter chain. */
int is_unchanged_delta(const struct catalog_entry *e);

void free_catalog(struct catalog *p);
