/* lmc_cuda.h without a GPU: the driver and NVRTC are the stand-ins of tests/gpu/fake_cuda.cpp,
 * which run the kernels on the CPU, and refuse what would fail on a GPU. Bytes, and the status of
 * damaged files, must be those of lmc_reader. */
#include "t_parts.h"
#include "../../include/lmc_cuda.h"

#include <dlfcn.h>
#include <sys/stat.h>

#define DRIVER "build/gpu/libcuda.so.1"
#define NVRTC "build/gpu/libnvrtc.so.12"

/* -- the driver, as a program uses it -- */

typedef unsigned long long address;

#define DRIVER_FUNCTIONS(X)                                                                        \
    X(int, cuInit, (unsigned flags))                                                               \
    X(int, cuDeviceGet, (int *device, int ordinal))                                                \
    X(int, cuDevicePrimaryCtxRetain, (void **context, int device))                                 \
    X(int, cuDevicePrimaryCtxRelease_v2, (int device))                                             \
    X(int, cuCtxSetCurrent, (void *context))                                                       \
    X(int, cuCtxGetCurrent, (void **context))                                                      \
    X(int, cuMemAlloc_v2, (address * at, size_t size))                                             \
    X(int, cuMemFree_v2, (address at))                                                             \
    X(int, cuMemcpyHtoD_v2, (address dst, const void *src, size_t size))                           \
    X(int, cuMemcpyDtoH_v2, (void *dst, address src, size_t size))                                 \
    X(int, cuMemsetD8Async, (address dst, unsigned char value, size_t size, void *stream))         \
    X(int, cuMemcpyDtoDAsync_v2, (address dst, address src, size_t size, void *stream))            \
    X(int, cuStreamCreate, (void **stream, unsigned flags))                                        \
    X(int, cuStreamDestroy_v2, (void *stream))                                                     \
    X(long, fake_cuda_live, (void))                                                                \
    X(long, fake_cuda_count, (const char *what))                                                   \
    X(void, fake_cuda_reset, (void))                                                               \
    X(const char *, fake_cuda_says, (void))

static struct {
#define MEMBER(type, name, arguments) type(*name) arguments;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
    void *context;
} gpu;

static int open_driver(void)
{
    void *const library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    void *found;
    int device = 0;
    if (!library) return 0;
#define FIND(type, name, arguments)                                                                \
    found = dlsym(library, #name);                                                                 \
    if (!found) return 0;                                                                          \
    memcpy(&gpu.name, &found, sizeof found);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    return gpu.cuInit(0) == 0 && gpu.cuDeviceGet(&device, 0) == 0 &&
           gpu.cuDevicePrimaryCtxRetain(&gpu.context, device) == 0 &&
           gpu.cuCtxSetCurrent(gpu.context) == 0;
}

/* Device memory with those bytes, `shift` bytes behind a multiple of 256. */
typedef struct array {
    address memory, at;
    size_t size;
} array;

static array make_array(const void *data, size_t size, size_t shift)
{
    array a;
    a.size = size;
    if (gpu.cuMemAlloc_v2(&a.memory, size + shift + 1) != 0) abort();
    a.at = a.memory + shift;
    if (data && size && gpu.cuMemcpyHtoD_v2(a.at, data, size) != 0) abort();
    return a;
}
static int has_bytes(const array *a, const void *data)
{
    uint8_t *const got = allocate(a->size);
    const int ok = a->size == 0 || (gpu.cuMemcpyDtoH_v2(got, a->at, a->size) == 0 &&
                                    memcmp(got, data, a->size) == 0);
    free(got);
    return ok;
}
static void *pointer(const array *a) { return (void *)(uintptr_t)a->at; }
static void free_array(array *a) { CHECK(gpu.cuMemFree_v2(a->memory) == 0); }

static lmc_cuda *open_cuda(t_heap *heap)
{
    lmc_cuda_options options = LMC_DEFAULTS;
    lmc_cuda *cuda = NULL;
    options.driver_path = DRIVER;
    options.nvrtc_path = NVRTC;
    options.staging_size = 8u << 20;
    options.allocator = t_allocator(heap);
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    CHECK(strcmp(lmc_cuda_message(cuda), "") == 0);
    return cuda;
}

static lmc_cuda_counts counts_of(const lmc_cuda *cuda)
{
    lmc_cuda_counts counts;
    memset(&counts, 0, sizeof counts);
    lmc_cuda_get_counts(cuda, &counts);
    return counts;
}

/* -- opening -- */

static void test_open(void)
{
    static const char *const calls[] = {"cuInit",
                                        "cuDeviceGet",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxPushCurrent_v2",
                                        "cuDeviceGetAttribute",
                                        "cuDeviceGetAttribute:4",
                                        "cuStreamCreate",
                                        "cuEventCreate",
                                        "cuEventCreate:5",
                                        "cuModuleLoadData",
                                        "cuModuleGetFunction",
                                        "cuFuncSetAttribute",
                                        "cuMemAlloc_v2",
                                        "cuMemcpyHtoDAsync_v2",
                                        "cuStreamSynchronize",
                                        "nvrtcVersion",
                                        "nvrtcCreateProgram",
                                        "nvrtcCompileProgram",
                                        "nvrtcGetCUBINSize",
                                        "nvrtcGetCUBIN"};
    lmc_cuda_options options = LMC_DEFAULTS;
    const long live = gpu.fake_cuda_live();
    lmc_cuda *cuda;
    size_t i;
    t_note("opening");
    CHECK_STATUS(lmc_cuda_open(NULL, NULL), LMC_ERR_ARGUMENT);
    options.driver_path = "/nowhere/libcuda.so";
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_DEVICE);
    CHECK(strstr(lmc_cuda_message(cuda), "/nowhere/libcuda.so cannot be opened") != NULL);
    lmc_cuda_free(cuda);
    options.driver_path = DRIVER;
    options.nvrtc_path = "/nowhere/libnvrtc.so";
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_DEVICE);
    CHECK(strstr(lmc_cuda_message(cuda), "/nowhere/libnvrtc.so cannot be opened") != NULL);
    /* only its message can be used */
    CHECK_STATUS(lmc_cuda_read(cuda, NULL, NULL, 0, NULL), LMC_ERR_ARGUMENT);
    lmc_cuda_free(cuda);
    options.nvrtc_path = DRIVER; /* a library without these functions */
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_DEVICE);
    CHECK(strstr(lmc_cuda_message(cuda), "NVRTC has no function") != NULL);
    lmc_cuda_free(cuda);
    options.nvrtc_path = NVRTC;
    options.staging_size = (8u << 20) - 1;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_ARGUMENT);
    CHECK(cuda == NULL);
    options.staging_size = ((uint64_t)4 << 30) + 1;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_ARGUMENT);
    options.staging_size = (uint64_t)4 << 30; /* nothing is allocated yet */
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    lmc_cuda_free(cuda);
    options.staging_size = 0;
    options.device = 1;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_DEVICE);
    CHECK(strstr(lmc_cuda_message(cuda), "CUDA_ERROR_INVALID_DEVICE") != NULL);
    lmc_cuda_free(cuda);
    options.device = 0;
    for (i = 0; i < sizeof calls / sizeof *calls; i++) {
        enum lmc_status status;
        t_note("opening: %s fails", calls[i]);
        setenv("FAKE_CUDA_FAIL", calls[i], 1);
        status = lmc_cuda_open(&cuda, &options);
        setenv("FAKE_CUDA_FAIL", "", 1);
        CHECK(status == LMC_ERR_DEVICE || status == LMC_ERR_MEMORY);
        if (CHECK(cuda != NULL))
            CHECK(*lmc_cuda_message(cuda) && !strchr(lmc_cuda_message(cuda), '\n'));
        lmc_cuda_free(cuda);
        CHECK(gpu.fake_cuda_live() == live);
    }
    setenv("FAKE_CUDA_ARCH", "70", 1);
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_ERR_DEVICE);
    CHECK(strstr(lmc_cuda_message(cuda), "compute capability 7.0") != NULL);
    setenv("FAKE_CUDA_ARCH", "", 1);
    lmc_cuda_free(cuda);
    lmc_cuda_free(NULL);
    CHECK(strcmp(lmc_cuda_message(NULL), "") == 0);
    CHECK(gpu.fake_cuda_live() == live);
}

