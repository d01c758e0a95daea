#define LMC_IMPLEMENTATION
#include "lmc.h"
