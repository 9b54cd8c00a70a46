//! Times in which no engine runs: somebody changes origins, and a service manager repeats starts that are refused.

use super::knobs::Knob;
use super::load::Load;
use crate::content::Tag;
use crate::disk::Disk;
use crate::disk::faults::Kind as Fault;
use crate::random::Random;
use crate::violation::{Kind, Violation};
use crate::world::{Refusal, Ticket, World, sectors};
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::units::{BLOCK_BYTES, Nanos};

/// Starts of a service manager before it gives up.
const STARTS_MAX: u64 = 5;
/// Attempts at a job that is cut.
const JOBS_MAX: u32 = 12;
/// Rounds in which a volume may come to be clean.
const ROUNDS_OF_A_DETACH: u32 = 30;
/// Events of a stop at the most: one that needs more is cut.
const STEPS_OF_A_STOP: u64 = 5000;
/// Longest stop: a device that hangs gets its time, and what waited for it may meet the next one.
const STOP_MAX_NS: u64 = 120 * Nanos::SECOND;
/// Events of a detach that is cut.
const STEPS_OF_A_CUT_DETACH: u64 = 20;
/// Writes and flushes that a change of the superblock has at the most.
const CHANGES_OF_A_SUPERBLOCK: u64 = 4;
/// The same on two devices, which are made the same first.
const CHANGES_ON_TWO_DEVICES: u64 = 24;
/// Longest time without a request before a crash.
const SILENCE_MAX_NS: u64 = 4000 * Nanos::MILLISECOND;
/// Origins that may have to be accepted, and as often as that is cut.
const ACCEPTANCES_MAX: u32 = 60;

/// State of a load for times in which no engine runs.
pub(super) struct Off {
    random: Random,
    /// For silences, rot and cut detaches: the draws of everything else are the same with them and without.
    quiet: Random,
    /// For volumes that are added.
    added: Random,
    /// For caches that take the place of others.
    lined: Random,
    /// For caches that are gone.
    gone: Random,
    /// Content of the origins some rounds ago.
    older: Vec<Vec<Tag>>,
    /// The cache some rounds ago, and the number of its superblock.
    older_cache: Option<(Disk, u64)>,
    /// A volume that is about to be detached: its clients are gone.
    pub leaving: Option<usize>,
}

impl Off {
    pub fn new(seed: u64) -> Off {
        let (random, quiet) = (Random::new(seed).fork(0x0_0ff0), Random::new(seed).fork(0x0_c01d));
        let added = Random::new(seed).fork(0x0_add5);
        let lined = Random::new(seed).fork(0x0_11fe);
        let gone = Random::new(seed).fork(0x0_90e5);
        Off { random, quiet, added, lined, gone, older: Vec::new(), older_cache: None, leaving: None }
    }

    fn per_cent(&mut self, per_cent: u64) -> bool {
        per_cent > 0 && self.random.below(100) < per_cent
    }

    fn is_quiet(&mut self, per_cent: u64) -> bool {
        per_cent > 0 && self.quiet.below(100) < per_cent
    }
}

