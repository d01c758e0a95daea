/* Predictions in all three layers: blocks and tensors against any array, snapshots against a base
 * and against themselves. Blocks that the encoder does not make are built by hand, and decoded by a
 * model that was written from the spec alone. */
#include "t_parts.h"
#include "t_wire.h"
#include "../../include/lmc_salvage.h"

static t_guard g_src, g_base, g_enc, g_dst, g_ws;

/* ==== blocks ==== */

static enum lmc_level g_level;
static const char *const level_names[] = {", fast", "", ", max", ", archive"};
static long g_predicted; /* blocks that used their prediction */

static int is_filled(const uint8_t *p, size_t size, int value)
{
    size_t i;
    for (i = 0; i < size && p[i] == value; i++) {}
    return i == size;
}

/* A damaged block, or a damaged prediction: CHECKSUM or BASE_WRONG. In place the prediction then
 * stays as it was. (Another prediction may give the same elements, in constant classes.) */
static void refuse_damage(const uint8_t *src, const uint8_t *enc, size_t enc_size, uint8_t *base,
                          size_t size, uint32_t number, uint8_t *ws, size_t ws_size)
{
    uint8_t *const dst = t_tail(&g_dst, size), *const bad = (uint8_t *)t_copy(enc, enc_size);
    const size_t rounds = size > 100000 ? 2 : t_kernels_only ? 3 : 6;
    uint64_t state = size + enc_size;
    size_t got = 4321, n_wrong = 0, i;
    enum lmc_status status;
    for (i = 0; i < rounds; i++) { /* the first byte, the last, others */
        const size_t in_payload = LMC_BLOCK_HEADER_SIZE +
                                  (i == 0   ? 0
                                   : i == 1 ? enc_size - LMC_BLOCK_HEADER_SIZE - 1
                                            : t_below(&state, enc_size - LMC_BLOCK_HEADER_SIZE)),
                     at = i == 0   ? 0
                          : i == 1 ? size - 1
                                   : t_below(&state, size);
        const uint8_t bit = (uint8_t)(1u << t_below(&state, 8));
        bad[in_payload] ^= bit;
        memcpy(dst, base, size);
        CHECK_STATUS(t_block_decode(dst, size, &got, bad, enc_size, dst, size, number, ws, ws_size),
                     LMC_ERR_CHECKSUM);
        CHECK(memcmp(dst, base, size) == 0);
        /* the damage is found without the prediction, and with any other */
        CHECK_STATUS(t_block_decode(dst, size, &got, bad, enc_size, NULL, 0, number, ws, ws_size),
                     LMC_ERR_CHECKSUM);
        bad[in_payload] ^= bit;
        base[at] ^= bit;
        dst[at] ^= bit;
        status = t_block_decode(dst, size, &got, bad, enc_size, dst, size, number, ws, ws_size);
        CHECK(status == LMC_ERR_BASE_WRONG
                  ? memcmp(dst, base, size) == 0 && got == 4321
                  : status == LMC_OK && memcmp(dst, src, size) == 0 && got == size);
        CHECK_STATUS(
            t_block_decode(dst, size, &got, bad, enc_size, base, size, number, ws, ws_size),
            status);
        base[at] ^= bit;
        got = 4321;
        n_wrong += status == LMC_ERR_BASE_WRONG;
    }
    CHECK(n_wrong > 0 || size < 20000);
    free(bad);
}

/* The same, if the block does not use the prediction that it is decoded over. */
static void test_damage_in_place(void)
{
    enum { SIZE = 1 << 15 };
    const size_t ws_size = lmc_block_workspace_size(SIZE, 1);
    uint8_t *const ws = (uint8_t *)malloc(ws_size), *const src = (uint8_t *)malloc(SIZE),
                   *const base = (uint8_t *)malloc(SIZE), *const dst = (uint8_t *)malloc(SIZE),
                   *const enc = (uint8_t *)malloc(lmc_block_bound(SIZE));
    uint64_t state = 5;
    size_t enc_size = 0, got = 0, i, at;
    int kind;
    for (kind = 0; kind < 2; kind++) { /* stored; planes */
        lmc_block_options options = LMC_DEFAULTS;
        lmc_block_info info;
        for (i = 0; i < SIZE; i++) {
            src[i] = (uint8_t)(kind && i & 1 ? 60 + t_below(&state, 2) : t_below(&state, 256));
            base[i] = (uint8_t)t_below(&state, 256);
        }
        options.dtype = LMC_BF16;
        options.prediction = base;
        options.prediction_size = SIZE;
        CHECK_STATUS(lmc_block_encode(enc, lmc_block_bound(SIZE), &enc_size, src, SIZE, &options,
                                      ws, ws_size),
                     LMC_OK);
        CHECK(lmc_block_parse(enc, enc_size, 0, &info) == LMC_OK && !info.has_prediction &&
              info.is_stored == !kind);
        options.prediction = dst;
        for (i = 0; i < 20; i++) {
            at = LMC_BLOCK_HEADER_SIZE + t_below(&state, enc_size - LMC_BLOCK_HEADER_SIZE);
            enc[at] ^= 1;
            memcpy(dst, base, SIZE);
            CHECK(lmc_block_decode(dst, SIZE, &got, enc, enc_size, &options, ws, ws_size) !=
                  LMC_OK);
            CHECK(memcmp(dst, base, SIZE) == 0);
            enc[at] ^= 1;
        }
        CHECK_STATUS(lmc_block_decode(dst, SIZE, &got, enc, enc_size, &options, ws, ws_size),
                     LMC_OK);
        CHECK(got == SIZE && memcmp(dst, src, SIZE) == 0);
    }
    free(ws), free(src), free(base), free(dst), free(enc);
}

/* A block with a prediction, decoded without it, with another one, with a shorter one: the right
 * status. Without a prediction dst is not touched. */
static void refuse_bases(const uint8_t *src, const uint8_t *enc, size_t enc_size, uint8_t *base,
                         size_t size, uint32_t number, uint8_t *ws, size_t ws_size)
{
    uint8_t *const dst = t_tail(&g_dst, size);
    size_t got = 4321;
    memset(dst, 0x6E, size);
    CHECK_STATUS(t_block_decode(dst, size, &got, enc, enc_size, NULL, 0, number, ws, ws_size),
                 LMC_ERR_BASE_MISSING);
    CHECK_STATUS(t_block_decode(dst, size, &got, enc, enc_size, NULL, size, number, ws, ws_size),
                 LMC_ERR_BASE_MISSING);
    CHECK_STATUS(t_block_decode(dst, size, &got, enc, enc_size, base, 0, number, ws, ws_size),
                 LMC_ERR_BASE_WRONG);
    CHECK_STATUS(
        t_block_decode(dst, size, &got, enc, enc_size, base + 1, size - 1, number, ws, ws_size),
        LMC_ERR_BASE_WRONG);
    CHECK_STATUS(
        t_block_decode(dst, size, &got, enc, enc_size, base, size + 1, number, ws, ws_size),
        LMC_ERR_BASE_WRONG);
    CHECK(got == 4321 && is_filled(dst, size, 0x6E));
    refuse_damage(src, enc, enc_size, base, size, number, ws, ws_size);
}

/* Encodes size bytes at src against as many at base, checks all that lmc.h promises, decodes to
 * another place and in place. Returns the encoded size, and leaves the block at the end of
 * g_enc. */
static size_t round_trip(const uint8_t *src, uint8_t *base, size_t size, enum lmc_dtype dtype,
                         uint32_t number)
{
    const unsigned width = lmc_dtype_width(dtype);
    const size_t ws_size = lmc_block_workspace_size(size / width, width),
                 bound = lmc_block_bound(size);
    const uint32_t crc = t_crc32c(0, src, size), base_crc = t_crc32c(0, base, size);
    uint8_t *ws = t_tail(&g_ws, ws_size), *enc = t_tail(&g_enc, bound), *dst;
    size_t enc_size = 0, direct_size = 0, dst_size = 0;
    lmc_block_info info;

    if (!CHECK_STATUS(t_block_encode(enc, bound, &direct_size, src, size, NULL, dtype, g_level,
                                     number, ws, ws_size),
                      LMC_OK))
        return 0;
    if (!CHECK_STATUS(t_block_encode(enc, bound, &enc_size, src, size, base, dtype, g_level, number,
                                     ws, ws_size),
                      LMC_OK))
        return 0;
    CHECK(enc_size > LMC_BLOCK_HEADER_SIZE && enc_size <= bound);
    CHECK(enc_size <= direct_size);
    CHECK(t_crc32c(0, src, size) == crc && t_crc32c(0, base, size) == base_crc); /* untouched */
    memmove(t_tail(&g_enc, enc_size), enc, enc_size); /* now it ends at the guard */
    enc = t_tail(&g_enc, enc_size);

    memset(&info, 0, sizeof info);
    CHECK_STATUS(lmc_block_parse(enc, enc_size, number, &info), LMC_OK);
    CHECK(info.size == size && info.encoded_size == enc_size && info.crc == crc &&
          (size_t)info.n * info.width == size);
    CHECK(info.payload_crc == (info.has_prediction ? t_crc32c(0, enc + LMC_BLOCK_HEADER_SIZE,
                                                              enc_size - LMC_BLOCK_HEADER_SIZE)
                                                   : 0) &&
          !(info.is_stored && info.has_prediction));
    g_predicted += info.has_prediction;

    dst = t_tail(&g_dst, size);
    memset(dst, 0x5A, size);
    CHECK_STATUS(
        t_block_decode(dst, size, &dst_size, enc, enc_size, base, size, number, ws, ws_size),
        LMC_OK);
    CHECK(dst_size == size && memcmp(dst, src, size) == 0 && t_crc32c(0, base, size) == base_crc);
    if (info.has_prediction) {
        refuse_bases(src, enc, enc_size, base, size, number, ws, ws_size);
    } else {
        CHECK_STATUS(
            t_block_decode(dst, size, &dst_size, enc, enc_size, NULL, 0, number, ws, ws_size),
            LMC_OK);
        CHECK(memcmp(dst, src, size) == 0);
    }
    memcpy(dst, base, size);
    dst_size = 0;
    CHECK_STATUS(
        t_block_decode(dst, size, &dst_size, enc, enc_size, dst, size, number, ws, ws_size),
        LMC_OK);
    CHECK(dst_size == size && memcmp(dst, src, size) == 0);
    return enc_size;
}

/* As above; and with buffers of every size: too small ones, and larger ones than needed, which
 * change nothing. */
static void edges(const uint8_t *src, uint8_t *base, size_t size, enum lmc_dtype dtype,
                  uint32_t number)
{
    const size_t enc_size = round_trip(src, base, size, dtype, number);
    const unsigned width = lmc_dtype_width(dtype);
    const size_t ws_size = lmc_block_workspace_size(size / width, width), step = enc_size / 11 + 1;
    uint8_t *const enc = t_tail(&g_enc, enc_size), *const ws = t_tail(&g_ws, ws_size);
    uint8_t *const odd_src = g_src.data + 1, *const odd_base = g_base.data + 3,
                   *const odd_dst = g_dst.data + 5, *const odd_enc = g_enc.data + 1;
    size_t got = 12345, cap;
    lmc_block_info info;
    if (enc_size == 0) return; /* has been counted */
    for (cap = 0; cap < enc_size;
         cap += cap + step >= enc_size && cap + 1 < enc_size ? enc_size - 1 - cap : step)
        CHECK_STATUS(t_block_encode(t_tail(&g_dst, cap), cap, &got, src, size, base, dtype, g_level,
                                    number, ws, ws_size),
                     LMC_ERR_DST_TOO_SMALL);
    CHECK_STATUS(t_block_encode(g_dst.data, g_dst.cap, &got, src, size, base, dtype, g_level,
                                number, t_tail(&g_ws, ws_size - 1), ws_size - 1),
                 LMC_ERR_WORKSPACE);
    CHECK(got == 12345);
    CHECK_STATUS(t_block_encode(t_tail(&g_dst, enc_size), enc_size, &got, src, size, base, dtype,
                                g_level, number, ws, ws_size),
                 LMC_OK);
    CHECK(got == enc_size && memcmp(t_tail(&g_dst, enc_size), enc, enc_size) == 0);
    CHECK_STATUS(t_block_encode(t_tail(&g_dst, enc_size + 999), enc_size + 999, &got, src, size,
                                base, dtype, g_level, number, g_ws.data, g_ws.cap),
                 LMC_OK);
    /* a larger workspace changes nothing */
    CHECK(got == enc_size && memcmp(t_tail(&g_dst, enc_size + 999), enc, enc_size) == 0);
    CHECK_STATUS(lmc_block_parse(enc, enc_size, number, &info), LMC_OK);
    cap = lmc_block_workspace_size(info.n, info.width) - 1;
    CHECK_STATUS(t_block_decode(g_dst.data, size, &got, enc, enc_size, base, size, number,
                                t_tail(&g_ws, cap), cap),
                 LMC_ERR_WORKSPACE);
    CHECK_STATUS(
        t_block_decode(g_dst.data, size - 1, &got, enc, enc_size, base, size, number, ws, ws_size),
        LMC_ERR_DST_TOO_SMALL);
    /* no alignment: everything at odd addresses */
    memmove(odd_src, src, size);
    memmove(odd_base, base, size);
    CHECK_STATUS(t_block_encode(odd_enc, lmc_block_bound(size), &got, odd_src, size, odd_base,
                                dtype, g_level, number, g_ws.data + 7, ws_size),
                 LMC_OK);
    CHECK(got == enc_size && memcmp(odd_enc, t_tail(&g_enc, enc_size), enc_size) == 0);
    CHECK_STATUS(t_block_decode(odd_dst, size, &got, odd_enc, enc_size, odd_base, size, number,
                                g_ws.data + 9, ws_size),
                 LMC_OK);
    CHECK(got == size && memcmp(odd_dst, odd_src, size) == 0);
}

static void test_round_trips(void)
{
    static const size_t counts[] = {1,    2,     3,     5,         7,      8,    9,    31,
                                    33,   63,    64,    65,        129,    255,  256,  257,
                                    511,  1000,  1365,  2047,      2049,   4097, 8191, 8192,
                                    8193, 12000, 16385, 65536 + 3, 1 << 19};
    static const uint32_t numbers[] = {0, 1, UINT32_MAX};
    int dtype, kind, how;
    size_t i;
    for (dtype = 0; dtype < LMC__DTYPE_COUNT; dtype++)
        for (kind = 0; kind < T_KINDS; kind++)
            for (how = 0; how < T_BASES; how++)
                for (i = 0; i < sizeof counts / sizeof *counts; i++) {
                    const enum lmc_dtype d = (enum lmc_dtype)dtype;
                    const size_t size = counts[i] * lmc_dtype_width(d);
                    const int common = d == LMC_U8 || d == LMC_F8_E5M2 || d == LMC_I16 ||
                                       d == LMC_BF16 || d == LMC_F16 || d == LMC_F32 ||
                                       d == LMC_F64 || d == LMC_I64 || d == LMC_AUTO;
                    /* not all combinations */
                    const size_t turn = i + (size_t)kind + 3 * (size_t)how + 5 * (size_t)dtype;
                    uint8_t *src, *base;
                    if (!common && (kind != T_GAUSS && kind != T_SPECIAL)) continue;
                    if (counts[i] > (common ? 2049u : 257u) && turn % (t_quick ? 31 : 5) != 0)
                        continue;
                    if (counts[i] > 12000 &&
                        ((kind != T_GAUSS && kind != T_SPECIAL && kind != T_SPARSE) ||
                         turn % 3 != 0))
                        continue;
                    if (counts[i] > 65539 &&
                        (t_quick ||
                         (d != LMC_U8 && d != LMC_BF16 && d != LMC_F32 && d != LMC_F64) ||
                         how > T_ALL))
                        continue;
                    if (t_quick && (counts[i] > 16385 || turn % 5 != 0)) continue;
                    if (t_brief && turn % (t_kernels_only ? 30 : 15) != 0) continue;
                    src = t_tail(&g_src, size);
                    base = t_tail(&g_base, size);
                    t_note("%s %s, base %s, %lu elements%s", lmc_dtype_name(d), t_kind_names[kind],
                           t_base_names[how], (unsigned long)counts[i], level_names[g_level + 1]);
                    t_fill(src, size, (enum t_kind)kind, d, counts[i]);
                    t_fill_base(base, src, size, (enum t_base)how, (enum t_kind)kind, d, counts[i]);
                    if (counts[i] <= (turn % 3 ? 9u : 257u) ||
                        (counts[i] <= 8193 && turn % 25 == 0))
                        edges(src, base, size, d, numbers[turn % 3]);
                    else round_trip(src, base, size, d, numbers[turn % 3]);
                }
}

