/* quantise.h - what becomes of each tensor of a snapshot under a policy: pairs of moments, quantizers, and the record of it
 * SPDX-License-Identifier: MIT
 *
 * A quantizer is found just before the file of its tensor is written; of the tensor itself only pieces are in memory. What was
 * chosen, and why, stands in the metadata, for 'lmc -l -v'.
 */
#ifndef LMC_QUANTISE_H
#define LMC_QUANTISE_H

#include "twins.h"

/* Key of the metadata: the rules and what they did, as JSON. */
#define POLICY_KEY "lmc.policy"

/* A smaller one gains nothing: its table and scales weigh more. */
#define MIN_QUANTISED_ELEMENTS ((uint64_t)16 << 10)
/* Norms and biases are small and delicate; a longer row is a flat part of an optimizer's state. */
#define MIN_FLAT_ELEMENTS ((uint64_t)256 << 10)

/* What a member is called where names are matched: a lone file has no path in its snapshot. */
static const char *name_of_member(const struct member *member)
{
    const char *slash = strrchr(member->full, '/');
    return *member->path ? member->path : slash ? slash + 1 : member->full;
}

/* -- pairs of moments: the same name, or path and name, but for what the moments are called -- */

struct stem {
    char *text;       /* the name without that; of a file so called, path and name without */
    char *home;       /* the path without that, if it is no part of the text */
    struct choice *choice;
};

/* The text, where at stands in it, without the word there. */
static char *cut_word(const char *text, const char *at, const char *word, const char *kind)
{
    size_t before = (size_t)(at - text), size = strlen(text) + strlen(kind) + 2;
    char *cut = (char *)resize(NULL, size, 1);
    snprintf(cut, size, "%.*s\1%s%s", (int)before, text, kind, at + strlen(word)); /* \1: no name that is written holds it */
    return cut;
}

/* Of the files of each rank, "rank_0/exp_avg" and "rank_0/exp_avg_sq" have one. */
static char *find_home(const char *path, const char *word, const char *kind)
{
    const char *at = find_word(path, word);
    return at ? cut_word(path, at, word, kind) : copy_string(path, strlen(path));
}

static struct stem make_stem(struct choice *c, const char *path)
{
    const struct meaning *f = &c->meaning;
    const char *word = f->role == ROLE_V ? f->names->v : f->names->m, *name = c->tensor->name;
    struct stem stem;
    stem.choice = c;
    if (f->word >= name && f->word <= name + strlen(name)) {
        stem.text = cut_word(name, f->word, word, f->names->m);
        stem.home = find_home(path, word, f->names->m);
    } else {
        char *cut = cut_word(path, f->word, word, f->names->m);
        stem.text = join_path(cut, name);
        stem.home = copy_string("", 0);
        free(cut);
    }
    return stem;
}

static int compare_stems(const void *a, const void *b)
{
    const struct stem *x = (const struct stem *)a, *y = (const struct stem *)b;
    int order = strcmp(x->text, y->text);
    if (order == 0)
        order = strcmp(x->home, y->home);
    if (order == 0)
        order = (int)x->choice->meaning.role - (int)y->choice->meaning.role;
    return order ? order : x->choice->member < y->choice->member ? -1 : x->choice->member > y->choice->member;
}

static int is_same_shape(const lmc_tensor *a, const lmc_tensor *b)
{
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

static int is_same_kind(const lmc_tensor *a, const lmc_tensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->size == b->size && is_same_shape(a, b);
}

/* Of one stem: the second moment of the same home, else the only one there is. */
static void find_second(struct stem *first, struct stem *list, size_t n)
{
    struct choice *found = NULL;
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].choice->meaning.role == ROLE_V && is_same_kind(list[i].choice->tensor, first->choice->tensor)) {
            if (n_found++ == 0 || strcmp(list[i].home, first->home) == 0)
                found = list[i].choice;
            if (strcmp(list[i].home, first->home) == 0) {
                n_found = 1;
                break;
            }
        }
    if (n_found != 1)
        return;
    first->choice->partner = found;
    found->partner = first->choice;
}

