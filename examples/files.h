/* files.h - outputs that appear whole or not at all, directory trees, attributes
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_FILES_H
#define LMC_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "threads.h"

#if defined(__APPLE__)
#define st_mtim st_mtimespec
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

/* -- removal -- */

static int is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The next entry but "." and ".."; NULL: there is no more, or it cannot be read: *error then, unless an error stands there. */
static struct dirent *next_entry(DIR *directory, int *error)
{
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry && is_dot(entry->d_name));
    if (!entry && !*error)
        *error = errno;
    return entry;
}

/* Lets the owner look into a directory and remove what is in it. */
static void open_up(const char *path, const struct stat *st)
{
    if ((st->st_mode & 0700) != 0700)
        (void)!chmod(path, 0700); /* what this does not help with fails later, and is reported then */
}

/* The file or tree at path, links not followed, mounted file systems not entered: above NULL or the directory that
 * path is in. 0 or errno of the first failure. */
static int remove_tree_below(const char *path, const struct stat *above)
{
    struct stat st;
    struct dirent *entry;
    DIR *directory;
    int error = 0;
    if (lstat(path, &st) != 0)
        return errno;
    if (above && st.st_dev != above->st_dev)
        return EBUSY;
    if (!S_ISDIR(st.st_mode))
        return unlink(path) == 0 ? 0 : errno;
    open_up(path, &st);
    directory = opendir(path);
    while (directory && (entry = next_entry(directory, &error)) != NULL) {
        char *inner = try_join_path(path, entry->d_name); /* this may run because memory was short */
        int result = inner ? remove_tree_below(inner, &st) : ENOMEM;
        error = error ? error : result;
        free(inner);
    }
    if (directory)
        closedir(directory);
    if (rmdir(path) != 0 && !error)
        error = errno;
    return error;
}

static int remove_tree(const char *path)
{
    return remove_tree_below(path, NULL);
}

/* -- the temporary file or directory: one at a time --
 * A thread waits for the signals that end a process. It takes the lock for good and removes what is registered; whoever
 * creates or renames below the temporary name holds the lock meanwhile, so nothing is left behind in any case. With the
 * lock nothing is allocated: running out of memory removes what is registered, too. */

static struct {
    pthread_mutex_t lock;
    char *path; /* NULL: none */
} temporary = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* Called with the lock held. Owns path from now on, frees the one before. */
static void register_temporary(char *path)
{
    free(temporary.path);
    temporary.path = path;
}

static void remove_temporary(void)
{
    int error = 0;
    pthread_mutex_lock(&temporary.lock);
    if (temporary.path)
        error = remove_tree(temporary.path);
    if (error)
        say(temporary.path, "cannot be removed: %s", strerror(error));
    register_temporary(NULL);
    pthread_mutex_unlock(&temporary.lock);
}

static void *signal_thread(void *user)
{
    sigset_t *set = (sigset_t *)user;
    int number = 0;
    if (sigwait(set, &number) != 0)
        return NULL;
    pthread_mutex_lock(&temporary.lock);
    if (temporary.path)
        remove_tree(temporary.path);
    progress_clear();
    signal(number, SIG_DFL); /* die of it, so that the caller learns the truth */
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    raise(number);
    _exit(CODE_ERROR);
}

/* To be called before any other thread is started: all threads inherit the mask. */
static void watch_signals(void)
{
    static sigset_t set;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    pthread_t thread;
    sigemptyset(&set);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) /* nohup */
            sigaddset(&set, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN); /* EPIPE says the same and lets us clean up */
    signal(SIGXFSZ, SIG_IGN); /* likewise EFBIG */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, signal_thread, &set) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* -- names -- */

#define DIGITS "0123456789"

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return copy_string(".", 1);
    return copy_string(path, slash == path ? 1 : (size_t)(slash - path));
}

static char *temporary_name_beside(const char *path)
{
    char *directory = directory_of(path), *name = join_path(directory, ".lmc-XXXXXX");
    free(directory);
    return name;
}

/* Whether path is, or lies below, a name that temporary_name_beside() gives: an output that is being written, or one that
 * was when lmc was killed. */
static int is_temporary_name(const char *path)
{
    static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for (;; path++) {
        if (strncmp(path, ".lmc-", 5) == 0 && strcspn(path, "/") == 11 && strspn(path + 5, characters) == 6)
            return 1;
        path = strchr(path, '/');
        if (!path)
            return 0;
    }
}

/* -- the side file of lmc apply, see journal.h -- */

#define SIDE_SUFFIX ".lmc-apply"

