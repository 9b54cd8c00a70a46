//! Small worlds, looked at from every side.
//!
//! A script is played again and again, each time up to the next event of a device or of the engine's clock. There
//! the power is cut, once for every subset of the writes that no flush covers, as long as they are few; or the
//! process ends, once for every subset of the writes in flight. Then the cache is recovered, checked and read
//! back in full, and the oracle judges. Once for each event recovery itself is cut, at each of its steps.
//!
//! A world is a function of its setup and of what is asked of it, so that playing up to event n always leads to
//! the same state.

use crate::disk::Fate;
use crate::disk::faults::Kind;
use crate::random::Random;
use crate::violation::{Violation, catch};
use crate::world::{Setup, VolumeSetup, World, sectors};
use engine::effect::{RequestOp, Target, WriteMode};
use engine::limits::Config;
use engine::mutation::Mutations;
use engine::units::SectorRange;
use std::fmt;

/// So many writes at stake are few: every subset of them is tried.
pub const FEW_WRITES: usize = 6;
/// Subsets that are tried of more.
pub const SAMPLED_SUBSETS: u64 = 24;
/// After one state of so many what was read is read again after another cut, and all is brought home.
const AFTERMATH_EVERY: u64 = 8;
/// Sectors of the writes by which the log is filled.
const PRELUDE_SECTORS: u64 = 128;
/// Events that a script has at the most.
const EVENTS_MAX: u64 = 20_000;

/// One step of a script. Ranges are in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A write is submitted.
    Write(SectorRange),
    /// A write that is durable when it is answered is submitted.
    Fua(SectorRange),
    /// A read is submitted.
    Read(SectorRange),
    /// A discard is submitted.
    Discard(SectorRange),
    /// A write-zeroes is submitted.
    Zeroes(SectorRange),
    /// A flush is submitted.
    Flush,
    /// A change of the mode is submitted.
    Mode(WriteMode),
    /// A drain is submitted.
    Drain,
    /// A clean stop is submitted; nothing may be after it but [`Act::Settle`].
    Stop,
    /// All that was submitted is answered.
    Settle,
    /// A write to the origin is under way, or all has come to rest.
    UntilOriginWrite,
    /// All has come to rest: dirty data is home.
    Rest,
}

/// What is done, and where.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// Its name.
    pub name: &'static str,
    /// Sectors of the volume.
    pub volume_sectors: u64,
    /// Before the script begins the log is written once round, without being looked at: each segment
    /// that is opened then was in use before.
    pub is_wrapped: bool,
    /// What is done.
    pub acts: &'a [Act],
    /// Modes in which it makes sense.
    pub modes: &'a [WriteMode],
}

/// What was visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Events after which something was different than before.
    pub events: u64,
    /// Those with so few writes at stake that every subset was tried.
    pub events_exhausted: u64,
    /// States after a power cut: event and subset.
    pub cuts: u64,
    /// Of these the ones that were drawn because there were too many subsets.
    pub sampled: u64,
    /// States after a power cut that tore one of the writes.
    pub torn: u64,
    /// States after the end of the process.
    pub kills: u64,
    /// States after a power cut during recovery.
    pub recovery_cuts: u64,
}

impl Visited {
    /// All states: each was recovered, checked and read back.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.cuts + self.torn + self.kills + self.recovery_cuts
    }

    /// Adds what was visited elsewhere.
    pub fn add(&mut self, other: &Visited) {
        self.events += other.events;
        self.events_exhausted += other.events_exhausted;
        self.cuts += other.cuts;
        self.sampled += other.sampled;
        self.torn += other.torn;
        self.kills += other.kills;
        self.recovery_cuts += other.recovery_cuts;
    }
}

/// How a state came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The script went on to its end.
    None,
    /// The power was cut; a set bit keeps a write, in the order in which the devices are asked.
    Cut {
        /// The writes kept.
        kept: u64,
    },
    /// The power was cut, and tore one of the writes.
    Torn {
        /// The other writes kept.
        kept: u64,
        /// Which is torn.
        torn: usize,
    },
    /// The process ended; a set bit lets a write in flight land.
    Kill {
        /// The writes that land.
        landed: u64,
    },
    /// The power was cut, and again during recovery.
    RecoveryCut {
        /// The writes kept at first.
        kept: u64,
        /// The changes that recovery made before.
        changes: u64,
        /// Whether all of recovery's own writes are lost, else chance decides.
        is_all_lost: bool,
    },
}

