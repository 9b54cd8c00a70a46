//! Jobs of an operator while no engine runs: `add`, `set`, `check --repair`. The power may be cut instead of any of their
//! writes and flushes; then they are repeated.

use super::image::CutImage;
use super::start::checksum_at;
use super::trace::What;
use super::{World, halves};
use crate::content::{SECTOR, Sector};
use crate::disk::Disk;
use crate::violation::{Kind, Violation};
use engine::check;
use engine::effect::WriteMode;
use engine::fingerprint::{PLACES, offsets_bytes};
use engine::format::{
    BatchHeader, Fingerprint, HEADER_BLOCKS_MAX, SEGMENTS_OFFSET, Superblock, VolumeRecord,
};
use engine::pair::Half;
use engine::recovery::{self, load_superblock};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeId};
use std::cell::Cell;

/// Checksums of the well-known places of an origin, which is flushed: what a power cut would take back is not recorded.
pub(super) fn fingerprint(disk: &mut Disk) -> [Option<Fingerprint>; PLACES] {
    disk.flush_all();
    offsets_bytes(disk.sectors()).map(|offset| {
        let offset_bytes = offset?;
        Some(Fingerprint { offset_bytes, checksum: checksum_at(disk, offset_bytes) })
    })
}

impl World {
    /// Changes the superblock; the power is cut instead of the write or flush after the first `changes`. False if nothing
    /// has changed because of that.
    pub(super) fn edit_superblock(
        &mut self,
        changes: u64,
        edit: impl FnOnce(&mut Superblock),
    ) -> Result<bool, Violation> {
        self.is_sound()?;
        let World { cache, mirror, setup, .. } = self;
        let (mutations, options) = (setup.mutations, setup.options());
        let all = Cell::new(0);
        let cut = |disk, _| CutImage::cut_after(disk, changes).counting(&all);
        let mut new_update = 0;
        let written = halves::join(cache, mirror.as_mut(), cut).map_err(|error| error.to_string());
        let written = written.and_then(|mut image| {
            if image.is_mirrored() {
                // RULE 20: as for each change of a cache that is off.
                let opened = recovery::inspect(&mut image, options).map_err(|error| error.to_string())?;
                recovery::settle(&mut image, &opened).map_err(|errno| errno.0.to_string())?;
            }
            let (mut superblock, _) = load_superblock(&mut image).map_err(|error| error.to_string())?;
            superblock.update += 1;
            new_update = superblock.update;
            edit(&mut superblock);
            recovery::write_superblock(&mut image, &superblock, mutations)
                .map_err(|errno| errno.0.to_string())
        });
        if all.get() > changes {
            self.cut_power_by_chance();
            // One copy may have got through: then it counts.
            let is_done = self.superblock_that_counts().is_some_and(|found| found.update == new_update);
            if is_done {
                self.other_half_lacks(new_update);
            }
            self.is_edit_alone = is_done;
            return self.is_sound().map(|()| is_done);
        }
        self.is_edit_alone = false;
        if let Err(error) = written {
            self.fail(Kind::Contract, format!("the superblock cannot be changed: {error}"));
        }
        self.is_sound().map(|()| true)
    }

    /// After a change of the superblock that was cut one half may lack it, as nobody was told of a success: then the other one may
    /// not be lost before a start.
    fn other_half_lacks(&mut self, update: u64) {
        let halves: &[Half] = if self.is_mirrored() { &Half::BOTH } else { &[] };
        for &half in halves {
            let loaded = load_superblock(&mut CutImage::whole(self.half(half)));
            if loaded.is_ok_and(|(superblock, _)| superblock.update < update) {
                (self.hurt, self.may_half_lack) = (Some(half), true);
            }
        }
    }

