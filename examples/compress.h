/* compress.h - files and directories to snapshots
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_COMPRESS_H
#define LMC_COMPRESS_H

#include "containers.h"
#include "files.h"
#include "options.h"

/* -- source: a file or a pipe, of which the beginning has been looked at -- */

#define FIRST_LOOK ((size_t)64 << 10)

struct source {
    const char *name;
    int is_named;             /* on the command line, not found in a directory: must be what its name says */
    int fd;
    struct stat st;
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
        s->size = at >= 0 && at <= s->st.st_size ? (uint64_t)(s->st.st_size - at) : 0;
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

/* -- writing -- */

static int fail_writer(enum lmc_status status, const struct output *out, const char *name)
{
    return status == LMC_ERR_WRITE ? fail_output(out, out->outlet.error) : fail_status(name, status);
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

/* Hands all bytes of the source to the writer. */
static int feed_source(struct source *s, lmc_writer *writer, const struct output *out)
{
    enum lmc_status status;
    lmc_stream stream;
    char byte;
    size_t more = 0;
    stream.read = read_stream;
    stream.user = s;
    status = lmc_write_stream(writer, &stream);
    if (status == LMC_OK && s->taken == s->size) /* then nobody has seen the end */
        read_stream(s, &byte, 1, &more);
    if (status != LMC_OK && status != LMC_ERR_READ)
        return fail_writer(status, out, s->name);
    if (s->error)
        return fail_errno(s->name, s->error, "cannot read it");
    if (more)
        return s->promised ? fail(CODE_ERROR, s->name, "goes on after the last tensor that its header tells of; save it to a file "
                                                       "first, or use --opaque")
                           : fail(CODE_ERROR, s->name, "grew while it was being read; try again when nobody writes to it");
    if (s->size != LMC_UNKNOWN_SIZE && s->taken != s->size)
        return s->promised ? fail(CODE_ERROR, s->name, "ends %llu bytes before the last tensor that its header tells of",
                                  (unsigned long long)(s->size - s->taken))
                           : fail(CODE_ERROR, s->name, "shrank while it was being read; try again when nobody writes to it");
    if (S_ISREG(s->st.st_mode)) {
        struct stat st;
        if (fstat(s->fd, &st) == 0 && (st.st_size != s->st.st_size || st.st_mtim.tv_sec != s->st.st_mtim.tv_sec ||
                                       st.st_mtim.tv_nsec != s->st.st_mtim.tv_nsec))
            return fail(CODE_ERROR, s->name, "was changed while it was being read; try again when nobody writes to it");
    }
    return CODE_OK;
}

/* Adds an identified source to the snapshot as path. */
static int add_source(struct source *s, const char *path, lmc_writer *writer, const struct options *o, const struct output *out)
{
    lmc_file file;
    enum lmc_status status;
    int code;
    memset(&file, 0, sizeof file);
    file.path = path;
    file.kind = LMC_FILE_REGULAR;
    file.size = s->size;
    if (S_ISREG(s->st.st_mode)) {
        file.has_mode = file.has_mtime = 1;
        file.mode = s->st.st_mode & 07777;
        file.mtime_s = s->st.st_mtim.tv_sec;
        file.mtime_ns = (uint32_t)s->st.st_mtim.tv_nsec;
    }
    file.tensors = s->container.tensors;
    file.n_tensors = s->container.n_tensors;
    status = lmc_begin_file(writer, &file, o->dtype);
    if (status != LMC_OK)
        return fail_writer(status, out, s->name);
    container_free(&s->container); /* the writer has a copy */
    code = feed_source(s, writer, out);
    if (code != CODE_OK)
        return code;
    status = lmc_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, s->name);
}

static int open_snapshot(lmc_writer **writer, struct output *out, const struct options *o)
{
    lmc_writer_options options;
    lmc_sink sink;
    enum lmc_status status;
    memset(&options, 0, sizeof options);
    options.parallel = &o->parallel;
    options.level = o->level;
    sink.write = write_output;
    sink.user = out;
    status = lmc_open_writer(writer, &sink, &options);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* -- --rm: the source goes when the snapshot on the disk has been restored and compared with it -- */

struct comparison {
    const char *root;
    char *path;
    int fd;
    size_t n_files;
    unsigned char *buffer;
    int code;
};

static int fail_comparison(struct comparison *c, const char *what)
{
    c->code = fail(CODE_ERROR, c->path ? c->path : c->root, "%s; nothing was removed", what);
    return 1;
}

static int compare_begin(void *user, const lmc_file *file, size_t number)
{
    struct comparison *c = (struct comparison *)user;
    struct stat st;
    c->path = join_path(c->root, file->path);
    c->n_files = number + 1;
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0 || fstat(c->fd, &st) != 0)
        return fail_comparison(c, "cannot be read again");
    if (S_ISDIR(st.st_mode) != (file->kind == LMC_FILE_DIRECTORY))
        return fail_comparison(c, "has changed meanwhile");
    return 0;
}

static int compare_bytes(void *user, const void *data, size_t size)
{
    struct comparison *c = (struct comparison *)user;
    while (size) {
        size_t part = size < FIRST_LOOK ? size : FIRST_LOOK, got;
        if (read_full(c->fd, c->buffer, part, &got) != 0 || got != part || memcmp(c->buffer, data, part) != 0)
            return fail_comparison(c, "differs from its snapshot");
        data = (const char *)data + part;
        size -= part;
    }
    return 0;
}

static int compare_end(void *user, const lmc_file *file, size_t number)
{
    struct comparison *c = (struct comparison *)user;
    size_t got = 0;
    (void)number;
    if (file->kind == LMC_FILE_REGULAR && (read_full(c->fd, c->buffer, 1, &got) != 0 || got))
        return fail_comparison(c, "is longer than its snapshot");
    close(c->fd);
    free(c->path);
    c->fd = -1;
    c->path = NULL;
    return 0;
}

/* Restores the snapshot at path and compares it with the files at root. */
static int verify_snapshot(const char *path, const char *root, const struct options *o, size_t *n_files)
{
    struct comparison c;
    struct source s;
    lmc_restore_options options;
    lmc_stream stream;
    enum lmc_status status;
    int code = open_source(&s, path);
    if (code != CODE_OK) {
        close_source(&s);
        return code;
    }
    memset(&c, 0, sizeof c);
    c.root = root;
    c.fd = -1;
    c.buffer = (unsigned char *)resize(NULL, FIRST_LOOK, 1);
    memset(&options, 0, sizeof options);
    options.parallel = &o->parallel;
    options.user = &c;
    options.begin_file = compare_begin;
    options.write = compare_bytes;
    options.end_file = compare_end;
    stream.read = read_stream;
    stream.user = &s;
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(s.fd, 0, 0, POSIX_FADV_DONTNEED); /* read what the disk has, not what memory remembers */
#endif
    status = lmc_restore_snapshot(&stream, &options, NULL);
    code = c.code;
    if (code == CODE_OK && status != LMC_OK)
        code = worse(CODE_ERROR, fail_status(path, status));
    if (c.fd >= 0)
        close(c.fd);
    free(c.path);
    free(c.buffer);
    close_source(&s);
    *n_files = c.n_files;
    return code;
}

static int remove_file_source(const char *path, const char *snapshot, const struct options *o)
{
    size_t n_files;
    int code = verify_snapshot(snapshot, path, o, &n_files);
    if (code == CODE_OK && unlink(path) != 0)
        code = fail_errno(path, errno, "cannot remove it");
    return code;
}

/* Whether an entry of a tree stands in the snapshot: all do, but the root only if it is empty. */
static int is_stored(const struct entry *e, const struct listing *l)
{
    return *e->path || l->n == 1;
}

/* Removes what was listed and no more: a file that came later keeps its directories. */
static int remove_listing(const struct listing *l, const char *root)
{
    for (size_t i = l->n; i-- > 0;) {
        char *path = join_path(root, l->entries[i].path);
        int error = (l->entries[i].is_directory ? rmdir(path) : unlink(path)) == 0 ? 0 : errno;
        int code = error ? fail_errno(path, error, "cannot remove it") : CODE_OK;
        free(path);
        if (code != CODE_OK)
            return code;
    }
    return CODE_OK;
}

static int remove_directory_source(const char *root, const char *snapshot, const struct listing *l, const struct options *o)
{
    size_t n_files, n_stored = 0;
    int code = verify_snapshot(snapshot, root, o, &n_files);
    for (size_t i = 0; i < l->n; i++)
        n_stored += (size_t)is_stored(&l->entries[i], l);
    if (code == CODE_OK && n_stored != n_files)
        code = fail(CODE_ERROR, snapshot, "does not hold every file of %s; nothing was removed", root);
    return code == CODE_OK ? remove_listing(l, root) : code;
}

/* -- files -- */

/* Where the snapshot of path goes; NULL: to standard output. To be freed. */
static char *name_snapshot(const char *path, const struct options *o)
{
    char *name;
    size_t size = strlen(path);
    if (o->output)
        return is_dash(o->output) ? NULL : copy_string(o->output, strlen(o->output));
    if (o->to_stdout || is_dash(path))
        return NULL;
    while (size > 1 && path[size - 1] == '/')
        size--;
    name = (char *)resize(NULL, size + sizeof SUFFIX, 1);
    memcpy(name, path, size);
    memcpy(name + size, SUFFIX, sizeof SUFFIX);
    return name;
}

/* Ends the snapshot and gives the output its name. The output is open on entry and closed on return. */
static int complete_snapshot(int code, lmc_writer *writer, struct output *out, const struct attributes *attributes)
{
    if (code == CODE_OK) {
        enum lmc_status status = lmc_finish_writer(writer);
        if (status != LMC_OK)
            code = fail_writer(status, out, output_name(out));
    }
    lmc_free_writer(writer);
    if (code != CODE_OK) {
        discard_output(out);
        return code;
    }
    return commit_output(out, attributes);
}

static int compress_source(struct source *s, const char *snapshot, const struct options *o)
{
    struct output out;
    struct attributes attributes;
    lmc_writer *writer = NULL;
    double start = now();
    int code;
    memset(&attributes, 0, sizeof attributes);
    if (S_ISREG(s->st.st_mode))
        attributes = attributes_of_stat(&s->st);
    code = open_output(&out, snapshot, S_ISREG(s->st.st_mode) ? &s->st : NULL, o->force);
    if (code != CODE_OK)
        return code;
    progress_start(s->name, s->size);
    code = open_snapshot(&writer, &out, o);
    if (code == CODE_OK)
        code = add_source(s, "", writer, o, &out);
    code = complete_snapshot(code, writer, &out, &attributes);
    progress_clear();
    if (code == CODE_OK)
        say_sizes(o, s->name, progress.done, out.outlet.size, progress.done, start);
    return code;
}

/* is_named: see struct source */
static int compress_file(const char *path, int is_named, const struct options *o)
{
    struct source s;
    char *snapshot;
    int code;
    if (has_suffix(path) && !o->force)
        return fail(CODE_ERROR, path, "is named " SUFFIX " already; use -f to compress it again, or -d to restore it");
    if (is_dash(path) && isatty(STDIN_FILENO) && !o->force)
        return fail(CODE_ERROR, NULL, "standard input is a terminal; name a file, or see 'lmc help'");
    snapshot = name_snapshot(path, o);
    code = open_source(&s, path);
    s.is_named = is_named;
    if (code == CODE_OK && snapshot) /* before a large header is read */
        code = check_output(snapshot, S_ISREG(s.st.st_mode) ? &s.st : NULL, o->force);
    if (code == CODE_OK)
        code = identify_source(&s, o);
    if (code == CODE_OK)
        code = compress_source(&s, snapshot, o);
    close_source(&s);
    if (code == CODE_OK && o->remove_source)
        code = remove_file_source(path, snapshot, o);
    free(snapshot);
    return code;
}

/* -- directories -- */

static int add_directory(const char *full, const char *path, lmc_writer *writer, const struct output *out)
{
    lmc_file file;
    struct stat st;
    enum lmc_status status;
    if (stat(full, &st) != 0)
        return fail_errno(full, errno, "cannot look at it");
    memset(&file, 0, sizeof file);
    file.path = path;
    file.kind = LMC_FILE_DIRECTORY;
    file.has_mode = file.has_mtime = 1;
    file.mode = st.st_mode & 07777;
    file.mtime_s = st.st_mtim.tv_sec;
    file.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
    status = lmc_begin_file(writer, &file, LMC_AUTO);
    if (status == LMC_OK)
        status = lmc_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, full);
}

