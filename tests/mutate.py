#!/usr/bin/env python3
"""How strong the tests are: plausible bugs, put into lmc.h one at a time. Each must make a test fail.

Usage: mutate.py [OPTION...] [TEXT...]    all bugs, or those whose name has one of the texts, or whose group is it
    --list          what there is
    --first         the first suites of each group only
    --suites=A,B    these suites; --suites=check: those of `make check`
    --results=FILE  where results are kept, in build/mutate; default: results.json. A run goes on where the last one with that file ended: bugs
                    that were caught, and suites that were tried, are not tried again
    --again         they are
    --survivors     those only that earlier runs have not caught
    --jobs=N        default 2

`make check` is calibrated by two runs: mutate.py, and mutate.py --suites=check --results=check.json, whose last lines compare the two.

Each bug is the work of a moment: an off-by-one, a check left out, a status lost, a buffer not freed, the wrong one of two variables. None is
a matter of speed alone, or equivalent to what stands there: one that turns out to be so is replaced. The library is compiled with each (where
the bug is not in vector code: without that, which takes a third of the time), linked with the test programs as they are, and these run, the
likeliest first, until one fails, crashes or hangs. The table goes to build/mutate/table.md; exit status 1 below 95 %.
"""
import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "build", "mutate")
HANG = 240  # seconds: no program takes a fourth of that

# Compiler, linker's flags, emulator. Bugs that only other machines or sanitizers can see have groups of their own.
BUILDS = {
    "scalar": (["gcc", "-O1", "-DLMC_NO_SIMD"], [], []),
    "simd": (["gcc", "-O1"], [], []),
    "m32": (["gcc", "-m32", "-O1"], [], []),
    "ubsan": (["gcc", "-O1", "-DLMC_NO_SIMD", "-fsanitize=undefined", "-fno-sanitize-recover=all"], [], []),
    "asan": (["gcc", "-O1", "-DLMC_NO_SIMD", "-fsanitize=address"], [], []),
    "tsan": (["gcc", "-O1", "-DLMC_NO_SIMD", "-fsanitize=thread"], [], []),
    "s390x": (["s390x-linux-gnu-gcc", "-O1"], ["-static"], ["qemu-s390x"]),
}
# The suites of each group, as BUILD:PROGRAM; "vectors" are the conformance vectors through the library. Quick ones first (PROGRAM-).
FIRST = {
    "kernel": ["simd:kernels"],
    "endian": ["s390x:kernels-"],
    "m32": ["m32:snapshot-", "m32:quantise-", "m32:tensor"],
    "alignment": ["ubsan:block-"],
    "threads": ["tsan:tensor-"],
    "encode": ["simd:tensor-", "simd:block-"],
    "decode": ["simd:corrupt-", "simd:vectors", "simd:block-", "simd:quantise-", "simd:delta-"],
    "delta": ["simd:vectors", "simd:delta-"],
    "quantise": ["simd:quantise-"],
    "tensor": ["simd:tensor-"],
    "snapshot": ["simd:snapshot-", "simd:corrupt-", "simd:vectors"],
    "in_place": ["simd:in_place-"],
}
PROGRAMS = ["tensor", "snapshot", "in_place", "corrupt", "quantise", "block", "delta", "salvage"]
LAST = ["simd:%s-" % program for program in PROGRAMS] + ["simd:vectors"] + ["simd:" + program for program in PROGRAMS] + [
    "asan:snapshot-", "asan:corrupt-", "asan:vectors", "asan:delta-"]
# Those of `make check`: brief (PROGRAM~)
CHECK = ["simd:%s~" % program for program in ["kernels"] + PROGRAMS] + ["simd:vectors", "simd:digest"] + [
    "asan:%s~" % program for program in ("corrupt", "snapshot", "delta", "block", "quantise", "salvage", "in_place")]


