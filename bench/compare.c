/* Compares an old and a new lmc.h in one process; bench/compare builds and runs it.
 *
 *   compare OLD.so NEW.so [--pairs N] [--tier NAME] [--only TEXT] [--parts LIST] [--series DIR]
 *           [--files OLD:NEW,OLD:NEW ...] [--bytes-differ 1]
 *
 * Parts; the default is all: kernels, codec, blocks, huge, delta, quantise.
 *
 * Both objects are this file compiled with -DCOMPARE_SIDE=1 and the bench/bench.c of the version,
 * and both work on the same memory. Each row is run for slices of some milliseconds, old, new, new,
 * old, and so on; the output is the median over the pairs of the old time by the new time (above 1:
 * the new version is faster), and the quartiles. Disturbances by other programs last longer than a
 * slice, so they affect both. A row that seems slower by more than 2 % is measured again, with
 * three times as many pairs; this result counts. To see chance differences, compare a version with
 * itself. Both must encode to the same bytes. With --bytes-differ each version decodes its own, and
 * rows show both sizes. --files: more bf16 pairs for the part delta. */
#if defined(COMPARE_SIDE)
#define main bench_main
#define fix (*fix) /* a pointer; in bench.c it is a static struct */
#include BENCH_C
#undef main
#undef fix

static const lmc__kernels *kernels;

const char *compare_kernel_name(size_t row);
void compare_prepare_kernels(int tier);
size_t compare_run_kernel(size_t row);

const char *compare_kernel_name(size_t row)
{
    return row < sizeof kernel_rows / sizeof *kernel_rows ? kernel_rows[row].name : NULL;
}
void compare_prepare_kernels(int tier)
{
    huge_pages = 1; /* else the kind of pages that a version got would count */
    if (fix == NULL) fix = (struct fixture *)(void *)allocate(sizeof *fix);
    kernels = lmc__find_kernels((enum lmc_tier)tier); /* slow in virtual machines */
    prepare_kernels();
}
size_t compare_run_kernel(size_t row) { return kernel_rows[row].run(kernels, NULL); }
#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

#define BENCH "compare"
#include "measure.h"

#include "data.h"

enum { OLD, NEW, N_SIDES };

/* A version of the library. Both are called by the declarations of the new header, so structs of
 * the public API must be the same. Before 1.0 options had no struct_size in front, but the same
 * members behind it; and one function decoded ranges and whole tensors. */
static struct side {
    const char *(*kernel_name)(size_t row);
    void (*prepare_kernels)(int tier);
    size_t (*run_kernel)(size_t row);
    void (*limit_tier)(enum lmc_tier tier);
    __typeof__(lmc_tensor_encode) *encode;
    __typeof__(lmc_tensor_decode) *decode; /* NULL: it has only old_decode */
    enum lmc_status (*old_decode)(void *to, uint64_t offset, size_t size, const void *src,
                                  size_t src_size, uint64_t total_size, const void *options,
                                  void *space, size_t space_size);
    __typeof__(lmc_quantizer_fit) *fit;
    __typeof__(lmc_quantizer_free) *free_quantizer;
    lmc_quantizer *fitted[2]; /* second moment, first */
} sides[N_SIDES];

/* old: its name in lmc.h 0.5 */
static void load(void *function, void *object, const char *name, const char *old)
{
    void *symbol = dlsym(object, name);
    if (symbol == NULL) symbol = dlsym(object, old);
    if (symbol == NULL) fail("there is no ", name);
    memcpy(function, &symbol, sizeof symbol);
}

static void open_side(struct side *side, const char *path)
{
    void *const object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) fail("cannot open ", path);
    load(&side->kernel_name, object, "compare_kernel_name", "compare_kernel_name");
    load(&side->prepare_kernels, object, "compare_prepare_kernels", "compare_prepare_kernels");
    load(&side->run_kernel, object, "compare_run_kernel", "compare_run_kernel");
    load(&side->limit_tier, object, "lmc_tier_limit", "lmc_limit_tier");
    load(&side->encode, object, "lmc_tensor_encode", "lmc_encode_tensor");
    if (dlsym(object, "lmc_tensor_decode_range") != NULL)
        load(&side->decode, object, "lmc_tensor_decode", "lmc_tensor_decode");
    else load(&side->old_decode, object, "lmc_tensor_decode", "lmc_decode_tensor");
    load(&side->fit, object, "lmc_quantizer_fit", "lmc_fit_quantizer");
    load(&side->free_quantizer, object, "lmc_quantizer_free", "lmc_free_quantizer");
}

