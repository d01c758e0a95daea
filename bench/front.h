/* front.h - a fast front end for other coders of planes
 * SPDX-License-Identifier: MIT */
#ifndef FRONT_H
#define FRONT_H

#include "../lmc.h"

/* LMC's split and join of the fastest usual tier, whatever tier is limited later. */
static void front_split(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                        int is_float)
{
    const enum lmc__order order = is_float ? LMC__ORDER_FLOAT : LMC__ORDER_NONE;
#if LMC__X86
    if (lmc__cpu_has(LMC_TIER_AVX2)) {
        lmc__split_avx2(planes, src, n, width, order);
        return;
    }
#elif LMC__NEON
    lmc__split_neon(planes, src, n, width, order);
    return;
#endif
    lmc__split_scalar(planes, src, n, width, order);
}
static void front_join(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                       int is_float)
{
    const enum lmc__order order = is_float ? LMC__ORDER_FLOAT : LMC__ORDER_NONE;
#if LMC__X86
    if (lmc__cpu_has(LMC_TIER_AVX2)) {
        lmc__join_avx2(dst, planes, n, width, order);
        return;
    }
#elif LMC__NEON
    lmc__join_neon(dst, planes, n, width, order);
    return;
#endif
    lmc__join_scalar(dst, planes, n, width, order);
}

#endif
