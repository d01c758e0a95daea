#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/crc32c.h"
#include "codec/tree.h"

/* What a host must know about the kernels of decode.cu (experimental: they have not run on a GPU).
 *
 *     kernel(blocks, n, status, tables, scratch, scratch_size)
 *
 * decodes n blocks. A group of LMC__GPU_THREADS threads (a thread block of CUDA) decodes one at a
 * time. Any number of groups works. The best is lmc__gpu_kernel.groups for each multiprocessor, if
 * there are as many blocks. All pointers are addresses of the device. status[i] becomes a number of
 * enum lmc_status, or LMC__GPU_NOT_HERE: then the kernel `next` tries the block, and in the end the
 * CPU. The CPU also decodes blocks of any other status than LMC_OK, to find out what is wrong.
 * Whatever the bytes are, a kernel ends, and accesses only what is said here.
 *
 * scratch: scratch_size bytes for each group, a multiple of 256, aligned to 256; their values do
 * not matter. More than lmc__gpu_scratch_size() has no use; with less, more blocks are NOT_HERE.
 * scratch may be NULL if scratch_size is 0. */

enum {
    LMC__GPU_THREADS = 256, /* of a group */
    LMC__GPU_PAD = 16,      /* bytes behind a block that may be read; their values do not matter */
    LMC__GPU_NOT_HERE = 0xFF, /* a status: not decoded */
    LMC__GPU_CPU = -1         /* in place of the number of a kernel */
};

/* Bits of lmc__gpu_block.flags. */
enum {
    LMC__GPU_RUN_PREDICTED = 1, /* the run has a prediction (R5-6) */
    LMC__GPU_MAY_GROUP = 2,     /* the file may use Grouping (R3-13) */
    LMC__GPU_MAY_QUANTIZE = 4,  /* and Layout 2 (R3-12) */
    LMC__GPU_MAY_PART = 8,      /* and Layout 3 */
    LMC__GPU_MAY_MATRIX = 16,   /* and Layout 4 */
    LMC__GPU_MAY_CODES = 32     /* and Layout 5 */
};

typedef struct lmc__gpu_block {
    /* Addresses. in: the header and the payload, not aligned; out: aligned to the element's width;
     * base: the prediction, as large and aligned as out, or 0. A kernel for deltas allows base ==
     * out; then out has any content if the status is not LMC_OK. */
    uint64_t in, out, base;
    uint32_t in_size, out_size; /* out_size: as the run says */
    uint32_t number;            /* of the block in its run */
    uint32_t flags;
} lmc__gpu_block;

/* Tables that the kernels read; the host makes them once. In decode.cu the struct is named Tables.
 *
 * CRC-32C, reflected: bit 31 of a number is x^0, and x^32 is the number POLY. */
typedef struct lmc__gpu_tables {
    uint32_t advance[7][4][256]; /* [k]: times x^(8 * 32 * 2^k), for each byte of a number */
    uint32_t word[4][256];       /* times x^32 */
    uint32_t power[3][256];      /* [k][i]: x^(8 * 256^k * i) */
    uint16_t frozen_start[LMC__FROZEN_LEVELS][258]; /* of each leaf (spec 6.4); [256] is 2^15 */
    uint8_t frozen_symbol[256];
} lmc__gpu_tables;

/* table[b][v]: (v << 8 b) * factor, so that four look-ups multiply a number. */
static void lmc__gpu_set_product(uint32_t table[4][256], uint32_t factor)
{
    uint32_t b, v;
    for (b = 0; b < 4; b++)
        for (v = 0; v < 256; v++) table[b][v] = lmc__crc_multiply(v << 8 * b, factor);
}

/* powers[i] = step^i; returns step^256. */
static uint32_t lmc__gpu_set_powers(uint32_t powers[256], uint32_t step)
{
    uint32_t v = 0x80000000u;
    unsigned i;
    for (i = 0; i < 256; i++) {
        powers[i] = v;
        v = lmc__crc_multiply(v, step);
    }
    return v;
}

static void lmc__gpu_make_tables(lmc__gpu_tables *t)
{
    uint32_t power = 0x00800000u; /* x^8 */
    unsigned level, i, k;
    memset(t, 0, sizeof *t);
    lmc__gpu_set_product(t->word, 0x82F63B78u);
    for (i = 0; i < 3; i++)
        power = lmc__gpu_set_powers(t->power[i], power); /* in the end x^(8 * 256^3) */
    power = t->power[0][32];
    for (i = 0; i < 7; i++) {
        lmc__gpu_set_product(t->advance[i], power);
        power = lmc__crc_multiply(power, power);
    }
    for (level = 0; level < LMC__FROZEN_LEVELS; level++) {
        unsigned leaf = 0, start = 0;
        for (i = 0; i < LMC__MAX_LENGTH; i++)
            for (k = 0; k < lmc__frozen_counts[level][i]; k++) {
                t->frozen_start[level][leaf++] = (uint16_t)start;
                start += 1u << (LMC__MAX_LENGTH - 1 - i);
            }
        t->frozen_start[level][leaf] = (uint16_t)start;
    }
    memcpy(t->frozen_symbol, lmc__frozen_order, sizeof t->frozen_symbol);
}

/* A way to run a kernel of decode.cu. */
typedef struct lmc__gpu_kernel {
    const char *name;
    /* Dynamic shared memory of a group, in bytes: so much that `groups` groups, as many as their
     * registers allow, fit into a multiprocessor of 228 KiB. More has no use. Less, but not less
     * than shared_least, makes more blocks NOT_HERE: so a device with less gives all it has. */
    uint32_t shared_size, shared_least;
    uint32_t groups;
    int next; /* the kernel for blocks that this one leaves, or LMC__GPU_CPU */
} lmc__gpu_kernel;

enum { LMC__GPU_PLANES, LMC__GPU_MORE_PLANES, LMC__GPU_ANY, LMC__GPU_KERNELS };

/* shared_least is the size of struct Shared in decode.cu, and for planes some bytes for masks. */
static const lmc__gpu_kernel lmc__gpu_kernels[LMC__GPU_KERNELS] = {
    {"lmc_decode_planes", 76800, 49152, 3, LMC__GPU_MORE_PLANES},
    {"lmc_decode_planes", 115712, 76800, 2, LMC__GPU_ANY},
    {"lmc_decode_any", 43952, 43952, 3, LMC__GPU_CPU},
};

/* Bytes of scratch for a group that decodes blocks of up to block_size bytes; 0 if the kernel needs
 * none. It holds the decoded bytes of lists that are trees, the masks of the list in work, and a
 * sparse block's masks. It is enough for what encoders make. */
static size_t lmc__gpu_scratch_size(int kernel, size_t block_size)
{
    return kernel == LMC__GPU_ANY ? (3 * block_size + (256u << 10) + 255) & ~(size_t)255 : 0;
}

/* The number of the kernel that decodes a block with this header of 24 bytes, or LMC__GPU_CPU. The
 * header need not be right: the kernel checks it. in_place: out is base. */
static int lmc__gpu_kernel_of(const uint8_t *header, int in_place)
{
    const unsigned coding = header[2];
    (void)in_place; /* lmc_decode_any reads an element of the base before it writes there */
    if (coding >> LMC__LAYOUT_SHIFT > LMC__LAYOUT_PLANES) return LMC__GPU_CPU;
    return coding & LMC__PREDICTED || header[1] == 8 || lmc__load32(header + 4) > 65536
               ? LMC__GPU_ANY
               : LMC__GPU_PLANES;
}
