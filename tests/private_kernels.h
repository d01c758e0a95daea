/* private_kernels.h - every kernel of every tier of this machine: the scalar one against its
 * definition in plain C, the others against the scalar one; at all small counts, with exact buffers
 * between guard pages where a kernel promises exactness. Included by t_lmc.c, which sees what is
 * private to lmc.h. */
#include "t.h"

#define MAX_N 700u

static t_guard guard_a, guard_b, guard_c, guard_d, guard_e;

static void fill(uint8_t *p, size_t size, uint64_t *seed, unsigned limit)
{
    size_t i;
    for (i = 0; i < size; i++) p[i] = (uint8_t)t_below(seed, limit);
}

static void test_crc(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t sizes[] = {8183,  8184,  8185,  8191,  8192,  8193,
                                   16368, 16384, 16392, 40000, 131072};
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

/* By its definition, bit by bit. */
static uint64_t crc64_model(uint64_t crc, const uint8_t *p, size_t size)
{
    int bit;
    for (crc = ~crc; size != 0; size--) {
        crc ^= *p++;
        for (bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT64_C(0x9A6C9329AC4BC9B5) : 0);
    }
    return ~crc;
}

/* The scalar code against the definition, other tiers against the scalar code: of all small sizes
 * at all places of a line, of sizes around those of lanes, and in two parts. */
static void test_crc64(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t sizes[] = {8183, 8184, 8185, 8192, 16368, 16384, 40000, 131072, 139000};
    const size_t most = 1100, step = t_quick ? 7 : 1;
    uint8_t *const all = t_tail(&guard_a, 140000);
    size_t size, place, i;
    fill(all, 140000, seed, 256);
    CHECK(k->crc64(0, (const uint8_t *)"123456789", 9) == UINT64_C(0xAE8B14860A799888));
    for (size = 0; size <= most; size++) {
        const uint64_t start = t_random(seed);
        const uint8_t *const exact = all + 140000 - size; /* up to the guard page */
        t_note("%s, %lu bytes", lmc_tier_name(k->tier), (unsigned long)size);
        CHECK(lmc__crc64_scalar(start, exact, size) == crc64_model(start, exact, size));
        CHECK(k->crc64(start, exact, size) == lmc__crc64_scalar(start, exact, size));
        for (place = size % step; place < 64; place += step) {
            if (k->crc64(start, all + place, size) != lmc__crc64_scalar(start, all + place, size))
                break;
        }
        CHECK(place >= 64);
    }
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t start = t_random(seed), want = crc64_model(start, all, sizes[i]);
        CHECK(lmc__crc64_scalar(start, all, sizes[i]) == want);
        CHECK(k->crc64(start, all, sizes[i]) == want);
    }
    for (i = 0; i < 200; i++) {
        const size_t both = 1 + (size_t)t_below(seed, i & 1 ? 2000 : 139999),
                     first = (size_t)t_below(seed, both + 1);
        const uint64_t a = k->crc64(0, all, first), b = k->crc64(0, all + first, both - first),
                       want = lmc__crc64_scalar(0, all, both);
        CHECK(k->crc64(a, all + first, both - first) == want);
        CHECK(lmc__crc64_combine(a, b, (uint32_t)(both - first)) == want);
        CHECK(lmc__crc32c_combine(k->crc32c(0, all, first), k->crc32c(0, all + first, both - first),
                                  both - first) == lmc__crc32c_scalar(0, all, both));
    }
}

/* What join_root has returned, or put to where it was told to. */
static int is_crc(const lmc__streaming *streaming, uint32_t crc, const uint8_t *data, size_t size)
{
    return streaming->crc64 ? *streaming->crc64 == lmc__crc64_scalar(0, data, size)
                            : crc == lmc__crc32c_scalar(0, data, size);
}

/* Of zeros as many as a leaf and a file may have: the CRC of a zero byte, joined with itself over
 * and over, is that of 2, 4, 8 ... */
