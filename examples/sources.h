/* sources.h - what is read: files and pipes from front to back, snapshots by their index
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_SOURCES_H
#define LMC_SOURCES_H

#include "containers.h"
#include "files.h"
#include "options.h"

static int fail_changed(const char *path)
{
    return fail(CODE_ERROR, path, "was changed while it was being read; try again when nobody writes to it");
}

/* -- source: a file or a pipe, of which the beginning has been looked at -- */

#define FIRST_LOOK ((size_t)64 << 10)

struct source {
    const char *name;
    int is_named;             /* on the command line, not found in a directory: must be what its name says */
    int fd;
    struct stat st;
    uint64_t start;           /* in a regular file: standard input may be somewhere in it */
    uint64_t size;            /* LMC_UNKNOWN_SIZE: it comes from a pipe and has no header that tells */
    int promised;             /* the size is what a header in the pipe said */
    unsigned char *head;      /* the beginning, already read */
    size_t head_size, head_taken;
    int head_ended;           /* and there is no more */
    struct container container;
    uint64_t taken;           /* bytes handed over by read_stream */
    int error;                /* errno of read_stream */
};

/* path "-": standard input. */
static int open_source(struct source *s, const char *path)
{
    memset(s, 0, sizeof *s);
    s->name = is_dash(path) ? "(standard input)" : path;
    s->size = LMC_UNKNOWN_SIZE;
    s->fd = is_dash(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return fail_errno(s->name, errno, "cannot open it");
    if (fstat(s->fd, &s->st) != 0)
        return fail_errno(s->name, errno, "cannot look at it");
    if (S_ISREG(s->st.st_mode)) {
        off_t at = lseek(s->fd, 0, SEEK_CUR);
        if (at < 0)
            return fail_errno(s->name, errno, "cannot look at it");
        s->start = at <= s->st.st_size ? (uint64_t)at : (uint64_t)s->st.st_size;
        s->size = (uint64_t)s->st.st_size - s->start;
    }
    return CODE_OK;
}

static void close_source(struct source *s)
{
    if (s->fd > STDIN_FILENO)
        close(s->fd);
    free(s->head);
    container_free(&s->container);
}

/* Reads until size bytes of the beginning are there or the source ends. */
static int read_head(struct source *s, size_t size)
{
    size_t got;
    int error;
    if (size <= s->head_size || s->head_ended)
        return CODE_OK;
    s->head = (unsigned char *)resize(s->head, size, 1);
    error = read_full(s->fd, s->head + s->head_size, size - s->head_size, &got);
    if (error)
        return fail_errno(s->name, error, "cannot read it");
    s->head_size += got;
    s->head_ended = s->head_size < size;
    if (s->head_ended && S_ISREG(s->st.st_mode) && s->head_size < s->size)
        return fail_changed(s->name);
    if (s->head_ended && s->size == LMC_UNKNOWN_SIZE)
        s->size = s->head_size;
    return CODE_OK;
}

/* A raw array of o->dtype: one tensor without name, if its size is known and fits. */
static void make_raw_tensor(struct source *s, enum lmc_dtype dtype)
{
    struct container *c = &s->container;
    unsigned bits = lmc_dtype_bits(dtype);
    if (s->size == LMC_UNKNOWN_SIZE || s->size % bits * 8 % bits != 0)
        return;
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
static int accept_container(struct source *s, enum container_result result, enum container_kind expected, const struct options *o)
{
    struct container *c = &s->container;
    if (result == CONTAINER_MEMORY)
        check_memory(NULL);
    if (result == CONTAINER_BAD && expected != CONTAINER_NONE && !s->is_named) {
        if (o->verbosity > 0)
            say(s->name, "is no valid %s file: %s; stored as plain bytes", container_name(expected), c->error);
    } else if (result == CONTAINER_BAD && expected != CONTAINER_NONE)
        return fail(CODE_ERROR, s->name, "is no valid %s file: %s; repair it, or use --opaque to store it as plain bytes",
                    container_name(expected), c->error);
    if (result == CONTAINER_OK && s->size == LMC_UNKNOWN_SIZE) {
        s->size = c->end;
        s->promised = c->end != LMC_UNKNOWN_SIZE;
    }
    if (result != CONTAINER_OK || s->size == LMC_UNKNOWN_SIZE)
        container_free(c);
    return CODE_OK;
}

/* Finds the tensors of the source. */
static int identify_source(struct source *s, const struct options *o)
{
    enum container_kind expected = o->opaque || o->dtype != LMC_AUTO ? CONTAINER_NONE : container_kind_of_name(s->name);
    enum container_result result = CONTAINER_MORE;
    size_t size = FIRST_LOOK;
    while (result == CONTAINER_MORE) {
        int code = read_head(s, size);
        if (code != CODE_OK)
            return code;
        if (o->opaque)
            return CODE_OK;
        if (o->dtype != LMC_AUTO) {
            make_raw_tensor(s, o->dtype);
            return CODE_OK;
        }
        result = container_parse(&s->container, s->head, s->head_size, s->size, expected);
        if (result == CONTAINER_MORE && s->head_ended) /* it shrank; feed_source will tell */
            return CODE_OK;
        size = s->head_size * 2 > s->container.need ? s->head_size * 2 : s->container.need;
        if (size > CONTAINER_MAX_HEADER)
            size = CONTAINER_MAX_HEADER;
    }
    return accept_container(s, result, expected, o);
}

/* As lmc_stream asks; user: a source. */
static int read_stream(void *user, void *dst, size_t size, size_t *got)
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
    return s->error;
}

/* -- anywhere in a file -- */

/* All of size bytes; 0 or errno, -1 where the file ends before. */
static int read_at(int fd, uint64_t offset, void *dst, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (char *)dst + done, size - done, (off_t)(offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n == 0 ? -1 : errno;
    }
    return 0;
}

/* The one of several files that is open. */
struct opened {
    int fd;
    const char *path; /* NULL: none */
};

static void close_opened(struct opened *f)
{
    if (f->path)
        close(f->fd);
    f->path = NULL;
}

/* st: when it was looked at; nobody may have written to it since then. */
static int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset, void *dst, size_t size)
{
    struct stat now_st;
    int error;
    if (f->path != path) {
        close_opened(f);
        f->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (f->fd < 0)
            return fail_errno(path, errno, "cannot open it");
        f->path = path;
        if (fstat(f->fd, &now_st) != 0 || !same_state(&now_st, st))
            return fail_changed(path);
    }
    error = read_at(f->fd, offset, dst, size);
    return error > 0 ? fail_errno(path, error, "cannot read it") : error ? fail_changed(path) : CODE_OK;
}

