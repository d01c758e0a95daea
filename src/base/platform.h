#pragma once
#include "api.h"

#include <string.h>
#include <limits.h>

/* Compiler and machine; macros for all files: memory, inlining, checks. */

#ifndef LMC_REALLOC
#include <stdlib.h>
/* realloc(ptr, 0) is implementation-defined, hence the explicit free. */
#define LMC_REALLOC(ptr, old_size, new_size)                                                       \
    ((new_size) ? realloc(ptr, new_size) : (free(ptr), (void *)NULL))
#endif

/* A developer's build (make dev) compiles kernels separately: objects/object.h defines these. */
#ifndef LMC__HAS_PART
#define LMC__HAS_PART(part) 1
#define LMC__TABLE static const
#endif

/* LMC__INLINE always inlines, so that constants reach the bodies. LMC__COLD prefers small to fast
 * code. LMC__PREFETCH fetches to the second cache. LMC__UNROLL is for loops of constant length:
 * without it gcc unrolls too late and keeps arrays of vectors in memory. */
#if defined(__GNUC__)
#define LMC__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LMC__PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define LMC__INLINE static inline __attribute__((always_inline))
#define LMC__COLD __attribute__((cold))
#else
#define LMC__UNLIKELY(x) (x)
#define LMC__PREFETCH(p) ((void)(p))
#ifdef _MSC_VER
#define LMC__INLINE static __forceinline
#else
#define LMC__INLINE static inline
#endif
#define LMC__COLD
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define LMC__UNROLL _Pragma("GCC unroll 8")
#else
#define LMC__UNROLL
#endif

LMC__INLINE void *lmc__realloc(const lmc_allocator *a, void *ptr, size_t old_size, size_t new_size)
{
    return a ? a->reallocate(a->user, ptr, old_size, new_size)
             : LMC_REALLOC(ptr, old_size, new_size);
}

