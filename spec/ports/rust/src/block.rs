//! Section 5: blocks.

use crate::error::{check, ensure, unsupported, Error, Result, Status};
use crate::hash::{crc32c, crc32c_of};
use crate::list::{list, mask_of_class, mask_of_kinds, plane_apart};
use crate::quantised;
use crate::reader::Reader;
use crate::section::Features;

const HEADER_SIZE: usize = 24;
const MAX_SIZE: usize = 1 << 22; // of the decoded bytes

/// Layout, the upper three bits of Coding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Stored,
    Planes,
    Quantised,
    ZerosApart,
    Matrix,
    Codes,
}

/// Order: what a residual means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    TwosComplement,
    SignAndMagnitude,
}

/// The header of a block, of which Sync, Header_CRC and what is reserved were right.
pub(crate) struct BlockHeader {
    layout: Layout,
    width: usize,
    order: Order,
    /// The block needs the prediction of its run.
    pub predicted: bool,
    n_classes: usize,
    is_sparse: bool,
    n_natural: usize,
    n_elements: u32,
    payload_size: u32,
    content_crc: u32,
    payload_crc: u32,
    /// Header_CRC, which the table of blocks has, too.
    pub crc: u32,
}

/// The bytes that a block is coded against, and whether they are of a base, which may be the wrong one.
#[derive(Clone, Copy)]
pub(crate) struct Prediction<'a> {
    pub bytes: &'a [u8],
    pub is_of_base: bool,
}

impl BlockHeader {
    /// Takes the header of block `number` of its run.
    pub fn read(input: &mut Reader<'_>, number: u32) -> Result<BlockHeader> {
        let bytes = input.take(HEADER_SIZE)?;
        let mut fields = Reader::of_file(bytes);
        check(fields.u8()? == 0xB2, "Sync of a block")?;
        let (width, coding, grouping) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let (n_elements, payload_size, content_crc, payload_crc) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let crc = crc32c_of(&[&number.to_le_bytes(), &bytes[..HEADER_SIZE - 4]]);
        ensure(crc == fields.u32()?, Status::Checksum, "Header_CRC of a block")?;

        ensure([1, 2, 4, 8].contains(&width), Status::Unsupported, "Width of a block")?;
        let order = match coding & 3 {
            0 => Order::None,
            1 => Order::TwosComplement,
            2 => Order::SignAndMagnitude,
            _ => return Err(unsupported("Order of a block")),
        };
        let layout = match coding >> 5 {
            0 => Layout::Stored,
            1 => Layout::Planes,
            2 => Layout::Quantised,
            3 => Layout::ZerosApart,
            4 => Layout::Matrix,
            5 => Layout::Codes,
            _ => return Err(unsupported("Layout of a block")),
        };
        ensure(coding & 0x18 == 0, Status::Unsupported, "reserved bits of a block")?;
        let (width, predicted) = (usize::from(width), coding >> 2 & 1 == 1);
        let (n_classes, is_sparse, n_natural) = (usize::from(grouping & 15) + 1, grouping >> 4 & 1 == 1, usize::from(grouping >> 5));
        Ok(BlockHeader { layout, width, order, predicted, n_classes, is_sparse, n_natural, n_elements, payload_size, content_crc, payload_crc, crc })
    }

    /// Takes block `number` without decoding it: its size, header included, and its Header_CRC. The others as in `check`.
    pub fn skip(input: &mut Reader<'_>, number: u32, size: usize, has_prediction: bool, features: Features) -> Result<(u32, u32)> {
        let header = BlockHeader::read(input, number)?;
        header.check(size, has_prediction, features)?;
        input.take(header.payload_size as usize)?;
        Ok((HEADER_SIZE as u32 + header.payload_size, header.crc))
    }

    /// The size that the header says.
    fn size(&self) -> u64 {
        u64::from(self.n_elements) * self.width as u64
    }

    fn has_grouping(&self) -> bool {
        self.n_classes > 1 || self.is_sparse || self.n_natural > 0
    }

