#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"

/* split: writes byte p of element i's residual against 0 (spec 5.1) to planes->row[p][i]. join: the
 * inverse. Elements have `width` bytes, 1, 2, 4 or 8. All rows and the elements are read and
 * written exactly, at any alignment, and must not overlap. The residual of a float is the float
 * rotated left by one bit, so the top byte of bf16 and fp32 is the exponent:
 *     bf16        s eeeeeeee mmmmmmm                    fp32   s eeeeeeee mmm ... mmm (23)
 *     rotated     eeeeeeee mmmmmmms                            eeeeeeee mmm ... mmm s
 *                 row[1]   row[0]                              row[3]   row[2] row[1] row[0]
 *
 * Exponents of weights are few and unequal: the top row compresses; signs, mantissas hardly do.
 * Both are called for samples, and for what the loops of split_root and join_root leave. */

/* Constant widths let the compiler unroll the called functions: `statement` uses w, the width. */
#define LMC__FOR_WIDTH(statement)                                                                  \
    switch (width) {                                                                               \
    case 1: LMC__WITH(w, 1, statement)                                                             \
    case 2: LMC__WITH(w, 2, statement)                                                             \
    case 4: LMC__WITH(w, 4, statement)                                                             \
    default: LMC__WITH(w, 8, statement)                                                            \
    }

/* Defines functions NAME_1 to NAME_8 of a loop NAME_loop, one for each width, and calls the right
 * one. In one function for all widths gcc would run out of registers for the counters and pointers
 * of the innermost loop. The loop has `width` as a parameter, these functions do not. */
#define LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, w)                              \
    attributes void name##_##w parameters                                                          \
    {                                                                                              \
        const unsigned width = w;                                                                  \
        name##_loop arguments;                                                                     \
    }
#define LMC__DEFINE_WIDTHS(name, attributes, parameters, arguments)                                \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 1)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 2)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 4)                                  \
    LMC__DEFINE_WIDTH(name, attributes, parameters, arguments, 8)
#define LMC__CALL_WIDTH(name, arguments)                                                           \
    switch (width) {                                                                               \
    case 1: name##_1 arguments; break;                                                             \
    case 2: name##_2 arguments; break;                                                             \
    case 4: name##_4 arguments; break;                                                             \
    default: name##_8 arguments;                                                                   \
    }

/* 1 where compilers turn loops of constant length into vector code by themselves: elements of 2
 * bytes are then processed by sixteen in such loops; elsewhere by eight, in words. */
#ifndef LMC__VECTOR_LOOPS
#if (defined(__clang__) || __GNUC__ >= 12 || defined(_MSC_VER)) &&                                 \
    (defined(__SSE2__) || defined(_M_X64) || defined(__ARM_NEON) || defined(__ALTIVEC__) ||        \
     defined(__VX__) || defined(__wasm_simd128__) || defined(__riscv_vector))
#define LMC__VECTOR_LOOPS 1
#else
#define LMC__VECTOR_LOOPS 0
#endif
#endif

/* The inverse of lmc__split_body. Rows are read exactly: some end where a decoder's input ends. */
LMC__INLINE void lmc__join_body(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                unsigned width, enum lmc__order order)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (LMC__VECTOR_LOOPS && width == 2)
        for (; i + 16 <= n; i += 16) {
            const uint8_t *low = planes->row[0] + i, *high = planes->row[1] + i;
            uint16_t e[16];
            int j;
            /* all loads before the first store: for the compiler, dst may overlap rows */
            for (j = 0; j < 16; j++) {
                const uint16_t r = (uint16_t)(low[j] | high[j] << 8);
                const uint16_t z = (uint16_t)(r >> 1 | r << 15);
                e[j] = order == LMC__ORDER_NONE    ? r
                       : order == LMC__ORDER_FLOAT ? z
                                                   : (uint16_t)(z ^ ((0u - (r & 1u)) & 0x7FFF));
            }
            for (j = 0; j < 16; j++) lmc__store16(dst + 2 * (i + (size_t)j), e[j]);
        }
    /* a word of each plane to 8 elements */
    for (; i + 8 <= n; i += 8) {
        for (p = 0; p < width; p++) v[p] = lmc__load64(planes->row[p] + i);
        lmc__join8(dst + i * width, v, width, order);
    }
    /* 1 to 7 elements: as many bytes of each row, in words that are filled up with zeros */
    if (i < n) {
        uint8_t tail[64], in[8];
        for (p = 0; p < width; p++) {
            memset(in, 0, sizeof in);
            memcpy(in, planes->row[p] + i, n - i);
            v[p] = lmc__load64(in);
        }
        lmc__join8(tail, v, width, order);
        memcpy(dst + i * width, tail, (n - i) * width);
    }
}

/* Calls the body with a constant width; only for width 2 is the order a constant, too. */
LMC__INLINE void lmc__join_by_order(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                    unsigned width, enum lmc__order order)
{
    if (width != 2) lmc__join_body(dst, planes, n, width, order);
    else if (order == LMC__ORDER_FLOAT) lmc__join_body(dst, planes, n, width, LMC__ORDER_FLOAT);
    else if (order) lmc__join_body(dst, planes, n, width, LMC__ORDER_INTEGER);
    else lmc__join_body(dst, planes, n, width, LMC__ORDER_NONE);
}

