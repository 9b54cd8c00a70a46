//! The payload memory that the driver owns, as the engine sees it.
//!
//! Payload bytes never pass through the engine's hands: it names buffers and asks the driver
//! to compute a checksum of a piece, to copy one piece onto another, to zero one. Only
//! *metadata* buffers (batch headers, summaries, the superblock) have bytes the engine reads
//! and writes. All calls are synchronous, deterministic and free of I/O, so that a simulator
//! can keep a version tag where the daemon keeps 4 KiB.

/// Names a buffer of the driver's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A piece of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: BufferId,
    /// The offset of the piece in it, in bytes.
    pub offset_bytes: u32,
    /// The length of the piece, in bytes.
    pub len_bytes: u32,
}

impl Slice {
    /// The piece of `len_bytes` that begins `offset_bytes` into this one.
    ///
    /// # Panics
    /// If that is not inside this slice.
    #[inline]
    #[must_use]
    pub fn part(self, offset_bytes: u32, len_bytes: u32) -> Slice {
        assert!(
            offset_bytes <= self.len_bytes && len_bytes <= self.len_bytes - offset_bytes,
            "a part of a slice lies inside it"
        );
        Slice { buffer: self.buffer, offset_bytes: self.offset_bytes + offset_bytes, len_bytes }
    }
}

/// The purpose of a buffer. The engine keeps a count of its own for each purpose and stays below
/// the limits it states (`Limits::pool_bytes`), so a pool of that size never runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Bytes that the engine itself reads and writes.
    Metadata,
    /// Client data on its way.
    Payload,
}

/// The driver's buffers. Every buffer starts at an address that is a multiple of 4096.
pub trait Memory {
    /// A new buffer of `len_bytes` (a multiple of 4096) with one reference, its content
    /// undefined; `None` if the pool has no room, which the engine takes as a reason to wait.
    fn allocate(&mut self, purpose: Purpose, len_bytes: u32) -> Option<BufferId>;
    /// One more reference.
    fn retain(&mut self, buffer: BufferId);
    /// One reference less; at zero the buffer is free.
    fn release(&mut self, buffer: BufferId);
    /// The bytes of a metadata buffer.
    fn metadata(&self, buffer: BufferId) -> &[u8];
    /// The bytes of a metadata buffer, to be written.
    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8];
    /// The [`crate::units::payload_checksum`] of a payload piece.
    fn checksum(&self, slice: Slice) -> u32;
    /// Copies `from` onto `to`; both have the same length and do not overlap.
    fn copy(&mut self, from: Slice, to: Slice);
    /// Fills the piece with zeroes.
    fn zero(&mut self, slice: Slice);

    /// Bytes of memory that outlives the process, and not the power: what is stored there is handed to
    /// [`crate::recovery::restore`] at the next start, and what [`FlushNote::left_in`](crate::format::FlushNote::left_in) it comes
    /// with the image ([`Image::flush_note`](crate::image::Image::flush_note)). The engine uses it if it has [`crate::format::LASTING_BYTES`] or more.
    fn lasting_bytes(&self) -> usize {
        0
    }
    /// Stores `bytes` in that memory. However the process ends behind this call, they are there.
    fn store_lasting(&mut self, _at_bytes: usize, _bytes: &[u8]) {
        unreachable!("there is no memory that lasts")
    }
}
