// Blocks, lists, trees and masks: sections 7 and 8 of lmc-format.md. SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"math/bits"
)

const escape = 256

type leaf struct{ symbol, length, start int }

// The frozen trees (8.4): how many leaves have length 1, 2 .. 15.
var frozen = frozenTrees([10][15]int{
	{0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0},
	{0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0},
	{0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2},
	{0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34},
	{0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90},
	{1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92},
	{1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162},
	{1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162},
	{1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182},
	{1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214},
})

func frozenTrees(table [10][15]int) (trees [10][]leaf) {
	var order []int
	for ones := 0; ones <= 8; ones++ {
		for v := 0; v < 256; v++ {
			if bits.OnesCount(uint(v)) == ones {
				order = append(order, v)
			}
		}
	}
	for level, row := range table {
		for i, count := range row {
			for ; count > 0; count-- {
				trees[level] = append(trees[level], leaf{symbol: order[len(trees[level])], length: i + 1})
			}
		}
		place(trees[level])
	}
	return
}

// place gives each leaf its start (8.2) and returns the end of the last interval.
func place(t []leaf) (end int) {
	for i := range t {
		t[i].start = end
		end += 1 << (15 - t[i].length)
	}
	return
}

// treeHeader reads a Tree_Header (8.1): the leaves in order.
func (c *cursor) treeHeader(withEscape bool) (t []leaf) {
	first, count := int(c.u8()), int(c.u8())+1
	fields := count
	if withEscape {
		fields++
	}
	packed := c.take(uint64(fields+1) / 2)
	length := func(i int) int { return int(packed[i/2]>>(i%2*4)) & 15 }
	must(first+count <= 256, "CORRUPT", "a tree has symbols above 255")
	must(fields%2 == 0 || length(fields) == 0, "CORRUPT", "an unused half byte of a tree is not zero")
	must(length(0) != 0 && length(count-1) != 0, "CORRUPT", "the first or last symbol of a tree has no code")
	for l := 1; l <= 15; l++ {
		for i := 0; i < count; i++ {
			if length(i) == l {
				t = append(t, leaf{symbol: first + i, length: l})
			}
		}
	}
	if withEscape {
		must(length(count) >= t[len(t)-1].length, "CORRUPT", "the escape of a tree has a shorter code than a symbol")
		t = append(t, leaf{symbol: escape, length: length(count)})
	}
	must(len(t) >= 2 && len(t) <= 256, "CORRUPT", "a tree has %d leaves", len(t))
	must(place(t) == 1<<15, "CORRUPT", "the code of a tree is not complete")
	return
}

// list reads a list of n bytes (8).
func (c *cursor) list(n int) []byte {
	dst := make([]byte, n)
	switch mode := c.u8(); mode {
	case 0:
		copy(dst, c.take(uint64(n)))
	case 1:
		return bytes.Repeat([]byte{c.u8()}, n)
	case 2, 3:
		c.node(c.treeHeader(mode == 3), 0, dst, 0)
	default:
		fail("CORRUPT", "a list has mode %d", mode)
	}
	return dst
}

// node reads the elements of the node at this depth that owns the leaves t (8.2). dst is zero before.
func (c *cursor) node(t []leaf, depth int, dst []byte, nesting int) {
	n, last := len(dst), t[len(t)-1]
	if n == 0 {
		return
	}
	if len(t) == 1 {
		if last.symbol == escape {
			copy(dst, c.take(uint64(n)))
		} else {
			copy(dst, bytes.Repeat([]byte{byte(last.symbol)}, n))
		}
		return
	}
	if d := t[0].length - depth; last.symbol != escape && last.length == t[0].length && d >= 2 && d <= 6 {
		for ; d > 0; d-- {
			list := c.bits(n)
			for i := range dst {
				dst[i] = dst[i]<<1 | list[i>>3]>>(i&7)&1
			}
		}
		for i := range dst {
			dst[i] = byte(t[dst[i]].symbol)
		}
		return
	}
	mask := c.mask(n, nesting)
	ones, half := 0, 0
	for _, b := range mask {
		ones += bits.OnesCount8(b)
	}
	for t[half].start-t[0].start < 1<<(14-depth) {
		half++
	}
	children := make([]byte, n)
	side := [2][]byte{children[:n-ones], children[n-ones:]}
	c.node(t[:half], depth+1, side[0], nesting)
	c.node(t[half:], depth+1, side[1], nesting)
	for i, next := 0, [2]int{}; i < n; i++ {
		bit := mask[i>>3] >> (i & 7) & 1
		dst[i] = side[bit][next[bit]]
		next[bit]++
	}
}

