/* Work: a hostile file, or a base and a delta, is restored, read in every way and salvaged. The
 * cost is counted: decoded bytes of blocks, and bytes read. It must be at most 64 for each byte of
 * input and output, plus 64 * 2^22 for each snapshot (spec 9). The fuzzer gets the cost of each
 * way, so it searches for inputs that cost more. Input: the base's file, the delta's, 12 unused
 * bytes, and the size of the base's file (4 bytes; without a base 0).
 *
 *     FUZZ_WORK=1 build/fuzz/fast/fuzz_work ...    prints each time that a file costs more for its
 *                                                  size than all before */
#define FUZZ_SHAPE FUZZ_DELTA
#define FUZZ_PARAMETERS 16
#include "mutate.h"

#define MOST_INPUT ((size_t)1 << 17)
#define MOST_OUTPUT ((uint64_t)48 << 20)
#define FACTOR 64
#define FREE_WORK ((uint64_t)FACTOR << 22)
/* The search in a damaged file follows no references. It has its own limit (lmc__may_claim), which
 * its last block may exceed. */
#define SEARCH_WORK ((uint64_t)24 << 20)

enum {
    RESTORE,
    RESTORE_BY_READER,
    READ_FILES,
    READ_TENSORS,
    READ_PIECES,
    READ_MEMBERS,
    SALVAGE,
    WAYS
};

/* A bit for each eighth of a doubling, of the work and of the work for each byte: libFuzzer keeps
 * inputs with more of either than all before. */
#if defined(__linux__)
__attribute__((section("__libfuzzer_extra_counters")))
#endif
static uint8_t reached[WAYS][2][512];

static uint64_t bytes_read;

typedef struct bytes {
    const uint8_t *data;
    size_t size, at;
} bytes;

static enum lmc_status read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    const bytes *const b = (const bytes *)user;
    if (offset > b->size || size > b->size - offset) return LMC_ERR_READ;
    memcpy(dst, b->data + offset, size);
    bytes_read += size;
    return LMC_OK;
}

static enum lmc_status read_next(void *user, void *dst, size_t size, size_t *got)
{
    bytes *const b = (bytes *)user;
    *got = size < b->size - b->at ? size : b->size - b->at;
    memcpy(dst, b->data + b->at, *got);
    b->at += *got;
    bytes_read += *got;
    return LMC_OK;
}

/* Restored files, which are read back directly or by a reader. */
typedef struct target {
    uint8_t *data;
    size_t size, n_files;
    size_t starts[4096];
    lmc_base *again;
} target;

static enum lmc_status begin_file(void *user, const lmc_file *file, size_t number)
{
    target *const t = (target *)user;
    (void)file;
    if (number >= 4096) return LMC_ERR_WRITE;
    t->starts[number] = t->size;
    t->n_files = number + 1;
    return LMC_OK;
}

static enum lmc_status take_bytes(void *user, const void *data, size_t size)
{
    target *const t = (target *)user;
    if (size > MOST_OUTPUT - t->size) return LMC_ERR_WRITE;
    memcpy(t->data + t->size, data, size);
    t->size += size;
    return LMC_OK;
}

static enum lmc_status read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    target *const t = (target *)user;
    if (t->again) return t->again->read(t->again->user, number, offset, dst, size);
    memcpy(dst, t->data + t->starts[number] + offset, size);
    bytes_read += size;
    return LMC_OK;
}

static void note(unsigned way, unsigned what, uint64_t value)
{
    unsigned log2 = 0;
    while (log2 < 60 && value >> (log2 + 1)) log2++;
    reached[way][what][8 * log2 + (log2 >= 3 ? value >> (log2 - 3) & 7 : value << (3 - log2) & 7)] =
        1;
}

