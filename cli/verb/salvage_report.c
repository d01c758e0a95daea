/* SPDX-License-Identifier: MIT */
#include "salvage_report.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "../format/hex.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/stand_in.h"
#include "../job/restored_tree.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "../sys/search.h"
#include "../sys/temporary.h"

const char *name_loss(enum lmc_status status)
{
    switch (status) {
    case LMC_ERR_LOST: return "missing";
    case LMC_ERR_BASE_MISSING: return "payload intact; content needs the base";
    case LMC_ERR_BASE_WRONG: return "payload intact; content needs another base";
    case LMC_ERR_READ: return "cannot be read";
    default: return "damaged";
    }
}

/* A loss within a range of the file: bytes from its start on, and elements. */
struct lost_part {
    uint64_t from, to, first, last;
    enum lmc_status status;
};

/* The first loss that ends behind start: they ascend. */
static size_t find_loss(const struct salvage *s, uint64_t start)
{
    size_t low;
    FIND_FIRST(low, s->n_losses, s->losses[low].end <= start);
    return low;
}

/* Of loss number *i what lies within [start, end), and on to the next; 0: there is no more. */
static int next_lost_part(const struct salvage *s, size_t *i, uint64_t start, uint64_t end,
                          enum lmc_dtype dtype, struct lost_part *part)
{
    const unsigned bits = lmc_dtype_bits(dtype);
    const struct loss *l;
    if (start >= end || *i >= s->n_losses || s->losses[*i].start >= end) return 0;
    l = &s->losses[(*i)++];
    part->from = (l->start > start ? l->start : start) - start;
    part->to = (l->end < end ? l->end : end) - start;
    /* the first element that is not whole, and the one behind the last */
    part->first = part->from / bits * 8 + part->from % bits * 8 / bits;
    part->last = part->to / bits * 8 + (part->to % bits * 8 + bits - 1) / bits;
    part->status = l->status;
    return 1;
}

/* How many bytes are lost within [start, end). */
static uint64_t count_lost(const struct salvage *s, uint64_t start, uint64_t end, int *wants_base)
{
    struct lost_part part;
    uint64_t n = 0;
    for (size_t i = find_loss(s, start); next_lost_part(s, &i, start, end, LMC_AUTO, &part);) {
        n += part.to - part.from;
        *wants_base |= part.status == LMC_ERR_BASE_MISSING;
    }
    return n;
}

static void put_losses(struct salvage *s, uint64_t start, uint64_t end, enum lmc_dtype dtype)
{
    struct lost_part part;
    begin_json(&s->list, "lost", '[');
    for (size_t i = find_loss(s, start); next_lost_part(s, &i, start, end, dtype, &part);) {
        json_t *entry = (json_t *)check_memory(json_object());
        set_json_number(entry, "offset", part.from);
        set_json_number(entry, "size", part.to - part.from);
        if (dtype != LMC_AUTO) {
            set_json_number(entry, "first_element", part.first);
            set_json_number(entry, "elements", part.last - part.first);
        }
        set_json(entry, "reason", json_string(name_loss(part.status)));
        put_json(&s->list, NULL, entry);
    }
    end_json(&s->list, ']');
}

/* Lines of the table. */
static void print_losses(const struct salvage *s, uint64_t start, uint64_t end,
                         enum lmc_dtype dtype)
{
    struct lost_part part;
    for (size_t i = find_loss(s, start); next_lost_part(s, &i, start, end, dtype, &part);) {
        printf("                 bytes %llu to %llu", (unsigned long long)part.from,
               (unsigned long long)part.to - 1);
        if (dtype != LMC_AUTO)
            printf(" (elements %llu to %llu)", (unsigned long long)part.first,
                   (unsigned long long)part.last - 1);
        printf(": %s\n", name_loss(part.status));
    }
}

static int has_table(const struct salvage *s) { return !s->json && s->o->verbosity > 0; }

static const char *name_state(uint64_t size, uint64_t lost, int confirmed)
{
    return confirmed < 0 ? "WRONG" : lost == 0 ? "intact" : lost < size ? "partly lost" : "lost";
}

