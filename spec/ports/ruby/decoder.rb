# frozen_string_literal: true

# A decoder of LMC files without a base and without quantised elements, which checks all of a file: Decoder.new(bytes).decode gives its files.
# The numbers of sections are those of lmc-format.md; it was written from that and its companions alone. SPDX-License-Identifier: MIT
require 'digest'

class LmcError < StandardError # its message begins with the status
end

def must(condition, text, status = :CORRUPT) = condition || raise(LmcError, "#{status}: #{text}")

# 2.1: numbers and CRCs
CRC_TABLE = (0..255).map { |c| 8.times { c = (c >> 1) ^ (c & 1) * 0x82F63B78 } && c }

def crc(data) = data.each_byte.reduce(0xFFFFFFFF) { |value, byte| CRC_TABLE[(value ^ byte) & 255] ^ (value >> 8) } ^ 0xFFFFFFFF

def varint(value) = value < 128 ? value.chr : (value & 127 | 128).chr + varint(value >> 7)

def padded(list, n) = must(n % 8 == 0 || list[-1].ord >> n % 8 == 0, 'unused bits of a list are not 0') && list

# Takes fields from the front of some bytes; status: what it means if they end
Cursor = Struct.new(:data, :at, :status) do
  def take(size)
    must(size <= data.bytesize - at, "the data ends at #{at}", status || :CORRUPT)
    self.at += size
    data.byteslice(at - size, size)
  end

  def u8 = take(1).ord
  def u32 = take(4).unpack1('V')
  def u64 = take(8).unpack1('Q<')
  def done? = at == data.bytesize

  def v
    bytes = [u8]
    bytes << u8 while bytes[-1] > 127 && bytes.size < 10
    value = bytes.each_with_index.sum { |byte, i| (byte & 127) << 7 * i }
    must(bytes[-1] < 128 && value < 2**64 && (bytes[-1].positive? || bytes.size == 1), 'a varint') && value
  end

  def up_to(most, what) = v.tap { |value| must(value <= most, what) }

  # of things that follow, of which each has so many bytes at least
  def count(most, least, what) = up_to(most, what).tap { |n| must(n * least <= data.bytesize - at, what) }

  def string(size) = take(size).tap { |text| must(!text.include?("\0"), 'a zero byte in a string') }

  def extensions # 4.5
    last = -1
    until done?
      must((tag = v) > last, 'Tags do not ascend')
      take(v)
      must((last = tag).even?, 'a critical extension record', :UNSUPPORTED)
    end
  end

  # 6: lists, trees and masks. A tree is an array of [length, symbol, start]; symbol 256 is the escape
  def list(n)
    case mode = u8
    when 0 then take(n)
    when 1 then take(1) * n
    when 2, 3 then node(tree(mode == 3), 0, n, 0)
    else must(false, "a list of mode #{mode}")
    end
  end

  def tree(escape)
    first, count = u8, u8 + 1
    n = count + (escape ? 1 : 0)
    lengths = take((n + 1) / 2).bytes.flat_map { |byte| [byte & 15, byte >> 4] }
    must(first + count <= 256 && (n.even? || lengths.pop.zero?), 'symbols or padding of a tree')
    must(lengths[0].positive? && lengths[count - 1].positive?, 'the first or last symbol has no code')
    leaves = (0...count).select { |i| lengths[i].positive? }.map { |i| [lengths[i], first + i] }.sort
    must(!escape || lengths[count] >= leaves[-1][0], 'the escape is not the last leaf')
    leaves << [lengths[count], 256] if escape
    must(leaves.size.between?(2, 256) && place(leaves) == 2**15, 'the code of a tree is not complete')
    leaves
  end

  def node(tree, depth, n, nesting)
    length, symbol = tree[-1]
    return ''.b if n.zero?
    return symbol == 256 ? take(n) : symbol.chr * n if tree.size == 1

    if symbol < 256 && tree[0][0] == length && (length - depth).between?(2, 6) # a flat node
      numbers = Array.new(length - depth) { bits(n).unpack1("b#{n}").bytes }.transpose.map { |row| row.reduce(0) { |a, b| a * 2 + (b & 1) } }
      return numbers.map { |i| tree[i][1] }.pack('C*')
    end
    mask = mask(n, nesting).unpack1("b#{n}").bytes
    half = tree.index { |leaf| leaf[2] - tree[0][2] >= 2**(14 - depth) }
    ones = mask.sum - 48 * n
    sides = [node(tree[0...half], depth + 1, n - ones, nesting), node(tree[half..], depth + 1, ones, nesting)].map(&:each_byte)
    mask.map { |bit| sides[bit & 1].next }.pack('C*')
  end

  def bits(n) = padded(take((n + 7) / 8), n)

  def mask(n, nesting)
    mode = n >= 256 && nesting < 2 ? u8 : 0
    return bits(n) if mode.zero?

    must(mode <= 20, "a mask of mode #{mode}") # gaps are for classes, which need another bit of Incompatible
    packed = node(FROZEN[(mode - 1) / 2], 0, (n + 7) / 8, nesting + 1)
    padded(mode.even? ? packed.bytes.map { |byte| byte ^ 255 }.pack('C*') : packed, n)
  end
