//! Sections 3.1 and 4: Header, Section_Header, the bodies of FILE and RUN.

use crate::error::{check, corrupt, ensure, unsupported, Result, Status};
use crate::hash::crc32c;
use crate::reader::Reader;
use crate::snapshot::{File, Fingerprint};
use crate::Limits;

pub(crate) const HEADER_SIZE: usize = 64;
pub(crate) const MAGIC: [u8; 8] = [0x95, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];
pub(crate) const FORMAT_MAJOR: u8 = 1;
const MAX_SIZE: u64 = i64::MAX as u64; // of files, tensors, runs and streams

/// Section 3.1, Incompatible: what a file may use.
#[derive(Clone, Copy)]
pub(crate) struct Features(u64);

impl Features {
    /// What blocks in memory may use.
    pub const ALL: Features = Features(63);

    pub fn base(self) -> bool {
        self.0 & 1 != 0
    }

    pub fn own(self) -> bool {
        self.0 & 2 != 0
    }

    pub fn quantised(self) -> bool {
        self.0 & 4 != 0
    }

    pub fn zeros(self) -> bool {
        self.0 & 8 != 0
    }

    pub fn matrix(self) -> bool {
        self.0 & 16 != 0
    }

    pub fn codes(self) -> bool {
        self.0 & 32 != 0
    }
}

/// Section 3.1.
pub(crate) struct Header {
    pub features: Features,
    pub base_fingerprint: Option<Fingerprint>,
}

impl Header {
    /// Takes it from the front of the file. Format_Minor and Compatible decide nothing.
    pub fn read(file: &[u8]) -> Result<Header> {
        let mut input = Reader::of_file(file);
        let magic: [u8; 8] = if file.len() < 8 { [0; 8] } else { input.array()? };
        ensure(magic == MAGIC, Status::NotLmc, "this is no LMC file")?;
        ensure(input.u8()? == FORMAT_MAJOR, Status::Version, "not version 1 of the format")?;
        let (_minor, algorithm, reserved): (u8, u8, [u8; 5]) = (input.u8()?, input.u8()?, input.array()?);
        let (incompatible, _compatible) = (input.u64()?, input.u64()?);
        let (base_fingerprint, reserved_too): (Fingerprint, [u8; 12]) = (input.array()?, input.array()?);
        let crc = crc32c(&file[..input.position]);
        ensure(crc == input.u32()?, Status::Checksum, "Header_CRC of the file")?;

        let features = Features(incompatible);
        ensure(algorithm == 1, Status::Unsupported, "Algorithm of fingerprints")?;
        ensure(reserved == [0; 5], Status::Unsupported, "reserved bytes of the header")?;
        ensure(incompatible & !Features::ALL.0 == 0, Status::Unsupported, "bits of Incompatible")?;
        let has_base = base_fingerprint != Fingerprint::default();
        check(has_base == features.base(), "the bit Base without Base_Fingerprint, or the other way round")?;
        ensure(reserved_too == [0; 12], Status::Unsupported, "reserved bytes of the header")?;
        Ok(Header { features, base_fingerprint: if has_base { Some(base_fingerprint) } else { None } })
    }
}

/// Kind of a section.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    File,
    Run,
    Blocks,
    Index,
    /// One that a decoder need not know (section 4.4).
    Ancillary,
}

/// A section as it stands in the file.
pub(crate) struct Section<'a> {
    pub offset: usize,
    pub kind: SectionKind,
    pub name: [u8; 4], // Kind as it is stored
    pub body: &'a [u8],
}

pub(crate) const SECTION_HEADER_SIZE: usize = 20;