    /// R5-5 to R5-8, of a block of `size` bytes in a run that has a prediction or none.
    fn check(&self, size: usize, has_prediction: bool, features: Features) -> Result<()> {
        check(self.size() == size as u64, "a block has another size than its run says")?;
        check(has_prediction || !self.predicted, "a block with a prediction in a run without")?;
        check(self.predicted || self.payload_crc == 0, "Payload_CRC of a block without a prediction")?;
        if self.layout == Layout::Stored {
            check(u64::from(self.payload_size) == self.size(), "Payload_Size of a stored block")?;
            check(!self.predicted, "a stored block with a prediction")?;
        } else {
            check(u64::from(self.payload_size) < self.size(), "Payload_Size: a payload is not smaller than its elements")?;
        }
        if self.layout == Layout::Planes {
            check(!self.predicted || self.order != Order::None, "a prediction without Order")?;
            check(self.predicted || !self.has_grouping(), "Grouping without a prediction")?;
        } else if self.layout == Layout::ZerosApart {
            check(!self.predicted && !self.has_grouping(), "a prediction or Grouping of a block with zeros apart")?;
            check(features.zeros(), "a block with zeros apart without the bit Zeros")?;
        } else if self.layout == Layout::Matrix {
            check(!self.predicted && self.order != Order::None, "a prediction, or no Order, of a block by rows and columns")?;
            check(!self.has_grouping(), "Grouping of a block by rows and columns")?;
            check(features.matrix(), "a block by rows and columns without the bit Matrix")?;
        } else {
            check(self.order == Order::None && !self.has_grouping(), "Order or Grouping of a block without planes")?;
        }
        if self.layout == Layout::Codes {
            check(self.width == 4 || self.width == 2, "Width of a block of codes")?;
            check(!self.predicted, "a prediction of a block of codes")?;
            check(features.codes(), "a block of codes without the bit Codes")?;
        }
        check(self.n_natural < self.width, "Natural is not less than Width")?;
        check(self.n_natural == 0 || (self.n_classes > 1 && !self.is_sparse), "Natural with one class, or with Sparse")?;
        if self.layout == Layout::Quantised {
            check(self.width == 4 || self.width == 2, "Width of a quantised block")?;
            check(features.quantised(), "a quantised block without the bit Quantised")?;
        }
        check(!self.has_grouping() || features.base() || features.own(), "Grouping without the bits Base and Own")
    }

    /// Takes the payload; the block's bytes, which have to be `size`. `prediction` (of as many bytes) is None in a run of Prediction 0.
    pub fn decode(&self, input: &mut Reader<'_>, size: usize, prediction: Option<Prediction<'_>>, features: Features) -> Result<Vec<u8>> {
        self.check(size, prediction.is_some(), features)?;
        let prediction = prediction.filter(|_| self.predicted);
        let payload = input.take(self.payload_size as usize)?;
        ensure(!self.predicted || crc32c(payload) == self.payload_crc, Status::Checksum, "Payload_CRC of a block")?;

        let mut payload = Reader::of_part(payload, "a payload ends before its content");
        let n = self.n_elements as usize;
        let predicted = prediction.map(|prediction| prediction.bytes);
        let bytes = match self.layout {
            Layout::Stored => payload.take(size)?.to_vec(),
            Layout::Planes => self.decode_planes(&mut payload, n, predicted)?,
            Layout::Matrix => {
                let prediction = prediction_by_rows(&mut payload, n, self.width)?;
                self.decode_planes(&mut payload, n, Some(&prediction))?
            }
            Layout::Quantised => quantised::decode(&mut payload, n, self.width, predicted)?,
            Layout::Codes => elements_of_codes(&mut payload, n, self.width)?,
            Layout::ZerosApart => {
                let mask = mask_of_kinds(&mut payload, n)?;
                self.join(&(0..self.width).map(|_| plane_apart(&mut payload, &mask)).collect::<Result<Vec<_>>>()?, None)
            }
        };
        check(payload.is_at_end(), "a payload goes on after its content")?;
        let if_wrong = if prediction.map_or(false, |prediction| prediction.is_of_base) { Status::BaseWrong } else { Status::Checksum };
        ensure(crc32c(&bytes) == self.content_crc, if_wrong, "Content_CRC of a block")?;
        Ok(bytes)
    }

    /// Section 5.1: elements from residuals.
    fn decode_planes(&self, payload: &mut Reader<'_>, n: usize, prediction: Option<&[u8]>) -> Result<Vec<u8>> {
        let planes = match prediction {
            Some(prediction) if self.has_grouping() => self.planes_of_classes(payload, n, prediction)?,
            _ => (0..self.width).map(|_| list(payload, n)).collect::<Result<Vec<_>>>()?,
        };
        Ok(self.join(&planes, prediction))
    }