/* 1: the kernels were compiled. */
static uint64_t open_cached(const char *dir)
{
    lmc_cuda_options options = LMC_DEFAULTS;
    lmc_cuda *cuda = NULL;
    uint64_t compiled;
    options.driver_path = DRIVER;
    options.nvrtc_path = NVRTC;
    options.cache_dir = dir;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    compiled = counts_of(cuda).compiled;
    lmc_cuda_free(cuda);
    return compiled;
}

static void test_cache(void)
{
    char dir[] = "build/tests/cuda-cache-XXXXXX", command[400], path[300] = "";
    FILE *list;
    uint8_t *bytes;
    struct stat about;
    size_t i, size, step;
    t_note("cache");
    CHECK(open_cached("/nowhere") == 1);
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    CHECK(open_cached(dir) == 1);
    CHECK(open_cached(dir) == 0);
    (void)snprintf(command, sizeof command, "ls -d %s/*", dir);
    list = popen(command, "r");
    if (!CHECK(list && fgets(path, sizeof path, list))) return;
    CHECK(!fgets(command, sizeof command, list)); /* one file, and no partial ones */
    pclose(list);
    path[strcspn(path, "\n")] = 0;
    if (!CHECK(stat(path, &about) == 0)) return;
    size = (size_t)about.st_size;
    bytes = allocate(size);
    list = fopen(path, "rb");
    if (!CHECK(list && fread(bytes, 1, size, list) == size)) return;
    fclose(list);
    step = t_quick ? 7 : 1;
    for (i = 0; i < size + 2;
         i += i + step < size ? step : 1) { /* each byte; then cut, or longer */
        FILE *const file = fopen(path, "wb");
        if (!CHECK(file != NULL)) return;
        if (i < size) bytes[i] ^= 4;
        fwrite(bytes, 1, i == size ? size - 1 : size, file);
        if (i == size + 1) fputc(0, file);
        fclose(file);
        if (i < size) bytes[i] ^= 4;
        t_note("cache: byte %lu", (unsigned long)i);
        CHECK(open_cached(dir) == 1);
        CHECK(open_cached(dir) == 0);
    }
    setenv("FAKE_CUDA_ARCH", "80", 1);
    CHECK(open_cached(dir) == 1); /* of another architecture */
    setenv("FAKE_CUDA_ARCH", "", 1);
    CHECK(open_cached(dir) == 0);
    setenv("FAKE_CUDA_FAIL", "cuModuleLoadData", 1); /* the driver refuses what is in the cache */
    CHECK(open_cached(dir) == 1);
    setenv("FAKE_CUDA_FAIL", "", 1);
    (void)snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0);
    free(bytes);
}

/* -- reading -- */

/* The parts that are read from a snapshot, their destinations, and the right bytes. */
typedef struct wanted {
    lmc_cuda_part parts[64];
    array dst[64], base[64];
    const uint8_t *right[64];
    size_t n;
} wanted;

/* Adds bytes of the file `right`. base: the base's bytes at the same place, or NULL. */
static void want(wanted *w, size_t file, uint64_t offset, size_t size, const uint8_t *right,
                 const uint8_t *base, size_t shift, int in_place)
{
    lmc_cuda_part *const part = &w->parts[w->n];
    memset(part, 0, sizeof *part);
    part->file_number = file;
    part->offset = offset;
    part->size = size;
    w->base[w->n].memory = 0;
    if (base) {
        w->base[w->n] = make_array(base + offset, size, shift);
        part->base = pointer(&w->base[w->n]);
    }
    if (in_place) {
        w->dst[w->n] = w->base[w->n];
        w->base[w->n].memory = 0;
    } else w->dst[w->n] = make_array(NULL, size, shift);
    part->dst = pointer(&w->dst[w->n]);
    w->right[w->n++] = right + offset;
}

static void want_tensors(wanted *w, const t_model *model, const t_model *base, size_t shift,
                         int in_place)
{
    size_t i, k;
    for (i = 0; i < model->n_files; i++)
        for (k = 0; k < model->files[i].file.n_tensors; k++) {
            const lmc_tensor *const t = &model->files[i].file.tensors[k];
            want(w, i, t->offset, (size_t)t->size, model->files[i].data,
                 base ? base->files[i].data : NULL, shift, in_place);
        }
}

static int is_right(const wanted *w)
{
    size_t i;
    for (i = 0; i < w->n; i++)
        if (!has_bytes(&w->dst[i], w->right[i])) return 0;
    return 1;
}

static void free_wanted(wanted *w)
{
    size_t i;
    for (i = 0; i < w->n; i++) {
        free_array(&w->dst[i]);
        if (w->base[i].memory) free_array(&w->base[i]);
    }
    w->n = 0;
}

static void read_right(lmc_cuda *cuda, lmc_reader *reader, wanted *w, void *stream)
{
    void *context = NULL;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, w->parts, w->n, stream), LMC_OK);
    if (*lmc_cuda_message(cuda)) printf("%s [%s]\n", lmc_cuda_message(cuda), gpu.fake_cuda_says());
    CHECK(is_right(w));
    CHECK(gpu.cuCtxGetCurrent(&context) == 0 && context == gpu.context);
    free_wanted(w);
}

