# frozen_string_literal: true

# A decoder of LMC files of conformance level 0, which checks all of a file: Decoder.new(bytes).decode gives its files. The numbers of
# sections are those of lmc-format.md, from which alone this was written. SPDX-License-Identifier: MIT
require 'digest'

class LmcError < StandardError # its message begins with the status
end

def must(condition, text, status = :CORRUPT) = condition || raise(LmcError, "#{status}: #{text}")

# 2: numbers and CRCs
def crc_table(polynomial) = (0..255).map { |c| 8.times { c = c >> 1 ^ (polynomial if c & 1 == 1).to_i } && c }
CRC32C = crc_table(0x82F63B78)
CRC64 = crc_table(0x9A6C9329AC4BC9B5)

def crc(data, table = CRC32C, ones = 0xFFFFFFFF)
  data.each_byte.reduce(ones) { |value, byte| table[(value ^ byte) & 255] ^ value >> 8 } ^ ones
end

def crc64(data) = crc(data, CRC64, 2**64 - 1)

def padded(list, n) = must(n % 8 == 0 || list[-1].ord >> n % 8 == 0, 'unused bits of a list are not 0') && list
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
  def string(size) = take(size).tap { |text| must(!text.include?("\0"), 'a zero byte in a string') }

  def extensions # 5.4
    last = -1
    until done?
      must((tag = v) > last, 'Tags do not ascend')
      take(v)
      must((last = tag).even?, 'a critical extension record', :UNSUPPORTED)
    end
  end

  # 8: lists, trees and masks. A tree is an array of [length, symbol, start]; symbol 256 is the escape
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
    mode = n >= 256 && nesting < 3 ? u8 : 0
    return bits(n) if mode.zero?

    must(mode <= (nesting.zero? ? 64 : 20), "a mask of mode #{mode}")
    return gaps(n, (mode - 21) / 2, (mode - 21) % 2) if mode > 20

    packed = node(FROZEN[(mode - 1) / 2], 0, (n + 7) / 8, nesting + 1)
    padded(mode.even? ? packed.bytes.map { |byte| byte ^ 255 }.pack('C*') : packed, n)
  end

  def gaps(n, shift, polarity)
    count = take(3).unpack('vC').then { |low, high| low + 65536 * high }
    must(count.between?(1, n), 'the number of gaps')
    low, mask, position, last = bits(count * shift).unpack1('b*'), polarity.to_s * n, -1, -1
    quotients = data.byteslice(at, (count + (n >> shift)) / 8 + 1).unpack1('b*') # more never fit into n bits
    count.times do |i|
      one = quotients.index('1', last + 1) || must(false, 'quotients that end, or are too large')
      position += 1 + (one - last - 1 << shift) + low[i * shift, shift].reverse.to_i(2)
      must(position < n, 'a gap beyond the mask')
      mask[position] = (1 - polarity).to_s
      last = one
    end
    padded(take(last / 8 + 1), last + 1)
    [mask].pack('b*')
  end
end

def place(tree) = tree.reduce(0) { |start, leaf| leaf[2] = start; start + 2**(15 - leaf[0]) }

FROZEN = [ # 8.4: how many leaves have length 1, 2 .. 15
  [0, 0, 0, 0, 0, 0, 32, 160, 64], [0, 0, 0, 0, 0, 16, 32, 64, 112, 32], [0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2],
  [0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34], [0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90],
  [1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92], [1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162],
  [1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162], [1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182],
  [1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214]
].map do |counts|
  order = (0..255).sort_by { |value| [value.digits(2).sum, value] }
  counts.each.with_index(1).flat_map { |count, length| Array.new(count) { [length, order.shift] } }.tap { |tree| place(tree) }
end

