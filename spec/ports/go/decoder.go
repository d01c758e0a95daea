// The whole file: sections 4 to 7, 9 and 10 of lmc-format.md. SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
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
	index [][]byte // what the entries of the INDX must be
	total uint64
	links bool // the metadata has links

	file *file // the file whose stream is being read, and:
	out  io.WriteCloser
	at   uint64 // place in the stream
	crc  uint32
	next int // the tensor that holds the next byte, or will come
	id   identity
	ids  []byte // of its tensors that are complete
	slot int    // the number of its entry in the index
}

// check reports an error of the system.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// copyTo writes the next n bytes of the input.
func (d *decoder) copyTo(w io.Writer, n uint64) {
	m, err := io.CopyN(w, d.in, int64(n))
	d.pos += uint64(m)
	must(err != io.EOF, "TRUNCATED", "the input ends early")
	check(err)
}

// read gives the next n bytes of the input. It allocates what is there, not what is asked for (R5-9).
func (d *decoder) read(n uint64) []byte {
	var b bytes.Buffer
	if n <= 1<<23 {
		b.Grow(int(n) + bytes.MinRead)
	}
	d.copyTo(&b, n)
	return b.Bytes()
}

// An identity is that of an item (9.2), being computed.
type identity struct {
	chunks    []byte // CRCs of those that are complete
	crc, size uint64
}

func (x *identity) write(p []byte) {
	for len(p) > 0 {
		n := least(chunk-x.size%chunk, uint64(len(p)))
		x.crc = crc64.Update(x.crc, nvme, p[:n])
		x.size += n
		p = p[n:]
		if x.size%chunk == 0 {
			x.chunks = le.AppendUint64(x.chunks, x.crc)
			x.crc = 0
		}
	}
}

// sum ends it. The next one starts then.
func (x *identity) sum(kind byte, dtype string, shape []uint64) []byte {
	text := append(append([]byte("LMC tensor 2\x00"), kind), x.chunks...)
	if x.size%chunk != 0 {
		text = le.AppendUint64(text, x.crc)
	}
	text = append(append(text, byte(len(dtype))), dtype...)
	text = append(text, byte(len(shape)))
	for _, extent := range append(shape[:len(shape):len(shape)], x.size) {
		text = le.AppendUint64(text, extent)
	}
	*x = identity{}
	sum := sha256.Sum256(text)
	return sum[:]
}

// decode reads an LMC file of conformance level 0 and checks all of it.
func (d *decoder) decode() {
	start, err := d.in.Peek(9)
	must(len(start) >= 8, "NOT_LMC", "the input has less than 8 bytes")
	must(string(start[1:8]) == "LMC\r\n\x1a\n" && (start[0] == 0x83 || start[0] == 0x8C), "NOT_LMC", "the input is no LMC file")
	must(start[0] == 0x83, "VERSION", "this is a file of a draft of LMC")
	must(err != nil || start[8] == 1, "VERSION", "this is a file of another major version of LMC")
	header := d.read(80)
	must(crc(header[:76]) == le.Uint32(header[76:]), "CHECKSUM", "the header is damaged")
	must(le.Uint16(header[10:]) == 80, "CORRUPT", "the header has another size")
	must(le.Uint64(header[16:]) == 0, "UNSUPPORTED", "this is a decoder of level 0, and the file needs more: Incompatible is %#x", le.Uint64(header[16:]))
	must(le.Uint32(header[12:]) == 0 && le.Uint64(header[68:]) == 0, "UNSUPPORTED", "a reserved field of the header is not zero")
	must(bytes.Equal(header[32:64], make([]byte, 32)), "CORRUPT", "the file has a base and does not say so in Incompatible")
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
		numbers[counter]++
		sum, body := crc32.New(castagnoli), []byte(nil)
		if counter == "ancillary" {
			d.copyTo(sum, size)
		} else {
			body = d.read(size)
			sum.Write(body)
		}
		must(sum.Sum32() == le.Uint32(head[20:]), "CHECKSUM", "the body of a section is damaged")
		if (kind == "FILE" || kind == "INDX") && d.file != nil {
			d.endStream()
		}
		if kind == "INDX" {
			d.indexBody(&cursor{body}, header)
			d.trailer(at)
			return
		}
		d.index = append(d.index, append(append(le.AppendUint64(nil, at), head...), body...))
		if kind == "FILE" {
			d.beginStream(d.fileBody(&cursor{body}))
		} else if kind == "RUN " {
			d.run(&cursor{body}, le.Uint32(head[4:]))
		}
	}
}

