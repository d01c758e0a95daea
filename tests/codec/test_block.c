/* Layer 1: every dtype, size and distribution is restored; buffers have exact sizes; wrong calls
 * are refused. */
#include "t.h"
#include "t_hash.h"

static t_guard g_src, g_enc, g_dst, g_ws;
static enum lmc_level g_level; /* of all encoding */

/* Encodes size bytes at src, checks all that the header of lmc.h promises, decodes, and returns the
 * encoded size. */
static size_t round_trip(const uint8_t *src, size_t size, enum lmc_dtype dtype, uint32_t number)
{
    const unsigned width = lmc_dtype_width(dtype);
    size_t ws_size = lmc_block_workspace_size(size / width, width), bound = lmc_block_bound(size);
    size_t enc_size = 0, dst_size = 0;
    uint8_t *ws = t_tail(&g_ws, ws_size), *enc = t_tail(&g_enc, bound), *dst;
    uint32_t crc = t_crc32c(0, src, size);
    lmc_block_info info;

    CHECK(bound == size + LMC_BLOCK_HEADER_SIZE);
    memset(ws, 0xA5, ws_size);
    if (!CHECK_STATUS(t_block_encode(enc, bound, &enc_size, src, size, NULL, dtype, g_level, number,
                                     ws, ws_size),
                      LMC_OK))
        return 0;
    CHECK(enc_size > LMC_BLOCK_HEADER_SIZE && enc_size <= bound);
    CHECK(t_crc32c(0, src, size) == crc); /* the source is untouched */

    memmove(t_tail(&g_enc, enc_size), enc, enc_size); /* now it ends at the guard */
    enc = t_tail(&g_enc, enc_size);
    memset(&info, 0, sizeof info);
    CHECK_STATUS(lmc_block_parse(enc, enc_size, number, &info), LMC_OK);
    CHECK(info.size == size && info.encoded_size == enc_size && info.crc == crc);
    CHECK((size_t)info.n * info.width == size);
    CHECK(dtype == LMC_AUTO || info.width == lmc_dtype_width(dtype));
    CHECK(!info.is_stored ||
          (enc_size == bound && memcmp(enc + LMC_BLOCK_HEADER_SIZE, src, size) == 0));

    dst = t_tail(&g_dst, size);
    memset(dst, 0x5A, size);
    memset(ws, 0x5A, ws_size);
    CHECK_STATUS(t_block_decode(dst, size, &dst_size, enc, enc_size, NULL, 0, number, ws, ws_size),
                 LMC_OK);
    CHECK(dst_size == size && memcmp(dst, src, size) == 0);
    return enc_size;
}

/* As above; then changes one thing at a time, which must be refused. Leaves the encoded block at
 * the end of g_enc. */
static void edges(const uint8_t *src, size_t size, enum lmc_dtype dtype, uint32_t number)
{
    const unsigned width = lmc_dtype_width(dtype);
    size_t ws_size = lmc_block_workspace_size(size / width, width), cap, got = 12345, step, n;
    size_t enc_size = round_trip(src, size, dtype, number);
    uint8_t *enc = t_tail(&g_enc, enc_size), *ws = t_tail(&g_ws, ws_size),
            *dst = t_tail(&g_dst, size), *copy;
    uint32_t other = number + 1;
    lmc_block_info info;
    if (enc_size == 0) return; /* has been counted */
    memset(&info, 0, sizeof info);
    copy = (uint8_t *)t_copy(enc, enc_size);

    /* the workspace, one byte short */
    CHECK_STATUS(lmc_block_parse(enc, enc_size, number, &info), LMC_OK);
    n = lmc_block_workspace_size(info.n, info.width) - 1; /* AUTO may have found wider ones */
    CHECK_STATUS(
        t_block_decode(dst, size, &got, enc, enc_size, NULL, 0, number, t_tail(&g_ws, n), n),
        LMC_ERR_WORKSPACE);
    CHECK_STATUS(t_block_encode(g_dst.data, g_dst.cap, &got, src, size, NULL, dtype, g_level,
                                number, t_tail(&g_ws, ws_size - 1), ws_size - 1),
                 LMC_ERR_WORKSPACE);
    /* the output */
    CHECK_STATUS(t_block_decode(t_tail(&g_dst, size - 1), size - 1, &got, enc, enc_size, NULL, 0,
                                number, ws, ws_size),
                 LMC_ERR_DST_TOO_SMALL);
    step = t_brief ? enc_size / 13 + 1 : enc_size > 700 ? enc_size / 97 : 1;
    for (cap = 0; cap < enc_size; cap += step)
        CHECK_STATUS(t_block_encode(t_tail(&g_dst, cap), cap, &got, src, size, NULL, dtype, g_level,
                                    number, ws, ws_size),
                     LMC_ERR_DST_TOO_SMALL);
    cap = enc_size - 1;
    CHECK_STATUS(t_block_encode(t_tail(&g_dst, cap), cap, &got, src, size, NULL, dtype, g_level,
                                number, ws, ws_size),
                 LMC_ERR_DST_TOO_SMALL);
    CHECK(got == 12345); /* output parameters are set only on success */
    CHECK_STATUS(t_block_encode(t_tail(&g_dst, enc_size), enc_size, &got, src, size, NULL, dtype,
                                g_level, number, ws, ws_size),
                 LMC_OK);
    /* the bytes are the same as with more room */
    CHECK(got == enc_size && memcmp(t_tail(&g_dst, enc_size), copy, enc_size) == 0);

    /* the number */
    CHECK_STATUS(t_block_decode(dst, size, &got, enc, enc_size, NULL, 0, other, ws, ws_size),
                 LMC_ERR_CHECKSUM);
    CHECK_STATUS(lmc_block_parse(enc, enc_size, other, &info), LMC_ERR_CHECKSUM);
    other = number ^ 0x80000000u;
    CHECK_STATUS(t_block_decode(dst, size, &got, enc, enc_size, NULL, 0, other, ws, ws_size),
                 LMC_ERR_CHECKSUM);

    /* the input, one byte short or long */
    memmove(enc + 1, enc, enc_size - 1);
    CHECK_STATUS(
        t_block_decode(dst, size, &got, enc + 1, enc_size - 1, NULL, 0, number, ws, ws_size),
        LMC_ERR_TRUNCATED);
    memcpy(enc - 1, copy, enc_size);
    enc[enc_size - 1] = 0;
    CHECK_STATUS(
        t_block_decode(dst, size, &got, enc - 1, enc_size + 1, NULL, 0, number, ws, ws_size),
        LMC_ERR_CORRUPT);
    memcpy(t_tail(&g_enc, LMC_BLOCK_HEADER_SIZE), copy, LMC_BLOCK_HEADER_SIZE);
    CHECK_STATUS(lmc_block_parse(t_tail(&g_enc, LMC_BLOCK_HEADER_SIZE), LMC_BLOCK_HEADER_SIZE,
                                 number, &info),
                 LMC_OK);
    CHECK(info.encoded_size == enc_size);
    memcpy(t_tail(&g_enc, 19), copy, 19);
    CHECK_STATUS(lmc_block_parse(t_tail(&g_enc, 19), 19, number, &info), LMC_ERR_TRUNCATED);
    free(copy);
}

