//! The engine with its devices and clients, in one thread and in virtual time.
//!
//! A world is driven by whoever has it: submit requests, let events happen ([`World::step`],
//! [`World::wait`], [`World::run_dry`]), hold device operations back and let them go one by one
//! ([`World::hold`], [`World::complete`]), break devices ([`World::disk`]), crash, open again, verify. A
//! violation ends the world: every call that lets something happen returns it.

mod aftermath;
mod behind;
mod blank;
mod client;
mod crash;
mod device;
mod group;
pub mod halves;
mod image;
mod log_end;
mod operations;
mod operator;
mod requests;
mod rot;
mod script;
mod servers;
mod setup;
mod start;
mod succession;
mod trace;
mod verify;

pub use crash::AtStake;
pub use image::CutImage;
pub use operations::{IoView, OpId};
pub use requests::{Answer, Ticket};
pub use servers::{Found, ServerCounts, ServerSetup, Trouble};
pub use setup::{HeldFlushes, Latency, Setup, SlotSetup, VolumeSetup};
pub use start::Refusal;
pub use trace::{Trace, What};

use crate::clock::Clock;
use crate::content::{Sector, Tag};
use crate::disk::Disk;
use crate::memory::Pool;
use crate::oracle::{Moment, Oracle};
use crate::random::Random;
use crate::violation::{Kind, Violation};
use engine::effect::{Effect, Notice, Target, WriteMode};
use engine::engine::Engine;
use engine::format::{Geometry, Layout, SEGMENTS_OFFSET, Superblock, VolumeRecord};
use engine::mutation::Mutations;
use engine::pair::{Pair, Standing};
use engine::recovery;
use engine::units::{Nanos, SectorRange, VOLUMES_MAX, VolumeId};
use log_end::LogEnd;
use operations::{Filter, InFlight, Loss};
use requests::Outstanding;
use std::collections::{BTreeMap, BTreeSet};

/// Events after which the origin of a volume in strict order is judged.
const ORDER_STEPS: u64 = 16;

/// Whole blocks as a range.
#[must_use]
pub fn blocks(first: u64, count: u64) -> SectorRange {
    SectorRange { start: first * 8, sectors: count * 8 }
}

/// Sectors as a range.
#[must_use]
pub fn sectors(start: u64, sectors: u64) -> SectorRange {
    SectorRange { start, sectors }
}

/// Counters of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests submitted.
    pub requests: u64,
    /// Crashes that were followed by recovery and a full read-back.
    pub cuts: u64,
    /// Faults injected.
    pub faults: u64,
    /// Device operations.
    pub operations: u64,
    /// Recoveries.
    pub recoveries: u64,
    /// Recoveries that found dirty data.
    pub dirty_recoveries: u64,
    /// Recoveries that were cut themselves.
    pub recovery_cuts: u64,
    /// Batches that recovery cut off.
    pub batches_cut: u64,
    /// Headers that starts wrote, since their batches were answered before.
    pub headers_restored: u64,
    /// Recoveries that began with a checkpoint of the index.
    pub checkpoint_loads: u64,
    /// How often the log passed the device's end.
    pub wraps: u64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Reads served by the cache.
    pub hits: u64,
    /// Requests that failed, each with a reason.
    pub errors: u64,
    /// Counters of servers.
    pub servers: ServerCounts,
}

impl Counts {
    /// Adds those of another world.
    pub fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.cuts += other.cuts;
        self.faults += other.faults;
        self.operations += other.operations;
        self.recoveries += other.recoveries;
        self.dirty_recoveries += other.dirty_recoveries;
        self.recovery_cuts += other.recovery_cuts;
        self.batches_cut += other.batches_cut;
        self.headers_restored += other.headers_restored;
        self.checkpoint_loads += other.checkpoint_loads;
        self.wraps += other.wraps;
        self.destaged_blocks += other.destaged_blocks;
        self.hits += other.hits;
        self.errors += other.errors;
        self.servers.add(&other.servers);
    }
}

