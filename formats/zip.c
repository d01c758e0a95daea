/* zip.c - the directory of a ZIP archive (torch.h)
 * SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"
#include "sorted.h"

/* Sizes of the fixed parts of records. */
enum { END_SIZE = 22, LOCATOR_SIZE = 20, END64_SIZE = 56, CENTRAL_SIZE = 46, LOCAL_SIZE = 30 };

/* An archive, from its end:
 *
 *     | members | central directory | ZIP64 end record | locator | end record |
 *     ^ start                       ^ start + offset + size of the directory  ^ end
 *
 * The last three records have fixed sizes, as there is no comment, so the end alone tells where
 * they are. They also tell where the archive begins, even if something else precedes it. */

static enum container_result read_view(struct zip *z, const struct view *v, uint64_t offset,
                                       void *dst, size_t size)
{
    return size > v->size || offset > v->size - size || v->read(v->user, offset, dst, size) != 0
               ? container_bad(z, "it cannot be read")
               : CONTAINER_OK;
}

/* The content of the end records. */
struct zip_end {
    uint64_t n, size, offset; /* of the central directory */
    uint64_t at;              /* start of the end records, which is the end of the directory */
};

static enum container_result read_zip64_end(struct zip *z, const struct view *v,
                                            const unsigned char *locator, struct zip_end *e,
                                            uint64_t end)
{
    unsigned char record[END64_SIZE];
    if (end < END_SIZE + LOCATOR_SIZE + END64_SIZE)
        return container_bad(z, "its ZIP64 end is cut off");
    e->at = end - END_SIZE - LOCATOR_SIZE - END64_SIZE;
    TRY(read_view(z, v, e->at, record, sizeof record));
    if (memcmp(record, "PK\6\6", 4) != 0 || container_number(record + 4, 8) != END64_SIZE - 12 ||
        container_number(record + 16, 8) != 0 ||
        container_number(record + 24, 8) != container_number(record + 32, 8))
        return container_bad(z, "its ZIP64 end record is not understood");
    e->n = container_number(record + 32, 8);
    e->size = container_number(record + 40, 8);
    e->offset = container_number(record + 48, 8);
    if (e->size > e->at || e->offset > e->at - e->size ||
        container_number(locator + 8, 8) != e->offset + e->size)
        return container_bad(z, "its ZIP64 locator points elsewhere");
    return CONTAINER_OK;
}

static enum container_result zip_other(struct zip *z)
{
    (void)container_bad(
        z, "it has no directory at its end, so it was cut short, or something follows it");
    return CONTAINER_OTHER;
}

/* Reads the end records, and finds the start of the archive. */
static enum container_result read_end(struct zip *z, const struct view *v, uint64_t from,
                                      uint64_t end, struct zip_end *e)
{
    unsigned char bytes[LOCATOR_SIZE + END_SIZE];
    const unsigned char *const record = bytes + LOCATOR_SIZE;
    if (end < sizeof bytes) return zip_other(z);
    TRY(read_view(z, v, end - sizeof bytes, bytes, sizeof bytes));
    if (memcmp(record, "PK\5\6", 4) != 0 || container_number(record + 20, 2) != 0)
        return zip_other(z);
    if (memcmp(bytes, "PK\6\7", 4) == 0) {
        TRY(read_zip64_end(z, v, bytes, e, end));
    } else {
        if (container_number(record + 4, 4) != 0 ||
            container_number(record + 8, 2) != container_number(record + 10, 2))
            return container_bad(z, "it is spread over several disks");
        e->n = container_number(record + 10, 2);
        e->size = container_number(record + 12, 4);
        e->offset = container_number(record + 16, 4);
        e->at = end - END_SIZE;
    }
    if (e->size > e->at || e->offset > e->at - e->size || e->at - e->size - e->offset < from)
        return container_bad(z, "its central directory lies outside of it");
    if (e->size > CONTAINER_MAX_HEADER || e->n > e->size / CENTRAL_SIZE)
        return container_bad(z, "its central directory has an impossible size");
    if (e->size > container_budget(v))
        return container_bad(z, "its central directory is too large for the size of the file");
    z->directory = e->at - e->size;
    z->start = z->directory - e->offset;
    return CONTAINER_OK;
}

/* Reads the ZIP64 extra field. It has, in this order, the fields that are all ones in the entry. */
static int read_zip64_extra(const unsigned char *extra, size_t size, uint64_t *fields[3])
{
    while (size >= 4) {
        const size_t length = (size_t)container_number(extra + 2, 2);
        if (length > size - 4) return 0;
        if (container_number(extra, 2) == 1) {
            size_t at = 4;
            for (unsigned i = 0; i < 3; i++)
                if (*fields[i] == 0xFFFFFFFFu) {
                    if (at + 8 > length + 4) return 0;
                    *fields[i] = container_number(extra + at, 8);
                    at += 8;
                }
            return 1;
        }
        extra += 4 + length;
        size -= 4 + length;
    }
    return 1;
}