/* ".NAME.lmc-apply" beside path. */
static char *name_journal(const char *path)
{
    char *directory = directory_of(path), *name, *full;
    const char *last = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t size = strlen(last) + sizeof "." SIDE_SUFFIX;
    name = (char *)resize(NULL, size, 1);
    snprintf(name, size, ".%s" SIDE_SUFFIX, last);
    full = join_path(directory, name);
    free(name);
    free(directory);
    return full;
}

static int is_side_name(const char *path)
{
    const char *last = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t size = strlen(last), suffix = sizeof SIDE_SUFFIX - 1;
    return *last == '.' && size > suffix && strcmp(last + size - suffix, SIDE_SUFFIX) == 0;
}

/* Fails with that code if an apply to path, or to a directory that it lies in, has not ended. */
static int check_finished(const char *path, enum exit_code code)
{
    char *full = realpath(path, NULL), *side;
    struct stat st;
    int result = CODE_OK;
    while (full && *full && result == CODE_OK) {
        side = name_journal(full);
        if (lstat(side, &st) == 0)
            result = fail(code, path, "is left half applied, or lmc apply is at work: finish that first; or, if it was replaced by a whole one since, "
                                      "remove %.300s", side);
        free(side);
        *strrchr(full, '/') = 0;
    }
    free(full);
    return result;
}

static int sync_directory_of(const char *path)
{
    char *directory = directory_of(path);
    int fd = open(directory, O_RDONLY | O_CLOEXEC), error = fd < 0 ? errno : 0;
    free(directory);
    if (fd < 0)
        return error == EACCES ? 0 : error; /* searchable but not readable: nothing can be done */
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        error = errno;
    close(fd);
    return error;
}

/* -- attributes -- */

struct attributes {
    int has_mode, has_mtime, has_owner;
    mode_t mode;
    struct timespec mtime;
    uid_t owner;
    gid_t group;
};

static struct attributes attributes_of_stat(const struct stat *st)
{
    struct attributes a;
    memset(&a, 0, sizeof a);
    a.has_mode = a.has_mtime = a.has_owner = 1;
    a.mode = st->st_mode & 0777;
    a.mtime = st->st_mtim;
    a.owner = st->st_uid;
    a.group = st->st_gid;
    return a;
}

/* What the snapshot says; of the mode no more than 0777: a snapshot cannot make a program run as somebody else. */
static struct attributes attributes_of_file(const lmc_file *file)
{
    struct attributes a;
    memset(&a, 0, sizeof a);
    a.has_mode = file->has_mode;
    a.mode = (mode_t)file->mode & 0777;
    a.has_mtime = file->has_mtime;
    a.mtime.tv_sec = (time_t)file->mtime_s;
    a.mtime.tv_nsec = (long)file->mtime_ns;
    return a;
}

static mode_t umask_of_process;

