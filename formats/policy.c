/* SPDX-License-Identifier: MIT */
#include "policy.h"

#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"

const char *const role_names[N_ROLES] = {"other", "weight", "m", "v", "gradient"};

#define ALL_ROLES (ROLE_BIT(N_ROLES) - 1)
#define NO_MEMORY "memory has run out"

/* -- memory -- */

void free_policy(struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++) free(p->rules[i].text);
    for (size_t i = 0; i < p->n_namings; i++) free(p->namings[i].glob);
    for (size_t i = 0; i < p->n_moments; i++) {
        free((void *)p->moments[i].m);
        free((void *)p->moments[i].v);
    }
    free(p->rules);
    free(p->namings);
    free(p->moments);
}

/* Adds an item of that size, all zero, to *(T **)list, and returns it; NULL: out of memory. */
static void *add_one(void *list, size_t *n, size_t size)
{
    void *things;
    memcpy(&things, list, sizeof things);
    things = realloc(things, (*n + 1) * size);
    if (!things) return NULL;
    memcpy(list, &things, sizeof things);
    return memset((char *)things + (*n)++ * size, 0, size);
}

/* A part of a text. */
struct part {
    const char *at;
    size_t size;
};

static struct part make_part(const char *at, const char *end)
{
    struct part p;
    p.at = at;
    p.size = (size_t)(end - at);
    return p;
}

static char *copy_part(struct part p)
{
    char *const copy = (char *)malloc(p.size + 1);
    if (!copy) return NULL;
    memcpy(copy, p.at, p.size);
    copy[p.size] = 0;
    return copy;
}

static int is_word(struct part p, const char *word)
{
    return p.size == strlen(word) && memcmp(p.at, word, p.size) == 0;
}

static int has_prefix(struct part p, const char *prefix)
{
    return p.size >= strlen(prefix) && memcmp(p.at, prefix, strlen(prefix)) == 0;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

/* The last character c; NULL: there is none. */
static const char *find_last(struct part p, char c)
{
    for (size_t i = p.size; i && i--;)
        if (p.at[i] == c) return p.at + i;
    return NULL;
}

/* -- numbers -- */

static int is_digit_at(struct part p, size_t i)
{
    return i < p.size && p.at[i] >= '0' && p.at[i] <= '9';
}

/* Parses "4096", "64K", "1M" or "2G"; returns 0 for any other text. */
static int parse_size(uint64_t *size, struct part p)
{
    size_t i = 0;
    uint64_t factor = 1;
    for (*size = 0; is_digit_at(p, i); i++) {
        const unsigned digit = (unsigned)(p.at[i] - '0');
        if (*size > (UINT64_MAX - digit) / 10) return 0;
        *size = *size * 10 + digit;
    }
    if (i == 0 || i + 1 < p.size) return 0;
    if (i < p.size) {
        if (p.at[i] != 'K' && p.at[i] != 'M' && p.at[i] != 'G') return 0;
        factor <<= p.at[i] == 'K' ? 10 : p.at[i] == 'M' ? 20 : 30;
    }
    if (*size > UINT64_MAX / factor) return 0;
    *size *= factor;
    return 1;
}

/* strtod() needs the decimal point of the locale, which may differ from '.'. */
static int parse_bound(double *bound, struct part p)
{
    const char *const point = localeconv()->decimal_point;
    char text[100], *end;
    size_t n = 0;
    if (!is_digit_at(p, 0) && !(p.size && p.at[0] == '.')) return 0;
    for (size_t i = 0; i < p.size; i++) {
        if (!strchr("0123456789.eE-+", p.at[i]) || n + strlen(point) >= sizeof text) return 0;
        if (p.at[i] == '.') {
            strcpy(text + n, point);
            n += strlen(point);
        } else text[n++] = p.at[i];
    }
    text[n] = 0;
    *bound = strtod(text, &end);
    return !*end && *bound > 0 && *bound < 1;
}

/* -- rules -- */

int is_lossy(const struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++)
        if (p->rules[i].kind != CHOOSE_LOSSLESS) return 1;
    return 0;
}

static int parse_role(unsigned *roles, struct part p)
{
    for (unsigned i = 0; i < N_ROLES; i++)
        if (is_word(p, role_names[i])) {
            *roles = ROLE_BIT(i);
            return 1;
        }
    *roles = ALL_ROLES;
    return is_word(p, "any");
}

static int parse_dtype(enum lmc_dtype *dtype, struct part p)
{
    char name[32];
    *dtype = LMC_AUTO;
    if (p.size >= sizeof name) return 0;
    memcpy(name, p.at, p.size);
    name[p.size] = 0;
    *dtype = lmc_dtype_find(name);
    return *dtype != LMC_AUTO;
}

