/* SPDX-License-Identifier: MIT */
#include "members.h"

#include "../format/print.h"
#include "../input/archive.h"
#include "../sys/attributes.h"

static void free_choices(struct member *member)
{
    for (size_t k = 0; k < member->n_tensors && member->choices; k++) {
        lmc_quantizer_free(member->choices[k].quantizer);
        free(member->choices[k].reason);
    }
    free(member->choices);
}

void free_members(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free_choices(&m->list[i]);
        free(m->list[i].full);
        free(m->list[i].tensors);
        free(m->list[i].hints);
        free(m->list[i].parts);
    }
    free(m->list);
    if (!m->are_twins_lent) free(m->twins);
    free_links(&m->links);
    free(m->parts);
    free((void *)m->lossy);
    close_opened(&m->opened);
}

/* Reads from an archive as from a base, which keeps the last decoded block at each link of the
 * chain: samples are mostly read in order. */
enum lmc_status read_member(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct members *m = (struct members *)user;
    const struct member *member = &m->list[number];
    if (m->archive) {
        const lmc_base base = lmc_reader_base(m->archive->reader);
        const enum lmc_status status = base.read(base.user, member->number, offset, dst, size);
        if (status == LMC_ERR_LIMIT && m->is_sampling) return status;
        m->code =
            status == LMC_OK ? CODE_OK : fail_damage(m->archive, status, member->number, offset);
    } else m->code = read_opened(&m->opened, member->full, &member->st, offset, dst, size);
    return m->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

const char *name_of_member(const struct member *member)
{
    return *member->path ? member->path : base_name(member->full);
}

uint64_t size_of_member(const struct members *m, const struct member *member)
{
    if (m->archive) return lmc_reader_get_file(m->archive->reader, member->number)->size;
    return S_ISREG(member->st.st_mode) ? (uint64_t)member->st.st_size : 0;
}

size_t count_hints(const struct member *member)
{
    return member->n_tensors ? member->n_tensors : 1;
}

const lmc_tensor *tensor_at(const struct member *member, uint64_t offset)
{
    size_t k;
    FIND_FIRST(k, member->n_tensors, member->tensors[k].offset < offset);
    while (k < member->n_tensors && member->tensors[k].size == 0) k++; /* these are at one place */
    if (k < member->n_tensors && member->tensors[k].offset == offset) return &member->tensors[k];
    return !member->n_tensors && offset == 0 ? &member->whole : NULL;
}

void set_tensors(struct member *member, const lmc_tensor *tensors, size_t n)
{
    member->n_tensors = n;
    member->tensors = copy_tensors(tensors, n);
    member->hints = (lmc_tensor_hints *)resize(NULL, count_hints(member), sizeof *member->hints);
    for (size_t k = 0; k < count_hints(member); k++) member->hints[k] = LMC_TENSOR_HINTS();
}

enum lmc_status begin_member(lmc_writer *writer, const struct member *member, const lmc_file *file,
                             enum lmc_dtype default_dtype)
{
    enum lmc_status status = LMC_OK;
    for (size_t k = 0; k < count_hints(member) && status == LMC_OK; k++) {
        const lmc_tensor_hints *hints = &member->hints[k];
        if (hints->twin || hints->base_parts || hints->quantizer)
            status = lmc_writer_add_hints(writer, k, hints);
    }
    return status == LMC_OK ? lmc_writer_begin_file(writer, file, default_dtype) : status;
}

void make_choices(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct member *member = &m->list[i];
        member->choices = (struct choice *)zeroed(member->n_tensors, sizeof *member->choices);
        for (size_t k = 0; k < member->n_tensors; k++) {
            member->choices[k].tensor = &member->tensors[k];
            member->choices[k].member = i;
        }
    }
}

void add_member(struct members *m, const char *path, const char *full, struct source *s)
{
    struct member *member = &m->list[m->n++];
    memset(member, 0, sizeof *member);
    member->path = path;
    member->full = copy_text(full);
    member->st = s->st;
    member->size = S_ISDIR(s->st.st_mode) ? 0 : s->size;
    set_tensors(member, s->container.tensors, s->container.n_tensors);
    container_free(&s->container);
}