/* All pairs of special and neighbouring values. */
static void test_pairs(void)
{
    static const uint32_t values[] = {0,      1,      2,      0x7F,   0x80,   0x81,   0x3F7F,
                                      0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF};
    static const enum lmc_dtype dtypes[] = {LMC_U8,  LMC_BF16, LMC_F16, LMC_I16,
                                            LMC_F32, LMC_U32,  LMC_F64, LMC_I64};
    enum { VALUES = 2 * sizeof values / sizeof *values };
    size_t d, i, k;
    for (d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const unsigned width = lmc_dtype_width(dtypes[d]);
        const size_t n = (size_t)VALUES * VALUES * 5, size = n * width;
        uint8_t *src = t_tail(&g_src, size), *base = t_tail(&g_base, size);
        memset(src, 0, size);
        memset(base, 0, size);
        for (i = 0; i < n; i++) {
            const uint32_t v = values[i % VALUES / 2] | (i & 1 ? 0x8000u : 0),
                           b = values[i / VALUES % VALUES / 2] | (i / VALUES & 1 ? 0x8000u : 0);
            /* the top bytes; in wider elements the lowest differ, too */
            for (k = 0; k < 2 && k < width; k++) {
                src[i * width + width - 1 - k] = (uint8_t)(v >> (width == 1 ? 0 : 8 - 8 * k));
                base[i * width + width - 1 - k] = (uint8_t)(b >> (width == 1 ? 0 : 8 - 8 * k));
            }
            if (width > 2)
                src[i * width] = (uint8_t)(i * 37), base[i * width] = (uint8_t)(i * 37 - i % 3);
        }
        t_note("pairs of %s", lmc_dtype_name(dtypes[d]));
        edges(src, base, size, dtypes[d], 0);
    }
}

/* The purpose of deltas: the prediction is used, and saves most of the size. Equal elements take
 * almost nothing. */
static void test_gains(void)
{
    static const struct {
        enum lmc_dtype dtype;
        enum t_base how;
        double most;
    } cases[] = {{LMC_BF16, T_EQUAL, 0.001}, {LMC_F32, T_EQUAL, 0.001}, {LMC_U8, T_EQUAL, 0.001},
                 {LMC_F64, T_EQUAL, 0.001},  {LMC_I64, T_EQUAL, 0.001}, {LMC_BF16, T_FEW, 0.03},
                 {LMC_F16, T_FEW, 0.03},     {LMC_F32, T_FEW, 0.02},    {LMC_F64, T_FEW, 0.01},
                 {LMC_U8, T_FEW, 0.04},      {LMC_BF16, T_STEPS, 0.3},  {LMC_F32, T_STEPS, 0.16},
                 {LMC_F64, T_STEPS, 0.08}};
    size_t i, n = 65536;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = n * lmc_dtype_width(cases[i].dtype);
        uint8_t *src = t_tail(&g_src, size), *base = t_tail(&g_base, size);
        size_t got;
        t_fill(src, size, T_GAUSS, cases[i].dtype, i);
        t_fill_base(base, src, size, cases[i].how, T_GAUSS, cases[i].dtype, i);
        got = round_trip(src, base, size, cases[i].dtype, 0);
        t_note("%s %s: %lu of %lu bytes", lmc_dtype_name(cases[i].dtype),
               t_base_names[cases[i].how], (unsigned long)got, (unsigned long)size);
        CHECK((double)got <= cases[i].most * (double)size && (t_tail(&g_enc, got)[2] & 4) != 0);
    }
}

/* From the default on, a higher level is never larger. Fast is larger by at most a fiftieth, or by
 * a twentieth where the number of classes matters much. */
static void test_levels(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F32, LMC_U8, LMC_I64};
    size_t i, k, n;
    int how;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (how = 0; how < T_BASES; how++)
            for (n = 5000; n <= (t_quick ? 5000u : 100000u); n += 95000) {
                const size_t size = n * lmc_dtype_width(dtypes[i]);
                uint8_t *src = t_tail(&g_src, size), *base = t_tail(&g_base, size);
                size_t sizes[4];
                t_fill(src, size, T_GAUSS, dtypes[i], i);
                t_fill_base(base, src, size, (enum t_base)how, T_GAUSS, dtypes[i], i);
                t_note("levels: %s %s %lu", lmc_dtype_name(dtypes[i]), t_base_names[how],
                       (unsigned long)n);
                for (k = 0; k < 4; k++) {
                    g_level = (enum lmc_level)((int)k + (int)LMC_LEVEL_FAST);
                    sizes[k] = round_trip(src, base, size, dtypes[i], 0);
                }
                CHECK(sizes[0] <= sizes[1] + sizes[1] / (how == T_DRIFT ? 20 : 50) + 100);
                CHECK(sizes[2] <= sizes[1] && sizes[3] <= sizes[2]);
            }
    g_level = LMC_LEVEL_DEFAULT;
}

/* Data in which the sample misleads: all elements outside of its runs are of another kind. */
static void test_luck(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_U8, LMC_BF16, LMC_F32};
    size_t d, n, how;
    for (d = 0; d < 3; d++)
        for (n = 30000; n <= (t_quick ? 30000u : 300000u); n += 90000)
            for (how = 0; how < 4; how++) {
                const unsigned width = lmc_dtype_width(dtypes[d]);
                const size_t size = n * width;
                uint8_t *src = t_tail(&g_src, size), *base = t_tail(&g_base, size);
                uint32_t i;
                t_note("luck: %s, %lu elements, %lu%s", lmc_dtype_name(dtypes[d]), (unsigned long)n,
                       (unsigned long)how, level_names[g_level + 1]);
                t_fill(src, size, how & 1 ? T_CONSTANT : T_GAUSS, dtypes[d], n);
                t_fill(base, size, how & 2 ? T_RANDOM : T_GAUSS, dtypes[d], n + 1);
                for (i = 0; i < T_SAMPLE_RUNS; i++) { /* the runs are equal and random */
                    const size_t at = t_sample_place(i, n) * width;
                    t_fill(src + at, T_SAMPLE_RUN * width, T_RANDOM, dtypes[d], i);
                    memcpy(base + at, src + at, T_SAMPLE_RUN * width);
                }
                round_trip(src, base, size, dtypes[d], 0);
            }
}

/* Elements of low exponents change in all their bits, others do not: two classes are enough, if
 * their border is there. */
static void test_two_classes(void)
{
    const size_t n = 65536;
    uint64_t seed = 8;
    size_t i, got = 0;
    t_note("two classes");
    for (i = 0; i < n; i++) {
        const uint32_t exponent = 100 + (uint32_t)t_below(&seed, 16),
                       mantissa = (uint32_t)t_below(&seed, 128);
        t_store16(g_base.data + 2 * i, exponent << 7 | mantissa);
        t_store16(g_src.data + 2 * i,
                  exponent << 7 | (exponent < 108 ? (uint32_t)t_below(&seed, 128) : mantissa));
    }
    CHECK_STATUS(t_block_encode(g_enc.data, g_enc.cap, &got, g_src.data, 2 * n, g_base.data,
                                LMC_BF16, g_level, 0, g_ws.data, g_ws.cap),
                 LMC_OK);
    if (getenv("LMC_TEST_VERBOSE")) printf("two classes: %lu\n", (unsigned long)got);
    CHECK(got < n / 2 * 105 / 100);
}

/* If a tensor's base is missing, that is the status; not that the workspace, for smaller blocks
 * without a base, is too small. */
static void test_missing_base(void)
{
    const size_t n = 200000, size = 2 * n, ws_size = g_ws.cap;
    lmc_tensor_options options;
    size_t enc_size = 0, k;
    memset(&options, 0, sizeof options);
    options.dtype = LMC_BF16;
    t_note("missing base");
    t_fill(g_base.data, size, T_GAUSS, LMC_BF16, 4);
    memcpy(g_src.data, g_base.data, size);
    for (k = 0; k < size; k += 100) g_src.data[k] ^= 1;
    options.prediction = g_base.data;
    options.prediction_size = size;
    CHECK_STATUS(lmc_tensor_encode(g_enc.data, g_enc.cap, &enc_size, g_src.data, size, &options,
                                   g_ws.data, ws_size),
                 LMC_OK);
    CHECK(enc_size < size / 10);
    options.prediction = NULL;
    options.prediction_size = 0;
    CHECK_STATUS(lmc_tensor_decode(g_dst.data, size, g_enc.data, enc_size, &options, g_ws.data,
                                   lmc_tensor_workspace_size(&options)),
                 LMC_ERR_BASE_MISSING);
}

/* ==== blocks built by hand ==== */

/* The spec's residuals (5.1), as its pseudo code has them. */
static uint64_t model_element(uint64_t b, uint64_t r, unsigned width, unsigned order)
{
    const unsigned W = 8 * width;
    const uint64_t S = UINT64_C(1) << (W - 1), modulo = S - 1 + S;
    uint64_t difference, total;
    if (order == 0) return r;
    difference = (r >> 1) ^ (0 - (r & 1));
    if (order == 1) return (b + difference) & modulo;
    total = ((b & (S - 1)) + difference) & modulo;
    return (b & S) ^ (total < S ? total : total ^ (S - 1));
}

static unsigned model_key(uint64_t b, unsigned width)
{
    const unsigned W = 8 * width;
    return W == 8 ? (unsigned)((b << 1 | b >> 7) & 255) : (unsigned)(b >> (W - 9) & 255);
}

static void put(uint8_t *p, uint64_t v, unsigned size)
{
    for (; size > 0; size--, v >>= 8) *p++ = (uint8_t)v;
}

static uint64_t get(const uint8_t *p, unsigned size)
{
    uint64_t v = 0;
    while (size-- > 0) v = v << 8 | p[size];
    return v;
}

typedef struct built {
    uint8_t data[1 << 17];
    size_t size;
    unsigned width, order, predicted, n_classes, sparse, natural;
    size_t n;
    uint8_t thresholds[15];
} built;

/* Header_CRC of block 0; Payload_CRC, if it has one. */
static void repair_block(uint8_t *block)
{
    uint8_t bytes[24] = {0};
    if (block[2] & 4) put(block + 16, t_crc32c(0, block + 24, (size_t)get(block + 8, 4)), 4);
    memcpy(bytes + 4, block, 20);
    put(block + 20, t_crc32c(0, bytes, 24), 4);
}

static void put_byte(built *b, unsigned v)
{
    if (b->size == sizeof b->data) abort();
    b->data[b->size++] = (uint8_t)v;
}

static void put_bits(built *b, const uint8_t *bits, size_t n)
{
    size_t i;
    for (i = 0; i < n; i += 8) {
        unsigned byte = 0, k;
        for (k = 0; k < 8 && i + k < n; k++) byte |= (unsigned)(bits[i + k] != 0) << k;
        put_byte(b, byte);
    }
}

/* A mask of nesting 0: as gaps if it is a class's (n chooses their parameters), or raw. This test
 * has no frozen trees. */
static void put_mask(built *b, const uint8_t *bits, size_t n, int is_of_class)
{
    const unsigned polarity = n % 2, s = (unsigned)(n / 2 % 22);
    uint8_t list[8192];
    size_t i, k = 0, n_bits = 0, gap, bit;
    for (i = 0; i < n; i++) k += (bits[i] != 0) != polarity;
    for (i = 0, gap = 0;
         is_of_class && n >= 256 && n % 5 < 3 && k && i < n && n_bits <= sizeof list; i++, gap++)
        if ((bits[i] != 0) != polarity) n_bits += s + (gap >> s) + 1, gap = SIZE_MAX;
    if (n_bits == 0 || n_bits > sizeof list) {
        if (n >= 256) put_byte(b, 0);
        put_bits(b, bits, n);
        return;
    }
    put_byte(b, 21 + 2 * s + polarity);
    put_byte(b, k & 255);
    put_byte(b, k >> 8);
    put_byte(b, 0);
    for (i = gap = n_bits = 0; i < n; i++, gap++)
        if ((bits[i] != 0) != polarity) {
            for (bit = 0; bit < s; bit++) list[n_bits++] = gap >> bit & 1;
            gap = SIZE_MAX;
        }
    put_bits(b, list, n_bits);
    for (i = gap = n_bits = 0; i < n; i++, gap++)
        if ((bits[i] != 0) != polarity) {
            for (bit = 0; bit < gap >> s; bit++) list[n_bits++] = 0;
            list[n_bits++] = 1;
            gap = SIZE_MAX;
        }
    put_bits(b, list, n_bits);
}

/* A list in one of the modes that can code it; style chooses. */
static void put_list(built *b, const uint8_t *list, size_t n, unsigned style)
{
    uint8_t bits[8192] = {0}, low = 255, high = 0;
    size_t i, n_other = 0;
    for (i = 0; i < n; i++) {
        if (list[i] < low) low = list[i];
        if (list[i] > high) high = list[i];
    }
    for (i = 0; i < n; i++) n_other += list[i] != low && list[i] != high;
    if (style % 4 != 0 && low == high) {
        put_byte(b, 1);
        put_byte(b, low);
    } else if (style % 4 != 0 && n_other == 0) { /* two symbols with codes of one bit */
        const unsigned count = high - low + 1u;
        put_byte(b, 2);
        put_byte(b, low);
        put_byte(b, count - 1);
        for (i = 0; i < count; i += 2)
            put_byte(b, (i == 0 ? 1u : 0u) |
                            (i + 1 == count   ? 0u
                             : i + 2 == count ? 16u
                                              : 0u) |
                            (i + 1 == count ? 1u : 0u));
        for (i = 0; i < n; i++) bits[i] = list[i] == high;
        put_mask(b, bits, n, 0);
    } else if (style % 4 == 2) { /* one symbol and the escape */
        put_byte(b, 3);
        put_byte(b, low);
        put_byte(b, 0);
        put_byte(b, 0x11);
        for (i = 0; i < n; i++) bits[i] = list[i] != low;
        put_mask(b, bits, n, 0);
        for (i = 0; i < n; i++)
            if (list[i] != low) put_byte(b, list[i]);
    } else {
        put_byte(b, 0);
        for (i = 0; i < n; i++) put_byte(b, list[i]);
    }
}

static void put_header(built *b, const uint8_t *content)
{
    uint8_t *p = b->data;
    p[0] = 0xB2;
    p[1] = (uint8_t)b->width;
    p[2] = (uint8_t)(b->order | b->predicted << 2 | 1 << 5);
    p[3] = (uint8_t)((b->n_classes - 1) | b->sparse << 4 | b->natural << 5);
    put(p + 4, b->n, 4);
    put(p + 8, b->size - 24, 4);
    put(p + 12, t_crc32c(0, content, b->n * b->width), 4);
    put(p + 16, 0, 4);
    repair_block(p);
}

/* Build the payload of residuals[0, n) by spec 5.1 and 5.2. */
static void build(built *b, const uint64_t *residuals, const uint8_t *base, uint64_t *state)
{
    static uint8_t list[8192], mask[8192], class_of[8192];
    unsigned c, p;
    size_t i, m;
    b->size = 24;
    for (i = 0; i < b->n; i++) {
        const unsigned key =
            b->predicted ? model_key(get(base + i * b->width, b->width), b->width) : 0;
        class_of[i] = 0;
        for (c = 0; c + 1 < b->n_classes; c++)
            class_of[i] = (uint8_t)(class_of[i] + (b->thresholds[c] <= key));
    }
    for (c = 0; c + 1 < b->n_classes; c++) put_byte(b, b->thresholds[c]);
    for (c = 0; c < b->n_classes && b->sparse; c++) {
        for (m = i = 0; i < b->n; i++)
            if (class_of[i] == c) mask[m++] = residuals[i] != 0;
        if (m) put_mask(b, mask, m, 1);
    }
    for (p = 0; p < b->natural; p++)
        for (i = 0; i < b->n; i++) put_byte(b, (unsigned)(residuals[i] >> 8 * p & 255));
    for (c = 0; c < b->n_classes; c++)
        for (p = b->natural; p < b->width; p++) {
            for (m = i = 0; i < b->n; i++)
                if (class_of[i] == c && (!b->sparse || residuals[i] != 0))
                    list[m++] = (uint8_t)(residuals[i] >> 8 * p);
            if (m) put_list(b, list, m, (unsigned)t_below(state, 8));
        }
}

static enum lmc_status decode_built(const built *b, const uint8_t *base, size_t *got)
{
    const size_t size = b->n * b->width, ws_size = lmc_block_workspace_size(b->n, b->width);
    uint8_t *const enc = t_tail(&g_enc, b->size);
    memcpy(enc, b->data, b->size);
    memset(t_tail(&g_dst, size), 0x44, size);
    return t_block_decode(t_tail(&g_dst, size), size, got, enc, b->size, base, base ? size : 0, 0,
                          t_tail(&g_ws, ws_size), ws_size);
}

/* The same in place; after an error the prediction must be there. */
static enum lmc_status apply_built(const built *b, const uint8_t *base)
{
    const size_t size = b->n * b->width, ws_size = lmc_block_workspace_size(b->n, b->width);
    uint8_t *const enc = t_tail(&g_enc, b->size), *const dst = t_tail(&g_dst, size);
    enum lmc_status status;
    size_t got = 4321;
    memcpy(enc, b->data, b->size);
    memcpy(dst, base, size);
    status = t_block_decode(dst, size, &got, enc, b->size, dst, size, 0, t_tail(&g_ws, ws_size),
                            ws_size);
    CHECK(got == (status ? 4321 : size));
    if (status) CHECK(memcmp(dst, base, size) == 0);
    return status;
}

/* Headers and payloads that break rules. If the payload's CRC is right, the status of a bad payload
 * is that the prediction is wrong. */