static void test_full(lmc_cuda *cuda, const t_model *model, t_memory *file)
{
    static const size_t shifts[] = {0, 1, 2, 4, 8};
    unsigned n_workers = 3;
    const lmc_parallel parallel = t_parallel(&n_workers);
    lmc_reader_options options = LMC_DEFAULTS;
    uint64_t state = 9;
    lmc_reader *reader;
    lmc_cuda_counts before, after;
    wanted w;
    void *stream = NULL;
    size_t i, k;
    w.n = 0;
    CHECK(gpu.cuStreamCreate(&stream, 1) == 0);
    reader = open_memory(file, NULL, NULL);
    for (i = 0; i < 5; i++) {
        t_note("all tensors, shift %lu", (unsigned long)shifts[i]);
        want_tensors(&w, model, NULL, shifts[i], 0);
        before = counts_of(cuda);
        read_right(cuda, reader, &w, i % 2 ? stream : NULL);
        after = counts_of(cuda);
        CHECK(after.gpu_blocks > before.gpu_blocks);
        CHECK(i != 1 || after.staged_bytes > before.staged_bytes);
    }
    for (i = 0; i < model->n_files; i++) {
        if (model->files[i].size == 0) continue;
        want(&w, i, 0, model->files[i].size, model->files[i].data, NULL, 0, 0);
    }
    t_note("all files");
    read_right(cuda, reader, &w, stream);
    lmc_reader_free(reader);
    options.parallel = &parallel;
    options.parallel_reads = 1;
    reader = open_with(file, &options);
    for (i = 0; i < (t_quick ? 5u : 30u); i++) { /* disjoint ranges of both files, shuffled */
        t_note("ranges, %lu", (unsigned long)i);
        for (k = 0; k < 2; k++) {
            const t_file *const f = &model->files[k];
            size_t at = t_below(&state, f->size / 4);
            while (at < f->size && w.n < 40) {
                const size_t left = f->size - at, size = t_below(&state, left) / 4 + 1;
                want(&w, k, at, size, f->data, NULL, t_below(&state, 9), 0);
                at += size + (t_below(&state, 3) ? 0 : t_below(&state, 9000));
            }
        }
        for (k = w.n; k-- > 1;) {
            const size_t other = t_below(&state, k + 1);
            const wanted copy = w;
            w.parts[k] = copy.parts[other], w.parts[other] = copy.parts[k];
            w.dst[k] = copy.dst[other], w.dst[other] = copy.dst[k];
            w.right[k] = copy.right[other], w.right[other] = copy.right[k];
        }
        read_right(cuda, reader, &w, stream);
    }
    CHECK_STATUS(lmc_cuda_read(cuda, reader, NULL, 0, NULL), LMC_OK);
    memset(&w.parts[0], 0, sizeof w.parts[0]); /* no bytes: dst need not be there */
    w.parts[0].file_number = model->n_files - 1;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, 1, NULL), LMC_OK);
    lmc_reader_free(reader);
    CHECK(gpu.cuStreamDestroy_v2(stream) == 0);
}

static void test_arguments(lmc_cuda *cuda, t_memory *file)
{
    lmc_reader *const reader = open_memory(file, NULL, NULL);
    const lmc_file *const f = lmc_reader_get_file(reader, 0);
    lmc_cuda_part parts[2];
    array a = make_array(NULL, 4096, 0);
    t_note("arguments");
    memset(parts, 0, sizeof parts);
    parts[0].size = parts[1].size = 100;
    parts[0].dst = pointer(&a);
    parts[1].dst = (void *)(uintptr_t)(a.at + 100);
    parts[1].offset = 99;
    CHECK_STATUS(lmc_cuda_read(NULL, reader, parts, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_cuda_read(cuda, NULL, parts, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_cuda_read(cuda, reader, NULL, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 2, NULL), LMC_ERR_ARGUMENT);
    CHECK(strstr(lmc_cuda_message(cuda), "model-1.safetensors") != NULL);
    parts[1].offset = 100;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 2, NULL), LMC_OK);
    parts[0].offset = f->size - 99;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 2, NULL), LMC_ERR_ARGUMENT);
    parts[0].offset = f->size - 100;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 2, NULL), LMC_OK);
    parts[0].base = (void *)(uintptr_t)(a.at + 99);
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 1, NULL), LMC_ERR_ARGUMENT);
    parts[0].base = (void *)(uintptr_t)(a.at + 100);
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 1, NULL), LMC_OK);
    parts[0].file_number = 99;
    CHECK_STATUS(lmc_cuda_read(cuda, reader, parts, 1, NULL), LMC_ERR_ARGUMENT);
    free_array(&a);
    lmc_reader_free(reader);
}

/* The statuses of kernels do not change the result. */
static void test_statuses(lmc_cuda *cuda, const t_model *model, t_memory *file)
{
    static const char *const statuses[] = {"255", "24", "25", "22"};
    unsigned n_workers = 2;
    const lmc_parallel parallel = t_parallel(&n_workers);
    lmc_cuda_counts before, after;
    wanted w;
    size_t i;
    w.n = 0;
    for (i = 0; i < 4; i++) {
        lmc_reader *const reader = open_memory(file, NULL, i % 2 ? &parallel : NULL);
        t_note("each block has status %s", statuses[i]);
        want_tensors(&w, model, NULL, i, 0);
        setenv("FAKE_CUDA_STATUS", statuses[i], 1);
        before = counts_of(cuda);
        CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, w.n, NULL), LMC_OK);
        lmc_reader_free(reader);
        after = counts_of(cuda);
        setenv("FAKE_CUDA_STATUS", "", 1);
        CHECK(after.gpu_blocks == before.gpu_blocks && after.cpu_blocks > before.cpu_blocks);
        CHECK(is_right(&w));
        free_wanted(&w);
    }
}

/* Each status is that of lmc_reader. */
static void test_damage(lmc_cuda *cuda, const t_model *model, t_memory *file, const lmc_base *base,
                        const t_model *old)
{
    uint64_t state = 77;
    size_t i, n_errors = 0;
    for (i = 0; i < (t_brief ? 10u : t_quick ? 40u : 200u); i++) {
        const size_t at = 80 + t_below(&state, file->size - 80 - 40), k = t_below(&state, 2);
        const t_file *const f = &model->files[k];
        lmc_reader_options options = LMC_DEFAULTS;
        lmc_source source = LMC_DEFAULTS;
        lmc_reader *reader = NULL;
        uint8_t *const got = allocate(f->size);
        const uint8_t change = (uint8_t)(1u << t_below(&state, 8));
        enum lmc_status want_status, status;
        wanted w;
        w.n = 0;
        t_note("damage at %lu of %lu", (unsigned long)at, (unsigned long)file->size);
        file->data[at] ^= change;
        source.read_at = t_read_at;
        source.user = file;
        source.size = file->size;
        options.base = base;
        if (lmc_reader_open(&reader, &source, &options) == LMC_OK) {
            want_status = lmc_reader_read_file(reader, k, 0, got, f->size);
            want(&w, k, 0, f->size, f->data, old ? old->files[k].data : NULL, 0, i % 2 && old);
            status = lmc_cuda_read(cuda, reader, w.parts, w.n, NULL);
            if (!CHECK(status == want_status))
                printf("%s, not %s: %s\n", lmc_status_name(status), lmc_status_name(want_status),
                       lmc_cuda_message(cuda));
            CHECK((status == LMC_OK) == (*lmc_cuda_message(cuda) == 0));
            if (status == LMC_OK) CHECK(is_right(&w));
            n_errors += status != LMC_OK;
            free_wanted(&w);
        }
        file->data[at] ^= change;
        lmc_reader_free(reader);
        free(got);
    }
    CHECK(n_errors > i / 4);
}

