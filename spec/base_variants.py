#!/usr/bin/env python3
"""Files that are, or almost are, safetensors files by foreign-bases.md: one rule each.

As a base, a safetensors file has its tensors as items; any other file is one item. So the rule decides a fingerprint, and every decoder must decide
in the same way. make_vectors.py makes a delta of each of these. Usage: base_variants.py: compares the list with foreign_bases.py.

SPDX-License-Identifier: MIT
"""
import collections
import struct
import sys

DATA = bytes.fromhex("10203040")               # of the tensors

# header: the bytes of the JSON. tensors: the file's tensors as (Name, Dtype, Shape, first byte, end), counted from the end of the JSON; none if rule
# says that it is no safetensors file. n: the value of the u64, if not the size of header. data: the bytes behind the header.
Variant = collections.namedtuple("Variant", "name header tensors reason rule n data")
VARIANTS = []

A = (b"a", b"U8", (4,), 0, 4)


def content(variant):
    """The bytes of the file."""
    return struct.pack("<Q", len(variant.header) if variant.n is None else variant.n) + variant.header + variant.data


def is_safetensors(variant):
    return bool(variant.tensors)


def good(name, header, reason, *tensors, **more):
    add(name, header, tensors or (A,), reason, **more)


def bad(name, rule, header, reason, **more):
    add(name, header, (), reason, rule=rule, **more)


def add(name, header, tensors, reason, rule=None, n=None, data=DATA):
    VARIANTS.append(Variant(name, header.encode("utf-8") if isinstance(header, str) else header, list(tensors), reason, rule, n, data))


def entry(dtype='"U8"', shape="[4]", offsets="[0,4]", more=""):
    return '{"dtype":%s,"shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more)


def one(key='"a"', before="", after="", **parts):
    """An object with one tensor; before and after: other members."""
    return "{%s%s:%s%s}" % (before, key, entry(**parts), after)


def meta(value, key='"__metadata__"'):
    return one(before="%s:%s," % (key, value))


def nested(depth, left="[", right="]"):
    return left * depth + right * depth


# ---- Safetensors files ----

good("plain", one(), "one tensor")
good("metadata", meta('{"format":"pt"}'), "as safetensors writes it")
good("metadata_is_anything", meta('[null,true,false,"x",{"a":{}},[]]'), "the value of __metadata__ does not matter")
good("metadata_escaped_key", meta("null", '"\\u005f_metadata__"'), "keys are compared after unescaping")
good("metadata_numbers", meta("[-0,4.0,4e0,1E+2,1e-7,1e400,-1,123456789012345678901234567890]"), "numbers that do not matter are those of RFC 8259")
good("metadata_zero_character", meta('"\\u0000"'), "a zero character is one like another where it is in no Name or Dtype")
good("metadata_unit_not_surrogate", meta('"\\ud7ff\\ue000\\uFFFF"'), "the code units around the surrogates")
good("metadata_delete", meta('"\x7f\x80"'), "control characters from U+007F on may stand raw")
good("metadata_depth_64", meta(nested(63)), "arrays nested 64 deep, the outer object being the first level")
good("metadata_depth_64_objects", meta('{"x":' * 62 + "{}" + "}" * 62), "objects nested 64 deep")
good("entry_depth_64", one(more=',"x":' + nested(62)), "nested 64 deep within an entry")
good("metadata_wide", meta("[" + ",".join(["[]"] * 100) + "]"), "depth does not count siblings")
good("entry_other_members", one(more=',"note":[1.5,-0,true,null,{"a":"b"}]'), "other members of an entry do not matter")
good("white_space", "{ \t\n\r\"a\" : {\"dtype\" :\t\"U8\" ,\n\"shape\":\r[ 4 ] , \"data_offsets\":[ 0 , 4 ] } } ", "all white space of RFC 8259")
good("padded", one() + " " * 11, "white space behind the object, as safetensors pads it")
good("escaped_key", one('"\\u0061"'), "an escape in a key")
good("escapes_short", one('"\\"\\\\\\/\\b\\f\\n\\r\\t"'), "all short escapes", (b'"\\/\b\f\n\r\t', b"U8", (4,), 0, 4))
good("escape_hexadecimal", one('"\\u00e9\\u00E9"'), "hexadecimal digits of either case", ("\u00e9\u00e9".encode(), b"U8", (4,), 0, 4))
good("surrogate_pair", one('"\\ud83D\\uDe00"'), "an escaped pair of surrogates is one character", ("\U0001F600".encode(), b"U8", (4,), 0, 4))
good("utf8_key", one('"\u00e9\u4e2d\U0001F600"'), "UTF-8 of two, three and four bytes", ("\u00e9\u4e2d\U0001F600".encode(), b"U8", (4,), 0, 4))
good("name_empty", one('""'), "a Name may be empty", (b"", b"U8", (4,), 0, 4))
good("dtype_escaped", one(dtype='"\\u00558"'), "an escape in a dtype")
good("dtype_unknown", one(dtype='"U9"', shape="[7]"), "shape and size of an unknown dtype are not checked against each other", (b"a", b"U9", (7,), 0, 4))
good("dtype_32_bytes", one(dtype='"%s"' % ("x" * 32)), "the longest Dtype", (b"a", b"x" * 32, (4,), 0, 4))
good("dtype_f4", one(dtype='"F4"', shape="[2,4]"), "elements of half a byte", (b"a", b"F4", (2, 4), 0, 4))
good("scalar", one(dtype='"F32"', shape="[]"), "rank 0", (b"a", b"F32", (), 0, 4))
good("rank_32", one(shape="[%s4]" % ("1," * 31)), "the highest rank", (b"a", b"U8", (1,) * 31 + (4,), 0, 4))
good("shape_largest", one(shape="[9223372036854775807,0]", offsets="[0,0]"), "an extent of 2^63 - 1, of no elements",
     (b"a", b"U8", ((1 << 63) - 1, 0), 0, 0))
