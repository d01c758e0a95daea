/* SPDX-License-Identifier: MIT */
#include "quantize.h"

#include "members.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/archive.h"
#include "../input/options.h"

/* -- pairs of moments: their names, or paths and names, differ only in the words for moments -- */

struct stem {
    char *text; /* the name without the word; or path and name, if the word is in the path */
    char *home; /* the path without such a word, if the path is not in `text` */
    struct choice *choice;
};

/* A copy of text, in which \1 and kind replace the word that is at `at`. */
static char *cut_word(const char *text, const char *at, const char *word, const char *kind)
{
    size_t before = (size_t)(at - text), size = strlen(text) + strlen(kind) + 2;
    char *cut = (char *)resize(NULL, size, 1);
    snprintf(cut, size, "%.*s\1%s%s", (int)before, text, kind,
             at + strlen(word)); /* \1: names do not have it */
    return cut;
}

/* Cuts the word out of a path, so that "rank_0/exp_avg" and "rank_0/exp_avg_sq" become equal. */
static char *find_home(const char *path, const char *word, const char *kind)
{
    const char *at = find_word(path, word);
    return at ? cut_word(path, at, word, kind) : copy_text(path);
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
        stem.home = copy_text("");
        free(cut);
    }
    return stem;
}

static int compare_stems(const void *a, const void *b)
{
    const struct stem *x = (const struct stem *)a, *y = (const struct stem *)b;
    int order = strcmp(x->text, y->text);
    if (order == 0) order = strcmp(x->home, y->home);
    if (order == 0) order = (int)x->choice->meaning.role - (int)y->choice->meaning.role;
    return order                                   ? order
           : x->choice->member < y->choice->member ? -1
                                                   : x->choice->member > y->choice->member;
}

/* Finds the second moment among those of equal text: one of the same home, else the only one. */
static void find_second(struct stem *first, struct stem *list, size_t n)
{
    struct choice *found = NULL;
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].choice->meaning.role == ROLE_V &&
            is_same_kind(list[i].choice->tensor, first->choice->tensor)) {
            if (n_found++ == 0 || strcmp(list[i].home, first->home) == 0) found = list[i].choice;
            if (strcmp(list[i].home, first->home) == 0) {
                n_found = 1;
                break;
            }
        }
    if (n_found != 1) return;
    first->choice->partner = found;
    found->partner = first->choice;
}

/* list: all moments that were found by their names */
static void pair_moments(struct stem *list, size_t n)
{
    if (n) qsort(list, n, sizeof *list, compare_stems);
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && strcmp(list[start].text, list[end].text) == 0;) end++;
        for (size_t i = start; i < end; i++)
            if (list[i].choice->meaning.role == ROLE_M)
                find_second(&list[i], list + start, end - start);
    }
    for (size_t i = 0; i < n; i++) {
        struct choice *c = list[i].choice;
        if (c->meaning.names->is_common && !c->partner) c->meaning.role = ROLE_WEIGHT;
        free(list[i].text);
        free(list[i].home);
    }
}

/* Finds by names, for all choices, the role of each tensor, and pairs of moments. */
static void find_meanings(struct members *m, const struct policy *p)
{
    struct stem *list = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            const char *path = name_of_member(&m->list[i]);
            c->meaning = find_meaning(p, path, c->tensor);
            if (!c->meaning.names) continue;
            *(struct stem *)append(&list, &n, &cap, sizeof *list) = make_stem(c, path);
        }
    pair_moments(list, n);
    free(list);
}

/* -- rules -- */

static void set_reason(struct choice *c, const char *text)
{
    free(c->reason);
    c->reason = copy_text(text);
}

lmc_tensor_hints *hints_of_choice(const struct members *m, const struct choice *c)
{
    const struct member *member = &m->list[c->member];
    return &member->hints[c->tensor - member->tensors];
}

/* Whether the second moment can be read when the first is decoded. *why: the reason if not. */
static int can_use_second(const struct choice *c, const struct members *m, const char **why)
{
    if (!c->partner) *why = "no second moment was found";
    else if (c->partner->member == c->member) *why = "its second moment stands in the same file";
    else if (!m->has_pairs) *why = "the output is a pipe, or --no-twins was given";
    else if (c->partner->member > c->member) *why = "its second moment comes later";
    else if (hints_of_choice(m, c->partner)->twin)
        *why = "its second moment repeats another tensor";
    else return 1;
    return 0;
}

size_t choose_all(struct members *m, int can_refer)
{
    const struct policy *policy = m->o->policy;
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
            m->has_pairs |= can_refer && c->is_wanted && wants_second(c->rule, c->meaning.role) &&
                            c->partner && c->partner->member != c->member;
        }
    return n;
}

/* -- quantizers -- */

/* A tensor of a member, read as an lmc_source. */
struct elements {
    struct members *members;
    const struct choice *choice;
};

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    struct elements *e = (struct elements *)user;
    return read_member(e->members, e->choice->member, e->choice->tensor->offset + offset, dst,
                       size);
}

