#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/* -- 6.2 split: byte p of element i, rotated left by one bit if rotate, to planes->row[p][i] -- */
LMC__INLINE void lmc__split_body(const lmc__planes *planes, const uint8_t *src, size_t n,
                                 unsigned width, int rotate)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (width == 2)
        for (; i + 16 <= n; i += 16) {
            uint16_t e[16];
            uint8_t low[16], high[16];
            int j;
            lmc__load16x16(e, src + 2 * i);
            for (j = 0; j < 16; j++) {
                const uint16_t r = rotate ? (uint16_t)(e[j] << 1 | e[j] >> 15) : e[j];
                low[j] = (uint8_t)r;
                high[j] = (uint8_t)(r >> 8);
            }
            memcpy(planes->row[0] + i, low, 16);
            memcpy(planes->row[1] + i, high, 16);
        }
    for (; i + 8 <= n; i += 8) {
        lmc__split8(v, src + i * width, width, rotate);
        for (p = 0; p < width; p++) lmc__store64(planes->row[p] + i, v[p]);
    }
    if (i < n) {
        uint8_t tail[64], out[8];
        memset(tail, 0, sizeof tail);
        memcpy(tail, src + i * width, (n - i) * width);
        lmc__split8(v, tail, width, rotate);
        for (p = 0; p < width; p++) {
            lmc__store64(out, v[p]);
            memcpy(planes->row[p] + i, out, n - i);
        }
    }
}

/* -- 6.3 join: the inverse of split -- */
LMC__INLINE void lmc__join_body(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                                unsigned width, int rotate)
{
    uint64_t v[8];
    size_t i = 0;
    unsigned p;
    if (width == 2)
        for (; i + 16 <= n; i += 16) {
            const uint8_t *low = planes->row[0] + i, *high = planes->row[1] + i;
            uint16_t e[16];
            int j;
            for (j = 0; j < 16; j++) {
                const uint16_t r = (uint16_t)(low[j] | high[j] << 8);
                e[j] = rotate ? (uint16_t)(r >> 1 | r << 15) : r;
            }
            lmc__store16x16(dst + 2 * i, e);
        }
    for (; i + 8 <= n; i += 8) {
        for (p = 0; p < width; p++) v[p] = lmc__load64(planes->row[p] + i);
        lmc__join8(dst + i * width, v, width, rotate);
    }
    if (i < n) {
        uint8_t tail[64], in[8];
        for (p = 0; p < width; p++) {
            memset(in, 0, sizeof in);
            memcpy(in, planes->row[p] + i, n - i);
            v[p] = lmc__load64(in);
        }
        lmc__join8(tail, v, width, rotate);
        memcpy(dst + i * width, tail, (n - i) * width);
    }
}

