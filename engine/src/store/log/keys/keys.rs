//! From a bucket to the ring: keys become entries of a batch.

use super::super::assembly::BATCHES_IN_FLIGHT_MAX;
use super::super::draft::{Draft, range_entry};
use super::super::{LogStore, Publish};
use super::KeyState;
use crate::format::{Entry, EntryKind};
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::Route;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::store::log::index::Entry as Cached;
use crate::units::{BlockKey, Place, VolumeId};
use alloc::vec::Vec;

/// Checksums of a batch's keys at the most, and where a segment has little room left.
const CHECKSUMS_MAX: u32 = 256;
const CHECKSUMS_MAX_SHORT: u32 = 128;
/// Keys that are worth a batch although one is in flight.
const COMPANY_KEYS: usize = 64;

impl Machine<LogStore> {
    /// Sends off what is pending: data to buckets, keys to the ring.
    pub(in crate::store::log) fn assemble_journal<M: Memory>(&mut self, memory: &mut M) {
        loop {
            self.apply_keys(memory);
            self.place_data(memory);
            let journal = self.store.journal.as_ref().expect("there are buckets");
            let log = &self.store.log;
            let ready = journal.ready();
            let is_pending = ready > 0 || log.has_internal() || log.is_floor_wanted;
            let in_flight = log.in_flight.len();
            let is_waited_for = self.requests.any_for_blocks() || log.has_internal() || log.is_floor_wanted;
            let until = journal.may_wait_until(self.now, ready).filter(|_| !is_waited_for);
            if let Some(until) = until {
                self.want_tick(until);
                return;
            }
            let may_go = in_flight == 0 || ready >= COMPANY_KEYS;
            let is_full = in_flight >= BATCHES_IN_FLIGHT_MAX;
            if !is_pending || !may_go || is_full || self.latched.is_some() || !self.assemble_one(memory) {
                return;
            }
        }
    }

    /// How many checksums a batch may have: its header has room for them, whatever is left of the segment.
    pub(in crate::store::log) fn keys_max(&self, payload_max: u32, entries_max: usize) -> u32 {
        match (payload_max, entries_max) {
            (0, _) => 0,
            (_, 200..) => CHECKSUMS_MAX,
            _ => CHECKSUMS_MAX_SHORT,
        }
    }

