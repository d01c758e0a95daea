/* parts.c - tensors and files that are made of parts of the base
 * SPDX-License-Identifier: MIT
 *
 * Case 1: tensors that are cut in another way. In a checkpoint of many processes each is in parts
 * along its first dimension, one for each process: "w[0:256]", "w[256:512]" (formats/torch.h).
 * If the next step has more or fewer processes, the parts change:
 *
 *     base        |   w[0:512]    |   w[512:1024]  |
 *     snapshot    | w[0:342] | w[342:684] | w[684:] |
 *
 * The same is done for a tensor that has more rows than in the base.
 *
 * Case 2: files that are not containers. If some bytes were added at the beginning, the rest is
 * like the base, but at other offsets:
 *
 *     base      | header |   A   |   B   |   C   |
 *     file      | longer header |   A   |  new  |   C   |
 *     parts     |      -        | base A|   -   | base C|
 *
 * Elements change a little from step to step, all over the file, so long pieces are never equal.
 * But every fourth byte, which has the sign and most of the exponent, is mostly equal. So places
 * are recognised by a rolling hash of 32 bytes that are four apart. There are four hashes: one for
 * each offset modulo four. If the top bits of the hash are zero, the place is an anchor, in base
 * and file alike. Consecutive anchors that have the same distance to equal anchors of the base make
 * a shift. Each file is read once. Memory is bounded, as larger files have rarer anchors.
 */
#include "members.h"

#include "../../formats/torch.h"
#include "../input/archive.h"

struct parts {
    lmc_base_part *list;
    size_t n, cap;
};

/* path NULL: the base does not have these bytes. */
static void add_part(struct parts *p, const char *path, const char *name, uint64_t offset,
                     uint64_t size)
{
    lmc_base_part *part;
    if (size == 0) return;
    part = (lmc_base_part *)append(&p->list, &p->n, &p->cap, sizeof *part);
    *part = (lmc_base_part){.path = path, .name = name, .offset = offset, .size = size};
}

/* -- tensors that are cut in another way -- */

/* Rows [begin, end) of a whole tensor, whose name is the first `size` bytes of tensor->name. */
struct rows {
    const lmc_tensor *tensor;
    const char *path;
    size_t size;
    uint64_t begin, end, bytes; /* of a row */
};

static int describe_rows(struct rows *r, const lmc_tensor *t, const char *path)
{
    r->tensor = t;
    r->path = path;
    if (t->rank == 0 || t->size == 0) return 0;
    r->size = torch_parse_part(t->name, &r->begin, &r->end);
    if (r->size == 0) {
        r->size = strlen(t->name);
        r->begin = 0;
        r->end = t->shape[0];
    }
    r->bytes = t->size / t->shape[0]; /* no division by 0: the tensor has bytes */
    return r->end - r->begin == t->shape[0] && r->bytes * t->shape[0] == t->size;
}

