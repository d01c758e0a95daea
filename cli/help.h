/* help.h - the texts of 'lmc help'
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_HELP_H
#define LMC_CLI_HELP_H

#include "sys/platform.h"

int print_help(const char *name);

#endif
