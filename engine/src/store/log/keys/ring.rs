//! From a bucket to the ring: keys become entries of a batch.

use super::super::assembly::BATCHES_IN_FLIGHT_MAX;
use super::super::draft::{Draft, Placing, range_entry};
use super::super::{LogStore, Publish};
use super::{Key, KeyPublish, KeyState, Keys, Source};
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::Route;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::{index, to_u32, wide};
use crate::store::log::index::Entry as Cached;
use crate::units::{BlockKey, Place, VolumeId};
use alloc::vec::Vec;

/// Checksums of a batch's keys at the most, and where a segment has little room left.
const CHECKSUMS_MAX: u32 = 256;
const CHECKSUMS_MAX_SHORT: u32 = 128;
/// Keys that are worth a batch although one is in flight.
const GROUP_KEYS: usize = 64;

impl Machine<LogStore> {
    /// Sends off what is pending: data to buckets, keys to the ring.
    pub(in crate::store::log) fn assemble_keys<M: Memory>(&mut self, memory: &mut M) {
        loop {
            self.apply_keys(memory);
            self.place_data(memory);
            let keys = self.store.appender.keys();
            let log = &self.store.log;
            let ready = keys.ready();
            let is_pending = ready > 0 || log.has_internal() || log.is_floor_wanted;
            let in_flight = log.in_flight.len();
            let is_waited_for = self.requests.any_for_blocks() || log.has_internal() || log.is_floor_wanted;
            let until = keys.may_wait_until(self.now, ready).filter(|_| !is_waited_for);
            if let Some(until) = until {
                self.want_tick(until);
                return;
            }
            let may_go = in_flight == 0 || ready >= GROUP_KEYS;
            let is_full = in_flight >= BATCHES_IN_FLIGHT_MAX;
            let is_stopped = is_full || self.latched.is_some();
            if !is_pending || !may_go || is_stopped || !self.assemble_one(u32::MAX, memory) {
                return;
            }
        }
    }

    /// Puts keys into a batch that the index has already. False if some of them are left.
    pub(in crate::store::log) fn gather_applied(&mut self, draft: &mut Draft) -> bool {
        if self.is_mutated(Mutation::RecordsBeforeKeys) {
            return true;
        }
        if self.store.appender.keys().has_applied() {
            self.gather_keys(draft);
        }
        !self.store.appender.keys().has_applied()
    }

    /// Puts keys into a batch, in the order in which they came.
    pub(in crate::store::log) fn gather_keys(&mut self, draft: &mut Draft) {
        while draft.entries.len() < draft.entries_max {
            let keys = self.store.appender.keys_mut();
            let Some(key) = keys.waiting.front() else { break };
            let is_zero = key.space.is_none();
            let is_unapplied = key.state == KeyState::Ready && !is_zero && keys.early.is_some();
            let has_room = key.checksums.len() <= draft.checksums_left();
            if key.state == KeyState::Writing || is_unapplied || !has_room {
                break;
            }
            let key = keys.waiting.pop_front().expect("just seen");
            keys.first_key += 1;
            if key.state != KeyState::Gone {
                self.gather_key(key, draft);
            }
        }
        let now = self.now;
        self.store.appender.keys_mut().keys_left(now);
    }

    fn gather_key(&mut self, key: Key, draft: &mut Draft) {
        let Key { source, volume, blocks, place, checksums, space, state, written } = key;
        let checksums_at = draft.checksums.len();
        let is_applied = state == KeyState::Applied;
        let mut kind = EntryKind::KeyClean;
        match source {
            Source::Write { request } => {
                self.volume_mut(volume).guard.acquire(blocks, Hold::Publishing);
                let active = &mut self.requests[request];
                active.sequence = draft.sequence;
                // HAZARD 6: dirty until the origin has it, in write-through, too: after a crash between the two
                // writes the log is repeated.
                let is_through = active.route == Route::LogThenOrigin;
                let is_clean = is_through && !is_applied && self.is_mutated(Mutation::WritethroughLogsClean);
                kind = match place {
                    None => EntryKind::Zero,
                    Some(_) if is_clean => EntryKind::KeyClean,
                    Some(_) => EntryKind::KeyDirty,
                };
                draft.publish.push(if is_applied {
                    Publish::Keys(KeyPublish::Applied { request: Some(request), volume, blocks })
                } else {
                    Publish::Part { request, volume, blocks, place, checksums_at }
                });
            }
            Source::Read { .. } if is_applied => {
                draft.push_key_publish(KeyPublish::Applied { request: None, volume, blocks });
            }
            Source::Read { buffer } => {
                let place = place.expect("a fill has data");
                let buffer = buffer.expect("it is kept until the index has its blocks");
                draft.publish.push(Publish::Fill { volume, blocks, place, checksums_at, buffer });
            }
        }
        // HAZARD 2: data that was durable before its key says nothing of whether the key's batch is whole.
        let is_kept = written.is_some_and(|written| {
            self.barrier.has_flushed_since(written) || self.is_mutated(Mutation::KeptUnflushed)
        });
        let kind = if is_kept { kind.kept() } else { kind };
        let volume_id = self.volume(volume).id;
        match place {
            Some(place) => {
                self.push_key_entry(draft, kind, volume_id, blocks, place);
                draft.checksums.extend_from_slice(&checksums);
            }
            None => {
                draft.entries.push(range_entry(kind, volume_id, blocks, 0, 0));
                self.store.appender.keys_mut().count_zeroes(true);
            }
        }
        let verified_blocks = if is_kept || place.is_none() { 0 } else { blocks.count };
        draft.push_key_publish(KeyPublish::Placed { space, verified_blocks });
    }

