/* The one file of the program that implements. */
#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