static int compare_stems_of_rows(const struct rows *x, const struct rows *y)
{
    const int order =
        memcmp(x->tensor->name, y->tensor->name, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int compare_rows(const void *a, const void *b)
{
    const struct rows *x = (const struct rows *)a, *y = (const struct rows *)b;
    const int order = compare_stems_of_rows(x, y);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Whether both are rows of the same tensor, by name, dtype and all but the first dimension. */
static int is_same_tensor(const struct rows *x, const struct rows *y)
{
    const lmc_tensor *t = x->tensor, *u = y->tensor;
    return compare_stems_of_rows(x, y) == 0 && x->bytes == y->bytes && t->rank == u->rank &&
           strcmp(t->dtype, u->dtype) == 0 &&
           memcmp(t->shape + 1, u->shape + 1, (t->rank - 1) * sizeof *t->shape) == 0;
}

struct all_rows {
    struct rows *list; /* sorted */
    size_t n, cap;
};

static struct all_rows list_rows(const lmc_base *base)
{
    struct all_rows all = {0};
    for (size_t i = 0; i < base->n_files; i++) {
        const lmc_file *f = base->get_file(base->user, i);
        for (size_t k = 0; k < f->n_tensors; k++) {
            all.list = (struct rows *)grow(all.list, all.n, &all.cap, sizeof *all.list);
            all.n += (size_t)describe_rows(&all.list[all.n], &f->tensors[k], f->path);
        }
    }
    if (all.n) qsort(all.list, all.n, sizeof *all.list, compare_rows);
    return all;
}

/* The first entry that may have rows from r->begin on: the last one that begins there or before. */
static size_t find_first_rows(const struct all_rows *all, const struct rows *r)
{
    size_t low;
    FIND_FIRST(low, all->n, compare_rows(&all->list[low], r) <= 0);
    while (low > 0 && compare_stems_of_rows(&all->list[low - 1], r) == 0) {
        low--;
        if (all->list[low].begin < r->begin) break;
    }
    return low;
}

/* Whether the base has exactly this tensor, in any file. first: see find_first_rows */
static int is_in_base(const struct all_rows *all, size_t first, const struct rows *r)
{
    for (size_t i = first; i < all->n && compare_stems_of_rows(&all->list[i], r) == 0; i++) {
        const struct rows *b = &all->list[i];
        if (b->begin > r->begin) break;
        if (b->begin == r->begin && b->end == r->end && is_same_tensor(b, r) &&
            strcmp(b->tensor->name, r->tensor->name) == 0)
            return 1;
    }
    return 0;
}

/* Adds the parts of r that the base has; none if it has exactly this tensor, or nothing of it. */
static void cut_rows(struct parts *p, const struct all_rows *all, const struct rows *r)
{
    const size_t n = p->n, first = find_first_rows(all, r);
    uint64_t at = r->begin;
    int has_any = 0;
    if (is_in_base(all, first, r)) return;
    for (size_t i = first;
         i < all->n && at < r->end && compare_stems_of_rows(&all->list[i], r) == 0; i++) {
        const struct rows *b = &all->list[i];
        const uint64_t end = b->end < r->end ? b->end : r->end;
        if (!is_same_tensor(b, r) || end <= at) continue;
        if (b->begin >= r->end) break;
        if (b->begin > at) {
            add_part(p, NULL, NULL, 0, (b->begin - at) * r->bytes);
            at = b->begin;
        }
        add_part(p, b->path, b->tensor->name, (at - b->begin) * r->bytes, (end - at) * r->bytes);
        at = end;
        has_any = 1;
    }
    if (!has_any) p->n = n;
}

size_t find_parts(struct members *m, const lmc_base *base)
{
    struct all_rows all = list_rows(base);
    struct parts p = {0};
    size_t n = 0, at = 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            const lmc_tensor *t = &m->list[i].tensors[k];
            const size_t before = p.n;
            struct rows r;
            if (!torch_is_description(t) && describe_rows(&r, t, m->list[i].path))
                cut_rows(&p, &all, &r);
            m->list[i].hints[k].n_base_parts = p.n - before;
            n += p.n != before;
        }
    free(all.list);
    free(m->parts);
    m->parts = p.list;
    for (size_t i = 0; i < m->n; i++) /* the list is complete: pointers to it stay valid */
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            lmc_tensor_hints *h = &m->list[i].hints[k];
            h->base_parts = h->n_base_parts ? m->parts + at : NULL;
            at += h->n_base_parts;
        }
    return n;
}

/* -- plain bytes: files that are not containers, and descriptions of tensors -- */

/* Fewer bytes are not searched: they would gain little. */
#define MIN_SHIFTED_SIZE ((uint64_t)256)
#define WINDOW ((size_t)1 << 20)
/* The hash of a place covers N_HASHED bytes that are STEP apart. */
enum { STEP = 4, N_HASHED = 32 };
/* One of 2^bits places is an anchor; at most 2^20 anchors are kept. */
enum { BITS_OF_SMALL = 4, MIN_BITS = 7, MAX_LOG2_ANCHORS = 20 };
/* So many consecutive anchors must have the same distance to make a shift. */
enum { ENOUGH = 3 };
/* A file with more shifts than this is not like the base. */
#define MAX_SHIFTS ((size_t)1 << 16)

/* Plain bytes of the base, or of a member. */
struct bytes {
    const char *path, *name; /* in the base; of a file without tensors, both are its path */
    enum lmc_status (*read)(void *user, size_t number, uint64_t offset, void *dst, size_t size);
    void *user;
    size_t number; /* of the file */
    uint64_t start, size;
};

static int read_bytes(const struct bytes *b, uint64_t at, void *dst, size_t size)
{
    return b->read(b->user, b->number, b->start + at, dst, size) == LMC_OK;
}

struct anchor {
    uint32_t hash;
    uint64_t place; /* offset behind its last byte; 0: none */
};

struct anchors {
    struct anchor *list; /* a hash table with open addressing */
    size_t mask, n;
    unsigned bits;
};

static const uint32_t *byte_numbers(void)
{
    static uint32_t numbers[256];
    uint32_t x = 0x9E3779B9u;
    for (unsigned i = 0; i < 256 && numbers[255] == 0; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        numbers[i] = x;
    }
    return numbers;
}

/* Calls found() for each anchor of the bytes, in order. Returns 0 if reading fails. A place is no
 * anchor if the hash STEP bytes before it has such zero bits, too: else every place in a run of
 * equal bytes might be an anchor. */
static int scan_anchors(const struct bytes *b, unsigned bits,
                        void (*found)(void *user, uint32_t hash, uint64_t place), void *user)
{
    const uint32_t *const numbers = byte_numbers();
    uint32_t hashes[STEP] = {0};
    const size_t cap = b->size < WINDOW ? (size_t)b->size : WINDOW;
    unsigned char *window = (unsigned char *)resize(NULL, cap, 1);
    int is_read = 1;
    for (uint64_t at = 0; at < b->size && is_read;) {
        const size_t n = b->size - at < cap ? (size_t)(b->size - at) : cap;
        is_read = read_bytes(b, at, window, n);
        for (size_t i = 0; i < n && is_read; i++) {
            uint32_t *const h = &hashes[i % STEP]; /* as WINDOW is a multiple of STEP */
            const uint32_t before = *h;
            *h = (*h << 1) + numbers[window[i]];
            if (*h >> (32 - bits) == 0 && before >> (32 - bits) != 0 &&
                at + i + 1 >= STEP * N_HASHED)
                found(user, *h, at + i + 1);
        }
        at += n;
    }
    free(window);
    return is_read;
}

static struct anchor *look_up(const struct anchors *a, uint32_t hash)
{
    size_t i = (hash * (size_t)2654435761u >> 5) & a->mask;
    while (a->list[i].place && a->list[i].hash != hash) i = (i + 1) & a->mask;
    return &a->list[i];
}

/* Keeps an anchor of the base; of anchors with equal hashes, the first. */
static void keep_anchor(void *user, uint32_t hash, uint64_t place)
{
    struct anchors *a = (struct anchors *)user;
    struct anchor *slot = look_up(a, hash);
    if (slot->place || a->n >= a->mask / 2) return;
    slot->hash = hash;
    slot->place = place;
    a->n++;
}

/* -- shifts -- */

/* Bytes [start, end) of the file are like those that the base has `shift` bytes further on. */
struct shift {
    uint64_t start, end;
    int64_t shift;
};

struct shifts {
    const struct anchors *anchors;
    struct shift *list;
    size_t n, cap;
    /* what may become the next shift */
    struct shift next;
    unsigned n_agreed;
};

/* Handles an anchor of the file, which belongs to the present shift or may begin another shift. */
static void follow_anchor(void *user, uint32_t hash, uint64_t place)
{
    struct shifts *s = (struct shifts *)user;
    const struct anchor *slot = look_up(s->anchors, hash);
    struct shift *const last = s->n ? &s->list[s->n - 1] : NULL;
    if (!slot->place || s->n == MAX_SHIFTS) return;
    const int64_t shift = (int64_t)slot->place - (int64_t)place;
    if (last && last->shift == shift) {
        last->end = place;
        s->n_agreed = 0;
        return;
    }
    if (s->n_agreed == 0 || s->next.shift != shift) {
        s->next.shift = shift;
        s->next.start = place - STEP * N_HASHED;
        s->n_agreed = 0;
    }
    s->next.end = place;
    if (++s->n_agreed < ENOUGH) return;
    *(struct shift *)append(&s->list, &s->n, &s->cap, sizeof *s->list) = s->next;
    s->n_agreed = 0;
}

/* A border between two shifts is searched in at most so many bytes. */
#define MAX_BORDER ((size_t)1 << 16)

/* Sets agrees[i] to 1 if byte at + i of the file is what the base has `shift` bytes further on. */
static void compare_shifted(unsigned char *agrees, const struct bytes *file,
                            const struct bytes *base, uint64_t at, size_t size, int64_t shift)
{
    unsigned char *mine = (unsigned char *)resize(NULL, 2 * size + 1, 1), *other = mine + size;
    const int64_t from = (int64_t)at + shift;
    const size_t skip = from < 0 ? ((uint64_t)-from < size ? (size_t)-from : size) : 0;
    size_t n = size - skip;
    const uint64_t start = (uint64_t)(from + (int64_t)skip);
    memset(agrees, 0, size);
    if (start >= base->size) n = 0;
    else if (n > base->size - start) n = (size_t)(base->size - start);
    if (n && read_bytes(file, at + skip, mine, n) && read_bytes(base, start, other, n))
        for (size_t i = 0; i < n; i++) agrees[skip + i] = mine[i] == other[i];
    free(mine);
}

/* The best place to end one shift and begin the other: most bytes are then equal to the base's. */
static uint64_t find_border(const struct bytes *file, const struct bytes *base,
                            const struct shift *first, const struct shift *second)
{
    uint64_t start = first->end, end = second->start;
    int64_t score = 0, most = 0;
    if (end <= start) return end;
    if (end - start > MAX_BORDER) start = end - MAX_BORDER;
    size_t size = (size_t)(end - start);
    unsigned char *a = (unsigned char *)resize(NULL, 2 * size, 1), *b = a + size;
    compare_shifted(a, file, base, start, size, first->shift);
    compare_shifted(b, file, base, start, size, second->shift);
    size_t best = 0;
    for (size_t i = 0; i < size; i++) {
        score += (int64_t)a[i] - (int64_t)b[i];
        if (score > most) {
            most = score;
            best = i + 1;
        }
    }
    free(a);
    return start + best;
}

/* -- parts -- */

/* Adds bytes [start, end) of the file, with that shift. Bytes outside of the base get no path. */
static void add_shifted(struct parts *p, const struct bytes *base, uint64_t start, uint64_t end,
                        int64_t shift)
{
    uint64_t from = start, to = end;
    if (shift < 0 && from < (uint64_t)-shift)
        from = (uint64_t)-shift < end ? (uint64_t)-shift : end;
    if (to > (uint64_t)((int64_t)base->size - shift)) to = (uint64_t)((int64_t)base->size - shift);
    if (to < from) to = from;
    add_part(p, NULL, NULL, 0, from - start);
    add_part(p, base->path, base->name, (uint64_t)((int64_t)from + shift), to - from);
    add_part(p, NULL, NULL, 0, end - to);
}

/* Makes the parts of the file; none if its only shift is 0, or it is not like the base. Its
 * beginning and its end may be where the base begins and ends. */
static void make_parts(struct parts *p, const struct bytes *file, const struct bytes *base,
                       struct shifts *s)
{
    const struct shift last = {file->size, file->size, (int64_t)base->size - (int64_t)file->size};
    struct shift at = {0, 0, 0};
    uint64_t start = 0;
    if (s->n == 0 && file->size > MAX_BORDER) return;
    if (last.shift == 0 && (s->n == 0 || (s->n == 1 && s->list->shift == 0))) return;
    *(struct shift *)append(&s->list, &s->n, &s->cap, sizeof *s->list) = last;
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t end = find_border(file, base, &at, &s->list[i]);
        if (end > start) add_shifted(p, base, start, end, at.shift);
        if (end > start) start = end;
        at = s->list[i];
    }
    add_shifted(p, base, start, file->size, at.shift);
}

