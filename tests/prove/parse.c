/* prove: eva -eva-precision 1
 * shows: lmc_block_parse (with crc32c)
 * for:   any bytes, sizes 0 to 24, and any number */
#include "harness.h"
#include "codec/get_block.h"
uint8_t src[24];
int main(void)
{
    lmc_block_info info = {0};
    ANY_BYTES(src, sizeof src);
    if (lmc_block_parse(src, ANY(0, 24), (uint32_t)ANY(0, UINT32_MAX), &info) == LMC_OK) {
        //@ check size: info.size <= 4194304;
        //@ check payload: info.encoded_size <= 24 + 4194304;
    }
    return 0;
}
