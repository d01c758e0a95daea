/* Functions that save code: one call for a buffer or a file; arrays, files of the C library and
 * descriptors, the pool; progress and cancelling, copies from a reader to a writer. */
#include "t_float.h"
#include "t_io.h"
#include "../../include/lmc_salvage.h"

#include <limits.h>

#ifndef _WIN32
#include <dirent.h>
#include <sys/stat.h>
#endif
#ifdef LMC_POSIX
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#endif

enum { SIZE = 300000 };
static uint8_t g_src[SIZE], g_enc[SIZE + 4096], g_dst[SIZE];
static lmc_source source_of(lmc_memory *memory, const void *data, size_t size)
{
    memset(memory, 0, sizeof *memory);
    memory->data = (uint8_t *)(uintptr_t)data;
    memory->size = size;
    return lmc_memory_source(memory);
}

/* Into exactly cap bytes. */
static enum lmc_status decompress_to(size_t cap, const void *src, size_t src_size, size_t *size)
{
    uint8_t *const exact = (uint8_t *)malloc(cap ? cap : 1);
    enum lmc_status status;
    if (!exact) abort();
    status = lmc_decompress(exact, cap, size, src, src_size, NULL);
    if (status == LMC_OK) CHECK(memcmp(exact, g_src, *size) == 0);
    free(exact);
    return status;
}

static void test_buffers(void)
{
    static const size_t sizes[] = {0, 1, 2, 7, 100, 16384, 131072, 131073, SIZE};
    static const enum lmc_dtype dtypes[] = {LMC_AUTO, LMC_BF16, LMC_F32, LMC_U8, LMC_F4, LMC_C64};
    lmc_compress_options options = LMC_DEFAULTS, limited;
    size_t i, j, size, back;
    uint64_t told;
    enum lmc_dtype dtype;
    t_heap heap;
    memset(&heap, 0, sizeof heap);
    heap.fail_at = -1;
    options.allocator = t_allocator(&heap);
    t_fill(g_src, SIZE, T_GAUSS, LMC_BF16, 1);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (j = 0; j < sizeof dtypes / sizeof *dtypes; j++) {
            const size_t n = sizes[i] - sizes[i] % (dtypes[j] == LMC_C64 ? 8 : 4);
            t_note("buffer of %lu, dtype %d", (unsigned long)n, (int)dtypes[j]);
            options.level = (enum lmc_level)((int)(i % 4) - 1);
            CHECK(lmc_compress_bound(n) <= sizeof g_enc);
            CHECK_STATUS(lmc_compress(g_enc, lmc_compress_bound(n), &size, n ? g_src : NULL, n,
                                      dtypes[j], &options),
                         LMC_OK);
            CHECK_STATUS(lmc_decompressed_size(g_enc, size, &told, &dtype, NULL), LMC_OK);
            CHECK(told == n && (dtype == dtypes[j] || n == 0 || dtypes[j] == LMC_F4));
            CHECK_STATUS(lmc_decompressed_size(g_enc, size, &told, NULL, &options), LMC_OK);
            limited = options;
            limited.max_total_size = n ? n : 1;
            CHECK_STATUS(lmc_decompressed_size(g_enc, size, &told, NULL, &limited), LMC_OK);
            limited.max_total_size = n > 1 ? n - 1 : 1;
            if (n > 1) {
                told = 99;
                CHECK_STATUS(lmc_decompressed_size(g_enc, size, &told, NULL, &limited),
                             LMC_ERR_LIMIT);
                CHECK_STATUS(lmc_decompress(g_dst, n, &back, g_enc, size, &limited), LMC_ERR_LIMIT);
                CHECK(told == 99);
            }
            CHECK_STATUS(lmc_decompress(g_dst, n, &back, g_enc, size, &options), LMC_OK);
            CHECK(back == n && memcmp(g_dst, g_src, n) == 0);
            if (n) CHECK_STATUS(decompress_to(n - 1, g_enc, size, &back), LMC_ERR_DST_TOO_SMALL);
            CHECK_STATUS(decompress_to(n, g_enc, size, &back), LMC_OK);
            CHECK_STATUS(lmc_compress(g_enc, size - 1, &back, g_src, n, dtypes[j], &options),
                         LMC_ERR_DST_TOO_SMALL);
            CHECK_STATUS(lmc_compress(g_enc, size, &back, g_src, n, dtypes[j], &options), LMC_OK);
            CHECK(back == size);
        }
    CHECK(heap.live == 0 && heap.wrong_size == 0);
    CHECK(lmc_compress_bound(SIZE_MAX) == SIZE_MAX && lmc_compress_bound(SIZE_MAX - 9) == SIZE_MAX);
}

/* Every capacity that is too small; a file that is cut at any byte. */
static void test_truncated(void)
{
    uint8_t small[2000];
    size_t size, back, i;
    CHECK_STATUS(lmc_compress(small, sizeof small, &size, g_src, 600, LMC_BF16, NULL), LMC_OK);
    for (i = 0; i < size; i++) {
        uint8_t *const cut = (uint8_t *)t_copy(small, i);
        uint8_t *const exact = (uint8_t *)malloc(i ? i : 1);
        enum lmc_status status;
        t_note("cut to %lu", (unsigned long)i);
        CHECK_STATUS(lmc_compress(exact, i, &back, g_src, 600, LMC_BF16, NULL),
                     LMC_ERR_DST_TOO_SMALL);
        status = lmc_decompress(g_dst, SIZE, &back, cut, i, NULL);
        CHECK(status == LMC_ERR_TRUNCATED || status == LMC_ERR_NOT_LMC ||
              status == LMC_ERR_CORRUPT || status == LMC_ERR_CHECKSUM);
        free(cut);
        free(exact);
    }
    for (i = 0; i < 8 * size; i++) { /* each bit: an error, or no difference */
        enum lmc_status status;
        small[i / 8] ^= (uint8_t)(1u << i % 8);
        status = lmc_decompress(g_dst, SIZE, &back, small, size, NULL);
        if (status == LMC_OK) CHECK(back == 600 && memcmp(g_dst, g_src, 600) == 0);
        small[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (i = 0; i < 600; i++)
        CHECK_STATUS(decompress_to(i, small, size, &back), LMC_ERR_DST_TOO_SMALL);
    CHECK_STATUS(lmc_decompress(NULL, 1, &back, small, size, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_decompress(g_dst, 1, NULL, small, size, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_decompress(g_dst, 1, &back, NULL, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_decompress(g_dst, 1, &back, NULL, 0, NULL), LMC_ERR_NOT_LMC);
    CHECK_STATUS(lmc_decompressed_size(small, size, NULL, NULL, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_compress(NULL, 1, &back, small, size, LMC_U8, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_compress(small, 1, NULL, small, size, LMC_U8, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_compress(small, 1, &back, NULL, 1, LMC_U8, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_compress(small, 1, &back, small, 1, (enum lmc_dtype)99, NULL),
                 LMC_ERR_ARGUMENT);
}

#if !defined(_WIN32) && !defined(__wasi__)
/* Every invalid vector: a status, and no crash. */
static void test_invalid(void)
{
    DIR *const directory = opendir("spec/vectors/invalid");
    const struct dirent *entry;
    size_t n = 0, back;
    if (!CHECK(directory != NULL)) return;
    while ((entry = readdir(directory)) != NULL) {
        static uint8_t file[1 << 20];
        char path[600];
        FILE *in;
        size_t size;
        uint64_t told;
        enum lmc_status status;
        if (!strstr(entry->d_name, ".lmc")) continue;
        snprintf(path, sizeof path, "spec/vectors/invalid/%s", entry->d_name);
        in = fopen(path, "rb");
        if (!in) abort();
        size = fread(file, 1, sizeof file, in);
        fclose(in);
        t_note("%s", entry->d_name);
        status = lmc_decompress(g_dst, SIZE, &back, file, size, NULL);
        CHECK(strcmp(lmc_status_name(status), "LMC_ERR_?") != 0 && status != LMC_ERR_ARGUMENT);
        status = lmc_decompressed_size(file, size, &told, NULL, NULL);
        CHECK(strcmp(lmc_status_name(status), "LMC_ERR_?") != 0 && status != LMC_ERR_ARGUMENT);
        n++;
    }
    closedir(directory);
    CHECK(n > 500);
}
#endif

static void write_bytes_to(const char *path, const void *data, size_t size)
{
    FILE *const file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

static size_t read_bytes_of(const char *path, void *dst, size_t cap)
{
    FILE *const file = fopen(path, "rb");
    size_t size;
    if (!file) return SIZE_MAX;
    size = fread(dst, 1, cap, file);
    fclose(file);
    return size;
}

#ifndef __wasi__
/* Beside the program, as those of several builds run at once. */
static char scratch[4][FILENAME_MAX + 16];

static void name_scratch(const char *program)
{
    static const char *const suffixes[] = {".src", ".lmc", ".dst", ".dst.part"};
    size_t i;
    for (i = 0; i < 4; i++)
        (void)snprintf(scratch[i], sizeof scratch[i], "%.*s%s", FILENAME_MAX, program, suffixes[i]);
}

#ifdef LMC_POSIX
/* Two non-blocking pipes to a process that takes all bytes before it sends them back, and waits
 * before it begins: so writing and reading must wait, too. */
static void test_nonblocking_pipes(void)
{
    int to[2], from[2], status = 0;
    size_t at, got = 1;
    pid_t child;
    lmc_sink sink;
    lmc_stream stream;
    if (pipe(to) != 0 || pipe(from) != 0) abort();
    fcntl(to[1], F_SETFL, O_NONBLOCK);
    fcntl(from[0], F_SETFL, O_NONBLOCK);
    child = fork();
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        poll(NULL, 0, 50);
        sink = lmc_fd_sink(from[1]);
        stream = lmc_fd_stream(to[0]);
        for (at = 0; got != 0; at += got)
            if (stream.read(stream.user, g_dst + at, SIZE - at, &got) != LMC_OK) _exit(1);
        _exit(sink.write(sink.user, g_dst, at) != LMC_OK);
    }
    close(to[0]);
    close(from[1]);
    sink = lmc_fd_sink(to[1]);
    stream = lmc_fd_stream(from[0]);
    CHECK_STATUS(sink.write(sink.user, g_src, SIZE), LMC_OK);
    close(to[1]);
    memset(g_dst, 0, SIZE);
    for (at = 0; got != 0 && at <= SIZE; at += got)
        CHECK_STATUS(stream.read(stream.user, g_dst + at, SIZE - at, &got), LMC_OK);
    CHECK(at == SIZE && memcmp(g_dst, g_src, SIZE) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(from[0]);
}
#endif

static void test_files(void)
{
    size_t size, i;
    lmc_source source;
    lmc_memory memory;
    lmc_reader *reader = NULL;
    lmc_compress_options limited = LMC_DEFAULTS;
    FILE *file;
    t_note("files");
    write_bytes_to(scratch[0], g_src, SIZE);
    CHECK_STATUS(lmc_compress_file(scratch[1], scratch[0], LMC_BF16, NULL), LMC_OK);
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[1], NULL), LMC_OK);
    CHECK(read_bytes_of(scratch[2], g_dst, SIZE) == SIZE && memcmp(g_src, g_dst, SIZE) == 0);
    CHECK(read_bytes_of(scratch[3], g_dst, 1) == SIZE_MAX);
    /* the bytes that lmc_compress makes, of every dtype */
    for (i = 0; i < LMC__DTYPE_COUNT; i++) {
        const enum lmc_dtype dtype = (enum lmc_dtype)i;
        static uint8_t of_file[sizeof g_enc];
        CHECK_STATUS(lmc_compress(g_enc, sizeof g_enc, &size, g_src, SIZE, dtype, NULL), LMC_OK);
        CHECK_STATUS(lmc_compress_file(scratch[1], scratch[0], dtype, NULL), LMC_OK);
        CHECK(read_bytes_of(scratch[1], of_file, sizeof of_file) == size &&
              memcmp(of_file, g_enc, size) == 0);
    }
    CHECK_STATUS(lmc_compress_file(scratch[1], scratch[0], LMC_BF16, NULL), LMC_OK);
    limited.max_total_size = SIZE;
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[1], &limited), LMC_OK);
    limited.max_total_size = SIZE - 1;
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[1], &limited), LMC_ERR_LIMIT);
    /* after a failure the old file is there, and no partial one */
    size = read_bytes_of(scratch[1], g_enc, sizeof g_enc);
    g_enc[size / 2] ^= 1;
    write_bytes_to(scratch[1], g_enc, size);
    CHECK(lmc_decompress_file(scratch[2], scratch[1], NULL) >= LMC_ERR_CORRUPT);
    CHECK(read_bytes_of(scratch[2], g_dst, SIZE) == SIZE && memcmp(g_src, g_dst, SIZE) == 0);
    CHECK(read_bytes_of(scratch[3], g_dst, 1) == SIZE_MAX);
    g_enc[size / 2] ^= 1;
    write_bytes_to(scratch[1], g_enc, size);
    /* missing ones */
    CHECK_STATUS(lmc_compress_file(scratch[2], "t_api.none", LMC_AUTO, NULL), LMC_ERR_READ);
    CHECK_STATUS(lmc_decompress_file(scratch[2], "t_api.none", NULL), LMC_ERR_READ);
    CHECK_STATUS(lmc_compress_file("t_api.none/x", scratch[0], LMC_AUTO, NULL), LMC_ERR_WRITE);
    CHECK_STATUS(lmc_decompress_file("t_api.none/x", scratch[1], NULL), LMC_ERR_WRITE);
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[0], NULL), LMC_ERR_NOT_LMC);
    CHECK_STATUS(lmc_compress_file(NULL, scratch[0], LMC_AUTO, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_decompress_file(scratch[2], NULL, NULL), LMC_ERR_ARGUMENT);
    CHECK(read_bytes_of(scratch[2], g_dst, SIZE) == SIZE);
    /* a source of the C library gives the same as one in memory */
    file = fopen(scratch[1], "rb");
    if (!file) abort();
    CHECK_STATUS(lmc_stdio_source(&source, file), LMC_OK);
    CHECK(source.size == size);
    CHECK_STATUS(source.read_at(source.user, size - 4, g_dst, 4), LMC_OK);
    CHECK(memcmp(g_dst, g_enc + size - 4, 4) == 0);
    CHECK_STATUS(source.read_at(source.user, size - 4, g_dst, 5), LMC_ERR_READ);
    CHECK_STATUS(source.read_at(source.user, UINT64_MAX, g_dst, 1), LMC_ERR_READ);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 777, g_dst, 999), LMC_OK);
    CHECK(memcmp(g_dst, g_src + 777, 999) == 0);
    lmc_reader_free(reader);
    fclose(file);
    CHECK_STATUS(lmc_stdio_source(NULL, stdin), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_stdio_source(&source, NULL), LMC_ERR_ARGUMENT);
#if defined(LMC_POSIX) && defined(__linux__)
    file = fopen("/dev/full", "wb"); /* a disk that is full */
    if (file) {
        lmc_sink sink = lmc_stdio_sink(file);
        setvbuf(file, NULL, _IONBF, 0);
        CHECK_STATUS(sink.write(sink.user, g_src, SIZE), LMC_ERR_WRITE);
        sink = lmc_fd_sink(fileno(file));
        CHECK_STATUS(sink.write(sink.user, g_src, SIZE), LMC_ERR_WRITE);
        fclose(file);
    }
#endif
#ifdef LMC_POSIX
    {
        const int fd = open(scratch[1], O_RDONLY);
        lmc_stream stream = lmc_fd_stream(fd);
        size_t got = 9, at = 0;
        CHECK_STATUS(lmc_fd_source(&source, fd), LMC_OK);
        CHECK(source.size == size);
        CHECK_STATUS(source.read_at(source.user, size - 4, g_dst, 5), LMC_ERR_READ);
        CHECK_STATUS(source.read_at(source.user, 3, g_dst, 5), LMC_OK);
        CHECK(memcmp(g_dst, g_enc + 3, 5) == 0);
        for (at = 8; at < size && got; at += got) {
            CHECK_STATUS(stream.read(stream.user, g_dst, 1000, &got), LMC_OK);
            CHECK(memcmp(g_dst, g_enc + at, got) == 0);
        }
        CHECK_STATUS(stream.read(stream.user, g_dst, 1000, &got), LMC_OK);
        CHECK(got == 0);
        close(fd);
        CHECK_STATUS(stream.read(stream.user, g_dst, 1000, &got), LMC_ERR_READ);
        CHECK_STATUS(lmc_fd_source(&source, -1), LMC_ERR_READ);
        test_nonblocking_pipes();
        CHECK_STATUS(lmc_fd_source(NULL, 0), LMC_ERR_ARGUMENT);
    }
#endif
    (void)memory;
    for (i = 0; i < 4; i++) remove(scratch[i]);
}
#endif

#if defined(LMC_PTHREADS) && defined(__linux__)
static void remove_tree(const char *path)
{
    struct dirent *entry;
    DIR *const dir = opendir(path);
    char below[FILENAME_MAX + 300];
    while (dir && (entry = readdir(dir)) != NULL) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        (void)snprintf(below, sizeof below, "%.*s/%s", FILENAME_MAX, path, entry->d_name);
        remove_tree(below);
    }
    if (dir) closedir(dir);
    remove(path);
}

