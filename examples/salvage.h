/* salvage.h - what is intact in a damaged snapshot
 * SPDX-License-Identifier: MIT
 *
 * The output is a directory: whole/ has the files of which nothing is lost; partial/ those with holes, which read as zeros; unnamed/ what belongs to
 * files whose names and sizes are lost; unplaced/ single blocks of which not even the place is known. salvage.json says what is lost where, so that
 * nobody takes holes for data.
 */
#ifndef LMC_SALVAGE_H
#define LMC_SALVAGE_H

#include "inspect.h"

struct loss {
    uint64_t start, end;
    enum lmc_status status;
};

struct salvage {
    const struct options *o;
    struct archive archive;
    struct restore tree;    /* of the output */
    lmc_damage damage;
    json_t *report, *files, *unplaced;
    struct loss *losses;    /* of the file at hand */
    size_t n_losses, room;
    uint64_t got;           /* bytes of it */
    uint64_t n_files, n_whole_files, n_tensors, n_whole_tensors, n_with_base, n_unplaced, size, lost, n_wrong;
    int wants_base;
};

static const char *name_loss(enum lmc_status status)
{
    switch (status) {
    case LMC_ERR_NOT_FOUND: return "missing";
    case LMC_ERR_BASE_MISSING: return "wants the base";
    case LMC_ERR_BASE_WRONG: return "wants another base";
    case LMC_ERR_READ: return "cannot be read";
    default: return "damaged";
    }
}

/* -- the report -- */

/* The bytes of the file that are lost within [start, end), as a list; *n: their number. Lines of the table, if prefix is not NULL. */
static json_t *list_losses(const struct salvage *s, uint64_t start, uint64_t end, enum lmc_dtype dtype, const char *prefix, uint64_t *n, int *wants_base)
{
    json_t *list = (json_t *)check_memory(json_array());
    unsigned bits = lmc_dtype_bits(dtype);
    *n = 0;
    size_t low = 0, high = s->n_losses; /* they ascend: the first that ends behind start */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->losses[middle].end <= start)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < s->n_losses && s->losses[i].start < end; i++) {
        const struct loss *l = &s->losses[i];
        uint64_t from = l->start > start ? l->start : start, to = l->end < end ? l->end : end;
        uint64_t first, last;
        json_t *entry;
        if (from >= to)
            continue;
        from -= start;
        to -= start;
        *n += to - from;
        *wants_base |= l->status == LMC_ERR_BASE_MISSING;
        first = from / bits * 8 + from % bits * 8 / bits; /* the first element that is not whole, and the one behind the last */
        last = to / bits * 8 + (to % bits * 8 + bits - 1) / bits;
        entry = (json_t *)check_memory(json_object());
        set_json_number(entry, "offset", from);
        set_json_number(entry, "size", to - from);
        if (dtype != LMC_AUTO) {
            set_json_number(entry, "first_element", first);
            set_json_number(entry, "elements", last - first);
        }
        set_json(entry, "reason", json_string(name_loss(l->status)));
        if (json_array_append_new(list, entry) != 0)
            check_memory(NULL);
        if (!prefix || s->o->json || s->o->verbosity == 0)
            continue;
        printf("%sbytes %llu to %llu", prefix, (unsigned long long)from, (unsigned long long)to - 1);
        if (dtype != LMC_AUTO)
            printf(" (elements %llu to %llu)", (unsigned long long)first, (unsigned long long)last - 1);
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
    int confirmed = lmc_confirm(s->archive.reader, number, t), wants_base = 0;
    json_t *entry = (json_t *)check_memory(json_object()), *shape = (json_t *)check_memory(json_array());
    enum lmc_dtype dtype = lmc_find_dtype(t->dtype);
    const char *state;
    uint64_t lost;
    json_t *losses = list_losses(s, t->offset, t->offset + t->size, dtype, NULL, &lost, &wants_base);
    state = name_state(t->size, lost, confirmed);
    s->n_tensors++;
    s->n_whole_tensors += (unsigned)(lost == 0 && confirmed >= 0);
    s->n_with_base += (unsigned)wants_base;
    set_json_text(entry, "name", t->name);
    set_json_text(entry, "dtype", t->dtype);
    for (unsigned i = 0; i < t->rank; i++)
        if (json_array_append_new(shape, make_json_number(t->shape[i])) != 0)
            check_memory(NULL);
    set_json(entry, "shape", shape);
    set_json_number(entry, "offset", t->offset);
    set_json_number(entry, "size", t->size);
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    set_json(entry, "lost", losses);
    if (json_array_append_new(tensors, entry) != 0)
        check_memory(NULL);
    if (s->o->json || s->o->verbosity == 0)
        return;
    printf("    %-12s %14llu  ", state, (unsigned long long)t->size);
    print_name(t->name);
    putchar('\n');
    if (lost && lost < t->size)
        json_decref(list_losses(s, t->offset, t->offset + t->size, dtype, "                 ", &lost, &wants_base));
}