/* n_free: how many calls have a free allowance. */
static void check_work(unsigned way, uint64_t in, uint64_t out, uint64_t n_free)
{
    static const char *const names[WAYS] = {"restore",      "restore by reader", "read files",
                                            "read tensors", "read pieces",       "read members",
                                            "salvage"};
    static double worst[WAYS], largest[WAYS];
    const uint64_t work = fuzz_decoded + bytes_read;
    const double ratio = (double)work / (double)(in + out + 1),
                 share = (double)work / (double)(FACTOR * (in + out) + n_free * FREE_WORK);
    note(way, 0, work);
    note(way, 1, 16 * work / (in + out + 1));
    FUZZ_CHECK(work <= FACTOR * (in + out) + n_free * FREE_WORK);
    if ((ratio > worst[way] || share > largest[way]) && getenv("FUZZ_WORK")) {
        fprintf(stderr, "%-18s %12llu for %8llu + %8llu: %10.2f, %.3f of what it may\n", names[way],
                (unsigned long long)work, (unsigned long long)in, (unsigned long long)out, ratio,
                share);
        worst[way] = ratio > worst[way] ? ratio : worst[way];
        largest[way] = share > largest[way] ? share : largest[way];
    }
    fuzz_decoded = bytes_read = 0;
}

typedef struct trial {
    bytes delta;
    lmc_source source;
    lmc_base *base;
    lmc_reader *base_reader;
    uint64_t in, n_links;
    uint8_t *room;
} trial;

static lmc_reader *open_trial(const trial *t)
{
    lmc_reader_options options;
    lmc_reader *reader = NULL;
    options = LMC_READER_OPTIONS();
    options.base = t->base;
    options.lender = t->base_reader;
    options.max_total_size = MOST_OUTPUT;
    return lmc_reader_open(&reader, &t->source, &options) == LMC_OK ? reader : NULL;
}

static void try_restore(trial *t, int by_reader)
{
    static target out;
    lmc_restore_options options;
    lmc_stream stream = LMC_DEFAULTS;
    lmc_reader *const reader = by_reader ? open_trial(t) : NULL;
    lmc_base again;
    if (by_reader && !reader) return;
    memset(&out, 0, sizeof out);
    options = LMC_RESTORE_OPTIONS();
    if (by_reader) {
        again = lmc_reader_base(reader);
        out.again = &again;
    }
    out.data = t->room;
    options.user = &out;
    options.base = t->base;
    options.begin_file = begin_file;
    options.write = take_bytes;
    options.read_back = read_back;
    options.max_total_size = MOST_OUTPUT;
    t->delta.at = 0;
    stream.read = read_next;
    stream.user = &t->delta;
    (void)!lmc_snapshot_restore(&stream, NULL, &options);
    /* bytes of a base may have been requested, but not delivered */
    check_work(by_reader ? RESTORE_BY_READER : RESTORE, t->in, 2 * out.size + ((size_t)8 << 20),
               t->n_links);
    lmc_reader_free(reader);
}

/* Reads all files and tensors, as a command does: the free allowance counts once, not for each.
 * done: bytes requested before on the same account. */
static void try_members(trial *t, lmc_reader *reader, uint64_t done)
{
    const lmc_base by_reader = lmc_reader_base(reader);
    size_t i, k;
    for (i = 0; i < by_reader.n_files && i < 1024; i++) {
        const lmc_file *const f = lmc_reader_get_file(reader, i);
        (void)!by_reader.read(by_reader.user, i, 0, t->room, (size_t)f->size);
        done += f->size;
        for (k = 0; k < f->n_tensors && k < 64; k++) {
            (void)!by_reader.read(by_reader.user, i, f->tensors[k].offset, t->room,
                                  (size_t)f->tensors[k].size);
            done += f->tensors[k].size;
        }
    }
    check_work(READ_MEMBERS, t->in, done, t->n_links);
}

