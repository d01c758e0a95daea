/* restore_wanted.h - which files of a snapshot are wanted: by name, by pattern, or by a link
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RESTORE_WANTED_H
#define LMC_CLI_RESTORE_WANTED_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"
#include "../input/links.h"

/* What a link leads to: real, in the snapshot, restored as `shown`. */
struct led {
    char *real, *shown;
};

struct wanted {
    char *const *patterns; /* the user's */
    size_t n;
    const struct links *links;
    int is_dereferenced;     /* what links lead to is restored in their place */
    unsigned char *is_used;  /* of each pattern: it has led to something */
    unsigned char *is_taken; /* of each link: it is wanted */
    struct led *list;        /* sorted by what is real */
    size_t n_led, room;
    const char **files; /* the paths of all files of the snapshot, sorted */
    size_t n_files;
    size_t n_followed, n_lost;          /* links that lead to what is there; elsewhere */
    uint64_t most;                      /* of both together */
    int is_too_many;                    /* they would be more: the list is not complete */
    const struct link *followed, *lost; /* the first of each */
    const struct link *named_lost;      /* of those lost, the first that a pattern names */
};

/* Finds the links that the patterns want, and what they lead to, and so on. most: files that may be
 * restored. A thousand links to a directory of a thousand lead to a million files. */
void find_wanted(struct wanted *w, char *const *patterns, size_t n, const struct links *links,
                 const lmc_reader *reader, int is_dereferenced, uint64_t most);

/* Whether a pattern wants the path; marks it as used. */
int matches_any(struct wanted *w, const char *path);

/* The next of the files at that path or below it. *at begins as 0. NULL: there are no more. */
const char *next_file(const struct wanted *w, const char *path, size_t *at);

void free_wanted(struct wanted *w);

#endif