static void test_round_trips(void)
{
    static const size_t counts[] = {1,    2,    3,    4,    5,    7,    8,     9,         15,
                                    31,   63,   64,   65,   127,  255,  256,   257,       1000,
                                    2047, 2048, 2049, 4095, 4096, 4097, 16384, 65536 + 3, 1 << 19};
    static const uint32_t numbers[] = {0, 1, UINT32_MAX, 0x01020304};
    int dtype, kind;
    size_t i;
    for (dtype = 0; dtype < LMC__DTYPE_COUNT; dtype++)
        for (kind = 0; kind < T_KINDS; kind++)
            for (i = 0; i < sizeof counts / sizeof *counts; i++) {
                size_t size = counts[i] * lmc_dtype_width((enum lmc_dtype)dtype);
                uint8_t *src = t_tail(&g_src, size);
                uint32_t number = numbers[(i + (size_t)kind) % 4];
                /* large ones only once for each width and kind of number */
                int common = dtype == LMC_AUTO || dtype == LMC_U8 || dtype == LMC_F8_E4M3 ||
                             dtype == LMC_I16 || dtype == LMC_BF16 || dtype == LMC_F16 ||
                             dtype == LMC_I32 || dtype == LMC_F32 || dtype == LMC_F64;
                if (counts[i] > 4097 && !common) continue;
                if (counts[i] > 65539 && (t_quick || kind > T_SKEWED)) continue;
                if (counts[i] > 257 && t_quick && !common) continue;
                if (t_brief && (i + (size_t)kind + 2 * (size_t)dtype) % (t_kernels_only ? 6 : 3))
                    continue;
                t_note("%s %s, %lu elements", lmc_dtype_name((enum lmc_dtype)dtype),
                       t_kind_names[kind], (unsigned long)counts[i]);
                t_fill(src, size, (enum t_kind)kind, (enum lmc_dtype)dtype, counts[i]);
                if (counts[i] < (t_quick ? 300u : 3000u))
                    edges(src, size, (enum lmc_dtype)dtype, number);
                else round_trip(src, size, (enum lmc_dtype)dtype, number);
            }
}

/* Every bit pattern of two bytes, forwards and shuffled by a multiplication; AUTO at every small
 * size. */
static void test_patterns(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F16, LMC_I16, LMC_U16};
    size_t i, k, size;
    uint8_t *src;
    for (k = 0; k < 8; k++) {
        src = t_tail(&g_src, 131072);
        t_note("patterns %lu", (unsigned long)k);
        for (i = 0; i < 65536; i++) {
            size_t v = k < 4 ? i : i * 40503;
            src[2 * i] = (uint8_t)v;
            src[2 * i + 1] = (uint8_t)(v >> 8);
        }
        round_trip(src, 131072, dtypes[k % 4], 0);
    }
    for (size = 1; size < (t_quick ? 80u : 600u); size++) {
        src = t_tail(&g_src, size);
        t_note("auto, %lu bytes", (unsigned long)size);
        t_fill(src, size, T_GAUSS, LMC_F32, size);
        round_trip(src, size, LMC_AUTO, 0);
        t_fill(src, size, T_TEXT, LMC_U8, size);
        round_trip(src, size, LMC_AUTO, 0);
    }
}

/* Trees of every depth and shape: few symbols up to all 256, with geometric counts that reach
 * length 15 and beyond. */
static void test_trees(void)
{
    uint64_t state = 99;
    int round, rounds = t_quick ? 60 : 1500;
    for (round = 0; round < rounds; round++) {
        size_t size = 1 + t_below(&state, round % 10 == 0 ? 100000 : 5000), i;
        unsigned symbols = 1 + (unsigned)t_below(&state, 256),
                 first = (unsigned)t_below(&state, 256), shift = (unsigned)t_below(&state, 8);
        uint8_t *src = t_tail(&g_src, size);
        enum lmc_dtype dtype = round % 2 ? LMC_U8 : LMC_F8_E5M2;
        t_note("trees %d", round);
        for (i = 0; i < size; i++) {
            uint64_t r = t_random(&state), symbol = 0;
            /* halving or shallower: shift 0 is uniform, 7 nearly constant */
            if (shift == 0) symbol = r;
            else
                while (symbol < 255 && ((r = t_random(&state)) & 7) > shift) symbol++;
            src[i] = (uint8_t)((symbol % symbols + first) * 167);
        }
        round_trip(src, size, dtype, 0);
    }
    /* Fibonacci counts: the deepest Huffman trees there are */
    for (round = 0; round < 2; round++) {
        size_t a = 1, b = 1, next, i = 0;
        unsigned symbol = 7;
        uint8_t *src = g_src.data;
        while (i + a <= LMC_MAX_BLOCK_SIZE) {
            memset(src + i, (int)symbol, a);
            i += a;
            symbol += 5;
            next = a + b;
            a = b;
            b = next;
        }
        t_note("Fibonacci, %u symbols", (symbol - 7) / 5);
        if (round == 1)
            for (next = i - 1; next > 0; next--) { /* shuffle */
                size_t other = t_below(&state, next + 1);
                uint8_t byte = src[next];
                src[next] = src[other];
                src[other] = byte;
            }
        round_trip(src, i, LMC_U8, 0);
    }
}

/* Sizes against the entropy of the planes, as a share of the input: floats of two bytes and more
 * within 0.6 %; others, whose whole elements are in the tree, within 1.5 %. Constants and zeros
 * take almost nothing. */
