//! Fills wait for each other, and enter the log in long runs.
//!
//! Nobody waits for a fill, so it may wait for others: in one batch they share a header, and what was read in a row lies in a
//! row, which a device reads back faster. A write does not pay for that: it takes few fills along, and while clients
//! write, batches of fills are short.
//!
//! A fill that waits holds nothing but its buffer: what happens to its blocks meanwhile makes it void (hazard 1).

use crate::machine::Machine;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::store::log::LogStore;
use crate::store::log::draft::Draft;
use crate::store::log::fills::Fill;
use crate::store::log::room::BATCH_BLOCKS_MAX;
use crate::units::Nanos;
use alloc::collections::VecDeque;

/// Fills that keep so much of clients' memory need not wait for more.
const KEPT_BYTES_ENOUGH: u64 = 4 << 20;
/// Blocks of fills in a batch while clients write: 128 KiB.
const BLOCKS_BESIDE_WRITES: u64 = 32;
/// Blocks of fills that a write takes along: 32 KiB.
const BLOCKS_WITH_WRITES: u64 = 8;

/// Fills that wait for each other.
#[derive(Debug, Default)]
pub(in crate::store::log) struct Gathering {
    waiting: VecDeque<Fill>,
    blocks: u64,
    kept_bytes: u64,
    /// When those that wait for nothing but others go without.
    until: Option<Nanos>,
}

/// How many blocks of fills a batch may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Few: a write takes them along.
    Few,
    /// A short run, beside writes.
    Short,
    /// All.
    All,
}

impl Gathering {
    #[inline]
    pub(in crate::store::log) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::store::log) fn iter(&self) -> impl Iterator<Item = &Fill> {
        self.waiting.iter()
    }

    /// When to ask again whether they may go, if nothing else happens before.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.until
    }

    /// Nobody is to ask again.
    #[inline]
    pub(in crate::store::log) fn clear_deadline(&mut self) {
        self.until = None;
    }

    /// Whether those that wait need not wait for more. If they do, it is to be asked again in time.
    fn are_due(&mut self, now: Nanos, blocks_enough: u64, wait_ns_max: u64) -> bool {
        self.until = None;
        let Some(first) = self.waiting.front() else { return false };
        let until = first.since.plus(wait_ns_max);
        let are_enough = self.blocks >= blocks_enough || self.kept_bytes >= KEPT_BYTES_ENOUGH;
        let are_due = are_enough || now >= until;
        if !are_due {
            self.until = Some(until);
        }
        are_due
    }

    fn push(&mut self, fill: Fill) {
        self.blocks += fill.blocks.count;
        self.kept_bytes += fill.kept_bytes;
        self.waiting.push_back(fill);
    }

    fn push_front(&mut self, fill: Fill) {
        self.blocks += fill.blocks.count;
        self.kept_bytes += fill.kept_bytes;
        self.waiting.push_front(fill);
    }

    pub(in crate::store::log) fn pop(&mut self) -> Option<Fill> {
        let fill = self.waiting.pop_front()?;
        self.blocks -= fill.blocks.count;
        self.kept_bytes -= fill.kept_bytes;
        if self.waiting.is_empty() {
            self.until = None;
        }
        Some(fill)
    }
}

impl Machine<LogStore> {
    /// Takes a fill that waits for others. One that is known already is not taken twice.
    pub(in crate::store::log) fn gather_fill<M: Memory>(&mut self, fill: Fill, memory: &mut M) {
        let is_known = |other: &Fill| {
            (other.volume, other.blocks, other.stamp) == (fill.volume, fill.blocks, fill.stamp)
        };
        if self.store.appender.inline_mut().gathering.iter().any(is_known) {
            return;
        }
        let Fill { volume, blocks, stamp, .. } = fill;
        let is_blind = self.is_mutated(Mutation::FillAfterChange);
        let epoch = self.trusted_epoch(self.volume(volume));
        let target = self.volume_mut(volume);
        // HAZARD 1: nothing happened here since the read began; from now on it is watched.
        if !target.guard.is_as_stamped(stamp, epoch) && !is_blind {
            target.counters.fill_dropped_blocks += blocks.count;
            return;
        }
        let watch = Some(target.guard.watch(blocks));
        memory.retain(fill.slice.buffer);
        self.store.log.pending_fill_blocks += blocks.count;
        self.store.appender.inline_mut().gathering.push(Fill { watch, ..fill });
    }

    /// Whether clients have written nothing for a while.
    fn is_write_quiet(&mut self) -> bool {
        self.now.since(self.store.appender.inline_mut().group_commit.last_arrival())
            >= self.config.fill_wait_ns_max
    }

    /// Whether fills may go now without waiting for more.
    pub(in crate::store::log) fn are_fills_due(&mut self) -> bool {
        let blocks_enough =
            if self.is_write_quiet() { u64::from(BATCH_BLOCKS_MAX) } else { BLOCKS_BESIDE_WRITES };
        let (now, wait_ns_max) = (self.now, self.config.fill_wait_ns_max);
        let is_ending = self.is_stopping;
        self.store.appender.inline_mut().gathering.are_due(now, blocks_enough, wait_ns_max) || is_ending
    }

