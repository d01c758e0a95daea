#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"
#include "kernels/split_join.h"
#include "kernels/count.h"
#include "kernels/map.h"
#include "kernels/partition.h"
#include "kernels/merge.h"
#include "kernels/fold.h"

/* -- 6.14 split_root: split of a block's elements; if root is not NULL, its plane is mapped and
 * partitioned. Returns the CRC-32C of src. -- */

/* Bytes of elements that are coded at a time: with a strip of their planes and what these are made
 * of, they stay in a first cache of 32 KiB. Every width's number of elements is a multiple of 64.
 */
#define LMC__STRIP_SIZE 8192u

/* Strip by strip, with the kernels of a tier. */
LMC__INLINE uint32_t lmc__split_strips(
    const lmc__planes *planes, lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
    int rotate, uint32_t (*crc32c)(uint32_t, const uint8_t *, size_t),
    void (*split)(const lmc__planes *, const uint8_t *, size_t, unsigned, int),
    void (*map)(uint8_t *, const uint8_t *, size_t, const uint8_t *),
    size_t (*partition)(uint8_t *, uint8_t *, uint8_t *, const uint8_t *, size_t, unsigned))
{
    const size_t strip = LMC__STRIP_SIZE / width;
    lmc__planes next = *planes;
    uint32_t crc = 0;
    size_t i, m, n_left = 0, n_right = 0;
    unsigned p;
    for (i = 0; i < n; i += m) {
        m = lmc__min(strip, n - i);
        crc = crc32c(crc, src + i * width, m * width);
        split(&next, src + i * width, m, width, rotate);
        if (root) {
            uint8_t *const row = next.row[root->plane];
            size_t ones;
            map(row, row, m, root->table);
            ones = partition(root->mask + i / 8, root->left ? root->left + n_left : NULL,
                             root->right ? root->right + n_right : NULL, row, m, root->split);
            n_right += ones;
            n_left += m - ones;
        }
        for (p = 0; p < width; p++) next.row[p] += m;
    }
    if (root) root->n_right = n_right;
    return crc;
}

static uint32_t lmc__split_root_scalar(const lmc__planes *planes, lmc__parted *root,
                                       const uint8_t *src, size_t n, unsigned width, int rotate)
{
    return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_scalar,
                             lmc__split_scalar, lmc__map_scalar, lmc__partition_scalar);
}
#if LMC__NEON
static uint32_t lmc__split_root_neon(const lmc__planes *planes, lmc__parted *root,
                                     const uint8_t *src, size_t n, unsigned width, int rotate)
{
    return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_neon, lmc__split_neon,
                             lmc__map_neon, lmc__partition_neon);
}
static uint32_t lmc__split_root_neon_only(const lmc__planes *planes, lmc__parted *root,
                                          const uint8_t *src, size_t n, unsigned width, int rotate)
{
    return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_scalar,
                             lmc__split_neon, lmc__map_neon, lmc__partition_neon);
}
#endif
#if LMC__SIMDE
static uint32_t lmc__split_root_simde(const lmc__planes *planes, lmc__parted *root,
                                      const uint8_t *src, size_t n, unsigned width, int rotate)
{
    return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_scalar,
                             lmc__split_scalar, lmc__map_scalar, lmc__partition_avx2);
}
#endif
#if LMC__X86
/* Bytes from `data` on that are next read or written one after the other; i, of these, must not
 * pass over multiples of a page. The first access to a page waits until its address is translated,
 * and other stores and prefetches with it. A prefetch to the first cache gets that done before, one
 * to the second does not (Zen 4; decoding bf16 took 1.4 times as long). It is no access: where the
 * data ends before, it does no harm. */
#define LMC__PAGE 4096u
LMC__INLINE2 void lmc__touch_ahead(const uint8_t *data, size_t i)
{
    if (i % LMC__PAGE == 0)
        __builtin_prefetch((const uint8_t *)((uintptr_t)data + i + LMC__PAGE), 0, 3);
}

