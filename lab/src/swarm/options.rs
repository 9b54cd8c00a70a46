//! Options of a run: drawn from a seed, printed, parsed, shrunk.

use super::knobs::Knob;
use super::slot_rules::slot_rules;
use crate::random::Random;
use crate::world::{HeldFlushes, Latency, ServerSetup, Setup, SlotSetup, Trouble, VolumeSetup};
use engine::composition::Composition;
use engine::composition::axes::{PersistenceChoice, Placement};
use engine::effect::WriteMode;
use engine::format::{CHECKSUM_PAGE_RECORDS, Geometry, KeyLayout, SlotLayout};
use engine::limits::{Config, OrderBounds, PaceBounds, Slowness};
use engine::units::{BLOCK_BYTES, Nanos};
use std::fmt;
use std::str::FromStr;

const COUNT: usize = Knob::ALL.len();

/// Knobs of origins behind servers.
const SERVERS: &[Knob] = &[
    Knob::remote,
    Knob::server_losses,
    Knob::server_doubles,
    Knob::server_endings,
    Knob::server_deaths,
    Knob::impostors,
    Knob::away_ms,
    Knob::server_sectors,
    Knob::server_fua,
];

/// Knobs of what strict order is not judged by.
const UNJUDGED: &[Knob] = &[
    Knob::origin_changes,
    Knob::older_copies,
    Knob::blank_caches,
    Knob::give_ups,
    Knob::repairs,
    Knob::cache_rot,
    Knob::metadata_rot,
    Knob::rot_while_off,
    Knob::aimed,
];

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of the world.
    pub seed: u64,
    values: [u64; COUNT],
    /// The kind of cache, by the name of its profile; `None`: our own, or plain slots.
    profile: Option<(&'static str, Composition)>,
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
    /// Draws the options of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Options {
        Options::draw_any(seed).within_what_is_judged()
    }

    /// The same without what cannot happen, or nobody can judge, in strict order and with a mirrored cache.
    pub(super) fn within_what_is_judged(self) -> Options {
        let options = if self.get(Knob::strict) > 0 { self.with_strict_order() } else { self };
        if options.get(Knob::mirrored) > 0 { options.with_halves() } else { options }
    }

    /// Whether the cache is of our own profile.
    pub(super) fn is_our_own(&self) -> bool {
        self.profile.is_none() && self.get(Knob::slot_blocks) == 0
    }

    /// The same on one device, where blocks go home in any order.
    #[must_use]
    pub fn in_any_order(self) -> Options {
        let is_as_drawn = self == Options::draw(self.seed);
        let drawn = if is_as_drawn { Options::draw_any(self.seed) } else { self };
        drawn.without(&[Knob::strict, Knob::mirrored])
    }

    fn draw_any(seed: u64) -> Options {
        let mut random = Random::new(seed).fork(0x0_5eed);
        let mut options = Options::off(seed);
        options.draw_shape(&mut random.fork(1));
        options.draw_load(&mut random.fork(2));
        options.draw_crashes(&mut random.fork(3));
        if random.one_in(2) {
            options.draw_faults(&mut random.fork(4));
        }
        options.draw_bounds(&mut random.fork(5));
        options.draw_operator(&mut random.fork(6));
        options.draw_aims(&mut random.fork(7));
        // Other bugs need runs in which nothing happens between two lives.
        let mut between_lives = random.fork(8);
        if between_lives.one_in(3) {
            options.draw_between_lives(&mut between_lives);
        }
        options.draw_holds(&mut random.fork(9));
        options.draw_ephemeral(&mut random.fork(10));
        options.draw_warms(&mut random.fork(11));
        options.draw_servers(&mut random.fork(12));
        options.draw_scrubs(&mut random.fork(13));
        options.draw_order(&mut random.fork(14));
        options.draw_slow_turns(&mut random.fork(15));
        options.draw_halves(&mut random.fork(16));
        options.draw_lasting(&mut random.fork(17));
        options.draw_trickles(&mut random.fork(18));
        options.draw_checkpoints(&mut random.fork(19));
        options.draw_streams(&mut random.fork(20));
        options.draw_held_flushes(&mut random.fork(21));
        options.draw_groups(&mut random.fork(22));
        options.draw_notes(&mut random.fork(23));
        options.draw_half_aims(&mut random.fork(24));
        options
    }

    /// As simple as can be.
    fn off(seed: u64) -> Options {
        Options { seed, values: std::array::from_fn(|at| Knob::ALL[at].off()), profile: None }
    }

    /// The same without knobs that the swarm got later: the draws before them stay the same.
    #[must_use]
    pub fn without_later_knobs(self) -> Options {
        self.in_any_order()
            .without(&[
                Knob::origin_changes,
                Knob::identities,
                Knob::older_copies,
                Knob::blank_caches,
                Knob::warms,
                Knob::hasty_stops,
                Knob::detaches,
                Knob::sets,
                Knob::repairs,
                Knob::silences,
                Knob::rot_while_off,
                Knob::sick_stops,
                Knob::unflushed_blocks,
                Knob::additions,
                Knob::successions,
                Knob::holds,
                Knob::rooms,
                Knob::scrubs,
                Knob::slow_turns,
                Knob::mirrored,
                Knob::lasting,
                Knob::trickles,
                Knob::checkpoint_blocks,
                Knob::checkpoint_interval,
                Knob::streams,
                Knob::held_flushes,
                Knob::group_calls,
                Knob::note_errors,
                Knob::half_aims,
            ])
            .without(SERVERS)
            .with_devices_alone()
    }

    /// The same with all origins behind servers, as `drawn` says what those do.
    #[must_use]
    pub fn with_servers(mut self, drawn: &Options) -> Options {
        SERVERS.iter().for_each(|knob| self.set(*knob, drawn.get(*knob)));
        self.set(Knob::remote, 7);
        self
    }

    /// Whether a knob does nothing: there are no servers.
    pub(super) fn is_idle(&self, knob: Knob) -> bool {
        self.get(Knob::remote) == 0 && SERVERS.contains(&knob)
    }

    /// The trouble that servers make.
    pub(super) fn trouble(&self) -> Trouble {
        Trouble {
            losses: self.get(Knob::server_losses) as u32,
            doubles: self.get(Knob::server_doubles) as u32,
            endings: self.get(Knob::server_endings) as u32,
            deaths: self.get(Knob::server_deaths),
            impostors: self.get(Knob::impostors),
            away_ns: self.get(Knob::away_ms) * Nanos::MILLISECOND,
        }
    }

    /// The same with one volume that goes home in strict order, and without what nobody can judge then: what the origin alone
    /// holds says nothing where content rots, or where others change it.
    #[must_use]
    pub fn with_strict_order(mut self) -> Options {
        self.set(Knob::strict, 1);
        self.set(Knob::volumes, 1);
        self.set(Knob::mode0, 0);
        self.without(UNJUDGED)
    }

    /// The same with a mirrored cache, and without what is not done to one: others make its devices fail and rot, and nobody
    /// repairs it or puts another one in its place.
    #[must_use]
    pub fn with_halves(mut self) -> Options {
        self.set(Knob::mirrored, 1);
        self.without(&[
            Knob::older_copies,
            Knob::blank_caches,
            Knob::repairs,
            Knob::cache_rot,
            Knob::metadata_rot,
            Knob::rot_while_off,
            Knob::successions,
            Knob::cache_read_error,
            Knob::cache_write_error,
            Knob::cache_flush_error,
            Knob::cache_hang,
            Knob::cache_gone,
        ])
    }

    fn without(mut self, knobs: &[Knob]) -> Options {
        knobs.iter().for_each(|knob| self.set(*knob, knob.off()));
        self
    }

    /// The same without what slots and buckets do not support yet.
    fn with_devices_alone(self) -> Options {
        self.without(&[
            Knob::company,
            Knob::company_wait_us,
            Knob::fill_wait_us,
            Knob::growths,
            Knob::metadata_rot,
            Knob::aimed,
        ])
    }

    /// The same with a cache of another profile. Where that has sets, they are smaller in some runs: of large ones the
    /// small volumes of a run fill few.
    #[must_use]
    pub fn like(mut self, profile: &'static str, composition: Composition) -> Options {
        let mut strict = composition;
        let can_be_strict = strict.set("order", "strict").is_ok() && strict.validate().is_ok();
        if composition == strict {
            self = self.with_strict_order();
        } else if self.get(Knob::strict) > 0 && !can_be_strict {
            self = self.in_any_order();
        }
        if let Placement::Slots(slots) = composition.placement {
            self = self.with_slots();
            let blocks = self.get(Knob::slots) * self.get(Knob::slot_blocks);
            let slot_blocks = u64::from(slots.slot_bytes) / BLOCK_BYTES;
            self.set(Knob::slot_blocks, slot_blocks);
            self.set(Knob::slots, blocks / slot_blocks);
            let own = u64::from(slots.ways);
            let ways = *Random::new(self.seed).fork(0x0_3a75).pick(&[own, own, own.min(16), own.min(64)]);
            self.set(Knob::ways, ways);
        }
        if matches!(composition.persistence, PersistenceChoice::Journal(_)) {
            self = self.with_buckets();
        }
        if matches!(composition.persistence, PersistenceChoice::Mirror(_)) {
            self = self.with_mirror();
        }
        if matches!(composition.persistence, PersistenceChoice::Frames(_)) {
            self = self.with_frames();
        }
        self.profile = Some((profile, composition));
        self
    }

    /// The same with slots instead of a log.
    #[must_use]
    pub fn with_slots(mut self) -> Options {
        self = self.in_any_order().with_devices_alone();
        let random = &mut Random::new(self.seed).fork(0x0_5107);
        let slot_blocks = *random.pick(&[1, 1, 1, 8, 16]);
        self.set(Knob::slot_blocks, slot_blocks);
        self.set(Knob::ways, *random.pick(&[0, 4, 16, 64]));
        self.set(Knob::slots, random.between(16, 1500) / slot_blocks);
        self = self.without(&[Knob::cache_rot]);
        let random = &mut Random::new(self.seed).fork(0x0_a3ea);
        self.set(Knob::area_blocks, *random.pick(&[1, 4, 16, 64, 992]));
        self.set(Knob::area_idle_ms, *random.pick(&[1, 10, 100, 1000]));
        self.set(Knob::open_areas, *random.pick(&[1, 4, 65536]));
        if random.one_in(4) {
            self.set(Knob::cache_rot, random.between(10_000, 500_000));
        }
        let random = &mut Random::new(self.seed).fork(0x0_4ec0);
        if random.one_in(4) {
            self.set(Knob::record_rot, random.between(10, 60));
        }
        self
    }

    /// The same with keys in the segments and data in buckets.
    #[must_use]
    pub fn with_buckets(mut self) -> Options {
        let metadata_rot = self.get(Knob::metadata_rot);
        self = self.in_any_order().with_devices_alone();
        self.set(Knob::metadata_rot, metadata_rot);
        let random = &mut Random::new(self.seed).fork(0x0_b0c4);
        let bucket_blocks = *random.pick(&[1, 4, 16, 128]);
        self.set(Knob::bucket_blocks, bucket_blocks);
        let buckets = (random.between(64, 2500) / bucket_blocks).clamp(8, 600);
        self.set(Knob::buckets, buckets);
        self.set(Knob::cutoff_bytes, *random.pick(&[0, 0, 65_536, 1 << 20]));
        self.set(Knob::rate, random.below(2));
        // The ring holds many keys: some histories are long enough to go round.
        if random.one_in(8) {
            self.set(Knob::steps, self.get(Knob::steps) * 6);
            self.set(Knob::request_blocks, 1);
        }
        self
    }

    /// The same with frames for clean data: few, so that blocks leave.
    #[must_use]
    pub fn with_frames(mut self) -> Options {
        let random = &mut Random::new(self.seed).fork(0x0_f4a3);
        let group_blocks = *random.pick(&[4, 16, 128]);
        self.set(Knob::bucket_blocks, group_blocks);
        self.set(Knob::buckets, (random.between(64, 2000) / group_blocks).clamp(8, 600));
        self
    }

    fn has_frames(&self) -> bool {
        self.profile.is_some_and(|(_, own)| matches!(own.persistence, PersistenceChoice::Frames(_)))
    }

    /// The same with dirty data in memory, too.
    #[must_use]
    pub fn with_mirror(mut self) -> Options {
        self = self.in_any_order();
        self.set(Knob::aimed, 0);
        self.set(Knob::fill_wait_us, 0);
        let random = &mut Random::new(self.seed).fork(0x0_3133);
        self.set(Knob::memory_blocks, *random.pick(&[256, 512, 1024, 32_768]));
        self
    }

    fn keys(&self) -> Option<KeyLayout> {
        let bucket_blocks = self.get(Knob::bucket_blocks).min(8192) as u32;
        let (segments, segment_blocks) = self.ring();
        (bucket_blocks > 0).then(|| KeyLayout {
            geometry: Geometry { segments, segment_blocks },
            bucket_blocks: bucket_blocks.next_power_of_two(),
            buckets: self.get(Knob::buckets).clamp(8, 65_536) as u32,
        })
    }

    /// Priorities are written in every other world: caches as small as these have none as published.
    fn priorities_part(&self) -> &'static str {
        if self.seed.is_multiple_of(2) { "8" } else { "0" }
    }

    /// The same world with a log of the profile that was asked for, or with the buckets or the memory that were drawn, or
    /// with our own.
    fn with_log(&self, mut setup: Setup) -> Setup {
        let keys = self.keys();
        if let Some((_, mut composition)) = self.profile.filter(|_| setup.slots.is_none()) {
            if let Some(keys) = keys.filter(|_| !self.has_frames()) {
                let sectors = (keys.bucket_blocks * 8).to_string();
                composition.set("bucket_sectors", &sectors).expect("a profile with buckets");
                composition.set("priorities_part", self.priorities_part()).expect("a profile with buckets");
            }
            self.set_order(&mut composition);
            (setup.keys, setup.composition) = (keys, composition.text());
            if matches!(composition.persistence, PersistenceChoice::Mirror(_)) {
                // A simpler one without memory is no other kind of cache.
                setup.memory_blocks = setup.memory_blocks.max(256);
            }
            return setup.with_promise(&composition.contract());
        }
        let is_safe = self.get(Knob::early) == 0;
        let Some(keys) = keys else {
            let memory_blocks = self.get(Knob::memory_blocks);
            return match (setup.slots, memory_blocks) {
                (Some(_), _) => setup,
                (None, 0) => {
                    let mut own = Composition::forebay();
                    self.set_order(&mut own);
                    Setup { composition: own.text(), ..setup }.with_promise(&own.contract())
                }
                (None, _) => setup.with_mirror(memory_blocks, is_safe),
            };
        };
        let cutoff = self.get(Knob::cutoff_bytes).to_string();
        let passes: &[(&str, &str)] = &[("cutoff", "runs-and-congestion"), ("cutoff_bytes", &cutoff)];
        let mut besides = if cutoff == "0" { Vec::new() } else { passes.to_vec() };
        if self.get(Knob::rate) > 0 {
            besides.push(("destage", "pi"));
        }
        besides.push(("priorities_part", self.priorities_part()));
        setup.with_buckets(keys, &besides, is_safe)
    }

    /// Whether everything goes home in strict order, which not every cache can have.
    fn is_strict(&self) -> bool {
        let others = [Knob::mode0, Knob::blank_caches];
        self.get(Knob::strict) > 0
            && self.get(Knob::volumes) <= 1
            && others.into_iter().all(|knob| self.get(knob) == 0)
    }

    /// Whether the cache has two devices, which not every cache can have.
    pub(super) fn is_mirrored(&self) -> bool {
        let others = [Knob::slots, Knob::slot_blocks, Knob::buckets, Knob::memory_blocks, Knob::blank_caches];
        self.get(Knob::mirrored) > 0 && others.into_iter().all(|knob| self.get(knob) == knob.off())
    }

    fn set_order(&self, composition: &mut Composition) {
        if self.is_strict() {
            composition.set("order", "strict").expect("there is such an order");
        }
    }

    fn ring(&self) -> (u32, u32) {
        let segments = self.get(Knob::segments).clamp(64, 4096) as u32;
        (segments, (self.get(Knob::segment_blocks).clamp(32, 8192) as u32).next_power_of_two())
    }

    /// The same with slots that are recorded by transactions, with trees of dirty bits or without.
    #[must_use]
    pub fn with_transactions(self, has_trees: bool) -> Options {
        let mut options = self.with_slots();
        let random = &mut Random::new(options.seed).fork(0x0_c0de);
        options.set(Knob::persistence, 1 + u64::from(has_trees));
        options.set(Knob::commit_ms, *random.pick(&[1, 50, 1000]));
        options.set(Knob::tree_levels, *random.pick(&[2, 5, 13, 14]));
        options.set(Knob::leaf_pieces, *random.pick(&[1, 2, 32]));
        options.set(Knob::sla_permille, *random.pick(&[0, 1, 200, 1000]));
        options.set(Knob::adjust_ms, *random.pick(&[10, 50, 1000]));
        options
    }

    fn slots(&self) -> Option<SlotSetup> {
        let slot_blocks = self.get(Knob::slot_blocks);
        let slots = self.get(Knob::slots).min(65_536) as u32;
        let area_blocks = self.get(Knob::area_blocks).clamp(1, u64::from(CHECKSUM_PAGE_RECORDS)) as u32;
        let fits =
            |composition: &Composition| SlotLayout::of_composition_with_slots(slots, composition).is_ok();
        let Some((_, own)) = self.profile else {
            let rules = self.get(Knob::slot_rules);
            let mut drawn =
                (slot_blocks > 0).then(|| slot_rules(rules, slot_blocks, self.get(Knob::ways))).flatten()?;
            self.set_persistence(&mut drawn)?;
            let is_possible = drawn.validate().is_ok() && fits(&drawn);
            return is_possible.then_some(SlotSetup { slots, composition: drawn, area_blocks });
        };
        let Placement::Slots(_) = own.placement else { return None };
        let mut drawn = own;
        let slot_bytes = slot_blocks.saturating_mul(BLOCK_BYTES);
        let is_set = [("slot_bytes", slot_bytes), ("ways", self.get(Knob::ways))]
            .into_iter()
            .all(|(name, value)| drawn.set(name, &value.to_string()).is_ok());
        // A simpler one that cannot be is no other kind of cache.
        let is_possible = is_set && drawn.validate().is_ok() && fits(&drawn);
        Some(SlotSetup { slots, composition: if is_possible { drawn } else { own }, area_blocks })
    }

    /// `None` where slots cannot be recorded so.
    fn set_persistence(&self, composition: &mut Composition) -> Option<()> {
        let persistence = self.get(Knob::persistence);
        if persistence > 0 {
            let kind = if persistence == 1 { "commit" } else { "bit-tree" };
            composition.set("persistence", kind).ok()?;
        }
        let tunables = [
            ("commit_ms", Knob::commit_ms),
            ("tree_levels", Knob::tree_levels),
            ("leaf_pieces", Knob::leaf_pieces),
            ("sla_permille", Knob::sla_permille),
            ("adjust_ms", Knob::adjust_ms),
        ];
        composition.safe = self.get(Knob::safe) > 0;
        for (name, knob) in tunables.into_iter().take([0, 1, 5][persistence.min(2) as usize]) {
            composition.set(name, &self.get(knob).to_string()).ok()?;
        }
        Some(())
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
        let (segments, segment_blocks) = self.ring();
        let keys = self.keys();
        let mut bounds = match &keys {
            Some(keys) if self.has_frames() => Config::for_frames(keys),
            Some(keys) => Config::for_keys(keys),
            None => Config::for_cache(segments, segment_blocks),
        };
        bounds.idle_ns = self.get(Knob::idle_ms) * Nanos::MILLISECOND;
        bounds.flush_after_ns = self.get(Knob::flush_after_ms) * Nanos::MILLISECOND;
        bounds.destage_runs_max = self.get(Knob::destage_runs) as u32;
        bounds.work_bytes_max = self.get(Knob::work_kib) << 10;
        bounds.fill_blocks_max = self.get(Knob::fill_blocks);
        bounds.false_dirty_blocks_max = self.get(Knob::false_dirty_blocks);
        bounds.extents_max = self.get(Knob::extents) as usize;
        bounds.unflushed_blocks_max = match self.get(Knob::unflushed_blocks) {
            0 => u64::MAX,
            most => most,
        };
        bounds.group_commit_wait_ns_max = self.get(Knob::company_wait_us) * 1000;
        bounds.fill_wait_ns_max = self.get(Knob::fill_wait_us) * 1000;
        bounds.group_commit_blocks = self.get(Knob::company);
        if self.get(Knob::checkpoint_blocks) > 0 {
            bounds.checkpoint_interval_blocks = self.get(Knob::checkpoint_interval);
        }
        bounds.order = self.is_strict().then(|| OrderBounds {
            lag_ns: self.get(Knob::lag_ms) * Nanos::MILLISECOND,
            lag_blocks: self.get(Knob::lag_blocks).min(bounds.failing_dirty_blocks_max),
        });
        bounds.open_areas_max = self.get(Knob::open_areas).max(1) as u32;
        bounds.area_idle_ns = self.get(Knob::area_idle_ms) * Nanos::MILLISECOND;
        if self.get(Knob::slow_turns) > 0 {
            bounds.slowness = self.slowness();
            bounds.pace = self.pace();
        }
        let slots = self.slots();
        let promise = slots.map(|slots| slots.composition.contract());
        let setup = self.with_log(Setup {
            segments,
            segment_blocks,
            checkpoint_blocks: self.get(Knob::checkpoint_blocks).min(1 << 20) as u32,
            slots,
            is_mirrored: self.is_mirrored(),
            has_lasting_memory: self.get(Knob::lasting) > 0,
            catches_up: self.seed.is_multiple_of(2),
            group_calls: self.get(Knob::group_calls),
            note_errors: self.get(Knob::note_errors),
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
            held_flushes: HeldFlushes {
                cache: self.get(Knob::held_flushes) & 1 > 0,
                origins: self.get(Knob::held_flushes) & 2 > 0,
            },
            servers: ServerSetup {
                volumes: self.get(Knob::remote),
                request_sectors: self.get(Knob::server_sectors).min(65_536),
                without_flush: self.get(Knob::server_fua) > 0,
                flush_ns: 0,
            },
            memory_blocks: self.get(Knob::memory_blocks),
            have_origins_identities: self.get(Knob::identities) > 0,
            is_checked_on_open: [
                Knob::cache_rot,
                Knob::metadata_rot,
                Knob::rot_while_off,
                Knob::aimed,
                Knob::half_rot,
            ]
            .into_iter()
            .all(|rots| self.get(rots) == 0),
            are_copies_compared: true,
            ..Setup::new(self.seed)
        });
        self.ephemeral(match promise {
            Some(promise) => setup.with_promise(&promise),
            None => setup,
        })
    }

    /// A slowness that is seen within the time that a world lives.
    fn slowness(&self) -> Slowness {
        Slowness {
            look_ns: Nanos::MILLISECOND,
            slow_ns_min: self.get(Knob::cache_us) * 2000,
            slow_after_ns: 5 * Nanos::MILLISECOND,
            well_after_ns: 5 * Nanos::MILLISECOND,
            looks_min: 5,
        }
    }

    /// A pace of writes that is tried within the time that a world lives.
    fn pace(&self) -> PaceBounds {
        PaceBounds {
            slow_ns: self.get(Knob::cache_us) * 1000,
            window_ns: 3 * Nanos::MILLISECOND,
            requests_min: 1,
            pause_ns: 10 * Nanos::MILLISECOND,
        }
    }

    /// The same world with a cache that may be gone, if that was drawn, and the cache promises what a disk does.
    fn ephemeral(&self, mut setup: Setup) -> Setup {
        let is_safe = !setup.origins_keep
            && !setup.cache_keeps
            && setup.contract.kill_keeps_acknowledged
            && setup.contract.kill_loses_newest == 0;
        setup.is_ephemeral = is_safe && self.get(Knob::blank_caches) > 0;
        if setup.is_ephemeral {
            for volume in setup.volumes.iter_mut().filter(|volume| volume.mode == WriteMode::Writeback) {
                volume.mode = WriteMode::Writethrough;
            }
        }
        setup
    }

    /// The command that repeats a run with these options.
    #[must_use]
    pub fn replay_command(&self) -> String {
        let (drawn, command) = match self.profile {
            None => (Options::draw(self.seed), String::from("forebay lab verify")),
            Some((profile, composition)) => (
                Options::draw(self.seed).like(profile, composition),
                format!(
                    "forebay lab verify --profile {profile}{}",
                    if composition.safe { "" } else { " --unsafe" }
                ),
            ),
        };
        if *self == drawn {
            return format!("{command} --seed {} --runs 1", self.seed);
        }
        let changed: Vec<String> = Knob::ALL
            .iter()
            .filter(|knob| self.get(**knob) != drawn.get(**knob))
            .map(|knob| format!("{}={}", knob.name(), self.get(*knob)))
            .collect();
        format!("{command} --seed {} --runs 1 --options '{}'", self.seed, changed.join(" "))
    }

    /// Changes what a text of the form `NAME=NUMBER NAME=NUMBER` names. Strict order takes with it what nobody can judge
    /// then, drawn or named.
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
        *self = self.clone().within_what_is_judged();
        Ok(())
    }
}