/// The engine with its devices and clients.
pub struct World {
    setup: Setup,
    engine: Option<Engine>,
    pool: Pool,
    cache: Disk,
    /// The second device of a mirrored cache.
    mirror: Option<Disk>,
    /// The half that failed last, until a start made both the same.
    hurt: Option<engine::pair::Half>,
    /// A half failed, rotted or was away since a start counted both.
    may_half_lack: bool,
    /// Sectors of each half with clients' data that rotted, though this half may be the only one later: what was there, and what is.
    rotten_halves: [BTreeMap<u64, (Sector, Sector)>; 2],
    /// The head or the summary of some segment rotted, in a script.
    is_end_rotten: bool,
    origins: Vec<Disk>,
    /// The stable identities of the origins; empty for none.
    identities: Vec<String>,
    /// The servers of origins that are behind some.
    servers: servers::Servers,
    behind: behind::Behind,
    /// Other caches in the line of this one.
    line: succession::Line,
    /// Number of the newest superblock that is noted beside the cache.
    noted_update: u64,
    notes: blank::Notes,
    modes: Vec<WriteMode>,
    /// Modes asked for, by request: whether they are durable is not known before the answer.
    asked_modes: Vec<(u64, usize, WriteMode)>,
    oracle: Oracle,
    clock: Clock,
    random: Random,
    in_flight: BTreeMap<u64, InFlight>,
    /// Losses of origins, until clients hear of them.
    losses: Vec<Loss>,
    next_op: u64,
    filters: Vec<Filter>,
    is_manual: bool,
    outstanding: BTreeMap<u64, Outstanding>,
    answers: BTreeMap<u64, Answer>,
    /// When changes were answered, where a crash of the process loses the newest.
    changed_at: Vec<(u64, Moment)>,
    /// When this life's cache failed, or began to hang: it keeps nothing that comes later.
    cache_failed_ns: Option<u64>,
    next_request: u64,
    group: group::Group,
    /// Writes of a process that ended, which may land while its successor runs: a broken lock.
    late: Vec<(Target, u64, crate::disk::Content)>,
    /// Volumes whose cache was given up, by a note outside the cache.
    abandoned: [bool; VOLUMES_MAX],
    detached: [bool; VOLUMES_MAX],
    /// Volumes that are to be taken off the cache: whether they are is not known before the answer.
    asked_detach: [bool; VOLUMES_MAX],
    /// Whether the engine called a volume dirty when it was last asked to take it off.
    dirty_at_detach: [bool; VOLUMES_MAX],
    /// The halves that counted when the engine was last asked to bring one up to date.
    standings_at_rejoin: [Standing; 2],
    /// When a half last failed an operation.
    half_failed_at: Option<Moment>,
    /// When the drains of a volume were last cancelled.
    cancelled_at: [Option<Moment>; VOLUMES_MAX],
    /// Volumes that are to be added while the engine runs, with their modes: whether they are is not known before the answer.
    asked_add: [Option<WriteMode>; VOLUMES_MAX],
    /// One copy of the superblock alone may have an operator's last change, which was cut.
    is_edit_alone: bool,
    /// Volumes some of whose writes went to the origin alone since the start, or before it and were not flushed then.
    is_bypassed: [bool; VOLUMES_MAX],
    /// Sectors that origins lost since the last start, and that the cache has.
    lost_under_cache: BTreeSet<(usize, u64)>,
    /// Some metadata of the cache rotted: it may be refused.
    is_metadata_rotten: bool,
    /// Sectors of records of slots that rotted since the last start: it serves what is right, or refuses.
    rotten_records: BTreeSet<u64>,
    /// Blocks of slots whose checksums the process knows, by their number on the device.
    known: BTreeSet<u64>,
    /// Sectors of the cache that rotted: what was there, and what is.
    rotten: BTreeMap<u64, (Sector, Sector)>,
    /// Sizes asked for, by request: whether they are durable is not known before the answer.
    asked_sizes: Vec<(u64, usize, u64)>,
    /// A failed flush took writes of the cache that were acknowledged.
    is_cache_lossy: bool,
    /// The log's last batches, of which the cache device may tell nothing; none where there is no log.
    log_end: Option<LogEnd>,
    /// Rot took the log's end at the last crash: what was acknowledged behind it may be lost.
    is_end_lost: bool,
    /// A sector, and a bit of it, that rots behind the next crash or stop.
    planned_rot: Option<rot::Planned>,
    violation: Option<Violation>,
    /// Events that happened.
    steps: u64,
    trace: Trace,
    counts: Counts,
    reports: Vec<recovery::Report>,
}

