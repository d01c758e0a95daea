// The whole file: sections 4 to 7, 9 and 10 of lmc-format.md. SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"regexp"
	"sort"
)

type decoder struct {
	in     *bufio.Reader
	pos    uint64
	create func(f *file) io.WriteCloser
	limit  uint64 // bytes to deliver, at most

	files []*file
	paths map[string]bool
	text  uint64 // bytes of the names of all tensors
	items []string
	index []byte // what the body of the INDX must be, from Entries on
	total uint64

	file *file // the file whose stream is being read, and:
	out  io.WriteCloser
	at   uint64 // place in the stream
	crc  uint32
	next int // the tensor that holds the next byte, or will come
	id   identity
	slot int // the place in the index of its File_Size
}

// check reports an error of the system.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// read gives the next n bytes of the input. It allocates what is there, not what is asked for (R5-9).
func (d *decoder) read(n uint64) []byte {
	var b bytes.Buffer
	if n <= 1<<23 {
		b.Grow(int(n) + bytes.MinRead)
	}
	m, err := io.CopyN(&b, d.in, int64(n))
	d.pos += uint64(m)
	must(err != io.EOF, "TRUNCATED", "the input ends early")
	check(err)
	return b.Bytes()
}

// An identity is that of an item (9.2), being computed.
type identity struct {
	sha  hash.Hash
	crc  uint64
	size uint64
}

func newIdentity(kind byte) identity {
	sha := sha256.New()
	sha.Write(append([]byte("LMC tensor 2\x00"), kind))
	return identity{sha: sha}
}

func (x *identity) write(p []byte) {
	for len(p) > 0 {
		n := chunk - x.size%chunk
		if n > uint64(len(p)) {
			n = uint64(len(p))
		}
		x.crc = crc64.Update(x.crc, nvme, p[:n])
		x.size += n
		p = p[n:]
		if x.size%chunk == 0 {
			x.flush()
		}
	}
}

func (x *identity) flush() {
	x.sha.Write(le.AppendUint64(nil, x.crc))
	x.crc = 0
}

func (x *identity) sum(dtype string, shape []uint64) []byte {
	if x.size%chunk != 0 {
		x.flush()
	}
	end := append([]byte{byte(len(dtype))}, dtype...)
	end = append(end, byte(len(shape)))
	for _, extent := range append(shape[:len(shape):len(shape)], x.size) {
		end = le.AppendUint64(end, extent)
	}
	x.sha.Write(end)
	return x.sha.Sum(nil)
}