end

def place(tree) = tree.reduce(0) { |start, leaf| leaf[2] = start; start + 2**(15 - leaf[0]) }

FROZEN = [ # 6.4: how many leaves have length 1, 2 .. 15
  [0, 0, 0, 0, 0, 0, 32, 160, 64], [0, 0, 0, 0, 0, 16, 32, 64, 112, 32], [0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2],
  [0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34], [0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90],
  [1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92], [1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162],
  [1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162], [1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182],
  [1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214]
].map do |counts|
  order = (0..255).sort_by { |value| [value.digits(2).sum, value] }
  counts.each.with_index(1).flat_map { |count, length| Array.new(count) { [length, order.shift] } }.tap { |tree| place(tree) }
end

# 4.1: files
Tensor = Struct.new(:name, :dtype, :shape, :offset, :size, :loss, :fingerprint)
SourceFile = Struct.new(:path, :form, :size, :mode, :time, :tensors, :start, :data, :fingerprint) do
  def directory? = form & 1 == 1
  def unknown? = form & 8 == 8

  def text_part(tensor) # 4.3
    first = tensor.offset - tensors[0].offset
    "\"#{tensor.name}\":{\"dtype\":\"#{tensor.dtype}\",\"shape\":[#{tensor.shape.join(',')}],\"data_offsets\":[#{first},#{first + tensor.size}]}".b
  end

  def text # as a whole, so not one that is hostile
    @text ||= must(tensors.sum { |t| t.name.size + 700 } < 2**30, 'a header text of 1 GiB', :LIMIT) && tensors.map { |t| text_part(t) }.join(',')
  end
