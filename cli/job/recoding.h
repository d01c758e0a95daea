/* recoding.h - a snapshot from another one: the same content against another base, or none
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RECODING_H
#define LMC_CLI_RECODING_H

#include "../sys/platform.h"

struct archive;
struct attributes;
struct base;
struct coding;
struct common;
struct output;

/* Codes the open snapshot, whose index was read, to the open output, which is closed on return.
 * base: NULL or what it is coded against. name: for messages; NULL: that of the output. is_useless:
 * set if nothing was coded against the base. Then nothing was put out: an output that is held
 * (hold_output) is still open, and begins anew. NULL: that is not asked. */
int recode_archive(struct archive *a, const struct base *base, struct output *out,
                   const struct attributes *attributes, const char *name,
                   const struct coding *coding, const struct common *o, int *is_useless);

#endif