static void refuse_built(const built *good, uint8_t *base, uint64_t *state)
{
    static built bad;
    const enum lmc_status wrong = good->predicted ? LMC_ERR_BASE_WRONG : LMC_ERR_CORRUPT;
    const uint8_t *const given = good->predicted ? base : NULL;
    size_t got, i;
#define REFUSE(change, status)                                                                     \
    (bad = *good, change, repair_block(bad.data),                                                  \
     CHECK_STATUS(decode_built(&bad, given, &got), status),                                        \
     (void)(good->predicted && CHECK_STATUS(apply_built(&bad, base), status)))
    REFUSE(bad.data[1] = 3, LMC_ERR_UNSUPPORTED);
    REFUSE(bad.data[2] |= 0x03, LMC_ERR_UNSUPPORTED);
    REFUSE(bad.data[2] |= 0x08, LMC_ERR_UNSUPPORTED);
    REFUSE(bad.data[2] |= 0x10, LMC_ERR_UNSUPPORTED);
    REFUSE(bad.data[2] |= 0x60, LMC_ERR_CORRUPT); /* zeros apart */
    REFUSE(bad.data[2] |= 0xE0, LMC_ERR_UNSUPPORTED);
    REFUSE(bad.data[3] = (uint8_t)((bad.data[3] & 31) | good->width << 5), /* 8: no such dtype */
           good->width < 8 ? LMC_ERR_CORRUPT
           : good->natural ? wrong
                           : LMC_OK);
    REFUSE(bad.data[3] = 1 << 5, LMC_ERR_CORRUPT);          /* Natural with one class */
    REFUSE(bad.data[3] = 1 << 5 | 16 | 1, LMC_ERR_CORRUPT); /* and with Sparse */
    REFUSE(bad.data[2] = 4, LMC_ERR_CORRUPT);               /* stored, but predicted */
    if (good->predicted) {
        REFUSE(bad.data[2] &= 0xFC, LMC_ERR_CORRUPT); /* without an order */
        /* classes, or a Payload_CRC, without a prediction */
        if (good->n_classes > 1)
            REFUSE((bad.data[2] &= 0xFB, put(bad.data + 16, 0, 4)), LMC_ERR_CORRUPT);
        REFUSE((bad.data[2] &= 0xFB, bad.data[3] = 0), LMC_ERR_CORRUPT);
    } else {
        REFUSE(bad.data[16] = 1, LMC_ERR_CORRUPT);
        REFUSE(bad.data[3] = 1, LMC_ERR_CORRUPT); /* Grouping without a prediction */
        REFUSE(bad.data[3] = 16, LMC_ERR_CORRUPT);
    }
    for (i = 0; i + 1 < good->n_classes; i++) {
        REFUSE(bad.data[24 + i] = i ? bad.data[23 + i] : 0, wrong);
        if (i) REFUSE(bad.data[24 + i] = (uint8_t)(bad.data[23 + i] - 1), wrong);
    }
    if (good->size + 1 < good->n * good->width + 24) /* a byte that is not read */
        REFUSE((put(bad.data + 8, bad.size - 24 + 1, 4), bad.data[bad.size++] = 0), wrong);
    for (i = 0; i < 6; i++) { /* ends early: somewhere in the payload */
        const size_t cut = 1 + (i == 0 ? 0 : t_below(state, good->size - 24));
        REFUSE((bad.size -= cut, put(bad.data + 8, bad.size - 24, 4)), wrong);
    }
    REFUSE(bad.data[12] ^= 1, good->predicted ? LMC_ERR_BASE_WRONG : LMC_ERR_CHECKSUM);
#undef REFUSE
    for (i = 0; i < 6; i++) { /* damage, which a CRC finds: the payload's or the content's */
        enum lmc_status status;
        bad = *good;
        bad.data[24 + t_below(state, bad.size - 24)] ^= (uint8_t)(1u << t_below(state, 8));
        status = decode_built(&bad, given, &got);
        CHECK(status == LMC_ERR_CHECKSUM || (!good->predicted && status == LMC_ERR_CORRUPT));
        if (good->predicted) CHECK_STATUS(apply_built(&bad, base), LMC_ERR_CHECKSUM);
    }
    for (i = 0; i < 6 && good->predicted; i++) { /* another prediction */
        const size_t at = t_below(state, good->n * good->width);
        const uint8_t bit = (uint8_t)(1u << t_below(state, 8));
        enum lmc_status status;
        base[at] ^= bit;
        status = decode_built(good, base, &got);
        CHECK(status == LMC_ERR_BASE_WRONG || status == LMC_OK); /* the same elements */
        CHECK_STATUS(apply_built(good, base), status);
        base[at] ^= bit;
    }
}

/* Uses the tiers in turn. */
static void change_tier(long turn)
{
    int tier, i;
    if (t_is_set("LMC_TEST_TIER")) return;
    for (tier = i = 0; lmc_tier_name((enum lmc_tier)tier); tier++)
        i += lmc_tier_is_available((enum lmc_tier)tier) != 0;
    turn %= i;
    for (tier = 0;; tier++)
        if (lmc_tier_is_available((enum lmc_tier)tier) && turn-- == 0) break;
    lmc_tier_limit((enum lmc_tier)tier);
}

static void test_built(void)
{
    static built b;
    static uint64_t residuals[8192];
    uint64_t state = 31337;
    long round, rounds = t_quick ? 3000 : 40000, n_built = 0, n_classes16 = 0, n_empty = 0,
                n_orders[3] = {0, 0, 0}, n_sparse = 0, n_natural = 0, n_few = 0, n_unpredicted = 0;
    const enum lmc_tier best = lmc_tier_current();
    for (round = 0; round < rounds; round++) {
        const size_t max = round % 25 == 0 ? 8192 : round % 3 == 0 ? 300 : 40;
        uint8_t *src, *base;
        unsigned c, p, kinds[8];
        size_t i, size, got = 0;
        uint64_t thresholds, key_spread = t_random(&state);
        int is_few;
        change_tier(round);
        memset(&b, 0, sizeof b);
        b.width = 1u << t_below(&state, 4);
        b.predicted = t_below(&state, 8) != 0;
        b.n_classes = b.predicted ? 1 + (unsigned)t_below(&state, 16) : 1;
        b.sparse = b.predicted && t_below(&state, 3) == 0;
        b.natural = b.n_classes > 1 && !b.sparse && t_below(&state, 2)
                        ? (unsigned)t_below(&state, b.width)
                        : 0;
        b.order = b.predicted ? 1 + (unsigned)t_below(&state, 2) : (unsigned)t_below(&state, 3);
        is_few = b.sparse && t_below(&state, 2);
        b.n = 1 + t_below(&state, max);
        size = b.n * b.width;
        src = t_tail(&g_src, size);
        base = t_tail(&g_base, size);
        /* thresholds: any, with the borders 1 and 255 more often */
        for (c = 0; c + 1 < b.n_classes; c++) {
            const unsigned left = b.n_classes - 2 - c, low = c ? b.thresholds[c - 1] + 1u : 1u;
            thresholds = t_below(&state, 3) == 0 ? (c == 0 ? 1 : 255 - left)
                                                 : low + t_below(&state, 256 - left - low);
            b.thresholds[c] = (uint8_t)thresholds;
        }
        t_fill(base, size,
               t_below(&state, 3) == 0 ? T_SPECIAL
               : key_spread & 1        ? T_RANDOM
                                       : T_GAUSS,
               b.width == 1   ? LMC_F8_E4M3
               : b.width == 2 ? LMC_BF16
               : b.width == 4 ? LMC_F32
                              : LMC_F64,
               (uint64_t)round);
        for (p = 0; p < 8; p++) kinds[p] = (unsigned)t_below(&state, 5);
        if (!b.sparse) kinds[b.width - 1] %= 2; /* the payload must be smaller than the elements */
        for (i = 0; i < b.n; i++) {
            uint64_t r = 0;
            for (p = 0; p < b.width; p++) {
                const uint64_t v = kinds[p] == 0   ? 7
                                   : kinds[p] == 1 ? (t_random(&state) & 1) * 255
                                   : kinds[p] == 2 ? t_random(&state) % 3
                                                   : t_random(&state) & 255;
                r |= v << 8 * p;
            }
            if (b.sparse && (is_few ? t_below(&state, 30) : t_below(&state, 4) < key_spread % 5))
                r = 0;
            residuals[i] = r;
        }
        build(&b, residuals, base, &state);
        if (b.size - 24 >= size) continue; /* such a block is not allowed */
        for (i = 0; i < b.n; i++)
            put(src + i * b.width,
                model_element(b.predicted ? get(base + i * b.width, b.width) : 0, residuals[i],
                              b.width, b.order),
                b.width);
        put_header(&b, src);
        t_note("built %ld, %s: width %u, order %u, predicted %u, %u classes, sparse %u, natural "
               "%u, %lu "
               "elements",
               round, lmc_tier_name(lmc_tier_current()), b.width, b.order, b.predicted, b.n_classes,
               b.sparse, b.natural, (unsigned long)b.n);
        if (!CHECK_STATUS(decode_built(&b, b.predicted ? base : NULL, &got), LMC_OK)) continue;
        CHECK(got == size && memcmp(t_tail(&g_dst, size), src, size) == 0);
        if (b.predicted) {
            CHECK_STATUS(apply_built(&b, base), LMC_OK);
            CHECK(memcmp(t_tail(&g_dst, size), src, size) == 0);
        }
        n_built++;
        n_classes16 += b.n_classes == 16 && b.width == 8;
        n_orders[b.order]++;
        n_natural += b.natural > 0;
        n_few += is_few && b.n >= 4096;
        n_sparse += b.sparse && b.n_classes > 1;
        n_unpredicted += b.predicted == 0;
        n_empty += b.n_classes > 1 && b.n < b.n_classes;
        if (round % 10 == 0) refuse_built(&b, base, &state);
    }
    t_note("built: %ld of %ld, 16 classes %ld, orders %ld %ld %ld, sparse %ld, natural %ld, few "
           "%ld, alone %ld, "
           "empty %ld",
           n_built, rounds, n_classes16, n_orders[0], n_orders[1], n_orders[2], n_sparse, n_natural,
           n_few, n_unpredicted, n_empty);
    lmc_tier_limit(best);
    CHECK(n_built > rounds / 3 && n_classes16 > rounds / 400 && n_orders[0] > rounds / 100 &&
          n_orders[1] > rounds / 10 && n_orders[2] > rounds / 10 && n_sparse > rounds / 20 &&
          n_natural > rounds / 50 && n_few > 3 && n_unpredicted > rounds / 100 && n_empty > 10);
}

/* A mask with more bits than elements. */
static void test_padding(void)
{
    static built b;
    uint64_t residuals[11], state = 9;
    uint8_t base[22], src[22];
    size_t i, got;
    memset(&b, 0, sizeof b);
    b.width = 2;
    b.n = 11;
    b.predicted = b.n_classes = b.sparse = b.order = 1;
    memset(base, 1, sizeof base);
    for (i = 0; i < 11; i++) residuals[i] = i == 4;
    build(&b, residuals, base, &state);
    for (i = 0; i < 11; i++) put(src + 2 * i, 0x0101u - residuals[i], 2);
    put_header(&b, src);
    t_note("padding of a class's mask");
    CHECK_STATUS(decode_built(&b, base, &got), LMC_OK);
    for (i = 3; i < 8; i++) {
        b.data[25] ^= (uint8_t)(1u << i);
        CHECK_STATUS(decode_built(&b, base, &got), LMC_ERR_CHECKSUM);
        repair_block(b.data);
        CHECK_STATUS(decode_built(&b, base, &got), LMC_ERR_BASE_WRONG);
        b.data[25] ^= (uint8_t)(1u << i);
        repair_block(b.data);
    }
}

/* ==== tensors ==== */

static lmc_tensor_options options_of(enum lmc_dtype dtype, unsigned log2_block,
                                     const void *prediction, size_t size)
{
    lmc_tensor_options options;
    memset(&options, 0, sizeof options);
    options.dtype = dtype;
    options.log2_block = log2_block;
    options.level = g_level;
    options.prediction = prediction;
    options.prediction_size = size;
    return options;
}

static enum lmc_status decode_range(uint64_t offset, size_t size, const uint8_t *enc,
                                    size_t enc_size, uint64_t total,
                                    const lmc_tensor_options *options)
{
    const size_t ws_size = lmc_tensor_workspace_size(options);
    memset(t_tail(&g_dst, size), 0x33, size);
    return lmc_tensor_decode_range(t_tail(&g_dst, size), size, enc, enc_size, offset, total,
                                   options, t_tail(&g_ws, ws_size), ws_size);
}

static void test_tensors(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F32, LMC_U8, LMC_F64, LMC_AUTO};
    static const size_t counts[] = {0, 1, 16384, 16385, 60001, 200003};
    static const unsigned workers[] = {1, 2, 5};
    uint64_t state = 4;
    size_t d, k, i;
    int how;
    for (d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (k = 0; k < sizeof counts / sizeof *counts; k++)
            for (how = T_EQUAL; how <= T_UNRELATED; how += 1 + (how == T_FEW ? 2 : 0)) {
                const size_t size = counts[k] * lmc_dtype_width(dtypes[d]);
                uint8_t *const src = t_tail(&g_src, size), *const base = t_tail(&g_base, size);
                lmc_tensor_options options = options_of(dtypes[d], k % 2 ? 14 : 0, base, size),
                                   plain;
                const size_t ws_size = lmc_tensor_workspace_size(&options);
                const size_t bound = lmc_tensor_bound(size, &options);
                size_t enc_size = 99, got = 98, plain_size = 0;
                uint8_t *enc, *copy;
                if (t_quick && counts[k] > 70000) continue;
                t_note("tensor of %s, %lu elements, base %s", lmc_dtype_name(dtypes[d]),
                       (unsigned long)counts[k], t_base_names[how]);
                t_fill(src, size, T_GAUSS, dtypes[d], k);
                t_fill_base(base, src, size, (enum t_base)how, T_GAUSS, dtypes[d], k);
                CHECK(bound >= size && ws_size > 0);
                enc = t_tail(&g_enc, (size_t)bound);
                CHECK_STATUS(lmc_tensor_encode(enc, (size_t)bound, &enc_size, src, size, &options,
                                               t_tail(&g_ws, ws_size), ws_size),
                             LMC_OK);
                memmove(t_tail(&g_enc, enc_size), enc, enc_size);
                enc = t_tail(&g_enc, enc_size);
                CHECK_STATUS(decode_range(0, size, enc, enc_size, size, &options), LMC_OK);
                CHECK(memcmp(t_tail(&g_dst, size), src, size) == 0);
                if (size == 0) continue;
                copy = (uint8_t *)t_copy(enc, enc_size);
                for (i = 0; i < 3; i++) { /* threads: the same bytes, decoded in place, too */
                    unsigned n = workers[i];
                    lmc_parallel parallel = t_parallel(&n);
                    uint8_t *const dst = t_tail(&g_dst, size);
                    options.parallel = &parallel;
                    if (t_quick && i == 1) continue;
                    CHECK_STATUS(lmc_tensor_encode(t_tail(&g_enc, (size_t)bound), (size_t)bound,
                                                   &got, src, size, &options, g_ws.data, g_ws.cap),
                                 LMC_OK);
                    CHECK(got == enc_size && memcmp(t_tail(&g_enc, (size_t)bound), copy, got) == 0);
                    got = 5;
                    /* no more capacity than needed */
                    CHECK_STATUS(lmc_tensor_encode(g_dst.data, enc_size, &got, src, size, &options,
                                                   g_ws.data, g_ws.cap),
                                 LMC_OK);
                    CHECK(got == enc_size && memcmp(g_dst.data, copy, got) == 0);
                    got = 5;
                    CHECK_STATUS(lmc_tensor_encode(g_dst.data, enc_size - 1, &got, src, size,
                                                   &options, g_ws.data, g_ws.cap),
                                 LMC_ERR_DST_TOO_SMALL);
                    CHECK(got == 5);
                    memcpy(dst, base, size);
                    options.prediction = dst;
                    CHECK_STATUS(
                        lmc_tensor_decode(dst, size, copy, enc_size, &options, g_ws.data, g_ws.cap),
                        LMC_OK);
                    CHECK(memcmp(dst, src, size) == 0);
                    options.prediction = base;
                }
                options.parallel = NULL;
                for (i = 0; i < (t_quick ? 6u : 25u); i++) {
                    const size_t from = i == 0 ? size - 1 : t_below(&state, size),
                                 part = i == 0 ? 1 : t_below(&state, size - from + 1);
                    CHECK_STATUS(decode_range(from, part, copy, enc_size, size, &options), LMC_OK);
                    CHECK(memcmp(t_tail(&g_dst, part), src + from, part) == 0);
                }
                options.prediction_size = size - 1;
                CHECK_STATUS(decode_range(0, size, copy, enc_size, size, &options),
                             LMC_ERR_BASE_WRONG);
                CHECK_STATUS(lmc_tensor_encode(g_dst.data, g_dst.cap, &got, src, size, &options,
                                               g_ws.data, g_ws.cap),
                             LMC_ERR_BASE_WRONG);
                options.prediction_size = size + 1;
                CHECK_STATUS(decode_range(0, size, copy, enc_size, size, &options),
                             LMC_ERR_BASE_WRONG);
                options.prediction_size = size;
                if (how <= T_STEPS && size > 1000) {
                    const size_t at = t_below(&state, size);
                    base[at] ^= 0x10;
                    CHECK_STATUS(decode_range(0, size, copy, enc_size, size, &options),
                                 LMC_ERR_BASE_WRONG);
                    CHECK_STATUS(decode_range(at, 1, copy, enc_size, size, &options),
                                 LMC_ERR_BASE_WRONG);
                    base[at] ^= 0x10;
                    plain = options;
                    plain.prediction = NULL;
                    plain.prediction_size = 0;
                    CHECK_STATUS(decode_range(0, size, copy, enc_size, size, &plain),
                                 LMC_ERR_BASE_MISSING);
                    /* the sizes of blocks with a prediction */
                    plain.log2_block = options.log2_block                             ? 14
                                       : dtypes[d] == LMC_F32 || dtypes[d] == LMC_F64 ? 18
                                                                                      : 20;
                    CHECK_STATUS(lmc_tensor_encode(g_dst.data, g_dst.cap, &plain_size, src, size,
                                                   &plain, g_ws.data, g_ws.cap),
                                 LMC_OK);
                    CHECK(enc_size <= plain_size);
                }
                free(copy);
            }
}