/* Constant widths and flags let the compiler unroll the bodies. */
#define LMC__FOR_WIDTH(call)                                                                       \
    switch (width) {                                                                               \
    case 1:                                                                                        \
        if (rotate) {                                                                              \
            call(1, 1);                                                                            \
        } else {                                                                                   \
            call(1, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 2:                                                                                        \
        if (rotate) {                                                                              \
            call(2, 1);                                                                            \
        } else {                                                                                   \
            call(2, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    case 4:                                                                                        \
        if (rotate) {                                                                              \
            call(4, 1);                                                                            \
        } else {                                                                                   \
            call(4, 0);                                                                            \
        }                                                                                          \
        break;                                                                                     \
    default:                                                                                       \
        if (rotate) {                                                                              \
            call(8, 1);                                                                            \
        } else {                                                                                   \
            call(8, 0);                                                                            \
        }                                                                                          \
    }

static void lmc__split_scalar(const lmc__planes *planes, const uint8_t *src, size_t n,
                              unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
static void lmc__join_scalar(uint8_t *dst, const lmc__const_planes *planes, size_t n,
                             unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__join_body(dst, planes, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#if LMC__X86 || LMC__NEON
/* A block of `width` vectors of elements, in order, becomes one vector for each plane in
 * log2(width) steps; each sorts bytes by one more bit of their place p within the element. Before
 * step s = 1, 2, 4, the bytes of p = r (mod s) are in vectors r * parts + j, the j-th part of them,
 * parts = width / s; its even bytes have p = r, its odd ones p = r + s (mod 2 s). The steps of a
 * join are the same backwards. All bounds are constant where this is inlined, and gcc must be told
 * to unroll. */
#define LMC__DEFINE_STEPS(isa, inline_isa, vector)                                                 \
    inline_isa void lmc__split_step_##isa(vector v[8], unsigned width, unsigned s)                 \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        vector t[8];                                                                               \
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
    inline_isa void lmc__join_step_##isa(vector v[8], unsigned width, unsigned s)                  \
    {                                                                                              \
        const unsigned parts = width / s, half = parts / 2;                                        \
        vector t[8];                                                                               \
        unsigned i;                                                                                \
        LMC__UNROLL for (i = 0; i < width / 2; i++)                                                \
        {                                                                                          \
            const unsigned r = i / half, j = i % half;                                             \
            lmc__zip_##isa(&t[r * parts + 2 * j], &t[r * parts + 2 * j + 1], v[r * half + j],      \
                           v[(r + s) * half + j]);                                                 \
        }                                                                                          \
        LMC__UNROLL for (i = 0; i < width; i++) v[i] = t[i];                                       \
    }

#define LMC__DEFINE_SPLIT(isa, inline_isa, vector)                                                 \
    inline_isa void lmc__split_body_##isa(const lmc__planes *planes, const uint8_t *src, size_t n, \
                                          unsigned width, int rotate)                              \
    {                                                                                              \
        lmc__planes rest;                                                                          \
        vector v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                v[p] = lmc__load_##isa(src + i * width + sizeof v[0] * p);                         \
                if (rotate) v[p] = lmc__rotate_##isa(v[p], width, 1);                              \
            }                                                                                      \
            if (width >= 2) lmc__split_step_##isa(v, width, 1);                                    \
            if (width >= 4) lmc__split_step_##isa(v, width, 2);                                    \
            if (width >= 8) lmc__split_step_##isa(v, width, 4);                                    \
            LMC__UNROLL for (p = 0; p < width; p++) lmc__store_##isa(planes->row[p] + i, v[p]);    \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__split_scalar(&rest, src + i * width, n - i, width, rotate);                           \
    }
#define LMC__DEFINE_JOIN(isa, inline_isa, vector)                                                  \
    inline_isa void lmc__join_body_##isa(uint8_t *dst, const lmc__const_planes *planes, size_t n,  \
                                         unsigned width, int rotate)                               \
    {                                                                                              \
        lmc__const_planes rest;                                                                    \
        vector v[8];                                                                               \
        size_t i;                                                                                  \
        unsigned p;                                                                                \
        for (i = 0; i + sizeof v[0] <= n; i += sizeof v[0]) {                                      \
            LMC__UNROLL for (p = 0; p < width; p++) v[p] = lmc__load_##isa(planes->row[p] + i);    \
            if (width >= 8) lmc__join_step_##isa(v, width, 4);                                     \
            if (width >= 4) lmc__join_step_##isa(v, width, 2);                                     \
            if (width >= 2) lmc__join_step_##isa(v, width, 1);                                     \
            LMC__UNROLL for (p = 0; p < width; p++)                                                \
            {                                                                                      \
                if (rotate) v[p] = lmc__rotate_##isa(v[p], width, 0);                              \
                lmc__store_##isa(dst + i * width + sizeof v[0] * p, v[p]);                         \
            }                                                                                      \
        }                                                                                          \
        for (p = 0; p < width; p++) rest.row[p] = planes->row[p] + i;                              \
        lmc__join_scalar(dst + i * width, &rest, n - i, width, rotate);                            \
    }
#endif

#if LMC__NEON

LMC__DEFINE_STEPS(neon, LMC__INLINE, uint8x16_t) LMC__DEFINE_SPLIT(neon, LMC__INLINE, uint8x16_t)
    LMC__DEFINE_JOIN(neon, LMC__INLINE, uint8x16_t)

        static void lmc__split_neon(const lmc__planes *planes, const uint8_t *src, size_t n,
                                    unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body_neon(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
static void lmc__join_neon(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                           int rotate){
#define LMC__CALL(w, r) lmc__join_body_neon(dst, planes, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif

#if LMC__AVX2_TEXT
#endif

#if LMC__X86

LMC__DEFINE_STEPS(avx2, LMC__INLINE2, __m256i) LMC__DEFINE_SPLIT(avx2, LMC__INLINE2, __m256i)
    LMC__DEFINE_JOIN(avx2, LMC__INLINE2, __m256i) LMC__DEFINE_STEPS(avx512, LMC__INLINE512, __m512i)
        LMC__DEFINE_SPLIT(avx512, LMC__INLINE512, __m512i)

            LMC__AVX2 static void lmc__split_avx2(const lmc__planes *planes, const uint8_t *src,
                                                  size_t n, unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__split_body_avx2(planes, src, n, w, r)
                LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
            } LMC__AVX2 static void lmc__join_avx2(uint8_t *dst, const lmc__const_planes *planes,
                                                   size_t n, unsigned width, int rotate){
#define LMC__CALL(w, r) lmc__join_body_avx2(dst, planes, n, w, r)
                LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
            } LMC__AVX512
    static void lmc__split_avx512(const lmc__planes *planes, const uint8_t *src, size_t n,
                                  unsigned width, int rotate)
{
#define LMC__CALL(w, r) lmc__split_body_avx512(planes, src, n, w, r)
    LMC__FOR_WIDTH(LMC__CALL)
#undef LMC__CALL
}
#endif
