/* help.h - the texts of 'lmc help'
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_HELP_H
#define LMC_CLI_HELP_H

#include "sys/platform.h"

/* The text of 'lmc help NAME', to standard output. CODE_OK, or CODE_USAGE, reported: there is
 * none. */
int print_help(const char *name);

#endif
