/* SPDX-License-Identifier: MIT */
#include "shifts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "members.h"
#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"

/* Less is not worth the look. */
#define MIN_SHIFTED_SIZE ((uint64_t)4096)
#define WINDOW ((size_t)1 << 20)
/* What the hash of a place is of: so many bytes, so far apart. */
enum { STEP = 4, N_HASHED = 32 };
/* Anchors: one of 2^bits places has one; at most 2^20 are kept. */
enum { MIN_BITS = 7, MAX_LOG2_ANCHORS = 20 };
/* So many anchors in a row must agree before they are believed. */
enum { ENOUGH = 3 };
/* A file of more shifts than this is not like the base. */
#define MAX_SHIFTS ((size_t)1 << 16)

/* Bytes of a file: of the base, or of a member. */
struct bytes {
    enum lmc_status (*read)(void *user, size_t number, uint64_t offset, void *dst, size_t size);
    void *user;
    size_t number;
    uint64_t offset, size; /* the range */
};

struct anchor {
    uint32_t hash;
    uint64_t place; /* behind its last byte, in the range; 0: none */
};

struct anchors {
    struct anchor *list; /* open addressing */
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

/* Calls found() for each anchor of the bytes, in order. Returns LMC_OK, or what reading or found()
 * has returned. In a stretch of equal bytes every place or none has one: those whose neighbour of
 * the same remainder has one are none. */
static enum lmc_status scan_anchors(const struct bytes *b, unsigned bits,
                                    void (*found)(void *user, uint32_t hash, uint64_t place),
                                    void *user)
{
    const uint32_t *const numbers = byte_numbers();
    uint32_t hashes[STEP] = {0};
    unsigned char *window = (unsigned char *)resize(NULL, WINDOW, 1);
    enum lmc_status status = LMC_OK;
    for (uint64_t at = 0; at < b->size && status == LMC_OK;) {
        const size_t n = b->size - at < WINDOW ? (size_t)(b->size - at) : WINDOW;
        status = b->read(b->user, b->number, b->offset + at, window, n);
        for (size_t i = 0; i < n && status == LMC_OK; i++) {
            uint32_t *const h = &hashes[i % STEP]; /* WINDOW is a multiple */
            const uint32_t before = *h;
            *h = (*h << 1) + numbers[window[i]];
            if (*h >> (32 - bits) == 0 && before >> (32 - bits) != 0 &&
                at + i + 1 >= STEP * N_HASHED)
                found(user, *h, at + i + 1);
        }
        at += n;
    }
    free(window);
    return status;
}

static struct anchor *look_up(const struct anchors *a, uint32_t hash)
{
    size_t i = (hash * (size_t)2654435761u >> 5) & a->mask;
    while (a->list[i].place && a->list[i].hash != hash) i = (i + 1) & a->mask;
    return &a->list[i];
}

/* Of equal ones the first stays. */
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

/* From `start` of the file on, it has what the base has `shift` bytes further on. */
struct shift {
    uint64_t start, end;
    int64_t shift;
};

struct shifts {
    const struct anchors *anchors;
    struct shift *list;
    size_t n, room;
    /* what may become the next one */
    struct shift next;
    unsigned n_agreed;
};

static void add_shift(struct shifts *s)
{
    s->list = (struct shift *)grow(s->list, s->n, &s->room, sizeof *s->list);
    s->list[s->n++] = s->next;
}

/* An anchor of the file: it is of the shift at hand, or tells of another one. */
static void follow_anchor(void *user, uint32_t hash, uint64_t place)
{
    struct shifts *s = (struct shifts *)user;
    const struct anchor *slot = look_up(s->anchors, hash);
    struct shift *const last = s->n ? &s->list[s->n - 1] : NULL;
    int64_t shift;
    if (!slot->place || s->n == MAX_SHIFTS) return;
    shift = (int64_t)(slot->place - place);
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
    add_shift(s);
    s->n_agreed = 0;
}

/* Bytes that a border is looked for in. */
#define MAX_BORDER ((size_t)1 << 16)

static int read_bytes(const struct bytes *b, uint64_t at, void *dst, size_t size)
{
    return b->read(b->user, b->number, b->offset + at, dst, size) == LMC_OK;
}

/* How many of the size bytes at `at` of the file agree with the base at each place: agrees[i] is
 * set where byte i does. Nothing does where the base has none. */
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

/* Between what is known of two shifts the border is where most bytes agree: those before it by the
 * first, those behind it by the second. */
static uint64_t find_border(const struct bytes *file, const struct bytes *base,
                            const struct shift *first, const struct shift *second)
{
    uint64_t start = first->end, end = second->start;
    unsigned char *a, *b;
    size_t size, best;
    int64_t score = 0, most = 0;
    if (end <= start) return end;
    if (end - start > MAX_BORDER) start = end - MAX_BORDER;
    size = (size_t)(end - start);
    a = (unsigned char *)resize(NULL, 2 * size, 1);
    b = a + size;
    compare_shifted(a, file, base, start, size, first->shift);
    compare_shifted(b, file, base, start, size, second->shift);
    best = 0;
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

static void add_part(lmc_base_part **parts, size_t *n, const lmc_base_part *item, int64_t from,
                     uint64_t size)
{
    lmc_base_part *part;
    if (size == 0) return;
    *parts = (lmc_base_part *)resize(*parts, *n + 1, sizeof **parts);
    part = &(*parts)[(*n)++];
    *part = *item;
    if (from < 0) part->path = part->name = NULL;
    part->offset = from < 0 ? 0 : (uint64_t)from;
    part->size = size;
}

/* What lies within the base of [start, end) of the file, by that shift; around it, nothing. */
static void add_shifted(lmc_base_part **parts, size_t *n, const lmc_base_part *item,
                        uint64_t base_size, uint64_t start, uint64_t end, int64_t shift)
{
    uint64_t from = start, to = end;
    if (shift < 0 && from < (uint64_t)-shift)
        from = (uint64_t)-shift < end ? (uint64_t)-shift : end;
    if (to > (uint64_t)((int64_t)base_size - shift)) to = (uint64_t)((int64_t)base_size - shift);
    if (to < from) to = from;
    add_part(parts, n, item, -1, from - start);
    add_part(parts, n, item, (int64_t)from + shift, to - from);
    add_part(parts, n, item, -1, end - to);
}

/* The parts of the file; item: of the base. NULL: it stands where it stands there, or is not like
 * it. */
static lmc_base_part *make_parts(const struct bytes *file, const struct bytes *base,
                                 const struct shifts *s, const lmc_base_part *item, size_t *n)
{
    lmc_base_part *parts = NULL;
    uint64_t start = 0;
    *n = 0;
    if (s->n == 0 || (s->n == 1 && s->list->shift == 0)) return NULL;
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t end =
            i + 1 < s->n ? find_border(file, base, &s->list[i], &s->list[i + 1]) : file->size;
        if (end <= start) continue;
        if (i == 0 && s->list->shift != 0) { /* its beginning may stand where it stood */
            const struct shift none = {0, 0, 0};
            start = find_border(file, base, &none, s->list);
            add_shifted(&parts, n, item, base->size, 0, start, 0);
        }
        add_shifted(&parts, n, item, base->size, start, end, s->list[i].shift);
        start = end;
    }
    return parts;
}

static unsigned choose_bits(uint64_t size)
{
    unsigned bits = MIN_BITS;
    while (size >> bits > (uint64_t)1 << (MAX_LOG2_ANCHORS - 1)) bits++;
    return bits;
}

static lmc_base_part *find_shifted_parts(const struct bytes *file, const struct bytes *base,
                                         const lmc_base_part *item, size_t *n)
{
    struct anchors a;
    struct shifts s;
    lmc_base_part *parts = NULL;
    memset(&a, 0, sizeof a);
    memset(&s, 0, sizeof s);
    *n = 0;
    a.bits = choose_bits(base->size);
    a.mask = 1023;
    while (a.mask < (base->size >> a.bits) * 4 && a.mask < (size_t)2 << MAX_LOG2_ANCHORS)
        a.mask = a.mask * 2 + 1;
    a.list = (struct anchor *)resize(NULL, a.mask + 1, sizeof *a.list);
    memset(a.list, 0, (a.mask + 1) * sizeof *a.list);
    s.anchors = &a;
    if (scan_anchors(base, a.bits, keep_anchor, &a) == LMC_OK &&
        scan_anchors(file, a.bits, follow_anchor, &s) == LMC_OK)
        parts = make_parts(file, base, &s, item, n);
    free(a.list);
    free(s.list);
    return parts;
}

/* -- members -- */

/* The base's file of that path, or its only one if the member is alone. */
static const lmc_file *find_base_file(const lmc_base *base, const struct members *m,
                                      const struct member *member, size_t *number)
{
    for (size_t i = 0; i < base->n_files; i++) {
        const lmc_file *f = base->get_file(base->user, i);
        *number = i;
        if (f->kind == LMC_FILE_REGULAR &&
            (strcmp(f->path, member->path) == 0 || (m->n == 1 && base->n_files == 1)))
            return f;
    }
    return NULL;
}

static size_t find_shifts_of_file(struct member *member, const lmc_file *f, struct bytes *mine,
                                  struct bytes *other)
{
    lmc_base_part item;
    memset(&item, 0, sizeof item);
    item.path = item.name = f->path;
    mine->offset = other->offset = 0;
    mine->size = (uint64_t)member->st.st_size;
    other->size = f->size;
    if (mine->size < MIN_SHIFTED_SIZE || other->size < MIN_SHIFTED_SIZE) return 0;
    member->parts = find_shifted_parts(mine, other, &item, &member->n_parts);
    return member->n_parts != 0;
}

static const lmc_tensor *find_bytes(const lmc_file *f, const char *name)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0 && strcmp(f->tensors[i].dtype, "BYTES") == 0)
            return &f->tensors[i];
    return NULL;
}

