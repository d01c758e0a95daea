# LMC format 1.0 for Kaitai Struct: header, sections, headers of blocks, index, trailer. The page is lmc-format.md; the
# numbers of sections are those of the page. Payloads of blocks are bytes here, and no CRC or rule is checked: it shows
# a file, it does not decode one. The compiler of Kaitai Struct has not seen it yet: there was none where it was written.
# An interpreter of what it uses of Kaitai Struct read all valid vectors by it: no byte was left over. SPDX-License-Identifier: MIT
meta:
  id: lmc
  title: LMC tensor snapshot
  file-extension: lmc
  license: MIT
  endian: le
  encoding: UTF-8
doc: A snapshot of files and tensors, or a delta to one (lmc-format.md).
seq:
  - id: header
    type: file_header
  - id: sections
    type: section
    repeat: until
    repeat-until: _.kind == "INDX"
  - id: trailer
    type: trailer
instances:
  last_trailer:
    doc: What a range reader reads first.
    pos: _io.size - 40
    type: trailer
  last_index:
    pos: last_trailer.index_offset
    type: section
types:
  file_header:
    doc: Section 3.1
    seq:
      - id: magic
        contents: [0x95, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a]
      - id: format_major
        type: u1
      - id: format_minor
        type: u1
      - id: algorithm
        doc: of fingerprints
        type: u1
      - id: reserved
        size: 5
      - id: incompatible
        type: u8
      - id: compatible
        type: u8
      - id: base_fingerprint
        size: 16
      - id: reserved_2
        size: 12
      - id: header_crc
        type: u4
    instances:
      has_base:
        value: (incompatible & 1) != 0
      has_own:
        value: (incompatible & 2) != 0
      has_quantised:
        value: (incompatible & 4) != 0
      has_zeros:
        value: (incompatible & 8) != 0
      has_matrix:
        value: (incompatible & 16) != 0
      has_codes:
        value: (incompatible & 32) != 0
  section:
    doc: Section 4; the blocks of a run follow its body.
    seq:
      - id: kind
        type: str
        size: 4
        encoding: ASCII
      - id: body_size
        type: u8
      - id: head_crc
        type: u4
      - id: body_crc
        type: u4
      - id: body
        size: body_size
        type:
          switch-on: kind
          cases:
            '"FILE"': file_body
            '"RUN "': run_body
            '"BLKS"': block_table
            '"INDX"': index_body
      - id: blocks
        type: block
        repeat: expr
        repeat-expr: body.as<run_body>.n_blocks
        if: kind == "RUN "
  varint:
    doc: Section 2.1
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: _ < 128
    instances:
      n:
        value: groups.size
      value:
        value: >-
          (groups[0] & 127)
          + (n > 1 ? (groups[1] & 127) * 128 : 0)
          + (n > 2 ? (groups[2] & 127) * 16384 : 0)
          + (n > 3 ? (groups[3] & 127) * 2097152 : 0)
          + (n > 4 ? (groups[4] & 127) * 268435456 : 0)
          + (n > 5 ? (groups[5] & 127) * 34359738368 : 0)
          + (n > 6 ? (groups[6] & 127) * 4398046511104 : 0)
          + (n > 7 ? (groups[7] & 127) * 562949953421312 : 0)
          + (n > 8 ? (groups[8] & 127) * 72057594037927936 : 0)
          + (n > 9 ? (groups[9] & 127) * 4611686018427387904 * 2 : 0)
  extension_record:
    doc: Section 4.5
    seq:
      - id: tag
        type: varint
      - id: size
        type: varint
      - id: content
        size: size.value
    instances:
      is_critical:
        value: (tag.value & 1) != 0
  file_body:
    doc: Section 4.1
    seq:
      - id: n_files
        type: varint
      - id: files
        type: file_entry
        repeat: expr
        repeat-expr: n_files.value
      - id: extensions
        type: extension_record
        repeat: eos
  file_entry:
    seq:
      - id: form
        type: u1
      - id: path_prefix
        doc: bytes shared with the path of the file entry before it
        type: u1
      - id: path_rest_size
        type: varint
      - id: path_rest
        size: path_rest_size.value
      - id: file_size
        type: varint
        if: has_tables
      - id: mode
        type: varint
        if: has_mode
      - id: mtime_seconds
        type: s8
        if: has_mtime
      - id: mtime_nanoseconds
        type: u4
        if: has_mtime
      - id: n_tensors
        type: varint
        if: has_tables
      - id: tensors
        type: tensor_entry
        repeat: expr
        repeat-expr: n_tensors.value
        if: has_tables
    instances:
      is_directory:
        value: (form & 1) != 0
      has_mode:
        value: (form & 2) != 0
      has_mtime:
        value: (form & 4) != 0
      is_unknown:
        value: (form & 8) != 0
      has_tables:
        value: (form & 9) == 0
  tensor_entry:
    seq:
      - id: form
        type: u1
      - id: back
        doc: 0, or the reference is the entry that stands so many before this one
        type: varint
      - id: prefix
        doc: bytes of the reference's name, from its start
        type: u1
        if: back.value != 0
      - id: suffix
        doc: bytes of the reference's name, to its end
        type: u1
        if: back.value != 0
      - id: middle_size
        type: varint
      - id: middle
        size: middle_size.value
      - id: gap
        type: varint
        if: has_gap
      - id: dtype
        type: u1
        enum: dtype
        if: not is_like
      - id: dtype_size
        type: u1
        if: is_other_dtype
      - id: dtype_string
        type: str
        size: dtype_size
        if: is_other_dtype
      - id: rank
        type: u1
        if: not is_like
      - id: shape
        type: varint
        repeat: expr
        repeat-expr: rank
        if: not is_like
      - id: size
        type: varint
        if: is_other_dtype
      - id: generation
        type: u1
        if: has_loss
      - id: measure
        type: u1
        enum: measure
        if: has_loss
      - id: error
        doc: in units of 2^-32
        type: u4
        if: has_loss
    instances:
      is_like:
        value: (form & 1) != 0
      has_gap:
        value: (form & 2) != 0
      has_loss:
        value: (form & 4) != 0
      is_other_dtype:
        value: (not is_like) and (dtype == dtype::string)
  run_body:
    doc: Section 4.2
    seq:
      - id: run_size
        type: varint
      - id: block_size
        type: varint
      - id: prediction
        type: u1
        enum: run_prediction
      - id: n_segments
        type: varint
        if: prediction != run_prediction::zero
      - id: segments
        type: segment
        repeat: expr
        repeat-expr: n_segments.value
        if: prediction != run_prediction::zero
      - id: extensions
        type: extension_record
        repeat: eos
    instances:
      n_blocks:
        value: (run_size.value - 1) / block_size.value + 1
  segment:
    seq:
      - id: size
        type: varint
      - id: reference
        doc: 0, no prediction
        type: varint
      - id: offset
        type: varint
        if: reference.value != 0 and (reference.value & 1) == 0
  block:
    doc: Section 5
    seq:
      - id: sync
        contents: [0xb2]
      - id: width
        type: u1
      - id: coding
        type: u1
      - id: grouping
        type: u1
      - id: n_elements
        type: u4
      - id: payload_size
        type: u4
      - id: content_crc
        type: u4
      - id: payload_crc
        type: u4
      - id: header_crc
        type: u4
      - id: payload
        size: payload_size
    instances:
      order:
        value: coding & 3
        enum: order
      is_predicted:
        value: (coding & 4) != 0
      layout:
        value: coding >> 5
        enum: layout
      n_classes:
        value: (grouping & 15) + 1
      is_sparse:
        value: (grouping & 16) != 0
      n_natural_planes:
        value: grouping >> 5
  block_table:
    doc: Section 8.1
    seq:
      - id: rows
        type: block_row
        repeat: eos
  block_row:
    seq:
      - id: size
        type: u4
      - id: header_crc
        type: u4
  index_body:
    doc: Section 8.2
    seq:
      - id: header
        type: file_header
      - id: snapshot_fingerprint
        size: 16
      - id: n_sections
        type: u4
      - id: n_metadata
        type: u4
      - id: entries
        type: index_entry
        repeat: expr
        repeat-expr: n_sections
      - id: metadata
        type: metadata_entry
        repeat: expr
        repeat-expr: n_metadata
      - id: extensions
        type: extension_record
        repeat: eos
  index_entry:
    seq:
      - id: kind
        type: str
        size: 4
        encoding: ASCII
      - id: stored_size
        doc: of the section, with its blocks
        type: varint
      - id: body_size
        type: varint
        if: has_body
      - id: file_body
        size: body_size.value
        type: file_body
        if: kind == "FILE"
      - id: files
        type: file_summary(file_body.files[_index])
        repeat: expr
        repeat-expr: file_body.n_files.value
        if: kind == "FILE"
      - id: run_body
        size: body_size.value
        type: run_body
        if: kind == "RUN "
    instances:
      has_body:
        value: kind == "FILE" or kind == "RUN "
  file_summary:
    params:
      - id: file
        type: file_entry
    seq:
      - id: file_size
        type: u8
        if: file.is_unknown
      - id: file_crc
        type: u4
      - id: fingerprints
        doc: one per tensor, or one for the file
        size: 16
        repeat: expr
        repeat-expr: n_fingerprints
    instances:
      n_tensors:
        value: "file.has_tables ? file.n_tensors.value : 0"
      n_fingerprints:
        value: "n_tensors == 0 ? 1 : n_tensors"
  metadata_entry:
    doc: Section 8.3
    seq:
      - id: key_size
        type: u4
      - id: value_size
        type: u4
      - id: key
        size: key_size
      - id: value
        size: value_size
  trailer:
    doc: Section 3.2
    seq:
      - id: index_offset
        type: u8
      - id: index_size
        type: u8
      - id: total_size
        type: u8
      - id: format_major
        type: u1
      - id: format_minor
        type: u1
      - id: reserved
        type: u2
      - id: trailer_crc
        type: u4
      - id: end_magic
        contents: [0x94, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a]
enums:
  dtype:
    0: string
    1: bool
    2: f4
    3: f6_e2m3
    4: f6_e3m2
    5: u8
    6: i8
    7: f8_e5m2
    8: f8_e4m3
    9: f8_e8m0
    10: f8_e4m3fnuz
    11: f8_e5m2fnuz
    12: i16
    13: u16
    14: f16
    15: bf16
    16: i32
    17: u32
    18: f32
    19: c64
    20: f64
    21: i64
    22: u64
    23: i4
    24: u4
    25: i2
    26: u2
    27: c128
  measure:
    1: update
    2: relative
    3: nmse
  run_prediction:
    0: zero
    1: base
    2: header_text
    3: own
    4: own_f32_as_bf16
    5: own_f32_as_f16
  order:
    0: none
    1: twos_complement
    2: sign_and_magnitude
  layout:
    0: stored
    1: planes
    2: quantised
    3: zeros_apart
    4: rows_and_columns
    5: codes
