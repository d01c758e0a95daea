/* prove: eva -eva-precision 1
 * with:  -DN=1 | -DN=23 | -DN=24
 * shows: lmc_block_parse, lmc__crc32c_scalar
 * for:   any bytes, these sizes, each with a buffer of exactly that size, and any number */
#include "harness.h"
#include "codec/get_block.h"
uint8_t src[N];
int main(void)
{
    lmc_block_info info = {0};
    ANY_BYTES(src, sizeof src);
    if (lmc_block_parse(src, N, (uint32_t)ANY(0, UINT32_MAX), &info) == LMC_OK) {
        //@ check size: info.size <= 4194304;
        //@ check payload: info.encoded_size <= 24 + 4194304;
    }
    return 0;
}
