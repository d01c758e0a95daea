/* print.h - names and numbers on standard output
 * SPDX-License-Identifier: MIT
 *
 * Names come from files: none of their control characters reaches the terminal.
 */
#ifndef LMC_CLI_PRINT_H
#define LMC_CLI_PRINT_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

/* 100 for a part of nothing. */
double percent(uint64_t part, uint64_t whole);

/* "[3,4]", cut to fit; of LMC_MAX_RANK * 21 + 3 bytes it is whole. */
void format_shape(char *text, size_t cap, const lmc_tensor *t);

/* Without control characters. */
void print_name(const char *name);

/* The first column of a line: a dtype, which is a string from the file, too, or another word. */
void print_dtype(const char *dtype);

#endif
