//! Durable word of what was flushed.
//!
//! Every header says how far the log had been flushed when it was written (rule 5). Before one of them is durable itself nothing
//! on the device tells a flushed batch that has rotted since from one that a power cut tore, and recovery would cut the log there.
//! Where clients flush on, the next flush makes such headers durable. Where they stop, an empty batch is written a second after the
//! flush, and flushed; where a full ring has no room for it, or a stop waits for an origin, the superblock says it. Whenever the
//! superblock is written it says so, too, and at a clean stop in any case. Where memory outlives the process, it has a note from
//! the flush on: then only the power leaves a flush without word.

use super::LogStore;
use crate::format::{FLUSH_NOTES_AT, FlushNote, LASTING_BYTES, Superblock};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::units::Nanos;

/// Time after a flush in which durable headers may come to say it for another reason.
const NOTE_AFTER_NS: u64 = 1000 * Nanos::MILLISECOND;

/// The flushed sequence that a header states.
#[derive(Clone, Copy, Debug)]
struct Statement {
    /// The header's own batch.
    sequence: u64,
    /// The sequence up to which the log was flushed when the header was made.
    flushed: u64,
}

/// Progress of flushes, and of the durable records that tell of them.
#[derive(Debug)]
pub(super) struct Note {
    /// The last batch with an entry.
    last_filled: u64,
    /// The batch up to which the last flush covered the log.
    covered: u64,
    /// The batch up to which durable records say that the log was flushed.
    told: u64,
    /// The first and the last header that say more and that no flush covered yet.
    stated: Option<(Statement, Statement)>,
    /// The update of the superblock under way, and the batch up to which it tells.
    update: Option<(u64, u64)>,
    /// When the oldest flush ended of which no durable record tells.
    owed_since: Nanos,
    /// The place of the next note in memory that outlives the process.
    next_place: usize,
}

impl Note {
    /// Recovery flushed all up to `published`, and the superblock says so.
    pub fn new(published: u64) -> Note {
        Note {
            last_filled: published,
            covered: published,
            told: published,
            stated: None,
            update: None,
            owed_since: Nanos(0),
            next_place: 0,
        }
    }

    /// A header goes out.
    pub fn headed(&mut self, sequence: u64, flushed: u64, is_empty: bool) {
        if !is_empty {
            self.last_filled = sequence;
        }
        if flushed > self.told {
            let statement = Statement { sequence, flushed };
            self.stated = Some((self.stated.map_or(statement, |(first, _)| first), statement));
        }
    }

    /// A flush of the cache ended that covers all batches up to `covered`.
    pub fn flushed(&mut self, now: Nanos, covered: u64) {
        let (was_owed, told) = (self.is_owed(), self.told);
        self.covered = covered;
        if let Some((first, last)) = self.stated {
            if last.sequence <= covered {
                self.tell(last.flushed);
            } else if first.sequence <= covered {
                self.tell(first.flushed);
                self.stated = Some((last, last));
            }
        }
        // What is still owed was flushed behind the statement that is durable now, by this flush.
        if !was_owed || self.told > told {
            self.owed_since = now;
        }
    }

    fn tell(&mut self, flushed: u64) {
        self.told = self.told.max(flushed);
        self.stated = self.stated.filter(|(_, last)| last.flushed > self.told);
    }

    /// The superblock is durable as of `update`.
    #[inline]
    fn superblock_is(&mut self, update: u64) {
        if let Some((_, flushed)) = self.update.filter(|(wanted, _)| *wanted <= update) {
            self.update = None;
            self.tell(flushed);
        }
    }

    #[inline]
    fn is_owed(&self) -> bool {
        self.told < self.last_filled.min(self.covered)
    }

    /// The header that says all that is to be told, if one went out.
    fn stating(&self) -> Option<u64> {
        let owed = self.last_filled.min(self.covered);
        self.stated.filter(|(_, last)| last.flushed >= owed).map(|(_, last)| last.sequence)
    }

    /// When something durable has to tell what is flushed.
    #[inline]
    fn due(&self) -> Option<Nanos> {
        (self.is_owed() && self.update.is_none()).then(|| self.owed_since.plus(NOTE_AFTER_NS))
    }
}

impl Machine<LogStore> {
    /// Has something durable tell what was flushed, where clients bring about no such header in time.
    #[inline]
    pub(super) fn pump_note<M: Memory>(&mut self, memory: &mut M) {
        let note = &mut self.store.log.note;
        note.superblock_is(self.superblock_writer.durable());
        if let Some(due) = note.due() {
            self.bring_note(due, memory);
        }
    }

