/* twins.c - finds tensors and files that repeat others, and orders the members for it (members.h)
 * SPDX-License-Identifier: MIT */
#include "members.h"

#include "../../formats/torch.h"
#include "../input/archive.h"
#include "../input/options.h"

/* How many elements of a tensor are compared: 64 elements of two trained tensors never agree by
 * chance. If only other elements differ, the copy has changed a little, and is coded as a twin. */
#define N_SAMPLES 64u

/* At how many places the samples are. In a snapshot, each place costs decoding a block. */
#define N_PLACES 64u
#define N_PLACES_OF_ARCHIVE 8u

/* Smaller files without tensors, and descriptions of tensors, are coded together, which takes fewer
 * bytes than a run for each. */
#define MIN_WHOLE_SIZE 16384u

/* If all twins together have fewer bytes, none are used: restoring twins from pipe to pipe needs a
 * scratch file. */
#define MIN_TWIN_SIZE 4096u

/* Instead of the number of a tensor: a whole file without tensors. */
#define WHOLE SIZE_MAX

/* A tensor, its rounded copy, or a file without tensors. */
struct candidate {
    size_t member, tensor;
    enum lmc_conversion conversion;
    const char *dtype;
    uint64_t size; /* bytes, after rounding */
    uint64_t hash; /* of dtype and sample */
    int is_known;  /* the hash is that of the tensor's fingerprint */
};

struct candidates {
    struct candidate *list;
    size_t n, cap;
};

static void add_candidate(struct candidates *c, size_t member, size_t tensor, const lmc_tensor *t,
                          enum lmc_conversion conversion)
{
    struct candidate *new_one =
        (struct candidate *)append(&c->list, &c->n, &c->cap, sizeof *new_one);
    new_one->member = member;
    new_one->tensor = tensor;
    new_one->conversion = conversion;
    new_one->dtype = conversion == LMC_CONVERT_F32_TO_BF16  ? "BF16"
                     : conversion == LMC_CONVERT_F32_TO_F16 ? "F16"
                                                            : t->dtype;
    new_one->size = conversion ? t->size / 2 : t->size;
}

static void add_whole(struct candidates *c, const struct members *m, size_t number)
{
    struct member *member = &m->list[number];
    lmc_tensor *t = &member->whole;
    memset(t, 0, sizeof *t);
    t->size = member->n_tensors ? 0 : size_of_member(m, member);
    if (t->size < MIN_WHOLE_SIZE) return;
    t->name = member->path;
    t->dtype = "BYTES";
    if (m->archive)
        memcpy(t->fingerprint, lmc_reader_get_file(m->archive->reader, member->number)->fingerprint,
               sizeof t->fingerprint);
    add_candidate(c, number, WHOLE, t, LMC_CONVERT_NONE);
}

static void collect_candidates(struct candidates *c, const struct members *m)
{
    for (size_t i = 0; i < m->n; i++) add_whole(c, m, i);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            const lmc_tensor *t = &m->list[i].tensors[k];
            enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
            if (t->size / lmc_dtype_width(dtype) < N_SAMPLES || t->loss.generation ||
                (m->list[i].choices && m->list[i].choices[k].is_wanted) ||
                (torch_is_description(t) && t->size < MIN_WHOLE_SIZE))
                continue; /* quantised data is no longer equal */
            add_candidate(c, i, k, t, LMC_CONVERT_NONE);
            if (dtype == LMC_F32) {
                add_candidate(c, i, k, t, LMC_CONVERT_F32_TO_BF16);
                add_candidate(c, i, k, t, LMC_CONVERT_F32_TO_F16);
            }
        }
}

static lmc_tensor *tensor_of(const struct members *m, const struct candidate *c)
{
    struct member *member = &m->list[c->member];
    return c->tensor == WHOLE ? &member->whole : &member->tensors[c->tensor];
}

static lmc_tensor_hints *hints_for(const struct members *m, const struct candidate *c)
{
    return &m->list[c->member].hints[c->tensor == WHOLE ? 0 : c->tensor];
}

/* The place of sample i: in part i of the tensor; if n_places is 1, in the middle. */
static uint64_t place_of_sample(uint64_t n, unsigned i, unsigned n_places)
{
    uint64_t part = n / n_places, size = N_SAMPLES / n_places;
    if (n_places == 1) return (n - N_SAMPLES) / 2;
    return i == n_places - 1 ? n - size
                             : i * part + (i * (uint64_t)2654435761u) % (part - size + 1);
}

