//! Section 2: fields, little-endian, at any offset, and varints.

use crate::error::{check, Error, Result, Status};

/// Takes fields from the front of some bytes. `position` never exceeds their number.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pub position: usize,
    ended: Error, // what it means if a field is not there
}

impl<'a> Reader<'a> {
    /// Of the file itself: a field that is not there is TRUNCATED.
    pub fn of_file(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0, ended: Error { status: Status::Truncated, what: "the input ends early" } }
    }

    /// Of a part whose size is known, a section's body or a payload: CORRUPT.
    pub fn of_part(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { bytes, position: 0, ended: Error { status: Status::Corrupt, what } }
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub fn is_at_end(&self) -> bool {
        self.left() == 0
    }

    pub fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        let taken = rest.get(..size).ok_or(self.ended)?;
        self.position += size;
        Ok(taken)
    }

    /// For sizes that the input says, which an address may not hold.
    pub fn take_u64(&mut self, size: u64) -> Result<&'a [u8]> {
        self.take(usize::try_from(size).map_err(|_| self.ended)?)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A varint: seven bits a byte, the least first; bit 7 says that another byte follows. In its shortest form, and below 2^64.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            check(shift < 63 || byte <= 1, "a varint is not below 2^64")?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                check(byte != 0 || shift == 0, "a varint is not in its shortest form")?;
                break;
            }
        }
        Ok(value)
    }

    /// The number of things that follow, of which each takes at least `least` bytes: a varint that is at most `max`.
    pub fn count(&mut self, max: u64, least: u64, what: &'static str) -> Result<u64> {
        let count = self.up_to(max, what)?;
        check(count <= self.left() as u64 / least, what)?;
        Ok(count)
    }

    /// A varint that is at most `max`.
    pub fn up_to(&mut self, max: u64, what: &'static str) -> Result<u64> {
        let value = self.varint()?;
        check(value <= max, what)?;
        Ok(value)
    }
}
