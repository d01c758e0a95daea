#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"
#include "kernels/sum64.h"
#include "kernels/split_join.h"
#include "kernels/map.h"
#include "kernels/partition.h"
#include "kernels/strip.h"

/* split_root: the first step of encoding a block, in one pass over it:
 *   src --crc32c--> the result; --sum64--> *sum, if sum is not NULL
 *    |
 *    +--split--> planes->row[0 .. width), each of n bytes exactly
 *                  |
 *                  +-- row[root->plane], a list, if root is not NULL:
 *                        --map by root->table--> ranks
 *                        --partition at root->split--> root->mask, root->left, root->right
 *
 * The last step makes the root of one plane's tree; root->n_right becomes the number of ones in the
 * mask. left and right may be NULL (not wanted), and left may be the row itself. The row's bytes
 * are then undefined: to get the plane's bytes, call again without a root.
 *
 * The root needs all bytes of a plane, which are in registers here: this saves three passes.
 *
 * src is read exactly, and only once, as it may change meanwhile: planes, root and CRC are of the
 * same bytes. Planes other than the root's, and root->mask, are written exactly; left and right are
 * lists. Only left and the row may overlap. A vector loop ends at a multiple of 8 elements. */

#ifndef LMC_NO_ENCODER
/* Elements [done.n, n), strip by strip. This defines split_root; the other tiers end with it.
 *
 * left may be the row: the ranks of a strip are in row[i, i + m) when they are partitioned, and at
 * most i ranks were written to left before. The bytes that partition stores behind them may reach
 * the next strip's place in the row, but split fills it later:
 *     row    | ranks on the left, so far | free ...  | strip: bytes -> ranks | later strips
 *            0                    i - n_right        i                     i + m */
static uint32_t lmc__split_strips(const lmc__kernels *k, const lmc__planes *planes,
                                  lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                                  enum lmc__order order, uint64_t *sum, lmc__progress done)
{
    uint8_t copy[LMC__STRIP_SIZE];
    size_t i, m;
    unsigned p;
    for (i = done.n; i < n; i += m) {
        lmc__planes strip;
        m = lmc__min(LMC__STRIP_ELEMENTS(width), n - i);
        for (p = 0; p < width; p++) strip.row[p] = planes->row[p] + i;
        memcpy(copy, src + i * width, m * width);
        done.crc = k->crc32c(done.crc, copy, m * width);
#ifndef LMC_NO_SNAPSHOT
        if (sum) done.sum += k->sum64(copy, m * width);
#endif
        k->split(&strip, copy, m, width, order);
        if (root) {
            uint8_t *const row = strip.row[root->plane],
                           *const left = root->left ? root->left + (i - done.n_right) : NULL,
                           *const right = root->right ? root->right + done.n_right : NULL;
            k->map(row, row, m, root->table);
            done.n_right += k->partition(root->mask + i / 8, left, right, row, m, root->split);
        }
    }
    if (root) root->n_right = done.n_right;
    if (sum) *sum = done.sum;
    return done.crc;
}

static uint32_t lmc__split_root_strips(const lmc__kernels *k, const lmc__planes *planes,
                                       lmc__parted *root, const uint8_t *src, size_t n,
                                       unsigned width, enum lmc__order order, uint64_t *sum)
{
    return lmc__split_strips(k, planes, root, src, n, width, order, sum, lmc__no_progress);
}

#if LMC__NEON || LMC__X86
/* The root of a tree, while it is made. */
typedef struct LMC__VEC(root) {
    lmc__rows rows;
    lmc__vector split;
    uint8_t *mask, *left, *right;
    size_t n_right;
} LMC__VEC(root);

LMC__INLINE_VEC void LMC__VEC(begin_root)(LMC__VEC(root) * r, const lmc__parted *root, int has_root)
{
    r->n_right = 0;
    if (!has_root) return;
    lmc__set_rows(&r->rows, root->table);
    r->split = LMC__VEC(splat)(root->split);
    r->mask = root->mask;
    r->left = root->left;
    r->right = root->right;
}

/* Elements of a step: as many vectors of each plane as partition_step sorts. */
#define LMC__SPLIT_STEP (LMC__VECTORS_SORTED * LMC__VECTOR_SIZE)

