//! Sections 4 and 5: File_Header, Section_Header, the bodies of FILE and RUN.

use crate::error::{check, corrupt, ensure, Error, Result, Status};
use crate::hash::crc32c;
use crate::reader::Reader;
use crate::Limits;
use std::collections::HashSet;

pub(crate) const FILE_HEADER_SIZE: usize = 80;
pub(crate) const MAGIC: [u8; 8] = [0x8C, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];
const VERSION: [u8; 2] = [0, 4];
const MAX_SIZE: u64 = i64::MAX as u64; // of files and runs
const UNKNOWN_SIZE: u64 = u64::MAX;

/// Section 4.
pub(crate) struct FileHeader {
    pub sequential: bool,
    pub base_identity: Option<[u8; 32]>,
    pub chain_depth: u32,
}

impl FileHeader {
    /// Takes it from the front of the file. The checks are in the order of section 4.
    pub fn read(input: &mut Reader<'_>) -> Result<FileHeader> {
        ensure(input.left() >= 8 && input.array()? == MAGIC, Status::NotLmc, "this is no LMC file")?;
        ensure([input.u8()?, input.u8()?] == VERSION, Status::Version, "not version 0.4 of the format")?;
        let rest: [u8; FILE_HEADER_SIZE - 14] = input.array()?;
        let bytes = [&MAGIC[..], &VERSION, &rest].concat();
        ensure(crc32c(&bytes) == input.u32()?, Status::Checksum, "Header_CRC of the file")?;

        let mut fields = Reader::of_file(&rest);
        check(usize::from(fields.u16()?) == FILE_HEADER_SIZE, "Header_Size")?;
        let (flags, incompatible, _compatible) = (fields.u32()?, fields.u64()?, fields.u64()?);
        ensure(incompatible == 0, Status::Unsupported, "Incompatible feature bits")?;
        let (base_identity, chain_depth, reserved): ([u8; 32], u32, u64) = (fields.array()?, fields.u32()?, fields.u64()?);
        ensure(flags >> 1 == 0 && reserved == 0, Status::Unsupported, "reserved bits of the file header")?;
        let has_base = base_identity != [0; 32];
        check(has_base == (chain_depth != 0), "Chain_Depth without Base_Identity, or the other way round")?;
        Ok(FileHeader { sequential: flags & 1 == 1, base_identity: if has_base { Some(base_identity) } else { None }, chain_depth })
    }
}

/// A section as it stands in the file: where, all of its bytes, and its body.
pub(crate) struct Section<'a> {
    pub offset: usize,
    pub kind: [u8; 4],
    pub number: u32,
    pub whole: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Section<'a> {
    /// Takes the next section from `file`, whose CRCs are right then. Whether Kind and Number are the right ones is for the caller to check.
    pub fn read(input: &mut Reader<'a>, file: &'a [u8], limits: &Limits) -> Result<Section<'a>> {
        let offset = input.position;
        let head: [u8; 16] = input.array()?;
        let (head_crc, body_crc) = (input.u32()?, input.u32()?);
        ensure(crc32c(&head) == head_crc, Status::Checksum, "Head_CRC of a section")?;
        let mut fields = Reader::of_file(&head);
        let (kind, number, size) = (fields.array()?, fields.u32()?, fields.u64()?);
        check(matches!(&kind, b"FILE" | b"RUN " | b"INDX"), "Kind of a section")?;
        check(size <= 1 << 40, "Body_Size is over 2^40")?;
        ensure(size <= limits.section, Status::Limit, "Body_Size is more than the caller allows")?;
        let body = input.take_u64(size)?;
        ensure(crc32c(body) == body_crc, Status::Checksum, "Body_CRC of a section")?;
        Ok(Section { offset, kind, number, whole: &file[offset..input.position], body })
    }
}

/// Of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory; it has neither bytes nor tensors.
    Directory,
}

/// Section 5.1: how far the elements of a tensor are from their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How often they were quantised; 0: they are the source's.
    pub generation: u8,
    /// 0 none, 1 update, 2 relative, 3 nmse.
    pub measure: u8,
    /// By that measure, in units of 2^-32.
    pub error: u32,
}

/// Section 5.1: a range of a source file with a name, a dtype and a shape.
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
    /// Section 9.2.
    pub identity: [u8; 32],
}

