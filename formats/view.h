/* view.h - a file that a parser reads where it wants
 * SPDX-License-Identifier: MIT
 *
 * Formats whose directory stands at the end cannot be parsed from the beginning of a file alone.
 * The parsers do no I/O: who calls them hands over this.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct view {
    uint64_t size;
    /* What the file takes where it was taken from, compressed perhaps: what a parser allocates is
     * in proportion to that, not to what a few bytes may claim or repeat. */
    uint64_t weight;
    /* size bytes from offset on, which lie within the view; returns 0, or anything else for "cannot
     * be read". */
    int (*read)(void *user, uint64_t offset, void *dst, size_t size);
    void *user;
};
