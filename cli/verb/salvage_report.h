/* salvage_report.h - what was salvaged and what was not: the table, salvage.json, the last word
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SALVAGE_REPORT_H
#define LMC_CLI_SALVAGE_REPORT_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"
#include "../../include/lmc_salvage.h"
#include "../format/json.h"
#include "../input/archive.h"
#include "../job/restored_tree.h"

struct common;

struct loss {
    uint64_t start, end;
    enum lmc_status status;
};

struct salvage {
    const struct common *o;
    int json; /* see struct salvage_options */
    struct archive archive;
    lmc_salvage *salvage;      /* whose reader is the archive's */
    struct restored_tree tree; /* of the output */
    lmc_damage damage;
    int scratch;             /* a file without a name, with the lists of salvage.json */
    struct json_writer list; /* which writes there */
    struct loss *losses;     /* of the file at hand */
    size_t n_losses, room;
    uint64_t got; /* bytes of it */
    uint64_t n_files, n_whole_files, n_tensors, n_whole_tensors, n_with_base, n_unplaced, size,
        lost, n_wrong;
    int wants_base;
};

/* For the table and JSON. */
const char *name_loss(enum lmc_status status);

/* The files, one after another, then the blocks without a place, which are entries of s->list. */
int begin_report(struct salvage *s);
void begin_unplaced(struct salvage *s);

/* where: the name of what was recovered of a file, below the output; NULL: nothing was. To be
 * freed. */
void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size,
                 const char *where);

/* Writes salvage.json into the output, and to standard output with --json. */
int write_report(struct salvage *s);

/* Says how it went; returns the exit code. */
int conclude(const struct salvage *s);

#endif
