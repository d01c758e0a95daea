#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"

/* -- 8.3 workspace --
 * A stack of lists. Sizes (n elements, w <= 8 planes), encoding and decoding:
 *   planes      w lists of n, or a list for each class in place of one; with joint coding two
 *               strips in place of one of them
 *   spares      trees need two buffers that take turns: one list of n; encoding, a second one for
 *               the top plane, which is partitioned
 *               while the others wait, and n/8 for that root's mask
 *   masks       decoding a list of m elements keeps the nested masks on the path from root to node,
 *               at most 15 of m/8 bytes,
 *               and while one is made, a spare of m/8 and what the list of its m/8 bytes needs in
 *               turn; the top plane's root mask stays
 *               until the block's end. Encoding keeps three for each nesting at most.
 *   sample      its planes; to plan a delta, two samples of whole elements and their planes: in the
 *               same place, before
 *   trees       one for each nesting, and the counts of the sample */

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

/* How to code a plane as a tree. */
typedef struct lmc__plan {
    uint8_t lengths[256];
    unsigned escape_length; /* 0: no escape */
    unsigned first, last;   /* symbols */
    int is_one_symbol;      /* that was counted: the plane may be constant */
    uint64_t bits;          /* that the plane takes, about */
} lmc__plan;

/* What a sample says of the residuals of one key or class: counted by magnitude, 0 .. 15 one by
 * one, then two buckets for each octave. */
#define LMC__MAGNITUDES (16u + 2 * 60)
typedef struct lmc__key_counts {
    uint32_t n;
    uint16_t magnitudes[LMC__MAGNITUDES]; /* of at most 8192 elements */
} lmc__key_counts;

typedef struct lmc__scratch {
    lmc__tree trees[LMC__MAX_NESTING + 1];
    lmc__tree root_tree;
    uint32_t counts[8][256];
    lmc__plan plans[8], joint_plan;
    uint32_t wide[4][1024]; /* of lmc__count_wide */
    lmc__key_counts keys[256], merged;
} lmc__scratch;

/* A block of more than 8192 elements is sampled: it is cut into 128 equal steps, and 64 elements
 * are taken of each, at a place that changes from one to the next, so that rows of a power of two
 * elements are not sampled in the same columns only. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

/* Mask stack for a list of n at a nesting. */
static size_t lmc__mask_stack_size(size_t n, unsigned nesting)
{
    size_t m = (n + 7) / 8;
    if (nesting == LMC__MAX_NESTING) return 0;
    return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);
}

LMC_API size_t lmc_workspace_size(size_t n)
{
    if (n == 0 || n > LMC_MAX_BLOCK_ELEMENTS) return 0;
    return sizeof(lmc__scratch) + 16 /* alignment */ + 10 * (n + LMC__MAX_CLASSES * LMC__PAD) +
           2 * ((n + 7) / 8 + LMC__MAX_CLASSES * (LMC__PAD + 1)) + lmc__mask_stack_size(n, 0);
}

static lmc__scratch *lmc__open_workspace(lmc__stack *stack, void *ws, size_t ws_size)
{
    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    stack->top = (uint8_t *)ws + skip + sizeof(lmc__scratch);
    stack->end = (uint8_t *)ws + ws_size;
    return (lmc__scratch *)(void *)((uint8_t *)ws + skip);
}

typedef struct lmc__encoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    uint8_t *out, *end; /* of the payload: what would pass the end is not worth coding */
} lmc__encoder;

static int lmc__is_workspace(size_t ws_size, size_t n)
{
    size_t needed = lmc_workspace_size(n);
    return needed != 0 && ws_size >= needed;
}
