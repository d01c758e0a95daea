/* archive.h - a snapshot that is read by its index
 * SPDX-License-Identifier: MIT
 *
 *   open_archive_file or open_archive_of_source -> read_archive_index -> the reader
 *   -> close_archive
 *
 * close_archive() must be called after the first step, even after an error. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"
#include "../../include/lmc_extra.h"
#include "../../include/lmc_salvage.h"

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
    lmc_reader *lender;                   /* the base's reader, which shares its buffers; or NULL */
    lmc_salvage *beginning;               /* of a pipe: the tables before its first run; or NULL */
    uint8_t header[LMC_HEADER_SIZE];      /* all zero: not read */
    uint8_t wanted[LMC_FINGERPRINT_SIZE]; /* of a delta: its base's fingerprint */
    int is_delta;
    const lmc_base *plain; /* not NULL: uncompressed files; there is no reader */
    uint64_t n_reads, n_bytes;
    /* Bytes that look_inside() has read and returned; whether they have reached their limit */
    uint64_t n_read_inside, n_found_inside;
    int is_inside_cut;
    struct dcp_memo metadata;
    int error; /* errno of a failed read; -1: the file ended */
};

/* Words for damage outside of the bytes of files. */
#define HEADER_DAMAGED " (in the header)"
#define LISTS_DAMAGED " (in its lists of files and blocks)"
#define INDEX_DAMAGED " (in the index, the table at the end)"

/* The read_at of an lmc_source. user: an archive; its `error` is set on errors. */
enum lmc_status read_archive(void *user, uint64_t offset, void *dst, size_t size);

lmc_source source_of_archive(struct archive *a);

/* Information of a reader about its snapshot. snapshot_encoded_size: 0 if it is not known. */
lmc_snapshot_info snapshot_info(const lmc_reader *reader);
void snapshot_fingerprint(const lmc_reader *reader, uint8_t fingerprint[LMC_FINGERPRINT_SIZE]);
/* Reads from a header whether this is a delta, and its base's fingerprint. -1: not a header. */
int parse_header(const void *src, size_t size, uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE],
                 int *is_delta);
uint64_t snapshot_encoded_size(lmc_reader *reader, size_t file_number, uint64_t offset,
                               uint64_t size);

/* Reports an error that the library has returned when it read the archive. */
int fail_archive(const struct archive *a, enum lmc_status status);

/* Reports that answering requests for its bytes has reached the limit of work. */
int fail_work(const struct archive *a);

/* The same as fail_archive. where: words for the message that tell what was read, or "". */
int fail_archive_at(const struct archive *a, enum lmc_status status, const char *where);

/* Reports why no snapshot can be read from a path that does not begin as one: it is missing, no
 * regular file, or has other content. */
int fail_foreign(const char *path, const struct options *o);

/* Reports a status of reading a snapshot. header: all zero if unknown. The message tells if
 * the snapshot needs a newer lmc. where: words for what could not be restored, or "". */
int fail_snapshot_at(const char *name, const uint8_t *header, enum lmc_status status,
                     const char *where);

/* The name of a bit of Incompatible (spec 3.1); NULL: unknown to this program. */
const char *name_feature(unsigned bit);

/* Frees the reader, too. */
void close_archive(struct archive *a);

/* Bytes of the snapshot. */
uint64_t archive_size(const struct archive *a);

/* Opens the file, and reads from its header whether it is a delta. */
int open_archive_file(struct archive *a, const char *path, const struct options *o);

/* The same, and reads its index, without a base. */
int open_archive_index(struct archive *a, const char *path, const struct options *o);

/* Opens the snapshot in a regular file that is also being read as a source. */
int open_archive_of_source(struct archive *a, struct source *s, const struct options *o);

/* Options to open the archive with that base or NULL. Whatever decodes one snapshot for another one
 * must have one limit of work with it (spec R9-5), or the limits multiply. The library sees this
 * only of readers that lend to each other, not of shards that are one base. So all readers borrow,
 * if not from their base's reader, from a lender that all->bases have. They are used by one thread
 * at a time. */
lmc_reader_options options_of_reader(const struct archive *a, const lmc_base *base);

/* base: NULL if the snapshot is not a delta, or is only listed. try_... reports nothing. */
enum lmc_status try_archive_index(struct archive *a, const lmc_base *base);
int read_archive_index(struct archive *a, const lmc_base *base);