static lmc_source make_elements(struct elements *e, struct members *m, const struct choice *c)
{
    const lmc_source elements = {read_elements, e, c->tensor->size, {0, 0}};
    e->members = m;
    e->choice = c;
    return elements;
}

/* Information about the choice's quantizer; without a quantizer, is_lossless is set. */
static lmc_quantizer_info get_info(const struct choice *c)
{
    lmc_quantizer_info info = {0};
    info.is_lossless = 1;
    if (c->quantizer && lmc_quantizer_get_info(c->quantizer, &info) != LMC_OK) abort();
    return info;
}

int is_quantized(const struct choice *c) { return !get_info(c).is_lossless; }

/* A codebook may have all values of its tensor: then nothing is lost. */
static int is_lossy_choice(const struct choice *c) { return get_info(c).loss.generation != 0; }

/* why: the reason for not using the second moment; "" if there is none */
static void explain_quantizer(struct choice *c, const char *why)
{
    lmc_quantizer_info info = get_info(c);
    if (!is_lossy_choice(c)) {
        set_reason(c, info.is_lossless ? info.reason
                                       : "it has no more values than the codebook may have");
        return;
    }
    free(c->reason);
    c->reason = info.is_grid ? format_text("a grid, %u points in use", info.n_codes)
                             : format_text("k-means, %u values", info.n_codes);
    if (c->has_second) append_text(&c->reason, ", scaled by the second moment");
    else
        append_text(&c->reason, ", scales for groups of %llu%s%s",
                    (unsigned long long)choose_group(c->tensor), *why ? ": " : "", why);
}

static void say_choice(const struct choice *c, const struct members *m)
{
    const char *path = name_of_member(&m->list[c->member]);
    if (m->o->verbosity < 3 || !c->rule) return;
    lmc_quantizer_info info = get_info(c);
    if (!is_lossy_choice(c))
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
    lmc_source elements = make_elements(&own, m, c), second;
    const char *why = "";
    int has_second = wants_second(c->rule, c->meaning.role) && can_use_second(c, m, &why);
    set_quantizer_options(&options, c->rule, c->meaning.role, c->tensor, has_second);
    if (has_second) {
        options.second = c->partner->quantizer; /* NULL: the second moment is exact */
        second = make_elements(&seconds, m, c->partner);
        options.second_elements = &second;
    }
    enum lmc_status status = lmc_quantizer_fit(&c->quantizer, &elements, &options);
    if (status == LMC_ERR_READ) return m->code;
    if (status != LMC_OK) return fail_status(m->list[c->member].full, status);
    c->has_second = has_second && is_lossy_choice(c);
    explain_quantizer(c, why);
    return CODE_OK;
}

void attach_quantizer(const struct members *m, struct choice *c)
{
    lmc_tensor_hints *hints = hints_of_choice(m, c);
    hints->quantizer = c->quantizer;
    if (!c->has_second) return;
    c->second.file_number = c->partner->member;
    c->second.offset = c->partner->tensor->offset;
    hints->twin = &c->second;
}

/* -- tensors that were quantised, restored, and have not changed since -- */

/* The bytes of a member from front to back, read as an lmc_stream. */
struct member_stream {
    struct members *members;
    size_t number;
    uint64_t at, end;
};

static enum lmc_status read_member_stream(void *user, void *dst, size_t size, size_t *got)
{
    struct member_stream *s = (struct member_stream *)user;
    const uint64_t at = s->at;
    *got = s->end - at < size ? (size_t)(s->end - at) : size;
    s->at += *got;
    return read_member(s->members, s->number, at, dst, *got);
}

static int identify_tensor(lmc_tensor *alone, struct members *m, size_t number, const lmc_tensor *t)
{
    struct member_stream bytes = {m, number, t->offset, t->offset + t->size};
    const lmc_stream stream = {read_member_stream, &bytes, {0, 0}};
    *alone = *t;
    enum lmc_status status = identify_alone(alone, &stream, &m->o->parallel);
    if (status == LMC_ERR_READ) return m->code;
    return status == LMC_OK ? CODE_OK : fail_status(m->list[number].full, status);
}

/* Lists quantised tensors of the base once: searching the whole base for each tensor is slow. */
static void list_lossy(struct members *m)
{
    m->are_lossy_known = 1;
    for (size_t i = 0; m->base && i < m->base->n_files; i++) {
        const lmc_file *f = m->base->get_file(m->base->user, i);
        for (size_t k = 0; f && k < f->n_tensors; k++) {
            if (f->tensors[k].loss.generation == 0) continue;
            if (!m->n_lossy || !(m->n_lossy & (m->n_lossy - 1))) /* then the capacity doubles */
                m->lossy =
                    (const lmc_tensor **)resize(m->lossy, 2 * m->n_lossy + 1, sizeof *m->lossy);
            m->lossy[m->n_lossy++] = &f->tensors[k];
        }
    }
    if (m->n_lossy) qsort(m->lossy, m->n_lossy, sizeof *m->lossy, compare_named);
}

