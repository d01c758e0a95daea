/* salvage.c - lmc salvage: what is intact in a damaged snapshot
 * SPDX-License-Identifier: MIT
 *
 * The output is a directory. whole/ has files without losses. partial/ has files with losses, which
 * read as zeros. unnamed/ has contents of files whose names and sizes are lost. unplaced/ has
 * single blocks whose place in their file is unknown, too. salvage.json lists all losses, so that
 * nobody takes the zeros for data.
 */
#include "verbs.h"

#include <sys/types.h>

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/links.h"
#include "../job/restored_tree.h"
#include "../sys/tree.h"
#include "../sys/temporary.h"

struct loss {
    uint64_t start, end;
    enum lmc_status status;
};

struct salvage {
    const struct options *o;
    struct archive archive;
    lmc_salvage *salvage;      /* owns archive.reader */
    struct restored_tree tree; /* of the output */
    lmc_damage damage;
    FILE *report;            /* salvage.json; NULL: it is not open */
    struct json_writer list; /* writes to `report` */
    struct loss *losses;     /* of the present file */
    size_t n_losses, cap;
    uint64_t got; /* recovered bytes of the present file */
    uint64_t n_files, n_whole_files, n_tensors, n_whole_tensors, n_with_base, n_unplaced, size,
        lost, undecoded, n_wrong; /* undecoded: those of the lost that may be intact */
    int wants_base;
};

/* -- what is reported: the table, salvage.json, the last message -- */

static const char *name_loss(enum lmc_status status)
{
    switch (status) {
    case LMC_ERR_LOST: return "missing";
    case LMC_ERR_BASE_MISSING: return "payload intact; content needs the base";
    case LMC_ERR_BASE_WRONG: return "payload intact; content needs another base";
    case LMC_ERR_LIMIT: return "not decoded, as that exceeds a limit of work";
    case LMC_ERR_READ: return "cannot be read";
    default: return "damaged";
    }
}

/* A loss in a range of the file: bytes [from, to) and elements [first, last) of the range. */
struct lost_part {
    uint64_t from, to, first, last;
    enum lmc_status status;
};

/* The first loss that ends behind start. Losses are in ascending order. */
static size_t find_loss(const struct salvage *s, uint64_t start)
{
    size_t low;
    FIND_FIRST(low, s->n_losses, s->losses[low].end <= start);
    return low;
}

