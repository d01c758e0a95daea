/* apply.h - the target of lmc apply, and how a change of it survives a crash
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"
#include "../input/archive.h"
#include "../input/options.h"
#include "../sys/spot.h"

/* -- the side file: so a crash does no harm while a delta is applied in place --
 *
 * A block of the target that is half overwritten cannot be decoded again: its base is gone. So each
 * change is first written to a side file, .NAME.lmc-apply beside the target NAME, and then to the
 * target. Integers are little-endian, CRC is CRC-32C. The layout of the side file:
 *
 *   0      header, 512 bytes
 *   4096   slot 0, then slot 1, each as large as the header's capacity says
 *
 *   header    0  magic                          40  size of the delta
 *             8  version, 1                     48  CRC of its end (the last 64 KiB, or all)
 *            12  size of the name               52  zero
 *            16  bytes of the snapshot          56  fingerprint of the snapshot, then zeros
 *            24  bytes done at the start        88  fingerprint of the base, then zeros
 *            32  capacity                      120  name of the delta, for messages, then zeros
 *                                              508  CRC of bytes 0 to 508
 *   slot      0  number, from 1 up; number n is slot n % 2
 *             8  bytes of the snapshot that are done after it
 *            16  size of the patches            24  CRC of the patches
 *                                               28  CRC of bytes 0 to 28
 *            32  patches
 *   patch     0  file of the snapshot, 4 bytes       8  first byte in that file, 8 bytes
 *             4  how many words change, 4 bytes     16  size, at most 64 KiB, 4 bytes
 *                                                   20  zero, 4 bytes
 *            24  for each 64 words of 8 bytes (the last may be incomplete), a mask of 8 bytes:
 *                bit i says that word i changes
 *                then the new words, 8 bytes each, zero behind the end of the patch
 *
 * A patch has only the words that change, so it is small. That is enough to repair a torn write,
 * which leaves each byte either old or new.
 *
 * Bytes of the snapshot are counted through all its files, in their order. The order of writing:
 *
 *   begin   sync the target; create the side file without slots: sync, rename, sync the directory
 *   turn n  1  sync the target: the patches of all earlier slots are on the disk
 *           2  write slot n, over slot n - 2, and sync it
 *           3  write its patches to the target
 *   end     sync the target; set attributes and sync them; remove the side file
 *
 * What a crash leaves, and why the next run can go on:
 *
 *   crash at     the side file has          the target has
 *   begin        nothing                    what it had
 *   1, turn n    slot n - 1 whole           all of slots 1 to n - 2, part of n - 1
 *   2, turn n    slot n - 1 whole, n torn   all of slots 1 to n - 1
 *   3, turn n    slot n whole               all of slots 1 to n - 1, part of n
 *
 * So of the slots with a right CRC, the next run takes the one with the higher number. The target
 * has everything before that slot, perhaps some of the slot's patches, and nothing after it. If no
 * slot has a right CRC, nothing was written since the start. Patches may be written any number of
 * times. As the slot may not be on the disk yet, it is written and synced once more. As the target
 * may have been replaced meanwhile, its finished part is first read through the slot's patches and
 * compared with the CRCs of the delta. Only then is the target written again.
 *
 * If patches do not fit into a slot, a new side file with a larger capacity is made, and renamed
 * over the old one. In its header, "bytes done at the start" counts all bytes done by then.
 */

/* A place: the files of a snapshot on the disk, at most one of them open. Errors are reported. A
 * written file is synced before another is opened: so only the open file may need a sync. */

struct place {
    const char *root; /* a directory, or the file of a snapshot of one file */
    int dir;          /* that directory, or the one that the file is in */
    const lmc_file *(*get_file)(void *user, size_t number);
    void *user;
    int may_write;
    int is_strict;  /* never writes through links, nor to a file with other names */
    int fd;         /* of the open file; -1: none */
    size_t number;  /* of the file that is open */
    int is_written; /* to the open file, and not synced since */
};

/* Opens no file yet. root, dir and user must outlive the place; get_file: as in lmc_base. */
void open_place(struct place *p, const char *root, int dir,
                const lmc_file *(*get_file)(void *, size_t), void *user, int may_write);

/* Closes the open file, and syncs it first if it was written to. */
int close_place(struct place *p);

/* Reads `size` bytes of a file of the snapshot, from offset on. It is an error if it has fewer. */
int read_place(struct place *p, size_t number, uint64_t offset, void *dst, size_t size);

/* -- the journal -- */

#define JOURNAL_HEADER_SIZE 512u

enum journal_state { JOURNAL_NONE, JOURNAL_OURS, JOURNAL_OTHER, JOURNAL_DAMAGED };

struct patches {
    unsigned char *data;
    size_t size, cap;
};

