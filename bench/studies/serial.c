/* Which parts of writing and restoring a snapshot cannot run in parallel, and the speedup that
 * several workers could reach at most. It needs one core.
 *
 *   cc -O2 -I. bench/studies/serial.c -o build/serial && build/serial [MB [TENSORS]]
 *
 * The calling thread simulates the workers: it runs the tasks of each wave one after another,
 * assigns each to the worker that is free first, and adds up the time of the busiest one. Time
 * outside of all waves is serial: planning, index, fingerprints, the first read and the last write
 * of a stream. So are page faults of the library's own buffers, if no task runs meanwhile; those of
 * the arrays and of the snapshot happen before. From memory to memory: by streams, which one task
 * reads and one writes, and from and to arrays. Each figure is the least of five passes. "at
 * least": serial time and the busiest worker of each wave. The last two columns: the bound for 8
 * and 16 workers from the serial share alone, without limits of memory and the cost of waking
 * threads.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#define BENCH "serial"
#include "../measure.h"

static struct played {
    double in_tasks, longest; /* of all tasks; of the busiest worker of each wave */
} played;

static void play(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    double load[1024] = {0}, most = 0;
    double start = now(), end; /* not CPU time, which needs a system call */
    size_t i;
    unsigned worker;
    (void)user;
    for (i = 0; i < n_tasks; i++, start = end) { /* choosing a worker counts as part of its task */
        unsigned free_first = 0;
        for (worker = 1; worker < n_workers; worker++)
            if (load[worker] < load[free_first]) free_first = worker;
        task(arg, i, free_first);
        end = now();
        load[free_first] += end - start;
    }
    for (worker = 0; worker < n_workers; worker++) {
        played.in_tasks += load[worker];
        if (load[worker] > most) most = load[worker];
    }
    played.longest += most;
}

static uint8_t *restored;
static size_t n_restored;

static enum lmc_status take(void *user, const void *data, size_t size)
{
    (void)user;
    memcpy(restored + n_restored, data, size);
    n_restored += size;
    return LMC_OK;
}

static void check(enum lmc_status status)
{
    if (status != LMC_OK) fail("", lmc_status_text(status));
}

/* One file of n_tensors; every fifth is large, the others are small. */
static lmc_tensor *make_tensors(size_t n_tensors, size_t size)
{
    lmc_tensor *const tensors = (lmc_tensor *)calloc(n_tensors, sizeof *tensors);
    uint64_t *const shapes = (uint64_t *)calloc(n_tensors, sizeof *shapes);
    const size_t n_large = (n_tensors + 4) / 5, small = 8192,
                 large = (size - (n_tensors - n_large) * small) / n_large & ~(size_t)1;
    uint64_t at = 0;
    size_t i;
    if (!tensors || !shapes) fail("out of memory", "");
    for (i = 0; i < n_tensors; i++) {
        char *const name = (char *)malloc(40);
        if (!name) fail("out of memory", "");
        snprintf(name, 40, "model.layers.%lu.weight", (unsigned long)i);
        tensors[i].name = name;
        tensors[i].dtype = "BF16";
        tensors[i].rank = 1;
        tensors[i].shape = &shapes[i];
        tensors[i].offset = at;
        tensors[i].size = i % 5 ? small : large;
        shapes[i] = tensors[i].size / 2;
        at += tensors[i].size;
    }
    return tensors;
}

enum { WRITE, WRITE_ARRAY, RESTORE, READ, READ_AT_ONCE, N_ROWS, N_PASSES = 5 };
static struct best {
    double serial, total, at_least;
} best[N_ROWS];

static void keep(int what, double total)
{
    const double serial = total - played.in_tasks, at_least = serial + played.longest;
    struct best *const b = &best[what];
    if (b->total == 0 || serial < b->serial) b->serial = serial;
    if (b->total == 0 || at_least < b->at_least) b->at_least = at_least;
    if (b->total == 0 || total < b->total) b->total = total;
}

/* By Amdahl's law: the speedup over one worker, if workers share all except the serial part
 * evenly. */
static double bound(double share, double n_workers)
{
    return 1 / (share + (1 - share) / n_workers);
}

static lmc_file file;
static uint8_t *src;
static size_t size;

static lmc_memory out; /* the snapshot */

