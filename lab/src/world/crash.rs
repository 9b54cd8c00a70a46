//! Crashes of the power and of the process, and the recoveries after them.

use super::image::CutImage;
use super::operations::InFlight;
use super::requests::bypasses;
use super::{What, World};
use crate::content::{self, Sector, Tag};
use crate::disk::{Content, Fate};
use crate::oracle::Moment;
use crate::violation::{Kind, Violation};
use engine::effect::{Errno, RequestOp, Target};
use engine::engine::Engine;
use engine::recovery::load_superblock;
use engine::recovery::{self, OpenError};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeId, VolumeIndex};

/// A write that a crash may take.
#[derive(Clone, Debug)]
pub struct AtStake {
    /// The device.
    pub target: Target,
    /// The first sector.
    pub first: u64,
    /// Content of the write.
    pub content: Content,
    /// Whether it was still in flight: issued, and not landed.
    pub is_in_flight: bool,
}

impl AtStake {
    /// How many sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.content.sectors()
    }
}

impl World {
    /// The writes that a power cut could take now: unflushed ones, and those in flight.
    #[must_use]
    pub fn at_stake(&self) -> Vec<AtStake> {
        let mut all = Vec::new();
        let origins = self.origins.iter().enumerate();
        let devices = std::iter::once((Target::Cache, &self.cache))
            .chain(origins.map(|(at, disk)| (Target::Origin(VolumeIndex(at as u8)), disk)));
        for (target, disk) in devices {
            all.extend(disk.unflushed().iter().map(|write| AtStake {
                target,
                first: write.first,
                content: write.content.clone(),
                is_in_flight: false,
            }));
        }
        all.extend(self.in_flight.values().filter_map(|in_flight| {
            let content = in_flight.content.clone()?;
            let InFlight { view, .. } = in_flight;
            (!view.has_landed).then_some(AtStake {
                target: view.target,
                first: view.first,
                content,
                is_in_flight: true,
            })
        }));
        all
    }

    /// Cuts the power. `fate` decides over every write at stake: those that landed, device by device in the order
    /// they landed, then those in flight.
    pub fn cut_power(&mut self, mut fate: impl FnMut(&AtStake) -> Fate) {
        let (mut at_stake, mut kept) = (0, 0);
        let mut decide = |write: &AtStake| {
            at_stake += 1;
            let fate = fate(write);
            kept += u64::from(fate != Fate::Lost);
            fate
        };
        let in_flight: Vec<AtStake> =
            self.at_stake().into_iter().filter(|write| write.is_in_flight).collect();
        for at in 0..=self.origins.len() {
            let (target, disk) = match at.checked_sub(1) {
                None => (Target::Cache, &mut self.cache),
                Some(volume) => (Target::Origin(VolumeIndex(volume as u8)), &mut self.origins[volume]),
            };
            disk.cut_power(&mut |write| {
                decide(&AtStake {
                    target,
                    first: write.first,
                    content: write.content.clone(),
                    is_in_flight: false,
                })
            });
            for write in in_flight.iter().filter(|write| write.target == target) {
                let mut chosen = Some(decide(write));
                disk.land(write.first, write.content.clone());
                disk.cut_power(&mut |_| chosen.take().unwrap_or(Fate::Lost));
            }
        }
        self.note(What::Crash { power: true, at_stake, kept });
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.changed_at.clear();
        self.oracle.power_cut(rotten_since);
        self.is_cache_lossy = false;
        self.late.clear();
    }

    /// Cuts the power with random fates.
    pub fn cut_power_by_chance(&mut self) {
        let mut random = self.random.fork(1);
        // Most cuts keep some of the writes, some keep all or none.
        let luck = random.below(5);
        self.cut_power(|write| Fate::draw(write.sectors(), luck, &mut random));
    }

    /// Ends the process. `lands` decides over every write in flight, oldest first.
    pub fn kill(&mut self, mut lands: impl FnMut(&AtStake) -> bool) {
        self.end_process(|write| lands(write), false);
    }

    /// Ends the process without a lock, so that its writes in flight may land while its successor runs: those for
    /// which `late` holds wait for [`World::land_late`] (hazard 13, a broken lock).
    pub fn kill_without_lock(&mut self, mut late: impl FnMut(&AtStake) -> bool) {
        self.end_process(|write| late(write), true);
    }

