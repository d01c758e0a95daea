/* policy.h - rules: what may be quantised, and how much
 * SPDX-License-Identifier: MIT
 *
 *     GLOB[,role=..][,dtype=..][,min=SIZE][,max=SIZE]=CHOICE
 *
 * Nothing is quantised without a rule. A rule selects tensors by name, role, dtype and size, and
 * sets the allowed error. Of all rules that match a tensor, the last one counts. GLOB is a pattern
 * (pattern.h). Blanks may follow a comma.
 */
#pragma once

#include "../lmc.h"
#include "../include/lmc_extra.h"

enum role { ROLE_OTHER, ROLE_WEIGHT, ROLE_M, ROLE_V, ROLE_GRADIENT, N_ROLES };

extern const char *const role_names[N_ROLES];

#define ROLE_BIT(role) (1u << (role))

/* The roles that a rule without role= selects. */
#define DEFAULT_ROLES (ROLE_BIT(ROLE_M) | ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_GRADIENT))

/* The words for first and second moments, in names that are equal apart from these words. */
struct moments {
    const char *m, *v;
    int is_common; /* common words: they mean moments only if both occur */
};

enum choice_kind { CHOOSE_LOSSLESS, CHOOSE_BITS, CHOOSE_KMEANS, CHOOSE_BOUND, CHOOSE_AUTO };

struct rule {
    char *text;           /* as the user wrote it; begins with the pattern */
    size_t glob_size;     /* of the pattern */
    unsigned roles;       /* a bit for each */
    enum lmc_dtype dtype; /* LMC_AUTO: any */
    uint64_t min_size, max_size;
    enum choice_kind kind;
    unsigned bits; /* with kmeans: of the codebook's 2^bits values */
    enum lmc_measure measure;
    double bound;
};

/* "role=v match=GLOB": sets the role of tensors whose names do not tell it. */
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

/* Whether any rule allows loss. */
int is_lossy(const struct policy *p);

/* Adds a rule. Returns its fault, for a message, or NULL. After a fault, p can only be freed. */
const char *parse_rule(struct policy *p, const char *text);

/* Adds a line of a policy file: a rule, "role=v match=GLOB", "m=NAME v=NAME", "default level=max",
 * "default block=256K", or nothing. A comment begins with '#'. Returns as parse_rule(). */
const char *parse_policy_line(struct policy *p, const char *line);

/* -- roles of tensors by their names, and what rules mean for them (roles.c) -- */

/* The first place where text has the word, not as a part of a longer word; NULL: none. */
const char *find_word(const char *text, const char *word);

/* What the name of a tensor tells, or, if that tells nothing, the path of its file. */
struct meaning {
    enum role role;
    const struct moments *names; /* for a moment, the words by which it was found; or NULL */
    const char *word;            /* for a moment: the word in the name or path */
};

/* path: of the tensor's file, in the snapshot. If the dtype is not that of floats, only users set a
 * role. */
struct meaning find_meaning(const struct policy *p, const char *path, const lmc_tensor *t);

/* The last rule that matches, or NULL. If none does, a weight gets the last rule with auto: that
 * has no role= and matches otherwise. */
const struct rule *find_rule(const struct policy *p, const char *path, const lmc_tensor *t,
                             enum role role);

/* Why a rule does not quantise a tensor, whatever its values are; NULL: it does. */
const char *find_obstacle(const struct rule *r, enum role role, const lmc_tensor *t);

/* Whether quantising a tensor of that role by that rule uses the second moment. */
int wants_second(const struct rule *r, enum role role);

/* How many adjacent elements of a tensor share a scale. */
uint64_t choose_group(const lmc_tensor *t);

/* Sets the options by a rule, for a tensor of that role; not the second moment itself. has_second:
 * the second moment can be read when the tensor is decoded. */
void set_quantizer_options(lmc_quantizer_options *options, const struct rule *r, enum role role,
                           const lmc_tensor *t, int has_second);
