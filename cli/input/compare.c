/* SPDX-License-Identifier: MIT */

#include "base.h"
#include "options.h"
#include "links.h"
#include "reread.h"
#include "../sys/io.h"
#include "../sys/spot.h"

struct comparison {
    struct reread again; /* must be first, for restore_source() */
    const char *root;
    char *path;
    int fd;
    int may_lose;   /* quantised tensors may differ */
    int *differs;   /* NULL: a difference is reported */
    size_t n_files; /* below the root, compared */
    const lmc_file *file;
    uint64_t at;   /* in the file */
    size_t tensor; /* the first tensor that ends behind `at` */
    unsigned char *buffer;
    int code;
};

static enum lmc_status fail_comparison(struct comparison *c, const char *what)
{
    c->code = CODE_ERROR;
    if (c->differs) *c->differs = 1;
    else fail(CODE_ERROR, c->path ? c->path : c->root, "%s; nothing was removed", what);
    return LMC_ERR_WRITE;
}

static enum lmc_status compare_begin(void *user, const lmc_file *file, size_t number)
{
    struct comparison *c = (struct comparison *)user;
    struct stat st;
    (void)number;
    c->file = file;
    c->at = 0;
    c->tensor = 0;
    c->path = join_path(c->root, file->path);
    c->fd = open_file(AT_FDCWD, c->path, O_RDONLY);
    c->n_files += *file->path != 0;
    if (c->fd < 0 || fstat(c->fd, &st) != 0) {
        if (errno == ENOENT) return fail_comparison(c, "is missing, but the snapshot has it");
        if (!c->differs) return fail_comparison(c, "cannot be read again");
        c->code = fail_errno(c->path, errno, "cannot be read again");
        return LMC_ERR_WRITE;
    }
    if (file->kind == LMC_FILE_DIRECTORY ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        return fail_comparison(c, "has changed meanwhile");
    return LMC_OK;
}

/* Size of the next part, at most `size`: its bytes must be equal (is_exact), or they may differ. */
static size_t choose_part(struct comparison *c, size_t size, int *is_exact)
{
    const lmc_tensor *t = c->file->tensors;
    uint64_t end = c->at + size;
    *is_exact = 1;
    if (!c->may_lose) return size;
    while (c->tensor < c->file->n_tensors &&
           (t[c->tensor].loss.generation == 0 || t[c->tensor].offset + t[c->tensor].size <= c->at))
        c->tensor++;
    *is_exact = c->tensor == c->file->n_tensors || t[c->tensor].offset > c->at;
    if (c->tensor < c->file->n_tensors) {
        uint64_t border = *is_exact ? t[c->tensor].offset : t[c->tensor].offset + t[c->tensor].size;
        end = border < end ? border : end;
    }
    return (size_t)(end - c->at);
}

static enum lmc_status compare_bytes(void *user, const void *data, size_t size)
{
    struct comparison *c = (struct comparison *)user;
    while (size && c->fd >= 0) {
        int is_exact;
        size_t part = choose_part(c, size < FIRST_LOOK ? size : FIRST_LOOK, &is_exact), got;
        if (read_full(c->fd, c->buffer, part, &got) != 0 || got != part ||
            (is_exact && memcmp(c->buffer, data, part) != 0))
            return fail_comparison(c, "differs from its snapshot");
        c->at += part;
        data = (const char *)data + part;
        size -= part;
    }
    return LMC_OK;
}

static enum lmc_status compare_end(void *user, const lmc_file *file, size_t number)
{
    struct comparison *c = (struct comparison *)user;
    size_t got = 0;
    (void)number;
    if (c->fd >= 0 && file->kind == LMC_FILE_REGULAR &&
        (read_full(c->fd, c->buffer, 1, &got) != 0 || got))
        return fail_comparison(c, "is longer than its snapshot");
    if (c->fd >= 0) close(c->fd);
    free(c->path);
    c->fd = -1;
    c->path = NULL;
    return LMC_OK;
}

/* Compares symbolic links. Hard links were compared as files. */
static int compare_links(struct comparison *c)
{
    char target[65536];
    for (size_t i = 0; i < c->again.links.n && c->code == CODE_OK; i++) {
        const struct link *l = &c->again.links.list[i];
        if (l->type != LINK_SYMBOLIC) continue;
        c->path = join_path(c->root, l->path);
        ssize_t size = readlink(c->path, target, sizeof target);
        if (size != (ssize_t)strlen(l->target) || memcmp(target, l->target, (size_t)size) != 0)
            (void)fail_comparison(c, "leads elsewhere than its snapshot says");
        c->n_files++;
        free(c->path);
        c->path = NULL;
    }
    return c->code;
}

int verify_snapshot(const char *path, const char *root, const struct listing *l, int may_lose,
                    int *differs, const struct options *o)
{
    struct comparison c = {0};
    struct source s;
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    enum lmc_status status;
    const lmc_base *base;
    int code = open_listed(&s, path);
    if (code == CODE_OK) code = choose_base_of_source(&base, &s, o);
    if (code != CODE_OK) {
        close_source(&s);
        return code;
    }
    init_reread(&c.again, &s, base, o);
    c.root = root;
    c.may_lose = may_lose;
    c.differs = differs;
    c.fd = -1;
    c.buffer = (unsigned char *)resize(NULL, FIRST_LOOK, 1);
    options.begin_file = compare_begin;
    options.write = compare_bytes;
    options.end_file = compare_end;
#ifdef POSIX_FADV_DONTNEED
    /* reads from the disk, not from the page cache */
    posix_fadvise(s.fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    status = restore_source(&c.again, &options, NULL);
    code = c.code;
    if (code == CODE_OK && status != LMC_OK)
        code = worse(CODE_ERROR, fail_restore(&c.again, status));
    if (code == CODE_OK) code = compare_links(&c);
    close_reread(&c.again);
    if (c.fd >= 0) close(c.fd);
    free(c.path);
    free(c.buffer);
    close_source(&s);
    if (code != CODE_OK || !l || c.n_files == l->n - 1) return code;
    if (differs) *differs = 1;
    else fail(CODE_ERROR, root, "holds something that %s does not; nothing was removed", path);
    return CODE_ERROR;
}
