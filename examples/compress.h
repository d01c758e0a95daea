/* compress.h - files and directories to snapshots
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_COMPRESS_H
#define LMC_COMPRESS_H

#include "quantise.h"

/* -- writing -- */

static int fail_writer(enum lmc_status status, const struct output *out, const char *name)
{
    return status == LMC_ERR_WRITE ? fail_output(out, out->outlet.error) : fail_status(name, status);
}

/* Hands all bytes of the source to the writer. */
static int feed_source(struct source *s, lmc_writer *writer, const struct members *m, const struct options *o, const struct output *out)
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
    if (status == LMC_ERR_READ) /* of a base or a twin, which has said so */
        return worse(o->bases->code, m->code);
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
        if (fstat(s->fd, &st) != 0 || !same_state(&st, &s->st))
            return fail_changed(s->name);
    }
    return CODE_OK;
}

/* Adds an open source to the snapshot: the member of that number. */
static int add_source(struct source *s, struct members *m, size_t number, lmc_writer *writer, const struct options *o,
                      const struct output *out)
{
    const struct member *member = &m->list[number];
    lmc_file file;
    enum lmc_status status;
    int code = fit_quantizers(m, number, o);
    if (code != CODE_OK)
        return code;
    memset(&file, 0, sizeof file);
    file.path = member->path;
    file.kind = LMC_FILE_REGULAR;
    file.size = s->size;
    if (S_ISREG(s->st.st_mode)) {
        file.has_mode = file.has_mtime = 1;
        file.mode = s->st.st_mode & 07777;
        file.mtime_s = s->st.st_mtim.tv_sec;
        file.mtime_ns = (uint32_t)s->st.st_mtim.tv_nsec;
    }
    file.tensors = member->tensors;
    file.n_tensors = member->n_tensors;
    status = lmc_begin_file(writer, &file, o->dtype);
    if (status != LMC_OK)
        return fail_writer(status, out, s->name);
    code = feed_source(s, writer, m, o, out);
    if (code != CODE_OK)
        return code;
    status = lmc_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, s->name);
}

/* base: NULL or what the snapshot is coded against */
static int open_snapshot(lmc_writer **writer, struct output *out, struct members *m, const struct base *base, const struct options *o)
{
    lmc_writer_options options;
    lmc_sink sink;
    enum lmc_status status;
    char *name = base ? name_base(base) : NULL;
    memset(&options, 0, sizeof options);
    options.parallel = &o->parallel;
    options.level = o->policy->is_max ? LMC_LEVEL_MAX : o->level;
    options.log2_block = o->policy->log2_block;
    options.base = m->base = base ? &base->source : NULL;
    options.read_back = m->twins || m->has_pairs ? read_member : NULL;
    options.read_back_user = m;
    sink.write = write_output;
    sink.user = out;
    status = lmc_open_writer(writer, &sink, &options);
    if (status == LMC_OK && name)
        status = lmc_add_metadata(*writer, BASE_KEY, name, strlen(name));
    free(name);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* -- --rm: the source goes when the snapshot on the disk has been restored and compared with it -- */

struct comparison {
    struct second_look again;
    const char *root;
    char *path;
    int fd;
    int may_lack;   /* files that are gone already are no difference */
    int may_lose;   /* what is quantised is none either */
    size_t n_files; /* below the root, that were there */
    const lmc_file *file;
    uint64_t at;    /* in the file */
    size_t tensor;  /* the first that does not end before */
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
    (void)number;
    c->file = file;
    c->at = 0;
    c->tensor = 0;
    c->path = join_path(c->root, file->path);
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0 && errno == ENOENT && c->may_lack)
        return 0;
    c->n_files += *file->path != 0;
    if (c->fd < 0 || fstat(c->fd, &st) != 0)
        return fail_comparison(c, "cannot be read again");
    if (S_ISDIR(st.st_mode) != (file->kind == LMC_FILE_DIRECTORY))
        return fail_comparison(c, "has changed meanwhile");
    return 0;
}

/* How many of the next bytes, at most size, must be equal, or, where a tensor is quantised, need not be. */
static size_t choose_part(struct comparison *c, size_t size, int *is_exact)
{
    const lmc_tensor *t = c->file->tensors;
    uint64_t end = c->at + size;
    *is_exact = 1;
    if (!c->may_lose)
        return size;
    while (c->tensor < c->file->n_tensors && (t[c->tensor].loss.generation == 0 || t[c->tensor].offset + t[c->tensor].size <= c->at))
        c->tensor++;
    *is_exact = c->tensor == c->file->n_tensors || t[c->tensor].offset > c->at;
    if (c->tensor < c->file->n_tensors) {
        uint64_t border = *is_exact ? t[c->tensor].offset : t[c->tensor].offset + t[c->tensor].size;
        end = border < end ? border : end;
    }
    return (size_t)(end - c->at);
}

