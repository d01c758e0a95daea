#pragma once
#include "base/platform.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"

/* A machine has NEON or AVX2, never both. What they do alike is written once: LMC__VEC(name) is the
 * name of either tier. */
#if LMC__NEON
#define LMC__VEC(name) lmc__##name##_neon
#define LMC__VECTOR_SIZE 16u
#define LMC__INLINE_VEC LMC__INLINE
#define LMC__STATIC_VEC static
#define LMC__LOOP_VEC static __attribute__((noinline))
typedef uint8x16_t lmc__vector;
#elif LMC__X86
#define LMC__VEC(name) lmc__##name##_avx2
#define LMC__VECTOR_SIZE 32u
#define LMC__INLINE_VEC LMC__INLINE_AVX2
#define LMC__STATIC_VEC LMC__AVX2 static
#define LMC__LOOP_VEC static __attribute__((noinline, aligned(64))) LMC__AVX2
typedef __m256i lmc__vector;
#endif
