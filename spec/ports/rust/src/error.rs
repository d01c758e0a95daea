//! Section 2.2: what is wrong with an input.

use std::fmt;

/// The statuses of section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The input is no LMC file.
    NotLmc,
    /// An LMC file of a version that this decoder does not know.
    Version,
    /// A feature that this decoder does not know.
    Unsupported,
    /// The input ends early.
    Truncated,
    /// The input breaks a rule.
    Corrupt,
    /// A CRC does not match.
    Checksum,
    /// The input asks for more than `Limits` allow.
    Limit,
    /// The file has a base, and none was given.
    BaseMissing,
    /// What was given is not what the file was coded against.
    BaseWrong,
}

impl Status {
    /// The name as section 2.2 has it.
    pub fn name(self) -> &'static str {
        match self {
            Status::NotLmc => "NOT_LMC",
            Status::Version => "VERSION",
            Status::Unsupported => "UNSUPPORTED",
            Status::Truncated => "TRUNCATED",
            Status::Corrupt => "CORRUPT",
            Status::Checksum => "CHECKSUM",
            Status::Limit => "LIMIT",
            Status::BaseMissing => "BASE_MISSING",
            Status::BaseWrong => "BASE_WRONG",
        }
    }
}

/// A status, and which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The status.
    pub status: Status,
    /// What it is about, for people.
    pub what: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.status.name(), self.what)
    }
}

impl std::error::Error for Error {}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Goes on if `rule` holds, otherwise refuses.
pub(crate) fn ensure(rule: bool, status: Status, what: &'static str) -> Result<()> {
    if rule {
        Ok(())
    } else {
        Err(Error { status, what })
    }
}

/// The most frequent case of `ensure`: a rule of the page.
pub(crate) fn check(rule: bool, what: &'static str) -> Result<()> {
    ensure(rule, Status::Corrupt, what)
}

pub(crate) fn corrupt(what: &'static str) -> Error {
    Error { status: Status::Corrupt, what }
}

pub(crate) fn unsupported(what: &'static str) -> Error {
    Error { status: Status::Unsupported, what }
}
