/* t_data.h - bytes like those in checkpoints, the same on every machine: only integer arithmetic is
 * used. Used by the tests and the benchmark. */
#ifndef T_DATA_H
#define T_DATA_H

#include "../../fuzz/t_block.h"
#include "../../lmc.h"

#include <math.h>
#include <string.h>

/* -- a seeded generator (splitmix64) -- */

static inline uint64_t t_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* 0 .. n - 1; the slight bias does not matter here */
static inline size_t t_below(uint64_t *state, size_t n) { return (size_t)(t_random(state) % n); }

/* Nearly normal: the sum of 12 uniform numbers, mean 0, standard deviation 2^32. */
static inline int64_t t_gauss(uint64_t *state)
{
    int64_t sum = -6 * (INT64_C(1) << 32);
    int i;
    for (i = 0; i < 6; i++) {
        uint64_t r = t_random(state);
        sum += (int64_t)(r >> 32) + (int64_t)(r & 0xFFFFFFFFu);
    }
    return sum;
}

/* -- floats -- */

/* The bits of v * 2^scale, rounded to nearest, as a float of that many exponent and mantissa bits;
 * overflow saturates. */
static inline uint64_t t_float(int64_t v, int scale, unsigned exponent_bits, unsigned mantissa_bits)
{
    uint64_t sign = v < 0, magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v, bits = 0;
    int top = 63, shift, exponent, bias = (1 << (exponent_bits - 1)) - 1;
    if (magnitude != 0) {
        while (!(magnitude >> top)) top--;
        exponent = top + scale + bias;
        /* denormal: the hidden bit is missing, and the sum below is right without it */
        if (exponent < 1) exponent = 1;
        /* bits of magnitude below the mantissa's last */
        shift = exponent - bias - scale - (int)mantissa_bits;
        if (shift > 63) magnitude = 0;
        else if (shift > 0) magnitude = (magnitude + (UINT64_C(1) << (shift - 1))) >> shift;
        else magnitude <<= -shift;
        /* a carry or the hidden bit raises the exponent */
        bits = ((uint64_t)(exponent - 1) << mantissa_bits) + magnitude;
        if (bits >> mantissa_bits >= (UINT64_C(1) << exponent_bits) - 1)
            bits = (((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits) - 1;
    }
    return bits | sign << (exponent_bits + mantissa_bits);
}

/* Exponent bits of a dtype; 0 for those that are filled like integers. */
static inline unsigned t_exponent_bits(enum lmc_dtype dtype)
{
    switch (dtype) {
    case LMC_BF16:
    case LMC_F32:
    case LMC_C64: return 8;
    case LMC_F64: return 11;
    case LMC_F16:
    case LMC_F8_E5M2:
    case LMC_F8_E5M2FNUZ: return 5;
    case LMC_F8_E4M3:
    case LMC_F8_E4M3FNUZ: return 4;
    default: return 0;
    }
}

/* -- distributions -- */

enum t_kind {
    T_GAUSS,    /* weights: N(0, 0.02) */
    T_SPARSE,   /* 1.5 % of them, the rest zero */
    T_SKEWED,   /* 3 % of them, the rest one value */
    T_CONSTANT, /* one element, again and again */
    T_ZERO,
    T_RAMP,    /* 0, 1, 2, ...: every bit pattern of the narrow dtypes */
    T_SPECIAL, /* NaNs of every payload, infinities, both zeros, denormals */
    T_RANDOM,
    T_TEXT,
    T_PICKLE, /* opcodes, strings, integers and rows of floats at odd offsets */
    T_KINDS
};

static const char *const t_kind_names[T_KINDS] = {
    "gauss", "sparse", "skewed", "constant", "zero", "ramp", "special", "random", "text", "pickle"};

static inline uint64_t t_weight(uint64_t *state, enum lmc_dtype dtype)
{
    int64_t v = t_gauss(state);
    unsigned e = t_exponent_bits(dtype), width = lmc_dtype_width(dtype);
    /* 1311 / 2^16 = 0.02 */
    if (e == 11) return t_float(v * 1311, -48, 11, 52) | (t_random(state) & 0xFFFF);
    /* 8-bit weights are stored scaled to about 1 */
    if (e != 0 && width == 1) return t_float(v, -32, e, 7 - e);
    if (e != 0) return t_float(v * 1311, -48, e, 8 * width - 1 - e);
    if (width == 1) v = v * 25 / (INT64_C(1) << 32); /* int8 */
    else v >>= width == 2 ? 22 : width == 4 ? 12 : 0;
    return (uint64_t)v;
}

static inline uint64_t t_special(uint64_t *state, enum lmc_dtype dtype)
{
    unsigned width = lmc_dtype_width(dtype), bits = 8 * width, e = t_exponent_bits(dtype);
    unsigned mantissa = e ? bits - 1 - e : bits / 2;
    uint64_t r = t_random(state), sign = (r & 1) << (bits - 1), low = (UINT64_C(1) << mantissa) - 1;
    uint64_t top = (UINT64_C(1) << (bits - 1)) - 1; /* all bits except the sign */
    switch ((r >> 1) % 6) {
    case 0: return sign;                                   /* zeros */
    case 1: return sign | (top & ~low);                    /* infinities */
    case 2: return sign | (top & ~low) | ((r >> 8) & low); /* NaNs */
    case 3: return sign | ((r >> 8) & low);                /* denormals */
    case 4: return sign | top;
    default: return sign | ((r >> 8) & top);
    }
}

/* Fill size bytes with elements of dtype (LMC_AUTO: bytes); the last element may be cut. */
static inline void t_fill(uint8_t *dst, size_t size, enum t_kind kind, enum lmc_dtype dtype,
                          uint64_t seed)
{
    static const char *const words[] = {
        "the ",   "weights ",     "of ",           "layer ",
        "a ",     "checkpoint, ", "and ",          "to ",
        "0.125 ", "is ",          "model.layers.", "in ",
        "that ",  "bias\n",       "for ",          "{\"shape\": [4096]}, "};
    unsigned width = lmc_dtype_width(dtype), k;
    uint64_t state = seed * 2 + (uint64_t)kind * 1000003 + 1, fixed;
    size_t i, n;

    if (kind == T_TEXT) {
        for (i = 0; i < size; i += n) {
            const char *word = words[t_below(&state, 4) * t_below(&state, 6) % 16];
            n = strlen(word) < size - i ? strlen(word) : size - i;
            memcpy(dst + i, word, n);
        }
        return;
    }
    if (kind == T_PICKLE) {
        for (i = 0; i < size; i += n) {
            size_t part = 1 + t_below(&state, 997);
            n = part < size - i ? part : size - i;
            switch (t_below(&state, 4)) {
            case 0: t_fill(dst + i, n, T_TEXT, LMC_U8, t_random(&state)); break;
            case 1: t_fill(dst + i, n, T_GAUSS, LMC_F32, t_random(&state)); break;
            case 2: t_fill(dst + i, n, T_RAMP, LMC_I32, t_random(&state)); break;
            default: memset(dst + i, 'q' - (int)t_below(&state, 3), n); break;
            }
        }
        return;
    }
    if (kind == T_ZERO) {
        memset(dst, 0, size);
        return;
    }
    fixed = t_weight(&state, dtype);
    for (i = 0; i < size; i += width) {
        uint64_t element;
        switch (kind) {
        case T_GAUSS: element = t_weight(&state, dtype); break;
        case T_SPARSE: element = t_below(&state, 1000) < 15 ? t_weight(&state, dtype) : 0; break;
        case T_SKEWED: element = t_below(&state, 100) < 3 ? t_weight(&state, dtype) : fixed; break;
        case T_CONSTANT: element = fixed; break;
        case T_RAMP: element = i / width; break;
        case T_SPECIAL: element = t_special(&state, dtype); break;
        default: element = t_random(&state); break;
        }
        for (k = 0; k < width && k < size - i; k++) dst[i + k] = (uint8_t)(element >> 8 * k);
    }
}

/* -- predictions: what the elements were before -- */

enum t_base {
    T_EQUAL,
    T_FEW,       /* 1.5 % of the elements are up to four steps away */
    T_STEPS,     /* most are a few steps away, some are many steps away */
    T_ALL,       /* all differ in the lower half of their bits */
    T_SIGNS,     /* one in seven has the other sign */
    T_UNRELATED, /* other elements of the same kind */
    T_NOTHING,   /* zeros */
    T_SPECIALS,  /* NaNs, infinities, denormals: of the prediction */
    T_DRIFT,     /* nearly all differ in their lower bits; larger ones in fewer bits */
    T_BASES
};

static const char *const t_base_names[T_BASES] = {
    "equal", "few", "steps", "all", "signs", "unrelated", "nothing", "specials", "drift"};

/* n elements, F32, BF16 or F16: floats rounded to them. */
static inline void t_store_floats(uint8_t *dst, const float *src, size_t n, enum lmc_dtype dtype)
{
    uint8_t *const x = (uint8_t *)malloc(4 * n); /* little-endian, as all elements */
    size_t i;
    unsigned j;
    if (x == NULL) abort();
    for (i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i], 4);
        for (j = 0; j < 4; j++) x[4 * i + j] = (uint8_t)(bits >> 8 * j);
    }
    if (dtype == LMC_F32) memcpy(dst, x, 4 * n);
    else if (lmc_conversion_apply(dst, x, n,
                                  dtype == LMC_BF16 ? LMC_CONVERT_F32_TO_BF16
                                                    : LMC_CONVERT_F32_TO_F16) != LMC_OK)
        abort();
    free(x);
}

