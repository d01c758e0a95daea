/* apply_journal.c - the side file that makes lmc apply survive a crash (apply.h)
 * SPDX-License-Identifier: MIT */
#include "apply.h"

#include "../../formats/container_check.h"
#include "../input/archive.h"
#include "../input/source.h"
#include "../sys/attributes.h"
#include "../sys/output.h"

#define JOURNAL_NAME_AT 120u
#define JOURNAL_NAME_ROOM 256u
#define JOURNAL_SLOTS_AT 4096u
#define SLOT_HEADER_SIZE 32u
#define DELTA_END_SIZE ((size_t)64 << 10)
#define PATCH_HEADER_SIZE 24u
#define PATCH_SIZE ((size_t)64 << 10)

/* A slot is written when its patches have SLOT_SIZE bytes, or were made from SLOT_SPAN bytes. The
 * window has room for what a slot of a dense delta is made from, and for the blocks after it. */
#if !defined(SLOT_SIZE) /* tests have small ones */
#define SLOT_SIZE ((size_t)4 << 20)
#define SLOT_SPAN ((uint64_t)32 << 20)
#define WINDOW_SIZE ((size_t)12 << 20)
#endif

static const unsigned char journal_magic[8] = {0x8C, 'L', 'M', 'C', 'a', 'p', 'l', 0x0A};

/* -- files of the target -- */

void open_place(struct place *p, const char *root, int dir,
                const lmc_file *(*get_file)(void *, size_t), void *user, int may_write)
{
    memset(p, 0, sizeof *p);
    p->root = root;
    p->dir = dir;
    p->get_file = get_file;
    p->user = user;
    p->may_write = may_write;
    p->fd = -1;
}

static int fail_place(const struct place *p, size_t number, int error, const char *what)
{
    char *path = join_path(p->root, p->get_file(p->user, number)->path);
    const int code = error < 0 ? fail_changed(path) : fail_errno(path, error, what);
    free(path);
    return code;
}

/* Syncs what was written to the open file. */
static int sync_place(struct place *p)
{
    int error = p->is_written ? sync_data(p->fd) : 0;
    p->is_written = 0;
    return error ? fail_place(p, p->number, error, "cannot sync it") : CODE_OK;
}

int close_place(struct place *p)
{
    int code = p->fd >= 0 ? sync_place(p) : CODE_OK;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    return code;
}

int open_in_target(int dir, const char *root, const char *path, int is_strict, int flags)
{
    if (!*path) return open_file(dir, base_name(root), flags | O_NOFOLLOW);
    return is_strict ? open_below(dir, path, flags) : open_file(dir, path, flags);
}

/* Checks the file that was opened. Somebody may have exchanged it after the check of the target, to
 * make a superuser change another file. Returns 0 or errno; -1: it was exchanged. */
static int check_opened(const struct place *p)
{
    struct stat st;
    if (!p->is_strict) return 0;
    if (fstat(p->fd, &st) != 0) return errno;
    return S_ISREG(st.st_mode) && st.st_nlink <= 1 ? 0 : -1;
}

static int go_to_file(struct place *p, size_t number)
{
    const char *below = p->get_file(p->user, number)->path;
    if (p->fd >= 0 && p->number == number) return CODE_OK;
    int code = close_place(p);
    if (code != CODE_OK) return code;
    p->number = number;
    p->fd = open_in_target(p->dir, p->root, below, p->is_strict, p->may_write ? O_RDWR : O_RDONLY);
    int error = p->fd < 0 ? errno : check_opened(p);
    if (!error) return CODE_OK;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    return fail_place(p, number, error == ELOOP || error == ENOTDIR ? -1 : error, "cannot open it");
}

int read_place(struct place *p, size_t number, uint64_t offset, void *dst, size_t size)
{
    int code = go_to_file(p, number), error;
    if (code != CODE_OK) return code;
    error = read_at(p->fd, offset, dst, size);
    return error ? fail_place(p, number, error, "cannot read it") : CODE_OK;
}

static int write_place(struct place *p, size_t number, uint64_t offset, const void *data,
                       size_t size)
{
    int code = go_to_file(p, number), error;
    if (code != CODE_OK) return code;
    p->is_written = 1;
    error = write_at(p->fd, offset, data, size);
    return error ? fail_place(p, number, error, "cannot write to it") : CODE_OK;
}

/* -- the window -- */