/* list: all moments that were found by the words for them */
static void pair_moments(struct stem *list, size_t n)
{
    if (n)
        qsort(list, n, sizeof *list, compare_stems);
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && strcmp(list[start].text, list[end].text) == 0;)
            end++;
        for (size_t i = start; i < end; i++)
            if (list[i].choice->meaning.role == ROLE_M)
                find_second(&list[i], list + start, end - start);
    }
    for (size_t i = 0; i < n; i++) {
        struct choice *c = list[i].choice;
        if (c->meaning.names->is_common && !c->partner)
            c->meaning.role = ROLE_WEIGHT;
        free(list[i].text);
        free(list[i].home);
    }
}

/* -- weights of moments -- */

/* By name; masters before copies. */
static int compare_weights(const void *a, const void *b)
{
    const struct choice *x = *(const struct choice *const *)a, *y = *(const struct choice *const *)b;
    int order = strcmp(x->tensor->name, y->tensor->name);
    if (order == 0)
        order = (x->tensor->size < y->tensor->size) - (x->tensor->size > y->tensor->size);
    return order ? order : x->member < y->member ? -1 : x->member > y->member;
}

static const struct choice *find_weight_named(const struct choice *const *list, size_t n, const char *name, const lmc_tensor *moment)
{
    size_t low = 0, high = n;
    while (low < high) { /* the first that is not before */
        size_t middle = low + (high - low) / 2;
        if (strcmp(list[middle]->tensor->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && strcmp(list[low]->tensor->name, name) == 0; low++)
        if (is_same_shape(list[low]->tensor, moment))
            return list[low];
    return NULL;
}

/* What stands behind the word for the moment, or else before it, without leading parts such as "optimizer.state.". */
static const struct choice *find_weight(const struct choice *const *list, size_t n, const struct choice *c)
{
    const char *name = c->tensor->name, *word = c->meaning.word;
    const struct choice *found = NULL;
    char *text = copy_string(name, strlen(name));
    if (word >= name && word <= name + strlen(name)) {
        const char *after = word + strlen(c->meaning.role == ROLE_V ? c->meaning.names->v : c->meaning.names->m);
        if (*after)
            memmove(text, text + (after + 1 - name), strlen(after));
        else
            text[word > name ? word - name - 1 : 0] = 0;
    }
    for (const char *at = text; *at && !found; at += at[strcspn(at, "./")] ? strcspn(at, "./") + 1 : strlen(at))
        found = find_weight_named(list, n, at, c->tensor);
    free(text);
    return found;
}

static void find_weights(struct members *m)
{
    const struct choice **list = NULL;
    size_t n = 0, room = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            if (m->list[i].choices[k].meaning.role != ROLE_WEIGHT)
                continue;
            if (n == room) {
                room = room * 2 + 64;
                list = (const struct choice **)resize((void *)list, room, sizeof *list);
            }
            list[n++] = &m->list[i].choices[k];
        }
    if (n)
        qsort((void *)list, n, sizeof *list, compare_weights);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            if (c->meaning.names && c->meaning.role != ROLE_WEIGHT)
                c->weight = find_weight(list, n, c);
        }
    free((void *)list);
}

/* -- choices -- */

static void make_choices(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct member *member = &m->list[i];
        member->choices = (struct choice *)resize(NULL, member->n_tensors, sizeof *member->choices);
        memset(member->choices, 0, member->n_tensors * sizeof *member->choices);
        for (size_t k = 0; k < member->n_tensors; k++) {
            member->choices[k].tensor = &member->tensors[k];
            member->choices[k].member = i;
        }
    }
}

static void find_meanings(struct members *m, const struct policy *p)
{
    struct stem *list = NULL;
    size_t n = 0, room = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            const char *path = name_of_member(&m->list[i]);
            c->meaning = find_meaning(p, path, c->tensor);
            if (!c->meaning.names)
                continue;
            if (n == room) {
                room = room * 2 + 64;
                list = (struct stem *)resize(list, room, sizeof *list);
            }
            list[n++] = make_stem(c, path);
        }
    pair_moments(list, n);
    free(list);
    find_weights(m);
}

