//! quantised.md, and the conversions of section 4.2. All floats are handled as their bits.

use crate::error::{check, corrupt, Result};
use crate::list::list;
use crate::reader::Reader;

/// What stands in front of the symbols.
struct Parameters<'a> {
    log: bool,
    signed: bool,
    table: Option<Vec<u16>>, // by High - 1
    low_bits: u8,
    min: i32,
    step: u32,
    bias: i32,
    floor: u32,
    group_size: usize,
    first_group: usize,
    positions: &'a [u8], // u32 each
    values: &'a [u8],    // one element each
}

/// Where the scale of an element comes from.
enum Scales<'a> {
    Groups(Vec<u32>),
    Prediction(&'a [u8]),
}

/// The `n` elements of `width` bytes.
pub(crate) fn decode(payload: &mut Reader<'_>, n: usize, width: usize, prediction: Option<&[u8]>) -> Result<Vec<u8>> {
    let parameters = Parameters::read(payload, n, width, prediction.is_some())?;
    let scales = match prediction {
        Some(prediction) => Scales::Prediction(prediction),
        None => Scales::Groups(parameters.read_groups(payload, n)?),
    };
    let low = if parameters.low_bits == 0 { vec![0; n] } else { list(payload, n)? };
    let high = list(payload, n)?;

    let mut bytes = Vec::with_capacity(n * width);
    for (i, (&high, &low)) in high.iter().zip(&low).enumerate() {
        let symbol = parameters.symbol(high, low)?;
        let scale = match &scales {
            // the first group may be shorter than the others
            Scales::Groups(scales) if i < parameters.first_group => scales[0],
            Scales::Groups(scales) => scales[1 + (i - parameters.first_group) / parameters.group_size],
            Scales::Prediction(prediction) => parameters.scale_of(float_at(prediction, i, width)),
        };
        let float = parameters.element(symbol, scale);
        if width == 4 {
            bytes.extend(float.to_le_bytes());
        } else {
            bytes.extend(f32_to_bf16(float).to_le_bytes());
        }
    }
    for (position, value) in parameters.positions.chunks_exact(4).zip(parameters.values.chunks_exact(width)) {
        let at = position.iter().rev().fold(0, |at, &byte| at << 8 | usize::from(byte)) * width;
        bytes[at..at + width].copy_from_slice(value);
    }
    Ok(bytes)
}

