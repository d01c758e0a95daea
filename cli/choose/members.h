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

/* What happens to a tensor of a new snapshot. */
struct choice {
    const lmc_tensor *tensor;
    size_t member; /* the file that it belongs to */
    struct meaning meaning;
    const struct rule *rule; /* NULL: no rule matches, so it is stored exactly */
    int is_wanted;           /* to be quantised */
    struct choice *partner;  /* a first moment's second moment, and vice versa; or NULL */
    lmc_quantizer *quantizer;
    int has_second; /* the tensor is coded with its second moment */
    lmc_twin second;
    char *reason; /* for messages; NULL: not known yet */
};

/* A file on the disk, or of another snapshot. */
struct member {
    const char *path; /* in the snapshot; not owned */
    char *full;       /* on the disk: the path to open it, and its state before it was read */
    struct stat st;
    uint64_t size;       /* of the file; LMC_UNKNOWN_SIZE: of a pipe that does not tell it */
    size_t number;       /* of the file in the archive */
    uint32_t crc;        /* of a file that was read, if any is a hard link */
    lmc_tensor *tensors; /* see copy_tensors */
    size_t n_tensors;
    lmc_tensor_hints *hints; /* for each tensor; or one for the file, if it has no tensors */
    struct choice *choices;  /* of each tensor; NULL: all are stored exactly */
    lmc_tensor whole;        /* a file without tensors as one tensor; for twins */
    lmc_base_part *parts;    /* storage of those of a file without tensors; see find_shifts */
};

struct members {
    const struct options *o;
    struct member *list;
    size_t n;
    lmc_twin *twins;      /* storage; NULL: there are none */
    int are_twins_lent;   /* twins is that of other members */
    lmc_base_part *parts; /* storage; NULL: there are none */
    int has_alike;        /* descriptions that earlier ones predict, if no base does */
    int has_pairs;        /* of moments: so later members may need earlier ones */
    struct opened opened;
    struct archive *archive; /* NULL: the members are files */
    int is_sampling;         /* for twins; then LMC_ERR_LIMIT of the archive is not reported */
    struct links links;
    const lmc_base *base;     /* the snapshot's base; NULL: none */
    const lmc_tensor **lossy; /* quantised tensors of the base, by name */
    size_t n_lossy;
    int are_lossy_known;
    int code; /* exit code of reported read errors */
};

void free_members(struct members *m);

/* The read_back of lmc_writer_options; user: the members. */
enum lmc_status read_member(void *user, size_t number, uint64_t offset, void *dst, size_t size);

/* A member's name for matching. (A single file has no path in its snapshot.) */
const char *name_of_member(const struct member *member);

/* Size in bytes; 0 for a directory or a pipe. */
uint64_t size_of_member(const struct members *m, const struct member *member);

/* Of the member: one for each tensor; a file without tensors has one, too. */
size_t count_hints(const struct member *member);

/* The tensor of the member that begins there, and is not empty; `whole`, if it has no tensors. */
const lmc_tensor *tensor_at(const struct member *member, uint64_t offset);

/* Copies the tensors, which have no hints yet. */
void set_tensors(struct member *member, const lmc_tensor *tensors, size_t n);

/* lmc_writer_begin_file, with the member's hints. */
enum lmc_status begin_member(lmc_writer *writer, const struct member *member, const lmc_file *file,
                             enum lmc_dtype default_dtype);

/* Makes an empty choice for each tensor. Freed with the members. */
void make_choices(struct members *m);

/* Adds the file of the source s. Takes over the tensors of s. path: in the snapshot. */
void add_member(struct members *m, const char *path, const char *full, struct source *s);

/* If other members may repeat a member, checks that it has not changed since it was looked at. */
int check_members(const struct members *m);

/* The value for lmc_writer_options.group_files. base: of the snapshot; NULL: none */
enum lmc_grouping choose_grouping(const struct members *m, const lmc_base *base);

/* Puts directories and small files first, and files of one kind side by side, as neighbours share
 * trees. Other files keep their order. Not for members of an archive. Call it before anything
 * refers to members by number. */
void order_members(struct members *m, const lmc_base *base);

/* -- twins: equal tensors and files, and rounded copies of fp32 masters --
 *
 * Twins are found by samples of the files. Blocks that differ elsewhere are coded without the twin.
 * A file without tensors, such as a hard link, counts as one tensor. The original must come first,
 * so files with masters are stored before files with the copies.
 */

/* Finds the twins among the members, and puts the members in order. If looking for those of an
 * archive reaches its limit of work, only those that it has are used. */
int find_twins(struct members *m);

/* Takes the twins of other members, which outlive these: m is the archive that was written from
 * them, so it has the same files and tensors, in the same order. */
void take_twins(struct members *m, const struct members *known);

/* -- tensors and files made of parts of the base (parts.c has pictures) -- */

/* Sets the parts of tensors that the base has only in other pieces. Returns the number of such
 * tensors. The base must outlive the members. */
size_t find_parts(struct members *m, const lmc_base *base);

/* The same for files without tensors. *code: an exit code */
size_t find_shifts(struct members *m, const lmc_base *base, int *code);
