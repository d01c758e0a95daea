#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/tables.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"
#include "kernels/crc32c.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"
#include "kernels/classes.h"

/* patch: restores elements of which few have changed (spec 5.2, Sparse). dst becomes a copy of
 * base, except for the elements that changes->at names. Element number at[c][j] of class c, counted
 * from 0 among the class's elements in base, has the residual changes->residual[c][j], of `width`
 * bytes; the element of base and this residual give the element of dst. dst may be base; then only
 * changes are written. Returns the CRC-32C of dst.
 *
 *     base                    A0 B0 A1 A2 B1 B2 A3 ...        classes A and B, numbered
 *     at[A]  2 3 -            .  .  .  x  .  .  x
 *     at[B]  1 -              .  .  .  .  x  .  .
 *
 * tally was filled by count_classes of the same table, for the same base and grouping. With it,
 * elements that have not changed are only copied and added to the CRC.
 *
 * Numbers ascend strictly in each class; LMC__NO_CHANGE, at the end, decides how far both arrays
 * are read; LMC__PAD more bytes may be. A number beyond the class's elements changes nothing. */

/* Notes element i before it changes. */
LMC__INLINE void lmc__note_undo(lmc__undo *undo, size_t i, uint64_t before, unsigned width)
{
    if (!undo) return;
    undo->place[undo->n] = (uint32_t)i;
    lmc__store_element(undo->before, undo->n++, before, width);
}

/* Undoes all changes that patch has made to the block at dst. */
LMC__INLINE void lmc__put_back(uint8_t *dst, const lmc__undo *undo, unsigned width)
{
    size_t j;
    for (j = 0; j < undo->n; j++)
        memcpy(dst + (size_t)undo->place[j] * width, undo->before + j * width, width);
}

/* For the first n elements: in each class, the changes done and the elements seen; the CRC-32C. */
typedef struct lmc__patch_progress {
    size_t n;
    uint32_t next[LMC__MAX_CLASSES], seen[LMC__MAX_CLASSES], crc;
} lmc__patch_progress;

LMC__INLINE void lmc__patch_body(uint8_t *dst, const lmc__patches *changes,
                                 const lmc__delta_block *block, unsigned width,
                                 const lmc__patch_progress *done, lmc__undo *undo)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__patches from = *changes;
    lmc__patch_progress p = *done;
    uint8_t class_of[256];
    size_t i;
    lmc__set_class_table(class_of, own.grouping);
    for (i = p.n; i < own.n; i++) {
        const uint64_t b = lmc__load_element(own.base, i, width);
        const unsigned c = class_of[lmc__key(b, width)];
        uint64_t v = b;
        if (from.at[c][p.next[c]] == p.seen[c]++) {
            lmc__note_undo(undo, i, b, width);
            v = lmc__restore_element(lmc__load_element(from.residual[c], p.next[c]++, width), b,
                                     width, own.order);
        }
        lmc__store_element(dst, i, v, width);
    }
}

/* Elements [done->n, n), one by one. This defines patch; the other tiers end with it. */
static uint32_t lmc__patch_rest(const lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,
                                const lmc__delta_block *block, const lmc__patch_progress *done,
                                lmc__undo *undo)
{
    const unsigned width = block->width;
    const size_t from = done->n * width, end = block->n * width;
    LMC__FOR_WIDTH(lmc__patch_body(dst, changes, block, w, done, undo));
    return k->crc32c(done->crc, dst + from, end - from);
}

static uint32_t lmc__patch_scalar(const lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,
                                  const lmc__delta_block *block, const uint8_t *tally,
                                  lmc__undo *undo, lmc__streaming streaming)
{
    const lmc__patch_progress done = {0, {0}, {0}, 0};
    (void)tally;
    (void)streaming;
    return lmc__patch_rest(k, dst, changes, block, &done, undo);
}

