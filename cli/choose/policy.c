/* SPDX-License-Identifier: MIT */
#include "policy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/report.h"

const char *const role_names[N_ROLES] = {"other", "weight", "m", "v", "gradient"};

#define ALL_ROLES (ROLE_BIT(N_ROLES) - 1)

/* -- rules -- */

void free_policy(struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++) {
        free(p->rules[i].text);
        free(p->rules[i].glob);
    }
    for (size_t i = 0; i < p->n_namings; i++) free(p->namings[i].glob);
    for (size_t i = 0; i < p->n_moments; i++) {
        free((void *)p->moments[i].m);
        free((void *)p->moments[i].v);
    }
    free(p->rules);
    free(p->namings);
    free(p->moments);
}

int is_lossy(const struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++)
        if (p->rules[i].kind != CHOOSE_LOSSLESS) return 1;
    return 0;
}

/* -- reading rules: GLOB[,role=..][,dtype=..][,min=SIZE][,max=SIZE]=CHOICE -- */

/* where: "--quant", or the file and line */
static int fail_rule(const char *where, const char *text, const char *what)
{
    return fail(CODE_USAGE, where, "'%.200s': %s; see 'lmc help quant'", text, what);
}

/* "4096", "64K", "1M", "2G"; 0 if it is none of them. */
static int parse_size(uint64_t *size, const char *text)
{
    static const char units[] = "KMG";
    char *end;
    const char *unit;
    uint64_t factor = 1;
    errno = 0;
    *size = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!isdigit((unsigned char)*text) || errno) return 0;
    unit = *end ? strchr(units, *end) : NULL;
    if (unit) factor <<= 10 * (unit - units + 1);
    if (*size > UINT64_MAX / factor || (unit ? end[1] : *end)) return 0;
    *size *= factor;
    return 1;
}

static int parse_role(unsigned *roles, const char *text)
{
    for (unsigned i = 0; i < N_ROLES; i++)
        if (strcmp(text, role_names[i]) == 0) {
            *roles = ROLE_BIT(i);
            return 1;
        }
    *roles = ALL_ROLES;
    return strcmp(text, "any") == 0;
}

static int parse_bound(double *bound, const char *text)
{
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '.') return 0;
    *bound = strtod(text, &end);
    return !*end && strspn(text, "0123456789.eE-+") == strlen(text) && *bound > 0 && *bound < 1;
}

static int parse_choice(struct rule *r, const char *text, const char *where)
{
    static const struct {
        const char *name;
        enum choice_kind kind;
        enum lmc_measure measure;
    } bounds[] = {{"update:", CHOOSE_BOUND, LMC_MEASURE_UPDATE},
                  {"rel:", CHOOSE_BOUND, LMC_MEASURE_RELATIVE},
                  {"nmse:", CHOOSE_BOUND, LMC_MEASURE_NMSE},
                  {"auto:", CHOOSE_AUTO, LMC_MEASURE_UPDATE}};
    if (strcmp(text, "lossless") == 0) {
        r->kind = CHOOSE_LOSSLESS;
        return CODE_OK;
    }
    if (strncmp(text, "bits:", 5) == 0) {
        r->kind = CHOOSE_BITS;
        r->bits = (unsigned)(text[5] - '0');
        return r->bits >= 4 && r->bits <= 8 && !text[6]
                   ? CODE_OK
                   : fail_rule(where, r->text, "bits: wants a number from 4 to 8");
    }
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (strncmp(text, bounds[i].name, strlen(bounds[i].name)) == 0) {
            r->kind = bounds[i].kind;
            r->measure = bounds[i].measure;
            return parse_bound(&r->bound, text + strlen(bounds[i].name))
                       ? CODE_OK
                       : fail_rule(where, r->text,
                                   "a bound is a number above 0 and below 1, such as 0.01 or 1e-2");
        }
    return fail_rule(where, r->text,
                     "after the last '=' comes bits:8, update:0.01, rel:0.01, nmse:0.0001, "
                     "auto:0.01 or lossless");
}

