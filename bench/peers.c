/* The codecs that have a C library, behind one interface, for peers.py: LMC on each tier, and the
 * usual libraries on the same planes. Built as a shared object.
 *
 * The peers on planes get a fast front end: LMC's own split and join (of the AVX2 or NEON tier).
 * They write no checksums and no file format, only what a decoder needs, in chunks that stay in the
 * caches. huff0 is that of libzstd, whose internals only the static library exports; it codes the
 * plane of the exponent, and the others are stored. */
#include <lz4.h>
#include <zstd.h>

#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include "../tests/codec/t_data.h"
#include "front.h"

/* Declared in zstd's lib/common/huf.h since 1.5.4, the first that has the flags. */
#if ZSTD_VERSION_NUMBER < 10504
#error "needs libzstd 1.5.4 or later"
#endif
size_t HUF_compress4X_repeat(void *dst, size_t cap, const void *src, size_t size,
                             unsigned max_symbol, unsigned table_log, void *ws, size_t ws_size,
                             size_t *table, int *repeat, int flags);
size_t HUF_decompress4X_hufOnly_wksp(uint32_t *table, void *dst, size_t dst_size, const void *src,
                                     size_t size, void *ws, size_t ws_size, int flags);
unsigned HUF_isError(size_t code);
#define HUF_BMI2 1 /* HUF_flags_bmi2 */

#define MAX_CHUNK ((size_t)1 << 20) /* elements */

static struct scratch {
    uint8_t rows[4][MAX_CHUNK];
    uint64_t huf[2048];
    uint32_t table[1 + (1 << 12)];
} scratch;

static ZSTD_CCtx *cctx;
static ZSTD_DCtx *dctx;

/* One plane: returns the coded size, 0 if it does not shrink. level: the library's. */
typedef size_t (*plane_encoder)(uint8_t *dst, size_t cap, const uint8_t *src, size_t n, int level);
typedef int (*plane_decoder)(uint8_t *dst, size_t n, const uint8_t *src, size_t size);

static size_t huff0_encode(uint8_t *dst, size_t cap, const uint8_t *src, size_t n, int level)
{
    const size_t size = HUF_compress4X_repeat(dst, cap, src, n, 255, 11, scratch.huf,
                                              sizeof scratch.huf, NULL, NULL, HUF_BMI2);
    (void)level;
    /* 1: one symbol; not worth a mode here */
    return HUF_isError(size) || size == 1 || size >= n ? 0 : size;
}
static int huff0_decode(uint8_t *dst, size_t n, const uint8_t *src, size_t size)
{
    scratch.table[0] = 12 * 0x01000001u; /* as HUF_CREATE_STATIC_DTABLEX2 does */
    return HUF_decompress4X_hufOnly_wksp(scratch.table, dst, n, src, size, scratch.huf,
                                         sizeof scratch.huf, HUF_BMI2) == n;
}

static size_t zstd_encode(uint8_t *dst, size_t cap, const uint8_t *src, size_t n, int level)
{
    const size_t size = ZSTD_compressCCtx(cctx, dst, cap, src, n, level);
    return ZSTD_isError(size) || size >= n ? 0 : size;
}
static int zstd_decode(uint8_t *dst, size_t n, const uint8_t *src, size_t size)
{
    return ZSTD_decompressDCtx(dctx, dst, n, src, size) == n;
}

static size_t lz4_encode(uint8_t *dst, size_t cap, const uint8_t *src, size_t n, int level)
{
    const int size = LZ4_compress_fast((const char *)src, (char *)dst, (int)n, (int)cap, level);
    return size <= 0 || (size_t)size >= n ? 0 : (size_t)size;
}
static int lz4_decode(uint8_t *dst, size_t n, const uint8_t *src, size_t size)
{
    return LZ4_decompress_safe((const char *)src, (char *)dst, (int)size, (int)n) == (int)n;
}

