#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"

/* The basic operations of the NEON tier, on vectors of 16 bytes. The comment in front of each gives
 * its scalar meaning, for byte i of the result r. Elements have `width` bytes (1, 2, 4 or 8), the
 * lowest first. All are inlined, so width, left and the like are constants.
 *
 * NEON has no instruction that makes a mask of a vector's bytes. So lmc__collect_neon collects the
 * bits of 64 bytes at a time, and masks stay in a vector register of 8 bytes if they can. */
#if LMC__NEON
#include <arm_neon.h>

/* load: r[i] = p[i]. store: the inverse. */
LMC__INLINE uint8x16_t lmc__load_neon(const uint8_t *p) { return vld1q_u8(p); }
LMC__INLINE void lmc__store_neon(uint8_t *p, uint8x16_t v) { vst1q_u8(p, v); }

/* r[i] = v. */
LMC__INLINE uint8x16_t lmc__splat_neon(unsigned v) { return vdupq_n_u8((uint8_t)v); }

/* r[i] = v[i] <= w[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__up_to_neon(uint8x16_t v, uint8x16_t w) { return vcleq_u8(v, w); }

/* Four vectors for look-ups, in consecutive registers: else gcc copies them there each time. */
LMC__INLINE uint8x16x4_t lmc__load64_neon(const uint8_t *p)
{
#if defined(__clang__) || __GNUC__ >= 11
    return vld1q_u8_x4(p);
#else
    uint8x16x4_t v;
    v.val[0] = vld1q_u8(p);
    v.val[1] = vld1q_u8(p + 16);
    v.val[2] = vld1q_u8(p + 32);
    v.val[3] = vld1q_u8(p + 48);
    return v;
#endif
}

/* r[i] = ab[2 i], where ab is a, then b. */
LMC__INLINE uint8x16_t lmc__even_neon(uint8x16_t a, uint8x16_t b) { return vuzp1q_u8(a, b); }

/* The inverse: first, then second, are the bytes of a and b in turn. */
LMC__INLINE void lmc__zip_neon(uint8x16_t *first, uint8x16_t *second, uint8x16_t a, uint8x16_t b)
{
    *first = vzip1q_u8(a, b);
    *second = vzip2q_u8(a, b);
}

/* Each element rotated by one bit: a shift, then an insertion of the other shift. */
#define LMC__ROTATE(bits, x)                                                                       \
    (left ? vsriq_n_u##bits(vshlq_n_u##bits(x, 1), x, bits - 1)                                    \
          : vsliq_n_u##bits(vshrq_n_u##bits(x, 1), x, bits - 1))
LMC__INLINE uint8x16_t lmc__rotate_neon(uint8x16_t v, unsigned width, int left)
{
    switch (width) {
    case 1: return LMC__ROTATE(8, v);
    case 2: return vreinterpretq_u8_u16(LMC__ROTATE(16, vreinterpretq_u16_u8(v)));
    case 4: return vreinterpretq_u8_u32(LMC__ROTATE(32, vreinterpretq_u32_u8(v)));
    default: return vreinterpretq_u8_u64(LMC__ROTATE(64, vreinterpretq_u64_u8(v)));
    }
}

/* load_bits: m, the bits of 64 elements. spread: r[i] = bit 16 j + i of m ? 255 : 0. Eight copies
 * of byte 2 j and eight of byte 2 j + 1 are tested, each for the bit of its place. */
LMC__INLINE uint8x16_t lmc__load_bits_neon(uint64_t m)
{
    return vreinterpretq_u8_u64(vdupq_n_u64(m));
}
LMC__INLINE uint8x16_t lmc__spread_neon(uint8x16_t bits, unsigned j)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t byte = vreinterpretq_u8_u64(
        vcombine_u64(vdup_n_u64(2 * j * LMC__ONES8), vdup_n_u64((2 * j + 1) * LMC__ONES8)));
    return vtstq_u8(vqtbl1q_u8(bits, byte), weight);
}

/* r[i] = 2 v[i] + (one[i] ? 1 : 0): inserts v above the lowest bit of one[i], which is 0 or 255. */
LMC__INLINE uint8x16_t lmc__push_bit_neon(uint8x16_t v, uint8x16_t one)
{
    return vsliq_n_u8(one, v, 1);
}

/* r[i] = table[v[i]], of 64 entries. `depth` matters only on AVX2. */
typedef uint8x16x4_t lmc__table64;
LMC__INLINE uint8x16_t lmc__look_up_neon(const lmc__table64 *table, uint8x16_t v, unsigned depth)
{
    (void)depth;
    return vqtbl4q_u8(*table, v);
}