static void lmc__split_strips_avx2(const lmc__planes *planes, lmc__parted *root, const uint8_t *src,
                                   size_t n, unsigned width, int rotate)
{
    (void)lmc__split_strips(planes, root, src, n, width, rotate, lmc__no_crc, lmc__split_avx2,
                            lmc__map_avx2, lmc__partition_avx2);
}

/* Strips again, but each in one pass: the crc32 instructions and the others do not compete for the
 * same units. */
LMC__INLINE2 uint32_t lmc__split_root_body_avx2(const lmc__planes *planes, lmc__parted *root,
                                                const uint8_t *src, size_t n, unsigned width,
                                                int rotate, int parts)
{
    const size_t strip = LMC__STRIP_SIZE / width;
    const unsigned n_rows = parts ? width - 1 : width;
    __m256i v[8], split = _mm256_setzero_si256();
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    size_t i, j, n_right = 0;
    lmc__rows rows;
    unsigned p;
    if (parts) {
        lmc__set_rows_avx2(&rows, root->table);
        split = _mm256_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    for (i = 0; i + strip <= n; i += strip) {
        const uint8_t *const from = src + i * width;
        for (j = 0; j < strip; j += 32) {
            LMC__UNROLL for (p = 0; p < width; p++)
            {
                lmc__crc_lanes(c, from + j * width / 4, p);
                v[p] = lmc__load_avx2(from + j * width + 32 * p);
                if (rotate) v[p] = lmc__rotate_avx2(v[p], width, 1);
            }
            if (width >= 2) lmc__split_step_avx2(v, width, 1);
            if (width >= 4) lmc__split_step_avx2(v, width, 2);
            if (width >= 8) lmc__split_step_avx2(v, width, 4);
            LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__store_avx2(planes->row[p] + i + j, v[p]);
            if (parts) {
                const __m256i r = lmc__map_step_avx2(&rows, v[width - 1]);
                const uint32_t m = lmc__compare_avx2(r, split);
                lmc__store32(mask + (i + j) / 8, m);
                n_right = lmc__partition_step_avx2(left, right, i + j - n_right, n_right, r, m);
            }
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    if (i < n) {
        lmc__planes rest;
        lmc__parted rest_root;
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
        if (parts) {
            rest_root = *root;
            rest_root.mask += i / 8;
            rest_root.left = left ? left + (i - n_right) : NULL;
            rest_root.right = right ? right + n_right : NULL;
        }
        lmc__split_strips_avx2(&rest, parts ? &rest_root : NULL, src + i * width, n - i, width,
                               rotate);
        if (parts) n_right += rest_root.n_right;
    }
    if (parts) root->n_right = n_right;
    return lmc__crc32c_avx2(~(uint32_t)c[0], src + i * width, (n - i) * width);
}

LMC__AVX2 static uint32_t lmc__split_root_avx2(const lmc__planes *planes, lmc__parted *root,
                                               const uint8_t *src, size_t n, unsigned width,
                                               int rotate)
{
    uint32_t crc;
    if (root && root->plane != width - 1)
        return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_avx2,
                                 lmc__split_avx2, lmc__map_avx2, lmc__partition_avx2);
#define LMC__CALL(w)                                                                               \
    crc = root ? lmc__split_root_body_avx2(planes, root, src, n, w, rotate, 1)                     \
               : lmc__split_root_body_avx2(planes, NULL, src, n, w, rotate, 0)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return crc;
}

/* The sample has broken the order of reads from memory that the hardware goes by: fetch so many
 * bytes ahead. */
#define LMC__SPLIT_AHEAD 4096u

/* All at once, in registers: a strip of one step. The CRC has one accumulator for each of the
 * step's vectors. */
LMC__INLINE512 uint32_t lmc__split_root_body_avx512(const lmc__planes *planes, lmc__parted *root,
                                                    const uint8_t *src, size_t n, unsigned width,
                                                    int rotate, int parts)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_rows = parts ? width - 1 : width;
    __m512i sum[8], v[8], start = lmc__crc_start(0), table[4], split;
    const lmc__planes rows = *planes; /* what a pointer to bytes cannot change */
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    uint32_t crc = 0;
    size_t i, n_right = 0;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    if (parts) {
        LMC__UNROLL for (p = 0; p < 4; p++) table[p] = _mm512_loadu_si512(root->table + 64 * p);
        split = _mm512_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(src, i * width + LMC__SPLIT_AHEAD);
        LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__touch_ahead(rows.row[p], i);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            LMC__PREFETCH(src + lmc__min(i * width + 64 * p + LMC__SPLIT_AHEAD, n * width));
            v[p] = lmc__load_avx512(src + i * width + 64 * p);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            if (rotate) v[p] = lmc__rotate_avx512(v[p], width, 1);
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512();
        if (width >= 2) lmc__split_step_avx512(v, width, 1);
        if (width >= 4) lmc__split_step_avx512(v, width, 2);
        if (width >= 8) lmc__split_step_avx512(v, width, 4);
        LMC__UNROLL for (p = 0; p < n_rows; p++) lmc__store_avx512(rows.row[p] + i, v[p]);
        if (parts) {
            const __m512i r = lmc__map_step_avx512(v[width - 1], table);
            const __mmask64 m = _mm512_cmpge_epu8_mask(r, split);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            lmc__store64(mask + i / 8, m);
            if (right) {
                _mm512_storeu_si512(right, _mm512_mask_compress_epi8(r, m, r));
                right += ones;
            }
            if (left) {
                _mm512_storeu_si512(left, _mm512_mask_compress_epi8(r, ~m, r));
                left += 64 - ones;
            }
            n_right += ones;
        }
    }
    if (i) crc = lmc__crc_finish(sum, width);
    if (i < n) {
        lmc__planes rest;
        lmc__parted rest_root;
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
        if (parts) {
            rest_root = *root;
            rest_root.mask += i / 8;
            rest_root.left = left;
            rest_root.right = right;
        }
        lmc__split_strips_avx2(&rest, parts ? &rest_root : NULL, src + i * width, n - i, width,
                               rotate);
        crc = lmc__crc32c_avx512(crc, src + i * width, (n - i) * width);
        if (parts) n_right += rest_root.n_right;
    }
    if (parts) root->n_right = n_right;
    return crc;
}

LMC__AVX512 static uint32_t lmc__split_root_avx512(const lmc__planes *planes, lmc__parted *root,
                                                   const uint8_t *src, size_t n, unsigned width,
                                                   int rotate)
{
    uint32_t crc;
    if (root && root->plane != width - 1)
        return lmc__split_strips(planes, root, src, n, width, rotate, lmc__crc32c_avx512,
                                 lmc__split_avx512, lmc__map_avx512, lmc__partition_avx512);
#define LMC__CALL(w)                                                                               \
    crc = root ? lmc__split_root_body_avx512(planes, root, src, n, w, rotate, 1)                   \
               : lmc__split_root_body_avx512(planes, NULL, src, n, w, rotate, 0)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return crc;
}
#endif

/* -- 6.15 join_root: the inverse. Returns the CRC-32C of dst. -- */
LMC__INLINE uint32_t lmc__join_strips(
    uint8_t *dst, const lmc__const_planes *planes, const lmc__merged *root, const lmc__joint *joint,
    size_t n, unsigned width, int rotate, uint32_t (*crc32c)(uint32_t, const uint8_t *, size_t),
    void (*unfold)(uint8_t *, uint8_t *, const uint8_t *, const uint8_t *, size_t, size_t,
                   const lmc__joint *),
    void (*join)(uint8_t *, const lmc__const_planes *, size_t, unsigned, int),
    void (*merge)(uint8_t *, const uint8_t *, size_t, lmc__side, lmc__side),
    size_t (*count_ones)(const uint8_t *, size_t))
{
    const size_t strip = LMC__STRIP_SIZE / width;
    lmc__const_planes next = *planes;
    lmc__side left, right;
    uint32_t crc = 0;
    size_t i, m;
    unsigned p;
    if (root) {
        left = root->left;
        right = root->right;
    }
    for (i = 0; i < n; i += m) {
        m = lmc__min(strip, n - i);
        if (root) {
            const size_t ones = count_ones(root->mask + i / 8, (m + 7) / 8);
            merge(root->row, root->mask + i / 8, m, left, right);
            next.row[root->plane] = root->row;
            if (left.list) left.list += m - ones;
            if (right.list) right.list += ones;
        }
        if (joint && width >= 2) { /* joint planes are two at least */
            lmc__const_planes unfolded = next;
            unfold(joint->high, joint->low, next.row[width - 1], joint->packed, joint->first + i, m,
                   joint);
            unfolded.row[width - 1] = joint->high;
            unfolded.row[width - 2] = joint->low;
            join(dst + i * width, &unfolded, m, width, rotate);
        } else {
            join(dst + i * width, &next, m, width, rotate);
        }
        crc = crc32c(crc, dst + i * width, m * width);
        for (p = 0; p < width; p++) next.row[p] += m;
    }
    return crc;
}

static uint32_t lmc__join_root_scalar(uint8_t *dst, const lmc__const_planes *planes,
                                      const lmc__merged *root, const lmc__joint *joint, size_t n,
                                      unsigned width, int rotate, lmc__ahead ahead)
{
    (void)ahead;
    return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_scalar,
                            lmc__unfold_scalar, lmc__join_scalar, lmc__merge_scalar,
                            lmc__count_ones_scalar);
}
#if LMC__NEON
static uint32_t lmc__join_root_neon(uint8_t *dst, const lmc__const_planes *planes,
                                    const lmc__merged *root, const lmc__joint *joint, size_t n,
                                    unsigned width, int rotate, lmc__ahead ahead)
{
    (void)ahead;
    return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_neon,
                            lmc__unfold_neon, lmc__join_neon, lmc__merge_neon,
                            lmc__count_ones_neon);
}
static uint32_t lmc__join_root_neon_only(uint8_t *dst, const lmc__const_planes *planes,
                                         const lmc__merged *root, const lmc__joint *joint, size_t n,
                                         unsigned width, int rotate, lmc__ahead ahead)
{
    (void)ahead;
    return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_scalar,
                            lmc__unfold_neon, lmc__join_neon, lmc__merge_neon,
                            lmc__count_ones_neon);
}
#endif
#if LMC__SIMDE
static uint32_t lmc__join_root_simde(uint8_t *dst, const lmc__const_planes *planes,
                                     const lmc__merged *root, const lmc__joint *joint, size_t n,
                                     unsigned width, int rotate, lmc__ahead ahead)
{
    (void)ahead;
    return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_scalar,
                            lmc__unfold_avx2, lmc__join_scalar, lmc__merge_simde,
                            lmc__count_ones_scalar);
}
#endif
#if LMC__X86
static void lmc__join_strips_avx2(uint8_t *dst, const lmc__const_planes *planes,
                                  const lmc__merged *root, const lmc__joint *joint, size_t n,
                                  unsigned width, int rotate)
{
    (void)lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__no_crc,
                           lmc__unfold_avx2, lmc__join_avx2, lmc__merge_avx2, lmc__count_ones_avx2);
}

