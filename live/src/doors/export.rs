//! Exports: volumes as clients see them, whatever the door.

/// Longest name of an export in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// One volume as it is offered to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for; at most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// A line for people; may be empty.
    pub description: String,
    /// The size; a remainder smaller than the minimum block is out of clients' reach.
    pub size_bytes: u64,
    /// The smallest unit of a request: a power of two, 512 or more.
    pub min_block_bytes: u32,
    /// Clients may not write.
    pub read_only: bool,
}
