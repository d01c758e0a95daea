/* embed.c - an inference engine's cache of KV tensors, compressed in memory (tensor layer of lmc.h)
 * SPDX-License-Identifier: MIT
 *
 *   cc -O2 embed.c -o embed -lm && ./embed
 */
#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ENTRIES = 8, N_ELEMENTS = 128 * 1024 };

struct entry { /* the keys of one layer, for a sequence that was swapped out */
    unsigned char *packed;
    size_t packed_size;
};

int main(void)
{
    struct entry cache[N_ENTRIES];
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(LMC_BF16); /* default block size, no threads */
    size_t size = N_ELEMENTS * sizeof(uint16_t), total = 0, bound, ws_size;
    uint16_t *plain = (uint16_t *)malloc(size), *again = (uint16_t *)malloc(size);
    void *ws;
    bound = lmc_tensor_bound(size, &options);
    ws_size = lmc_tensor_workspace_size(&options);
    ws = malloc(ws_size); /* one workspace for all calls: the codec itself allocates nothing */
    for (unsigned k = 0; k < N_ENTRIES; k++) {
        for (unsigned i = 0; i < N_ELEMENTS; i++) { /* bf16: the upper half of a float */
            float x = sinf((float)(i * (k + 1))) * cosf((float)i * 0.37f);
            uint32_t bits;
            memcpy(&bits, &x, 4);
            plain[i] = (uint16_t)(bits >> 16);
        }
        cache[k].packed = (unsigned char *)malloc(bound);
        if (lmc_tensor_encode(cache[k].packed, bound, &cache[k].packed_size, plain, size, &options,
                              ws, ws_size) != LMC_OK)
            return 1;
        total += cache[k].packed_size;
    }
    printf("%u entries: %lu -> %lu bytes\n", N_ENTRIES, (unsigned long)(N_ENTRIES * size),
           (unsigned long)total);

    /* swap in: all of the last entry, then 1,000 elements from its middle, for which only one block
     * is decoded */
    enum lmc_status status = lmc_tensor_decode(again, size, cache[7].packed, cache[7].packed_size,
                                               &options, ws, ws_size);
    if (status == LMC_OK && memcmp(plain, again, size) == 0)
        status = lmc_tensor_decode_range(again, 2000, cache[7].packed, cache[7].packed_size, 70000,
                                         size, &options, ws, ws_size);
    printf("%s\n", status == LMC_OK && memcmp((char *)plain + 70000, again, 2000) == 0
                       ? "restored"
                       : lmc_status_text(status));
    for (unsigned k = 0; k < N_ENTRIES; k++) free(cache[k].packed);
    free(plain);
    free(again);
    free(ws);
    return status == LMC_OK ? 0 : 1;
}