enum container_result zip_locate(struct zip *z, const struct view *v, struct zip_member *m)
{
    const size_t name_size = strlen(m->name), size = LOCAL_SIZE + name_size;
    const uint64_t limit = z->directory; /* members must end before it */
    if (m->offset) return CONTAINER_OK;
    if (size > limit - m->local) return container_bad(z, "a member lies outside of the archive");
    unsigned char *const bytes = (unsigned char *)malloc(size);
    if (!bytes) return CONTAINER_MEMORY;
    enum container_result result = read_view(z, v, m->local, bytes, size);
    if (result == CONTAINER_OK &&
        (memcmp(bytes, "PK\3\4", 4) != 0 || container_number(bytes + 26, 2) != name_size ||
         memcmp(bytes + LOCAL_SIZE, m->name, name_size) != 0))
        result = container_bad(z, "a local header is not what the central directory says");
    if (result == CONTAINER_OK) {
        m->offset = m->local + size + container_number(bytes + 28, 2);
        if (m->offset > limit || m->size > limit - m->offset)
            result = container_bad(z, "a member lies outside of the archive");
    }
    free(bytes);
    return result;
}

/* Reads an entry of the central directory. *name: the place for its name; moves behind the name. */
static enum container_result read_entry(struct zip *z, const unsigned char **at,
                                        const unsigned char *end, char **name)
{
    struct zip_member *const m = &z->members[z->n];
    const unsigned char *const p = *at;
    uint64_t packed, size, local, *fields[3];
    if (end - p < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0)
        return container_bad(z, "its central directory is broken");
    size_t name_size = (size_t)container_number(p + 28, 2);
    size_t extra_size = (size_t)container_number(p + 30, 2);
    if ((size_t)(end - p) - CENTRAL_SIZE <
        name_size + extra_size + (size_t)container_number(p + 32, 2))
        return container_bad(z, "its central directory is broken");
    *at = p + CENTRAL_SIZE + name_size + extra_size + (size_t)container_number(p + 32, 2);
    packed = container_number(p + 20, 4);
    size = container_number(p + 24, 4);
    local = container_number(p + 42, 4);
    fields[0] = &size;
    fields[1] = &packed;
    fields[2] = &local;
    if (!read_zip64_extra(p + CENTRAL_SIZE + name_size, extra_size, fields))
        return container_bad(z, "its central directory is broken");
    if (memchr(p + CENTRAL_SIZE, 0, name_size))
        return container_bad(z, "a member has a zero byte in its name");
    memcpy(*name, p + CENTRAL_SIZE, name_size);
    (*name)[name_size] = 0;
    m->name = *name;
    *name += name_size + 1;
    m->size = packed;
    m->is_stored =
        container_number(p + 10, 2) == 0 && (container_number(p + 8, 2) & 1) == 0 && packed == size;
    z->n++;
    if (local > z->directory - z->start)
        return container_bad(z, "a member lies outside of the archive");
    m->local = z->start + local;
    m->offset = 0;
    return CONTAINER_OK;
}

/* bytes: the central directory. */
static enum container_result read_directory(struct zip *z, const struct zip_end *e,
                                            const unsigned char *bytes)
{
    const unsigned char *at = bytes, *const end = bytes + (size_t)e->size;
    char *name;
    z->members = (struct zip_member *)malloc(((size_t)e->n + 1) * sizeof *z->members);
    /* enough for all names: the entry of each is longer than the name and its zero byte */
    name = z->names = (char *)malloc((size_t)e->size + 1);
    if (!z->members || !z->names) return CONTAINER_MEMORY;
    for (uint64_t i = 0; i < e->n; i++) { TRY(read_entry(z, &at, end, &name)); }
    if (at != end) return container_bad(z, "its central directory has a wrong size");
    qsort(z->members, z->n, sizeof *z->members, compare_texts);
    for (size_t i = 1; i < z->n; i++)
        if (strcmp(z->members[i - 1].name, z->members[i].name) == 0)
            return container_bad(z, "two members have the same name");
    return CONTAINER_OK;
}

enum container_result zip_read(struct zip *z, const struct view *v, uint64_t from, uint64_t end)
{
    struct zip_end e = {0};
    memset(z, 0, sizeof *z);
    TRY(read_end(z, v, from, end, &e));
    unsigned char *bytes = (unsigned char *)malloc((size_t)e.size + 1);
    if (!bytes) return CONTAINER_MEMORY;
    enum container_result result = read_view(z, v, e.at - e.size, bytes, (size_t)e.size);
    if (result == CONTAINER_OK) result = read_directory(z, &e, bytes);
    free(bytes);
    if (result != CONTAINER_OK) zip_free(z);
    return result;
}

struct zip_member *zip_find(const struct zip *z, const char *name)
{
    return z->n ? (struct zip_member *)bsearch(&name, z->members, z->n, sizeof *z->members,
                                               compare_texts)
                : NULL;
}

void zip_free(struct zip *z)
{
    free(z->members);
    free(z->names);
    z->members = NULL;
    z->names = NULL;
    z->n = 0;
}