/* Writes a step's elements v, from number i on, to planes; the top plane to the root, if any. */
LMC__INLINE_VEC void LMC__VEC(split_root_step)(const lmc__planes *planes, LMC__VEC(root) * r,
                                               lmc__vector v[LMC__VECTORS_SORTED][8], size_t i,
                                               unsigned width, enum lmc__order order, int has_root)
{
    lmc__vector top[LMC__VECTORS_SORTED];
    unsigned p, j;
    if (order)
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
            LMC__UNROLL for (p = 0; p < width; p++) v[j][p] =
                LMC__VEC(to_residuals)(v[j][p], width, order);
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
    {
        LMC__VEC(split_vectors)(v[j], width);
        LMC__UNROLL for (p = 0; p + !!has_root < width; p++)
            LMC__VEC(store)(planes->row[p] + i + LMC__VECTOR_SIZE * j, v[j][p]);
        top[j] = v[j][width - 1];
    }
    if (has_root) {
        lmc__vector_bits m;
        LMC__VEC(map_step)(&r->rows, top);
        m = LMC__VEC(compare)(top, r->split);
        if (has_root == 2 && (!r->left || !r->right)) __builtin_unreachable();
        memcpy(r->mask + i / 8, &m, sizeof m);
        r->n_right =
            LMC__VEC(partition_step)(r->left, r->right, i - r->n_right, r->n_right, top, m);
    }
}

/* Whole strips; the root, if any, is the top plane. While a strip is split, the next is copied.
 *
 * The CRC is computed in four lanes, a quarter of the strip each, since one crc32 instruction waits
 * three cycles for the one before. So while elements [j, j + 32) are split, the CRC reads 8 * width
 * bytes of each lane, from byte j * width / 4 on. These are other bytes than those that are split,
 * but equally many. All are in the first cache. crc32 uses none of the units that vectors need.
 *
 *     strip        | lane 0      | lane 1      | lane 2      | lane 3      |      8192 bytes
 *     step j       |   ====      |   ====      |   ====      |   ====      |      summed up
 *                         |================|                                       split
 *
 * After strip / 32 steps, of 32 * width bytes each, both have read the whole strip. Then the lanes
 * are joined to one register, with which lane 0 of the next strip begins. */
LMC__INLINE LMC__CRC lmc__progress LMC__VEC(split_root_loop)(const lmc__planes *planes,
                                                             const lmc__parted *root,
                                                             const uint8_t *src, size_t n,
                                                             unsigned width, enum lmc__order order,
                                                             int has_root)
{
    const size_t strip = LMC__STRIP_ELEMENTS(width), size = n * width;
    const lmc__planes rows = *planes; /* a copy, which no store of bytes can change */
    uint8_t copies[2][LMC__STRIP_SIZE];
    lmc__crc_lane c[4] = {0xFFFFFFFF, 0, 0, 0};
    LMC__VEC(root) state;
    lmc__progress done = lmc__no_progress;
    lmc__vector sum = LMC__VEC(splat)(0);
    size_t i, j;
    unsigned p, h, turn = 0;
    if (strip <= n) memcpy(copies[0], src, LMC__STRIP_SIZE);
    LMC__VEC(begin_root)(&state, root, has_root);
    for (i = 0; i + strip <= n; i += strip) {
        const uint8_t *const from = copies[turn], *const next = src + (i + strip) * width;
        uint8_t *const copy = copies[turn ^= 1];
        const int is_last = n - i < 2 * strip;
        for (j = 0; j < strip; j += LMC__SPLIT_STEP) {
            const size_t ahead = (i + 2 * strip + j) * width;
            lmc__vector v[LMC__VECTORS_SORTED][8];
            if (!is_last)
                LMC__UNROLL for (p = 0; p < LMC__VECTORS_SORTED * width; p++)
                    LMC__VEC(store)(copy + j * width + LMC__VECTOR_SIZE * p,
                                    LMC__VEC(load)(next + j * width + LMC__VECTOR_SIZE * p));
            if (ahead < size)
                LMC__UNROLL for (p = 0; p < LMC__SPLIT_STEP * width; p += LMC__LINE)
                    LMC__PREFETCH(src + ahead + p);
            LMC__UNROLL for (p = 0; p < LMC__SPLIT_STEP / 32 * width; p++)
                lmc__crc_lanes(c, from + j * width / 4, p);
            LMC__UNROLL for (h = 0; h < LMC__VECTORS_SORTED; h++)
                LMC__UNROLL for (p = 0; p < width; p++)
            {
                v[h][p] = LMC__VEC(load)(from + j * width + LMC__VECTOR_SIZE * (h * width + p));
                sum = LMC__VEC(plus)(sum, v[h][p], 8);
            }
            LMC__VEC(split_root_step)(&rows, &state, v, i + j, width, order, has_root);
        }
        lmc__crc_join_lanes(c);
    }
    done.sum = LMC__VEC(sum_words)(sum);
    done.n = i;
    done.n_right = state.n_right;
    done.crc = ~(uint32_t)c[0];
    return done;
}
#endif