impl<'a> Parameters<'a> {
    fn read(payload: &mut Reader<'a>, n: usize, width: usize, predicted: bool) -> Result<Parameters<'a>> {
        let method = payload.u8()?;
        check(method >> 3 == 0, "reserved bits of Method")?;
        let (log, signed, tabled) = (method & 1 != 0, method & 2 != 0, method & 4 != 0);
        check(log || !signed, "Signed without Log")?;
        check(!log || !predicted, "Log with a prediction")?;
        let low_bits = payload.u8()?;
        check(low_bits <= if tabled { 0 } else { 8 }, "Low_Bits")?;
        let table_size = payload.u16()?;
        check(if tabled { (1..=255).contains(&table_size) } else { table_size == 0 }, "Table_Size")?;
        let min = payload.i32()?;
        check((-65_535..=0).contains(&min), "Min")?;
        let step = payload.u32()?;
        check(if log { (1..=1 << 24).contains(&step) } else { step == 0 }, "Step")?;
        let (bias, floor) = (payload.i32()?, payload.u32()?);
        check(if predicted { (-(1 << 30)..=1 << 30).contains(&bias) } else { bias == 0 }, "Bias")?;
        check(floor <= if predicted { 0x7F80_0000 } else { 0 }, "Floor")?;
        let (group_size, first_group) = (payload.u32()?, payload.u32()?);
        check(if predicted { group_size == 0 } else { (1..1 << 31).contains(&group_size) }, "Group_Size")?;
        check(if predicted { first_group == 0 } else { (1..=group_size).contains(&first_group) }, "First_Group")?;
        let n_exceptions = payload.u32()? as usize;
        check(n_exceptions <= n, "N_Exceptions")?;

        let table: Vec<u16> = payload.take(2 * usize::from(table_size))?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        check(table.first() != Some(&0) && table.windows(2).all(|pair| pair[0] < pair[1]), "Table does not ascend from 1")?;
        let positions = payload.take(4 * n_exceptions)?;
        let mut next = 0; // the least that the next position may be
        for position in positions.chunks_exact(4) {
            let position = position.iter().rev().fold(0, |at, &byte| at << 8 | usize::from(byte));
            check((next..n).contains(&position), "Positions of exceptions")?;
            next = position + 1;
        }
        let values = payload.take(n_exceptions * width)?;
        let (group_size, first_group) = (group_size as usize, first_group as usize);
        let table = if tabled { Some(table) } else { None };
        Ok(Parameters { log, signed, table, low_bits, min, step, bias, floor, group_size, first_group, positions, values })
    }

    /// The scales of the groups, without a prediction.
    fn read_groups(&self, payload: &mut Reader<'_>, n: usize) -> Result<Vec<u32>> {
        let others = n.saturating_sub(self.first_group);
        let n_groups = 1 + others / self.group_size + usize::from(others % self.group_size != 0);
        let (low, high) = (list(payload, n_groups)?, list(payload, n_groups)?);
        let numbers = 0x0080..=if self.log { 0x7F7F } else { 0x7700 };
        let scale = |(&low, &high)| {
            let number = u32::from(high) << 8 | u32::from(low);
            check(numbers.contains(&number), "the scale of a group")?;
            Ok(number << 16)
        };
        low.iter().zip(&high).map(scale).collect()
    }

    fn symbol(&self, high: u8, low: u8) -> Result<u16> {
        match &self.table {
            None => Ok(u16::from(high) << self.low_bits | u16::from(low)),
            Some(_) if high == 0 => Ok(0),
            Some(table) => table.get(usize::from(high) - 1).copied().ok_or_else(|| corrupt("a symbol is not in Table")),
        }
    }

    /// The scale of an element by its prediction.
    fn scale_of(&self, prediction: u32) -> u32 {
        let p = prediction & 0x7FFF_FFFF;
        let bits = i64::from(p.max(self.floor) >> 1) + i64::from(self.bias);
        bits.clamp(0x0080_0000, 0x7700_0000) as u32 & 0xFFFF_0000 // Log is never set with a prediction
    }

    /// The bits of the F32 that a symbol means.
    fn element(&self, symbol: u16, scale: u32) -> u32 {
        if symbol == 0 {
            return 0;
        }
        let t = i32::from(symbol - 1);
        if !self.log {
            return ((self.min + t) as f32 * f32::from_bits(scale)).to_bits(); // exact: 16 bits times 8
        }
        let (t, sign) = if self.signed { (t >> 1, (t as u32 & 1) << 31) } else { (t, 0) };
        let bits = i64::from(scale) + i64::from(self.min + t) * i64::from(self.step);
        bits.clamp(0x0080_0000, 0x7F7F_0000) as u32 | sign
    }
}

/// Element i of an array of F32 or (`width` 2) BF16, as the bits of an F32.
fn float_at(array: &[u8], i: usize, width: usize) -> u32 {
    let bits = array[i * width..(i + 1) * width].iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
    if width == 4 {
        bits
    } else {
        bits << 16
    }
}

/// Section 4.2: to nearest, ties to even. A NaN keeps its sign and the top of its mantissa, whose first bit is set.
pub(crate) fn f32_to_bf16(bits: u32) -> u16 {
    if bits & 0x7FFF_FFFF > 0x7F80_0000 {
        return (bits >> 16) as u16 | 0x0040;
    }
    let half = 0x7FFF + (bits >> 16 & 1); // a tie goes up if what stays is odd
    ((bits + half) >> 16) as u16 // at most infinity, with its sign
}

/// The same to F16.
pub(crate) fn f32_to_f16(bits: u32) -> u16 {
    let sign = (bits >> 16) as u16 & 0x8000;
    let value = bits & 0x7FFF_FFFF;
    let magnitude = if value > 0x7F80_0000 {
        0x7E00 | (value >> 13) as u16 & 0x03FF
    } else if value >= 0x4780_0000 {
        0x7C00 // 2^16 and more, infinity among them
    } else if value >= 0x3880_0000 {
        // 2^-14 and more: the exponent's bias is less by 112. 65,520 and more round up to infinity.
        round(value - (112 << 23), 13)
    } else {
        // subnormal, in units of 2^-24. What is below 2^-25 rounds to zero, whatever the mantissa.
        let exponent = value >> 23;
        let mantissa = value & 0x007F_FFFF | 0x0080_0000;
        if exponent < 102 {
            0
        } else {
            round(mantissa, 126 - exponent)
        }
    };
    sign | magnitude
}

/// value / 2^shift to nearest, ties to even.
fn round(value: u32, shift: u32) -> u16 {
    let half = (1 << (shift - 1)) - 1 + (value >> shift & 1);
    ((value + half) >> shift) as u16
}
