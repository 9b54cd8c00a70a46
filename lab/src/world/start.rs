//! Starts, in the daemon's order: recovery, the origins compared with what the cache knows of them, and only then a
//! session.

use super::halves;
use super::image::{CutImage, Faulty};
use super::requests::bypasses;
use super::{What, World};
use crate::content::{self, SECTOR, Sector, Tag};
use crate::disk::{Disk, Fate};
use crate::violation::{Kind, Violation};
use crate::world::AtStake;
use engine::effect::Errno;
use engine::engine::Engine;
use engine::image::Image;
use engine::mutation::Mutations;
use engine::pair::{JoinError, PairWords};
use engine::recovery::{
    self, Difference, Growth, OpenError, Opened, OriginSeen, StartError, load_superblock,
};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeId, VolumeIndex, payload_checksum};
use std::cell::{Cell, RefCell};
use std::fmt;

/// Clean blocks that are compared with their origins at a start, at the most: all that a small cache has.
const COMPARED_MAX: usize = 1 << 20;

/// Reason why a start came to nothing.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The cache cannot be opened.
    Cache(OpenError),
    /// The cache is an older copy of itself.
    RolledBack,
    /// Another cache took its place.
    Replaced,
    /// The two devices of a mirrored cache cannot be used.
    Pair(JoinError),
    /// An origin is not the one on record.
    Origin {
        /// Its volume.
        volume: usize,
        /// The difference.
        difference: Difference,
    },
    /// An origin is not what a clean block says.
    Sample {
        /// Its volume.
        volume: usize,
        /// Where they differ.
        offset_bytes: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Cache(error) => error.fmt(f),
            Refusal::Pair(error) => error.fmt(f),
            Refusal::Replaced => f.write_str("another cache took the place of this one"),
            Refusal::RolledBack => f.write_str("the cache is an older copy of itself"),
            Refusal::Origin { volume, difference } => {
                write!(f, "the origin of volume {volume} is another one: {difference:?}")
            }
            Refusal::Sample { volume, offset_bytes } => {
                write!(f, "the origin of volume {volume} differs from a clean block at byte {offset_bytes}")
            }
        }
    }
}

/// The origins as a start sees them.
pub(super) struct Origins<'a> {
    pub disks: &'a [Disk],
    pub identities: &'a [String],
    /// Number of the newest superblock that is noted beside the cache.
    pub noted_update: u64,
    pub mutations: Mutations,
}

impl Origins<'_> {
    /// Compares all of them with what the cache knows. Tells which have grown.
    pub fn compare(&self, image: &mut impl Image, found: &Opened) -> Result<[Growth; VOLUMES_MAX], Refusal> {
        if recovery::is_rolled_back(&found.superblock, self.noted_update, self.mutations) {
            return Err(Refusal::RolledBack);
        }
        let mut growths = [Growth::Same; VOLUMES_MAX];
        for (at, record) in found.superblock.volumes.iter().enumerate() {
            let (Some(record), Some(disk)) = (record, self.disks.get(at)) else { continue };
            let seen = OriginSeen {
                identity: &self.identities[at],
                size_sectors: disk.sectors(),
                sector_bytes: SECTOR as u32,
            };
            let read = |offset_bytes| Ok::<u32, Refusal>(checksum_at(disk, offset_bytes));
            growths[at] = recovery::compare_origin(record, &seen, read, self.mutations)?
                .map_err(|difference| Refusal::Origin { volume: at, difference })?;
        }
        let samples =
            found.samples(image, self.mutations).map_err(|errno| Refusal::Cache(OpenError::Device(errno)))?;
        for recovery::Sample { volume, offset_bytes, checksum } in samples {
            if checksum_at(&self.disks[volume.at()], offset_bytes) != checksum {
                return Err(Refusal::Sample { volume: volume.at(), offset_bytes });
            }
        }
        Ok(growths)
    }
}

/// The checksum of a block of a device; 0 behind its end.
pub(super) fn checksum_at(disk: &Disk, offset_bytes: u64) -> u32 {
    let first = offset_bytes / SECTOR as u64;
    if first + SECTORS_PER_BLOCK > disk.sectors() {
        return 0;
    }
    let cells = disk.read(first, SECTORS_PER_BLOCK);
    if cells.iter().all(|cell| matches!(cell, Sector::Tag(_))) {
        let tags: Vec<Tag> = cells.iter().map(Sector::tag).collect();
        return content::checksum(&tags);
    }
    let mut bytes = [0; BLOCK_BYTES as usize];
    cells.iter().zip(bytes.chunks_mut(SECTOR)).for_each(|(cell, into)| cell.expand(into));
    payload_checksum(&bytes)
}