// decode reads an LMC file of conformance level 0 and checks all of it.
func (d *decoder) decode() {
	start, err := d.in.Peek(9)
	must(len(start) >= 8, "NOT_LMC", "the input has less than 8 bytes")
	must(string(start[1:8]) == "LMC\r\n\x1a\n" && (start[0] == 0x83 || start[0] == 0x8C), "NOT_LMC", "the input is no LMC file")
	must(start[0] == 0x83, "VERSION", "this is a file of a draft of LMC")
	must(err != nil || start[8] == 1, "VERSION", "this is a file of another major version of LMC")
	header := d.read(80)
	none := bytes.Count(header[32:64], []byte{0}) == 32
	must(crc(header[:76]) == le.Uint32(header[76:]), "CHECKSUM", "the header is damaged")
	must(le.Uint16(header[10:]) == 80, "CORRUPT", "the header has another size")
	must(le.Uint64(header[16:]) == 0, "UNSUPPORTED", "this is a decoder of level 0, and the file needs more: Incompatible is %#x", le.Uint64(header[16:]))
	must(le.Uint32(header[12:]) == 0 && le.Uint64(header[68:]) == 0, "UNSUPPORTED", "a reserved field of the header is not zero")
	must(none, "CORRUPT", "the file has a base and does not say so in Incompatible")
	must(le.Uint32(header[64:]) == 0, "CORRUPT", "the file has a depth and no base")

	for numbers := map[string]uint32{}; ; {
		at := d.pos
		head := d.read(24)
		kind, size := string(head[:4]), le.Uint64(head[8:])
		must(crc(head[:16]) == le.Uint32(head[16:]), "CHECKSUM", "the header of a section is damaged")
		must(kinds.MatchString(kind), "CORRUPT", "a section has the kind %q", kind)
		counter := kind
		if kind[0] >= 'a' {
			counter = "ancillary"
		} else {
			must(kind == "FILE" || kind == "RUN " || kind == "INDX", "UNSUPPORTED", "a critical section has the unknown kind %q", kind)
		}
		must(le.Uint32(head[4:]) == numbers[counter], "CORRUPT", "a section %q has the wrong number", kind)
		must(size <= 1<<40, "CORRUPT", "the body of a section is too large")
		must(size <= maxBody, "LIMIT", "the body of a section is larger than this decoder takes")
		must(kind == "FILE" || d.file != nil, "CORRUPT", "the first section is no FILE")
		if counter == "ancillary" {
			sum := crc32.New(castagnoli)
			n, err := io.CopyN(sum, d.in, int64(size))
			d.pos += uint64(n)
			must(err != io.EOF, "TRUNCATED", "the input ends early")
			check(err)
			must(sum.Sum32() == le.Uint32(head[20:]), "CHECKSUM", "the body of a section is damaged")
			numbers[counter]++
			d.index = append(le.AppendUint64(d.index, at), head...)
			continue
		}
		body := d.read(size)
		must(crc(body) == le.Uint32(head[20:]), "CHECKSUM", "the body of a section is damaged")
		if kind != "RUN " && d.file != nil {
			d.endStream()
		}
		if kind == "INDX" {
			d.indexBody(&cursor{body}, header, numbers["FILE"]+numbers["RUN "]+numbers["ancillary"])
			d.trailer(at)
			return
		}
		d.index = append(append(le.AppendUint64(d.index, at), head...), body...)
		if kind == "FILE" {
			d.beginStream(d.fileBody(&cursor{body}))
		} else {
			d.run(&cursor{body}, numbers[kind])
		}
		numbers[kind]++
	}
}