/* Weights that were quantised: the formulas of those who restore them. kind: INT8 in rows; with
 * -128; rounded floats, which have -0; INT4 in groups of 32, of 64, of 128; E4M3 in 128 x 128, with
 * subnormals; E5M2, one scale for all; -1, 0 and 1 in groups of 64. */
enum { T_CODED_KINDS = 9 };
static inline void t_fill_coded(uint8_t *dst, size_t n, size_t row_size, enum lmc_dtype dtype,
                                int kind)
{
    static const unsigned groups[T_CODED_KINDS] = {0, 0, 0, 32, 64, 128, 128, 0, 64};
    float *const x = (float *)malloc(4 * n);
    uint64_t state = (uint64_t)kind;
    size_t i;
    if (x == NULL) abort();
    for (i = 0; i < n; i++) {
        const size_t group = groups[kind] ? groups[kind] : row_size;
        uint64_t place = kind == 6   ? i / row_size / 128 * 1000 + i % row_size / 128
                         : kind == 7 ? 0
                                     : i / row_size * 1000 + i % row_size / group,
                 drawn = t_random(&state);
        const uint32_t scale_bits = 0x3A000000 + (uint32_t)(t_random(&place) >> 40); /* 2^-11 .. */
        int code = (int)(drawn >> 20 & 63) + (int)(drawn >> 30 & 63) - 63;
        float number, scale;
        memcpy(&scale, &scale_bits, 4);
        if (kind == 0)
            code = code * 2 > 127 ? 127 : code * 2 < -127 ? -127 : code * 2 | (int)(drawn & 1);
        if (kind == 1) code = i % 97 == 5 ? -128 : code;
        if (kind >= 3) code /= 9;
        if (kind == 8) code = code > 1 ? 1 : code < -1 ? -1 : 0;
        number = (float)code;
        if (kind == 2 && code == 0 && drawn & 1) number = -0.0f;
        if (kind == 6 || kind == 7) {
            const unsigned exponent = (unsigned)(drawn >> 40) % (kind == 6 ? 15 : 12),
                           m = (unsigned)drawn & (kind == 6 ? 7 : 3);
            number = exponent ? (float)((kind == 6 ? 8 : 4) + m) * (float)(1u << exponent) / 2
                              : (float)m;
            number = (drawn >> 60 & 1 ? -number : number) / 4096.0f;
        }
        x[i] = number * scale;
    }
    t_store_floats(dst, x, n, dtype);
    free(x);
}

