/* SPDX-License-Identifier: MIT */
#include "archive.h"

#include "../../include/lmc_salvage.h"
#include "options.h"

#define STEP ((size_t)64 << 10)
#define DAMAGE_BUDGET ((uint64_t)256 << 20) /* to look for it: no less than is decoded at once */
#define MOST_BLOCKS 1024                    /* that are tried on each side of one that is damaged */

/* A tensor, or bytes of the file before, between or behind them. */
struct damaged_part {
    const lmc_tensor *tensor;
    uint64_t start, end;
};

/* next: a tensor that does not end before `at`, counted up. */
static struct damaged_part find_part(const lmc_file *f, uint64_t at, size_t *next)
{
    struct damaged_part p = {NULL, 0, f->size};
    while (*next < f->n_tensors && f->tensors[*next].offset + f->tensors[*next].size <= at) ++*next;
    if (*next) p.start = f->tensors[*next - 1].offset + f->tensors[*next - 1].size;
    if (*next == f->n_tensors) return p;
    p.end = f->tensors[*next].offset;
    if (p.end > at) return p;
    p.tensor = &f->tensors[*next];
    p.start = p.end;
    p.end += p.tensor->size;
    return p;
}

/* The file that is looked through. */
struct search {
    const struct archive *archive;
    size_t number;
    unsigned char *buffer;
};

/* Where the block lies in the snapshot that has that byte: each has a place of its own. */
static uint64_t place_of_block(const struct search *s, uint64_t at)
{
    uint64_t place, size;
    return lmc_reader_encoded_range(s->archive->reader, s->number, at, 1, &place, &size) == LMC_OK
               ? place
               : UINT64_MAX;
}

/* The first byte behind the block that has byte `at`, or `end`. */
static uint64_t end_of_block(const struct search *s, uint64_t at, uint64_t end)
{
    const uint64_t place = place_of_block(s, at);
    while (at + 1 <
           end) { /* byte `at` is in the block; the one at `end` is not, or not asked for */
        const uint64_t middle = at + (end - at) / 2;
        if (place_of_block(s, middle) == place) at = middle;
        else end = middle;
    }
    return end;
}

/* The first byte from `start` on that is in the block of byte `at`. */
static uint64_t start_of_block(const struct search *s, uint64_t start, uint64_t at)
{
    const uint64_t place = place_of_block(s, at);
    while (start < at) {
        const uint64_t middle = start + (at - start) / 2;
        if (place_of_block(s, middle) == place) at = middle;
        else start = middle + 1;
    }
    return at;
}

/* Without its base nothing is known of a block. */
static int is_damaged(const struct search *s, uint64_t at, uint64_t size, enum lmc_status *status)
{
    *status = read_counted(s->archive, s->number, at, s->buffer, (size_t)size);
    return *status != LMC_OK && *status != LMC_ERR_LIMIT && *status != LMC_ERR_BASE_MISSING;
}

/* All blocks side by side that are damaged, as far as they are in the part; at: a byte of one. */
static void widen(const struct search *s, const struct damaged_part *p, uint64_t at,
                  uint64_t *start, uint64_t *end)
{
    enum lmc_status status;
    *start = start_of_block(s, p->start, at);
    *end = end_of_block(s, at, p->end);
    for (unsigned i = 0;
         i < MOST_BLOCKS && *start > p->start && is_damaged(s, *start - 1, 1, &status); i++)
        *start = start_of_block(s, p->start, *start - 1);
    for (unsigned i = 0; i < MOST_BLOCKS && *end < p->end && is_damaged(s, *end, 1, &status); i++)
        *end = end_of_block(s, *end, p->end);
}

static void describe(const lmc_file *f, const struct damaged_part *p, uint64_t start, uint64_t end,
                     char text[DAMAGE_TEXT])
{
    const uint64_t origin = p->tensor ? p->start : 0;
    const unsigned long long first = (unsigned long long)(start - origin),
                             last = (unsigned long long)(end - 1 - origin);
    const char *const quote = *f->path ? "'" : "", *const path = *f->path ? f->path : "the file";
    if (p->tensor)
        snprintf(text, DAMAGE_TEXT, " (bytes %llu to %llu of the tensor '%.200s'%s%s%.200s%s)",
                 first, last, p->tensor->name, *f->path ? " of " : "", quote, f->path, quote);
    else
        snprintf(text, DAMAGE_TEXT, " (bytes %llu to %llu of %s%.200s%s%s)", first, last, quote,
                 path, quote, f->n_tensors ? ", which are of no tensor" : "");
}

