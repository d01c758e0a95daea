/* lmc_impl.c - the only file that implements lmc.h, as compiling that takes long
 * SPDX-License-Identifier: MIT
 */
#define LMC_PTHREADS /* before platform.h, which includes lmc.h */
#include "sys/platform.h"

#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_salvage.h"
#include "../include/lmc_extra.h"
