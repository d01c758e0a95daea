//! Sections 3, 6, 9 and 10: a whole file, from front to back.

use crate::base::{Base, Bases};
use crate::block::{Header, Prediction};
use crate::error::{check, corrupt, ensure, Result, Status};
use crate::hash::{crc32c, sha256};
use crate::quantised::{f32_to_bf16, f32_to_f16};
use crate::reader::Reader;
use crate::section::{Conversion, FileBody, FileHeader, Kind, RunBody, Section, Segment, Source, Tensor};
use crate::Limits;
use std::collections::HashSet;
use std::ops::Range;

/// Of a tensor, a file or a snapshot (sections 9.2 and 9.3).
pub type Identity = [u8; 32];

/// A source file, restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Relative, with `/`. Empty: the file has no name of its own, and stands alone.
    pub path: Vec<u8>,
    /// Regular file or directory.
    pub kind: Kind,
    /// POSIX permission bits.
    pub mode: Option<u32>,
    /// Seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
    /// All bytes.
    pub data: Vec<u8>,
    /// In the order of the file, apart from each other.
    pub tensors: Vec<Tensor>,
    /// Of a file without tensors.
    pub identity: Option<Identity>,
}

/// What an LMC file, or a base of other files, holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Section 9.3.
    pub identity: Identity,
    /// Of the base that it was coded against.
    pub base_identity: Option<Identity>,
    /// How many deltas down to a snapshot without a base the encoder knew of.
    pub chain_depth: u32,
    /// In the order of the LMC file.
    pub files: Vec<File>,
    /// By key, ascending.
    pub metadata: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Section 9.3: a tensor, or a file without tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Name of the tensor, or Path of the file.
    pub name: &'a [u8],
    /// Section 9.2.
    pub identity: &'a Identity,
    /// Its content.
    pub bytes: &'a [u8],
}

impl File {
    /// Gives the file and its tensors their identities. The tensors are within the file.
    pub(crate) fn identify(&mut self) {
        for tensor in &mut self.tensors {
            let bytes = &self.data[tensor.offset as usize..][..tensor.size as usize];
            tensor.identity = identity_of(&tensor.dtype, &tensor.shape, bytes);
        }
        let whole = identity_of(b"U8", &[self.data.len() as u64], if self.tensors.is_empty() { &self.data } else { &[] });
        self.identity = if self.tensors.is_empty() { Some(whole) } else { None };
    }
}

/// Section 9.2.
fn identity_of(dtype: &[u8], shape: &[u64], bytes: &[u8]) -> Identity {
    let mut text = b"LMC tensor 1\0".to_vec();
    bytes.chunks(262_144).for_each(|leaf| text.extend(crc32c(leaf).to_le_bytes()));
    text.push(dtype.len() as u8);
    text.extend(dtype);
    text.push(shape.len() as u8);
    shape.iter().for_each(|extent| text.extend(extent.to_le_bytes()));
    text.extend((bytes.len() as u64).to_le_bytes());
    sha256(&text)
}

impl Snapshot {
    /// Section 9.3: the items, in the order in which a delta numbers them.
    pub fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        for file in &self.files {
            if let Some(identity) = &file.identity {
                items.push(Item { name: &file.path, identity, bytes: &file.data });
            }
            for tensor in &file.tensors {
                let bytes = &file.data[tensor.offset as usize..][..tensor.size as usize];
                items.push(Item { name: &tensor.name, identity: &tensor.identity, bytes });
            }
        }
        items.sort_by_key(|item| (item.name, item.identity));
        items
    }

    /// Section 9.3. The files know theirs.
    pub(crate) fn identify(&mut self) {
        let mut text = b"LMC snapshot 1\0".to_vec();
        for item in self.items() {
            text.extend((item.name.len() as u32).to_le_bytes());
            text.extend(item.name);
            text.extend(item.identity);
        }
        self.identity = sha256(&text);
    }
}

/// Decodes an LMC file and checks all of it. `bases` are those that the caller knows, in any order: the file's own and, if that is a delta, those
/// below it are found among them by their identities.
pub fn decode(file: &[u8], bases: &[Base], limits: &Limits) -> Result<Snapshot> {
    decode_with(file, &mut Bases::new(bases), limits)
}

