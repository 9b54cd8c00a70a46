//! Keys of frames on their way into the ring.

use super::super::LogStore;
use super::super::draft::Draft;
use super::Frames;
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::barrier::{CacheBarrier, FlushMoment};
use crate::machine::guard::{Blocks, Hold};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32, wide};
use crate::units::{BlockKey, Nanos, Place};
use alloc::vec::Vec;

/// Runs of keys that are worth a batch of their own.
const RUNS_ENOUGH: usize = 64;
/// The longest time that keys wait for a batch to go with: nobody waits for them.
const WAIT_NS: u64 = Nanos::SECOND;

/// Blocks in the index, in frames in a row, whose keys no batch has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unlogged {
    pub first: BlockKey,
    pub place: Place,
    pub blocks: u32,
    /// When the device had them.
    pub written: FlushMoment,
    /// When the index had them.
    pub since: Nanos,
}

/// Whether keys may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::log) enum KeysDue {
    /// They wait for others.
    Later,
    /// They would, if the cache was flushed since their data was written.
    Unflushed,
    /// At once.
    Now,
}

impl Frames {
    /// Blocks want their keys in a batch.
    pub(super) fn wait_for_key(&mut self, blocks: Unlogged) {
        self.unlogged.push_back(blocks);
    }

    /// Whether keys wait.
    pub fn has_unlogged(&self) -> bool {
        !self.unlogged.is_empty()
    }

    /// Whether keys need not wait for more. If they do, it is to be asked again in time.
    pub(in crate::store::log) fn are_keys_due(
        &mut self,
        now: Nanos,
        is_ending: bool,
        barrier: &CacheBarrier,
    ) -> KeysDue {
        self.until = None;
        let Some(first) = self.unlogged.front() else { return KeysDue::Later };
        let until = first.since.plus(WAIT_NS);
        if !is_ending && self.unlogged.len() < RUNS_ENOUGH && now < until {
            self.until = Some(until);
            return KeysDue::Later;
        }
        if barrier.has_flushed_since(first.written) { KeysDue::Now } else { KeysDue::Unflushed }
    }

    /// Nobody is to ask again.
    pub fn clear_deadline(&mut self) {
        self.until = None;
    }

    /// When to ask again, if nothing else happens before.
    pub fn deadline(&self) -> Option<Nanos> {
        self.inline.deadline().into_iter().chain(self.until).min()
    }

    /// The cache failed: no key gets anywhere.
    pub fn forget_keys(&mut self) {
        self.unlogged.clear();
        self.until = None;
    }
}

impl Machine<LogStore> {
    /// Puts keys into a batch, as far as there is room.
    pub(in crate::store::log) fn gather_frame_keys(&mut self, draft: &mut Draft) {
        let now = self.now;
        for _ in 0..self.store.appender.frames_mut().unlogged.len() {
            if draft.entries.len() >= draft.entries_max || draft.key_room() == 0 {
                break;
            }
            let Some(unlogged) = self.store.appender.frames_mut().unlogged.pop_front() else { break };
            let volume = unlogged.first.volume();
            let blocks = Blocks { first: unlogged.first.block(), count: u64::from(unlogged.blocks) };
            let Some(target) = &self.volumes[volume.at()] else { continue };
            // HAZARD 2: a key says nothing of data that a power cut may take yet.
            let is_durable =
                self.barrier.has_flushed_since(unlogged.written) || self.is_mutated(Mutation::KeptUnflushed);
            // RULE 3: the key of a block that is about to change would come behind the newer one.
            let is_settled =
                target.guard.is_free(blocks, Hold::Copying) || self.is_mutated(Mutation::KeyBehindNewer);
            if !is_durable || !is_settled {
                let since = if is_settled { unlogged.since } else { now };
                self.store.appender.frames_mut().unlogged.push_back(Unlogged { since, ..unlogged });
                continue;
            }
            if let Some(rest) = self.gather_unlogged(unlogged, draft) {
                self.store.appender.frames_mut().unlogged.push_front(rest);
                break;
            }
        }
    }

    /// Puts the keys of one run into a batch; returns what has no room in it.
    fn gather_unlogged(&mut self, unlogged: Unlogged, draft: &mut Draft) -> Option<Unlogged> {
        let Unlogged { first, place, blocks, .. } = unlogged;
        let volume_id = self.volume(first.volume()).id;
        let mut step = 0;
        while step < blocks {
            let at = BlockKey(first.0 + u64::from(step));
            let checksums =
                self.logged_run(at, Place(place.0 + step), blocks - step, u64::from(draft.key_room()));
            let count = to_u32(wide(checksums.len()));
            if count == 0 {
                if draft.key_room() == 0 {
                    return Some(Unlogged {
                        first: at,
                        place: Place(place.0 + step),
                        blocks: blocks - step,
                        ..unlogged
                    });
                }
                step += 1;
                continue;
            }
            if draft.entries.len() >= draft.entries_max {
                return Some(Unlogged {
                    first: at,
                    place: Place(place.0 + step),
                    blocks: blocks - step,
                    ..unlogged
                });
            }
            let now = Blocks { first: at.block(), count: u64::from(count) };
            self.push_key_entry(draft, EntryKind::KeptClean, volume_id, now, Place(place.0 + step));
            draft.checksums.extend_from_slice(&checksums);
            step += count;
        }
        None
    }

    /// The checksums of blocks that lie in frames in a row and stay there, from the first on, `room` at the most.
    fn logged_run(&self, first: BlockKey, place: Place, blocks: u32, room: u64) -> Vec<u32> {
        let most = index_wide(u64::from(blocks).min(room));
        let places = &self.store.appender.frames().places;
        (0..blocks)
            .map_while(|step| {
                let place = Place(place.0 + step);
                let entry = self.store.index.get(BlockKey(first.0 + u64::from(step)))?;
                let stays = entry.place == place && !entry.dirty && !places.is_leaving(place);
                stays.then_some(entry.checksum)
            })
            .take(most)
            .collect()
    }
}