static void test_sizes(void)
{
    static const struct {
        enum lmc_dtype dtype;
        enum t_kind kind;
    } cases[] = {{LMC_BF16, T_GAUSS}, {LMC_F16, T_GAUSS},     {LMC_F32, T_GAUSS},
                 {LMC_F64, T_GAUSS},  {LMC_F8_E4M3, T_GAUSS}, {LMC_F8_E5M2, T_GAUSS},
                 {LMC_I8, T_GAUSS},   {LMC_BF16, T_SPARSE},   {LMC_BF16, T_SKEWED},
                 {LMC_F32, T_SPARSE}, {LMC_U8, T_TEXT},       {LMC_U8, T_RANDOM}};
    size_t i, n = 65536;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = n * lmc_dtype_width(cases[i].dtype), got;
        uint8_t *src = t_tail(&g_src, size);
        const double most = g_level == LMC_LEVEL_FAST || size == n ? 0.02 : 0.006;
        double entropy;
        t_fill(src, size, cases[i].kind, cases[i].dtype, 5);
        entropy = t_entropy(src, size, cases[i].dtype, size);
        got = round_trip(src, size, cases[i].dtype, 0);
        t_note("%s %s: %lu bytes of %lu, entropy %.0f", lmc_dtype_name(cases[i].dtype),
               t_kind_names[cases[i].kind], (unsigned long)got, (unsigned long)size, entropy);
        CHECK(got > LMC_BLOCK_HEADER_SIZE && (double)got <= entropy + most * (double)size);
    }
    for (i = 0; i < LMC__DTYPE_COUNT; i++) {
        enum lmc_dtype dtype = (enum lmc_dtype)i;
        size_t size = n * lmc_dtype_width(dtype), got;
        uint8_t *src = t_tail(&g_src, size);
        t_note("%s constant", lmc_dtype_name(dtype));
        t_fill(src, size, T_ZERO, dtype, 0);
        CHECK((got = round_trip(src, size, dtype, 0)) > 0 && got <= LMC_BLOCK_HEADER_SIZE + 2 * 8);
        t_fill(src, size, T_CONSTANT, dtype, 0);
        CHECK((got = round_trip(src, size, dtype, 0)) > 0 && got <= LMC_BLOCK_HEADER_SIZE + 2 * 8);
    }
    /* as many equal bytes as possible, which overflow counts of 16 bits */
    t_note("the largest constant");
    memset(g_src.data, 7, LMC_MAX_BLOCK_SIZE);
    CHECK(round_trip(g_src.data, LMC_MAX_BLOCK_SIZE, LMC_U8, 0) == LMC_BLOCK_HEADER_SIZE + 2);
    /* all but one byte, which no sample has */
    t_note("one byte among others");
    memset(g_src.data, 7, n);
    g_src.data[t_sample_place(0, n) + T_SAMPLE_RUN] = 9;
    CHECK(round_trip(g_src.data, n, LMC_U8, 0) < 200);
}

/* Weights by default, at most so many thousandths above their order-0 entropy. Elements of one byte
 * are smaller than `zstd -1` (1.5.4) makes them. If many symbols are equally rare, as in skewed and
 * sparse elements, it must not be that half of them get a code. */
static void test_weights(void)
{
    static const struct {
        enum lmc_dtype dtype;
        enum t_kind kind;
        unsigned log2_n, thousandths;
        size_t zstd; /* 0: not compared */
    } cases[] = {{LMC_F8_E4M3, T_GAUSS, 18, 8, 212573}, {LMC_F8_E5M2, T_GAUSS, 18, 10, 181726},
                 {LMC_I8, T_GAUSS, 18, 8, 219916},      {LMC_F8_E4M3, T_GAUSS, 16, 12, 0},
                 {LMC_BF16, T_SKEWED, 16, 50, 0},       {LMC_F32, T_SPARSE, 16, 80, 0}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = lmc_dtype_width(cases[i].dtype) << cases[i].log2_n;
        uint8_t *const src = t_tail(&g_src, size);
        double entropy;
        size_t got;
        t_fill(src, size, cases[i].kind, cases[i].dtype, 1);
        entropy = t_entropy(src, size, cases[i].dtype, size);
        got = round_trip(src, size, cases[i].dtype, 0);
        t_note("weights: %s %s: %lu bytes of %lu, entropy %.0f", lmc_dtype_name(cases[i].dtype),
               t_kind_names[cases[i].kind], (unsigned long)got, (unsigned long)size, entropy);
        CHECK(got > 0 && (double)got <= entropy * (1 + cases[i].thousandths / 1000.0));
        CHECK(cases[i].zstd == 0 || got < cases[i].zstd);
    }
}

/* AUTO must find the width: the size is within 1 % of the input of that with the dtype. */
static void test_auto(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16,    LMC_F16, LMC_F32, LMC_F64,
                                            LMC_F8_E4M3, LMC_I8,  LMC_I32};
    size_t i, size = 1 << 17;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint8_t *src = t_tail(&g_src, size);
        size_t typed, guessed;
        t_fill(src, size, T_GAUSS, dtypes[i], 8);
        typed = round_trip(src, size, dtypes[i], 0);
        guessed = round_trip(src, size, LMC_AUTO, 0);
        t_note("%s: typed %lu, guessed %lu of %lu", lmc_dtype_name(dtypes[i]), (unsigned long)typed,
               (unsigned long)guessed, (unsigned long)size);
        CHECK(typed > 0 && (double)guessed <= (double)typed + 0.01 * (double)size);
    }
}

/* The largest blocks of each width; one element more is refused. */
static void test_largest(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_U8, LMC_BF16, LMC_I16, LMC_F32, LMC_F64, LMC_AUTO};
    const size_t size = LMC_MAX_BLOCK_SIZE;
    size_t i, got = 0;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const unsigned width = lmc_dtype_width(dtypes[i]);
        uint8_t *const src = t_tail(&g_src, size + width);
        t_note("largest, %s", lmc_dtype_name(dtypes[i]));
        t_fill(src, size + width, T_GAUSS, dtypes[i], i);
        CHECK(round_trip(src, size, dtypes[i], 5) > 0);
        CHECK_STATUS(t_block_encode(g_enc.data, g_enc.cap, &got, src, size + width, NULL, dtypes[i],
                                    g_level, 0, g_ws.data, g_ws.cap),
                     LMC_ERR_ARGUMENT);
    }
}