static void test_fingerprints(lmc_cuda *cuda, const t_model *model, t_memory *file)
{
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_reader *reader = open_memory(file, NULL, NULL);
    size_t i, k = 0;
    wanted w;
    w.n = 0;
    for (i = 0; i < 4; i++) {
        lmc_tensor *t;
        if (i == 2) {
            lmc_reader_free(reader);
            options.skip_fingerprints = 1;
            reader = open_with(file, &options);
        }
        t = (lmc_tensor *)(uintptr_t)&lmc_reader_get_file(reader, 0)->tensors[k = 1 + i % 2];
        t_note("a wrong fingerprint, %lu", (unsigned long)i);
        t->fingerprint[i] ^= 1;
        want(&w, 0, t->offset, (size_t)t->size, model->files[0].data, NULL, i, 0);
        CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, 1, NULL),
                     i < 2 ? LMC_ERR_CORRUPT : LMC_OK);
        if (i < 2) CHECK(strstr(lmc_cuda_message(cuda), t->name) != NULL);
        free_wanted(&w);
        want(&w, 0, t->offset + 2, (size_t)t->size - 2, model->files[0].data, NULL, i, 0);
        read_right(cuda, reader, &w, NULL); /* not all of it */
        want(&w, 0, 0, model->files[0].size, model->files[0].data, NULL, i, 0);
        CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, 1, NULL),
                     i < 2 ? LMC_ERR_CORRUPT : LMC_OK);
        free_wanted(&w);
        t->fingerprint[i] ^= 1;
    }
    lmc_reader_free(reader);
}

static void test_delta(lmc_cuda *cuda, const t_model *old, const t_model *model, t_memory *delta,
                       const lmc_base *base)
{
    lmc_reader *const with_base = open_memory(delta, base, NULL), *const alone = open_memory(
                                                                      delta, NULL, NULL);
    lmc_cuda_counts before, after;
    const lmc_tensor *t;
    wanted w;
    size_t i;
    w.n = 0;
    for (i = 0; i < 6; i++) {
        t_note("delta, %s, shift %lu", i % 2 ? "in place" : "beside", (unsigned long)i / 2);
        want_tensors(&w, model, old, i / 2, i % 2);
        before = counts_of(cuda);
        setenv("FAKE_CUDA_ORDER", i ? "5" : "0", 1);
        read_right(cuda, i % 4 < 2 ? alone : with_base, &w, NULL);
        want(&w, 0, 0, model->files[0].size, model->files[0].data, old->files[0].data, i / 2,
             i % 2);
        want(&w, 1, 0, model->files[1].size, model->files[1].data, old->files[1].data, i / 2,
             i % 2);
        read_right(cuda, alone, &w, NULL);
        after = counts_of(cuda);
        CHECK(after.gpu_bytes - before.gpu_bytes > 10 * (after.cpu_bytes - before.cpu_bytes));
        setenv("FAKE_CUDA_ORDER", "", 1);
    }
    t_note("delta: the base is not on the device");
    want_tensors(&w, model, NULL, 0, 0);
    read_right(cuda, with_base, &w, NULL);
    want_tensors(&w, model, NULL, 0, 0);
    CHECK_STATUS(lmc_cuda_read(cuda, alone, w.parts, w.n, NULL), LMC_ERR_BASE_MISSING);
    free_wanted(&w);
    t = &model->files[0].file.tensors[1];
    t_note("delta: the caller's stream still makes the base");
    for (i = 0; i < 8; i++) { /* of unaligned bases, which are gathered */
        const size_t size = (size_t)t->size;
        char seed[8];
        array source = make_array(old->files[0].data + t->offset, size, 0);
        want(&w, 0, t->offset, size, model->files[0].data, model->files[0].data, 1, (int)i % 2);
        (void)snprintf(seed, sizeof seed, "%u", (unsigned)i / 2);
        setenv("FAKE_CUDA_ORDER", seed, 1);
        CHECK(gpu.cuMemcpyDtoDAsync_v2((i % 2 ? w.dst : w.base)[0].at, source.at, size, NULL) == 0);
        read_right(cuda, alone, &w, NULL);
        setenv("FAKE_CUDA_ORDER", "", 1);
        free_array(&source);
    }
    t_note("delta: the base of the rest of the block is not on the device");
    for (i = 0; i < 2; i++) {
        want(&w, 0, t->offset + 100, 1000, model->files[0].data, old->files[0].data, 0, (int)i);
        read_right(cuda, with_base, &w, NULL);
        want(&w, 0, t->offset + 100, 1000, model->files[0].data, old->files[0].data, 0, (int)i);
        CHECK_STATUS(lmc_cuda_read(cuda, alone, w.parts, w.n, NULL), LMC_ERR_BASE_MISSING);
        if (i) CHECK(has_bytes(&w.dst[0], old->files[0].data + t->offset + 100));
        free_wanted(&w);
    }
    t_note("delta: only checked");
    want(&w, 0, 0, model->files[0].size, old->files[0].data, old->files[0].data, 0, 1);
    w.parts[0].dst = NULL;
    read_right(cuda, alone, &w, NULL); /* and the base is as it was */
    t_note("delta: a wrong base");     /* one bit of it: no block that is wrong is written */
    for (i = 0; i < 2; i++) {
        uint8_t *const wrong = (uint8_t *)t_copy(old->files[0].data, old->files[0].size),
                       *const got = allocate(old->files[0].size);
        size_t at;
        for (at = (size_t)t->offset; at < t->offset + t->size; at += 20000) wrong[at] ^= 0x40;
        want(&w, 0, t->offset, (size_t)t->size, model->files[0].data, wrong, 0, (int)i);
        CHECK_STATUS(lmc_cuda_read(cuda, alone, w.parts, 1, NULL), LMC_ERR_BASE_WRONG);
        CHECK(strstr(lmc_cuda_message(cuda), "tensor layer.0.w, block") != NULL);
        CHECK(gpu.cuMemcpyDtoH_v2(got, w.dst[0].at, w.dst[0].size) == 0);
        /* each block of the tensor has a wrong bit, so none was written */
        if (i) CHECK(memcmp(got, wrong + t->offset, (size_t)t->size) == 0);
        free_wanted(&w);
        free(wrong);
        free(got);
    }
    lmc_reader_free(alone);
    lmc_reader_free(with_base);
}

/* How many waves it takes to read all tensors of a model. */
static long count_waves(lmc_cuda *cuda, const t_model *model, t_memory *file)
{
    lmc_reader *const reader = open_memory(file, NULL, NULL);
    const long before = gpu.fake_cuda_count("cuEventSynchronize");
    wanted w;
    w.n = 0;
    want_tensors(&w, model, NULL, 0, 0);
    read_right(cuda, reader, &w, NULL);
    lmc_reader_free(reader);
    return gpu.fake_cuda_count("cuEventSynchronize") - before;
}

