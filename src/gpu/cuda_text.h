#pragma once
#include "base/platform.h"

/* The text that NVRTC compiles. tools/amalgamate.py puts the lines of the files here, each as a
 * literal: C99 allows literals of at most 4,095 characters. */
static const char *const lmc__cuda_text[] = {
    "@TEXT gpu/decode.cu@",
    "@TEXT gpu/sums.cu@",
    NULL,
};
