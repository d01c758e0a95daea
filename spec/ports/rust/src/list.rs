//! Section 6: lists of bytes, trees, and masks, which are lists of bits.

use crate::error::{check, corrupt, Result};
use crate::reader::Reader;
use std::borrow::Cow;
use std::ops::Range;

const MAX_LENGTH: u32 = 15; // of a code
const MAX_NESTING: u32 = 2; // of masks within masks
const NESTED_MODES: u8 = 20; // of masks: two for each frozen tree

/// A list of `n` bytes, with its Mode byte.
pub(crate) fn list(input: &mut Reader<'_>, n: usize) -> Result<Vec<u8>> {
    match input.u8()? {
        0 => Ok(input.take(n)?.to_vec()),
        1 => Ok(vec![input.u8()?; n]),
        2 => Tree::read(input, false)?.list(input, n, 0),
        3 => Tree::read(input, true)?.list(input, n, 0),
        _ => Err(corrupt("Mode of a plane")),
    }
}

/// A list of `n` bits that is at hand, its unused bits being zero.
pub(crate) struct Bits<'a> {
    bytes: Cow<'a, [u8]>,
    n: usize,
}

impl<'a> Bits<'a> {
    fn new(bytes: Cow<'a, [u8]>, n: usize) -> Result<Bits<'a>> {
        let unused = if n % 8 == 0 { 0 } else { bytes.last().map_or(0, |last| last >> (n % 8)) };
        check(unused == 0, "unused bits of a list of bits are not zero")?;
        Ok(Bits { bytes, n })
    }

    fn raw(input: &mut Reader<'a>, n: usize) -> Result<Bits<'a>> {
        Bits::new(Cow::Borrowed(input.take(bytes_of_bits(n))?), n)
    }

    pub fn ones(&self) -> usize {
        self.bytes.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    pub fn get(&self, i: usize) -> bool {
        self.bytes[i / 8] >> (i % 8) & 1 == 1
    }
}

fn bytes_of_bits(n: usize) -> usize {
    n / 8 + usize::from(n % 8 != 0)
}

/// Section 5.2: the mask of a class with `n` elements.
pub(crate) fn mask_of_class<'a>(input: &mut Reader<'a>, n: usize) -> Result<Bits<'a>> {
    mask(input, n, 0, true)
}

/// zeros.md: a plane of `mask.n` bytes, from the bytes of the elements whose bit is 0, and of those whose bit is 1.
pub(crate) fn plane_apart(input: &mut Reader<'_>, mask: &Bits<'_>) -> Result<Vec<u8>> {
    let ones = mask.ones();
    let mut of_kind = |n| if n == 0 { Ok(Vec::new()) } else { list(input, n) };
    let zeros = of_kind(mask.n - ones)?;
    Ok(merge(mask, zeros, of_kind(ones)?))
}

/// zeros.md: the Mask of `n` elements.
pub(crate) fn mask_of_kinds<'a>(input: &mut Reader<'a>, n: usize) -> Result<Bits<'a>> {
    Bits::new(Cow::Owned(list(input, bytes_of_bits(n))?), n)
}

/// Section 6.3: `n` bits at `nesting`.
fn mask<'a>(input: &mut Reader<'a>, n: usize, nesting: u32, is_of_class: bool) -> Result<Bits<'a>> {
    if n < 256 || nesting == MAX_NESTING {
        return Bits::raw(input, n);
    }
    let mode = input.u8()?;
    if mode == 0 {
        return Bits::raw(input, n);
    }
    if mode > NESTED_MODES {
        check(is_of_class && mode <= 64, "Mode of a mask")?;
        let gap = mode - NESTED_MODES - 1;
        return gaps(input, n, u32::from(gap >> 1), gap & 1 == 1);
    }
    let mut bytes = FROZEN[usize::from((mode - 1) >> 1)].list(input, bytes_of_bits(n), nesting + 1)?;
    if mode % 2 == 0 {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Bits::new(Cow::Owned(bytes), n)
}