impl<'a> Section<'a> {
    /// Takes the next section, whose CRCs are right then. `may_stand` says whether one of its kind may stand here.
    pub fn read(input: &mut Reader<'a>, limits: &Limits, may_stand: impl Fn(SectionKind) -> bool) -> Result<Section<'a>> {
        let offset = input.position;
        let header = input.take(SECTION_HEADER_SIZE)?;
        let mut fields = Reader::of_file(header);
        let (name, size): ([u8; 4], u64) = (fields.array()?, fields.u64()?);
        let (head_crc, body_crc) = (fields.u32()?, fields.u32()?);
        ensure(crc32c(&header[..12]) == head_crc, Status::Checksum, "Head_CRC of a section")?;
        let plain = name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b' ');
        check(plain && name[0].is_ascii_alphabetic(), "Kind of a section")?;
        let kind = match &name {
            b"FILE" => SectionKind::File,
            b"RUN " => SectionKind::Run,
            b"BLKS" => SectionKind::Blocks,
            b"INDX" => SectionKind::Index,
            _ if name[0].is_ascii_lowercase() => SectionKind::Ancillary,
            _ => return Err(unsupported("a critical section of an unknown kind")),
        };
        check(may_stand(kind), "a section of this kind may not stand here")?;
        check(size <= 1 << 40, "Body_Size is over 2^40")?;
        ensure(size <= limits.section, Status::Limit, "Body_Size is more than the caller allows")?;
        let body = input.take_u64(size)?;
        ensure(crc32c(body) == body_crc, Status::Checksum, "Body_CRC of a section")?;
        Ok(Section { offset, kind, name, body })
    }
}

/// Section 4.5: what follows the last field of a body. This decoder knows no extension record, so it skips them, unless they are critical.
pub(crate) fn skip_extensions(body: &mut Reader<'_>) -> Result<()> {
    let mut last = None;
    while !body.is_at_end() {
        let tag = body.varint()?;
        check(last < Some(tag), "Tags of extension records do not ascend")?;
        last = Some(tag);
        let size = body.varint()?;
        body.take_u64(size)?;
        ensure(tag & 1 == 0, Status::Unsupported, "a critical extension record")?;
    }
    Ok(())
}

/// Of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory; it has neither bytes nor tensors.
    Directory,
}

/// quantised.md: how far the elements of a tensor are from their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How often they were quantised; 0: they are the source's.
    pub generation: u8,
    /// 0 none, 1 update, 2 relative, 3 nmse; others are of later versions.
    pub measure: u8,
    /// By that measure, in units of 2^-32.
    pub error: u32,
}

/// Section 4.1: a range of a file with a name, a dtype and a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// UTF-8 by convention only.
    pub name: Vec<u8>,
    /// "BF16", "F32" ... verbatim from the source.
    pub dtype: Vec<u8>,
    /// Outermost first.
    pub shape: Vec<u64>,
    /// First byte within the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// What quantising lost.
    pub loss: Loss,
    /// Section 7.1.
    pub fingerprint: Fingerprint,
}

/// The dtypes that have a number, which counts from 1, with the bits of an element.
const DTYPES: [(&[u8], u8); 27] = [
    (b"BOOL", 8),
    (b"F4", 4),
    (b"F6_E2M3", 6),
    (b"F6_E3M2", 6),
    (b"U8", 8),
    (b"I8", 8),
    (b"F8_E5M2", 8),
    (b"F8_E4M3", 8),
    (b"F8_E8M0", 8),
    (b"F8_E4M3FNUZ", 8),
    (b"F8_E5M2FNUZ", 8),
    (b"I16", 16),
    (b"U16", 16),
    (b"F16", 16),
    (b"BF16", 16),
    (b"I32", 32),
    (b"U32", 32),
    (b"F32", 32),
    (b"C64", 64),
    (b"F64", 64),
    (b"I64", 64),
    (b"U64", 64),
    (b"I4", 4),
    (b"U4", 4),
    (b"I2", 2),
    (b"U2", 2),
    (b"C128", 128),
];

/// Of a dtype that has a number.
pub(crate) fn bits_of_dtype(dtype: &[u8]) -> Option<u8> {
    DTYPES.iter().find(|(name, _)| *name == dtype).map(|(_, bits)| *bits)
}

/// The bytes of that many bits by that shape: a whole number below 2^63, in exact arithmetic.
pub(crate) fn size_of_shape(bits: u8, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0); // however large the others are
    }
    let bits = shape.iter().try_fold(u128::from(bits), |product, &extent| product.checked_mul(u128::from(extent)))?;
    u64::try_from(bits / 8).ok().filter(|&size| bits % 8 == 0 && size <= MAX_SIZE)
}

/// A file as its entry describes it: without data and fingerprints. The size, if it is known.
pub(crate) type FileEntry = (File, Option<u64>);

