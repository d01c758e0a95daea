/* roles.h - the roles that tensors have by their names, the rules that select them, and what these
 * mean for them
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "policy.h"

/* Where the word stands in the text by itself, not as a part of a longer one; NULL: nowhere. */
const char *find_word(const char *text, const char *word);

/* What is known of a tensor by its name, or else by the path of its file. */
struct meaning {
    enum role role;
    const struct moments *names; /* of a moment that was found by them; or NULL */
    const char *word;            /* then: where the one of them stands, in name or path */
};

/* path: of the tensor's file, in the snapshot. What is no float has the role that users name. */
struct meaning find_meaning(const struct policy *p, const char *path, const lmc_tensor *t);

/* The last one that matches, or NULL. Where none names weights, a rule with auto: is for them, too.
 */
const struct rule *find_rule(const struct policy *p, const char *path, const lmc_tensor *t,
                             enum role role);

/* Why a tensor is not quantised by that rule, whatever is in it; NULL: it is. */
const char *find_obstacle(const struct rule *r, enum role role, const lmc_tensor *t);

/* Whether a rule has a use for the second moment beside a tensor of that role. */
int wants_second(const struct rule *r, enum role role);

/* Neighbours of a tensor that share a scale. */
uint64_t choose_group(const lmc_tensor *t);

/* What a rule means for a tensor of that role, but for the second moment itself. has_second: it is
 * at hand where the tensor is decoded. */
void set_quantizer_options(lmc_quantizer_options *options, const struct rule *r, enum role role,
                           const lmc_tensor *t, int has_second);