static uint64_t count_elements(const lmc_tensor *t)
{
    return t->size / lmc_dtype_width(lmc_find_dtype(t->dtype));
}

/* Nothing but its length. */
static int is_flat(const lmc_tensor *t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->rank; i++)
        n += t->shape[i] != 1;
    return n <= 1;
}

/* Neighbours that share a scale: a row, or what comes near to one. */
static uint64_t choose_group(const lmc_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = t->rank; i-- > 0 && n < 64;)
        n = t->shape[i] > 65536 ? UINT64_MAX : n * t->shape[i];
    return is_flat(t) || n < 64 || n > 65536 ? 256 : n;
}

/* Why a tensor is not quantised, whatever is in it; NULL: it is. */
static const char *find_obstacle(const struct choice *c)
{
    enum lmc_dtype dtype = lmc_find_dtype(c->tensor->dtype);
    if (c->rule->kind == CHOOSE_LOSSLESS)
        return "the rule says so";
    if (c->rule->kind == CHOOSE_AUTO && (c->meaning.role == ROLE_WEIGHT || c->meaning.role == ROLE_OTHER))
        return "weights stay exact; of each block a sample says whether direct, against the base, or sparse";
    if (dtype != LMC_F32 && dtype != LMC_BF16)
        return "only F32 and BF16 are quantised";
    if (count_elements(c->tensor) < MIN_QUANTISED_ELEMENTS)
        return "fewer than 16,384 elements";
    if (is_flat(c->tensor) && count_elements(c->tensor) < MIN_FLAT_ELEMENTS)
        return "one-dimensional, with fewer than 262,144 elements";
    return NULL;
}

static void set_reason(struct choice *c, const char *text)
{
    free(c->reason);
    c->reason = copy_string(text, strlen(text));
}

/* Whether the second moment will be at hand where the first is decoded; *why not. */
static int can_use_second(const struct choice *c, const struct members *m, const char **why)
{
    if (!c->partner)
        *why = "no second moment was found";
    else if (c->partner->member == c->member)
        *why = "its second moment stands in the same file";
    else if (!m->has_pairs)
        *why = "the output is a pipe, or --no-twins was given";
    else if (c->partner->member > c->member)
        *why = "its second moment comes later";
    else if (c->partner->tensor->twin)
        *why = "its second moment repeats another tensor";
    else
        return 1;
    return 0;
}

/* A relative bound has no use for it. */
static int may_need_second(const struct choice *c)
{
    return c->meaning.role == ROLE_M && c->partner && c->partner->member != c->member && c->rule->measure != LMC_MEASURE_RELATIVE;
}

/* Sets what the rules say of each tensor. can_refer: the output is a file, in which what is stored can be read again. Returns
 * how many are to be quantised. */
static size_t choose_all(struct members *m, int can_refer, const struct options *o)
{
    size_t n = 0;
    if (o->policy->n_rules == 0)
        return 0;
    make_choices(m);
    find_meanings(m, o->policy);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            const char *obstacle = NULL;
            c->rule = find_rule(o->policy, name_of_member(&m->list[i]), c->tensor, c->meaning.role);
            if (c->rule)
                obstacle = find_obstacle(c);
            c->is_wanted = c->rule && !obstacle;
            n += (size_t)c->is_wanted;
            if (obstacle)
                set_reason(c, obstacle);
            m->has_pairs |= can_refer && c->is_wanted && may_need_second(c);
        }
    return n;
}

/* -- quantizers -- */

/* A tensor among the members, for lmc_elements. */
struct elements {
    struct members *members;
    const struct choice *choice;
    struct opened opened;
};

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    struct elements *e = (struct elements *)user;
    const struct member *member = &e->members->list[e->choice->member];
    e->members->code = read_opened(&e->opened, member->full, &member->st, e->choice->tensor->offset + offset, dst, size);
    return e->members->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

