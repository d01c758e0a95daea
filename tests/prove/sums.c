/* prove: eva -eva-precision 5
 * with:  -DN=1 | -DN=7 | -DN=8 | -DN=23 | -DN=64 | -DN=520 | -DN=4100
 * shows: lmc__count_ones_scalar, lmc__crc32c_scalar
 * for:   these sizes, each with a buffer of exactly that size */
#include "harness.h"
#include "kernels/count.h"
#include "kernels/crc32c.h"
uint8_t p[N];
int main(void)
{
    ANY_BYTES(p, N);
    lmc__count_ones_scalar(p, N);
    lmc__crc32c_scalar((uint32_t)ANY(0, UINT32_MAX), p, N);
    return 0;
}
