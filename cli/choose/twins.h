/* twins.h - what repeats something: equal tensors and files, and rounded copies of fp32 masters
 * SPDX-License-Identifier: MIT
 *
 * Twins are found by samples of the files; the library goes without where a sample has deceived,
 * block by block. A file without tensors, be it a hard link or a copy, counts as one tensor. What
 * is repeated must come first, so files that hold masters are stored before those that hold the
 * copies.
 */
#pragma once

#include "../sys/platform.h"

struct members;

/* Finds the twins among the members, and orders these. */
int find_twins(struct members *m);
