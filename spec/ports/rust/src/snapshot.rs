//! Sections 5.2, 9 and 10: what the runs of a file decode to, identities, the index.

use crate::base::{Base, Bases, Items};
use crate::block::{Header, Prediction};
use crate::error::{check, Result, Status};
use crate::hash::{crc32c, crc64, sha256};
use crate::layout::{self, Content, Layout, PlacedRun, PlacedSection, Stream};
use crate::quantised::{f32_to_bf16, f32_to_f16};
use crate::reader::Reader;
use crate::section::{skip_extensions, Conversion, Features, FileHeader, Kind, Reference, Run, Segment, Source, Tensor, FILE_HEADER_SIZE};
use crate::text::Text;
use crate::Limits;
use std::collections::HashMap;
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
    /// Gives the file and its tensors the identities that they have with those bytes, within which the tensors are.
    pub(crate) fn identify(&mut self, data: &[u8]) {
        for tensor in &mut self.tensors {
            let bytes = &data[tensor.offset as usize..][..tensor.size as usize];
            tensor.identity = identity_of(0, &tensor.dtype, &tensor.shape, bytes);
        }
        let kind = if self.kind == Kind::Directory { 2 } else { 1 };
        self.identity = if self.tensors.is_empty() { Some(identity_of(kind, b"U8", &[data.len() as u64], data)) } else { None };
    }
}

/// Section 9.2. Type is 0 for a tensor, 1 for a file without tensors, 2 for a directory.
fn identity_of(kind: u8, dtype: &[u8], shape: &[u64], bytes: &[u8]) -> Identity {
    let mut text = b"LMC tensor 2\0".to_vec();
    text.push(kind);
    bytes.chunks(262_144).for_each(|leaf| text.extend(crc64(leaf).to_le_bytes()));
    text.push(dtype.len() as u8);
    text.extend(dtype);
    text.push(shape.len() as u8);
    shape.iter().for_each(|extent| text.extend(extent.to_le_bytes()));
    text.extend((bytes.len() as u64).to_le_bytes());
    sha256(&text)
}

/// Section 9.3: the items of files that know their identities, in the order in which a delta numbers them.
pub(crate) fn items_of(files: &[File]) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if let Some(identity) = &file.identity {
            items.push(Item { name: &file.path, identity, file: number, offset: 0, size: None });
        }
        for Tensor { name, identity, offset, size, .. } in &file.tensors {
            items.push(Item { name, identity, file: number, offset: *offset, size: Some(*size) });
        }
    }
    items.sort_by_key(|item| (item.name, item.identity));
    items
}