/* The files of the archive and their bytes. */
lmc_base files_of_archive(const struct archive *a);

/* Read bytes of a file or tensor, for callers that go through the lists of a snapshot. For a few
 * bytes, up to 512 MiB may be decoded, and there may be thousands of tiny files. So these requests
 * share one limit (spec R9-5), and decoded blocks are kept for the next request. A whole file or
 * tensor is compared with the index. LMC_ERR_LIMIT: the limit is reached. */
enum lmc_status read_counted(const struct archive *a, size_t file_number, uint64_t offset,
                             void *dst, size_t size);

/* Before all of it is read once more: requests from now on have a limit of their own. */
void begin_to_count(const struct archive *a);

enum lmc_status read_counted_tensor(const struct archive *a, size_t file_number,
                                    const lmc_tensor *tensor, uint64_t offset, void *dst,
                                    size_t size);

/* Sets the fingerprint of a tensor, whose bytes are read from the stream, and its offset to 0. */
enum lmc_status identify_alone(lmc_tensor *alone, const lmc_stream *bytes,
                               const lmc_parallel *parallel);

/* Bytes of all files of the snapshot. */
uint64_t total_of_files(const lmc_reader *reader);

/* An entry of the metadata; NULL: there is none. To be freed. */
char *copy_metadata(const struct archive *a, const char *wanted);

/* The get_file of an lmc_base. user: an archive with a reader. */
const lmc_file *get_delta_file(void *user, size_t number);

/* Whether the snapshot restores a directory, not a file. */
int is_tree_of_files(const lmc_reader *reader);

/* -- names of tensors that only a file within the snapshot has --
 *
 * A snapshot lists tensors that do not overlap. The compressed file may have more: tensors that
 * share bytes, or have their dimensions in another order. They are read from that file.
 */

/* Parses the file of that number for PyTorch views. Returns 1 if it has any: then c is to be freed
 * by container_free(). Returns 0 also if the file cannot be read (base missing, damage), or if its
 * views would take more than its weight allows (formats/container.h), which -v reports. All files
 * of the archive together have a limit, too, beyond which a->is_inside_cut is set.
 */
int look_inside(struct container *c, struct archive *a, size_t file);

/* -- what a file on the disk is, without opening it as a snapshot: for searches and messages -- */

/* Whether an open file begins with the magic of a snapshot. *error: 0, or errno of reading it. */
int begins_as_snapshot(int fd, int *error);

/* The end of the snapshot at the beginning of the file; 0: there is no trailer. */
uint64_t find_snapshot_end(const char *path);

/* Whether the first bytes of a snapshot are at that offset. */
int starts_snapshot_at(const char *path, uint64_t offset);

/* lmc_snapshot_probe of a regular file; READ: it is none, or cannot be read. */
enum lmc_status probe_snapshot(const char *path, lmc_snapshot_info *info);

/* -- messages of all verbs that tell which bytes of which tensor are damaged -- */

#define DAMAGE_TEXT 640

/* Writes all bytes of a file to an outlet, in pieces of BUFFER_SIZE, and checks them. is_counted:
 * also for progress_add(). A write error is not reported, but only set in the outlet. */
int copy_counted(const struct archive *a, size_t file_number, unsigned char *window,
                 struct outlet *out, int is_counted);

/* Reports that reading bytes of that file, from `at` on, returned that status, and where the damage
 * is: " (bytes 7471104 to 7602175 of the tensor 'w')", for all adjacent damaged blocks. That reads
 * all bytes before them. For very large snapshots the place is only " (in the tensor 'w')". */
int fail_damage(const struct archive *a, enum lmc_status status, size_t number, uint64_t at);

/* The same, but reads nothing: the damage is said to be in the tensor that holds byte `at`. */
int fail_damage_near(const struct archive *a, enum lmc_status status, size_t number, uint64_t at);

/* Reads the snapshot once, from front to back, without its index. text: where damage is, or "".
 * LMC_OK: none was found. This locates damage, but only restoring shows that there is none, as it
 * checks more. base NULL: of blocks that need the base, only header and payload are checked. */
enum lmc_status look_for_damage(const struct archive *a, const lmc_base *base,
                                char text[DAMAGE_TEXT]);
