//! The first block of a segment: which life of the segment this is.

use super::bytes::{array, counter_at, put, seal, u8_at, u32_at, unseal};
use super::{COUNTER_END, FormatError, SetId, VERSION};
use crate::number::index_wide;
use crate::units::BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"FBAYHEAD";

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The cache it belongs to.
    pub set_id: SetId,
    /// The ring it belongs to; 0 while there is one.
    pub ring: u8,
    /// This life of the segment: unique, rising with every opening of any segment; not 0.
    pub generation: u64,
    /// The session that opened the segment.
    pub session: u64,
    /// The sequence of its first batch; not 0.
    pub first_sequence: u64,
    /// The checksum of the last header before this segment; 0 for the first one ever.
    pub previous_checksum: u32,
}

impl SegmentHead {
    /// Bytes of a head on the device.
    pub const BYTES: usize = index_wide(BLOCK_BYTES);

    /// Writes the head to `bytes`, which are one block.
    ///
    /// # Panics
    /// If `bytes` has another length, or generation or sequence are 0.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == SegmentHead::BYTES);
        assert!((1..=COUNTER_END).contains(&self.generation));
        assert!((1..=COUNTER_END).contains(&self.first_sequence));
        assert!(self.session <= COUNTER_END);
        bytes.fill(0);
        bytes[14] = self.ring;
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.generation.to_le_bytes());
        put(bytes, 40, &self.session.to_le_bytes());
        put(bytes, 48, &self.first_sequence.to_le_bytes());
        put(bytes, 56, &self.previous_checksum.to_le_bytes());
        seal(bytes, MAGIC, VERSION);
    }

    /// Reads a head from the first block of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<SegmentHead, FormatError> {
        let bytes = bytes.get(..SegmentHead::BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let head = SegmentHead {
            set_id: array(bytes, 16)?,
            ring: u8_at(bytes, 14)?,
            generation: counter_at(bytes, 32, "generation")?,
            session: counter_at(bytes, 40, "session")?,
            first_sequence: counter_at(bytes, 48, "first_sequence")?,
            previous_checksum: u32_at(bytes, 56)?,
        };
        if head.generation == 0 {
            return Err(FormatError::Field("generation"));
        }
        if head.first_sequence == 0 {
            return Err(FormatError::Field("first_sequence"));
        }
        Ok(head)
    }
}