#if LMC__NEON || LMC__X86
/* The place in m of one bit number `rank`, from 0. Sums of one bits say which byte has it. */
LMC__INLINE_VEC unsigned LMC__VEC(find_one)(uint64_t m, unsigned rank)
{
    const uint64_t ones = LMC__ONES8, high = ones << 7;
#if LMC__NEON
    const uint64_t up_to = lmc__begin_ones_neon(m);
#else
    const uint64_t pairs = m - (m >> 1 & ones * 0x55),
                   quads = (pairs & ones * 0x33) + (pairs >> 2 & ones * 0x33),
                   up_to = ((quads + (quads >> 4)) & ones * 0x0F) * ones;
#endif
    /* bits before this byte: of each byte whose sum is at most rank, the difference keeps bit 7 */
    const unsigned shift =
                       8 * (unsigned)__builtin_popcountll(((rank * ones | high) - up_to) & high),
                   before = (unsigned)(up_to << 8 >> shift & 255);
    return shift + (unsigned)(lmc__sort_places[m >> shift & 255][1] >> 8 * (rank - before) & 255);
}
#endif

#if LMC__NEON
/* Steps of 64 elements. A change is found by its rank in the mask of its class, which is made only
 * if a class has a change in the step. All keys are loaded before an element changes, so dst may be
 * base. */
LMC__INLINE void lmc__patch_steps_neon(uint8_t *dst, const lmc__patches *changes,
                                       const lmc__delta_block *block, size_t n, unsigned width,
                                       const uint8x16_t *highest, const lmc__key_ranges *ranges,
                                       lmc__patch_progress *done, lmc__undo *undo)
{
    const lmc__delta_block own = *block; /* copies, which no store of bytes can change */
    const lmc__patches from = *changes;
    const unsigned n_classes = own.grouping->n_classes;
    uint8x16_t keys[4];
    size_t i;
    unsigned c;
    for (i = done->n; i < n; i += 64) {
        uint32_t before = 0, up_to;
        lmc__load_step_neon(keys, own.base + i * width, width);
        if (dst != own.base) memcpy(dst + i * width, own.base + i * width, 64 * width);
        for (c = 0; c < n_classes; c++, before = up_to) {
            const uint32_t first = done->seen[c];
            uint32_t end;
            up_to = c + 1 < n_classes ? lmc__count_up_to_neon(keys, highest[c]) : 64;
            done->seen[c] = end = first + up_to - before;
            if (from.at[c][done->next[c]] < end) {
                const uint64_t m = lmc__in_range_neon(keys, ranges->first[c], ranges->more[c]);
                do {
                    const uint32_t next = done->next[c]++;
                    const size_t at = i + lmc__find_one_neon(m, from.at[c][next] - first);
                    const uint64_t b = lmc__load_element(own.base, at, width);
                    lmc__note_undo(undo, at, b, width);
                    lmc__store_element(
                        dst, at,
                        lmc__restore_element(lmc__load_element(from.residual[c], next, width), b,
                                             width, own.order),
                        width);
                } while (from.at[c][done->next[c]] < end);
            }
        }
    }
    done->n = n;
}

static uint32_t lmc__patch_neon(const lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,
                                const lmc__delta_block *block, const uint8_t *tally,
                                lmc__undo *undo, lmc__streaming streaming)
{
    const unsigned width = block->width;
    const size_t n = block->n;
    uint8x16_t highest[LMC__MAX_CLASSES];
    lmc__key_ranges ranges;
    lmc__patch_progress done = {0, {0}, {0}, 0};
    size_t i, end;
    (void)tally;
    (void)streaming;
    lmc__set_highest_neon(highest, block->grouping);
    lmc__set_key_ranges(&ranges, block->grouping);
    for (i = 0; i + 64 <= n; i = end) {
        end = i + lmc__min(LMC__STRIP_ELEMENTS(width), (n - i) & ~(size_t)63);
        LMC__FOR_WIDTH(
            lmc__patch_steps_neon(dst, changes, block, end, w, highest, &ranges, &done, undo));
        done.crc = k->crc32c(done.crc, dst + i * width, (end - i) * width);
    }
    return lmc__patch_rest(k, dst, changes, block, &done, undo);
}
#endif

