/* Deltas that are restored over their own base: each write is torn in turn, recovered from the
 * journal, and restoring goes on until the base is the new snapshot; and what must be refused. */
#include "t_parts.h"

/* The files of the base, which restoring turns into the new ones. */
typedef struct disk {
    uint8_t *data[8];
    size_t size[8];
    size_t n_files;
    const t_model *to;  /* the expected result */
    size_t file;        /* that is being restored */
    uint64_t start, at; /* of that file, and of the next byte, counted through all files */
    uint64_t n_done;    /* earlier bytes that were written before */
    uint8_t *kept;      /* the bytes of the last write(): the journal */
    size_t kept_size;
    uint64_t kept_at;
    long writes, torn_at; /* the number of the write that is torn; -1: none */
    int wrong;
    t_calls *calls;       /* of read_back */
    const lmc_base *base; /* it must not be read */
    t_heap *heap;         /* or NULL */
} disk;

static void open_disk(disk *d, const t_model *from, const t_model *to)
{
    size_t i;
    memset(d, 0, sizeof *d);
    d->to = to;
    d->torn_at = -1;
    d->n_files = from->n_files;
    for (i = 0; i < d->n_files; i++)
        d->data[i] = (uint8_t *)t_copy(from->files[i].data, d->size[i] = from->files[i].size);
}

static void close_disk(disk *d)
{
    size_t i;
    for (i = 0; i < d->n_files; i++) free(d->data[i]);
    free(d->kept);
}

static int has_become(const disk *d, const t_model *model)
{
    size_t i;
    for (i = 0; i < d->n_files; i++)
        if (d->size[i] && memcmp(d->data[i], model->files[i].data, d->size[i]) != 0) return 0;
    return 1;
}

static uint64_t total_of(const t_model *model)
{
    uint64_t total = 0;
    size_t i;
    for (i = 0; i < model->n_files; i++) total += model->files[i].size;
    return total;
}

static enum lmc_status disk_begin(void *user, const lmc_file *file, size_t number)
{
    disk *d = (disk *)user;
    size_t i;
    d->wrong |= number >= d->n_files || file->size != d->size[number] ||
                strcmp(file->path, d->to->files[number].file.path) != 0;
    d->file = number;
    for (d->start = 0, i = 0; i < number; i++) d->start += d->size[i];
    d->at = d->n_done > d->start ? d->n_done : d->start;
    return d->wrong ? LMC_ERR_WRITE : LMC_OK;
}

static enum lmc_status disk_end(void *user, const lmc_file *file, size_t number)
{
    disk *d = (disk *)user;
    d->wrong |= number != d->file || d->at < d->start + file->size ||
                file->crc != t_crc32c(0, d->to->files[number].data, d->size[number]);
    return d->wrong ? LMC_ERR_WRITE : LMC_OK;
}

/* A torn write stores only every other line of 64 bytes. */
static enum lmc_status disk_write(void *user, const void *data, size_t size)
{
    disk *d = (disk *)user;
    uint8_t *const dst = d->data[d->file] + (size_t)(d->at - d->start);
    const int torn = d->writes++ == d->torn_at;
    size_t i;
    d->wrong |= size == 0 || d->at - d->start > d->size[d->file] ||
                size > d->size[d->file] - (d->at - d->start);
    if (d->wrong) return LMC_ERR_WRITE;
    free(d->kept);
    d->kept = (uint8_t *)t_copy(data, size);
    d->kept_size = size;
    d->kept_at = d->at;
    for (i = 0; i < size; i += 64)
        if (!torn || i / 64 % 2 == 0) memcpy(dst + i, d->kept + i, size - i < 64 ? size - i : 64);
    d->at += size;
    return torn ? LMC_ERR_WRITE : LMC_OK;
}

static enum lmc_status disk_read(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    disk *d = (disk *)user;
    if (t_fails(d->calls, LMC_ERR_READ)) return LMC_ERR_READ;
    if (number >= d->n_files || offset > d->size[number] || size > d->size[number] - offset)
        return LMC_ERR_READ;
    if (size) memcpy(dst, d->data[number] + offset, size);
    return LMC_OK;
}

