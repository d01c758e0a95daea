#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/matrix.h"
#include "codec/sample.h"
#include "codec/put_list.h"
#include "codec/plan_delta.h"
#include "codec/put_delta.h"

/* Chooses whether a block is predicted by rows and columns, finds their numbers, and writes its
 * payload (spec/matrix.md; matrix.h says what it is for). Numbers are means of samples of the
 * elements' top bits, in eighths of an octave. Finer numbers would save nothing.
 *
 *     16 elements of one sign   -> else no: weights, gradients, first moments
 *     8 rows x 16 columns       -> do rows and columns explain most of what differs?
 *     means                     -> numbers, the prediction, and the usual plan of a delta
 *     its estimate              -> smaller by 1/32 than without? */

#ifndef LMC_NO_ENCODER
#define LMC__MATRIX_SIGNS 16u    /* elements whose signs are compared */
#define LMC__MATRIX_GRID_ROWS 8u /* and columns: a power of two each */
#define LMC__MATRIX_GRID_COLUMNS 16u
#define LMC__MATRIX_SAMPLE 64u /* the most elements whose mean is a number */
#define LMC__MATRIX_MIN_SAVING 32u

/* The top bits of element i: exponent and 7 bits of mantissa of F32 and BF16. A number of a row or
 * a column counts 16 of them, an eighth of an octave. */
LMC__INLINE unsigned lmc__top_bits(const lmc__block *block, size_t i, unsigned shift)
{
    return (unsigned)(lmc__load_element(block->src, i, block->width) >> (shift - 4));
}

/* 1 if a grid of elements says that rows and columns are worth a closer look: what they leave of
 * the variance is less than half. Sums are exact: of differences from means, times n * m. */
static int lmc__is_product_likely(const lmc__block *whole, unsigned shift)
{
    enum { n = LMC__MATRIX_GRID_ROWS, m = LMC__MATRIX_GRID_COLUMNS };
    const size_t n_columns = whole->n_columns, n_rows = whole->n / n_columns;
    int32_t grid[n * m], row[n] = {0}, column[m] = {0}, all = 0;
    uint64_t left = 0, total = 0;
    unsigned i, zeros = 0;
    for (i = 0; i < n * m; i++) {
        const size_t at = n_rows * (i / m) / n * n_columns + n_columns * (i % m) / m;
        grid[i] = (int32_t)lmc__top_bits(whole, at, shift);
        row[i / m] += grid[i];
        column[i % m] += grid[i];
        all += grid[i];
        zeros += grid[i] == 0;
    }
    if (zeros > n * m / 16) return 0; /* zeros apart are better */
    for (i = 0; i < n * m; i++) {
        const int64_t value = (int64_t)grid[i] * (n * m) - all,
                      of_row = (int64_t)row[i / m] * n - all,
                      rest = value - of_row - ((int64_t)column[i % m] * m - all);
        total += (uint64_t)(value * value) >> 8;
        left += (uint64_t)(rest * rest) >> 8;
    }
    return left < total / 2;
}

/* Sets the numbers of columns: the means of up to 64 rows, less the smallest of these means.
 * Returns the largest number. */
static unsigned lmc__fit_columns(uint8_t *column, uint32_t *sums, const lmc__block *whole,
                                 unsigned shift)
{
    const size_t m = whole->n_columns, n_rows = whole->n / m,
                 take = lmc__min(n_rows, LMC__MATRIX_SAMPLE);
    uint32_t least = UINT32_MAX;
    unsigned most = 0;
    size_t i, j;
    memset(sums, 0, m * sizeof *sums);
    for (i = 0; i < take; i++)
        for (j = 0; j < m; j++) sums[j] += lmc__top_bits(whole, n_rows * i / take * m + j, shift);
    for (j = 0; j < m; j++)
        if (sums[j] < least) least = sums[j];
    for (j = 0; j < m; j++) {
        column[j] = (uint8_t)lmc__min(((sums[j] - least) / take + 8) >> 4, 255);
        if (column[j] > most) most = column[j];
    }
    return most;
}

/* Sets the numbers of rows, low bytes before high bytes: the means of up to 64 elements, less their
 * columns' numbers. most: the largest number of a row. */
