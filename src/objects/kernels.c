/* The kernels of the tiers scalar, NEON and SIMDe, for a developer's build (make dev): see
 * LMC__PART in object.h. */
#define LMC__PART LMC__PART_KERNELS
#include "objects/object.h"
#include "kernels/tiers.h"
