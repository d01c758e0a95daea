/* members.h - what a snapshot is made of, in the order in which it is stored
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/policy.h"
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

/* -- what repeats something: equal tensors and files, and rounded copies of fp32 masters --
 *
 * Twins are found by samples of the files; the library goes without where a sample has deceived,
 * block by block. A file without tensors, be it a hard link or a copy, counts as one tensor. What
 * is repeated must come first, so files that hold masters are stored before those that hold the
 * copies.
 */

/* Finds the twins among the members, and orders these. */
int find_twins(struct members *m);

/* -- what consists of parts of the base (parts.c) --
 *
 * Tensors that are cut otherwise: a checkpoint of many processes has each tensor in parts, along
 * its first dimension, one for each process: "w[0:256]", "w[256:512]" (formats/torch.h). If
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

/* Sets the parts of tensors that the base has only in other pieces; returns of how many. The base
 * must outlive the members. */
size_t find_parts(struct members *m, const lmc_base *base);

/* The same for files without tensors. *code: an exit code */
size_t find_shifts(struct members *m, const lmc_base *base, int *code);
