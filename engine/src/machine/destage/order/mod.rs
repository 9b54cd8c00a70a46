//! Strict order (rule 14): an origin goes from one flushed state of its volume to the next.
//!
//! A FLUSH, or a write with FUA, that was answered ends an *interval* of its volume. Within an interval blocks may go home in any
//! order, as a disk may write them. So the oldest interval goes home in the order of the origin, the newest version of each
//! block in it; then the origin is flushed; then the log gets a record that all up to there is home; and when that is durable
//! the next interval begins to go home. At every moment the origin holds all intervals up to one, and a part of the next: what
//! a disk may hold after a power cut.
//!
//! Nothing goes around the cache meanwhile, and older versions stay until they are home ([`ledger`]). A batch that begins another
//! interval says so in the log, or after a crash two of them would go home as one.

pub(crate) mod ledger;
pub(crate) mod plan;
mod switch;

use crate::effect::IoOp;
use crate::limits::{Config, OrderBounds};
use crate::machine::Machine;
use crate::machine::destage::run::{Copied, Run};
use crate::machine::destage::state::DestageState;
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::volume::{Standing, Volume};
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::status::OrderStatus;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Nanos, Place, VolumeIndex};
use alloc::vec::Vec;
use ledger::Step;

/// Blocks of zeroes that one operation brings home at the most: 64 MiB.
pub(crate) const ZERO_BLOCKS_MAX: u64 = 16_384;
/// The part of the bound of the lag after which an interval that no client ends is ended.
const CLOSE_PART: u64 = 8;

impl Volume {
    /// Whether the volume goes home in strict order.
    pub fn is_ordered(&self) -> bool {
        self.destage.order.is_some()
    }

    /// Whether a change has to wait until older ones are home: they are too many, or the oldest waits for too long.
    pub fn is_behind(&self, bounds: OrderBounds, blocks: u64, now: Nanos) -> bool {
        let Some(ledger) = &self.destage.order else { return false };
        let is_late = ledger.oldest_since().is_some_and(|since| now.since(since) >= bounds.lag_ns);
        let held = ledger.versions() + self.reserved_blocks;
        is_late || (held > 0 && held + blocks > bounds.lag_blocks)
    }

    /// Whether half of what a bound of the lag allows is used up.
    fn is_half_behind(&self, bounds: OrderBounds, now: Nanos) -> bool {
        let Some(ledger) = &self.destage.order else { return false };
        let is_late = ledger.oldest_since().is_some_and(|since| now.since(since) >= bounds.lag_ns / 2);
        is_late || ledger.versions() >= bounds.lag_blocks / 2
    }
}

impl<S: Store> Machine<S> {
    /// Whether what goes around the cache would be at the origin before what was written earlier.
    #[cold]
    #[inline(never)]
    pub(crate) fn would_overtake(&self, index: VolumeIndex) -> bool {
        let ledger = self.volume(index).destage.order.as_ref();
        ledger.is_some_and(|ledger| !ledger.is_settled()) && !self.is_mutated(Mutation::DiscardOvertakes)
    }

    /// How far the origin of a volume lags behind.
    pub(crate) fn order_status(&self, volume: &Volume) -> Option<OrderStatus> {
        let (ledger, bounds) = (volume.destage.order.as_ref()?, self.config.order?);
        Some(OrderStatus {
            lag_bytes: ledger.versions() * BLOCK_BYTES,
            lag_limit_bytes: bounds.lag_blocks * BLOCK_BYTES,
            lag_ns: ledger.oldest_since().map_or(0, |since| self.now.since(since)),
            lag_limit_ns: bounds.lag_ns,
            intervals: ledger.intervals(),
        })
    }

    /// A FLUSH or a write with FUA is about to be answered: what its client sends after that may rely on all before it.
    pub(crate) fn interval_ends(&mut self, index: VolumeIndex) {
        if self.is_mutated(Mutation::IntervalsJoined) {
            return;
        }
        if let Some(ledger) = self.volumes.get_mut(index).and_then(|volume| volume.destage.order.as_mut()) {
            ledger.close();
        }
    }

    /// Goes on with what is on its way home in strict order.
    pub(super) fn destage_in_order<M: Memory>(&mut self, index: VolumeIndex, memory: &mut M) {
        if self.latched.is_some() || self.now < self.volume(index).destage.look_again {
            return;
        }
        let Some(bounds) = self.config.order else { return };
        let is_needed = self.is_order_needed(index, bounds);
        let is_close_due = is_needed || self.is_close_due(self.volume(index), bounds);
        let runs_max = self.runs_in_order(self.volume(index), is_needed);
        let flushed = self.barrier.flushed;
        let skips_record = self.is_mutated(Mutation::IntervalBeforeRecord);
        let volume = self.volume_mut(index);
        let Some(ledger) = &mut volume.destage.order else { return };
        if ledger.waits_for_close() && is_close_due {
            ledger.close();
        }
        let mut step = if skips_record { ledger.next_step(flushed) } else { ledger.step(flushed) };
        if let Step::FlushCache(sequence) = step {
            // HAZARD 4: nothing goes home before a flush of the cache covers it.
            self.barrier.want(sequence);
            self.pump_barrier();
            return;
        }
        while step == Step::Write
            && self.volume(index).destage.in_flight < runs_max
            && self.start_version_run(index, memory)
        {
            step = self.volume_mut(index).destage.order.as_mut().map_or(Step::Rest, |l| l.next_step(flushed));
        }
        let volume = self.volume(index);
        if volume.destage.in_flight > 0 {
            return;
        }
        let is_settling = step == Step::Settle;
        if volume.destage.has_written() && (is_settling || volume.origin.is_failing()) {
            if self.is_mutated(Mutation::IntervalUnflushed) && volume.origin.flushing.is_none() {
                self.volume_mut(index).destage.flush_begins();
                self.destaged_durably(index);
                self.settle_interval(index);
            } else {
                let epoch = volume.origin.epoch;
                self.want_origin_flush(index, epoch);
            }
        } else if is_settling {
            self.settle_interval(index);
        }
    }