/* == pairs ==================================== */

/* run: one run by that side; returns the bytes for the speed. start: called before each slice, not
 * timed, and a slice is then one run; may be NULL. */
struct row {
    const char *part, *data, *what;
    size_t (*run)(const struct side *side, const void *arg);
    void (*start)(const void *arg);
    const void *arg;
};

static int n_rows, n_slower, bytes_differ;
static const char *files;

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double slice(const struct row *row, const struct side *side, size_t loops)
{
    double start;
    size_t i;
    if (row->start != NULL) row->start(row->arg);
    start = cpu_time();
    for (i = 0; i < loops; i++) row->run(side, row->arg);
    return cpu_time() - start;
}

/* Sorts times and ratios; returns the median ratio. */
static double measure_pairs(const struct row *row, size_t loops, int n_pairs,
                            double times[N_SIDES][3 * MAX_REPS], double *ratios)
{
    int i, k;
    for (i = 0; i < n_pairs; i++) {
        for (k = 0; k < N_SIDES; k++) {
            const int which = (i + k) & 1;
            times[which][i] = slice(row, &sides[which], loops);
        }
        ratios[i] = times[OLD][i] / times[NEW][i];
    }
    for (k = 0; k < N_SIDES; k++) qsort(times[k], (size_t)n_pairs, sizeof **times, compare_doubles);
    qsort(ratios, (size_t)n_pairs, sizeof *ratios, compare_doubles);
    return ratios[n_pairs / 2];
}

static void compare(const struct row *row, int tier, const char *level)
{
    static double times[N_SIDES][3 * MAX_REPS], ratios[3 * MAX_REPS];
    int n_pairs = n_reps, is_slower;
    size_t loops = 1, size;
    double gb, ratio;
    sides[OLD].limit_tier((enum lmc_tier)tier);
    sides[NEW].limit_tier((enum lmc_tier)tier);
    if (row->start != NULL) row->start(row->arg);
    size = row->run(&sides[NEW], row->arg);
    while (slice(row, &sides[OLD], loops) < 0.003 && row->start == NULL) loops *= 2;
    ratio = measure_pairs(row, loops, n_pairs, times, ratios);
    if (ratio < 0.98) ratio = measure_pairs(row, loops, n_pairs = 3 * n_reps, times, ratios);
    is_slower = ratio < 0.98;
    gb = (double)size * (double)loops / 1e9;
    printf("| %s | %s | %s | %s%s | %.2f | %.2f | %.3f | %.3f to %.3f |%s\n", row->part, row->data,
           row->what, lmc_tier_name((enum lmc_tier)tier), level, gb / times[OLD][n_pairs / 2],
           gb / times[NEW][n_pairs / 2], ratio, ratios[n_pairs / 4], ratios[n_pairs * 3 / 4],
           is_slower ? " slower" : "");
    fflush(stdout);
    n_rows++;
    n_slower += is_slower;
}

/* == kernels ==================================== */

/* arg: the row of that name in each version's table */
static size_t run_kernel(const struct side *side, const void *arg)
{
    return side->run_kernel(((const size_t *)arg)[side - sides]);
}

static void compare_kernels(void)
{
    size_t rows[N_SIDES];
    const char *name, *other;
    int tier;
    for (tier = 0; tier < LMC__N_TIERS; tier++) {
        if (!wanted_tier(tier)) continue;
        sides[OLD].prepare_kernels(tier);
        sides[NEW].prepare_kernels(tier);
        for (rows[NEW] = 0; (name = sides[NEW].kernel_name(rows[NEW])); rows[NEW]++) {
            const struct row row = {"kernels", name, "", run_kernel, NULL, rows};
            rows[OLD] = 0;
            while ((other = sides[OLD].kernel_name(rows[OLD])) && strcmp(other, name) != 0)
                rows[OLD]++;
            if (other != NULL && (only == NULL || strstr(name, only))) compare(&row, tier, "");
        }
    }
}

/* == arrays ==================================== */

/* Two encoded arrays, for the check that they are the same. */
static uint8_t *enc[N_SIDES], *dst, *ws;
static size_t cap, ws_size;