    /// Puts fills into a batch that has the log's own work and clients' writes already.
    pub(in crate::store::log) fn take_fills<M: Memory>(&mut self, draft: &mut Draft, memory: &mut M) {
        if self.store.appender.inline_mut().gathering.is_empty() {
            return;
        }
        let share = match (self.are_fills_due(), draft.entries.is_empty() && self.is_write_quiet()) {
            (true, true) => Share::All,
            (true, false) => Share::Short,
            (false, _) => Share::Few,
        };
        let mut left = match share {
            Share::All => u64::from(BATCH_BLOCKS_MAX),
            Share::Short => BLOCKS_BESIDE_WRITES,
            Share::Few => BLOCKS_WITH_WRITES,
        };
        let mut is_first = true;
        while draft.has_units() && draft.room() > 0 {
            let Some(fill) = self.store.appender.inline_mut().gathering.pop() else { break };
            // The one that is due is not held up by its length.
            if fill.blocks.count > left && share != Share::All && !(share == Share::Short && is_first) {
                self.store.appender.inline_mut().gathering.push_front(fill);
                break;
            }
            is_first = false;
            left = left.saturating_sub(fill.blocks.count);
            if let Some(rest) = self.append_fill(fill, draft, memory) {
                self.store.appender.inline_mut().gathering.push_front(rest);
            }
        }
    }

    /// Gives up the fills that wait: there is no room for them.
    pub(in crate::store::log) fn drop_fills<M: Memory>(&mut self, memory: &mut M) {
        while let Some(fill) = self.store.appender.inline_mut().gathering.pop() {
            self.store.log.pending_fill_blocks -= fill.blocks.count;
            if let Some(volume) = &mut self.volumes[fill.volume.at()] {
                volume.counters.read_bypasses.pressure_blocks += fill.blocks.count;
                if let Some(watch) = fill.watch {
                    volume.guard.unwatch(watch);
                }
            }
            memory.release(fill.slice.buffer);
        }
        self.store.appender.inline_mut().gathering.clear_deadline();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::guard::Blocks;
    use crate::memory::{BufferId, Slice};
    use crate::units::{BLOCK_BYTES, VolumeIndex};
    use std::vec::Vec;

    const WAIT_NS: u64 = 10 * Nanos::MILLISECOND;

    fn fill(first: u64, count: u64, since: Nanos) -> Fill {
        let stamp = crate::machine::guard::Guard::new(6)
            .stamp(Blocks { first, count }, 0)
            .expect("nothing is written");
        let slice = Slice { buffer: BufferId(1), offset_bytes: 0, len_bytes: (count * BLOCK_BYTES) as u32 };
        let kept_bytes = 256 << 10;
        Fill {
            volume: VolumeIndex(0),
            blocks: Blocks { first, count },
            slice,
            stamp,
            watch: None,
            kept_bytes,
            since,
        }
    }

    #[test]
    fn fills_wait_for_a_run_for_memory_or_a_while() {
        let now = Nanos(Nanos::SECOND);
        let mut gathering = Gathering::default();
        assert!(!gathering.are_due(now, 256, WAIT_NS) && gathering.deadline().is_none());
        gathering.push(fill(0, 32, now));
        assert!(!gathering.are_due(now, 256, WAIT_NS));
        assert_eq!(gathering.deadline(), Some(now.plus(WAIT_NS)));
        assert!(gathering.are_due(now.plus(WAIT_NS), 256, WAIT_NS) && gathering.deadline().is_none());
        assert!(gathering.are_due(now, 32, WAIT_NS), "short runs will do beside writes");
        (1..8).for_each(|step| gathering.push(fill(step * 32, 32, now)));
        assert!(gathering.are_due(now, 256, WAIT_NS));
        let mut gathering = Gathering::default();
        for step in 0..KEPT_BYTES_ENOUGH / (256 << 10) {
            assert!(!gathering.are_due(now, 256, WAIT_NS));
            gathering.push(fill(step * 2, 1, now));
        }
        assert!(gathering.are_due(now, 256, WAIT_NS));
    }

    #[test]
    fn what_waits_is_counted() {
        let mut gathering = Gathering::default();
        gathering.push(fill(0, 8, Nanos(0)));
        gathering.push(fill(8, 4, Nanos(0)));
        let first = gathering.pop().expect("two wait");
        assert_eq!((first.blocks.first, gathering.blocks), (0, 4));
        assert!(!gathering.are_due(Nanos(0), 256, WAIT_NS) && gathering.deadline().is_some());
        gathering.push_front(first);
        assert_eq!(gathering.iter().map(|fill| fill.blocks.first).collect::<Vec<_>>(), [0, 8]);
        assert_eq!(gathering.blocks, 12);
        // Writes took them along: nobody has anything to ask for.
        while gathering.pop().is_some() {}
        assert_eq!((gathering.deadline(), gathering.blocks, gathering.kept_bytes), (None, 0, 0));
    }
}
