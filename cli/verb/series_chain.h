/* series_chain.h - which snapshots of a series need which
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_CHAIN_H
#define LMC_CLI_SERIES_CHAIN_H

#include "../sys/platform.h"

#include <stdint.h>

#include "../input/common.h"
#include "series_manifest.h"

/* Of the snapshots that have that content, the one with the shortest chain, shorter than below;
 * NULL: there is none. Since every base has a shorter chain than what needs it, there are no loops,
 * whatever repeats. */
const struct snapshot *find_shallowest(const struct series *s, const uint8_t *fingerprint,
                                       uint64_t below, int only_kept);

/* NULL: it has none, or none is there. */
const struct snapshot *find_base_of(const struct series *s, const struct snapshot *e,
                                    int only_kept);

/* The deltas of its chain, as it is now; -1: the chain is broken. */
long count_deltas(const struct series *s, const struct snapshot *e);

/* The same of all of them, each link looked at once. To be freed. */
long *count_all_deltas(const struct series *s);

/* That the file and all that it needs are there; only_kept: even when what is forgotten goes.
 * known: NULL, or a mark for each entry whose chain was checked and is right, which is updated. */
int check_chain_of(const struct series *s, const struct snapshot *e, int only_kept,
                   unsigned char *known);

/* Options of their own, with the bases that a snapshot needs. */
struct chain {
    struct common common;
    struct bases bases;
};

/* The options of the series, without bases, output and force. The bases are to be freed. */
void begin_chain(struct chain *c, const struct common *o);

/* What e needs, the nearest first; is_base: and before that e itself. */
void add_links(struct chain *c, const struct series *s, const struct snapshot *e, int is_base);

/* Fingerprint of the snapshot at path, and bytes that it restores. */
int read_fingerprint(const char *path, uint8_t *fingerprint, uint64_t *size,
                     const struct common *o);

/* That the file is what was added. */
int check_entry(const struct series *s, const struct snapshot *e);

/* By its name; or, among those of that state, the last one, or the one with that number in its
 * name. */
int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found);

/* Tells what is done to the snapshot called name, or would be. */
void tell(const struct series_options *o, const char *what, const char *name, const char *link,
          const char *other);

#endif