static int compare_bytes(void *user, const void *data, size_t size)
{
    struct comparison *c = (struct comparison *)user;
    while (size && c->fd >= 0) {
        int is_exact;
        size_t part = choose_part(c, size < FIRST_LOOK ? size : FIRST_LOOK, &is_exact), got;
        if (read_full(c->fd, c->buffer, part, &got) != 0 || got != part || (is_exact && memcmp(c->buffer, data, part) != 0))
            return fail_comparison(c, "differs from its snapshot");
        c->at += part;
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
    if (c->fd >= 0 && file->kind == LMC_FILE_REGULAR && (read_full(c->fd, c->buffer, 1, &got) != 0 || got))
        return fail_comparison(c, "is longer than its snapshot");
    if (c->fd >= 0)
        close(c->fd);
    free(c->path);
    c->fd = -1;
    c->path = NULL;
    return 0;
}

static enum lmc_status compare_read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    return read_second_look(&((struct comparison *)user)->again, number, offset, dst, size);
}

/* Restores the snapshot at path and compares it with the files at root. may_lack: files that are gone are passed over; may_lose: what is
 * quantised need not be equal: never before the files are removed. *n_files: those that were compared, below root. */
static int verify_snapshot(const char *path, const char *root, int may_lack, int may_lose, const struct options *o, size_t *n_files)
{
    struct comparison c;
    struct source s;
    lmc_restore_options options;
    lmc_stream stream;
    enum lmc_status status;
    const lmc_base *base;
    int code = open_source(&s, path);
    if (code == CODE_OK)
        code = choose_base_of_source(&base, &s, o);
    if (code != CODE_OK) {
        close_source(&s);
        return code;
    }
    memset(&c, 0, sizeof c);
    c.again.source = &s;
    c.again.base = base;
    c.again.o = o;
    c.root = root;
    c.may_lack = may_lack;
    c.may_lose = may_lose;
    c.fd = -1;
    c.buffer = (unsigned char *)resize(NULL, FIRST_LOOK, 1);
    memset(&options, 0, sizeof options);
    options.parallel = &o->parallel;
    options.user = &c;
    options.begin_file = compare_begin;
    options.write = compare_bytes;
    options.end_file = compare_end;
    options.base = base;
    options.read_back = compare_read_back;
    stream.read = read_stream;
    stream.user = &s;
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(s.fd, 0, 0, POSIX_FADV_DONTNEED); /* read what the disk has, not what memory remembers */
#endif
    status = lmc_restore_snapshot(&stream, &options, NULL);
    code = c.code;
    if (code == CODE_OK && status != LMC_OK)
        code = worse(CODE_ERROR, fail_restore(&s, status, o));
    close_second_look(&c.again);
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
    int code = verify_snapshot(snapshot, path, 0, 0, o, &n_files);
    if (code == CODE_OK && unlink(path) != 0)
        code = fail_errno(path, errno, "cannot remove it");
    return code;
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
    size_t n_files;
    int code = verify_snapshot(snapshot, root, 0, 0, o, &n_files);
    if (code == CODE_OK && n_files != l->n - 1)
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

/* Adds what is open, or looked at; path: in the snapshot. Takes its tensors. */
static void add_member(struct members *m, const char *path, const char *full, struct source *s)
{
    struct member *member = &m->list[m->n++];
    memset(member, 0, sizeof *member);
    member->path = path;
    member->full = copy_string(full, strlen(full));
    member->st = s->st;
    member->n_tensors = s->container.n_tensors;
    member->tensors = copy_tensors(s->container.tensors, s->container.n_tensors);
    container_free(&s->container);
}

/* Nobody has written to what others repeat after it was stored. */
static int check_members(const struct members *m)
{
    struct stat st;
    for (size_t i = 0; (m->twins || m->has_pairs) && i < m->n; i++)
        if (S_ISREG(m->list[i].st.st_mode) && (stat(m->list[i].full, &st) != 0 || !same_state(&st, &m->list[i].st)))
            return fail_changed(m->list[i].full);
    return CODE_OK;
}

/* What was written of a snapshot is what its index says that it is: the blocks, each by itself, do not tell. */
static int check_identity(const struct archive *a, const lmc_writer *writer)
{
    uint8_t read[LMC_IDENTITY_SIZE], written[LMC_IDENTITY_SIZE];
    lmc_get_identity(a->reader, read);
    if (lmc_get_writer_identity(writer, written) == LMC_OK && memcmp(read, written, sizeof read) == 0)
        return CODE_OK;
    return fail_status(a->name, LMC_ERR_CORRUPT);
}

/* Ends the snapshot and gives the output its name. The output is open on entry and closed on return. */
static int complete_snapshot(int code, lmc_writer *writer, struct output *out, const struct attributes *attributes,
                             const struct members *m, const struct options *o)
{
    if (code == CODE_OK)
        code = check_bases(o);
    if (code == CODE_OK)
        code = check_members(m);
    if (code == CODE_OK) {
        enum lmc_status status = record_choices(writer, m, o);
        if (status == LMC_OK)
            status = lmc_finish_writer(writer);
        if (status != LMC_OK)
            code = fail_writer(status, out, output_name(out));
        else if (m->archive)
            code = check_identity(m->archive, writer);
    }
    lmc_free_writer(writer);
    if (code != CODE_OK) {
        discard_output(out);
        return code;
    }
    return commit_output(out, attributes);
}

/* Chooses what is quantised, and finds what repeats. can_refer: the output is a file; can_read_twice: so are the sources. */
static int look_at_members(struct members *m, int can_refer, int can_read_twice, const struct options *o)
{
    can_refer = can_refer && !o->no_twins;
    if (choose_all(m, can_refer, o) && !can_read_twice)
        return fail(CODE_ERROR, NULL, "what is quantised is read twice, which standard input and pipes cannot; save it to a file first, "
                                      "or leave out --quant and --policy");
    return can_refer && can_read_twice ? find_twins(m) : CODE_OK;
}

static int compress_source(struct source *s, const char *path, const char *snapshot, const struct options *o)
{
    struct output out;
    struct attributes attributes;
    struct members m;
    lmc_writer *writer = NULL;
    const struct base *base;
    double start = now();
    int code = choose_base(&base, o);
    if (code != CODE_OK)
        return code;
    memset(&attributes, 0, sizeof attributes);
    if (S_ISREG(s->st.st_mode))
        attributes = attributes_of_stat(&s->st);
    code = open_output(&out, snapshot, S_ISREG(s->st.st_mode) ? &s->st : NULL, o->force);
    if (code != CODE_OK)
        return code;
    memset(&m, 0, sizeof m);
    m.list = (struct member *)resize(NULL, 1, sizeof *m.list);
    add_member(&m, "", path, s);
    code = look_at_members(&m, out.temporary != NULL, !is_dash(path) && S_ISREG(s->st.st_mode), o);
    progress_start(s->name, s->size);
    if (code == CODE_OK)
        code = open_snapshot(&writer, &out, &m, base, o);
    if (code == CODE_OK)
        code = add_source(s, &m, 0, writer, o, &out);
    code = complete_snapshot(code, writer, &out, &attributes, &m, o);
    progress_clear();
    if (code == CODE_OK)
        say_sizes(o, s->name, progress.done, out.outlet.size, progress.done, start);
    if (code == CODE_OK)
        say_if_nothing_quantised(&m, s->name, o);
    free_members(&m);
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
    if (is_side_name(path))
        return fail(CODE_ERROR, path, "is the side file of an lmc apply that is at work or was killed; finish that first");
    if (!is_dash(path) && check_finished(path, CODE_ERROR) != CODE_OK)
        return CODE_ERROR;
    snapshot = name_snapshot(path, o);
    code = open_source(&s, path);
    s.is_named = is_named;
    if (code == CODE_OK && snapshot) /* before a large header is read */
        code = check_output(snapshot, S_ISREG(s.st.st_mode) ? &s.st : NULL, o->force);
    if (code == CODE_OK)
        code = protect_bases(path, snapshot, 0, o);
    if (code == CODE_OK)
        code = identify_source(&s, o);
    if (code == CODE_OK)
        code = compress_source(&s, path, snapshot, o);
    close_source(&s);
    if (code == CODE_OK && o->remove_source)
        code = remove_file_source(path, snapshot, o);
    free(snapshot);
    return code;
}

/* -- directories -- */

static int add_directory(const struct member *member, lmc_writer *writer, const struct output *out)
{
    lmc_file file;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    file.path = member->path;
    file.kind = LMC_FILE_DIRECTORY;
    file.has_mode = file.has_mtime = 1;
    file.mode = member->st.st_mode & 07777;
    file.mtime_s = member->st.st_mtim.tv_sec;
    file.mtime_ns = (uint32_t)member->st.st_mtim.tv_nsec;
    status = lmc_begin_file(writer, &file, LMC_AUTO);
    if (status == LMC_OK)
        status = lmc_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, member->full);
}