#if LMC__X86
/* a folded onto b, in both lanes */
LMC__INLINE_AVX2_VPCLMUL __m256i lmc__fold_vpclmul(__m256i a, __m256i k, __m256i b)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00),
                                             _mm256_clmulepi64_epi128(a, k, 0x11)),
                            b);
}

/* For CPUs with two products at a time (Zen 3, Alder Lake): the CRC is folded from the registers
 * that are split; nothing is copied. The sums, as a message, have the same CRC, from register 0. */
LMC__INLINE_AVX2_VPCLMUL lmc__progress
lmc__split_root_loop_vpclmul(const lmc__planes *planes, const lmc__parted *root, const uint8_t *src,
                             size_t n, unsigned width, enum lmc__order order, int has_root)
{
    const uint64_t *const fold = width == 1   ? &lmc__crc_fold_last[2] /* over 32 bytes */
                                 : width == 2 ? lmc__crc_folds[0]
                                              : lmc__crc_folds[1];
    const __m256i k =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)fold));
    __m256i crc[8], start = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, -1), sum = _mm256_setzero_si256();
    lmc__progress done = lmc__no_progress;
    uint8_t last[8 * 32];
    lmc__root_avx2 state;
    uint64_t c = 0;
    size_t i;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) crc[p] = _mm256_setzero_si256();
    lmc__begin_root_avx2(&state, root, has_root);
    for (i = 0; i + 32 <= n; i += 32) {
        __m256i v[1][8];
        LMC__UNROLL for (p = 0; p < width; p += LMC__LINE / 32)
            LMC__PREFETCH(src + lmc__min(i * width + 32 * p + LMC__STRIP_SIZE, n * width));
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            v[0][p] = lmc__load_once_avx2(src + i * width + 32 * p);
            sum = _mm256_add_epi64(sum, v[0][p]);
            crc[p] = lmc__fold_vpclmul(crc[p], k, v[0][p]);
        }
        crc[0] = _mm256_xor_si256(crc[0], start);
        start = _mm256_setzero_si256(); /* for the first step only */
        lmc__split_root_step_avx2(planes, &state, v, i, width, order, has_root);
    }
    if (i) {
        LMC__UNROLL for (p = 0; p < width; p++) lmc__store_avx2(last + 32 * p, crc[p]);
        for (p = 0; p < 4 * width; p++) c = _mm_crc32_u64(c, lmc__load64(last + 8 * p));
        done.crc = ~(uint32_t)c;
    }
    done.sum = lmc__sum_words_avx2(sum);
    done.n = i;
    done.n_right = state.n_right;
    return done;
}

/* Steps of 64 elements, all in registers; the root, if any, is the top plane. The CRC has one
 * accumulator for each of a step's vectors: they are folded, step by step, over the distance of
 * width vectors, and onto each other at the end:
 *     step 0    v0 v1 .. v(w-1)    step 1    v0 v1 .. v(w-1)   ...
 *     crc[0]    v0 --------- * x^(512 w) ^ --> v0 ----------->
 *     crc[1]       v1 ---------------------------> v1 ------->
 *
 * So the products of a step do not wait for each other, and the same loads serve both CRC and
 * split. The register at the start, all ones, is added to the first vector: `start` is that
 * register in the first step, then 0, so the first step needs no code of its own. */