/* Sets the hash unless it is known. *is_constant: all samples are equal. */
static enum lmc_status sample_candidate(struct members *m, struct candidate *c, int is_scattered,
                                        int *is_constant)
{
    const lmc_tensor *t = tensor_of(m, c);
    unsigned char sample[N_SAMPLES * 8];
    unsigned width = lmc_dtype_width(lmc_dtype_find(t->dtype)), n_places = !is_scattered ? 1
                                                                           : m->archive
                                                                               ? N_PLACES_OF_ARCHIVE
                                                                               : N_PLACES;
    size_t size = N_SAMPLES * width, part = size / n_places;
    *is_constant = 0;
    for (unsigned i = 0; i < n_places && (is_scattered || !c->is_known); i++) {
        const enum lmc_status status = read_member(
            m, c->member, t->offset + width * place_of_sample(t->size / width, i, n_places),
            sample + i * part, part);
        if (status != LMC_OK) return status;
        *is_constant = memcmp(sample, sample + width, (i + 1) * part - width) == 0;
        if (c->is_known && !*is_constant) /* mostly true after one or two reads */
            break;
    }
    if (c->is_known) return LMC_OK;
    if (c->conversion) {
        unsigned char wide[sizeof sample];
        memcpy(wide, sample, size);
        if (lmc_conversion_apply(sample, wide, N_SAMPLES, c->conversion) != LMC_OK) abort();
        width /= 2;
        size /= 2;
    }
    *is_constant = memcmp(sample, sample + width, size - width) == 0;
    c->hash = hash_bytes(hash_bytes(FNV_START, c->dtype, strlen(c->dtype)), sample, size);
    return LMC_OK;
}

/* Puts candidates that may be equal side by side, in the order of the members. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = (const struct candidate *)a, *y = (const struct candidate *)b;
    int order = strcmp(x->dtype, y->dtype);
    if (order) return order;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->member != y->member) return x->member < y->member ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static void sort_candidates(struct candidates *c)
{
    if (c->n) qsort(c->list, c->n, sizeof *c->list, compare_candidates);
}

static size_t end_of_group(const struct candidates *c, size_t start)
{
    const struct candidate *const first = &c->list[start], *t = first + 1;
    while (t < c->list + c->n && t->size == first->size && t->hash == first->hash &&
           strcmp(t->dtype, first->dtype) == 0)
        t++;
    return (size_t)(t - c->list);
}

/* Sorts, and removes groups that have one candidate, or rounded candidates only. */
static void drop_lonely(struct candidates *c)
{
    size_t n = 0;
    sort_candidates(c);
    for (size_t start = 0, end; start < c->n; start = end) {
        int has_plain = 0;
        end = end_of_group(c, start);
        for (size_t i = start; i < end; i++) has_plain |= c->list[i].conversion == LMC_CONVERT_NONE;
        if (has_plain && end - start > 1) {
            memmove(c->list + n, c->list + start, (end - start) * sizeof *c->list);
            n += end - start;
        }
    }
    c->n = n;
}

/* Sorts by the places of the tensors. */
static int compare_places(const void *a, const void *b)
{
    const struct candidate *x = (const struct candidate *)a, *y = (const struct candidate *)b;
    if (x->member != y->member) return x->member < y->member ? -1 : 1;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return (int)x->conversion - (int)y->conversion;
}

/* If a group has no rounded candidates, the snapshot's fingerprints tell which are equal. */
static void take_fingerprints(struct candidates *c, const struct members *m)
{
    for (size_t start = 0, end; start < c->n; start = end) {
        int has_rounded = 0;
        end = end_of_group(c, start);
        for (size_t i = start; i < end; i++)
            has_rounded |= c->list[i].conversion != LMC_CONVERT_NONE;
        for (size_t i = start; i < end && !has_rounded; i++) {
            c->list[i].is_known = 1;
            memcpy(&c->list[i].hash, tensor_of(m, &c->list[i])->fingerprint,
                   sizeof c->list[i].hash);
        }
    }
    drop_lonely(c);
}

/* Finds groups by size, then by one read of each candidate, then by many, in the order of files. */
static enum lmc_status find_groups(struct candidates *c, struct members *m)
{
    collect_candidates(c, m);
    drop_lonely(c);
    if (m->archive) take_fingerprints(c, m);
    for (int is_scattered = 0; is_scattered <= 1; is_scattered++) {
        size_t n = 0;
        if (c->n) qsort(c->list, c->n, sizeof *c->list, compare_places);
        for (size_t i = 0; i < c->n; i++) {
            int is_constant;
            const enum lmc_status status =
                sample_candidate(m, &c->list[i], is_scattered, &is_constant);
            if (status != LMC_OK) return status;
            if (!is_scattered || !is_constant) c->list[n++] = c->list[i];
        }
        c->n = n;
        drop_lonely(c);
    }
    return LMC_OK;
}

/* Finds the groups. Each sample of an archive costs decoding a block and what that needs, so many
 * samples may reach its limit of work (*is_spent): then there are no groups, and reading begins
 * anew. */