/* Parses a single digit from least to most after a prefix; returns 0 for anything else. */
static unsigned parse_bits(struct part p, const char *prefix, unsigned least, unsigned most)
{
    const unsigned bits =
        p.size == strlen(prefix) + 1 ? (unsigned)(p.at[p.size - 1] - '0') : UINT_MAX;
    return bits >= least && bits <= most ? bits : 0;
}

static const char *parse_choice(struct rule *r, struct part p)
{
    static const struct {
        const char *name;
        enum choice_kind kind;
        enum lmc_measure measure;
    } bounds[] = {{"update:", CHOOSE_BOUND, LMC_MEASURE_UPDATE},
                  {"rel:", CHOOSE_BOUND, LMC_MEASURE_RELATIVE},
                  {"nmse:", CHOOSE_BOUND, LMC_MEASURE_NMSE},
                  {"auto:", CHOOSE_AUTO, LMC_MEASURE_UPDATE}};
    if (is_word(p, "lossless")) {
        r->kind = CHOOSE_LOSSLESS;
        return NULL;
    }
    if (has_prefix(p, "bits:")) {
        r->kind = CHOOSE_BITS;
        r->bits = parse_bits(p, "bits:", 4, 8);
        return r->bits ? NULL : "bits: needs a number from 4 to 8";
    }
    if (has_prefix(p, "kmeans:")) {
        r->kind = CHOOSE_KMEANS;
        r->bits = parse_bits(p, "kmeans:", 1, 8);
        return r->bits ? NULL : "kmeans: needs a number of bits from 1 to 8, for 2 to 256 values";
    }
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (has_prefix(p, bounds[i].name)) {
            r->kind = bounds[i].kind;
            r->measure = bounds[i].measure;
            return parse_bound(&r->bound, make_part(p.at + strlen(bounds[i].name), p.at + p.size))
                       ? NULL
                       : "a bound is a number above 0 and below 1, such as 0.01 or 1e-2";
        }
    return "after the last '=' comes bits:8, kmeans:4, update:0.01, rel:0.01, nmse:0.0001, "
           "auto:0.01 or lossless";
}

/* Whether p may be a misspelt field. As a part of the pattern it would silently match nothing. */
static int is_like_field(struct part p)
{
    size_t size = 0;
    while (size < p.size && p.at[size] >= 'a' && p.at[size] <= 'z') size++;
    return size >= 3 && size < p.size && p.at[size] == '=';
}

/* Parses a field behind the pattern. *is_field: 0 if `field` is a part of the pattern. */
static const char *parse_field(struct rule *r, struct part field, int *is_field)
{
    const char *const equals = (const char *)memchr(field.at, '=', field.size);
    const char *const end = field.at + field.size;
    const struct part key = make_part(field.at, equals ? equals : end),
                      value = make_part(equals ? equals + 1 : end, end);
    *is_field = equals != NULL;
    if (!equals) return NULL;
    if (is_word(key, "role"))
        return parse_role(&r->roles, value) ? NULL
                                            : "role= needs m, v, gradient, weight, other or any";
    if (is_word(key, "dtype"))
        return parse_dtype(&r->dtype, value)
                   ? NULL
                   : "dtype= needs F32, BF16 or another dtype of safetensors";
    if (is_word(key, "min") || is_word(key, "max"))
        return parse_size(is_word(key, "min") ? &r->min_size : &r->max_size, value)
                   ? NULL
                   : "min= and max= need the size of a tensor in bytes, such as 65536 or 64K";
    if (is_word(key, "base"))
        return "there is no base=: each block is coded against the base only where that is smaller";
    *is_field = 0;
    return is_like_field(field) ? "the fields are role=, dtype=, min= and max=" : NULL;
}

/* Parses fields from the last to the first, as the pattern before them may have commas. */
static const char *parse_fields(struct rule *r)
{
    for (;;) {
        const struct part all = make_part(r->text, r->text + r->glob_size);
        const char *const comma = find_last(all, ','), *fault;
        int is_field;
        if (!comma) break;
        struct part field = make_part(comma + 1, r->text + r->glob_size);
        while (field.size && is_space(*field.at))
            field = make_part(field.at + 1, all.at + all.size);
        fault = parse_field(r, field, &is_field);
        if (fault) return fault;
        if (!is_field) break;
        r->glob_size = (size_t)(comma - r->text);
    }
    if (r->min_size > r->max_size) return "min= is more than max=, so that no tensor is selected";
    return r->glob_size ? find_pattern_fault(r->text, r->glob_size)
                        : "begins with a pattern for names, such as '*'";
}

