/* SPDX-License-Identifier: MIT */
#include "temporary.h"

#include <pthread.h>
#include <signal.h>
#include <sys/file.h>

#include "attributes.h"
#include "tree.h"

/* The temporary file or directory; there is at most one. */
static struct {
    pthread_mutex_t lock;
    char *path;    /* NULL: none */
    int locked_fd; /* of a temporary directory, for its lock; -1: none */
    const char *last_name, *last_text;
} temporary = {PTHREAD_MUTEX_INITIALIZER, NULL, -1, NULL, NULL};

void register_temporary(char *path)
{
    free(temporary.path);
    temporary.path = path;
    if (temporary.locked_fd >= 0) close(temporary.locked_fd);
    temporary.locked_fd = -1;
}

void lock_temporary(void) { pthread_mutex_lock(&temporary.lock); }

void unlock_temporary(void) { pthread_mutex_unlock(&temporary.lock); }

const char *registered_temporary(void) { return temporary.path; }

void remove_temporary(void)
{
    int error = 0;
    lock_temporary();
    if (temporary.path) error = remove_tree(temporary.path);
    if (error) say(temporary.path, "cannot be removed: %s", strerror(error));
    register_temporary(NULL);
    unlock_temporary();
}

void set_last_words(const char *name, const char *text)
{
    lock_temporary();
    temporary.last_name = name;
    temporary.last_text = text;
    unlock_temporary();
}

void say_last_words(void)
{
    lock_temporary();
    if (temporary.last_text) say(temporary.last_name, "%s", temporary.last_text);
    unlock_temporary();
}

static void *signal_thread(void *user)
{
    sigset_t *set = (sigset_t *)user;
    int number = 0;
    if (sigwait(set, &number) != 0) return NULL;
    lock_temporary();
    if (temporary.path) remove_tree(temporary.path);
    progress_clear();
    if (temporary.last_text) say(temporary.last_name, "%s", temporary.last_text);
    signal(number, SIG_DFL); /* ends by this signal, so that the caller sees it */
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    raise(number);
    _exit(CODE_ERROR);
}

void watch_signals(void)
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
    signal(SIGPIPE, SIG_IGN); /* then writing fails with EPIPE, and lmc can clean up */
    signal(SIGXFSZ, SIG_IGN); /* the same with EFBIG */
    signal(SIGIO, SIG_IGN);   /* sent if a program waits for a lease of look.c */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, signal_thread, &set) == 0) pthread_detach(thread);
    else pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static char *temporary_name_in(const char *directory)
{
    return join_path(directory, ".lmc-XXXXXX");
}

char *temporary_name_beside(const char *path)
{
    char *directory = directory_of(path), *name = temporary_name_in(directory);
    free(directory);
    return name;
}

int is_temporary_name(const char *path)
{
    /* by which mkstemp() replaces the Xs */
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for (;; path++) {
        if (strncmp(path, ".lmc-", 5) == 0 && strcspn(path, "/") == 11 &&
            strspn(path + 5, characters) == 6)
            return 1;
        path = strchr(path, '/');
        if (!path) return 0;
    }
}

static void name_descriptor(char name[40], int fd) { snprintf(name, 40, "/proc/self/fd/%d", fd); }

/* Whether /proc has a path for the file: only then can link_unnamed() give it a name. */
static int has_descriptor_name(int fd)
{
    struct stat st, by_name;
    char name[40];
    name_descriptor(name, fd);
    return fstat(fd, &st) == 0 && stat(name, &by_name) == 0 && same_file(&st, &by_name);
}

int open_unnamed(const char *path, int *fd)
{
    int error = ENOSYS;
    *fd = -1;
#ifdef O_TMPFILE
    char *directory = directory_of(path);
    *fd = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    error = *fd < 0 ? errno : 0;
    free(directory);
#endif
    (void)path;
    if (error || has_descriptor_name(*fd)) return error;
    close(*fd);
    return ENOSYS;
}

int link_unnamed(int fd, const char *path)
{
    char name[40];
    name_descriptor(name, fd);
    return linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Locks a file or directory with a temporary name while its process runs. Without the lock,
 * say_left_behind() may report it while it is in use. */
static int lock_made(const char *made, int fd)
{
    int locked = fd;
    if (fd < 0) locked = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (locked >= 0) (void)!flock(locked, LOCK_EX | LOCK_NB);
    return fd < 0 ? locked : -1; /* a file is locked by its own descriptor */
}

static int is_left_behind(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC), result;
    if (fd < 0) return 0;
    result = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
             st.st_uid == geteuid() && flock(fd, LOCK_SH | LOCK_NB) == 0;
    close(fd);
    return result;
}

void say_left_behind(const char *path)
{
    char *directory = directory_of(path), *first = NULL;
    struct listing names;
    size_t n = 0;
    (void)list_names(&names, directory);
    for (size_t i = 0; i < names.n; i++) {
        const char *const name = names.entries[i].path;
        char *full = is_temporary_name(name) ? join_path(directory, name) : NULL;
        if (full && is_left_behind(full) && n++ == 0) first = copy_text(full);
        free(full);
    }
    if (n > 1)
        say(first,
            "and %llu more look like what a killed lmc has left; FILES in 'man lmc' tells "
            "when to remove them",
            (unsigned long long)n - 1);
    else if (n == 1)
        say(first, "looks like what a killed lmc has left; FILES in 'man lmc' tells when to "
                   "remove it");
    free(first);
    free_listing(&names);
    free(directory);
}

int create_temporary(const char *path, int *fd, const char **name)
{
    char *made = temporary_name_beside(path);
    int error = 0;
    lock_temporary();
    if (fd ? (*fd = mkstemp(made)) >= 0 : mkdtemp(made) != NULL) {
        register_temporary(made);
        temporary.locked_fd = lock_made(made, fd ? *fd : -1);
    } else error = errno;
    unlock_temporary();
    if (error) {
        free(made);
        if (error == ENOENT) {
            char *directory = directory_of(path);
            const int code =
                fail(CODE_ERROR, path, "cannot create it: there is no directory %.400s", directory);
            free(directory);
            return code;
        }
        return fail_errno(path, error,
                          fd ? "cannot create a file beside it"
                             : "cannot create a directory beside it");
    }
    *name = made;
    return CODE_OK;
}

int open_scratch(const char *beside, int *fd)
{
    const char *scratch = getenv("TMPDIR");
    char *directory = scratch && *scratch ? copy_text(scratch) : directory_of(beside),
         *path = temporary_name_in(directory);
    int code = CODE_OK;
    lock_temporary(); /* so that no signal ends lmc before the name is removed */
    *fd = mkstemp(path);
    if (*fd >= 0) unlink(path);
    else
        code = fail_errno(directory, errno,
                          "cannot put a scratch file there; TMPDIR names another directory for it");
    unlock_temporary();
    free(path);
    free(directory);
    return code;
}

int fail_scratch(int error)
{
    return fail_errno("(scratch file)", error,
                      "cannot use it; TMPDIR names the directory where it is");
}