var kinds = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 ]{3}$`)

func (d *decoder) beginStream(f *file) {
	d.file, d.out = f, d.create(f)
	d.at, d.crc, d.next, d.slot = 0, 0, 0, len(d.index)
	kind, room := byte(0), 4+32*len(f.tensors)
	if len(f.tensors) == 0 {
		kind, room = 1+f.form&1, 4+32
	}
	if f.unknown() {
		room += 8
	}
	d.index = append(d.index, make([]byte, room)...)
	d.id = newIdentity(kind)
	d.endTensors()
}

// endTensors notes the identities of the tensors that are complete.
func (d *decoder) endTensors() {
	for f := d.file; d.next < len(f.tensors); d.next++ {
		t := &f.tensors[d.next]
		if d.at < t.off+t.size {
			return
		}
		d.endItem(t.name, d.id.sum(t.dtype, t.shape))
		d.id = newIdentity(0)
	}
}

func (d *decoder) endItem(name string, id []byte) {
	place := d.slot + 4 + 32*d.next
	if d.file.unknown() {
		place += 8
	}
	copy(d.index[place:], id)
	d.items = append(d.items, name+"\x00"+string(id))
}

// deliver takes decoded bytes of the stream that were checked.
func (d *decoder) deliver(p []byte) {
	_, err := d.out.Write(p)
	check(err)
	d.crc = crc32.Update(d.crc, castagnoli, p)
	for len(p) > 0 {
		n, of := uint64(len(p)), len(d.file.tensors) == 0
		if d.next < len(d.file.tensors) {
			t := &d.file.tensors[d.next]
			room := t.off - d.at
			if of = d.at >= t.off; of {
				room = t.off + t.size - d.at
			}
			if n > room {
				n = room
			}
		}
		if of {
			d.id.write(p[:n])
		}
		d.at += n
		p = p[n:]
		d.endTensors()
	}
}

func (d *decoder) endStream() {
	f, slot := d.file, d.index[d.slot:]
	must(f.unknown() || d.at == f.size, "CORRUPT", "the runs of %q do not cover it", f.path)
	if d.out != nil {
		check(d.out.Close())
	}
	if f.unknown() {
		le.PutUint64(slot, d.at)
		slot = slot[8:]
	}
	le.PutUint32(slot, d.crc)
	if len(f.tensors) == 0 {
		d.endItem(f.path, d.id.sum("U8", []uint64{d.at}))
	}
}

type segment struct {
	end uint64 // in the run
	f   *file  // nil: zero bytes
	off uint64
}

// run reads the body of a RUN section (5.2) and its blocks (7).
func (d *decoder) run(c *cursor, number uint32) {
	size, log2, prediction, conversion := c.varint(), c.u8(), c.u8(), c.u8()
	must(size >= 1 && size <= maxSize, "CORRUPT", "a run is empty or too large")
	must(log2 >= 14 && log2 <= 23, "CORRUPT", "a run has blocks of 2^%d bytes", log2)
	must(prediction <= 3, "UNSUPPORTED", "a run has the unknown prediction %d", prediction)
	must(conversion == 0 || conversion <= 2 && prediction == 2, "UNSUPPORTED", "a run has conversion %d", conversion)
	must(prediction == 0 || prediction == 3, "CORRUPT", "a run has a prediction that Incompatible does not allow")
	must((size-1)>>log2 < 1<<32-1, "CORRUPT", "a run has too many blocks")
	end := d.file.size
	if d.file.unknown() {
		end = maxSize
	}
	must(size <= end-d.at, "CORRUPT", "a run goes beyond its file")
	d.total += size
	must(d.total <= d.limit, "LIMIT", "the files have more than %d bytes", d.limit)
	var segments []segment
	if prediction != 0 {
		segments = d.segments(c, size)
	}
	c.records()
	for from, block := uint64(0), uint32(0); from < size; block++ {
		n := uint64(1) << log2
		if n > size-from {
			n = size - from
		}
		d.deliver(d.block(number, block, int(n), from, segments))
		from += n
	}
}

func (d *decoder) segments(c *cursor, size uint64) (list []segment) {
	n := c.varint()
	must(n >= 1 && n <= 1<<24 && n <= uint64(len(c.b)/2), "CORRUPT", "a run has no segments or too many")
	done, before := uint64(0), int64(-1)
	for ; n > 0; n-- {
		s, reference, of := c.varint(), c.varint(), segment{}
		if s == 0 {
			must(!d.file.unknown(), "CORRUPT", "a segment ends with a piece of a file of unknown size")
			s = d.file.pieceEnd(d.at+done) - d.at - done
		}
		must(s != 0 && s <= size-done, "CORRUPT", "the segments of a run are more than it")
		if reference != 0 {
			z := (reference - 1) >> 1
			before += 1 + (int64(z>>1) ^ -int64(z&1))
			must(before >= 0 && before < int64(len(d.files)), "CORRUPT", "a segment refers to a file that is not described yet")
			of.f = d.files[before]
			if (reference-1)&1 != 0 {
				of.off = c.varint()
				must(of.off != 0, "CORRUPT", "a segment has an offset of 0")
			}
			text := of.f.textSize()
			must(of.off <= text && s <= text-of.off, "CORRUPT", "a segment goes beyond a header text")
		}
		done += s
		of.end = done
		list = append(list, of)
	}
	must(done == size, "CORRUPT", "the segments of a run are less than it")
	return
}

// block reads and decodes a block: n bytes, from a place of the run on.
func (d *decoder) block(run, number uint32, n int, from uint64, segments []segment) (out []byte) {
	head := d.read(24)
	must(head[0] == 0xB1, "CORRUPT", "a block has another Sync")
	position := le.AppendUint32(le.AppendUint32(nil, run), number)
	must(crc(append(position, head[:20]...)) == le.Uint32(head[20:]), "CHECKSUM", "the header of block %d of run %d is damaged", number, run)
	width, residual, joint, layout := 1<<(head[1]&3), head[1]>>2&1, head[1]>>3&3, head[1]>>5
	prediction, grouping, elements, size := head[2], head[3], le.Uint32(head[4:]), le.Uint32(head[8:])
	must(joint < 3 && layout < 3 && prediction < 2, "UNSUPPORTED", "a block has a reserved Joint, Layout or Prediction")
	must(elements >= 1 && elements <= 1<<22, "CORRUPT", "a block has %d elements", elements)
	must(int(elements)*width == n, "CORRUPT", "a block has another size than its run says")
	must(prediction == 0 || segments != nil, "CORRUPT", "a block has a prediction, and its run has none")
	must(prediction == 1 || le.Uint32(head[16:]) == 0, "CORRUPT", "a block has a Base_CRC and no prediction")
	must(joint == 0 && layout < 2 && grouping == 0, "CORRUPT", "a block uses what Incompatible does not allow")
	if layout == 0 {
		must(residual == 0 && prediction == 0 && int(size) == n, "CORRUPT", "a stored block has bad fields")
	} else {
		must(int(size) < n, "CORRUPT", "a block of planes is not smaller than its bytes")
	}
	payload := &cursor{d.read(uint64(size))}
	var base []byte
	if prediction == 1 {
		base = predict(segments, from, n)
		must(crc(base) == le.Uint32(head[16:]), "CORRUPT", "the prediction of a block is not that of its encoder")
	}
	if layout == 0 {
		out = payload.take(uint64(n))
	} else {
		out = payload.planes(int(elements), width, residual == 1, base)
	}
	must(len(payload.b) == 0, "CORRUPT", "a payload has bytes left over")
	must(crc(out) == le.Uint32(head[12:]), "CHECKSUM", "the content of block %d of run %d is damaged", number, run)
	d.index = le.AppendUint32(d.index, 24+size)
	d.index = append(d.index, head[20:]...)
	return out
}

// predict makes the prediction of n bytes of a run.
func predict(segments []segment, from uint64, n int) []byte {
	base := make([]byte, n)
	i := sort.Search(len(segments), func(i int) bool { return segments[i].end > from })
	for done := 0; done < n; i++ {
		s, start := segments[i], uint64(0)
		if i > 0 {
			start = segments[i-1].end
		}
		at := from + uint64(done)
		m := n - done
		if s.end-at < uint64(m) {
			m = int(s.end - at)
		}
		if s.f != nil {
			s.f.textAt(s.off+at-start, base[done:done+m])
		}
		done += m
	}
	return base
}

// indexBody compares the INDX (10.1) with what was read.
func (d *decoder) indexBody(c *cursor, header []byte, sections uint32) {
	must(bytes.Equal(c.take(80), header), "CORRUPT", "the index has another header than the file")
	must(le.Uint32(c.take(4)) == sections, "CORRUPT", "the index counts other sections than there are")
	metadata := le.Uint32(c.take(4))
	sort.Strings(d.items)
	sha := sha256.New()
	sha.Write([]byte("LMC snapshot 2\x00"))
	for _, item := range d.items {
		name, id := item[:len(item)-33], item[len(item)-32:]
		sha.Write(append(le.AppendUint32(nil, uint32(len(name))), name+id...))
	}
	must(bytes.Equal(c.take(32), sha.Sum(nil)), "CORRUPT", "the index has another identity of the snapshot")
	must(bytes.Equal(c.take(uint64(len(d.index))), d.index), "CORRUPT", "the index does not agree with the sections, blocks and files")
	must(uint64(metadata)*9 <= uint64(len(c.b)), "CORRUPT", "the index has more metadata than it can hold")
	for before := ""; metadata > 0; metadata-- {
		keySize, valueSize := le.Uint32(c.take(4)), le.Uint32(c.take(4))
		must(keySize >= 1 && keySize <= 65535 && valueSize <= 1<<28, "CORRUPT", "a metadata entry has a bad size")
		key := c.text(uint64(keySize))
		must(key > before, "CORRUPT", "keys of metadata do not ascend")
		c.take(uint64(valueSize))
		before = key
	}
	c.records()
}

// trailer checks the Trailer (10.3) and that the input ends with it.
func (d *decoder) trailer(index uint64) {
	end := d.pos
	t := d.read(40)
	must(string(t[32:]) == "\x82LMC\r\n\x1a\n", "CORRUPT", "the file does not end with End_Magic")
	must(crc(t[:28]) == le.Uint32(t[28:]), "CHECKSUM", "the trailer is damaged")
	must(t[24] == 1, "VERSION", "the trailer is of another major version")
	must(t[26] == 0 && t[27] == 0, "UNSUPPORTED", "a reserved field of the trailer is not zero")
	must(le.Uint64(t) == index && le.Uint64(t[8:]) == end-index, "CORRUPT", "the trailer gives another place of the index")
	_, err := d.in.ReadByte()
	must(err != nil && le.Uint64(t[16:]) == end+40, "CORRUPT", "the trailer gives another size of the file")
	if err != io.EOF {
		check(err)
	}
}
