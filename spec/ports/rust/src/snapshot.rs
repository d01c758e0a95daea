//! Sections 4.2, 7 and 8: what the runs of a file decode to, fingerprints, the index.

use crate::base::{Base, Bases, Items};
use crate::block::{BlockHeader, Prediction};
use crate::error::{check, Result};
use crate::hash::{crc32c, sha256};
use crate::hashes::check_hashes;
use crate::layout::{self, Content, Layout, PlacedRun, PlacedSection};
use crate::quantised::{f32_to_bf16, f32_to_f16};
use crate::reader::Reader;
use crate::section::{skip_extensions, Features, Header, Kind, Reference, Run, Segment, Source, Tensor, HEADER_SIZE};
use crate::text::Text;
use crate::Limits;
use std::collections::HashMap;
use std::ops::Range;

/// Of a tensor, a file or a snapshot (section 7).
pub type Fingerprint = [u8; 16];

/// A file, restored.
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
    pub fingerprint: Option<Fingerprint>,
}

/// What an LMC file, or a base of other files, holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Section 7.2.
    pub fingerprint: Fingerprint,
    /// Of the base that it was coded against.
    pub base_fingerprint: Option<Fingerprint>,
    /// In the order of the LMC file.
    pub files: Vec<File>,
    /// By key, ascending.
    pub metadata: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Section 7.2: a tensor, or a file without tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Name of the tensor, or Path of the file.
    pub name: &'a [u8],
    /// Section 7.1.
    pub fingerprint: &'a Fingerprint,
    /// Number of the file that it is, or is in.
    pub file: usize,
    /// First byte within that.
    pub offset: u64,
    /// Bytes; None: to the end of the file.
    size: Option<u64>,
}

impl Item<'_> {
    /// Its bytes within those of its file.
    pub(crate) fn range(&self, file_size: usize) -> Range<usize> {
        let start = self.offset as usize;
        start..self.size.map_or(file_size, |size| start + size as usize)
    }
}

impl File {
    /// Gives the file and its tensors the fingerprints that they have with those bytes, within which the tensors are.
    pub(crate) fn fingerprint(&mut self, data: &[u8]) {
        for tensor in &mut self.tensors {
            let bytes = &data[tensor.offset as usize..][..tensor.size as usize];
            tensor.fingerprint = fingerprint_of(0, &tensor.dtype, &tensor.shape, bytes);
        }
        let kind = if self.kind == Kind::Directory { 2 } else { 1 };
        self.fingerprint = if self.tensors.is_empty() { Some(fingerprint_of(kind, b"U8", &[data.len() as u64], data)) } else { None };
    }
}

/// Section 7.1. Type is 0 for a tensor, 1 for a file without tensors, 2 for a directory.
fn fingerprint_of(kind: u8, dtype: &[u8], shape: &[u64], bytes: &[u8]) -> Fingerprint {
    let mut text = b"LMC tensor 3\0".to_vec();
    text.push(kind);
    for chunk in bytes.chunks(262_144) {
        text.extend(crc32c(chunk).to_le_bytes());
        text.extend(sum_of_words(chunk).to_le_bytes());
    }
    text.push(dtype.len() as u8);
    text.extend(dtype);
    text.push(shape.len() as u8);
    shape.iter().for_each(|extent| text.extend(extent.to_le_bytes()));
    text.extend((bytes.len() as u64).to_le_bytes());
    fingerprint_from(&text)
}

/// Zero bytes complete the last word.
fn sum_of_words(chunk: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    chunk.chunks(8).map(word).fold(0, u64::wrapping_add)
}

fn fingerprint_from(text: &[u8]) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    fingerprint.copy_from_slice(&sha256(text)[..16]);
    fingerprint
}

/// Section 7.2: the items of files that know their fingerprints, in the order in which a delta numbers them.
pub(crate) fn items_of(files: &[File]) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if let Some(fingerprint) = &file.fingerprint {
            items.push(Item { name: &file.path, fingerprint, file: number, offset: 0, size: None });
        }
        for Tensor { name, fingerprint, offset, size, .. } in &file.tensors {
            items.push(Item { name, fingerprint, file: number, offset: *offset, size: Some(*size) });
        }
    }
    items.sort_by_key(|item| (item.name, item.fingerprint));
    items
}