/* Writes files: "PATH=TEXT" each, until NULL. Directories are made. */
static unsigned count_workers(const char *const *files)
{
    static char root[FILENAME_MAX + 16], path[2 * FILENAME_MAX];
    unsigned n;
    strcpy(root, scratch[3]);
    remove_tree(root);
    mkdir(root, 0777);
    for (; *files; files++) {
        const char *const text = strchr(*files, '=') + 1;
        char *p;
        (void)snprintf(path, sizeof path, "%s/%.*s", root, (int)(text - 1 - *files), *files);
        for (p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
            *p = 0;
            mkdir(path, 0777);
        }
        write_bytes_to(path, text, strlen(text));
    }
    n = t_default_workers(root);
    remove_tree(root);
    return n;
}

#define STATUS "proc/thread-self/status="
#define GROUP "proc/self/cgroup="
#define FS "sys/fs/cgroup/"

/* Affinity and quotas of control groups, of both versions, nested, hidden, and with odd content. */
static void test_default_workers(void)
{
    static char long_lines[20000], long_mask[9000];
    static const struct {
        unsigned n;
        const char *files[8];
    } cases[] = {
        {3, {STATUS "Name:\tx\nCpus_allowed:\t00000000,00000007\nCpus_allowed_list:\t0-2\n"}},
        {16, {STATUS "Cpus_allowed:\tffffffff,ffffffff,ffffffff\n"}},
        {2, {STATUS "Cpus_allowed:\t5"}},
        /* version 2 */
        {2, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=200000 100000\n"}},
        {3, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=200001 100000\n"}},
        {1, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a", FS "a/cpu.max=1000 100000"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=max 100000\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=3200000 100000\n"}},
        {5, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/\n", FS "cpu.max=500000 100000\n"}},
        /* the least of all levels */
        {2,
         {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a/b b/c\n", FS "a/b b/c/cpu.max=max 100000\n",
          FS "a/b b/cpu.max=200000 100000\n", FS "a/cpu.max=400000 100000\n"}},
        {4,
         {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a/b/c\n",
          FS "a/b/c/x=", FS "a/cpu.max=400000 100000\n"}},
        /* a container whose own group stands at the root, under the host's name, or out of sight */
        {3, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/docker/x\n", FS "cpu.max=250000 100000\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/../x\n", FS "cpu.max=100000 100000\n"}},
        /* version 1 */
        {2,
         {STATUS "Cpus_allowed:\tff\n", GROUP "9:cpuset:/\n4:cpuacct,cpu:/d/x\n0::/\n",
          FS "cpu/d/x/cpu.cfs_quota_us=150000\n", FS "cpu/d/x/cpu.cfs_period_us=100000\n",
          FS "cpu/d/cpu.cfs_quota_us=-1\n", FS "cpu/d/cpu.cfs_period_us=100000\n"}},
        {3,
         {STATUS "Cpus_allowed:\tff\n", GROUP "4:cpu:/d/x\n", FS "cpu/cpu.cfs_quota_us=30000\n",
          FS "cpu/cpu.cfs_period_us=10000\n"}},
        {8,
         {STATUS "Cpus_allowed:\tff\n", GROUP "4:cpuset:/d\n5:cpuacct:/d\n1:name=cpu:/d\n",
          FS "cpu/d/cpu.cfs_quota_us=10000\n", FS "cpu/d/cpu.cfs_period_us=10000\n"}},
        /* what no kernel writes, limits nothing */
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max="}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=100000\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=0 100000\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=-5 100000\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=100000 0\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n", FS "a/cpu.max=100000 -1\n"}},
        {8,
         {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n",
          FS "a/cpu.max=99999999999999999999999999 1000\n"}},
        {1,
         {STATUS "Cpus_allowed:\tff\n", GROUP "0::/a\n",
          FS "a/cpu.max=1 99999999999999999999999999\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0\n:\n::\n0:\n0::\n\n::a\ncpu"}},
        {8, {STATUS "Cpus_allowed:\tff\n", GROUP "0::////\n", FS "a/cpu.max=1 1"}},
        {8, {STATUS "Cpus_allowed:\tff\n"}},
        {8, {STATUS "Cpus_allowed:\tff\n", "proc/self/cgroup/x="}},
    };
    static const char *const none[] = {NULL};
    const char *const files[] = {long_mask, long_lines, FS "cpu.max=300000 100000", NULL};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t_note("default workers, case %lu", (unsigned long)i);
        CHECK(count_workers(cases[i].files) == cases[i].n);
    }
    /* without /proc the system says how many CPUs there are */
    CHECK(count_workers(none) >= 1);
    /* lines that do not fit are passed over, and those behind them count */
    memset(long_mask, 'x', sizeof long_mask - 1);
    memcpy(long_mask, STATUS, sizeof STATUS - 1);
    memcpy(long_mask + sizeof long_mask - 30, "\nCpus_allowed:\tff\n", 18);
    memset(long_lines, 'a', sizeof long_lines - 1);
    memcpy(long_lines, GROUP "0::/", sizeof GROUP + 3);
    memcpy(long_lines + sizeof long_lines - 30, "\n0::/\n", 6);
    CHECK(count_workers(files) == 3);
    CHECK(lmc_default_workers() >= 1 && lmc_default_workers() <= 16);
}
#endif

#ifdef LMC_PTHREADS
typedef struct counted_tasks {
    uint32_t counts[1000];
    unsigned n_workers, wrong;
} counted_tasks;

/* No two tasks have one index, so nothing here is shared. */
static void count_task(void *arg, size_t index, unsigned worker)
{
    counted_tasks *const c = (counted_tasks *)arg;
    c->counts[index] += worker < c->n_workers ? 1u : 1000u;
}

static void test_pool(void)
{
    static counted_tasks tasks;
    size_t first = 0, size, i, n;
    unsigned workers;
    lmc_pool *pool = NULL;
    for (workers = 1; workers <= 8; workers++) {
        lmc_compress_options options = LMC_DEFAULTS;
        t_note("pool of %u", workers);
        if (!CHECK_STATUS(lmc_pool_open(&pool, workers, NULL), LMC_OK)) return;
        options.parallel = lmc_pool_parallel(pool);
        CHECK(options.parallel->n_workers >= 1 && options.parallel->n_workers <= workers);
        for (n = 0; n <= 1000; n = 3 * n + 1) {
            memset(&tasks, 0, sizeof tasks);
            tasks.n_workers = options.parallel->n_workers;
            options.parallel->run(options.parallel->user, count_task, &tasks, n,
                                  options.parallel->n_workers);
            for (i = 0; i < 1000; i++) CHECK(tasks.counts[i] == (i < n));
        }
        CHECK_STATUS(lmc_compress(g_enc, sizeof g_enc, &size, g_src, SIZE, LMC_BF16, &options),
                     LMC_OK);
        if (workers == 1) first = lmc_crc32c(0, g_enc, size);
        CHECK(lmc_crc32c(0, g_enc, size) == first); /* the same bytes */
        CHECK_STATUS(lmc_decompress(g_dst, SIZE, &n, g_enc, size, &options), LMC_OK);
        CHECK(n == SIZE && memcmp(g_dst, g_src, SIZE) == 0);
        lmc_pool_free(pool);
    }
    CHECK_STATUS(lmc_pool_open(NULL, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_pool_open(&pool, 0, NULL), LMC_OK);
    CHECK(lmc_pool_parallel(pool)->n_workers == lmc_default_workers());
    lmc_pool_free(pool);
    CHECK_STATUS(lmc_pool_open(&pool, 1025, NULL), LMC_ERR_ARGUMENT);
    CHECK(lmc_pool_parallel(NULL) == NULL);
    lmc_pool_free(NULL);
}
#endif

static void test_arrays(void)
{
    static const uint64_t shape[2] = {100, 30}, odd = 3, huge[2] = {UINT64_MAX, 2};
    static const lmc_text format = {"format", "pt"};
    lmc_array arrays[3];
    lmc_memory memory;
    lmc_sink sink;
    lmc_source source;
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    const lmc_tensor *tensor = NULL;
    size_t number = 9, k;
    t_note("arrays");
    memset(&memory, 0, sizeof memory);
    memset(arrays, 0, sizeof arrays);
    for (k = 0; k < 3; k++) {
        arrays[k].name = k == 0 ? "b" : k == 1 ? "a\"\\\n" : "c";
        arrays[k].dtype = k == 0 ? LMC_BF16 : LMC_F32;
        arrays[k].rank = k == 2 ? 0 : 2;
        arrays[k].shape = shape;
        arrays[k].data = g_src + 20000 * k;
    }
    sink = lmc_memory_sink(&memory);
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_add_arrays(writer, "", arrays, 3, &format, 1), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    source = lmc_memory_source(&memory);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    for (k = 0; k < 3; k++) {
        const size_t size = k == 0 ? 6000 : k == 1 ? 12000 : 4;
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, arrays[k].name, &number, &tensor),
                     LMC_OK);
        CHECK(number == 0 && tensor->size == size && tensor->rank == arrays[k].rank);
        CHECK_STATUS(lmc_reader_read_tensor(reader, 0, tensor, 0, g_dst, size), LMC_OK);
        CHECK(memcmp(g_dst, g_src + 20000 * k, size) == 0);
    }
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, g_dst, 300), LMC_OK);
    CHECK(memcmp(g_dst + 8, "{\"__metadata__\":{\"format\":\"pt\"},\"a\\\"\\\\", 38) == 0);
    lmc_reader_free(reader);
    lmc_memory_free(&memory);
    for (k = 0; k < 7; k++) {
        lmc_array bad[2];
        memcpy(bad, arrays, sizeof bad);
        switch (k) {
        case 0: bad[1].name = bad[0].name; break;
        case 1: bad[0].dtype = LMC_AUTO; break;
        case 2: bad[0].dtype = (enum lmc_dtype)LMC__DTYPE_COUNT; break;
        case 3: bad[0].shape = huge; break;
        case 4: bad[0].dtype = LMC_F4, bad[0].rank = 1, bad[0].shape = &odd; break;
        case 5: bad[0].data = NULL; break;
        default: bad[0].name = NULL; break;
        }
        t_note("bad arrays %lu", (unsigned long)k);
        sink = lmc_memory_sink(&memory);
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        CHECK_STATUS(lmc_writer_add_arrays(writer, "", bad, 2, NULL, 0), LMC_ERR_ARGUMENT);
        lmc_writer_free(writer);
        lmc_memory_free(&memory);
    }
    CHECK_STATUS(lmc_writer_add_arrays(NULL, "", arrays, 2, NULL, 0), LMC_ERR_ARGUMENT);
}