#if LMC__X86
/* In each chunk, class by class, the changes whose numbers are in the chunk are found. The tally's
 * bytes say how many elements of the class each group of 64 has:
 *     of class c           2        2        2                 difference of two rows of the tally
 *     up_to                       2        4        6
 *     at - seen = 3  -->  up_to <= 3 holds once: group 1, in which it is number 3 - 2 = 1
 *     group 1              . . x . . . x .                     keys compared with the class's range
 *                                      ^
 *
 * dst may be base, and a changed element may get another key, while the keys of its group may be
 * needed again. So elements are written only when all changes of a chunk are computed. */
#define LMC__PATCH_GROUPS 32u
#define LMC__PATCH_CHUNK (64 * LMC__PATCH_GROUPS)

/* Changes that are taken from a list at a time: the slack of a list has room for as many. */
#define LMC__PATCH_STEP (LMC__PAD / 4)

/* A chunk's elements that change: places (at first: class * LMC__PATCH_CHUNK + number in the class
 * and chunk), values before the change, residuals. A strip of elements of 8 bytes has only half as
 * many elements as a chunk. up_to[c]: sums of class c from entry LMC__PATCH_GROUPS on, after 0. */
typedef struct lmc__pending {
    uint16_t up_to[LMC__MAX_CLASSES][2 * LMC__PATCH_GROUPS];
    uint16_t place[LMC__PATCH_CHUNK + LMC__PATCH_STEP];
    uint8_t element[LMC__STRIP_SIZE + LMC__PAD], residual[LMC__STRIP_SIZE + LMC__PAD];
} lmc__pending;

/* The sum of 32 bytes. */
LMC__INLINE_AVX2 uint32_t lmc__sum_bytes_avx2(__m256i v)
{
    const __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
}

/* For each of 16 numbers of 16 bits, the sum of the numbers up to it. */
LMC__INLINE_AVX2 __m256i lmc__sums_up_to_avx2(__m256i v)
{
    const __m256i last = _mm256_set1_epi16(0x0F0E);
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 2));
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 4));
    v = _mm256_add_epi16(v, _mm256_slli_si256(v, 8));
    /* adds the last of the lower eight to the upper eight; 0x08: zeros, then the lower half */
    return _mm256_add_epi16(v, _mm256_shuffle_epi8(_mm256_permute2x128_si256(v, v, 0x08), last));
}

/* sum_groups: the sums of the first 1, 2 ... 32 of 32 bytes, of 16 bits each, to up_to. find_group:
 * how many of these sums are at most `number`: the group of that element. */
LMC__INLINE_AVX2 void lmc__sum_groups_avx2(uint16_t *up_to, __m256i own)
{
    const __m256i low = lmc__sums_up_to_avx2(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(own))),
                  high =
                      lmc__sums_up_to_avx2(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(own, 1)));
    lmc__store_avx2((uint8_t *)up_to, low);
    lmc__store_avx2((uint8_t *)(up_to + 16),
                    _mm256_add_epi16(high, _mm256_shuffle_epi8(_mm256_permute4x64_epi64(low, 0xFF),
                                                               _mm256_set1_epi16(0x0F0E))));
}
LMC__INLINE_AVX2 unsigned lmc__find_group_avx2(const uint16_t *up_to, uint32_t number)
{
    const __m256i wanted = _mm256_set1_epi16((short)number),
                  low = lmc__load_avx2((const uint8_t *)up_to),
                  high = lmc__load_avx2((const uint8_t *)(up_to + 16));
    /* packs takes halves of the two vectors in turn, which does not change how many there are */
    return LMC__PATCH_GROUPS -
           (unsigned)_mm_popcnt_u32((uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(
               _mm256_cmpgt_epi16(low, wanted), _mm256_cmpgt_epi16(high, wanted))));
}

/* Of the next LMC__PATCH_STEP changes of class c, takes those with numbers below `end` to pending,
 * from entry n on; `seen` is subtracted from the numbers. Returns how many it took. There is no
 * branch for each change, because a CPU cannot predict it. */