/* A part of a file that is in the window, or NULL. */
static unsigned char *find_in_window(const struct window *w, size_t number, uint64_t offset,
                                     size_t size)
{
    const size_t at = (size_t)(offset % WINDOW_SIZE);
    return number == w->number && offset >= w->from && offset + size <= w->to &&
                   size <= WINDOW_SIZE - at
               ? w->data + at
               : NULL;
}

/* What does not continue the window begins it anew. */
static void keep_in_window(struct window *w, size_t number, uint64_t offset,
                           const unsigned char *data, size_t size)
{
    if (number != w->number || offset != w->to) w->from = offset;
    w->number = number;
    w->to = offset + size;
    if (w->to - w->from > WINDOW_SIZE) w->from = w->to - WINDOW_SIZE;
    while (size) {
        const size_t at = (size_t)(offset % WINDOW_SIZE), room = WINDOW_SIZE - at,
                     part = size < room ? size : room;
        memcpy(w->data + at, data, part);
        offset += part;
        data += part;
        size -= part;
    }
}

/* Drops a file's bytes up to `end`. */
static void drop_from_window(struct window *w, size_t number, uint64_t end)
{
    if (number == w->number && w->from < end) w->from = end < w->to ? end : w->to;
}

/* -- patches -- */

/* Stores value in `size` bytes, little-endian. */
static void store_number(unsigned char *p, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++) p[i] = (unsigned char)(value >> (8 * i));
}

static size_t count_masks(size_t size) { return (size + 511) / 512; }

struct patch {
    size_t file_number, n_words;
    uint64_t offset;
    size_t size;
    const unsigned char *masks, *words;
};

/* Reads the patch at *at and moves *at behind it. 0: no more. are_patches() checked the list. */
static int next_patch(const struct patches *list, size_t *at, struct patch *p)
{
    if (*at == list->size) return 0;
    const unsigned char *head = list->data + *at;
    p->file_number = (size_t)container_number(head, 4);
    p->n_words = (size_t)container_number(head + 4, 4);
    p->offset = container_number(head + 8, 8);
    p->size = (size_t)container_number(head + 16, 4);
    p->masks = head + PATCH_HEADER_SIZE;
    p->words = p->masks + 8 * count_masks(p->size);
    *at += PATCH_HEADER_SIZE + 8 * (count_masks(p->size) + p->n_words);
    return 1;
}

/* Copies 64 words. Returns a mask of those that were different, and appends their new values at
 * *words; the word after them may be overwritten. Avoids branches, which would be mispredicted. */
static uint64_t replace_words(unsigned char *from, const unsigned char *to, unsigned char **words)
{
    unsigned char *word = *words;
    uint64_t mask = 0;
    for (unsigned k = 0; k < 64; k++) {
        uint64_t old, new_one;
        memcpy(&old, from + 8 * k, 8);
        memcpy(&new_one, to + 8 * k, 8);
        memcpy(from + 8 * k, &new_one, 8);
        memcpy(word, &new_one, 8);
        word += old != new_one ? 8 : 0;
        mask |= (uint64_t)(old != new_one) << k;
    }
    *words = word;
    return mask;
}

/* Turns `from` into `to`, and adds a patch that does so, unless they are equal. size is at most
 * PATCH_SIZE. */
static void add_patch(struct patches *list, size_t file_number, uint64_t offset,
                      unsigned char *from, const unsigned char *to, size_t size)
{
    const size_t n_masks = count_masks(size), most = PATCH_HEADER_SIZE + n_masks * (8 + 512) + 8;
    unsigned char *head, *mask, *words, *end, last[2][512];
    if (list->cap - list->size < most) {
        list->cap += list->cap / 2 + most;
        list->data = (unsigned char *)resize(list->data, list->cap, 1);
    }
    head = list->data + list->size;
    mask = head + PATCH_HEADER_SIZE;
    words = end = mask + 8 * n_masks;
    for (; size >= 512; size -= 512, from += 512, to += 512, mask += 8)
        store_number(mask, replace_words(from, to, &end), 8);
    if (size) {
        memset(last, 0, sizeof last);
        memcpy(last[0], from, size);
        memcpy(last[1], to, size);
        store_number(mask, replace_words(last[0], last[1], &end), 8);
        memcpy(from, to, size);
    }
    if (end == words) return;
    size += 512 * (size_t)(mask - head - PATCH_HEADER_SIZE) / 8;
    store_number(head, file_number, 4);
    store_number(head + 4, (uint64_t)(end - words) / 8, 4);
    store_number(head + 8, offset, 8);
    store_number(head + 16, size, 4);
    store_number(head + 20, 0, 4);
    list->size = (size_t)(end - list->data);
}

