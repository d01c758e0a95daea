/* A hostile block, with and without a prediction. Input: the block, its prediction if the
 * parameters say so, 8 bytes of parameters. */
#include "fuzz.h"

/* Wrong calls are refused. */
static void check_arguments(const uint8_t *block, size_t size)
{
    static uint8_t byte[64];
    lmc_tensor_options options;
    lmc_block_info info;
    lmc_parallel parallel = LMC_DEFAULTS;
    size_t n;
    memset(&options, 0, sizeof options);
    memset(&parallel, 0, sizeof parallel);
    FUZZ_CHECK(lmc_block_parse(NULL, 24, 0, &info) == LMC_ERR_ARGUMENT &&
               lmc_block_parse(byte, 24, 0, NULL) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(t_block_decode(NULL, 1, &n, block, size, NULL, 0, 0, byte, 64) == LMC_ERR_ARGUMENT &&
               t_block_decode(byte, 1, NULL, block, size, NULL, 0, 0, byte, 64) ==
                   LMC_ERR_ARGUMENT &&
               t_block_decode(byte, 1, &n, NULL, size, NULL, 0, 0, byte, 64) == LMC_ERR_ARGUMENT &&
               t_block_decode(byte, 1, &n, block, size, NULL, 0, 0, NULL, 64) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode(byte, 1, block, size, NULL, byte, 64) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode(NULL, 1, block, size, &options, byte, 64) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode(byte, 1, NULL, 1, &options, byte, 64) == LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode_range(byte, 1, block, size, 2, 1, &options, byte, 64) ==
               LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode_range(byte, 2, block, size, 0, 1, &options, byte, 64) ==
               LMC_ERR_ARGUMENT);
    FUZZ_CHECK(lmc_tensor_decode(byte, 1, block, size, &options, byte, 64) == LMC_ERR_WORKSPACE);
    options.log2_block = 13;
    FUZZ_CHECK(lmc_tensor_decode(byte, 1, block, size, &options, byte, 64) == LMC_ERR_ARGUMENT);
    options.log2_block = 14;
    options.parallel = &parallel;
    FUZZ_CHECK(lmc_tensor_decode(byte, 1, block, size, &options, byte, 64) == LMC_ERR_ARGUMENT);
}

#define MOST_INPUT ((size_t)1 << 20)
#define MOST_OUTPUT ((size_t)4 << 20) /* decoded bytes of the largest possible block */
#define MEDIUM_OUTPUT ((size_t)64 << 10)
/* larger blocks take long, so few are decoded: one in 16 up to 64 KiB, one in 256 of any size */
#define USUAL_OUTPUT ((size_t)6 << 10)

static fuzz_guard input_guard, output_guard, again_guard, base_guard, workspace_guard, part_guard;

static void run_tasks(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n)
{
    (void)user;
    while (n_tasks-- != 0) task(arg, n_tasks, (unsigned)(n_tasks % n));
}

/* A row of blocks as a coded tensor (layer 2 of lmc.h): all of it, and a part. */
static void check_tensor(uint8_t *blocks, size_t size, int repair, int has_base, int at_start,
                         unsigned seed, unsigned off)
{
    lmc_tensor_options options;
    lmc_parallel parallel = LMC_DEFAULTS;
    unsigned n_workers = seed % 3;
    size_t at, ws_size, total = 0, start, part;
    enum lmc_status whole, some;
    uint8_t *output, *base = NULL, *ws;
    uint32_t number = 0;
    if (has_base) fuzz_fill(fuzz_place(&base_guard, MEDIUM_OUTPUT, 1), MEDIUM_OUTPUT, seed);
    for (at = 0; size - at >= LMC_BLOCK_HEADER_SIZE; number++) {
        lmc_block_info info;
        if (repair) fuzz_seal_block(blocks + at, size - at, number);
        if (lmc_block_parse(blocks + at, size - at, number, &info) != LMC_OK ||
            info.size > MEDIUM_OUTPUT - total || info.encoded_size > size - at)
            break;
        if (repair && (has_base || !info.has_prediction)) {
            ws_size = lmc_block_workspace_size(info.n, info.width);
            if (fuzz_decode_block(output_guard.data, blocks + at, &info,
                                  info.has_prediction ? base_guard.data + total : NULL, NULL, 0,
                                  fuzz_place(&workspace_guard, ws_size, 1),
                                  ws_size) == LMC_ERR_CHECKSUM) {
                fuzz_put32(blocks + at + 12, lmc_crc32c(0, output_guard.data, info.size));
                fuzz_seal_block(blocks + at, info.encoded_size, number);
            }
        }
        total += info.size;
        at += info.encoded_size;
    }
    if (off == 1) total++;
    if (off == 2 && total) total--;
    if (total == 0 || total > MEDIUM_OUTPUT) return;
    /* exactly as long */
    if (has_base) base = fuzz_copy(&again_guard, base_guard.data, total, at_start);
    memset(&options, 0, sizeof options);
    parallel.run = run_tasks;
    parallel.user = &n_workers;
    parallel.n_workers = n_workers;
    options.log2_block = off == 3 ? 14 : 16;
    options.dtype = off == 3 ? LMC_U8 : LMC_U64;
    options.parallel = n_workers ? &parallel : NULL;
    options.prediction = base;
    options.prediction_size = has_base ? total - (off == 4) : 0;
    ws_size = lmc_tensor_workspace_size(&options);
    if (off == 5) ws_size--;
    ws = (uint8_t *)fuzz_realloc(NULL, 0, ws_size);
    FUZZ_CHECK(ws);
    output = fuzz_place(&output_guard, total, at_start);
    whole = lmc_tensor_decode(output, total, blocks, size, &options, ws, ws_size);
    start = seed * 31 % total;
    part = seed * 17 % (total - start) + 1;
    {
        uint8_t *const place = fuzz_place(&part_guard, part, at_start);
        some =
            lmc_tensor_decode_range(place, part, blocks, size, start, total, &options, ws, ws_size);
        /* the options are for smaller blocks than these, so a part of a block has no room */
        if (whole == LMC_OK && some != LMC_ERR_WORKSPACE)
            FUZZ_CHECK(some == LMC_OK && memcmp(place, output + start, part) == 0);
    }
    fuzz_realloc(ws, ws_size, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    const uint32_t seed = fuzz_bits(&p, 16);
    const int at_start = (int)fuzz_bits(&p, 1), repair = (int)fuzz_bits(&p, 1),
              in_place = (int)fuzz_bits(&p, 1), has_base = (int)fuzz_bits(&p, 1);
    const unsigned tier = fuzz_bits(&p, 4), cap_less = fuzz_bits(&p, 8), ws_less = fuzz_bits(&p, 8),
                   base_off = fuzz_bits(&p, 4);
    const unsigned size_class = fuzz_bits(&p, 8);
    int carries_base = (int)fuzz_bits(&p, 1);
    const unsigned streaming = fuzz_bits(&p, 6); /* to any alignment */
    lmc_block_info info;
    enum lmc_status status, peek;
    uint8_t *block, *output, *base = NULL, *given, *ws;
    uint32_t number;
    size_t base_size, cap, ws_size, written = ~(size_t)0;
    int as_tensor;

    (void)fuzz_bits(&p, 2);
    number = fuzz_bits(&p, 2);
    as_tensor = (int)fuzz_bits(&p, 1);
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&input_guard, MOST_INPUT);
    fuzz_reserve(&output_guard, MOST_OUTPUT + 1);
    fuzz_reserve(&again_guard, MOST_OUTPUT + 64);
    fuzz_reserve(&base_guard, MOST_OUTPUT + 16);
    fuzz_reserve(&part_guard, MEDIUM_OUTPUT);
    fuzz_reserve(&workspace_guard, lmc_block_workspace_size(LMC_MAX_BLOCK_SIZE, 1));
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    block = fuzz_copy(&input_guard, in.data, in.size, at_start);
    if (as_tensor) {
        check_tensor(block, in.size, repair, has_base, at_start, seed, base_off);
        FUZZ_END();
        return 0;
    }
    if (repair && in.size >= LMC_BLOCK_HEADER_SIZE) fuzz_seal_block(block, in.size, number);
    peek = lmc_block_parse(block, in.size, number, &info);
    if (peek != LMC_OK) {
        memset(&info, 0, sizeof info);
        info.n = 1;
        info.width = 1;
    }
    FUZZ_CHECK(info.size <= MOST_OUTPUT && info.n <= LMC_MAX_BLOCK_SIZE);
    if (info.size > (size_class == 255   ? MOST_OUTPUT
                     : size_class >= 240 ? MEDIUM_OUTPUT
                                         : USUAL_OUTPUT))
        return 0;
    if (carries_base && in.size >= LMC_BLOCK_HEADER_SIZE + info.size) {
        in.size -= info.size;
        block = fuzz_copy(&input_guard, block, in.size, at_start);
    } else carries_base = 0;

    /* the prediction: mostly of the right size */
    base_size = carries_base                 ? info.size
                : base_off == 1              ? info.size + 1
                : base_off == 2 && info.size ? info.size - 1
                                             : info.size;
    cap = cap_less == 1 && info.size ? info.size - 1 : info.size;
    output = fuzz_place(&output_guard, cap, at_start);
    given = NULL;
    if (has_base) {
        base = given = fuzz_place(&base_guard, base_size, at_start);
        if (carries_base) memcpy(base, in.data + in.size, base_size);
        else fuzz_fill(base, base_size, seed);
        if (in_place && base_size <= cap) given = (uint8_t *)memcpy(output, base, base_size);
    }
    if (ws_less == 0xA5) check_arguments(block, in.size);
    ws_size = lmc_block_workspace_size(info.n, info.width);
    if (ws_less == 1) ws_size--;
    ws = fuzz_place(&workspace_guard, ws_size, at_start);

    status = t_block_decode(output, cap, &written, block, in.size, given, has_base ? base_size : 0,
                            number, ws, ws_size);
    if (peek != LMC_OK) FUZZ_CHECK(status == peek);
    if (cap_less == 1 && peek == LMC_OK) FUZZ_CHECK(status != LMC_OK);
    if (status == LMC_OK) {
        FUZZ_CHECK(written == info.size && in.size == info.encoded_size);
        FUZZ_CHECK(lmc_crc32c(0, output, written) == info.crc);
    } else {
        FUZZ_CHECK(written == ~(size_t)0);
        /* after an error the prediction is unchanged */
        if (given == output && info.has_prediction)
            FUZZ_CHECK(memcmp(output, base, base_size) == 0);
    }
    /* All was decoded, and only Content_CRC is wrong: with the right one the block is valid, also
     * as a tensor. */
    if (repair && peek == LMC_OK &&
        (status == LMC_ERR_CHECKSUM || (status == LMC_ERR_BASE_WRONG && base_size == info.size)) &&
        fuzz_decode_block(fuzz_place(&again_guard, info.size, !at_start), block, &info, base, NULL,
                          0, ws, ws_size) == LMC_ERR_CHECKSUM) {
        uint8_t *const again = fuzz_place(&again_guard, info.size, !at_start);
        lmc_tensor_options options;
        memset(&options, 0, sizeof options);
        fuzz_put32(block + 12, lmc_crc32c(0, again, info.size));
        fuzz_seal_block(block, in.size, number);
        FUZZ_CHECK(t_block_decode(output, info.size, &written, block, in.size, given,
                                  has_base ? base_size : 0, number, ws, ws_size) == LMC_OK);
        FUZZ_CHECK(written == info.size && memcmp(again, output, written) == 0);
        if (streaming) {
            uint8_t *const place = fuzz_place(&again_guard, info.size + streaming, 0);
            info.crc = fuzz_get32(block + 12);
            FUZZ_CHECK(fuzz_decode_block(place, block, &info, info.has_prediction ? base : NULL,
                                         data, size, ws, ws_size) == LMC_OK);
            FUZZ_CHECK(memcmp(place, output, info.size) == 0);
        }
        if (number == 0 && info.n <= (size_t)1 << 16) {
            size_t start = seed % info.size, part = (seed >> 3) % (info.size - start) + 1;
            options.log2_block = 16;
            options.dtype = LMC_U64; /* as wide as can be */
            options.prediction = info.has_prediction ? base : NULL;
            options.prediction_size = info.has_prediction ? base_size : 0;
            ws_size = lmc_tensor_workspace_size(&options);
            ws = fuzz_place(&workspace_guard, ws_size, at_start);
            FUZZ_CHECK(lmc_tensor_decode_range(again, part, block, in.size, start, info.size,
                                               &options, ws, ws_size) == LMC_OK);
            FUZZ_CHECK(memcmp(again, output + start, part) == 0);
        }
    }
    FUZZ_END();
    return 0;
}
