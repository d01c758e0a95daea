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
#include "../include/lmc_extra.h"

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

/* -- roles that tensors have by their names, and what rules mean for them (roles.c) -- */

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
