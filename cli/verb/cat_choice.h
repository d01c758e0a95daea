/* cat_choice.h - which tensors of a snapshot names and patterns mean
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_CAT_CHOICE_H
#define LMC_CLI_CAT_CHOICE_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../../lmc.h"
#include "../../formats/container.h"

struct archive;

/* A tensor that was chosen. */
struct chosen {
    size_t file;
    const lmc_tensor *tensor;          /* NULL: described */
    const struct container_view *view; /* NULL: it is none */
    lmc_tensor described;
};

/* All that were chosen. */
struct choice_of_tensors {
    struct chosen *list;
    size_t n, room;
    struct container *inside; /* of each file of the snapshot */
};

/* All tensors that one of n patterns matches, or all if n is 0, of one file of the snapshot, or of
 * all if file is NULL, as PyTorch has them. Returns an exit code; to be freed in any case, while
 * the archive is open. */
int choose_tensors(struct choice_of_tensors *c, struct archive *a, char *const *names, size_t n,
                   const char *file);
void free_choice(struct choice_of_tensors *c, const struct archive *a);

/* What it is to who reads it: a view, or the tensor of the file. */
const lmc_tensor *tensor_of_chosen(const struct chosen *c);

/* Says that a tensor was not found, or why not, and returns the exit code. file may be NULL. */
int fail_lookup(const struct archive *a, enum lmc_status status, const char *name,
                const char *file);

#endif
