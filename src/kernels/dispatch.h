#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/tiers.h"

#if LMC__X86
#include <cpuid.h>
#endif
#if LMC__NEON && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Chooses the tier: the best that the build has and the machine can run, unless the user limits it.
 * The only state of this library is a pointer to a constant table, chosen at first use. Threads
 * that choose at the same time choose the same table, and all tables are constant, so relaxed
 * atomics suffice. A coder loads the pointer once and uses that table until it is done. */

static const lmc__kernels *lmc__active_kernels; /* NULL: not chosen yet */

#if defined(__GNUC__)
#define LMC__ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define LMC__ATOMIC_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
/* sets *p = v if *p is still *expected, else *expected = *p: another thread's choice stays */
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#else
/* MSVC: volatile loads and stores of pointers are atomic */
#define LMC__ATOMIC_LOAD(p) (*(const lmc__kernels *volatile *)(p))
#define LMC__ATOMIC_STORE(p, v) (*(const lmc__kernels *volatile *)(p) = (v))
#define LMC__ATOMIC_STORE_ONCE(p, expected, v)                                                     \
    (LMC__ATOMIC_STORE(p, v), (void)(expected), 1) /* there is one table only */
#endif

#if LMC__X86
/* 1 if the CPU has the tier's instructions and the system saves its registers (XCR0). Both are
 * needed: a CPU also reports AVX-512 that the system has not enabled, whose instructions fault.
 * Bits, by Intel's Software Developer's Manual, volume 2, CPUID, and volume 1, section 13.3:
 *     leaf 1 ecx     1 PCLMULQDQ, 20 SSE4.2, 23 POPCNT, 27 OSXSAVE      0x8900002
 *     leaf 7 ebx     3 BMI1, 5 AVX2, 8 BMI2                             0x128
 *                    16 AVX512F, 17 DQ, 30 BW, 31 VL                    0xC0030000
 *                    29 SHA
 *     leaf 7 ecx     1 VBMI, 6 VBMI2, 8 GFNI, 10 VPCLMULQDQ, 14 VPOPCNTDQ 0x4542
 *     XCR0           1 XMM, 2 YMM, 5 opmask, 6 and 7 ZMM                0x06, 0xE6
 *
 * xgetbv may be executed only if OSXSAVE is set. cpuid is slow in virtual machines. */
static int lmc__cpu_has(enum lmc_tier tier)
{
    unsigned a, b, c, d, b7, c7, xcr0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if ((c & 0x8900002) != 0x8900002) return 0; /* OSXSAVE, POPCNT, SSE4.2, PCLMULQDQ */
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 & 0x06) != 0x06 || (b7 & 0x128) != 0x128) return 0; /* XMM, YMM; BMI1, AVX2, BMI2 */
    if (tier == LMC_TIER_AVX2) return 1;
    /* opmask, ZMM; AVX512 F, DQ, BW, VL; VBMI and the rest: Ice Lake, Zen 4 and later have all */
    return (xcr0 & 0xE6) == 0xE6 && (b7 & 0xC0030000u) == 0xC0030000u && (c7 & 0x4542) == 0x4542;
}

