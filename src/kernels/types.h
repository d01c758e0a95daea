#pragma once
#include "base/platform.h"

/* The types that kernels work with. A kernel takes pointers and counts, parses nothing, allocates
 * nothing and cannot fail. The scalar functions define the results of all tiers.
 *
 * *Lists* are arrays of bytes in the workspace with LMC__PAD bytes of slack behind their end:
 * kernels may read that slack, and write it where they write the list, so the last vector is no
 * special case. All other memory is read and written exactly: not a byte more.
 * LMC__PAD is 64: a load or store of the largest vector may begin where a list ends.
 *
 * Names: n counts elements, i is an element's number, `width` its size in bytes; p is a plane, c a
 * class. A row has n bytes, a mask a bit for each element: bit i % 8 of byte i / 8. */
#define LMC__PAD 64u

/* The code of one case of a switch: `statement`, where `name` is a constant, then the break. */
#define LMC__WITH(name, constant, statement)                                                       \
    {                                                                                              \
        const unsigned name = constant;                                                            \
        statement;                                                                                 \
        break;                                                                                     \
    }
/* `statement` with the constants has_left and has_right: whether that side of a node is a list that
 * is read or wanted. So the loop in `statement` tests neither, and is shorter without a list. */
#define LMC__WITH_SIDES(l, r, statement)                                                           \
    {                                                                                              \
        const int has_left = l, has_right = r;                                                     \
        statement;                                                                                 \
    }
#define LMC__FOR_SIDES(left, right, statement)                                                     \
    if ((left) && (right)) LMC__WITH_SIDES(1, 1, statement)                                        \
    else if (left) LMC__WITH_SIDES(1, 0, statement)                                                \
    else if (right) LMC__WITH_SIDES(0, 1, statement)                                               \
    else LMC__WITH_SIDES(0, 0, statement)
#define LMC__LINE 64u /* bytes of a cache line on most machines */

/* How elements are ordered (spec 5.1): not; as two's complement; as sign and magnitude (floats). */
enum lmc__order { LMC__ORDER_NONE = 0, LMC__ORDER_INTEGER = 1, LMC__ORDER_FLOAT = 2 };

/* A row (a plane, spec 5.1) for each byte of an element. Rows from `width` on are not used. */
typedef struct lmc__const_planes {
    const uint8_t *row[8];
} lmc__const_planes;

#ifndef LMC_NO_ENCODER
typedef struct lmc__planes {
    uint8_t *row[8];
} lmc__planes;

/* A plane that is the root of a tree: split_root maps and partitions its bytes, as the kernels map
 * and partition do. Its row is a list for the work; left may be the same list. */
typedef struct lmc__parted {
    unsigned plane;
    const uint8_t *table;
    unsigned split;
    uint8_t *mask, *left, *right;
    size_t n_right; /* result */
} lmc__parted;
#endif

/* One side of a merge: a list, or a constant where list is NULL. */
typedef struct lmc__side {
    const uint8_t *list;
    uint8_t value;
} lmc__side;

/* How a decoding kernel writes its block, what it fetches meanwhile, and a sum that it computes. */
typedef struct lmc__streaming {
    int is_on; /* the whole output is too large to stay in the caches: dst is written by streaming
                  stores, which bypass them. The caller ends with LMC__FENCE_STREAMS */
    const uint8_t *next; /* what will be read after this block: it is fetched meanwhile */
    size_t next_size;    /* 0: not known, or in the caches anyway */
    uint64_t *sum;       /* or NULL: join_root puts the sum64 of dst here */
} lmc__streaming;
static const lmc__streaming lmc__no_streaming = {0, NULL, 0, NULL};

/* A plane that join_root has still to merge; `row` is a list for the work. */
typedef struct lmc__merged {
    unsigned plane;
    uint8_t *row;
    const uint8_t *mask;
    lmc__side left, right;
} lmc__merged;

/* What the elements of a block are joined from. */
typedef struct lmc__join_source {
    const lmc__const_planes *planes;
    const lmc__merged *root; /* one of the planes, still to be merged; or NULL */
    unsigned width;          /* bytes of an element */
    enum lmc__order order;   /* of elements, for their residuals against 0 */
} lmc__join_source;

/* How elements are put into classes by their prediction (spec 5.2). */
#define LMC__MAX_CLASSES 16u
typedef struct lmc__grouping {
    unsigned n_classes; /* 1 .. LMC__MAX_CLASSES */
    unsigned n_natural; /* planes that are not grouped, the lowest ones */
    uint8_t threshold[LMC__MAX_CLASSES - 1];
} lmc__grouping;

/* A block of a delta: the prediction of n elements, `width` bytes each. */
typedef struct lmc__delta_block {
    const uint8_t *base;
    size_t n;
    unsigned width;
    enum lmc__order order;
    const lmc__grouping *grouping;
} lmc__delta_block;

/* A side for each class and plane. */
typedef struct lmc__class_sides {
    lmc__side side[LMC__MAX_CLASSES][8];
} lmc__class_sides;

#ifndef LMC_NO_ENCODER
/* A list for each class and plane. n: the elements of each class, which group counts. */
typedef struct lmc__classes {
    uint8_t *row[LMC__MAX_CLASSES][8];
    size_t n[LMC__MAX_CLASSES];
} lmc__classes;

/* Elements of a block that differ from their prediction: their numbers, ascending; their values,
 * and their predictions, `width` bytes each, without gaps. */
typedef struct lmc__changed {
    uint32_t *place;
    uint8_t *now, *before;
} lmc__changed;
#endif

