/* SPDX-License-Identifier: MIT */
#include "quantise.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "members.h"
#include "moments.h"
#include "policy.h"
#include "../../formats/roles.h"
#include "../format/tensors.h"
#include "../input/source.h"
#include "../input/archive.h"
#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "../sys/search.h"

static void set_reason(struct choice *c, const char *text)
{
    free(c->reason);
    c->reason = copy_string(text, strlen(text));
}

/* Whether the second moment will be at hand where the first is decoded; *why not. */
static int can_use_second(const struct choice *c, const struct members *m, const char **why)
{
    if (!c->partner) *why = "no second moment was found";
    else if (c->partner->member == c->member) *why = "its second moment stands in the same file";
    else if (!m->has_pairs) *why = "the output is a pipe, or --no-twins was given";
    else if (c->partner->member > c->member) *why = "its second moment comes later";
    else if (c->partner->tensor->twin) *why = "its second moment repeats another tensor";
    else return 1;
    return 0;
}

/* A relative bound has no use for it. */
static int may_need_second(const struct choice *c)
{
    return wants_second(c->rule, c->meaning.role) && c->partner && c->partner->member != c->member;
}

size_t choose_all(struct members *m, int can_refer)
{
    const struct policy *policy = m->coding->policy;
    size_t n = 0;
    if (policy->n_rules == 0) return 0;
    make_choices(m);
    find_meanings(m, policy);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            const char *obstacle = NULL;
            c->rule = find_rule(policy, name_of_member(&m->list[i]), c->tensor, c->meaning.role);
            if (c->rule) obstacle = find_obstacle(c->rule, c->meaning.role, c->tensor);
            c->is_wanted = c->rule && !obstacle;
            n += (size_t)c->is_wanted;
            if (obstacle) set_reason(c, obstacle);
            m->has_pairs |= can_refer && c->is_wanted && may_need_second(c);
        }
    return n;
}

/* -- quantizers -- */

/* A tensor among the members, for lmc_source. */
struct elements {
    struct members *members;
    const struct choice *choice;
    struct opened opened;
};

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    struct elements *e = (struct elements *)user;
    const struct member *member = &e->members->list[e->choice->member];
    e->members->code = read_opened(&e->opened, member->full, &member->st,
                                   e->choice->tensor->offset + offset, dst, size);
    return e->members->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

static lmc_source make_elements(struct elements *e, struct members *m, const struct choice *c)
{
    lmc_source elements;
    memset(e, 0, sizeof *e);
    e->members = m;
    e->choice = c;
    elements.read_at = read_elements;
    elements.user = e;
    elements.size = c->tensor->size;
    return elements;
}

lmc_quantizer_info get_info(const struct choice *c)
{
    lmc_quantizer_info info;
    memset(&info, 0, sizeof info);
    info.is_lossless = 1;
    if (c->quantizer && lmc_quantizer_get_info(c->quantizer, &info) != LMC_OK) abort();
    return info;
}

int is_quantised(const struct choice *c) { return !get_info(c).is_lossless; }

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
    size = (size_t)snprintf(text, sizeof text,
                            info.is_grid ? "a grid, %u points in use" : "k-means, %u codes",
                            info.n_codes);
    if (c->has_second) snprintf(text + size, sizeof text - size, ", scaled by the second moment");
    else
        snprintf(text + size, sizeof text - size, ", scales for groups of %llu%s%s",
                 (unsigned long long)choose_group(c->tensor), *why ? ": " : "", why);
    set_reason(c, text);
}

static void say_choice(const struct choice *c, const struct members *m, const struct common *o)
{
    const char *path = name_of_member(&m->list[c->member]);
    lmc_quantizer_info info;
    if (o->verbosity < 2 || !c->rule) return;
    info = get_info(c);
    if (info.is_lossless)
        say(path, "%.200s (%s): exact: %s", c->tensor->name, role_names[c->meaning.role],
            c->reason);
    else
        say(path, "%.200s (%s): %s %.3g, %.2f bits: %s", c->tensor->name,
            role_names[c->meaning.role], name_measure(&info.loss), info.loss.error, info.bits,
            c->reason);
}

static int fit_quantizer(struct choice *c, struct members *m)
{
    struct elements own, seconds;
    lmc_quantizer_options options;
    lmc_source elements = make_elements(&own, m, c);
    enum lmc_status status;
    const char *why = "";
    int has_second;
    has_second = wants_second(c->rule, c->meaning.role) && can_use_second(c, m, &why);
    set_quantizer_options(&options, c->rule, c->meaning.role, c->tensor, has_second);
    memset(&seconds, 0, sizeof seconds);
    if (has_second) {
        options.second = c->partner->quantizer; /* or none: that is exact */
        options.second_elements = make_elements(&seconds, m, c->partner);
    }
    status = lmc_quantizer_fit(&c->quantizer, &elements, &options);
    close_opened(&own.opened);
    close_opened(&seconds.opened);
    if (status == LMC_ERR_READ) return m->code;
    if (status != LMC_OK) return fail_status(m->list[c->member].full, status);
    c->has_second = has_second && is_quantised(c);
    explain_quantizer(c, why);
    return CODE_OK;
}