static void report_tensor(struct salvage *s, size_t number, const lmc_tensor *t)
{
    const uint64_t end = t->offset + t->size;
    const enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
    size_t index = (size_t)(t - lmc_reader_get_file(s->archive.reader, number)->tensors);
    int confirmed = lmc_salvage_confirm(s->salvage, number, index), wants_base = 0;
    const uint64_t lost = count_lost(s, t->offset, end, &wants_base);
    const char *state = name_state(t->size, lost, confirmed);
    json_t *entry = make_json_layout(t->name, t->dtype, t->rank, t->shape, NULL, t->offset);
    s->n_tensors++;
    s->n_whole_tensors += (unsigned)(lost == 0 && confirmed >= 0);
    s->n_with_base += (unsigned)wants_base;
    set_json_number(entry, "size", t->size);
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    begin_json(&s->list, NULL, '{');
    put_json_members(&s->list, entry);
    put_losses(s, t->offset, end, dtype);
    end_json(&s->list, '}');
    if (!has_table(s)) return;
    printf("    %-12s %14llu  ", state, (unsigned long long)t->size);
    print_name(t->name);
    putchar('\n');
    if (lost && lost < t->size) print_losses(s, t->offset, end, dtype);
}

void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size,
                 const char *where)
{
    int is_described = lmc_salvage_is_described(s->salvage, number),
        confirmed = lmc_salvage_confirm(s->salvage, number, SIZE_MAX), wants_base = 0, ignored = 0;
    json_t *entry = (json_t *)check_memory(json_object());
    const uint64_t lost = count_lost(s, 0, UINT64_MAX, &wants_base);
    const char *state = is_described ? name_state(size, lost, confirmed) : "name lost";
    uint64_t outside = lost;
    s->n_files++;
    s->n_whole_files +=
        is_described && file->size != LMC_UNKNOWN_SIZE && lost == 0 && confirmed >= 0;
    s->n_wrong += confirmed < 0;
    s->size += size;
    s->lost += lost;
    s->wants_base |= wants_base;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        outside -= count_lost(s, t->offset, t->offset + t->size, &ignored);
    }
    if (is_described) set_json_text(entry, "path", file->path);
    set_json(entry, "kind", json_string(file->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    set_json_number(entry, "size", size);
    set_json(entry, "size_is_known", json_boolean(file->size != LMC_UNKNOWN_SIZE));
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    if (where) set_json_text(entry, "recovered_as", where);
    begin_json(&s->list, NULL, '{');
    put_json_members(&s->list, entry);
    put_losses(s, 0, UINT64_MAX, LMC_AUTO);
    if (outside && file->n_tensors)
        put_json(&s->list, "lost_outside_tensors", make_json_number(outside));
    if (has_table(s)) {
        printf("  %-14s %14llu  ", state, (unsigned long long)size);
        print_name(is_described ? *file->path ? file->path : "(the file itself)"
                   : where      ? where
                                : "(no name)");
        putchar('\n');
    }
    begin_json(&s->list, "tensors", '[');
    for (size_t i = 0; i < file->n_tensors; i++) report_tensor(s, number, &file->tensors[i]);
    end_json(&s->list, ']');
    end_json(&s->list, '}');
    if (!has_table(s)) return;
    if (lost && file->n_tensors == 0 && lost < size) print_losses(s, 0, UINT64_MAX, LMC_AUTO);
    if (outside && file->n_tensors)
        printf("    %llu bytes that belong to no tensor are lost, of the file's header perhaps; "
               "salvage.json has the name, type, shape and place of each tensor\n",
               (unsigned long long)outside);
}

static int is_recovered(const struct salvage *s)
{
    return s->lost == 0 && s->n_wrong == 0 && s->n_unplaced == 0 &&
           s->n_whole_files == s->n_files && s->damage.is_complete;
}

static int is_undamaged(const struct salvage *s)
{
    const lmc_damage *d = &s->damage;
    return is_recovered(s) && d->has_header && d->has_index && d->has_trailer && d->n_breaks == 0 &&
           d->n_sections == 0;
}

/* -- salvage.json: the lists go to a scratch file, as what stands before them is known at the end
 * -- */

static int write_to_scratch(void *user, const void *data, size_t size)
{
    return write_full(((const struct salvage *)user)->scratch, data, size);
}

int begin_report(struct salvage *s)
{
    const int code = open_scratch(s->tree.target, &s->scratch);
    init_json_writer(&s->list, write_to_scratch, s, JSON_INDENT(1));
    s->list.depth = 1; /* within the object that write_report() writes, behind other members */
    s->list.is_first = 0;
    begin_json(&s->list, "files", '[');
    return code;
}

void begin_unplaced(struct salvage *s)
{
    end_json(&s->list, ']');
    begin_json(&s->list, "unplaced", '[');
}

static int write_to_report(void *user, const void *data, size_t size)
{
    struct salvage *const s = (struct salvage *)user;
    if (s->json) fwrite(data, 1, size, stdout);
    return outlet_write(&s->tree.outlet, data, size);
}

/* What stands before the lists. */
static json_t *make_json_summary(const struct salvage *s)
{
    const lmc_damage *d = &s->damage;
    json_t *object = (json_t *)check_memory(json_object());
    set_json_text(object, "file", s->archive.name);
    set_json(object, "everything_recovered", json_boolean(is_recovered(s)));
    set_json(object, "file_is_whole", json_boolean(is_undamaged(s)));
    set_json(object, "header_intact", json_boolean(d->has_header));
    set_json(object, "index_intact", json_boolean(d->has_index));
    set_json(object, "trailer_intact", json_boolean(d->has_trailer));
    set_json(object, "end_is_known", json_boolean(d->is_complete));
    set_json_number(object, "breaks", d->n_breaks);
    set_json_number(object, "bytes", s->size);
    set_json_number(object, "bytes_lost", s->lost);
    if (s->archive.is_delta) set_json_fingerprint(object, "base", s->archive.wanted);
    set_json_number(object, "tensors_that_want_the_base", s->n_with_base);
    return object;
}

/* The object that is open gets the lists; 0 or errno. */
static int copy_scratch(const struct salvage *s, struct json_writer *w)
{
    unsigned char buffer[1 << 14];
    size_t got = sizeof buffer;
    int error = finish_json(w);
    if (!error && lseek(s->scratch, 0, SEEK_SET) < 0) error = errno;
    while (!error && got == sizeof buffer) {
        error = read_full(s->scratch, buffer, sizeof buffer, &got);
        if (!error) error = w->write(w->user, buffer, got);
    }
    return error;
}

int write_report(struct salvage *s)
{
    struct json_writer w;
    lmc_file file;
    int code, error;
    end_json(&s->list, ']');
    error = finish_json(&s->list);
    if (error) return fail_replica(error);
    memset(&file, 0, sizeof file);
    file.path = "salvage.json";
    code = begin_tree_file(&s->tree, &file);
    if (code != CODE_OK) return code;
    init_json_writer(&w, write_to_report, s, JSON_INDENT(1));
    begin_json(&w, NULL, '{');
    put_json_members(&w, make_json_summary(s));
    error = copy_scratch(s, &w);
    end_json(&w, '}');
    if (!error) error = finish_json(&w);
    if (!error) error = w.write(w.user, "\n", 1);
    return error ? fail_errno(file.path, error, "cannot write it") : end_tree_file(&s->tree, &file);
}

int conclude(const struct salvage *s)
{
    const char *name = s->archive.name, *target = s->tree.target;
    char wanted[2 * SHORT_FINGERPRINT + 1];
    if (is_recovered(s)) {
        if (s->o->verbosity > 0 && is_undamaged(s))
            say(name, "is whole; its files are in %s", target);
        else if (s->o->verbosity > 0)
            say(name,
                "is damaged, but nothing is lost: all its files are in %s; compress them anew",
                target);
        return CODE_OK;
    }
    if (s->n_wrong)
        say(name,
            "%llu file%s with bytes that were not in it when it was compressed: do not trust what "
            "is marked WRONG",
            (unsigned long long)s->n_wrong, s->n_wrong == 1 ? "" : "s");
    if (s->n_unplaced)
        say(name, "%llu blocks whose place is not known are in %s/unplaced",
            (unsigned long long)s->n_unplaced, target);
    if (!s->damage.is_complete)
        say(name, "the index is lost: whether more files followed is not known");
    if (s->wants_base) {
        format_hex(wanted, s->archive.wanted, SHORT_FINGERPRINT);
        return fail(CODE_BASE, name,
                    "%llu of %llu bytes are not recovered; with its base%s%s, named by --base, "
                    "%llu tensors more might come back; what did is in %s",
                    (unsigned long long)s->lost, (unsigned long long)s->size,
                    s->archive.is_delta ? " " : "", s->archive.is_delta ? wanted : "",
                    (unsigned long long)s->n_with_base, target);
    }
    return fail(CODE_CORRUPT, name,
                "%llu of %llu bytes are lost, %llu of %llu tensors and %llu of %llu files intact; "
                "what was recovered is in %s",
                (unsigned long long)s->lost, (unsigned long long)s->size,
                (unsigned long long)s->n_whole_tensors, (unsigned long long)s->n_tensors,
                (unsigned long long)s->n_whole_files, (unsigned long long)s->n_files, target);
}
