/* SPDX-License-Identifier: MIT */
#include "moments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "members.h"
#include "policy.h"
#include "../../formats/roles.h"
#include "../format/tensors.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/search.h"

/* -- pairs of moments: the same name, or path and name, but for what the moments are called -- */

struct stem {
    char *text; /* the name without that; of a file so called, path and name without */
    char *home; /* the path without that, if it is no part of the text */
    struct choice *choice;
};

/* The text, where at stands in it, without the word there. */
static char *cut_word(const char *text, const char *at, const char *word, const char *kind)
{
    size_t before = (size_t)(at - text), size = strlen(text) + strlen(kind) + 2;
    char *cut = (char *)resize(NULL, size, 1);
    snprintf(cut, size, "%.*s\1%s%s", (int)before, text, kind,
             at + strlen(word)); /* \1: no name that is written holds it */
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
    if (order == 0) order = strcmp(x->home, y->home);
    if (order == 0) order = (int)x->choice->meaning.role - (int)y->choice->meaning.role;
    return order                                   ? order
           : x->choice->member < y->choice->member ? -1
                                                   : x->choice->member > y->choice->member;
}

/* Of one stem: the second moment of the same home, else the only one there is. */
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

/* list: all moments that were found by the words for them */
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

/* -- weights of moments -- */

/* By name; masters before copies. */
static int compare_weights(const void *a, const void *b)
{
    const struct choice *x = *(const struct choice *const *)a,
                        *y = *(const struct choice *const *)b;
    int order = strcmp(x->tensor->name, y->tensor->name);
    if (order == 0)
        order = (x->tensor->size < y->tensor->size) - (x->tensor->size > y->tensor->size);
    return order ? order : x->member < y->member ? -1 : x->member > y->member;
}

static const struct choice *find_weight_named(const struct choice *const *list, size_t n,
                                              const char *name, const lmc_tensor *moment)
{
    size_t low;
    FIND_FIRST(low, n, strcmp(list[low]->tensor->name, name) < 0);
    for (; low < n && strcmp(list[low]->tensor->name, name) == 0; low++)
        if (is_same_shape(list[low]->tensor, moment)) return list[low];
    return NULL;
}

/* What stands behind the word for the moment, or else before it, without leading parts such as
 * "optimizer.state.". */
static const struct choice *find_weight(const struct choice *const *list, size_t n,
                                        const struct choice *c)
{
    const char *name = c->tensor->name, *word = c->meaning.word;
    const struct choice *found = NULL;
    char *text = copy_string(name, strlen(name));
    if (word >= name && word <= name + strlen(name)) {
        const char *after =
            word + strlen(c->meaning.role == ROLE_V ? c->meaning.names->v : c->meaning.names->m);
        if (*after) memmove(text, text + (after + 1 - name), strlen(after));
        else text[word > name ? word - name - 1 : 0] = 0;
    }
    for (const char *at = text; *at && !found;
         at += at[strcspn(at, "./")] ? strcspn(at, "./") + 1 : strlen(at))
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
            if (m->list[i].choices[k].meaning.role != ROLE_WEIGHT) continue;
            list = (const struct choice **)grow((void *)list, n, &room, sizeof *list);
            list[n++] = &m->list[i].choices[k];
        }
    if (n) qsort((void *)list, n, sizeof *list, compare_weights);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            if (c->meaning.names && c->meaning.role != ROLE_WEIGHT)
                c->weight = find_weight(list, n, c);
        }
    free((void *)list);
}

void find_meanings(struct members *m, const struct policy *p)
{
    struct stem *list = NULL;
    size_t n = 0, room = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            struct choice *c = &m->list[i].choices[k];
            const char *path = name_of_member(&m->list[i]);
            c->meaning = find_meaning(p, path, c->tensor);
            if (!c->meaning.names) continue;
            list = (struct stem *)grow(list, n, &room, sizeof *list);
            list[n++] = make_stem(c, path);
        }
    pair_moments(list, n);
    free(list);
    find_weights(m);
}
