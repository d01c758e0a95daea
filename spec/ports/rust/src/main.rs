//! lmc-rs [-b BASE]... IN.lmc OUT     restores IN.lmc as the file or directory OUT, which must not exist yet
//! lmc-rs --answers                   answers for many files: spec/check_vectors.py says what
//!
//! BASE is what IN.lmc, or a base of it, was coded against: an LMC file, another file or a directory. Modes are restored (without bits above 0o777),
//! times are not. Exit codes: 0 restored, 1 the program is too old or too small, or a system error, 2 usage, 3 bad data, 4 another base is needed.
//!
//! SPDX-License-Identifier: MIT

#![forbid(unsafe_code)]

use lmc::{Base, Error, File, Kind, Limits, Snapshot, Status};
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

fn main() {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let result = if arguments == ["--answers"] { answer_all().map_err(|error| (1, error.to_string())) } else { restore(arguments) };
    if let Err((code, message)) = result {
        eprintln!("lmc-rs: {}", message);
        process::exit(code);
    }
}

type Failure = (i32, String); // exit code, message

fn restore(arguments: Vec<OsString>) -> Result<(), Failure> {
    let usage = || (2, "usage: lmc-rs [-b BASE]... IN.lmc OUT".to_string());
    let (mut bases, mut paths) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        if argument == "-b" || argument == "--base" {
            bases.push(PathBuf::from(rest.next().ok_or_else(usage)?));
        } else {
            paths.push(PathBuf::from(argument));
        }
    }
    let (input, out) = match &paths[..] {
        [input, out] => (input, out),
        _ => return Err(usage()),
    };
    let io_failure = |path: &Path, error: io::Error| (1, format!("{}: {}", path.display(), error));
    let bases: Vec<Base> = bases.iter().map(|path| Base::read(path).map_err(|error| io_failure(path, error))).collect::<Result<_, _>>()?;
    let file = fs::read(input).map_err(|error| io_failure(input, error))?;
    let snapshot = lmc::decode(&file, &bases, &Limits::default()).map_err(|error| (exit_code(error), format!("{}: {}", input.display(), error)))?;
    write_snapshot(&snapshot, out).map_err(|error| io_failure(out, error))
}

fn exit_code(error: Error) -> i32 {
    match error.status {
        Status::Version | Status::Unsupported | Status::Limit => 1,
        Status::NotLmc | Status::Truncated | Status::Corrupt | Status::Checksum => 3,
        Status::BaseMissing | Status::BaseWrong => 4,
    }
}

/// R4-27: a file without a path becomes `out`, others lie below the directory `out`. All is there in the end, or nothing.
fn write_snapshot(snapshot: &Snapshot, out: &Path) -> io::Result<()> {
    if fs::symlink_metadata(out).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists already"));
    }
    let mut part = out.as_os_str().to_owned();
    part.push(format!(".{}.part", process::id()));
    let part = PathBuf::from(part);
    let single = matches!(&snapshot.files[..], [file] if file.path.is_empty());
    let written = if single { write_file(&snapshot.files[0], &part) } else { write_below(snapshot, &part) };
    let result = written.and_then(|()| fs::rename(&part, out));
    if result.is_err() {
        let _ = fs::remove_file(&part).or_else(|_| fs::remove_dir_all(&part)); // whichever it is
    }
    result
}

/// `part` is a new directory, so there are no links in it to follow.
fn write_below(snapshot: &Snapshot, part: &Path) -> io::Result<()> {
    fs::create_dir(part)?;
    for file in &snapshot.files {
        let path = part.join(path_of(&file.path)?);
        if let (Kind::Regular, Some(parent)) = (file.kind, path.parent()) {
            fs::create_dir_all(parent)?;
        }
        write_file(file, &path)?;
    }
    // modes of directories when everything below them is there
    let mut directories: Vec<&File> = snapshot.files.iter().filter(|file| file.kind == Kind::Directory).collect();
    directories.sort_by_key(|file| std::cmp::Reverse(file.path.len()));
    directories.iter().try_for_each(|file| set_mode(&part.join(path_of(&file.path)?), file.mode))?;
    if snapshot.metadata.iter().any(|(key, _)| key.as_slice() == b"lmc.links") {
        eprintln!("note: it has links (lmc.links), which are not restored"); // L-10
    }
    Ok(())
}

