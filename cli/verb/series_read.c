/* series_read.c - lmc series DIR list, restore, cat and verify
 * SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../sys/attributes.h"
#include "../../formats/container.h"
#include "../../formats/printable.h"
#include "series_manifest.h"

/* -- list -- */

static void format_time(char text[24], int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(text, 24, "%Y-%m-%d %H:%M", &parts) == 0)
        strcpy(text, "?");
}

static const char *kind_of_entry(const struct snapshot *e)
{
    return e->file == FILE_MISSING   ? "missing"
           : e->file == FILE_DAMAGED ? "damaged"
           : e->file == FILE_OTHER   ? "other"
           : e->is_delta             ? "delta"
                                     : "anchor";
}

/* The state of an entry and its file. While a snapshot is added, its file is not called missing. */
static const char *condition_of_entry(const struct snapshot *e)
{
    const int is_told =
        e->state == STATE_ADDING || (e->state != STATE_KEPT && e->file == FILE_THERE);
    return is_told ? state_names[e->state] : kind_of_entry(e);
}

/* The row has 80 columns if names have 11. --json has sizes in bytes, and times in seconds. */
static void print_entry(const struct series *s, const struct snapshot *e, int width)
{
    const struct snapshot *base = find_base_of(s, e, 0), *broken = find_broken_base(s, e);
    char when[24], depth[24] = "-", size[SIZE_TEXT], packed[SIZE_TEXT];
    char *name = (char *)check_memory(copy_printable(e->name, strlen(e->name)));
    const char *const lacks = broken                                 ? kind_of_entry(broken)
                              : e->file == FILE_THERE && e->is_delta ? "missing"
                                                                     : NULL;
    format_time(when, e->time);
    format_size(size, sizeof size, e->size);
    format_size(packed, sizeof packed, e->packed_size);
    if (e->depth < DEPTH_LOOSE) snprintf(depth, sizeof depth, "%lu", (unsigned long)e->depth);
    printf("%-*s  ", width, name);
    print("%-9s  %5s  %8s  %8s  %s  %s%s%s\n", condition_of_entry(e), depth, size, packed, when,
          !base && lacks ? "(" : "",
          base    ? base->name
          : lacks ? lacks
                  : "",
          !base && lacks ? ")" : "");
    free(name);
}

static void put_json_entry(struct json_writer *w, const struct series *s, const struct snapshot *e)
{
    const struct snapshot *base = find_base_of(s, e, 0);
    begin_json(w, NULL, '{');
    put_json(w, "name", json_string(e->name));
    put_json(w, "state", json_string(state_names[e->state]));
    put_json(w, "kind", json_string(kind_of_entry(e)));
    if (e->state != STATE_ADDING)
        put_json_hex(w, "fingerprint", e->fingerprint, LMC_FINGERPRINT_SIZE);
    if (e->depth < DEPTH_LOOSE) put_json_number(w, "depth", e->depth);
    put_json_number(w, "size", e->size);
    put_json_number(w, "packed_size", e->packed_size);
    if (base) put_json(w, "base", json_string(base->name));
    put_json(w, "time", json_integer(e->time));
    if (e->source) put_json(w, "source", json_string(e->source));
    end_json(w, '}');
}

static void print_series_as_json(const struct series *s)
{
    struct snapshot **list = sort_series(s, BY_STEP);
    struct json_writer w;
    init_json_writer(&w, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    put_json_text(&w, "series", s->directory);
    put_json_number(&w, "every", s->every);
    begin_json(&w, "snapshots", '[');
    for (size_t i = 0; i < s->n; i++)
        if (list[i]->state != STATE_GONE) put_json_entry(&w, s, list[i]);
    end_json(&w, ']');
    end_json_line(&w);
}

/* " (2 forgotten, 1 missing)" for all that are not simply kept, or "". To be freed. */
static char *count_others(const struct series *s)
{
    static const char *const words[] = {"adding", "forgotten", "missing", "damaged", "other"};
    char *text = copy_text("");
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        uint64_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            n += s->list[i].state != STATE_GONE &&
                 strcmp(condition_of_entry(&s->list[i]), words[k]) == 0;
        if (n)
            append_text(&text, "%s%llu %s", *text ? ", " : " (", (unsigned long long)n, words[k]);
    }
    if (*text) append_text(&text, ")");
    return text;
}

static void print_series(const struct series *s)
{
    struct snapshot **list = sort_series(s, BY_STEP);
    uint64_t size = 0, packed = 0, n = 0;
    int width = 4;
    for (size_t i = 0; i < s->n; i++) {
        int length = (int)strlen(s->list[i].name);
        if (s->list[i].state == STATE_GONE) continue;
        n++;
        width = length > width ? length : width;
        size += s->list[i].size;
        packed += s->list[i].packed_size;
    }
    printf("%-*s  kind       depth      size    packed  added (UTC)       base\n", width, "name");
    for (size_t i = 0; i < s->n; i++)
        if (list[i]->state != STATE_GONE) print_entry(s, list[i], width);
    char *others = count_others(s);
    printf("%llu snapshot%s%s, %llu -> %llu bytes (%.2f %%), an anchor every %llu\n",
           (unsigned long long)n, n == 1 ? "" : "s", others, (unsigned long long)size,
           (unsigned long long)packed, percent(packed, size), (unsigned long long)s->every);
    free(others);
}

/* Reports each kept file that is not what the list says; and if a kept delta lacks its base
 * otherwise, the first one. */