impl Tensor {
    /// The product of shape and bits is 8 * size, if the dtype is one of the table.
    pub(crate) fn has_size_of_shape(&self) -> bool {
        let bits = match &self.dtype[..] {
            b"F4" => 4,
            b"F6_E2M3" | b"F6_E3M2" => 6,
            b"BOOL" | b"U8" | b"I8" | b"F8_E5M2" | b"F8_E4M3" | b"F8_E8M0" | b"F8_E4M3FNUZ" | b"F8_E5M2FNUZ" => 8,
            b"I16" | b"U16" | b"F16" | b"BF16" => 16,
            b"I32" | b"U32" | b"F32" => 32,
            b"C64" | b"F64" | b"I64" | b"U64" => 64,
            _ => return true,
        };
        let product = self.shape.iter().try_fold(bits, |product: u128, &extent| product.checked_mul(u128::from(extent)));
        // a zero makes the product zero, however large the others are
        let product = if self.shape.contains(&0) { Some(0) } else { product };
        product == Some(8 * u128::from(self.size))
    }
}

/// Section 5.1: the body of a FILE.
pub(crate) struct FileBody {
    pub size: Option<u64>, // if it is known
    pub kind: Kind,
    pub mode: Option<u32>,
    pub mtime: Option<(i64, u32)>,
    pub path: Vec<u8>,
    pub tensors: Vec<Tensor>, // their identities are not known yet
}

impl FileBody {
    pub fn read(body: &[u8]) -> Result<FileBody> {
        let mut input = Reader::of_part(body, "the body of a FILE ends early");
        let size = input.u64()?;
        check(size <= MAX_SIZE || size == UNKNOWN_SIZE, "File_Size")?;
        let kind = match input.u8()? {
            0 => Kind::Regular,
            1 => Kind::Directory,
            _ => return Err(Error { status: Status::Unsupported, what: "File_Kind" }),
        };
        let (attributes, reserved) = (input.u8()?, input.u16()?);
        ensure(attributes >> 2 == 0 && reserved == 0, Status::Unsupported, "reserved bits of a FILE")?;
        let (has_mode, has_mtime) = (attributes & 1 != 0, attributes & 2 != 0);
        let mode = input.u32()?;
        check(mode <= if has_mode { 0o7777 } else { 0 }, "Mode")?;
        let (seconds, nanoseconds) = (input.i64()?, input.u32()?);
        check(if has_mtime { nanoseconds <= 999_999_999 } else { seconds == 0 && nanoseconds == 0 }, "Mtime")?;
        let (path_size, n_tensors) = (input.u32()?, input.u32()?);
        check(path_size <= 65_535, "Path_Size")?;
        check(n_tensors <= 1 << 28, "N_Tensors")?;
        match kind {
            Kind::Directory => check(size == 0 && n_tensors == 0, "a directory with a size or tensors")?,
            Kind::Regular => check(size != UNKNOWN_SIZE || n_tensors == 0, "tensors in a file of unknown size")?,
        }
        let path = input.take(path_size as usize)?;
        check_path(path)?;

        let (mut tensors, mut names, mut end) = (Vec::new(), HashSet::new(), 0);
        for _ in 0..n_tensors {
            let tensor = read_tensor(&mut input)?;
            check(tensor.offset >= end, "tensors overlap, or are not sorted")?;
            let tensor_end = tensor.offset.checked_add(tensor.size).filter(|&end| end <= size);
            end = tensor_end.ok_or_else(|| corrupt("a tensor is not within its file"))?;
            check(names.insert(tensor.name.clone()), "two tensors of a file have the same Name")?;
            tensors.push(tensor);
        }
        check(input.is_at_end(), "the body of a FILE is too long")?;
        Ok(FileBody {
            size: if size == UNKNOWN_SIZE { None } else { Some(size) },
            kind,
            mode: if has_mode { Some(mode) } else { None },
            mtime: if has_mtime { Some((seconds, nanoseconds)) } else { None },
            path: path.to_vec(),
            tensors,
        })
    }
}

/// Relative and plain; or empty (whether that is allowed, the other files tell).
fn check_path(path: &[u8]) -> Result<()> {
    check(!path.contains(&0) && !path.contains(&b'\\'), "Path has a zero byte or a backslash")?;
    let mut components = path.split(|&byte| byte == b'/');
    check(path.is_empty() || components.all(|part| !matches!(part, b"" | b"." | b"..")), "Path has a component that is empty, . or ..")
}

