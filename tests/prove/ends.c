/* prove: eva -eva-precision 2
 * with:  -DN=0 | -DN=1 | -DN=7 | -DN=8 | -DN=9 | -DN=63 | -DN=64
 * shows: lmc_header_parse, lmc__check_header, lmc__check_trailer, lmc__get_header_info,
 *        lmc__add_total
 * for:   any bytes, these sizes, each with a buffer of exactly that size; a trailer in a
 *        file of any size */
#define SNAPSHOT
#include "harness.h"
#include "snapshot/ends.h"
uint8_t src[N], trailer[LMC__TRAILER_SIZE];
int main(void)
{
    lmc_snapshot_info info = {0};
    uint64_t total = ANY(0, UINT64_MAX);
    const uint64_t size = ANY(0, UINT64_MAX), file_size = ANY(0, UINT64_MAX);
    ANY_BYTES(src, sizeof src);
    ANY_BYTES(trailer, sizeof trailer);
    lmc_header_parse(src, N, &info);
    if (file_size >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE)
        lmc__check_trailer(&info, trailer, file_size, lmc__get_kernels());
    lmc__add_total(&total, size, ANY(0, UINT64_MAX));
    return 0;
}
