//! Everything that a run can be told, as numbers with names: drawn from a seed, printed, parsed, shrunk.

use crate::random::Random;
use crate::world::{Latency, Setup, VolumeSetup};
use engine::effect::WriteMode;
use engine::format::{SlotLayout, SlotPersistence};
use engine::limits::Config;
use engine::units::{BLOCK_BYTES, Nanos};
use std::fmt;
use std::str::FromStr;

macro_rules! knobs {
    ($($(#[doc = $doc:literal])+ $name:ident = $off:literal,)+) => {
        /// One number of a run's options.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Knob {
            $($(#[doc = $doc])+ #[allow(non_camel_case_types, reason = "the name is printed as it is")] $name,)+
        }

        impl Knob {
            /// All of them, in the order they are printed.
            pub const ALL: &[Knob] = &[$(Knob::$name),+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Knob::$name => stringify!($name),)+
                }
            }

            /// The value that makes a run simplest.
            #[must_use]
            pub fn off(self) -> u64 {
                match self {
                    $(Knob::$name => $off,)+
                }
            }
        }
    };
}

knobs! {
    /// Volumes, 1 to 3.
    volumes = 1,
    /// Sectors of volume 0.
    sectors0 = 8192,
    /// Sectors of volume 1.
    sectors1 = 8192,
    /// Sectors of volume 2.
    sectors2 = 8192,
    /// Mode of volume 0, by its place in `WriteMode::ALL`.
    mode0 = 0,
    /// Mode of volume 1.
    mode1 = 0,
    /// Mode of volume 2.
    mode2 = 0,
    /// Segments of the cache.
    segments = 64,
    /// Blocks of a segment.
    segment_blocks = 32,
    /// Requests under way at the most.
    depth = 1,
    /// Things that happen between two crashes.
    steps = 20,
    /// Crashes.
    cuts = 1,
    /// Blocks of a request at the most.
    request_blocks = 1,
    /// Weight of reads.
    reads = 0,
    /// Weight of writes.
    writes = 1,
    /// Weight of flushes.
    flushes = 0,
    /// Weight of discards.
    discards = 0,
    /// Weight of write-zeroes.
    zeroes = 0,
    /// Per cent of changes that are FUA.
    fua = 0,
    /// Per cent of requests that are not whole blocks.
    partial = 0,
    /// Per cent of requests to an eighth of the volume.
    hot = 0,
    /// Per cent of steps at which time passes.
    pauses = 0,
    /// How long a pause is at the most, in milliseconds.
    pause_ms = 1,
    /// Per cent of crashes that are of the process alone.
    kills = 0,
    /// Per cent of crashes that are clean stops instead.
    stops = 0,
    /// Per cent of recoveries that are cut.
    recovery_cuts = 0,
    /// Per cent of crashes that are followed by a second one soon.
    doubles = 0,
    /// Per cent of rounds in which a volume changes its mode.
    mode_changes = 0,
    /// Per cent of rounds in which a volume is drained.
    drains = 0,
    /// Whether a volume is detached at the end.
    detach = 0,
    /// Per cent of rounds in which devices may fail.
    faulty = 0,
    /// Reads of the cache that fail, in a million.
    cache_read_error = 0,
    /// Writes.
    cache_write_error = 0,
    /// Flushes.
    cache_flush_error = 0,
    /// Operations that are never answered.
    cache_hang = 0,
    /// Writes after which a sector rots.
    cache_rot = 0,
    /// Per cent of faulty rounds in which the cache is gone.
    cache_gone = 0,
    /// Reads of an origin that fail, in a million.
    origin_read_error = 0,
    /// Writes.
    origin_write_error = 0,
    /// Flushes.
    origin_flush_error = 0,
    /// Operations that are never answered.
    origin_hang = 0,
    /// Writes without space.
    origin_no_space = 0,
    /// Per cent of faulty rounds in which an origin is gone.
    origin_gone = 0,
    /// Operations that take 20 ms more, in a million.
    slow = 0,
    /// Per cent of steps at which the pool refuses some allocations.
    refusals = 0,
    /// How long the cache takes at the most, in microseconds.
    cache_us = 100,
    /// How long an origin takes at the most, in microseconds.
    origin_us = 1000,
    /// Whether origins can discard.
    origin_discards = 1,
    /// Milliseconds without a request after which everything is destaged.
    idle_ms = 300,
    /// Milliseconds after which what was written home is flushed.
    flush_after_ms = 500,
    /// Runs on their way home at a time.
    destage_runs = 16,
    /// Memory for partial requests, in KiB.
    work_kib = 16384,
    /// Blocks that wait to be put into the cache.
    fill_blocks = 2048,
    /// Blocks that may count as dirty without being so.
    false_dirty_blocks = 256,
    /// Zero and lost extents at the most.
    extents = 65536,
    /// Blocks that wait before a batch goes beside another one.
    company = 96,
    /// Per cent of rounds in which a volume grows.
    growths = 0,
    /// Per cent of rounds in which what is lost of a volume is given up.
    give_ups = 0,
    /// Writes of the cache after which a sector of its metadata rots, in a million.
    metadata_rot = 0,
    /// Blocks of a slot; 0 for a log.
    slot_blocks = 0,
    /// Slots of a set; 0 if a piece may lie anywhere.
    ways = 0,
    /// Slots.
    slots = 64,
}

const COUNT: usize = Knob::ALL.len();

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of the world.
    pub seed: u64,
    values: [u64; COUNT],
}