static const struct peer {
    const char *name;
    int tier;             /* of LMC; -1: another codec */
    plane_encoder encode; /* NULL: memcpy */
    plane_decoder decode;
    /* level of LMC: 1 is max; as_bytes: no planes; only_top: the lower planes are stored */
    int level, as_bytes, only_top;
    size_t chunk; /* elements */
} peers[] = {
    {"memcpy", -1, NULL, NULL, 0, 0, 0, 0},
    {"LMC avx512", LMC_TIER_AVX512, NULL, NULL, 0, 0, 0, 0},
#ifdef BENCH_LEVELS /* the Makefile defines it if the library has levels */
    {"LMC avx512, max", LMC_TIER_AVX512, NULL, NULL, 1, 0, 0, 0},
#endif
    {"LMC avx2", LMC_TIER_AVX2, NULL, NULL, 0, 0, 0, 0},
    {"LMC neon", LMC_TIER_NEON, NULL, NULL, 0, 0, 0, 0},
    {"LMC scalar", LMC_TIER_SCALAR, NULL, NULL, 0, 0, 0, 0},
    {"huff0, exponent plane", -1, huff0_encode, huff0_decode, 0, 0, 1,
     (size_t)128 << 10}, /* the largest that huff0 accepts */
    {"zstd -1, planes", -1, zstd_encode, zstd_decode, 1, 0, 0, MAX_CHUNK},
    {"zstd -3, planes", -1, zstd_encode, zstd_decode, 3, 0, 0, MAX_CHUNK},
    {"zstd -1, bytes", -1, zstd_encode, zstd_decode, 1, 1, 0, MAX_CHUNK},
    {"lz4, planes", -1, lz4_encode, lz4_decode, 1, 0, 0, MAX_CHUNK},
};
#define N_PEERS (sizeof peers / sizeof *peers)

/* -- the interface -- */

const char *peer_name(unsigned i) { return i < N_PEERS ? peers[i].name : NULL; }
int peer_available(unsigned i)
{
    return i < N_PEERS &&
           (peers[i].tier < 0 || lmc_tier_is_available((enum lmc_tier)peers[i].tier));
}
const char *peer_versions(void)
{
    static char text[64];
    const char *const parts[] = {LMC_VERSION, ZSTD_versionString(), LZ4_versionString()};
    size_t i, at = 0;
    for (i = 0; i < 3; i++) {
        memcpy(text + at, parts[i], strlen(parts[i]));
        at += strlen(parts[i]);
        text[at++] = i < 2 ? ' ' : 0;
    }
    return text;
}

void peer_fill(uint8_t *dst, size_t size, const char *dtype)
{
    t_fill(dst, size, T_GAUSS, lmc_dtype_find(dtype), 1);
}

/* Entropy of the planes, in bytes. */
double peer_entropy(const uint8_t *src, size_t size, const char *name)
{
    const enum lmc_dtype dtype = lmc_dtype_find(name);
    return t_entropy(src, size, dtype, (size_t)65536 * lmc_dtype_width(dtype));
}

static lmc_tensor_options make_options(const char *dtype)
{
    lmc_tensor_options options;
    options = LMC_TENSOR_OPTIONS(lmc_dtype_find(dtype));
    return options;
}

/* A bound for every peer; a chunk has a word for each plane. */
size_t peer_bound(size_t size) { return size + size / 8 + ((size_t)1 << 22); }
size_t peer_workspace_size(const char *dtype)
{
    lmc_tensor_options options = make_options(dtype);
#ifdef BENCH_LEVELS
    options.level = LMC_LEVEL_MAX;
#endif
    return lmc_tensor_workspace_size(&options);
}