/* The vector tiers also end with this kernel, so n may be 0. */
static void lmc__join_scalar(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                             unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__join_by_order(dst, planes, n, w, order));
}

#ifndef LMC_NO_ENCODER
/* Eight elements at a time as 64-bit words (vec_swar.h): v[p] is plane p's eight bytes. The last 1
 * to 7 elements go through buffers for eight. */
LMC__INLINE void lmc__split_body(const lmc__planes *planes, const uint8_t *src, size_t n,
                                 unsigned width, enum lmc__order order)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (LMC__VECTOR_LOOPS && width == 2)
        for (; i + 16 <= n; i += 16) {
            uint16_t e[16];
            uint8_t low[16], high[16];
            int j;
            lmc__load16x16(e, src + 2 * i);
            /* the loops of 16 have no branch in them: order is a constant */
            for (j = 0; j < 16; j++) {
                const uint16_t x = order == LMC__ORDER_INTEGER
                                       ? (uint16_t)(e[j] ^ ((0u - (e[j] >> 15)) & 0x7FFF))
                                       : e[j];
                const uint16_t r = (uint16_t)(order ? x << 1 | x >> 15 : x);
                low[j] = (uint8_t)r;
                high[j] = (uint8_t)(r >> 8);
            }
            memcpy(planes->row[0] + i, low, 16);
            memcpy(planes->row[1] + i, high, 16);
        }
    /* 8 elements to a word of each plane */
    for (; i + 8 <= n; i += 8) {
        lmc__split8(v, src + i * width, width, order);
        for (p = 0; p < width; p++) lmc__store64(planes->row[p] + i, v[p]);
    }
    /* 1 to 7 elements, filled up with zeros, which are not copied to the rows */
    if (i < n) {
        uint8_t tail[64], out[8];
        memset(tail, 0, sizeof tail);
        memcpy(tail, src + i * width, (n - i) * width);
        lmc__split8(v, tail, width, order);
        for (p = 0; p < width; p++) {
            lmc__store64(out, v[p]);
            memcpy(planes->row[p] + i, out, n - i);
        }
    }
}

/* As lmc__join_by_order; the order is a constant for widths 2 and 4. */
LMC__INLINE void lmc__split_by_order(const lmc__planes *planes, const uint8_t *src, size_t n,
                                     unsigned width, enum lmc__order order)
{
    if (width == 1 || width == 8) lmc__split_body(planes, src, n, width, order);
    else if (order == LMC__ORDER_FLOAT) lmc__split_body(planes, src, n, width, LMC__ORDER_FLOAT);
    else if (order) lmc__split_body(planes, src, n, width, LMC__ORDER_INTEGER);
    else lmc__split_body(planes, src, n, width, LMC__ORDER_NONE);
}

static void lmc__split_scalar(const lmc__planes *planes, const uint8_t *src, size_t n,
                              unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__split_by_order(planes, src, n, w, order));
}
#endif

#if LMC__NEON || LMC__X86
/* The vector tiers: a loop for each width, in which the order is tested; the scalar kernel ends it.
 *
 * `width` vectors of elements, in order, become one vector for each plane in log2(width) steps.
 * Each step sorts bytes by one more bit of p, their place within the element. Here the width is 4,
 * a vector has 8 bytes, and 21 is byte 1 of element 2:
 *     v[0]  00 01 02 03 10 11 12 13         00 02 10 12 20 22 30 32         00 10 20 30 40 50 60 70
 *     v[1]  20 21 22 23 30 31 32 33  s = 1  40 42 50 52 60 62 70 72  s = 2  01 11 21 31 41 51 61 71
 *     v[2]  40 41 42 43 50 51 52 53  ---->  01 03 11 13 21 23 31 33  ---->  02 12 22 32 42 52 62 72
 *     v[3]  60 61 62 63 70 71 72 73         41 43 51 53 61 63 71 73         03 13 23 33 43 53 63 73
 *
 * Before step s = 1, 2, 4 the bytes with p = r (mod s) are in `parts` = width / s vectors, v[r *
 * parts + j]. There, even bytes have p = r, odd bytes p = r + s (mod 2 s). A join takes the same
 * steps backwards. All bounds are constant where this is inlined, but gcc must be told to unroll.
 *
 * to_residuals and from_residuals (spec 5.1) are not for LMC__ORDER_NONE. */