/* existing: of the file that the output replaces, or NULL: it must not be among the sources. */
static int add_entry_of_tree(const struct entry *e, const char *root, lmc_writer *writer, const struct options *o,
                             const struct output *out, const struct stat *existing)
{
    char *full = join_path(root, e->path);
    struct source s;
    int code;
    if (strchr(e->path, '\\')) {
        code = fail(CODE_ERROR, full, "has a backslash in its name, which a snapshot cannot hold; rename it");
    } else if (e->is_directory) {
        code = add_directory(full, e->path, writer, out);
    } else {
        code = open_source(&s, full);
        if (code == CODE_OK && !S_ISREG(s.st.st_mode))
            code = fail(CODE_ERROR, full, "is no file any more; try again when nobody writes to the directory");
        if (code == CODE_OK && existing && same_file(&s.st, existing))
            code = fail(CODE_ERROR, full, "is the output, too; name another output with -o");
        if (code == CODE_OK)
            code = identify_source(&s, o);
        if (code == CODE_OK)
            code = add_source(&s, e->path, writer, o, out);
        close_source(&s);
    }
    free(full);
    return code;
}

static int write_tree(const struct listing *l, const char *root, const char *snapshot, const struct options *o)
{
    struct output out;
    struct attributes attributes;
    struct stat st, existing;
    lmc_writer *writer = NULL;
    int code, exists = snapshot && stat(snapshot, &existing) == 0;
    uint64_t total = 0;
    double start = now();
    if (stat(root, &st) != 0)
        return fail_errno(root, errno, "cannot look at it");
    attributes = attributes_of_stat(&st);
    attributes.mode &= 0666; /* a directory's x bits mean nothing for a file */
    code = open_output(&out, snapshot, NULL, o->force);
    if (code != CODE_OK)
        return code;
    for (size_t i = 0; i < l->n; i++)
        total += l->entries[i].size;
    progress_start(root, total);
    code = open_snapshot(&writer, &out, o);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++)
        if (is_stored(&l->entries[i], l))
            code = add_entry_of_tree(&l->entries[i], root, writer, o, &out, exists ? &existing : NULL);
    code = complete_snapshot(code, writer, &out, &attributes);
    progress_clear();
    if (code == CODE_OK)
        say_sizes(o, root, progress.done, out.outlet.size, progress.done, start);
    return code;
}