    /// Nothing of the oldest interval is on its way, and the origin was flushed.
    fn settle_interval(&mut self, index: VolumeIndex) {
        if self.volume(index).destage.has_written() {
            return;
        }
        let destage = &mut self.volume_mut(index).destage;
        let home = destage.order.as_mut().and_then(|ledger| ledger.settle());
        destage.count_listed();
        if let Some(home) = home {
            S::interval_is_home(self, index, &home);
            self.share.wake();
        }
        self.want_tick(self.now);
    }

    /// Whether somebody waits for the volume's dirty data to go home.
    fn is_order_needed(&self, index: VolumeIndex, bounds: OrderBounds) -> bool {
        let pressure = S::pressure(self);
        let volume = self.volume(index);
        volume.needs_destage(pressure, self.config.extents_max)
            || pressure.is_short
            || volume.is_half_behind(bounds, self.now)
    }

    /// Whether an interval that no client ends is to be ended.
    fn is_close_due(&self, volume: &Volume, bounds: OrderBounds) -> bool {
        let since = volume.destage.order.as_ref().and_then(|ledger| ledger.oldest_since());
        since.is_some_and(|since| self.now.since(since) >= bounds.lag_ns / CLOSE_PART)
            || self.now.since(self.last_client) >= self.config.idle_ns
    }

    /// Runs that may be on their way home now. An interval that waits gains nothing by waiting longer, so they go on all the
    /// time: all at once where somebody waits for them, half as many otherwise, and one by one beside clients that read from the
    /// origin.
    fn runs_in_order(&self, volume: &Volume, is_needed: bool) -> u32 {
        let Config { destage_runs_max, .. } = self.config;
        let is_served = matches!(volume.standing, Standing::Cached | Standing::Detaching);
        if !is_served || self.is_stopping || self.now < volume.origin.backoff_until {
            return 0;
        }
        if volume.origin.is_failing() {
            // One run tests whether the origin works again; its flush tests whether the data stays there.
            return u32::from(!volume.destage.has_written());
        }
        match (is_needed, volume.origin.was_read(self.now)) {
            (true, _) => destage_runs_max,
            (false, false) => destage_runs_max.div_ceil(2),
            (false, true) => u32::from(self.now >= volume.destage.pause_until),
        }
    }

    /// Starts one more run of the oldest interval; false if there is none to start now.
    fn start_version_run<M: Memory>(&mut self, index: VolumeIndex, memory: &mut M) -> bool {
        let Volume { guard, destage: DestageState { order, unreadable, .. }, .. } =
            self.volumes.of_mut(index);
        let Some(plan) = order.as_mut().and_then(|ledger| ledger.plan_mut()) else { return false };
        // Blocks of the same region may be on their way home: of one interval each block goes home once.
        let may_go = |blocks| guard.allows_home(blocks);
        if let Some((blocks, place)) = plan.next_zeroes(may_go, ZERO_BLOCKS_MAX) {
            self.send_zeroes(index, blocks, place);
            return true;
        }
        let Some(run) = plan.next_data(may_go, |block| unreadable.has(block)) else { return false };
        let newest = self.is_mutated(Mutation::NewestGoesHome);
        let version_of = |(block, &(place, checksum)): (u64, &(Place, u32))| {
            let newest = newest.then(|| self.store.lookup(self.volume(index).key(block))).flatten();
            newest.map_or((place, Some(checksum)), |newest| (newest.place, newest.checksum))
        };
        let versions: Vec<_> = (run.blocks.first..).zip(&run.versions).map(version_of).collect();
        if self.send_versions(index, run.blocks, &versions, memory) {
            return true;
        }
        if let Some(plan) = self.volume_mut(index).destage.order.as_mut().and_then(|ledger| ledger.plan_mut())
        {
            plan.put_back(run);
        }
        false
    }

    /// Writes zeroes home that the header at `place` recorded. The caller saw that they may go.
    pub(crate) fn send_zeroes(&mut self, index: VolumeIndex, blocks: Blocks, place: Place) {
        let life = self.store.life(place);
        let volume = self.volume_mut(index);
        volume.guard.acquire(blocks, Hold::Destaging);
        volume.destage.in_flight += 1;
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        let (offset_bytes, len_bytes) = volume.origin_bytes(blocks.first, blocks.count);
        let copy = Copied { first: blocks.first, blocks: to_u32(blocks.count), place, life, is_zero: true };
        let run = self.runs.insert(Run::of_zeroes(index, copy));
        let op = IoOp::WriteZeroes { offset_bytes, len_bytes };
        self.issue_origin_write(index, blocks, op, Flight::DestageWrite { run });
    }
}