static void test_combine(void)
{
    static const uint8_t zeros[4096];
    uint64_t crc64 = lmc__crc64_scalar(0, zeros, 1), size;
    uint32_t crc32 = lmc__crc32c_scalar(0, zeros, 1);
    for (size = 1; size < (uint64_t)1 << 62; size *= 2) {
        crc32 = lmc__crc32c_combine(crc32, crc32, size);
        if (size <= 262144) crc64 = lmc__crc64_combine(crc64, crc64, (uint32_t)size);
        if (2 * size > sizeof zeros) continue;
        CHECK(crc32 == lmc__crc32c_scalar(0, zeros, (size_t)(2 * size)));
        CHECK(crc64 == lmc__crc64_scalar(0, zeros, (size_t)(2 * size)));
    }
    {
        uint64_t leaves = 0;
        for (size = 0; size < 2 * 262144; size += sizeof zeros)
            leaves = lmc__crc64_scalar(leaves, zeros, sizeof zeros);
        CHECK(leaves == crc64);
    }
}

static void test_split(const lmc__kernels *k, uint64_t *seed)
{
    static uint8_t rows[8][MAX_N + 8];
    unsigned width, p;
    int rotate;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (rotate = 0; rotate < 2; rotate++)
            for (n = 1; n < MAX_N; n += n < 300 ? 1 : 37) {
                uint8_t *src = t_tail(&guard_a, n * width), *dst = t_tail(&guard_b, n * width);
                uint32_t counts[8][256], expected[8][256];
                lmc__planes planes;
                lmc__const_planes back;
                lmc__streaming streaming;
                uint64_t crc64 = 0;
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
                k->split(&planes, src, n, width, rotate);
                for (i = 0; i < n; i++) {
                    uint64_t v = 0;
                    for (p = 0; p < width; p++) v |= (uint64_t)src[i * width + p] << 8 * p;
                    if (rotate) v = v << 1 | v >> (8 * width - 1);
                    for (p = 0; p < width; p++) {
                        ok &= planes.row[p][i] == (uint8_t)(v >> 8 * p);
                        expected[p][v >> 8 * p & 255]++;
                    }
                }
                for (p = 0; p < width; p++)
                    ok &= rows[p][MAX_N] == 0xEE && (n == MAX_N || rows[p][MAX_N - n - 1] == 0xEE);
                t_note("%s, width %u, rotate %d, n %lu", lmc_tier_name(k->tier), width, rotate,
                       (unsigned long)n);
                CHECK(ok);
                streaming.is_on = (int)(n & 1);
                streaming.next = src;
                streaming.next_size = n & 1 ? n : 0;
                streaming.crc64 = n & 2 ? &crc64 : NULL;
                crc = k->join_root(k, dst, lmc__join_from(&back, NULL, NULL, width, rotate), n,
                                   streaming);
                CHECK(is_crc(&streaming, crc, src, n * width));
                CHECK(memcmp(dst, src, n * width) == 0);
                for (p = 0; p < width; p++) lmc__count_bytes(counts[p], planes.row[p], n);
                CHECK(memcmp(counts, expected, sizeof counts) == 0);
            }
}

/* A split whose plane `plane` goes to a root, and back, against the separate kernels of the scalar
 * tier. */