struct array {
    const uint8_t *src;
    size_t size, enc_size[N_SIDES];
    lmc_tensor_options options;
};

static void check(enum lmc_status status)
{
    if (status != LMC_OK) fail("LMC: ", lmc_status_text(status));
}

/* The options as that side has them. */
static const void *options_of(const struct side *side, const void *options)
{
    return (const uint8_t *)options + (side->decode ? 0 : sizeof(size_t));
}

static size_t encode_to(const struct side *side, const struct array *array, uint8_t *to)
{
    size_t size;
    check(side->encode(to, cap, &size, array->src, array->size, options_of(side, &array->options),
                       ws, ws_size));
    return size;
}
static size_t encode(const struct side *side, const void *arg)
{
    const struct array *const array = (const struct array *)arg;
    encode_to(side, array, enc[side - sides]);
    return array->size;
}
static size_t decode_with(const struct side *side, const struct array *array,
                          const lmc_tensor_options *options)
{
    const int k = bytes_differ ? (int)(side - sides) : OLD;
    check(side->decode
              ? side->decode(dst, array->size, enc[k], array->enc_size[k], options, ws, ws_size)
              : side->old_decode(dst, 0, array->size, enc[k], array->enc_size[k], array->size,
                                 options_of(side, options), ws, ws_size));
    return array->size;
}
static size_t decode(const struct side *side, const void *arg)
{
    const struct array *const array = (const struct array *)arg;
    return decode_with(side, array, &array->options);
}

/* Prepares decoding over the prediction. */
static void start_apply(const void *arg)
{
    const struct array *const array = (const struct array *)arg;
    memcpy(dst, array->options.prediction, array->size);
}
static size_t apply(const struct side *side, const void *arg)
{
    const struct array *const array = (const struct array *)arg;
    lmc_tensor_options options = array->options;
    options.prediction = dst;
    return decode_with(side, array, &options);
}

static void compare_array(const char *part, const char *data, struct array *array, int tier,
                          const char *level)
{
    const struct row rows[] = {{part, data, "encode", encode, NULL, array},
                               {part, data, "decode", decode, NULL, array},
                               {part, data, "apply", apply, start_apply, array}};
    int k;
    for (k = 0; k < N_SIDES; k++) {
        sides[k].limit_tier((enum lmc_tier)tier);
        array->enc_size[k] = encode_to(&sides[k], array, enc[k]);
    }
    if (bytes_differ)
        printf("| %s | %s | bytes | %s%s | %zu | %zu | %.4f | |\n", part, data,
               lmc_tier_name((enum lmc_tier)tier), level, array->enc_size[OLD],
               array->enc_size[NEW], (double)array->enc_size[NEW] / (double)array->enc_size[OLD]);
    else if (array->enc_size[OLD] != array->enc_size[NEW] ||
             memcmp(enc[OLD], enc[NEW], array->enc_size[OLD]) != 0)
        fail("the bytes differ: ", data);
    for (k = 0; k < N_SIDES; k++) {
        memset(dst, 0xEE, array->size);
        decode(&sides[k], array);
        if (memcmp(dst, array->src, array->size) != 0) fail("did not come back: ", data);
    }
    compare(&rows[0], tier, level);
    compare(&rows[1], tier, level);
    if (array->options.prediction != NULL && array->size > (size_t)8 << 20)
        compare(&rows[2], tier, level);
}

/* Compares each tier, and the higher level on the best tier. */
static void compare_tiers(const char *part, const char *data, const uint8_t *src, size_t size,
                          enum lmc_dtype dtype, const uint8_t *prediction)
{
    struct array array;
    int tier;
    memset(&array, 0, sizeof array);
    array.src = src;
    array.size = size;
    array.options.dtype = dtype;
    array.options.prediction = prediction;
    array.options.prediction_size = prediction ? size : 0;
    for (tier = 0; tier < LMC__N_TIERS; tier++)
        if (wanted_tier(tier)) compare_array(part, data, &array, tier, "");
    if (getenv("NOMAX")) return;
    array.options.level = LMC_LEVEL_MAX;
    compare_array(part, data, &array, best_tier(), ", max");
}

static const size_t sizes[] = {1000000, 16000000}; /* in the caches; streamed */