good("shape_zero_first", one(shape="[0,9223372036854775807,9223372036854775807]", offsets="[0,0]"), "with a zero in it the product is zero",
     (b"a", b"U8", (0, (1 << 63) - 1, (1 << 63) - 1), 0, 0))
good("tail", one(shape="[3]", offsets="[0,3]"), "bytes behind the last tensor", (b"a", b"U8", (3,), 0, 3))
good("two", '{"a":%s,"b":%s}' % (entry(shape="[1]", offsets="[0,1]"), entry(shape="[3]", offsets="[1,4]")), "two tensors",
     (b"a", b"U8", (1,), 0, 1), (b"b", b"U8", (3,), 1, 4))
good("two_backwards", '{"b":%s,"a":%s}' % (entry(shape="[3]", offsets="[1,4]"), entry(shape="[1]", offsets="[0,1]")),
     "the order of the members does not matter", (b"a", b"U8", (1,), 0, 1), (b"b", b"U8", (3,), 1, 4))
good("empty_tensors", '{"a":%s,"b":%s,"c":%s}' % (entry(), entry(shape="[0]", offsets="[4,4]"), entry(shape="[0]", offsets="[0,0]")),
     "tensors of no bytes, before and behind one", (b"c", b"U8", (0,), 0, 0), A, (b"b", b"U8", (0,), 4, 4))
good("empty_tensor_between", '{"a":%s,"b":%s,"c":%s}' % (entry(shape="[3]", offsets="[1,4]"), entry(shape="[0]", offsets="[1,1]"), entry(shape="[1]", offsets="[0,1]")),
     "of two that start at one place the one of no bytes is the first", (b"c", b"U8", (1,), 0, 1), (b"b", b"U8", (0,), 1, 1), (b"a", b"U8", (3,), 1, 4))

# ---- Not safetensors files: no tensor ----

bad("file_empty", "F-11", "", "nothing but N", n=0, data=b"")
bad("n_zero", "F-11", "", "no JSON", n=0)
bad("no_tensor", "F-15", "{}", "no tensor")
bad("only_metadata", "F-15", '{"__metadata__":{"format":"pt"}}', "no tensor")

# ---- Size ----

