//! Gathering: waiting appends go into a batch, the log's own work first, then clients' writes.

use super::draft::{Draft, interval_entry, range_entry};
use super::keys::KeyAppend;
use super::{ClientAppend, InternalAppend, LogStore, PartSource, Publish};
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::store::Lookup;
use crate::store::log::extents::{Extent, ExtentKind};
use crate::units::{BlockKey, Place, VolumeIndex};

impl Machine<LogStore> {
    /// Puts the log's own work into a batch, each at most once.
    pub(super) fn gather_internal<M: Memory>(&mut self, draft: &mut Draft, memory: &mut M) {
        let is_short = self.store.segments.free() < self.kept_for_relocation();
        for _ in 0..self.store.log.internal.len() {
            if draft.is_full() {
                break;
            }
            let Some(append) = self.store.log.internal.pop_front() else { break };
            let is_gone = append.volume().is_some_and(|volume| self.volumes[volume.at()].is_none());
            if is_gone {
                self.forget_internal(append, memory);
                continue;
            }
            // RULE 9: the last free segments are for what empties others.
            if (is_short && !append.empties(&self.store.segments)) || !self.may_gather(&append) {
                self.store.log.internal.push_back(append);
                continue;
            }
            if let Some(append) = self.gather_one(append, draft, memory) {
                self.store.log.internal.push_front(append);
                break;
            }
        }
    }

    /// RULE 3: copies and tombstones are decided against the newest assigned version: while one is on its way, they wait.
    fn may_gather(&self, append: &InternalAppend) -> bool {
        let (volume, blocks) = match append {
            InternalAppend::Tombstone { request: Some(_), .. }
            | InternalAppend::Cleaned { .. }
            | InternalAppend::Home { .. }
            | InternalAppend::Keys(KeyAppend::Freed { .. } | KeyAppend::Leave { .. }) => return true,
            InternalAppend::Tombstone { volume, blocks, request: None, .. } => (*volume, *blocks),
            InternalAppend::Relocate { key, .. } => (key.volume(), Blocks { first: key.block(), count: 1 }),
            InternalAppend::Zero { extent: Extent { first, blocks, .. } }
            | InternalAppend::Lost { first, blocks, .. }
            | InternalAppend::Keys(KeyAppend::Rekey { first, blocks, .. }) => {
                (first.volume(), Blocks { first: first.block(), count: *blocks })
            }
        };
        self.volume(volume).guard.is_free(blocks, Hold::Copying)
    }

