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
