#pragma once
#include "base/platform.h"

/* Tables by the preprocessor: f(m), f(m + 1), ... */
#define LMC__4(f, m) f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define LMC__16(f, m) LMC__4(f, m), LMC__4(f, (m) + 4), LMC__4(f, (m) + 8), LMC__4(f, (m) + 12)
#define LMC__64(f, m)                                                                              \
    LMC__16(f, m), LMC__16(f, (m) + 16), LMC__16(f, (m) + 32), LMC__16(f, (m) + 48)
#define LMC__256(f) LMC__64(f, 0), LMC__64(f, 64), LMC__64(f, 128), LMC__64(f, 192)

/* lmc__byte_mask[m]: byte i is 0xFF if bit i of m is set. lmc__ones[m]: number of one bits. */
#define LMC__BYTE_MASK_1(m)                                                                        \
    (((m) & 1 ? 0xFFull : 0) | ((m) & 2 ? 0xFFull << 8 : 0) | ((m) & 4 ? 0xFFull << 16 : 0) |      \
     ((m) & 8 ? 0xFFull << 24 : 0) | ((m) & 16 ? 0xFFull << 32 : 0) |                              \
     ((m) & 32 ? 0xFFull << 40 : 0) | ((m) & 64 ? 0xFFull << 48 : 0) |                             \
     ((m) & 128 ? 0xFFull << 56 : 0))
#define LMC__ONES_1(m)                                                                             \
    (((m) & 1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) +               \
     ((m) >> 5 & 1) + ((m) >> 6 & 1) + ((m) >> 7 & 1))
static const uint64_t lmc__byte_mask[256] = {LMC__256(LMC__BYTE_MASK_1)};
static const uint8_t lmc__ones[256] = {LMC__256(LMC__ONES_1)};

/* How to move the bytes of a 64-bit word as a mask byte says. Expanding moves packed bytes up to
 * the places of the one bits in three steps, by 4, 2 and 1 bytes; compressing is the same
 * backwards. lmc__moves[m][0..2]: which bytes move in each step of expanding; [3]: the packed
 * bytes. Below, they are written as bits, 8 for each step, and the number of ones. Derivation: the
 * j-th one bit is at place p_j; byte j moves by s in step s = 4, 2, 1 if (p_j - j) & s. */
#define LMC__M(v)                                                                                  \
    {LMC__BYTE_MASK_1((v) & 255), LMC__BYTE_MASK_1((v) >> 8 & 255),                                \
     LMC__BYTE_MASK_1((v) >> 16 & 255), LMC__BYTE_MASK_1((1u << ((v) >> 24)) - 1)}