/// A violation, and how to get there again.
#[derive(Clone, Debug)]
pub struct Found {
    /// The script.
    pub script: &'static str,
    /// The mode that the volume began with.
    pub mode: WriteMode,
    /// The seed of the world.
    pub seed: u64,
    /// Events before the crash.
    pub events: u64,
    /// The crash.
    pub crash: Crash,
    /// What was wrong.
    pub violation: Violation,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { script, mode, seed, events, crash, violation } = self;
        let mode = mode.name();
        write!(f, "script {script}, mode {mode}, seed {seed}, after {events} events, {crash:?}: {violation}")
    }
}

/// A script in one mode, in the world of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Explorer<'a> {
    /// The script.
    pub script: Script<'a>,
    /// The mode that the volume begins with.
    pub mode: WriteMode,
    /// Decides the times of devices, and what is drawn.
    pub seed: u64,
    /// Planted bugs.
    pub mutations: Mutations,
}

/// How far a script was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Played {
    /// It ended before the number of events that was asked for.
    is_over: bool,
    /// The last event changed nothing that a crash could show.
    is_like_before: bool,
}

/// What a crash can make of a moment: the same view twice, the same states.
#[derive(PartialEq, Eq)]
struct View {
    writes: Vec<(Target, u64, u64, bool)>,
    outstanding: usize,
}

impl View {
    fn of(world: &World) -> View {
        let writes = world
            .at_stake()
            .iter()
            .map(|write| (write.target, write.first, write.sectors(), write.is_in_flight))
            .collect();
        View { writes, outstanding: world.outstanding() }
    }
}

/// Plays a script, event by event.
struct Player {
    world: World,
    left: u64,
    is_like_before: bool,
}

impl Player {
    /// Lets the next event happen. False if none is left to be played, or none is to come.
    fn step(&mut self) -> Result<bool, Violation> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let before = (self.left == 0).then(|| View::of(&self.world));
        let is_done = self.world.step()?;
        if let Some(before) = before {
            self.is_like_before = before == View::of(&self.world);
        }
        Ok(is_done)
    }

    /// False if the number of events is reached.
    fn act(&mut self, act: Act) -> Result<bool, Violation> {
        let world = &mut self.world;
        match act {
            Act::Write(range) => _ = world.write(0, range),
            Act::Fua(range) => _ = world.write_fua(0, range),
            Act::Read(range) => _ = world.read(0, range),
            Act::Discard(range) => _ = world.discard(0, range),
            Act::Zeroes(range) => _ = world.write_zeroes(0, range),
            Act::Flush => _ = world.flush(0),
            Act::Mode(mode) => _ = world.submit(0, RequestOp::SetMode(mode)),
            Act::Drain => _ = world.submit(0, RequestOp::Drain),
            Act::Stop => _ = world.submit(0, RequestOp::Stop),
            Act::Settle => {
                while self.world.outstanding() > 0 {
                    if !self.step()? {
                        // If nothing is to come, requests are never answered: let the world say so.
                        return if self.left == 0 { Ok(false) } else { self.world.finish().map(|()| true) };
                    }
                }
            }
            Act::UntilOriginWrite => {
                while self.world.pending(|io| io.is_origin(0, Kind::Write)).is_empty() {
                    if !self.step()? {
                        return Ok(self.left > 0);
                    }
                }
            }
            Act::Rest => {
                while self.step()? {}
                return Ok(self.left > 0);
            }
        }
        self.world.is_sound().map(|()| true)
    }
}

