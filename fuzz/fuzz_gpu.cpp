/* A hostile block for the kernels of src/gpu, which run on the CPU by tests/gpu/cuda_on_cpu.h:
 * lmc.h decodes what they accept, and refuses what they refuse. Input, as in fuzz_block.c: the
 * block, its prediction if the parameters say so, then 8 bytes of parameters. */
extern "C" {
#include "fuzz.h"
}
#include "../tests/gpu/cuda_on_cpu.h"
#include "../tests/gpu/kernel.h"

enum { USUAL_OUTPUT = 1 << 13, MEDIUM_OUTPUT = 1 << 16, MOST_OUTPUT = 1 << 18 };

/* A copy, `offset` bytes behind a multiple of 16, in memory that ends behind its pad. */
struct placed {
    uint8_t *memory, *data;
    placed(const uint8_t *from, size_t size, size_t offset, size_t pad)
        : memory((uint8_t *)malloc(offset + size + pad)), data(memory + offset)
    {
        FUZZ_CHECK(memory);
        memset(memory, 0xC5, offset + size + pad);
        if (from) memcpy(data, from, size);
    }
    ~placed() { free(memory); }
    placed(const placed &) = delete;
    placed &operator=(const placed &) = delete;
};

/* Decodes the block by lmc.h to dst; returns the status. */
static enum lmc_status decode(uint8_t *dst, const uint8_t *block, size_t size,
                              const lmc_block_info &info, const uint8_t *base, uint32_t number)
{
    const size_t ws_size = lmc_block_workspace_size(info.n, info.width);
    uint8_t *const ws = (uint8_t *)malloc(ws_size);
    size_t written;
    FUZZ_CHECK(ws);
    const enum lmc_status status = t_block_decode(dst, info.size, &written, block, size, base,
                                                  base ? info.size : 0, number, ws, ws_size);
    free(ws);
    return status;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    const uint32_t seed = fuzz_bits(&p, 16);
    const size_t offset = 8 * fuzz_bits(&p, 1);
    const int repair = (int)fuzz_bits(&p, 1), in_place = (int)fuzz_bits(&p, 1),
              has_base = (int)fuzz_bits(&p, 1);
    (void)fuzz_bits(&p, 24);
    const unsigned size_class = fuzz_bits(&p, 8);
    const int carries_base = (int)fuzz_bits(&p, 1);
    const unsigned in_offset = fuzz_bits(&p, 6) % 16;
    (void)fuzz_bits(&p, 2);
    const uint32_t number = fuzz_bits(&p, 2);
    lmc_block_info info;
    uint8_t *block, *want, *base = NULL;
    memset(&info, 0, sizeof info);
    if (in.size < LMC_BLOCK_HEADER_SIZE) return 0;
    FUZZ_BEGIN();
    block = (uint8_t *)malloc(in.size);
    FUZZ_CHECK(block);
    memcpy(block, in.data, in.size);
    if (repair) fuzz_seal_block(block, in.size, number);
    enum lmc_status status = lmc_block_parse(block, in.size, number, &info);
    if (status != LMC_OK) info.size = 64; /* the kernel must refuse it with any memory */
    if (info.size > (size_class == 255   ? MOST_OUTPUT
                     : size_class >= 240 ? MEDIUM_OUTPUT
                                         : USUAL_OUTPUT)) {
        free(block);
        FUZZ_END();
        return 0;
    }
    size = in.size;
    want = (uint8_t *)malloc(info.size);
    FUZZ_CHECK(want);
    if (has_base) {
        base = (uint8_t *)malloc(info.size);
        FUZZ_CHECK(base);
        if (carries_base && size >= LMC_BLOCK_HEADER_SIZE + info.size) {
            size -= info.size;
            memcpy(base, block + size, info.size);
            if (repair) fuzz_seal_block(block, size, number); /* Payload_CRC: fewer bytes */
        } else fuzz_fill(base, info.size, seed);
    }
    if (status == LMC_OK) {
        status = decode(want, block, size, info, base, number);
        /* with the right Content_CRC, if nothing else is wrong */
        if (repair && (status == LMC_ERR_CHECKSUM || status == LMC_ERR_BASE_WRONG)) {
            fuzz_put32(block + 12, lmc_crc32c(0, want, info.size));
            fuzz_seal_block(block, size, number);
            status = decode(want, block, size, info, base, number);
        }
    }

    const bool is_in_place = in_place && base;
    const placed input(block, size, in_offset, KERNEL_PAD),
        output(is_in_place ? base : NULL, info.size, offset, 0), before(base, info.size, offset, 0);
    const gpu_job job = {input.data,
                         output.data,
                         is_in_place ? output.data
                         : base      ? before.data
                                     : NULL,
                         (uint32_t)size,
                         (uint32_t)info.size,
                         number,
                         KERNEL_RUN_PREDICTED | KERNEL_MAY_GROUP | KERNEL_MAY_QUANTIZE};
    uint32_t got = KERNEL_NOT_HERE;
    cpu::seed = seed;
    for (int kernel = gpu_kernel_of(block, is_in_place);
         kernel != KERNEL_CPU && got == KERNEL_NOT_HERE; kernel = gpu_next_kernel(kernel))
        gpu_run(kernel, &job, 1, 1, &got);
    if (got == LMC_OK) {
        FUZZ_CHECK(status == LMC_OK);
        FUZZ_CHECK(memcmp(output.data, want, info.size) == 0);
    } else if (got != KERNEL_NOT_HERE) FUZZ_CHECK(status != LMC_OK);
    free(base);
    free(want);
    free(block);
    FUZZ_END();
    return 0;
}