    fn end_process(&mut self, mut chosen: impl FnMut(&AtStake) -> bool, is_late: bool) {
        let in_flight: Vec<AtStake> =
            self.at_stake().into_iter().filter(|write| write.is_in_flight).collect();
        let (at_stake, mut kept) = (in_flight.len() as u64, 0);
        for write in in_flight {
            if chosen(&write) {
                kept += 1;
                let AtStake { target, first, content, .. } = write;
                if is_late {
                    self.late.push((target, first, content));
                } else {
                    self.disk(target).land(first, content);
                }
            }
        }
        self.note(What::Crash { power: false, at_stake, kept });
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.crash_of_process(rotten_since);
    }

    fn crash_of_process(&mut self, rotten_since: Option<Moment>) {
        let old = self.setup.contract.kill_keeps_after_ns.and_then(|within_ns| {
            let end_ns = self.cache_failed_ns.unwrap_or(self.clock.now_ns());
            let is_old = |(at_ns, _): &&(u64, Moment)| at_ns + within_ns <= end_ns;
            self.changed_at.iter().take_while(is_old).last().map(|(_, moment)| *moment)
        });
        self.changed_at.clear();
        self.oracle.process_crash(std::mem::take(&mut self.is_cache_lossy), old, rotten_since);
    }

    /// Lets the writes land that [`World::kill_without_lock`] kept back.
    pub fn land_late(&mut self) {
        for (target, first, content) in std::mem::take(&mut self.late) {
            self.disk(target).land(first, content);
        }
    }

    /// Ends the process with random fates of the writes in flight.
    pub fn kill_by_chance(&mut self) {
        let mut random = self.random.fork(2);
        let luck = random.below(4);
        self.kill(|_| random.below(3) < luck);
    }

    fn die(&mut self) {
        self.note_counters();
        self.engine = None;
        self.in_flight.clear();
        self.outstanding.clear();
        self.answers.clear();
        self.filters.clear();
        self.is_manual = false;
        self.clock.clear();
        self.pool.reset();
        // A device that counted as gone because it did not answer in time is there again.
        for disk in std::iter::once(&mut self.cache).chain(&mut self.origins) {
            disk.abandoned();
            if disk.faults.gone == Some(Errno::TIMEDOUT) {
                disk.faults.gone = None;
            }
        }
    }

    /// Stops cleanly: no buffer and no operation may be left.
    ///
    /// # Errors
    /// A violation.
    pub fn stop(&mut self) -> Result<(), Violation> {
        self.finish()?;
        let ticket = self.submit(0, RequestOp::Stop);
        self.succeed(ticket)?;
        if !self.in_flight.is_empty() {
            self.fail(
                Kind::Effect,
                format!("{} operations are under way after a stop", self.in_flight.len()),
            );
        }
        if self.pool.live() > 0 {
            self.fail(Kind::Physical, format!("{} buffers are left after a stop", self.pool.live()));
        }
        self.is_sound()?;
        if self.engine.as_ref().is_some_and(|engine| !engine.status().cache.latched) {
            self.oracle.stopped();
            if let Some(log_end) = &mut self.log_end {
                log_end.stopped();
            }
        }
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.crash_of_process(rotten_since);
        Ok(())
    }

    /// Recovers the cache and starts an engine. Devices that were gone because of a timeout are back.
    ///
    /// # Errors
    /// A violation; a cache that cannot be opened is one of kind [`Kind::Contract`].
    pub fn open(&mut self) -> Result<(), Violation> {
        if let Err(error) = self.try_open()? {
            self.fail(Kind::Contract, format!("the cache cannot be opened: {error}"));
        }
        self.is_sound()
    }