/* The name of what was recovered of a file, below the output; NULL: nothing was. To be freed. */
static void report_file(struct salvage *s, size_t number, const lmc_file *file, uint64_t size, const char *where)
{
    int is_described = lmc_is_described(s->archive.reader, number), confirmed = lmc_confirm(s->archive.reader, number, NULL), wants_base = 0;
    json_t *entry = (json_t *)check_memory(json_object()), *tensors = (json_t *)check_memory(json_array());
    uint64_t lost, in_tensors = 0, part;
    json_t *losses = list_losses(s, 0, UINT64_MAX, LMC_AUTO, NULL, &lost, &wants_base);
    const char *state = is_described ? name_state(size, lost, confirmed) : "name lost";
    s->n_files++;
    s->n_whole_files += is_described && file->size != LMC_UNKNOWN_SIZE && lost == 0 && confirmed >= 0;
    s->n_wrong += confirmed < 0;
    s->size += size;
    s->lost += lost;
    s->wants_base |= wants_base;
    if (is_described)
        set_json_text(entry, "path", file->path);
    set_json(entry, "kind", json_string(file->kind == LMC_FILE_DIRECTORY ? "directory" : "file"));
    set_json_number(entry, "size", size);
    set_json(entry, "size_is_known", json_boolean(file->size != LMC_UNKNOWN_SIZE));
    set_json(entry, "state", json_string(state));
    set_json(entry, "confirmed", json_boolean(confirmed > 0));
    if (where)
        set_json_text(entry, "recovered_as", where);
    set_json(entry, "lost", losses);
    if (!s->o->json && s->o->verbosity > 0) {
        printf("  %-14s %14llu  ", state, (unsigned long long)size);
        print_name(is_described ? *file->path ? file->path : "(the file itself)" : where ? where : "(no name)");
        putchar('\n');
    }
    for (size_t i = 0; i < file->n_tensors; i++)
        report_tensor(s, number, &file->tensors[i], tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        json_decref(list_losses(s, file->tensors[i].offset, file->tensors[i].offset + file->tensors[i].size, LMC_AUTO, NULL, &part, &wants_base));
        in_tensors += part;
    }
    if (!s->o->json && s->o->verbosity > 0 && lost && file->n_tensors == 0 && lost < size)
        json_decref(list_losses(s, 0, UINT64_MAX, LMC_AUTO, "                 ", &part, &wants_base));
    if (lost > in_tensors && file->n_tensors) {
        set_json_number(entry, "lost_outside_tensors", lost - in_tensors);
        if (!s->o->json && s->o->verbosity > 0)
            printf("    %llu bytes that belong to no tensor are lost, of the file's header perhaps; salvage.json has the name, type, shape and place of each "
                   "tensor\n", (unsigned long long)(lost - in_tensors));
    }
    set_json(entry, "tensors", tensors);
    if (json_array_append_new(s->files, entry) != 0)
        check_memory(NULL);
}

/* -- files -- */

static int open_part(struct salvage *s, const lmc_file *file, const char *directory, const char *path)
{
    lmc_file below = *file;
    char *full = join_path(directory, path);
    int code;
    below.path = full;
    code = begin_tree_file(&s->tree, &below);
    free(full);
    return code;
}

/* The file in work is complete: it goes where it belongs. *where: its name below the output; NULL: there is nothing of it. */
static int close_part(struct salvage *s, const lmc_file *file, const char *path, int is_whole, char **where)
{
    lmc_file below = *file;
    char *from = join_path("whole", path), *to = join_path(is_whole ? "whole" : "partial", path);
    int code, error = 0;
    *where = NULL;
    below.path = from;
    code = end_tree_file(&s->tree, &below);
    if (code == CODE_OK && !is_whole) {
        char *old = join_path(s->tree.root, from), *new = join_path(s->tree.root, to);
        pthread_mutex_lock(&temporary.lock);
        if (s->got == 0)
            error = unlink(old) == 0 ? 0 : errno;
        else {
            error = make_parents(new, strlen(s->tree.root));
            if (!error)
                error = move_without_overwriting(old, new);
        }
        for (char *slash = strrchr(old, '/'); !error && slash > old + strlen(s->tree.root); slash = strrchr(old, '/')) { /* directories that were made for it */
            *slash = 0;
            if (rmdir(old) != 0)
                break;
        }
        pthread_mutex_unlock(&temporary.lock);
        free(old);
        free(new);
        if (error)
            code = fail_errno(path, error, "cannot write it");
    }
    if (code == CODE_OK && (is_whole || s->got))
        *where = copy_string(to, strlen(to));
    free(from);
    free(to);
    return code;
}

