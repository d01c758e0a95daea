/* series_chain.h - which snapshots of a series need which
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_CHAIN_H
#define LMC_CLI_SERIES_CHAIN_H

#include "../sys/platform.h"

#include <stdint.h>

#include "../input/options.h"
#include "series_manifest.h"

/* Of the snapshots that have that content, the one with the shortest chain, shorter than below;
 * NULL: there is none. Since every base has a shorter chain than what needs it, there are no loops,
 * whatever repeats. */
const struct snapshot *find_shallowest(const struct series *s, const uint8_t *identity,
                                       uint64_t below, int only_kept);

/* NULL: it has none, or none is there. */
const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e,
                                    int only_kept);

/* The deltas of its chain, as it is now; -1: the chain is broken. */
long count_deltas(const struct series *s, const struct snapshot *e);

/* That the file and all that it needs are there; only_kept: even when what is forgotten goes. */
int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept);

/* Options of their own, with the bases that a snapshot needs. */
struct chain {
    struct options o;
    struct bases bases;
};

void begin_chain(struct chain *c, const struct options *o);

/* What e needs, the nearest first; is_base: and before that e itself. */
void add_links(struct chain *c, const struct series *s, const struct snapshot *e, int is_base);

int read_identity(const char *path, uint8_t *identity, uint64_t *size, const struct options *o);

/* That the file is what was added. */
int check_entry(const struct series *s, const struct snapshot *e);

/* By its name; or, among those of that state, the last one, or the one with that number in its
 * name. */
int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found);

#endif
