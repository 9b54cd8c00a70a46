//! Origins that somebody changes while no engine runs, and what a start may make of that: the table at the top of
//! `lab/src/disk/mod.rs` has the law.
//!
//! What the cache has of a block when its origin is changed decides: what it has as dirty stays and goes home, what it has
//! as clean is compared, what it has not is the origin's. The judge asks recovery for that before the change, and demands
//! that no later start finds more than that: neither after refused ones nor after a crash.

use super::halves;
use super::image::CutImage;
use super::operator::fingerprint;
use super::start::{Refusal, checksum_at};
use super::{What, World};
use crate::content::{Sector, Tag};
use crate::disk::{Content, Disk, Fate};
use crate::violation::{Kind, Violation};
use engine::composition::contract::Aftermath;
use engine::format::{Fingerprint, Layout, Superblock};
use engine::recovery::{self, Held, Opened, SAMPLES, load_superblock};
use engine::units::{SECTORS_PER_BLOCK, SectorRange, VolumeId, VolumeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// An origin as it was before somebody changed it.
struct Former {
    cells: Vec<Sector>,
    identity: String,
}

/// Knowledge of the cache and its origins when somebody changed them.
struct Change {
    superblock: Superblock,
    /// For each volume, what the cache has of each block.
    held: Vec<Vec<Option<Held>>>,
    former: Vec<Former>,
}

/// Remains of changes behind the cache's back.
#[derive(Default)]
pub(super) struct Behind {
    change: Option<Box<Change>>,
    /// Blocks whose clean copies are older than the origin, which no start noticed.
    stale: BTreeSet<(usize, u64)>,
    /// Sectors of an origin that somebody wrote, and their content before: no client has changed their blocks since.
    newer: BTreeMap<(usize, u64), Tag>,
    /// Sectors among them that were read from the origin since: a row that a write takes along is dirty, and as new.
    read_again: BTreeSet<(usize, u64)>,
}

impl Behind {
    /// Whether the clean copy of a block may be older than what the origin has.
    pub fn is_stale(&self, volume: usize, block: u64) -> bool {
        !self.stale.is_empty() && self.stale.contains(&(volume, block))
    }

    /// Whether this content of a sector is older than what somebody wrote there, and nobody asked for it.
    pub fn is_older(&self, volume: usize, sector: u64, tag: Tag) -> bool {
        !self.newer.is_empty() && self.newer.get(&(volume, sector)) == Some(&tag)
    }

    /// A client changes these sectors: with them the rest of their blocks is the cache's.
    pub fn changed(&mut self, volume: usize, range: SectorRange, unit_sectors: u64) {
        if self.newer.is_empty() {
            return;
        }
        let start = range.start / unit_sectors * unit_sectors;
        let end = range.end().next_multiple_of(unit_sectors);
        let gone: Vec<u64> =
            self.newer.range((volume, start)..(volume, end)).map(|((_, sector), _)| *sector).collect();
        for sector in gone {
            self.newer.remove(&(volume, sector));
        }
    }

    /// Notes that the engine reads these sectors of an origin.
    pub fn note_read(&mut self, volume: usize, first: u64, sectors: u64) {
        let read = self.newer.range((volume, first)..(volume, first + sectors)).map(|(place, _)| *place);
        self.read_again.extend(read);
    }

    /// Marks what is older in the cache than on changed origins.
    fn follow(&mut self, change: &Change, changed: &[(usize, u64, Tag)]) {
        let is_of_volume = |(volume, sector, _): &&(usize, u64, Tag)| {
            change.superblock.volumes[*volume].as_ref().is_none_or(|record| *sector < record.size_sectors)
        };
        for &(volume, sector, before) in changed.iter().filter(is_of_volume) {
            let block = sector / SECTORS_PER_BLOCK;
            match change.held[volume][block as usize] {
                Some(Held::Dirty | Held::Lost) => continue,
                Some(Held::Clean) => drop(self.stale.insert((volume, block))),
                None => (),
            }
            self.newer.insert((volume, sector), before);
            self.read_again.remove(&(volume, sector));
        }
    }

    /// Forgets a volume: it begins anew.
    pub fn forget(&mut self, volume: usize) {
        self.stale.retain(|(of, _)| *of != volume);
        self.newer.retain(|(of, _), _| *of != volume);
    }
}

impl World {
    /// Gets ready for changes of the origins, while no engine runs. False where nobody could tell what they come to: where
    /// something is broken already, or was changed before.
    pub fn begin_changes(&mut self) -> bool {
        let explained = &self.oracle.explained;
        let is_broken = self.is_metadata_rotten
            || self.is_end_lost
            || self.abandoned.contains(&true)
            || explained.is_all_suspect()
            || (0..self.volumes()).any(|volume| explained.has_suspects(volume));
        if is_broken || self.engine.is_some() || !self.behind.stale.is_empty() {
            return false;
        }
        self.time_passes_at_servers(u64::MAX);
        // The machine stays on for a while, or somebody syncs the disks before he takes them away.
        let World { cache, mirror, origins, setup, .. } = self;
        // A half that was gone is there for the start, and so for the judge.
        [Some(&mut *cache), mirror.as_mut()].into_iter().flatten().for_each(|half| half.faults.heal());
        cache.flush_all();
        mirror.iter_mut().chain(origins).for_each(Disk::flush_all);
        let joined = halves::join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk)).ok();
        let opened = joined.and_then(|mut image| recovery::inspect(&mut image, setup.options()).ok());
        let Some(opened) = opened else { return false };
        // A detach that a crash cut off may have been done: its origin was right before somebody changed it.
        for volume in 0..self.origins.len() {
            let is_gone = opened.superblock.volumes[volume].is_none();
            if is_gone && self.expect_detached(volume, self.asked_detach[volume]).is_err() {
                return false;
            }
        }
        let held = self.origins.iter().enumerate().map(|(volume, disk)| {
            let blocks = disk.sectors().div_ceil(SECTORS_PER_BLOCK);
            (0..blocks).map(|block| opened.held(VolumeIndex(volume as u8), block)).collect()
        });
        let held = held.collect();
        let formers = self.origins.iter().zip(&self.identities);
        let former = formers
            .map(|(disk, identity)| Former {
                cells: disk.read(0, disk.sectors()).to_vec(),
                identity: identity.clone(),
            })
            .collect();
        self.behind.change = Some(Box::new(Change { superblock: opened.superblock, held, former }));
        true
    }

    /// Whether the clean copy of a block may be older than the origin, which no start noticed so far.
    #[must_use]
    pub fn is_stale(&self, volume: usize, block: u64) -> bool {
        self.behind.is_stale(volume, block)
    }

    /// Whether there are such copies.
    #[must_use]
    pub fn has_stale(&self) -> bool {
        !self.behind.stale.is_empty()
    }

    /// A copy of the cache as it is durably, and the number of its superblock.
    #[must_use]
    pub fn copy_of_cache(&mut self) -> Option<(Disk, u64)> {
        let mut copy = self.cache.clone();
        copy.cut_power(&mut |_| Fate::Lost);
        let (superblock, _) = load_superblock(&mut CutImage::whole(&mut copy)).ok()?;
        Some((copy, superblock.update))
    }

    /// Starts with an older copy of the cache in its place, which must be refused, and puts the cache back.
    ///
    /// # Errors
    /// A violation.
    pub fn start_older_copy(&mut self, (copy, update): &(Disk, u64)) -> Result<(), Violation> {
        if *update >= self.noted_update || self.is_metadata_rotten || self.abandoned.contains(&true) {
            return Ok(());
        }
        let newer = std::mem::replace(&mut self.cache, copy.clone());
        let outcome = self.try_open();
        self.cache = newer;
        self.note(What::Refused);
        if outcome?.is_ok() {
            self.fail(Kind::Contract, "an older copy of the cache is served");
        }
        self.is_sound()
    }

    /// Content of all origins, to roll one of them back later.
    #[must_use]
    pub fn origin_contents(&self) -> Vec<Vec<Tag>> {
        let content = |disk: &Disk| disk.read(0, disk.sectors()).iter().map(Sector::tag).collect();
        self.origins.iter().map(content).collect()
    }

    /// Somebody writes to an origin by itself.
    pub fn write_behind(&mut self, volume: usize, range: SectorRange) {
        self.note(What::Behind { volume, what: "written" });
        let number = self.oracle.number_write(volume, range);
        let data = (0..range.sectors).map(|offset| Sector::Tag(Tag::written(number, offset))).collect();
        self.origins[volume].tamper(range.start, &Content::Data(data));
    }

    /// An origin is what it was some time ago, as far as that is known.
    pub fn roll_origin_back(&mut self, volume: usize, older: &[Tag]) {
        self.note(What::Behind { volume, what: "rolled back" });
        let end = self.origins[volume].sectors().min(older.len() as u64) as usize;
        let data = older[..end].iter().map(|tag| Sector::Tag(*tag)).collect();
        self.origins[volume].tamper(0, &Content::Data(data));
    }

    /// Another disk is in the place of an origin.
    pub fn replace_origin(&mut self, volume: usize) {
        let sectors = self.origins[volume].sectors();
        for start in (0..sectors).step_by(2048) {
            self.write_behind(volume, SectorRange { start, sectors: (sectors - start).min(2048) });
        }
        self.note(What::Behind { volume, what: "replaced" });
        if !self.identities[volume].is_empty() {
            self.identities[volume] += "'";
        }
    }

    /// An origin gets another size; what is new of it is as somebody wrote it.
    pub fn resize_origin(&mut self, volume: usize, sectors: u64) {
        self.note(What::Behind { volume, what: "resized" });
        let size = self.origins[volume].sectors();
        if sectors < size {
            self.origins[volume].shrink(sectors);
        } else if sectors > size {
            self.origins[volume].grow(sectors, |sector| Tag::initial(volume, sector));
        }
    }

    /// Puts the origins back as they were.
    pub fn put_origins_back(&mut self) {
        let Some(change) = self.behind.change.take() else { return };
        for (volume, former) in change.former.into_iter().enumerate() {
            let sectors = former.cells.len() as u64;
            let disk = &mut self.origins[volume];
            if disk.sectors() < sectors {
                disk.grow(sectors, |_| Tag::ZERO);
            }
            disk.shrink(sectors);
            disk.tamper(0, &Content::Data(former.cells.into()));
            self.identities[volume] = former.identity;
            self.note(What::Behind { volume, what: "put back" });
        }
    }

    /// Starts once while origins are changed. A refusal must have a reason, and where there is a certain one, there must be a
    /// refusal. A start that goes on is one with origins as they are.
    ///
    /// # Errors
    /// A violation.
    pub fn start_changed(&mut self) -> Result<Option<Refusal>, Violation> {
        let Some(change) = self.behind.change.take() else { return self.open().map(|()| None) };
        self.settle_rot(0);
        let reason = self.reason_to_refuse(&change);
        let changed = self.changed_sectors(&change);
        self.behind.follow(&change, &changed);
        match self.try_open()? {
            Ok(()) => {
                self.follow_changes(&change, &changed);
                if let Some(reason) = reason {
                    self.fail(Kind::Contract, format!("a cache is served although {reason}"));
                }
                self.is_sound().map(|()| None)
            }
            Err(refusal) => {
                self.note(What::Refused);
                let is_explained = match &refusal {
                    Refusal::Origin { volume, .. } | Refusal::Sample { volume, .. } => {
                        self.is_changed(&change, *volume)
                    }
                    Refusal::Cache(_) | Refusal::Pair(_) | Refusal::RolledBack | Refusal::Replaced => false,
                };
                if !is_explained {
                    self.fail(Kind::Contract, format!("a cache is refused for no reason: {refusal}"));
                }
                (self.behind.stale, self.behind.newer) = Default::default();
                self.behind.change = Some(change);
                self.is_sound().map(|()| Some(refusal))
            }
        }
    }

    /// The sectors that have another content now: volume, number, content before.
    fn changed_sectors(&self, change: &Change) -> Vec<(usize, u64, Tag)> {
        let mut changed = Vec::new();
        for (volume, former) in change.former.iter().enumerate() {
            let disk = &self.origins[volume];
            let now = disk.read(0, disk.sectors().min(former.cells.len() as u64));
            let pairs = (0..).zip(now.iter().zip(&former.cells));
            let others = pairs.filter(|(_, (now, before))| now != before);
            changed.extend(others.map(|(sector, (_, before))| (volume, sector, before.tag())));
        }
        changed
    }

    /// Whether anything at all is different of a volume's origin.
    fn is_changed(&self, change: &Change, volume: usize) -> bool {
        let former = &change.former[volume];
        former.identity != self.identities[volume]
            || self.origins[volume].sectors() != former.cells.len() as u64
            || self.changed_sectors(change).iter().any(|(of, ..)| *of == volume)
    }

    /// Reason for which a start must be refused: its checks cannot miss it.
    fn reason_to_refuse(&self, change: &Change) -> Option<String> {
        for (volume, record) in change.superblock.volumes.iter().enumerate() {
            let (Some(record), Some(disk)) = (record, self.origins.get(volume)) else { continue };
            if !record.identity.is_empty() && record.identity != self.identities[volume] {
                return Some(format!("origin {volume} is another disk"));
            }
            if disk.sectors() < record.size_sectors {
                return Some(format!("origin {volume} has shrunk"));
            }
            for Fingerprint { offset_bytes, checksum } in record.fingerprint.iter().flatten() {
                if checksum_at(disk, *offset_bytes) != *checksum {
                    return Some(format!(
                        "origin {volume} was changed at its well-known byte {offset_bytes}"
                    ));
                }
            }
        }
        let (mut clean, mut changed) = (0, 0);
        for (volume, held) in change.held.iter().enumerate() {
            // The last block may be short, and is not compared.
            let blocks = self.volume_sectors(volume).div_ceil(SECTORS_PER_BLOCK).saturating_sub(1);
            let former = &change.former[volume];
            for (block, _) in (0..blocks).zip(held).filter(|(_, held)| **held == Some(Held::Clean)) {
                let first = block * SECTORS_PER_BLOCK;
                let before = &former.cells[first as usize..(first + SECTORS_PER_BLOCK) as usize];
                clean += 1;
                changed += usize::from(self.origins[volume].read(first, SECTORS_PER_BLOCK) != before);
            }
        }
        let is_certain = changed > 0 && (clean <= SAMPLES || changed == clean);
        is_certain.then(|| format!("{changed} of {clean} clean blocks are not what the origin has"))
    }

    /// Lets the oracle know what the cache and changed origins come to, when they are served.
    fn follow_changes(&mut self, change: &Change, changed: &[(usize, u64, Tag)]) {
        for &(volume, sector, before) in changed {
            let now = self.origins[volume].read(sector, 1)[0].tag();
            if sector >= self.volume_sectors(volume) {
                self.oracle.became(volume, sector, now);
                continue;
            }
            match change.held[volume][(sector / SECTORS_PER_BLOCK) as usize] {
                None => self.oracle.became(volume, sector, now),
                Some(Held::Clean) => self.oracle.became_either(volume, sector, before, now),
                // The cache hides what the origin has, and writes over it.
                Some(Held::Dirty | Held::Lost) => (),
            }
        }
        for (volume, disk) in self.origins.iter().enumerate() {
            self.oracle.fit(volume, disk.sectors(), |sector| Tag::initial(volume, sector));
        }
    }

    /// Blocks that were clean when somebody changed their origin are not dirty later, but where a crash makes them so by
    /// the kind of their records.
    pub(super) fn expect_newer_origins_respected(&mut self, opened: &Opened) -> Result<(), Violation> {
        let aftermath = self.setup.slots.map(|slots| slots.composition.contract().aftermath);
        let widens = matches!(aftermath, Some(Aftermath::AllDirty | Aftermath::DirtySuperset { .. }));
        let is_dirty = |(volume, sector): (usize, u64)| {
            opened.held(VolumeIndex(volume as u8), sector / SECTORS_PER_BLOCK) == Some(Held::Dirty)
        };
        let is_widened = widens && !opened.report.was_clean;
        let Behind { newer, read_again, .. } = &self.behind;
        let is_row = |place: &(usize, u64)| !is_widened && read_again.contains(place);
        let places = newer.keys().copied().filter(|place| !is_row(place));
        let dirty: Vec<(usize, u64)> = places.filter(|place| is_dirty(*place)).collect();
        if let (Some((volume, sector)), false) = (dirty.first(), is_widened) {
            let what = format!(
                "sector {sector} of volume {volume} was clean when its origin was changed, and counts as dirty"
            );
            self.fail(Kind::Physical, what);
        }
        self.behind.newer.retain(|place, _| !dirty.contains(place));
        let is_clean = |(volume, block): &(usize, u64)| {
            opened.held(VolumeIndex(*volume as u8), *block) == Some(Held::Clean)
        };
        self.behind.stale.retain(is_clean);
        self.is_sound()
    }

    /// Accepts the origin of a volume as it is, as `set origin=changed-discard-dirty` does: what is cached of it is void.
    /// The power may be cut instead of the write or flush after the first `changes`; then it is to be repeated.
    ///
    /// # Errors
    /// A violation.
    pub fn accept_origin(&mut self, volume: usize, changes: u64) -> Result<bool, Violation> {
        let disk = &mut self.origins[volume];
        let (size_sectors, fingerprint) = (disk.sectors(), fingerprint(disk));
        let identity = self.identities[volume].clone();
        let mut accepted = None;
        let is_done = self.edit_superblock(changes, |superblock| {
            let id = VolumeId(superblock.next_volume_id);
            superblock.next_volume_id += 1;
            let keeps_floor = matches!(superblock.layout, Layout::Slots(_));
            if let Some(record) = &mut superblock.volumes[volume] {
                (record.id, record.size_sectors, record.identity) = (id, size_sectors, identity);
                record.clean_floor_sequence *= u64::from(keeps_floor);
                record.fingerprint = fingerprint;
            }
            accepted = Some(superblock.clone());
        })?;
        if !is_done {
            return Ok(false);
        }
        self.note(What::Behind { volume, what: "accepted" });
        self.begin_anew(volume);
        if let (Some(change), Some(superblock)) = (&mut self.behind.change, accepted) {
            let disk = &self.origins[volume];
            change.held[volume] = vec![None; disk.sectors().div_ceil(SECTORS_PER_BLOCK) as usize];
            change.former[volume].cells = disk.read(0, disk.sectors()).to_vec();
            change.former[volume].identity.clone_from(&self.identities[volume]);
            change.superblock = superblock;
        }
        Ok(true)
    }
}