/* The part of loss *i that is within [start, end). Increments *i. 0: there are no more. */
static int next_lost_part(const struct salvage *s, size_t *i, uint64_t start, uint64_t end,
                          enum lmc_dtype dtype, struct lost_part *part)
{
    const unsigned bits = lmc_dtype_bits(dtype);
    if (start >= end || *i >= s->n_losses || s->losses[*i].start >= end) return 0;
    const struct loss *l = &s->losses[(*i)++];
    part->from = (l->start > start ? l->start : start) - start;
    part->to = (l->end < end ? l->end : end) - start;
    /* the first lost element, and the one behind the last */
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

/* Writes losses to the JSON list and, if is_printed, to the table. */
static void put_losses(struct salvage *s, uint64_t start, uint64_t end, enum lmc_dtype dtype,
                       int is_printed)
{
    struct lost_part part;
    begin_json(&s->list, "lost", '[');
    for (size_t i = find_loss(s, start); next_lost_part(s, &i, start, end, dtype, &part);) {
        begin_json(&s->list, NULL, '{');
        put_json_number(&s->list, "offset", part.from);
        put_json_number(&s->list, "size", part.to - part.from);
        if (is_printed)
            printf("                 bytes %llu to %llu", (unsigned long long)part.from,
                   (unsigned long long)part.to - 1);
        if (dtype != LMC_AUTO) {
            put_json_number(&s->list, "first_element", part.first);
            put_json_number(&s->list, "elements", part.last - part.first);
            if (is_printed)
                printf(" (elements %llu to %llu)", (unsigned long long)part.first,
                       (unsigned long long)part.last - 1);
        }
        put_json(&s->list, "reason", json_string(name_loss(part.status)));
        end_json(&s->list, '}');
        if (is_printed) printf(": %s\n", name_loss(part.status));
    }
    end_json(&s->list, ']');
}

static int has_table(const struct salvage *s) { return !s->o->json && s->o->verbosity > 0; }

static void print_row(const struct salvage *s, int indent, const char *state, uint64_t size,
                      const char *name)
{
    if (has_table(s))
        print("%*s%-*s %14llu  %s\n", indent, "", 16 - indent, state, (unsigned long long)size,
              name);
}

static const char *name_state(uint64_t size, uint64_t lost, enum lmc_status confirmed)
{
    return confirmed == LMC_ERR_CHECKSUM ? "WRONG"
           : lost == 0                   ? "intact"
           : lost < size                 ? "partly lost"
                                         : "lost";
}

static void report_tensor(struct salvage *s, size_t number, const lmc_tensor *t)
{
    const uint64_t end = t->offset + t->size;
    size_t index = (size_t)(t - lmc_reader_get_file(s->archive.reader, number)->tensors);
    const enum lmc_status confirmed = lmc_salvage_confirm(s->salvage, number, index);
    int wants_base = 0;
    const uint64_t lost = count_lost(s, t->offset, end, &wants_base);
    const char *state = name_state(t->size, lost, confirmed);
    s->n_tensors++;
    s->n_whole_tensors += (unsigned)(lost == 0 && confirmed != LMC_ERR_CHECKSUM);
    s->n_with_base += (unsigned)wants_base;
    print_row(s, 4, state, t->size, t->name);
    begin_json(&s->list, NULL, '{');
    put_json_layout(&s->list, t->name, t->dtype, t->rank, t->shape, NULL, t->offset);
    put_json_number(&s->list, "size", t->size);
    put_json(&s->list, "state", json_string(state));
    put_json(&s->list, "confirmed", json_boolean(confirmed == LMC_OK));
    put_losses(s, t->offset, end, lmc_dtype_find(t->dtype), has_table(s) && lost && lost < t->size);
    end_json(&s->list, '}');
}

/* where: the path, below the output, of the recovered bytes of the file; NULL: there are none. */
static void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size,
                        const char *where)
{
    const enum lmc_status confirmed = lmc_salvage_confirm(s->salvage, number, SIZE_MAX);
    int is_described = lmc_salvage_is_described(s->salvage, number), wants_base = 0, ignored = 0;
    const uint64_t lost = count_lost(s, 0, UINT64_MAX, &wants_base);
    const char *state = is_described ? name_state(size, lost, confirmed) : "name lost";
    uint64_t outside = lost;
    s->n_files++;
    s->n_whole_files += is_described && file->size != LMC_UNKNOWN_SIZE && lost == 0 &&
                        confirmed != LMC_ERR_CHECKSUM;
    s->n_wrong += confirmed == LMC_ERR_CHECKSUM;
    s->size += size;
    s->lost += lost;
    for (size_t i = 0; i < s->n_losses; i++)
        if (s->losses[i].status == LMC_ERR_LIMIT)
            s->undecoded += s->losses[i].end - s->losses[i].start;
    s->wants_base |= wants_base;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        outside -= count_lost(s, t->offset, t->offset + t->size, &ignored);
    }
    begin_json(&s->list, NULL, '{');
    if (is_described) put_json_text(&s->list, "path", file->path);
    put_json(&s->list, "kind",
             json_string(file->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    put_json_number(&s->list, "size", size);
    put_json(&s->list, "size_is_known", json_boolean(file->size != LMC_UNKNOWN_SIZE));
    put_json(&s->list, "state", json_string(state));
    put_json(&s->list, "confirmed", json_boolean(confirmed == LMC_OK));
    if (where) put_json_text(&s->list, "recovered_as", where);
    print_row(s, 2, state, size,
              is_described ? *file->path ? file->path : "(the file itself)"
              : where      ? where
                           : "(no name)");
    put_losses(s, 0, UINT64_MAX, LMC_AUTO,
               has_table(s) && lost && file->n_tensors == 0 && lost < size);
    if (outside && file->n_tensors) put_json_number(&s->list, "lost_outside_tensors", outside);
    begin_json(&s->list, "tensors", '[');
    for (size_t i = 0; i < file->n_tensors; i++) report_tensor(s, number, &file->tensors[i]);
    end_json(&s->list, ']');
    end_json(&s->list, '}');
    if (has_table(s) && outside && file->n_tensors)
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

/* Whether what is not recovered may all be intact, if it were decoded. */
static int is_only_undecoded(const struct salvage *s)
{
    return s->undecoded && s->undecoded == s->lost && s->n_wrong == 0 && s->n_unplaced == 0 &&
           s->damage.is_complete;
}

/* -- salvage.json -- */

static int fail_report(int error) { return fail_errno("salvage.json", error, "cannot write it"); }

static int begin_report(struct salvage *s)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd;
    lock_temporary();
    /* nothing was made yet: the current directory of the tree is its root */
    fd = openat(s->tree.made.fd, "salvage.json", flags, 0666);
    unlock_temporary();
    if (fd < 0) return fail_report(errno);
    s->report = (FILE *)check_memory(fdopen(fd, "w+"));
    init_json_writer(&s->list, s->report, JSON_INDENT(1));
    begin_json(&s->list, NULL, '{');
    put_json_text(&s->list, "file", s->archive.name);
    begin_json(&s->list, "files", '[');
    return CODE_OK;
}

/* Writes what is known only at the end. */
static void put_summary(struct salvage *s)
{
    const lmc_damage *d = &s->damage;
    struct json_writer *const w = &s->list;
    put_json(w, "everything_recovered", json_boolean(is_recovered(s)));
    put_json(w, "file_is_whole", json_boolean(is_undamaged(s)));
    put_json(w, "header_intact", json_boolean(d->has_header));
    put_json(w, "index_intact", json_boolean(d->has_index));
    put_json(w, "trailer_intact", json_boolean(d->has_trailer));
    put_json(w, "end_is_known", json_boolean(d->is_complete));
    put_json_number(w, "breaks", d->n_breaks);
    put_json_number(w, "bytes", s->size);
    put_json_number(w, "bytes_lost", s->lost);
    if (s->archive.is_delta) put_json_hex(w, "base", s->archive.wanted, LMC_FINGERPRINT_SIZE);
    put_json_number(w, "tensors_that_want_the_base", s->n_with_base);
}

static int end_report(struct salvage *s)
{
    char buffer[1 << 14];
    size_t got = s->o->json != 0;
    end_json(&s->list, ']');
    put_summary(s);
    end_json_line(&s->list);
    errno = 0; /* the errno of an earlier failed write is lost */
    int error = fflush(s->report) != 0 || ferror(s->report) ? errno ? errno : EIO : 0;
    if (!error) error = sync_file(fileno(s->report));
    if (error) return fail_report(error);
    for (rewind(s->report); got; fwrite(buffer, 1, got, stdout))
        got = fread(buffer, 1, sizeof buffer, s->report);
    return ferror(s->report) ? fail_report(errno) : CODE_OK;
}

/* Reports the result; returns the exit code. */
static int conclude(const struct salvage *s)
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
    if (s->undecoded)
        say(name,
            "%llu bytes are not decoded, as that exceeds a limit of work: one block after another "
            "is decoded for a few bytes. If you trust this file, 'lmc -d' to a file has no such "
            "limit; if the bytes are of a base, restore that, and give the result by --base",
            (unsigned long long)s->undecoded);
    if (!s->damage.is_complete)
        say(name, "the index is lost: whether more files followed is not known");
    if (s->wants_base) {
        format_hex(wanted, s->archive.wanted, SHORT_FINGERPRINT);
        return fail(CODE_BASE, name,
                    "%llu of %llu bytes are not recovered; with the base%s%s, given by --base, up "
                    "to %llu tensors more can be recovered. What was recovered is in %s",
                    (unsigned long long)s->lost, (unsigned long long)s->size,
                    s->archive.is_delta ? " " : "", s->archive.is_delta ? wanted : "",
                    (unsigned long long)s->n_with_base, target);
    }
    return fail(is_only_undecoded(s) ? CODE_ERROR : CODE_CORRUPT, name,
                "%llu of %llu bytes are %s, %llu of %llu tensors and %llu of %llu files intact; "
                "what was recovered is in %s",
                (unsigned long long)s->lost, (unsigned long long)s->size,
                s->undecoded ? "not recovered" : "lost", (unsigned long long)s->n_whole_tensors,
                (unsigned long long)s->n_tensors, (unsigned long long)s->n_whole_files,
                (unsigned long long)s->n_files, target);
}

