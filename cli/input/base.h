/* base.h - what deltas are coded against: the arguments of --base
 * SPDX-License-Identifier: MIT
 *
 * A base is a snapshot, a file or a directory. Files are listed as for compressing: so they have
 * the fingerprint of the snapshot that they would become. Tensors are read only when they are
 * needed. A snapshot that is a delta has a base of its own: lmc walks down its chain to a whole
 * snapshot, and makes the links ready from there up (see the states below). To restore a delta
 * against files, lmc first tries to find their tensors by the delta's own tables (F-1 of
 * spec/foreign-bases.md), which needs no parser. If nothing that is given or found has the
 * fingerprint, lmc reads the files in other ways, too: as plain bytes, for example. The fingerprint
 * tells which way is right, so it does no harm to try.
 *
 *   named -> open -> identified -> [visited ->] ready -> [damaged]
 *         open_base: what it is
 *                 identify_base: its fingerprint is known
 *                                 prepare_base: can be read; of a delta, its base, too
 *
 * The floors of this module; each calls only lower ones:
 *
 *   chain.c           down to a whole snapshot and up again; compress: which base is taken
 *   base_messages.c   what is missing, where the chain is, what was not used
 *   find_base.c       the search: a table of steps, each with its reason
 *   shards.c          several snapshots that are one base
 *   base.c            the content of one base: files, views of them, or a snapshot
 *   catalog.c         snapshots that lie around, by their headers
 *   replica.c         the restored files of a link
 *
 * Errors are reported with CODE_BASE. Callbacks of the library cannot return an exit code: they set
 * `code` in struct bases.
 *
 * What must hold for a base, what checks it, and the exit code if it does not. The library has its
 * own checks (see src/snapshot/origin.h): fail_status() turns their statuses into 4, CODE_BASE.
 *
 *   it is a file or a directory                    open_base                      4
 *   lmc apply left it whole                        check_finished                 4
 *   an archive is intact                           read_archive_index             3
 *   it has the fingerprint that the header names   find_next; fold: check_links   4
 *   bases form no loop                             walk_down; fold: find_tip      4
 *   files are still those that were identified     read_opened, check_bases       1
 *   compress: its chain does not need the source   check_source                   1
 *   verify: the base is there                      report_unplaced                4; 3 if damaged
 *   rebase: the new base does not need the file    prepare_onto                   4
 *   series: it is in the series                    check_chain_of                 4
 *   salvage: none was given                        conclude                       4
 *   apply: each delta's base is before it          check_order                    4
 *   apply: the target is a base of one of them     find_next                      4
 *   apply: the same paths, kinds, sizes            check_layout                   4
 *   apply: the bytes of each block                 rewrite_target                 4
 *   apply: the target does not change              apply_all                      4
 */
#pragma once

#include "../sys/platform.h"

#include "../../include/lmc_salvage.h"
#include "archive.h"
#include "source.h"

struct base;
struct listing;
struct bases;
struct options;

/* -- a base of files -- */

/* Lists the files of a base. */
int list_base(struct listing *l, const char *name, const struct options *o);

/* Finds the snapshot's file of each entry, among n files sorted by path. found[i]: NULL for an
 * entry that is only a parent. Returns 0 if entries and files do not match. */
int match_entries(const struct listing *l, const lmc_file *const *files, size_t n,
                  const lmc_file **found);

/* Whether both files have the same kind, size and tensors. */
int have_same_tensors(const lmc_file *a, const lmc_file *b);

/* Makes b of n identified or named snapshots that need no base: they are one base together
 * (shards.c). Takes the list. */
int join_shards(struct base *b, struct base **shards, size_t n, const struct options *o);

/* -- a base whose chain is long: its restored files, in a scratch file --
 *
 * Reading a delta reads its base, and so on down the chain: each link takes a descriptor, a reader
 * and a stack frame. After MAX_LINKS links, the last link is restored to a scratch file, and links
 * below it are closed. So a chain may have any length. It needs space for two restored snapshots.
 *
 *   links   0 1 2 ... 63 | 64 ... 127 | 128        at each | the link is restored to a scratch file
 */

/* The largest number of links that one reader reads through. */
#define MAX_LINKS 64

