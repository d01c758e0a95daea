/* side_file.h - the side file of lmc apply: where it is
 * SPDX-License-Identifier: MIT
 *
 * Nobody reads or writes a target that has one: it is half applied. What is in it is the business
 * of apply_journal.h.
 */
#ifndef LMC_CLI_SIDE_FILE_H
#define LMC_CLI_SIDE_FILE_H

#include "../sys/platform.h"

#include "../sys/report.h"

/* ".NAME.lmc-apply" beside path. */
char *name_journal(const char *path);

/* Whether path is named as a side file is. */
int is_side_name(const char *path);

/* Fails with that code if an apply to path, or to a directory that it lies in, has not ended. */
int check_finished(const char *path, enum exit_code code);

#endif
