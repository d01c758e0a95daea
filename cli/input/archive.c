/* SPDX-License-Identifier: MIT */
#include "archive.h"

#include "../../formats/torch.h"

#include "../../formats/container_check.h"
#include "options.h"
#include "source.h"
#include "../sys/io.h"
#include "../sys/spot.h"

enum lmc_status read_archive(void *user, uint64_t offset, void *dst, size_t size)
{
    struct archive *a = (struct archive *)user;
    a->n_reads++;
    a->n_bytes += size;
    a->error = read_at(a->fd, a->start + offset, dst, size);
    return a->error ? LMC_ERR_READ : LMC_OK;
}

/* Whether most of the 8 bytes are those of the magic. */
static int is_nearly(const uint8_t *bytes)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 8; i++) n += bytes[i] == (uint8_t)LMC_MAGIC[i];
    return n >= 5;
}

/* Reports what is wrong with a snapshot, or that a transfer in text mode has changed it. */
static int fail_damaged(const char *name, enum lmc_status status, const char *where)
{
    lmc_snapshot_info info;
    uint8_t bytes[8];
    struct stat st;
    int fd = stat(name, &st) == 0 && S_ISREG(st.st_mode) ? open_file(AT_FDCWD, name, O_RDONLY) : -1;
    const int is_read = fd >= 0 && read_at(fd, 0, bytes, sizeof bytes) == 0;
    if (fd >= 0) close(fd);
    if (fd < 0) return fail(CODE_CORRUPT, name, "%s%s", lmc_status_text(status), where);
    if (st.st_size == 0) return fail(CODE_CORRUPT, name, "is empty");
    if (is_read && memcmp(bytes, LMC_MAGIC, sizeof bytes) != 0)
        return fail(CODE_CORRUPT, name, "%s%s", lmc_status_text(LMC_ERR_NOT_LMC),
                    memcmp(bytes, LMC_MAGIC, 4) == 0
                        ? ", or its line ends were changed when it was sent: send it as binary data"
                    : is_nearly(bytes) || (probe_snapshot(name, &info), info.index_size)
                        ? ", or its first bytes are damaged: 'lmc salvage' recovers it then"
                        : "");
    if (!is_read || status == LMC_ERR_NOT_LMC)
        return fail(CODE_CORRUPT, name, "%s", lmc_status_text(status));
    uint64_t end = find_snapshot_end(name);
    if (end && end < (uint64_t)st.st_size && starts_snapshot_at(name, end))
        return fail(CODE_CORRUPT, name,
                    "another snapshot follows the end of the first: split the file at byte %llu",
                    (unsigned long long)end);
    if (end && end < (uint64_t)st.st_size)
        return fail(CODE_CORRUPT, name,
                    "%llu byte%s the end of the snapshot, which is at %llu: cut them off",
                    (unsigned long long)((uint64_t)st.st_size - end),
                    (uint64_t)st.st_size - end == 1 ? " follows" : "s follow",
                    (unsigned long long)end);
    return fail(CODE_CORRUPT, name, "%s%s; 'lmc salvage' recovers what is intact",
                lmc_status_text(status), where);
}

int fail_snapshot_at(const char *name, const uint8_t *header, enum lmc_status status,
                     const char *where)
{
    lmc_snapshot_info info;
    (void)!lmc_header_parse(header, LMC_HEADER_SIZE, &info);
    if (status == LMC_ERR_VERSION && info.format_major > LMC_FORMAT_MAJOR)
        return fail(CODE_ERROR, name, "was written by a newer lmc, in format %u.%u: update lmc",
                    info.format_major, info.format_minor);
    if (status == LMC_ERR_UNSUPPORTED)
        for (unsigned bit = 0; bit < 64; bit++)
            if (!name_feature(bit) && info.features >> bit & 1)
                return fail(CODE_ERROR, name,
                            "was written by a newer lmc and uses feature bit %u, which this one "
                            "does not know: update lmc",
                            bit);
    if (status == LMC_ERR_NOT_LMC && container_is_lfs_pointer(header, LMC_HEADER_SIZE))
        return fail(CODE_CORRUPT, name, LFS_POINTER_SAYS);
    if (status == LMC_ERR_NOT_LMC || status == LMC_ERR_TRUNCATED || status == LMC_ERR_CORRUPT ||
        status == LMC_ERR_CHECKSUM)
        return fail_damaged(name, status, where);
    return fail_status(name, status);
}