    fn join(&self, planes: &[Vec<u8>], prediction: Option<&[u8]>) -> Vec<u8> {
        match self.width {
            1 => elements::<1>(planes, prediction, self.order),
            2 => elements::<2>(planes, prediction, self.order),
            4 => elements::<4>(planes, prediction, self.order),
            _ => elements::<8>(planes, prediction, self.order),
        }
    }

    /// Section 5.2: planes in classes.
    fn planes_of_classes(&self, payload: &mut Reader<'_>, n: usize, prediction: &[u8]) -> Result<Vec<Vec<u8>>> {
        let thresholds = payload.take(self.n_classes - 1)?;
        check(thresholds.first() != Some(&0) && thresholds.windows(2).all(|pair| pair[0] < pair[1]), "Thresholds do not ascend from 1")?;

        // the elements of each class that are coded: all of them ...
        let mut coded = vec![Vec::new(); self.n_classes];
        for (i, b) in prediction.chunks_exact(self.width).enumerate() {
            let key = key(b);
            coded[thresholds.iter().filter(|&&threshold| threshold <= key).count()].push(i);
        }
        // ... or, with Sparse, those that its mask tells
        if self.is_sparse {
            for elements in coded.iter_mut().filter(|elements| !elements.is_empty()) {
                let bits = mask_of_class(payload, elements.len())?;
                let mut j = 0..;
                elements.retain(|_| j.next().map_or(false, |j| bits.get(j)));
            }
        }
        let mut planes = vec![vec![0; n]; self.width];
        let (natural, grouped) = planes.split_at_mut(self.n_natural);
        for plane in natural {
            plane.copy_from_slice(payload.take(n)?);
        }
        for elements in coded.iter().filter(|elements| !elements.is_empty()) {
            for plane in grouped.iter_mut() {
                for (&i, byte) in elements.iter().zip(list(payload, elements.len())?) {
                    plane[i] = byte;
                }
            }
        }
        Ok(planes)
    }
}

/// codes.md: the number of a code. An f32 holds each of them, and has a sign of zero.
fn number_of(code: u8, mantissa: u32) -> f32 {
    if mantissa == 7 {
        return f32::from(code as i8);
    }
    let (exponent, low) = (u32::from(code & 0x7F) >> mantissa, u64::from(code) & ((1 << mantissa) - 1));
    let magnitude = if exponent == 0 { low } else { (1 << mantissa | low) << (exponent - 1) } as f32;
    if code >= 128 { -magnitude } else { magnitude }
}

/// codes.md: the bytes of `n` elements.
fn elements_of_codes(payload: &mut Reader<'_>, n: usize, width: usize) -> Result<Vec<u8>> {
    let (mantissa, half) = (u32::from(payload.u8()?), payload.u8()?);
    let (group_size, first_group) = (payload.u32()? as usize, payload.u32()? as usize);
    check((2..=7).contains(&mantissa), "Mantissa")?;
    check(half == 0 || (half == 1 && width == 2), "Half")?;
    check((16..1 << 31).contains(&group_size), "Group_Size")?;
    check((1..=group_size).contains(&first_group), "First_Group")?;
    let n_groups = 1 + (n.saturating_sub(first_group) + group_size - 1) / group_size;
    let lists = (0..4).map(|_| list(payload, n_groups)).collect::<Result<Vec<_>>>()?;
    let scales: Vec<u32> = (0..n_groups).map(|i| u32::from_le_bytes([lists[0][i], lists[1][i], lists[2][i], lists[3][i]])).collect();
    check(scales.iter().all(|scale| (0x0080_0000..=0x6E00_0000).contains(scale)), "a scale")?;
    let (codes, numbers): (Vec<u8>, Vec<f32>) = (list(payload, n)?, (0..=255).map(|code| number_of(code, mantissa)).collect());
    let mut bytes = Vec::with_capacity(n * width);
    for (i, &code) in codes.iter().enumerate() {
        let group = if i < first_group { 0 } else { 1 + (i - first_group) / group_size };
        let element = (numbers[usize::from(code)] * f32::from_bits(scales[group])).to_bits();
        match (width, half) {
            (4, _) => bytes.extend(element.to_le_bytes()),
            (_, 0) => bytes.extend(quantised::f32_to_bf16(element).to_le_bytes()),
            _ => bytes.extend(quantised::f32_to_f16(element).to_le_bytes()),
        }
    }
    Ok(bytes)
}

