/* links.h - the links of a snapshot: the metadata key lmc.links (spec/links.md)
 * SPDX-License-Identifier: MIT
 *
 * A symbolic link is not a file of the snapshot: only this key has it. Each hard link is stored as
 * file of its own; this key tells which of these are names of one file.
 *
 * Whatever restores or checks a snapshot takes the links by these functions, so that all of it
 * refuses the same snapshots.
 */
#pragma once

#include "container.h"

#define LINKS_KEY "lmc.links"

enum link_type { LINK_SYMBOLIC = 's', LINK_HARD = 'h' };

struct link {
    const char *path, *target; /* target of a hard link: path of a file of the snapshot */
    enum link_type type;
};

/* A value of the key that is read link by link; at first `last` is NULL. */
struct link_value {
    const char *at, *end;
    const char *last; /* the path of the link before */
};

/* Reads the next link, whose texts are in the value. Returns 1; 0: there is none; -1: it breaks
 * a rule (L-1 to L-5). */
int next_link(struct link_value *value, struct link *link);

/* A file or directory of a snapshot. */
struct seen_file {
    const char *path;
    int is_directory;
    int is_unread; /* its CRC is not known: it needs a base that is missing */
    uint64_t size;
    uint32_t crc;
};

/* Sorts the files, and compares them with the links, which next_link() has read. Returns 0; -1:
 * they break a rule (L-5 to L-7). Files of a hard link are compared by size and CRC. */
int match_links(const struct link *links, size_t n, struct seen_file *files, size_t n_files);

/* Whether the two files of a hard link can be one (L-5). The files are sorted by path. */
int can_be_one(const struct link *link, const struct seen_file *files, size_t n);

/* The files and directories that restoring makes: also directories that are only in paths of
 * others. Sorts the files. */
uint64_t count_entries(struct seen_file *files, size_t n);

/* Reads the links of a snapshot and checks all of the rules. *links: to be freed; its texts are the
 * reader's. Returns CONTAINER_OK, also without links; CONTAINER_BAD: they break a rule; or
 * CONTAINER_MEMORY. */
enum container_result find_links(const lmc_reader *reader, struct link **links, size_t *n);
