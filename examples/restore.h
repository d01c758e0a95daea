/* restore.h - snapshots to files and directories, and tests of them
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_RESTORE_H
#define LMC_RESTORE_H

#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "compress.h"

/* A directory gets its mode and time when everything in it is there. */
struct directory {
    char *path;
    struct attributes attributes;
};

/* What was restored, for --rm to read it again. */
struct record {
    char *path;
    uint64_t size;
    uint32_t crc;
};

struct restore {
    const struct options *o;
    const char *input;
    const struct stat *input_stat;
    char *target;          /* NULL: standard output */
    int is_tree, started;
    struct output out;     /* not of a tree */
    struct attributes attributes;
    /* of a tree */
    const char *root;      /* temporary directory, registered until it gets its name */
    struct listing replaced; /* with -f: what was at the target; empty: nothing */
    int is_empty;          /* the root itself is all there is */
    char *path;            /* of the file in work */
    struct outlet outlet;  /* fd -1: closed */
    struct directory *directories;
    size_t n_directories, room_for_directories;
    struct record *records;
    size_t n_records, room;
    char **paths;          /* of the files so far, to read them again */
    size_t n_paths, room_for_paths;
    int fd_again;          /* one of them; -1 */
    size_t again_number;
    struct second_look again; /* not of a tree */
    uint64_t total;
    uint64_t n_quantised;  /* tensors */
    int code;              /* what a callback has reported */
};

static int stop_restore(struct restore *r, int code)
{
    r->code = code;
    return code != CODE_OK;
}

/* -- trees: restored below a temporary directory beside the target -- */

