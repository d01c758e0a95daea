//! Section 7: blocks.

use crate::error::{check, ensure, unsupported, Error, Result, Status};
use crate::hash::{crc32c, crc32c_of};
use crate::list::{list, mask};
use crate::quantised;
use crate::reader::Reader;
use crate::section::Features;

const HEADER_SIZE: usize = 24;
const MAX_ELEMENTS: u32 = 1 << 22;

/// Layout, the upper three bits of Coding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Stored,
    Planes,
    Quantised,
}

/// Block_Header, of which Sync, Header_CRC and what is reserved were right.
pub(crate) struct Header {
    layout: Layout,
    width: usize,
    subtract: bool,
    joint: u32,
    /// Prediction is 1: the block needs the prediction of its run.
    pub predicted: bool,
    grouping: u8,
    n_elements: u32,
    payload_size: u32,
    content_crc: u32,
    base_crc: u32,
    /// Header_CRC, which the index has, too.
    pub crc: u32,
}

/// The bytes that a block is coded against, and what it means if their CRC is not Base_CRC: BASE_WRONG, or CORRUPT if they are of this snapshot.
pub(crate) struct Prediction<'a> {
    pub bytes: &'a [u8],
    pub if_wrong: Status,
}

impl Header {
    /// Takes the header of block `number` of `run`.
    pub fn read(input: &mut Reader<'_>, run: u32, number: u32) -> Result<Header> {
        let bytes = input.take(HEADER_SIZE)?;
        let mut fields = Reader::of_file(bytes);
        check(fields.u8()? == 0xB1, "Sync of a block")?;
        let (coding, prediction, grouping) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let (n_elements, payload_size, content_crc, base_crc) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let crc = crc32c_of(&[&run.to_le_bytes(), &number.to_le_bytes(), &bytes[..HEADER_SIZE - 4]]);
        ensure(crc == fields.u32()?, Status::Checksum, "Header_CRC of a block")?;

        let joint = u32::from(coding >> 3 & 3);
        ensure(joint != 3, Status::Unsupported, "Joint of a block")?;
        let layout = match coding >> 5 {
            0 => Layout::Stored,
            1 => Layout::Planes,
            2 => Layout::Quantised,
            _ => return Err(unsupported("Layout of a block")),
        };
        ensure(prediction <= 1, Status::Unsupported, "Prediction of a block")?;
        let (width, subtract, predicted) = (1 << (coding & 3), coding >> 2 & 1 == 1, prediction == 1);
        Ok(Header { layout, width, subtract, joint, predicted, grouping, n_elements, payload_size, content_crc, base_crc, crc })
    }

    /// Takes the block `number` of `run` without decoding it: its size, header included, and its Header_CRC. The others as in `check`.
    pub fn skip(input: &mut Reader<'_>, run: u32, number: u32, size: usize, has_prediction: bool, features: Features) -> Result<(u32, u32)> {
        let header = Header::read(input, run, number)?;
        header.check(size, has_prediction, features)?;
        input.take(header.payload_size as usize)?;
        Ok((HEADER_SIZE as u32 + header.payload_size, header.crc))
    }

    /// The size that the header says; at most 2^23 once it was found to be that of the run's block.
    fn size(&self) -> u64 {
        u64::from(self.n_elements) * self.width as u64
    }

    /// What section 7 says of the header's fields in a block of `size` bytes, in a run that has a prediction or none.
    fn check(&self, size: usize, has_prediction: bool, features: Features) -> Result<()> {
        check((1..=MAX_ELEMENTS).contains(&self.n_elements), "N_Elements")?;
        check(self.size() == size as u64, "a block has another size than its run says")?;
        self.check_coding(features)?;
        check(has_prediction || !self.predicted, "a block with Prediction 1 in a run with Prediction 0")?;
        check(self.predicted || self.base_crc == 0, "Base_CRC of a block with Prediction 0")
    }

