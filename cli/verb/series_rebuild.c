/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "../sys/tree.h"
#include "series_chain.h"
#include "series_manifest.h"
#include "series_open.h"

static int compare_entries_by_name(const void *a, const void *b)
{
    return compare_names(((const struct snapshot *)a)->name, ((const struct snapshot *)b)->name);
}

static int take_in_file(struct series *s, const char *file_name)
{
    char *name = copy_string(file_name, strlen(file_name) - strlen(SUFFIX));
    const char *fault = find_fault_of_name(name);
    struct snapshot *e;
    struct stat st;
    int code = CODE_OK;
    if (fault) {
        code = fail(CODE_ERROR, s->directory, "holds '%.300s', whose name %s; rename it", file_name,
                    fault);
    } else {
        e = add_entry_to_series(s, name, NULL);
        if (stat(e->path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe would be waited for */
            code = fail(CODE_ERROR, e->path, "is no file; move it away");
        else code = read_identity(e->path, e->identity, &e->size, &s->o->common);
        e->time = stat(e->path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec : 0;
        look_at_file(e);
    }
    free(name);
    return code;
}

static int take_in_files(struct series *s)
{
    DIR *d = opendir(s->directory);
    struct dirent *entry;
    int code = CODE_OK, error = 0;
    if (!d) return fail_errno(s->directory, errno, "cannot read the directory");
    while ((entry = next_entry(d, &error)) != NULL)
        if (entry->d_name[0] != '.' && has_suffix(entry->d_name))
            code = worse(code, take_in_file(s, entry->d_name));
    closedir(d);
    if (error) code = worse(code, fail_errno(s->directory, error, "cannot read the directory"));
    if (s->n) qsort(s->list, s->n, sizeof *s->list, compare_entries_by_name);
    return code;
}

/* Gives the list another name, under which it stays when the new one takes its own; it keeps that
 * until then. */
static int keep_list(const char *path, const char *old)
{
    struct stat st;
    int error = 0;
    if (lstat(path, &st) != 0) /* what was kept before is all there is */
        return errno == ENOENT ? CODE_OK : fail_errno(path, errno, "cannot access it");
    if (unlink(old) != 0 && errno != ENOENT) error = errno;
    if (!error && link(path, old) != 0 && errno != ENOENT &&
        rename(path, old) != 0) /* where there are no links */
        error = errno;
    return error ? fail_errno(old, error, "cannot keep the list as that") : CODE_OK;
}

int series_rebuild(const char *directory, const struct series_options *o)
{
    struct series s;
    char *old = NULL;
    unsigned char *known;
    int code = open_series(&s, directory, TO_REBUILD, o);
    if (code == CODE_OK) code = remove_temporaries(&s);
    if (code == CODE_OK) {
        code = take_in_files(&s);
        if (code != CODE_OK)
            say(directory,
                "the list was not made: move away what is no snapshot, or damaged, then try again");
    }
    if (o->every) s.every = o->every;
    old = path_in_series(directory, MANIFEST_NAME, ".old");
    if (code == CODE_OK) code = keep_list(s.manifest_path, old);
    if (code == CODE_OK) code = save_manifest(&s);
    index_series(&s);
    known = (unsigned char *)resize(NULL, s.n + 1, 1);
    memset(known, 0, s.n + 1);
    for (size_t i = 0; i < s.n && code == CODE_OK; i++)
        code = worse(code, check_chain_of(&s, &s.list[i], 0, known));
    free(known);
    free(old);
    close_series(&s);
    return code;
}
