/* SPDX-License-Identifier: MIT */
#include "temporary.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>

#include "attributes.h"
#include "tree.h"

/* The temporary file or directory; there is at most one. */
static struct {
    pthread_mutex_t lock;
    char *path;       /* NULL: none */
    int dir;          /* the directory that it is in */
    struct stat seen; /* it; what others put in its place is not removed */
    const char *last_name, *last_text;
} temporary = {.lock = PTHREAD_MUTEX_INITIALIZER, .dir = -1};

/* What would be left, as a message for a second signal, whose thread cannot wait for the lock of
 * the temporary. */
static struct {
    pthread_mutex_t lock;
    size_t size; /* 0: nothing */
    char text[4096 + 64];
} left = {PTHREAD_MUTEX_INITIALIZER, 0, ""};

static void note_left(const char *path)
{
    static const char head[] = "lmc: ", tail[] = ": is left there\n";
    const size_t cap = sizeof left.text - sizeof head - sizeof tail;
    pthread_mutex_lock(&left.lock);
    left.size = 0;
    if (path) {
        memcpy(left.text, head, sizeof head);
        left.size = sizeof head - 1;
        left.size += format_printable(left.text + left.size, cap, path);
        memcpy(left.text + left.size, tail, sizeof tail);
        left.size += sizeof tail - 1;
    }
    pthread_mutex_unlock(&left.lock);
}

/* Owns path (NULL: none) and dir. */
static void register_temporary(char *path, int dir)
{
    note_left(path);
    free(temporary.path);
    temporary.path = path;
    if (temporary.dir >= 0) close(temporary.dir);
    temporary.dir = dir;
}

void forget_temporary(void) { register_temporary(NULL, -1); }

void change_temporary(const char name[12], const struct stat *seen)
{
    if (*name) memcpy(temporary.path + strlen(temporary.path) - 11, name, 11);
    temporary.seen = *seen;
    note_left(temporary.path);
}

void lock_temporary(void) { pthread_mutex_lock(&temporary.lock); }

void unlock_temporary(void) { pthread_mutex_unlock(&temporary.lock); }

const char *registered_temporary(void) { return temporary.path; }

/* Called with the lock held. */
static void remove_registered(void)
{
    if (!temporary.path) return;
    const int error = remove_tree(temporary.dir, base_name(temporary.path), &temporary.seen);
    if (!error) note_left(NULL);
    else say(temporary.path, "cannot be removed: %s", strerror(error));
}

void remove_temporary(void)
{
    lock_temporary();
    remove_registered();
    forget_temporary();
    unlock_temporary();
}

void change_last_words(const char *name, const char *text)
{
    temporary.last_name = name;
    temporary.last_text = text;
}

void set_last_words(const char *name, const char *text)
{
    lock_temporary();
    change_last_words(name, text);
    unlock_temporary();
}

void say_last_words(void)
{
    lock_temporary();
    if (temporary.last_text) say(temporary.last_name, "%s", temporary.last_text);
    unlock_temporary();
}

/* -- signals -- */

static sigset_t signals; /* those that end lmc, which all threads block */

/* Ends lmc by this signal, so that the parent process sees it. It also ends threads that wait for a
 * file system that does not answer. */
static void end_by(int number)
{
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    raise(number);
    _exit(CODE_ERROR);
}

/* Ends lmc by a second signal, half a second after it, if the first one has not ended it by then.
 * This works whatever other threads wait for: it takes no lock that they hold for long, and writes
 * only if that cannot block. */
static void *second_signal_thread(void *unused)
{
    const struct timespec grace = {0, 500000000};
    struct pollfd out = {STDERR_FILENO, POLLOUT, 0};
    int number = 0;
    (void)unused;
    if (sigwait(&signals, &number) != 0) return NULL;
    nanosleep(&grace, NULL);
    pthread_mutex_lock(&left.lock);
    if (left.size && poll(&out, 1, 0) > 0) (void)!write(STDERR_FILENO, left.text, left.size);
    end_by(number);
    return NULL;
}

static void *signal_thread(void *unused)
{
    pthread_t thread;
    int number = 0;
    (void)unused;
    if (sigwait(&signals, &number) != 0) return NULL;
    if (pthread_create(&thread, NULL, second_signal_thread, NULL) != 0)
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* the second one ends lmc without a word */
    lock_temporary();
    silence_other_threads();
    progress_clear();
    remove_registered();
    if (temporary.last_text) say(temporary.last_name, "%s", temporary.last_text);
    end_by(number);
    return NULL;
}