/* The size of waves: chosen from the blocks, the device and its memory; or given. */
static void test_staging(void)
{
    part parts[2];
    t_model small, model;
    t_memory small_file, file;
    lmc_cuda_options options = LMC_DEFAULTS;
    lmc_cuda *cuda = NULL;
    char text[40];
    long live, used;
    parts[0] = make_part("a", "BF16", 1, 5 << 20, 0, T_GAUSS, 1);
    parts[1] = make_part("b", "BF16", 1, 1000, 0, T_GAUSS, 2);
    memset(&small, 0, sizeof small);
    memset(&model, 0, sizeof model);
    memset(&small_file, 0, sizeof small_file);
    memset(&file, 0, sizeof file);
    add_shard(&model, "large", parts, NULL, 2);
    add_shard(&small, "small", parts + 1, NULL, 1);
    CHECK_STATUS(t_write_model(&model, &file, NULL, 0, NULL), LMC_OK);
    CHECK_STATUS(t_write_model(&small, &small_file, NULL, 0, NULL), LMC_OK);
    options.driver_path = DRIVER;
    options.nvrtc_path = NVRTC;
    t_note("staging: by default");
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    live = gpu.fake_cuda_live();
    CHECK(count_waves(cuda, &small, &small_file) == 1);
    CHECK(count_waves(cuda, &model, &file) == 1); /* of more memory */
    CHECK(count_waves(cuda, &small, &small_file) == 1);
    used = gpu.fake_cuda_live();
    CHECK(used > live);
    lmc_cuda_trim(cuda);
    lmc_cuda_trim(cuda);
    CHECK(gpu.fake_cuda_live() < used);
    CHECK(count_waves(cuda, &model, &file) == 1);
    lmc_cuda_trim(cuda);
    lmc_cuda_trim(NULL);
    t_note("staging: little memory is free"); /* tensors, and 4.5 MiB for each wave, 36 times */
    (void)snprintf(text, sizeof text, "%lu",
                   (unsigned long)(model.files[0].size + (162u << 20) + (1u << 20)));
    setenv("FAKE_CUDA_MEMORY", text, 1);
    CHECK(count_waves(cuda, &model, &file) == 3);
    lmc_cuda_trim(cuda);
    (void)snprintf(text, sizeof text, "%lu", (unsigned long)(model.files[0].size + (50u << 20)));
    setenv("FAKE_CUDA_MEMORY", text, 1); /* and never less than for one block */
    CHECK(count_waves(cuda, &model, &file) == 3);
    setenv("FAKE_CUDA_MEMORY", "", 1);
    lmc_cuda_trim(cuda);
    t_note("staging: too little for one call, but not for the next");
    {
        lmc_reader *const reader = open_memory(&file, NULL, NULL);
        wanted w;
        w.n = 0;
        want_tensors(&w, &model, NULL, 0, 0);
        used = gpu.fake_cuda_live();
        setenv("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=2", 1);
        CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, w.n, NULL), LMC_ERR_MEMORY);
        setenv("FAKE_CUDA_FAIL", "", 1);
        CHECK(*lmc_cuda_message(cuda) && gpu.fake_cuda_live() == used);
        free_wanted(&w);
        lmc_reader_free(reader);
    }
    CHECK(count_waves(cuda, &model, &file) == 1);
    lmc_cuda_free(cuda);
    t_note("staging: said");
    options.staging_size = 8u << 20;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    CHECK(count_waves(cuda, &model, &file) == 3);
    lmc_cuda_free(cuda);
    options.staging_size = 64u << 20;
    CHECK_STATUS(lmc_cuda_open(&cuda, &options), LMC_OK);
    CHECK(count_waves(cuda, &model, &file) == 1);
    lmc_cuda_free(cuda);
    t_free_model(&small);
    t_free_model(&model);
    free_parts(parts, 2);
    free(small_file.data);
    free(file.data);
}

/* Packed bytes on the device: the same is read, and the same is refused. */
static void test_packed(lmc_cuda *cuda, const t_model *model, const t_model *old, t_memory *file)
{
    lmc_reader *const reader = open_memory(file, NULL, NULL);
    lmc_cuda_counts before, after;
    long n_copies, n_blocks;
    wanted w;
    size_t i;
    w.n = 0;
    for (i = 0; i < 3; i++) {
        array packed = make_array(file->data, file->size, i);
        t_note("packed bytes on the device, %lu", (unsigned long)i);
        want_tensors(&w, model, old, i, old && i % 2);
        if (i == 2) setenv("FAKE_CUDA_STATUS", "255", 1); /* the CPU decodes all */
        before = counts_of(cuda);
        n_copies = gpu.fake_cuda_count("cuMemcpyDtoHAsync_v2");
        CHECK_STATUS(
            lmc_cuda_read_packed(cuda, reader, w.parts, w.n, pointer(&packed), 0, file->size, NULL),
            LMC_OK);
        after = counts_of(cuda);
        setenv("FAKE_CUDA_STATUS", "", 1);
        CHECK(is_right(&w));
        CHECK(i == 2 ? after.gpu_bytes == before.gpu_bytes : after.gpu_bytes > before.gpu_bytes);
        n_copies = gpu.fake_cuda_count("cuMemcpyDtoHAsync_v2") - n_copies;
        n_blocks = (long)(after.gpu_blocks - before.gpu_blocks);
        CHECK(n_blocks > 20 ? n_copies < n_blocks : i == 2); /* headers come at once */
        free_wanted(&w);
        free_array(&packed);
    }
    t_note("packed bytes on the device: of one tensor");
    for (i = 0; i < 6; i++) { /* just enough; one byte less behind, or in front; damaged; none */
        const lmc_tensor *const t = &model->files[0].file.tensors[1];
        const enum lmc_status right[6] = {LMC_OK,           LMC_ERR_ARGUMENT, LMC_ERR_ARGUMENT,
                                          LMC_ERR_CHECKSUM, LMC_ERR_ARGUMENT, LMC_OK};
        uint64_t at, size;
        array packed;
        uint8_t *copy;
        enum lmc_status status;
        CHECK_STATUS(lmc_reader_encoded_range(reader, 0, t->offset, (size_t)t->size, &at, &size),
                     LMC_OK);
        copy = (uint8_t *)t_copy(file->data + at, (size_t)size + 16);
        if (i == 3) copy[size / 2] ^= 1;
        packed = make_array(copy, (size_t)size + 16, 3);
        want(&w, 0, t->offset, (size_t)t->size, model->files[0].data,
             old ? old->files[0].data : NULL, 0, 0);
        status = lmc_cuda_read_packed(cuda, reader, w.parts, 1, i == 4 ? NULL : pointer(&packed),
                                      at + (i == 2), size + 16 - (i == 1) - (i == 2), NULL);
        CHECK(status == right[i] || (i == 3 && status == LMC_ERR_CORRUPT) ||
              !printf("%s: %s\n", lmc_status_name(status), lmc_cuda_message(cuda)));
        CHECK((status == LMC_OK) == (*lmc_cuda_message(cuda) == 0));
        CHECK(status != LMC_OK || is_right(&w));
        free_wanted(&w);
        free_array(&packed);
        free(copy);
    }
    CHECK_STATUS(lmc_cuda_read_packed(NULL, reader, NULL, 0, NULL, 0, 0, NULL), LMC_ERR_ARGUMENT);
    lmc_reader_free(reader);
}

/* -- a base on the device -- */

#define BASE_PARTS 6u

/* A checkpoint, and the next one, in which tensors are predicted in different ways: by the same
 * tensor of the base, by another one, by a part of one, by one of the snapshot, by nothing. */