/* Names, keys and values become JSON, so they must be UTF-8; all UTF-8 comes back. */
static void test_texts(void)
{
    static const struct {
        const char *text, *json; /* json NULL: refused */
    } cases[] = {{"", ""},
                 {"a", "a"},
                 {"\"\\\x1f/\x7f", "\\\"\\\\\\u001f/\x7f"},
                 {"\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf"},
                 {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"},
                 {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
                 {"\xff", NULL},
                 {"a\x80", NULL},
                 {"\xc1\xbf", NULL},
                 {"\xc2", NULL},
                 {"\xc2z", NULL},
                 {"\xe0\x9f\xbf", NULL},
                 {"\xe1\x80", NULL},
                 {"\xed\xa0\x80", NULL},
                 {"\xf0\x8f\xbf\xbf", NULL},
                 {"\xf1\x80\x80", NULL},
                 {"\xf4\x90\x80\x80", NULL},
                 {"\xf5\x80\x80\x80", NULL},
                 {NULL, NULL}};
    const uint64_t one = 1;
    size_t i, place;
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        for (place = 0; place < 3; place++) { /* a tensor's name, a key, a value */
            lmc_array array = LMC_ARRAY("w", LMC_U8, 1, NULL, g_src);
            lmc_text texts[2] = {{"k", "v"}, {"l", ""}};
            lmc_memory memory;
            lmc_sink sink;
            lmc_source source;
            lmc_writer *writer = NULL;
            lmc_reader *reader = NULL;
            char wanted[200];
            t_note("text %lu at %lu", (unsigned long)i, (unsigned long)place);
            memset(&memory, 0, sizeof memory);
            array.shape = &one;
            if (place == 0) array.name = cases[i].text;
            else if (place == 1) texts[1].key = cases[i].text;
            else texts[1].value = cases[i].text;
            sink = lmc_memory_sink(&memory);
            CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
            CHECK_STATUS(lmc_writer_add_arrays(writer, "", &array, 1, texts, 2),
                         cases[i].json ? LMC_OK : LMC_ERR_ARGUMENT);
            if (cases[i].json) {
                CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
                source = lmc_memory_source(&memory);
                CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
                snprintf(wanted, sizeof wanted,
                         "{\"__metadata__\":{\"k\":\"v\",\"%s\":\"%s\"},\"%s\":{\"dtype\"",
                         place == 1 ? cases[i].json : "l", place == 2 ? cases[i].json : "",
                         place == 0 ? cases[i].json : "w");
                CHECK_STATUS(lmc_reader_read_file(reader, 0, 8, g_dst, strlen(wanted)), LMC_OK);
                CHECK(memcmp(g_dst, wanted, strlen(wanted)) == 0);
                lmc_reader_free(reader);
            }
            lmc_writer_free(writer);
            if (place == 1 && i == 1) { /* the same key twice */
                texts[1].key = "k";
                memory.size = 0;
                CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
                CHECK_STATUS(lmc_writer_add_arrays(writer, "", &array, 1, texts, 2),
                             LMC_ERR_ARGUMENT);
                lmc_writer_free(writer);
            }
            lmc_memory_free(&memory);
        }
}

/* -- progress, and errors of the caller's own -- */

typedef struct progress {
    uint64_t done, end;
    unsigned calls, cancel_at;
    enum lmc_status with;
} progress;

static enum lmc_status on_progress(void *user, uint64_t done)
{
    progress *const p = (progress *)user;
    CHECK(done > p->done);
    p->done = done;
    return ++p->calls == p->cancel_at ? p->with : LMC_OK;
}

static enum lmc_status discard(void *user, const void *data, size_t size)
{
    (void)data;
    (void)size;
    return user ? *(enum lmc_status *)user : LMC_OK;
}

/* Writes a file of several waves. */
static enum lmc_status write_big(lmc_memory *out, progress *p, const uint8_t *data, size_t size)
{
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_sink sink = lmc_memory_sink(out);
    lmc_writer *writer = NULL;
    lmc_file file;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    file.path = "";
    file.size = size;
    options.progress = on_progress;
    options.user = p;
    status = lmc_writer_open(&writer, &sink, &options);
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_BF16);
    if (status == LMC_OK) status = lmc_writer_write(writer, data, size);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    if (status != LMC_OK) CHECK_STATUS(lmc_writer_finish(writer), status); /* the status stays */
    lmc_writer_free(writer);
    return status;
}

static void test_progress(void)
{
    const size_t size = (size_t)5 << 20;
    uint8_t *const data = (uint8_t *)malloc(size);
    lmc_restore_options options = LMC_DEFAULTS;
    enum lmc_status own = LMC_ERR_LIMIT;
    lmc_memory memory, half;
    lmc_stream stream;
    unsigned n_calls, i;
    progress p;
    if (!data) abort();
    t_note("progress");
    t_fill(data, size, T_GAUSS, LMC_BF16, 2);
    memset(&memory, 0, sizeof memory);
    memset(&half, 0, sizeof half);
    memset(&p, 0, sizeof p);
    CHECK_STATUS(write_big(&memory, &p, data, size), LMC_OK);
    CHECK(p.done == size && p.calls >= 3);
    n_calls = p.calls;
    for (i = 1; i <= n_calls; i++) {
        memset(&p, 0, sizeof p);
        p.cancel_at = i;
        p.with = i % 2 ? LMC_ERR_CANCELLED : LMC_ERR_NOT_FOUND;
        CHECK_STATUS(write_big(&half, &p, data, size), p.with);
        CHECK(p.calls == i);
        lmc_memory_free(&half);
    }
    options.progress = on_progress;
    for (i = 0; i <= n_calls; i++) {
        memset(&p, 0, sizeof p);
        p.cancel_at = i;
        p.with = LMC_ERR_CANCELLED;
        options.user = &p;
        memory.position = 0;
        stream = lmc_memory_stream(&memory);
        if (i == 0) {
            CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_OK);
            CHECK(p.done == size && p.calls >= 3);
            n_calls = p.calls;
        } else CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_CANCELLED);
    }
    /* what a callback returns is what the caller gets */
    options.progress = NULL;
    options.write = discard;
    options.user = &own;
    memory.position = 0;
    stream = lmc_memory_stream(&memory);
    CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &options), LMC_ERR_LIMIT);
    CHECK(strcmp(lmc_status_name(LMC_ERR_CANCELLED), "LMC_ERR_CANCELLED") == 0);
    lmc_memory_free(&memory);
    free(data);
}

/* One call: progress reaches the total, and can end the call at any time; then the old file stays,
 * and there is no other. */
static void test_one_call_progress(void)
{
    const size_t size = (size_t)40 << 20, cap = lmc_compress_bound(size);
    uint8_t *const data = (uint8_t *)calloc(1, size), *const packed = (uint8_t *)malloc(cap),
                   *const back = (uint8_t *)malloc(size);
    lmc_compress_options options = LMC_DEFAULTS;
    size_t packed_size = 0, got = 77;
    unsigned way, i;
    progress p;
    if (!data || !packed || !back) abort();
    t_fill(data + size - SIZE, SIZE, T_GAUSS, LMC_BF16, 2);
    CHECK_STATUS(lmc_compress(packed, cap, &packed_size, data, size, LMC_BF16, NULL), LMC_OK);
    options.progress = on_progress;
    options.user = &p;
    for (way = 0; way < 4; way++) {
        unsigned n_calls = 0;
#ifdef __wasi__
        if (way >= 2) break;
#endif
        t_note("progress of one call, way %u", way);
        for (i = 0; i == 0 || i <= n_calls; i += 1 + n_calls / 3) {
            enum lmc_status status, wanted = i ? LMC_ERR_CANCELLED : LMC_OK;
            memset(&p, 0, sizeof p);
            p.cancel_at = i;
            p.with = LMC_ERR_CANCELLED;
            got = 77;
            if (way == 0) status = lmc_compress(packed, cap, &got, data, size, LMC_BF16, &options);
            else if (way == 1)
                status = lmc_decompress(back, size, &got, packed, packed_size, &options);
#ifndef __wasi__
            else {
                write_bytes_to(scratch[0], way == 2 ? data : packed, way == 2 ? size : packed_size);
                write_bytes_to(scratch[2], "old", 3);
                status = way == 2 ? lmc_compress_file(scratch[2], scratch[0], LMC_BF16, &options)
                                  : lmc_decompress_file(scratch[2], scratch[0], &options);
                CHECK(read_bytes_of(scratch[3], g_dst, 1) == SIZE_MAX); /* no part */
                CHECK((read_bytes_of(scratch[2], g_dst, 4) == 3 && memcmp(g_dst, "old", 3) == 0) ==
                      (i != 0));
                remove(scratch[0]);
                remove(scratch[2]);
            }
#endif
            CHECK_STATUS(status, wanted);
            if (i == 0) {
                n_calls = p.calls;
                CHECK(p.done == size && n_calls >= 3);
                if (way == 1) CHECK(got == size && memcmp(back, data, size) == 0);
            } else {
                CHECK(p.calls == i);
                if (way < 2) CHECK(got == 77);
            }
        }
    }
    free(data);
    free(packed);
    free(back);
}

/* -- options of another 1.x -- */

/* Calls a function with these options; LMC_OK: the result is that of the defaults. */
typedef enum lmc_status (*use_options)(const void *options);

