/* parts.h - what consists of parts of the base
 * SPDX-License-Identifier: MIT
 *
 * Tensors that are cut otherwise: a checkpoint of many processes has each tensor in parts, along
 * its first dimension, one for each process: "w[0:256]", "w[256:512]" (formats/torch_save.h). If
 * there are more or fewer processes at the next step, the parts are others:
 *
 *     base        |   w[0:512]    |   w[512:1024]  |
 *     snapshot    | w[0:342] | w[342:684] | w[684:] |
 *
 * So is a tensor that got more rows.
 *
 * Files that are no container: one that got some bytes more in front is like its base, but all of
 * it is elsewhere:
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
#pragma once

#include "../sys/platform.h"

struct members;

/* Sets the parts of tensors that the base has only in other pieces; returns of how many. The base
 * must outlive the members. */
size_t find_parts(struct members *m, const lmc_base *base);

/* The same for files without tensors. *code: an exit code */
size_t find_shifts(struct members *m, const lmc_base *base, int *code);
