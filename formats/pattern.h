/* pattern.h - patterns for names of tensors and files
 * SPDX-License-Identifier: MIT
 *
 *     *          any characters, also none and '/'
 *     ?          one character
 *     [abx-z]    one of these characters; [!abx-z]: any other one
 *
 * All other characters match themselves; upper and lower case differ. A pattern must match the
 * whole name. In a set, a first ']', and a first or last '-', match themselves. [*] matches '*'.
 *
 * Characters are those of UTF-8. Any other byte counts as a character with the number that Python
 * uses for it (0xDC00 plus its value).
 *
 * Syntax that has a meaning in other pattern languages is a fault, and matches nothing: '\', '{',
 * [^a], [[:lower:]], [a-c-e], a set that is empty or has no end, a backward range. So no pattern
 * has another meaning here than in those languages.
 */
#pragma once

#include <stddef.h>

/* What is wrong with the pattern, for a message; NULL: nothing. */
const char *find_pattern_fault(const char *pattern, size_t size);

/* Whether the pattern has no fault and matches "DIRECTORY/NAME"; or the name alone, if directory is
 * NULL or "". Time: at most proportional to the pattern's size times the name's size. */
int match_pattern(const char *pattern, size_t size, const char *directory, const char *name);