/* A field behind the glob. *is_field 0: it is none, but belongs to the glob. */
static int parse_field(struct rule *r, const char *text, const char *where, int *is_field)
{
    const char *value = strchr(text, '=');
    size_t size = value ? (size_t)(value - text) : 0;
    *is_field = 1;
    if (size == 4 && memcmp(text, "role", 4) == 0)
        return parse_role(&r->roles, value + 1)
                   ? CODE_OK
                   : fail_rule(where, r->text, "role= wants m, v, gradient, weight, other or any");
    if (size == 5 && memcmp(text, "dtype", 5) == 0) {
        r->dtype = lmc_dtype_find(value + 1);
        return r->dtype != LMC_AUTO
                   ? CODE_OK
                   : fail_rule(where, r->text,
                               "dtype= wants F32, BF16 or another dtype of safetensors");
    }
    if (size == 3 && (memcmp(text, "min", 3) == 0 || memcmp(text, "max", 3) == 0))
        return parse_size(text[1] == 'i' ? &r->min_size : &r->max_size, value + 1)
                   ? CODE_OK
                   : fail_rule(
                         where, r->text,
                         "min= and max= want the size of a tensor in bytes, such as 65536 or 64K");
    if (size == 4 && memcmp(text, "base", 4) == 0)
        return fail_rule(
            where, r->text,
            "there is no base=: each block is coded against the base only where that is smaller");
    *is_field = 0;
    return CODE_OK;
}

/* Of a word as long as those of fields: hardly a part of a name, but an exception that would not be
 * made. */
static int is_like_field(const char *text)
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    return size >= 3 && text[size] == '=';
}

/* From the end: a glob may hold commas itself. */
static int parse_fields(struct rule *r, const char *where)
{
    for (char *comma = strrchr(r->glob, ','); comma; comma = strrchr(r->glob, ',')) {
        int is_field, code = parse_field(r, comma + 1, where, &is_field);
        if (code != CODE_OK) return code;
        if (!is_field && is_like_field(comma + 1))
            return fail_rule(where, r->text, "the fields are role=, dtype=, min= and max=");
        if (!is_field) break;
        *comma = 0;
    }
    return *r->glob ? CODE_OK
                    : fail_rule(where, r->text, "begins with a pattern for names, such as '*'");
}

int add_rule(struct policy *p, const char *text, const char *where)
{
    const char *choice = strrchr(text, '=');
    struct rule *r;
    int code;
    p->rules = (struct rule *)resize(p->rules, p->n_rules + 1, sizeof *p->rules);
    r = &p->rules[p->n_rules++];
    memset(r, 0, sizeof *r);
    r->text = copy_string(text, strlen(text));
    r->glob = copy_string(text, choice ? (size_t)(choice - text) : 0);
    r->roles = DEFAULT_ROLES;
    r->max_size = UINT64_MAX;
    if (!choice)
        return fail_rule(where, text,
                         "a rule is a pattern for names, '=' and a choice, such as '*=bits:8'");
    code = parse_choice(r, choice + 1, where);
    return code == CODE_OK ? parse_fields(r, where) : code;
}

/* -- policy files -- */

#define MAX_POLICY_SIZE ((size_t)1 << 20)

/* The value of "KEY=VALUE"; NULL: it is something else. */
static const char *find_value(const char *text, const char *key)
{
    size_t size = strlen(key);
    return strncmp(text, key, size) == 0 && text[size] == '=' && text[size + 1] ? text + size + 1
                                                                                : NULL;
}

/* Of fast, default, max and archive. */
static int parse_level(enum lmc_level *level, const char *text)
{
    static const char *const names[] = {"fast", "default", "max", "archive"};
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, names[i]) == 0) {
            *level = (enum lmc_level)((int)LMC_LEVEL_FAST + i);
            return 1;
        }
    return 0;
}