pub(crate) fn decode_with(file: &[u8], bases: &mut Bases<'_>, limits: &Limits) -> Result<Snapshot> {
    let mut input = Reader::of_file(file);
    let header = FileHeader::read(&mut input)?;
    let base = header.base_identity.map(|identity| bases.find(&identity, limits)).transpose()?;
    let items = base.as_ref().map(|base| base.items());
    let mut decoder = Decoder::new(header, items, limits);
    loop {
        let section = Section::read(&mut input, file, limits)?;
        match &section.kind {
            b"FILE" => decoder.file(section)?,
            b"RUN " => decoder.run(section, &mut input)?,
            _ => {
                let (snapshot, entries) = decoder.finish()?;
                check(section.number == 0, "Number of the INDX section")?;
                let metadata = check_index(section.body, &snapshot, &entries)?;
                check_trailer(&mut input, &section)?;
                return Ok(Snapshot { metadata, ..snapshot });
            }
        }
    }
}

/// What the index has to confirm: a section and, if it is a RUN, of each of its blocks the size and Header_CRC.
struct Entry<'a> {
    section: Section<'a>,
    blocks: Vec<(u32, u32)>,
}

struct Decoder<'a> {
    header: FileHeader,
    items: Option<Vec<Item<'a>>>, // of the base
    limits: &'a Limits,
    files: Vec<File>,
    decoded: u64,                // bytes of all files
    expected: Option<u64>,       // File_Size of the latest file, if it is known
    plain: Vec<Vec<Range<u64>>>, // of each file: what runs of another Prediction than 2 have restored, ascending and apart
    paths: HashSet<Vec<u8>>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Decoder<'a> {
    fn new(header: FileHeader, items: Option<Vec<Item<'a>>>, limits: &'a Limits) -> Decoder<'a> {
        let (files, plain, paths, entries) = (Vec::new(), Vec::new(), HashSet::new(), Vec::new());
        Decoder { header, items, limits, files, decoded: 0, expected: None, plain, paths, entries }
    }

    /// Section 5.1 and 6: starts a file.
    fn file(&mut self, section: Section<'a>) -> Result<()> {
        self.check_complete()?;
        check(section.number as usize == self.files.len(), "Number of a FILE section")?;
        let body = FileBody::read(section.body)?;
        check(self.files.is_empty() || !(body.path.is_empty() || self.files[0].path.is_empty()), "an empty Path beside other files")?;
        check(self.paths.insert(body.path.clone()), "two files have the same Path")?;
        let FileBody { size, kind, mode, mtime, path, tensors } = body;
        self.expected = size;
        self.files.push(File { path, kind, mode, mtime, data: Vec::new(), tensors, identity: None });
        self.plain.push(Vec::new());
        self.entries.push(Entry { section, blocks: Vec::new() });
        Ok(())
    }

    /// Section 6.3: the latest file has all its bytes.
    fn check_complete(&mut self) -> Result<()> {
        if let Some(file) = self.files.last_mut() {
            check(self.expected.map_or(true, |size| size == file.data.len() as u64), "a file is not complete")?;
            file.identify();
        }
        Ok(())
    }

    /// Section 5.2: decodes a run, whose blocks are next in the input.
    fn run(&mut self, section: Section<'a>, input: &mut Reader<'a>) -> Result<()> {
        let run = section.number;
        check(run as usize == self.entries.len() - self.files.len(), "Number of a RUN section")?;
        let body = RunBody::read(section.body)?;
        let start = self.check_segments(&body)?;
        self.decoded = self.decoded.saturating_add(body.size);
        ensure(self.decoded <= self.limits.decoded, Status::Limit, "more decoded bytes than the caller allows")?;

        let mut blocks = Vec::new();
        let mut cursor = Cursor { segments: &body.segments, used: 0 };
        let mut left = body.size;
        for number in 0..body.n_blocks {
            let size = left.min(body.block_size as u64) as usize;
            let parts = cursor.advance(size as u64);
            let block_start = input.position;
            let header = Header::read(input, run, number)?;
            let bytes = if header.predicted { self.gather(&body, parts) } else { Vec::new() };
            let prediction = match body.source {
                Source::Zero => None,
                Source::Base => Some(Prediction { bytes: &bytes, if_wrong: Status::BaseWrong }),
                Source::Own => Some(Prediction { bytes: &bytes, if_wrong: Status::Corrupt }),
            };
            let decoded = header.decode(input, size, prediction)?;
            self.latest()?.data.extend(decoded);
            blocks.push(((input.position - block_start) as u32, header.crc));
            left -= size as u64;
        }
        if body.source != Source::Own {
            let ranges = self.plain.last_mut().ok_or_else(no_file)?;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += body.size,
                _ => ranges.push(start..start + body.size),
            }
        }
        self.entries.push(Entry { section, blocks });
        Ok(())
    }

    fn latest(&mut self) -> Result<&mut File> {
        self.files.last_mut().ok_or_else(no_file)
    }

    /// Sections 5.2 and 6: what the rest of the file says of a run's segments. Where in the latest file they start.
    fn check_segments(&mut self, body: &RunBody) -> Result<u64> {
        let start = self.latest()?.data.len() as u64;
        let end = self.expected.unwrap_or(i64::MAX as u64);
        let mut next = start;
        for segment in &body.segments {
            check(segment.file as usize == self.files.len() - 1, "a segment is not of the latest file")?;
            check(segment.offset == next, "a segment is not where the one before it ends")?;
            check(segment.size <= end - next, "a segment is not within its file")?;
            next += segment.size;
        }
        match body.source {
            Source::Zero => {}
            Source::Base => {
                let items = self.items.as_ref().ok_or_else(|| corrupt("Prediction 1 in a file without a base"))?;
                for (segment, base) in with_base(body) {
                    let item = items.get(base as usize).ok_or_else(|| corrupt("Base of a segment: the base has no such item"))?;
                    check(segment.base_end <= item.bytes.len() as u64, "a segment refers to bytes beyond an item of the base")?;
                }
            }
            Source::Own => {
                check(!self.header.sequential, "Prediction 2 in a file with Sequential 1")?;
                for (segment, base) in with_base(body) {
                    let ranges = self.plain.get(base as usize).ok_or_else(|| corrupt("Base of a segment: no such file came before"))?;
                    let after = ranges.partition_point(|range| range.start <= segment.base_offset);
                    let range = after.checked_sub(1).map(|i| &ranges[i]);
                    let is_there = range.map_or(false, |range| segment.base_end <= range.end);
                    check(is_there, "a segment refers to bytes that no earlier run, or one of Prediction 2, has")?;
                }
            }
        }
        Ok(start)
    }

    /// Section 5.2: the prediction of some parts of segments, whose ranges were checked.
    fn gather(&self, body: &RunBody, parts: Parts<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (segment, used, size) in parts {
            let source = match (segment.base, body.source, &self.items) {
                (Some(base), Source::Base, Some(items)) => items[base as usize].bytes,
                (Some(base), Source::Own, _) => &self.files[base as usize].data,
                _ => {
                    bytes.resize(bytes.len() + size as usize, 0);
                    continue;
                }
            };
            let convert = match body.conversion {
                Conversion::None => {
                    bytes.extend(&source[(segment.base_offset + used) as usize..][..size as usize]);
                    continue;
                }
                Conversion::F32ToBf16 => f32_to_bf16,
                Conversion::F32ToF16 => f32_to_f16,
            };
            let floats = &source[(segment.base_offset + 2 * used) as usize..][..2 * size as usize];
            let bits = floats.chunks_exact(4).map(|float| u32::from_le_bytes([float[0], float[1], float[2], float[3]]));
            bytes.extend(bits.flat_map(|bits| convert(bits).to_le_bytes()));
        }
        bytes
    }

    /// Section 6: the INDX section has come.
    fn finish(mut self) -> Result<(Snapshot, Vec<Entry<'a>>)> {
        check(!self.files.is_empty(), "there is no FILE section")?;
        self.check_complete()?;
        let (base_identity, chain_depth) = (self.header.base_identity, self.header.chain_depth);
        let mut snapshot = Snapshot { identity: [0; 32], base_identity, chain_depth, files: self.files, metadata: Vec::new() };
        snapshot.identify();
        Ok((snapshot, self.entries))
    }
}