struct replica {
    int fd;           /* of the scratch file, which has no name */
    uint64_t *starts; /* where each file of the snapshot is in it; NULL: there is no replica */
};

/* Restores the snapshot. Its reader must have its base. Errors are reported. */
int make_replica(struct replica *r, const struct archive *a);

/* Reads bytes of a file of the replica. *code: an exit code; errors are reported. */
enum lmc_status read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst,
                             size_t size, int *code);

void free_replica(struct replica *r);

/* Key of the metadata: the name of the base without its directory, for messages. */
#define BASE_KEY "lmc.base"

struct base_file {
    char *path, *full; /* path: in the snapshot; full: to open it */
    struct stat st;    /* from when it was identified */
    lmc_file file;
    lmc_tensor *tensors;         /* the identified tensors; or */
    struct container *container; /* the parsed tensors, not identified; NULL: none */
};

enum base_state {
    BASE_NAMED,
    BASE_OPEN,
    BASE_IDENTIFIED,
    BASE_VISITED, /* identified, and its own base is being searched (chain.c) */
    BASE_READY,
    BASE_DAMAGED /* a snapshot that cannot be read, which was reported */
};

struct base {
    const char *name;
    struct bases *all;
    struct base *next;         /* in the list of found bases, or of the views of one base */
    struct base *next_of_hash; /* of a found one, in its list of bases->by_name */
    enum base_state state;
    int is_used;                               /* something is coded against it */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* all zero: not known yet */
    lmc_base source;                           /* for the library, when ready */
    /* a snapshot: read from the archive; or from the replica, if it has too many links below; or
     * from what salvaging finds, if it is damaged (lmc salvage) */
    struct archive archive;
    struct base *below; /* when ready: for a delta, its own base */
    struct replica replica;
    lmc_salvage *salvage;
    /* files; and views: the same files, each identified by the tables of a delta, or read in
     * another way; the ways that were tried, as bits */
    struct base_file *files;
    size_t n_files, cap;
    struct opened opened; /* the file that is open */
    struct base *views;
    unsigned ways;
    struct base **shards; /* several snapshots that are one base */
};

/* Whether an open base is a snapshot; else it has files. */
static inline int is_snapshot(const struct base *b) { return b->archive.name != NULL; }

/* Finds out whether the base is a snapshot, and whether the snapshot is a delta. */
int open_base(struct base *b, const struct options *o);

/* Finds the fingerprint of the base. For a base of files, reads the files. */
int identify_base(struct base *b, const struct options *o);

/* is_strict: a file must have the format of its name; else such a file counts as plain bytes. */
int identify_base_as(struct base *b, int is_strict, const struct options *o);

/* The view of a base of files that is the delta's base; NULL: there is none, or *code is set. It is
 * identified by the delta's tables (F-1), even if parsing has identified the base before (F-2). */
struct base *find_view(struct base *b, struct archive *delta, const struct options *o, int *code);

/* The same, by the tables (NULL: none) of any snapshot. */
struct base *find_view_like(struct base *b, const lmc_reader *tables, const uint8_t *wanted,
                            const struct options *o, int *code);

/* The view that is the delta's base if the files are read in other ways than the options tell: as
 * plain bytes, for example. b is identified. Reads the files again, once for all deltas, so it is
 * the last resort. */
struct base *find_other_view(struct base *b, struct archive *delta, const struct options *o,
                             int *code);

/* 16 digits are enough to tell fingerprints apart, by eye or by grep. */
#define SHORT_FINGERPRINT 8

/* Reports that none of the bases is the right one; CODE_BASE. name: of the delta; made_with: the
 * name of the base when the delta was made, or NULL. */
int fail_base(const char *name, const uint8_t *wanted, const char *made_with,
              const struct options *o);

/* Finds the base of the delta by its fingerprint; NULL: there is none, or *code is an error that
 * was reported. It may open a reader for the delta. A delta whose own base is being searched comes
 * last; then prepare_base() reports a loop. */
struct base *find_base(struct archive *delta, const struct options *o, int *code);

/* Finds the base of an open file, and makes it ready. *base: NULL if the file is not a delta. */
int find_base_of_archive(struct archive *a, const lmc_base **base, const struct options *o);

