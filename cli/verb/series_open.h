/* series_open.h - opening a series: locks, and what a kill left behind
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_OPEN_H
#define LMC_CLI_SERIES_OPEN_H

#include "../sys/platform.h"

struct series_options;
struct series;

enum lock { LOCK_CHANGES, LOCK_READERS };

/* 0 or errno; command: F_SETLK or F_SETLKW, type: F_RDLCK, F_WRLCK or F_UNLCK. */
int set_lock(const struct series *s, enum lock which, int command, short type);

/* 0 or errno; waits. */
int take_lock(const struct series *s, enum lock which, short type);

/* Outputs that were never completed. A directory of such a name can be somebody's old one, see
 * exchange_trees(). */
int remove_temporaries(const struct series *s);

enum purpose { TO_READ, TO_CHANGE, TO_CREATE, TO_REBUILD };

/* Unlocks it, too. */
void close_series(struct series *s);

/* To be closed in any case. */
int open_series(struct series *s, const char *directory, enum purpose purpose,
                const struct series_options *o);

#endif