/* 0 or errno. The owner can be kept by root only, which is no error. */
static int set_attributes(int fd, const struct attributes *a)
{
    if (a->has_owner && fchown(fd, a->owner, a->group) != 0 && errno != EPERM && errno != EINVAL && errno != ENOTSUP)
        return errno;
    if (fchmod(fd, a->has_mode ? a->mode : 0666 & ~umask_of_process) != 0 && errno != EPERM && errno != ENOTSUP)
        return errno;
    if (a->has_mtime) {
        struct timespec times[2];
        times[0].tv_sec = 0;
        times[0].tv_nsec = UTIME_OMIT;
        times[1] = a->mtime;
        if (futimens(fd, times) != 0 && errno != EPERM && errno != EINVAL)
            return errno;
    }
    return 0;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether path lies below directory; links resolved. */
static int lies_within(const char *path, const char *directory)
{
    char *inner = realpath(path, NULL), *outer = realpath(directory, NULL);
    size_t size = outer ? strlen(outer) : 0;
    int result = inner && outer && strncmp(inner, outer, size) == 0 && (inner[size] == '/' || size == 1);
    free(inner);
    free(outer);
    return result;
}

/* Whether nobody has written to the file between the two. */
static int same_state(const struct stat *a, const struct stat *b)
{
    return same_file(a, b) && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* -- output: a file that is written under a temporary name, or a stream -- */

struct output {
    char *path;      /* NULL: standard output */
    const char *temporary; /* registered; NULL: written in place, as standard output and devices are */
    int fd;
    int force;
    int open;
    struct outlet outlet;
};

static const char *output_name(const struct output *out)
{
    return out->path ? out->path : "(standard output)";
}

/* An output that must not be the file that is read. input: of that file, or NULL. */
static int check_output(const char *path, const struct stat *input, int force)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(path, errno, "cannot look at it");
    if (S_ISLNK(st.st_mode) && stat(path, &st) != 0)
        return force ? CODE_OK : fail(CODE_ERROR, path, "exists already, as a link to nowhere; use -f to overwrite it");
    if (input && same_file(&st, input))
        return fail(CODE_ERROR, path, "is the input, too; name another output with -o");
    if (S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, path, "is a directory; name a file with -o");
    if (S_ISREG(st.st_mode) && !force)
        return fail(CODE_ERROR, path, "exists already; use -f to overwrite it");
    return CODE_OK;
}

/* Creates a temporary file beside path, open as *fd, or a directory if fd is NULL; *name is the caller's. */
static int create_temporary(const char *path, int *fd, const char **name)
{
    char *made = temporary_name_beside(path);
    int error = 0;
    pthread_mutex_lock(&temporary.lock);
    if (fd ? (*fd = mkstemp(made)) >= 0 : mkdtemp(made) != NULL)
        register_temporary(made);
    else
        error = errno;
    pthread_mutex_unlock(&temporary.lock);
    if (error) {
        free(made);
        return fail_errno(path, error, fd ? "cannot create a file beside it" : "cannot create a directory beside it");
    }
    *name = made;
    return CODE_OK;
}

/* path NULL: standard output. */
static int open_output(struct output *out, const char *path, const struct stat *input, int force)
{
    struct stat st;
    int code = CODE_OK;
    memset(out, 0, sizeof *out);
    out->fd = STDOUT_FILENO;
    out->force = force;
    if (!path) {
        if (isatty(STDOUT_FILENO) && !force)
            return fail(CODE_ERROR, NULL, "binary data is not written to a terminal; redirect it, use -o, or force it with -f");
        if (input && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) && same_file(&st, input))
            return fail(CODE_ERROR, NULL, "standard output is the input, too");
    } else {
        code = check_output(path, input, force);
        if (code != CODE_OK)
            return code;
        out->path = copy_string(path, strlen(path));
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
            out->fd = open(path, O_WRONLY | O_CLOEXEC);
            if (out->fd < 0)
                code = fail_errno(path, errno, "cannot write to it");
        } else {
            code = create_temporary(out->path, &out->fd, &out->temporary);
        }
    }
    if (code == CODE_OK) {
        out->outlet.fd = out->fd;
        out->open = 1;
    } else {
        free(out->path);
    }
    return code;
}

static int fail_output(const struct output *out, int error)
{
    return fail_errno(output_name(out), error, "cannot write");
}

/* As lmc_sink asks; fail_output() reports it. */
static int write_output(void *user, const void *data, size_t size)
{
    return outlet_write(&((struct output *)user)->outlet, data, size);
}

/* Gives up; nothing stays behind. */
static void discard_output(struct output *out)
{
    if (!out->open)
        return;
    if (out->path)
        close(out->fd);
    if (out->temporary)
        remove_temporary();
    free(out->path);
    out->open = 0;
}

/* Moves from to where nothing may be yet; 0 or errno. A link cannot overwrite; where there are no links, an empty file
 * claims the name first. */
static int move_without_overwriting(const char *from, const char *to)
{
    int fd;
    if (link(from, to) == 0) {
        int error = unlink(from) == 0 ? 0 : errno;
        if (error)
            unlink(to);
        return error;
    }
    if (errno == EEXIST)
        return EEXIST;
    fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    if (rename(from, to) != 0) {
        int error = errno;
        unlink(to);
        return error;
    }
    return 0;
}

/* Brings the written file to its name, and that to the disk; 0 or errno: then a new name is gone again. */
static int publish_output(struct output *out)
{
    int error;
    pthread_mutex_lock(&temporary.lock);
    if (out->force)
        error = rename(out->temporary, out->path) == 0 ? 0 : errno;
    else
        error = move_without_overwriting(out->temporary, out->path);
    if (!error)
        register_temporary(NULL);
    pthread_mutex_unlock(&temporary.lock);
    if (error)
        return error;
    error = sync_directory_of(out->path);
    if (error && !out->force)
        unlink(out->path);
    return error;
}

/* Completes the output, on the disk, with attributes, under its name; or discards it and reports. */
static int commit_output(struct output *out, const struct attributes *attributes)
{
    int error = outlet_finish(&out->outlet), code;
    if (!error && out->temporary) {
        error = set_attributes(out->fd, attributes);
        if (!error && fsync(out->fd) != 0)
            error = errno;
        if (!error)
            error = publish_output(out);
    }
    if (!error) {
        out->open = 0;
        if (out->path && close(out->fd) != 0 && !out->temporary) /* of a file all is on the disk */
            error = errno;
        code = error ? fail_output(out, error) : CODE_OK;
        free(out->path);
        return code;
    }
    code = error == EEXIST ? fail(CODE_ERROR, output_name(out), "exists already; use -f to overwrite it") : fail_output(out, error);
    discard_output(out);
    return code;
}

