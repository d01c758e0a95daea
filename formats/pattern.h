/* pattern.h - patterns for names of tensors and files
 * SPDX-License-Identifier: MIT
 *
 *     *          any characters, also none and '/'
 *     ?          one character
 *     [abx-z]    one of these; [!abx-z]: one that is none of them
 *
 * All else stands for itself, upper and lower case apart. A pattern is for the whole name. In a
 * set, a ']' that comes first stands for itself, and so does a '-' that comes first or last. [*] is
 * the character '*'.
 *
 * A character is one of UTF-8. A byte that belongs to none counts as one, with the number that
 * Python gives it (0xDC00 and its value).
 *
 * What other languages of patterns read otherwise is a fault, and matches nothing: '\', '{', [^a],
 * [[:lower:]], [a-c-e], a set that is empty or has no end, a range that goes backwards. So no
 * pattern means something else here than in such a language.
 */
#pragma once

#include <stddef.h>

/* What is wrong with the pattern, for a message; NULL: nothing. */
const char *find_pattern_fault(const char *pattern, size_t size);

/* Whether it is a pattern without a fault, for "DIRECTORY/NAME"; for the name alone, if directory
 * is NULL or "". Time: at most that of the pattern's size times the name's. */
int match_pattern(const char *pattern, size_t size, const char *directory, const char *name);