#define LMC__DEFINE_JOIN(isa, INLINE, VECTOR)                                                      \
    INLINE void lmc__join_step_##isa(VECTOR v[8], unsigned width, unsigned s)                      \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        VECTOR t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            lmc__zip_##isa(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],      \
                           v[(r + s) * half + j]);                                                 \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }                                                                                              \
    INLINE VECTOR lmc__from_residuals_##isa(VECTOR r, unsigned width, enum lmc__order order)       \
    {                                                                                              \
        r = lmc__rotate_##isa(r, width, 0);                                                        \
        if (order == LMC__ORDER_INTEGER)                                                           \
            r = r ^ (lmc__negative_##isa(r, width) & ~lmc__sign_bits_##isa(width));                \
        return r;                                                                                  \
    }                                                                                              \
    INLINE void lmc__join_vectors_##isa(VECTOR v[8], unsigned width)                               \
    {                                                                                              \
        if (width >= 8) lmc__join_step_##isa(v, width, 4);                                         \
        if (width >= 4) lmc__join_step_##isa(v, width, 2);                                         \
        if (width >= 2) lmc__join_step_##isa(v, width, 1);                                         \
    }
#ifndef LMC_NO_ENCODER
#define LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)                                                     \
    INLINE void lmc__split_step_##isa(VECTOR v[8], unsigned width, unsigned s)                     \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        VECTOR t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            t[r * half + j] = lmc__even_##isa(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);     \
            t[(r + s) * half + j] =                                                                \
                lmc__odd_##isa(v[r * parts + 2 * j], v[r * parts + 2 * j + 1]);                    \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }                                                                                              \
    INLINE VECTOR lmc__to_residuals_##isa(VECTOR v, unsigned width, enum lmc__order order)         \
    {                                                                                              \
        if (order == LMC__ORDER_INTEGER)                                                           \
            v = v ^ (lmc__negative_##isa(v, width) & ~lmc__sign_bits_##isa(width));                \
        return lmc__rotate_##isa(v, width, 1);                                                     \
    }                                                                                              \
    INLINE void lmc__split_vectors_##isa(VECTOR v[8], unsigned width)                              \
    {                                                                                              \
        if (width >= 2) lmc__split_step_##isa(v, width, 1);                                        \
        if (width >= 4) lmc__split_step_##isa(v, width, 2);                                        \
        if (width >= 8) lmc__split_step_##isa(v, width, 4);                                        \
    }                                                                                              \
    INLINE void lmc__split_body_##isa(const lmc__planes *planes, const uint8_t *src, size_t n,     \
                                      unsigned width, enum lmc__order order)                       \
    {                                                                                              \
        lmc__planes rest;                                                                          \
        VECTOR v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                v[p] = lmc__load_##isa(src + i * width + sizeof v[0] * p);                         \
                if (order) v[p] = lmc__to_residuals_##isa(v[p], width, order);                     \
            }                                                                                      \
            lmc__split_vectors_##isa(v, width);                                                    \
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_##isa(planes->row[p] + i, v[p]);    \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__split_scalar(&rest, src + i * width, n - i, width, order);                            \
    }
#else
#define LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)
#endif
#define LMC__DEFINE_SPLIT_JOIN(isa, INLINE, VECTOR)                                                \
    LMC__DEFINE_JOIN(isa, INLINE, VECTOR)                                                          \
    LMC__DEFINE_SPLIT(isa, INLINE, VECTOR)
#endif

#if LMC__NEON
LMC__DEFINE_SPLIT_JOIN(neon, LMC__INLINE, uint8x16_t)
#elif LMC__X86
LMC__DEFINE_SPLIT_JOIN(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_SPLIT_JOIN(avx512, LMC__INLINE_AVX512, __m512i)
#endif

#if LMC__NEON || LMC__X86
/* One vector of each plane at a time. */
LMC__INLINE_VEC void LMC__VEC(join_body)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                         unsigned width, enum lmc__order order)
{
    lmc__const_planes rest;
    lmc__vector v[8];
    size_t i;
    unsigned p;
    for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {
        LMC__UNROLL for (p = 0; p < width; p++) v[p] = LMC__VEC(load)(planes->row[p] + i);
        LMC__VEC(join_vectors)(v, width);
        LMC__UNROLL for (p = 0; p < width; p++)
        {
            if (order) v[p] = LMC__VEC(from_residuals)(v[p], width, order);
            LMC__VEC(store)(dst + i * width + sizeof v[0] * p, v[p]);
        }
    }
    for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;
    lmc__join_scalar(dst + i * width, &rest, n - i, width, order);
}

/* The AVX-512 tier uses AVX2's join for strips and for elements behind its loop of join_root. */
LMC__STATIC_VEC void LMC__VEC(join)(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                    unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(LMC__VEC(join_body)(dst, planes, n, w, order));
}
#ifndef LMC_NO_ENCODER
LMC__STATIC_VEC void LMC__VEC(split)(const lmc__planes *planes, const uint8_t *src, size_t n,
                                     unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(LMC__VEC(split_body)(planes, src, n, w, order));
}
#endif
#endif

#if LMC__X86
#ifndef LMC_NO_ENCODER
/* For samples, and for a root that is not the top plane: split_root's own loop cannot make it. */
LMC__AVX512 static void lmc__split_avx512(const lmc__planes *planes, const uint8_t *src, size_t n,
                                          unsigned width, enum lmc__order order)
{
    LMC__FOR_WIDTH(lmc__split_body_avx512(planes, src, n, w, order));
}
#endif /* LMC_NO_ENCODER */
#endif