/* 0 if the byte order is not known: code that works byte by byte is right everywhere. */
#if defined(_M_X64) || defined(_M_IX86) || defined(_M_ARM64) ||                                    \
    (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define LMC__LITTLE_ENDIAN 1
#else
#define LMC__LITTLE_ENDIAN 0
#endif

/* The tiers of this build: intrinsics in functions with target attributes; kernels/dispatch.h
 * chooses the tier at run time. A helper that takes vectors needs its callers' attribute. A
 * function with fewer features may be inlined into one with more. */

/* LMC__X86: AVX2 and AVX-512. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__x86_64__)
#define LMC__X86 1
/* SSE4.2 has the CRC instruction. But zig cc sets each feature of a CPU, and may turn off crc32. */
#if defined(__clang__) && __clang_major__ >= 15
#define LMC__AVX2_FEATURES "avx2,bmi,bmi2,popcnt,sse4.2,crc32,pclmul"
#else
#define LMC__AVX2_FEATURES "avx2,bmi,bmi2,popcnt,sse4.2,pclmul"
#endif
#define LMC__AVX2 __attribute__((aligned(64), target(LMC__AVX2_FEATURES)))
#define LMC__AVX2_VPCLMUL __attribute__((aligned(64), target(LMC__AVX2_FEATURES ",vpclmulqdq")))
/* With LMC_NO_AVX512 no table has this tier's functions (tiers.h): compilers drop them. */
#ifdef LMC_NO_AVX512
#define LMC__MAY_BE_UNUSED unused
#else
#define LMC__MAY_BE_UNUSED
#endif
#define LMC__AVX512                                                                                \
    __attribute__((LMC__MAY_BE_UNUSED, aligned(64),                                                \
                   target(LMC__AVX2_FEATURES                                                       \
                          ",avx512f,avx512bw,avx512dq,avx512vl,"                                   \
                          "avx512vbmi,avx512vbmi2,avx512vpopcntdq,vpclmulqdq,gfni")))
#define LMC__SHA __attribute__((target("sse4.1,sha")))
#define LMC__INLINE_AVX2 static inline __attribute__((always_inline)) LMC__AVX2
#define LMC__INLINE_AVX2_VPCLMUL static inline __attribute__((always_inline)) LMC__AVX2_VPCLMUL
#define LMC__INLINE_AVX512 static inline __attribute__((always_inline)) LMC__AVX512
#else
#define LMC__X86 0
#endif

/* LMC__SIMDE, if the user defines LMC_SIMDE: the AVX2 code for other machines. Never on x86 or
 * Arm64: with target attributes SIMDe silently emulates the instructions. Tests may set it. */
#if defined(LMC_NO_SIMD) || !defined(LMC_SIMDE) || !defined(__GNUC__) || defined(__x86_64__) ||    \
    defined(__i386__) || defined(__aarch64__)
#undef LMC__SIMDE
#define LMC__SIMDE 0
#elif !defined(LMC__SIMDE)
/* It is used only where it is faster than the portable code: not on s390x and riscv64. */
#if LMC__LITTLE_ENDIAN && (defined(__VSX__) || defined(__wasm_simd128__) || defined(__ARM_NEON))
#define LMC__SIMDE 1
#else
#define LMC__SIMDE 0
#endif
#endif
#if LMC__SIMDE
#define LMC__AVX2
#define LMC__INLINE_AVX2 LMC__INLINE
#endif
#define LMC__AVX2_TEXT (LMC__X86 || LMC__SIMDE)

/* LMC__NEON: all AArch64 but the big-endian one, which numbers lanes in the opposite order. */
#if !defined(LMC_NO_SIMD) && defined(__GNUC__) && defined(__aarch64__) && LMC__LITTLE_ENDIAN
#define LMC__NEON 1
/* The CRC-32 instructions, optional in Armv8.0, as built-in functions: some compilers' arm_acle.h
 * lacks them if only a function's attribute enables them. */
#if defined(__clang__)
#define LMC__CRC __attribute__((target("crc")))
#define LMC__SHA __attribute__((target("sha2")))
#define LMC__CRC_STEP8(crc, v) __builtin_arm_crc32cd((uint32_t)(crc), v)
#define LMC__CRC_STEP1(crc, v) __builtin_arm_crc32cb((uint32_t)(crc), v)
#else
#define LMC__CRC __attribute__((target("+crc")))
#define LMC__SHA __attribute__((target("+crypto")))
#define LMC__CRC_STEP8(crc, v) __builtin_aarch64_crc32cx((uint32_t)(crc), v)
#define LMC__CRC_STEP1(crc, v) __builtin_aarch64_crc32cb((uint32_t)(crc), v)
#endif
#else
#define LMC__NEON 0
#endif

/* Orders streaming stores before the plain stores that tell other threads about them. */
#if LMC__X86
#define LMC__FENCE_STREAMS() __builtin_ia32_sfence()
#else
#define LMC__FENCE_STREAMS() ((void)0)
#endif

/* Returns the status if the condition is false. LMC__VALID: for rules of the format. */
#define LMC__CHECK(condition, status)                                                              \
    do {                                                                                           \
        if (LMC__UNLIKELY(!(condition))) return (status);                                          \
    } while (0)
#define LMC__VALID(condition) LMC__CHECK(condition, LMC_ERR_CORRUPT)

/* Returns the status of the expression unless it is LMC_OK. */
#define LMC__TRY(expression)                                                                       \
    do {                                                                                           \
        enum lmc_status lmc__s = (expression);                                                     \
        if (lmc__s != LMC_OK) return lmc__s;                                                       \
    } while (0)

LMC__INLINE size_t lmc__min(size_t a, size_t b) { return a < b ? a : b; }
LMC__INLINE uint64_t lmc__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How many groups of `size` elements have one of [at, at + n), n > 0: at % size is how many of the
 * first group come before. */
LMC__INLINE size_t lmc__count_groups(uint64_t at, size_t n, uint64_t size)
{
    return (size_t)((at % size + n - 1) / size) + 1;
}