/* -- trees -- */

struct entry {
    char *path; /* below the root; "" is the root itself */
    int is_directory;
    uint64_t size; /* of a file */
};

struct listing {
    struct entry *entries;
    size_t n, room;
};

static struct entry *add_entry(struct listing *l, const char *path, int is_directory)
{
    struct entry *e;
    if (l->n == l->room) {
        l->room = l->room * 2 + 16;
        l->entries = (struct entry *)resize(l->entries, l->room, sizeof *l->entries);
    }
    e = &l->entries[l->n++];
    e->path = copy_string(path, strlen(path));
    e->is_directory = is_directory;
    e->size = 0;
    return e;
}

static void free_listing(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->entries[i].path);
    free(l->entries);
    memset(l, 0, sizeof *l);
}

static int list_directory(struct listing *l, const char *root, const char *path);

/* Links to files count as files. Links to directories do not: they can form a circle. */
static int list_entry(struct listing *l, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st;
    int code = CODE_OK, is_link;
    if (lstat(full, &st) != 0)
        code = fail_errno(full, errno, "cannot look at it");
    is_link = code == CODE_OK && S_ISLNK(st.st_mode);
    if (is_link && stat(full, &st) != 0)
        code = fail_errno(full, errno, "is a link that leads nowhere");
    if (code != CODE_OK)
        ;
    else if (S_ISREG(st.st_mode))
        add_entry(l, path, 0)->size = (uint64_t)st.st_size;
    else if (S_ISDIR(st.st_mode) && !is_link)
        code = list_directory(l, root, path);
    else if (S_ISDIR(st.st_mode))
        code = fail(CODE_ERROR, full, "is a link to a directory, which is not followed; replace it by the directory or move it away");
    else
        code = fail(CODE_ERROR, full, "is neither a file nor a directory; move it away");
    free(full);
    return code;
}

/* The directory names are collected before they are entered: one open descriptor, however deep the tree. */
static int list_directory(struct listing *l, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct listing names;
    DIR *directory = opendir(full);
    struct dirent *entry;
    int code = CODE_OK, error = 0;
    memset(&names, 0, sizeof names);
    if (!directory) {
        code = fail_errno(full, errno, "cannot read the directory");
        free(full);
        return code;
    }
    while ((entry = next_entry(directory, &error)) != NULL)
        add_entry(&names, entry->d_name, 0);
    if (error)
        code = fail_errno(full, error, "cannot read the directory");
    closedir(directory);
    add_entry(l, path, 1);
    for (size_t i = 0; i < names.n; i++) {
        char *inner = join_path(path, names.entries[i].path);
        code = worse(code, list_entry(l, root, inner));
        free(inner);
    }
    free_listing(&names);
    free(full);
    return code;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

/* Everything below root, and root itself as "", in the order of the bytes of the paths. */
static int list_tree(struct listing *l, const char *root)
{
    int code;
    memset(l, 0, sizeof *l);
    code = list_directory(l, root, "");
    if (l->n)
        qsort(l->entries, l->n, sizeof *l->entries, compare_entries);
    return code;
}

/* Flushes every directory of the tree at path to the disk; 0 or errno. */
static int sync_directories(const char *path)
{
    struct dirent *entry;
    DIR *directory = opendir(path);
    int error = 0;
    if (!directory)
        return errno;
    while (!error && (entry = next_entry(directory, &error)) != NULL) {
        char *inner = join_path(path, entry->d_name);
        struct stat st;
        if (lstat(inner, &st) != 0)
            error = errno;
        else if (S_ISDIR(st.st_mode))
            error = sync_directories(inner);
        free(inner);
    }
    if (!error && fsync(dirfd(directory)) != 0 && errno != EINVAL)
        error = errno;
    closedir(directory);
    return error;
}

/* -- names -- */

/* Order in which numbers count: step_9 before step_10. */
static int compare_names(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            size_t n, m;
            int order;
            x += strspn(x, "0");
            y += strspn(y, "0");
            n = strspn(x, DIGITS);
            m = strspn(y, DIGITS);
            order = n != m ? (n < m ? -1 : 1) : memcmp(x, y, n);
            if (order)
                return order;
            x += n;
            y += m;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    return *x ? 1 : *y ? -1 : strcmp(a, b);
}

#endif
