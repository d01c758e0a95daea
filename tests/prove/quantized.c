/* prove: eva -eva-precision 3 -warn-special-float none
 * with:  -DN=64 | -DN=61
 * shows: lmc__restore_scalar, lmc__join_symbols_scalar, lmc__has_more
 * for:   n to 64; all grids that lmc__parse_quantized_head lets through, any symbols and
 *        predictions */
#include "harness.h"
#include "kernels/grids.h"
#include "codec/get_quantized.h"
uint16_t symbols[N];
uint8_t second[4 * N], dst[4 * N], high[N], low[N];
int main(void)
{
    lmc__grid grid;
    const size_t n = ANY(0, N);
    ANY_BYTES(symbols, sizeof symbols);
    ANY_BYTES(second, sizeof second);
    ANY_BYTES(high, sizeof high);
    ANY_BYTES(low, sizeof low);
    memset(&grid, 0, sizeof grid);
    grid.is_log = (int)ANY(0, 1); /* the numbers that lmc__parse_quantized_head lets through */
    grid.is_signed = (int)ANY(0, 1);
    grid.min = -(int)ANY(0, 65535);
    grid.step = (uint32_t)ANY(0, 1u << 24);
    grid.bias = (int)((long long)ANY(0, 1u << 31) - (1 << 30));
    grid.floor = (uint32_t)ANY(0, 0x7F800000u);
    lmc__restore_scalar(dst, symbols, ANY(0, 1) ? second : NULL, n,
                        (uint32_t)ANY(LMC__MIN_SCALE, LMC__MAX_LOG_SCALE), &grid);
    lmc__join_symbols_scalar(symbols, high, ANY(0, 1) ? low : NULL, n, (unsigned)ANY(0, 8));
    lmc__has_more(high, N, (unsigned)ANY(0, 255)); /* exactly these bytes */
    return 0;
}