    /// Puts keys into a batch, in the order in which they came.
    pub(in crate::store::log) fn gather_keys<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        memory: &mut M,
    ) {
        while entries.len() < draft.entries_max {
            let journal = self.store.journal.as_mut().expect("there are buckets");
            let Some(key) = journal.keys.front() else { break };
            let room = draft.payload_max as usize - draft.checksums.len();
            let is_zero = key.space.is_none();
            let is_unapplied = key.state == KeyState::Ready && !is_zero && journal.early.is_some();
            if key.state == KeyState::Writing || is_unapplied || key.checksums.len() > room {
                break;
            }
            let key = journal.keys.pop_front().expect("just seen");
            journal.first_key += 1;
            if key.state == KeyState::Gone {
                continue;
            }
            let checksums_at = draft.checksums.len();
            let is_applied = key.state == KeyState::Applied;
            let (volume, blocks, place, kind) = match key.publish {
                Publish::Part { request, volume, blocks, place, .. } if is_applied => {
                    self.volume_mut(volume).guard.acquire(blocks, Hold::Publishing);
                    self.requests[request].sequence = draft.sequence;
                    draft.publish.push(Publish::Applied { request: Some(request), volume, blocks });
                    (volume, blocks, place, EntryKind::KeyDirty)
                }
                Publish::Fill { volume, blocks, place, buffer, .. } if is_applied => {
                    memory.release(buffer);
                    draft.publish.push(Publish::Applied { request: None, volume, blocks });
                    (volume, blocks, Some(place), EntryKind::KeyClean)
                }
                Publish::Part { request, volume, blocks, place, .. } => {
                    self.volume_mut(volume).guard.acquire(blocks, Hold::Publishing);
                    let active = &mut self.requests[request];
                    active.sequence = draft.sequence;
                    // HAZARD 6: dirty until the origin has it, in write-through, too: after a crash between
                    // the two writes the log is repeated.
                    let is_through = active.route == Route::LogThenOrigin;
                    let kind = match place {
                        None => EntryKind::Zero,
                        Some(_) if is_through && self.is_mutated(Mutation::WritethroughLogsClean) => {
                            EntryKind::KeyClean
                        }
                        Some(_) => EntryKind::KeyDirty,
                    };
                    draft.publish.push(Publish::Part { request, volume, blocks, place, checksums_at });
                    (volume, blocks, place, kind)
                }
                Publish::Fill { volume, blocks, place, buffer, .. } => {
                    draft.publish.push(Publish::Fill { volume, blocks, place, checksums_at, buffer });
                    (volume, blocks, Some(place), EntryKind::KeyClean)
                }
                _ => unreachable!("clients bring nothing else"),
            };
            // HAZARD 2: data that was durable before its key says nothing of whether the key's batch is whole.
            let kind = match key.written {
                Some(written)
                    if self.barrier.has_flushed_since(written)
                        || self.is_mutated(Mutation::KeptUnflushed) =>
                {
                    kind.kept()
                }
                _ => kind,
            };
            let volume_id = self.volume(volume).id;
            match place {
                Some(place) => {
                    self.push_key_entry(entries, kind, volume_id, blocks, place);
                    draft.checksums.extend_from_slice(&key.checksums);
                }
                None => {
                    entries.push(range_entry(kind, volume_id, blocks, 0, 0));
                    self.store.journal.as_mut().expect("there are buckets").count_zeroes(true);
                }
            }
            draft.publish.push(Publish::Placed { space: key.space });
        }
        let now = self.now;
        self.store.journal.as_mut().expect("there are buckets").keys_left(now);
    }

    /// Adds a key, or lengthens the last one where they meet in the volume and in a bucket.
    fn push_key_entry(
        &self,
        entries: &mut Vec<Entry>,
        kind: EntryKind,
        volume: VolumeId,
        blocks: Blocks,
        place: Place,
    ) {
        let entry = range_entry(kind, volume, blocks, blocks.count as u32, u64::from(place.0));
        let segments = &self.store.segments;
        if let Some(last) = entries.last_mut()
            && last.kind == kind
            && last.volume == volume
            && last.start_sector + u64::from(last.sectors) == entry.start_sector
            && last.extra + u64::from(last.payload_blocks) == entry.extra
            && segments.of(Place(last.extra as u32)) == segments.of(place)
        {
            last.sectors += entry.sectors;
            last.payload_blocks += entry.payload_blocks;
            return;
        }
        entries.push(entry);
    }

    /// Puts keys into a batch once more. False if it has no room for them.
    pub(in crate::store::log) fn gather_rekey(
        &mut self,
        (first, blocks, place): (BlockKey, u64, Place),
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
    ) -> bool {
        let current = |step: u64| -> Option<Cached> {
            let place = Place(place.0 + step as u32);
            self.store.index.get(BlockKey(first.0 + step)).filter(|entry| entry.place == place)
        };
        // RULE 3: only the newest version counts: a block that has another place by now needs no key of the
        // old one.
        let mut runs: Vec<(u64, bool, Vec<u32>)> = Vec::new();
        for step in 0..blocks {
            let Some(entry) = current(step) else { continue };
            match runs.last_mut() {
                Some((from, dirty, checksums))
                    if *dirty == entry.dirty && *from + checksums.len() as u64 == step =>
                {
                    checksums.push(entry.checksum);
                }
                _ => runs.push((step, entry.dirty, alloc::vec![entry.checksum])),
            }
        }
        if runs.is_empty() {
            self.rekeyed();
            return true;
        }
        let checksums: usize = runs.iter().map(|(.., checksums)| checksums.len()).sum();
        if checksums > draft.payload_max as usize - draft.checksums.len()
            || entries.len() + runs.len() > draft.entries_max
        {
            return false;
        }
        let volume = first.volume();
        let all = Blocks { first: first.block(), count: blocks };
        let target = self.volume_mut(volume);
        let volume_id = target.id;
        target.guard.acquire(all, Hold::Copying);
        for (step, is_dirty, checksums) in runs {
            let kind = if is_dirty { EntryKind::KeptDirty } else { EntryKind::KeptClean };
            let now = Blocks { first: all.first + step, count: checksums.len() as u64 };
            self.push_key_entry(entries, kind, volume_id, now, Place(place.0 + step as u32));
            draft.checksums.extend_from_slice(&checksums);
        }
        draft.publish.push(Publish::Rekeyed { volume, blocks: all });
        true
    }

    /// A bucket's entry.
    pub(in crate::store::log) fn freed_entry(&self, bucket: u32) -> Entry {
        let journal = self.store.journal.as_ref().expect("there are buckets");
        let (place, blocks) = journal.buckets.run_of(bucket);
        let all = Blocks { first: 0, count: u64::from(blocks) };
        range_entry(EntryKind::Freed, VolumeId(u32::MAX), all, 0, u64::from(place.0))
    }

    /// What is published of the journal's own.
    pub(in crate::store::log) fn publish_journal(&mut self, publish: Publish, is_lost: bool) {
        let published = self.store.log.published;
        match publish {
            Publish::Placed { space } => {
                let journal = self.store.journal.as_mut().expect("there are buckets");
                journal.published_keys += 1;
                let Some((segment, end_block)) = space else {
                    journal.count_zeroes(false);
                    return;
                };
                self.store.segments.get_mut(segment).pins -= 1;
                if !is_lost {
                    self.store.log.ends.push_back((published, segment, end_block));
                }
            }
            Publish::Freed { bucket } if !is_lost => {
                let journal = self.store.journal.as_mut().expect("there are buckets");
                journal.buckets.recorded(bucket, published);
            }
            Publish::Rekeyed { volume, blocks } => {
                self.release_guard(volume, blocks, Hold::Copying);
                self.rekeyed();
            }
            _ => (),
        }
    }
}