impl World {
    /// A freshly formatted cache, origins with content, and an engine over them.
    ///
    /// # Panics
    /// If the setup is not one that the engine allows.
    #[must_use]
    pub fn new(setup: Setup) -> World {
        let notes = blank::Notes::new();
        let records = blank::first_records(&setup);
        let (cache, _) = formatted(&setup, notes.set_id(), records, None, u64::MAX);
        let mirror = setup.is_mirrored.then(|| mirror_of(&cache, &setup, notes.set_id()));
        let origins: Vec<Disk> = (0..)
            .zip(&setup.volumes)
            .map(|(at, volume)| Disk::new(volume.sectors, |sector| Tag::initial(at, sector)))
            .collect();
        let oracle = Oracle::new(
            setup.contract,
            (0..)
                .zip(&setup.volumes)
                .map(|(at, volume)| (0..volume.sectors).map(|sector| Tag::initial(at, sector)).collect()),
        );
        let mut world = World {
            engine: None,
            pool: if setup.has_lasting_memory { Pool::with_lasting() } else { Pool::default() },
            cache: mirror.as_ref().map_or(cache, |(first, _)| first.clone()),
            mirror: mirror.map(|(_, second)| second),
            hurt: None,
            may_half_lack: false,
            is_end_rotten: false,
            origins,
            identities: (0..setup.volumes.len()).map(|at| identity(&setup, at)).collect(),
            servers: servers::Servers::new(setup.seed, setup.volumes.len()),
            behind: behind::Behind::default(),
            line: succession::Line::default(),
            noted_update: 0,
            notes,
            modes: setup.volumes.iter().map(|volume| volume.mode).collect(),
            asked_modes: Vec::new(),
            oracle,
            clock: Clock::default(),
            random: Random::new(setup.seed),
            in_flight: BTreeMap::new(),
            losses: Vec::new(),
            next_op: 1,
            filters: Vec::new(),
            is_manual: false,
            outstanding: BTreeMap::new(),
            answers: BTreeMap::new(),
            changed_at: Vec::new(),
            cache_failed_ns: None,
            next_request: 1,
            group: group::Group::new(setup.seed),
            late: Vec::new(),
            abandoned: [false; VOLUMES_MAX],
            detached: [false; VOLUMES_MAX],
            asked_detach: [false; VOLUMES_MAX],
            dirty_at_detach: [false; VOLUMES_MAX],
            standings_at_rejoin: [Standing::Out; 2],
            half_failed_at: None,
            rotten_halves: Default::default(),
            cancelled_at: [None; VOLUMES_MAX],
            asked_add: [None; VOLUMES_MAX],
            is_edit_alone: false,
            is_bypassed: [false; VOLUMES_MAX],
            lost_under_cache: BTreeSet::new(),
            is_metadata_rotten: false,
            rotten_records: BTreeSet::new(),
            known: BTreeSet::new(),
            rotten: BTreeMap::new(),
            asked_sizes: Vec::new(),
            is_cache_lossy: false,
            log_end: setup.slots.is_none().then(LogEnd::default),
            is_end_lost: false,
            planned_rot: None,
            violation: None,
            steps: 0,
            trace: Trace::default(),
            counts: Counts::default(),
            reports: Vec::new(),
            setup,
        };
        if world.setup.is_strict() {
            world.begin_order();
        }
        if let Err(violation) = world.open() {
            world.violation.get_or_insert(violation);
        }
        world
    }

