/* apply_patches.h - changes of bytes, as the side file of lmc apply has them
 * SPDX-License-Identifier: MIT
 *
 *   patch     0  file of the snapshot, 4 bytes       8  first byte in that file, 8 bytes
 *             4  how many words change, 4 bytes     16  size, at most 64 KiB, 4 bytes
 *                                                   20  zero, 4 bytes
 *            24  for each 64 words of 8 bytes, the last one perhaps in part, a mask of 8 bytes:
 *                bit i says that word i changes
 *                then the new words, 8 bytes each, zero behind the end of the patch
 *
 * Integers are little-endian. A patch says only what changes, which makes it small; as a torn write
 * leaves each byte old or new, it repairs that just as all new bytes would.
 */
#ifndef LMC_CLI_APPLY_PATCHES_H
#define LMC_CLI_APPLY_PATCHES_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

struct place;

#define PATCH_SIZE ((size_t)64 << 10)

/* Little-endian, size bytes. */
void store_number(unsigned char *p, uint64_t value, unsigned size);

/* Little-endian, size bytes. */
uint64_t load_number(const unsigned char *p, unsigned size);

struct patch {
    size_t file_number, n_words;
    uint64_t offset;
    size_t size;
    const unsigned char *masks, *words;
};

struct patches {
    unsigned char *data;
    size_t size, room;
};

/* The patch at *at, which moves behind it; 0: there is none. The patches have been made or checked
 * here. */
int next_patch(const struct patches *list, size_t *at, struct patch *p);

/* Adds what turns one into the other, at most PATCH_SIZE bytes, unless they are equal. */
void add_patch(struct patches *list, size_t file_number, uint64_t offset, const unsigned char *from,
               const unsigned char *to, size_t size);

/* Puts what of the patch lies within [offset, offset + size) of its file into data, which holds
 * these bytes. */
void use_patch(const struct patch *p, uint64_t offset, unsigned char *data, size_t size);

/* Whether patches from a side file are what they must be, for files of these numbers. */
int are_patches(const struct patches *list, const struct place *p, size_t n_files);

#endif
