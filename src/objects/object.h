/* The parts of a developer's build (make dev): kernels are compiled separately, and their tables
 * are not static. LMC__PART is one of the numbers below. An object compiles all that it includes,
 * and uses only its part. */
#define LMC__PART_KERNELS 1 /* scalar, NEON, SIMDe */
#define LMC__PART_AVX2 2
#define LMC__PART_AVX512 3
#define LMC__PART_REST 4
#define LMC__HAS_PART(part) (LMC__PART == LMC__PART_##part)
#define LMC__TABLE const
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