    // ---- what there is -------------------------------------------------------------------------

    /// The setup it began with.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The engine, if one runs.
    #[must_use]
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Events so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Prints every event from now on.
    pub fn print_events(&mut self) {
        self.trace.is_printing = true;
    }

    /// Counters, those of the running engine included.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts_so_far();
        if let Some(engine) = &self.engine {
            add_status(&mut counts, engine);
        }
        counts
    }

    /// Counters up to the last crash, without those of the running engine.
    #[must_use]
    pub fn counts_so_far(&self) -> Counts {
        Counts { servers: self.servers.counts, ..self.counts }
    }

    /// Reports of all recoveries, in their order.
    #[must_use]
    pub fn reports(&self) -> &[recovery::Report] {
        &self.reports
    }

    /// The generator of the world.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The buffers.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The memory that outlives the process; none, where it has no such memory.
    #[must_use]
    pub fn lasting(&self) -> &[u8] {
        self.pool.lasting()
    }

    /// The oracle.
    #[must_use]
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// A device, to look into it or to break it.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn disk(&mut self, target: Target) -> &mut Disk {
        match target {
            Target::Cache => &mut self.cache,
            Target::Mirror => self.mirror.as_mut().expect("only a mirrored cache has a second device"),
            Target::Origin(volume) => &mut self.origins[volume.at()],
            Target::State => panic!("notes are not on a disk"),
        }
    }

    /// The cache device.
    pub fn cache(&mut self) -> &mut Disk {
        &mut self.cache
    }

    /// The origin of a volume.
    pub fn origin(&mut self, volume: usize) -> &mut Disk {
        &mut self.origins[volume]
    }

    /// Sets the memory that the next start has for the index; returns what it was.
    pub fn set_index_budget(&mut self, bytes: u64) -> u64 {
        std::mem::replace(&mut self.setup.index_budget_bytes, bytes)
    }

    /// How many volumes there are.
    #[must_use]
    pub fn volumes(&self) -> usize {
        self.modes.len()
    }

    /// A volume's size in sectors.
    #[must_use]
    pub fn volume_sectors(&self, volume: usize) -> u64 {
        self.setup.volumes[volume].sectors
    }

    /// Whether some of the cache's metadata rotted since the world began.
    #[must_use]
    pub fn is_metadata_rotten(&self) -> bool {
        self.is_metadata_rotten
    }

    /// Whether rot took the log's end at the last crash.
    #[must_use]
    pub fn is_end_lost(&self) -> bool {
        self.is_end_lost
    }

    /// The mode that was asked for last.
    #[must_use]
    pub fn mode(&self, volume: usize) -> WriteMode {
        self.modes[volume]
    }

    /// Whether the volume was taken off the cache.
    #[must_use]
    pub fn is_detached(&self, volume: usize) -> bool {
        self.detached[volume]
    }

    /// Whether the volume is on the cache, and nobody asked to take it off.
    #[must_use]
    pub fn is_served(&self, volume: usize) -> bool {
        !self.detached[volume] && !self.asked_detach[volume]
    }

    /// Whether the volume may be put on the cache: it was taken off, and nobody asked to add it.
    #[must_use]
    pub fn may_be_added(&self, volume: usize) -> bool {
        self.detached[volume] && self.asked_add[volume].is_none()
    }

    /// Virtual time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    // ---- what happens --------------------------------------------------------------------------

    /// The first violation, which ended the world.
    ///
    /// # Errors
    /// The violation.
    pub fn is_sound(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, kind: Kind, what: impl Into<String>) {
        self.violation.get_or_insert_with(|| Violation::new(kind, what));
    }

    fn note(&mut self, what: What) {
        self.trace.add(self.clock.now_ns(), what);
    }

    /// Takes the engine's effects until there is none.
    fn pump(&mut self) {
        self.group.end();
        while self.violation.is_none() {
            let Some(engine) = &mut self.engine else { return };
            let Some(effect) = engine.poll_effect(&mut self.pool) else { break };
            match effect {
                Effect::Io(io) => self.issued(io),
                Effect::Reply { id, result } => self.replied(id, result),
                Effect::Notice(notice) => {
                    self.note_failure(&notice);
                    if matches!(notice, Notice::CacheLatched { .. }) {
                        self.cache_failed_ns.get_or_insert(self.clock.now_ns());
                    }
                    self.note(What::Notice(notice));
                }
            }
        }
        self.note_told_losses(false);
        self.oracle.noted_losses();
        // What was answered before the engine was told is drawn now.
        self.losses.retain(|loss| loss.ops.iter().any(|op| self.in_flight.contains_key(op)));
        let now = self.oracle.moment();
        self.oracle.explained.drawn(now);
        if let Some(engine) = self.engine.as_mut().filter(|_| self.setup.catches_up) {
            engine.catch_up(&self.pool);
        }
        if let Some(misuse) = self.pool.misuse() {
            let misuse = misuse.to_string();
            self.fail(Kind::Effect, misuse);
        }
    }

    /// When the engine wants to be called. Who has not drawn its effects does not ask it.
    fn deadline_ns(&self) -> Option<u64> {
        let engine = self.engine.as_ref().filter(|_| self.group.ends_ns().is_none());
        engine.and_then(Engine::deadline).map(|deadline| deadline.0)
    }

    /// Lets the next thing happen: an operation of a device ends or lands, or the engine's deadline comes. False
    /// if there is nothing to come.
    ///
    /// # Errors
    /// A violation.
    pub fn step(&mut self) -> Result<bool, Violation> {
        self.is_sound()?;
        let (event, deadline) = (self.clock.next_ns(), self.deadline_ns());
        match (event, deadline) {
            _ if self.group.ends_ns().is_some_and(|ends_ns| event.is_none_or(|event| ends_ns < event)) => {
                self.clock.advance_to(self.group.ends_ns().expect("a group is under way"));
                self.pump();
            }
            (None, None) => return Ok(false),
            (Some(event), deadline) if deadline.is_none_or(|deadline| event <= deadline) => {
                if let Some(event) = self.clock.pop() {
                    self.device_event(event);
                }
            }
            (_, Some(deadline)) => self.tick(deadline),
            _ => unreachable!("one of them is there"),
        }
        self.steps += 1;
        if self.steps.is_multiple_of(ORDER_STEPS) {
            self.look_at_order();
        }
        self.is_sound().map(|()| true)
    }

    fn tick(&mut self, deadline_ns: u64) {
        self.clock.advance_to(deadline_ns);
        self.note(What::Tick);
        let now = Nanos(self.clock.now_ns());
        if let Some(engine) = &mut self.engine {
            engine.advance(now, &mut self.pool);
        }
        self.called();
    }

    /// Lets `ns` of time pass, with all that happens meanwhile.
    ///
    /// # Errors
    /// A violation.
    pub fn pass(&mut self, ns: u64) -> Result<(), Violation> {
        let until = self.clock.now_ns() + ns;
        loop {
            let nexts = [self.clock.next_ns(), self.deadline_ns(), self.group.ends_ns()];
            let next = nexts.into_iter().flatten().min();
            if next.is_none_or(|next| next > until) {
                break;
            }
            self.step()?;
        }
        self.clock.advance_to(until);
        Ok(())
    }

    fn note_counters(&mut self) {
        if let Some(engine) = &self.engine {
            add_status(&mut self.counts, engine);
        }
    }
}

