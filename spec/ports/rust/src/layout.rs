//! Sections 3 to 6: what a file holds, but for the payloads of its blocks. So all sizes are known, and the bytes are there, before anything is decoded.

use crate::block::Header;
use crate::error::{check, corrupt, ensure, Result, Status};
use crate::hash::crc32c;
use crate::reader::Reader;
use crate::section::{read_files, FileHeader, Run, Section, SectionKind, Source, FILE_HEADER_SIZE, FORMAT_MAJOR};
use crate::snapshot::File;
use crate::Limits;
use std::collections::HashSet;
use std::ops::Range;

/// The files of a FILE section, one after another, which the runs behind it cut.
pub(crate) struct Stream {
    pub files: Range<usize>,
    pub size: u64, // as large as the runs make it, if the size of its file is unknown
    pub is_known: bool,
    /// Where its pieces end: tensors, and what is between them. Ascending; none in a file of unknown size.
    pub piece_ends: Vec<u64>,
}

/// A run, and where its blocks are.
pub(crate) struct PlacedRun<'a> {
    pub run: Run<'a>,
    pub number: u32,
    pub stream: usize,
    pub start: u64, // within the stream
    pub blocks_at: usize,
    /// Of each block the size, header included, and its Header_CRC, as the index has them.
    pub blocks: Vec<(u32, u32)>,
}

/// What a section is besides its bytes.
pub(crate) enum Content<'a> {
    Stream(Stream),
    Run(PlacedRun<'a>),
    Ancillary([u8; 4]),
}

pub(crate) type PlacedSection<'a> = (Section<'a>, Content<'a>);

pub(crate) struct Layout<'a> {
    pub header: FileHeader,
    /// All sections but the index, in order.
    pub sections: Vec<PlacedSection<'a>>,
    pub files: Vec<File>, // without data and identities
    /// Of each file; where a FILE section does not know it, the runs do.
    pub sizes: Vec<Option<u64>>,
    pub index: Section<'a>,
}

/// Section 6: reads a whole file, whose header was read before.
pub(crate) fn read<'a>(file: &'a [u8], header: FileHeader, limits: &Limits) -> Result<Layout<'a>> {
    let mut input = Reader::of_file(file);
    input.take(FILE_HEADER_SIZE)?;
    let (mut sections, mut files, mut sizes): (Vec<PlacedSection<'a>>, Vec<File>, Vec<Option<u64>>) = Default::default();
    let mut memory = limits.tables;
    let mut decoded = 0u64;
    let (mut n_streams, mut n_runs, mut n_ancillary) = (0u32, 0u32, 0u32);
    let mut latest = 0; // the section of the latest stream
    let mut at = 0u64; // in that
    loop {
        let section = Section::read(&mut input, limits)?;
        check(!sections.is_empty() || section.kind == SectionKind::File, "the first section is no FILE")?;
        if let (SectionKind::File | SectionKind::Index, Some((_, Content::Stream(stream)))) = (section.kind, sections.get_mut(latest)) {
            check(!stream.is_known || at == stream.size, "the runs of a stream are not complete")?;
            stream.size = at;
            if let [size @ None] = &mut sizes[stream.files.clone()] {
                *size = Some(at);
            }
        }
        let n_before = match section.kind {
            SectionKind::File => &mut n_streams,
            SectionKind::Run => &mut n_runs,
            SectionKind::Ancillary(_) => &mut n_ancillary,
            SectionKind::Index => {
                check(section.number == 0, "Number of the INDX section")?;
                check_paths(&files)?;
                check_trailer(&mut input, &section)?;
                return Ok(Layout { header, sections, files, sizes, index: section });
            }
        };
        check(section.number == *n_before, "Number of a section")?;
        *n_before = n_before.checked_add(1).ok_or_else(|| corrupt("more sections than Number can count"))?;
        let content = match section.kind {
            SectionKind::File => {
                let first = files.len();
                for (file, size) in read_files(section.body, &mut memory)? {
                    files.push(file);
                    sizes.push(size);
                }
                latest = sections.len();
                at = 0;
                Content::Stream(stream_of(first, &files[first..], &sizes[first..])?)
            }
            SectionKind::Run => {
                let run = Run::read(section.body, header.features)?;
                let end = at.checked_add(run.size).filter(|&end| end <= i64::MAX as u64).ok_or_else(|| corrupt("a run beyond 2^63 - 1"))?;
                if let Some((_, Content::Stream(stream))) = sections.get(latest) {
                    check(!stream.is_known || end <= stream.size, "a run goes beyond its stream")?;
                }
                decoded = decoded.saturating_add(run.size);
                ensure(decoded <= limits.decoded, Status::Limit, "more decoded bytes than the caller allows")?;
                // no block has less than its header and a byte
                let is_there = u64::from(run.n_blocks) * 25 <= input.left() as u64;
                ensure(is_there, Status::Truncated, "the input ends before the blocks of a run")?;
                let (number, blocks_at) = (section.number, input.position);
                let has_prediction = run.source != Source::Zero;
                let skip = |block| Header::skip(&mut input, number, block, run.size_of_block(block), has_prediction, header.features);
                let blocks = (0..run.n_blocks).map(skip).collect::<Result<_>>()?;
                let start = std::mem::replace(&mut at, end);
                Content::Run(PlacedRun { run, number, stream: latest, start, blocks_at, blocks })
            }
            SectionKind::Ancillary(kind) => Content::Ancillary(kind),
            SectionKind::Index => break Err(corrupt("Kind of a section")), // returned above
        };
        sections.push((section, content));
    }
}