/// Section 4.1: the body of a FILE. `memory` is what names and shapes may take yet.
pub(crate) fn read_files(body: &[u8], memory: &mut u64) -> Result<Vec<FileEntry>> {
    let mut input = Reader::of_part(body, "the body of a FILE ends early");
    let n_files = input.count(1 << 28, 3, "N_Files")?;
    check(n_files != 0, "N_Files is 0")?;
    let mut charge = |size: usize| {
        let left = memory.checked_sub(size as u64);
        ensure(left.is_some(), Status::Limit, "names and shapes need more memory than the caller allows")?;
        *memory = left.unwrap_or(0);
        Ok(())
    };
    let (mut files, mut tensors, mut counts): (Vec<FileEntry>, Vec<Tensor>, Vec<usize>) = Default::default();
    for _ in 0..n_files {
        let path_before = files.last().map_or(&[][..], |(file, _)| &file.path);
        let (file, size, n_tensors) = read_file(&mut input, path_before)?;
        check(size.is_some() || n_files == 1, "a file of unknown size beside others in its section")?;
        charge(file.path.len())?;
        let (first, mut end) = (tensors.len(), 0);
        for _ in 0..n_tensors {
            let tensor = read_tensor(&mut input, &tensors, end)?;
            let tensor_end = tensor.offset.checked_add(tensor.size).filter(|&end| size.map_or(false, |size| end <= size));
            end = tensor_end.ok_or_else(|| corrupt("a tensor is not within its file"))?;
            charge(tensor.name.len() + 8 * tensor.shape.len())?;
            tensors.push(tensor);
        }
        let mut names: Vec<&[u8]> = tensors[first..].iter().map(|tensor| &tensor.name[..]).collect();
        names.sort_unstable();
        check(names.windows(2).all(|pair| pair[0] != pair[1]), "two tensors of a file have the same Name")?;
        counts.push(tensors.len() - first);
        files.push((file, size));
    }
    skip_extensions(&mut input)?;
    let mut tensors = tensors.into_iter();
    for ((file, _), count) in files.iter_mut().zip(counts) {
        file.tensors = tensors.by_ref().take(count).collect();
    }
    Ok(files)
}

/// A file entry, up to its N_Tensors: the file, its size, and that number.
fn read_file(input: &mut Reader<'_>, path_before: &[u8]) -> Result<(File, Option<u64>, u64)> {
    let form = input.u8()?;
    ensure(form >> 4 == 0, Status::Unsupported, "reserved bits of a file entry")?;
    let (is_directory, has_mode, has_mtime, is_unknown) = (form & 1 != 0, form & 2 != 0, form & 4 != 0, form & 8 != 0);
    check(!(is_directory && is_unknown), "a directory of unknown size")?;
    let prefix = usize::from(input.u8()?);
    let prefix = path_before.get(..prefix).ok_or_else(|| corrupt("Path_Prefix is more than the path before"))?;
    let rest_size = input.up_to(65_535 - prefix.len() as u64, "a Path is too long")?;
    let path = [prefix, input.take_u64(rest_size)?].concat();
    check_path(&path)?;
    let has_size = !is_directory && !is_unknown;
    let size = if has_size { input.up_to(MAX_SIZE, "File_Size")? } else { 0 };
    let mode = if has_mode { Some(input.up_to(0o7777, "Mode")? as u32) } else { None };
    let mtime = if has_mtime { Some((input.i64()?, input.u32()?)) } else { None };
    check(mtime.map_or(true, |(_, nanoseconds)| nanoseconds <= 999_999_999), "Mtime_Nanoseconds")?;
    let n_tensors = if has_size { input.count(1 << 28, 5, "N_Tensors")? } else { 0 };
    let kind = if is_directory { Kind::Directory } else { Kind::Regular };
    let file = File { path, kind, mode, mtime, data: Vec::new(), tensors: Vec::new(), fingerprint: None };
    Ok((file, if is_unknown { None } else { Some(size) }, n_tensors))
}

/// Relative and plain; or empty (whether that is allowed, the other files tell).
fn check_path(path: &[u8]) -> Result<()> {
    check(!path.contains(&0), "Path has a zero byte")?;
    let mut components = path.split(|&byte| byte == b'/');
    check(path.is_empty() || components.all(|part| !matches!(part, b"" | b"." | b"..")), "Path has a component that is empty, . or ..")
}

