//! Operations of a disk, and their ends.

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read a range.
    Read,
    /// Write a range. Done as soon as the disk has the data, which may be in its volatile cache.
    Write,
    /// Make durable every write that was done before. Offset and length are ignored.
    Flush,
    /// The content of the range is not needed any more.
    Discard,
}

/// One operation. Ranges must not be empty and must lie inside the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Submit {
    /// Its kind.
    pub op: Op,
    /// The beginning of the range.
    pub offset_bytes: u64,
    /// The length of the range.
    pub len_bytes: u64,
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The token given to [`Disk::submit`](crate::Disk::submit).
    pub token: u64,
    /// The time when the operation was done.
    pub done_ns: u64,
}