/// A text that is not options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKnob(pub String);

impl fmt::Display for UnknownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not an option of a run (NAME=NUMBER, as the runs print them)", self.0)
    }
}

impl std::error::Error for UnknownKnob {}

impl Options {
    /// What the seed draws.
    #[must_use]
    pub fn draw(seed: u64) -> Options {
        let mut random = Random::new(seed).fork(0x0_5eed);
        let mut options = Options { seed, values: std::array::from_fn(|at| Knob::ALL[at].off()) };
        options.draw_shape(&mut random.fork(1));
        options.draw_load(&mut random.fork(2));
        options.draw_crashes(&mut random.fork(3));
        if random.one_in(2) {
            options.draw_faults(&mut random.fork(4));
        }
        options.draw_bounds(&mut random.fork(5));
        options.draw_operator(&mut random.fork(6));
        options
    }

    fn draw_shape(&mut self, random: &mut Random) {
        self.set(Knob::volumes, *random.pick(&[1, 1, 2, 3]));
        for knob in [Knob::sectors0, Knob::sectors1, Knob::sectors2] {
            let odd = if random.one_in(2) { 0 } else { random.below(8) };
            let blocks = if random.one_in(4) { random.between(16, 200) } else { random.between(200, 1600) };
            self.set(knob, blocks * 8 + odd);
        }
        for knob in [Knob::mode0, Knob::mode1, Knob::mode2] {
            self.set(knob, if random.one_in(2) { 0 } else { random.below(5) });
        }
        self.set(Knob::segments, 64 + random.below(8));
        self.set(Knob::segment_blocks, *random.pick(&[32, 32, 32, 64]));
        self.set(Knob::cache_us, *random.pick(&[20, 100, 1000, 5000]));
        self.set(Knob::origin_us, *random.pick(&[50, 500, 5000, 20_000]));
        self.set(Knob::origin_discards, random.below(2));
    }