/* -- what is recovered -- */

/* The name, below the output, of a file that is not complete yet. close_part() moves it. */
#define PART "part"

/* directory: below the output; NULL: the file is removed. *where: its new path, or NULL. */
static int close_part(struct salvage *s, const lmc_file *file, const char *directory,
                      const char *path, char **where)
{
    char *to = directory ? join_path(directory, path) : NULL;
    const int root = s->tree.root_fd;
    int code = end_tree_file(&s->tree, file), error = 0;
    if (code == CODE_OK && to) error = enter_made(&s->tree.made, to);
    lock_temporary();
    if (code == CODE_OK && !error && to)
        error = move_name(root, PART, s->tree.made.fd, base_name(to), 1);
    else if (code == CODE_OK && !error) error = unlinkat(root, PART, 0) == 0 ? 0 : errno;
    unlock_temporary();
    if (error) code = fail_made(&s->tree.made, s->tree.target, path, error);
    *where = to;
    return code;
}

static void add_loss(struct salvage *s, const lmc_salvage_range *range)
{
    struct loss *last = s->n_losses ? &s->losses[s->n_losses - 1] : NULL;
    if (last && last->end == range->offset && last->status == range->status) {
        last->end += range->size;
        return;
    }
    last = (struct loss *)append(&s->losses, &s->n_losses, &s->cap, sizeof *last);
    last->start = range->offset;
    last->end = range->offset + range->size;
    last->status = range->status;
}

