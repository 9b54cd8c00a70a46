//! The ledger of a volume that goes home in strict order: every version that is not home, by interval.
//!
//! An *interval* holds what clients wrote between two of their flushes. A version stays in the ledger when a newer one comes: the
//! origin has to hold it for a while. A segment of the log counts it as something that must go home, so its place is not
//! reused before.

use super::plan::Plan;
use crate::machine::guard::Blocks;
use crate::number::wide;
use crate::units::{Nanos, Place};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One version of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataVersion {
    pub block: u64,
    pub place: Place,
    pub checksum: u32,
}

/// Zeroes that were written over a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZeroVersion {
    pub blocks: Blocks,
    /// The place of the header that recorded them.
    pub place: Place,
    /// So many data versions of the interval are older.
    pub data_before: usize,
}

/// The changes of clients between two of their flushes, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub data: Vec<DataVersion>,
    pub zeroes: Vec<ZeroVersion>,
    /// The sequence of its last batch so far.
    last_sequence: u64,
    /// The time of its first version.
    since: Nanos,
    /// A client's flush ended it, or the engine did.
    is_closed: bool,
}

impl Interval {
    /// Versions in it; zeroes count as one, however many blocks they cover.
    fn versions(&self) -> u64 {
        wide(self.data.len() + self.zeroes.len())
    }

    /// The sequence of its last batch.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }
}

/// The durable word that the last interval which went home is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Durable,
    /// It waits for a batch.
    Waiting,
    /// It is in the batch with this sequence, which no flush covers yet.
    Written(u64),
}

/// The next step of an interval on its way home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is nothing to do before somebody writes or flushes.
    Rest,
    /// The cache has to be flushed up to this sequence.
    FlushCache(u64),
    /// Some of its blocks have yet to be written home.
    Write,
    /// All of it is written home, or what could not be has to be tried again: when what was written is flushed,
    /// [`Ledger::settle`] says which.
    Settle,
}

/// The ledger of one volume.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Oldest first; all but the last are closed.
    intervals: VecDeque<Interval>,
    /// The blocks of the oldest interval that have yet to be written home, once it began to.
    plan: Option<Plan>,
    /// Places of the oldest interval whose content is lost.
    given_up: Vec<Place>,
    /// Some of what was written home of the oldest interval has to be written again.
    is_spoilt: bool,
    versions: u64,
    record: Record,
    /// The next batch with something of the volume begins another interval, for a start as well.
    is_mark_due: bool,
    /// Everything up to this sequence is home.
    home_sequence: u64,
}

impl Ledger {
    /// The ledger of a volume of which everything up to `home_sequence` is home.
    pub fn new(home_sequence: u64) -> Ledger {
        Ledger {
            intervals: VecDeque::new(),
            plan: None,
            given_up: Vec::new(),
            is_spoilt: false,
            versions: 0,
            record: Record::Durable,
            is_mark_due: true,
            home_sequence,
        }
    }

    /// Whether everything is home, and that is durable.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Whether everything is home, and a start after a crash would know.
    pub fn is_settled(&self) -> bool {
        self.is_empty() && self.record == Record::Durable
    }

    /// Versions that are not home.
    pub fn versions(&self) -> u64 {
        self.versions
    }

    /// Intervals that are not home.
    pub fn intervals(&self) -> u64 {
        wide(self.intervals.len())
    }

    /// Since when the oldest version waits.
    pub fn oldest_since(&self) -> Option<Nanos> {
        self.intervals.front().map(|interval| interval.since)
    }

    /// The places of all listed data, and its checksums.
    pub fn places(&self) -> impl Iterator<Item = (Place, u32)> {
        self.intervals
            .iter()
            .flat_map(|interval| interval.data.iter().map(|data| (data.place, data.checksum)))
    }

    /// Takes all intervals, oldest first: the order ends.
    pub fn into_intervals(self) -> impl Iterator<Item = Interval> {
        self.intervals.into_iter()
    }

    fn open(&mut self, sequence: u64, now: Nanos) -> &mut Interval {
        if self.intervals.back().is_none_or(|last| last.is_closed) {
            self.intervals.push_back(Interval { since: now, ..Interval::default() });
        }
        let last = self.intervals.back_mut().expect("there is one now");
        assert!(sequence >= last.last_sequence, "versions come in the order of the log");
        last.last_sequence = sequence;
        last
    }

    /// A batch brought new content of one block after the other, which lies at places from `place` on.
    pub fn wrote(&mut self, sequence: u64, blocks: Blocks, place: Place, checksums: &[u32], now: Nanos) {
        assert!(blocks.count == wide(checksums.len()), "every block has a checksum");
        let interval = self.open(sequence, now);
        for ((block, place), &checksum) in (blocks.first..).zip(place.0..).zip(checksums) {
            interval.data.push(DataVersion { block, place: Place(place), checksum });
        }
        self.versions += blocks.count;
    }

    /// A batch brought zeroes, which its header at `place` records.
    pub fn zeroed(&mut self, sequence: u64, blocks: Blocks, place: Place, now: Nanos) {
        let interval = self.open(sequence, now);
        let data_before = interval.data.len();
        interval.zeroes.push(ZeroVersion { blocks, place, data_before });
        self.versions += 1;
    }

    /// Whether the newest interval is not closed.
    pub fn has_open(&self) -> bool {
        self.intervals.back().is_some_and(|last| !last.is_closed)
    }

    /// Whether an interval that is not closed is the oldest.
    pub fn waits_for_close(&self) -> bool {
        self.intervals.len() == 1 && self.has_open()
    }

