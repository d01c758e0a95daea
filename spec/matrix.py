"""Rows and columns: blocks of Layout 4 (matrix.md). SPDX-License-Identifier: MIT"""
from lmc_decode import read_list, require


def read_prediction(source, n, width):
    """The bytes of the prediction. Residuals follow in the source."""
    row_size, first, shift = source.fields("IIB")
    require(0 < row_size <= n, "Row_Size (M-1)")
    require(first < row_size, "First (M-2)")
    require(shift < 8 * width, "Shift (M-3)")
    n_rows = (first + n - 1) // row_size + 1
    low, high = read_list(source, n_rows), read_list(source, n_rows)
    rows, columns = [a + 256 * b for a, b in zip(low, high)], read_list(source, row_size)
    require(max(rows) + max(columns) < 1 << 8 * width - shift, "the sum of two numbers (M-4)")
    places = (divmod(i, row_size) for i in range(first, first + n))
    return b"".join((rows[j] + columns[c] << shift).to_bytes(width, "little") for j, c in places)