bad("n_beyond_file", "F-9", one(), "N reaches one byte beyond the file", n=len(one()) + 5)
bad("n_one_more", "F-11", one(), "N takes a byte of the tensor into the JSON", n=len(one()) + 1)
bad("n_one_less", "F-11", one(), "N cuts the JSON", n=len(one()) - 1)
bad("n_huge", "F-9", one(), "N is 2^64 - 1", n=(1 << 64) - 1)
bad("n_high_bit", "F-9", one(), "N is 2^63 more", n=len(one()) + (1 << 63))

# ---- JSON ----

bad("leading_space", "F-11", " " + one(), "the object starts in the first byte")
bad("leading_bom", "F-11", "\ufeff" + one(), "a byte order mark is not white space")
bad("utf16", "F-11", one().encode("utf-16-le"), "UTF-8 it must be")
bad("trailing_garbage", "F-11", one() + "x", "only white space may follow")
bad("trailing_zero", "F-11", one() + "\0", "a zero byte is not white space")
bad("trailing_object", "F-11", one() + "{}", "one object")
bad("array_outside", "F-11", "[%s]" % one(), "no object")
bad("not_closed", "F-11", one()[:-1], "the object does not end")
bad("comma_last", "F-11", one(after=","), "no comma behind the last member")
bad("comma_first", "F-11", "{," + one()[1:], "no comma before the first member")
bad("comma_missing", "F-11", '{"__metadata__":{}"a":%s}' % entry(), "a comma between two members")
bad("comma_last_of_array", "F-11", one(shape="[4,]"), "no comma behind the last element")
bad("colon_missing", "F-11", '{"a"%s}' % entry(), "a colon")
bad("key_unquoted", "F-11", one("a"), "keys are strings")
bad("quotes_single", "F-11", one("'a'"), "strings have double quotes")
bad("comment", "F-11", "{/**/" + one()[1:], "JSON has no comments")
bad("word_unknown", "F-11", meta("True"), "true, false and null are written so")
bad("word_longer", "F-11", meta("nulls"), "a word and something else")
bad("space_form_feed", "F-11", "{\f" + one()[1:], "form feed is not white space")
bad("space_no_break", "F-11", "{\u00a0" + one()[1:], "white space is that of ASCII")
bad("string_tab", "F-11", one('"a\tb"'), "a raw control character")
bad("string_zero", "F-11", meta('"\0"'), "a raw zero byte")
bad("string_unit_separator", "F-11", meta('"\x1f"'), "the last of the control characters")
bad("string_escape_x", "F-11", meta('"\\x41"'), "an unknown escape")
bad("string_escape_short", "F-11", meta('"\\u041"'), "three digits")
bad("string_escape_sign", "F-11", meta('"\\u+041"'), "a sign among the digits")
bad("string_escape_upper", "F-11", meta('"\\U0041"'), "the u of an escape is a small one")
bad("utf8_invalid", "F-10", meta('"@"').encode().replace(b"@", b"\xff"), "a byte that UTF-8 does not have")
bad("utf8_overlong", "F-10", meta('"@"').encode().replace(b"@", b"\xc1\x81"), "UTF-8 that is too long")
bad("utf8_surrogate", "F-10", meta('"@"').encode().replace(b"@", b"\xed\xa0\x80"), "a surrogate in UTF-8")
bad("utf8_surrogate_pair", "F-10", meta('"@"').encode().replace(b"@", b"\xed\xa0\xbd\xed\xb8\x80"), "a pair of surrogates in UTF-8")
bad("utf8_beyond", "F-10", meta('"@"').encode().replace(b"@", b"\xf4\x90\x80\x80"), "beyond U+10FFFF")
bad("utf8_cut", "F-10", meta('"@"').encode().replace(b"@", b"\xe4\xb8"), "a character that ends early")
for _name, _value in (("high", '"\\ud800"'), ("low", '"\\udc00"'), ("reversed", '"\\ude00\\ud83d"'), ("high_and_letter", '"\\ud83d\\u0041"'),
                      ("high_twice", '"\\ud83d\\ud83d\\ude00"'), ("high_at_end", '"x\\udbff"'), ("of_a_key", '{"\\ud800":0}')):
    bad("surrogate_" + _name, "F-13", meta(_value), "a lone surrogate, also within __metadata__")
