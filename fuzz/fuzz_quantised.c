/* A hostile quantised block (spec/quantised.md): its payload, and its prediction if the parameters
 * say so, then 8 bytes of parameters, from which the header is made: so the header is always
 * valid. */
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
    uint8_t *block, *output, *base = NULL, *ws;
    size_t written, ws_size = lmc_block_workspace_size(n, width), payload_size = in.size;
    enum lmc_status status;
    lmc_block_info info;

    fuzz_reserve(&input_guard, LMC_BLOCK_HEADER_SIZE + 4 * MOST_N);
    fuzz_reserve(&output_guard, 4 * MOST_N);
    fuzz_reserve(&again_guard, 4 * MOST_N);
    fuzz_reserve(&base_guard, 4 * MOST_N);
    fuzz_reserve(&workspace_guard, lmc_block_workspace_size(MOST_N, 4));
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    size = n * width;
    if (is_predicted && carries_base && payload_size >= size) payload_size -= size;
    if (payload_size >= size) return 0;
    block = fuzz_place(&input_guard, LMC_BLOCK_HEADER_SIZE + payload_size, at_start);
    memset(block, 0, LMC_BLOCK_HEADER_SIZE);
    block[0] = 0xB2;
    block[1] = (uint8_t)width;
    block[2] = (uint8_t)(2 << 5 | is_predicted << 2);
    fuzz_put32(block + 4, (uint32_t)n);
    fuzz_put32(block + 8, (uint32_t)payload_size);
    memcpy(block + LMC_BLOCK_HEADER_SIZE, in.data, payload_size);
    output = fuzz_place(&output_guard, size, at_start);
    if (is_predicted) {
        base = fuzz_place(&base_guard, size, !at_start);
        if (payload_size < in.size) memcpy(base, in.data + payload_size, size);
        else fuzz_fill(base, size, seed);
        memcpy(output, base, size);
    }
    size = LMC_BLOCK_HEADER_SIZE + payload_size;
    fuzz_seal_block(block, size, 0);
    ws = fuzz_place(&workspace_guard, ws_size, at_start);
    FUZZ_CHECK(lmc_block_parse(block, size, 0, &info) == LMC_OK);
    status = t_block_decode(output, info.size, &written, block, size,
                            in_place && base ? output : base, base ? info.size : 0, 0, ws, ws_size);
    FUZZ_CHECK(status == LMC_OK ||
               (is_predicted ? status == LMC_ERR_BASE_WRONG
                             : status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT));
    if (base && in_place && status != LMC_OK) FUZZ_CHECK(memcmp(output, base, info.size) == 0);
    if (status != LMC_OK && /* decoded: with the right CRC, by another tier, the same */
        fuzz_decode_block(output, block, &info, base, NULL, 0, ws, ws_size) == LMC_ERR_CHECKSUM) {
        uint8_t *const again = fuzz_place(&again_guard, info.size, at_start);
        fuzz_put32(block + 12, lmc_crc32c(0, output, info.size));
        fuzz_seal_block(block, size, 0);
        fuzz_set_tier(tier + 1);
        if (base && in_place) memcpy(again, base, info.size);
        FUZZ_CHECK(t_block_decode(again, info.size, &written, block, size,
                                  in_place && base ? again : base, base ? info.size : 0, 0, ws,
                                  ws_size) == LMC_OK);
        FUZZ_CHECK(written == info.size && memcmp(again, output, written) == 0);
    }
    FUZZ_END();
    return 0;
}