    /// Puts one append into a batch, unless it is void by now. Returns it if the batch has no room for it.
    fn gather_one<M: Memory>(
        &mut self,
        append: InternalAppend,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<InternalAppend> {
        self.store.log.pending_blocks -= append.weight();
        match append {
            InternalAppend::Tombstone { volume, blocks, request, .. } => {
                self.gather_tombstone(volume, blocks, request, draft);
            }
            InternalAppend::Cleaned { volume, blocks, place, life, is_zero } => {
                self.store.log.zeroes_home_pending -= u64::from(is_zero);
                // Otherwise the copy is dead since, and what is there now is not home.
                if self.store.life(place) == life {
                    self.gather_cleaned(volume, blocks, place, is_zero, draft);
                }
            }
            InternalAppend::Relocate { key, from, checksum, slice } => {
                self.gather_relocated(key, from, checksum, slice, draft, memory);
            }
            InternalAppend::Zero { extent } => {
                if self.store.extents.get(extent.first) == Some(extent) {
                    self.gather_extent(EntryKind::Zero, extent, draft);
                }
            }
            InternalAppend::Lost { first, blocks, from, life } => {
                let is_there =
                    self.store.index.get(first).is_some_and(|entry| entry.place == from && entry.dirty)
                        || self.store.extents.get(first).is_some_and(|extent| {
                            (extent.first, extent.blocks, extent.place) == (first, blocks, from)
                        });
                if is_there && self.store.life(from) == life {
                    let extent = Extent { first, blocks, kind: ExtentKind::Lost, place: from };
                    self.gather_extent(EntryKind::Lost, extent, draft);
                }
            }
            InternalAppend::Home { volume, sequence } => {
                self.store.log.zeroes_home_pending -= 1;
                self.store.log.last_tombstone = draft.sequence;
                draft.entries.push(interval_entry(self.volume(volume).id, sequence));
                if let Some(ledger) = &mut self.volume_mut(volume).destage.order {
                    ledger.recorded(draft.sequence);
                }
                self.barrier.want(draft.sequence);
            }
            InternalAppend::Keys(append) => {
                return self.gather_key_append(append, draft).map(InternalAppend::Keys);
            }
        }
        None
    }

    fn gather_tombstone(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        request: Option<RequestKey>,
        draft: &mut Draft,
    ) {
        // Without a request it follows a rotten clean copy: a newer one makes it void.
        let is_void = request.is_none()
            && !self.is_mutated(Mutation::TombstoneOverNewer)
            && (blocks.first..blocks.end())
                .map(|block| BlockKey::new(volume, block))
                .any(|key| self.store.index.get(key).is_some() || self.store.extents.get(key).is_some());
        if !is_void {
            let volume_id = self.volume(volume).id;
            draft.entries.push(range_entry(EntryKind::Tombstone, volume_id, blocks, 0, 0));
            self.store.log.last_tombstone = draft.sequence;
        }
        if request.is_some() || !is_void {
            draft.publish.push(Publish::Tombstone { request });
        }
    }

    fn gather_cleaned(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        place: Place,
        is_zero: bool,
        draft: &mut Draft,
    ) {
        // RULE 7: until this is durable the zeroes would come back after a crash.
        if is_zero && !self.is_mutated(Mutation::ForgetZeroesHome) {
            self.store.log.last_tombstone = draft.sequence;
        }
        let kind = if is_zero { EntryKind::ZeroHome } else { EntryKind::Cleaned };
        let volume_id = self.volume(volume).id;
        draft.entries.push(range_entry(kind, volume_id, blocks, 0, u64::from(place.0)));
    }

    fn gather_relocated<M: Memory>(
        &mut self,
        key: BlockKey,
        from: Place,
        checksum: u32,
        slice: Slice,
        draft: &mut Draft,
        memory: &mut M,
    ) {
        let entry = self.store.index.get(key);
        let Some(entry) = entry.filter(|entry| entry.place == from && entry.checksum == checksum) else {
            memory.release(slice.buffer);
            self.store.reclaim.relocated(slice.len_bytes);
            return;
        };
        let blocks = Blocks { first: key.block(), count: 1 };
        let target = self.volume_mut(key.volume());
        target.guard.acquire(blocks, Hold::Copying);
        let id = target.id;
        let place = if entry.dirty && !self.is_mutated(Mutation::DirtyKeptOnce) {
            let place = draft.next_place();
            draft.push_payload_entry(EntryKind::Dirty, id, blocks);
            draft.pieces.push(slice);
            place
        } else {
            draft.push_clean(id, blocks, slice)
        };
        draft.publish.push(Publish::Relocate {
            key,
            from,
            place,
            dirty: entry.dirty,
            checksums_at: draft.checksums.len(),
            buffer: slice.buffer,
        });
        draft.checksums.push(checksum);
        draft.payload_blocks += 1;
        draft.relocated_blocks += 1;
    }

    /// Records an extent in this batch's header; so far `extent.place` has it.
    fn gather_extent(&mut self, kind: EntryKind, extent: Extent, draft: &mut Draft) {
        let blocks = Blocks { first: extent.first.block(), count: extent.blocks };
        let target = self.volume_mut(extent.first.volume());
        target.guard.acquire(blocks, Hold::Copying);
        draft.entries.push(range_entry(kind, target.id, blocks, 0, 0));
        let moved = Extent { place: draft.header_place, ..extent };
        draft.publish.push(Publish::Extent { extent: moved, from: Some(extent.place) });
    }

    pub(super) fn forget_internal<M: Memory>(&mut self, append: InternalAppend, memory: &mut M) {
        self.store.log.pending_blocks -= append.weight();
        self.store.log.zeroes_home_pending -= u64::from(append.is_zero_home());
        match append {
            InternalAppend::Relocate { slice, .. } => {
                memory.release(slice.buffer);
                self.store.reclaim.relocated(slice.len_bytes);
            }
            InternalAppend::Keys(append) => self.forget_key_append(append),
            InternalAppend::Tombstone { .. }
            | InternalAppend::Cleaned { .. }
            | InternalAppend::Zero { .. }
            | InternalAppend::Lost { .. }
            | InternalAppend::Home { .. } => (),
        }
    }

    /// Puts the mark of another interval in front of what comes next, if it needs one; false if there is no room for both.
    #[cold]
    #[inline(never)]
    fn mark_interval(&mut self, draft: &mut Draft) -> bool {
        let Some(ClientAppend::Part { request, .. }) = self.store.log.client.front() else { return true };
        let index = self.requests[*request].volume;
        let is_off = self.is_mutated(Mutation::IntervalUnmarked);
        let volume = self.volume_mut(index);
        let Some(ledger) = volume.destage.order.as_mut().filter(|ledger| ledger.is_mark_due()) else {
            return true;
        };
        if draft.entries.len() + 1 >= draft.entries_max {
            return false;
        }
        // RULE 14: without it what was written before and after a flush would go home as one after a crash.
        if let Some(home) = ledger.take_mark().filter(|_| !is_off) {
            draft.entries.push(interval_entry(volume.id, home));
        }
        true
    }

    /// Whether zeroes wait until others are home: zero extents are in RAM until then, and their number is bounded. `coming` are
    /// on their way into the log.
    pub(super) fn must_zeroes_wait(&self, coming: usize) -> bool {
        // Lost extents do not go home, and those of an origin that fails may never: nobody waits for them (rule 9).
        let mut volumes = self.volumes.iter().flatten();
        self.store.extents.len() + coming >= self.config.extents_max
            && volumes.any(|volume| volume.zero_blocks > 0 && !volume.origin.is_failing())
    }

    /// Puts what clients have queued into a batch, in order, until it has no room for the first that is left.
    pub(super) fn gather_clients<M: Memory>(&mut self, draft: &mut Draft, memory: &mut M) {
        let is_ordered = self.config.order.is_some();
        while draft.has_units() {
            let has_room = draft.room() > 0;
            if is_ordered && !self.mark_interval(draft) {
                break;
            }
            let Some(append) = self.store.log.client.pop_front() else { break };
            let rest = match append {
                ClientAppend::Part { request, blocks, source: PartSource::Zero } => {
                    let must_wait = self.must_zeroes_wait(0);
                    if !must_wait {
                        self.gather_zeroes(request, blocks, draft);
                    }
                    must_wait.then_some(append)
                }
                ClientAppend::Part { .. } | ClientAppend::Fill(_) if !has_room => Some(append),
                ClientAppend::Part { request, blocks, source: PartSource::Data(slice) } => {
                    self.gather_data(request, blocks, slice, draft, memory)
                }
                ClientAppend::Fill(fill) => {
                    self.store.log.pending_blocks -= fill.blocks.count;
                    let rest = self.append_fill(fill, draft, memory);
                    rest.map(|rest| {
                        self.store.log.pending_blocks += rest.blocks.count;
                        ClientAppend::Fill(rest)
                    })
                }
            };
            if let Some(rest) = rest {
                self.store.log.client.push_front(rest);
                break;
            }
        }
    }

    fn gather_zeroes(&mut self, request: RequestKey, blocks: Blocks, draft: &mut Draft) {
        draft.units_left -= 1;
        let active = &mut self.requests[request];
        active.sequence = draft.sequence;
        let volume = active.volume;
        let target = self.volume_mut(volume);
        target.guard.acquire(blocks, Hold::Publishing);
        draft.entries.push(range_entry(EntryKind::Zero, target.id, blocks, 0, 0));
        draft.publish.push(Publish::Part { request, volume, blocks, place: None, checksums_at: 0 });
    }
}