    /// Adds a key, or lengthens the last one where they meet in the volume and in a bucket.
    pub(in crate::store::log) fn push_key_entry(
        &self,
        draft: &mut Draft,
        kind: EntryKind,
        volume: VolumeId,
        blocks: Blocks,
        place: Place,
    ) {
        let entry = range_entry(kind, volume, blocks, to_u32(blocks.count), u64::from(place.0));
        let segments = &self.store.segments;
        if let Some(last) = draft.entries.last_mut()
            && last.kind == kind
            && last.volume == volume
            && last.start_sector + u64::from(last.sectors) == entry.start_sector
            && last.extra + u64::from(last.payload_blocks) == entry.extra
            && segments.of(Place(to_u32(last.extra))) == segments.of(place)
        {
            last.sectors += entry.sectors;
            last.payload_blocks += entry.payload_blocks;
            return;
        }
        draft.entries.push(entry);
    }

    /// Puts keys into a batch once more. False if it has no room for them.
    pub(in crate::store::log) fn gather_rekey(
        &mut self,
        segment: u32,
        (first, blocks, place): (BlockKey, u64, Place),
        draft: &mut Draft,
    ) -> bool {
        let current = |step: u64| -> Option<Cached> {
            let place = Place(place.0 + to_u32(step));
            let entry = self.store.index.get(BlockKey(first.0 + step))?;
            (entry.place == place && !self.store.appender.is_leaving(place)).then_some(entry)
        };
        // RULE 3: only the newest version counts: a block that has another place by now needs no key of the
        // old one.
        let mut runs: Vec<(u64, bool, Vec<u32>)> = Vec::new();
        for step in 0..blocks {
            let Some(entry) = current(step) else { continue };
            match runs.last_mut() {
                Some((from, dirty, checksums))
                    if *dirty == entry.dirty && *from + wide(checksums.len()) == step =>
                {
                    checksums.push(entry.checksum);
                }
                _ => runs.push((step, entry.dirty, alloc::vec![entry.checksum])),
            }
        }
        if runs.is_empty() {
            self.rekeyed(segment);
            return true;
        }
        let checksums: usize = runs.iter().map(|(.., checksums)| checksums.len()).sum();
        let is_both = self.store.appender.placing() == Placing::Both;
        let left = if is_both { index(draft.key_room()) } else { draft.checksums_left() };
        if checksums > left || draft.entries.len() + runs.len() > draft.entries_max {
            return false;
        }
        let volume = first.volume();
        let all = Blocks { first: first.block(), count: blocks };
        let target = self.volume_mut(volume);
        let volume_id = target.id;
        target.guard.acquire(all, Hold::Copying);
        for (step, is_dirty, checksums) in runs {
            let kind = if is_dirty { EntryKind::KeptDirty } else { EntryKind::KeptClean };
            let now = Blocks { first: all.first + step, count: wide(checksums.len()) };
            self.push_key_entry(draft, kind, volume_id, now, Place(place.0 + to_u32(step)));
            draft.checksums.extend_from_slice(&checksums);
        }
        draft.push_key_publish(KeyPublish::Rekeyed { segment, volume, blocks: all });
        true
    }
}

impl Keys {
    /// Checksums that a batch may have: its header has room for them, whatever is left of the segment.
    pub fn batch_blocks_max(payload_max: u32, entries_max: usize) -> u32 {
        match (payload_max, entries_max) {
            (0, _) => 0,
            (_, 200..) => CHECKSUMS_MAX,
            (_, ..200) => CHECKSUMS_MAX_SHORT,
        }
    }
}