    /// Takes the payload; the block's bytes, which have to be `size`. `prediction` (of as many bytes) is None in a run of Prediction 0.
    pub fn decode(&self, input: &mut Reader<'_>, size: usize, prediction: Option<Prediction<'_>>, features: Features) -> Result<Vec<u8>> {
        self.check(size, prediction.is_some(), features)?;
        let prediction = prediction.filter(|_| self.predicted);
        if let Some(Prediction { bytes, if_wrong }) = prediction {
            ensure(crc32c(bytes) == self.base_crc, if_wrong, "Base_CRC: the prediction has other bytes")?;
        }
        let prediction = prediction.map(|prediction| prediction.bytes);

        let mut payload = Reader::of_part(input.take(self.payload_size as usize)?, "a payload ends before its content");
        let n = self.n_elements as usize;
        let bytes = match self.layout {
            Layout::Stored => payload.take(size)?.to_vec(),
            Layout::Planes => self.decode_planes(&mut payload, n, prediction)?,
            Layout::Quantised => quantised::decode(&mut payload, n, self.width, prediction)?,
        };
        check(payload.is_at_end(), "a payload goes on after its content")?;
        ensure(crc32c(&bytes) == self.content_crc, Status::Checksum, "Content_CRC of a block")?;
        Ok(bytes)
    }

    fn n_classes(&self) -> usize {
        usize::from(self.grouping & 7 | self.grouping >> 7 << 3) + 1
    }

    fn is_sparse(&self) -> bool {
        self.grouping >> 3 & 1 == 1
    }

    fn n_natural(&self) -> usize {
        usize::from(self.grouping >> 4 & 7)
    }

    /// What sections 7.1 to 7.4 and 7.6 say of the header's fields.
    fn check_coding(&self, features: Features) -> Result<()> {
        check(self.joint == 0 || features.joint(), "Joint planes without the feature bit Joint")?;
        check(self.layout != Layout::Quantised || features.quantised(), "a quantised block without the feature bit Quantised")?;
        check(self.grouping == 0 || features.base() || features.own(), "Grouping without the feature bits Base and Own")?;
        if self.layout == Layout::Stored {
            check(u64::from(self.payload_size) == self.size(), "Payload_Size of a stored block")?;
            check(!self.subtract && !self.predicted, "Residual or Prediction of a stored block")?;
        } else {
            check(u64::from(self.payload_size) < self.size(), "Payload_Size: a payload is not smaller than its elements")?;
        }
        if self.layout == Layout::Quantised {
            check(self.width == 4 || self.width == 2, "width of a quantised block")?;
            check(!self.subtract, "Residual of a quantised block")?;
        }
        if self.layout != Layout::Planes {
            return check(self.joint == 0 && self.grouping == 0, "Joint or Grouping of a block without planes");
        }
        if self.joint != 0 {
            return check(self.width >= 2 && !self.predicted && self.grouping == 0, "width, Prediction or Grouping of a block with Joint planes");
        }
        check(self.n_natural() < self.width, "Natural is not less than the width")?;
        check(self.n_natural() == 0 || (self.n_classes() > 1 && !self.is_sparse()), "Natural with one class, or with Sparse")?;
        check(self.grouping == 0 || self.predicted, "Grouping without a prediction")
    }

    /// Section 7.2: elements from residuals.
    fn decode_planes(&self, payload: &mut Reader<'_>, n: usize, prediction: Option<&[u8]>) -> Result<Vec<u8>> {
        let planes = if self.joint != 0 {
            joint_planes(payload, n, self.width, self.joint)?
        } else if self.grouping != 0 {
            self.grouped_planes(payload, n, prediction)?
        } else {
            (0..self.width).map(|_| list(payload, n)).collect::<Result<_>>()?
        };
        Ok(match self.width {
            1 => elements::<1>(&planes, prediction, self.subtract),
            2 => elements::<2>(&planes, prediction, self.subtract),
            4 => elements::<4>(&planes, prediction, self.subtract),
            _ => elements::<8>(&planes, prediction, self.subtract),
        })
    }