/* From the default on, a higher level is never larger; and, with_tiers, each level gives the same
 * bytes on all tiers. */
static void check_levels(const uint8_t *src, size_t size, enum lmc_dtype dtype, int with_tiers)
{
    size_t sizes[4], k;
    for (k = 0; k < 4; k++) {
        const enum lmc_tier best = lmc_tier_current();
        uint32_t seen;
        int tier;
        g_level = (enum lmc_level)((int)k + (int)LMC_LEVEL_FAST);
        sizes[k] = round_trip(src, size, dtype, 0);
        seen = t_crc32c(0, t_tail(&g_enc, sizes[k]), sizes[k]);
        for (tier = 0; lmc_tier_name((enum lmc_tier)tier) && with_tiers; tier++) {
            if (!lmc_tier_is_available((enum lmc_tier)tier)) continue;
            lmc_tier_limit((enum lmc_tier)tier);
            CHECK(round_trip(src, size, dtype, 0) == sizes[k]);
            CHECK(t_crc32c(0, t_tail(&g_enc, sizes[k]), sizes[k]) == seen);
        }
        lmc_tier_limit(best);
    }
    /* a ramp; masks with few ones, which `fast` does not nest */
    CHECK(sizes[0] <= sizes[1] + size / 9 + 40);
    CHECK(sizes[2] <= sizes[1] && sizes[3] <= sizes[2]);
    g_level = LMC_LEVEL_DEFAULT;
}

static void test_levels(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F16, LMC_F32, LMC_F8_E4M3,
                                            LMC_I8,   LMC_F64, LMC_U8,  LMC_AUTO};
    static const size_t counts[] = {700, 20000};
    size_t i, j;
    int kind;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (kind = 0; kind < T_KINDS; kind++)
            for (j = t_quick ? 1 : 0; j < 2; j++) {
                const size_t size = counts[j] * lmc_dtype_width(dtypes[i]);
                uint8_t *src = t_tail(&g_src, size);
                t_note("levels: %s, %s, %lu", lmc_dtype_name(dtypes[i]), t_kind_names[kind],
                       (unsigned long)counts[j]);
                t_fill(src, size, (enum t_kind)kind, dtypes[i], j);
                check_levels(src, size, dtypes[i], kind == T_GAUSS);
            }
    { /* a level's purpose: in whole planes of many symbols, each has fewer flat nodes */
        const size_t size = 65536;
        uint8_t *src = t_tail(&g_src, size);
        size_t sizes[4], k;
        t_note("levels: sizes of fp8");
        t_fill(src, size, T_GAUSS, LMC_F8_E4M3, 1);
        for (k = 0; k < 4; k++) {
            g_level = (enum lmc_level)((int)k + (int)LMC_LEVEL_FAST);
            sizes[k] = round_trip(src, size, LMC_F8_E4M3, 0);
        }
        CHECK(sizes[0] > sizes[1] && sizes[1] > sizes[2] && sizes[2] >= sizes[3]);
    }
}

/* Zeros among other elements take a bit each, and the others what they take alone; the sign of a -0
 * another bit. Zeros by a pattern, 2 of each 4, take less. */
static void test_zeros(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F16, LMC_F32, LMC_F64};
    const size_t n = 60000;
    size_t i, j, k;
    unsigned form;
    g_level = LMC_LEVEL_DEFAULT;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (form = 0; form < 3; form++) { /* +0; +0 and -0; 2 of 4 */
            const unsigned width = lmc_dtype_width(dtypes[i]);
            uint8_t *src = t_tail(&g_src, n * width), *others = (uint8_t *)malloc(n * width), *enc;
            size_t alone, together, n_others = 0;
            uint64_t seed = 7 * i + form;
            t_note("zeros: %s, form %u", lmc_dtype_name(dtypes[i]), form);
            t_fill(src, n * width, T_GAUSS, dtypes[i], i);
            for (j = 0; j < n; j++) {
                const unsigned r = (unsigned)t_random(&seed) >> 8 & 3;
                if (form == 2 ? j % 4 >= 2 : r >= 2) {
                    memcpy(others + width * n_others++, src + width * j, width);
                    continue;
                }
                memset(src + width * j, 0, width);
                if (form == 1 && r) src[width * j + width - 1] = 0x80;
            }
            for (k = 0; form == 2 && k + 8 * width <= n * width; k += 8 * width)
                if (t_below(&seed, 2)) { /* the same zeros at other places */
                    memmove(src + k, src + k + 2 * width, 2 * width);
                    memset(src + k + 2 * width, 0, 2 * width);
                }
            enc = (uint8_t *)t_copy(src, n * width);
            memcpy(t_tail(&g_src, n_others * width), others, n_others * width);
            alone = round_trip(t_tail(&g_src, n_others * width), n_others * width, dtypes[i], 0);
            memcpy(src = t_tail(&g_src, n * width), enc, n * width);
            together = round_trip(src, n * width, dtypes[i], 0);
            CHECK(together <= alone + alone / 200 + (form == 2 ? n / 16 : n / 8) + 400 +
                                  (form == 1 ? (n - n_others) / 8 : 0));
            free(enc);
            free(others);
        }
}

/* Small blocks with constant planes. */
static void test_levels_of_small(void)
{
    static const enum lmc_dtype dtypes[] = {LMC_BF16, LMC_F32, LMC_F64, LMC_U64, LMC_I32};
    size_t i, n, k;
    uint64_t seed = 77;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (n = 1; n <= 1200; n += 1 + n / 7) {
            const unsigned width = lmc_dtype_width(dtypes[i]);
            uint8_t *src = t_tail(&g_src, n * width);
            memset(src, 0, n * width);
            for (k = 0; k < n; k++) { /* two random bytes in each, one with few values */
                src[k * width + width - 2] = (uint8_t)t_random(&seed);
                src[k * width + width - 1] = (uint8_t)(0x3C + t_below(&seed, 4));
            }
            t_note("small, %s, %lu elements", lmc_dtype_name(dtypes[i]), (unsigned long)n);
            check_levels(src, n * width, dtypes[i], 0);
        }
}

