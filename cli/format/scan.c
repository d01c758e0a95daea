/* SPDX-License-Identifier: MIT */
#include "scan.h"

static const struct scan_format scan_formats[] = {
    {LMC_F8_E5M2, 5, 15, 1, 1, 0},     {LMC_F8_E4M3, 4, 7, 1, 1, 0},
    {LMC_F8_E8M0, 8, 127, 0, 0, 0},    {LMC_F8_E4M3FNUZ, 4, 8, 1, 0, 0},
    {LMC_F8_E5M2FNUZ, 5, 16, 1, 0, 0}, {LMC_F16, 5, 15, 1, 1, 1},
    {LMC_BF16, 8, 127, 1, 1, 1},       {LMC_F32, 8, 127, 1, 1, 1},
    {LMC_C64, 8, 127, 1, 1, 1},        {LMC_F64, 11, 1023, 1, 1, 1},
};

const struct scan_format *find_scan_format(enum lmc_dtype dtype)
{
    for (size_t i = 0; i < sizeof scan_formats / sizeof *scan_formats; i++)
        if (scan_formats[i].dtype == dtype) return &scan_formats[i];
    return NULL;
}

int has_sign_bit(enum lmc_dtype dtype)
{
    const struct scan_format *format = find_scan_format(dtype);
    return format ? format->has_sign
                  : dtype == LMC_I8 || dtype == LMC_I16 || dtype == LMC_I32 || dtype == LMC_I64;
}

void scan_begin(struct scan *s, enum lmc_dtype dtype)
{
    memset(s, 0, sizeof *s);
    s->format = find_scan_format(dtype);
    s->width = lmc_dtype_width(dtype);
}

/* width and rotate are constants in all calls */
static inline uint64_t scan_bytes(struct scan *s, const unsigned char *e, size_t size,
                                  unsigned width, unsigned rotate, unsigned sign_of_zero)
{
    uint64_t n_zero = 0;
    for (size_t i = 0; i < size / width; i++, e += width) {
        uint32_t(*lane)[256] = s->lanes[i & 1];
        unsigned any = e[width - 1] & ~sign_of_zero;
        for (unsigned p = 0; p + 1 < width; p++) any |= e[p];
        n_zero += any == 0;
        for (unsigned p = 0; p < width; p++)
            lane[p][(rotate ? e[p] << 1 | e[p ? p - 1 : width - 1] >> 7 : e[p]) & 255]++;
    }
    return n_zero;
}

void scan_piece(struct scan *s, const unsigned char *elements, size_t size)
{
    const struct scan_format *f = s->format;
    unsigned sign_of_zero = f && f->has_negative_zero ? 128 : 0, is_rotated = f && f->is_rotated;
    memset(s->lanes, 0, sizeof s->lanes);
    switch (s->width + 16 * is_rotated) {
    case 1: s->n_zero += scan_bytes(s, elements, size, 1, 0, sign_of_zero); break;
    case 2: s->n_zero += scan_bytes(s, elements, size, 2, 0, 0); break;
    case 4: s->n_zero += scan_bytes(s, elements, size, 4, 0, 0); break;
    case 8: s->n_zero += scan_bytes(s, elements, size, 8, 0, 0); break;
    case 16 + 2: s->n_zero += scan_bytes(s, elements, size, 2, 1, 128); break;
    case 16 + 4: s->n_zero += scan_bytes(s, elements, size, 4, 1, 128); break;
    default: s->n_zero += scan_bytes(s, elements, size, 8, 1, 128);
    }
    for (unsigned p = 0; p < s->width; p++)
        for (unsigned i = 0; i < 256; i++)
            s->planes[p][i] += s->lanes[0][p][i] + (uint64_t)s->lanes[1][p][i];
    if (f && f->exponent_bits > 8)
        for (size_t i = 0; i < size; i += 8)
            s->long_exponents[(elements[i + 7] & 127) << 4 | elements[i + 6] >> 4]++;
    s->n += size / s->width;
}