void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    pthread_t thread;
    sigemptyset(&signals);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) /* nohup */
            sigaddset(&signals, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN); /* then writing fails with EPIPE, and lmc can clean up */
    signal(SIGXFSZ, SIG_IGN); /* the same with EFBIG */
    signal(SIGIO, SIG_IGN);   /* sent if a program waits for a lease of look.c */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (pthread_create(&thread, NULL, signal_thread, NULL) == 0) pthread_detach(thread);
    else pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
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

int open_unnamed(int dir, int *fd)
{
    int error = ENOSYS;
    *fd = -1;
#ifdef O_TMPFILE
    *fd = openat(dir, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    error = *fd < 0 ? errno : 0;
#endif
    (void)dir;
    if (error || has_descriptor_name(*fd)) return error;
    close(*fd);
    return ENOSYS;
}

int link_unnamed(int fd, const struct spot *at)
{
    char name[40];
    name_descriptor(name, fd);
    return linkat(AT_FDCWD, name, at->dir, at->name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Locks a file or directory with a temporary name while its process runs. Without the lock,
 * say_left_behind() may report it while it is in use. */
static void lock_made(int fd) { (void)!flock(fd, LOCK_EX | LOCK_NB); }

/* Makes a file or directory of a new name, and opens it. name: gets the name. 0 or errno. */
static int make_temporary(int dir, enum temporary_kind kind, char *name, int *fd)
{
    const int is_file = kind == TEMPORARY_FILE;
    int result;
    do {
        draw_temporary_name(name);
        result = is_file ? *fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                         : mkdirat(dir, name, 0700);
    } while (result < 0 && errno == EEXIST);
    if (result < 0) return errno;
    if (!is_file) *fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return 0;
}

static int is_left_behind(const char *path)
{
    struct stat st;
    int fd = open_file(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW), result;
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

int fail_beside(const char *path, int error, enum temporary_kind kind)
{
    if (error == ENOENT) {
        char *directory = directory_of(path);
        const int code = fail(CODE_ERROR, path, "cannot create it: there is no directory %.400s%s",
                              directory, hint_for_url(path, error));
        free(directory);
        return code;
    }
    return fail_errno(path, error,
                      kind == TEMPORARY_FILE ? "cannot create a file beside it"
                                             : "cannot create a directory beside it");
}

int create_temporary(const struct spot *beside, const char *path, enum temporary_kind kind, int *fd,
                     const char **name)
{
    char *directory = directory_of(path), *made = join_path(directory, ".lmc-XXXXXX");
    const int dir = openat(beside->dir, ".", PARENT_FLAGS);
    int error = dir < 0 ? errno : 0;
    free(directory);
    *fd = -1;
    lock_temporary();
    if (!error) error = make_temporary(dir, kind, made + strlen(made) - 11, fd);
    if (!error) {
        register_temporary(made, dir);
        memset(&temporary.seen, 0, sizeof temporary.seen);
        if (*fd < 0 || fstat(*fd, &temporary.seen) != 0) error = errno;
        else lock_made(*fd);
        *name = made;
    } else if (dir >= 0) {
        close(dir);
    }
    unlock_temporary();
    if (!error) return CODE_OK;
    if (*name == made) remove_temporary();
    else free(made);
    return fail_beside(path, error, kind);
}

int open_scratch(const char *beside, int *fd)
{
    const char *scratch = getenv("TMPDIR");
    char *directory = scratch && *scratch ? copy_text(scratch) : directory_of(beside), name[12];
    const int dir = open(directory, PARENT_FLAGS);
    int error = dir < 0 ? errno : open_unnamed(dir, fd);
    if (error && dir >= 0) {
        lock_temporary(); /* so that no signal ends lmc before the name is removed */
        error = make_temporary(dir, TEMPORARY_FILE, name, fd);
        if (!error) unlinkat(dir, name, 0);
        unlock_temporary();
    }
    if (dir >= 0) close(dir);
    const int code =
        error ? fail_errno(directory, error,
                           "cannot put a scratch file there; TMPDIR names another directory for it")
              : CODE_OK;
    free(directory);
    return code;
}

int fail_scratch(int error)
{
    return fail_errno("(scratch file)", error,
                      "cannot use it; TMPDIR names the directory where it is");
}
