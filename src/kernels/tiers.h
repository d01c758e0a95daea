#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/crc32c.h"
#include "kernels/sum64.h"
#include "kernels/sha256.h"
#include "kernels/split_join.h"
#include "kernels/count.h"
#include "kernels/map.h"
#include "kernels/partition.h"
#include "kernels/merge.h"
#include "kernels/flatten.h"
#include "kernels/strip.h"
#include "kernels/split_root.h"
#include "kernels/join_root.h"
#include "kernels/classes.h"
#include "kernels/group.h"
#include "kernels/ungroup.h"
#include "kernels/patch.h"
#include "kernels/changes.h"
#include "kernels/codes.h"
#include "kernels/grids.h"

/* The kernels of each tier, in the order of struct lmc__kernels. Higher layers call the kernels
 * through one of these tables. In a developer's build each tier is an object file.
 *
 *     scalar       any C99 or C++11 compiler; the definition of all kernels
 *     neon         AArch64, with the instructions for CRC-32; neon_only: without
 *     simde        the AVX2 text through SIMDe, on request (LMC_SIMDE)
 *     avx2         x86-64 with AVX2, BMI1 and 2, POPCNT, SSE4.2, PCLMULQDQ
 *     avx512       these, and AVX-512 with VBMI, VBMI2, VPOPCNTDQ, VPCLMULQDQ and GFNI
 *
 * Where a tier has no faster way, its table has the kernel of a lower tier. Of a table with [2] the
 * second is for CPUs that have instructions for SHA-256. */
#ifdef LMC__PART
extern const lmc__kernels lmc__kernels_scalar, lmc__kernels_neon[2], lmc__kernels_neon_only,
    lmc__kernels_simde, lmc__kernels_avx2[2], lmc__kernels_avx2_vpclmul[2], lmc__kernels_avx512[2];
#endif

/* The tables in parts, in the struct's order, with commas. Kernels of some tiers are arguments. */
#ifdef LMC_NO_SNAPSHOT
#define LMC__SUMS(crc32c, sum64, sha256) crc32c
#else
#define LMC__SUMS(crc32c, sum64, sha256) crc32c, sum64, sha256
#endif
#define LMC__DECODERS(isa, crcs, join, join_root, patch, restore_codes)                            \
    crcs, join, join_root, lmc__merge_##isa, lmc__unflatten_##isa, lmc__count_ones_##isa,          \
        lmc__count_classes_##isa, lmc__ungroup_##isa, patch, restore_codes,
#ifndef LMC_NO_ENCODER
#define LMC__ENCODERS(isa, split_root, list_changes)                                               \
    lmc__split_##isa, split_root, lmc__map_##isa, lmc__partition_##isa, lmc__flatten_##isa,        \
        lmc__group_##isa, list_changes, lmc__rank_changes_##isa,
#else
#define LMC__ENCODERS(isa, split_root, list_changes)
#endif

/* Kernels of grids.h. LMC__DIVIDING: those whose divisions -ffast-math would change. */
#ifdef LMC_NO_QUANTIZE
#define LMC__GRID_DECODERS(isa, stream)
#else
#define LMC__GRID_DECODERS(isa, stream) lmc__restore_##isa, lmc__join_symbols_##isa, stream,
#endif
#if defined(LMC_NO_QUANTIZE) || defined(LMC_NO_ENCODER)
#define LMC__GRID_ENCODERS(isa, quantize)
#else
#define LMC__GRID_ENCODERS(isa, quantize)                                                          \
    quantize, lmc__sum_magnitudes_##isa, lmc__cut_symbols_##isa,
#endif
#define LMC__SCALAR_GRIDS                                                                          \
    LMC__GRID_DECODERS(scalar, lmc__stream_scalar)                                                 \
    LMC__GRID_ENCODERS(scalar, lmc__quantize_scalar)
#if LMC__VECTORS
#define LMC__GRIDS(stream)                                                                         \
    LMC__GRID_DECODERS(vec, stream) LMC__GRID_ENCODERS(vec, LMC__DIVIDING(quantize))
#define LMC__RESTORE_CODES lmc__restore_codes_vec
#else
#define LMC__GRIDS(stream) LMC__SCALAR_GRIDS
#define LMC__RESTORE_CODES lmc__restore_codes_scalar
#endif

/* One part on each line. The formatter would indent each line more than the line before. */
/* clang-format off */
/* The scalar tier, which every build has. Fused kernels call the others for each strip. */
#if LMC__HAS_PART(KERNELS)
LMC__TABLE lmc__kernels lmc__kernels_scalar = {
    LMC_TIER_SCALAR, 0,
    LMC__DECODERS(scalar, LMC__SUMS(lmc__crc32c_scalar, lmc__sum64_scalar, lmc__sha256_scalar),
                   lmc__join_scalar, lmc__join_root_strips, lmc__patch_scalar,
                  lmc__restore_codes_scalar)
    LMC__ENCODERS(scalar, lmc__split_root_strips, lmc__list_changes_scalar)
    LMC__SCALAR_GRIDS
};

