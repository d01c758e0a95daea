/* private_kernels.h - every kernel of every tier of this machine: the scalar one is compared with
 * its definition in plain C, the others with the scalar one; for all small counts, with exact
 * buffers between guard pages where a kernel promises exactness. Included by t_lmc.c, which sees
 * the private names of lmc.h. */
#include "t.h"
#include "t_hash.h"

#define MAX_N 700u

static t_guard guard_a, guard_b, guard_c, guard_d, guard_e;

static void fill(uint8_t *p, size_t size, uint64_t *seed, unsigned limit)
{
    size_t i;
    for (i = 0; i < size; i++) p[i] = (uint8_t)t_below(seed, limit);
}

static void test_crc(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t sizes[] = {4095,  4096,  4097,  4160,  8183,  8184,  8185,  8191,
                                   8192,  8193,  8703,  8704,  8705,  12287, 12288, 12300,
                                   16368, 16384, 16392, 40000, 65536, 131072};
    size_t i, size;
    CHECK(k->crc32c(0, (const uint8_t *)"123456789", 9) == 0xE3069283u);
    for (i = 0; i < 900 + sizeof sizes / sizeof *sizes; i++) {
        uint32_t start = (uint32_t)t_random(seed), crc = ~start;
        uint8_t *p;
        size_t j;
        int bit;
        size = i < 900 ? i : sizes[i - 900];
        p = t_tail(&guard_a, size);
        fill(p, size, seed, 256);
        for (j = 0; j < size; j++) {
            crc ^= p[j];
            for (bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        }
        t_note("%s, %lu bytes", lmc_tier_name(k->tier), (unsigned long)size);
        CHECK(k->crc32c(start, p, size) == ~crc);
    }
}

/* By its definition, byte by byte: byte j of a word counts 256^j. */
static uint64_t sum64_model(const uint8_t *p, size_t size)
{
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < size; i++) sum += (uint64_t)p[i] << 8 * (i % 8);
    return sum;
}

/* All small sizes at all places of a line, up to the guard page, and sizes around those of loops;
 * in two parts, the first of which has whole words. Words of ones carry into all bits. */
static void test_sum64(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t sizes[] = {8183, 8184, 8185, 8192, 16368, 16384, 40000, 131072, 139000};
    const size_t most = 1100, step = t_quick ? 7 : 1;
    uint8_t *const all = t_tail(&guard_a, 140000);
    size_t size, place, i;
    for (i = 0; i < 140000; i++) all[i] = (uint8_t)(i % 3 ? 255 : t_random(seed));
    for (size = 0; size <= most; size++) {
        const uint8_t *const exact = all + 140000 - size; /* up to the guard page */
        t_note("%s, %lu bytes", lmc_tier_name(k->tier), (unsigned long)size);
        CHECK(k->sum64(exact, size) == sum64_model(exact, size));
        for (place = size % step; place < 64; place += step)
            if (k->sum64(all + place, size) != sum64_model(all + place, size)) break;
        CHECK(place >= 64);
    }
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(k->sum64(all, sizes[i]) == sum64_model(all, sizes[i]));
    for (i = 0; i < 200; i++) {
        const size_t both = 1 + (size_t)t_below(seed, i & 1 ? 2000 : 139999),
                     first = (size_t)t_below(seed, both + 1) & ~(size_t)7;
        CHECK(k->sum64(all, first) + k->sum64(all + first, both - first) == sum64_model(all, both));
        CHECK(lmc__crc32c_combine(k->crc32c(0, all, first), k->crc32c(0, all + first, both - first),
                                  both - first) == lmc__crc32c_scalar(0, all, both));
    }
}

/* Runs of blocks at any place, up to the guard page, from any state: as the model has them. Known
 * answers are in test_messages(). */
static void test_sha256(const lmc__kernels *k, uint64_t *seed)
{
    const size_t most = t_quick ? 9 : 40;
    uint8_t *const all = t_tail(&guard_a, 64 * most + 17);
    size_t n, i;
    unsigned place, repeat;
    for (i = 0; i < 64 * most + 17; i++) all[i] = (uint8_t)t_random(seed);
    for (n = 0; n <= most; n++)
        for (repeat = 0; repeat < 4; repeat++) {
            uint32_t state[8], wanted[8];
            t_sha model;
            place = repeat ? (unsigned)t_below(seed, 17) : 17;
            t_sha_begin(&model);
            for (i = 0; i < 8; i++) {
                state[i] = repeat == 3 ? 0xFFFFFFFFu : (uint32_t)t_random(seed);
                model.state[i] = wanted[i] = state[i];
            }
            t_sha_add(&model, all + place, 64 * n);
            lmc__sha256_scalar(wanted, all + place, n);
            k->sha256(state, all + place, n);
            t_note("%s, %lu blocks at %u", lmc_tier_name(k->tier), (unsigned long)n, place);
            CHECK(memcmp(state, model.state, sizeof state) == 0);
            CHECK(memcmp(wanted, model.state, sizeof state) == 0);
        }
}