void scan_signs(struct scan *s, const unsigned char *a, const unsigned char *b, size_t size)
{
    for (size_t i = s->width - 1; i < size; i += s->width) s->n_flipped += (a[i] ^ b[i]) >> 7;
}

unsigned count_exponents(const struct scan *s, uint64_t counts[SCAN_MAX_EXPONENTS])
{
    const struct scan_format *f = s->format;
    unsigned n = f ? 1u << f->exponent_bits : 0;
    if (n > 256) memcpy(counts, s->long_exponents, n * sizeof *counts);
    else memset(counts, 0, n * sizeof *counts);
    for (unsigned i = 0; i < 256 && n && n <= 256; i++)
        counts[f->is_rotated || !f->has_sign ? i >> (8 - f->exponent_bits)
                                             : (i & 127) >> (7 - f->exponent_bits)] +=
            s->planes[s->width - 1][i];
    return n;
}

/* The logarithm to base 2 of x >= 1, with an error of about 1e-15; so libm is not needed. */
static double find_log2(double x)
{
    double whole = 0, t, power, sum = 0;
    for (; x > 1.5; x /= 2) whole++;
    power = t = (x - 1) / (x + 1);
    for (int k = 1; k < 26; k += 2, power *= t * t) sum += power / k;
    return whole + sum * 2.8853900817779268; /* 2 / ln 2: ln x = 2 artanh t */
}

double find_entropy(const uint64_t *counts, size_t n_counts)
{
    double bits = 0, n = 0;
    for (size_t i = 0; i < n_counts; i++) n += (double)counts[i];
    for (size_t i = 0; i < n_counts; i++)
        if (counts[i]) bits += (double)counts[i] / n * find_log2(n / (double)counts[i]);
    return bits;
}

unsigned widen_width(enum lmc_dtype dtype)
{
    const int is_byte = dtype == LMC_F8_E4M3 || dtype == LMC_F8_E5M2;
    return is_byte ? 1 : dtype == LMC_BF16 || dtype == LMC_F16 ? 2 : 0;
}

/* The highest exponent means infinity or NaN; in F8_E4M3 only the highest mantissa is NaN. */
static uint32_t widen_bits(const struct scan_format *f, unsigned mantissa_bits, uint32_t bits)
{
    const int has_infinity = f->dtype != LMC_F8_E4M3;
    const uint32_t highest = (1u << f->exponent_bits) - 1, one = 1u << mantissa_bits;
    const uint32_t sign = bits >> (f->exponent_bits + mantissa_bits) << 31;
    const unsigned shift = 23 - mantissa_bits;
    uint32_t exponent = bits >> mantissa_bits & highest, mantissa = bits & (one - 1);
    if (exponent == highest && has_infinity) return sign | 0x7F800000u | mantissa << shift;
    if (exponent == highest && mantissa == one - 1) return sign | 0x7FC00000u;
    if (exponent == 0 && f->exponent_bias == 127)
        return sign | mantissa << shift; /* subnormal in both */
    if (exponent == 0 && mantissa == 0) return sign;
    exponent += 127 - f->exponent_bias;
    if ((bits >> mantissa_bits & highest) == 0) { /* subnormal: 0.m becomes 1.m */
        for (exponent++; !(mantissa & one); exponent--) mantissa <<= 1;
        mantissa &= one - 1;
    }
    return sign | exponent << 23 | mantissa << shift;
}

void widen_elements(enum lmc_dtype dtype, void *dst, const void *src, size_t n)
{
    const struct scan_format *f = find_scan_format(dtype);
    const unsigned width = widen_width(dtype), mantissa_bits = 8 * width - 1 - f->exponent_bits;
    const uint8_t *from = (const uint8_t *)src;
    uint8_t *to = (uint8_t *)dst;
    for (size_t i = 0; i < n; i++, from += width, to += 4) {
        const uint32_t bits =
            widen_bits(f, mantissa_bits, width == 1 ? from[0] : from[0] | (uint32_t)from[1] << 8);
        for (unsigned k = 0; k < 4; k++) to[k] = (uint8_t)(bits >> 8 * k);
    }
}