LMC__INLINE_AVX2 uint32_t lmc__take_changes_avx2(lmc__pending *pending, size_t n,
                                                 const uint32_t *at, const uint8_t *residual,
                                                 unsigned c, uint32_t seen, uint32_t end,
                                                 unsigned width)
{
    const __m256i low = lmc__load_avx2((const uint8_t *)at),
                  high = lmc__load_avx2((const uint8_t *)(at + 8)),
                  from = _mm256_set1_epi32((int)seen), limit = _mm256_set1_epi32((int)end);
    /* numbers below `end` fit in 16 bits; packing takes halves of the two vectors in turn */
    const __m256i numbers =
                      _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_sub_epi32(low, from),
                                                                   _mm256_sub_epi32(high, from)),
                                               0xD8),
                  is_behind = _mm256_permute4x64_epi64(
                      _mm256_packs_epi32(_mm256_cmpeq_epi32(_mm256_max_epu32(low, limit), low),
                                         _mm256_cmpeq_epi32(_mm256_max_epu32(high, limit), high)),
                      0xD8);
    const uint32_t n_taken = (uint32_t)_tzcnt_u64((uint32_t)_mm256_movemask_epi8(is_behind) |
                                                  (uint64_t)1 << 2 * LMC__PATCH_STEP) /
                             2;
    size_t i;
    lmc__store_avx2((uint8_t *)(pending->place + n),
                    _mm256_add_epi16(numbers, _mm256_set1_epi16((short)(c * LMC__PATCH_CHUNK))));
    for (i = 0; i < (width <= 2 ? 1 : n_taken * width); i += 32)
        lmc__store_avx2(pending->residual + n * width + i, lmc__load_avx2(residual + i));
    return n_taken;
}

/* The same, by pdep if that is fast: it is microcoded on Zen 1 and 2. */
LMC__INLINE_AVX2 unsigned lmc__find_one(uint64_t m, unsigned rank, int has_fast_pdep)
{
    if (has_fast_pdep) return (unsigned)_tzcnt_u64(_pdep_u64((uint64_t)1 << rank, m));
    return lmc__find_one_avx2(m, rank);
}

/* Copies a multiple of 64 bytes; for memcpy, compilers would use a slow instruction here. */
LMC__INLINE_AVX2 void lmc__copy_lines_avx2(uint8_t *dst, const uint8_t *src, size_t size)
{
    size_t i;
    for (i = 0; i < size; i += 64) {
        const __m256i low = lmc__load_avx2(src + i), high = lmc__load_avx2(src + i + 32);
        lmc__touch_ahead(dst, i);
        lmc__store_avx2(dst + i, low);
        lmc__store_avx2(dst + i + 32, high);
    }
}

/* Ends a strip: computes its CRC and, if streams is 1, streams it to dst. The next strip is fetched
 * meanwhile. AVX-512 does all in one loop, because streaming stores wait for memory; it also
 * fetches `size` bytes at `later`, if that is not NULL. size is a multiple of 512. */
LMC__INLINE_AVX2 uint32_t lmc__end_strip_avx2(const lmc__kernels *k, uint32_t crc, uint8_t *dst,
                                              const uint8_t *strip, size_t size,
                                              const uint8_t *next, const uint8_t *later,
                                              int streams)
{
    (void)later;
    crc = lmc__crc_ahead_avx2(k, crc, strip, size, next);
    if (streams) lmc__stream_avx2(dst, strip, size);
    return crc;
}
LMC__INLINE_AVX512 uint32_t lmc__end_strip_avx512(const lmc__kernels *k, uint32_t crc, uint8_t *dst,
                                                  const uint8_t *strip, size_t size,
                                                  const uint8_t *next, const uint8_t *later,
                                                  int streams)
{
    const __m512i fold = lmc__crc_factor(4), zero = _mm512_setzero_si512();
    lmc__streamer_avx512 stream = lmc__start_stream_avx512(dst);
    __m512i sum[4] = {zero, zero, zero, zero}, v[4], start = lmc__crc_start(crc);
    size_t i;
    unsigned p;
    (void)k;
    for (i = 0; i < size; i += 256) {
        lmc__touch_ahead(next, i);
        if (later) {
            lmc__touch_ahead(later, i);
            LMC__UNROLL for (p = 0; p < 4; p++)
                LMC__PREFETCH((const uint8_t *)((uintptr_t)later + i + 64 * p));
        }
        LMC__UNROLL for (p = 0; p < 4; p++)
        {
            const size_t at = i + 64 * p;
            LMC__PREFETCH((const uint8_t *)((uintptr_t)next + at));
            v[p] = lmc__load_avx512(strip + at);
            if (streams) lmc__stream_avx512(&stream, dst + at, v[p], at == 0);
        }
        lmc__crc_add_avx512(sum, fold, v, 4, &start);
    }
    if (streams) lmc__end_stream_avx512(&stream, dst + size);
    return lmc__crc_finish(sum, 4);
}