static enum lmc_status apply(disk *d, t_memory *delta, uint64_t n_done,
                             const lmc_parallel *parallel,
                             uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    lmc_restore_options options;
    lmc_snapshot_info info;
    lmc_stream stream = LMC_DEFAULTS;
    enum lmc_status status;
    memset(&options, 0, sizeof options);
    options.parallel = parallel;
    options.allocator = t_allocator(d->heap);
    options.user = d;
    options.begin_file = disk_begin;
    options.write = disk_write;
    options.end_file = disk_end;
    options.read_back = disk_read;
    options.base = d->base;
    options.in_place = 1;
    options.done_size = d->n_done = n_done;
    delta->at = 0;
    d->writes = 0;
    stream.read = t_read;
    stream.user = delta;
    status = lmc_snapshot_restore(&stream, &info, &options);
    if (status == LMC_OK && fingerprint)
        memcpy(fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE);
    return status;
}

/* After a crash: the journal is written again. Returns how far the disk is. */
static uint64_t recover(disk *d)
{
    uint64_t start = 0;
    size_t i;
    if (d->kept == NULL) return 0;
    for (i = 0; d->kept_at >= start + d->size[i] && i + 1 < d->n_files; i++) start += d->size[i];
    memcpy(d->data[i] + (size_t)(d->kept_at - start), d->kept, d->kept_size);
    return d->kept_at + d->kept_size;
}

/* -- snapshots of two steps with the same layout -- */

static part g_parts[2][OLD_PARTS], g_masters[2][3]; /* the master and its copies */
static lmc_twin g_claims[2][2];
static t_model g_models[2];

/* A master, and behind it in the same file its copies in bf16: the snapshot predicts itself from
 * bytes that were just written. */
static void add_masters(size_t step, size_t n)
{
    part *const p = g_masters[step];
    size_t i;
    for (i = 0; i < 2; i++) {
        p[i + 1] = make_part(i ? "second copy" : "copy", "BF16", 1, n, 0, T_ZERO, 1);
        CHECK_STATUS(lmc_conversion_apply(p[i + 1].data, p[0].data, n, LMC_CONVERT_F32_TO_BF16),
                     LMC_OK);
        g_claims[step][i].file_number = g_models[step].n_files;
        g_claims[step][i].offset = 301;
        g_claims[step][i].conversion = LMC_CONVERT_F32_TO_BF16;
        p[i + 1].twin = &g_claims[step][i];
    }
    add_shard(&g_models[step], "masters", p, NULL, 3);
}

static void make_models(size_t n)
{
    size_t step, k;
    make_old_parts(g_parts[0], n);
    for (k = 0; k < OLD_PARTS; k++)
        g_parts[1][k] = change(&g_parts[0][k],
                               k % 4 == 3 ? T_UNRELATED
                               : k % 2    ? T_STEPS
                                          : T_FEW,
                               100 + k);
    g_masters[0][0] = make_part("master", "F32", 1, 20 * n, 0, T_GAUSS, 3);
    g_masters[1][0] = change(&g_masters[0][0], T_STEPS, 4);
    for (step = 0; step < 2; step++) {
        make_old_model(&g_models[step], g_parts[step]);
        add_masters(step, 20 * n);
        /* a text in front of the tensors that changes, too */
        for (k = 0; k < g_models[step].n_files; k++)
            if (g_models[step].files[k].size > 100)
                ((uint8_t *)(uintptr_t)g_models[step].files[k].data)[50] ^= (uint8_t)step;
    }
}

static void free_models(void)
{
    size_t step;
    for (step = 0; step < 2; step++) {
        t_free_model(&g_models[step]);
        free_parts(g_parts[step], OLD_PARTS);
        free_parts(g_masters[step], 3);
    }
}

/* The second step as a delta to the first. */
static t_memory write_delta(const t_model *model, const lmc_base *base, unsigned log2_block)
{
    lmc_writer_options options;
    t_memory out;
    own self;
    self.model = model;
    self.calls = NULL;
    memset(&options, 0, sizeof options);
    memset(&out, 0, sizeof out);
    options.base = base;
    options.log2_block = log2_block;
    options.read_back = read_own;
    options.user = &self;
    CHECK_STATUS(t_write_model(model, &out, &options, 0, NULL), LMC_OK);
    return out;
}

