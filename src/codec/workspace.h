#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"

/* The caller's workspace: lmc__scratch, and a stack of *lists* (see kernels/types.h: bytes with
 * LMC__PAD of slack behind them). A function that pushes lists sets stack.top back to free them.
 * Nothing is kept from one block to the next.
 *
 * What lies on the stack at once, at worst, for a block of n elements of w <= 8 bytes. A "row" is a
 * list of n; m = n / 8 is the bytes of a mask.
 *
 *   encoding planes       w rows of planes; one row that trees partition into; one more row and m
 *                         for the top plane, which is mapped and partitioned while it is split
 *   encoding classes      w rows, each cut to a list for every class (the pads: 16 for each row);
 *                         m for the masks of a sparse delta, likewise cut; one row for trees; the
 *                         places of gaps, 4/3 of a row, where masks as below are not made
 *   encoding quantised    the restored elements (w <= 4 rows); codes, low bits, a row to work in
 *                         and one for trees; the scales of groups (at most a row)
 *   decoding planes       w rows of planes; one row for trees; the masks on the way to a node
 *                         (below); and w rows for what the output overwrites, if it is to be kept
 *   decoding classes      the same, cut by classes; m for the masks of a sparse delta; one row
 *                         more, for the coded elements before zeros are merged in between; and w
 *                         rows for the prediction, where the output overwrites it
 *   decoding sparse       instead of that, for at most n / 16 coded elements, four bytes for the
 *                         number of each and 2 w for residuals and planes, at most 1.25 rows; where
 *                         the prediction is overwritten, 4 + w to undo it, at most 0.75 rows; a row
 *                         for trees; the tally of classes, a quarter of a row at most; m
 *   decoding quantised    codes, low bits, one row for trees; two lists of bytes of scales, and
 *                         those in two rows; or w <= 4 rows for the prediction, where the output
 *                         overwrites it
 *   planning              before anything else is pushed, or a row. A block of up to 8192 elements,
 *                         or one of which all is counted: w rows. Of others samples of the elements
 *                         and of the prediction, and the planes of one: 3 w times 2048 bytes, from
 *                         32768 elements on 3 w times 8192; of a delta also what has changed,
 *                         4 + 2 w bytes for each of n / 20 elements
 *   masks                 see lmc__mask_stack_size
 *
 * That is 2 w + 3 rows, but w + 6 of small elements, and two masks; the pads of all classes in
 * each; and the masks' stack. The pads are those of the widest elements, whatever the width: so a
 * workspace for elements of one byte serves as many bytes in wider ones, which LMC_AUTO may find.
 * So "no room" cannot happen; all the same each push is checked. */
#define LMC__MAX_ROWS (2 * 8u + 3)

typedef struct lmc__stack {
    uint8_t *top, *end;
} lmc__stack;

/* Room for a list of n, or NULL. */
LMC__INLINE uint8_t *lmc__push_list(lmc__stack *stack, size_t n)
{
    uint8_t *list = stack->top;
    if ((size_t)(stack->end - stack->top) < n + LMC__PAD) return NULL;
    stack->top += n + LMC__PAD;
    return list;
}

/* Room for n numbers, or NULL. They are aligned. */
LMC__INLINE uint32_t *lmc__push_numbers(lmc__stack *stack, size_t n)
{
    uint8_t *const list = lmc__push_list(stack, 4 * n + 3);
    return list ? (uint32_t *)(void *)(list + ((0 - (uintptr_t)list) & 3)) : NULL;
}

#ifndef LMC_NO_ENCODER
/* How to code a list as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];   /* of the codes of symbols; 0: none */
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* the symbols that have a code lie in [first, last] */
    int is_one_symbol;      /* the sample has one symbol only: the list may be constant */
    uint64_t bits;          /* that the list takes, about */
} lmc__plan;

/* The residuals of a sample, of one key or of a class of them, counted by magnitude: those of 0 ..
 * 15 one by one, then two buckets for each octave (see lmc__magnitude). */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint64_t bits;     /* that it takes */
    int64_t saved;     /* bits, by merging it with the next one */
    uint8_t first_key; /* it has the keys up to the next one's */
    uint32_t n;
    uint32_t magnitudes[LMC__MAGNITUDES];
} lmc__key_counts;
#endif

/* What is too large for the C stack. */
typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1]; /* [0]: a list's own; [t]: of masks at nesting t - 1 */
#ifndef LMC_NO_ENCODER
    lmc__tree root_tree;     /* the top plane's, while others are coded before it */
    uint32_t counts[8][256]; /* of each plane's bytes, in a sample */
    lmc__plan plans[8];      /* of each plane */
    lmc__key_counts keys[256], merged;
#endif
} lmc__scratch;

/* The masks' part of the stack, for a tree over a list of n bytes at a nesting. A node keeps its
 * mask until its children are made. Decoding, a nested mask is a list of m = n / 8 bytes, and there
 * are at most 15 nodes from the root down that have one; while the last one is decoded, it needs a
 * spare of m, and for its own masks what this function says of m bytes one nesting deeper. Encoding
 * needs three lists of m for each nesting, and one for each node on the way whose mask has room in
 * the output only when it is nested. */
static size_t lmc__mask_stack_size(size_t n, unsigned nesting)
{
    size_t m = (n + 7) / 8;
    if (nesting == LMC__MAX_NESTING) return 0;
    return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);
}

LMC_API size_t lmc_block_workspace_size(size_t n, unsigned width)
{
    const size_t rows = width < 4 ? width + 6 : 2 * width + 3;
    if (n == 0 || width == 0 || n > LMC_MAX_BLOCK_SIZE / width) return 0;
    return sizeof(lmc__scratch) + 16 /* alignment */ + rows * n +
           LMC__MAX_ROWS * LMC__MAX_CLASSES * LMC__PAD +
           2 * ((n + 7) / 8 + LMC__MAX_CLASSES * (LMC__PAD + 1)) + lmc__mask_stack_size(n, 0);
}

/* ws_size is enough for n elements. */
static int lmc__is_workspace(size_t ws_size, size_t n, unsigned width)
{
    size_t needed = lmc_block_workspace_size(n, width);
    return needed != 0 && ws_size >= needed;
}

/* The scratch, at the first address of the workspace that is a multiple of 16; *stack: the rest. */
static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

#ifndef LMC_NO_ENCODER
/* What all functions that write a payload pass on. */
typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out;   /* where the payload's next byte goes */
    uint32_t worth; /* of a bit: see cost.h */
    uint8_t *end;   /* the payload must not pass it: what needs more is not worth coding */
} lmc__encoder;
#endif