static int find_groups_within_limit(struct candidates *c, struct members *m, int *is_spent)
{
    m->is_sampling = 1;
    const enum lmc_status status = find_groups(c, m);
    m->is_sampling = 0;
    *is_spent = status == LMC_ERR_LIMIT;
    if (!*is_spent) return status == LMC_OK ? CODE_OK : m->code;
    c->n = 0;
    begin_to_count(m->archive);
    if (m->o->verbosity > 0)
        say(m->archive->name, "has too many tensors to look for equal ones in it, as each look "
                              "decodes a block: only those are used that it has as twins already");
    return CODE_OK;
}

/* The master of a copy in its group, candidates [start, end): that of the same name, else any.
 * NULL: none. is_ordered: it must be stored earlier than the copy, and be no twin itself. */
static const struct candidate *find_master(const struct candidates *c, size_t start, size_t end,
                                           const struct candidate *copy, const struct members *m,
                                           int is_ordered)
{
    const struct candidate *found = NULL;
    for (size_t i = start; i < end; i++) {
        const struct candidate *master = &c->list[i];
        if (!master->conversion ||
            (is_ordered && (hints_for(m, master)->twin || compare_candidates(master, copy) > 0)))
            continue;
        if (strcmp(tensor_of(m, master)->name, tensor_of(m, copy)->name) == 0) return master;
        if (!found) found = master;
    }
    return found;
}

/* -- order -- */

struct edge {
    size_t from, to; /* a member with copies, and one with their masters */
};

struct ordering {
    struct edge *edges; /* sorted */
    size_t n_edges, cap;
    size_t *rank; /* of each member; SIZE_MAX: not known yet */
    size_t n;
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = (const struct edge *)a, *y = (const struct edge *)b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static void add_edge(struct ordering *o, size_t from, size_t to)
{
    struct edge *added;
    if (o->n_edges && o->edges[o->n_edges - 1].from == from && o->edges[o->n_edges - 1].to == to)
        return;
    added = (struct edge *)append(&o->edges, &o->n_edges, &o->cap, sizeof *added);
    added->from = from;
    added->to = to;
}

/* Ranks the members that a member needs, then the member itself. In a loop, any order is right. */
static void rank_member(struct ordering *o, size_t member)
{
    size_t low;
    FIND_FIRST(low, o->n_edges, o->edges[low].from < member);
    o->rank[member] = SIZE_MAX - 1; /* being ranked */
    for (; low < o->n_edges && o->edges[low].from == member; low++)
        if (o->rank[o->edges[low].to] == SIZE_MAX) rank_member(o, o->edges[low].to);
    o->rank[member] = o->n++;
}

/* A first moment is coded with the second moment, which must come earlier. */
static void add_edges_of_pairs(struct ordering *o, const struct members *m)
{
    for (size_t i = 0; i < m->n && m->has_pairs; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            const struct choice *c = &m->list[i].choices[k];
            if (c->is_wanted && c->meaning.role == ROLE_M && c->partner && c->partner->member != i)
                add_edge(o, i, c->partner->member);
        }
}

/* Moves members with masters before members with copies, and second moments before first ones. */
static void order_masters(struct members *m, struct candidates *c)
{
    struct ordering o = {0};
    struct member *ordered = (struct member *)resize(NULL, m->n, sizeof *ordered);
    o.rank = (size_t *)resize(NULL, m->n, sizeof *o.rank);
    for (size_t start = 0, end; start < c->n; start = end) {
        end = end_of_group(c, start);
        for (size_t i = start; i < end; i++) {
            const struct candidate *master =
                c->list[i].conversion ? NULL : find_master(c, start, end, &c->list[i], m, 0);
            if (master && master->member != c->list[i].member)
                add_edge(&o, c->list[i].member, master->member);
        }
    }
    add_edges_of_pairs(&o, m);
    if (o.n_edges) qsort(o.edges, o.n_edges, sizeof *o.edges, compare_edges);
    for (size_t i = 0; i < m->n; i++) o.rank[i] = SIZE_MAX;
    for (size_t i = 0; i < m->n; i++)
        if (o.rank[i] == SIZE_MAX) rank_member(&o, i);
    for (size_t i = 0; i < m->n; i++) ordered[o.rank[i]] = m->list[i];
    memcpy(m->list, ordered, m->n * sizeof *ordered);
    for (size_t i = 0; i < c->n; i++) c->list[i].member = o.rank[c->list[i].member];
    sort_candidates(c);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++)
            m->list[i].choices[k].member = i;
    free(ordered);
    free(o.rank);
    free(o.edges);
}

/* -- twins -- */

static void set_twin(struct members *m, lmc_twin *twin, const struct candidate *copy,
                     const struct candidate *original)
{
    *twin = (lmc_twin){.file_number = original->member,
                       .offset = tensor_of(m, original)->offset,
                       .conversion = original->conversion};
    hints_for(m, copy)->twin = twin;
}