var kinds = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 ]{3}$`)

func (d *decoder) beginStream(f *file) {
	d.file, d.out = f, d.create(f)
	d.at, d.crc, d.next, d.ids, d.slot = 0, 0, 0, nil, len(d.index)-1
	d.endTensors()
}

// endTensors notes the identities of the tensors that are complete.
func (d *decoder) endTensors() {
	for ; d.next < len(d.file.tensors); d.next++ {
		t := &d.file.tensors[d.next]
		if d.at < t.off+t.size {
			return
		}
		d.endItem(t.name, d.id.sum(0, t.dtype, t.shape))
	}
}

func (d *decoder) endItem(name string, id []byte) {
	d.ids = append(d.ids, id...)
	d.items = append(d.items, name+"\x00"+string(id))
}

// deliver takes decoded bytes of the stream that were checked.
func (d *decoder) deliver(p []byte) {
	_, err := d.out.Write(p)
	check(err)
	d.crc = crc32.Update(d.crc, castagnoli, p)
	for len(p) > 0 {
		n, inItem := uint64(len(p)), len(d.file.tensors) == 0
		if d.next < len(d.file.tensors) {
			t := &d.file.tensors[d.next]
			end := t.off
			if inItem = d.at >= t.off; inItem {
				end += t.size
			}
			n = least(n, end-d.at)
		}
		if inItem {
			d.id.write(p[:n])
		}
		d.at += n
		p = p[n:]
		d.endTensors()
	}
}

func (d *decoder) endStream() {
	f, entry := d.file, &d.index[d.slot]
	must(f.unknown() || d.at == f.size, "CORRUPT", "the runs of %q do not cover it", f.path)
	if d.out != nil {
		check(d.out.Close())
	}
	if len(f.tensors) == 0 {
		d.endItem(f.path, d.id.sum(1+f.form&1, "U8", []uint64{d.at}))
	}
	if f.unknown() {
		*entry = le.AppendUint64(*entry, d.at)
	}
	*entry = append(le.AppendUint32(*entry, d.crc), d.ids...)
}

type segment struct {
	end uint64 // in the run
	f   *file  // nil: zero bytes
	off uint64 // place in its header text, less the place in the run (modulo 2^64)
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
		n := least(1<<log2, size-from)
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
			of.off -= done
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
	base := make([]byte, n)
	if prediction == 1 {
		predict(segments, from, base)
		must(crc(base) == le.Uint32(head[16:]), "CORRUPT", "the prediction of a block is not that of its encoder")
	}
	if layout == 0 {
		out = payload.take(uint64(n))
	} else {
		out = payload.planes(int(elements), width, residual == 1, base)
	}
	must(len(payload.b) == 0, "CORRUPT", "a payload has bytes left over")
	must(crc(out) == le.Uint32(head[12:]), "CHECKSUM", "the content of block %d of run %d is damaged", number, run)
	entry := &d.index[len(d.index)-1]
	*entry = append(le.AppendUint32(*entry, 24+size), head[20:]...)
	return out
}

// predict makes the prediction of bytes of a run; base is zero before.
func predict(segments []segment, from uint64, base []byte) {
	i := sort.Search(len(segments), func(i int) bool { return segments[i].end > from })
	for ; len(base) > 0; i++ {
		s := segments[i]
		n := least(s.end-from, uint64(len(base)))
		if s.f != nil {
			s.f.textAt(s.off+from, base[:n])
		}
		from += n
		base = base[n:]
	}
}

// indexBody compares the INDX (10.1) with what was read.
func (d *decoder) indexBody(c *cursor, header []byte) {
	must(bytes.Equal(c.take(80), header), "CORRUPT", "the index has another header than the file")
	must(uint64(le.Uint32(c.take(4))) == uint64(len(d.index)), "CORRUPT", "the index counts other sections than there are")
	metadata := le.Uint32(c.take(4))
	sort.Strings(d.items)
	text := []byte("LMC snapshot 2\x00")
	for _, item := range d.items {
		name, id := item[:len(item)-33], item[len(item)-32:]
		text = append(le.AppendUint32(text, uint32(len(name))), name+id...)
	}
	must(sha256.Sum256(text) == *(*[32]byte)(c.take(32)), "CORRUPT", "the index has another identity of the snapshot")
	for _, entry := range d.index {
		must(bytes.Equal(c.take(uint64(len(entry))), entry), "CORRUPT", "the index does not agree with the sections, blocks and files")
	}
	must(uint64(metadata)*9 <= uint64(len(c.b)), "CORRUPT", "the index has more metadata than it can hold")
	for before := ""; metadata > 0; metadata-- {
		keySize, valueSize := le.Uint32(c.take(4)), le.Uint32(c.take(4))
		must(keySize >= 1 && keySize <= 65535 && valueSize <= 1<<28, "CORRUPT", "a metadata entry has a bad size")
		key := c.text(uint64(keySize))
		must(key > before, "CORRUPT", "keys of metadata do not ascend")
		c.take(uint64(valueSize))
		d.links = d.links || key == "lmc.links"
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