void attach_quantizer(lmc_tensor *t, struct choice *c)
{
    t->quantizer = c->quantizer;
    if (!c->has_second) return;
    c->second.file_number = c->partner->member;
    c->second.offset = c->partner->tensor->offset;
    t->twin = &c->second;
}

/* -- tensors that were quantised, restored, and have not changed since -- */

struct element_stream {
    lmc_source elements;
    uint64_t at;
};

static enum lmc_status read_element_stream(void *user, void *dst, size_t size, size_t *got)
{
    struct element_stream *s = (struct element_stream *)user;
    uint64_t left = s->elements.size - s->at;
    *got = left < size ? (size_t)left : size;
    if (s->elements.read_at(s->elements.user, s->at, dst, *got) != LMC_OK) return LMC_ERR_READ;
    s->at += *got;
    return LMC_OK;
}

static int identify_tensor(lmc_tensor *alone, struct members *m, size_t number, const lmc_tensor *t)
{
    struct choice c;
    struct elements own;
    struct element_stream source;
    lmc_stream stream;
    enum lmc_status status;
    memset(&c, 0, sizeof c);
    c.member = number;
    c.tensor = t;
    source.elements = make_elements(&own, m, &c);
    source.at = 0;
    stream.read = read_element_stream;
    stream.user = &source;
    *alone = *t;
    status = identify_alone(alone, &stream);
    close_opened(&own.opened);
    if (status == LMC_ERR_READ) return m->code;
    return status == LMC_OK ? CODE_OK : fail_status(m->list[number].full, status);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const lmc_tensor *const *)a)->name, (*(const lmc_tensor *const *)b)->name);
}

/* Once for all tensors: most bases have none, and a base may have as many tensors as there are. */
static void list_lossy(struct members *m)
{
    m->are_lossy_known = 1;
    for (size_t i = 0; m->base && i < m->base->n_files; i++) {
        const lmc_file *f = m->base->get_file(m->base->user, i);
        for (size_t k = 0; f && k < f->n_tensors; k++) {
            if (f->tensors[k].loss.generation == 0) continue;
            if ((m->n_lossy & (m->n_lossy - 1)) == 0) /* it doubles */
                m->lossy =
                    (const lmc_tensor **)resize(m->lossy, 2 * m->n_lossy + 1, sizeof *m->lossy);
            m->lossy[m->n_lossy++] = &f->tensors[k];
        }
    }
    if (m->n_lossy) qsort(m->lossy, m->n_lossy, sizeof *m->lossy, by_name);
}

/* Sets t->loss, if the base has the same tensor, and that lost something: else it would go unsaid
 * here, and be quantised again. */
static int find_former_loss(struct members *m, size_t number, lmc_tensor *t)
{
    lmc_tensor alone;
    int is_identified = 0;
    size_t first;
    if (!m->are_lossy_known) list_lossy(m);
    FIND_FIRST(first, m->n_lossy, strcmp(m->lossy[first]->name, t->name) < 0);
    for (; first < m->n_lossy && t->loss.generation == 0; first++) {
        const lmc_tensor *const b = m->lossy[first];
        int code;
        if (strcmp(b->name, t->name) != 0) break;
        if (b->size != t->size || strcmp(b->dtype, t->dtype) != 0) continue;
        code = is_identified ? CODE_OK : identify_tensor(&alone, m, number, t);
        if (code != CODE_OK) return code;
        is_identified = 1;
        if (memcmp(alone.fingerprint, b->fingerprint, sizeof b->fingerprint) == 0)
            t->loss = b->loss;
    }
    return CODE_OK;
}

int fit_quantizers(struct members *m, size_t number, const struct common *o)
{
    struct member *member = &m->list[number];
    int code = CODE_OK;
    for (size_t k = 0; k < member->n_tensors && S_ISREG(member->st.st_mode) && code == CODE_OK; k++)
        code = find_former_loss(m, number, &member->tensors[k]);
    for (size_t k = 0; k < member->n_tensors && member->choices && code == CODE_OK; k++) {
        struct choice *c = &member->choices[k];
        if (c->is_wanted && member->tensors[k].loss.generation)
            set_reason(c, "quantised already, as it is in the base");
        else if (c->is_wanted) code = fit_quantizer(c, m);
        if (code == CODE_OK && is_quantised(c)) attach_quantizer(&member->tensors[k], c);
        if (code == CODE_OK) say_choice(c, m, o);
    }
    return code;
}
