/* consumer.c - what a program does with an installed LMC: header and library are of one version, a
 * tensor comes back, and the library has threads. SPDX-License-Identifier: MIT
 */
#include <lmc.h>
#include <lmc_extra.h>
#include <string.h>

int main(void)
{
    static unsigned char tensor[4096], coded[8192], again[4096];
    const lmc_tensor_options options = LMC_TENSOR_OPTIONS(LMC_BF16);
    lmc_pool *pool = NULL;
    size_t size;
    if (strcmp(lmc_version(), LMC_VERSION) != 0) return 1;
    if (lmc_tensor_encode(coded, sizeof coded, &size, tensor, sizeof tensor, &options, NULL, 0) !=
        LMC_OK)
        return 2;
    memset(again, 1, sizeof again);
    if (lmc_tensor_decode(again, sizeof again, coded, size, &options, NULL, 0) !=
            LMC_OK ||
        memcmp(tensor, again, sizeof again) != 0)
        return 3;
    if (lmc_pool_open(&pool, 2, NULL) != LMC_OK) return 4;
    lmc_pool_free(pool);
    return 0;
}