/* ==== conversions (spec 4.2) ==== */

/* The value of a float with so many exponent and mantissa bits; infinity as if it were the next
 * number. All are exact in a double. */
static double float_value(uint32_t v, unsigned exponent_bits, unsigned mantissa_bits)
{
    const int exponent = (int)(v >> mantissa_bits & ((1u << exponent_bits) - 1)),
              bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t mantissa = v & ((1u << mantissa_bits) - 1);
    return ldexp(exponent ? mantissa + ldexp(1, (int)mantissa_bits) : mantissa,
                 (exponent ? exponent : 1) - bias - (int)mantissa_bits);
}

/* Rounds F32 to the nearest of all floats of that kind; ties to even. values: those of all that are
 * not negative, up to infinity. */
static unsigned slow_round(uint32_t v, const double *values, unsigned mantissa_bits)
{
    const unsigned sign = v >> 16 & 0x8000, infinity = (0x7FFFu >> mantissa_bits) << mantissa_bits;
    unsigned low = 0, high = infinity;
    double x;
    v &= 0x7FFFFFFF;
    if (v > 0x7F800000)
        return sign | infinity | (v >> (23 - mantissa_bits) & (infinity ^ 0x7FFF)) |
               1u << (mantissa_bits - 1);
    if (v == 0x7F800000) return sign | infinity;
    x = float_value(v, 8, 23);
    if (x >= values[infinity]) return sign | infinity;
    while (high - low > 1) { /* values[low] <= x < values[high] */
        const unsigned middle = (low + high) / 2;
        if (values[middle] <= x) low = middle;
        else high = middle;
    }
    if (2 * x > values[low] + values[high] || (2 * x == values[low] + values[high] && (low & 1)))
        low = high;
    return sign | low;
}

static double g_bf16[0x8000], g_f16[0x8000];

static void try_conversion(uint32_t v)
{
    const unsigned bf16 = slow_round(v, g_bf16, 7), f16 = slow_round(v, g_f16, 10);
    uint8_t in[4], out[2];
    if (t_to_bf16(v) != bf16 || t_to_f16(v) != f16) {
        t_note("F32 %08lx: to BF16 %04x, should be %04x; to F16 %04x, should be %04x",
               (unsigned long)v, t_to_bf16(v), bf16, t_to_f16(v), f16);
        CHECK(0);
    }
    put(in, v, 4);
    CHECK_STATUS(lmc_conversion_apply(out, in, 1, LMC_CONVERT_NONE), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_conversion_apply(out, in, 1, (enum lmc_conversion)3), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_conversion_apply(NULL, in, 1, LMC_CONVERT_F32_TO_F16), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_conversion_apply(out, in, 1, LMC_CONVERT_F32_TO_F16), LMC_OK);
    if (get(out, 2) != f16) CHECK(get(out, 2) == f16);
    CHECK_STATUS(lmc_conversion_apply(out, in, 1, LMC_CONVERT_F32_TO_BF16), LMC_OK);
    if (get(out, 2) != bf16) CHECK(get(out, 2) == bf16);
}