/* The prediction of size bytes at src, which t_fill made with that seed or another; the last
 * element may be cut. */
static inline void t_fill_base(uint8_t *base, const uint8_t *src, size_t size, enum t_base how,
                               enum t_kind kind, enum lmc_dtype dtype, uint64_t seed)
{
    unsigned width = lmc_dtype_width(dtype), k;
    uint64_t state = seed * 3 + (uint64_t)how * 7919 + 5;
    size_t i;
    switch (how) {
    case T_UNRELATED: t_fill(base, size, kind, dtype, seed + 77); return;
    case T_NOTHING: t_fill(base, size, T_ZERO, dtype, seed); return;
    case T_SPECIALS: t_fill(base, size, T_SPECIAL, dtype, seed + 78); return;
    default: memcpy(base, src, size); break;
    }
    if (how == T_EQUAL) return;
    for (i = 0; i + width <= size; i += width) {
        const uint64_t r = t_random(&state), sign = (uint64_t)1 << (8 * width - 1);
        uint64_t v = 0;
        for (k = 0; k < width; k++) v |= (uint64_t)base[i + k] << 8 * k;
        if (how == T_FEW && r % 1000 < 15) v += (r >> 10 & 7) - 3;
        if (how == T_STEPS && r % 10 < 7)
            v += (r >> 8 & 15) - 7 + (r % 10 == 0 ? (r >> 12 & 511) : 0);
        if (how == T_ALL) v ^= (r | 1) & ((UINT64_C(1) << 4 * width) - 1);
        if (how == T_DRIFT && width > 1)
            v ^= r & ((UINT64_C(1) << (4 * width + 2 - 2 * (v >> (8 * width - 9) & 3))) - 1);
        if (how == T_SIGNS && r % 7 == 0) v ^= sign;
        for (k = 0; k < width; k++) base[i + k] = (uint8_t)(v >> 8 * k);
    }
}

