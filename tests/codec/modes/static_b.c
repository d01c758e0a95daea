/* The second private copy; most of its functions are not used, and that must not warn. */
#define LMC_STATIC
#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"

int use_b(void);

int use_b(void) { return lmc_crc32c(0, "123456789", 9) != 0xE3069283u; }