static void find_shifted_parts(struct parts *p, const struct bytes *file, const struct bytes *base)
{
    struct anchors a = {0};
    struct shifts s = {0};
    a.bits = base->size <= MAX_BORDER ? BITS_OF_SMALL : MIN_BITS;
    while (base->size >> a.bits > (uint64_t)1 << (MAX_LOG2_ANCHORS - 1)) a.bits++;
    a.mask = 1023;
    while (a.mask < (base->size >> a.bits) * 4 && a.mask < (size_t)2 << MAX_LOG2_ANCHORS)
        a.mask = a.mask * 2 + 1;
    a.list = (struct anchor *)zeroed(a.mask + 1, sizeof *a.list);
    s.anchors = &a;
    if (scan_anchors(base, a.bits, keep_anchor, &a) &&
        scan_anchors(file, a.bits, follow_anchor, &s))
        make_parts(p, file, base, &s);
    free(a.list);
    free(s.list);
}

static int compare_bytes(const void *a, const void *b)
{
    const struct bytes *x = (const struct bytes *)a, *y = (const struct bytes *)b;
    const int order = strcmp(x->path, y->path);
    return order ? order : strcmp(x->name, y->name);
}

/* The plain bytes of the base that are worth searching, by path and name. To be freed. */
static struct bytes *list_bytes(const lmc_base *base, size_t *n)
{
    struct bytes *list = NULL, b = {NULL, NULL, base->read, base->user, 0, 0, 0};
    size_t cap = 0;
    *n = 0;
    for (b.number = 0; b.number < base->n_files; b.number++) {
        const lmc_file *f = base->get_file(base->user, b.number);
        const lmc_tensor whole = {.name = f->path, .size = f->size};
        if (f->kind != LMC_FILE_REGULAR) continue;
        for (size_t k = 0; k < (f->n_tensors ? f->n_tensors : 1); k++) {
            const lmc_tensor *t = f->n_tensors ? &f->tensors[k] : &whole;
            if (t->size < MIN_SHIFTED_SIZE || (f->n_tensors && !torch_is_description(t))) continue;
            b.path = f->path;
            b.name = t->name;
            b.start = t->offset;
            b.size = t->size;
            *(struct bytes *)append(&list, n, &cap, sizeof *list) = b;
        }
    }
    if (*n) qsort(list, *n, sizeof *list, compare_bytes);
    return list;
}