static lmc_elements make_elements(struct elements *e, struct members *m, const struct choice *c)
{
    lmc_elements elements;
    memset(e, 0, sizeof *e);
    e->members = m;
    e->choice = c;
    elements.read = read_elements;
    elements.user = e;
    elements.size = c->tensor->size;
    return elements;
}

/* What the rule means for a tensor of that role: of what the optimizer does, each moment may spoil a part; of a gradient, all it does
 * is that it is there. */
static void set_quantizer_options(lmc_quantizer_options *options, const struct choice *c)
{
    const struct rule *r = c->rule;
    int is_moment = c->meaning.role == ROLE_M || c->meaning.role == ROLE_V;
    memset(options, 0, sizeof *options);
    options->dtype = lmc_find_dtype(c->tensor->dtype);
    options->role = c->meaning.role == ROLE_M ? LMC_ROLE_FIRST_MOMENT : c->meaning.role == ROLE_V ? LMC_ROLE_SECOND_MOMENT : LMC_ROLE_OTHER;
    options->group = choose_group(c->tensor);
    options->bits = r->bits;
    options->measure = r->kind == CHOOSE_BITS ? LMC_MEASURE_UPDATE : r->measure;
    options->bound = r->bound;
    if (options->measure == LMC_MEASURE_UPDATE && is_moment) {
        options->bound *= 0.70710678118654752;
    } else if (options->measure == LMC_MEASURE_UPDATE) {
        options->measure = LMC_MEASURE_NMSE;
        options->bound *= options->bound;
    }
}

static lmc_quantizer_info get_info(const struct choice *c)
{
    lmc_quantizer_info info;
    memset(&info, 0, sizeof info);
    info.is_lossless = 1;
    if (c->quantizer)
        lmc_get_quantizer_info(c->quantizer, &info); /* cannot fail */
    return info;
}

static int is_quantised(const struct choice *c)
{
    return !get_info(c).is_lossless;
}

/* why: not with the second moment; "" where that is not the question */
static void explain_quantizer(struct choice *c, const char *why)
{
    lmc_quantizer_info info = get_info(c);
    char text[256];
    size_t size;
    if (info.is_lossless) {
        set_reason(c, info.reason);
        return;
    }
    size = (size_t)snprintf(text, sizeof text, info.is_grid ? "a grid, %u points in use" : "k-means, %u codes", info.n_codes);
    if (c->has_second)
        snprintf(text + size, sizeof text - size, ", scaled by the second moment");
    else
        snprintf(text + size, sizeof text - size, ", scales for groups of %llu%s%s", (unsigned long long)choose_group(c->tensor), *why ? ": " : "", why);
    set_reason(c, text);
}

static const char *const measure_names[] = {"none", "update", "relative", "nmse"};

static const char *name_measure(const lmc_loss *loss)
{
    return (unsigned)loss->measure < sizeof measure_names / sizeof *measure_names ? measure_names[loss->measure] : "unknown";
}

static void say_choice(const struct choice *c, const struct members *m, const struct options *o)
{
    const char *path = name_of_member(&m->list[c->member]);
    lmc_quantizer_info info;
    if (o->verbosity < 2 || !c->rule)
        return;
    info = get_info(c);
    if (info.is_lossless)
        say(path, "%.200s (%s): exact: %s", c->tensor->name, role_names[c->meaning.role], c->reason);
    else
        say(path, "%.200s (%s): %s %.3g, %.2f bits: %s", c->tensor->name, role_names[c->meaning.role], name_measure(&info.loss), info.loss.error,
            info.bits, c->reason);
}

