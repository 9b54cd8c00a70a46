//! What waits goes into a batch: the log's own work first, then what clients wrote.

use super::draft::{Draft, push_payload_entry, range_entry};
use super::{ClientAppend, InternalAppend, LogStore, PartSource, Publish};
use crate::format::{Entry, EntryKind};
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::Route;
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::store::Lookup;
use crate::store::log::extents::{Extent, ExtentKind};
use crate::units::{BLOCK_BYTES, BlockKey, Place};
use alloc::vec::Vec;

impl Machine<LogStore> {
    pub(super) fn gather_internal<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        header_place: Place,
        memory: &mut M,
    ) {
        let is_short = self.store.segments.free() < self.kept_for_relocation();
        for _ in 0..self.store.log.internal.len() {
            if entries.len() >= draft.entries_max || draft.payload_blocks >= draft.payload_max {
                break;
            }
            let Some(append) = self.store.log.internal.pop_front() else { break };
            if let InternalAppend::Freed { bucket } = append {
                // RULE 9: the last free segments are for what empties others.
                if is_short {
                    self.store.log.internal.push_back(append);
                    continue;
                }
                entries.push(self.freed_entry(bucket));
                draft.publish.push(Publish::Freed { bucket });
                continue;
            }
            let weight = append.weight();
            let key = match &append {
                InternalAppend::Tombstone { volume, blocks, .. }
                | InternalAppend::Cleaned { volume, blocks, .. } => BlockKey::new(*volume, blocks.first),
                InternalAppend::Relocate { key, .. } => *key,
                InternalAppend::Zero { extent } => extent.first,
                InternalAppend::Lost { first, .. } | InternalAppend::Rekey { first, .. } => *first,
                InternalAppend::Freed { .. } => unreachable!("seen above"),
            };
            let Some(volume) = self.volumes[key.volume().at()].as_mut() else {
                self.forget_internal(append, memory);
                continue;
            };
            let blocks = Blocks { first: key.block(), count: append.blocks() };
            // RULE 3: copies and tombstones are decided against the newest assigned version: while one
            // is on its way, they wait.
            let is_free = match &append {
                _ if is_short && !append.empties() => false,
                InternalAppend::Tombstone { request: Some(_), .. } | InternalAppend::Cleaned { .. } => true,
                _ => volume.guard.is_free(blocks, Hold::Copying),
            };
            if !is_free {
                self.store.log.internal.push_back(append);
                continue;
            }
            if let InternalAppend::Rekey { first, blocks, place } = append {
                if !self.gather_rekey((first, blocks, place), draft, entries) {
                    self.store.log.internal.push_front(append);
                    break;
                }
                continue;
            }
            self.store.log.pending_blocks -= weight;
            let volume_id = volume.id;
            let place = draft.next_place();
            match append {
                InternalAppend::Tombstone { volume: index, blocks, request, .. } => {
                    // Without a request it follows a rotten clean copy: a newer one makes it void.
                    let is_void = request.is_none()
                        && !self.is_mutated(Mutation::TombstoneOverNewer)
                        && (blocks.first..blocks.end()).map(|block| BlockKey::new(index, block)).any(|key| {
                            self.store.index.get(key).is_some() || self.store.extents.get(key).is_some()
                        });
                    if !is_void {
                        entries.push(range_entry(EntryKind::Tombstone, volume_id, blocks, 0, 0));
                        self.store.log.last_tombstone = draft.sequence;
                    }
                    if request.is_some() || !is_void {
                        draft.publish.push(Publish::Tombstone { request });
                    }
                }
                InternalAppend::Cleaned { blocks, place: cleaned, life, is_zero, .. } => {
                    self.store.log.zeroes_home_pending -= u64::from(is_zero);
                    if self.store.life(cleaned) != life {
                        // Dead since, and what is there now is not home.
                        continue;
                    }
                    if is_zero {
                        // RULE 7: until this is durable the zeroes would come back after a crash.
                        if !self.config.mutations.has(Mutation::ForgetZeroesHome) {
                            self.store.log.last_tombstone = draft.sequence;
                        }
                    }
                    let kind = if is_zero { EntryKind::ZeroHome } else { EntryKind::Cleaned };
                    entries.push(range_entry(kind, volume_id, blocks, 0, u64::from(cleaned.0)));
                }
                InternalAppend::Relocate { key, from, checksum, slice } => {
                    let entry = self.store.index.get(key);
                    let entry = entry.filter(|entry| entry.place == from && entry.checksum == checksum);
                    let Some(entry) = entry else {
                        memory.release(slice.buffer);
                        self.store.reclaim.relocated(slice.len_bytes);
                        continue;
                    };
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    let kind = if entry.dirty { EntryKind::Dirty } else { EntryKind::Clean };
                    push_payload_entry(entries, kind, volume_id, blocks);
                    pieces.push(slice);
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
                }
                InternalAppend::Zero { extent } => {
                    if self.store.extents.get(extent.first) != Some(extent) {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Zero, volume_id, blocks, 0, 0));
                    let moved = Extent { place: header_place, ..extent };
                    draft.publish.push(Publish::Extent { extent: moved, from: Some(extent.place) });
                }
                InternalAppend::Lost { first, blocks: count, from, life } => {
                    let is_there =
                        self.store.index.get(first).is_some_and(|entry| entry.place == from && entry.dirty)
                            || self.store.extents.get(first).is_some_and(|extent| {
                                (extent.first, extent.blocks, extent.place) == (first, count, from)
                            });
                    if !is_there || self.store.life(from) != life {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Lost, volume_id, blocks, 0, 0));
                    let extent = Extent { first, blocks: count, kind: ExtentKind::Lost, place: header_place };
                    draft.publish.push(Publish::Extent { extent, from: Some(from) });
                }
                InternalAppend::Rekey { .. } | InternalAppend::Freed { .. } => {
                    unreachable!("seen above")
                }
            }
        }
    }

    pub(super) fn forget_internal<M: Memory>(&mut self, append: InternalAppend, memory: &mut M) {
        self.store.log.pending_blocks -= append.weight();
        self.store.log.zeroes_home_pending -= u64::from(append.is_zero_home());
        if let InternalAppend::Relocate { slice, .. } = append {
            memory.release(slice.buffer);
            self.store.reclaim.relocated(slice.len_bytes);
        } else if let InternalAppend::Rekey { .. } = append {
            self.rekeyed();
        }
    }

    /// Whether zeroes wait until others are home: zero extents are in RAM until then, and their number is bounded. `coming` are
    /// on their way into the log.
    pub(super) fn must_zeroes_wait(&self, coming: usize) -> bool {
        // Lost extents do not go home, and those of an origin that fails may never: nobody waits for them (rule 9).
        let mut volumes = self.volumes.iter().flatten();
        self.store.extents.len() + coming >= self.config.extents_max
            && volumes.any(|volume| volume.zero_blocks > 0 && !volume.origin.is_failing())
    }

    pub(super) fn gather_clients<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        memory: &mut M,
    ) {
        while draft.has_units(entries.len()) {
            let room = draft.room();
            let Some(append) = self.store.log.client.pop_front() else { break };
            match append {
                ClientAppend::Part { request, blocks, source: PartSource::Zero } => {
                    let volume = self.requests[request].volume;
                    let volume_id = self.volume(volume).id;
                    if self.must_zeroes_wait(0) {
                        self.store.log.client.push_front(append);
                        break;
                    }
                    draft.units_left -= 1;
                    self.volume_mut(volume).guard.acquire(blocks, Hold::Publishing);
                    entries.push(range_entry(EntryKind::Zero, volume_id, blocks, 0, 0));
                    draft.publish.push(Publish::Part {
                        request,
                        volume,
                        blocks,
                        place: None,
                        checksums_at: 0,
                    });
                    self.requests[request].sequence = draft.sequence;
                }
                ClientAppend::Part { request, blocks, source: PartSource::Data(slice) } => {
                    if room == 0 {
                        self.store.log.client.push_front(append);
                        break;
                    }
                    if self.store.mirror.is_some() {
                        if self.gather_write((request, blocks, slice), draft, entries, pieces, memory) {
                            continue;
                        }
                        self.store.log.client.push_front(append);
                        break;
                    }
                    let volume = self.requests[request].volume;
                    let volume_id = self.volume(volume).id;
                    let now = Blocks { first: blocks.first, count: blocks.count.min(room) };
                    let bytes = (now.count * BLOCK_BYTES) as u32;
                    self.volume_mut(volume).guard.acquire(now, Hold::Publishing);
                    let place = draft.next_place();
                    let checksums_at = draft.checksums.len();
                    draft.add_checksums(slice, now.count, memory);
                    // HAZARD 6: dirty until the origin has it, in write-through, too: after a crash between
                    // the two writes the log is repeated.
                    let is_through = self.requests[request].route == Route::LogThenOrigin
                        && self.is_mutated(Mutation::WritethroughLogsClean);
                    let kind = if is_through { EntryKind::Clean } else { EntryKind::Dirty };
                    push_payload_entry(entries, kind, volume_id, now);
                    pieces.push(slice.part(0, bytes));
                    draft.publish.push(Publish::Part {
                        request,
                        volume,
                        blocks: now,
                        place: Some(place),
                        checksums_at,
                    });
                    draft.payload_blocks += now.count as u32;
                    self.store.log.pending_blocks -= now.count;
                    self.requests[request].sequence = draft.sequence;
                    if now.count < blocks.count {
                        let rest = Blocks { first: now.end(), count: blocks.count - now.count };
                        let source = PartSource::Data(slice.part(bytes, slice.len_bytes - bytes));
                        self.store.log.client.push_front(ClientAppend::Part {
                            request,
                            blocks: rest,
                            source,
                        });
                        break;
                    }
                }
                ClientAppend::Fill(fill) => {
                    if room == 0 {
                        self.store.log.client.push_front(ClientAppend::Fill(fill));
                        break;
                    }
                    self.store.log.pending_blocks -= fill.blocks.count;
                    if let Some(rest) = self.append_fill(fill, draft, entries, pieces, memory) {
                        self.store.log.pending_blocks += rest.blocks.count;
                        self.store.log.client.push_front(ClientAppend::Fill(rest));
                    }
                }
            }
        }
    }
}

impl InternalAppend {
    /// Whether it takes something out of the oldest segment.
    pub(super) fn empties(&self) -> bool {
        match self {
            InternalAppend::Relocate { .. }
            | InternalAppend::Rekey { .. }
            | InternalAppend::Zero { .. }
            | InternalAppend::Lost { .. } => true,
            InternalAppend::Tombstone { .. }
            | InternalAppend::Cleaned { .. }
            | InternalAppend::Freed { .. } => false,
        }
    }

    fn blocks(&self) -> u64 {
        match self {
            InternalAppend::Tombstone { blocks, .. } | InternalAppend::Cleaned { blocks, .. } => blocks.count,
            InternalAppend::Relocate { .. } => 1,
            InternalAppend::Zero { extent } => extent.blocks,
            InternalAppend::Lost { blocks, .. } | InternalAppend::Rekey { blocks, .. } => *blocks,
            InternalAppend::Freed { .. } => 0,
        }
    }
}