const char *name_feature(unsigned bit)
{
    static const char *const names[] = {"Base", "Own", "Quantised", "Zeros", "Matrix", "Codes"};
    return bit < sizeof names / sizeof *names ? names[bit] : NULL;
}

int fail_archive(const struct archive *a, enum lmc_status status)
{
    return fail_archive_at(a, status, "");
}

int fail_work(const struct archive *a)
{
    const int may_be_table = archive_size(a) >> 30 != 0; /* in smaller files it takes less */
    return fail(CODE_ERROR, a->name,
                "exceeds a limit of work: one block after another is decoded for a few bytes%s. If "
                "you trust this file, restore it by 'lmc -d' to a file, and use that, also as "
                "--base",
                may_be_table ? ", or its table of blocks takes more than 1 GiB of memory" : "");
}

int fail_foreign(const char *path, const struct options *o)
{
    struct archive a;
    int code = open_archive_file(&a, path, o);
    if (code == CODE_OK) code = fail_archive(&a, LMC_ERR_NOT_LMC);
    close_archive(&a);
    return code;
}

int fail_archive_at(const struct archive *a, enum lmc_status status, const char *where)
{
    if (status == LMC_ERR_READ && a->error == 0) /* reading a base failed, which was reported */
        return a->o->bases->code;
    if (status == LMC_ERR_READ && a->error > 0)
        return fail_errno(a->name, a->error, "cannot read it");
    return fail_snapshot_at(a->name, a->header, status == LMC_ERR_READ ? LMC_ERR_TRUNCATED : status,
                            where);
}

void close_archive(struct archive *a)
{
    dcp_forget(&a->metadata);
    lmc_reader_free(a->reader);
    lmc_salvage_free(a->beginning);
    if (a->fd > STDIN_FILENO) close(a->fd);
}

uint64_t archive_size(const struct archive *a) { return (uint64_t)a->st.st_size - a->start; }

int open_archive_file(struct archive *a, const char *path, const struct options *o)
{
    memset(a, 0, sizeof *a);
    a->o = o;
    a->name = is_dash(path) ? "(standard input)" : path;
    /* does not wait for a FIFO, which is refused below */
    a->fd = is_dash(path) ? STDIN_FILENO : open_held(path, 0);
    if (a->fd < 0 || fstat(a->fd, &a->st) != 0) return fail_errno(a->name, errno, "cannot open it");
    if (S_ISDIR(a->st.st_mode)) return fail(CODE_ERROR, a->name, "is a directory; name a file");
    if (!S_ISREG(a->st.st_mode))
        return fail(CODE_ERROR, a->name,
                    "is not a regular file, and its index is at the end; save it to a file first");
    off_t at = lseek(a->fd, 0, SEEK_CUR);
    if (at < 0) return fail_errno(a->name, errno, "cannot access it");
    a->start = at <= a->st.st_size ? (uint64_t)at : (uint64_t)a->st.st_size;
    if (read_at(a->fd, a->start, a->header, sizeof a->header) == 0 &&
        parse_header(a->header, sizeof a->header, a->wanted, &a->is_delta) != 0)
        a->is_delta = 0; /* its errors are reported when it is read */
    return CODE_OK;
}