static unsigned find_lowest_bit(uint64_t mask)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(mask);
#else
    unsigned n = 0;
    for (; !(mask & 1); mask >>= 1) n++;
    return n;
#endif
}

/* Applies a patch to data, which is [offset, offset + size) of its file. */
static void use_patch(const struct patch *p, uint64_t offset, unsigned char *data, size_t size)
{
    const int is_within = offset <= p->offset && p->offset + p->size <= offset + size;
    const unsigned char *word = p->words;
    for (size_t i = 0; i < count_masks(p->size); i++)
        for (uint64_t mask = container_number(p->masks + 8 * i, 8); mask;
             mask &= mask - 1, word += 8) {
            uint64_t at = p->offset + 512 * i + 8 * find_lowest_bit(mask),
                     end = p->offset + p->size;
            if (is_within && end - at >= 8) memcpy(data + (size_t)(at - offset), word, 8);
            else
                for (size_t k = 0; k < 8 && at + k < end; k++)
                    if (at + k >= offset && at + k - offset < size) data[at + k - offset] = word[k];
        }
}

/* Whether patches from a side file are valid, for a snapshot of n_files files: in the order of its
 * bytes, of which n_done are done with them. */
static int are_patches(const struct patches *list, const struct place *p, size_t n_files,
                       uint64_t n_done)
{
    uint64_t n_before = 0; /* bytes of the files before file `number` */
    size_t number = 0;
    for (size_t at = 0; at < list->size;) {
        const unsigned char *head = list->data + at;
        size_t left = list->size - at, size, n_words, n_masks, n = 0;
        if (left < PATCH_HEADER_SIZE || container_number(head, 4) >= n_files ||
            container_number(head + 20, 4) != 0)
            return 0;
        for (; number < container_number(head, 4); number++)
            n_before += p->get_file(p->user, number)->size;
        const lmc_file *file = p->get_file(p->user, number);
        n_words = (size_t)container_number(head + 4, 4);
        size = (size_t)container_number(head + 16, 4);
        n_masks = count_masks(size);
        if (number != container_number(head, 4) || file->kind != LMC_FILE_REGULAR || size == 0 ||
            size > PATCH_SIZE || container_number(head + 8, 8) > file->size ||
            file->size - container_number(head + 8, 8) < size ||
            n_before + container_number(head + 8, 8) + size > n_done || n_words > 64 * n_masks ||
            left - PATCH_HEADER_SIZE < 8 * (n_masks + n_words))
            return 0;
        for (size_t i = 0; i < n_masks; i++) {
            uint64_t mask = container_number(head + PATCH_HEADER_SIZE + 8 * i, 8);
            size_t n_here = (size - 512 * i + 7) / 8;
            if (n_here < 64 && mask >> n_here) return 0;
            for (; mask; mask &= mask - 1) n++;
        }
        if (n != n_words) return 0;
        at += PATCH_HEADER_SIZE + 8 * (n_masks + n_words);
    }
    return 1;
}

/* -- the side file -- */

static int fail_journal(const struct journal *j, int error, const char *what)
{
    return fail_errno(j->path, error, what);
}

