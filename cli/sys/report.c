/* report.c - messages on standard error, or in the system's log (platform.h)
 * SPDX-License-Identifier: MIT */
#include "platform.h"

#include <pthread.h>
#include <stdarg.h>
#include <syslog.h>

#include "../../formats/printable.h"

/* Held while writing to standard error, which messages and the progress line share. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int line_is_shown; /* the progress line is on the terminal now */

static int has_speaker; /* then only that thread reports */
static pthread_t speaker;

static int is_syslog; /* messages go there */

static char errors[2][1024]; /* for take_error(): the last error, and the one that was taken */

/* Called with the lock held. */
static int is_silent(void) { return has_speaker && !pthread_equal(speaker, pthread_self()); }

void silence_other_threads(void)
{
    pthread_mutex_lock(&lock);
    has_speaker = 1;
    speaker = pthread_self();
    pthread_mutex_unlock(&lock);
}

void report_to_syslog(void)
{
    openlog("lmc", LOG_PID, LOG_DAEMON);
    is_syslog = 1;
}

/* Called with the lock held. */
static void erase_line(void)
{
    if (line_is_shown) fputs("\r\033[K", stderr);
    line_is_shown = 0;
}

void progress_clear(void)
{
    pthread_mutex_lock(&lock);
    erase_line();
    pthread_mutex_unlock(&lock);
}

void draw_line(const char *text)
{
    pthread_mutex_lock(&lock);
    if (!is_silent()) {
        fprintf(stderr, "\r\033[K%s", text);
        fflush(stderr);
        line_is_shown = 1;
    }
    pthread_mutex_unlock(&lock);
}

int fail(enum exit_code code, const char *name, const char *format, ...)
{
    char text[1024], spare[1200], *line;
    va_list list;
    name = name ? name : "";
    size_t size = (strlen(name) + sizeof text) * MAX_PRINTABLE + 16, n;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    line = (char *)malloc(size);
    if (!line) { /* no memory: cut, but reported */
        line = spare;
        size = sizeof spare;
    }
    (void)fflush(stdout); /* keeps the order if both go to one file */
    pthread_mutex_lock(&lock);
    if (code != CODE_OK) memcpy(errors[0], text, sizeof text);
    erase_line();
    n = (size_t)snprintf(line, size, "lmc: ");
    n += format_printable(line + n, size - n - 2, name);
    if (*name) n += (size_t)snprintf(line + n, size - n, ": ");
    format_printable(line + n, size - n, text);
    if (is_syslog) syslog(code == CODE_OK ? LOG_NOTICE : LOG_ERR, "%s", line + 5);
    else if (!is_silent())
        fprintf(stderr, "%s\n", line); /* one write: lines of several processes do not mix */
    pthread_mutex_unlock(&lock);
    if (line != spare) free(line);
    return (int)code;
}

const char *take_error(void)
{
    pthread_mutex_lock(&lock);
    memcpy(errors[1], errors[0], sizeof errors[1]);
    errors[0][0] = 0;
    pthread_mutex_unlock(&lock);
    return errors[1];
}

const char *hint_for_url(const char *name, int error)
{
    if (error != ENOENT || !name || !strstr(name, "://")) return "";
    return "; lmc reads no URLs: curl -L URL | lmc -d, or lmc_codec.open(URL) in Python";
}

const char *error_text(int error)
{
    return error == ERROR_LEASED ? "another program holds a lease on it, and does not give it up"
                                 : strerror(error);
}

int fail_errno(const char *name, int error, const char *what)
{
    const char *hint = hint_for_url(name, error);
    if (error == EPIPE && name && strcmp(name, STANDARD_OUTPUT) == 0)
        return CODE_ERROR; /* the reader has closed the pipe: "lmc -l x.lmc | head" */
    if (error == ENOSPC || error == EDQUOT)
        hint = "; free some space (df), or inodes (df -i), and try again";
    else if (error == EFBIG)
        hint = "; the file system or a limit of the shell (ulimit -f) allows no larger file";
    else if (error == EPIPE) hint = "; the reader has closed the pipe";
    return fail(CODE_ERROR, name, "%s: %s%s", what, error_text(error), hint);
}

int fail_status(const char *name, enum lmc_status status)
{
    enum exit_code code = CODE_ERROR;
    if (status == LMC_ERR_NOT_LMC || status == LMC_ERR_TRUNCATED || status == LMC_ERR_CORRUPT ||
        status == LMC_ERR_CHECKSUM)
        code = CODE_CORRUPT;
    if (status == LMC_ERR_BASE_MISSING || status == LMC_ERR_BASE_WRONG) code = CODE_BASE;
    if (status == LMC_ERR_LIMIT)
        return fail(code, name,
                    "exceeds a limit of the format, or the 1 GiB that lmc reads of an index");
    if (status == LMC_ERR_UNSUPPORTED)
        return fail(code, name,
                    "was written by a newer lmc and uses what this one does not know: update lmc "
                    "('lmc help dump' tells how to see what it is)");
    return fail(code, name, "%s", lmc_status_text(status));
}

int worse(int a, int b) { return a > b ? a : b; }