static enum lmc_status use_block_encode(const void *options)
{
    static uint8_t ws[1 << 18], dst[200];
    size_t size;
    return lmc_block_encode(dst, sizeof dst, &size, g_src, 64, (const lmc_block_options *)options,
                            ws, sizeof ws);
}
static enum lmc_status use_block_decode(const void *options)
{
    static uint8_t ws[1 << 18], dst[200];
    lmc_block_options plain = LMC_BLOCK_OPTIONS(LMC_U8);
    size_t size;
    CHECK_STATUS(lmc_block_encode(dst, sizeof dst, &size, g_src, 64, &plain, ws, sizeof ws),
                 LMC_OK);
    return lmc_block_decode(g_dst, 64, &size, dst, size, (const lmc_block_options *)options, ws,
                            sizeof ws);
}
static enum lmc_status use_tensor_encode(const void *options)
{
    const lmc_tensor_options *const o = (const lmc_tensor_options *)options;
    size_t size;
    const enum lmc_status status = lmc_tensor_encode(g_enc, 200, &size, g_src, 64, o, NULL, 0);
    CHECK((lmc_tensor_bound(64, o) != SIZE_MAX) == (status == LMC_OK));
    CHECK((lmc_tensor_workspace_size(o) != 0) == (status == LMC_OK));
    return status;
}
static enum lmc_status use_tensor_decode(const void *options)
{
    lmc_tensor_options plain = LMC_TENSOR_OPTIONS(LMC_U8);
    enum lmc_status status;
    size_t size;
    CHECK_STATUS(lmc_tensor_encode(g_enc, 200, &size, g_src, 64, &plain, NULL, 0), LMC_OK);
    status =
        lmc_tensor_decode(g_dst, 64, g_enc, size, (const lmc_tensor_options *)options, NULL, 0);
    CHECK_STATUS(lmc_tensor_decode_range(g_dst, 9, g_enc, size, 5, 64,
                                         (const lmc_tensor_options *)options, NULL, 0),
                 status);
    return status;
}
#ifndef LMC_NO_QUANTIZE
static enum lmc_status use_quantizer(const void *options)
{
    lmc_memory memory;
    const lmc_source source = source_of(&memory, g_src, 64);
    lmc_quantizer *q = NULL;
    const enum lmc_status status =
        lmc_quantizer_fit(&q, &source, (const lmc_quantizer_options *)options);
    CHECK((q != NULL) == (status == LMC_OK));
    lmc_quantizer_free(q);
    return status;
}
#endif
static enum lmc_status use_writer(const void *options)
{
    lmc_sink sink = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    enum lmc_status status;
    sink.write = discard;
    sink.user = NULL;
    status = lmc_writer_open(&writer, &sink, (const lmc_writer_options *)options);
    CHECK((writer != NULL) == (status == LMC_OK));
    lmc_writer_free(writer);
    return status;
}
static lmc_memory options_memory; /* an LMC file */
static enum lmc_status use_restore(const void *options)
{
    lmc_stream stream = lmc_memory_stream(&options_memory);
    options_memory.position = 0;
    return lmc_snapshot_restore(&stream, NULL, (const lmc_restore_options *)options);
}
static enum lmc_status use_reader(const void *options)
{
    const lmc_source source = lmc_memory_source(&options_memory);
    lmc_reader *reader = NULL;
    const enum lmc_status status =
        lmc_reader_open(&reader, &source, (const lmc_reader_options *)options);
    lmc_reader_free(reader);
    return status;
}
static enum lmc_status use_salvage(const void *options)
{
    const lmc_source source = lmc_memory_source(&options_memory);
    lmc_salvage *salvage = NULL;
    const enum lmc_status status =
        lmc_salvage_open(&salvage, &source, (const lmc_reader_options *)options);
    lmc_salvage_free(salvage);
    return status;
}
static enum lmc_status use_compress(const void *options)
{
    const lmc_compress_options *const o = (const lmc_compress_options *)options;
    enum lmc_status status;
    uint64_t told;
    size_t size;
    status = lmc_compress(g_enc, sizeof g_enc, &size, g_src, 64, LMC_U8, o);
    CHECK_STATUS(lmc_decompressed_size(options_memory.data, options_memory.size, &told, NULL, o),
                 status);
    CHECK_STATUS(lmc_decompress(g_dst, SIZE, &size, options_memory.data, options_memory.size, o),
                 status);
#ifndef __wasi__
    write_bytes_to(scratch[0], options_memory.data, options_memory.size);
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[0], o), status);
    CHECK_STATUS(lmc_compress_file(scratch[2], scratch[0], LMC_U8, o), status);
    remove(scratch[0]);
    remove(scratch[2]);
#endif
    return status;
}

#define ENDS_WITH(type, member)                                                                    \
    (offsetof(type, member) + sizeof(((type *)0)->member) == sizeof(type) &&                       \
     offsetof(type, struct_size) == 0)

/* An older program's options are shorter, down to 1.0's first member; a newer program's options may
 * ask for features that are not here. */
static void test_options(void)
{
    static const struct {
        const char *name;
        use_options use;
        size_t size;
        int ends_with_member;
    } all[] = {{"block_encode", use_block_encode, sizeof(lmc_block_options),
                ENDS_WITH(lmc_block_options, prediction_size)},
               {"block_decode", use_block_decode, sizeof(lmc_block_options), 1},
               {"tensor_encode", use_tensor_encode, sizeof(lmc_tensor_options),
                ENDS_WITH(lmc_tensor_options, row_size)},
               {"tensor_decode", use_tensor_decode, sizeof(lmc_tensor_options), 1},
#ifndef LMC_NO_QUANTIZE
               {"quantizer", use_quantizer, sizeof(lmc_quantizer_options),
                ENDS_WITH(lmc_quantizer_options, allocator)},
#endif
               {"writer", use_writer, sizeof(lmc_writer_options),
                ENDS_WITH(lmc_writer_options, allocator)},
               {"restore", use_restore, sizeof(lmc_restore_options),
                ENDS_WITH(lmc_restore_options, allocator)},
               {"reader", use_reader, sizeof(lmc_reader_options),
                ENDS_WITH(lmc_reader_options, allocator)},
               {"salvage", use_salvage, sizeof(lmc_reader_options), 1},
               {"compress", use_compress, sizeof(lmc_compress_options),
                ENDS_WITH(lmc_compress_options, allocator)}};
    const lmc_sink sink = lmc_memory_sink(&options_memory);
    size_t i, size;
    CHECK_STATUS(lmc_compress(g_enc, sizeof g_enc, &size, g_src, 5000, LMC_BF16, NULL), LMC_OK);
    CHECK_STATUS(sink.write(sink.user, g_enc, size), LMC_OK);
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        size_t sizes[11], k;
        sizes[0] = 0;
        sizes[1] = sizeof(size_t);
        sizes[2] = all[i].size - sizeof(void *);
        sizes[3] = all[i].size;
        sizes[4] = all[i].size + sizeof(size_t);
        sizes[5] = 4096;
        sizes[6] = 4097;
        sizes[7] = 1;
        sizes[8] = sizeof(size_t) + 1; /* these cut a member, or end behind half of one */
        sizes[9] = all[i].size - 1;
        sizes[10] = all[i].size + sizeof(size_t) / 2;
        CHECK(all[i].ends_with_member); /* no padding that a newer member could hide in */
        for (k = 0; k < 11; k++) {
            const size_t here = k == 0 ? all[i].size : sizes[k] < 8 ? 8 : sizes[k];
            uint8_t *const options = (uint8_t *)calloc(1, here); /* so a read behind it is found */
            enum lmc_status wanted;
            if (!options) abort();
            t_note("options of %s, %lu bytes", all[i].name, (unsigned long)sizes[k]);
            memcpy(options, &sizes[k], sizeof sizes[k]);
            wanted = k < 6 ? LMC_OK : LMC_ERR_ARGUMENT;
#ifndef LMC_NO_QUANTIZE
            if (all[i].use == use_quantizer) { /* which has no default of bits and bound */
                if (here >= 16) ((lmc_quantizer_options *)(void *)options)->bits = 8;
                else wanted = LMC_ERR_ARGUMENT;
            }
#endif
            CHECK_STATUS(all[i].use(options), wanted);
            options[here - 1] = 1; /* the last byte: of a pointer, or of an unknown member */
            if (k == 4 || k == 5) CHECK_STATUS(all[i].use(options), LMC_ERR_UNSUPPORTED);
            free(options);
        }
    }
    lmc_memory_free(&options_memory);
}

/* -- reserved words: zero in results, and they must be zero in what is written -- */

#define CHECK_RESERVED(info)                                                                       \
    CHECK(((info)->reserved[0] | (info)->reserved[1] | (info)->reserved[2] |                       \
           (info)->reserved[3]) == 0)

static void refuse_reserved(void)
{
    const uint64_t shape = 4;
    unsigned i;
    for (i = 0; i < 8; i++) {
        lmc_memory memory = LMC_DEFAULTS;
        const lmc_sink sink = lmc_memory_sink(&memory);
        lmc_tensor tensor = LMC_DEFAULTS;
        lmc_file file = LMC_DEFAULTS;
        lmc_writer *writer = NULL;
        tensor.name = "w";
        tensor.dtype = "U8";
        tensor.rank = 1;
        tensor.shape = &shape;
        tensor.size = shape;
        file.path = "f";
        file.size = shape;
        file.n_tensors = 1;
        file.tensors = &tensor;
        (i < 4 ? tensor.reserved : file.reserved)[i % 4] = (uint64_t)1 << 8 * i;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_ERR_UNSUPPORTED);
        lmc_writer_free(writer);
        lmc_memory_free(&memory);
    }
}

/* Structs of callbacks with reserved words that are not zero: of a newer program. */
static void refuse_reserved_of_callbacks(void)
{
    unsigned i, n_workers = 2;
    for (i = 0; i < 2; i++) {
        static const uint8_t bytes[64] = {0};
        const uint64_t word = (uint64_t)1 << (i ? 63 : 0);
        lmc_memory memory = LMC_DEFAULTS, out = LMC_DEFAULTS;
        lmc_sink sink = lmc_memory_sink(&out);
        lmc_source source;
        lmc_stream stream;
        lmc_reader *reader = NULL;
        lmc_writer *writer = NULL;
        lmc_base base = lmc_reader_base(NULL);
        lmc_parallel parallel = t_parallel(&n_workers);
        lmc_writer_options options = LMC_WRITER_OPTIONS();
        lmc_tensor_options tensor_options = LMC_TENSOR_OPTIONS(LMC_U8);
        lmc_snapshot_extent extent;
        lmc_snapshot_info info;
        uint8_t coded[200];
        size_t size;
        lmc_file file = LMC_DEFAULTS;
        uint8_t id[LMC_FINGERPRINT_SIZE];
        memory.data = (uint8_t *)(uintptr_t)bytes;
        memory.size = sizeof bytes;
        source = lmc_memory_source(&memory);
        stream = lmc_memory_stream(&memory);
        source.reserved[i] = stream.reserved[i] = base.reserved[i] = parallel.reserved[i] = word;
        CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_ERR_UNSUPPORTED);
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, NULL), LMC_ERR_UNSUPPORTED);
        CHECK_STATUS(lmc_snapshot_probe(&source, &info), LMC_ERR_UNSUPPORTED);
        CHECK_STATUS(lmc_snapshot_measure(&source, &extent), LMC_ERR_UNSUPPORTED);
        file.path = "f";
        file.size = sizeof bytes;
        CHECK_STATUS(lmc_file_identify(&file, NULL, &stream, NULL, NULL), LMC_ERR_UNSUPPORTED);
        CHECK_STATUS(lmc_base_identify(&base, id, NULL), LMC_ERR_UNSUPPORTED);
        options.base = &base;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_ERR_UNSUPPORTED);
        options.base = NULL;
        options.parallel = &parallel;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_ERR_UNSUPPORTED);
        tensor_options.parallel = &parallel;
        CHECK_STATUS(lmc_tensor_encode(coded, sizeof coded, &size, bytes, sizeof bytes,
                                       &tensor_options, NULL, 0),
                     LMC_ERR_UNSUPPORTED);
        CHECK_STATUS(lmc_tensor_decode(coded, 64, bytes, 64, &tensor_options, NULL, 0),
                     LMC_ERR_UNSUPPORTED);
        CHECK(lmc_tensor_workspace_size(&tensor_options) == 0);
        options.parallel = NULL;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_AUTO), LMC_OK);
        CHECK_STATUS(lmc_writer_write_stream(writer, &stream), LMC_ERR_UNSUPPORTED);
        lmc_writer_free(writer);
        sink.reserved[i] = word;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_ERR_UNSUPPORTED);
        lmc_memory_free(&out);
    }
}

static void *reallocate(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

/* An allocator whose reserved words are not zero, or that has no function, is refused. */
static void refuse_allocators(void)
{
    unsigned i;
    for (i = 0; i < 4; i++) {
        lmc_memory out = LMC_DEFAULTS;
        const lmc_sink sink = lmc_memory_sink(&out);
        const lmc_source source = lmc_memory_source(&out);
        const lmc_stream stream = lmc_memory_stream(&out);
        const lmc_base base = lmc_reader_base(NULL);
        lmc_allocator allocator = LMC_DEFAULTS;
        lmc_reader *reader = NULL;
        lmc_writer *writer = NULL;
        lmc_writer_options writer_options = LMC_WRITER_OPTIONS();
        lmc_reader_options reader_options = LMC_READER_OPTIONS();
        lmc_restore_options restore_options = LMC_RESTORE_OPTIONS();
        lmc_file file = LMC_DEFAULTS;
        uint8_t id[LMC_FINGERPRINT_SIZE];
        const enum lmc_status wanted = i == 3 ? LMC_ERR_ARGUMENT : LMC_ERR_UNSUPPORTED;
        if (i != 3) allocator.reallocate = reallocate;
        if (i < 2) allocator.reserved[i] = 1;
        writer_options.allocator = reader_options.allocator = restore_options.allocator =
            &allocator;
        file.path = "f";
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &writer_options), i == 2 ? LMC_OK : wanted);
        lmc_writer_free(writer);
        if (i == 2) {
            lmc_memory_free(&out);
            continue;
        }
        CHECK_STATUS(lmc_reader_open(&reader, &source, &reader_options), wanted);
        CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &restore_options), wanted);
        CHECK_STATUS(lmc_file_identify(&file, NULL, &stream, NULL, &allocator), wanted);
        CHECK_STATUS(lmc_base_identify(&base, id, &allocator), wanted);
    }
}