static void open_arrays(size_t size)
{
    cap = size + size / 8 + ((size_t)1 << 20);
    ws_size = (size_t)64 << 20; /* more than any row needs */
    enc[OLD] = allocate(cap);
    enc[NEW] = allocate(cap);
    dst = allocate(size);
    ws = allocate(ws_size);
}

static void close_arrays(void)
{
    release(enc[OLD], cap);
    release(enc[NEW], cap);
    release(ws, ws_size);
}

static void compare_sets(const char *part)
{
    const size_t size = sizes[1];
    size_t i, k;
    char name[100];
    uint8_t *src;
    huge_pages = strcmp(part, "huge") == 0;
    open_arrays(size);
    src = allocate(size);
    for (i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (only != NULL && strstr(sets[i].name, only) == NULL) continue;
        if (strcmp(part, "codec") != 0 && i > 2) break;
        fill_set(src, size, &sets[i]);
        for (k = 0; k < 2 && strcmp(part, "codec") == 0; k++) {
            snprintf(name, sizeof name, "%s, %u MB", sets[i].name, (unsigned)(sizes[k] / 1000000));
            compare_tiers(part, name, src, sizes[k], sets[i].dtype, NULL);
        }
        for (k = 14; k <= 20 && strcmp(part, "codec") != 0; k++) {
            struct array array;
            if (huge_pages && k != 16) continue;
            memset(&array, 0, sizeof array);
            array.src = src;
            array.size = size;
            array.options.dtype = sets[i].dtype;
            array.options.log2_block = (unsigned)k;
            snprintf(name, sizeof name, "%s, %u Ki", sets[i].name, 1u << (k - 10));
            compare_array(part, name, &array, best_tier(), "");
        }
    }
    release(src, size);
    release(dst, size);
    close_arrays();
    huge_pages = 0;
}

static void compare_deltas(const char *series)
{
    const size_t room = 200000000, size = sizes[1];
    uint8_t *old = allocate(room), *now_ = allocate(room);
    struct pair pair;
    char name[100];
    unsigned i, k;
    open_arrays(size);
    for (i = 0; i < N_PAIRS; i++) {
        if (!get_pair(&pair, i, series, size, old, now_, room)) continue;
        repeat(old, pair.size, size);
        repeat(now_, pair.size, size);
        for (k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s, %u MB", pair.name, (unsigned)(sizes[k] / 1000000));
            compare_tiers("delta", name, now_, sizes[k], pair.dtype, old);
        }
    }
    while (files != NULL) {
        char path[2][1000];
        int used = 0;
        size_t at;
        if (sscanf(files, "%999[^:]:%999[^,]%n", path[0], path[1], &used) != 2)
            fail("not OLD:NEW: ", files);
        at = append_file(old, room, path[0], LMC_BF16);
        if (append_file(now_, room, path[1], LMC_BF16) != at) fail("another size: ", path[1]);
        files = files[used] == ',' ? files + used + 1 : NULL;
        repeat(old, at, size);
        repeat(now_, at, size);
        compare_tiers("delta", path[0], now_, sizes[1], LMC_BF16, old);
    }
    release(old, room);
    release(now_, room);
    release(dst, size);
    close_arrays();
}

/* == moments ==================================== */

struct moments {
    struct array array; /* of the moment that is quantised */
    lmc_quantizer_options fit;
    int which;
    uint8_t *restored; /* second moment */
    float *values[2];
};

static size_t quantize(const struct side *side, const void *arg)
{
    const struct moments *const m = (const struct moments *)arg;
    struct side *const own = &sides[side - sides];
    lmc_quantizer_options fit = m->fit;
    lmc_source elements = t_elements(m->values[m->which], m->array.size), seconds;
    struct array array = m->array;
    if (m->which) {
        fit.second = own->fitted[0];
        seconds = t_elements(m->values[0], m->array.size);
        fit.second_elements = &seconds;
    }
    own->free_quantizer(own->fitted[m->which]);
    check(own->fit(&own->fitted[m->which], &elements,
                   (const lmc_quantizer_options *)options_of(own, &fit)));
    array.options.quantizer = own->fitted[m->which];
    return encode(side, &array);
}