/* A name for a file whose FILE section is lost, or that has no name of its own. */
static char *name_part(const struct salvage *s, size_t number, const lmc_file *file)
{
    const char *name = base_name(s->archive.name);
    if (!lmc_salvage_is_described(s->salvage, number))
        return format_text("file-%04llu", (unsigned long long)number);
    if (*file->path) return copy_text(file->path);
    return copy_string(name, has_suffix(name) ? strlen(name) - strlen(SUFFIX) : strlen(name));
}

static int next_range(struct salvage *s, lmc_salvage_range *range, int *is_end)
{
    enum lmc_status status = lmc_salvage_next(s->salvage, range);
    *is_end = status == LMC_OK && range->is_end;
    if (status == LMC_ERR_MEMORY) check_memory(NULL);
    if (status == LMC_OK) progress_add(range->size);
    return status == LMC_OK ? CODE_OK : fail_archive(&s->archive, status);
}

/* Recovers file number n. *range: its first range; on return, the first range of the next file. */
static int salvage_part(struct salvage *s, size_t n, lmc_salvage_range *range, int *is_end)
{
    const lmc_file *file = lmc_reader_get_file(s->archive.reader, n);
    const int is_directory = file->kind == LMC_FILE_DIRECTORY;
    int is_described = lmc_salvage_is_described(s->salvage, n), is_whole, code;
    char *path = name_part(s, n, file), *whole = join_path("whole", path), *where = NULL;
    lmc_file below = *file;
    uint64_t size = 0;
    s->n_losses = 0;
    s->got = 0;
    below.path = is_directory ? whole : PART;
    code = begin_tree_file(&s->tree, &below);
    while (code == CODE_OK && !*is_end && range->file_number == n) {
        int error = range->status == LMC_OK
                        ? outlet_write(&s->tree.outlet, range->data, (size_t)range->size)
                        : outlet_skip(&s->tree.outlet, range->size);
        size += range->size;
        if (error) code = fail_errno(path, error, "cannot write it");
        else if (range->status == LMC_OK) s->got += range->size;
        else add_loss(s, range);
        if (code == CODE_OK) code = next_range(s, range, is_end);
    }
    is_whole = s->n_losses == 0 && file->size != LMC_UNKNOWN_SIZE &&
               lmc_salvage_confirm(s->salvage, n, SIZE_MAX) != LMC_ERR_CHECKSUM;
    if (code == CODE_OK && is_directory) {
        code = end_tree_file(&s->tree, &below);
        where = copy_text(whole);
    } else if (code == CODE_OK) {
        code = close_part(s, &below,
                          !is_described ? "unnamed"
                          : is_whole    ? "whole"
                          : s->got      ? "partial"
                                        : NULL,
                          path, &where);
    }
    if (code == CODE_OK) report_file(s, n, file, size, where);
    free(path);
    free(whole);
    free(where);
    return code;
}