static int skip_bytes(struct outlet *out, uint64_t size)
{
    if (size > INT64_MAX - out->size)
        return EFBIG;
    if (lseek(out->fd, (off_t)size, SEEK_CUR) < 0)
        return errno;
    out->size += size;
    return 0;
}

static void add_loss(struct salvage *s, const lmc_range *range)
{
    struct loss *last = s->n_losses ? &s->losses[s->n_losses - 1] : NULL;
    if (last && last->end == range->offset && last->status == range->status) {
        last->end += range->size;
        return;
    }
    if (s->n_losses == s->room) {
        s->room = s->room * 2 + 16;
        s->losses = (struct loss *)resize(s->losses, s->room, sizeof *s->losses);
    }
    last = &s->losses[s->n_losses++];
    last->start = range->offset;
    last->end = range->offset + range->size;
    last->status = range->status;
}

/* What a file is called whose FILE section is lost, or that has no name of its own. */
static char *name_part(const struct salvage *s, size_t number, const lmc_file *file)
{
    const char *name = strrchr(s->archive.name, '/') ? strrchr(s->archive.name, '/') + 1 : s->archive.name;
    char text[40];
    if (!lmc_is_described(s->archive.reader, number)) {
        snprintf(text, sizeof text, "file-%04llu", (unsigned long long)number);
        return copy_string(text, strlen(text));
    }
    if (*file->path)
        return copy_string(file->path, strlen(file->path));
    return copy_string(name, has_suffix(name) ? strlen(name) - strlen(SUFFIX) : strlen(name));
}

static int next_range(struct salvage *s, lmc_range *range, int *is_end)
{
    enum lmc_status status = lmc_next_range(s->archive.reader, range);
    *is_end = status == LMC_ERR_NOT_FOUND;
    if (status == LMC_ERR_MEMORY)
        check_memory(NULL);
    if (status == LMC_OK)
        progress_add(range->size);
    return status == LMC_OK || *is_end ? CODE_OK : fail_archive(&s->archive, status);
}

/* File number n; *range: its first range, then that of the next file. */
static int salvage_part(struct salvage *s, size_t n, lmc_range *range, int *is_end)
{
    const lmc_file *file = lmc_get_file(s->archive.reader, n);
    int is_described = lmc_is_described(s->archive.reader, n), is_whole, code;
    char *path = name_part(s, n, file), *where = NULL;
    uint64_t size = 0;
    s->n_losses = 0;
    s->got = 0;
    code = open_part(s, file, is_described ? "whole" : "unnamed", path);
    while (code == CODE_OK && !*is_end && range->file_number == n) {
        int error = range->status == LMC_OK ? outlet_write(&s->tree.outlet, range->data, (size_t)range->size) : skip_bytes(&s->tree.outlet, range->size);
        size += range->size;
        if (error)
            code = fail_errno(path, error, "cannot write it");
        else if (range->status == LMC_OK)
            s->got += range->size;
        else
            add_loss(s, range);
        if (code == CODE_OK)
            code = next_range(s, range, is_end);
    }
    is_whole = s->n_losses == 0 && file->size != LMC_UNKNOWN_SIZE && lmc_confirm(s->archive.reader, n, NULL) >= 0;
    if (code == CODE_OK && is_described) {
        code = close_part(s, file, path, is_whole || file->kind == LMC_FILE_DIRECTORY, &where);
    } else if (code == CODE_OK) {
        lmc_file below = *file;
        below.path = where = join_path("unnamed", path);
        code = end_tree_file(&s->tree, &below);
    }
    if (code == CODE_OK)
        report_file(s, n, file, size, where);
    free(path);
    free(where);
    return code;
}