/* Looks for the first bytes from `at` on that cannot be read; 1: text says which they are. */
static int find_damage(const struct archive *a, size_t number, uint64_t at, char text[DAMAGE_TEXT])
{
    const lmc_file *const f = lmc_reader_get_file(a->reader, number);
    struct search s = {a, number, (unsigned char *)resize(NULL, STEP, 1)};
    uint64_t budget = DAMAGE_BUDGET;
    enum lmc_status status;
    int is_found = 0;
    size_t next = 0;
    while (at < f->size && budget && !is_found) {
        const struct damaged_part p = find_part(f, at, &next);
        const uint64_t end = end_of_block(&s, at, p.end - at < STEP ? p.end : at + STEP);
        if (place_of_block(&s, at) == UINT64_MAX) break; /* the reader of a salvage */
        is_found = is_damaged(&s, at, end - at, &status);
        budget -= status == LMC_ERR_LIMIT || end - at > budget ? budget : end - at;
        if (is_found) {
            uint64_t start, behind;
            widen(&s, &p, at, &start, &behind);
            describe(f, &p, start, behind, text);
        }
        at = end;
    }
    free(s.buffer);
    return is_found;
}

/* What tells damage without the base: a block that is coded against it says no more than that. */
static int is_lost(const lmc_salvage_range *range)
{
    return !range->is_end && range->status != LMC_OK && range->status != LMC_ERR_BASE_MISSING;
}

/* The first bytes that are lost, of one part; *why: LMC_OK, or what is the matter with them. Of
 * blocks side by side it is one place. */
static enum lmc_status find_loss(lmc_salvage *salvage, enum lmc_status *why, char text[DAMAGE_TEXT])
{
    lmc_salvage_range range;
    uint64_t start, end;
    size_t next = 0, number;
    enum lmc_status status = lmc_salvage_next(salvage, &range);
    while (status == LMC_OK && !range.is_end && !is_lost(&range))
        status = lmc_salvage_next(salvage, &range);
    if (status != LMC_OK || range.is_end) return status;
    *why = range.status == LMC_ERR_LOST ? LMC_ERR_CORRUPT : range.status;
    number = range.file_number;
    if (number == SIZE_MAX || !lmc_salvage_is_described(salvage, number)) return LMC_OK;
    const lmc_file *f = lmc_reader_get_file(lmc_salvage_reader(salvage), number);
    start = end = range.offset;
    struct damaged_part p = find_part(f, start, &next);
    while (status == LMC_OK && is_lost(&range) && range.file_number == number && end < p.end) {
        end = range.offset + range.size;
        status = lmc_salvage_next(salvage, &range);
    }
    describe(f, &p, start, end < p.end ? end : p.end, text);
    return status;
}

enum lmc_status look_for_damage(struct archive *a, const lmc_base *base, char text[DAMAGE_TEXT])
{
    const lmc_source source = source_of_archive(a);
    lmc_reader_options options = {0};
    lmc_salvage *salvage = NULL;
    lmc_damage damage = {0};
    enum lmc_status status, why = LMC_OK;
    options.parallel = &a->o->parallel;
    options.base = base;
    *text = 0;
    status = lmc_salvage_open(&salvage, &source, &options);
    if (status == LMC_OK) status = find_loss(salvage, &why, text);
    if (status == LMC_OK) status = lmc_salvage_get_damage(salvage, &damage);
    if (status == LMC_OK && why == LMC_OK) {
        const char *what = !damage.has_header                         ? HEADER_DAMAGED
                           : damage.n_sections || damage.n_breaks     ? LISTS_DAMAGED
                           : !damage.has_index || !damage.has_trailer ? INDEX_DAMAGED
                                                                      : NULL;
        if (what) snprintf(text, DAMAGE_TEXT, "%s", what);
        if (what) why = LMC_ERR_CORRUPT;
    }
    lmc_salvage_free(salvage);
    return status == LMC_OK ? why : status;
}

/* " (in the tensor 'w')"; is_behind: " (from byte 7 of the tensor 'w' on)". */
static void describe_start(const lmc_file *f, uint64_t at, int is_behind, char text[DAMAGE_TEXT])
{
    char from[40] = "in ";
    size_t next = 0;
    const struct damaged_part p = find_part(f, at, &next);
    if (p.tensor) at -= p.start;
    if (is_behind) snprintf(from, sizeof from, "from byte %llu of ", (unsigned long long)at);
    if (p.tensor)
        snprintf(text, DAMAGE_TEXT, " (%sthe tensor '%.200s'%s)", from, p.tensor->name,
                 is_behind ? " on" : "");
    else if (*f->path)
        snprintf(text, DAMAGE_TEXT, " (%s'%.200s'%s)", from, f->path, is_behind ? " on" : "");
    else if (is_behind) snprintf(text, DAMAGE_TEXT, " (%sthe file on)", from);
    else *text = 0;
}

int fail_damage(const struct archive *a, enum lmc_status status, size_t number, uint64_t at)
{
    const lmc_base files = files_of_archive(a);
    char text[DAMAGE_TEXT];
    if ((status != LMC_ERR_CHECKSUM && status != LMC_ERR_CORRUPT) ||
        !find_damage(a, number, at, text)) /* blocks that are whole, and not the right ones */
        describe_start(files.get_file(files.user, number), at, 0, text);
    return fail_archive_at(a, status, text);
}

int fail_damage_behind(const struct archive *a, enum lmc_status status, size_t number, uint64_t at)
{
    char text[DAMAGE_TEXT];
    describe_start(lmc_reader_get_file(a->reader, number), at, 1, text);
    return fail_archive_at(a, status, text);
}