fn read_tensor(input: &mut Reader<'_>) -> Result<Tensor> {
    let (offset, size, name_size) = (input.u64()?, input.u64()?, input.u32()?);
    let (dtype_size, rank, generation, measure) = (input.u8()?, input.u8()?, input.u8()?, input.u8()?);
    check(name_size <= 65_535, "Name_Size")?;
    check((1..=32).contains(&dtype_size), "Dtype_Size")?;
    check(rank <= 32, "Rank")?;
    check(measure <= 3 && (measure == 0) == (generation == 0), "Measure of a tensor")?;
    let shape = (0..rank).map(|_| input.u64()).collect::<Result<_>>()?;
    let (name, dtype) = (input.take(name_size as usize)?.to_vec(), input.take(usize::from(dtype_size))?.to_vec());
    check(!name.contains(&0) && !dtype.contains(&0), "Name or Dtype has a zero byte")?;
    let error = if generation == 0 { 0 } else { input.u32()? };
    let tensor = Tensor { name, dtype, shape, offset, size, loss: Loss { generation, measure, error }, identity: [0; 32] };
    check(tensor.has_size_of_shape(), "Size of a tensor is not that of its Shape")?;
    Ok(tensor)
}

/// Prediction of a RUN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Zero,
    Base,
    Own,
}

/// Conversion of a RUN: what becomes of the bytes that it refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    None,
    F32ToBf16,
    F32ToF16,
}

/// Section 5.2.
pub(crate) struct Segment {
    pub file: u32,
    pub base: Option<u32>, // number of an item or a file
    pub offset: u64,
    pub size: u64,
    pub base_offset: u64,
    /// Where the bytes that it refers to end: twice `size` further with a Conversion.
    pub base_end: u64,
}

/// Section 5.2: the body of a RUN.
pub(crate) struct RunBody {
    pub size: u64,
    pub block_size: usize,
    pub n_blocks: u32,
    pub source: Source,
    pub conversion: Conversion,
    pub segments: Vec<Segment>,
}

impl RunBody {
    /// Checks all that the body itself can tell.
    pub fn read(body: &[u8]) -> Result<RunBody> {
        let unsupported = |what| Error { status: Status::Unsupported, what };
        let mut input = Reader::of_part(body, "the body of a RUN ends early");
        let size = input.u64()?;
        check((1..=MAX_SIZE).contains(&size), "Run_Size")?;
        let log2_block_size = input.u8()?;
        check((14..=23).contains(&log2_block_size), "Log2_Block_Size")?;
        let source = match input.u8()? {
            0 => Source::Zero,
            1 => Source::Base,
            2 => Source::Own,
            _ => return Err(unsupported("Prediction of a RUN")),
        };
        let conversion = match input.u8()? {
            0 => Conversion::None,
            1 if source == Source::Own => Conversion::F32ToBf16,
            2 if source == Source::Own => Conversion::F32ToF16,
            _ => return Err(unsupported("Conversion of a RUN")),
        };
        ensure(input.u8()? == 0, Status::Unsupported, "reserved field of a RUN")?;
        let n_blocks = ((size - 1) >> log2_block_size) + 1;
        let n_blocks = u32::try_from(n_blocks).map_err(|_| corrupt("a run has more than 2^32 - 1 blocks"))?;
        let n_segments = input.u32()?;
        check((1..=1 << 24).contains(&n_segments), "N_Segments")?;

        let (mut segments, mut sum) = (Vec::new(), 0u64);
        for _ in 0..n_segments {
            let (file, base, offset, size, base_offset) = (input.u32()?, input.u32()?, input.u64()?, input.u64()?, input.u64()?);
            check(size != 0, "a segment is empty")?;
            sum = sum.checked_add(size).ok_or_else(|| corrupt("the segments of a run overflow"))?;
            check(source != Source::Zero || base == 0, "Base of a segment in a run with Prediction 0")?;
            check(base != 0 || base_offset == 0, "Base_Offset of a segment without Base")?;
            let factor = if conversion == Conversion::None { 1 } else { 2 };
            check(size % factor == 0, "an odd segment in a run with a Conversion")?;
            let base_size = if base == 0 { Some(0) } else { size.checked_mul(factor) };
            let base_end = base_size.and_then(|size| base_offset.checked_add(size));
            let base_end = base_end.ok_or_else(|| corrupt("Base_Offset of a segment"))?;
            segments.push(Segment { file, base: base.checked_sub(1), offset, size, base_offset, base_end });
        }
        check(sum == size, "Run_Size is not the sum of the segments")?;
        check(input.is_at_end(), "the body of a RUN is too long")?;
        Ok(RunBody { size, block_size: 1 << log2_block_size, n_blocks, source, conversion, segments })
    }
}
