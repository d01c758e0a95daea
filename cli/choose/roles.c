/* SPDX-License-Identifier: MIT */
#include "roles.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "../format/tensors.h"
#include "../sys/names.h"

/* PyTorch, DeepSpeed and Megatron; optax and Flax. */
static const struct moments known_moments[] = {{"exp_avg", "exp_avg_sq", 0}, {"mu", "nu", 1}};

static const char *const gradient_words[] = {"grad",      "grads",     "gradient",
                                             "gradients", "main_grad", "main_grads"};

/* State that is neither, and no weight: nothing is known of how much of it may be lost. */
static const char *const other_words[] = {"max_exp_avg_sq", "momentum_buffer"};

static int is_word_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

const char *find_word(const char *text, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || !is_word_character(at[-1])) && !is_word_character(at[size])) return at;
    return NULL;
}

static int has_word(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (find_word(text, words[i])) return 1;
    return 0;
}

/* As a whole part of a name or path, for words that are common: "grad-accum.safetensors" holds
 * weights. */
static int has_part(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (const char *at = find_word(text, words[i]); at; at = find_word(at + 1, words[i]))
            if ((at == text || strchr("./", at[-1])) &&
                strchr("./", at[strlen(words[i])])) /* or the end */
                return 1;
    return 0;
}

/* A path that names both tells of neither: its file may hold masters, too. */
static int find_moment(struct meaning *found, const struct moments *names, const char *text,
                       int is_path)
{
    const char *v = find_word(text, names->v), *m = find_word(text, names->m);
    if ((!v && !m) || (v && m && is_path)) return 0;
    found->role = v ? ROLE_V : ROLE_M;
    found->names = names;
    found->word = v ? v : m;
    return 1;
}

static int find_role_in(struct meaning *found, const struct policy *p, const char *text,
                        int is_path)
{
    for (size_t i = 0; i < p->n_moments; i++)
        if (find_moment(found, &p->moments[i], text, is_path)) return 1;
    for (size_t i = 0; i < sizeof known_moments / sizeof *known_moments; i++)
        if (find_moment(found, &known_moments[i], text, is_path)) return 1;
    if (has_part(text, gradient_words, sizeof gradient_words / sizeof *gradient_words)) {
        found->role = ROLE_GRADIENT;
        return 1;
    }
    found->role = ROLE_OTHER;
    return has_word(text, other_words, sizeof other_words / sizeof *other_words);
}

static int matches(const char *glob, const char *path, const char *name)
{
    char *whole = join_path(path, name);
    int found = fnmatch(glob, name, 0) == 0 || fnmatch(glob, whole, 0) == 0;
    free(whole);
    return found;
}

struct meaning find_meaning(const struct policy *p, const char *path, const lmc_tensor *t)
{
    struct meaning found;
    memset(&found, 0, sizeof found);
    if (is_float(lmc_dtype_find(t->dtype)) && !find_role_in(&found, p, t->name, 0) &&
        !find_role_in(&found, p, path, 1))
        found.role = ROLE_WEIGHT;
    for (size_t i = 0; i < p->n_namings; i++)
        if (matches(p->namings[i].glob, path, t->name) && p->namings[i].role != found.role) {
            memset(&found, 0, sizeof found);
            found.role = p->namings[i].role;
        }
    return found;
}

static int selects(const struct rule *r, const char *path, const lmc_tensor *t)
{
    return (r->dtype == LMC_AUTO || r->dtype == lmc_dtype_find(t->dtype)) &&
           t->size >= r->min_size && t->size <= r->max_size && matches(r->glob, path, t->name);
}

const struct rule *find_rule(const struct policy *p, const char *path, const lmc_tensor *t,
                             enum role role)
{
    for (size_t i = p->n_rules; i-- > 0;)
        if ((p->rules[i].roles & ROLE_BIT(role)) && selects(&p->rules[i], path, t))
            return &p->rules[i];
    for (size_t i = p->n_rules; i-- > 0 && role == ROLE_WEIGHT;)
        if (p->rules[i].kind == CHOOSE_AUTO && p->rules[i].roles == DEFAULT_ROLES &&
            selects(&p->rules[i], path, t))
            return &p->rules[i];
    return NULL;
}