/* Whole messages, in pieces: known answers (FIPS 180-4's examples), and the model's. */
static void test_messages(uint64_t *seed)
{
    static const struct known {
        const char *text, *digest;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "m"
         "nopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    uint8_t *const all = t_tail(&guard_a, 1000);
    uint8_t digest[32], wanted[32];
    lmc__sha256 sha;
    t_sha model;
    size_t i, at, n, size;
    for (i = 0; i < sizeof known / sizeof *known; i++) {
        char hex[65];
        lmc__sha256_init(&sha);
        lmc__sha256_update(&sha, known[i].text, strlen(known[i].text));
        lmc__sha256_finish(&sha, digest);
        for (at = 0; at < 32; at++) sprintf(hex + 2 * at, "%02x", digest[at]);
        CHECK(strcmp(hex, known[i].digest) == 0);
    }
    for (i = 0; i < 1000; i++) all[i] = (uint8_t)t_random(seed);
    for (i = 0; i < (t_quick ? 300u : 2000u); i++) {
        size = i < 200 ? i : (size_t)t_below(seed, 1001);
        lmc__sha256_init(&sha);
        for (at = 0; at < size; at += n) {
            n = i & 1 ? size : 1 + (size_t)t_below(seed, 200);
            n = lmc__min(n, size - at);
            lmc__sha256_update(&sha, all + 1000 - size + at, n);
        }
        lmc__sha256_finish(&sha, digest);
        t_sha_begin(&model);
        t_sha_add(&model, all + 1000 - size, size);
        t_sha_end(&model, wanted);
        CHECK(memcmp(digest, wanted, 32) == 0);
    }
}

/* Whether join_root has returned the right CRC, and stored the right sum. */
static int are_sums(const lmc__streaming *streaming, uint32_t crc, const uint8_t *data, size_t size)
{
    return crc == lmc__crc32c_scalar(0, data, size) &&
           (!streaming->sum || *streaming->sum == sum64_model(data, size));
}

/* For as many zeros as a file may have: the CRC of a zero byte, combined with itself again and
 * again, is that of 2, 4, 8 ... */
static void test_combine(void)
{
    static const uint8_t zeros[4096];
    uint64_t size;
    uint32_t crc = lmc__crc32c_scalar(0, zeros, 1);
    for (size = 1; size < (uint64_t)1 << 62; size *= 2) {
        crc = lmc__crc32c_combine(crc, crc, size);
        if (2 * size <= sizeof zeros)
            CHECK(crc == lmc__crc32c_scalar(0, zeros, (size_t)(2 * size)));
    }
}

/* -- elements and residuals: spec 5.1 in plain C -- */

static uint64_t get_element(const uint8_t *p, size_t i, unsigned width)
{
    uint64_t v = 0;
    unsigned j;
    for (j = 0; j < width; j++) v |= (uint64_t)p[i * width + j] << 8 * j;
    return v;
}

static void put_element(uint8_t *p, size_t i, unsigned width, uint64_t v)
{
    unsigned j;
    for (j = 0; j < width; j++) p[i * width + j] = (uint8_t)(v >> 8 * j);
}

static uint64_t residual_of(uint64_t element, uint64_t b, unsigned width, enum lmc__order order)
{
    const uint64_t s = UINT64_C(1) << (8 * width - 1), all = s - 1 + s;
    uint64_t difference, total;
    if (order == LMC__ORDER_NONE) return element;
    if (order == LMC__ORDER_INTEGER) difference = (element - b) & all;
    else {
        total = element ^ (b & s);
        total = total < s ? total : total ^ (s - 1);
        difference = (total - (b & (s - 1))) & all;
    }
    return (difference << 1 & all) ^ (difference < s ? 0 : all);
}

static uint64_t element_of(uint64_t r, uint64_t b, unsigned width, enum lmc__order order)
{
    const uint64_t s = UINT64_C(1) << (8 * width - 1), all = s - 1 + s;
    const uint64_t difference = r & 1 ? ~(r >> 1) : r >> 1;
    uint64_t total;
    if (order == LMC__ORDER_NONE) return r;
    if (order == LMC__ORDER_INTEGER) return (b + difference) & all;
    total = ((b & (s - 1)) + difference) & all;
    return (b & s) ^ (total < s ? total : total ^ (s - 1));
}

/* Both directions are inverse for all elements of this width against the prediction b, and the
 * library's scalar functions give the same. Returns for how many elements that is not true. */
static unsigned wrong_residuals(uint64_t b, unsigned width)
{
    const uint64_t n = (uint64_t)1 << 8 * width;
    unsigned wrong = 0;
    int o;
    uint64_t v;
    for (o = LMC__ORDER_INTEGER; o <= LMC__ORDER_FLOAT; o++)
        for (v = 0; v < n; v++) {
            const enum lmc__order order = (enum lmc__order)o;
            const uint64_t r = residual_of(v, b, width, order);
            wrong += r >= n || element_of(r, b, width, order) != v ||
                     lmc__residual(v, b, width, order) != r ||
                     lmc__restore_element(r, b, width, order) != v;
        }
    return wrong;
}

/* All pairs of bytes; for two bytes, all elements against some predictions, or against all. */
static void test_residuals(void)
{
    const uint64_t step = t_long ? 1 : t_brief ? 4099 : 257;
    uint64_t b, seed = 5;
    unsigned wrong = 0, width, i;
    t_note("residuals");
    for (b = 0; b < 256; b++) wrong += wrong_residuals(b, 1);
    CHECK(wrong == 0);
    for (b = 0; b < 65536; b += step) wrong += wrong_residuals(b, 2);
    for (b = 0x7FFE; b <= 0x8001; b++) wrong += wrong_residuals(b, 2);
    wrong += wrong_residuals(65535, 2);
    CHECK(wrong == 0);
    for (i = 0; i < 100000; i++)
        for (width = 4; width <= 8; width += 4) {
            const uint64_t v = t_random(&seed) >> (64 - 8 * width),
                           base = (i & 1 ? t_random(&seed) : v + i % 64 - 32) << (64 - 8 * width) >>
                                  (64 - 8 * width);
            const enum lmc__order order = i & 2 ? LMC__ORDER_FLOAT : LMC__ORDER_INTEGER;
            const uint64_t r = residual_of(v, base, width, order);
            wrong += element_of(r, base, width, order) != v ||
                     lmc__residual(v, base, width, order) != r ||
                     lmc__restore_element(r, base, width, order) != v;
        }
    CHECK(wrong == 0);
    /* the purpose: neighbours are near zero, for floats also where the sign changes */
    CHECK(residual_of(0x0000, 0xFFFF, 2, LMC__ORDER_INTEGER) == 2);
    CHECK(residual_of(0xFFFF, 0x0000, 2, LMC__ORDER_INTEGER) == 1);
    CHECK(residual_of(0x8000, 0x7FFF, 2, LMC__ORDER_INTEGER) == 2);
    CHECK(residual_of(0x8000, 0x0000, 2, LMC__ORDER_FLOAT) == 1); /* -0 is below +0 */
    CHECK(residual_of(0x3F80, 0x3F7F, 2, LMC__ORDER_FLOAT) == 2);
    CHECK(residual_of(0xBF80, 0xBF7F, 2, LMC__ORDER_FLOAT) == 2); /* away from zero */
}

static void test_split(const lmc__kernels *k, uint64_t *seed)
{
    static uint8_t rows[8][MAX_N + 8];
    unsigned width, p;
    int order;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (order = 0; order < 3; order++)
            for (n = 1; n < MAX_N; n += n < 300 ? 1 : 37) {
                uint8_t *src = t_tail(&guard_a, n * width), *dst = t_tail(&guard_b, n * width);
                uint32_t counts[8][256], expected[8][256];
                lmc__planes planes;
                lmc__const_planes back;
                const lmc__join_source source = {&back, NULL, width, (enum lmc__order)order};
                lmc__streaming streaming;
                uint64_t sum = 0;
                uint32_t crc;
                int ok = 1;
                fill(src, n * width, seed, 256);
                memset(counts, 0, sizeof counts);
                memset(expected, 0, sizeof expected);
                for (p = 0; p < 8; p++) {
                    memset(rows[p], 0xEE, sizeof rows[p]);
                    planes.row[p] = rows[p] + MAX_N - n; /* exactly n bytes */
                    back.row[p] = planes.row[p];
                }
                k->split(&planes, src, n, width, (enum lmc__order)order);
                for (i = 0; i < n; i++) {
                    const uint64_t v =
                        residual_of(get_element(src, i, width), 0, width, (enum lmc__order)order);
                    for (p = 0; p < width; p++) {
                        ok &= planes.row[p][i] == (uint8_t)(v >> 8 * p);
                        expected[p][v >> 8 * p & 255]++;
                    }
                }
                for (p = 0; p < width; p++)
                    ok &= rows[p][MAX_N] == 0xEE && (n == MAX_N || rows[p][MAX_N - n - 1] == 0xEE);
                t_note("%s, width %u, order %d, n %lu", lmc_tier_name(k->tier), width, order,
                       (unsigned long)n);
                CHECK(ok);
                streaming.is_on = (int)(n & 1);
                streaming.next = src;
                streaming.next_size = n & 1 ? n : 0;
                streaming.sum = n & 2 ? &sum : NULL;
                crc = k->join_root(k, dst, source, n, streaming);
                CHECK(are_sums(&streaming, crc, src, n * width));
                CHECK(memcmp(dst, src, n * width) == 0);
                for (p = 0; p < width; p++) lmc__count_bytes(counts[p], planes.row[p], n);
                CHECK(memcmp(counts, expected, sizeof counts) == 0);
            }
}

/* A split whose plane `plane` goes to a root, and its inverse, compared with the separate kernels
 * of the scalar tier. */
static void test_roots(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t counts[] = {1,   7,   8,    63,   64,   65,   127,
                                    128, 200, 1024, 4095, 4096, 4097, 9000};
    static uint8_t rows[8][9000 + LMC__PAD], expected[8][9000 + LMC__PAD], mask[2][9000 / 8 + 1],
        lists[2][2][9000 + LMC__PAD], joined[8 * 9000 + 128];
    unsigned width, plane, p, side;
    int o;
    size_t c, i;
    for (width = 1; width <= 8; width *= 2)
        for (o = 0; o < 3; o++)
            for (c = 0; c < sizeof counts / sizeof *counts; c++)
                for (plane = 0; plane < width; plane++)
                    for (side = 0; side < 4; side++) {
                        const enum lmc__order order = (enum lmc__order)o;
                        const size_t n = counts[c];
                        /* at the guard page, or anywhere in a line and in a word */
                        uint8_t *src = t_tail(&guard_a,
                                              n * width + t_below(seed, 2) * t_below(seed, 64)),
                                table[256], back[256], *dst;
                        lmc__planes planes;
                        lmc__const_planes joins;
                        lmc__parted parted;
                        lmc__merged merged;
                        uint64_t sum = 0, split_sum = 0;
                        lmc__streaming streaming = {0, NULL, 0, NULL};
                        size_t n_right, shift = (size_t)t_below(seed, 64);
                        fill(src, n * width, seed, 256);
                        for (i = 0; i < 256; i++) table[i] = (uint8_t)i;
                        for (i = 255; i > 0; i--) {
                            const size_t j = (size_t)t_below(seed, (unsigned)i + 1);
                            const uint8_t t = table[i];
                            table[i] = table[j];
                            table[j] = t;
                        }
                        for (i = 0; i < 256; i++) back[table[i]] = (uint8_t)i;
                        /* by definition */
                        for (p = 0; p < width; p++) planes.row[p] = expected[p];
                        lmc__split_scalar(&planes, src, n, width, order);
                        memset(mask, 0, sizeof mask);
                        parted.split = 1 + (unsigned)t_below(seed, 255);
                        lmc__map_scalar(rows[0], expected[plane], n, table);
                        n_right = lmc__partition_scalar(mask[0], lists[0][0], lists[0][1], rows[0],
                                                        n, parted.split);
                        /* the kernel; the left list in the plane's row, as the codec has it */
                        for (p = 0; p < width; p++)
                            planes.row[p] =
                                p == plane ? lists[1][0] : t_tail(&guard_b, 8 * 9100) + 9100 * p;
                        if (plane != 0) planes.row[0] = t_tail(&guard_c, n); /* exactly n bytes */
                        parted.plane = plane;
                        parted.table = table;
                        parted.mask = mask[1];
                        parted.left = side & 1 ? lists[1][0] : NULL;
                        parted.right = side & 2 ? lists[1][1] : NULL;
                        t_note("%s, width %u, order %d, n %lu, plane %u, side %u",
                               lmc_tier_name(k->tier), width, order, (unsigned long)n, plane, side);
                        CHECK(k->split_root(k, &planes, &parted, src, n, width, order,
                                            side & 1 ? &split_sum : NULL) ==
                              lmc__crc32c_scalar(0, src, n * width));
                        CHECK(!(side & 1) || split_sum == sum64_model(src, n * width));
                        CHECK(parted.n_right == n_right &&
                              memcmp(mask[0], mask[1], (n + 7) / 8) == 0);
                        CHECK(!parted.left || memcmp(lists[0][0], lists[1][0], n - n_right) == 0);
                        CHECK(!parted.right || memcmp(lists[0][1], lists[1][1], n_right) == 0);
                        for (p = 0; p < width; p++)
                            CHECK(p == plane || memcmp(planes.row[p], expected[p], n) == 0);
                        /* and back: lists, or a constant for one side or both */
                        lmc__map_scalar(lists[0][0], lists[0][0], n - n_right, back);
                        lmc__map_scalar(lists[0][1], lists[0][1], n_right, back);
                        for (p = 0; p < width; p++)
                            joins.row[p] = p == plane ? rows[1] : planes.row[p];
                        merged.plane = plane;
                        merged.row = rows[1];
                        merged.mask = mask[0];
                        merged.left.list = side & 1 ? lists[0][0] : NULL;
                        merged.right.list = side & 2 ? lists[0][1] : NULL;
                        merged.left.value = 17;
                        merged.right.value = 34;
                        lmc__merge_scalar(expected[plane], mask[0], n, merged.left, merged.right);
                        for (p = 0; p < width; p++) planes.row[p] = expected[p];
                        for (p = 0; p < width; p++)
                            joins.row[p] = p == plane ? rows[1] : expected[p];
                        memset(joined, 0xEE, sizeof joined);
                        dst = joined + 64 + shift;
                        if (t_below(seed, 2)) {
                            streaming.is_on = 1;
                            streaming.next = src;
                            streaming.next_size = n * width;
                        }
                        if (t_below(seed, 2)) streaming.sum = &sum;
                        {
                            const lmc__join_source source = {&joins, &merged, width, order};
                            const uint32_t crc = k->join_root(k, dst, source, n, streaming);
                            uint8_t *again = t_tail(&guard_b, n * width);
                            lmc__const_planes plain;
                            for (p = 0; p < width; p++) plain.row[p] = expected[p];
                            lmc__join_scalar(again, &plain, n, width, order);
                            LMC__FENCE_STREAMS();
                            CHECK(memcmp(dst, again, n * width) == 0 &&
                                  are_sums(&streaming, crc, again, n * width));
                            CHECK(dst[-1] == 0xEE && dst[n * width] == 0xEE);
                        }
                    }
}

/* Lists: LMC__PAD bytes of slack, then the guard. */
static void test_lists(const lmc__kernels *k, uint64_t *seed)
{
    uint8_t *const left = t_tail(&guard_b, 2 * (MAX_N + LMC__PAD)), *const right =
                                                                        left + MAX_N + LMC__PAD;
    uint8_t mask[MAX_N / 8 + 2], symbols[256], plain[MAX_N];
    size_t n, i;
    for (n = 1; n < MAX_N; n += n < 300 ? 1 : 37) {
        uint8_t *list = t_tail(&guard_a, n + LMC__PAD), *out = t_tail(&guard_c, n + LMC__PAD);
        const unsigned split = 1 + (unsigned)t_below(seed, 255);
        /* both sides, few right, none right */
        const unsigned limit = n % 3 == 0 ? 256 : n % 3 == 1 ? split + 1 : split;
        unsigned depth, side;
        fill(list, n + LMC__PAD, seed, 256);
        fill(list, n, seed, limit);
        memcpy(plain, list, n);
        t_note("%s, n %lu, split %u, limit %u", lmc_tier_name(k->tier), (unsigned long)n, split,
               limit);

        /* which lists are wanted; with both, the left one in place */
        for (side = 0; side < 4; side++) {
            const int want_left = (side & 1) != 0, want_right = side >> 1 != 0;
            uint8_t *const in_place = side == 3 ? list : left;
            size_t n_left = 0, n_right = 0, found;
            int ok = 1;
            memset(mask, 0xEE, sizeof mask);
            found = k->partition(mask, want_left ? in_place : NULL, want_right ? right : NULL, list,
                                 n, split);
            for (i = 0; i < n; i++) {
                const int bit = plain[i] >= split;
                ok &= (mask[i / 8] >> (i % 8) & 1) == bit;
                if (bit) {
                    ok &= !want_right || right[n_right] == plain[i];
                    n_right++;
                } else {
                    ok &= !want_left || in_place[n_left] == plain[i];
                    n_left++;
                }
            }
            ok &= found == n_right && mask[(n + 7) / 8] == 0xEE &&
                  (n % 8 == 0 || mask[n / 8] >> n % 8 == 0);
            CHECK(ok);
            CHECK(k->count_ones(mask, (n + 7) / 8) == n_right);
            if (side == 3) { /* by the same mask, which is given */
                memcpy(list, plain, n);
                memset(right, 0xEE, n);
                CHECK(k->partition(mask, NULL, right, list, n, 0) == n_right);
                for (ok = 1, i = n_right = 0; i < n; i++)
                    ok &= !(mask[i / 8] >> (i % 8) & 1) || plain[i] == right[n_right++];
                CHECK(ok && memcmp(list, plain, n) == 0);
                memset(right, 0xEE, n);
                CHECK(k->partition(mask, list, right, list, n, 0) == n_right);
                for (i = n_left = n_right = 0; i < n; i++)
                    ok &= plain[i] ==
                          (mask[i / 8] >> (i % 8) & 1 ? right[n_right++] : list[n_left++]);
                CHECK(ok);
            }
            if (side == 3) { /* back, from lists and from constants */
                lmc__side a, b;
                unsigned constant;
                for (constant = 0; constant < 4; constant++) {
                    a.list = constant & 1 ? NULL : list;
                    b.list = constant & 2 ? NULL : right;
                    a.value = 3;
                    b.value = 250;
                    k->merge(out, mask, n, a, b);
                    for (ok = 1, i = 0; i < n; i++)
                        ok &= out[i] == (plain[i] >= split ? (b.list ? plain[i] : 250)
                                         : a.list          ? plain[i]
                                                           : 3);
                    CHECK(ok);
                }
                memcpy(list, plain, n);
            }
        }

        fill(symbols, sizeof symbols, seed, 256);
        k->map(out, list, n, symbols);
        for (side = 1, i = 0; i < n; i++) side &= out[i] == symbols[plain[i]];
        CHECK(side);
        memcpy(out, list, n);
        k->map(out, out, n, symbols); /* in place */
        for (side = 1, i = 0; i < n; i++) side &= out[i] == symbols[plain[i]];
        CHECK(side);

        for (depth = 1; depth <= 6; depth++) {
            const size_t row = (n + 7) / 8;
            const unsigned first = (unsigned)t_below(seed, 257 - (1u << depth));
            uint8_t *const exact = t_tail(&guard_b, depth * row), *const exact_symbols = t_tail(
                                                                      &guard_c, (size_t)1 << depth);
            int ok = 1;
            unsigned d;
            for (i = 0; i < n; i++)
                list[i] = plain[i] = (uint8_t)(first + t_below(seed, (size_t)1 << depth));
            k->flatten(exact, list, n, first, depth);
            for (i = 0; i < 8 * row; i++)
                for (d = 0; d < depth; d++)
                    ok &= (exact[d * row + i / 8] >> i % 8 & 1) ==
                          (i < n ? (plain[i] - first) >> (depth - 1 - d) & 1u : 0u);
            CHECK(ok);
            fill(exact_symbols, (size_t)1 << depth, seed, 256);
            k->unflatten(list, exact, n, exact_symbols, depth);
            for (ok = 1, i = 0; i < n; i++) ok &= list[i] == exact_symbols[plain[i] - first];
            CHECK(ok);
        }
    }
}

/* All masks of 16 bits, alone and at any place among others; all elements are different bytes. */
static void test_masks(const lmc__kernels *k, uint64_t *seed)
{
    enum { N = 144 };
    uint8_t plain[N], list[N + LMC__PAD], left[N + LMC__PAD], right[N + LMC__PAD],
        out[N + LMC__PAD], mask[N / 8], found[N / 8];
    unsigned bits, alone, wrong = 0;
    for (bits = 0; bits < 65536 && wrong == 0; bits += t_quick ? 13 : 1)
        for (alone = 0; alone < 2; alone++) {
            const size_t n = alone ? 16 : N, place = t_below(seed, n / 8 - 1);
            size_t i, n_left = 0, n_right = 0;
            lmc__side a = {NULL, 0}, b = {NULL, 0};
            for (i = 0; i < n / 8; i++) mask[i] = (uint8_t)t_random(seed);
            mask[place] = (uint8_t)bits;
            mask[place + 1] = (uint8_t)(bits >> 8);
            for (i = 0; i < n; i++)
                plain[i] = list[i] =
                    (uint8_t)(mask[i / 8] >> i % 8 & 1 ? 255 - n_right++ : n_left++);
            t_note("%s, mask %04x at %lu of %lu", lmc_tier_name(k->tier), bits,
                   (unsigned long)place, (unsigned long)n);
            wrong += k->count_ones(mask, n / 8) != n_right;
            wrong += k->partition(found, left, right, list, n,
                                  n_right ? (unsigned)(256 - n_right) : 255) != n_right;
            wrong += memcmp(found, mask, n / 8) != 0;
            for (i = 0; i < n_left; i++) wrong += left[i] != i;
            for (i = 0; i < n_right; i++) wrong += right[i] != 255 - i;
            a.list = left;
            b.list = right;
            k->merge(out, mask, n, a, b);
            wrong += memcmp(out, plain, n) != 0;
        }
    CHECK(wrong == 0);
}

static void test_constant(const lmc__kernels *k, uint64_t *seed)
{
    size_t n;
    for (n = 1; n < MAX_N; n++) {
        uint8_t *p = t_tail(&guard_a, n);
        memset(p, (int)t_below(seed, 256), n);
        t_note("%s, n %lu", lmc_tier_name(k->tier), (unsigned long)n);
        CHECK(lmc__is_constant(p, n));
        if (n < 2) continue;
        p[t_below(seed, n)] ^= 0x10;
        CHECK(!lmc__is_constant(p, n));
    }
}

/* Tables that count up except for one entry, which may be any of a row of 16. */
static void test_map(const lmc__kernels *k)
{
    uint8_t table[256], src[256], *const dst = t_tail(&guard_a, sizeof src);
    unsigned i, at;
    for (at = 0; at < 256; at++) {
        for (i = 0; i < 256; i++) {
            src[i] = (uint8_t)i;
            table[i] = (uint8_t)(i == at ? i ^ 0x55 : i);
        }
        t_note("%s, map of %u", lmc_tier_name(k->tier), at);
        k->map(dst, src, sizeof src, table);
        CHECK(memcmp(dst, table, sizeof table) == 0);
    }
}

/* -- residuals in classes: spec 5.2 in plain C -- */

#define MAX_GROUPED 9000u

static unsigned key_of(uint64_t b, unsigned width)
{
    return (unsigned)(width == 1 ? b << 1 | b >> 7 : b >> (8 * width - 9)) & 255;
}

/* Any bits, those of numbers near one, and zeros, infinities, NaNs and their neighbours. */
static uint64_t some_element(uint64_t *seed, unsigned width, unsigned kind)
{
    const uint64_t s_bit = UINT64_C(1) << (8 * width - 1), all = s_bit - 1 + s_bit;
    const uint64_t infinity = width == 1   ? 0x78
                              : width == 2 ? 0x7F80
                              : width == 4 ? 0x7F800000
                                           : UINT64_C(0x7FF) << 52;
    const uint64_t v = t_random(seed);
    switch (kind == 0 ? v >> 60 : kind) {
    case 1:
        return (s_bit / 2 - (v >> 8 & 0x3FF) + (v & 1 ? s_bit : 0)) &
               all; /* 2.0 and below, both signs */
    case 2: return (infinity + (v >> 8 & 3) - 1 + (v & 1 ? s_bit : 0)) & all;
    case 3: return ((v >> 8 & 3) - 1 + (v & 1 ? s_bit : 0)) & all;
    default: return v >> 4 & all;
    }
}

static void set_some_grouping(lmc__grouping *grouping, uint64_t *seed, unsigned width,
                              const uint8_t *base, size_t n)
{
    const unsigned kind = (unsigned)t_below(seed, 4);
    uint8_t is_threshold[256] = {0};
    unsigned c, key;
    memset(grouping, 0, sizeof *grouping);
    grouping->n_classes = 1 + (unsigned)t_below(seed, LMC__MAX_CLASSES);
    grouping->n_natural = t_below(seed, 2) ? 0 : (unsigned)t_below(seed, width);
    for (c = 1; c < grouping->n_classes;) {
        switch (kind) {
        case 0: key = c; break;       /* from 1 on */
        case 1: key = 256 - c; break; /* up to 255 */
        case 2:
            key = key_of(get_element(base, t_below(seed, n), width), width);
            break; /* among those that occur */
        default: key = 1 + (unsigned)t_below(seed, 255);
        }
        if (key == 0 || is_threshold[key]) key = 1 + (unsigned)t_below(seed, 255);
        c += !is_threshold[key];
        is_threshold[key] = 1;
    }
    for (c = 0, key = 1; key < 256; key++)
        if (is_threshold[key]) grouping->threshold[c++] = (uint8_t)key;
}

/* Some elements have changed: the list of them, and the rank of each in its class. */
static void test_ranks(const lmc__kernels *k, uint64_t *seed, const uint8_t *base, size_t n,
                       unsigned width, const lmc__grouping *grouping, const uint8_t *class_of)
{
    static uint32_t expected[MAX_GROUPED], listed[MAX_GROUPED + 17], ranks[MAX_GROUPED],
        want[LMC__MAX_CLASSES][MAX_GROUPED];
    static uint8_t now[8 * MAX_GROUPED], before[8 * MAX_GROUPED];
    lmc__changed changed;
    uint8_t *const src = t_tail(&guard_e, n * width);
    const uint64_t one_in = 1 + t_below(seed, t_below(seed, 2) ? 4 : 100);
    size_t counts[LMC__MAX_CLASSES], next[LMC__MAX_CLASSES] = {0}, n_ones[LMC__MAX_CLASSES] = {0},
                                     n_changed = 0, i;
    uint32_t *ones[LMC__MAX_CLASSES], crc;
    unsigned c;
    memcpy(src, base, n * width);
    for (i = 0; i < n; i++) {
        if (t_below(seed, one_in) == 0) {
            src[i * width + t_below(seed, width)] ^= (uint8_t)(1u << t_below(seed, 8));
            expected[n_changed++] = (uint32_t)i;
            want[class_of[i]][n_ones[class_of[i]]++] = (uint32_t)next[class_of[i]];
        }
        next[class_of[i]]++;
    }
    changed.place = listed;
    changed.now = now;
    changed.before = before;
    memset(listed, 0xEE, sizeof listed);
    memset(now, 0xEE, sizeof now);
    memset(before, 0xEE, sizeof before);
    CHECK(k->list_changes(k, &crc, &changed, n_changed, src, base, n, width) == n_changed);
    CHECK(crc == lmc__crc32c_scalar(0, src, n * width));
    CHECK(memcmp(listed, expected, n_changed * sizeof *listed) == 0);
    CHECK(listed[n_changed + 16] == 0xEEEEEEEE); /* behind the slack */
    for (i = 0; i < n_changed; i++) {
        CHECK(get_element(now, i, width) == get_element(src, expected[i], width));
        CHECK(get_element(before, i, width) == get_element(base, expected[i], width));
    }
    CHECK(n_changed == MAX_GROUPED || (now[n_changed * width] & before[n_changed * width]) == 0xEE);
    if (n_changed)
        CHECK(k->list_changes(k, &crc, &changed, n_changed - 1, src, base, n, width) == SIZE_MAX);
    memset(ranks, 0xEE, sizeof ranks);
    changed.place = expected;
    for (c = 0, i = 0; c < grouping->n_classes; i += n_ones[c++]) ones[c] = ranks + i;
    k->rank_changes(counts, ones, base, n, width, grouping, &changed, n_changed);
    CHECK(memcmp(counts, next, grouping->n_classes * sizeof *counts) == 0);
    for (c = 0; c < grouping->n_classes; c++)
        CHECK(memcmp(ones[c], want[c], n_ones[c] * sizeof *ranks) == 0);
    CHECK(n_changed == MAX_GROUPED || ranks[n_changed] == 0xEEEEEEEE);
}

static void test_group_n(const lmc__kernels *k, uint64_t *seed, unsigned width,
                         enum lmc__order order, size_t n)
{
    static uint8_t expected[LMC__MAX_CLASSES][8][MAX_GROUPED], natural[8][MAX_GROUPED],
        class_of[MAX_GROUPED];
    /* bytes between the end of the elements and the guard */
    const size_t shift = t_below(seed, 3) ? 0 : t_below(seed, 64);
    uint8_t *const src = t_tail(&guard_a, n * width + shift),
                   *const base = t_tail(&guard_b, n * width + shift / 2), *lists, *rows, *dst;
    const unsigned kind = (unsigned)t_below(seed, 4), near = (unsigned)t_below(seed, 3);
    size_t counts[LMC__MAX_CLASSES], next[LMC__MAX_CLASSES] = {0}, total = 0, i;
    lmc__grouping grouping;
    const lmc__delta_block block = {base, n, width, order, &grouping};
    lmc__classes classes;
    lmc__class_sides sides;
    unsigned c, p, first;
    uint32_t crc;
    int in_place, ok = 1;
    for (i = 0; i < n; i++) {
        const uint64_t b = some_element(seed, width, kind);
        put_element(base, i, width, b);
        put_element(src, i, width,
                    near == 0   ? some_element(seed, width, 0)
                    : near == 1 ? b
                                : b + t_below(seed, 5) - 2);
    }
    set_some_grouping(&grouping, seed, width, base, n);
    first = grouping.n_natural;
    t_note("%s, width %u, order %d, n %lu, %u classes, %u natural, kind %u, near %u, shift %lu",
           lmc_tier_name(k->tier), width, (int)order, (unsigned long)n, grouping.n_classes, first,
           kind, near, (unsigned long)shift);
    for (i = 0; i < n; i++) { /* what it means */
        const uint64_t b = get_element(base, i, width),
                       r = residual_of(get_element(src, i, width), b, width, order);
        for (c = 0; c + 1 < grouping.n_classes && key_of(b, width) >= grouping.threshold[c]; c++) {}
        class_of[i] = (uint8_t)c;
        for (p = 0; p < width; p++)
            *(p < first ? &natural[p][i] : &expected[c][p][next[c]]) = (uint8_t)(r >> 8 * p);
        next[c]++;
    }

    test_ranks(k, seed, base, n, width, &grouping, class_of);
    memset(counts, 0xEE, sizeof counts);
    k->count_classes(counts, base, n, width, &grouping, NULL);
    CHECK(memcmp(counts, next, grouping.n_classes * sizeof *counts) == 0);

    /* lists with one byte more than their slack, and planes of exactly n bytes with one between
     * them */
    for (c = 0; c < grouping.n_classes; c++) total += (width - first) * (next[c] + LMC__PAD + 1);
    lists = t_tail(&guard_c, total);
    rows = t_tail(&guard_d, first * (n + 1));
    memset(lists, 0xEE, total);
    memset(rows, 0xEE, first * (n + 1));
    for (p = 0; p < first; p++) classes.row[0][p] = rows + 1 + p * (n + 1);
    for (total = 0, c = 0; c < grouping.n_classes; c++)
        for (p = first; p < width; p++, total += next[c] + LMC__PAD + 1)
            classes.row[c][p] = lists + 1 + total;
    CHECK(k->group(k, &classes, src, &block) == lmc__crc32c_scalar(0, src, n * width));
    for (p = 0; p < first; p++)
        ok &= memcmp(classes.row[0][p], natural[p], n) == 0 && classes.row[0][p][-1] == 0xEE;
    for (c = 0; c < grouping.n_classes; c++)
        for (p = first; p < width; p++)
            ok &= memcmp(classes.row[c][p], expected[c][p], next[c]) == 0 &&
                  classes.row[c][p][-1] == 0xEE;
    CHECK(ok);

    /* and back, with constants in place of some lists; what is behind the lists must not matter */
    for (c = 0; c < grouping.n_classes; c++)
        for (p = 0; p < width; p++) {
            lmc__side *const side = &sides.side[c][p];
            const int constant = p >= first && (next[c] == 0 || t_below(seed, 3) == 0);
            if (p < first && c > 0) continue;
            side->list = constant ? NULL : classes.row[c][p];
            side->value = (uint8_t)(constant && t_below(seed, 2) ? t_random(seed) : 0);
            if (p >= first) fill(classes.row[c][p] + next[c], LMC__PAD, seed, 256);
        }
    memset(next, 0, sizeof next);
    for (i = 0; i < n; i++) { /* what it means, to src */
        uint64_t r = 0;
        c = class_of[i];
        for (p = 0; p < width; p++) {
            const lmc__side side = sides.side[p < first ? 0 : c][p];
            r |= (uint64_t)(p < first   ? natural[p][i]
                            : side.list ? expected[c][p][next[c]]
                                        : side.value)
                 << 8 * p;
        }
        next[c]++;
        put_element(src, i, width, element_of(r, get_element(base, i, width), width, order));
    }
    for (in_place = 0; in_place < 2; in_place++) {
        lmc__streaming streaming = lmc__no_streaming;
        streaming.is_on = (int)t_below(seed, 2);
        streaming.next = src;
        streaming.next_size = streaming.is_on ? n * width : 0;
        dst = in_place ? base : t_tail(&guard_e, n * width + shift);
        if (!in_place) memset(guard_e.data, 0xEE, guard_e.cap);
        crc = k->ungroup(k, dst, &sides, &block, streaming);
        LMC__FENCE_STREAMS();
        CHECK(memcmp(dst, src, n * width) == 0);
        CHECK(crc == lmc__crc32c_scalar(0, src, n * width));
        CHECK(in_place || (dst[-1] == 0xEE && (shift == 0 || dst[n * width] == 0xEE)));
    }
}

static void test_group(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t counts[] = {191,  192,  193,  255,  256,  257,  511,  512,
                                    513,  1023, 1024, 1025, 2047, 2048, 2049, 4095,
                                    4096, 4097, 8191, 8192, 8193, 9000};
    const size_t n_counts = sizeof counts / sizeof *counts;
    unsigned width, repeat;
    int order;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (order = LMC__ORDER_INTEGER; order <= LMC__ORDER_FLOAT; order++) {
            for (n = 1; n <= 131; n += t_quick ? 7 : 1)
                for (repeat = 0; repeat < 4; repeat++)
                    test_group_n(k, seed, width, (enum lmc__order)order, n);
            for (i = 0; i < n_counts; i += t_quick ? 5 : 1)
                for (repeat = 0; repeat < 4; repeat++)
                    test_group_n(k, seed, width, (enum lmc__order)order, counts[i]);
        }
}

/* Residuals of all pairs of bytes; of two bytes those of all elements against some predictions: as
 * vectors, and back. */
static void test_orders(const lmc__kernels *k, uint64_t *seed)
{
    static const uint32_t bases[] = {0,      1,      2,      0x7FFE, 0x7FFF, 0x8000, 0x8001,
                                     0x8002, 0xFFFE, 0xFFFF, 0x7F80, 0xFF80, 0x3F80, 0xBF80};
    enum { N = 8192, N_BASES = sizeof bases / sizeof *bases };
    static uint8_t rows[2][N + LMC__PAD];
    const unsigned n_bases = t_brief ? N_BASES : N_BASES + 50;
    uint8_t *const src = t_tail(&guard_a, 2 * N), *const base = t_tail(&guard_b, 2 * N),
                   *const dst = t_tail(&guard_e, 2 * N);
    lmc__grouping grouping;
    lmc__classes classes;
    lmc__class_sides sides;
    unsigned width, round, part, p, wrong = 0;
    int o;
    size_t i;
    memset(&grouping, 0, sizeof grouping);
    memset(&sides, 0, sizeof sides);
    grouping.n_classes = 1;
    for (p = 0; p < 2; p++) sides.side[0][p].list = classes.row[0][p] = rows[p];
    for (width = 1; width <= 2; width++)
        for (round = 0; round < (width == 1 ? 1 : n_bases); round++) {
            const uint32_t b = round < N_BASES ? bases[round] : (uint32_t)t_below(seed, 65536);
            for (part = 0; part < 65536 / N; part++)
                for (o = LMC__ORDER_INTEGER; o <= LMC__ORDER_FLOAT; o++) {
                    const enum lmc__order order = (enum lmc__order)o;
                    const lmc__delta_block block = {base, N, width, order, &grouping};
                    for (i = 0; i < N; i++) {
                        put_element(src, i, width, part * N + i);
                        put_element(base, i, width, width == 1 ? (part * N + i) >> 8 : b);
                    }
                    k->group(k, &classes, src, &block);
                    for (i = 0; i < N; i++) {
                        const uint64_t r = residual_of(get_element(src, i, width),
                                                       get_element(base, i, width), width, order);
                        for (p = 0; p < width; p++) wrong += rows[p][i] != (uint8_t)(r >> 8 * p);
                    }
                    k->ungroup(k, dst, &sides, &block, lmc__no_streaming);
                    wrong += memcmp(dst, src, N * width) != 0;
                }
        }
    t_note("%s, orders", lmc_tier_name(k->tier));
    CHECK(wrong == 0);
}

/* changes of a share of 1 in `share` elements, or all with 1, against the definition in plain C.
 * What stands behind the marks must not matter; dst is exact. */
static void test_patch_n(const lmc__kernels *k, uint64_t *seed, unsigned width,
                         enum lmc__order order, size_t n, unsigned share)
{
    static uint32_t at[LMC__MAX_CLASSES][MAX_GROUPED + 3 + LMC__PAD / 4], place[MAX_GROUPED];
    static uint8_t before[8 * MAX_GROUPED + 8], old[8 * MAX_GROUPED];
    uint8_t *tally;
    const size_t shift = t_below(seed, 3) ? 0 : t_below(seed, 64);
    uint8_t *const src = t_tail(&guard_a, n * width + shift),
                   *const base = t_tail(&guard_b, n * width + shift / 2), *dst, *residuals;
    const unsigned kind = (unsigned)t_below(seed, 4);
    size_t counts[LMC__MAX_CLASSES], n_of[LMC__MAX_CLASSES] = {0},
                                     n_changed[LMC__MAX_CLASSES] = {0}, total = 0, i;
    lmc__grouping grouping;
    const lmc__delta_block block = {base, n, width, order, &grouping};
    lmc__patches changes;
    unsigned c;
    int in_place;
    for (i = 0; i < n; i++) put_element(base, i, width, some_element(seed, width, kind));
    set_some_grouping(&grouping, seed, width, base, n);
    t_note("patch, %s, width %u, order %d, n %lu, %u classes, kind %u, 1 in %u, shift %lu",
           lmc_tier_name(k->tier), width, (int)order, (unsigned long)n, grouping.n_classes, kind,
           share, (unsigned long)shift);
    residuals = t_tail(&guard_c, n * width + LMC__PAD); /* class by class, then a list's slack */
    for (c = 0; c < grouping.n_classes; c++) {
        const uint8_t low = c ? grouping.threshold[c - 1] : 0;
        const unsigned high = c + 1 < grouping.n_classes ? grouping.threshold[c] : 256;
        changes.at[c] = at[c];
        changes.residual[c] = residuals + total * width;
        for (i = 0; i < n; i++) {
            const uint64_t b = get_element(base, i, width);
            const unsigned key = key_of(b, width);
            uint64_t r = 0;
            if (key < low || key >= high) continue;
            if (t_below(seed, share) == 0) {
                r = t_random(seed) >> (t_below(seed, 2) ? 0 : 62);
                at[c][n_changed[c]++] = (uint32_t)n_of[c];
                put_element(residuals, total++, width, r);
                r = get_element(residuals, total - 1, width);
            }
            n_of[c]++;
            put_element(src, i, width, element_of(r, b, width, order));
        }
        /* a number that the class does not have, and the mark */
        i = n_changed[c];
        if (t_below(seed, 4) == 0) at[c][i++] = (uint32_t)(n_of[c] + t_below(seed, 70));
        at[c][i++] = LMC__NO_CHANGE;
        at[c][i] = (uint32_t)t_below(seed, n);
    }
    i = (grouping.n_classes - 1) * lmc__tally_row(n);
    tally = t_tail(&guard_d, i);
    memset(tally, 0xEE, i);
    k->count_classes(counts, base, n, width, &grouping, tally);
    CHECK(memcmp(counts, n_of, grouping.n_classes * sizeof *counts) == 0);
    for (in_place = 0; in_place < 2; in_place++) {
        lmc__streaming streaming = lmc__no_streaming;
        lmc__undo undo;
        uint32_t crc;
        streaming.is_on = (int)t_below(seed, 2);
        streaming.next = src;
        streaming.next_size = streaming.is_on ? n * width : 0;
        dst = in_place ? base : t_tail(&guard_e, n * width + shift);
        if (!in_place) memset(guard_e.data, 0xEE, guard_e.cap);
        memcpy(old, base, n * width);
        memset(&before[total * width], 0xEE, 8);
        undo.place = place;
        undo.before = before;
        undo.n = 0;
        crc = k->patch(k, dst, &changes, &block, tally, in_place ? &undo : NULL, streaming);
        LMC__FENCE_STREAMS();
        CHECK(memcmp(dst, src, n * width) == 0);
        CHECK(crc == lmc__crc32c_scalar(0, src, n * width));
        CHECK(in_place || (dst[-1] == 0xEE && (shift == 0 || dst[n * width] == 0xEE)));
        if (!in_place) continue;
        CHECK(undo.n == total && before[total * width] == 0xEE);
        lmc__put_back(dst, &undo, width);
        CHECK(memcmp(dst, old, n * width) == 0);
    }
}

static void test_patch(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t counts[] = {191,  192,  255,  256,  2047, 2048, 2049,
                                    2111, 2112, 4095, 4096, 4097, 8191, 9000};
    static const unsigned shares[] = {1, 2, 30, 300};
    const size_t n_counts = sizeof counts / sizeof *counts;
    unsigned width, repeat;
    int order;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (order = LMC__ORDER_INTEGER; order <= LMC__ORDER_FLOAT; order++)
            for (repeat = 0; repeat < 4; repeat++) {
                for (n = 1; n <= 131; n += t_quick ? 7 : 1)
                    test_patch_n(k, seed, width, (enum lmc__order)order, n, shares[repeat]);
                for (i = 0; i < n_counts; i += t_quick ? 3 : 1)
                    test_patch_n(k, seed, width, (enum lmc__order)order, counts[i], shares[repeat]);
            }
}

/* -- codes with scales: spec/codes.md by integers -- */

/* A number of up to 33 bits times the 24 bits of a scale, rounded to 24 bits, halves to even. */
static uint32_t coded_element(unsigned code, uint32_t scale, const lmc__code_form *form)
{
    const unsigned sign = code >> 7, m = form->mantissa,
                   magnitude = m == 7 && sign ? 256 - code : code & 127,
                   exponent = m < 7 ? magnitude >> m : 0, low = magnitude - (exponent << m);
    const uint64_t number = exponent ? (uint64_t)(low + (1u << m)) << (exponent - 1) : low,
                   product = number * ((scale & 0x7FFFFF) | 0x800000);
    uint32_t bits = 0;
    if (number) {
        unsigned shift = 0;
        uint64_t v, rest;
        while (product >> shift >= 1 << 24) shift++;
        v = product >> shift;
        rest = product - (v << shift);
        if (2 * rest > (uint64_t)1 << shift || (2 * rest == (uint64_t)1 << shift && (v & 1))) v++;
        bits = (uint32_t)((((uint64_t)(scale >> 23) + shift) << 23) + v - 0x800000); /* may carry */
    }
    bits |= (uint32_t)sign << 31;
    if (form->width == 4) return bits;
    return form->is_half ? lmc__to_f16(bits) : lmc__to_bf16(bits);
}

static void test_scaled(const lmc__kernels *k, uint64_t *seed)
{
    static const uint32_t some[] = {LMC__MIN_SCALE, LMC__MAX_CODED_SCALE, 0x6DFFFFFF, 0x3F800000};
    lmc__code_form form;
    uint32_t scales[MAX_N / 16 + 2];
    unsigned kind;
    for (kind = 0; kind < 6 * 3; kind++) {
        size_t n, i;
        form.mantissa = 2 + kind / 3;
        form.width = kind % 3 ? 2 : 4;
        form.is_half = kind % 3 == 2;
        lmc__set_numbers(&form);
        for (n = 1; n < MAX_N; n += 1 + n / 128) {
            uint8_t *const codes = t_tail(&guard_a, n), *const dst =
                                                            t_tail(&guard_b, n * form.width);
            const size_t first = 1 + t_below(seed, t_below(seed, 2) ? 40 : 300);
            size_t wrong = 0;
            form.group_size = 16 + t_below(seed, t_below(seed, 2) ? 3 : 300);
            if (form.group_size < first) form.group_size = first;
            fill(codes, n, seed, 256);
            for (i = 0; i < MAX_N / 16 + 2; i++) {
                const uint64_t v = t_random(seed);
                scales[i] = some[v & 3];
                if (v & 4) /* about those whose products are F16 and halves of the least ones */
                    scales[i] = 0x31000000 + (uint32_t)(v >> 8) % 0x15000000;
                if ((v & 12) == 12) scales[i] &= 0xFFFF0000u; /* exact products, and ties */
            }
            t_note("%s, mantissa %u, form %u, n %lu, first %lu, groups of %lu",
                   lmc_tier_name(k->tier), form.mantissa, kind % 3, (unsigned long)n,
                   (unsigned long)first, (unsigned long)form.group_size);
            k->restore_codes(dst, codes, n, &form, scales, first);
            for (i = 0; i < n; i++)
                wrong +=
                    get_element(dst + i * form.width, 0, form.width) !=
                    coded_element(codes[i],
                                  scales[i < first ? 0 : 1 + (i - first) / form.group_size], &form);
            CHECK(wrong == 0);
        }
    }
}

void t_test_kernels(void)
{
    uint64_t seed = 20;
    int tier;
    guard_a = t_new_guard(140000);
    guard_b = t_new_guard(8 * 9100);
    guard_c = t_new_guard(8 * (MAX_GROUPED + LMC__MAX_CLASSES * (LMC__PAD + 1)));
    guard_d = t_new_guard(8 * (MAX_GROUPED + 1));
    guard_e = t_new_guard(8 * MAX_GROUPED + 128);
    test_combine();
    test_residuals();
    test_messages(&seed);
#if LMC__NEON /* the tables that this machine is too good for */
    test_crc(&lmc__kernels_neon_only, &seed);
    test_sha256(&lmc__kernels_neon_only, &seed);
#endif
#if LMC__X86
    if (lmc__find_kernels(LMC_TIER_AVX2)) {
        test_roots(lmc__kernels_avx2, &seed);
        test_patch(lmc__kernels_avx2, &seed);
    }
#endif
    for (tier = 0; tier < LMC__N_TIERS; tier++) {
        const lmc__kernels *k = lmc__find_kernels((enum lmc_tier)tier);
        if (k == NULL) {
            printf("tier %s: not on this machine\n", lmc_tier_name((enum lmc_tier)tier));
            continue;
        }
        CHECK((int)k->tier == tier);
        test_crc(k, &seed);
        test_sum64(k, &seed);
        test_sha256(k, &seed);
        test_split(k, &seed);
        test_roots(k, &seed);
        test_lists(k, &seed);
        test_masks(k, &seed);
        test_constant(k, &seed);
        test_map(k);
        test_orders(k, &seed);
        test_group(k, &seed);
        test_patch(k, &seed);
        test_scaled(k, &seed);
    }
}
