/* archive.h - a snapshot that is read by its index
 * SPDX-License-Identifier: MIT
 *
 *   open_archive_file or open_archive_of_source -> read_archive_index -> the reader
 *   -> close_archive
 *
 * close_archive() may and must be called after the first step in any case. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"
#include "../../include/lmc_extra.h"

struct options;
struct outlet;
struct source;

struct archive {
    const char *name;
    const struct options *o;
    int fd;
    uint64_t start; /* of the snapshot in the file */
    struct stat st;
    lmc_reader *reader;
    lmc_reader *lender; /* or NULL: shares its buffers; of the base, if that is a snapshot */
    uint8_t header[LMC_FILE_HEADER_SIZE]; /* zeros: not read */
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* the base, of a delta */
    int is_delta;
    const lmc_base *plain; /* not NULL: files that are no snapshot; there is no reader */
    uint64_t n_reads, n_bytes;
    /* What look_inside() has read and handed out; whether it has ended for that */
    uint64_t n_read_inside, n_found_inside;
    int is_inside_cut;
    int error; /* errno of a failed read; -1: the file ended */
};

/* What is damaged, where it is not the bytes of a file. */
#define HEADER_DAMAGED " (in the header)"
#define LISTS_DAMAGED " (in its lists of files and blocks)"
#define INDEX_DAMAGED " (in the index, the table at the end)"

/* As lmc_source asks; user: an archive. Its `error` says why it has failed. */
enum lmc_status read_archive(void *user, uint64_t offset, void *dst, size_t size);

lmc_source source_of_archive(struct archive *a);

/* What a reader tells of its snapshot; encoded_size: 0 if it is not known. */
lmc_snapshot_info snapshot_info(const lmc_reader *reader);
void snapshot_fingerprint(const lmc_reader *reader, uint8_t fingerprint[LMC_FINGERPRINT_SIZE]);
/* From a header: whether it is a delta, and the base's fingerprint; 0, or -1 if it is none. */
int parse_header(const void *src, size_t size, uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE],
                 int *is_delta);
uint64_t snapshot_encoded_size(lmc_reader *reader, size_t file_number, uint64_t offset,
                               uint64_t size);

/* Reports what the library has returned when it read the archive. */
int fail_archive(const struct archive *a, enum lmc_status status);

/* The same, where it is known what was read: words for the message, or "". */
int fail_archive_at(const struct archive *a, enum lmc_status status, const char *where);

/* Reports a status of reading a snapshot with that header, zeros if it is not known: which lmc it
 * needs, if it is not this one. where: words for what could not be restored, or "". */
int fail_snapshot_at(const char *name, const uint8_t *header, enum lmc_status status,
                     const char *where);

/* What a bit of Incompatible is called (spec 3.1); NULL: this program does not know it. */
const char *name_feature(unsigned bit);

/* Frees the reader, too. */
void close_archive(struct archive *a);

/* Bytes of the snapshot. */
uint64_t archive_size(const struct archive *a);

/* Opens the file and looks whether it is a delta. */
int open_archive_file(struct archive *a, const char *path, const struct options *o);

/* The same, and reads its index without a base. */
int open_archive_index(struct archive *a, const char *path, const struct options *o);

/* Opens a snapshot that is being read from a regular file from front to back. */
int open_archive_of_source(struct archive *a, struct source *s, const struct options *o);

/* base: NULL for one that is no delta, or that is only listed. try_ reports nothing. */
enum lmc_status try_archive_index(struct archive *a, const lmc_base *base);
int read_archive_index(struct archive *a, const lmc_base *base);

/* The files, and their bytes. */
lmc_base files_of_archive(const struct archive *a);

/* Bytes of a file or a tensor, for callers that go through what the snapshot lists. The library
 * lets each request cost 512 MiB for nothing. Thousands of files of a few bytes would each get
 * that: so these requests share one account (spec R9-5), and what was decoded is kept for the next
 * one. What is asked for whole is compared with the index. LMC_ERR_LIMIT: the account is spent. */
enum lmc_status read_counted(const struct archive *a, size_t file_number, uint64_t offset,
                             void *dst, size_t size);