/// Section 9.3.
pub(crate) fn snapshot_identity(items: &[Item<'_>]) -> Identity {
    let mut text = b"LMC snapshot 2\0".to_vec();
    for item in items {
        text.extend((item.name.len() as u32).to_le_bytes());
        text.extend(item.name);
        text.extend(item.identity);
    }
    sha256(&text)
}

impl Snapshot {
    /// Section 9.3: the items, in the order in which a delta numbers them.
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
/// below it are found among them by their identities.
pub fn decode(file: &[u8], bases: &[Base], limits: &Limits) -> Result<Snapshot> {
    decode_with(file, &mut Bases::new(bases), limits)
}

pub(crate) fn decode_with(file: &[u8], bases: &mut Bases<'_>, limits: &Limits) -> Result<Snapshot> {
    let header = FileHeader::read(file)?;
    if header.base_identity.is_some() {
        bases.check_any()?; // what is missing is told whatever else is wrong
    }
    let Layout { header, sections, files, sizes, index } = layout::read(file, header, limits)?;
    let FileHeader { features, base_identity, chain_depth } = header;
    let items = base_identity.map(|identity| bases.find(&identity, &files, &sizes, limits)).transpose()?;
    let plain = vec![Vec::new(); files.len()];
    let mut decoder = Decoder { features, items, files, sizes, next: 0, plain, texts: HashMap::new() };
    let mut n_files = 0; // described so far
    for (_, content) in &sections {
        match content {
            Content::Stream(stream) => n_files = stream.files.end,
            Content::Run(placed) => {
                if let Content::Stream(stream) = &sections[placed.stream].1 {
                    decoder.run(placed, stream, n_files, file)?;
                }
            }
            Content::Ancillary(_) => {}
        }
    }
    let mut files = decoder.files;
    for file in &mut files {
        let data = std::mem::take(&mut file.data);
        file.identify(&data);
        file.data = data;
    }
    let identity = snapshot_identity(&items_of(&files));
    let mut snapshot = Snapshot { identity, base_identity, chain_depth, files, metadata: Vec::new() };
    snapshot.metadata = check_index(&file[..FILE_HEADER_SIZE], index.body, &snapshot, &sections)?;
    check_hashes(&sections, &snapshot)?;
    Ok(snapshot)
}

struct Decoder<'a> {
    features: Features,
    items: Option<Items<'a>>, // of the base
    files: Vec<File>,
    sizes: Vec<Option<u64>>,
    next: usize,                 // the file that gets the next bytes, or one before it that has all of its own
    plain: Vec<Vec<Range<u64>>>, // of each file: what runs of another Prediction than 2 have restored, ascending and apart
    texts: HashMap<u32, Text>,   // by number of the file: those that were needed
}

impl Decoder<'_> {
    /// Section 5.2: decodes a run of `stream`. `n_files` are described up to here.
    fn run(&mut self, placed: &PlacedRun<'_>, stream: &Stream, n_files: usize, file: &[u8]) -> Result<()> {
        let PlacedRun { run, number: run_number, start, .. } = placed;
        let numbers = match run.source {
            Source::Zero => 0,
            Source::Base => self.items.as_ref().map_or(0, Items::len),
            Source::Own | Source::Text => n_files,
        };
        let segments = run.segments(*start, &stream.piece_ends, u32::try_from(numbers).unwrap_or(u32::MAX))?;
        for reference in segments.iter().filter_map(|segment| segment.reference.as_ref()) {
            self.check_reference(run, reference)?;
        }

        let mut input = Reader::of_file(file);
        input.take(placed.blocks_at)?;
        let mut cursor = Cursor { segments: &segments, used: 0 };
        for number in 0..run.n_blocks {
            let size = run.size_of_block(number);
            let parts = cursor.advance(size as u64);
            let header = Header::read(&mut input, *run_number, number)?;
            let bytes = if header.predicted { self.gather(run, parts) } else { Vec::new() };
            let prediction = match run.source {
                Source::Zero => None,
                Source::Base => Some(Prediction { bytes: &bytes, if_wrong: Status::BaseWrong }),
                Source::Own | Source::Text => Some(Prediction { bytes: &bytes, if_wrong: Status::Corrupt }),
            };
            let decoded = header.decode(&mut input, size, prediction, self.features)?;
            self.put(&decoded, run.source != Source::Own);
        }
        Ok(())
    }

    /// Appends bytes to the files of a stream, which were found to have room for them.
    fn put(&mut self, mut bytes: &[u8], is_plain: bool) {
        while !bytes.is_empty() {
            let file = &mut self.files[self.next];
            let start = file.data.len() as u64;
            let room = self.sizes[self.next].unwrap_or(u64::MAX) - start;
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

    /// Section 5.2: the bytes that a segment refers to are there. `numbers` was checked.
    fn check_reference(&mut self, run: &Run<'_>, reference: &Reference) -> Result<()> {
        let Reference { number, start, end } = *reference;
        match run.source {
            Source::Zero => Ok(()),
            Source::Base => {
                let item = self.items.as_ref().and_then(|items| items.get(number));
                check(item.map_or(false, |item| end <= item.len() as u64), "a segment refers to bytes beyond an item of the base")
            }
            Source::Own => {
                let ranges = &self.plain[number as usize];
                let after = ranges.partition_point(|range| range.start <= start);
                let range = after.checked_sub(1).map(|i| &ranges[i]);
                let is_there = range.map_or(false, |range| end <= range.end);
                check(is_there, "a segment refers to bytes that no earlier run, or one of Prediction 2, has")
            }
            Source::Text => {
                let tensors = &self.files[number as usize].tensors;
                let text = self.texts.entry(number).or_insert_with(|| Text::new(tensors));
                check(end <= text.size(), "a segment refers to bytes beyond the header text of a file")
            }
        }
    }

    /// Section 5.2: the prediction of some parts of segments, whose references were checked.
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
                Source::Own => &self.files[number as usize].data,
                Source::Text => {
                    self.texts[&number].copy(&self.files[number as usize].tensors, start + used, size, &mut bytes);
                    continue;
                }
            };
            let convert = match run.conversion {
                Conversion::None => {
                    bytes.extend(&source[(start + used) as usize..][..size as usize]);
                    continue;
                }
                Conversion::F32ToBf16 => f32_to_bf16,
                Conversion::F32ToF16 => f32_to_f16,
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

/// Section 9.5: the SHA-256 of each tensor of a file, and of what else is in it.
fn hashes_of(file: &File) -> Vec<[u8; 32]> {
    let (mut outside, mut end, mut hashes) = (Vec::new(), 0, Vec::new());
    for tensor in &file.tensors {
        let (start, tensor_end) = (tensor.offset as usize, (tensor.offset + tensor.size) as usize);
        outside.extend_from_slice(&file.data[end..start]);
        hashes.push(sha256(&file.data[start..tensor_end]));
        end = tensor_end;
    }
    outside.extend_from_slice(&file.data[end..]);
    hashes.push(sha256(&outside));
    hashes
}

/// Section 9.5: the hash of all that a snapshot says. `hashes`: of each file.
fn hash_snapshot(snapshot: &Snapshot, hashes: &[Vec<[u8; 32]>]) -> [u8; 32] {
    let mut all = b"LMC content 1\0".to_vec();
    all.extend((snapshot.files.len() as u64).to_le_bytes());
    let mut files: Vec<(&File, &Vec<[u8; 32]>)> = snapshot.files.iter().zip(hashes).collect();
    files.sort_by_key(|(file, _)| &file.path);
    for (file, hashes) in files {
        let form = u8::from(file.kind == Kind::Directory) | u8::from(file.mode.is_some()) << 1 | u8::from(file.mtime.is_some()) << 2;
        let (seconds, nanoseconds) = file.mtime.unwrap_or((0, 0));
        all.extend((file.path.len() as u32).to_le_bytes());
        all.extend(&file.path);
        all.push(form);
        all.extend((file.data.len() as u64).to_le_bytes());
        all.extend(file.mode.unwrap_or(0).to_le_bytes());
        all.extend(seconds.to_le_bytes());
        all.extend(nanoseconds.to_le_bytes());
        all.extend((file.tensors.len() as u64).to_le_bytes());
        for (tensor, hash) in file.tensors.iter().zip(hashes) {
            all.extend((tensor.name.len() as u32).to_le_bytes());
            all.extend(&tensor.name);
            all.push(tensor.dtype.len() as u8);
            all.extend(&tensor.dtype);
            all.push(tensor.shape.len() as u8);
            tensor.shape.iter().chain([&tensor.offset, &tensor.size]).for_each(|number| all.extend(number.to_le_bytes()));
            all.extend([tensor.loss.generation, tensor.loss.measure]);
            all.extend(tensor.loss.error.to_le_bytes());
            all.extend(hash);
        }
        all.extend(&hashes[file.tensors.len()]);
    }
    for (key, value) in &snapshot.metadata {
        if !key.starts_with(b"lmc.") || key == b"lmc.links" {
            all.extend((key.len() as u32).to_le_bytes());
            all.extend((value.len() as u32).to_le_bytes());
            all.extend(key);
            all.extend(value);
        }
    }
    sha256(&all)
}

/// Section 9.5: a "hash" section, if there is one, has the SHA-256 of the snapshot and of all content.
fn check_hashes(sections: &[PlacedSection<'_>], snapshot: &Snapshot) -> Result<()> {
    let mut is_checked = false;
    for (section, content) in sections {
        if !matches!(content, Content::Ancillary(kind) if kind == b"hash") || !section.body.starts_with(&[1, 0, 0, 0, 0, 0, 0, 0]) {
            continue; // another algorithm
        }
        check(!is_checked, "two hash sections of SHA-256")?;
        is_checked = true;
        let mut body = Reader::of_part(&section.body[8..], "the body of a hash section ends early");
        let hashes: Vec<Vec<[u8; 32]>> = snapshot.files.iter().map(hashes_of).collect();
        check(body.array()? == hash_snapshot(snapshot, &hashes), "Snapshot_Hash")?;
        for hash in hashes.iter().flatten() {
            check(body.array()? == *hash, "the hash of a tensor, or of what else is in a file")?;
        }
        check(body.is_at_end(), "the body of a hash section is too long")?;
    }
    Ok(())
}

/// Section 10: the body of the INDX agrees with the rest of the file. Its metadata.
fn check_index(header: &[u8], body: &[u8], snapshot: &Snapshot, sections: &[PlacedSection<'_>]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut index = Reader::of_part(body, "the index ends early");
    check(index.take(header.len())? == header, "copy of the file header in the index")?;
    check(index.u32()? as usize == sections.len(), "N_Sections")?;
    let n_metadata = index.u32()?;
    check(index.array()? == snapshot.identity, "Snapshot_Identity")?;

    for (section, content) in sections {
        check(index.u64()? == section.offset as u64, "Offset of an index entry")?;
        check(index.take(section.header.len())? == section.header, "copy of a section header in the index")?;
        match content {
            Content::Ancillary(_) => {}
            Content::Run(PlacedRun { blocks, .. }) => {
                check(index.take(section.body.len())? == section.body, "copy of a RUN in the index")?;
                for (size, crc) in blocks {
                    check(index.u32()? == *size && index.u32()? == *crc, "size or Header_CRC of a block in the index")?;
                }
            }
            Content::Stream(stream) => {
                check(index.take(section.body.len())? == section.body, "copy of a FILE in the index")?;
                for file in &snapshot.files[stream.files.clone()] {
                    check(stream.is_known || index.u64()? == file.data.len() as u64, "File_Size in the index")?;
                    check(index.u32()? == crc32c(&file.data), "File_CRC")?;
                    for identity in file.tensors.iter().map(|tensor| &tensor.identity).chain(&file.identity) {
                        check(index.array()? == *identity, "identity of a tensor or file")?;
                    }
                }
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
    skip_extensions(&mut index)?;
    Ok(metadata)
}