bad("surrogate_in_name", "F-13", one('"\\ud800"'), "a lone surrogate in a Name")
bad("surrogate_in_entry", "F-13", one(more=',"x":"\\ud800"'), "a lone surrogate in a member that does not matter")
bad("metadata_depth_65", "F-12", meta(nested(64)), "arrays nested 65 deep")
bad("metadata_depth_65_objects", "F-12", meta('{"x":' * 63 + "{}" + "}" * 63), "objects nested 65 deep")
bad("entry_depth_65", "F-12", one(more=',"x":' + nested(63)), "nested 65 deep within an entry")
bad("metadata_depth_3000", "F-12", meta(nested(2999)), "nested far too deep")

# ---- Keys ----

bad("key_twice", "F-14", one(before='"a":%s,' % entry()), "a key twice")
bad("key_twice_escaped", "F-14", one(before='"\\u0061":%s,' % entry()), "a key twice, once escaped")
bad("key_twice_in_entry", "F-14", one(more=',"dtype":"U8"'), "a key twice in an entry")
bad("key_twice_in_entry_other", "F-14", one(more=',"x":0,"x":0'), "a key twice in an entry that does not matter")
bad("key_twice_in_metadata", "F-14", meta('{"x":"","x":""}'), "a key twice within __metadata__")
bad("key_twice_deep_in_metadata", "F-14", meta('[{"y":{"x":0,"\\u0078":0}}]'), "a key twice deep within __metadata__, once escaped")
bad("metadata_twice", "F-14", one(before='"__metadata__":{},', after=',"__metadata__":{}'), "__metadata__ twice")
bad("metadata_twice_escaped", "F-14", one(before='"__metadata__":{},"__metadata_\\u005f":{},'), "__metadata__ twice, once escaped")

# ---- Numbers ----

for _name, _value in (("point", "4.0"), ("exponent", "4e0"), ("minus_zero", "-0"), ("negative", "-4"), ("two_to_63", "9223372036854775808"),
                      ("two_to_64_more", "18446744073709551620"), ("long", "1" * 5000), ("true", "true"), ("null", "null"), ("string", '"4"'),
                      ("array", "[4]")):
    bad("shape_" + _name, "F-16", one(dtype='"X"', shape="[%s]" % _value), "an extent is 0 or [1-9][0-9]*, below 2^63")
for _name, _value in (("plus", "+4"), ("leading_zero", "04"), ("point_last", "4."), ("point_first", ".4"), ("hexadecimal", "0x4"),
                      ("other_digits", "\u0664"), ("infinity", "Infinity"), ("underscore", "4_0")):
    bad("shape_" + _name, "F-11", one(dtype='"X"', shape="[%s]" % _value), "no number of RFC 8259")
for _name, _value in (("nan", "NaN"), ("infinity", "Infinity"), ("minus_infinity", "-Infinity"), ("leading_zero", "-01"), ("point_last", "1.e1"),
                      ("minus", "-"), ("exponent_empty", "1e+"), ("other_digits", "1\u0664")):
    bad("metadata_" + _name, "F-11", meta("[%s]" % _value), "no number of RFC 8259, also within __metadata__")

# ---- Entries ----

for _rule, _name, _value in (
        ("F-16", "minus_zero", "[-0,4]"), ("F-16", "point", "[0,4.0]"), ("F-16", "exponent", "[0e0,4]"), ("F-16", "string", '["0",4]'),
        ("F-15", "one", "[0]"), ("F-15", "three", "[0,4,4]"), ("F-15", "object", '{"0":0,"1":4}'), ("F-17", "backwards", "[4,0]"),
        ("F-17", "gap_first", "[1,4]"), ("F-17", "beyond_file", "[0,5]"), ("F-16", "two_to_64", "[18446744073709551616,18446744073709551620]")):
    bad("offsets_" + _name, _rule, one(dtype='"X"', offsets=_value), "data_offsets: two numbers, the first not the greater one; from 0, within the file")
