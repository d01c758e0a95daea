/* platform.h - what nearly all files use, and macros that must precede the system's headers
 * SPDX-License-Identifier: MIT
 *
 * Every header of the command includes this first, and every source file its own header first.
 */
#pragma once

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE
#endif
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* renameat2, sync_file_range */
#endif

#if defined(__APPLE__)
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

#include "../../formats/printable.h"
#include "../../formats/sorted.h"
#include "../../lmc.h"

/* -- memory whose allocation never fails, and lists in it --
 *
 * If memory runs out, the process ends: a command has nothing better to do. All results are to be
 * freed with free().
 */

/* hook is called once if memory runs out, before the process ends. It must not allocate. */
void on_out_of_memory(void (*hook)(void));

/* Returns p. If p is NULL, reports that memory ran out, and ends the process. */
void *check_memory(void *p);

/* Closes f, of open_memstream(text, ...), and ends the program if there is no memory. */
void close_text(FILE *f, char *const *text);

/* realloc() for n items of that size; never fails and never returns NULL. To be freed. */
void *resize(void *p, size_t n, size_t size);

/* Memory for n items of that size, all zero. */
void *zeroed(size_t n, size_t size);

/* Grows a list of n items of that size, if it is full: *cap is the number that it has room for. */
void *grow(void *list, size_t n, size_t *cap, size_t size);

/* Adds an item, all zero, to a list of *n items, and returns it. list: address of the pointer to
 * the list; the pointer may change. */
void *append(void *list, size_t *n, size_t *cap, size_t size);

/* The text that printf() would print. To be freed. */
LIKE_PRINTF(1, 2) char *format_text(const char *format, ...);
LIKE_PRINTF(1, 0) char *format_list(const char *format, va_list list);

/* Adds such a text to the end of *text, which may move. */
LIKE_PRINTF(2, 3) void append_text(char **text, const char *format, ...);

/* A copy of the first size bytes of text, with a zero behind them; or of all of it. To be freed. */
char *copy_string(const char *text, size_t size);
char *copy_text(const char *text);

/* -- paths and names as texts; nothing here looks at the disk -- */

#ifdef O_PATH
#define PARENT_FLAGS (O_PATH | O_DIRECTORY | O_CLOEXEC) /* it need not be readable */
#else
#define PARENT_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#endif

/* "directory/name", or a copy of directory if name is "". NULL: out of memory. */
char *try_join_path(const char *directory, const char *name);

/* The same, which never fails. To be freed. */
char *join_path(const char *directory, const char *name);

/* "directory/.NAME" and the suffix, for "directory/NAME"; or a hash of NAME, if no file can have
 * that name. To be freed. */
char *name_side_file(const char *path, const char *suffix);

/* Draws a name for a temporary file or directory: ".lmc-XXXXXX". Does not allocate. */
void draw_temporary_name(char name[12]);

/* Whether path, or a directory above it, has such a name. */
int is_temporary_name(const char *path);

#define SUFFIX ".lmc"

/* Whether the name ends with suffix, and is longer. */
int is_suffix_of(const char *suffix, const char *name);

/* The same for SUFFIX. */
int has_suffix(const char *path);

/* "-": standard input or output. */
int is_dash(const char *path);

/* "." or "..". */
int is_dot(const char *name);

/* The directory that path is in; "." if path has no slash. To be freed. */
char *directory_of(const char *path);

/* Compares names, and numbers in them as numbers: step_9 before step_10. For qsort() of structs
 * that begin with a name. */
int compare_numbered(const void *a, const void *b);

/* Compares by components: what is below a directory directly follows the directory. */
int compare_paths(const char *a, const char *b);

/* Whether a resolved path is the path of directory, or is below it. */
int is_at_or_below(const char *path, const char *directory);

/* The path without slashes at its end. To be freed. */
char *copy_without_slashes(const char *path);

/* The part behind the last slash; points into path. */
const char *base_name(const char *path);

/* Whether two words differ by one letter (added, missing or other), or by two exchanged letters. */
int is_near(const char *a, const char *b);

/* Parses a number from least to 2^63 - 1, decimal digits only. Returns 0 for any other text. */
int parse_count(uint64_t *count, const char *text, uint64_t least);

/* Whether two fingerprints are equal. */
static inline int same_fingerprint(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, LMC_FINGERPRINT_SIZE) == 0;
}

/* -- messages on standard error, and their exit codes --
 *
 * The function that finds an error reports it by one of the fail functions, and returns their exit
 * code. Callers return that code: so an error is reported once. Any thread may report.
 */

enum exit_code { CODE_OK = 0, CODE_ERROR = 1, CODE_USAGE = 2, CODE_CORRUPT = 3, CODE_BASE = 4 };

/* The name of standard output in messages. */
#define STANDARD_OUTPUT "(standard output)"

/* Draws the progress line. text: printable (printable.h), and not wider than the terminal. */
void draw_line(const char *text);

/* "lmc: NAME: message"; NULL or "": no name. */
LIKE_PRINTF(3, 4) int fail(enum exit_code code, const char *name, const char *format, ...);

/* The same for messages that are no errors. */
#define say(...) ((void)fail(CODE_OK, __VA_ARGS__))

/* The last error that was reported since the call before, without the name; "" if there was none.
 * Valid until the next error. */
const char *take_error(void);

/* From now on the messages of all other threads are dropped: the caller ends the process, and takes
 * away what they work with. */
void silence_other_threads(void);

/* From now on messages go to syslog. Before any other thread reports. */
void report_to_syslog(void);

/* If `name`, for which a call failed with `error`, is a URL: the end of a message that says that
 * lmc reads none. Else "". */
const char *hint_for_url(const char *name, int error);

/* An error of open_file() (spot.h) that is none of the system's. */
#define ERROR_LEASED (1 << 20)

/* strerror(), which also knows that one. */
const char *error_text(int error);

/* For a failed system call; silent if standard output was closed. what: "cannot open it". */
int fail_errno(const char *name, int error, const char *what);

/* Reports a status that the library has returned, and chooses the exit code. */
int fail_status(const char *name, enum lmc_status status);

/* The higher one of two exit codes. */
int worse(int a, int b);

/* -- the progress line (progress.c) -- */

/* Seconds of a monotonic clock. */
double now(void);

/* Whether a line is drawn at all. */
void progress_enable(int wanted);

/* Begins to count at 0. name: must outlive the counting; total: bytes, or LMC_UNKNOWN_SIZE. */
void progress_start(const char *name, uint64_t total);

/* Counts `size` bytes more. Draws the line again, five times a second. */
void progress_add(uint64_t size);

/* Of what was counted, size bytes will be counted again. */
void progress_take_back(uint64_t size);

/* To be called when the work is done, or has failed: removes the line, if there is one. */
void progress_clear(void);

/* Bytes that were counted since progress_start(). */
uint64_t progress_done(void);

/* Columns of the terminal; 0: fd is not a terminal, or they are unknown. */
size_t count_columns(int fd);