BUGS = [  # name, group, text (there once), text in its place
    # == kernels
    ("crc32c scalar: the lanes are joined in the wrong order", "kernel",
     "        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc1;\n        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc2;",
     "        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc2;\n        crc = lmc__crc_multiply(crc, LMC__CRC_LANE3_SHIFT) ^ crc1;"),
    ("crc32c AVX2: the other lanes are not cleared for the next round", "kernel",
     "lmc__crc_lanes(c, p, i);\n        c[0] = lmc__crc_join_lanes(c);\n        c[1] = c[2] = c[3] = 0;",
     "lmc__crc_lanes(c, p, i);\n        c[0] = lmc__crc_join_lanes(c);"),
    ("crc32c AVX-512: folded over half the distance", "kernel",
     "const __m512i k256 = lmc__crc_factor(4);",
     "const __m512i k256 = lmc__crc_factor(2);"),
    ("count_bytes: 16-bit counters overflow", "encode",
     "const size_t most = (size_t)8 << 15;",
     "const size_t most = (size_t)8 << 16;"),
    ("is_constant: the end is not looked at", "kernel",
     "memcmp(src, src + 1, n - 1) == 0;",
     "memcmp(src, src + 1, (n - 1) & ~(size_t)7) == 0;"),
    ("split scalar: the tail is one element short", "kernel",
     "memcpy(planes->row[p] + i, out, n - i);",
     "memcpy(planes->row[p] + i, out, n - i - 1);"),
    ("map AVX2: the last entry of a row of the table is not looked at", "kernel",
     "if (_mm_movemask_epi8(_mm_cmpeq_epi8(more, _mm_setzero_si128())) == 0xFFFF) continue;",
     "if ((_mm_movemask_epi8(_mm_cmpeq_epi8(more, _mm_setzero_si128())) & 0x7FFF) == 0x7FFF) continue;"),
    ("map AVX-512: a shift by 64 where exactly a vector is left", "kernel",
     "const __mmask64 valid = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;\n"
     "_mm512_mask_storeu_epi8(dst + i, valid,\n"
     "lmc__map_step_avx512(",
     "const __mmask64 valid = n - i > 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;\n"
     "_mm512_mask_storeu_epi8(dst + i, valid,\n"
     "lmc__map_step_avx512("),
    ("rotate AVX2: bytes get bits of their neighbours", "kernel",
     "_mm256_andnot_si256(low7, _mm256_slli_epi16(v, 7))",
     "_mm256_slli_epi16(v, 7)"),
    ("split_root: the left list of a strip is misplaced", "kernel",
     "*const left = root->left ? root->left + (i - done.n_right) : NULL,",
     "*const left = root->left ? root->left + i : NULL,"),
    ("split_root AVX2: the rest begins as if no ones were before it", "kernel",
     "done.n = i;\n"
     "done.n_right = n_right;\n"
     "done.crc = ~(uint32_t)c[0];\n"
     "return done;",
     "done.n = i;\n"
     "done.n_right = 0;\n"
     "done.crc = ~(uint32_t)c[0];\n"
     "return done;"),
    ("partition scalar: unused bits of the mask are set", "kernel",
     "        m &= all;\n        ones = lmc__ones[m];",
     "        ones = lmc__ones[m & all];"),
    ("partition AVX2: elements behind the end are taken", "kernel",
     "lmc__compare_avx2(v, s) & (((uint32_t)1 << (n - i)) - 1);",
     "lmc__compare_avx2(v, s);"),
    ("partition AVX-512: the mask's last 8 bytes are written whole", "kernel",
     "memcpy(mask + i / 8, bits, (n - i + 7) / 8);\n"
     "if (want_right) _mm512_storeu_si512(",
     "memcpy(mask + i / 8, bits, 8);\n"
     "if (want_right) _mm512_storeu_si512("),
    ("merge scalar: the left list goes on by the wrong number, next to a constant", "kernel",
     "(r & lmc__byte_mask[m]));\n            a += 8 - lmc__ones[m];",
     "(r & lmc__byte_mask[m]));\n            a += lmc__ones[m];"),
    ("merge AVX2: bit 15 is not counted", "kernel",
     "one = lmc__spread_bits_avx2(m);\n    const size_t half = (size_t)_mm_popcnt_u64(m & 0xFFFF);",
     "one = lmc__spread_bits_avx2(m);\n    const size_t half = (size_t)_mm_popcnt_u64(m & 0x7FFF);"),
    ("merge AVX-512: a constant on the right is taken for one on the left", "kernel",
     ": _mm512_mask_mov_epi8(v, m, r);",
     ": _mm512_mask_mov_epi8(r, m, v);"),
    ("flatten scalar: unused bits are set", "kernel",
     "        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;\n",
     ""),
    ("flatten AVX2: the end of a plane is written over the next one", "kernel",
     "memcpy(bits + d * row + i / 8, word, (n - i + 7) / 8);",
     "memcpy(bits + d * row + i / 8, word, 4);"),
    ("unflatten AVX-512: 64 symbols are read, however many there are", "kernel",
     "_mm512_maskz_loadu_epi8(depth == 6 ? ~(__mmask64)0 : ((__mmask64)1 << (1 << depth)) - 1, symbols)",
     "_mm512_loadu_si512(symbols)"),
    ("count_ones AVX-512: a shift by 64", "kernel",
     "valid = size - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (size - i)) - 1;",
     "valid = size - i > 64 ? ~(__mmask64)0 : ((__mmask64)1 << (size - i)) - 1;"),
    ("count_ones AVX2: whole words behind the last vector are left out", "kernel",
     "    for (; i + 8 <= size; i += 8) ones += (size_t)_mm_popcnt_u64(lmc__load64(mask + i));\n"
     "    for (; i < size; i++) rest = rest << 8 | mask[i];",
     "    for (; i < size; i++) rest = rest << 8 | mask[i];"),
    ("join_root AVX2: the last vector of what is streamed is missing", "kernel",
     "    lmc__store_avx2(dst + i * width - 32, lmc__load_avx2(to + LMC__STRIP_SIZE - 32));\n",
     ""),
    ("streams AVX-512: an end is written beyond dst", "kernel",
     "_mm512_mask_storeu_epi8(end + s->head - 64, ~(__mmask64)0 >> s->head,\n"
     "_mm512_permutex2var_epi8(s->last, s->shift, s->last));",
     "_mm512_storeu_si512(end + s->head - 64,\n"
     "_mm512_permutex2var_epi8(s->last, s->shift, s->last));"),
    ("streams AVX-512: the first, incomplete line is not written", "kernel",
     "if (is_first) _mm512_mask_storeu_epi8(at, ((__mmask64)1 << s->head) - 1, v);\n"
     "else\n"
     "_mm512_stream_si512(",
     "if (!is_first)\n"
     "_mm512_stream_si512("),
    ("classes: a key that equals a threshold belongs to the class below", "kernel",
     "key >= grouping->threshold[c]) c++;",
     "key > grouping->threshold[c]) c++;"),
    ("classes AVX2: thresholds off by one", "kernel",
     "highest[c] = _mm256_set1_epi8((char)(grouping->threshold[c] - 1));",
     "highest[c] = _mm256_set1_epi8((char)grouping->threshold[c]);"),
    ("count_classes AVX-512: the last class gets all", "kernel",
     "counts[c] += (c ? above[c - 1] : i) - above[c];",
     "counts[c] += c ? above[c - 1] : i - above[c];"),
    ("group AVX-512: element 33 of a class is lost", "kernel",
     "if (ones > 32) lmc__store_avx512(to, x);",
     "if (ones > 33) lmc__store_avx512(to, x);"),
    ("group AVX2: the second half goes where the first began", "kernel",
     "const size_t at = next[c] + (j ? (size_t)_mm_popcnt_u64(m & 0xFFFF) : 0);",
     "const size_t at = next[c];"),
    ("residual AVX-512: signs of 8-byte elements by their halves", "kernel",
     ": width == 4 ? _mm512_srai_epi32(v, 31) : _mm512_srai_epi64(v, 63);",
     ": _mm512_srai_epi32(v, 31);"),
    ("residual scalar: the difference is not cut to its width", "kernel",
     "return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;",
     "return (d << 1) ^ (0 - (d >> (8 * width - 1)));"),
    ("restore_element: the sign is the residual's", "kernel",
     "return (ordered & sign_bit ? ordered ^ below : ordered) ^ (base & sign_bit);",
     "return (ordered & sign_bit ? ordered ^ below : ordered) ^ (r & sign_bit);"),
    ("ungroup scalar: lists do not go on", "kernel",
     "const size_t at = next[c]++;\n"
     "uint64_t r",
     "const size_t at = next[c];\n"
     "uint64_t r"),
    ("big-endian: load64 has its halves the wrong way round", "endian",
     "return (uint64_t)lmc__load32(p) | (uint64_t)lmc__load32(p + 4) << 32;",
     "return (uint64_t)lmc__load32(p) << 32 | lmc__load32(p + 4);"),
    ("big-endian: 16-bit elements are stored as the machine has them", "endian",
     "    for (i = 0; i < 16; i++) lmc__store16(dst + 2 * i, v[i]);",
     "    for (i = 0; i < 16; i++) memcpy(dst + 2 * i, &v[i], 2);"),

    # == kernels: grids
    ("divide: cut, not rounded", "quantise",
     "    m = ((m >> drop) + 1) >> 1;",
     "    m = (m >> drop) >> 1;"),
    ("restore_log scalar: no lower limit", "quantise",
     "if (v < (int64_t)LMC__MIN_SCALE) v = (int64_t)LMC__MIN_SCALE;\n"
     "if (v > (int64_t)LMC__MAX_LOG_SCALE) v",
     "if (v > (int64_t)LMC__MAX_LOG_SCALE) v"),
    ("restore_rows of vectors: far negative points overflow", "quantise",
     "q = LMC__PICK(q < -limit, -limit, q);",
     ""),
    ("quantize_log scalar: negative values on a grid without signs", "quantise",
     "(x & 0x7FFFFFFF) > LMC__MAX_LOG_SCALE || (x >> 31 && !grid->is_signed) || u >> 31",
     "(x & 0x7FFFFFFF) > LMC__MAX_LOG_SCALE || u >> 31"),
    ("quantize_rows of vectors: the division's factor is rounded down", "quantise",
     "d.magic = ((uint64_t)1 << d.shift) / divisor + 1;",
     "d.magic = ((uint64_t)1 << d.shift) / divisor;"),
    ("quantize: -0 becomes 0", "quantise",
     "    if (x == 0) return 0;\n    if (!lmc__is_normal(x) || (uint32_t)(q - grid->min) >= grid->n_points) return LMC__EXCEPTION;",
     "    if ((x & 0x7FFFFFFF) == 0) return 0;\n    if (!lmc__is_normal(x) || (uint32_t)(q - grid->min) >= grid->n_points) return LMC__EXCEPTION;"),
    ("sum_magnitudes of vectors: infinities are counted", "quantise",
     "is = (LMC__I32)(x - 0x00800000u < 0x7F000000u);",
     "is = (LMC__I32)(x - 0x00800000u <= 0x7F000000u);"),
    ("predicted scales: the floor is left out", "quantise",
     "half = (int32_t)((p > grid->floor ? p : grid->floor) >> 1) + grid->bias;",
     "half = (int32_t)(p >> 1) + grid->bias;"),
    ("cut_symbols of vectors: low bits beyond the lowest", "quantise",
     "s & (uint16_t)((1u << low_bits) - 1), LMC__ISA(w8)",
     "s & (uint16_t)(1u << low_bits), LMC__ISA(w8)"),

    # == codec: dtypes, trees, the workspace
    ("BF16 is not coded as a float", "encode",
     '{"BF16", 16, 2, 1}',
     '{"BF16", 16, 2, 0}'),
    ("C64 is coded as elements of 8 bytes", "encode",
     '{"C64", 64, 4, 1}',
     '{"C64", 64, 8, 1}'),
    ("trees: 257 leaves are accepted", "decode",
     "if (n < 2 || n > 256 || used",
     "if (n < 2 || used"),
    ("trees: incomplete codes are accepted", "decode",
     "used != 1u << LMC__MAX_LENGTH) return 0;",
     "used > 1u << LMC__MAX_LENGTH) return 0;"),
    ("trees: an escape that is not the longest is accepted", "decode",
     "        if (escape_length && length > escape_length && counts[length]) return 0;\n",
     ""),
    ("trees: flat nodes of 7 levels", "decode",
     "flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT",
     "flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT + 1"),
    ("trees: the escape may be in a flat node", "decode",
     "return node.end_leaf <= tree->escape && tree->length",
     "return node.end_leaf <= tree->escape + 1 && tree->length"),
    ("trees: an escape on the right is a leaf without a list", "encode",
     "root->right = lmc__is_one_symbol(tree, children.right) ? NULL : split->root_spare;",
     "root->right = children.right.end_leaf - children.right.first_leaf == 1 ? NULL : split->root_spare;"),
    ("frozen trees: masks of mostly ones are not flipped", "decode",
     "tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);",
     "tree->symbol[i] = (uint8_t)lmc__frozen_order[i], (void)flip;"),
    ("workspace: masks of a path are not all counted", "decode",
     "return (LMC__MAX_LENGTH + 1) * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);",
     "return LMC__MAX_NESTING * (m + LMC__PAD) + lmc__mask_stack_size(m, nesting + 1);"),
    ("workspace: aligned by the wrong amount", "alignment",
     "    size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;\n    stack->top",
     "    size_t skip = (uintptr_t)ws & 15;\n    stack->top"),

    # == codec: encoding lists and blocks
    ("plans: bytes that the sample lacks have no code", "encode",
     "has_escape = n_kept < n_symbols || (sampled && n_symbols < 256) || n_symbols == 1;",
     "has_escape = n_kept < n_symbols || n_symbols == 1;"),
    ("plans: a sample of one byte is taken for a constant plane", "encode",
     "if (n_symbols == 1 && !sampled) {",
     "if (n_symbols == 1) {"),
    ("Huffman: lengths over 15 are not cut", "encode",
     "length = depth[i] < LMC__MAX_LENGTH ? depth[i] : LMC__MAX_LENGTH - 1;",
     "length = depth[i];"),
    ("nested masks: no look at the room", "encode",
     "if (coded + 1 > (size_t)(e->end - mode)) return 0;",
     ""),
    ("masks without a mode byte: no look at the room", "encode",
     "    if (row > (size_t)(e->end - e->out)) return 0;\n    if (mask != e->out)",
     "    if (mask != e->out)"),
    ("nodes: no look at the room for escaped bytes", "encode",
     "        if (n > room) return 0;\n",
     ""),
    ("nodes: no look at the room for flat ones", "encode",
     "if (flat_depth * row > room) return 0;",
     ""),
    ("nodes: masks of 256 bits have no mode byte when written", "encode",
     "if (lmc__has_mode(nesting, n)) return lmc__put_mask(",
     "if (n > LMC__MASK_MODE_MIN && lmc__has_mode(nesting, n)) return lmc__put_mask("),
    ("nodes: the right child's spare is what the left one still needs", "encode",
     "lmc__put_node(e, children.left, left, right + n_right, n - n_right)",
     "lmc__put_node(e, children.left, left, right, n - n_right)"),
    ("planes: a tree that did not fit is not taken back", "encode",
     "e->out = start;\n"
     "return LMC__PUT_SPOILED;",
     "(void)start;\n"
     "return LMC__PUT_SPOILED;"),
    ("planes: a tree that did not fit leaves its ranks as the raw plane", "encode",
     "(void)lmc__split_planes(e->k, &split);\n"
     "put = lmc__put_raw",
     "put = lmc__put_raw"),
    ("samples: the last run may end behind the block", "encode",
     "free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;",
     "free = n / LMC__SAMPLE_RUNS;"),
    ("LMC_AUTO: a width that does not divide the size", "encode",
     "        if (size % w) break;\n",
     ""),
    ("stored blocks: no look at dst_cap", "encode",
     "if (cap < size) return LMC_ERR_DST_TOO_SMALL;\n"
     "header |= LMC__LAYOUT_STORED",
     "header |= LMC__LAYOUT_STORED"),
    ("blocks: a dst smaller than a header", "encode",
     "if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;\n"
     "cap = dst_cap - LMC_BLOCK_HEADER_SIZE;\n"
     "e.k = k;",
     "cap = dst_cap - LMC_BLOCK_HEADER_SIZE;\n"
     "e.k = k;"),
    ("blocks: the largest is refused", "encode",
     "        size / width > LMC_MAX_BLOCK_ELEMENTS)\n",
     "        size / width >= LMC_MAX_BLOCK_ELEMENTS)\n"),
    ("blocks: parts of elements are accepted", "encode",
     "size == 0 || size % width ||\n",
     "size == 0 ||\n"),
    ("workspace of exactly the size is refused", "encode",
     "return needed != 0 && ws_size >= needed;",
     "return needed != 0 && ws_size > needed;"),
    ("lmc_block_bound overflows", "encode",
     "return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;",
     "return size + LMC_BLOCK_HEADER_SIZE;"),
    ("deltas: a larger one is kept", "delta",
     "lmc__encode_delta(e, coding, dst, lmc__min(cap, best - 1), block, &delta)",
     "lmc__encode_delta(e, coding, dst, cap, block, &delta)"),
    ("deltas: the direct coding is not made again", "delta",
     "if (coding->payload_size) lmc__encode_direct(e, coding, dst, cap, block);",
     ""),
    ("deltas: the header does not say how residuals were made", "delta",
     "coding->subtract = delta->subtract;",
     ""),
    ("sparse deltas: bits behind the end of a mask", "delta",
     "const unsigned in_byte = (unsigned)lmc__min(8, n - i);",
     "const unsigned in_byte = 8;"),
    ("deltas: a list that did not fit as a tree is not made again", "delta",
     "(void)lmc__make_classes(e->k, g);\n"
     "return lmc__put_raw(e, row, n);",
     "return lmc__put_raw(e, row, n);"),
    ("deltas: classes are merged that lose most by it", "delta",
     "if (m.saved[i] > m.saved[best]) best = i;",
     "if (m.saved[i] < m.saved[best]) best = i;"),
    ("deltas: thresholds are the first classes'", "delta",
     "m->first_key[i] = m->first_key[i + 1];",
     ""),

    # == codec: encoding quantised blocks
    ("quantised BF16: exceptions are overwritten by what is restored", "quantise",
     "for (i = 0; i < in->n && exceptions; i++)\n"
     "if (strip->symbols[i] == LMC__EXCEPTION) memcpy(restored + 4 * i, x + 4 * i, 4);",
     ""),
    ("quantised BF16: NaN are made quiet", "quantise",
     "(uint16_t)(v & 0xFFFF ? lmc__to_bf16(v) : v >> 16)",
     "(uint16_t)lmc__to_bf16(v)"),
    ("quantised blocks: more exceptions than there is room for", "quantise",
     "exceptions.max = fits ? ((size_t)(e->end - e->out) - fixed) / (4 + width) : 0;",
     "exceptions.max = fits ? ((size_t)(e->end - e->out) - fixed) / (3 + width) : 0;"),
    ("quantised blocks: one group too many where the last ends with the block", "quantise",
     "n_groups = (size_t)((first + n - 1) / q->group_size - group) + 1;",
     "n_groups = (size_t)((first + n) / q->group_size - group) + 1;"),
    ("recovered quantisers: lossy where they are not exact", "quantise",
     "if (q->is_recovered && (payload_size == 0 || memcmp(restored, source->elements, size) != 0))",
     "if (q->is_recovered && payload_size == 0)"),
    ("quantised blocks: reserved bytes are not cleared", "quantise",
     "memset(dst, 0, LMC__QUANTIZED_HEADER);",
     ""),
    ("quantised blocks: stored, without a look at the room", "quantise",
     "        if (cap < size) return LMC_ERR_DST_TOO_SMALL;\n        payload_size = size;",
     "        payload_size = size;"),

    # == codec: decoding lists
    ("masks: bits behind the end are accepted", "decode",
     "    LMC__CHECK(lmc__is_tail_clear(*mask, size, n), LMC_ERR_CORRUPT);\n",
     ""),
    ("masks: a mode too many", "decode",
     "LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS, LMC_ERR_CORRUPT);",
     "LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS + 2, LMC_ERR_CORRUPT);"),
    ("masks: no look at what is left of the input", "decode",
     "*mask = lmc__take(d, size);\n"
     "LMC__CHECK(*mask, LMC_ERR_CORRUPT);",
     "*mask = lmc__take(d, size);"),
    ("masks of 256 bits have no mode byte when read", "decode",
     "return n >= LMC__MASK_MODE_MIN && nesting",
     "return n > LMC__MASK_MODE_MIN && nesting"),
    ("masks: nested one deeper", "decode",
     "return n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;",
     "return n >= LMC__MASK_MODE_MIN && nesting <= LMC__MAX_NESTING;"),
    ("nodes: a nested mask's room is freed before its node is done", "decode",
     "        d->stack.top = spare; /* the list stays for as long as its node needs it */",
     "        d->stack.top = list;"),
    ("nodes: the room of nested masks is not freed", "decode",
     "    d->k->merge(list, sides.mask, n, sides.left, sides.right);\n    d->stack.top = top;\n",
     "    d->k->merge(list, sides.mask, n, sides.left, sides.right);\n    (void)top;\n"),
    ("flat nodes: one plane's room is looked at, not all", "decode",
     "const uint8_t *const bits = lmc__take(d, flat_depth * row);",
     "const uint8_t *const bits = lmc__take(d, row);\n"
     "d->in += bits ? (flat_depth - 1) * row : 0;"),
    ("flat nodes: the last plane's unused bits are not looked at", "decode",
     "for (i = 0; i < flat_depth; i++)\n"
     "LMC__CHECK(lmc__is_tail_clear(",
     "for (i = 0; i + 1 < flat_depth; i++)\n"
     "LMC__CHECK(lmc__is_tail_clear("),
    ("escaped bytes: no look at what is left of the input", "decode",
     "LMC__CHECK(symbols, LMC_ERR_CORRUPT);\n"
     "memcpy(list, symbols, n);",
     "memcpy(list, symbols, n);"),
    ("tree headers: a symbol above 255", "decode",
     "LMC__CHECK(first + count <= 256, LMC_ERR_CORRUPT);",
     "LMC__CHECK(first + count <= 257, LMC_ERR_CORRUPT);"),
    ("tree headers: lengths that are not there", "decode",
     "fields = lmc__take(d, (n_fields + 1) / 2);\n"
     "LMC__CHECK(fields, LMC_ERR_CORRUPT);",
     "fields = d->in;\n"
     "d->in += (n_fields + 1) / 2;"),
    ("tree headers: a last symbol without a code is accepted", "decode",
     "LMC__CHECK(lengths[0] && lengths[count - 1], LMC_ERR_CORRUPT);",
     "LMC__CHECK(lengths[0], LMC_ERR_CORRUPT);"),
    ("tree headers: the unused half of the last byte is not looked at", "decode",
     "LMC__CHECK(n_fields % 2 == 0 || fields[n_fields / 2] >> 4 == 0, LMC_ERR_CORRUPT);",
     ""),
    ("tree headers: an escape of length 0 is accepted", "decode",
     "        LMC__CHECK(escape_length, LMC_ERR_CORRUPT);\n",
     ""),

    # == codec: decoding blocks
    ("planes: bytes behind the last are accepted", "decode",
     "LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);\n"
     "if (joined_bits) {",
     "if (joined_bits) {"),
    ("planes: an unknown mode is taken for a tree", "decode",
     "LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);\n"
     "if (mode != LMC__PLANE_CONSTANT && root->mask)",
     "if (mode != LMC__PLANE_CONSTANT && root->mask)"),
    ("lists: raw ones at the input's end are used in place", "decode",
     "if (mode == LMC__PLANE_RAW && (size_t)(d->end - d->in) >= n + LMC__PAD) {",
     "if (mode == LMC__PLANE_RAW && (size_t)(d->end - d->in) >= n) {"),
    ("lists: a constant behind the input's end", "decode",
     "        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);\n        side->value = *d->in++;",
     "        side->value = *d->in++;"),
    ("classes: thresholds may be equal", "decode",
     "LMC__CHECK(thresholds[c] > (c ? thresholds[c - 1] : 0), LMC_ERR_CORRUPT);",
     "LMC__CHECK(thresholds[c] >= (c ? thresholds[c - 1] : 0), LMC_ERR_CORRUPT);"),
    ("classes: thresholds that are not there", "decode",
     "LMC__CHECK(thresholds, LMC_ERR_CORRUPT);",
     "if (!thresholds) thresholds = d->in;"),
    ("classes: bytes behind the last list are accepted", "decode",
     "    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);\n    if (base) *crc",
     "    if (base) *crc"),
    ("classes: without a base a constant plane is left unset", "decode",
     "memset(list, sides[p].value, n);\n"
     "planes.row[p] = list;",
     "planes.row[p] = list;"),
    ("quantised: codes above 127 count as valid", "decode",
     "more |= limit < 128 ? carry | v : carry & v;",
     "more |= limit < 128 ? carry : carry & v;"),
    ("quantised: the last, odd codes are not looked at", "decode",
     "    for (; i < n; i++) more |= p[i] > limit;\n",
     ""),
    ("quantised: a position twice", "decode",
     "LMC__CHECK(position < info->n && (i == 0 || position > previous), LMC_ERR_CORRUPT);",
     "LMC__CHECK(position < info->n && (i == 0 || position >= previous), LMC_ERR_CORRUPT);"),
    ("quantised: a position behind the block", "decode",
     "LMC__CHECK(position < info->n && (i == 0 || position > previous), LMC_ERR_CORRUPT);",
     "LMC__CHECK(i == 0 || position > previous, LMC_ERR_CORRUPT);"),
    ("quantised: subnormal scales are accepted", "decode",
     "LMC__CHECK(lmc__scale_at(head, i) >= LMC__MIN_SCALE && lmc__scale_at(head, i) <= largest,",
     "LMC__CHECK(lmc__scale_at(head, i) <= largest,"),
    ("quantised: scales of linear grids up to those of logarithmic ones", "decode",
     "largest = q->grid.is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE;",
     "largest = LMC__MAX_LOG_SCALE;"),
    ("quantised: a first group longer than a group", "decode",
     "head->first_group >= 1 &&\n"
     "head->first_group <= group_size,",
     "head->first_group >= 1,"),
    ("quantised: any floor is accepted", "decode",
     "LMC__CHECK(!q->grid.is_log && q->grid.floor <= 0x7F800000u && group_size == 0",
     "LMC__CHECK(!q->grid.is_log && group_size == 0"),
    ("quantised: signs on a linear grid are accepted", "decode",
     "    LMC__CHECK(q->grid.is_log || !q->grid.is_signed, LMC_ERR_CORRUPT);\n",
     ""),
    ("quantised: tables may have equal entries", "decode",
     "LMC__CHECK(q->table[i] > previous, LMC_ERR_CORRUPT);",
     "LMC__CHECK(q->table[i] >= previous, LMC_ERR_CORRUPT);"),
    ("quantised: exceptions of the first strip only", "quantise",
     "(place = lmc__load32(head->positions + 4 * exception)) < i + part;",
     "(place = lmc__load32(head->positions + 4 * exception)) < part;"),
    ("block headers: a payload as long as the elements is not stored", "decode",
     "else LMC__CHECK(payload_size < size, LMC_ERR_CORRUPT);",
     "else LMC__CHECK(payload_size <= size, LMC_ERR_CORRUPT);"),
    ("block headers: no elements", "decode",
     "LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);",
     "LMC__CHECK(info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);"),
    ("block headers: more elements than the limit", "decode",
     "LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);",
     "LMC__CHECK(info->n >= 1, LMC_ERR_CORRUPT);"),
    ("block headers: quantised bytes", "decode",
     "LMC__CHECK((width == 2 || width == 4) && !subtract && !joint",
     "LMC__CHECK(!subtract && !joint"),
    ("block headers: the checksum is not compared", "decode",
     "LMC__CHECK(lmc__header_crc(k, src, position) == lmc__load32(src + LMC__BLOCK_CRC_AT),\n"
     "LMC_ERR_CHECKSUM);\n"
     "return lmc__parse_block_info(src, info);",
     "(void)k, (void)position;\n"
     "return lmc__parse_block_info(src, info);"),
    ("blocks: the decoded bytes' CRC is not compared", "decode",
     "    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);\n",
     "    (void)crc;\n"),
    ("blocks: bytes behind a block are accepted", "decode",
     "    LMC__CHECK(info.encoded_size == src_size, LMC_ERR_CORRUPT);\n    if (info.size > dst_cap)",
     "    if (info.size > dst_cap)"),
    ("blocks: a prediction of another size", "delta",
     "        LMC__CHECK(prediction_size == info.size, LMC_ERR_BASE_WRONG);\n",
     "        (void)prediction_size;\n"),
    ("blocks: no look at dst_cap when decoding", "decode",
     "    if (info.size > dst_cap) return LMC_ERR_DST_TOO_SMALL;\n",
     "    (void)dst_cap;\n"),

    # == tensor
    ("waves: a wrong prediction of the snapshot's own is a wrong base", "delta",
     "if (job->job.status == LMC_ERR_BASE_WRONG && job->is_own_prediction)\n"
     "job->job.status = LMC_ERR_CORRUPT;",
     ""),
    ("waves: all workers share one workspace when encoding", "threads",
     "    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;\n    const uint8_t *content",
     "    uint8_t *ws = wave->workspaces + 0 * worker;\n    const uint8_t *content"),
    ("waves: the last block's error is not seen", "tensor",
     "for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);",
     "for (i = 0; i + 1 < n; i++) LMC__TRY(wave->jobs[i].status);"),
    ("waves: parts of blocks are taken from their beginning", "tensor",
     "memcpy(job->dst, content + job->skip, job->keep);",
     "memcpy(job->dst, content, job->keep);"),
    ("tensors: the bound lacks a last, shorter block's header", "tensor",
     "headers = lmc__count_blocks(size, block_size) * LMC_BLOCK_HEADER_SIZE;",
     "headers = size / block_size * LMC_BLOCK_HEADER_SIZE;"),
    ("tensors: two waves share their jobs", "tensor",
     "t->wave.jobs = t->wave.jobs == jobs ? jobs + max_jobs : jobs;",
     "t->wave.jobs = jobs;"),
    ("tensors: blocks in places of their own whatever dst's size", "tensor",
     "if (dst_cap >= lmc_tensor_bound(size, t.options))\n"
     "LMC__TRY(lmc__encode_in_slots",
     "if (dst_cap != 0)\n"
     "LMC__TRY(lmc__encode_in_slots"),
    ("tensors: jobs are not told that they are not done", "tensor",
     "block_job->is_written = 0;\n"
     "block_job->n_pieces = 0;",
     "block_job->n_pieces = 0;"),
    ("tensors: offset + size overflows", "tensor",
     "offset > total_size ||\n"
     "size > total_size - offset)",
     "offset + size > total_size)"),
    ("tensors: blocks of unlike sizes", "tensor",
     "LMC__CHECK(job->info.size == lmc__min64(t->block_size, t->total_size - t->at), LMC_ERR_CORRUPT);",
     ""),
    ("tensors: bytes behind the last block are accepted", "tensor",
     "if (offset == 0 && size == total_size) LMC__CHECK(t.used == src_size, LMC_ERR_CORRUPT);",
     ""),
    ("tensors: a missing base is called a small workspace", "delta",
     "LMC__CHECK(base || !job->info.has_prediction, LMC_ERR_BASE_MISSING);\n"
     "if (!lmc__is_workspace(",
     "if (!lmc__is_workspace("),
    ("tensors: a block's room is not looked at when only a part is wanted", "tensor",
     "                    (job->keep != job->info.size && job->info.size > temp_size))",
     "                    0)"),
    ("tensors: block numbers start anew in each wave", "tensor",
     "job->position.block = (uint32_t)(first + n);",
     "job->position.block = (uint32_t)n;"),
    ("tensors: a prediction of another size", "delta",
     "    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;\n",
     ""),
    ("tensors: workspaces for one worker", "tensor",
     "needed = 16 + jobs_size + (uint64_t)lmc__count_workers(options->parallel) * wave->workspace_size;",
     "needed = 16 + jobs_size + (uint64_t)wave->workspace_size;"),

    # == quantise
    ("k-means: cells' costs overflow", "quantise",
     "sum[i] + (uint64_t)count * i;\n        c->square[i + 1] = c->square[i] + (uint64_t)count * i * i;",
     "sum[i] + (uint64_t)count * i;\n        c->square[i + 1] = c->square[i] + (uint32_t)(count * i * i);"),
    ("k-means: a candidate that is best at once is dropped", "quantise",
     "if (lmc__cut_cost(c, i, middle) <= lmc__cut_cost(c, j, middle)) high = middle;\n"
     "else low = middle + 1;",
     "if (lmc__cut_cost(c, i, middle) < lmc__cut_cost(c, j, middle)) high = middle - 1;\n"
     "else low = middle + 1;"),
    ("square root: a product of 32 bits", "quantise",
     "if ((uint64_t)(root | bit) * (root | bit) <= v) root |= bit;",
     "if ((root | bit) * (root | bit) <= v) root |= bit;"),
    ("fitting: a group of zeros divides by zero", "quantise",
     "mean = count ? (uint32_t)(sum / count) >> 2 : LMC__SCALE_OF_ONE,",
     "mean = (uint32_t)(sum / count) >> 2,"),
    ("fitting: a group that goes on in the next chunk starts anew", "quantise",
     "            if (at + i + part == end) {\n                const uint32_t mean",
     "            if (at + i + part == end || i + part == n) {\n                const uint32_t mean"),
    ("fitting: ten times as many exceptions are allowed", "quantise",
     "*is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > seen;",
     "*is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 10 > seen;"),
    ("fitting: BF16 on grids finer than they are", "quantise",
     "        if (q->width == 2) step &= ~(uint64_t)0xFFFF; /* BF16 have 16 bits less */\n",
     ""),
    ("fitting: sums of squares lose their carry", "quantise",
     "    sum->high += sum->low < square;\n",
     ""),
    ("fitting: a bias beyond the format's limit", "quantise",
     "q->params.grid.bias = bias < -LMC__MAX_BIAS ? -LMC__MAX_BIAS\n"
     ": bias > LMC__MAX_BIAS ? LMC__MAX_BIAS\n"
     ": bias;",
     "q->params.grid.bias = bias;"),
    ("fitting: a test block's workspace leaks", "quantise",
     "    (void)LMC_REALLOC(q->alloc_user, ws, ws_size + cap, 0);\n    if (status == LMC_OK) *bits",
     "    if (status == LMC_OK) *bits"),
    ("fitting: a quantiser leaks after an error", "quantise",
     "if (status != LMC_OK) lmc_quantizer_free(q);\n"
     "else *quantizer = q;\n"
     "return status;",
     "if (status == LMC_OK) *quantizer = q;\n"
     "return status;"),
    ("fitting: an error of the second moment's reader is lost", "quantise",
     "LMC__TRY(o->second_elements.read(o->second_elements.user, first * q->width, f->second, size));",
     "(void)o->second_elements.read(o->second_elements.user, first * q->width, f->second, size);"),
    ("lmc_quantizer_apply: groups are counted from the beginning of the call", "quantise",
     "return lmc__quantize_range(&q->params, (uint8_t *)data, offset, size,",
     "return lmc__quantize_range(&q->params, (uint8_t *)data, 0, size,"),
    ("lmc_quantizer_apply: a range behind the tensor", "quantise",
     "if (offset % width || size % width || offset > q->n * width || size > q->n * width - offset)\n"
     "return LMC_ERR_ARGUMENT;\n"
     "if (q->info",
     "if (offset % width || size % width)\n"
     "return LMC_ERR_ARGUMENT;\n"
     "if (q->info"),
    ("quantisers: the loss of what stays exact is not cleared", "quantise",
     "    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);\n",
     ""),

    # == snapshot: fingerprints, memory, names, waves
    ("fingerprints: leaves are aligned to the file, not to the tensor", "snapshot",
     "d->planned + LMC__LEAF_SIZE - (d->planned - start) % LMC__LEAF_SIZE);",
     "d->planned + LMC__LEAF_SIZE - d->planned % LMC__LEAF_SIZE);"),
    ("fingerprints: the innermost dimension is left out", "snapshot",
     "    for (i = 0; i < rank; i++) {\n        lmc__store64(field, t ?",
     "    for (i = 0; i + 1 < rank; i++) {\n        lmc__store64(field, t ?"),
    ("fingerprints: empty tensors are forgotten between others", "snapshot",
     "lmc__finish_fingerprints(d);\n"
     "lmc__absorb(d, piece->crc, piece->size);",
     "if (d->tensor_done) lmc__finish_fingerprints(d);\n"
     "lmc__absorb(d, piece->crc, piece->size);"),
    ("fingerprints: a last leaf that is not full is left out", "snapshot",
     "if (d->leaf_size) lmc__finish_leaf(d);",
     "if (d->leaf_size == LMC__LEAF_SIZE) lmc__finish_leaf(d);"),
    ("SHA-256: a message that ends 8 bytes before a block's end", "snapshot",
     "1 + (size_t)((119 - (sha->size & 63)) & 63));",
     "2 + (size_t)((118 - (sha->size & 63)) & 63));"),
    ("memory: a block leaks when growing it fails", "snapshot",
     "    data = LMC_REALLOC(b->alloc_user, b->data, b->cap, (size_t)cap);\n    if (!data) return LMC_ERR_MEMORY;",
     "    data = LMC_REALLOC(b->alloc_user, b->data, b->cap, (size_t)cap);\n    b->data = (uint8_t *)data;\n    if (!data) return LMC_ERR_MEMORY;"),
    ("memory: a buffer is not freed", "snapshot",
     "visit(&c->workspaces, alloc_user);",
     "if (alloc_user || !c->workspaces.data) visit(&c->workspaces, alloc_user);"),
    ("memory: the capacity that is told is wrong", "snapshot",
     "    b->cap = (size_t)cap;\n    return LMC_OK;",
     "    b->cap = (size_t)needed;\n    return LMC_OK;"),
    ("memory: sizes that a size_t cannot hold", "m32",
     "    if (more > SIZE_MAX / 2 - b->size) return LMC_ERR_SIZE;\n",
     ""),
    ("coder: failing writes are not noticed", "snapshot",
     "if (c->write_failed) return LMC_ERR_WRITE;\n"
     "LMC__TRY(lmc__jobs_status(c, n));",
     "LMC__TRY(lmc__jobs_status(c, n));"),
    ("coder: errors of blocks are not noticed", "snapshot",
     "LMC__TRY(lmc__jobs_status(c, n));\n"
     "return c->read_failed",
     "return c->read_failed"),
    ("coder: a stream that says it gave more than asked for", "snapshot",
     "c->read_to + c->read_got, end - c->read_got, &n) != 0 || n > end - c->read_got;",
     "c->read_to + c->read_got, end - c->read_got, &n) != 0;"),
    ("coder: jobs keep what they were in the wave before", "snapshot",
     "c->jobs.size = c->n_jobs * sizeof **job;",
     ""),
    ("coder: workspaces for one worker", "snapshot",
     "LMC__TRY(lmc__reserve(&c->workspaces, (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));",
     "LMC__TRY(lmc__reserve(&c->workspaces, c->wave.workspace_size));"),
    ("coder: what is drained at the end is not looked at", "snapshot",
     "    c->parts.size = 0;\n    return c->write_failed ? LMC_ERR_WRITE : LMC_OK;",
     "    c->parts.size = 0;\n    return LMC_OK;"),
    ("names: one that begins another is taken for the same", "snapshot",
     "return order ? order : a->size < b->size ? -1 : a->size > b->size;",
     "return order;"),
    ("names: sorting looks at one behind the end", "snapshot",
     "if (child + 1 < end && compare(",
     "if (child + 1 <= end && compare("),
    ("paths: the table loses half of them when it grows", "snapshot",
     "for (i = 0; i < old_size; i++) {\n"
     "uint64_t *const table",
     "for (i = 0; i < old_size / 2; i++) {\n"
     "uint64_t *const table"),
    ("paths: the table leaks when it grows", "snapshot",
     "lmc__free_buffer(set);\n"
     "*set = grown;",
     "*set = grown;"),

    # == snapshot: sections
    ("sections: a head's CRC is not compared", "snapshot",
     "    LMC__CHECK(k->crc32c(0, p, 16) == lmc__load32(p + 16), LMC_ERR_CHECKSUM);\n    memcpy(section->kind",
     "    (void)k;\n    memcpy(section->kind"),
    ("sections: any size is accepted", "snapshot",
     "    LMC__CHECK(section->size <= LMC__MAX_BODY_SIZE, LMC_ERR_CORRUPT);\n",
     ""),
    ("paths: .. is accepted", "snapshot",
     " || (n == 2 && p[start] == '.' && p[start + 1] == '.')) return 0;",
     ") return 0;"),
    ("paths: .. at the end is accepted", "snapshot",
     "    for (i = 0; i <= size; i++) {\n        if (i == size || p[i] == '/') {",
     "    for (i = 0; i < size; i++) {\n        if (p[i] == '/') {"),
    ("shapes: products overflow", "snapshot",
     "        if (shape[i] > LMC__MAX_FILE_SIZE / n) return UINT64_MAX;\n",
     ""),
    ("shapes: a zero behind other dimensions", "snapshot",
     "    for (i = 0; i < rank; i++)\n        if (shape[i] == 0) return 0;\n",
     ""),
    ("shapes: parts of bytes are accepted", "snapshot",
     "    if (n % 8 * bits % 8) return UINT64_MAX;\n",
     ""),
    ("FILE: tensors that overlap", "snapshot",
     "LMC__CHECK(t->offset >= *position && t->offset <= file->size &&",
     "LMC__CHECK(t->offset <= file->size &&"),
    ("FILE: offset + size overflows", "snapshot",
     "t->offset <= file->size && t->size <= file->size - t->offset, LMC_ERR_CORRUPT);",
     "t->offset + t->size <= file->size, LMC_ERR_CORRUPT);"),
    ("FILE: names with a NUL", "snapshot",
     "LMC__CHECK(memchr(e->name, 0, (size_t)e->name_size + e->dtype_size) == NULL, LMC_ERR_CORRUPT);",
     ""),
    ("FILE: two tensors of one name", "snapshot",
     "    LMC__CHECK(!lmc__has_duplicates(items, n_tensors), LMC_ERR_CORRUPT);\n",
     ""),
    ("FILE: tensors in a file of unknown size", "snapshot",
     "LMC__CHECK(*n_tensors == 0 ||\n"
     "(file->size != LMC_UNKNOWN_SIZE && file->kind != LMC_FILE_DIRECTORY),",
     "LMC__CHECK(*n_tensors == 0 || file->kind != LMC_FILE_DIRECTORY,"),
    ("FILE: any number of nanoseconds", "snapshot",
     "LMC__CHECK(file->mtime_ns <= 999999999u && (file->has_mtime",
     "LMC__CHECK((file->has_mtime"),
    ("FILE: a directory with bytes", "snapshot",
     "    LMC__CHECK(file->kind != LMC_FILE_DIRECTORY || file->size == 0, LMC_ERR_CORRUPT);\n",
     ""),
    ("FILE: a tensor's entry that goes on behind the body", "snapshot",
     "LMC__CHECK(lmc__left(c) >= LMC__TENSOR_ENTRY_SIZE, LMC_ERR_CORRUPT);",
     ""),
    ("FILE: bytes behind the last entry", "snapshot",
     "LMC__CHECK(c.p == c.end, LMC_ERR_CORRUPT);\n"
     "memory->size = 0;",
     "memory->size = 0;"),
    ("FILE: room for strings without one of their NULs", "snapshot",
     "n_chars += e.name_size + e.dtype_size + 2u;",
     "n_chars += e.name_size + e.dtype_size + 1u;"),
    ("FILE: no room for the items that are sorted", "snapshot",
     "n_tensors * (uint64_t)(sizeof(lmc_tensor) + sizeof(lmc__item))",
     "n_tensors * (uint64_t)sizeof(lmc_tensor)"),
    ("FILE: what a tensor has lost is not cleared in the next one's entry", "snapshot",
     "        memset(entry, 0, sizeof entry);\n        lmc__store64(entry, t->offset);",
     "        lmc__store64(entry, t->offset);"),
    ("FILE: an error of 1 overflows", "quantise",
     "loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0) : UINT32_MAX",
     "(uint32_t)(uint64_t)(loss.error * 4294967296.0)"),
    ("RUN: segments of another file", "snapshot",
     "LMC__CHECK(segment.file_number == file_number && segment.start == *position,",
     "LMC__CHECK(segment.start == *position,"),
    ("RUN: segments with gaps", "snapshot",
     "segment.file_number == file_number && segment.start == *position,",
     "segment.file_number == file_number && segment.start >= *position,"),
    ("RUN: empty segments", "snapshot",
     "LMC__CHECK(segment.size >= 1 && segment.size <= limit",
     "LMC__CHECK(segment.size <= limit"),
    ("RUN: shorter segments than the run", "snapshot",
     "    LMC__CHECK(sum == run->size, LMC_ERR_CORRUPT);\n",
     ""),
    ("RUN: more segments than the body has", "snapshot",
     " && size == LMC__RUN_BODY_SIZE + (uint64_t)LMC__SEGMENT_SIZE * n_segments, LMC_ERR_CORRUPT);",
     ", LMC_ERR_CORRUPT);"),
    ("RUN: conversions of what is not its own", "snapshot",
     "    LMC__CHECK(body[10] == 0 || body[9] == LMC__PREDICT_OWN, LMC_ERR_UNSUPPORTED);\n",
     ""),
    ("RUN: predictions in a run without", "snapshot",
     "LMC__CHECK(segment.base == 0 ? segment.base_offset == 0\n"
     ": run->prediction != LMC__PREDICT_ZERO,",
     "LMC__CHECK(segment.base != 0 || segment.base_offset == 0,"),
    ("RUN: blocks of any size", "snapshot",
     "LMC__CHECK(body[8] >= LMC__MIN_LOG2_BLOCK && body[8] <= LMC__MAX_LOG2_BLOCK, LMC_ERR_CORRUPT);",
     "LMC__CHECK(body[8] >= LMC__MIN_LOG2_BLOCK, LMC_ERR_CORRUPT);"),

    # == snapshot: predictions
    ("bases: a tensor of another dtype predicts", "delta",
     "(dtype && strcmp(item->tensor->dtype, dtype) != 0) || ",
     ""),
    ("bases: a tensor of another size predicts", "delta",
     " || lmc__item_size(o, item) != size) continue;",
     ") continue;\n        (void)size;"),
    ("bases: of several the first predicts, not the one in the same file", "delta",
     "if (is_of_path) return (uint32_t)i + 1;",
     "(void)is_of_path;"),
    ("twins: what is not written yet can be read back", "delta",
     "ranges[i].start <= offset && size <= ranges[i].end - offset;",
     "ranges[i].start <= offset;"),
    ("twins: twins of twins are accepted", "delta",
     "    if (run->prediction == LMC__PREDICT_OWN) return LMC_OK;\n    if (o->ranges.size)",
     "    if (o->ranges.size)"),
    ("twins: runs that touch are not joined", "delta",
     "        if (last->file_number == run->file_number && last->end == run->start) {",
     "        if (last->file_number == run->file_number && last->end == run->start + 1) {"),
    ("RUN: a base's item that there is not", "delta",
     "if (s->base > o->items.size / sizeof(lmc__item)) return 0;",
     ""),
    ("RUN: predictions beyond a base's tensor", "delta",
     "return s->base_offset <= item_size && s->size <= item_size - s->base_offset;",
     "return s->base_offset <= item_size;"),
    ("F16: ties are rounded up", "delta",
     "(magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13",
     "(magnitude - 0x38000000 + 0x1000) >> 13"),
    ("F16: subnormal ties are rounded up", "delta",
     "(mantissa + half - 1 + (mantissa >> shift & 1)) >> shift",
     "(mantissa + half) >> shift"),
    ("BF16: a NaN with low bits only becomes an infinity", "delta",
     "if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40;",
     "if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16;"),
    ("predictions: segments without one are not cleared", "delta",
     "            memset(dst, 0, part);\n",
     ""),
    ("predictions: the offset within a segment is forgotten", "delta",
     "from.start += scale * at;\n"
     "for (; part < size; i++)",
     "for (; part < size; i++)"),

    # == snapshot: writer
    ("writer: twins are read back before they were quantised", "quantise",
     "LMC__TRY(lmc__quantize_range(lmc__quantized_at(p, i)->quant,\n"
     "(uint8_t *)dst + (size_t)(from - offset), from - r->start,\n"
     "(size_t)(to - from), NULL));",
     "(void)from, (void)to;"),
    ("writer: a quantiser of another tensor", "quantise",
     "lmc_dtype_width(dtype) == q->params.width &&\n"
     "size == q->n * q->params.width",
     "lmc_dtype_width(dtype) == q->params.width"),
    ("writer: a quantiser of another generation", "quantise",
     "if (lmc__get_quantizer_loss(t->quantizer).generation !=\n"
     "t->loss.generation + (q->is_recovered ? 0 : 1))\n"
     "return LMC_ERR_ARGUMENT;",
     ""),
    ("writer: an empty path beside others", "snapshot",
     "if (w->n_files > 0 && (w->has_empty_path || copy->path[0] == 0)) return LMC_ERR_ARGUMENT;",
     ""),
    ("writer: a path twice", "snapshot",
     "status = lmc__add_path(&w->paths, w->n_files, copy->path);\n"
     "if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;\n"
     "LMC__TRY(lmc__write_section(w, \"FILE\"",
     "LMC__TRY(lmc__write_section(w, \"FILE\""),
    ("writer: an error does not stay", "snapshot",
     "    if (w->status == LMC_OK) w->status = (call); \\",
     "    w->status = (call); \\"),
    ("writer: more bytes than the file has", "snapshot",
     "if (p->position == f->size) return LMC_ERR_ARGUMENT;",
     ""),
    ("writer: fewer bytes than the file has", "snapshot",
     "if (w->digester.absorbed != w->plan.file.size) return LMC_ERR_ARGUMENT;",
     ""),
    ("writer: a stream is read beyond the file's end", "snapshot",
     "c->ended ? 0 : (size_t)lmc__min64(span, left), (size_t)wave_size);",
     "c->ended ? 0 : (size_t)span, (size_t)wave_size);"),
    ("writer: a stream's error is its end", "snapshot",
     "        if (c->read_failed) return LMC_ERR_READ;\n        left -= c->read_got;",
     "        left -= c->read_got;"),
    ("writer: the rest of a span is lost", "snapshot",
     "        if (rest) memcpy(next->data + room - rest, data + size - rest, rest);\n",
     ""),
    ("writer: what does not fill an element is in its run", "snapshot",
     "else run->size -= run->size % width;",
     ""),
    ("writer: metadata of one key twice", "snapshot",
     "    if (lmc__has_duplicates(items, w->n_metadata)) return LMC_ERR_ARGUMENT;\n",
     ""),
    ("writer: metadata is not sorted", "snapshot",
     "    lmc__sort_items(items, w->n_metadata);\n",
     ""),
    ("writer: empty keys", "snapshot",
     "    if (key_size < 1 || key_size > LMC__MAX_STRING) return LMC_ERR_ARGUMENT;\n    if (size",
     "    if (key_size > LMC__MAX_STRING) return LMC_ERR_ARGUMENT;\n    if (size"),
    ("writer: can be finished twice", "snapshot",
     "if (w->in_file || w->is_finished || w->n_files == 0) return LMC_ERR_ARGUMENT;\n"
     "LMC__TRY(lmc__collect_items(",
     "if (w->in_file || w->n_files == 0) return LMC_ERR_ARGUMENT;\n"
     "LMC__TRY(lmc__collect_items("),
    ("writer: a run goes on over a gap", "snapshot",
     "if (t->offset != end || t->size >= large",
     "if (t->size >= large"),
    ("writer: tensors of unlike dtypes share a run", "snapshot",
     "t->size >= large || lmc_dtype_find(t->dtype) != run->dtype ||",
     "t->size >= large ||"),
    ("writer: a twin in its own run", "delta",
     "lmc__get_quant_params(t->quantizer) || lmc__repeats_run(p, t, p->position))",
     "lmc__get_quant_params(t->quantizer))"),
    ("writer: a wave is coded over the one that is being written", "snapshot",
     "w->offset += head_size + job->dst_size;\n"
     "}\n"
     "c->out_number ^= 1;",
     "w->offset += head_size + job->dst_size;\n"
     "}"),
    ("writer: no room for a run's head in the wave", "snapshot",
     "    if (c->n_jobs && slot > out->cap - out->size) {",
     "    if (c->n_jobs && slot - head_size > out->cap - out->size) {"),
    ("writer: no room for predictions", "delta",
     "if (w->plan.origin.base || w->plan.origin.read_back)\n"
     "LMC__TRY(lmc__reserve(&c->base, out->cap));",
     "if (w->plan.origin.base)\n"
     "LMC__TRY(lmc__reserve(&c->base, out->cap));"),
    ("writer: what is pending counts as written", "snapshot",
     "    return w->offset - pending;",
     "    return w->offset + 0 * pending;"),
    ("writer: the index's copy of a block's size is its decoded size", "snapshot",
     "LMC__TRY(lmc__index_block(&w->index, job->dst_size, job->dst));",
     "LMC__TRY(lmc__index_block(&w->index, job->dst_size + 1, job->dst));"),
    ("writer: files of unknown size lose what is pending", "snapshot",
     "LMC__TRY(lmc__flush_carry(w));\n"
     "w->plan.file.size = w->plan.position;",
     "w->plan.file.size = w->plan.position;"),

    # == snapshot: header, index, restore
    ("header: reserved bytes are not looked at", "snapshot",
     "for (i = 68; i < 76; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED);",
     "for (i = 68; i < 72; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED);"),
    ("header: any minor version is read", "snapshot",
     "LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);",
     "LMC__CHECK(header[8] == LMC_FORMAT_MAJOR, LMC_ERR_VERSION);"),
    ("header: the version is looked at behind the checksum", "snapshot",
     "LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);\n"
     "LMC__CHECK(k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT),\n"
     "LMC_ERR_CHECKSUM);",
     "LMC__CHECK(k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT),\n"
     "LMC_ERR_CHECKSUM);\n"
     "LMC__CHECK(header[8] == LMC_FORMAT_MAJOR && header[9] == LMC_FORMAT_MINOR, LMC_ERR_VERSION);"),
    ("header: unknown features are ignored", "snapshot",
     "    LMC__CHECK(lmc__load64(header + 16) == 0, LMC_ERR_UNSUPPORTED);\n",
     ""),
    ("base: its fingerprint is not compared", "delta",
     "LMC__CHECK(memcmp(header + LMC__BASE_FINGERPRINT_AT, o->fingerprint, LMC_FINGERPRINT_SIZE) == 0,\n"
     "LMC_ERR_BASE_WRONG);",
     ""),
    ("trailer: the file's size is not compared", "snapshot",
     " && lmc__load64(trailer + 16) == total, LMC_ERR_CORRUPT);",
     ", LMC_ERR_CORRUPT);\n    (void)total;"),
    ("trailer: its checksum is not compared", "snapshot",
     "    LMC__CHECK(k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28), LMC_ERR_CHECKSUM);\n",
     "    (void)k;\n"),
    ("metadata: a key twice", "snapshot",
     "last.name == NULL || lmc__compare_names(&last, &next) < 0, LMC_ERR_CORRUPT);",
     "last.name == NULL || lmc__compare_names(&last, &next) <= 0, LMC_ERR_CORRUPT);"),
    ("metadata: an entry that is not there", "snapshot",
     "        LMC__CHECK(end - p >= 8, LMC_ERR_CORRUPT);\n        key_size",
     "        key_size"),
    ("metadata: bytes behind the last entry", "snapshot",
     "        p += (size_t)key_size + value_size;\n    }\n    LMC__CHECK(p == end, LMC_ERR_CORRUPT);",
     "        p += (size_t)key_size + value_size;\n    }"),
    ("restore: a body's checksum is not compared", "snapshot",
     "    LMC__CHECK(r->coder.wave.k->crc32c(0, r->body.data, r->body.size) == section->body_crc, LMC_ERR_CHECKSUM);\n",
     ""),
    ("restore: no limit to bodies", "snapshot",
     "if (section->size > r->index.limit) return LMC_ERR_LIMIT;\n"
     "r->body.size = 0;",
     "r->body.size = 0;"),
    ("restore: no limit to what is kept for the index", "snapshot",
     "if (b->entries.size + (uint64_t)size > b->limit) return LMC_ERR_LIMIT;",
     ""),
    ("restore: files in any order", "snapshot",
     "    LMC__CHECK(section->number == r->n_files, LMC_ERR_CORRUPT);\n",
     ""),
    ("restore: no limit to a file's size before it is made", "snapshot",
     "        if (!lmc__add_total(&total, r->file.size, &o->limits)) return LMC_ERR_LIMIT;\n",
     "        (void)total;\n"),
    ("restore: a file that ends early", "snapshot",
     "    LMC__CHECK(r->position == r->file.size, LMC_ERR_CORRUPT);\n",
     ""),
    ("restore: an error of end_file is lost", "snapshot",
     "    if (o->end_file && o->end_file(o->user, &r->file, r->n_files - 1) != 0) return LMC_ERR_WRITE;",
     "    if (o->end_file) (void)o->end_file(o->user, &r->file, r->n_files - 1);"),
    ("restore: end_file before the last bytes are written", "snapshot",
     "LMC__TRY(lmc__decode_wave(r));\n"
     "LMC__TRY(lmc__drain(&r->coder));\n"
     "lmc__index_file_end(",
     "LMC__TRY(lmc__decode_wave(r));\n"
     "lmc__index_file_end("),
    ("restore: a block of another size", "snapshot",
     "    LMC__CHECK(info.size == size, LMC_ERR_CORRUPT);\n    if (is_done",
     "    if (is_done"),
    ("restore: a prediction in a run without", "delta",
     "    if (info.has_prediction) LMC__CHECK(run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);\n",
     ""),
    ("restore: n_done within a block", "in_place",
     "    if (is_done && size > r->options->done_size - n_before) return LMC_ERR_ARGUMENT;\n",
     ""),
    ("restore: blocks that are done and others in one wave", "in_place",
     "if (c->n_jobs && (size > out->cap - out->size || r->is_written != is_done))",
     "if (c->n_jobs && size > out->cap - out->size)"),
    ("restore: blocks that are done are written again", "in_place",
     "if (!r->is_written) LMC__TRY(lmc__add_part(c, out->data, out->size));",
     "LMC__TRY(lmc__add_part(c, out->data, out->size));"),
    ("restore: blocks that are done are not compared", "in_place",
     "job->job.status =\n"
     "c->wave.k->crc32c(0, content, info->size) == info->crc ? LMC_OK : LMC_ERR_BASE_WRONG;",
     "job->job.status = LMC_OK;"),
    ("restore: a snapshot for pipes refers to itself", "delta",
     "    LMC__CHECK(run.prediction != LMC__PREDICT_OWN || !r->is_sequential, LMC_ERR_CORRUPT);\n",
     ""),
    ("restore: a snapshot without a base refers to one", "delta",
     "    LMC__CHECK(run.prediction != LMC__PREDICT_BASE || r->has_base, LMC_ERR_CORRUPT);\n",
     ""),
    ("restore: what is read back was not written yet", "delta",
     "        LMC__TRY(lmc__decode_wave(r));\n        LMC__TRY(lmc__drain(&r->coder));\n    }\n    r->n_runs++;",
     "    }\n    r->n_runs++;"),
    ("restore: a block larger than the room before the next buffer", "snapshot",
     "    if (left > r->next_room) { /* which was for smaller blocks */",
     "    if (0) {"),
    ("restore: a buffer is read to while blocks in it are to be coded", "snapshot",
     "    r->is_other_used = c->n_jobs != 0;\n",
     "    r->is_other_used = 0;\n"),
    ("restore: the index is not compared", "snapshot",
     "LMC__CHECK(memcmp(p, entries->data, entries->size) == 0, LMC_ERR_CORRUPT);",
     ""),
    ("restore: the fingerprint is not compared", "snapshot",
     "lmc__snapshot_fingerprint(&r->items, fingerprint);\n"
     "LMC__CHECK(memcmp(head.fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) == 0, LMC_ERR_CORRUPT);",
     "lmc__snapshot_fingerprint(&r->items, fingerprint);"),
    ("restore: an index shorter than what it must say", "snapshot",
     "LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE &&\n"
     "r->body.size - LMC__INDEX_BODY_SIZE >= entries->size,\n"
     "LMC_ERR_CORRUPT);",
     "LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE, LMC_ERR_CORRUPT);"),
    ("restore: bytes behind the trailer", "snapshot",
     "    LMC__CHECK(r->at == r->end, LMC_ERR_CORRUPT); /* nothing follows the trailer */\n",
     ""),
    ("restore: n_done beyond the end", "in_place",
     "    if (r->options->done_size > r->total) return LMC_ERR_ARGUMENT;\n",
     ""),
    ("restore: n_done, but not in place", "in_place",
     "    if (options->in_place ? !options->read_back : options->done_size != 0) return LMC_ERR_ARGUMENT;\n",
     ""),
    ("restore: a buffer leaks", "snapshot",
     "visit(&r->paths, alloc_user);\n"
     "visit(&r->file_memory, alloc_user);",
     "if (alloc_user || !r->paths.data) visit(&r->paths, alloc_user);\n"
     "visit(&r->file_memory, alloc_user);"),
    ("restore: a truncated section is waited for", "snapshot",
     "        LMC__TRY(lmc__fetch_all(r, 1));\n        n = ",
     "        LMC__TRY(lmc__fetch(r, 1));\n        n = "),

    # == snapshot: reader
    ("reader: where sections begin is not compared", "snapshot",
     "LMC__CHECK(lmc__load64(x->p) == x->offset, LMC_ERR_CORRUPT);",
     ""),
    ("reader: an entry that goes on behind the index", "snapshot",
     "LMC__CHECK(section.size <= (uint64_t)(x->end - body), LMC_ERR_CORRUPT);",
     ""),
    ("reader: a file that ends early", "snapshot",
     "LMC__CHECK(t->n_files == 0 || x->position == lmc__table_file(t, t->n_files - 1)->file.size,\n"
     "LMC_ERR_CORRUPT);",
     ""),
    ("reader: sizes of blocks behind the index", "snapshot",
     "LMC__CHECK(r.run.n_blocks <= (uint64_t)(x->end - x->p) / LMC__BLOCK_ENTRY_SIZE,\n"
     "LMC_ERR_CORRUPT);",
     ""),
    ("reader: a path twice", "snapshot",
     "LMC__TRY(lmc__add_path(&t->paths, t->n_files - 1, f->file.path));",
     ""),
    ("reader: the first file's memory leaks", "snapshot",
     "for (i = 0; i < t->n_files; i++) lmc__free_buffer(&lmc__table_file(t, i)->memory);",
     "for (i = 1; i < t->n_files; i++) lmc__free_buffer(&lmc__table_file(t, i)->memory);"),
    ("reader: fingerprints behind the index", "snapshot",
     "LMC__CHECK((uint64_t)(x->end - x->p) >=\n"
     "LMC__FILE_FACTS_SIZE +\n"
     "(uint64_t)LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(&f->file),\n"
     "LMC_ERR_CORRUPT);",
     ""),
    ("reader: the size of a file is the index's, whatever FILE says", "snapshot",
     "LMC__CHECK(size <= LMC__MAX_FILE_SIZE &&\n"
     "(f->file.size == LMC_UNKNOWN_SIZE || f->file.size == size),",
     "LMC__CHECK(size <= LMC__MAX_FILE_SIZE,"),
    ("reader: no limit to the files together", "snapshot",
     "if (!lmc__add_total(&r->total, run->size, &r->options.limits)) return LMC_ERR_LIMIT;\n"
     "if (run->prediction != LMC__PREDICT_BASE || r->origin.base)",
     "if (run->prediction != LMC__PREDICT_BASE || r->origin.base)"),
    ("reader: no limit to the index", "snapshot",
     "if (size > lmc__index_limit(&r->options.limits)) return LMC_ERR_LIMIT;\n"
     "LMC__TRY(lmc__reserve(&t->index, size));",
     "LMC__TRY(lmc__reserve(&t->index, size));"),
    ("reader: the index's checksum is not compared", "snapshot",
     "LMC__CHECK(k->crc32c(0, body, (size_t)(x.end - body)) == lmc__load32(t->index.data + 20),\n"
     "LMC_ERR_CHECKSUM);",
     "(void)k;"),
    ("reader: where the index begins is not compared with where the blocks end", "snapshot",
     "    LMC__CHECK(offset == index_at, LMC_ERR_CORRUPT);\n",
     ""),
    ("reader: the fingerprint is not compared", "snapshot",
     "LMC__CHECK(memcmp(head.fingerprint, t->fingerprint, LMC_FINGERPRINT_SIZE) == 0, LMC_ERR_CORRUPT);",
     ""),
    ("in place: a snapshot that is no delta", "in_place",
     "    int can = r && r->chain_depth != 0 && ",
     "    int can = r && "),
    ("in place: a file in place of a directory", "in_place",
     "found->kind == file->kind && found->size == file->size ? found : NULL;",
     "found->size == file->size ? found : NULL;"),
    ("in place: files of other sizes", "in_place",
     "found->kind == file->kind && found->size == file->size ? found : NULL;",
     "found->kind == file->kind ? found : NULL;"),
    ("in place: the items leak", "in_place",
     "    lmc__free_buffer(&items);\n    return can;",
     "    return can;"),
    ("reader: of two tensors of one name one is found", "snapshot",
     "            if (found) return LMC_ERR_ARGUMENT;\n            found",
     "            found"),
    ("reader: the prediction of a last block is the first's", "delta",
     "at < offset ? base->data : base->data + head;",
     "base->data;"),
    ("reader: the index's size of a block is not compared", "snapshot",
     "LMC__CHECK(info->encoded_size == lmc__load32(entry) && lmc__load32(src",
     "LMC__CHECK(lmc__load32(src"),
    ("reader: a block of another file is taken", "snapshot",
     " && lmc__load32(src + LMC__BLOCK_CRC_AT) == lmc__load32(entry + 4), LMC_ERR_CORRUPT);",
     ", LMC_ERR_CORRUPT);"),
    ("reader: a prediction in a run without", "delta",
     "            LMC__CHECK(!job->info.has_prediction || run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);\n",
     ""),
    ("reader: a wave's errors are not looked at", "snapshot",
     "lmc__run_tasks(c->parallel, lmc__decode_snapshot_task, c, n);\n"
     "LMC__TRY(lmc__jobs_status(c, n));\n"
     "}",
     "lmc__run_tasks(c->parallel, lmc__decode_snapshot_task, c, n);\n"
     "}"),
    ("chains: a window that could not be read stays", "delta",
     "            r->window.size = 0; /* nothing, if reading fails */\n",
     ""),
    ("chains: a window of another file", "delta",
     "if (file_number == r->window_file && offset >= r->window_start",
     "if (offset >= r->window_start"),
    ("reader: offset + size overflows", "snapshot",
     "    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;\n    if (size == 0)",
     "    if (offset + size > f->file.size) return LMC_ERR_ARGUMENT;\n    if (size == 0)"),
    ("reader: a tensor is read beyond its end", "snapshot",
     "    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;",
     "    if (!tensor || offset > tensor->size) return LMC_ERR_ARGUMENT;"),
    ("recovered quantisers: buffers leak after an error", "quantise",
     "    lmc__free_buffer(&in);\n    lmc__free_buffer(&ws);\n    LMC__TRY(status);",
     "    LMC__TRY(status);\n    lmc__free_buffer(&in);\n    lmc__free_buffer(&ws);"),
    ("recovered quantisers: scales of a longer tensor than it is", "quantise",
     "q->n_groups * sizeof scales[0],\n"
     "(size_t)more * sizeof scales[0]);",
     "q->n_groups * sizeof scales[0],\n"
     "(size_t)more);"),
    ("listings: what lies behind is counted", "snapshot",
     "        encoded -= (block_at[last + 1] - block_at[last]) * behind / last_size;\n",
     "        (void)behind, (void)last_size;\n"),
    ("lender: its buffers are not used", "delta",
     "r->coder = options->lender ? options->lender->coder : &r->own_coder;",
     "r->coder = &r->own_coder;"),

    # == snapshot: fingerprints of files
    ("identify: a stream that ends early", "delta",
     "        if (c->read_got < c->read_size) return LMC_ERR_TRUNCATED;\n",
     ""),
    ("identify: the coder leaks", "delta",
     "    lmc__free_coder(coder);\n    (void)LMC_REALLOC(alloc_user, coder",
     "    (void)LMC_REALLOC(alloc_user, coder"),
    ("memory source: offset + size overflows", "snapshot",
     "    if (offset > m->size || size > m->size - offset) return 1;",
     "    if (offset > m->size) return 1;"),
    ("memory stream: the end is an error", "snapshot",
     "    if (m->position > m->size) return 1;",
     "    if (m->position >= m->size) return 1;"),
]


