//! Block traces: readers for the formats in which they are published, compressed or not.
//!
//! A reader is a [`Source`]: it streams, keeps no more than a line or a record, and takes nothing in a
//! file for granted. What is malformed is told in one line: the file, the line or record, the reason.
//!
//! | [`Format`] | one request |
//! | --- | --- |
//! | `arc` | text: `start count ignored request`, in units of 512 bytes; the traces of the ARC paper |
//! | `block-list` | text: a decimal block number a line, `*` is a mark to skip; the traces of the LIRS paper |
//! | `disksim` | text: `time_ns disk lba sectors flag`, flag 1 is a read, 0 a write |
//! | `fiu` | text: `time_ns pid process lba sectors R\|W major minor md5` |
//! | `spc` | text: `unit,lba,bytes,r\|w,seconds` |
//! | `msr` | text: `filetime_100ns,host,disk,Read\|Write,offset_bytes,bytes,response_100ns` |
//! | `systor` | text: a header, then `seconds,response_s,R\|W,lun,offset_bytes,bytes`; the operation may be empty |
//! | `tencent` | text: `seconds,lba,sectors,0\|1,volume`, 0 is a read, not quite in the order of time |
//! | `opencas` | text: a header, then `ts_ns,op,lba,sectors,...` with op `R`, `W` or `D`; decoded Open CAS traces |
//! | `vscsi` | 32 bytes: serial, length, scatter/gather count, command, version (1), LBA, time in µs |
//! | `oracle-general` | 24 bytes: time in s, object (taken as an LBA), bytes, next access; all are reads |
//! | `u32le` | 4 bytes: a block number |
//!
//! Lines of text that begin with `#` are remarks. `forebay record` writes `msr`, with `Discard`, `WriteZeroes` (a write)
//! and `Flush` (passed over) as further operations.
//!
//! LBAs are in sectors of 512 bytes. Requests of no length, and SCSI commands that move no data of clients,
//! are passed over. Formats without addresses in sectors have a unit, which can be chosen.

mod binary;
mod head;
mod layout;
mod number;
mod source;
pub mod spread;
mod survey;
mod text;

pub use head::Head;
pub use layout::{Layout, LayoutError, ORIGIN_BYTES_MAX};
pub use source::{guess, open, read};
pub use survey::Survey;

use engine::units::{SECTOR_BYTES, SectorRange};
use std::fmt;

/// The longest read or write that is believed, in sectors: 1 GiB. A longer one is a misread file.
pub const TRANSFER_SECTORS_MAX: u64 = (1 << 30) / SECTOR_BYTES;
/// Sectors of the largest disk that is believed: 8 EiB.
pub const DISK_SECTORS_MAX: u64 = (1 << 63) / SECTOR_BYTES;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It says that the content is not needed any more.
    Discard,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in nanoseconds since whatever the trace counts from; `None` if the format has no times.
    pub at_ns: Option<u64>,
    /// The disk of the trace: disks are numbered in order of arrival.
    pub volume: u32,
    /// Its kind.
    pub op: Op,
    /// Where; not empty, and not beyond [`DISK_SECTORS_MAX`].
    pub range: SectorRange,
}

/// A trace being read.
pub trait Source {
    /// The next request in the order of the file; `None` at its end.
    ///
    /// # Errors
    /// [`TraceError`] where the file is malformed or cannot be read: then nothing more is to be had.
    fn next_entry(&mut self) -> Result<Option<Entry>, TraceError>;
}

/// The format of a trace's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table above says what each is")]
pub enum Format {
    Arc,
    BlockList,
    DiskSim,
    Fiu,
    Spc,
    Msr,
    Systor,
    Tencent,
    OpenCas,
    Vscsi,
    OracleGeneral,
    U32Le,
}

impl Format {
    /// All formats with their names.
    pub const ALL: [(Format, &'static str); 12] = [
        (Format::Arc, "arc"),
        (Format::BlockList, "block-list"),
        (Format::DiskSim, "disksim"),
        (Format::Fiu, "fiu"),
        (Format::Spc, "spc"),
        (Format::Msr, "msr"),
        (Format::Systor, "systor"),
        (Format::Tencent, "tencent"),
        (Format::OpenCas, "opencas"),
        (Format::Vscsi, "vscsi"),
        (Format::OracleGeneral, "oracle-general"),
        (Format::U32Le, "u32le"),
    ];

    /// Its name.
    ///
    /// # Panics
    /// Never: each format has a name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Format::ALL.iter().find(|(format, _)| *format == self).expect("each format has a name").1
    }

