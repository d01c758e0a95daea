#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"
#include "kernels/crc32c.h"

/* Strips and streams: how the fused kernels (split_root, group and so on) go through a block.
 *
 * Each does the work of several kernels. But a block does not fit into the first cache. So a fused
 * kernel takes one strip through all stages, then the next strip:
 *   scalar, SIMDe   kernel after kernel, on one strip at a time
 *   AVX2, NEON      all stages in one loop over the strip's vectors
 *   AVX-512         the same; a strip is one step of 64 elements, and the CRC, which AVX-512
 *                   computes in vector registers, needs no bytes in memory
 *
 * An encoder's input may change at any time (put_block.h). So it is read only once: a strip is
 * copied to the stack first, and all stages use the copy. On AVX-512 the copy is in registers.
 *
 * The vector loops process only whole steps or strips, and return how far they came, an
 * lmc__progress; the kernels of the tier do the rest of the block, strip by strip. */

/* Bytes of elements in a strip. With planes and their lists it stays in a first cache of 32 KiB. */
#define LMC__STRIP_SIZE 8192u

/* The elements in a strip: 1024 of the widest elements, and always a multiple of 64. So a strip
 * begins with a byte of the mask and ends with a step of any tier. */
#define LMC__STRIP_ELEMENTS(width) (LMC__STRIP_SIZE / (width))

/* What a vector loop has done: the first n elements, whose bytes in src or dst have the CRC-32C
 * crc. n_right, only of split_root: ones in their part of the root's mask. */
typedef struct lmc__progress {
    size_t n, n_right;
    uint32_t crc;
    uint64_t sum; /* sum64 of these bytes, where it is wanted */
} lmc__progress;
static const lmc__progress lmc__no_progress = {0, 0, 0, 0};

#if LMC__NEON && !defined(LMC_NO_ENCODER)
/* As lmc__fetch_bytes_avx2 and lmc__crc_ahead_avx2, but fetches nothing. */
LMC__INLINE void lmc__fetch_bytes_neon(const uint8_t *p, size_t size)
{
    (void)p;
    (void)size;
}
LMC__INLINE uint32_t lmc__crc_ahead_neon(const lmc__kernels *k, uint32_t crc, const uint8_t *p,
                                         size_t size, const uint8_t *next)
{
    (void)next;
    return k->crc32c(crc, p, size);
}
#endif

#if LMC__X86
/* A loop is a function for each width (LMC__DEFINE_WIDTHS). It begins at a cache line, so that
 * changes of other code do not change its speed. */
#define LMC__LOOP_AVX2 static __attribute__((noinline, aligned(64))) LMC__AVX2
#define LMC__LOOP_AVX512 static __attribute__((noinline, aligned(64))) LMC__AVX512

#define LMC__PAGE 4096u

/* Call it with i = 0, k, 2 k, ..., where k divides the page's size. Once in each page it prefetches
 * from the next page. Else the first access to a page waits until its address is translated, and
 * other stores and prefetches wait, too. A prefetch behind the data does no harm. */
LMC__INLINE_AVX2 void lmc__touch_ahead(const uint8_t *data, size_t i)
{
    if (i % LMC__PAGE == 0)
        __builtin_prefetch((const uint8_t *)((uintptr_t)data + i + LMC__PAGE), 0, 3);
}

/* How many bytes ahead encoders fetch. They have just read samples from all parts of the block, so
 * the hardware cannot predict the next reads. */
#define LMC__FETCH_AHEAD 4096u

/* The CRC of a strip that is in the first cache. If its size is a multiple of four lanes, as many
 * bytes at `next` are fetched meanwhile: the hardware does not, as reads jump between lanes. */
LMC__INLINE_AVX2 uint32_t lmc__crc_ahead_avx2(const lmc__kernels *k, uint32_t crc, const uint8_t *p,
                                              size_t size, const uint8_t *next)
{
    lmc__crc_lane c[4] = {(uint32_t)~crc, 0, 0, 0};
    size_t at, i;
    if (size % (4 * LMC__CRC_LANE4)) return k->crc32c(crc, p, size);
    for (at = 0; at < size; at += 4 * LMC__CRC_LANE4) {
        for (i = 0; i < LMC__CRC_LANE4 / 8; i += 2) {
            LMC__PREFETCH((const uint8_t *)((uintptr_t)next + at + LMC__LINE / 2 * i));
            lmc__crc_lanes(c, p + at, i);
            lmc__crc_lanes(c, p + at, i + 1);
        }
        lmc__crc_join_lanes(c);
    }
    return ~(uint32_t)c[0];
}

