/* diff_rest.h - what differs between two snapshots besides tensors and files without any
 * SPDX-License-Identifier: MIT
 *
 * Headers, pickles and metadata are no tensors, and a file that has tensors is no row of its own:
 * what differs there, or in where a link leads, shows in no row and no fingerprint.
 */
#ifndef LMC_CLI_DIFF_REST_H
#define LMC_CLI_DIFF_REST_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../format/json.h"
#include "../job/difference.h"

/* Of a file that has tensors, the bytes that belong to none. */
struct file_change {
    enum diff_kind kind; /* changed; added or removed: the whole file */
    const char *path;
    uint64_t size, old_size; /* of those bytes */
    uint64_t n_changed;      /* where the sizes are equal */
};

/* A symbolic link. */
struct link_change {
    char *path, *target, *old_target; /* NULL: there is none */
};

struct diff_rest {
    struct file_change *files;
    struct link_change *links;
    size_t n_files, files_room, n_links, links_room;
};

/* To be freed in any case. d: its sides are ready. */
int measure_rest(struct diff_rest *rest, const struct diff *d);

/* A line for each. */
void print_rest(const struct diff_rest *rest);

/* Members of the object that is open. */
void put_json_rest(struct json_writer *w, const struct diff_rest *rest);

void free_rest(struct diff_rest *rest);

#endif