    /// The format of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.iter().find(|(_, known)| *known == name).map(|(format, _)| *format)
    }

    /// The unit of addresses unless another one is chosen, in bytes; `None` where the format says it.
    #[must_use]
    pub fn unit_bytes(self) -> Option<u64> {
        match self {
            Format::Arc => Some(SECTOR_BYTES),
            Format::BlockList | Format::U32Le => Some(engine::units::BLOCK_BYTES),
            _ => None,
        }
    }
}

/// The way to read a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The format; `None`: as [`guess`] says.
    pub format: Option<Format>,
    /// The unit of addresses in bytes where [`Format::unit_bytes`] has one; `None`: that.
    pub unit_bytes: Option<u64>,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular.
    File,
    /// A line of text; the first is 1.
    Line(u64),
    /// A binary record; the first is 1.
    Record(u64),
}

/// The reason why a trace cannot be read, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{file}{place}: {reason}")]
pub struct TraceError {
    /// The file as it was named.
    pub file: String,
    /// The place in it.
    pub place: Place,
    /// The error, in words.
    pub reason: Reason,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => Ok(()),
            Place::Line(line) => write!(f, ", line {line}"),
            Place::Record(record) => write!(f, ", record {record}"),
        }
    }
}

/// Error at a place in a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The operating system, or the decompressor, said no.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// Neither name nor content tells the format.
    #[error("the format of the trace is not known; give it, one of {known}", known = format_names())]
    UnknownFormat,
    /// There is nothing but remarks.
    #[error("the trace has no request: nothing was asked for while it was recorded")]
    Nothing,
    /// It is a pipe or the like.
    #[error("a trace is read twice, and this can be read once: write it to a file first")]
    NoFile,
    /// The unit is not a multiple of sectors, or too large.
    #[error("a unit has 512 bytes to 1 MiB, and whole sectors; {0} bytes are none")]
    Unit(u64),
    /// The unit was chosen for a format that has its own.
    #[error("the format {0} says itself in what units it counts")]
    UnitOfItsOwn(&'static str),
    /// A line does not end.
    #[error("the line has more than {0} bytes")]
    LongLine(usize),
    /// A line is not text.
    #[error("the line is not text")]
    NotText,
    /// Fields are missing.
    #[error("there are {found} fields, not {wanted}")]
    Fields {
        /// The number found.
        found: usize,
        /// The least number wanted.
        wanted: usize,
    },
    /// Not a number, or one that is too large.
    #[error("the {field} is no number that can be: {text}")]
    Number {
        /// The field.
        field: &'static str,
        /// The text there, shortened.
        text: String,
    },
    /// Neither a read nor a write.
    #[error("the operation is neither a read nor a write: {0}")]
    Operation(String),
    /// Longer than any request.
    #[error("a request of {0} sectors is longer than 1 GiB")]
    Length(u64),
    /// Beyond the end of any disk.
    #[error("the address is beyond the end of any disk")]
    Address,
    /// The last record is cut off.
    #[error("the file ends in the middle of a record of {0} bytes")]
    CutOff(usize),
    /// A vscsi record of a version that is not read.
    #[error("version {0} of vscsi records is not known")]
    VscsiVersion(u8),
}

fn format_names() -> String {
    Format::ALL.map(|(_, name)| name).join(", ")
}

/// The range, if a request may have it; `None` if it is empty.
fn range(op: Op, start: u64, sectors: u64) -> Result<Option<SectorRange>, Reason> {
    if sectors == 0 {
        return Ok(None);
    }
    if op != Op::Discard && sectors > TRANSFER_SECTORS_MAX {
        return Err(Reason::Length(sectors));
    }
    match start.checked_add(sectors) {
        Some(end) if end <= DISK_SECTORS_MAX => Ok(Some(SectorRange { start, sectors })),
        _ => Err(Reason::Address),
    }
}

/// The sectors that these bytes touch.
fn range_of_bytes(op: Op, offset_bytes: u64, len_bytes: u64) -> Result<Option<SectorRange>, Reason> {
    let end_bytes = offset_bytes.checked_add(len_bytes).ok_or(Reason::Address)?;
    let start = offset_bytes / SECTOR_BYTES;
    let sectors = if len_bytes == 0 { 0 } else { end_bytes.div_ceil(SECTOR_BYTES) - start };
    range(op, start, sectors)
}

#[cfg(test)]
mod tests;
