//! Section 7.3 and foreign-bases.md: what a caller has as a base, and which of it a file wants.

use crate::error::{Error, Result, Status};
use crate::layout::{END_MAGIC, TRAILER_SIZE};
use crate::reader::Reader;
use crate::safetensors::tensors_of;
use crate::section::{Kind, Tensor, HEADER_SIZE, MAGIC, SECTION_HEADER_SIZE};
use crate::snapshot::{decode_with, items_of, snapshot_fingerprint, File, Fingerprint};
use crate::Limits;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::{fs, io};

/// Something that a file may have been coded against.
pub struct Base(Content);

enum Content {
    /// An LMC file, decoded only if its fingerprint is wanted.
    Lmc(Vec<u8>),
    /// Files of other kinds.
    Files(Vec<BaseFile>),
}

struct BaseFile {
    path: Vec<u8>,
    kind: Kind,
    data: Vec<u8>,
    is_link: bool, // a symbolic link to such a file
}

impl Base {
    /// Reads a base: an LMC file, any other file, or a directory of any other files.
    pub fn read(path: &Path) -> io::Result<Base> {
        if !path.is_dir() {
            return Ok(Base::from_bytes(fs::read(path)?));
        }
        let mut files = Vec::new();
        read_directory(path, &[], &mut files)?;
        Ok(Base(Content::Files(files)))
    }

    /// The content of an LMC file, or of any other one.
    pub fn from_bytes(bytes: Vec<u8>) -> Base {
        if bytes.starts_with(&MAGIC) {
            Base(Content::Lmc(bytes))
        } else {
            Base(Content::Files(vec![BaseFile { path: Vec::new(), kind: Kind::Regular, data: bytes, is_link: false }]))
        }
    }
}

/// The Snapshot_Fingerprint in the index of an LMC file, if there is one where the trailer says. Nothing of it is checked.
fn said_fingerprint(file: &[u8]) -> Option<&[u8]> {
    let trailer = &file[file.len().checked_sub(TRAILER_SIZE)?..];
    let offset = usize::try_from(Reader::of_file(trailer).u64().ok()?).ok()?;
    if !trailer.ends_with(&END_MAGIC) {
        return None;
    }
    file.get(offset..)?.get(SECTION_HEADER_SIZE + HEADER_SIZE..)?.get(..16)
}

/// The bytes of a base's items (section 7.2), by their numbers.
pub(crate) struct Items<'a> {
    files: Vec<Cow<'a, [u8]>>,
    places: Vec<(usize, Range<usize>)>, // in which file, and where
}