int open_archive_of_source(struct archive *a, struct source *s, const struct options *o)
{
    memset(a, 0, sizeof *a);
    a->o = o;
    a->name = s->name;
    a->fd = dup(s->fd);
    a->start = s->start;
    a->st = s->st;
    return a->fd < 0 ? fail_errno(a->name, errno, "cannot open it") : CODE_OK;
}

lmc_source source_of_archive(struct archive *a)
{
    const lmc_source source = {read_archive, a, archive_size(a), {0, 0}};
    return source;
}

/* The reader of an empty file, which is never read. */
static lmc_reader *lender_of(const struct options *o)
{
    struct bases *const all = o->bases;
    lmc_reader_options options = LMC_READER_OPTIONS();
    lmc_memory file = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&file);
    lmc_file empty = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    if (all->lender) return all->lender;
    empty.path = "";
    all->parallel = o->parallel;
    options.parallel = &all->parallel;
    enum lmc_status status = lmc_writer_open(&writer, &sink, NULL);
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &empty, LMC_AUTO);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    const lmc_source source = lmc_memory_source(&file);
    if (status == LMC_OK) status = lmc_reader_open(&all->lender, &source, &options);
    lmc_writer_free(writer);
    lmc_memory_free(&file);
    if (status != LMC_OK) check_memory(NULL);
    return all->lender;
}

lmc_reader_options options_of_reader(const struct archive *a, const lmc_base *base)
{
    lmc_reader_options options = LMC_READER_OPTIONS();
    options.parallel = &a->o->parallel;
    options.base = base;
    options.lender = a->lender ? a->lender : lender_of(a->o);
    return options;
}

enum lmc_status try_archive_index(struct archive *a, const lmc_base *base)
{
    const lmc_source source = source_of_archive(a);
    const lmc_reader_options options = options_of_reader(a, base);
    lmc_reader_free(a->reader);
    a->reader = NULL;
    return lmc_reader_open(&a->reader, &source, &options);
}