end
DTYPES = %w[
  BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 I4 U4 I2 U2 C128
].freeze
DTYPE_BITS = [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4 + [4, 4, 2, 2, 128]

class Decoder
  attr_reader :fingerprint, :metadata

  def initialize(data)
    @in, @files, @sections, @rows, @items, @metadata, @names = Cursor.new(data, 0, :TRUNCATED), [], [], ''.b, [], {}, 0
  end

  def decode # 3.1 and 4
    header = @in.data.byteslice(0, 64)
    magic = header.byteslice(0, 8)
    must(magic == "\x95LMC\r\n\x1A\n".b, 'no LMC file', :NOT_LMC)
    must(header.size == 8 || header.getbyte(8) == 1, 'another major version', :VERSION)
    @in.take(64)
    algorithm, reserved, incompatible, base, reserved_too, sum = header.unpack('x10Ca5Q<x8a16a12V')
    must(crc(header[0, 60]) == sum, 'Header_CRC', :CHECKSUM)
    must(algorithm == 1 && reserved == "\0" * 5, 'Algorithm or reserved bytes of the header', :UNSUPPORTED)
    must(incompatible & ~56 == 0, "bits of Incompatible: #{incompatible}", :UNSUPPORTED)
    @zeros, @matrix, @codes = [3, 4, 5].map { |bit| incompatible[bit] == 1 }
    must(base == "\0" * 16, 'a base without its bit')
    must(reserved_too == "\0" * 12, 'reserved bytes of the header', :UNSUPPORTED)
    last = nil # Kind of the section before
    loop do
      at = @in.at
      kind, body = section(last)
      end_stream if @stream && %w[FILE BLKS].include?(kind)
      return index(body, header, at) && @files if kind == 'INDX'

      last = kind
      next table_of_blocks(body) if kind == 'BLKS'

      # Kind, Stored_Size, Body_Size and Body of its entry in the index; end_stream() adds what stands behind a FILE
      @sections << (entry = [kind, '', kind.match?(/\A[a-z]/) ? '' : varint(body.data.size) + body.data])
      read_files(body) if kind == 'FILE'
      run(body) if kind == 'RUN '
      entry[1] = varint(@in.at - at)
    end
  end

  def section(last)
    head = @in.take(20)
    kind, size, head_crc, body_crc = head.unpack('a4Q<VV')
    must(crc(head[0, 12]) == head_crc, 'Head_CRC', :CHECKSUM)
    must(kind.match?(/\A[A-Za-z][A-Za-z0-9 ]{3}\z/), 'Kind')
    must(kind.match?(/\A[a-z]/) || ['FILE', 'RUN ', 'BLKS', 'INDX'].include?(kind), "a critical section #{kind}", :UNSUPPORTED)
    must(last ? (last == 'BLKS') == (kind == 'INDX') : kind == 'FILE', "#{kind} behind #{last}")
    must(!%w[FILE BLKS].include?(kind) || stream_complete?, 'a stream is not complete')
    must(size <= 2**40, 'Body_Size')
    must(size <= 2**30, 'a section over 1 GiB', :LIMIT)
    body = Cursor.new(@in.take(size), 0)
    must(crc(body.data) == body_crc, 'Body_CRC', :CHECKSUM)
    [kind, body]
  end

  def stream_complete? = !@stream || @stream[0].unknown? || @stream_data.size == @start

  def read_files(body)
    n = body.count(2**28, 3, 'N_Files')
    must(n.positive?, 'N_Files is 0')
    @stream, @stream_data, @stream_entry, @start, entries, before = [], ''.b, @sections[-1], 0, [], ''.b
    n.times do
      file = file_entry(body, before, entries)
      must(n == 1 || !file.unknown?, 'a file of unknown size beside others')
      must((@start += file.size.to_i) < 2**63, 'a stream is too large')
      before = file.path
      @stream << file
    end
    @files += @stream
    body.extensions
  end

  def check_paths
    must(@files.size == 1 || @files.none? { |file| file.path == '' }, 'an empty Path beside others')
    # with / before all other bytes, what is below a path follows it at once
    @files.map { |file| [file.path.tr('/', "\0"), file] }.sort_by(&:first).each_cons(2) do |(path, file), (next_path, _)|
      must(path != next_path, 'two files of one Path')
      must(file.directory? || !next_path.start_with?("#{path}\0".b), 'a Path below that of a file')
    end
  end

  def file_entry(body, before, entries)
    file = SourceFile.new(nil, body.u8)
    must(file.form < 16, 'reserved bits of a file', :UNSUPPORTED)
    must(file.form & 9 != 9, 'a directory of unknown size')
    prefix, rest = body.u8, body.v
    must(prefix <= before.size && prefix + rest <= 65535, 'size of a Path')
    file.path = before[0, prefix] + body.string(rest)
    must(file.path == '' || (file.path.split('/', -1) & ['', '.', '..']).empty?, 'an illegal Path')
    file.size = file.unknown? ? nil : file.directory? ? 0 : body.up_to(2**63 - 1, 'File_Size')
    file.mode = body.up_to(0o7777, 'Mode') if file.form & 2 == 2
    file.time = body.take(12).unpack('q<V') if file.form & 4 == 4
    must(!file.time || file.time[1] < 10**9, 'Mtime_Nanoseconds')
    file.tensors, file.start, end_ = [], @start, 0
    (file.form & 9 == 0 ? body.count(2**28, 5, 'N_Tensors') : 0).times do
      file.tensors << (tensor = tensor_entry(body, end_, entries))
      entries << tensor
      must((end_ = tensor.offset + tensor.size) <= file.size, 'a tensor beyond its file')
    end
    must(file.tensors.uniq(&:name).size == file.tensors.size, 'two tensors of one Name')
    file
  end

  def tensor_entry(body, end_, entries)
    form, back = body.u8, body.v
    must(form < 8, 'reserved bits of a tensor', :UNSUPPORTED)
    must(back <= entries.size && (back.positive? || form.even?), 'Back')
    reference = back.positive? ? entries[-back] : Tensor.new(''.b)
    prefix, suffix = back.positive? ? [body.u8, body.u8] : [0, 0]
    must(prefix + suffix <= reference.name.size, 'Prefix or Suffix')
    middle = body.string(body.up_to(65535 - prefix - suffix, 'size of a Name'))
    name = reference.name[0, prefix] + middle + reference.name[reference.name.size - suffix, suffix]
    must((@names += name.size) < 2**32, 'names of 4 GiB', :LIMIT)
    gap = form[1] == 1 ? body.v.tap { |g| must(g.positive?, 'Gap') } : 0
    dtype, shape, size = form.odd? ? [reference.dtype, reference.shape, reference.size] : type(body)
    loss = form[2] == 1 ? body.take(6).unpack('CCV') : [0, 0, 0]
    must(form[2].zero? || loss[0].positive? && loss[1].positive?, 'Generation or Measure')
    Tensor.new(name, dtype, shape, end_ + gap, size, loss)
  end

  def type(body)
    number = body.u8
    must(number <= 27, "Dtype #{number}", :UNSUPPORTED)
    dtype = number.positive? ? DTYPES[number - 1].b : body.string(body.u8.tap { |n| must(n.between?(1, 32), 'Dtype_Size') })
    must(number.positive? || !DTYPES.include?(dtype), 'a dtype of the table as a string')
    shape = Array.new(body.u8.tap { |rank| must(rank <= 32, 'Rank') }) { body.v }
    return [dtype, shape, body.v] if number.zero?

    bits = shape.reduce(DTYPE_BITS[number - 1], :*)
    must((bits % 8).zero? && bits < 2**66, 'Size of a tensor')
    [dtype, shape, bits / 8]
  end

  def run(body) # 4.2
    size, block_size, prediction = body.v, body.v, body.u8
    must(size.between?(1, 2**63 - 1), 'Run_Size')
    must((14..22).any? { |log2| block_size == 2**log2 }, 'Block_Size', :UNSUPPORTED)
    must(prediction <= 5, 'Prediction', :UNSUPPORTED)
    must([0, 2].include?(prediction), 'a Prediction without its bit')
    must((size - 1) / block_size < 2**32 - 1, 'more than 2^32 - 1 blocks')
    must(@stream_data.size + size <= (@stream[0].unknown? ? 2**63 - 1 : @start), 'a run beyond its stream')
    segments = prediction == 2 ? read_segments(body, size) : nil
    body.extensions
    0.step(size - 1, block_size) do |from|
      @stream_data << block(from / block_size, [block_size, size - from].min, from, segments)
    end
  end

  def read_segments(body, size)
    n, last, done = body.count(2**24, 2, 'N_Segments'), -1, 0
    segments = Array.new(n) do
      length, reference = body.v, body.v
      done += length
      must(length.positive? && done <= size, 'a segment is empty, or segments are more than their run')
      next [done, nil] if reference.zero?

      z, has_offset = (reference - 1).divmod(2)
      last += 1 + (z.even? ? z / 2 : -(z + 1) / 2)
      offset = has_offset == 1 ? body.v.tap { |o| must(o.positive?, 'Offset is 0') } : 0
      must(last.between?(0, @files.size - 1), 'a file that is not described')
      must(offset + length <= @files[last].text.size, 'beyond a header text')
      [done, @files[last], offset - (done - length)]
    end
    must(done == size, 'segments are less than their run')
    segments
  end

  def block(number, bytes, from, segments) # 5
    head = @in.take(24)
    sync, width, coding, grouping, n, size, content_crc, payload_crc, head_crc = head.unpack('C4V5')
    must(sync == 0xB2, 'Sync')
    must(crc([number].pack('V') + head[0, 20]) == head_crc, 'Header_CRC', :CHECKSUM)
    order, predicted, layout = coding & 3, coding[2] == 1, coding >> 5
    must([1, 2, 4, 8].include?(width) && order < 3 && layout < 6 && coding & 0x18 == 0, 'fields of a block', :UNSUPPORTED)
    must(n * width == bytes, 'N_Elements')
    must(predicted ? segments : payload_crc.zero?, 'Predicted or Payload_CRC')
    must([true, true, false, @zeros && !predicted, @matrix && !predicted, @codes && coding == 0xA0 && [2, 4].include?(width)][layout] && grouping.zero?, 'Layout or Grouping without its bit')
    must(layout.zero? ? size == bytes && coding.zero? : size < bytes && (order.positive? || !(predicted || layout == 4)), 'Coding or Payload_Size')
    payload = Cursor.new(@in.take(size), 0)
    must(!predicted || crc(payload.data) == payload_crc, 'Payload_CRC', :CHECKSUM)
    data = layout.zero? ? payload.take(size) : layout == 5 ? codes(payload, n, width) : planes(payload, n, width, order, layout, predicted ? predict(segments, from, bytes) : "\0" * bytes)
    must(payload.done?, 'a payload is too long')
    must(crc(data) == content_crc, 'Content_CRC', :CHECKSUM)
    @rows << [24 + size, head_crc].pack('VV')
    data
  end

  def planes(payload, n, width, order, layout, base) # 5.1
    form = { 1 => 'C*', 2 => 'S<*', 4 => 'L<*', 8 => 'Q<*' }[width]
    numbers = layout == 4 ? matrix(payload, n, width) : base.unpack(form)
    lists = layout == 3 ? apart(payload, n, width) : Array.new(width) { payload.list(n) }
    return lists[0] if width == 1 && order.zero?

    Array.new(n) { |i| element((0...width).sum { |p| lists[p].getbyte(i) << 8 * p }, numbers[i], 8 * width, order) }.pack(form)
  end

  def matrix(payload, n, width) # matrix.md: the predictions
    size, first, shift = payload.u32, payload.u32, payload.u8
    must(size.between?(1, n) && first < size && shift < 8 * width, 'Row_Size, First or Shift')
    k = (first + n - 1) / size + 1
    rows = payload.list(k).bytes.zip(payload.list(k).bytes).map { |low, high| low | high << 8 }
    columns = payload.list(size).bytes
    must(rows.max + columns.max < 2**(8 * width - shift), 'the sum of two numbers')
    Array.new(n) { |i| rows[(first + i) / size] + columns[(first + i) % size] << shift }
  end

  def codes(payload, n, width) # codes.md
    mantissa, half, group_size, first = payload.u8, payload.u8, payload.u32, payload.u32
    must(mantissa.between?(2, 7) && half.between?(0, width == 2 ? 1 : 0), 'Mantissa or Half')
    must(group_size.between?(16, 2**31 - 1) && first.between?(1, group_size), 'Group_Size or First_Group')
    k = 1 + [0, (n - first).fdiv(group_size).ceil].max
    scales = Array.new(4) { payload.list(k).bytes }.transpose.map { |bytes| bytes.pack('C4') }
    must(scales.all? { |scale| scale.unpack1('V').between?(0x00800000, 0x6E000000) }, 'a scale')
    scales.map! { |scale| scale.unpack1('e') }
    numbers = Array.new(256) { |code| number(code, mantissa).to_f * (mantissa < 7 && code > 127 ? -1 : 1) }
    floats = payload.list(n).each_byte.with_index.map { |code, i| numbers[code] * scales[(i - first).div(group_size) + 1] }.pack('e*')
    width == 4 ? floats : floats.unpack('V*').map { |bits| narrow(bits, half) }.pack('v*')
  end

  def number(code, mantissa) # without its sign if mantissa < 7
    return code < 128 ? code : code - 256 if mantissa == 7

    exponent, low = (code & 127) >> mantissa, code & (1 << mantissa) - 1
    exponent.zero? ? low : (1 << mantissa | low) << exponent - 1
  end

  def narrow(bits, half) # 4.2, Conversion, of finite F32
    sign, magnitude = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    drop = half.zero? ? 16 : 13
    if half == 1 && magnitude < 0x38800000 # below 2^-14: units of 2^-24
      drop, magnitude = 126 - (magnitude >> 23), magnitude & 0x7FFFFF | 0x800000
    elsif half == 1
      magnitude -= 0x38000000
    end
    result = magnitude + (1 << drop - 1) - 1 + magnitude[drop] >> drop
    sign | (half.zero? ? result : [result, 0x7C00].min)
  end

  def apart(payload, n, width) # zeros.md
    mask = padded(payload.list((n + 7) / 8), n).unpack1('b*')[0, n].bytes.map { |bit| bit - 48 }
    Array.new(width) do
      lists = [0, 1].map { |kind| (size = mask.count(kind)).zero? ? nil : payload.list(size).each_byte }
      mask.map { |kind| lists[kind].next }.pack('C*')
    end
  end

  def element(residual, base, bits, order)
    return residual if order.zero?

    difference, sign = (residual >> 1) ^ -(residual & 1), 1 << bits - 1
    return (base + difference) % (2 * sign) if order == 1

    total = ((base & sign - 1) + difference) % (2 * sign)
    (base & sign) ^ (total < sign ? total : total ^ sign - 1)
  end

  def predict(segments, from, size)
    out, i = ''.b, segments.bsearch_index { |s| s[0] > from }
    while out.size < size
      end_, file, offset = segments[i]
      n = [end_ - from - out.size, size - out.size].min
      out << (file ? file.text[offset + from + out.size, n] : "\0" * n)
      i += 1
    end
    out
  end

  def end_stream # 7
    @stream.each do |file|
      data = file.data = @stream_data[file.start, file.size || @stream_data.size]
      file.tensors.each { |t| t.fingerprint = fingerprint_of(0, t.dtype, t.shape, data[t.offset, t.size]) }
      file.fingerprint = fingerprint_of(1 + file.form[0], 'U8', [data.size], data) if file.tensors.empty?
      items = file.tensors.empty? ? [[file.path, file.fingerprint]] : file.tensors.map { |t| [t.name, t.fingerprint] }
      @items.concat(items)
      @stream_entry << (file.size ? '' : [data.size].pack('Q<')) << [crc(data)].pack('V') << items.map(&:last).join
    end
  end

  def fingerprint_of(type, dtype, shape, data)
    sums = (0...data.size).step(262144).map do |at|
      chunk = data[at, 262144]
      words = (chunk + "\0" * (-chunk.size % 8)).unpack('Q<*')
      [crc(chunk), words.sum % 2**64].pack('VQ<')
    end
    fields = [dtype.size, dtype, shape.size, *shape, data.size].pack("Ca*CQ<#{shape.size + 1}")
    Digest::SHA256.digest("LMC tensor 3\0".b + type.chr + sums.join + fields)[0, 16]
  end

  def table_of_blocks(body) # 8.1
    check_paths
    must(body.data == @rows, 'the table of blocks')
  end

  def index(body, header, at) # 8.2
    must(body.take(64) == header, 'the copy of the header')
    snapshot = @items.sort_by { |name, id| "#{name}\0".b + id }.map { |name, id| [name.size].pack('V') + name + id }.join
    @fingerprint = Digest::SHA256.digest("LMC snapshot 3\0".b + snapshot)[0, 16]
    must(body.take(16) == @fingerprint, 'Snapshot_Fingerprint')
    must(body.u32 == @sections.size, 'N_Sections')
    n_metadata = body.u32
    @sections.each { |parts| must(body.take(parts.sum(&:size)) == parts.join, 'an entry of the index') }
    read_metadata(body, n_metadata)
    body.extensions
    trailer, end_ = @in.take(40), @in.at - 40
    offset, size, total, major, reserved, sum, magic = trailer.unpack('Q<3CxvVa8')
    must(magic == "\x94LMC\r\n\x1A\n".b, 'End_Magic')
    must(crc(trailer[0, 28]) == sum, 'Trailer_CRC', :CHECKSUM)
    must(major == 1, 'another major version', :VERSION)
    must(reserved.zero?, 'reserved field of the trailer', :UNSUPPORTED)
    must(offset == at && size == end_ - at && total == end_ + 40 && @in.done?, 'the trailer, or what follows it')
  end

  def read_metadata(body, n) # 8.3
    must(n * 9 <= body.data.size - body.at, 'N_Metadata')
    last = ''.b
    n.times do
      key_size, value_size = body.u32, body.u32
      must(key_size.between?(1, 65535) && value_size <= 2**28, 'sizes of metadata')
      key = body.string(key_size)
      must(key > last, 'keys do not ascend')
      @metadata[last = key] = body.take(value_size)
    end
  end
end