/* "default level=max", "default block=256K": for all of the snapshot. */
static int parse_default(struct policy *p, const char *text, const char *where)
{
    const char *block = find_value(text, "block");
    uint64_t size;
    if (parse_level(&p->level, find_value(text, "level"))) return CODE_OK;
    for (unsigned log2_block = 14; block && log2_block <= 20 && parse_size(&size, block);
         log2_block++)
        if (size == (uint64_t)1 << log2_block) {
            p->log2_block = log2_block;
            return CODE_OK;
        }
    return fail_rule(
        where, text,
        "the defaults are level=fast, level=default, level=max, level=archive, and block=16K, 32K, "
        "... 1M, in elements");
}

/* "role=v match=GLOB", and "m=NAME v=NAME"; second: behind the space */
static int parse_naming(struct policy *p, const char *first, const char *second, const char *where)
{
    const char *role = find_value(first, "role"), *glob = find_value(second, "match"),
               *m = find_value(first, "m"), *v = find_value(second, "v");
    unsigned roles;
    if (role && glob && parse_role(&roles, role) && roles != ALL_ROLES) {
        struct naming *n;
        p->namings = (struct naming *)resize(p->namings, p->n_namings + 1, sizeof *p->namings);
        n = &p->namings[p->n_namings++];
        n->glob = copy_string(glob, strlen(glob));
        for (n->role = ROLE_OTHER; ROLE_BIT(n->role) != roles;) n->role = (enum role)(n->role + 1);
        return CODE_OK;
    }
    if (m && v && strcmp(m, v) != 0) {
        struct moments *names;
        p->moments = (struct moments *)resize(p->moments, p->n_moments + 1, sizeof *p->moments);
        names = &p->moments[p->n_moments++];
        names->m = copy_string(m, strlen(m));
        names->v = copy_string(v, strlen(v));
        names->is_common = 0;
        return CODE_OK;
    }
    return fail_rule(where, first,
                     "a line that names roles is 'role=v match=GLOB', or 'm=NAME v=NAME' for how "
                     "moments are called");
}

static int parse_policy_line(struct policy *p, char *line, const char *where)
{
    char *end = line, *space;
    while (*end && !(*end == '#' && (end == line || isspace((unsigned char)end[-1])))) end++;
    while (end > line && isspace((unsigned char)end[-1])) end--;
    *end = 0;
    line += strspn(line, " \t");
    space = strpbrk(line, " \t");
    if (!*line) return CODE_OK;
    if (space && space - line == 7 && memcmp(line, "default", 7) == 0)
        return parse_default(p, space + strspn(space, " \t"), where);
    if (space && (find_value(line, "role") || find_value(line, "m"))) {
        *space = 0;
        return parse_naming(p, line, space + 1 + strspn(space + 1, " \t"), where);
    }
    return add_rule(p, line, where);
}

/* The text, with a zero behind it, is cut into lines. path: for messages */
static int parse_policy(struct policy *p, char *text, const char *path)
{
    char *where = (char *)resize(NULL, strlen(path) + 32, 1);
    size_t number = 0;
    int code = CODE_OK;
    for (char *line = text, *next; line && code == CODE_OK; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        sprintf(where, "%s:%lu", path, (unsigned long)++number);
        code = parse_policy_line(p, line, where);
    }
    free(where);
    return code;
}

int read_policy(struct policy *p, const char *path)
{
    size_t size;
    char *text;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error, code = CODE_OK;
    if (fd < 0) return fail_errno(path, errno, "cannot open it");
    text = (char *)resize(NULL, MAX_POLICY_SIZE + 1, 1);
    error = read_full(fd, text, MAX_POLICY_SIZE, &size);
    close(fd);
    if (error) code = fail_errno(path, error, "cannot read it");
    else if (size == MAX_POLICY_SIZE || memchr(text, 0, size))
        code =
            fail(CODE_USAGE, path, "is no policy, which is a text of rules; see 'lmc help quant'");
    text[size] = 0;
    if (code == CODE_OK) code = parse_policy(p, text, path);
    free(text);
    return code;
}