    fn bring_note<M: Memory>(&mut self, due: Nanos, memory: &mut M) {
        let is_over = self.superblock.clean_stop || self.latched.is_some();
        if is_over || self.is_mutated(Mutation::FlushNotNoted) {
            return;
        }
        if self.now < due {
            self.want_tick(due);
            return;
        }
        if let Some(sequence) = self.store.log.note.stating() {
            self.barrier.want(sequence);
            // Nothing else may happen for hours.
            self.pump_barrier();
        } else if self.store.log.open.is_some() && self.clients_may_append() && !self.is_stopping {
            self.store.log.is_floor_wanted = true;
        } else {
            // What is left of a full ring is for what empties it. A stop appends nothing more, and its own last word may
            // have to wait for an origin that hangs.
            let update = self.superblock_writer.change(&mut self.superblock);
            self.store.log.note.update = Some((update, self.barrier.flushed));
            self.pump_superblock(memory);
        }
    }

    /// RULE 5: a flush is remembered before anybody is told of it. A process that ends takes nothing that was flushed, so what
    /// cannot be found then was damaged.
    pub(super) fn remember_flush<M: Memory>(&mut self, sequence: u64, memory: &mut M) {
        let has_memory = memory.lasting_bytes() >= LASTING_BYTES && self.halves.is_none();
        if !has_memory || self.is_mutated(Mutation::FlushForgotten) {
            return;
        }
        let Superblock { set_id, session, .. } = self.superblock;
        let place = &mut self.store.log.note.next_place;
        memory.store_lasting(FLUSH_NOTES_AT[*place], &FlushNote { set_id, session, sequence }.encode());
        *place = 1 - *place;
    }

    /// RULE 5: what the superblock tells may rest on what the log has just dropped: no rot behind that may pass for the log's end.
    pub(super) fn note_in_superblock(&mut self) {
        if !self.superblock.clean_stop && !self.is_mutated(Mutation::FlushNotNoted) {
            self.superblock.flushed_sequence = self.barrier.flushed;
        }
    }

    /// RULE 5: the superblock of a clean stop says where the log ends, all of which is flushed.
    pub(super) fn note_end(&mut self) {
        let published = self.store.log.published();
        assert!(self.barrier.flushed >= published, "a clean stop comes when all of the log is flushed");
        if !self.is_mutated(Mutation::EndNotNoted) {
            self.superblock.flushed_sequence = published;
        }
        if self.is_mutated(Mutation::StopMovesCut) {
            self.superblock.cut_sequence = published;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_due_once_after_a_flush() {
        let mut note = Note::new(7);
        assert_eq!(note.due(), None, "the superblock says it");
        note.headed(8, 7, false);
        note.headed(9, 7, false);
        assert_eq!(note.due(), None, "there is more to flush, and no flush to tell of");
        note.flushed(Nanos(5), 9);
        assert_eq!(note.due(), Some(Nanos(5 + NOTE_AFTER_NS)));
        assert_eq!(note.stating(), None, "headers 8 and 9 said less");
        note.update = Some((3, 9));
        assert_eq!(note.due(), None, "the superblock is about to tell");
        note.superblock_is(2);
        assert!(note.update.is_some(), "that was an earlier update");
        note.superblock_is(3);
        assert_eq!(note.due(), None, "the superblock tells");
        note.headed(10, 9, true);
        note.flushed(Nanos(6), 10);
        assert_eq!(note.due(), None, "an empty batch needs no note");
    }

    #[test]
    fn a_header_tells_once_it_is_flushed_itself() {
        let mut note = Note::new(0);
        note.headed(1, 0, false);
        note.flushed(Nanos(1), 1);
        note.headed(2, 1, false);
        assert_eq!(note.stating(), Some(2));
        assert_eq!(note.due(), Some(Nanos(1 + NOTE_AFTER_NS)), "a cut may take the header");
        note.flushed(Nanos(9), 2);
        assert_eq!((note.told, note.due()), (1, Some(Nanos(9 + NOTE_AFTER_NS))));
        note.headed(3, 2, false);
        note.headed(4, 2, false);
        note.flushed(Nanos(11), 3);
        assert_eq!((note.told, note.due()), (2, Some(Nanos(11 + NOTE_AFTER_NS))));
    }

    #[test]
    fn a_header_that_no_flush_covers_tells_nothing() {
        let mut note = Note::new(0);
        note.headed(1, 0, false);
        note.headed(2, 0, false);
        note.flushed(Nanos(1), 1);
        note.headed(3, 1, true);
        note.flushed(Nanos(2), 2);
        assert_eq!(note.told, 0, "a cut may take header 3");
        note.headed(4, 2, true);
        note.flushed(Nanos(3), 3);
        assert_eq!(note.told, 1, "and now header 4");
    }

    #[test]
    fn flushes_that_come_meanwhile_do_not_put_a_note_off() {
        let mut note = Note::new(0);
        note.headed(1, 0, false);
        note.headed(2, 0, false);
        note.flushed(Nanos(1), 1);
        note.flushed(Nanos(100), 2);
        assert_eq!(note.due(), Some(Nanos(1 + NOTE_AFTER_NS)));
    }
}
