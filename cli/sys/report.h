/* report.h - messages on standard error, and the exit codes that go with them
 * SPDX-License-Identifier: MIT
 *
 * The function that finds an error reports it with one of the fail functions, and returns their
 * exit code. Callers pass the code on: an error is reported once. Any thread may report.
 */
#pragma once

#include "platform.h"

#include "../../lmc.h"

enum exit_code { CODE_OK = 0, CODE_ERROR = 1, CODE_USAGE = 2, CODE_CORRUPT = 3, CODE_BASE = 4 };

/* What standard output is called in messages. */
#define STANDARD_OUTPUT "(standard output)"

/* Removes the progress line, if there is one. */
void clear_line(void);

/* Draws the progress line; text: printable (printable.h), no longer than the terminal is wide. */
void draw_line(const char *text);

/* "lmc: NAME: message"; NULL or "": no name. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void say(const char *name, const char *format, ...);

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int fail(enum exit_code code, const char *name, const char *format, ...);

/* For a failed system call; of a closed standard output nothing is said. what: "cannot open it". */
int fail_errno(const char *name, int error, const char *what);

/* Reports what the library has returned, and chooses the exit code. */
int fail_status(const char *name, enum lmc_status status);

/* Of two exit codes the higher one. */
int worse(int a, int b);

/* -- the line that shows how far the work is (progress.c) -- */

/* Seconds of a clock that nobody sets. */
double now(void);

/* Whether a line is drawn at all. */
void progress_enable(int wanted);

/* Begins to count at 0. name: must outlive the counting; total: bytes, or LMC_UNKNOWN_SIZE. */
void progress_start(const char *name, uint64_t total);

/* That many bytes more; draws the line anew, five times a second. */
void progress_add(uint64_t size);

/* To be called when the work is done, or has failed: the line goes. */
void progress_clear(void);

/* Bytes that were counted since progress_start(). */
uint64_t progress_done(void);

/* Columns of the terminal; 0: it is none, or does not tell. */
size_t count_columns(int fd);
