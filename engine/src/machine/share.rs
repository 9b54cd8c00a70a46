//! What a volume may hold dirty: the second half of rule 9.
//!
//! What an origin does not take stays in the log, and is appended again on every lap of the ring. The
//! more of it there is, the less of a lap is left for everybody else. So:
//!
//! | the origin | the volume may hold dirty | a write that needs more |
//! | --- | --- | --- |
//! | works, no other volume on the cache | the whole cache | waits in the log for room |
//! | works, with other volumes | three quarters of it | waits here until something went home |
//! | fails | its part of one half of it | waits here for the origin |
//! | is absent | the same | fails |
//!
//! One half, because then each block that the other volumes append costs at most one block that is appended
//! again; its part, because all origins may fail together. Three quarters, because an origin that hangs
//! gives its first error late: what its volume holds by then must leave a lap something to gain.
//!
//! An origin counts as absent when it still fails a stated time after its first error, or when it says that there
//! is no device any more. Until then a write waits and does not fail (hazard 12): the origin may take it yet. A
//! write to blocks that are dirty already needs nothing more and is never held up. An operation of ours
//! that works, of the kind that failed, ends it all.
//!
//! Whoever waits here holds its blocks shared or merging, which neither a destage nor a relocation waits
//! for.

use crate::effect::{Errno, RequestOp};
use crate::limits::REQUEST_BYTES_MAX;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::{Origin, Volume};
use crate::memory::Memory;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Nanos, VolumeIndex};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A share is no less than what one request may need.
const SHARE_BLOCKS_MIN: u64 = REQUEST_BYTES_MAX as u64 / BLOCK_BYTES;

/// Our own operations on an origin, by what their failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginWork {
    /// A destage.
    Write,
    /// A flush.
    Flush,
    /// A look at a well-known place, at a clean stop.
    Look,
}

/// The kinds of work that failed last time, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    since: Nanos,
    /// By [`OriginWork`].
    kinds: [bool; 3],
    /// It fails for so long, or so surely, that nobody waits for it.
    is_absent: bool,
}

impl Origin {
    /// Whether it fails.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Whether it fails and is not waited for.
    pub fn is_absent(&self) -> bool {
        self.failing.is_some_and(|failing| failing.is_absent)
    }

    /// Notes a failure of ours at `now`. Only a failure makes an origin absent, never time alone: one
    /// that nobody tried again may work.
    pub fn note_failure(&mut self, work: OriginWork, errno: Errno, now: Nanos, absent_after_ns: u64) {
        let failing = self.failing.get_or_insert(Failing { since: now, kinds: [false; 3], is_absent: false });
        failing.kinds[work as usize] = true;
        failing.is_absent |= errno == Errno::NODEV || now.since(failing.since) >= absent_after_ns;
    }

    /// Notes that work of a kind succeeded; true if the origin was failing and is not any more.
    pub fn note_success(&mut self, work: OriginWork) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        failing.kinds[work as usize] = false;
        let is_over = failing.kinds == [false; 3];
        if is_over {
            self.failing = None;
        }
        is_over
    }
}

/// The requests that wait for their volume's share.
#[derive(Debug, Default)]
pub(crate) struct ShareQueue {
    /// In [`Stage::Share`], first come first.
    waiting: VecDeque<RequestKey>,
    /// Volumes whose origins began to fail, or became absent: what they have queued for the log is looked at
    /// again.
    failed: Vec<VolumeIndex>,
    /// Whether something happened that may let somebody go on.
    is_changed: bool,
}

impl ShareQueue {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something happened that may let somebody go on, or makes waiting hopeless.
    pub fn wake(&mut self) {
        self.is_changed = true;
    }

    /// An origin that worked failed, or one that failed is absent.
    pub fn origin_got_worse(&mut self, volume: VolumeIndex) {
        self.failed.push(volume);
        self.is_changed = true;
    }
}

/// Whether a change may enter the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    Waits,
    Refused(Errno),
}

impl<S: Store> Machine<S> {
    /// Dirty blocks that `volume` may hold now; `None` if only the log's room limits it.
    pub(crate) fn dirty_blocks_max(&self, volume: &Volume) -> Option<u64> {
        let others = || self.volumes[..self.volumes_end].iter().flatten();
        if volume.origin.is_failing() {
            let part = self.config.failing_dirty_blocks_max / others().count() as u64;
            Some(part.max(SHARE_BLOCKS_MIN))
        } else if others().nth(1).is_some() {
            Some(self.config.shared_dirty_blocks_max.max(SHARE_BLOCKS_MIN))
        } else {
            None
        }
    }

    /// Whether so much cannot go home that a lap of the ring would gain next to nothing: appending it again
    /// would only wear the device out.
    pub(crate) fn is_ring_stuck(&self) -> bool {
        let stuck = self.volumes[..self.volumes_end].iter().flatten();
        let blocks: u64 =
            stuck.filter(|volume| volume.origin.is_failing()).map(|volume| volume.dirty_blocks).sum();
        blocks > self.config.shared_dirty_blocks_max
    }

    /// Lets a change into the log, or puts it on the queue, or fails it. True if it may go on.
    pub(crate) fn pass_share<M: Memory>(&mut self, key: RequestKey, memory: &mut M) -> bool {
        self.release_share(key, u64::MAX);
        let (admission, needed) = self.admission(key);
        match admission {
            Admission::Granted => {
                let active = &mut self.requests[key];
                active.reserved_blocks = needed;
                let volume = active.volume;
                self.volume_mut(volume).reserved_blocks += needed;
                true
            }
            Admission::Waits => {
                let active = &mut self.requests[key];
                active.stage = Stage::Share;
                let volume = active.volume;
                self.volume_mut(volume).share_waiting += 1;
                self.share.waiting.push_back(key);
                self.want_tick(self.now.plus(self.config.tick_ns));
                false
            }
            Admission::Refused(errno) => {
                self.fail(key, errno, memory);
                false
            }
        }
    }

