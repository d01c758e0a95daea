/* SPDX-License-Identifier: MIT */
#include "salvage_report.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "../format/hex.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../job/restored_tree.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/report.h"

const char *name_loss(enum lmc_status status)
{
    switch (status) {
    case LMC_ERR_LOST: return "missing";
    case LMC_ERR_BASE_MISSING: return "wants the base";
    case LMC_ERR_BASE_WRONG: return "wants another base";
    case LMC_ERR_READ: return "cannot be read";
    default: return "damaged";
    }
}

/* The bytes of the file that are lost within [start, end), as a list; *n: their number. Lines of
 * the table, if prefix is not NULL. */
static json_t *list_losses(const struct salvage *s, uint64_t start, uint64_t end,
                           enum lmc_dtype dtype, const char *prefix, uint64_t *n, int *wants_base)
{
    json_t *list = (json_t *)check_memory(json_array());
    unsigned bits = lmc_dtype_bits(dtype);
    *n = 0;
    size_t low = 0, high = s->n_losses; /* they ascend: the first that ends behind start */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->losses[middle].end <= start) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low; i < s->n_losses && s->losses[i].start < end; i++) {
        const struct loss *l = &s->losses[i];
        uint64_t from = l->start > start ? l->start : start, to = l->end < end ? l->end : end;
        uint64_t first, last;
        json_t *entry;
        if (from >= to) continue;
        from -= start;
        to -= start;
        *n += to - from;
        *wants_base |= l->status == LMC_ERR_BASE_MISSING;
        first = from / bits * 8 +
                from % bits * 8 /
                    bits; /* the first element that is not whole, and the one behind the last */
        last = to / bits * 8 + (to % bits * 8 + bits - 1) / bits;
        entry = (json_t *)check_memory(json_object());
        set_json_number(entry, "offset", from);
        set_json_number(entry, "size", to - from);
        if (dtype != LMC_AUTO) {
            set_json_number(entry, "first_element", first);
            set_json_number(entry, "elements", last - first);
        }
        set_json(entry, "reason", json_string(name_loss(l->status)));
        if (json_array_append_new(list, entry) != 0) check_memory(NULL);
        if (!prefix || s->json || s->o->verbosity == 0) continue;
        printf("%sbytes %llu to %llu", prefix, (unsigned long long)from,
               (unsigned long long)to - 1);
        if (dtype != LMC_AUTO)
            printf(" (elements %llu to %llu)", (unsigned long long)first,
                   (unsigned long long)last - 1);
        printf(" %s\n", name_loss(l->status));
    }
    return list;
}

static const char *name_state(uint64_t size, uint64_t lost, int confirmed)
{
    return confirmed < 0 ? "WRONG" : lost == 0 ? "intact" : lost < size ? "partly lost" : "lost";
}

static void report_tensor(struct salvage *s, size_t number, const lmc_tensor *t, json_t *tensors)
{
    size_t index = (size_t)(t - lmc_reader_get_file(s->archive.reader, number)->tensors);
    int confirmed = lmc_salvage_confirm(s->salvage, number, index), wants_base = 0;
    json_t *entry = (json_t *)check_memory(json_object()),
           *shape = (json_t *)check_memory(json_array());
    enum lmc_dtype dtype = lmc_dtype_find(t->dtype);
    const char *state;
    uint64_t lost;
    json_t *losses =
        list_losses(s, t->offset, t->offset + t->size, dtype, NULL, &lost, &wants_base);
    state = name_state(t->size, lost, confirmed);
    s->n_tensors++;
    s->n_whole_tensors += (unsigned)(lost == 0 && confirmed >= 0);
    s->n_with_base += (unsigned)wants_base;
    set_json_text(entry, "name", t->name);
    set_json_text(entry, "dtype", t->dtype);
    for (unsigned i = 0; i < t->rank; i++)
        if (json_array_append_new(shape, make_json_number(t->shape[i])) != 0) check_memory(NULL);
    set_json(entry, "shape", shape);
    set_json_number(entry, "offset", t->offset);
    set_json_number(entry, "size", t->size);
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    set_json(entry, "lost", losses);
    if (json_array_append_new(tensors, entry) != 0) check_memory(NULL);
    if (s->json || s->o->verbosity == 0) return;
    printf("    %-12s %14llu  ", state, (unsigned long long)t->size);
    print_name(t->name);
    putchar('\n');
    if (lost && lost < t->size)
        json_decref(list_losses(s, t->offset, t->offset + t->size, dtype, "                 ",
                                &lost, &wants_base));
}