static int fit_quantizer(struct choice *c, struct members *m)
{
    struct elements own, seconds;
    lmc_quantizer_options options;
    lmc_elements elements = make_elements(&own, m, c);
    enum lmc_status status;
    const char *why = "";
    int has_second;
    set_quantizer_options(&options, c);
    has_second = c->meaning.role == ROLE_M && options.measure != LMC_MEASURE_RELATIVE && can_use_second(c, m, &why);
    memset(&seconds, 0, sizeof seconds);
    if (has_second) {
        options.second = c->partner->quantizer; /* or none: that is exact */
        options.second_elements = make_elements(&seconds, m, c->partner);
    } else if (c->meaning.role == ROLE_M) { /* what the update loses cannot be measured; no more than each element does */
        options.role = LMC_ROLE_OTHER;
        options.measure = options.measure == LMC_MEASURE_UPDATE ? LMC_MEASURE_RELATIVE : options.measure;
    }
    status = lmc_fit_quantizer(&c->quantizer, &elements, &options);
    close_opened(&own.opened);
    close_opened(&seconds.opened);
    if (status == LMC_ERR_READ)
        return m->code;
    if (status != LMC_OK)
        return fail_status(m->list[c->member].full, status);
    c->has_second = has_second && is_quantised(c);
    explain_quantizer(c, why);
    return CODE_OK;
}

/* Has the tensor coded with its quantizer. */
static void attach_quantizer(lmc_tensor *t, struct choice *c)
{
    t->quantizer = c->quantizer;
    if (!c->has_second)
        return;
    c->second.file_number = c->partner->member;
    c->second.offset = c->partner->tensor->offset;
    t->twin = &c->second;
}

/* -- tensors that were quantised, restored, and have not changed since -- */

struct element_stream {
    lmc_elements elements;
    uint64_t at;
};

static int read_element_stream(void *user, void *dst, size_t size, size_t *got)
{
    struct element_stream *s = (struct element_stream *)user;
    uint64_t left = s->elements.size - s->at;
    *got = left < size ? (size_t)left : size;
    if (s->elements.read(s->elements.user, s->at, dst, *got) != LMC_OK)
        return -1;
    s->at += *got;
    return 0;
}

/* The tensor alone, as if it were a file: its identity does not depend on where it is. */
static int identify_tensor(lmc_tensor *alone, struct members *m, size_t number, const lmc_tensor *t)
{
    struct choice c;
    struct elements own;
    struct element_stream source;
    lmc_stream stream;
    lmc_file file;
    enum lmc_status status;
    memset(&c, 0, sizeof c);
    c.member = number;
    c.tensor = t;
    source.elements = make_elements(&own, m, &c);
    source.at = 0;
    stream.read = read_element_stream;
    stream.user = &source;
    *alone = *t;
    alone->offset = 0;
    memset(&file, 0, sizeof file);
    file.path = "";
    file.size = t->size;
    file.n_tensors = 1;
    file.tensors = alone;
    status = lmc_identify_file(&file, alone, &stream, NULL, NULL);
    close_opened(&own.opened);
    if (status == LMC_ERR_READ)
        return m->code;
    return status == LMC_OK ? CODE_OK : fail_status(m->list[number].full, status);
}

/* Sets t->loss, if the base has the same tensor, and that lost something: else it would go unsaid here, and be quantised again. */
static int find_former_loss(struct members *m, size_t number, lmc_tensor *t)
{
    lmc_tensor alone;
    int is_identified = 0;
    for (size_t i = 0; m->base && i < m->base->n_files && t->loss.generation == 0; i++) {
        const lmc_file *f = m->base->get_file(m->base->user, i);
        for (size_t k = 0; f && k < f->n_tensors; k++) {
            const lmc_tensor *b = &f->tensors[k];
            int code;
            if (b->loss.generation == 0 || b->size != t->size || strcmp(b->name, t->name) != 0 || strcmp(b->dtype, t->dtype) != 0)
                continue;
            code = is_identified ? CODE_OK : identify_tensor(&alone, m, number, t);
            if (code != CODE_OK)
                return code;
            is_identified = 1;
            if (memcmp(alone.identity, b->identity, sizeof b->identity) == 0)
                t->loss = b->loss;
        }
    }
    return CODE_OK;
}