/* The tier's table for this CPU, or NULL. Bits of leaf 7 as above; AVX-512 has VPCLMULQDQ. */
static const lmc__kernels *lmc__x86_kernels(enum lmc_tier tier)
{
    const lmc__kernels *tables = lmc__kernels_avx2;
    unsigned a, b, c, d;
    if (!lmc__cpu_has(tier) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return NULL;
    if (c >> 10 & 1) tables = lmc__kernels_avx2_vpclmul;
#ifndef LMC_NO_AVX512
    if (tier == LMC_TIER_AVX512) tables = lmc__kernels_avx512;
#endif
    return tables + (b >> 29 & 1);
}
#endif

#if LMC__NEON
/* The table of NEON for this CPU. Only the operating system may query the CPU. Where this code does
 * not know how to ask it, it takes what the compiler was told, or the table with the scalar CRC. */
static const lmc__kernels *lmc__neon_kernels(void)
{
#if defined(__APPLE__)
    return lmc__kernels_neon + 1;
#elif defined(__linux__)
    const unsigned long has = getauxval(AT_HWCAP); /* bit 7: HWCAP_CRC32; bit 6: HWCAP_SHA2 */
    return has >> 7 & 1 ? lmc__kernels_neon + (has >> 6 & 1) : &lmc__kernels_neon_only;
#elif defined(__ARM_FEATURE_CRC32)
    return lmc__kernels_neon;
#else
    return &lmc__kernels_neon_only;
#endif
}
#endif

/* The table of a tier, or NULL where this build or this machine lacks it. */
static const lmc__kernels *lmc__find_kernels(enum lmc_tier tier)
{
    switch (tier) {
    case LMC_TIER_SCALAR: return &lmc__kernels_scalar;
#if LMC__NEON
    case LMC_TIER_NEON: return lmc__neon_kernels();
#endif
#if LMC__X86
    case LMC_TIER_AVX2: return lmc__x86_kernels(tier);
#ifndef LMC_NO_AVX512
    case LMC_TIER_AVX512: return lmc__x86_kernels(tier);
#endif
#endif
#if LMC__SIMDE
    case LMC_TIER_SIMDE: return &lmc__kernels_simde;
#endif
    default: return NULL;
    }
}

/* All tiers, the best first; their numbers have no order. All builds have the last, scalar. */
static const struct lmc__tier {
    enum lmc_tier tier;
    const char *name;
} lmc__tiers[] = {{LMC_TIER_AVX512, "avx512"},
                  {LMC_TIER_AVX2, "avx2"},
                  {LMC_TIER_NEON, "neon"},
                  {LMC_TIER_SIMDE, "simde"},
                  {LMC_TIER_SCALAR, "scalar"}};
enum { LMC__N_TIERS = sizeof lmc__tiers / sizeof *lmc__tiers };

/* The row of a tier; LMC__N_TIERS for an unknown one. */
static unsigned lmc__find_tier(enum lmc_tier tier)
{
    unsigned row = 0;
    while (row < LMC__N_TIERS && lmc__tiers[row].tier != tier) row++;
    return row;
}

/* The table of a tier, or else of the next best one; of the best if the tier is unknown. */
static const lmc__kernels *lmc__best_kernels(enum lmc_tier tier)
{
    unsigned row = lmc__find_tier(tier) % LMC__N_TIERS;
    while (!lmc_tier_is_available(lmc__tiers[row].tier)) row++;
    return lmc__find_kernels(lmc__tiers[row].tier);
}

/* The table in use; the first call chooses it. If another thread limits the tier between the load
 * and the store, that thread's choice stays: the store replaces only NULL. */
static const lmc__kernels *lmc__get_kernels(void)
{
    const lmc__kernels *k = LMC__ATOMIC_LOAD(&lmc__active_kernels);
    if (k == NULL) {
        const lmc__kernels *chosen = NULL;
        k = lmc__best_kernels(LMC_TIER_BEST);
        if (!LMC__ATOMIC_STORE_ONCE(&lmc__active_kernels, &chosen, k)) k = chosen;
    }
    return k;
}

LMC_API const char *lmc_tier_name(enum lmc_tier tier)
{
    const unsigned row = lmc__find_tier(tier);
    return row < LMC__N_TIERS ? lmc__tiers[row].name : NULL;
}

LMC_API int lmc_tier_is_available(enum lmc_tier tier) { return lmc__find_kernels(tier) != NULL; }

LMC_API enum lmc_tier lmc_tier_current(void) { return lmc__get_kernels()->tier; }

LMC_API void lmc_tier_limit(enum lmc_tier tier)
{
    LMC__ATOMIC_STORE(&lmc__active_kernels, lmc__best_kernels(tier));
}

LMC_API uint32_t lmc_crc32c(uint32_t crc, const void *data, size_t size)
{
    return lmc__get_kernels()->crc32c(crc, (const uint8_t *)data, size);
}