/* Bytes [from, to) of a file, as they will be after all pending patches: what was read last as
 * predictions, with what was handed since in its place. Byte i is data[i % WINDOW_SIZE]. So patches
 * are made and written without reading the target again, unless a part of it was no prediction or
 * has left the window. */
struct window {
    unsigned char *data;
    size_t number;
    uint64_t from, to;
};

struct journal {
    char *path;
    int dir;                  /* the directory that it is in */
    const char *target_name;  /* for the message if a signal ends the process; NULL: none */
    enum journal_state state; /* of the side file that was found */
    char *found_name;         /* of its delta, for messages; NULL: unknown */
    int fd;                   /* -1: there is none yet */
    unsigned char header[JOURNAL_HEADER_SIZE];
    uint64_t capacity, number; /* number: of the last slot */
    struct place *target;
    struct patches pending; /* not yet written to the target */
    int is_recorded;        /* `pending` is in slot `number` */
    int is_found;           /* the side file is from an earlier run; nothing was written since */
    uint64_t n_handed;      /* bytes of the snapshot that the journal was given */
    uint64_t n_recorded;    /* how many of these the side file counts as done */
    uint64_t span;          /* bytes since the last slot */
    int is_touched;         /* the target was written to */
    struct window window;
    unsigned char *piece; /* PATCH_SIZE, for what is not in the window */
};

/* Makes the header of a delta that restores `total` bytes; capacity and start are not set. */
int describe_delta(unsigned char header[JOURNAL_HEADER_SIZE], struct archive *delta,
                   uint64_t total);

/* Whether two headers belong to the same delta. */
int is_same_delta(const unsigned char *a, const unsigned char *b);

/* Begins the journal of a delta; there is no side file yet. */
int begin_journal(struct journal *j, struct archive *delta, uint64_t total);

/* Writes all pending patches to the target, through the side file if needed. */
int flush_journal(struct journal *j);

/* Takes the next bytes of the snapshot, which are those of a file from offset on. */
int hand_to_journal(struct journal *j, size_t file_number, uint64_t offset,
                    const unsigned char *data, size_t size);

/* Reads the target as it will be after all pending patches. reading: the same files as j->target */
int read_through_journal(struct journal *j, struct place *reading, size_t number, uint64_t offset,
                         unsigned char *dst, size_t size);

/* path: of the side file; the journal owns this string from now on. dir: the directory that it is
 * in, which must stay open. Opens the side file, if there is one, and reads its header. The journal
 * is to be freed even after an error. */
int open_journal(struct journal *j, char *path, int dir);

void free_journal(struct journal *j);

/* Removes the side file, if there is one. Call it when the target is complete and synced. */
int remove_journal(struct journal *j);

/* Reads the last slot of the side file. Writes nothing. */
int recover_journal(struct journal *j, size_t n_files);

/* -- what deltas are applied to, and whether it is what they need -- */

struct base;

/* What is known of the target. KNOWN: it was identified as the base. TRUSTED: the user says that it
 * is the base. HALF: a delta is half applied to it. */
enum target { TARGET_KNOWN, TARGET_TRUSTED, TARGET_HALF };

/* A delta that an argument names. It is opened again when it is applied. */
struct delta {
    const char *path, *name;
    uint8_t wanted[LMC_FINGERPRINT_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    char *made_with; /* name of its base; NULL: not stored */
};

struct apply {
    const struct options *o;
    const char *name; /* of the target */
    char *path;       /* with links resolved, as the target itself may be replaced */
    struct spot at;
    struct stat st;
    int is_tree, lock; /* lock: the target, open */
    struct delta *deltas;
    size_t n_deltas;
    size_t n_links; /* changed links, if all files were right already */
    /* the target as a base of files */
    struct options base_options;
    struct bases bases;
    struct base *base; /* of these, or a view of one: the target as it was identified */
    /* the delta that was applied last: its files are those of the target now */
    struct archive last;
    int has_last;
    struct place last_place;
    lmc_base last_view;
    struct journal journal;
};

/* Whether the target, a base of files, holds every byte of the delta's files and nothing else. */
int holds_result(const struct base *b, const struct archive *delta);

/* Checks that the target has the layout of the delta's files and can be written, and syncs it. */
int check_files(const struct apply *a, const struct archive *delta, enum target look,
                int *is_wrong);

/* The directory of the target, or the one that it is in if it is a file: open. */
int directory_of_target(const struct apply *a);

/* Opens a file of the target, "" if that is one. is_strict: follows no links. -1 and errno. */
int open_in_target(int dir, const char *root, const char *path, int is_strict, int flags);

/* Goes from the leaves to the root: a mode may deny access below. */
int set_all_attributes(const struct apply *a, const struct archive *delta);

/* Locks the target against other processes of lmc apply. Fails if one has replaced it meanwhile. */
int lock_target(struct apply *a);

/* Finds the target by its name, locks it, and checks that deltas can be applied to it. */
int open_target(struct apply *a);