int describe_delta(unsigned char header[JOURNAL_HEADER_SIZE], struct archive *delta, uint64_t total)
{
    uint64_t size = archive_size(delta);
    size_t end = (size_t)(size < DELTA_END_SIZE ? size : DELTA_END_SIZE);
    unsigned char *bytes = (unsigned char *)resize(NULL, end, 1), *h = header;
    const char *name = base_name(delta->name);
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
    memcpy(h + 56, info.fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(h + 88, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(h + JOURNAL_NAME_AT, name, length);
    free(bytes);
    return failed ? fail_archive(delta, LMC_ERR_READ) : CODE_OK;
}

/* Compares all fields except start, capacity and the name. */
int is_same_delta(const unsigned char *a, const unsigned char *b)
{
    return memcmp(a + 16, b + 16, 8) == 0 && memcmp(a + 40, b + 40, JOURNAL_NAME_AT - 40) == 0;
}

int begin_journal(struct journal *j, struct archive *delta, uint64_t total)
{
    j->capacity = j->number = j->n_handed = j->n_recorded = j->span = 0;
    j->pending.size = 0;
    j->window.from = j->window.to = 0; /* files have other numbers in another delta */
    j->is_recorded = j->is_found = j->is_touched = 0;
    return describe_delta(j->header, delta, total);
}

/* Makes a new side file without slots, replacing an old one. The caller syncs the target first. */
static int create_journal(struct journal *j, uint64_t capacity)
{
    struct output out;
    int code = open_output(&out, j->path, NULL, 1), error, fd = -1;
    struct attributes a = {0};
    if (code != CODE_OK) return code;
    j->capacity = (capacity + 4095) / 4096 * 4096;
    store_number(j->header + 24, j->n_recorded, 8);
    store_number(j->header + 32, j->capacity, 8);
    store_number(j->header + 508, lmc_crc32c(0, j->header, 508), 4);
    error = write_output(&out, j->header, JOURNAL_HEADER_SIZE);
    if (error) {
        code = fail_journal(j, error, "cannot write it");
        discard_output(&out);
        return code;
    }
    a.has_mode = 1;
    a.mode = 0600;
    code = commit_output(&out, &a);
    /* opened by name: commit_output may have copied the output to a new file */
    if (code == CODE_OK && (fd = open_file(j->dir, base_name(j->path), O_RDWR | O_NOFOLLOW)) < 0)
        code = fail_journal(j, errno, "cannot write it");
    if (code != CODE_OK && j->fd < 0) /* the side file may exist already, but no slot is in it */
        unlinkat(j->dir, base_name(j->path), 0);
    if (code == CODE_OK && j->fd >= 0) close(j->fd);
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
    store_number(head, j->number + 1, 8);
    store_number(head + 8, j->n_handed, 8);
    store_number(head + 16, j->pending.size, 8);
    store_number(head + 24, lmc_crc32c(0, j->pending.data, j->pending.size), 4);
    store_number(head + 28, lmc_crc32c(0, head, 28), 4);
    int error = write_at(j->fd, at + SLOT_HEADER_SIZE, j->pending.data, j->pending.size);
    if (!error) error = write_at(j->fd, at, head, sizeof head);
    if (!error) error = sync_data(j->fd);
    if (error) return fail_journal(j, error, "cannot write it");
    j->number++;
    j->n_recorded = j->n_handed;
    j->is_recorded = 1;
    return CODE_OK;
}

/* The side file may not be on the disk yet, if its writer was killed before it synced. So the slot
 * is written again, in the same place. A torn write does no harm: the bytes are the same. */
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
    if (code == CODE_OK && !error) error = sync_directory_at(j->dir);
    return error ? fail_journal(j, error, "cannot sync it") : code;
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
        const unsigned char *data = find_in_window(&j->window, p.file_number, p.offset, p.size);
        if (!data) {
            data = j->piece;
            code = read_place(j->target, p.file_number, p.offset, j->piece, p.size);
            use_patch(&p, p.offset, j->piece, p.size);
        }
        j->is_touched = 1;
        if (code == CODE_OK) code = write_place(j->target, p.file_number, p.offset, data, p.size);
    }
    j->pending.size = 0;
    j->is_recorded = 0;
    if (j->target->is_written) begin_to_sync(j->target->fd, 0, 0);
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
        unsigned char *old = find_in_window(&j->window, file_number, offset, part);
        if (!old) {
            drop_from_window(&j->window, file_number, offset + part);
            old = j->piece;
            code = read_place(j->target, file_number, offset, old, part);
        }
        if (code == CODE_OK) add_patch(&j->pending, file_number, offset, old, data, part);
        offset += part;
        data += part;
        size -= part;
    }
    if (code == CODE_OK && (j->pending.size >= SLOT_SIZE || j->span >= SLOT_SPAN))
        code = flush_journal(j);
    return code;
}

int read_through_journal(struct journal *j, struct place *reading, size_t number, uint64_t offset,
                         unsigned char *dst, size_t size)
{
    struct patch p;
    int code = read_place(reading, number, offset, dst, size);
    for (size_t at = 0; code == CODE_OK && next_patch(&j->pending, &at, &p);)
        if (p.file_number == number && p.offset < offset + size && offset < p.offset + p.size)
            use_patch(&p, offset, dst, size);
    if (code == CODE_OK) keep_in_window(&j->window, number, offset, dst, size);
    return code;
}

void free_journal(struct journal *j)
{
    if (j->fd >= 0) close(j->fd);
    free(j->pending.data);
    free(j->window.data);
    free(j->piece);
    free(j->found_name);
    free(j->path);
}