fn no_file() -> crate::Error {
    corrupt("a run stands before the first file")
}

fn with_base(body: &RunBody) -> impl Iterator<Item = (&Segment, u32)> {
    body.segments.iter().filter_map(|segment| segment.base.map(|base| (segment, base)))
}

/// Segments of a run that are still to come, of the first of which `used` bytes are behind.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    segments: &'a [Segment],
    used: u64,
}

/// The parts of segments that make `left` bytes: (segment, offset within it, size).
struct Parts<'a> {
    cursor: Cursor<'a>,
    left: u64,
}

impl<'a> Cursor<'a> {
    /// The next `size` bytes.
    fn advance(&mut self, size: u64) -> Parts<'a> {
        let parts = Parts { cursor: *self, left: size };
        let mut walk = Parts { cursor: *self, left: size };
        while walk.next().is_some() {}
        *self = walk.cursor;
        parts
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = (&'a Segment, u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let (segment, rest) = self.cursor.segments.split_first()?;
        let used = self.cursor.used;
        let size = self.left.min(segment.size - used);
        self.left -= size;
        self.cursor.used += size;
        if self.cursor.used == segment.size {
            self.cursor = Cursor { segments: rest, used: 0 };
        }
        Some((segment, used, size))
    }
}

/// Section 10: the body of the INDX agrees with the rest of the file. Its metadata.
fn check_index(body: &[u8], snapshot: &Snapshot, entries: &[Entry<'_>]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut index = Reader::of_part(body, "the index ends early");
    let n_runs = entries.len() - snapshot.files.len();
    check(index.u32()? as usize == snapshot.files.len(), "N_Files")?;
    check(index.u32()? as usize == n_runs, "N_Runs")?;
    check(index.array()? == snapshot.identity, "Snapshot_Identity")?;
    let n_metadata = index.u32()?;
    ensure(index.u32()? == 0, Status::Unsupported, "reserved field of the index")?;

    let mut files = snapshot.files.iter();
    for Entry { section, blocks } in entries {
        check(index.u64()? == section.offset as u64, "Offset of an index entry")?;
        check(index.take(section.whole.len())? == section.whole, "Copy of a section in the index")?;
        if &section.kind == b"RUN " {
            for (size, crc) in blocks {
                check(index.u32()? == *size && index.u32()? == *crc, "size or Header_CRC of a block in the index")?;
            }
        } else if let Some(file) = files.next() {
            check(index.u64()? == file.data.len() as u64, "File_Size in the index")?;
            check(index.u32()? == crc32c(&file.data), "File_CRC")?;
            check(index.u32()? == 0, "reserved field of an index entry")?;
            for identity in file.tensors.iter().map(|tensor| &tensor.identity).chain(&file.identity) {
                check(index.array()? == *identity, "identity of a tensor or file")?;
            }
        }
    }

    let mut metadata: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for _ in 0..n_metadata {
        let (key_size, value_size) = (index.u32()?, index.u32()?);
        check((1..=65_535).contains(&key_size) && value_size <= 1 << 28, "Key_Size or Value_Size of metadata")?;
        let (key, value) = (index.take(key_size as usize)?, index.take(value_size as usize)?);
        check(!key.contains(&0), "Key has a zero byte")?;
        check(metadata.last().map_or(true, |(last, _)| &last[..] < key), "Keys do not ascend")?;
        metadata.push((key.to_vec(), value.to_vec()));
    }
    check(index.is_at_end(), "the index is too long")?;
    Ok(metadata)
}

pub(crate) const TRAILER_SIZE: usize = 40;
pub(crate) const END_MAGIC: [u8; 8] = [0x8D, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];

/// Section 10: the trailer, after which nothing follows.
fn check_trailer(input: &mut Reader<'_>, index: &Section<'_>) -> Result<()> {
    let bytes: [u8; TRAILER_SIZE] = input.array()?;
    let mut trailer = Reader::of_file(&bytes);
    let (offset, size, total, reserved, crc) = (trailer.u64()?, trailer.u64()?, trailer.u64()?, trailer.u32()?, trailer.u32()?);
    check(trailer.array()? == END_MAGIC, "End_Magic")?;
    ensure(crc32c(&bytes[..28]) == crc, Status::Checksum, "Trailer_CRC")?;
    ensure(reserved == 0, Status::Unsupported, "reserved field of the trailer")?;
    check(offset == index.offset as u64 && size == index.whole.len() as u64, "Index_Offset or Index_Size")?;
    check(total == input.position as u64 && input.is_at_end(), "Total_Size, or something follows the trailer")
}
