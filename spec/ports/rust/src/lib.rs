//! Decoder of the LMC format, version 1.0, written from spec/lmc-format.md and its companions alone: the sections that comments
//! name are sections of that page.
//!
//! It is meant to be read by people who port the format: safe code without dependencies, every check in the place where the page has it, the whole
//! file, its base and what it decodes to in memory. Nothing is taken from the input before it was checked, and nothing is allocated for bytes that
//! the input does not have: memory is bounded by the input, the bases and `Limits::decoded`.
//!
//! ```no_run
//! let file = std::fs::read("model.lmc").unwrap();
//! let bases = vec![lmc::Base::read("base.lmc".as_ref()).unwrap()];
//! match lmc::decode(&file, &bases, &lmc::Limits::default()) {
//!     Ok(snapshot) => println!("{} files", snapshot.files.len()),
//!     Err(error) => println!("{:?}: {}", error.status, error.what),
//! }
//! ```
//!
//! SPDX-License-Identifier: MIT

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod base; // 7.3, foreign-bases.md: bases and chains of them
mod block; // 5, 10: blocks, arrays in memory
mod error; // 2.2: statuses
mod hash; // 2.1: CRC-32C and SHA-256
mod hashes; // hash.md: the section hash
mod layout; // 3.2, 4, 8.1: a whole file, but for its blocks' payloads
mod list; // 6: lists of bytes, trees, masks
mod quantised; // quantised.md; 4.2: conversions
mod reader; // 2.1: fields and varints
mod safetensors; // foreign-bases.md: the tensors of such files
mod section; // 3.1, 4: header, FILE and RUN sections
mod snapshot; // 4.2, 7, 8.2: what the runs decode to, fingerprints, the index
mod text; // 4.3: header text

pub use base::Base;
pub use block::decode_array;
pub use error::{Error, Status};
pub use hash::{crc32c, sha256};
pub use section::{Kind, Loss, Tensor};
pub use snapshot::{decode, File, Fingerprint, Item, Snapshot};

/// What the caller allows (section 9). Anything beyond is `Status::Limit`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a section's body. The format itself allows 2^40, and every decoder has to support 1 GiB.
    pub section: u64,
    /// Sum of the decoded bytes of a snapshot, and of each that it needs as a base. A small file can hold 123,362 times its size.
    pub decoded: u64,
    /// Bytes that the paths, names and shapes of all files and tensors may take: an entry of some bytes may repeat hundreds.
    pub tables: u64,
    /// Bases of bases that are LMC files. Each takes some room on the stack.
    pub chain: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { section: 1 << 30, decoded: 1 << 38, tables: 1 << 32, chain: 256 }
    }
}