impl Explorer<'_> {
    /// Visits every state.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore(&self) -> Result<Visited, Box<Found>> {
        let mut visited = Visited::default();
        for events in 0..EVENTS_MAX {
            let (played, at_stake, in_flight) = self.look(events)?;
            if played.is_over {
                break;
            }
            if !played.is_like_before {
                self.explore_moment(events, at_stake, in_flight, &mut visited)?;
            }
        }
        self.visit(EVENTS_MAX, Crash::None, true)?;
        Ok(visited)
    }

    /// How many writes are at stake after so many events, and of them in flight.
    fn look(&self, events: u64) -> Result<(Played, usize, usize), Box<Found>> {
        let result = catch(|| {
            let (world, played) = self.play(events)?;
            let at_stake = world.at_stake();
            let in_flight = at_stake.iter().filter(|write| write.is_in_flight).count();
            Ok((played, at_stake.len(), in_flight))
        });
        result.map_err(|violation| self.found(events, Crash::None, violation))
    }

    fn explore_moment(
        &self,
        events: u64,
        at_stake: usize,
        in_flight: usize,
        visited: &mut Visited,
    ) -> Result<(), Box<Found>> {
        let mut random = Random::new(self.seed ^ events << 20);
        let go = |crash, count: &mut u64| {
            *count += 1;
            self.visit(events, crash, (events + *count).is_multiple_of(AFTERMATH_EVERY)).map(|_| ())
        };
        visited.events += 1;
        let is_few = at_stake <= FEW_WRITES;
        visited.events_exhausted += u64::from(is_few);
        for kept in subsets(at_stake, &mut random) {
            go(Crash::Cut { kept }, &mut visited.cuts)?;
            visited.sampled += u64::from(!is_few);
        }
        for torn in 0..at_stake {
            go(Crash::Torn { kept: random.next_u64(), torn }, &mut visited.torn)?;
        }
        for landed in subsets(in_flight, &mut random) {
            go(Crash::Kill { landed }, &mut visited.kills)?;
        }
        let kept = random.next_u64();
        for changes in 0.. {
            let mut was_cut = false;
            for is_all_lost in [true, false] {
                let crash = Crash::RecoveryCut { kept, changes, is_all_lost };
                was_cut = self.visit(events, crash, false)?;
                visited.recovery_cuts += u64::from(was_cut);
            }
            if !was_cut {
                break;
            }
        }
        Ok(())
    }

    /// Goes to one state and judges it. False if recovery was over before it could be cut.
    fn visit(&self, events: u64, crash: Crash, has_aftermath: bool) -> Result<bool, Box<Found>> {
        let result = catch(|| {
            let (mut world, _) = self.play(events)?;
            let was_cut = self.crash(&mut world, events, crash)?;
            if was_cut {
                world.verify_cut()?;
            }
            if has_aftermath {
                self.aftermath(&mut world)?;
            }
            Ok(was_cut)
        });
        result.map_err(|violation| self.found(events, crash, violation))
    }

    /// Crashes, and opens the cache again. False if the crash could not happen.
    fn crash(&self, world: &mut World, events: u64, crash: Crash) -> Result<bool, Violation> {
        let mut random = Random::new(self.seed ^ events << 20 ^ 1);
        match crash {
            Crash::None => return Ok(false),
            Crash::Cut { kept } => cut(world, kept),
            Crash::Torn { kept, torn } => {
                let mut at = 0;
                world.cut_power(|write| {
                    at += 1;
                    if at - 1 == torn { tear(write.sectors(), &mut random) } else { fate(kept, at - 1) }
                });
            }
            Crash::Kill { landed } => {
                let mut at = 0;
                world.kill(|_| {
                    at += 1;
                    is_in(landed, at - 1)
                });
            }
            Crash::RecoveryCut { kept, changes, is_all_lost } => {
                cut(world, kept);
                let is_cut = world.open_and_cut(changes, |write| {
                    if is_all_lost { Fate::Lost } else { Fate::draw(write.sectors(), 2, &mut random) }
                })?;
                if !is_cut {
                    return Ok(false);
                }
            }
        }
        world.open()?;
        Ok(true)
    }

    /// What was read stays as it was read, comes home, and all comes to rest.
    fn aftermath(&self, world: &mut World) -> Result<(), Violation> {
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
        world.ask(0, RequestOp::Drain)?.map_err(|errno| {
            Violation::new(crate::violation::Kind::Contract, format!("a drain failed with errno {}", errno.0))
        })?;
        world.expect_origin_equals_view(0)?;
        world.run_dry()?;
        world.stop()
    }

    fn prepare(&self) -> Result<World, Violation> {
        let mut setup = Setup::new(self.seed);
        setup.volumes = vec![VolumeSetup { sectors: self.script.volume_sectors, mode: self.mode }];
        setup.mutations = self.mutations;
        setup.config = small_bounds;
        let mut world = World::new(setup);
        // What is read before the origin was flushed for the first time is not cached.
        world.run_dry()?;
        let wraps = |world: &World| world.engine().map_or(0, |engine| engine.status().cache.wraps);
        let mut start = 0;
        while self.script.is_wrapped && wraps(&world) == 0 {
            let ticket = world.write(0, sectors(start, PRELUDE_SECTORS));
            world.succeed(ticket)?;
            start = (start + PRELUDE_SECTORS) % (self.script.volume_sectors - PRELUDE_SECTORS);
        }
        Ok(world)
    }

    fn play(&self, events: u64) -> Result<(World, Played), Violation> {
        let mut player = Player { world: self.prepare()?, left: events, is_like_before: false };
        for &act in self.script.acts {
            if !player.act(act)? {
                let played = Played { is_over: false, is_like_before: player.is_like_before };
                return Ok((player.world, played));
            }
        }
        Ok((player.world, Played { is_over: true, is_like_before: player.is_like_before }))
    }

    fn found(&self, events: u64, crash: Crash, violation: Violation) -> Box<Found> {
        let Explorer { script, mode, seed, .. } = *self;
        Box::new(Found { script: script.name, mode, seed, events, crash, violation })
    }
}