/* Sets t->loss if the base has the same tensor quantised: then it must not be quantised again. */
static int find_former_loss(struct members *m, size_t number, lmc_tensor *t)
{
    lmc_tensor alone;
    int is_identified = 0;
    size_t first;
    if (!m->are_lossy_known) list_lossy(m);
    FIND_FIRST(first, m->n_lossy, strcmp(m->lossy[first]->name, t->name) < 0);
    for (; first < m->n_lossy && t->loss.generation == 0; first++) {
        const lmc_tensor *const b = m->lossy[first];
        if (strcmp(b->name, t->name) != 0) break;
        if (b->size != t->size || strcmp(b->dtype, t->dtype) != 0) continue;
        int code = is_identified ? CODE_OK : identify_tensor(&alone, m, number, t);
        if (code != CODE_OK) return code;
        is_identified = 1;
        if (same_fingerprint(alone.fingerprint, b->fingerprint)) t->loss = b->loss;
    }
    return CODE_OK;
}

int fit_quantizers(struct members *m, size_t number)
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
        if (code == CODE_OK && is_quantized(c)) attach_quantizer(m, c);
        if (code == CODE_OK) say_choice(c, m);
    }
    return code;
}

/* -- what the rules did: JSON in the metadata of the snapshot -- */

static void put_json_choice(struct json_writer *w, const struct choice *c, const struct members *m)
{
    lmc_quantizer_info info = get_info(c);
    begin_json(w, NULL, '{');
    put_json_text(w, "path", m->list[c->member].path);
    put_json_text(w, "name", c->tensor->name);
    put_json(w, "role", json_string(role_names[c->meaning.role]));
    if (c->partner) {
        put_json_text(w, "partner_path", m->list[c->partner->member].path);
        put_json_text(w, "partner", c->partner->tensor->name);
    }
    put_json_bytes(w, "rule", c->rule->text, strlen(c->rule->text));
    put_json(w, "choice",
             json_string(info.is_lossless ? "lossless"
                         : info.is_grid   ? "grid"
                                          : "k-means"));
    put_json(w, "reason", json_string(c->reason));
    if (!info.is_lossless) put_json_number(w, "codes", info.n_codes);
    if (is_lossy_choice(c)) {
        put_json(w, "measure", json_string(name_measure(&info.loss)));
        put_json_real(w, "error", info.loss.error);
        put_json_real(w, "bits", info.bits);
    }
    end_json(w, '}');
}

enum lmc_status record_choices(lmc_writer *writer, const struct members *m)
{
    const struct policy *policy = m->o->policy;
    char *text = NULL;
    size_t size, n = 0;
    FILE *f = (FILE *)check_memory(open_memstream(&text, &size));
    struct json_writer w;
    enum lmc_status status = LMC_OK;
    init_json_writer(&w, f, JSON_COMPACT);
    begin_json(&w, NULL, '{');
    begin_json(&w, "rules", '[');
    for (size_t i = 0; i < policy->n_rules; i++)
        put_json_bytes(&w, NULL, policy->rules[i].text, strlen(policy->rules[i].text));
    end_json(&w, ']');
    begin_json(&w, "tensors", '[');
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            if (m->list[i].choices[k].rule) {
                put_json_choice(&w, &m->list[i].choices[k], m);
                n++;
            }
    end_json(&w, ']');
    end_json(&w, '}');
    close_text(f, &text);
    if (n) status = lmc_writer_add_metadata(writer, POLICY_KEY, text, size);
    free(text);
    return status;
}

/* How many tensors stay exact for a reason: a rule has few reasons. */
struct exact {
    const char *reason;
    size_t n;
};

static void count_reason(struct exact **list, size_t *n, size_t *cap, const char *reason)
{
    size_t i = 0;
    while (i < *n && strcmp((*list)[i].reason, reason) != 0) i++;
    if (i == *n) ((struct exact *)append(list, n, cap, sizeof **list))->reason = reason;
    (*list)[i].n++;
}

static void say_sums(const struct members *m, const char *name)
{
    struct exact *list = NULL;
    char *text = copy_text("");
    size_t n = 0, cap = 0, n_quantized = 0, n_exact = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++) {
            const struct choice *c = &m->list[i].choices[k];
            if (!c->rule) continue;
            if (is_lossy_choice(c)) n_quantized++;
            else count_reason(&list, &n, &cap, c->reason);
        }
    for (size_t i = 0; i < n; i++) {
        n_exact += list[i].n;
        append_text(&text, "%s%zu (%s)", i ? ", " : ": ", list[i].n, list[i].reason);
    }
    if (n_quantized || n)
        say(name, "%zu tensors quantised, %zu exact%s; -vv names each", n_quantized, n_exact, text);
    free(text);
    free(list);
}

void say_of_quantized(const struct members *m, const char *name)
{
    if (m->o->verbosity == 2) say_sums(m, name);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            if (is_quantized(&m->list[i].choices[k])) return;
    if (is_lossy(m->o->policy))
        say(name, "no tensor was quantised: no rule matches one that can be; '-vv' tells more, and "
                  "'lmc help quant'");
}
