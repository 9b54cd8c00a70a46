//! A note of how far the log is flushed, in memory that outlives the process.
//!
//! Right after a flush nothing on the device says what it covered (rule 5). Until something does, this note does, unless the power
//! takes it. It lies behind the parts of late batches ([`super::lasting`]), in two places that are written in turn: the process
//! may end while one of them is stored.

use super::bytes::{array, counter_at, put, seal, u64_at, unseal};
use super::lasting::LASTING_SLOT_BYTES;
use super::{SetId, Superblock, VERSION};

const MAGIC: [u8; 8] = *b"FBAYFLSH";
/// Bytes of a note.
pub(crate) const FLUSH_NOTE_BYTES: usize = 64;
/// The two places of the note in that memory, in bytes.
pub(crate) const FLUSH_NOTES_AT: [usize; 2] =
    [LASTING_SLOT_BYTES - FLUSH_NOTE_BYTES, 2 * LASTING_SLOT_BYTES - FLUSH_NOTE_BYTES];

/// A note that the log was flushed up to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushNote {
    /// The cache.
    pub set_id: SetId,
    /// The session in which that was.
    pub session: u64,
    /// The last batch that a flush covered.
    pub sequence: u64,
}

impl FlushNote {
    pub(crate) fn encode(&self) -> [u8; FLUSH_NOTE_BYTES] {
        let mut bytes = [0; FLUSH_NOTE_BYTES];
        put(&mut bytes, 16, &self.set_id);
        put(&mut bytes, 32, &self.session.to_le_bytes());
        put(&mut bytes, 40, &self.sequence.to_le_bytes());
        seal(&mut bytes, MAGIC, VERSION);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<FlushNote> {
        unseal(bytes, MAGIC, VERSION).ok()?;
        Some(FlushNote {
            set_id: array(bytes, 16).ok()?,
            session: counter_at(bytes, 32, "session").ok()?,
            sequence: u64_at(bytes, 40).ok()?,
        })
    }

    /// The newest note in memory that outlived a process, if there is one.
    #[must_use]
    pub fn left_in(lasting: &[u8]) -> Option<FlushNote> {
        let places = FLUSH_NOTES_AT.into_iter();
        let notes = places.filter_map(|at| FlushNote::decode(lasting.get(at..at + FLUSH_NOTE_BYTES)?));
        notes.max_by_key(|note| (note.session, note.sequence))
    }

    /// Whether the note is of the last session of a cache, which did not end cleanly.
    #[must_use]
    pub fn is_of(&self, superblock: &Superblock) -> bool {
        !superblock.clean_stop && (self.set_id, self.session) == (superblock.set_id, superblock.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn the_newest_whole_note_counts() {
        let note = |sequence| FlushNote { set_id: [7; 16], session: 3, sequence };
        let mut lasting = vec![0; 2 * LASTING_SLOT_BYTES];
        assert_eq!(FlushNote::left_in(&lasting), None);
        for (place, sequence) in FLUSH_NOTES_AT.into_iter().zip([9, 8]) {
            lasting[place..place + FLUSH_NOTE_BYTES].copy_from_slice(&note(sequence).encode());
        }
        assert_eq!(FlushNote::left_in(&lasting), Some(note(9)));
        lasting[FLUSH_NOTES_AT[0] + 40] ^= 1;
        assert_eq!(
            FlushNote::left_in(&lasting),
            Some(note(8)),
            "the process ended while it stored the other one"
        );
        assert_eq!(FlushNote::left_in(&lasting[..100]), None);
    }
}
