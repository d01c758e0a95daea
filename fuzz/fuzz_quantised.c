/* A hostile quantised block (spec 7.6): its payload, and its prediction if the parameters say so,
 * then 8 bytes of parameters, of which the header is made, so that what is mutated gets past it. */
#include "fuzz.h"

#define MOST_N ((size_t)1 << 14)

static fuzz_guard input_guard, output_guard, again_guard, base_guard, workspace_guard;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    const size_t n = fuzz_bits(&p, 13) + (size_t)1;
    const unsigned width = fuzz_bits(&p, 1) ? 4 : 2, tier = fuzz_bits(&p, 4),
                   seed = fuzz_bits(&p, 16);
    const int at_start = (int)fuzz_bits(&p, 1), is_predicted = (int)fuzz_bits(&p, 1),
              carries_base = (int)fuzz_bits(&p, 1), in_place = (int)fuzz_bits(&p, 1);
    const lmc_position position = {0, 0};
    uint8_t *block, *output, *base = NULL, *ws;
    size_t written, ws_size = lmc_block_workspace_size(n), payload_size = in.size;
    enum lmc_status status;

    fuzz_reserve(&input_guard, LMC_BLOCK_HEADER_SIZE + 4 * MOST_N);
    fuzz_reserve(&output_guard, 4 * MOST_N);
    fuzz_reserve(&again_guard, 4 * MOST_N);
    fuzz_reserve(&base_guard, 4 * MOST_N);
    fuzz_reserve(&workspace_guard, lmc_block_workspace_size(MOST_N));
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    size = n * width;
    if (is_predicted && carries_base && payload_size >= size) payload_size -= size;
    if (payload_size >= size) return 0;
    block = fuzz_place(&input_guard, LMC_BLOCK_HEADER_SIZE + payload_size, at_start);
    memset(block, 0, LMC_BLOCK_HEADER_SIZE);
    block[0] = 0xB1;
    block[1] = (uint8_t)(2 << 5 | (width == 4 ? 2 : 1));
    block[2] = (uint8_t)is_predicted;
    fuzz_put32(block + 4, (uint32_t)n);
    fuzz_put32(block + 8, (uint32_t)payload_size);
    memcpy(block + LMC_BLOCK_HEADER_SIZE, in.data, payload_size);
    output = fuzz_place(&output_guard, size, at_start);
    if (is_predicted) {
        base = in_place ? output : fuzz_place(&base_guard, size, !at_start);
        if (payload_size < in.size) memcpy(base, in.data + payload_size, size);
        else fuzz_fill(base, size, seed);
        fuzz_put32(block + 16, lmc_crc32c(0, base, size));
    }
    fuzz_seal_block(block, position);
    ws = fuzz_place(&workspace_guard, ws_size, at_start);
    status = t_block_decode(output, size, &written, block, LMC_BLOCK_HEADER_SIZE + payload_size,
                            base, base ? size : 0, position, ws, ws_size);
    FUZZ_CHECK(status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT || status == LMC_OK);
    if (status == LMC_ERR_CHECKSUM) { /* decoded: with the right CRC, by another tier, the same */
        uint8_t *const again = fuzz_place(&again_guard, size, at_start);
        if (base == output) {
            base = fuzz_place(&base_guard, size, !at_start);
            if (payload_size < in.size) memcpy(base, in.data + payload_size, size);
            else fuzz_fill(base, size, seed);
        }
        fuzz_put32(block + 12, lmc_crc32c(0, output, size));
        fuzz_seal_block(block, position);
        fuzz_set_tier(tier + 1);
        FUZZ_CHECK(t_block_decode(again, size, &written, block,
                                  LMC_BLOCK_HEADER_SIZE + payload_size, base, base ? size : 0,
                                  position, ws, ws_size) == LMC_OK);
        FUZZ_CHECK(written == size && memcmp(again, output, size) == 0);
    }
    FUZZ_END();
    return 0;
}
