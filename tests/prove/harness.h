/* What all proofs include first: the portable decoder, straight from src/, as Frama-C reads it. */
#define LMC_NO_SIMD
#define LMC_NO_STDIO
#define LMC_STATIC
#define LMC_NO_ENCODER
#ifndef SNAPSHOT
#define LMC_NO_SNAPSHOT
#endif
#define LMC_IMPLEMENTATION
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "__fc_builtin.h"
#ifdef WP
/* WP knows memory by types, and void has none: these are memcpy and memset of bytes, with what the
 * C library asks for. */
/*@ requires \valid(dst + (0 .. size - 1)) && \valid_read(src + (0 .. size - 1));
    requires \separated(dst + (0 .. size - 1), src + (0 .. size - 1));
    terminates \true;
    assigns dst[0 .. size - 1]; */
static void copy_bytes(uint8_t *dst, const uint8_t *src, size_t size);
/*@ requires \valid(dst + (0 .. size - 1));
    terminates \true;
    assigns dst[0 .. size - 1]; */
static void fill_bytes(uint8_t *dst, int value, size_t size);
#define memcpy(dst, src, size) copy_bytes((uint8_t *)(dst), (const uint8_t *)(src), size)
#define memset(dst, value, size) fill_bytes((uint8_t *)(dst), value, size)
#define __builtin_expect(value, expected) (value) /* WP would take a pointer for a number */
#endif
/* Any bytes; any number of [lo, hi]. */
#define ANY_BYTES(p, size) Frama_C_make_unknown((char *)(p), size)
#define ANY(lo, hi) Frama_C_unsigned_long_long_interval(lo, hi)
/* What these builtins of gcc do while there is one thread. */
#define __atomic_load_n(p, order) (*(p))
#define __atomic_store_n(p, v, order) (*(p) = (v))
#define __atomic_compare_exchange_n(p, e, v, weak, order, order_2)                                 \
    (*(p) == *(e) ? (*(p) = (v), 1) : (*(e) = *(p), 0))
