/* policy.h - rules: what may be quantised, and how much
 * SPDX-License-Identifier: MIT
 *
 *     GLOB[,role=..][,dtype=..][,min=SIZE][,max=SIZE]=CHOICE
 *
 * Nothing is quantised without a rule. A rule selects tensors by name, role, dtype and size, and
 * says how near the result must be; of all that match the last one counts. GLOB is a pattern
 * (pattern.h). A comma may be followed by blanks.
 */
#pragma once

#include "../lmc.h"

enum role { ROLE_OTHER, ROLE_WEIGHT, ROLE_M, ROLE_V, ROLE_GRADIENT, N_ROLES };

extern const char *const role_names[N_ROLES];

#define ROLE_BIT(role) (1u << (role))

/* What a rule without role= selects. */
#define DEFAULT_ROLES (ROLE_BIT(ROLE_M) | ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_GRADIENT))

/* What first and second moments are called, in otherwise equal names. */
struct moments {
    const char *m, *v;
    int is_common; /* other things are called so, too: only both together are moments */
};

enum choice_kind { CHOOSE_LOSSLESS, CHOOSE_BITS, CHOOSE_BOUND, CHOOSE_AUTO };

struct rule {
    char *text;           /* as it was given; begins with the pattern */
    size_t glob_size;     /* of the pattern */
    unsigned roles;       /* a bit for each */
    enum lmc_dtype dtype; /* LMC_AUTO: any */
    uint64_t min_size, max_size;
    enum choice_kind kind;
    unsigned bits;
    enum lmc_measure measure;
    double bound;
};

/* "role=v match=GLOB": what the names do not tell by themselves. */
struct naming {
    char *glob;
    enum role role;
};

struct policy {
    struct rule *rules;
    size_t n_rules;
    struct naming *namings;
    size_t n_namings;
    struct moments *moments;
    size_t n_moments;
    enum lmc_level level;
    unsigned log2_block; /* 0: the default */
};

void free_policy(struct policy *p);

/* Whether some rule asks for less than all. */
int is_lossy(const struct policy *p);

/* Adds a rule. Returns its fault, for a message, or NULL. After a fault p can only be freed. */
const char *parse_rule(struct policy *p, const char *text);

/* Adds what a line of a file of rules says: a rule, "role=v match=GLOB", "m=NAME v=NAME", "default
 * level=max", "default block=256K", or nothing; behind a '#' is a comment. */
const char *parse_policy_line(struct policy *p, const char *line);
