/* SPDX-License-Identifier: MIT */
#include "apply_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/archive.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/output.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "apply_patches.h"
#include "apply_place.h"

#define JOURNAL_NAME_ROOM 256u
#define JOURNAL_SLOTS_AT 4096u
#define SLOT_HEADER_SIZE 32u
#define DELTA_END_SIZE ((size_t)64 << 10)

/* A slot is written when its patches, or what they are the changes of, reach this. Larger is faster
 * and takes more memory. */
#if !defined(SLOT_SIZE) /* tests have small ones */
#define SLOT_SIZE ((size_t)4 << 20)
#define SLOT_SPAN ((uint64_t)32 << 20)
#endif

static const unsigned char journal_magic[8] = {0x8C, 'L', 'M', 'C', 'a', 'p', 'l', 0x0A};

static int fail_journal(const struct journal *j, int error, const char *what)
{
    return fail_errno(j->path, error, what);
}

int describe_delta(struct journal *j, struct archive *delta, uint64_t total)
{
    uint64_t size = archive_size(delta);
    size_t end = (size_t)(size < DELTA_END_SIZE ? size : DELTA_END_SIZE);
    unsigned char *bytes = (unsigned char *)resize(NULL, end, 1), *h = j->header;
    const char *name = strrchr(delta->name, '/') ? strrchr(delta->name, '/') + 1 : delta->name;
    size_t length = strlen(name) < JOURNAL_NAME_ROOM ? strlen(name) : JOURNAL_NAME_ROOM;
    int failed = read_archive(delta, size - end, bytes, end) != LMC_OK;
    lmc_snapshot_info info = snapshot_info(delta->reader);
    memset(h, 0, JOURNAL_HEADER_SIZE);
    memcpy(h, journal_magic, sizeof journal_magic);
    store_number(h + 8, 1, 4);
    store_number(h + 12, length, 4);
    store_number(h + 16, total, 8);
    store_number(h + 40, size, 8);
    store_number(h + 48, lmc_crc32c(0, bytes, end), 4);
    snapshot_fingerprint(delta->reader, h + 56);
    memcpy(h + 88, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(h + JOURNAL_NAME_AT, name, length);
    free(bytes);
    return failed ? fail_archive(delta, LMC_ERR_READ) : CODE_OK;
}

/* A new side file, without slots, in the place of any other. The target is synced. */
static int create_journal(struct journal *j, uint64_t capacity)
{
    struct output out;
    int code = open_output(&out, j->path, NULL, 1), error, fd;
    struct attributes a;
    if (code != CODE_OK) return code;
    j->capacity = (capacity + 4095) / 4096 * 4096;
    store_number(j->header + 24, j->n_recorded, 8);
    store_number(j->header + 32, j->capacity, 8);
    store_number(j->header + 508, lmc_crc32c(0, j->header, 508), 4);
    error = write_output(&out, j->header, JOURNAL_HEADER_SIZE);
    fd = dup(out.fd);
    if (error || fd < 0) {
        code = fail_journal(j, error ? error : errno, "cannot write it");
        discard_output(&out);
        return code;
    }
    memset(&a, 0, sizeof a);
    a.has_mode = 1;
    a.mode = 0600;
    code = commit_output(&out, &a);
    if (code != CODE_OK &&
        j->fd < 0) /* it may have got its name, and must not tell of what has not begun */
        unlink(j->path);
    if (code != CODE_OK || j->fd >= 0) close(code != CODE_OK ? fd : j->fd);
    if (code == CODE_OK) j->fd = fd;
    j->number = 0;
    return code;
}

static uint64_t slot_at(const struct journal *j, uint64_t number)
{
    return JOURNAL_SLOTS_AT + (number & 1) * j->capacity;
}

static int write_slot(struct journal *j)
{
    unsigned char head[SLOT_HEADER_SIZE];
    uint64_t at = slot_at(j, j->number + 1);
    int error;
    store_number(head, j->number + 1, 8);
    store_number(head + 8, j->n_handed, 8);
    store_number(head + 16, j->pending.size, 8);
    store_number(head + 24, lmc_crc32c(0, j->pending.data, j->pending.size), 4);
    store_number(head + 28, lmc_crc32c(0, head, 28), 4);
    error = write_at(j->fd, at + SLOT_HEADER_SIZE, j->pending.data, j->pending.size);
    if (!error) error = write_at(j->fd, at, head, sizeof head);
    if (!error) error = sync_data(j->fd);
    if (error) return fail_journal(j, error, "cannot write it");
    j->number++;
    j->n_recorded = j->n_handed;
    j->is_recorded = 1;
    return CODE_OK;
}

/* What was found may never have come to the disk, if its writer was killed before, or could not
 * sync it. So the slot is written once more in its place: the same bytes, so that a torn write does
 * no harm. */
static int settle_journal(struct journal *j)
{
    int code = CODE_OK, error = 0;
    j->is_found = 0;
    if (j->is_recorded) {
        j->number--;
        code = write_slot(j);
    } else {
        error = sync_data(j->fd);
    }
    if (code == CODE_OK && !error) error = sync_directory_of(j->path);
    return error ? fail_journal(j, error, "cannot bring it to the disk") : code;
}

/* Lets the disk begin with what was written, so that syncing takes less time. */
static void begin_to_sync(const struct place *p)
{
#if defined(SYNC_FILE_RANGE_WRITE)
    if (p->is_written) (void)!sync_file_range(p->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
    (void)p;
#endif
}

int flush_journal(struct journal *j)
{
    struct patch p;
    int code = CODE_OK;
    j->span = 0;
    if (j->pending.size && j->is_found) code = settle_journal(j);
    if (code == CODE_OK && j->pending.size && !j->is_recorded) {
        code = sync_place(j->target);
        if (code == CODE_OK && (j->fd < 0 || j->capacity < SLOT_HEADER_SIZE + j->pending.size))
            code = create_journal(
                j,
                SLOT_HEADER_SIZE + 2 * (j->pending.size > SLOT_SIZE ? j->pending.size : SLOT_SIZE));
        if (code == CODE_OK) code = write_slot(j);
    }
    if (code == CODE_OK && j->target_name)
        set_last_words(j->target_name, "is left half applied; give the same command again, and it "
                                       "goes on");
    for (size_t at = 0; code == CODE_OK && next_patch(&j->pending, &at, &p);) {
        code = read_place(j->target, p.file_number, p.offset, j->patched, p.size);
        use_patch(&p, p.offset, j->patched, p.size);
        j->is_touched = 1;
        if (code == CODE_OK)
            code = write_place(j->target, p.file_number, p.offset, j->patched, p.size);
    }
    j->pending.size = 0;
    j->is_recorded = 0;
    begin_to_sync(j->target);
    return code;
}

int hand_to_journal(struct journal *j, size_t file_number, uint64_t offset,
                    const unsigned char *data, size_t size)
{
    int code = j->is_recorded ? flush_journal(j) : CODE_OK;
    j->n_handed += size;
    j->span += size;
    while (size && code == CODE_OK) {
        size_t part = PATCH_SIZE - (size_t)(offset % PATCH_SIZE);
        part = part < size ? part : size;
        code = read_place(j->target, file_number, offset, j->old, part);
        if (code == CODE_OK) add_patch(&j->pending, file_number, offset, j->old, data, part);
        offset += part;
        data += part;
        size -= part;
    }
    if (code == CODE_OK && (j->pending.size >= SLOT_SIZE || j->span >= SLOT_SPAN))
        code = flush_journal(j);
    return code;
}

int read_through_journal(const struct journal *j, struct place *reading, size_t number,
                         uint64_t offset, unsigned char *dst, size_t size)
{
    struct patch p;
    int code = read_place(reading, number, offset, dst, size);
    for (size_t at = 0; code == CODE_OK && next_patch(&j->pending, &at, &p);)
        if (p.file_number == number && p.offset < offset + size && offset < p.offset + p.size)
            use_patch(&p, offset, dst, size);
    return code;
}

void init_journal(struct journal *j, char *path)
{
    memset(j, 0, sizeof *j);
    j->path = path;
    j->fd = -1;
    j->old = (unsigned char *)resize(NULL, PATCH_SIZE, 1);
    j->patched = (unsigned char *)resize(NULL, PATCH_SIZE, 1);
}

void free_journal(struct journal *j)
{
    if (j->fd >= 0) close(j->fd);
    free(j->pending.data);
    free(j->old);
    free(j->patched);
    free(j->path);
}

int remove_journal(struct journal *j)
{
    int error;
    if (j->fd < 0) return CODE_OK;
    error = unlink(j->path) == 0 ? sync_directory_of(j->path) : errno;
    close(j->fd);
    j->fd = -1;
    return error ? fail_journal(j, error, "cannot remove it") : CODE_OK;
}

/* -- a side file that is there already -- */

/* Reads the header of the side file, which is open. *name: of the delta, for messages; to be
 * freed. */
static int read_journal_header(struct journal *j, enum journal_state *state,
                               unsigned char header[JOURNAL_HEADER_SIZE], char **name)
{
    int error = read_at(j->fd, 0, header, JOURNAL_HEADER_SIZE);
    if (error > 0) return fail_journal(j, error, "cannot read it");
    *state = JOURNAL_DAMAGED;
    if (error || memcmp(header, journal_magic, sizeof journal_magic) != 0 ||
        lmc_crc32c(0, header, 508) != load_number(header + 508, 4))
        return CODE_OK;
    if (load_number(header + 8, 4) != 1)
        return fail(CODE_ERROR, j->path,
                    "was written by a newer version of lmc apply: finish with that");
    if (load_number(header + 12, 4) > JOURNAL_NAME_ROOM ||
        load_number(header + 24, 8) > load_number(header + 16, 8) ||
        load_number(header + 32, 8) < SLOT_HEADER_SIZE ||
        load_number(header + 32, 8) > (uint64_t)1 << 48)
        return CODE_OK;
    *name =
        copy_string((const char *)header + JOURNAL_NAME_AT, (size_t)load_number(header + 12, 4));
    *state = JOURNAL_OTHER;
    return CODE_OK;
}

int find_journal(struct journal *j, enum journal_state *state,
                 unsigned char header[JOURNAL_HEADER_SIZE], char **name)
{
    struct stat st;
    *state = JOURNAL_NONE;
    *name = NULL;
    j->fd = open(j->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (j->fd < 0) return errno == ENOENT ? CODE_OK : fail_journal(j, errno, "cannot open it");
    if (fstat(j->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return fail(
            CODE_ERROR, j->path,
            "is in the way: it should be the side file of lmc apply, and is no file; remove it");
    return read_journal_header(j, state, header, name);
}

/* Reads slot k; *number: 0 if it is not right. 0 or errno. */
static int read_slot(const struct journal *j, unsigned k, uint64_t file_size, uint64_t total,
                     size_t n_files, struct patches *patches, uint64_t *number, uint64_t *n_done)
{
    unsigned char head[SLOT_HEADER_SIZE];
    uint64_t at = slot_at(j, k), size;
    int error = read_at(j->fd, at, head, sizeof head);
    *number = 0;
    if (error) return error > 0 ? error : 0;
    size = load_number(head + 16, 8);
    *n_done = load_number(head + 8, 8);
    if (lmc_crc32c(0, head, 28) != load_number(head + 28, 4) || (load_number(head, 8) & 1) != k ||
        *n_done > total || size > j->capacity - SLOT_HEADER_SIZE || size > file_size ||
        size > SIZE_MAX)
        return 0;
    patches->data = (unsigned char *)resize(patches->data, (size_t)size, 1);
    patches->size = patches->room = (size_t)size;
    error = read_at(j->fd, at + SLOT_HEADER_SIZE, patches->data, patches->size);
    if (!error && lmc_crc32c(0, patches->data, patches->size) == load_number(head + 24, 4) &&
        are_patches(patches, j->target, n_files))
        *number = load_number(head, 8);
    return error > 0 ? error : 0;
}

int recover_journal(struct journal *j, const unsigned char header[JOURNAL_HEADER_SIZE],
                    size_t n_files)
{
    struct stat st;
    uint64_t total = load_number(header + 16, 8);
    memcpy(j->header, header, JOURNAL_HEADER_SIZE);
    j->is_found = 1;
    j->capacity = load_number(header + 32, 8);
    j->n_recorded = j->n_handed = load_number(header + 24, 8);
    if (fstat(j->fd, &st) != 0) return fail_journal(j, errno, "cannot access it");
    for (unsigned k = 0; k < 2; k++) {
        struct patches found;
        uint64_t number, n_done;
        int error;
        memset(&found, 0, sizeof found);
        error = read_slot(j, k, (uint64_t)st.st_size, total, n_files, &found, &number, &n_done);
        if (!error && number > j->number) {
            struct patches other = j->pending;
            j->pending = found;
            found = other;
            j->number = number;
            j->n_recorded = j->n_handed = n_done;
            j->is_recorded = 1;
        }
        free(found.data);
        if (error) return fail_journal(j, error, "cannot read it");
    }
    return CODE_OK;
}