static int check_target(const struct restore *r)
{
    struct stat st;
    if (lstat(r->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(r->target, errno, "cannot look at it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, r->target, "exists already and is no directory; name another one with -o");
    if (!r->o->force)
        return fail(CODE_ERROR, r->target, "exists already; use -f to replace it, or name another directory with -o");
    if (!is_dash(r->input) && lies_within(r->input, r->target))
        return fail(CODE_ERROR, r->target, "holds the snapshot itself and cannot be replaced; name another directory with -o");
    return CODE_OK;
}

static int begin_tree(struct restore *r)
{
    int code;
    if (!r->target)
        return fail(CODE_ERROR, r->input, "holds a directory, which cannot go to standard output; name a directory with -o");
    code = check_target(r);
    if (code != CODE_OK)
        return code;
    return create_temporary(r->target, NULL, &r->root);
}

/* Makes the directories above path; 0 or errno. Called with the lock of the temporary name. */
static int make_parents(char *path, size_t root_size)
{
    for (char *slash = strchr(path + root_size + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        int result;
        *slash = 0;
        result = mkdir(path, 0777);
        *slash = '/';
        if (result != 0 && errno != EEXIST)
            return errno;
    }
    return 0;
}

/* The temporary directory is new, private and without links: what the library has checked of a path is enough. */
static int begin_tree_file(struct restore *r, const lmc_file *file)
{
    int error;
    r->path = join_path(r->root, file->path);
    pthread_mutex_lock(&temporary.lock);
    error = *file->path ? make_parents(r->path, strlen(r->root)) : 0;
    if (!error && file->kind == LMC_FILE_DIRECTORY) {
        if (mkdir(r->path, 0777) != 0 && errno != EEXIST) /* what is in it may have come before it */
            error = errno;
    } else if (!error) {
        r->outlet.fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        error = r->outlet.fd < 0 ? errno : 0;
        r->outlet.size = 0;
        r->outlet.sparse = 1;
    }
    pthread_mutex_unlock(&temporary.lock);
    return error ? fail_errno(file->path, error, "cannot create it") : CODE_OK;
}

static void add_directory_record(struct restore *r, const lmc_file *file)
{
    struct directory *d;
    if (r->n_directories == r->room_for_directories) {
        r->room_for_directories = r->room_for_directories * 2 + 16;
        r->directories = (struct directory *)resize(r->directories, r->room_for_directories, sizeof *d);
    }
    d = &r->directories[r->n_directories++];
    d->path = copy_string(file->path, strlen(file->path));
    d->attributes = attributes_of_file(file);
    if (!d->attributes.has_mode)
        d->attributes.mode = 0777 & ~umask_of_process;
    d->attributes.has_mode = 1;
}

static int end_tree_file(struct restore *r, const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    int error = 0;
    if (r->outlet.fd < 0) {
        add_directory_record(r, file);
    } else {
        error = outlet_finish(&r->outlet);
        if (!error)
            error = set_attributes(r->outlet.fd, &a);
        if (!error && fsync(r->outlet.fd) != 0 && errno != EINVAL)
            error = errno;
        if (close(r->outlet.fd) != 0 && !error)
            error = errno;
    }
    r->outlet.fd = -1;
    free(r->path);
    r->path = NULL;
    return error ? fail_errno(file->path, error, "cannot write it") : CODE_OK;
}

static int compare_directories(const void *a, const void *b)
{
    return strcmp(((const struct directory *)a)->path, ((const struct directory *)b)->path);
}

/* From the leaves to the root: a mode may lock everything below. 0 or errno. */
static int finish_directories(struct restore *r)
{
    int error = sync_directories(r->root);
    if (r->n_directories)
        qsort(r->directories, r->n_directories, sizeof *r->directories, compare_directories);
    for (size_t i = r->n_directories; i-- > 0 && !error;) {
        char *path = join_path(r->root, r->directories[i].path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &r->directories[i].attributes);
        if (!error && fsync(fd) != 0 && errno != EINVAL)
            error = errno;
        if (fd >= 0)
            close(fd);
        free(path);
    }
    return error;
}

/* mkdtemp made the root private. An empty root has got a mode of its own; for another one the snapshot's file stands in,
 * which had it from the root. 0 or errno. */
static int set_root_mode(const struct restore *r)
{
    mode_t mode = r->input_stat ? r->input_stat->st_mode & 0666 : 0666;
    mode |= (mode & 0444) >> 2;
    return r->is_empty || chmod(r->root, mode & ~umask_of_process) == 0 ? 0 : errno;
}

/* rename() with a flag; 0 or errno. ENOSYS: there is no such thing here. */
enum rename_flag { MOVE_ONLY = 1, EXCHANGE = 2 }; /* Linux's RENAME_NOREPLACE, RENAME_EXCHANGE */

static int rename_by(const char *from, const char *to, enum rename_flag flag)
{
#if defined(__linux__) && defined(SYS_renameat2)
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, (unsigned)flag) == 0)
        return 0;
    return errno == EINVAL ? ENOSYS : errno; /* as file systems say */
#else
    (void)from;
    (void)to;
    (void)flag;
    return ENOSYS;
#endif
}

/* Puts the tree where nothing is, at once where the system can; 0 or errno. Elsewhere an empty directory claims the name, which
 * rename then replaces. */
static int move_tree(const char *from, const char *to)
{
    int error = rename_by(from, to, MOVE_ONLY);
    if (error != ENOSYS)
        return error;
    if (mkdir(to, 0700) != 0)
        return errno;
    if (rename(from, to) != 0) {
        error = errno;
        rmdir(to);
        return error;
    }
    return 0;
}

/* Puts the tree where another one is. That one steps aside first, and comes back if anything fails. 0 or errno. Called
 * with the lock of the temporary name. */
static int exchange_trees(const char *from, const char *to, char *aside)
{
    int error = 0;
    if (!mkdtemp(aside)) {
        error = errno;
    } else if (rename(to, aside) != 0) {
        error = errno;
        rmdir(aside);
    } else if (rename(from, to) != 0) {
        error = errno;
        if (rename(aside, to) != 0)
            say(to, "could not be put back; it is kept as %s", aside);
    }
    return error;
}

/* Puts one name in the place of the other, both at once where the system can; 0 or errno. */
static int exchange_names(const char *from, const char *to, char *aside, int *is_aside)
{
    int error = rename_by(from, to, EXCHANGE);
    *is_aside = error == ENOSYS;
    return *is_aside ? exchange_trees(from, to, aside) : error;
}

/* With -f only a directory is replaced of which everything comes back: the rest would be lost. Fills r->replaced. */
static int check_replaced(struct restore *r)
{
    struct stat st, top;
    int code;
    if (!r->o->force || lstat(r->target, &top) != 0)
        return CODE_OK;
    code = list_tree(&r->replaced, r->target);
    for (size_t i = 0; i < r->replaced.n && code == CODE_OK; i++) {
        const struct entry *e = &r->replaced.entries[i];
        char *old = join_path(r->target, e->path), *restored = join_path(r->root, e->path);
        if (lstat(old, &st) != 0)
            code = fail_errno(old, errno, "cannot look at it");
        else if (st.st_dev != top.st_dev)
            code = fail(CODE_ERROR, r->target, "is not replaced: another file system is mounted at '%.300s'; name another directory "
                                               "with -o", e->path);
        else if (lstat(restored, &st) != 0 || S_ISDIR(st.st_mode) != e->is_directory)
            code = fail(CODE_ERROR, r->target, "is not replaced: it holds '%.300s', which the snapshot does not; move that away, or "
                                               "name another directory with -o", e->path);
        free(old);
        free(restored);
    }
    return code;
}

/* 0 or errno. What was replaced is the temporary name then. */
static int publish_tree(struct restore *r)
{
    char *aside = temporary_name_beside(r->target);
    int error, is_aside = 0;
    pthread_mutex_lock(&temporary.lock);
    error = r->replaced.n ? exchange_names(r->root, r->target, aside, &is_aside) : move_tree(r->root, r->target);
    if (!error && (is_aside || !r->replaced.n))
        register_temporary(is_aside ? aside : NULL);
    pthread_mutex_unlock(&temporary.lock);
    if (error || !is_aside)
        free(aside);
    return error;
}

/* Removes at root what was listed and no more: a file that came later keeps its directories. 0 or errno. */
static int remove_listed(const struct listing *l, const char *root)
{
    int error = 0;
    for (size_t i = 0; i < 2 * l->n && !error; i++) { /* first all directories are opened up, from the top */
        const struct entry *e = &l->entries[i < l->n ? i : 2 * l->n - 1 - i];
        char *path = try_join_path(root, e->path);
        struct stat st;
        if (!path)
            return ENOMEM;
        if (i >= l->n)
            error = (e->is_directory ? rmdir(path) : unlink(path)) == 0 ? 0 : errno;
        else if (e->is_directory && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            open_up(path, &st);
        free(path);
    }
    return error;
}

/* error: of the step before; then what was replaced stays, too. */
static int remove_replaced(const struct restore *r, int error)
{
    int code = error ? fail_errno(r->target, error, "cannot bring the directory to the disk") : CODE_OK;
    pthread_mutex_lock(&temporary.lock);
    if (temporary.path) {
        if (!error)
            error = remove_listed(&r->replaced, temporary.path);
        if (error)
            code = fail(CODE_ERROR, r->target, "is restored, but what was there before could not be removed (%s); what is left of it "
                                               "is %.400s", strerror(error), temporary.path);
    }
    register_temporary(NULL);
    pthread_mutex_unlock(&temporary.lock);
    return code;
}

static int commit_tree(struct restore *r)
{
    int code = check_replaced(r), error = 0;
    if (code == CODE_OK)
        error = finish_directories(r);
    if (code == CODE_OK && !error)
        error = set_root_mode(r);
    if (code == CODE_OK && !error)
        error = publish_tree(r);
    if (!error && code == CODE_OK)
        return remove_replaced(r, sync_directory_of(r->target));
    if (error == EEXIST)
        code = fail(CODE_ERROR, r->target, "exists already; use -f to replace it");
    else if (error)
        code = fail_errno(r->target, error, "cannot put the restored directory there");
    remove_temporary();
    return code;
}

/* -- callbacks of lmc_restore_snapshot -- */

static void add_path(struct restore *r, const char *path)
{
    if (r->n_paths == r->room_for_paths) {
        r->room_for_paths = r->room_for_paths * 2 + 16;
        r->paths = (char **)resize(r->paths, r->room_for_paths, sizeof *r->paths);
    }
    r->paths[r->n_paths++] = copy_string(path, strlen(path));
}

/* Opens a file of the tree again, whose own mode may forbid that. -1: errno */
static int open_again(const struct restore *r, size_t number)
{
    char *path = join_path(r->root, r->paths[number]);
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), error = errno;
    if (fd < 0 && error == EACCES && lstat(path, &st) == 0 && chmod(path, 0600) == 0) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        error = errno;
        if (chmod(path, st.st_mode & 07777) != 0 && fd >= 0) {
            error = errno;
            close(fd);
            fd = -1;
        }
    }
    free(path);
    errno = error;
    return fd;
}

/* What was written already. The file in work has its last zeros when it is complete: until then it may seem to end early. */
static enum lmc_status restore_read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct restore *r = (struct restore *)user;
    int fd = r->out.fd, error;
    if (!r->is_tree && !r->out.temporary)
        return read_second_look(&r->again, number, offset, dst, size);
    if (r->is_tree) {
        if (r->fd_again < 0 || r->again_number != number) {
            if (r->fd_again >= 0)
                close(r->fd_again);
            r->fd_again = open_again(r, number);
            r->again_number = number;
        }
        fd = r->fd_again;
        if (fd < 0)
            return stop_restore(r, fail_errno(r->paths[number], errno, "cannot read it again")) ? LMC_ERR_READ : LMC_OK;
    }
    memset(dst, 0, size);
    error = read_at(fd, offset, dst, size);
    return error > 0 && stop_restore(r, fail_errno(r->is_tree ? r->paths[number] : r->target, error, "cannot read it again")) ? LMC_ERR_READ : LMC_OK;
}

