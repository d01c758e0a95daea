/* zip.h - the directory of a ZIP archive
 * SPDX-License-Identifier: MIT
 *
 * What is wanted of an archive are the places of its stored members: PKWARE's APPNOTE 6.3, with
 * ZIP64, without encryption, comments of the archive, or several disks. The central directory is
 * believed where the local header agrees. Data descriptors lie behind a member's data, where
 * nobody looks: the directory has the sizes.
 */
#pragma once

#include "container.h"

struct zip_member {
    const char *name; /* a zero byte follows, and none is in it */
    uint64_t local;   /* of its local header, in the view */
    uint64_t offset;  /* of its data there; 0: see zip_locate() */
    uint64_t size;    /* of its data */
    int is_stored;    /* not compressed, not encrypted */
};

struct zip {
    struct zip_member *members; /* sorted by name; names differ */
    size_t n;
    uint64_t start;     /* of the archive in the view */
    uint64_t directory; /* and of its central directory */
    char *names;        /* storage */
    char error[128];
};

/* The archive that ends at end, which is in the view. OK: to be freed; OTHER: none ends there; BAD;
 * of both, see error; MEMORY. It begins at or behind `from`. */
enum container_result zip_read(struct zip *z, const struct view *v, uint64_t from, uint64_t end);

/* Finds the member's data by its local header, which alone knows how long it is itself, unless that
 * is known. OK, BAD (see error) or MEMORY. */
enum container_result zip_locate(struct zip *z, const struct view *v, struct zip_member *m);

/* The member of that name; NULL: there is none. */
struct zip_member *zip_find(const struct zip *z, const char *name);

void zip_free(struct zip *z);