/* Finds the parts of tensor t of a member, or of a file without tensors, which t is, too. */
static void find_shifts_of(struct parts *p, struct members *m, size_t number, const lmc_tensor *t,
                           const struct bytes *list, size_t n)
{
    const struct member *const member = &m->list[number];
    const struct bytes file = {member->path, t->name, read_member, m, number, t->offset, t->size};
    const struct bytes *base;
    if (member->n_tensors ? !torch_is_description(t) : member->hints->twin != NULL) return;
    if (t->size < MIN_SHIFTED_SIZE || n == 0) return;
    if (m->archive && t->size > MAX_BORDER) return; /* reading means decoding */
    base = (const struct bytes *)bsearch(&file, list, n, sizeof *list, compare_bytes);
    if (!base && m->n == 1 && n == 1 && !member->n_tensors) base = list; /* whatever their names */
    if (!base || (base->size == t->size && t->size <= MAX_BORDER)) return;
    find_shifted_parts(p, &file, base);
}

static int is_searched(const struct members *m, const struct member *member)
{
    return m->archive
               ? lmc_reader_get_file(m->archive->reader, member->number)->kind == LMC_FILE_REGULAR
               : S_ISREG(member->st.st_mode) && !is_dash(member->full);
}

size_t find_shifts(struct members *m, const lmc_base *base, int *code)
{
    size_t n = 0, n_bytes;
    struct bytes *const list = list_bytes(base, &n_bytes);
    *code = CODE_OK;
    for (size_t i = 0; i < m->n && *code == CODE_OK; i++) {
        struct member *const member = &m->list[i];
        const lmc_tensor whole = {.name = member->path, .size = size_of_member(m, member)};
        struct parts p = {NULL, 0, 0};
        size_t at = 0;
        if (!is_searched(m, member)) continue;
        for (size_t k = 0; k < count_hints(member); k++) {
            const size_t before = p.n;
            find_shifts_of(&p, m, i, member->n_tensors ? &member->tensors[k] : &whole, list,
                           n_bytes);
            if (p.n != before) member->hints[k].n_base_parts = p.n - before;
            n += p.n != before;
        }
        member->parts = p.list;
        for (size_t k = 0; at < p.n; k++) /* the list is complete: pointers to it stay valid */
            if (!member->hints[k].base_parts && member->hints[k].n_base_parts) {
                member->hints[k].base_parts = p.list + at;
                at += member->hints[k].n_base_parts;
            }
        *code = m->code;
    }
    free(list);
    return n;
}