/// Section 6.3: `n` bits that are zero (with `inverted` one), but for those at some positions, which are told by the gaps between them: each in `s`
/// low bits, and what is above these as a number of zeros.
fn gaps<'a>(input: &mut Reader<'a>, n: usize, s: u32, inverted: bool) -> Result<Bits<'a>> {
    let count = input.take(3)?;
    let count = usize::from(count[0]) | usize::from(count[1]) << 8 | usize::from(count[2]) << 16;
    check((1..=n).contains(&count), "K of a mask")?;
    let low = Bits::raw(input, count * s as usize)?;
    let mut bytes = vec![0; bytes_of_bits(n)];
    let (mut quotients, mut bit) = (0, 8); // a byte of Quotients, and which of its bits is next
    let mut position = 0; // the least that the next one may have
    for j in 0..count {
        let mut gap = (0..s).fold(0, |gap, i| gap | usize::from(low.get(j * s as usize + i as usize)) << i);
        loop {
            if bit == 8 {
                quotients = input.u8()?;
                bit = 0;
            }
            bit += 1;
            if quotients >> (bit - 1) & 1 == 1 {
                break;
            }
            gap += 1 << s;
            check(gap < n, "a gap of a mask")?; // so this comes to an end, with all that are told
        }
        position += gap;
        check(position < n, "a position of a mask")?;
        bytes[position / 8] |= 1 << (position % 8);
        position += 1;
    }
    check(bit == 8 || quotients >> bit == 0, "unused bits of a list of bits are not zero")?;
    if inverted {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        if let (Some(last), true) = (bytes.last_mut(), n % 8 != 0) {
            *last &= (1 << (n % 8)) - 1;
        }
    }
    Bits::new(Cow::Owned(bytes), n)
}

/// Section 6.2: a complete canonical code. Leaf i has symbol[i] (the escape, if there is one, is the last leaf and has none), length[i], and owns
/// the codes from start[i] up to the next leaf's.
struct Tree {
    symbol: [u8; 256],
    length: [u8; 256],
    start: [u32; 256],
    leaves: usize,
    has_escape: bool,
}

impl Tree {
    /// Lengths never decrease. `leaves` is at most 256.
    const fn new(symbol: [u8; 256], length: [u8; 256], leaves: usize, has_escape: bool) -> Tree {
        let mut start = [0; 256];
        let mut i = 1;
        while i < leaves {
            start[i] = start[i - 1] + (1 << (MAX_LENGTH - length[i - 1] as u32));
            i += 1;
        }
        Tree { symbol, length, start, leaves, has_escape }
    }

    /// Section 6.1: Tree_Header.
    fn read(input: &mut Reader<'_>, has_escape: bool) -> Result<Tree> {
        let first = usize::from(input.u8()?);
        let count = usize::from(input.u8()?) + 1;
        check(first + count <= 256, "First + Count of a tree")?;
        let fields = count + usize::from(has_escape);
        let bytes = input.take((fields + 1) / 2)?;
        let mut lengths: Vec<u8> = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
        if fields % 2 == 1 {
            check(lengths.pop() == Some(0), "unused half byte of a tree's lengths")?;
        }
        check(lengths[0] != 0 && lengths[count - 1] != 0, "length of a tree's first or last symbol")?;
        let leaves = lengths.iter().filter(|&&length| length != 0).count();
        check((2..=256).contains(&leaves), "a tree needs 2 to 256 leaves")?;
        let codes: u32 = lengths.iter().filter(|&&length| length != 0).map(|&length| 1 << (MAX_LENGTH - u32::from(length))).sum();
        check(codes == 1 << MAX_LENGTH, "the code of a tree is not complete")?;
        if has_escape {
            check(lengths.iter().max() == lengths.last(), "a code is longer than the escape's")?;
        }
        // by ascending length, then by value; the escape stands behind all symbols already
        let (mut symbol, mut length, mut leaf) = ([0; 256], [0; 256], 0);
        for wanted in 1..=MAX_LENGTH as u8 {
            for i in (0..fields).filter(|&i| lengths[i] == wanted) {
                symbol[leaf] = if i < count { (first + i) as u8 } else { 0 };
                length[leaf] = wanted;
                leaf += 1;
            }
        }
        Ok(Tree::new(symbol, length, leaves, has_escape))
    }

    /// The list of `n` bytes that this tree codes; its masks have `nesting`.
    fn list(&self, input: &mut Reader<'_>, n: usize, nesting: u32) -> Result<Vec<u8>> {
        self.node(input, 0..self.leaves, 0, 0, n, nesting)
    }

