/* The command's readers of PyTorch's files: ZIP, pickle, torch.save, .distcp with and without its
 * .metadata. Input: what its last byte says:
 *
 *     0   a file of torch.save()
 *     1   the pickle in such a file, in an archive that is made here
 *     2   a .distcp file without .metadata
 *     3   its .metadata, before it, of as many bytes as two bytes at the end say
 *
 * What they hand out must be what a writer of snapshots accepts. They read nothing that is not
 * there, and what they read and allocate is in proportion to the input. */
#include "fuzz.h"

#include "containers.h"

#define MOST_INPUT ((size_t)1 << 18)

/* What is read through a view. */
struct memory {
    const uint8_t *data;
    size_t size;
    uint64_t n_read;
};

static int read_memory(void *user, uint64_t offset, void *dst, size_t size)
{
    struct memory *m = (struct memory *)user;
    FUZZ_CHECK(size <= m->size && offset <= m->size - size);
    if (size) memcpy(dst, m->data + offset, size);
    m->n_read += size;
    return 0;
}

static void parse(const uint8_t *data, size_t size, const char *name, const struct dcp *d)
{
    static fuzz_guard guard;
    struct container c;
    struct memory m;
    struct view v;
    enum container_result result;
    fuzz_reserve(&guard, MOST_INPUT + 4096);
    m.data = fuzz_copy(&guard, data, size, 0);
    m.size = size;
    m.n_read = 0;
    v.size = v.weight = size;
    v.read = read_memory;
    v.user = &m;
    result = container_parse_view(&c, &v, name, d);
    FUZZ_CHECK(result != CONTAINER_MEMORY && result != CONTAINER_MORE);
    /* no part of an archive is read more than four times */
    FUZZ_CHECK(m.n_read <= 4 * (uint64_t)size + (d ? d->n * 128 : 128));
    if (result == CONTAINER_BAD) FUZZ_CHECK(c.error[0]);
    if (result != CONTAINER_OK) return;
    check_container(&c, size);
    container_free(&c);
}

/* -- an archive around a pickle -- */

struct archive {
    uint8_t *data;
    size_t size;
    uint8_t directory[4096];
    size_t directory_size, n;
};

static void put_le(uint8_t *dst, uint64_t x, unsigned size)
{
    for (unsigned i = 0; i < size; i++) dst[i] = (uint8_t)(x >> 8 * i);
}

static void add_member(struct archive *a, const char *name, const uint8_t *data, size_t size)
{
    const size_t name_size = strlen(name), local = a->size;
    uint8_t *header = a->data + local, *entry = a->directory + a->directory_size;
    const size_t padding = (64 - (local + 30 + name_size) % 64) % 64;
    memset(header, 0, 30);
    memcpy(header, "PK\3\4", 4);
    put_le(header + 26, name_size, 2);
    put_le(header + 28, padding, 2);
    memcpy(header + 30, name, name_size);
    memset(header + 30 + name_size, 'Z', padding);
    a->size += 30 + name_size + padding;
    if (data) memcpy(a->data + a->size, data, size);
    else memset(a->data + a->size, 7, size);
    a->size += size;
    memset(entry, 0, 46);
    memcpy(entry, "PK\1\2", 4);
    put_le(entry + 20, size, 4);
    put_le(entry + 24, size, 4);
    put_le(entry + 28, name_size, 2);
    put_le(entry + 42, local, 4);
    memcpy(entry + 46, name, name_size);
    a->directory_size += 46 + name_size;
    a->n++;
}

static void end_archive(struct archive *a)
{
    const size_t at = a->size;
    uint8_t *end;
    memcpy(a->data + a->size, a->directory, a->directory_size);
    a->size += a->directory_size;
    end = a->data + a->size;
    memset(end, 0, 22);
    memcpy(end, "PK\5\6", 4);
    put_le(end + 8, a->n, 2);
    put_le(end + 10, a->n, 2);
    put_le(end + 12, a->directory_size, 4);
    put_le(end + 16, at, 4);
    a->size += 22;
}

/* Storages of the sizes that seeds have. */
static void parse_pickle(const uint8_t *data, size_t size)
{
    static uint8_t room[MOST_INPUT];
    static struct archive a;
    static const uint16_t sizes[] = {48, 256, 24, 0, 128, 8};
    char name[32];
    if (size > MOST_INPUT - 8192) return;
    memset(&a, 0, sizeof a);
    a.data = room;
    add_member(&a, "a/data.pkl", data, size);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(name, sizeof name, "a/data/%u", i);
        add_member(&a, name, NULL, sizes[i]);
    }
    end_archive(&a);
    parse(a.data, a.size, "x.pt", NULL);
}

static void parse_with_metadata(const uint8_t *data, size_t size, size_t metadata_size)
{
    struct dcp d;
    const enum container_result result = dcp_read(&d, data, metadata_size, metadata_size);
    FUZZ_CHECK(result == CONTAINER_OK || (result == CONTAINER_BAD && d.error[0]));
    if (result != CONTAINER_OK) return;
    parse(data + metadata_size, size - metadata_size, "__0_0.distcp", &d);
    dcp_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    const unsigned way = (unsigned)fuzz_draw(&in, 1) & 3;
    if (in.size > MOST_INPUT) return 0;
    FUZZ_BEGIN();
    if (way == 0) parse(in.data, in.size, "x.pt", NULL);
    if (way == 1) parse_pickle(in.data, in.size);
    if (way == 2) parse(in.data, in.size, "__0_0.distcp", NULL);
    if (way == 3) {
        const size_t metadata_size = (size_t)fuzz_draw(&in, 2);
        parse_with_metadata(in.data, in.size, metadata_size < in.size ? metadata_size : in.size);
    }
    FUZZ_END();
    return 0;
}