static int restore_begin(void *user, const lmc_file *file, size_t number)
{
    struct restore *r = (struct restore *)user;
    int code = CODE_OK;
    if (number == 0) {
        /* a lone file has no path of its own: the snapshot's name is its name */
        r->is_empty = *file->path == 0 && file->kind == LMC_FILE_DIRECTORY;
        r->is_tree = *file->path != 0 || r->is_empty;
        code = r->is_tree ? begin_tree(r) : open_output(&r->out, r->target, r->input_stat, r->o->force);
        r->started = code == CODE_OK;
        r->out.outlet.sparse = r->started && r->out.temporary;
    }
    if (code == CODE_OK && r->is_tree) {
        add_path(r, file->path);
        code = begin_tree_file(r, file);
    }
    return stop_restore(r, code);
}

static int restore_bytes(void *user, const void *data, size_t size)
{
    struct restore *r = (struct restore *)user;
    int error;
    r->total += size;
    if (!r->is_tree) {
        error = write_output(&r->out, data, size);
        return error ? stop_restore(r, fail_output(&r->out, error)) : 0;
    }
    error = outlet_write(&r->outlet, data, size);
    return error ? stop_restore(r, fail_errno(r->path + strlen(r->root) + 1, error, "cannot write it")) : 0;
}

static void add_record(struct restore *r, const lmc_file *file)
{
    struct record *record;
    if (file->kind != LMC_FILE_REGULAR)
        return;
    if (r->n_records == r->room) {
        r->room = r->room * 2 + 16;
        r->records = (struct record *)resize(r->records, r->room, sizeof *r->records);
    }
    record = &r->records[r->n_records++];
    record->path = copy_string(file->path, strlen(file->path));
    record->size = file->size;
    record->crc = file->crc;
}