# 5.1: files
Tensor = Struct.new(:name, :dtype, :shape, :offset, :size)
SourceFile = Struct.new(:path, :form, :size, :mode, :time, :tensors, :start, :data) do
  def directory? = form & 1 == 1
  def unknown? = form & 8 == 8

  def text_part(tensor) # 5.5
    first = tensor.offset - tensors[0].offset
    "\"#{tensor.name}\":{\"dtype\":\"#{tensor.dtype}\",\"shape\":[#{tensor.shape.join(',')}],\"data_offsets\":[#{first},#{first + tensor.size}]}".b
  end

  def text # as a whole, so not one that is hostile
    @text ||= must(tensors.sum { |t| t.name.size + 700 } < 2**30, 'a header text of 1 GiB', :LIMIT) && tensors.map { |t| text_part(t) }.join(',')
  end
end
DTYPES = %w[BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64].freeze
DTYPE_BITS = [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4

class Decoder
  attr_reader :metadata

  def initialize(data)
    @in, @files, @entries, @items, @metadata, @names = Cursor.new(data, 0, :TRUNCATED), [], [], [], {}, 0
  end

  def decode # 4 and 5
    header = @in.data.byteslice(0, 80)
    magic = header.byteslice(0, 8)
    must(magic != "\x8CLMC\r\n\x1A\n".b, 'a draft of the format', :VERSION)
    must(magic == "\x83LMC\r\n\x1A\n".b, 'no LMC file', :NOT_LMC)
    must(header.size == 8 || header.getbyte(8) == 1, 'another major version', :VERSION)
    @in.take(80)
    size, flags, incompatible, base, depth, reserved, sum = header.unpack('x10vVQ<x8a32VQ<V')
    must(crc(header[0, 76]) == sum, 'Header_CRC', :CHECKSUM)
    must(size == 80, 'Header_Size')
    must(incompatible.zero?, "Incompatible is #{incompatible}: more than level 0", :UNSUPPORTED)
    must(flags.zero? && reserved.zero?, 'reserved fields of the header', :UNSUPPORTED)
    must(base == "\0" * 32 && depth.zero?, 'a base without its bit')
    numbers = Hash.new(0)
    loop do
      at, head = @in.at, @in.take(24)
      kind, number, size, head_crc, body_crc = head.unpack('a4VQ<VV')
      must(crc(head[0, 16]) == head_crc, 'Head_CRC', :CHECKSUM)
      must(kind.match?(/\A[A-Za-z][A-Za-z0-9 ]{3}\z/), 'Kind')
      sort = kind.match?(/\A[a-z]/) ? :ancillary : kind
      must([:ancillary, 'FILE', 'RUN ', 'INDX'].include?(sort), "a critical section #{kind}", :UNSUPPORTED)
      must(number == numbers[sort] && size <= 2**40, 'Number or Body_Size')
      must(size <= 2**30, 'a section over 1 GiB', :LIMIT)
      numbers[sort] += 1
      body = Cursor.new(@in.take(size), 0)
      must(crc(body.data) == body_crc, 'Body_CRC', :CHECKSUM)
      must(@stream || kind == 'FILE', 'the first section is no FILE')
      end_stream if @stream && %w[FILE INDX].include?(kind)
      return index(body, header, at) && @files if kind == 'INDX'

      @entries << [at].pack('Q<') + head + (sort == :ancillary ? '' : body.data)
      read_files(body) if kind == 'FILE'
      run(body, number) if kind == 'RUN '
    end
  end

  def read_files(body)
    n = body.up_to(2**28, 'N_Files')
    must(n.positive?, 'N_Files is 0')
    @stream, @stream_data, @stream_at, @start, entries, before = [], ''.b, @entries.size - 1, 0, [], ''.b
    n.times do
      file = file_entry(body, before, entries)
      must(n == 1 || !file.unknown?, 'a file of unknown size beside others')
      must((@start += file.size.to_i) < 2**63, 'a stream is too large')
      before = file.path
      @stream << file
    end
    @files += @stream
    must(@files.size == 1 || @files.none? { |file| file.path == '' }, 'an empty Path beside others')
    must(@files.uniq(&:path).size == @files.size, 'two files of one Path')
    body.extensions
  end

  def file_entry(body, before, entries)
    file = SourceFile.new(nil, body.u8)
    must(file.form < 16, 'reserved bits of a file', :UNSUPPORTED)
    must(file.form & 9 != 9, 'a directory of unknown size')
    prefix, rest = body.u8, body.v
    must(prefix <= before.size && prefix + rest <= 65535, 'size of a Path')
    file.path = before[0, prefix] + body.string(rest)
    must(file.path == '' || (file.path.split('/', -1) & ['', '.', '..']).empty? && !file.path.include?('\\'), 'an illegal Path')
    file.size = file.unknown? ? nil : file.directory? ? 0 : body.up_to(2**63 - 1, 'File_Size')
    file.mode = body.up_to(0o7777, 'Mode') if file.form & 2 == 2
    file.time = body.take(12).unpack('q<V') if file.form & 4 == 4
    must(!file.time || file.time[1] < 10**9, 'Mtime_Nanoseconds')
    file.tensors, file.start, end_ = [], @start, 0
    (file.form & 9 == 0 ? body.up_to(2**28, 'N_Tensors') : 0).times do
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
    generation, measure = body.take(6).unpack('CC') if form[2] == 1
    must(form[2].zero? || generation.positive? && measure.positive?, 'Generation or Measure')
    must(measure.to_i <= 3, 'Measure', :UNSUPPORTED)
    Tensor.new(name, dtype, shape, end_ + gap, size)
  end

  def type(body)
    number = body.u8
    must(number <= 22, "Dtype #{number}", :UNSUPPORTED)
    dtype = number.positive? ? DTYPES[number - 1].b : body.string(body.u8.tap { |n| must(n.between?(1, 32), 'Dtype_Size') })
    must(number.positive? || !DTYPES.include?(dtype), 'a dtype of the table as a string')
    shape = Array.new(body.u8.tap { |rank| must(rank <= 32, 'Rank') }) { body.v }
    return [dtype, shape, body.v] if number.zero?

    bits = shape.reduce(DTYPE_BITS[number - 1], :*)
    must((bits % 8).zero? && bits < 2**66, 'Size of a tensor')
    [dtype, shape, bits / 8]
  end

  def run(body, number) # 5.2
    size, log2, prediction, conversion = body.v, body.u8, body.u8, body.u8
    must(size.between?(1, 2**63 - 1) && log2.between?(14, 23) && (size - 1) >> log2 < 2**32 - 1, 'Run_Size or Log2_Block_Size')
    must(prediction <= 3 && conversion <= (prediction == 2 ? 2 : 0), 'Prediction or Conversion', :UNSUPPORTED)
    must([0, 3].include?(prediction), 'a Prediction without its bit')
    must(@stream_data.size + size <= (@stream[0].unknown? ? 2**63 - 1 : @start), 'a run beyond its stream')
    segments = prediction == 3 ? read_segments(body, size) : nil
    body.extensions
    0.step(size - 1, 1 << log2) do |from|
      @stream_data << block([number, from >> log2].pack('VV'), [1 << log2, size - from].min, from, segments)
    end
  end

  def read_segments(body, size)
    n, last, done = body.up_to(2**24, 'N_Segments'), -1, 0
    ends = piece_ends
    segments = Array.new(n) do
      length, reference = body.v, body.v
      must(length.positive? || !@stream[0].unknown?, 'a rest of an unknown size')
      at = @stream_data.size + done
      length = (ends.bsearch { |end_| end_ > at } || at) - at if length.zero?
      done += length
      must(length.positive? && done <= size, 'segments are more than their run')
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

  def piece_ends = @stream.flat_map { |f| [0, *f.tensors.flat_map { |t| [t.offset, t.offset + t.size] }, f.size.to_i].map { |e| e + f.start } }

  def block(position, bytes, from, segments) # 7
    head = @in.take(24)
    sync, coding, prediction, grouping, n, size, content_crc, base_crc, head_crc = head.unpack('C4V5')
    must(sync == 0xB1, 'Sync')
    must(crc(position + head[0, 20]) == head_crc, 'Header_CRC', :CHECKSUM)
    width, residual, joint, layout = 1 << (coding & 3), coding[2], coding >> 3 & 3, coding >> 5
    must(joint < 3 && layout < 3 && prediction < 2, 'reserved numbers of a block', :UNSUPPORTED)
    must(n.between?(1, 2**22) && n * width == bytes, 'N_Elements')
    must(prediction == 1 ? segments : base_crc.zero?, 'Prediction or Base_CRC')
    must(joint.zero? && layout < 2 && grouping.zero?, 'Joint, Layout or Grouping without its bit')
    must(layout == 1 ? size < bytes : size == bytes && residual + prediction == 0, 'fields of a block')
    payload = Cursor.new(@in.take(size), 0)
    base = prediction == 1 ? predict(segments, from, bytes) : nil
    must(!base || crc(base) == base_crc, 'Base_CRC')
    data = layout.zero? ? payload.take(size) : planes(payload, n, width, residual, base)
    must(payload.done?, 'a payload is too long')
    must(crc(data) == content_crc, 'Content_CRC', :CHECKSUM)
    @entries[-1] << [24 + size, head_crc].pack('VV')
    data
  end

  def planes(payload, n, width, residual, base) # 7.2
    top = 1 << 8 * width - 1
    lists = Array.new(width) { payload.list(n) }
    return lists[0] if width == 1 && residual.zero? && !base

    Array.new(n) do |i|
      r = b = 0
      lists.each_with_index { |list, p| r |= list.getbyte(i) << 8 * p }
      width.times { |p| b |= base.getbyte(i * width + p) << 8 * p } if base
      next [r ^ b].pack('Q<')[0, width] if residual.zero?

      t = ((b & top - 1) + (r.even? ? r >> 1 : ~(r >> 1))) % (2 * top)
      [(b & top) ^ (t >= top ? t ^ top - 1 : t)].pack('Q<')[0, width]
    end.join
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

  def end_stream # 9
    must(@stream[0].unknown? || @stream_data.size == @start, 'a stream is not complete')
    @stream.each do |file|
      data = file.data = @stream_data[file.start, file.size || @stream_data.size]
      items = file.tensors.map { |t| [t.name, identity(0, t.dtype, t.shape, data[t.offset, t.size])] }
      items << [file.path, identity(1 + file.form[0], 'U8', [data.size], data)] if items.empty?
      @items.concat(items)
      @entries[@stream_at] << (file.size ? '' : [data.size].pack('Q<')) << [crc(data)].pack('V') << items.map(&:last).join
    end
  end

  def identity(type, dtype, shape, data)
    leaves = (0...data.size).step(262144).map { |at| crc64(data[at, 262144]) }
    Digest::SHA256.digest(['LMC tensor 2', type, *leaves, dtype.size, dtype, shape.size, *shape, data.size].pack(
      "a*xCQ<#{leaves.size}Ca*CQ<#{shape.size + 1}"
    ))
  end

  def index(body, header, at) # 10
    must(body.take(80) == header, 'the copy of the header')
    must(body.u32 == @entries.size, 'N_Sections')
    n_metadata = body.u32
    snapshot = @items.sort_by { |name, id| "#{name}\0#{id}" }.map { |name, id| [name.size].pack('V') + name + id }.join
    must(body.take(32) == Digest::SHA256.digest("LMC snapshot 2\0".b + snapshot), 'Snapshot_Identity')
    @entries.each { |entry| must(body.take(entry.size) == entry, 'an entry of the index') }
    n_metadata.times do
      key_size, value_size = body.u32, body.u32
      must(key_size.between?(1, 65535) && value_size <= 2**28, 'sizes of metadata')
      key = body.string(key_size)
      must(@metadata.empty? || key > @metadata.keys[-1], 'keys do not ascend')
      @metadata[key] = body.take(value_size)
    end
    body.extensions
    trailer, end_ = @in.take(40), @in.at - 40
    offset, size, total, major, reserved, sum, magic = trailer.unpack('Q<3CxvVa8')
    must(magic == "\x82LMC\r\n\x1A\n".b, 'End_Magic')
    must(crc(trailer[0, 28]) == sum, 'Trailer_CRC', :CHECKSUM)
    must(major == 1, 'another major version', :VERSION)
    must(reserved.zero?, 'reserved field of the trailer', :UNSUPPORTED)
    must(offset == at && size == end_ - at && total == end_ + 40 && @in.done?, 'the trailer, or what follows it')
  end
end
