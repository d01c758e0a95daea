//! Sections 4 and 9.4: what a caller has as a base, and which of it a file wants.

use crate::error::{Error, Result, Status};
use crate::reader::Reader;
use crate::section::{Kind, Loss, Tensor, MAGIC};
use crate::snapshot::{decode_with, File, Identity, Snapshot, END_MAGIC, TRAILER_SIZE};
use crate::Limits;
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::{fs, io};

/// Something that a file may have been coded against.
pub struct Base(Content);

enum Content {
    /// An LMC file, decoded only if its identity is wanted.
    Lmc(Vec<u8>),
    /// Files of other kinds.
    Files(Snapshot),
}

impl Base {
    /// Reads a base: an LMC file, any other file, or a directory of any other files.
    pub fn read(path: &Path) -> io::Result<Base> {
        if !path.is_dir() {
            return Ok(Base::from_bytes(fs::read(path)?));
        }
        let mut files = Vec::new();
        read_directory(path, &[], &mut files)?;
        Ok(Base::of_files(files))
    }

    /// The content of an LMC file, or of any other one.
    pub fn from_bytes(bytes: Vec<u8>) -> Base {
        if bytes.starts_with(&MAGIC) {
            Base(Content::Lmc(bytes))
        } else {
            Base::of_files(vec![file_of(Vec::new(), Kind::Regular, bytes)])
        }
    }

    fn of_files(files: Vec<File>) -> Base {
        let mut snapshot = Snapshot { identity: [0; 32], base_identity: None, chain_depth: 0, files, metadata: Vec::new() };
        snapshot.identify();
        Base(Content::Files(snapshot))
    }

    /// Whether this is, or says that it is, what has that identity.
    fn has_identity(&self, identity: &Identity) -> bool {
        match &self.0 {
            Content::Files(snapshot) => snapshot.identity == *identity,
            Content::Lmc(bytes) => said_identity(bytes) == Some(identity),
        }
    }
}

/// The Snapshot_Identity in the index of an LMC file, if there is one where the trailer says. Nothing of it is checked.
fn said_identity(file: &[u8]) -> Option<&[u8]> {
    let trailer = &file[file.len().checked_sub(TRAILER_SIZE)?..];
    let offset = usize::try_from(Reader::of_file(trailer).u64().ok()?).ok()?;
    if !trailer.ends_with(&END_MAGIC) {
        return None;
    }
    file.get(offset..)?.get(24 + 8..24 + 8 + 32)
}

/// The bases that a caller has, but for those that are in use or have failed: so no file is tried twice, nor taken for its own base.
pub(crate) struct Bases<'a> {
    left: Vec<&'a Base>,
}

impl<'a> Bases<'a> {
    pub fn new(bases: &'a [Base]) -> Bases<'a> {
        Bases { left: bases.iter().collect() }
    }

    /// The snapshot of that identity, decoded if it has to be.
    pub fn find(&mut self, identity: &Identity, limits: &Limits) -> Result<Cow<'a, Snapshot>> {
        let mut failure = match self.left.is_empty() {
            true => Error { status: Status::BaseMissing, what: "the file, or its base, needs a base that was not given" },
            false => Error { status: Status::BaseWrong, what: "no base that was given is the one that the file was coded against" },
        };
        while let Some(i) = self.left.iter().position(|base| base.has_identity(identity)) {
            match &self.left.swap_remove(i).0 {
                Content::Files(snapshot) => return Ok(Cow::Borrowed(snapshot)),
                Content::Lmc(file) => match decode_with(file, self, limits) {
                    Ok(snapshot) => return Ok(Cow::Owned(snapshot)), // its index was right
                    Err(error) => failure = error,
                },
            }
        }
        Err(failure)
    }
}

/// Section 9.4: the files below a directory, and the directories; of the one that was given only if it is empty.
fn read_directory(directory: &Path, path: &[u8], files: &mut Vec<File>) -> io::Result<()> {
    let mut is_empty = true;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        is_empty = false;
        let mut path = path.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(bytes_of_name(&entry.file_name())?);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.push(file_of(path.clone(), Kind::Directory, Vec::new()));
            read_directory(&entry.path(), &path, files)?;
        } else if fs::metadata(entry.path())?.is_file() {
            files.push(file_of(path, Kind::Regular, fs::read(entry.path())?));
        }
    }
    if is_empty && path.is_empty() {
        files.push(file_of(Vec::new(), Kind::Directory, Vec::new()));
    }
    Ok(())
}

#[cfg(unix)]
fn bytes_of_name(name: &std::ffi::OsStr) -> io::Result<&[u8]> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(name))
}

#[cfg(not(unix))]
fn bytes_of_name(name: &std::ffi::OsStr) -> io::Result<&[u8]> {
    name.to_str().map(str::as_bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a name is not Unicode"))
}

fn file_of(path: Vec<u8>, kind: Kind, data: Vec<u8>) -> File {
    let tensors = safetensors(&data).unwrap_or_default();
    let mut file = File { path, kind, mode: None, mtime: None, data, tensors, identity: None };
    file.identify();
    file
}

/// The tensors of a safetensors file: u64 size of a header of JSON, the header, the tensors' bytes. None if the file is not one in all respects.
fn safetensors(file: &[u8]) -> Option<Vec<Tensor>> {
    let mut input = Reader::of_file(file);
    let header_size = input.u64().ok()?;
    let mut json = Json { text: input.take_u64(header_size).ok()? };
    let (data_start, mut tensors, mut names) = (input.position as u64, Vec::new(), HashSet::new());
    if !json.text.starts_with(b"{") {
        return None;
    }
    json.object(|json, name| {
        if !names.insert(name.clone()) {
            None
        } else if name == b"__metadata__" {
            json.skip(0)
        } else {
            tensors.push(safetensor(json, name, data_start)?);
            Some(())
        }
    })?;
    if json.next().is_some() {
        return None;
    }
    // one after another, without gaps; bytes may follow the last
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.size));
    let end = tensors.iter().try_fold(data_start, |end, tensor| if tensor.offset == end { end.checked_add(tensor.size) } else { None })?;
    if end > file.len() as u64 {
        return None;
    }
    Some(tensors)
}