/* To a dst that is streamed, strips again, but each in one pass: they are made in one half of a
 * buffer, while the one before, in the other half, is copied to dst and its CRC computed: the crc32
 * instructions want bytes in memory, and do not compete with the others for units. Streaming stores
 * want aligned places: the first `head` bytes of dst are stored before, the last 32 - head behind
 * all others. */
LMC__INLINE2 uint32_t lmc__join_root_body_avx2(uint8_t *dst, const lmc__const_planes *planes,
                                               const lmc__merged *root, size_t n, unsigned width,
                                               int rotate, int merges, lmc__ahead ahead,
                                               uint8_t buffer[2][LMC__STRIP_SIZE + 1024])
{
    const size_t strip = LMC__STRIP_SIZE / width, head = (0 - (uintptr_t)dst) & 31;
    const unsigned n_rows = merges ? width - 1 : width;
    const __m256i zero = _mm256_setzero_si256();
    const uint8_t *mask = NULL, *left = NULL, *right = NULL, *row[8];
    size_t i, j, left_step = 0, right_step = 0;
    uint8_t constant[2][32], *from, *to = buffer[0];
    uint64_t c[4] = {0xFFFFFFFF, 0, 0, 0};
    lmc__const_planes rest = *planes;
    lmc__merged rest_root;
    __m256i v[8];
    unsigned p;
    if (merges) rest_root = *root;
    /* the first strip */
    lmc__join_strips_avx2(to, planes, root, NULL, strip, width, rotate);
    lmc__store_avx2(dst, lmc__load_avx2(to));
    if (merges) {
        const size_t ones = lmc__count_ones_avx2(root->mask, strip / 8);
        mask = root->mask;
        /* a constant is a list that ends nowhere */
        memset(constant[0], root->left.value, 32);
        memset(constant[1], root->right.value, 32);
        left = root->left.list ? root->left.list + (strip - ones) : constant[0];
        right = root->right.list ? root->right.list + ones : constant[1];
        left_step = root->left.list ? 63 : 0;
        right_step = root->right.list ? 63 : 0;
    }
    LMC__UNROLL for (p = 0; p < n_rows; p++) row[p] = planes->row[p];
    for (i = strip; i + strip <= n; i += strip) {
        uint8_t *const out = dst + (i - strip) * width + head;
        from = to;
        to = buffer[i / strip & 1];
        for (j = 0; j < strip; j += 32) {
            const size_t at =
                (i - strip + j) * width; /* what is read next is no longer than what is written, and
                                            compressed data ends sooner */
            lmc__touch_ahead(dst, at);
            if (at < ahead.size) lmc__touch_ahead(ahead.data, at);
            LMC__UNROLL for (p = 0; p < width; p += 2)
                LMC__PREFETCH(ahead.data + lmc__min(at + 32 * p, ahead.size));
            LMC__UNROLL for (p = 0; p < width; p++) lmc__crc_lanes(c, from + j * width / 4, p);
            if (merges) {
                const uint32_t m = lmc__load32(mask + (i + j) / 8);
                const size_t ones = (size_t)_mm_popcnt_u64(m);
                v[width - 1] = lmc__merge_step_avx2(m, left, right, zero, zero, 1, 1);
                left += (32 - ones) & left_step;
                right += ones & right_step;
            }
            LMC__UNROLL for (p = 0; p < n_rows; p++) v[p] = lmc__load_avx2(row[p] + i + j);
            if (width >= 8) lmc__join_step_avx2(v, width, 4);
            if (width >= 4) lmc__join_step_avx2(v, width, 2);
            if (width >= 2) lmc__join_step_avx2(v, width, 1);
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(
                to + j * width + 32 * p, rotate ? lmc__rotate_avx2(v[p], width, 0) : v[p]);
            lmc__store_avx2(from + LMC__STRIP_SIZE,
                            lmc__load_avx2(to)); /* the last vector that is copied ends there */
            LMC__UNROLL for (p = 0; p < width; p++)
                _mm256_stream_si256((__m256i *)(void *)(out + j * width + 32 * p),
                                    lmc__load_avx2(from + head + j * width + 32 * p));
        }
        c[0] = lmc__crc_join_lanes(c);
        c[1] = c[2] = c[3] = 0;
    }
    c[0] = (uint32_t)~lmc__crc32c_avx2(~(uint32_t)c[0], to, LMC__STRIP_SIZE);
    for (j = 0; j < LMC__STRIP_SIZE - 32; j += 32)
        _mm256_stream_si256((__m256i *)(void *)(dst + (i - strip) * width + head + j),
                            lmc__load_avx2(to + head + j));
    lmc__store_avx2(dst + i * width - 32, lmc__load_avx2(to + LMC__STRIP_SIZE - 32));
    for (p = 0; p < width; p++) rest.row[p] += i;
    if (merges) {
        rest_root.mask += i / 8;
        if (left_step) rest_root.left.list = left;
        if (right_step) rest_root.right.list = right;
    }
    lmc__join_strips_avx2(dst + i * width, &rest, merges ? &rest_root : NULL, NULL, n - i, width,
                          rotate);
    return lmc__crc32c_avx2(~(uint32_t)c[0], dst + i * width, (n - i) * width);
}

