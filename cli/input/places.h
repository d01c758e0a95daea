/* places.h - snapshots that a base may be, known by their fingerprints before they are opened
 * SPDX-License-Identifier: MIT
 *
 * They are arguments, or lie in the directories where bases are looked for. To find a base among
 * thousands, no more is read of each than header, trailer and the head of the index: what they say
 * is a hint. Before a snapshot is used as a base, its index is read and checked.
 */
#pragma once

#include "../sys/platform.h"

struct base;

struct place_entry {
    char *path;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], wanted[LMC_FINGERPRINT_SIZE];
    int is_delta;
    int is_given;      /* an argument; else it lies in one of the directories */
    uint32_t depth;    /* among all entries: see measure_depths() */
    size_t number;     /* of the argument; else in the order in which they were added */
    struct base *base; /* the user's, of what is not given; NULL before */
};

/* By fingerprint, then by depth, then given ones first, then by number. */
struct places {
    struct place_entry *list;
    size_t n, room;
    int is_sorted;
    char **directories; /* that were looked through */
    size_t n_directories;
};

/* Adds all .lmc files of the directory, once; not those below it, and none that cannot be read. */
void add_places(struct places *p, const char *directory);

/* Adds one. What the file says that it is, until more is added; NULL: it is no snapshot. */
const struct place_entry *add_place(struct places *p, const char *path, int is_given,
                                    size_t number);

/* Whether it is a directory that holds .lmc files; if is_all, nothing else but the list of a
 * series. Hidden files do not count. errno: 0, or why not all names could be read. */
int contains_snapshots(const char *directory, int is_all);

/* The first entry with that fingerprint, and how many there are; until more is added. */
struct place_entry *find_places(struct places *p, const uint8_t *fingerprint, size_t *n);

void free_places(struct places *p);

/* A snapshot; wanted: the fingerprint of its base, NULL if it needs none. */
struct link_of_chain {
    const uint8_t *fingerprint, *wanted;
    uint32_t depth; /* what measure_depths() finds */
};

/* From here on a base is missing: the depth above the delta that needs it. */
#define DEPTH_LOOSE ((uint32_t)1 << 31)

/* Deltas of the shortest chain that leads down to a snapshot without a base; DEPTH_LOOSE and more
 * if there is none. Of several with the wanted fingerprint, take the one of least depth: then no
 * circle is possible. A delta in which nothing has changed is no base of its like. */
void measure_depths(struct link_of_chain *list, size_t n);
