//! Decoder of the LMC format, version 1.0, written from spec/lmc-format.md alone: the sections that comments name are sections of that page.
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

mod base; // 4, 9.4: bases and chains of them
mod block; // 7: blocks, arrays in memory
mod error; // 11: statuses
mod hash; // 2: CRC-32C, CRC-64 and SHA-256
mod layout; // 3 to 6, 10: a whole file, but for its blocks' payloads; the trailer
mod list; // 8: lists of bytes, trees, masks
mod quantised; // 7.6: quantised elements
mod reader; // 2: fields and varints
mod safetensors; // 9.4: the tensors of such files
mod section; // 4, 5: header, FILE and RUN sections
mod snapshot; // 5.2, 9, 10: what the runs decode to, identities, the index
mod text; // 5.2: header text

pub use base::Base;
pub use block::decode_array;
pub use error::{Error, Status};
pub use hash::{crc32c, crc64, sha256};
pub use section::{Kind, Loss, Tensor};
pub use snapshot::{decode, File, Identity, Item, Snapshot};

/// What the caller allows (section 12). Anything beyond is `Status::Limit`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a section's body. The format itself allows 2^40, and every decoder has to support 1 GiB.
    pub section: u64,
    /// Sum of the decoded bytes of a snapshot, and of each that it needs as a base. A small file can hold 174,763 times its size.
    pub decoded: u64,
    /// Bytes that the tables of files and tensors may take in memory: an entry of some bytes may repeat a name and a shape of hundreds.
    pub tables: u64,
    /// Bases of bases that are LMC files. Each takes some room on the stack.
    pub chain: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { section: 1 << 30, decoded: 1 << 38, tables: 1 << 32, chain: 256 }
    }
}
