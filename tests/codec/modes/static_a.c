/* Two files with a private copy each: this one and static_b.c. */
#define LMC_STATIC
#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../include/lmc_salvage.h"
#include "../../../include/lmc_extra.h"
#include "use.h"

int use_b(void);

int main(void) { return use() || use_b(); }
