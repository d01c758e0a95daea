#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "codec/workspace.h"

/* Rows and columns (spec/matrix.md): blocks that are a part of a matrix, and whose prediction is
 * made from a number for each row and a number for each column:
 *
 *     prediction of element i = (row[j / n_columns] + column[j % n_columns]) << shift
 *                           j = first + i
 *
 * The bits of a positive float, read as an integer, are nearly its logarithm, and the logarithm of
 * a product is a sum. So this predicts what is nearly a product of a row's and a column's scale, as
 * the second moments of optimizers are. The block is then coded against the prediction, like a
 * delta of one class. put_matrix.h writes such blocks, get_matrix.h decodes them. */
typedef struct lmc__matrix {
    size_t n_columns, first; /* first: the column of the block's first element */
    size_t n_rows;           /* of which the block has a part */
    unsigned shift;
    const uint8_t *low, *high, *column; /* numbers of rows: low and high bytes; of columns */
} lmc__matrix;

#define LMC__MATRIX_HEAD_SIZE 9u /* Row_Size, First, Shift */

/* 1 if each prediction fits in an element. Then those of neighbours can be added as one word. */
static int lmc__are_sums_in_reach(const lmc__matrix *r, unsigned width)
{
    size_t i, row = 0, column = 0;
    for (i = 0; i < r->n_rows; i++) {
        const size_t number = r->low[i] | (size_t)r->high[i] << 8;
        if (number > row) row = number;
    }
    for (i = 0; i < r->n_columns; i++)
        if (r->column[i] > column) column = r->column[i];
    return (uint64_t)(row + column) <= UINT64_MAX >> (64 - 8 * width) >> r->shift;
}

/* Writes the prediction of n elements to dst, 8 bytes at a time: a row is that of the columns, plus
 * the row's number in each element. Returns 0 if the stack has no room, which cannot happen. */
static int lmc__predict_matrix(lmc__stack *stack, uint8_t *dst, size_t n, unsigned width,
                               const lmc__matrix *r)
{
    const uint64_t one_each = UINT64_MAX / (UINT64_MAX >> (64 - 8 * width));
    uint8_t *const top = stack->top, *const columns = lmc__push_list(stack, r->n_columns * width);
    size_t i, row, at = r->first * width, left = n * width;
    stack->top = top;
    if (!columns) return 0;
    for (i = 0; i < r->n_columns; i++)
        lmc__store_element(columns, i, (uint64_t)r->column[i] << r->shift, width);
    for (row = 0; row < r->n_rows; row++, at = 0) {
        const uint64_t number =
            ((uint64_t)(r->low[row] | (unsigned)r->high[row] << 8) << r->shift) * one_each;
        const size_t size = lmc__min(r->n_columns * width - at, left), whole = size & ~(size_t)7;
        uint8_t rest[8];
        for (i = 0; i < whole; i += 8)
            lmc__store64(dst + i, lmc__load64(columns + at + i) + number);
        lmc__store64(rest, lmc__load64(columns + at + i) + number);
        memcpy(dst + whole, rest, size - whole);
        dst += size;
        left -= size;
    }
    return 1;
}
