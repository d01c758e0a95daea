/* roles.h - the roles that tensors have by their names, and the rules that select them
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_ROLES_H
#define LMC_CLI_ROLES_H

#include "../sys/platform.h"

#include "../../lmc.h"
#include "policy.h"

/* Where the word stands in the text by itself, not as a part of a longer one; NULL: nowhere. */
const char *find_word(const char *text, const char *word);

/* What is known of a tensor by its name, or else by the path of its file. */
struct meaning {
    enum role role;
    const struct moments *names; /* of a moment that was found by them; or NULL */
    const char *word;            /* then: where the one of them stands, in name or path */
};

/* What is no float, and is not named by the user, is of no role. */
struct meaning find_meaning(const struct policy *p, const char *path, const lmc_tensor *t);

/* The last one that matches; NULL: none does. Where none names weights, the automatic policy says
 * what becomes of them. */
const struct rule *find_rule(const struct policy *p, const char *path, const lmc_tensor *t,
                             enum role role);

#endif