static void write_snapshot(const lmc_parallel *parallel, int what)
{
    lmc_memory in;
    lmc_sink sink;
    lmc_stream stream;
    lmc_writer *writer;
    lmc_writer_options options;
    double start;
    memset(&in, 0, sizeof in);
    options = LMC_WRITER_OPTIONS();
    in.data = src;
    in.size = size;
    out.size = out.position = 0;
    options.parallel = parallel;
    sink = lmc_memory_sink(&out);
    stream = lmc_memory_stream(&in);
    memset(&played, 0, sizeof played);
    start = now();
    check(lmc_writer_open(&writer, &sink, &options));
    check(lmc_writer_begin_file(writer, &file, LMC_AUTO));
    if (what == WRITE) check(lmc_writer_write_stream(writer, &stream));
    else check(lmc_writer_write(writer, src, size));
    check(lmc_writer_end_file(writer));
    check(lmc_writer_finish(writer));
    keep(what, now() - start);
    lmc_writer_free(writer);
}

static void restore_snapshot(const lmc_parallel *parallel)
{
    lmc_stream stream = lmc_memory_stream(&out);
    lmc_restore_options options;
    double start;
    options = LMC_RESTORE_OPTIONS();
    options.parallel = parallel;
    options.write = take;
    n_restored = 0;
    memset(&played, 0, sizeof played);
    start = now();
    check(lmc_snapshot_restore(&stream, NULL, &options));
    keep(RESTORE, now() - start);
    if (n_restored != size || memcmp(restored, src, size) != 0) fail("did not come back", "");
}

/* Reads at random access, to the caller's memory. */
static void read_snapshot(const lmc_parallel *parallel, int what)
{
    const lmc_source source = lmc_memory_source(&out);
    lmc_reader *reader;
    lmc_reader_options options;
    double start;
    options = LMC_READER_OPTIONS();
    options.parallel = parallel;
    options.parallel_reads = what == READ_AT_ONCE;
    memset(restored, 0, size);
    memset(&played, 0, sizeof played);
    start = now();
    check(lmc_reader_open(&reader, &source, &options));
    check(lmc_reader_read_file(reader, 0, 0, restored, size));
    keep(what, now() - start);
    lmc_reader_free(reader);
    if (memcmp(restored, src, size) != 0) fail("was not read", "");
}

static void measure_pass(unsigned n_workers)
{
    const lmc_parallel parallel = {play, NULL, n_workers, {0, 0}};
    if (!out.data) { /* the first time: its pages are faulted in */
        out.data = (uint8_t *)malloc(out.cap = size);
        if (!out.data) fail("out of memory", "");
        memset(out.data, 1, size);
    }
    write_snapshot(&parallel, WRITE);
    restore_snapshot(&parallel);
    write_snapshot(&parallel, WRITE_ARRAY);
    read_snapshot(&parallel, READ);
    read_snapshot(&parallel, READ_AT_ONCE);
}

int main(int argc, char **argv)
{
    static const unsigned n_workers[] = {1, 2, 4, 8, 16};
    static const char *const names[] = {"write, of a stream", "write, of an array", "restore",
                                        "read to an array", "the same, parallel_reads"};
    const size_t n_tensors = argc > 2 ? (size_t)atol(argv[2]) : 500, first = 64000000;
    double one[N_ROWS] = {0};
    size_t i;
    int what, pass;
    size = (size_t)(argc > 1 ? atol(argv[1]) : 1024) * 1000000;
    if (size < first) fail("too few MB", "");
    src = allocate(size);
    t_fill(src, first, T_GAUSS, LMC_BF16, 1);
    for (i = first; i < size; i += first) memcpy(src + i, src, lmc__min(first, size - i));
    restored = allocate(size);
    file.path = "model.safetensors";
    file.tensors = make_tensors(n_tensors, size);
    file.n_tensors = n_tensors;
    file.size = size =
        (size_t)(file.tensors[n_tensors - 1].offset + file.tensors[n_tensors - 1].size);
    printf("| | workers | serial, s | of all work | s, at least | times one | 8, at most | 16 |\n"
           "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (i = 0; i < sizeof n_workers / sizeof *n_workers; i++) {
        memset(best, 0, sizeof best);
        for (pass = 0; pass < N_PASSES; pass++) measure_pass(n_workers[i]);
        for (what = WRITE; what < N_ROWS; what++) {
            const double share = best[what].serial / best[what].total;
            if (i == 0) one[what] = best[what].total;
            printf("| %s | %u | %.4f | %.2f %% | %.4f | %.2f | %.1f | %.1f |\n", names[what],
                   n_workers[i], best[what].serial, 100 * share, best[what].at_least,
                   one[what] / best[what].at_least, bound(share, 8), bound(share, 16));
        }
        fflush(stdout);
    }
    return 0;
}