int check_members(const struct members *m)
{
    struct stat st;
    for (size_t i = 0; (m->twins || m->has_pairs || m->has_alike) && i < m->n; i++)
        if (S_ISREG(m->list[i].st.st_mode) &&
            (stat(m->list[i].full, &st) != 0 || !same_state(&st, &m->list[i].st)))
            return fail_changed(m->list[i].full);
    return CODE_OK;
}

/* -- small files, which share sections and blocks of a snapshot -- */

/* Bytes. Less than a block: the library's limit for files in a group. */
#define SMALL_FILE_SIZE ((uint64_t)1 << 17)

static int is_small(const struct members *m, const struct member *member)
{
    if (member->n_tensors) return 0;
    return (m->archive || S_ISDIR(member->st.st_mode) || S_ISREG(member->st.st_mode)) &&
           size_of_member(m, member) < SMALL_FILE_SIZE;
}

/* A group saves some 150 bytes for each file, but only decoders of the highest level can read it.
 * For the few configuration files of a model, a group is not worth that. */
enum { LEAST_FILES = 24 };

static int has_small_files(const struct members *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n && n < LEAST_FILES; i++) n += is_small(m, &m->list[i]) != 0;
    return n == LEAST_FILES;
}

/* If all larger files of a delta together have fewer bytes, it is small compared with its base. */
#define LITTLE ((uint64_t)16 << 20)

enum lmc_grouping choose_grouping(const struct members *m, const lmc_base *base)
{
    uint64_t rest = 0;
    if (!has_small_files(m)) return LMC_GROUP_NONE;
    for (size_t i = 0; i < m->n && base; i++)
        if (!is_small(m, &m->list[i])) rest += size_of_member(m, &m->list[i]);
    return base && rest < LITTLE ? LMC_GROUP_ALL : LMC_GROUP_NEW;
}

/* -- order -- */

/* The kind of a file: the text behind the last dot of its name; or "". */
static const char *kind_of(const char *path)
{
    const char *name = base_name(path), *dot = strrchr(name, '.');
    return dot && dot != name ? dot : "";
}

struct small {
    struct member member;
    int is_known; /* the base has the file; known files come after others */
};

/* Whether the base has a file without tensors of that path and size, as the library requires. */
static int is_known(const lmc_file *const *sorted, const lmc_base *base, const struct members *m,
                    const struct member *member)
{
    size_t low;
    if (!base) return 0;
    FIND_FIRST(low, base->n_files, strcmp(sorted[low]->path, member->path) < 0);
    return low < base->n_files && strcmp(sorted[low]->path, member->path) == 0 &&
           sorted[low]->n_tensors == 0 && sorted[low]->size == size_of_member(m, member);
}

/* Directories come before files, as they have no kind and no bytes. */
static int compare_small(const void *a, const void *b)
{
    const struct small *s = (const struct small *)a, *t = (const struct small *)b;
    const struct member *x = &s->member, *y = &t->member;
    const int x_is_file = S_ISREG(x->st.st_mode), y_is_file = S_ISREG(y->st.st_mode);
    int order = s->is_known - t->is_known;
    if (order == 0) order = x_is_file - y_is_file;
    if (order == 0 && x_is_file) order = strcmp(kind_of(x->path), kind_of(y->path));
    return order ? order : strcmp(x->path, y->path);
}

void order_members(struct members *m, const lmc_base *base)
{
    struct small *small;
    struct member *rest;
    const lmc_file **sorted;
    size_t n_small = 0, n = 0;
    if (!has_small_files(m)) return;
    sorted = base ? sort_files(base) : NULL;
    small = (struct small *)resize(NULL, m->n, sizeof *small);
    rest = (struct member *)resize(NULL, m->n, sizeof *rest);
    for (size_t i = 0; i < m->n; i++)
        if (is_small(m, &m->list[i])) {
            small[n_small].member = m->list[i];
            small[n_small++].is_known = is_known(sorted, base, m, &m->list[i]);
        } else rest[n++] = m->list[i];
    qsort(small, n_small, sizeof *small, compare_small);
    for (size_t i = 0; i < n_small; i++) m->list[i] = small[i].member;
    memcpy(m->list + n_small, rest, n * sizeof *rest);
    free(small);
    free(rest);
    free((void *)sorted);
}