/* Looks at an entry of a tree. existing: of the file that the output replaces, or NULL: it must not be among the sources. */
static int look_at_entry(struct members *m, const struct entry *e, const char *root, const struct options *o, const struct stat *existing)
{
    char *full = join_path(root, e->path);
    struct source s;
    int code = open_source(&s, full);
    if (code == CODE_OK && S_ISDIR(s.st.st_mode) != e->is_directory)
        code = fail_changed(full);
    if (code == CODE_OK && !e->is_directory && !S_ISREG(s.st.st_mode))
        code = fail(CODE_ERROR, full, "is no file any more; try again when nobody writes to the directory");
    if (code == CODE_OK && existing && same_file(&s.st, existing))
        code = fail(CODE_ERROR, full, "is the output, too; name another output with -o");
    if (code == CODE_OK && !e->is_directory)
        code = identify_source(&s, o);
    if (code == CODE_OK)
        add_member(m, e->path, full, &s);
    close_source(&s);
    free(full);
    return code;
}

static int write_member(struct members *m, size_t number, lmc_writer *writer, const struct options *o, const struct output *out)
{
    const struct member *member = &m->list[number];
    struct source s;
    int code;
    if (S_ISDIR(member->st.st_mode))
        return add_directory(member, writer, out);
    code = open_source(&s, member->full);
    if (code == CODE_OK && !same_state(&s.st, &member->st))
        code = fail_changed(member->full);
    if (code == CODE_OK)
        code = add_source(&s, m, number, writer, o, out);
    close_source(&s);
    return code;
}