/* Recovers blocks whose place is unknown. */
static int salvage_rest(struct salvage *s, lmc_salvage_range *range, int *is_end)
{
    int code = CODE_OK;
    end_json(&s->list, ']');
    begin_json(&s->list, "unplaced", '[');
    while (code == CODE_OK && !*is_end) {
        lmc_file file = {0};
        char *path =
            format_text("unplaced/run-%04lu-block-%06lu.bin", (unsigned long)range->run_number,
                        (unsigned long)range->block_number);
        begin_json(&s->list, NULL, '{');
        put_json_number(&s->list, "run", range->run_number);
        put_json_number(&s->list, "block", range->block_number);
        put_json_number(&s->list, "size", range->size);
        put_json(&s->list, "state",
                 json_string(range->status == LMC_OK ? "intact" : name_loss(range->status)));
        end_json(&s->list, '}');
        s->n_unplaced++;
        if (range->status == LMC_OK) {
            file.path = path;
            code = begin_tree_file(&s->tree, &file);
            if (code == CODE_OK) {
                int error = outlet_write(&s->tree.outlet, range->data, (size_t)range->size);
                code = error ? fail_errno(path, error, "cannot write it")
                             : end_tree_file(&s->tree, &file);
            }
        }
        free(path);
        if (code == CODE_OK) code = next_range(s, range, is_end);
    }
    return code;
}

/* Finds the base that the header names, as restoring does. A base that is given must be that base.
 * If none is given or found, only what needs no base is recovered. */
static int find_salvage_base(struct salvage *s, const lmc_base **base)
{
    const struct options *o = s->o;
    int code;
    if (o->bases->n) return find_base_of_archive(&s->archive, base, o);
    struct base *b = find_base(&s->archive, o, &code);
    if (b && code == CODE_OK) code = prepare_base(b, o);
    if (!b || code != CODE_OK) return CODE_OK; /* its error was reported */
    o->bases->code = CODE_OK;
    *base = &b->source;
    s->archive.lender = is_snapshot(b) ? b->archive.reader : NULL;
    if (o->verbosity == 1) /* if it is higher, find_base() says it */
        say(s->archive.name, "its base is %.300s", b->name);
    return CODE_OK;
}

/* Chooses the base that the header names, or, if the header is damaged, the first one that is
 * given: the checksum of each block shows whether it is the right base. */
static int choose_salvage_base(struct salvage *s, const lmc_base **base)
{
    const struct options *o = s->o;
    *base = NULL;
    if (s->archive.is_delta) return find_salvage_base(s, base);
    if (o->bases->n == 0) return CODE_OK;
    int code = prepare_base(&o->bases->list[0], o);
    o->bases->code = CODE_OK;
    if (code == CODE_OK) *base = &o->bases->list[0].source;
    return code;
}

static int open_salvage(struct salvage *s, const lmc_base *base)
{
    const lmc_source source = source_of_archive(&s->archive);
    const lmc_reader_options options = options_of_reader(&s->archive, base);
    lmc_reader_free(s->archive.reader); /* this reader was only for finding the base */
    lmc_salvage_free(s->salvage);
    enum lmc_status status = lmc_salvage_open(&s->salvage, &source, &options);
    s->archive.reader = lmc_salvage_reader(s->salvage);
    if (status == LMC_ERR_MEMORY) check_memory(NULL);
    if (status == LMC_ERR_NOT_LMC && archive_size(&s->archive) != 0 &&
        !container_is_lfs_pointer(s->archive.header, sizeof s->archive.header))
        return fail(CODE_CORRUPT, s->archive.name, "nothing of a snapshot was found in it");
    return status == LMC_OK && lmc_salvage_get_damage(s->salvage, &s->damage) == LMC_OK
               ? CODE_OK
               : fail_archive(&s->archive, status);
}