/* Bit i of the result: whether byte i of the four vectors (0 or 255 each) is set. Each byte keeps
 * the bit of its place, i mod 8; three pairwise sums join eight bytes to one:
 *     a & weight          a0   a1   a2   ...  a15               bit i mod 8 of ai, or 0
 *     vpadd of a, b       a0+a1  a2+a3  ...  a14+a15  b0+b1 ... b14+b15
 *     of ab, cd           a0+..+a3  ...  a12+..+a15  b0+..+b3 ...  d12+..+d15
 *     of all, all         a0+..+a7   a8+..+a15  b0+..+b7 ... d8+..+d15, and again
 *
 * The bits are distinct, so these sums have no carries. */
LMC__INLINE uint8x8_t lmc__collect_neon(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t ab = vpaddq_u8(vandq_u8(a, weight), vandq_u8(b, weight)),
                     cd = vpaddq_u8(vandq_u8(c, weight), vandq_u8(d, weight));
    const uint8x16_t all = vpaddq_u8(ab, cd);
    return vget_low_u8(vpaddq_u8(all, all));
}

/* The same, as a number. */
LMC__INLINE uint64_t lmc__to_bits_neon(const uint8x16_t one[4])
{
    return vget_lane_u64(vreinterpret_u64_u8(lmc__collect_neon(one[0], one[1], one[2], one[3])), 0);
}

/* Byte j: how many ones are in bytes 0 .. j of m. vcnt counts in each byte, and one multiplication
 * adds up for all j. No sum is above 64, so no byte overflows. */
LMC__INLINE uint64_t lmc__begin_ones_neon(uint64_t m)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(m))), 0) * LMC__ONES8;
}

#ifndef LMC_NO_ENCODER
/* r[i] = p[i], of bytes that may change meanwhile: see lmc__load_once_avx2. */
LMC__INLINE uint8x16_t lmc__load_once_neon(const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);
    __asm__("" : "+w"(v));
    return v;
}

/* r[i] = v[p[i]], 0 where there is no such place. */
LMC__INLINE uint8x16_t lmc__shuffle_neon(uint8x16_t v, uint8x16_t p) { return vqtbl1q_u8(v, p); }

/* r[i] = ab[2 i + 1], where ab is a, then b. */
LMC__INLINE uint8x16_t lmc__odd_neon(uint8x16_t a, uint8x16_t b) { return vuzp2q_u8(a, b); }

/* How many ones are in bytes 0 .. j - 1 of m; sums = begin_ones(m). */
LMC__INLINE size_t lmc__ones_before_neon(uint64_t sums, unsigned j)
{
    return j ? (size_t)(sums >> (8 * j - 8) & 255) : 0;
}

/* r[i] = v[i] >= from[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__not_below_neon(uint8x16_t v, uint8x16_t from)
{
    return vcgeq_u8(v, from);
}

/* load_row: r[i] = row[i]. place_in_row: r[i] = v[i] - first; if not 0 .. 15, a shuffle gives 0. */
LMC__INLINE uint8x16_t lmc__load_row_neon(const uint8_t *row) { return vld1q_u8(row); }
LMC__INLINE uint8x16_t lmc__place_in_row_neon(uint8x16_t v, uint8x16_t first)
{
    return vsubq_u8(v, first);
}

/* r[i] = v[i] - w[i]. */
LMC__INLINE uint8x16_t lmc__subtract_neon(uint8x16_t v, uint8x16_t w) { return vsubq_u8(v, w); }

/* r[i] = bit `bit` of v[i] ? 255 : 0. */
LMC__INLINE uint8x16_t lmc__test_neon(uint8x16_t v, unsigned bit)
{
    return vtstq_u8(v, vdupq_n_u8((uint8_t)(1u << bit)));
}

/* Bit i of the result: whether byte i of four vectors is not below byte i mod 16 of `from`. */
LMC__INLINE uint64_t lmc__compare_neon(const uint8x16_t v[4], uint8x16_t from)
{
    return vget_lane_u64(
        vreinterpret_u64_u8(lmc__collect_neon(vcgeq_u8(v[0], from), vcgeq_u8(v[1], from),
                                              vcgeq_u8(v[2], from), vcgeq_u8(v[3], from))),
        0);
}

/* Bytes [8 j, 8 j + 8) of v, sorted by the bits of m: those of zeros go to the low half, those of
 * ones to the high. They are moved to bytes 0 .. 7 first, because the table has these places. The
 * two halves of the result are stored separately. */
LMC__INLINE uint8x16_t lmc__sort8_neon(uint8x16_t v, unsigned j, unsigned m)
{
    return vqtbl1q_u8(j ? vextq_u8(v, v, 8) : v,
                      vreinterpretq_u8_u64(vld1q_u64(lmc__sort_places[m])));
}

LMC__INLINE void lmc__store_low_neon(uint8_t *p, uint8x16_t x) { vst1_u8(p, vget_low_u8(x)); }
LMC__INLINE void lmc__store_high_neon(uint8_t *p, uint8x16_t x) { vst1_u8(p, vget_high_u8(x)); }
#endif
#endif
