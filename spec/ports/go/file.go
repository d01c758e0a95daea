// The container: sections 2, 4, 5, 6, 9 and 10 of lmc-format.md. SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"math/big"
	"sort"
	"strings"
)

const (
	maxBody = 1 << 30 // bytes of a section's body (R12-1)
	maxText = 1 << 32 // bytes of all names
	maxSize = 1<<63 - 1
	chunk   = 1 << 18
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	nvme       = crc64.MakeTable(0x9A6C9329AC4BC9B5)
	dtypes     = strings.Fields("- BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ F4 F6_E2M3 F6_E3M2 I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64")
	dtypeBits  = []uint64{0, 8, 8, 8, 8, 8, 8, 8, 8, 4, 6, 6, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64}
)

func crc(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

func least(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return b
}

// Failure is what a decoder reports (11.1).
type Failure struct{ Status, Text string }

func (f *Failure) Error() string { return f.Status + ": " + f.Text + "." }

func fail(status, text string, values ...interface{}) {
	panic(&Failure{status, fmt.Sprintf(text, values...)})
}

func must(ok bool, status, text string, values ...interface{}) {
	if !ok {
		fail(status, text, values...)
	}
}

// A cursor reads fields of a body or payload that is in memory.
type cursor struct{ b []byte }

func (c *cursor) take(n uint64) []byte {
	must(n <= uint64(len(c.b)), "CORRUPT", "a body or payload ends before its content does")
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() byte { return c.take(1)[0] }

func (c *cursor) varint() (v uint64) {
	for i := 0; ; i++ {
		b := c.u8()
		must(i < 9 || b <= 1, "CORRUPT", "a varint is 2^64 or more")
		must(i == 0 || b != 0, "CORRUPT", "a varint is not in its shortest form")
		v |= uint64(b&127) << (7 * i)
		if b < 128 {
			return v
		}
	}
}

func (c *cursor) text(n uint64) string {
	p := c.take(n)
	must(bytes.IndexByte(p, 0) < 0, "CORRUPT", "a string has a zero byte")
	return string(p)
}

// records skips extension records to the end of the body (5.4).
func (c *cursor) records() {
	for first, before := true, uint64(0); len(c.b) > 0; first = false {
		tag := c.varint()
		must(first || tag > before, "CORRUPT", "tags of extension records do not ascend")
		c.take(c.varint())
		must(tag&1 == 0, "UNSUPPORTED", "an extension record has the unknown tag %d", tag)
		before = tag
	}
}

type tensor struct {
	name, dtype string
	shape       []uint64
	off, size   uint64
}

type file struct {
	path          string
	form          byte
	mode          uint64
	seconds, nano int64
	size          uint64
	tensors       []tensor
	starts        []uint64 // of the tensors' parts of the header text, and its end; made when it is asked for
}

func (f *file) directory() bool { return f.form&1 != 0 }
func (f *file) hasMode() bool   { return f.form&2 != 0 }
func (f *file) hasTime() bool   { return f.form&4 != 0 }
func (f *file) unknown() bool   { return f.form&8 != 0 }

// fileBody reads the body of a FILE section (5.1): one file, for Incompatible has no bit 4.
func (d *decoder) fileBody(c *cursor) *file {
	must(c.varint() == 1, "CORRUPT", "a FILE section does not have one file")
	f := &file{form: c.u8()}
	must(f.form < 16, "UNSUPPORTED", "a file has reserved bits in its Form")
	must(f.form&9 != 9, "CORRUPT", "a directory has an unknown size")
	must(c.u8() == 0, "CORRUPT", "the first path of a section has a prefix")
	n := c.varint()
	must(n <= 65535, "CORRUPT", "a path is too long")
	f.path = c.text(n)
	for _, part := range strings.Split(f.path, "/") {
		bad := part == "" || part == "." || part == ".." || strings.Contains(part, "\\")
		must(f.path == "" || !bad, "CORRUPT", "the path %q is not relative and plain", f.path)
	}
	if !f.directory() && !f.unknown() {
		f.size = c.varint()
		must(f.size <= maxSize, "CORRUPT", "a file is too large")
	}
	if f.hasMode() {
		f.mode = c.varint()
		must(f.mode <= 0o7777, "CORRUPT", "a mode is too large")
	}
	if f.hasTime() {
		f.seconds, f.nano = int64(le.Uint64(c.take(8))), int64(le.Uint32(c.take(4)))
		must(f.nano < 1e9, "CORRUPT", "a time has too many nanoseconds")
	}
	if !f.directory() && !f.unknown() {
		n := c.varint()
		must(n <= 1<<28 && n <= uint64(len(c.b)/5), "CORRUPT", "a file has more tensors than its section can hold")
		names, end := map[string]bool{}, uint64(0)
		f.tensors = make([]tensor, 0, n)
		for ; n > 0; n-- {
			t := d.tensorEntry(c, f, end)
			must(!names[t.name], "CORRUPT", "a file has two tensors %q", t.name)
			names[t.name] = true
			end = t.off + t.size
			f.tensors = append(f.tensors, t)
		}
	}
	c.records()
	empty := f.path == "" || len(d.files) == 1 && d.files[0].path == ""
	must(!empty || len(d.files) == 0, "CORRUPT", "an empty path does not stand alone")
	must(!d.paths[f.path], "CORRUPT", "two files have the path %q", f.path)
	d.paths[f.path] = true
	d.files = append(d.files, f)
	return f
}

func (d *decoder) tensorEntry(c *cursor, f *file, end uint64) (t tensor) {
	form, back := c.u8(), c.varint()
	must(form < 8, "UNSUPPORTED", "a tensor has reserved bits in its Form")
	must(back <= uint64(len(f.tensors)), "CORRUPT", "a tensor refers to one before the first")
	like := form&1 != 0
	must(!like || back != 0, "CORRUPT", "a tensor is like no other")
	head, tail := "", ""
	if back != 0 {
		t = f.tensors[uint64(len(f.tensors))-back]
		prefix, suffix := int(c.u8()), int(c.u8())
		must(prefix+suffix <= len(t.name), "CORRUPT", "a tensor takes more of a name than there is")
		head, tail = t.name[:prefix], t.name[len(t.name)-suffix:]
	}
	n := c.varint()
	must(n <= 65535 && len(head)+int(n)+len(tail) <= 65535, "CORRUPT", "the name of a tensor is too long")
	t.name = head + c.text(n) + tail
	d.text += uint64(len(t.name))
	must(d.text <= maxText, "LIMIT", "the names of the tensors take more than %d bytes", uint64(maxText))
	t.off = end
	if form&2 != 0 {
		gap := c.varint()
		must(gap != 0 && gap <= f.size-end, "CORRUPT", "a gap is empty or goes beyond the file")
		t.off += gap
	}
	if !like {
		number := c.u8()
		must(number <= 22, "UNSUPPORTED", "the dtype %d is unknown", number)
		t.dtype = dtypes[number]
		if number == 0 {
			n := c.u8()
			must(n >= 1 && n <= 32, "CORRUPT", "the name of a dtype has %d bytes", n)
			t.dtype = c.text(uint64(n))
			for _, name := range dtypes[1:] {
				must(t.dtype != name, "CORRUPT", "the dtype %s is a string", name)
			}
		}
		rank := c.u8()
		must(rank <= 32, "CORRUPT", "a tensor has rank %d", rank)
		t.shape = make([]uint64, rank)
		for i := range t.shape {
			t.shape[i] = c.varint()
		}
		if number == 0 {
			t.size = c.varint()
		} else {
			t.size = sizeOf(t.shape, dtypeBits[number])
		}
	}
	must(t.size <= f.size-t.off, "CORRUPT", "the tensor %q goes beyond its file", t.name)
	if form&4 != 0 {
		p := c.take(6)
		must(p[0] != 0 && p[1] != 0, "CORRUPT", "the loss of a tensor has Generation or Measure 0")
		must(p[1] <= 3, "UNSUPPORTED", "the loss of a tensor has an unknown Measure")
	}
	return t
}

func sizeOf(shape []uint64, elementBits uint64) uint64 {
	n := new(big.Int).SetUint64(elementBits)
	for _, extent := range shape {
		n.Mul(n, new(big.Int).SetUint64(extent))
	}
	must(n.BitLen() <= 66 && n.Bit(0)+n.Bit(1)+n.Bit(2) == 0, "CORRUPT", "a tensor is too large, or no whole number of bytes")
	return n.Rsh(n, 3).Uint64()
}

// textPart gives what stands behind the name of tensor i in the header text (5.5).
func (f *file) textPart(i int) string {
	t, comma := &f.tensors[i], ","
	if i == len(f.tensors)-1 {
		comma = ""
	}
	shape := strings.ReplaceAll(fmt.Sprint(t.shape), " ", ",")
	begin := t.off - f.tensors[0].off
	return fmt.Sprintf(`":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}%s`, t.dtype, shape, begin, begin+t.size, comma)
}

func (f *file) textSize() uint64 {
	if f.starts == nil {
		f.starts = []uint64{0}
		for i := range f.tensors {
			f.starts = append(f.starts, f.starts[i]+1+uint64(len(f.tensors[i].name)+len(f.textPart(i))))
		}
	}
	return f.starts[len(f.tensors)]
}

// textAt copies the header text from a place on, to fill dst. It never joins a part (12.3).
func (f *file) textAt(from uint64, dst []byte) {
	i := sort.Search(len(f.tensors), func(i int) bool { return f.starts[i+1] > from })
	for from -= f.starts[i]; len(dst) > 0; i++ {
		for _, s := range []string{`"`, f.tensors[i].name, f.textPart(i)} {
			n := least(from, uint64(len(s)))
			dst = dst[copy(dst, s[n:]):]
			from -= n
		}
	}
}

// pieceEnd gives the end of the piece (6.3) that holds byte number at of the file.
func (f *file) pieceEnd(at uint64) uint64 {
	i := sort.Search(len(f.tensors), func(i int) bool { return f.tensors[i].off+f.tensors[i].size > at })
	if i == len(f.tensors) {
		return f.size
	}
	if t := &f.tensors[i]; at >= t.off {
		return t.off + t.size
	}
	return f.tensors[i].off
}