static const uint64_t lmc__moves[256][4] = {
    LMC__M(0x0000000), LMC__M(0x1000000), LMC__M(0x1010000), LMC__M(0x2000000), LMC__M(0x1000100),
    LMC__M(0x2020000), LMC__M(0x2030000), LMC__M(0x3000000), LMC__M(0x1040100), LMC__M(0x2000200),
    LMC__M(0x2010200), LMC__M(0x3040000), LMC__M(0x2000300), LMC__M(0x3060000), LMC__M(0x3070000),
    LMC__M(0x4000000), LMC__M(0x1000001), LMC__M(0x2080200), LMC__M(0x2090200), LMC__M(0x3000400),
    LMC__M(0x2080300), LMC__M(0x3020400), LMC__M(0x3030400), LMC__M(0x4080000), LMC__M(0x20c0300),
    LMC__M(0x3000600), LMC__M(0x3010600), LMC__M(0x40c0000), LMC__M(0x3000700), LMC__M(0x40e0000),
    LMC__M(0x40f0000), LMC__M(0x5000000), LMC__M(0x1100001), LMC__M(0x2000002), LMC__M(0x2010002),
    LMC__M(0x3100400), LMC__M(0x2000102), LMC__M(0x3120400), LMC__M(0x3130400), LMC__M(0x4000800),
    LMC__M(0x2040102), LMC__M(0x3100600), LMC__M(0x3110600), LMC__M(0x4040800), LMC__M(0x3100700),
    LMC__M(0x4060800), LMC__M(0x4070800), LMC__M(0x5100000), LMC__M(0x2000003), LMC__M(0x3180600),
    LMC__M(0x3190600), LMC__M(0x4000c00), LMC__M(0x3180700), LMC__M(0x4020c00), LMC__M(0x4030c00),
    LMC__M(0x5180000), LMC__M(0x31c0700), LMC__M(0x4000e00), LMC__M(0x4010e00), LMC__M(0x51c0000),
    LMC__M(0x4000f00), LMC__M(0x51e0000), LMC__M(0x51f0000), LMC__M(0x6000000), LMC__M(0x1001001),
    LMC__M(0x2200002), LMC__M(0x2210002), LMC__M(0x3000004), LMC__M(0x2200102), LMC__M(0x3020004),
    LMC__M(0x3030004), LMC__M(0x4200800), LMC__M(0x2240102), LMC__M(0x3000204), LMC__M(0x3010204),
    LMC__M(0x4240800), LMC__M(0x3000304), LMC__M(0x4260800), LMC__M(0x4270800), LMC__M(0x5001000),
    LMC__M(0x2200003), LMC__M(0x3080204), LMC__M(0x3090204), LMC__M(0x4200c00), LMC__M(0x3080304),
    LMC__M(0x4220c00), LMC__M(0x4230c00), LMC__M(0x5081000), LMC__M(0x30c0304), LMC__M(0x4200e00),
    LMC__M(0x4210e00), LMC__M(0x50c1000), LMC__M(0x4200f00), LMC__M(0x50e1000), LMC__M(0x50f1000),
    LMC__M(0x6200000), LMC__M(0x2300003), LMC__M(0x3000006), LMC__M(0x3010006), LMC__M(0x4300c00),
    LMC__M(0x3000106), LMC__M(0x4320c00), LMC__M(0x4330c00), LMC__M(0x5001800), LMC__M(0x3040106),
    LMC__M(0x4300e00), LMC__M(0x4310e00), LMC__M(0x5041800), LMC__M(0x4300f00), LMC__M(0x5061800),
    LMC__M(0x5071800), LMC__M(0x6300000), LMC__M(0x3000007), LMC__M(0x4380e00), LMC__M(0x4390e00),
    LMC__M(0x5001c00), LMC__M(0x4380f00), LMC__M(0x5021c00), LMC__M(0x5031c00), LMC__M(0x6380000),
    LMC__M(0x43c0f00), LMC__M(0x5001e00), LMC__M(0x5011e00), LMC__M(0x63c0000), LMC__M(0x5001f00),
    LMC__M(0x63e0000), LMC__M(0x63f0000), LMC__M(0x7000000), LMC__M(0x1401001), LMC__M(0x2002002),
    LMC__M(0x2012002), LMC__M(0x3400004), LMC__M(0x2002102), LMC__M(0x3420004), LMC__M(0x3430004),
    LMC__M(0x4000008), LMC__M(0x2042102), LMC__M(0x3400204), LMC__M(0x3410204), LMC__M(0x4040008),
    LMC__M(0x3400304), LMC__M(0x4060008), LMC__M(0x4070008), LMC__M(0x5401000), LMC__M(0x2002003),
    LMC__M(0x3480204), LMC__M(0x3490204), LMC__M(0x4000408), LMC__M(0x3480304), LMC__M(0x4020408),
    LMC__M(0x4030408), LMC__M(0x5481000), LMC__M(0x34c0304), LMC__M(0x4000608), LMC__M(0x4010608),
    LMC__M(0x54c1000), LMC__M(0x4000708), LMC__M(0x54e1000), LMC__M(0x54f1000), LMC__M(0x6002000),
    LMC__M(0x2102003), LMC__M(0x3400006), LMC__M(0x3410006), LMC__M(0x4100408), LMC__M(0x3400106),
    LMC__M(0x4120408), LMC__M(0x4130408), LMC__M(0x5401800), LMC__M(0x3440106), LMC__M(0x4100608),
    LMC__M(0x4110608), LMC__M(0x5441800), LMC__M(0x4100708), LMC__M(0x5461800), LMC__M(0x5471800),
    LMC__M(0x6102000), LMC__M(0x3400007), LMC__M(0x4180608), LMC__M(0x4190608), LMC__M(0x5401c00),
    LMC__M(0x4180708), LMC__M(0x5421c00), LMC__M(0x5431c00), LMC__M(0x6182000), LMC__M(0x41c0708),
    LMC__M(0x5401e00), LMC__M(0x5411e00), LMC__M(0x61c2000), LMC__M(0x5401f00), LMC__M(0x61e2000),
    LMC__M(0x61f2000), LMC__M(0x7400000), LMC__M(0x2003003), LMC__M(0x3600006), LMC__M(0x3610006),
    LMC__M(0x400000c), LMC__M(0x3600106), LMC__M(0x402000c), LMC__M(0x403000c), LMC__M(0x5601800),
    LMC__M(0x3640106), LMC__M(0x400020c), LMC__M(0x401020c), LMC__M(0x5641800), LMC__M(0x400030c),
    LMC__M(0x5661800), LMC__M(0x5671800), LMC__M(0x6003000), LMC__M(0x3600007), LMC__M(0x408020c),
    LMC__M(0x409020c), LMC__M(0x5601c00), LMC__M(0x408030c), LMC__M(0x5621c00), LMC__M(0x5631c00),
    LMC__M(0x6083000), LMC__M(0x40c030c), LMC__M(0x5601e00), LMC__M(0x5611e00), LMC__M(0x60c3000),
    LMC__M(0x5601f00), LMC__M(0x60e3000), LMC__M(0x60f3000), LMC__M(0x7600000), LMC__M(0x3700007),
    LMC__M(0x400000e), LMC__M(0x401000e), LMC__M(0x5701c00), LMC__M(0x400010e), LMC__M(0x5721c00),
    LMC__M(0x5731c00), LMC__M(0x6003800), LMC__M(0x404010e), LMC__M(0x5701e00), LMC__M(0x5711e00),
    LMC__M(0x6043800), LMC__M(0x5701f00), LMC__M(0x6063800), LMC__M(0x6073800), LMC__M(0x7700000),
    LMC__M(0x400000f), LMC__M(0x5781e00), LMC__M(0x5791e00), LMC__M(0x6003c00), LMC__M(0x5781f00),
    LMC__M(0x6023c00), LMC__M(0x6033c00), LMC__M(0x7780000), LMC__M(0x57c1f00), LMC__M(0x6003e00),
    LMC__M(0x6013e00), LMC__M(0x77c0000), LMC__M(0x6003f00), LMC__M(0x77e0000), LMC__M(0x77f0000),
    LMC__M(0x8000000)};

/* lmc__sort_places[m]: the places of the zero bits of m, then those of the one bits, 8 bytes each,
 * packed, the rest 0: a shuffle by them sorts 8 bytes. */
#if LMC__AVX2_TEXT || LMC__NEON
#define LMC__SORT_PLACES_1(m) {LMC__PACK_PLACES_1(~(m)), LMC__PACK_PLACES_1(m)}
#define LMC__PACK_PLACE(m, i)                                                                      \
    ((m) >> (i) & 1 ? (uint64_t)(i) << 8 * LMC__ONES_1((m) & ((1 << (i)) - 1)) : 0)
#define LMC__PACK_PLACES_1(m)                                                                      \
    (LMC__PACK_PLACE(m, 1) | LMC__PACK_PLACE(m, 2) | LMC__PACK_PLACE(m, 3) |                       \
     LMC__PACK_PLACE(m, 4) | LMC__PACK_PLACE(m, 5) | LMC__PACK_PLACE(m, 6) |                       \
     LMC__PACK_PLACE(m, 7))
static const uint64_t lmc__sort_places[256][2] = {LMC__256(LMC__SORT_PLACES_1)};
#endif