/* Chunks: a word with its coded size (0: stored) for each plane, then the planes, lowest first. */
static size_t encode_planes(const struct peer *peer, uint8_t *dst, const uint8_t *src, size_t size,
                            unsigned width, int rotate)
{
    uint8_t *out = dst;
    size_t at;
    for (at = 0; at < size; at += peer->chunk * width) {
        const size_t n = lmc__min(peer->chunk, (size - at) / width);
        const unsigned n_planes = peer->as_bytes ? 1 : width;
        const size_t plane_size = peer->as_bytes ? n * width : n;
        uint8_t *sizes = out;
        lmc__planes planes;
        unsigned p;
        out += 4 * n_planes;
        memset(&planes, 0, sizeof planes);
        /* stored planes in place */
        for (p = 0; p < n_planes; p++)
            planes.row[p] = peer->only_top && p + 1 < n_planes ? out + p * n : scratch.rows[p];
        if (n_planes > 1) front_split(&planes, src + at, n, width, rotate);
        for (p = 0; p < n_planes; p++) {
            const uint8_t *row = n_planes > 1 ? planes.row[p] : src + at;
            size_t coded = 0;
            if (row != out) coded = peer->encode(out, plane_size, row, plane_size, peer->level);
            lmc__store32(sizes + 4 * p, (uint32_t)coded);
            if (coded == 0 && row != out) memcpy(out, row, plane_size);
            out += coded ? coded : plane_size;
        }
    }
    return (size_t)(out - dst);
}

static int decode_planes(const struct peer *peer, uint8_t *dst, size_t size, const uint8_t *src,
                         unsigned width, int rotate)
{
    size_t at;
    for (at = 0; at < size; at += peer->chunk * width) {
        const size_t n = lmc__min(peer->chunk, (size - at) / width);
        const unsigned n_planes = peer->as_bytes ? 1 : width;
        const size_t plane_size = peer->as_bytes ? n * width : n;
        const uint8_t *sizes = src;
        lmc__const_planes planes;
        unsigned p;
        src += 4 * n_planes;
        memset(&planes, 0, sizeof planes);
        for (p = 0; p < n_planes; p++) {
            const size_t coded = lmc__load32(sizes + 4 * p);
            uint8_t *row = n_planes > 1 ? scratch.rows[p] : dst + at;
            planes.row[p] = row;
            if (coded == 0) {
                /* stored planes are joined from where they are */
                if (n_planes > 1) planes.row[p] = src;
                else memcpy(row, src, plane_size);
            } else if (!peer->decode(row, plane_size, src, coded)) {
                return 0;
            }
            src += coded ? coded : plane_size;
        }
        if (n_planes > 1) front_join(dst + at, &planes, n, width, rotate);
    }
    return 1;
}

static void prepare(void)
{
    if (cctx != NULL) return;
    cctx = ZSTD_createCCtx();
    dctx = ZSTD_createDCtx();
    memset(&scratch, 1, sizeof scratch);
}

/* size: whole elements. Returns the coded size, 0 on failure. */
size_t peer_encode(unsigned i, uint8_t *dst, size_t cap, const uint8_t *src, size_t size,
                   const char *dtype, uint8_t *ws, size_t ws_size)
{
    const struct peer *peer = &peers[i];
    lmc_tensor_options options = make_options(dtype);
    size_t coded = 0;
    prepare();
    if (peer->tier >= 0) {
#ifdef BENCH_LEVELS
        options.level = peer->level ? LMC_LEVEL_MAX : LMC_LEVEL_DEFAULT;
#endif
        lmc_tier_limit((enum lmc_tier)peer->tier);
        return lmc_tensor_encode(dst, cap, &coded, src, size, &options, ws, ws_size) == LMC_OK
                   ? coded
                   : 0;
    }
    if (peer->encode != NULL)
        return encode_planes(peer, dst, src, size, lmc_dtype_width(options.dtype),
                             t_exponent_bits(options.dtype) != 0);
    memcpy(dst, src, size);
    return size;
}

int peer_decode(unsigned i, uint8_t *dst, size_t size, const uint8_t *src, size_t coded,
                const char *dtype, uint8_t *ws, size_t ws_size)
{
    const struct peer *peer = &peers[i];
    const lmc_tensor_options options = make_options(dtype);
    prepare();
    if (peer->tier >= 0) {
        lmc_tier_limit((enum lmc_tier)peer->tier);
        return lmc_tensor_decode(dst, size, src, coded, &options, ws, ws_size) == LMC_OK;
    }
    if (peer->encode != NULL)
        return decode_planes(peer, dst, size, src, lmc_dtype_width(options.dtype),
                             t_exponent_bits(options.dtype) != 0);
    memcpy(dst, src, size);
    return 1;
}
