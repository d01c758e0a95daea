#pragma once
#include "base/platform.h"

static const struct {
    const char *name;
    uint8_t bits, width, is_float;
} lmc__dtypes[LMC_DTYPE_COUNT] = {
    {"AUTO", 8, 1, 0},    {"BOOL", 8, 1, 0},    {"F4", 4, 1, 0},          {"F6_E2M3", 6, 1, 0},
    {"F6_E3M2", 6, 1, 0}, {"U8", 8, 1, 0},      {"I8", 8, 1, 0},          {"F8_E5M2", 8, 1, 0},
    {"F8_E4M3", 8, 1, 0}, {"F8_E8M0", 8, 1, 0}, {"F8_E4M3FNUZ", 8, 1, 0}, {"F8_E5M2FNUZ", 8, 1, 0},
    {"I16", 16, 2, 0},    {"U16", 16, 2, 0},    {"F16", 16, 2, 1},        {"BF16", 16, 2, 1},
    {"I32", 32, 4, 0},    {"U32", 32, 4, 0},    {"F32", 32, 4, 1},        {"C64", 64, 4, 1},
    {"F64", 64, 8, 1},    {"I64", 64, 8, 0},    {"U64", 64, 8, 0}};

LMC_API const char *lmc_dtype_name(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].name : NULL;
}

LMC_API enum lmc_dtype lmc_find_dtype(const char *name)
{
    int i;
    for (i = 1; i < LMC_DTYPE_COUNT; i++)
        if (name && strcmp(name, lmc__dtypes[i].name) == 0) return (enum lmc_dtype)i;
    return LMC_AUTO;
}

LMC_API unsigned lmc_dtype_bits(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].bits : 8;
}

LMC_API unsigned lmc_dtype_width(enum lmc_dtype dtype)
{
    return (unsigned)dtype < LMC_DTYPE_COUNT ? lmc__dtypes[dtype].width : 1;
}
