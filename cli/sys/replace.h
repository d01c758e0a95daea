/* replace.h - names that move, take the place of another, or go
 * SPDX-License-Identifier: MIT
 *
 * All functions return 0 or errno, and report nothing but what could not be undone.
 */
#pragma once

#include "platform.h"

/* Moves a file or a tree to where nothing is yet, at once where the system can. Elsewhere a link
 * claims the name, or, of a tree or without links, something empty that rename then replaces. */
int move_without_overwriting(const char *from, const char *to);

/* Puts one name in the place of the other, both at once where the system can. */
int exchange_names(const char *from, const char *to, char *aside, int *is_aside);

/* Removes the file or tree at path, however deep it is: links not followed, mounted file systems
 * not entered. What can be removed is; the error is the first one. Out of memory is an error as any
 * other here: this may run because memory was short. */
int remove_tree(const char *path);