/* Blocks without a place. */
static int salvage_rest(struct salvage *s, lmc_range *range, int *is_end)
{
    int code = CODE_OK;
    while (code == CODE_OK && !*is_end) {
        lmc_file file;
        char name[64];
        json_t *entry = (json_t *)check_memory(json_object());
        memset(&file, 0, sizeof file);
        snprintf(name, sizeof name, "run-%04lu-block-%06lu.bin", (unsigned long)range->position.run, (unsigned long)range->position.block);
        set_json_number(entry, "run", range->position.run);
        set_json_number(entry, "block", range->position.block);
        set_json_number(entry, "size", range->size);
        set_json(entry, "state", json_string(range->status == LMC_OK ? "intact" : name_loss(range->status)));
        if (json_array_append_new(s->unplaced, entry) != 0)
            check_memory(NULL);
        s->n_unplaced++;
        if (range->status == LMC_OK) {
            char *path = join_path("unplaced", name);
            file.path = path;
            code = begin_tree_file(&s->tree, &file);
            if (code == CODE_OK) {
                int error = outlet_write(&s->tree.outlet, range->data, (size_t)range->size);
                code = error ? fail_errno(name, error, "cannot write it") : end_tree_file(&s->tree, &file);
            }
            free(path);
        }
        if (code == CODE_OK)
            code = next_range(s, range, is_end);
    }
    return code;
}

/* Directories that were left empty have been removed, perhaps; those of the snapshot come back. */
static int complete_directories(struct salvage *s)
{
    int error = 0;
    for (size_t i = 0; i < s->tree.n_directories && !error; i++) {
        char *path = join_path(s->tree.root, s->tree.directories[i].path);
        pthread_mutex_lock(&temporary.lock);
        error = make_parents(path, strlen(s->tree.root));
        if (!error && mkdir(path, 0777) != 0 && errno != EEXIST)
            error = errno;
        pthread_mutex_unlock(&temporary.lock);
        free(path);
    }
    return error ? fail_errno(s->tree.target, error, "cannot create a directory in it") : CODE_OK;
}

/* -- the end -- */

static int is_recovered(const struct salvage *s)
{
    return s->lost == 0 && s->n_wrong == 0 && s->n_unplaced == 0 && s->n_whole_files == s->n_files && s->damage.is_complete;
}

static int is_undamaged(const struct salvage *s)
{
    const lmc_damage *d = &s->damage;
    return is_recovered(s) && d->has_header && d->has_index && d->has_trailer && d->n_breaks == 0 && d->n_sections == 0;
}

static int write_report(struct salvage *s)
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
        code = error ? fail_errno(file.path, error, "cannot write it") : end_tree_file(&s->tree, &file);
    }
    if (code == CODE_OK && s->o->json)
        fwrite(text, 1, size + 1, stdout);
    free(text);
    return code;
}

static int conclude(const struct salvage *s)
{
    const char *name = s->archive.name, *target = s->tree.target;
    char wanted[2 * SHORT_IDENTITY + 1];
    if (is_recovered(s)) {
        if (s->o->verbosity > 0 && is_undamaged(s))
            say(name, "is whole; its files are in %s", target);
        else if (s->o->verbosity > 0)
            say(name, "is damaged, but nothing is lost: all its files are in %s; compress them anew", target);
        return CODE_OK;
    }
    if (s->n_wrong)
        say(name, "%llu file%s with bytes that were not in it when it was compressed: do not trust what is marked WRONG", (unsigned long long)s->n_wrong,
            s->n_wrong == 1 ? "" : "s");
    if (s->n_unplaced)
        say(name, "%llu blocks whose place is not known are in %s/unplaced", (unsigned long long)s->n_unplaced, target);
    if (!s->damage.is_complete)
        say(name, "the index is lost: whether more files followed is not known");
    if (s->wants_base) {
        format_hex(wanted, s->archive.wanted, SHORT_IDENTITY);
        return fail(CODE_BASE, name, "%llu of %llu bytes are not recovered; with its base%s%s, named by --base, %llu tensors more might come back; what did "
                                     "is in %s", (unsigned long long)s->lost, (unsigned long long)s->size, s->archive.chain_depth ? " " : "",
                    s->archive.chain_depth ? wanted : "", (unsigned long long)s->n_with_base, target);
    }
    return fail(CODE_CORRUPT, name, "%llu of %llu bytes are lost, %llu of %llu tensors and %llu of %llu files intact; what was recovered is in %s",
                (unsigned long long)s->lost, (unsigned long long)s->size, (unsigned long long)s->n_whole_tensors, (unsigned long long)s->n_tensors,
                (unsigned long long)s->n_whole_files, (unsigned long long)s->n_files, target);
}