/// Both halves of a mirrored cache, of which `cache` is formatted.
fn mirror_of(cache: &Disk, setup: &Setup, set_id: engine::format::SetId) -> (Disk, Disk) {
    let (mut first, mut second) = (cache.clone(), Disk::new(cache.sectors(), |_| Tag::ZERO));
    let (_, cache_bytes) = layout_of(setup);
    let (superblock, _) =
        recovery::load_superblock(&mut CutImage::whole(&mut first)).expect("it was just formatted");
    let halves = [CutImage::whole(&mut first), CutImage::whole(&mut second)];
    let mut pair = Pair::create(halves, set_id, cache_bytes, ["first", "second"]).expect("a healthy device");
    recovery::write_superblock(&mut pair, &superblock, Mutations::NONE).expect("a healthy device");
    drop(pair);
    first.flush_all();
    second.flush_all();
    (first, second)
}

/// The stable identity of an origin to begin with.
fn identity(setup: &Setup, volume: usize) -> String {
    if setup.have_origins_identities { format!("disk {volume}") } else { String::new() }
}

/// The record of a volume to begin with, without what is known of its origin.
fn record(volume: usize, setup: &VolumeSetup) -> VolumeRecord {
    let (name, origin) = (format!("v{volume}"), format!("mem:{volume}"));
    let new = VolumeRecord::new(VolumeId(1 + volume as u32), &name, &origin, setup.sectors);
    VolumeRecord { mode: setup.mode, ..new }
}