enum lmc_status read_counted_tensor(const struct archive *a, size_t file_number,
                                    const lmc_tensor *tensor, uint64_t offset, void *dst,
                                    size_t size);

/* All bytes of a file to an outlet, checked, by windows of BUFFER_SIZE; is_counted: see
 * progress_add(). What fails in writing is not reported, but stands in the outlet. */
int copy_counted(const struct archive *a, size_t file_number, unsigned char *window,
                 struct outlet *out, int is_counted);

/* Sets the fingerprint of a tensor whose bytes the stream gives, and its offset to 0. */
enum lmc_status identify_alone(lmc_tensor *alone, const lmc_stream *bytes,
                               const lmc_parallel *parallel);

/* Bytes of all files of the snapshot. */
uint64_t total_of_files(const lmc_reader *reader);

/* An entry of the metadata; NULL: there is none. To be freed. */
char *copy_metadata(const struct archive *a, const char *wanted);

/* The file of that number; user: an archive with a reader. As lmc_base has it. */
const lmc_file *get_delta_file(void *user, size_t number);

/* Whether it restores a directory, not a file. */
int is_tree_of_files(const lmc_reader *reader);

/* -- what the container in a file of a snapshot says itself --
 *
 * A snapshot lists tensors, each with bytes of its own. The file that it was made of may know more:
 * names that share bytes, orders of dimensions. This reads that from the file within the snapshot.
 */

/* What the file of that number holds: views of PyTorch; else nothing. Returns 1 if so: then it is
 * to be freed by container_free(). What cannot be read (a base is missing, the file is damaged)
 * holds nothing, nor does what says more than the file's weight allows (formats/container.h); with
 * -v that is said. What all files of the archive say is bounded, too: beyond that,
 * a->is_inside_cut.
 */
int look_inside(struct container *c, struct archive *a, size_t file);

/* -- from section to section of a snapshot on the disk, by their sizes alone --
 *
 * Nothing is decoded and no checksum is looked at: for snapshots that were just written, and for
 * messages about those that cannot be read.
 */

/* The first bytes of a snapshot. */
extern const uint8_t start_magic[8];

/* Whether an open file begins as a snapshot does; *error: 0, or the errno of reading it. */
int begins_as_snapshot(int fd, int *error);

/* What part of a snapshot is coded against its base: of so many bytes in blocks. */
struct base_use {
    uint64_t size, predicted_size;
    int is_measured; /* for the caller */
};

/* Of what is there of an open file that is a snapshot, or the beginning of one. 0, or -1: there is
 * no index, or not all before it can be read. */
int measure_base_use(struct base_use *use, int fd);

/* Where the snapshot at the beginning of the file ends; 0: there is no trailer. */
uint64_t find_snapshot_end(const char *path);

/* Whether the file's last bytes are the trailer of a snapshot of that size, whatever the first. */
int ends_as_snapshot(const char *path);

/* What the file says that it is, its fingerprint and that of its base: nothing of it is checked. 0,
 * or -1: it is no snapshot, or is damaged. */
int probe_snapshot(const char *path, uint8_t *fingerprint, uint8_t *wanted, int *is_delta);

/* -- which bytes of which tensor are damaged: one place and one form for all verbs -- */

#define DAMAGE_TEXT 640

/* Reports that reading bytes of that file, from `at` on, gave that status, and where the damage is:
 * " (bytes 7471104 to 7602175 of the tensor 'w')", of all blocks side by side. For that all before
 * them is read, unless the snapshot is very large: then it is " (in the tensor 'w')". */
int fail_damage(const struct archive *a, enum lmc_status status, size_t number, uint64_t at);

/* Reads the snapshot once, from front to back, and needs no index. LMC_OK: nothing is damaged; else
 * text says what is, or is "". base: NULL: as far as it shows without: of blocks that are coded
 * against it, headers and payloads. It is made to say where damage is: that there is none, only
 * restoring tells, which knows what must stand in a snapshot. */
enum lmc_status look_for_damage(const struct archive *a, const lmc_base *base,
                                char text[DAMAGE_TEXT]);