/* Copies the changes of a chunk to pending, and sums up the chunk's tally, by which they are placed
 * later. Returns how many there are. n_groups: of the chunk, at most 32. */
LMC__INLINE_AVX2 size_t lmc__take_chunk_avx2(lmc__pending *pending, lmc__patch_progress *done,
                                             size_t n_groups, const uint8_t *tally, size_t row,
                                             const lmc__patches *changes, unsigned n_classes,
                                             unsigned width)
{
    const __m256i here =
        _mm256_cmpgt_epi8(_mm256_set1_epi8((char)n_groups), lmc__load_avx2(lmc__count_up));
    __m256i before = _mm256_setzero_si256();
    size_t n = 0;
    unsigned c;
    for (c = 0; c < n_classes; c++) {
        /* of each group, elements in classes 0 .. c: all 64 for the last class, which has no row */
        const __m256i up_to = c + 1 < n_classes ? lmc__load_avx2(tally + c * row)
                                                : _mm256_set1_epi8(64),
                      all = _mm256_and_si256(up_to, here), own = _mm256_sub_epi8(all, before);
        const uint32_t *const at = changes->at[c], seen = done->seen[c],
                              end = seen + lmc__sum_bytes_avx2(own);
        uint32_t next = done->next[c], n_taken;
        before = all;
        done->seen[c] = end;
        if (at[next] >= end) continue;
        lmc__sum_groups_avx2(pending->up_to[c] + LMC__PATCH_GROUPS, own);
        do {
            n_taken = lmc__take_changes_avx2(pending, n, at + next,
                                             changes->residual[c] + (size_t)next * width, c, seen,
                                             end, width);
            n += n_taken;
            next += n_taken;
        } while (n_taken == LMC__PATCH_STEP);
        done->next[c] = next;
    }
    return n;
}

/* Restores the chunk's n pending elements, and writes them to out, which already has the elements
 * of base. from: the number of the chunk's first element. */
#define LMC__DEFINE_PATCH_CHUNK(isa, INLINE, vector)                                               \
    INLINE void lmc__patch_chunk_##isa(lmc__pending *pending, size_t n, uint8_t *out,              \
                                       const uint8_t *base, const lmc__key_ranges *ranges,         \
                                       lmc__undo *undo, size_t from, unsigned width,               \
                                       enum lmc__order order, int has_fast_pdep)                   \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i < n; i++) {                                                                  \
            const uint32_t number = pending->place[i] % LMC__PATCH_CHUNK;                          \
            const unsigned c = pending->place[i] / LMC__PATCH_CHUNK;                               \
            const uint16_t *up_to = pending->up_to[c] + LMC__PATCH_GROUPS;                         \
            size_t place = lmc__find_group_avx2(up_to, number);                                    \
            uint64_t m;                                                                            \
            up_to += place;                                                                        \
            place *= 64;                                                                           \
            m = lmc__find_keys_##isa(base + place * width, width, ranges->first[c],                \
                                     ranges->more[c]);                                             \
            place += lmc__find_one(m, number - up_to[-1], has_fast_pdep);                          \
            pending->place[i] = (uint16_t)place;                                                   \
            lmc__store_element(pending->element, i, lmc__load_element(base, place, width), width); \
        }                                                                                          \
        for (i = 0; undo && i < n; i++)                                                            \
            lmc__note_undo(undo, from + pending->place[i],                                         \
                           lmc__load_element(pending->element, i, width), width);                  \
        for (i = 0; i < n * width; i += vector)                                                    \
            lmc__store_##isa(pending->element + i,                                                 \
                             lmc__restore_##isa(lmc__load_##isa(pending->residual + i),            \
                                                lmc__load_##isa(pending->element + i), width,      \
                                                order));                                           \
        for (i = 0; i < n; i++)                                                                    \
            lmc__store_element(out, pending->place[i],                                             \
                               lmc__load_element(pending->element, i, width), width);              \
    }
