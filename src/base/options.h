#pragma once
#include "base/platform.h"

/* Copies the caller's options to this version's struct, whichever 1.x the caller was compiled with:
 *
 *     given, older     | struct_size | members of 1.0 |
 *     options          | size        | members of 1.0 | 0 0 0 |
 *     given, newer     | struct_size | members of 1.0 | of 1.1 | of 1.2 |
 *                                                                must be zero: unknown here
 *
 * given NULL: the defaults. Sizes are multiples of sizeof(size_t), so that none cuts a pointer. */
#define LMC__MAX_OPTIONS_SIZE 4096u

static enum lmc_status lmc__take_options(void *options, size_t size, const void *given)
{
    size_t given_size = 0, i;
    memset(options, 0, size);
    if (given) memcpy(&given_size, given, sizeof given_size);
    if (given_size == 0) given_size = size;
    if (given_size < sizeof given_size || given_size > LMC__MAX_OPTIONS_SIZE ||
        given_size % sizeof given_size)
        return LMC_ERR_ARGUMENT;
    for (i = size; i < given_size; i++)
        if (((const uint8_t *)given)[i]) return LMC_ERR_UNSUPPORTED;
    if (given) memcpy(options, given, given_size < size ? given_size : size);
    memcpy(options, &size, sizeof size); /* for functions that get the copy */
    return LMC_OK;
}

LMC__INLINE int lmc__is_level(enum lmc_level level)
{
    return (int)level >= (int)LMC_LEVEL_FAST && (int)level <= (int)LMC_LEVEL_ARCHIVE;
}