static void make_checkpoints(t_model *old, part *old_parts, t_model *model, part *parts,
                             lmc_twin *twin, lmc_base_part *others)
{
    t_file *f;
    size_t i;
    old_parts[0] = make_part("master", "F32", 2, 300, 100, T_GAUSS, 1);
    old_parts[1] = make_part("x", "BF16", 2, 300, 100, T_GAUSS, 2);
    old_parts[2] = make_part("y", "BF16", 2, 300, 100, T_GAUSS, 3);
    old_parts[3] = make_part("layers.z", "F16", 1, 20001, 0, T_GAUSS, 4);
    old_parts[4] = make_part("b", "F32", 1, 7, 0, T_GAUSS, 5);
    old_parts[5] = make_part("e", "BF16", 1, 0, 0, T_GAUSS, 6);
    for (i = 0; i < BASE_PARTS; i++) parts[i] = change(&old_parts[i], T_FEW, i);
    free(parts[1].data);
    parts[1].data = (uint8_t *)t_copy(parts[2].data, parts[2].size); /* they change places */
    free(parts[2].data);
    parts[2] = change(&old_parts[1], T_FEW, 9);
    parts[2].name = "y";
    parts[3].name = "wrapped.layers.z";
    parts[BASE_PARTS] = make_part("fresh", "F32", 2, 100, 100, T_GAUSS, 7);
    parts[BASE_PARTS + 1] = make_part("longer", "BF16", 2, 300, 150, T_GAUSS, 8);
    memcpy(parts[BASE_PARTS + 1].data + 1000, parts[2].data, 50000);
    parts[BASE_PARTS + 2] = make_part("twin", "BF16", 2, 300, 100, T_GAUSS, 8);
    CHECK_STATUS(lmc_conversion_apply(parts[BASE_PARTS + 2].data, parts[0].data, 30000,
                                      LMC_CONVERT_F32_TO_BF16),
                 LMC_OK);
    parts[BASE_PARTS + 3] = make_part("last", "U8", 1, 1000, 0, T_GAUSS, 8);
    memset(old, 0, sizeof *old);
    memset(model, 0, sizeof *model);
    add_shard(old, "", old_parts, NULL, BASE_PARTS);
    f = add_shard(model, "", parts, NULL, BASE_PARTS + 4);
    memset(others, 0, 4 * sizeof *others);
    others[0].name = "y";
    others[1].name = "x";
    others[0].size = others[1].size = parts[1].size;
    others[2].size = 1000; /* a gap */
    others[3].name = "x";
    others[3].size = 50000;
    f->hints[1].base_parts = &others[0];
    f->hints[2].base_parts = &others[1];
    f->hints[BASE_PARTS + 1].base_parts = &others[2];
    f->hints[1].n_base_parts = f->hints[2].n_base_parts = 1;
    f->hints[BASE_PARTS + 1].n_base_parts = 2;
    memset(twin, 0, sizeof *twin);
    twin->offset = f->file.tensors[0].offset;
    twin->conversion = LMC_CONVERT_F32_TO_BF16;
    f->hints[BASE_PARTS + 2].twin = twin;
}