LMC__AVX2 static uint32_t lmc__join_root_avx2(uint8_t *dst, const lmc__const_planes *planes,
                                              const lmc__merged *root, const lmc__joint *joint,
                                              size_t n, unsigned width, int rotate,
                                              lmc__ahead ahead)
{
    uint32_t crc;
    uint8_t buffer[2][LMC__STRIP_SIZE +
                      1024]; /* halves not at a distance of 4 KiB, where loads mistake stores */
    if (!ahead.data || joint || n * width < LMC__STRIP_SIZE || (root && root->plane != width - 1))
        return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_avx2,
                                lmc__unfold_avx2, lmc__join_avx2, lmc__merge_avx2,
                                lmc__count_ones_avx2);
#define LMC__CALL(w)                                                                               \
    crc = root ? lmc__join_root_body_avx2(dst, planes, root, n, w, rotate, 1, ahead, buffer)       \
               : lmc__join_root_body_avx2(dst, planes, NULL, n, w, rotate, 0, ahead, buffer)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return crc;
}

/* Streaming stores want whole cache lines, and dst may start anywhere: the end of one vector and
 * the start of the next make a line. */
LMC__INLINE512 uint32_t lmc__join_root_body_avx512(uint8_t *dst, const lmc__const_planes *planes,
                                                   const lmc__merged *root, const lmc__joint *joint,
                                                   size_t n, unsigned width, int rotate, int merges,
                                                   lmc__ahead ahead)
{
    const __m512i fold = lmc__crc_factor(width);
    const unsigned n_rows = merges ? width - 1 : width,
                   head = (unsigned)((0 - (uintptr_t)dst) & 63);
    const __m512i shift =
        _mm512_add_epi8(_mm512_loadu_si512(lmc__count_up), _mm512_set1_epi8((char)head));
    const int streams = ahead.data != NULL;
    const size_t ahead_lines =
        (ahead.size + n - 1) / n; /* of 64 bytes, in each step of 64 elements */
    __m512i sum[8], v[8], start = lmc__crc_start(0), last = start, l, r;
    const lmc__const_planes rows = *planes;
    const uint8_t *mask = NULL, *left = NULL, *right = NULL;
    uint32_t crc = 0;
    size_t i, line;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) sum[p] = _mm512_setzero_si512();
    l = r = start;
    if (merges) {
        mask = root->mask;
        left = root->left.list;
        right = root->right.list;
        l = _mm512_set1_epi8((char)root->left.value);
        r = _mm512_set1_epi8((char)root->right.value);
    }
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(dst, i * width);
        for (line = i * ahead_lines; line < lmc__min((i + 64) * ahead_lines, ahead.size);
             line += 64) {
            lmc__touch_ahead(ahead.data, line);
            LMC__PREFETCH(ahead.data + line);
        }
        LMC__UNROLL for (p = 0; p < n_rows; p++) v[p] = lmc__load_avx512(rows.row[p] + i);
        if (merges) {
            const uint64_t m = lmc__load64(mask + i / 8);
            const size_t ones = (size_t)_mm_popcnt_u64(m);
            v[width - 1] =
                lmc__merge_step_avx512(m, left, right, l, r, left != NULL, right != NULL);
            if (left) left += 64 - ones;
            if (right) right += ones;
        }
        if (merges && width >= 2 && joint) {
            __m512i low;
            if (i + 64 <= joint->packed_size) low = lmc__load_avx512(joint->packed + i);
            else if (i >= joint->packed_size) {
                const uint8_t *const fields = joint->packed + i - joint->packed_size;
                low = joint->extra == 1 ? lmc__unpack_tail_avx512(fields, joint->row, 1)
                                        : lmc__unpack_tail_avx512(fields, joint->row, 2);
            } else {
                uint8_t bytes[64];
                for (p = 0; p < 64; p++)
                    bytes[p] = (uint8_t)lmc__unpack(joint->packed, i + p, joint);
                low = lmc__load_avx512(bytes);
            }
            lmc__unfold_step_avx512(&v[width - 1], &low, joint->extra, joint->offset);
            v[width - 2] = low;
        }
        if (width >= 8) lmc__join_step_avx512(v, width, 4);
        if (width >= 4) lmc__join_step_avx512(v, width, 2);
        if (width >= 2) lmc__join_step_avx512(v, width, 1);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            uint8_t *const at = dst + i * width + 64 * p;
            if (rotate) v[p] = lmc__rotate_avx512(v[p], width, 0);
            sum[p] = lmc__crc_fold(sum[p], fold, v[p]);
            if (!streams) lmc__store_avx512(at, v[p]);
            else {
                if (p == 0 && i == 0) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << head) - 1, v[p]);
                else
                    _mm512_stream_si512((__m512i *)(void *)(at + head - 64),
                                        _mm512_permutex2var_epi8(last, shift, v[p]));
                last = v[p];
            }
        }
        sum[0] = _mm512_xor_si512(sum[0], start);
        start = _mm512_setzero_si512();
    }
    if (i) {
        crc = lmc__crc_finish(sum, width);
        if (streams) /* the last 64 - head bytes */
            _mm512_mask_storeu_epi8(dst + i * width + head - 64, ~(__mmask64)0 >> head,
                                    _mm512_permutex2var_epi8(last, shift, last));
    }
    if (i < n) {
        lmc__const_planes rest;
        lmc__merged rest_root;
        lmc__joint rest_joint;
        if (joint) {
            rest_joint = *joint;
            rest_joint.first += i;
        }
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
        if (merges) {
            rest_root = *root;
            rest_root.mask += i / 8;
            rest_root.left.list = left;
            rest_root.right.list = right;
        }
        lmc__join_strips_avx2(dst + i * width, &rest, merges ? &rest_root : NULL,
                              joint ? &rest_joint : NULL, n - i, width, rotate);
        crc = lmc__crc32c_avx512(crc, dst + i * width, (n - i) * width);
    }
    return crc;
}

LMC__AVX512 static uint32_t lmc__join_root_avx512(uint8_t *dst, const lmc__const_planes *planes,
                                                  const lmc__merged *root, const lmc__joint *joint,
                                                  size_t n, unsigned width, int rotate,
                                                  lmc__ahead ahead)
{
    uint32_t crc;
    if (root ? root->plane != width - 1 : joint != NULL)
        return lmc__join_strips(dst, planes, root, joint, n, width, rotate, lmc__crc32c_avx512,
                                lmc__unfold_avx512, lmc__join_avx2, lmc__merge_avx512,
                                lmc__count_ones_avx512);
#define LMC__CALL(w)                                                                               \
    crc = root == NULL                                                                             \
              ? lmc__join_root_body_avx512(dst, planes, NULL, NULL, n, w, rotate, 0, ahead)        \
          : joint == NULL                                                                          \
              ? lmc__join_root_body_avx512(dst, planes, root, NULL, n, w, rotate, 1, ahead)        \
              : lmc__join_root_body_avx512(dst, planes, root, joint, n, w, rotate, 1, ahead)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
    return crc;
}
#endif
