#pragma once
#include "base/platform.h"
#include "kernels/types.h"

/* The table of dtypes. Files store a tensor's dtype, but blocks only the width of their elements.
 * So the table is for encoders, and for computing sizes from shapes. CONTRIBUTING.md says how to
 * add a dtype; numbers never change.
 *
 * An *order* (spec 5.1) is how elements become residuals before they are split into planes: by
 * `order` against a prediction, by `own` without a prediction. Floats without a prediction are
 * rotated by one bit, so that the top plane has the exponent without the sign. `own` is 0 if
 * elements have one byte or no sign: an order would not help. */
static const struct {
    const char *name;   /* as in safetensors */
    uint8_t bits;       /* of a logical element */
    uint8_t width;      /* bytes of a coded element: 1, 2, 4 or 8 */
    uint8_t order, own; /* enum lmc__order: against a prediction; without one */
} lmc__dtypes[] = {
    {"AUTO", 8, 1, 1, 0},    {"BOOL", 8, 1, 1, 0},        {"F4", 4, 1, 1, 0},
    {"F6_E2M3", 6, 1, 1, 0}, {"F6_E3M2", 6, 1, 1, 0},     {"U8", 8, 1, 1, 0},
    {"I8", 8, 1, 1, 0},      {"F8_E5M2", 8, 1, 2, 0},     {"F8_E4M3", 8, 1, 2, 0},
    {"F8_E8M0", 8, 1, 1, 0}, {"F8_E4M3FNUZ", 8, 1, 2, 0}, {"F8_E5M2FNUZ", 8, 1, 2, 0},
    {"I16", 16, 2, 1, 1},    {"U16", 16, 2, 1, 0},        {"F16", 16, 2, 2, 2},
    {"BF16", 16, 2, 2, 2},   {"I32", 32, 4, 1, 1},        {"U32", 32, 4, 1, 0},
    {"F32", 32, 4, 2, 2},    {"C64", 64, 4, 2, 2},        {"F64", 64, 8, 2, 2},
    {"I64", 64, 8, 1, 1},    {"U64", 64, 8, 1, 0},        {"I4", 4, 1, 1, 0},
    {"U4", 4, 1, 1, 0},      {"I2", 2, 1, 1, 0},          {"U2", 2, 1, 1, 0},
    {"C128", 128, 8, 2, 2}};

/* Fails to compile unless there is one row for each number. */
typedef char
    lmc__has_all_dtypes[sizeof lmc__dtypes / sizeof *lmc__dtypes == LMC__DTYPE_COUNT ? 1 : -1];

LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].name : NULL;
}

LMC_API enum lmc_dtype lmc_dtype_find(const char *name)
{
    int i;
    for (i = 1; i < LMC__DTYPE_COUNT; i++) /* not "AUTO": no source has it */
        if (name && strcmp(name, lmc__dtypes[i].name) == 0) return (enum lmc_dtype)i;
    return LMC_AUTO;
}

LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].bits : 0;
}

LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC__DTYPE_COUNT ? lmc__dtypes[dtype].width : 0;
}

#ifndef LMC_NO_ENCODER
static enum lmc__order lmc__order_of(enum lmc_dtype dtype, int is_own)
{
    if ((unsigned)dtype >= LMC__DTYPE_COUNT) dtype = LMC_AUTO;
    return (enum lmc__order)(is_own ? lmc__dtypes[dtype].own : lmc__dtypes[dtype].order);
}
#endif