impl Load<'_> {
    /// Lets time pass in which no engine runs. True if an engine runs when it is over.
    pub(super) fn switched_off(&mut self, world: &mut World) -> Result<bool, Violation> {
        self.succeed_cache(world)?;
        self.operate_off(world)?;
        self.take_cache_away(world)?;
        if self.off.per_cent(self.get(Knob::older_copies)) {
            Load::heal(world);
            match self.off.older_cache.take() {
                Some(copy) => world.start_older_copy(&copy)?,
                None => self.off.older_cache = world.copy_of_cache(),
            }
        }
        if !self.off.per_cent(self.get(Knob::origin_changes)) || !world.begin_changes() {
            return Ok(false);
        }
        Load::heal(world);
        self.change_origins(world);
        if self.off.older.is_empty() || self.off.random.one_in(3) {
            self.off.older = world.origin_contents();
        }
        self.start_repeatedly(world)
    }

    /// The device of an ephemeral cache is blank, and is formatted if that is allowed. Then the one that is gone may come back,
    /// and must be refused.
    fn take_cache_away(&mut self, world: &mut World) -> Result<(), Violation> {
        let per_cent = self.get(Knob::blank_caches);
        if !world.setup().is_ephemeral || self.off.gone.below(100) >= per_cent {
            return Ok(());
        }
        Load::heal(world);
        let gone = world.cache().clone();
        let mut attempts = 0..JOBS_MAX;
        loop {
            // The power does not fail for ever.
            let changes = if attempts.next().is_some() { self.off.gone.below(12) } else { u64::MAX - 1 };
            match world.start_blank(changes)? {
                // It was away, and is back.
                Err(_) => return Ok(()),
                Ok(true) => break,
                Ok(false) => (),
            }
        }
        if self.off.gone.one_in(2) {
            let new = world.swap_cache(gone);
            let outcome = world.try_open()?;
            if !matches!(outcome, Err(Refusal::Replaced)) {
                return Err(Violation::new(Kind::Contract, "a cache that was replaced is served"));
            }
            let _gone_again = world.swap_cache(new);
        }
        Ok(())
    }

    /// Clients may do nothing for seconds before a crash or a stop, and the cache may rot behind it.
    pub(super) fn before_an_end(&mut self, world: &mut World) -> Result<(), Violation> {
        if world.setup().is_ephemeral && !self.off.gone.one_in(3) {
            world.note_drained();
        }
        if self.off.is_quiet(self.get(Knob::rot_while_off)) {
            world.rot_by_chance_behind_next_end(self.get(Knob::metadata_rot) > 0);
        }
        if !self.off.is_quiet(self.get(Knob::silences)) {
            return Ok(());
        }
        let volume = self.off.quiet.below(world.volumes() as u64) as usize;
        if world.is_served(volume) && !self.off.quiet.one_in(4) {
            let _whatever = world.ask(volume, RequestOp::Flush)?;
        }
        // The machine with the origins may be switched off first.
        if self.off.quiet.one_in(2) {
            for volume in 0..world.volumes() {
                world.origin(volume).faults.gone = Some(Errno::NODEV);
            }
        }
        let least_ns = if self.off.quiet.one_in(4) { 0 } else { SILENCE_MAX_NS / 2 };
        world.pass(self.off.quiet.between(least_ns, SILENCE_MAX_NS))
    }

    /// Stops while requests are under way, often right after a flush, and lets that be cut. False if it is not to be.
    pub(super) fn stop_hastily(&mut self, world: &mut World) -> Result<bool, Violation> {
        let is_wanted = self.off.per_cent(self.get(Knob::hasty_stops));
        if !is_wanted || world.oracle().explained.is_cache_failed() {
            return Ok(false);
        }
        Load::heal(world);
        if !self.off.random.one_in(3) {
            let volume = self.off.random.below(world.volumes() as u64) as usize;
            if world.is_served(volume) {
                let _whatever = world.ask(volume, RequestOp::Flush)?;
            }
        }
        let stop = world.submit(0, RequestOp::Stop);
        let most = if self.off.random.one_in(2) { STEPS_OF_A_STOP } else { self.off.random.below(60) };
        for _ in 0..most {
            if world.answer(stop).is_some_and(|answer| answer.result.is_ok()) {
                world.stopped()?;
                self.rot_behind_a_stop(world);
                return Ok(true);
            }
            if !world.step()? {
                break;
            }
        }
        Ok(false)
    }

    /// Stops while requests are under way and devices fail: that ends all the same, and everybody is answered. False if it
    /// is not to be.
    pub(super) fn stop_sick(&mut self, world: &mut World) -> Result<bool, Violation> {
        if !self.off.is_quiet(self.get(Knob::sick_stops)) {
            return Ok(false);
        }
        for volume in 0..world.volumes() {
            match self.off.quiet.below(3) {
                0 => world.origin(volume).faults.gone = Some(Errno::NODEV),
                1 => world.origin(volume).faults.fail_always(Fault::Write, Errno::IO),
                _ => (),
            }
        }
        // Some wait for these devices before the stop, as clients do that ask for nothing more.
        let ask = self.off.quiet.below(20);
        self.requests(world, ask)?;
        if self.off.quiet.one_in(2) {
            world.pass(self.off.quiet.below(SILENCE_MAX_NS))?;
        }
        let began_ns = world.now_ns();
        let stop = world.submit(0, RequestOp::Stop);
        let result = world.wait(stop)?;
        let took_ns = world.now_ns() - began_ns;
        if took_ns > STOP_MAX_NS {
            let what = format!("a stop takes {} s", took_ns / Nanos::SECOND);
            return Err(Violation::new(Kind::Liveness, what));
        }
        if result.is_err() {
            return Ok(false);
        }
        world.stopped()?;
        self.rot_behind_a_stop(world);
        Ok(true)
    }

    /// Jobs of an operator: volumes are put on the cache again, and settings are changed.
    fn operate_off(&mut self, world: &mut World) -> Result<(), Violation> {
        let is_any_served = (0..world.volumes()).any(|volume| world.is_served(volume));
        for volume in 0..world.volumes() {
            if world.is_detached(volume) && (!is_any_served || self.off.random.one_in(2)) {
                let (mode, _) = WriteMode::ALL[self.off.random.below(4) as usize];
                let mode = world.allowed_mode_off(mode);
                self.until_done(|changes| world.attach(volume, mode, changes))?;
            }
        }
        if world.is_metadata_rotten() || !self.off.per_cent(self.get(Knob::sets)) {
            return Ok(());
        }
        Load::heal(world);
        let volume = self.off.random.below(world.volumes() as u64) as usize;
        if !world.is_served(volume) {
            return Ok(());
        }
        if self.off.random.one_in(2) {
            let (mode, _) = WriteMode::ALL[self.off.random.below(4) as usize];
            if world.mode(volume) != WriteMode::Readonly {
                let mode = world.allowed_mode_off(mode);
                self.until_done(|changes| world.set_mode(volume, mode, changes))?;
            }
        } else {
            self.until_done(|changes| world.set_size(volume, changes))?;
        }
        Ok(())
    }

    /// Another device takes the cache's place, or the cache is made anew in another size; somebody puts an old device back.
    fn succeed_cache(&mut self, world: &mut World) -> Result<(), Violation> {
        let per_cent = self.get(Knob::successions);
        if per_cent == 0 || self.off.lined.below(100) >= per_cent || !world.may_succeed() {
            return Ok(());
        }
        Load::heal(world);
        // An older copy of the cache before is none of this one.
        self.off.older_cache = None;
        let is_remade = self.off.lined.one_in(2);
        let segments = 64 + self.off.lined.below(10) as u32;
        for attempt in 0..JOBS_MAX {
            let changes = if attempt + 1 == JOBS_MAX { u64::MAX - 1 } else { self.off.lined.below(10) };
            let is_done = if is_remade {
                world.remake_cache(segments, changes)?
            } else {
                world.replace_cache(segments, changes)?
            };
            if is_done || !world.is_to_succeed() {
                break;
            }
        }
        world.start_retired()
    }

    /// A record of slots may rot.
    pub(super) fn rot_a_record(&mut self, world: &mut World) {
        // What a repair forgets of a stale copy is the origin's from then on: nobody can tell what was read before.
        let may_rot = world.setup().slots.is_some() && !world.has_stale();
        if may_rot && self.off.per_cent(self.get(Knob::record_rot)) {
            world.rot_record_by_chance(|bound| self.off.random.below(bound));
        }
    }

    /// Repairs a log that is refused. False if it is not to be.
    pub(super) fn repair(&mut self, world: &mut World) -> Result<bool, Violation> {
        if !self.off.per_cent(self.get(Knob::repairs)) {
            return Ok(false);
        }
        Load::heal(world);
        self.until_done(|changes| world.repair(changes))?;
        Ok(true)
    }

    /// Accepts the origin that a start complains of, if the cache may have older copies of it that the start before did not
    /// notice. False if that is not the reason.
    pub(super) fn accept_late(&mut self, world: &mut World, refusal: &Refusal) -> Result<bool, Violation> {
        match *refusal {
            Refusal::Sample { volume, offset_bytes }
                if world.is_stale(volume, offset_bytes / BLOCK_BYTES) =>
            {
                Load::heal(world);
                self.until_done(|changes| world.accept_origin(volume, changes))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn changes_of_a_superblock(&self) -> u64 {
        if self.get(Knob::mirrored) > 0 { CHANGES_ON_TWO_DEVICES } else { CHANGES_OF_A_SUPERBLOCK }
    }

    /// Repeats a job that is cut until it is done.
    pub(super) fn until_done(
        &mut self,
        mut job: impl FnMut(u64) -> Result<bool, Violation>,
    ) -> Result<(), Violation> {
        let most = 2 * self.changes_of_a_superblock();
        for attempt in 0..JOBS_MAX {
            // The power does not fail for ever.
            let changes = if attempt + 1 == JOBS_MAX { u64::MAX - 1 } else { self.off.random.below(most) };
            if job(changes)? {
                return Ok(());
            }
        }
        Err(Violation::new(Kind::Contract, "a job of the operator is never done"))
    }

    /// Takes a volume off the cache while the clients of others go on: its own are sent away first. True if a crash is to follow at
    /// once.
    pub(super) fn detach(&mut self, world: &mut World) -> Result<bool, Violation> {
        let volume = self.off.random.below(world.volumes() as u64) as usize;
        if !self.off.per_cent(self.get(Knob::detaches)) || !world.is_served(volume) {
            return Ok(false);
        }
        self.off.leaving = Some(volume);
        let (mut drain, mut is_last) = (world.submit(volume, RequestOp::Drain), false);
        for _ in 0..ROUNDS_OF_A_DETACH {
            let steps = self.off.random.between(1, 20);
            self.requests(world, steps)?;
            let answer = world.answer(drain).map(|answer| answer.result);
            match answer {
                // What was answered behind the first drain goes home in a second one, as in the daemon.
                Some(Ok(())) if world.outstanding_of(volume) == 0 && !is_last => {
                    (drain, is_last) = (world.submit(volume, RequestOp::Drain), true);
                }
                Some(Ok(())) if is_last => {
                    let detach = world.submit(volume, RequestOp::Detach);
                    return self.end_a_detach(world, detach);
                }
                Some(Err(_)) => {
                    self.off.leaving = None;
                    return Ok(false);
                }
                _ => (),
            }
        }
        Ok(false)
    }

    /// Cuts a detach short, or waits for its answer, or lets it go on. True if a crash is to follow at once.
    fn end_a_detach(&mut self, world: &mut World, detach: Ticket) -> Result<bool, Violation> {
        let most = match self.off.quiet.below(3) {
            0 => return world.is_sound().map(|()| false),
            1 => self.off.quiet.below(STEPS_OF_A_CUT_DETACH),
            _ => STEPS_OF_A_STOP,
        };
        for _ in 0..most {
            if world.answer(detach).is_some() || !world.step()? {
                break;
            }
        }
        world.is_sound().map(|()| true)
    }

    /// Adds a volume that was taken off while the clients of others go on. True if a crash is to follow at once.
    pub(super) fn add(&mut self, world: &mut World) -> Result<bool, Violation> {
        let Some(volume) = (0..world.volumes()).find(|volume| world.may_be_added(*volume)) else {
            return Ok(false);
        };
        let per_cent = self.get(Knob::additions);
        if per_cent == 0 || self.off.added.below(100) >= per_cent || world.outstanding_of(volume) > 0 {
            return Ok(false);
        }
        let (mode, _) = WriteMode::ALL[self.off.added.below(4) as usize];
        let add = world.add(volume, world.allowed_mode(mode));
        let most = match self.off.added.below(3) {
            0 => return world.is_sound().map(|()| false),
            1 => self.off.added.below(STEPS_OF_A_CUT_DETACH),
            _ => STEPS_OF_A_STOP,
        };
        for _ in 0..most {
            if world.answer(add).is_some() || !world.step()? {
                break;
            }
        }
        // A crash at once, or some requests before it, of the new volume, too.
        world.is_sound()?;
        Ok(self.off.added.one_in(2))
    }

    fn change_origins(&mut self, world: &mut World) {
        let random = &mut self.off.random;
        let volume = random.below(world.volumes() as u64) as usize;
        let size = world.origin(volume).sectors();
        match random.below(8) {
            0..=2 => {
                for _ in 0..random.between(1, 6) {
                    let start = random.below(size);
                    let most = *random.pick(&[1, 8, 64]);
                    world.write_behind(volume, sectors(start, random.between(1, most).min(size - start)));
                }
            }
            // Well-known places: the first block, and the last.
            3 => world.write_behind(volume, sectors(random.below(8), 1)),
            4 => match self.off.older.get(volume) {
                Some(older) => world.roll_origin_back(volume, older),
                None => world.write_behind(volume, sectors(size - 1, 1)),
            },
            5 => world.replace_origin(volume),
            6 => world.resize_origin(volume, size + random.between(1, 100)),
            _ => world.resize_origin(volume, size - random.between(1, 40).min(size - 64)),
        }
    }

    /// Starts as a service manager does, until one succeeds or it gives up; then somebody puts the origins back, or accepts
    /// them.
    fn start_repeatedly(&mut self, world: &mut World) -> Result<bool, Violation> {
        let starts = self.off.random.between(1, STARTS_MAX);
        let mut first: Option<String> = None;
        for _ in 0..starts {
            let Some(refusal) = world.start_changed()? else {
                return match first {
                    None => Ok(true),
                    Some(first) => {
                        let what = format!("a start is refused ({first}), and a later one is not");
                        Err(Violation::new(Kind::Contract, what))
                    }
                };
            };
            let told = refusal.to_string();
            if first.as_ref().is_some_and(|first| *first != told) {
                let what = format!("a start is refused for one reason, and then for another: {told}");
                return Err(Violation::new(Kind::Contract, what));
            }
            first = Some(told);
            if self.off.random.one_in(3) {
                world.cut_power_by_chance();
            }
        }
        if self.off.random.one_in(2) {
            world.put_origins_back();
            return Ok(false);
        }
        self.accept_origins(world)
    }

    fn accept_origins(&mut self, world: &mut World) -> Result<bool, Violation> {
        for _ in 0..ACCEPTANCES_MAX {
            let Some(refusal) = world.start_changed()? else { return Ok(true) };
            let Some(volume) = volume_of(&refusal) else { break };
            let changes = self.off.random.below(2 * self.changes_of_a_superblock());
            let _is_done_or_cut = world.accept_origin(volume, changes)?;
        }
        Err(Violation::new(Kind::Contract, "origins were accepted, and are refused all the same"))
    }
}

/// The volume of whose origin a start complains.
fn volume_of(refusal: &Refusal) -> Option<usize> {
    match refusal {
        Refusal::Origin { volume, .. } | Refusal::Sample { volume, .. } => Some(*volume),
        Refusal::Cache(_) | Refusal::Pair(_) | Refusal::RolledBack | Refusal::Replaced => None,
    }
}
