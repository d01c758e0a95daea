/* SPDX-License-Identifier: MIT */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "../../formats/container.h"
#include "../../formats/view.h"
#include "opened.h"
#include "common.h"
#include "lost.h"
#include "metadata_beside.h"
#include "side_file.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

/* /dev/stdin, or what a shell makes of <(...): it has been opened already. */
static int is_descriptor(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/", 6) == 0;
}

int check_regular(const char *path, int is_wanted)
{
    struct stat st;
    if (is_wanted || is_dash(path) || is_descriptor(path) || stat(path, &st) != 0 ||
        S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return CODE_OK;
    return fail(CODE_ERROR, path,
                "is no regular file, and is skipped; to read it all the same use -c, -o or '<'");
}

int open_source(struct source *s, const char *path)
{
    memset(s, 0, sizeof *s);
    s->name = is_dash(path) ? "(standard input)" : path;
    s->size = LMC_UNKNOWN_SIZE;
    s->fd = is_dash(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) return fail_errno(s->name, errno, "cannot open it");
    if (fstat(s->fd, &s->st) != 0) return fail_errno(s->name, errno, "cannot access it");
    if (S_ISREG(s->st.st_mode)) {
        off_t at = lseek(s->fd, 0, SEEK_CUR);
        if (at < 0) return fail_errno(s->name, errno, "cannot access it");
        s->start = at <= s->st.st_size ? (uint64_t)at : (uint64_t)s->st.st_size;
        s->size = (uint64_t)s->st.st_size - s->start;
    }
    return CODE_OK;
}

void close_source(struct source *s)
{
    if (s->fd > STDIN_FILENO) close(s->fd);
    free(s->head);
    container_free(&s->container);
}

int read_head(struct source *s, size_t size)
{
    size_t got;
    int error;
    if (size <= s->head_size || s->head_ended) return CODE_OK;
    s->head = (unsigned char *)resize(s->head, size, 1);
    error = read_full(s->fd, s->head + s->head_size, size - s->head_size, &got);
    if (error) return fail_errno(s->name, error, "cannot read it");
    s->head_size += got;
    s->head_ended = s->head_size < size;
    if (s->head_ended && S_ISREG(s->st.st_mode) && s->head_size < s->size)
        return fail_changed(s->name);
    if (s->head_ended && s->size == LMC_UNKNOWN_SIZE) s->size = s->head_size;
    return CODE_OK;
}

/* A raw array of o->dtype: one tensor without name, if its size is known and fits. */
static void make_raw_tensor(struct source *s, enum lmc_dtype dtype)
{
    struct container *c = &s->container;
    unsigned bits = lmc_dtype_bits(dtype);
    if (s->size == LMC_UNKNOWN_SIZE || s->size % bits * 8 % bits != 0) return;
    c->tensors = (lmc_tensor *)resize(NULL, 1, sizeof *c->tensors);
    c->shapes = (uint64_t *)resize(NULL, 1, sizeof *c->shapes);
    memset(c->tensors, 0, sizeof *c->tensors);
    c->shapes[0] = s->size / bits * 8 + s->size % bits * 8 / bits;
    c->tensors->name = "";
    c->tensors->dtype = lmc_dtype_name(dtype);
    c->tensors->rank = 1;
    c->tensors->shape = c->shapes;
    c->tensors->size = s->size;
    c->n_tensors = 1;
}

/* Takes what the parser found in the header. */
static int accept_container(struct source *s, enum container_result result,
                            enum container_kind expected, const struct common *o)
{
    struct container *c = &s->container;
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    if (result == CONTAINER_BAD && expected != CONTAINER_NONE && !s->is_named) {
        if (o->verbosity > 0)
            say(s->name, "is not a valid %s file: %s; stored as plain bytes",
                container_name(expected), c->error);
    } else if (result == CONTAINER_BAD && expected != CONTAINER_NONE)
        return fail(
            CODE_ERROR, s->name,
            "is not a valid %s file: %s; repair it, or use --opaque to store it as plain bytes",
            container_name(expected), c->error);
    if (result == CONTAINER_OK && s->size == LMC_UNKNOWN_SIZE) {
        s->size = c->end;
        s->promised = c->end != LMC_UNKNOWN_SIZE;
    }
    if (result == CONTAINER_OTHER && o->verbosity >= 2 &&
        container_is_legacy_torch(s->head, s->head_size))
        say(s->name, "is of a PyTorch of before 1.6, which is not read: stored as plain bytes");
    if (result != CONTAINER_OK || s->size == LMC_UNKNOWN_SIZE) container_free(c);
    return CODE_OK;
}

static int read_view_of_source(void *user, uint64_t offset, void *dst, size_t size)
{
    const struct source *s = (const struct source *)user;
    return read_at(s->fd, s->start + offset, dst, size);
}

/* A file of PyTorch, whose directory is at its end. What it is not is plain bytes. */
static void look_through_view(struct source *s, const struct common *o)
{
    struct container *c = &s->container;
    const char *name = base_name(s->name);
    struct view v;
    enum container_result result;
    v.size = v.weight = s->size;
    v.read = read_view_of_source;
    v.user = s;
    result = container_parse_view(c, &v, name,
                                  s->fd != STDIN_FILENO ? find_metadata_beside(s->name, o) : NULL);
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    if ((result == CONTAINER_BAD || result == CONTAINER_OTHER) && c->error[0] && o->verbosity >= 2)
        say(s->name, "is not read as a file of PyTorch: %s; stored as plain bytes", c->error);
    if (result == CONTAINER_OK && c->note[0] && o->verbosity >= 2) say(s->name, "%s", c->note);
    if (result != CONTAINER_OK) container_free(c);
}

/* What was named was meant to be more than that. */
static int take_lfs_pointer(const struct source *s, const struct common *o)
{
    if (s->is_named)
        return fail(CODE_ERROR, s->name, LFS_POINTER_SAYS ", or use --opaque to take it as it is");
    if (o->verbosity > 0) say(s->name, LFS_POINTER_SAYS "; taken as it is");
    return CODE_OK;
}

int identify_source(struct source *s, const struct common *o)
{
    enum container_kind expected =
        o->opaque || o->dtype != LMC_AUTO ? CONTAINER_NONE : container_kind_of_name(s->name);
    enum container_result result = CONTAINER_MORE;
    size_t size = FIRST_LOOK;
    while (result == CONTAINER_MORE) {
        int code = read_head(s, size);
        if (code != CODE_OK) return code;
        if (o->opaque) return CODE_OK;
        if (o->dtype != LMC_AUTO) {
            make_raw_tensor(s, o->dtype);
            return CODE_OK;
        }
        if (container_is_lfs_pointer(s->head, s->head_size)) return take_lfs_pointer(s, o);
        if (S_ISREG(s->st.st_mode) && container_wants_view(s->head, s->head_size, s->name)) {
            look_through_view(s, o);
            return CODE_OK;
        }
        result = container_parse(&s->container, s->head, s->head_size, s->size, expected);
        if (result == CONTAINER_MORE && s->head_ended) /* it shrank; feed_source will tell */
            return CODE_OK;
        size = s->head_size * 2 > s->container.need ? s->head_size * 2 : s->container.need;
        if (size > CONTAINER_MAX_HEADER) size = CONTAINER_MAX_HEADER;
    }
    return accept_container(s, result, expected, o);
}

enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got)
{
    struct source *s = (struct source *)user;
    if (s->head_taken < s->head_size) {
        *got = s->head_size - s->head_taken < size ? s->head_size - s->head_taken : size;
        memcpy(dst, s->head + s->head_taken, *got);
        s->head_taken += *got;
        if (s->head_taken == s->head_size) {
            free(s->head);
            s->head = NULL;
        }
    } else if (!s->head_ended) {
        s->error = read_some(s->fd, dst, size, got);
    } else {
        *got = 0;
    }
    s->taken += *got;
    progress_add(*got);
    return s->error ? LMC_ERR_READ : LMC_OK;
}