static void test_kills(void)
{
    static const unsigned workers[] = {0, 3};
    size_t size, k;
    for (size = 0; size < (t_quick ? 1u : 2u); size++) {
        loose files;
        lmc_base base;
        t_memory delta;
        uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
        make_models(size ? 4000 : 60);
        base = make_loose(&files, &g_models[0], NULL, 0);
        delta = write_delta(&g_models[1], &base, 14);
        t_model_fingerprint(&g_models[1], want);
        for (k = 0; k < 2; k++) {
            unsigned n = workers[k], three = 3;
            /* with larger waves, work of the other ended within a wave */
            const lmc_parallel parallel = t_parallel(&three);
            const lmc_parallel *const p = n ? &parallel : NULL, *const other = n ? NULL : &parallel;
            long torn, n_writes;
            disk d;
            t_note("in place, size %lu, %u workers", (unsigned long)size, n);
            open_disk(&d, &g_models[0], &g_models[1]);
            CHECK_STATUS(apply(&d, &delta, 0, p, id), LMC_OK);
            CHECK(!d.wrong && has_become(&d, &g_models[1]) &&
                  memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
            n_writes = d.writes;
            CHECK(n_writes >= (size ? 9 : 6)); /* one for each file, and for each MiB of it */
            t_note("again, when all is done: nothing is written");
            CHECK_STATUS(apply(&d, &delta, total_of(&g_models[1]), p, id), LMC_OK);
            CHECK(!d.wrong && d.writes == 0 && memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
            close_disk(&d);
            for (torn = 0; torn < n_writes; torn++) {
                int attempt;
                enum lmc_status status = LMC_ERR_WRITE;
                uint64_t n_done = 0;
                t_note("write %ld of %ld torn, %u workers", torn, n_writes, n);
                open_disk(&d, &g_models[0], &g_models[1]);
                /* twice it is killed */
                for (attempt = 0; attempt < 3 && status != LMC_OK; attempt++) {
                    d.torn_at = attempt == 0   ? torn
                                : attempt == 1 ? (torn * 7 + 1) % (n_writes - torn)
                                               : -1;
                    status = apply(&d, &delta, n_done, attempt % 2 ? other : p, id);
                    if (attempt == 0) CHECK_STATUS(status, LMC_ERR_WRITE);
                    n_done = recover(&d);
                }
                CHECK_STATUS(status, LMC_OK);
                CHECK(!d.wrong && has_become(&d, &g_models[1]) &&
                      memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
                close_disk(&d);
            }
        }
        free(delta.data);
        free_loose(&files);
        free_models();
    }
}

/* Every wrong base, and impossible counts. */
static void test_refusals(void)
{
    loose files, new_files;
    lmc_base base, new_base;
    t_memory delta, plain;
    lmc_restore_options options;
    lmc_stream stream = LMC_DEFAULTS;
    t_calls calls;
    uint64_t state = 5, total, n_done;
    long k, n_reads;
    disk d;
    make_models(300);
    total = total_of(&g_models[1]);
    base = make_loose(&files, &g_models[0], NULL, 0);
    delta = write_delta(&g_models[1], &base, 14);
    plain = write_delta(&g_models[1], NULL, 14);
    for (k = 0; k < 40; k++) {
        size_t file = k % 2 ? 0 : 6, at; /* in tensors that are predicted: "embed" and the master */
        uint8_t *before;
        open_disk(&d, &g_models[0], &g_models[1]);
        at = 301 + t_below(&state, 10000);
        d.data[file][at] ^= (uint8_t)(1u << t_below(&state, 8));
        before = (uint8_t *)t_copy(d.data[file], d.size[file]);
        t_note("another base: byte %lu of file %lu", (unsigned long)at, (unsigned long)file);
        CHECK_STATUS(apply(&d, &delta, 0, NULL, NULL), LMC_ERR_BASE_WRONG);
        /* the block was not changed */
        CHECK(!d.wrong && memcmp(d.data[file] + at, before + at, d.size[file] - at) == 0);
        free(before);
        close_disk(&d);
    }
    t_note("what is said to be done is not");
    open_disk(&d, &g_models[0], &g_models[1]);
    CHECK_STATUS(apply(&d, &delta, total, NULL, NULL), LMC_ERR_BASE_WRONG);
    CHECK(d.writes == 0 && has_become(&d, &g_models[0]));
    t_note("a count within a block, and beyond the end");
    d.torn_at = 3;
    CHECK_STATUS(apply(&d, &delta, 0, NULL, NULL), LMC_ERR_WRITE);
    n_done = recover(&d);
    d.torn_at = -1;
    CHECK_STATUS(apply(&d, &delta, n_done - 1, NULL, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(apply(&d, &delta, n_done, NULL, NULL), LMC_OK);
    CHECK(has_become(&d, &g_models[1]) && !d.wrong);
    CHECK_STATUS(apply(&d, &delta, total + 1, NULL, NULL), LMC_ERR_ARGUMENT);
    CHECK(has_become(&d, &g_models[1]));
    t_note("a base that is not asked");
    close_disk(&d);
    open_disk(&d, &g_models[0], &g_models[1]);
    new_base = make_loose(&new_files, &g_models[1], NULL, 0);
    d.base = &new_base;
    CHECK_STATUS(apply(&d, &delta, 0, NULL, NULL), LMC_OK);
    CHECK(has_become(&d, &g_models[1]) && !d.wrong && new_files.reads == 0);
    free_loose(&new_files);
    d.base = NULL;
    t_note("a second time, from the beginning: the base is gone");
    CHECK_STATUS(apply(&d, &delta, 0, NULL, NULL), LMC_ERR_BASE_WRONG);
    close_disk(&d);
    t_note("a snapshot that is not a delta: nothing is predicted, so any files will do");
    open_disk(&d, &g_models[0], &g_models[1]);
    CHECK_STATUS(apply(&d, &plain, 0, NULL, NULL), LMC_OK);
    CHECK(has_become(&d, &g_models[1]) && !d.wrong);
    close_disk(&d);
    t_note("arguments");
    memset(&options, 0, sizeof options);
    stream.read = t_read;
    stream.user = &delta;
    options.in_place = 1;
    CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_ARGUMENT);
    options.in_place = 0;
    options.done_size = 1;
    options.base = &base;
    options.read_back = disk_read;
    CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_ARGUMENT);
    t_note("reading");
    memset(&calls, 0, sizeof calls);
    calls.fail_at = -1;
    open_disk(&d, &g_models[0], &g_models[1]);
    d.calls = &calls;
    CHECK_STATUS(apply(&d, &delta, 0, NULL, NULL), LMC_OK);
    n_reads = calls.calls;
    CHECK(n_reads >= 8); /* one for each file that is predicted, and for each MiB of it */
    close_disk(&d);
    free(delta.data);
    free(plain.data);
    free_loose(&files);
    free_models();
}

/* Each read of the delta and of the base fails in turn, and each allocation: earlier writes are
 * whole, and restoring continues. */
static void test_faults(void)
{
    unsigned three = 3;
    const lmc_parallel parallel = t_parallel(&three);
    loose files;
    lmc_base base;
    t_memory delta;
    int mode;
    make_models(60);
    base = make_loose(&files, &g_models[0], NULL, 0);
    delta = write_delta(&g_models[1], &base, 14);
    for (mode = 0; mode < 4; mode++) {
        const int memory = mode % 2;
        const lmc_parallel *const p = mode / 2 ? &parallel : NULL;
        long k;
        for (k = 0;; k += t_quick ? 7 : 1) {
            t_calls calls;
            t_heap heap;
            disk d;
            enum lmc_status status;
            int failed;
            memset(&calls, 0, sizeof calls);
            memset(&heap, 0, sizeof heap);
            calls.fail_at = memory ? -1 : k;
            heap.fail_at = memory ? k : -1;
            t_note("in place, %s, %s %ld fails", p ? "threads" : "serial",
                   memory ? "allocation" : "reading", k);
            open_disk(&d, &g_models[0], &g_models[1]);
            d.heap = &heap;
            d.calls = delta.calls = &calls;
            status = apply(&d, &delta, 0, p, NULL);
            failed = (memory ? heap.calls : calls.calls) > k;
            CHECK_STATUS(status, !failed ? LMC_OK : memory ? LMC_ERR_MEMORY : LMC_ERR_READ);
            CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            d.heap = NULL;
            d.calls = delta.calls = NULL;
            CHECK_STATUS(apply(&d, &delta, recover(&d), p, NULL), LMC_OK);
            CHECK(has_become(&d, &g_models[1]) && !d.wrong);
            close_disk(&d);
            if (!failed) break;
        }
        CHECK(k > 2);
    }
    free(delta.data);
    free_loose(&files);
    free_models();
}

/* -- which layouts allow it -- */

static int can(t_memory *delta, const lmc_base *base)
{
    lmc_reader_options options;
    lmc_reader *reader;
    t_heap heap;
    int result;
    memset(&options, 0, sizeof options);
    memset(&heap, 0, sizeof heap);
    heap.fail_at = -1;
    options.base = base;
    options.allocator = t_allocator(&heap);
    reader = open_with(delta, &options);
    if (reader == NULL || lmc_reader_can_restore_in_place(reader, &result) != LMC_OK) result = -1;
    lmc_reader_free(reader);
    CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
    return result;
}

/* The parts of the first step in two shards, in a given order: all have one fingerprint.
 */
static t_model arrange(const char *second_path, const size_t *order, size_t cut)
{
    t_model model;
    memset(&model, 0, sizeof model);
    add_shard(&model, "first", g_parts[0], order, cut);
    if (cut < OLD_PARTS) add_shard(&model, second_path, g_parts[0] + cut, NULL, OLD_PARTS - cut);
    return model;
}

static void test_layouts(void)
{
    static const size_t as_they_are[] = {0, 1, 2, 3, 4, 5, 6, 7},
                        swapped[] = {0, 1, 2, 3, 4, 5, 7, 6};
    t_model same, other;
    loose files, other_files;
    lmc_base base, other_base;
    t_memory delta, plain;
    size_t k;
    make_models(60);
    same = arrange("second", as_they_are, 8);
    base = make_loose(&files, &same, NULL, 0);
    delta = write_delta(&same, &base, 14);
    plain = write_delta(&same, NULL, 14);
    CHECK(can(&delta, &base) == 1 && can(&delta, NULL) == 1);
    CHECK(can(&plain, &base) == 0 && can(&plain, NULL) == 0);
    for (k = 0; k < 5; k++) {
        t_note("layout %lu", (unsigned long)k);
        other = k == 0   ? arrange("third", as_they_are, 8)   /* another path */
                : k == 1 ? arrange("second", swapped, 8)      /* another order */
                : k == 2 ? arrange("second", as_they_are, 7)  /* another cut */
                : k == 3 ? arrange("second", NULL, OLD_PARTS) /* fewer files */
                         : arrange("second", as_they_are, 8);
        if (k == 4) other.files[1].size--; /* the last byte belongs to no tensor */
        if (k == 4) other.files[1].file.size--;
        other_base = make_loose(&other_files, &other, NULL, 0);
        CHECK(can(&delta, &other_base) == 0);
        free_loose(&other_files);
        t_free_model(&other);
    }
    t_note("a directory is no empty file: its fingerprint has another type");
    for (k = 0; k < 2; k++) {
        memset(&other, 0, sizeof other);
        add_shard(&other, "first", g_parts[0], NULL, 3);
        t_add_file(&other, "logs", NULL, 0)->file.kind = k ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
        other_base = make_loose(&other_files, &other, NULL, 0);
        if (k == 0) {
            free(delta.data);
            delta = write_delta(&other, &other_base, 14);
            CHECK(can(&delta, &other_base) == 1);
        } else {
            lmc_reader_options options;
            lmc_reader *reader = NULL;
            lmc_source source = LMC_DEFAULTS;
            memset(&options, 0, sizeof options);
            options.base = &other_base;
            source.read_at = t_read_at;
            source.user = &delta;
            source.size = delta.size;
            CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_BASE_WRONG);
            CHECK(reader == NULL);
        }
        free_loose(&other_files);
        t_free_model(&other);
    }
    t_note("tensors of one name and content in two files: any of them may be meant");
    memset(&other, 0, sizeof other);
    add_shard(&other, "z", g_parts[0], NULL, 3);
    add_shard(&other, "a", g_parts[0], NULL, 3);
    add_shard(&other, "m", g_parts[0], NULL, 3);
    other_base = make_loose(&other_files, &other, NULL, 0);
    free(delta.data);
    delta = write_delta(&other, &other_base, 14);
    CHECK(can(&delta, &other_base) == 1);
    free_loose(&other_files);
    t_free_model(&other);
    t_note("tensors of one name and other content in two files: those of the same file are meant");
    memset(&other, 0, sizeof other);
    add_shard(&other, "z", g_parts[0], NULL, 3);
    add_shard(&other, "a", g_parts[1], NULL, 3);
    other_base = make_loose(&other_files, &other, NULL, 0);
    free(delta.data);
    delta = write_delta(&other, &other_base, 14);
    CHECK(can(&delta, &other_base) == 1);
    free_loose(&other_files);
    t_free_model(&other);
    free(delta.data);
    free(plain.data);
    free_loose(&files);
    t_free_model(&same);
    free_models();
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    test_kills();
    test_refusals();
    test_faults();
    test_layouts();
    return t_end();
}