static int write_tree(struct members *m, const char *root, const char *snapshot, const struct options *o)
{
    struct output out;
    struct attributes attributes;
    struct stat st;
    lmc_writer *writer = NULL;
    const struct base *base;
    uint64_t total = 0;
    double start = now();
    int code = choose_base(&base, o);
    if (code != CODE_OK)
        return code;
    if (stat(root, &st) != 0)
        return fail_errno(root, errno, "cannot look at it");
    attributes = attributes_of_stat(&st);
    attributes.mode &= 0666; /* a directory's x bits mean nothing for a file */
    code = open_output(&out, snapshot, NULL, o->force);
    if (code != CODE_OK)
        return code;
    code = look_at_members(m, out.temporary != NULL, 1, o);
    for (size_t i = 0; i < m->n; i++)
        if (S_ISREG(m->list[i].st.st_mode))
            total += (uint64_t)m->list[i].st.st_size;
    progress_start(root, total);
    if (code == CODE_OK)
        code = open_snapshot(&writer, &out, m, base, o);
    for (size_t i = 0; i < m->n && code == CODE_OK; i++)
        code = write_member(m, i, writer, o, &out);
    code = complete_snapshot(code, writer, &out, &attributes, m, o);
    progress_clear();
    if (code == CODE_OK)
        say_sizes(o, root, progress.done, out.outlet.size, progress.done, start);
    if (code == CODE_OK)
        say_if_nothing_quantised(m, root, o);
    return code;
}

/* The listing must outlive the members. */
static int compress_listing(const struct listing *l, const char *root, const char *snapshot, const struct options *o)
{
    struct members m;
    struct stat existing;
    int code = CODE_OK, exists = snapshot && stat(snapshot, &existing) == 0;
    memset(&m, 0, sizeof m);
    m.list = (struct member *)resize(NULL, l->n, sizeof *m.list);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++)
        if (is_stored(&l->entries[i], l))
            code = look_at_entry(&m, &l->entries[i], root, o, exists ? &existing : NULL);
    if (code == CODE_OK)
        code = write_tree(&m, root, snapshot, o);
    free_members(&m);
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
        code = check_finished(root, CODE_ERROR);
        if (code == CODE_OK)
            code = protect_bases(root, snapshot, 0, o);
        if (code == CODE_OK)
            code = list_sources(&l, root);
    }
    if (code == CODE_OK)
        code = compress_listing(&l, root, snapshot, o);
    if (code == CODE_OK && o->remove_source)
        code = remove_directory_source(root, snapshot, &l, o);
    free_listing(&l);
    free(snapshot);
    free(root);
    return code;
}

#endif