int read_archive_index(struct archive *a, const lmc_base *base)
{
    const enum lmc_status status = try_archive_index(a, base);
    uint8_t header[LMC_HEADER_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    int is_delta, is_index = 0; /* the index is damaged, but not the header */
    if (status == LMC_OK) return CODE_OK;
    if (status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT)
        is_index = read_at(a->fd, a->start, header, sizeof header) == 0 &&
                   parse_header(header, sizeof header, fingerprint, &is_delta) == 0;
    return fail_archive_at(a, status, is_index ? INDEX_DAMAGED : "");
}

static lmc_stream stream_of_bytes(lmc_memory *memory, void *data, size_t size)
{
    memset(memory, 0, sizeof *memory);
    memory->data = (uint8_t *)data;
    memory->size = size;
    return lmc_memory_stream(memory);
}

enum lmc_status identify_alone(lmc_tensor *alone, const lmc_stream *bytes,
                               const lmc_parallel *parallel)
{
    lmc_file file = {0};
    file.path = "";
    file.size = alone->size;
    file.n_tensors = 1;
    file.tensors = alone;
    alone->offset = 0;
    return lmc_file_identify(&file, alone, bytes, parallel, NULL);
}

/* Checks that data, all bytes of f, agrees with the index. */
static enum lmc_status check_whole_file(const lmc_file *f, void *data)
{
    lmc_memory memory;
    const lmc_stream stream = stream_of_bytes(&memory, data, (size_t)f->size);
    lmc_tensor *tensors = (lmc_tensor *)resize(NULL, f->n_tensors + 1, sizeof *tensors);
    lmc_file found = *f;
    found.tensors = tensors;
    if (f->n_tensors) memcpy(tensors, f->tensors, f->n_tensors * sizeof *tensors);
    enum lmc_status status = lmc_file_identify(&found, tensors, &stream, NULL, NULL);
    int is_same = found.crc == f->crc &&
                  (f->n_tensors || same_fingerprint(found.fingerprint, f->fingerprint));
    for (size_t i = 0; i < f->n_tensors && is_same; i++)
        is_same = same_fingerprint(tensors[i].fingerprint, f->tensors[i].fingerprint);
    free(tensors);
    return status == LMC_OK && !is_same ? LMC_ERR_CORRUPT : status;
}

int open_archive_index(struct archive *a, const char *path, const struct options *o)
{
    const int code = open_archive_file(a, path, o);
    return code == CODE_OK ? read_archive_index(a, NULL) : code;
}

lmc_base files_of_archive(const struct archive *a)
{
    return a->plain ? *a->plain : lmc_reader_base(a->reader);
}

enum lmc_status read_counted(const struct archive *a, size_t file_number, uint64_t offset,
                             void *dst, size_t size)
{
    const lmc_base files = files_of_archive(a);
    const lmc_file *f = files.get_file(files.user, file_number);
    const enum lmc_status status = files.read(files.user, file_number, offset, dst, size);
    return status == LMC_OK && size && size == f->size && !a->plain ? check_whole_file(f, dst)
                                                                    : status;
}

void begin_to_count(const struct archive *a)
{
    uint8_t none; /* a read of the reader itself is not counted with those before and after it */
    (void)!lmc_reader_read_file(a->reader, 0, 0, &none, 0);
}

enum lmc_status read_counted_tensor(const struct archive *a, size_t file_number,
                                    const lmc_tensor *tensor, uint64_t offset, void *dst,
                                    size_t size)
{
    const lmc_base files = files_of_archive(a);
    enum lmc_status status =
        files.read(files.user, file_number, tensor->offset + offset, dst, size);
    if (status == LMC_OK && size && size == tensor->size && !a->plain) {
        lmc_memory memory;
        const lmc_stream stream = stream_of_bytes(&memory, dst, size);
        lmc_tensor found = *tensor;
        status = identify_alone(&found, &stream, &a->o->parallel);
        if (status == LMC_OK && !same_fingerprint(found.fingerprint, tensor->fingerprint))
            status = LMC_ERR_CORRUPT;
    }
    return status;
}

lmc_snapshot_info snapshot_info(const lmc_reader *reader)
{
    lmc_snapshot_info info;
    if (lmc_reader_get_info(reader, &info) != LMC_OK) memset(&info, 0, sizeof info);
    return info;
}

void snapshot_fingerprint(const lmc_reader *reader, uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    lmc_snapshot_info info = snapshot_info(reader);
    memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
}

uint64_t snapshot_encoded_size(lmc_reader *reader, size_t file_number, uint64_t offset,
                               uint64_t size)
{
    uint64_t encoded;
    return lmc_reader_encoded_size(reader, file_number, offset, size, &encoded) == LMC_OK ? encoded
                                                                                          : 0;
}

int parse_header(const void *src, size_t size, uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE],
                 int *is_delta)
{
    lmc_snapshot_info info;
    if (lmc_header_parse(src, size, &info) != LMC_OK) return -1;
    memcpy(base_fingerprint, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    *is_delta = info.has_base;
    return 0;
}

uint64_t total_of_files(const lmc_reader *reader)
{
    uint64_t total = 0;
    for (size_t i = 0; i < snapshot_info(reader).n_files; i++)
        total += lmc_reader_get_file(reader, i)->size;
    return total;
}

char *copy_metadata(const struct archive *a, const char *wanted)
{
    const void *value;
    size_t size;
    return lmc_reader_find_metadata(a->reader, wanted, &value, &size) == LMC_OK
               ? copy_string((const char *)value, size)
               : NULL;
}

const lmc_file *get_delta_file(void *user, size_t number)
{
    return lmc_reader_get_file(((struct archive *)user)->reader, number);
}

int is_tree_of_files(const lmc_reader *reader)
{
    const lmc_file *file = lmc_reader_get_file(reader, 0);
    return *file->path != 0 || file->kind == LMC_FILE_DIRECTORY;
}