/* One snapshot of everything below path. */
static int compress_directory(const char *path, const struct options *o)
{
    struct listing l;
    struct stat st;
    char *root = copy_string(path, strlen(path)), *snapshot;
    const char *name;
    int code;
    for (size_t size = strlen(root); size > 1 && root[size - 1] == '/'; size--)
        root[size - 1] = 0;
    name = strrchr(root, '/') ? strrchr(root, '/') + 1 : root;
    snapshot = name_snapshot(root, o);
    memset(&l, 0, sizeof l);
    if (o->remove_source && lstat(root, &st) == 0 && S_ISLNK(st.st_mode)) {
        code = fail(CODE_ERROR, root, "is a link to a directory, and --rm removes only what it is told by its own name; name that "
                                      "directory");
    } else if (snapshot && !o->output && (*name == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)) {
        code = fail(CODE_ERROR, path, "has no name to derive that of the output from; name it with -o");
    } else {
        code = list_tree(&l, root);
    }
    for (size_t i = 0; i < l.n && code == CODE_OK; i++)
        if (is_temporary_name(l.entries[i].path))
            code = fail(CODE_ERROR, root, "holds '%.300s', an output that lmc is writing, or was when it was killed; wait, or "
                                          "remove it", l.entries[i].path);
    if (code == CODE_OK)
        code = write_tree(&l, root, snapshot, o);
    if (code == CODE_OK && o->remove_source)
        code = remove_directory_source(root, snapshot, &l, o);
    free_listing(&l);
    free(snapshot);
    free(root);
    return code;
}

#endif
