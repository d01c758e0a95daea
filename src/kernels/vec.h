#pragma once
#include "base/platform.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"

/* A machine has NEON or AVX2, never both. Code that is the same for both is written once:
 * LMC__VEC(name) is the function `name` of the machine's tier. With SIMDe it has AVX2's name. */
#if LMC__NEON
#define LMC__VEC(name) lmc__##name##_neon
#define LMC__VECTOR_SIZE 16u
#define LMC__INLINE_VEC LMC__INLINE
#define LMC__STATIC_VEC static
#define LMC__LOOP_VEC static __attribute__((noinline)) LMC__CRC
#define LMC__VECTORS_SORTED 4u /* at a time: see partition.h */
typedef uint8x16_t lmc__vector, lmc__sorted;
typedef uint64_t lmc__vector_bits; /* a bit for each byte of the vectors that are sorted */
#elif LMC__AVX2_TEXT
#define LMC__VEC(name) lmc__##name##_avx2
#define LMC__VECTOR_SIZE 32u
#define LMC__INLINE_VEC LMC__INLINE_AVX2
#define LMC__STATIC_VEC LMC__AVX2 static
#define LMC__LOOP_VEC static __attribute__((noinline, aligned(64))) LMC__AVX2
#define LMC__VECTORS_SORTED 1u
typedef __m256i lmc__vector;
typedef uint32_t lmc__vector_bits;
typedef __m128i lmc__sorted;
#endif
#define LMC__VECTORS_OF_64 (64 / LMC__VECTOR_SIZE)
#if LMC__X86
#define LMC__CRC LMC__AVX2
#define LMC__CRC_STEP8(crc, v) _mm_crc32_u64(crc, v)
#define LMC__CRC_STEP1(crc, v) _mm_crc32_u8((uint32_t)(crc), v)
#endif

/* Several elements at a time, in the vector types of gcc and clang. Division must be IEEE's. Under
 * -ffast-math vector division is an approximation, so the scalar code divides. (clang has no macro
 * for -freciprocal-math alone.) */
#if (LMC__X86 || LMC__NEON) && (defined(__clang__) || __GNUC__ >= 9)
#define LMC__VECTORS 1
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__)
#define LMC__DIVIDING(name) lmc__##name##_scalar
#else
#define LMC__DIVIDING(name) lmc__##name##_vec
#endif
#else
#define LMC__VECTORS 0
#endif

#if LMC__VECTORS
/* a where the mask is -1, b where it is 0. */
#define LMC__PICK(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

/* The vector tiers: NEON, or AVX2, whose kernels AVX-512 uses, too. Each line computes what the
 * scalar code does for one element. A comparison gives -1 or 0 for each; LMC__PICK chooses by it.
 *
 * A cast between vector types of one size keeps the bits; __builtin_convertvector converts the
 * numbers. Operators wrap around, also on signed numbers.
 *
 *     u32v, i32v, f32v   LMC__LANES elements                   | e0      | e1      | e2      | ...
 *     u16v               as many symbols, half the bytes       | s0 | s1 | s2 | ...
 *     w16v               twice as many symbols, all the bytes  | s0 | s1 | s2 | s3 | s4 | s5 | ...
 *
 * memcpy of a constant size is an unaligned load or store. The scalar kernels do the rest. */
#define LMC__LANES (LMC__VECTOR_SIZE / 4) /* elements of 32 bits in a vector */
typedef uint32_t lmc__u32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef int32_t lmc__i32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef uint64_t lmc__u64v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef float lmc__f32v __attribute__((vector_size(LMC__VECTOR_SIZE)));
typedef uint16_t lmc__u16v __attribute__((vector_size(LMC__VECTOR_SIZE / 2))); /* as many */
typedef uint16_t lmc__w16v __attribute__((vector_size(LMC__VECTOR_SIZE)));     /* as long */
typedef uint8_t lmc__w8v __attribute__((vector_size(LMC__VECTOR_SIZE / 2)));   /* as many as w16 */
#endif
