/* SPDX-License-Identifier: MIT */
#include "plain.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "common.h"
#include "source.h"
#include "walk.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "../sys/tree.h"

static const lmc_file *get_plain_file(void *user, size_t number)
{
    const struct plain *p = (const struct plain *)user;
    return number < p->n ? &p->files[number].file : NULL;
}

static enum lmc_status read_plain_file(void *user, size_t number, uint64_t offset, void *dst,
                                       size_t size)
{
    struct plain *p = (struct plain *)user;
    const struct plain_file *f = &p->files[number];
    int *const code = &p->o->bases->code;
    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;
    *code = read_opened(&p->opened, f->full, &f->st, offset, dst, size);
    return *code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

/* Takes over full. is_named: see struct source */
static int take_plain_file(struct plain *p, const char *path, char *full, int is_named)
{
    struct plain_file *f = &p->files[p->n++];
    struct source s;
    int code = open_source(&s, full);
    memset(f, 0, sizeof *f);
    f->full = full;
    f->file.path = f->path = copy_string(path, strlen(path));
    s.is_named = is_named;
    if (code == CODE_OK && !S_ISDIR(s.st.st_mode)) code = identify_source(&s, p->o);
    f->st = s.st;
    f->container = s.container;
    memset(&s.container, 0, sizeof s.container);
    f->file.kind = S_ISDIR(s.st.st_mode) ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    f->file.size = S_ISREG(s.st.st_mode) ? s.size : 0;
    f->file.tensors = f->container.tensors;
    f->file.n_tensors = f->container.n_tensors;
    close_source(&s);
    return code;
}

static int take_plain_tree(struct plain *p, const char *path)
{
    struct listing l;
    int code = list_sources(&l, path, 0, p->o);
    p->files = (struct plain_file *)resize(NULL, l.n + 1, sizeof *p->files);
    for (size_t i = 0; i < l.n && code == CODE_OK; i++)
        if (is_stored(&l.entries[i], &l))
            code = take_plain_file(p, l.entries[i].path, join_path(path, l.entries[i].path), 0);
    free_listing(&l);
    return code;
}

/* Of what has a name: whether it may be something else than a snapshot. */
static int may_be_plain(const struct archive *a)
{
    return a->st.st_size && !has_suffix(a->name) && memcmp(a->header, start_magic, 4) != 0 &&
           !container_is_lfs_pointer(a->header, sizeof a->header);
}

int open_archive_or_plain(struct archive *a, struct plain *p, const char *path,
                          const struct common *o)
{
    struct stat st;
    int code = CODE_OK, is_tree = !is_dash(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    memset(p, 0, sizeof *p);
    p->o = o;
    if (is_tree) {
        memset(a, 0, sizeof *a);
        a->name = path;
        a->o = o;
        a->fd = -1;
        a->st = st;
        code = take_plain_tree(p, path);
    } else {
        code = open_archive_file(a, path, o);
        if (code != CODE_OK || is_dash(path) || !may_be_plain(a)) return code;
        p->files = (struct plain_file *)resize(NULL, 1, sizeof *p->files);
        code = take_plain_file(p, "", copy_string(path, strlen(path)), 1);
        if (code == CODE_OK && p->files->container.kind == CONTAINER_NONE) return CODE_OK;
    }
    p->base.n_files = p->n;
    p->base.get_file = get_plain_file;
    p->base.read = read_plain_file;
    p->base.user = p;
    a->plain = &p->base;
    if (code == CODE_OK && o->bases->n)
        code = fail(CODE_ERROR, a->name,
                    "is not compressed, so it has no base: leave out --base (to compare the two, "
                    "use lmc diff or lmc stats --base)");
    return code;
}

int protect_plain(const struct plain *p, const char *output)
{
    struct stat st;
    if (!output || stat(output, &st) != 0) return CODE_OK;
    for (size_t i = 0; i < p->n; i++)
        if (p->files[i].st.st_dev == st.st_dev && p->files[i].st.st_ino == st.st_ino)
            return fail(CODE_ERROR, output, "output and input are the same file");
    return CODE_OK;
}

void close_plain(struct plain *p)
{
    close_opened(&p->opened);
    for (size_t i = 0; i < p->n; i++) {
        free(p->files[i].path);
        free(p->files[i].full);
        container_free(&p->files[i].container);
    }
    free(p->files);
    p->files = NULL;
    p->n = 0;
}