static void test_roots(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t counts[] = {1,   7,   8,    63,   64,   65,   127,
                                    128, 200, 1024, 4095, 4096, 4097, 9000};
    static uint8_t rows[8][9000 + LMC__PAD], expected[8][9000 + LMC__PAD], mask[2][9000 / 8 + 1],
        lists[2][2][9000 + LMC__PAD], joined[8 * 9000 + 128];
    unsigned width, plane, p, side;
    int rotate;
    size_t c, i;
    for (width = 1; width <= 8; width *= 2)
        for (rotate = 0; rotate < 2; rotate++)
            for (c = 0; c < sizeof counts / sizeof *counts; c++)
                for (plane = 0; plane < width; plane++)
                    for (side = 0; side < 4; side++) {
                        const size_t n = counts[c];
                        uint8_t *src = t_tail(&guard_a, n * width), table[256], back[256], *dst;
                        lmc__planes planes;
                        lmc__const_planes joins;
                        lmc__parted parted;
                        lmc__merged merged;
                        uint64_t crc64 = 0, split_crc64 = 0;
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
                        /* what it means */
                        for (p = 0; p < width; p++) planes.row[p] = expected[p];
                        lmc__split_scalar(&planes, src, n, width, rotate);
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
                        t_note("%s, width %u, rotate %d, n %lu, plane %u, side %u",
                               lmc_tier_name(k->tier), width, rotate, (unsigned long)n, plane,
                               side);
                        CHECK(k->split_root(k, &planes, &parted, src, n, width, rotate,
                                            side & 1 ? &split_crc64 : NULL) ==
                              lmc__crc32c_scalar(0, src, n * width));
                        CHECK(!(side & 1) || split_crc64 == lmc__crc64_scalar(0, src, n * width));
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
                        if (t_below(seed, 2)) streaming.crc64 = &crc64;
                        {
                            const uint32_t crc = k->join_root(
                                k, dst, lmc__join_from(&joins, &merged, NULL, width, rotate), n,
                                streaming);
                            uint8_t *again = t_tail(&guard_b, n * width);
                            lmc__const_planes plain;
                            for (p = 0; p < width; p++) plain.row[p] = expected[p];
                            lmc__join_scalar(again, &plain, n, width, rotate);
                            LMC__FENCE_STREAMS();
                            CHECK(memcmp(dst, again, n * width) == 0 &&
                                  is_crc(&streaming, crc, again, n * width));
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

/* All masks of 16 bits, alone and at any place among others; each element is another byte. */
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

/* Symbols that are still to be merged, and such as are there, joined with what was packed. */
static void test_joint_join(const lmc__kernels *k, uint64_t *seed, const uint8_t *high,
                            const uint8_t *low, const uint8_t *symbols, const uint8_t *packed,
                            size_t n, const lmc__joint *joint)
{
    static uint8_t rows[6][MAX_N + LMC__PAD], list[MAX_N + LMC__PAD], left[MAX_N + LMC__PAD],
        right[MAX_N + LMC__PAD], row[MAX_N + LMC__PAD];
    static uint8_t strips[2][MAX_N + LMC__PAD];
    static uint8_t dst[8 * MAX_N], expected[8 * MAX_N];
    uint64_t crc64 = 0;
    const lmc__streaming streaming = {(int)(n & 1), n & 1 ? packed : NULL,
                                      n & 1 ? joint->packed_size : 0, n & 2 ? &crc64 : NULL};
    uint8_t mask[MAX_N / 8 + 16];
    lmc__joint with = *joint;
    lmc__merged root;
    unsigned width, p;
    int merges;
    for (width = 2; width <= 8; width *= 2)
        for (merges = 0; merges < 2; merges++) {
            lmc__const_planes plain, rest;
            uint32_t crc;
            for (p = 0; p + 2 < width; p++) {
                fill(rows[p], n, seed, 256);
                plain.row[p] = rest.row[p] = rows[p];
            }
            plain.row[width - 2] = low;
            plain.row[width - 1] = high;
            lmc__join_scalar(expected, &plain, n, width, 1);
            memcpy(list, symbols, n);
            k->partition(mask, left, right, list, n, 128);
            root.plane = width - 1;
            root.row = row;
            root.mask = mask;
            root.left.list = left;
            root.right.list = right;
            root.left.value = root.right.value = 0;
            rest.row[width - 2] = row;
            rest.row[width - 1] = merges ? row : symbols;
            with.packed = packed;
            with.high = strips[0];
            with.low = strips[1];
            memset(dst, 0, n * width);
            crc =
                k->join_root(k, dst, lmc__join_from(&rest, merges ? &root : NULL, &with, width, 1),
                             n, streaming);
            LMC__FENCE_STREAMS();
            CHECK(memcmp(dst, expected, n * width) == 0 &&
                  is_crc(&streaming, crc, expected, n * width));
        }
}

/* All counts; random windows of wide symbols; unfolded in pieces of any size. */
static void test_joint(const lmc__kernels *k, uint64_t *seed)
{
    unsigned joined_bits;
    size_t n, i;
    for (joined_bits = 1; joined_bits <= 2; joined_bits++)
        for (n = 1; n < MAX_N; n += n < 300 ? 1 : 37) {
            uint8_t *const high = t_tail(&guard_a, 2 * (MAX_N + LMC__PAD)), *const low = high +
                                                                                         MAX_N +
                                                                                         LMC__PAD;
            uint8_t *const high_back = t_tail(&guard_b, 2 * (MAX_N + LMC__PAD)), *const low_back =
                                                                                     high_back +
                                                                                     MAX_N +
                                                                                     LMC__PAD;
            uint8_t *const symbols = t_tail(&guard_c, 2 * MAX_N + LMC__PAD);
            const unsigned offset = (unsigned)t_below(seed, 256u << joined_bits),
                           rows = 8 / joined_bits;
            const size_t row = (n + rows - 1) / rows;
            uint8_t expected[MAX_N + 8], *exact;
            lmc__joint joint;
            int ok = 1;
            lmc__set_joint(&joint, joined_bits, offset, n);
            CHECK(joint.packed_size == row * (rows - 1));
            exact = t_tail(&guard_c, joint.packed_size);
            memset(expected, 0, sizeof expected);
            memset(exact, 0, joint.packed_size);
            for (i = 0; i < n; i++) {
                const unsigned wide = offset + (unsigned)t_below(seed, 256),
                               rest = (unsigned)t_below(seed, 256u >> joined_bits);
                unsigned b;
                high[i] = (uint8_t)(wide >> joined_bits);
                low[i] = (uint8_t)(wide << (8 - joined_bits) | rest);
                if (i < joint.packed_size) expected[i] |= (uint8_t)rest;
                else
                    for (b = 0; b + 1 < rows; b++)
                        expected[b * row + i - joint.packed_size] |=
                            (uint8_t)(rest >> b * joined_bits << (8 - joined_bits));
            }
            t_note("%s, joint %u, offset %u, n %lu", lmc_tier_name(k->tier), joined_bits, offset,
                   (unsigned long)n);
            k->fold(symbols, exact, high, low, n, &joint);
            CHECK(memcmp(exact, expected, joint.packed_size) == 0);
            for (i = 0; i < n; i++)
                ok &=
                    symbols[i] ==
                    (uint8_t)((high[i] << joined_bits | low[i] >> (8 - joined_bits)) - (int)offset);
            CHECK(ok);
            memset(high_back, 0xEE, n);
            memset(low_back, 0xEE, n);
            for (i = 0; i < n;) {
                const size_t m = 1 + t_below(seed, n - i);
                k->unfold(high_back + i, low_back + i, symbols + i, exact, i, m, &joint);
                i += m;
            }
            CHECK(memcmp(high_back, high, n) == 0 && memcmp(low_back, low, n) == 0);
            test_joint_join(k, seed, high, low, symbols, exact, n, &joint);
        }
}

static void test_constant(const lmc__kernels *k, uint64_t *seed)
{
    size_t n;
    for (n = 1; n < MAX_N; n++) {
        uint8_t *p = t_tail(&guard_a, n);
        memset(p, (int)t_below(seed, 256), n);
        t_note("%s, n %lu", lmc_tier_name(k->tier), (unsigned long)n);
        CHECK(k->is_constant(p, n));
        if (n < 2) continue;
        p[t_below(seed, n)] ^= 0x10;
        CHECK(!k->is_constant(p, n));
    }
}

/* Tables that count up but for one entry, which may be any of a row of 16. */
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

/* -- residuals in classes: spec 7.2 and 7.3 in plain C -- */

#define MAX_GROUPED 9000u

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

static uint64_t residual_of(uint64_t element, uint64_t b, unsigned width, int subtract)
{
    const uint64_t s_bit = UINT64_C(1) << (8 * width - 1), all = s_bit - 1 + s_bit, s = b & s_bit,
                   x = element ^ s;
    const uint64_t o = x < s_bit ? x : x ^ (s_bit - 1), d = (o - (b & (s_bit - 1))) & all;
    return subtract ? (d << 1 & all) ^ (d >= s_bit ? all : 0) : element ^ b;
}

static uint64_t element_of(uint64_t r, uint64_t b, unsigned width, int subtract)
{
    const uint64_t s_bit = UINT64_C(1) << (8 * width - 1), all = s_bit - 1 + s_bit;
    const uint64_t d = (r >> 1) ^ (0 - (r & 1)), t = ((b & (s_bit - 1)) + d) & all;
    return subtract ? (b & s_bit) ^ (t < s_bit ? t : t ^ (s_bit - 1)) : r ^ b;
}

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

/* Some elements have changed: listed, and each one's place in its class. */
static void test_ranks(const lmc__kernels *k, uint64_t *seed, const uint8_t *base, size_t n,
                       unsigned width, const lmc__grouping *grouping, const uint8_t *class_of)
{
    static uint32_t expected[MAX_GROUPED], listed[MAX_GROUPED + 17], ranks[MAX_GROUPED],
        want[MAX_GROUPED];
    static uint8_t now[8 * MAX_GROUPED], before[8 * MAX_GROUPED];
    lmc__changed changed;
    uint8_t *const src = t_tail(&guard_e, n * width);
    const uint64_t one_in = 1 + t_below(seed, t_below(seed, 2) ? 4 : 100);
    size_t counts[LMC__MAX_CLASSES], next[LMC__MAX_CLASSES] = {0}, n_changed = 0, i;
    uint32_t crcs[2];
    memcpy(src, base, n * width);
    for (i = 0; i < n; i++) {
        if (t_below(seed, one_in) == 0) {
            src[i * width + t_below(seed, width)] ^= (uint8_t)(1u << t_below(seed, 8));
            expected[n_changed] = (uint32_t)i;
            want[n_changed++] = (uint32_t)next[class_of[i]];
        }
        next[class_of[i]]++;
    }
    changed.place = listed;
    changed.now = now;
    changed.before = before;
    memset(listed, 0xEE, sizeof listed);
    memset(now, 0xEE, sizeof now);
    memset(before, 0xEE, sizeof before);
    CHECK(k->list_changes(k, crcs, &changed, n_changed, src, base, n, width) == n_changed);
    CHECK(crcs[0] == lmc__crc32c_scalar(0, src, n * width));
    CHECK(crcs[1] == lmc__crc32c_scalar(0, base, n * width));
    CHECK(memcmp(listed, expected, n_changed * sizeof *listed) == 0);
    CHECK(listed[n_changed + 16] == 0xEEEEEEEE); /* behind the slack */
    for (i = 0; i < n_changed; i++) {
        CHECK(get_element(now, i, width) == get_element(src, expected[i], width));
        CHECK(get_element(before, i, width) == get_element(base, expected[i], width));
    }
    CHECK(n_changed == MAX_GROUPED || (now[n_changed * width] & before[n_changed * width]) == 0xEE);
    if (n_changed)
        CHECK(k->list_changes(k, crcs, &changed, n_changed - 1, src, base, n, width) == SIZE_MAX);
    memset(ranks, 0xEE, sizeof ranks);
    changed.place = expected;
    k->rank_changes(counts, ranks, base, n, width, grouping, &changed, n_changed);
    CHECK(memcmp(counts, next, grouping->n_classes * sizeof *counts) == 0);
    CHECK(memcmp(ranks, want, n_changed * sizeof *ranks) == 0);
    CHECK(n_changed == MAX_GROUPED || ranks[n_changed] == 0xEEEEEEEE);
}

static void test_group_n(const lmc__kernels *k, uint64_t *seed, unsigned width, int subtract,
                         size_t n)
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
    t_note("%s, width %u, subtract %d, n %lu, %u classes, %u natural, kind %u, near %u, shift %lu",
           lmc_tier_name(k->tier), width, subtract, (unsigned long)n, grouping.n_classes, first,
           kind, near, (unsigned long)shift);
    for (i = 0; i < n; i++) { /* what it means */
        const uint64_t b = get_element(base, i, width),
                       r = residual_of(get_element(src, i, width), b, width, subtract);
        for (c = 0; c + 1 < grouping.n_classes && key_of(b, width) >= grouping.threshold[c]; c++) {}
        class_of[i] = (uint8_t)c;
        for (p = 0; p < width; p++)
            *(p < first ? &natural[p][i] : &expected[c][p][next[c]]) = (uint8_t)(r >> 8 * p);
        next[c]++;
    }

    test_ranks(k, seed, base, n, width, &grouping, class_of);
    memset(counts, 0xEE, sizeof counts);
    CHECK(k->count_classes(k, counts, base, n, width, &grouping, NULL) ==
          lmc__crc32c_scalar(0, base, n * width));
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
    CHECK(k->group(k, &classes, src, base, n, width, subtract, &grouping) ==
          lmc__crc32c_scalar(0, src, n * width));
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
        put_element(src, i, width, element_of(r, get_element(base, i, width), width, subtract));
    }
    for (in_place = 0; in_place < 2; in_place++) {
        lmc__streaming streaming = lmc__no_streaming;
        streaming.is_on = (int)t_below(seed, 2);
        streaming.next = src;
        streaming.next_size = streaming.is_on ? n * width : 0;
        dst = in_place ? base : t_tail(&guard_e, n * width + shift);
        if (!in_place) memset(guard_e.data, 0xEE, guard_e.cap);
        crc = k->ungroup(k, dst, base, &sides, n, width, subtract, &grouping, streaming);
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
    int subtract;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (subtract = 0; subtract < 2; subtract++) {
            for (n = 1; n <= 131; n += t_quick ? 7 : 1)
                for (repeat = 0; repeat < 4; repeat++) test_group_n(k, seed, width, subtract, n);
            for (i = 0; i < n_counts; i += t_quick ? 5 : 1)
                for (repeat = 0; repeat < 4; repeat++)
                    test_group_n(k, seed, width, subtract, counts[i]);
        }
}

/* changes of a share of 1 in `share` elements, or all with 1, against the definition in plain C.
 * What stands behind the marks must not matter; dst is exact. */
static void test_patch_n(const lmc__kernels *k, uint64_t *seed, unsigned width, int subtract,
                         size_t n, unsigned share)
{
    static uint32_t at[LMC__MAX_CLASSES][MAX_GROUPED + 3];
    uint8_t *tally;
    const size_t shift = t_below(seed, 3) ? 0 : t_below(seed, 64);
    uint8_t *const src = t_tail(&guard_a, n * width + shift),
                   *const base = t_tail(&guard_b, n * width + shift / 2), *dst, *residuals;
    const unsigned kind = (unsigned)t_below(seed, 4);
    size_t counts[LMC__MAX_CLASSES], n_of[LMC__MAX_CLASSES] = {0},
                                     n_changed[LMC__MAX_CLASSES] = {0}, total = 0, i;
    lmc__grouping grouping;
    lmc__patches changes;
    unsigned c;
    int in_place;
    for (i = 0; i < n; i++) put_element(base, i, width, some_element(seed, width, kind));
    set_some_grouping(&grouping, seed, width, base, n);
    grouping.n_natural = 0;
    t_note("patch, %s, width %u, subtract %d, n %lu, %u classes, kind %u, 1 in %u, shift %lu",
           lmc_tier_name(k->tier), width, subtract, (unsigned long)n, grouping.n_classes, kind,
           share, (unsigned long)shift);
    residuals = t_tail(&guard_c, n * width); /* class by class, exactly: changes in front */
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
            put_element(src, i, width, element_of(r, b, width, subtract));
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
    CHECK(k->count_classes(k, counts, base, n, width, &grouping, tally) ==
          lmc__crc32c_scalar(0, base, n * width));
    CHECK(memcmp(counts, n_of, grouping.n_classes * sizeof *counts) == 0);
    for (in_place = 0; in_place < 2; in_place++) {
        lmc__streaming streaming = lmc__no_streaming;
        uint32_t crc;
        streaming.is_on = (int)t_below(seed, 2);
        streaming.next = src;
        streaming.next_size = streaming.is_on ? n * width : 0;
        dst = in_place ? base : t_tail(&guard_e, n * width + shift);
        if (!in_place) memset(guard_e.data, 0xEE, guard_e.cap);
        crc = k->patch(k, dst, base, &changes, n, width, subtract, &grouping, tally, streaming);
        LMC__FENCE_STREAMS();
        CHECK(memcmp(dst, src, n * width) == 0);
        CHECK(crc == lmc__crc32c_scalar(0, src, n * width));
        CHECK(in_place || (dst[-1] == 0xEE && (shift == 0 || dst[n * width] == 0xEE)));
    }
}

static void test_patch(const lmc__kernels *k, uint64_t *seed)
{
    static const size_t counts[] = {191,  192,  255,  256,  2047, 2048, 2049,
                                    2111, 2112, 4095, 4096, 4097, 8191, 9000};
    static const unsigned shares[] = {1, 2, 30, 300};
    const size_t n_counts = sizeof counts / sizeof *counts;
    unsigned width, repeat;
    int subtract;
    size_t n, i;
    for (width = 1; width <= 8; width *= 2)
        for (subtract = 0; subtract < 2; subtract++)
            for (repeat = 0; repeat < 4; repeat++) {
                for (n = 1; n <= 131; n += t_quick ? 7 : 1)
                    test_patch_n(k, seed, width, subtract, n, shares[repeat]);
                for (i = 0; i < n_counts; i += t_quick ? 3 : 1)
                    test_patch_n(k, seed, width, subtract, counts[i], shares[repeat]);
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
#if LMC__NEON /* the tables that this machine is too good for */
    test_crc(&lmc__kernels_neon_crc32, &seed);
    test_crc64(&lmc__kernels_neon_crc32, &seed);
    test_crc(&lmc__kernels_neon_only, &seed);
#endif
#if LMC__X86
    if (lmc__find_kernels(LMC_TIER_AVX2)) {
        test_crc64(&lmc__kernels_avx2, &seed);
        test_roots(&lmc__kernels_avx2, &seed);
    }
#endif
    for (tier = 0; tier < LMC_TIER_COUNT; tier++) {
        const lmc__kernels *k = lmc__find_kernels((enum lmc_tier)tier);
        if (k == NULL) {
            printf("tier %s: not on this machine\n", lmc_tier_name((enum lmc_tier)tier));
            continue;
        }
        CHECK((int)k->tier == tier);
        test_crc(k, &seed);
        test_crc64(k, &seed);
        test_split(k, &seed);
        test_roots(k, &seed);
        test_lists(k, &seed);
        test_masks(k, &seed);
        test_constant(k, &seed);
        test_map(k);
        test_joint(k, &seed);
        test_group(k, &seed);
        test_patch(k, &seed);
    }
}