/// Bounds by which little data makes much happen.
fn small_bounds(config: &mut Config) {
    config.destage_runs_max = 2;
    config.fill_wait_ns_max = 0;
}

/// All subsets of so many, as bits; of many a sample in which none and all are.
fn subsets(count: usize, random: &mut Random) -> Vec<u64> {
    if count <= FEW_WRITES {
        return (0..1 << count).collect();
    }
    let mut sample = vec![0, u64::MAX];
    sample.extend((2..SAMPLED_SUBSETS).map(|_| random.next_u64()));
    sample
}

fn is_in(subset: u64, at: usize) -> bool {
    subset >> (at % 64) & 1 == 1
}

fn fate(kept: u64, at: usize) -> Fate {
    if is_in(kept, at) { Fate::Kept } else { Fate::Lost }
}

fn cut(world: &mut World, kept: u64) {
    let mut at = 0;
    world.cut_power(|_| {
        at += 1;
        fate(kept, at - 1)
    });
}

/// Some of the sectors are kept, but neither all nor none if there are two or more.
fn tear(count: u64, random: &mut Random) -> Fate {
    let unit = if count > 8 && random.one_in(2) { 8 } else { 1 };
    let pieces = count.div_ceil(unit);
    let mut kept: Vec<bool> = (0..pieces).map(|_| random.one_in(2)).collect();
    let flipped = random.below(pieces) as usize;
    if kept.iter().all(|&other| other == kept[0]) {
        kept[flipped] = !kept[flipped];
    }
    Fate::Torn((0..count).map(|sector| kept[(sector / unit) as usize]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_all_subsets_and_many_a_sample_with_none_and_all() {
        let mut random = Random::new(1);
        assert_eq!(subsets(0, &mut random), [0]);
        assert_eq!(subsets(3, &mut random), [0, 1, 2, 3, 4, 5, 6, 7]);
        let sample = subsets(FEW_WRITES + 1, &mut random);
        assert_eq!(sample.len() as u64, SAMPLED_SUBSETS);
        assert!(sample.contains(&0) && sample.contains(&u64::MAX));
    }

    #[test]
    fn a_torn_write_is_neither_whole_nor_gone() {
        let mut random = Random::new(1);
        for count in 2..40 {
            let Fate::Torn(kept) = tear(count, &mut random) else { panic!("torn") };
            assert_eq!(kept.len() as u64, count);
            assert!(kept.contains(&true) && kept.contains(&false));
        }
    }
}
