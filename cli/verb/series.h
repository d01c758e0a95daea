/* series.h - lmc series: a directory of snapshots kept as anchors and deltas between
 * SPDX-License-Identifier: MIT
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
 *
 * Each function is a command. It opens the series, which locks it, and closes it.
 */
#pragma once

#include "../sys/platform.h"

#include "../choose/members.h"
#include "../input/common.h"

struct series_options {
    struct common common; /* which has no bases */
    struct coding coding; /* add, watch, gc */
    int remove_source;    /* add, watch: --rm */
    int json;             /* list */
    int npy;              /* cat */
    const char *file;     /* cat */
    const char *name;     /* add; NULL: that of the source */
    int anchor, verify;   /* add: not against another one; compare with the source */
    uint64_t every;       /* add, watch, rebuild: files of the longest chain; 0: as before */
    int dry_run;          /* prune, gc: tell what would be done */
    uint64_t keep_last, keep_every; /* prune; 0: no such rule */
    const char **keep;              /* prune */
    size_t n_keep;
    uint64_t settle, interval; /* watch: seconds */
    int once;                  /* watch */
    const char *match;         /* watch: a pattern for names; NULL: all */
};

int series_add(const char *directory, const char *path, const struct series_options *o);
int series_list(const char *directory, const struct series_options *o);
int series_restore(const char *directory, const char *name, const struct series_options *o);
int series_cat(const char *directory, const char *name, char *tensor,
               const struct series_options *o);
int series_prune(const char *directory, char **names, int n, const struct series_options *o);
int series_keep(const char *directory, char **names, int n, const struct series_options *o);
int series_gc(const char *directory, const struct series_options *o);
int series_verify(const char *directory, char **names, int n, const struct series_options *o);
int series_watch(const char *directory, const char *source, const struct series_options *o);
int series_rebuild(const char *directory, const struct series_options *o);