/* Of the member of that number, which is written next. */
static int fit_quantizers(struct members *m, size_t number, const struct options *o)
{
    struct member *member = &m->list[number];
    int code = CODE_OK;
    for (size_t k = 0; k < member->n_tensors && S_ISREG(member->st.st_mode) && code == CODE_OK; k++)
        code = find_former_loss(m, number, &member->tensors[k]);
    for (size_t k = 0; k < member->n_tensors && member->choices && code == CODE_OK; k++) {
        struct choice *c = &member->choices[k];
        if (c->is_wanted && member->tensors[k].loss.generation)
            set_reason(c, "quantised already, as it is in the base");
        else if (c->is_wanted)
            code = fit_quantizer(c, m);
        if (code == CODE_OK && is_quantised(c))
            attach_quantizer(&member->tensors[k], c);
        if (code == CODE_OK)
            say_choice(c, m, o);
    }
    return code;
}

/* -- the record -- */

/* With the digits that mean something. */
static void set_json_real(json_t *object, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    set_json(object, key, json_real(strtod(text, NULL)));
}

static json_t *make_json_choice(const struct choice *c, const struct members *m)
{
    json_t *object = (json_t *)check_memory(json_object());
    lmc_quantizer_info info = get_info(c);
    set_json_text(object, "path", m->list[c->member].path);
    set_json_text(object, "name", c->tensor->name);
    set_json(object, "role", json_string(role_names[c->meaning.role]));
    if (c->partner) {
        set_json_text(object, "partner_path", m->list[c->partner->member].path);
        set_json_text(object, "partner", c->partner->tensor->name);
    }
    if (c->weight) {
        set_json_text(object, "weight_path", m->list[c->weight->member].path);
        set_json_text(object, "weight", c->weight->tensor->name);
    }
    set_json(object, "rule", make_json_string(c->rule->text, strlen(c->rule->text)));
    set_json(object, "choice", json_string(info.is_lossless ? "lossless" : info.is_grid ? "grid" : "k-means"));
    set_json(object, "reason", json_string(c->reason));
    if (!info.is_lossless) {
        set_json_number(object, "codes", info.n_codes);
        set_json(object, "measure", json_string(name_measure(&info.loss)));
        set_json_real(object, "error", info.loss.error);
        set_json_real(object, "bits", info.bits);
    }
    return object;
}

static size_t count_quantised(const struct members *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            n += (size_t)is_quantised(&m->list[i].choices[k]);
    return n;
}

/* What the rules did, to the metadata; nothing, if no rule matched. */
static enum lmc_status record_choices(lmc_writer *writer, const struct members *m, const struct options *o)
{
    json_t *object = (json_t *)check_memory(json_object()), *rules = (json_t *)check_memory(json_array()),
           *tensors = (json_t *)check_memory(json_array());
    enum lmc_status status = LMC_OK;
    for (size_t i = 0; i < o->policy->n_rules; i++)
        json_array_append_new(rules, make_json_string(o->policy->rules[i].text, strlen(o->policy->rules[i].text)));
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            if (m->list[i].choices[k].rule)
                json_array_append_new(tensors, make_json_choice(&m->list[i].choices[k], m));
    set_json(object, "rules", rules);
    if (json_array_size(tensors)) {
        char *text;
        set_json(object, "tensors", json_incref(tensors));
        text = (char *)check_memory(json_dumps(object, JSON_COMPACT));
        status = lmc_add_metadata(writer, POLICY_KEY, text, strlen(text));
        free(text);
    }
    json_decref(tensors);
    json_decref(object);
    return status;
}

static size_t count_lossy(const lmc_file *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_tensors; i++)
        n += f->tensors[i].loss.generation != 0;
    return n;
}

/* A rule that does nothing is hardly what the user wants. */
static void say_if_nothing_quantised(const struct members *m, const char *name, const struct options *o)
{
    if (o->verbosity > 0 && is_lossy(o->policy) && count_quantised(m) == 0)
        say(name, "no tensor was quantised: no rule matches one that can be; '-v' tells more, and 'lmc help quant'");
}

#endif
