//! Buckets are given up so that others can be filled.

use super::super::{InternalAppend, LogStore};
use super::KeyAppend;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::units::{BlockKey, Nanos};
use alloc::vec::Vec;

/// Dirty buckets that are listed at a time, when clients wait for one.
const LISTED_MAX: usize = 16;
/// How often those are looked at again.
const LOOK_AGAIN_NS: u64 = 5 * Nanos::MILLISECOND;

impl Machine<LogStore> {
    /// Gives buckets up where few are free, and takes the next step with those that leave.
    pub(super) fn pump_buckets(&mut self) {
        self.give_up_buckets();
        let flushed = self.barrier.flushed;
        let LogStore { appender, segments, log, .. } = &mut self.store;
        let keys = appender.keys_mut();
        let was_free = keys.buckets.free();
        keys.buckets.free_flushed(flushed, segments);
        let (wanted, needs_header) = keys.buckets.wanted(flushed);
        // RULE 1: the bucket's leave is durable, and a durable header says so, before it is filled again.
        log.is_floor_wanted |= needs_header && !self.is_stopping;
        if let Some(wanted) = wanted {
            self.barrier.want(wanted);
        }
        if keys.buckets.free() > was_free {
            keys.is_starved = false;
        }
        let is_starved = keys.is_starved;
        if wanted.is_some() {
            // This turn's flushes were looked at already, and nothing else need be to come.
            self.pump_barrier();
        }
        if is_starved {
            self.hurry_buckets();
        }
    }

    /// Drops what clean buckets hold, as many as are needed.
    pub(super) fn give_up_buckets(&mut self) {
        if self.is_stopping || self.latched.is_some() || self.superblock.clean_stop {
            return;
        }
        let now = self.now;
        let LogStore { appender, segments, index, .. } = &mut self.store;
        let keys = appender.keys_mut();
        let low = keys.buckets.free_low();
        if keys.buckets.has_leaving() || now < keys.look_again {
            return;
        }
        // RULE 15: an index near its budget gives buckets up early.
        if keys.buckets.free() >= low && !index.is_near_budget(self.config.index_slack_blocks) {
            return;
        }
        if keys.is_starved {
            keys.buckets.close_all();
        }
        keys.buckets.advance(now);
        keys.buckets.tell_live(segments);
        keys.look_again = now.plus(LOOK_AGAIN_NS);
        // Two lows at a time: each time costs two flushes.
        for _ in 0..low * 2 {
            let LogStore { appender, segments, .. } = &mut self.store;
            let keys = appender.keys_mut();
            let Some((bucket, held)) = keys.buckets.give_up(segments) else { break };
            for held in held {
                let mut run: Option<Blocks> = None;
                for step in 0..u64::from(held.blocks) {
                    let key = BlockKey(held.first.0 + step);
                    let is_here = self
                        .store
                        .index
                        .get(key)
                        .is_some_and(|entry| u64::from(entry.place.0) == u64::from(held.place.0) + step);
                    match (&mut run, is_here) {
                        (Some(run), true) => run.count += 1,
                        (None, true) => run = Some(Blocks { first: key.block(), count: 1 }),
                        (_, false) => {
                            if let Some(run) = run.take() {
                                self.drop_entries(held.first.volume(), run);
                            }
                        }
                    }
                }
                if let Some(run) = run {
                    self.drop_entries(held.first.volume(), run);
                }
            }
            self.store.log.push_internal(InternalAppend::Keys(KeyAppend::Freed { bucket }));
        }
    }

    /// Clients wait for a bucket: what is dirty in those with least of it goes home first.
    fn hurry_buckets(&mut self) {
        self.want_tick(self.now.plus(LOOK_AGAIN_NS));
        if self.volumes.iter().flatten().any(|volume| volume.destage.has_urgent()) {
            return;
        }
        let LogStore { appender, segments, index, .. } = &self.store;
        let keys = appender.keys();
        let mut urgent: [Vec<u64>; crate::units::VOLUMES_MAX] = Default::default();
        for held in keys.buckets.nearly_clean(LISTED_MAX, segments) {
            for step in 0..u64::from(held.blocks) {
                let key = BlockKey(held.first.0 + step);
                if index.get(key).is_some_and(|entry| entry.dirty) {
                    urgent[key.volume().at()].push(key.block());
                }
            }
        }
        for (volume, blocks) in self.volumes.iter_mut().zip(urgent) {
            if let Some(volume) = volume
                && !blocks.is_empty()
            {
                volume.destage.set_urgent(blocks);
            }
        }
    }
}
