/* report.h - how the command speaks: errors, progress, memory that cannot be had
 * SPDX-License-Identifier: MIT
 *
 * Whoever finds an error reports it by fail() and returns its exit code; callers pass the code on and add nothing.
 */
#ifndef LMC_REPORT_H
#define LMC_REPORT_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum exit_code { CODE_OK = 0, CODE_ERROR = 1, CODE_USAGE = 2, CODE_CORRUPT = 3, CODE_BASE = 4 };

/* A line that is drawn over and over on standard error. */
static struct progress {
    int wanted;
    int shown;       /* the line stands there now */
    const char *name;
    uint64_t total;  /* LMC_UNKNOWN_SIZE: not known */
    uint64_t done;
    double start, drawn;
} progress;

/* What appears on standard error: reading and writing may both have something to say. */
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Called with the lock held. */
static void clear_line(void)
{
    if (progress.shown)
        fputs("\r\033[K", stderr);
    progress.shown = 0;
}

static void progress_clear(void)
{
    pthread_mutex_lock(&report_lock);
    clear_line();
    pthread_mutex_unlock(&report_lock);
}

/* Names come from files: no control character of theirs reaches the terminal. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127)
            *text = '?';
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 0)))
#endif
static void say_list(const char *name, const char *format, va_list list)
{
    char text[1024], spare[1200], *line;
    size_t size = strlen(name) + sizeof text + 16;
    vsnprintf(text, sizeof text, format, list);
    line = (char *)malloc(size);
    if (!line) { /* cut, but said */
        line = spare;
        size = sizeof spare;
    }
    pthread_mutex_lock(&report_lock);
    clear_line();
    snprintf(line, size, "lmc: %s%s%s", name, *name ? ": " : "", text);
    make_printable(line);
    fprintf(stderr, "%s\n", line); /* one write, so that the lines of several processes do not mix */
    pthread_mutex_unlock(&report_lock);
    if (line != spare)
        free(line);
}

/* "lmc: NAME: message"; NULL or "": no name. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void say(const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(name ? name : "", format, list);
    va_end(list);
}

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static int fail(enum exit_code code, const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(name ? name : "", format, list);
    va_end(list);
    return (int)code;
}

/* For a failed system call; what: "cannot open it" and the like. */
static int fail_errno(const char *name, int error, const char *what)
{
    const char *hint = "";
    if (error == ENOSPC || error == EDQUOT)
        hint = "; free some space and try again";
    else if (error == EFBIG)
        hint = "; the file system or a limit of the shell (ulimit -f) allows no larger file";
    else if (error == EPIPE)
        hint = "; the reader has closed the pipe";
    return fail(CODE_ERROR, name, "%s: %s%s", what, strerror(error), hint);
}

static int fail_status(const char *name, enum lmc_status status)
{
    enum exit_code code = CODE_ERROR;
    if (status == LMC_ERR_NOT_LMC || status == LMC_ERR_TRUNCATED || status == LMC_ERR_CORRUPT || status == LMC_ERR_CHECKSUM)
        code = CODE_CORRUPT;
    if (status == LMC_ERR_BASE_MISSING || status == LMC_ERR_BASE_WRONG)
        code = CODE_BASE;
    return fail(code, name, "%s", lmc_status_text(status));
}

static int worse(int a, int b)
{
    return a > b ? a : b;
}

/* -- memory -- */

static void remove_temporary(void); /* files.h */

static void *check_memory(void *p)
{
    if (!p) {
        say(NULL, "out of memory");
        remove_temporary();
        exit(CODE_ERROR);
    }
    return p;
}

static void *resize(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size)
        check_memory(NULL);
    size *= n;
    return check_memory(realloc(p, size ? size : 1));
}

static char *copy_string(const char *text, size_t size)
{
    char *copy = (char *)resize(NULL, size + 1, 1);
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

/* "directory/name", or a copy of directory where name is ""; NULL if there is no memory. */
static char *try_join_path(const char *directory, const char *name)
{
    size_t size = strlen(directory), length = strlen(name);
    char *path = (char *)malloc(size + length + 2);
    if (!path)
        return NULL;
    memcpy(path, directory, size);
    if (length) {
        if (size && path[size - 1] != '/')
            path[size++] = '/';
        memcpy(path + size, name, length);
        size += length;
    }
    path[size] = 0;
    return path;
}

static char *join_path(const char *directory, const char *name)
{
    return (char *)check_memory(try_join_path(directory, name));
}

/* -- progress -- */

static void progress_start(const char *name, uint64_t total)
{
    progress.name = name;
    progress.total = total;
    progress.done = 0;
    progress.start = progress.drawn = now();
}

/* Columns of the terminal on standard error; 80 if that is none or does not tell. */
static size_t count_columns(void)
{
    struct winsize size;
    memset(&size, 0, sizeof size);
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* The name is cut so that the line never wraps: only one line can be drawn over. */
static void progress_draw(double time)
{
    char rest[128] = "";
    double rate = (double)progress.done / (time - progress.start + 1e-9);
    size_t columns = count_columns() - 1, size, name = strlen(progress.name); /* terminals wrap behind the last column */
    char *line;
    size = (size_t)snprintf(rest, sizeof rest, ": %.1f MB, %.0f MB/s", (double)progress.done / 1e6, rate / 1e6);
    if (progress.total != UINT64_MAX && progress.total != 0) {
        double left = (double)(progress.total - progress.done) / (rate + 1e-9);
        if (progress.done > progress.total)
            left = 0;
        size += (size_t)snprintf(rest + size, sizeof rest - size, ", %.1f %%, %d:%02d left",
                                 100.0 * (double)progress.done / (double)progress.total, (int)(left / 60) % 10000, (int)left % 60);
    }
    if (size > columns)
        rest[size = columns] = 0;
    if (name > columns - size)
        name = columns - size;
    while (name > 0 && ((unsigned char)progress.name[name] & 0xC0) == 0x80) /* not within a character */
        name--;
    line = (char *)malloc(name + size + 1);
    if (!line)
        return;
    memcpy(line, progress.name, name);
    memcpy(line + name, rest, size + 1);
    make_printable(line);
    pthread_mutex_lock(&report_lock);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    progress.shown = 1;
    pthread_mutex_unlock(&report_lock);
    free(line);
    progress.drawn = time;
}

static void progress_add(uint64_t size)
{
    progress.done += size;
    if (progress.wanted) {
        double time = now();
        if (time - progress.drawn > 0.2)
            progress_draw(time);
    }
}

#endif
