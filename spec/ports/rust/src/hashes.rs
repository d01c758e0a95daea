//! hash.md: SHA-256 of all content.

use crate::error::{check, Result};
use crate::hash::sha256;
use crate::layout::PlacedSection;
use crate::reader::Reader;
use crate::section::Kind;
use crate::snapshot::{File, Snapshot};

/// The SHA-256 of each tensor of a file, and of what else is in it.
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

/// That of the statement: all that a snapshot says. `hashes`: of each file.
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

/// The section `hash`, if there is one, has the SHA-256 of all content and of the statement.
pub(crate) fn check_hashes(sections: &[PlacedSection<'_>], snapshot: &Snapshot) -> Result<()> {
    let mut is_checked = false;
    for PlacedSection { section, .. } in sections {
        if &section.name != b"hash" || !section.body.starts_with(&[1, 0, 0, 0, 0, 0, 0, 0]) {
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
