/* prove: wp lmc__load_bits, lmc__take, lmc__push_list, lmc__is_tail_clear, lmc__has_mode,
 *           lmc__is_one_symbol, lmc__get_flat_depth, lmc__root_of
 * shows: lmc__load_bits, lmc__take, lmc__push_list, lmc__is_tail_clear, lmc__has_mode,
 *        lmc__is_one_symbol, lmc__get_flat_depth, lmc__root_of
 * for:   every size, position, tree and node */
#include "harness.h"
#include "decoder.h"
/*@ requires at / 8 <= size <= 0x7fffffffffff;
    requires size > 0 ==> \valid_read(p + (0 .. size - 1));
    assigns \nothing; */
static uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at);
