/* A program whose options the compiler knows in full: it must not be warned of the header. */
#define LMC_STATIC
#define LMC_IMPLEMENTATION
#include "../../../include/lmc_decode.h"

int main(int argc, char **argv)
{
    static char dst[100], src[100], workspace[100000];
    lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_BF16);
    size_t size;
    (void)argv;
    options.number = (uint32_t)argc;
    return lmc_block_decode(dst, sizeof dst, &size, src, sizeof src, &options, workspace,
                            sizeof workspace) == LMC_OK;
}
