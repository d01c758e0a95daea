/* A hostile file: restored from a pipe, opened, and read in pieces, with failing calls. A reader
 * reads what a pipe restores. Input: the file, then 12 bytes of parameters. */
#define FUZZ_SHAPE FUZZ_SNAPSHOT
#define FUZZ_PARAMETERS 12
#include "mutate.h"
#include "io.h"

#define MOST_INPUT ((size_t)1 << 17)

static fuzz_guard input_guard;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    unsigned tier;
    io_parameters io;
    io_target restored;
    (void)fuzz_draw(&in, 4); /* for later */
    io = io_draw(&in, &tier);
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&input_guard, MOST_INPUT);
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    (void)io_check_file(fuzz_copy(&input_guard, in.data, in.size, io.at_start), in.size, NULL, &io,
                        &restored, NULL);
    if ((io.seed & 255) == 0xA5 && in.size >= LMC_HEADER_SIZE) io_check_arguments(in.data, in.size);
    FUZZ_END();
    return 0;
}