/* -- trees of sources -- */

/* All that a snapshot of the directory may hold, in the order of the paths. */
static int list_sources(struct listing *l, const char *root)
{
    int code = list_tree(l, root);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++) {
        const char *path = l->entries[i].path;
        if (is_temporary_name(path))
            code = fail(CODE_ERROR, root, "holds '%.300s', an output that lmc is writing, or was when it was killed; wait, or remove it", path);
        else if (is_side_name(path))
            code = fail(CODE_ERROR, root, "holds '%.300s', of an lmc apply that is at work or was killed; finish that first", path);
        else if (strchr(path, '\\'))
            code = fail(CODE_ERROR, root, "holds '%.300s', with a backslash in its name, which a snapshot cannot hold; rename it", path);
    }
    return code;
}

/* Whether an entry of a tree stands in the snapshot: all do, but the root only if it is empty. */
static int is_stored(const struct entry *e, const struct listing *l)
{
    return *e->path || l->n == 1;
}

/* -- a snapshot by its index -- */

struct archive {
    const char *name;
    const struct options *o;
    int fd;
    uint64_t start;      /* of the snapshot in the file */
    struct stat st;
    lmc_reader *reader;
    lmc_reader *lender;  /* or NULL: shares its buffers; of the base, if that is a snapshot */
    uint8_t wanted[LMC_IDENTITY_SIZE]; /* the base, of a delta */
    uint32_t chain_depth;
    uint64_t n_reads, n_bytes;
    int error; /* errno of a failed read; -1: the file ended */
};

static int read_archive(void *user, uint64_t offset, void *dst, size_t size)
{
    struct archive *a = (struct archive *)user;
    a->n_reads++;
    a->n_bytes += size;
    a->error = read_at(a->fd, a->start + offset, dst, size);
    return a->error != 0;
}

