#define LMC_IMPLEMENTATION
#include "lmc.h"
#include "lmc_salvage.h"
#include "lmc_extra.h"