/* What has changed in a sparse block, for each class: the numbers of the elements, counted within
 * the class, ascending, then LMC__NO_CHANGE; and the residuals, `width` bytes each. */
#define LMC__NO_CHANGE UINT32_MAX
typedef struct lmc__patches {
    const uint32_t *at[LMC__MAX_CLASSES];
    const uint8_t *residual[LMC__MAX_CLASSES];
} lmc__patches;

/* What patch has overwritten: the numbers of the elements in the block, and their earlier values,
 * `width` bytes each, without gaps. Both have room for all changes. */
typedef struct lmc__undo {
    uint32_t *place;
    uint8_t *before;
    size_t n;
} lmc__undo;

/* Grids (grids.h, spec/quantised.md). Scales are the bits of an F32. */
#define LMC__EXCEPTION 65535u /* in place of a symbol: the element is on no grid */
#define LMC__MIN_SCALE 0x00800000u
#define LMC__MAX_SCALE 0x77000000u /* 2^111: its product with a number below 2^16 is finite */
#define LMC__MAX_LOG_SCALE 0x7F7F0000u

typedef struct lmc__grid {
    int is_log, is_signed;
    int32_t min;       /* of q; at most 0 */
    uint32_t n_points; /* encoding: q in [min, min + n_points); symbols stay below LMC__EXCEPTION */
    uint32_t step;     /* if is_log */
    int32_t bias;      /* of scales that follow from predictions */
    uint32_t floor;
} lmc__grid;

/* Codes with scales (codes.h, spec/codes.md). */
#define LMC__MAX_CODED_SCALE 0x6E000000u /* 2^93: times less than 2^33, a finite BF16 */
typedef struct lmc__code_form {
    unsigned mantissa, width; /* of a code, in bits; of an element, in bytes */
    int is_half;              /* elements of two bytes are F16, not BF16 */
    size_t group_size;
    uint32_t numbers[256]; /* lmc__set_numbers */
} lmc__code_form;

/* The kernels of a tier. Kernels whose first parameter is a table (their own) do the work of
 * several kernels at once. For elements behind their loop they call kernels of this table. A
 * kernel's contract is at its scalar function, or, from `restore` on, in grids.h. */
typedef struct lmc__kernels {
    enum lmc_tier tier;
    int has_fast_pdep; /* the CPUs of this table: for patch */
    uint32_t (*crc32c)(uint32_t crc, const uint8_t *p, size_t size);
#ifndef LMC_NO_SNAPSHOT
    uint64_t (*sum64)(const uint8_t *p, size_t size);
    void (*sha256)(uint32_t state[8], const uint8_t *p, size_t n);
#endif
    void (*join)(uint8_t *dst, const lmc__const_planes *planes, size_t n, unsigned width,
                 enum lmc__order order);
    uint32_t (*join_root)(const struct lmc__kernels *k, uint8_t *dst, lmc__join_source source,
                          size_t n, lmc__streaming streaming);
    void (*merge)(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left, lmc__side right);
    void (*unflatten)(uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols,
                      unsigned depth);
    size_t (*count_ones)(const uint8_t *mask, size_t size);
    void (*count_classes)(size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n,
                          unsigned width, const lmc__grouping *grouping, uint8_t *tally);
    uint32_t (*ungroup)(const struct lmc__kernels *k, uint8_t *dst, const lmc__class_sides *sides,
                        const lmc__delta_block *block, lmc__streaming streaming);
    uint32_t (*patch)(const struct lmc__kernels *k, uint8_t *dst, const lmc__patches *changes,
                      const lmc__delta_block *block, const uint8_t *tally, lmc__undo *undo,
                      lmc__streaming streaming);
    void (*restore_codes)(uint8_t *dst, const uint8_t *codes, size_t n, const lmc__code_form *form,
                          const uint32_t *scales, size_t first);
#ifndef LMC_NO_ENCODER
    void (*split)(const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
                  enum lmc__order order);
    uint32_t (*split_root)(const struct lmc__kernels *k, const lmc__planes *planes,
                           lmc__parted *root, const uint8_t *src, size_t n, unsigned width,
                           enum lmc__order order, uint64_t *sum);
    void (*map)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table);
    size_t (*partition)(uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src, size_t n,
                        unsigned split);
    void (*flatten)(uint8_t *bits, const uint8_t *src, size_t n, unsigned first, unsigned depth);
    uint32_t (*group)(const struct lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
                      const lmc__delta_block *block);
    size_t (*list_changes)(const struct lmc__kernels *k, uint32_t *crc, const lmc__changed *changed,
                           size_t most, const uint8_t *src, const uint8_t *base, size_t n,
                           unsigned width);
    void (*rank_changes)(size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones,
                         const uint8_t *base, size_t n, unsigned width,
                         const lmc__grouping *grouping, const lmc__changed *changed,
                         size_t n_changed);
#endif
#ifndef LMC_NO_QUANTIZE
    void (*restore)(uint8_t *dst, const uint16_t *symbols, const uint8_t *second, size_t n,
                    uint32_t scale, const lmc__grid *grid);
    void (*join_symbols)(uint16_t *symbols, const uint8_t *high, const uint8_t *low, size_t n,
                         unsigned low_bits);
    void (*stream)(uint8_t *dst, const uint8_t *src, size_t size);
#ifndef LMC_NO_ENCODER
    size_t (*quantize)(uint16_t *symbols, const uint8_t *src, const uint8_t *second, size_t n,
                       uint32_t scale, const lmc__grid *grid);
    uint32_t (*sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count);
    void (*cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                        unsigned low_bits);
#endif
#endif
} lmc__kernels;
