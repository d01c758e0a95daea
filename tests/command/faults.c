/* faults.c - numbers every call of a program that the system can refuse, and makes one of them
 * fail, or kills the program at that call
 * SPDX-License-Identifier: MIT
 *
 * For Linux with glibc, in two ways: as a shared object in LD_PRELOAD, which also sees allocations
 * of the C library and of other libraries; or linked into a program (FAULTS_WRAP, and ld's --wrap
 * for every name below), which works with sanitizers. test_faults.py sets these environment
 * variables:
 *
 *   FAULTS_LOG=FILE      each call is a line: its number, kind, name, result and arguments; without
 *                        other variables this is all that is done
 *   FAULTS_DATA=1        and what was written, in hexadecimal
 *   FAULTS_NAMED=1       there are no files without a name
 *   FAULTS_REFUSE=WORDS  what a file system lacks: "chmod=95 fsyncdir=22", names of calls, and the
 *                        errno of each
 *   FAULTS_DIRECTORY=DIR fsyncdir is refused there only
 *                        leased=11: a file that is opened with O_NONBLOCK; then no sleep takes time
 *   FAULTS_AT=N          the number of the call that FAULTS_HOW is done to
 *   FAULTS_HOW=fail      EIO, or what suits the call, once
 *              end       a read finds the end of the file
 *              eintr     EINTR, once
 *              short     half of what was asked for is read or written
 *              lost      nothing is written, but success is reported
 *              gone      from there on every call except allocations fails: the disk is gone
 *              full      from there on the disk takes no more data and no new file
 *              memory    from there on no allocation succeeds
 *              kill      SIGKILL before it
 *              tear      SIGKILL when half is written
 *              after     SIGKILL after it
 *              stop      SIGSTOP before it
 *
 * That call's line is in the log, too, with "!" before it. Syncs are not done: nothing here tests
 * the disk.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { ALLOC, OPEN, LOOK, READ, WRITE, SYNC, NAME, ATTRIBUTE, CLOSE, LOCK, THREAD };
static const char *const kind_names[] = {"alloc", "open",      "look",  "read", "write", "sync",
                                         "name",  "attribute", "close", "lock", "thread"};

enum how {
    NOTHING,
    FAIL,
    END,
    EINTR_ONCE,
    SHORT,
    LOST,
    GONE,
    FULL,
    MEMORY,
    KILL,
    TEAR,
    AFTER,
    STOP
};
static const char *const how_names[] = {"",     "fail",   "end",  "eintr", "short", "lost", "gone",
                                        "full", "memory", "kill", "tear",  "after", "stop"};

static int log_fd = -1, logs_data, has_no_unnamed, has_no_links;
static const char *refusals;
static long number, at;
static enum how how;

/* A call in progress. creates: it takes room on the disk */
struct call {
    enum kind kind;
    int creates;
    const char *name;
    long number;
    enum how how; /* what is done to it */
    int refusal;  /* errno; 0: it is not refused */
};

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;);
}

static void write_log(const char *text, size_t size)
{
    while (size) {
        long n = syscall(SYS_write, log_fd, text, size);
        if (n <= 0) die();
        text += n;
        size -= (size_t)n;
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("FAULTS_LOG"), *text = getenv("FAULTS_HOW");
    if (path) {
        long fd =
            syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        log_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900);
        syscall(SYS_close, fd);
    }
    for (unsigned i = 1; text && i < sizeof how_names / sizeof *how_names; i++)
        if (strcmp(text, how_names[i]) == 0) how = (enum how)i;
    logs_data = getenv("FAULTS_DATA") != NULL;
    has_no_unnamed = getenv("FAULTS_NAMED") != NULL;
    has_no_links = getenv("FAULTS_UNLINKED") != NULL;
    refusals = getenv("FAULTS_REFUSE");
    at = getenv("FAULTS_AT") ? atol(getenv("FAULTS_AT")) : 0;
    __atomic_store_n(&number, 0, __ATOMIC_RELAXED); /* earlier calls are not the program's */
}