/* A damaged header does not name the base, but the index may have a copy of the name. */
static int open_with_base(struct salvage *s)
{
    const lmc_base *base;
    int code = choose_salvage_base(s, &base);
    if (code == CODE_OK) code = open_salvage(s, base);
    if (code != CODE_OK || base || s->archive.is_delta) return code;
    lmc_snapshot_info info = snapshot_info(s->archive.reader);
    if (!info.has_base) return code;
    s->archive.is_delta = 1;
    memcpy(s->archive.wanted, info.base_fingerprint, sizeof s->archive.wanted);
    s->archive.reader = NULL; /* owned by the salvage */
    code = find_salvage_base(s, &base);
    return code == CODE_OK ? open_salvage(s, base) : code;
}

/* Makes symbolic links below whole/, if the index that names them is there. */
static void salvage_links(struct salvage *s)
{
    struct links links, symbolic = {0};
    const int root = s->tree.root_fd;
    int whole = -1;
    if (read_links(&links, s->archive.reader) != 0)
        say(s->archive.name, "has a damaged list of links, which is left out");
    for (size_t i = 0; i < links.n; i++) { /* hard links are files here */
        struct link *l = &links.list[i];
        if (l->type == LINK_HARD) continue;
        add_link_record(&symbolic, l->type, l->path, l->target);
    }
    if (symbolic.n && (mkdirat(root, "whole", 0777) == 0 || errno == EEXIST))
        whole = openat(root, "whole", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (whole >= 0) {
        (void)make_links(whole, &symbolic, s->archive.name); /* failures were reported */
        close(whole);
    }
    free_links(&symbolic);
    free_links(&links);
}

static int run_salvage(struct salvage *s)
{
    lmc_salvage_range range;
    int is_end = 0, code;
    if (has_table(s)) print("%s:\n", s->archive.name);
    progress_start(s->archive.name, LMC_UNKNOWN_SIZE);
    code = begin_report(s);
    if (code == CODE_OK) code = next_range(s, &range, &is_end);
    if (code == CODE_OK && is_end && snapshot_info(s->archive.reader).n_files == 0)
        code = fail(CODE_CORRUPT, s->archive.name,
                    "nothing of a snapshot was found in it but its header");
    for (size_t i = 0; i < snapshot_info(s->archive.reader).n_files && code == CODE_OK; i++)
        code = salvage_part(s, i, &range, &is_end);
    if (code == CODE_OK) code = salvage_rest(s, &range, &is_end);
    progress_clear();
    if (code == CODE_OK) salvage_links(s);
    if (code == CODE_OK) code = end_report(s);
    return code;
}

int salvage_file(const struct options *o)
{
    const char *const path = o->names[0];
    struct salvage s = {0};
    const size_t size = strlen(path) - (has_suffix(path) ? strlen(SUFFIX) : 0);
    char *target = o->output ? copy_text(o->output) : format_text("%.*s.salvaged", (int)size, path);
    s.o = o;
    o->bases->is_partial = 1;
    init_tree(&s.tree, target, o);
    int code = open_archive_file(&s.archive, path, o);
    if (code == CODE_OK) code = open_with_base(&s);
    if (code == CODE_OK) code = protect_bases(NULL, target, 0, o); /* found ones, too */
    if (code == CODE_OK && s.archive.is_delta) say_unused_bases(0, o);
    if (code == CODE_OK) code = begin_tree(&s.tree, path, o->force);
    if (code == CODE_OK) {
        code = run_salvage(&s);
        if (code == CODE_OK) code = commit_tree(&s.tree, o->force, &s.archive.st);
        else remove_temporary();
    }
    if (code == CODE_OK) code = worse(conclude(&s), check_bases(o));
    if (s.salvage) s.archive.reader = NULL; /* owned by the salvage */
    lmc_salvage_free(s.salvage);
    close_archive(&s.archive);
    if (s.report) fclose(s.report);
    free(s.losses);
    free_tree(&s.tree);
    free(target);
    return code;
}