static int fail_archive(const struct archive *a, enum lmc_status status)
{
    if (status == LMC_ERR_READ && a->error == 0) /* a base could not be read, and has said so */
        return a->o->bases->code;
    if (status == LMC_ERR_READ && a->error > 0)
        return fail_errno(a->name, a->error, "cannot read it");
    return fail_status(a->name, status == LMC_ERR_READ ? LMC_ERR_TRUNCATED : status);
}

static void close_archive(struct archive *a)
{
    lmc_free_reader(a->reader);
    if (a->fd > STDIN_FILENO)
        close(a->fd);
}

static uint64_t archive_size(const struct archive *a)
{
    return (uint64_t)a->st.st_size - a->start;
}

/* Opens the file and looks whether it is a delta. */
static int open_archive_file(struct archive *a, const char *path, const struct options *o)
{
    uint8_t header[LMC_FILE_HEADER_SIZE];
    off_t at;
    memset(a, 0, sizeof *a);
    a->o = o;
    a->name = is_dash(path) ? "(standard input)" : path;
    a->fd = is_dash(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (a->fd < 0 || fstat(a->fd, &a->st) != 0)
        return fail_errno(a->name, errno, "cannot open it");
    if (S_ISDIR(a->st.st_mode))
        return fail(CODE_ERROR, a->name, "is a directory; name a file");
    if (!S_ISREG(a->st.st_mode))
        return fail(CODE_ERROR, a->name, "is no regular file, and the index stands at the end; save it to a file first");
    at = lseek(a->fd, 0, SEEK_CUR);
    if (at < 0)
        return fail_errno(a->name, errno, "cannot look at it");
    a->start = at <= a->st.st_size ? (uint64_t)at : (uint64_t)a->st.st_size;
    if (read_at(a->fd, a->start, header, sizeof header) == 0 && lmc_read_header(header, a->wanted, &a->chain_depth) != LMC_OK)
        a->chain_depth = 0; /* what is wrong with it is found again when it is read */
    return CODE_OK;
}

/* The snapshot that is being read from a regular file from front to back, to read in it anywhere. */
static int open_archive_of_source(struct archive *a, struct source *s, const struct options *o)
{
    memset(a, 0, sizeof *a);
    a->o = o;
    a->name = s->name;
    a->fd = dup(s->fd);
    a->start = s->start;
    a->st = s->st;
    return a->fd < 0 ? fail_errno(a->name, errno, "cannot open it") : CODE_OK;
}

/* base: NULL for one that is no delta, or that is only listed. */
static int read_archive_index(struct archive *a, const lmc_base *base)
{
    lmc_source source;
    lmc_reader_options options;
    enum lmc_status status;
    lmc_free_reader(a->reader);
    a->reader = NULL;
    source.read_at = read_archive;
    source.user = a;
    source.size = archive_size(a);
    memset(&options, 0, sizeof options);
    options.parallel = &a->o->parallel;
    options.base = base;
    options.lender = a->lender;
    status = lmc_open_reader(&a->reader, &source, &options);
    return status == LMC_OK ? CODE_OK : fail_archive(a, status);
}

static uint64_t total_of_files(const lmc_reader *reader)
{
    uint64_t total = 0;
    for (size_t i = 0; i < lmc_count_files(reader); i++)
        total += lmc_get_file(reader, i)->size;
    return total;
}

/* An entry of the metadata; NULL: there is none. To be freed. */
static char *copy_metadata(const struct archive *a, const char *wanted)
{
    const char *key;
    const void *value;
    size_t size;
    for (size_t i = 0; lmc_get_metadata(a->reader, i, &key, &value, &size) == LMC_OK; i++)
        if (strcmp(key, wanted) == 0)
            return copy_string((const char *)value, size);
    return NULL;
}

/* text: of 2 * size + 1 bytes */
static void format_hex(char *text, const void *data, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
}

static void format_identity(char text[2 * LMC_IDENTITY_SIZE + 1], const uint8_t *identity)
{
    format_hex(text, identity, LMC_IDENTITY_SIZE);
}

#endif
