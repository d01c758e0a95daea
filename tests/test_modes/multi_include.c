/* Included again and again, before and after the implementation, as happens when other headers
 * include it. */
#include "../../lmc.h"
#include "../../lmc.h"
#include "../../include/lmc_salvage.h"
#include "../../include/lmc_extra.h"
#define LMC_IMPLEMENTATION
#include "../../lmc.h"
#include "../../lmc.h"
#include "../../include/lmc_salvage.h"
#include "../../include/lmc_extra.h"
#include "../../include/lmc_salvage.h"
#include "../../include/lmc_extra.h"
#undef LMC_IMPLEMENTATION
#include "../../lmc.h"
#include "../../include/lmc_salvage.h"
#include "../../include/lmc_extra.h"
#include "use.h"

int main(void) { return use(); }
