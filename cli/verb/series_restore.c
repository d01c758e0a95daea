/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/base.h"
#include "../input/common.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "cat.h"
#include "restore.h"
#include "series_chain.h"
#include "series_manifest.h"
#include "series_open.h"
#include "test.h"
#include "verify.h"

/* An output in the directory would be taken for one that a kill has left. */
static int check_place(const struct series *s, const char *output)
{
    char *parent = output ? directory_of(output) : NULL;
    struct stat st, of_series;
    int is_inside = parent && stat(parent, &st) == 0 && stat(s->directory, &of_series) == 0 &&
                    same_file(&st, &of_series);
    free(parent);
    return is_inside
               ? fail(CODE_ERROR, output,
                      "lies in the series, where only lmc puts files; name another place with -o")
               : CODE_OK;
}

/* Opens the series to read that snapshot, and makes its chain; to be closed in any case. */
static int open_for_reading(struct series *s, struct chain *c, struct snapshot **e,
                            const char *directory, const char *name, const struct series_options *o)
{
    int code;
    begin_chain(c, &o->common);
    code = open_series(s, directory, TO_READ, o);
    if (code == CODE_OK) code = choose_entry(s, name, STATE_KEPT, e);
    if (code == CODE_OK) index_series(s);
    if (code == CODE_OK) code = check_chain_of(s, *e, 0, NULL);
    if (code == CODE_OK) add_links(c, s, *e, 0);
    c->common.to_stdout = o->common.to_stdout;
    c->common.force = o->common.force;
    c->common.output = o->common.output;
    return code;
}

static int is_suffix_of(const char *suffix, const char *name)
{
    const size_t size = strlen(name), length = strlen(suffix);
    return size > length && strcmp(name + size - length, suffix) == 0;
}

/* The suffix by which programs know what the source was; "" if it has none, or the name has it. */
static const char *missing_suffix(const struct snapshot *e)
{
    static const char *const suffixes[] = {".safetensors", ".gguf", ".npy", ".pt",
                                           ".pth",         ".bin",  ".ckpt"};
    for (unsigned i = 0; e->source && i < sizeof suffixes / sizeof *suffixes; i++)
        if (is_suffix_of(suffixes[i], e->source) && !is_suffix_of(suffixes[i], e->name))
            return suffixes[i];
    return "";
}

/* Where it goes: what was asked for, with that suffix. To be freed. */
static char *name_restored(const struct snapshot *e, const struct common *o)
{
    const char *suffix = missing_suffix(e);
    const size_t size = strlen(e->name), more = strlen(suffix);
    char *name, *directory, *path;
    if (o->output && !goes_into_directory(o)) return copy_string(o->output, strlen(o->output));
    name = (char *)resize(NULL, size + more + 1, 1);
    memcpy(name, e->name, size);
    memcpy(name + size, suffix, more + 1);
    if (!o->output) return name;
    directory = copy_without_slashes(o->output);
    path = join_path(directory, name);
    free(directory);
    free(name);
    return path;
}

int series_restore(const char *directory, const char *name, const struct series_options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    char *target = NULL;
    int code = open_for_reading(&s, &c, &e, directory, name, o);
    if (code == CODE_OK && !o->common.to_stdout)
        c.common.output = target = name_restored(e, &o->common);
    if (code == CODE_OK) code = check_place(&s, file_of_output(&c.common));
    if (code == CODE_OK) {
        const struct restore_options to_restore = {c.common, 0};
        code = restore_file(e->path, &to_restore);
        if (code == CODE_OK && o->common.verbosity > 0 && file_of_output(&c.common))
            say(directory, "%.300s is restored to %.400s", e->name, target);
    }
    free(target);
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

int series_cat(const char *directory, const char *name, char *tensor,
               const struct series_options *o)
{
    struct series s;
    struct chain c;
    struct snapshot *e;
    int code = open_for_reading(&s, &c, &e, directory, name, o);
    if (code == CODE_OK) code = check_place(&s, file_of_output(&o->common));
    if (code == CODE_OK) {
        struct cat_options to_cat;
        char *names[1];
        memset(&to_cat, 0, sizeof to_cat);
        to_cat.common = c.common;
        to_cat.npy = o->npy;
        to_cat.file = o->file;
        names[0] = tensor;
        code = cat_tensors(e->path, names, tensor != NULL, &to_cat);
    }
    free_bases(&c.bases);
    close_series(&s);
    return code;
}

static int verify_entry(const struct series *s, const struct snapshot *e)
{
    struct chain c;
    int code = check_chain_of(s, e, 0, NULL);
    if (code == CODE_OK) code = check_entry(s, e);
    if (code != CODE_OK) return code;
    begin_chain(&c, &s->o->common);
    add_links(&c, s, e, 0);
    code = test_file(e->path, &c.common);
    free_bases(&c.bases);
    return code;
}

/* All that are kept, and what they need: each link once, with room for one or two restored
 * snapshots; where there can be none, each through its chain. */
static int verify_all(const struct series *s)
{
    const char *scratch = getenv("TMPDIR");
    int by_chains = access(scratch && *scratch ? scratch : s->directory, W_OK) != 0, code = CODE_OK;
    unsigned char *needed = (unsigned char *)resize(NULL, 2 * s->n + 1, 1),
                  *known = needed + s->n; /* their chains are right */
    char **paths = (char **)resize(NULL, s->n, sizeof *paths);
    size_t n = 0;
    struct chain c;
    memset(needed, 0, 2 * s->n);
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_KEPT) {
            const struct snapshot *e = &s->list[i];
            int result = by_chains ? verify_entry(s, e) : check_chain_of(s, e, 0, known);
            if (result == CODE_OK && !by_chains) result = check_entry(s, e);
            for (; e && result == CODE_OK && !needed[e - s->list]; e = find_base_of(s, e, 0))
                needed[e - s->list] = 1;
            code = worse(code, result);
        }
    for (size_t i = 0; i < s->n; i++)
        if (needed[i]) paths[n++] = s->list[i].path;
    begin_chain(&c, &s->o->common);
    if (!by_chains && n) code = worse(code, verify_files(paths, n, &c.common));
    free_bases(&c.bases);
    free(paths);
    free(needed);
    return code;
}

int series_verify(const char *directory, char **args, int n, const struct series_options *o)
{
    struct series s;
    struct snapshot *e;
    int code = open_series(&s, directory, TO_READ, o);
    if (code == CODE_OK) index_series(&s);
    if (code == CODE_OK && n == 0) code = verify_all(&s);
    else if (code == CODE_OK)
        for (int i = 0; i < n; i++) {
            int result = choose_entry(&s, args[i], STATE_KEPT, &e);
            code = worse(code, result == CODE_OK ? verify_entry(&s, e) : result);
        }
    close_series(&s);
    return code;
}