/// Whether a power cut leaves a block of a device as it is.
fn is_durable(disk: &Disk, block: u64) -> bool {
    let first = block * SECTORS_PER_BLOCK;
    (first..).zip(disk.read(first, SECTORS_PER_BLOCK)).all(|(at, shown)| disk.durable(at) == shown)
}

impl World {
    /// Recovers the cache and starts an engine. Devices that were gone because of a timeout are back.
    ///
    /// # Errors
    /// A violation; a cache that cannot be opened is one of kind [`Kind::Contract`].
    pub fn open(&mut self) -> Result<(), Violation> {
        if let Err(refusal) = self.try_open()? {
            self.fail(Kind::Contract, format!("the cache cannot be opened: {refusal}"));
        }
        self.is_sound()
    }

    /// Recovers the cache and starts an engine, or returns why it cannot be opened.
    ///
    /// # Errors
    /// A violation.
    pub fn try_open(&mut self) -> Result<Result<(), Refusal>, Violation> {
        self.is_sound()?;
        self.cache_failed_ns = None;
        // RULE 17: what it holds is void.
        if self.is_cache_replaced() {
            return Ok(Err(Refusal::Replaced));
        }
        self.wait_for_servers();
        self.open_servers();
        if let Err(error) = self.renumber_abandoned() {
            return Ok(Err(Refusal::Cache(error)));
        }
        let writes = self.cache.writes() + self.mirror.as_ref().map_or(0, Disk::writes);
        let is_edit_alone = self.is_edit_alone;
        let World { cache, mirror, origins, identities, random, setup, noted_update, .. } = self;
        // A start that cannot read that copy takes the older one. The operator was told of no success, so either will do;
        // but the oracle believes in the newer.
        let faulty =
            Faulty { random: RefCell::new(random), is_off: Cell::new(is_edit_alone), faults: Cell::new(0) };
        let joined =
            halves::join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk).with_faults(&faulty));
        let mut image = match joined {
            Ok(image) => image,
            Err(error) => return Ok(Err(Refusal::Pair(error))),
        };
        let mutations = setup.mutations;
        let compared = Origins { disks: origins, identities, noted_update: *noted_update, mutations };
        let mut growths = [Growth::Same; VOLUMES_MAX];
        let is_compared = setup.are_origins_compared;
        let opened = recovery::start(&mut image, setup.options(), |image, found| {
            if is_compared {
                growths = faulty.without(|| compared.compare(image, found))?;
            }
            Ok(())
        });
        let pair = image.words();
        drop(image);
        self.counts.faults += faulty.faults.get();
        let opened = match opened {
            Ok(opened) => opened,
            Err(StartError::Open(error)) => return Ok(Err(Refusal::Cache(error))),
            Err(StartError::Refused(refusal)) => {
                if self.cache.writes() + self.mirror.as_ref().map_or(0, Disk::writes) != writes {
                    self.fail(
                        Kind::Contract,
                        format!("a start wrote to the cache and was refused: {refusal}"),
                    );
                }
                return self.is_sound().map(|()| Err(refusal));
            }
        };
        if is_compared {
            self.expect_growth_noticed(&opened, growths)?;
        }
        self.opened(opened, pair)?;
        self.rotten_records.clear();
        Ok(Ok(()))
    }

    /// Notes the newest superblock, as the daemon does beside the cache when it stops.
    pub(super) fn note_update(&mut self) {
        if let Some(update) = self.update_of_pair() {
            self.noted_update = update;
        }
    }

    /// Checks that whoever starts a cache learns that an origin has grown.
    fn expect_growth_noticed(
        &mut self,
        opened: &Opened,
        growths: [Growth; VOLUMES_MAX],
    ) -> Result<(), Violation> {
        for (at, growth) in growths.into_iter().enumerate().take(self.origins.len()) {
            let Some(record) = &opened.superblock.volumes[at] else { continue };
            let has_grown = self.origins[at].sectors() > record.size_sectors;
            if (growth == Growth::Grown) != has_grown {
                let (size, recorded) = (self.origins[at].sectors(), record.size_sectors);
                let what =
                    format!("{growth:?} is said of origin {at}: it has {size} sectors, {recorded} on record");
                self.fail(Kind::Contract, what);
            }
        }
        self.is_sound()
    }

    /// Begins a life with an opened cache.
    fn opened(&mut self, opened: Opened, pair: Option<PairWords>) -> Result<(), Violation> {
        self.is_edit_alone = false;
        self.hurt = None;
        self.counts.recoveries += 1;
        self.counts.batches_cut += opened.report.batches_cut;
        self.counts.checkpoint_loads += u64::from(opened.report.loaded_blocks > 0);
        let dirty_bytes: u64 = (0..VOLUMES_MAX).map(|at| opened.dirty_bytes(VolumeIndex(at as u8))).sum();
        self.counts.dirty_recoveries += u64::from(dirty_bytes > 0);
        self.reports.push(opened.report);
        self.note(What::Open { session: opened.superblock.session, dirty_bytes });
        let untold = self.notes.untold();
        let at = self.oracle.moment();
        self.oracle.explained.restarted(&untold, at);
        self.settle_settings(&opened)?;
        self.note_needs_at_start(&opened);
        let is_any_bypassed = self.is_any_bypassed();
        for ((is_bypassed, mode), origin) in self.is_bypassed.iter_mut().zip(&self.modes).zip(&self.origins) {
            // Writes of the process before to the origin alone may still be lost there, and are in no log.
            let is_left = *is_bypassed && !origin.unflushed().is_empty();
            *is_bypassed = is_any_bypassed || is_left || bypasses(*mode);
        }
        if self.setup.is_checked_on_open {
            self.expect_sound_image()?;
        }
        self.expect_both_halves()?;
        self.expect_newer_origins_respected(&opened)?;
        self.expect_aftermath(&opened)?;
        if let Some(log_end) = &mut self.log_end {
            log_end.started();
            self.oracle.told(None);
        }
        // Behind a lost end a record may have lain that a clean copy is older than the origin.
        if self.setup.are_copies_compared && !self.is_end_lost {
            self.expect_clean_copies_right(&opened)?;
        }
        // The daemon notes it beside the cache when the session is durable.
        self.noted_update = opened.superblock.update;
        let config = self.setup.engine_config();
        let mut engine = Engine::new(opened, config);
        if let Some(pair) = pair {
            engine.set_pair(pair);
        }
        engine.take_over_losses(&untold);
        self.engine = Some(engine);
        self.settle_order();
        self.lost_under_cache.clear();
        self.clock = crate::clock::Clock::default();
        self.use_servers();
        self.pump();
        self.is_sound()
    }

    /// Whether writes go around the cache in any mode: in slots and buckets when there is no room for them, elsewhere if the
    /// composition says so.
    pub(super) fn is_any_bypassed(&self) -> bool {
        self.setup.slots.is_some() || self.setup.keys.is_some() || self.setup.bypasses_waits()
    }

    /// A mode or a size that was acknowledged is durable; one that was only asked for may be.
    fn settle_settings(&mut self, opened: &Opened) -> Result<(), Violation> {
        let asked = std::mem::take(&mut self.asked_modes);
        let asked_sizes = std::mem::take(&mut self.asked_sizes);
        let asked_detach = std::mem::take(&mut self.asked_detach);
        let asked_add = std::mem::take(&mut self.asked_add);
        for (volume, is_asked) in asked_detach.into_iter().enumerate().take(self.modes.len()) {
            let Some(record) = &opened.superblock.volumes[volume] else {
                self.expect_detached(volume, is_asked)?;
                continue;
            };
            if let (true, Some(mode)) = (self.detached[volume], asked_add[volume]) {
                self.detached[volume] = false;
                self.modes[volume] = mode;
            }
            if self.detached[volume] {
                self.fail(Kind::Contract, format!("volume {volume} was detached, and is back"));
            }
            let (known, found) = (self.modes[volume], record.mode);
            if found != known && !asked.iter().any(|(_, of, mode)| (*of, *mode) == (volume, found)) {
                self.fail(
                    Kind::Contract,
                    format!("volume {volume} was in mode {known:?}, and is in {found:?}"),
                );
            }
            self.modes[volume] = found;
            let (known, found) = (self.setup.volumes[volume].sectors, record.size_sectors);
            if found != known && !asked_sizes.iter().any(|(_, of, size)| (*of, *size) == (volume, found)) {
                self.fail(Kind::Contract, format!("volume {volume} had {known} sectors, and has {found}"));
            }
            self.setup.volumes[volume].sectors = found;
        }
        self.is_sound()
    }

    /// A volume is off the cache: somebody asked for that, and its origin has all of it.
    pub(super) fn expect_detached(&mut self, volume: usize, is_asked: bool) -> Result<(), Violation> {
        if std::mem::replace(&mut self.detached[volume], true) {
            return Ok(());
        }
        if !is_asked {
            self.fail(Kind::Contract, format!("volume {volume} is off the cache, and nobody asked for that"));
        }
        self.expect_origin_equals_view(volume)
    }

    /// Voids the cached data of abandoned volumes, as the daemon does before it recovers.
    fn renumber_abandoned(&mut self) -> Result<(), OpenError> {
        if !self.abandoned.contains(&true) {
            return Ok(());
        }
        let World { cache, mirror, setup, .. } = self;
        let mutations = setup.mutations;
        let Ok(mut image) = halves::join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk)) else {
            // The start itself tells why.
            return Ok(());
        };
        if image.is_mirrored() {
            let opened = recovery::inspect(&mut image, setup.options())?;
            recovery::settle(&mut image, &opened).map_err(OpenError::Device)?;
        }
        let (mut superblock, _) = load_superblock(&mut image)?;
        for (at, is_abandoned) in self.abandoned.iter_mut().enumerate() {
            if let (true, Some(record)) = (std::mem::take(is_abandoned), &mut superblock.volumes[at]) {
                record.id = VolumeId(superblock.next_volume_id);
                record.fingerprint = Default::default();
                superblock.next_volume_id += 1;
            }
        }
        superblock.update += 1;
        recovery::write_superblock(&mut image, &superblock, mutations).map_err(OpenError::Device)
    }

    /// RULE 2, RULE 11: checks that clean cached blocks have the origin's content, which the origin keeps.
    fn expect_clean_copies_right(&mut self, opened: &Opened) -> Result<(), Violation> {
        let mut random = self.random.fork(3);
        for (volume, offset_bytes, checksum) in opened.sample_clean(COMPARED_MAX, &mut || random.next_u64()) {
            let (at, block) = (volume.at(), offset_bytes / BLOCK_BYTES);
            if self.behind.is_stale(at, block) {
                continue;
            }
            let origin = &self.origins[at];
            let wrong = if checksum_at(origin, offset_bytes) != checksum {
                "is not what the origin has"
            } else if !is_durable(origin, block) && !self.setup.origins_keep {
                "is what the origin may lose"
            } else {
                continue;
            };
            self.fail(Kind::Physical, format!("the clean copy of block {block} of volume {at} {wrong}"));
        }
        self.is_sound()
    }

    /// Whether a start may be refused because rot took the log's end: behind it a record may have lain that a clean copy is older
    /// than the origin.
    #[must_use]
    pub fn may_refuse(&self, refusal: &Refusal) -> bool {
        self.is_end_lost && matches!(refusal, Refusal::Sample { .. })
    }

    /// Starts, and cuts the power instead of the write or flush after the first `changes`. False if the start needed no
    /// more than those: then the engine runs, unless rot took the log's end and the start was refused.
    ///
    /// # Errors
    /// A violation.
    pub fn open_and_cut(
        &mut self,
        changes: u64,
        mut fate: impl FnMut(&AtStake) -> Fate,
    ) -> Result<bool, Violation> {
        self.is_sound()?;
        self.wait_for_servers();
        let World { cache, mirror, origins, identities, setup, noted_update, .. } = self;
        let mutations = setup.mutations;
        let compared = Origins { disks: origins, identities, noted_update: *noted_update, mutations };
        let is_compared = setup.are_origins_compared;
        let all = Cell::new(0);
        let cut = |disk, _| CutImage::cut_after(disk, changes).counting(&all);
        let mut image = match halves::join(cache, mirror.as_mut(), cut) {
            Ok(image) => image,
            Err(error) => {
                self.fail(Kind::Contract, format!("the cache cannot be opened: {error}"));
                return self.is_sound().map(|()| true);
            }
        };
        let opened = recovery::start(&mut image, setup.options(), |image, found| {
            if is_compared { compared.compare(image, found).map(drop) } else { Ok(()) }
        });
        drop(image);
        if all.get() <= changes {
            drop(opened);
            if let Err(refusal) = self.try_open()?
                && !self.may_refuse(&refusal)
            {
                self.fail(Kind::Contract, format!("the cache cannot be opened: {refusal}"));
            }
            return self.is_sound().map(|()| false);
        }
        self.counts.recovery_cuts += 1;
        match opened {
            Err(StartError::Open(OpenError::Device(Errno::IO))) => {
                self.cut_power(&mut fate);
                Ok(true)
            }
            Err(StartError::Open(error)) => {
                self.fail(Kind::Contract, format!("the cache cannot be opened: {error}"));
                self.is_sound().map(|()| true)
            }
            Err(StartError::Refused(refusal)) => {
                self.fail(Kind::Contract, format!("a start was cut while it wrote, and refused: {refusal}"));
                self.is_sound().map(|()| true)
            }
            Ok(_) => {
                self.fail(Kind::Contract, "recovery went on although a write of it failed");
                self.is_sound().map(|()| true)
            }
        }
    }
}
