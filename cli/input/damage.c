/* damage.c - which file and tensor of a snapshot is damaged, for messages (archive.h)
 * SPDX-License-Identifier: MIT */
#include "archive.h"

#include "../sys/io.h"

#include "../../include/lmc_salvage.h"
#include "options.h"

#define MOST_READ ((uint64_t)16 << 30) /* if a snapshot restores more, only -t tells the bytes */

/* A tensor, or bytes of the file before, between or behind tensors. */
struct damaged_part {
    const lmc_tensor *tensor;
    uint64_t start, end;
};

/* The part that holds byte `at`. *next: number of the tensor where the search begins; updated. */
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

/* Whether a range is damaged. This is not known of a block that needs a missing base, or too much
 * work. */
static int is_lost(const lmc_salvage_range *range)
{
    return !range->is_end && range->status != LMC_OK && range->status != LMC_ERR_BASE_MISSING &&
           range->status != LMC_ERR_LIMIT;
}

/* What is searched: from byte `at` of file `from` to the end of file `to`. */
struct search {
    size_t from, to;
    uint64_t at;
};

static int is_before(const lmc_salvage_range *range, const struct search *s)
{
    return range->file_number < s->from ||
           (range->file_number == s->from && range->offset + range->size <= s->at);
}

/* Describes the first lost bytes within one part. Adjacent lost blocks are one range. *why: LMC_OK
 * if none are lost, else the reason. */
static enum lmc_status find_loss(lmc_salvage *salvage, const struct search *s, enum lmc_status *why,
                                 char text[DAMAGE_TEXT])
{
    lmc_salvage_range range;
    uint64_t start, end;
    size_t next = 0, number;
    enum lmc_status status = lmc_salvage_next(salvage, &range);
    while (status == LMC_OK && !range.is_end && range.file_number <= s->to &&
           (!is_lost(&range) || is_before(&range, s)))
        status = lmc_salvage_next(salvage, &range);
    if (status != LMC_OK || range.is_end || range.file_number > s->to) return status;
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

static enum lmc_status look_through(const struct archive *a, const lmc_base *base,
                                    const struct search *s, char text[DAMAGE_TEXT])
{
    struct archive own = *a; /* a copy, as its source changes `error` */
    const lmc_source source = source_of_archive(&own);
    const lmc_reader_options options = options_of_reader(a, base);
    lmc_salvage *salvage = NULL;
    lmc_damage damage = {0};
    enum lmc_status status, why = LMC_OK;
    *text = 0;
    status = lmc_salvage_open(&salvage, &source, &options);
    if (status == LMC_OK) status = find_loss(salvage, s, &why, text);
    if (status == LMC_OK) status = lmc_salvage_get_damage(salvage, &damage);
    if (status == LMC_OK && why == LMC_OK && s->to == SIZE_MAX) {
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

enum lmc_status look_for_damage(const struct archive *a, const lmc_base *base,
                                char text[DAMAGE_TEXT])
{
    const struct search all = {0, SIZE_MAX, 0};
    return look_through(a, base, &all, text);
}

/* " (in the tensor 'w')", or " (in the tensor 'w' of 'a/b')"; for bytes in no tensor " (in 'a/b')",
 * or "". */
static void describe_start(const lmc_file *f, uint64_t at, char text[DAMAGE_TEXT])
{
    size_t next = 0;
    const struct damaged_part p = find_part(f, at, &next);
    *text = 0;
    if (p.tensor && *f->path)
        snprintf(text, DAMAGE_TEXT, " (in the tensor '%.200s' of '%.200s')", p.tensor->name,
                 f->path);
    else if (p.tensor) snprintf(text, DAMAGE_TEXT, " (in the tensor '%.200s')", p.tensor->name);
    else if (*f->path) snprintf(text, DAMAGE_TEXT, " (in '%.200s')", f->path);
}

int fail_damage(const struct archive *a, enum lmc_status status, size_t number, uint64_t at)
{
    const lmc_base files = files_of_archive(a);
    const struct search here = {number, number, at};
    char text[DAMAGE_TEXT] = "";
    if (status == LMC_ERR_LIMIT) return fail_work(a);
    if ((status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT) &&
        total_of_files(a->reader) <= MOST_READ)
        (void)look_through(a, NULL, &here, text);
    if (!*text) /* all blocks are intact, but the result is wrong */
        describe_start(files.get_file(files.user, number), at, text);
    return fail_archive_at(a, status, text);
}

int fail_damage_near(const struct archive *a, enum lmc_status status, size_t number, uint64_t at)
{
    const lmc_base files = files_of_archive(a);
    char text[DAMAGE_TEXT];
    if (status == LMC_ERR_LIMIT) return fail_work(a);
    describe_start(files.get_file(files.user, number), at, text);
    return fail_archive_at(a, status, text);
}

int copy_counted(const struct archive *a, size_t file_number, unsigned char *window,
                 struct outlet *out, int is_counted)
{
    const lmc_file *f = lmc_reader_get_file(a->reader, file_number);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        const size_t size = (size_t)(f->size - at < BUFFER_SIZE ? f->size - at : BUFFER_SIZE);
        const enum lmc_status status = read_counted(a, file_number, at, window, size);
        if (status != LMC_OK) return fail_damage(a, status, file_number, at);
        crc = lmc_crc32c(crc, window, size);
        if (outlet_write(out, window, size)) return CODE_ERROR;
        at += size;
        if (is_counted) progress_add(size);
    }
    return f->kind == LMC_FILE_DIRECTORY || crc == f->crc
               ? CODE_OK
               : fail_damage(a, LMC_ERR_CHECKSUM, file_number, 0);
}