void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size,
                 const char *where)
{
    int is_described = lmc_salvage_is_described(s->salvage, number),
        confirmed = lmc_salvage_confirm(s->salvage, number, SIZE_MAX), wants_base = 0;
    json_t *entry = (json_t *)check_memory(json_object()),
           *tensors = (json_t *)check_memory(json_array());
    uint64_t lost, in_tensors = 0, part;
    json_t *losses = list_losses(s, 0, UINT64_MAX, LMC_AUTO, NULL, &lost, &wants_base);
    const char *state = is_described ? name_state(size, lost, confirmed) : "name lost";
    s->n_files++;
    s->n_whole_files +=
        is_described && file->size != LMC_UNKNOWN_SIZE && lost == 0 && confirmed >= 0;
    s->n_wrong += confirmed < 0;
    s->size += size;
    s->lost += lost;
    s->wants_base |= wants_base;
    if (is_described) set_json_text(entry, "path", file->path);
    set_json(entry, "kind", json_string(file->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    set_json_number(entry, "size", size);
    set_json(entry, "size_is_known", json_boolean(file->size != LMC_UNKNOWN_SIZE));
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    if (where) set_json_text(entry, "recovered_as", where);
    set_json(entry, "lost", losses);
    if (!s->json && s->o->verbosity > 0) {
        printf("  %-14s %14llu  ", state, (unsigned long long)size);
        print_name(is_described ? *file->path ? file->path : "(the file itself)"
                   : where      ? where
                                : "(no name)");
        putchar('\n');
    }
    for (size_t i = 0; i < file->n_tensors; i++)
        report_tensor(s, number, &file->tensors[i], tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        json_decref(list_losses(s, file->tensors[i].offset,
                                file->tensors[i].offset + file->tensors[i].size, LMC_AUTO, NULL,
                                &part, &wants_base));
        in_tensors += part;
    }
    if (!s->json && s->o->verbosity > 0 && lost && file->n_tensors == 0 && lost < size)
        json_decref(
            list_losses(s, 0, UINT64_MAX, LMC_AUTO, "                 ", &part, &wants_base));
    if (lost > in_tensors && file->n_tensors) {
        set_json_number(entry, "lost_outside_tensors", lost - in_tensors);
        if (!s->json && s->o->verbosity > 0)
            printf("    %llu bytes that belong to no tensor are lost, of the file's header "
                   "perhaps; salvage.json has the name, type, shape and place of each tensor\n",
                   (unsigned long long)(lost - in_tensors));
    }
    set_json(entry, "tensors", tensors);
    if (json_array_append_new(s->files, entry) != 0) check_memory(NULL);
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

int write_report(struct salvage *s)
{
    const lmc_damage *d = &s->damage;
    lmc_file file;
    char *text, identity[2 * LMC_IDENTITY_SIZE + 1];
    size_t size;
    int code;
    set_json_text(s->report, "file", s->archive.name);
    set_json(s->report, "everything_recovered", json_boolean(is_recovered(s)));
    set_json(s->report, "file_is_whole", json_boolean(is_undamaged(s)));
    set_json(s->report, "header_intact", json_boolean(d->has_header));
    set_json(s->report, "index_intact", json_boolean(d->has_index));
    set_json(s->report, "trailer_intact", json_boolean(d->has_trailer));
    set_json(s->report, "end_is_known", json_boolean(d->is_complete));
    set_json_number(s->report, "breaks", d->n_breaks);
    set_json_number(s->report, "bytes", s->size);
    set_json_number(s->report, "bytes_lost", s->lost);
    if (s->archive.chain_depth) {
        format_identity(identity, s->archive.wanted);
        set_json(s->report, "base", json_string(identity));
    }
    set_json_number(s->report, "tensors_that_want_the_base", s->n_with_base);
    json_incref(s->files);
    json_incref(s->unplaced);
    set_json(s->report, "files", s->files);
    set_json(s->report, "unplaced", s->unplaced);
    text = (char *)check_memory(json_dumps(s->report, JSON_INDENT(1)));
    size = strlen(text);
    text[size] = '\n';
    memset(&file, 0, sizeof file);
    file.path = "salvage.json";
    code = begin_tree_file(&s->tree, &file);
    if (code == CODE_OK) {
        int error = outlet_write(&s->tree.outlet, text, size + 1);
        code = error ? fail_errno(file.path, error, "cannot write it")
                     : end_tree_file(&s->tree, &file);
    }
    if (code == CODE_OK && s->json) fwrite(text, 1, size + 1, stdout);
    free(text);
    return code;
}

int conclude(const struct salvage *s)
{
    const char *name = s->archive.name, *target = s->tree.target;
    char wanted[2 * SHORT_IDENTITY + 1];
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
        format_hex(wanted, s->archive.wanted, SHORT_IDENTITY);
        return fail(CODE_BASE, name,
                    "%llu of %llu bytes are not recovered; with its base%s%s, named by --base, "
                    "%llu tensors more might come back; what did is in %s",
                    (unsigned long long)s->lost, (unsigned long long)s->size,
                    s->archive.chain_depth ? " " : "", s->archive.chain_depth ? wanted : "",
                    (unsigned long long)s->n_with_base, target);
    }
    return fail(CODE_CORRUPT, name,
                "%llu of %llu bytes are lost, %llu of %llu tensors and %llu of %llu files intact; "
                "what was recovered is in %s",
                (unsigned long long)s->lost, (unsigned long long)s->size,
                (unsigned long long)s->n_whole_tensors, (unsigned long long)s->n_tensors,
                (unsigned long long)s->n_whole_files, (unsigned long long)s->n_files, target);
}