    /// The superblock that the next start takes.
    pub(super) fn superblock_that_counts(&mut self) -> Option<Superblock> {
        let World { cache, mirror, setup, .. } = self;
        let mut image = halves::join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk)).ok()?;
        if image.is_mirrored() {
            return Some(recovery::inspect(&mut image, setup.options()).ok()?.superblock);
        }
        Some(load_superblock(&mut image).ok()?.0)
    }

    /// Puts a volume that was detached on the cache again, with its origin as it is.
    ///
    /// # Errors
    /// A violation.
    pub fn attach(&mut self, volume: usize, mode: WriteMode, changes: u64) -> Result<bool, Violation> {
        self.time_passes_at_servers(u64::MAX);
        let mut record = self.record_of(volume, mode);
        let is_done = self.edit_superblock(changes, |superblock| {
            // After a cut it may be there already.
            record.id = VolumeId(superblock.next_volume_id);
            superblock.next_volume_id += 1;
            superblock.volumes[volume] = Some(record);
        })?;
        if is_done {
            self.note(What::Behind { volume, what: "added" });
            self.detached[volume] = false;
            self.modes[volume] = mode;
            self.notes_on_new(volume, mode);
            self.begin_anew(volume);
        }
        Ok(is_done)
    }

    /// The record of a volume over its origin as it is, without a number.
    pub(super) fn record_of(&mut self, volume: usize, mode: WriteMode) -> VolumeRecord {
        let disk = &mut self.origins[volume];
        let (size_sectors, fingerprint) = (disk.sectors(), fingerprint(disk));
        let (name, origin) = (format!("v{volume}"), format!("mem:{volume}"));
        let new = VolumeRecord::new(VolumeId(0), &name, &origin, size_sectors);
        VolumeRecord { identity: self.identities[volume].clone(), mode, fingerprint, ..new }
    }

    /// A volume begins with the content and the size of its origin.
    pub(super) fn begin_anew(&mut self, volume: usize) {
        self.setup.volumes[volume].sectors = self.origins[volume].sectors();
        self.oracle.replaced(volume, self.origin_contents().swap_remove(volume));
        if volume == 0 {
            self.end_order();
        }
        self.behind.forget(volume);
        self.is_bypassed[volume] = false;
    }

    /// Sets the mode of a volume.
    ///
    /// # Errors
    /// A violation.
    pub fn set_mode(&mut self, volume: usize, mode: WriteMode, changes: u64) -> Result<bool, Violation> {
        self.asked_modes.push((0, volume, mode));
        self.note_mode(volume, mode);
        let is_done = self.edit_superblock(changes, |superblock| {
            if let Some(record) = &mut superblock.volumes[volume] {
                record.mode = mode;
            }
        })?;
        if is_done {
            self.asked_modes.retain(|(_, of, _)| *of != volume);
            self.modes[volume] = mode;
        }
        Ok(is_done)
    }

    /// Gives a volume the size of its origin, which has grown. Refused where the old end is in the middle of a block or slot.
    ///
    /// # Errors
    /// A violation.
    pub fn set_size(&mut self, volume: usize, changes: u64) -> Result<bool, Violation> {
        if !self.volume_sectors(volume).is_multiple_of(self.setup.dirty_unit_sectors()) {
            return Ok(true);
        }
        self.time_passes_at_servers(u64::MAX);
        let disk = &mut self.origins[volume];
        let (size_sectors, fingerprint) = (disk.sectors(), fingerprint(disk));
        self.asked_sizes.push((0, volume, size_sectors));
        let is_done = self.edit_superblock(changes, |superblock| {
            if let Some(record) = &mut superblock.volumes[volume] {
                (record.size_sectors, record.fingerprint) = (size_sectors, fingerprint);
            }
        })?;
        if is_done {
            self.asked_sizes.retain(|(_, of, _)| *of != volume);
            self.setup.volumes[volume].sectors = size_sectors;
        }
        Ok(is_done)
    }

    /// Repairs a cache that is refused. What the repair may lose is any block of which the log had an entry, or any at all where
    /// records of slots rotted: such a block may read as any content that it ever had; every other one reads as before.
    ///
    /// # Errors
    /// A violation.
    pub fn repair(&mut self, changes: u64) -> Result<bool, Violation> {
        let mentioned = if self.setup.slots.is_some() { self.all_ranges() } else { self.mentioned_in_log() };
        let budget_bytes = self.setup.options().index_budget_bytes;
        let mut image = CutImage::cut_after(&mut self.cache, changes);
        let repaired = check::repair(&mut image, budget_bytes);
        let was_cut = image.was_cut();
        for (volume, range) in mentioned {
            self.oracle.may_be_any(volume, range);
            if self.setup.keys.is_some() {
                // A key that counts again may lead to what was filled anew since: what was dirty there is lost.
                (range.start..range.end()).for_each(|sector| self.oracle.explained.suspect(volume, sector));
            }
        }
        if was_cut {
            self.cut_power_by_chance();
            return self.is_sound().map(|()| false);
        }
        match repaired {
            Ok(_) => {
                self.rotten_records.clear();
                self.note(What::Behind { volume: 0, what: "repaired" });
            }
            Err(error) => self.fail(Kind::Contract, format!("a cache cannot be repaired: {error}")),
        }
        self.is_sound().map(|()| true)
    }

    fn all_ranges(&self) -> Vec<(usize, SectorRange)> {
        let whole = |volume| (volume, SectorRange { start: 0, sectors: self.volume_sectors(volume) });
        (0..self.volumes()).map(whole).collect()
    }

    /// The ranges of all entries in the log, dead ones and those of rotten headers included.
    fn mentioned_in_log(&mut self) -> Vec<(usize, SectorRange)> {
        let Ok((superblock, _)) = load_superblock(&mut CutImage::whole(&mut self.cache)) else {
            return Vec::new();
        };
        let volume_of = |id: VolumeId| {
            let mut records = superblock.volumes.iter();
            records.position(|record| record.as_ref().is_some_and(|record| record.id == id))
        };
        let mut whole = self.cache.clone();
        whole.heal_rot();
        let mut mentioned = Vec::new();
        let sectors = whole.sectors();
        for first in (SEGMENTS_OFFSET / SECTOR as u64..sectors).step_by(SECTORS_PER_BLOCK as usize) {
            if !matches!(whole.read(first, 1)[0], Sector::Bytes(_)) {
                continue;
            }
            let count = (u64::from(HEADER_BLOCKS_MAX) * SECTORS_PER_BLOCK).min(sectors - first);
            let mut bytes = vec![0; HEADER_BLOCKS_MAX as usize * BLOCK_BYTES as usize];
            for (cell, into) in whole.read(first, count).iter().zip(bytes.chunks_mut(SECTOR)) {
                cell.expand(into);
            }
            let entries = BatchHeader::decode(&bytes).map_or_else(|_| Vec::new(), |batch| batch.entries);
            mentioned
                .extend(entries.iter().filter_map(|entry| Some((volume_of(entry.volume)?, entry.range()))));
        }
        mentioned
    }
}
