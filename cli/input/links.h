/* links.h - the links of a snapshot: an entry of its metadata (spec/links.md)
 * SPDX-License-Identifier: MIT
 *
 * A symbolic link is no file of the snapshot: this entry is all there is of it. Of files that are
 * one file by several names (hard links) each is stored, and this entry says what they were.
 */
#pragma once

#include "../sys/platform.h"

/* Key of the metadata. */
#define LINKS_KEY "lmc.links"

enum link_type { LINK_SYMBOLIC = 's', LINK_HARD = 'h' };

struct link {
    char *path, *target; /* of a hard link, the target is the path of a file of the snapshot */
    enum link_type type;
};

/* In the order of the paths. */
struct links {
    struct link *list;
    size_t n, room;
};

/* In the order of the paths. */
void add_link_record(struct links *l, enum link_type type, const char *path, const char *target);

/* What the entry holds; to be freed. */
void *encode_links(const struct links *l, size_t *size);

/* Reads the entry. 0, or -1: it breaks a rule, and there are no links. */
int decode_links(struct links *l, const void *value, size_t size);

/* Files and directories of a snapshot, as they come; to compare links with. */
struct seen_files {
    struct seen_file {
        char *path;
        int is_directory;
        uint64_t size;
        uint32_t crc;
    } *list;
    size_t n, room;
};

void add_seen_file(struct seen_files *seen, const lmc_file *file);
void free_seen_files(struct seen_files *seen);

/* Sorts the files of the snapshot; 0, or -1: the links do not fit to them (L-5 to L-7). */
int match_links(const struct links *l, struct seen_files *seen);

/* The links of a snapshot that is read by its index; none, if they break a rule: -1. */
int read_links(struct links *l, const lmc_reader *reader);

/* Says that they break a rule; returns the exit code. name: of the snapshot. */
int fail_bad_links(const char *name);

/* The link of that path; NULL: there is none. */
const struct link *find_link_record(const struct links *l, const char *path);

/* "a/../b" and "./b" are b; in place. 0: it leads out of the snapshot. */
int make_plain(char *path);

/* Where the path leads by links on it, and by those that they lead to; NULL: out of the snapshot.
 * *first: the first link; NULL: there is none, and the path is made plain. is_taken: of each link,
 * set for those on the way; or NULL. To be freed. */
char *resolve_links(const struct links *links, const char *path, const struct link **first,
                    unsigned char *is_taken);

void free_links(struct links *l);
