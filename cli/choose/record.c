/* SPDX-License-Identifier: MIT */
#include "record.h"

#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "members.h"
#include "policy.h"
#include "quantise.h"
#include "../format/json.h"
#include "../format/tensors.h"
#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/report.h"

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
    set_json(object, "choice",
             json_string(info.is_lossless ? "lossless"
                         : info.is_grid   ? "grid"
                                          : "k-means"));
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

/* A text that grows. */
struct record_text {
    char *data;
    size_t size, room;
};

static int add_to_text(void *user, const void *data, size_t size)
{
    struct record_text *const text = (struct record_text *)user;
    if (text->size + size > text->room) {
        text->room = text->room * 2 + size;
        text->data = (char *)resize(text->data, text->room, 1);
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    return 0;
}

enum lmc_status record_choices(lmc_writer *writer, const struct members *m)
{
    const struct policy *policy = m->coding->policy;
    struct record_text text = {NULL, 0, 0};
    struct json_writer w;
    size_t n = 0;
    enum lmc_status status = LMC_OK;
    init_json_writer(&w, add_to_text, &text, JSON_COMPACT);
    begin_json(&w, NULL, '{');
    begin_json(&w, "rules", '[');
    for (size_t i = 0; i < policy->n_rules; i++)
        put_json(&w, NULL, make_json_string(policy->rules[i].text, strlen(policy->rules[i].text)));
    end_json(&w, ']');
    begin_json(&w, "tensors", '[');
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            if (m->list[i].choices[k].rule) {
                put_json(&w, NULL, make_json_choice(&m->list[i].choices[k], m));
                n++;
            }
    end_json(&w, ']');
    end_json(&w, '}');
    (void)finish_json(&w);
    if (n) status = lmc_writer_add_metadata(writer, POLICY_KEY, text.data, text.size);
    free(text.data);
    return status;
}

/* The first archive with quantised tensors: its records are no longer what their CRCs are of. */
static const struct member *find_quantised_archive(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        char magic[4];
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            if (is_quantised(&m->list[i].choices[k])) {
                if (read_member(m, i, 0, magic, sizeof magic) == LMC_OK &&
                    memcmp(magic, "PK\3\4", sizeof magic) == 0)
                    return &m->list[i];
                break;
            }
    }
    return NULL;
}

void say_of_quantised(struct members *m, const char *name, const struct common *o)
{
    const struct member *archive = o->verbosity >= 2 ? find_quantised_archive(m) : NULL;
    if (archive)
        say(name_of_member(archive), "is a ZIP archive, whose checksums stay those of what was "
                                     "quantised: when it is restored, PyTorch loads it, but "
                                     "'unzip -t' complains");
    if (is_lossy(m->coding->policy) && count_quantised(m) == 0)
        say(name, "no tensor was quantised: no rule matches one that can be; '-v' tells more, and "
                  "'lmc help quant'");
}
