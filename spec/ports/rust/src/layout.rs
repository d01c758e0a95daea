//! Sections 3 and 4: what a file holds, but for the payloads of its blocks. So all sizes are known, and the bytes are there, before anything is
//! decoded.

use crate::block::BlockHeader;
use crate::error::{check, corrupt, ensure, Result, Status};
use crate::hash::crc32c;
use crate::reader::Reader;
use crate::section::{check_paths, read_files, Header, Run, Section, SectionKind, Source, FORMAT_MAJOR, HEADER_SIZE};
use crate::snapshot::File;
use crate::Limits;
use std::ops::Range;

/// A run, and where its blocks are.
pub(crate) struct PlacedRun<'a> {
    pub run: Run<'a>,
    pub n_files: usize, // that are described before it
    pub blocks_at: usize,
    /// Of each block the size, header included, and its Header_CRC, as the table of blocks has them.
    pub rows: Vec<(u32, u32)>,
}

/// What a section is besides its bytes.
pub(crate) enum Content<'a> {
    /// The files of a FILE, and whether the size is known.
    Files(Range<usize>, bool),
    Run(PlacedRun<'a>),
    Ancillary,
}

pub(crate) struct PlacedSection<'a> {
    pub section: Section<'a>,
    pub stored_size: u64, // its blocks included
    pub content: Content<'a>,
}

pub(crate) struct Layout<'a> {
    pub header: Header,
    /// All sections but BLKS and INDX, in order.
    pub sections: Vec<PlacedSection<'a>>,
    pub files: Vec<File>, // without data and fingerprints
    /// Of each file; where a FILE section does not know it, the runs do.
    pub sizes: Vec<u64>,
    /// The body of INDX.
    pub index: &'a [u8],
}

/// Reads a whole file, whose header was read before.
pub(crate) fn read<'a>(file: &'a [u8], header: Header, limits: &Limits) -> Result<Layout<'a>> {
    let mut input = Reader::of_file(file);
    input.take(HEADER_SIZE)?;
    let (mut sections, mut files, mut sizes): (Vec<PlacedSection<'a>>, Vec<File>, Vec<u64>) = Default::default();
    let mut memory = limits.tables;
    let mut decoded = 0u64;
    let mut before = None;
    let mut stream = Some(0); // size of the latest one, if it is known ...
    let mut cut = 0u64; // ... and what the runs have of it
    loop {
        let is_complete = stream.map_or(true, |size| cut == size);
        let section = Section::read(&mut input, limits, |kind| may_stand(before, kind, is_complete))?;
        before = Some(section.kind);
        if let (SectionKind::File | SectionKind::Blocks, None, Some(size)) = (section.kind, stream, sizes.last_mut()) {
            *size = cut;
        }
        let content = match section.kind {
            SectionKind::File => {
                let first = files.len();
                stream = Some(0);
                cut = 0;
                for (file, size) in read_files(section.body, &mut memory)? {
                    files.push(file);
                    sizes.push(size.unwrap_or(0));
                    stream = match (stream, size) {
                        (Some(sum), Some(size)) => Some(within_file(sum, size)?),
                        _ => None,
                    };
                }
                Content::Files(first..files.len(), stream.is_some())
            }
            SectionKind::Run => {
                let run = Run::read(section.body, header.features)?;
                cut = within_file(cut, run.size)?;
                check(stream.map_or(true, |size| cut <= size), "a run goes beyond its stream")?;
                decoded = decoded.saturating_add(run.size);
                ensure(decoded <= limits.decoded, Status::Limit, "more decoded bytes than the caller allows")?;
                // no block has less than its header and a byte
                let is_there = u64::from(run.n_blocks) * 25 <= input.left() as u64;
                ensure(is_there, Status::Truncated, "the input ends before the blocks of a run")?;
                let blocks_at = input.position;
                let has_prediction = run.source != Source::Zero;
                let skip = |number| BlockHeader::skip(&mut input, number, run.size_of_block(number), has_prediction, header.features);
                let rows = (0..run.n_blocks).map(skip).collect::<Result<_>>()?;
                Content::Run(PlacedRun { run, n_files: files.len(), blocks_at, rows })
            }
            SectionKind::Ancillary => Content::Ancillary,
            SectionKind::Blocks => {
                check_paths(&files)?;
                check_rows(section.body, &sections)?;
                continue;
            }
            SectionKind::Index => {
                check_trailer(&mut input, section.offset)?;
                return Ok(Layout { header, sections, files, sizes, index: section.body });
            }
        };
        sections.push(PlacedSection { stored_size: (input.position - section.offset) as u64, section, content });
    }
}

/// Whether a section may stand behind another one. `is_complete`: the runs of the latest stream fill it.
fn may_stand(before: Option<SectionKind>, kind: SectionKind, is_complete: bool) -> bool {
    match (before, kind) {
        (None, _) => kind == SectionKind::File,
        (Some(SectionKind::Blocks), _) => kind == SectionKind::Index,
        (_, SectionKind::File | SectionKind::Blocks) => is_complete,
        (_, SectionKind::Index) => false,
        (_, SectionKind::Run | SectionKind::Ancillary) => true,
    }
}

/// A stream has at most 2^63 - 1 bytes.
fn within_file(at: u64, size: u64) -> Result<u64> {
    at.checked_add(size).filter(|&end| end <= i64::MAX as u64).ok_or_else(|| corrupt("a stream of more than 2^63 - 1 bytes"))
}

/// Section 8.1: the body of BLKS is the rows of all blocks.
fn check_rows(body: &[u8], sections: &[PlacedSection<'_>]) -> Result<()> {
    let mut body = Reader::of_part(body, "the table of blocks ends early");
    for section in sections {
        if let Content::Run(PlacedRun { rows, .. }) = &section.content {
            for (size, crc) in rows {
                check(body.u32()? == *size && body.u32()? == *crc, "size or Header_CRC of a block in the table of blocks")?;
            }
        }
    }
    check(body.is_at_end(), "the table of blocks is too long")
}

pub(crate) const TRAILER_SIZE: usize = 40;
pub(crate) const END_MAGIC: [u8; 8] = [0x94, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];

/// Section 3.2: the trailer, after which nothing follows. The INDX section is at `index`.
fn check_trailer(input: &mut Reader<'_>, index: usize) -> Result<()> {
    let at = input.position;
    let bytes: [u8; TRAILER_SIZE] = input.array()?;
    let mut trailer = Reader::of_file(&bytes);
    let (offset, size, total) = (trailer.u64()?, trailer.u64()?, trailer.u64()?);
    let (major, _minor, reserved, crc) = (trailer.u8()?, trailer.u8()?, trailer.u16()?, trailer.u32()?);
    check(trailer.array()? == END_MAGIC, "End_Magic")?;
    ensure(crc32c(&bytes[..28]) == crc, Status::Checksum, "Trailer_CRC")?;
    ensure(major == FORMAT_MAJOR, Status::Version, "Format_Major of the trailer")?;
    ensure(reserved == 0, Status::Unsupported, "reserved field of the trailer")?;
    check(offset == index as u64 && size == (at - index) as u64, "Index_Offset or Index_Size")?;
    check(total == input.position as u64 && input.is_at_end(), "Total_Size, or something follows the trailer")
}