static int check_listed(const struct series *s)
{
    unsigned char *known;
    int code = CODE_OK;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_KEPT && s->list[i].file != FILE_THERE)
            code = worse(code, fail_entry(s, &s->list[i]));
    known = (unsigned char *)zeroed(s->n + 1, 1);
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (s->list[i].state == STATE_KEPT) code = check_chain_of(s, &s->list[i], 0, known);
    free(known);
    return code;
}

int series_list(const struct options *o)
{
    struct series s;
    int code = open_series(&s, TO_READ, o);
    if (code == CODE_OK && o->json) print_series_as_json(&s);
    else if (code == CODE_OK) print_series(&s);
    if (code == CODE_OK) code = check_listed(&s);
    close_series(&s);
    return code;
}

/* -- restore, cat, verify -- */

/* Refuses an output in the series: its next command would remove the output's temporary file. */
static int check_place(const struct series *s, const char *output)
{
    char *parent = output ? directory_of(output) : NULL;
    const int is_inside = parent && is_same_file(parent, s->directory);
    free(parent);
    return is_inside
               ? fail(CODE_ERROR, output,
                      "lies in the series, where only lmc puts files; name another place with -o")
               : CODE_OK;
}

/* Opens the series, finds the named snapshot and makes its chain. To be closed even after an
 * error. */
static int open_for_reading(struct series *s, struct chain *c, struct snapshot **e,
                            const struct options *o)
{
    int code = open_series(s, TO_READ, o);
    if (code == CODE_OK) code = choose_entry(s, o->names[0], STATE_KEPT, e);
    if (code == CODE_OK) code = open_chain(c, s, *e);
    else begin_chain(c, s, NULL);
    c->o.to_stdout = o->to_stdout;
    c->o.force = o->force;
    c->o.output = o->output;
    return code;
}

/* The suffix of the source's name, such as ".pt"; "" if it has none, or `name` has it already. */
static const char *missing_suffix(const struct snapshot *e)
{
    const char *const suffix = e->source ? container_suffix(e->source) : "";
    return strcmp(container_suffix(e->name), suffix) == 0 ? "" : suffix;
}

/* The output's path: of -o, or else the snapshot's name with missing_suffix(). To be freed. */
static char *name_restored(const struct snapshot *e, const struct options *o)
{
    const char *suffix = missing_suffix(e);
    char *name, *path;
    if (o->output && !goes_into_directory(o)) return copy_text(o->output);
    name = format_text("%s%s", e->name, suffix);
    if (!o->output) return name;
    path = join_path(o->output, name);
    free(name);
    return path;
}

int series_restore(const struct options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    char *target = NULL;
    int code = open_for_reading(&s, &c, &e, o);
    if (code == CODE_OK && !o->to_stdout) c.o.output = target = name_restored(e, o);
    if (code == CODE_OK) code = check_place(&s, file_of_output(&c.o));
    if (code == CODE_OK) {
        code = restore_file(e->path, &c.o);
        if (code == CODE_OK && o->verbosity > 0 && file_of_output(&c.o))
            say(o->directory, "%.300s is restored to %.400s", e->name, target);
    }
    free(target);
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

int series_cat(const struct options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    int code = open_for_reading(&s, &c, &e, o);
    if (code == CODE_OK) code = check_place(&s, file_of_output(o));
    if (code == CODE_OK) {
        c.o.names[0] = e->path; /* the tensor's name follows */
        code = cat_tensors(&c.o);
    }
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

static int verify_entry(const struct series *s, const struct snapshot *e)
{
    struct chain c;
    int code = open_chain(&c, s, e);
    if (code == CODE_OK) code = check_entry(s, e);
    if (code == CODE_OK) code = test_file(e->path, &c.o);
    free_bases(&c.bases);
    return code;
}

/* Verifies all kept snapshots and their bases. If a scratch file can be made, each file is read
 * once, else each snapshot is restored through its chain. */
static int verify_all(const struct series *s)
{
    const char *scratch = getenv("TMPDIR");
    int by_chains = access(scratch && *scratch ? scratch : s->directory, W_OK) != 0, code = CODE_OK;
    unsigned char *needed = (unsigned char *)zeroed(s->n + 1, 1);
    char **paths = (char **)resize(NULL, s->n, sizeof *paths);
    size_t n = 0;
    struct chain c;
    if (!by_chains) code = check_kept(s, 0, needed);
    for (size_t i = 0; i < s->n && by_chains; i++)
        if (s->list[i].state == STATE_KEPT) code = worse(code, verify_entry(s, &s->list[i]));
    for (size_t i = 0; i < s->n; i++)
        if (needed[i]) paths[n++] = s->list[i].path;
    begin_chain(&c, s, NULL);
    c.o.names = paths;
    c.o.n_names = n;
    if (!by_chains && n) code = worse(code, verify_files(&c.o));
    free_bases(&c.bases);
    free(paths);
    free(needed);
    return code;
}

int series_verify(const struct options *o)
{
    struct series s;
    struct snapshot *e;
    int code = open_series(&s, TO_READ, o);
    const size_t n = code == CODE_OK ? o->n_names : 0;
    if (code == CODE_OK && n == 0) code = verify_all(&s);
    for (size_t i = 0; i < n; i++) {
        int result = choose_entry(&s, o->names[i], STATE_KEPT, &e);
        code = worse(code, result == CODE_OK ? verify_entry(&s, e) : result);
    }
    close_series(&s);
    return code;
}