impl fmt::Display for Options {
    /// The seed and the options that are not the simplest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        if let Some((profile, _)) = self.profile {
            write!(f, " of {profile}")?;
        }
        f.write_str(":")?;
        for knob in Knob::ALL.iter().filter(|knob| self.get(**knob) != knob.off() && !self.is_idle(**knob)) {
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
            let mut drawn = Options::draw(seed);
            if drawn.get(Knob::remote) == 0 {
                drawn = drawn.without(SERVERS);
            }
            let text = drawn.to_string();
            let (_, words) = text.split_once(": ").expect("a seed and options");
            let mut read = Options::off(seed);
            read.change(words).expect("options");
            assert_eq!(read, drawn);
        }
        assert_eq!(Options::draw(1).change("steps=x"), Err(UnknownKnob("steps=x".into())));
        assert_eq!(Options::draw(1).change("stops"), Err(UnknownKnob("stops".into())));
    }

    #[test]
    fn an_asked_for_strict_order_comes_without_what_nobody_can_judge_then() {
        let mut options = Options::off(1);
        options.change("strict=1 origin_changes=16 give_ups=6 volumes=2").expect("options");
        assert_eq!(options, Options::off(1).with_strict_order());
        options.change("strict=0 origin_changes=16").expect("options");
        assert_eq!(options.get(Knob::origin_changes), 16);
    }

    #[test]
    fn a_changed_run_has_a_command_that_names_the_change() {
        let mut options = Options::draw(7);
        assert_eq!(options.replay_command(), "forebay lab verify --seed 7 --runs 1");
        let mut composition = Composition::plain_slots();
        composition.set("ways", "64").expect("there are such sets");
        let slots = Options::draw(7).like("mine", composition);
        assert_eq!(slots.replay_command(), "forebay lab verify --profile mine --seed 7 --runs 1");
        options.set(Knob::cuts, 99);
        assert_eq!(options.replay_command(), "forebay lab verify --seed 7 --runs 1 --options 'cuts=99'");
    }
}