/* Makes an identified base readable. below: its base, which is ready; NULL: it needs none. */
int make_ready(struct base *b, struct base *below);

/* Closes what a snapshot has open, while it is not needed. */
void put_away(struct base *b);

/* Makes the base readable; for a delta, finds its own base. */
int prepare_base(struct base *b, const struct options *o);

/* A text: the fingerprint and, if known, the base's name when the delta was made. To be freed. */
char *describe_base(const uint8_t *wanted, const char *made_with);

/* The name of a base without its directory, for messages; NULL: it has none. The caller frees
 * it. */
char *name_base(const struct base *b);

/* Chooses the base for a new snapshot; *base NULL: none. */
int choose_base(const struct base **base, const struct options *o);

/* Finds the base of the snapshot that begins at s; *base NULL: it is not a delta. */
int choose_base_of_source(const lmc_base **base, struct source *s, const struct options *o);

/* Adds a base to the arguments. Pointers to other bases become invalid. */
struct base *add_base(struct bases *bases, const char *name);

/* The base of that name that was found, not given; adds it if it is new. */
struct base *add_found(struct bases *bases, const char *name);

/* Checks that no base has changed since it was identified. Call it before an output gets its final
 * name. */
int check_bases(const struct options *o);

void free_bases(struct bases *bases);

/* Frees all but the lender, as archives that were opened with these bases stay open. */
void forget_bases(struct bases *bases);

/* Closes the files of bases that are open for reading; they are opened again when they are read. A
 * file system may keep a name for an open file that is removed. */
void close_files_of_bases(struct bases *bases);

void close_base(struct base *b);

/* Opens path: a snapshot; or a file with tensors, or a directory of such files (then a->plain is
 * not NULL, and p has the files). Reads only headers. Both must be closed even after an error, by
 * close_archive() and close_base(). */
int open_archive_or_plain(struct archive *a, struct base *p, const char *path,
                          const struct options *o);

/* The file's parsed container; an empty one if it has none. */
const struct container *container_of(const struct base_file *f);

/* Refuses an output (NULL: none) that would replace one of the files. */
int protect_plain(const struct base *p, const char *output);

/* Adds a directory where bases are looked for. It must outlive the bases. */
void add_search(struct bases *bases, const char *directory);

/* Reads the fingerprint of each new argument that is an intact snapshot, and closes it. The other
 * arguments are listed in all->others: only these are tried one by one for each link. Directories
 * of snapshots are added to those that are searched. */
void look_at_arguments(struct bases *all);

/* Adds the snapshots in the directories to search, and in that of `name`, unless name is NULL. */
void look_in_directories(struct bases *all, const char *name);

/* Names a copy of the damaged snapshot b, or what it was made from, if such is found. */
void name_copy(const struct base *b);

/* The delta's name if it is the path of the delta's file, else NULL. The base may be beside it. */
const char *path_of_delta(const struct archive *delta);

/* The path of a file or directory beside the delta that has the name which the delta stores for its
 * base. NULL: there is none, or it is a snapshot, which is found by its content. To be freed. */
char *find_name_beside(struct archive *delta);

/* The path of a snapshot that is the delta's base as far as headers tell; NULL: none is found. */
const char *find_base_path(const struct archive *delta, const struct options *o);

/* Prints where the links of a delta's chain are, from its base down, as far as headers tell, and
 * the fingerprint of the first link that is not found. */
void print_chain(struct archive *delta, const struct options *o);

/* Reports the arguments that were not used. all_must_be 0: only if no argument was used, as a user
 * who restores may name more bases than the chain has. */
void say_unused_bases(int all_must_be, const struct options *o);

/* Checks that no base is removed as a source (NULL: none is removed) or changed by an output (NULL:
 * none), as its deltas need it. Bases are the arguments and all links found so far: so call it
 * when the chain is known. may_replace: -f was given, so the restored files may replace a base of
 * files. */
int protect_bases(const char *source, const char *output, int may_replace, const struct options *o);

/* Checks that the source neither is nor contains a link that its base needs. The base is ready. */
int check_source(const char *source, const struct options *o);