static void lmc__fit_rows(uint8_t *rows, const lmc__block *block, const lmc__matrix *r,
                          unsigned most)
{
    size_t row, i, at = 0, from = r->first;
    for (row = 0; row < r->n_rows; row++, from = 0) {
        const size_t size = lmc__min(r->n_columns - from, block->n - at),
                     take = lmc__min(size, LMC__MATRIX_SAMPLE);
        int64_t sum = 0;
        for (i = 0; i < take; i++) {
            const size_t j = size * i / take;
            sum += (int64_t)lmc__top_bits(block, at + j, r->shift) - 16 * r->column[from + j];
        }
        i = sum < 0 ? 0 : lmc__min(((size_t)sum / take + 8) >> 4, most);
        rows[row] = (uint8_t)i;
        rows[r->n_rows + row] = (uint8_t)(i >> 8);
        at += size;
    }
}

/* Decides whether rows and columns predict the block. If so, *predicted is the block with its
 * prediction, and delta says how to code it. Prediction and numbers stay on the stack: they take at
 * most w + 1/2 rows of it (workspace.h). */
static enum lmc__verdict lmc__plan_matrix(lmc__encoder *e, lmc__matrix *r, lmc__delta *delta,
                                          lmc__block *predicted, const lmc__block *block)
{
    const unsigned width = block->width, bits = width == 8 ? 15 : 12; /* of sums of numbers */
    const size_t n = block->n, m = block->n_columns;
    uint8_t *prediction, *rows, *column;
    uint32_t *sums;
    lmc__block whole = *block; /* the rows of which the block has all elements */
    uint64_t needed;
    size_t i;
    if (block->without & LMC_FEATURE_MATRIX || m < 2 * LMC__MATRIX_GRID_COLUMNS ||
        n / m <= LMC__MATRIX_GRID_ROWS || width == 1 || block->own != LMC__ORDER_FLOAT)
        return LMC__DIRECT;
    for (i = 1; i < LMC__MATRIX_SIGNS; i++)
        if ((lmc__load_element(block->src, 0, width) ^ lmc__load_element(block->src, i, width)) >>
            (8 * width - 1))
            return LMC__DIRECT;
    r->n_columns = m;
    r->first = block->first_column;
    r->n_rows = lmc__count_groups(r->first, n, m);
    r->shift = 8 * width - bits;
    i = r->first ? m - r->first : 0;
    whole.src += i * width;
    whole.n = (n - i) / m * m;
    if (!lmc__is_product_likely(&whole, r->shift)) return LMC__DIRECT;
    prediction = lmc__push_list(&e->stack, n * width);
    rows = lmc__push_list(&e->stack, 2 * r->n_rows + m);
    sums = lmc__push_numbers(&e->stack, m);
    if (!prediction || !rows || !sums) return LMC__DIRECT;
    column = rows + 2 * r->n_rows;
    e->stack.top = column + m + LMC__PAD;
    r->low = rows;
    r->high = rows + r->n_rows;
    r->column = column;
    i = lmc__fit_columns(column, sums, &whole, r->shift);
    lmc__fit_rows(rows, block, r, (1u << bits) - 1 - (unsigned)i);
    if (!lmc__predict_matrix(&e->stack, prediction, n, width, r)) return LMC__DIRECT;
    *predicted = *block;
    predicted->base = prediction;
    predicted->may_group = 0; /* classes make it no smaller, but slower */
    delta->bits = delta->direct = 0;
    (void)lmc__plan_delta(e, delta, predicted); /* only its estimates count */
    needed = delta->bits + 8 * LMC__MATRIX_HEAD_SIZE + 12 * r->n_rows + 6 * m;
    delta->border = (size_t)(delta->direct / 8);
    return needed < delta->direct - delta->direct / LMC__MATRIX_MIN_SAVING ? LMC__DELTA
                                                                           : LMC__DIRECT;
}

/* Writes the numbers. Returns their size, or 0 if they do not fit in cap bytes. */
static size_t lmc__put_matrix(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__matrix *r)
{
    const size_t most = r->n_rows > r->n_columns ? r->n_rows : r->n_columns;
    uint8_t *const top = e->stack.top, *const work = lmc__push_list(&e->stack, most),
                   *const spare = lmc__push_list(&e->stack, most);
    int fits = work && spare && cap > LMC__MATRIX_HEAD_SIZE;
    e->out = dst + LMC__MATRIX_HEAD_SIZE;
    e->end = dst + cap;
    fits = fits && lmc__put_list(e, r->low, work, spare, r->n_rows, 0) &&
           lmc__put_list(e, r->high, work, spare, r->n_rows, 0) &&
           lmc__put_list(e, r->column, work, spare, r->n_columns, 0);
    e->stack.top = top;
    if (!fits) return 0;
    lmc__store32(dst, (uint32_t)r->n_columns);
    lmc__store32(dst + 4, (uint32_t)r->first);
    dst[8] = (uint8_t)r->shift;
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */
