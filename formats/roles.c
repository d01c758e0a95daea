/* roles.c - roles of tensors by their names, and what rules mean for them (policy.h)
 * SPDX-License-Identifier: MIT */
#include "policy.h"

#include <string.h>

#include "pattern.h"

/* Quantising smaller tensors saves nothing: table and scales take more bytes than are saved. */
#define MIN_QUANTIZED_ELEMENTS ((uint64_t)16 << 10)

/* Shorter flat tensors may be norms or biases, which are sensitive; others are optimizer state. */
#define MIN_FLAT_ELEMENTS ((uint64_t)256 << 10)

/* Words of PyTorch, DeepSpeed and Megatron; words of optax and Flax. */
static const struct moments known_moments[] = {{"exp_avg", "exp_avg_sq", 0}, {"mu", "nu", 1}};

static const char *const gradient_words[] = {"grad",      "grads",     "gradient",
                                             "gradients", "main_grad", "main_grads"};

/* State that is neither moment nor weight. How much loss is harmless there is unknown. */
static const char *const other_words[] = {"max_exp_avg_sq", "momentum_buffer"};

static int is_word_character(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

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

/* Whether a word is a whole part of a name or path: "grad-accum.safetensors" has no gradients. */
static int has_part(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (const char *at = find_word(text, words[i]); at; at = find_word(at + 1, words[i]))
            if ((at == text || strchr("./", at[-1])) &&
                strchr("./", at[strlen(words[i])])) /* or the end */
                return 1;
    return 0;
}

/* A path with both words tells no role: its file has both moments, and perhaps masters. */
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

static int matches(const char *glob, size_t size, const char *path, const char *name)
{
    return match_pattern(glob, size, NULL, name) || match_pattern(glob, size, path, name);
}

static int is_float(enum lmc_dtype dtype)
{
    return dtype == LMC_F32 || dtype == LMC_BF16 || dtype == LMC_F16 || dtype == LMC_F64 ||
           (dtype >= LMC_F8_E5M2 && dtype <= LMC_F8_E5M2FNUZ);
}

struct meaning find_meaning(const struct policy *p, const char *path, const lmc_tensor *t)
{
    struct meaning found = {ROLE_OTHER, NULL, NULL};
    if (is_float(lmc_dtype_find(t->dtype)) && !find_role_in(&found, p, t->name, 0) &&
        !find_role_in(&found, p, path, 1))
        found.role = ROLE_WEIGHT;
    for (size_t i = 0; i < p->n_namings; i++)
        if (matches(p->namings[i].glob, strlen(p->namings[i].glob), path, t->name) &&
            p->namings[i].role != found.role) {
            memset(&found, 0, sizeof found);
            found.role = p->namings[i].role;
        }
    return found;
}

static int selects(const struct rule *r, const char *path, const lmc_tensor *t)
{
    return (r->dtype == LMC_AUTO || r->dtype == lmc_dtype_find(t->dtype)) &&
           t->size >= r->min_size && t->size <= r->max_size &&
           matches(r->text, r->glob_size, path, t->name);
}

const struct rule *find_rule(const struct policy *p, const char *path, const lmc_tensor *t,
                             enum role role)
{
    for (size_t i = p->n_rules; i && i--;)
        if ((p->rules[i].roles & ROLE_BIT(role)) && selects(&p->rules[i], path, t))
            return &p->rules[i];
    for (size_t i = p->n_rules; i && i-- && role == ROLE_WEIGHT;)
        if (p->rules[i].kind == CHOOSE_AUTO && p->rules[i].roles == DEFAULT_ROLES &&
            selects(&p->rules[i], path, t))
            return &p->rules[i];
    return NULL;
}

/* -- what a rule means for a tensor -- */

static uint64_t count_elements(const lmc_tensor *t)
{
    return t->size / lmc_dtype_width(lmc_dtype_find(t->dtype));
}

/* Whether at most one dimension has more than one element. */
static int is_flat(const lmc_tensor *t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->rank; i++) n += t->shape[i] != 1;
    return n <= 1;
}

/* The group is a row, some rows, or 256 elements. */
uint64_t choose_group(const lmc_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = t->rank; i && i-- && n < 64;)
        n = t->shape[i] > 65536 ? UINT64_MAX : n * t->shape[i];
    return is_flat(t) || n < 64 || n > 65536 ? 256 : n;
}

const char *find_obstacle(const struct rule *r, enum role role, const lmc_tensor *t)
{
    const enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
    if (r->kind == CHOOSE_LOSSLESS) return "the rule says so";
    if (r->kind == CHOOSE_AUTO && (role == ROLE_WEIGHT || role == ROLE_OTHER))
        return "weights stay exact";
    if (dtype != LMC_F32 && dtype != LMC_BF16) return "only F32 and BF16 are quantised";
    if (count_elements(t) < MIN_QUANTIZED_ELEMENTS) return "fewer than 16,384 elements";
    if (is_flat(t) && count_elements(t) < MIN_FLAT_ELEMENTS)
        return "one-dimensional, with fewer than 262,144 elements";
    return NULL;
}

int wants_second(const struct rule *r, enum role role)
{
    return role == ROLE_M && r->measure != LMC_MEASURE_RELATIVE;
}

/* For moments, the bound is for the optimizer's update. Both moments add an error to it, so each
 * gets bound / sqrt(2). For other tensors, the bound is the NMSE of the tensor. Without the second
 * moment, the update's error cannot be measured: then the bound is for each element. */
void set_quantizer_options(lmc_quantizer_options *options, const struct rule *r, enum role role,
                           const lmc_tensor *t, int has_second)
{
    const int is_alone = role == ROLE_M && !has_second;
    memset(options, 0, sizeof *options);
    options->dtype = lmc_dtype_find(t->dtype);
    options->role = role == ROLE_V                ? LMC_ROLE_SECOND_MOMENT
                    : role == ROLE_M && !is_alone ? LMC_ROLE_FIRST_MOMENT
                                                  : LMC_ROLE_OTHER;
    options->group = choose_group(t);
    options->bits = r->kind == CHOOSE_BITS ? r->bits : 0;
    options->n_codes = r->kind == CHOOSE_KMEANS ? 1u << r->bits : 0;
    options->measure = r->kind == CHOOSE_BITS ? LMC_MEASURE_UPDATE : r->measure;
    options->bound = r->bound;
    if (options->measure == LMC_MEASURE_UPDATE && (role == ROLE_M || role == ROLE_V)) {
        options->bound *= 0.70710678118654752;
        if (is_alone) options->measure = LMC_MEASURE_RELATIVE;
    } else if (options->measure == LMC_MEASURE_UPDATE) {
        options->measure = LMC_MEASURE_NMSE;
        options->bound *= options->bound;
    }
}
