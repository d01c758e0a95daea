/* apply_journal.h - how applying a delta in place survives a crash: the side file
 * SPDX-License-Identifier: MIT
 *
 * A block that is half written cannot be decoded again: its base is gone. So what is to be written
 * goes to a side file first, .NAME.lmc-apply beside the target NAME, and from there to the target.
 * Integers are little-endian, CRC is CRC-32C. The side file is
 *
 *   0      header, 512 bytes
 *   4096   slot 0, of the header's capacity, and behind it slot 1, of the same
 *
 *   header    0  magic                          40  size of the delta
 *             8  version, 1                     48  CRC of its end (the last 64 KiB, or all)
 *            12  size of the name               52  zero
 *            16  bytes of the snapshot          56  fingerprint of the snapshot, then zeros
 *            24  bytes done at the start        88  fingerprint of the base, then zeros
 *            32  capacity                      120  name of the delta, for messages, then zeros
 *                                              508  CRC of all this
 *   slot      0  number, from 1 up; number n is slot n % 2
 *             8  bytes of the snapshot that are done with it
 *            16  size of the patches            24  CRC of these
 *                                               28  CRC of bytes 0 to 28
 *            32  patches, see apply_patches.h
 *
 * Bytes of the snapshot are counted through its files in their order. Writing goes by turns:
 *
 *   begin   sync the target; create the side file without slots: sync, rename, sync the directory
 *   turn n  1  sync the target: all that earlier slots hold is there
 *           2  write slot n, over slot n - 2, and sync it
 *           3  write its patches to the target
 *   end     sync the target; set attributes and sync them; remove the side file
 *
 * What a crash leaves, and why the next run can go on:
 *
 *   crash at     the side file has          the target has
 *   begin        nothing                    what it had
 *   1, turn n    slot n - 1 whole           all up to n - 2, of n - 1 perhaps a part
 *   2, turn n    slot n - 1 whole, n torn   all up to n - 1
 *   3, turn n    slot n whole               all up to n - 1, of n perhaps a part
 *
 * So whoever finds a side file takes the slot with a right CRC and the higher number: what came
 * before it is in the target, of its own patches perhaps some, of what comes after it nothing. If
 * there is none, nothing was written since the start. Patches may be written any number of times.
 * The slot that was found may never have come to the disk: it is written and synced once more. The
 * target is read through its patches, all that is done is compared with the CRCs of the delta, and
 * only then is the target touched again: it may have been replaced meanwhile.
 *
 * Patches that do not fit into a slot want a new side file, of a larger capacity, with what is done
 * at its start; it is renamed over the old one.
 */
#ifndef LMC_CLI_APPLY_JOURNAL_H
#define LMC_CLI_APPLY_JOURNAL_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "apply_patches.h"

struct archive;
struct place;

#define JOURNAL_HEADER_SIZE 512u
#define JOURNAL_NAME_AT 120u

struct journal {
    char *path;
    const char *target_name; /* for what is said when a signal ends the process; NULL: nothing is */
    int fd;                  /* -1: there is none yet */
    unsigned char header[JOURNAL_HEADER_SIZE];
    uint64_t capacity, number; /* number: of the last slot */
    struct place *target;
    struct patches pending; /* of what was handed over, but not written to the target */
    int is_recorded;        /* and it stands in slot `number` */
    int is_found;           /* the side file is of another run, and nothing was written since */
    uint64_t n_handed;      /* bytes of the snapshot that were handed over */
    uint64_t n_recorded;    /* as of those that the side file knows to be done */
    uint64_t span;          /* bytes since the last slot */
    int is_touched;         /* the target was written to */
    unsigned char *old, *patched; /* PATCH_SIZE each */
};

enum journal_state { JOURNAL_NONE, JOURNAL_OURS, JOURNAL_OTHER, JOURNAL_DAMAGED };

/* What the header says but for capacity and start: of which delta this is. */
int describe_delta(struct journal *j, struct archive *delta, uint64_t total);

/* Brings all pending patches to the target, if need be through the side file. */
int flush_journal(struct journal *j);

/* The next bytes of the snapshot: of a file, from offset. */
int hand_to_journal(struct journal *j, size_t file_number, uint64_t offset,
                    const unsigned char *data, size_t size);

/* What the target holds, or would if nothing were pending. reading: the same files as
 * j->target's */
int read_through_journal(const struct journal *j, struct place *reading, size_t number,
                         uint64_t offset, unsigned char *dst, size_t size);

/* path: of the side file, which the journal owns from now on. Nothing is opened. */
void init_journal(struct journal *j, char *path);

void free_journal(struct journal *j);

/* The target is complete and synced. */
int remove_journal(struct journal *j);

/* Opens the side file, if there is one, and reads its header into `header`. */
int find_journal(struct journal *j, enum journal_state *state,
                 unsigned char header[JOURNAL_HEADER_SIZE], char **name);

/* Takes up what the side file, whose header is that of j->header, has of the last slot. Nothing is
 * written yet. */
int recover_journal(struct journal *j, const unsigned char header[JOURNAL_HEADER_SIZE],
                    size_t n_files);

#endif