/* Makes equal tensors twins of their master, or of the first one stored. */
static void pair_group(struct members *m, const struct candidates *c, size_t start, size_t end)
{
    const struct candidate *first = NULL;
    for (size_t i = start; i < end; i++) {
        const struct candidate *t = &c->list[i], *master;
        if (t->conversion) continue;
        master = first ? first : find_master(c, start, end, t, m, 1);
        if (master) set_twin(m, &m->twins[i], t, master);
        else first = t;
    }
}

static int compare_sizes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Whether much of the files are descriptions that an earlier one of the same size predicts: the
 * headers of the archives in a .distcp file hardly differ. */
static int has_alike(const struct members *m)
{
    uint64_t *sizes = NULL, repeated = 0;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++)
            if (torch_is_description(&m->list[i].tensors[k]))
                *(uint64_t *)append(&sizes, &n, &cap, sizeof *sizes) = m->list[i].tensors[k].size;
    if (n) qsort(sizes, n, sizeof *sizes, compare_sizes);
    for (size_t i = 1; i < n; i++) repeated += sizes[i] == sizes[i - 1] ? sizes[i] : 0;
    free(sizes);
    return repeated >= MIN_TWIN_SIZE;
}

/* Whether an original can predict a copy, and how. */
static int find_conversion(const lmc_tensor *copy, const lmc_tensor *original,
                           enum lmc_conversion *conversion)
{
    const enum lmc_dtype to = lmc_dtype_find(copy->dtype), from = lmc_dtype_find(original->dtype);
    *conversion = from != LMC_F32  ? LMC_CONVERT_NONE
                  : to == LMC_BF16 ? LMC_CONVERT_F32_TO_BF16
                  : to == LMC_F16  ? LMC_CONVERT_F32_TO_F16
                                   : LMC_CONVERT_NONE;
    return *conversion
               ? original->size == 2 * copy->size
               : original->size == copy->size && lmc_dtype_width(from) == lmc_dtype_width(to);
}

/* Uses the twins that an archive has: its index tells them. Its files stay in order. */
static void keep_twins(struct members *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) n += count_hints(&m->list[i]);
    lmc_twin *twin = m->twins = (lmc_twin *)resize(NULL, n, sizeof *m->twins);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < count_hints(&m->list[i]); k++) {
            const struct member *const member = &m->list[i];
            const lmc_tensor *const t = member->n_tensors ? &member->tensors[k] : &member->whole;
            const lmc_tensor *original;
            lmc_match found;
            if (t->loss.generation ||
                lmc_reader_find_match(m->archive->reader, i, t->offset, &found) != LMC_OK ||
                !found.is_own || found.file_number > i ||
                (found.file_number == i && found.offset >= t->offset))
                continue;
            original = tensor_at(&m->list[found.file_number], found.offset);
            *twin = (lmc_twin){.file_number = found.file_number, .offset = found.offset};
            if (original && find_conversion(t, original, &twin->conversion))
                member->hints[k].twin = twin++;
        }
    if (twin != m->twins) return;
    free(m->twins);
    m->twins = NULL; /* else the snapshot would claim to refer to itself */
}

int find_twins(struct members *m)
{
    struct candidates c = {0};
    uint64_t size = 0;
    int is_spent, code = find_groups_within_limit(&c, m, &is_spent);
    if (is_spent) keep_twins(m);
    else if (code == CODE_OK && (c.n || m->has_pairs)) {
        order_masters(m, &c);
        m->twins = (lmc_twin *)resize(NULL, c.n, sizeof *m->twins);
        for (int is_master = 1; is_master >= 0;
             is_master--) /* F32 first: a master that is a twin is not used */
            for (size_t start = 0, end; start < c.n; start = end) {
                end = end_of_group(&c, start);
                if ((strcmp(c.list[start].dtype, "F32") == 0) == is_master)
                    pair_group(m, &c, start, end);
            }
        for (size_t i = 0; i < c.n; i++)
            if (hints_for(m, &c.list[i])->twin == &m->twins[i]) size += c.list[i].size;
    }
    if (!is_spent && size < MIN_TWIN_SIZE) {
        for (size_t i = 0; i < c.n; i++) hints_for(m, &c.list[i])->twin = NULL;
        free(m->twins);
        m->twins = NULL;
    }
    free(c.list);
    m->has_alike = has_alike(m);
    return code;
}

void take_twins(struct members *m, const struct members *known)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < count_hints(&m->list[i]); k++)
            if (!known->list[i].choices || !known->list[i].choices[k].is_wanted)
                m->list[i].hints[k].twin = known->list[i].hints[k].twin;
    m->twins = known->twins;
    m->are_twins_lent = 1;
    m->has_alike = known->has_alike;
}
