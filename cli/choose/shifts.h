/* shifts.h - where the bytes of a file that is no container stand in the base
 * SPDX-License-Identifier: MIT
 *
 * A file that got some bytes more in front is like its base, but all of it is elsewhere:
 *
 *     base      | header |   A   |   B   |   C   |
 *     file      | longer header |   A   |  new  |   C   |
 *     parts     |      -        | base A|   -   | base C|
 *
 * Elements change a little from step to step, all over the file, so whole pieces are not equal. But
 * every fourth byte mostly is, where it has the sign and the exponent. So places are known by
 * hashes of each 32 bytes that stand four apart: a rolling hash, one for each of the four
 * remainders. Where the hash has some value, there is an anchor, in base and file alike. Anchors
 * that follow one another at one distance from those of the base are a shift. Each file is read
 * once; memory is bounded, since anchors of larger files are rarer.
 */
#ifndef LMC_CLI_SHIFTS_H
#define LMC_CLI_SHIFTS_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../../lmc.h"

struct members;

/* Sets the parts of files without tensors, and of tensors of bytes, that the base has elsewhere.
 * The base must outlive the members. Returns for how many; an exit code in *code. */
size_t find_shifts(struct members *m, const lmc_base *base, int *code);

#endif