/// Section 7.2.
pub(crate) fn snapshot_fingerprint(items: &[Item<'_>]) -> Fingerprint {
    let mut text = b"LMC snapshot 3\0".to_vec();
    for item in items {
        text.extend((item.name.len() as u32).to_le_bytes());
        text.extend(item.name);
        text.extend(item.fingerprint);
    }
    fingerprint_from(&text)
}

impl Snapshot {
    /// Section 7.2: the items, in the order in which a delta numbers them.
    pub fn items(&self) -> Vec<Item<'_>> {
        items_of(&self.files)
    }

    /// The bytes of an item.
    pub fn bytes_of(&self, item: &Item<'_>) -> &[u8] {
        let data = &self.files[item.file].data;
        &data[item.range(data.len())]
    }
}

/// Decodes an LMC file and checks all of it. `bases` are those that the caller knows, in any order: the file's own and, if that is a delta, those
/// below it are found among them by their fingerprints.
pub fn decode(file: &[u8], bases: &[Base], limits: &Limits) -> Result<Snapshot> {
    decode_with(file, &mut Bases::new(bases), limits)
}

pub(crate) fn decode_with(file: &[u8], bases: &mut Bases<'_>, limits: &Limits) -> Result<Snapshot> {
    let header = Header::read(file)?;
    if header.base_fingerprint.is_some() {
        bases.check_any()?; // what is missing is told whatever else is wrong
    }
    let Layout { header, sections, files, sizes, index } = layout::read(file, header, limits)?;
    let Header { features, base_fingerprint } = header;
    let items = base_fingerprint.map(|wanted| bases.find(&wanted, &files, &sizes, limits)).transpose()?;
    let plain = vec![Vec::new(); files.len()];
    let mut decoder = Decoder { features, items, files, sizes, next: 0, plain, texts: HashMap::new() };
    for PlacedSection { content, .. } in &sections {
        if let Content::Run(placed) = content {
            decoder.run(placed, file)?;
        }
    }
    let mut files = decoder.files;
    for file in &mut files {
        let data = std::mem::take(&mut file.data);
        file.fingerprint(&data);
        file.data = data;
    }
    let fingerprint = snapshot_fingerprint(&items_of(&files));
    let mut snapshot = Snapshot { fingerprint, base_fingerprint, files, metadata: Vec::new() };
    snapshot.metadata = check_index(&file[..HEADER_SIZE], index, &snapshot, &sections)?;
    check_hashes(&sections, &snapshot)?;
    Ok(snapshot)
}

struct Decoder<'a> {
    features: Features,
    items: Option<Items<'a>>, // of the base
    files: Vec<File>,
    sizes: Vec<u64>,
    next: usize,                 // the file that gets the next bytes, or one before it that has all of its own
    plain: Vec<Vec<Range<u64>>>, // of each file: what runs of Prediction 0 to 2 have restored, ascending and apart
    texts: HashMap<u32, Text>,   // by number of the file: those that were needed
}