#ifndef LMC_NO_ENCODER
/* Fetches LMC__FETCH_AHEAD behind vector p of the step at element i, nothing behind n elements. */
LMC__INLINE_AVX512 void lmc__fetch_ahead_avx512(const uint8_t *src, size_t i, size_t n,
                                                unsigned width, unsigned p)
{
    LMC__PREFETCH(src + lmc__min(i * width + 64 * p + LMC__FETCH_AHEAD, n * width));
}
#endif

/* Bytes of streaming.next to fetch with each of n elements: all of it is fetched at the end. */
LMC__INLINE size_t lmc__next_per_element(lmc__streaming streaming, size_t n)
{
    return (streaming.next_size + n - 1) / n;
}

/* Fetches the bytes of streaming.next for 64 elements, from number i on, line by line. */
LMC__INLINE_AVX512 void lmc__fetch_next_avx512(lmc__streaming streaming, size_t i,
                                               size_t per_element)
{
    const size_t end = lmc__min((i + 64) * per_element, streaming.next_size);
    size_t at;
    for (at = i * per_element; at < end; at += LMC__LINE) {
        lmc__touch_ahead(streaming.next, at);
        LMC__PREFETCH(streaming.next + at);
    }
}

/* Streaming stores need whole cache lines, and dst may start anywhere in a line. So each line is
 * made of the end of one vector and the start of the next; `head` bytes are before the first:
 *   vectors        |      v0       |      v1       |      v2       |
 *   lines     |  (head)  |    line 0     |    line 1     | (tail)  |
 *
 * line i = bytes [head, 64) of vector i, then [0, head) of vector i + 1. The head is stored from
 * v0, the tail from the last vector, both masked: nothing outside of dst is written. */
typedef struct lmc__streamer_avx512 {
    unsigned head;
    __m512i shift, last; /* places of a line's bytes in the two vectors; the vector before */
} lmc__streamer_avx512;

LMC__INLINE_AVX512 lmc__streamer_avx512 lmc__start_stream_avx512(const uint8_t *dst)
{
    lmc__streamer_avx512 s;
    s.head = (unsigned)((0 - (uintptr_t)dst) & 63);
    s.shift = _mm512_add_epi8(lmc__load_avx512(lmc__count_up), lmc__splat_avx512(s.head));
    s.last = _mm512_setzero_si512();
    return s;
}

/* Stores v, the next vector of dst, at `at`. */
LMC__INLINE_AVX512 void lmc__stream_avx512(lmc__streamer_avx512 *s, uint8_t *at, __m512i v,
                                           int is_first)
{
    if (is_first) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << s->head) - 1, v);
    else
        _mm512_stream_si512((__m512i *)(void *)(at + s->head - 64),
                            _mm512_permutex2var_epi8(s->last, s->shift, v));
    s->last = v;
}

/* Stores the last 64 - head bytes before `end`, the end of dst. */
LMC__INLINE_AVX512 void lmc__end_stream_avx512(const lmc__streamer_avx512 *s, uint8_t *end)
{
    _mm512_mask_storeu_epi8(end + s->head - 64, ~(__mmask64)0 >> s->head,
                            _mm512_permutex2var_epi8(s->last, s->shift, s->last));
}

/* A line is written by two stores of 32 bytes in a row, so the CPU can write it to memory at once.
 * Bytes before the first whole line and behind the last one are copied by memcpy. */
LMC__AVX2 static void lmc__stream_avx2(uint8_t *dst, const uint8_t *src, size_t size)
{
    size_t i = lmc__min(size, (0 - (uintptr_t)dst) & (LMC__LINE - 1));
    memcpy(dst, src, i);
    for (; i + LMC__LINE <= size; i += LMC__LINE) {
        _mm256_stream_si256((__m256i *)(void *)(dst + i), lmc__load_avx2(src + i));
        _mm256_stream_si256((__m256i *)(void *)(dst + i + 32), lmc__load_avx2(src + i + 32));
    }
    memcpy(dst + i, src + i, size - i);
}
#endif