fn write_file(file: &File, path: &Path) -> io::Result<()> {
    if file.kind == Kind::Directory {
        return fs::create_dir_all(path);
    }
    let mut out = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    out.write_all(&file.data)?;
    out.sync_all()?;
    set_mode(path, file.mode)
}

#[cfg(unix)]
fn path_of(path: &[u8]) -> io::Result<PathBuf> {
    Ok(PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(path.to_vec())))
}

/// Where a path may mean more than directories and names, it is refused (section 9).
#[cfg(not(unix))]
fn path_of(path: &[u8]) -> io::Result<PathBuf> {
    let refused = || io::Error::new(io::ErrorKind::InvalidData, "a path that this system does not have");
    let path = std::str::from_utf8(path).map_err(|_| refused())?;
    let plain = |part: &str| !part.ends_with(['.', ' ']) && !part.contains(|c: char| c < ' ' || "<>:\"|?*".contains(c));
    if path.split('/').all(plain) {
        Ok(PathBuf::from(path))
    } else {
        Err(refused())
    }
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: Option<u32>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    mode.map_or(Ok(()), |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777)))
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: Option<u32>) -> io::Result<()> {
    Ok(())
}

// -- for spec/check_vectors.py --

fn answer_all() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut paths = line.split('\t');
        let file = fs::read(paths.next().unwrap_or_default())?;
        let bases: Vec<Base> = paths.map(|path| Base::read(path.as_ref())).collect::<io::Result<_>>()?;
        let answer = match lmc::decode(&file, &bases, &Limits::default()) {
            Ok(snapshot) => answer(&snapshot),
            Err(error) => format!("{{\"status\": \"{}\", \"what\": \"{}\"}}", error.status.name(), error.what),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{}", answer)?;
        out.flush()?;
    }
    Ok(())
}

fn answer(snapshot: &Snapshot) -> String {
    let metadata = list(snapshot.metadata.iter().map(|(key, value)| format!("[{}, {}]", hex(key), hex(value))));
    format!(
        "{{\"status\": \"OK\", \"fingerprint\": {}, \"base_fingerprint\": {}, \"metadata\": {}, \"files\": {}}}",
        hex(&snapshot.fingerprint),
        or_null(snapshot.base_fingerprint.map(|fingerprint| hex(&fingerprint))),
        metadata,
        list(snapshot.files.iter().map(answer_of_file))
    )
}

fn answer_of_file(file: &File) -> String {
    let tensors = list(file.tensors.iter().map(|tensor| {
        format!(
            "{{\"name\": {}, \"dtype\": {}, \"shape\": {:?}, \"offset\": {}, \"size\": {}, \"loss\": {:?}, \"fingerprint\": {}}}",
            hex(&tensor.name),
            hex(&tensor.dtype),
            tensor.shape,
            tensor.offset,
            tensor.size,
            [tensor.loss.generation.into(), tensor.loss.measure.into(), tensor.loss.error],
            hex(&tensor.fingerprint)
        )
    }));
    format!(
        "{{\"path\": {}, \"kind\": \"{}\", \"size\": {}, \"sha256\": {}, \"mode\": {}, \"mtime\": {}, \"fingerprint\": {}, \"tensors\": {}}}",
        hex(&file.path),
        if file.kind == Kind::Directory { "directory" } else { "regular" },
        file.data.len(),
        hex(&lmc::sha256(&file.data)),
        or_null(file.mode),
        or_null(file.mtime.map(|(seconds, nanoseconds)| format!("[{}, {}]", seconds, nanoseconds))),
        or_null(file.fingerprint.map(|fingerprint| hex(&fingerprint))),
        tensors
    )
}

fn hex(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.iter().map(|byte| format!("{:02x}", byte)).collect::<String>())
}

fn list(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(", "))
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or("null".to_string(), |value| value.to_string())
}