/* -- the floor -- */

/* Sum of the order-0 entropies of the byte planes of the rotated elements, in bytes, block by
 * block: about the least that the coder can reach, without headers (slightly less if elements
 * depend on their neighbours). */
static inline double t_entropy(const uint8_t *data, size_t size, enum lmc_dtype dtype, size_t block)
{
    unsigned width = lmc_dtype_width(dtype), p, bits = 8 * width;
    double total = 0;
    size_t at, i;
    int rotate = t_exponent_bits(dtype) != 0;
    for (at = 0; at < size; at += block) {
        size_t n = (size - at < block ? size - at : block) / width;
        static uint32_t count[8][256];
        memset(count, 0, sizeof count);
        for (i = 0; i < n; i++) {
            uint64_t v = 0;
            for (p = 0; p < width; p++) v |= (uint64_t)data[at + i * width + p] << 8 * p;
            if (rotate) v = v << 1 | ((v >> (bits - 1)) & 1);
            for (p = 0; p < width; p++) count[p][v >> 8 * p & 255]++;
        }
        for (p = 0; p < width; p++)
            for (i = 0; i < 256; i++)
                if (count[p][i]) total += count[p][i] * log2((double)n / count[p][i]) / 8;
    }
    return total;
}

/* -- elements for fitting quantisers -- */

static inline enum lmc_status t_read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    memcpy(dst, (const uint8_t *)user + offset, size);
    return LMC_OK;
}

static inline lmc_source t_elements(void *data, size_t size)
{
    lmc_source elements = LMC_DEFAULTS;
    elements.read_at = t_read_elements;
    elements.user = data;
    elements.size = size;
    return elements;
}

#endif