def suites_of(group):
    return FIRST[group] + [suite for suite in LAST if suite not in FIRST[group]] if group not in ("endian", "m32", "alignment", "threads") else FIRST[group]


def check_suites_of(group):
    """What `make check` runs, likely ones first."""
    if group in ("endian", "m32", "alignment", "threads"):  # other machines and sanitizers: these at most
        return ["simd:kernels~", "simd:tensor~", "simd:digest"]
    first = [suite.rstrip("-") + "~" if suite.split(":")[1] not in ("vectors", "digest") else suite for suite in FIRST[group]]
    return [suite for suite in first if suite in CHECK] + [suite for suite in CHECK if suite not in first]


# -- finding the texts: spaces, line breaks and the backslashes of macros do not count --

TOKEN = re.compile(r"\w+|[^\w\s\\]")


def find(text, old):
    """The (start, end) of each place where the text has these tokens."""
    tokens = TOKEN.findall(old)
    pattern = r"[\s\\]*".join(map(re.escape, tokens))
    if re.match(r"\w", tokens[0]):
        pattern = r"\b" + pattern
    if re.match(r"\w", tokens[-1]):
        pattern += r"\b"
    return [match.span() for match in re.finditer(pattern, text)]


def line_at(text, span):
    return text[text.rindex("\n", 0, span[0]) + 1:text.index("\n", span[1])]