/* Header_CRC of block 0. */
static void repair(uint8_t *block)
{
    uint8_t covered[24] = {0};
    memcpy(covered + 4, block, 20);
    t_store32(block + 20, t_crc32c(0, covered, 24));
}

/* The status of decoding a block with this payload; its n bytes are all `value`. */
static enum lmc_status decode_bytes(const uint8_t *payload, size_t size, size_t n, int value)
{
    const size_t ws_size = lmc_block_workspace_size(n, 1);
    uint8_t *const block = t_tail(&g_enc, LMC_BLOCK_HEADER_SIZE + size), *const content =
                                                                             t_tail(&g_src, n);
    size_t got;
    memset(content, value, n);
    memset(block, 0, LMC_BLOCK_HEADER_SIZE);
    block[0] = 0xB2;
    block[1] = 1;
    block[2] = 1 << 5; /* planes */
    t_store32(block + 4, (uint32_t)n);
    t_store32(block + 8, (uint32_t)size);
    t_store32(block + 12, t_crc32c(0, content, n));
    repair(block);
    memcpy(block + LMC_BLOCK_HEADER_SIZE, payload, size);
    return t_block_decode(t_tail(&g_dst, n), n, &got, block, LMC_BLOCK_HEADER_SIZE + size, NULL, 0,
                          0, t_tail(&g_ws, ws_size), ws_size);
}

/* Blocks that break one rule, while all else is right, also the CRC of their bytes; they end at the
 * guard. */
static void test_broken_rules(void)
{
    /* a tree of two symbols, and a mask */
    static const uint8_t good[] = {2, 65, 1, 0x11, 0, 0, 0, 0};
    static const uint8_t shorter[] = {3, 65, 1, 0x22, 1, 255, 255, 255, 255, 0, 0, 0, 0};
    static const uint8_t missing[] = {3, 66, 0, 0x11, 255, 255, 255, 255, 65, 65, 65};
    t_note("broken rules: none");
    CHECK_STATUS(decode_bytes(good, sizeof good, 32, 65), LMC_OK);
    t_note("broken rules: an escape that is not the longest");
    CHECK_STATUS(decode_bytes(shorter, sizeof shorter, 32, 65), LMC_ERR_CORRUPT);
    t_note("broken rules: escaped bytes that are not there");
    CHECK_STATUS(decode_bytes(missing, sizeof missing, 32, 65), LMC_ERR_CORRUPT);
}

