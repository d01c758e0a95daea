/* SPDX-License-Identifier: MIT */
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "names.h"
#include "progress.h"
#include "removal.h"
#include "report.h"

/* The only one. */
static struct {
    pthread_mutex_t lock;
    char *path; /* NULL: none */
    const char *last_name, *last_text;
} temporary = {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, NULL};

void register_temporary(char *path)
{
    free(temporary.path);
    temporary.path = path;
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
    signal(number, SIG_DFL); /* die of it, so that the caller learns the truth */
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
    signal(SIGPIPE, SIG_IGN); /* EPIPE says the same and lets us clean up */
    signal(SIGXFSZ, SIG_IGN); /* likewise EFBIG */
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

int create_temporary(const char *path, int *fd, const char **name)
{
    char *made = temporary_name_beside(path);
    int error = 0;
    lock_temporary();
    if (fd ? (*fd = mkstemp(made)) >= 0 : mkdtemp(made) != NULL) register_temporary(made);
    else error = errno;
    unlock_temporary();
    if (error) {
        free(made);
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
    char *directory =
             scratch && *scratch ? copy_string(scratch, strlen(scratch)) : directory_of(beside),
         *path = temporary_name_in(directory);
    int code = CODE_OK;
    *fd = -1;
#ifdef O_TMPFILE
    *fd = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
#endif
    if (*fd < 0) {
        *fd = mkstemp(path);
        if (*fd >= 0) unlink(path);
    }
    if (*fd < 0)
        code = fail_errno(directory, errno,
                          "cannot put a scratch file there; TMPDIR names another directory for it");
    free(path);
    free(directory);
    return code;
}