int remove_journal(struct journal *j)
{
    if (j->fd < 0) return CODE_OK;
    int error = unlinkat(j->dir, base_name(j->path), 0) == 0 ? sync_directory_at(j->dir) : errno;
    close(j->fd);
    j->fd = -1;
    return error ? fail_journal(j, error, "cannot remove it") : CODE_OK;
}

/* -- a side file that is there already -- */

/* Reads the header of the side file, which is open. */
static int read_journal_header(struct journal *j)
{
    const unsigned char *const header = j->header;
    int error = read_at(j->fd, 0, j->header, JOURNAL_HEADER_SIZE);
    if (error > 0) return fail_journal(j, error, "cannot read it");
    j->state = JOURNAL_DAMAGED;
    if (error || memcmp(header, journal_magic, sizeof journal_magic) != 0 ||
        lmc_crc32c(0, header, 508) != container_number(header + 508, 4))
        return CODE_OK;
    if (container_number(header + 8, 4) != 1)
        return fail(CODE_ERROR, j->path,
                    "was written by a newer version of lmc apply: finish with that");
    if (container_number(header + 12, 4) > JOURNAL_NAME_ROOM ||
        container_number(header + 24, 8) > container_number(header + 16, 8) ||
        container_number(header + 32, 8) < SLOT_HEADER_SIZE ||
        container_number(header + 32, 8) > (uint64_t)1 << 48)
        return CODE_OK;
    j->found_name = copy_string((const char *)header + JOURNAL_NAME_AT,
                                (size_t)container_number(header + 12, 4));
    j->state = JOURNAL_OTHER;
    return CODE_OK;
}

int open_journal(struct journal *j, char *path, int dir)
{
    struct stat st;
    memset(j, 0, sizeof *j);
    j->path = path;
    j->dir = dir;
    j->window.data = (unsigned char *)resize(NULL, WINDOW_SIZE, 1);
    j->piece = (unsigned char *)resize(NULL, PATCH_SIZE, 1);
    j->fd = open_file(dir, base_name(path), O_RDWR | O_NOFOLLOW);
    if (j->fd < 0) return errno == ENOENT ? CODE_OK : fail_journal(j, errno, "cannot open it");
    if (fstat(j->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return fail(
            CODE_ERROR, j->path,
            "is in the way: it should be the side file of lmc apply, but is not a file; remove it");
    return read_journal_header(j);
}

/* Reads slot k. *number: 0 if the slot is not valid. Returns 0 or errno. */
static int read_slot(const struct journal *j, unsigned k, uint64_t file_size, uint64_t total,
                     size_t n_files, struct patches *patches, uint64_t *number, uint64_t *n_done)
{
    unsigned char head[SLOT_HEADER_SIZE];
    uint64_t at = slot_at(j, k), size;
    int error = read_at(j->fd, at, head, sizeof head);
    *number = 0;
    if (error) return error > 0 ? error : 0;
    size = container_number(head + 16, 8);
    *n_done = container_number(head + 8, 8);
    if (lmc_crc32c(0, head, 28) != container_number(head + 28, 4) ||
        (container_number(head, 8) & 1) != k || *n_done > total ||
        size > j->capacity - SLOT_HEADER_SIZE || size > file_size || size > SIZE_MAX)
        return 0;
    patches->data = (unsigned char *)resize(patches->data, (size_t)size, 1);
    patches->size = patches->cap = (size_t)size;
    error = read_at(j->fd, at + SLOT_HEADER_SIZE, patches->data, patches->size);
    if (!error && lmc_crc32c(0, patches->data, patches->size) == container_number(head + 24, 4) &&
        are_patches(patches, j->target, n_files, *n_done))
        *number = container_number(head, 8);
    return error > 0 ? error : 0;
}

int recover_journal(struct journal *j, size_t n_files)
{
    struct stat st;
    uint64_t total = container_number(j->header + 16, 8);
    j->is_found = 1;
    j->capacity = container_number(j->header + 32, 8);
    j->n_recorded = j->n_handed = container_number(j->header + 24, 8);
    if (fstat(j->fd, &st) != 0) return fail_journal(j, errno, "cannot access it");
    for (unsigned k = 0; k < 2; k++) {
        struct patches found = {0};
        uint64_t number, n_done;
        int error = read_slot(j, k, (uint64_t)st.st_size, total, n_files, &found, &number, &n_done);
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