/* Headers with a right CRC. */
static void test_headers(void)
{
    enum { STORED = 0, PLANES = 1 << 5, QUANTIZED = 2 << 5, PREDICTED = 4, SPARSE = 16 };
    enum { MAX = LMC_MAX_BLOCK_SIZE };
    static const struct {
        uint8_t width, coding, grouping;
        uint32_t n, size, payload_crc;
        enum lmc_status status;
    } cases[] = {{1, PLANES, 0, 9, 8, 0, LMC_OK},
                 {1, STORED, 0, 9, 9, 0, LMC_OK},
                 /* Width */
                 {2, PLANES, 0, 9, 8, 0, LMC_OK},
                 {4, PLANES, 0, 9, 8, 0, LMC_OK},
                 {8, PLANES, 0, 9, 8, 0, LMC_OK},
                 {0, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {3, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {5, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {6, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {7, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {16, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {129, PLANES, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 /* Order */
                 {1, PLANES | 1, 0, 9, 8, 0, LMC_OK},
                 {1, PLANES | 2, 0, 9, 8, 0, LMC_OK},
                 {1, PLANES | 3, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {1, PLANES | PREDICTED | 1, 0, 9, 8, 77, LMC_OK},
                 {8, PLANES | PREDICTED | 2, 0, 9, 8, 0, LMC_OK},
                 {1, PLANES | PREDICTED, 0, 9, 8, 77, LMC_ERR_CORRUPT},
                 {2, STORED | 1, 0, 9, 18, 0, LMC_ERR_CORRUPT},
                 {2, STORED | 2, 0, 9, 18, 0, LMC_ERR_CORRUPT},
                 {2, QUANTIZED | 2, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 /* bits and layouts that are reserved */
                 {1, PLANES | 8, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {1, PLANES | 16, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {1, 3 << 5 | PREDICTED, 0, 9, 8, 0, LMC_ERR_CORRUPT}, /* zeros apart */
                 {1, 3 << 5, 16, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, 3 << 5, 0, 9, 9, 0, LMC_ERR_CORRUPT},
                 {2, 3 << 5 | 2, 0, 5, 9, 0, LMC_OK},
                 {1, 4 << 5, 0, 9, 8, 0, LMC_ERR_CORRUPT}, /* rows and columns: an order */
                 {1, 4 << 5 | 1, 0, 9, 8, 0, LMC_OK},
                 {1, 4 << 5 | 1, 0, 9, 9, 0, LMC_ERR_CORRUPT},
                 {4, 4 << 5 | 2, 0, 9, 35, 0, LMC_OK},
                 {4, 4 << 5 | 2, 1, 9, 35, 0, LMC_ERR_CORRUPT},
                 {8, 4 << 5 | 2, 16, 9, 8, 0, LMC_ERR_CORRUPT},
                 {8, 4 << 5 | 2, 0, 9, 8, 1, LMC_ERR_CORRUPT},
                 {1, 4 << 5 | PREDICTED | 1, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {4, 5 << 5, 0, 9, 35, 0, LMC_OK}, /* codes */
                 {2, 5 << 5, 0, 9, 17, 0, LMC_OK},
                 {2, 5 << 5, 0, 9, 18, 0, LMC_ERR_CORRUPT},
                 {1, 5 << 5, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {8, 5 << 5, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {4, 5 << 5 | 1, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {4, 5 << 5, 16, 9, 8, 0, LMC_ERR_CORRUPT},
                 {4, 5 << 5 | PREDICTED, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, 6 << 5, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {1, 7 << 5, 0, 9, 8, 0, LMC_ERR_UNSUPPORTED},
                 {1, PLANES | PREDICTED | 1, 1 << 5 | 1, 9, 8, 0, LMC_ERR_CORRUPT}, /* Natural */
                 {4, PLANES | PREDICTED | 1, 4 << 5 | 1, 9, 35, 0, LMC_ERR_CORRUPT},
                 {4, PLANES | PREDICTED | 1, 1 << 5, 9, 35, 0, LMC_ERR_CORRUPT},
                 {4, PLANES | PREDICTED | 1, 1 << 5 | 16 | 1, 9, 35, 0, LMC_ERR_CORRUPT},
                 {4, PLANES | PREDICTED | 1, 3 << 5 | 1, 9, 35, 0, LMC_OK},
                 /* UNSUPPORTED comes before CORRUPT */
                 {3, PLANES, 0, 0, 8, 1, LMC_ERR_UNSUPPORTED},
                 {1, PLANES | 3, 1, 0, 8, 1, LMC_ERR_UNSUPPORTED},
                 /* N_Elements */
                 {1, PLANES, 0, 0, 0, 0, LMC_ERR_CORRUPT},
                 {1, STORED, 0, 0, 0, 0, LMC_ERR_CORRUPT},
                 {1, PLANES, 0, MAX, 8, 0, LMC_OK},
                 {1, PLANES, 0, MAX + 1, 8, 0, LMC_ERR_CORRUPT},
                 {2, PLANES, 0, MAX / 2, 8, 0, LMC_OK},
                 {2, PLANES, 0, MAX / 2 + 1, 8, 0, LMC_ERR_CORRUPT},
                 {4, PLANES, 0, MAX / 4, 8, 0, LMC_OK},
                 {4, PLANES, 0, MAX / 4 + 1, 8, 0, LMC_ERR_CORRUPT},
                 {8, PLANES, 0, MAX / 8, 8, 0, LMC_OK},
                 {8, PLANES, 0, MAX / 8 + 1, 8, 0, LMC_ERR_CORRUPT},
                 {8, STORED, 0, 0x20000001, 8, 0, LMC_ERR_CORRUPT}, /* 2^32 bytes and 8 */
                 /* Payload_Size */
                 {1, STORED, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, STORED, 0, 9, 10, 0, LMC_ERR_CORRUPT},
                 {1, PLANES, 0, 9, 9, 0, LMC_ERR_CORRUPT},
                 {2, PLANES, 0, 9, 17, 0, LMC_OK},
                 {2, PLANES, 0, 9, 18, 0, LMC_ERR_CORRUPT},
                 {2, QUANTIZED, 0, 9, 18, 0, LMC_ERR_CORRUPT},
                 /* Predicted */
                 {1, STORED | PREDICTED, 0, 9, 9, 0, LMC_ERR_CORRUPT},
                 {2, QUANTIZED | PREDICTED, 0, 9, 8, 5, LMC_OK},
                 {1, PLANES, 0, 9, 8, 1, LMC_ERR_CORRUPT}, /* a Payload_CRC */
                 {1, STORED, 0, 9, 9, 1, LMC_ERR_CORRUPT},
                 {2, QUANTIZED, 0, 9, 8, 1, LMC_ERR_CORRUPT},
                 /* Grouping */
                 {1, PLANES, 1, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, PLANES, SPARSE, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, STORED, 1, 9, 9, 0, LMC_ERR_CORRUPT},
                 {2, QUANTIZED | PREDICTED, 1, 9, 8, 0, LMC_ERR_CORRUPT},
                 {2, QUANTIZED | PREDICTED, SPARSE, 9, 8, 0, LMC_ERR_CORRUPT},
                 {1, PLANES | PREDICTED | 1, 15, 9, 8, 0, LMC_OK},
                 {1, PLANES | PREDICTED | 1, SPARSE, 9, 8, 0, LMC_OK},
                 {1, PLANES | PREDICTED | 2, 15 | SPARSE, 9, 8, 0, LMC_OK},
                 /* quantised elements */
                 {2, QUANTIZED, 0, 9, 8, 0, LMC_OK},
                 {4, QUANTIZED, 0, 9, 8, 0, LMC_OK},
                 {1, QUANTIZED, 0, 9, 8, 0, LMC_ERR_CORRUPT},
                 {8, QUANTIZED, 0, 9, 8, 0, LMC_ERR_CORRUPT}};
    uint8_t *const block = t_tail(&g_enc, LMC_BLOCK_HEADER_SIZE);
    lmc_block_info info;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(block, 0, LMC_BLOCK_HEADER_SIZE);
        block[0] = 0xB2;
        block[1] = cases[i].width;
        block[2] = cases[i].coding;
        block[3] = cases[i].grouping;
        t_store32(block + 4, cases[i].n);
        t_store32(block + 8, cases[i].size);
        t_store32(block + 12, 1234567);
        t_store32(block + 16, cases[i].payload_crc);
        repair(block);
        t_note("header %lu", (unsigned long)i);
        CHECK_STATUS(lmc_block_parse(block, LMC_BLOCK_HEADER_SIZE, 1, &info), LMC_ERR_CHECKSUM);
        CHECK_STATUS(lmc_block_parse(block, LMC_BLOCK_HEADER_SIZE, 0, &info), cases[i].status);
        if (cases[i].status != LMC_OK) continue;
        CHECK(info.n == cases[i].n && info.width == cases[i].width &&
              info.size == (size_t)info.n * info.width &&
              info.encoded_size == LMC_BLOCK_HEADER_SIZE + cases[i].size && info.crc == 1234567 &&
              info.payload_crc == cases[i].payload_crc &&
              info.has_prediction == (cases[i].coding >> 2 & 1) &&
              info.is_stored == (cases[i].coding >> 5 == 0));
        block[0] = 0xB1;
        repair(block);
        CHECK_STATUS(lmc_block_parse(block, LMC_BLOCK_HEADER_SIZE, 0, &info), LMC_ERR_CORRUPT);
    }
}

/* Elements of each width without a prediction, in each order: the planes of their residuals, raw.
 * The elements are computed here by the spec. */
static void test_orders(void)
{
    const size_t n = 5000;
    uint64_t seed = 3;
    unsigned width, order, p;
    size_t i;
    for (width = 1; width <= 8; width *= 2)
        for (order = 0; order < 3; order++) {
            /* plane 0 is constant, so that the payload is smaller than the elements */
            const size_t size = n * width, payload = 2 + (width - 1) * (n + 1),
                         ws_size = lmc_block_workspace_size(n, width);
            const uint64_t s = UINT64_C(1) << (8 * width - 1), all = s - 1 + s;
            uint8_t *const src = t_tail(&g_src, size), *const block = t_tail(
                                                           &g_enc, LMC_BLOCK_HEADER_SIZE + payload);
            uint8_t *const planes = block + LMC_BLOCK_HEADER_SIZE;
            size_t got = 0;
            t_note("order %u of %u bytes", order, width);
            memset(block, 0, LMC_BLOCK_HEADER_SIZE + payload);
            planes[0] = 1;
            planes[1] = (uint8_t)(order + 65);
            for (p = 1; p < width; p++)
                for (i = 0; i < n; i++)
                    planes[2 + (p - 1) * (n + 1) + 1 + i] =
                        (uint8_t)(i < 600 ? (p > 1 ? 0 - (i & 1) : i) : t_random(&seed));
            for (i = 0; i < n; i++) {
                uint64_t r = planes[1], v, difference;
                for (p = 1; p < width; p++)
                    r |= (uint64_t)planes[2 + (p - 1) * (n + 1) + 1 + i] << 8 * p;
                difference = ((r >> 1) ^ (0 - (r & 1))) & all;
                v = order == 0 ? r : difference;
                if (order == 2 && difference >= s) v ^= s - 1;
                /* a rotation to the right: the lowest bit is the sign */
                if (order == 2) CHECK(v == ((r >> 1 | r << (8 * width - 1)) & all));
                for (p = 0; p < width; p++) src[i * width + p] = (uint8_t)(v >> 8 * p);
            }
            block[0] = 0xB2;
            block[1] = (uint8_t)width;
            block[2] = (uint8_t)(1 << 5 | order);
            t_store32(block + 4, (uint32_t)n);
            t_store32(block + 8, (uint32_t)payload);
            t_store32(block + 12, t_crc32c(0, src, size));
            repair(block);
            CHECK_STATUS(t_block_decode(t_tail(&g_dst, size), size, &got, block,
                                        LMC_BLOCK_HEADER_SIZE + payload, NULL, 0, 0,
                                        t_tail(&g_ws, ws_size), ws_size),
                         LMC_OK);
            CHECK(got == size && memcmp(t_tail(&g_dst, size), src, size) == 0);
        }
}

static void test_arguments(void)
{
    uint8_t src[64] = {1, 2, 3}, dst[128], enc[128];
    size_t ws_size = lmc_block_workspace_size(64, 1), got = 77, enc_size = 0;
    uint8_t *ws = t_tail(&g_ws, ws_size), *big = g_src.data;
    lmc_block_info info;
    unsigned width;
    size_t n;
    t_note("arguments");
    CHECK_STATUS(
        t_block_encode(enc, 128, &enc_size, src, 64, NULL, LMC_BF16, g_level, 0, ws, ws_size),
        LMC_OK);
    CHECK_STATUS(t_block_encode(NULL, 128, &got, src, 64, NULL, LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, NULL, src, 64, NULL, LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, NULL, 64, NULL, LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 0, NULL, LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 63, NULL, LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 62, NULL, LMC_F32, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 60, NULL, LMC_F64, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 64, NULL, (enum lmc_dtype)LMC__DTYPE_COUNT,
                                g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(
        t_block_encode(dst, 128, &got, src, 64, NULL, LMC_BF16, (enum lmc_level)3, 0, ws, ws_size),
        LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(big, g_src.cap, &got, big, (size_t)LMC_MAX_BLOCK_SIZE + 2, NULL,
                                LMC_BF16, g_level, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 64, NULL, LMC_BF16, g_level, 0, NULL, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_encode(dst, 128, &got, src, 64, NULL, LMC_BF16, g_level, 0, ws, 0),
                 LMC_ERR_WORKSPACE);
    CHECK_STATUS(t_block_decode(NULL, 64, &got, enc, enc_size, NULL, 0, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_decode(dst, 64, NULL, enc, enc_size, NULL, 0, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_decode(dst, 64, &got, NULL, enc_size, NULL, 0, 0, ws, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_decode(dst, 64, &got, enc, enc_size, NULL, 0, 0, NULL, ws_size),
                 LMC_ERR_ARGUMENT);
    CHECK_STATUS(t_block_decode(dst, 64, &got, enc, 0, NULL, 0, 0, ws, ws_size), LMC_ERR_TRUNCATED);
    CHECK_STATUS(lmc_block_parse(NULL, LMC_BLOCK_HEADER_SIZE, 0, &info), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_block_parse(enc, LMC_BLOCK_HEADER_SIZE, 0, NULL), LMC_ERR_ARGUMENT);
    CHECK(got == 77);
    for (width = 1; width <= 8; width *= 2) {
        const size_t most = LMC_MAX_BLOCK_SIZE / width;
        CHECK(lmc_block_workspace_size(0, width) == 0 &&
              lmc_block_workspace_size(most + 1, width) == 0 &&
              lmc_block_workspace_size(SIZE_MAX, width) == 0 &&
              lmc_block_workspace_size(SIZE_MAX / width, width) == 0);
        CHECK(lmc_block_workspace_size(1, width) > 0 &&
              lmc_block_workspace_size(1, width) <= lmc_block_workspace_size(most, width));
        /* for as many bytes, elements of one byte, as of LMC_AUTO, need no less */
        for (n = width; n <= LMC_MAX_BLOCK_SIZE; n = n < 5000 ? n + width : 2 * n)
            if (lmc_block_workspace_size(n / width, width) > lmc_block_workspace_size(n, 1)) break;
        CHECK(n > LMC_MAX_BLOCK_SIZE);
    }
    CHECK(lmc_block_workspace_size(8, 0) == 0);
    CHECK(lmc_block_bound(SIZE_MAX) == SIZE_MAX && lmc_block_bound(SIZE_MAX - 23) == SIZE_MAX &&
          lmc_block_bound(0) == 24);
}

/* By number. */
static const char *const dtype_names[] = {
    "AUTO",    "BOOL",    "F4",      "F6_E2M3",     "F6_E3M2",     "U8",  "I8",
    "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16",
    "F16",     "BF16",    "I32",     "U32",         "F32",         "C64", "F64",
    "I64",     "U64",     "I4",      "U4",          "I2",          "U2",  "C128"};
static const uint8_t dtype_bits[] = {8,  8,  4,  6,  6,  8,  8,  8,  8,  8, 8, 8, 16, 16,
                                     16, 16, 32, 32, 32, 64, 64, 64, 64, 4, 4, 2, 2,  128};
static const uint8_t dtype_widths[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2,
                                       2, 2, 4, 4, 4, 4, 8, 8, 8, 1, 1, 1, 1, 8};
/* Does not compile unless each table has all dtypes. */
typedef char t_has_all_dtypes[sizeof dtype_names / sizeof *dtype_names == LMC__DTYPE_COUNT &&
                                      sizeof dtype_bits == LMC__DTYPE_COUNT &&
                                      sizeof dtype_widths == LMC__DTYPE_COUNT
                                  ? 1
                                  : -1];

static void test_tools(void)
{
    static const int statuses[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                   13, 14, 15, 16, 20, 21, 22, 23, 24, 25, 30, 31};
    uint8_t data[5000];
    size_t i, k;
    t_note("tools");
    CHECK(strcmp(lmc_version(), LMC_VERSION) == 0);
    for (i = 0; i < LMC__DTYPE_COUNT; i++) {
        enum lmc_dtype dtype = (enum lmc_dtype)i;
        CHECK(strcmp(lmc_dtype_name(dtype), dtype_names[i]) == 0);
        CHECK(lmc_dtype_find(dtype_names[i]) == dtype);
        CHECK(lmc_dtype_bits(dtype) == dtype_bits[i] && lmc_dtype_width(dtype) == dtype_widths[i]);
    }
    CHECK(lmc_dtype_name((enum lmc_dtype)LMC__DTYPE_COUNT) == NULL);
    CHECK(lmc_dtype_find("bf16") == LMC_AUTO && lmc_dtype_find("") == LMC_AUTO &&
          lmc_dtype_find("BF16 ") == LMC_AUTO && lmc_dtype_find("F8_E4M3FN") == LMC_AUTO &&
          lmc_dtype_find("F") == LMC_AUTO);
    for (i = 0; i < 64; i++) {
        const char *name = lmc_status_name((enum lmc_status)i),
                   *text = lmc_status_text((enum lmc_status)i);
        int known = 0;
        for (k = 0; k < sizeof statuses / sizeof *statuses; k++) known |= statuses[k] == (int)i;
        CHECK(name != NULL && text != NULL && *text != '\0');
        if (name == NULL || text == NULL) continue;
        CHECK(known ? strncmp(name, "LMC_", 4) == 0 && strcmp(name, "LMC_ERR_?") != 0
                    : strcmp(name, "LMC_ERR_?") == 0);
        for (k = 0; known && k < i; k++)
            CHECK(strcmp(name, lmc_status_name((enum lmc_status)k)) != 0);
    }
    CHECK(strcmp(lmc_status_name(LMC_OK), "LMC_OK") == 0 &&
          strcmp(lmc_status_name(LMC_ERR_CORRUPT), "LMC_ERR_CORRUPT") == 0);
    CHECK(lmc_crc32c(0, "123456789", 9) == 0xE3069283u);
    CHECK(lmc_crc32c(0, NULL, 0) == 0);
    t_fill(data, sizeof data, T_RANDOM, LMC_U8, 3);
    for (i = 0; i < sizeof data; i += 1 + i / 20) {
        uint32_t want = t_crc32c(0, data + i % 13, sizeof data - 13);
        CHECK(lmc_crc32c(lmc_crc32c(0, data + i % 13, i > 4987 ? 4987 : i),
                         data + i % 13 + (i > 4987 ? 4987 : i), i > 4987 ? 0 : 4987 - i) == want);
        CHECK(lmc_crc32c(0, data, i) == t_crc32c(0, data, i));
    }
}

/* A limit gives the tier, or the first available one after it in the order that lmc.h documents. */
static void test_tiers(void)
{
    static const struct {
        enum lmc_tier tier;
        const char *name;
    } best_first[] = {{LMC_TIER_AVX512, "avx512"},
                      {LMC_TIER_AVX2, "avx2"},
                      {LMC_TIER_NEON, "neon"},
                      {LMC_TIER_SIMDE, "simde"},
                      {LMC_TIER_SCALAR, "scalar"}};
    const size_t n = sizeof best_first / sizeof *best_first;
    const enum lmc_tier tier = lmc_tier_current();
    size_t i, row, n_known = 0;
    for (i = 0; i < 300; i++) n_known += lmc_tier_name((enum lmc_tier)i) != NULL;
    CHECK(n_known == n && lmc_tier_is_available(LMC_TIER_SCALAR) == 1);
    for (i = 0; i < n; i++) {
        CHECK(strcmp(lmc_tier_name(best_first[i].tier), best_first[i].name) == 0);
        lmc_tier_limit(best_first[i].tier);
        for (row = i; !lmc_tier_is_available(best_first[row].tier);) row++;
        CHECK(lmc_tier_current() == best_first[row].tier);
    }
    for (row = 0; !lmc_tier_is_available(best_first[row].tier);) row++;
    for (i = 0; i < 2; i++) {
        lmc_tier_limit(LMC_TIER_SCALAR);
        lmc_tier_limit(i ? LMC_TIER_BEST : (enum lmc_tier)77);
        CHECK(lmc_tier_current() == best_first[row].tier);
    }
    lmc_tier_limit(tier);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    g_src = t_new_guard((size_t)8 << 20);
    g_enc = t_new_guard(((size_t)8 << 20) + 64);
    g_dst = t_new_guard(((size_t)8 << 20) + 64);
    g_ws = t_new_guard(lmc_block_workspace_size(LMC_MAX_BLOCK_SIZE, 1));
    test_tools();
    test_arguments();
    /* archive tries the default and max, too */
    for (g_level = LMC_LEVEL_FAST;;
         g_level = g_level == LMC_LEVEL_FAST ? LMC_LEVEL_DEFAULT : LMC_LEVEL_ARCHIVE) {
        test_patterns();
        test_trees();
        test_sizes();
        if (g_level == LMC_LEVEL_DEFAULT) test_weights();
        test_auto();
        test_round_trips();
        if (g_level == LMC_LEVEL_ARCHIVE) break;
    }
    test_largest();
    test_levels();
    test_zeros();
    test_levels_of_small();
    test_broken_rules();
    test_headers();
    test_orders();
    test_tiers();
    t_test_workspace();
    return t_end();
}