/* Two tensors, of which the second equals the first one of file 0; hints of both. */
static void write_two(lmc_writer *writer, const char *path, const lmc_tensor_hints *hints)
{
    const uint64_t shape = 20000;
    lmc_tensor tensors[2];
    lmc_file file = LMC_DEFAULTS;
    tensors[0] = t_tensor("a", "U8", 1, &shape, 0, shape);
    tensors[1] = t_tensor("b", "U8", 1, &shape, shape, shape);
    file.path = path;
    file.size = 2 * shape;
    file.n_tensors = 2;
    file.tensors = tensors;
    if (hints) { /* in any order, and the last ones count */
        const lmc_tensor_hints none = LMC_TENSOR_HINTS();
        CHECK_STATUS(lmc_writer_add_hints(writer, 1, &none), LMC_OK);
        CHECK_STATUS(lmc_writer_add_hints(writer, 0, hints), LMC_OK);
        CHECK_STATUS(lmc_writer_add_hints(writer, 1, hints + 1), LMC_OK);
    }
    CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_U8), LMC_OK);
    CHECK_STATUS(lmc_writer_write(writer, g_src, 40000), LMC_OK);
    CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
}

static enum lmc_status read_own(void *user, size_t file_number, uint64_t offset, void *dst,
                                size_t size)
{
    (void)user, (void)file_number;
    memcpy(dst, g_src + offset, size);
    return LMC_OK;
}

/* A number may be any size_t and takes no memory; hints find their tensors, also in a copied file;
 * words of later versions are refused. */
static void test_hints(void)
{
    const size_t numbers[4] = {2, 100, (size_t)1 << 28, SIZE_MAX};
    lmc_memory plain = LMC_DEFAULTS;
    lmc_sink sink = lmc_memory_sink(&plain);
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    lmc_source source;
    size_t sizes[3];
    unsigned i;
    t_note("hints");
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    write_two(writer, "f", NULL);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    source = lmc_memory_source(&plain);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    for (i = 0; i < 3; i++) { /* file 0, and without hints, with hints, copied with hints */
        lmc_memory out = LMC_DEFAULTS;
        lmc_writer_options options = LMC_WRITER_OPTIONS();
        lmc_tensor_hints hints[2];
        lmc_twin twins[2];
        sink = lmc_memory_sink(&out);
        options.read_back = read_own;
        memset(twins, 0, sizeof twins);
        twins[1].offset = 20000;
        hints[0] = hints[1] = LMC_TENSOR_HINTS();
        hints[0].twin = &twins[0];
        hints[1].twin = &twins[1];
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
        write_two(writer, "e", NULL);
        if (i < 2) write_two(writer, "f", i ? hints : NULL);
        else {
            CHECK_STATUS(lmc_writer_add_hints(writer, 1, &hints[1]), LMC_OK);
            CHECK_STATUS(lmc_writer_add_hints(writer, 0, &hints[0]), LMC_OK);
            CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), LMC_OK);
        }
        CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
        lmc_writer_free(writer);
        sizes[i] = out.size;
        lmc_memory_free(&out);
    }
    CHECK(sizes[0] - sizes[1] > sizes[0] / 3 && sizes[2] == sizes[1]);
    for (i = 0; i < 8; i++) {
        const uint64_t shape = 64;
        lmc_memory out = LMC_DEFAULTS;
        lmc_tensor_hints hints = LMC_TENSOR_HINTS();
        lmc_twin twin = LMC_DEFAULTS;
        lmc_base_part parts[2] = {LMC_DEFAULTS, LMC_DEFAULTS};
        lmc_array array = LMC_ARRAY("w", LMC_U8, 1, &shape, g_src);
        const enum lmc_status wanted = i < 4 ? LMC_ERR_ARGUMENT : LMC_ERR_UNSUPPORTED;
        sink = lmc_memory_sink(&out);
        twin.reserved[0] = array.reserved[1] = parts[1].reserved[1] = i > 3;
        if (i == 4) hints.twin = &twin;
        hints.base_parts = parts;
        hints.n_base_parts = i == 5 ? 2 : 1;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        if (i < 6)
            CHECK_STATUS(lmc_writer_add_hints(writer, i < 4 ? numbers[i] : 1, &hints), LMC_OK);
        if (i < 6) CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), wanted);
        else CHECK_STATUS(lmc_writer_add_arrays(writer, "f", &array, 1, NULL, 0), wanted);
        lmc_writer_free(writer);
        lmc_memory_free(&out);
    }
    lmc_reader_free(reader);
    lmc_memory_free(&plain);
}

/* Numbers that no version of the library has. */
static void refuse_grouping(void)
{
    lmc_memory out = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&out);
    lmc_writer *writer = NULL;
    int i;
    for (i = -1; i <= 3; i++) {
        lmc_writer_options options = LMC_WRITER_OPTIONS();
        options.group_files = (enum lmc_grouping)i;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &options),
                     i >= LMC_GROUP_NONE && i <= LMC_GROUP_ALL ? LMC_OK : LMC_ERR_ARGUMENT);
        if (i >= LMC_GROUP_NONE && i <= LMC_GROUP_ALL) lmc_writer_free(writer);
    }
    lmc_memory_free(&out);
}

/* Hints have the numbers of the file, and arrays are sorted in it: a hint would reach another
 * tensor. Memory that the sink did not allocate does not grow. */
static void refuse_misuse(void)
{
    uint8_t own[16] = {0};
    const uint64_t shape = 16;
    lmc_array array = LMC_DEFAULTS;
    const lmc_tensor_hints hints = LMC_TENSOR_HINTS();
    lmc_memory memory = LMC_DEFAULTS, borrowed = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&memory), onto = lmc_memory_sink(&borrowed);
    lmc_writer *writer = NULL;
    array.name = "w";
    array.dtype = LMC_U8;
    array.rank = 1;
    array.shape = &shape;
    array.data = own;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_add_hints(writer, 0, &hints), LMC_OK);
    CHECK_STATUS(lmc_writer_add_arrays(writer, "f", &array, 1, NULL, 0), LMC_ERR_ARGUMENT);
    lmc_writer_free(writer);
    lmc_memory_free(&memory);
    borrowed.data = own;
    borrowed.size = sizeof own;
    CHECK_STATUS(onto.write(onto.user, own, 1), LMC_ERR_ARGUMENT);
    CHECK(borrowed.data == own && borrowed.size == sizeof own);
    lmc_memory_free(&borrowed); /* which is not freed */
}

static void test_reserved(void)
{
    const lmc_block_options block_options = LMC_BLOCK_OPTIONS(LMC_U8);
    const lmc_array array = LMC_ARRAY("w", LMC_U8, 1, NULL, g_src);
    lmc_array arrays[1];
    const uint64_t shape = 5000;
    lmc_memory memory = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&memory);
    lmc_source source;
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    lmc_block_info block;
    lmc_writer_info written;
    lmc_snapshot_info info;
    static uint8_t ws[8 << 20];
    size_t size;
    refuse_reserved();
    refuse_reserved_of_callbacks();
    refuse_allocators();
    refuse_grouping();
    test_hints();
    refuse_misuse();
    memset(&block, 255, sizeof block);
    memset(&written, 255, sizeof written);
    memset(&info, 255, sizeof info);
    CHECK_STATUS(
        lmc_block_encode(g_enc, sizeof g_enc, &size, g_src, 5000, &block_options, ws, sizeof ws),
        LMC_OK);
    CHECK_STATUS(lmc_block_parse(g_enc, size, 0, &block), LMC_OK);
    CHECK_RESERVED(&block);
    arrays[0] = array;
    arrays[0].shape = &shape;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_add_arrays(writer, "f", arrays, 1, NULL, 0), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_get_info(writer, &written), LMC_OK);
    CHECK_RESERVED(&written);
    lmc_writer_free(writer);
    CHECK_STATUS(lmc_header_parse(memory.data, memory.size, &info), LMC_OK);
    CHECK_RESERVED(&info);
    memset(&info, 255, sizeof info);
    source = lmc_memory_source(&memory);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_get_info(reader, &info), LMC_OK);
    CHECK_RESERVED(&info);
    CHECK_RESERVED(lmc_reader_get_file(reader, 0));
    CHECK_RESERVED(&lmc_reader_get_file(reader, 0)->tensors[0]);
    lmc_reader_free(reader);
    {
        lmc_salvage *salvage = NULL;
        lmc_salvage_range range;
        lmc_damage damage;
        memset(&range, 255, sizeof range);
        memset(&damage, 255, sizeof damage);
        CHECK_STATUS(lmc_salvage_open(&salvage, &source, NULL), LMC_OK);
        CHECK_STATUS(lmc_salvage_next(salvage, &range), LMC_OK);
        CHECK_RESERVED(&range);
        CHECK_STATUS(lmc_salvage_get_damage(salvage, &damage), LMC_OK);
        CHECK_RESERVED(&damage);
        lmc_salvage_free(salvage);
    }
#ifndef LMC_NO_QUANTIZE
    {
        static const float moments[1000] = {1.0f, 2.0f};
        lmc_quantizer_options options = LMC_DEFAULTS;
        lmc_quantizer_info about;
        lmc_quantizer *quantizer = NULL;
        lmc_memory elements = LMC_DEFAULTS;
        elements.data = (uint8_t *)(uintptr_t)moments;
        elements.size = sizeof moments;
        source = lmc_memory_source(&elements);
        options.dtype = LMC_F32;
        options.bits = 8;
        memset(&about, 255, sizeof about);
        CHECK_STATUS(lmc_quantizer_fit(&quantizer, &source, &options), LMC_OK);
        CHECK_STATUS(lmc_quantizer_get_info(quantizer, &about), LMC_OK);
        CHECK_RESERVED(&about);
        lmc_quantizer_free(quantizer);
    }
#endif
    lmc_memory_free(&memory);
}

/* -- `without`: what a decoder may lack -- */

/* The number of blocks with zeros apart among the blocks of g_enc. */
static unsigned count_zeros_apart(size_t size)
{
    unsigned n = 0, number;
    size_t at = 0;
    for (number = 0; at < size; number++) {
        lmc_block_info info;
        CHECK_STATUS(lmc_block_parse(g_enc + at, size - at, number, &info), LMC_OK);
        if (info.encoded_size == 0) break;
        n += g_enc[at + 2] >> 5 == 3; /* Layout 3 (spec 5) */
        at += info.encoded_size;
    }
    return n;
}

/* Zeros can be kept out in each layer; other bits are no obstacle, unless an option needs them. */
static void test_without(void)
{
    static const uint64_t without[4] = {0, ~LMC_FEATURE_ZEROS, LMC_FEATURE_ZEROS, UINT64_MAX};
    static uint8_t ws[8 << 20];
    const size_t n = 32768; /* two elements of three are zero */
    size_t sizes[4][3], i, k;
    t_note("without");
    t_fill(g_src, n, T_GAUSS, LMC_BF16, 5);
    for (i = 0; i < n; i++)
        if (i / 2 % 3) g_src[i] = 0;
    for (i = 0; i < 4; i++) {
        const int may = !(without[i] & LMC_FEATURE_ZEROS);
        lmc_block_options block = LMC_BLOCK_OPTIONS(LMC_BF16);
        lmc_tensor_options tensor = LMC_TENSOR_OPTIONS(LMC_BF16);
        lmc_compress_options compress = LMC_COMPRESS_OPTIONS();
        lmc_snapshot_info info;
        block.without = tensor.without = compress.without = without[i];
        tensor.log2_block = 14;
        CHECK_STATUS(
            lmc_block_encode(g_enc, sizeof g_enc, &sizes[i][0], g_src, n, &block, ws, sizeof ws),
            LMC_OK);
        CHECK(count_zeros_apart(sizes[i][0]) == (may ? 1 : 0));
        CHECK_STATUS(lmc_block_decode(g_dst, n, &k, g_enc, sizes[i][0], &block, ws, sizeof ws),
                     LMC_OK);
        CHECK(k == n && memcmp(g_dst, g_src, n) == 0);
        CHECK_STATUS(
            lmc_tensor_encode(g_enc, sizeof g_enc, &sizes[i][1], g_src, n, &tensor, NULL, 0),
            LMC_OK);
        CHECK(count_zeros_apart(sizes[i][1]) == (may ? n / 2 >> 14 : 0));
        CHECK_STATUS(lmc_tensor_decode(g_dst, n, g_enc, sizes[i][1], &tensor, NULL, 0), LMC_OK);
        CHECK(memcmp(g_dst, g_src, n) == 0);
        CHECK_STATUS(lmc_compress(g_enc, sizeof g_enc, &sizes[i][2], g_src, n, LMC_BF16, &compress),
                     LMC_OK);
        CHECK_STATUS(lmc_header_parse(g_enc, sizes[i][2], &info), LMC_OK);
        CHECK(info.features ==
              ((LMC_FEATURE_ZEROS | LMC_FEATURE_MATRIX | LMC_FEATURE_CODES) & ~without[i]));
        CHECK_STATUS(lmc_decompress(g_dst, n, &k, g_enc, sizes[i][2], &compress), LMC_OK);
        CHECK(k == n && memcmp(g_dst, g_src, n) == 0);
        for (k = 0; k < 3; k++) /* a block without zeros apart is larger */
            CHECK(may ? sizes[i][k] == sizes[0][k] : sizes[i][k] > sizes[0][k] + n / 100);
    }
}

