//! Knowledge that a cache with slots must have after a crash, as its composition promises.

use super::World;
use crate::content::{Sector, Tag};
use crate::violation::{Kind, Violation};
use engine::composition::contract::Aftermath;
use engine::recovery::{CleanSlot, Opened};
use engine::units::{SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeIndex};

impl World {
    /// Checks that a clean block is durable on the origin, and that after a crash no block is clean where that is promised.
    pub(super) fn expect_aftermath(&mut self, opened: &Opened) -> Result<(), Violation> {
        let Some(slots) = self.setup.slots else { return Ok(()) };
        let knows_clean = match slots.composition.contract().aftermath {
            Aftermath::AllDirty | Aftermath::DirtyKept => opened.report.was_clean,
            Aftermath::DirtySuperset { .. } | Aftermath::Prefix => true,
        };
        for volume in (0..VOLUMES_MAX).map(|at| VolumeIndex(at as u8)) {
            let (dirty, cached) = (opened.dirty_bytes(volume), opened.cached_bytes(volume));
            // Lost blocks hide how much of their slot is dirty.
            let has_lost = self.oracle.explained.has_suspects(volume.at());
            if !knows_clean && dirty != cached && !has_lost {
                let what = format!(
                    "{dirty} of {cached} cached bytes of volume {} are dirty after a crash, not all",
                    volume.0
                );
                self.fail(Kind::Physical, what);
            }
        }
        // Without `safe`, origins count as devices that lose nothing, which the lab has not.
        if self.setup.are_copies_compared && slots.composition.safe {
            self.expect_clean_slots_right(opened);
        }
        self.is_sound()
    }

    fn expect_clean_slots_right(&mut self, opened: &Opened) {
        for CleanSlot { volume, first_block, blocks, offset_bytes } in opened.clean_slots() {
            let first = first_block * SECTORS_PER_BLOCK;
            let size = self.volume_sectors(volume.at());
            let sectors = (blocks * SECTORS_PER_BLOCK).min(size - first);
            let at = offset_bytes / 512;
            // It will be noticed when it is read.
            if (at..at + sectors).any(|sector| self.is_rotten(sector)) {
                continue;
            }
            let cached: Vec<Tag> = self.cache.read(at, sectors).iter().map(Sector::tag).collect();
            let origin = &self.origins[volume.at()];
            let shown: Vec<Tag> = origin.read(first, sectors).iter().map(Sector::tag).collect();
            let is_durable = (0..sectors).all(|at| origin.durable(first + at).tag() == shown[at as usize]);
            let mut all = first_block..first_block + blocks;
            if (cached != shown || !is_durable) && !all.any(|block| self.behind.is_stale(volume.at(), block))
            {
                let what = format!(
                    "blocks {} to {} of volume {} count as clean and are not what the origin has",
                    first_block,
                    first_block + blocks,
                    volume.0
                );
                self.fail(Kind::Physical, what);
            }
        }
    }
}
