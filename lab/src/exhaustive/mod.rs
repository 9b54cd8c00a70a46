//! Small worlds, looked at from every side.
//!
//! A script is played again and again, each time up to the next event of a device or of the engine's clock. There
//! the power is cut, once for every subset of the writes that no flush covers, as long as they are few; or the
//! process ends, once for every subset of the writes in flight. Then the cache is recovered, checked and read
//! back in full, and the oracle judges. Once for each event recovery itself is cut, at each of its steps.
//!
//! A world is a function of its setup and of what is asked of it, so that playing up to event n always leads to
//! the same state.

mod rot;
mod script;
mod subsets;

pub use rot::{End, Rotten};
pub use script::{Act, Script};
pub use subsets::{FEW_WRITES, SAMPLED_SUBSETS};

use crate::disk::Fate;
use crate::random::Random;
use crate::violation::{Violation, catch};
use crate::world::{Setup, VolumeSetup, World, sectors};
use engine::effect::{RequestOp, WriteMode};
use engine::limits::Config;
use engine::mutation::Mutations;
use engine::pair::Half;
use script::Player;
use std::fmt;
use subsets::{cut, fate, is_in, subsets, tear};

/// One state in so many is read again after another cut, and all its data is brought home.
const AFTERMATH_EVERY: u64 = 8;
/// Sectors of the writes by which the log is filled.
const PRELUDE_SECTORS: u64 = 128;
/// Events that a script has at the most.
const EVENTS_MAX: u64 = 20_000;

/// Counts of visited states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Events after which something was different than before.
    pub events: u64,
    /// Those with so few writes at stake that every subset was tried.
    pub events_exhausted: u64,
    /// States after a power cut: event and subset.
    pub cuts: u64,
    /// Cuts among these that were drawn, because there were too many subsets to try all.
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

    /// Adds the states visited elsewhere.
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

/// Crash by which a state came about.
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
    /// A sector of the cache rotted behind such an end.
    Rotten {
        /// The end.
        end: End,
        /// The sector of the cache device.
        sector: u64,
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
    /// The violation.
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
    /// The seed of the devices' times and of all draws.
    pub seed: u64,
    /// Whether the cache is mirrored: after each crash a half is lost for good.
    pub is_mirrored: bool,
    /// Whether the process has memory that outlives it.
    pub has_lasting_memory: bool,
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

impl<'a> Explorer<'a> {
    /// A script on one device, without planted bugs.
    #[must_use]
    pub fn new(script: Script<'a>, mode: WriteMode, seed: u64) -> Explorer<'a> {
        let (is_mirrored, has_lasting_memory) = (false, false);
        Explorer { script, mode, seed, is_mirrored, has_lasting_memory, mutations: Mutations::NONE }
    }

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
                self.lose_a_half(&mut world, events)?;
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
            Crash::None | Crash::Rotten { .. } => return Ok(false),
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

    /// Loses one half of a mirrored cache: the other one has what was read.
    fn lose_a_half(&self, world: &mut World, events: u64) -> Result<(), Violation> {
        if !self.is_mirrored {
            return Ok(());
        }
        world.kill(|_| true);
        let half =
            if Random::new(self.seed ^ events << 20 ^ 2).one_in(2) { Half::First } else { Half::Second };
        world.blank_half(half);
        world.open()?;
        world.verify_cut()
    }

    /// Checks that reads stay as they were, that dirty data reach the origin, and that all comes to rest.
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
        setup.is_mirrored = self.is_mirrored;
        setup.has_lasting_memory = self.has_lasting_memory;
        setup.mutations = self.mutations;
        setup.config = small_bounds;
        let mut world = World::new(setup);
        // Data read before the origin's first flush is not cached.
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