    /// Section 6.2: Node(d, x, n), which owns `leaves`.
    fn node(&self, input: &mut Reader<'_>, leaves: Range<usize>, d: u32, x: u32, n: usize, nesting: u32) -> Result<Vec<u8>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        let escaped = self.has_escape && leaves.end == self.leaves;
        if leaves.len() == 1 {
            return if escaped { Ok(input.take(n)?.to_vec()) } else { Ok(vec![self.symbol[leaves.start]; n]) };
        }
        // the first leaf has the least length of all, the last one the greatest
        let shortest = u32::from(self.length[leaves.start]) - d;
        let longest = u32::from(self.length[leaves.end - 1]) - d;
        if !escaped && shortest == longest && (2..=6).contains(&shortest) {
            return self.flat(input, leaves.start, shortest, n);
        }
        let bits = mask(input, n, nesting, false)?;
        let ones = bits.ones();
        let middle = x + (1 << (MAX_LENGTH - 1 - d));
        let split = leaves.start + self.start[leaves.clone()].partition_point(|&start| start < middle);
        let left = self.node(input, leaves.start..split, d + 1, x, n - ones, nesting)?;
        let right = self.node(input, split..leaves.end, d + 1, middle, ones, nesting)?;
        Ok(merge(&bits, left, right))
    }

    /// 2^depth leaves of one length, from `first`: the bits of their indices, most significant first.
    fn flat(&self, input: &mut Reader<'_>, first: usize, depth: u32, n: usize) -> Result<Vec<u8>> {
        let mut index = vec![0u8; n];
        for _ in 0..depth {
            let bits = Bits::raw(input, n)?;
            for (eight, byte) in index.chunks_mut(8).zip(bits.bytes.iter()) {
                for (i, index) in eight.iter_mut().enumerate() {
                    *index = *index << 1 | (byte >> i & 1);
                }
            }
        }
        let symbols = &self.symbol[first..first + (1 << depth)];
        index.iter_mut().for_each(|index| *index = symbols[usize::from(*index)]);
        Ok(index)
    }
}

/// For each bit the next of `left` (0) or `right` (1).
fn merge(bits: &Bits<'_>, mut left: Vec<u8>, mut right: Vec<u8>) -> Vec<u8> {
    // one more each, so that both can be looked at whatever the bit is: without a jump
    left.push(0);
    right.push(0);
    let mut merged = vec![0; bits.n];
    let (mut from_left, mut from_right) = (0, 0);
    for (eight, byte) in merged.chunks_mut(8).zip(bits.bytes.iter()) {
        for (i, out) in eight.iter_mut().enumerate() {
            let bit = byte >> i & 1;
            let (zero, one) = (left[from_left], right[from_right]);
            *out = zero ^ (zero ^ one) & 0u8.wrapping_sub(bit);
            from_right += usize::from(bit);
            from_left += usize::from(1 - bit);
        }
    }
    merged
}

/// Section 6.4: for each level the number of leaves of length 1 .. 15.
const LEAVES_OF_LENGTH: [[u8; 15]; 10] = [
    [0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0],
    [0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2],
    [0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34],
    [0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90],
    [1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92],
    [1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162],
    [1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162],
    [1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182],
    [1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214],
];

static FROZEN: [Tree; 10] = [frozen(0), frozen(1), frozen(2), frozen(3), frozen(4), frozen(5), frozen(6), frozen(7), frozen(8), frozen(9)];

const fn frozen(level: usize) -> Tree {
    // by ascending number of one bits, then by ascending value
    let (mut symbol, mut leaf, mut ones) = ([0; 256], 0, 0);
    while ones <= 8 {
        let mut value = 0u32;
        while value < 256 {
            if value.count_ones() == ones {
                symbol[leaf] = value as u8;
                leaf += 1;
            }
            value += 1;
        }
        ones += 1;
    }
    let (mut length, mut i) = ([0; 256], 0);
    leaf = 0;
    while i < 15 {
        let mut n = LEAVES_OF_LENGTH[level][i];
        while n > 0 {
            length[leaf] = i as u8 + 1;
            leaf += 1;
            n -= 1;
        }
        i += 1;
    }
    Tree::new(symbol, length, 256, false)
}