/* Whether what began at the N-th call is done to this one, too. */
static int goes_on(const struct call *c)
{
    switch (how) {
    case GONE: return c->kind != ALLOC && c->kind != THREAD;
    case FULL: return c->creates;
    case MEMORY: return c->kind == ALLOC;
    default: return 0;
    }
}

static int find_refusal(const char *name)
{
    const size_t size = strlen(name);
    for (const char *word = refusals; word && *word; word += strcspn(word, " "), word += *word != 0)
        if (strncmp(word, name, size) == 0 && word[size] == '=') return atoi(word + size + 1);
    return 0;
}

static struct call begin(enum kind kind, const char *name, int creates)
{
    struct call c = {kind,    creates,
                     name,    __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED),
                     NOTHING, find_refusal(name)};
    if (!at || c.number < at || (c.number > at && !goes_on(&c))) return c;
    c.how = how;
    if (c.number == at && log_fd >= 0) {
        char line[128];
        int saved = errno,
            size = snprintf(line, sizeof line, "! %ld %s %s\n", c.number, kind_names[kind], name);
        write_log(line, (size_t)size);
        errno = saved;
    }
    if (how == KILL) die();
    if (how == STOP) syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
    return c;
}

/* Whether the call must fail; errno is set then. */
static int fails(const struct call *c)
{
    if (c->refusal) {
        errno = c->refusal;
        return 1;
    }
    switch (c->how) {
    case FAIL: errno = c->kind == ALLOC ? ENOMEM : c->kind == THREAD ? EAGAIN : EIO; return 1;
    case GONE: errno = EIO; return 1;
    case FULL: errno = ENOSPC; return 1;
    case MEMORY: errno = ENOMEM; return 1;
    case EINTR_ONCE: errno = EINTR; return 1;
    default: return 0;
    }
}

/* Ends a call and writes its line; format: the arguments. */
__attribute__((format(printf, 3, 4))) static void end(const struct call *c, long result,
                                                      const char *format, ...)
{
    if (log_fd >= 0 && !at) {
        char line[2 * 4096 + 256];
        int saved = errno, size = snprintf(line, sizeof line, "%ld %s %s %ld ", c->number,
                                           kind_names[c->kind], c->name, result);
        va_list list;
        va_start(list, format);
        size += vsnprintf(line + size, sizeof line - (size_t)size - 1, format, list);
        va_end(list);
        line[size++] = '\n';
        write_log(line, (size_t)size);
        errno = saved;
    }
    if (c->how == AFTER) die();
}

#if defined(FAULTS_WRAP)
#define CALL(name) __wrap_##name
#define ALIAS(result, other, name, ...)                                                            \
    result __wrap_##other(__VA_ARGS__) __attribute__((alias("__wrap_" #name)))
