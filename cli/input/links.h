/* links.h - the links of a snapshot: an entry of its metadata (spec/links.md)
 * SPDX-License-Identifier: MIT
 *
 * A symbolic link is no file of the snapshot: only this entry has it. Each hard link is stored as a
 * file of its own; this entry tells which of these are names of one file.
 */
#pragma once

#include "../sys/platform.h"

/* Key of the metadata. */
#define LINKS_KEY "lmc.links"

enum link_type { LINK_SYMBOLIC = 's', LINK_HARD = 'h' };

struct link {
    char *path, *target; /* target of a hard link: path of a file of the snapshot */
    enum link_type type;
};

/* Sorted by path. */
struct links {
    struct link *list;
    size_t n, room;
};

/* Adds a link. To be called in the order of the paths. */
void add_link_record(struct links *l, enum link_type type, const char *path, const char *target);

/* The bytes of the entry; to be freed. */
void *encode_links(const struct links *l, size_t *size);

/* Reads the entry. Returns 0; -1: it breaks a rule, and l is empty. */
int decode_links(struct links *l, const void *value, size_t size);

/* Files and directories of a snapshot, in any order, to compare links with. */
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

/* Sorts `seen`, and checks the links. Returns 0; -1: they do not match the files (L-5 to L-7). */
int match_links(const struct links *l, struct seen_files *seen);

/* Reads the links of a snapshot. Returns 0; -1: they break a rule, and l is empty. */
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
