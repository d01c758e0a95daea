/* The command's readers of PyTorch's files: ZIP, pickle, torch.save, .distcp with and without its
 * .metadata. The input's last byte says what it is:
 *
 *     0   a file of torch.save()
 *     1   the pickle of such a file; the archive is made here
 *     2   a .distcp file without .metadata
 *     3   a .distcp file behind its .metadata, whose size is in two bytes at the end
 *     4   decisions by which a file of torch.save() is made (make_torch.h)
 *     5   decisions for a .distcp file without .metadata
 *     6   decisions for one with .metadata
 *     7   decisions as for 4, and how many reads of the file succeed
 *
 * A writer of snapshots must accept the results. Readers read only within the file, and what they
 * read and allocate is proportional to the input. */
#include "fuzz.h"

#include "containers.h"
#include "make_torch.h"

#define MOST_INPUT ((size_t)1 << 18)

/* The file behind a view. */
struct memory {
    const uint8_t *data;
    size_t size;
    uint64_t n_read;
};

/* So many reads succeed, then they fail; below 0: all succeed. */
static int reads_left;

static int read_memory(void *user, uint64_t offset, void *dst, size_t size)
{
    struct memory *m = (struct memory *)user;
    FUZZ_CHECK(size <= m->size && offset <= m->size - size);
    if (reads_left == 0) return -1;
    if (reads_left > 0) reads_left--;
    if (size) memcpy(dst, m->data + offset, size);
    m->n_read += size;
    return 0;
}

/* The file in a snapshot that lists the tensors found, some of them with changes. */
static void find_views(struct container *found, const struct view *v, const char *name,
                       const struct dcp *d)
{
    struct container c;
    lmc_file f;
    memset(&f, 0, sizeof f);
    f.path = name;
    f.size = v->size;
    f.tensors = found->tensors;
    for (unsigned i = 0; i < 3; i++) {
        enum container_result result;
        f.n_tensors = i < 2 ? found->n_tensors : 0;
        if (i == 1 && f.n_tensors) found->tensors[f.n_tensors / 2].offset++;
        result = container_find_views(&c, v, &f, d);
        FUZZ_CHECK(result != CONTAINER_MEMORY && result != CONTAINER_MORE);
        if (result == CONTAINER_BAD) FUZZ_CHECK(c.error[0]);
        if (result != CONTAINER_OK) continue;
        FUZZ_CHECK(c.n_tensors == 0);
        for (size_t k = 0; k < c.n_views; k++) check_view(&c.views[k], v->size);
        container_free(&c);
    }
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
    find_views(&c, &v, name, d);
    find_views(&c, &v, "x", d); /* as if its name were lost */
    container_free(&c);
}

static uint8_t room[MOST_INPUT], scratch[2 * MOST_INPUT];

static void begin_making(struct maker *m, const fuzz_input *in)
{
    memset(m, 0, sizeof *m);
    m->data = room;
    m->cap = sizeof room;
    if (in) m->in = *in;
}

/* Storages have the sizes of those in seeds. */
static void parse_pickle(const uint8_t *data, size_t size)
{
    static const uint16_t sizes[] = {48, 256, 24, 0, 128, 8};
    struct make_archive a;
    struct maker m;
    if (size > MOST_INPUT - 8192) return;
    begin_making(&m, NULL);
    memset(&a, 0, sizeof a);
    a.m = &m;
    a.prefix = "a/";
    a.directory.data = scratch;
    a.directory.cap = MOST_INPUT;
    make_member(&a, "data.pkl", 8, data, size, 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char name[] = {'d', 'a', 't', 'a', '/', (char)('0' + i)};
        make_member(&a, name, sizeof name, NULL, sizes[i], 0);
    }
    make_end(&a);
    parse(m.data, m.size, "x.pt", NULL);
}

/* Reads .metadata; 0: it says nothing. d must be freed. */
static int read_metadata(struct dcp *d, const uint8_t *data, size_t size)
{
    const enum container_result result = dcp_read(d, data, size, size);
    FUZZ_CHECK(result == CONTAINER_OK || (result == CONTAINER_BAD && d->error[0]));
    return result == CONTAINER_OK;
}

static void parse_with_metadata(const uint8_t *data, size_t size, size_t metadata_size)
{
    struct dcp d;
    if (!read_metadata(&d, data, metadata_size)) return;
    parse(data + metadata_size, size - metadata_size, "__0_0.distcp", &d);
    dcp_free(&d);
}

/* Makes archives one behind another, and then their .metadata, which needs their places. */
static void parse_made_items(struct maker *m, int has_metadata)
{
    struct make_item items[8];
    const size_t n = make_one_of(m, sizeof items / sizeof *items);
    struct dcp d;
    size_t size;
    for (size_t i = 0; i < n; i++) {
        items[i].at = m->size;
        make_archive(m, scratch);
        items[i].size = m->size - items[i].at;
    }
    size = m->size;
    if (!has_metadata) {
        parse(m->data, size, "__0_0.distcp", NULL);
        return;
    }
    make_metadata(m, items, n);
    if (read_metadata(&d, m->data + size, m->size - size)) {
        parse(m->data, size, "__0_0.distcp", &d);
        dcp_free(&d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    const unsigned way = (unsigned)fuzz_draw(&in, 1) & 7;
    struct maker m;
    if (in.size > MOST_INPUT) return 0;
    begin_making(&m, &in);
    reads_left = way == 7 ? (int)make_choice(&m) % 16 : -1;
    FUZZ_BEGIN();
    if (way == 0) parse(in.data, in.size, "x.pt", NULL);
    if (way == 1) parse_pickle(in.data, in.size);
    if (way == 2) parse(in.data, in.size, "__0_0.distcp", NULL);
    if (way == 3) {
        const size_t metadata_size = (size_t)fuzz_draw(&in, 2);
        parse_with_metadata(in.data, in.size, metadata_size < in.size ? metadata_size : in.size);
    }
    if (way == 4 || way == 7) {
        make_archive(&m, scratch);
        make_damage(&m, 0);
        parse(m.data, m.size, "x.pt", NULL);
    }
    if (way == 5 || way == 6) parse_made_items(&m, way == 6);
    FUZZ_END();
    return 0;
}