static void try_reader(trial *t)
{
    lmc_reader *const reader = open_trial(t);
    lmc_base as_base;
    lmc_snapshot_info info;
    uint64_t done = 0;
    size_t i, k;
    if (!reader) return;
    as_base = lmc_reader_base(reader);
    fuzz_decoded = bytes_read = 0;
    if (lmc_reader_get_info(reader, &info) != LMC_OK) info.n_files = 0;
    for (i = 0; i < info.n_files && i < 64; i++) {
        const lmc_file *const f = lmc_reader_get_file(reader, i);
        (void)!lmc_reader_read_file(reader, i, 0, t->room, (size_t)f->size);
        check_work(READ_FILES, t->in, f->size, t->n_links);
        for (k = 0; k < f->n_tensors && k < 64; k++) {
            (void)!lmc_reader_read_tensor(reader, i, &f->tensors[k], 0, t->room,
                                          (size_t)f->tensors[k].size);
            check_work(READ_TENSORS, t->in, f->tensors[k].size, t->n_links);
        }
    }
    for (i = 0; i < info.n_files && i < 64; i++) {
        const lmc_file *const f = lmc_reader_get_file(reader, i);
        uint64_t at = 0;
        for (k = 0; k < 256 && at < f->size; k++) {
            const size_t size = f->size - at < 100 ? (size_t)(f->size - at) : 100;
            if (as_base.read(as_base.user, i, at, t->room, size) != LMC_OK) break;
            done += size;
            at += f->size / 256 + 1;
        }
    }
    check_work(READ_PIECES, t->in, done + 100, t->n_links);
    try_members(t, reader, done);
    lmc_reader_free(reader);
}

static void try_salvage(trial *t)
{
    enum lmc_status status;
    lmc_reader_options options;
    lmc_salvage *salvage = NULL;
    lmc_salvage_range range;
    uint64_t done = 0;
    size_t i;
    options = LMC_READER_OPTIONS();
    options.base = t->base;
    options.max_total_size = MOST_OUTPUT;
    fuzz_decoded = bytes_read = 0;
    status = lmc_salvage_open(&salvage, &t->source, &options);
    FUZZ_CHECK(fuzz_decoded + bytes_read <=
               FACTOR * t->in + SEARCH_WORK + (t->n_links - 1) * FREE_WORK);
    fuzz_decoded = bytes_read = 0;
    if (status == LMC_OK)
        for (i = 0; i < 100000 && lmc_salvage_next(salvage, &range) == LMC_OK && !range.is_end; i++)
            if (range.status != LMC_ERR_LOST) done += range.size;
    check_work(SALVAGE, t->in, done, t->n_links);
    lmc_salvage_free(salvage);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_guard room;
    fuzz_input in = {data, size};
    size_t base_size = (size_t)fuzz_draw(&in, 4);
    lmc_reader_options options;
    bytes base_bytes;
    lmc_source source = LMC_DEFAULTS;
    lmc_base base;
    trial t;
    (void)fuzz_draw(&in, 8);
    (void)fuzz_draw(&in, 4);
    if (base_size > in.size) base_size = in.size;
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&room, (size_t)MOST_OUTPUT);
    FUZZ_BEGIN();
    memset(&t, 0, sizeof t);
    options = LMC_READER_OPTIONS();
    t.room = room.data;
    t.in = size;
    t.n_links = 1;
    t.delta.data = in.data + base_size;
    t.delta.size = in.size - base_size;
    t.source.read_at = read_at;
    t.source.user = &t.delta;
    t.source.size = t.delta.size;
    base_bytes.data = in.data;
    base_bytes.size = base_size;
    source.read_at = read_at;
    source.user = &base_bytes;
    source.size = base_size;
    options.max_total_size = MOST_OUTPUT;
    if (base_size && lmc_reader_open(&t.base_reader, &source, &options) == LMC_OK) {
        base = lmc_reader_base(t.base_reader);
        t.base = &base;
        t.n_links = 2;
    }
    fuzz_decoded = bytes_read = 0;
    try_restore(&t, 0);
    try_restore(&t, 1);
    try_reader(&t);
    try_salvage(&t);
    lmc_reader_free(t.base_reader);
    FUZZ_END();
    return 0;
}