bad("offsets_gap", "F-17", '{"a":%s,"b":%s}' % (entry(shape="[1]", offsets="[0,1]"), entry(shape="[2]", offsets="[2,4]")), "a gap between two tensors")
bad("offsets_overlap", "F-17", '{"a":%s,"b":%s}' % (entry(shape="[3]", offsets="[0,3]"), entry(shape="[2]", offsets="[2,4]")), "two tensors overlap")
bad("offsets_same", "F-17", '{"a":%s,"b":%s}' % (entry(), entry()), "two tensors of the same bytes")
bad("offsets_empty_inside", "F-17", '{"a":%s,"b":%s}' % (entry(), entry(shape="[0]", offsets="[2,2]")), "a tensor of no bytes within another")
bad("size_less", "F-18", one(shape="[3]"), "shape and dtype say less bytes")
bad("size_more", "F-18", one(dtype='"U16"'), "shape and dtype say more bytes")
bad("size_half_byte", "F-18", one(dtype='"F4"', shape="[7]"), "no whole number of bytes")
bad("size_overflow", "F-18", one(shape="[4294967296,4294967296]", offsets="[0,0]"), "2^64 bytes are not 0 bytes")
bad("size_overflow_bits", "F-18", one(dtype='"F64"', shape="[288230376151711744]", offsets="[0,0]"), "2^64 bits are not 0 bits")
bad("rank_33", "F-18", one(shape="[%s4]" % ("1," * 32)), "rank 33")
bad("dtype_empty", "F-18", one(dtype='""'), "a Dtype has a byte")
bad("dtype_33_bytes", "F-18", one(dtype='"%s"' % ("x" * 33)), "a Dtype has at most 32 bytes")
bad("dtype_number", "F-15", one(dtype="8"), "a dtype is a string")
bad("dtype_zero_character", "F-18", one(dtype='"U8\\u0000"'), "a zero byte in a Dtype")
bad("name_zero_character", "F-18", one('"a\\u0000"'), "a zero byte in a Name")
good("name_longest", one('"%s"' % ("a" * 65535)), "a Name of 65,535 bytes", (b"a" * 65535, b"U8", (4,), 0, 4))
bad("name_too_long", "F-18", one('"%s"' % ("a" * 65536)), "a Name has at most 65,535 bytes")
bad("dtype_missing", "F-15", '{"a":{"shape":[4],"data_offsets":[0,4]}}', "no dtype")
bad("shape_missing", "F-15", '{"a":{"dtype":"U8","data_offsets":[0,4]}}', "no shape")
bad("offsets_missing", "F-15", '{"a":{"dtype":"U8","shape":[4]}}', "no data_offsets")
bad("key_other_case", "F-15", '{"a":{"Dtype":"U8","shape":[4],"data_offsets":[0,4]}}', "keys are compared as they are")
bad("shape_object", "F-15", one(shape='{"0":4}'), "a shape is an array")
bad("entry_array", "F-15", '{"a":["U8",[4],[0,4]]}', "an entry is an object")
bad("entry_null", "F-15", one(after=',"b":null'), "an entry is an object, each of them")
bad("metadata_other_case", "F-15", meta("{}", '"__METADATA__"'), "that is a tensor, and has no entry")


def main():
    import foreign_bases
    failed = 0
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    for variant in VARIANTS:
        data = content(variant)
        start = len(data) - len(variant.data)
        try:
            found = [(t.name, t.dtype, t.shape, t.offset - start, t.end - start) for t in foreign_bases.read_safetensors(data)]
            right = variant.rule is None and found == variant.tensors
        except foreign_bases.LmcError as error:
            found, right = error, variant.rule is not None and "(%s)" % variant.rule in error.text
        if not right:
            failed += 1
            print("FAILED %s: %s: found %s" % (variant.name, variant.reason, found))
    print("%d variants, %d of them safetensors files; %d failed" % (len(VARIANTS), sum(map(is_safetensors, VARIANTS)), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
