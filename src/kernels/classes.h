#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"

/* Classes of elements (spec 5.2), and count_classes: counts[c] becomes the size of class c in base.
 *
 * An element's class depends on the *key* of its prediction alone, so the block need not store it.
 * The classes are intervals of keys, one behind the other:
 *   key       0 ........ t[0] ........ t[1] ........ 255       t: grouping->threshold, ascending
 *   class     |    0    |      1      |       2       |
 *
 * Vector code compares keys with the highest key of class c, t[c] - 1, for each c in turn. So it
 * counts, or marks, the elements of class c *and of all before it* (on AVX-512, of all behind it).
 * Every element is in the last class or in one before it, so the last class needs no comparison.
 *
 *     keys               126  120   97  125  126  118 ...       t = 100, 121
 *     up to class 0        0    0    1    0    0    0           keys <= 99:  1
 *     up to class 1        0    1    1    0    0    1           keys <= 120: 3, so class 1 has 2
 *     up to class 2        1    1    1    1    1    1           all 6, so class 2 has 3
 *
 * A *tally*, if it is not NULL, is filled by count_classes and read by patch. It has a row for each
 * class but the last; a row has a byte for each group of 64 elements: how many of them are in that
 * class or in one before it. Rows are lmc__tally_row(n) bytes apart. Only tiers whose patch reads
 * it fill it, and only for whole steps of LMC__TALLY_STEP elements.
 *
 * base is read exactly. */

#define LMC__TALLY_STEP 512u
#define LMC__TALLY_GROUPS (LMC__TALLY_STEP / 64) /* of a step: eight bytes of each row */

/* Bytes from one row of a tally to the next: LMC__PAD more than are used, for loads of vectors. */
LMC__INLINE size_t lmc__tally_row(size_t n)
{
    return n / LMC__TALLY_STEP * LMC__TALLY_GROUPS + LMC__PAD;
}

/* What a loop of group or ungroup has done: n elements, their CRC-32C; next[c] are in class c. */
typedef struct lmc__delta_progress {
    size_t n, next[LMC__MAX_CLASSES];
    uint32_t crc;
} lmc__delta_progress;

/* The key: the eight bits below the sign bit; in bf16 and fp32 they are the exponent. A byte has
 * only seven bits there; its sign bit follows them. */
LMC__INLINE unsigned lmc__key(uint64_t base, unsigned width)
{
    return (unsigned)(width == 1 ? (base << 1 | base >> 7) & 255 : base >> (8 * width - 9) & 255);
}

/* The key of element i, which is within its last two bytes. */
LMC__INLINE unsigned lmc__key_at(const uint8_t *base, size_t i, unsigned width)
{
    return width == 1 ? lmc__key(base[i], 1) : lmc__key(lmc__load16(base + (i + 1) * width - 2), 2);
}

/* classes[key]: the number of thresholds that are not above the key. Thresholds ascend, so c only
 * grows, and one pass over keys and thresholds is enough. */
static void lmc__set_class_table(uint8_t classes[256], const lmc__grouping *grouping)
{
    unsigned key, c = 0;
    for (key = 0; key < 256; key++) {
        while (c < grouping->n_classes - 1 && key >= grouping->threshold[c]) c++;
        classes[key] = (uint8_t)c;
    }
}

/* Counts elements one by one. The vector loops end with it. It fills no tally. */
static void lmc__count_classes_scalar(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                      size_t n, unsigned width, const lmc__grouping *grouping,
                                      uint8_t *tally)
{
    uint8_t classes[256];
    size_t i;
    (void)tally;
    lmc__set_class_table(classes, grouping);
    memset(counts, 0, LMC__MAX_CLASSES * sizeof *counts);
    for (i = 0; i < n; i++) counts[classes[lmc__key_at(base, i, width)]]++;
}

#if LMC__NEON || LMC__X86
/* low_bytes: the lowest byte of each element of `width` vectors. Each of log2(width) steps drops
 * every other byte. keys: a shift moves the key to the lowest byte. Here the width is 4. An
 * element, whose 32 bits are s eeeeeeee m..., is shown as its bytes, the lowest first:
 *     b[p]              mmmmmmmm mmmmmmmm emmmmmmm seeeeeee
 *     >> 23             eeeeeeee 0000000s 00000000 00000000
 *     even of two       e0 .. e1 .. e2 .. e3 ..             the bytes at .. : upper ones, dropped
 *     even of two       e0 e1 e2 e3 e4 e5 e6 e7             in the next step
 *
 * Only even bytes are kept, so the sign, which is in byte 1 after the shift, is dropped. */