/// Where the pieces of these files end, of which the first has the number `first`.
fn stream_of(first: usize, files: &[File], sizes: &[Option<u64>]) -> Result<Stream> {
    let mut piece_ends = Vec::new();
    let mut start = 0u64;
    let is_known = sizes.iter().all(Option::is_some);
    for (file, size) in files.iter().zip(sizes) {
        let end = start.checked_add(size.unwrap_or(0)).ok_or_else(|| corrupt("a stream of more than 2^64 bytes"))?;
        let ends = file.tensors.iter().flat_map(|tensor| [tensor.offset, tensor.offset + tensor.size]);
        for piece_end in ends.map(|offset| start + offset).chain([end]) {
            if piece_end > piece_ends.last().copied().unwrap_or(0) {
                piece_ends.push(piece_end);
            }
        }
        start = end;
    }
    Ok(Stream { files: first..first + files.len(), size: start, is_known, piece_ends })
}

/// Section 5.1: no Path twice, and an empty one alone.
fn check_paths(files: &[File]) -> Result<()> {
    let paths: HashSet<&[u8]> = files.iter().map(|file| &file.path[..]).collect();
    check(paths.len() == files.len(), "two files have the same Path")?;
    check(files.len() == 1 || !paths.contains(&b""[..]), "an empty Path beside other files")
}

pub(crate) const TRAILER_SIZE: usize = 40;
pub(crate) const END_MAGIC: [u8; 8] = [0x82, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];

/// Section 10: the trailer, after which nothing follows.
fn check_trailer(input: &mut Reader<'_>, index: &Section<'_>) -> Result<()> {
    let bytes: [u8; TRAILER_SIZE] = input.array()?;
    let mut trailer = Reader::of_file(&bytes);
    let (offset, size, total) = (trailer.u64()?, trailer.u64()?, trailer.u64()?);
    let (major, _minor, reserved, crc) = (trailer.u8()?, trailer.u8()?, trailer.u16()?, trailer.u32()?);
    check(trailer.array()? == END_MAGIC, "End_Magic")?;
    ensure(crc32c(&bytes[..28]) == crc, Status::Checksum, "Trailer_CRC")?;
    ensure(major == FORMAT_MAJOR, Status::Version, "Format_Major of the trailer")?;
    ensure(reserved == 0, Status::Unsupported, "reserved field of the trailer")?;
    check(offset == index.offset as u64 && size == (index.header.len() + index.body.len()) as u64, "Index_Offset or Index_Size")?;
    check(total == input.position as u64 && input.is_at_end(), "Total_Size, or something follows the trailer")
}
