/* t_read.c - lmc_read.h in place of lmc.h, and lmc_extra.h, for vectors.c, which calls their
 * functions. */
#define LMC_IMPLEMENTATION
#include "../../include/lmc_read.h"
#include "../../include/lmc_extra.h"

long t_passed, t_failed;
char t_about[240];
int t_long, t_quick, t_brief, t_kernels_only;