    fn draw_load(&mut self, random: &mut Random) {
        self.set(Knob::depth, *random.pick(&[1, 2, 4, 16, 32]));
        self.set(Knob::steps, random.between(40, 600));
        self.set(Knob::request_blocks, *random.pick(&[1, 4, 16, 64]));
        for knob in [Knob::reads, Knob::flushes, Knob::discards, Knob::zeroes] {
            let most = if matches!(knob, Knob::reads) { 10 } else { 3 };
            self.set(knob, if random.one_in(3) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::writes, random.between(1, 10));
        for (knob, most) in [(Knob::fua, 30), (Knob::partial, 60), (Knob::hot, 90)] {
            self.set(knob, if random.one_in(2) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::pauses, if random.one_in(2) { 0 } else { random.between(1, 10) });
        self.set(Knob::pause_ms, *random.pick(&[1, 20, 400]));
    }

    fn draw_crashes(&mut self, random: &mut Random) {
        self.set(Knob::cuts, random.between(4, 16));
        for (knob, most) in
            [(Knob::kills, 100), (Knob::stops, 30), (Knob::recovery_cuts, 60), (Knob::doubles, 50)]
        {
            self.set(knob, if random.one_in(2) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::mode_changes, if random.one_in(3) { 40 } else { 0 });
        self.set(Knob::drains, if random.one_in(4) { 20 } else { 0 });
        self.set(Knob::detach, random.below(2));
    }

    fn draw_faults(&mut self, random: &mut Random) {
        self.set(Knob::faulty, *random.pick(&[20, 50, 100]));
        let rates = [
            Knob::cache_read_error,
            Knob::cache_write_error,
            Knob::cache_flush_error,
            Knob::cache_hang,
            Knob::origin_read_error,
            Knob::origin_write_error,
            Knob::origin_flush_error,
            Knob::origin_hang,
            Knob::origin_no_space,
            Knob::slow,
        ];
        for knob in rates {
            let most = if matches!(knob, Knob::cache_hang | Knob::origin_hang) { 2_000 } else { 100_000 };
            self.set(knob, if random.one_in(4) { random.between(most / 50, most) } else { 0 });
        }
        self.set(Knob::cache_rot, if random.one_in(4) { random.between(10_000, 500_000) } else { 0 });
        self.set(Knob::cache_gone, if random.one_in(6) { 30 } else { 0 });
        self.set(Knob::origin_gone, if random.one_in(4) { 30 } else { 0 });
    }

    fn draw_bounds(&mut self, random: &mut Random) {
        self.set(Knob::refusals, if random.one_in(6) { random.between(1, 20) } else { 0 });
        self.set(Knob::idle_ms, *random.pick(&[1, 30, 300]));
        self.set(Knob::flush_after_ms, *random.pick(&[1, 50, 500]));
        self.set(Knob::destage_runs, *random.pick(&[1, 2, 16]));
        self.set(Knob::work_kib, *random.pick(&[512, 16384]));
        self.set(Knob::fill_blocks, *random.pick(&[64, 2048]));
        self.set(Knob::false_dirty_blocks, *random.pick(&[16, 256]));
        self.set(Knob::extents, *random.pick(&[4, 64, 65536]));
    }

    fn draw_operator(&mut self, random: &mut Random) {
        self.set(Knob::company, *random.pick(&[96, 96, 8, 1]));
        self.set(Knob::growths, if random.one_in(4) { 30 } else { 0 });
        self.set(Knob::give_ups, if random.one_in(2) { 30 } else { 0 });
        if self.get(Knob::faulty) > 0 && random.one_in(8) {
            self.set(Knob::metadata_rot, random.between(1_000, 20_000));
        }
    }

    /// The same without what the swarm learned later: what was drawn before is as it was then.
    #[must_use]
    pub fn without_later_knobs(mut self) -> Options {
        for knob in [Knob::company, Knob::growths, Knob::give_ups, Knob::metadata_rot] {
            self.set(knob, knob.off());
        }
        self
    }

    /// The same with slots instead of a log.
    #[must_use]
    pub fn with_slots(mut self) -> Options {
        // Slots have not learned those yet.
        self = self.without_later_knobs();
        let random = &mut Random::new(self.seed).fork(0x0_5107);
        let slot_blocks = *random.pick(&[1, 1, 1, 8, 64]);
        self.set(Knob::slot_blocks, slot_blocks);
        self.set(Knob::ways, *random.pick(&[0, 4, 16, 64]));
        self.set(Knob::slots, random.between(16, 1500) / slot_blocks);
        // What rots before a crash is not noticed after it: checksums of slots are not on the device.
        self.set(Knob::cache_rot, 0);
        self
    }

    fn slot_layout(&self) -> Option<SlotLayout> {
        let slot_blocks = self.get(Knob::slot_blocks).min(512) as u32;
        let (slots, ways) = (self.get(Knob::slots).min(65_536) as u32, self.get(Knob::ways).min(8192) as u32);
        let slot_bytes = slot_blocks * BLOCK_BYTES as u32;
        (slot_blocks > 0)
            .then(|| SlotLayout::with_slots(slots, slot_bytes, ways, SlotPersistence::SyncSector).ok())
            .flatten()
    }

    /// The value of a knob.
    #[must_use]
    pub fn get(&self, knob: Knob) -> u64 {
        self.values[knob as usize]
    }

    /// Sets a knob.
    pub fn set(&mut self, knob: Knob, value: u64) {
        self.values[knob as usize] = value;
    }

    /// The world to begin with.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let latency = |knob| {
            let most_ns = self.get(knob) * 1000;
            Latency { least_ns: most_ns / 10, most_ns }
        };
        let sizes = [Knob::sectors0, Knob::sectors1, Knob::sectors2];
        let modes = [Knob::mode0, Knob::mode1, Knob::mode2];
        let volumes = sizes.into_iter().zip(modes).take(self.get(Knob::volumes).clamp(1, 3) as usize);
        let segments = self.get(Knob::segments).clamp(64, 4096) as u32;
        let segment_blocks = (self.get(Knob::segment_blocks).clamp(32, 8192) as u32).next_power_of_two();
        let mut bounds = Config::for_cache(segments, segment_blocks);
        bounds.idle_ns = self.get(Knob::idle_ms) * Nanos::MILLISECOND;
        bounds.flush_after_ns = self.get(Knob::flush_after_ms) * Nanos::MILLISECOND;
        bounds.destage_runs_max = self.get(Knob::destage_runs) as u32;
        bounds.work_bytes_max = self.get(Knob::work_kib) << 10;
        bounds.fill_blocks_max = self.get(Knob::fill_blocks);
        bounds.false_dirty_blocks_max = self.get(Knob::false_dirty_blocks);
        bounds.extents_max = self.get(Knob::extents) as usize;
        bounds.company_blocks = self.get(Knob::company);
        Setup {
            segments,
            segment_blocks,
            slots: self.slot_layout(),
            volumes: volumes
                .map(|(sectors, mode)| VolumeSetup {
                    sectors: self.get(sectors).max(64),
                    mode: WriteMode::ALL[(self.get(mode) % 5) as usize].0,
                })
                .collect(),
            bounds: Some(bounds),
            cache_latency: latency(Knob::cache_us),
            origin_latency: latency(Knob::origin_us),
            origin_can_discard: self.get(Knob::origin_discards) > 0,
            is_checked_on_open: self.get(Knob::cache_rot) + self.get(Knob::metadata_rot) == 0,
            are_copies_compared: true,
            ..Setup::new(self.seed)
        }
    }

    /// The command that repeats a run with these options.
    #[must_use]
    pub fn replay_command(&self) -> String {
        if *self == Options::draw(self.seed) {
            return format!("forebay lab verify --seed {} --runs 1", self.seed);
        }
        let drawn = Options::draw(self.seed);
        let changed: Vec<String> = Knob::ALL
            .iter()
            .filter(|knob| self.get(**knob) != drawn.get(**knob))
            .map(|knob| format!("{}={}", knob.name(), self.get(*knob)))
            .collect();
        format!("forebay lab verify --seed {} --runs 1 --options '{}'", self.seed, changed.join(" "))
    }

    /// Changes what a text of the form `NAME=NUMBER NAME=NUMBER` names.
    ///
    /// # Errors
    /// The first word that is not understood.
    pub fn change(&mut self, text: &str) -> Result<(), UnknownKnob> {
        for word in text.split_whitespace() {
            let unknown = || UnknownKnob(word.to_string());
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let knob = Knob::ALL.iter().find(|knob| knob.name() == name).ok_or_else(unknown)?;
            self.set(*knob, u64::from_str(value).map_err(|_| unknown())?);
        }
        Ok(())
    }
}

impl fmt::Display for Options {
    /// The seed and what is not as simple as it could be.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}:", self.seed)?;
        for knob in Knob::ALL.iter().filter(|knob| self.get(**knob) != knob.off()) {
            write!(f, " {}={}", knob.name(), self.get(*knob))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read_again() {
        for seed in 0..50 {
            let drawn = Options::draw(seed);
            let text = drawn.to_string();
            let (_, words) = text.split_once(": ").expect("a seed and options");
            let mut read = Options { seed, values: std::array::from_fn(|at| Knob::ALL[at].off()) };
            read.change(words).expect("options");
            assert_eq!(read, drawn);
        }
        assert_eq!(Options::draw(1).change("steps=x"), Err(UnknownKnob("steps=x".into())));
        assert_eq!(Options::draw(1).change("stops"), Err(UnknownKnob("stops".into())));
    }

    #[test]
    fn a_changed_run_has_a_command_that_names_the_change() {
        let mut options = Options::draw(7);
        assert_eq!(options.replay_command(), "forebay lab verify --seed 7 --runs 1");
        options.set(Knob::cuts, 99);
        assert_eq!(options.replay_command(), "forebay lab verify --seed 7 --runs 1 --options 'cuts=99'");
    }
}