/// A tensor of a safetensors header, under the rules of section 5.1.
fn safetensor(json: &mut Json<'_>, name: Vec<u8>, data_start: u64) -> Option<Tensor> {
    let (mut dtype, mut shape, mut range) = (None, None, None);
    json.object(|json, field| {
        let was_there = match &field[..] {
            b"dtype" => dtype.replace(json.string()?).is_some(),
            b"shape" => shape.replace(json.numbers()?).is_some(),
            b"data_offsets" => range.replace(json.numbers()?).is_some(),
            _ => json.skip(0).is_none(),
        };
        if was_there {
            None
        } else {
            Some(())
        }
    })?;
    let (start, end) = match range?[..] {
        [start, end] => (start, end),
        _ => return None,
    };
    let (offset, size) = (data_start.checked_add(start)?, end.checked_sub(start)?);
    let tensor = Tensor { name, dtype: dtype?, shape: shape?, offset, size, loss: Loss::default(), identity: [0; 32] };
    let sizes = tensor.name.len() <= 65_535 && (1..=32).contains(&tensor.dtype.len()) && tensor.shape.len() <= 32;
    let plain = |string: &[u8]| !string.contains(&0) && std::str::from_utf8(string).is_ok();
    if sizes && plain(&tensor.name) && plain(&tensor.dtype) && tensor.has_size_of_shape() {
        Some(tensor)
    } else {
        None
    }
}

/// As much of JSON as safetensors headers have. None: something else.
struct Json<'a> {
    text: &'a [u8],
}

impl Json<'_> {
    /// The next character that is no white space.
    fn next(&mut self) -> Option<u8> {
        let start = self.text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))?;
        let next = self.text[start];
        self.text = &self.text[start + 1..];
        Some(next)
    }

    /// Takes the opening bracket, then what `element` takes, with commas between, then the closing bracket.
    fn between(&mut self, brackets: [u8; 2], mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.next()? != brackets[0] {
            return None;
        }
        let rest = self.text;
        if self.next()? == brackets[1] {
            return Some(());
        }
        self.text = rest;
        loop {
            element(self)?;
            match self.next()? {
                b',' => {}
                end if end == brackets[1] => return Some(()),
                _ => return None,
            }
        }
    }

    /// `value` is called for each key and takes its value.
    fn object(&mut self, mut value: impl FnMut(&mut Self, Vec<u8>) -> Option<()>) -> Option<()> {
        self.between([b'{', b'}'], |json| {
            let key = json.string()?;
            if json.next()? == b':' {
                value(json, key)
            } else {
                None
            }
        })
    }

    /// An array of whole numbers below 2^63.
    fn numbers(&mut self) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        self.between([b'[', b']'], |json| {
            let first = json.next()?;
            let mut number = u64::from(char::from(first).to_digit(10)?);
            while let Some((digit, rest)) = json.text.split_first().filter(|(digit, _)| digit.is_ascii_digit() && first != b'0') {
                number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
                json.text = rest;
            }
            numbers.push(u64::try_from(i64::try_from(number).ok()?).ok()?);
            Some(())
        })?;
        Some(numbers)
    }

    /// Takes any value, below `depth` others; what it is does not matter.
    fn skip(&mut self, depth: u32) -> Option<()> {
        let before = self.text;
        let first = self.next()?;
        self.text = before;
        match first {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' if depth == 256 => None,
            b'{' => self.object(|json, _| json.skip(depth + 1)),
            b'[' => self.between([b'[', b']'], |json| json.skip(depth + 1)),
            _ => {
                self.next()?;
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
                self.text = &self.text[self.text.iter().take_while(|byte| word(byte)).count()..];
                Some(())
            }
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        if self.next()? != b'"' {
            return None;
        }
        let mut string = Vec::new();
        loop {
            let byte = self.byte()?;
            match byte {
                b'"' => return Some(string),
                b'\\' => {
                    let escape = self.byte()?;
                    let character = match escape {
                        b'"' | b'\\' | b'/' => char::from(escape),
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => self.utf16()?,
                        _ => return None,
                    };
                    string.extend(character.encode_utf8(&mut [0; 4]).bytes());
                }
                0..=31 => return None,
                _ => string.push(byte),
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.text.split_first()?;
        self.text = rest;
        Some(byte)
    }

    /// After \u: four hexadecimal digits, or a surrogate pair.
    fn utf16(&mut self) -> Option<char> {
        let high = self.hexadecimal()?;
        let mut units = vec![high];
        if (0xD800..0xDC00).contains(&high) {
            if [self.byte()?, self.byte()?] != *b"\\u" {
                return None;
            }
            units.push(self.hexadecimal()?);
        }
        char::decode_utf16(units).next()?.ok()
    }

    fn hexadecimal(&mut self) -> Option<u16> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | char::from(self.byte()?).to_digit(16)? as u16))
    }
}