def put(text, spans, new):
    """The text with new in these places."""
    for start, end in reversed(spans):
        line = line_at(text, (start, end))
        in_macro = "\\\n" in line + "\n" or line.startswith("#define")
        text = text[:start] + " " + re.sub(r"\s*\\?\n\s*", " " if in_macro else "\n", new.strip().rstrip("\\")) + " " + text[end:]
    return text


# -- all bugs at once: each function with bugs becomes one that calls, by a number, the true one or a copy with the bug --

CHOOSE = """
#include <stdlib.h>
static int lmc__bug;
__attribute__((constructor)) static void lmc__choose_bug(void)
{
    const char *number = getenv("LMC_BUG");
    lmc__bug = number ? atoi(number) : 0;
}
"""


def functions(text):
    """(start, end, what stands before the name, name, parameters) of each function."""
    start = 0
    head = re.compile(r"^(?![#/} \n]|typedef|struct|enum lmc_\w+ \{|enum \{)([^;{}=#\n()]*?[ *\n])(\w+)\(((?:[^;{}=\n]|\n )*?)\)\s*\{", re.M)
    while True:
        match = head.search(text, start)
        if not match:
            return
        line_end = text.index("\n", match.end())
        if text[match.end():line_end].rstrip().endswith("}"):
            end = line_end + 1
        else:
            end = text.index("\n}\n", match.end()) + 3
        yield match.start(), end, match.group(1), match.group(2), match.group(3)
        start = end