static void test_conversions(void)
{
    uint64_t state = 77;
    uint32_t h, v, k, step = t_quick ? 61 : 1;
    for (h = 0; h < 0x8000; h++) {
        g_bf16[h] = float_value(h, 8, 7);
        g_f16[h] = float_value(h, 5, 10);
    }
    t_note("conversions");
    for (h = 0; h < 0x10000; h += h < 0x100 ? 1 : step) {
        static const uint32_t low[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
        /* around BF16 numbers, and around their middles */
        for (k = 0; k < 6; k++) try_conversion(h << 16 | low[k]);
        /* around F16 numbers, and around their middles: exact in F32 */
        if ((h & 0x7FFF) < 0x7C00) {
            float value = (float)g_f16[h & 0x7FFF],
                  middle = (float)((g_f16[h & 0x7FFF] + g_f16[(h & 0x7FFF) + 1]) / 2);
            for (k = 0; k < 3; k++) {
                memcpy(&v, &value, 4);
                try_conversion((v + k - (v ? 1 : 0)) ^ (h & 0x8000) << 16);
                memcpy(&v, &middle, 4);
                try_conversion((v + k - 1) ^ (h & 0x8000) << 16);
            }
        }
    }
    for (k = 0; k < (t_quick ? 20000u : 1000000u); k++) {
        const uint64_t r = t_random(&state);
        v = (uint32_t)r;
        /* in the range of F16 */
        if (r >> 63) v = (v & 0x807FFFFF) | (uint32_t)(100 + (r >> 32) % 46) << 23;
        try_conversion(v);
    }
    CHECK(t_to_f16(0x477FEFFF) == 0x7BFF && t_to_f16(0x477FF000) == 0x7C00 &&
          t_to_f16(0x33000000) == 0 && t_to_f16(0x33000001) == 1);
    CHECK(t_to_bf16(0x7F7F7FFF) == 0x7F7F && t_to_bf16(0x7F7F8000) == 0x7F80 &&
          t_to_bf16(0x7F800001) == 0x7FC0);
    CHECK(t_to_f16(0xFF800001) == 0xFE00 && t_to_f16(0x7FFFFFFF) == 0x7FFF);
}

/* ==== snapshots ==== */

/* -- a model that is written, restored and read in many ways -- */

static void check_ranges(const t_model *model, lmc_reader *reader, uint64_t seed)
{
    size_t i, k, round;
    for (i = 0; i < model->n_files; i++) {
        const t_file *f = &model->files[i];
        const lmc_file *file = lmc_reader_get_file(reader, i);
        uint8_t *got = allocate(f->size + 1);
        for (k = 0; k < f->file.n_tensors; k++)
            for (round = 0; round < 4; round++) {
                const lmc_tensor *t = &file->tensors[k];
                const size_t size = (size_t)t->size,
                             from = round == 0 || size == 0 ? 0 : t_below(&seed, size),
                             part_size = round == 0 ? size : t_below(&seed, size - from + 1);
                t_note("range of %s: %lu + %lu of %lu", t->name, (unsigned long)from,
                       (unsigned long)part_size, (unsigned long)size);
                memset(got, 0x77, part_size + 1);
                CHECK_STATUS(lmc_reader_read_tensor(reader, i, t, from, got, part_size), LMC_OK);
                CHECK(memcmp(got, f->data + t->offset + from, part_size) == 0 &&
                      got[part_size] == 0x77);
            }
        for (round = 0; round < 10; round++) {
            const size_t from = t_below(&seed, f->size + 1),
                         part_size = t_below(&seed, f->size - from + 1);
            t_note("range of file %lu: %lu + %lu", (unsigned long)i, (unsigned long)from,
                   (unsigned long)part_size);
            memset(got, 0x77, part_size + 1);
            CHECK_STATUS(lmc_reader_read_file(reader, i, from, got, part_size), LMC_OK);
            CHECK((part_size == 0 || memcmp(got, f->data + from, part_size) == 0) &&
                  got[part_size] == 0x77);
        }
        free(got);
    }
}

/* bases: the same base in several forms, or none. *out: the file, which is always the same. */
static void check_model(const t_model *model, const lmc_base *const *bases, size_t n_bases,
                        int twins, unsigned log2_block, enum lmc_level level, const char *name,
                        t_memory *out)
{
    static const size_t pieces[] = {0, T_STREAM, 4097, 31};
    static const unsigned workers[] = {0, 5, 1, 2};
    own self;
    uint8_t id[LMC_FINGERPRINT_SIZE], id2[LMC_FINGERPRINT_SIZE], base_id[LMC_FINGERPRINT_SIZE];
    lmc_snapshot_info header;
    size_t i, k, form, total = 0;
    t_heap heap;
    for (i = 0; i < model->n_files; i++) total += model->files[i].size;
    memset(out, 0, sizeof *out);
    self.model = model;
    self.calls = NULL;
    for (form = 0; form < (n_bases ? n_bases : 1); form++)
        for (i = 0; i < 4; i++)
            for (k = 0; k < 4; k++) {
                unsigned n = workers[k];
                lmc_parallel parallel = t_parallel(&n);
                lmc_writer_options options;
                t_memory again;
                if ((t_quick && (i + k + form) % 3 != 0) ||
                    (pieces[i] == 31 && (k != 0 || total > 300000)) || (i + k > 3 && form > 0))
                    continue;
                t_note("%s: write, base %lu, log2_block %u, pieces of %lu, %u workers", name,
                       (unsigned long)form, log2_block, (unsigned long)pieces[i], n);
                memset(&heap, 0, sizeof heap);
                heap.fail_at = -1;
                memset(&again, 0, sizeof again);
                memset(&options, 0, sizeof options);
                options.log2_block = log2_block;
                options.level = level;
                options.parallel = n ? &parallel : NULL;
                options.allocator = t_allocator(&heap);
                options.base = n_bases ? bases[form] : NULL;
                options.read_back = twins ? read_own : NULL;
                options.user = &self;
                CHECK_STATUS(t_write_model(model, &again, &options, pieces[i], id2), LMC_OK);
                CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
                if (out->data == NULL) {
                    *out = again;
                    t_model_fingerprint(model, id);
                    CHECK(memcmp(id, id2, LMC_FINGERPRINT_SIZE) == 0);
                    continue;
                }
                CHECK(again.size == out->size && memcmp(again.data, out->data, again.size) == 0 &&
                      memcmp(id, id2, LMC_FINGERPRINT_SIZE) == 0);
                free(again.data);
            }
    memset(id2, 0, sizeof id2);
    if (n_bases) CHECK_STATUS(lmc_base_identify(bases[0], id2, NULL), LMC_OK);
    CHECK_STATUS(lmc_header_parse(out->data, out->size, &header), LMC_OK);
    memcpy(base_id, header.base_fingerprint, sizeof base_id);
    CHECK(memcmp(id2, base_id, sizeof base_id) == 0 && header.has_base == (n_bases != 0));
    for (form = 0; form < (n_bases ? n_bases : 1); form++)
        for (i = 0; i < 4; i++)
            for (k = 0; k < 4; k++) {
                unsigned n = workers[k];
                int wrong = 1;
                lmc_parallel parallel = t_parallel(&n);
                lmc_restore_options options;
                lmc_reader_options read_options;
                if ((t_quick && (i + k + form) % 3 != 0) || (i + k > 3 && form > 0) ||
                    pieces[i] == 31)
                    continue;
                t_note("%s: restore, base %lu, log2_block %u, pieces of %lu, %u workers", name,
                       (unsigned long)form, log2_block, (unsigned long)pieces[i], n);
                memset(&heap, 0, sizeof heap);
                heap.fail_at = -1;
                memset(&options, 0, sizeof options);
                memset(&read_options, 0, sizeof read_options);
                options.parallel = read_options.parallel = n ? &parallel : NULL;
                options.allocator = read_options.allocator = t_allocator(&heap);
                options.base = read_options.base = n_bases ? bases[form] : NULL;
                options.read_back = twins ? t_on_read_back : NULL;
                options.write_at = (i + k) % 2 ? t_on_write_at : NULL;
                out->piece = pieces[i] == T_STREAM ? 1000 : pieces[i];
                memset(id2, 0, sizeof id2);
                CHECK_STATUS(t_restore_model(model, out, &options, id2, &wrong), LMC_OK);
                CHECK(!wrong && memcmp(id, id2, LMC_FINGERPRINT_SIZE) == 0 && heap.live == 0 &&
                      heap.bytes == 0 && heap.wrong_size == 0);
                if (i > 1) continue;
                t_note("%s: read, base %lu, log2_block %u, %u workers", name, (unsigned long)form,
                       log2_block, n);
                CHECK_STATUS(t_read_model(model, out, &read_options, &wrong), LMC_OK);
                CHECK(!wrong && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            }
    {
        lmc_reader *reader = open_memory(out, n_bases ? bases[0] : NULL, NULL);
        t_note("%s: reader", name);
        header = t_info(reader);
        CHECK(header.has_base == (n_bases != 0) &&
              memcmp(header.base_fingerprint, base_id, sizeof base_id) == 0);
        t_fingerprint(reader, id2);
        CHECK(memcmp(id, id2, LMC_FINGERPRINT_SIZE) == 0);
        check_ranges(model, reader, log2_block + 5);
        lmc_reader_free(reader);
    }
}

/* -- two snapshots -- */

#define NEW_PARTS 16u

static void make_new_parts(part *p, const part *old, size_t n)
{
    p[0] = change(&old[15], T_STEPS, 1);
    p[1] = change(&old[13], T_FEW, 2);
    p[1].shape[0] = 50;
    p[1].shape[1] = 40;
    p[2] = change(&old[14], T_FEW, 3);
    p[2].dtype = "BF16";
    p[3] = make_part("added", "BF16", 1, 3 * n, 0, T_GAUSS, 44);
    p[4] = change(&old[0], T_FEW, 4);
    p[5] = change(&old[11], T_EQUAL, 5);
    p[6] = change(&old[10], T_ALL, 6);
    p[7] = change(&old[9], T_FEW, 7);
    p[8] = change(&old[8], T_FEW, 8);
    p[9] = change(&old[7], T_STEPS, 9);
    p[10] = change(&old[1], T_STEPS, 10);
    p[11] = change(&old[2], T_EQUAL, 11);
    p[12] = change(&old[6], T_FEW, 12);
    p[13] = change(&old[5], T_ALL, 13);
    p[14] = change(&old[4], T_UNRELATED, 14);
    p[15] = change(&old[3], T_FEW, 15);
}

/* Distributes parts over other files, in another order. */
static void make_new_model(t_model *model, const part *parts)
{
    static const size_t order[NEW_PARTS] = {3, 9, 10, 4, 11, 2, 15, 14, 6, 13, 12, 0, 5, 8, 7, 1};
    memset(model, 0, sizeof *model);
    add_text(model, "config.json", 2000, 1, 1500); /* one byte differs */
    add_shard(model, "a/weights", parts, order, 5);
    add_shard(model, "a/more weights", parts, order + 5, 4);
    add_text(model, "notes.txt", 750, 2, SIZE_MAX); /* of another size */
    add_shard(model, "rest", parts, order + 9, NEW_PARTS - 9);
    t_add_file(model, "nothing", NULL, 0);
    add_text(model, "stream", 3000, 4, SIZE_MAX)->file.size = LMC_UNKNOWN_SIZE;
    model->n_metadata = 1;
    model->keys[0] = "step";
    model->values[0] = "2";
    model->value_sizes[0] = 1;
}

/* Encoded bytes of a tensor, as a share of its size. */
static double share_of(lmc_reader *reader, const char *name)
{
    const lmc_tensor *t = NULL;
    size_t number = 0;
    if (!CHECK_STATUS(lmc_reader_find_tensor(reader, NULL, name, &number, &t), LMC_OK)) return 99;
    return (double)t_encoded_size(reader, number, t->offset, t->size) / (double)t->size;
}

static part g_old_parts[OLD_PARTS], g_new_parts[NEW_PARTS];
static t_model g_old, g_new;

static void make_models(size_t n)
{
    make_old_parts(g_old_parts, n);
    make_new_parts(g_new_parts, g_old_parts, n);
    make_old_model(&g_old, g_old_parts);
    make_new_model(&g_new, g_new_parts);
}

static void free_models(void)
{
    t_free_model(&g_old);
    t_free_model(&g_new);
    free_parts(g_old_parts, OLD_PARTS);
    free_parts(g_new_parts, NEW_PARTS);
}

static void test_snapshots(void)
{
    static const size_t sizes[] = {40, 1200};
    size_t i;
    for (i = 0; i < (t_quick ? 1u : 2u); i++) {
        unsigned n = 3;
        const lmc_parallel parallel = t_parallel(&n);
        const unsigned log2_block = i ? 14 : 0;
        const enum lmc_level level = i ? LMC_LEVEL_DEFAULT : LMC_LEVEL_MAX;
        t_memory plain, old, delta, same;
        lmc_base as_files, as_files_too, as_reader;
        const lmc_base *bases[3];
        uint8_t id[LMC_FINGERPRINT_SIZE], want[LMC_FINGERPRINT_SIZE];
        lmc_reader *reader;
        loose files, files_too;
        make_models(sizes[i]);
        t_note("snapshots: bases");
        check_model(&g_old, NULL, 0, 0, log2_block, level, "old", &old);
        check_model(&g_new, NULL, 0, 0, log2_block, level, "new, without a base", &plain);
        as_files = make_loose(&files, &g_old, NULL, 0);
        as_files_too = make_loose(&files_too, &g_old, &parallel, 5000);
        reader = open_memory(&old, NULL, &parallel);
        as_reader = lmc_reader_base(reader);
        bases[0] = &as_files;
        bases[1] = &as_reader;
        bases[2] = &as_files_too;
        t_model_fingerprint(&g_old, want);
        CHECK_STATUS(lmc_base_identify(&as_files, id, NULL), LMC_OK);
        CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
        CHECK_STATUS(lmc_base_identify(&as_reader, id, NULL), LMC_OK);
        CHECK(memcmp(id, want, LMC_FINGERPRINT_SIZE) == 0);
        CHECK(as_reader.n_files == g_old.n_files);
        check_model(&g_new, bases, 3, 0, log2_block, level, "delta", &delta);
        t_note("delta of %lu bytes, without a base %lu", (unsigned long)delta.size,
               (unsigned long)plain.size);
        CHECK(delta.size < plain.size * 3 / 4);
        lmc_reader_free(reader);
        reader = open_memory(&delta, &as_files, NULL);
        t_note("shares: embed %.3f, reshaped %.3f, retyped %.3f, added %.3f",
               share_of(reader, "embed"), share_of(reader, "reshaped"), share_of(reader, "retyped"),
               share_of(reader, "added"));
        CHECK(share_of(reader, "reshaped") < 0.3 && share_of(reader, "retyped") > 0.5 &&
              share_of(reader, "added") > 0.5);
        if (i) CHECK(share_of(reader, "embed") < 0.1 && share_of(reader, "layer.0.b") < 0.9);
        lmc_reader_free(reader);
        t_note("equal to its base");
        check_model(&g_old, bases, 1, 0, log2_block, level, "equal to its base", &same);
        t_note("equal to its base: %lu of %lu bytes", (unsigned long)same.size,
               (unsigned long)old.size);
        /* headers, index, bytes that belong to no tensor */
        if (i) CHECK(same.size < old.size / 50 + 6000);
        free(same.data);
        free(delta.data);
        free(plain.data);
        free(old.data);
        free_loose(&files);
        free_loose(&files_too);
        free_models();
    }
}

static lmc_reader *open_link(t_memory *memory, const lmc_base *base, lmc_reader *lender,
                             t_heap *heap)
{
    lmc_reader_options options;
    memset(&options, 0, sizeof options);
    options.base = base;
    options.lender = lender;
    options.allocator = t_allocator(heap);
    return open_with(memory, &options);
}

/* -- readers that share an index -- */

#define N_SHARERS 16

typedef struct sharer {
    lmc_reader *reader;
    const t_model *model;
    uint64_t seed;
    size_t n_right, n_rounds;
} sharer;

/* A task for one thread. In every other round all threads read the same tensor, whole. */
static void read_shared(void *arg, size_t index, unsigned worker)
{
    sharer *const s = (sharer *)arg + index;
    uint64_t same = 1;
    size_t round;
    (void)worker;
    for (round = 0; round < s->n_rounds; round++) {
        uint64_t *const seed = round % 2 ? &s->seed : &same;
        const size_t i = (size_t)t_below(seed, s->model->n_files);
        const t_file *const f = &s->model->files[i];
        const size_t n_tensors = f->file.n_tensors;
        const lmc_tensor *const wanted =
            n_tensors ? &f->file.tensors[t_below(seed, n_tensors)] : NULL;
        const lmc_tensor *t;
        const size_t start = wanted ? (size_t)wanted->offset : 0,
                     size = wanted ? (size_t)wanted->size : f->size,
                     from = round % 2 ? (size_t)t_below(seed, size + 1) : 0,
                     n = round % 2 ? (size_t)t_below(seed, size - from + 1) : size;
        uint8_t *const got = allocate(n + 1);
        enum lmc_status status;
        size_t found;
        if (wanted) {
            status = lmc_reader_find_tensor(s->reader, f->file.path, wanted->name, &found, &t);
            if (status == LMC_OK) status = lmc_reader_read_tensor(s->reader, i, t, from, got, n);
        } else {
            status = lmc_reader_find_file(s->reader, f->file.path, &found);
            if (status == LMC_OK) status = lmc_reader_read_file(s->reader, i, from, got, n);
        }
        s->n_right += status == LMC_OK && found == i &&
                      (n == 0 || memcmp(got, f->data + start + from, n) == 0);
        free(got);
    }
}

/* The last of n snapshots, each the base of the next, is read by 16 threads with one index. */
static void check_shared(const t_model *model, const t_memory *out, size_t n, int one_coder)
{
    static sharer sharers[N_SHARERS];
    lmc_memory memory[4];
    lmc_reader *readers[4];
    lmc_base bases[4];
    lmc_parallel parallel;
    unsigned workers = N_SHARERS;
    lmc_file const *file;
    size_t i, n_right = 0;
    for (i = 0; i < n; i++) {
        lmc_reader_options options = LMC_READER_OPTIONS();
        lmc_source source;
        memset(&memory[i], 0, sizeof memory[i]);
        memory[i].data = out[i].data;
        memory[i].size = out[i].size;
        source = lmc_memory_source(&memory[i]);
        options.base = i ? &bases[i - 1] : NULL;
        options.lender = i && one_coder ? readers[i - 1] : NULL;
        CHECK_STATUS(lmc_reader_open(&readers[i], &source, &options), LMC_OK);
        bases[i] = lmc_reader_base(readers[i]);
    }
    for (i = 0; i < N_SHARERS; i++) { /* the first is the reader that the others share with */
        sharer *const s = &sharers[i];
        memset(s, 0, sizeof *s);
        s->model = model;
        s->seed = i + 1;
        s->n_rounds = t_brief ? 4 : t_quick ? 12 : 40;
        s->reader = readers[n - 1];
        if (i) CHECK_STATUS(lmc_reader_open_shared(&s->reader, sharers[i / 2].reader), LMC_OK);
        file = lmc_reader_get_file(s->reader, 0);
        CHECK(file == lmc_reader_get_file(readers[n - 1], 0));
    }
    parallel = t_parallel(&workers);
    parallel.run(parallel.user, read_shared, sharers, N_SHARERS, N_SHARERS);
    for (i = 0; i < N_SHARERS; i++) n_right += sharers[i].n_right;
    t_note("%lu snapshots, %lu reads are right", (unsigned long)n, (unsigned long)n_right);
    CHECK(n_right == N_SHARERS * sharers[0].n_rounds);
    check_ranges(model, sharers[N_SHARERS - 1].reader, 97);
    for (i = 1; i < N_SHARERS; i++) lmc_reader_free(sharers[i].reader);
    while (n-- > 0) lmc_reader_free(readers[n]);
}

/* A further reader takes little memory, and none remains after an error. */
static void test_shared_memory(void)
{
    enum { N = 2000 };
    static char names[N][32];
    static lmc_array arrays[N];
    const uint64_t shape[1] = {4};
    const uint32_t element[4] = {1, 2, 3, 4};
    lmc_memory memory = LMC_DEFAULTS;
    const lmc_sink sink = lmc_memory_sink(&memory);
    lmc_reader_options options = LMC_READER_OPTIONS();
    lmc_reader *from, *reader = NULL;
    lmc_salvage *salvage;
    lmc_writer *writer;
    lmc_source source;
    t_heap heap;
    size_t i, before;
    long live;
    for (i = 0; i < N; i++) {
        sprintf(names[i], "layers.%u.weight", (unsigned)i);
        arrays[i].name = names[i];
        arrays[i].dtype = LMC_F32;
        arrays[i].rank = 1;
        arrays[i].shape = shape;
        arrays[i].data = element;
    }
    CHECK_STATUS(lmc_writer_open(&writer, &sink, NULL), LMC_OK);
    CHECK_STATUS(lmc_writer_add_arrays(writer, "", arrays, N, NULL, 0), LMC_OK);
    CHECK_STATUS(lmc_writer_finish(writer), LMC_OK);
    lmc_writer_free(writer);
    source = lmc_memory_source(&memory);
    memset(&heap, 0, sizeof heap);
    heap.fail_at = -1;
    options.allocator = t_allocator(&heap);
    CHECK_STATUS(lmc_reader_open(&from, &source, &options), LMC_OK);
    CHECK_STATUS(lmc_reader_open_shared(&reader, from), LMC_OK); /* the names are sorted now */
    lmc_reader_free(reader);
    before = heap.bytes;
    live = heap.live;
    CHECK_STATUS(lmc_reader_open_shared(&reader, from), LMC_OK);
    t_note("a reader %lu bytes, a further one %lu", (unsigned long)before,
           (unsigned long)(heap.bytes - before));
    CHECK(heap.bytes - before < before / 20);
    lmc_reader_free(reader);
    for (i = 0; i < 20; i++) {
        enum lmc_status status;
        heap.calls = 0;
        heap.fail_at = (long)i;
        reader = NULL;
        status = lmc_reader_open_shared(&reader, from);
        CHECK(status == (heap.calls > (long)i ? LMC_ERR_MEMORY : LMC_OK));
        lmc_reader_free(reader);
        CHECK(heap.live == live && heap.bytes == before && heap.wrong_size == 0);
        if (status == LMC_OK) break;
    }
    CHECK(i > 1 && i < 20);
    CHECK_STATUS(lmc_reader_open_shared(NULL, from), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_reader_open_shared(&reader, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_open(&salvage, &source, NULL), LMC_OK);
    CHECK_STATUS(lmc_reader_open_shared(&reader, lmc_salvage_reader(salvage)), LMC_ERR_ARGUMENT);
    lmc_salvage_free(salvage);
    lmc_reader_free(from);
    CHECK(heap.live == 0);
    lmc_memory_free(&memory);
}

/* Three deltas, one on top of the other, read through all of them. */
static void test_chain(void)
{
    static t_model models[4];
    static part parts[4][OLD_PARTS];
    t_memory out[4];
    lmc_base bases[4];
    lmc_reader *readers[4];
    static t_heap heaps[2];
    size_t i, k;
    make_old_parts(parts[0], 300);
    for (i = 0; i < 4; i++) {
        char name[32];
        const lmc_base *base = &bases[i - (i > 0)];
        for (k = 0; i > 0 && k < OLD_PARTS; k++)
            parts[i][k] = change(&parts[i - 1][k], (k + i) % 3 == 0 ? T_STEPS : T_FEW, i * 100 + k);
        make_old_model(&models[i], parts[i]);
        sprintf(name, "link %d of a chain", (int)i);
        check_model(&models[i], &base, i > 0, 0, 14, LMC_LEVEL_DEFAULT, name, &out[i]);
        readers[i] = open_memory(&out[i], i ? &bases[i - 1] : NULL, NULL);
        bases[i] = lmc_reader_base(readers[i]);
    }
    /* each reader with its own buffers, and all with those of the first */
    for (heaps[0].fail_at = heaps[1].fail_at = -1, k = 0; k < 2; k++) {
        t_note("chain, %s", k ? "one lends to all" : "no lender");
        for (i = 0; i < 4; i++) {
            lmc_reader_free(readers[i]);
            readers[i] = open_link(&out[i], i ? &bases[i - 1] : NULL,
                                   k && i ? readers[i - 1] : NULL, &heaps[k]);
            bases[i] = lmc_reader_base(readers[i]);
        }
        check_ranges(&models[3], readers[3], 99);
        check_ranges(&models[1], readers[1], 98);
    }
    t_note("memory: %lu, lent %lu", (unsigned long)heaps[0].peak, (unsigned long)heaps[1].peak);
    CHECK(heaps[1].peak < heaps[0].peak * 2 / 3);
    check_shared(&models[0], out, 1, 0);
    for (k = 0; k < 2; k++) check_shared(&models[3], out, 4, k != 0);
    for (i = 4; i-- > 0;) {
        lmc_reader_free(readers[i]);
        t_free_model(&models[i]);
        free_parts(parts[i], OLD_PARTS);
        free(out[i].data);
    }
}

/* Names that differ only by a prefix are of one tensor; not if the prefix is the number of a layer,
 * with any digit, on either side. The last prefix is a wrapper's. */
static void test_names_in_front(void)
{
    enum { N = 11 };
    static t_model models[2];
    static part parts[2][N];
    static char names[2][N][32];
    size_t i, k;
    for (k = 0; k < 2; k++) { /* the base has the number; the delta has it */
        t_memory old, delta;
        lmc_reader *base_reader, *reader;
        lmc_base base;
        const lmc_base *bases = &base;
        for (i = 0; i < N; i++) {
            if (i < N - 1) sprintf(names[k][i], "layers.%u.w%u.weight", (unsigned)i, (unsigned)i);
            else sprintf(names[k][i], "module.w%u.weight", (unsigned)i);
            sprintf(names[!k][i], "w%u.weight", (unsigned)i);
            parts[0][i] = make_part(names[0][i], "BF16", 1, 4000, 0, T_GAUSS, 50 + i);
            parts[1][i] = change(&parts[0][i], T_STEPS, 70 + i);
            parts[1][i].name = names[1][i];
        }
        for (i = 0; i < 2; i++) {
            memset(&models[i], 0, sizeof models[i]);
            add_shard(&models[i], "model", parts[i], NULL, N);
        }
        check_model(&models[0], NULL, 0, 0, 14, LMC_LEVEL_DEFAULT, "names, old", &old);
        base_reader = open_memory(&old, NULL, NULL);
        base = lmc_reader_base(base_reader);
        check_model(&models[1], &bases, 1, 0, 14, LMC_LEVEL_DEFAULT, "names, new", &delta);
        reader = open_memory(&delta, &base, NULL);
        for (i = 0; i < N; i++) {
            const double share = share_of(reader, names[1][i]);
            t_note("%s of %s: %.3f", names[1][i], names[0][i], share);
            CHECK(i < N - 1 ? share > 0.5 : share < 0.4);
        }
        lmc_reader_free(reader);
        lmc_reader_free(base_reader);
        free(delta.data);
        free(old.data);
        for (i = 0; i < 2; i++) {
            t_free_model(&models[i]);
            free_parts(parts[i], N);
        }
    }
}

/* A reader as a base: pieces of two files are read in turn, and again after a failure. */
static void test_as_base(void)
{
    t_memory out;
    lmc_reader *reader;
    lmc_base base;
    t_calls calls;
    uint8_t got[3000];
    size_t i;
    make_models(1200);
    check_model(&g_old, NULL, 0, 0, 14, LMC_LEVEL_DEFAULT, "old", &out);
    reader = open_memory(&out, NULL, NULL);
    base = lmc_reader_base(reader);
    for (i = 0; i < 12; i++) {
        const size_t at = 777 + i / 4 * 2500;
        CHECK_STATUS(base.read(base.user, i % 2, at, got, sizeof got), LMC_OK);
        CHECK(memcmp(got, g_old.files[i % 2].data + at, sizeof got) == 0);
    }
    lmc_reader_free(reader); /* and its decoded bytes */
    reader = open_memory(&out, NULL, NULL);
    base = lmc_reader_base(reader);
    memset(&calls, 0, sizeof calls);
    out.calls = &calls;
    /* the first window of each file; then that of the other file again, which is still there */
    for (i = 0; i < 3; i++) {
        calls.calls = 0;
        calls.fail_at = i == 2 ? -1 : 0;
        CHECK_STATUS(base.read(base.user, i % 2, 301, got, sizeof got),
                     i == 2 ? LMC_OK : LMC_ERR_READ);
        calls.fail_at = -1;
        CHECK_STATUS(base.read(base.user, i % 2, 301, got, sizeof got), LMC_OK);
        CHECK(memcmp(got, g_old.files[i % 2].data + 301, sizeof got) == 0);
    }
    CHECK_STATUS(base.read(base.user, 0, g_old.files[0].size, got, 1), LMC_ERR_ARGUMENT);
    CHECK_STATUS(base.read(base.user, 99, 0, got, 1), LMC_ERR_ARGUMENT);
    lmc_reader_free(reader);
    free(out.data);
    free_models();
}

typedef struct counted {
    t_memory memory;
    uint64_t bytes;
} counted;

static enum lmc_status read_counted(void *user, uint64_t offset, void *dst, size_t size)
{
    counted *c = (counted *)user;
    c->bytes += size;
    return t_read_at(&c->memory, offset, dst, size);
}

/* Links with blocks of different sizes: each is read little more than once, however many links are
 * above it. */
static void test_long_chain(void)
{
    enum { MOST_LINKS = 12, TENSORS = 9 };
    const size_t n_links = t_brief ? 4 : MOST_LINKS;
    static const unsigned log2_blocks[] = {14, 22, 16, 0, 21, 15}; /* of F32 20 at most */
    static part parts[2][TENSORS];
    static t_model models[2];
    static counted links[MOST_LINKS];
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    lmc_reader *readers[MOST_LINKS];
    lmc_base bases[MOST_LINKS];
    uint8_t *got;
    size_t i, k, at, size;
    for (i = 0; i < n_links; i++) {
        lmc_writer_options options;
        loose files;
        lmc_base base;
        for (k = 0; k < TENSORS; k++)
            parts[i % 2][k] = i ? change(&parts[1 - i % 2][k], T_FEW, i * 50 + k)
                                : make_part(names[k], k % 4 == 3 ? "BF16" : "F32", 1,
                                            k % 3 ? 3000 + 70000 * k : 250000, 0, T_GAUSS, k);
        memset(&models[i % 2], 0, sizeof models[0]);
        add_shard(&models[i % 2], "model", parts[i % 2], NULL, TENSORS);
        memset(&options, 0, sizeof options);
        options.log2_block = log2_blocks[i % 6];
        if (i) {
            base = make_loose(&files, &models[1 - i % 2], NULL, 0);
            options.base = &base;
        }
        memset(&links[i], 0, sizeof links[i]);
        CHECK_STATUS(t_write_model(&models[i % 2], &links[i].memory, &options, 0, NULL), LMC_OK);
        if (i == 0) continue;
        free_loose(&files);
        t_free_model(&models[1 - i % 2]);
        free_parts(parts[1 - i % 2], TENSORS);
    }
    for (i = 0; i < n_links; i++) {
        lmc_reader_options options;
        lmc_source source = LMC_DEFAULTS;
        memset(&options, 0, sizeof options);
        options.base = i ? &bases[i - 1] : NULL;
        options.lender = i ? readers[i - 1] : NULL;
        source.read_at = read_counted;
        source.user = &links[i];
        source.size = links[i].memory.size;
        CHECK_STATUS(lmc_reader_open(&readers[i], &source, &options), LMC_OK);
        bases[i] = lmc_reader_base(readers[i]);
    }
    for (i = 0; i < n_links; i++) links[i].bytes = 0;
    size = models[(n_links - 1) % 2].files[0].size;
    got = allocate(size);
    for (at = 0; at < size; at += 3000000) { /* in pieces unlike all blocks */
        const size_t part_size = size - at < 3000000 ? size - at : 3000000;
        CHECK_STATUS(lmc_reader_read_file(readers[n_links - 1], 0, at, got + at, part_size),
                     LMC_OK);
    }
    CHECK(memcmp(got, models[(n_links - 1) % 2].files[0].data, size) == 0);
    for (i = 0; i < n_links; i++) {
        const double times = (double)links[i].bytes / (double)links[i].memory.size;
        t_note("link %lu of the chain was read %.2f times", (unsigned long)i, times);
        CHECK(times < 1.8);
    }
    for (i = n_links; i-- > 0;) {
        lmc_reader_free(readers[i]);
        free(links[i].memory.data);
    }
    free(got);
    t_free_model(&models[(n_links - 1) % 2]);
    free_parts(parts[(n_links - 1) % 2], TENSORS);
}

/* -- twins -- */

static lmc_twin twin_of(const t_model *model, size_t file_number, size_t tensor,
                        enum lmc_conversion conversion)
{
    lmc_twin twin = LMC_DEFAULTS;
    twin.file_number = file_number;
    twin.offset = model->files[file_number].file.tensors[tensor].offset;
    twin.conversion = conversion;
    return twin;
}

/* A twin's elements by the spec's pseudo code, one by one. */
static void round_part(part *p, const part *wide, int to_bf16)
{
    size_t i;
    for (i = 0; i < p->size / 2; i++)
        put(p->data + 2 * i,
            slow_round((uint32_t)get(wide->data + 4 * i, 4), to_bf16 ? g_bf16 : g_f16,
                       to_bf16 ? 7 : 10),
            2);
}

#define MASTERS 4u
#define TWINS 18u

/* Masters in the first file; in the second and third their twins, and all kinds of false claims to
 * be twins. */
static void make_twins(t_model *model, part *masters, part *twins, lmc_twin *claims, size_t n,
                       uint64_t seed)
{
    static const char *const names[TWINS] = {"t.00", "t.01", "t.02", "t.03", "t.04", "t.05",
                                             "t.06", "t.07", "t.08", "t.09", "t.10", "t.11",
                                             "t.12", "t.13", "t.14", "t.15", "t.16", "t.17"};
    static const size_t order[10] = {0, 2, 4, 1, 3, 5, 6, 7, 8, 9}; /* neighbours share a run */
    size_t i;
    masters[0] = make_part("m.0", "F32", 2, n, 8, T_GAUSS, seed);
    masters[1] = make_part("m.1", "F32", 1, n + 1, 0, T_SPECIAL, seed + 1);
    masters[2] = make_part("m.2", "F32", 1, 40 * n + 3, 0, T_GAUSS, seed + 2);
    masters[3] = make_part("m.3", "BF16", 1, n, 0, T_GAUSS, seed + 3);
    /* ties of BF16 */
    for (i = 0; i + 6 < masters[2].size; i += 52)
        masters[2].data[i] = 0, masters[2].data[i + 1] = 0x80;
    /* F16: subnormal, overflow */
    for (i = 0; i + 6 < masters[2].size; i += 124)
        put(masters[2].data + i, 0x33000000 + i * 4099, 4);
    memset(model, 0, sizeof *model);
    add_shard(model, "masters", masters, NULL, MASTERS);
    for (i = 0; i < TWINS; i++) {
        static const struct {
            unsigned master;
            enum lmc_conversion conversion;
        } of[TWINS] = {/* true: 0 .. 6 */
                       {0, LMC_CONVERT_F32_TO_BF16},
                       {0, LMC_CONVERT_F32_TO_F16},
                       {1, LMC_CONVERT_F32_TO_BF16},
                       {1, LMC_CONVERT_F32_TO_F16},
                       {2, LMC_CONVERT_F32_TO_BF16},
                       {2, LMC_CONVERT_NONE},
                       {3, LMC_CONVERT_NONE},
                       /* false: other data (7, 8), the wrong conversion (9), too near to the end
                        * (10), no such file (11), a huge offset (12), later bytes (13), itself
                        * (14), a twin's bytes (15), an unknown conversion (16) */
                       {0, LMC_CONVERT_F32_TO_BF16},
                       {2, LMC_CONVERT_NONE},
                       {2, LMC_CONVERT_F32_TO_BF16},
                       {0, LMC_CONVERT_F32_TO_BF16},
                       {0, LMC_CONVERT_NONE},
                       {0, LMC_CONVERT_NONE},
                       {0, LMC_CONVERT_NONE},
                       {0, LMC_CONVERT_NONE},
                       {0, LMC_CONVERT_NONE},
                       {0, LMC_CONVERT_NONE},
                       /* true again, and of an unknown dtype: 17 */
                       {2, LMC_CONVERT_F32_TO_F16}};
        const part *m = &masters[of[i].master];
        const int narrow = of[i].conversion != LMC_CONVERT_NONE,
                  is_f16 = of[i].conversion == LMC_CONVERT_F32_TO_F16;
        const uint64_t elements = m->size / lmc_dtype_width(lmc_dtype_find(m->dtype));
        twins[i] = make_part(names[i], narrow ? (is_f16 ? "F16" : "BF16") : m->dtype, 1, elements,
                             0, T_GAUSS, seed + 10 + i);
        if (i < 7 || i == 9 || i == 17) {
            if (narrow) round_part(&twins[i], m, i == 9 ? 0 : !is_f16);
            else memcpy(twins[i].data, m->data, m->size);
        }
        claims[i] = twin_of(model, 0, of[i].master, of[i].conversion);
        twins[i].twin = &claims[i];
    }
    twins[17].dtype = "float16";
    twins[17].shape[0] = twins[17].size;
    claims[10].offset = model->files[0].size - 100;
    claims[11].file_number = 3;
    claims[12].offset = UINT64_MAX - 3;
    claims[13].file_number = 2;
    claims[13].offset = 301;
    claims[16].conversion = (enum lmc_conversion)3;
    add_shard(model, "twins", twins, order, 10);
    add_shard(model, "others", twins + 10, NULL, TWINS - 10);
    claims[14].file_number = 2;
    claims[14].offset = model->files[2].file.tensors[4].offset;
    claims[15] = twin_of(model, 1, 0, LMC_CONVERT_NONE);
}

static void test_twins(void)
{
    static t_model model, next;
    static part masters[MASTERS], twins[TWINS], next_masters[MASTERS], next_twins[TWINS];
    static lmc_twin claims[TWINS], next_claims[TWINS];
    static const size_t sizes[] = {3, 400, 2500};
    static const char *const names[] = {"t.00", "t.01", "t.02", "t.03",
                                        "t.04", "t.05", "t.06", "t.17"};
    size_t i, k;
    for (i = 0; i < (t_quick ? 2u : 3u); i++) {
        const unsigned log2_block = i == 1 ? 14 : 0;
        t_memory plain, out, delta;
        lmc_restore_options options;
        lmc_base base;
        const lmc_base *bases[1];
        lmc_reader *reader;
        loose files;
        int wrong;
        make_twins(&model, masters, twins, claims, sizes[i], 1);
        make_twins(&next, next_masters, next_twins, next_claims, sizes[i], 1);
        for (k = 0; k < MASTERS; k++) /* a step later; special values stay */
            if (k != 1)
                t_fill_base((uint8_t *)(uintptr_t)next.files[0].data +
                                next.files[0].file.tensors[k].offset,
                            masters[k].data, masters[k].size, T_STEPS, T_GAUSS,
                            lmc_dtype_find(masters[k].dtype), 9);
        check_model(&model, NULL, 0, 0, log2_block, LMC_LEVEL_DEFAULT, "no twins", &plain);
        check_model(&model, NULL, 0, 1, log2_block, LMC_LEVEL_DEFAULT, "twins", &out);
        t_note("twins: %lu bytes, without %lu", (unsigned long)out.size, (unsigned long)plain.size);
        CHECK((plain.data[16] & 2) == 0 && (out.data[16] & 2) != 0); /* Own */
        reader = open_memory(&out, NULL, NULL);
        for (k = 0; i > 0 && k < 8; k++) {
            const double share = share_of(reader, names[k]);
            t_note("twin %s takes %.4f", names[k], share);
            CHECK(share < (i == 1 ? 0.3 : 0.01));
        }
        lmc_reader_free(reader);
        t_note("twins without read_back");
        memset(&options, 0, sizeof options);
        CHECK_STATUS(t_restore_model(&model, &out, &options, NULL, &wrong), LMC_ERR_READ_BACK);
        CHECK(!wrong);
        base = make_loose(&files, &model, NULL, 0);
        bases[0] = &base;
        check_model(&next, bases, 1, 1, log2_block, LMC_LEVEL_DEFAULT, "twins within a delta",
                    &delta);
        t_note("twins within a delta, which is there without its base");
        reader = open_memory(&delta, NULL, NULL);
        for (k = 0; k < next.n_files; k++) {
            const lmc_file *f = lmc_reader_get_file(reader, k);
            size_t j;
            for (j = 0; j < f->n_tensors; j++) {
                const enum lmc_status status = lmc_reader_read_tensor(
                    reader, k, &f->tensors[j], 0, g_dst.data, (size_t)f->tensors[j].size);
                /* false claims need no base, or may not */
                CHECK(status == LMC_ERR_BASE_MISSING || (k > 0 && j > 6 && status == LMC_OK));
            }
        }
        lmc_reader_free(reader);
        free(plain.data);
        free(out.data);
        free(delta.data);
        free_loose(&files);
        t_free_model(&model);
        t_free_model(&next);
        free_parts(masters, MASTERS);
        free_parts(twins, TWINS);
        free_parts(next_masters, MASTERS);
        free_parts(next_twins, TWINS);
    }
}

/* -- faults: every callback and every allocation fails once -- */

/* A small delta with all features: twins, predictions by tensors and files, files of unknown
 * size. */
typedef struct small {
    t_model old_model, model;
    part old_masters[MASTERS], old_twins[TWINS], masters[MASTERS], twins[TWINS];
    lmc_twin old_claims[TWINS], claims[TWINS];
    loose files;
    lmc_base base;
    own self;
    t_memory out;
} small;

static lmc_writer_options small_options(small *s)
{
    lmc_writer_options options;
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    options.base = &s->base;
    options.read_back = read_own;
    options.user = &s->self;
    return options;
}

static void make_small(small *s, size_t n)
{
    lmc_writer_options options;
    size_t k;
    memset(s, 0, sizeof *s);
    make_twins(&s->old_model, s->old_masters, s->old_twins, s->old_claims, n, 3);
    make_twins(&s->model, s->masters, s->twins, s->claims, n, 3);
    for (k = 0; k < MASTERS; k++)
        t_fill_base((uint8_t *)(uintptr_t)s->model.files[0].data +
                        s->model.files[0].file.tensors[k].offset,
                    s->masters[k].data, s->masters[k].size, T_STEPS, T_GAUSS,
                    lmc_dtype_find(s->masters[k].dtype), 4);
    add_text(&s->old_model, "text", 900, 5, SIZE_MAX);
    add_text(&s->model, "text", 900, 5, 50);
    add_text(&s->model, "pipe", 300, 6, SIZE_MAX)->file.size = LMC_UNKNOWN_SIZE;
    s->base = make_loose(&s->files, &s->old_model, NULL, 0);
    s->self.model = &s->model;
    options = small_options(s);
    t_note("a small delta");
    CHECK_STATUS(t_write_model(&s->model, &s->out, &options, 0, NULL), LMC_OK);
}

static void free_small(small *s)
{
    free(s->out.data);
    free_loose(&s->files);
    t_free_model(&s->old_model);
    t_free_model(&s->model);
    free_parts(s->old_masters, MASTERS);
    free_parts(s->old_twins, TWINS);
    free_parts(s->masters, MASTERS);
    free_parts(s->twins, TWINS);
}

/* lmc_file_identify and lmc_base_identify, with an allocator and a stream that may fail. */
static enum lmc_status identify(const small *s, t_calls *calls, t_heap *heap,
                                const lmc_parallel *parallel)
{
    lmc_file file = s->model.files[0].file;
    lmc_tensor tensors[MASTERS];
    lmc_stream stream = LMC_DEFAULTS;
    t_memory in;
    uint8_t id[LMC_FINGERPRINT_SIZE];
    enum lmc_status status;
    memcpy(tensors, file.tensors, sizeof tensors);
    file.tensors = tensors;
    memset(&in, 0, sizeof in);
    in.data = (uint8_t *)(uintptr_t)s->model.files[0].data;
    in.size = s->model.files[0].size;
    in.piece = 3000;
    in.calls = calls;
    stream.read = t_read;
    stream.user = &in;
    status = lmc_file_identify(&file, tensors, &stream, parallel, t_allocator(heap));
    if (status != LMC_OK)
        CHECK(file.crc == 0 && is_filled(tensors[0].fingerprint, LMC_FINGERPRINT_SIZE, 0));
    return status == LMC_OK ? lmc_base_identify(&s->base, id, t_allocator(heap)) : status;
}

static void test_faults(void)
{
    static small s;
    unsigned n = 2;
    const lmc_parallel parallel = t_parallel(&n);
    int mode;
    make_small(&s, 30);
    for (mode = 0; mode < 20; mode++) {
        static const char *const names[] = {"write", "restore", "read", "write by stream",
                                            "identify"};
        const int what = mode % 5, threads = mode / 5 % 2, memory = mode / 10;
        const long step = t_quick ? 5 : 1;
        long k;
        for (k = 0;; k += step) {
            lmc_writer_options write_options = small_options(&s);
            lmc_restore_options restore_options;
            lmc_reader_options read_options;
            enum lmc_status status;
            t_calls calls;
            t_heap heap;
            int wrong = 0, failed;
            memset(&calls, 0, sizeof calls);
            memset(&heap, 0, sizeof heap);
            memset(&restore_options, 0, sizeof restore_options);
            memset(&read_options, 0, sizeof read_options);
            calls.fail_at = memory ? -1 : k;
            heap.fail_at = memory ? k : -1;
            write_options.allocator = restore_options.allocator = read_options.allocator =
                t_allocator(&heap);
            restore_options.base = read_options.base = &s.base;
            restore_options.read_back = t_on_read_back;
            if (threads)
                write_options.parallel = restore_options.parallel = read_options.parallel =
                    &parallel;
            s.files.calls = s.self.calls = s.out.calls = &calls;
            t_note("%s, %s, %s %ld fails", names[what], threads ? "threads" : "serial",
                   memory ? "allocation" : "callback", k);
            if (what == 0 || what == 3) {
                t_memory out;
                memset(&out, 0, sizeof out);
                out.calls = &calls;
                status =
                    t_write_model(&s.model, &out, &write_options, what ? T_STREAM : 1000, NULL);
                free(out.data);
            } else if (what == 4) {
                status = identify(&s, &calls, &heap, threads ? &parallel : NULL);
            } else {
                s.out.piece = 5000;
                status = what == 1
                             ? t_restore_model(&s.model, &s.out, &restore_options, NULL, &wrong)
                             : t_read_model(&s.model, &s.out, &read_options, &wrong);
            }
            s.files.calls = s.self.calls = s.out.calls = NULL;
            failed = memory ? heap.calls > k : calls.calls > k;
            CHECK_STATUS(status, !failed ? LMC_OK : memory ? LMC_ERR_MEMORY : calls.expect);
            CHECK(!wrong && heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0);
            if (!failed) break;
        }
        CHECK(k > 0);
    }
    free_small(&s);
}

/* -- the wrong base, or none -- */

static enum lmc_status must_not_begin(void *user, const lmc_file *file, size_t number)
{
    (void)file;
    (void)number;
    *(int *)user = 1;
    return LMC_OK;
}

static enum lmc_status must_not_write(void *user, const void *data, size_t size)
{
    (void)data;
    (void)size;
    *(int *)user = 1;
    return LMC_OK;
}

static enum lmc_status restore_nothing(t_memory *in, const lmc_base *base)
{
    lmc_restore_options options;
    lmc_stream stream = LMC_DEFAULTS;
    enum lmc_status status;
    int began = 0;
    memset(&options, 0, sizeof options);
    options.base = base;
    options.begin_file = must_not_begin;
    options.write = must_not_write;
    options.user = &began;
    in->at = 0;
    stream.read = t_read;
    stream.user = in;
    status = lmc_snapshot_restore(&stream, NULL, &options);
    CHECK(!began);
    return status;
}

static void test_wrong_bases(void)
{
    static small s, other;
    lmc_restore_options options;
    lmc_reader *reader;
    lmc_base base;
    lmc_source source = LMC_DEFAULTS;
    lmc_reader_options read_options;
    uint8_t byte;
    int wrong;
    size_t i;
    make_small(&s, 60);
    make_small(&other, 61);
    t_note("no base, another base");
    CHECK_STATUS(restore_nothing(&s.out, NULL), LMC_ERR_BASE_MISSING);
    CHECK_STATUS(restore_nothing(&s.out, &other.base), LMC_ERR_BASE_WRONG);
    memset(&read_options, 0, sizeof read_options);
    read_options.base = &other.base;
    source.read_at = t_read_at;
    source.user = &s.out;
    source.size = s.out.size;
    reader = NULL;
    CHECK_STATUS(lmc_reader_open(&reader, &source, &read_options), LMC_ERR_BASE_WRONG);
    CHECK(reader == NULL);
    t_note("a base with a file less");
    base = s.base;
    base.n_files--;
    CHECK_STATUS(restore_nothing(&s.out, &base), LMC_ERR_BASE_WRONG);
    t_note("a base with a bit less");
    ((lmc_tensor *)(uintptr_t)s.files.files[0].tensors)[1].fingerprint[15] ^= 0x80;
    CHECK_STATUS(restore_nothing(&s.out, &s.base), LMC_ERR_BASE_WRONG);
    ((lmc_tensor *)(uintptr_t)s.files.files[0].tensors)[1].fingerprint[15] ^= 0x80;
    t_note("a delta is listed without its base, and no more");
    reader = open_memory(&s.out, NULL, NULL);
    CHECK(t_info(reader).n_files == s.model.n_files);
    CHECK_STATUS(lmc_reader_read_file(reader, 0, 400, &byte, 1), LMC_ERR_BASE_MISSING);
    /* the file of unknown size has no prediction */
    CHECK_STATUS(lmc_reader_read_file(reader, s.model.n_files - 1, 0, &byte, 1), LMC_OK);
    CHECK(byte == s.model.files[s.model.n_files - 1].data[0]);
    lmc_reader_free(reader);
    t_note("a base that is not what its fingerprints say");
    memset(&options, 0, sizeof options);
    options.base = &s.base;
    options.read_back = t_on_read_back;
    for (i = 0; i < 40; i++) {
        const t_file *f = &s.old_model.files[i % 4];
        uint8_t *const at = (uint8_t *)(uintptr_t)f->data +
                            (f->file.n_tensors ? f->file.tensors[i % f->file.n_tensors].offset : i);
        enum lmc_status status;
        *at ^= 4;
        status = t_restore_model(&s.model, &s.out, &options, NULL, &wrong);
        *at ^= 4;
        /* not all of it is used */
        CHECK(!wrong && (status == LMC_ERR_BASE_WRONG || (status == LMC_OK && i % 4 != 0)));
    }
    t_note("arguments of bases");
    memset(&base, 0, sizeof base);
    base.n_files = 1;
    CHECK_STATUS(lmc_base_identify(&base, s.out.data, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_base_identify(NULL, s.out.data, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(restore_nothing(&s.out, &base), LMC_ERR_ARGUMENT);
    base = s.base;
    base.n_files = 17; /* get_file returns NULL */
    CHECK_STATUS(restore_nothing(&s.out, &base), LMC_ERR_ARGUMENT);
    t_note("arguments of lmc_file_identify");
    {
        lmc_file file = s.model.files[0].file;
        lmc_tensor tensors[MASTERS];
        lmc_stream stream = LMC_DEFAULTS;
        t_memory in;
        memcpy(tensors, file.tensors, sizeof tensors);
        memset(&in, 0, sizeof in);
        in.data = (uint8_t *)(uintptr_t)s.model.files[0].data;
        in.size = s.model.files[0].size - 1;
        stream.read = t_read;
        stream.user = &in;
        /* tensors are not the file's */
        CHECK_STATUS(lmc_file_identify(&file, tensors, &stream, NULL, NULL), LMC_ERR_ARGUMENT);
        file.tensors = tensors;
        CHECK_STATUS(lmc_file_identify(&file, tensors, &stream, NULL, NULL), LMC_ERR_TRUNCATED);
        tensors[1].size--;
        CHECK_STATUS(lmc_file_identify(&file, tensors, &stream, NULL, NULL), LMC_ERR_ARGUMENT);
        tensors[1].size++;
        CHECK_STATUS(lmc_file_identify(NULL, tensors, &stream, NULL, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_file_identify(&file, tensors, NULL, NULL, NULL), LMC_ERR_ARGUMENT);
        file.size = LMC_UNKNOWN_SIZE;
        CHECK_STATUS(lmc_file_identify(&file, tensors, &stream, NULL, NULL), LMC_ERR_ARGUMENT);
    }
    free_small(&s);
    free_small(&other);
}

/* -- what predicts what -- */

static const lmc_file *get_described(void *user, size_t number)
{
    return &((const lmc_file *)user)[number];
}

static enum lmc_status read_described(void *user, size_t number, uint64_t offset, void *dst,
                                      size_t size)
{
    (void)user, (void)number, (void)offset, (void)dst, (void)size;
    return LMC_ERR_READ; /* matching reads nothing */
}

static void test_matches(void)
{
    static const char *const names[2][3] = {{"layer.0.w", "layer.1.w", "v"},
                                            {"module.layer.1.w", "layer.0.w", "v"}};
    static const struct {
        size_t file, tensor;
    } wanted[4] = {{1, 1}, {1, 0}, {SIZE_MAX, 0}, {0, SIZE_MAX}};
    uint64_t shapes[2][3] = {{600, 600, 50}, {600, 600, 49}};
    lmc_tensor tensors[2][3];
    lmc_file files[2][2];
    lmc_base sides[2];
    lmc_match matches[4];
    lmc_match match;
    static t_model old_model, model;
    lmc_writer_options options;
    lmc_reader_options read_options;
    lmc_reader *reader;
    lmc_base base;
    t_memory out;
    loose old_files;
    part p[4];
    size_t i, k;
    memset(tensors, 0, sizeof tensors);
    memset(files, 0, sizeof files);
    memset(sides, 0, sizeof sides);
    for (i = 0; i < 2; i++) {
        for (k = 0; k < 3; k++) {
            lmc_tensor *const t = &tensors[i][k];
            t->name = names[i][k];
            t->dtype = "BF16";
            t->rank = 1;
            t->shape = &shapes[i][k];
            t->size = 2 * shapes[i][k];
            t->offset = k ? tensors[i][k - 1].offset + tensors[i][k - 1].size : 0;
        }
        files[i][1 - i].path = i ? "b" : "a"; /* the base's other file comes first */
        files[i][1 - i].size = tensors[i][2].offset + tensors[i][2].size;
        files[i][1 - i].tensors = tensors[i];
        files[i][1 - i].n_tensors = 3;
        files[i][i].path = "note";
        files[i][i].size = 7;
        sides[i].n_files = 2;
        sides[i].get_file = get_described;
        sides[i].read = read_described;
        sides[i].user = files[i];
    }
    t_note("matches by name, by the end of the name, and of a file");
    CHECK_STATUS(lmc_base_match(&sides[0], &sides[1], matches, NULL), LMC_OK);
    for (i = 0; i < 4; i++) {
        CHECK(matches[i].file_number == wanted[i].file && !matches[i].is_own &&
              matches[i].offset == 0);
        CHECK(matches[i].tensor == (wanted[i].file == 1 ? &tensors[0][wanted[i].tensor] : NULL));
    }
    CHECK_STATUS(lmc_base_match(NULL, &sides[1], matches, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_base_match(&sides[0], NULL, matches, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_base_match(&sides[0], &sides[1], NULL, NULL), LMC_ERR_ARGUMENT);
    t_note("matches of a delta");
    memset(&old_model, 0, sizeof old_model);
    memset(&model, 0, sizeof model);
    memset(&out, 0, sizeof out);
    memset(&options, 0, sizeof options);
    memset(&read_options, 0, sizeof read_options);
    p[0] = make_part("layer.0.w", "BF16", 1, 30000, 0, T_RAMP, 1);
    p[1] = make_part("layer.1.w", "BF16", 1, 30000, 0, T_RAMP, 2);
    p[2] = change(&p[1], T_FEW, 3);
    p[2].name = "x.layer.1.w";
    p[3] = make_part("new", "BF16", 1, 20000, 0, T_RAMP, 4);
    add_shard(&old_model, "a", &p[0], NULL, 2);
    add_shard(&model, "b", &p[2], NULL, 2);
    base = make_loose(&old_files, &old_model, NULL, 0);
    options.base = read_options.base = &base;
    CHECK_STATUS(t_write_model(&model, &out, &options, T_STREAM, NULL), LMC_OK);
    reader = open_memory(&out, &base, NULL);
    CHECK_STATUS(
        lmc_reader_find_match(reader, 0, model.files[0].file.tensors[0].offset + 6, &match),
        LMC_OK);
    CHECK(match.file_number == 0 && match.tensor && strcmp(match.tensor->name, "layer.1.w") == 0 &&
          match.offset == 6 && !match.is_own);
    CHECK_STATUS(lmc_reader_find_match(reader, 0, model.files[0].file.tensors[1].offset, &match),
                 LMC_OK);
    CHECK(match.file_number == SIZE_MAX && !match.tensor && match.offset == 0);
    CHECK_STATUS(lmc_reader_find_match(reader, 0, model.files[0].size, &match), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_reader_find_match(reader, 1, 0, &match), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_reader_find_match(reader, 0, 0, NULL), LMC_ERR_ARGUMENT);
    lmc_reader_free(reader);
    reader = open_memory(&out, NULL, NULL);
    CHECK_STATUS(lmc_reader_find_match(reader, 0, model.files[0].file.tensors[0].offset, &match),
                 LMC_ERR_BASE_MISSING);
    lmc_reader_free(reader);
    free(out.data);
    free_loose(&old_files);
    free_parts(p, 4);
    t_free_model(&old_model);
    t_free_model(&model);
}

/* -- memory: bounded, for snapshots of any size -- */

static void test_memory(void)
{
    static t_model old_model, model;
    size_t peaks[3][2], k;
    for (k = 0; k < 2; k++) { /* larger than all buffers, and twice as large */
        const size_t n = (size_t)(t_quick ? 8 : 16) << (k ? 21 : 20);
        lmc_writer_options write_options;
        lmc_restore_options restore_options;
        lmc_reader_options read_options;
        lmc_base base;
        t_memory out;
        t_heap heap;
        loose files;
        int wrong;
        part p[2];
        p[0] = make_part("t", "BF16", 1, n / 2, 0, T_RAMP, 1);
        p[1] = change(&p[0], T_FEW, 2);
        memset(&old_model, 0, sizeof old_model);
        memset(&model, 0, sizeof model);
        add_shard(&old_model, "f", &p[0], NULL, 1);
        add_shard(&model, "f", &p[1], NULL, 1);
        base = make_loose(&files, &old_model, NULL, 0);
        memset(&heap, 0, sizeof heap);
        memset(&out, 0, sizeof out);
        memset(&write_options, 0, sizeof write_options);
        memset(&restore_options, 0, sizeof restore_options);
        memset(&read_options, 0, sizeof read_options);
        heap.fail_at = -1;
        write_options.allocator = restore_options.allocator = read_options.allocator =
            t_allocator(&heap);
        write_options.base = restore_options.base = read_options.base = &base;
        t_note("memory, %lu bytes", (unsigned long)n);
        CHECK_STATUS(t_write_model(&model, &out, &write_options, T_STREAM, NULL), LMC_OK);
        peaks[0][k] = heap.peak;
        heap.peak = 0;
        CHECK_STATUS(t_restore_model(&model, &out, &restore_options, NULL, &wrong), LMC_OK);
        peaks[1][k] = heap.peak;
        heap.peak = 0;
        CHECK_STATUS(t_read_model(&model, &out, &read_options, &wrong), LMC_OK);
        peaks[2][k] = heap.peak;
        CHECK(heap.live == 0);
        free(out.data);
        free_loose(&files);
        t_free_model(&old_model);
        t_free_model(&model);
        free_parts(p, 2);
    }
    for (k = 0; k < 3; k++) {
        t_note("memory of %s: %lu and %lu bytes",
               k == 0   ? "writer"
               : k == 1 ? "restore"
                        : "reader",
               (unsigned long)peaks[k][0], (unsigned long)peaks[k][1]);
        CHECK(peaks[k][0] > 0 && peaks[k][0] < (size_t)72 << 20);
        CHECK(peaks[k][1] < peaks[k][0] + ((size_t)2 << 20));
    }
}

/* -- hostile files: edited sections and index, with right CRCs -- */

/* Restore and read. restore_status, read_status: the status that is expected; -1: any, but no wrong
 * data; -2: anything (only for a reader, which believes the index about a file's CRC); -3: the
 * status of a block with another prediction. */
static void try_hostile(const small *s, t_memory *in, int restore_status, int read_status)
{
    lmc_restore_options restore_options;
    lmc_reader_options read_options;
    enum lmc_status status;
    t_heap heap;
    int wrong, form;
    memset(&heap, 0, sizeof heap);
    memset(&restore_options, 0, sizeof restore_options);
    memset(&read_options, 0, sizeof read_options);
    heap.fail_at = -1;
    restore_options.allocator = read_options.allocator = t_allocator(&heap);
    restore_options.base = read_options.base = &s->base;
    restore_options.read_back = t_on_read_back;
    status = t_restore_model(&s->model, in, &restore_options, NULL, &wrong);
    CHECK(!wrong);
    if (restore_status >= 0) CHECK_STATUS(status, (enum lmc_status)restore_status);
    if (restore_status == -3) CHECK(status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT);
    CHECK(status == LMC_OK || status >= LMC_ERR_LIMIT);
    for (form = 0; form < 2; form++) {
        status = t_read_model(&s->model, in, &read_options, &wrong);
        CHECK(!wrong || status != LMC_OK || read_status == -2);
        if (read_status >= 0 && form == 0) CHECK_STATUS(status, (enum lmc_status)read_status);
        if (read_status == -3 && form == 0)
            CHECK(status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT);
        CHECK(status == LMC_OK || status == LMC_ERR_NOT_FOUND || status >= LMC_ERR_LIMIT);
        read_options.base = NULL;
    }
    CHECK(heap.live == 0 && heap.bytes == 0 && heap.wrong_size == 0 &&
          heap.peak < (size_t)64 << 20);
}

/* A file that was taken apart, and its runs, for editing. */
typedef struct edited {
    w_file w;
    w_run runs[W_SECTIONS]; /* of the sections that are runs */
} edited;

/* The number of the first run with that prediction. */
static size_t find_run(const edited *e, unsigned prediction)
{
    size_t i;
    for (i = 0; i < e->w.n; i++)
        if (e->w.sections[i].kind[0] == 'R' && e->runs[i].prediction == prediction) return i;
    printf("no such run: %u\n", prediction);
    abort();
}

/* The last run without prediction, which no other run refers to. */
static size_t find_plain_run(const edited *e)
{
    size_t i = e->w.n;
    while (i-- > 0)
        if (e->w.sections[i].kind[0] == 'R' && e->runs[i].prediction == 0) return i;
    abort();
}

/* Makes bodies from runs, and a file from all. */
static void build_edited(edited *e, t_memory *out)
{
    size_t i;
    for (i = 0; i < e->w.n; i++)
        if (e->w.sections[i].kind[0] == 'R') w_put_run(&e->w.sections[i].body, &e->runs[i]);
    w_build(&e->w, out);
}

static uint64_t end_of_file(const small *s, size_t i) { return s->model.files[i].file.size; }

static void test_hostile(void)
{
    static small s;
    static edited e, start;
    uint64_t state = 12, items;
    size_t i, round;
    uint8_t *original;
    w_run *base_run, *own_run, *bf16_run, *plain_run;
    lmc_base as_base;
    lmc_reader *reader;
    t_memory in;
    make_small(&s, 60);
    original = (uint8_t *)t_copy(s.out.data, s.out.size);
    w_parse(&e.w, original);
    for (i = 0; i < e.w.n; i++)
        if (e.w.sections[i].kind[0] == 'R') w_parse_run(&e.runs[i], &e.w.sections[i].body);
    start = e;
    memset(&in, 0, sizeof in);
    base_run = &e.runs[find_run(&e, 1)];
    own_run = &e.runs[find_run(&e, 3)];
    bf16_run = &e.runs[find_run(&e, 4)];
    plain_run = &e.runs[find_plain_run(&e)];
    for (items = 0, i = 0; i < s.old_model.n_files; i++)
        items += s.old_model.files[i].file.n_tensors ? s.old_model.files[i].file.n_tensors : 1;
    build_edited(&e, &in);
    t_note("hostile: nothing is edited");
    CHECK(in.size == s.out.size && memcmp(in.data, original, in.size) == 0);
    try_hostile(&s, &in, LMC_OK, LMC_OK);
#define TRY(change, restore_status, read_status)                                                   \
    (t_note("hostile: %s", #change), memcpy(e.runs, start.runs, sizeof e.runs),                    \
     memcpy(e.w.header, start.w.header, sizeof e.w.header), change, build_edited(&e, &in),         \
     try_hostile(&s, &in, restore_status, read_status))
#define BAD(change) TRY(change, LMC_ERR_CORRUPT, LMC_ERR_CORRUPT)
#define OTHER(change) TRY(change, -3, -3)
#define UNKNOWN(change) TRY(change, LMC_ERR_UNSUPPORTED, LMC_ERR_UNSUPPORTED)
#define FIRST(run) (run)->segments[0]
    /* the header */
    BAD(memset(e.w.header + 32, 0, 16));
    BAD(e.w.header[16] &= 0xFE); /* Base */
    /* runs with a base that does not exist */
    BAD((memset(e.w.header + 32, 0, 16), e.w.header[16] &= 0xFE));
    TRY(e.w.header[40] ^= 1, LMC_ERR_BASE_WRONG, LMC_ERR_BASE_WRONG);
    BAD(e.w.header[16] &= 0xFD); /* Own */
    /* items of the base */
    BAD(FIRST(base_run).base = items + 1);
    BAD(FIRST(base_run).base = UINT32_MAX);
    BAD(FIRST(base_run).base = (uint64_t)1 << 32);
    BAD(FIRST(base_run).base = ((uint64_t)1 << 32) + FIRST(base_run).base);
    BAD(FIRST(base_run).base = (uint64_t)-5);
    BAD(FIRST(base_run).offset = 1); /* all of the item is used: no byte more */
    BAD(FIRST(base_run).offset = UINT64_MAX);
    BAD(FIRST(base_run).offset = (uint64_t)INT64_MAX);
    TRY(FIRST(base_run).base = 0, LMC_ERR_BASE_WRONG, LMC_ERR_BASE_WRONG); /* zeros */
    BAD(base_run->prediction = 0);  /* blocks with one in a run without */
    BAD(plain_run->prediction = 1); /* no segments */
    /* all zeros, which no block uses: unusual, but right */
    TRY((plain_run->prediction = 3, plain_run->n = 1, FIRST(plain_run).size = plain_run->size),
        LMC_OK, LMC_OK);
    UNKNOWN(base_run->prediction = 6);
    UNKNOWN(plain_run->prediction = 255);
    /* the header text of a file that has none, or a shorter one */
    BAD(base_run->prediction = 2);
    /* runs that are longer or shorter than their segments */
    BAD(plain_run->size++);
    BAD(base_run->size++);
    BAD(base_run->size--);
    BAD(base_run->size = UINT64_MAX);
    BAD(base_run->n--);
    BAD(base_run->n++); /* of size 0 at the end */
    BAD(FIRST(base_run).size = 0);
    BAD(FIRST(base_run).size = base_run->size + 1);
    BAD(FIRST(base_run).size = UINT64_MAX);
    UNKNOWN(plain_run->block_size = 0);
    UNKNOWN(plain_run->block_size = 1 << 13);
    UNKNOWN(plain_run->block_size = (1 << 14) + 1);
    UNKNOWN(plain_run->block_size = 1 << 23);
    UNKNOWN(plain_run->block_size = UINT64_MAX);
    /* its own bytes */
    BAD(base_run->prediction = 3); /* item numbers are not file numbers, and offsets differ */
    BAD(FIRST(own_run).base = s.model.n_files + 1);
    BAD(FIRST(own_run).base = UINT32_MAX);
    BAD((FIRST(own_run).base += 1)); /* this file, later bytes, or itself */
    BAD((FIRST(own_run).base += 2)); /* a later file */
    BAD(FIRST(own_run).offset = end_of_file(&s, 0));
    BAD(FIRST(own_run).offset = end_of_file(&s, 0) - own_run->size + 1);
    BAD(FIRST(own_run).offset = UINT64_MAX);
    BAD(FIRST(own_run).offset = 0 - own_run->size);
    /* other bytes than it was made from */
    OTHER(FIRST(own_run).offset -= 4);
    OTHER(FIRST(bf16_run).offset = end_of_file(&s, 0) - 2 * bf16_run->size + 1);
    OTHER(bf16_run->prediction = 3);
    OTHER(bf16_run->prediction = 5);
    BAD((own_run->prediction = 4)); /* twice as many bytes: missing, or others */
    /* segments of odd size */
    CHECK(bf16_run->n >= 2);
    BAD((FIRST(bf16_run).size = 3));
    /* random ones: in the bodies of runs, and anywhere in the index */
    for (round = 0; round < (t_quick ? 150u : 2500u); round++) {
        size_t edits = 1 + t_below(&state, 3);
        size_t i_run = t_below(&state, e.w.n);
        t_memory *const body = &e.w.sections[i_run].body;
        memcpy(e.runs, start.runs, sizeof e.runs);
        memcpy(e.w.header, start.w.header, sizeof e.w.header);
        build_edited(&e, &in); /* with unchanged bodies */
        if (e.w.sections[i_run].kind[0] != 'R') continue;
        t_note("hostile: round %lu", (unsigned long)round);
        while (edits-- > 0) {
            uint8_t *const at = body->data + t_below(&state, body->size);
            if (t_below(&state, 3) == 0) *at = (uint8_t)t_random(&state);
            else *at = (uint8_t)(*at + t_below(&state, 9) - 4);
        }
        w_build(&e.w, &in);
        if (round % 4 == 3) { /* the index only */
            const size_t index_at = (size_t)get(in.data + in.size - 40, 8),
                         size = in.size - 40 - index_at - 20;
            in.data[index_at + 20 + t_below(&state, size)] ^= (uint8_t)(1u << t_below(&state, 8));
            put(in.data + index_at + 16, t_crc32c(0, in.data + index_at + 20, size), 4);
        }
        try_hostile(&s, &in, -1, round % 4 == 3 ? -2 : -1);
    }
    in.size = 0;
    w_put(&in, original, s.out.size);
    /* damage without repair: every byte of the delta's sections, and of a base that is an LMC
     * file */
    for (i = 0; i < in.size; i += t_quick ? 191 : 13) {
        t_note("a delta with byte %lu of %lu damaged", (unsigned long)i, (unsigned long)in.size);
        memcpy(in.data, original, in.size);
        in.data[i] ^= (uint8_t)(1u << i % 8);
        try_hostile(&s, &in, -1, -1);
    }
    memcpy(in.data, original, in.size);
    t_note("the base of a base");
    reader = open_memory(&s.out, &s.base, NULL);
    as_base = lmc_reader_base(reader);
    CHECK_STATUS(restore_nothing(&in, &as_base), LMC_ERR_BASE_WRONG); /* itself */
    lmc_reader_free(reader);
    free(original);
    free(in.data);
    w_free(&e.w);
    free_small(&s);
#undef TRY
#undef BAD
#undef OTHER
#undef UNKNOWN
#undef FIRST
}

/* ==== what has changed ==== */

/* Elements by which two arrays differ, compared one by one. */
static size_t list_by_hand(uint32_t *indices, uint8_t *values, const uint8_t *src,
                           const uint8_t *base, size_t n, unsigned width, uint32_t first)
{
    size_t i, n_changed = 0;
    for (i = 0; i < n; i++) {
        if (memcmp(src + i * width, base + i * width, width) == 0) continue;
        indices[n_changed] = (uint32_t)(first + i);
        memcpy(values + n_changed++ * width, src + i * width, width);
    }
    return n_changed;
}

/* In parts of part elements, with room for cap: each list is full when it is taken, except the
 * last. Nothing is written behind the entries. */
static void check_changes(const uint8_t *src, const uint8_t *base, size_t n, unsigned width,
                          uint32_t first, size_t part, size_t cap)
{
    uint32_t *const indices = (uint32_t *)malloc(4 * n + 4), *room;
    uint8_t *const values = (uint8_t *)malloc(width * n + 1);
    const size_t n_changed = list_by_hand(indices, values, src, base, n, width, first);
    size_t i = 0, taken = 0, n_compared;
    lmc_changes changes;
    changes.cap = cap;
    changes.n = 0;
    room = (uint32_t *)t_tail(&g_dst, 4 * cap);
    changes.indices = room;
    changes.values = t_tail(&g_ws, width * cap);
    for (;;) {
        const size_t n_part = n - i < part ? n - i : part;
        n_compared = 99;
        CHECK_STATUS(lmc_changes_add(&changes, src + i * width, base + i * width, n_part, width,
                                     (uint32_t)(first + i), &n_compared),
                     LMC_OK);
        CHECK(n_compared <= n_part && changes.n <= cap &&
              (n_compared == n_part || changes.n == cap));
        i += n_compared;
        if (n_compared == n_part && i < n) continue;
        CHECK(changes.n <= n_changed - taken);
        CHECK(memcmp(room, indices + taken, 4 * changes.n) == 0);
        CHECK(memcmp(changes.values, values + taken * width, width * changes.n) == 0);
        taken += changes.n;
        if (i == n && n_compared == n_part) break;
        changes.n = 0;
    }
    CHECK(taken == n_changed);
    free(indices);
    free(values);
}

static void refuse_changes(lmc_changes changes, const void *src, const void *base, size_t n,
                           unsigned width, uint32_t first)
{
    size_t n_compared = 77;
    CHECK_STATUS(lmc_changes_add(&changes, src, base, n, width, first, &n_compared),
                 LMC_ERR_ARGUMENT);
    CHECK(n_compared == 77);
}

static void test_changes(void)
{
    /* around the steps of 32 bytes and the strips of 8192 */
    static const size_t sizes[] = {0,    1,    2,    3,    7,    8,    15,   16,   17,   31,
                                   32,   33,   63,   64,   65,   255,  1023, 1024, 1025, 2047,
                                   2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 8225, 20011};
    static const unsigned shares[] = {0, 1, 10, 300, 999, 1000}; /* of 1000 elements */
    uint64_t state = 11;
    size_t s, i, n_compared;
    unsigned width, w, share;
    uint32_t index = 5;
    uint16_t value = 0;
    lmc_changes changes;
    for (width = 1; width <= 8; width *= 2)
        for (s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (share = 0; share < 6; share++) {
                const size_t n = sizes[s], cap = 1 + t_below(&state, n + 1);
                uint8_t *const src = t_tail(&g_src, n * width), *const base =
                                                                    t_tail(&g_base, n * width);
                for (i = 0; i < n * width; i++) base[i] = src[i] = (uint8_t)t_random(&state);
                for (i = 0; i < n; i++) /* one byte of each, any of them */
                    if (t_below(&state, 1000) < shares[share])
                        src[i * width + t_below(&state, width)] ^=
                            (uint8_t)(1u << t_below(&state, 8));
                check_changes(src, base, n, width, 0, n + 1, n + 1);
                check_changes(src, base, n, width, 7, n + 1, n ? n : 1);
                check_changes(src, base, n, width, UINT32_MAX - (uint32_t)n + 1, 1 + n / 3, cap);
                if (n < 300) check_changes(src, base, n, width, 1, 5, 1);
            }
    /* By bits: +0 to -0, and one NaN to another; no value of an element means "unchanged". */
    {
        static const uint16_t before[] = {0x0000, 0x7FC0, 0x7FC0, 0x3F80, 0x8000},
                              now[] = {0x8000, 0x7FC0, 0x7FC1, 0x3F80, 0x8000};
        uint32_t indices[5];
        uint16_t values[5];
        changes.indices = indices;
        changes.values = values;
        changes.cap = 5;
        changes.n = 0;
        CHECK_STATUS(lmc_changes_add(&changes, now, before, 5, 2, 0, &n_compared), LMC_OK);
        CHECK(n_compared == 5 && changes.n == 2 && indices[0] == 0 && indices[1] == 2 &&
              values[0] == 0x8000 && values[1] == 0x7FC1);
    }
    /* A full list does not change: equal elements are passed, but no others. */
    changes.indices = &index;
    changes.values = &value;
    changes.cap = changes.n = 1;
    {
        uint8_t *const src = t_tail(&g_src, 20000), *const base = t_tail(&g_base, 20000);
        memset(src, 3, 20000);
        memset(base, 3, 20000);
        CHECK_STATUS(lmc_changes_add(&changes, src, base, 10000, 2, 0, &n_compared), LMC_OK);
        CHECK(n_compared == 10000 && changes.n == 1);
        src[19999] = 4;
        CHECK_STATUS(lmc_changes_add(&changes, src, base, 10000, 2, 0, &n_compared), LMC_OK);
        CHECK(n_compared < 10000 && changes.n == 1 && index == 5 && value == 0);
        changes.n = 0;
        CHECK_STATUS(lmc_changes_add(&changes, src + 2 * n_compared, base + 2 * n_compared,
                                     10000 - n_compared, 2, (uint32_t)n_compared, &n_compared),
                     LMC_OK);
        CHECK(changes.n == 1 && index == 9999);
        /* the largest number, and one more */
        changes.n = 0;
        CHECK_STATUS(lmc_changes_add(&changes, src, base, 10000, 2, UINT32_MAX - 9999, &n_compared),
                     LMC_OK);
        CHECK(n_compared == 10000 && changes.n == 1 && index == UINT32_MAX);
        changes.n = 0;
        refuse_changes(changes, src, base, 10000, 2, UINT32_MAX - 9998);
        for (w = 0; w < 20; w++)
            if (w != 1 && w != 2 && w != 4 && w != 8) refuse_changes(changes, src, base, 100, w, 0);
        refuse_changes(changes, src, base, SIZE_MAX / 8 + 1, 1, 0);
        refuse_changes(changes, NULL, base, 1, 2, 0);
        refuse_changes(changes, src, NULL, 1, 2, 0);
        changes.n = 2;
        refuse_changes(changes, src, base, 100, 2, 0);
        changes.n = changes.cap = 0;
        refuse_changes(changes, src, base, 100, 2, 0);
        changes.cap = 1;
        changes.indices = NULL;
        refuse_changes(changes, src, base, 100, 2, 0);
        changes.indices = &index;
        changes.values = NULL;
        refuse_changes(changes, src, base, 100, 2, 0);
        changes.values = &value;
        CHECK_STATUS(lmc_changes_add(NULL, src, base, 1, 2, 0, &n_compared), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_changes_add(&changes, src, base, 1, 2, 0, NULL), LMC_ERR_ARGUMENT);
        CHECK_STATUS(lmc_changes_add(&changes, NULL, NULL, 0, 2, 0, &n_compared), LMC_OK);
        CHECK(n_compared == 0 && changes.n == 0);
    }
}

int main(int argc, char **argv)
{
    lmc_tensor_options largest = options_of(LMC_U8, 22, NULL, 0);
    unsigned workers = 5;
    lmc_parallel parallel = t_parallel(&workers);
    t_begin(argc, argv);
    largest.parallel = &parallel;
    g_src = t_new_guard((size_t)8 << 20);
    g_base = t_new_guard((size_t)8 << 20);
    g_enc = t_new_guard(((size_t)8 << 20) + 4096);
    g_dst = t_new_guard(((size_t)8 << 20) + 4096);
    g_ws = t_new_guard(lmc_tensor_workspace_size(&largest));
    test_padding();
    test_changes();
    test_damage_in_place();
    test_missing_base();
    test_two_classes();
    test_built();
    /* archive tries the default and max, too */
    for (g_level = LMC_LEVEL_FAST;;
         g_level = g_level == LMC_LEVEL_FAST ? LMC_LEVEL_DEFAULT : LMC_LEVEL_ARCHIVE) {
        test_pairs();
        test_gains();
        test_luck();
        test_round_trips();
        test_tensors();
        if (g_level == LMC_LEVEL_ARCHIVE || t_kernels_only) break;
    }
    g_level = LMC_LEVEL_DEFAULT;
    test_levels();
    if (t_kernels_only) return t_end();
    test_conversions();
    test_snapshots();
    test_chain();
    test_shared_memory();
    test_names_in_front();
    test_as_base();
    test_long_chain();
    test_twins();
    test_wrong_bases();
    test_matches();
    test_faults();
    test_memory();
    test_hostile();
    CHECK(g_predicted > 100);
    return t_end();
}
