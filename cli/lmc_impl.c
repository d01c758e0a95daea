/* lmc_impl.c - the one file of the program that implements lmc.h: it takes the time, and is
 * compiled once SPDX-License-Identifier: MIT
 */
#define LMC_PTHREADS /* before platform.h, which includes lmc.h */
#include "sys/platform.h"

#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_salvage.h"
#include "../include/lmc_extra.h"
