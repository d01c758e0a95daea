/* The kernels of the tier AVX-512, for a developer's build (make dev): see LMC__PART in
 * object.h. */
#define LMC__PART LMC__PART_AVX512
#include "objects/object.h"
#include "kernels/tiers.h"
