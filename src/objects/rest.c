/* All but the kernels, for a developer's build (make dev): see LMC__PART in object.h. */
#define LMC__PART LMC__PART_REST
#define LMC_IMPLEMENTATION
#include "objects/object.h"
#include "lmc.h.in"
#include "lmc_salvage.h.in"
#include "lmc_extra.h.in"
