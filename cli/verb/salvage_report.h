/* salvage_report.h - what was salvaged and what was not: the table, salvage.json, the last word
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SALVAGE_REPORT_H
#define LMC_CLI_SALVAGE_REPORT_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "../../lmc.h"
#include "../input/archive.h"
#include "../job/restorer.h"

struct options;

struct loss {
    uint64_t start, end;
    enum lmc_status status;
};

struct salvage {
    const struct options *o;
    struct archive archive;
    struct restore tree; /* of the output */
    lmc_damage damage;
    json_t *report, *files, *unplaced;
    struct loss *losses; /* of the file at hand */
    size_t n_losses, room;
    uint64_t got; /* bytes of it */
    uint64_t n_files, n_whole_files, n_tensors, n_whole_tensors, n_with_base, n_unplaced, size,
        lost, n_wrong;
    int wants_base;
};

const char *name_loss(enum lmc_status status);

/* The name of what was recovered of a file, below the output; NULL: nothing was. To be freed. */
void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size,
                 const char *where);

int write_report(struct salvage *s);

int conclude(const struct salvage *s);

#endif