def parameter_names(parameters):
    depth, part, parts = 0, "", []
    for c in parameters + ",":
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
            continue
        depth += (c in "([") - (c in ")]")
        part += c
    if parts == ["void"]:
        return []
    return [(re.search(r"\(\*(\w+)\)", p) or re.search(r"(\w+)(?:\[[^]]*\])*$", p)).group(1) for p in parts]


def weave(text, bugs, places):
    """The text with all bugs that are in one function; and the numbers of these. places: {number: spans}."""
    out, done, woven = [], 0, set()
    for start, end, before, name, parameters in functions(text):
        numbers = [n for n, spans in places.items() if len(spans) == 1 and start + len(before) < spans[0][0] and spans[0][1] <= end]
        if not numbers:
            continue
        names = ", ".join(parameter_names(parameters))
        is_void = re.search(r"\bvoid\s*$", before.strip()) is not None
        own = before.replace("LMC_API", "static")
        body = text[start:end]
        out += [text[done:start], "%s%s(%s);\n" % (before, name, parameters), "%s%s__0%s" % (own, name, body[len(before) + len(name):])]
        calls = []
        for n in numbers:
            changed = put(body, [(places[n][0][0] - start, places[n][0][1] - start)], bugs[n - 1][3])
            out.append("%s%s__%d%s" % (own, name, n, changed[len(before) + len(name):]))
            calls.append("    if (lmc__bug == %d) %s%s__%d(%s)%s" % (n, "{ " if is_void else "return ", name, n, names, "; return; }" if is_void else ";"))
        out.append("%s%s(%s)\n{\n%s\n    %s%s__0(%s);\n}\n" % (before, name, parameters, "\n".join(calls), "" if is_void else "return ", name, names))
        done = end
        woven.update(numbers)
    out.append(text[done:])
    result = "".join(out)
    mark = "#include <string.h>\n"
    assert result.count(mark) == 1
    return result.replace(mark, mark + CHOOSE), woven