static int restore_end(void *user, const lmc_file *file, size_t number)
{
    struct restore *r = (struct restore *)user;
    (void)number;
    r->n_quantised += count_lossy(file);
    if (r->o->remove_source)
        add_record(r, file);
    if (r->is_tree)
        return stop_restore(r, end_tree_file(r, file));
    r->attributes = attributes_of_file(file);
    return 0;
}

/* -- --rm: the snapshot goes when the restored files were read again -- */

#define BUFFER_SIZE ((size_t)4 << 20)

static int verify_record(const char *root, const struct record *record, unsigned char *buffer)
{
    char *path = join_path(root, record->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = fd < 0 ? errno : 0, code = CODE_OK;
    uint64_t size = 0;
    uint32_t crc = 0;
    size_t got = BUFFER_SIZE;
#ifdef POSIX_FADV_DONTNEED
    if (fd >= 0)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    while (!error && got == BUFFER_SIZE) {
        error = read_full(fd, buffer, BUFFER_SIZE, &got);
        crc = lmc_crc32c(crc, buffer, got);
        size += got;
    }
    if (fd >= 0)
        close(fd);
    if (error)
        code = fail_errno(path, error, "cannot be read again, so nothing was removed");
    else if (size != record->size || crc != record->crc)
        code = fail(CODE_ERROR, path, "does not read back as it was written; nothing was removed");
    free(path);
    return code;
}

static int remove_snapshot(const struct restore *r)
{
    unsigned char *buffer = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    int code = CODE_OK;
    for (size_t i = 0; i < r->n_records && code == CODE_OK; i++)
        code = verify_record(r->target, &r->records[i], buffer);
    free(buffer);
    if (code == CODE_OK && unlink(r->input) != 0)
        code = fail_errno(r->input, errno, "cannot remove it");
    return code;
}

/* -- the verb -- */

/* Where path is restored to; NULL: to standard output. *code: what was reported. */
static char *name_target(const char *path, const struct options *o, int *code)
{
    const char *name = o->output ? o->output : path;
    size_t size = strlen(name);
    *code = CODE_OK;
    if (o->output ? is_dash(o->output) : o->to_stdout || is_dash(path))
        return NULL;
    if (o->output) {
        while (size > 1 && name[size - 1] == '/')
            size--;
        return copy_string(name, size);
    }
    if (!has_suffix(path)) {
        *code = fail(CODE_ERROR, path, "is not named " SUFFIX "; name the output with -o");
        return NULL;
    }
    return copy_string(path, size - strlen(SUFFIX));
}

/* What the snapshot does not say, because its source was a pipe, is taken from the snapshot's own file. */
static void complete_attributes(struct attributes *a, const struct stat *input)
{
    struct attributes own;
    if (!input)
        return;
    own = attributes_of_stat(input);
    if (a->has_mode)
        own.mode = a->mode;
    if (a->has_mtime)
        own.mtime = a->mtime;
    *a = own;
}

/* Restores the stream; what is open afterwards is to be committed or discarded. */
static int run_restore(struct restore *r, struct source *s, const lmc_base *base)
{
    lmc_restore_options options;
    lmc_stream stream;
    enum lmc_status status;
    memset(&options, 0, sizeof options);
    options.parallel = &r->o->parallel;
    options.base = base;
    options.user = r;
    options.begin_file = restore_begin;
    options.write = restore_bytes;
    options.end_file = restore_end;
    options.read_back = restore_read_back;
    r->again.source = s;
    r->again.base = base;
    r->again.o = r->o;
    stream.read = read_stream;
    stream.user = s;
    status = lmc_restore_snapshot(&stream, &options, NULL);
    if (r->code != CODE_OK)
        return r->code;
    return status == LMC_OK ? CODE_OK : fail_restore(s, status, r->o);
}

static int finish_restore(struct restore *r, int code)
{
    if (r->outlet.fd >= 0) /* stopped within a file of a tree */
        close(r->outlet.fd);
    if (r->fd_again >= 0)
        close(r->fd_again);
    close_second_look(&r->again);
    free(r->path);
    if (!r->started)
        return code;
    if (code == CODE_OK && r->is_tree)
        return commit_tree(r);
    if (code == CODE_OK) {
        complete_attributes(&r->attributes, r->input_stat);
        return commit_output(&r->out, &r->attributes);
    }
    if (r->is_tree)
        remove_temporary();
    else
        discard_output(&r->out);
    return code;
}

static int open_snapshot_source(struct source *s, const char *path, const struct options *o)
{
    int code;
    if (is_dash(path) && isatty(STDIN_FILENO) && !o->force) {
        memset(s, 0, sizeof *s);
        s->fd = -1;
        return fail(CODE_ERROR, NULL, "standard input is a terminal; name a file, or see 'lmc help'");
    }
    code = open_source(s, path);
    if (code == CODE_OK && S_ISDIR(s->st.st_mode))
        code = fail(CODE_ERROR, path, "is a directory; name a file, or use -r for all " SUFFIX " files below it");
    return code;
}

static int restore_file(const char *path, const struct options *o)
{
    struct restore r;
    struct source s;
    const lmc_base *base;
    double start = now();
    int code;
    memset(&r, 0, sizeof r);
    r.o = o;
    r.input = path;
    r.outlet.fd = r.fd_again = -1;
    code = open_snapshot_source(&s, path, o);
    if (code == CODE_OK)
        r.target = name_target(path, o, &code);
    if (code == CODE_OK)
        code = protect_bases(path, r.target, o->force, o);
    if (code == CODE_OK)
        code = choose_base_of_source(&base, &s, o);
    if (code == CODE_OK) {
        if (S_ISREG(s.st.st_mode))
            r.input_stat = &s.st;
        progress_start(s.name, s.size);
        code = finish_restore(&r, run_restore(&r, &s, base));
        progress_clear();
    }
    if (code == CODE_OK)
        say_sizes(o, s.name, progress.done, r.total, r.total, start);
    if (code == CODE_OK && r.n_quantised && o->verbosity > 0)
        say(s.name, "holds %llu quantised tensor%s, near what was compressed, but not equal; 'lmc -l' tells how near",
            (unsigned long long)r.n_quantised, r.n_quantised == 1 ? "" : "s");
    close_source(&s);
    if (code == CODE_OK && o->remove_source)
        code = remove_snapshot(&r);
    for (size_t i = 0; i < r.n_records; i++)
        free(r.records[i].path);
    free(r.records);
    for (size_t i = 0; i < r.n_paths; i++)
        free(r.paths[i]);
    free(r.paths);
    for (size_t i = 0; i < r.n_directories; i++)
        free(r.directories[i].path);
    free(r.directories);
    free_listing(&r.replaced);
    free(r.target);
    return code;
}

/* -- test -- */

struct tally {
    struct second_look again;
    uint64_t n_files, size;
};

static enum lmc_status test_read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    return read_second_look(&((struct tally *)user)->again, number, offset, dst, size);
}