/// How the cache device of a setup is divided, and its size.
fn layout_of(setup: &Setup) -> (Layout, u64) {
    let geometry = Geometry { segment_blocks: setup.segment_blocks, segments: setup.segments };
    let slots = setup.slots.map(|slots| slots.layout());
    match (slots, &setup.keys) {
        (Some(layout), _) => (Layout::Slots(layout), layout.cache_bytes()),
        (None, Some(keys)) if setup.has_frames() => (Layout::Frames(*keys), keys.cache_bytes()),
        (None, Some(keys)) => (Layout::Keys(*keys), keys.cache_bytes()),
        (None, None) => {
            let bytes = u64::from(setup.segments) * geometry.segment_bytes();
            (Layout::Log(geometry), SEGMENTS_OFFSET + bytes + setup.checkpoint_bytes())
        }
    }
}

/// The cache device of a setup with these volumes, formatted over `blank`, or one that holds nothing. The power goes instead of
/// the write or flush after the first `changes`: then it is not whole.
fn formatted(
    setup: &Setup,
    set_id: [u8; 16],
    volumes: Vec<Option<VolumeRecord>>,
    blank: Option<Disk>,
    changes: u64,
) -> (Disk, bool) {
    let (layout, cache_bytes) = layout_of(setup);
    let mut superblock = Superblock {
        update: 1,
        session: 1,
        is_ephemeral: setup.is_ephemeral,
        is_mirrored: setup.is_mirrored,
        composition: match &setup.slots {
            Some(slots) => slots.composition.text(),
            None => setup.composition.clone(),
        },
        next_volume_id: 1 + volumes.len() as u32,
        ..Superblock::of_new_cache(set_id, cache_bytes, layout)
    };
    for (slot, record) in superblock.volumes.iter_mut().zip(volumes) {
        *slot = record;
    }
    let is_begun = blank.is_some();
    let mut cache = blank.unwrap_or_else(|| Disk::new(cache_bytes / 512, |_| Tag::ZERO));
    let mut image = CutImage::cut_after(&mut cache, changes);
    let voided = if is_begun { recovery::void_superblocks(&mut image) } else { Ok(()) };
    let written = voided
        .and_then(|()| recovery::format(&mut image, &superblock))
        .and_then(|()| recovery::write_superblock(&mut image, &superblock, Mutations::NONE));
    let was_cut = image.was_cut();
    assert!(written.is_ok() || was_cut, "a healthy device is formatted");
    if !was_cut {
        cache.flush_all();
    }
    (cache, !was_cut)
}

fn add_status(counts: &mut Counts, engine: &Engine) {
    let status = engine.status();
    counts.wraps += status.cache.wraps;
    for volume in &status.volumes {
        counts.destaged_blocks += volume.counters.destaged_blocks;
        counts.hits += volume.counters.hits;
    }
}
