/* tar_stream.c - a directory as a stream for tar (restorer.h, which says how it is made)
 * SPDX-License-Identifier: MIT */
#include "restorer.h"

#include "../sys/attributes.h"

#define RECORD ((size_t)512)
#define MAX_OCTAL_SIZE (((uint64_t)1 << 33) - 1) /* 11 octal digits */

/* The fields of the old header (ustar). */
enum {
    NAME_AT = 0,
    MODE_AT = 100,
    UID_AT = 108,
    GID_AT = 116,
    SIZE_AT = 124,
    MTIME_AT = 136,
    SUM_AT = 148,
    TYPE_AT = 156,
    TARGET_AT = 157,
    MAGIC_AT = 257,
    NAME_SIZE = 100
};

struct tar_entry {
    char type; /* '0' file, '5' directory, '2' link, 'x' extended header */
    const char *path, *target;
    uint64_t size;
    uint32_t mode;
    int64_t mtime;
};

static void put_octal(char *field, unsigned digits, uint64_t value)
{
    for (; digits && digits--; value >>= 3) field[digits] = (char)('0' + (value & 7));
}

/* Writes the old header. Cuts values that are too long: the extended header has them whole. */
static int write_record(struct output *out, const struct tar_entry *e)
{
    char record[512];
    unsigned sum = 0;
    memset(record, 0, sizeof record);
    memcpy(record + NAME_AT, e->path, strnlen(e->path, NAME_SIZE));
    put_octal(record + MODE_AT, 7, e->mode);
    put_octal(record + UID_AT, 7, 0);
    put_octal(record + GID_AT, 7, 0);
    put_octal(record + SIZE_AT, 11, e->size <= MAX_OCTAL_SIZE ? e->size : 0);
    put_octal(record + MTIME_AT, 11,
              e->mtime >= 0 && (uint64_t)e->mtime <= MAX_OCTAL_SIZE ? (uint64_t)e->mtime : 0);
    record[TYPE_AT] = e->type;
    if (e->target) memcpy(record + TARGET_AT, e->target, strnlen(e->target, NAME_SIZE));
    memcpy(record + MAGIC_AT, "ustar\00000", 8);
    memset(record + SUM_AT, ' ', 8);
    for (size_t i = 0; i < sizeof record; i++) sum += (unsigned char)record[i];
    put_octal(record + SUM_AT, 6, sum);
    return write_output(out, record, sizeof record);
}

static int fill_record(struct output *out, uint64_t size)
{
    static const char zeros[512];
    const size_t rest = (size_t)(size % RECORD);
    return rest ? write_output(out, zeros, RECORD - rest) : 0;
}

static size_t count_digits(size_t n)
{
    size_t digits = 1;
    while (n /= 10) digits++;
    return digits;
}

/* "SIZE KEY=VALUE\n", where SIZE counts its own digits, too. */
static void add_line(char **text, size_t *size, const char *key, const char *value)
{
    const size_t rest = strlen(key) + strlen(value) + 3;
    size_t total = rest + count_digits(rest);
    total = rest + count_digits(total); /* its own digits may add one more */
    *text = (char *)resize(*text, *size + total + 1, 1);
    snprintf(*text + *size, total + 1, "%llu %s=%s\n", (unsigned long long)total, key, value);
    *size += total;
}

static int write_extended(struct output *out, const struct tar_entry *e, uint32_t nanoseconds)
{
    char *text = NULL, number[48];
    size_t size = 0;
    if (strlen(e->path) > NAME_SIZE) add_line(&text, &size, "path", e->path);
    if (e->target && strlen(e->target) > NAME_SIZE) add_line(&text, &size, "linkpath", e->target);
    if (e->size > MAX_OCTAL_SIZE) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)e->size);
        add_line(&text, &size, "size", number);
    }
    if (nanoseconds || e->mtime < 0 || (uint64_t)e->mtime > MAX_OCTAL_SIZE) {
        const int borrows = e->mtime < 0 && nanoseconds; /* -1.25 is second -2 and 750 000 000 */
        const int64_t whole = e->mtime + borrows;
        const uint32_t part = borrows ? 1000000000u - nanoseconds : nanoseconds;
        snprintf(number, sizeof number, "%s%lld.%09u", borrows && whole == 0 ? "-" : "",
                 (long long)whole, (unsigned)part);
        add_line(&text, &size, "mtime", number);
    }
    if (!text) return 0;
    const struct tar_entry x = {'x', "PaxHeaders/x", NULL, size, 0644, 0};
    int error = write_record(out, &x);
    if (!error) error = write_output(out, text, size);
    if (!error) error = fill_record(out, size);
    free(text);
    return error;
}

int tar_begin(struct output *out, const lmc_file *file)
{
    const int is_directory = file->kind == LMC_FILE_DIRECTORY;
    const char *const name = *file->path ? file->path : is_directory ? "." : "file";
    char *path = format_text("%s%s", name, is_directory ? "/" : "");
    struct tar_entry e = {'0', path, NULL, file->size, 0644, file->has_mtime ? file->mtime_s : 0};
    if (is_directory) {
        e.type = '5';
        e.size = 0;
        e.mode = 0755;
    }
    if (file->has_mode) e.mode = kept_mode((mode_t)file->mode, is_directory);
    int error = write_extended(out, &e, file->has_mtime ? file->mtime_ns : 0);
    if (!error) error = write_record(out, &e);
    free(path);
    return error;
}

int tar_end(struct output *out, const lmc_file *file)
{
    return file->kind == LMC_FILE_DIRECTORY ? 0 : fill_record(out, file->size);
}

int tar_link(struct output *out, enum link_type type, const char *path, const char *target)
{
    const struct tar_entry e = {type == LINK_HARD ? '1' : '2', path, target, 0, 0777, 0};
    int error = write_extended(out, &e, 0);
    return error ? error : write_record(out, &e);
}

int tar_finish(struct output *out)
{
    static const char zeros[1024];
    return write_output(out, zeros, sizeof zeros);
}
