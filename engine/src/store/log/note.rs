//! A note of what was flushed.
//!
//! Every header says how far the log had been flushed when it was written (rule 5). Before one is on the device nothing tells a
//! flushed batch that has rotted since from one that a power cut tore, and recovery would cut the log there. Where clients
//! write, headers come by themselves; where they stop after a flush, an empty one is written.

use super::LogStore;
use crate::machine::Machine;
use crate::mutation::Mutation;
use crate::units::Nanos;

/// How long after a flush a header is awaited that has another reason.
const NOTE_AFTER_NS: u64 = 1000 * Nanos::MILLISECOND;

/// Progress of flushes, and of the headers that tell of them.
#[derive(Debug)]
pub(super) struct Note {
    /// The last batch with an entry.
    last_filled: u64,
    /// Up to which batch the last header says that the log was flushed.
    noted: u64,
    /// When the last flush ended.
    flushed_at: Nanos,
}

impl Note {
    /// Recovery flushed all up to `published`, and the superblock says so.
    pub fn new(published: u64) -> Note {
        Note { last_filled: published, noted: published, flushed_at: Nanos(0) }
    }

    /// A header goes out.
    pub fn headed(&mut self, sequence: u64, flushed_sequence: u64, is_empty: bool) {
        self.noted = flushed_sequence;
        if !is_empty {
            self.last_filled = sequence;
        }
    }

    /// A flush of the cache ended.
    pub fn flushed(&mut self, now: Nanos) {
        self.flushed_at = now;
    }

    /// When the next header is due, if all that counts is flushed and no header says so.
    fn due(&self, flushed_sequence: u64) -> Option<Nanos> {
        let is_owed = self.noted < self.last_filled && self.last_filled <= flushed_sequence;
        is_owed.then(|| self.flushed_at.plus(NOTE_AFTER_NS))
    }
}

impl Machine<LogStore> {
    /// Wants an empty batch where a flush is to be noted and no other header came.
    pub(super) fn pump_note(&mut self) {
        let Some(due) = self.store.log.note.due(self.barrier.flushed) else { return };
        // What is left of a full ring is for what empties it, and that has headers.
        let is_out_of_place = self.is_stopping
            || self.superblock.clean_stop
            || self.latched.is_some()
            || self.store.log.open.is_none()
            || !self.clients_may_append();
        if is_out_of_place || self.is_mutated(Mutation::FlushNotNoted) {
            return;
        }
        if self.now < due {
            self.want_tick(due);
        } else {
            self.store.log.is_floor_wanted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_due_once_after_a_flush() {
        let mut note = Note::new(7);
        assert_eq!(note.due(7), None, "the superblock says it");
        note.headed(8, 7, false);
        note.headed(9, 7, false);
        assert_eq!(note.due(8), None, "there is more to flush");
        note.flushed(Nanos(5));
        assert_eq!(note.due(9), Some(Nanos(5 + NOTE_AFTER_NS)));
        note.headed(10, 9, true);
        assert_eq!(note.due(9), None, "the last header says it");
        assert_eq!(note.due(10), None, "an empty batch needs none");
        note.headed(11, 9, false);
        note.flushed(Nanos(6));
        assert_eq!(note.due(11), Some(Nanos(6 + NOTE_AFTER_NS)));
    }
}