static void test_base(lmc_cuda *cuda)
{
    static const uint8_t in_place[BASE_PARTS + 4] = {1, 0, 0, 0, 1, 1, 1, 0, 0, 1};
    static const char *const calls[] = {
        "cuMemHostAlloc", "cuMemAlloc_v2",        "cuCtxPushCurrent_v2", "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"};
    const long live = gpu.fake_cuda_live();
    part old_parts[BASE_PARTS], parts[BASE_PARTS + 4];
    const void *data[BASE_PARTS];
    array arrays[BASE_PARTS];
    lmc_tensor tensors[BASE_PARTS];
    lmc_base_part others[4];
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_cuda_base *base = NULL;
    lmc_cuda_counts before, after;
    t_model old, model;
    lmc_base on_cpu;
    lmc_twin twin;
    loose files;
    t_memory delta, full;
    own mine;
    size_t shift, i, k, n_tensors;
    wanted w;
    int can;
    w.n = 0;
    memset(&delta, 0, sizeof delta);
    memset(&full, 0, sizeof full);
    memset(&mine, 0, sizeof mine);
    make_checkpoints(&old, old_parts, &model, parts, &twin, others);
    on_cpu = make_loose(&files, &old, NULL, 0);
    mine.model = &model;
    options.log2_block = 14;
    CHECK_STATUS(t_write_model(&old, &full, &options, 0, NULL), LMC_OK);
    options.base = &on_cpu;
    options.read_back = read_own;
    options.user = &mine;
    CHECK_STATUS(t_write_model(&model, &delta, &options, 0, NULL), LMC_OK);
    n_tensors = model.files[0].file.n_tensors;
    t_note("a base on the device: arguments");
    CHECK_STATUS(lmc_cuda_base_open(NULL, cuda, NULL, NULL, 0, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_cuda_base_open(&base, NULL, NULL, NULL, 0, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_cuda_base_open(&base, cuda, NULL, data, 1, NULL), LMC_ERR_ARGUMENT);
    CHECK(base == NULL && *lmc_cuda_message(cuda));
    CHECK_STATUS(lmc_cuda_base_open(&base, cuda, NULL, NULL, 0, NULL), LMC_OK); /* of nothing */
    CHECK(base && lmc_cuda_base_get(base)->n_files == 1);
    lmc_cuda_base_free(base);
    lmc_cuda_base_free(NULL);
    CHECK(lmc_cuda_base_get(NULL) == NULL);
    for (shift = 0; shift < 3; shift++) {
        uint8_t fingerprint[LMC_FINGERPRINT_SIZE], want_fingerprint[LMC_FINGERPRINT_SIZE];
        lmc_reader *reader;
        t_note("a base on the device, shift %lu", (unsigned long)shift);
        for (i = 0; i < BASE_PARTS; i++) {
            tensors[i] = old.files[0].file.tensors[i];
            tensors[i].offset = 99; /* it is ignored */
            arrays[i] = make_array(old_parts[i].data, old_parts[i].size, shift);
            data[i] = pointer(&arrays[i]);
        }
        CHECK_STATUS(lmc_cuda_base_open(&base, cuda, tensors, data, BASE_PARTS, NULL), LMC_OK);
        CHECK_STATUS(lmc_base_identify(lmc_cuda_base_get(base), fingerprint, NULL), LMC_OK);
        CHECK_STATUS(lmc_base_identify(&on_cpu, want_fingerprint, NULL), LMC_OK);
        CHECK(memcmp(fingerprint, want_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
        reader = open_memory(&delta, lmc_cuda_base_get(base), NULL);
        want_tensors(&w, &model, NULL, shift, 0);
        before = counts_of(cuda);
        read_right(cuda, reader, &w, NULL);
        after = counts_of(cuda);
        /* all but the twin */
        CHECK(after.cpu_bytes - before.cpu_bytes == parts[BASE_PARTS + 2].size);
        CHECK(after.gpu_bytes - before.gpu_bytes > 400000);
        t_note("a base on the device: some tensors"); /* each with its own predictions */
        for (i = 0; i < n_tensors; i += 2) {
            const lmc_tensor *const t = &model.files[0].file.tensors[i];
            want(&w, 0, t->offset + 2, t->size ? (size_t)t->size - 2 : 0, model.files[0].data, NULL,
                 shift, 0);
            if (t->size == 0) w.parts[w.n - 1].offset = t->offset;
        }
        read_right(cuda, reader, &w, NULL);
        t_note("a base on the device: the reader's own calls");
        for (i = 0; i < n_tensors; i++) {
            const lmc_tensor *const t = &model.files[0].file.tensors[i];
            uint8_t *const got = allocate((size_t)t->size);
            CHECK_STATUS(lmc_reader_read_file(reader, 0, t->offset, got, (size_t)t->size), LMC_OK);
            CHECK(memcmp(got, parts[i].data, (size_t)t->size) == 0);
            free(got);
        }
        t_note("a base on the device: in place"); /* first tensors that others predict, to other
                                                     memory */
        for (i = 0; i < n_tensors; i++) {
            const lmc_tensor *const t = &model.files[0].file.tensors[i];
            can = 7;
            CHECK_STATUS(lmc_cuda_can_read_in_place(reader, 0, t->offset, t->size, &can), LMC_OK);
            CHECK(can == in_place[i] || !printf("%s: %d\n", t->name, can));
            if (!can) want(&w, 0, t->offset, (size_t)t->size, model.files[0].data, NULL, shift, 0);
        }
        {
            /* only the blocks of what is wanted matter: the end of this one has no prediction */
            const lmc_tensor *const t = &model.files[0].file.tensors[BASE_PARTS + 1];
            const uint64_t behind = others[2].size + others[3].size + (1u << 15);
            CHECK(t->size > behind);
            CHECK_STATUS(
                lmc_cuda_can_read_in_place(reader, 0, t->offset + behind, t->size - behind, &can),
                LMC_OK);
            CHECK(can == 1);
            CHECK_STATUS(
                lmc_cuda_can_read_in_place(reader, 0, t->offset + behind - (1u << 15) - 1, 1, &can),
                LMC_OK);
            CHECK(can == 0);
        }
        CHECK(w.n == 5);
        read_right(cuda, reader, &w, NULL);
        for (i = k = 0; i < n_tensors; i++) {
            const lmc_tensor *const t = &model.files[0].file.tensors[i];
            if (!in_place[i] || i >= BASE_PARTS) continue;
            memset(&w.parts[k], 0, sizeof w.parts[k]);
            w.parts[k].offset = t->offset;
            w.parts[k].size = t->size;
            w.parts[k++].dst = pointer(&arrays[i]);
        }
        CHECK_STATUS(lmc_cuda_read(cuda, reader, w.parts, k, NULL), LMC_OK);
        for (i = 0; i < BASE_PARTS; i++)
            CHECK(has_bytes(&arrays[i], (in_place[i] ? parts : old_parts)[i].data));
        lmc_reader_free(reader);
        lmc_cuda_base_free(base);
        t_note("a base on the device: it is another one now");
        CHECK_STATUS(lmc_cuda_base_open(&base, cuda, tensors, data, BASE_PARTS, NULL), LMC_OK);
        {
            lmc_reader_options with_base = LMC_DEFAULTS;
            lmc_source wrong = LMC_DEFAULTS;
            wrong.read_at = t_read_at;
            wrong.user = &delta;
            wrong.size = delta.size;
            with_base.base = lmc_cuda_base_get(base);
            reader = NULL;
            CHECK_STATUS(lmc_reader_open(&reader, &wrong, &with_base), LMC_ERR_BASE_WRONG);
            lmc_reader_free(reader);
        }
        lmc_cuda_base_free(base);
        for (i = 0; i < BASE_PARTS; i++) free_array(&arrays[i]);
    }
    t_note("a base on the device: failures");
    for (i = 0; i < BASE_PARTS; i++) {
        arrays[i] = make_array(old_parts[i].data, old_parts[i].size, 0);
        data[i] = pointer(&arrays[i]);
    }
    for (i = 0; i < sizeof calls / sizeof *calls; i++) {
        lmc_cuda *const other = open_cuda(NULL);
        char text[100];
        (void)snprintf(text, sizeof text, "%s=%d", calls[i], strstr(calls[i], "Alloc") ? 2 : 719);
        setenv("FAKE_CUDA_FAIL", text, 1);
        CHECK_STATUS(lmc_cuda_base_open(&base, other, tensors, data, BASE_PARTS, NULL),
                     strstr(calls[i], "Alloc") ? LMC_ERR_MEMORY : LMC_ERR_DEVICE);
        CHECK(base == NULL && *lmc_cuda_message(other));
        setenv("FAKE_CUDA_FAIL", "", 1);
        lmc_cuda_free(other);
    }
    CHECK_STATUS(lmc_cuda_base_open(&base, cuda, tensors, data, BASE_PARTS, NULL), LMC_OK);
    {
        lmc_reader *const reader = open_memory(&delta, lmc_cuda_base_get(base), NULL);
        const lmc_tensor *const t = &model.files[0].file.tensors[0];
        uint8_t *const got = allocate((size_t)t->size);
        setenv("FAKE_CUDA_FAIL", "cuMemcpyDtoHAsync_v2=719", 1);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, t->offset, got, (size_t)t->size),
                     LMC_ERR_DEVICE);
        setenv("FAKE_CUDA_FAIL", "cuCtxPushCurrent_v2=719", 1);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, t->offset, got, (size_t)t->size),
                     LMC_ERR_DEVICE);
        setenv("FAKE_CUDA_FAIL", "", 1);
        CHECK_STATUS(lmc_reader_read_file(reader, 0, t->offset, got, (size_t)t->size), LMC_OK);
        CHECK_STATUS(lmc_cuda_can_read_in_place(NULL, 0, 0, 1, &can), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_cuda_can_read_in_place(reader, 1, 0, 1, &can), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_cuda_can_read_in_place(reader, 0, model.files[0].size, 1, &can),
                     LMC_ERR_ARGUMENT);
        free(got);
        lmc_reader_free(reader);
    }
    lmc_cuda_base_free(base);
    for (i = 0; i < BASE_PARTS; i++) free_array(&arrays[i]);
    lmc_cuda_trim(cuda);
    CHECK(gpu.fake_cuda_live() <= live);
    free_loose(&files);
    t_free_model(&old);
    t_free_model(&model);
    free_parts(old_parts, BASE_PARTS);
    free_parts(parts, BASE_PARTS + 4);
    free(delta.data);
    free(full.data);
}

/* Each failure is reported, nothing leaks, and the next call works. */
static void test_failures(const t_model *old, const t_model *model, t_memory *delta)
{
    static const char *const calls[] = {
        "cuCtxPushCurrent_v2",  "cuMemHostAlloc",       "cuMemAlloc_v2",  "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuEventRecord",  "cuStreamWaitEvent",
        "cuEventSynchronize",   "cuStreamSynchronize",  "cuLaunchKernel", "cuMemsetD8Async"};
    const long live = gpu.fake_cuda_live();
    lmc_reader *const reader = open_memory(delta, NULL, NULL);
    const lmc_tensor *const first = &model->files[0].file.tensors[0];
    const size_t size = t_quick ? (size_t)(first->offset + first->size) : model->files[0].size;
    wanted w;
    size_t i, n, n_failed = 0;
    w.n = 0;
    for (i = 0; i < sizeof calls / sizeof *calls; i++)
        for (n = 1; n < (t_brief ? 3u : 5u); n++) {
            lmc_cuda *const cuda = open_cuda(NULL);
            char text[100];
            enum lmc_status status;
            t_note("call %lu of %s fails", (unsigned long)n, calls[i]);
            want(&w, 0, 0, size, model->files[0].data, old->files[0].data, 1, 1);
            (void)snprintf(text, sizeof text, "%s:%lu=%d", calls[i], (unsigned long)n,
                           n % 2 ? 2 : 700);
            setenv("FAKE_CUDA_FAIL", text, 1);
            status = lmc_cuda_read(cuda, reader, w.parts, 1, NULL);
            setenv("FAKE_CUDA_FAIL", "", 1);
            if (status != LMC_OK) {
                CHECK(status == (n % 2 ? LMC_ERR_MEMORY : LMC_ERR_DEVICE));
                CHECK(strstr(lmc_cuda_message(cuda), n % 2 ? "OUT_OF_MEMORY" : "ILLEGAL") != NULL);
                n_failed++;
            } else CHECK(is_right(&w));
            free_wanted(&w);
            want(&w, 0, 0, size, model->files[0].data, old->files[0].data, 1, 1);
            read_right(cuda, reader, &w, NULL);
            lmc_cuda_free(cuda);
            CHECK(gpu.fake_cuda_live() == live);
        }
    CHECK(n_failed > (t_brief ? 10 : 20));
    lmc_reader_free(reader);
}