/* -- trees of sources -- */

void say_unreadable(const struct listing *l, size_t from, size_t n, const char *root)
{
    size_t n_found = n;
    for (size_t i = from; i < l->n; i++) {
        char *full;
        int fd;
        if (l->entries[i].is_directory || l->entries[i].link) continue;
        full = join_path(root, l->entries[i].path);
        fd = open(full, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* it may be a FIFO by now */
        if (fd >= 0) close(fd);
        else if (n_found++ < MOST_NAMED) (void)fail_errno(full, errno, "cannot open it");
        free(full);
    }
    if (n_found > MOST_NAMED)
        say(root, "holds %llu more files that cannot be opened",
            (unsigned long long)(n_found - MOST_NAMED));
}

int list_sources(struct listing *l, const char *root, int is_removed, const struct common *o)
{
    int code = list_tree(l, root, o->links, most_files(o));
    if (code != CODE_OK) say_unreadable(l, 0, 0, root);
    for (size_t i = 0; i < l->n_others && code == CODE_OK && o->verbosity > 0; i++)
        say(root, "'%.300s' is neither a file nor a directory nor a link, and is left out",
            l->others[i]);
    if (l->n_outside && code == CODE_OK && o->verbosity > 0)
        say(root,
            "holds %llu link%s to directories outside of it, which are stored as links; "
            "--dereference stores what is there",
            (unsigned long long)l->n_outside, l->n_outside == 1 ? "" : "s");
    if (l->n_special && code == CODE_OK && o->verbosity > 0)
        say(root, "holds %llu link%s to devices, pipes or sockets, which are stored as links",
            (unsigned long long)l->n_special, l->n_special == 1 ? "" : "s");
    if (code == CODE_OK && o->verbosity > (is_removed ? 0 : 1)) say_followed_links(l, root);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++) {
        const char *path = l->entries[i].path;
        if (is_temporary_name(path))
            code = fail(CODE_ERROR, root,
                        "holds '%.300s', an output that lmc is writing, or was when it was killed; "
                        "wait, or remove it",
                        path);
        else if (is_side_name(path))
            code = fail(
                CODE_ERROR, root,
                "holds '%.300s', of an lmc apply that is at work or was killed; finish that first",
                path);
    }
    return code;
}

static int has_files(const struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (*l->entries[i].path && !l->entries[i].link) return 1;
    return 0;
}

int is_stored(const struct entry *e, const struct listing *l)
{
    return *e->path ? !e->link : !has_files(l);
}
