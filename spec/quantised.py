"""Quantised elements: blocks of Layout 2 (quantised.md). SPDX-License-Identifier: MIT"""
import struct

from lmc_decode import bf16_of_f32, integers, read_list, require

LOG, SIGNED, TABLE = 1, 2, 4                   # Method
MAX_LOW_BITS = 8
MAX_TABLE_SIZE = 255
MAX_QUANTUM = 65535
MAX_STEP = 1 << 24
MAX_BIAS = 1 << 30
MAX_FLOOR = 0x7F800000
MAX_GROUP_SIZE = (1 << 31) - 1
MIN_SCALE, MAX_SCALE, MAX_LOG = 0x00800000, 0x77000000, 0x7F7F0000             # bits of F32: 2^-126, 2^111, the largest BF16


def read_quantised(source, n, width, base):
    """The bytes of the elements; base: the bytes of the prediction, or None."""
    method, low_bits, table_size, least, step, bias, floor, group_size, first_group, n_exceptions = source.fields("BBHiIiIIII")
    require(method <= (LOG | SIGNED | TABLE) and (method & LOG or not method & SIGNED), "Method (Q-1)")
    require(low_bits <= (0 if method & TABLE else MAX_LOW_BITS), "Low_Bits (Q-2)")
    require(1 <= table_size <= MAX_TABLE_SIZE if method & TABLE else table_size == 0, "Table_Size (Q-3)")
    require(-MAX_QUANTUM <= least <= 0, "Min (Q-4)")
    require(1 <= step <= MAX_STEP if method & LOG else step == 0, "Step (Q-5)")
    if base is None:
        require(bias == 0, "Bias without prediction (Q-6)")
        require(floor == 0, "Floor without prediction (Q-7)")
        require(1 <= group_size <= MAX_GROUP_SIZE, "Group_Size (Q-8)")
        require(1 <= first_group <= group_size, "First_Group (Q-9)")
    else:
        require(not method & LOG, "Log with prediction (Q-1)")
        require(-MAX_BIAS <= bias <= MAX_BIAS, "Bias (Q-6)")
        require(floor <= MAX_FLOOR, "Floor (Q-7)")
        require(group_size == 0, "Group_Size with prediction (Q-8)")
        require(first_group == 0, "First_Group with prediction (Q-9)")
    require(n_exceptions <= n, "N_Exceptions (Q-10)")
    table = (0,) + source.fields("%dH" % table_size)
    require(all(a < b for a, b in zip(table, table[1:])), "Table does not ascend (Q-11)")
    positions = source.fields("%dI" % n_exceptions)
    require(all(a < b for a, b in zip((-1,) + positions, positions + (n,))), "Positions of exceptions (Q-12)")
    values = integers(source.take(n_exceptions * width), width)
    if base is None:
        scales = read_scales(source, n, group_size, first_group, method & LOG)
    else:
        scales = predict_scales(integers(base, width), width, bias, floor)
    symbols = read_symbols(source, n, low_bits, method & TABLE and table)
    elements = [dequantise(symbol, scale, method, least, step) for symbol, scale in zip(symbols, scales)]
    if width == 2:
        elements = [bf16_of_f32(element) for element in elements]
    for position, value in zip(positions, values):
        elements[position] = value
    return struct.pack("<%d%s" % (n, "H" if width == 2 else "I"), *elements)


def read_scales(source, n, group_size, first_group, is_log):
    """The bits of each element's G."""
    n_groups = 1 + max(n - first_group + group_size - 1, 0) // group_size
    scales = [low << 16 | high << 24 for low, high in zip(read_list(source, n_groups), read_list(source, n_groups))]
    require(MIN_SCALE <= min(scales) and max(scales) <= (MAX_LOG if is_log else MAX_SCALE), "scale of a group (Q-13)")
    return [scales[(i - first_group) // group_size + 1 if i >= first_group else 0] for i in range(n)]


def predict_scales(predictions, width, bias, floor):
    scales = []
    for p in predictions:
        p = (p << 16 if width == 2 else p) & 0x7FFFFFFF
        scales.append(clamp((max(p, floor) >> 1) + bias, MIN_SCALE, MAX_SCALE))
    return scales


def clamp(v, a, b):
    return min(max(v, a), b)


def read_symbols(source, n, low_bits, table):
    """table: the codes with a 0 in front, or false."""
    low = read_list(source, n) if low_bits else bytes(n)
    high = read_list(source, n)
    if table:
        require(max(high) < len(table), "index beyond the Table (Q-14)")
        return [table[index] for index in high]
    return [h << low_bits | l for h, l in zip(high, low)]


def dequantise(symbol, scale, method, least, step):
    """The bits of an F32."""
    if symbol == 0:
        return 0
    t, sign = symbol - 1, 0
    if method & SIGNED:
        t, sign = t >> 1, t & 1
    q = least + t
    if method & LOG:
        return sign << 31 | clamp(scale + q * step, MIN_SCALE, MAX_LOG)
    return multiply(q, scale)


def multiply(q, scale):
    """The bits of q * G, which has at most 24 significant bits."""
    product = abs(q) * (scale >> 16 & 0x7F | 0x80)
    if product == 0:
        return 0
    top = product.bit_length() - 1             # 7 if q is 1
    return (q < 0) << 31 | (scale >> 23) + top - 7 << 23 | product << 23 - top & 0x7FFFFF