/// A tensor entry, of which `before` are those that came before in the section. In its file, the one before it ends at `end`.
fn read_tensor(input: &mut Reader<'_>, before: &[Tensor], end: u64) -> Result<Tensor> {
    let form = input.u8()?;
    ensure(form >> 3 == 0, Status::Unsupported, "reserved bits of a tensor entry")?;
    let (is_like, has_gap, has_loss) = (form & 1 != 0, form & 2 != 0, form & 4 != 0);
    let back = input.up_to(before.len() as u64, "Back goes behind the first tensor entry")? as usize;
    let reference = if back == 0 { None } else { Some(&before[before.len() - back]) };
    check(!is_like || reference.is_some(), "Like without a reference")?;

    let (mut prefix, mut suffix) = (&[][..], &[][..]);
    if let Some(Tensor { name, .. }) = reference {
        let (prefix_size, suffix_size) = (usize::from(input.u8()?), usize::from(input.u8()?));
        check(prefix_size + suffix_size <= name.len(), "Prefix and Suffix are more than the Name that they are of")?;
        prefix = &name[..prefix_size];
        suffix = &name[name.len() - suffix_size..];
    }
    let middle_size = input.up_to(65_535 - (prefix.len() + suffix.len()) as u64, "a Name is too long")?;
    let name = [prefix, input.take_u64(middle_size)?, suffix].concat();
    check(!name.contains(&0), "Name has a zero byte")?;

    let gap = if has_gap { input.varint()? } else { 0 };
    check(!has_gap || gap != 0, "Gap is 0")?;
    let offset = end.checked_add(gap).ok_or_else(|| corrupt("Gap of a tensor"))?;

    let (dtype, shape, size) = match reference {
        Some(Tensor { dtype, shape, size, .. }) if is_like => (dtype.clone(), shape.clone(), *size),
        _ => read_type(input)?,
    };
    let mut loss = Loss::default();
    if has_loss {
        loss = Loss { generation: input.u8()?, measure: input.u8()?, error: input.u32()? };
        check(loss.generation != 0 && loss.measure != 0, "Generation or Measure of a tensor is 0")?;
    }
    Ok(Tensor { name, dtype, shape, offset, size, loss, fingerprint: Fingerprint::default() })
}

/// Dtype, Shape and Size of a tensor entry.
fn read_type(input: &mut Reader<'_>) -> Result<(Vec<u8>, Vec<u64>, u64)> {
    let number = usize::from(input.u8()?);
    let (dtype, bits) = if number == 0 {
        let size = input.u8()?;
        check((1..=32).contains(&size), "Dtype_Size")?;
        let dtype = input.take(usize::from(size))?;
        check(!dtype.contains(&0), "Dtype has a zero byte")?;
        check(bits_of_dtype(dtype).is_none(), "a Dtype that has a number is written as a string")?;
        (dtype, None)
    } else {
        let (dtype, bits) = DTYPES.get(number - 1).ok_or_else(|| unsupported("number of a Dtype"))?;
        (*dtype, Some(*bits))
    };
    let rank = input.u8()?;
    check(rank <= 32, "Rank")?;
    let shape = (0..rank).map(|_| input.varint()).collect::<Result<Vec<u64>>>()?;
    let size = match bits {
        Some(bits) => size_of_shape(bits, &shape).ok_or_else(|| corrupt("Shape of a tensor"))?,
        None => input.up_to(MAX_SIZE, "Size of a tensor")?,
    };
    Ok((dtype.to_vec(), shape, size))
}

/// Section 4.1: what all paths of a snapshot keep together.
pub(crate) fn check_paths(files: &[File]) -> Result<()> {
    check(files.len() == 1 || files.iter().all(|file| !file.path.is_empty()), "an empty Path beside other files")?;
    // with / before all other bytes, what is below a path follows it at once
    let mut files: Vec<&File> = files.iter().collect();
    files.sort_by(|a, b| a.path.split(|&byte| byte == b'/').cmp(b.path.split(|&byte| byte == b'/')));
    for pair in files.windows(2) {
        let rest = pair[1].path.strip_prefix(&pair[0].path[..]);
        check(rest.map_or(true, |rest| !rest.is_empty()), "two files have the same Path")?;
        let is_below = rest.map_or(false, |rest| rest.starts_with(b"/"));
        check(pair[0].kind == Kind::Directory || !is_below, "a Path below that of a file")?;
    }
    Ok(())
}

/// Prediction of a RUN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Zero,
    Base,
    Text,
    Own,
    OwnAsBf16,
    OwnAsF16,
}

impl Source {
    /// Bytes of this snapshot.
    pub fn is_own(self) -> bool {
        matches!(self, Source::Own | Source::OwnAsBf16 | Source::OwnAsF16)
    }

