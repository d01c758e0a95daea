/* links.h - the links of a snapshot, in memory of their own (formats/links.h has the rules)
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/links.h"

/* Sorted by path; the texts are copies. */
struct links {
    struct link *list;
    size_t n, cap;
};

/* Adds a link. To be called in the order of the paths. */
void add_link_record(struct links *l, enum link_type type, const char *path, const char *target);

/* Drops hard links whose files cannot be one: some file systems give several files one inode
 * number. The files are sorted by path. Returns how many were dropped; *first: the path of the
 * first of them, to be freed; or NULL. */
size_t drop_false_links(struct links *l, const struct seen_file *files, size_t n, char **first);

/* The bytes of the entry of the metadata; to be freed. */
void *encode_links(const struct links *l, size_t *size);

/* Reads the entry. Returns 0; -1: it breaks a rule, and l is empty. */
int decode_links(struct links *l, const void *value, size_t size);

/* Files and directories of a snapshot, in any order; the paths are copies. */
struct seen_files {
    struct seen_file *list;
    size_t n, cap;
};

void add_seen_file(struct seen_files *seen, const lmc_file *file);
void free_seen_files(struct seen_files *seen);

/* Reads the links of a snapshot and checks them. Returns 0; -1: they break a rule, and l is
 * empty. */
int read_links(struct links *l, const lmc_reader *reader);

/* Reports that the links break a rule; returns the exit code. name: of the snapshot. */
int fail_bad_links(const char *name);

/* The link of that path; NULL: there is none. */
const struct link *find_link_record(const struct links *l, const char *path);

/* Turns "a/../b" and "./b" into "b", in place. Returns 0 if the path leads out of the snapshot. */
int make_plain(char *path);

/* The path after following all links on it; NULL: it leads out of the snapshot. To be freed.
 * *first: the first link; NULL: there is none, and the path is made plain. is_taken: NULL, or a
 * flag for each link; set for each link that is followed. */
char *resolve_links(const struct links *links, const char *path, const struct link **first,
                    unsigned char *is_taken);

void free_links(struct links *l);
