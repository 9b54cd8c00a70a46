//! The way home: copies of the log that the origin has now, and zeroes that are written to it.

use super::{InternalAppend, LogStore};
use crate::machine::Machine;
use crate::machine::destage::order::ZERO_BLOCKS_MAX;
use crate::machine::destage::run::Copied;
use crate::machine::guard::{Blocks, Hold};
use crate::mutation::Mutation;
use crate::store::Lookup;
use crate::store::log::extents::ExtentKind;
use crate::units::{BlockKey, Place, VolumeIndex};

/// Extents looked at in one go; the next call goes on from there.
const LOOKS_MAX: u32 = 64;

impl Machine<LogStore> {
    /// Sends the next zeroes of a volume home that can go; false if there are none, or none was found yet. Among them are extents
    /// that stay, lost ones and such as somebody is busy with, perhaps many.
    pub(super) fn send_zero_run(&mut self, index: VolumeIndex) -> bool {
        let start = self.volume(index).destage.zero_cursor;
        let mut at = self.volume(index).key(start);
        let mut has_wrapped = start == 0;
        for _ in 0..LOOKS_MAX {
            let extent = self.store.extents.next(at).filter(|extent| extent.first.volume() == index);
            let Some(extent) = extent else {
                self.volume_mut(index).destage.zero_cursor = 0;
                if has_wrapped {
                    return false;
                }
                has_wrapped = true;
                at = self.volume(index).key(0);
                continue;
            };
            let volume = self.volume_mut(index);
            let next = extent.first.block() + extent.blocks;
            volume.destage.zero_cursor = if next < volume.blocks() { next } else { 0 };
            let blocks = Blocks { first: extent.first.block(), count: extent.blocks.min(ZERO_BLOCKS_MAX) };
            let is_flushed = self.store.segments.is_flushed(extent.place)
                || self.is_mutated(Mutation::DestageBeforeCacheFlush);
            if !is_flushed {
                let published = self.store.log.published();
                self.barrier.want(published);
            }
            let volume = self.volume_mut(index);
            if extent.kind == ExtentKind::Zero && is_flushed && volume.guard.is_free(blocks, Hold::Destaging)
            {
                self.send_zeroes(index, blocks, extent.place);
                return true;
            }
            let end = BlockKey(extent.first.0 + extent.blocks);
            if end.0 >= BlockKey::END {
                return false;
            }
            at = end;
        }
        false
    }

    /// Whether what was at the copy's place when it went home may be there still.
    fn is_in_place(&self, copy: Copied) -> bool {
        self.store.life(copy.place) == copy.life || self.is_mutated(Mutation::CleanThoughReused)
    }

    pub(super) fn block_is_home(&mut self, index: VolumeIndex, copy: Copied) {
        // HAZARD 4: what was written there since, if only to the same place, is not home.
        if !self.is_in_place(copy) {
            return;
        }
        let mut cleaned: Option<(Blocks, Place)> = None;
        for step in 0..copy.blocks {
            let block = copy.first + u64::from(step);
            let place = Place(copy.place.0 + step);
            let key = self.volume(index).key(block);
            let entry = self.store.index.get(key).filter(|entry| entry.dirty);
            // HAZARD 4: only the very copy that went home is clean; a newer one is not.
            let is_any = self.is_mutated(Mutation::CleanThoughRewritten);
            let is_same = entry.is_some_and(|entry| entry.place == place || is_any);
            let place = entry.map_or(place, |entry| entry.place);
            if is_same {
                self.store.index.set_dirty(key, false);
                self.store.segments.remove_must(place);
                self.volume_mut(index).dirty_blocks -= 1;
                self.store.appender.forget(key);
                match &mut cleaned {
                    Some((blocks, _)) => blocks.count += 1,
                    None => cleaned = Some((Blocks { first: block, count: 1 }, place)),
                }
            }
            if (!is_same || step + 1 == copy.blocks)
                && let Some((blocks, place)) = cleaned.take()
            {
                // RULE 2: clean is recorded in the log, or all that is home would count as dirty after a
                // crash.
                // In strict order the record of its interval says so.
                let is_ordered = self.volume(index).is_ordered();
                if !is_ordered && !self.is_mutated(Mutation::CleanNotRecorded) {
                    self.store.log.push_internal(InternalAppend::Cleaned {
                        volume: index,
                        blocks,
                        place,
                        life: self.store.life(place),
                        is_zero: false,
                    });
                }
            }
        }
    }

    pub(super) fn zero_is_home(&mut self, index: VolumeIndex, copy: Copied) {
        if !self.is_in_place(copy) {
            return;
        }
        let end = copy.first + u64::from(copy.blocks);
        let mut block = copy.first;
        while block < end {
            let key = self.volume(index).key(block);
            let Some(extent) = self.store.extents.next(key).filter(|extent| extent.first.volume() == index)
            else {
                break;
            };
            let first = extent.first.block().max(copy.first);
            if first >= end {
                break;
            }
            let extent_end = extent.first.block() + extent.blocks;
            if extent.kind == ExtentKind::Zero && extent.place == copy.place {
                let blocks = Blocks { first, count: extent_end.min(end) - first };
                self.drop_extents(index, blocks);
                block = extent_end;
                if self.volume(index).is_ordered() {
                    continue;
                }
                let Copied { place, life, .. } = copy;
                self.store.log.push_internal(InternalAppend::Cleaned {
                    volume: index,
                    blocks,
                    place,
                    life,
                    is_zero: true,
                });
            }
            block = extent_end;
        }
    }
}