    /// Bytes of what is referred to, for each that is predicted.
    pub fn factor(self) -> u64 {
        if matches!(self, Source::OwnAsBf16 | Source::OwnAsF16) {
            2
        } else {
            1
        }
    }
}

/// Section 4.2: the body of a RUN.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub size: u64,
    pub block_size: usize,
    pub n_blocks: u32,
    pub source: Source,
    rest: &'a [u8], // the segments and extension records
}

/// The next `size` bytes of a run.
pub(crate) struct Segment {
    pub size: u64,
    pub reference: Option<Reference>,
}

/// What the prediction of a segment is made of: of which item or file, and the first byte of it and the end.
pub(crate) struct Reference {
    pub number: u32,
    pub start: u64,
    pub end: u64,
}

impl<'a> Run<'a> {
    /// Reads all but the segments.
    pub fn read(body: &'a [u8], features: Features) -> Result<Run<'a>> {
        let mut input = Reader::of_part(body, "the body of a RUN ends early");
        let size = input.up_to(MAX_SIZE, "Run_Size")?;
        check(size != 0, "Run_Size is 0")?;
        let block_size = input.varint()?;
        ensure(block_size.is_power_of_two() && (1 << 14..=1 << 22).contains(&block_size), Status::Unsupported, "Block_Size")?;
        let source = match input.u8()? {
            0 => Source::Zero,
            1 => Source::Base,
            2 => Source::Text,
            3 => Source::Own,
            4 => Source::OwnAsBf16,
            5 => Source::OwnAsF16,
            _ => return Err(unsupported("Prediction of a RUN")),
        };
        check(source != Source::Base || features.base(), "Prediction 1 in a file without a base")?;
        check(!source.is_own() || features.own(), "Prediction 3, 4 or 5 without the bit Own")?;
        let n_blocks = u32::try_from((size - 1) / block_size + 1).map_err(|_| corrupt("a run has more than 2^32 - 1 blocks"))?;
        let rest = &body[input.position..];
        Ok(Run { size, block_size: block_size as usize, n_blocks, source, rest })
    }

    /// The last may be shorter.
    pub fn size_of_block(&self, number: u32) -> usize {
        let left = self.size - u64::from(number) * self.block_size as u64;
        left.min(self.block_size as u64) as usize
    }

    /// Reads the segments and what follows them. `numbers` is how many items or files there are to refer to.
    pub fn segments(&self, numbers: u32) -> Result<Vec<Segment>> {
        let mut input = Reader::of_part(self.rest, "the body of a RUN ends early");
        let mut segments = Vec::new();
        if self.source != Source::Zero {
            let n_segments = input.count(1 << 24, 2, "N_Segments")?;
            check(n_segments != 0, "N_Segments is 0")?;
            let factor = self.source.factor();
            let (mut left, mut number) = (self.size, -1);
            for _ in 0..n_segments {
                let size = input.up_to(left, "the segments of a run are more than Run_Size")?;
                check(size != 0, "a segment of no bytes")?;
                check(size % factor == 0, "an odd segment in a run of Prediction 4 or 5")?;
                left -= size;
                let reference = match input.varint()?.checked_sub(1) {
                    Some(code) => Some(read_reference(&mut input, code, &mut number, numbers, size * factor)?),
                    None => None,
                };
                segments.push(Segment { size, reference });
            }
            check(left == 0, "the segments of a run are less than Run_Size")?;
        }
        skip_extensions(&mut input)?;
        Ok(segments)
    }
}

/// Reference, less 1, is `code`; `size` bytes are meant. `number` is that of the last reference of the run, -1 before the first.
fn read_reference(input: &mut Reader<'_>, code: u64, number: &mut i64, numbers: u32, size: u64) -> Result<Reference> {
    let zigzag = code >> 1;
    let step = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64); // of at most 62 bits: the sum is exact
    *number += 1 + step;
    check((0..i64::from(numbers)).contains(number), "a segment refers to an item or file that is not there")?;
    let start = if code & 1 == 1 { input.varint()? } else { 0 };
    check(code & 1 == 0 || start != 0, "Offset of a segment is 0")?;
    let end = start.checked_add(size).ok_or_else(|| corrupt("Offset of a segment"))?;
    Ok(Reference { number: *number as u32, start, end })
}
