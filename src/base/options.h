#pragma once
#include "base/platform.h"

/* Copies the caller's options to this version's struct, whichever 1.x the caller was compiled with
 * (api.h, "structs ..._options"): members that the caller lacks become zero, and those that are not
 * known here must be zero. 0 stands for the members of 1.0.0, which end at `first`: behind them an
 * old program has something else. given NULL: the defaults. A size is a multiple of sizeof(size_t):
 * none cuts a pointer. */
#define LMC__MAX_OPTIONS_SIZE 4096u

#ifdef __GNUC__
__attribute__((noinline)) /* where gcc knows the size of `given`, it would warn of the loop */
#endif
static enum lmc_status
lmc__take_options(void *o, size_t size, size_t first, const void *given)
{
    size_t given_size = 0, i;
    memset(o, 0, size);
    if (given) memcpy(&given_size, given, sizeof given_size);
    if (given_size == 0) given_size = first;
    else if (given_size < sizeof given_size || given_size > LMC__MAX_OPTIONS_SIZE ||
             given_size % sizeof given_size)
        return LMC_ERR_ARGUMENT;
    for (i = size; i < given_size; i++)
        if (((const uint8_t *)given)[i]) return LMC_ERR_UNSUPPORTED;
    if (given) memcpy(o, given, given_size < size ? given_size : size);
    memcpy(o, &size, sizeof size); /* for functions that get the copy */
    return LMC_OK;
}

/* As above, to o, a pointer. last: the last member of 1.0.0, for ever. */
#define LMC__TAKE_OPTIONS(o, last, given)                                                          \
    lmc__take_options(o, sizeof *(o),                                                              \
                      (size_t)((const char *)(&(o)->last + 1) - (const char *)(o)), given)

/* For structs of the caller: no reserved word has a meaning yet. Callbacks: `call` is needed. */
static const uint64_t lmc__no_words[4] = {0, 0, 0, 0};
#define LMC__CHECK_RESERVED(s)                                                                     \
    LMC__CHECK(!memcmp((s)->reserved, lmc__no_words, sizeof(s)->reserved), LMC_ERR_UNSUPPORTED)
#define LMC__CHECK_CALLBACKS(s, call)                                                              \
    LMC__CHECK((s) && (s)->call, LMC_ERR_ARGUMENT);                                                \
    LMC__CHECK_RESERVED(s)

/* The result of a function that makes an object: NULL on errors. */
#define LMC__NEW_OBJECT(object)                                                                    \
    LMC__CHECK(object, LMC_ERR_ARGUMENT);                                                          \
    *(object) = NULL

LMC__INLINE enum lmc_status lmc__check_allocator(const lmc_allocator *a)
{
    if (!a) return LMC_OK;
    LMC__CHECK_CALLBACKS(a, reallocate);
    return LMC_OK;
}

LMC__INLINE int lmc__is_level(enum lmc_level level)
{
    return (int)level >= (int)LMC_LEVEL_FAST && (int)level <= (int)LMC_LEVEL_ARCHIVE;
}