    /// Section 7.3: planes in classes.
    fn grouped_planes(&self, payload: &mut Reader<'_>, n: usize, prediction: Option<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let thresholds = payload.take(self.n_classes() - 1)?;
        check(thresholds.first() != Some(&0) && thresholds.windows(2).all(|pair| pair[0] < pair[1]), "Thresholds do not ascend from 1")?;

        // the elements of each class that are coded: all of them ...
        let mut coded = vec![Vec::new(); self.n_classes()];
        match prediction {
            Some(prediction) => {
                for (i, b) in prediction.chunks_exact(self.width).enumerate() {
                    let key = key(b);
                    coded[thresholds.iter().filter(|&&threshold| threshold <= key).count()].push(i);
                }
            }
            None => coded[0] = (0..n).collect(),
        }
        // ... or, with Sparse, those that its mask tells
        if self.is_sparse() {
            for elements in coded.iter_mut().filter(|elements| !elements.is_empty()) {
                let bits = mask(payload, elements.len(), 0)?;
                let mut j = 0..;
                elements.retain(|_| j.next().map_or(false, |j| bits.get(j)));
            }
        }
        let mut planes = vec![vec![0; n]; self.width];
        let (natural, grouped) = planes.split_at_mut(self.n_natural());
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

/// The key of an element by its prediction: the top byte of that, rotated left by one bit.
fn key(prediction: &[u8]) -> u8 {
    match prediction {
        [.., below, top] => top << 1 | below >> 7,
        _ => prediction[0].rotate_left(1),
    }
}

/// Section 7.4: the planes of a block whose top two share symbols of 8 + `joint` bits.
fn joint_planes(payload: &mut Reader<'_>, n: usize, width: usize, joint: u32) -> Result<Vec<Vec<u8>>> {
    let offset = payload.u16()?;
    check(offset < 1 << (8 + joint), "Offset of Joint planes")?;
    let mut planes: Vec<Vec<u8>> = (0..width - 2).map(|_| list(payload, n)).collect::<Result<_>>()?;

    // v: the low bits of the plane below the top one. The last of k rows of q is in the upper bits of the others.
    let k = 8 / joint as usize;
    let q = (n + k - 1) / k;
    let m = (k - 1) * q;
    let rest = payload.take(m)?;
    let low = 0xFF >> joint; // of 8 - joint bits
    let mut v: Vec<u8> = rest.iter().map(|byte| byte & low).collect();
    v.extend((0..q).map(|i| (0..k - 1).fold(0, |value, c| value | rest[c * q + i] >> (8 - joint) << (c as u32 * joint))));
    check(v.drain(n..).all(|value| value == 0), "Rest has values beyond the elements")?;

    let mut top = list(payload, n)?;
    for (s, v) in top.iter_mut().zip(&mut v) {
        let symbol = offset + u16::from(*s); // T_i, when reduced to 8 + joint bits
        *s = (symbol >> joint) as u8;
        *v |= (symbol as u8) << (8 - joint);
    }
    planes.push(v);
    planes.push(top);
    Ok(planes)
}

/// Section 7.2: the elements of W bytes, whose residuals have those `planes`.
fn elements<const W: usize>(planes: &[Vec<u8>], prediction: Option<&[u8]>, subtract: bool) -> Vec<u8> {
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
        let element = if subtract {
            let s = b & sign;
            let d = r >> 1 ^ 0u64.wrapping_sub(r & 1); // zigzag
            let t = (b & (sign - 1)).wrapping_add(d) & all;
            s ^ if t < sign { t } else { t ^ (sign - 1) }
        } else {
            r ^ b
        };
        out.copy_from_slice(&element.to_le_bytes()[..W]);
    }
    bytes
}

/// Section 7.5: an array of `size` bytes in memory, whose blocks are all of `coded`. `run` is the number that its user chose when it was coded;
/// `prediction` the array, if any, that it was coded against. `size` is the caller's, who has to be ready for an array of that.
pub fn decode_array(coded: &[u8], size: usize, run: u32, prediction: Option<&[u8]>) -> std::result::Result<Vec<u8>, Error> {
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
        let header = Header::read(&mut input, run, number)?;
        ensure(!header.predicted || prediction.is_some(), Status::BaseMissing, "an array has a prediction, and none was given")?;
        let expected = left.min(*block_size.get_or_insert(usize::try_from(header.size()).unwrap_or(left)));
        let bytes = prediction.map(|prediction| &prediction[array.len()..array.len() + expected]);
        let prediction = bytes.map(|bytes| Prediction { bytes, if_wrong: Status::BaseWrong });
        array.extend(header.decode(&mut input, expected, prediction, Features::ALL)?);
    }
    check(array.len() == size && input.is_at_end(), "the blocks of an array do not end with it")?;
    Ok(array)
}