/// matrix.md: the prediction of `n` elements, by numbers of rows and columns.
fn prediction_by_rows(payload: &mut Reader<'_>, n: usize, width: usize) -> Result<Vec<u8>> {
    let (row_size, first, shift) = (payload.u32()? as usize, payload.u32()? as usize, u32::from(payload.u8()?));
    check((1..=n).contains(&row_size), "Row_Size")?;
    check(first < row_size, "First")?;
    check((shift as usize) < 8 * width, "Shift")?;
    let n_rows = (first + n - 1) / row_size + 1;
    let (low, high, columns) = (list(payload, n_rows)?, list(payload, n_rows)?, list(payload, row_size)?);
    let rows: Vec<u64> = low.iter().zip(&high).map(|(&low, &high)| u64::from(low) | u64::from(high) << 8).collect();
    let largest = rows.iter().max().unwrap_or(&0) + u64::from(*columns.iter().max().unwrap_or(&0));
    check(largest <= u64::MAX >> (64 - 8 * width) >> shift, "the sum of two numbers of rows and columns")?;
    let mut bytes = Vec::with_capacity(n * width);
    for i in first..first + n {
        let number = (rows[i / row_size] + u64::from(columns[i % row_size])) << shift;
        bytes.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    Ok(bytes)
}

/// The key of an element by its prediction: the top byte of that, rotated left by one bit.
fn key(prediction: &[u8]) -> u8 {
    match prediction {
        [.., below, top] => top << 1 | below >> 7,
        _ => prediction[0].rotate_left(1),
    }
}

/// Section 5.1: the elements of W bytes, whose residuals have those `planes`.
fn elements<const W: usize>(planes: &[Vec<u8>], prediction: Option<&[u8]>, order: Order) -> Vec<u8> {
    let n = planes[0].len();
    let all = u64::MAX >> (64 - 8 * W); // numbers are modulo all + 1
    let sign = 1u64 << (8 * W - 1); // S
    let planes: [&[u8]; W] = std::array::from_fn(|p| &planes[p][..n]);
    let mut bytes = vec![0; n * W];
    for (i, out) in bytes.chunks_exact_mut(W).enumerate() {
        let mut r = 0;
        for (p, plane) in planes.iter().enumerate() {
            r |= u64::from(plane[i]) << (8 * p);
        }
        let mut b = [0; 8];
        if let Some(prediction) = prediction {
            b[..W].copy_from_slice(&prediction[i * W..i * W + W]);
        }
        let b = u64::from_le_bytes(b);
        let difference = r >> 1 ^ 0u64.wrapping_sub(r & 1); // unzigzag
        let element = match order {
            Order::None => r,
            Order::TwosComplement => b.wrapping_add(difference),
            Order::SignAndMagnitude => {
                let total = (b & (sign - 1)).wrapping_add(difference) & all;
                (b & sign) ^ if total < sign { total } else { total ^ (sign - 1) }
            }
        };
        out.copy_from_slice(&element.to_le_bytes()[..W]);
    }
    bytes
}

/// Section 10: an array of `size` bytes in memory, whose blocks are all of `coded`. `prediction` is the array, if any, that it was coded against.
/// `size` is the caller's, who has to be ready for an array of that.
pub fn decode_array(coded: &[u8], size: usize, prediction: Option<&[u8]>) -> std::result::Result<Vec<u8>, Error> {
    if let Some(prediction) = prediction {
        ensure(prediction.len() == size, Status::BaseWrong, "the prediction of an array has another size")?;
    }
    let mut input = Reader::of_file(coded);
    let mut array = Vec::new();
    let mut block_size = None; // of all blocks but the last: that of the first
    for number in 0..=u32::MAX {
        let left = size - array.len();
        if left == 0 {
            break;
        }
        let header = BlockHeader::read(&mut input, number)?;
        ensure(!header.predicted || prediction.is_some(), Status::BaseMissing, "an array has a prediction, and none was given")?;
        check((1..=MAX_SIZE as u64).contains(&header.size()), "size of a block")?;
        let expected = left.min(*block_size.get_or_insert(header.size() as usize));
        let bytes = prediction.map(|prediction| &prediction[array.len()..array.len() + expected]);
        let prediction = bytes.map(|bytes| Prediction { bytes, is_of_base: true });
        array.extend(header.decode(&mut input, expected, prediction, Features::ALL)?);
    }
    check(array.len() == size && input.is_at_end(), "the blocks of an array do not end with it")?;
    Ok(array)
}