#define LMC__DEFINE_KEYS(isa, INLINE, VECTOR)                                                      \
    INLINE VECTOR lmc__low_bytes_##isa(VECTOR v[8], unsigned width)                                \
    {                                                                                              \
        unsigned p, n;                                                                             \
        LMC__UNROLL for (n = width / 2; n > 0; n /= 2) LMC__UNROLL for (p = 0; p < n; p++) v[p] =  \
            lmc__even_##isa(v[2 * p], v[2 * p + 1]);                                               \
        return v[0];                                                                               \
    }                                                                                              \
    INLINE VECTOR lmc__keys_##isa(const VECTOR b[8], unsigned width)                               \
    {                                                                                              \
        VECTOR v[8];                                                                               \
        unsigned p;                                                                                \
        LMC__UNROLL for (p = 0; p < width; p++) v[p] =                                             \
            width == 1   ? lmc__rotate_##isa(b[p], 1, 1)                                           \
            : width == 2 ? (VECTOR)((lmc__u16s_##isa)b[p] >> 7)                                    \
            : width == 4 ? (VECTOR)((lmc__u32s_##isa)b[p] >> 23)                                   \
                         : (VECTOR)((lmc__u64s_##isa)b[p] >> 55);                                  \
        return lmc__low_bytes_##isa(v, width);                                                     \
    }                                                                                              \
    INLINE VECTOR lmc__load_keys_##isa(const uint8_t *base, unsigned width)                        \
    {                                                                                              \
        VECTOR b[8];                                                                               \
        unsigned p;                                                                                \
        LMC__UNROLL for (p = 0; p < width; p++) b[p] = lmc__load_##isa(base + sizeof(VECTOR) * p); \
        return lmc__keys_##isa(b, width);                                                          \
    }                                                                                              \
    /* The highest key of each class, in all bytes. The last one's is 255: no key is above it. */  \
    INLINE void lmc__set_highest_##isa(VECTOR highest[LMC__MAX_CLASSES],                           \
                                       const lmc__grouping *grouping)                              \
    {                                                                                              \
        unsigned c;                                                                                \
        for (c = 0; c + 1 < grouping->n_classes; c++)                                              \
            highest[c] = lmc__splat_##isa(grouping->threshold[c] - 1u);                            \
        highest[c] = lmc__splat_##isa(255);                                                        \
    }
#if LMC__NEON
LMC__DEFINE_KEYS(neon, LMC__INLINE, uint8x16_t)
#else
LMC__DEFINE_KEYS(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_KEYS(avx512, LMC__INLINE_AVX512, __m512i)
#endif
#undef LMC__DEFINE_KEYS
#endif

#if LMC__NEON || LMC__X86
/* The keys of class c: first[c] .. first[c] + more[c]. */
typedef struct lmc__key_ranges {
    uint8_t first[LMC__MAX_CLASSES], more[LMC__MAX_CLASSES];
} lmc__key_ranges;

LMC__INLINE void lmc__set_key_ranges(lmc__key_ranges *ranges, const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c < grouping->n_classes; c++) {
        ranges->first[c] = c ? grouping->threshold[c - 1] : 0;
        ranges->more[c] =
            (uint8_t)((c + 1 < grouping->n_classes ? grouping->threshold[c] - 1u : 255u) -
                      ranges->first[c]);
    }
}

/* Which of 64 keys are in a range. */
LMC__INLINE_VEC uint64_t LMC__VEC(in_range)(const lmc__vector keys[LMC__VECTORS_OF_64],
                                            uint8_t first, uint8_t more)
{
    const lmc__vector from = LMC__VEC(splat)(first), up_to = LMC__VEC(splat)(more);
    lmc__vector one[LMC__VECTORS_OF_64];
    unsigned j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) one[j] =
        LMC__VEC(up_to)((lmc__vector)((LMC__VEC(u8s))keys[j] - (LMC__VEC(u8s))from), up_to);
    return LMC__VEC(to_bits)(one);
}
#endif

#if LMC__NEON
/* Adds to up_to[c], for `sums` classes, how many keys are at most highest[c]; 16 divides n. A
 * comparison gives -1 for true, which is subtracted from a sum of 8 bits; this cannot overflow in
 * 255 steps. `sums` is a constant, so the sums stay in registers. */
LMC__INLINE void lmc__count_keys_neon(size_t *up_to, const uint8_t *base, size_t n, unsigned width,
                                      const uint8x16_t *highest, unsigned sums)
{
    size_t i, end;
    unsigned c;
    for (i = 0; i < n;) {
        uint8x16_t sum[8];
        LMC__UNROLL for (c = 0; c < sums; c++) sum[c] = vdupq_n_u8(0);
        for (end = i + lmc__min(255 * 16, n - i); i < end; i += 16) {
            const uint8x16_t keys = lmc__load_keys_neon(base + i * width, width);
            LMC__UNROLL for (c = 0; c < sums; c++) sum[c] =
                vsubq_u8(sum[c], vcleq_u8(keys, highest[c]));
        }
        LMC__UNROLL for (c = 0; c < sums; c++) up_to[c] += vaddlvq_u8(sum[c]);
    }
}

/* Passes of five or eight sums: most blocks have up to six classes, and the last needs none. */
static void lmc__count_classes_neon(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                                    unsigned width, const lmc__grouping *grouping, uint8_t *tally)
{
    const unsigned n_classes = grouping->n_classes;
    const size_t whole = n & ~(size_t)15;
    size_t up_to[LMC__MAX_CLASSES] = {0}; /* up_to[c]: elements of classes 0 .. c */
    uint8x16_t highest[LMC__MAX_CLASSES];
    unsigned c;
    (void)tally;
    memset(highest, 0, sizeof highest);
    lmc__set_highest_neon(highest, grouping);
    for (c = 0; c + 1 < n_classes; c += 8)
        LMC__FOR_WIDTH(if (n_classes - c > 6)
                           lmc__count_keys_neon(up_to + c, base, whole, w, highest + c, 8);
                       else lmc__count_keys_neon(up_to + c, base, whole, w, highest + c, 5));
    /* This sets counts for the rest. Then the elements that the vectors counted are added. */
    up_to[n_classes - 1] = whole;
    lmc__count_classes_scalar(counts, base + whole * width, n - whole, width, grouping, NULL);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
}

/* load_step: the keys of 64 elements. count_up_to: how many of them are at most `highest`. */
LMC__INLINE void lmc__load_step_neon(uint8x16_t keys[4], const uint8_t *base, unsigned width)
{
    unsigned j;
    LMC__UNROLL for (j = 0; j < 4; j++) keys[j] = lmc__load_keys_neon(base + 16 * j * width, width);
}
LMC__INLINE uint32_t lmc__count_up_to_neon(const uint8x16_t keys[4], uint8x16_t highest)
{
    const uint8x16_t low = vaddq_u8(vcleq_u8(keys[0], highest), vcleq_u8(keys[1], highest)),
                     high = vaddq_u8(vcleq_u8(keys[2], highest), vcleq_u8(keys[3], highest));
    return (0u - vaddvq_u8(vaddq_u8(low, high))) & 255; /* a comparison gives -1 for true */
}

/* m[c]: which of 64 elements are in class c. */
LMC__INLINE void lmc__find_classes_neon(uint64_t m[LMC__MAX_CLASSES], const uint8x16_t keys[4],
                                        const uint8x16_t *highest, unsigned n_classes)
{
    uint8x16_t one[4];
    uint64_t before = 0, up_to;
    unsigned j, c;
    for (c = 0; c + 1 < n_classes; c++, before = up_to) {
        LMC__UNROLL for (j = 0; j < 4; j++) one[j] = vcleq_u8(keys[j], highest[c]);
        up_to = lmc__to_bits_neon(one);
        m[c] = up_to & ~before;
    }
    m[c] = ~before;
}
#endif

#if LMC__X86
/* Loads the keys of LMC__TALLY_STEP elements. Code that uses keys does not depend on the width. */
LMC__AVX2 static void lmc__load_step_avx2(__m256i keys[LMC__TALLY_STEP / 32], const uint8_t *base,
                                          unsigned width)
{
    unsigned v;
    LMC__FOR_WIDTH(for (v = 0; v < LMC__TALLY_STEP / 32; v++) keys[v] =
                       lmc__load_keys_avx2(base + 32 * v * w, w));
}

/* Which of 64 elements have keys in a range. */
LMC__INLINE_AVX2 uint64_t lmc__find_keys_avx2(const uint8_t *base, unsigned width, uint8_t first,
                                              uint8_t more)
{
    __m256i keys[2];
    LMC__FOR_WIDTH(keys[0] = lmc__load_keys_avx2(base, w);
                   keys[1] = lmc__load_keys_avx2(base + 32 * w, w));
    return lmc__in_range_avx2(keys, first, more);
}

/* Counts the keys of a step up to each class. The saturated difference `threshold - key`, cut to at
 * most 1, is 1 if the key is below the threshold, else 0. An instruction adds eight such bytes. The
 * sums of eight groups become bytes side by side.
 *
 *     group 0      7  9  4 12        each in 64 bits
 *     group 1      3  8  8  8        shifted by a byte, and so on
 *     all           ... 08 0C        32 in group 0, 27 in group 1: bytes of the tally
 *
 * tally: the place for the step's bytes of class 0, or NULL. */
LMC__INLINE_AVX2 void lmc__count_step_avx2(size_t up_to[LMC__MAX_CLASSES], uint8_t *tally,
                                           size_t row, const __m256i keys[LMC__TALLY_STEP / 32],
                                           const __m256i *threshold, unsigned n_classes)
{
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    unsigned v, c;
    for (c = 0; c + 1 < n_classes; c++) {
        const __m256i t = threshold[c];
        __m256i all = zero;
        __m128i groups;
        LMC__UNROLL for (v = 0; v < LMC__TALLY_GROUPS; v++)
        {
            const __m256i sum =
                _mm256_add_epi8(_mm256_min_epu8(_mm256_subs_epu8(t, keys[2 * v]), one),
                                _mm256_min_epu8(_mm256_subs_epu8(t, keys[2 * v + 1]), one));
            all = _mm256_or_si256(all, _mm256_slli_epi64(_mm256_sad_epu8(sum, zero), 8 * (int)v));
        }
        groups = _mm_add_epi8(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        groups = _mm_add_epi8(groups, _mm_unpackhi_epi64(groups, _mm_setzero_si128()));
        if (tally) _mm_storel_epi64((__m128i *)(void *)(tally + c * row), groups);
        up_to[c] +=
            (uint32_t)_mm_cvtsi128_si32(_mm_sad_epu8(_mm_move_epi64(groups), _mm_setzero_si128()));
    }
}

LMC__INLINE_AVX2 void lmc__set_thresholds_avx2(__m256i threshold[LMC__MAX_CLASSES],
                                               const lmc__grouping *grouping)
{
    unsigned c;
    for (c = 0; c + 1 < grouping->n_classes; c++)
        threshold[c] = _mm256_set1_epi8((char)grouping->threshold[c]);
}

/* Fetches the `size` bytes (of a step) that are LMC__FETCH_AHEAD behind p: a step of wide elements
 * is longer than what the hardware fetches. A prefetch behind the block does no harm. */
LMC__INLINE_AVX2 void lmc__fetch_bytes_avx2(const uint8_t *p, size_t size)
{
    const uintptr_t ahead = (uintptr_t)p + LMC__FETCH_AHEAD;
    size_t i;
    for (i = 0; i < size; i += LMC__LINE) LMC__PREFETCH((const uint8_t *)(ahead + i));
}

/* The elements behind the last whole step are counted one by one. */
LMC__AVX2 static void lmc__count_classes_avx2(size_t counts[LMC__MAX_CLASSES], const uint8_t *base,
                                              size_t n, unsigned width,
                                              const lmc__grouping *grouping, uint8_t *tally)
{
    const size_t row = lmc__tally_row(n);
    const unsigned n_classes = grouping->n_classes;
    size_t up_to[LMC__MAX_CLASSES] = {0}, i;
    __m256i keys[LMC__TALLY_STEP / 32], threshold[LMC__MAX_CLASSES];
    unsigned c;
    lmc__set_thresholds_avx2(threshold, grouping);
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__fetch_bytes_avx2(base + i * width, LMC__TALLY_STEP * width);
        lmc__load_step_avx2(keys, base + i * width, width);
        lmc__count_step_avx2(up_to, tally ? tally + i / 64 : NULL, row, keys, threshold, n_classes);
    }
    up_to[n_classes - 1] = i;
    lmc__count_classes_scalar(counts, base + i * width, n - i, width, grouping, NULL);
    for (c = 0; c < n_classes; c++) counts[c] += up_to[c] - (c ? up_to[c - 1] : 0);
}

/* As lmc__load_step_avx2 and lmc__find_keys_avx2. */
LMC__INLINE_AVX512 void lmc__load_step_avx512(__m512i keys[LMC__TALLY_GROUPS], const uint8_t *base,
                                              unsigned width)
{
    unsigned v;
    LMC__FOR_WIDTH(for (v = 0; v < LMC__TALLY_GROUPS; v++) {
        lmc__fetch_bytes_avx2(base + 64 * v * w, 64 * w);
        keys[v] = lmc__load_keys_avx512(base + 64 * v * w, w);
    });
}
LMC__INLINE_AVX512 uint64_t lmc__find_keys_avx512(const uint8_t *base, unsigned width,
                                                  uint8_t first, uint8_t more)
{
    __m512i keys;
    LMC__FOR_WIDTH(keys = lmc__load_keys_avx512(base, w));
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(keys, lmc__splat_avx512(first)),
                                  lmc__splat_avx512(more));
}

/* Finds which of 64 elements are in which class, for eight classes at once. A look-up gives each
 * element a byte with a bit for each class. The bytes of eight elements are a matrix of 8 x 8 bits,
 * which gf2p8affineqb transposes. Then the bytes of each class are brought together.
 *
 *     element     0  1  2 ... 7    8 ...           class     0     1     2   ...
 *     bit 0       0  1  1     0    1 ...           bits      0110  1000  ...
 *     bit 1       1  0  0     0    0 ...    -->    of        1...
 *     ...                                          elements
 *
 * Each of the result's eight words is the mask of a class. group and ungroup do not use this: their
 * steps do more work, and are no faster with it. */
typedef struct lmc__finder {
    __m512i table[LMC__MAX_CLASSES / 8][4]; /* for each key, a byte */
    unsigned n_sets;                        /* of eight classes: 1 or 2 */
} lmc__finder;

/* up_to: the masks have the elements of each class *and of all before it*. */
LMC__INLINE_AVX512 void lmc__set_finder(lmc__finder *finder, const lmc__grouping *grouping,
                                        int up_to)
{
    unsigned set, v, c;
    finder->n_sets = grouping->n_classes > 8 ? 2 : 1;
    for (set = 0; set < LMC__MAX_CLASSES / 8; set++)
        for (v = 0; v < 4; v++) {
            const __m512i keys =
                _mm512_add_epi8(lmc__load_avx512(lmc__count_up), lmc__splat_avx512(64 * v));
            __m512i table = lmc__splat_avx512((up_to ? 0xFFFF : 1u) >> 8 * set);
            for (c = 1; c < grouping->n_classes; c++)
                table = _mm512_mask_mov_epi8(
                    table,
                    _mm512_cmpge_epu8_mask(keys, lmc__splat_avx512(grouping->threshold[c - 1])),
                    lmc__splat_avx512((up_to ? 0xFFFFu << c : 1u << c) >> 8 * set));
            finder->table[set][v] = table;
        }
}

LMC__INLINE_AVX512 __m512i lmc__class_masks_avx512(__m512i keys, const __m512i table[4])
{
    /* reverses each group of eight elements: gf2p8affineqb counts a matrix's rows backwards */
    const __m512i reversed = _mm512_broadcast_i32x4(
                      _mm_set_epi64x(0x08090A0B0C0D0E0F, 0x0001020304050607)),
                  diagonal = _mm512_set1_epi64((long long)0x8040201008040201u),
                  columns = lmc__load_avx512(lmc__columns);
    const __m512i low = _mm512_permutex2var_epi8(table[0], keys, table[1]),
                  high = _mm512_permutex2var_epi8(table[2], keys, table[3]),
                  bits = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(keys), high);
    return _mm512_permutexvar_epi8(
        columns, _mm512_gf2p8affine_epi64_epi8(diagonal, _mm512_shuffle_epi8(bits, reversed), 0));
}

#ifndef LMC_NO_ENCODER
/* The classes of a step's groups of 64 elements: mask[g][c] has a one for each element of group g
 * in class c; before[g][c] is how many elements of class c are before group g. A separate loop
 * finds both before they are used, so that steps overlap. */
typedef struct lmc__found {
    uint64_t mask[LMC__TALLY_GROUPS][LMC__MAX_CLASSES], before[LMC__TALLY_GROUPS][LMC__MAX_CLASSES];
} lmc__found;

/* n_of: elements of each class so far; the elements of these groups are added. */
LMC__INLINE_AVX512 void lmc__find_set(lmc__found *found, __m512i *n_of, const lmc__finder *finder,
                                      unsigned set, const uint8_t *base, unsigned width)
{
    const __m512i *const table = finder->table[set];
    const __m512i own[4] = {table[0], table[1], table[2], table[3]};
    __m512i sum = n_of[set];
    unsigned g;
    for (g = 0; g < LMC__TALLY_GROUPS; g++) {
        const __m512i keys = lmc__load_keys_avx512(base + 64 * g * width, width),
                      m = lmc__class_masks_avx512(keys, own);
        _mm512_storeu_si512(&found->mask[g][8 * set], m);
        _mm512_storeu_si512(&found->before[g][8 * set], sum);
        sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(m));
    }
    n_of[set] = sum;
}
LMC__INLINE_AVX512 void lmc__find_classes(lmc__found *found, __m512i n_of[LMC__MAX_CLASSES / 8],
                                          const lmc__finder *finder, const uint8_t *base,
                                          unsigned width)
{
    unsigned set;
    LMC__FOR_WIDTH(for (set = 0; set < finder->n_sets; set++)
                       lmc__find_set(found, n_of, finder, set, base, w));
}

/* Stores n_of as counts, at the end of a loop. */
LMC__INLINE_AVX512 void lmc__store_found(size_t counts[LMC__MAX_CLASSES],
                                         const __m512i n_of[LMC__MAX_CLASSES / 8])
{
    uint64_t words[LMC__MAX_CLASSES];
    unsigned c;
    _mm512_storeu_si512(words, n_of[0]);
    _mm512_storeu_si512(words + 8, n_of[1]);
    for (c = 0; c < LMC__MAX_CLASSES; c++) counts[c] = (size_t)words[c];
}
#endif

/* The ones of a word are the elements of one group in one class: their number goes to the tally. */
LMC__AVX512 static void lmc__count_classes_avx512(size_t counts[LMC__MAX_CLASSES],
                                                  const uint8_t *base, size_t n, unsigned width,
                                                  const lmc__grouping *grouping, uint8_t *tally)
{
    const unsigned n_classes = grouping->n_classes;
    const size_t row = lmc__tally_row(n);
    size_t i;
    __m512i keys[LMC__TALLY_GROUPS], up_to[LMC__MAX_CLASSES / 8];
    uint64_t in_classes[LMC__MAX_CLASSES];
    lmc__finder finder;
    unsigned v, c, set;
    lmc__set_finder(&finder, grouping, 1);
    up_to[0] = up_to[1] = _mm512_setzero_si512();
    for (i = 0; i + LMC__TALLY_STEP <= n; i += LMC__TALLY_STEP) {
        lmc__touch_ahead(base, i * width + LMC__FETCH_AHEAD);
        lmc__load_step_avx512(keys, base + i * width, width);
        for (set = 0; set < finder.n_sets; set++) {
            __m512i groups = _mm512_setzero_si512();
            LMC__UNROLL for (v = 0; v < LMC__TALLY_GROUPS; v++) groups = _mm512_or_si512(
                groups, _mm512_sllv_epi64(_mm512_popcnt_epi64(
                                              lmc__class_masks_avx512(keys[v], finder.table[set])),
                                          _mm512_set1_epi64(8 * v)));
            lmc__store_avx512((uint8_t *)(in_classes + 8 * set), groups);
            up_to[set] =
                _mm512_add_epi64(up_to[set], _mm512_sad_epu8(groups, _mm512_setzero_si512()));
        }
        if (tally)
            for (c = 0; c + 1 < n_classes; c++)
                lmc__store64(tally + c * row + i / 64, in_classes[c]);
    }
    lmc__store_avx512((uint8_t *)in_classes, up_to[0]);
    lmc__store_avx512((uint8_t *)(in_classes + 8), up_to[1]);
    lmc__count_classes_scalar(counts, base + i * width, n - i, width, grouping, NULL);
    for (c = 0; c < n_classes; c++)
        counts[c] += (size_t)(in_classes[c] - (c ? in_classes[c - 1] : 0));
}
#endif