LMC__DEFINE_PATCH_CHUNK(avx2, LMC__INLINE_AVX2, 32)
LMC__DEFINE_PATCH_CHUNK(avx512, LMC__INLINE_AVX512, 64)
#undef LMC__DEFINE_PATCH_CHUNK

/* Restores the whole steps of the tally, then the rest. A strip is copied first, unless dst is
 * base: to dst or, if it is streamed, to a buffer, aligned so that loads cross no lines. */
#define LMC__END_STRIP(isa, streams)                                                               \
    lmc__end_strip_##isa(k, done.crc, to, out, size, from + size,                                  \
                         i * width < streaming.next_size ? streaming.next + i * width : NULL,      \
                         streams)
#define LMC__DEFINE_PATCH(isa, attribute, has_fast_pdep)                                           \
    attribute static uint32_t lmc__patch_##isa(                                                    \
        const lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,                          \
        const lmc__delta_block *block, const uint8_t *tally, lmc__undo *undo,                      \
        lmc__streaming streaming)                                                                  \
    {                                                                                              \
        const lmc__delta_block own = *block; /* a copy, which no store of bytes can change */      \
        const unsigned width = own.width;                                                          \
        const size_t whole = own.n - own.n % LMC__TALLY_STEP, row = lmc__tally_row(own.n);         \
        const int streams = streaming.is_on && dst != own.base;                                    \
        uint8_t buffer[LMC__STRIP_SIZE] __attribute__((aligned(64)));                              \
        lmc__patch_progress done = {0, {0}, {0}, 0};                                               \
        lmc__key_ranges ranges;                                                                    \
        lmc__pending pending;                                                                      \
        size_t i, j;                                                                               \
        memset(pending.up_to, 0, sizeof pending.up_to);                                            \
        lmc__set_key_ranges(&ranges, own.grouping);                                                \
        for (i = 0; i < whole; i += LMC__STRIP_ELEMENTS(width)) {                                  \
            const size_t m = lmc__min(whole - i, LMC__STRIP_ELEMENTS(width)), size = m * width;    \
            const uint8_t *const from = own.base + i * width;                                      \
            uint8_t *const to = dst + i * width, *const out = streams ? buffer : to;               \
            if (out != from) lmc__copy_lines_avx2(out, from, size);                                \
            for (j = 0; j < m; j += LMC__PATCH_CHUNK) {                                            \
                const size_t n_pending = lmc__take_chunk_avx2(                                     \
                    &pending, &done, lmc__min(m - j, LMC__PATCH_CHUNK) / 64, tally + (i + j) / 64, \
                    row, changes, own.grouping->n_classes, width);                                 \
                LMC__FOR_WIDTH(lmc__patch_chunk_##isa(&pending, n_pending, out + j * width,        \
                                                      from + j * width, &ranges, undo, i + j, w,   \
                                                      own.order, has_fast_pdep));                  \
            }                                                                                      \
            done.crc = streams ? LMC__END_STRIP(isa, 1) : LMC__END_STRIP(isa, 0);                  \
        }                                                                                          \
        done.n = whole;                                                                            \
        return lmc__patch_rest(k, dst, changes, block, &done, undo);                               \
    }
LMC__DEFINE_PATCH(avx2, LMC__AVX2, k->has_fast_pdep)
LMC__DEFINE_PATCH(avx512, LMC__AVX512, 1)
#undef LMC__DEFINE_PATCH
#endif