static const char *add_rule_of(struct policy *p, struct part text)
{
    struct rule *r = (struct rule *)add_one(&p->rules, &p->n_rules, sizeof *r);
    if (!r || (r->text = copy_part(text)) == NULL) return NO_MEMORY;
    r->roles = DEFAULT_ROLES;
    r->max_size = UINT64_MAX;
    const char *equals = find_last(make_part(r->text, r->text + text.size), '=');
    if (!equals) return "a rule is a pattern for names, '=' and a choice, such as '*=bits:8'";
    r->glob_size = (size_t)(equals - r->text);
    const char *fault = parse_choice(r, make_part(equals + 1, r->text + text.size));
    return fault ? fault : parse_fields(r);
}

const char *parse_rule(struct policy *p, const char *text)
{
    return add_rule_of(p, make_part(text, text + strlen(text)));
}

/* -- lines of policies -- */

/* Returns what is before the first space. *rest: what is behind it. */
static struct part cut_word(struct part *rest)
{
    const char *const end = rest->at + rest->size;
    const char *at = rest->at;
    while (at < end && !is_space(*at)) at++;
    struct part word = make_part(rest->at, at);
    while (at < end && is_space(*at)) at++;
    *rest = make_part(at, end);
    return word;
}

/* The value of "KEY=VALUE"; its size is 0 if p is something else. */
static struct part find_value(struct part p, const char *key)
{
    const size_t size = strlen(key);
    if (!has_prefix(p, key) || p.size == size || p.at[size] != '=') return make_part(p.at, p.at);
    return make_part(p.at + size + 1, p.at + p.size);
}

/* Parses fast, default, max or archive. */
static int parse_level(enum lmc_level *level, struct part p)
{
    static const char *const names[] = {"fast", "default", "max", "archive"};
    for (int i = 0; i < 4; i++)
        if (is_word(p, names[i])) {
            *level = (enum lmc_level)((int)LMC_LEVEL_FAST + i);
            return 1;
        }
    return 0;
}

/* Parses "level=max" or "block=256K", which are for the whole snapshot. */
static const char *parse_default(struct policy *p, struct part text)
{
    uint64_t size;
    if (parse_level(&p->level, find_value(text, "level"))) return NULL;
    if (parse_size(&size, find_value(text, "block")))
        for (unsigned log2_block = 14; log2_block <= 20; log2_block++)
            if (size == (uint64_t)1 << log2_block) {
                p->log2_block = log2_block;
                return NULL;
            }
    return "the defaults are level=fast, level=default, level=max, level=archive, and block=16K, "
           "32K, ... 1M, in elements";
}

/* Parses "role=v match=GLOB" or "m=NAME v=NAME". second: what is behind the space */
static const char *parse_naming(struct policy *p, struct part first, struct part second)
{
    const struct part role = find_value(first, "role"), glob = find_value(second, "match"),
                      m = find_value(first, "m"), v = find_value(second, "v");
    unsigned roles;
    if (role.size && glob.size && parse_role(&roles, role) && roles != ALL_ROLES) {
        struct naming *n = (struct naming *)add_one(&p->namings, &p->n_namings, sizeof *n);
        if (!n) return NO_MEMORY;
        n->glob = copy_part(glob);
        for (n->role = ROLE_OTHER; ROLE_BIT(n->role) != roles;) n->role = (enum role)(n->role + 1);
        return n->glob ? find_pattern_fault(n->glob, glob.size) : NO_MEMORY;
    }
    if (m.size && v.size && !(m.size == v.size && memcmp(m.at, v.at, m.size) == 0)) {
        struct moments *names =
            (struct moments *)add_one(&p->moments, &p->n_moments, sizeof *names);
        if (!names) return NO_MEMORY;
        names->m = copy_part(m);
        names->v = copy_part(v);
        return names->m && names->v ? NULL : NO_MEMORY;
    }
    return "a line that names roles is 'role=v match=GLOB', or 'm=NAME v=NAME' for how moments are "
           "called";
}

const char *parse_policy_line(struct policy *p, const char *line)
{
    const char *end = line;
    while (*end && !(*end == '#' && (end == line || is_space(end[-1])))) end++;
    while (end > line && is_space(end[-1])) end--;
    while (line < end && is_space(*line)) line++;
    if (line == end) return NULL;
    struct part rest = make_part(line, end);
    struct part first = cut_word(&rest);
    if (rest.size && is_word(first, "default")) return parse_default(p, rest);
    if (rest.size && (find_value(first, "role").size || find_value(first, "m").size))
        return parse_naming(p, first, rest);
    return add_rule_of(p, make_part(line, end));
}
