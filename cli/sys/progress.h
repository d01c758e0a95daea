/* progress.h - the line that shows how far the work is
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

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