static void test_memory(const t_model *model, t_memory *file)
{
    t_heap heap = {0, -1, 0, 0, 0, 0, {NULL, NULL, {0, 0}}};
    lmc_reader_options options = LMC_DEFAULTS;
    lmc_cuda_options cuda_options = LMC_DEFAULTS;
    long fail_at;
    cuda_options.driver_path = DRIVER;
    cuda_options.nvrtc_path = NVRTC;
    cuda_options.staging_size = 8u << 20;
    cuda_options.cache_dir = "/nowhere";
    cuda_options.allocator = options.allocator = t_allocator(&heap);
    for (fail_at = 0; fail_at < 10000; fail_at += t_quick ? 3 : 1) {
        lmc_source source = LMC_DEFAULTS;
        lmc_reader *reader = NULL;
        lmc_cuda *cuda = NULL;
        enum lmc_status status;
        wanted w;
        w.n = 0;
        t_note("allocation %ld fails", fail_at);
        source.read_at = t_read_at;
        source.user = file;
        source.size = file->size;
        want_tensors(&w, model, NULL, 0, 0);
        heap.calls = 0;
        heap.fail_at = fail_at;
        status = lmc_cuda_open(&cuda, &cuda_options);
        if (status == LMC_OK) status = lmc_reader_open(&reader, &source, &options);
        if (status == LMC_OK) {
            status = lmc_cuda_read(cuda, reader, w.parts, w.n, NULL);
            CHECK((status == LMC_OK) == (*lmc_cuda_message(cuda) == 0));
        }
        CHECK(status == LMC_OK || status == LMC_ERR_MEMORY);
        if (status == LMC_OK) CHECK(is_right(&w));
        free_wanted(&w);
        lmc_reader_free(reader);
        lmc_cuda_free(cuda);
        CHECK(heap.live == 0 && heap.wrong_size == 0);
        if (status == LMC_OK && heap.calls <= fail_at) return;
    }
    CHECK(!"an end of all allocations");
}

/* More than one wave, and blocks as large as they may be. */
static void test_waves(lmc_cuda *cuda)
{
    unsigned log2_block;
    for (log2_block = t_brief ? 22 : 14; log2_block <= 22; log2_block += t_quick ? 8 : 4) {
        part parts[3];
        t_model model;
        t_memory out;
        lmc_writer_options options = LMC_DEFAULTS;
        lmc_reader *reader;
        wanted w;
        size_t i;
        t_note("waves, blocks of 2^%u elements", log2_block);
        w.n = 0;
        memset(&model, 0, sizeof model);
        memset(&out, 0, sizeof out);
        parts[0] = make_part("a", "BF16", 2, 3000, t_quick ? 500 : 1500, T_GAUSS, 1);
        parts[1] = make_part("b", "F32", 2, 1000, t_quick ? 300 : 1500, T_GAUSS, 2);
        parts[2] = make_part("c", "U8", 1, 2000001, 0, T_RANDOM, 3);
        add_shard(&model, "waves", parts, NULL, 3);
        options.log2_block = log2_block;
        CHECK_STATUS(t_write_model(&model, &out, &options, 0, NULL), LMC_OK);
        reader = open_memory(&out, NULL, NULL);
        want_tensors(&w, &model, NULL, 0, 0);
        /* work that is in the caller's stream is done first */
        for (i = 0; i < w.n; i++)
            CHECK(gpu.cuMemsetD8Async(w.dst[i].at, 7, w.dst[i].size, NULL) == 0);
        read_right(cuda, reader, &w, NULL);
        setenv("FAKE_CUDA_ORDER", log2_block == 14 ? "3" : "4", 1);
        want(&w, 0, 0, model.files[0].size, model.files[0].data, NULL, 3, 0);
        CHECK(gpu.cuMemsetD8Async(w.dst[0].at, 7, w.dst[0].size, NULL) == 0);
        read_right(cuda, reader, &w, NULL);
        setenv("FAKE_CUDA_ORDER", "", 1);
        lmc_reader_free(reader);
        t_free_model(&model);
        free_parts(parts, 3);
        free(out.data);
    }
}

int main(int argc, char **argv)
{
    const size_t n_elements = 700;
    part old_parts[OLD_PARTS], parts[OLD_PARTS];
    t_model old, model;
    t_memory full, delta;
    lmc_writer_options options = LMC_DEFAULTS;
    lmc_base base;
    loose loose_old;
    lmc_cuda *cuda;
    size_t i;
    t_begin(argc, argv);
    if (!CHECK(open_driver())) return t_end();
    memset(&full, 0, sizeof full);
    memset(&delta, 0, sizeof delta);
    make_old_parts(old_parts, n_elements);
    make_old_model(&old, old_parts);
    for (i = 0; i < OLD_PARTS; i++)
        parts[i] = change(&old_parts[i], i % 4 == 3 ? T_STEPS : i % 4 ? T_FEW : T_DRIFT, i);
    make_old_model(&model, parts);
    base = make_loose(&loose_old, &old, NULL, 0);
    options.log2_block = 14;
    CHECK_STATUS(t_write_model(&old, &full, &options, 0, NULL), LMC_OK);
    options.base = &base;
    CHECK_STATUS(t_write_model(&model, &delta, &options, 0, NULL), LMC_OK);
    test_open();
    test_cache();
    cuda = open_cuda(NULL);
    test_full(cuda, &old, &full);
    test_arguments(cuda, &full);
    test_statuses(cuda, &old, &full);
    test_fingerprints(cuda, &old, &full);
    test_damage(cuda, &old, &full, NULL, NULL);
    test_delta(cuda, &old, &model, &delta, &base);
    test_damage(cuda, &model, &delta, &base, &old);
    test_waves(cuda);
    lmc_cuda_trim(cuda); /* little of the memory may be in use */
    test_staging();
    test_packed(cuda, &old, NULL, &full);
    test_packed(cuda, &model, &old, &delta);
    test_base(cuda);
    lmc_cuda_free(cuda);
    test_failures(&old, &model, &delta);
    test_memory(&old, &full);
    t_note("the end");
    CHECK(gpu.fake_cuda_live() == 1); /* the context of this program */
    CHECK(gpu.cuDevicePrimaryCtxRelease_v2(0) == 0);
    free_loose(&loose_old);
    t_free_model(&old);
    t_free_model(&model);
    free_parts(old_parts, OLD_PARTS);
    free_parts(parts, OLD_PARTS);
    free(full.data);
    free(delta.data);
    return t_end();
}
