#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"

/* The caller's workspace: lmc__scratch, and a stack of *lists* (kernels/types.h: bytes with
 * LMC__PAD bytes of slack behind them). A function that pushes lists sets stack.top back to free
 * them. Nothing is kept from one block to the next.
 *
 * The table has the most that is on the stack at once, for a block of n elements of w <= 8 bytes. A
 * *row* is a list of n bytes; m = n / 8 is the bytes of a mask.
 *
 *   encoding planes       w rows of planes; one row that trees partition into; one more row and m
 *                         for the top plane, which is mapped and partitioned while it is split
 *   encoding classes      w rows, each cut to a list for every class (16 pads for each row); m for
 *                         the masks of a sparse delta, cut likewise; one row for trees; 4/3 of a
 *                         row for the positions of gaps, instead of the masks below
 *   encoding quantised    w <= 4 rows of restored elements; a row each for High, for Low, to work
 *                         in and for trees; the scales of groups (at most a row)
 *   decoding planes       w rows of planes; one row for trees; the masks on the way to a node
 *                         (below); w rows for the bytes at dst, if they must be kept
 *   decoding classes      the same, cut by classes; m for the masks of a sparse delta; one more row
 *                         for the coded elements before zeros are merged in between; w rows for the
 *                         prediction, if it is overwritten
 *   decoding sparse       instead, for at most n / 16 coded elements: 4 bytes for the index of each
 *                         and 2 w for residuals and planes, at most 1.25 rows; if the prediction is
 *                         overwritten, 4 + w to undo that, at most 0.75 rows; a row for trees; the
 *                         tally of classes, at most a quarter of a row; m
 *   decoding quantised    High, Low, one row for trees; two lists with the bytes of scales, and two
 *                         rows with the scales; or w <= 4 rows for the prediction, if it is
 *                         overwritten
 *   rows and columns      decoding: w rows of the prediction, w of that of columns, 2 of numbers,
 *                         one for trees; then as classes. Encoding: w + 1/2 rows, and as classes
 *   codes with scales     decoding: a row of codes, one for trees, a quarter of a row of scales; w
 *                         rows for the bytes at dst, if they must be kept. Encoding: w + 3 rows,
 *                         and 12 bytes for each group of at least 16 elements
 *   planning              while the stack has at most a row (or these w + 1/2). If all elements are
 *                         counted: w rows. Else samples of elements and prediction, and the planes
 *                         of one sample: 3 w * 2048 bytes, from 32768 elements on 3 w * 8192; for
 *                         bytes also n / 8, or 16384; for a delta also the changes, 4 + 2 w for
 *                         each of n / 20 elements
 *   masks                 see lmc__mask_stack_size
 *
 * Each of these uses takes at most 2 w + 3 rows (w + 6 for w < 4) and two masks, with the pads of
 * all classes, and the masks' stack. The pads are counted for the widest elements, so that a
 * workspace for bytes is also enough for the wider elements that LMC_AUTO may find. So no push can
 * fail; yet each push is checked. */
#define LMC__MAX_ROWS (2 * 8u + 3)

typedef struct lmc__stack {
    uint8_t *top, *end;
} lmc__stack;

/* Pushes a list of n bytes; NULL if there is no room. */
LMC__INLINE uint8_t *lmc__push_list(lmc__stack *stack, size_t n)
{
    uint8_t *list = stack->top;
    if ((size_t)(stack->end - stack->top) < n + LMC__PAD) return NULL;
    stack->top += n + LMC__PAD;
    return list;
}

/* Pushes n aligned numbers; NULL if there is no room. */
LMC__INLINE uint32_t *lmc__push_numbers(lmc__stack *stack, size_t n)
{
    uint8_t *const list = lmc__push_list(stack, 4 * n + 3);
    return list ? (uint32_t *)(void *)(list + ((0 - (uintptr_t)list) & 3)) : NULL;
}

#ifndef LMC_NO_ENCODER
/* How to code a list as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];   /* of the symbols' codes; 0: no code */
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* every symbol with a code is in [first, last] */
    int is_one_symbol;      /* the sample has only one symbol: the list may be constant */
    uint64_t bits;          /* that the list takes; estimated */
} lmc__plan;

/* The residuals of a sample for one key, or for a class (plan_delta.h), counted by magnitude: 0 to
 * 15 one by one, then two buckets for each octave (lmc__magnitude). */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint64_t bits;     /* that the class takes */
    int64_t saved;     /* bits saved by merging it with the next class */
    uint8_t first_key; /* its keys end before the next class's first key */
    uint32_t n;
    uint32_t magnitudes[LMC__MAGNITUDES];
} lmc__key_counts;
#endif

/* Data that is too large for the C stack. */
typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1]; /* of each nesting */
#ifndef LMC_NO_ENCODER
    lmc__tree root_tree;     /* the top plane's, while the planes before it are coded */
    uint32_t counts[8][256]; /* of each plane's bytes, in a sample */
    lmc__plan plans[8];      /* of each plane */
    lmc__key_counts keys[256], merged;
#endif
} lmc__scratch;

/* The masks' part of the stack, for a tree of a list of n bytes at a nesting. A node keeps its mask
 * until its children are done. When decoding, a nested mask is a list of m = n / 8 bytes, and at
 * most 15 nodes on a path have one. Decoding the last mask takes a spare of m bytes, and, for its
 * own masks, the result for m bytes at the next nesting. Encoding takes three lists of m for each
 * nesting, and one more for each node on the path whose mask fits in the output only nested. */
static size_t lmc__mask_stack_size(size_t n, unsigned nesting)
{
    size_t m = (n + 7) / 8;
    if (nesting == LMC__MAX_NESTING) return 0;
    return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);
}

LMC_API size_t lmc_block_workspace_size(size_t n, unsigned width)
{
    const size_t rows = width < 4 ? width + 6 : 2 * width + 3;
    if (n == 0 || width - 1 > 7 || (width & (width - 1)) || n > LMC_MAX_BLOCK_SIZE / width)
        return 0;
    return sizeof(lmc__scratch) + 16 /* alignment */ + rows * n +
           LMC__MAX_ROWS * LMC__MAX_CLASSES * LMC__PAD +
           2 * ((n + 7) / 8 + LMC__MAX_CLASSES * (LMC__PAD + 1)) + lmc__mask_stack_size(n, 0);
}

/* 1 if ws_size is enough for n elements. */
static int lmc__is_workspace(size_t ws_size, size_t n, unsigned width)
{
    size_t needed = lmc_block_workspace_size(n, width);
    return needed != 0 && ws_size >= needed;
}

/* Returns the scratch, at the workspace's first multiple of 16. *stack: the rest. */
static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

#ifndef LMC_NO_ENCODER
/* The state of encoding a payload. */
typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out;   /* where the payload's next byte goes */
    uint32_t worth; /* of a bit, as time: see cost.h */
    uint8_t *end;   /* the payload's limit: a longer payload is not wanted */
} lmc__encoder;
#endif