static const lmc_file *get_none(void *user, size_t file_number)
{
    (void)user, (void)file_number;
    return NULL;
}

/* Bits that other options need, bit by bit: ARGUMENT. */
static void test_contradictions(void)
{
    lmc_base base = LMC_DEFAULTS; /* without files */
    unsigned bit;
    base.get_file = get_none;
    base.read = read_own;
    for (bit = 0; bit < 64; bit++) {
        lmc_memory out = LMC_DEFAULTS;
        const lmc_sink sink = lmc_memory_sink(&out);
        unsigned option;
        for (option = 0; option < 3; option++) { /* in the order of the bits that they need */
            lmc_writer_options options = LMC_WRITER_OPTIONS();
            lmc_writer *writer = NULL;
            t_note("without bit %u, option %u", bit, option);
            options.without = (uint64_t)1 << bit;
            if (option == 0) options.base = &base;
            if (option == 1) options.read_back = read_own;
            if (option == 2) options.may_quantize = 1;
            CHECK_STATUS(lmc_writer_open(&writer, &sink, &options),
                         bit == option ? LMC_ERR_ARGUMENT : LMC_OK);
            CHECK((writer == NULL) == (bit == option));
            lmc_writer_free(writer);
        }
        lmc_memory_free(&out);
    }
}

/* -- what the rules of lmc.h say of pointers -- */

/* A function that makes an object leaves NULL on errors: whatever was there, it can be freed. */
static void test_failed_objects(void)
{
    static const uint8_t bytes[100] = {0};
    lmc_memory memory, none = LMC_DEFAULTS;
    const lmc_source source = source_of(&memory, bytes, sizeof bytes);
    lmc_sink sink = lmc_memory_sink(&none);
    lmc_writer *writer = (lmc_writer *)(void *)g_src;
    lmc_reader *reader = (lmc_reader *)(void *)g_src, *shared = reader;
    lmc_salvage *salvage = (lmc_salvage *)(void *)g_src;
    lmc_writer_options options = LMC_WRITER_OPTIONS();
    t_note("failed objects");
    options.struct_size = 1;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_ERR_ARGUMENT);
    CHECK(writer == NULL);
    writer = (lmc_writer *)(void *)g_src;
    sink.write = NULL;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_ERR_ARGUMENT);
    CHECK(writer == NULL);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_ERR_NOT_LMC);
    CHECK(reader == NULL);
    CHECK_STATUS(lmc_reader_open_shared(&shared, NULL), LMC_ERR_ARGUMENT);
    CHECK(shared == NULL);
    CHECK_STATUS(lmc_salvage_open(&salvage, &source, NULL), LMC_ERR_NOT_LMC);
    CHECK(salvage == NULL);
#ifdef LMC_PTHREADS
    {
        lmc_pool *pool = (lmc_pool *)(void *)g_src;
        CHECK_STATUS(lmc_pool_open(&pool, 1025, NULL), LMC_ERR_ARGUMENT);
        CHECK(pool == NULL);
        CHECK_STATUS(lmc_pool_open(NULL, 1, NULL), LMC_ERR_ARGUMENT);
    }
#endif
#ifndef LMC_NO_QUANTIZE
    {
        lmc_quantizer *quantizer = (lmc_quantizer *)(void *)g_src;
        CHECK_STATUS(lmc_quantizer_fit(&quantizer, &source, NULL), LMC_ERR_ARGUMENT);
        CHECK(quantizer == NULL);
        quantizer = (lmc_quantizer *)(void *)g_src;
        CHECK_STATUS(lmc_quantizer_recover(&quantizer, NULL, 0, NULL, NULL, NULL),
                     LMC_ERR_ARGUMENT);
        CHECK(quantizer == NULL);
    }
#endif
}

/* Functions that return structs of callbacks cannot fail; whoever gets such a struct does. */
static void test_no_memory(void)
{
    const lmc_sink sinks[2] = {lmc_memory_sink(NULL), lmc_stdio_sink(NULL)};
    const lmc_stream streams[2] = {lmc_memory_stream(NULL), lmc_stdio_stream(NULL)};
    const lmc_source source = lmc_memory_source(NULL);
    lmc_writer *writer;
    lmc_reader *reader;
    unsigned i;
    t_note("no memory");
    for (i = 0; i < 2; i++) {
        CHECK_STATUS(lmc_writer_open(&writer, &sinks[i], NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_snapshot_restore(&streams[i], NULL, NULL), LMC_ERR_ARGUMENT);
    }
    CHECK(source.size == 0);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_ERR_ARGUMENT);
}

/* Numbers that no version of the library has, of dtypes and widths. */
static void test_unknown_numbers(void)
{
    static const int dtypes[5] = {-1, LMC__DTYPE_COUNT, 99, INT_MAX, INT_MIN};
    unsigned i;
    for (i = 0; i < 5; i++) {
        const enum lmc_dtype dtype = (enum lmc_dtype)dtypes[i];
        lmc_tensor_options options = LMC_TENSOR_OPTIONS(dtype);
        size_t size;
        t_note("dtype %d", dtypes[i]);
        CHECK(lmc_dtype_name(dtype) == NULL && lmc_dtype_bits(dtype) == 0);
        CHECK(lmc_dtype_width(dtype) == 0);
        CHECK_STATUS(lmc_compress(g_enc, sizeof g_enc, &size, g_src, 64, dtype, NULL),
                     LMC_ERR_ARGUMENT);
        CHECK(lmc_tensor_workspace_size(&options) == 0);
        CHECK(lmc_tensor_bound(64, &options) == SIZE_MAX);
        CHECK_STATUS(lmc_tensor_encode(g_enc, sizeof g_enc, &size, g_src, 64, &options, NULL, 0),
                     LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_tensor_decode(g_dst, 64, g_src, 64, &options, NULL, 0), LMC_ERR_ARGUMENT);
#ifndef __wasi__
        write_bytes_to(scratch[0], g_src, 64);
        CHECK_STATUS(lmc_compress_file(scratch[2], scratch[0], dtype, NULL), LMC_ERR_ARGUMENT);
        remove(scratch[0]);
#endif
    }
    for (i = 0; i < 20; i++)
        CHECK((lmc_block_workspace_size(10, i) != 0) == (i == 1 || i == 2 || i == 4 || i == 8));
    CHECK(lmc_block_workspace_size(10, UINT_MAX) == 0 && lmc_block_workspace_size(0, 1) == 0);
}

#ifndef LMC_NO_QUANTIZE
/* One of bits, n_codes, and measure with bound: each at its limits, and beyond. */
static void test_quantizer_options(void)
{
    static const struct {
        unsigned bits, n_codes;
        int measure;
        double bound, eps;
        unsigned generation;
        enum lmc_status wanted;
    } all[] = {{0, 0, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {3, 0, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {4, 0, 0, 0, 0, 0, LMC_OK},
               {8, 0, 0, 0, 0, 0, LMC_OK},
               {9, 0, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {0, 1, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {0, 2, 0, 0, 0, 0, LMC_OK},
               {0, 256, 0, 0, 0, 0, LMC_OK},
               {0, 257, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {8, 16, 0, 0, 0, 0, LMC_ERR_ARGUMENT},
               {0, 0, 3, 0.5, 0, 0, LMC_OK},
               {0, 0, 3, 0, 0, 0, LMC_ERR_ARGUMENT},
               {0, 0, 3, 1, 0, 0, LMC_ERR_ARGUMENT},
               {0, 0, 3, -1, 0, 0, LMC_ERR_ARGUMENT},
               {0, 0, 0, 0.5, 0, 0, LMC_ERR_ARGUMENT},
               {0, 0, 4, 0.5, 0, 0, LMC_ERR_ARGUMENT},
               {8, 0, 0, 0, 1, 0, LMC_OK},
               {8, 0, 0, 0, -1e-9, 0, LMC_ERR_ARGUMENT},
               {8, 0, 0, 0, 0, 254, LMC_OK},
               {8, 0, 0, 0, 0, 255, LMC_ERR_ARGUMENT}};
    size_t i;
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        lmc_quantizer_options options = LMC_QUANTIZER_OPTIONS();
        t_note("options %lu of a quantizer", (unsigned long)i);
        options.dtype = LMC_F32;
        options.bits = all[i].bits;
        options.n_codes = all[i].n_codes;
        options.measure = (enum lmc_measure)all[i].measure;
        options.bound = all[i].bound;
        options.eps = all[i].eps;
        options.generation = all[i].generation;
        CHECK_STATUS(use_quantizer(&options), all[i].wanted);
    }
}

/* A quantizer and `without` its bit. */
static void refuse_quantizer(void)
{
    static uint8_t moments[4 * 20000]; /* little-endian, as all tensors */
    lmc_memory memory;
    const lmc_source source = source_of(&memory, moments, sizeof moments);
    lmc_quantizer_options options = LMC_QUANTIZER_OPTIONS();
    lmc_tensor_options tensor = LMC_TENSOR_OPTIONS(LMC_F32);
    lmc_quantizer *quantizer = NULL;
    size_t i, size;
    for (i = 0; i < 20000; i++) put(moments, i, 4, bits_of(1e-6 * (double)(1 + i % 977)));
    options.dtype = LMC_F32;
    options.bits = 8;
    CHECK_STATUS(lmc_quantizer_fit(&quantizer, &source, &options), LMC_OK);
    tensor.quantizer = quantizer;
    tensor.without = ~LMC_FEATURE_QUANTIZED;
    CHECK_STATUS(
        lmc_tensor_encode(g_enc, sizeof g_enc, &size, moments, sizeof moments, &tensor, NULL, 0),
        LMC_OK);
    tensor.without = LMC_FEATURE_QUANTIZED;
    CHECK_STATUS(
        lmc_tensor_encode(g_enc, sizeof g_enc, &size, moments, sizeof moments, &tensor, NULL, 0),
        LMC_ERR_ARGUMENT);
    tensor.quantizer = NULL;
    CHECK_STATUS(
        lmc_tensor_encode(g_enc, sizeof g_enc, &size, moments, sizeof moments, &tensor, NULL, 0),
        LMC_OK);
    lmc_quantizer_free(quantizer);
}
#endif

/* A prediction of another size than the block is the wrong one; NULL has none. */
static void test_block_options(void)
{
    static uint8_t ws[1 << 18], dst[200];
    lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_BF16);
    size_t size = 77;
    options.prediction = g_dst;
    for (options.prediction_size = 62; options.prediction_size <= 66; options.prediction_size += 2)
        CHECK_STATUS(lmc_block_encode(dst, sizeof dst, &size, g_src, 64, &options, ws, sizeof ws),
                     options.prediction_size == 64 ? LMC_OK : LMC_ERR_BASE_WRONG);
    options.prediction = NULL; /* then its size does not matter */
    CHECK_STATUS(lmc_block_encode(dst, sizeof dst, &size, g_src, 64, &options, ws, sizeof ws),
                 LMC_OK);
    CHECK_STATUS(lmc_block_decode(g_dst, 64, &size, dst, size, NULL, ws, sizeof ws), LMC_OK);
    CHECK(size == 64 && memcmp(g_dst, g_src, 64) == 0);
    CHECK_STATUS(lmc_block_encode(dst, sizeof dst, &size, g_src, 64, NULL, ws, sizeof ws),
                 LMC_ERR_ARGUMENT);
}

/* -- copies -- */

static void test_copy(void)
{
    static t_model model;
    static const uint64_t shape[2] = {1000, 5};
    lmc_tensor tensor = t_tensor("w", "BF16", 2, shape, 100, 10000);
    lmc_writer *writer = NULL;
    lmc_reader *reader = NULL;
    lmc_memory memory, out;
    lmc_sink sink;
    lmc_source source;
    t_memory first, second;
    uint64_t size;
    size_t i;
    int wrong = 1;
    t_note("copy");
    memset(&model, 0, sizeof model);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    memset(&out, 0, sizeof out);
    t_add_file(&model, "a", g_src, 20000)->file.tensors = &tensor;
    model.files[0].file.n_tensors = 1;
    t_add_file(&model, "b", g_src, 0);
    t_add_file(&model, "c", g_src, SIZE);
    CHECK_STATUS(t_write_model(&model, &first, NULL, 0, NULL), LMC_OK);
    source = source_of(&memory, first.data, first.size);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    sink = lmc_memory_sink(&out);
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    for (i = 0; i < 3; i++) CHECK_STATUS(lmc_writer_copy_file(writer, reader, i), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    second.data = out.data;
    second.size = out.size;
    CHECK_STATUS(t_read_model(&model, &second, NULL, &wrong), LMC_OK);
    CHECK(!wrong);
    out.size = 0;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_copy_file(writer, reader, 3), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_copy_file(writer, NULL, 0), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_copy_file(NULL, reader, 0), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), LMC_OK);
    CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), LMC_ERR_ARGUMENT); /* a path twice */
    lmc_writer_free(writer);
    lmc_reader_free(reader);
    lmc_memory_free(&out);
    /* three files are not one */
    CHECK_STATUS(lmc_decompress(g_dst, SIZE, &i, first.data, first.size, NULL),
                 LMC_ERR_NOT_ONE_FILE);
    CHECK_STATUS(lmc_decompressed_size(first.data, first.size, &size, NULL, NULL),
                 LMC_ERR_NOT_ONE_FILE);
#ifndef __wasi__
    write_bytes_to(scratch[1], first.data, first.size);
    CHECK_STATUS(lmc_decompress_file(scratch[2], scratch[1], NULL), LMC_ERR_NOT_ONE_FILE);
    CHECK(read_bytes_of(scratch[2], g_dst, 1) == SIZE_MAX);
    remove(scratch[1]);
#endif
    free(first.data);
}