// bits reads a list of n bits (2.1), packed.
func (c *cursor) bits(n int) []byte {
	return padded(c.take(uint64(n+7)/8), n)
}

func padded(list []byte, n int) []byte {
	must(n%8 == 0 || list[n/8]>>(n%8) == 0, "CORRUPT", "unused bits of a list of bits are not zero")
	return list
}

// mask reads a mask of n bits (8.3), packed, its unused bits zero.
func (c *cursor) mask(n, nesting int) []byte {
	mode := 0
	if n >= 256 && nesting < 3 {
		mode = int(c.u8())
	}
	if mode == 0 {
		return c.bits(n)
	}
	must(mode <= 64 && (mode <= 20 || nesting == 0), "CORRUPT", "a mask of nesting %d has mode %d", nesting, mode)
	if mode > 20 {
		return c.gaps(n, (mode-21)>>1, byte(mode-21)&1)
	}
	packed := make([]byte, (n+7)/8)
	c.node(frozen[(mode-1)>>1], 0, packed, nesting+1)
	complement(packed, byte(mode-1)&1)
	return padded(packed, n)
}

func complement(packed []byte, polarity byte) {
	for i := range packed {
		packed[i] ^= 255 * polarity
	}
}

func (c *cursor) gaps(n, shift int, polarity byte) []byte {
	k := int(c.u8()) | int(c.u8())<<8 | int(c.u8())<<16
	must(k >= 1 && k <= n, "CORRUPT", "a mask of %d bits marks %d", n, k)
	low, packed := c.bits(k*shift), make([]byte, (n+7)/8)
	var unary byte // the byte of Quotients that is read, and how many of its bits are left
	left, position := 0, int64(-1)
	for j := 0; j < k; j++ {
		gap := int64(-1)
		for one := byte(0); one == 0; gap++ {
			if left == 0 {
				unary, left = c.u8(), 8
			}
			one, unary, left = unary&1, unary>>1, left-1
		}
		gap <<= shift
		for i := 0; i < shift; i++ {
			at := j*shift + i
			gap += int64(low[at>>3]>>(at&7)&1) << i
		}
		position += 1 + gap
		must(position < int64(n), "CORRUPT", "a mask marks a bit beyond its end")
		packed[position>>3] |= 1 << (position & 7)
	}
	must(unary == 0, "CORRUPT", "unused bits of a list of quotients are not zero")
	complement(packed, polarity)
	if n%8 != 0 {
		packed[n/8] &= 1<<(n%8) - 1
	}
	return packed
}

// planes decodes n elements of w bytes (7.2).
func (c *cursor) planes(n, w int, subtract bool, prediction []byte) []byte {
	out, plane := make([]byte, n*w), make([][]byte, w)
	for p := range plane {
		plane[p] = c.list(n)
	}
	sign := uint64(1) << (8*w - 1)
	for i := 0; i < n; i++ {
		var r, b uint64
		for p := range plane {
			r |= uint64(plane[p][i]) << (8 * p)
			b |= uint64(prediction[i*w+p]) << (8 * p)
		}
		if subtract {
			sum := (b&(sign-1) + (r>>1 ^ -(r & 1))) & (2*sign - 1)
			if sum >= sign {
				sum ^= sign - 1
			}
			r = b&sign ^ sum
		} else {
			r ^= b
		}
		for p := range plane {
			out[i*w+p] = byte(r >> (8 * p))
		}
	}
	return out
}