    /// Recovers the cache and starts an engine, or returns why it cannot be opened.
    ///
    /// # Errors
    /// A violation.
    pub fn try_open(&mut self) -> Result<Result<(), OpenError>, Violation> {
        self.is_sound()?;
        self.cache_failed_ns = None;
        if let Err(error) = self.renumber_abandoned() {
            return Ok(Err(error));
        }
        let World { cache, random, setup, .. } = self;
        let mut image = CutImage::whole(cache).with_faults(random);
        let opened = recovery::open(&mut image, setup.options());
        self.counts.faults += image.faults();
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        self.counts.recoveries += 1;
        self.counts.batches_cut += opened.report.batches_cut;
        let dirty_bytes: u64 = (0..VOLUMES_MAX).map(|at| opened.dirty_bytes(VolumeIndex(at as u8))).sum();
        self.counts.dirty_recoveries += u64::from(dirty_bytes > 0);
        self.reports.push(opened.report);
        self.note(What::Open { session: opened.superblock.session, dirty_bytes });
        self.oracle.explained.restarted();
        self.settle_settings(&opened)?;
        // In slots and buckets a write goes around the cache, too, when there is no room for it.
        let is_any_bypassed = self.setup.slots.is_some() || self.setup.keys.is_some();
        for ((is_bypassed, mode), origin) in self.is_bypassed.iter_mut().zip(&self.modes).zip(&self.origins) {
            // Writes of the process before to the origin alone may still be lost there, and are in no log.
            let is_left = *is_bypassed && !origin.unflushed().is_empty();
            *is_bypassed = is_any_bypassed || is_left || bypasses(*mode);
        }
        if self.setup.is_checked_on_open {
            self.expect_sound_image()?;
        }
        self.expect_aftermath(&opened)?;
        if let Some(log_end) = &mut self.log_end {
            log_end.started();
            self.oracle.told(None);
        }
        // Behind a lost end a record may have lain that a clean copy is older than the origin.
        if self.setup.are_copies_compared && !self.is_end_lost {
            self.expect_clean_copies_right(&opened)?;
        }
        let config = self.setup.engine_config();
        self.engine = Some(Engine::new(opened, config));
        self.clock = crate::clock::Clock::default();
        self.pump();
        self.is_sound()?;
        Ok(Ok(()))
    }

    /// A mode or a size that was acknowledged is durable; one that was only asked for may be.
    fn settle_settings(&mut self, opened: &recovery::Opened) -> Result<(), Violation> {
        let asked = std::mem::take(&mut self.asked_modes);
        let asked_sizes = std::mem::take(&mut self.asked_sizes);
        for volume in 0..self.modes.len() {
            let Some(record) = &opened.superblock.volumes[volume] else { continue };
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

    /// Voids the cached data of abandoned volumes, as the daemon does before it recovers.
    fn renumber_abandoned(&mut self) -> Result<(), OpenError> {
        if !self.abandoned.contains(&true) {
            return Ok(());
        }
        let mut image = CutImage::whole(&mut self.cache);
        let (mut superblock, _) = load_superblock(&mut image)?;
        for (at, is_abandoned) in self.abandoned.iter_mut().enumerate() {
            if let (true, Some(record)) = (std::mem::take(is_abandoned), &mut superblock.volumes[at]) {
                record.id = VolumeId(superblock.next_volume_id);
                record.fingerprint = Default::default();
                superblock.next_volume_id += 1;
            }
        }
        superblock.update += 1;
        recovery::write_superblock(&mut image, &superblock).map_err(OpenError::Device)
    }

    /// RULE 11: checks that clean cached blocks, drawn at random, have the origin's content.
    fn expect_clean_copies_right(&mut self, opened: &recovery::Opened) -> Result<(), Violation> {
        let mut random = self.random.fork(3);
        for (volume, offset_bytes, checksum) in opened.sample_clean(64, &mut || random.next_u64()) {
            let cells = self.origins[volume.at()].read(offset_bytes / 512, SECTORS_PER_BLOCK);
            let tags: Vec<Tag> = cells.iter().map(Sector::tag).collect();
            if content::checksum(&tags) != checksum {
                let block = offset_bytes / BLOCK_BYTES;
                let what = format!(
                    "the clean copy of block {block} of volume {} is not what the origin has",
                    volume.0
                );
                self.fail(Kind::Physical, what);
            }
        }
        self.is_sound()
    }

    /// Recovers the cache, and cuts the power instead of the write or flush after the first `changes`. False if
    /// recovery needed no more than those: then the engine runs.
    ///
    /// # Errors
    /// A violation.
    pub fn open_and_cut(
        &mut self,
        changes: u64,
        mut fate: impl FnMut(&AtStake) -> Fate,
    ) -> Result<bool, Violation> {
        self.is_sound()?;
        let mut image = CutImage::cut_after(&mut self.cache, changes);
        let opened = recovery::open(&mut image, self.setup.options());
        if !image.was_cut() {
            drop(opened);
            self.open()?;
            return Ok(false);
        }
        self.counts.recovery_cuts += 1;
        match opened {
            Err(OpenError::Device(Errno::IO)) => {
                self.cut_power(&mut fate);
                Ok(true)
            }
            Err(error) => {
                self.fail(Kind::Contract, format!("the cache cannot be opened: {error}"));
                self.is_sound().map(|()| true)
            }
            Ok(_) => {
                self.fail(Kind::Contract, "recovery went on although a write of it failed");
                self.is_sound().map(|()| true)
            }
        }
    }
}