impl<'a> Items<'a> {
    /// The items of files that know their fingerprints, with the bytes that they are of.
    fn new(tables: &[File], files: Vec<Cow<'a, [u8]>>) -> Items<'a> {
        let places = items_of(tables).iter().map(|item| (item.file, item.range(files[item.file].len()))).collect();
        Items { files, places }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn get(&self, number: u32) -> Option<&[u8]> {
        let (file, range) = self.places.get(number as usize)?;
        Some(&self.files[*file][range.clone()])
    }
}

/// The bases that a caller has, but for those that are in use or have failed: so no file is tried twice, nor taken for its own base.
pub(crate) struct Bases<'a> {
    left: Vec<&'a Base>,
}

impl<'a> Bases<'a> {
    pub fn new(bases: &'a [Base]) -> Bases<'a> {
        Bases { left: bases.iter().collect() }
    }

    pub fn check_any(&self) -> Result<()> {
        crate::error::ensure(!self.left.is_empty(), Status::BaseMissing, "the file, or its base, needs a base that was not given")
    }

    /// The items of the snapshot of that fingerprint, decoded if it has to be. `tables` and `sizes` are the files of the snapshot that needs it.
    pub fn find(&mut self, wanted: &Fingerprint, tables: &[File], sizes: &[u64], limits: &Limits) -> Result<Items<'a>> {
        self.check_any()?;
        let mut failure = Error { status: Status::BaseWrong, what: "no base that was given is the one that the file was coded against" };
        let mut i = 0;
        while let Some(base) = self.left.get(i) {
            match &base.0 {
                Content::Files(files) => {
                    let found = items_by_tables(files, wanted, tables, sizes)
                        .or_else(|| items_by_content(files, wanted, |data| tensors_of(data).unwrap_or_default()))
                        .or_else(|| items_by_content(files, wanted, |_| Vec::new()));
                    if let Some(items) = found {
                        return Ok(items);
                    }
                }
                Content::Lmc(file) if said_fingerprint(file) == Some(wanted) => {
                    self.left.swap_remove(i);
                    let chain = limits
                        .chain
                        .checked_sub(1)
                        .ok_or(Error { status: Status::Limit, what: "a longer chain of deltas than the caller allows" })?;
                    match decode_with(file, self, &Limits { chain, ..*limits }) {
                        Ok(mut snapshot) => {
                            let files = snapshot.files.iter_mut().map(|file| Cow::Owned(std::mem::take(&mut file.data))).collect();
                            return Ok(Items::new(&snapshot.files, files)); // its index was right, so it is of that fingerprint
                        }
                        Err(error) => failure = error,
                    }
                    i = 0; // those that are left may have moved
                    continue;
                }
                Content::Lmc(_) => {}
            }
            i += 1;
        }
        Err(failure)
    }
}

/// F-1: if the base has a file of the same path, kind and size for each file of the snapshot, and no other: what the snapshot's own tables make of these.
/// Directories that the snapshot does not have, but files below them, do not count, nor do symbolic links.
fn items_by_tables<'a>(files: &'a [BaseFile], wanted: &Fingerprint, tables: &[File], sizes: &[u64]) -> Option<Items<'a>> {
    let by_path: HashMap<&[u8], &BaseFile> = files.iter().map(|file| (&file.path[..], file)).collect();
    let alike = |(table, size): (&File, &u64)| {
        let file = by_path.get(&table.path[..])?;
        Some(&file.data[..]).filter(|data| file.kind == table.kind && *size == data.len() as u64)
    };
    let data: Vec<&[u8]> = tables.iter().zip(sizes).map(alike).collect::<Option<_>>()?;
    let paths: BTreeSet<&[u8]> = tables.iter().map(|table| &table.path[..]).collect();
    let is_parent = |file: &BaseFile| {
        let below = [&file.path[..], b"/"].concat();
        file.kind == Kind::Directory && paths.range(&below[..]..).next().map_or(false, |path| path.starts_with(&below))
    };
    if !files.iter().all(|file| paths.contains(&file.path[..]) || file.is_link || is_parent(file)) {
        return None;
    }
    let mut tables = tables.to_vec();
    tables.iter_mut().zip(&data).for_each(|(table, data)| table.fingerprint(data));
    items_if(wanted, &tables, data)
}

/// F-2: what is in the files themselves, if they are safetensors. F-19: the same without tensors.
fn items_by_content<'a>(files: &'a [BaseFile], wanted: &Fingerprint, tensors_of: impl Fn(&[u8]) -> Vec<Tensor>) -> Option<Items<'a>> {
    let table_of = |BaseFile { path, kind, data, .. }: &BaseFile| {
        let tensors = tensors_of(data);
        let mut table = File { path: path.clone(), kind: *kind, mode: None, mtime: None, data: Vec::new(), tensors, fingerprint: None };
        table.fingerprint(data);
        table
    };
    let files = files.iter().filter(|file| !file.is_link);
    let tables: Vec<File> = files.clone().map(table_of).collect();
    items_if(wanted, &tables, files.map(|file| &file.data[..]).collect())
}

fn items_if<'a>(wanted: &Fingerprint, tables: &[File], data: Vec<&'a [u8]>) -> Option<Items<'a>> {
    if snapshot_fingerprint(&items_of(tables)) != *wanted {
        return None;
    }
    Some(Items::new(tables, data.into_iter().map(Cow::Borrowed).collect()))
}

/// F-3: the files below a directory, and the directories; of the one that was given only if it is empty.
fn read_directory(directory: &Path, path: &[u8], files: &mut Vec<BaseFile>) -> io::Result<()> {
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
            files.push(BaseFile { path: path.clone(), kind: Kind::Directory, data: Vec::new(), is_link: false });
            read_directory(&entry.path(), &path, files)?;
        } else if fs::metadata(entry.path()).map_or(false, |target| target.is_file()) {
            files.push(BaseFile { path, kind: Kind::Regular, data: fs::read(entry.path())?, is_link: kind.is_symlink() });
        }
    }
    if is_empty && path.is_empty() {
        files.push(BaseFile { path: Vec::new(), kind: Kind::Directory, data: Vec::new(), is_link: false });
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