#if LMC__NEON
/* With the instructions for CRC-32, or without. */
#define LMC__NEON_KERNELS(crc32c, join_root, split_root, sha256)                                   \
    LMC_TIER_NEON, 0,                                                                              \
    LMC__DECODERS(neon, LMC__SUMS(crc32c, lmc__sum64_scalar, sha256), lmc__join_neon,              \
                  join_root, lmc__patch_neon, LMC__RESTORE_CODES)                                  \
    LMC__ENCODERS(neon, split_root, lmc__list_changes_neon)                                        \
    LMC__GRIDS(lmc__stream_scalar)
LMC__TABLE lmc__kernels lmc__kernels_neon[2] = {
    {LMC__NEON_KERNELS(lmc__crc32c_neon, lmc__join_root_neon, lmc__split_root_neon,
                       lmc__sha256_scalar)},
    {LMC__NEON_KERNELS(lmc__crc32c_neon, lmc__join_root_neon, lmc__split_root_neon,
                       lmc__sha256_arm)}
};
LMC__TABLE lmc__kernels lmc__kernels_neon_only = {
    LMC__NEON_KERNELS(lmc__crc32c_scalar, lmc__join_root_strips, lmc__split_root_strips,
                      lmc__sha256_scalar)
};
#endif

#if LMC__SIMDE
/* AVX2's kernels where they take fewer instructions (bench/instructions) than the scalar ones.
 * Split and join do not: compilers turn the scalar loops into vector code by themselves. */
LMC__TABLE lmc__kernels lmc__kernels_simde = {
    LMC_TIER_SIMDE, 0,
    LMC__SUMS(lmc__crc32c_scalar, lmc__sum64_scalar, lmc__sha256_scalar), lmc__join_scalar,
    lmc__join_root_strips, lmc__merge_simde,
    lmc__unflatten_avx2, lmc__count_ones_scalar, lmc__count_classes_scalar,
    lmc__ungroup_scalar, lmc__patch_scalar, lmc__restore_codes_scalar,
#ifndef LMC_NO_ENCODER
    lmc__split_scalar, lmc__split_root_strips, lmc__map_scalar,
    lmc__partition_avx2, lmc__flatten_avx2, lmc__group_scalar,
    lmc__list_changes_scalar, lmc__rank_changes_scalar,
#endif
    LMC__SCALAR_GRIDS
};
#endif
#endif

#if LMC__X86 && LMC__HAS_PART(AVX2)
#define LMC__AVX2_KERNELS(split_root, has_fast_pdep, sha256)                                       \
    LMC_TIER_AVX2, has_fast_pdep,                                                                  \
    LMC__DECODERS(avx2, LMC__SUMS(lmc__crc32c_avx2, lmc__sum64_avx2, sha256),                      \
                   lmc__join_avx2, lmc__join_root_avx2, lmc__patch_avx2, LMC__RESTORE_CODES)       \
    LMC__ENCODERS(avx2, split_root, lmc__list_changes_avx2)                              \
    LMC__GRIDS(lmc__stream_avx2)
LMC__TABLE lmc__kernels lmc__kernels_avx2[2] = {
    {LMC__AVX2_KERNELS(lmc__split_root_avx2, 0, lmc__sha256_scalar)},
    {LMC__AVX2_KERNELS(lmc__split_root_avx2, 0, lmc__sha256_x86)}
};
/* For CPUs that compute two products at a time (split_root.h) and have a fast pdep (patch.h). */
LMC__TABLE lmc__kernels lmc__kernels_avx2_vpclmul[2] = {
    {LMC__AVX2_KERNELS(lmc__split_root_vpclmul, 1, lmc__sha256_scalar)},
    {LMC__AVX2_KERNELS(lmc__split_root_vpclmul, 1, lmc__sha256_x86)}
};
#endif

#if LMC__X86 && !defined(LMC_NO_AVX512) && LMC__HAS_PART(AVX512)
/* AVX2's join is enough: it only joins elements that join_root leaves over. */
#define LMC__AVX512_KERNELS(sha256)                                                                \
    LMC_TIER_AVX512, 1,                                                                            \
    LMC__DECODERS(avx512, LMC__SUMS(lmc__crc32c_avx512, lmc__sum64_avx2, sha256),                \
                   lmc__join_avx2, lmc__join_root_avx512, lmc__patch_avx512, LMC__RESTORE_CODES)   \
    LMC__ENCODERS(avx512, lmc__split_root_avx512, lmc__list_changes_avx512)                        \
    LMC__GRIDS(lmc__stream_avx2)
LMC__TABLE lmc__kernels lmc__kernels_avx512[2] = {
    {LMC__AVX512_KERNELS(lmc__sha256_scalar)}, {LMC__AVX512_KERNELS(lmc__sha256_x86)}
};
#endif
/* clang-format on */
