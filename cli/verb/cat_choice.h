/* cat_choice.h - finds the tensors that names and patterns mean, and the slice of a tensor
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"

struct archive;

/* A chosen tensor, as it is read. */
struct chosen {
    size_t file;
    lmc_tensor tensor;
    const struct container_view *view; /* where its elements are; NULL: contiguous */
};

/* The chosen tensors; all zero at first. To be freed while the archive is open. */
struct selection {
    struct chosen *list;
    size_t n, cap;
    struct container *inside; /* for each file of the snapshot */
    size_t n_inside;
};

void free_selection(struct selection *c);

/* Chooses all tensors that one of n patterns matches (n 0: all) in that file (NULL: in any), as
 * PyTorch shows them. Returns an exit code. */
int choose_tensors(struct selection *c, struct archive *a, char *const *names, size_t n,
                   const char *file);

/* Chooses the tensor of that name (NULL: the only one). Errors: LMC_ERR_NOT_FOUND, _AMBIGUOUS. */
enum lmc_status choose_tensor(struct selection *c, struct archive *a, const char *name,
                              const char *file);

/* Reports that a tensor was not found, and why. Returns the exit code. file may be NULL. */
int fail_lookup(const struct archive *a, enum lmc_status status, const char *name,
                const char *file);

struct slice {
    uint64_t start[LMC_MAX_RANK], count[LMC_MAX_RANK];
    int dropped[LMC_MAX_RANK]; /* the dimension was given as one index */
};

/* text: what follows the '[', to the end. Returns an exit code. */
int parse_slice(struct slice *s, const char *text, const lmc_tensor *t);