    /// Ends the newest interval: what comes later may depend on all of it. It may be ended at any moment: a disk may have all
    /// that was answered up to then.
    pub fn close(&mut self) {
        if let Some(last) = self.intervals.back_mut().filter(|last| !last.is_closed) {
            last.is_closed = true;
            self.is_mark_due = true;
        }
    }

    /// Takes the mark that belongs in front of what a batch has of the volume, if one does: the sequence up to which everything
    /// is home.
    pub fn take_mark(&mut self) -> Option<u64> {
        core::mem::take(&mut self.is_mark_due).then_some(self.home_sequence)
    }

    /// Whether a mark belongs there.
    pub fn is_mark_due(&self) -> bool {
        self.is_mark_due
    }

    /// Takes the next step of the oldest interval; the cache is flushed up to `flushed`.
    pub fn step(&mut self, flushed: u64) -> Step {
        if self.is_recorded(flushed) {
            return self.next_step(flushed);
        }
        match self.record {
            Record::Written(sequence) => Step::FlushCache(sequence),
            Record::Waiting | Record::Durable => Step::Rest,
        }
    }

    /// The same without regard to the record of the interval before.
    pub fn next_step(&mut self, flushed: u64) -> Step {
        let Some(oldest) = self.intervals.front().filter(|oldest| oldest.is_closed) else {
            return Step::Rest;
        };
        if self.plan.is_none() {
            if oldest.last_sequence > flushed {
                return Step::FlushCache(oldest.last_sequence);
            }
            self.plan = Some(Plan::of(oldest, &self.given_up));
        }
        let is_written = self.plan.as_ref().is_some_and(Plan::is_empty);
        if is_written || self.is_spoilt { Step::Settle } else { Step::Write }
    }

    /// The rest of the oldest interval, which has yet to be written home.
    pub fn plan_mut(&mut self) -> Option<&mut Plan> {
        self.plan.as_mut()
    }

    /// Some of the oldest interval was not written home after all, or may be lost.
    pub fn spoil(&mut self) {
        self.is_spoilt |= self.plan.is_some();
    }

    /// The content at a place is lost: it does not go home.
    pub fn give_up(&mut self, place: Place) {
        self.given_up.push(place);
    }

    /// Nothing of the oldest interval is on its way, and the origin was flushed: takes it if it is home. If not, it is written
    /// again from the start.
    pub fn settle(&mut self) -> Option<Interval> {
        let plan = self.plan.take().expect("an interval that is written home has a plan");
        if core::mem::take(&mut self.is_spoilt) {
            return None;
        }
        assert!(plan.is_empty(), "an interval is home when all of it was written");
        self.given_up.clear();
        let home = self.intervals.pop_front()?;
        self.versions -= home.versions();
        self.home_sequence = home.last_sequence;
        self.record = Record::Waiting;
        Some(home)
    }

    /// The record of the sequence up to which everything is home waits for a batch.
    pub fn record_waits(&mut self) {
        self.record = Record::Waiting;
    }

    /// Whether that record is durable; the cache is flushed up to `flushed`.
    pub fn is_recorded(&mut self, flushed: u64) -> bool {
        if let Record::Written(sequence) = self.record
            && sequence <= flushed
        {
            self.record = Record::Durable;
        }
        self.record == Record::Durable
    }

    /// That record is in a batch.
    pub fn recorded(&mut self, sequence: u64) {
        self.record = Record::Written(sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(block: u64) -> Blocks {
        Blocks { first: block, count: 1 }
    }

    #[test]
    fn an_interval_goes_home_when_it_is_closed_and_flushed() {
        let mut ledger = Ledger::new(4);
        assert_eq!(ledger.take_mark(), Some(4), "the first batch of a session begins an interval");
        ledger.wrote(5, one(7), Place(70), &[1], Nanos(1));
        assert_eq!(ledger.step(5), Step::Rest, "it may grow");
        ledger.close();
        assert_eq!(ledger.step(4), Step::FlushCache(5));
        assert_eq!(ledger.step(5), Step::Write);
        ledger.wrote(6, one(7), Place(80), &[2], Nanos(2));
        let plan = ledger.plan_mut().expect("it was made");
        assert_eq!(
            plan.next_data(|_| true, |_| false).expect("one block").versions,
            [(Place(70), 1)],
            "the older version"
        );
        assert_eq!(ledger.step(6), Step::Settle);
        let home = ledger.settle().expect("it is home");
        assert_eq!((home.last_sequence(), ledger.versions()), (5, 1));
        assert_eq!(ledger.step(6), Step::Rest, "the record of that waits");
        ledger.recorded(7);
        ledger.close();
        assert_eq!(ledger.step(6), Step::FlushCache(7));
        assert_eq!(ledger.step(7), Step::Write);
    }

    #[test]
    fn what_was_spoilt_is_written_again() {
        let mut ledger = Ledger::new(0);
        ledger.wrote(1, one(7), Place(70), &[1], Nanos(1));
        ledger.zeroed(1, Blocks { first: 100, count: 50 }, Place(69), Nanos(1));
        ledger.close();
        assert_eq!(ledger.step(1), Step::Write);
        let plan = ledger.plan_mut().expect("it was made");
        assert!(plan.next_data(|_| true, |_| false).is_some() && plan.next_zeroes(|_| true, 64).is_some());
        ledger.spoil();
        assert_eq!(ledger.step(1), Step::Settle);
        assert!(ledger.settle().is_none());
        assert_eq!(ledger.step(1), Step::Write);
        ledger.give_up(Place(70));
        ledger.spoil();
        assert!(ledger.settle().is_none());
        assert_eq!(ledger.step(1), Step::Write);
        let plan = ledger.plan_mut().expect("it was made");
        assert!(plan.next_data(|_| true, |_| false).is_none(), "its content is lost");
    }
}
