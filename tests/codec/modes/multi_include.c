/* Included again and again, before and after the implementation, as happens when other headers
 * include it. */
#include "../../../lmc.h"
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
#include "../../../include/lmc_cuda.h"
#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
#include "../../../include/lmc_cuda.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
#include "../../../include/lmc_cuda.h"
#undef LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
#include "../../../include/lmc_cuda.h"
#include "use.h"

int main(void) { return use(); }