static void compare_moments(void)
{
    static const struct {
        const char *name;
        unsigned bits;
        double bound;
    } modes[] = {{"8 bits", 8, 0}, {"4 bits", 4, 0}, {"update 0.007", 0, 0.007}};
    const size_t n = (size_t)1 << 20;
    struct moments m;
    char name[100];
    int tier, mode, k;
    memset(&m, 0, sizeof m);
    open_arrays(m.array.size = 4 * n);
    m.restored = allocate(4 * n);
    for (k = 0; k < 2; k++) m.values[k] = (float *)(void *)allocate(4 * n);
    make_moments(m.values[0], m.values[1], n);
    m.array.options.dtype = m.fit.dtype = LMC_F32;
    m.array.options.prediction_size = 4 * n;
    m.fit.measure = LMC_MEASURE_UPDATE;
    m.fit.group = MOMENTS_ROW;
    for (tier = 0; tier < LMC__N_TIERS; tier++)
        for (mode = 0; mode < 3 && wanted_tier(tier); mode++)
            for (m.which = 0; m.which < 2; m.which++) {
                const struct row rows[] = {{"quantise", name, "quantise", quantize, NULL, &m},
                                           {"quantise", name, "restore", decode, NULL, &m.array}};
                snprintf(name, sizeof name, "%s, %s", m.which ? "first" : "second",
                         modes[mode].name);
                m.array.src = (const uint8_t *)m.values[m.which];
                m.array.options.prediction = m.which ? m.restored : NULL;
                m.array.options.prediction_size = m.which ? 4 * n : 0;
                m.fit.role = m.which ? LMC_ROLE_FIRST_MOMENT : LMC_ROLE_SECOND_MOMENT;
                m.fit.bits = modes[mode].bits;
                m.fit.bound = modes[mode].bound;
                m.array.options.log2_block = 0;
                compare(&rows[0], tier, "");
                quantize(&sides[NEW], &m);
                quantize(&sides[OLD], &m);
                m.array.options.quantizer = sides[OLD].fitted[m.which];
                m.array.enc_size[OLD] = encode_to(&sides[OLD], &m.array, enc[OLD]);
                m.array.options.quantizer = sides[NEW].fitted[m.which]; /* each side has its own */
                m.array.enc_size[NEW] = encode_to(&sides[NEW], &m.array, enc[NEW]);
                m.array.options.quantizer = NULL;
                m.array.options.log2_block = 18; /* the size of quantised blocks */
                if (!bytes_differ && memcmp(enc[OLD], enc[NEW], m.array.enc_size[OLD]) != 0)
                    fail("the bytes differ: ", name);
                compare(&rows[1], tier, "");
                if (m.which == 0) memcpy(m.restored, dst, 4 * n);
            }
}

int main(int argc, char **argv)
{
    const char *parts = "kernels,codec,blocks,huge,delta,quantise", *series = NULL;
    cpu_set_t cpu;
    int i;
    n_reps = 31;
    for (i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--pairs") == 0) n_reps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--tier") == 0) only_tier = argv[i + 1];
        else if (strcmp(argv[i], "--only") == 0) only = argv[i + 1];
        else if (strcmp(argv[i], "--parts") == 0) parts = argv[i + 1];
        else if (strcmp(argv[i], "--series") == 0) series = argv[i + 1];
        else if (strcmp(argv[i], "--files") == 0) files = argv[i + 1];
        else if (strcmp(argv[i], "--bytes-differ") == 0) bytes_differ = atoi(argv[i + 1]);
        else break;
    }
    if (i != argc || n_reps < 1 || n_reps > MAX_REPS) {
        fprintf(stderr, "usage: compare OLD.so NEW.so [--pairs N] [--tier NAME] [--only TEXT]"
                        " [--parts LIST] [--series DIR] [--files OLD:NEW,...]"
                        " [--bytes-differ 1]\n");
        return 2;
    }
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    open_side(&sides[OLD], argv[1]);
    open_side(&sides[NEW], argv[2]);
    printf("| part | data | what | tier | old GB/s | new GB/s | old / new time | quartiles |\n"
           "|---|---|---|---|---|---|---|---|\n");
    if (strstr(parts, "kernels")) compare_kernels();
    if (strstr(parts, "codec")) compare_sets("codec");
    if (strstr(parts, "blocks")) compare_sets("blocks");
    if (strstr(parts, "huge")) compare_sets("huge");
    if (strstr(parts, "delta")) compare_deltas(series);
    if (strstr(parts, "quantise")) compare_moments();
    printf("\n%d rows, %d slower by more than 2 %%\n", n_rows, n_slower);
    return n_slower != 0;
}
#endif