class Library:
    """lmc.h with one bug, or with all that can be chosen while it runs, and the test programs with it."""

    making = collections.defaultdict(threading.Lock)  # of files that several may want

    def __init__(self, name, text):
        self.name, self.root = name, os.path.join(OUT, "tree", name)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "tests"), os.path.join(self.root, "tests"), ignore=shutil.ignore_patterns("golden", "test_*.py"))
        for name in ("include", "spec"):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.root, name))
        with open(os.path.join(self.root, "lmc.h"), "w") as file:
            file.write(text)

    def remove(self):
        shutil.rmtree(self.root)

    def make(self, command, output):
        with Library.making[output]:
            if os.path.exists(output):
                return
            result = subprocess.run(command + ["-o", output + ".new"], cwd=self.root, stderr=subprocess.PIPE, universal_newlines=True)
            if result.returncode != 0:
                raise RuntimeError("%s does not compile (%s):\n%s" % (command[-1], self.name, result.stderr[:4000]))
            os.rename(output + ".new", output)

    def program(self, build, name):
        """The command that runs a test program of this build with this library."""
        compiler, link, emulator = BUILDS[build]
        compile = compiler + ["-std=c99", "-w", "-c"]
        library, program = [os.path.join(self.root, "%s-%s" % (build, file)) for file in ("lmc.o", name)]
        test = os.path.join(OUT, "tree", "%s-%s.o" % (build, name))  # the same with all libraries
        self.make(compile + ["tests/t_lmc.c"], library)
        self.make(compile + ["tests/%s.c" % (name if name in ("vectors", "digest") else "test_" + name)], test)
        self.make(compiler + link + [test, library, "-lm", "-pthread"], program)
        return emulator + [program]

    def run(self, suite, number=0):
        """How the suite fails: in words, or None."""
        build, name = suite.split(":")
        speed, name = name[-1], name.rstrip("-~")
        command = self.program(build, name)
        environment = dict(os.environ, LMC_TEST_QUICK="1" if speed == "-" else "", LMC_TEST_BRIEF="1" if speed == "~" else "", LMC_BUG=str(number),
                           ASAN_OPTIONS="allocator_may_return_null=1")
        if name == "vectors":
            command = [sys.executable, "-u", os.path.join(self.root, "tests", "vectors.py")] + command
        if name == "digest":
            return self.run_digest(command, environment)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=self.root, errors="replace")
        hung = []
        timer = threading.Timer(HANG, lambda: (hung.append(1), process.kill()))
        timer.start()
        failed, last = None, ""
        for line in process.stdout:
            last = line.strip() or last
            if "FAILED" in line:
                failed = line.strip()
                process.kill()
                break
        process.stdout.close()
        status = process.wait()
        timer.cancel()
        if failed:
            return failed
        if hung:
            return "hangs"
        if status != 0:
            return ("signal %d: " % -status if status < 0 else "exit status %d: " % status) + last
        return None

    def run_digest(self, command, environment):
        """On each tier, as suite digests of tests/run does."""
        tiers = subprocess.run(command + ["--tiers"], stdout=subprocess.PIPE, universal_newlines=True, env=dict(environment, LMC_BUG="0")).stdout.split()
        with open(os.path.join(ROOT, "tests", "digests.txt")) as file:
            wanted = file.read()
        for tier in tiers:
            try:
                result = subprocess.run(command + ["5"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=HANG,
                                        env=dict(environment, LMC_TEST_TIER=tier))
            except subprocess.TimeoutExpired:
                return "hangs"
            if result.returncode != 0 or result.stdout != wanted:
                return "digests of tier %s, exit status %d" % (tier, result.returncode)
        return None


def try_bug(library, number, suites, must_pass):
    """Tries the suites until one fails; must_pass(suite): fails if that suite does without a bug."""
    name, group, old, new = BUGS[number - 1]
    start = time.time()
    result = {"name": name, "group": group, "old": old, "new": new, "suite": None, "how": "", "tried": []}
    for suite in suites:
        must_pass(suite)
        how = library.run(suite, number)
        result["tried"].append(suite)
        if how:
            result["suite"], result["how"] = suite, how
            break
    result["seconds"] = round(time.time() - start, 1)
    return result


def find_bugs(text):
    """{number: spans} of those whose text is there; what is wrong with the others is told."""
    places, lost, names = {}, [], set()
    for number, (name, group, old, new) in enumerate(BUGS, 1):
        found = find(text, old)
        if len({line_at(text, span) for span in found}) == 1:  # more than one: a template, once for each tier
            places[number] = found
        else:
            lost.append("%s: its text is there %d times" % (name, len(found)))
        assert TOKEN.findall(old) != TOKEN.findall(new) and name not in names and group in FIRST, name
        names.add(name)
    if lost:
        print("%d of %d bugs are left out, as lmc.h has changed:\n  %s" % (len(lost), len(BUGS), "\n  ".join(lost)), flush=True)
    return places


def write_table(results):
    caught = [result for result in results if result["suite"]]
    by_suite = {}
    for result in caught:
        by_suite[result["suite"]] = by_suite.get(result["suite"], 0) + 1
    share = 100.0 * len(caught) / len(results)
    with open(os.path.join(OUT, "table.md"), "w") as file:
        file.write("%d bugs, %d caught: %.1f %%\n\n" % (len(results), len(caught), share))
        file.write("| bug | caught by | how | s |\n|---|---|---|---|\n")
        for result in results:
            file.write("| %s | %s | %s | %.0f |\n" % (result["name"], result["suite"] or "**nothing**", result["how"][:100].replace("|", "\\|"), result["seconds"]))
        file.write("\n" + ", ".join("%s %d" % pair for pair in sorted(by_suite.items(), key=lambda pair: -pair[1])) + "\n")
    return share


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
    if options.keys() - {"list", "first", "suites", "survivors", "results", "again", "jobs"}:
        sys.exit(__doc__)
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(ROOT, "lmc.h")) as file:
        text = file.read()
    places = find_bugs(text)
    woven_text, woven = weave(text, BUGS, places)
    if "list" in options:
        print("\n".join("%-12s %s%s" % (BUGS[n - 1][1], BUGS[n - 1][0], "" if n in woven else "  (compiled alone)") for n in places))
        return 0
    store = os.path.join(OUT, options.get("results", "results.json"))
    results = {}
    if os.path.exists(store):
        with open(store) as file:
            results = json.load(file)
    for name, result in list(results.items()):  # of bugs as they are now
        if [result["group"], result["old"], result["new"]] not in [list(bug[1:]) for bug in BUGS if bug[0] == name]:
            del results[name]
    numbers = [n for n in places if not words or any(word in BUGS[n - 1][0] or word == BUGS[n - 1][1] for word in words)]
    todo = {}
    for n in numbers:
        name, group = BUGS[n - 1][:2]
        suites = suites_of(group)
        if "first" in options:
            suites = FIRST[group]
        elif options.get("suites") == "check":
            suites = check_suites_of(group)
        elif "suites" in options:
            suites = options["suites"].split(",")
        result = results.get(name)
        if "again" not in options and result:  # a run goes on where the last one ended
            suites = [] if result["suite"] else [suite for suite in suites if suite not in result["tried"]]
        if suites:
            todo[n] = suites
    if "survivors" in options:
        todo = {n: suites for n, suites in todo.items() if BUGS[n - 1][0] in results}
    together = Library("together", woven_text)
    clean, lock = {}, threading.Lock()

    def must_pass(suite):
        with Library.making[suite]:
            if suite not in clean:
                clean[suite] = together.run(suite)
            if clean[suite]:
                raise RuntimeError("%s fails without a bug: %s" % (suite, clean[suite]))

    def attempt(n):
        name = BUGS[n - 1][0]
        library = together if n in woven else Library("alone-%d" % n, put(text, places[n], BUGS[n - 1][3]))
        try:
            result = try_bug(library, n, todo[n], must_pass)
        finally:
            if library is not together:
                library.remove()
        with lock:
            result["tried"] = results.get(name, {}).get("tried", []) + result["tried"]
            results[name] = result
            print("%-18s %5.1f s  %s%s" % (result["suite"] or "NOT CAUGHT", result["seconds"], name, "  [%s]" % result["how"][:90] if result["suite"] else ""), flush=True)
            with open(store, "w") as file:
                json.dump(results, file, indent=1)

    with concurrent.futures.ThreadPoolExecutor(int(options.get("jobs", "2"))) as pool:
        futures = [pool.submit(attempt, n) for n in sorted(todo, key=lambda n: (n not in woven, n))]
        for future in concurrent.futures.as_completed(futures):
            if future.exception():
                for other in futures:
                    other.cancel()
                sys.exit(str(future.exception()))
    share = write_table([results[bug[0]] for bug in BUGS if bug[0] in results])
    print("%.1f %% caught" % share)
    compare(os.path.join(OUT, "results.json"), store)
    return share < 95


def compare(all_path, path):
    """How many of those that the whole suite catches these suites catch, if both have been run."""
    if path == all_path or not os.path.exists(all_path):
        return
    with open(all_path) as file, open(path) as other:
        whole, part = json.load(file), json.load(other)
    both = [name for name in whole if name in part and (whole[name]["suite"] or part[name]["suite"])]
    n = sum(1 for name in both if part[name]["suite"])
    print("of %d that any suite catches, these catch %d: %.1f %%" % (len(both), n, 100.0 * n / max(1, len(both))))
    for name in both:
        if not part[name]["suite"]:
            print("  not %s (%s)" % (name, whole[name]["suite"]))


if __name__ == "__main__":
    sys.exit(main())
