#pragma once
#include "base/platform.h"

/* The text that NVRTC compiles. tools/amalgamate.py puts the lines of the files here, one literal
 * each: a literal has at most 4,095 characters in C99. */
static const char *const lmc__cuda_text[] = {
    "@TEXT gpu/decode.cu@",
    "@TEXT gpu/sums.cu@",
    NULL,
};