LMC__INLINE_AVX512 lmc__progress lmc__split_root_loop_avx512(const lmc__planes *planes,
                                                             const lmc__parted *root,
                                                             const uint8_t *src, size_t n,
                                                             unsigned width, enum lmc__order order,
                                                             int has_root)
{
    const __m512i fold = lmc__crc_factor(width);
    const lmc__planes rows = *planes; /* a copy, which no store of bytes can change */
    __m512i crc[8], v[8], start = lmc__crc_start(0), table[4], split = _mm512_setzero_si512(),
                          sum = _mm512_setzero_si512();
    uint8_t *mask = NULL, *left = NULL, *right = NULL;
    lmc__progress done = lmc__no_progress;
    size_t i, n_left = 0, n_right = 0;
    unsigned p;
    LMC__UNROLL for (p = 0; p < width; p++) crc[p] = _mm512_setzero_si512();
    LMC__UNROLL for (p = 0; p < 4; p++) table[p] =
        has_root ? lmc__load_avx512(root->table + 64 * p) : _mm512_setzero_si512();
    if (has_root) {
        split = _mm512_set1_epi8((char)root->split);
        mask = root->mask;
        left = root->left;
        right = root->right;
    }
    /* left may be the top plane's row, which this loop does not write */
    for (i = 0; i + 64 <= n; i += 64) {
        lmc__touch_ahead(src, i * width + LMC__FETCH_AHEAD);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) lmc__touch_ahead(rows.row[p], i);
        if (!has_root) lmc__touch_ahead(rows.row[width - 1], i);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            lmc__fetch_ahead_avx512(src, i, n, width, p);
            v[p] = lmc__load_once_avx512(src + i * width + 64 * p);
            sum = _mm512_add_epi64(sum, v[p]);
        }
        lmc__crc_add_avx512(crc, fold, v, width, &start);
        if (order)
            LMC__UNROLL for (p = 0; p < width; p++) v[p] =
                lmc__to_residuals_avx512(v[p], width, order);
        lmc__split_vectors_avx512(v, width);
        LMC__UNROLL for (p = 0; p + 1 < width; p++) lmc__store_avx512(rows.row[p] + i, v[p]);
        if (!has_root) {
            lmc__store_avx512(rows.row[width - 1] + i, v[width - 1]);
        } else {
            const __m512i ranks = lmc__map_step_avx512(v[width - 1], table);
            const __mmask64 m = _mm512_cmpge_epu8_mask(ranks, split);
            lmc__store64(mask + i / 8, m);
            lmc__partition_step_avx512(left, right, &n_left, &n_right, ranks, m);
        }
    }
    if (i) done.crc = lmc__crc_finish(crc, width);
    done.sum = lmc__sum_words_avx512(sum);
    done.n = i;
    done.n_right = n_right;
    return done;
}
#endif

#if LMC__NEON || LMC__X86
/* has_root is a constant, so the loop without a root has more registers free; 2 if both lists are
 * wanted. order is tested in each step, except on NEON, where such tests take more of the time. */
#define LMC__DEFINE_SPLIT_ROOT(width, isa, attribute)                                              \
    static __attribute__((noinline, aligned(64))) attribute lmc__progress                          \
        lmc__split_root_##width##_##isa(const lmc__planes *planes, const lmc__parted *root,        \
                                        const uint8_t *src, size_t n, enum lmc__order order)       \
    {                                                                                              \
        if (LMC__NEON && root && root->left && root->right && order == LMC__ORDER_FLOAT)           \
            return lmc__split_root_loop_##isa(planes, root, src, n, width, LMC__ORDER_FLOAT, 2);   \
        if (root && width == 1 && !order)                                                          \
            return lmc__split_root_loop_##isa(planes, root, src, n, width, LMC__ORDER_NONE, 1);    \
        if (root) return lmc__split_root_loop_##isa(planes, root, src, n, width, order, 1);        \
        return lmc__split_root_loop_##isa(planes, NULL, src, n, width, order, 0);                  \
    }
/* Rare cases are done strip by strip: a root that is not the top plane, elements of 8 bytes. */
#define LMC__DEFINE_SPLIT_ROOTS(isa, attribute)                                                    \
    LMC__DEFINE_SPLIT_ROOT(1, isa, attribute)                                                      \
    LMC__DEFINE_SPLIT_ROOT(2, isa, attribute)                                                      \
    LMC__DEFINE_SPLIT_ROOT(4, isa, attribute)                                                      \
    attribute static uint32_t lmc__split_root_##isa(                                               \
        const lmc__kernels *k, const lmc__planes *planes, lmc__parted *root, const uint8_t *src,   \
        size_t n, unsigned width, enum lmc__order order, uint64_t *sum)                            \
    {                                                                                              \
        lmc__progress done = lmc__no_progress;                                                     \
        if (!root || root->plane == width - 1) switch (width) {                                    \
            case 1: done = lmc__split_root_1_##isa(planes, root, src, n, order); break;            \
            case 2: done = lmc__split_root_2_##isa(planes, root, src, n, order); break;            \
            case 4: done = lmc__split_root_4_##isa(planes, root, src, n, order); break;            \
            }                                                                                      \
        return lmc__split_strips(k, planes, root, src, n, width, order, sum, done);                \
    }
#if LMC__NEON
LMC__DEFINE_SPLIT_ROOTS(neon, LMC__CRC)
#else
LMC__DEFINE_SPLIT_ROOTS(avx2, LMC__AVX2)
LMC__DEFINE_SPLIT_ROOTS(vpclmul, LMC__AVX2_VPCLMUL)
LMC__DEFINE_SPLIT_ROOTS(avx512, LMC__AVX512)
#endif
#undef LMC__DEFINE_SPLIT_ROOTS
#undef LMC__DEFINE_SPLIT_ROOT
#endif
#endif /* LMC_NO_ENCODER */