    /// Whether a change may enter the log, and how many dirty blocks that may add.
    fn admission(&self, key: RequestKey) -> (Admission, u64) {
        let active = &self.requests[key];
        let volume = self.volume(active.volume);
        let is_zero = matches!(active.op, RequestOp::WriteZeroes { .. });
        // Of a range of zeroes only the edges are data.
        let most = if is_zero { active.blocks.count.min(2) } else { active.blocks.count };
        let Some(limit) = self.dirty_blocks_max(volume) else { return (Admission::Granted, most) };
        let is_failing = volume.origin.is_failing();
        let held = volume.dirty_blocks + volume.reserved_blocks;
        if !is_failing && volume.share_waiting == 0 && held + most <= limit {
            return (Admission::Granted, most);
        }
        let needed = self.clean_blocks(key);
        // Whole zeroes are extents, of which all volumes together may have so many.
        let is_out_of_extents = is_zero && S::pressure(self).extents * 2 >= self.config.extents_max;
        // Where nothing is left that could tell whether the origin works again, this change will.
        let is_tried = volume.has_destageable() || volume.destage.has_written();
        let is_over = (needed > 0 && held + needed > limit)
            || (is_failing && is_tried && (is_out_of_extents || self.is_ring_stuck()));
        let admission = if !is_over && (needed == 0 || volume.share_waiting == 0) {
            Admission::Granted
        } else if is_over && volume.origin.is_absent() {
            Admission::Refused(Errno::IO)
        } else if self.is_stopping {
            Admission::Refused(Errno::SHUTDOWN)
        } else {
            Admission::Waits
        };
        (admission, needed)
    }

    /// Blocks that a change makes dirty and that are not yet.
    fn clean_blocks(&self, key: RequestKey) -> u64 {
        let active = &self.requests[key];
        let volume = self.volume(active.volume);
        let is_clean =
            |block: &u64| !self.store.lookup(volume.key(*block)).is_some_and(|cached| cached.dirty);
        let Blocks { first, count } = active.blocks;
        match active.op {
            RequestOp::WriteZeroes { range, .. } => {
                let inner = self.whole_blocks(active.volume, range);
                let edges = (count > inner.count).then_some([first, first + count - 1]);
                let mut edges: Vec<u64> = edges.into_iter().flatten().collect();
                edges.dedup();
                edges.retain(|&block| inner.count == 0 || !(inner.first..inner.end()).contains(&block));
                edges.iter().filter(|block| is_clean(block)).count() as u64
            }
            _ => (first..first + count).filter(is_clean).count() as u64,
        }
    }

    /// Gives back what a request has reserved and not used.
    pub(crate) fn release_share(&mut self, key: RequestKey, blocks_max: u64) {
        let active = &mut self.requests[key];
        let blocks = active.reserved_blocks.min(blocks_max);
        if blocks == 0 {
            return;
        }
        active.reserved_blocks -= blocks;
        let volume = active.volume;
        let volume = self.volume_mut(volume);
        assert!(volume.reserved_blocks >= blocks, "what is given back was reserved");
        volume.reserved_blocks -= blocks;
    }

    /// Looks again at those who wait, if something happened that concerns them.
    pub(crate) fn retry_shares<M: Memory>(&mut self, memory: &mut M) {
        if !core::mem::take(&mut self.share.is_changed) {
            return;
        }
        for volume in core::mem::take(&mut self.share.failed) {
            S::withdraw(self, volume, memory);
        }
        for volume in self.volumes.iter_mut().flatten() {
            volume.share_waiting = 0;
        }
        // Who still has to wait joins the queue again, and who comes behind it of the same volume does too.
        for key in core::mem::take(&mut self.share.waiting) {
            assert!(self.requests[key].stage == Stage::Share);
            self.begin_change(key, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Nanos::SECOND;

    fn fail(origin: &mut Origin, work: OriginWork, second: u64) {
        origin.note_failure(work, Errno::IO, Nanos(second * SECOND), 30 * SECOND);
    }

    #[test]
    fn only_a_failure_that_comes_late_makes_an_origin_absent() {
        let mut origin = Origin::new();
        assert!(!origin.is_failing());
        fail(&mut origin, OriginWork::Write, 5);
        fail(&mut origin, OriginWork::Write, 34);
        assert!(origin.is_failing() && !origin.is_absent());
        fail(&mut origin, OriginWork::Write, 35);
        assert!(origin.is_absent());
        assert!(origin.note_success(OriginWork::Write));
        fail(&mut origin, OriginWork::Write, 100);
        assert!(!origin.is_absent(), "the time begins anew");
    }

    #[test]
    fn a_success_of_another_kind_heals_nothing() {
        let mut origin = Origin::new();
        fail(&mut origin, OriginWork::Write, 0);
        fail(&mut origin, OriginWork::Flush, 1);
        assert!(!origin.note_success(OriginWork::Write));
        fail(&mut origin, OriginWork::Flush, 30);
        assert!(origin.is_absent(), "writes that are never flushed are not home");
        assert!(origin.note_success(OriginWork::Flush));
        assert!(!origin.is_failing());
    }

    #[test]
    fn an_origin_without_a_device_is_absent_at_once() {
        let mut origin = Origin::new();
        origin.note_failure(OriginWork::Write, Errno::NODEV, Nanos(1), 30 * SECOND);
        assert!(origin.is_absent());
    }
}
