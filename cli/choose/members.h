/* members.h - what a snapshot is made of, in the order in which it is stored
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/roles.h"
#include "../input/links.h"
#include "../input/source.h"

struct archive;
struct options;
struct rule;
struct source;

/* What becomes of a tensor of a snapshot that is made. */
struct choice {
    const lmc_tensor *tensor;
    size_t member; /* the file that it belongs to */
    struct meaning meaning;
    const struct rule *rule;     /* NULL: there is none, and it is stored as it is */
    int is_wanted;               /* to be quantised */
    struct choice *partner;      /* of a first moment, the second, and the other way round; NULL */
    const struct choice *weight; /* of a moment: what it belongs to, for the user; NULL */
    lmc_quantizer *quantizer;
    int has_second; /* and the tensor is coded with that */
    lmc_twin second;
    char *reason; /* for the user; NULL: not known yet */
};

/* A file, or one of another snapshot. */
struct member {
    const char *path; /* in the snapshot; belongs to somebody else */
    char *full;       /* of a file; to open it, and when it was looked at */
    struct stat st;
    size_t number;       /* of a file of the archive */
    lmc_tensor *tensors; /* see copy_tensors */
    size_t n_tensors;
    struct choice *choices; /* of each tensor; NULL: all are stored as they are */
    lmc_tensor whole;       /* a file without tensors, as if it were one; for twins */
    lmc_base_part *parts;   /* of a file without tensors; see find_shifts */
    size_t n_parts;
};

struct members {
    const struct options *o;
    struct member *list;
    size_t n;
    lmc_twin *twins;      /* storage; NULL: there are none */
    lmc_base_part *parts; /* storage; NULL: there are none */
    int has_pairs;        /* of moments: what is stored later may need what is stored earlier */
    struct opened opened;
    struct archive *archive; /* NULL: the members are files */
    struct links links;
    const lmc_base *base;     /* what they are coded against; NULL: nothing */
    const lmc_tensor **lossy; /* those of the base that have lost something, by name */
    size_t n_lossy;
    int are_lossy_known;
    int code; /* what reading has reported */
};

void free_members(struct members *m);

/* As lmc_writer_options asks; user: the members. */
enum lmc_status read_member(void *user, size_t number, uint64_t offset, void *dst, size_t size);

/* What a member is called where names are matched: a lone file has no path in its snapshot. */
const char *name_of_member(const struct member *member);

/* Bytes; 0 for a directory, and for what comes from a pipe. */
uint64_t size_of_member(const struct members *m, const struct member *member);

/* Gives each tensor a choice that says nothing yet. Freed with the members. */
void make_choices(struct members *m);

/* Adds what is open, or looked at; path: in the snapshot. Takes its tensors. */
void add_member(struct members *m, const char *path, const char *full, struct source *s);

/* Nobody has written to what others repeat after it was stored. */
int check_members(const struct members *m);

/* lmc_writer_options.group_files. base: what the members are coded against, or NULL */
int choose_grouping(const struct members *m, const lmc_base *base);

/* Directories and small files come first, those of one kind together, for neighbours share trees.
 * The rest keeps its order. Not for files of a snapshot. Nothing refers to members by number. */
void order_members(struct members *m, const lmc_base *base);