static int count_file(void *user, const lmc_file *file, size_t number)
{
    struct tally *tally = (struct tally *)user;
    (void)number;
    tally->n_files += file->kind == LMC_FILE_REGULAR;
    tally->size += file->size;
    return 0;
}

static int test_file(const char *path, const struct options *o)
{
    struct source s;
    struct tally tally;
    lmc_restore_options options;
    lmc_stream stream;
    double start = now();
    const lmc_base *base;
    int code = open_snapshot_source(&s, path, o);
    if (code == CODE_OK)
        code = choose_base_of_source(&base, &s, o);
    if (code == CODE_OK) {
        enum lmc_status status;
        memset(&options, 0, sizeof options);
        options.parallel = &o->parallel;
        memset(&tally, 0, sizeof tally);
        tally.again.source = &s;
        tally.again.base = base;
        tally.again.o = o;
        options.base = base;
        options.read_back = test_read_back;
        options.user = &tally;
        options.end_file = count_file;
        stream.read = read_stream;
        stream.user = &s;
        progress_start(s.name, s.size);
        status = lmc_restore_snapshot(&stream, &options, NULL);
        progress_clear();
        close_second_look(&tally.again);
        if (status != LMC_OK)
            code = fail_restore(&s, status, o);
    }
    if (code == CODE_OK && o->verbosity >= 2)
        say(s.name, "ok, %llu file%s, %llu bytes, %.0f MB/s", (unsigned long long)tally.n_files, tally.n_files == 1 ? "" : "s",
            (unsigned long long)tally.size, (double)tally.size / 1e6 / (now() - start + 1e-9));
    close_source(&s);
    return code;
}

#endif