/* The base: the one that the header names; where that is damaged, the first that is given, for every block knows whether it is the right one. */
static int choose_salvage_base(struct salvage *s, const lmc_base **base)
{
    const struct options *o = s->o;
    int code;
    *base = NULL;
    if (o->bases->n == 0)
        return CODE_OK;
    if (s->archive.chain_depth)
        return find_base_of_archive(&s->archive, base, o);
    code = prepare_base(&o->bases->list[0], o);
    o->bases->code = CODE_OK;
    if (code == CODE_OK)
        *base = &o->bases->list[0].source;
    return code;
}

static int open_salvage(struct salvage *s, const lmc_base *base)
{
    lmc_source source;
    lmc_reader_options options;
    enum lmc_status status;
    source.read_at = read_archive;
    source.user = &s->archive;
    source.size = archive_size(&s->archive);
    memset(&options, 0, sizeof options);
    options.base = base;
    options.lender = s->archive.lender;
    options.salvage = 1;
    status = lmc_open_reader(&s->archive.reader, &source, &options);
    if (status == LMC_ERR_MEMORY)
        check_memory(NULL);
    if (status == LMC_ERR_NOT_LMC)
        return fail(CODE_CORRUPT, s->archive.name, "nothing of a snapshot was found in it");
    return status == LMC_OK && lmc_get_damage(s->archive.reader, &s->damage) == LMC_OK ? CODE_OK : fail_archive(&s->archive, status);
}

static int run_salvage(struct salvage *s)
{
    lmc_range range;
    int is_end = 0, code;
    code = begin_tree(&s->tree);
    if (code != CODE_OK)
        return code;
    s->tree.started = s->tree.is_tree = 1;
    if (!s->o->json && s->o->verbosity > 0) {
        print_name(s->archive.name);
        printf(":\n");
    }
    progress_start(s->archive.name, LMC_UNKNOWN_SIZE);
    if (code == CODE_OK)
        code = next_range(s, &range, &is_end);
    if (code == CODE_OK && is_end && lmc_count_files(s->archive.reader) == 0)
        code = fail(CODE_CORRUPT, s->archive.name, "nothing of a snapshot was found in it but its header");
    for (size_t i = 0; i < lmc_count_files(s->archive.reader) && code == CODE_OK; i++)
        code = salvage_part(s, i, &range, &is_end);
    if (code == CODE_OK)
        code = salvage_rest(s, &range, &is_end);
    progress_clear();
    if (code == CODE_OK)
        code = complete_directories(s);
    if (code == CODE_OK)
        code = write_report(s);
    return code;
}

static int salvage_file(const char *path, const struct options *o)
{
    struct salvage s;
    const lmc_base *base;
    int code;
    memset(&s, 0, sizeof s);
    s.o = s.tree.o = o;
    s.tree.input = path;
    s.tree.outlet.fd = s.tree.fd_again = -1;
    s.report = (json_t *)check_memory(json_object());
    s.files = (json_t *)check_memory(json_array());
    s.unplaced = (json_t *)check_memory(json_array());
    code = open_archive_file(&s.archive, path, o);
    if (code == CODE_OK) {
        s.tree.input_stat = &s.archive.st;
        if (o->output)
            s.tree.target = copy_string(o->output, strlen(o->output));
        else {
            size_t size = strlen(path) - (has_suffix(path) ? strlen(SUFFIX) : 0);
            s.tree.target = (char *)resize(NULL, size + sizeof ".salvaged", 1);
            memcpy(s.tree.target, path, size);
            strcpy(s.tree.target + size, ".salvaged");
        }
        code = protect_bases(path, s.tree.target, 0, o);
    }
    if (code == CODE_OK)
        code = choose_salvage_base(&s, &base);
    if (code == CODE_OK)
        code = open_salvage(&s, base);
    if (code == CODE_OK)
        code = finish_restore(&s.tree, run_salvage(&s));
    if (code == CODE_OK)
        code = worse(conclude(&s), check_bases(o));
    close_archive(&s.archive);
    json_decref(s.report);
    json_decref(s.files);
    json_decref(s.unplaced);
    free(s.losses);
    for (size_t i = 0; i < s.tree.n_directories; i++)
        free(s.tree.directories[i].path);
    free(s.tree.directories);
    free_listing(&s.tree.replaced);
    free(s.tree.target);
    return code;
}

#endif