#ifndef LMC_NO_QUANTIZE
/* Writes the tensor to out, with a quantiser or without. */
static enum lmc_status write_moments(lmc_memory *out, const float *moments, size_t n,
                                     const lmc_quantizer *quantizer)
{
    const uint64_t shape = n;
    lmc_tensor tensor = t_tensor("v", "F32", 1, &shape, 0, 4 * n);
    lmc_tensor_hints hints = LMC_TENSOR_HINTS();
    lmc_writer_options options = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(out);
    lmc_writer *writer = NULL;
    lmc_file file;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    hints.quantizer = quantizer;
    file.path = "";
    file.size = 4 * n;
    file.n_tensors = 1;
    file.tensors = &tensor;
    options.may_quantize = 1;
    status = lmc_writer_open(&writer, &sink, &options);
    if (status == LMC_OK) status = lmc_writer_add_hints(writer, 0, &hints);
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_F32);
    if (status == LMC_OK) status = lmc_writer_write(writer, moments, 4 * n);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

/* A quantised tensor keeps its values and its losses: it stays small if the new file may be
 * quantised, else it has floats. */
static void test_copy_quantized(void)
{
    enum { N = 65536 };
    static float moments[N], before[N], after[N];
    lmc_quantizer_options options = LMC_DEFAULTS;
    lmc_quantizer *quantizer = NULL;
    lmc_memory memory, first, copy;
    lmc_source source;
    lmc_reader *reader = NULL, *copied = NULL;
    int may_quantize;
    size_t i;
    t_note("copy, quantised");
    memset(&first, 0, sizeof first);
    for (i = 0; i < N; i++) { /* the bytes of little-endian floats */
        const float value = 1e-6f * (float)(1 + i % 977) * (float)(1 + i % 13);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        t_store32((uint8_t *)(moments + i), bits);
    }
    source = source_of(&memory, moments, sizeof moments);
    options.dtype = LMC_F32;
    options.role = LMC_ROLE_SECOND_MOMENT;
    options.bits = 8;
    if (!CHECK_STATUS(lmc_quantizer_fit(&quantizer, &source, &options), LMC_OK)) return;
    CHECK_STATUS(write_moments(&first, moments, N, quantizer), LMC_OK);
    lmc_quantizer_free(quantizer);
    CHECK(first.size < sizeof moments / 2);
    source = lmc_memory_source(&first);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 0, before, sizeof before), LMC_OK);
    CHECK(memcmp(before, moments, sizeof before) != 0);
    for (may_quantize = 0; may_quantize < 2; may_quantize++) {
        lmc_writer_options writer_options = LMC_DEFAULTS;
        lmc_writer *writer = NULL;
        lmc_sink sink;
        lmc_loss loss;
        memset(&copy, 0, sizeof copy);
        sink = lmc_memory_sink(&copy);
        writer_options.may_quantize = may_quantize;
        CHECK_STATUS(lmc_writer_open(&writer, &sink, &writer_options), LMC_OK);
        CHECK_STATUS(lmc_writer_copy_file(writer, reader, 0), LMC_OK);
        CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
        lmc_writer_free(writer);
        if (may_quantize) CHECK(copy.size <= first.size + 64);
        else CHECK(copy.size > first.size + first.size / 10);
        source = lmc_memory_source(&copy);
        CHECK_STATUS(lmc_reader_open(&copied, &source, NULL), LMC_OK);
        loss = lmc_reader_get_file(copied, 0)->tensors[0].loss;
        CHECK(loss.generation == 1 && loss.measure == LMC_MEASURE_UPDATE && loss.error > 0 &&
              loss.error == lmc_reader_get_file(reader, 0)->tensors[0].loss.error);
        CHECK_STATUS(lmc_reader_read_file(copied, 0, 0, after, sizeof after), LMC_OK);
        CHECK(memcmp(before, after, sizeof after) == 0);
        lmc_reader_free(copied);
        lmc_memory_free(&copy);
    }
    lmc_reader_free(reader);
    lmc_memory_free(&first);
}
#endif

/* -- many names -- */

enum { N_NAMED_FILES = 4, N_NAMED = 5000 };

/* Names of tensors 0, 1, 2 ... of each file, which are not in order; only file F has "only.F". The
 * last file has no number 7. */
static void name_tensor(char name[16], size_t file, size_t i)
{
    if (i == 0) snprintf(name, 16, "only.%d", (int)file);
    else snprintf(name, 16, "t%05d", (int)(i * 3877 % N_NAMED + (file == 3 && i == 7) * N_NAMED));
}

static void write_named(lmc_memory *memory)
{
    static char names[N_NAMED][16];
    static lmc_tensor tensors[N_NAMED];
    static const uint64_t shape = 1;
    const lmc_sink sink = lmc_memory_sink(memory);
    lmc_writer *writer = NULL;
    lmc_file file;
    size_t f, i;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    for (f = 0; f < N_NAMED_FILES; f++) {
        static const char *const paths[N_NAMED_FILES] = {"b", "a.c", "a", "ab"};
        memset(&file, 0, sizeof file);
        for (i = 0; i < N_NAMED; i++) {
            name_tensor(names[i], f, i);
            tensors[i] = t_tensor(names[i], "U8", 1, &shape, i, 1);
        }
        file.path = paths[f];
        file.size = file.n_tensors = N_NAMED;
        file.tensors = tensors;
        CHECK_STATUS(lmc_writer_begin_file(writer, &file, LMC_U8), LMC_OK);
        CHECK_STATUS(lmc_writer_write(writer, g_src, N_NAMED), LMC_OK);
        CHECK_STATUS(lmc_writer_end_file(writer), LMC_OK);
    }
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
}

/* Finds each of 20,000 tensors by its name, with and without its file's name; also if an allocation
 * fails. */
static void test_find(void)
{
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    lmc_memory memory;
    lmc_source source;
    const lmc_tensor *found = NULL;
    size_t f, i, number = 9;
    long n_failed;
    char name[16];
    t_heap heap;
    t_note("find");
    memset(&memory, 0, sizeof memory);
    memset(&heap, 0, sizeof heap);
    write_named(&memory);
    source = lmc_memory_source(&memory);
    heap.fail_at = -1;
    options.allocator = t_allocator(&heap);
    CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_OK);
    for (n_failed = 0; n_failed < 2; n_failed++) { /* tensors, then files */
        heap.calls = 0;
        heap.fail_at = n_failed;
        CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "only.2", &number, &found),
                     LMC_ERR_MEMORY);
    }
    heap.fail_at = -1;
    for (f = 0; f < N_NAMED_FILES; f++) {
        const lmc_file *const file = lmc_reader_get_file(reader, f);
        CHECK_STATUS(lmc_reader_find_file(reader, file->path, &number), LMC_OK);
        CHECK(number == f);
        for (i = 0; i < N_NAMED; i++) {
            name_tensor(name, f, i);
            found = NULL;
            CHECK_STATUS(lmc_reader_find_tensor(reader, file->path, name, &number, &found), LMC_OK);
            CHECK(number == f && found == &file->tensors[i]);
            found = NULL;
            CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, name, &number, &found),
                         i && !(f == 3 && i == 7) ? LMC_ERR_AMBIGUOUS : LMC_OK);
            CHECK(number == f && (found == NULL || found == &file->tensors[i]));
        }
    }
    name_tensor(name, 0, 7);
    CHECK_STATUS(lmc_reader_find_tensor(reader, "ab", name, &number, &found), LMC_ERR_NOT_FOUND);
    CHECK_STATUS(lmc_reader_find_tensor(reader, "a.", name, &number, &found), LMC_ERR_NOT_FOUND);
    CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "t", &number, &found), LMC_ERR_NOT_FOUND);
    CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, "u", &number, &found), LMC_ERR_NOT_FOUND);
    CHECK_STATUS(lmc_reader_find_file(reader, "", &number), LMC_ERR_NOT_FOUND);
    CHECK_STATUS(lmc_reader_find_file(reader, "c", &number), LMC_ERR_NOT_FOUND);
    lmc_reader_free(reader);
    CHECK(heap.live == 0 && heap.wrong_size == 0);
    lmc_memory_free(&memory);
}

/* -- a writer refuses what a reader would refuse -- */

static enum lmc_status write_with_limit(lmc_memory *out, uint64_t max_index_size)
{
    lmc_writer_options options = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(out);
    lmc_writer *writer = NULL;
    lmc_file file;
    enum lmc_status status;
    memset(&file, 0, sizeof file);
    file.path = "";
    file.size = SIZE;
    options.max_index_size = max_index_size;
    status = lmc_writer_open(&writer, &sink, &options);
    if (status == LMC_OK) status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    if (status == LMC_OK) status = lmc_writer_write(writer, g_src, SIZE);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_OK) status = lmc_writer_add_metadata(writer, "key", "value", 5);
    if (status == LMC_OK) status = lmc_writer_finish(writer);
    lmc_writer_free(writer);
    return status;
}

/* For every limit: the writer refuses it, or a reader and a restorer with that limit accept it. */
static void test_index_limit(void)
{
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_restore_options restore = LMC_DEFAULTS;
    uint64_t limit, first = 0;
    t_note("index limit");
    for (limit = 1; limit < 600; limit++) {
        lmc_memory memory;
        lmc_reader *reader = NULL;
        lmc_source source;
        lmc_stream stream;
        enum lmc_status status;
        memset(&memory, 0, sizeof memory);
        status = write_with_limit(&memory, limit);
        if (status == LMC_OK) {
            first = first ? first : limit;
            source = lmc_memory_source(&memory);
            stream = lmc_memory_stream(&memory);
            options.max_index_size = restore.max_index_size = limit;
            CHECK_STATUS(lmc_snapshot_restore(&stream, NULL, &restore), LMC_OK);
            CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_OK);
            lmc_reader_free(reader);
            options.max_index_size = first - 1; /* and not earlier than needed */
            CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_LIMIT);
        } else CHECK_STATUS(status, first ? LMC_OK : LMC_ERR_LIMIT);
        lmc_memory_free(&memory);
    }
    CHECK(first > 1);
}