/* "@data.pkl" and such: few. */
static size_t find_shifts_of_tensors(struct members *m, struct member *member, const lmc_file *f,
                                     struct bytes *mine, struct bytes *other)
{
    size_t n = 0;
    for (size_t i = 0; i < member->n_tensors; i++) {
        lmc_tensor *const t = &member->tensors[i];
        const lmc_tensor *const u =
            t->name[0] == '@' && strcmp(t->dtype, "BYTES") == 0 ? find_bytes(f, t->name) : NULL;
        lmc_base_part item, *parts;
        size_t n_parts;
        if (!u) continue;
        memset(&item, 0, sizeof item);
        item.path = f->path;
        item.name = u->name;
        mine->offset = t->offset;
        mine->size = t->size;
        other->offset = u->offset;
        other->size = u->size;
        parts = find_shifted_parts(mine, other, &item, &n_parts);
        if (!n_parts) continue;
        t->base_parts = parts;
        t->n_base_parts = n_parts;
        m->shifted =
            (lmc_base_part **)resize((void *)m->shifted, m->n_shifted + 1, sizeof *m->shifted);
        m->shifted[m->n_shifted++] = parts;
        n++;
    }
    return n;
}

size_t find_shifts(struct members *m, const lmc_base *base, int *code)
{
    struct bytes mine, other;
    size_t n = 0;
    *code = CODE_OK;
    mine.read = read_member;
    mine.user = m;
    other.read = base->read;
    other.user = base->user;
    for (size_t i = 0; i < m->n && *code == CODE_OK; i++) {
        struct member *const member = &m->list[i];
        const lmc_file *const f =
            !m->archive && S_ISREG(member->st.st_mode) && !is_dash(member->full)
                ? find_base_file(base, m, member, &other.number)
                : NULL;
        mine.number = i;
        if (!f || member->whole.twin) continue;
        if (member->n_tensors == 0 && f->n_tensors == 0)
            n += find_shifts_of_file(member, f, &mine, &other);
        else n += find_shifts_of_tensors(m, member, f, &mine, &other);
        *code = m->code;
    }
    return n;
}