#define REAL(result, name, ...) extern result __real_##name(__VA_ARGS__)
#define DO(name) __real_##name
#else
#define CALL(name) name
#define ALIAS(result, other, name, ...) result other(__VA_ARGS__) __attribute__((alias(#name)))
#define REAL(result, name, ...)                                                                    \
    static result (*find_##name(void))(__VA_ARGS__)                                                \
    {                                                                                              \
        static result (*found)(__VA_ARGS__);                                                       \
        if (!found) *(void **)&found = dlsym(RTLD_NEXT, #name);                                    \
        return found;                                                                              \
    }                                                                                              \
    extern int faults_unused
#define DO(name) find_##name()
#endif
#pragma GCC diagnostic ignored "-Wpedantic"

/* -- memory; dlsym allocates, so these are found in another way -- */

#if !defined(FAULTS_WRAP)
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
#define find_malloc() __libc_malloc
#define find_calloc() __libc_calloc
#define find_realloc() __libc_realloc
#else
REAL(void *, malloc, size_t);
REAL(void *, calloc, size_t, size_t);
REAL(void *, realloc, void *, size_t);
#endif

void *CALL(malloc)(size_t size)
{
    struct call c = begin(ALLOC, "malloc", 0);
    void *p = fails(&c) ? NULL : DO(malloc)(size);
    end(&c, p != NULL, "%zu", size);
    return p;
}

void *CALL(calloc)(size_t n, size_t size)
{
    struct call c = begin(ALLOC, "calloc", 0);
    void *p = fails(&c) ? NULL : DO(calloc)(n, size);
    end(&c, p != NULL, "%zu", n * size);
    return p;
}

void *CALL(realloc)(void *old, size_t size)
{
    struct call c = begin(ALLOC, "realloc", 0);
    void *p = fails(&c) ? NULL : DO(realloc)(old, size);
    end(&c, p != NULL, "%zu", size);
    return p;
}

/* -- opening -- */

/* The path of a name below a directory's descriptor, for the log; ".." removes the last part. */
static const char *resolve(int fd, const char *name, char path[2 * 4096])
{
    char link[64], *slash;
    long size;
    if (fd == AT_FDCWD || name[0] == '/') return name;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = syscall(SYS_readlinkat, AT_FDCWD, link, path, 4095);
    if (size < 0) return name;
    path[size] = 0;
    if (strcmp(name, "..") == 0) {
        slash = strrchr(path, '/');
        if (slash && slash != path) *slash = 0;
    } else if (strcmp(name, ".") != 0) {
        snprintf(path + size, 4096, "/%s", name);
    }
    return path;
}

REAL(int, openat, int, const char *, int, ...);
static int open_below(int at_fd, const char *name, int flags, va_list list)
{
    const int is_unnamed = (flags & O_TMPFILE) == O_TMPFILE, creates = (flags & O_CREAT) != 0,
              is_new = creates && syscall(SYS_faccessat, at_fd, name, F_OK) != 0;
    const mode_t mode = creates || is_unnamed ? va_arg(list, mode_t) : 0;
    char path[2 * 4096];
    struct call c = begin(OPEN, "open", is_new || is_unnamed);
    struct stat st;
    if (flags & O_NONBLOCK &&
        syscall(SYS_newfstatat, at_fd, name, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) ==
            0 &&
        S_ISREG(st.st_mode))
        c.refusal = find_refusal("leased");
    int fd = -1;
    if (is_unnamed && has_no_unnamed) errno = EOPNOTSUPP;
    else if (!fails(&c)) fd = DO(openat)(at_fd, name, flags, mode);
    end(&c, fd, "%d %d %s", is_unnamed ? 2 : is_new, (flags & O_TRUNC) != 0,
        resolve(at_fd, name, path));
    return fd;
}

int CALL(openat)(int at_fd, const char *name, int flags, ...)
{
    va_list list;
    int fd;
    va_start(list, flags);
    fd = open_below(at_fd, name, flags, list);
    va_end(list);
    return fd;
}
ALIAS(int, openat64, openat, int, const char *, int, ...);

int CALL(open)(const char *path, int flags, ...)
{
    va_list list;
    int fd;
    va_start(list, flags);
    fd = open_below(AT_FDCWD, path, flags, list);
    va_end(list);
    return fd;
}
ALIAS(int, open64, open, const char *, int, ...);

REAL(int, nanosleep, const struct timespec *, struct timespec *);
int CALL(nanosleep)(const struct timespec *time, struct timespec *left)
{
    return find_refusal("leased") ? 0 : DO(nanosleep)(time, left);
}

REAL(int, mkstemp, char *);
int CALL(mkstemp)(char *path)
{
    struct call c = begin(OPEN, "mkstemp", 1);
    int fd = fails(&c) ? -1 : DO(mkstemp)(path);
    end(&c, fd, "1 0 %s", path);
    return fd;
}
ALIAS(int, mkstemp64, mkstemp, char *);

REAL(DIR *, opendir, const char *);
DIR *CALL(opendir)(const char *path)
{
    struct call c = begin(OPEN, "opendir", 0);
    DIR *d = fails(&c) ? NULL : DO(opendir)(path);
    end(&c, d ? dirfd(d) : -1, "0 0 %s", path);
    return d;
}

REAL(int, dup, int);
int CALL(dup)(int fd)
{
    struct call c = begin(OPEN, "dup", 0);
    int copy = fails(&c) ? -1 : DO(dup)(fd);
    end(&c, copy, "%d", fd);
    return copy;
}

REAL(int, dup2, int, int);
int CALL(dup2)(int fd, int to)
{
    struct call c = begin(OPEN, "dup", 0);
    int copy = fails(&c) ? -1 : DO(dup2)(fd, to);
    end(&c, copy, "%d", fd);
    return copy;
}

/* -- looking -- */

#define LOOK_AT(function, type, first, show, ...)                                                  \
    REAL(int, function, type, struct stat *);                                                      \
    int CALL(function)(type first, struct stat * st)                                               \
    {                                                                                              \
        struct call c = begin(LOOK, #function, 0);                                                 \
        int result = fails(&c) ? -1 : DO(function)(first, st);                                     \
        end(&c, result, show, first);                                                              \
        return result;                                                                             \
    }                                                                                              \
    int CALL(function##64)(type, struct stat64 *) __attribute__((alias(__VA_ARGS__ #function)))
#if defined(FAULTS_WRAP)
#define PREFIX "__wrap_"
#else
#define PREFIX
#endif
LOOK_AT(stat, const char *, path, "%s", PREFIX);
LOOK_AT(lstat, const char *, path, "%s", PREFIX);
LOOK_AT(fstat, int, fd, "%d", PREFIX);

REAL(int, fstatat, int, const char *, struct stat *, int);
int CALL(fstatat)(int fd, const char *name, struct stat *st, int flags)
{
    char path[2 * 4096];
    struct call c = begin(LOOK, "fstatat", 0);
    int result = fails(&c) ? -1 : DO(fstatat)(fd, name, st, flags);
    end(&c, result, "%s", resolve(fd, name, path));
    return result;
}
int CALL(fstatat64)(int, const char *, struct stat64 *, int)
    __attribute__((alias(PREFIX "fstatat")));

REAL(int, access, const char *, int);
int CALL(access)(const char *path, int mode)
{
    struct call c = begin(LOOK, "access", 0);
    int result = fails(&c) ? -1 : DO(access)(path, mode);
    end(&c, result, "%s", path);
    return result;
}

REAL(char *, realpath, const char *, char *);
char *CALL(realpath)(const char *path, char *to)
{
    struct call c = begin(LOOK, "realpath", 0);
    char *result = fails(&c) ? NULL : DO(realpath)(path, to);
    end(&c, result != NULL, "%s", path);
    return result;
}

REAL(struct dirent *, readdir, DIR *);
struct dirent *CALL(readdir)(DIR *d)
{
    struct call c = begin(LOOK, "readdir", 0);
    struct dirent *entry = fails(&c) ? NULL : DO(readdir)(d);
    end(&c, entry != NULL, "%s", entry ? entry->d_name : "");
    return entry;
}
struct dirent64 *CALL(readdir64)(DIR *) __attribute__((alias(PREFIX "readdir")));

REAL(off_t, lseek, int, off_t, int);
off_t CALL(lseek)(int fd, off_t offset, int whence)
{
    struct call c = begin(LOOK, "lseek", 0);
    off_t result = fails(&c) ? -1 : DO(lseek)(fd, offset, whence);
    end(&c, (long)result, "%d", fd);
    return result;
}
ALIAS(off_t, lseek64, lseek, int, off_t, int);

/* -- reading and writing -- */

static size_t part_of(const struct call *c, size_t size)
{
    return c->how == END ? 0 : (c->how == SHORT || c->how == TEAR) && size > 1 ? size / 2 : size;
}

REAL(ssize_t, read, int, void *, size_t);
ssize_t CALL(read)(int fd, void *data, size_t size)
{
    struct call c = begin(READ, "read", 0);
    ssize_t n = fails(&c) ? -1 : DO(read)(fd, data, part_of(&c, size));
    end(&c, (long)n, "%d", fd);
    return n;
}

REAL(ssize_t, pread, int, void *, size_t, off_t);
ssize_t CALL(pread)(int fd, void *data, size_t size, off_t offset)
{
    struct call c = begin(READ, "pread", 0);
    ssize_t n = fails(&c) ? -1 : DO(pread)(fd, data, part_of(&c, size), offset);
    end(&c, (long)n, "%d", fd);
    return n;
}
ALIAS(ssize_t, pread64, pread, int, void *, size_t, off_t);

/* The line of a write: its bytes follow, if wanted. */
static void end_write(const struct call *c, ssize_t n, int fd, off_t offset,
                      const unsigned char *data)
{
    if (c->how == TEAR) die();
    if (log_fd >= 0 && !at && logs_data && n > 0) {
        static const char digits[] = "0123456789abcdef";
        const int saved = errno;
        size_t size = (size_t)n;
        char head[128], *text = DO(malloc)(2 * size + sizeof head);
        size_t length = (size_t)snprintf(text, sizeof head, "%ld write %s %zd %d %lld ", c->number,
                                         c->name, n, fd, (long long)offset);
        for (size_t i = 0; i < size; i++) {
            text[length++] = digits[data[i] >> 4];
            text[length++] = digits[data[i] & 15];
        }
        text[length++] = '\n';
        write_log(text, length);
        free(text);
        errno = saved;
    } else {
        end(c, (long)n, "%d %lld ", fd, (long long)offset);
    }
    if (c->how == AFTER) die();
}

static ssize_t skip_write(int fd, size_t size)
{
    syscall(SYS_lseek, fd, (long)size, SEEK_CUR);
    return (ssize_t)size;
}

REAL(ssize_t, write, int, const void *, size_t);
ssize_t CALL(write)(int fd, const void *data, size_t size)
{
    struct call c = begin(WRITE, "write", 1);
    const off_t offset = logs_data ? (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) : 0;
    ssize_t n = fails(&c)       ? -1
                : c.how == LOST ? skip_write(fd, size)
                                : DO(write)(fd, data, part_of(&c, size));
    end_write(&c, n, fd, offset, (const unsigned char *)data);
    return n;
}

REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
ssize_t CALL(pwrite)(int fd, const void *data, size_t size, off_t offset)
{
    struct call c = begin(WRITE, "pwrite", 1);
    ssize_t n = fails(&c)       ? -1
                : c.how == LOST ? (ssize_t)size
                                : DO(pwrite)(fd, data, part_of(&c, size), offset);
    end_write(&c, n, fd, offset, (const unsigned char *)data);
    return n;
}
ALIAS(ssize_t, pwrite64, pwrite, int, const void *, size_t, off_t);

/* Counts as one write of all parts. */
ssize_t CALL(pwritev)(int fd, const struct iovec *parts, int n_parts, off_t offset)
{
    size_t size = 0, at = 0;
    for (int i = 0; i < n_parts; i++) size += parts[i].iov_len;
    char *all = DO(malloc)(size);
    for (int i = 0; i < n_parts; at += parts[i++].iov_len)
        memcpy(all + at, parts[i].iov_base, parts[i].iov_len);
    const ssize_t n = CALL(pwrite)(fd, all, size, offset);
    free(all);
    return n;
}
ALIAS(ssize_t, pwritev64, pwritev, int, const struct iovec *, int, off_t);

/* A call that changes the disk, or syncs it, of which only the result matters. */
#define CHANGE(kind, creates, function, parameters, types, arguments, show, ...)                   \
    REAL(int, function, types);                                                                    \
    int CALL(function) parameters                                                                  \
    {                                                                                              \
        struct call c = begin(kind, #function, creates);                                           \
        int result = fails(&c) ? -1 : DO(function) arguments;                                      \
        end(&c, result, show, __VA_ARGS__);                                                        \
        return result;                                                                             \
    }                                                                                              \
    extern int faults_unused
#define COMMA ,

CHANGE(NAME, 0, ftruncate, (int fd, off_t size), int COMMA off_t, (fd, size), "%d %lld", fd,
       (long long)size);
ALIAS(int, ftruncate64, ftruncate, int, off_t);
CHANGE(NAME, 0, rename, (const char *from, const char *to), const char *COMMA const char *,
       (from, to), "%s %s", from, to);
CHANGE(NAME, 1, link, (const char *from, const char *to), const char *COMMA const char *,
       (from, to), "%s %s", from, to);
CHANGE(NAME, 0, unlink, (const char *path), const char *, (path), "%s", path);
CHANGE(NAME, 0, rmdir, (const char *path), const char *, (path), "%s", path);
CHANGE(NAME, 1, mkdir, (const char *path, mode_t mode), const char *COMMA mode_t, (path, mode),
       "%s", path);
CHANGE(ATTRIBUTE, 0, chmod, (const char *path, mode_t mode), const char *COMMA mode_t, (path, mode),
       "%s %o", path, mode);
CHANGE(ATTRIBUTE, 0, fchmod, (int fd, mode_t mode), int COMMA mode_t, (fd, mode), "%d %o", fd,
       mode);
CHANGE(ATTRIBUTE, 0, fchown, (int fd, uid_t user, gid_t group), int COMMA uid_t COMMA gid_t,
       (fd, user, group), "%d", fd);
CHANGE(ATTRIBUTE, 0, futimens, (int fd, const struct timespec times[2]),
       int COMMA const struct timespec *, (fd, times), "%d", fd);
CHANGE(ATTRIBUTE, 0, utimensat,
       (int fd, const char *path, const struct timespec times[2], int flags),
       int COMMA const char *COMMA const struct timespec *COMMA int, (fd, path, times, flags), "%s",
       path);
CHANGE(ATTRIBUTE, 0, fchmodat, (int fd, const char *path, mode_t mode, int flags),
       int COMMA const char *COMMA mode_t COMMA int, (fd, path, mode, flags), "%s %o", path, mode);
CHANGE(LOCK, 0, flock, (int fd, int operation), int COMMA int, (fd, operation), "%d", fd);

/* Calls below a descriptor: the log has the names of those with a path. */
REAL(int, mkdirat, int, const char *, mode_t);
int CALL(mkdirat)(int fd, const char *name, mode_t mode)
{
    char path[2 * 4096];
    struct call c = begin(NAME, "mkdir", 1);
    int result = fails(&c) ? -1 : DO(mkdirat)(fd, name, mode);
    end(&c, result, "%s", resolve(fd, name, path));
    return result;
}

REAL(int, unlinkat, int, const char *, int);
int CALL(unlinkat)(int fd, const char *name, int flags)
{
    char path[2 * 4096];
    struct call c = begin(NAME, flags & AT_REMOVEDIR ? "rmdir" : "unlink", 0);
    int result = fails(&c) ? -1 : DO(unlinkat)(fd, name, flags);
    end(&c, result, "%s", resolve(fd, name, path));
    return result;
}

REAL(int, linkat, int, const char *, int, const char *, int);
int CALL(linkat)(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    char old[2 * 4096], path[2 * 4096];
    struct call c = begin(NAME, "link", 1);
    int result = fails(&c)      ? -1
                 : has_no_links ? (errno = EPERM, -1)
                                : DO(linkat)(from_fd, from, to_fd, to, flags);
    end(&c, result, "%s %s", resolve(from_fd, from, old), resolve(to_fd, to, path));
    return result;
}

REAL(int, renameat, int, const char *, int, const char *);
int CALL(renameat)(int from_fd, const char *from, int to_fd, const char *to)
{
    char old[2 * 4096], path[2 * 4096];
    struct call c = begin(NAME, "rename", 0);
    int result = fails(&c) ? -1 : DO(renameat)(from_fd, from, to_fd, to);
    end(&c, result, "%s %s", resolve(from_fd, from, old), resolve(to_fd, to, path));
    return result;
}

REAL(int, symlinkat, const char *, int, const char *);
int CALL(symlinkat)(const char *target, int fd, const char *name)
{
    char path[2 * 4096];
    struct call c = begin(NAME, "symlink", 1);
    int result = fails(&c) ? -1 : DO(symlinkat)(target, fd, name);
    end(&c, result, "%s", resolve(fd, name, path));
    return result;
}

REAL(char *, mkdtemp, char *);
char *CALL(mkdtemp)(char *path)
{
    struct call c = begin(NAME, "mkdtemp", 1);
    char *result = fails(&c) ? NULL : DO(mkdtemp)(path);
    end(&c, result ? 0 : -1, "%s", path);
    return result;
}

/* renameat2() and syncfs() are called by number where the C library may not have them */
REAL(long, syscall, long, ...);
long CALL(syscall)(long what, ...)
{
    long a[6], result;
    struct call c;
    va_list list;
    va_start(list, what);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (what == SYS_syncfs) { /* as fsync(): it takes long, and has no visible effect */
        c = begin(SYNC, "syncfs", 0);
        result = fails(&c) ? -1 : 0;
        end(&c, result, "%d", (int)a[0]);
        return result;
    }
    if (what != SYS_renameat2) return DO(syscall)(what, a[0], a[1], a[2], a[3], a[4], a[5]);
    char old[2 * 4096], path[2 * 4096];
    c = begin(NAME, a[4] == 2 ? "exchange" : "rename", 0);
    c.refusal = find_refusal("renameat2");
    result = fails(&c) ? -1 : DO(syscall)(what, a[0], a[1], a[2], a[3], a[4], a[5]);
    end(&c, result, "%s %s", resolve((int)a[0], (const char *)a[1], old),
        resolve((int)a[2], (const char *)a[3], path));
    return result;
}

int CALL(fsync)(int fd)
{
    struct call c = begin(SYNC, "fsync", 0);
    const char *directory = getenv("FAULTS_DIRECTORY");
    struct stat st, only;
    if (refusals && DO(fstat)(fd, &st) == 0 && S_ISDIR(st.st_mode) &&
        (!directory || (DO(stat)(directory, &only) == 0 && only.st_ino == st.st_ino)))
        c.refusal = find_refusal("fsyncdir");
    int result = fails(&c) ? -1 : 0;
    end(&c, result, "%d", fd);
    return result;
}

int CALL(fdatasync)(int fd)
{
    struct call c = begin(SYNC, "fdatasync", 0);
    int result = fails(&c) ? -1 : 0;
    end(&c, result, "%d", fd);
    return result;
}

REAL(int, fcntl, int, int, ...);
int CALL(fcntl)(int fd, int command, ...)
{
    struct call c = begin(LOCK, "fcntl", 0);
    const int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
                      command == F_OFD_SETLKW;
    va_list list;
    void *argument;
    int result;
    va_start(list, command);
    argument = va_arg(list, void *);
    va_end(list);
    if (locks) c.refusal = find_refusal("lock");
    result = fails(&c) ? -1 : DO(fcntl)(fd, command, argument);
    end(&c, result, "%d", fd);
    return result;
}
ALIAS(int, fcntl64, fcntl, int, int, ...);

/* Fails after it was done: the descriptor is closed in any case. */
REAL(int, close, int);
int CALL(close)(int fd)
{
    struct call c = begin(CLOSE, "close", 0);
    int result = DO(close)(fd);
    if (fails(&c)) result = -1;
    end(&c, result, "%d", fd);
    return result;
}

REAL(int, closedir, DIR *);
int CALL(closedir)(DIR *d)
{
    struct call c = begin(CLOSE, "closedir", 0);
    int fd = dirfd(d), result = DO(closedir)(d);
    if (fails(&c)) result = -1;
    end(&c, result, "%d", fd);
    return result;
}

REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int CALL(pthread_create)(pthread_t *thread, const pthread_attr_t *attributes,
                         void *(*function)(void *), void *user)
{
    struct call c = begin(THREAD, "pthread_create", 0);
    int result = fails(&c) ? errno : DO(pthread_create)(thread, attributes, function, user);
    end(&c, result, "-");
    return result;
}