/* Keys with "lmc.": only registered ones. */
static void test_keys(void)
{
    static const struct {
        const char *key;
        enum lmc_status status;
    } keys[] = {{"lmc.base", LMC_OK},
                {"lmc.writer", LMC_OK},
                {"lmc.created", LMC_OK},
                {"lmc.source", LMC_OK},
                {"lmc.options", LMC_OK},
                {"lmc.policy", LMC_OK},
                {"lmc", LMC_OK},
                {"lmcx", LMC_OK},
                {"LMC.x", LMC_OK},
                {"xlmc.x", LMC_OK},
                {"lmc.", LMC_ERR_ARGUMENT},
                {"lmc.bas", LMC_ERR_ARGUMENT},
                {"lmc.bases", LMC_ERR_ARGUMENT},
                {"lmc.future", LMC_ERR_ARGUMENT}};
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++) {
        lmc_memory memory;
        lmc_sink sink;
        lmc_writer *writer = NULL;
        t_note("key %s", keys[i].key);
        memset(&memory, 0, sizeof memory);
        sink = lmc_memory_sink(&memory);
        CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
        CHECK_STATUS(lmc_writer_add_metadata(writer, keys[i].key, "v", 1), keys[i].status);
        lmc_writer_free(writer);
        lmc_memory_free(&memory);
    }
}

/* -- probes -- */

/* Bytes in a block of exactly their size; calls and bytes are counted. */
typedef struct probed {
    uint8_t *data;
    uint64_t size;
    unsigned n_calls;
    size_t n_bytes;
    int fails; /* 1: every call */
} probed;

static enum lmc_status read_probed(void *user, uint64_t offset, void *dst, size_t size)
{
    probed *const p = (probed *)user;
    CHECK(size && offset <= p->size && size <= p->size - offset);
    p->n_calls++;
    p->n_bytes += size;
    if (p->fails) return LMC_ERR_READ;
    memcpy(dst, p->data + (size_t)offset, size);
    return LMC_OK;
}

static enum lmc_status probe(lmc_snapshot_info *info, probed *p)
{
    const lmc_source source = {read_probed, p, p->size, {0, 0}};
    p->n_calls = 0;
    p->n_bytes = 0;
    memset(info, 255, sizeof *info);
    return lmc_snapshot_probe(&source, info);
}

static enum lmc_status measure(lmc_snapshot_extent *extent, probed *p)
{
    const lmc_source source = {read_probed, p, p->size, {0, 0}};
    return lmc_snapshot_measure(&source, extent);
}

static probed copy_of(const uint8_t *data, size_t size)
{
    probed p = {NULL, 0, 0, 0, 0};
    p.data = (uint8_t *)malloc(size ? size : 1);
    if (!p.data) abort();
    if (size) memcpy(p.data, data, size);
    p.size = size;
    return p;
}

/* A snapshot of n tensors; base: or NULL. */
static lmc_writer_info write_probed(lmc_memory *memory, const lmc_base *base, size_t n)
{
    static char names[200][64];
    static lmc_array arrays[200];
    static const uint64_t shape = 1000;
    const lmc_sink sink = lmc_memory_sink(memory);
    lmc_writer_options options = LMC_WRITER_OPTIONS();
    lmc_writer_info written = LMC_DEFAULTS;
    lmc_writer *writer = NULL;
    size_t i;
    for (i = 0; i < n; i++) {
        arrays[i].name = names[i];
        sprintf(names[i], "a long name of the tensor with number %u", (unsigned)i);
        arrays[i].dtype = LMC_U8;
        arrays[i].rank = 1;
        arrays[i].shape = &shape;
        arrays[i].data = g_src + 1000 * i;
    }
    options.base = base;
    CHECK_STATUS(lmc_writer_open(&writer, &sink, &options), LMC_OK);
    CHECK_STATUS(lmc_writer_add_arrays(writer, "f", arrays, n, NULL, 0), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    CHECK_STATUS(lmc_writer_get_info(writer, &written), LMC_OK);
    lmc_writer_free(writer);
    return written;
}

/* What a probe finds is what a reader finds; and what is found of the parts of the file. */
static void probe_good(const lmc_memory *memory, const lmc_writer_info *written, unsigned most)
{
    probed p = copy_of(memory->data, memory->size);
    const lmc_source source = {read_probed, &p, p.size, {0, 0}};
    lmc_snapshot_info info, checked;
    lmc_snapshot_extent extent;
    lmc_reader *reader = NULL;
    uint64_t runs;
    CHECK_STATUS(probe(&info, &p), LMC_OK);
    CHECK(p.n_calls <= most && p.n_bytes <= 4096 + 100);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_get_info(reader, &checked), LMC_OK);
    lmc_reader_free(reader);
    CHECK(memcmp(info.fingerprint, written->fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    CHECK(checked.n_files == 1 && info.n_files == 0);
    checked.n_files = checked.n_metadata = 0;
    checked.n_sections = checked.n_records = 0;
    CHECK(info.size == memory->size && info.format_major == LMC_FORMAT_MAJOR);
    CHECK(info.size == checked.size && info.index_offset == checked.index_offset &&
          info.index_size == checked.index_size && info.features == checked.features &&
          info.has_base == checked.has_base && info.format_minor == checked.format_minor &&
          memcmp(info.base_fingerprint, checked.base_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    CHECK_RESERVED(&info);
    CHECK_STATUS(measure(&extent, &p), LMC_OK);
    CHECK(extent.end == memory->size && extent.wanted == memory->size);
    runs = extent.runs_offset;
    CHECK(memcmp(p.data + (size_t)runs, "RUN ", 4) == 0);
    CHECK_RESERVED(&extent);
    p.fails = 1;
    CHECK_STATUS(probe(&info, &p), LMC_ERR_READ);
    CHECK_STATUS(measure(&extent, &p), LMC_ERR_READ);
    p.fails = 0;
    /* from nothing, as a pipe is read: each time as much as is wanted, until all is known */
    for (p.size = 0; measure(&extent, &p) == LMC_ERR_TRUNCATED; p.size = extent.wanted) {
        CHECK(extent.wanted > p.size && extent.wanted <= memory->size && extent.end == 0);
        CHECK(extent.runs_offset == (p.size >= runs + 20 ? runs : 0));
    }
    CHECK(p.size == memory->size && extent.end == p.size);
    free(p.data);
}

static void probe_bad(const lmc_memory *memory)
{
    const size_t size = memory->size;
    lmc_snapshot_info info, good;
    lmc_snapshot_extent extent;
    probed p = copy_of(memory->data, size);
    size_t i, n;
    unsigned bit;
    CHECK_STATUS(probe(&good, &p), LMC_OK);
    free(p.data);
    for (n = 0; n < size; n++) { /* an interrupted writer, a cut file */
        if (n == 200 && size > 600) n = size - 400;
        p = copy_of(memory->data, n);
        t_note("the first %lu bytes", (unsigned long)n);
        CHECK_STATUS(probe(&info, &p), n < 8 ? LMC_ERR_NOT_LMC : LMC_ERR_TRUNCATED);
        CHECK(p.n_calls <= 2 && info.index_size == 0);
        if (n >= LMC_HEADER_SIZE)
            CHECK(info.has_base == good.has_base && info.format_major == 1 &&
                  memcmp(info.base_fingerprint, good.base_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
        CHECK_STATUS(measure(&extent, &p), LMC_ERR_TRUNCATED);
        CHECK(extent.wanted > n && extent.wanted <= size);
        free(p.data);
    }
    for (i = 0; i < size; i++) { /* header, index, trailer: a wrong bit */
        if (i == LMC_HEADER_SIZE) i = (size_t)good.index_offset;
        for (bit = 0; bit < 8; bit += 7) {
            enum lmc_status status;
            p = copy_of(memory->data, size);
            p.data[i] ^= (uint8_t)(1u << bit);
            t_note("byte %lu, bit %u", (unsigned long)i, bit);
            status = probe(&info, &p);
            CHECK(p.n_calls <= 3);
            if (i >= size - 8) CHECK_STATUS(status, LMC_ERR_TRUNCATED);
            else if (i >= size - 40)
                CHECK(status == LMC_ERR_CHECKSUM && info.index_size == 0 &&
                      info.has_base == good.has_base);
            else CHECK(status == LMC_OK && info.index_size == good.index_size);
            (void)!measure(&extent, &p);
            free(p.data);
        }
    }
    p = copy_of(memory->data, size); /* both copies of the header are damaged */
    p.data[0] = p.data[good.index_offset + 20] = 'x';
    CHECK_STATUS(probe(&info, &p), LMC_ERR_NOT_LMC);
    CHECK(info.index_size == good.index_size && info.has_base == 0);
    CHECK_STATUS(measure(&extent, &p), LMC_ERR_NOT_LMC);
    free(p.data);
    p = copy_of(memory->data, size - 40); /* of a newer version, without an end */
    p.data[8] = 2;
    p.data[9] = 7;
    CHECK_STATUS(probe(&info, &p), LMC_ERR_VERSION);
    CHECK(info.format_major == 2 && info.format_minor == 7 && info.features == 0);
    p.data[8] = 1;
    p.data[9] = 0;
    p.data[23] = 128; /* a feature that nobody knows */
    i = lmc_crc32c(0, p.data, 60);
    for (n = 0; n < 4; n++) p.data[60 + n] = (uint8_t)(i >> 8 * n);
    CHECK_STATUS(probe(&info, &p), LMC_ERR_UNSUPPORTED);
    CHECK(info.features >> 63 && info.has_base == good.has_base);
    free(p.data);
    p = copy_of(memory->data, size); /* something follows */
    p.data = (uint8_t *)realloc(p.data, size + 3);
    if (!p.data) abort();
    memset(p.data + size, 0, 3);
    p.size = size + 3;
    CHECK_STATUS(probe(&info, &p), LMC_ERR_TRUNCATED);
    CHECK_STATUS(measure(&extent, &p), LMC_OK);
    CHECK(extent.end == size);
    free(p.data);
}

static void test_probe(void)
{
    lmc_memory whole = LMC_DEFAULTS, delta = LMC_DEFAULTS, many = LMC_DEFAULTS, bad = LMC_DEFAULTS;
    lmc_source source;
    lmc_snapshot_info info;
    lmc_snapshot_extent extent;
    lmc_writer_info written;
    lmc_reader *reader = NULL;
    lmc_base base;
    size_t i;
    t_fill(g_src, SIZE, T_RANDOM, LMC_U8, 3);
    CHECK_STATUS(lmc_snapshot_probe(NULL, &info), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_snapshot_measure(NULL, &extent), LMC_ERR_ARGUMENT);
    source = lmc_memory_source(&whole);
    CHECK_STATUS(lmc_snapshot_probe(&source, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_snapshot_measure(&source, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_snapshot_probe(&source, &info), LMC_ERR_NOT_LMC);
    source.size = (uint64_t)1 << 63;
    CHECK_STATUS(lmc_snapshot_probe(&source, &info), LMC_ERR_LIMIT);
    CHECK_STATUS(lmc_snapshot_measure(&source, &extent), LMC_ERR_LIMIT);
    written = write_probed(&whole, NULL, 20);
    CHECK(written.from_base_size == 0 && written.from_base_encoded_size == 0);
    CHECK(written.coded_size > 20000 && written.coded_size < 30000);
    probe_good(&whole, &written, 2);
    probe_bad(&whole);
    source = lmc_memory_source(&whole);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    base = lmc_reader_base(reader);
    for (i = 0; i < 10000; i += 500) g_src[i]++;
    written = write_probed(&delta, &base, 20);
    CHECK(written.from_base_size >= 10000 && written.from_base_size <= written.coded_size);
    CHECK(written.from_base_encoded_size > 0 && written.from_base_encoded_size < written.size);
    probe_good(&delta, &written, 2);
    probe_bad(&delta);
    lmc_reader_free(reader);
    written = write_probed(&many, NULL, 200); /* the index is not in the tail that a probe reads */
    probe_good(&many, &written, 2);
    CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK);
    base = lmc_reader_base(reader);
    t_fill(g_src, SIZE, T_RANDOM, LMC_U8, 4); /* this base is no help */
    written = write_probed(&bad, &base, 20);
    CHECK(written.from_base_size == 0 && written.from_base_encoded_size == 0);
    lmc_reader_free(reader);
    lmc_memory_free(&whole);
    lmc_memory_free(&delta);
    lmc_memory_free(&many);
    lmc_memory_free(&bad);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    test_buffers();
    test_truncated();
#if !defined(_WIN32) && !defined(__wasi__)
    test_invalid();
#endif
#ifndef __wasi__
    name_scratch(argv[0]);
    test_files();
#endif
#if defined(LMC_PTHREADS) && defined(__linux__)
    test_default_workers();
#endif
#ifdef LMC_PTHREADS
    test_pool();
#endif
    test_arrays();
    test_texts();
    test_progress();
    test_one_call_progress();
    test_options();
    test_reserved();
    test_probe();
    test_block_options();
    test_without();
    test_contradictions();
    test_failed_objects();
    test_no_memory();
    test_unknown_numbers();
    test_copy();
#ifndef LMC_NO_QUANTIZE
    test_quantizer_options();
    refuse_quantizer();
    test_copy_quantized();
#endif
    test_find();
    test_index_limit();
    test_keys();
    return t_end();
}
