//! Crashes of the power and of the process, and clean stops.

use super::image::CutImage;
use super::operations::InFlight;
use super::servers::Leftover;
use super::{What, World};
use crate::content::SECTOR;
use crate::disk::{Content, Fate};
use crate::oracle::Moment;
use crate::violation::{Kind, Violation};
use engine::effect::{Errno, RequestOp, Target};
use engine::format::FlushNote;
use engine::recovery;
use engine::remote::SETTLE_NS;
use engine::units::VolumeIndex;

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

/// The fate of a write in flight when its process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    Now,
    Never,
    /// When the script says so ([`World::land_late`]).
    Behind,
    /// Its server carries it out so long after the end.
    Later {
        after_ns: u64,
    },
}

impl World {
    /// The writes that a power cut could take now: unflushed ones, and those in flight.
    #[must_use]
    pub fn at_stake(&self) -> Vec<AtStake> {
        let mut all = Vec::new();
        let origins = self.origins.iter().enumerate();
        let devices = std::iter::once((Target::Cache, &self.cache))
            .chain(self.mirror.iter().map(|disk| (Target::Mirror, disk)))
            .chain(origins.map(|(at, disk)| (Target::Origin(VolumeIndex(at as u8)), disk)));
        for (target, disk) in devices {
            all.extend(disk.unflushed().iter().map(|write| AtStake {
                target,
                first: write.first,
                content: write.content.clone(),
                is_in_flight: false,
            }));
        }
        let local = self.in_flight.values();
        let local = local.filter(|in_flight| self.servers.has(in_flight.view.target).is_none());
        all.extend(local.filter_map(|in_flight| {
            let content = in_flight.content.clone()?;
            let InFlight { view, .. } = in_flight;
            (!view.has_landed).then_some(AtStake {
                target: view.target,
                first: view.first,
                content,
                is_in_flight: true,
            })
        }));
        all.extend(self.servers.under_way().map(|(target, first, content)| AtStake {
            target,
            first,
            content: content.clone(),
            is_in_flight: true,
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
        let World { cache, mirror, origins, .. } = self;
        let origins = (0..).zip(origins).map(|(at, disk)| (Target::Origin(VolumeIndex(at)), disk));
        let halves = mirror.iter_mut().map(|disk| (Target::Mirror, disk));
        for (target, disk) in std::iter::once((Target::Cache, cache)).chain(halves).chain(origins) {
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
        self.look_at_order();
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.pool.cut_power();
        self.notes.power_cut();
        self.cache.flush_note = None;
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
        self.end_process(|write| if lands(write) { Landing::Now } else { Landing::Never });
    }

    /// Ends the process; servers carry out what they have of its changes so long after that.
    pub fn kill_before_servers(&mut self, after_ns: u64) {
        self.end_process(|write| match write.target {
            Target::Origin(_) => Landing::Later { after_ns },
            Target::Cache | Target::Mirror | Target::State => Landing::Now,
        });
    }

    /// Ends the process without a lock, so that its writes in flight may land while its successor runs: those for
    /// which `late` holds wait for [`World::land_late`] (hazard 13, a broken lock).
    pub fn kill_without_lock(&mut self, mut late: impl FnMut(&AtStake) -> bool) {
        self.end_process(|write| if late(write) { Landing::Behind } else { Landing::Never });
    }

    fn end_process(&mut self, mut chosen: impl FnMut(&AtStake) -> Landing) {
        let in_flight: Vec<AtStake> =
            self.at_stake().into_iter().filter(|write| write.is_in_flight).collect();
        let (at_stake, mut kept) = (in_flight.len() as u64, 0);
        for write in in_flight {
            let landing = chosen(&write);
            kept += u64::from(landing != Landing::Never);
            let AtStake { target, first, content, .. } = write;
            match landing {
                Landing::Now => drop(self.disk(target).land(first, content)),
                Landing::Never => (),
                Landing::Behind => self.late.push((target, first, content)),
                Landing::Later { after_ns } => {
                    self.servers.leftovers.push(Leftover { after_ns, target, first, content });
                }
            }
        }
        self.note(What::Crash { power: false, at_stake, kept });
        self.restore_lasting();
        self.look_at_order();
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.crash_of_process(rotten_since);
    }

    /// Does what a start does first, whatever it is for: writes what outlived the process to the cache. A power cut before that
    /// is one that takes what was written.
    fn restore_lasting(&mut self) {
        let World { cache, pool, log_end, oracle, .. } = self;
        let restored = recovery::restore(&mut CutImage::whole(cache), pool.lasting());
        let restored = restored.expect("the job has a device without faults");
        cache.flush_note = FlushNote::left_in(pool.lasting());
        self.counts.headers_restored += restored.len() as u64;
        for offset_bytes in restored {
            if let Some(log_end) = log_end {
                log_end.restored(offset_bytes / SECTOR as u64, cache, oracle.moment());
            }
        }
    }

    fn crash_of_process(&mut self, rotten_since: Option<Moment>) {
        let old = self.setup.contract.kill_keeps_after_ns.and_then(|within_ns| {
            let end_ns = self.cache_failed_ns.unwrap_or(self.clock.now_ns());
            let is_old = |(at_ns, _): &&(u64, Moment)| at_ns + within_ns <= end_ns;
            self.changed_at.iter().take_while(is_old).last().map(|(_, moment)| *moment)
        });
        self.changed_at.clear();
        // RULE 5: what was flushed is remembered as long as the machine runs.
        let is_remembered = self.setup.has_lasting_memory && !self.is_mirrored();
        let is_lossy = std::mem::take(&mut self.is_cache_lossy);
        self.oracle.process_crash(is_lossy, old, (rotten_since, is_remembered));
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
        let remote = self.remote_volumes();
        self.end_process(|write| {
            let is_remote = matches!(write.target, Target::Origin(volume) if remote.contains(&volume.at()));
            match random.below(3) < luck {
                true => Landing::Now,
                false if is_remote && random.one_in(2) => {
                    Landing::Later { after_ns: random.below(SETTLE_NS) }
                }
                false => Landing::Never,
            }
        });
        self.servers_die_by_chance(&remote);
    }

    fn die(&mut self) {
        self.note_counters();
        self.servers.die();
        self.note_who_counts();
        self.engine = None;
        self.group.end();
        self.in_flight.clear();
        self.losses.clear();
        self.outstanding.clear();
        self.answers.clear();
        self.filters.clear();
        self.is_manual = false;
        self.clock.clear();
        self.pool.reset();
        // A device that counted as gone because it did not answer in time is there again.
        for disk in std::iter::once(&mut self.cache).chain(&mut self.mirror).chain(&mut self.origins) {
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
        self.stopped()
    }

    /// Ends the process when its stop was answered.
    ///
    /// # Errors
    /// A violation.
    pub fn stopped(&mut self) -> Result<(), Violation> {
        if !self.in_flight.is_empty() || !self.outstanding.is_empty() {
            let (operations, requests) = (self.in_flight.len(), self.outstanding.len());
            let what = format!("{operations} operations and {requests} requests are under way after a stop");
            self.fail(Kind::Effect, what);
        }
        if self.pool.live() > 0 {
            self.fail(Kind::Physical, format!("{} buffers are left after a stop", self.pool.live()));
        }
        self.restore_lasting();
        self.is_sound()?;
        self.note_needs_at_stop();
        self.note_told_losses(true);
        // A cache that failed has a superblock that may not be durable: the daemon notes nothing of it.
        let is_well = self.engine.as_ref().is_some_and(|engine| !engine.status().cache.latched);
        if is_well {
            self.oracle.stopped();
            if let Some(log_end) = &mut self.log_end {
                log_end.stopped();
            }
        }
        self.rot_in_a_crash();
        let rotten_since = self.end_lost_since();
        self.die();
        self.crash_of_process(rotten_since);
        if is_well {
            self.note_update();
        }
        Ok(())
    }
}
