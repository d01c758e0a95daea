/* replace.h - one name in the place of another
 * SPDX-License-Identifier: MIT
 *
 * All functions return 0 or errno, and report nothing but what could not be undone.
 */
#ifndef LMC_CLI_REPLACE_H
#define LMC_CLI_REPLACE_H

#include "platform.h"

/* Moves from to where nothing may be yet; 0 or errno. A link cannot overwrite; where there are no
 * links, an empty file claims the name first. */
int move_without_overwriting(const char *from, const char *to);

/* Puts the tree where nothing is, at once where the system can; 0 or errno. Elsewhere an empty
 * directory claims the name, which rename then replaces. */
int move_tree(const char *from, const char *to);

/* Puts one name in the place of the other, both at once where the system can; 0 or errno. */
int exchange_names(const char *from, const char *to, char *aside, int *is_aside);

#endif