impl Decoder<'_> {
    /// Section 4.2: decodes a run.
    fn run(&mut self, placed: &PlacedRun<'_>, file: &[u8]) -> Result<()> {
        let run = &placed.run;
        let numbers = match run.source {
            Source::Base => self.items.as_ref().map_or(0, Items::len),
            _ => placed.n_files,
        };
        let segments = run.segments(u32::try_from(numbers).unwrap_or(u32::MAX))?;
        for reference in segments.iter().filter_map(|segment| segment.reference.as_ref()) {
            self.check_reference(run, reference)?;
        }

        let mut input = Reader::of_file(file);
        input.take(placed.blocks_at)?;
        let mut cursor = Cursor { segments: &segments, used: 0 };
        for number in 0..run.n_blocks {
            let size = run.size_of_block(number);
            let parts = cursor.advance(size as u64);
            let header = BlockHeader::read(&mut input, number)?;
            let bytes = if header.predicted { self.gather(run, parts) } else { Vec::new() };
            let prediction = Prediction { bytes: &bytes, is_of_base: run.source == Source::Base };
            let prediction = Some(prediction).filter(|_| run.source != Source::Zero);
            let decoded = header.decode(&mut input, size, prediction, self.features)?;
            self.put(&decoded, !run.source.is_own());
        }
        Ok(())
    }

    /// Appends bytes to the files of a stream, which were found to have room for them.
    fn put(&mut self, mut bytes: &[u8], is_plain: bool) {
        while !bytes.is_empty() {
            let file = &mut self.files[self.next];
            let start = file.data.len() as u64;
            let room = self.sizes[self.next] - start;
            if room == 0 {
                self.next += 1;
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            file.data.extend(part);
            bytes = rest;
            let end = start + part.len() as u64;
            let ranges = &mut self.plain[self.next];
            match ranges.last_mut() {
                _ if !is_plain => {}
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
    }

    /// R4-49 to R4-52: the bytes that a segment refers to are there.
    fn check_reference(&mut self, run: &Run<'_>, reference: &Reference) -> Result<()> {
        let Reference { number, start, end } = *reference;
        match run.source {
            Source::Zero => Ok(()),
            Source::Base => {
                let item = self.items.as_ref().and_then(|items| items.get(number));
                check(item.map_or(false, |item| end <= item.len() as u64), "a segment refers to bytes beyond an item of the base")
            }
            Source::Own | Source::OwnAsBf16 | Source::OwnAsF16 => {
                let ranges = &self.plain[number as usize];
                let after = ranges.partition_point(|range| range.start <= start);
                let range = after.checked_sub(1).map(|i| &ranges[i]);
                let is_there = range.map_or(false, |range| end <= range.end);
                check(is_there, "a segment refers to bytes that no earlier run of Prediction 0 to 2 has")
            }
            Source::Text => {
                let tensors = &self.files[number as usize].tensors;
                let text = self.texts.entry(number).or_insert_with(|| Text::new(tensors));
                check(end <= text.size(), "a segment refers to bytes beyond the header text of a file")
            }
        }
    }

    /// Section 4.2: the prediction of some parts of segments, whose references were checked.
    fn gather(&self, run: &Run<'_>, parts: Parts<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (segment, used, size) in parts {
            let (number, start) = match &segment.reference {
                Some(reference) => (reference.number, reference.start),
                None => {
                    bytes.resize(bytes.len() + size as usize, 0);
                    continue;
                }
            };
            let source = match run.source {
                Source::Zero => continue, // it has no segments
                Source::Base => self.items.as_ref().and_then(|items| items.get(number)).unwrap_or(&[]),
                Source::Own | Source::OwnAsBf16 | Source::OwnAsF16 => &self.files[number as usize].data,
                Source::Text => {
                    self.texts[&number].copy(&self.files[number as usize].tensors, start + used, size, &mut bytes);
                    continue;
                }
            };
            let convert = match run.source {
                Source::OwnAsBf16 => f32_to_bf16,
                Source::OwnAsF16 => f32_to_f16,
                _ => {
                    bytes.extend(&source[(start + used) as usize..][..size as usize]);
                    continue;
                }
            };
            let floats = &source[(start + 2 * used) as usize..][..2 * size as usize];
            let bits = floats.chunks_exact(4).map(|float| u32::from_le_bytes([float[0], float[1], float[2], float[3]]));
            bytes.extend(bits.flat_map(|bits| convert(bits).to_le_bytes()));
        }
        bytes
    }
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

/// Section 8.2: the body of the INDX agrees with the rest of the file. Its metadata.
fn check_index(header: &[u8], body: &[u8], snapshot: &Snapshot, sections: &[PlacedSection<'_>]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut index = Reader::of_part(body, "the index ends early");
    check(index.take(header.len())? == header, "copy of the header in the index")?;
    check(index.array()? == snapshot.fingerprint, "Snapshot_Fingerprint")?;
    check(index.u32()? as usize == sections.len(), "N_Sections")?;
    let n_metadata = index.u32()?;

    for PlacedSection { section, stored_size, content } in sections {
        check(index.array()? == section.name, "Kind of an index entry")?;
        check(index.varint()? == *stored_size, "Stored_Size of an index entry")?;
        if let Content::Ancillary = content {
            continue;
        }
        check(index.varint()? == section.body.len() as u64, "Body_Size of an index entry")?;
        check(index.take(section.body.len())? == section.body, "Body of an index entry")?;
        if let Content::Files(files, is_known) = content {
            for file in &snapshot.files[files.clone()] {
                check(*is_known || index.u64()? == file.data.len() as u64, "File_Size of an index entry")?;
                check(index.u32()? == crc32c(&file.data), "File_CRC")?;
                for fingerprint in file.tensors.iter().map(|tensor| &tensor.fingerprint).chain(&file.fingerprint) {
                    check(index.array()? == *fingerprint, "fingerprint of a tensor or file")?;
                }
            }
        }
    }

    check(u64::from(n_metadata) <= index.left() as u64 / 9, "N_Metadata")?;
    let mut metadata: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for _ in 0..n_metadata {
        let (key_size, value_size) = (index.u32()?, index.u32()?);
        check((1..=65_535).contains(&key_size) && value_size <= 1 << 28, "Key_Size or Value_Size of metadata")?;
        let (key, value) = (index.take(key_size as usize)?, index.take(value_size as usize)?);
        check(!key.contains(&0), "Key has a zero byte")?;
        check(metadata.last().map_or(true, |(last, _)| &last[..] < key), "Keys do not ascend")?;
        metadata.push((key.to_vec(), value.to_vec()));
    }
    skip_extensions(&mut index)?;
    Ok(metadata)
}
